// spiral.c - three arms of a spiral are told apart by a network of 4,611 numbers
#include "web.h"

enum { ARMS = 3, PER_ARM = 150, POINTS = ARMS * PER_ARM, SPIRAL_STEPS = 1000 };

static tensor_t *points, *arm_of, *places;
static nn_module_t *spiral_net;
static nn_optimizer_t *spiral_opt;

static void spiral_start(void) {
    static float xy[POINTS][2];
    static int64_t arm[POINTS];
    tensor_t *noise = tensor_mul_scalar(tensor_randn(POINTS), 0.16);
    const float *n = tensor_data(noise);
    for (int i = 0; i < POINTS; i++) {
        double radius = 0.04 + 0.96 * (i % PER_ARM) / PER_ARM;
        arm[i] = i / PER_ARM;
        double angle = 2.0944 * (double)arm[i] + 5.2 * radius + (double)n[i];
        xy[i][0] = (float)(radius * cos(angle));
        xy[i][1] = (float)(radius * sin(angle));
    }
    points = tensor_keep(tensor_from(xy, TENSOR_F32, POINTS, 2));
    arm_of = tensor_keep(tensor_from(arm, TENSOR_I64, POINTS));

    // The middle of each pixel of the picture.
    static float place[WEB_AREA][2];
    for (int i = 0; i < WEB_AREA; i++) {
        place[i][0] = (float)(2.2 * (i % WEB_SIDE + 0.5) / WEB_SIDE - 1.1);
        place[i][1] = (float)(2.2 * (i / WEB_SIDE + 0.5) / WEB_SIDE - 1.1);
    }
    places = tensor_keep(tensor_from(place, TENSOR_F32, WEB_AREA, 2));

    spiral_net = nn_sequential(nn_linear(2, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(),
                               nn_linear(64, ARMS));
    spiral_opt = nn_adamw(spiral_net, .lr = 5e-3, .weight_decay = 1e-3);
}

static double spiral_step(void) {
    tensor_t *loss = tensor_cross_entropy(nn_forward(spiral_net, points), arm_of);
    nn_zero_grad(spiral_opt);
    tensor_backward(loss);
    nn_step(spiral_opt);
    return tensor_item(loss);
}

static int spiral_done(void) {
    return web_steps >= SPIRAL_STEPS;
}

// web_pixels[0]: what the network says of each place. web_numbers: the share of right points, then
// x, y and arm of each.
static void spiral_paint(void) {
    static const double color[ARMS][3] = {
        {0.15, 0.39, 0.92}, {0.92, 0.35, 0.05}, {0.02, 0.59, 0.41}};
    tensor_t *share = tensor_softmax(nn_forward(spiral_net, places), 1);
    const float *of = tensor_data(share);
    for (int i = 0; i < WEB_AREA; i++) {
        for (int c = 0; c < 3; c++) {
            double sum = 0;
            for (int k = 0; k < ARMS; k++) { sum += (double)of[i * ARMS + k] * color[k][c]; }
            web_pixels[0][i][c] = web_byte(sum);
        }
        web_pixels[0][i][3] = 90;
    }
    tensor_t *hit = tensor_eq(tensor_argmax_dim(nn_forward(spiral_net, points), 1, 0), arm_of);
    web_numbers[0] = (float)(tensor_item(tensor_sum(hit)) / POINTS);
    const float *xy = tensor_data(points);
    for (int i = 0; i < POINTS; i++) {
        web_numbers[1 + 3 * i] = xy[2 * i];
        web_numbers[2 + 3 * i] = xy[2 * i + 1];
        web_numbers[3 + 3 * i] = (float)(i / PER_ARM);
    }
}

static const web_demo_t spiral = {spiral_start, spiral_step, spiral_done, spiral_paint, NULL, NULL};

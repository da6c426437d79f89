// image.c - a network learns a picture: place (x, y) in, color out; nothing else is stored
//
// The place is given as sines and cosines of 48 random waves (Tancik et al. 2020), without which a
// small network sees only a blur.
#include "web.h"

enum { WAVES = 48, WIDTH = 64, PIXELS_A_STEP = 1024, IMAGE_STEPS = 3000 };

static tensor_t *colors, *inputs;
static nn_module_t *image_net;
static nn_optimizer_t *image_opt;

// Hills under an evening sun, into web_pixels[0].
static void draw_evening(void) {
    for (int i = 0; i < WEB_AREA; i++) {
        double x = i % WEB_SIDE / (double)WEB_SIDE, y = i / WEB_SIDE / (double)WEB_SIDE;
        double color[3] = {0.98 - 0.55 * (1 - y) * (1 - y), 0.45 + 0.25 * y, 0.62 - 0.35 * y};
        double sun = hypot(x - 0.66, y - 0.40), glow = 0.5 * exp(-9 * sun);
        for (int c = 0; c < 3; c++) {
            color[c] = sun < 0.115 ? 1 - 0.25 * c : color[c] + glow * (1 - 0.3 * c);
        }
        for (int hill = 0; hill < 4; hill++) {
            double waves = 0.06 * sin(5 * x + 2.1 * hill) + 0.025 * sin(17 * x * (hill + 1));
            double height = 0.52 + 0.11 * hill + waves;
            double shade = 0.46 - 0.11 * hill, trees = 0.02 * fabs(sin(90 * x + hill)) * (hill > 1);
            for (int c = 0; c < 3 && y > height - trees; c++) {
                color[c] = shade * (0.75 + 0.2 * c) + 0.1 * (2 - c) * (1 - y);
            }
        }
        for (int c = 0; c < 3; c++) { web_pixels[0][i][c] = web_byte(color[c]); }
        web_pixels[0][i][3] = 255;
    }
}

// The picture in web_pixels[0] is the one to learn; the page may have put another one there.
static void image_input(double unused) {
    float *rgb = tensor_data_mut(colors);
    (void)unused;
    for (int i = 0; i < WEB_AREA * 3; i++) { rgb[i] = web_pixels[0][i / 3][i % 3] / 255.0f; }
    web_steps = 0;
}

static void image_start(void) {
    static float place[WEB_AREA][2];
    for (int i = 0; i < WEB_AREA; i++) {
        place[i][0] = 2.0f * (float)(i % WEB_SIDE) / WEB_SIDE - 1;
        place[i][1] = 2.0f * (float)(i / WEB_SIDE) / WEB_SIDE - 1;
    }
    tensor_t *waves = tensor_mul_scalar(tensor_randn(2, WAVES), 11);
    tensor_t *phase = tensor_matmul(tensor_from(place, TENSOR_F32, WEB_AREA, 2), waves);
    inputs = tensor_keep(tensor_cat(1, tensor_sin(phase), tensor_cos(phase)));
    colors = tensor_keep(tensor_zeros(WEB_AREA, 3));
    draw_evening();
    image_input(0);

    image_net = nn_sequential(nn_linear(2 * WAVES, WIDTH), nn_relu(), nn_linear(WIDTH, WIDTH),
                              nn_relu(), nn_linear(WIDTH, 3), nn_sigmoid());
    image_opt = nn_adam(image_net, .lr = 5e-3);
}

static double image_step(void) {
    tensor_t *pick = tensor_randint(0, WEB_AREA, PIXELS_A_STEP);
    tensor_t *guess = nn_forward(image_net, tensor_index_select(inputs, 0, pick));
    tensor_t *loss = tensor_mse_loss(guess, tensor_index_select(colors, 0, pick));
    nn_zero_grad(image_opt);
    tensor_backward(loss);
    nn_set_lr(image_opt, nn_lr_cosine(web_steps, IMAGE_STEPS, 5e-3, 3e-4));
    nn_step(image_opt);
    return tensor_item(loss);
}

static int image_done(void) {
    return web_steps >= IMAGE_STEPS;
}

// web_pixels[0]: the picture; [1]: what the network makes of it.
static void image_paint(void) {
    tensor_t *all = nn_forward(image_net, inputs);
    const float *rgb = tensor_data(all);
    for (int i = 0; i < WEB_AREA; i++) {
        for (int c = 0; c < 3; c++) { web_pixels[1][i][c] = web_byte((double)rgb[3 * i + c]); }
        web_pixels[1][i][3] = 255;
    }
}

static const web_demo_t image = {image_start, image_step,  image_done,
                                 image_paint, image_input, NULL};

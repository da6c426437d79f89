// dcgan.c - two networks play against each other until one of them draws flowers
//
// The discriminator learns to tell flowers that this program draws from those of the generator, which learns
// to deceive it (DCGAN, Radford et al. 2015: strided and transposed convolutions with batch norm). The
// generator never sees a flower: it makes 32 x 32 colors of 32 random numbers, and is told how to do better.
//
// Build: make build/dcgan && build/dcgan [picture.png]                   (STEPS=400)
// Output, and flowers, the generator's after STEPS/10 and STEPS steps, and a walk between four of them:
//   400 steps, loss 1.12 of the generator and 1.21 of the discriminator, 17.0 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { SIDE = 32, FLOWERS = 2000, BATCH = 48, NOISE = 32, SHEET = 6, WALK = 6 };

// [FLOWERS, 3, SIDE, SIDE], -1..1: 4 to 7 petals of one color round a yellow middle, on a dark ground.
static tensor_t *draw_flowers(void) {
    static float flower[FLOWERS][3][SIDE][SIDE];
    tensor_t *chosen = tensor_rand(FLOWERS, 6);
    const float *c = (const float *)tensor_data(chosen);
    for (int i = 0; i < FLOWERS * SIDE * SIDE; i++) {
        int k = i / (SIDE * SIDE), row = i / SIDE % SIDE, column = i % SIDE;
        const float *u = c + k * 6;
        double x = (column + 0.5) / SIDE * 2 - 1 - 0.15 * ((double)u[0] - 0.5);
        double y = (row + 0.5) / SIDE * 2 - 1 - 0.15 * ((double)u[1] - 0.5);
        int petals = 4 + (int)(3.999f * u[2]);
        double angle = atan2(y, x) + 6.2832 * (double)u[3], radius = hypot(x, y);
        double edge = 0.85 * (0.55 + 0.45 * fabs(cos(angle * petals / 2)));
        double petal = fmin(fmax((edge - radius) * 14, 0), 1), heart = fmin(fmax((0.25 - radius) * 14, 0), 1);
        double hue = (double)u[4], shade = 0.65 + 0.45 * radius;
        double color[3] = {0.95 - 0.55 * hue, 0.25 + 0.5 * (double)u[5] * (1 - hue), 0.35 + 0.6 * hue};
        double ground[3] = {0.06, 0.16, 0.10}, yellow[3] = {0.98, 0.80, 0.15};
        for (int part = 0; part < 3; part++) {
            double v = ground[part] + petal * (color[part] * shade - ground[part]);
            flower[k][part][row][column] = (float)(2 * fmin(v + heart * (yellow[part] - v), 1) - 1);
        }
    }
    return tensor_from(flower, TENSOR_F32, FLOWERS, 3, SIDE, SIDE);
}

static nn_module_t *up(int64_t from, int64_t to) {
    return nn_conv_transpose2d(from, to, 4, .stride = 2, .padding = 1);
}

static nn_module_t *down(int64_t from, int64_t to) {
    return nn_conv2d(from, to, 4, .stride = 2, .padding = 1);
}

// Pictures [rows * columns, 3, SIDE, SIDE], -1..1, side by side: [3, rows SIDE, columns SIDE], 0..1
static tensor_t *sheet(tensor_t *x, int64_t rows, int64_t columns) {
    tensor_t *grid = tensor_reshape(tensor_detach(x), rows, columns, 3, SIDE, SIDE);
    grid = tensor_reshape(tensor_permute(grid, 2, 0, 3, 1, 4), 3, rows * SIDE, columns * SIDE);
    return tensor_mul_scalar(tensor_add_scalar(grid, 1), 0.5);
}

// How far the logits are from saying that all pictures are real (1) or made (0).
static tensor_t *loss_of(tensor_t *logits, double truth) {
    return tensor_binary_cross_entropy_with_logits(logits, tensor_full_like(logits, truth));
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 400, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(1);
    tensor_t *flowers = draw_flowers();
    nn_module_t *generator = nn_sequential(
        nn_conv_transpose2d(NOISE, 64, 8), nn_batch_norm2d(64), nn_relu(), up(64, 32), nn_batch_norm2d(32),
        nn_relu(), up(32, 3), nn_tanh());
    nn_module_t *critic = nn_sequential(down(3, 32), nn_leaky_relu(0.2), down(32, 64), nn_batch_norm2d(64),
                                        nn_leaky_relu(0.2), nn_flatten(), nn_linear(64 * 8 * 8, 1));
    nn_optimizer_t *opt_g = nn_adam(generator, .lr = 1e-3, .beta1 = 0.5);
    nn_optimizer_t *opt_d = nn_adam(critic, .lr = 4e-4, .beta1 = 0.5);

    tensor_t *fixed = tensor_randn(SHEET * SHEET, NOISE, 1, 1);
    plot_t *p = plot_new(1400, 320);
    char text[160];
    plot_image(p, "flowers", sheet(tensor_narrow(flowers, 0, 0, SHEET * SHEET), SHEET, SHEET));
    double mean_g = 0, mean_d = 0;
    clock_t begin = clock();
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 1; step <= steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *real = tensor_index_select(flowers, 0, tensor_randint(0, FLOWERS, BATCH));
        tensor_t *made = nn_forward(generator, tensor_randn(BATCH, NOISE, 1, 1));
        tensor_t *loss_d = tensor_add(loss_of(nn_forward(critic, real), 0.9),
                                      loss_of(nn_forward(critic, tensor_detach(made)), 0));
        nn_zero_grad(opt_d);
        tensor_backward(loss_d);
        nn_step(opt_d);

        tensor_t *loss_g = loss_of(nn_forward(critic, made), 1);
        nn_zero_grad(opt_g);
        tensor_backward(loss_g);
        nn_step(opt_g);
        mean_g += (tensor_item(loss_g) - mean_g) * fmax(0.02, 1.0 / step);
        mean_d += (tensor_item(loss_d) - mean_d) * fmax(0.02, 1.0 / step);
        if (step == steps || step * 10 == steps) {
            (void)snprintf(text, sizeof text, "the generator's, step %d", step);
            nn_eval(generator);
            plot_image(p, text, sheet(nn_forward(generator, fixed), SHEET, SHEET));
            nn_train(generator);
        }
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;

    // Between four points of the random numbers the flowers change smoothly.
    scope = tensor_scope_begin_no_grad();
    nn_eval(generator);
    tensor_t *across = tensor_reshape(tensor_linspace(0, 1, WALK), 1, WALK, 1);
    tensor_t *corner = tensor_reshape(tensor_narrow(fixed, 0, 0, 4), 4, 1, 1, NOISE);
    tensor_t *top = tensor_lerp(tensor_select(corner, 0, 0), tensor_select(corner, 0, 1), across);
    tensor_t *bottom = tensor_lerp(tensor_select(corner, 0, 2), tensor_select(corner, 0, 3), across);
    tensor_t *walk = tensor_lerp(top, bottom, tensor_reshape(across, WALK, 1, 1));
    tensor_t *seen = nn_forward(generator, tensor_reshape(walk, WALK * WALK, NOISE, 1, 1));
    plot_image(p, "a walk between four of them", sheet(seen, WALK, WALK));
    tensor_scope_end(scope);
    (void)snprintf(text, sizeof text,
                   "%d steps, loss %.2f of the generator and %.2f of the discriminator, %.1f s of one core",
                   steps, mean_g, mean_d, seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "dcgan: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/dcgan.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// vae.c - a variational autoencoder finds, by itself, the two numbers that faces were drawn from
//
// 2,000 faces of 24 x 24 differ in their smile and in the height of their eyes; nobody tells the network. It
// squeezes a face into two numbers and draws it again. The picture walks through these two numbers.
//
// Build: make build/vae && build/vae [picture.png]                      (STEPS=1200)
// Output, and faces, what became of them, and the faces of a grid of 10 x 10 places:
//   1200 steps, loss 91.1, 1.43 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { SIDE = 24, AREA = SIDE * SIDE, FACES = 2000, BATCH = 100, GRID = 10, LATENT = 2 };

// How dark a place is that is so far from a stroke.
static double ink(double distance) {
    return fmin(fmax(1.6 - 14 * distance, 0), 1);
}

// [FACES, AREA], 0 paper to 1 ink
static tensor_t *draw_faces(void) {
    static float face[FACES][AREA];
    tensor_t *chosen = tensor_rand(FACES, 2);
    const float *c = (const float *)tensor_data(chosen);
    for (int i = 0; i < FACES * AREA; i++) {
        int k = i / AREA, at = i % AREA, row = at / SIDE;
        double x = fabs((at - row * SIDE + 0.5) / SIDE * 2 - 1), y = (row + 0.5) / SIDE * 2 - 1;
        double smile = 2 * (double)c[2 * k] - 1, eyes = 0.15 + 0.5 * (double)c[2 * k + 1];
        double mouth = x < 0.5 ? fabs(y - 0.42 + smile * (x * x * 1.6 - 0.2)) : 1;
        double head = fabs(hypot(x, y) - 0.9), eye = fmax(hypot(x - 0.36, y + eyes) - 0.06, 0);
        face[k][at] = (float)fmax(ink(head), fmax(ink(mouth), ink(eye)));
    }
    return tensor_from(face, TENSOR_F32, FACES, AREA);
}

// Pictures [rows * columns, AREA] side by side, with a gap: [rows (SIDE + 1), columns (SIDE + 1)]
static tensor_t *sheet(tensor_t *faces, int64_t rows, int64_t columns) {
    tensor_t *x = tensor_rsub_scalar(tensor_reshape(faces, rows, columns, SIDE, SIDE), 1);
    tensor_t *framed = tensor_ones(rows, columns, SIDE + 1, SIDE + 1);
    tensor_copy_(tensor_at(framed, "..., :-1, :-1"), x);
    return tensor_reshape(tensor_permute(framed, 0, 2, 1, 3), rows * (SIDE + 1), columns * (SIDE + 1));
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 1200, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(1);
    tensor_t *faces = draw_faces();
    nn_module_t *encoder = nn_sequential(nn_linear(AREA, 128), nn_relu(), nn_linear(128, 64), nn_relu(),
                                         nn_linear(64, 2 * LATENT));
    nn_module_t *decoder = nn_sequential(nn_linear(LATENT, 64), nn_relu(), nn_linear(64, 128), nn_relu(),
                                         nn_linear(128, AREA));
    nn_module_t *both = nn_sequential(encoder, decoder);      // for the optimizer; forward goes through z
    nn_optimizer_t *opt = nn_adam(both, .lr = 2e-3);
    double loss_now = 0;
    clock_t begin = clock();
    plot_t *p = plot_new(1000, 330);
    plot_panel(p, "training", "step", "loss");
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *x = tensor_index_select(faces, 0, tensor_randint(0, FACES, BATCH));
        tensor_t *code = nn_forward(encoder, x);
        tensor_t *mean = tensor_narrow(code, 1, 0, LATENT), *log_var = tensor_narrow(code, 1, LATENT, LATENT);
        tensor_t *deviation = tensor_exp(tensor_mul_scalar(log_var, 0.5));
        tensor_t *z = tensor_add(mean, tensor_mul(deviation, tensor_randn_like(mean)));
        tensor_t *bits = tensor_binary_cross_entropy_with_logits(nn_forward(decoder, z), x);
        tensor_t *spread = tensor_sub(tensor_add(tensor_square(mean), tensor_exp(log_var)), log_var);
        tensor_t *kl = tensor_mul_scalar(tensor_sum(tensor_sub_scalar(spread, 1)), 0.5 / BATCH);
        tensor_t *loss = tensor_add(tensor_mul_scalar(bits, AREA), kl);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 2e-3, 1e-4));
        nn_step(opt);
        loss_now = tensor_item(loss);
        if (step % 4 == 0) { plot_point(p, "", step, loss_now); }
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;

    scope = tensor_scope_begin_no_grad();
    tensor_t *some = tensor_narrow(faces, 0, 0, 25);
    tensor_t *numbers = tensor_narrow(nn_forward(encoder, some), 1, 0, LATENT);
    tensor_t *again = tensor_sigmoid(nn_forward(decoder, numbers));
    tensor_t *axis[] = {tensor_linspace(-1.8, 1.8, GRID), tensor_linspace(-1.8, 1.8, GRID)}, *grid[2];
    tensor_meshgrid(axis, 2, "ij", grid);
    tensor_t *places = tensor_stack(1, tensor_flatten(grid[1], 0, 1), tensor_flatten(grid[0], 0, 1));
    plot_image(p, "faces", sheet(some, 5, 5));
    plot_image(p, "out of two numbers each", sheet(again, 5, 5));
    tensor_t *walk = tensor_sigmoid(nn_forward(decoder, places));
    plot_image(p, "a walk through the two numbers", sheet(walk, GRID, GRID));
    tensor_scope_end(scope);
    char text[160];
    (void)snprintf(text, sizeof text, "%d steps, loss %.1f, %.2f s of one core", steps, loss_now, seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "vae: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/vae.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// fine_tune.c - a network that PyTorch trained learns four new shapes from eight examples each
//
// examples/data/shapes.safetensors was written by PyTorch (shapes.py beside it): a CNN that tells discs,
// squares, triangles and crosses apart. It is loaded here, checked against an output that PyTorch saved,
// given a new last layer, and taught rings, bars, stars and crescents. Its twin learns the same from scratch.
//
// Build: make build/fine_tune && build/fine_tune [picture.png]          (STEPS=200)
// Output, and the new shapes with both curves:
//   differs from PyTorch by at most 0.0000019
//   200 steps, loss 0.018, 72.2 % right (from scratch 60.5 %), 0.88 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { SIDE = 16, AREA = SIDE * SIDE, KINDS = 4, SHOTS = 8, TEST = 300, MAX = KINDS * TEST };

// How far (u, v) is outside of a shape, in its own size.
static double outside(int kind, double u, double v) {
    double far = hypot(u, v);
    switch (kind) {
    case 0: return fabs(far - 0.8) - 0.22;                                             // ring
    case 1: return fmax(fabs(u) - 0.28, fabs(v) - 1);                                  // bar
    case 2: return far - 0.62 - 0.34 * cos(5 * atan2(v, u));                           // star
    default: return fmax(far - 1, 0.8 - hypot(u - 0.5, v));                            // crescent
    }
}

// each of the KINDS n times [KINDS * n, 1, SIDE, SIDE], drawn as shapes.py draws
static tensor_t *draw(int n) {
    static float picture[MAX][AREA];
    tensor_t *chance = tensor_rand(KINDS * n, 5);
    const float *r = (const float *)tensor_data(chance);
    for (int i = 0; i < KINDS * n; i++, r += 5) {
        double size = 0.45 + 0.3 * (double)r[0], turn = 6.2832 * (double)r[1], c = cos(turn), s = sin(turn);
        for (int at = 0; at < AREA; at++) {
            int row = at / SIDE;
            double x = (at - row * SIDE) / 7.5 - 1 - 0.5 * ((double)r[2] - 0.5);
            double y = row / 7.5 - 1 - 0.5 * ((double)r[3] - 0.5);
            double d = outside(i / n, (c * x + s * y) / size, (c * y - s * x) / size);
            picture[i][at] = (float)(fmin(fmax(0.5 - 5 * d * size, 0), 1) * (0.6 + 0.4 * (double)r[4]));
        }
    }
    tensor_t *clean = tensor_from(picture, TENSOR_F32, KINDS * n, 1, SIDE, SIDE);
    return tensor_add(clean, tensor_mul_scalar(tensor_randn_like(clean), 0.08));
}

static nn_module_t *make_net(void) {
    return nn_sequential(nn_conv2d(1, 8, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                         nn_conv2d(8, 16, 3, .padding = 1), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                         nn_linear(256, 48), nn_relu(), nn_linear(48, KINDS));
}

// PyTorch's weights; the output it saved for a probe is compared.   -> net
static nn_module_t *from_pytorch(const char *path) {
    nn_module_t *net = make_net();
    nn_load(path, net, .partial = 1);                         // the probe's output is in the file as well
    nn_safetensors_t *file = nn_safetensors_open(path);
    tensor_t *want = nn_safetensors_get(file, "probe.output");
    tensor_t *got = nn_forward(net, tensor_reshape(tensor_linspace(-1, 1, AREA), 1, 1, SIDE, SIDE));
    double off = tensor_item(tensor_max(tensor_abs(tensor_sub(tensor_detach(got), want))));
    if (tensor_ok()) { printf("differs from PyTorch by at most %.7f\n", off); }
    nn_safetensors_close(file);
    nn_requires_grad_(nn_get_child(net, "0"), 0);             // the convolutions stay as they are
    nn_requires_grad_(nn_get_child(net, "3"), 0);
    nn_init_normal_(nn_get(net, "9.weight"), 0, 0.05);        // the last layer begins anew
    nn_init_zeros_(nn_get(net, "9.bias"));
    return net;
}

static double right(nn_module_t *net, tensor_t *x, tensor_t *y) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    double hits = tensor_item(tensor_sum(tensor_eq(tensor_argmax_dim(nn_forward(net, x), 1, 0), y)));
    tensor_scope_end(scope);
    return 100 * hits / (double)tensor_numel(y);
}

static tensor_t *labels(int n) {
    return tensor_repeat_interleave(tensor_arange(0, KINDS, 1, TENSOR_I64), n, 0);
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 200, 1, 1000000);
    const char *path = argc > 2 ? argv[2] : "examples/data/shapes.safetensors";
    const char *names[] = {"ring", "bar", "star", "crescent"};
    tensor_manual_seed(5);
    tensor_t *x = draw(SHOTS), *y = labels(SHOTS), *test_x = draw(TEST), *test_y = labels(TEST);
    nn_module_t *nets[2] = {from_pytorch(path), make_net()};
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    nn_optimizer_t *opts[] = {nn_adamw(nets[0], .lr = 2e-3), nn_adamw(nets[1], .lr = 2e-3)};

    plot_t *p = plot_new(1100, 330);
    tensor_t *row = tensor_permute(tensor_reshape(x, KINDS, SHOTS, SIDE, SIDE), 0, 2, 1, 3);
    plot_image(p, "all that it sees of the new shapes", tensor_reshape(row, KINDS * SIDE, SHOTS * SIDE));
    plot_panel(p, "% of 1,200 others named right", "step", NULL);
    double loss_now = 0, share[2] = {0, 0};
    clock_t begin = clock();
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step <= steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        for (int k = 1; k >= 0; k--) {
            if (step % 5 == 0 || step == steps) {
                share[k] = right(nets[k], test_x, test_y);
                plot_point(p, k ? "from scratch" : "from PyTorch's file", step, share[k]);
            }
            tensor_t *loss = tensor_cross_entropy(nn_forward(nets[k], x), y);
            nn_zero_grad(opts[k]);
            tensor_backward(loss);
            nn_step(opts[k]);
            loss_now = tensor_item(loss);
        }
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    tensor_t *said = tensor_argmax_dim(nn_forward(nets[0], test_x), 1, 0);
    tensor_t *cell = tensor_add(tensor_mul_scalar(test_y, KINDS), said);
    tensor_t *counts = tensor_bincount(cell, NULL, KINDS * KINDS);
    plot_confusion(p, "what it takes them for", tensor_reshape(counts, KINDS, KINDS), names);
    char text[160];
    (void)snprintf(text, sizeof text,
                   "%d steps, loss %.3f, %.1f %% right (from scratch %.1f %%), %.2f s of one core", steps,
                   loss_now, share[0], share[1], seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "fine_tune: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/fine_tune.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// pinn.c - a network solves Burgers' equation, u_t + u u_x = v u_xx, without being shown a solution
//
// The loss is the equation itself at random places: the derivatives of the network's output are taken by
// tensor_autograd_grad with TENSOR_CREATE_GRAPH, and the gradients of the weights go through them (double
// backward). u = -sin(pi x) + t (1 - x^2) net(x, t) has the right values at t = 0 and at the walls by its
// form. The result is compared with finite differences on a fine grid.
//
// Build: make build/pinn && build/pinn [picture.png]                    (STEPS=1500)
// Output, and u(x, t) with three moments of it beside the finite differences:
//   1500 steps, loss 0.0015, largest error 0.012, 1.44 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { BATCH = 512, GRID = 128, MOMENTS = 80 };
static const double pi = 3.14159265358979, viscosity = 0.04;

// x, t [n, 1] -> u [n, 1]
static tensor_t *solution(nn_module_t *net, tensor_t *x, tensor_t *t) {
    tensor_t *free_part = nn_forward(net, tensor_cat(1, x, t));
    tensor_t *walls = tensor_mul(t, tensor_rsub_scalar(tensor_square(x), 1));
    return tensor_sub(tensor_mul(walls, free_part), tensor_sin(tensor_mul_scalar(x, pi)));
}

// d (sum of y) / d x, which is the derivative at each place, recorded as well.
static tensor_t *derivative(tensor_t *y, tensor_t *x) {
    tensor_t *sum = tensor_sum(y), *d;
    tensor_autograd_grad(&sum, 1, NULL, &x, 1, &d, TENSOR_CREATE_GRAPH);
    return d;
}

static tensor_t *loss_of(nn_module_t *net) {
    tensor_t *x = tensor_requires_grad_(tensor_sub_scalar(tensor_mul_scalar(tensor_rand(BATCH, 1), 2), 1), 1);
    tensor_t *t = tensor_requires_grad_(tensor_rand(BATCH, 1), 1);
    tensor_t *u = solution(net, x, t), *u_x = derivative(u, x), *u_t = derivative(u, t);
    tensor_t *flow = tensor_add(u_t, tensor_mul(u, u_x));
    tensor_t *rest = tensor_sub(flow, tensor_mul_scalar(derivative(u_x, x), viscosity));
    return tensor_mean(tensor_square(rest));
}

// [MOMENTS, GRID]: explicit finite differences, steps far below the limit of stability.
static tensor_t *reference(void) {
    static float out[MOMENTS][GRID];
    double u[GRID], next[GRID], dx = 2.0 / (GRID - 1), dt = 1.0 / (MOMENTS - 1) / 100;
    for (int i = 0; i < GRID; i++) { u[i] = -sin(pi * (-1 + dx * i)); }
    for (int moment = 0; moment < MOMENTS; moment++) {
        for (int i = 0; i < GRID; i++) { out[moment][i] = (float)u[i]; }
        for (int k = 0; k < 100; k++) {
            for (int i = 1; i < GRID - 1; i++) {
                double flux = (u[i + 1] * u[i + 1] - u[i - 1] * u[i - 1]) / (4 * dx);
                next[i] = u[i] + dt * (viscosity * (u[i + 1] - 2 * u[i] + u[i - 1]) / (dx * dx) - flux);
            }
            for (int i = 1; i < GRID - 1; i++) { u[i] = next[i]; }
        }
    }
    return tensor_from(out, TENSOR_F32, MOMENTS, GRID);
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 1500, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(1);
    nn_module_t *net = nn_sequential(nn_linear(2, 32), nn_tanh(), nn_linear(32, 32), nn_tanh(),
                                     nn_linear(32, 32), nn_tanh(), nn_linear(32, 1));
    nn_optimizer_t *opt = nn_adam(net, .lr = 5e-3);
    double loss_now = 0;
    clock_t begin = clock();
    plot_t *p = plot_new(1100, 330);
    plot_panel(p, "the equation's rest, squared", "step", NULL);
    plot_log_y(p);
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *loss = loss_of(net);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 5e-3, 5e-5));
        nn_step(opt);
        loss_now = tensor_item(loss);
        plot_point(p, "", step, loss_now);
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;

    tensor_t *axis[] = {tensor_linspace(0, 1, MOMENTS), tensor_linspace(-1, 1, GRID)}, *grid[2];
    tensor_meshgrid(axis, 2, "ij", grid);
    tensor_t *u = solution(net, tensor_reshape(grid[1], -1, 1), tensor_reshape(grid[0], -1, 1));
    u = tensor_detach(tensor_reshape(u, MOMENTS, GRID));
    tensor_t *want = reference();
    double error = tensor_item(tensor_max(tensor_abs(tensor_sub(u, want))));
    tensor_t *shade = tensor_div_scalar(tensor_add_scalar(u, 1), 2), *dim = tensor_mul_scalar(shade, 0.85);
    tensor_t *rgb = tensor_stack(0, shade, dim, tensor_rsub_scalar(dim, 0.95));
    plot_image(p, "u(x, t): x to the right, t downwards", rgb);
    plot_panel(p, "t = 0.2, 0.5, 1 (dots: finite differences)", "x", "u");
    for (int k = 0; k < 3; k++) {
        static const int rows[] = {16, 40, MOMENTS - 1};
        int row = rows[k];
        tensor_t *dots = tensor_slice(tensor_select(want, 0, row), 0, 0, GRID, 6);
        plot_curve(p, NULL, axis[1], tensor_select(u, 0, row));
        plot_scatter(p, NULL, tensor_slice(axis[1], 0, 0, GRID, 6), dots, NULL);
    }
    char text[160];
    (void)snprintf(text, sizeof text, "%d steps, loss %.4f, largest error %.3f, %.2f s of one core", steps,
                   loss_now, error, seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "pinn: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/pinn.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

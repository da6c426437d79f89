// spiral.c - three arms of a spiral are told apart; the picture shows where the border runs as it is learnt
//
// Build: make build/spiral && build/spiral [picture.svg]                (STEPS=600)
// Output, and the borders after STEPS/20, STEPS/5 and STEPS steps, with the loss:
//   600 steps, loss 0.0017, 100.0 % of 900 points right, 0.25 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { ARMS = 3, PER_ARM = 300, POINTS = ARMS * PER_ARM };

// xy [POINTS, 2] and the arm of each point [POINTS].
static tensor_t *spiral(tensor_t **arm) {
    static float xy[POINTS][2];
    static int64_t of[POINTS];
    tensor_t *noise = tensor_mul_scalar(tensor_randn(POINTS), 0.16);
    const float *n = (const float *)tensor_data(noise);
    for (int i = 0; i < POINTS; i++) {
        int k = i % PER_ARM;
        double radius = 0.04 + 0.96 * k / PER_ARM;
        of[i] = i / PER_ARM;
        double angle = 2.0944 * (double)of[i] + 5.2 * radius + (double)n[i];
        xy[i][0] = (float)(radius * cos(angle));
        xy[i][1] = (float)(radius * sin(angle));
    }
    *arm = tensor_from(of, TENSOR_I64, POINTS);
    return tensor_from(xy, TENSOR_F32, POINTS, 2);
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 600, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(2);
    tensor_t *arm, *xy = spiral(&arm);
    nn_module_t *net = nn_sequential(nn_linear(2, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(),
                                     nn_linear(64, ARMS));
    nn_optimizer_t *opt = nn_adamw(net, .lr = 1e-2, .weight_decay = 1e-3);

    plot_t *p = plot_new(1100, 320);
    char text[160];
    double loss_now = 0, right = 0;
    tensor_t *losses = tensor_keep(tensor_zeros(steps > 0 ? steps : 1));
    clock_t begin = clock(), drawing = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 1; step <= steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *logits = nn_forward(net, xy), *loss = tensor_cross_entropy(logits, arm);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 1e-2, 1e-4));
        nn_step(opt);
        loss_now = tensor_item(loss);
        ((float *)tensor_data_mut(losses))[step - 1] = (float)loss_now;
        if (step == steps || step * 5 == steps || step * 20 == steps) {
            clock_t pause = clock();
            tensor_t *hit = tensor_eq(tensor_argmax_dim(logits, 1, 0), arm);
            right = 100.0 / POINTS * tensor_item(tensor_sum(hit));
            (void)snprintf(text, sizeof text, "%d steps", step);
            plot_panel(p, text, NULL, NULL);
            plot_boundary(p, net, -1.1, 1.1, -1.1, 1.1);
            plot_scatter(p, NULL, tensor_select(xy, 1, 0), tensor_select(xy, 1, 1), arm);
            drawing += clock() - pause;
        }
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin - drawing) / CLOCKS_PER_SEC;
    plot_panel(p, "cross entropy", "step", NULL);
    plot_log_y(p);
    plot_curve(p, NULL, NULL, losses);
    (void)snprintf(text, sizeof text, "%d steps, loss %.4f, %.1f %% of %d points right, %.2f s of one core",
                   steps, loss_now, right, (int)POINTS, seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "spiral: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/spiral.svg");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// profile.c - where a training step of a small convolutional network spends its time
//
// Build: make build/profile && build/profile step.json         (STEPS=20 THREADS=2, from the environment)
// Output: the ops, the lines of this file and the layers that take most, and the layers as a flame graph. The
// first argument, if there is one, gets a trace for chrome://tracing or ui.perfetto.dev.
#include "tensor_nn.h"

#define KIT_PROFILER_IMPLEMENTATION
#include "kit/profiler.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

enum { BATCH = 32, CLASSES = 10 };

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 20, 1, 1000000);
    tensor_set_num_threads(kit_setting("THREADS", 1, 1, 1024));
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    nn_module_t *features = nn_sequential(nn_conv2d(3, 16, 3, .padding = 1), nn_batch_norm2d(16), nn_relu(),
                                          nn_max_pool2d(2), nn_conv2d(16, 32, 3, .padding = 1), nn_relu(),
                                          nn_max_pool2d(2), nn_flatten());
    nn_module_t *head = nn_sequential(nn_linear(32 * 8 * 8, 64), nn_relu(), nn_linear(64, CLASSES));
    nn_module_t *net = nn_sequential(features, head);
    nn_optimizer_t *opt = nn_adam(net, .lr = 1e-3);
    tensor_t *x = tensor_randn(BATCH, 3, 32, 32), *y = tensor_randint(0, CLASSES, BATCH);

    kit_profiler_t *p = NULL;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = -3; step < steps; step++, tensor_scope_reset(scope)) {
        if (step == 0) { p = kit_profiler_start(); }    // the first steps take memory from the system
        nn_zero_grad(opt);
        tensor_t *loss = tensor_cross_entropy(nn_forward(net, x), y);
        tensor_backward(loss);
        tensor_range_push("update");
        nn_step(opt);
        tensor_range_pop();
    }
    tensor_scope_end(scope);

    kit_profiler_print(p, KIT_PROFILER_OPS, 12);
    kit_profiler_print(p, KIT_PROFILER_LINES, 12);
    kit_profiler_print(p, KIT_PROFILER_MODULES, 12);
    kit_profiler_flame(p);
    if (argc > 1) { kit_profiler_trace(p, argv[1]); }
    kit_profiler_free(p);
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "profile: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

// live.c FILE - bytes of live tensors during the second training step of ResNet-50 on the CPU
//
// Section 5.5 of the PyTorch paper: counted references free at once. Writes "seconds bytes" for every kernel;
// bench/paper.py live does the same with PyTorch. BATCH (4) is read from the environment.
//
// Build: make build/bench/live
#include "bench.h"

#include "../examples/models/resnet.h"

typedef struct curve_t {
    tensor_profiler_t hears;
    FILE *file;
    double began;
} curve_t;

static void point(void *user, const tensor_profiler_call_t *call) {
    const curve_t *c = (const curve_t *)user;
    fprintf(c->file, "%.6f %.0f\n", bench_now() - c->began, (double)call->live_bytes);
}

int main(int argc, char **argv) {
    const int64_t batch = getenv("BATCH") ? atoi(getenv("BATCH")) : 4;
    curve_t c = {{0}, NULL, 0};
    if (argc != 2 || !(c.file = fopen(argv[1], "w"))) {
        fprintf(stderr, "use: live FILE\n");
        return 1;
    }
    tensor_manual_seed(1);
    nn_module_t *net = resnet_new(50, 1000, 1, 0);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1, .momentum = 0.9);
    tensor_t *x = tensor_randn(batch, 3, 224, 224), *y = tensor_randint(0, 1000, batch);
    c.hears.user = &c;
    c.hears.begin = point;
    c.hears.end = point;
    for (int step = 0; step < 2; step++) {
        tensor_scope_t scope = tensor_scope_begin();
        if (step == 1) {
            c.began = bench_now();
            tensor_profiler_set(&c.hears);
        }
        nn_zero_grad(opt);
        tensor_backward(tensor_cross_entropy(nn_forward(net, x), y));
        nn_step(opt);
        tensor_profiler_set(NULL);
        tensor_scope_end(scope);
    }
    if (fclose(c.file)) {
        perror(argv[1]);
        return 1;
    }
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

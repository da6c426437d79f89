// hogwild.c - processes that train one net in shared memory without locks (section 5.4 of the PyTorch paper)
// The parameters are tensors over a shared mapping (kit/shared.h). Each process adds its own gradients to the
// weights that all see. Lost and late updates are part of the method.
// Build: make build/hogwild && build/hogwild                (PROCESSES=2 STEPS=6000, from the environment)
// Output: samples/s and wrong answers on new data, of one process and of several that share its steps.
#define KIT_SHARED_IMPLEMENTATION
#include "kit/shared.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"
#include "tensor_nn.h"
#include <time.h>

enum { BATCH = 256, INPUTS = 32, HIDDEN = 256, CLASSES = 10, TEST = 2000, ROOM = 1 << 20 };

static double now(void) {
#if defined(_WIN32)
    return (double)clock() / CLOCKS_PER_SEC;            // time of day there, not of the processor
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

// Moves the parameters of a layer to shared memory; fresh: their values too.   -> the first free byte
static char *share(nn_module_t *layer, char *at, int fresh) {
    nn_named_list_t list = nn_named_parameters(layer);
    for (int64_t i = 0; i < list.count; i++) {
        tensor_t *p = list.item[i].tensor;
        tensor_shape_t s = tensor_shape(p);
        size_t bytes = (size_t)tensor_numel(p) * sizeof(float);
        if (fresh) { tensor_copy_out(p, at, bytes); }
        nn_parameter(layer, list.item[i].name, tensor_wrap_n(at, TENSOR_F32, s.dims, s.ndim, NULL, NULL));
        at += (bytes + 63) / 64 * 64;
    }
    return at;
}

// The centres of the classes and the net; its memory begins with the steps that each process takes.
static nn_module_t *make(char *memory, int fresh, tensor_t **centres) {
    tensor_manual_seed(7);
    *centres = tensor_randn(CLASSES, INPUTS);
    nn_module_t *first = nn_linear(INPUTS, HIDDEN), *last = nn_linear(HIDDEN, CLASSES);
    share(last, share(first, memory + 64, fresh), fresh);
    return nn_sequential(first, nn_relu(), last);
}

// n samples of noisy classes around their centres. -> labels
static tensor_t *draw(tensor_t *centres, int64_t n, tensor_t **x) {
    tensor_t *y = tensor_randint(0, CLASSES, n);
    *x = tensor_add(tensor_index_select(centres, 0, y), tensor_mul_scalar(tensor_randn(n, INPUTS), 1.3));
    return y;
}

static int train(const char *name, int k) {
    kit_shared_t shared;
    if (kit_shared_open(&shared, name, ROOM)) { return 1; }
    tensor_t *centres, *x, *y;
    nn_module_t *net = make((char *)shared.data, 0, &centres);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.02);
    tensor_manual_seed(100 + (uint64_t)k);
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < *(int *)shared.data && tensor_ok(); step++, tensor_scope_reset(scope)) {
        y = draw(centres, BATCH, &x);
        nn_zero_grad(opt);
        tensor_backward(tensor_cross_entropy(nn_forward(net, x), y));
        nn_step(opt);
    }
    return tensor_shutdown();
}

int main(int argc, char **argv) {
    kit_shared_child(argc, argv, train);
    int counts[2] = {1, kit_setting("PROCESSES", 2, 1, 64)}, steps = kit_setting("STEPS", 6000, 1, 1000000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    double rate[2], wrong[2];
    char name[24];
    snprintf(name, sizeof name, "hogwild-%.0f", 1e3 * ((double)time(NULL) + now()));
    for (int run = 0; run < 2; run++) {
        kit_shared_t shared;
        tensor_t *centres, *x;
        if (kit_shared_new(&shared, name, ROOM)) { return tensor_shutdown() != 0; }
        nn_module_t *net = make((char *)shared.data, 1, &centres);
        int each = steps / counts[run];
        *(int *)shared.data = each;
        double begin = now();
        int failed = kit_shared_run(argv[0], name, counts[run], train);
        rate[run] = (double)each * counts[run] * BATCH / (now() - begin);
        tensor_t *y = draw(centres, TEST, &x), *answers = tensor_argmax_dim(nn_forward(net, x), 1, 0);
        wrong[run] = 100 * tensor_item(tensor_mean(tensor_to(tensor_ne(answers, y), TENSOR_F32)));
        failed = tensor_shutdown() || failed;
        kit_shared_close(&shared);
        if (failed) { return 1; }
        printf("%d processes: %.0f samples/s, %.2f %% are wrong\n", counts[run], rate[run], wrong[run]);
    }
    double worst = wrong[1] > wrong[0] ? wrong[1] : wrong[0];
    printf("%.2f times as fast; wrong at worst %.2f %%\n", rate[1] / rate[0], worst);
    if (fflush(stdout) || ferror(stdout)) { kit_refuse(TENSOR_ERR_IO, "stdout", "cannot write"); }
    return tensor_shutdown() != 0;
}

// checkpoint.c - checkpoints of a net and an optimizer, and of a scaler, a plateau and a loader: after a refused
// one all is as it was, after one that is taken a training step goes on. The first byte says which optimizer;
// from 128 on all parts are asked for.
#include "fuzz.h"

enum { OPTIMIZERS = 6 };
static struct {
    nn_module_t *net;
    nn_optimizer_t *opt;
} worlds[OPTIMIZERS];
static tensor_t *checkpoint_scaler;
static nn_plateau_t checkpoint_plateau;
static nn_data_loader_t *checkpoint_loader;
static char checkpoint_path[64], checkpoint_probe[64];

static uint8_t *read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    uint8_t *p = (uint8_t *)malloc(1 << 16);
    *n = f && p ? fread(p, 1, 1 << 16, f) : 0;
    if (f) { fclose(f); }
    return p;
}
static nn_training_t checkpoint_of(int k, int64_t step) {
    nn_training_t c;
    memset((void *)&c, 0, sizeof c);
    c.module = worlds[k].net;
    c.optimizer = worlds[k].opt;
    c.scaler = checkpoint_scaler;
    c.plateau = &checkpoint_plateau;
    c.loader = checkpoint_loader;
    c.step = step;
    return c;
}
// Everything that a load may change, hashed.
static uint64_t world_hash(int k, int64_t step) {
    uint64_t h = TEST_HASH;
    size_t n, i;
    uint8_t *p;
    nn_training_t c = checkpoint_of(k, step);
    PROMISE(nn_save_training(checkpoint_probe, &c) == 0, "%s", tensor_error_text());
    p = read_all(checkpoint_probe, &n);
    for (i = 0; i < n; i++) { h = (h ^ p[i]) * 1099511628211ull; }
    free(p);
    return h;
}
static void train(int k) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_ones(2, 2);
    nn_module_zero_grad(worlds[k].net);
    tensor_backward(tensor_sum(tensor_square(nn_forward(worlds[k].net, x))));
    if (worlds[k].opt) { nn_step(worlds[k].opt); }
    tensor_scope_end(scope);
}
static void checkpoint_setup(void) {
    int k;
    if (worlds[0].net) { return; }
    fuzz_path(checkpoint_path, sizeof checkpoint_path, "checkpoint");
    fuzz_path(checkpoint_probe, sizeof checkpoint_probe, "probe");
    checkpoint_scaler = tensor_keep(nn_grad_scaler(1024, 100));
    checkpoint_loader = nn_data_loader(nn_tensor_dataset(tensor_ones(5, 2), NULL), .batch_size = 2);
    for (k = 0; k < OPTIMIZERS; k++) {
        nn_module_t *m = nn_sequential(nn_linear(2, 2), nn_batch_norm1d(2));
        tensor_t *bias = nn_get(m, "0.bias"), *weight = nn_get(m, "0.weight");
        nn_optimizer_t *o = NULL;
        if (k == 1) { o = nn_sgd(m, .lr = 0.1, .momentum = 0.9); }
        if (k == 2) { o = nn_adamw(m, .lr = 0.01, .amsgrad = 1); }
        if (k == 3) { o = nn_rmsprop(m, .momentum = 0.5, .centered = 1); }
        if (k == 4) { o = nn_muon(.list = &weight, .count = 1); }
        if (k == 5) { o = nn_nadam(m); }
        if (k == 2) { nn_optimizer_group(o, &bias, 1, .lr = 0.5, .weight_decay = 0.25); }
        worlds[k].net = m;
        worlds[k].opt = o;
        train(k);
    }
}

static void checkpoint(const uint8_t *data, size_t size) {
    int k = size ? data[0] % OPTIMIZERS : 0, code;
    int64_t step = 3;
    size_t bytes;
    uint8_t *file;
    uint64_t before;
    FILE *f;
    file = file_of(size ? data + 1 : data, size ? size - 1 : 0, &bytes);
    before = world_hash(k, step);
    f = fopen(checkpoint_path, "wb");
    if (!f || fwrite(file, 1, bytes, f) != bytes) { abort(); }
    fclose(f);
    free(file);
    if (size && data[0] >= 128) {
        nn_training_t c = checkpoint_of(k, step);
        code = nn_load_training(checkpoint_path, &c);
        step = c.step;
    } else {
        code = nn_load_checkpoint(checkpoint_path, worlds[k].net, worlds[k].opt, &step);
    }
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_OUT_OF_MEMORY ||
                code == TENSOR_ERR_UNSUPPORTED,
            "%s", tensor_error_text());
    PROMISE(code == tensor_error_code(), "code %d, error %d", code, tensor_error_code());
    tensor_clear_error();
    if (code) {
        PROMISE(world_hash(k, step) == before, "a refused checkpoint changed something");
    } else {
        train(k);
        PROMISE(tensor_ok(), "a step after it: %s", tensor_error_text());
    }
    remove(checkpoint_path);
    remove(checkpoint_probe);
}
FUZZ_TARGET(checkpoint, checkpoint_setup)

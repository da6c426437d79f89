// snapshot.c - blocks of nn_snapshot: refused, and then nothing has changed, or as a whole
#include "fuzz.h"

static nn_module_t *snapshot_net;
static nn_optimizer_t *snapshot_opt;

static void snapshot_setup(void) {
    if (snapshot_net) { return; }
    snapshot_net = nn_linear(3, 2);
    snapshot_opt = nn_adam(snapshot_net, .lr = 0.01);
    tensor_backward(tensor_sum(nn_forward(snapshot_net, tensor_ones(1, 3))));
    nn_step(snapshot_opt);
    nn_zero_grad(snapshot_opt);
}

// Weights and states, as the bytes of another snapshot.
static void snapshot_now(uint8_t *block, size_t bytes) {
    memset(block, 0, bytes);
    PROMISE(nn_snapshot(snapshot_net, snapshot_opt, block, bytes) == 0, "%s", tensor_error_text());
}

// The first byte of an input: 0 a block as it is, else changes of one that is right: where (two bytes), what.
static void snapshot(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    const size_t bytes = nn_snapshot_size(snapshot_net, snapshot_opt);
    uint8_t *before = (uint8_t *)malloc(bytes), *after = (uint8_t *)malloc(bytes);
    if (!before || !after) { abort(); }
    snapshot_now(before, bytes);
    const int whole = next_byte(&b) != 0;
    size_t n = whole ? bytes : (size_t)(b.end - b.p);
    uint8_t *block = (uint8_t *)malloc(n + !n);
    if (!block) { abort(); }
    if (n) { memcpy(block, whole ? before : b.p, n); }
    while (whole && b.p < b.end) {
        unsigned at = next_pair(&b);
        block[at % bytes] = (uint8_t)next_byte(&b);
    }
    int code = nn_restore(snapshot_net, snapshot_opt, block, n);
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_SHAPE ||
                code == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    tensor_clear_error();
    if (code == 0) { // what the block says has become so; back to what was
        code = nn_restore(snapshot_net, snapshot_opt, before, bytes);
        PROMISE(code == 0, "%s", tensor_error_text());
    }
    snapshot_now(after, bytes);
    PROMISE(memcmp(before, after, bytes) == 0, "another state than before");
    free(block);
    free(before);
    free(after);
}
FUZZ_TARGET(snapshot, snapshot_setup)

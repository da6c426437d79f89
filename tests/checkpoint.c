// checkpoint.c - what runs again in backward: values, gradients, calls, the generator
#define HERE "checkpoint.c:"
#include "graphs.h"

static void run_blocks(tensor_t *x, block_t *b, int n, int checkpoint, tensor_t **gx, tensor_t **gw) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *h = x;
    int k;
    tensor_manual_seed(7);
    tensor_set_grad(x, NULL);
    tensor_set_grad(b->w, NULL);
    for (k = 0; k < n; k++) { h = checkpoint ? tensor_checkpoint(block, b, &h, 1) : block(&h, 1, b); }
    tensor_rand(3); // the generator moved on
    CHECK(tensor_backward(tensor_sum(h)) == 0);
    *gx = tensor_keep(tensor_grad(x));
    *gw = tensor_keep(tensor_grad(b->w));
    tensor_scope_end(s);
}

static void checkpoint(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(64, 32), 1), *g[3][2], *y, *a, *c;
    block_t b;
    tensor_memory_stats_t plain, saved;
    uint64_t start;
    tensor_generator_t rng;
    int k;
    memset(&b, 0, sizeof b);
    b.w = tensor_requires_grad_(tensor_mul_scalar(tensor_randn(32, 32), 0.2), 1);
    b.w = tensor_requires_grad_(tensor_detach(b.w), 1);
    tensor_reset_peak_memory();
    start = tensor_memory_stats().live_bytes;
    run_blocks(x, &b, 12, 0, &g[0][0], &g[0][1]);
    plain = tensor_memory_stats();
    tensor_reset_peak_memory();
    b.calls = 0;
    run_blocks(x, &b, 12, 1, &g[1][0], &g[1][1]);
    saved = tensor_memory_stats();
    CHECK(b.calls == 24);
    CHECK(test_same_bits(g[0][0], g[1][0]) && test_same_bits(g[0][1], g[1][1]));
    CHECK_MSG(2 * (saved.peak_bytes - start) < plain.peak_bytes - start, "peak %llu with, %llu without",
              (unsigned long long)(saved.peak_bytes - start), (unsigned long long)(plain.peak_bytes - start));
    b.inner = 1;
    run_blocks(x, &b, 12, 1, &g[2][0], &g[2][1]); // checkpoints inside checkpoints
    CHECK(test_same_bits(g[0][0], g[2][0]) && test_same_bits(g[0][1], g[2][1]));
    b.inner = 0;
    for (k = 0; k < 3; k++) { tensor_free(g[k][0]), tensor_free(g[k][1]); }
    tensor_set_grad(x, NULL);
    tensor_set_grad(b.w, NULL);
    // autograd_grad, retained, twice; the generator is where it was
    b.calls = 0;
    y = tensor_sum(tensor_checkpoint(block, &b, &x, 1));
    rng = tensor_get_generator();
    CHECK(tensor_autograd_grad(&y, 1, NULL, &b.w, 1, &a, TENSOR_RETAIN_GRAPH) == 0 && b.calls == 2);
    CHECK(tensor_get_generator().offset == rng.offset && tensor_get_generator().seed == rng.seed);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &b.w, 1, &c, 0) == 0 && b.calls == 2);
    CHECK(test_same_bits(a, c));
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "freed by an earlier backward", HERE);
    // nothing recorded: a plain call
    {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        b.calls = 0;
        CHECK(!tensor_requires_grad(tensor_checkpoint(block, &b, &x, 1)) && b.calls == 1);
        tensor_scope_end(s);
    }
    // dropped without a backward; what runs anew must be the same; an input changed meanwhile
    tensor_checkpoint(block, &b, &x, 1);
    b.other = 1;
    b.calls = 0;
    y = tensor_sum(tensor_checkpoint(block, &b, &x, 1));
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "operations when it is run again", HERE);
    b.other = 2;
    b.calls = 0;
    y = tensor_sum(tensor_checkpoint(block, &b, &x, 1));
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "checkpoint: fn does", HERE);
    b.other = 0;
    a = tensor_mul_scalar(x, 1);
    y = tensor_sum(tensor_checkpoint(block, &b, &a, 1));
    tensor_add_scalar_(a, 1);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "checkpoint: input 0 [64,32] was changed in place by add",
          HERE);
    y = tensor_sum(tensor_checkpoint(block, &b, &x, 1)); // a captured parameter changed meanwhile
    {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_add_scalar_(b.w, 1);
        tensor_scope_end(s);
    }
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "changed in place by add", HERE);
    tensor_set_grad(x, NULL);
    tensor_set_grad(b.w, NULL);
    POISONS(tensor_checkpoint(NULL, NULL, &x, 1), TENSOR_ERR_OWNER, "checkpoint: argument fn is NULL",
            HERE);
}

// A view whose base was changed after it was made.
static tensor_t *stale_view(tensor_t *const *in, int n, void *user) {
    tensor_t *a = tensor_mul_scalar(in[0], 2), *v = tensor_select(a, 0, 1);
    (void)n, (void)user;
    tensor_mul_(a, in[0]);
    return v;
}

// user is a tensor that no node saves.
static tensor_t *shifted(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_relu(tensor_add(in[0], (tensor_t *)user));
}

static void used_by_fn(void) {
    tensor_t *x = LEAF64(1, 2, 3, 4), *bias = LEAF64(0, 0, 0, 0), *v = tensor_reshape(x, 2, 2), *y;
    y = tensor_sum(tensor_checkpoint(stale_view, NULL, &v, 1));
    CHECK(tensor_backward(y) == 0);
    CHECK(tensor_equal(tensor_grad(x), DATA64(0, 0, 12, 16)));
    tensor_set_grad(x, NULL);
    y = tensor_sum(tensor_checkpoint(shifted, bias, &x, 1));
    {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_add_scalar_(bias, -2.5);
        tensor_scope_end(s);
    }
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD,
          "checkpoint: [4], which fn uses, was changed in place by add", HERE);
    CHECK(tensor_grad(x) == NULL && tensor_grad(bias) == NULL);
}

static tensor_t *poly_checkpointed(tensor_t *const *in, int n, void *user) {
    return tensor_checkpoint(poly, user, in, n);
}

static tensor_t *custom_checkpointed(tensor_t *const *in, int n, void *user) {
    return tensor_checkpoint(two_of_many, user, in, n);
}

static void checkpoint_twice(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL};
    tensor_t *in[2];
    in[0] = LEAF64(0.2, -0.3, 1.1);
    in[1] = LEAF64(0.5, 0.7, -0.4);
    CHECK(tensor_gradcheck(poly_checkpointed, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(poly_checkpointed, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradcheck(custom_checkpointed, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(custom_checkpointed, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
}

static tensor_t *half_dropped(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_dropout(in[0], 0.5, 1);
}

// The generator goes on after a backward pass as if nothing had been run again.
static void checkpoint_and_generator(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(64), 1), *y, *r[2];
    for (int k = 0; k < 2; k++) {
        tensor_manual_seed(5);
        y = k ? tensor_checkpoint(half_dropped, NULL, &x, 1) : half_dropped(&x, 1, NULL);
        tensor_rand(7);
        CHECK(tensor_backward(tensor_sum(y)) == 0);
        r[k] = tensor_rand(16);
    }
    CHECK(tensor_equal(r[0], r[1]));
}

// Each input is looked at before the function runs.
static void checkpoint_of_poison(void) {
    tensor_t *in[2];
    in[0] = tensor_ones(2);
    in[1] = tensor_matmul(tensor_ones(2, 3), tensor_ones(2, 3));
    tensor_clear_error();
    CHECK_POISON(tensor_checkpoint(poly, NULL, in, 2), TENSOR_ERR_POISONED, "checkpoint: ");
}

// A function that multiplies by something else when it is run again.
enum { OTHER_SIZE, OTHER_RANK, OTHER_STRIDES, A_NUMBER, NO_RESULT, NOT_RECORDED, AS_BEFORE };
typedef struct unsteady_t {
    int how, calls;
} unsteady_t;
static tensor_t *unsteady(tensor_t *const *in, int n, void *user) {
    unsteady_t *u = (unsteady_t *)user;
    tensor_t *by = tensor_full_of(TENSOR_F64, 2, 3);
    (void)n;
    if (u->calls++) {
        switch (u->how) {
        case OTHER_SIZE: by = tensor_full_of(TENSOR_F64, 2, 1); break;
        case OTHER_RANK: by = tensor_reshape(by, 1, 3); break;
        case OTHER_STRIDES: by = tensor_slice(tensor_full_of(TENSOR_F64, 2, 6), 0, 0, 6, 2); break;
        case A_NUMBER: return tensor_mul_scalar(in[0], 2);
        case NO_RESULT: return NULL;
        case NOT_RECORDED: return tensor_detach(in[0]);
        default: break;
        }
    }
    return tensor_mul(in[0], by);
}
static void run_with_other_values(void) {
    tensor_t *x = LEAF64(1, 2, 3);
    for (int how = 0; how <= AS_BEFORE; how++) {
        unsteady_t u = {how, 0};
        tensor_t *y = tensor_sum(tensor_checkpoint(unsteady, &u, &x, 1));
        tensor_set_grad(x, NULL);
        if (how == AS_BEFORE) {
            CHECK(tensor_backward(y) == 0);
            CHECK(tensor_item(tensor_sum(tensor_grad(x))) == 6);
        } else {
            FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "checkpoint: fn d", HERE);
            CHECK(!tensor_grad(x));
        }
        CHECK(u.calls == 2);
    }
    tensor_t *y = tensor_checkpoint(unsteady, &(unsteady_t){NO_RESULT, 1}, &x, 1);
    CHECK_POISON(y, TENSOR_ERR_OWNER, "checkpoint: fn did not return a tensor");
}

int main(void) {
    RUN(run_with_other_values);
    RUN(checkpoint_of_poison);
    RUN(checkpoint);
    RUN(used_by_fn);
    RUN(checkpoint_twice);
    RUN(checkpoint_and_generator);
    return test_report();
}

// autocast.c - mixed precision: dtypes of results against PyTorch's (autocast.h, by autocast.py), training,
// scopes, the cache of weights, checkpoints, second derivatives, modules
#define TENSOR_BACKEND
#include "cases.h"
#include "autocast.h"

#include <stdint.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

// Every row with a class, and every function that has one without a row, is among them.
static void rows(void) {
    static const struct { const char *name; int cast; } all[] = {
#define X(ID, name, kind, f, dA, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_UNARY(X) TENSOR_OPS_COPY(X) TENSOR_OPS_DOUBLE1(X)
#undef X
#define X(ID, name, kind, f, dA, dB, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_BINARY(X) TENSOR_OPS_DOUBLE2(X)
#undef X
#define X(ID, name, kind, f, dA, dB, dC, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_TERNARY(X)
#undef X
#define X(ID, name, n, kind, f, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_COMPARE(X)
#undef X
#define X(ID, name, n, f, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_BITWISE(X)
#undef X
#define X(ID, name, family, nin, nout, kernel, grad, saves, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_OTHER(X)
#undef X
#define X(ID, name, family, nin, need, nout, cpu, scratch, grad, saves, cast, ...) {#name, TENSOR__##cast},
        NN_OPS(X)
#undef X
#define X(name, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_COMPOSED(X) NN_OPS_COMPOSED(X)
#undef X
    };
    // lstm, gru and rnn; losses; what scopes() tries; backward rows run as their op's mode was
    static const char *const others[] = {"recurrent", "losses", "linalg_lstsq", "binary_cross_entropy"};
    int k, j, i;
    for (k = 0; k < COUNT(all); k++) {
        for (j = 0; j < COUNT(autocast_rows) && strcmp(autocast_rows[j].op, all[k].name) != 0; j++) {}
        for (i = 0; i < COUNT(others) && strcmp(others[i], all[k].name) != 0; i++) {}
        CHECK_MSG(all[k].cast == TENSOR__AS_IS || j < COUNT(autocast_rows) || i < COUNT(others),
                  "%s has no line", all[k].name);
    }
}

// Leaves that require grad, so that backward runs too.
static tensor_t *leaf(int64_t rows, tensor_dtype_t dtype, double shift) {
    int64_t dims[2];
    tensor_t *x;
    dims[0] = rows ? rows : 4, dims[1] = 4;
    x = tensor_arange(1, (double)(rows ? 4 * rows : 4) + 1, 1, TENSOR_F64);
    x = tensor_add_scalar(tensor_mul_scalar(tensor_sin(tensor_add_scalar(x, shift)), 0.3), 0.5);
    x = tensor_to(tensor_reshape_n(x, dims, rows ? 2 : 1), dtype);
    return tensor_requires_grad_(tensor_detach(x), 1);
}
enum { MIXES = 7 };
// The inputs of a case as leaves, so that backward runs too: the first one of data has the first dtype.
static void inputs_of(const entry_t *op, const case_t *c, tensor_dtype_t first, tensor_dtype_t rest,
                      arguments_t *a) {
    tensor_dtype_t dtype = first;
    int k;
    begin_arguments(op, c, a);
    for (k = 0; k < a->nin; k++) {
        const word_t *w = &c->in[k];
        a->in[k] = input_of(w, k, op->lo, op->hi, dtype);
        if (!is_data(w)) continue;
        a->in[k] = tensor_detach(a->in[k]);
        if (!has_letter(w, 'c')) tensor_requires_grad_(a->in[k], 1);
        dtype = rest;
    }
}
// One case in one mix of dtypes. -> whether PyTorch's result is ours.
static int mixed(const entry_t *op, const case_t *c, const autocast_row_t *row, int mix) {
    static const tensor_dtype_t first[MIXES] = {TENSOR_F32, TENSOR_BF16, TENSOR_F32, TENSOR_BF16, TENSOR_F64,
                                                TENSOR_BF16, TENSOR_F64},
                                rest[MIXES] = {TENSOR_F32, TENSOR_BF16, TENSOR_BF16, TENSOR_F32, TENSOR_F64,
                                               TENSOR_F64, TENSOR_BF16};
    char want = row->result[mix];
    tensor_dtype_t dtype = want == 'f' ? TENSOR_F32 : want == 'g' ? TENSOR_BF16 : TENSOR_F64;
    arguments_t a;
    tensor_t *y, *loss;
    int n, same;
    memset(&a, 0, sizeof a);
    inputs_of(op, c, first[mix], rest[mix], &a);
    tensor_manual_seed(1);
    op->call(&a);
    y = a.out[0];
    if (want == 'x') return 1;
    if (!tensor_ok() || tensor_is_poison(y)) {          // halves that it never takes
        tensor_clear_error();
        tensor_set_autocast(TENSOR_DTYPE_NONE);
        inputs_of(op, c, first[mix], rest[mix], &a);
        op->call(&a);
        CHECK_MSG(!tensor_ok() || tensor_is_poison(a.out[0]), "%s, inputs %i: refused in autocast only",
                  op->name, mix);
        return 1;
    }
    same = tensor_dtype(y) == dtype;
    if (!skipped(op->name, "AUTOCAST"))
        CHECK_MSG(same, "%s, case %d, inputs %i: %s instead of %c", op->name, row->one, mix,
                  tensor_dtype_name(tensor_dtype(y)), want);
    CHECK_MSG(tensor_autocast_dtype() == TENSOR_BF16, "%s leaves the mode off", op->name);
    // gradients have the dtypes of the leaves, inside autocast or not
    if (!tensor_requires_grad(y)) return same;
    loss = tensor_sum(y);
    tensor_backward(loss);
    for (n = 0; n < a.nin; n++) {
        tensor_t *g = a.in[n] ? tensor_grad(a.in[n]) : NULL;
        if (g) CHECK_MSG(tensor_dtype(g) == tensor_dtype(a.in[n]), "%s: gradient %i", op->name, n);
    }
    CHECK_MSG(tensor_ok(), "%s, inputs %i: %s", op->name, mix, tensor_error_text());
    return same;
}
static void dtypes(void) {
    static case_t cases[MAX_CASES];
    int k, j, n, differing = 0, not_run = 0;
    for (k = 0; k < COUNT(autocast_rows); k++) {
        int at = find(autocast_rows[k].op), same = 1;
        CHECK_MSG(at < NOPS, "%s is in autocast.h and not in ops.def", autocast_rows[k].op);
        if (at == NOPS) continue;
        if (skipped(ops[at].name, "AUTOCAST") &&
            strncmp(skipped(ops[at].name, "AUTOCAST"), "aborts", 6) == 0) {
            not_run++;
            continue;
        }
        n = cases_of_op(&ops[at], 0, cases, MAX_CASES);
        CHECK_MSG(autocast_rows[k].one < n, "%s has no case %d", ops[at].name, autocast_rows[k].one);
        for (j = 0; j < MIXES && autocast_rows[k].one < n; j++) {
            tensor_scope_t s = tensor_scope_begin_autocast(TENSOR_BF16);
            same &= mixed(&ops[at], &cases[autocast_rows[k].one], &autocast_rows[k], j);
            tensor_clear_error();
            tensor_scope_end(s);
        }
        if (!skipped(ops[at].name, "AUTOCAST")) continue;
        differing += !same;
        CHECK_MSG(!same || autocast_rows[k].one > 0,
                  "%s: SKIP(.., AUTOCAST, ..) in ops.def, and it is PyTorch's", ops[at].name);
    }
    printf(
        "%d cases of ops, %d dtypes of results; skipped: %d cases differ, %d are not run, as ops.def says\n",
        COUNT(autocast_rows), MIXES * COUNT(autocast_rows), differing, not_run);
}

static tensor_t *waves(int64_t rows, int64_t cols, double step, double scale, double shift) {
    tensor_t *x = tensor_arange(0, (double)(rows * cols), 1, TENSOR_F32);
    x = tensor_mul_scalar(tensor_sin(tensor_add_scalar(tensor_mul_scalar(x, step), shift)), scale);
    return tensor_reshape(x, rows, cols);
}
// As PyTorch: every loss within two bf16 roundings of a value that is rounded.
static void training(void) {
    nn_module_t *net = nn_sequential(nn_linear(8, 16), nn_relu(), nn_linear(16, 4));
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.5);
    tensor_t *x = waves(12, 8, 1.3, 1, 0), *t = tensor_arange(0, 12, 1, TENSOR_I64);
    static const char *const names[4] = {"0.weight", "2.weight", "0.bias", "2.bias"};
    int k;
    tensor_scope_t all = tensor_scope_begin_no_grad();
    tensor_remainder_scalar_(t, 4);
    tensor_copy_(nn_get(net, names[0]), waves(16, 8, 0.7, 0.3, 8));
    tensor_copy_(nn_get(net, names[1]), waves(4, 16, 0.7, 0.3, 16));
    tensor_zero_(nn_get(net, names[2]));
    tensor_zero_(nn_get(net, names[3]));
    tensor_scope_end(all);
    for (k = 0; k < 20; k++) {
        tensor_scope_t step = tensor_scope_begin(), amp = tensor_scope_begin_autocast(TENSOR_BF16);
        tensor_t *y = nn_forward(net, x), *loss = tensor_cross_entropy(y, t);
        CHECK(tensor_dtype(y) == TENSOR_BF16 && tensor_dtype(loss) == TENSOR_F32);
        loss = tensor_scope_return(amp, loss);
        CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
        CHECK_NEAR(tensor_item(loss), autocast_losses[k], 1e-3);
        nn_zero_grad(opt);
        tensor_backward(loss);
        CHECK(tensor_dtype(tensor_grad(nn_get(net, names[0]))) == TENSOR_F32);
        nn_step(opt);
        tensor_scope_end(step);
    }
    for (k = 0; k < 4; k++)
        CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(nn_get(net, names[k]), 0, -1), 0, 0)),
                   autocast_weights[k], 4e-3);
    nn_optimizer_free(opt);
    nn_free(net);
}

static void scopes(void) {
    tensor_t *x = tensor_ones(4, 4), *at = tensor_zeros_of(TENSOR_I64, 4, 4),
             *m = tensor_add(leaf(4, TENSOR_F32, 1), tensor_eye(4, 4));
    tensor_lstsq_t ls;
    tensor_scope_t a, b, c;
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    a = tensor_scope_begin_autocast(TENSOR_BF16);
    b = tensor_scope_begin_autocast(TENSOR_F16);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_F16);
    c = tensor_scope_begin_autocast(TENSOR_DTYPE_NONE);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE && tensor_dtype(tensor_matmul(x, x)) == TENSOR_F32);
    tensor_scope_end(c);
    CHECK(tensor_autocast_dtype() == TENSOR_F16);
    tensor_scope_end(b);
    b = tensor_scope_begin();
    CHECK(tensor_autocast_dtype() == TENSOR_BF16);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_F32);
    tensor_scope_end(b);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_BF16);
    // a square is a power
    CHECK(tensor_item(tensor_max(tensor_square(tensor_full_n(NULL, 0, 300, TENSOR_F16)))) == 90000);
    // in place as they are; f64 and integers too
    CHECK(tensor_dtype(tensor_exp_(tensor_to(x, TENSOR_BF16))) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_matmul(tensor_to(x, TENSOR_I64), tensor_to(x, TENSOR_I64))) == TENSOR_I64);
    CHECK_POISON(tensor_matmul(x, tensor_to(x, TENSOR_F64)), TENSOR_ERR_DTYPE, "matmul");
    CHECK_POISON(tensor_binary_cross_entropy(x, x), TENSOR_ERR_UNSUPPORTED, "autocast");
    CHECK_POISON(tensor_scatter_add_(tensor_to(x, TENSOR_BF16), 0, at, x), TENSOR_ERR_DTYPE, "scatter_add");
    CHECK_POISON(tensor_index_put_(tensor_to(x, TENSOR_BF16), x, 0, tensor_select(at, 0, 0)),
                 TENSOR_ERR_DTYPE, "index");
    // what is made of many ops sees no autocast inside
    ls = tensor_linalg_lstsq(m, x);
    CHECK(tensor_dtype(ls.solution) == TENSOR_F32 && tensor_autocast_dtype() == TENSOR_BF16);
    b = tensor_scope_begin_autocast(TENSOR_DTYPE_NONE);
    CHECK(tensor_equal(tensor_linalg_lstsq(m, x).solution, ls.solution));
    tensor_scope_end(b);
    CHECK_POISON(tensor_matmul(x, tensor_ones(3, 4)), TENSOR_ERR_SHAPE, "matmul");
    CHECK(tensor_autocast_dtype() == TENSOR_BF16);
    tensor_scope_end(a);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    CHECK(tensor_set_autocast(TENSOR_F64) == TENSOR_DTYPE_NONE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "must be f16, bf16 or");
    tensor_scope_end(tensor_scope_begin_autocast(TENSOR_F32));
    CHECK_ERROR(TENSOR_ERR_DTYPE, "scope_begin_autocast: dtype 0 must be f16, bf16");
    CHECK(tensor_set_autocast(TENSOR_F16) == TENSOR_DTYPE_NONE);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_F16);
}

static int64_t alive(void) {
    tensor_memory_stats_t m = tensor_memory_stats();
    return m.live_tensors;
}
// A weight is cast once a region, anew after a change; both gradients reach it.
static void cache(void) {
    tensor_t *w = leaf(4, TENSOR_F32, 0), *x = tensor_ones(4, 4), *y, *g, *first, *second;
    tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16), b, off;
    int64_t nodes[3], before, k, outside = alive();
    nodes[0] = tensor_memory_stats().live_nodes;
    first = tensor_matmul(x, w);
    nodes[1] = tensor_memory_stats().live_nodes;
    second = tensor_matmul(w, x);
    nodes[2] = tensor_memory_stats().live_nodes;
    CHECK_MSG(nodes[1] - nodes[0] == nodes[2] - nodes[1] + 1, "the first product alone casts w");
    y = tensor_add(first, second);
    before = alive();
    for (k = 0; k < 5; k++) {
        b = tensor_scope_begin();
        tensor_matmul(x, w);
        CHECK_MSG(alive() == before + 1, "a cast beside the result: %d", (int)(alive() - before));
        tensor_scope_end(b);
    }
    CHECK(alive() == before);
    tensor_backward(tensor_sum(y));
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 8, 0);
    CHECK_NEAR(tensor_item(tensor_min(tensor_grad(w))), 8, 0);
    // the same cast again, after a pass that dropped what its graph saved
    tensor_backward(tensor_sum(tensor_matmul(x, w)));
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 12, 0);
    off = tensor_scope_begin_no_grad();
    tensor_fill_(w, 2);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(tensor_matmul(x, w), 0, -1), 0, 0)), 8, 0);
    tensor_scope_end(off);
    // made without a graph, it is not taken where a graph is wanted
    y = tensor_matmul(x, w);
    CHECK(tensor_requires_grad(y));
    g = tensor_scope_return(a, tensor_sum(y));
    CHECK(alive() == outside + 2);              // the gradient of w, and g
    tensor_backward(g);
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 16, 0);
}

// What was cast is not taken for what a parameter is after it went elsewhere, and is gone where the mode
// ends.
static void ends(void) {
    nn_module_t *m = nn_linear(4, 4, .no_bias = 1);
    tensor_t *w = nn_get(m, "weight"), *x = tensor_ones(1, 4), *y, *z;
    int64_t before = alive();
    tensor_scope_t a;
    CHECK(tensor_set_autocast(TENSOR_BF16) == TENSOR_DTYPE_NONE);
    tensor_free(nn_forward(m, x));
    CHECK(alive() == before + 1);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_BF16 && alive() == before);
    a = tensor_scope_begin_autocast(TENSOR_F16);
    tensor_fill_(tensor_detach(w), 1.001);
    CHECK(nn_to(m, TENSOR_F64) == 0 && nn_to(m, TENSOR_F32) == 0);
    y = nn_forward(m, x);
    CHECK(nn_to(m, TENSOR_BF16) == 0 && nn_to(m, TENSOR_F32) == 0);
    z = nn_forward(m, x);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(y, 0, -1), 0, 0)), 4.0039, 1e-3);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(z, 0, -1), 0, 0)), 4, 0);
    // the result of one operand is its own
    z = tensor_einsum("ij->ji", w);
    tensor_zero_(tensor_detach(z));
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(nn_forward(m, x), 0, -1), 0, 0)), 4, 0);
    tensor_scope_end(a);
    nn_free(m);
}
// A scope that cannot begin leaves the mode as it was.
static int failing;
static void *lean_alloc(void *user, size_t bytes, size_t alignment) {
    int fails = failing == 1 || (failing == 2 && bytes > 1024 && bytes < 8192);
    char *raw = fails ? NULL : (char *)malloc(bytes + alignment + sizeof raw), *p;
    (void)user;
    if (!raw) return NULL;
    p = raw + sizeof raw;
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}
static void lean_free(void *user, void *block, size_t bytes, size_t alignment) {
    char *raw;
    (void)user;
    (void)bytes;
    (void)alignment;
    memcpy(&raw, (char *)block - sizeof raw, sizeof raw);
    free(raw);
}
static void deep(void) {
    tensor_context_t *own = tensor_context_new(), *old = tensor_context_use(own);
    tensor_allocator_t lean;
    tensor_scope_t first, s;
    tensor_t *x, *w[4];
    int depth;
    memset((void *)&lean, 0, sizeof lean);
    lean.alloc = lean_alloc;
    lean.free = lean_free;
    CHECK(tensor_set_allocator(&lean) == 0);
    tensor_set_error_handler(test_quiet, NULL);
    x = tensor_ones(4, 4);
    w[0] = w[1] = x, w[2] = w[3] = NULL;
    first = tensor_scope_begin_autocast(TENSOR_F16);
    tensor_rnn(tensor_unsqueeze(x, 0), .weights = w, .no_bias = 1);
    for (depth = 1; depth < 70; depth++) {          // the list of scopes grows twice on the way
        failing = 1;
        if (tensor_is_poison(tensor_matmul(x, x))) CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, NULL);
        failing = 2;                                // the list of scopes alone
        if (tensor_is_poison(tensor_rnn_cell(x, x, x, x, NULL, NULL, 0)))
            CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, NULL);
        failing = 0;
        CHECK_MSG(tensor_autocast_dtype() == TENSOR_F16, "depth %d", depth);
        if (tensor_autocast_dtype() != TENSOR_F16) break;
        s = tensor_scope_begin();
        (void)s;
    }
    tensor_scope_end(first);
    tensor_context_use(old);
    tensor_context_free(own);
}

static tensor_t *product(tensor_t *const *inputs, int n, void *user) {
    tensor_t *w = (tensor_t *)user;
    (void)n;
    return tensor_softmax(tensor_matmul(tensor_tanh(tensor_matmul(inputs[0], w)), w), 1);
}
// A checkpoint runs again in the mode of forward, though backward is called outside.
static void checkpoints(void) {
    tensor_t *w = leaf(4, TENSOR_F32, 0), *x = leaf(4, TENSOR_F32, 1), *y[2], *c = leaf(4, TENSOR_F32, 2);
    int k;
    for (k = 0; k < 2; k++) {
        tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16);
        tensor_t *got[2], *in[2], *loss;
        in[0] = x, in[1] = w;
        tensor_matmul(x, w);                    // the cache has it already
        loss = tensor_sum(tensor_mul(k ? tensor_checkpoint(product, w, &x, 1) : product(&x, 1, w), c));
        loss = tensor_scope_return(a, loss);
        CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, got, 0) == TENSOR_OK);
        y[k] = tensor_cat(0, got[0], got[1]);
    }
    // the checkpoint casts w at each use: its two gradients are added in f32
    CHECK(tensor_dtype(y[0]) == TENSOR_F32 && tensor_dtype(y[1]) == TENSOR_F32);
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(y[0], y[1])))) <
          0.005 * tensor_item(tensor_max(tensor_abs(y[0]))));
}
// d2 of sum(tanh(x w)^2) within bf16 of that in f32; backward inside the region does as outside.
static void second(void) {
    tensor_t *got[2], *w = leaf(4, TENSOR_F32, 0), *x = leaf(4, TENSOR_F32, 1);
    int k;
    for (k = 0; k < 2; k++) {
        tensor_scope_t a = tensor_scope_begin_autocast(k ? TENSOR_BF16 : TENSOR_DTYPE_NONE);
        tensor_t *loss = tensor_sum(tensor_square(tensor_tanh(tensor_matmul(x, w)))), *g;
        CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &g, TENSOR_CREATE_GRAPH) == TENSOR_OK);
        CHECK(tensor_dtype(g) == TENSOR_F32);
        g = tensor_sum(tensor_square(g));
        CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &got[k], 0) == TENSOR_OK);
        got[k] = tensor_scope_return(a, got[k]);
        CHECK(tensor_dtype(got[k]) == TENSOR_F32);
    }
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(got[0], got[1])))) <
          0.05 * tensor_item(tensor_max(tensor_abs(got[0]))));
}

// Modules: recurrent, attention, convolution with norms, all with f32 weights and gradients.
static void modules(void) {
    nn_module_t *lstm = nn_lstm(4, 4, .layers = 2), *attention = nn_multihead_attention(4, 2),
                *conv = nn_sequential(nn_conv2d(2, 4, 3), nn_batch_norm2d(4), nn_relu(), nn_flatten(),
                                      nn_linear(16, 4), nn_layer_norm(4), nn_softmax(1)),
                *upsample = nn_upsample(.scale_factor = 2);
    nn_module_t *all[3];
    tensor_t *x = leaf(6, TENSOR_F32, 0), *h = NULL, *c = NULL, *y[3];
    tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16);
    int k;
    all[0] = lstm, all[1] = attention, all[2] = conv;
    y[0] = nn_lstm_forward(lstm, tensor_reshape(x, 3, 2, 4), &h, &c);
    CHECK(tensor_dtype(y[0]) == TENSOR_BF16 && tensor_dtype(h) == TENSOR_BF16);
    CHECK(tensor_dtype(c) == TENSOR_BF16);
    y[1] = tensor_reshape(x, 3, 2, 4);
    y[1] = nn_multihead_attention_forward(attention, y[1], y[1], y[1]);
    CHECK(tensor_dtype(y[1]) == TENSOR_BF16);
    tensor_t *image = tensor_reshape(tensor_cat(0, x, tensor_narrow(x, 0, 0, 2)), 1, 2, 4, 4);
    y[2] = nn_forward(conv, image);
    CHECK(tensor_dtype(y[2]) == TENSOR_F32);

    // As the function that it calls: torch.nn.Upsample of halves gives f32.
    image = tensor_to(image, TENSOR_BF16);
    CHECK(tensor_dtype(tensor_interpolate(image, .scale_factor = 2)) == TENSOR_F32);
    CHECK(tensor_dtype(nn_forward(upsample, image)) == TENSOR_F32);
    for (k = 0; k < 3; k++) {
        tensor_t *list[16];
        int n, i;
        tensor_backward(tensor_sum(tensor_square(y[k])));
        CHECK_MSG(tensor_ok(), "module %i: %s", k, tensor_error_text());
        for (n = nn_parameters(all[k], list, 16), i = 0; i < n; i++) {
            tensor_t *g = tensor_grad(list[i]);
            CHECK_MSG(g && tensor_dtype(g) == TENSOR_F32, "module %i: gradient %i", k, i);
        }
    }
    tensor_free(h);
    tensor_free(c);
    tensor_scope_end(a);
    for (k = 0; k < 3; k++) nn_free(all[k]);
    nn_free(upsample);
}

int main(void) {
    tensor_manual_seed(1);
    RUN(rows);
    RUN(dtypes);
    RUN(training);
    RUN(scopes);
    RUN(cache);
    RUN(ends);
    RUN(deep);
    RUN(checkpoints);
    RUN(second);
    RUN(modules);
    return test_report();
}

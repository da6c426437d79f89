// ops_every.c - every op of ops.def and every twin on its cases: every layout gives what contiguous inputs
// give, numeric gradients of first and second order, another device, inputs that are poison or dead
#define TENSOR_BACKEND
#include "mirror.h"
#include "cases.h"

static long n_layouts, n_grad, n_gradgrad, n_device, n_misuse, n_any;

static tensor_t *call_seeded(const entry_t *op, arguments_t *a, int result) {
    tensor_manual_seed(7);
    op->call(a);
    return result < a->nout ? a->out[result] : NULL;
}

// ---- layouts ----

// x with its elements elsewhere: in another order of dims, every second element, a part of a larger one.
static tensor_t *laid_out(tensor_t *x, int layout) {
    tensor_shape_t s = tensor_shape(x);
    int64_t dims[TENSOR_MAX_DIMS], perm[TENSOR_MAX_DIMS];
    tensor_t *view = x;
    int d;
    if (!s.ndim) { return x; }
    for (d = 0; d < s.ndim; d++) {
        dims[d] = layout == 0 ? s.dims[s.ndim - 1 - d] : s.dims[d];
        perm[d] = s.ndim - 1 - d;
    }
    if (layout == 1) { dims[s.ndim - 1] = 2 * s.dims[s.ndim - 1] + 1; }
    if (layout == 2) { dims[s.ndim - 1] += 3; }
    view = tensor_zeros_n(dims, s.ndim, tensor_dtype(x));
    if (layout == 0) { view = tensor_permute_n(view, perm, s.ndim); }
    if (layout == 1) { view = tensor_slice(view, -1, 1, dims[s.ndim - 1], 2); }
    if (layout == 2) { view = tensor_narrow(view, -1, 2, s.dims[s.ndim - 1]); }
    tensor_copy_(view, x);
    return view;
}
static int close_to(tensor_t *a, tensor_t *b) {
    tensor_shape_t s, t;
    int d;
    if (!a || !b) { return a == b; }
    s = tensor_shape(a), t = tensor_shape(b);
    for (d = 0; d < s.ndim && s.ndim == t.ndim; d++) {
        if (s.dims[d] != t.dims[d]) { return 0; }
    }
    if (s.ndim != t.ndim || tensor_dtype(a) != tensor_dtype(b)) { return 0; }
    if (test_same_bits(a, b)) { return 1; }
    return tensor_dtype(a) == TENSOR_F64 &&
           tensor_item(tensor_all(tensor_isclose(a, b, 1e-10, 1e-10, 1))) == 1;
}
static void in_layouts(const entry_t *op, const case_t *c) {
    int layout, k, r;
    for (layout = 0; layout < 3; layout++) {
        tensor_scope_t s = tensor_scope_begin();
        arguments_t a, b;
        arguments_of(op, c, TENSOR_F64, &a);
        b = a;
        for (k = 0; k < a.nin; k++) {
            if (a.in[k]) { b.in[k] = laid_out(a.in[k], layout); }
        }
        call_seeded(op, &a, 0);
        call_seeded(op, &b, 0);
        CHECK_MSG(tensor_ok(), "%s %s: %s", op->name, c->text, tensor_error_text());
        for (r = 0; r < a.nout && tensor_ok(); r++) {
            CHECK_MSG(close_to(a.out[r], b.out[r]), "%s %s: result %d differs in layout %c", op->name,
                      c->text, r, "TSN"[layout]);
        }
        CHECK_MSG(a.nout == b.nout, "%s %s: another number of results", op->name, c->text);
        tensor_clear_error();
        tensor_scope_end(s);
        n_layouts++;
    }
}

// ---- gradients ----

typedef struct graph_t {
    const entry_t *op;
    arguments_t a;
    int at[MAX_INPUTS], n, result;      // which inputs are differentiated
} graph_t;
static tensor_t *graph_call(tensor_t *const *in, int n, void *user) {
    graph_t *g = (graph_t *)user;
    arguments_t a = g->a;
    int k;
    for (k = 0; k < n; k++) { a.in[g->at[k]] = in[k]; }
    return call_seeded(g->op, &a, g->result);
}
static void gradients_of(const entry_t *op, const case_t *c) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *in[MAX_INPUTS], *y;
    graph_t g;
    int k, results;
    memset(&g, 0, sizeof g);
    g.op = op;
    arguments_of(op, c, TENSOR_F64, &g.a);
    for (k = 0; k < g.a.nin; k++) {
        if (is_data(&c->in[k]) && !has_letter(&c->in[k], 'c') && tensor_numel(g.a.in[k])) {
            g.at[g.n] = k;
            in[g.n++] = tensor_requires_grad_(tensor_detach(g.a.in[k]), 1);
        }
    }
    if (c->no_grad) { g.n = 0; }
    results = 0;
    if (g.n) {
        arguments_t a = g.a;
        for (k = 0; k < g.n; k++) { a.in[g.at[k]] = in[k]; }
        call_seeded(op, &a, 0);
        CHECK_MSG(tensor_ok(), "%s %s: %s", op->name, c->text, tensor_error_text());
        results = a.nout;
    }
    for (g.result = 0; g.result < results; g.result++) {
        y = graph_call(in, g.n, &g);
        if (!y || !tensor_requires_grad(y)) { continue; }
        n_grad++;
        CHECK_MSG(!tensor_gradcheck(graph_call, &g, in, g.n, 1e-6, 1e-5, 1e-3), "%s %s, result %d: %s",
                  op->name, c->text, g.result, tensor_error_text());
        tensor_clear_error();
        n_gradgrad++;
        CHECK_MSG(!tensor_gradgradcheck(graph_call, &g, in, g.n, 1e-6, 1e-5, 1e-3),
                  "%s %s, result %d, second order: %s", op->name, c->text, g.result, tensor_error_text());
        tensor_clear_error();
    }
    tensor_clear_error();
    tensor_scope_end(s);
}

// ---- another device ----

// way 0: inputs and the default device are there; 1: the inputs alone; 2: the default device alone, which is
// not to be seen in what has inputs.
static void on_device_by(const entry_t *op, const case_t *c, int way) {
    tensor_scope_t s = tensor_scope_begin();
    arguments_t a, b;
    int k, r, given = 0;
    const int place = way < 2 ? TENSOR_CUDA : TENSOR_CPU;
    arguments_of(op, c, TENSOR_F32, &a);
    b = a;
    for (k = 0; k < a.nin; k++) {
        given += a.in[k] != NULL;
        if (a.in[k] && way < 2) { b.in[k] = on(a.in[k]); }
    }
    if (way > 0 && !given) {
        tensor_scope_end(s);
        return;
    }
    call_seeded(op, &a, 0);
    tensor_set_default_device(way == 1 ? TENSOR_CPU : TENSOR_CUDA);
    call_seeded(op, &b, 0);
    tensor_set_default_device(TENSOR_CPU);
    CHECK_MSG(tensor_ok(), "%s %s on a device, %d: %s", op->name, c->text, way, tensor_error_text());
    for (r = 0; r < a.nout && r < b.nout && tensor_ok(); r++) {
        tensor_t *y = b.out[r];
        if (!a.out[r] || !y) { continue; }
        // The tensors that stand for the numbers of these two are made by the test.
        const int number = !strcmp(op->name, "allclose") || !strcmp(op->name, "equal");
        CHECK_MSG(number || (int)tensor_device(y) == place, "%s %s, %d: result %d is elsewhere", op->name,
                  c->text, way, r);
        CHECK_MSG(test_same_bits(a.out[r], off(y)), "%s %s, %d: result %d differs", op->name, c->text, way,
                  r);
    }
    CHECK(a.nout == b.nout);
    tensor_clear_error();
    tensor_scope_end(s);
    n_device++;
}
static void on_device(const entry_t *op, const case_t *c) {
    for (int way = 0; way < 3; way++) { on_device_by(op, c, way); }
}

// ---- misuse ----

// An input that failed, and one whose scope ended: an error, whose text says which.
static void misused(const entry_t *op, const case_t *c) {
    int k, dead, any = skipped(op->name, "MISUSE") != NULL;        // of any code
    n_any += any;
    for (k = 0; k < c->nin; k++) {
        for (dead = 0; dead < 2; dead++) {
            tensor_scope_t s = tensor_scope_begin(), inner;
            arguments_t a;
            arguments_of(op, c, TENSOR_F32, &a);
            if (k >= a.nin || !a.in[k]) {
                tensor_scope_end(s);
                continue;
            }
            if (dead) {
                inner = tensor_scope_begin();
                a.in[k] = tensor_zeros(2);
                tensor_scope_end(inner);
            } else {
                a.in[k] = tensor_zeros(-1);
                tensor_clear_error();
            }
            call_seeded(op, &a, 0);
            CHECK_MSG(any ? !tensor_ok()
                          : tensor_error_code() == (dead ? TENSOR_ERR_OWNER : TENSOR_ERR_POISONED),
                      "%s %s: input %d %s gives \"%s\"", op->name, c->text, k, dead ? "dead" : "poison",
                      tensor_error_text());
            CHECK_MSG(any || !dead || strstr(tensor_error_text(), "scope ended"), "%s: \"%s\"", op->name,
                      tensor_error_text());
            tensor_clear_error();
            tensor_scope_end(s);
            n_misuse++;
        }
    }
}

static int left[3];
static void layouts(void) { left[0] = every_case("LAYOUT", in_layouts); }
static void gradients(void) { left[1] = every_case("GRADIENT", gradients_of); }
static void device(void) {
    device_start();
    left[2] = every_case("DEVICE", on_device);
}
static void misuse(void) { every_case("", misused); }

int main(void) {
    RUN(layouts);
    RUN(gradients);
    RUN(misuse);
    RUN(device);
    printf("%d ops and twins: %ld cases in layouts, %ld gradchecks, %ld of second order, %ld on a device, "
           "%ld misused\n",
           NOPS - ONLY_FIXTURES, n_layouts, n_grad, n_gradgrad, n_device, n_misuse);
    printf("skipped: %d ops in layouts, %d gradients, %d on a device, the codes of %ld misused cases; "
           "ops.def says why\n",
           left[0], left[1], left[2], n_any);
    return test_report();
}

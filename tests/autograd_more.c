// autograd_more.c - hooks, anomaly and inference mode, checkpoint, functions with several results, in-place
// rules of views, vjp, jvp, jacobian, hessian
//
// Numbers named "PyTorch" come from runs of PyTorch 2.15 of the same lines.
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <time.h>

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void expect(tensor_t *x, const double *want, int n, double tol, int line) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    tensor_t *d = !x || tensor_is_poison(x) ? x : tensor_to(tensor_contiguous(tensor_detach(x)), TENSOR_F64);
    const double *v = d ? (const double *)tensor_data(d) : NULL;
    int k;
    test_note(v && tensor_numel(d) == n, __FILE__, line, "%d numbers expected, there are %lld", n,
              (long long)(d ? tensor_numel(d) : -1));
    for (k = 0; k < n && v && k < tensor_numel(d); k++)
        test_note(fabs(v[k] - want[k]) <= tol * (1 + fabs(want[k])), __FILE__, line,
                  "number %d is %.12g, expected %.12g", k, v[k], want[k]);
    tensor_scope_end(s);
}
#define EXPECT(x, ...) EXPECT_TOL(x, 1e-6, __VA_ARGS__)
#define EXPECT_TOL(x, tol, ...)                                                                              \
    expect(x, (const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), tol, __LINE__)

static tensor_t *data_of(const double *v, int n, tensor_dtype_t dtype) {
    return tensor_clone(tensor_to(tensor_from(v, TENSOR_F64, n), dtype));
}
#define DATA(...) data_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F32)
#define DATA64(...) data_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F64)
#define LEAF(...) tensor_requires_grad_(DATA(__VA_ARGS__), 1)
#define LEAF64(...) tensor_requires_grad_(DATA64(__VA_ARGS__), 1)

static void fails(int code, int want, const char *a, const char *b, int line) {
    const char *text = tensor_error_text();
    test_note(code == want && tensor_error_code() == want && strstr(text, a) && strstr(text, b), __FILE__,
              line, "error is %s \"%s\", expected %s with \"%s\" and \"%s\"",
              tensor_code_name(tensor_error_code()), text, tensor_code_name(want), a, b);
    tensor_clear_error();
}
#define FAILS(code, want, a, b) fails(code, want, a, b, __LINE__)
#define POISONS(t, want, a, b) fails(tensor_is_poison(t) ? tensor_error_code() : 0, want, a, b, __LINE__)
#define HERE "autograd_more.c:"

// ---- autograd_grad ----

static void grad_of_part(void) {
    tensor_t *x = LEAF(1, 2), *y = tensor_mul(x, x), *z = tensor_sum(tensor_exp(y)), *g, *in[2], *gs[2];
    tensor_t *w = LEAF(5, 6), *other, *out;
    CHECK(tensor_autograd_grad(&z, 1, NULL, NULL, 0, NULL, 0) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "autograd_grad: no inputs");
    CHECK(tensor_set_grad(y, y) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "set_grad: x [");
    CHECK(tensor_autograd_grad(&z, 1, NULL, &y, 1, &g, 0) == 0);
    EXPECT_TOL(g, 1e-5, exp(1), exp(4));
    out = tensor_sum(y); // the nodes below y were left alone
    CHECK(tensor_autograd_grad(&out, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT(g, 2, 4);
    other = tensor_exp(w); // a branch that does not lead to x is not run
    y = tensor_mul(x, x);
    out = tensor_sum(tensor_mul(y, other));
    CHECK(tensor_autograd_grad(&out, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT_TOL(g, 1e-5, 2 * exp(5), 4 * exp(6));
    out = tensor_sum(other);
    CHECK(tensor_autograd_grad(&out, 1, NULL, &w, 1, &g, 0) == 0);
    EXPECT_TOL(g, 1e-5, exp(5), exp(6));
    out = tensor_sum(tensor_mul(x, x)); // what does not require grad is an error, allowed unused or not
    in[0] = x;
    in[1] = DATA(1, 2);
    FAILS(tensor_autograd_grad(&out, 1, NULL, in, 2, gs, TENSOR_ALLOW_UNUSED), TENSOR_ERR_AUTOGRAD,
          "autograd_grad: input 1 [2] does not require grad", HERE);
    CHECK(tensor_is_poison(gs[0]) && tensor_is_poison(gs[1]));
    in[1] = out; // an output is an input too
    CHECK(tensor_autograd_grad(&out, 1, NULL, in, 2, gs, 0) == 0);
    EXPECT(gs[0], 2, 4);
    EXPECT(gs[1], 1);
    in[0] = in[1] = w; // a gradient for each place of a list
    out = w;
    other = tensor_ones(2);
    CHECK(tensor_autograd_grad(&out, 1, &other, in, 2, gs, 0) == 0);
    EXPECT(gs[0], 1, 1);
    EXPECT(gs[1], 1, 1);
}
// 300,000 nodes: looking ahead costs no stack.
static void grad_long(void) {
    tensor_t *x = LEAF(1), *y = tensor_mul_scalar(x, 1), *mid = NULL, *g;
    tensor_scope_t s = tensor_scope_begin();
    int k;
    for (k = 1; k < 300000; k++) {
        if (k == 150000) {
            mid = y;
            y = tensor_keep(tensor_add_scalar(mid, 1));
        } else {
            tensor_set(&y, tensor_add_scalar(y, 1));
        }
        if (k % 1000 == 0) tensor_scope_reset(s);
    }
    tensor_scope_end(s);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &mid, 1, &g, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(g, 1);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT(g, 1);
    tensor_free(y);
}

// ---- hooks ----

typedef struct log_t {
    int calls;
    double first[8], factor;
    int64_t remove;
    int bad;
} log_t;
static tensor_t *watch(tensor_t *g, void *user) {
    log_t *l = (log_t *)user;
    tensor_scope_t s = tensor_scope_begin();
    double v = tensor_item(tensor_select(tensor_reshape(g, -1), 0, 0));
    tensor_scope_end(s);
    if (l->calls < 8) l->first[l->calls] = v;
    l->calls++;
    if (l->remove) CHECK(tensor_remove_hook(l->remove) == 1);
    l->remove = 0;
    if (l->bad == 1) return tensor_to(g, TENSOR_F64);
    if (l->bad == 2) return tensor_narrow(g, 0, 0, 1);
    if (l->bad == 3) tensor_raise(TENSOR_ERR_UNSUPPORTED, "hook: no");
    return l->factor != 0 ? tensor_mul_scalar(g, l->factor) : NULL;
}
static void post(tensor_t *x, void *user) {
    log_t *l = (log_t *)user;
    if (l->calls < 8) l->first[l->calls] = tensor_item(tensor_select(tensor_grad(x), 0, 0));
    l->calls++;
}
static void hooks_of_values(void) {
    log_t a = {0}, b = {0}, c = {0};
    tensor_t *x = LEAF(1, 2), *y = tensor_mul_scalar(x, 2), *g, *r;
    int64_t h;
    a.factor = 10;
    CHECK(tensor_retain_grad(y) == y); // PyTorch: sees what the hooks left, whichever came first
    h = tensor_register_hook(y, watch, &a);
    CHECK(h > 0);
    CHECK(tensor_register_hook(y, watch, &b) > h);
    CHECK(tensor_backward_with(tensor_sum(tensor_mul_scalar(y, 3)), NULL, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(tensor_grad(y), 30, 30);
    EXPECT(tensor_grad(x), 60, 60);
    CHECK(a.calls == 1 && a.first[0] == 3 && b.calls == 1 && b.first[0] == 30);
    CHECK(tensor_remove_hook(h) == 1 && tensor_remove_hook(h) == 0 && tensor_remove_hook(12345) == 0);
    CHECK(tensor_backward(tensor_sum(tensor_mul_scalar(y, 3))) == 0);
    EXPECT(tensor_grad(y), 33, 33); // adds up over passes
    EXPECT(tensor_grad(x), 66, 66);
    CHECK(a.calls == 1 && b.calls == 2 && b.first[1] == 3);
    // once per pass, with the sum over all uses; removing itself and the next one while it runs
    x = LEAF(1, 2);
    y = tensor_mul_scalar(x, 1);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.remove = tensor_register_hook(y, watch, &a);
    tensor_register_hook(y, watch, &c);
    h = tensor_register_hook(y, watch, &b);
    c.remove = h;
    c.factor = 2;
    g = tensor_sum(tensor_add(tensor_mul(y, y), tensor_mul_scalar(y, 5)));
    CHECK(tensor_backward_with(g, NULL, TENSOR_RETAIN_GRAPH) == 0);
    CHECK(tensor_backward(g) == 0);
    CHECK(a.calls == 1 && a.first[0] == 7 && c.calls == 2 && c.first[1] == 7 && b.calls == 0);
    EXPECT(tensor_grad(x), 2 * 14, 2 * 18);
    // in autograd_grad
    memset(&a, 0, sizeof a);
    a.factor = 10;
    x = LEAF(1, 2);
    y = tensor_mul(x, x);
    tensor_register_hook(y, watch, &a);
    g = tensor_sum(tensor_mul_scalar(y, 3));
    CHECK(tensor_autograd_grad(&g, 1, NULL, &y, 1, &r, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(r, 30, 30);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &r, 0) == 0);
    EXPECT(r, 60, 120);
    CHECK(a.calls == 2);
}
static void hooks_of_leaves(void) {
    log_t a = {0}, b = {0}, p = {0};
    tensor_t *x = LEAF(1, 2), *z, *g[2], *in[2];
    int64_t h;
    a.factor = 10;
    CHECK(tensor_register_hook(x, watch, &a) > 0);
    z = tensor_sum(tensor_mul(x, x));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, g, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(g[0], 20, 40);
    in[0] = in[1] = x;
    CHECK(tensor_autograd_grad(&z, 1, NULL, in, 2, g, 0) == 0);
    EXPECT(g[0], 20, 40);
    EXPECT(g[1], 20, 40);
    CHECK(a.calls == 2 && tensor_grad(x) == NULL);
    b.factor = 2;
    h = tensor_register_hook(x, watch, &b);
    CHECK(tensor_register_post_accumulate_grad_hook(x, post, &p) > h);
    z = tensor_sum(tensor_add(tensor_add(tensor_mul(x, x), tensor_mul_scalar(x, 3)), x));
    CHECK(tensor_backward_with(z, NULL, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(tensor_grad(x), 120, 160); // PyTorch
    CHECK(a.calls == 3 && a.first[2] == 6 && b.calls == 1 && b.first[0] == 60 && p.calls == 1 &&
          p.first[0] == 120);
    CHECK(tensor_remove_hook(h) == 1);
    CHECK(tensor_backward(z) == 0);
    EXPECT(tensor_grad(x), 180, 240);
    CHECK(b.calls == 1 && p.calls == 2 && p.first[1] == 180);
    z = tensor_sum(tensor_mul(x, x)); // not for autograd_grad
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, g, 0) == 0 && p.calls == 2);
    x = LEAF(3, 4); // a backward of the leaf itself, and CREATE_GRAPH through a hook
    memset(&a, 0, sizeof a);
    a.factor = 4;
    tensor_register_hook(x, watch, &a);
    CHECK(tensor_backward_with(x, tensor_ones(2), 0) == 0);
    EXPECT(tensor_grad(x), 4, 4);
    tensor_set_grad(x, NULL);
    z = tensor_sum(tensor_mul(x, tensor_mul(x, x)));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, g, TENSOR_CREATE_GRAPH) == 0);
    EXPECT(g[0], 108, 192);
    z = tensor_sum(g[0]);
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, g, 0) == 0);
    EXPECT(g[0], 4 * 72, 4 * 96);
    CHECK(!tensor_requires_grad(g[0]));
}
// An edge to a leaf whose node gets no gradient: the hooks run at the end of the pass.
static void hooks_unused_edge(void) {
    log_t p = {0};
    tensor_t *x = LEAF(1, 2), *condition = tensor_gt_scalar(DATA(1, -1), 0), *out[2], *seed[2], *y[1];
    (void)condition;
    tensor_register_post_accumulate_grad_hook(x, post, &p);
    out[0] = tensor_sum(tensor_floor(x)); // gradient of zeros, not none
    CHECK(tensor_backward(out[0]) == 0);
    CHECK(p.calls == 1 && p.first[0] == 0);
    y[0] = tensor_mul_scalar(x, 2);
    tensor_fill_(y[0], 3); // nothing of y is left: its edge gets nothing
    out[0] = tensor_sum(tensor_add(y[0], tensor_mul_scalar(x, 7)));
    out[1] = tensor_sum(x);
    seed[0] = seed[1] = NULL;
    CHECK(tensor_backward(tensor_add(out[0], out[1])) == 0);
    CHECK(p.calls == 2 && p.first[1] == 8);
    EXPECT(tensor_grad(x), 8, 8);
}
typedef struct early_t { tensor_t *first; int was_set; } early_t;
static void note_early(tensor_t *x, void *user) {
    early_t *e = (early_t *)user;
    (void)x;
    e->was_set = tensor_grad(e->first) != NULL;
}
// An optimizer in the hook: steps and drops the gradient while the pass runs on.
static void step_at_once(tensor_t *x, void *user) {
    int *calls = (int *)user;
    ++*calls;
    CHECK(!tensor_grad_enabled());
    tensor_sub_(x, tensor_mul_scalar(tensor_grad(x), 0.5));
    CHECK(tensor_set_grad(x, NULL) == 0);
}
static void hooks_as_optimizer(void) {
    tensor_t *a = LEAF(1, 2), *b = LEAF(3, 4), *y;
    early_t e;
    int calls = 0;
    int64_t h;
    e.first = a;
    e.was_set = -1;
    h = tensor_register_post_accumulate_grad_hook(b, note_early, &e); // b is done before the pass is
    y = tensor_sum(tensor_mul(tensor_exp(tensor_mul_scalar(a, 0)), b));
    CHECK(tensor_backward(y) == 0);
    CHECK(e.was_set == 0);
    CHECK(tensor_remove_hook(h) == 1);
    tensor_set_grad(a, NULL);
    tensor_set_grad(b, NULL);
    tensor_register_post_accumulate_grad_hook(a, step_at_once, &calls);
    tensor_register_post_accumulate_grad_hook(b, step_at_once, &calls);
    y = tensor_sum(tensor_mul(a, b)); // both used, then both changed
    CHECK(tensor_backward(y) == 0);
    CHECK(calls == 2 && !tensor_grad(a) && !tensor_grad(b));
    EXPECT(a, 1 - 1.5, 2 - 2);
    EXPECT(b, 3 - 0.5, 4 - 1);
}
static void hooks_in_place(void) { // PyTorch: a hook stays with the value it was registered for
    log_t old = {0}, now = {0};
    tensor_t *x = LEAF(1, 2), *y = tensor_mul_scalar(x, 2);
    tensor_register_hook(y, watch, &old);
    tensor_retain_grad(y);
    tensor_mul_scalar_(y, 3);
    tensor_register_hook(y, watch, &now);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK(now.calls == 1 && now.first[0] == 1 && old.calls == 1 && old.first[0] == 3);
    EXPECT(tensor_grad(y), 1, 1); // the retained gradient is the tensor's
    EXPECT(tensor_grad(x), 6, 6);
}
static void hook_errors(void) {
    log_t a = {0};
    tensor_t *x = LEAF(1, 2), *y = tensor_mul_scalar(x, 2), *c = tensor_ones(2);
    int k;
    CHECK(tensor_register_hook(c, watch, &a) == 0);
    FAILS(TENSOR_ERR_AUTOGRAD, TENSOR_ERR_AUTOGRAD, "register_hook: x [2] does not require grad", HERE);
    CHECK(tensor_register_hook(x, NULL, &a) == 0);
    FAILS(TENSOR_ERR_OWNER, TENSOR_ERR_OWNER, "register_hook: fn is NULL", HERE);
    CHECK(tensor_register_post_accumulate_grad_hook(y, post, &a) == 0);
    FAILS(TENSOR_ERR_AUTOGRAD, TENSOR_ERR_AUTOGRAD, "post_accumulate_grad_hook: x [2] is not a leaf", HERE);
    for (k = 1; k <= 3; k++) {
        static const int codes[] = {0, TENSOR_ERR_DTYPE, TENSOR_ERR_SHAPE, TENSOR_ERR_UNSUPPORTED};
        static const char *const texts[] = {"", "a hook gave [2] f64 for a gradient [2] f32",
                                            "a hook gave [1] f32 for a gradient [2]", "hook: no"};
        a.bad = k;
        y = tensor_mul_scalar(x, 2);
        tensor_register_hook(y, watch, &a);
        FAILS(tensor_backward(tensor_sum(y)), codes[k], texts[k], HERE);
        CHECK(tensor_grad(x) == NULL);
    }
}

// ---- modes ----

static tensor_t *root_of_zero(tensor_t *x) { return tensor_mul_scalar(tensor_sqrt(x), 0); }
static void anomaly(void) {
    tensor_t *x = LEAF(0, 1), *y;
    char want[128];
    int line;
    tensor_scope_t s = tensor_scope_begin(), t;
    CHECK(tensor_set_detect_anomaly(1) == 0 && tensor_set_detect_anomaly(1) == 1);
    y = root_of_zero(x);
    line = __LINE__ - 8; // where root_of_zero calls sqrt
    sprintf(want, "backward: sqrt at " HERE "%d made a NaN in the gradient of its input 0 [2]", line);
    FAILS(tensor_backward(tensor_sum(y)), TENSOR_ERR_AUTOGRAD, want, HERE);
    CHECK(tensor_grad(x) == NULL);
    CHECK(tensor_backward(tensor_sum(tensor_mul(x, x))) == 0); // no NaN, no complaint
    tensor_set_grad(x, NULL);
    t = tensor_scope_begin();
    CHECK(tensor_set_detect_anomaly(0) == 1);
    CHECK(tensor_backward(tensor_sum(root_of_zero(x))) == 0);
    tensor_scope_end(t);
    tensor_set_grad(x, NULL);
    CHECK(tensor_set_detect_anomaly(1) == 1); // restored
    tensor_scope_end(s);
    CHECK(tensor_set_detect_anomaly(0) == 0);
    CHECK(tensor_backward(tensor_sum(root_of_zero(x))) == 0);
    CHECK(tensor_item(tensor_any(tensor_isnan(tensor_grad(x)))) == 1);
}
static void switches(void) {
    tensor_t *x = LEAF(1, 2), *y, *v;
    tensor_scope_t s = tensor_scope_begin();
    CHECK(tensor_set_grad_enabled(0) == 1 && !tensor_grad_enabled());
    y = tensor_mul(x, x);
    CHECK(!tensor_requires_grad(y) && tensor_grad_fn_name(y) == NULL);
    CHECK(tensor_set_grad_enabled(1) == 0);
    y = tensor_mul(x, x);
    CHECK(tensor_requires_grad(y));
    CHECK_TEXT(tensor_grad_fn_name(y), "mul");
    CHECK(tensor_grad_fn_name(x) == NULL && tensor_grad_fn_name(NULL) == NULL);
    tensor_set_grad_enabled(0);
    tensor_scope_end(s);
    CHECK(tensor_grad_enabled());
    y = tensor_mul(x, x);
    v = tensor_narrow(y, 0, 0, 1);
    POISONS(tensor_detach_(v), TENSOR_ERR_AUTOGRAD, "detach_: x [1] is a view", HERE);
    CHECK(tensor_detach_(y) == y && !tensor_requires_grad(y) && tensor_is_leaf(y));
    CHECK(!tensor_requires_grad(v)); // PyTorch
    CHECK(tensor_detach_(x) == x && !tensor_requires_grad(x));
}
static void inference(void) {
    tensor_t *x = LEAF(1, 2), *t, *u, *v, *p;
    tensor_scope_t s = tensor_scope_begin_inference(), g;
    t = tensor_keep(tensor_ones(2));
    u = tensor_mul_scalar(t, 2);
    v = tensor_keep(tensor_narrow(x, 0, 0, 1));
    CHECK(tensor_is_inference(t) && tensor_is_inference(u) && !tensor_is_inference(v) &&
          !tensor_requires_grad(v) && !tensor_is_inference(x));
    CHECK(!tensor_requires_grad(tensor_mul(x, x)) && !tensor_grad_enabled());
    g = tensor_scope_begin_grad(); // records nothing here
    CHECK(!tensor_grad_enabled() && tensor_set_grad_enabled(1) == 0 && !tensor_grad_enabled());
    CHECK(!tensor_requires_grad(tensor_mul(x, x)));
    tensor_scope_end(g);
    CHECK(!tensor_is_poison(tensor_add_scalar_(t, 1)));
    CHECK(!tensor_is_poison(tensor_mul_scalar_(x, 2)));
    p = tensor_keep(tensor_requires_grad_(tensor_ones(2), 1));
    tensor_scope_end(s);
    EXPECT(x, 2, 4);
    EXPECT(t, 2, 2);
    POISONS(tensor_mul(x, t), TENSOR_ERR_AUTOGRAD, "mul: [2] made by ones in inference mode cannot be saved",
            HERE);
    POISONS(tensor_matmul(tensor_reshape(x, 1, 2), tensor_reshape(t, 2, 1)), TENSOR_ERR_AUTOGRAD,
            "matmul: [2,1] made by reshape in inference mode", HERE);
    POISONS(tensor_mul(p, p), TENSOR_ERR_AUTOGRAD, "cannot be saved", HERE);
    EXPECT(tensor_add(x, t), 4, 6); // saves nothing
    POISONS(tensor_add_scalar_(t, 1), TENSOR_ERR_AUTOGRAD, "add_scalar_: x [2] was made in inference mode",
            HERE);
    g = tensor_scope_begin_no_grad();
    POISONS(tensor_add_scalar_(t, 1), TENSOR_ERR_AUTOGRAD, "made in inference mode", HERE);
    CHECK(tensor_data_mut(t) == NULL);
    FAILS(tensor_error_code(), TENSOR_ERR_AUTOGRAD, "data_mut: x [2] was made in inference mode", HERE);
    tensor_scope_end(g);
    POISONS(tensor_requires_grad_(t, 1), TENSOR_ERR_AUTOGRAD, "requires_grad_: x [2] was made in inference",
            HERE);
    POISONS(tensor_mul_scalar_(v, 2), TENSOR_ERR_AUTOGRAD, "view", HERE);
    CHECK(tensor_is_inference(tensor_narrow(t, 0, 0, 1)) && !tensor_is_inference(tensor_clone(t)) &&
          !tensor_is_inference(tensor_mul_scalar(t, 2)));
    u = tensor_copy_(tensor_clone(x), t); // reads it only
    EXPECT(u, 2, 2);
    EXPECT(tensor_mul(x, tensor_clone(t)), 4, 8);
    tensor_free(t);
    tensor_free(v);
    tensor_free(p);
}

// ---- in place ----

// Views of results whose memory is not in order: a permuted one, one with gaps (parts of a tensor nobody else
// has), in place and by as_strided.
static tensor_t *permuted_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_permute(tensor_sin(tensor_permute(x, 0, 2, 1)), 0, 2, 1));
}
static tensor_t *changed_in_permuted(tensor_t *const *in, int n, void *user) {
    tensor_t *y = permuted_made(in[0]), *v = tensor_select(y, 0, 1), *w = tensor_permute(y, 0, 2, 1);
    tensor_t *flat = tensor_view(w, -1), *part = tensor_slice(flat, 0, 3, 17, 2);
    (void)n;
    (void)user;
    tensor_mul_(v, in[1]);                                      // y is changed, each view follows
    tensor_copy_(tensor_slice(part, 0, 1, 3, 1), tensor_slice(in[1], 0, 0, 2, 1));
    return tensor_cat(0, tensor_reshape(tensor_mul(y, in[0]), -1), tensor_mul(part, part), tensor_exp(flat),
                      tensor_reshape(v, -1));
}
static tensor_t *gap_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_slice(tensor_transpose(tensor_sin(x), 0, 1), 0, 1, 3, 1));
}
static tensor_t *changed_in_gaps(tensor_t *const *in, int n, void *user) {
    const int64_t dims[2] = {3, 2}, strides[2] = {4, 1};
    tensor_t *y = gap_made(in[0]), *v = tensor_at(y, "1, ::2"), *z;
    (void)n;
    (void)user;
    tensor_mul_(v, in[1]);
    z = tensor_as_strided(y, dims, strides, 2, tensor_storage_offset(y));
    return tensor_cat(0, tensor_reshape(y, -1), tensor_mul(v, v), tensor_reshape(tensor_mul(z, z), -1));
}
static void views_of_permuted(void) {
    static const double values[] = {0.2, -0.3, 1.1, 0.5, 0.7, -0.4, 0.1, 0.9, -1.2, 0.3, 0.6, -0.7,
                                    0.4, 0.8, -0.9, 1.3, -0.1, 0.35, -0.65, 0.15, 1.05, -0.25, 0.55, 0.45};
    tensor_t *in[2], *y;
    in[0] = tensor_requires_grad_(tensor_from(values, TENSOR_F64, 2, 3, 4), 1);
    in[1] = LEAF64(0.5, 0.7, -0.4, 1.5);
    y = permuted_made(in[0]);
    CHECK(!tensor_is_contiguous(y));
    CHECK(tensor_gradcheck(changed_in_permuted, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(changed_in_permuted, NULL, in, 2, 0, 0, 0) == 0);
    in[0] = tensor_requires_grad_(tensor_from(values, TENSOR_F64, 3, 4), 1);
    in[1] = LEAF64(0.5, 0.7);
    CHECK(tensor_gradcheck(changed_in_gaps, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(changed_in_gaps, NULL, in, 2, 0, 0, 0) == 0);
    tensor_add_scalar_(tensor_select(tensor_softmax(tensor_detach(y), 0), 1, 0), 1);
    CHECK_OK();
}
// Views that no history can follow are refused before they are written.
static tensor_t *expanded_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_expand(tensor_sin(x), 3, 2));
}
static void refused_in_time(void) {
    static const int64_t dims[1] = {3}, strides[1] = {2};
    tensor_t *x = LEAF(0.5, 1), *y = expanded_made(x), *z, *v;
    tensor_scope_t s = tensor_scope_begin();
    double first = tensor_item(tensor_at(y, "0, 0"));
    z = tensor_scope_return(s, tensor_narrow(tensor_arange(0, 8, 1, TENSOR_F32), 0, 0, 4));
    POISONS(tensor_mul_scalar_(tensor_select(y, 0, 0), 2), TENSOR_ERR_UNSUPPORTED, "of an expanded tensor",
            HERE);
    CHECK(tensor_item(tensor_at(y, "0, 0")) == first);
    v = tensor_as_strided(z, dims, strides, 1, 3);                              // behind z's end
    POISONS(tensor_copy_(v, tensor_mul_scalar(LEAF(1, 2, 3), 2)), TENSOR_ERR_UNSUPPORTED, "not within", HERE);
    CHECK(tensor_item(tensor_at(v, "1")) == 5 && !tensor_requires_grad(z));
    CHECK(!tensor_is_poison(tensor_mul_scalar_(v, 2)));                          // nothing to record
}
// What layer_norm saved was changed since: an error of backward.
static void norm_overwritten(void) {
    tensor_t *x = LEAF(1, 2, 3, 4), *y = tensor_sin(x), *z = tensor_layer_norm(y, 1);
    tensor_mul_scalar_(y, 2);
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD, "was changed in place by mul", HERE);
    y = tensor_add_scalar(tensor_slice(x, 0, 0, 0, 1), 1);         // nothing of nothing
    tensor_mul_scalar_(tensor_slice(tensor_expand(tensor_reshape(y, 0, 1), 0, 3), 1, 0, 2, 1), 2);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK_OK();
}
static void multi_views(void) {
    tensor_t *x = LEAF(1, 2, 3, 4), *y = tensor_mul_scalar(x, 2), *part[4], *w;
    tensor_scope_t s;
    CHECK(tensor_split(y, 2, 0, part, 4) == 2);
    POISONS(tensor_mul_scalar_(part[0], 2), TENSOR_ERR_AUTOGRAD, "mul_scalar_: x [2] is one of several views",
            HERE);
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    POISONS(tensor_zero_(tensor_select(part[1], 0, 0)), TENSOR_ERR_AUTOGRAD, "one of several views", HERE);
    y = tensor_ones(4);
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    CHECK(!tensor_is_poison(tensor_mul_scalar_(part[0], 2))); // nothing to record
    EXPECT(y, 2, 2, 1, 1);
    w = tensor_narrow(x, 0, 0, 2);
    POISONS(tensor_mul_(part[0], w), TENSOR_ERR_AUTOGRAD, "one of several views", HERE);
    y = tensor_mul_scalar(x, 2);
    s = tensor_scope_begin_no_grad();
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    CHECK(!tensor_is_poison(tensor_mul_scalar_(part[0], 2)));
    w = tensor_keep(tensor_narrow(y, 0, 0, 2));
    tensor_scope_end(s);
    POISONS(tensor_mul_scalar_(tensor_select(w, 0, 0), 2), TENSOR_ERR_AUTOGRAD, "view made under no_grad",
            HERE); // a view of such a view
    tensor_free(w);
}
// What an in-place write leaves of a gradient, and where: PyTorch.
static void overwritten(void) {
    tensor_t *w = LEAF(1, 2), *z = tensor_clone(w), *i, *part[3], *x, *y;
    tensor_zero_(z);
    CHECK(tensor_requires_grad(z) && tensor_backward(tensor_sum(z)) == 0);
    EXPECT(tensor_grad(w), 0, 0);
    x = LEAF(3, 4);
    w = LEAF(1, 2);
    z = tensor_clone(w);
    tensor_copy_(z, x);
    CHECK(tensor_backward(tensor_sum(tensor_mul_scalar(z, 5))) == 0);
    EXPECT(tensor_grad(w), 0, 0);
    EXPECT(tensor_grad(x), 5, 5);
    i = tensor_zeros_of(TENSOR_I64, 2);
    CHECK(tensor_copy_(i, x) == i && !tensor_requires_grad(i));
    EXPECT(i, 3, 4);
    w = LEAF(2, 3); // frozen after the forward pass
    x = LEAF(4, 5);
    z = tensor_sum(tensor_mul(w, x));
    tensor_requires_grad_(w, 0);
    CHECK(tensor_backward(z) == 0 && !tensor_grad(w));
    EXPECT(tensor_grad(x), 2, 3);
    x = LEAF(1, 2, 3); // unlike split's, pieces of tensor_split may be changed
    y = tensor_mul_scalar(x, 1);
    CHECK(tensor_tensor_split(y, 2, 0, part, 3) == 2);
    tensor_mul_scalar_(part[0], 3);
    CHECK(tensor_tensor_split_at(y, (int64_t[]){2}, 1, 0, part) == 2);
    tensor_mul_scalar_(part[1], 7);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(tensor_grad(x), 3, 3, 7);
    x = LEAF(0, 0);
    w = LEAF(0, 2);
    CHECK(tensor_backward(tensor_sum(tensor_atan2(x, w))) == 0);
    EXPECT(tensor_grad(x), 0, 0.5);
    EXPECT(tensor_grad(w), 0, 0);
}
// Views of views, the base changed after a view was taken, views used before and after: against PyTorch.
static void views_in_place(void) {
    tensor_t *x = tensor_requires_grad_(tensor_arange(1, 7, 1, TENSOR_F32), 1), *b, *v, *w, *z, *e;
    b = tensor_mul(tensor_reshape(x, 2, 3), tensor_ones(2, 3));
    v = tensor_mT(b);
    w = tensor_select(v, 0, 1); // column 1 of b
    tensor_mul_scalar_(b, 2);   // base first
    tensor_mul_(w, w);          // then a view of a view
    tensor_add_scalar_(v, 1);   // then the view between
    z = tensor_sum(tensor_mul(v, v));
    CHECK(tensor_backward(z) == 0);
    EXPECT(b, 3, 17, 7, 9, 101, 13);
    EXPECT(tensor_grad(x), 12, 544, 28, 36, 8080, 52); // PyTorch
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // a value of the view from before the change stays what it was
    v = tensor_narrow(b, 0, 1, 3);
    z = tensor_mul_scalar(v, 10);
    tensor_mul_scalar_(v, 3);
    CHECK(tensor_backward(tensor_sum(tensor_add(z, v))) == 0);
    EXPECT(tensor_grad(x), 0, 13, 13, 13, 0, 0);
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // an overlapping view of other strides sees the change
    v = tensor_slice(b, 0, 0, 6, 2);
    w = tensor_slice(b, 0, 0, 6, 3);
    tensor_mul_scalar_(v, 5);
    tensor_mul_scalar_(w, 7);
    CHECK(tensor_backward(tensor_sum(tensor_mul(v, DATA(1, 2, 3)))) == 0);
    EXPECT(b, 35, 2, 15, 28, 25, 6);
    EXPECT(tensor_grad(x), 35, 0, 10, 0, 15, 0);
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // a copy of another graph into a view of a view
    v = tensor_reshape(b, 3, 2);
    w = tensor_select(v, 1, 0);
    e = tensor_mul(tensor_narrow(x, 0, 0, 3), tensor_narrow(x, 0, 3, 3));
    tensor_copy_(w, e);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, b))) == 0);
    EXPECT(b, 4, 2, 10, 4, 18, 6);
    EXPECT(tensor_grad(x), 2 * 4 * 4, 4 + 2 * 10 * 5, 2 * 18 * 6, 8 + 2 * 4, 2 * 10 * 2, 12 + 2 * 18 * 3);
    tensor_set_grad(x, NULL);
    e = tensor_expand(tensor_reshape(tensor_mul_scalar(x, 1), 6, 1), 6, 2); // expanded: refused
    POISONS(tensor_mul_scalar_(e, 2), TENSOR_ERR_AUTOGRAD, "is expanded", HERE);
    b = tensor_mul_scalar(tensor_narrow(x, 0, 0, 2), 1); // but its base may change
    e = tensor_expand(tensor_reshape(b, 2, 1), 2, 3);
    tensor_mul_scalar_(b, 4);
    CHECK(tensor_backward(tensor_sum(e)) == 0);
    EXPECT(e, 4, 4, 4, 8, 8, 8);
    EXPECT(tensor_grad(x), 12, 12, 0, 0, 0, 0);
    tensor_set_grad(x, NULL);
    v = tensor_reshape(x, 2, 3); // views of views of a leaf
    POISONS(tensor_zero_(tensor_select(v, 0, 0)), TENSOR_ERR_AUTOGRAD, "view of a leaf that requires grad",
            HERE);
    b = tensor_mul_scalar(x, 1); // a second derivative through changes of views
    v = tensor_narrow(b, 0, 0, 2);
    tensor_mul_(v, tensor_narrow(x, 0, 2, 2));
    z = tensor_sum(tensor_mul(b, tensor_mul(b, b)));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, &w, TENSOR_CREATE_GRAPH) == 0);
    EXPECT(w, 81, 768, 54, 432, 75, 108);
    z = tensor_sum(tensor_mul(w, w));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, &w, 0) == 0);
    EXPECT(w, 34992, 1677312, 17010, 1071360, 4500, 7776); // PyTorch
}

// Random programs that change views of one tensor in place, against the same written with pure functions:
// each change replaces the tensor by a copy with the view replaced.
static uint32_t dice_state;
static int dice(int n) {
    dice_state = dice_state * 1664525u + 1013904223u;
    return (int)(dice_state >> 8) % n;
}
static tensor_t *some_view(tensor_t *x) {
    int d = tensor_ndim(x) ? dice(tensor_ndim(x)) : 0, k;
    int64_t n = tensor_ndim(x) ? tensor_size(x, d) : 0;
    if (!n) return x;
    switch (dice(5)) {
    case 0: k = dice((int)n); return tensor_narrow(x, d, k, 1 + dice((int)n - k));
    case 1: return tensor_ndim(x) > 1 ? tensor_select(x, d, dice((int)n)) : x;
    case 2: return tensor_slice(x, d, dice((int)n), n, 2);
    case 3: return tensor_ndim(x) > 1 ? tensor_transpose(x, 0, -1) : tensor_unsqueeze(x, dice(2));
    default: return tensor_is_contiguous(x) ? tensor_reshape(x, -1) : x;
    }
}
static tensor_t *same_place(tensor_t *pure, tensor_t *v, tensor_t *base, tensor_t *replace) {
    int64_t dims[8], strides[8];
    int k, n = tensor_ndim(v);
    int64_t at = (const double *)tensor_data(v) - (const double *)tensor_data(base);
    for (k = 0; k < n; k++) dims[k] = tensor_size(v, k), strides[k] = tensor_stride(v, k);
    return replace ? tensor_as_strided_scatter(pure, replace, dims, strides, n, at)
                   : tensor_as_strided(pure, dims, strides, n, at);
}
static tensor_t *read_value(tensor_t *v) { return tensor_sum(tensor_square(tensor_clone(v))); }
static void random_changes(void) {
    int seed, step;
    for (seed = 0; seed < 300; seed++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x, *w, *base, *pure, *loss[2], *g[2][2], *in[2], *view[4];
        int nview = 0, k;
        dice_state = (uint32_t)seed * 7919u + 1;
        tensor_manual_seed((uint64_t)seed);
        in[0] = x = tensor_requires_grad_(tensor_to(tensor_randn(4, 6), TENSOR_F64), 1);
        in[1] = w = tensor_requires_grad_(tensor_to(tensor_randn(1), TENSOR_F64), 1);
        base = dice(3) ? tensor_mul_scalar(x, 1) : tensor_zeros_of(TENSOR_F64, 4, 6);
        pure = tensor_clone(base);
        loss[0] = loss[1] = tensor_sum(tensor_mul(x, w));
        for (step = 0; step < 8; step++) {
            tensor_t *v, *old, *now;
            double c = 0.5 + 0.25 * dice(5);
            k = nview && dice(2) ? dice(nview) : -1; // a view from before, or a new one, kept for later
            v = k >= 0 ? view[k] : some_view(base);
            if (k < 0 && dice(2)) v = some_view(v);
            if (k < 0 && nview < 4) view[nview++] = v;
            if (!dice(6)) v = base;
            old = same_place(pure, v, base, NULL);
            switch (dice(7)) {
            case 0: now = tensor_mul_scalar(old, c), tensor_mul_scalar_(v, c); break;
            case 1: now = tensor_add(old, w), tensor_add_(v, w); break;
            case 2: now = tensor_mul(old, w), tensor_mul_(v, w); break;
            case 3: now = tensor_full_like(old, c), tensor_fill_(v, c); break;
            case 4: now = tensor_mul(old, old), tensor_mul_(v, v); break;
            case 5: now = tensor_expand_n(tensor_square(w), tensor_shape(v).dims, tensor_ndim(v)),
                    tensor_copy_(v, tensor_square(w)); break;
            default: // only looked at
                now = NULL;
                loss[0] = tensor_add(loss[0], read_value(v));
                loss[1] = tensor_add(loss[1], read_value(old));
            }
            if (now) pure = same_place(pure, v, base, tensor_contiguous(now));
        }
        for (k = 0; k < nview; k++) {
            loss[0] = tensor_add(loss[0], read_value(view[k]));
            loss[1] = tensor_add(loss[1], read_value(same_place(pure, view[k], base, NULL)));
        }
        loss[0] = tensor_add(loss[0], read_value(base));
        loss[1] = tensor_add(loss[1], read_value(pure));
        for (k = 0; k < 2; k++)
            CHECK(tensor_autograd_grad(&loss[k], 1, NULL, in, 2, g[k], TENSOR_RETAIN_GRAPH) == 0);
        CHECK_MSG(tensor_allclose(base, pure, 1e-10, 1e-10), "seed %d: values", seed);
        for (k = 0; k < 2; k++)
            CHECK_MSG(tensor_allclose(g[0][k], g[1][k], 1e-9, 1e-9), "seed %d: gradient %d: %s", seed, k,
                      tensor_error_text());
        CHECK_OK();
        tensor_scope_end(s);
    }
}

// ---- custom functions ----

typedef struct ops_t { int mode; } ops_t;
// x, y -> x y, x + y and the places where x > y.
static tensor_t *many_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    tensor_save_for_backward(ctx, 1, in[1]);
    CHECK(tensor_set_output(ctx, 1, tensor_add(in[0], in[1])) == 0);
    if (tensor_set_output(ctx, 2, tensor_sub(in[0], in[1]))) return NULL;
    CHECK(tensor_mark_non_differentiable(ctx, 2) == 0);
    if (tensor_function_user(ctx)) CHECK(tensor_needs_input_grad(ctx, 0) && !tensor_needs_input_grad(ctx, 5));
    return tensor_mul(in[0], in[1]);
}
static int many_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0), *y = tensor_saved(ctx, 1), *h = tensor_grad_output(ctx, 1);
    (void)n;
    CHECK(tensor_grad_output(ctx, 0) == g);
    if (tensor_needs_input_grad(ctx, 0)) grads[0] = tensor_add(tensor_mul(g, y), h);
    if (tensor_needs_input_grad(ctx, 1)) grads[1] = tensor_add(tensor_mul(g, x), h);
    return 0;
}
static tensor_t *only_first(tensor_t *const *in, int n, void *user) {
    tensor_t *out[3];
    if (tensor_apply_n((const tensor_function_t *)user, NULL, in, n, out, 3)) return out[0];
    return tensor_add(tensor_mul(out[0], out[1]), out[2]);
}
static tensor_t *twice_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    ops_t *o = (ops_t *)tensor_function_user(ctx);
    (void)n;
    if (tensor_mark_dirty(ctx, 0)) return NULL;
    tensor_mul_scalar_(in[0], 2);
    if (o && o->mode == 1) return tensor_clone(in[0]); // not returned: an error
    if (o && o->mode == 2) tensor_save_for_backward(ctx, 0, in[0]);
    return in[0];
}
static int twice_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    ops_t *o = (ops_t *)tensor_function_user(ctx);
    (void)n;
    if (o && o->mode == 2) EXPECT(tensor_saved(ctx, 0), 2, 4);
    grads[0] = tensor_mul_scalar(g, 2);
    return 0;
}
static tensor_t *wrong_calls_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    FAILS(tensor_set_output(ctx, 4, in[0]), TENSOR_ERR_INDEX, "set_output: 4 is outside 0..0", HERE);
    FAILS(tensor_mark_dirty(ctx, 1), TENSOR_ERR_INDEX, "mark_dirty: 1 is outside 0..0", HERE);
    FAILS(tensor_mark_non_differentiable(ctx, -1), TENSOR_ERR_INDEX, "mark_non_differentiable: -1", HERE);
    POISONS(tensor_grad_output(ctx, 0), TENSOR_ERR_INDEX, "not backward", HERE);
    return tensor_clone(in[0]);
}
static void custom(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL},
                                   twice = {"twice", twice_forward, twice_backward, NULL},
                                   wrong = {"wrong", wrong_calls_forward, many_backward, NULL};
    tensor_t *x = LEAF64(2, 3), *y = LEAF64(5, 7), *in[2], *out[5], *b, *v, *g;
    ops_t o;
    in[0] = x;
    in[1] = y;
    CHECK(tensor_apply_n(&many, &o, in, 2, out, 3) == 0);
    EXPECT(out[0], 10, 21);
    EXPECT(out[1], 7, 10);
    EXPECT(out[2], -3, -4);
    CHECK(tensor_requires_grad(out[0]) && tensor_requires_grad(out[1]) && !tensor_requires_grad(out[2]));
    CHECK_TEXT(tensor_grad_fn_name(out[1]), "many");
    CHECK(tensor_backward_with(tensor_sum(out[1]), NULL, TENSOR_RETAIN_GRAPH) == 0); // the first is zeros
    EXPECT(tensor_grad(x), 1, 1);
    g = tensor_sum(tensor_mul(out[0], out[1]));
    tensor_set_grad(x, NULL);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &y, 1, &b, 0) == 0); // needs_input_grad of x is 0
    EXPECT(b, 2 * 7 + 10, 3 * 10 + 21);
    CHECK(tensor_gradcheck(only_first, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == TENSOR_ERR_AUTOGRAD);
    tensor_clear_error(); // out[2] counts in the numbers, not in the gradient: found
    FAILS(tensor_apply_n(&many, NULL, in, 2, out, 2), TENSOR_ERR_INDEX, "set_output: 2 is outside 0..1",
          HERE);
    CHECK(tensor_is_poison(out[0]) && tensor_is_poison(out[1]));
    FAILS(tensor_apply_n(&many, NULL, in, 2, out, 5), TENSOR_ERR_INDEX, "5 results, 1..4", HERE);
    CHECK(!tensor_is_poison(tensor_apply(&wrong, NULL, &x, 1)));
    // dirty: the leaf rule, a value, a view (its base follows), saved after the change
    x = LEAF(1, 2);
    POISONS(tensor_apply(&twice, NULL, &x, 1), TENSOR_ERR_AUTOGRAD, "twice: x [2] is a leaf", HERE);
    x = LEAF(1, 2);
    b = tensor_mul_scalar(x, 1);
    o.mode = 2;
    CHECK(tensor_apply(&twice, &o, &b, 1) == b);
    CHECK_TEXT(tensor_grad_fn_name(b), "twice");
    CHECK(tensor_backward(tensor_sum(b)) == 0);
    EXPECT(tensor_grad(x), 2, 2);
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1);
    v = tensor_narrow(b, 0, 0, 1);
    CHECK(tensor_apply(&twice, NULL, &v, 1) == v);
    CHECK(tensor_backward(tensor_sum(b)) == 0);
    EXPECT(b, 2, 2);
    EXPECT(tensor_grad(x), 2, 1); // PyTorch
    b = tensor_mul_scalar(x, 1); // who saved the old value hears of it
    v = tensor_square(b);
    tensor_apply(&twice, NULL, &b, 1);
    FAILS(tensor_backward(tensor_sum(v)), TENSOR_ERR_AUTOGRAD, "square at " HERE, "changed in place by mul");
    o.mode = 1;
    b = tensor_mul_scalar(x, 1);
    POISONS(tensor_apply(&twice, &o, &b, 1), TENSOR_ERR_AUTOGRAD, "dirty is not among the results", HERE);
    b = tensor_ones(2); // nothing recorded
    CHECK(tensor_apply(&twice, NULL, &b, 1) == b && !tensor_requires_grad(b));
    EXPECT(b, 2, 2);
}
static tensor_t *two_of_many(tensor_t *const *in, int n, void *user) {
    tensor_t *out[3];
    if (tensor_apply_n((const tensor_function_t *)user, NULL, in, n, out, 3)) return out[0];
    return tensor_mul(tensor_tanh(out[0]), out[1]);
}
static void custom_twice(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL};
    tensor_t *in[2];
    in[0] = LEAF64(0.2, -0.3);
    in[1] = LEAF64(0.5, 0.7);
    CHECK(tensor_gradcheck(two_of_many, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(two_of_many, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
}

// ---- checkpoint ----

typedef struct block_t { tensor_t *w; int calls, other, inner; } block_t;
static tensor_t *block_rest(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_tanh(tensor_exp(tensor_mul_scalar(in[0], 0.1)));
}
static tensor_t *block(tensor_t *const *in, int n, void *user) {
    block_t *b = (block_t *)user;
    tensor_t *h = tensor_matmul(in[0], b->w), *keep;
    (void)n;
    b->calls++;
    keep = tensor_bernoulli(tensor_full_like(h, 0.5));
    h = tensor_mul(tensor_tanh(h), keep);
    if (b->other && b->calls > 1) h = b->other == 1 ? tensor_exp(h) : tensor_mul_scalar(tensor_relu(h), 2);
    else h = tensor_mul(tensor_sigmoid(h), tensor_sin(h));
    tensor_add_scalar_(tensor_narrow(h, 0, 0, 1), 0.25); // a view changed in place
    if (b->inner) h = tensor_checkpoint(block_rest, NULL, &h, 1);
    else h = block_rest(&h, 1, NULL);
    return tensor_mul(h, h);
}
static void run_blocks(tensor_t *x, block_t *b, int n, int checkpoint, tensor_t **gx, tensor_t **gw) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *h = x;
    int k;
    tensor_manual_seed(7);
    tensor_set_grad(x, NULL);
    tensor_set_grad(b->w, NULL);
    for (k = 0; k < n; k++) h = checkpoint ? tensor_checkpoint(block, b, &h, 1) : block(&h, 1, b);
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
    for (k = 0; k < 3; k++) tensor_free(g[k][0]), tensor_free(g[k][1]);
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
    POISONS(tensor_checkpoint(NULL, NULL, &x, 1), TENSOR_ERR_OWNER, "checkpoint: fn", HERE);
}
static tensor_t *poly(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul(tensor_exp(tensor_mul(in[0], in[1])), tensor_sin(in[0]));
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

// ---- vjp, jvp, jacobian, hessian: against PyTorch ----

static tensor_t *outer(tensor_t *const *in, int n, void *user) { // [2] x [3] -> [2, 3]
    (void)n;
    (void)user;
    return tensor_mul(tensor_reshape(tensor_exp(in[0]), 2, 1), tensor_sin(in[1]));
}
static tensor_t *energy(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_sum(tensor_mul(outer(in, 2, NULL), outer(in, 2, NULL)));
}
static tensor_t *first_only(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_sum(tensor_square(in[0]));
}
static tensor_t *nothing(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_scalar(tensor_item(tensor_sum(in[0])), TENSOR_F64);
}
static tensor_t *picked(tensor_t *const *in, int n, void *user) { // an i64 input is a constant
    (void)n;
    (void)user;
    return tensor_square(tensor_index_select(in[0], 0, in[1]));
}
static tensor_t *broken(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_matmul(in[0], tensor_ones(7, 7));
}
static void functional(void) {
    tensor_t *a = DATA64(0.5, -1), *b = DATA64(1, 2, 3), *in[2], *out[4], *v[2], *y, *r;
    in[0] = a;
    in[1] = b;
    y = tensor_vjp(outer, NULL, in, 2, tensor_reshape(DATA64(1, 2, 3, 4, 5, 6), 2, 3), out, 0);
    EXPECT_TOL(y, 1e-12, 1.3873511113297634, 1.4991780090003948, 0.23266755900967662, 0.3095598756531122,
               0.33451182923926226, 0.05191514970317339);
    EXPECT_TOL(out[0], 1e-12, 5.0837098063595825, 3.2222895470278003);
    EXPECT_TOL(out[1], 1e-12, 1.6858723456787805, -2.1376796106708182, -7.0818523794157935);
    CHECK(!tensor_requires_grad(y) && !tensor_requires_grad(out[0]) && !tensor_requires_grad(a));
    v[0] = DATA64(1, 2);
    v[1] = DATA64(1, -1, 0.5);
    y = tensor_jvp(outer, NULL, in, 2, v, &r, 0);
    CHECK(tensor_ndim(r) == 2 && tensor_size(r, 1) == 3);
    EXPECT_TOL(r, 1e-12, 2.278159015622892, 2.185288150150238, -0.5834432844796628, 0.8178858616526374,
               0.8221155241527508, -0.07826864380029966);
    CHECK(tensor_jacobian(outer, NULL, in, 2, out, 0) == 0);
    CHECK(tensor_ndim(out[0]) == 3 && tensor_ndim(out[1]) == 3 && tensor_size(out[1], 2) == 3);
    EXPECT_TOL(out[0], 1e-12, 1.3873511113297634, 0, 1.4991780090003948, 0, 0.23266755900967662, 0, 0,
               0.3095598756531122, 0, 0.33451182923926226, 0, 0.05191514970317339);
    EXPECT_TOL(out[1], 1e-12, 0.8908079042931287, 0, 0, 0, -0.6861101411498431, 0, 0, 0, -1.6322216869786788,
               0.19876611034641298, 0, 0, 0, -0.1530918656742263, 0, 0, 0, -0.36419788641329287);
    y = tensor_hvp(energy, NULL, in, 2, v, out, 0);
    EXPECT_TOL(out[0], 1e-12, 25.203976221297026, 2.0965147404080144);
    EXPECT_TOL(out[1], 1e-12, 3.060645975734862, -0.7935960187884774, 1.0696391150814637);
    CHECK_NEAR(tensor_item(y), 4.436832665077909, 1e-12);
    y = tensor_vhp(energy, NULL, in, 2, v, out, 0);
    EXPECT_TOL(out[0], 1e-12, 25.20397622129703, 2.0965147404080144);
    EXPECT_TOL(out[1], 1e-12, 3.0606459757348627, -0.7935960187884774, 1.0696391150814637);
    CHECK(tensor_hessian(energy, NULL, in, 2, out, 0) == 0);
    CHECK(tensor_ndim(out[1]) == 2 && tensor_size(out[1], 0) == 2 && tensor_size(out[1], 1) == 3);
    EXPECT_TOL(out[0], 1e-12, 16.905648007175355, 0, 0, 0.8416826531362821);
    EXPECT_TOL(out[1], 1e-12, 4.943453344009639, -4.114404941456007, -1.5190601426879424, 0.2461200496115535,
               -0.20484416011334744, -0.07562955117890174);
    EXPECT_TOL(out[2], 1e-12, 4.943453344009639, 0.24612004961155354, -4.114404941456007,
               -0.20484416011334747, -1.5190601426879426, -0.07562955117890176);
    EXPECT_TOL(out[3], 1e-12, -2.3750474674978834, 0, 0, 0, -3.730497242894224, 0, 0, 0, 5.479916720254419);
    // zeros where nothing depends, NULL for integers, no result in the graph of another
    CHECK(tensor_hessian(first_only, NULL, in, 2, out, 0) == 0);
    EXPECT(out[0], 2, 0, 0, 2);
    EXPECT(out[1], 0, 0, 0, 0, 0, 0);
    EXPECT(out[3], 0, 0, 0, 0, 0, 0, 0, 0, 0);
    y = tensor_vjp(nothing, NULL, in, 2, NULL, out, 0);
    EXPECT(out[0], 0, 0);
    EXPECT(y, -0.5);
    tensor_jvp(nothing, NULL, in, 2, v, &r, 0);
    EXPECT(r, 0);
    in[1] = tensor_to(DATA(1, 1, 0), TENSOR_I64);
    CHECK(tensor_jacobian(picked, NULL, in, 2, out, 0) == 0);
    EXPECT(out[0], 0, -2, 0, -2, 1, 0);
    CHECK(out[1] == NULL);
    v[1] = NULL;
    tensor_jvp(picked, NULL, in, 2, v, &r, 0);
    EXPECT(r, -4, -4, 1);
    // CREATE_GRAPH: results are differentiable with respect to the inputs
    in[0] = a = LEAF64(0.5, -1);
    in[1] = b;
    y = tensor_vjp(outer, NULL, in, 2, tensor_ones_like(outer(in, 2, NULL)), out, TENSOR_CREATE_GRAPH);
    CHECK(tensor_requires_grad(out[0]) && tensor_requires_grad(y));
    CHECK(tensor_backward(tensor_sum(out[0])) == 0);
    EXPECT_TOL(tensor_grad(a), 1e-12, 3.1191966793398347, 0.6959868545955479);
    tensor_set_grad(a, NULL);
    tensor_jvp(first_only, NULL, in, 2, v, &r, TENSOR_CREATE_GRAPH);
    CHECK(tensor_backward(r) == 0);
    EXPECT(tensor_grad(a), 2, 4);
    tensor_set_grad(a, NULL);
    // errors
    POISONS(tensor_vjp(outer, NULL, in, 2, NULL, out, 0), TENSOR_ERR_AUTOGRAD, "a gradient to start from",
            HERE);
    CHECK(tensor_is_poison(out[0]) && tensor_is_poison(out[1]));
    FAILS(tensor_jacobian(broken, NULL, in, 2, out, 0), TENSOR_ERR_DTYPE, "matmul", HERE);
    CHECK(tensor_is_poison(out[1]));
    FAILS(tensor_hessian(outer, NULL, in, 2, out, 0), TENSOR_ERR_AUTOGRAD, "gradient to start from", HERE);
    POISONS(tensor_jvp(outer, NULL, in, 2, NULL, &r, 0), TENSOR_ERR_OWNER, "jvp: fn, inputs, v", HERE);
    v[0] = DATA64(1, 2, 3);
    v[1] = DATA64(1, 2, 3);
    POISONS(tensor_jvp(outer, NULL, in, 2, v, &r, 0), TENSOR_ERR_SHAPE, "[3]", HERE);
}

// ---- gradcheck itself ----

static int wobble;
static tensor_t *wobbling(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul_scalar(tensor_mul(in[0], in[0]), 1 + 1e-9 * wobble++);
}
static tensor_t *halved_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return tensor_mul_scalar(in[0], 2);
}
static int halved_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)n;
    grads[0] = tensor_mul_scalar(g, 1);
    return 0;
}
static tensor_t *halved(tensor_t *const *in, int n, void *user) {
    static const tensor_function_t f = {"halved", halved_forward, halved_backward, NULL};
    (void)user;
    return tensor_apply(&f, NULL, in, n);
}
static void checks(void) {
    tensor_t *x = LEAF64(0.3, 0.4), *in[2];
    in[0] = x;
    in[1] = DATA64(1, 2);
    CHECK(tensor_gradcheck(poly, NULL, in, 2, 0, 0, 0) == 0); // 0 = the defaults; a constant is no leaf
    FAILS(tensor_gradcheck(halved, NULL, in, 1, 1e-6, 1e-5, 1e-3), TENSOR_ERR_AUTOGRAD,
          "gradcheck: input 0, element 0: autograd gives 1.67074, central differences 3.34147", HERE);
    FAILS(tensor_gradcheck(wobbling, NULL, in, 1, 0, 1, 1), TENSOR_ERR_AUTOGRAD,
          "input 0: a second backward pass gives another gradient", HERE);
    in[0] = tensor_requires_grad_(tensor_detach(tensor_expand(DATA64(1), 3)), 1);
    FAILS(tensor_gradcheck(poly, NULL, in, 1, 0, 0, 0), TENSOR_ERR_AUTOGRAD,
          "elements of input 0 [3] share memory", HERE);
    in[0] = LEAF(1, 2);
    FAILS(tensor_gradcheck(poly, NULL, in, 2, 0, 0, 0), TENSOR_ERR_DTYPE, "f64 is needed", HERE);
}

// ---- hooks of modules, against PyTorch ----

typedef struct modlog_t { int pre, post, back, no_input; double gi, go; int64_t remove; } modlog_t;
static tensor_t *mod_pre(nn_module_t *m, tensor_t *x, void *user) {
    modlog_t *l = (modlog_t *)user;
    l->pre++;
    if (l->remove) CHECK(nn_remove_hook(m, l->remove) == 1);
    l->remove = 0;
    return tensor_mul_scalar(x, 2);
}
static tensor_t *mod_post(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m;
    ((modlog_t *)user)->post++;
    CHECK(tensor_size(x, 1) == 2 && tensor_size(y, 1) == 1);
    return tensor_add_scalar(y, 1);
}
static tensor_t *mod_back(nn_module_t *m, tensor_t *gi, tensor_t *go, void *user) {
    modlog_t *l = (modlog_t *)user;
    (void)m;
    l->back++;
    l->no_input = gi == NULL;
    l->go = tensor_item(go);
    if (!gi) return NULL;
    l->gi = tensor_item(tensor_select(tensor_select(gi, 0, 0), 0, 0));
    return tensor_mul_scalar(gi, 10);
}
static tensor_t *mod_seen(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x, (void)y;
    ++*(int *)user;
    return NULL;
}
static void module_hooks(void) {
    static const float wv[] = {3, 5}, bv[] = {1};
    nn_module_t *lin = nn_linear(2, 1), *net;
    modlog_t l;
    tensor_t *x = tensor_reshape(DATA(1, 2), 1, 2), *y;
    tensor_scope_t s;
    int64_t h[3], before;
    int seen = 0;
    memset(&l, 0, sizeof l);
    s = tensor_scope_begin_no_grad();
    tensor_copy_(nn_get(lin, "weight"), tensor_from(wv, TENSOR_F32, 1, 2));
    tensor_copy_(nn_get(lin, "bias"), tensor_from(bv, TENSOR_F32, 1));
    tensor_scope_end(s);
    h[0] = nn_register_forward_pre_hook(lin, mod_pre, &l);
    h[1] = nn_register_forward_hook(lin, mod_post, &l);
    h[2] = nn_register_full_backward_hook(lin, mod_back, &l);
    CHECK(h[0] > 0 && h[1] > h[0] && h[2] > h[1]);
    tensor_requires_grad_(x, 1);
    s = tensor_scope_begin();
    y = nn_forward(lin, x);
    EXPECT(y, 2 * 13 + 1 + 1);
    CHECK(tensor_backward(tensor_sum(tensor_mul_scalar(y, 4))) == 0);
    CHECK(l.pre == 1 && l.post == 1 && l.back == 1 && !l.no_input && l.gi == 12 && l.go == 4);
    EXPECT(tensor_grad(x), 4 * 3 * 10 * 2, 4 * 5 * 10 * 2);
    EXPECT(tensor_grad(nn_get(lin, "weight")), 4 * 2, 4 * 4);
    tensor_scope_end(s);
    s = tensor_scope_begin(); // x without grad: grad_input is NULL; inside a net; a hook removes another
    net = nn_sequential(lin, nn_tanh());
    l.remove = h[1];
    y = nn_forward(net, tensor_detach(x));
    CHECK(l.pre == 2 && l.post == 1);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK(l.back == 2 && l.no_input);
    tensor_scope_end(s);
    CHECK(nn_remove_hook(lin, h[2]) == 1 && nn_remove_hook(lin, h[2]) == 0);
    CHECK(nn_remove_hook(lin, h[0]) == 1);
    s = tensor_scope_begin_no_grad();
    CHECK(nn_register_forward_hook(net, mod_seen, &seen) > 0);
    before = tensor_memory_stats().live_tensors;
    y = nn_forward(net, x);
    CHECK(seen == 1 && tensor_memory_stats().live_tensors == before + 1); // what is between goes at once
    tensor_scope_end(s);
    CHECK(nn_register_full_backward_hook(net, mod_back, &l) > 0); // freed before its backward: no call
    x = tensor_requires_grad_(tensor_detach(x), 1);
    y = nn_forward(net, x);
    l.back = 0;
    CHECK(nn_free(net) == 0);
    CHECK(tensor_backward(tensor_sum(y)) == 0 && l.back == 0 && tensor_grad(x) != NULL);
    lin = nn_linear(2, 1);
    CHECK(nn_register_forward_hook(lin, NULL, NULL) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "register_forward_hook: fn is NULL");
    nn_free(lin);
    CHECK(nn_register_forward_pre_hook(NULL, mod_pre, &l) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "register_forward_pre_hook");
}

// ---- saved values through hooks ----

typedef struct store_t { int packed, unpacked, dropped, bad; } store_t;
static void *pack_half(tensor_t *x, void *user) { // keeps f32 values as f16
    store_t *s = (store_t *)user;
    CHECK(!tensor_grad_enabled());
    if (s->bad == 1) return NULL;
    s->packed++;
    return tensor_keep(tensor_to(tensor_contiguous(x), TENSOR_F16));
}
static tensor_t *unpack_half(void *packed, void *user) {
    store_t *s = (store_t *)user;
    s->unpacked++;
    return s->bad == 2 ? (tensor_t *)packed : tensor_to((tensor_t *)packed, TENSOR_F32);
}
static void drop_half(void *packed, void *user) {
    ((store_t *)user)->dropped++;
    tensor_free((tensor_t *)packed);
}
static void saved_hooks(void) {
    store_t st;
    tensor_saved_hooks_t hooks;
    tensor_t *x = LEAF(0.1, 0.2, 0.3, 0.4), *y, *z, *w, *g;
    tensor_scope_t s;
    int k;
    memset(&st, 0, sizeof st);
    hooks.pack = pack_half;
    hooks.unpack = unpack_half;
    hooks.drop = drop_half;
    hooks.user = &st;
    s = tensor_scope_begin();
    CHECK(tensor_set_saved_tensors_hooks(&hooks) == NULL && tensor_set_saved_tensors_hooks(&hooks) == &hooks);
    y = tensor_exp(tensor_mul_scalar(x, 1)); // saves its result
    z = tensor_mul(x, y);                    // x is a leaf: stays; y is packed
    w = tensor_sum(tensor_matmul(tensor_reshape(z, 2, 2), tensor_mT(tensor_reshape(y, 2, 2)))); // two more
    CHECK(st.packed == 4);
    tensor_set_saved_tensors_hooks(NULL);
    for (k = 0; k < 2; k++) {
        CHECK(tensor_autograd_grad(&w, 1, NULL, &x, 1, &g, k ? 0 : TENSOR_RETAIN_GRAPH) == 0);
        CHECK(st.unpacked == 4 * (k + 1) && st.dropped == (k ? 4 : 0));
        EXPECT_TOL(g, 2e-3, 3.5542383, 5.0039448, 5.0039458, 6.9213638); // f16 between, all but x
    }
    FAILS(tensor_backward(w), TENSOR_ERR_AUTOGRAD, "freed by an earlier backward", HERE);
    tensor_set_saved_tensors_hooks(&hooks);
    y = tensor_square(tensor_mul_scalar(x, 1)); // dropped without a backward; CREATE_GRAPH
    CHECK(st.packed == 5);
    y = tensor_sum(tensor_mul(tensor_mul(y, x), y));
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
    EXPECT_TOL(g, 2e-3, 5 * 1e-4, 5 * 16e-4, 5 * 81e-4, 5 * 256e-4);
    z = tensor_sum(g);
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT_TOL(g, 2e-3, 20 * 1e-3, 20 * 8e-3, 20 * 27e-3, 20 * 64e-3);
    st.bad = 1;
    POISONS(tensor_exp(x), TENSOR_ERR_AUTOGRAD, "exp: pack gave NULL", HERE);
    POISONS(tensor_matmul(tensor_reshape(y, 1, 1), tensor_ones(1, 1)), TENSOR_ERR_AUTOGRAD, "pack gave NULL",
            HERE);
    st.bad = 2;
    y = tensor_sum(tensor_exp(x));
    FAILS(tensor_backward(y), TENSOR_ERR_SHAPE, "unpack gave [4] f16 for a value [4] of exp", HERE);
    st.bad = 0;
    tensor_scope_end(s);
    CHECK(st.packed == st.dropped);
    CHECK(tensor_set_saved_tensors_hooks(NULL) == NULL); // restored
}

// ---- second derivatives of the rows of tensor_nn.h ----

typedef struct nn_case_t {
    const char *name;
    tensor_fn_t fn;
    int64_t dims[3][4]; // of the inputs, 0-terminated; positive values if .positive
    int n, positive;
} nn_case_t;
#define NN_FN(name, expression)                                                                              \
    static tensor_t *name(tensor_t *const *in, int n, void *user) {                                          \
        tensor_t *const a = in[0], *const b = n > 1 ? in[1] : NULL, *const c = n > 2 ? in[2] : NULL;         \
        (void)a, (void)b, (void)c, (void)user;                                                               \
        return expression;                                                                                   \
    }
static tensor_t *classes(int n) { // 0, 1, 2, 0, 1, ..
    return tensor_remainder_scalar(tensor_arange(0, n, 1, TENSOR_I64), 3);
}
NN_FN(nn_linear_, tensor_linear(a, b, c))
NN_FN(nn_conv_, tensor_conv2d(a, b, c, .stride = 2, .padding = 1))
NN_FN(nn_conv_groups, tensor_conv2d(a, b, NULL, .groups = 2, .dilation = 2))
NN_FN(nn_max_pool, tensor_max_pool2d(a, 2, .stride = 1))
NN_FN(nn_avg_pool, tensor_avg_pool2d(a, 3, .stride = 2, .padding = 1))
NN_FN(nn_adaptive, tensor_adaptive_avg_pool2d(a, 2, 2))
NN_FN(nn_layer_norm_, tensor_layer_norm(a, 1, b, c))
NN_FN(nn_layer_norm_2, tensor_layer_norm(a, 2, NULL, NULL))
NN_FN(nn_embedding_, tensor_square(tensor_embedding(classes(5), a)))
NN_FN(nn_attention, tensor_scaled_dot_product_attention(a, b, c, NULL))
NN_FN(nn_attention_causal, tensor_scaled_dot_product_attention(a, b, c, NULL, .is_causal = 1))
NN_FN(nn_cross_entropy_, tensor_cross_entropy(a, classes(4), DATA64(0.5, 1, 2)))
NN_FN(nn_cross_entropy_smooth, tensor_cross_entropy(a, classes(4), NULL, .label_smoothing = 0.2))
NN_FN(nn_cross_entropy_soft, tensor_cross_entropy(a, tensor_softmax(b, 1), NULL))
NN_FN(nn_nll, tensor_nll_loss(tensor_log_softmax(a, 1), classes(4), NULL))
NN_FN(nn_mse, tensor_mse_loss(a, b))
NN_FN(nn_l1, tensor_l1_loss(tensor_square(a), b))
NN_FN(nn_smooth_l1, tensor_smooth_l1_loss(a, b))
NN_FN(nn_huber, tensor_huber_loss(a, b, .delta = 0.5))
NN_FN(nn_bce, tensor_binary_cross_entropy(tensor_sigmoid(a), tensor_sigmoid(b), c))
NN_FN(nn_bce_logits, tensor_binary_cross_entropy_with_logits(a, tensor_sigmoid(b), NULL, c))
NN_FN(nn_kl, tensor_kl_div(a, b))
NN_FN(nn_kl_log, tensor_kl_div(a, b, .log_target = 1))
static tensor_t *nn_dropped(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    tensor_manual_seed(3);
    return tensor_square(tensor_dropout(in[0], 0.3, 1));
}
static void nn_second_derivatives(void) {
    static const nn_case_t cases[] = {
        {"linear", nn_linear_, {{3, 4}, {2, 4}, {2}}, 3, 0},
        {"conv2d", nn_conv_, {{1, 2, 5, 4}, {3, 2, 3, 3}, {3}}, 3, 0},
        {"conv2d groups", nn_conv_groups, {{1, 4, 5, 5}, {4, 2, 2, 2}}, 2, 0},
        {"max_pool2d", nn_max_pool, {{1, 2, 4, 4}}, 1, 0},
        {"avg_pool2d", nn_avg_pool, {{1, 2, 5, 5}}, 1, 0},
        {"adaptive_avg_pool2d", nn_adaptive, {{1, 2, 5, 5}}, 1, 0},
        {"layer_norm", nn_layer_norm_, {{3, 4}, {4}, {4}}, 3, 0},
        {"layer_norm 2", nn_layer_norm_2, {{2, 3, 4}}, 1, 0},
        {"embedding", nn_embedding_, {{4, 3}}, 1, 0},
        {"attention", nn_attention, {{1, 3, 4}, {1, 5, 4}, {1, 5, 2}}, 3, 0},
        {"attention causal", nn_attention_causal, {{1, 4, 2}, {1, 4, 2}, {1, 4, 3}}, 3, 0},
        {"cross_entropy", nn_cross_entropy_, {{4, 3}}, 1, 0},
        {"cross_entropy smooth", nn_cross_entropy_smooth, {{4, 3}}, 1, 0},
        {"cross_entropy soft", nn_cross_entropy_soft, {{4, 3}, {4, 3}}, 2, 0},
        {"nll_loss", nn_nll, {{4, 3}}, 1, 0},
        {"mse_loss", nn_mse, {{3, 4}, {3, 4}}, 2, 0},
        {"l1_loss", nn_l1, {{3, 4}, {3, 4}}, 2, 0},
        {"smooth_l1_loss", nn_smooth_l1, {{3, 4}, {3, 4}}, 2, 0},
        {"huber_loss", nn_huber, {{3, 4}, {3, 4}}, 2, 0},
        {"bce", nn_bce, {{3, 4}, {3, 4}, {3, 4}}, 3, 1},
        {"bce_with_logits", nn_bce_logits, {{3, 4}, {3, 4}, {4}}, 3, 1},
        {"kl_div", nn_kl, {{3, 4}, {3, 4}}, 2, 1},
        {"kl_div log", nn_kl_log, {{3, 4}, {3, 4}}, 2, 0},
        {"dropout", nn_dropped, {{3, 4}}, 1, 0}};
    int k, i, nd;
    for (k = 0; k < N(cases); k++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *in[3];
        tensor_manual_seed(100 + (uint64_t)k);
        for (i = 0; i < cases[k].n; i++) {
            for (nd = 0; nd < 4 && cases[k].dims[i][nd]; nd++) {}
            in[i] = tensor_to(cases[k].positive ? tensor_add_scalar(tensor_rand_n(cases[k].dims[i], nd), 0.3)
                                                : tensor_randn_n(cases[k].dims[i], nd), TENSOR_F64);
            tensor_requires_grad_(in[i], 1);
        }
        CHECK_MSG(tensor_gradcheck(cases[k].fn, NULL, in, cases[k].n, 0, 0, 0) == 0, "%s: %s", cases[k].name,
                  tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(tensor_gradgradcheck(cases[k].fn, NULL, in, cases[k].n, 0, 0, 0) == 0, "%s: %s",
                  cases[k].name, tensor_error_text());
        tensor_clear_error();
        tensor_scope_end(s);
    }
}

// ---- whose gradient is it ----

static void own_gradients(void) {
    tensor_t *a = LEAF(1, 2), *b = LEAF(3, 4), *g = DATA(5, 6), *w;
    CHECK(tensor_backward_with(tensor_sum(tensor_add(a, b)), NULL, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_grad(a) != tensor_grad(b));
    CHECK(tensor_backward(tensor_sum(tensor_add(a, b))) == 0);
    EXPECT(tensor_grad(a), 2, 2);
    EXPECT(tensor_grad(b), 2, 2);
    tensor_set_grad(a, NULL);
    CHECK(tensor_backward_with(tensor_add_scalar(a, 0), g, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_backward(tensor_sum(a)) == 0);
    EXPECT(tensor_grad(a), 6, 7);
    EXPECT(g, 5, 6);                                            // the caller's stays as it was
    tensor_set_grad(a, NULL);
    tensor_set_grad(b, NULL);
    // A backward pass that adds into .grad changes it: what was saved of it is out of date.
    CHECK(tensor_backward(tensor_sum(tensor_mul_scalar(a, 2))) == 0);
    w = tensor_sum(tensor_mul(b, tensor_grad(a)));
    CHECK(tensor_backward(tensor_sum(a)) == 0);
    FAILS(tensor_backward(w), TENSOR_ERR_AUTOGRAD, "version", "backward");
}
static tensor_t *count_calls(tensor_t *g, void *user) {
    ++*(int *)user;
    (void)g;
    return NULL;
}
static void hook_of_one_output(void) {
    int calls[2] = {0, 0};
    tensor_t *x = tensor_requires_grad_(tensor_randn(4, 3), 1);
    tensor_qr_t f = tensor_qr(x);
    tensor_register_hook(f.q, count_calls, &calls[0]);
    tensor_register_hook(f.r, count_calls, &calls[1]);
    CHECK(tensor_backward(tensor_sum(f.q)) == 0);
    CHECK(calls[0] == 1 && calls[1] == 0);
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
// x^3 whose gradient is right once only: its second derivative must be missed.
static tensor_t *cube(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    return tensor_mul(in[0], tensor_mul(in[0], in[0]));
}
static int cube_back(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0);
    (void)n;
    grads[0] = tensor_detach(tensor_mul(grad, tensor_mul_scalar(tensor_mul(x, x), 3)));
    return 0;
}
static const tensor_function_t cubed = {"cubed", cube, cube_back, NULL};
static tensor_t *sum_of_cubes(tensor_t *const *in, int n, void *user) {
    int bad = *(const int *)user, k;
    tensor_t *y = tensor_apply(&cubed, NULL, &in[bad], 1);
    for (k = 0; k < n; k++) y = k == bad ? y : tensor_add(y, tensor_mul(in[k], tensor_mul(in[k], in[k])));
    return y;
}
static void second_order_is_seen(void) {
    tensor_t *in[10];
    int bad;
    for (bad = 0; bad < 10; bad++) in[bad] = tensor_requires_grad_(DATA64(0.5 + 0.1 * bad, -0.7), 1);
    bad = 0;
    CHECK(tensor_gradcheck(sum_of_cubes, &bad, in, 1, 0, 0, 0) == 0);
    FAILS(tensor_gradgradcheck(sum_of_cubes, &bad, in, 1, 0, 0, 0), TENSOR_ERR_AUTOGRAD, "input 0",
          "gradgradcheck");
    for (bad = 0; bad < 10; bad += 3)
        FAILS(tensor_gradgradcheck(sum_of_cubes, &bad, in, 10, 0, 0, 0), TENSOR_ERR_AUTOGRAD,
              "autograd gives",
              "gradgradcheck");
}
static int wrong_back(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)ctx, (void)grad, (void)n;
    grads[0] = tensor_ones(3, 1);
    return 0;
}
static const tensor_function_t wrong = {"wrong", cube, wrong_back, NULL};
static void wrong_shape(void) {
    tensor_t *x = LEAF(1, 2, 3);
    FAILS(tensor_backward(tensor_sum(tensor_apply(&wrong, NULL, &x, 1))), TENSOR_ERR_SHAPE,
          "backward: wrong gave a gradient [3,1] for input 0, which is [3]", HERE);
}

// ---- the k-th allocation fails ----

typedef struct heap_t { long calls, fail_at, blocks; } heap_t;
static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    void *p = NULL;
    if (h->calls++ == h->fail_at || posix_memalign(&p, alignment < 64 ? 64 : alignment, bytes)) return NULL;
    h->blocks++;
    return p;
}
static void heap_free(void *user, void *p, size_t bytes, size_t alignment) {
    (void)bytes, (void)alignment;
    ((heap_t *)user)->blocks--;
    free(p);
}
static tensor_t *pass_on(tensor_t *g, void *user) {
    (void)user;
    return tensor_mul_scalar(g, 2);
}
static void stay(tensor_t *x, void *user) { (void)x, (void)user; }
static int everything(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL};
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *x = LEAF64(0.5, -1), *y = LEAF64(1, 2, 3), *in[2], *out[4], *z, *g, *v[2];
    block_t b;
    int k;
    in[0] = x;
    in[1] = y;
    tensor_register_hook(x, pass_on, NULL);
    tensor_register_post_accumulate_grad_hook(x, stay, NULL);
    z = tensor_mul(x, x);
    tensor_retain_grad(z);
    tensor_register_hook(z, pass_on, NULL);
    tensor_backward_with(tensor_sum(tensor_mul(z, z)), NULL, TENSOR_RETAIN_GRAPH);
    z = tensor_sum(z);
    tensor_autograd_grad(&z, 1, NULL, &x, 1, &g, 0);
    for (k = 0; k < 2; k++) {
        if (k) tensor_set_detect_anomaly(1);
        in[1] = x;
        if (tensor_apply_n(&many, NULL, in, 2, out, 3) == 0) tensor_backward(tensor_sum(out[1]));
        in[1] = y;
    }
    memset(&b, 0, sizeof b);
    b.w = tensor_requires_grad_(tensor_randn(4, 4), 1);
    b.inner = 1;
    z = tensor_ones(3, 4);
    tensor_backward(tensor_sum(tensor_checkpoint(block, &b, &z, 1)));
    v[0] = tensor_ones_like(x);
    v[1] = tensor_ones_like(y);
    tensor_jvp(outer, NULL, in, 2, v, &g, 0);
    tensor_hessian(energy, NULL, in, 2, out, 0);
    tensor_scope_end(s);
    return tensor_error_code();
}
static void out_of_memory(void) {
    long k, n = 0;
    int code = 1;
    for (k = 0; code != 0 && k < 2000; k++) {
        heap_t h;
        tensor_allocator_t a;
        tensor_context_t *c = tensor_context_new(), *before = tensor_context_use(c);
        h.calls = h.blocks = 0;
        h.fail_at = k;
        a.alloc = heap_alloc;
        a.free = heap_free;
        a.user = &h;
        tensor_set_error_handler(test_quiet, NULL);
        CHECK(tensor_set_allocator(&a) == 0);
        code = everything();
        CHECK_MSG(code == (h.calls > k ? TENSOR_ERR_OUT_OF_MEMORY : 0) || (h.calls > k && code == 0),
                  "allocation %ld of %ld failed: %s", k, h.calls, tensor_error_text());
        if (h.calls > k && code == 0) code = 1; // it could do without
        tensor_clear_error();
        CHECK(tensor_memory_stats().live_nodes == 0);
        tensor_context_use(before);
        tensor_context_free(c);
        CHECK_MSG(h.blocks == 0, "allocation %ld failed: %ld blocks left", k, h.blocks);
        n++;
    }
    CHECK(code == 0 && n > 20);
}

// ---- size ----

// Seconds for n things of a kind: the operations of a checkpoint, inputs of autograd_grad (a third of them
// asked for twice), leaves with hooks.
static tensor_t *sines(tensor_t *const *in, int n, void *user) {
    tensor_t *y = in[0];
    int k;
    (void)n;
    for (k = 0; k < *(int *)user; k++) y = tensor_sin(y);
    return y;
}
static double many(int kind, int n) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t **x = (tensor_t **)calloc((size_t)n, sizeof *x), *y;
    tensor_t **g = (tensor_t **)calloc((size_t)n, sizeof *g);
    clock_t t;
    int k, bad = 0;
    log_t l;
    memset(&l, 0, sizeof l);
    l.factor = 2;
    for (k = 0; k < n; k++) x[k] = kind == 1 && k % 3 == 2 ? x[k - 1] : LEAF(1);
    if (kind == 0) {
        t = clock();
        y = tensor_checkpoint(sines, &n, x, 1);
    } else {
        for (y = x[0], k = 1; k < n; k++) y = tensor_add(y, x[k]);
        for (k = 0; k < n && kind == 2; k++) tensor_register_hook(x[k], watch, &l);
        t = clock();
        if (kind == 1) CHECK(tensor_autograd_grad(&y, 1, NULL, x, n, g, 0) == 0);
        if (kind == 2) CHECK(tensor_backward(y) == 0);
        for (k = 0; k < n; k++) {
            tensor_t *grad = kind == 1 ? g[k] : tensor_grad(x[k]);
            bad += *(float *)tensor_data(grad) != (kind == 2 || (k % 3 && (k % 3 == 2 || k + 1 < n)) ? 2 : 1);
        }
        CHECK(!bad && (kind == 1 || l.calls == n));
    }
    t = clock() - t;
    tensor_scope_end(s);
    free(x);
    free(g);
    return (double)t / CLOCKS_PER_SEC;
}
static void many_of_them(void) {
    static const char *const names[] = {"operations of a checkpoint", "inputs", "leaves with hooks"};
    int kind;
    for (kind = 0; kind < 3; kind++) {
        double small = many(kind, 4000), large = many(kind, 40000);
        CHECK_MSG(large < 40 * small + 0.1, "4000 %s take %.2f s, 40000 %.2f s: not linear", names[kind],
                  small, large);
    }
}

int main(void) {
    RUN(grad_of_part);
    RUN(grad_long);
    RUN(hooks_of_values);
    RUN(hooks_of_leaves);
    RUN(hooks_unused_edge);
    RUN(hooks_as_optimizer);
    RUN(hooks_in_place);
    RUN(hook_errors);
    RUN(anomaly);
    RUN(switches);
    RUN(inference);
    RUN(views_of_permuted);
    RUN(refused_in_time);
    RUN(norm_overwritten);
    RUN(multi_views);
    RUN(overwritten);
    RUN(views_in_place);
    RUN(random_changes);
    RUN(custom);
    RUN(custom_twice);
    RUN(checkpoint);
    RUN(checkpoint_twice);
    RUN(functional);
    RUN(checks);
    RUN(saved_hooks);
    RUN(module_hooks);
    RUN(nn_second_derivatives);
    RUN(own_gradients);
    RUN(hook_of_one_output);
    RUN(checkpoint_and_generator);
    RUN(second_order_is_seen);
    RUN(wrong_shape);
    RUN(out_of_memory);
    RUN(many_of_them);
    return test_report();
}

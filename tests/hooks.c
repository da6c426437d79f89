// hooks.c - hooks of values, of leaves and of modules, saved values through hooks
//
// Numbers named "PyTorch" come from runs of PyTorch 2.15 of the same lines.
#define HERE "hooks.c:"
#include "graphs.h"

static void post(tensor_t *x, void *user) {
    log_t *l = (log_t *)user;
    if (l->calls < 8) { l->first[l->calls] = tensor_item(tensor_select(tensor_grad(x), 0, 0)); }
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

// A hook that begins the pass again that it is called by.
static tensor_t *again(tensor_t *gradient, void *user) {
    (void)gradient;
    tensor_backward((tensor_t *)user);
    return NULL;
}

static void hooks_without_end(void) {
    tensor_t *x = LEAF(3, 4), *y = tensor_sum(tensor_add(x, x));
    tensor_register_hook(x, again, y);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD,
          "backward: 100 passes run inside each other on this thread", HERE);
    x = LEAF(3, 4);         // a graph that has been used
    y = tensor_sum(tensor_mul(x, x));
    tensor_register_hook(x, again, y);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "backward: the values saved by mul", HERE);
    x = LEAF(3, 4);
    CHECK(tensor_backward(tensor_sum(tensor_mul(x, x))) == 0);
    EXPECT(tensor_grad(x), 6, 8);
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
    FAILS(TENSOR_ERR_OWNER, TENSOR_ERR_OWNER, "register_hook: fn is NULL, must be a function", HERE);
    CHECK(tensor_register_post_accumulate_grad_hook(y, post, &a) == 0);
    FAILS(TENSOR_ERR_AUTOGRAD, TENSOR_ERR_AUTOGRAD, "post_accumulate_grad_hook: x [2] is not a leaf", HERE);
    for (k = 1; k <= 3; k++) {
        static const int codes[] = {0, TENSOR_ERR_DTYPE, TENSOR_ERR_SHAPE, TENSOR_ERR_UNSUPPORTED};
        static const char *const texts[] = {"", "a hook gave [2] f64 for a gradient [2] f32",
                                            "a hook gave [1] f32 for a gradient [2]", "hook: no"};
        a.bad = k;
        y = tensor_mul_scalar(x, 2);
        tensor_register_hook(y, watch, &a);
        FAILS(tensor_backward(tensor_sum(y)), codes[k], texts[k], k == 3 ? "graphs.h:" : HERE);
        CHECK(tensor_grad(x) == NULL);
    }
}

typedef struct modlog_t { int pre, post, back, no_input; double gi, go; int64_t remove; } modlog_t;

static tensor_t *mod_pre(nn_module_t *m, tensor_t *x, void *user) {
    modlog_t *l = (modlog_t *)user;
    l->pre++;
    if (l->remove) { CHECK(nn_remove_hook(m, l->remove) == 1); }
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
    if (!gi) { return NULL; }
    l->gi = tensor_item(tensor_select(tensor_select(gi, 0, 0), 0, 0));
    return tensor_mul_scalar(gi, 10);
}

static tensor_t *mod_seen(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x, (void)y;
    ++*(int *)user;
    return NULL;
}

// Gradients with a graph that backward hooks have seen: the graph leads back through the module, and goes
// with the gradients all the same. A hook may hand on the gradient of the result itself.
static tensor_t *hand_on(nn_module_t *m, tensor_t *gi, tensor_t *go, void *user) {
    (void)m, (void)gi;
    ++*(int *)user;
    return go;
}
static tensor_t *look_at_both(nn_module_t *m, tensor_t *gi, tensor_t *go, void *user) {
    (void)m;
    *(int *)user += tensor_requires_grad(gi) && tensor_requires_grad(go);
    return NULL;
}
static void hooked_graphs_end(void) {
    for (int turn = 0; turn < 8; turn++) {
        int in_place = turn & 1, seen = 0;
        nn_module_t *m = turn & 2 ? nn_sequential(nn_linear(2, 2), nn_tanh()) : nn_tanh();
        tensor_scope_t s = tensor_scope_begin();
        tensor_memory_stats_t before = tensor_memory_stats();
        tensor_scope_t inner = tensor_scope_begin();
        tensor_t *x = tensor_requires_grad_(tensor_from(((float[]){0.5f, -1}), TENSOR_F32, 1, 2), 1);
        nn_register_full_backward_hook(m, turn & 4 ? hand_on : look_at_both, &seen);
        tensor_t *y = nn_forward(m, tensor_sin(x));
        y = in_place ? tensor_sigmoid_(tensor_mul_scalar(y, 1)) : tensor_square(y);
        CHECK(tensor_backward_with(y, tensor_ones(1, 2), TENSOR_CREATE_GRAPH) == 0);
        tensor_t *g = tensor_grad(x);
        CHECK(seen == 1 && tensor_requires_grad(g));
        tensor_set_grad(x, NULL);
        tensor_scope_end(inner);
        nn_module_zero_grad(m);
        tensor_memory_stats_t after = tensor_memory_stats();
        CHECK_MSG(after.live_nodes == before.live_nodes && after.live_tensors == before.live_tensors,
                  "%d tensors and %d nodes are left", (int)(after.live_tensors - before.live_tensors),
                  (int)(after.live_nodes - before.live_nodes));
        tensor_scope_end(s);
        nn_free(m);
    }
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

// A hook that frees its module, or the one around it.
static tensor_t *frees(nn_module_t *m, tensor_t *x, void *user) {
    (void)x;
    nn_free(user ? (nn_module_t *)user : m);
    return NULL;
}
static void hooks_that_free(void) {
    nn_module_t *m = nn_linear(3, 2);
    nn_register_forward_pre_hook(m, frees, NULL);
    CHECK_POISON(nn_forward(m, tensor_ones(3)), TENSOR_ERR_OWNER, "a hook has freed the module");
    CHECK_POISON(nn_forward(m, tensor_ones(3)), TENSOR_ERR_POISONED, "was freed");
    m = nn_lstm(3, 2);
    nn_register_forward_pre_hook(m, frees, NULL);
    CHECK_POISON(nn_lstm_forward(m, tensor_ones(5, 1, 3), NULL, NULL), TENSOR_ERR_OWNER,
                 "a hook has freed the module");
    m = nn_sequential(nn_linear(3, 2), nn_relu());
    nn_register_forward_pre_hook(nn_get_child(m, "0"), frees, m);
    nn_forward(m, tensor_ones(3));
    CHECK_ERROR(TENSOR_ERR_OWNER, "free: a part of module Sequential is in its forward");
    CHECK(nn_free(m) == 0);
}

typedef struct store_t { int packed, unpacked, dropped, bad; } store_t;

static void *pack_half(tensor_t *x, void *user) { // keeps f32 values as f16
    store_t *s = (store_t *)user;
    CHECK(!tensor_grad_enabled());
    if (s->bad == 1) { return NULL; }
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

static tensor_t *keep_gradient(tensor_t *g, void *user) {
    (void)user;
    return g;
}
// What a pass allocates for leaves with hooks goes back at its end.
static void hooked_leaves_leave_nothing(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1);
    uint64_t bytes = 0;
    int k;
    tensor_register_hook(x, keep_gradient, NULL);
    for (k = 0; k < 200; k++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_backward(tensor_sum(tensor_mul(x, x)));
        tensor_scope_end(s);
        if (k == 20) { bytes = tensor_memory_stats().live_bytes + tensor_memory_stats().reserved_bytes; }
    }
    CHECK(tensor_memory_stats().live_bytes + tensor_memory_stats().reserved_bytes == bytes);
}

// A backward that retains the graph keeps the packed form of each saved value, not the value.
static void retained_stays_packed(void) {
    enum { N = 4096 };
    store_t st;
    tensor_saved_hooks_t hooks;
    tensor_t *a = tensor_requires_grad_(tensor_ones(N), 1), *b = tensor_requires_grad_(tensor_ones(N), 1), *y;
    uint64_t before;
    memset(&st, 0, sizeof st);
    hooks.pack = pack_half, hooks.unpack = unpack_half, hooks.drop = drop_half, hooks.user = &st;
    tensor_set_saved_tensors_hooks(&hooks);
    y = tensor_mul(tensor_mul_scalar(a, 2), tensor_mul_scalar(b, 3));
    tensor_set_saved_tensors_hooks(NULL);
    CHECK(st.packed == 2);
    y = tensor_sum(y);
    before = tensor_memory_stats().live_bytes;
    CHECK(tensor_backward_with(y, NULL, TENSOR_RETAIN_GRAPH) == 0 && st.unpacked == 2);
    CHECK(tensor_memory_stats().live_bytes < before + 2 * N * 4 + N * 2);    // the two gradients
    tensor_backward(y);
    CHECK(st.dropped == 2);
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
    {
        tensor_saved_hooks_t half = hooks;
        half.pack = NULL;
        CHECK(tensor_set_saved_tensors_hooks(&half) == NULL);
        CHECK_ERROR(TENSOR_ERR_OWNER, "set_saved_tensors_hooks: argument hooks->pack is NULL");
        half = hooks;
        half.unpack = NULL;
        CHECK(tensor_set_saved_tensors_hooks(&half) == NULL);
        CHECK_ERROR(TENSOR_ERR_OWNER, "set_saved_tensors_hooks: argument hooks->unpack is NULL");
    }
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

// ---- forwards with more inputs ----

typedef struct typed_t { int pre, post, back; double go; } typed_t;

static tensor_t *typed_pre(nn_module_t *m, tensor_t *x, void *user) {
    (void)m;
    ((typed_t *)user)->pre++;
    return tensor_mul_scalar(x, 2);
}

static tensor_t *typed_post(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x;
    ((typed_t *)user)->post++;
    return tensor_add_scalar(y, 1);
}

static tensor_t *typed_back(nn_module_t *m, tensor_t *gi, tensor_t *go, void *user) {
    typed_t *l = (typed_t *)user;
    (void)m;
    l->back++;
    l->go = tensor_item(tensor_sum(go));
    return tensor_mul_scalar(gi, 10);
}

// ((i % m) - m / 2) * by, i counting from 7 first in steps of 7 or from 0 in steps of 1.
static tensor_t *counted(tensor_t *like, int64_t first, int64_t step, int64_t m, double by) {
    tensor_shape_t s = tensor_shape(like);
    int64_t n = tensor_numel(like);
    tensor_t *i = tensor_mul_scalar(tensor_arange((double)first, (double)(first + n), 1, TENSOR_F64),
        (double)step);
    i = tensor_sub_scalar(tensor_remainder_scalar(i, (double)m), (double)(m / 2));
    return tensor_reshape_n(tensor_mul_scalar(i, by), s.dims, s.ndim);
}

static tensor_t *typed_input(int64_t a, int64_t b, int64_t c) {
    return tensor_requires_grad_(counted(tensor_zeros(a, b, c), 0, 1, 5, 0.25), 1);
}

// PyTorch: pre hook 2 x, hook y + 1, backward hook 10 grad_input; loss (y * y).sum(); parameters ((7 i) % 13
// - 6) / 20.
static void typed_forwards_run_hooks(void) {
    static const double want[7][3] = {                // y.sum(), x.grad.sum(), grad_output.sum()
        {7.72206024484168, -32.0627154468918, 15.4441204896834},
        {8.49858779747076, -79.6017222290489, 16.9971755949415},
        {7.77066895165576, -52.5862995532269, 15.5413379033115},
        {11.8011108567072, 0.316146909959342, 23.6022217134144},
        {10.3476721402903, 1.20687878104296, 20.6953442805807},
        {14.4606774598941, 0.0244608408531213, 28.9213549197883},
        {16.075, -23.175, 32.15}};
    tensor_t *memory = tensor_detach(typed_input(2, 1, 4));
    for (int k = 0; k < 7; k++) {
        nn_module_t *m = k == 0   ? nn_lstm(3, 2)
                         : k == 1 ? nn_gru(3, 2)
                         : k == 2 ? nn_rnn(3, 2)
                         : k == 3 ? nn_multihead_attention(4, 2)
                         : k == 4 ? nn_transformer_encoder_layer(4, 2, .feedforward = 8,
                             .dropout = TENSOR_ZERO)
                         : k == 5 ? nn_transformer_decoder_layer(4, 2, .feedforward = 8,
                             .dropout = TENSOR_ZERO)
                                  : nn_bilinear(3, 2, 4, 0);
        tensor_t *x = k < 3 ? typed_input(4, 1, 3) : k == 6 ? tensor_reshape(typed_input(4, 1, 3), 4, 3)
                                                            : typed_input(3, 1, 4);
        tensor_t *h = NULL, *c = NULL, *y = NULL;
        int64_t at = 0;
        typed_t l = {0, 0, 0, 0};
        nn_to(m, TENSOR_F64);
        x = tensor_requires_grad_(tensor_clone(tensor_detach(x)), 1);   // of Bilinear: a leaf of 2 dims
        nn_named_list_t p = nn_named_parameters(m);
        tensor_scope_t s = tensor_scope_begin_no_grad();
        for (int64_t i = 0; i < p.count; i++) {
            tensor_copy_(p.item[i].tensor, counted(p.item[i].tensor, at, 7, 13, 0.05));
            at += tensor_numel(p.item[i].tensor);
        }
        tensor_scope_end(s);
        nn_register_forward_pre_hook(m, typed_pre, &l);
        nn_register_forward_hook(m, typed_post, &l);
        nn_register_full_backward_hook(m, typed_back, &l);
        switch (k) {
        case 0: y = nn_lstm_forward(m, x, &h, &c); break;
        case 1: y = nn_gru_forward(m, x, &h); break;
        case 2: y = nn_rnn_forward(m, x, &h); break;
        case 3: y = nn_multihead_attention_forward(m, x, memory, memory); break;
        case 4: y = nn_transformer_forward(m, x); break;
        case 5: y = nn_transformer_forward(m, x, memory); break;
        default: y = nn_bilinear_forward(m, x, tensor_full_of(TENSOR_F64, 0.5, 4, 2));
        }
        CHECK_NEAR(tensor_item(tensor_sum(y)), want[k][0], 1e-12);
        CHECK(tensor_backward(tensor_sum(tensor_square(y))) == 0);
        CHECK_NEAR(tensor_item(tensor_sum(tensor_grad(x))), want[k][1], 1e-11);
        CHECK_NEAR(l.go, want[k][2], 1e-12);
        CHECK_MSG(l.pre == 1 && l.post == 1 && l.back == 1, "case %d: %d %d %d", k, l.pre, l.post, l.back);
        if (h) { tensor_free(h); }
        if (c) { tensor_free(c); }
        nn_free(m);
    }
    // A hook on a layer, and on the attention inside it, runs when the whole stack does.
    typed_t l = {0, 0, 0, 0};
    nn_module_t *m = nn_transformer_encoder(nn_transformer_encoder_layer(4, 2, .feedforward = 8), 2, NULL);
    nn_register_forward_pre_hook(nn_get_child(m, "layers.1"), typed_pre, &l);
    nn_register_forward_hook(nn_get_child(m, "layers.0.self_attn"), typed_post, &l);
    CHECK(tensor_ndim(nn_forward(m, tensor_zeros(3, 1, 4))) == 3 && l.pre == 1 && l.post == 1);
    CHECK(tensor_ndim(nn_transformer_forward(m, tensor_zeros(3, 1, 4), .is_causal = 1)) == 3);
    CHECK(l.pre == 2 && l.post == 2);
    nn_free(m);
}

static tensor_t *seen_back(nn_module_t *m, tensor_t *dx, tensor_t *dy, void *user) {
    (void)m, (void)dx, (void)dy;
    ++*(int *)user;
    return NULL;
}
// The second backward comes to the input of tanh through its saved result: no hook is called for it.
static void hooked_saved_result(void) {
    nn_module_t *m = nn_tanh();
    int calls = 0;
    nn_register_full_backward_hook(m, seen_back, &calls);
    tensor_t *x = tensor_requires_grad_(tensor_linspace(-1, 1, 5), 1), *g;
    tensor_t *y = nn_forward(m, x), *sum = tensor_sum(y);
    tensor_autograd_grad(&sum, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
    CHECK(calls == 1);
    tensor_backward(tensor_sum(tensor_square(g)));
    CHECK(tensor_ok() && calls == 1);
    tensor_t *want = tensor_mul_scalar(tensor_mul(tensor_detach(y), tensor_square(tensor_detach(g))), -4);
    CHECK(tensor_allclose(tensor_grad(x), want, 1e-5, 1e-6));
    nn_free(m);
}

// The result of a module with a backward hook is as one without: a view of x stays one, a new one its own.
static void hooked_in_place(void) {
    nn_module_t *shape = nn_unflatten(1, 2, 1), *act = nn_softplus(1, 20);
    tensor_t *x = tensor_requires_grad_(tensor_ones(1, 2), 1), *h = tensor_mul_scalar(x, 1), *y;
    int calls = 0;
    nn_register_full_backward_hook(shape, seen_back, &calls);
    nn_register_full_backward_hook(act, seen_back, &calls);
    tensor_mul_scalar_(nn_forward(shape, x), 2);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "a leaf that requires grad");
    tensor_mul_scalar_(nn_forward(shape, h), 2);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "cannot be recorded");
    CHECK(tensor_item(tensor_sum(x)) == 2 && tensor_item(tensor_sum(h)) == 2);
    y = nn_forward(act, h);
    tensor_mul_scalar_(y, 2);
    tensor_backward(tensor_sum(y));
    CHECK_NEAR(tensor_item(tensor_sum(tensor_grad(x))), 4 * 0.73105857863000490, 1e-6);
    CHECK(calls == 1);
    nn_free(shape);
    nn_free(act);
}

int main(void) {
    RUN(typed_forwards_run_hooks);
    RUN(hooks_of_values);
    RUN(hooks_of_leaves);
    RUN(hooks_without_end);
    RUN(hooks_unused_edge);
    RUN(hooks_as_optimizer);
    RUN(hooks_in_place);
    RUN(hook_errors);
    RUN(hook_of_one_output);
    RUN(hooked_leaves_leave_nothing);
    RUN(retained_stays_packed);
    RUN(saved_hooks);
    RUN(hooked_graphs_end);
    RUN(module_hooks);
    RUN(hooked_in_place);
    RUN(hooked_saved_result);
    RUN(hooks_that_free);
    return test_report();
}

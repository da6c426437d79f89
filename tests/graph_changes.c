// graph_changes.c - what a program changes between the replays of a captured step, or between its time
// slices: gradients, leaves, parameters and modules; the step does what it would do, or is refused
#include "test.h"

static tensor_t *view(tensor_t *flat, int64_t first, int64_t n) {
    return tensor_keep(tensor_slice(flat, 0, first, first + n, 1));
}

static tensor_t *leaf(tensor_t *x) { return tensor_keep(tensor_requires_grad_(x, 1)); }

static double sum(tensor_t *x) { return tensor_item(tensor_sum(x)); }

// Runs the rest of a step in time slices. -> 1, or minus a code
static int rest(tensor_graph_t *g) {
    int r;
    do { r = tensor_graph_resume(g, 0); } while (r == 0);
    return r;
}

// ---- gradients

// A gradient is a view of a flat buffer, and then another view of the same.
static void views_of_gradients(void) {
    for (int kind = 0; kind < 2; kind++) {
        tensor_t *flat = tensor_keep(tensor_zeros(8)), *p = leaf(tensor_ones(2, 2));
        tensor_t *a = tensor_keep(tensor_reshape(tensor_slice(flat, 0, 0, 4, 1), 2, 2)), *b;
        tensor_scope_t scope = tensor_scope_begin();
        b = kind ? tensor_transpose(a, 0, 1) : tensor_reshape(tensor_slice(flat, 0, 4, 8, 1), 2, 2);
        CHECK(tensor_set_grad(p, a) == 0);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_backward(tensor_sum(tensor_mul_scalar(p, 2)));
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0 && sum(a) == 16);
        CHECK(tensor_set_grad(p, b) == 0 && tensor_graph_info(g).lost == 1);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER,
                    "graph_replay: the gradient of [2,2], which the step adds to, is gone or has other "
                    "memory than at the capture");
        CHECK(sum(a) == 16 && tensor_set_grad(p, a) == 0 && tensor_graph_info(g).lost == 0);
        CHECK(tensor_graph_replay(g) == 0 && sum(a) == 24 && tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
        tensor_free(p);
        tensor_free(a);
        tensor_free(flat);
    }
}

enum { STEPS, CLIPS, CLIPS_VALUES, READERS };

static void reads(int kind, nn_optimizer_t *o) {
    if (kind == STEPS) { nn_step(o); }
    if (kind == CLIPS) { nn_clip_grad_norm(o, 0.5); }
    if (kind == CLIPS_VALUES) { nn_clip_grad_value(o, 0.25); }
}

// A graph that does not make the gradients it uses: they are those of the capture, or it is refused.
static void gradients_of_others(void) {
    for (int kind = 0; kind < READERS; kind++) {
        tensor_t *p[2] = {leaf(tensor_ones(4)), leaf(tensor_ones(4))}, *kept;
        nn_optimizer_t *o = nn_sgd(NULL, .list = p, .count = 2, .lr = 0.5);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *first = tensor_ones(4), *other = tensor_ones(4);
        tensor_set_grad(p[0], first);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        reads(kind, o);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(g != NULL && tensor_graph_replay(g) == 0);
        if (kind == STEPS) { CHECK(sum(p[0]) == 0 && sum(p[1]) == 4); }
        // Another gradient, whether the first is kept or not; none; one where there was none.
        kept = tensor_keep(tensor_grad(p[0]));
        tensor_set_grad(p[0], other);
        CHECK_MSG(tensor_graph_replay(g) == TENSOR_ERR_OWNER, "kind %d", kind);
        CHECK_ERROR(TENSOR_ERR_OWNER,
                    "the gradient of [4], which the step reads, is gone or has other memory than at the "
                    "capture (nn_zero_grad, tensor_set_grad); capture the step again at graph_changes.c:");
        CHECK(nn_zero_grad(o) == 0 && tensor_graph_replay(g) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, "which the step reads, is gone");
        tensor_set_grad(p[0], kept);
        CHECK(tensor_graph_replay(g) == 0);
        tensor_set_grad(p[1], other);
        CHECK_MSG(tensor_graph_replay(g) == TENSOR_ERR_OWNER, "kind %d", kind);
        CHECK_ERROR(TENSOR_ERR_OWNER,
                    "graph_replay: [4] has a gradient, and had none where the step reads it at the capture; "
                    "capture the step again at graph_changes.c:");
        tensor_set_grad(p[1], NULL);
        CHECK(tensor_graph_replay(g) == 0);
        // The gradient alone is asked for: what is frozen has a step all the same.
        tensor_requires_grad_(p[0], 0);
        CHECK(tensor_graph_replay(g) == 0);
        tensor_requires_grad_(p[0], 1);
        CHECK(tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
        tensor_free(kept);
        tensor_scope_end(scope);
        nn_optimizer_free(o);
        tensor_free(p[0]);
        tensor_free(p[1]);
    }
}

// A captured nn_zero_grad finds no gradient of the other head; a replay that finds one drops it, as the step
// would.
static void gradients_left(void) {
    double end[2];
    for (int way = 0; way < 2; way++) {
        tensor_t *p[3] = {leaf(tensor_ones(4)), leaf(tensor_ones(4)), leaf(tensor_ones(4))};
        nn_optimizer_t *o = nn_adam(NULL, .list = p, .count = 3, .lr = 0.5);
        tensor_graph_t *g = NULL;
        for (int i = 0; i < 8; i++) {
            tensor_scope_t scope = tensor_scope_begin();
            int head = 1 + i % 2;
            if (i == 2) { nn_zero_grad(o); }
            if (way && i == 2) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            if (way && i > 2 && head == 1) {
                CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
            } else {
                nn_zero_grad(o);
                tensor_backward(tensor_sum(tensor_square(tensor_mul(p[0], p[head]))));
                CHECK(nn_step(o) == 0);
            }
            if (way && i == 2) { CHECK((g = tensor_capture_end()) != NULL); }
            CHECK_MSG(tensor_grad(p[head]) != NULL && tensor_grad(p[3 - head]) == NULL, "way %d, %d", way, i);
            tensor_scope_end(scope);
        }
        tensor_scope_t scope = tensor_scope_begin();
        end[way] = sum(p[0]) + 10 * sum(p[1]) + 100 * sum(p[2]);
        tensor_graph_free(g);
        nn_optimizer_free(o);
        for (int k = 0; k < 3; k++) { tensor_free(p[k]); }
        tensor_scope_end(scope);
    }
    CHECK(end[0] == end[1]);
}

// ---- leaves

static const char frozen_text[] =
    "was frozen at the capture and requires a gradient now, which the step does not make (linear uses it at "
    "graph_changes.c:";

// Whether a graph is refused, because a leaf that the step reads was unfrozen.
static void unfrozen(tensor_graph_t *g, int refused, int line) {
    CHECK_MSG((tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED) == refused, "line %d: %s", line,
              tensor_error_text());
    if (refused) { CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, frozen_text); }
    tensor_clear_error();
}

// Two leaves over one memory: of which of them the step makes no gradient does not depend on which was
// switched first, or is gone.
static void leaves_of_a_memory(void) {
    tensor_t *flat = tensor_keep(tensor_randn(20)), *p[2], *x = tensor_keep(tensor_randn(8, 4));
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *at[2] = {tensor_slice(flat, 0, 0, 16, 1), tensor_slice(flat, 0, 16, 20, 1)};
    p[0] = leaf(tensor_detach(tensor_reshape(at[0], 4, 4)));
    p[1] = tensor_keep(tensor_detach(tensor_reshape(at[1], 1, 4)));
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_set_grad(p[0], NULL);
    tensor_scope_t inner = tensor_scope_begin();
    tensor_backward(tensor_sum(tensor_linear(tensor_tanh(tensor_linear(x, p[0], NULL)), p[1], NULL)));
    tensor_scope_end(inner);
    tensor_graph_t *g = tensor_capture_end();
    tensor_requires_grad_(p[0], 0);
    tensor_requires_grad_(p[0], 1);
    unfrozen(g, 0, __LINE__);
    tensor_requires_grad_(p[1], 1);
    unfrozen(g, 1, __LINE__);
    tensor_requires_grad_(p[1], 0);
    unfrozen(g, 0, __LINE__);

    tensor_t *other = tensor_keep(tensor_detach(p[1]));     // the step does not read that one
    tensor_requires_grad_(other, 1);
    unfrozen(g, 0, __LINE__);
    tensor_requires_grad_(p[1], 1);
    tensor_requires_grad_(other, 0);
    unfrozen(g, 1, __LINE__);
    tensor_free(other);
    unfrozen(g, 1, __LINE__);
    tensor_graph_free(g);
    for (int k = 0; k < 2; k++) { tensor_free(p[k]); }
    tensor_scope_end(scope);
    tensor_free(flat);
    tensor_free(x);
}

// A leaf that required a gradient at the capture, of which the step makes none, may be frozen and unfrozen.
static void read_alone(void) {
    tensor_t *w = leaf(tensor_randn(4, 4)), *v = leaf(tensor_randn(1, 4));
    tensor_t *x = tensor_keep(tensor_randn(8, 4));
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_linear(x, w, NULL);
    tensor_backward(tensor_sum(tensor_linear(tensor_detach(y), v, NULL)));
    tensor_graph_t *g = tensor_capture_end();
    tensor_requires_grad_(w, 0);
    unfrozen(g, 0, __LINE__);
    tensor_requires_grad_(w, 1);
    unfrozen(g, 0, __LINE__);
    tensor_graph_free(g);
    tensor_scope_end(scope);
    tensor_free(w);
    tensor_free(v);
    tensor_free(x);
}

static tensor_t *own_linear(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(c, 0, in[0]);
    return tensor_linear(in[0], in[1], NULL);
}

static int own_gradient(tensor_function_ctx_t *c, tensor_t *g, tensor_t **gx, int n) {
    (void)n;
    if (tensor_needs_input_grad(c, 1)) { gx[1] = tensor_matmul(tensor_mT(g), tensor_saved(c, 0)); }
    return 0;
}

// An input of a function of the program, whose own calls are made without a tape.
static void input_of_a_function(void) {
    static const tensor_function_t own = {"own", own_linear, own_gradient, NULL};
    tensor_t *w = tensor_keep(tensor_randn(4, 4)), *v = leaf(tensor_randn(1, 4));
    tensor_t *x = tensor_keep(tensor_randn(8, 4));
    for (int taped = 0; taped < 2; taped++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *in[2] = {x, w};
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t inner = taped ? tensor_scope_begin() : tensor_scope_begin_no_grad();
        tensor_t *h = tensor_scope_return(inner, tensor_apply(&own, NULL, in, 2));
        tensor_backward(tensor_sum(tensor_linear(h, v, NULL)));
        tensor_graph_t *g = tensor_capture_end();
        unfrozen(g, 0, __LINE__);
        tensor_requires_grad_(w, 1);
        unfrozen(g, taped, __LINE__);
        tensor_requires_grad_(w, 0);
        unfrozen(g, 0, __LINE__);
        tensor_graph_free(g);
        tensor_scope_end(scope);
    }
    tensor_free(w);
    tensor_free(v);
    tensor_free(x);
}

// ---- calls that are refused between time slices change nothing

typedef struct pair_t {
    nn_module_t *a, *b, *net;
    nn_optimizer_t *all, *second;
    tensor_t *x, *y;
    tensor_graph_t *graph;          // trains b alone
} pair_t;

static void pair_loss(pair_t *t) { tensor_backward(tensor_mse_loss(nn_forward(t->net, t->x), t->y)); }

static void pair_freeze(pair_t *t, int on) {
    tensor_requires_grad_(nn_get(t->net, "0.weight"), !on);
    tensor_requires_grad_(nn_get(t->net, "0.bias"), !on);
}

static void pair_begin(pair_t *t, tensor_dtype_t dtype) {
    tensor_manual_seed(3);
    t->a = nn_linear(4, 4);
    t->b = nn_linear(4, 1);
    t->net = nn_sequential(t->a, nn_tanh(), t->b);
    nn_to(t->net, dtype);
    t->all = dtype == TENSOR_F32 ? nn_adam(t->net, .lr = 0.1) : nn_adafactor(t->net, .lr = 0.1);
    t->second = nn_sgd(t->b, .lr = 0.1);
    t->x = tensor_keep(tensor_to(tensor_randn(8, 4), dtype));
    t->y = tensor_keep(tensor_to(tensor_randn(8, 1), dtype));
    // The second layer has had a step less, so its parameters are a call of their own.
    pair_loss(t);
    nn_module_zero_grad(t->b);
    CHECK(nn_step(t->all) == 0);
    nn_zero_grad(t->all);
    pair_loss(t);
    CHECK(nn_step(t->all) == 0);
    nn_zero_grad(t->all);
    pair_freeze(t, 1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    pair_loss(t);
    nn_step(t->second);
    nn_zero_grad(t->second);
    CHECK((t->graph = tensor_capture_end()) != NULL);
    pair_freeze(t, 0);
    pair_loss(t);
    pair_freeze(t, 1);
}

static void pair_end(pair_t *t) {
    tensor_graph_free(t->graph);
    nn_optimizer_free(t->all);
    nn_optimizer_free(t->second);
    nn_free(t->net);
    tensor_free(t->x);
    tensor_free(t->y);
}

// A step of several calls, some of whose parameters are under way, is made for none of them and does not
// count; nor is a half of a module copied.
static void nothing_of_it(void) {
    for (int half = 0; half < 2; half++) {
        pair_t t;
        tensor_scope_t scope = tensor_scope_begin();
        pair_begin(&t, half ? TENSOR_BF16 : TENSOR_F32);
        nn_module_t *ones = nn_clone(t.net), *like = nn_clone(t.net);
        tensor_scope_t inner = tensor_scope_begin_no_grad();
        tensor_fill_(nn_get(ones, "0.weight"), 1);
        tensor_scope_end(inner);
        size_t size = nn_snapshot_size(t.net, t.all);
        char *before = (char *)calloc(1, size), *after = (char *)calloc(1, size);
        CHECK(nn_snapshot(t.net, t.all, before, size) == 0);
        CHECK(tensor_graph_resume(t.graph, 0) == 0);
        tensor_t *grad = tensor_clone(tensor_grad(nn_get(t.net, "0.weight")));

        CHECK(nn_step(t.all) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "step: a step in time slices changes the memory of x [");
        CHECK(nn_copy_state(t.net, ones) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "copy_state: a step in time slices changes the memory of x [");
        CHECK(nn_ema_update(t.net, ones, 10, 0.5) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "a step in time slices changes the memory of x [");
        CHECK(rest(t.graph) == 1);
        CHECK(tensor_equal(grad, tensor_grad(nn_get(t.net, "0.weight"))));

        // The same without those calls.
        CHECK(nn_snapshot(t.net, t.all, after, size) == 0 && nn_restore(t.net, t.all, before, size) == 0);
        CHECK(tensor_graph_replay(t.graph) == 0 && nn_snapshot(t.net, t.all, before, size) == 0);
        CHECK(memcmp(before, after, size) == 0);
        CHECK(nn_copy_state(like, t.net) == 0 && nn_copy_state(t.net, like) == 0);
        free(before);
        free(after);
        nn_free(ones);
        nn_free(like);
        pair_end(&t);
        tensor_scope_end(scope);
    }
}

// The gradients of a clipping are in several tensors, of which the last is under way.
static void nothing_of_a_clip(void) {
    for (int half = 0; half < 2; half++) {
        tensor_dtype_t dtype = half ? TENSOR_BF16 : TENSOR_F32;
        tensor_t *p[2];
        for (int k = 0; k < 2; k++) {
            p[k] = leaf(tensor_to(tensor_ones(4), dtype));
            tensor_set_grad(p[k], tensor_to(tensor_full(8, 4), dtype));
        }
        nn_optimizer_t *o = nn_sgd(NULL, .list = p, .count = 2, .lr = 0.5);
        tensor_scope_t scope = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_backward(tensor_sum(tensor_tanh(p[1])));
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_resume(g, 0) == 0);
        double first = sum(tensor_grad(p[0]));
        CHECK(tensor_is_poison(nn_clip_grad_norm(o, 0.5)));
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "a step in time slices changes the memory of x [4]");
        CHECK(nn_clip_grad_value(o, 0.5) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                    "clip_grad_value: a step in time slices changes the memory of x [4]");
        CHECK(sum(tensor_grad(p[0])) == first && rest(g) == 1 && nn_clip_grad_value(o, 0.5) == 0);
        tensor_graph_free(g);
        tensor_scope_end(scope);
        nn_optimizer_free(o);
        tensor_free(p[0]);
        tensor_free(p[1]);
    }
}

// An optimizer of more than the module: a restore would bring back the states of what it does not hold.
static void snapshot_of_a_part(void) {
    pair_t t;
    char block[8];
    tensor_scope_t scope = tensor_scope_begin();
    pair_begin(&t, TENSOR_F32);
    CHECK(nn_snapshot_size(t.a, t.all) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER,
                "snapshot_size: parameter 2 of adam, [1,4], is not the module's: give one that has them all "
                "at graph_changes.c:");
    CHECK(nn_snapshot(t.a, t.all, block, sizeof block) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "snapshot: parameter 2 of adam");
    CHECK(nn_restore(t.a, t.all, block, sizeof block) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "restore: parameter 2 of adam");
    CHECK(nn_snapshot_size(t.a, t.second) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "none of the module's parameters");
    CHECK(nn_snapshot_size(t.net, t.second) > 0 && nn_snapshot_size(NULL, t.all) > 0);
    CHECK_OK();
    pair_end(&t);
    tensor_scope_end(scope);
}

// ---- scalers

// Two heads with one optimizer and one scaler, in turn: what the steps of one owe is settled in a time slice
// of the other's.
static void heads_in_turn(void) {
    char *block[3];
    size_t size = 0;
    for (int way = 0; way < 3; way++) {
        tensor_manual_seed(3);
        nn_module_t *head[2], *trunk = nn_linear(4, 4);
        head[0] = nn_linear(4, 1);
        head[1] = nn_linear(4, 1);
        nn_module_t *net = nn_sequential(trunk, head[0], head[1]);
        nn_optimizer_t *o = nn_adam(net, .lr = 0.01);
        tensor_t *scaler = nn_grad_scaler(8, 3);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_randn(8, 4), *y = tensor_randn(8, 1);
        tensor_graph_t *g = NULL;
        for (int i = 0; i < 11; i++) {
            int k = i < 3 ? i % 2 : (i + 1) % 2, captured = way && i == 3;
            if (way && i > 3 && !k) {
                if (way == 1) { CHECK(tensor_graph_replay(g) == 0); }
                if (way == 2) { CHECK_MSG(rest(g) == 1, "%s", tensor_error_text()); }
                continue;
            }
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            tensor_scope_t inner = tensor_scope_begin();
            nn_zero_grad(o);
            tensor_t *loss = tensor_mse_loss(nn_forward(head[k], tensor_tanh(nn_forward(trunk, x))), y);
            tensor_backward(nn_scaler_scale(scaler, loss));
            if (i == 4) { tensor_set_grad(nn_get(trunk, "bias"), tensor_full(INFINITY, 4)); }   // is skipped
            nn_scaler_step(scaler, o);
            nn_scaler_update(scaler);
            nn_zero_grad(o);
            tensor_scope_end(inner);
            if (captured) { CHECK((g = tensor_capture_end()) != NULL); }
        }
        size = nn_snapshot_size(net, o);
        block[way] = (char *)calloc(1, size);
        CHECK(nn_snapshot(net, o, block[way], size) == 0);
        tensor_graph_free(g);
        tensor_scope_end(scope);
        tensor_free(scaler);
        nn_optimizer_free(o);
        nn_free(net);
    }
    CHECK(memcmp(block[0], block[1], size) == 0 && memcmp(block[0], block[2], size) == 0);
    for (int way = 0; way < 3; way++) { free(block[way]); }
}

// nn_zero_grad between any two time slices of a step with a scaler, which has gradients of its own.
static void dropped_between(void) {
    nn_module_t *net = nn_linear(4, 1);
    nn_optimizer_t *o = nn_sgd(net, .lr = 0.1);
    tensor_t *scaler = nn_grad_scaler(2, 100);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_randn(8, 4), *y = tensor_randn(8, 1);
    tensor_graph_t *g = NULL;
    for (int i = 0; i < 2; i++) {
        if (i) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        nn_zero_grad(o);
        tensor_backward(nn_scaler_scale(scaler, tensor_mse_loss(nn_forward(net, x), y)));
        nn_scaler_unscale(scaler, o);
        nn_clip_grad_norm(o, 1);
        nn_scaler_step(scaler, o);
        nn_scaler_update(scaler);
    }
    CHECK((g = tensor_capture_end()) != NULL);
    size_t size = nn_snapshot_size(net, o);
    char *before = (char *)calloc(1, size), *want = (char *)calloc(1, size), *got = (char *)calloc(1, size);
    CHECK(nn_snapshot(net, o, before, size) == 0);
    CHECK(tensor_graph_replay(g) == 0 && nn_snapshot(net, o, want, size) == 0);
    for (int at = 1, done = 0; !done; at++) {
        CHECK(nn_restore(net, o, before, size) == 0);
        for (int k = 0; k < at && !done; k++) { done = tensor_graph_resume(g, 0); }
        if (done) { break; }
        CHECK(nn_zero_grad(o) == 0);
        CHECK_MSG(rest(g) == 1, "after %d time slices: %s", at, tensor_error_text());
        tensor_clear_error();
        CHECK(nn_snapshot(net, o, got, size) == 0 && memcmp(want, got, size) == 0);
    }
    // The program's own mark is dropped as ever.
    CHECK(nn_scaler_unscale(scaler, o) == 0 && nn_zero_grad(o) == 0 && tensor_graph_replay(g) == 0);
    free(before);
    free(want);
    free(got);
    tensor_graph_free(g);
    tensor_scope_end(scope);
    nn_optimizer_free(o);
    nn_free(net);
    tensor_free(scaler);
}

// ---- memory

// What the step reads goes between two time slices: that ends it, and the program has its tensors again.
static void moved_between(void) {
    pair_t t;
    tensor_scope_t scope = tensor_scope_begin();
    pair_begin(&t, TENSOR_F32);
    CHECK(tensor_graph_resume(t.graph, 0) == 0 && tensor_graph_info(t.graph).begun == 1);
    CHECK(nn_to(t.a, TENSOR_F64) == 0 && nn_to(t.a, TENSOR_F32) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(tensor_graph_resume(t.graph, 0) == -TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, "was freed since the capture, or moved by nn_to");
        CHECK(tensor_graph_info(t.graph).begun == 0 && tensor_graph_info(t.graph).lost == 1);
    }
    pair_loss(&t);
    CHECK(nn_step(t.second) == 0);
    pair_end(&t);
    tensor_scope_end(scope);
}

// Parameters of one flat memory, of which a step in time slices changes one: it is said to be its memory.
static void parts_of_memory(void) {
    tensor_t *flat = tensor_keep(tensor_randn(16)), *p[2];
    nn_optimizer_t *o[2];
    tensor_scope_t scope = tensor_scope_begin();
    tensor_graph_t *g = NULL;
    for (int k = 0; k < 2; k++) {
        tensor_t *part = view(flat, 8 * k, 8);
        p[k] = leaf(tensor_detach(part));
        tensor_free(part);
        o[k] = nn_sgd(NULL, .list = &p[k], .count = 1, .lr = 0.1);
        tensor_backward(tensor_sum(tensor_square(p[k])));
        CHECK(nn_step(o[k]) == 0);
    }
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    nn_zero_grad(o[0]);
    tensor_backward(tensor_sum(tensor_square(p[0])));
    nn_step(o[0]);
    CHECK((g = tensor_capture_end()) != NULL && tensor_graph_resume(g, 0) == 0);
    CHECK(nn_step(o[1]) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "step: a step in time slices changes the memory of x [8]");
    CHECK(rest(g) == 1 && nn_step(o[1]) == 0);
    tensor_graph_free(g);
    for (int k = 0; k < 2; k++) {
        nn_optimizer_free(o[k]);
        tensor_free(p[k]);
    }
    tensor_free(flat);
    tensor_scope_end(scope);
}

int main(void) {
    RUN(views_of_gradients);
    RUN(gradients_of_others);
    RUN(gradients_left);
    RUN(leaves_of_a_memory);
    RUN(read_alone);
    RUN(input_of_a_function);
    RUN(nothing_of_it);
    RUN(nothing_of_a_clip);
    RUN(snapshot_of_a_part);
    RUN(heads_in_turn);
    RUN(dropped_between);
    RUN(moved_between);
    RUN(parts_of_memory);
    return test_report();
}

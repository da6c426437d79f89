// functions.c - functions of the user: several results, gradients of gradients, wrong ones
#define HERE "functions.c:"
#include "graphs.h"

typedef struct ops_t { int mode; } ops_t;

static tensor_t *only_first(tensor_t *const *in, int n, void *user) {
    tensor_t *out[3];
    if (tensor_apply_n((const tensor_function_t *)user, NULL, in, n, out, 3)) { return out[0]; }
    return tensor_add(tensor_mul(out[0], out[1]), out[2]);
}

static tensor_t *twice_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    ops_t *o = (ops_t *)tensor_function_user(ctx);
    (void)n;
    if (tensor_mark_dirty(ctx, 0)) { return NULL; }
    tensor_mul_scalar_(in[0], 2);
    if (o && o->mode == 1) { return tensor_clone(in[0]); } // not returned: an error
    if (o && o->mode == 2) { tensor_save_for_backward(ctx, 0, in[0]); }
    return in[0];
}

static int twice_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    ops_t *o = (ops_t *)tensor_function_user(ctx);
    (void)n;
    if (o && o->mode == 2) { EXPECT(tensor_saved(ctx, 0), 2, 4); }
    grads[0] = tensor_mul_scalar(g, 2);
    return 0;
}

static tensor_t *wrong_calls_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    FAILS(tensor_set_output(ctx, 4, in[0]), TENSOR_ERR_INDEX, "set_output: 4 is outside 0..0", HERE);
    FAILS(tensor_mark_dirty(ctx, 1), TENSOR_ERR_INDEX, "mark_dirty: 1 is outside 0..0", HERE);
    FAILS(tensor_mark_non_differentiable(ctx, -1), TENSOR_ERR_INDEX, "mark_non_differentiable: -1", HERE);
    POISONS(tensor_grad_output(ctx, 0), TENSOR_ERR_INDEX, "not backward", HERE);
    FAILS(tensor_set_output(NULL, 0, in[0]), TENSOR_ERR_INDEX, "set_output: ctx is NULL, must be that", HERE);
    FAILS(tensor_save_for_backward(NULL, 0, in[0]), TENSOR_ERR_INDEX, "save_for_backward: ctx is NULL", HERE);
    POISONS(tensor_saved(NULL, 0), TENSOR_ERR_INDEX, "saved: ctx is NULL, must be that of backward", HERE);
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
          "graphs.h:");
    CHECK(tensor_is_poison(out[0]) && tensor_is_poison(out[1]));
    FAILS(tensor_apply_n(&many, NULL, in, 2, out, 5), TENSOR_ERR_INDEX, "5 results, 1..4", HERE);
    FAILS(tensor_apply_n(NULL, NULL, in, 2, out, 2), TENSOR_ERR_OWNER, "apply: argument fn is NULL", HERE);
    FAILS(tensor_apply_n(&many, NULL, NULL, 2, out, 2), TENSOR_ERR_OWNER, "apply: argument inputs is NULL",
          HERE);
    FAILS(tensor_apply_n(&many, NULL, in, 2, NULL, 2), TENSOR_ERR_OWNER, "apply: argument outputs is NULL",
          HERE);
    tensor_function_t half = many;
    half.backward = NULL;
    FAILS(tensor_apply_n(&half, NULL, in, 2, out, 2), TENSOR_ERR_OWNER,
          "apply: argument fn->backward is NULL", HERE);
    half = many;
    half.name = NULL;
    FAILS(tensor_apply_n(&half, NULL, in, 2, out, 2), TENSOR_ERR_OWNER, "apply: argument fn->name is NULL",
          HERE);
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

static void custom_twice(void) {
    static const tensor_function_t many = {"many", many_forward, many_backward, NULL};
    tensor_t *in[2];
    in[0] = LEAF64(0.2, -0.3);
    in[1] = LEAF64(0.5, 0.7);
    CHECK(tensor_gradcheck(two_of_many, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(two_of_many, (void *)(intptr_t)&many, in, 2, 0, 0, 0) == 0);
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

// A result in the memory of an input: a change in place would change the input behind backward's back.
static tensor_t *same_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return in[0];
}
static tensor_t *part_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return tensor_select(in[0], 0, 0);
}
static tensor_t *fresh_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return tensor_select(tensor_clone(in[0]), 0, 0);
}
static int part_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)n;
    grads[0] = tensor_ndim(g) ? g : tensor_mul_scalar(tensor_ones_of(TENSOR_F64, 2), tensor_item(g));
    return 0;
}
static void result_in_its_input(void) {
    static const tensor_function_t same = {"same", same_forward, part_backward, NULL},
                                   part = {"part", part_forward, part_backward, NULL},
                                   fresh = {"fresh", fresh_forward, part_backward, NULL};
    tensor_t *x = LEAF64(2, 3), *h = tensor_mul_scalar(x, 1), *y;
    POISONS(tensor_mul_scalar_(tensor_apply(&same, NULL, &x, 1), 2), TENSOR_ERR_AUTOGRAD, "a leaf", HERE);
    POISONS(tensor_mul_scalar_(tensor_apply(&part, NULL, &h, 1), 2), TENSOR_ERR_AUTOGRAD,
            "by a custom function", HERE);
    y = tensor_apply(&same, NULL, &h, 1);
    POISONS(tensor_mul_scalar_(tensor_select(y, 0, 0), 2), TENSOR_ERR_AUTOGRAD, "by a custom function", HERE);
    EXPECT(x, 2, 3);
    EXPECT(h, 2, 3);
    tensor_backward_with(tensor_sum(tensor_add(y, h)), NULL, TENSOR_RETAIN_GRAPH);
    EXPECT(tensor_grad(x), 2, 2);

    // h changes: y is what h is now
    tensor_set_grad(x, NULL);
    tensor_mul_scalar_(h, 3);
    EXPECT(y, 6, 9);
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 3, 3);

    // in memory of its own
    tensor_set_grad(x, NULL);
    y = tensor_apply(&fresh, NULL, &x, 1);
    tensor_mul_scalar_(y, 5);
    tensor_backward(y);
    EXPECT(tensor_grad(x), 5, 5);
}

// Results in one memory: a tensor that is given twice is one tensor, a view is one of the result before it.
enum { GIVES_TWICE, GIVES_VIEW, GIVES_INPUT, GIVES_CHANGED, GIVES_EMPTY };
static tensor_t *shared_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    int what = *(int *)tensor_function_user(ctx);
    tensor_t *y = what == GIVES_INPUT || what == GIVES_CHANGED ? in[0] : tensor_mul_scalar(in[0], 2);
    (void)n;
    if (what == GIVES_CHANGED) {
        tensor_mark_dirty(ctx, 0);
        tensor_mul_scalar_(y, 2);
    }
    if (what == GIVES_TWICE) { tensor_save_for_backward(ctx, 0, y); }
    if (what == GIVES_VIEW) {
        tensor_set_output(ctx, 1, tensor_reshape(y, -1));
    } else {
        tensor_set_output(ctx, 1, what == GIVES_EMPTY ? tensor_ones(0) : y);
    }
    return y;
}
static int shared_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)n;
    if (*(int *)tensor_function_user(ctx) == GIVES_TWICE) {
        tensor_t *saved = tensor_saved(ctx, 0);
        if (tensor_is_poison(saved)) { return tensor_error_code(); }
        EXPECT(saved, 4, 6);
    }
    grads[0] = tensor_add(tensor_mul_scalar(g, 2), tensor_mul_scalar(tensor_grad_output(ctx, 1), 20));
    return 0;
}
// The gradient of sum(a) + 3 sum(b)
static tensor_t *shared_gradient(tensor_t *x, tensor_t **out) {
    tensor_set_grad(x, NULL);
    tensor_backward(tensor_add(tensor_sum(out[0]), tensor_mul_scalar(tensor_sum(out[1]), 3)));
    return tensor_grad(x);
}
static void results_in_one_memory(void) {
    static const tensor_function_t shared = {"shared", shared_forward, shared_backward, NULL};
    tensor_t *x = LEAF64(2, 3), *h, *out[2], *e = tensor_requires_grad_(tensor_zeros_of(TENSOR_F64, 0), 1);
    int what = GIVES_TWICE;
    CHECK(tensor_apply_n(&shared, &what, &x, 1, out, 2) == 0 && out[0] == out[1]);
    EXPECT(shared_gradient(x, out), 80, 80);
    CHECK(tensor_apply_n(&shared, &what, &x, 1, out, 2) == 0);
    tensor_mul_scalar_(out[0], 5);                          // and out[1] with it
    EXPECT(out[1], 20, 30);
    FAILS(tensor_backward(tensor_sum(out[1])), TENSOR_ERR_AUTOGRAD, "was changed in place by mul", HERE);

    what = GIVES_CHANGED;
    h = tensor_mul_scalar(x, 1);
    CHECK(tensor_apply_n(&shared, &what, &h, 1, out, 2) == 0 && out[0] == h && out[1] == h);
    EXPECT(shared_gradient(x, out), 80, 80);

    what = GIVES_INPUT;
    h = tensor_mul_scalar(x, 1);
    CHECK(tensor_apply_n(&shared, &what, &h, 1, out, 2) == 0 && out[0] != out[1] && out[0] != h);
    EXPECT(shared_gradient(x, out), 62, 62);

    what = GIVES_VIEW;
    CHECK(tensor_apply_n(&shared, &what, &x, 1, out, 2) == 0);
    POISONS(tensor_mul_scalar_(out[1], 2), TENSOR_ERR_AUTOGRAD, "by a custom function", HERE);
    EXPECT(shared_gradient(x, out), 62, 62);
    CHECK(tensor_apply_n(&shared, &what, &x, 1, out, 2) == 0);
    tensor_mul_scalar_(out[0], 5);                          // the view is what the changed result is
    EXPECT(out[1], 20, 30);
    EXPECT(shared_gradient(x, out), 2 * 5 * (1 + 3), 2 * 5 * (1 + 3));

    what = GIVES_EMPTY;                                     // no memory is not one memory
    CHECK(tensor_apply_n(&shared, &what, &e, 1, out, 2) == 0);
    CHECK(!tensor_is_poison(tensor_mul_scalar_(out[0], 2)));
    CHECK(!tensor_is_poison(tensor_mul_scalar_(out[1], 2)));
    CHECK_OK();
}

// A captured tensor as the result: it is the result itself, as in PyTorch, whose numbers these are (torch
// 2.15: c is captured, y = F.apply(x) returns it, backward gives 10 times its gradient).
static tensor_t *captured_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)in, (void)n;
    return (tensor_t *)tensor_function_user(ctx);
}
static tensor_t *captured_part(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)in, (void)n;
    return tensor_narrow((tensor_t *)tensor_function_user(ctx), 0, 0, 2);
}
static tensor_t *captured_constant(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    tensor_mark_non_differentiable(ctx, 0);
    return captured_forward(ctx, in, n);
}
// The program's buffer, which each call fills anew.
static tensor_t *filled_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    return tensor_copy_((tensor_t *)tensor_function_user(ctx), in[0]);
}
static int ten_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)n;
    grads[0] = tensor_mul_scalar(g, 10);
    return 0;
}
static void captured_results(void) {
    static const tensor_function_t whole = {"captured", captured_forward, ten_backward, NULL},
                                   part = {"part", captured_part, ten_backward, NULL},
                                   constant = {"constant", captured_constant, ten_backward, NULL},
                                   filled = {"filled", filled_forward, ten_backward, NULL};
    tensor_t *x = LEAF64(2, 3), *leaf = LEAF64(5, 7), *h, *y, *z;
    for (int kind = 0; kind < 4; kind++) {
        tensor_t *c = DATA64(5, 7);
        if (kind == 1) { c = tensor_mul_scalar(leaf, 1); }
        if (kind == 2) { c = tensor_mul_scalar(x, 4); }
        if (kind == 3) { tensor_keep(c); }
        tensor_set_grad(x, NULL);
        y = tensor_apply(&whole, c, &x, 1);
        CHECK(y == c && tensor_requires_grad(c) && !tensor_is_leaf(c));
        CHECK_TEXT(tensor_grad_fn_name(c), "captured");
        tensor_mul_scalar_(c, 2);
        tensor_backward(tensor_sum(y));
        EXPECT(tensor_grad(x), 20, 20);
        CHECK(!tensor_grad(leaf));                          // what c was made by is not a part of it
        if (kind == 3) { tensor_free(c); }
    }

    // a buffer: the first result is what the second call has put into it
    h = DATA64(0, 0);
    z = tensor_mul_scalar(x, 3);
    tensor_set_grad(x, NULL);
    y = tensor_apply(&filled, h, &x, 1);
    CHECK(tensor_apply(&filled, h, &z, 1) == y);
    EXPECT(y, 6, 9);
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 30, 30);

    // a leaf stays one, the result is a view of it
    tensor_set_grad(x, NULL);
    y = tensor_apply(&whole, leaf, &x, 1);
    CHECK(y != leaf && tensor_is_leaf(leaf) && tensor_requires_grad(y));
    POISONS(tensor_mul_scalar_(y, 2), TENSOR_ERR_AUTOGRAD, "a view of a leaf that requires grad", HERE);
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 10, 10);
    CHECK(!tensor_grad(leaf));

    // a part is copied (PyTorch refuses its changes, and any use of it after one of the whole)
    h = DATA64(5, 7, 9);
    tensor_set_grad(x, NULL);
    y = tensor_apply(&part, h, &x, 1);
    tensor_mul_scalar_(h, 2);
    tensor_mul_scalar_(y, 3);
    EXPECT(h, 10, 14, 18);
    EXPECT(y, 15, 21);
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 30, 30);

    // no gradient, or nothing recorded: its history stays
    h = tensor_mul_scalar(leaf, 1);
    y = tensor_apply(&constant, h, &x, 1);
    CHECK(!tensor_requires_grad(y));
    CHECK_TEXT(tensor_grad_fn_name(h), "mul");
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    y = tensor_apply(&whole, h, &x, 1);
    CHECK(!tensor_requires_grad(y));
    tensor_scope_end(scope);
    CHECK_TEXT(tensor_grad_fn_name(h), "mul");

    // a leaf of the graph that it would become the result of
    h = LEAF64(1, 1);
    z = tensor_mul(h, x);
    tensor_requires_grad_(h, 0);
    POISONS(tensor_apply(&whole, h, &z, 1), TENSOR_ERR_AUTOGRAD, "is a leaf of the graph", HERE);
    CHECK_OK();
}

int main(void) {
    RUN(captured_results);
    RUN(results_in_one_memory);
    RUN(custom);
    RUN(result_in_its_input);
    RUN(custom_twice);
    RUN(wrong_shape);
    return test_report();
}

// modes.c - anomaly mode, gradients switched on and off, inference mode
#define HERE "modes.c:"
#include "graphs.h"

static tensor_t *root_of_zero(tensor_t *x) { return tensor_mul_scalar(tensor_sqrt(x), 0); }

static void anomaly(void) {
    tensor_t *x = LEAF(0, 1), *y;
    char want[128];
    int line;
    tensor_scope_t s = tensor_scope_begin(), t;
    CHECK(tensor_set_detect_anomaly(1) == 0 && tensor_set_detect_anomaly(1) == 1);
    y = root_of_zero(x);
    line = __LINE__ - 9; // where root_of_zero calls sqrt
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
    CHECK(tensor_requires_grad(v));         // a view made before keeps its history, as PyTorch's
    CHECK(tensor_backward(tensor_sum(v)) == 0);
    CHECK_NEAR(tensor_item(tensor_select(tensor_grad(x), 0, 0)), 2, 0);
    CHECK_NEAR(tensor_item(tensor_select(tensor_grad(x), 0, 1)), 0, 0);
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

// A gradient that was made in inference mode is not added to outside of it, whatever its dtype and size.
static void inferred_gradient(void) {
    int k;
    for (k = 0; k < 4; k++) {
        tensor_dtype_t dtype = k % 2 ? TENSOR_F64 : TENSOR_F32;
        tensor_t *x = tensor_requires_grad_(tensor_ones_of(dtype, k / 2 ? 16 : 3), 1);
        tensor_scope_t s = tensor_scope_begin_inference();
        CHECK(tensor_backward_with(x, tensor_ones_like(x), 0) == 0);
        CHECK(tensor_backward_with(x, tensor_ones_like(x), 0) == 0);
        tensor_scope_end(s);
        FAILS(tensor_backward_with(x, tensor_ones_like(x), 0), TENSOR_ERR_AUTOGRAD, "made in inference mode",
              HERE);
        CHECK(tensor_item(tensor_min(tensor_grad(x))) == 2 && tensor_item(tensor_max(tensor_grad(x))) == 2);
    }
}

// In inference mode a gradient has no graph, also where one is asked for, and also of what has a gradient
// made of other calls; the numbers are those of any mode.
static void graphs_asked_for_in_inference(void) {
    nn_module_t *m = nn_lstm(3, 2, .layers = 2, .bidirectional = 1);
    tensor_t *x = tensor_randn(4, 2, 3), *w = nn_get(m, "weight_ih_l0"), *want, *got;
    tensor_t *loss = tensor_add(tensor_sum(nn_recurrent_forward(m, x).y),
                                tensor_cross_entropy(tensor_matmul(x, tensor_mT(w)), tensor_rand(4, 2, 8)));
    CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &want, TENSOR_RETAIN_GRAPH) == 0);
    tensor_scope_t s = tensor_scope_begin_inference();
    CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &got, TENSOR_CREATE_GRAPH) == 0);
    CHECK(test_same_bits(got, want) && !tensor_requires_grad(got));
    CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &got, TENSOR_CREATE_GRAPH) == 0);     // it is retained
    CHECK_OK();
    tensor_scope_end(s);
    nn_free(m);
}

int main(void) {
    RUN(anomaly);
    RUN(switches);
    RUN(inference);
    RUN(inferred_gradient);
    RUN(graphs_asked_for_in_inference);
    return test_report();
}

// grads.c - tensor_autograd_grad of a part of a graph, and whose gradient it is
//
// Numbers named "PyTorch" come from runs of PyTorch 2.15 of the same lines.
#define HERE "grads.c:"
#include "graphs.h"

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

int main(void) {
    RUN(grad_of_part);
    RUN(own_gradients);
    return test_report();
}

// 06_custom_function.c - a user's own differentiable operation, checked against finite differences
//
// Build: make build/06_custom_function && build/06_custom_function
// Output:
//   softclip(x):
//   tensor([-0.9951, -0.7616,  0.0000,  0.7616,  0.9951])
//   its gradient:
//   tensor([0.0099, 0.4200, 1.0000, 0.4200, 0.0099])
//   gradcheck: agrees
//   straight-through rounding, gradient passes unchanged:
//   tensor([-2.,  1.,  3.])
//   tensor([1., 1., 1.])
#include "tensor.h"

#include <stdio.h>

// y = tanh(x). Saves its result: dy/dx = 1 - y^2, made of tensor operations, so differentiable once more.
static tensor_t *softclip_forward(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int n) {
    (void)n;
    tensor_t *y = tensor_tanh(inputs[0]);
    tensor_save_for_backward(ctx, 0, y);
    return y;
}
static int softclip_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)n;
    tensor_t *y = tensor_saved(ctx, 0);
    grads[0] = tensor_mul(grad, tensor_rsub_scalar(tensor_square(y), 1));
    return tensor_error_code();
}
static const tensor_function_t softclip = {"softclip", softclip_forward, softclip_backward, NULL};

// round(x) with the gradient of the identity, as quantised training uses it.
static tensor_t *round_forward(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int n) {
    (void)ctx;
    (void)n;
    return tensor_round(inputs[0]);
}
static int round_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)ctx;
    (void)n;
    grads[0] = grad;
    return TENSOR_OK;
}
static const tensor_function_t round_through = {"round_through", round_forward, round_backward, NULL};

static tensor_t *softclip_of(tensor_t *const *inputs, int n, void *user) {
    (void)user;
    return tensor_apply(&softclip, NULL, inputs, n);
}

int main(void) {
    float values[] = {-3, -1, 0, 1, 3};
    tensor_t *x = tensor_requires_grad_(tensor_from(values, TENSOR_F32, 5), 1);
    tensor_t *y = tensor_apply(&softclip, NULL, &x, 1);
    printf("softclip(x):\n");
    tensor_print(tensor_detach(y));
    tensor_backward(tensor_sum(y));
    printf("its gradient:\n");
    tensor_print(tensor_grad(x));

    double points[] = {-1.5, 0.2, 0.9};
    tensor_t *p = tensor_requires_grad_(tensor_from(points, TENSOR_F64, 3), 1);
    int code = tensor_gradcheck(softclip_of, NULL, &p, 1, 1e-6, 1e-5, 1e-3);
    printf("gradcheck: %s\n", code ? tensor_error_text() : "agrees");

    float weights[] = {-1.7f, 0.6f, 3.2f};
    tensor_t *w = tensor_requires_grad_(tensor_from(weights, TENSOR_F32, 3), 1);
    tensor_t *q = tensor_apply(&round_through, NULL, &w, 1);
    tensor_backward(tensor_sum(q));
    printf("straight-through rounding, gradient passes unchanged:\n");
    tensor_print(tensor_detach(q));
    tensor_print(tensor_grad(w));
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "06_custom_function: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

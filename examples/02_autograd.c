// 02_autograd.c - gradients by hand: backward, accumulation, no_grad, gradients of gradients
//
// Build: make build/02_autograd && build/02_autograd
// Output:
//   d(sum(x * x))/dx = 2x
//   tensor([2., 4., 6.])
//   a second backward adds to it
//   tensor([ 4.,  8., 12.])
//   y = x^3 at 2: y = 8, dy/dx = 12, d2y/dx2 = 12
//   a line fitted to 8 points: slope 2.000, offset -1.000
#include "tensor.h"

#include <stdio.h>

int main(void) {
    float start[] = {1, 2, 3};
    tensor_t *x = tensor_requires_grad_(tensor_from(start, TENSOR_F32, 3), 1);

    printf("d(sum(x * x))/dx = 2x\n");
    tensor_backward(tensor_sum(tensor_mul(x, x)));
    tensor_print(tensor_grad(x));

    printf("a second backward adds to it\n");
    tensor_backward(tensor_sum(tensor_mul(x, x)));
    tensor_print(tensor_grad(x));

    // With create_graph the gradient is itself the result of recorded operations.
    tensor_t *a = tensor_requires_grad_(tensor_scalar(2, TENSOR_F32), 1);
    tensor_t *y = tensor_pow_scalar(a, 3), *dy, *d2y;
    tensor_autograd_grad(&y, 1, NULL, &a, 1, &dy, TENSOR_CREATE_GRAPH);
    tensor_autograd_grad(&dy, 1, NULL, &a, 1, &d2y, 0);
    printf("y = x^3 at 2: y = %g, dy/dx = %g, d2y/dx2 = %g\n", tensor_item(y), tensor_item(dy),
           tensor_item(d2y));

    // Gradient descent without an optimizer: points on the line 2 t - 1.
    tensor_t *t = tensor_linspace(-1, 1, 8), *line = tensor_sub_scalar(tensor_mul_scalar(t, 2), 1);
    tensor_t *slope = tensor_requires_grad_(tensor_zeros(1), 1);
    tensor_t *offset = tensor_requires_grad_(tensor_zeros(1), 1);

    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 200; step++, tensor_scope_reset(scope)) {
        tensor_t *error = tensor_sub(tensor_add(tensor_mul(t, slope), offset), line);
        tensor_backward(tensor_mean(tensor_square(error)));

        tensor_scope_t update = tensor_scope_begin_no_grad();      // the update is not part of the graph
        tensor_sub_(slope, tensor_mul_scalar(tensor_grad(slope), 0.5));
        tensor_sub_(offset, tensor_mul_scalar(tensor_grad(offset), 0.5));
        tensor_set_grad(slope, NULL);
        tensor_set_grad(offset, NULL);
        tensor_scope_end(update);
    }
    tensor_scope_end(scope);
    printf("a line fitted to 8 points: slope %.3f, offset %.3f\n", tensor_item(slope), tensor_item(offset));
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "02_autograd: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

// 01_tensors.c - creation, views, broadcasting, reductions, printing
//
// Build: make build/01_tensors && build/01_tensors
// Output:
//   x =
//   tensor([[0., 1., 2.],
//           [3., 4., 5.]])
//   row 1, last two columns, transposed:
//   tensor([4., 5.])
//   tensor([[0., 3.],
//           [1., 4.],
//           [2., 5.]])
//   a view shares memory: x after writing 100 through its transpose
//   tensor([[  0.,   1., 100.],
//           [  3.,   4.,   5.]])
//   broadcasting [2,1] + [3]:
//   tensor([[10., 20., 30.],
//           [11., 21., 31.]])
//   column means, softmax over rows:
//   tensor([ 1.5000,  2.5000, 52.5000])
//   tensor([[0.0900, 0.2447, 0.6652],
//           [0.0900, 0.2447, 0.6652]])
//   largest of each row and where:
//   tensor([100.,   5.])
//   tensor([2, 2])
//   integers stay integers, true division gives floats:
//   tensor([2, 4, 6])
//   tensor([0.5000, 1.0000, 1.5000])
//   one check at the end: no error
//   tensor(poison)
//   and after a mistake: SHAPE
#include "tensor_nn.h"

#include <stdio.h>

int main(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3);
    printf("x =\n");
    tensor_print(x);

    printf("row 1, last two columns, transposed:\n");
    tensor_print(tensor_at(x, "1, -2:"));
    tensor_print(tensor_transpose(x, 0, 1));

    printf("a view shares memory: x after writing 100 through its transpose\n");
    tensor_fill_(tensor_at(tensor_mT(x), "2, 0"), 100);
    tensor_print(x);

    printf("broadcasting [2,1] + [3]:\n");
    float column[] = {0, 1}, row[] = {10, 20, 30};
    tensor_print(tensor_add(tensor_from(column, TENSOR_F32, 2, 1), tensor_from(row, TENSOR_F32, 3)));

    printf("column means, softmax over rows:\n");
    tensor_print(tensor_mean_dim(x, 0, 0));
    tensor_t *ramp = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3);
    tensor_print(tensor_softmax(ramp, -1));

    printf("largest of each row and where:\n");
    tensor_pair_t top = tensor_max_dim(x, 1, 0);
    tensor_print(top.values);
    tensor_print(top.indices);

    printf("integers stay integers, true division gives floats:\n");
    tensor_t *n = tensor_arange(1, 4, 1, TENSOR_I64);
    tensor_print(tensor_mul_scalar(n, 2));
    tensor_print(tensor_div_scalar(n, 2));

    printf("one check at the end: %s\n", tensor_ok() ? "no error" : tensor_error_text());

    // A failing call gives poison, poison flows through, the first error stays. It is printed to stderr once:
    //   tensor: matmul: a [2,3] and b [2,3] do not agree on K (3 vs 2) at 01_tensors.c:72
    tensor_print(tensor_relu(tensor_matmul(x, x)));
    printf("and after a mistake: %s\n", tensor_code_name(tensor_error_code()));
    tensor_clear_error();
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "01_tensors: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

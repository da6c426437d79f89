// numbers.h - numbers that C and Python make alike, and how results are compared with PyTorch's
#ifndef NUMBERS_H
#define NUMBERS_H
#include "test.h"

// ((step i) % modulus - modulus / 2) by, for i = 0 .. n-1.
TEST_FN tensor_t *numbers(int64_t n, int64_t step, int64_t modulus, double by) {
    tensor_t *i = tensor_mul_scalar(tensor_arange(0, (double)n, 1, TENSOR_F64), (double)step);
    i = tensor_sub_scalar(tensor_remainder_scalar(i, (double)modulus), (double)(modulus / 2));
    return tensor_mul_scalar(i, by);
}

// The sum of t times -3 .. 3 in turn, or the plain sum.
TEST_FN double score(tensor_t *t, int plain) {
    int64_t n = tensor_numel(t);
    tensor_t *by = tensor_remainder_scalar(tensor_arange(0, (double)n, 1, TENSOR_F64), 7);
    tensor_t *flat = tensor_reshape(tensor_detach(t), n);
    return tensor_item(tensor_sum(plain ? flat : tensor_mul(flat, tensor_sub_scalar(by, 3))));
}

TEST_FN void is_about(const char *what, int k, double got, double want) {
    double tolerance = 1e-12 * (1 + fabs(want));
    CHECK_MSG(fabs(got - want) <= tolerance, "%s %d: %.15g, PyTorch %.15g", what, k, got, want);
}

// Parameter i becomes numbers of its own.
TEST_FN void fill(nn_module_t *m) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    tensor_t *p[24];
    nn_to(m, TENSOR_F64);
    int n = nn_parameters(m, p, 24);
    for (int i = 0; i < n; i++) {
        tensor_t *v = tensor_add_scalar(numbers(tensor_numel(p[i]), 7, 13 + 2 * i, 0.15), 0.05);
        tensor_copy_(p[i], tensor_view_as(v, p[i]));
    }
    tensor_scope_end(s);
}

#endif

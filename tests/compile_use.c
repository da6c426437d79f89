// compile_use.c - includes the headers twice and calls at least one function of each chapter. Compiled in
// every language, with every compiler and switch, by tests/compile.sh; prints "fine" when all of it works.
#include "tensor_nn.h"
#include "tensor.h"
#include "tensor_nn.h"

#include <stdio.h>
#include <string.h>

int compile_other(void);               // compile_other.c: a second file that uses the library

static int same(double a, double b) { return a - b < 1e-5 && b - a < 1e-5; }

static int use(void) {
    const int64_t dims[] = {2, 3};
    float data[] = {1, 2, 3, 4, 5, 6};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_requires_grad_(tensor_from(data, TENSOR_F32, 2, 3), 1);
    tensor_t *w = tensor_ones(3, 1);
    tensor_t *y = tensor_relu(tensor_matmul(x, w));
    tensor_pair_t top;
    int bad = 0;
    bad += !same(tensor_item(tensor_sum(y)), 21);
    bad += tensor_backward(tensor_sum(y)) != 0;
    bad += !same(tensor_item(tensor_sum(tensor_grad(x))), 6);
    bad += tensor_ndim(tensor_at(x, "0, ::2")) != 1;
    bad += tensor_size(tensor_cat(0, x, x), 0) != 4;
    bad += tensor_numel(tensor_zeros_n(dims, 2, TENSOR_F64)) != 6;
    bad += tensor_size(tensor_permute(x, 1, 0), 0) != 3;
    bad += tensor_item_i64(tensor_max(tensor_arange(0, 5, 1, TENSOR_I64))) != 4;
    top = tensor_max_dim(x, 1, 0);
    bad += tensor_item_i64(tensor_select(top.indices, 0, 0)) != 2;
    tensor_manual_seed(1);
    bad += tensor_numel(tensor_randn(4, 4)) != 16;
    bad += !tensor_ok();
    bad += !tensor_is_poison(tensor_add(x, tensor_ones(7)));
    bad += tensor_error_code() != TENSOR_ERR_SHAPE;
    bad += strstr(tensor_error_text(), "add: ") != tensor_error_text();
    tensor_clear_error();
    bad += tensor_scope_end(scope) != 0;
    return bad;
}

static void quiet(int code, const char *text, void *user) {
    (void)code;
    (void)text;
    (void)user;
}

int main(void) {
    int bad;
    tensor_set_error_handler(quiet, NULL);
    bad = use() + compile_other();
    bad += tensor_shutdown();
    printf(bad ? "%d bad\n" : "fine\n", bad);
    return bad != 0;
}

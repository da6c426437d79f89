// elements_are.h - f64 tensors and their elements as literals (IS), gradients of functions of one tensor
#ifndef TEST_ELEMENTS_ARE_H
#define TEST_ELEMENTS_ARE_H
#include "test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define NANF ((double)NAN)
#define INF ((double)INFINITY)
#define X(...) from((const double[]){__VA_ARGS__}, COUNT(((const double[]){__VA_ARGS__})))

// f64, 1-d
TEST_FN tensor_t *from(const double *v, int n) { return tensor_from(v, TENSOR_F64, n); }

// Elements in row-major order against literals; a NaN equals a NaN, zeros compare with their signs.
TEST_FN void is(int line, const char *what, tensor_t *y, const double *want, int n, double tol) {
    int k;
    if (tensor_is_poison(y) || tensor_numel(y) != n) {
        CHECK_MSG(0, "line %d: %s: %s, %d elements expected, got %d", line, what, tensor_error_text(), n,
                  (int)tensor_numel(y));
        tensor_clear_error();
        return;
    }
    y = tensor_to(tensor_contiguous(y), TENSOR_F64);
    for (k = 0; k < n; k++) {
        double got = ((const double *)tensor_data(y))[k], w = want[k];
        int good = w != w ? got != got
                   : w == 0 && tol == 0 ? got == 0 && !signbit(got) == !signbit(w)
                                        : got == w || fabs(got - w) <= tol * (1 + fabs(w));
        CHECK_MSG(good, "line %d: %s: element %d is %.17g, expected %.17g", line, what, k, got, w);
    }
}

#define IS(tol, y, ...)                                                                                      \
    is(__LINE__, #y, y, (const double[]){__VA_ARGS__}, COUNT(((const double[]){__VA_ARGS__})), tol)

// Gradients of the composed functions (rows are checked by ops.c), first and second order.
typedef tensor_t *(*one_t)(tensor_t *x);

TEST_FN tensor_t *call(tensor_t *const *in, int n, void *user) {
    one_t f;
    (void)n;
    memcpy(&f, user, sizeof f);
    return f(in[0]);
}

TEST_FN void check_gradients(const char *name, one_t f, tensor_t *x) {
    tensor_t *v = tensor_requires_grad_(x, 1);
    CHECK_MSG(tensor_gradcheck(call, &f, &v, 1, 1e-6, 1e-5, 1e-3) == 0, "%s: %s", name, tensor_error_text());
    tensor_clear_error();
    CHECK_MSG(tensor_gradgradcheck(call, &f, &v, 1, 1e-6, 1e-5, 1e-3) == 0, "%s, second order: %s", name,
              tensor_error_text());
    tensor_clear_error();
}

#endif

// literals.h - small tensors and their expected elements as literals; ops.h before it
#ifndef TEST_LITERALS_H
#define TEST_LITERALS_H
#include "ops.h"

#define F32(...)                                                                                             \
    tensor_from(((const float[]){__VA_ARGS__}), TENSOR_F32, COUNT(((const float[]){__VA_ARGS__})))
#define I32(...)                                                                                             \
    tensor_from(((const int32_t[]){__VA_ARGS__}), TENSOR_I32, COUNT(((const int32_t[]){__VA_ARGS__})))
#define I64S(...)                                                                                            \
    tensor_from(((const int64_t[]){__VA_ARGS__}), TENSOR_I64, COUNT(((const int64_t[]){__VA_ARGS__})))
TEST_FN void is_values(tensor_t *y, const double *want, int n, int line) {
    nd_t a;
    int k;
    if (tensor_is_poison(y)) {
        test_note(0, __FILE__, line, "%s on %s", tensor_error_text(), tensor_isa_name());
        tensor_clear_error();
        return;
    }
    nd_read(&a, y);
    test_note(a.n == n, __FILE__, line, "%lld numbers, expected %d", (long long)a.n, n);
    for (k = 0; k < n && k < a.n; k++) {
        double v = is_float(a.dtype) ? a.v[k] : (double)a.i[k];
        test_note((v != v && want[k] != want[k]) || (v == want[k] && signbit(v) == signbit(want[k])),
                  __FILE__, line, "number %d is %g, expected %g on %s %s", k, v, want[k], tensor_isa_name(),
                  dname(a.dtype));
    }
    nd_free(&a);
}
#define IS(y, ...)                                                                                           \
    is_values(y, (const double[]){__VA_ARGS__}, COUNT(((const double[]){__VA_ARGS__})), __LINE__)

#endif

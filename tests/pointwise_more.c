// pointwise_more.c - i8 and i16, the pointwise functions and activations made of other rows, in place and
// scalar twins: literal values from PyTorch 2.15, layouts, dtypes, gradients, errors
#include "test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define NANF ((double)NAN)
#define INF ((double)INFINITY)
#define X(...) from((const double[]){__VA_ARGS__}, COUNT(((const double[]){__VA_ARGS__})))

// f64, 1-d
static tensor_t *from(const double *v, int n) { return tensor_from(v, TENSOR_F64, n); }
// Elements in row-major order against literals; a NaN equals a NaN, zeros compare with their signs.
static void is(int line, const char *what, tensor_t *y, const double *want, int n, double tol) {
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

static void small_integers(void) {
    static const int8_t a8[] = {-128, -1, 0, 5, 127}, b8[] = {1, 2, 3, -4, 127};
    static const int16_t a16[] = {-32768, -1, 0, 300, 32767};
    tensor_t *a = tensor_from(a8, TENSOR_I8, 5), *b = tensor_from(b8, TENSOR_I8, 5);
    tensor_t *w = tensor_from(a16, TENSOR_I16, 5);
    tensor_t *u = tensor_to(X(0, 1, 200, 255, 7), TENSOR_U8);
    char text[200];
    CHECK(tensor_dtype_size(TENSOR_I8) == 1 && tensor_dtype_size(TENSOR_I16) == 2);
    CHECK(TENSOR_I8 == 8 && TENSOR_I16 == 9); // numbers of the others stay
    IS(0, tensor_add(a, b), -127, 1, 3, 1, -2);
    IS(0, tensor_mul(a, b), -128, -2, 0, -20, 1);
    IS(0, tensor_neg(a), -128, 1, 0, -5, -127);
    IS(0, tensor_abs(w), -32768, 1, 0, 300, 32767);
    IS(0, tensor_floor_divide(a, b), -128, -1, 0, -2, 1);
    CHECK(tensor_dtype(tensor_add(a, u)) == TENSOR_I16);
    IS(0, tensor_add(a, u), -128, 0, 200, 260, 134);
    IS(0, tensor_bitwise_not(w), 32767, 0, -1, -301, -32768);
    IS(0, tensor_to(w, TENSOR_I8), 0, -1, 0, 44, -1);
    IS(0, tensor_to(X(-1e9, -128.9, 127.9, NANF, INF), TENSOR_I8), -128, -128, 127, 0, 127);
    IS(0, tensor_to(X(-1e9, 1e9, NANF, -1.5), TENSOR_I16), -32768, 32767, 0, -1);
    CHECK(tensor_dtype(tensor_sum(a)) == TENSOR_I64 && tensor_item(tensor_sum(a)) == 3);
    CHECK(tensor_dtype(tensor_max(w)) == TENSOR_I16 && tensor_item(tensor_max(w)) == 32767);
    CHECK(tensor_item(tensor_argmin(a)) == 0);
    CHECK(tensor_dtype(tensor_exp(a)) == TENSOR_F32 && tensor_dtype(tensor_div(a, b)) == TENSOR_F32);
    IS(0, tensor_add_scalar(a, 1), -127, 0, 1, 6, -128);
    CHECK(tensor_dtype(tensor_add_scalar(w, 0.5)) == TENSOR_F32);
    IS(0, tensor_matmul(tensor_reshape(b, 1, 5), tensor_reshape(b, 5, 1)), 31);   // 16159 wraps
    IS(0, tensor_index_select(w, 0, tensor_to(X(4, 0), TENSOR_I64)), 32767, -32768);
    IS(0, tensor_cat(0, a, w), -128, -1, 0, 5, 127, -32768, -1, 0, 300, 32767);
    CHECK(tensor_dtype(tensor_cat(0, a, w)) == TENSOR_I16);
    tensor_to_string(a, text, sizeof text);
    CHECK_MSG(!strcmp(text, "tensor([-128,   -1,    0,    5,  127], dtype=i8)"), "%s", text);
    CHECK_POISON(tensor_floor_divide(a, tensor_zeros_of(TENSOR_I8, 5)), TENSOR_ERR_INDEX, "division by zero");
    CHECK_POISON(tensor_requires_grad_(a, 1), TENSOR_ERR_DTYPE, "i8");
    CHECK_POISON(tensor_mean(w), TENSOR_ERR_DTYPE, "i16");
    CHECK_POISON(tensor_add_(a, w = tensor_to(w, TENSOR_F32)), TENSOR_ERR_DTYPE, "f32");
}

int main(void) {
    RUN(small_integers);
    return test_report();
}

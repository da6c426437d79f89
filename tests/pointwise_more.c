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

// The values of PyTorch 2.15 in f64; NaN, infinities and signs of zero included.
static tensor_t *edges(void) { return X(-2.5, -1, -0.0, 0, 0.5, 1, 3, NANF, INF, -INF); }
static void unary_values(void) {
    const double e = 1e-15, pi = 3.141592653589793;
    tensor_t *x = edges(), *a;
    IS(e, tensor_acosh(x), NANF, NANF, NANF, NANF, NANF, 0, 1.762747174039086, NANF, INF, NANF);
    IS(e, tensor_asinh(x), -1.6472311463710958, -0.881373587019543, -0.0, 0, 0.48121182505960347,
       0.881373587019543, 1.8184464592320668, NANF, INF, -INF);
    IS(e, tensor_atanh(x), NANF, -INF, -0.0, 0, 0.5493061443340548, INF, NANF, NANF, NANF, NANF);
    IS(e, tensor_erfinv(x), NANF, -INF, -0.0, 0, 0.4769362762044699, INF, NANF, NANF, NANF, NANF);
    IS(e, tensor_erfinv(X(-.999999, -.3, 1e-12, .9999999999, 1.1)), -3.458910737275499, -0.2724627147267543,
       8.86226925452758e-13, 4.572824958544925, NANF);
    IS(2e-15, tensor_lgamma(x), -0.05624371649767405, INF, INF, INF, 0.5723649429247001, 0,
       0.6931471805599453, NANF, INF, INF);
    IS(2e-15, tensor_lgamma(X(-1.5, 1e-8, 1.5, 2, 40, 1e10, -100.5)), 0.860047015376481, 18.42068073818021,
       -0.12078223763524522, 0, 106.63176026064346, 220258509288.81058, -364.90096830942736);
    IS(2e-15, tensor_digamma(x), 1.1031566406452433, NANF, INF, -INF, -1.9635100260214229,
       -0.5772156649015328, 0.922784335098467, NANF, INF, NANF);
    IS(2e-15, tensor_digamma(X(-1.5, 1e-8, 40, 1e10)), 0.7031566406452433, -100000000.57721564,
       3.6763273740348428, 23.025850929890456);
    // exact values (pi^2 / 2 ..); PyTorch's own series is off by 1e-9
    IS(4e-15, tensor_polygamma(1, X(-2.5, -1.5, .5, 1, 3, 40)), 9.539246644989123, 9.379246644989124,
       4.934802200544679, 1.6449340668482264, 0.39493406684822646, 0.025315103841291063);
    IS(1e-14, tensor_polygamma(2, X(.5, 1, 3, 40)), -16.828796644234316, -2.404113806319188,
       -0.15411380631918856, -0.0006408202718352985);
    IS(e, tensor_sinc(x), 0.12732395447351627, 0, 1, 1, 0.6366197723675814, 0, 0, NANF, NANF, NANF);
    IS(0, tensor_signbit(x), 1, 1, 1, 0, 0, 0, 0, 0, 0, 1);
    IS(0, tensor_signbit(tensor_neg(tensor_to(X(NANF, 0), TENSOR_F16))), 1, 1);
    IS(0, tensor_signbit(tensor_to(X(-1, 0), TENSOR_I8)), 1, 0);
    IS(0, tensor_frac(x), -0.5, 0, 0, 0, 0.5, 0, 0, NANF, NANF, NANF);
    IS(e, tensor_deg2rad(X(180, -90)), pi, -pi / 2);
    IS(e, tensor_rad2deg(X(pi, -pi / 2)), 180, -90);
    CHECK(tensor_dtype(tensor_deg2rad(tensor_to(x, TENSOR_I16))) == TENSOR_F32);
    IS(0, tensor_isposinf(x), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0);
    IS(0, tensor_isneginf(x), 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
    IS(0, tensor_isposinf(tensor_to(x, TENSOR_I64)), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    IS(0, tensor_sgn(X(-3, 0, 2)), -1, 0, 1);
    a = tensor_to(X(1.25, -1.35, 2.675, 149, NANF, INF), TENSOR_F32);
    IS(0, tensor_round_decimals(a, 1), 1.2000000476837158, -1.399999976158142, 2.700000047683716, 149, NANF,
       INF);
    IS(0, tensor_round_decimals(a, 2), 1.25, -1.350000023841858, 2.680000066757202, 149, NANF, INF);
    IS(0, tensor_round_decimals(a, -1), 0, -0.0, 0, 150, NANF, INF);
    IS(0, tensor_round_decimals(X(2.675, 0.5), 2), 2.68, 0.5);
    IS(0, tensor_round_decimals(X(2.5, 149), 0), 2, 149);
    IS(0, tensor_rpow_scalar(X(-1, 0, 0.5, 3), 2), 0.5, 1, 1.4142135623730951, 8);
    IS(0, tensor_rpow_scalar(tensor_to(X(0, 3), TENSOR_I16), 2), 1, 8);
    CHECK(tensor_dtype(tensor_rpow_scalar(tensor_to(X(0, 3), TENSOR_I16), 2)) == TENSOR_I16);
    IS(0, tensor_positive(x), -2.5, -1, -0.0, 0, 0.5, 1, 3, NANF, INF, -INF);
    IS(e, tensor_logit(X(-.5, 0, .2, .5, .9, 1, 1.5), -1), NANF, -INF, -1.3862943611198906, 0,
       2.1972245773362196, INF, NANF);
    IS(e, tensor_logit(X(-.5, 0, .2, .5, .9, 1, 1.5), 0.1), -2.197224577336219, -2.197224577336219,
       -1.3862943611198906, 0, 2.1972245773362196, 2.1972245773362196, 2.1972245773362196);
    IS(0, tensor_nan_to_num(x, 1.5, 7, -8), -2.5, -1, -0.0, 0, 0.5, 1, 3, 1.5, 7, -8);
    x = tensor_narrow(x, 0, 7, 3);
    IS(0, tensor_nan_to_num(x, 0, NANF, NANF), 0, 1.7976931348623157e308, -1.7976931348623157e308);
    IS(0, tensor_nan_to_num(tensor_to(x, TENSOR_F32), 0, NANF, NANF), 0, 3.4028234663852886e38,
       -3.4028234663852886e38);
    IS(0, tensor_nan_to_num(tensor_to(x, TENSOR_F16), 0, NANF, NANF), 0, 65504, -65504);
    IS(0, tensor_nan_to_num(tensor_to(x, TENSOR_BF16), 0, NANF, NANF), 0, 3.3895313892515355e38,
       -3.3895313892515355e38);
    IS(0, tensor_nan_to_num(tensor_to(X(3, 4), TENSOR_U8), 1, 2, 3), 3, 4);
    IS(0, tensor_clamp_min(X(-1, NANF, 3), 2), 2, NANF, 3);
    IS(0, tensor_clamp_max(X(-INF, NANF, 3), 2), -INF, NANF, 2);
    CHECK_POISON(tensor_positive(tensor_ones_of(TENSOR_BOOL, 2)), TENSOR_ERR_DTYPE, "x [2] is bool");
    CHECK_POISON(tensor_frac(tensor_ones_of(TENSOR_I8, 2)), TENSOR_ERR_DTYPE, "frac: x [2] is i8");
    CHECK_POISON(tensor_round_decimals(tensor_ones_of(TENSOR_I8, 2), 1), TENSOR_ERR_DTYPE, "x [2] is i8");
    CHECK_POISON(tensor_polygamma(-1, x), TENSOR_ERR_SHAPE, "polygamma: n -1");
    CHECK_POISON(tensor_nan_to_num(NULL, 0, 0, 0), TENSOR_ERR_OWNER, "nan_to_num");
    CHECK_POISON(tensor_deg2rad(NULL), TENSOR_ERR_OWNER, "deg2rad: mul");
    CHECK_POISON(tensor_digamma(NULL), TENSOR_ERR_OWNER, "digamma: polygamma");
}
static void binary_values(void) {
    const double e = 1e-15;
    tensor_t *a = X(-2.5, -1, -0.0, 0, 0.5, 1, 3, NANF, INF, -INF, INF, 0, 0, 2);
    tensor_t *b = X(2, -1, 3, -0.0, NANF, -2, 0.5, 1, INF, -INF, -INF, NANF, -1, NANF);
    tensor_t *i = tensor_to(X(1, -1, 5, -128, 127), TENSOR_I8), *u = tensor_to(X(-7, 7, -7, 7), TENSOR_I16);
    tensor_t *v = tensor_to(X(2, 2, -2, -2), TENSOR_I16);
    IS(e, tensor_logaddexp(a, b), 2.011047744848594, -0.3068528194400547, 3.048587351573742,
       0.6931471805599453, NANF, 1.048587351573742, 3.0788897342925496, NANF, INF, -INF, INF, NANF,
       0.31326168751822286, NANF);
    IS(e, tensor_logaddexp2(a, b), 2.062390014173462, 0, 3.169925001442312, 1, NANF, 1.1699250014423124,
       3.234840581079202, NANF, INF, -INF, INF, NANF, 0.5849625007211562, NANF);
    IS(e, tensor_hypot(a, b), 3.2015621187164243, 1.4142135623730951, 3, 0, NANF, 2.23606797749979,
       3.0413812651491097, NANF, INF, INF, INF, NANF, 1, NANF);
    IS(0, tensor_hypot(X(1e300, 3e-320), X(1e300, 4e-320)), hypot(1e300, 1e300), 5e-320);
    IS(0, tensor_narrow(tensor_copysign(a, b), 0, 0, 4), 2.5, -1, 0, -0.0);
    IS(0, tensor_narrow(tensor_copysign(a, b), 0, 10, 3), -INF, 0, -0.0);
    IS(0, tensor_copysign_scalar(X(1, -2, NANF), -0.0), -1, -2, NANF);
    IS(e, tensor_xlogy(a, b), -1.7328679513998633, NANF, -0.0, 0, NANF, NANF, -2.0794415416798357, NANF, INF,
       NANF, NANF, NANF, 0, NANF);
    IS(e, tensor_xlogy_scalar(X(0, 2, -1), 2.718281828459045), 0, 2, -1);
    IS(0, tensor_heaviside(a, b), 0, 0, 3, -0.0, 1, 1, 1, 0, 1, 0, 1, NANF, -1, 1);
    IS(0, tensor_fmax(a, b), 2, -1, 3, 0, 0.5, 1, 3, 1, INF, -INF, INF, 0, 0, 2);
    IS(0, tensor_fmin(a, b), -2.5, -1, -0.0, 0, 0.5, -2, 0.5, 1, INF, -INF, -INF, 0, -1, 2);
    IS(e, tensor_ldexp(a, b), -10, -0.5, -0.0, 0, NANF, 0.25, 4.242640687119286, NANF, INF, NANF, NANF, NANF,
       0, NANF);
    IS(e, tensor_float_power(a, b), 6.25, -1, -0.0, 1, NANF, 1, 1.7320508075688772, NANF, INF, 0, 0, NANF,
       INF, NANF);
    CHECK(tensor_dtype(tensor_float_power(i, i)) == TENSOR_F64);
    IS(0, tensor_float_power_scalar(i, 2), 1, 1, 25, 16384, 16129);
    IS(0, tensor_isclose(a, b, 1e-5, 1e-8, 0), 0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0);
    IS(0, tensor_isclose(X(NANF, 1, INF, 1), X(NANF, 1 + 1e-6, INF, 1.1), 1e-5, 1e-8, 1), 1, 1, 1, 0);
    IS(0, tensor_isclose(i, tensor_add_scalar(i, 1), 0, 1, 0), 1, 1, 1, 1, 0); // 127 + 1 wraps
    IS(0, tensor_clamp_tensor(X(-5, -1, 0, 1, 5, NANF, 2), X(-2, -2, 1, 2, 3, 0, NANF),
                              X(2, -1.5, 3, 1, 4, 1, 3)), -2, -1.5, 1, 1, 4, NANF, NANF);
    IS(0, tensor_clamp_tensor(tensor_reshape(X(1, 5), 2, 1), X(2, 3), NULL), 2, 3, 5, 5);
    IS(0, tensor_clamp_tensor(i, NULL, tensor_scalar(3, TENSOR_I8)), 1, -1, 3, -128, 3);
    IS(0, tensor_div_mode(X(-7, 7, -7, 7, 1, 0), X(2, 2, -2, -2, 0, 0), "trunc"), -3, 3, 3, -3, INF, NANF);
    IS(0, tensor_div_mode(u, v, "trunc"), -3, 3, 3, -3);
    IS(0, tensor_div_mode(u, v, "floor"), -4, 3, 3, -4);
    IS(0, tensor_div_mode(u, v, NULL), -3.5, 3.5, 3.5, -3.5);
    CHECK(tensor_dtype(tensor_div_mode(u, v, "trunc")) == TENSOR_I16);
    IS(0, tensor_bitwise_left_shift_scalar(i, 1), 2, -2, 10, 0, -2);
    IS(0, tensor_bitwise_right_shift_scalar(i, 3), 0, -1, 0, -16, 15);
    IS(0, tensor_bitwise_left_shift(i, tensor_to(X(7, 8, -1, 64, 3), TENSOR_I8)), -128, 0, 0, 0, -8);
    IS(0, tensor_bitwise_right_shift(i, tensor_to(X(7, 8, -1, 64, 7), TENSOR_I8)), 0, -1, 0, -1, 0);
    IS(0, tensor_bitwise_and_scalar(i, 6), 0, 6, 4, 0, 6);
    IS(0, tensor_bitwise_or_scalar(i, 6), 7, -1, 7, -122, 127);
    IS(0, tensor_bitwise_xor_scalar(i, -1), -2, 0, -6, 127, -128);
    IS(e, tensor_lerp_scalar(X(0, 1), X(10, 3), 0.25), 2.5, 1.5);
    CHECK_POISON(tensor_div_mode(u, v, "up"), TENSOR_ERR_FORMAT, "div_mode: rounding mode \"up\"");
    CHECK_POISON(tensor_div_mode(u, tensor_zeros_like(u), "trunc"), TENSOR_ERR_INDEX, "division by zero");
    CHECK_POISON(tensor_heaviside(u, i), TENSOR_ERR_DTYPE, "heaviside: x [4] is i16 and values [5] is i8");
    CHECK_POISON(tensor_isclose(a, i, 0, 0, 0), TENSOR_ERR_DTYPE, "isclose: a [14] is f64 and b [5] is i8");
    CHECK_POISON(tensor_isclose(a, b, -1, 0, 0), TENSOR_ERR_SHAPE, "isclose: rtol -1");
    CHECK_POISON(tensor_clamp_tensor(a, NULL, NULL), TENSOR_ERR_SHAPE, "clamp_tensor: lo and hi");
    CHECK_POISON(tensor_bitwise_left_shift_scalar(a, 1), TENSOR_ERR_DTYPE,
                 "bitwise_left_shift_scalar: x [14] is f64");
    CHECK_POISON(tensor_bitwise_and_scalar(i, 0.5), TENSOR_ERR_DTYPE, "bitwise_and_scalar: x [5] is f32");
    CHECK_POISON(tensor_fmax(a, u), TENSOR_ERR_SHAPE, "fmax: ");
    CHECK_POISON(tensor_hypot(a, u), TENSOR_ERR_SHAPE, "hypot: a [14] and b [4]");
}
// Ties and NaN, dtypes that stay or do not, numbers that a dtype cannot hold.
static void dtypes_of_numbers(void) {
    static const uint8_t bytes[] = {1, 2, 200};
    static const int32_t three[] = {3, 4, 5};
    tensor_t *u = tensor_from_n(bytes, TENSOR_U8, (const int64_t[]){3}, 1);
    tensor_t *i = tensor_from_n(three, TENSOR_I32, (const int64_t[]){3}, 1), *y;
    tensor_t *b = tensor_gt_scalar(u, 1), *h = tensor_to(X(1, 0x1p-10, 3), TENSOR_F16);
    tensor_t *p = tensor_requires_grad_(X(1, 2, NANF, 4), 1), *q = tensor_requires_grad_(X(1, 3, 5, NANF), 1);
    CHECK(tensor_backward(tensor_sum(tensor_fmax(p, q))) == 0);
    IS(0, tensor_grad(p), 0.5, 0, 0, 1);
    IS(0, tensor_grad(q), 0.5, 1, 1, 0);
    CHECK(tensor_backward(tensor_sum(tensor_fmin(p, q))) == 0);
    IS(0, tensor_grad(p), 1, 1, 0, 2);
    IS(0, tensor_grad(q), 1, 1, 2, 0);
    y = tensor_addcmul(i, i, i, 2);
    CHECK(tensor_dtype(y) == TENSOR_I32);
    IS(0, y, 21, 36, 55);
    CHECK(tensor_dtype(tensor_addcmul_(tensor_clone(u), u, u, 1)) == TENSOR_U8);
    CHECK_POISON(tensor_addcmul(b, b, b, 1), TENSOR_ERR_DTYPE, "addcmul: bool is refused");
    CHECK_POISON(tensor_addcdiv(X(1, 2, 3), i, u, 1),
                 TENSOR_ERR_DTYPE, "addcdiv: a [3] is i32 and b [3] is u8");
    CHECK_POISON(tensor_addcdiv_(X(1, 2, 3), i, u, 1), TENSOR_ERR_DTYPE, "one must be a float");
    CHECK(tensor_dtype(tensor_clamp(b, 0, 1)) == TENSOR_I64 && tensor_dtype(tensor_square(b)) == TENSOR_I64);
    IS(0, tensor_clamp(b, 2, 5), 2, 2, 2);
    CHECK_POISON(tensor_clamp_(tensor_clone(b), 0, 1), TENSOR_ERR_DTYPE, "i64 cannot be stored");
    IS(0, tensor_rsub_scalar(u, -1), 254, 253, 55);
    y = tensor_ldexp(h, i);
    CHECK(tensor_dtype(y) == TENSOR_F16);
    IS(0, y, 8, 0x1p-6, 96);
    IS(0, tensor_ldexp(h, tensor_from_n((const int32_t[]){0, 20, 1}, TENSOR_I32, (const int64_t[]){3}, 1)), 1,
       1024, 6);
    IS(0, tensor_ldexp(X(1), tensor_scalar(200, TENSOR_I32)), 0x1p200);

    CHECK_POISON(tensor_full_of(TENSOR_U8, 256, 2), TENSOR_ERR_DTYPE, "full: 256 is outside the range of u8");
    CHECK_POISON(tensor_full_of(TENSOR_U8, -1, 2), TENSOR_ERR_DTYPE, "full: -1 is outside the range of u8");
    CHECK_POISON(tensor_full_of(TENSOR_I64, 0x1p63, 2), TENSOR_ERR_DTYPE, "full: ");
    CHECK_POISON(tensor_full_like(i, (double)NANF),
                 TENSOR_ERR_DTYPE, "full_like: nan is outside the range of i32");
    CHECK_POISON(tensor_scalar(128, TENSOR_I8), TENSOR_ERR_DTYPE, "scalar: 128 is outside the range of i8");
    CHECK_POISON(tensor_fill_(u, 300), TENSOR_ERR_DTYPE, "fill_: 300 is outside the range of u8");
    CHECK_POISON(tensor_masked_fill(u, b, 300), TENSOR_ERR_DTYPE, "masked_fill: 300 is outside");
    CHECK_POISON(tensor_masked_fill_(i, b, INF), TENSOR_ERR_DTYPE, "masked_fill_: inf is outside");
    CHECK_POISON(tensor_index_fill(u, 0, tensor_scalar(0, TENSOR_I64), 300),
                 TENSOR_ERR_DTYPE, "index_fill: 300");
    CHECK_POISON(tensor_scatter_value(u, 0, tensor_zeros_of(TENSOR_I64, 1), 300),
                 TENSOR_ERR_DTYPE, "scatter_value: 300");
    CHECK_POISON(tensor_clamp(u, 256, 300), TENSOR_ERR_DTYPE, "clamp: 256 is outside the range of u8");
    CHECK_POISON(tensor_clamp_max(u, -1), TENSOR_ERR_DTYPE, "clamp_max: -1 is outside the range of u8");
    CHECK_POISON(tensor_clamp_min_(u, 256), TENSOR_ERR_DTYPE, "clamp_min_: 256 is outside the range of u8");
    IS(0, tensor_clamp(u, -5, 300), 1, 2, 200);
    i = tensor_to(X(0, 1, 5, -3), TENSOR_I64); // a fraction turns integers to floats, as in PyTorch
    IS(0, tensor_clamp_max(i, -2.5), -2.5, -2.5, -2.5, -3);
    IS(0, tensor_clamp_min(i, 0.5), 0.5, 1, 5, 0.5);
    IS(0, tensor_clamp(i, 0.5, 2.5), 0.5, 1, 2.5, 0.5);
    CHECK(tensor_dtype(tensor_clamp_min(i, 0.5)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_clamp_min(i, 1)) == TENSOR_I64);
    CHECK_POISON(tensor_clamp_(i, 0.5, 2), TENSOR_ERR_DTYPE, "clamp_: a result of f32 cannot be stored");
    tensor_fill_(tensor_diff(i, 0, 0), 9);
    IS(0, i, 0, 1, 5, -3);
    IS(0, tensor_full_of(TENSOR_U8, 255.9, 2), 255, 255);
    IS(0, tensor_full_of(TENSOR_I64, -0x1p63, 1), -0x1p63);
    IS(0, tensor_full_of(TENSOR_BOOL, 256, 2), 1, 1);
    IS(0, u, 1, 2, 200);
}
static void in_place_values(void) {
    tensor_t *x = X(-2, -0.5, 0.5, 3), *w = X(1, 2, 3, 4), *y = tensor_clone(x);
#define SAME(here, there)                                                                                    \
    tensor_copy_(y, x);                                                                                      \
    CHECK_MSG(here == y && tensor_equal(y, there), "%s", #here)
    SAME(tensor_clamp_min_(y, 0), tensor_clamp_min(x, 0));
    SAME(tensor_clamp_max_(y, 0), tensor_clamp_max(x, 0));
    SAME(tensor_elu_(y, 1.5), tensor_elu(x, 1.5));
    SAME(tensor_hardtanh_(y, -1, 2), tensor_hardtanh(x, -1, 2));
    SAME(tensor_leaky_relu_(y, 0.1), tensor_leaky_relu(x, 0.1));
    SAME(tensor_nan_to_num_(tensor_log_(y), 5, 6, 7), tensor_nan_to_num(tensor_log(x), 5, 6, 7));
    SAME(tensor_lerp_(y, w, w), tensor_lerp(x, w, w));
    SAME(tensor_lerp_scalar_(y, w, 0.75), tensor_lerp_scalar(x, w, 0.75));
    SAME(tensor_addcdiv_(y, w, w, 2), tensor_addcdiv(x, w, w, 2));
    SAME(tensor_pow_scalar_(y, 2), tensor_square(x));
}
// a^b within a unit in the last place, from 2^-149 to 2^127, of bases near 1 and of any size.
static void powers(void) {
    enum { N = 6000 };
    static const char *const isas[4] = {"scalar", "sse2", "avx2", "avx512"};
    static float a[N], b[N];
    const float *y;
    double worst = 0;
    int i, k, e;
    for (k = 0; k < N; k++) {
        a[k] = (float)(k % 3 ? exp2(127 * sin(1.7 * k)) : 1 + 0.3 * sin(1.7 * k));
        b[k] = (float)((138 * cos(0.9 * k) - 11) / log2((double)a[k]));
    }
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_cpu(isas[i]) != 0) tensor_clear_error();
        y = (const float *)tensor_data(
            tensor_pow(tensor_from(a, TENSOR_F32, N), tensor_from(b, TENSOR_F32, N)));
        for (k = 0; k < N; k++) {
            double want = pow((double)a[k], (double)b[k]);
            frexp(want, &e);
            worst = fmax(worst, ldexp(fabs(y[k] - want), 24 - (e > -125 ? e : -125)));
        }
    }
    CHECK_MSG(worst <= 1, "pow is %g units off", worst);
    tensor_set_cpu(NULL);
}
// The exponents that are products, quotients and roots keep the special cases of C99 F.9.4.4; and the bits
// of an element do not tell who its neighbours are, although vectors of one kind go a shorter way.
#define F(...) tensor_to(X(__VA_ARGS__), TENSOR_F32)
static tensor_t *pow_half(tensor_t *x) { return tensor_pow_scalar(x, 0.5); }
static tensor_t *pow_inverse(tensor_t *x) { return tensor_pow_scalar(x, -2); }
static void neighbours(void) {
    static const float exponent[] = {2, 2.5f, -1, 0.5f, 3, -0.5f, 0.3f, -2, 1, 0, -3, 4};
    static const float value[] = {0.1f,  -0.1f, 1, -2.5f, 4.8f, -4.8f, 9, -9, 1e-30f, -1e-40f, 30,
                                  -100, 3.5f,  -3.5f, 0,     1e30f, (float)NAN, (float)INF, -(float)INF};
    static const struct {
        const char *name;
        tensor_t *(*f)(tensor_t *x);
    } f[] = {{"gelu", tensor_gelu},  {"sigmoid", tensor_sigmoid}, {"erfc", tensor_erfc}, {"erf", tensor_erf},
             {"tanh", tensor_tanh},  {"exp", tensor_exp},         {"silu", tensor_silu}, {"x^.5", pow_half},
             {"x^-2", pow_inverse}};
    int values = COUNT(value), exponents = COUNT(exponent);
    tensor_t *x, *y, *e;
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 4), 0.5), 0, INF, NANF, 2);
    IS(0, tensor_reciprocal(tensor_pow_scalar(F(-0.0f, -0.0f), 0.5)), INF, INF);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 4), -0.5), INF, 0, NANF, 0.5);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 0.5), -1), -INF, -0.0, -0.25, 2);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 1e-30f), -2), INF, 0, 0.0625, INF);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 1e-30f), 3), -0.0, -INF, -64, 0);
    IS(2e-7, tensor_pow_scalar(F(1e-10, 3e-10, NANF), -2), 1e20, 1e20 / 9, NANF);
    x = tensor_from(value, TENSOR_F32, values);
    for (size_t k = 0; k < (size_t)COUNT(f); k++) {
        y = f[k].f(x);
        for (int i = 0; i < values; i++) {
            tensor_t *one = f[k].f(tensor_full(value[i], 40));
            CHECK_MSG(memcmp((const float *)tensor_data(y) + i, tensor_data(one), sizeof(float)) == 0,
                      "%s: %g alone is not %g among others", f[k].name, (double)value[i], (double)value[i]);
        }
    }
    e = tensor_from(exponent, TENSOR_F32, exponents);
    for (int i = 0; i < values; i++) {
        y = tensor_pow(tensor_full(value[i], exponents), e);
        for (int k = 0; k < exponents; k++) {
            tensor_t *one = tensor_pow_scalar(tensor_full(value[i], 40), (double)exponent[k]);
            const float *p = (const float *)tensor_data(y) + k, *q = (const float *)tensor_data(one);
            CHECK_MSG(memcmp(p, q, sizeof *p) == 0 || (*p != *p && *q != *q),
                      "%g^%g: %g among others, %g alone", (double)value[i], (double)exponent[k], (double)*p,
                      (double)*q);
        }
    }
}
// Gradients of the composed functions (rows are checked by ops.c), first and second order.
typedef tensor_t *(*one_t)(tensor_t *x);
static tensor_t *logit_eps(tensor_t *x) { return tensor_logit(tensor_mul_scalar(x, 0.3), 0.2); }
static tensor_t *lerp_half(tensor_t *x) { return tensor_lerp_scalar(x, tensor_square(x), 0.3); }
static tensor_t *clamp_both(tensor_t *x) {
    tensor_t *lo = tensor_neg(tensor_exp(tensor_neg(x)));
    return tensor_clamp_tensor(tensor_sub_scalar(x, 1), lo, tensor_mul_scalar(x, 0.3));
}
static tensor_t *fmax_of(tensor_t *x) { return tensor_fmax(tensor_sin(x), tensor_cos(x)); }
static tensor_t *fmin_of(tensor_t *x) { return tensor_fmin(tensor_sin(x), tensor_cos(x)); }
static tensor_t *ldexp_of(tensor_t *x) { return tensor_ldexp(x, tensor_neg(x)); }
static tensor_t *digamma_in_place(tensor_t *x) {
    tensor_t *y = tensor_addcdiv_(tensor_digamma(tensor_add_scalar(x, 2)), x, x, 1);
    return tensor_pow_scalar_(tensor_log_(y), 3);
}
static tensor_t *lerp_in_place(tensor_t *x) {
    tensor_t *y = tensor_erfinv_(tensor_mul_scalar(x, 0.2));
    return tensor_mul(y, tensor_lerp_scalar_(tensor_sin_(tensor_mul_scalar(x, 0.2)), tensor_square(x), 0.3));
}
static tensor_t *rpow_of(tensor_t *x) { return tensor_rpow_scalar(x, 1.7); }
static tensor_t *nan_of(tensor_t *x) { return tensor_nan_to_num(tensor_square(x), 0, NANF, NANF); }
static tensor_t *call(tensor_t *const *in, int n, void *user) {
    one_t f;
    (void)n;
    memcpy(&f, user, sizeof f);
    return f(in[0]);
}
static void check_gradients(const char *name, one_t f, tensor_t *x) {
    tensor_t *v = tensor_requires_grad_(x, 1);
    CHECK_MSG(tensor_gradcheck(call, &f, &v, 1, 1e-6, 1e-5, 1e-3) == 0, "%s: %s", name, tensor_error_text());
    tensor_clear_error();
    CHECK_MSG(tensor_gradgradcheck(call, &f, &v, 1, 1e-6, 1e-5, 1e-3) == 0, "%s, second order: %s", name,
              tensor_error_text());
    tensor_clear_error();
}
static void gradients(void) {
    static const struct {
        const char *name;
        one_t f;
    } list[] = {
#define G(f) {#f, f}
        G(rpow_of), G((tensor_frac)), G((tensor_deg2rad)), G((tensor_digamma)), G(logit_eps), G(lerp_half),
        G(clamp_both),
        G(fmax_of), G(fmin_of), G(ldexp_of), G(digamma_in_place), G(lerp_in_place), G(nan_of)};
    int k;
    for (k = 0; k < COUNT(list); k++) {
        tensor_t *strided = tensor_transpose(tensor_reshape(X(.6, 9, 1.3, 2.3, 9, .7), 2, 3), 0, 1);
        check_gradients(list[k].name, list[k].f, X(0.6, 1.3, 1.9, 2.7));
        check_gradients(list[k].name, list[k].f, tensor_detach(tensor_slice(strided, 0, 0, 3, 2)));
    }
    { // ties and replaced values as in PyTorch
        tensor_t *x = tensor_requires_grad_(X(1, 2, 3, NANF), 1);
        tensor_t *lo = tensor_requires_grad_(X(1, 3, 0, 0), 1);
        tensor_backward(tensor_sum(tensor_clamp_tensor(x, lo, NULL)));
        IS(0, tensor_grad(x), 1, 0, 1, 1);
        IS(0, tensor_grad(lo), 0, 1, 0, 0);
        x = tensor_requires_grad_(X(1, 2, 3, NANF), 1);
        tensor_backward(tensor_sum(tensor_nan_to_num(x, 0, 0, 0)));
        IS(0, tensor_grad(x), 1, 1, 1, 0);
        x = tensor_requires_grad_(X(0, 1), 1);
        tensor_backward(tensor_sum(tensor_heaviside(tensor_detach(x), x)));
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, NULL); // nothing was recorded
    }
}

// ---- activations ----

static void activation_values(void) {
    const double e = 1e-15;
    tensor_t *x = X(-3.5, -1, -.5, 0, .5, 1, 3.5, INF, NANF), *a, *b, *h;
    IS(0, tensor_relu6(x), 0, 0, 0, 0, 0.5, 1, 3.5, 6, NANF);
    IS(0, tensor_hardtanh(x, -1, 2), -1, -1, -.5, 0, .5, 1, 2, 2, NANF);
    IS(e, tensor_hardswish(x), -0.0, -1 / 3.0, -1.25 / 6, 0, 1.75 / 6, 2 / 3.0, 3.5, INF, NANF);
    IS(e, tensor_hardsigmoid(x), 0, 1 / 3.0, 2.5 / 6, 0.5, 3.5 / 6, 2 / 3.0, 1, 1, NANF);
    IS(e, tensor_mish(X(-4, -1, 0, 0.5, 1, 30, INF)), -0.07259174079202535, -0.30340146137410895, 0,
       0.3752452113048951, 0.8650983882673103, 30, INF);
    h = tensor_mish(tensor_to(X(-100, 50, 90, INF), TENSOR_F32)); // e^x overflows
    IS(1e-7, h, 0, 50, 90, INF);
    IS(e, tensor_selu(x), -1.705009340957283, -1.1113307378125625, -0.6917581878028713, 0, 0.5253504936777402,
       1.0507009873554805, 3.677453455744182, INF, NANF);
    IS(e, tensor_celu(x, 2), -1.6524521130991099, -0.7869386805747332, -0.44239843385719024, 0, 0.5, 1, 3.5,
       INF, NANF);
    IS(e, tensor_softsign(x), -0.7777777777777778, -0.5, -1 / 3.0, 0, 1 / 3.0, 0.5, 0.7777777777777778, NANF,
       NANF);
    IS(e, tensor_tanhshrink(x), -2.501822102388801, -0.23840584404423515, -0.03788284273999021, 0,
       0.03788284273999021, 0.23840584404423515, 2.501822102388801, INF, NANF);
    IS(0, tensor_hardshrink(x, 0.5), -3.5, -1, 0, 0, 0, 1, 3.5, INF, NANF);
    IS(1e-300, tensor_softshrink(x, 0.5), -3, -0.5, 0, 0, 0, 0.5, 3, INF, NANF);
    IS(0, tensor_threshold(x, 0.5, 9), 9, 9, 9, 9, 9, 1, 3.5, INF, NANF);
    IS(e, tensor_rrelu(x, 1 / 8.0, 1 / 3.0, 0), -0.8020833333333333, -0.22916666666666666,
       -0.11458333333333333, 0, 0.5, 1, 3.5, INF, NANF);
    IS(e, tensor_glu(tensor_reshape(X(1, 2, 3, 4), 2, 2), 1), 0.8807970779778823, 2.9460413701137256);
    IS(e, tensor_glu(tensor_reshape(X(1, 2, 3, 4), 2, 2), -2), 1 / (1 + exp(-3.)), 2 / (1 + exp(-4.)));
    CHECK(tensor_size(tensor_glu(tensor_ones(4, 0, 6), 2), 2) == 3);
    IS(e, tensor_softmin(X(1, 2, 3), 0), 0.6652409557748218, 0.2447284710547976, 0.09003057317038045);
    a = tensor_reshape(X(-1, 2, -3, 4), 2, 2);
    IS(e, tensor_prelu(a, X(.1, .5)), -0.1, 2, -0.30000000000000004, 4);
    IS(e, tensor_prelu(tensor_transpose(a, 0, 1), X(.1, .5)), -0.1, -1.5, 2, 4);
    IS(e, tensor_prelu(X(-1, 2), X(.25)), -0.25, 2);
    IS(e, tensor_prelu(tensor_scalar(-2, TENSOR_F64), X(.25)), -0.5);
    a = tensor_reshape(X(1, 2, 2, 0, 0, 0), 2, 3), b = tensor_reshape(X(3, 4, -1, 2, 1, 1), 2, 3);
    IS(e, tensor_normalize(a, 2, 1, 1e-12), 1 / 3.0, 2 / 3.0, 2 / 3.0, 0, 0, 0);
    IS(e, tensor_normalize(a, 1, 0, 1e-12), 1, 1, 1, 0, 0, 0);
    IS(e, tensor_normalize(b, INF, 1, 1e-12), 0.75, 1, -0.25, 1, 0.5, 0.5);
    IS(e, tensor_normalize(b, 3, 1, 1e-12), 0.6645464039745458, 0.886061871966061, -0.22151546799151525,
       0.9283177667225557, 0.46415888336127786, 0.46415888336127786);
    IS(e, tensor_cosine_similarity(a, b, 1, 1e-8), 0.588348405414552, 0);
    IS(e, tensor_cosine_similarity(a, b, 0, 1e-8), 0.8320502943378437, 0.9701425001453319,
       -0.7071067811865475);
    IS(e, tensor_cosine_similarity(tensor_narrow(a, 0, 0, 1), b, 1, 1e-8), 0.588348405414552,
       0.816496580927726);
    IS(e, tensor_pairwise_distance(a, b, 2, 1e-6, 0), 4.123105383082392, 2.4494881097900842);
    IS(e, tensor_pairwise_distance(a, b, 1, 1e-6, 1), 6.999999000000001, 3.999997);
    IS(e, tensor_pairwise_distance(a, b, 0, 1e-6, 0), 3, 3);
    IS(e, tensor_pairwise_distance(a, b, INF, 1e-6, 0), 3.000001, 1.999999);
    // halves are computed in f32 and rounded once
    h = tensor_to(X(-1.3, 0.7, -0.2, 2.9), TENSOR_F16);
    CHECK(tensor_equal(tensor_selu(h), tensor_to(tensor_selu(tensor_to(h, TENSOR_F32)), TENSOR_F16)));
    CHECK(tensor_equal(tensor_celu(h, 3), tensor_to(tensor_celu(tensor_to(h, TENSOR_F32), 3), TENSOR_F16)));
    CHECK(tensor_equal(tensor_glu(h, 0), tensor_to(tensor_glu(tensor_to(h, TENSOR_F32), 0), TENSOR_F16)));
    CHECK(tensor_dtype(tensor_cosine_similarity(h, h, 0, 1e-8)) == TENSOR_F16);
    CHECK(tensor_dtype(tensor_pairwise_distance(h, h, 2, 0, 0)) == TENSOR_F16);
    // no elements, no dims
    CHECK(tensor_numel(tensor_selu(tensor_ones(0, 3))) == 0);
    CHECK(tensor_ndim(tensor_softsign(tensor_scalar(1, TENSOR_F32))) == 0);
    CHECK_POISON(tensor_celu(x, 0), TENSOR_ERR_SHAPE, "celu: alpha must not be 0");
    CHECK_POISON(tensor_softshrink(x, -1), TENSOR_ERR_SHAPE, "softshrink: lambd");
    CHECK(tensor_equal(tensor_hardshrink(a, -1), a));       // as PyTorch
    CHECK_POISON(tensor_hardtanh(x, 2, 1), TENSOR_ERR_SHAPE, "hardtanh: lo 2 is above hi 1");
    CHECK_POISON(tensor_rrelu(x, 0.5, 0.1, 0), TENSOR_ERR_SHAPE, "rrelu: lower");
    CHECK_POISON(tensor_glu(x, 0), TENSOR_ERR_SHAPE, "glu: x [9] must have dim 0, of even size");
    CHECK_POISON(tensor_glu(x, 1), TENSOR_ERR_INDEX, "glu: x [9] must have dim 1");
    CHECK_POISON(tensor_prelu(a, X(1, 2)), TENSOR_ERR_SHAPE, "must be [1] or have the 3 channels");
    CHECK_POISON(tensor_prelu(a, NULL), TENSOR_ERR_OWNER, "prelu: argument weight");
    CHECK_POISON(tensor_selu(tensor_ones_of(TENSOR_I8, 2)), TENSOR_ERR_DTYPE, "selu: x [2] is i8");
    CHECK_POISON(tensor_normalize(x, 2, 1, 1e-12), TENSOR_ERR_INDEX, "dim 1");
    CHECK_POISON(tensor_cosine_similarity(a, x, 0, 1e-8), TENSOR_ERR_SHAPE, "do not broadcast");
    x = tensor_to(x, TENSOR_I64);
    CHECK_POISON(tensor_pairwise_distance(a, x, 2, 0, 0), TENSOR_ERR_DTYPE, "b [9] is i64");
}
static tensor_t *celu_of(tensor_t *x) { return tensor_celu(tensor_sub_scalar(x, 1.5), 0.7); }
static tensor_t *selu_of(tensor_t *x) { return tensor_selu(tensor_sub_scalar(x, 1.5)); }
static tensor_t *hardshrink_of(tensor_t *x) { return tensor_square(tensor_hardshrink(x, 1)); }
static tensor_t *softshrink_of(tensor_t *x) { return tensor_square(tensor_softshrink(x, 1)); }
static tensor_t *threshold_of(tensor_t *x) { return tensor_square(tensor_threshold(x, 1, 5)); }
static tensor_t *rrelu_of(tensor_t *x) { return tensor_rrelu(tensor_sub_scalar(x, 1.5), 0.1, 0.2, 0); }
static tensor_t *glu_of(tensor_t *x) { return tensor_glu(x, 0); }
static tensor_t *softmin_of(tensor_t *x) { return tensor_softmin(x, 0); }
static tensor_t *relu6_of(tensor_t *x) { return tensor_square(tensor_relu6(tensor_mul_scalar(x, 3))); }
static tensor_t *prelu_of(tensor_t *x) {
    return tensor_prelu(tensor_sub_scalar(x, 1.5), tensor_select(tensor_reshape(x, -1), 0, 0));
}
static tensor_t *normalize_of(tensor_t *x) { return tensor_normalize(x, 3, 0, 1e-12); }
static tensor_t *cosine_of(tensor_t *x) { return tensor_cosine_similarity(x, tensor_sin(x), 0, 1e-8); }
static tensor_t *distance_of(tensor_t *x) { return tensor_pairwise_distance(x, tensor_sin(x), 2, 1e-6, 1); }
static tensor_t *gumbel_of(tensor_t *x) {
    tensor_manual_seed(3);
    return tensor_gumbel_softmax(x, 0.7, 0, 0);
}
static tensor_t *drop_of(tensor_t *x) {
    tensor_manual_seed(3);
    x = tensor_reshape(tensor_reshape(x, -1), 2, 2);
    tensor_t *y = tensor_rrelu(tensor_neg(x), .1, .9, 1);
    return tensor_add(tensor_dropout1d(x, 0.5, 1), tensor_alpha_dropout(y, 0.3, 1));
}
static void activation_gradients(void) {
    static const struct {
        const char *name;
        one_t f;
    } list[] = {
        G((tensor_softsign)), G((tensor_tanhshrink)), G(celu_of), G(selu_of), G(hardshrink_of),
        G(softshrink_of), G(threshold_of), G(rrelu_of), G(glu_of), G(softmin_of), G(relu6_of),
        G(prelu_of), G(normalize_of),
        G(cosine_of), G(distance_of), G(gumbel_of), G(drop_of)};
    int k;
    tensor_t *x = tensor_requires_grad_(X(-3, -1, 0, 1, 3, 6, NANF), 1), *y;
    for (k = 0; k < COUNT(list); k++) {
        tensor_t *strided = tensor_transpose(tensor_reshape(X(.6, 9, 1.3, 2.3, 9, .7), 2, 3), 0, 1);
        check_gradients(list[k].name, list[k].f, X(0.6, 1.3, 1.9, 2.7));
        check_gradients(list[k].name, list[k].f, tensor_detach(tensor_slice(strided, 0, 0, 3, 2)));
    }
    // at the corners, as PyTorch
#define CORNERS(y_, ...)                                                                                     \
    y = y_;                                                                                                  \
    tensor_set_grad(x, NULL);                                                                                \
    tensor_backward(tensor_sum(y));                                                                          \
    IS(1e-15, tensor_grad(x), __VA_ARGS__)
    CORNERS(tensor_relu6(x), 0, 0, 0, 1, 1, 0, 1);
    CORNERS(tensor_hardtanh(x, -1, 1), 0, 0, 1, 0, 0, 0, 1);
    CORNERS(tensor_hardswish(x), 0, 1 / 6.0, 0.5, 5 / 6.0, 1, 1, 1);
    CORNERS(tensor_hardsigmoid(x), 0, 1 / 6.0, 1 / 6.0, 1 / 6.0, 0, 0, 0);
    CORNERS(tensor_celu(x, 2), exp(-1.5), exp(-.5), 1, 1, 1, 1, 1);
    CORNERS(tensor_softshrink(x, 1), 1, 0, 0, 0, 1, 1, 1);
    CORNERS(tensor_threshold(x, 1, 3), 0, 0, 0, 0, 1, 1, 1);
}
static void random_activations(void) {
    tensor_t *x = tensor_randn(100, 1000), *y, *m, *v;
    int k;
    tensor_manual_seed(7);
    x = tensor_randn(100, 1000);
    y = tensor_alpha_dropout(x, 0.3, 1); // mean 0 and variance 1 stay
    CHECK_NEAR(tensor_item(tensor_mean(y)), 0, 0.02);
    CHECK_NEAR(tensor_item(tensor_var(y, 1)), 1, 0.02);
    CHECK(tensor_alpha_dropout(x, 0.3, 0) == x && tensor_alpha_dropout(x, 0, 1) == x);
    CHECK(tensor_item(tensor_norm(tensor_alpha_dropout(x, 1, 1))) == 0);
    y = tensor_rrelu(x, 0.1, 0.5, 1);
    v = tensor_masked_select(tensor_div(y, x), tensor_lt_scalar(x, 0));
    CHECK(tensor_item(tensor_min(v)) >= 0.0999 && tensor_item(tensor_max(v)) <= 0.5001);
    CHECK_NEAR(tensor_item(tensor_mean(v)), 0.3, 0.003);
    CHECK(tensor_equal(tensor_relu(y), tensor_relu(x)));
    y = tensor_dropout2d(tensor_ones(40, 50, 3, 2), 0.25, 1); // a channel is dropped whole
    m = tensor_reshape(y, 2000, 6);
    CHECK(tensor_equal(tensor_amax_dim(m, 1, 0), tensor_amin_dim(m, 1, 0)));
    CHECK_NEAR(tensor_item(tensor_mean(y)), 1, 0.05);
    CHECK_NEAR(tensor_item(tensor_max(y)), 1 / 0.75, 1e-6);
    y = tensor_dropout1d(tensor_ones(500, 4), 0.5, 1);
    CHECK(tensor_equal(tensor_amax_dim(y, 1, 0), tensor_amin_dim(y, 1, 0)));
    y = tensor_reshape(tensor_dropout3d(tensor_ones(300, 2, 2, 2), 0.5, 1), 300, 8);
    CHECK(tensor_equal(tensor_amax_dim(y, 1, 0), tensor_amin_dim(y, 1, 0)));
    CHECK_NEAR(tensor_item(tensor_mean(y)), 1, 0.2);
    for (k = 0; k < 2; k++) {
        tensor_t *logits = tensor_log(tensor_to(X(.1, .2, .7), TENSOR_F32));
        logits = tensor_requires_grad_(tensor_clone(tensor_expand(logits, 20000, 3)), 1);
        y = tensor_gumbel_softmax(logits, 1, k, -1);
        CHECK_NEAR(tensor_item(tensor_norm(tensor_sub_scalar(tensor_sum_dim(y, 1, 0), 1))), 0, 1e-3);
        if (!k) continue;
        m = tensor_mean_dim(y, 0, 0); // one-hot, with the frequencies of the softmax
        CHECK_NEAR(((const float *)tensor_data(m))[0], 0.1, 0.01);
        CHECK_NEAR(((const float *)tensor_data(m))[2], 0.7, 0.015);
        CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(y, tensor_round(y))))) < 1e-6);
        CHECK(tensor_backward(tensor_sum(tensor_square(y))) == 0 && tensor_grad(logits) != NULL);
    }
    if (tensor_set_num_threads(4)) tensor_clear_error(); // built without threads
    tensor_manual_seed(5);
    y = tensor_rrelu(x, 0.1, 0.5, 1);
    tensor_set_num_threads(1);
    tensor_manual_seed(5);
    CHECK(tensor_equal(y, tensor_rrelu(x, 0.1, 0.5, 1)));
    CHECK_POISON(tensor_alpha_dropout(x, 1.5, 1), TENSOR_ERR_SHAPE, "alpha_dropout: p must be in 0..1");
    CHECK_POISON(tensor_dropout2d(x, 0.5, 1), TENSOR_ERR_SHAPE, "x [100,1000] must have 3 to 4 dims");
    CHECK_POISON(tensor_dropout1d(x, -1, 1), TENSOR_ERR_SHAPE, "dropout1d: p -1");
    CHECK(tensor_dropout1d(x, 0.5, 0) == x);
}
static void modules(void) {
    tensor_t *x = tensor_reshape(tensor_to(X(-2, -.5, .5, 2), TENSOR_F32), 2, 2), *w, *y;
    nn_module_t *m;
    char text[100];
#define MODULE(make, print, want)                                                                            \
    m = make;                                                                                                \
    nn_to_string(m, text, sizeof text);                                                                      \
    CHECK_TEXT(text, print);                                                                                 \
    CHECK_MSG(tensor_equal(nn_forward(m, x), want), "%s", print);                                            \
    nn_free(m)
    MODULE(nn_relu6(), "ReLU6()", tensor_relu6(x));
    MODULE(nn_hardswish(), "Hardswish()", tensor_hardswish(x));
    MODULE(nn_hardsigmoid(), "Hardsigmoid()", tensor_hardsigmoid(x));
    MODULE(nn_hardtanh(-2, 3), "Hardtanh(min_val=-2.0, max_val=3.0)", tensor_hardtanh(x, -2, 3));
    MODULE(nn_mish(), "Mish()", tensor_mish(x));
    MODULE(nn_selu(), "SELU()", tensor_selu(x));
    MODULE(nn_celu(2), "CELU(alpha=2.0)", tensor_celu(x, 2));
    MODULE(nn_softsign(), "Softsign()", tensor_softsign(x));
    MODULE(nn_glu(1), "GLU(dim=1)", tensor_glu(x, 1));
    MODULE(nn_softmin(1), "Softmin(dim=1)", tensor_softmin(x, 1));
    MODULE(nn_tanhshrink(), "Tanhshrink()", tensor_tanhshrink(x));
    MODULE(nn_hardshrink(0.5), "Hardshrink(0.5)", tensor_hardshrink(x, 0.5));
    MODULE(nn_softshrink(0.2), "Softshrink(0.2)", tensor_softshrink(x, 0.2));
    MODULE(nn_threshold(0.1, 20), "Threshold(threshold=0.1, value=20.0)", tensor_threshold(x, 0.1, 20));
    MODULE(nn_eval(nn_rrelu(0.125, 0.25)), "RReLU(lower=0.125, upper=0.25)", tensor_rrelu(x, 0.125, 0.25, 0));
    MODULE(nn_logsigmoid(), "LogSigmoid()", tensor_logsigmoid(x));
    MODULE(nn_eval(nn_dropout1d(0.5)), "Dropout1d(p=0.5, inplace=False)", x);
    MODULE(nn_eval(nn_alpha_dropout(0.2)), "AlphaDropout(p=0.2, inplace=False)", x);
    MODULE(nn_softplus(1, 20), "Softplus(beta=1.0, threshold=20.0)", tensor_softplus(x, 1, 20));
    MODULE(nn_gelu_tanh(), "GELU(approximate='tanh')", tensor_gelu_tanh(x));
    m = nn_prelu(2, 0.25);
    nn_to_string(m, text, sizeof text);
    CHECK_TEXT(text, "PReLU(num_parameters=2)");
    w = nn_get(m, "weight");
    CHECK(tensor_size(w, 0) == 2 && tensor_requires_grad(w));
    y = nn_forward(m, x);
    IS(0, y, -0.5, -0.125, 0.5, 2);
    tensor_backward(tensor_sum(y));
    IS(0, tensor_grad(w), -2, -0.5);
    nn_free(m);
    CHECK(nn_prelu(0, 0.25) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "prelu: num_parameters must be > 0 (got 0)");
    CHECK(nn_alpha_dropout(2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "alpha_dropout: p must be in 0..1");
    m = nn_dropout2d(0.5);
    y = nn_forward(m, tensor_ones(2, 3, 4, 5));
    CHECK(tensor_item(tensor_max(y)) == 2 || tensor_item(tensor_max(y)) == 0);
    nn_free(m);
}

// Where a formula of school is not good enough.
static void exact_ends(void) {
    tensor_t *big = tensor_full(1e8, 1), *one = tensor_ones(1), *a =
        tensor_requires_grad_(tensor_arange(1, 3, 1, TENSOR_F32), 1),
             *b = tensor_requires_grad_(tensor_arange(0, 2, 1, TENSOR_F32), 1);
    CHECK(tensor_item(tensor_lerp_scalar(big, one, 1)) == 1 &&
          tensor_item(tensor_lerp_scalar(one, big, 0)) == 1);
    CHECK(tensor_item(tensor_lerp_scalar(tensor_full(-INFINITY, 1), one, 0.75)) == -INFINITY);
    CHECK(tensor_backward(tensor_item(tensor_sum(tensor_isinf(tensor_div_mode(a, b, "trunc")))) == 1
                              ? tensor_sum(tensor_at(tensor_div_mode(a, b, "trunc"), "1:")) : NULL) == 0);
    CHECK(tensor_item(tensor_norm(tensor_grad(a))) == 0 && tensor_item(tensor_norm(tensor_grad(b))) == 0);
    tensor_set_grad(a, NULL);
    CHECK(tensor_backward(tensor_norm_p(a, 0)) == 0 && tensor_item(tensor_norm(tensor_grad(a))) == 0);
    CHECK_POISON(tensor_masked_fill(tensor_ones(2, 3), tensor_zeros_of(TENSOR_BOOL, 5), 1), TENSOR_ERR_SHAPE,
                 "masked_fill: mask [5] does not broadcast to x [2,3]");
    CHECK_POISON(tensor_floor_divide_scalar(tensor_zeros_of(TENSOR_I64, 3), 0), TENSOR_ERR_INDEX,
                 "floor_divide_scalar: integer division by zero at element 0");
}

// Every half, and floats of all exponents, NaN with its payload too: the same bits whatever converts them.
static void conversions(void) {
    enum { N = 1 << 18 };
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
    static const tensor_dtype_t dtypes[] = {TENSOR_F16, TENSOR_BF16, TENSOR_BOOL};
    uint16_t *halves = (uint16_t *)malloc(65536 * sizeof *halves);
    uint32_t *floats = (uint32_t *)malloc(N * sizeof *floats);
    tensor_t *x, *bytes;
    uint64_t want = 0, h;
    int i, d;
    CHECK(halves && floats);
    if (!halves || !floats) return;
    for (i = 0; i < 65536; i++) halves[i] = (uint16_t)i;
    for (i = 0; i < N; i++) floats[i] = (uint32_t)i * 16411u;
    x = tensor_from(floats, TENSOR_F32, N);
    bytes = tensor_from(halves, TENSOR_U8, 2 * 65536);
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_cpu(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        h = test_hash(TEST_HASH, tensor_to(bytes, TENSOR_F32));
        for (d = 0; d < 3; d++) {
            if (d < 2) h = test_hash(h, tensor_to(tensor_from(halves, dtypes[d], 65536), TENSOR_F32));
            h = test_hash(h, tensor_to(x, dtypes[d]));
        }
        if (!want) want = h;
        CHECK_MSG(h == want, "conversions differ on %s", isas[i]);
    }
    tensor_set_cpu(NULL);
    free(halves), free(floats);
}

// Roots of the smallest numbers and one over them, where 1/x is none.
static void small_roots(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
    static const float v[] = {1e-40f, 1.4e-45f, 2e-39f, 1e-38f, 0.0f, -0.0f, 9, 4};
    tensor_t *x = tensor_from(v, TENSOR_F32, COUNT(v)), *d = tensor_to(x, TENSOR_F64), *g;
    int i, k;
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_cpu(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        for (k = 0; k < 2; k++) {
            tensor_t *y = tensor_pow_scalar(x, k ? -0.5 : 0.5), *want = tensor_pow_scalar(d, k ? -0.5 : 0.5);
            CHECK_MSG(tensor_allclose(tensor_to(y, TENSOR_F64), want, 1e-6, 1e-8), "%s", isas[i]);
        }
        g = tensor_requires_grad_(tensor_full(1e-40, 3), 1);
        tensor_backward(tensor_sum(tensor_pow_scalar(g, 0.5)));
        CHECK_MSG(fabs(tensor_item(tensor_max(tensor_grad(g))) / 5e19 - 1) < 1e-4, "%s", isas[i]);
    }
    tensor_set_cpu(NULL);
}

// Results of 32 MB and more go past the caches: every element, their ends and their neighbours, in each
// instruction set, on one thread and two; in place and at odd places they do not.
static void large_is(int line, tensor_t *y, double a, double b) {
    const float *p = (const float *)tensor_data(y);
    int64_t i, n = tensor_numel(y), wrong = 0;
    for (i = 0; p && i < n; i++) wrong += p[i] != (float)(a * (double)(i % 1021) + b);
    CHECK_MSG(p && wrong == 0, "line %d: %d wrong elements", line, (int)wrong);
}
static void large_results(void) {
    static const char *const cpus[] = {NULL, "avx2", "sse2"};
    int64_t n = (1 << 23) + 37, i;
    int k, threads;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_zeros(n), *room = tensor_zeros(n + 64), *y;
    float *p = (float *)tensor_data_mut(x);
    for (i = 0; p && i < n; i++) p[i] = (float)(i % 1021);
    for (k = 0; k < COUNT(cpus); k++) {
        if (tensor_set_cpu(cpus[k]) != TENSOR_OK) {
            tensor_clear_error();
            continue;
        }
        for (threads = 1; threads <= 2; threads++) {
            tensor_scope_t inner = tensor_scope_begin();
            if (tensor_set_num_threads(threads) != TENSOR_OK) tensor_clear_error();
            large_is(__LINE__, tensor_add(x, x), 2, 0);
            large_is(__LINE__, tensor_add_scalar(x, 3), 1, 3);
            for (i = 16; i <= 17; i++) {
                tensor_fill_(room, -7);
                tensor_copy_(y = tensor_narrow(room, 0, i, n), x);
                p = (float *)tensor_data_mut(room);
                CHECK(p[i - 1] == -7 && p[i + n] == -7);
                large_is(__LINE__, y, 1, 0);
                large_is(__LINE__, tensor_add_(y, x), 2, 0);
            }
            tensor_scope_end(inner);
        }
    }
    tensor_set_num_threads(1);
    tensor_set_cpu(NULL);
    tensor_requires_grad_(x, 1);
    tensor_backward(tensor_sum(tensor_mul(x, x)));
    large_is(__LINE__, tensor_grad(x), 2, 0);
    tensor_requires_grad_(x, 0);
#if defined(__linux__) && defined(__GNUC__)
    {   // equal places of large blocks do not share the sets of a cache
        uintptr_t first = (uintptr_t)tensor_data(tensor_zeros(1 << 20)) % (1 << 17), apart = 0;
        for (k = 0; k < 3; k++) apart += (uintptr_t)tensor_data(tensor_zeros(1 << 20)) % (1 << 17) != first;
        CHECK(apart > 0);
    }
#endif
    tensor_scope_end(scope);
    CHECK_OK();
}

// The quotient of remainder's gradient is the one of its value: 5.61f / 0.33f rounds to 17, but is below.
static void remainder_quotient(void) {
    tensor_t *a = tensor_full(5.61f, 2), *b = tensor_requires_grad_(tensor_full(0.33f, 2), 1);
    tensor_backward(tensor_sum(tensor_remainder(a, b)));
    CHECK(tensor_equal(tensor_grad(b), tensor_full(-16, 2)));
}

// any and all of u8 are u8, of every other dtype bool.
static void any_of_bytes(void) {
    tensor_t *x = tensor_to(tensor_full(7, 2, 3), TENSOR_U8);
    CHECK(tensor_dtype(tensor_any(x)) == TENSOR_U8 && tensor_item(tensor_any(x)) == 1);
    CHECK(tensor_dtype(tensor_all_dim(x, 1, 0)) == TENSOR_U8);
    CHECK(tensor_item(tensor_sum(tensor_all_dim(x, 1, 0))) == 2);
    CHECK(tensor_dtype(tensor_any(tensor_to(x, TENSOR_I8))) == TENSOR_BOOL);
}

int main(void) {
    RUN(small_roots);
    RUN(small_integers);
    RUN(conversions);
    RUN(unary_values);
    RUN(binary_values);
    RUN(dtypes_of_numbers);
    RUN(in_place_values);
    RUN(powers);
    RUN(neighbours);
    RUN(gradients);
    RUN(activation_values);
    RUN(activation_gradients);
    RUN(random_activations);
    RUN(modules);
    RUN(remainder_quotient);
    RUN(any_of_bytes);
    RUN(exact_ends);
    RUN(large_results);
    return test_report();
}

// composed.c - pointwise functions made of other rows, in place and with numbers: literal values from
// PyTorch 2.15, ends where a formula of school is not good enough, gradients
#include "elements_are.h"

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
    IS(0, tensor_polygamma(1, X(-INF, INF, 0, -2)), NANF, 0, INF, INF);
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
    CHECK(!tensor_allclose(X(NANF, 1, INF), X(NANF, 1 + 1e-6, INF), 1e-5, 1e-8));
    CHECK(tensor_allclose(X(NANF, 1, INF), X(NANF, 1 + 1e-6, INF), 1e-5, 1e-8, .equal_nan = 1));
    CHECK(!tensor_allclose(X(NANF, 1, INF), X(1, NANF, INF), 1e-5, 1e-8, .equal_nan = 1));
    CHECK(!tensor_allclose(X(NANF, 1, INF), X(NANF, 1.1, INF), 1e-5, 1e-8, .equal_nan = 1));
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
    CHECK_POISON(tensor_heaviside(u, i), TENSOR_ERR_DTYPE,
                 "heaviside: values [5] is i8, must be i16 as x [4]");
    CHECK_POISON(tensor_isclose(a, i, 0, 0, 0), TENSOR_ERR_DTYPE,
                 "isclose: b [5] is i8, must be f64 as a [14]");
    CHECK_POISON(tensor_isclose(a, b, -1, 0, 0), TENSOR_ERR_SHAPE, "isclose: rtol -1");
    CHECK_POISON(tensor_clamp_tensor(a, NULL, NULL), TENSOR_ERR_SHAPE, "clamp_tensor: lo and hi");
    CHECK_POISON(tensor_bitwise_left_shift_scalar(a, 1), TENSOR_ERR_DTYPE,
                 "bitwise_left_shift_scalar: x [14] is f64");
    CHECK_POISON(tensor_bitwise_and_scalar(i, 0.5), TENSOR_ERR_DTYPE, "bitwise_and_scalar: x [5] is f32");
    CHECK_POISON(tensor_fmax(a, u), TENSOR_ERR_SHAPE, "fmax: ");
    CHECK_POISON(tensor_hypot(a, u), TENSOR_ERR_SHAPE, "hypot: a [14] and b [4]");
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

// The quotient of remainder's gradient is the one of its value: 5.61f / 0.33f rounds to 17, but is below.
static void remainder_quotient(void) {
    tensor_t *a = tensor_full(5.61f, 2), *b = tensor_requires_grad_(tensor_full(0.33f, 2), 1);
    tensor_backward(tensor_sum(tensor_remainder(a, b)));
    CHECK(tensor_equal(tensor_grad(b), tensor_full(-16, 2)));
}

// The largest element of a row is found wherever it is: e^300 is not a float.
static void largest_anywhere(void) {
    for (int64_t n = 1; n <= 300; n = n * 2 + 1) {
        for (int64_t k = 0; k < n; k++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *x = tensor_zeros(1, n);
            tensor_fill_(tensor_select(x, 1, k), 300);
            tensor_t *label = tensor_full_of(TENSOR_I64, (double)((k + 1) % n), 1);
            CHECK_NEAR(tensor_item(tensor_cross_entropy(x, label)), n > 1 ? 300 : 0, 1e-4);
            tensor_scope_end(scope);
        }
    }
}

// The value of index_fill as a tensor, along each dim; a divisor of 0 at the end of many.
static void ends_of_lists(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 60, 1, TENSOR_F32), 3, 4, 5);
    tensor_t *index = tensor_arange(0, 3, 2, TENSOR_I64), *value = tensor_scalar(-1, TENSOR_F32);
    for (int d = 0; d < 3; d++) {
        CHECK(tensor_equal(tensor_index_fill_tensor(x, d, index, value), tensor_index_fill(x, d, index, -1)));
    }
    for (int64_t n = 1; n < 5000; n = 3 * n + 1) {
        tensor_t *a = tensor_ones_of(TENSOR_I64, n), *b = tensor_ones_of(TENSOR_I64, n);
        tensor_fill_(tensor_select(b, 0, n - 1), 0);
        CHECK_POISON(tensor_floor_divide(a, b), TENSOR_ERR_INDEX, "integer division by zero at element");
    }
}

int main(void) {
    RUN(ends_of_lists);
    RUN(largest_anywhere);
    RUN(unary_values);
    RUN(binary_values);
    RUN(in_place_values);
    RUN(exact_ends);
    RUN(remainder_quotient);
    RUN(gradients);
    return test_report();
}

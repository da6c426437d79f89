// ops_edges.c - values at the edges, on every instruction set: NaN, infinity, signed zeros, overflow, the
// smallest and the largest numbers, empty tensors, ties
#include "literals.h"

static float one_f32(tensor_t *y, int k) {
    return tensor_is_poison(y) ? 12345.f : ((const float *)tensor_data(tensor_contiguous(y)))[k];
}
static void edges_of_isa(void) {
    const float nan = NAN, inf = INFINITY;
    tensor_t *a = F32(nan, 1, -inf, 0, -0.f, inf, 2.5f, -2.5f),
             *b = F32(1, nan, nan, -0.f, 0, -inf, inf, -inf);
    int dtype;
    for (dtype = 0; dtype < 4; dtype++) {
        static const tensor_dtype_t floats[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
        tensor_t *x = tensor_to(a, floats[dtype]), *y = tensor_to(b, floats[dtype]);
        IS(tensor_gt_scalar(tensor_maximum(tensor_narrow(x, 0, 5, 3), tensor_narrow(y, 0, 5, 3)), 2), 1, 1,
           0);
        IS(tensor_isnan(tensor_maximum(x, y)), 1, 1, 1, 0, 0, 0, 0, 0);
        IS(tensor_isnan(tensor_minimum(x, y)), 1, 1, 1, 0, 0, 0, 0, 0);
        IS(tensor_isnan(tensor_clamp(x, -1, 1)), 1, 0, 0, 0, 0, 0, 0, 0);
        IS(tensor_clamp(tensor_narrow(x, 0, 1, 2), 2, -3), -3, -3); // lo > hi gives hi
        IS(tensor_relu(x), NAN, 1, 0, 0, -0.0, INFINITY, 2.5, 0);
        IS(tensor_sign(x), NAN, 1, -1, 0, tensor_item(tensor_sign(tensor_scalar(-0.0, floats[dtype]))), 1, 1,
           -1);
        IS(tensor_abs(x), NAN, 1, INFINITY, 0, 0, INFINITY, 2.5, 2.5);
        IS(tensor_neg(tensor_narrow(x, 0, 3, 3)), -0.0, 0, -INFINITY);
        IS(tensor_isinf(x), 0, 0, 1, 0, 0, 1, 0, 0);
        IS(tensor_isfinite(x), 0, 1, 0, 1, 1, 0, 1, 1);
        IS(tensor_eq(x, x), 0, 1, 1, 1, 1, 1, 1, 1);
        IS(tensor_ne(x, x), 1, 0, 0, 0, 0, 0, 0, 0);
        IS(tensor_lt(x, y), 0, 0, 0, 0, 0, 0, 1, 0);
        IS(tensor_ge(x, y), 0, 0, 0, 1, 1, 1, 0, 1);
        IS(tensor_logical_not(x), 0, 0, 0, 1, 1, 0, 0, 0);
        IS(tensor_to(x, TENSOR_BOOL), 1, 1, 1, 0, 0, 1, 1, 1); // NaN is true
        IS(tensor_where(tensor_isnan(x), y, x), 1, 1, -INFINITY, 0, -0.0, INFINITY, 2.5, -2.5);
        IS(tensor_max(x), NAN), IS(tensor_min(x), NAN), IS(tensor_argmax(x), 0), IS(tensor_argmin(y), 1),
            IS(tensor_sum(x), NAN);
        IS(tensor_argmax(tensor_slice(x, 0, 1, 8, 1)), 4), IS(tensor_argmin(tensor_slice(x, 0, 1, 8, 1)), 1);
        IS(tensor_exp(tensor_narrow(x, 0, 2, 4)), 0, 1, 1, INFINITY);
        IS(tensor_log(tensor_narrow(x, 0, 2, 4)), NAN, -INFINITY, -INFINITY, INFINITY);
        IS(tensor_sqrt(tensor_narrow(x, 0, 2, 4)), NAN, 0, -0.0, INFINITY);
        IS(tensor_tanh(tensor_narrow(x, 0, 2, 4)), -1, 0, -0.0, 1);
        IS(tensor_sigmoid(tensor_narrow(x, 0, 2, 4)), 0, 0.5, 0.5, 1);
        IS(tensor_erf(tensor_narrow(x, 0, 2, 4)), -1, 0, -0.0, 1);
        IS(tensor_isnan(tensor_sin(x)), 1, 0, 1, 0, 0, 1, 0, 0);
        IS(tensor_reciprocal(tensor_narrow(x, 0, 2, 4)), -0.0, INFINITY, -INFINITY, 0);
        IS(tensor_logsumexp(tensor_narrow(x, 0, 2, 1), 0, 0), -INFINITY);
        IS(tensor_logsumexp(tensor_narrow(x, 0, 0, 0), 0, 0), -INFINITY);
        IS(tensor_softmax(tensor_narrow(x, 0, 2, 1), 0), NAN);
        IS(tensor_any(tensor_narrow(x, 0, 0, 1)), 1), IS(tensor_all(tensor_narrow(x, 0, 2, 3)), 0);
    }
    // half to even
    IS(tensor_round(F32(0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 8388609.f, 1e30f)), 0, 2, 2, -0.0, -2, 8388609,
       (double)1e30f);
    IS(tensor_ceil(F32(-0.5f, 0.1f, 8388607.5f)), -0.0, 1, 8388608),
        IS(tensor_floor(F32(-0.5f, 0.9f, -1e30f)), -1, 0, (double)-1e30f);
    IS(tensor_trunc(F32(-1.9f, 1.9f, -0.1f)), -1, 1, -0.0);
    // division: sign of the divisor (floor, remainder), of the dividend (fmod)
    IS(tensor_floor_divide(I32(-7, 7, -7, 7), I32(2, -2, -2, 2)), -4, -4, 3, 3);
    IS(tensor_remainder(I32(-7, 7, -7, 7), I32(3, -3, -3, 3)), 2, -2, -1, 1);
    IS(tensor_fmod(I32(-7, 7, -7, 7), I32(3, -3, -3, 3)), -1, 1, -1, 1);
    IS(tensor_remainder(F32(-7, 7, -7.5f), F32(3, -3, 2)), 2, -2, 0.5),
        IS(tensor_fmod(F32(-7, 7, 5.5f), F32(3, -3, inf)), -1, 1, 5.5);
    IS(tensor_floor_divide(F32(-7, 1, 1, 0), F32(2, 0, -0.f, 0)), -4, INFINITY, -INFINITY, NAN);
    IS(tensor_div(I32(1, -7), I32(2, 2)), 0.5, -3.5), IS(tensor_div(I32(1, 0), I32(0, 0)), INFINITY, NAN);
    // Bessel's waves die out; torch.special has NaN at infinity
    IS(tensor_bessel_j0(F32(inf, -inf)), 0, 0), IS(tensor_bessel_j1(F32(inf, -inf)), 0, 0);
    IS(tensor_bessel_y0(F32(inf)), 0), IS(tensor_bessel_y1(F32(inf)), 0);
    // overflow wraps
    IS(tensor_abs(I32(INT32_MIN, INT32_MAX)), INT32_MIN, INT32_MAX),
        IS(tensor_neg(I32(INT32_MIN)), INT32_MIN);
    IS(tensor_add(I32(INT32_MAX), I32(1)), INT32_MIN), IS(tensor_mul(I32(65536), I32(65537)), 65536);
    IS(tensor_floor_divide(I32(INT32_MIN), I32(-1)), INT32_MIN),
        IS(tensor_remainder(I32(INT32_MIN), I32(-1)), 0), IS(tensor_fmod(I32(INT32_MIN), I32(-1)), 0);
    IS(tensor_eq(tensor_floor_divide(I64S(INT64_MIN), I64S(-1)), I64S(INT64_MIN)), 1),
        IS(tensor_remainder(I64S(INT64_MIN), I64S(-1)), 0);
    IS(tensor_eq(tensor_abs(I64S(INT64_MIN)), I64S(INT64_MIN)), 1),
        IS(tensor_fmod(I64S(INT64_MIN), I64S(-1)), 0);
    IS(tensor_sub(tensor_to(I32(1, 0), TENSOR_U8), tensor_to(I32(2, 255), TENSOR_U8)), 255, 1);
    // pow
    IS(tensor_pow(F32(0, -8, 2, nan, 1, 0, -2), F32(0, 1 / 3.f, -1, 0, nan, -1, 3)), 1, NAN, 0.5, 1, 1,
       INFINITY, -8);
    IS(tensor_pow(I32(2, 1, -1, -1, 0, 3), I32(-1, -5, -1, -2, 0, 4)), 0, 1, -1, 1, 1, 81);
    // float to integer: saturates, NaN gives 0
    a = F32(nan, inf, -inf, 300.7f, -1.5f, 3e9f, -3e9f, 1e19f, 255.9f, -0.9f);
    IS(tensor_to(a, TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX, INT32_MIN, INT32_MAX, 255, 0);
    IS(tensor_to(a, TENSOR_U8), 0, 255, 0, 255, 0, 255, 0, 255, 255, 0);
    IS(tensor_to(a, TENSOR_I64), 0, 9223372036854775807.0, -9223372036854775808.0, 300, -1, (double)3e9f,
       (double)-3e9f, 9223372036854775807.0, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_F64), TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX,
       INT32_MIN, INT32_MAX, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_F16), TENSOR_U8), 0, 255, 0, 255, 0, 255, 0, 255, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_BF16), TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX,
       INT32_MIN, INT32_MAX, 256, 0);
    // f16 and bf16: to nearest even
    IS(tensor_to(F32(65504, 65519.996f, 65520, -65520, 1e-8f, 5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f,
                     2049, 2051, nan, -0.f),
                 TENSOR_F16),
       65504, 65504, INFINITY, -INFINITY, 0, 5.9604644775390625e-8, 0, 5.9604644775390625e-8, 2048, 2052, NAN,
       -0.0);
    IS(tensor_to(tensor_to(F32(65519.996f, 65520), TENSOR_F64), TENSOR_F16), 65504, INFINITY);
    IS(tensor_to(F32(257, 259, 3.4028235e38f, nan, -0.f, 1e-45f), TENSOR_BF16), 256, 260, INFINITY, NAN, -0.0,
       0);
    {
        uint32_t u = 0xFFA5A5A5u; // a signalling negative NaN stays a NaN with its sign
        uint16_t h;
        float f;
        memcpy(&f, &u, 4);
        tensor_copy_out(tensor_to(tensor_from(&f, TENSOR_F32, 1), TENSOR_BF16), &h, 2);
        CHECK_MSG(h == 0xFFE5, "bf16 of a NaN is %04x on %s", h, tensor_isa_name());
        tensor_copy_out(tensor_to(tensor_from(&f, TENSOR_F32, 1), TENSOR_F16), &h, 2);
        CHECK_MSG((h & 0xFE00) == 0xFE00, "f16 of a NaN is %04x on %s", h, tensor_isa_name());
    }
    CHECK(tensor_item(tensor_sum(tensor_ones_of(TENSOR_F16, 70000))) == (double)INFINITY);
    CHECK(tensor_item(tensor_mean(tensor_ones_of(TENSOR_F16, 70000))) == 1);
    CHECK(tensor_item(tensor_sum(tensor_ones(20000000))) == 20000000); // does not stick at 2^24
    // ranges of the exponential functions
    IS(tensor_gt_scalar(tensor_exp(F32(88.7f, -103.f)), 0), 1, 1),
        IS(tensor_exp(F32(89, -104.f)), INFINITY, 0);
    CHECK_NEAR(one_f32(tensor_log1p(F32(1e38f)), 0), log1p(1e38), 1e-4),
        CHECK_NEAR(one_f32(tensor_log1p(F32(1e-20f)), 0), 1e-20, 1e-26);
    CHECK_NEAR(one_f32(tensor_expm1(F32(1e-10f)), 0), 1e-10, 1e-16),
        CHECK_NEAR(one_f32(tensor_tanh(F32(1e-10f)), 0), 1e-10, 1e-16);
    CHECK_NEAR(one_f32(tensor_sin(F32(1e6f)), 0), sin(1e6), 1e-6),
        CHECK_NEAR(one_f32(tensor_cos(F32(1e30f)), 0), cos((double)1e30f), 1e-6);
    CHECK(one_f32(tensor_gelu(F32(-INFINITY)), 0) == 0 &&
          tensor_item(tensor_gelu(tensor_full_of(TENSOR_F64, -INFINITY, 1))) == 0);
    CHECK(one_f32(tensor_gelu(F32(-7)), 0) < 0 &&
          fabs(one_f32(tensor_gelu(F32(-7)), 0) / (-7 * 0.5 * erfc(7 / sqrt(2.0))) - 1) < 1e-5);
    CHECK_NEAR(one_f32(tensor_norm(F32(3e30f, 4e30f)), 0) / 5e30, 1, 1e-6),
        CHECK_NEAR(one_f32(tensor_norm(F32(3e-30f, 4e-30f)), 0) / 5e-30, 1, 1e-6);
    CHECK_NEAR(one_f32(tensor_var(F32(1e4f, 1e4f + 1e-3f, 1e4f - 1e-3f), 1), 0), 9.5367431640625e-7,
               1e-12); // the floats are 1e4 +- 2^-10
    CHECK(one_f32(tensor_softplus(F32(30, -30), 1, 20), 0) == 30 &&
          one_f32(tensor_softplus(F32(30, -30), 1, 20), 1) > 9e-14f);
    CHECK(one_f32(tensor_logsigmoid(F32(-200, 200)), 0) == -200 &&
          one_f32(tensor_logsigmoid(F32(-200, 200)), 1) <= 0);
    IS(tensor_log_softmax(F32(1000, -1000), 0), 0, -2000), IS(tensor_softmax(F32(1000, 1000), 0), 0.5, 0.5);
}
static void edges(void) {
    int isa;
    tensor_t *e = tensor_zeros(0, 3), *t;
    for (isa = 0; isa < COUNT(isas); isa++) {
        if (!isa_there[isa]) { continue; }
        tensor_set_isa(isas[isa]);
        edges_of_isa();
        CHECK_OK();
    }
    tensor_set_isa(NULL);
    IS(tensor_sum(e), 0), IS(tensor_prod(e), 1), IS(tensor_mean(e), NAN), IS(tensor_all(e), 1),
        IS(tensor_any(e), 0), IS(tensor_norm(e), 0);
    IS(tensor_var(e, 1), NAN), IS(tensor_var(F32(1), 1), NAN), IS(tensor_var(F32(1), 0), 0),
        IS(tensor_std(F32(2, 2, 2), 1), 0);
    CHECK(tensor_numel(tensor_amax_dim(e, 1, 0)) == 0 && tensor_ok()); // (0,3).max(1) is empty
    CHECK(tensor_numel(tensor_max_dim(e, 1, 0).values) == 0 && tensor_ok());
    CHECK_POISON(tensor_max(e), TENSOR_ERR_SHAPE, "amax: x [0,3] has no element");
    CHECK_POISON(tensor_amin_dim(e, 0, 0), TENSOR_ERR_SHAPE, "amin_dim: x [0,3]");
    CHECK_POISON(tensor_argmax(e), TENSOR_ERR_SHAPE, "argmax");
    CHECK_POISON(tensor_max_dim(e, 0, 0).values, TENSOR_ERR_SHAPE, "argmax");
    IS(tensor_sum(tensor_to(F32(1, 0, 3), TENSOR_BOOL)), 2);
    IS(tensor_sum(tensor_full_of(TENSOR_U8, 255, 1000)), 255000),
        IS(tensor_sum(tensor_full_of(TENSOR_I32, 2e9, 10)), 2e10);
    IS(tensor_argmax(F32(1, 3, 3, 2)), 1), IS(tensor_argmin(F32(1, 0, 3, 0)), 1),
        IS(tensor_argmax(F32(1, NAN, NAN, 5)), 1);
    IS(tensor_max_dim(F32(1, NAN, 5), 0, 0).values, NAN), IS(tensor_max_dim(F32(1, NAN, 5), 0, 0).indices, 1);
    IS(tensor_cumsum(F32(1, NAN, 1), 0), 1, NAN, NAN);
    t = tensor_matmul(tensor_zeros(2, 0), tensor_zeros(0, 3));
    IS(t, 0, 0, 0, 0, 0, 0);
    // matmul lets NaN and infinity through
    t = tensor_matmul(tensor_reshape(F32(NAN, 0), 1, 2), tensor_reshape(F32(0, 1), 2, 1));
    IS(t, NAN);
    CHECK(tensor_equal(F32(1, 2), F32(1, 2)) && !tensor_equal(F32(NAN), F32(NAN)) &&
          !tensor_equal(F32(1), I32(1)));
    CHECK(tensor_allclose(F32(1, 2), F32(1.000001f, 2), 1e-5, 1e-8) &&
          !tensor_allclose(F32(1), F32(1.1f), 1e-5, 1e-8));
    CHECK(!tensor_allclose(F32(NAN), F32(NAN), 1e-5, 1e-8));
    IS(tensor_one_hot(I64S(1, 0), 3), 0, 1, 0, 1, 0, 0);
    t = tensor_repeat(tensor_ones(1), 3); // new, not a view with stride 0
    CHECK(!tensor_is_poison(tensor_add_scalar_(t, 1)));
    tensor_clear_error();
    t = F32(1, 2);
    CHECK(tensor_data(tensor_repeat(t, 1)) != tensor_data(t));
    CHECK(tensor_item_i64(tensor_scalar(9007199254740992.0, TENSOR_I64)) == 9007199254740992);
    CHECK_MSG(one_f32(tensor_where(tensor_scalar(1, TENSOR_BOOL), F32(1, 2), F32(3, 4)), 1) == 2,
              "where with a 0-d condition");
}

int main(void) {
    RUN(prepare);
    RUN(edges);
    return test_report();
}

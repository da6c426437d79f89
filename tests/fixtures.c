// fixtures.c - replays what PyTorch gave: tests/fixtures/*.safetensors, written by tests/fixtures/generate.py
//
// Each case is one line of a file's metadata (its form: the head of generate.py): inputs with layouts,
// arguments, results, gradients. Shapes and dtypes of results must be equal, elements within the tolerance
// class of the case, NaN only where PyTorch has NaN. An op in the files without a line in OPS fails.
//
//   build/tests/fixtures [-v] [op]      -v prints every mismatch, known ones too; op: that one only
#include "test.h"

enum { MAX_IN = 8, MAX_OUT = 16, MAX_ARGS = 32, MAX_WHY = 64 };

// Tolerance: eps of the dtype * (relative * |want| + scaled * largest finite |want| of the tensor or 1).
// The class "tol" of a case is for its results; its gradients have "gtol", or else `gradient` of the class.
static const struct {
    const char *name;
    double relative, scaled;
    const char *gradient;
} classes[] = {
    {"exact", 0, 0, "exact"}, {"fine", 4, 0, "near"},     {"near", 6, 2, "near"},
    {"sum", 4, 8, "sum"},     {"loose", 16, 16, "loose"},
    {"rough", 256, 256, "rough"},       // of ill-conditioned matrices
};
enum { CLASSES = (int)(sizeof classes / sizeof classes[0]) };

typedef struct arguments_t {
    tensor_t *in[MAX_IN];
    int nin, ni, nf, nout;
    int64_t i[MAX_ARGS];
    double f[MAX_ARGS];
    char s[256];
    tensor_t *out[MAX_OUT];
} arguments_t;

// An option of a call: 0 is 0, not the default.
static int64_t zero_i(int64_t v) {
    return v ? v : TENSOR_ZERO;
}
static double zero_f(double v) {
    return v != 0 ? v : (double)TENSOR_ZERO;
}
static tensor_dtype_t dtype_of(const char *name) {
    int d;
    for (d = 0; d < TENSOR_DTYPE_COUNT; d++)
        if (strcmp(tensor_dtype_name((tensor_dtype_t)d), name) == 0) break;
    return (tensor_dtype_t)d;
}

// ---- the ops: name, and the call by inputs A B C D, integers I(k), numbers F(k), text S ----
#define A a->in[0]
#define B a->in[1]
#define C a->in[2]
#define D a->in[3]
#define I(k) a->i[k]
#define F(k) a->f[k]
#define Z(k) zero_i(a->i[k])
#define DT dtype_of(a->s)
#define DIMS a->i, a->ni
#define COPY tensor_clone(A)
#define REST a->i + 1, a->ni - 1
#define RED(k) .reduction = (tensor_reduction_t)I(k)
// The sizes and strides of as_strided: half of the integers each, then the offset.
#define STRIDED a->i, a->i + a->ni / 2, a->ni / 2, a->i[a->ni - 1]

// X: one result; P: values and indices; N: a number of results.
// clang-format off
#define OPS(X, P, N) \
    X(abs, tensor_abs(A)) X(abs_, tensor_abs_(COPY)) X(acos, tensor_acos(A)) X(asin, tensor_asin(A)) \
    X(atan, tensor_atan(A)) X(bitwise_not, tensor_bitwise_not(A)) X(ceil, tensor_ceil(A)) \
    X(clamp, tensor_clamp(A, F(0), F(1))) X(clamp_, tensor_clamp_(COPY, F(0), F(1))) X(clone, tensor_clone(A)) \
    X(contiguous, tensor_contiguous(A)) X(cos, tensor_cos(A)) X(cosh, tensor_cosh(A)) X(detach, tensor_detach(A)) \
    X(elu, tensor_elu(A, F(0))) X(erf, tensor_erf(A)) X(erfc, tensor_erfc(A)) X(exp, tensor_exp(A)) \
    X(exp2, tensor_exp2(A)) X(exp_, tensor_exp_(COPY)) X(expm1, tensor_expm1(A)) X(floor, tensor_floor(A)) \
    X(gelu, tensor_gelu(A)) X(gelu_tanh, tensor_gelu_tanh(A)) X(isfinite, tensor_isfinite(A)) X(isinf, tensor_isinf(A)) \
    X(isnan, tensor_isnan(A)) X(leaky_relu, tensor_leaky_relu(A, F(0))) X(log, tensor_log(A)) X(log10, tensor_log10(A)) \
    X(log1p, tensor_log1p(A)) X(log2, tensor_log2(A)) X(logical_not, tensor_logical_not(A)) \
    X(logsigmoid, tensor_logsigmoid(A)) X(neg, tensor_neg(A)) X(neg_, tensor_neg_(COPY)) \
    X(reciprocal, tensor_reciprocal(A)) X(relu, tensor_relu(A)) X(relu_, tensor_relu_(COPY)) X(round, tensor_round(A)) \
    X(rsqrt, tensor_rsqrt(A)) X(sigmoid, tensor_sigmoid(A)) X(sigmoid_, tensor_sigmoid_(COPY)) X(sign, tensor_sign(A)) \
    X(silu, tensor_silu(A)) X(sin, tensor_sin(A)) X(sinh, tensor_sinh(A)) X(softplus, tensor_softplus(A, F(0), F(1))) \
    X(sqrt, tensor_sqrt(A)) X(sqrt_, tensor_sqrt_(COPY)) X(square, tensor_square(A)) X(tan, tensor_tan(A)) \
    X(tanh, tensor_tanh(A)) X(tanh_, tensor_tanh_(COPY)) X(to, tensor_to(A, DT)) X(trunc, tensor_trunc(A)) \
    X(add, tensor_add(A, B)) X(add_, tensor_add_(COPY, B)) X(add_scalar, tensor_add_scalar(A, F(0))) \
    X(add_scalar_, tensor_add_scalar_(COPY, F(0))) X(addcdiv, tensor_addcdiv(A, B, C, F(0))) \
    X(addcmul, tensor_addcmul(A, B, C, F(0))) X(addcmul_, tensor_addcmul_(COPY, B, C, F(0))) X(atan2, tensor_atan2(A, B)) \
    X(bitwise_and, tensor_bitwise_and(A, B)) X(bitwise_or, tensor_bitwise_or(A, B)) \
    X(bitwise_xor, tensor_bitwise_xor(A, B)) X(copy_, tensor_copy_(COPY, B)) X(div, tensor_div(A, B)) \
    X(div_, tensor_div_(COPY, B)) X(div_scalar, tensor_div_scalar(A, F(0))) X(div_scalar_, tensor_div_scalar_(COPY, F(0))) \
    X(eq, tensor_eq(A, B)) X(eq_scalar, tensor_eq_scalar(A, F(0))) X(fill_, tensor_fill_(COPY, F(0))) \
    X(floor_divide, tensor_floor_divide(A, B)) X(floor_divide_scalar, tensor_floor_divide_scalar(A, F(0))) \
    X(fmod, tensor_fmod(A, B)) X(fmod_scalar, tensor_fmod_scalar(A, F(0))) X(ge, tensor_ge(A, B)) \
    X(ge_scalar, tensor_ge_scalar(A, F(0))) X(gt, tensor_gt(A, B)) X(gt_scalar, tensor_gt_scalar(A, F(0))) \
    X(le, tensor_le(A, B)) X(le_scalar, tensor_le_scalar(A, F(0))) X(lerp, tensor_lerp(A, B, C)) \
    X(logical_and, tensor_logical_and(A, B)) X(logical_or, tensor_logical_or(A, B)) X(logical_xor, tensor_logical_xor(A, B)) \
    X(lt, tensor_lt(A, B)) X(lt_scalar, tensor_lt_scalar(A, F(0))) X(maximum, tensor_maximum(A, B)) \
    X(maximum_scalar, tensor_maximum_scalar(A, F(0))) X(minimum, tensor_minimum(A, B)) \
    X(minimum_scalar, tensor_minimum_scalar(A, F(0))) X(mul, tensor_mul(A, B)) X(mul_, tensor_mul_(COPY, B)) \
    X(mul_scalar, tensor_mul_scalar(A, F(0))) X(mul_scalar_, tensor_mul_scalar_(COPY, F(0))) X(ne, tensor_ne(A, B)) \
    X(ne_scalar, tensor_ne_scalar(A, F(0))) X(pow, tensor_pow(A, B)) X(pow_scalar, tensor_pow_scalar(A, F(0))) \
    X(remainder, tensor_remainder(A, B)) X(remainder_scalar, tensor_remainder_scalar(A, F(0))) \
    X(rsub_scalar, tensor_rsub_scalar(A, F(0))) X(sub, tensor_sub(A, B)) X(sub_, tensor_sub_(COPY, B)) \
    X(sub_scalar, tensor_sub_scalar(A, F(0))) X(sub_scalar_, tensor_sub_scalar_(COPY, F(0))) X(where, tensor_where(A, B, C)) \
    X(zero_, tensor_zero_(COPY)) \
    X(all, tensor_all(A)) X(all_dim, tensor_all_dim(A, I(0), (int)I(1))) X(amax_dim, tensor_amax_dim(A, I(0), (int)I(1))) \
    X(amin_dim, tensor_amin_dim(A, I(0), (int)I(1))) X(any, tensor_any(A)) X(any_dim, tensor_any_dim(A, I(0), (int)I(1))) \
    X(argmax, tensor_argmax(A)) X(argmax_dim, tensor_argmax_dim(A, I(0), (int)I(1))) X(argmin, tensor_argmin(A)) \
    X(argmin_dim, tensor_argmin_dim(A, I(0), (int)I(1))) X(cumsum, tensor_cumsum(A, I(0))) \
    X(log_softmax, tensor_log_softmax(A, I(0))) X(logsumexp, tensor_logsumexp(A, I(0), (int)I(1))) X(max, tensor_max(A)) \
    P(max_dim, tensor_max_dim(A, I(0), (int)I(1))) X(mean, tensor_mean(A)) \
    X(mean_dim, tensor_mean_dim(A, I(0), (int)I(1))) X(mean_dims, tensor_mean_dims(A, a->i + 1, a->ni - 1, (int)I(0))) \
    X(min, tensor_min(A)) P(min_dim, tensor_min_dim(A, I(0), (int)I(1))) X(norm, tensor_norm(A)) \
    X(norm_dim, tensor_norm_dim(A, I(0), (int)I(1))) X(prod, tensor_prod(A)) \
    X(prod_dim, tensor_prod_dim(A, I(0), (int)I(1))) X(softmax, tensor_softmax(A, I(0))) X(std, tensor_std(A, I(0))) \
    X(std_dim, tensor_std_dim(A, I(0), I(1), (int)I(2))) X(sum, tensor_sum(A)) \
    X(sum_dim, tensor_sum_dim(A, I(0), (int)I(1))) X(sum_dims, tensor_sum_dims(A, a->i + 1, a->ni - 1, (int)I(0))) \
    X(var, tensor_var(A, I(0))) X(var_dim, tensor_var_dim(A, I(0), I(1), (int)I(2))) \
    X(addmm, tensor_addmm(A, B, C, F(0), F(1))) X(bmm, tensor_bmm(A, B)) X(dot, tensor_dot(A, B)) \
    X(matmul, tensor_matmul(A, B)) X(mm, tensor_mm(A, B)) X(mv, tensor_mv(A, B)) X(outer, tensor_outer(A, B)) \
    X(tril, tensor_tril(A, I(0))) X(triu, tensor_triu(A, I(0))) \
    X(arange, tensor_arange(F(0), F(1), F(2), DT)) X(eye, tensor_eye(I(0), I(1))) \
    X(full, tensor_full_n(DIMS, F(0), DT)) X(full_like, tensor_full_like(A, F(0))) \
    X(linspace, tensor_linspace(F(0), F(1), I(0))) X(ones, tensor_ones_n(DIMS, DT)) X(ones_like, tensor_ones_like(A)) \
    X(scalar, tensor_scalar(F(0), DT)) X(zeros, tensor_zeros_n(DIMS, DT)) X(zeros_like, tensor_zeros_like(A)) \
    X(as_strided, tensor_as_strided(A, STRIDED)) X(as_strided_scatter, tensor_as_strided_scatter(A, B, STRIDED)) \
    X(at, tensor_at(A, a->s)) N(chunk, tensor_chunk(A, (int)I(0), I(1), a->out, MAX_OUT)) X(expand, tensor_expand_n(A, DIMS)) \
    X(flatten, tensor_flatten(A, I(0), I(1))) X(mT, tensor_mT(A)) X(movedim, tensor_movedim(A, I(0), I(1))) \
    X(narrow, tensor_narrow(A, I(0), I(1), I(2))) X(permute, tensor_permute_n(A, DIMS)) \
    X(repeat, tensor_repeat_n(A, DIMS)) X(reshape, tensor_reshape_n(A, DIMS)) X(select, tensor_select(A, I(0), I(1))) \
    X(slice, tensor_slice(A, I(0), I(1), I(2), I(3))) N(split, tensor_split(A, I(0), I(1), a->out, MAX_OUT)) \
    X(squeeze, tensor_squeeze(A, I(0))) X(transpose, tensor_transpose(A, I(0), I(1))) \
    X(unsqueeze, tensor_unsqueeze(A, I(0))) X(view, tensor_view_n(A, DIMS)) \
    X(cat, tensor_cat_n(a->in, a->nin, I(0))) X(gather, tensor_gather(A, I(0), B)) \
    X(index_add, tensor_index_add(A, I(0), B, C)) X(index_select, tensor_index_select(A, I(0), B)) \
    X(masked_fill, tensor_masked_fill(A, B, F(0))) X(masked_fill_, tensor_masked_fill_(COPY, B, F(0))) \
    X(masked_select, tensor_masked_select(A, B)) X(one_hot, tensor_one_hot(A, I(0))) \
    X(scatter, tensor_scatter(A, I(0), B, C)) X(scatter_add, tensor_scatter_add(A, I(0), B, C)) \
    X(stack, tensor_stack_n(a->in, a->nin, I(0))) \
    X(adaptive_avg_pool2d, tensor_adaptive_avg_pool2d(A, I(0), I(1))) \
    X(avg_pool2d, tensor_avg_pool2d(A, I(0), .kernel_w = I(1), .stride = I(2), .stride_w = I(3), .padding = I(4), \
        .padding_w = Z(5), .ceil_mode = (int)I(6), .no_count_pad = (int)I(7), .divisor_override = I(8))) \
    X(conv2d, tensor_conv2d(A, B, C, .stride = I(0), .stride_w = I(1), .padding = I(2), .padding_w = Z(3), \
        .dilation = I(4), .dilation_w = I(5), .groups = I(6), .same = (int)I(7))) \
    X(dropout, tensor_dropout(A, F(0), (int)I(0))) \
    X(embedding, tensor_embedding(A, B, .padding_idx = I(0) < 0 ? 0 : Z(0))) \
    X(layer_norm, tensor_layer_norm(A, I(0), B, C, .eps = F(0))) X(linear, tensor_linear(A, B, C)) \
    X(max_pool2d, tensor_max_pool2d(A, I(0), .kernel_w = I(1), .stride = I(2), .stride_w = I(3), .padding = I(4), \
        .padding_w = Z(5), .dilation = I(6), .dilation_w = I(7), .ceil_mode = (int)I(8))) \
    X(scaled_dot_product_attention, tensor_scaled_dot_product_attention(A, B, C, D, .is_causal = (int)I(0), .scale = F(0))) \
    X(binary_cross_entropy, tensor_binary_cross_entropy(A, B, C, RED(0))) \
    X(binary_cross_entropy_with_logits, tensor_binary_cross_entropy_with_logits(A, B, C, D, RED(0))) \
    X(cross_entropy, tensor_cross_entropy(A, B, C, .ignore_index = I(1), .label_smoothing = F(0), RED(0))) \
    X(huber_loss, tensor_huber_loss(A, B, .delta = zero_f(F(0)), RED(0))) \
    X(kl_div, tensor_kl_div(A, B, .log_target = (int)I(1), RED(0))) X(l1_loss, tensor_l1_loss(A, B, RED(0))) \
    X(mse_loss, tensor_mse_loss(A, B, RED(0))) \
    X(nll_loss, tensor_nll_loss(A, B, C, .ignore_index = I(1), RED(0))) \
    X(smooth_l1_loss, tensor_smooth_l1_loss(A, B, .beta = zero_f(F(0)), RED(0)))
// What a header may lack is guarded by one of its names, with the file of its cases.
#ifdef tensor_hardtanh
#define OPS_POINTWISE2(X, P, N) \
    X(acosh, tensor_acosh(A)) X(addcdiv_, tensor_addcdiv_(COPY, B, C, F(0))) X(asinh, tensor_asinh(A)) \
    X(atanh, tensor_atanh(A)) X(bitwise_and_, tensor_bitwise_and_(COPY, B)) \
    X(bitwise_and_scalar, tensor_bitwise_and_scalar(A, F(0))) \
    X(bitwise_and_scalar_, tensor_bitwise_and_scalar_(COPY, F(0))) \
    X(bitwise_left_shift, tensor_bitwise_left_shift(A, B)) \
    X(bitwise_left_shift_scalar, tensor_bitwise_left_shift_scalar(A, F(0))) \
    X(bitwise_or_, tensor_bitwise_or_(COPY, B)) X(bitwise_or_scalar, tensor_bitwise_or_scalar(A, F(0))) \
    X(bitwise_or_scalar_, tensor_bitwise_or_scalar_(COPY, F(0))) \
    X(bitwise_right_shift, tensor_bitwise_right_shift(A, B)) \
    X(bitwise_right_shift_scalar, tensor_bitwise_right_shift_scalar(A, F(0))) \
    X(bitwise_xor_, tensor_bitwise_xor_(COPY, B)) X(bitwise_xor_scalar, tensor_bitwise_xor_scalar(A, F(0))) \
    X(bitwise_xor_scalar_, tensor_bitwise_xor_scalar_(COPY, F(0))) X(ceil_, tensor_ceil_(COPY)) \
    X(celu, tensor_celu(A, F(0))) X(clamp_max, tensor_clamp_max(A, F(0))) X(clamp_max_, tensor_clamp_max_(COPY, F(0))) \
    X(clamp_min, tensor_clamp_min(A, F(0))) X(clamp_min_, tensor_clamp_min_(COPY, F(0))) \
    X(clamp_tensor, tensor_clamp_tensor(A, B, C)) X(copysign, tensor_copysign(A, B)) \
    X(copysign_scalar, tensor_copysign_scalar(A, F(0))) X(cos_, tensor_cos_(COPY)) \
    X(cosine_similarity, tensor_cosine_similarity(A, B, I(0), F(0))) X(deg2rad, tensor_deg2rad(A)) \
    X(digamma, tensor_digamma(A)) X(div_mode, tensor_div_mode(A, B, a->s)) X(elu_, tensor_elu_(COPY, F(0))) \
    X(erf_, tensor_erf_(COPY)) X(erfinv, tensor_erfinv(A)) X(erfinv_, tensor_erfinv_(COPY)) X(exp2_, tensor_exp2_(COPY)) \
    X(expm1_, tensor_expm1_(COPY)) X(float_power, tensor_float_power(A, B)) \
    X(float_power_scalar, tensor_float_power_scalar(A, F(0))) X(floor_, tensor_floor_(COPY)) \
    X(floor_divide_, tensor_floor_divide_(COPY, B)) X(floor_divide_scalar_, tensor_floor_divide_scalar_(COPY, F(0))) \
    X(fmax, tensor_fmax(A, B)) X(fmin, tensor_fmin(A, B)) X(fmod_, tensor_fmod_(COPY, B)) \
    X(fmod_scalar_, tensor_fmod_scalar_(COPY, F(0))) X(frac, tensor_frac(A)) X(glu, tensor_glu(A, I(0))) \
    X(hardshrink, tensor_hardshrink(A, F(0))) X(hardsigmoid, tensor_hardsigmoid(A)) X(hardswish, tensor_hardswish(A)) \
    X(hardtanh, tensor_hardtanh(A, F(0), F(1))) X(hardtanh_, tensor_hardtanh_(COPY, F(0), F(1))) \
    X(heaviside, tensor_heaviside(A, B)) X(hypot, tensor_hypot(A, B)) \
    X(isclose, tensor_isclose(A, B, F(0), F(1), (int)I(0))) X(isneginf, tensor_isneginf(A)) X(isposinf, tensor_isposinf(A)) \
    X(ldexp, tensor_ldexp(A, B)) X(leaky_relu_, tensor_leaky_relu_(COPY, F(0))) X(lerp_, tensor_lerp_(COPY, B, C)) \
    X(lerp_scalar, tensor_lerp_scalar(A, B, F(0))) X(lerp_scalar_, tensor_lerp_scalar_(COPY, B, F(0))) \
    X(lgamma, tensor_lgamma(A)) X(log10_, tensor_log10_(COPY)) X(log1p_, tensor_log1p_(COPY)) X(log2_, tensor_log2_(COPY)) \
    X(log_, tensor_log_(COPY)) X(logaddexp, tensor_logaddexp(A, B)) X(logaddexp2, tensor_logaddexp2(A, B)) \
    X(logit, tensor_logit(A, F(0))) X(mish, tensor_mish(A)) X(nan_to_num, tensor_nan_to_num(A, F(0), F(1), F(2))) \
    X(nan_to_num_, tensor_nan_to_num_(COPY, F(0), F(1), F(2))) X(normalize, tensor_normalize(A, F(0), I(0), F(1))) \
    X(pairwise_distance, tensor_pairwise_distance(A, B, F(0), F(1), (int)I(0))) \
    X(polygamma, tensor_polygamma((int)I(0), A)) X(positive, tensor_positive(A)) X(pow_, tensor_pow_(COPY, B)) \
    X(pow_scalar_, tensor_pow_scalar_(COPY, F(0))) X(prelu, tensor_prelu(A, B)) X(rad2deg, tensor_rad2deg(A)) \
    X(reciprocal_, tensor_reciprocal_(COPY)) X(relu6, tensor_relu6(A)) X(remainder_, tensor_remainder_(COPY, B)) \
    X(remainder_scalar_, tensor_remainder_scalar_(COPY, F(0))) X(round_, tensor_round_(COPY)) \
    X(round_decimals, tensor_round_decimals(A, (int)I(0))) X(rpow_scalar, tensor_rpow_scalar(A, F(0))) \
    X(rrelu, tensor_rrelu(A, F(0), F(1), (int)I(0))) X(rsqrt_, tensor_rsqrt_(COPY)) X(selu, tensor_selu(A)) \
    X(sgn, tensor_sgn(A)) X(sign_, tensor_sign_(COPY)) X(signbit, tensor_signbit(A)) X(sin_, tensor_sin_(COPY)) \
    X(sinc, tensor_sinc(A)) X(softmin, tensor_softmin(A, I(0))) X(softshrink, tensor_softshrink(A, F(0))) \
    X(softsign, tensor_softsign(A)) X(square_, tensor_square_(COPY)) X(tan_, tensor_tan_(COPY)) \
    X(tanhshrink, tensor_tanhshrink(A)) X(threshold, tensor_threshold(A, F(0), F(1))) X(trunc_, tensor_trunc_(COPY)) \
    X(xlogy, tensor_xlogy(A, B)) X(xlogy_scalar, tensor_xlogy_scalar(A, F(0)))
#define FILES_POINTWISE2 "pointwise2", "small",
#define HAS_POINTWISE2 1
#else
#define OPS_POINTWISE2(X, P, N)
#define FILES_POINTWISE2
#define HAS_POINTWISE2 0
#endif
#ifdef tensor_cumprod
#define OPS_SORT(X, P, N) \
    X(amax_dims, tensor_amax_dims(A, REST, (int)I(0))) X(amin_dims, tensor_amin_dims(A, REST, (int)I(0))) \
    X(argsort, tensor_argsort(A, I(0), (int)I(1))) X(bincount, tensor_bincount(A, NULL, I(0))) \
    X(bucketize, tensor_bucketize(A, B, (int)I(0))) X(cdist, tensor_cdist(A, B, F(0))) X(corrcoef, tensor_corrcoef(A)) \
    X(count_nonzero, tensor_count_nonzero(A)) X(cov, tensor_cov(A, I(0), NULL, NULL)) P(cummax, tensor_cummax(A, I(0))) \
    P(cummin, tensor_cummin(A, I(0))) X(cumprod, tensor_cumprod(A, I(0))) X(diff, tensor_diff(A, I(0), I(1))) \
    X(dist, tensor_dist(A, B, F(0))) X(histc, tensor_histc(A, I(0), F(0), F(1))) X(isin, tensor_isin(A, B)) \
    P(kthvalue, tensor_kthvalue(A, I(0), I(1), (int)I(2))) X(logcumsumexp, tensor_logcumsumexp(A, I(0))) \
    X(logsumexp_dims, tensor_logsumexp_dims(A, REST, (int)I(0))) X(median, tensor_median(A)) \
    P(median_dim, tensor_median_dim(A, I(0), (int)I(1))) X(nanmean, tensor_nanmean(A)) X(nansum, tensor_nansum(A)) \
    X(norm_p, tensor_norm_p(A, F(0))) X(quantile, tensor_quantile(A, B)) \
    X(searchsorted, tensor_searchsorted(A, B, (int)I(0))) P(sort, tensor_sort(A, I(0), (int)I(1))) \
    X(std_dims, tensor_std_dims(A, REST, 1, (int)I(0))) P(topk, tensor_topk(A, I(0), I(1), (int)I(2), 1)) \
    X(unique, tensor_unique(A, NULL, NULL)) X(var_dims, tensor_var_dims(A, REST, 1, (int)I(0)))
#define FILES_SORT "sort",
#define HAS_SORT 1
#else
#define OPS_SORT(X, P, N)
#define FILES_SORT
#define HAS_SORT 0
#endif
#ifdef tensor_linalg_inv
static tensor_pair_t slogdet(tensor_t *x) {
    tensor_slogdet_t s = tensor_linalg_slogdet(x);
    tensor_pair_t p;
    p.values = s.sign, p.indices = s.logabsdet;
    return p;
}
#define OPS_LINALG2(X, P, N) \
    X(addbmm, tensor_addbmm(A, B, C, F(0), F(1))) X(addmv, tensor_addmv(A, B, C, F(0), F(1))) \
    X(addr, tensor_addr(A, B, C, F(0), F(1))) X(baddbmm, tensor_baddbmm(A, B, C, F(0), F(1))) \
    X(einsum, tensor_einsum_n(a->s, a->in, a->nin)) X(inner, tensor_inner(A, B)) X(kron, tensor_kron(A, B)) \
    X(linalg_cholesky, tensor_linalg_cholesky(A, (int)I(0))) X(linalg_cross, tensor_linalg_cross(A, B, I(0))) \
    X(linalg_det, tensor_linalg_det(A)) X(linalg_eigvalsh, tensor_linalg_eigvalsh(A, (int)I(0))) \
    X(linalg_inv, tensor_linalg_inv(A)) X(linalg_matrix_exp, tensor_linalg_matrix_exp(A)) \
    X(linalg_matrix_norm, tensor_linalg_matrix_norm(A, a->s, -2, -1, 0)) \
    X(linalg_matrix_power, tensor_linalg_matrix_power(A, I(0))) X(linalg_pinv, tensor_linalg_pinv(A, -1)) \
    P(linalg_slogdet, slogdet(A)) X(linalg_solve, tensor_linalg_solve(A, B)) X(linalg_svdvals, tensor_linalg_svdvals(A)) \
    X(linalg_vector_norm, tensor_linalg_vector_norm(A, F(0), a->i, 1, 0)) X(tensordot, tensor_tensordot(A, B, (int)I(0))) \
    X(trace, tensor_trace(A))
#define FILES_LINALG2 "linalg2",
#define HAS_LINALG2 1
#else
#define OPS_LINALG2(X, P, N)
#define FILES_LINALG2
#define HAS_LINALG2 0
#endif
#ifdef tensor_tril_indices
#define OPS_INDEX2(X, P, N) \
    X(diag, tensor_diag(A, I(0))) X(diag_embed, tensor_diag_embed(A, I(0), I(1), I(2))) \
    X(diagonal, tensor_diagonal(A, I(0), I(1), I(2))) X(diagonal_scatter, tensor_diagonal_scatter(A, B, I(0), I(1), I(2))) \
    X(dstack, tensor_dstack_n(a->in, a->nin)) X(flip, tensor_flip_n(A, DIMS)) X(hstack, tensor_hstack_n(a->in, a->nin)) \
    X(index, tensor_index_n(A, a->in + 1, a->nin - 1)) X(index_copy, tensor_index_copy(A, I(0), B, C)) \
    X(index_fill, tensor_index_fill(A, I(0), B, F(0))) X(masked_scatter, tensor_masked_scatter(A, B, C)) \
    X(nonzero, tensor_nonzero(A)) X(ravel, tensor_ravel(A)) \
    X(repeat_interleave, tensor_repeat_interleave(A, I(0), I(1))) X(roll, tensor_roll(A, I(0), I(1))) \
    X(rot90, tensor_rot90(A, I(0), I(1), I(2))) X(scatter_reduce, tensor_scatter_reduce(A, I(0), B, C, a->s, (int)I(1))) \
    X(select_scatter, tensor_select_scatter(A, B, I(0), I(1))) \
    X(slice_scatter, tensor_slice_scatter(A, B, I(0), I(1), I(2), I(3))) X(take, tensor_take(A, B)) \
    X(take_along_dim, tensor_take_along_dim(A, B, I(0))) N(tensor_split, tensor_tensor_split(A, (int)I(0), I(1), a->out, MAX_OUT)) \
    X(tile, tensor_tile_n(A, DIMS)) X(tril_indices, tensor_tril_indices(I(0), I(1), I(2))) \
    X(triu_indices, tensor_triu_indices(I(0), I(1), I(2))) N(unbind, tensor_unbind(A, I(0), a->out, MAX_OUT)) \
    X(unflatten, tensor_unflatten_n(A, I(0), a->i + 1, a->ni - 1)) X(unfold_dim, tensor_unfold_dim(A, I(0), I(1), I(2))) \
    X(vstack, tensor_vstack_n(a->in, a->nin))
#define FILES_INDEX2 "index2",
#define HAS_INDEX2 1
#else
#define OPS_INDEX2(X, P, N)
#define FILES_INDEX2
#define HAS_INDEX2 0
#endif
#ifdef tensor_group_norm
#define OPS_NORM(X, P, N) \
    X(batch_norm, tensor_batch_norm(A, tensor_clone(B), tensor_clone(C), D, a->in[4], .training = (int)I(0))) \
    X(cosine_embedding_loss, tensor_cosine_embedding_loss(A, B, C, RED(0))) \
    X(gaussian_nll_loss, tensor_gaussian_nll_loss(A, B, C, RED(0))) X(group_norm, tensor_group_norm(A, I(0), B, C)) \
    X(hinge_embedding_loss, tensor_hinge_embedding_loss(A, B, RED(0))) X(instance_norm, tensor_instance_norm(A)) \
    X(local_response_norm, tensor_local_response_norm(A, I(0))) \
    X(margin_ranking_loss, tensor_margin_ranking_loss(A, B, C, .margin = F(0), RED(0))) \
    X(multi_margin_loss, tensor_multi_margin_loss(A, B, RED(0))) \
    X(multilabel_soft_margin_loss, tensor_multilabel_soft_margin_loss(A, B, RED(0))) \
    X(poisson_nll_loss, tensor_poisson_nll_loss(A, B, RED(0))) X(rms_norm, tensor_rms_norm(A, I(0), B, .eps = F(0))) \
    X(soft_margin_loss, tensor_soft_margin_loss(A, B, RED(0))) X(triplet_margin_loss, tensor_triplet_margin_loss(A, B, C, RED(0)))
#define FILES_NORM "norm",
#define HAS_NORM 1
#else
#define OPS_NORM(X, P, N)
#define FILES_NORM
#define HAS_NORM 0
#endif
#ifdef tensor_conv1d
#define OPS_CONV(X, P, N) \
    X(adaptive_avg_pool1d, tensor_adaptive_avg_pool1d(A, I(0))) \
    X(avg_pool1d, tensor_avg_pool1d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(avg_pool3d, tensor_avg_pool3d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(channel_shuffle, tensor_channel_shuffle(A, I(0))) \
    X(conv1d, tensor_conv1d(A, B, C, .stride = I(0), .padding = I(1), .dilation = I(2), .groups = I(3))) \
    X(conv3d, tensor_conv3d(A, B, C, .stride = I(0), .padding = I(1))) \
    X(conv_transpose1d, tensor_conv_transpose1d(A, B, C, .stride = I(0), .padding = I(1), .output_padding = I(2))) \
    X(conv_transpose2d, tensor_conv_transpose2d(A, B, C, .stride = I(0), .padding = I(1), .output_padding = I(2))) \
    X(interpolate, tensor_interpolate(A, .scale_factor = 2, .mode = (tensor_interpolation_t)I(0))) \
    X(max_pool1d, tensor_max_pool1d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(max_pool3d, tensor_max_pool3d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(pad, tensor_pad_n(A, a->i + 1, a->ni - 1, (tensor_pad_t)I(0), 0)) X(pixel_shuffle, tensor_pixel_shuffle(A, I(0))) \
    X(pixel_unshuffle, tensor_pixel_unshuffle(A, I(0)))
#define FILES_CONV "conv",
#define HAS_CONV 1
#else
#define OPS_CONV(X, P, N)
#define FILES_CONV
#define HAS_CONV 0
#endif
#define OPS_ALL(X, P, N) OPS(X, P, N) OPS_POINTWISE2(X, P, N) OPS_SORT(X, P, N) OPS_LINALG2(X, P, N) OPS_INDEX2(X, P, N) \
    OPS_NORM(X, P, N) OPS_CONV(X, P, N)
// clang-format on

#define ONE(name, call)                                                                                      \
    static void call_##name(arguments_t *a) {                                                                \
        a->out[0] = call, a->nout = 1;                                                                       \
    }
#define PAIR(name, call)                                                                                     \
    static void call_##name(arguments_t *a) {                                                                \
        tensor_pair_t p = call;                                                                              \
        a->out[0] = p.values, a->out[1] = p.indices, a->nout = 2;                                            \
    }
#define MANY(name, call)                                                                                     \
    static void call_##name(arguments_t *a) {                                                                \
        a->nout = call;                                                                                      \
    }
OPS_ALL(ONE, PAIR, MANY)
#define ENTRY(name, call) {#name, call_##name, 0, 0},
static struct {
    const char *name;
    void (*call)(arguments_t *a);
    long cases, gradients;
} ops[] = {OPS_ALL(ENTRY, ENTRY, ENTRY)};
enum { NOPS = (int)(sizeof ops / sizeof ops[0]) };
#undef A
#undef B
#undef C
#undef D
#undef I
#undef F

// ---- reading ----

static int verbose;
static long n_cases, n_gradients, n_why[MAX_WHY];
static char why_key[MAX_WHY][64];
static const char *why_text[MAX_WHY];

// Elements as doubles and as integers, in row-major order.
typedef struct values_t {
    int64_t n;
    double *v;
    int64_t *i;
} values_t;

static void values_of(values_t *x, tensor_t *t) {
    tensor_dtype_t dtype = tensor_dtype(t);
    int real = dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
    int64_t k;
    x->n = tensor_numel(t);
    x->v = (double *)calloc((size_t)x->n + 1, sizeof(double));
    x->i = (int64_t *)calloc((size_t)x->n + 1, sizeof(int64_t));
    t = tensor_to(tensor_detach(t), real ? TENSOR_F64 : TENSOR_I64); // exact
    CHECK(tensor_copy_out(t, real ? (void *)x->v : (void *)x->i, (size_t)x->n * 8) == 0);
    if (!real)
        for (k = 0; k < x->n; k++)
            x->v[k] = (double)x->i[k];
}
static void values_free(values_t *x) {
    free(x->v), free(x->i);
}

// The tensor x in a layout, over memory of its own whose other bytes are 0x7F.
static tensor_t *arrange(tensor_t *x, char layout) {
    tensor_shape_t s = tensor_shape(x);
    int64_t strides[TENSOR_MAX_DIMS], n = tensor_numel(x), room, offset = 0, k;
    size_t size = tensor_dtype_size(tensor_dtype(x));
    char *from, *to;
    int d, nd = s.ndim;
    if (nd == 0 && layout != 'O') layout = 'C';
    room = 1;
    for (d = 0; d < nd; d++) {
        int e = layout == 'T' ? d : nd - 1 - d;
        strides[e] = room;
        if (layout == 'S' && d == 0)
            strides[e] = 2, room = 2 * s.dims[e] + 1;
        else if (layout == 'N' && d == 0)
            room = s.dims[e] + 3;
        else
            room *= s.dims[e];
    }
    if (layout == 'S') offset = 1;
    if (layout == 'N') offset = 2;
    if (layout == 'O') offset = 3, room += 3;
    if (layout == 'E' && n) strides[0] = 0;
    if (n == 0) room = offset;
    from = (char *)malloc((size_t)n * size + 1);
    to = (char *)malloc((size_t)room * size + 1);
    memset(to, 0x7F, (size_t)room * size + 1);
    CHECK(tensor_copy_out(x, from, (size_t)n * size) == 0);
    for (k = 0; k < n; k++) {
        int64_t rest = k, at = offset;
        for (d = nd - 1; d >= 0; d--) {
            at += rest % s.dims[d] * strides[d];
            rest /= s.dims[d];
        }
        memcpy(to + (size_t)at * size, from + (size_t)k * size, size);
    }
    x = tensor_from_n(to, tensor_dtype(x), &room, 1);
    x = tensor_as_strided(x, s.dims, strides, nd, offset);
    free(from);
    free(to);
    return x;
}

static tensor_t *weights_of(tensor_t *y) {
    tensor_shape_t s = tensor_shape(y);
    int64_t n = tensor_numel(y), k;
    double *w = (double *)malloc((size_t)n * sizeof *w + 1);
    tensor_t *t;
    for (k = 0; k < n; k++)
        w[k] = (double)(k * 5 % 7 - 3) * 0.25 + 0.125;
    t = tensor_to(tensor_from_n(w, TENSOR_F64, s.dims, s.ndim), tensor_dtype(y));
    free(w);
    return t;
}

// ---- comparing ----

// Where results differ and shall (or do for now): op, what differs (r result, g gradient, e error), in how
// many cases, why. Any other number of differing cases is a failure.
static struct {
    const char *op;
    char what;
    int cases;
    const char *why;
    int seen;
} known[] = {
    {"abs", 'g', 8, "the gradient at NaN is NaN (PyTorch: 0)", 0},
    {"all", 'r', 13, "u8 gives bool (PyTorch: u8)", 0},
    {"all_dim", 'r', 76, "u8 gives bool (PyTorch: u8)", 0},
    {"amax_dim", 'g', 8, "the gradient of a NaN result goes to the NaNs, as max's (PyTorch: 0 / 0)", 0},
    {"amin_dim", 'g', 8, "the gradient of a NaN result goes to the NaNs, as min's (PyTorch: 0 / 0)", 0},
    {"any", 'r', 13, "u8 gives bool (PyTorch: u8)", 0},
    {"any_dim", 'r', 76, "u8 gives bool (PyTorch: u8)", 0},
    {"as_strided_scatter", 'g', 4, "the gradient of x is g outside the view (PyTorch's is wrong there)", 0},
    {"atan2", 'g', 8, "a u8 operand is not squared in u8 (PyTorch overflows)", 0},
    {"binary_cross_entropy", 'g', 4, "at 0 and 1 the derivatives of the clamped logs (PyTorch: of the logs)",
     0},
    {"clamp", 'g', 24, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_", 'g', 4, "1 at the bounds, as PyTorch was (2.15: 0)", 0},
    {"elu", 'g', 14, "the gradient at NaN is NaN (PyTorch: g)", 0},
    {"floor_divide", 'r', 4, "u8 by a negative 0-d integer: the number is not wrapped to u8 first", 0},
    {"floor_divide_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"fmod", 'r', 4, "u8 by a negative 0-d integer: the number is not wrapped to u8 first", 0},
    {"fmod_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"gelu", 'r', 6, "inf at inf, 0 at -inf (PyTorch: NaN, by vectors)", 0},
    {"prod", 'g', 16, "the product of the others, whatever x is (PyTorch divides by NaN and inf)", 0},
    {"prod_dim", 'g', 20, "the product of the others, whatever x is (PyTorch divides by NaN and inf)", 0},
    {"remainder", 'r', 5, "a 0-d operand is not rounded to the other's f16 first; nor wrapped to u8", 0},
    {"remainder_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"celu", 'g', 2, "the gradient at NaN is g, in every dtype (PyTorch: NaN in f64)", 0},
    {"clamp_max", 'g', 8, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_min", 'g', 8, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_tensor", 'g', 4, "ties with a bound as clamp's (PyTorch 2.15: shared)", 0},
    {"digamma", 'g', 8, "PyTorch's trigamma is good to 1e-10 only", 0},
    {"hardshrink", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"hardsigmoid", 'g', 9, "1 / 6 is exact in f64 (PyTorch: that of f32); NaN", 0},
    {"hardswish", 'g', 1, "the gradient at NaN is g, in every dtype (PyTorch: NaN in f64)", 0},
    {"hardtanh", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"logit", 'g', 15, "the gradient outside 0..1 is that of the formula (PyTorch: NaN)", 0},
    {"polygamma", 'g', 8, "PyTorch's polygamma is good to 1e-10 only", 0},
    {"polygamma", 'r', 8, "PyTorch's polygamma is good to 1e-10 only", 0},
    {"relu6", 'g', 2, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"selu", 'g', 7, "the gradient at NaN is NaN (PyTorch: g)", 0},
    {"softshrink", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"var", 'g', 4, "0 where no degree of freedom is left (PyTorch: NaN)", 0},
};
enum { KNOWN = (int)(sizeof known / sizeof known[0]) };

// A mismatch of one case. what: r, g or e as in known, 0 = a fault of the file.
static void differs(char what, const char *op, const char *line, const char *format, ...) {
    va_list list;
    int k;
    for (k = 0; k < KNOWN; k++)
        if (known[k].what == what && strcmp(known[k].op, op) == 0) {
            known[k].seen++;
            if (!verbose) return;
            break;
        }
    if (k == KNOWN) test_failed++;
    if (++test_lines > TEST_MAX_LINES && !verbose) return;
    printf("%s: ", op);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n    %.300s\n", line);
}

static double epsilon(tensor_dtype_t d) {
    switch (d) {
    case TENSOR_F32: return 0x1p-23;
    case TENSOR_F64: return 0x1p-52;
    case TENSOR_F16: return 0x1p-10;
    case TENSOR_BF16: return 0x1p-7;
    default: return 0;
    }
}
// The smallest normal number: below it only the absolute error counts.
static double tiny(tensor_dtype_t d) {
    return d == TENSOR_F64 ? 0x1p-1022 : d == TENSOR_F16 ? 0x1p-14 : 0x1p-126;
}

// Whether got is what PyTorch has; eps is that of the coarsest float dtype of the case (for a gradient).
static int agree(tensor_t *got, tensor_t *want, const char *class_name, int gradient, double eps,
                 const char *what, const char *op, const char *line) {
    tensor_dtype_t dtype = tensor_dtype(want);
    tensor_shape_t g = tensor_shape(got), w = tensor_shape(want);
    values_t x, y;
    double scale = 1, worst = 0;
    int64_t k, at = -1;
    int c, d, same = g.ndim == w.ndim;
    for (c = 0; c < CLASSES && strcmp(classes[c].name, class_name) != 0; c++) {}
    if (gradient == 1) // the class is the op's own
        for (d = c, c = 0; d < CLASSES && c < CLASSES && strcmp(classes[c].name, classes[d].gradient) != 0;
             c++) {}
    if (c == CLASSES) {
        differs(0, op, line, "no tolerance class %s", class_name);
        return 0;
    }
    for (d = 0; d < w.ndim && same; d++)
        same = g.dims[d] == w.dims[d];
    if (!same || tensor_dtype(got) != dtype) {
        char a[128], b[128];
        int na = 0, nb = 0;
        for (d = 0; d < g.ndim; d++)
            na += snprintf(a + na, sizeof a - (size_t)na, "%lld,", (long long)g.dims[d]);
        for (d = 0; d < w.ndim; d++)
            nb += snprintf(b + nb, sizeof b - (size_t)nb, "%lld,", (long long)w.dims[d]);
        a[na] = b[nb] = 0;
        differs(*what, op, line, "%s is %s [%s], PyTorch's %s [%s]%s%s", what,
                tensor_dtype_name(tensor_dtype(got)), a, tensor_dtype_name(dtype), b, tensor_ok() ? "" : ": ",
                tensor_error_text());
        tensor_clear_error();
        return 0;
    }
    values_of(&x, got);
    values_of(&y, want);
    if (!gradient) eps = epsilon(dtype);
    for (k = 0; k < y.n; k++)
        if (isfinite(y.v[k]) && fabs(y.v[k]) > scale) scale = fabs(y.v[k]);
    for (k = 0; k < y.n; k++) {
        double a = x.v[k], b = y.v[k], e;
        if ((a != a && b != b) || (a == b && x.i[k] == y.i[k])) continue;
        e = fabs(a - b) / (eps * (classes[c].relative * fabs(b) + classes[c].scaled * scale) +
                           (classes[c].relative > 0 ? tiny(dtype) : 0));
        if (!(e <= worst) || at < 0) worst = e, at = k;
        if (e != e || !isfinite(a) || !isfinite(b)) {
            worst = (double)INFINITY, at = k;
            break;
        }
    }
    same = at < 0 || worst <= 1;
    if (same)
        test_passed++;
    else
        differs(*what, op, line, "%s[%lld] is %.9g, PyTorch's %.9g: %.3g times the tolerance %s", what,
                (long long)at, x.v[at], y.v[at], worst, classes[c].name);
    values_free(&x);
    values_free(&y);
    return same;
}

// ---- one case ----

static int find(const char *name) {
    int k;
    for (k = 0; k < NOPS && strcmp(ops[k].name, name) != 0; k++) {}
    return k;
}

static void one(nn_safetensors_t *r, int op, const char *line) {
    arguments_t a;
    tensor_t *want[MAX_OUT], *grad[MAX_IN], *from[MAX_IN], *ys[MAX_OUT], *ws[MAX_OUT], *got[MAX_IN];
    int nwant = 0, ngrad = 0, nfrom = 0, ny = 0, k;
    char tol[32] = "exact", gtol[32] = "", word[300];
    double eps = 0;
    const char *p = line;
    memset(&a, 0, sizeof a);
    while (sscanf(p, "%299s", word) == 1) {
        char *v = strchr(word, '=') + 1, *slash = strchr(word, '/');
        p = strstr(p, word) + strlen(word);
        if (strncmp(word, "in=", 3) == 0) {
            if (slash) *slash = 0;
            a.in[a.nin++] = slash ? arrange(nn_safetensors_get(r, v), slash[1]) : NULL;
        } else if (strncmp(word, "i=", 2) == 0)
            for (; *v; v += *v == ',')
                a.i[a.ni++] = strtoll(v, &v, 10);
        else if (strncmp(word, "f=", 2) == 0)
            for (; *v; v += *v == ',')
                a.f[a.nf++] = strtod(v, &v);
        else if (strncmp(word, "s=", 2) == 0)
            for (k = 0; v[k]; k++)
                a.s[k] = v[k] == '_' ? ' ' : v[k];
        else if (strncmp(word, "out=", 4) == 0)
            want[nwant++] = nn_safetensors_get(r, v);
        else if (strncmp(word, "grad=", 5) == 0)
            grad[ngrad++] = *v == '-' ? NULL : nn_safetensors_get(r, v);
        else if (strncmp(word, "tol=", 4) == 0)
            snprintf(tol, sizeof tol, "%s", v);
        else if (strncmp(word, "gtol=", 5) == 0)
            snprintf(gtol, sizeof gtol, "%s", v);
        else if (strncmp(word, "why=", 4) == 0) {
            for (k = 0; why_key[k][0] && strcmp(why_key[k], v) != 0; k++) {}
            if (!why_key[k][0]) {
                char key[80];
                snprintf(key, sizeof key, "why.%s", v);
                snprintf(why_key[k], sizeof why_key[k], "%s", v);
                why_text[k] = nn_safetensors_metadata(r, key);
                CHECK_MSG(why_text[k] != NULL, "no %s in the file", key);
                if (why_text[k]) why_text[k] = strcpy((char *)malloc(strlen(why_text[k]) + 1), why_text[k]);
            }
            n_why[k]++;
        } else
            differs(0, ops[op].name, line, "no meaning of %s", word);
    }
    for (k = 0; k < ngrad; k++)
        if (grad[k]) {
            a.in[k] = tensor_requires_grad_(a.in[k], 1);
            from[nfrom++] = a.in[k];
        }
    for (k = 0; k < a.nin; k++)
        if (a.in[k] && epsilon(tensor_dtype(a.in[k])) > eps) eps = epsilon(tensor_dtype(a.in[k]));
    for (k = 0; k < nwant; k++)
        if (epsilon(tensor_dtype(want[k])) > eps) eps = epsilon(tensor_dtype(want[k]));
    CHECK_OK();
    ops[op].call(&a);
    ops[op].cases++;
    n_cases++;
    if (!tensor_ok() || a.nout != nwant) {
        differs('e', ops[op].name, line, "%d results, PyTorch's %d: %s", a.nout, nwant, tensor_error_text());
        tensor_clear_error();
        return;
    }
    for (k = 0; k < nwant; k++)
        if (!agree(a.out[k], want[k], tol, 0, 0, "result", ops[op].name, line)) return;
    if (!nfrom) return;
    for (k = 0; k < nwant; k++)
        if (tensor_requires_grad(a.out[k])) ys[ny] = a.out[k], ws[ny++] = weights_of(a.out[k]);
    ops[op].gradients++;
    n_gradients++;
    if (tensor_autograd_grad(ys, ny, ws, from, nfrom, got, TENSOR_ALLOW_UNUSED)) {
        differs('e', ops[op].name, line, "gradient: %s", tensor_error_text());
        tensor_clear_error();
        return;
    }
    for (k = 0, nfrom = 0; k < ngrad; k++)
        if (grad[k]) {
            char what[32];
            snprintf(what, sizeof what, "gradient of input %d", k);
            if (!got[nfrom]) got[nfrom] = tensor_zeros_like(a.in[k]); // unused is zero
            if (!agree(got[nfrom++], grad[k], *gtol ? gtol : tol, *gtol ? 2 : 1, eps, what, ops[op].name,
                       line))
                break;
        }
}

static const char *only, *directory = "tests/fixtures";
static const char *file_name;
// Whether the headers have every guarded part; if not, ops of the missing ones in "small" are absent.
static const int whole = HAS_POINTWISE2 && HAS_SORT && HAS_LINALG2 && HAS_INDEX2 && HAS_NORM && HAS_CONV;
static int absent;

static void file(void) {
    char path[300], name[64];
    const char *list, *p;
    nn_safetensors_t *r;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, file_name);
    r = nn_safetensors_open(path);
    CHECK_MSG(r != NULL, "%s: %s", path, tensor_error_text());
    if (!r) {
        tensor_clear_error();
        return;
    }
    list = nn_safetensors_metadata(r, "ops");
    CHECK(list != NULL);
    for (p = list ? list : ""; sscanf(p, "%63s", name) == 1; p = strstr(p, name) + strlen(name)) {
        const char *lines = nn_safetensors_metadata(r, name);
        int op = find(name);
        test_lines = 0;
        if (op == NOPS && !whole && strcmp(file_name, "small") == 0) {
            absent++;
            continue;
        }
        CHECK_MSG(op < NOPS, "%s: no line in OPS", name);
        CHECK_MSG(lines != NULL, "%s: no cases", name);
        if (op == NOPS || !lines || (only && strcmp(only, name) != 0)) continue;
        while (*lines) {
            char line[4096];
            size_t n = strcspn(lines, "\n");
            tensor_scope_t scope = tensor_scope_begin();
            snprintf(line, sizeof line, "%.*s", (int)n, lines);
            one(r, op, line);
            tensor_scope_end(scope);
            lines += n + (lines[n] == '\n');
        }
        if (test_lines > TEST_MAX_LINES && !verbose)
            printf("%s: more failures are counted, not printed\n", name);
    }
    CHECK(nn_safetensors_close(r) == 0);
}

int main(int argc, char **argv) {
    static const char *const files[] = {FILES_POINTWISE2 FILES_SORT FILES_LINALG2 FILES_INDEX2 FILES_NORM
                                        FILES_CONV "pointwise", "reduce", "linalg", "index", "nn"};
    int k, n = 0;
    for (k = 1; k < argc; k++) {
        if (strcmp(argv[k], "-v") == 0)
            verbose = 1;
        else
            only = argv[k];
    }
    for (k = 0; k < (int)(sizeof files / sizeof files[0]); k++) {
        file_name = files[k];
        test_run(files[k], file);
    }
    for (k = 0; k < NOPS; k++)
        n += ops[k].cases > 0;
    test_name = "lines without cases";
    for (k = 0; k < NOPS && !only; k++)
        CHECK_MSG(ops[k].cases > 0, "%s: no case in the files", ops[k].name);
    for (k = 0; k < KNOWN && !only; k++) {
        CHECK_MSG(known[k].seen == known[k].cases, "%s '%c': %d cases differ, %d do as known", known[k].op,
                  known[k].what, known[k].seen, known[k].cases);
        printf("%6d cases differ, as known: %s: %s\n", known[k].seen, known[k].op, known[k].why);
    }
    for (k = 0; k < MAX_WHY && why_key[k][0]; k++)
        printf("%6ld cases differ on purpose: %s\n", n_why[k], why_text[k]);
    if (absent) printf("%d ops of \"small\" are not in these headers\n", absent);
    printf("%ld fixture cases over %d ops, %ld of them with gradients\n", n_cases, n, n_gradients);
    return test_report();
}

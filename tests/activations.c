// activations.c - activations: literal values from PyTorch 2.15, gradients, those that draw numbers, their
// modules
#define G(f) {#f, f}
#include "elements_are.h"

// -0 within the bounds stays -0, and an equal bound does not replace it, as in PyTorch: relu6(-0.) is -0. The
// instructions of NEON take +0 for the larger one, here and there.
static void zeros_keep_signs(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F64, TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    int k, j;
    if (strcmp(tensor_isa_name(), "neon") == 0) { return; }
    for (k = 0; k < 4; k++) {
        tensor_t *x = tensor_to(X(-0.0, 0), dtypes[k]);
        tensor_t *y[] = {tensor_relu6(x), tensor_clamp(x, 0, 6), tensor_clamp(x, -1, 0),
                         tensor_clamp_min(x, 0), tensor_hardtanh(x, 0, 6), tensor_hardtanh(x, -1, 0),
                         tensor_clamp(x, -0.0, 6)};
        for (j = 0; j < 7; j++) {
            IS(0, tensor_signbit(y[j]), 1, 0);
        }
    }
}

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
    tensor_generator_t rng = tensor_get_generator();
    y = tensor_alpha_dropout(x, 0.3, 1);
    tensor_set_generator(rng);              // the draws are those of bernoulli
    tensor_t *kept = tensor_bernoulli(tensor_mul_scalar(tensor_ones_like(x), 0.7));
    double low = -1.7580993408473766, a = 1 / sqrt((low * low * 0.3 + 1) * 0.7);
    m = tensor_mul_scalar(tensor_add_scalar(tensor_neg(kept), 0.7), a * low);
    CHECK(test_same_bits(y, tensor_add(tensor_mul(x, tensor_mul_scalar(kept, a)), m)));
    CHECK(tensor_alpha_dropout(x, 0.3, 0) == x && tensor_alpha_dropout(x, 0, 1) == x);
    CHECK(tensor_item(tensor_norm(tensor_alpha_dropout(x, 1, 1))) == 0);
    y = tensor_feature_alpha_dropout(tensor_reshape(x, 100, 200, 5), 0.3, 1);
    CHECK_NEAR(tensor_item(tensor_mean(y)), 0, 0.03);
    CHECK_NEAR(tensor_item(tensor_var(y, 1)), 1, 0.03);
    m = tensor_amax_dim(y, 2, 0);                    // a channel is dropped whole: one value
    v = tensor_to(tensor_eq(m, tensor_amin_dim(y, 2, 0)), TENSOR_F32);
    CHECK_NEAR(tensor_item(tensor_mean(v)), 0.3, 0.02);
    CHECK(tensor_feature_alpha_dropout(x, 0.3, 0) == x);
    CHECK_POISON(tensor_feature_alpha_dropout(tensor_ones(4), 0.3, 1), TENSOR_ERR_SHAPE,
                 "feature_alpha_dropout: p must be in 0..1 and x at least [N, C]");
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
        if (!k) { continue; }
        m = tensor_mean_dim(y, 0, 0); // one-hot, with the frequencies of the softmax
        CHECK_NEAR(((const float *)tensor_data(m))[0], 0.1, 0.01);
        CHECK_NEAR(((const float *)tensor_data(m))[2], 0.7, 0.015);
        CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(y, tensor_round(y))))) < 1e-6);
        CHECK(tensor_backward(tensor_sum(tensor_square(y))) == 0 && tensor_grad(logits) != NULL);
    }
    if (tensor_set_num_threads(4)) { tensor_clear_error(); } // built without threads
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
    MODULE(nn_eval(nn_feature_alpha_dropout(0.2)), "FeatureAlphaDropout(p=0.2, inplace=False)", x);
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

int main(void) {
    RUN(activation_values);
    RUN(zeros_keep_signs);
    RUN(activation_gradients);
    RUN(random_activations);
    RUN(modules);
    return test_report();
}

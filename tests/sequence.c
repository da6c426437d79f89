// sequence.c - norms, losses, attention, recurrent nets and embedding bags against numbers from PyTorch 2.15
//
// Inputs are X(seed, dims): sin(1.3 i + seed), f64. An output is compared through one number, probe(y) = sum
// of y[i] cos(0.9 i); a gradient likewise, as probe(d probe(y) / d x). The literals are PyTorch's, in f64.
#include "test.h"

static tensor_t *X(double seed, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t dims[4], i;
    int n = 0;
    tensor_t *x;
    double *p;
    dims[0] = a, dims[1] = b, dims[2] = c, dims[3] = d;
    while (n < 4 && dims[n]) { n++; }
    x = tensor_empty_n(dims, n, TENSOR_F64);
    p = (double *)tensor_data_mut(x);
    for (i = 0; i < tensor_numel(x); i++) { p[i] = sin(1.3 * (double)i + seed); }
    return tensor_requires_grad_(x, 1);
}

// The weights of probe, in the shape of y.
static tensor_t *waves(tensor_t *y) {
    tensor_t *w = tensor_empty_like(tensor_to(tensor_detach(y), TENSOR_F64));
    double *p = (double *)tensor_data_mut(w);
    int64_t i;
    for (i = 0; i < tensor_numel(w); i++) { p[i] = cos(0.9 * (double)i); }
    return w;
}
static double probe(tensor_t *y) {
    return tensor_item(tensor_sum(tensor_mul(waves(y), tensor_to(y, TENSOR_F64))));
}
static double dprobe(tensor_t *y, tensor_t *x) {
    tensor_t *loss = tensor_sum(tensor_mul(waves(y), y)), *g;
    if (tensor_autograd_grad(&loss, 1, NULL, &x, 1, &g, TENSOR_RETAIN_GRAPH)) {
        CHECK_TEXT(tensor_error_text(), "");
        return NAN;
    }
    return probe(g);
}
static tensor_t *labels(const int64_t *v, int64_t n) {
    return tensor_from_n(v, TENSOR_I64, &n, 1);
}

typedef tensor_t *(*fn_t)(tensor_t *const *in, int n, void *user);
// Both gradchecks of f over in[0..n-1].
static void grads(fn_t f, tensor_t *const *in, int n) {
    CHECK_MSG(tensor_gradcheck(f, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s", tensor_error_text());
    CHECK_MSG(tensor_gradgradcheck(f, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s", tensor_error_text());
    tensor_clear_error();
}

// Every parameter p of a module becomes 0.3 sin(1.3 i + 0.1 (sum of the characters of its name modulo 97)).
static nn_module_t *filled(nn_module_t *m) {
    nn_named_list_t list = nn_named_parameters(m);
    int64_t k, i;
    for (k = 0; k < list.count; k++) {
        tensor_t *t = tensor_detach(list.item[k].tensor);
        float *p = (float *)tensor_data_mut(t);
        const char *c;
        int sum = 0;
        for (c = list.item[k].name; *c; c++) { sum += *c; }
        for (i = 0; i < tensor_numel(t); i++) {
            p[i] = (float)(0.3 * sin(1.3 * (double)i + 0.1 * (sum % 97)));
        }
    }
    return m;
}
// The same as X in f32.
static tensor_t *X32(double seed, int64_t a, int64_t b, int64_t c) {
    return tensor_requires_grad_(tensor_to(tensor_detach(X(seed, a, b, c, 0)), TENSOR_F32), 1);
}

// Weights of a recurrent net with `gates` gates, in the order of tensor_lstm.
static void weights(tensor_t **to, double seed, int64_t gates, int64_t in, int64_t hidden, int layers,
                    int dirs, int bias, int64_t proj) {
    int64_t size = proj ? proj : hidden;
    int n = 0, l, d, k;
    for (l = 0; l < layers; l++) {
        for (d = 0; d < dirs; d++) {
            for (k = 0; k < 5; k++) {
                tensor_t *t;
                if ((!bias && (k == 2 || k == 3)) || (!proj && k == 4)) { continue; }
                t = X(seed + 0.37 * n, k == 4 ? proj : gates * hidden,
                      k == 0   ? (l ? dirs * size : in)
                      : k == 1 ? size
                      : k == 4 ? hidden
                               : 0,
                      0, 0);
                to[n++] = tensor_requires_grad_(tensor_mul_scalar(tensor_detach(t), 0.5), 1);
            }
        }
    }
}

static void batch_norm_values(void) {
    tensor_t *x = X(0.1, 4, 3, 5, 0), *x2 = X(0.1, 6, 3, 0, 0), *w = X(0.5, 3, 0, 0, 0),
             *b = X(0.9, 3, 0, 0, 0);
    tensor_t *rm = tensor_detach(X(2, 3, 0, 0, 0)), *rv = tensor_square(tensor_detach(X(3, 3, 0, 0, 0)));
    tensor_t *e = tensor_batch_norm(x, rm, rv, w, b), *y, *y2;
    CHECK_NEAR(probe(e), 25.6046898472234, 1e-10);
    CHECK_NEAR(dprobe(e, x), 46.2974227699685, 1e-10);
    y = tensor_batch_norm(x, rm, rv, w, b, .training = 1);
    y2 = tensor_batch_norm(x2, rm, rv, w, NULL, .training = 1, .momentum = 0.3, .eps = 0.01);
    CHECK_NEAR(probe(y), 5.16055481934739, 1e-10);
    CHECK_NEAR(dprobe(y, x), 15.6456587148672, 1e-10);
    CHECK_NEAR(dprobe(y, w), 12.2067884123195, 1e-10);
    CHECK_NEAR(dprobe(y, b), -4.23989618505468, 1e-10);
    CHECK_NEAR(probe(y2), 1.59588249374577, 1e-10);
    CHECK_NEAR(dprobe(y2, x2), 5.24868439630165, 1e-10);
    CHECK_NEAR(dprobe(y2, w), 3.83768207583464, 1e-10);
    CHECK_NEAR(probe(rm), 0.695751621703019, 1e-10);
    CHECK_NEAR(probe(rv), 0.587751267798915, 1e-10);
}

static void other_norm_values(void) {
    tensor_t *x = X(0.3, 2, 6, 4, 0), *w = X(0.5, 6, 0, 0, 0), *b = X(0.9, 6, 0, 0, 0),
             *v = X(0.2, 4, 0, 0, 0);
    tensor_t *g = tensor_group_norm(x, 3, w, b), *g1 = tensor_group_norm(x, 6), *i, *r, *l;
    tensor_t *rm = tensor_detach(X(2, 6, 0, 0, 0)), *rv = tensor_square(tensor_detach(X(3, 6, 0, 0, 0)));
    i = tensor_instance_norm(x, .running_mean = rm, .running_var = rv, .weight = w, .bias = b,
                             .momentum = 0.2);
    r = tensor_rms_norm(x, 1, v);
    l = tensor_local_response_norm(x, 3, .alpha = 0.5, .k = 2);
    CHECK_NEAR(probe(g), 0.855024867626309, 1e-10);
    CHECK_NEAR(dprobe(g, x), 1.76309638175308, 1e-10);
    CHECK_NEAR(dprobe(g, w), 0.801680042125764, 1e-10);
    CHECK_NEAR(dprobe(g, b), -0.359464651346776, 1e-10);
    CHECK_NEAR(probe(g1), 0.639315090650043, 1e-10);
    CHECK_NEAR(probe(i), 0.824806564147396, 1e-10);
    CHECK_NEAR(dprobe(i, x), 2.50374739512471, 1e-10);
    CHECK_NEAR(probe(rm), 0.518753631002383, 1e-10);
    CHECK_NEAR(probe(rv), -0.607460042120259, 1e-10);
    CHECK_NEAR(probe(tensor_instance_norm(x, .running_mean = rm, .running_var = rv, .no_use_input_stats = 1)),
               3.19205875327573, 1e-10);
    CHECK_NEAR(probe(r), -0.509614810029815, 1e-10);
    CHECK_NEAR(dprobe(r, x), 2.82642648332252, 1e-10);
    CHECK_NEAR(dprobe(r, v), -0.25801649010408, 1e-10);
    CHECK_NEAR(probe(tensor_rms_norm(x, 2, NULL, .eps = 0.1)), 0.555907041494187, 1e-10);
    CHECK_NEAR(probe(l), 0.246280129517424, 1e-10);
    CHECK_NEAR(dprobe(l, x), 12.9471715244477, 1e-10);
    CHECK_NEAR(probe(tensor_local_response_norm(x, 4)), 0.434994099361687, 1e-10);
}

static tensor_t *f_batch(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_batch_norm(in[0], NULL, NULL, in[1], in[2], .training = 1);
}
static tensor_t *f_group(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_group_norm(in[0], 2, in[1], in[2]);
}
static tensor_t *f_rms(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_rms_norm(in[0], 1, in[1]);
}
static tensor_t *f_lrn(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_local_response_norm(in[0], 2, .alpha = 1);
}
static void norm_gradients(void) {
    tensor_t *in[3] = {X(0.1, 3, 4, 2, 0), X(0.5, 4, 0, 0, 0), X(0.9, 4, 0, 0, 0)};
    tensor_t *last[2] = {X(0.1, 3, 4, 0, 0), X(0.5, 4, 0, 0, 0)};
    grads(f_batch, in, 3);
    grads(f_group, in, 3);
    grads(f_rms, last, 2);
    grads(f_lrn, in, 1);
    in[0] = X(0.1, 5, 4, 0, 0);
    grads(f_batch, in, 3);
}

// Strided x, halves, large planes at 1 and 4 threads.
static void norm_layouts(void) {
    tensor_t *x = tensor_to(tensor_detach(X(0.1, 6, 8, 40, 30)), TENSOR_F32), *p = tensor_transpose(x, 0, 1),
             *y;
    tensor_t *rm = tensor_zeros(8), *rv = tensor_ones(8), *w = tensor_ones(8), *h, *g;
    uint64_t hash[2];
    int k, dt;
    y = tensor_group_norm(p, 3);
    CHECK(test_same_bits(y, tensor_group_norm(tensor_contiguous(p), 3)));
    for (k = 0; k < 2; k++) {
        tensor_t *loss, *a = tensor_requires_grad_(tensor_clone(x), 1),
                        *v = tensor_requires_grad_(tensor_clone(w), 1);
        tensor_set_num_threads(k ? 4 : 1);
        y = tensor_add(tensor_batch_norm(a, NULL, NULL, v, w, .training = 1), tensor_group_norm(a, 4, v));
        loss = tensor_sum(tensor_square(tensor_add(y, x)));
        tensor_backward(loss);
        hash[k] = test_hash(test_hash(test_hash(TEST_HASH, y), tensor_grad(a)), tensor_grad(v));
    }
    tensor_set_num_threads(1);
    CHECK(hash[0] == hash[1]);
    for (dt = 0; dt < 2; dt++) {
        tensor_dtype_t half = dt ? TENSOR_BF16 : TENSOR_F16;
        h = tensor_to(x, half);
        y = tensor_batch_norm(h, rm, rv, w, NULL, .training = 1);
        CHECK(tensor_dtype(y) == half);
        g = tensor_to(tensor_batch_norm(tensor_to(h, TENSOR_F32), NULL, NULL, w, NULL, .training = 1), half);
        CHECK(test_same_bits(y, g));
        CHECK(test_same_bits(tensor_group_norm(h, 2),
                             tensor_to(tensor_group_norm(tensor_to(h, TENSOR_F32), 2), half)));
    }
    CHECK(tensor_numel(tensor_group_norm(tensor_zeros(0, 4, 3), 2)) == 0);
    CHECK(tensor_numel(tensor_batch_norm(tensor_zeros(0, 4), tensor_zeros(4), tensor_ones(4))) == 0);
    CHECK(tensor_size(tensor_rms_norm(tensor_zeros(0, 4), 1), 1) == 4);
    // a tensor twice: both gradients count
    x = X(0.1, 3, 4, 2, 0);
    h = X(0.2, 4, 0, 0, 0);
    y = tensor_batch_norm(x, NULL, NULL, h, h, .training = 1);
    CHECK(isfinite(dprobe(y, h)));
}

static void norm_errors(void) {
    tensor_t *x = tensor_ones(2, 4, 3), *w = tensor_ones(3), *c = tensor_ones(4);
    CHECK_POISON(tensor_batch_norm(x, NULL, NULL), TENSOR_ERR_SHAPE,
                 "batch_norm: x [2,4,3] needs running_mean and running_var at sequence.c");
    CHECK_POISON(tensor_batch_norm(x, c, NULL, .training = 1), TENSOR_ERR_SHAPE, "or neither");
    CHECK_POISON(tensor_batch_norm(x, c, c, w), TENSOR_ERR_SHAPE,
                 "batch_norm: weight [3] must have the 4 channels of x [2,4,3]");
    CHECK_POISON(tensor_batch_norm(x, c, c, tensor_ones_of(TENSOR_F64, 4)), TENSOR_ERR_DTYPE,
                 "weight is f64, x is f32");
    CHECK_POISON(tensor_batch_norm(w, c, c), TENSOR_ERR_SHAPE, "batch_norm: x [3] must be [N, C, ...]");
    CHECK_POISON(tensor_batch_norm(tensor_ones(1, 4), NULL, NULL, .training = 1), TENSOR_ERR_SHAPE,
                 "x [1,4] has one value per channel");
    CHECK_POISON(tensor_instance_norm(tensor_ones(2, 4, 1)), TENSOR_ERR_SHAPE,
                 "instance_norm: x [2,4,1] has one value");
    CHECK_POISON(tensor_instance_norm(c), TENSOR_ERR_SHAPE, "at least 3 dims");
    CHECK_POISON(tensor_group_norm(x, 3), TENSOR_ERR_SHAPE,
                 "group_norm: the channels of x [2,4,3] must be a multiple of groups 3");
    CHECK_POISON(tensor_group_norm(x, 0), TENSOR_ERR_SHAPE, "groups 0");
    CHECK_POISON(tensor_group_norm(tensor_to(x, TENSOR_I64), 2), TENSOR_ERR_DTYPE,
                 "group_norm: x [2,4,3] is i64");
    CHECK_POISON(tensor_group_norm(NULL, 2), TENSOR_ERR_OWNER, "group_norm: argument x is NULL");
    CHECK_POISON(tensor_group_norm(tensor_ones(1, 4, 1), 4), TENSOR_ERR_SHAPE,
                 "group_norm: x [1,4,1] has one value per group");
    CHECK(tensor_item(tensor_sum(tensor_group_norm(tensor_ones(2, 4), 4))) == 0);   // as PyTorch: N counts
    CHECK_POISON(tensor_rms_norm(x, 4), TENSOR_ERR_SHAPE, "rms_norm: normalized_dims 4 must be in 1..3");
    CHECK_POISON(tensor_rms_norm(x, 1, c), TENSOR_ERR_SHAPE,
                 "rms_norm: weight [4] must have the last 1 dims of x [2,4,3]");
    CHECK_POISON(tensor_local_response_norm(c, 2), TENSOR_ERR_SHAPE,
                 "local_response_norm: x [4] must be [N, C, d...]");
}

static void norm_modules(void) {
    nn_module_t *bn = nn_batch_norm2d(3), *cum = nn_batch_norm1d(3, .cumulative = 1, .no_affine = 1), *in,
                *gn, *rms, *c;
    tensor_t *x = tensor_to(tensor_detach(X(0.1, 4, 3, 2, 5)), TENSOR_F32), *y;
    char text[200];
    y = nn_forward(bn, x);
    CHECK(tensor_allclose(y, tensor_batch_norm(x, NULL, NULL, .training = 1), 0, 0));
    CHECK(tensor_item_i64(nn_get(bn, "num_batches_tracked")) == 1);
    y = tensor_mean_dim(tensor_reshape(tensor_transpose(x, 0, 1), 3, -1), 1, 0);
    CHECK(tensor_allclose(nn_get(bn, "running_mean"), tensor_mul_scalar(y, 0.1), 1e-5, 1e-7));
    y = tensor_var_dim(tensor_reshape(tensor_transpose(x, 0, 1), 3, -1), 1, 1, 0);
    CHECK(tensor_allclose(nn_get(bn, "running_var"), tensor_add_scalar(tensor_mul_scalar(y, 0.1), 0.9), 1e-5,
                          0));
    nn_eval(bn);
    y = nn_forward(bn, x);
    CHECK(tensor_allclose(y, tensor_batch_norm(x, nn_get(bn, "running_mean"), nn_get(bn, "running_var")),
                          1e-6, 1e-6));
    CHECK(tensor_item_i64(nn_get(bn, "num_batches_tracked")) == 1);
    c = nn_clone(bn);
    CHECK(test_same_bits(nn_forward(c, x), y) && nn_get(c, "running_mean") != nn_get(bn, "running_mean"));
    nn_to_string(bn, text, sizeof text);
    CHECK_TEXT(text,
               "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)");
    CHECK_POISON(nn_forward(bn, tensor_select(x, 0, 0)), TENSOR_ERR_SHAPE,
                 "batch_norm: x [3,2,5] must have 4 dims and 3 channels");
    // the mean of all batches
    nn_forward(cum, tensor_select(x, 3, 0));
    nn_forward(cum, tensor_select(x, 3, 1));
    nn_forward(cum, tensor_select(x, 3, 2));
    y = tensor_mean_dim(tensor_reshape(tensor_transpose(tensor_narrow(x, 3, 0, 3), 0, 1), 3, -1), 1, 0);
    CHECK(tensor_allclose(nn_get(cum, "running_mean"), y, 1e-5, 1e-6));
    CHECK(nn_num_parameters(cum) == 0 && nn_state(cum).count == 3);
    in = nn_instance_norm2d(3);
    CHECK(nn_state(in).count == 0);
    CHECK(tensor_allclose(nn_forward(in, tensor_select(x, 0, 1)),
                          tensor_select(tensor_group_norm(x, 3), 0, 1), 0, 1e-6));
    nn_free(in);
    in = nn_instance_norm1d(3, .affine = 1, .track_running_stats = 1);
    nn_forward(in, tensor_select(x, 3, 0));
    CHECK(nn_state(in).count == 5 && tensor_item(tensor_norm(nn_get(in, "running_mean"))) > 0);
    gn = nn_group_norm(1, 3), rms = nn_rms_norm(5);
    CHECK(test_same_bits(nn_forward(gn, x), tensor_group_norm(x, 1, tensor_ones(3), tensor_zeros(3))));
    CHECK(test_same_bits(nn_forward(rms, x), tensor_rms_norm(x, 1, tensor_ones(5))));
    nn_to_string(rms, text, sizeof text);
    CHECK_TEXT(text, "RMSNorm((5,), eps=None, elementwise_affine=True)");
    CHECK(nn_group_norm(2, 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "group_norm: channels 3 must be a positive multiple of groups 2 at seq");
    nn_free(bn), nn_free(cum), nn_free(in), nn_free(gn), nn_free(rms), nn_free(c);
}

// The default eps of halves is that of f32: 0.3281 in PyTorch, 0.0113 with their own.
static void rms_of_halves(void) {
    tensor_t *x = tensor_to(tensor_mul_scalar(tensor_arange(0, 6, 1, TENSOR_F32), 1e-3), TENSOR_BF16);
    CHECK_NEAR(tensor_item(tensor_select(tensor_rms_norm(x, 1), 0, 1)), 0.328125, 0);
}

static void margin_losses(void) {
    static const int64_t one[5] = {1, 0, 3, 2, 1},
                         many[20] = {1, 3, -1, 0, 2, 0, -1, 1, -1, 2, 2, 0, 3, 1, 2, 0, -1, 1, 0, 3};
    tensor_t *x = X(0.1, 5, 4, 0, 0), *x2 = X(0.7, 5, 4, 0, 0), *x3 = X(1.9, 5, 4, 0, 0), *t = labels(one, 5);
    tensor_t *pm = tensor_sub_scalar(
        tensor_mul_scalar(tensor_remainder_scalar(tensor_arange(0, 20, 1, TENSOR_I64), 2), 2), 1);
    tensor_t *sign = tensor_reshape(pm, 5, 4), *sign1 = tensor_narrow(pm, 0, 0, 5),
             *w = tensor_square(tensor_detach(X(0.4, 4, 0, 0, 0)));
    tensor_t *ml = tensor_reshape(labels(many, 20), 5, 4), *prob = tensor_detach(tensor_softmax(x2, 1)), *y;
    CHECK_NEAR(probe(y = tensor_hinge_embedding_loss(x, sign, .margin = 0.5, .reduction = TENSOR_NONE)),
               0.429751408847113, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.706057969037679, 1e-10);
    CHECK_NEAR(probe(y = tensor_hinge_embedding_loss(x, tensor_to(sign, TENSOR_F64))), 0.526211139488701,
               1e-10);
    CHECK_NEAR(dprobe(y, x), -0.0175612871380605, 1e-10);
    CHECK_NEAR(probe(y = tensor_soft_margin_loss(x, sign, .reduction = TENSOR_SUM)), 14.7665591410914, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.482031191104332, 1e-10);
    CHECK_NEAR(probe(y = tensor_multi_margin_loss(x, t, w)), 0.264304241314664, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0757494922377817, 1e-10);
    CHECK_NEAR(probe(y = tensor_multi_margin_loss(x, t, .p = 2, .margin = 0.7, .reduction = TENSOR_NONE)),
               0.029773442747965, 1e-10);
    CHECK_NEAR(dprobe(y, x), 2.90425982762177, 1e-10);
    CHECK_NEAR(probe(y = tensor_multilabel_margin_loss(x, ml)), 0.466632344019788, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.210638845639746, 1e-10);
    CHECK_NEAR(probe(y = tensor_multilabel_margin_loss(x, ml, .reduction = TENSOR_NONE)), 1.88519382540497,
               1e-10);
    CHECK_NEAR(dprobe(y, x), 0.8543259781713, 1e-10);
    CHECK_NEAR(probe(y = tensor_multilabel_soft_margin_loss(x, prob, w)), 0.330235901898312, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.0075686181800592, 1e-10);
    CHECK_NEAR(probe(y = tensor_margin_ranking_loss(x, x2, sign, .margin = 0.3)), 0.361836786222641, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.0323791730588605, 1e-10);
    CHECK_NEAR(probe(y = tensor_cosine_embedding_loss(x, x2, sign1, .margin = 0.2, .reduction = TENSOR_NONE)),
               -0.0539709792736901, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.854804962865172, 1e-10);
    CHECK_NEAR(probe(y = tensor_triplet_margin_loss(x, x2, x3)), 0, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0, 1e-10);
    CHECK_NEAR(probe(y = tensor_triplet_margin_loss(x, x2, x3, .p = 1, .swap = 1, .margin = 2,
                                                    .reduction = TENSOR_NONE)),
               0.0210293735623371, 1e-10);
    CHECK_NEAR(dprobe(y, x), 2.3052187426845, 1e-10);
    CHECK_NEAR(probe(y = tensor_triplet_margin_loss(x, x2, x3, .p = 3)), 0.0201152060704764, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.096327773064827, 1e-10);
    CHECK_NEAR(probe(y = tensor_gaussian_nll_loss(x, x2, tensor_square(x3), .full = 1)), 0.428171506037182,
               1e-10);
    CHECK_NEAR(dprobe(y, x), 0.753761367749713, 1e-10);
    CHECK_NEAR(dprobe(y, x3), -0.309135949430561, 1e-10);
    CHECK_NEAR(probe(y = tensor_gaussian_nll_loss(x, x2, tensor_square(tensor_select(x3, 1, 0)), .eps = 0.5,
                                                  .reduction = TENSOR_NONE)),
               0.757553657323173, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0417432290400179, 1e-10);
    CHECK_NEAR(dprobe(y, x3), 0.087806035184051, 1e-10);
    CHECK_NEAR(probe(y = tensor_poisson_nll_loss(x, tensor_remainder_scalar(ml, 5), .full = 1)),
               2.0883242055848, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.141713231385356, 1e-10);
    CHECK_NEAR(probe(y = tensor_poisson_nll_loss(tensor_square(x), prob, .no_log_input = 1)),
               0.835550488761269, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0339830353993238, 1e-10);
}

static void older_losses(void) {
    static const int64_t one[12] = {1, 0, 3, -100, 1, 2, 0, 0, 2, 3, 1, 0};
    tensor_t *x = X(0.1, 3, 4, 2, 2), *t = tensor_reshape(labels(one, 12), 3, 2, 2), *y,
             *w = tensor_square(tensor_detach(X(0.4, 4, 0, 0, 0)));
    tensor_t *prob = tensor_detach(tensor_softmax(X(0.7, 3, 4, 2, 2), 1)), *lp = tensor_log_softmax(x, 1),
             *row = tensor_sigmoid(x);
    CHECK_NEAR(probe(y = tensor_cross_entropy(x, t, w, .label_smoothing = 0.2)), 1.53935599788422, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.173903444652578, 1e-10);
    CHECK_NEAR(probe(y = tensor_cross_entropy(x, t, w, .label_smoothing = 0.2, .reduction = TENSOR_SUM)),
               8.12061646548086, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.917398690095451, 1e-10);
    CHECK_NEAR(probe(y = tensor_cross_entropy(x, t, .reduction = TENSOR_NONE)), 2.03047699641533, 1e-10);
    CHECK_NEAR(dprobe(y, x), 1.34209379323989, 1e-10);
    CHECK_NEAR(probe(y = tensor_cross_entropy(x, prob, w, .label_smoothing = 0.1)), 0.653458101133373, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.000606260096145844, 1e-10);
    CHECK_NEAR(probe(y = tensor_cross_entropy(x, prob, w, .reduction = TENSOR_NONE)), -0.351214450503566,
               1e-10);
    CHECK_NEAR(dprobe(y, x), 0.477921659802898, 1e-10);
    CHECK_NEAR(probe(y = tensor_nll_loss(lp, t, w)), 1.51152719114319, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.214236391493086, 1e-10);
    CHECK_NEAR(probe(y = tensor_kl_div(lp, prob, .reduction = TENSOR_BATCHMEAN)), 0.277506183082098, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0219308969690623, 1e-10);
    CHECK_NEAR(probe(y = tensor_kl_div(lp, tensor_log(prob), .log_target = 1, .reduction = TENSOR_NONE)),
               -0.0931440763318735, 1e-10);
    CHECK_NEAR(dprobe(y, x), -5.31917190322313, 1e-10);
    CHECK_NEAR(probe(y = tensor_binary_cross_entropy(row, prob, tensor_reshape(w, 4, 1, 1))),
               0.336127196856887, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0197064865209236, 1e-10);
    CHECK_NEAR(
        probe(y = tensor_binary_cross_entropy_with_logits(x, prob, tensor_reshape(w, 4, 1, 1),
                                                          tensor_add_scalar(tensor_reshape(w, 4, 1, 1), 1))),
        0.398304753397357, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0232545201962559, 1e-10);
    CHECK_NEAR(probe(y = tensor_huber_loss(x, prob, .delta = 0.3)), 0.128012652733638, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.00109956292538326, 1e-10);
    CHECK_NEAR(probe(y = tensor_smooth_l1_loss(x, prob, .beta = 0.3)), 0.426708842445462, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.00366520975127753, 1e-10);
}

static void ctc_values(void) {
    static const int64_t flat[8] = {1, 2, 2, 3, 1, 3, 1, 1}, pad[12] = {1, 2, 2, 0, 3, 0, 0, 0, 1, 3, 1, 1},
                         il[3] = {7, 5, 6}, tl[3] = {3, 1, 4};
    static const int64_t il0[3] = {3, 5, 0};
    tensor_t *x = X(0.1, 7, 3, 5, 0), *lp = tensor_log_softmax(x, 2), *ti = labels(il, 3),
             *tt = labels(tl, 3), *y, *t0 = labels(il0, 3);
    tensor_t *cat = labels(flat, 8), *two = tensor_reshape(labels(pad, 12), 3, 4),
             *one = tensor_select(lp, 1, 0);
    CHECK_NEAR(probe(y = tensor_ctc_loss(lp, cat, ti, tt)), 3.27684949938559, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.183471940671897, 1e-10);
    CHECK_NEAR(probe(y = tensor_ctc_loss(lp, tensor_to(two, TENSOR_I32), ti, tt, .reduction = TENSOR_NONE)),
               8.1019526186901, 1e-10);
    CHECK_NEAR(dprobe(y, x), 1.11168103380536, 1e-10);
    CHECK_NEAR(dprobe(y, lp), 1.11168103380536, 1e-10);
    CHECK_NEAR(probe(y = tensor_ctc_loss(lp, two, ti, tt, .blank = 4, .reduction = TENSOR_SUM)),
               22.0051684103759, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.170305358134262, 1e-10);
    CHECK_NEAR(probe(y = tensor_ctc_loss(lp, two, t0, tt, .zero_infinity = 1)), 1.66965883654822, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0432430921377476, 1e-10);
    CHECK_NEAR(probe(y = tensor_ctc_loss(one, tensor_narrow(cat, 0, 0, 3), tensor_select(ti, 0, 0),
                                         tensor_select(tt, 0, 0))),
               2.3972031891771, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.105637938257509, 1e-10);
}

// Losses without kernels have derivatives of public ops; these have kernels or tricks.
static tensor_t *f_ctc(tensor_t *const *in, int n, void *user) {
    static const int64_t pad[6] = {1, 1, 0, 2, 0, 0}, il[3] = {5, 4, 2}, tl[3] = {2, 1, 0};
    (void)n, (void)user;
    return tensor_ctc_loss(tensor_log_softmax(in[0], -1), tensor_reshape(labels(pad, 6), 3, 2), labels(il, 3),
                           labels(tl, 3));
}
static tensor_t *f_triplet(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_triplet_margin_loss(in[0], in[1], in[2], .margin = 3);
}
static tensor_t *f_multilabel(tensor_t *const *in, int n, void *user) {
    static const int64_t many[8] = {1, 3, -1, 0, 2, -1, 0, 0};
    (void)n, (void)user;
    return tensor_multilabel_margin_loss(in[0], tensor_reshape(labels(many, 8), 2, 4));
}
static void loss_gradients(void) {
    tensor_t *x = X(0.1, 5, 3, 4, 0), *in[3] = {X(0.1, 2, 4, 0, 0), X(0.6, 2, 4, 0, 0), X(2, 2, 4, 0, 0)};
    grads(f_ctc, &x, 1);
    grads(f_triplet, in, 3);
    grads(f_multilabel, in, 1);
}

static void ctc_edges(void) {
    static const int64_t pad[6] = {1, 1, 2, 2, 1, 2}, il[3] = {2, 6, 0}, tl[3] = {2, 2, 0},
                         bad[3] = {2, 7, 0}, deep[3] = {2, 3, 0};
    tensor_t *x = tensor_detach(X(0.1, 6, 3, 4, 0)), *lp = tensor_log_softmax(x, 2),
             *t = tensor_reshape(labels(pad, 6), 3, 2), *y, *big, *h;
    uint64_t hash[2];
    int k;
    y = tensor_ctc_loss(lp, t, labels(il, 3), labels(tl, 3), .reduction = TENSOR_NONE);
    CHECK(isinf(tensor_item(tensor_select(y, 0, 0)))); // 1 1 does not fit into two steps
    CHECK(isfinite(tensor_item(tensor_select(y, 0, 1))));
    CHECK(tensor_item(tensor_select(y, 0, 2)) == 0); // nothing into nothing
    h = tensor_to(lp, TENSOR_F16);
    CHECK(tensor_dtype(tensor_ctc_loss(h, t, labels(il, 3), labels(tl, 3))) == TENSOR_F16);
    CHECK_NEAR(tensor_item(tensor_ctc_loss(tensor_to(lp, TENSOR_F32), t, labels(il, 3), labels(tl, 3),
                                           .zero_infinity = 1)),
               tensor_item(tensor_ctc_loss(lp, t, labels(il, 3), labels(tl, 3), .zero_infinity = 1)), 1e-6);
    for (k = 0; k < 2; k++) {
        tensor_set_num_threads(k ? 4 : 1);
        big = tensor_requires_grad_(
            tensor_to(tensor_log_softmax(tensor_detach(X(0.3, 20, 9, 5, 0)), 2), TENSOR_F32), 1);
        y = tensor_ctc_loss(big, tensor_ones_of(TENSOR_I64, 9, 4), tensor_full_of(TENSOR_I64, 20, 9),
                            tensor_full_of(TENSOR_I64, 4, 9));
        tensor_backward(y);
        hash[k] = test_hash(test_hash(TEST_HASH, y), tensor_grad(big));
    }
    tensor_set_num_threads(1);
    CHECK(hash[0] == hash[1]);
    CHECK_POISON(tensor_ctc_loss(lp, t, labels(bad, 3), labels(tl, 3)), TENSOR_ERR_INDEX,
                 "ctc_loss: input length 7, target length 2 of item 1 do not fit 6 steps, 2 targets");
    CHECK_POISON(tensor_ctc_loss(lp, t, labels(il, 3), labels(deep, 3)), TENSOR_ERR_INDEX,
                 "target length 3 of item 1");
    CHECK_POISON(tensor_ctc_loss(lp, tensor_mul_scalar(t, 2), labels(il, 3), labels(tl, 3)), TENSOR_ERR_INDEX,
                 "ctc_loss: target 4 of item 1 is not in 0..3");
    CHECK_POISON(tensor_ctc_loss(lp, t, labels(il, 2), labels(tl, 3)), TENSOR_ERR_SHAPE, "input_lengths [2]");
    CHECK_POISON(tensor_ctc_loss(lp, tensor_to(t, TENSOR_F64), labels(il, 3), labels(tl, 3)),
                 TENSOR_ERR_DTYPE, "must be i32 or i64");
    CHECK_POISON(tensor_ctc_loss(lp, t, labels(il, 3), labels(tl, 3), .blank = 4), TENSOR_ERR_INDEX,
                 "blank 4");
    CHECK_POISON(tensor_ctc_loss(lp, t, labels(il, 3), NULL), TENSOR_ERR_OWNER,
                 "ctc_loss: argument target_lengths is NULL");
}

static void loss_errors(void) {
    tensor_t *x = tensor_ones(3, 4), *v = tensor_ones(4), *i = tensor_zeros_of(TENSOR_I64, 3);
    CHECK_POISON(tensor_hinge_embedding_loss(x, v), TENSOR_ERR_SHAPE,
                 "hinge_embedding_loss: input [3,4] and target [4] must have the same shape at sequence.c");
    CHECK_POISON(tensor_soft_margin_loss(x, x, .reduction = TENSOR_BATCHMEAN), TENSOR_ERR_SHAPE,
                 "reduction 3");
    CHECK_POISON(tensor_multi_margin_loss(x, x), TENSOR_ERR_DTYPE, "target is f32, must be i32 or i64");
    CHECK_POISON(tensor_multi_margin_loss(x, tensor_zeros_of(TENSOR_I64, 4)), TENSOR_ERR_SHAPE,
                 "target [4] must have the dims");
    CHECK_POISON(tensor_multi_margin_loss(x, tensor_add_scalar(i, 4)), TENSOR_ERR_INDEX,
                 "multi_margin_loss: ");
    CHECK_POISON(tensor_multi_margin_loss(x, i, .p = 3), TENSOR_ERR_SHAPE, "p 3 must be 1 or 2");
    CHECK_POISON(tensor_multi_margin_loss(x, i, tensor_ones_of(TENSOR_F64, 4)), TENSOR_ERR_DTYPE,
                 "multi_margin_loss: weight is f64, input is f32");
    CHECK_POISON(tensor_multilabel_margin_loss(x, i), TENSOR_ERR_SHAPE,
                 "target [3] must have the dims of input [3,4]");
    CHECK_POISON(tensor_multilabel_soft_margin_loss(x, x, tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "weight [3] does not broadcast");
    CHECK_POISON(tensor_margin_ranking_loss(x, x, v), TENSOR_ERR_SHAPE,
                 "input1 [3,4] and target [4] must have the same shape");
    CHECK_POISON(tensor_cosine_embedding_loss(x, x, x), TENSOR_ERR_SHAPE, "target [3,4] [N] or []");
    CHECK_POISON(tensor_triplet_margin_loss(x, x, v), TENSOR_ERR_SHAPE, "anchor [3,4] and negative [4]");
    CHECK_POISON(tensor_gaussian_nll_loss(x, x, tensor_ones(3, 2)), TENSOR_ERR_SHAPE,
                 "var [3,2] must have the shape");
    CHECK_POISON(tensor_gaussian_nll_loss(x, x, tensor_neg(x)), TENSOR_ERR_INDEX,
                 "var [3,4] has a negative element");
    CHECK_POISON(tensor_poisson_nll_loss(x, v), TENSOR_ERR_SHAPE, "must have the same shape");
    CHECK_POISON(tensor_poisson_nll_loss(NULL, v), TENSOR_ERR_OWNER,
                 "poisson_nll_loss: argument input is NULL");
    // one value and no batch; halves; an empty batch
    CHECK_NEAR(tensor_item(tensor_multi_margin_loss(v, tensor_scalar(2, TENSOR_I64))), 0.75, 1e-6);
    CHECK(tensor_dtype(tensor_cosine_embedding_loss(tensor_to(x, TENSOR_BF16), tensor_to(x, TENSOR_BF16),
                                                    tensor_ones(3))) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_soft_margin_loss(tensor_to(x, TENSOR_F16), tensor_ones_of(TENSOR_I64, 3, 4))) ==
          TENSOR_F16);
    CHECK(tensor_item(tensor_margin_ranking_loss(tensor_zeros(0, 2), tensor_zeros(0, 2), tensor_zeros(0, 2),
                                                 .reduction = TENSOR_SUM)) == 0);
}

// Fewer heads of keys and values than of queries, and values of another size than keys. PyTorch:
// t = lambda m, d, o, *s: ((torch.arange(math.prod(s)).double().reshape(s) % m / d - o).requires_grad_())
// F.scaled_dot_product_attention(t(7, 4, .5, 1, 4, 3, 2), t(5, 3, .6, 1, 2, 5, 2), t(11, 5, 1, 1, 2, 5, 3),
//                                enable_gqa=True)
static tensor_t *steps_of(double modulus, double divisor, double less, tensor_t *like) {
    tensor_t *t = tensor_arange(0, (double)tensor_numel(like), 1, TENSOR_F64);
    t = tensor_sub_scalar(tensor_div_scalar(tensor_remainder_scalar(t, modulus), divisor), less);
    return tensor_requires_grad_(tensor_reshape_as(t, like), 1);
}
static double sum_by_place(tensor_t *x) {
    tensor_t *places = tensor_arange(0, (double)tensor_numel(x), 1, TENSOR_F64);
    return tensor_item(tensor_sum(tensor_mul(x, tensor_reshape_as(places, x))));
}
static void attention_of_wide_values(void) {
    tensor_t *q = steps_of(7, 4, 0.5, tensor_empty(1, 4, 3, 2));
    tensor_t *k = steps_of(5, 3, 0.6, tensor_empty(1, 2, 5, 2));
    tensor_t *v = steps_of(11, 5, 1, tensor_empty(1, 2, 5, 3));
    tensor_t *y = tensor_scaled_dot_product_attention(q, k, v, .enable_gqa = 1);
    CHECK(tensor_ndim(y) == 4 && tensor_size(y, 1) == 4 && tensor_size(y, 3) == 3);
    CHECK_NEAR(tensor_item(tensor_at(y, "0, 0, 0, 0")), -0.25031280996538857, 1e-14);
    CHECK_NEAR(tensor_item(tensor_at(y, "0, 0, 1, 2")), -0.2954530698504559, 1e-14);
    tensor_t *loss = tensor_sum(tensor_mul(y, tensor_detach(steps_of(3, 1, 1, y))));
    CHECK_NEAR(tensor_item(loss), -0.4125126257745005, 1e-12);
    tensor_backward(loss);
    CHECK_NEAR(sum_by_place(tensor_grad(q)), 6.698763457938787, 1e-11);
    CHECK_NEAR(sum_by_place(tensor_grad(k)), 0.33065690203800724, 1e-11);
    CHECK_NEAR(sum_by_place(tensor_grad(v)), 24, 1e-11);
    // Three sizes of 1 before the others change nothing.
    tensor_t *wide[3] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        for (int more = 0; more < 3; more++) { wide[i] = tensor_unsqueeze(wide[i], 0); }
    }
    wide[0] = tensor_scaled_dot_product_attention(wide[0], wide[1], wide[2], .enable_gqa = 1);
    CHECK(tensor_ndim(wide[0]) == 7 && tensor_equal(tensor_reshape_as(wide[0], y), y));
}
static void attention_masks(void) {
    tensor_t *q = X(0.1, 2, 4, 3, 2), *k = X(0.5, 2, 2, 5, 2), *v = X(0.9, 2, 2, 5, 2), *y;
    tensor_t *b4 = tensor_gt_scalar(tensor_detach(X(0.2, 2, 4, 3, 5)), -0.4), *f4 = X(0.7, 2, 4, 3, 5),
             *f3 = X(0.3, 1, 3, 5, 0), *f2 = X(0.3, 3, 5, 0, 0);
    tensor_t *q3 = X(0.1, 2, 3, 4, 0), *k3 = X(0.5, 2, 5, 4, 0), *v3 = X(0.9, 2, 5, 3, 0);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, .enable_gqa = 1, .is_causal = 1)),
               3.85139082226199, 1e-10);
    CHECK_NEAR(dprobe(y, q), 5.84645175179105, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, .enable_gqa = 1, .is_causal = 1)),
               3.85139082226199, 1e-10);
    CHECK_NEAR(dprobe(y, k), -0.271753862932734, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, .enable_gqa = 1, .is_causal = 1)),
               3.85139082226199, 1e-10);
    CHECK_NEAR(dprobe(y, v), 0.0410520557376367, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, b4, .enable_gqa = 1, .scale = 0.3)),
               -0.0881659434545999, 1e-10);
    CHECK_NEAR(dprobe(y, q), 3.77569263062072, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, f4, .enable_gqa = 1)),
               0.150072785144646, 1e-10);
    CHECK_NEAR(dprobe(y, f4), 3.39080399300243, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q, k, v, f3, .enable_gqa = 1)),
               0.149072802657804, 1e-10);
    CHECK_NEAR(dprobe(y, k), 0.181225247670675, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q3, k3, v3, f2)), -0.138710929951543, 1e-10);
    CHECK_NEAR(dprobe(y, q3), 0.472684090274037, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(q3, k3, v3, .is_causal = 1)), 1.39878701586978,
               1e-10);
    CHECK_NEAR(dprobe(y, v3), 3.66926217256161, 1e-10);
    CHECK_NEAR(probe(y = tensor_scaled_dot_product_attention(tensor_unsqueeze(q, 0),
                                                             tensor_unsqueeze(tensor_narrow(q, 2, 0, 2), 0),
                                                             tensor_unsqueeze(tensor_narrow(q, 2, 1, 2), 0))),
               -0.496963047363642, 1e-10);
    CHECK_NEAR(dprobe(y, q), -6.64325855837304, 1e-10);
}

// Blocks of queries and turned keys, with heads inside of tokens, against the composed form.
static void attention_blocks(void) {
    static const int sizes[][4] = {{64, 64, 32, 32}, {33, 33, 8, 20}, {31, 40, 6, 5}, {200, 170, 12, 9},
        {130, 300, 17, 17}};
    for (int i = 0; i < 10; i++) {
        const int *z = sizes[i / 2], causal = i % 2;
        tensor_t *in[3], *got[3], *want[3], *y, *r, *g, *mask;
        in[0] = tensor_requires_grad_(tensor_transpose(tensor_randn(2, z[0], 3, z[2]), 1, 2), 1);
        in[1] = tensor_requires_grad_(tensor_transpose(tensor_randn(2, z[1], 3, z[2]), 1, 2), 1);
        in[2] = tensor_requires_grad_(tensor_transpose(tensor_randn(2, z[1], 3, z[3]), 1, 2), 1);
        g = tensor_transpose(tensor_randn(2, z[0], 3, z[3]), 1, 2);
        mask = tensor_tril(tensor_ones_of(TENSOR_BOOL, z[0], z[1]), causal ? 0 : 1000);
        y = tensor_scaled_dot_product_attention(in[0], in[1], in[2], .is_causal = causal);
        r = tensor_scaled_dot_product_attention(in[0], in[1], in[2], mask);
        CHECK(tensor_allclose(y, r, 1e-5, 1e-6));
        tensor_autograd_grad(&y, 1, &g, in, 3, got, 0);
        tensor_autograd_grad(&r, 1, &g, in, 3, want, 0);
        for (int k = 0; k < 3; k++) { CHECK(tensor_allclose(got[k], want[k], 1e-4, 1e-5)); }
    }
}

static int calls_between;
static void hear_call(void *user, const tensor_profiler_call_t *call) {
    (void)user;
    calls_between += !strcmp(call->op, "add") || !strcmp(call->op, "clone") || !strcmp(call->op, "fill");
}
static tensor_t *cut(tensor_t *x, int way, int k) {
    const int64_t n = tensor_size(x, 1), heads = 3, size = tensor_size(x, 2) / 3 / heads;
    if (way == 0) {
        return tensor_select(tensor_permute(tensor_reshape(x, 2, n, 3, heads, size), 2, 0, 3, 1, 4), 0, k);
    }
    if (way == 3) { k = k < 2 ? 0 : 1; }                            // query and key are the same part
    x = tensor_narrow(x, 2, (way == 2 ? 2 - k : k) * heads * size, heads * size);
    return tensor_transpose(tensor_reshape(x, 2, n, heads, size), 1, 2);
}

// Query, key and value are parts of one product: their gradients are written where its own is, with the bits
// that they have alone. Not if a part is seen, is taken twice, or not all are taken.
static void attention_parts(void) {
    static const tensor_profiler_t hears = {NULL, hear_call, NULL, NULL, NULL, NULL, NULL, NULL};
    static const int64_t lengths[] = {1, 7, 33, 70, 300};
    for (int i = 0; i < 30; i++) {
        const int way = i % 6 % 4, seen = i % 6 == 4, more = i % 6 == 5;
        const int64_t size = i / 6 == 3 ? 4 : 16;       // rows of 16 are whole lines of the caches
        tensor_t *leaf = tensor_requires_grad_(tensor_randn(2, lengths[i / 6], 9 * size), 1), *part[3];
        tensor_t *g = tensor_randn(2, 3, lengths[i / 6], size), *x = tensor_mul_scalar(leaf, 1), *alone[3];
        for (int k = 0; k < 3; k++) {
            part[k] = cut(x, way, k);
            alone[k] = tensor_requires_grad_(tensor_detach(part[k]), 1);
        }
        if (seen) { tensor_retain_grad(part[1]); }
        tensor_t *y = tensor_scaled_dot_product_attention(part[0], part[1], part[2], .is_causal = i % 2);
        if (more) { y = tensor_add(y, part[2]); }
        calls_between = 0;
        tensor_profiler_set(&hears);
        tensor_backward(tensor_sum(tensor_mul(y, g)));
        tensor_profiler_set(NULL);
        CHECK(more || (way == 3 || seen ? calls_between > 3 : calls_between <= 3));
        y = tensor_scaled_dot_product_attention(alone[0], alone[1], alone[2], .is_causal = i % 2);
        if (more) { y = tensor_add(y, alone[2]); }
        tensor_backward(tensor_sum(tensor_mul(y, g)));
        if (seen) { CHECK(tensor_equal(tensor_grad(part[1]), tensor_grad(alone[1]))); }
        for (int k = 0; k < 3; k++) {
            tensor_t *want = tensor_grad(alone[k]);
            if (way == 3 && k < 2) { want = tensor_add(want, tensor_grad(alone[1 - k])); }
            CHECK(tensor_equal(cut(tensor_grad(leaf), way, k), want));
        }
    }
}

static void multihead_attention_values(void) {
    nn_module_t *a = filled(
                    nn_multihead_attention(6, 2, .kdim = 5, .vdim = 4, .add_bias_kv = 1, .add_zero_attn = 1)),
                *b = filled(nn_multihead_attention(6, 3, .batch_first = 1));
    tensor_t *q = X32(0.1, 2, 3, 6), *k = X32(0.4, 4, 3, 5), *v = X32(0.8, 4, 3, 4), *w = NULL, *y,
             *z = X32(0.3, 2, 5, 6), *z1 = X32(0.2, 4, 6, 0);
    tensor_t *mask = tensor_gt_scalar(tensor_detach(X32(0.2, 2, 4, 0)), 0.6),
             *pad = tensor_gt_scalar(tensor_detach(X32(0.9, 3, 4, 0)), 0.7);
    tensor_t *m3 = tensor_detach(X32(0.6, 6, 2, 4)), *sq = tensor_triu(tensor_ones_of(TENSOR_BOOL, 5, 5), 1);
    nn_eval(a), nn_eval(b);
    CHECK_NEAR(probe(y = nn_multihead_attention_forward(a, q, k, v)), -1.09804917867942, 3e-5);
    CHECK_NEAR(dprobe(y, q), 0.0140355308850477, 3e-5);
    CHECK_NEAR(probe(y = nn_multihead_attention_forward(a, q, k, v, .weights = &w)), -1.09804917867942, 3e-5);
    CHECK_NEAR(dprobe(y, v), 0.027709705751367, 3e-5);
    CHECK_NEAR(probe(w), 0.235864842300334, 3e-5);
    CHECK_NEAR(
        probe(y = nn_multihead_attention_forward(a, q, k, v, .attn_mask = mask, .key_padding_mask = pad,
                                                 .weights = &w, .every_head = 1)),
        -0.823832017200454, 3e-5);
    CHECK_NEAR(dprobe(y, k), -0.0455675985305302, 3e-5);
    CHECK_NEAR(probe(w), -0.234543382672007, 3e-5);
    CHECK_NEAR(
        probe(y = nn_multihead_attention_forward(a, q, k, v, .attn_mask = m3, .key_padding_mask = pad)),
        -0.895275057422629, 3e-5);
    CHECK_NEAR(dprobe(y, q), 0.0289703209128786, 3e-5);
    CHECK_NEAR(probe(y = nn_multihead_attention_forward(b, z, z, z, .is_causal = 1)), 0.678481493885322,
               3e-5);
    CHECK_NEAR(dprobe(y, z), 4.99502834279759, 3e-5);
    CHECK_NEAR(probe(y = nn_multihead_attention_forward(b, z, z, z, .attn_mask = sq, .weights = &w)),
               0.678481493885322, 3e-5);
    CHECK_NEAR(dprobe(y, z), 4.99502834279759, 3e-5);
    CHECK_NEAR(probe(y = nn_multihead_attention_forward(b, z1, z1, z1, .weights = &w)), -2.63854416492048,
               3e-5);
    CHECK_NEAR(dprobe(y, z1), -0.384690905105054, 3e-5);
    CHECK_NEAR(probe(w), 0.739174630113678, 3e-5);
    CHECK_NEAR(probe(y = nn_forward(b, z)), -0.068817258944207, 3e-5);
    CHECK_NEAR(dprobe(y, z), -1.22294990951794, 3e-5);
    nn_free(a), nn_free(b);
}

static void transformer_values(void) {
    nn_module_t *e = filled(nn_transformer_encoder_layer(4, 2, .feedforward = 6)),
                *f = filled(nn_transformer_encoder_layer(4, 2, .feedforward = 6, .norm_first = 1, .gelu = 1,
                                                         .batch_first = 0, .no_bias = 1));
    nn_module_t *d = filled(nn_transformer_decoder_layer(4, 2, .feedforward = 5, .norm_first = 1)),
                *se = nn_transformer_encoder(nn_transformer_encoder_layer(4, 2, .feedforward = 6), 2,
                                             nn_layer_norm(4));
    nn_module_t *sd = nn_transformer_decoder(nn_transformer_decoder_layer(4, 1, .feedforward = 6), 2, NULL);
    tensor_t *x = X32(0.1, 3, 2, 4), *mem = X32(0.8, 5, 2, 4),
             *cm = tensor_triu(tensor_ones_of(TENSOR_BOOL, 3, 3), 1), *y;
    tensor_t *pad = tensor_gt_scalar(tensor_detach(X32(1.6, 2, 3, 0)), 0.9),
             *mpad = tensor_gt_scalar(tensor_detach(X32(0.9, 2, 5, 0)), 0.7);
    nn_eval(e), nn_eval(f), nn_eval(d), nn_eval(filled(se)), nn_eval(filled(sd));
    CHECK_NEAR(probe(y = nn_transformer_forward(e, x, NULL, .mask = cm, .key_padding_mask = pad)),
               0.789541022306056, 5e-5);
    CHECK_NEAR(dprobe(y, x), 0.0827545181617539, 5e-5);
    CHECK_NEAR(probe(y = nn_transformer_forward(f, x, NULL, .mask = cm, .key_padding_mask = pad)),
               2.61950529104989, 5e-5);
    CHECK_NEAR(dprobe(y, x), 11.8083633706317, 5e-5);
    CHECK_NEAR(probe(y = nn_forward(e, x)), 0.773462784155873, 5e-5);
    CHECK_NEAR(dprobe(y, x), 0.0867128079336269, 5e-5);
    CHECK_NEAR(probe(y = nn_transformer_forward(d, x, mem, .mask = cm, .memory_key_padding_mask = mpad)),
               4.41721368796555, 5e-5);
    CHECK_NEAR(dprobe(y, x), 11.9009773238507, 5e-5);
    CHECK_NEAR(probe(y = nn_transformer_forward(d, x, mem, .is_causal = 1)), 4.42427699323992, 5e-5);
    CHECK_NEAR(dprobe(y, mem), -0.792323227503362, 5e-5);
    CHECK_NEAR(probe(y = nn_transformer_forward(se, x, NULL)), -0.521389883590334, 5e-5);
    CHECK_NEAR(dprobe(y, x), 0.0185558669329732, 5e-5);
    CHECK_NEAR(probe(y = nn_transformer_forward(sd, x, mem, .mask = cm)), 0.710703657806269, 5e-5);
    CHECK_NEAR(dprobe(y, mem), -0.0585623004159708, 5e-5);
    nn_free(e), nn_free(f), nn_free(d), nn_free(se), nn_free(sd);
}

// A row whose scores are all minus infinity looks at nothing, as one whose mask is so.
static void attention_to_nothing(void) {
    float queries[] = {INFINITY, 1}, keys[] = {-1, -2, -3}, values[] = {1, 2, 3};
    for (int causal = 0; causal < 2; causal++) {
        tensor_t *q = tensor_from(queries, TENSOR_F32, 1, 2, 1), *k = tensor_from(keys, TENSOR_F32, 1, 3, 1);
        tensor_t *v = tensor_requires_grad_(tensor_from(values, TENSOR_F32, 1, 3, 1), 1);
        tensor_t *y = tensor_scaled_dot_product_attention(q, k, v, .is_causal = causal);
        const float *at = (const float *)tensor_data(y);
        CHECK(at[0] == 0);
        CHECK_NEAR(at[1], causal ? 1.2689414 : 1.4247830, 1e-5);
        CHECK(tensor_backward(tensor_sum(y)) == 0);
        CHECK_NEAR(tensor_item(tensor_sum(tensor_grad(v))), 1, 1e-5);
    }
    CHECK_OK();
}

static void attention_edges(void) {
    nn_module_t *m = nn_multihead_attention(4, 2, .dropout = 0.5), *c, *d, *e, *l;
    tensor_t *x = tensor_detach(X32(0.1, 3, 2, 4)), *w = NULL, *pad = tensor_ones_of(TENSOR_BOOL, 2, 3), *y,
             *mem = x;
    double bound = sqrt(6.0 / 16);
    CHECK(nn_state(m).count == 4 && tensor_item(tensor_norm(nn_get(m, "out_proj.bias"))) == 0);
    CHECK(tensor_item(tensor_max(tensor_abs(nn_get(m, "in_proj_weight")))) <= bound);
    y = nn_multihead_attention_forward(m, x, x, x, .weights = &w);
    CHECK(tensor_ok() && !tensor_equal(y, nn_forward(m, x))); // dropout
    nn_eval(m);
    y = nn_multihead_attention_forward(m, x, x, x, .key_padding_mask = pad, .weights = &w);
    CHECK(tensor_item(tensor_norm(y)) == 0 &&
          tensor_item(tensor_norm(w)) == 0); // nothing to look at: 0, not NaN
    c = nn_clone(m);
    CHECK(test_same_bits(nn_forward(c, x), nn_forward(m, x)));
    CHECK_POISON(nn_multihead_attention_forward(m, x, x, tensor_ones(3, 2, 5), .weights = &w),
                 TENSOR_ERR_SHAPE,
                 "multihead_attention_forward: query [3,2,4], key [3,2,4], value [3,2,5] must be [T, N, 4]");
    CHECK(tensor_is_poison(w));
    CHECK_POISON(nn_multihead_attention_forward(m, x, x, x, .key_padding_mask = tensor_ones(2, 2)),
                 TENSOR_ERR_SHAPE, "key_padding_mask [2,2] must be [2, 3]");
    CHECK_POISON(nn_multihead_attention_forward(m, x, x, x, .attn_mask = tensor_ones(2, 3)), TENSOR_ERR_SHAPE,
                 "attn_mask [2,3] must be [3, 3] or [4, 3, 3]");
    y = tensor_ones(0, 2, 4);
    CHECK_POISON(nn_multihead_attention_forward(m, y, y, y, .attn_mask = tensor_ones(0)), TENSOR_ERR_SHAPE,
                 "attn_mask [0] must be [0, 0]");
    CHECK_POISON(nn_multihead_attention_forward(m, x, x, x, .attn_mask = tensor_ones_of(TENSOR_I64, 3, 3)),
                 TENSOR_ERR_DTYPE, "attn_mask is i64, must be bool or f32");
    CHECK_POISON(nn_multihead_attention_forward(m, x, tensor_ones(5, 2, 4), tensor_ones(4, 2, 4)),
                 TENSOR_ERR_SHAPE, "must have the same N, key and value the same S");
    CHECK_POISON(nn_multihead_attention_forward(NULL, x, x, x), TENSOR_ERR_POISONED, "multihead_attention");
    CHECK(nn_multihead_attention(5, 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "multihead_attention: heads 2 must divide embed 5 at sequence.c");
    l = nn_transformer_encoder_layer(4, 2);
    e = nn_transformer_encoder(l, 3, NULL);
    CHECK(nn_state(e).count == 36 && nn_get_child(e, "layers.2.linear1") != NULL);
    CHECK(tensor_equal(nn_get(e, "layers.2.linear1.weight"), nn_get(l, "linear1.weight")));
    CHECK_POISON(nn_transformer_forward(e, x, mem), TENSOR_ERR_SHAPE,
                 "memory is given, must be NULL for the module TransformerEncoder");
    CHECK(nn_transformer_encoder_layer(4, 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "transformer_encoder_layer: heads 3 must divide embed 4");
    CHECK(nn_multihead_attention(4, 2, .vdim = -1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "multihead_attention: vdim must be >= 0 (got -1)");
    CHECK(nn_transformer_encoder(l, 1000000000, NULL) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "transformer_encoder: count must be in 1..4096 (got 1000000000) at seq");
    d = nn_transformer_decoder_layer(4, 2);
    CHECK_POISON(nn_forward(d, x), TENSOR_ERR_OWNER,
                 "transformer_decoder_layer: memory is NULL; a decoder needs nn_transformer_forward(m, x,");
    CHECK(tensor_is_poison(tensor_lstm_cell(NULL, NULL, NULL, x, x, NULL, NULL).y));
    CHECK_ERROR(TENSOR_ERR_OWNER, "lstm_cell: argument x is NULL at sequence.c");
    nn_free(d);
    CHECK_POISON(nn_transformer_forward(m, x, NULL), TENSOR_ERR_UNSUPPORTED,
                 "the module is a MultiheadAttention, must be made by nn_transformer_..");
    CHECK_POISON(tensor_scaled_dot_product_attention(tensor_ones(1, 3, 2, 4), tensor_ones(1, 2, 2, 4),
                                                     tensor_ones(1, 2, 2, 4), .enable_gqa = 1),
                 TENSOR_ERR_SHAPE, "the heads of query [1,3,2,4] must be a multiple");
    nn_free(m), nn_free(c), nn_free(e);
}

static void lstm_values(void) {
    tensor_t *x = X(0.1, 4, 3, 5, 0), *h = X(0.5, 4, 3, 6, 0), *c = X(0.9, 4, 3, 6, 0), *w[20], *u[8], *p[10],
             *hp = X(0.4, 2, 2, 0, 0);
    tensor_t *x2 = X(0.2, 4, 5, 0, 0);
    tensor_state_t s;
    weights(w, 0.2, 4, 5, 6, 2, 2, 1, 0), weights(u, 0.3, 4, 5, 6, 2, 1, 0, 0),
        weights(p, 0.7, 4, 5, 6, 2, 1, 1, 2);
    CHECK_NEAR(probe((s = tensor_lstm(x, w, .h = h, .c = c, .layers = 2, .bidirectional = 1)).y),
               -0.581824617028217, 1e-10);
    CHECK_NEAR(probe(s.h), 0.505819785534953, 1e-10);
    CHECK_NEAR(probe(s.c), 5.60544281047898, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), 0.653539466673829, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), -0.5101458579399, 1e-10);
    CHECK_NEAR(dprobe(s.c, x), 1.15242181200207, 1e-10);
    CHECK_NEAR(dprobe(s.y, h), 0.442991827024708, 1e-10);
    CHECK_NEAR(dprobe(s.h, h), 0.0284227461032472, 1e-10);
    CHECK_NEAR(dprobe(s.c, h), 0.371241715323408, 1e-10);
    CHECK_NEAR(dprobe(s.y, c), -0.651802976874398, 1e-10);
    CHECK_NEAR(dprobe(s.h, c), 0.900215143490084, 1e-10);
    CHECK_NEAR(dprobe(s.c, c), 3.98501470771905, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[0]), 0.0720369805458114, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[0]), 0.379403379899523, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[0]), -2.88516148518457, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[1]), -0.147089212880543, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[1]), -0.0240249088624935, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[1]), 1.79489315176078, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[3]), 0.0373397051308316, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[3]), 0.36135185504345, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[3]), -1.61731124338574, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[5]), -0.0224374954335885, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[5]), 0.096921861722825, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[5]), 0.306702175835655, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[9]), 1.42709778167311, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[9]), -0.065992102063954, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[9]), -0.406433952914608, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[15]), -0.237871348013061, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[15]), 1.11169447665828, 1e-10);
    CHECK_NEAR(dprobe(s.c, w[15]), 0.0904566779227848, 1e-10);
    CHECK_NEAR(
        probe((s = tensor_lstm(tensor_transpose(x, 0, 1), u, .layers = 2, .no_bias = 1, .batch_first = 1)).y),
        0.194214779340761, 1e-10);
    CHECK_NEAR(probe(s.h), 0.580630505549196, 1e-10);
    CHECK_NEAR(probe(s.c), 3.61919067267589, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), -0.240408147645356, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), -0.256918264979176, 1e-10);
    CHECK_NEAR(dprobe(s.c, x), -0.145135618542329, 1e-10);
    CHECK_NEAR(dprobe(s.y, u[1]), -0.021873693785966, 1e-10);
    CHECK_NEAR(dprobe(s.h, u[1]), 0.163823642110264, 1e-10);
    CHECK_NEAR(dprobe(s.c, u[1]), 0.356520445123477, 1e-10);
    CHECK_NEAR(probe((s = tensor_lstm(x, p, .layers = 2, .proj_size = 2)).y), -0.184909657756323, 1e-10);
    CHECK_NEAR(probe(s.h), -0.150345754382802, 1e-10);
    CHECK_NEAR(probe(s.c), 0.931532618566461, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), -0.126090951870345, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), -0.026812179556535, 1e-10);
    CHECK_NEAR(dprobe(s.c, x), 0.623483242862138, 1e-10);
    CHECK_NEAR(dprobe(s.y, p[4]), 0.02773636043998, 1e-10);
    CHECK_NEAR(dprobe(s.h, p[4]), 0.0883508147299581, 1e-10);
    CHECK_NEAR(dprobe(s.c, p[4]), 0.0781562822385499, 1e-10);
    CHECK_NEAR(dprobe(s.y, p[6]), -0.0542240044927661, 1e-10);
    CHECK_NEAR(dprobe(s.h, p[6]), 0.00839803228431919, 1e-10);
    CHECK_NEAR(dprobe(s.c, p[6]), 0.143884748287011, 1e-10);
    CHECK_NEAR(probe((s = tensor_lstm(x2, p, .layers = 2, .proj_size = 2, .h = hp,
                                      .c = tensor_narrow(tensor_select(c, 1, 1), 0, 0, 2)))
                         .y),
               -0.232971392553516, 1e-10);
    CHECK_NEAR(probe(s.h), -0.156382638303874, 1e-10);
    CHECK_NEAR(probe(s.c), 0.801343490905077, 1e-10);
    CHECK_NEAR(dprobe(s.y, x2), -0.0214452244326604, 1e-10);
    CHECK_NEAR(dprobe(s.h, x2), 0.0605146796116995, 1e-10);
    CHECK_NEAR(dprobe(s.c, x2), 0.0603357535853489, 1e-10);
    CHECK_NEAR(dprobe(s.y, hp), 0.0390504189318178, 1e-10);
    CHECK_NEAR(dprobe(s.h, hp), 0.0082429292165635, 1e-10);
    CHECK_NEAR(dprobe(s.c, hp), -0.0715855369124845, 1e-10);
    CHECK_NEAR(dprobe(s.y, c), 0.0737001539895458, 1e-10);
    CHECK_NEAR(dprobe(s.h, c), 0.00986993377190002, 1e-10);
    CHECK_NEAR(dprobe(s.c, c), -0.0237531360053466, 1e-10);
}

static void gru_rnn_values(void) {
    tensor_t *x = X(0.1, 4, 3, 5, 0), *h = X(0.5, 4, 3, 6, 0), *w[16], *u[8];
    tensor_state_t s;
    weights(w, 0.2, 3, 5, 6, 2, 2, 1, 0), weights(u, 0.3, 1, 5, 6, 1, 2, 1, 0);
    CHECK_NEAR(probe((s = tensor_gru(x, w, .h = h, .layers = 2, .bidirectional = 1)).y), 1.30754031605508,
               1e-10);
    CHECK_NEAR(probe(s.h), 3.94103550044419, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), 0.415204921025306, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), 0.0685988535081811, 1e-10);
    CHECK_NEAR(dprobe(s.y, h), -1.75446605848902, 1e-10);
    CHECK_NEAR(dprobe(s.h, h), 4.72269549849392, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[0]), 0.494284146062002, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[0]), -3.23792977136038, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[1]), -0.533690243084763, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[1]), 0.613814929050481, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[2]), 0.203640111404557, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[2]), 0.228539878952448, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[3]), 0.078446537116631, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[3]), 0.373487233545013, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[7]), 0.148257540399712, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[7]), -0.385548989409228, 1e-10);
    CHECK_NEAR(dprobe(s.y, w[9]), 0.828153932972055, 1e-10);
    CHECK_NEAR(dprobe(s.h, w[9]), -0.578046162896863, 1e-10);
    CHECK_NEAR(probe((s = tensor_rnn(x, u, .bidirectional = 1)).y), 0.518830830936074, 1e-10);
    CHECK_NEAR(probe(s.h), -1.05276408908219, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), -6.78967636765492, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), 0.463512209795964, 1e-10);
    CHECK_NEAR(dprobe(s.y, u[1]), 1.9239440602464, 1e-10);
    CHECK_NEAR(dprobe(s.h, u[1]), 0.260254114071249, 1e-10);
    CHECK_NEAR(dprobe(s.y, u[7]), 0.817767576236107, 1e-10);
    CHECK_NEAR(dprobe(s.h, u[7]), -2.04127283031403, 1e-10);
    CHECK_NEAR(probe((s = tensor_rnn(x, u, .bidirectional = 1, .relu = 1, .h = tensor_narrow(h, 0, 0, 2))).y),
               1.40213172759994, 1e-10);
    CHECK_NEAR(probe(s.h), -1.07908171372694, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), 19.050947199284, 1e-10);
    CHECK_NEAR(dprobe(s.h, x), -0.197116958583043, 1e-10);
    CHECK_NEAR(dprobe(s.y, h), 1.89480154207688, 1e-10);
    CHECK_NEAR(dprobe(s.h, h), 3.41596096721183, 1e-10);
    CHECK_NEAR(dprobe(s.y, u[1]), 22.1602918567051, 1e-10);
    CHECK_NEAR(dprobe(s.h, u[1]), 2.32632439948359, 1e-10);
    CHECK_NEAR(dprobe(s.y, u[7]), 1.50381123391327, 1e-10);
    CHECK_NEAR(dprobe(s.h, u[7]), -4.93980874194906, 1e-10);
}

static void cell_values(void) {
    tensor_t *x = X(0.1, 3, 5, 0, 0), *h = X(0.5, 3, 6, 0, 0), *c = X(0.9, 3, 6, 0, 0), *w[4], *u[4], *r[4],
             *y;
    tensor_state_t s;
    weights(w, 0.2, 4, 5, 6, 1, 1, 1, 0), weights(u, 0.3, 3, 5, 6, 1, 1, 1, 0),
        weights(r, 0.3, 1, 5, 6, 1, 1, 1, 0);
    s = tensor_lstm_cell(x, h, c, w[0], w[1], w[2], w[3]);
    CHECK_NEAR(probe(s.h), 0.873115574690231, 1e-10);
    CHECK_NEAR(probe(s.c), 1.76363663741811, 1e-10);
    CHECK_NEAR(dprobe(s.y, x), 0.541133879809128, 1e-10);
    CHECK_NEAR(dprobe(s.c, h), -0.97032199314513, 1e-10);
    CHECK_NEAR(dprobe(s.h, c), 1.00734931512411, 1e-10);
    CHECK_NEAR(probe(y = tensor_gru_cell(x, h, u[0], u[1], u[2], u[3])), 0.936004965755003, 1e-10);
    CHECK_NEAR(dprobe(y, h), 2.0077415893197, 1e-10);
    CHECK_NEAR(probe(y = tensor_gru_cell(tensor_select(x, 0, 1), NULL, u[0], u[1], u[2], u[3])),
               0.0532341399114669, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0673685722968158, 1e-10);
    CHECK_NEAR(probe(y = tensor_rnn_cell(x, h, r[0], r[1], NULL, NULL, 0)), 2.37903456054111, 1e-10);
    CHECK_NEAR(dprobe(y, x), -0.329483362819392, 1e-10);
    CHECK_NEAR(probe(y = tensor_rnn_cell(x, h, r[0], r[1], r[2], r[3], 1)), 5.28732770391919, 1e-10);
    CHECK_NEAR(dprobe(y, x), 0.0728046528735614, 1e-10);
}

static tensor_t *f_net(tensor_t *const *in, int n, void *user) {
    tensor_t *const w[4] = {in[1], in[2], in[3], in[3]}, *both[2];
    tensor_state_t s = *(int *)user == 4   ? tensor_lstm(in[0], w, .h = in[4], .c = in[4])
                       : *(int *)user == 3 ? tensor_gru(in[0], w, .h = in[4])
                                           : tensor_rnn(in[0], w, .h = in[4]);
    (void)n;
    both[0] = tensor_reshape(s.y, -1);
    both[1] = tensor_reshape(s.c ? s.c : s.h, -1);
    return tensor_cat_n((tensor_t *const *)both, 2, 0);
}
static void net_gradients(void) {
    static const int gates[3] = {1, 3, 4};
    int k;
    for (k = 0; k < 3; k++) {
        int g = gates[k];
        tensor_t *in[5] = {X(0.1, 3, 2, 2, 0), X(0.5, 2 * g, 2, 0, 0), X(0.9, 2 * g, 2, 0, 0),
                           X(0.2, 2 * g, 0, 0, 0), X(0.7, 1, 2, 2, 0)};
        CHECK_MSG(tensor_gradcheck(f_net, &g, in, 5, 1e-6, 1e-5, 1e-3) == 0, "%s", tensor_error_text());
        CHECK_MSG(tensor_gradgradcheck(f_net, &g, in, 5, 1e-6, 1e-5, 1e-3) == 0, "%s", tensor_error_text());
        tensor_clear_error();
    }
}

static void net_modules(void) {
    nn_module_t *m = nn_lstm(5, 6, .layers = 2, .bidirectional = 1), *g = nn_gru(5, 6, .batch_first = 1),
                *r = nn_rnn(5, 6, .relu = 1), *cell = nn_lstm_cell(5, 6), *copy;
    tensor_t *x = tensor_detach(X32(0.1, 4, 3, 5)), *h = NULL, *c = NULL, *y, *w[16],
             *owned = tensor_zeros(1, 3, 6), *loss;
    tensor_state_t s;
    uint64_t hash[2];
    char text[100];
    int k;
    static const char *const names[5] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l1", "bias_hh_l1_reverse",
                                         "weight_ih_l1_reverse"};
    for (k = 0; k < 5; k++) { CHECK(!tensor_is_poison(nn_get(m, names[k]))); }
    CHECK(nn_state(m).count == 16 && tensor_size(nn_get(m, "weight_ih_l1"), 1) == 12);
    CHECK(tensor_item(tensor_max(tensor_abs(nn_get(m, "weight_hh_l0")))) <= 1 / sqrt(6.0));
    CHECK(nn_parameters(m, w, 16) == 16);
    s = tensor_lstm(x, w, .layers = 2, .bidirectional = 1);
    CHECK(test_same_bits(nn_forward(m, x), s.y));
    y = nn_lstm_forward(m, x, &h, &c);
    CHECK(test_same_bits(y, s.y) && test_same_bits(h, s.h) && test_same_bits(c, s.c));
    y = nn_lstm_forward(m, x, &h, &c);
    CHECK(!tensor_equal(y, s.y));
    s = tensor_lstm(x, w, .layers = 2, .bidirectional = 1, .h = s.h, .c = s.c);
    CHECK(test_same_bits(y, s.y) && test_same_bits(c, s.c));
    tensor_free(h), tensor_free(c); // NULL slots keep
    h = owned;                      // a slot of this scope hands on its place
    y = nn_gru_forward(g, tensor_transpose(x, 0, 1), &h);
    CHECK(tensor_size(y, 0) == 3 && test_same_bits(tensor_select(y, 1, 3), tensor_select(h, 0, 0)));
    h = NULL;
    y = nn_rnn_forward(r, x, NULL);
    CHECK(tensor_item(tensor_min(y)) >= 0);
    // steps of a cell are the net
    c = NULL;
    for (k = 0; k < 4; k++) { y = nn_lstm_forward(cell, tensor_select(x, 0, k), &h, &c); }
    w[0] = nn_get(cell, "weight_ih"), w[1] = nn_get(cell, "weight_hh"), w[2] = nn_get(cell, "bias_ih"),
    w[3] = nn_get(cell, "bias_hh");
    s = tensor_lstm(x, w);
    CHECK(tensor_allclose(y, tensor_select(s.h, 0, 0), 1e-6, 1e-6) &&
          tensor_allclose(c, tensor_select(s.c, 0, 0), 1e-6, 1e-6));
    loss = tensor_sum(y);
    tensor_backward(loss); // through the steps before
    CHECK(tensor_grad(w[1]) != NULL);
    tensor_free(h), tensor_free(c);
    copy = nn_clone(m);
    CHECK(test_same_bits(nn_forward(copy, x), nn_forward(m, x)));
    nn_to_string(m, text, sizeof text);
    CHECK_TEXT(text, "LSTM(5, 6, num_layers=2, bidirectional=True)");
    for (k = 0; k < 2; k++) {
        tensor_set_num_threads(k ? 4 : 1);
        nn_module_zero_grad(m);
        loss = tensor_sum(tensor_square(nn_forward(m, tensor_repeat(x, 1, 30, 1))));
        tensor_backward(loss);
        hash[k] = test_hash(test_hash(TEST_HASH, loss), tensor_grad(nn_get(m, "weight_hh_l0")));
    }
    tensor_set_num_threads(1);
    CHECK(hash[0] == hash[1]);
    y = nn_forward(m, tensor_select(x, 1, 0));
    CHECK(tensor_ndim(y) == 2 && tensor_allclose(y, tensor_select(nn_forward(m, x), 1, 0), 1e-5, 1e-6));
    s = tensor_gru(tensor_to(x, TENSOR_F16), w);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "gru: w_ih is f32, x is f16");
    CHECK(tensor_is_poison(s.y) && tensor_is_poison(s.h) && tensor_is_poison(s.c));
    {
        tensor_t *half[4];
        for (k = 0; k < 4; k++) { half[k] = tensor_to(w[k], TENSOR_F16); }
        s = tensor_lstm(tensor_to(x, TENSOR_F16), half);
        CHECK(tensor_dtype(s.y) == TENSOR_F16 && tensor_dtype(s.c) == TENSOR_F16);
        CHECK(tensor_allclose(tensor_to(s.h, TENSOR_F32), tensor_lstm(x, w).h, 1e-2, 1e-2));
    }
    nn_free(m), nn_free(g), nn_free(r), nn_free(cell), nn_free(copy);
}

static void net_errors(void) {
    nn_module_t *m = nn_gru(3, 2);
    tensor_t *x = tensor_ones(4, 2, 3),
             *w[4] = {tensor_ones(8, 3), tensor_ones(8, 2), tensor_ones(8), tensor_ones(8)}, *h = NULL,
             *bad[2];
    CHECK_POISON(tensor_lstm(x, w, .layers = 0 - 1).y, TENSOR_ERR_SHAPE, "lstm: needs weights, layers (-1)");
    CHECK_POISON(tensor_lstm(x, w, .h = tensor_ones(1, 3, 2)).h, TENSOR_ERR_SHAPE,
                 "lstm: h [1,3,2] must be [1, 2, 2] (x [4,2,3]) at sequence.c");
    CHECK_POISON(tensor_lstm(tensor_ones(4, 2, 4), w).y, TENSOR_ERR_SHAPE, "lstm: w_ih [8,3] must be [8, 4]");
    CHECK_POISON(tensor_lstm(tensor_zeros(0, 2, 3), w).y, TENSOR_ERR_SHAPE, "T > 0");
    CHECK_POISON(tensor_lstm(NULL, w).y, TENSOR_ERR_OWNER, "lstm: argument x is NULL");
    CHECK_POISON(tensor_gru(x, w).y, TENSOR_ERR_SHAPE,
                 "gru: weight 1 [8,2] must be w_hh [3 H, H] (x [4,2,3])");
    bad[0] = w[0], bad[1] = tensor_ones_of(TENSOR_F64, 8, 2);
    CHECK_POISON(tensor_rnn(x, bad, .no_bias = 1).y, TENSOR_ERR_DTYPE, "rnn: w_hh is f64, x is f32");
    CHECK_POISON(nn_lstm_forward(m, x, &h, NULL), TENSOR_ERR_UNSUPPORTED,
                 "lstm_forward: the module is a GRU, must be made by nn_lstm or nn_lstm_cell");
    CHECK_POISON(nn_gru_forward(m, tensor_ones(4, 2, 5), &h), TENSOR_ERR_SHAPE,
                 "gru_forward: x [4,2,5] must end in a dim of 3");
    CHECK(h == NULL);
    CHECK(nn_lstm(3, 2, .proj_size = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lstm: proj_size 2 must be 0, or in lstm less than hidden 2");
    CHECK(nn_lstm_cell(3, 2, .layers = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lstm_cell: layers must be 1 for a cell (got 2)");
    CHECK(tensor_numel(nn_forward(m, tensor_zeros(4, 0, 3))) == 0);
    nn_free(m);
}

static void embedding_values(void) {
    static const int64_t fi[8] = {1, 4, 2, 2, 0, 3, 4, 1}, oi[4] = {0, 3, 3, 6}, oli[5] = {0, 3, 3, 6, 8};
    tensor_t *w = X(0.1, 5, 3, 0, 0), *v = X(0.4, 5, 3, 0, 0), *f = labels(fi, 8),
             *m = tensor_reshape(f, 2, 4), *o = tensor_to(labels(oi, 4), TENSOR_I32), *ol = labels(oli, 5),
             *s = X(0.7, 8, 0, 0, 0), *y;
    tensor_t *x1 = X(0.1, 2, 3, 4, 0), *x2 = X(0.6, 2, 3, 5, 0), *bw = X(0.2, 3, 4, 5, 0),
             *bb = X(0.3, 3, 0, 0, 0);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, o, .mode = TENSOR_BAG_MEAN)), 1.60459435519855, 1e-10);
    CHECK_NEAR(dprobe(y, w), 0.219857053250578, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(m, w, .mode = TENSOR_BAG_MEAN, .padding_idx = 2)),
               -0.599667640721153, 1e-10);
    CHECK_NEAR(dprobe(y, w), -0.500906719574984, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, o, .mode = TENSOR_BAG_SUM)), 3.81175797045808, 1e-10);
    CHECK_NEAR(dprobe(y, w), 0.762932222124447, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(m, w, .mode = TENSOR_BAG_SUM, .padding_idx = 2)),
               -0.58275800385197, 1e-10);
    CHECK_NEAR(dprobe(y, w), -0.571162814475088, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, o, .mode = TENSOR_BAG_MAX)), 3.75284447967312, 1e-10);
    CHECK_NEAR(dprobe(y, w), 2.83935415700242, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(m, w, .mode = TENSOR_BAG_MAX, .padding_idx = 2)),
               -1.75768895799975, 1e-10);
    CHECK_NEAR(dprobe(y, w), -1.97793898287262, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, o, .mode = TENSOR_BAG_SUM, .per_sample_weights = s)),
               -0.969267301108552, 1e-10);
    CHECK_NEAR(dprobe(y, s), -2.02920962641765, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, ol, .include_last_offset = 1)), 1.60459435519855, 1e-10);
    CHECK_NEAR(dprobe(y, w), 0.219857053250578, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding_bag(f, w, o, .scale_grad_by_freq = 1)), 1.60459435519855, 1e-10);
    CHECK_NEAR(dprobe(y, w), 0.0285082718035738, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding(m, w, .padding_idx = 2, .scale_grad_by_freq = 1)),
               -1.61417915240819, 1e-10);
    CHECK_NEAR(dprobe(y, w), -0.450452722763312, 1e-10);
    CHECK_NEAR(probe(y = tensor_embedding(m, v, .max_norm = 0.9)), -0.730203769363349, 1e-10);
    CHECK_NEAR(dprobe(y, v), -1.62398232797334, 1e-10);
    CHECK_NEAR(probe(v), -0.00546479434668579, 1e-10);
    {
        const double rows[] = {3, -4, 1, 1}, want[] = {1.5, -2};
        const int64_t first = 0;
        tensor_t *w = tensor_from(rows, TENSOR_F64, 2, 2), *k = tensor_from(&first, TENSOR_I64, 1);
        y = tensor_embedding(k, w, .max_norm = 2, .norm_type = (double)INFINITY);
        CHECK(tensor_allclose(y, tensor_from(want, TENSOR_F64, 1, 2), .rtol = 1e-6));
    }
    CHECK_NEAR(probe(y = tensor_embedding(f, v, .max_norm = 0.7, .norm_type = 1)), -0.151450711305208, 1e-10);
    CHECK_NEAR(dprobe(y, v), -1.62398232797334, 1e-10);
    CHECK_NEAR(probe(v), 0.00528559999318656, 1e-10);
    CHECK_NEAR(probe(y = tensor_bilinear(x1, x2, bw, bb)), -0.434818211780666, 1e-10);
    CHECK_NEAR(dprobe(y, x1), -24.1914312263373, 1e-10);
    CHECK_NEAR(probe(y = tensor_bilinear(x1, x2, bw, bb)), -0.434818211780666, 1e-10);
    CHECK_NEAR(dprobe(y, x2), 14.8849465826611, 1e-10);
    CHECK_NEAR(probe(y = tensor_bilinear(x1, x2, bw, bb)), -0.434818211780666, 1e-10);
    CHECK_NEAR(dprobe(y, bw), 0.183599013451071, 1e-10);
    CHECK_NEAR(probe(y = tensor_bilinear(x1, x2, bw, bb)), -0.434818211780666, 1e-10);
    CHECK_NEAR(dprobe(y, bb), 1.15763764526435, 1e-10);
}

static tensor_t *f_bag(tensor_t *const *in, int n, void *user) {
    static const int64_t m[6] = {1, 3, 2, 2, 0, 3};
    (void)n, (void)user;
    return tensor_embedding_bag(tensor_reshape(labels(m, 6), 2, 3), in[0], .mode = TENSOR_BAG_SUM,
                                .per_sample_weights = in[1]);
}
static tensor_t *f_bilinear(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_bilinear(in[0], in[1], in[2], NULL);
}
static void bag_gradients(void) {
    tensor_t *in[2] = {X(0.1, 4, 2, 0, 0), X(0.4, 2, 3, 0, 0)},
             *b[3] = {X(0.1, 2, 3, 0, 0), X(0.5, 2, 2, 0, 0), X(0.3, 2, 3, 2, 0)};
    grads(f_bag, in, 2);
    grads(f_bilinear, b, 3);
}
static void bags(void) {
    static const int64_t wrong[3] = {0, 4, 2};
    nn_module_t *m = nn_embedding_bag(6, 3, .mode = TENSOR_BAG_MAX, .padding_idx = -1),
                *e = nn_embedding(6, 3, .max_norm = 0.5, .scale_grad_by_freq = 1),
                *b = nn_bilinear(2, 3, 4, 0);
    tensor_t *i = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I64), 3, 2),
             *f = tensor_arange(0, 6, 1, TENSOR_I64), *w = nn_get(m, "weight"), *y;
    y = nn_forward(m, i);
    CHECK(
        tensor_equal(tensor_select(y, 0, 0), tensor_maximum(tensor_select(w, 0, 0), tensor_select(w, 0, 1))));
    CHECK(tensor_equal(tensor_select(y, 0, 2), tensor_select(w, 0, 4))); // row 5 is padding
    y = tensor_embedding_bag(tensor_zeros_of(TENSOR_I64, 0), tensor_to(w, TENSOR_BF16),
                             tensor_zeros_of(TENSOR_I64, 2), .mode = TENSOR_BAG_MAX);
    CHECK(tensor_size(y, 0) == 2 && tensor_dtype(y) == TENSOR_BF16 &&
          tensor_item(tensor_norm(tensor_to(y, TENSOR_F32))) == 0);
    nn_forward(e, i);
    CHECK(tensor_item(tensor_max(tensor_norm_dim(nn_get(e, "weight"), 1, 0))) < 0.5001);
    y = nn_bilinear_forward(b, tensor_ones(5, 2), tensor_ones(5, 3));
    CHECK(tensor_size(y, 1) == 4 && nn_state(b).count == 2);
    CHECK_POISON(nn_forward(b, tensor_ones(5, 2)), TENSOR_ERR_UNSUPPORTED, "several inputs, see nn_call");
    CHECK_POISON(tensor_embedding_bag(f, w), TENSOR_ERR_SHAPE,
                 "embedding_bag: index [6] must be [bags, n], or [n] with offsets");
    CHECK_POISON(tensor_embedding_bag(f, w, labels(wrong, 3)), TENSOR_ERR_INDEX,
                 "offsets 4..2 of bag 1 are not in order in 0..6");
    CHECK_POISON(tensor_embedding_bag(f, w, tensor_arange(0, 4, 2, TENSOR_I64), .include_last_offset = 1),
                 TENSOR_ERR_INDEX, "offsets 0..2 of bag 0");
    CHECK_POISON(tensor_embedding_bag(tensor_add_scalar(i, 1), w), TENSOR_ERR_INDEX,
                 "index 6 at position 5 of index [6] is not in 0..5");
    CHECK_POISON(tensor_embedding_bag(i, w, .per_sample_weights = tensor_ones(3, 2)), TENSOR_ERR_SHAPE,
                 "and mode must be the sum");
    CHECK_POISON(tensor_embedding_bag(tensor_to(i, TENSOR_F32), w), TENSOR_ERR_DTYPE,
                 "embedding_bag: index is f32, must be i32 or i64");
    CHECK_POISON(tensor_bilinear(tensor_ones(5, 2), tensor_ones(4, 3), nn_get(b, "weight"), NULL),
                 TENSOR_ERR_SHAPE, "bilinear: x1 [5,2], x2 [4,3]");
    CHECK(nn_embedding_bag(3, 2, .padding_idx = 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding_bag: padding_idx 3 must be below count 3");
    CHECK(nn_embedding_bag(3, 2, .padding_idx = -4) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding_bag: padding_idx -4 must be at least -count -3");
    CHECK(nn_bilinear(2, 0, 3, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "bilinear: in2 must be > 0 (got 0)");
    nn_free(m), nn_free(e), nn_free(b);
}

// Long rows lose no digits, and a batch of nothing leaves the running statistics alone.
static void norms_of_long_and_empty(void) {
    tensor_t *x = tensor_full(0.1, 1, 1, 1000000), *mean = tensor_zeros(1), *var = tensor_ones(1);
    nn_module_t *bn = nn_batch_norm2d(2);
    double was;
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_layer_norm(x)))) < 1e-3);
    tensor_batch_norm(x, .running_mean = mean, .running_var = var, .training = 1, .momentum = 1);
    CHECK_NEAR(tensor_item(mean), 0.1, 1e-7);
    CHECK_NEAR(tensor_item(var), 0, 1e-12);
    nn_forward(bn, tensor_randn(4, 2, 3, 3));
    was = tensor_item(tensor_sum(nn_get(bn, "running_mean"))) +
          tensor_item(tensor_sum(nn_get(bn, "running_var")));
    CHECK(tensor_numel(nn_forward(bn, tensor_zeros(0, 2, 3, 3))) == 0);
    CHECK(tensor_item(tensor_sum(nn_get(bn, "running_mean"))) +
              tensor_item(tensor_sum(nn_get(bn, "running_var"))) == was);
    nn_free(bn);
    CHECK(nn_lstm(3, 4, .layers = (int64_t)1 << 50) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "layers must be in 1..65535");
}

// Dropout of a recurrent net lies between layers: none after the last. NaN stays NaN through relu.
static void net_dropout(void) {
    tensor_t *w[8], *x = tensor_randn(5, 2, 3), *y;
    for (int k = 0; k < 8; k++) { w[k] = k % 4 < 2 ? tensor_randn(4, k == 0 ? 3 : 4) : tensor_randn(4); }
    y = tensor_rnn(x, w, .layers = 2, .dropout = 1, .training = 1).y;
    CHECK(tensor_item(tensor_min(tensor_abs(y))) > 0);
    CHECK(test_same_bits(tensor_rnn(x, w, .dropout = 0.5, .training = 1).y, tensor_rnn(x, w).y));
    y = tensor_rnn(tensor_full(NAN, 2, 1, 3), w, .relu = 1).y;
    CHECK(isnan(tensor_item(tensor_min(y))));
}
// A target longer than the input: infinite loss, and a gradient that is not a number (PyTorch's NaN).
static void ctc_infinite(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(2, 1, 4), 1), *one = tensor_full_of(TENSOR_I64, 2, 1);
    tensor_t *target = tensor_full_of(TENSOR_I64, 1, 1, 3), *y;
    y = tensor_ctc_loss(tensor_log_softmax(x, 2), target, one, tensor_full_of(TENSOR_I64, 3, 1),
                        .reduction = TENSOR_SUM);
    CHECK(isinf(tensor_item(y)));
    tensor_backward(y);
    CHECK(isnan(tensor_item(tensor_sum(tensor_grad(x)))));
}

// Mixed dtypes as PyTorch 2.15 takes them: most losses promote, some follow the input or the target.
static void mixed_dtypes(void) {
    tensor_t *x = tensor_requires_grad_(tensor_full(0.25, 2, 3), 1), *y, *list[16];
    tensor_t *h = tensor_to(x, TENSOR_BF16), *d = tensor_to(tensor_full(0.5, 2, 3), TENSOR_F64),
             *i = tensor_ones_of(TENSOR_I64, 2, 3), *w = tensor_to(tensor_full(2, 3), TENSOR_F64);
    int n = 0, k;
    list[n++] = tensor_mse_loss(x, d), list[n++] = tensor_l1_loss(x, d);
    list[n++] = tensor_smooth_l1_loss(x, d), list[n++] = tensor_soft_margin_loss(x, d);
    list[n++] = tensor_kl_div(x, d), list[n++] = tensor_binary_cross_entropy_with_logits(x, d);
    list[n++] = tensor_poisson_nll_loss(x, d), list[n++] = tensor_gaussian_nll_loss(x, x, d);
    list[n++] = tensor_margin_ranking_loss(x, d, i), list[n++] = tensor_triplet_margin_loss(x, x, d);
    list[n++] = tensor_cosine_embedding_loss(x, d, tensor_ones(2)), list[n++] = tensor_cross_entropy(x, d);
    list[n++] = tensor_multilabel_soft_margin_loss(x, i, w);
    for (k = 0; k < n; k++) {
        CHECK_MSG(tensor_dtype(list[k]) == TENSOR_F64, "loss %d", k);
        tensor_set_grad(x, NULL);
        tensor_backward(list[k]);
        CHECK_MSG(tensor_grad(x) && tensor_dtype(tensor_grad(x)) == TENSOR_F32, "gradient of loss %d", k);
    }
    CHECK_NEAR(tensor_item(list[0]), 0.0625, 1e-15);
    CHECK_NEAR(tensor_item(tensor_mse_loss(x, i)), 0.5625, 1e-7);
    CHECK_NEAR(tensor_item(tensor_soft_margin_loss(x, d)), log(1 + exp(-0.125)), 1e-6);
    CHECK(tensor_dtype(tensor_hinge_embedding_loss(x, d)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_mse_loss(h, x)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_mse_loss(h, i)) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_binary_cross_entropy_with_logits(d, x)) == TENSOR_F32);
    y = tensor_binary_cross_entropy(x, x, w);
    CHECK(tensor_dtype(y) == TENSOR_F32);
    CHECK_NEAR(tensor_item(y), -2 * (0.25 * log(0.25) + 0.75 * log(0.75)), 1e-6);
    CHECK_POISON(tensor_binary_cross_entropy(x, d), TENSOR_ERR_DTYPE, "target is f64, input is f32");
    CHECK_POISON(tensor_kl_div(x, i), TENSOR_ERR_DTYPE, "target [2,3] is i64, must be a float");
    CHECK_POISON(tensor_cross_entropy(x, d, .ignore_index = 1), TENSOR_ERR_UNSUPPORTED,
                 "cross_entropy: ignore_index is not for probabilities [2,3]");
    CHECK(tensor_dtype(tensor_cosine_similarity(x, d, 1, 1e-8)) == TENSOR_F64);
    CHECK(tensor_dtype(tensor_mse_loss(h, tensor_to(d, TENSOR_F16))) == TENSOR_F32);
    for (k = 0; k < 3; k++) {       // what was converted on the way goes at once
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        tensor_t *big = tensor_zeros(256, 256), *other = tensor_to(big, k ? TENSOR_F64 : TENSOR_BF16);
        unsigned long long before = (unsigned long long)tensor_memory_stats().live_bytes;
        y = k == 0 ? tensor_l1_loss(other, other) : k == 1 ? tensor_mse_loss(big, other)
            : tensor_cross_entropy(big, other);
        before = (unsigned long long)tensor_memory_stats().live_bytes - before;
        CHECK_MSG(tensor_ok() && before < (k == 2 ? 1100000 : 4096), "loss %d: %llu bytes stay", k, before);
        tensor_scope_end(scope);
    }
}

// PyTorch's gradients at the edges of their formulas.
static void edge_gradients(void) {
    const double a[] = {0.1, 0.2}, b[] = {0.3, 0.1}, want[] = {0.27763932022500214, 0.05527864045000421};
    tensor_t *x = tensor_requires_grad_(tensor_from(a, TENSOR_F64, 2), 1), *w, *k;
    tensor_t *y = tensor_from(b, TENSOR_F64, 2);
    tensor_backward(tensor_cosine_similarity(x, y, 0, 1));      // the norms are below eps
    CHECK(tensor_allclose(tensor_grad(x), tensor_from(want, TENSOR_F64, 2), 0, 1e-12));
    w = tensor_requires_grad_(tensor_ones(4), 1);
    tensor_backward(tensor_sum(tensor_batch_norm(tensor_zeros(3, 4, 0), NULL, NULL, w, .training = 1)));
    CHECK(tensor_equal(tensor_grad(w), tensor_zeros(4)));       // not NaN: there is no element
    for (int causal = 0; causal < 2; causal++) {                // no query leaves no gradient in k and v
        tensor_free(tensor_full(77, 2, 4, 3));
        k = tensor_requires_grad_(tensor_ones(2, 4, 3), 1);
        tensor_backward(tensor_sum(tensor_scaled_dot_product_attention(tensor_zeros(2, 0, 3), k, k,
                                                                       .is_causal = causal)));
        CHECK(tensor_equal(tensor_grad(k), tensor_zeros(2, 4, 3)));
    }
    y = tensor_scaled_dot_product_attention(w = tensor_ones(3, 3), tensor_ones(0, 3), tensor_ones(0, 2),
                                            tensor_zeros_of(TENSOR_BOOL, 3, 0));
    CHECK(tensor_equal(y, tensor_zeros(3, 2)));                 // a mask over no key
}

// The gradient of the target of kl_div at 0, below 0, at NaN: the fused kernel's is that of the graph.
static void divergence_of_edges(void) {
    double v[] = {0, -0.0, 2, -1, (double)NAN};
    int dtype, k;
    for (dtype = TENSOR_F32; dtype <= TENSOR_F64; dtype++) {
        tensor_t *t = tensor_to(tensor_from(v, TENSOR_F64, 5), (tensor_dtype_t)dtype);
        t = tensor_requires_grad_(t, 1);
        tensor_t *x = tensor_full_of((tensor_dtype_t)dtype, 0.5, 5), *y, *g;
        tensor_backward(tensor_kl_div(x, t, .reduction = TENSOR_SUM));
        y = tensor_kl_div(x, t, .reduction = TENSOR_SUM);
        tensor_autograd_grad(&y, 1, NULL, &t, 1, &g, TENSOR_CREATE_GRAPH);
        for (k = 0; k < 5; k++) {
            double plain = tensor_item(tensor_select(tensor_grad(t), 0, k));
            double graph = tensor_item(tensor_select(g, 0, k));
            double want = k < 2 ? -0.5 : log(v[k]) + 0.5;
            CHECK_MSG(want != want ? plain != plain && graph != graph
                                   : fabs(plain - want) < 1e-6 && fabs(graph - want) < 1e-6,
                      "%d: %g and %g, expected %g", k, plain, graph, want);
        }
    }
}

// is_causal hides what comes later, whatever a mask lets through.
static void causal_and_mask(void) {
    nn_module_t *m = nn_eval(nn_transformer_encoder_layer(8, 2, .feedforward = 16));
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x = tensor_randn(5, 1, 8), *other = tensor_clone(x);
    tensor_fill_(tensor_select(other, 0, 4), 3);
    tensor_t *masks[3] = {NULL, tensor_zeros(5, 5), tensor_zeros_of(TENSOR_BOOL, 5, 5)};
    tensor_t *first = nn_transformer_forward(m, x, NULL, .is_causal = 1);
    for (int k = 0; k < 3; k++) {
        tensor_t *y = nn_transformer_forward(m, x, NULL, .mask = masks[k], .is_causal = 1);
        tensor_t *z = nn_transformer_forward(m, other, NULL, .mask = masks[k], .is_causal = 1);
        CHECK_MSG(tensor_equal(tensor_narrow(y, 0, 0, 4), tensor_narrow(z, 0, 0, 4)), "mask %d", k);
        CHECK_MSG(tensor_allclose(y, first, .rtol = 1e-5, .atol = 1e-6), "mask %d", k);
    }
    tensor_scope_end(scope);
    nn_free(m);
}

int main(void) {
    RUN(divergence_of_edges);
    RUN(batch_norm_values);
    RUN(other_norm_values);
    RUN(norm_gradients);
    RUN(norm_layouts);
    RUN(norm_errors);
    RUN(norm_modules);
    RUN(rms_of_halves);
    RUN(margin_losses);
    RUN(older_losses);
    RUN(ctc_values);
    RUN(loss_gradients);
    RUN(ctc_edges);
    RUN(loss_errors);
    RUN(mixed_dtypes);
    RUN(edge_gradients);
    RUN(attention_masks);
    RUN(attention_of_wide_values);
    RUN(attention_blocks);
    RUN(attention_parts);
    RUN(multihead_attention_values);
    RUN(transformer_values);
    RUN(attention_edges);
    RUN(attention_to_nothing);
    RUN(lstm_values);
    RUN(gru_rnn_values);
    RUN(cell_values);
    RUN(net_gradients);
    RUN(net_modules);
    RUN(net_errors);
    RUN(net_dropout);
    RUN(ctc_infinite);
    RUN(embedding_values);
    RUN(bag_gradients);
    RUN(bags);
    RUN(norms_of_long_and_empty);
    RUN(causal_and_mask);
    return test_report();
}

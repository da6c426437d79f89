// modules.c - walking modules, freezing by name, buffers that files do not hold, vectors and averages of
// weights,
// layers with several inputs
//
// Numbers of PyTorch come from runs of PyTorch 2.15; the lines that made them are named beside them.
#include "numbers.h"

static nn_module_t *small_net(void) {
    nn_module_t *inner = nn_sequential(nn_linear(4, 3), nn_relu());
    return nn_sequential(inner, nn_batch_norm1d(3), nn_linear(3, 2));
}

static void write_names(nn_module_t *m, void *user) {
    char *text = (char *)user;
    snprintf(text + strlen(text), 200 - strlen(text), "%s ", m->name);
}

static void walks(void) {
    nn_module_t *m = small_net(), *all[8] = {NULL}, *kids[4] = {NULL};
    const char *names[4] = {NULL};
    char text[200] = "";
    CHECK(nn_apply(m, write_names, text) == m);
    CHECK_MSG(strcmp(text, "Linear ReLU Sequential BatchNorm1d Linear Sequential ") == 0, "%s", text);
    CHECK(nn_modules(m, NULL, 0) == 6 && nn_modules(m, all, 2) == 6 && all[2] == NULL);
    CHECK(nn_modules(m, all, 8) == 6 && all[0] == m && all[1] == nn_get_child(m, "0"));
    CHECK(all[2] == nn_get_child(m, "0.0") && all[5] == nn_get_child(m, "2"));
    CHECK(nn_children(m, kids, names, 4) == 3 && kids[1] == nn_get_child(m, "1") && strcmp(names[2],
        "2") == 0);
    CHECK(nn_children(kids[2], NULL, NULL, 0) == 0);
    nn_named_list_t buffers = nn_named_buffers(m);
    CHECK(buffers.count == 3 && strcmp(buffers.item[0].name,
        "1.running_mean") == 0 && buffers.item[0].is_buffer);
    nn_child(m, "twice", nn_get_child(m, "2"));
    CHECK(nn_modules(m, NULL, 0) == 6 && nn_children(m, NULL, NULL, 0) == 4);
    CHECK(nn_modules(NULL, all, 8) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "modules: the module is NULL");
    nn_apply(m, NULL, NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "apply: fn is NULL, must be a function");
    nn_free(m);
}

static void freezes_by_name(void) {
    static const struct { const char *pattern; int n; } cases[] = {
        {"*", 6}, {"*.bias", 3}, {"?.weight", 2}, {"0.*", 2}, {"*0*w*t", 1}, {"", 0}, {"2", 0}, {"2.weight",
            1},
        {"**.*s", 3}, {"2.weight?", 0}, {"*weigh", 0}};
    nn_module_t *m = small_net();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int frozen = 0;
        nn_requires_grad_(m, 1);
        CHECK_MSG(nn_requires_grad_named(m, cases[k].pattern, 0) == cases[k].n, "pattern %s",
            cases[k].pattern);
        nn_named_list_t p = nn_named_parameters(m);
        for (int64_t i = 0; i < p.count; i++) { frozen += !tensor_requires_grad(p.item[i].tensor); }
        CHECK_MSG(frozen == cases[k].n, "pattern %s", cases[k].pattern);
    }
    CHECK(nn_requires_grad_named(m, NULL, 0) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "requires_grad_named: the pattern is NULL");
    nn_free(m);
}

static void transient_buffers(void) {
    static nn_module_t a, b;
    const char *path = "modules_transient.safetensors";
    nn_module_t *list[2] = {&a, &b};
    for (int k = 0; k < 2; k++) {
        nn_module_init(list[k], "Mine", NULL, NULL);
        nn_parameter(list[k], "w", tensor_full(k, 2));
        nn_buffer(list[k], "kept", tensor_full(k, 2));
        CHECK(nn_buffer_transient(list[k], "mask", tensor_full(k, 3)) == nn_get(list[k], "mask"));
    }
    CHECK(nn_state(&a).count == 2 && nn_named_buffers(&a).count == 2 && nn_named_parameters(&a).count == 1);
    CHECK(nn_save(path, &a) == 0);
    CHECK_MSG(nn_load(path, &b) == 0, "%s", tensor_error_text());
    CHECK(tensor_item(tensor_max(nn_get(&b, "kept"))) == 0 && tensor_item(tensor_max(nn_get(&b,
        "mask"))) == 1);
    nn_safetensors_t *r = nn_safetensors_open(path);
    CHECK(nn_safetensors_count(r) == 2);
    nn_safetensors_close(r);
    CHECK(nn_to(&b, TENSOR_F64) == 0 && tensor_dtype(nn_get(&b, "mask")) == TENSOR_F64);
    CHECK(nn_to(&b, TENSOR_F32) == 0 && nn_copy_state(&b, &a) == 0);
    CHECK(tensor_item(tensor_max(nn_get(&b, "mask"))) == 0);
    CHECK_POISON(nn_buffer_transient(&a, "x.y", tensor_ones(1)), TENSOR_ERR_SHAPE, "buffer_transient");
    nn_free(&a);
    nn_free(&b);
    remove(path);
}

static tensor_t *padded(tensor_t *const *list, int n, void *user) {
    return nn_pad_sequence(list, n, *(int *)user, -1);
}

// torch.nn.utils.rnn.pad_sequence(a, padding_value=-1.0), torch 2.15, and the same with batch_first=True,
// where a = [torch.arange(1., 7).reshape(3, 2), torch.arange(7., 9).reshape(1, 2), torch.zeros(0, 2)]
static void sequences(void) {
    static const float want[2][18] = {{1, 2, 7, 8, -1, -1, 3, 4, -1, -1, -1, -1, 5, 6, -1, -1, -1, -1},
                                      {1, 2, 3, 4, 5, 6, 7, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    tensor_t *a[3] = {tensor_reshape(tensor_arange(1, 7, 1, TENSOR_F32), 3, 2),
                      tensor_reshape(tensor_arange(7, 9, 1, TENSOR_F32), 1, 2), tensor_zeros(0, 2)};
    for (int first = 0; first < 2; first++) {
        CHECK(tensor_equal(nn_pad_sequence(a, 3, first, -1), tensor_from(want[first], TENSOR_F32, 3, 3, 2)));
    }
    // The first one's dtype, also of the value; lengths beside the sequences.
    static const int64_t ids[2][3] = {{1, 2, 3}, {4, 5, 9}};
    static const float half[2] = {4.5f, 5.5f};
    tensor_t *mixed[2] = {tensor_from(ids[0], TENSOR_I64, 3), tensor_from(half, TENSOR_F32, 2)};
    CHECK(tensor_equal(nn_pad_sequence(mixed, 2, 1, 9.7), tensor_from(ids, TENSOR_I64, 2, 3)));
    tensor_t *truths[2] = {tensor_ones_of(TENSOR_BOOL, 2), tensor_ones_of(TENSOR_BOOL, 1)};
    static const unsigned char both[4] = {1, 1, 1, 0};
    CHECK(tensor_equal(nn_pad_sequence(truths, 2, 0, 0), tensor_from(both, TENSOR_BOOL, 2, 2)));
    for (int first = 0; first < 2; first++) {
        tensor_t *x[2] = {tensor_requires_grad_(tensor_rand_of(TENSOR_F64, 2, 3), 1),
                          tensor_requires_grad_(tensor_rand_of(TENSOR_F64, 4, 3), 1)};
        CHECK_MSG(tensor_gradcheck(padded, &first, x, 2, 0, 0, 0) == 0, "%s", tensor_error_text());
    }
    CHECK_POISON(nn_pad_sequence(NULL, 2, 0, 0), TENSOR_ERR_POISONED, "the list is NULL");
    CHECK_POISON(nn_pad_sequence(a, 0, 0, 0), TENSOR_ERR_SHAPE, "n 0 must be at least 1");
    a[1] = tensor_zeros(2, 3);
    CHECK_POISON(nn_pad_sequence(a, 2, 0, 0), TENSOR_ERR_SHAPE, "sequence 1 is [2,3], the first is [3,2]");
    a[0] = tensor_zeros_n(NULL, 0, TENSOR_F32);
    CHECK_POISON(nn_pad_sequence(a, 1, 0, 0), TENSOR_ERR_SHAPE, "sequence 0");
}

// The gradient of sum(v^2 / 2) by each parameter is the parameter.
static void vectors(void) {
    nn_module_t *m = nn_linear(3, 2);
    tensor_t *p[2] = {nn_get(m, "weight"), nn_get(m, "bias")}, *v = nn_parameters_to_vector(p, 2), *before;
    CHECK(tensor_numel(v) == 8 && tensor_requires_grad(v));
    CHECK(tensor_item(tensor_select(v, 0, 6)) == tensor_item(tensor_select(p[1], 0, 0)));
    CHECK(tensor_backward(tensor_mul_scalar(tensor_sum(tensor_square(v)), 0.5)) == 0);
    CHECK(tensor_allclose(tensor_grad(p[0]), tensor_detach(p[0]), 1e-6, 1e-7));
    CHECK(tensor_allclose(tensor_grad(p[1]), tensor_detach(p[1]), 1e-6, 1e-7));
    before = tensor_clone(tensor_detach(v));
    CHECK(nn_vector_to_parameters(tensor_arange(0, 8, 1, TENSOR_F32), p, 2) == 0);
    CHECK(tensor_item(tensor_at(p[0], "1, 2")) == 5 && tensor_item(tensor_select(p[1], 0, 1)) == 7);
    CHECK(tensor_requires_grad(p[0]) && tensor_is_leaf(p[0]));
    CHECK(nn_vector_to_parameters(before, p, 2) == 0);
    CHECK(tensor_equal(nn_parameters_to_vector(p, 2), before));
    CHECK(nn_vector_to_parameters(tensor_ones(7), p, 2) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "vector_to_parameters: the vector [7] must be [8]");
    CHECK_POISON(nn_parameters_to_vector(NULL, 2), TENSOR_ERR_POISONED, "the list is NULL");
    CHECK_POISON(nn_parameters_to_vector(p, 0), TENSOR_ERR_SHAPE,
                 "parameters_to_vector: n 0 must be at least 1");
    nn_free(m);
}

// PyTorch: AveragedModel(m) and AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.75)) after weights 1,
// 2, 4, 8.
static void averages(void) {
    nn_module_t *m = small_net(), *swa = nn_clone(m), *ema = nn_clone(m);
    tensor_t *w = nn_get(m, "2.weight"), *mean = nn_get(m, "1.running_mean");
    for (int k = 0; k < 4; k++) {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_fill_(w, 1 << k);
        tensor_fill_(mean, 10 + k);
        tensor_scope_end(s);
        CHECK(nn_swa_update(swa, m, k) == 0 && nn_ema_update(ema, m, k, 0.75) == 0);
    }
    CHECK_NEAR(tensor_item(tensor_max(nn_get(swa, "2.weight"))), 3.75, 1e-6);
    CHECK_NEAR(tensor_item(tensor_min(nn_get(ema, "2.weight"))), 3.453125, 1e-6);
    CHECK(tensor_item(tensor_max(nn_get(swa, "1.running_mean"))) == 13);
    CHECK(tensor_equal(nn_get(swa, "0.0.weight"), nn_get(m, "0.0.weight")));
    CHECK(tensor_requires_grad(nn_get(ema, "2.weight")) && tensor_ok());
    CHECK(nn_ema_update(ema, m, 1, 1.5) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "decay must be in 0..1");
    CHECK(nn_swa_update(ema, nn_get_child(m, "2"), 1) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "swa_update: ");
    nn_free(m);
    nn_free(swa);
    nn_free(ema);
}

// ---- several inputs ----

static tensor_t *spread(int64_t step, int64_t modulus, double by) {
    double v[12];
    for (int64_t i = 0; i < 12; i++) { v[i] = (double)(i * step % modulus - modulus / 2) * by; }
    return tensor_from(v, TENSOR_F64, 4, 3);
}

// PyTorch: the modules of the same names, with inputs made as below; sums of what they give.
static void losses_are_modules(void) {
    static const double want[22] = {1.26625, 11.5, 0.73375, 0.366875, 0.460926135888108, 1.21630244677156,
        1.08142297604628, 1.06663224112785, 0.952737740418908, 1.19744949539754, -0.0208333333333333,
        0.922345678264731, 0.6125, 0.8875, 1.13383022290277, 1.05833333333333, 0.49743986951995,
            1.38626616405868,
        1.40689962918325, 0.75869803919148, -2.87190970236423, 7.69001633346282};
    static const char *const names[22] = {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss",
        "PoissonNLLLoss", "CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "HingeEmbeddingLoss",
        "SoftMarginLoss", "MultiMarginLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
            "MarginRankingLoss",
        "CosineEmbeddingLoss", "TripletMarginLoss", "GaussianNLLLoss", "CTCLoss", "CosineSimilarity",
        "PairwiseDistance"};
    double weights[3] = {0.5, 1, 2};
    int64_t classes[4] = {0, 2, 1, 1}, sets[12] = {0, 2, -1, 1, -1, 0, 2, -1, -1, -1, 0, 0},
        targets[2] = {1, 2};
    int64_t four = 4, two = 2;
    tensor_t *x = tensor_requires_grad_(spread(7, 13, 0.15), 1), *t = spread(5, 11, 0.2);
    tensor_t *k = tensor_from(classes, TENSOR_I64, 4), *w = tensor_from(weights, TENSOR_F64, 3);
    tensor_t *u = tensor_sigmoid(t), *v = tensor_add_scalar(tensor_abs(t), 0.1),
        *logs = tensor_log_softmax(x, 1);
    tensor_t *s = tensor_where(tensor_gt_scalar(t, 0), tensor_ones_like(t), tensor_neg(tensor_ones_like(t)));
    tensor_t *y[22];
    nn_module_t *m[22] = {nn_mse_loss(), nn_l1_loss(.reduction = TENSOR_SUM), nn_smooth_l1_loss(.beta = 0.5),
        nn_huber_loss(.delta = 0.5), nn_kl_div_loss(.reduction = TENSOR_BATCHMEAN), nn_poisson_nll_loss(),
        nn_cross_entropy_loss(.weight = w, .label_smoothing = 0.1), nn_nll_loss(.weight = w),
            nn_bce_loss(.weight = w),
        nn_bce_with_logits_loss(.weight = w, .pos_weight = w), nn_hinge_embedding_loss(.margin = 0.5),
        nn_soft_margin_loss(), nn_multi_margin_loss(.weight = w), nn_multilabel_margin_loss(),
        nn_multilabel_soft_margin_loss(.weight = w), nn_margin_ranking_loss(.margin = 0.1),
        nn_cosine_embedding_loss(.margin = 0.1), nn_triplet_margin_loss(), nn_gaussian_nll_loss(.full = 1),
        nn_ctc_loss(), nn_cosine_similarity(1, 1e-8), nn_pairwise_distance(2, 1e-6, 0)};
    for (int turn = 0; turn < 2; turn++) {              // then copies of them
        y[0] = nn_call(m[0], x, t);
        y[1] = nn_call(m[1], x, t);
        y[2] = nn_call(m[2], x, t);
        y[3] = nn_call(m[3], x, t);
        y[4] = nn_call(m[4], logs, tensor_softmax(t, 1));
        y[5] = nn_call(m[5], x, v);
        y[6] = nn_call(m[6], x, k);
        y[7] = nn_call(m[7], logs, k);
        y[8] = nn_call(m[8], tensor_sigmoid(x), u);
        y[9] = nn_call(m[9], x, u);
        y[10] = nn_call(m[10], x, s);
        y[11] = nn_call(m[11], x, s);
        y[12] = nn_call(m[12], x, k);
        y[13] = nn_call(m[13], x, tensor_from(sets, TENSOR_I64, 4, 3));
        y[14] = nn_call(m[14], x, tensor_to(tensor_gt_scalar(t, 0), TENSOR_F64));
        y[15] = nn_call(m[15], x, t, s);
        y[16] = nn_call(m[16], x, t, tensor_select(s, 1, 0));
        y[17] = nn_call(m[17], x, t, v);
        y[18] = nn_call(m[18], x, t, v);
        y[19] = nn_call(m[19], tensor_reshape(logs, 4, 1, 3), tensor_from(targets, TENSOR_I64, 1, 2),
                        tensor_from(&four, TENSOR_I64, 1), tensor_from(&two, TENSOR_I64, 1));
        y[20] = nn_call(m[20], x, t);
        y[21] = nn_call(m[21], x, t);
        for (int i = 0; i < 22; i++) {
            char text[80];
            double got = tensor_item(tensor_sum(y[i]));
            CHECK_MSG(fabs(got - want[i]) <= 1e-12 * (1 + fabs(want[i])), "%s is %.15g", names[i], got);
            CHECK(tensor_requires_grad(y[i]));
            nn_to_string(m[i], text, sizeof text);
            CHECK_MSG(strncmp(text, names[i], strlen(names[i])) == 0 && text[strlen(names[i])] == '(', "%s",
                text);
            if (turn) { continue; }
            nn_module_t *copy = nn_clone(m[i]);
            nn_free(m[i]);
            m[i] = copy;
        }
    }
    CHECK(nn_named_buffers(m[9]).count == 2 && nn_named_buffers(m[6]).count == 1 && nn_parameters(m[6],
        NULL, 0) == 0);
    CHECK_POISON(nn_call(m[0], x), TENSOR_ERR_SHAPE, "call: MSELoss takes 2 inputs, 1 were given");
    CHECK_POISON(nn_forward(m[0], x), TENSOR_ERR_UNSUPPORTED,
                 "forward: module MSELoss has several inputs, see nn_call");
    CHECK(nn_mse_loss(x) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "mse_loss: options are named; inputs go to nn_call");
    for (int i = 0; i < 22; i++) { nn_free(m[i]); }
}

// A user's layer: x + mask, where there is a mask.
typedef struct masked_t { nn_module_t base; int calls; } masked_t;
static tensor_t *masked(nn_module_t *m, tensor_t *const *in, int n) {
    ((masked_t *)m)->calls++;
    return n > 1 && in[1] ? tensor_add(in[0], in[1]) : in[0];
}

static tensor_t *doubled(nn_module_t *m, tensor_t *x, void *user) {
    (void)m, (void)user;
    return tensor_mul_scalar(x, 2);
}

static tensor_t *nothing(nn_module_t *m, tensor_t *const *in, int n) {
    (void)m, (void)in, (void)n;
    return NULL;
}

static void several_inputs(void) {
    static masked_t mine;
    tensor_t *x = tensor_ones(2, 3), *mask = tensor_full(10, 3);
    nn_module_init(&mine.base, "Masked", NULL, NULL);
    nn_module_set_call(&mine.base, masked);
    nn_module_t *m = nn_sequential(nn_relu(), nn_sequential(&mine.base, nn_relu()), nn_sequential(nn_relu()));
    CHECK(tensor_item(tensor_max(nn_call(m, x, mask))) == 11 && mine.calls == 1);
    CHECK(tensor_item(tensor_max(nn_call(m, x, NULL))) == 1 && mine.calls == 2);
    CHECK(tensor_item(tensor_max(nn_call(m, x))) == 1 && mine.calls == 3);
    nn_register_forward_pre_hook(&mine.base, doubled, NULL);
    CHECK(tensor_item(tensor_max(nn_call(m, x, mask))) == 12);
    CHECK(tensor_item(tensor_max(nn_call(&mine.base, x, mask))) == 12);
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_UNSUPPORTED, "module Masked has several inputs, see nn_call");
    nn_module_set_call(&mine.base, nothing);
    CHECK_POISON(nn_call(m, x, mask), TENSOR_ERR_INTERNAL, "call: Masked returned NULL");
    nn_module_t *plain = nn_sequential(nn_relu(), nn_linear(3, 2)), *bilinear = nn_bilinear(3, 3, 2, 0);
    CHECK_POISON(nn_call(plain, x, mask), TENSOR_ERR_UNSUPPORTED,
        "no module in Sequential has several inputs");
    CHECK_POISON(nn_call(nn_get_child(plain, "1"), x, x), TENSOR_ERR_UNSUPPORTED,
        "module Linear takes one input");
    CHECK_POISON(nn_call_n(plain, NULL, 0), TENSOR_ERR_SHAPE, "call: Sequential was given no input");
    CHECK_POISON(nn_call_n(plain, NULL, 2), TENSOR_ERR_SHAPE, "call: inputs is NULL, must have 2 tensors");
    CHECK_POISON(nn_call(NULL, x), TENSOR_ERR_POISONED, "call: the module is NULL");
    CHECK(tensor_equal(nn_call(plain, x), nn_forward(plain, x)));
    CHECK(tensor_equal(nn_call(bilinear, x, x), nn_bilinear_forward(bilinear, x, x)));
    nn_free(plain);
    nn_free(bilinear);
    nn_free(m);
}

// ---- layers ----

static void sums_are(const char *what, tensor_t *y, const double want[2]) {
    int64_t n = tensor_numel(y);
    tensor_t *flat = tensor_reshape(y, n);
    tensor_t *by = tensor_remainder_scalar(tensor_arange(0, (double)n, 1, TENSOR_F64), 7);
    double got[2];
    got[0] = tensor_item(tensor_sum(flat));
    got[1] = tensor_item(tensor_sum(tensor_mul(flat, tensor_sub_scalar(by, 3))));
    for (int k = 0; k < 2; k++) {
        CHECK_MSG(fabs(got[k] - want[k]) <= 1e-12 * (1 + fabs(want[k])), "%s: %.15g, PyTorch %.15g", what,
            got[k],
                  want[k]);
    }
}

// PyTorch: what str(m) gives; the sum of m(x), and of m(x) times 0 .. 6 minus 3 in turn. x is [1, 4, 3, 3],
// for the
// layers of 1-d images its only image.
static void layers_follow_pytorch(void) {
    const struct { nn_module_t *m; const char *text; double want[2]; } rows[] = {
        {nn_layer_norm(.normalized_shape = TENSOR_DIMS(4, 3, 3)),
         "LayerNorm((4, 3, 3), eps=1e-05, elementwise_affine=True, bias=True)", {-13.572259766187,
             -13.830735582528}},
        {nn_layer_norm(.normalized_shape = TENSOR_DIMS(3, 3), .no_affine = 1),
         "LayerNorm((3, 3), eps=1e-05, elementwise_affine=False, bias=False)", {0, -4.44638813555927}},
        {nn_rms_norm(.normalized_shape = TENSOR_DIMS(3, 3)),
         "RMSNorm((3, 3), eps=None, elementwise_affine=True)", {0.0515826322034114, -5.50869109607223}},
        {nn_channel_shuffle(2), "ChannelShuffle(groups=2)", {-0.75, 5.55}},
        {nn_softmax2d(), "Softmax2d()", {9, -2.27675622062363}},
        {nn_flatten_dims(0, 2), "Flatten(start_dim=0, end_dim=2)", {-0.75, -1.5}},
        {nn_unflatten(1, 2, 2), "Unflatten(dim=1, unflattened_size=(2, 2))", {-0.75, -1.5}},
        {nn_zero_pad1d(1), "ZeroPad1d((1, 1))", {-0.75, 9.15}},
        {nn_zero_pad3d(1), "ZeroPad3d((1, 1, 1, 1, 1, 1))", {-0.75, -10.65}},
        {nn_constant_pad1d(1, 2.5), "ConstantPad1d(padding=(1, 1), value=2.5)", {59.25, 6.65}},
        {nn_constant_pad3d(1, 2.5), "ConstantPad3d(padding=(1, 1, 1, 1, 1, 1), value=2.5)", {284.25, -20.65}},
        {nn_reflection_pad1d(1), "ReflectionPad1d((1, 1))", {-2.55, 2.4}},
        {nn_reflection_pad3d(1), "ReflectionPad3d((1, 1, 1, 1, 1, 1))", {-7.35, 1.65}},
        {nn_replication_pad1d(1), "ReplicationPad1d((1, 1))", {-0.6, 18.9}},
        {nn_replication_pad3d(1), "ReplicationPad3d((1, 1, 1, 1, 1, 1))", {-3.45, -2.55}},
        {nn_upsampling_nearest2d(.scale_factor = 2),
         "UpsamplingNearest2d(scale_factor=2.0, mode='nearest')", {-3, 29.7}},
        {nn_upsampling_bilinear2d(5), "UpsamplingBilinear2d(size=5, mode='bilinear')", {-3.1125, -6.45}}};
    tensor_t *x = tensor_reshape(numbers(36, 7, 13, 0.15), 1, 4, 3, 3), *w = numbers(36, 5, 11, 0.2);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        char text[120];
        nn_module_t *m = rows[k].m, *copy;
        tensor_t *in = strstr(rows[k].text, "1d(") ? tensor_select(x, 0, 0) : x;
        nn_to_string(m, text, sizeof text);
        CHECK_MSG(strcmp(text, rows[k].text) == 0, "%s, PyTorch %s", text, rows[k].text);
        nn_to(m, TENSOR_F64);
        tensor_scope_t s = tensor_scope_begin_no_grad();
        if (k == 0) {
            tensor_copy_(nn_get(m, "weight"), tensor_reshape(w, 4, 3, 3));
            tensor_copy_(nn_get(m, "bias"), tensor_reshape(tensor_flip(w, 0), 4, 3, 3));
        }
        if (k == 2) { tensor_copy_(nn_get(m, "weight"), tensor_reshape(tensor_narrow(w, 0, 0, 9), 3, 3)); }
        tensor_scope_end(s);
        copy = nn_clone(m);
        sums_are(rows[k].text, nn_forward(m, in), rows[k].want);
        sums_are(rows[k].text, nn_forward(copy, in), rows[k].want);
        nn_free(copy);
        nn_free(m);
    }
    nn_module_t *m = nn_layer_norm(.normalized_shape = TENSOR_DIMS(4, 3));
    CHECK_POISON(nn_forward(m, tensor_ones(3, 4)), TENSOR_ERR_SHAPE,
        "layer_norm: x [3,4] must end in the dims [4,3]");
    nn_free(m);
    CHECK(nn_layer_norm(4, .normalized_shape = TENSOR_DIMS(4, 3)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "normalized_shape must be 1..6 numbers, instead of size");
    CHECK(nn_upsampling_nearest2d(.scale_factor = 2, .mode = TENSOR_BILINEAR) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "upsampling_nearest2d: the name gives mode and align_corners");
    m = nn_softmax2d();
    CHECK_POISON(nn_forward(m, tensor_ones(3, 4)), TENSOR_ERR_SHAPE, "softmax2d: x [3,4] must be [C, H, W]");
    nn_free(m);
}

static void bags_with_offsets(void) {
    static const double want[5][2] = {{0, 0.6}, {-2.95, -1.8}, {0, -2.6}, {-2.95, -9}, {0, -0.2}};
    int64_t at[6] = {0, 2, 4, 1, 1, 3}, first[3] = {0, 2, 5}, ends[3] = {0, 2, 6};
    double by[6] = {0.5, 1, 2, -1, 0.25, 3};
    tensor_t *x = tensor_from(at, TENSOR_I64, 6), *offsets = tensor_from(first, TENSOR_I64, 3);
    tensor_t *w = tensor_from(by, TENSOR_F64, 6), *rows = tensor_reshape(x, 2, 3);
    for (int last = 0; last < 2; last++) {
        nn_module_t *m = nn_embedding_bag(5, 3, .mode = TENSOR_BAG_SUM, .include_last_offset = last);
        nn_to(m, TENSOR_F64);
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_copy_(nn_get(m, "weight"), tensor_reshape(numbers(15, 5, 11, 0.2), 5, 3));
        tensor_scope_end(s);
        if (last) {
            sums_are("last offset", nn_call(m, x, tensor_from(ends, TENSOR_I64, 3)), want[4]);
        } else {
            sums_are("offsets", nn_call(m, x, offsets), want[0]);
            sums_are("weights", nn_call(m, x, offsets, w), want[1]);
            sums_are("rows", nn_call(m, rows), want[2]);
            sums_are("rows, weights", nn_call(m, rows, NULL, tensor_reshape(w, 2, 3)), want[3]);
            CHECK(tensor_equal(nn_forward(m, rows), nn_call(m, rows)));
        }
        nn_free(m);
    }
}

// ---- Transformer ----

// PyTorch: nn.Transformer(4, 2, 2, 3, 8, 0.0, ...) with parameters ((7 i) % 13 - 6) / 20, a causal mask for
// the
// target, the last two of the second source padded; y.sum(), (y * w).sum(), then sum of gradient times value
// of
// source, target, and of the gradients of the parameters times (i % 5) - 2.
static void transformer_follows_pytorch(void) {
    static const double want[2][5] = {
        {-0.268939759680501, -0.249620713673781, -1.72559090578705e-05, -3.72881361944949e-05,
            18.9993594906029},
        {4.07965595001515, -0.843462559911684, -0.00867412093375774, 0.0705961213902436, 2.79122938679434}};
    tensor_t *hidden = tensor_zeros_of(TENSOR_BOOL, 2, 5);
    tensor_fill_(tensor_at(hidden, "1, 3:"), 1);
    for (int k = 0; k < 2; k++) {
        nn_module_t *m = nn_transformer(4, 2, .encoder_layers = 2, .decoder_layers = 3, .feedforward = 8,
                                        .dropout = TENSOR_ZERO, .gelu = k, .norm_first = k, .batch_first = k);
        tensor_t *source = tensor_requires_grad_(tensor_reshape(numbers(40, 7, 11, 0.2), 5, 2, 4), 1);
        tensor_t *target = tensor_requires_grad_(tensor_reshape(numbers(24, 5, 9, 0.2), 3, 2, 4), 1);
        tensor_t *s = k ? tensor_transpose(source, 0, 1) : source, *t = k ? tensor_transpose(target, 0,
            1) : target;
        tensor_t *causal = tensor_to(nn_generate_square_subsequent_mask(3), TENSOR_F64), *y, *w;
        double got[5] = {0, 0, 0, 0, 0};
        int64_t at = 0;
        nn_to(m, TENSOR_F64);
        nn_named_list_t p = nn_named_parameters(m);
        CHECK(p.count == 82 && nn_num_parameters(m) == 1140);
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        for (int64_t i = 0; i < p.count; i++) {
            tensor_t *to = p.item[i].tensor;
            int64_t n = tensor_numel(to);
            tensor_t *v = tensor_narrow(numbers(at + n, 7, 13, 0.05), 0, at, n);
            tensor_copy_(to, tensor_view_as(tensor_clone(v), to));
            at += n;
        }
        tensor_scope_end(scope);
        y = nn_call(m, s, t, NULL, causal, NULL, hidden, NULL, hidden);
        w = tensor_reshape(numbers(24, 1, 7, 1), tensor_size(y, 0), tensor_size(y, 1), 4);
        CHECK(tensor_backward(tensor_sum(tensor_mul(y, w))) == 0);
        got[0] = tensor_item(tensor_sum(y));
        got[1] = tensor_item(tensor_sum(tensor_mul(y, w)));
        got[2] = tensor_item(tensor_sum(tensor_mul(tensor_grad(source), source)));
        got[3] = tensor_item(tensor_sum(tensor_mul(tensor_grad(target), target)));
        for (int64_t i = 0; i < p.count; i++) {
            tensor_t *g = tensor_grad(p.item[i].tensor);
            got[4] += tensor_item(tensor_sum(tensor_mul(g, tensor_view_as(numbers(tensor_numel(g), 1, 5, 1),
                g))));
        }
        for (int i = 0; i < 5; i++) {
            CHECK_MSG(fabs(got[i] - want[k][i]) <= 1e-9 * (1 + fabs(want[k][i])), "case %d, %d: %.15g", k,
                i, got[i]);
        }
        nn_module_t *copy = nn_clone(m);
        CHECK(tensor_equal(nn_call(copy, s, t, NULL, causal, NULL, hidden, NULL, hidden), y));
        CHECK(!tensor_equal(nn_call(copy, s, t), y));
        CHECK_POISON(nn_call(m, s), TENSOR_ERR_SHAPE, "call: Transformer takes 2 to 8 inputs, 1 were given");
        nn_free(copy);
        nn_free(m);
    }
    nn_module_t *m = nn_transformer(8, 2, .encoder_layers = 1, .decoder_layers = 1, .feedforward = 16);
    double most = tensor_item(tensor_max(tensor_abs(nn_get(m, "encoder.layers.0.linear1.weight"))));
    CHECK_MSG(most > 0.45 && most <= 0.5, "%g", most);             // sqrt(6 / (8 + 16))
    CHECK(tensor_item(tensor_max(nn_get(m, "decoder.norm.weight"))) == 1);
    nn_free(m);
    CHECK(nn_transformer(7, 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "heads 2 must divide embed 7");
    CHECK(isinf(tensor_item(tensor_at(nn_generate_square_subsequent_mask(2), "0, 1"))));
    CHECK(tensor_item(tensor_at(nn_generate_square_subsequent_mask(2), "1, 0")) == 0);
}

// ---- convolution and batch norm in one ----

// PyTorch: fuse_conv_bn_eval(conv, bn), the sum of y and of y times 0 .. 6 minus 3 in turn.
static void fuses_conv_and_norm(void) {
    static const double want[3][2] = {{0.31644659229351, 0.119829616689915}, {-1.88596765840815,
        -7.66199609341871},
                                      {-22.6619080555545, 3.09750204768766}};
    for (int k = 0; k < 3; k++) {
        nn_module_t *conv = k == 0 ? nn_conv2d(2, 3, 2) : k == 1 ? nn_conv1d(2, 3, 2, .no_bias = 1)
                                                                 : nn_conv_transpose2d(2, 3, 2, .no_bias = 1);
        nn_module_t *bn = k == 1 ? nn_batch_norm1d(3, .eps = 1e-3, .no_affine = 1) : nn_batch_norm2d(3,
            .eps = 1e-3);
        nn_module_t *both = nn_sequential(conv, bn), *one;
        tensor_t *x = numbers(k == 1 ? 8 : 32, 7, 13, 0.2), *w, *y;
        x = k == 1 ? tensor_reshape(x, 1, 2, 4) : tensor_reshape(x, 1, 2, 4, 4);
        nn_to(both, TENSOR_F64);
        tensor_scope_t s = tensor_scope_begin_no_grad();
        w = nn_get(conv, "weight");
        tensor_copy_(w, tensor_view_as(numbers(tensor_numel(w), 5, 11, 0.1), w));
        if (k == 0) { tensor_copy_(nn_get(conv, "bias"), numbers(3, 2, 5, 0.3)); }
        tensor_copy_(nn_get(bn, "running_mean"), numbers(3, 3, 7, 0.2));
        tensor_copy_(nn_get(bn, "running_var"), tensor_add_scalar(tensor_abs(numbers(3, 3, 7, 0.2)), 0.5));
        if (k != 1) {
            tensor_copy_(nn_get(bn, "weight"), numbers(3, 2, 7, 0.4));
            tensor_copy_(nn_get(bn, "bias"), numbers(3, 4, 9, 0.1));
        }
        tensor_scope_end(s);
        CHECK(nn_fuse_conv_bn_eval(conv, bn) == NULL);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "conv and bn must be in evaluation");
        nn_eval(both);
        one = nn_fuse_conv_bn_eval(conv, bn);
        y = nn_forward(one, x);
        sums_are("fused", y, want[k]);
        CHECK(tensor_allclose(y, nn_forward(both, x), 1e-12, 1e-14) && tensor_requires_grad(nn_get(one,
            "bias")));
        CHECK(nn_fuse_conv_bn_eval(bn, conv) == NULL);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "are not a convolution and a batch norm");
        nn_free(one);
        nn_free(both);
    }
    nn_module_t *conv = nn_eval(nn_conv2d(2, 3, 2)), *bn = nn_eval(nn_batch_norm2d(4));
    CHECK(nn_fuse_conv_bn_eval(conv, bn) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv gives 3 channels, bn takes 4");
    CHECK(nn_fuse_conv_bn_eval(NULL, bn) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "conv is NULL");
    nn_free(conv);
    nn_free(bn);
}

// ---- a distance of the user

static tensor_t *cosine_distance(tensor_t *a, tensor_t *b, void *user) {
    (*(int *)user)++;
    return tensor_rsub_scalar(tensor_cosine_similarity(a, b, 1, 1e-8), 1);
}

static tensor_t *f_distance(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_triplet_margin_with_distance_loss(in[0], in[1], in[2], .distance_function = cosine_distance,
                                                    .user = user, .margin = 0.7, .swap = 1);
}

// PyTorch: l = F.triplet_margin_with_distance_loss(a, p, n, distance_function = 1 - cosine_similarity or
// None, ..); the sum of each gradient times 1, 2, .. 6.
static void distance_of_the_user(void) {
    static const double anchor[6] = {1, 2, 0.5, 0, -1, 2}, positive[6] = {1.5, 1, 0, 0.5, -0.5, 1},
                        negative[6] = {0, 3, 1, 1, 0, 1.5};
    static const double want[3][4] = {
        {0.64055207988435536, 0.89294907762090048, 0.065030057877351277, -0.57531941158878941},
        {1.4427173795491366, -0.39711317352826786, 2.6965547264824523, -1.0425685114300904},
        {0.72474594630681999, 4.6704529156498289, -1.8371250638022485, -2.8333278518475806}};
    tensor_t *in[3];
    in[0] = tensor_requires_grad_(tensor_from(anchor, TENSOR_F64, 2, 3), 1);
    in[1] = tensor_requires_grad_(tensor_from(positive, TENSOR_F64, 2, 3), 1);
    in[2] = tensor_requires_grad_(tensor_from(negative, TENSOR_F64, 2, 3), 1);
    tensor_t *by = tensor_reshape(tensor_arange(1, 7, 1, TENSOR_F64), 2, 3);
    int calls = 0;
    nn_module_t *m[3];
    m[0] = nn_triplet_margin_with_distance_loss(.distance_function = cosine_distance, .user = &calls,
                                                .margin = 0.7);
    m[1] = nn_triplet_margin_with_distance_loss(.distance_function = cosine_distance, .user = &calls,
                                                .margin = 0.7, .swap = 1, .reduction = TENSOR_SUM);
    m[2] = nn_triplet_margin_with_distance_loss();
    for (int k = 0; k < 3; k++) {
        tensor_t *loss = nn_call(m[k], in[0], in[1], in[2]), *g[3];
        CHECK_NEAR(tensor_item(loss), want[k][0], 1e-12);
        CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 3, g, 0) == 0);
        for (int i = 0; i < 3; i++) {
            CHECK_NEAR(tensor_item(tensor_sum(tensor_mul(g[i], by))), want[k][i + 1], 1e-12);
        }
        nn_free(m[k]);
    }
    CHECK(calls == 2 + 3);
    int code = tensor_gradcheck(f_distance, &calls, in, 3, 1e-6, 1e-5, 1e-3);
    CHECK_MSG(code == 0, "%s", tensor_error_text());
    CHECK_POISON(tensor_triplet_margin_with_distance_loss(in[0], in[1], in[2], .margin = -1),
                 TENSOR_ERR_SHAPE, "triplet_margin_with_distance_loss: margin -1 must be above 0");
}

// ---- masks as inputs of modules

// nn_call gives what nn_transformer_forward gives, alone and in a sequence.
static void masks_are_inputs(void) {
    nn_module_t *layer = nn_transformer_encoder_layer(8, 2, .feedforward = 12, .dropout = 0);
    nn_module_t *encoder = nn_eval(nn_transformer_encoder(layer, 2, NULL));
    CHECK_POISON(nn_forward(encoder, tensor_ones(3, 2, 7)), TENSOR_ERR_SHAPE, "in layers.0.self_attn");
    nn_module_t *decoder = nn_eval(nn_transformer_decoder(
        nn_transformer_decoder_layer(8, 2, .feedforward = 12, .dropout = 0), 2, NULL));
    tensor_t *x = tensor_randn(5, 3, 8), *memory = tensor_randn(4, 3, 8);
    tensor_t *mask = nn_generate_square_subsequent_mask(5);
    tensor_t *past = tensor_gt_scalar(tensor_randn(3, 4), 1);
    tensor_fill_(tensor_select(past, 1, 0), 0);

    tensor_t *y = nn_transformer_forward(encoder, x, .mask = mask);
    CHECK(tensor_equal(y, nn_call(encoder, x, mask)));
    CHECK(!tensor_equal(y, nn_call(encoder, x)) && tensor_equal(nn_forward(encoder, x), nn_call(encoder, x)));
    tensor_t *z = nn_transformer_forward(decoder, x, memory, .mask = mask, .memory_key_padding_mask = past);
    CHECK(tensor_equal(z, nn_call(decoder, x, memory, mask, NULL, NULL, past)));

    nn_module_t *net = nn_eval(nn_sequential(nn_linear(8, 8), encoder));
    y = nn_transformer_forward(encoder, nn_forward(nn_get_child(net, "0"), x), .mask = mask);
    CHECK(tensor_equal(y, nn_call(net, x, mask)));
    CHECK_POISON(nn_call(decoder, x), TENSOR_ERR_SHAPE,
                 "takes 2 to 6 inputs, the second is memory, 1 were given");
    CHECK_POISON(nn_call(encoder, x, mask, NULL, NULL), TENSOR_ERR_SHAPE,
                 "takes 1 to 3 inputs, 4 were given");
    nn_free(net);
    nn_free(decoder);
}

// Modules have the default dtype at the time they are made, as in PyTorch.
static void default_dtype(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_F32};
    for (int k = 0; k < 4; k++) {
        tensor_dtype_t d = dtypes[k];
        CHECK(tensor_set_default_dtype(d) == TENSOR_OK);
        nn_module_t *norm = nn_batch_norm2d(3), *lstm = nn_lstm(4, 3);
        nn_module_t *net = nn_sequential(nn_conv2d(2, 3, 2), norm, nn_prelu(1, 0.25), nn_flatten(),
                                         nn_linear(12, 4), nn_layer_norm(4));
        nn_module_t *table = nn_embedding(5, 4), *attention = nn_multihead_attention(4, 2);
        nn_module_t *all[] = {net, lstm, table, attention};
        for (int m = 0; m < 4; m++) {
            tensor_t *list[32];
            int n = nn_parameters(all[m], list, 32);
            for (int i = 0; i < n; i++) { CHECK(tensor_dtype(list[i]) == d); }
        }
        CHECK(tensor_dtype(nn_get(norm, "running_mean")) == d);
        CHECK(tensor_dtype(nn_get(norm, "running_var")) == d);
        CHECK(tensor_dtype(nn_get(norm, "num_batches_tracked")) == TENSOR_I64);
        CHECK(tensor_dtype(nn_generate_square_subsequent_mask(2)) == d);
        tensor_t *y = nn_forward(net, tensor_ones(2, 2, 3, 3));
        CHECK(tensor_dtype(y) == d && tensor_backward(tensor_sum(y)) == 0);
        CHECK(tensor_dtype(nn_forward(lstm, tensor_ones(2, 1, 4))) == d);
        CHECK_OK();
        for (int m = 0; m < 4; m++) { nn_free(all[m]); }
    }
    CHECK(tensor_get_default_dtype() == TENSOR_F32);

    nn_module_t *bag = nn_embedding_bag(5, 4, .mode = TENSOR_BAG_SUM);
    tensor_t *at = tensor_zeros_of(TENSOR_I64, 1, 2);
    CHECK_POISON(nn_call(bag, at, NULL, tensor_ones_of(TENSOR_F64, 1, 2)), TENSOR_ERR_DTYPE,
                 "per_sample_weights is f64, weight is f32; use tensor_to");
    nn_free(bag);
}

// A gradient that is a part of other memory, as kit/parallel.h gives, becomes one of its own.
static void converted_gradients(void) {
    nn_module_t *m = nn_linear(2, 3);
    tensor_t *all = tensor_arange(0, 10, 1, TENSOR_F32), *w = nn_get(m, "weight");
    CHECK(tensor_set_grad(w, tensor_view(tensor_narrow(all, 0, 2, 6), 3, 2)) == 0);
    CHECK(nn_to(m, TENSOR_F64) == 0 && tensor_dtype(tensor_grad(w)) == TENSOR_F64);
    CHECK(tensor_item(tensor_sum(tensor_grad(w))) == 27 && tensor_dtype(all) == TENSOR_F32);
    nn_free(m);
}

int main(void) {
    RUN(walks);
    RUN(freezes_by_name);
    RUN(transient_buffers);
    RUN(sequences);
    RUN(vectors);
    RUN(averages);
    RUN(losses_are_modules);
    RUN(several_inputs);
    RUN(layers_follow_pytorch);
    RUN(bags_with_offsets);
    RUN(transformer_follows_pytorch);
    RUN(fuses_conv_and_norm);
    RUN(distance_of_the_user);
    RUN(masks_are_inputs);
    RUN(default_dtype);
    RUN(converted_gradients);
    return test_report();
}

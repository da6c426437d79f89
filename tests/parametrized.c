// parametrized.c - weight norm, spectral norm, parametrizations of a program
//
// Numbers of PyTorch come from runs of PyTorch 2.15 in f64; what was computed is said beside them.
#include "numbers.h"

static void fill_vectors(nn_module_t *m) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    nn_named_list_t b = nn_named_buffers(m);
    for (int64_t i = 0; i < b.count; i++) {
        tensor_t *v = tensor_add_scalar(numbers(tensor_numel(b.item[i].tensor), 3, 7, 0.5), 0.1);
        tensor_copy_(b.item[i].tensor, tensor_normalize(v, 2, 0, 1e-12));
    }
    tensor_scope_end(s);
}

// PyTorch: weight_norm(m), spectral_norm(m) as named, y = m(x), (y * y).sum().backward(): the scores of y and
// of the gradients of the originals, the scores of _u and _v, and the sum of m.eval()(x).
static void follows_pytorch(void) {
    const struct { nn_module_t *m; const char *names; int64_t x[4]; double want[6]; } rows[] = {
        {nn_weight_norm(nn_linear(3, 4)), "bias weight.original0 weight.original1 ", {5, 3},
         {8.62, 0.57, -29.3735831937128, -2.41062532353561, 0.57}},
        {nn_weight_norm(nn_linear(3, 4), .dim = -1), "bias weight.original0 weight.original1 ", {5, 3},
         {8.62, 0.57, -34.6745775892997, -25.6566884848485, 0.57}},
        {nn_weight_norm(nn_conv1d(2, 3, 2), .dim = 1), "bias weight.original0 weight.original1 ", {2, 2, 5},
         {-5.47, 2.04, -48.4353530272765, 1.00480286814219, 2.04}},
        {nn_weight_norm(nn_linear(3, 4), .name = "bias"), "weight bias.original0 bias.original1 ", {5, 3},
         {8.62, 0.57, -29.94, 0, 0.57}},
        {nn_weight_norm(nn_lstm(3, 2), .name = "weight_hh_l0"),
         "weight_ih_l0 bias_ih_l0 bias_hh_l0 weight_hh_l0.original0 weight_hh_l0.original1 ", {4, 2, 3},
         {-0.837978612331856, 0.139757970330769, 0.012328344258468, -0.00292545753113549, 0.139757970330769}},
        {nn_spectral_norm(nn_linear(3, 4)), "bias weight.original weight.0._u weight.0._v ", {5, 3},
         {9.56696511493952, 0.626960307665535, -49.2474728661524, -1.91350485122476, -2.36176956604898,
          0.626960307665535}},
        {nn_spectral_norm(nn_conv2d(2, 3, 2), .n_power_iterations = 3),
         "bias weight.original weight.0._u weight.0._v ", {1, 2, 3, 3},
         {4.73178670636453, 1.45285822512494, -4.41437397050256, 1.2215759250049, 0.69311669104611,
          1.45285822512494}},
        {nn_spectral_norm(nn_conv_transpose1d(2, 3, 2), .eps = 1e-3),
         "bias weight.original weight.0._u weight.0._v ", {1, 2, 4},
         {11.4824179071364, 1.18872130720885, -0.0230718394942295, -3.5197830837562, 1.46654990708288,
          1.18872130720885}},
        {nn_spectral_norm(nn_linear(3, 4), .name = "bias"), "weight bias.original ", {5, 3},
         {7.53356895398828, 0.487694617726384, -5.0208787164755, 0.487694617726384}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        nn_module_t *m = rows[k].m, *copy;
        const double *want = rows[k].want;
        const char *what = rows[k].names;
        char names[200] = "";
        int dims = 0, at = 0;
        int64_t n = 1;
        for (; dims < 4 && rows[k].x[dims]; dims++) { n *= rows[k].x[dims]; }
        // PyTorch fills the module first: g is the norm of v then.
        nn_remove_parametrizations(m, k == 3 || k == 8 ? "bias" : k == 4 ? "weight_hh_l0" : "weight", 1);
        CHECK_OK();
        fill(m);
        nn_spectral_norm_args_t args = nn_spectral_norm_defaults();
        args.module = m;
        if (k < 5) {
            nn_weight_norm(m, .name = k == 3 ? "bias" : k == 4 ? "weight_hh_l0" : NULL,
                           .dim = k == 1 ? -1 : k == 2 ? 1 : 0);
        } else if (k == 5) {
            CHECK(nn_spectral_norm_with(args) == m);
        } else {
            nn_spectral_norm(m, .name = k == 8 ? "bias" : NULL, .n_power_iterations = k == 6 ? 3 : 0,
                             .eps = k == 7 ? 1e-3 : 0);
        }
        fill_vectors(m);
        nn_named_list_t all = nn_state(m);
        for (int64_t i = 0; i < all.count; i++) {
            const char *name = all.item[i].name, *prefix = "parametrizations.";
            if (strncmp(name, prefix, strlen(prefix)) == 0) { name += strlen(prefix); }
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", name);
        }
        CHECK_TEXT(names, what);
        copy = nn_clone(m);
        tensor_t *x = tensor_reshape_n(numbers(n, 5, 11, 0.2), rows[k].x, dims), *y = nn_forward(m, x);
        CHECK(tensor_equal(nn_forward(copy, x), y));
        CHECK(tensor_backward(tensor_sum(tensor_square(y))) == 0);
        is_about(what, at, score(y, 0), want[at]), at++;
        is_about(what, at, score(y, 1), want[at]), at++;
        for (int64_t i = 0; i < all.count; i++) {
            tensor_t *t = all.item[i].tensor;
            if (!strstr(all.item[i].name, "parametrizations.")) { continue; }
            is_about(what, at, score(all.item[i].is_buffer ? t : tensor_grad(t), 0), want[at]), at++;
        }
        is_about(what, at, score(nn_forward(nn_eval(m), x), 1), want[at]);
        nn_free(copy);
        nn_free(m);
    }
    CHECK_OK();
}

// The modules print as PyTorch's do.
static void prints(void) {
    char text[400];
    nn_module_t *m = nn_spectral_norm(nn_weight_norm(nn_linear(3, 4)));
    nn_to_string(m, text, sizeof text);
    CHECK_TEXT(text, "ParametrizedLinear(in_features=3, out_features=4, bias=True\n"
               "  (parametrizations): ModuleDict(\n"
               "    (weight): ParametrizationList(\n"
               "      (0): _WeightNorm()\n"
               "      (1): _SpectralNorm()\n"
               "    )\n"
               "  )\n"
               ")");
    nn_free(m);
}

static nn_module_t *checked;
static const char *which[2];

// The forward of `checked` with its originals replaced by in[0], in[1].
static tensor_t *f_module(tensor_t *const *in, int n, void *user) {
    nn_module_t *child = nn_get_child(checked, (const char *)user);
    for (int k = 0; k + 1 < n; k++) { nn_parameter(child, which[k], in[k]); }
    return nn_forward(checked, in[n - 1]);
}

static void gradients(void) {
    char path[] = "parametrizations.weight";
    for (int k = 0; k < 3; k++) {
        checked = nn_linear(3, 4);
        if (k < 2) {
            nn_weight_norm(checked, .dim = k - 1);
        } else {
            nn_eval(nn_spectral_norm(checked));
        }
        nn_to(checked, TENSOR_F64);
        which[0] = k < 2 ? "original0" : "original";
        which[1] = "original1";
        tensor_t *in[3], *list = NULL;
        int n = k < 2 ? 2 : 1;
        nn_module_t *originals = nn_get_child(checked, path);
        for (int i = 0; i < n; i++) { in[i] = tensor_keep(nn_get(originals, which[i])); }
        in[n] = list = tensor_requires_grad_(tensor_reshape(numbers(6, 5, 11, 0.2), 2, 3), 1);
        CHECK_MSG(tensor_gradcheck(f_module, path, in, n + 1, 0, 0, 0) == 0, "%s", tensor_error_text());
        CHECK_MSG(tensor_gradgradcheck(f_module, path, in, n + 1, 0, 0, 0) == 0, "%s", tensor_error_text());
        CHECK(list != NULL);
        for (int i = 0; i < n; i++) { tensor_free(in[i]); }
        nn_free(checked);
    }
}

// What is left when they are removed; a training step between.
static void removes(void) {
    nn_module_t *m = nn_weight_norm(nn_linear(3, 4)), *s;
    tensor_t *x = tensor_randn(2, 3), *y, *w;
    nn_optimizer_t *opt = nn_sgd(m, .lr = 0.1);
    tensor_backward(tensor_sum(tensor_square(nn_forward(m, x))));
    CHECK(nn_step(opt) == 0 && nn_num_parameters(m) == 20);
    nn_optimizer_free(opt);
    y = nn_forward(m, x);
    CHECK(nn_remove_parametrizations(m, "weight", 0) == m);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "remove_parametrizations: \"weight\" has no single original");
    CHECK(nn_remove_parametrizations(m, "weight", 1) == m && nn_num_parameters(m) == 16);
    CHECK(tensor_equal(nn_forward(m, x), y) && nn_modules(m, NULL, 0) == 1);
    CHECK(tensor_requires_grad(nn_get(m, "weight")) && tensor_is_leaf(nn_get(m, "weight")));
    nn_free(m);

    s = nn_linear(3, 4);
    w = nn_get(s, "weight");
    tensor_t *before = tensor_clone(tensor_detach(w));
    CHECK(nn_spectral_norm(s) == s && nn_get(s, "parametrizations.weight.original") == w);
    double sigma = tensor_item(tensor_linalg_matrix_norm(nn_get(nn_eval(s), "weight"), "2", -2, -1, 0));
    CHECK_MSG(sigma > 0.9 && sigma < 1.1, "%g", sigma);
    CHECK(nn_remove_parametrizations(s, "weight", 0) == s && nn_get(s, "weight") == w);
    CHECK(tensor_equal(tensor_detach(w), before) && nn_modules(s, NULL, 0) == 1);
    nn_requires_grad_(s, 0);
    nn_spectral_norm(s);
    CHECK(!tensor_requires_grad(w) && !tensor_requires_grad(nn_forward(s, x)));
    y = tensor_clone(nn_get(s, "weight"));
    nn_remove_parametrizations(s, "weight", 1);
    CHECK(tensor_equal(nn_get(s, "weight"), y) && nn_get(s, "weight") == w && !tensor_requires_grad(w));
    nn_free(s);
    CHECK_OK();
}

// Symmetric matrices, as PyTorch's tutorial on parametrizations has them.
static tensor_t *symmetric_forward(nn_module_t *m, tensor_t *x) {
    (void)m;
    tensor_t *upper = tensor_triu(x, 0);
    return tensor_add(upper, tensor_mT(tensor_triu(x, 1)));
}

static tensor_t *too_small(nn_module_t *m, tensor_t *x) {
    (void)m;
    return tensor_select(x, 0, 0);
}

static void of_a_program(void) {
    static nn_module_t symmetric, small;
    nn_module_init(&symmetric, "Symmetric", symmetric_forward, NULL);
    nn_module_init(&small, "Small", too_small, NULL);
    nn_module_t *m = nn_sequential(nn_linear(3, 3), nn_relu()), *first = nn_get_child(m, "0");
    tensor_t *x = tensor_randn(4, 3);
    CHECK(nn_register_parametrization(first, "weight", &symmetric) == first);
    tensor_t *w = nn_get(m, "0.weight"), *y = nn_forward(m, x);
    CHECK(tensor_equal(w, tensor_mT(w)) && tensor_equal(nn_get(first, "weight"), w));
    CHECK(tensor_allclose(y, tensor_relu(tensor_linear(x, w, nn_get(first, "bias"))), 1e-6, 1e-7));
    CHECK(nn_save("parametrized.safetensors", m) == 0);
    nn_spectral_norm(first);                                    // acts on the symmetric one
    CHECK(nn_modules(m, NULL, 0) == 7);
    nn_free(m);

    m = nn_sequential(nn_linear(3, 3), nn_relu());
    static nn_module_t again;
    nn_module_init(&again, "Symmetric", symmetric_forward, NULL);
    nn_register_parametrization(nn_get_child(m, "0"), "weight", &again);
    CHECK_MSG(nn_load("parametrized.safetensors", m) == 0, "%s", tensor_error_text());
    CHECK(tensor_equal(nn_forward(m, x), y));
    nn_free(m);
    remove("parametrized.safetensors");

    m = nn_linear(3, 2);
    CHECK(nn_register_parametrization(m, "weight", &small) == m && m->code == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE,
                "register_parametrization: \"weight\" [2,3] must keep its shape, would become [3] at "
                "parametrized.c:");         // the place of this call
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_SHAPE, "module Linear failed when it was made");
    nn_free(m);
    m = nn_weight_norm(nn_linear(3, 2), .name = "nothing");
    CHECK_ERROR(TENSOR_ERR_INDEX, "weight_norm: Linear has no parameter or buffer \"nothing\"");
    nn_free(m);
    m = nn_weight_norm(nn_linear(3, 2), .dim = 2);
    CHECK_ERROR(TENSOR_ERR_INDEX, "weight_norm: \"weight\" [2,3] has no dim 2");
    nn_free(m);
    m = nn_spectral_norm(nn_linear(3, 2), .dim = -3);
    CHECK_ERROR(TENSOR_ERR_INDEX, "spectral_norm: \"weight\" [2,3] has no dim -3");
    nn_free(m);
    m = nn_spectral_norm(nn_linear(3, 2), .n_power_iterations = -1);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "spectral_norm: n_power_iterations must be > 0 (got -1)");
    nn_free(m);
    m = nn_weight_norm(nn_weight_norm(nn_linear(3, 2)));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "weight_norm: \"weight\" is parametrized already");
    nn_free(m);
    m = nn_weight_norm(nn_linear(3, 2));
    CHECK_POISON(nn_parameter(m, "weight", tensor_ones(2, 3)), TENSOR_ERR_OWNER,
                 "\"weight\" is parametrized");
    nn_free(m);
    m = nn_weight_norm(nn_linear(3, 2));
    nn_remove_parametrizations(m, "bias", 1);
    CHECK_ERROR(TENSOR_ERR_INDEX, "remove_parametrizations: \"bias\" of Linear is not parametrized");
    nn_free(m);
    CHECK(nn_weight_norm(NULL) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "weight_norm: the module is NULL");
    CHECK(nn_spectral_norm(NULL) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "spectral_norm: the module is NULL");
    nn_free(&small);
}

// What a parametrization consists of may go away, but not while it is in its forward.
static nn_module_t *whose;
static int how_often;
static tensor_t *removing_forward(nn_module_t *m, tensor_t *x) {
    (void)m;
    if (how_often == 1) { nn_remove_parametrizations(whose, "weight", 0); }
    if (how_often == 2) { nn_free(whose); }
    if (how_often == 3) { nn_child(nn_get_child(whose, "parametrizations"), "weight", nn_relu()); }
    return tensor_exp(x);
}
static void taken_apart(void) {
    tensor_t *x = tensor_randn(4, 3);
    nn_module_t *m = nn_weight_norm(nn_linear(3, 2));
    nn_child(nn_get_child(m, "parametrizations"), "weight", nn_relu());
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_POISONED, "the module is NULL");
    CHECK(nn_remove_parametrizations(m, "weight", 1) == m);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the parametrizations of \"weight\" were replaced");
    nn_free(m);
    m = nn_spectral_norm(nn_linear(3, 2));
    nn_child(m, "parametrizations", nn_relu());
    CHECK(nn_remove_parametrizations(m, "weight", 0) == m);
    CHECK_ERROR(TENSOR_ERR_OWNER, "were replaced");
    nn_free(m);

    static nn_module_t removing;
    nn_module_init(&removing, "Removing", removing_forward, NULL);
    whose = nn_linear(3, 2);
    how_often = 0;
    nn_register_parametrization(whose, "weight", &removing);
    static const char *const texts[] = {"remove_parametrizations: the parametrizations of \"weight\" are in",
                                        "free: a part of module Linear is in its forward",
                                        "child: \"weight\" is in its forward"};
    for (how_often = 1; how_often <= 3; how_often++) {
        nn_forward(whose, x);
        CHECK_ERROR(TENSOR_ERR_OWNER, texts[how_often - 1]);
    }
    how_often = 0;
    nn_get_child(whose, "parametrizations")->code = 0;          // the refused child marked it
    CHECK(!tensor_is_poison(nn_forward(whose, x)));
    nn_remove_parametrizations(whose, "weight", 1);
    CHECK(nn_children(whose, NULL, NULL, 0) == 0);
    nn_free(whose);
}

// The first vectors are drawn; they are not what the memory held, which is NaN here.
static void vectors_are_drawn(void) {
    static unsigned char room[1 << 20];
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    memset(room, 0xFF, sizeof room);
    tensor_allocator_t arena = tensor_arena_allocator(room, sizeof room);
    CHECK(tensor_set_allocator(&arena) == 0);
    nn_module_t *m = nn_spectral_norm(nn_linear(3, 4));
    CHECK(isfinite(tensor_item(tensor_sum(nn_forward(m, tensor_ones(2, 3))))));
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);
}

int main(void) {
    RUN(follows_pytorch);
    RUN(prints);
    RUN(gradients);
    RUN(removes);
    RUN(of_a_program);
    RUN(taken_apart);
    RUN(vectors_are_drawn);
    return test_report();
}

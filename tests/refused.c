// refused.c - arguments that functions refuse, each in its own words
#include "test.h"

static tensor_t *ones2(int64_t a, int64_t b) { return tensor_ones(a, b); }

static tensor_t *squares(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_sum(tensor_square(in[0]));
}

// What functions of functions are not given, and what is not a tensor any more.
static void missing(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *gone = tensor_ones_of(TENSOR_F64, 2), *x, *v, *r;
    tensor_scope_end(scope);
    x = tensor_requires_grad_(tensor_ones_of(TENSOR_F64, 2), 1);
    v = tensor_ones_of(TENSOR_F64, 2);
    CHECK_POISON(tensor_vjp(NULL, NULL, &x, 1, NULL, &r, 0), TENSOR_ERR_OWNER, "vjp: ");
    CHECK_POISON(tensor_vjp(squares, NULL, NULL, 1, NULL, &r, 0), TENSOR_ERR_OWNER, "vjp: ");
    CHECK_POISON(tensor_vjp(squares, NULL, &x, 1, NULL, NULL, 0), TENSOR_ERR_OWNER, "vjp: ");
    CHECK_POISON(tensor_vjp(squares, NULL, &x, -1, NULL, &r, 0), TENSOR_ERR_OWNER, "vjp: ");
    CHECK_POISON(tensor_vjp(squares, NULL, &gone, 1, NULL, &r, 0), TENSOR_ERR_OWNER,
                 "used after its scope ended");
    CHECK_POISON(tensor_jvp(squares, NULL, &x, 1, NULL, &r, 0), TENSOR_ERR_OWNER, "jvp: ");
    CHECK_POISON(tensor_jvp(squares, NULL, &x, 1, &v, NULL, 0), TENSOR_ERR_OWNER, "jvp: ");
    CHECK(tensor_jacobian(squares, NULL, &x, 1, NULL, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "jacobian: ");
    CHECK(tensor_hessian(squares, NULL, &x, 1, NULL, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "hessian: ");
    CHECK_POISON(tensor_hvp(squares, NULL, &x, 1, NULL, &r, 0), TENSOR_ERR_OWNER, "hvp: ");
    CHECK_POISON(tensor_hvp(squares, NULL, &x, 1, &v, NULL, 0), TENSOR_ERR_OWNER, "hvp: ");
    CHECK_POISON(tensor_vhp(squares, NULL, &x, 1, NULL, &r, 0), TENSOR_ERR_OWNER, "vhp: ");
    CHECK_POISON(tensor_vhp(squares, NULL, &x, 1, &v, NULL, 0), TENSOR_ERR_OWNER, "vhp: ");
    CHECK_POISON(tensor_checkpoint(NULL, NULL, &x, 1), TENSOR_ERR_OWNER, "checkpoint: ");
    CHECK_POISON(tensor_checkpoint(squares, NULL, NULL, 1), TENSOR_ERR_OWNER, "checkpoint: ");
    CHECK_POISON(tensor_checkpoint(squares, NULL, &gone, 1), TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(tensor_gradcheck(NULL, NULL, &x, 1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradcheck: ");
    CHECK(tensor_gradcheck(squares, NULL, NULL, 1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradcheck: ");
    CHECK(tensor_gradcheck(squares, NULL, &gone, 1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(tensor_gradgradcheck(NULL, NULL, &x, 1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradgradcheck: ");
    CHECK(tensor_gradgradcheck(squares, NULL, NULL, 1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradgradcheck: ");
}

static void looked_at(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *gone = tensor_ones(2), *x;
    double place[2];
    tensor_scope_end(scope);
    x = tensor_ones_of(TENSOR_F64, 2);
    CHECK(tensor_data_mut(gone) == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(tensor_copy_out(gone, place, sizeof place) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(tensor_copy_out(x, place, 8) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "copy_out: x [2] f64 needs 16 bytes, got 8");
    CHECK(tensor_copy_out(x, NULL, sizeof place) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "copy_out: x [2] f64 needs 16 bytes, got 16");
    CHECK(!tensor_equal(x, gone));
    CHECK_ERROR(TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(!tensor_equal(gone, x));
    CHECK_ERROR(TENSOR_ERR_OWNER, "used after its scope ended");
    CHECK(tensor_copy_out(x, place, sizeof place) == 0 && place[1] == 1);
}

static void attention(void) {
    tensor_t *q = tensor_ones(2, 3, 4), *k = tensor_ones(2, 5, 4), *v = tensor_ones(2, 5, 6);
    tensor_t *mask = ones2(3, 5);
    CHECK_POISON(tensor_scaled_dot_product_attention(tensor_ones(4), k, v), TENSOR_ERR_SHAPE,
                 "query [4], key [2,5,4], value [2,5,6] must have at least 2 dims");
    CHECK_POISON(tensor_scaled_dot_product_attention(tensor_ones(2, 3, 7), k, v), TENSOR_ERR_SHAPE,
                 "query [2,3,7] and key [2,5,4] must have the same last dim");
    CHECK_POISON(tensor_scaled_dot_product_attention(q, k, tensor_ones(2, 4, 6)), TENSOR_ERR_SHAPE,
                 "key [2,5,4] and value [2,4,6] must have the same length");
    CHECK_POISON(tensor_scaled_dot_product_attention(q, k, v, .attn_mask = mask, .is_causal = 1),
                 TENSOR_ERR_SHAPE, "attn_mask [3,5] and is_causal exclude each other");
    CHECK_POISON(tensor_scaled_dot_product_attention(q, k, v, .attn_mask = tensor_to(mask, TENSOR_I32)),
                 TENSOR_ERR_DTYPE, "attn_mask is i32, must be bool or f32 as query");
    CHECK_POISON(tensor_scaled_dot_product_attention(q, k, v, .dropout_p = 1.5), TENSOR_ERR_SHAPE,
                 "dropout_p 1.5 must be in 0..1");
}

static void tables(void) {
    tensor_t *index = tensor_zeros_of(TENSOR_I64, 2), *w = ones2(3, 4);
    CHECK_POISON(tensor_embedding(index, tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "embedding: weight [3] must be 2-d [rows, width]");
    CHECK_POISON(tensor_embedding(tensor_ones(2), w), TENSOR_ERR_DTYPE,
                 "embedding: index is f32, must be i32 or i64");
    CHECK_POISON(tensor_embedding(tensor_zeros_of(TENSOR_I64, 1, 1, 1, 1, 1, 1, 1, 1), w), TENSOR_ERR_SHAPE,
                 "has 8 dims, at most 7 fit");
    CHECK_POISON(tensor_embedding(index, w, .padding_idx = 3), TENSOR_ERR_INDEX,
                 "embedding: padding_idx 3 is outside the 3 rows of weight [3,4]");
    CHECK(nn_embedding(3, 4, .padding_idx = -4) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding: padding_idx -4 must be at least -count -3");
    CHECK(nn_embedding(3, 4, .padding_idx = 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding: padding_idx 3 must be below count 3");
    CHECK(nn_embedding_bag(3, 4, .mode = (tensor_bag_mode_t)9) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding_bag: mode must be a tensor_bag_mode_t");
}

static void linear(void) {
    tensor_t *x = ones2(2, 4);
    CHECK_POISON(tensor_linear(x, tensor_ones(2, 3, 4), NULL), TENSOR_ERR_SHAPE,
                 "linear: weight [2,3,4] must be 2-d [out, in] or 1-d [in]");
    CHECK_POISON(tensor_linear(x, ones2(3, 4), tensor_ones(2)), TENSOR_ERR_SHAPE,
                 "linear: bias [2] must have the 3 rows of weight [3,4]");
    CHECK_POISON(tensor_dropout(x, 1.5, 1), TENSOR_ERR_SHAPE, "dropout: p 1.5 must be in 0..1 (x [2,4])");
    CHECK_POISON(nn_init_trunc_normal_(x, 0, 1, 2, -2), TENSOR_ERR_SHAPE,
                 "trunc_normal_: needs low <= high and std >= 0 (got 2, -2, 1)");
}

static void losses(void) {
    tensor_t *x = ones2(2, 3), *t = tensor_zeros_of(TENSOR_I64, 2);
    tensor_t *none = tensor_ones_n(NULL, 0, TENSOR_F32);
    tensor_t *two = tensor_ones(2), *own = tensor_requires_grad_(tensor_ones(3), 1);
    CHECK_POISON(tensor_huber_loss(x, x, .delta = -1), TENSOR_ERR_SHAPE,
                 "huber_loss: delta -1 (input [2,3]) must be > 0");
    CHECK_POISON(tensor_smooth_l1_loss(x, x, .beta = -1), TENSOR_ERR_SHAPE,
                 "smooth_l1_loss: beta -1 (input [2,3]) must be > 0");
    CHECK_POISON(tensor_cross_entropy(none, t), TENSOR_ERR_SHAPE,
                 "must be [N, C], [N, C, d...] or [C], C > 0");
    CHECK_POISON(tensor_cross_entropy(x, t, .label_smoothing = 1.5), TENSOR_ERR_SHAPE,
                 "label_smoothing 1.5 (input [2,3]) must be in 0..1");
    CHECK_POISON(tensor_cross_entropy(x, t, .weight = two), TENSOR_ERR_SHAPE,
                 "weight [2] must have the 3 classes of input [2,3]");
    CHECK_POISON(tensor_cross_entropy(x, t, .weight = own), TENSOR_ERR_UNSUPPORTED,
                 "weight [3] requires grad, which it cannot get");
    CHECK_POISON(tensor_multi_margin_loss(x, t, .weight = two), TENSOR_ERR_SHAPE,
                 "weight [2] must have the 3 classes of input [2,3]");
    CHECK_POISON(tensor_multilabel_soft_margin_loss(none, none), TENSOR_ERR_SHAPE,
                 "multilabel_soft_margin_loss: input [] must be [..., C]");
}

static void modules(void) {
    static const int64_t pads[7] = {1, 1, 1, 1, 1, 1, 1};
    tensor_t *x = ones2(2, 4);
    nn_module_t *a = nn_sequential(nn_linear(4, 3)), *b = nn_sequential(nn_linear(4, 3), nn_linear(3, 3));
    nn_module_t *m = nn_identity();
    CHECK_POISON(nn_forward(m, NULL), TENSOR_ERR_POISONED, "identity: x is NULL");
    CHECK(nn_ema_update(a, b, 0, 0.5) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "modules of 2 and 4 tensors; they must be alike");
    CHECK(nn_append(m, a) == m);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "append: module Identity must be made by nn_sequential");
    CHECK(nn_pad_n(pads, 7, TENSOR_PAD_CONSTANT, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "at most 6 numbers, two for each dim, are needed");
    CHECK(nn_pad_n(pads, 2, (tensor_pad_t)9, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "mode must be a tensor_pad_t");
    nn_free(a), nn_free(b);
    a = nn_layer_norm(3);
    CHECK_POISON(nn_forward(a, x), TENSOR_ERR_SHAPE, "layer_norm: x [2,4] must end in a dim of 3");
    nn_free(a);
    a = nn_group_norm(2, 6);
    CHECK_POISON(nn_forward(a, x), TENSOR_ERR_SHAPE, "group_norm: x [2,4] must be [N, 6, ...]");
    nn_free(a);
    a = nn_embedding_bag(3, 4);
    CHECK_POISON(nn_call(a, x, x, x, x), TENSOR_ERR_SHAPE,
                 "call: EmbeddingBag takes 1 to 3 inputs, 4 were given");
    nn_free(a);
    a = nn_transformer_decoder_layer(4, 2, .feedforward = 8);
    CHECK_POISON(nn_transformer_forward(a, tensor_ones(3, 2, 4), NULL), TENSOR_ERR_SHAPE,
                 "memory is NULL, must be a tensor for the module");
    nn_free(a);
}

// Kinds of paddings that no other program makes, by their sizes.
static void paddings(void) {
    static const int64_t pads[6] = {1, 2, 1, 0, 0, 1};
    static const tensor_pad_t modes[4] = {TENSOR_PAD_CONSTANT, TENSOR_PAD_REFLECT, TENSOR_PAD_REPLICATE,
                                          TENSOR_PAD_CIRCULAR};
    static const char *const names[4] = {"ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"};
    tensor_t *x = tensor_reshape(tensor_arange(0, 48, 1, TENSOR_F32), 1, 2, 2, 3, 4);
    for (int k = 0; k < 4; k++) {
        for (int dims = 1; dims <= 3; dims++) {
            nn_module_t *m = nn_pad_n(pads, 2 * dims, modes[k], 0.5);
            char text[80], want[40];
            tensor_t *in = dims == 3 ? x : tensor_select(x, 0, 0);
            if (dims == 1) { in = tensor_select(in, 0, 1); }
            nn_to_string(m, text, sizeof text);
            snprintf(want, sizeof want, "%s%dd(", names[k], dims);
            CHECK_MSG(strncmp(text, want, strlen(want)) == 0, "%s for %s", text, want);
            CHECK(tensor_equal(nn_forward(m, in), tensor_pad_n(in, pads, 2 * dims, modes[k], 0.5)));
            nn_free(m);
        }
    }
}

static tensor_t *nothing(nn_module_t *m, tensor_t *x) {
    (void)m, (void)x;
    return NULL;
}

static void users_modules(void) {
    static nn_module_t mine;
    nn_module_init(&mine, "Mine", nothing, NULL);
    CHECK_POISON(nn_forward(&mine, tensor_ones(2)), TENSOR_ERR_INTERNAL,
                 "forward: the forward of Mine returned NULL, must return a tensor");
    CHECK(nn_clone(&mine) == NULL);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "clone: ");
    nn_free(&mine);
}

static int get_nothing(void *user, int64_t i, void *x, void *y) {
    (void)user, (void)i, (void)x, (void)y;
    return 0;
}
static int collate_nothing(void *user, nn_item_t *items, int64_t n, tensor_t **x, tensor_t **y) {
    (void)user, (void)items, (void)n, (void)x, (void)y;
    return 0;
}

static void data(void) {
    tensor_t *x = ones2(4, 3), *scalar = tensor_ones_n(NULL, 0, TENSOR_F32);
    nn_dataset_t d = nn_tensor_dataset(x, scalar);
    CHECK(d.len < 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "tensor_dataset: y [] must have at least 1 dim");
    d = nn_tensor_dataset(x, NULL);
    CHECK(nn_subset(d, x).len < 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "subset: ");
    CHECK(nn_subset(d, tensor_ones(2)).len < 0);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "subset: ");
    d.len = -1;
    CHECK(nn_subset(d, tensor_zeros_of(TENSOR_I64, 1)).len < 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "subset: the dataset has no indices");
    memset(&d, 0, sizeof d);
    d.len = 3;
    CHECK(nn_data_loader(d, .batch_size = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "data_loader: the dataset has neither x nor get");
    d.get = get_nothing;
    d.x_shape.ndim = 8;
    CHECK(nn_data_loader(d, .batch_size = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "data_loader: x_shape and y_shape must have 0 to 7 dims (got 8, 0)");
    d.x_shape.ndim = 0;
    CHECK(nn_data_loader(d, .batch_size = 2, .num_workers = 257) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "data_loader: num_workers 257 must be in 0..256");
    d.get = NULL;
    d.collate = collate_nothing;
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 2);
    nn_batch_t batch;
    CHECK(nn_next(l, &batch) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "collate has set no x, must set x, and y if there is one, to a tensor");
    nn_data_loader_free(l);
}

static void optimizers(void) {
    tensor_t *whole = tensor_zeros_of(TENSOR_I64, 2), *w = tensor_requires_grad_(tensor_ones(2), 1);
    nn_optimizer_t *o;
    CHECK(nn_sgd(.list = &whole, .count = 1, .lr = 0.1) == NULL);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "sgd: parameter 0 is i64, not a float");
    o = nn_sgd(.list = &w, .count = 1, .lr = 0.1);
    CHECK(nn_clip_grad_value(o, -1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "clip_grad_value: limit must be >= 0 (got -1)");
    CHECK(nn_set_cyclic_lr(o, 0, 0.1, 0.2, .step_size_up = -1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "set_cyclic_lr: step_size_up must be > 0 (got -1)");
    nn_optimizer_free(o);
    nn_module_t *net = nn_linear(2, 2);
    CHECK(nn_sgd(net, .list = &w, .count = 1, .lr = 0.1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "sgd: takes the parameters of a module or a list, not both");
    nn_free(net);
    whole = tensor_expand(tensor_ones(1, 0), 2, 0);         // no elements share nothing
    w = tensor_requires_grad_(whole, 1);
    o = nn_sgd(.list = &w, .count = 1, .lr = 0.1);
    CHECK(nn_step(o) == 0);
    nn_optimizer_free(o);
    w = tensor_requires_grad_(tensor_expand(tensor_ones(1, 3), 2, 3), 1);
    CHECK(nn_sgd(.list = &w, .count = 1, .lr = 0.1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "sgd: parameter 0 [2,3] is expanded, several elements share one place");
}

static void has_line(int line) {
    char want[40];
    snprintf(want, sizeof want, " at refused.c:%d", line);
    CHECK_MSG(strstr(tensor_error_text(), want) != NULL, "no line %d: \"%s\"", line, tensor_error_text());
    tensor_clear_error();
}

// Functions whose result is no tensor say where they were called, too.
static void lines(void) {
    tensor_t *x = tensor_requires_grad_(ones2(4, 3), 1);
    nn_dataset_t d = nn_tensor_dataset(x, NULL);
    nn_module_t *net = nn_linear(2, 2);
    nn_optimizer_t *o = nn_sgd(net, .lr = 0.1);
    (void)nn_tensor_dataset(x, tensor_ones(2)); has_line(__LINE__);
    (void)nn_subset(d, x); has_line(__LINE__);
    (void)tensor_to_dlpack(x); has_line(__LINE__);
    (void)tensor_to_dlpack_unversioned(x); has_line(__LINE__);
    (void)nn_lr_multi_step(0, NULL, 2, 0.1, 0.1); has_line(__LINE__);
    (void)nn_get_group_lr(o, 7); has_line(__LINE__);
    (void)nn_optimizer_state(o, x, "exp_avg"); has_line(__LINE__);
    (void)nn_register_forward_pre_hook(net, NULL, NULL); has_line(__LINE__);
    (void)nn_register_full_backward_hook(net, NULL, NULL); has_line(__LINE__);
    for (int k = 0; k < 2; k++) {
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        if (k == 0) { tensor_manual_seed(1); has_line(__LINE__); }
        if (k == 1) { tensor_set_generator(tensor_get_generator()); has_line(__LINE__); }
        CHECK(tensor_capture_end() == NULL);
        tensor_clear_error();
    }
    nn_optimizer_free(o);
    nn_free(net);
}

// A limit of the program is named; memory that the system does not have is not blamed on it.
static void memory_limit(void) {
    tensor_memory_stats_t m = tensor_memory_stats();
    tensor_set_memory_limit((uint64_t)m.reserved_bytes + 100000);
    CHECK_POISON(tensor_ones(1000, 1000), TENSOR_ERR_OUT_OF_MEMORY,
                 "ones: out of memory for shape [1000,1000] f32: it would pass the limit of "
                 "tensor_set_memory_limit at refused.c:");
    CHECK(tensor_item(tensor_sum(tensor_ones(10))) == 10);
    CHECK(nn_linear(1000, 1000) == NULL);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "it would pass the limit of tensor_set_memory_limit");
    tensor_set_memory_limit(0);
    CHECK(tensor_is_poison(tensor_ones((int64_t)1 << 50)));
    CHECK_MSG(strstr(tensor_error_text(), "limit") == NULL, "\"%s\"", tensor_error_text());
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "out of memory for shape");
}

int main(void) {
    RUN(lines);
    RUN(memory_limit);
    RUN(missing);
    RUN(looked_at);
    RUN(attention);
    RUN(tables);
    RUN(linear);
    RUN(losses);
    RUN(modules);
    RUN(paddings);
    RUN(users_modules);
    RUN(data);
    RUN(optimizers);
    return test_report();
}

// compile_face.cpp - the C++ face: variadic templates, options, scope guard, tensor_ref and its operators.
// Prints "fine" when all of it works.
// Names that a program may have for itself.
static int begin = 1, end = 2;
#include "tensor_nn.h"

#include <cstdio>
#include <cstring>

static int use() {
    int bad = 0;
    tensor_ref kept;
    {
        tensor_scope_guard scope;
        tensor_t *a = tensor_full(2, 2, 3), *b = tensor_ones(3);
        {
            tensor_scope_guard amp(tensor_scope_begin_autocast(TENSOR_BF16));
            bad += tensor_dtype(tensor_mm(a, tensor_mT(a))) != TENSOR_BF16;
        }
        bad += tensor_autocast_dtype() != TENSOR_DTYPE_NONE;
        int64_t numbers = 0;
        nn_module_t *named = nn_linear(3, 2);
        for (const nn_named_t &p : nn_named_parameters(named)) { numbers += tensor_numel(p.tensor); }
        bad += numbers != 8 || nn_free(named) != 0;
        tensor_ref r = tensor_clone(a);
        kept = 2 * r * b + 1.0 - r;
        bad += tensor_item(tensor_sum(r / b)) != 12;
        bad += tensor_item(tensor_sum(b - r)) != -6;
        bad += tensor_item(tensor_sum(r / tensor_size(r, 0) * 2u - 1.5f)) != 3;
        bad += tensor_item(tensor_sum(6L / r + sizeof(char))) != 24;
        tensor_ref own = tensor_ones(2);
        own += own;
        own *= 3;
        bad += tensor_item(tensor_sum(own)) != 12;
        bad += tensor_size(tensor_cat(0, a, a), 0) != 4;
        bad += tensor_ndim(tensor_reshape(a, -1)) != 1;
        bad += tensor_dtype(tensor_zeros_of(TENSOR_I64, 2)) != TENSOR_I64;
        bad += tensor_item(tensor_einsum("ij,j->", a, b)) != 12;
        bad += tensor_size(tensor_linalg_multi_dot(a, tensor_mT(a), a), 1) != 3;
        bad += tensor_item(tensor_select(tensor_linalg_svd(tensor_eye(2, 2), 0).s, 0, 1)) != 1;
        int64_t rows = 0, cols = 3;
        tensor_rearrange_args_t sizes = tensor_rearrange_args_t();
        sizes.h = 1;
        bad += tensor_check(a, "rows cols", &rows, &cols) != 0 || rows != 2 || tensor_check(a, "2 _") != 0;
        bad += tensor_ndim(tensor_rearrange(a, "(h b) c -> h c b", sizes)) != 3;
        tensor_rearrange_args_t largest = tensor_rearrange_args_t();
        largest.reduce = "max";
        bad += tensor_ndim(tensor_rearrange(a, "b c -> c", largest)) != 1;
        bad += tensor_ndim(tensor_rearrange(a, "b c -> b c 1")) != 3;
        tensor_linalg_tolerance_args_t tolerance = tensor_linalg_tolerance_args_t();
        tolerance.atol = 2.5;
        tensor_linalg_tolerance_args_t half = tensor_linalg_tolerance_args_t(), least = half;
        half.rtol = 0.5;
        least.rtol = 1e-6;
        bad += tensor_item(tensor_sum(tensor_linalg_matrix_rank(tensor_eye(3, 3)))) != 3;
        bad += tensor_item(tensor_sum(tensor_linalg_matrix_rank(a, half))) != 1;
        bad += tensor_item(tensor_sum(tensor_linalg_matrix_rank(tensor_eye(3, 3), tolerance))) != 0;
        bad += tensor_size(tensor_linalg_pinv(a, least), 0) != 3;
        bad += tensor_size(tensor_linalg_pinv(a), 1) != 2;
        tensor_searchsorted_args_t order = tensor_searchsorted_args_t();
        order.sorter = tensor_arange(0, 3, 1, TENSOR_I64);
        order.right = 1;
        tensor_allclose_args_t closeness = tensor_allclose_args_t();
        closeness.equal_nan = 1;
        bad += !tensor_allclose(a, a, 1e-5, 1e-8) || !tensor_allclose(a, a, 0, 0, closeness);
        bad += tensor_item(tensor_sum(tensor_searchsorted(b, b))) != 0;
        bad += tensor_item(tensor_sum(tensor_searchsorted(b, b, order))) != 9;
        tensor_lu_factor_t lu = tensor_linalg_lu_factor(tensor_eye(3, 3));
        tensor_linalg_lu_solve_args_t side = tensor_linalg_lu_solve_args_t();
        side.right = 1;
        bad += tensor_size(tensor_linalg_lu_solve(lu.lu, lu.pivots, a, side), 0) != 2;
        bad += tensor_size(tensor_normal_size(2, 0.5, 3, 4), 1) != 4;
        bad += tensor_size(tensor_index(a, nullptr, tensor_arange(0, 2, 1, TENSOR_I64)), 1) != 2;
        bad += tensor_size(tensor_hstack(a, a), 1) != 6 || tensor_ndim(tensor_unflatten(a, 1, 3, 1)) != 3;
        bad += tensor_size(tensor_flip(tensor_tile(a, 2), 0, 1), 1) != 6;
        bad += tensor_item(tensor_sum(tensor_sum_to_size(a, 1, 3))) != 12;
        bad += tensor_dtype(tensor_rand_of(TENSOR_F64, 2, 3)) != TENSOR_F64;
        bad += tensor_size(tensor_randn_of(TENSOR_F16, 2, 3), 1) != 3;
        tensor_index_put_(a, tensor_zeros(1), 0, tensor_arange(0, 1, 1, TENSOR_I64));
        tensor_fill_(a, 2);
        tensor_ref moved = static_cast<tensor_ref &&>(r);
        bad += r.get() != nullptr || moved.get() == nullptr;
        tensor_conv_args_t conv;            // its members have initialisers
        conv.padding = 1;
        tensor_t *image = tensor_ones(1, 2, 4, 5), *y = tensor_conv2d(image, tensor_ones(3, 2, 3, 3), conv);
        bad += tensor_size(y, 3) != 5 || tensor_size(tensor_pad(image, 1, 2), 3) != 8;
        bad += tensor_size(tensor_max_pool2d_with_indices(image, 2).indices, 2) != 2;
        bad += scope.reset() != 0;
    }
    bad += kept == nullptr || nullptr == kept || !(kept != nullptr) || !(nullptr != kept);
    bad += tensor_item(tensor_sum(kept)) != 18;
    // What name_defaults() gives is taken literally: no row of padding, no decay.
    nn_module_t *table = nn_embedding(3, 2, nn_embedding_defaults());
    bad += tensor_item(tensor_sum(tensor_abs(tensor_select(nn_get(table, "weight"), 0, 2)))) == 0;
    nn_adamw_args_t still = nn_adamw_defaults();
    still.lr = 0.5;
    still.weight_decay = 0;
    tensor_t *weight = nn_get(table, "weight"), *was = tensor_clone(tensor_detach(weight));
    tensor_set_grad(weight, tensor_zeros(3, 2));
    nn_optimizer_t *opt = nn_adamw(table, still);
    bad += nn_step(opt) != 0 || tensor_equal(weight, was) != 1;
    return bad;
}

// Two results of one meaning, element by element.
static bool same(tensor_t *a, tensor_t *b) { return tensor_ok() && tensor_equal(a, b) == 1; }
static bool same(nn_module_t *a, nn_module_t *b) {
    char s[256] = "", t[256] = "";
    return a != nullptr && b != nullptr && nn_to_string(a, s, sizeof s) == nn_to_string(b, t, sizeof t) &&
           std::strcmp(s, t) == 0 && nn_num_parameters(a) == nn_num_parameters(b);
}
static void wrong(const char *what, int &bad) {
    std::printf("%s: %s\n", what, tensor_ok() ? "not what the options say" : tensor_error_text());
    tensor_clear_error();
    bad++;
}
// A call with all its positions against the same function with the members of T set one by one.
#define SAME(call, T, behind, set)                                                                           \
    do {                                                                                                     \
        T a = T();                                                                                           \
        a.options_are_named_ = TENSOR__NO_SURPLUS;                                                           \
        set;                                                                                                 \
        if (!same(call, behind(a))) { wrong(#call, bad); }                                                   \
    } while (0)

// A call with its required positions and a filled struct, as C++11 has it.
#define GIVEN(call, T, behind, set, options)                                                                 \
    do {                                                                                                     \
        T a = T();                                                                                           \
        options;                                                                                             \
        T given = a;                                                                                         \
        a.options_are_named_ = TENSOR__NO_SURPLUS;                                                           \
        set;                                                                                                 \
        if (!same(call, behind(a))) { wrong(#call, bad); }                                                   \
    } while (0)

#define INDICES(d)                                                                                           \
    static tensor_t *indices_of_##d(tensor_max_pool_args_t a) {                                              \
        return tensor__max_pool##d##_with_indices(a).indices;                                                \
    }
INDICES(1d)
INDICES(2d)
INDICES(3d)

// Every function with options: its required positions, and a filled struct behind them.
static int positions() {
    int bad = 0;
    tensor_scope_guard scope;
    tensor_t *const none = nullptr;
    tensor_t *x = tensor_rand(2, 4, 5, 6), *flat = tensor_rand(2, 4, 8), *cube = tensor_rand(1, 4, 4, 4, 4);
    tensor_t *two = tensor_randint(0, 3, 2), *i = tensor_randint(0, 5, 3, 2);
    tensor_t *c4 = tensor_rand(4), *d4 = tensor_rand(4), *c6 = tensor_rand(6), *d6 = tensor_rand(6);
    tensor_t *zero = tensor_zeros(4), *one = tensor_ones(4), *rows = tensor_rand(5, 3);
    tensor_t *classes = tensor_to(two, TENSOR_I64), *index = tensor_to(i, TENSOR_I64);
    tensor_t *list = tensor_reshape(index, 6), *starts = tensor_arange(0, 6, 3, TENSOR_I64);
    SAME(tensor_embedding(index, rows), tensor_embedding_args_t, tensor_embedding_with,
         (a.index = index, a.weight = rows));
    GIVEN(tensor_embedding_bag(list, rows, given), tensor_embedding_bag_args_t, tensor_embedding_bag_with,
          (a.index = list, a.weight = rows), a.offsets = starts);
    GIVEN(tensor_layer_norm(x, given), tensor_layer_norm_args_t, tensor_layer_norm_with, a.x = x,
          (a.normalized_dims = 1, a.weight = c6, a.bias = d6));
    SAME(tensor_layer_norm(x), tensor_layer_norm_args_t, tensor_layer_norm_with, (a.x = x));
    GIVEN(tensor_batch_norm(x, given), tensor_batch_norm_args_t, tensor_batch_norm_with, a.x = x,
          (a.running_mean = zero, a.running_var = one, a.weight = c4, a.bias = d4));
    SAME(tensor_instance_norm(x), tensor_instance_norm_args_t, tensor_instance_norm_with, (a.x = x));
    GIVEN(tensor_group_norm(x, 2, given), tensor_group_norm_args_t, tensor_group_norm_with,
          (a.x = x, a.groups = 2), (a.weight = c4, a.bias = d4));
    GIVEN(tensor_rms_norm(x, given), tensor_rms_norm_args_t, tensor_rms_norm_with, a.x = x, a.weight = c6);
    SAME(tensor_local_response_norm(x, 3), tensor_local_response_norm_args_t, tensor_local_response_norm_with,
         (a.x = x, a.size = 3));
    tensor_t *cells[] = {tensor_rand(12, 8), tensor_rand(12, 3), tensor_rand(12), tensor_rand(12)};
    tensor_t *gates[] = {tensor_rand(9, 8), tensor_rand(9, 3), tensor_rand(9), tensor_rand(9)};
    tensor_t *plain[] = {tensor_rand(3, 8), tensor_rand(3, 3), tensor_rand(3), tensor_rand(3)};
#define RNN(op, w)                                                                                           \
    do {                                                                                                     \
        tensor_rnn_args_t a = tensor_rnn_args_t();                                                           \
        a.x = flat, a.weights = w, a.options_are_named_ = TENSOR__NO_SURPLUS;                                \
        if (!same(tensor_##op(flat, w).y, tensor_##op##_with(a).y)) { wrong(#op, bad); }                     \
    } while (0)
    RNN(lstm, cells);
    RNN(gru, gates);
    RNN(rnn, plain);
#define CONV(d, in, w, b)                                                                                    \
    GIVEN(tensor_conv##d(in, w, given), tensor_conv_args_t, tensor_conv##d##_with,                           \
          (a.x = in, a.weight = w),                                                                          \
          (a.bias = b, a.stride = 2, a.padding = 3, a.dilation = 2, a.groups = 2));                          \
    GIVEN(tensor_conv_transpose##d(in, w, given), tensor_conv_transpose_args_t,                              \
          tensor_conv_transpose##d##_with, (a.x = in, a.weight = w),                                         \
          (a.bias = b, a.stride = 2, a.padding = 1, a.output_padding = 1, a.groups = 2, a.dilation = 3))
    tensor_t *w1 = tensor_rand(4, 2, 2), *w2 = tensor_rand(4, 2, 2, 2), *w3 = tensor_rand(4, 2, 2, 2, 2);
    CONV(1d, flat, w1, c4);
    CONV(2d, x, w2, c4);
    CONV(3d, cube, w3, c4);
#define POOL(d, in)                                                                                          \
    GIVEN(tensor_max_pool##d(in, 2, given), tensor_max_pool_args_t, tensor_max_pool##d##_with,               \
          (a.x = in, a.kernel = 2), (a.stride = 1, a.padding = 1, a.dilation = 2));                          \
    GIVEN(tensor_max_pool##d##_with_indices(in, 2, given).indices, tensor_max_pool_args_t, indices_of_##d,   \
          (a.x = in, a.kernel = 2), (a.stride = 1, a.padding = 1, a.dilation = 2));                          \
    GIVEN(tensor_avg_pool##d(in, 3, given), tensor_avg_pool_args_t, tensor_avg_pool##d##_with,               \
          (a.x = in, a.kernel = 3), (a.stride = 1, a.padding = 1));                                          \
    do {                                                                                                     \
        tensor_max_pool_args_t halved = tensor_max_pool_args_t();                                            \
        halved.stride = 2, halved.padding = 1;                                                               \
        tensor_pair_t got = tensor_max_pool##d##_with_indices(in, 4, halved);                                \
        GIVEN(tensor_max_unpool##d(got.values, got.indices, 4, given), tensor_max_unpool_args_t,             \
              tensor_max_unpool##d##_with, (a.x = got.values, a.indices = got.indices, a.kernel = 4),        \
              (a.stride = 2, a.padding = 1));                                                                \
    } while (0)
    POOL(1d, flat);
    tensor_t *even = tensor_narrow(x, 2, 0, 4);
    POOL(2d, even);
    POOL(3d, cube);
    tensor_t *columns = tensor_rand(8, 9), *grid = tensor_rand(2, 3, 3, 2);
    GIVEN(tensor_im2col(x, 2, given), tensor_columns_args_t, tensor_im2col_with, (a.x = x, a.kernel = 2),
          (a.dilation = 2, a.padding = 1, a.stride = 3));
    GIVEN(tensor_col2im(columns, 5, 2, given), tensor_columns_args_t, tensor_col2im_with,
          (a.x = columns, a.height = 5, a.kernel = 2), (a.dilation = 2, a.padding = 1, a.stride = 2));
    GIVEN(tensor_interpolate(x, given), tensor_interpolate_args_t, tensor_interpolate_with, a.x = x,
          a.size = 7);
    SAME(tensor_grid_sample(x, grid), tensor_grid_sample_args_t, tensor_grid_sample_with,
         (a.x = x, a.grid = grid));
    tensor_t *q = tensor_rand(2, 4, 3), *mask = tensor_rand(4, 4);
    GIVEN(tensor_scaled_dot_product_attention(q, q, q, given), tensor_scaled_dot_product_attention_args_t,
          tensor_scaled_dot_product_attention_with, a.query = a.key = a.value = q, a.attn_mask = mask);

    tensor_t *p = tensor_rand(2, 4), *t = tensor_rand(2, 4), *sign = tensor_sub_scalar(tensor_round(p), 0.5);
    tensor_t *pairs = tensor_rand(2), *labels = tensor_clone(classes);
#define LOSS3(op, T, target_)                                                                                \
    GIVEN(tensor_##op(p, target_, given), T, tensor_##op##_with, (a.input = p, a.target = target_),          \
          a.weight = c4)
#define LOSS2(op)                                                                                            \
    SAME(tensor_##op(p, t), tensor_##op##_args_t, tensor_##op##_with, (a.input = p, a.target = t))
#define RANK(op, target_)                                                                                    \
    SAME(tensor_##op(p, t, target_), tensor_ranking_loss_args_t, tensor_##op##_with,                         \
         (a.input1 = p, a.input2 = t, a.target = target_))
    LOSS3(cross_entropy, tensor_cross_entropy_args_t, labels);
    LOSS3(nll_loss, tensor_nll_loss_args_t, labels);
    LOSS3(binary_cross_entropy, tensor_binary_cross_entropy_args_t, t);
    LOSS3(multi_margin_loss, tensor_margin_loss_args_t, labels);
    LOSS3(multilabel_soft_margin_loss, tensor_margin_loss_args_t, t);
    GIVEN(tensor_binary_cross_entropy_with_logits(p, t, given),
          tensor_binary_cross_entropy_with_logits_args_t, tensor_binary_cross_entropy_with_logits_with,
          (a.input = p, a.target = t), (a.weight = c4, a.pos_weight = d4));
    SAME(tensor_hinge_embedding_loss(p, sign), tensor_margin_loss_args_t,
         tensor_hinge_embedding_loss_with, (a.input = p, a.target = sign));
    SAME(tensor_soft_margin_loss(p, sign), tensor_margin_loss_args_t, tensor_soft_margin_loss_with,
         (a.input = p, a.target = sign));
    tensor_t *sets = tensor_to(tensor_zeros(2, 4), TENSOR_I64);
    SAME(tensor_multilabel_margin_loss(p, sets), tensor_margin_loss_args_t,
         tensor_multilabel_margin_loss_with, (a.input = p, a.target = sets));
    LOSS2(mse_loss);
    LOSS2(l1_loss);
    LOSS2(smooth_l1_loss);
    LOSS2(huber_loss);
    LOSS2(kl_div);
    LOSS2(poisson_nll_loss);
    RANK(margin_ranking_loss, sign);
    RANK(cosine_embedding_loss, pairs);
    SAME(tensor_triplet_margin_with_distance_loss(p, t, sign),
         tensor_triplet_margin_with_distance_loss_args_t,
         tensor_triplet_margin_with_distance_loss_with, (a.anchor = p, a.positive = t, a.negative = sign));
    SAME(tensor_triplet_margin_loss(p, t, sign), tensor_triplet_margin_loss_args_t,
         tensor_triplet_margin_loss_with, (a.anchor = p, a.positive = t, a.negative = sign));
    SAME(tensor_gaussian_nll_loss(p, t, t), tensor_gaussian_nll_loss_args_t, tensor_gaussian_nll_loss_with,
         (a.input = p, a.target = t, a.var = t));
    tensor_t *steps = tensor_log_softmax(tensor_rand(6, 2, 4), 2), *words = tensor_ones_of(TENSOR_I64, 2, 3);
    tensor_t *six = tensor_full_of(TENSOR_I64, 6, 2), *three = tensor_full_of(TENSOR_I64, 3, 2);
    SAME(tensor_ctc_loss(steps, words, six, three), tensor_ctc_loss_args_t, tensor_ctc_loss_with,
         (a.log_probs = steps, a.targets = words, a.input_lengths = six, a.target_lengths = three));
    bad += tensor_size(tensor_index(x, NULL, classes), 1) != 2;
    tensor_index_put_(x, tensor_zeros(1), 1, NULL, classes);

#define CONVS(d)                                                                                             \
    SAME(nn_conv##d(4, 8, 3), nn_conv_args_t, nn_conv##d##_with,                                             \
         (a.in_channels = 4, a.out_channels = 8, a.kernel = 3));                                             \
    SAME(nn_conv##d(4, 8, 3, strided), nn_conv_args_t, nn_conv##d##_with,                                    \
         (a = strided, a.in_channels = 4, a.out_channels = 8, a.kernel = 3));                                \
    SAME(nn_conv_transpose##d(4, 8, 3), nn_conv_transpose_args_t, nn_conv_transpose##d##_with,               \
         (a.in_channels = 4, a.out_channels = 8, a.kernel = 3));                                             \
    GIVEN(nn_max_pool##d(3, given), nn_pool_args_t, nn_max_pool##d##_with, a.kernel = 3,                     \
          (a.stride = 2, a.padding = 1));                                                                    \
    GIVEN(nn_avg_pool##d(3, given), nn_pool_args_t, nn_avg_pool##d##_with, a.kernel = 3,                     \
          (a.stride = 2, a.padding = 1));                                                                    \
    GIVEN(nn_max_unpool##d(3, given), nn_pool_args_t, nn_max_unpool##d##_with, a.kernel = 3,                 \
          (a.stride = 2, a.padding = 1));                                                                    \
    SAME(nn_batch_norm##d(4), nn_batch_norm_args_t, nn_batch_norm##d##_with, (a.channels = 4));              \
    SAME(nn_instance_norm##d(4), nn_instance_norm_args_t, nn_instance_norm##d##_with, (a.channels = 4))
#define TWO(op, T, one_, two_)                                                                               \
    SAME(nn_##op(6, 2), T, nn_##op##_with, (a.one_ = 6, a.two_ = 2))
    nn_conv_args_t strided = nn_conv_args_t();
    strided.options_are_named_ = TENSOR__NO_SURPLUS;
    strided.stride = 2, strided.padding = 1, strided.dilation = 3, strided.groups = 2;
    CONVS(1d);
    CONVS(2d);
    CONVS(3d);
    TWO(linear, nn_linear_args_t, in_features, out_features);
    TWO(embedding, nn_embedding_args_t, count, size);
    TWO(embedding_bag, nn_embedding_bag_args_t, count, size);
    TWO(lstm, nn_rnn_args_t, in_features, hidden);
    TWO(gru, nn_rnn_args_t, in_features, hidden);
    TWO(rnn, nn_rnn_args_t, in_features, hidden);
    TWO(lstm_cell, nn_rnn_args_t, in_features, hidden);
    TWO(gru_cell, nn_rnn_args_t, in_features, hidden);
    TWO(rnn_cell, nn_rnn_args_t, in_features, hidden);
    TWO(multihead_attention, nn_multihead_attention_args_t, embed, heads);
    TWO(transformer_encoder_layer, nn_transformer_layer_args_t, embed, heads);
    TWO(transformer_decoder_layer, nn_transformer_layer_args_t, embed, heads);
    SAME(nn_group_norm(2, 6), nn_group_norm_args_t, nn_group_norm_with, (a.groups = 2, a.channels = 6));
    SAME(nn_layer_norm(6), nn_layer_norm_args_t, nn_layer_norm_with, (a.size = 6));
    SAME(nn_rms_norm(6), nn_rms_norm_args_t, nn_rms_norm_with, (a.size = 6));
    SAME(nn_local_response_norm(6), nn_local_response_norm_args_t, nn_local_response_norm_with, (a.size = 6));
    GIVEN(nn_upsample(given), nn_upsample_args_t, nn_upsample_with, (void)0, a.size = 3);
    GIVEN(nn_upsampling_nearest2d(given), nn_upsample_args_t, nn_upsampling_nearest2d_with, (void)0,
          a.size = 5);
    GIVEN(nn_fractional_max_pool2d(2, given), nn_fractional_max_pool_args_t, nn_fractional_max_pool2d_with,
          a.kernel = 2, a.output_size = 3);
    GIVEN(nn_fractional_max_pool3d(2, given), nn_fractional_max_pool_args_t, nn_fractional_max_pool3d_with,
          a.kernel = 2, a.output_size = 3);
    GIVEN(nn_unfold(3, given), nn_columns_args_t, nn_unfold_with, a.kernel = 3,
          (a.dilation = 2, a.padding = 1, a.stride = 2));
    GIVEN(nn_fold(9, 3, given), nn_columns_args_t, nn_fold_with, (a.height = 9, a.kernel = 3),
          (a.dilation = 2, a.padding = 1, a.stride = 2));
    tensor_t *tokens = tensor_rand(3, 6);
    nn_module_t *heads = nn_eval(nn_multihead_attention(6, 2));
    nn_module_t *decoder = nn_eval(nn_transformer_decoder_layer(6, 2));
    SAME(nn_multihead_attention_forward(heads, tokens, tokens, tokens), nn_attention_args_t,
         nn_multihead_attention_forward_with, (a.module = heads, a.query = a.key = a.value = tokens));
    GIVEN(nn_transformer_forward(decoder, tokens, given), nn_transformer_args_t, nn_transformer_forward_with,
          (a.module = decoder, a.x = tokens), a.memory = tokens);
    bad += nn_init_kaiming_uniform_(rows) != rows || nn_init_kaiming_normal_(rows) != rows;
    nn_optimizer_t *cycled = nn_sgd(heads);
    bad += nn_set_one_cycle_lr(cycled, 0, 0.1, 10) != 0 || nn_set_cyclic_lr(cycled, 0, 0.1, 0.2) != 0 ||
           nn_clip_grad_norm(cycled, 1.0) == nullptr || nn_get_total_norm(nullptr, 0) == nullptr;
    bad += nn_sgd(heads) == nullptr || nn_adam(heads) == nullptr || nn_adamw(heads) == nullptr ||
           nn_sparse_adam(heads) == nullptr;
    bad += tensor_item(nn_call(nn_mse_loss(), rows, rows)) != 0 ||
           nn_call(nn_cosine_similarity(1, 1e-8), rows, rows) == nullptr;
    bad += nn_transformer(8, 2) == nullptr;
    const int64_t cutoffs[] = {2, 5};
    nn_adaptive_log_softmax_with_loss_args_t adaptive = nn_adaptive_log_softmax_with_loss_args_t();
    adaptive.cutoffs = cutoffs;
    adaptive.ncutoffs = 2;
    bad += nn_sync_batch_norm(4) == nullptr ||
           nn_adaptive_log_softmax_with_loss(16, 9, adaptive) == nullptr;
    bad += nn_recurrent_forward(nn_lstm(6, 2), tokens).y == nullptr;
    bad += nn_weight_norm(nn_linear(3, 2)) == nullptr || nn_spectral_norm(nn_linear(3, 2)) == nullptr;
    bad += nn_unflatten(1, 2, 3) == nullptr;
    bad += nn_asgd(heads) == nullptr || nn_rprop(heads) == nullptr || nn_adafactor(heads) == nullptr;
    bad += nn_rmsprop(heads) == nullptr || nn_data_loader(nn_tensor_dataset(rows, none)) == nullptr;
    if (heads == nullptr) {
        bad += nn_load("", heads) + nn_load_tested("", heads) + nn_save_tested("", heads, 1e-5, rows) +
               nn_self_test(nullptr, heads);
    }
#if __cplusplus >= 202002L
    // Options in braces behind the required positions.
    bad += tensor_ndim(tensor_cross_entropy(p, labels, {.reduction = TENSOR_NONE})) != 1;
    bad += tensor_ndim(tensor_cross_entropy(p, labels, {.weight = c4, .reduction = TENSOR_NONE})) != 1;
    bad += tensor_size(tensor_conv2d(x, w2, {.bias = c4, .padding = 3, .groups = 2}), 3) != 11;
    bad += tensor_size(tensor_max_pool2d(x, 2, {.stride = 1}), 3) != 5;
    bad += nn_conv2d(4, 8, 3, {.stride = 2, .no_bias = 1}) == nullptr;
    bad += nn_upsample({.scale_factor = 2}) == nullptr;
    bad += nn_max_pool2d(3, {.stride = 2, .padding = 1}) == nullptr;
    bad += tensor_ndim(tensor_rearrange(x, "b c h w -> b c", {.reduce = "max"})) != 2;
    bad += tensor_ndim(tensor_rearrange(x, "b (h d) y x -> b h d y x", {.h = 2})) != 5;
    bad += tensor_ndim(tensor_batch_norm(x, {.training = 1})) != 4;
    tensor_t *leaves[] = {tensor_requires_grad_(tensor_ones(2), 1)};
    bad += tensor_ndim(nn_call(nn_mse_loss({.reduction = TENSOR_NONE}), rows, rows)) != tensor_ndim(rows);
    bad += nn_set_one_cycle_lr(cycled, 3, 0.1, 10, {.base_momentum = 0.5, .three_phase = 1}) != 0 ||
           nn_clip_grad_norm(cycled, 1.0, {.norm_type = 1, .error_if_nonfinite = 1}) == nullptr;
    bad += nn_sgd(heads, {.lr = 0.1}) == nullptr || nn_adam(nullptr, {.list = leaves, .count = 1}) == nullptr;
#endif
    if (!tensor_ok()) { wrong("positions", bad); }
    return bad;
}

int main() {
    int bad = use() + positions();
    bad += tensor_shutdown();
    if (bad) {
        std::printf("%d bad\n", bad);
    } else {
        std::printf("fine\n");
    }
    return bad != 0 || begin + end != 3;
}

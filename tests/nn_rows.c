// nn_rows.c - the gradients of every row of tensor_nn.h's op table: gradcheck and gradgradcheck in every
// layout
//
// Each row of NN_OPS needs its case here or this file does not compile: ROW with an expression of the public
// function and its inputs, or OF for a row that only gradients run, with the row whose cases run it. Which
// rows a case really ran is read from the graph of its result, and from the kernels a device of its own is
// asked for.
#define TENSOR_BACKEND
#include "mirror.h"

enum { LAYOUTS = 4, LEAST = 5, CASES = 11, INPUTS = 8, NODES = 20000 };

// ---- inputs: "2x3 c4 p3x1 l1,0" = f64 [2, 3] with a gradient, constant [4], [3, 1] within 0.1..0.9, i64 [2]

// Element k of input i, away from kinks and ties: those of one input are 0.019 and more apart (up to 101 of
// them), none is 0, and no difference of inputs 0 and 1 is within 1e-3 of a multiple of 0.25.
static double element(int64_t k, int i) {
    static const int64_t step[] = {37, 53, 71, 19, 29, 43, 61, 83};
    return -1 + ((double)((k * step[i] + 17 * i + 5) % 101) + 0.3 + 0.07 * i) / 50.5;
}
// Layouts: contiguous; dims in the other order; every second element; narrowed, with an offset.
static tensor_t *input(const char *word, int i, int layout) {
    int64_t dims[TENSOR_MAX_DIMS], turned[TENSOR_MAX_DIMS], perm[TENSOR_MAX_DIMS], k, n = 1;
    int nd = 0, d, constant = 0, positive = 0;
    double *data;
    tensor_t *x, *view;
    char *end;
    if (*word == 'l') {
        for (end = (char *)word; nd == 0 || *end == ','; nd++) { dims[nd] = strtoll(end + 1, &end, 10); }
        n = nd;
        return tensor_from_n(dims, TENSOR_I64, &n, 1);
    }
    for (; *word == 'c' || *word == 'p'; word++) { *word == 'c' ? (constant = 1) : (positive = 1); }
    for (; *word > ' '; word = *end == 'x' ? end + 1 : end) {
        dims[nd] = strtoll(word, &end, 10);
        n *= dims[nd++];
    }
    CHECK_MSG(n <= 101, "input %s is too large", word);
    data = (double *)malloc((size_t)n * sizeof *data);
    for (k = 0; k < n; k++) { data[k] = positive ? 0.5 + 0.4 * element(k, i) : element(k, i); }
    for (d = 0; d < nd; d++) { turned[nd - 1 - d] = dims[d], perm[d] = nd - 1 - d; }
    x = tensor_from_n(data, TENSOR_F64, dims, nd);
    free(data);
    switch (layout) {
    case 1: view = tensor_permute_n(tensor_zeros_n(turned, nd, TENSOR_F64), perm, nd); break;
    case 2:
        dims[nd - 1] = 2 * dims[nd - 1] + 1;
        view = tensor_slice(tensor_zeros_n(dims, nd, TENSOR_F64), -1, 1, dims[nd - 1], 2);
        break;
    case 3:
        dims[nd - 1] += 3;
        view = tensor_narrow(tensor_zeros_n(dims, nd, TENSOR_F64), -1, 2, dims[nd - 1] - 3);
        break;
    default: return constant ? x : tensor_requires_grad_(x, 1);
    }
    tensor_copy_(view, x);
    return constant ? view : tensor_requires_grad_(view, 1);
}

// ---- the cases

typedef struct case_t {
    tensor_fn_t fn;
    const char *inputs[CASES + 1];          // case v has layout v % 4
    int of;                                 // 0, or the row whose cases run this one
} case_t;
// P: the digit of case v. B: an input this case may lack.
static int digit(const char *digits, int v) {
    if (strlen(digits) > (size_t)v) { return digits[v] - '0'; }
    CHECK_MSG(0, "case %d has no digit in \"%s\"", v, digits);
    return 0;
}
#define P(digits) digit(digits, v)
#define B(k) (n > (k) ? in[k] : NULL)
#define ROW(ID, expression, ...)                                                                             \
    static tensor_t *run_##ID(tensor_t *const *in, int n, void *user) {                                      \
        const int v = *(const int *)user;                                                                    \
        (void)n, (void)v;                                                                                    \
        return expression;                                                                                   \
    }                                                                                                        \
    static const case_t case_##ID = {run_##ID, {__VA_ARGS__}, 0};
#define OF(ID, FORWARD) static const case_t case_##ID = {NULL, {NULL}, NN_OP_##FORWARD};

ROW(LINEAR, tensor_linear(in[0], in[1], B(2)), "3x4 2x4 2", "3x4 2x4 2", "2x3x2 3x2", "4 3x4 3", "1x1 1x1 1",
    "5x3 4x3")
ROW(LINEAR_GELU_TANH, tensor_linear_gelu_tanh(in[0], in[1], B(2)), "3x4 2x4 2", "3x4 2x4 2", "2x3x2 3x2",
    "4 3x4 3", "1x1 1x1 1", "5x3 4x3")
ROW(LINEAR_RELU, tensor_linear_relu(in[0], in[1], B(2)), "3x4 2x4 2", "3x4 2x4 2", "2x3x2 3x2", "4 3x4 3",
    "1x1 1x1 1", "5x3 4x3")

// x weight bias; the last one has no batch
ROW(CONV1D,
    tensor_conv1d(in[0], in[1], B(2), P("12131"), P("01201"), P("11211"), P("11212")),
    "2x2x6 3x2x3 3", "1x2x7 2x2x2 2", "2x4x5 2x2x3", "1x2x8 3x2x3 3", "2x5 4x1x1 4")
ROW(CONV2D,
    tensor_conv2d(in[0], in[1], B(2), P("121311"), P("010110"), P("112111"), P("121121"),
                  .stride_w = P("010200"), .padding_w = P("020000"), .dilation_w = P("020000"),
                  .same = P("000001")),
    "1x2x4x4 2x2x3x3 2", "1x2x4x5 4x1x2x2 4", "1x2x4x5 2x2x2x2", "1x1x5x4 2x1x3x3 2", "2x3x2 2x1x1x1 2",
    "1x2x3x4 2x2x2x3 2")
ROW(CONV3D,
    tensor_conv3d(in[0], in[1], B(2), P("12111"), P("01001"), P("11211"), P("12112"), .stride_h = P("00200"),
                  .padding_w = P("00100"), .dilation_w = P("00120")),
    "1x2x2x3x3 2x2x2x2x2 2", "1x2x3x2x3 2x1x2x2x2 2", "1x1x3x3x3 2x1x2x2x1", "1x2x2x2x4 2x2x1x2x2 2",
    "2x1x2x2 2x1x1x3x3 2")
ROW(CONV_TRANSPOSE1D,
    tensor_conv_transpose1d(in[0], in[1], B(2), P("12231"), P("01100"), P("01020"), P("12112"), P("11211")),
    "2x2x4 2x3x3 3", "1x2x5 2x2x2 4", "2x2x4 2x2x3", "1x3x3 3x2x2 2", "2x3 2x2x1 4")
ROW(CONV_TRANSPOSE2D,
    tensor_conv_transpose2d(in[0], in[1], B(2), P("121211"), P("010100"), P("010100"), P("121121"),
                            P("112111"), .stride_w = P("001300"), .padding_w = P("000200"),
                            .output_padding_w = P("000100")),
    "1x2x3x3 2x2x2x2 2", "1x2x2x3 2x2x2x2 4", "1x2x3x2 2x2x2x2", "1x1x3x3 1x2x3x3 2", "2x3x2 2x1x1x1 2",
    "2x1x1x4 1x3x2x1 3")
ROW(CONV_TRANSPOSE3D,
    tensor_conv_transpose3d(in[0], in[1], B(2), P("12111"), P("01000"), P("01000"), P("12111"), P("11211"),
                            .stride_h = P("00200"), .padding_w = P("00010"), .dilation_w = P("00020")),
    "1x2x2x2x2 2x2x2x2x2 2", "1x2x2x1x2 2x1x2x2x2 2", "1x1x2x2x2 1x2x2x2x1", "1x2x1x2x3 2x2x1x2x2 2",
    "1x2x2x2 1x2x3x1x3 2")
OF(CONV_WEIGHT, CONV2D)
ROW(IM2COL,
    tensor_im2col(in[0], 2, P("11211"), P("01000"), P("12112"), .kernel_w = P("00301"),
                  .stride_w = P("00010"), .padding_w = P("00100")),
    "1x2x3x4", "1x2x4x3", "2x1x4x4", "1x2x3x5", "3x2x1")
ROW(COL2IM,
    tensor_col2im(in[0], P("33542"), 2, P("11211"), P("01000"), P("11112"), .width = P("04021"),
                  .kernel_w = P("00101")),
    "1x8x4", "1x4x20", "2x2x15", "1x8x3", "6x1")

// windows
ROW(AVG_POOL1D,
    tensor_avg_pool1d(in[0], P("23231"), P("01203"), P("01100"), .ceil_mode = P("00010"),
                      .no_count_pad = P("01000"), .divisor_override = P("00300")),
    "2x2x6", "2x2x5", "1x3x6", "2x1x7", "3x4")
ROW(AVG_POOL2D,
    tensor_avg_pool2d(in[0], P("23221"), P("01203"), P("01100"), .kernel_w = P("02000"),
                      .stride_w = P("00100"), .ceil_mode = P("00010"), .no_count_pad = P("01000"),
                      .divisor_override = P("00300")),
    "1x2x4x4", "1x2x4x3", "2x1x4x4", "1x2x3x5", "2x1x4")
ROW(AVG_POOL3D,
    tensor_avg_pool3d(in[0], 2, P("01201"), P("01000"), .kernel_h = P("00100"), .kernel_w = P("00031"),
                      .ceil_mode = P("00010"), .no_count_pad = P("01000"),
                      .divisor_override = P("00500")),
    "1x1x2x4x4", "1x1x2x3x3", "2x1x2x2x3", "1x1x3x3x4", "1x2x2x1")
OF(AVG_POOL_BACKWARD, AVG_POOL2D)
ROW(MAX_POOL1D,
    tensor_max_pool1d(in[0], P("23231"), P("01203"), P("01100"), P("11221"), .ceil_mode = P("00010")),
    "2x2x6", "2x2x5", "1x3x6", "2x1x7", "3x4")
ROW(MAX_POOL2D,
    tensor_max_pool2d(in[0], P("23221"), P("01203"), P("01100"), P("11121"), .kernel_w = P("02000"),
                      .stride_w = P("00100"), .ceil_mode = P("00010")),
    "1x2x4x4", "1x2x4x3", "2x1x4x4", "1x2x4x5", "2x1x4")
ROW(MAX_POOL3D,
    tensor_max_pool3d(in[0], 2, P("01201"), P("01000"), P("11112"), .dilation_w = P("00021"),
                      .kernel_h = P("00101"), .ceil_mode = P("00010")),
    "1x1x2x4x4", "1x1x2x3x3", "2x1x2x2x3", "1x1x3x3x4", "1x3x2x2")
OF(MAX_POOL_BACKWARD, MAX_POOL2D)
ROW(MAX_UNPOOL1D,
    tensor_max_unpool1d(in[0],
                        tensor_max_pool1d_with_indices(in[1], 2, P("00300"), P("01001")).indices, 2,
                        P("00300"), P("01001"), .size = P("70070")),
    "2x2x3 c2x2x7", "1x2x4 c1x2x6", "2x1x3 c2x1x8", "2x2x3 c2x2x7", "3x2 c3x2")
ROW(MAX_UNPOOL2D,
    tensor_max_unpool2d(in[0],
                        tensor_max_pool2d_with_indices(in[1], 2, P("00300"), P("01000"),
                                                       .kernel_w = P("00001")).indices,
                        2, P("00300"), P("01000"), .kernel_w = P("00001"), .size = P("50000"),
                        .size_w = P("40000")),
    "1x2x2x2 c1x2x5x4", "1x1x3x3 c1x1x4x4", "1x2x2x2 c1x2x5x5", "2x1x2x2 c2x1x4x4", "2x1x3 c2x2x3")
ROW(MAX_UNPOOL3D,
    tensor_max_unpool3d(in[0],
                        tensor_max_pool3d_with_indices(in[1], 2, P("00300"), .kernel_w = P("01001")).indices,
                        2, P("00300"), .kernel_w = P("01001"), .size = P("00050"), .size_h = P("00040"),
                        .size_w = P("00040")),
    "1x2x1x2x2 c1x2x2x4x4", "1x1x1x2x4 c1x1x2x4x4", "1x1x2x2x1 c1x1x5x5x2", "1x1x2x2x2 c1x1x5x4x4",
    "2x1x1x3 c2x2x2x3")

// images
static tensor_t *padded(tensor_t *x, int v) {
    static const int64_t pads[][6] = {{1, 2, 0, 1}, {2, 1}, {1, 1, 2, 0}, {2, 1, 1, 2}, {-1, 0, 1, -1, 1, 0},
                                        {-1, 2, 1, 0}};
    static const int n[] = {4, 2, 4, 4, 6, 4};
    return tensor_pad_n(x, pads[v], n[v], (tensor_pad_t)P("012300"), 0.5);
}
ROW(PAD, padded(in[0], v), "2x3x2", "1x2x4", "1x2x3x3", "1x2x2x3", "2x3x3", "2x3x2")
ROW(PIXEL_SHUFFLE, tensor_pixel_shuffle(in[0], P("22213")), "1x4x2x3", "8x1x2", "2x4x1x2", "1x2x2x3", "9x1x1")
ROW(PIXEL_UNSHUFFLE, tensor_pixel_unshuffle(in[0], P("22213")), "1x2x4x2", "2x2x4", "2x1x2x4", "1x2x2x3",
    "1x3x6")
ROW(CHANNEL_SHUFFLE, tensor_channel_shuffle(in[0], P("23213")), "1x4x2x2", "1x6x3", "2x4x3", "1x3x1x4",
    "2x3x1")
ROW(INTERPOLATE,
    tensor_interpolate(in[0], P("05042304"), .size_w = P("00050000"),
                       .scale_factor = v == 0 ? 2 : v == 2 ? 1.4 : v == 6 ? 0.7 : 0,
                       .mode = (tensor_interpolation_t)P("14356725"), .align_corners = P("01000001"),
                       .recompute_scale_factor = P("00100000")),
    "1x2x2x3", "1x2x3x2", "2x2x5", "1x1x3x4", "1x1x3x2x2", "1x2x5x5", "1x2x6", "1x1x1x3")
ROW(GRID_SAMPLE,
    tensor_grid_sample(in[0], tensor_mul_scalar(in[1], v == 0 ? 1.3 : v == 1 ? 0.9 : v == 5 ? 2 : 1.7),
                       .mode = (tensor_interpolation_t)(v == 3 ? TENSOR_BICUBIC
                                                        : v == 5 ? TENSOR_NEAREST
                                                                 : TENSOR_BILINEAR),
                       .padding_mode = (tensor_pad_t)P("021000"), .align_corners = P("010100")),
    "1x2x3x3 1x2x3x2", "1x1x4x3 1x2x2x2", "2x1x3x3 2x1x3x2", "1x1x4x4 1x2x2x2", "1x1x2x3x2 1x1x2x2x3",
    "1x2x3x4 1x2x2x2")
static tensor_t *affine(tensor_t *theta, int v) {
    static const int64_t sizes[][5] = {{1, 2, 2, 3}, {2, 1, 3, 2}, {1, 1, 4, 1}, {1, 1, 2, 2, 3},
        {1, 3, 1, 1}};
    return tensor_affine_grid(theta, sizes[v], v == 3 ? 5 : 4, P("01010"));
}
ROW(AFFINE_GRID, affine(in[0], v), "1x2x3", "2x2x3", "1x2x3", "1x3x4", "1x2x3")

// norms
ROW(LAYER_NORM,
    v == 5   ? tensor_rms_norm(in[0], 1, B(1))
    : v == 6 ? tensor_rms_norm(in[0], 2, .eps = 0.1)
             : tensor_layer_norm(in[0], P("12111"), B(1), B(2), .eps = v == 3 ? 0.1 : 0),
    "3x5 5 5", "2x3x2 3x2 3x2", "4x3 3", "2x2x4", "3x1 1 1", "3x4 4", "2x3x2")
OF(LAYER_NORM_BACKWARD, LAYER_NORM)
// x running_mean running_var weight bias
ROW(BATCH_NORM,
    v == 2   ? tensor_batch_norm(in[0], .training = 1)
    : v == 6 ? tensor_instance_norm(in[0], .weight = in[1], .bias = in[2])
             : tensor_batch_norm(in[0], in[1], in[2], B(3), B(4), .training = P("11001001000"),
                                 .eps = v == 1 ? 0.1 : 0),
    "4x3 c3 cp3 3 3", "2x2x3 c2 cp2 2 2", "3x2x2x2", "2x3x2 c3 cp3 3 3", "5x1 c1 cp1 1", "3x2 c2 cp2",
    "2x2x4 2 2", "3x2x2 c2 cp2 2 2", "3x2 c2 cp2 2 2", "2x3x2 c3 cp3 3", "1x2x3x2 c2 cp2 2 2")
OF(BATCH_NORM_EVAL, BATCH_NORM)
ROW(GROUP_NORM, tensor_group_norm(in[0], P("21231"), B(1), B(2), .eps = v == 3 ? 0.1 : 0), "2x4x2 4 4",
    "2x3x2 3 3", "2x4x2x2 4", "2x3x3", "3x2 2 2")
OF(GROUP_NORM_BACKWARD, GROUP_NORM)

// What a layer of a transformer adds to its input is dropped out, and a norm follows the sum.
static tensor_t *decoder(tensor_t *x, tensor_t *memory, int v) {
    nn_module_t *m;
    tensor_t *y;
    tensor_manual_seed(7);
    m = nn_transformer_decoder_layer(8, 2, .feedforward = 4, .dropout = 0.3, .gelu = 1, .norm_first = v != 5,
                                     .no_bias = v == 6);
    if (tensor_dtype(x) != TENSOR_F32) { nn_to(m, tensor_dtype(x)); }
    if (tensor_device(x) != TENSOR_CPU) { nn_to(m, tensor_device(x)); }
    y = nn_transformer_forward(m, x, memory);
    nn_free(m);
    return y;
}
ROW(DROPOUT,
    v > 4 ? decoder(in[0], in[1], v)
          : (tensor_manual_seed(7), tensor_dropout(in[0], v == 3 ? 0.2 : 0.5, 1)),
    "3x4", "3x4", "2x3x2", "9", "1x1x7", "2x1x8 c2x1x8", "2x1x8 c2x1x8", "1x2x8 c1x2x8", "3x1x8 c2x1x8",
    "2x1x8 c3x1x8", "1x1x8 c2x1x8")
OF(DROPOUT_ADD, DROPOUT)
OF(ADD_LAYER_NORM, DROPOUT)
// index weight; not the options that scale gradients, a padding row is never named
ROW(EMBEDDING,
    tensor_embedding(v == 1 ? tensor_reshape(in[0], 2, 3) : v == 2 ? tensor_squeeze(in[0], 0) : in[0], in[1],
                     .padding_idx = P("02003")),
    "l0,2,2,1 3x4", "l0,1,3,3,0,1 4x2", "l1 2x3", "l4,4,4 5x2", "l2,0 4x1")
OF(EMBEDDING_BACKWARD, EMBEDDING)

// query key value, mask
ROW(ATTENTION,
    (tensor_manual_seed(7),
     tensor_scaled_dot_product_attention(in[0], in[1], in[2],
                                         v == 5 ? tensor_gt_scalar(in[3], -0.5) : B(3),
                                         .is_causal = P("010100001"), .enable_gqa = P("000000001"),
                                         .dropout_p = v == 7 ? 0.4 : 0, .scale = v == 2 ? 0.7 : 0)),
    "2x3x4 2x4x4 2x4x2", "1x4x3 1x4x3 1x4x3", "1x2x2x3 1x2x3x3 1x2x3x2", "3x2 4x2 4x3", "2x1x1 2x1x1 2x1x1",
    "2x2x3 2x3x3 2x3x2 c2x3", "2x3x2 2x3x2 2x3x2 3x3", "2x3x2 2x3x2 2x3x2", "1x2x3x2 1x1x3x2 1x1x3x2")
OF(ATTENTION_BACKWARD, ATTENTION)

// x w_ih w_hh b_ih b_hh, more weights or states
static tensor_t *recurrent(tensor_t *const *in, int n, int v) {
    tensor_t *both[8], *list[2];
    tensor_state_t s;
    int k;
    switch (v) {
    case 0: s = tensor_lstm(in[0], in + 1, .h = in[5], .c = in[6]); break;
    case 1: s = tensor_gru(in[0], in + 1, .h = in[5]); break;
    case 2: s = tensor_rnn(in[0], in + 1, .batch_first = 1); break;
    case 3: s = tensor_gru(in[0], in + 1, .no_bias = 1, .bidirectional = 1); break;
    case 4: s = tensor_rnn(in[0], in + 1, .relu = 1, .h = in[5]); break;
    case 5:
        for (k = 0; k < 8; k++) { both[k] = in[1 + k % 4]; }
        s = tensor_lstm(in[0], both, .layers = 2);
        break;
    default: s = tensor_lstm(in[0], in + 1, .no_bias = 1, .proj_size = 1); break;
    }
    (void)n;
    list[0] = tensor_reshape(s.y, -1);
    list[1] = tensor_reshape(s.c ? tensor_cat(0, tensor_reshape(s.h, -1), tensor_reshape(s.c, -1)) : s.h, -1);
    return tensor_cat_n(list, 2, 0);
}
ROW(RECURRENT, recurrent(in, n, v), "2x1x2 8x2 8x2 8 8 1x1x2 1x1x2", "2x2x1 6x1 6x2 6 6 1x2x2",
    "2x3x2 2x2 2x2 2 2", "3x1x2 3x2 3x1 3x2 3x1", "3x2 2x2 2x2 2 2 1x2", "2x1x1 4x1 4x1 4 4",
    "2x1x2 8x2 8x1 1x2")
OF(RECURRENT_BACKWARD, RECURRENT)

// losses
#define R ((tensor_reduction_t)P("0120210012"))
ROW(CROSS_ENTROPY,
    v == 5   ? tensor_nll_loss(tensor_log_softmax(in[0], 1), in[1], in[2])
    : v == 6 ? tensor_cross_entropy(in[0], in[1], .label_smoothing = 0.2)
             : tensor_cross_entropy(in[0], v == 2 ? tensor_reshape(in[1], 2, 2) : in[1], B(2),
                                    .label_smoothing = v == 1 || v == 3 ? 0.1 : 0,
                                    .ignore_index = v == 2 ? 1 : 0, .reduction = R),
    "4x3 l0,2,1,2", "3x4 l3,0,2 cp4", "2x3x2 l0,1,2,2", "3x3 l1,0,1 cp3", "1x2 l1", "3x3 l2,0,2 cp3",
    "3x4 p3x4")
OF(CROSS_ENTROPY_BACKWARD, CROSS_ENTROPY)
// logits targets input_lengths target_lengths; the gradient is that of log_probs from log_softmax
ROW(CTC_LOSS,
    tensor_ctc_loss(tensor_log_softmax(in[0], -1), v == 1 ? tensor_reshape(in[1], 2, 2) : in[1],
                    v == 3 ? tensor_squeeze(in[2], 0) : in[2], v == 3 ? tensor_squeeze(in[3], 0) : in[3],
                    .blank = P("00200"), .zero_infinity = P("01000"), .reduction = R),
    "4x2x3 l1,2,2 l4,3 l2,1", "4x2x3 l1,2,1,1 l4,2 l2,2", "4x1x3 l1,1 l4 l2", "3x3 l2,1 l3 l2",
    "1x2x2 l1,1 l1,1 l1,1")

// The pointwise losses: input, target, weights. Each has the five layouts and reductions; 0.4 or so is beta.
#define LOSS(ID, call, input)                                                                                \
    ROW(ID, call, input "3x4 " input "3x4", input "3x4 " input "3x4", input "2x2x3 " input "2x2x3",          \
        input "7 " input "7", input "1x1 " input "1x1")
LOSS(LOSS_MSE, tensor_mse_loss(in[0], in[1], .reduction = R), "")
LOSS(LOSS_L1,
     v == 3 ? tensor_smooth_l1_loss(in[0], in[1], .beta = TENSOR_ZERO)
            : tensor_l1_loss(in[0], in[1], .reduction = R), "")
LOSS(LOSS_SMOOTH_L1, tensor_smooth_l1_loss(in[0], in[1], .beta = v == 1 ? 0.4 : 0, .reduction = R), "")
LOSS(LOSS_HUBER, tensor_huber_loss(in[0], in[1], .delta = v == 1 ? 0.4 : 0, .reduction = R), "")
LOSS(LOSS_KL_DIV,
     tensor_kl_div(in[0], in[1], .reduction = v == 3 ? TENSOR_BATCHMEAN : R), "p")
LOSS(LOSS_KL_DIV_LOG,
     tensor_kl_div(in[0], in[1], .log_target = 1, .reduction = v == 3 ? TENSOR_BATCHMEAN : R), "")
ROW(LOSS_BCE, tensor_binary_cross_entropy(in[0], in[1], B(2), .reduction = R), "p3x4 p3x4", "p3x4 p3x4 cp4",
    "p2x2x3 p2x2x3", "p7 p7 cp7", "p1x1 p1x1", "p3x2 p3x2 p3x1")
ROW(LOSS_BCE_LOGITS,
    tensor_binary_cross_entropy_with_logits(in[0], in[1], B(2), B(3), .reduction = R), "3x4 p3x4",
    "3x4 p3x4 cp4", "2x2x3 p2x2x3 cp3 cp2x3", "7 p7 cp7", "1x1 p1x1", "3x2 p3x2 p3x1 p2")
OF(LOSS_BACKWARD, LOSS_MSE)

// ---- the rows

static const struct row_t {
    const char *name, *family, *grad;
    const case_t *one;
} rows[] = {
#define X(ID, name, family, inputs, nout, kernel, grad, ...) {#name, #family, #grad, &case_##ID},
    NN_OPS(X)
#undef X
};
typedef char every_row_has_its_case[sizeof rows / sizeof *rows == NN_OP_COUNT ? 1 : -1];

// -> how many
static int inputs(const case_t *one, int v, tensor_t **in) {
    const char *word;
    int n = 0;
    for (word = one->inputs[v]; word; word = strchr(word, ' ')) {
        word += *word == ' ';
        in[n] = input(word, n, v % LAYOUTS);
        n++;
    }
    return n;
}
#ifdef TEST_CUDA
// Results and gradients of a case on the device are the CPU's, in f64 and f32. In f16 and bf16 both are,
// within what these hold, those in f64 of the inputs rounded to them.
static void on_cuda(int r, int v, tensor_dtype_t dtype) {
    const case_t *one = rows[r].one;
    const char *named = tensor_dtype_name(dtype);
    tensor_t *given[INPUTS], *in[INPUTS], *wanted[INPUTS], *grads[3][INPUTS], *y[3], *g;
    tensor_scope_t s = tensor_scope_begin();
    int n = inputs(one, v, given), m = 0, half = dtype == TENSOR_F16 || dtype == TENSOR_BF16, k, d;
    double tol = dtype == TENSOR_F64 ? 1e-9 : dtype == TENSOR_F32 ? 2e-4 : dtype == TENSOR_F16 ? 4e-3 : 3e-2;
    for (d = 0; d < 2 + half; d++) {            // the CPU, the device, the CPU in f64
        for (k = m = 0; k < n; k++) {
            tensor_t *x = tensor_detach(given[k]);
            if (tensor_dtype(x) == TENSOR_F64) { x = tensor_to(x, dtype); }
            if (d == 2 && tensor_dtype(x) == dtype) { x = tensor_to(x, TENSOR_F64); }
            in[k] = d == 1 ? on(x) : x;
            if (tensor_requires_grad(given[k])) { wanted[m++] = tensor_requires_grad_(in[k], 1); }
        }
        tensor_manual_seed(5);
        y[d] = one->fn(in, n, &v);
        if (!tensor_requires_grad(y[d])) { m = 0; }
        g = tensor_to(tensor_sin(tensor_arange(1, (double)tensor_numel(y[d]) + 1, 1, TENSOR_F64)), dtype);
        g = tensor_to(tensor_reshape_n(g, y[d]->dims, y[d]->ndim), tensor_dtype(y[d]));
        if (d == 1) { g = on(g); }
        if (m) { tensor_autograd_grad(&y[d], 1, &g, wanted, m, grads[d], TENSOR_ALLOW_UNUSED); }
    }
    CHECK_MSG(tensor_ok(), "%s, %s, case %d: %s", rows[r].name, named, v, tensor_error_text());
    CHECK_MSG(tensor_device(y[1]) == TENSOR_CUDA && tensor_dtype(y[0]) == tensor_dtype(y[1]),
              "%s, case %d: the result is another's", rows[r].name, v);
    for (d = 0; d < 1 + half; d++) {            // the device and, in f16 and bf16, the CPU
        tensor_t *const *ours = grads[1 - d], *const *good = grads[2 * half];
        const char *where = d ? "CPU" : "device";
        CHECK_MSG(tensor_allclose(tensor_to(y[2 * half], tensor_dtype(y[0])), off(y[1 - d]), tol, tol),
                  "%s, %s, case %d: the %s has another result", rows[r].name, named, v, where);
        for (k = 0; k < m; k++) {
            CHECK_MSG(!good[k] == !ours[k] &&
                          (!good[k] || tensor_allclose(tensor_to(good[k], dtype), off(ours[k]), tol, tol)),
                      "%s, %s, case %d: the %s has another gradient %d", rows[r].name, named, v, where, k);
        }
    }
    device_note(dtype);
    tensor_clear_error();
    tensor_scope_end(s);
}
static void cuda(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F64, TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    int r, v, k;
    device_start();
    for (r = 0; r < NN_OP_COUNT; r++) {
        for (v = 0; rows[r].one->inputs[v]; v++) {
            for (k = 0; k < 4; k++) { on_cuda(r, v, dtypes[k]); }
        }
    }
}
int main(void) {
    RUN(cuda);
    device_print();
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    return test_report();
}
#else
// [r][k]: how many cases of row r ran row k in their gradcheck, in their gradgradcheck.
static int first_of[NN_OP_COUNT][NN_OP_COUNT], second_of[NN_OP_COUNT][NN_OP_COUNT];
static int n_first, n_second, launched[NN_OP_COUNT];
static tensor_backend_t counting;

static int count(tensor_call_t *c) {
    if (c->row->id >= TENSOR_OP_NN_FIRST && c->row->id < NN_OP_END) {
        launched[c->row->id - TENSOR_OP_NN_FIRST] = 1;
    }
    return mirror_run(c);
}
static void walk(tensor__node_t *node, int *seen, tensor__node_t **found, int *n) {
    int k;
    for (k = 0; k < *n; k++) {
        if (found[k] == node) { return; }
    }
    if (!node || *n == NODES) { return; }
    found[(*n)++] = node;
    if (!node->custom && node->row->id >= TENSOR_OP_NN_FIRST) {
        seen[node->row->id - TENSOR_OP_NN_FIRST] = 1;
    }
    for (k = 0; k < node->nin; k++) { walk(node->edge[k].node, seen, found, n); }
}
static void rows_in(tensor_t *y, int *seen) {
    static tensor__node_t *found[NODES];
    int n = 0;
    if (y && y->node) { walk(y->node, seen, found, &n); }
    CHECK(n < NODES);
}

// Kernels that run where nothing is recorded: they give y too.
static void without_graph(const case_t *one, int v, tensor_t **in, int n, tensor_t *y) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    tensor_t *other = tensor_to(one->fn(in, n, &v), TENSOR_CPU);
    CHECK_MSG(tensor_allclose(y, other, 1e-9, 1e-12), "case %d: without a graph the result is another", v);
    tensor_scope_end(s);
}

// The gradients of the sum of squares of the gradients.
static void again(tensor_t *const *grads, tensor_t *const *wanted, int m, tensor_t **to) {
    tensor_t *sum = tensor_scalar(0, TENSOR_F64);
    int k;
    for (k = 0; k < m; k++) {
        if (grads[k]) { sum = tensor_add(sum, tensor_sum(tensor_mul(grads[k], grads[k]))); }
    }
    tensor_autograd_grad(&sum, 1, NULL, wanted, m, to, TENSOR_ALLOW_UNUSED);
}

// Rows that a device records and the CPU does not: the second gradients are the CPU's too. -> noted in second
static void beyond(const case_t *one, int v, tensor_t **there, int n, tensor_t *g, tensor_t *const *grads,
                   tensor_t *const *wanted, int m, const int *seen, int *second) {
    int away[NN_OP_COUNT] = {0}, more = 0, k;
    tensor_t *y = one->fn(there, n, &v), *made[INPUTS], *good[INPUTS], *ours[INPUTS];
    g = on(g);
    rows_in(y, away);
    for (k = 0; k < NN_OP_COUNT; k++) {
        away[k] = away[k] && !seen[k];
        more += away[k];
        second[k] |= away[k];
    }
    if (!more) { return; }
    tensor_autograd_grad(&y, 1, &g, wanted, m, made, TENSOR_CREATE_GRAPH | TENSOR_ALLOW_UNUSED);
    again(made, wanted, m, ours);
    again(grads, wanted, m, good);
    for (k = 0; k < m; k++) {
        CHECK_MSG(!good[k] == !ours[k] && (!good[k] || tensor_allclose(good[k], ours[k], 1e-8, 1e-10)),
                  "case %d: the device's second gradient %d is another", v, k);
    }
}

// One case of row r: both checks, and which rows they run.
static void check(int r, int v) {
    const case_t *one = rows[r].one;
    tensor_t *in[INPUTS], *there[INPUTS], *wanted[INPUTS], *grads[INPUTS], *fused[INPUTS], *y, *g, *far;
    int seen[NN_OP_COUNT] = {0}, second[NN_OP_COUNT] = {0}, n, m = 0, k, composed;
    tensor_scope_t s = tensor_scope_begin();
    n = inputs(one, v, in);
    for (k = 0; k < n; k++) {
        if (tensor_requires_grad(in[k])) { wanted[m++] = in[k]; }
    }
    CHECK_MSG(!tensor_gradcheck(one->fn, &v, in, n, 1e-6, 1e-5, 1e-3), "%s, case %d: %s", rows[r].name, v,
              tensor_error_text());
    n_first++;
    tensor_clear_error();
    CHECK_MSG(!tensor_gradgradcheck(one->fn, &v, in, n, 1e-6, 1e-5, 1e-3), "%s, case %d, second: %s",
              rows[r].name, v, tensor_error_text());
    n_second++;
    tensor_clear_error();
    // The graphs of the result and of its gradient.
    y = one->fn(in, n, &v);
    rows_in(y, seen);
    g = tensor_sin(tensor_arange(1, (double)tensor_numel(y) + 1, 1, TENSOR_F64));
    g = tensor_requires_grad_(tensor_reshape_n(g, y->dims, y->ndim), 1);
    tensor_autograd_grad(&y, 1, &g, wanted, m, grads, TENSOR_CREATE_GRAPH | TENSOR_ALLOW_UNUSED);
    for (k = 0; k < m; k++) { rows_in(grads[k], second); }
    // The kernels of its gradient where no graph of it is wanted; both ways it is the same.
    for (k = 0; k < n; k++) { there[k] = on(in[k]); }
    beyond(one, v, there, n, g, grads, wanted, m, seen, second);
    memset(launched, 0, sizeof launched);
    without_graph(one, v, there, n, y);
    y = one->fn(there, n, &v);
    far = on(tensor_detach(g));
    tensor_autograd_grad(&y, 1, &far, wanted, m, fused, TENSOR_ALLOW_UNUSED);
    for (k = 0; k < m; k++) {
        CHECK_MSG(!grads[k] == !fused[k] && (!grads[k] || tensor_allclose(grads[k], fused[k], 1e-9, 1e-12)),
                  "%s, case %d: with a graph the gradient %d is another", rows[r].name, v, k);
    }
    CHECK_MSG(tensor_ok(), "%s, case %d, on a device: %s", rows[r].name, v, tensor_error_text());
    tensor_clear_error();
    // A composed row has neither node nor kernel; it is the first to see a poisoned input, and says so.
    composed = strcmp(rows[r].family, "COMPOSED") == 0;
    if (composed) {
        size_t length = strlen(rows[r].name);
        in[0] = tensor__internals(TENSOR__API_VERSION)->poison;
        one->fn(in, n, &v);
        seen[r] = strncmp(tensor_error_text(), rows[r].name, length) == 0 &&
            tensor_error_text()[length] == ':';
        tensor_clear_error();
    }
    for (k = 0; k < NN_OP_COUNT; k++) {
        int own = !rows[k].one->of;
        first_of[r][k] += own ? seen[k] : launched[k];
        second_of[r][k] += own ? seen[k] : second[k];
    }
    tensor_scope_end(s);
}

static void gradients(void) {
    int r, v;
    for (r = 0; r < NN_OP_COUNT; r++) {
        for (v = 0; rows[r].one->inputs[v]; v++) { check(r, v); }
    }
}
// Every row ran in at least five cases of its own, or of the row named; one without a gradient is not in the
// graph of a gradient, where the row named is composed.
static void complete(void) {
    int r;
    for (r = 0; r < NN_OP_COUNT; r++) {
        int of = rows[r].one->of ? rows[r].one->of - TENSOR_OP_NN_FIRST : r;
        int twice = of == r || strcmp(rows[r].grad, "NOGRAD") != 0;
        CHECK_MSG(first_of[of][r] >= LEAST, "%s: run by %d gradcheck cases of %s", rows[r].name,
                  first_of[of][r], rows[of].name);
        CHECK_MSG(second_of[of][twice ? r : of] >= LEAST, "%s: run by %d gradgradcheck cases of %s",
                  rows[r].name, second_of[of][twice ? r : of], rows[of].name);
        CHECK_MSG(twice || !second_of[of][r], "%s has no gradient, yet is in the graph of one", rows[r].name);
    }
}

int main(void) {
    int k;
    counting = mirror;
    counting.halves = 1;        // as of a GPU, which has a kernel for batch norm in evaluation
    for (k = 0; k < TENSOR_FAMILY_COUNT; k++) { counting.kernel[k] = count; }
    if (tensor__internals(TENSOR__API_VERSION)->set_backend(&counting)) { return 1; }
    RUN(gradients);
    RUN(complete);
    printf("%d rows of tensor_nn.h, %d gradcheck cases, %d gradgradcheck cases\n", (int)NN_OP_COUNT, n_first,
           n_second);
    return test_report();
}
#endif

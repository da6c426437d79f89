// gpu.h - the ops that `make gpu PART=ops` measures: each in our words and in PyTorch's, on the same operands.
//
// ROW(name, backward, operands, ours, PyTorch's)
//   backward   1 = measured once more with its gradient
//   operands   a text for each layout, NULL where there is none: contiguous (c), channels last (n), transposed (t),
//              broadcast (b). In a text, operands a b c d e by their dims; behind them n = channels last, t = the last
//              two dims transposed, iN = indices below N, m = a mask, f = f32 whatever the row's dtype, ! = no
//              gradient is wanted. Dims (and N) of 16 and more shrink in trials, to no less than 8.
// gpu.c compiles the fourth column, gpu.py reads this file for the fifth. f32 and bf16 alike, but for F32 and BF16 at
// the end of a name. Large operands have 2^24 elements: three sets of them are more than twice the L2 of an H200.
// clang-format off
#define ONE     "4096 4096", "32 128 64 64 n", "4096 4096 t", NULL
#define TWO     "4096 4096; 4096 4096", "32 128 64 64 n; 32 128 64 64 n", "4096 4096 t; 4096 4096", "32 128 64 64; 1 128 1 1"
#define MASKED  "4096 4096; 4096 4096; 4096 4096 m", "32 128 64 64 n; 32 128 64 64 n; 32 128 64 64 n m", NULL, "64 512 512; 64 512 512; 1 512 512 m"
#define FILLED  "4096 4096; 4096 4096 m", "32 128 64 64 n; 32 128 64 64 n m", NULL, "64 512 512; 1 512 512 m"
#define BESIDE  "4096 4096; 4096 4096", "32 128 64 64 n; 32 128 64 64 n", "4096 4096 t; 4096 4096", NULL
#define SEQUENCE "64 256 1024; 64 256 1024", NULL, NULL, "64 256 1024; 64 1 1024"
#define MATRIX  "4096 4096", NULL, NULL, NULL
#define TURNED  "4096 4096 t", NULL, NULL, NULL
#define WIDE    "256 65536", NULL, NULL, NULL
#define TALL    "65536 256", NULL, NULL, NULL
#define HIDDEN  "8192 768", NULL, NULL, NULL
#define IMAGE   "32 128 64 64", "32 128 64 64 n", NULL, NULL
#define STEM    "32 64 112 112", "32 64 112 112 n", NULL, NULL
#define NORMED  "32 128 64 64; 128 f !; 128 f !; 128 f; 128 f", "32 128 64 64 n; 128 f !; 128 f !; 128 f; 128 f", NULL, NULL
#define GROUPED "32 128 64 64; 128; 128", "32 128 64 64 n; 128; 128", NULL, NULL
#define ROWS    "16384 1024; 1024; 1024", NULL, NULL, NULL
#define CONV3   "32 128 64 64; 128 128 3 3", "32 128 64 64 n; 128 128 3 3 n", NULL, NULL
#define CONV1   "32 128 64 64; 512 128 1 1", "32 128 64 64 n; 512 128 1 1 n", NULL, NULL
#define DEPTH   "32 128 64 64; 128 1 3 3", "32 128 64 64 n; 128 1 3 3 n", NULL, NULL
#define SQUARE2 "2048 2048; 2048 2048", NULL, "2048 2048 t; 2048 2048", NULL
#define SQUARE4 "4096 4096; 4096 4096", NULL, NULL, NULL
#define LINEAR  "8192 768; 3072 768; 3072", NULL, NULL, NULL
#define BATCHED "96 512 64; 96 64 512", NULL, "96 64 512 t; 96 64 512", NULL
#define HEADS   "8 16 1024 64; 8 16 1024 64; 8 16 1024 64", NULL, NULL, NULL
#define TOKEN   "1 16 1 64; 1 16 1024 64; 1 16 1024 64", NULL, NULL, NULL
#define LABELS  "2048 8192; 2048 i8192", NULL, NULL, NULL
#define WORDS   "50257 768; 8192 i50257", NULL, NULL, NULL
#define FEW     "16 1024; 65536 i16", NULL, NULL, NULL
#define PLACES  "4096 4096; 4096 4096 i4096", NULL, NULL, NULL
#define ADDED   "4096 4096; 4096 4096 i4096; 4096 4096", NULL, NULL, NULL

#define GPU_ROWS                                                                                                              \
    ROW(clone, 0, ONE, tensor_clone(a), "a.clone()")                                                                          \
    ROW(add, 1, TWO, tensor_add(a, b), "a + b")                                                                               \
    ROW(mul, 1, TWO, tensor_mul(a, b), "a * b")                                                                               \
    ROW(div, 1, TWO, tensor_div(a, b), "a / b")                                                                               \
    ROW(maximum, 1, TWO, tensor_maximum(a, b), "torch.maximum(a, b)")                                                         \
    ROW(mul_sequence, 1, SEQUENCE, tensor_mul(a, b), "a * b")                                                                 \
    ROW(add_number, 1, ONE, tensor_add_scalar(a, 1), "a + 1")                                                                 \
    ROW(relu, 1, ONE, tensor_relu(a), "F.relu(a)")                                                                            \
    ROW(gelu, 1, ONE, tensor_gelu(a), "F.gelu(a)")                                                                            \
    ROW(silu, 1, ONE, tensor_silu(a), "F.silu(a)")                                                                            \
    ROW(tanh, 1, ONE, tensor_tanh(a), "torch.tanh(a)")                                                                        \
    ROW(sigmoid, 1, ONE, tensor_sigmoid(a), "torch.sigmoid(a)")                                                               \
    ROW(exp, 1, ONE, tensor_exp(a), "torch.exp(a)")                                                                           \
    ROW(square, 1, ONE, tensor_square(a), "torch.square(a)")                                                                  \
    ROW(clamp, 1, ONE, tensor_clamp(a, -0.5, 0.5), "torch.clamp(a, -0.5, 0.5)")                                               \
    ROW(less, 0, TWO, tensor_lt(a, b), "a < b")                                                                               \
    ROW(where, 1, MASKED, tensor_where(c, a, b), "torch.where(c, a, b)")                                                      \
    ROW(masked_fill, 1, FILLED, tensor_masked_fill(a, b, 0), "a.masked_fill(b, 0)")                                           \
    ROW(dropout, 1, ONE, tensor_dropout(a, 0.1, 1), "F.dropout(a, 0.1, True)")                                                \
    ROW(cast, 0, ONE, tensor_to(a, tensor_dtype(a) == TENSOR_F32 ? TENSOR_BF16 : TENSOR_F32),                                 \
        "a.to(torch.bfloat16 if a.dtype == torch.float32 else torch.float32)")                                                \
    ROW(transpose, 0, TURNED, tensor_contiguous(a), "a.contiguous()")                                                         \
    ROW(channels_last, 0, IMAGE, tensor_channels_last(a), "a.contiguous(memory_format=torch.channels_last)")                  \
    ROW(cat, 1, BESIDE, tensor_cat(1, a, b), "torch.cat((a, b), 1)")                                                          \
    ROW(sum, 1, ONE, tensor_sum(a), "a.sum()")                                                                                \
    ROW(mean, 1, ONE, tensor_mean(a), "a.mean()")                                                                             \
    ROW(norm, 0, MATRIX, tensor_norm(a), "torch.linalg.vector_norm(a)")                                                       \
    ROW(sum_rows, 1, ONE, tensor_sum_dim(a, -1, 0), "a.sum(-1)")                                                              \
    ROW(sum_wide, 0, WIDE, tensor_sum_dim(a, -1, 0), "a.sum(-1)")                                                             \
    ROW(sum_columns, 1, ONE, tensor_sum_dim(a, 0, 0), "a.sum(0)")                                                             \
    ROW(sum_tall, 0, TALL, tensor_sum_dim(a, 0, 0), "a.sum(0)")                                                               \
    ROW(sum_hidden, 0, HIDDEN, tensor_sum_dim(a, 0, 0), "a.sum(0)")                                                           \
    ROW(sum_channels, 0, IMAGE, tensor_sum_dims(a, ((const int64_t[]){0, 2, 3}), 3, 0), "a.sum((0, 2, 3))")                   \
    ROW(amax, 0, MATRIX, tensor_amax_dim(a, 1, 0), "a.amax(1)")                                                               \
    ROW(argmax, 0, MATRIX, tensor_argmax_dim(a, 1, 0), "a.argmax(1)")                                                         \
    ROW(cumsum, 0, MATRIX, tensor_cumsum(a, 1), "a.cumsum(1)")                                                                \
    ROW(softmax, 1, MATRIX, tensor_softmax(a, 1), "torch.softmax(a, 1)")                                                      \
    ROW(log_softmax, 1, MATRIX, tensor_log_softmax(a, 1), "torch.log_softmax(a, 1)")                                          \
    ROW(layer_norm, 1, ROWS, tensor_layer_norm(a, 1, b, c), "F.layer_norm(a, a.shape[-1:], b, c)")                            \
    ROW(cross_entropy, 1, LABELS, tensor_cross_entropy(a, b), "F.cross_entropy(a, b)")                                        \
    ROW(batch_norm, 1, NORMED, tensor_batch_norm(a, b, c, d, e, .training = 1), "F.batch_norm(a, b, c, d, e, True)")          \
    ROW(batch_norm_eval, 1, NORMED, tensor_batch_norm(a, b, c, d, e), "F.batch_norm(a, b, c, d, e)")                          \
    ROW(group_norm, 1, GROUPED, tensor_group_norm(a, 8, b, c), "F.group_norm(a, 8, b, c)")                                    \
    ROW(max_pool, 1, STEM, tensor_max_pool2d(a, 3, 2, 1), "F.max_pool2d(a, 3, 2, 1)")                                         \
    ROW(avg_pool, 1, STEM, tensor_avg_pool2d(a, 2), "F.avg_pool2d(a, 2)")                                                     \
    ROW(global_pool, 1, IMAGE, tensor_adaptive_avg_pool2d(a, 1, 1), "F.adaptive_avg_pool2d(a, 1)")                            \
    ROW(conv3x3, 1, CONV3, tensor_conv2d(a, b, .padding = 1), "F.conv2d(a, b, None, 1, 1)")                                   \
    ROW(conv1x1, 1, CONV1, tensor_conv2d(a, b), "F.conv2d(a, b)")                                                             \
    ROW(conv_depthwise, 1, DEPTH, tensor_conv2d(a, b, .padding = 1, .groups = tensor_size(a, 1)),                             \
        "F.conv2d(a, b, None, 1, 1, 1, a.shape[1])")                                                                          \
    ROW(matmul_2048, 1, SQUARE2, tensor_matmul(a, b), "a @ b")                                                                \
    ROW(matmul_4096, 0, SQUARE4, tensor_matmul(a, b), "a @ b")                                                                \
    ROW(linear, 1, LINEAR, tensor_linear(a, b, c), "F.linear(a, b, c)")                                                       \
    ROW(bmm, 1, BATCHED, tensor_matmul(a, b), "a @ b")                                                                        \
    ROW(attention, 1, HEADS, tensor_scaled_dot_product_attention(a, b, c),                                                    \
        "F.scaled_dot_product_attention(a, b, c)")                                                                            \
    ROW(attention_causal, 1, HEADS, tensor_scaled_dot_product_attention(a, b, c, .is_causal = 1),                             \
        "F.scaled_dot_product_attention(a, b, c, is_causal=True)")                                                            \
    ROW(attention_token, 0, TOKEN, tensor_scaled_dot_product_attention(a, b, c), "F.scaled_dot_product_attention(a, b, c)")   \
    ROW(embedding, 1, WORDS, tensor_embedding(b, a), "F.embedding(b, a)")                                                     \
    ROW(embedding_few, 1, FEW, tensor_embedding(b, a), "F.embedding(b, a)")                                                   \
    ROW(index_select, 1, WORDS, tensor_index_select(a, 0, b), "a.index_select(0, b)")                                         \
    ROW(gather, 1, PLACES, tensor_gather(a, 1, b), "a.gather(1, b)")                                                          \
    ROW(scatter_add, 0, ADDED, tensor_scatter_add(a, 1, b, c), "a.scatter_add(1, b, c)")                                      \
    ROW(sort, 0, MATRIX, tensor_sort(a, 1, 0).values, "a.sort(1)[0]")                                                              \
    ROW(topk, 0, MATRIX, tensor_topk(a, 8, 1, 1, 1).values, "a.topk(8, 1)[0]")                                                     \
    ROW(rand, 0, MATRIX, tensor_rand_like(a), "torch.rand_like(a)")                                                           \
    ROW(randn, 0, MATRIX, tensor_randn_like(a), "torch.randn_like(a)")
// clang-format on

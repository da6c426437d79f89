// tensor_nn.h - v0.1.0 - layers, losses, optimizers, data and files on tensor.h
// Licence: MIT-0 or public domain, at your choice; full text at the end of this file.
//
//   #define TENSOR_IMPLEMENTATION          in exactly ONE .c/.cpp file of the program (best: a file of its own)
//   #define TENSOR_NN_IMPLEMENTATION
//   #include "tensor_nn.h"
//
// CONTENTS (search for the tag)
//   >>nn-manual  >>functional  >>losses  >>modules  >>layers  >>init  >>optim  >>schedule  >>data  >>files
//   >>progress  >>nn-cpp
//   >>nn-shared  >>nn-ops
//   >>nn-kernels  >>nn-kernel-conv  >>nn-kernel-pool  >>nn-kernel-norm  >>nn-kernel-loss
//   >>nn-kernel-attention  >>nn-kernel-dropout  >>nn-kernel-optim  >>nn-kernel-table
//   >>nn-impl  >>impl-functional  >>impl-losses  >>impl-modules  >>impl-layers  >>impl-init  >>impl-optim
//   >>impl-schedule  >>impl-data  >>impl-files  >>impl-progress
//   >>nn-license

#ifndef TENSOR_NN__PASS

#ifndef TENSOR_NN_H_INCLUDED_7C1E
#define TENSOR_NN_H_INCLUDED_7C1E

#include "tensor.h"
#ifndef TENSOR_H_INCLUDED_7C1E
#error "tensor_nn.h: the tensor.h found before it on the include path is another library's"
#endif

// ------------------------------------------------------------------------------
// >>nn-manual                                      MARK: manual
// ------------------------------------------------------------------------------

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>functional                                     MARK: torch.nn.functional
//
// One args struct per function with options: tensor_conv2d(x, w, b, .stride = 2, .padding = 1). In such a call a member that
// is 0 has PyTorch's default and TENSOR_ZERO is a real zero; tensor_conv2d_with(a) takes the members literally, and
// tensor_conv2d_defaults() fills them. A negative stride_w, padding_w, dilation_w or kernel_w means "as the height's".
// f16 and bf16 are computed in f32. Rejected: long positional lists (PyTorch's own are called by keyword, too).
// All: -> new, contiguous, dtype of the input;  errors SHAPE, DTYPE, OUT_OF_MEMORY, each naming the argument
// ------------------------------------------------------------------------------

// Members with initialisers make the structs non-POD, which clang++ dislikes to see returned from C; their layout is C's.
#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif

// y = x wT + b over the last dim.
//   x       [..., in] f32/f64/f16/bf16
//   weight  [out, in], dtype of x
//   bias    [out], dtype of x; NULL = none
//   -> new [..., out];  grad dx = g w, dw = gT x, db = sum of g;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_linear(tensor_t *x, tensor_t *weight, tensor_t *bias);

typedef struct tensor_embedding_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *index TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    int64_t padding_idx TENSOR_INIT;        // row without gradient; 0 = none, TENSOR_ZERO = row 0, < 0 from the end
} tensor_embedding_args_t;
// Rows of weight named by index: tensor_embedding(index, weight, .padding_idx = TENSOR_ZERO).
//   index   any shape, i32/i64, values 0..rows-1
//   weight  [rows, width] f32/f64/f16/bf16
//   -> new [index's dims, width];  grad dweight = rows of g added in the order of index;  errors INDEX, SHAPE, DTYPE
TENSOR_API tensor_t *tensor_embedding_with(tensor_embedding_args_t a);
TENSOR_API tensor_embedding_args_t tensor_embedding_defaults(void);

typedef struct tensor_layer_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t normalized_dims TENSOR_INIT;    // how many trailing dims; default 1 (PyTorch repeats their sizes here)
    tensor_t *weight TENSOR_INIT;
    tensor_t *bias TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_layer_norm_args_t;
// (x - mean) / sqrt(var + eps) * weight + bias over the last normalized_dims dims: tensor_layer_norm(x, 1, w, b).
//   x             [..., D...] f32/f64/f16/bf16, D... the normalized dims
//   weight, bias  [D...], dtype of x; NULL = 1, 0
//   -> new, shape of x;  grad through mean and variance (two passes, saves mean and 1 / deviation);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_layer_norm_with(tensor_layer_norm_args_t a);
TENSOR_API tensor_layer_norm_args_t tensor_layer_norm_defaults(void);

typedef struct tensor_conv2d_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;
    tensor_t *bias TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default 1
    int64_t stride_w TENSOR_INIT;
    int64_t padding TENSOR_INIT;            // zeros on both sides, default 0
    int64_t padding_w TENSOR_INIT;
    int64_t dilation TENSOR_INIT;           // default 1
    int64_t dilation_w TENSOR_INIT;
    int64_t groups TENSOR_INIT;             // default 1
    int same TENSOR_INIT;                   // padding = 'same' (stride 1): output as large as the input
} tensor_conv2d_args_t;
// 2-d convolution (cross-correlation, as in PyTorch).
//   x       [N, C, H, W] or [C, H, W], f32/f64/f16/bf16
//   weight  [O, C / groups, KH, KW], dtype of x
//   bias    [O], dtype of x; NULL = none
//   -> new [N, O, (H + 2 padding - dilation (KH - 1) - 1) / stride + 1, ...];  grad differentiable itself
//   errors  SHAPE, DTYPE
TENSOR_API tensor_t *tensor_conv2d_with(tensor_conv2d_args_t a);
TENSOR_API tensor_conv2d_args_t tensor_conv2d_defaults(void);

typedef struct tensor_max_pool2d_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    int64_t kernel_w TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default (0) the kernel
    int64_t stride_w TENSOR_INIT;
    int64_t padding TENSOR_INIT;            // minus infinity on both sides, at most kernel / 2
    int64_t padding_w TENSOR_INIT;
    int64_t dilation TENSOR_INIT;           // default 1
    int64_t dilation_w TENSOR_INIT;
    int ceil_mode TENSOR_INIT;              // also windows that leave the input on the right
} tensor_max_pool2d_args_t;
// Largest element of each window; NaN wins. tensor_max_pool2d(x, 2) halves height and width.
//   x       [N, C, H, W] or [C, H, W], f32/f64/f16/bf16
//   -> new [N, C, OH, OW];  grad to the chosen element;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_max_pool2d_with(tensor_max_pool2d_args_t a);
TENSOR_API tensor_max_pool2d_args_t tensor_max_pool2d_defaults(void);

typedef struct tensor_avg_pool2d_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    int64_t kernel_w TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default (0) the kernel
    int64_t stride_w TENSOR_INIT;
    int64_t padding TENSOR_INIT;            // zeros on both sides, at most kernel / 2
    int64_t padding_w TENSOR_INIT;
    int ceil_mode TENSOR_INIT;
    int no_count_pad TENSOR_INIT;           // count_include_pad = False: divide by the elements inside the input
    int64_t divisor_override TENSOR_INIT;   // 0 = the window's size
} tensor_avg_pool2d_args_t;
// Mean of each window.
//   x       [N, C, H, W] or [C, H, W], f32/f64/f16/bf16
//   -> new [N, C, OH, OW];  grad spreads g over the window;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_avg_pool2d_with(tensor_avg_pool2d_args_t a);
TENSOR_API tensor_avg_pool2d_args_t tensor_avg_pool2d_defaults(void);

// Mean of h x w windows that cover the input evenly.
//   x       [N, C, H, W] or [C, H, W], f32/f64/f16/bf16
//   -> new [N, C, h, w];  grad spreads g over the window;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_adaptive_avg_pool2d(tensor_t *x, int64_t h, int64_t w);

// Zeroes elements with probability p and scales the others by 1 / (1 - p); x itself when not training.
//   x         f32/f64/f16/bf16
//   p         0..1 (PyTorch's default is 0.5)
//   training  0 or 1
//   -> new (x if not training);  grad g by the same mask, drawn again;  errors SHAPE if p is outside 0..1, DTYPE
TENSOR_API tensor_t *tensor_dropout(tensor_t *x, double p, int training);

typedef struct tensor_scaled_dot_product_attention_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *query TENSOR_INIT;
    tensor_t *key TENSOR_INIT;
    tensor_t *value TENSOR_INIT;
    tensor_t *attn_mask TENSOR_INIT;        // bool (true = look) or a float to add; broadcasts to [..., T, S]
    const void *surplus_ TENSOR_INIT;
    double dropout_p TENSOR_INIT;           // default 0
    int is_causal TENSOR_INIT;              // element t looks at s <= t; not together with attn_mask
    double scale TENSOR_INIT;               // 0 = 1 / sqrt(E)
} tensor_scaled_dot_product_attention_args_t;
// softmax(q kT scale + mask) v; a row that may look at nothing gives 0.
//   query, key, value   [..., T, E], [..., S, E], [..., S, V] f32/f64/f16/bf16
//   -> new [..., T, V];  grad to query, key, value (and a float mask)
//   errors  SHAPE, DTYPE
TENSOR_API tensor_t *tensor_scaled_dot_product_attention_with(tensor_scaled_dot_product_attention_args_t a);
TENSOR_API tensor_scaled_dot_product_attention_args_t tensor_scaled_dot_product_attention_defaults(void);

// Behind the macros: the same functions, 0 standing for the default.
TENSOR_API tensor_t *tensor__embedding(tensor_embedding_args_t a);
TENSOR_API tensor_t *tensor__layer_norm(tensor_layer_norm_args_t a);
TENSOR_API tensor_t *tensor__conv2d(tensor_conv2d_args_t a);
TENSOR_API tensor_t *tensor__max_pool2d(tensor_max_pool2d_args_t a);
TENSOR_API tensor_t *tensor__avg_pool2d(tensor_avg_pool2d_args_t a);
TENSOR_API tensor_t *tensor__scaled_dot_product_attention(tensor_scaled_dot_product_attention_args_t a);

#define tensor_linear(...) tensor__at(TENSOR_HERE, (tensor_linear)(__VA_ARGS__))
#define tensor_adaptive_avg_pool2d(...) tensor__at(TENSOR_HERE, (tensor_adaptive_avg_pool2d)(__VA_ARGS__))
#define tensor_dropout(...) tensor__at(TENSOR_HERE, (tensor_dropout)(__VA_ARGS__))
#ifndef __cplusplus
#define tensor_embedding(...) tensor__embedding(TENSOR_ARGS(tensor_embedding_args_t, __VA_ARGS__))
#define tensor_layer_norm(...) tensor__layer_norm(TENSOR_ARGS(tensor_layer_norm_args_t, __VA_ARGS__))
#define tensor_conv2d(...) tensor__conv2d(TENSOR_ARGS(tensor_conv2d_args_t, __VA_ARGS__))
#define tensor_max_pool2d(...) tensor__max_pool2d(TENSOR_ARGS(tensor_max_pool2d_args_t, __VA_ARGS__))
#define tensor_avg_pool2d(...) tensor__avg_pool2d(TENSOR_ARGS(tensor_avg_pool2d_args_t, __VA_ARGS__))
#define tensor_scaled_dot_product_attention(...)                                                             \
    tensor__scaled_dot_product_attention(TENSOR_ARGS(tensor_scaled_dot_product_attention_args_t, __VA_ARGS__))
#endif

// ------------------------------------------------------------------------------
// >>losses                                         MARK: losses
//
// Input and target must have one shape (class indices excepted): a silently broadcast loss trains the wrong thing. Options
// as in >>functional. .reduction: TENSOR_MEAN (default), TENSOR_SUM, TENSOR_NONE.
// All: -> new 0-d (TENSOR_NONE: the shape of the target);  grad fused, differentiable itself
//      errors SHAPE (shapes differ), DTYPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

typedef enum tensor_reduction_t {
    TENSOR_MEAN, TENSOR_SUM, TENSOR_NONE,
    TENSOR_BATCHMEAN                        // sum / size of dim 0, kl_div only
} tensor_reduction_t;

typedef struct tensor_cross_entropy_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // [C], NULL = 1
    const void *surplus_ TENSOR_INIT;
    int64_t ignore_index TENSOR_INIT;       // default -100
    double label_smoothing TENSOR_INIT;     // 0..1, default 0
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_cross_entropy_args_t;
// Cross entropy between softmax(input) and classes.
//   input   logits [N, C] or [N, C, d...] f32/f64/f16/bf16 ([C] without a batch)
//   target  [N] or [N, d...] i32/i64, values 0..C-1 or ignore_index; or probabilities, shape and dtype of input
//   -> new 0-d; the mean is weighted by the targets' weights;  grad (softmax - target) scaled
//   errors  INDEX (a target outside), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_cross_entropy_with(tensor_cross_entropy_args_t a);
TENSOR_API tensor_cross_entropy_args_t tensor_cross_entropy_defaults(void);

typedef struct tensor_nll_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // [C], NULL = 1
    const void *surplus_ TENSOR_INIT;
    int64_t ignore_index TENSOR_INIT;       // default -100
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_nll_loss_args_t;
// Minus the element of input that target names.
//   input   log-probabilities [N, C] or [N, C, d...] f32/f64/f16/bf16 ([C] without a batch)
//   target  [N] or [N, d...] i32/i64, values 0..C-1 or ignore_index
//   -> new 0-d, the mean weighted as in cross_entropy;  grad -weight at the targets;  errors INDEX, SHAPE, DTYPE
TENSOR_API tensor_t *tensor_nll_loss_with(tensor_nll_loss_args_t a);
TENSOR_API tensor_nll_loss_args_t tensor_nll_loss_defaults(void);

typedef struct tensor_mse_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_mse_loss_args_t;
// (input - target)^2.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad 2 (input - target);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_mse_loss_with(tensor_mse_loss_args_t a);
TENSOR_API tensor_mse_loss_args_t tensor_mse_loss_defaults(void);

typedef struct tensor_l1_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_l1_loss_args_t;
// |input - target|.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad sign(input - target);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_l1_loss_with(tensor_l1_loss_args_t a);
TENSOR_API tensor_l1_loss_args_t tensor_l1_loss_defaults(void);

typedef struct tensor_smooth_l1_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    double beta TENSOR_INIT;                // default 1
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_smooth_l1_loss_args_t;
// d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; d = input - target.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad d / beta, sign(d);  errors SHAPE (beta < 0), DTYPE
TENSOR_API tensor_t *tensor_smooth_l1_loss_with(tensor_smooth_l1_loss_args_t a);
TENSOR_API tensor_smooth_l1_loss_args_t tensor_smooth_l1_loss_defaults(void);

typedef struct tensor_huber_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    double delta TENSOR_INIT;               // default 1
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_huber_loss_args_t;
// d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); d = input - target.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad d clamped to +-delta;  errors SHAPE (delta <= 0), DTYPE
TENSOR_API tensor_t *tensor_huber_loss_with(tensor_huber_loss_args_t a);
TENSOR_API tensor_huber_loss_args_t tensor_huber_loss_defaults(void);

typedef struct tensor_binary_cross_entropy_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // broadcasts to input, NULL = 1
    const void *surplus_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_binary_cross_entropy_args_t;
// -(t log x + (1 - t) log(1 - x)), logs not below -100.
//   input   probabilities in 0..1, any shape, f32/f64/f16/bf16
//   target  shape and dtype of input
//   -> new;  grad (x - t) / (x (1 - x));  errors INDEX (input outside 0..1), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_binary_cross_entropy_with(tensor_binary_cross_entropy_args_t a);
TENSOR_API tensor_binary_cross_entropy_args_t tensor_binary_cross_entropy_defaults(void);

typedef struct tensor_binary_cross_entropy_with_logits_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // broadcasts to input, NULL = 1
    tensor_t *pos_weight TENSOR_INIT;       // the same, for the positive term
    const void *surplus_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_binary_cross_entropy_with_logits_args_t;
// Binary cross entropy of sigmoid(input), stable for every input.
//   input   logits, any shape, f32/f64/f16/bf16
//   target  shape and dtype of input
//   -> new;  grad sigmoid(x) - t;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_binary_cross_entropy_with_logits_with(tensor_binary_cross_entropy_with_logits_args_t a);
TENSOR_API tensor_binary_cross_entropy_with_logits_args_t tensor_binary_cross_entropy_with_logits_defaults(void);

typedef struct tensor_kl_div_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT;
    tensor_t *target TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    int log_target TENSOR_INIT;             // target is log-probabilities, too
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_kl_div_args_t;
// t (log t - input): Kullback-Leibler divergence, input being log-probabilities.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad -t;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_kl_div_with(tensor_kl_div_args_t a);
TENSOR_API tensor_kl_div_args_t tensor_kl_div_defaults(void);

// Behind the macros: the same functions, 0 standing for the default.
TENSOR_API tensor_t *tensor__cross_entropy(tensor_cross_entropy_args_t a);
TENSOR_API tensor_t *tensor__nll_loss(tensor_nll_loss_args_t a);
TENSOR_API tensor_t *tensor__mse_loss(tensor_mse_loss_args_t a);
TENSOR_API tensor_t *tensor__l1_loss(tensor_l1_loss_args_t a);
TENSOR_API tensor_t *tensor__smooth_l1_loss(tensor_smooth_l1_loss_args_t a);
TENSOR_API tensor_t *tensor__huber_loss(tensor_huber_loss_args_t a);
TENSOR_API tensor_t *tensor__binary_cross_entropy(tensor_binary_cross_entropy_args_t a);
TENSOR_API tensor_t *tensor__binary_cross_entropy_with_logits(tensor_binary_cross_entropy_with_logits_args_t a);
TENSOR_API tensor_t *tensor__kl_div(tensor_kl_div_args_t a);

#ifndef __cplusplus
#define tensor_cross_entropy(...) tensor__cross_entropy(TENSOR_ARGS(tensor_cross_entropy_args_t, __VA_ARGS__))
#define tensor_nll_loss(...) tensor__nll_loss(TENSOR_ARGS(tensor_nll_loss_args_t, __VA_ARGS__))
#define tensor_mse_loss(...) tensor__mse_loss(TENSOR_ARGS(tensor_mse_loss_args_t, __VA_ARGS__))
#define tensor_l1_loss(...) tensor__l1_loss(TENSOR_ARGS(tensor_l1_loss_args_t, __VA_ARGS__))
#define tensor_smooth_l1_loss(...)                                                                           \
    tensor__smooth_l1_loss(TENSOR_ARGS(tensor_smooth_l1_loss_args_t, __VA_ARGS__))
#define tensor_huber_loss(...) tensor__huber_loss(TENSOR_ARGS(tensor_huber_loss_args_t, __VA_ARGS__))
#define tensor_binary_cross_entropy(...)                                                                     \
    tensor__binary_cross_entropy(TENSOR_ARGS(tensor_binary_cross_entropy_args_t, __VA_ARGS__))
#define tensor_binary_cross_entropy_with_logits(...)                                                         \
    tensor__binary_cross_entropy_with_logits(TENSOR_ARGS(tensor_binary_cross_entropy_with_logits_args_t, __VA_ARGS__))
#define tensor_kl_div(...) tensor__kl_div(TENSOR_ARGS(tensor_kl_div_args_t, __VA_ARGS__))
#endif

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic pop
#endif

// ------------------------------------------------------------------------------
// >>modules                                        MARK: modules
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>layers                                         MARK: layers
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>init                                           MARK: initialisation
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>optim                                          MARK: optimizers
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>schedule                                       MARK: learning-rate schedules
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>data                                           MARK: datasets, loaders
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>files                                          MARK: safetensors
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>progress                                       MARK: progress bar
// ------------------------------------------------------------------------------

#ifdef __cplusplus
}
// ------------------------------------------------------------------------------
// >>nn-cpp                                         MARK: C++ face
//
// Options in C++: tensor_conv2d(x, w, {.bias = b, .stride = 2}) from C++20 on; before, a filled tensor_conv2d_args_t. The
// members are those of C, 0 = PyTorch's default.
// ------------------------------------------------------------------------------

inline tensor_t *tensor_embedding(tensor_t *index, tensor_t *weight,
        tensor_embedding_args_t a = tensor_embedding_args_t()) {
    a.index = index;
    a.weight = weight;
    return tensor__embedding(a);
}
inline tensor_t *tensor_layer_norm(tensor_t *x, int64_t normalized_dims,
        tensor_layer_norm_args_t a = tensor_layer_norm_args_t()) {
    a.x = x;
    a.normalized_dims = normalized_dims;
    return tensor__layer_norm(a);
}
inline tensor_t *tensor_conv2d(tensor_t *x, tensor_t *weight,
        tensor_conv2d_args_t a = tensor_conv2d_args_t()) {
    a.x = x;
    a.weight = weight;
    return tensor__conv2d(a);
}
inline tensor_t *tensor_max_pool2d(tensor_t *x, int64_t kernel,
        tensor_max_pool2d_args_t a = tensor_max_pool2d_args_t()) {
    a.x = x;
    a.kernel = kernel;
    return tensor__max_pool2d(a);
}
inline tensor_t *tensor_avg_pool2d(tensor_t *x, int64_t kernel,
        tensor_avg_pool2d_args_t a = tensor_avg_pool2d_args_t()) {
    a.x = x;
    a.kernel = kernel;
    return tensor__avg_pool2d(a);
}
inline tensor_t *tensor_scaled_dot_product_attention(tensor_t *query, tensor_t *key, tensor_t *value,
        tensor_scaled_dot_product_attention_args_t a = tensor_scaled_dot_product_attention_args_t()) {
    a.query = query;
    a.key = key;
    a.value = value;
    return tensor__scaled_dot_product_attention(a);
}
inline tensor_t *tensor_cross_entropy(tensor_t *input, tensor_t *target,
        tensor_cross_entropy_args_t a = tensor_cross_entropy_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__cross_entropy(a);
}
inline tensor_t *tensor_nll_loss(tensor_t *input, tensor_t *target,
        tensor_nll_loss_args_t a = tensor_nll_loss_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__nll_loss(a);
}
inline tensor_t *tensor_mse_loss(tensor_t *input, tensor_t *target,
        tensor_mse_loss_args_t a = tensor_mse_loss_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__mse_loss(a);
}
inline tensor_t *tensor_l1_loss(tensor_t *input, tensor_t *target,
        tensor_l1_loss_args_t a = tensor_l1_loss_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__l1_loss(a);
}
inline tensor_t *tensor_smooth_l1_loss(tensor_t *input, tensor_t *target,
        tensor_smooth_l1_loss_args_t a = tensor_smooth_l1_loss_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__smooth_l1_loss(a);
}
inline tensor_t *tensor_huber_loss(tensor_t *input, tensor_t *target,
        tensor_huber_loss_args_t a = tensor_huber_loss_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__huber_loss(a);
}
inline tensor_t *tensor_binary_cross_entropy(tensor_t *input, tensor_t *target,
        tensor_binary_cross_entropy_args_t a = tensor_binary_cross_entropy_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__binary_cross_entropy(a);
}
inline tensor_t *tensor_binary_cross_entropy_with_logits(tensor_t *input, tensor_t *target,
        tensor_binary_cross_entropy_with_logits_args_t a = tensor_binary_cross_entropy_with_logits_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__binary_cross_entropy_with_logits(a);
}
inline tensor_t *tensor_kl_div(tensor_t *input, tensor_t *target,
        tensor_kl_div_args_t a = tensor_kl_div_args_t()) {
    a.input = input;
    a.target = target;
    return tensor__kl_div(a);
}
#define tensor_embedding(...) tensor__at(TENSOR_HERE, (tensor_embedding)(__VA_ARGS__))
#define tensor_layer_norm(...) tensor__at(TENSOR_HERE, (tensor_layer_norm)(__VA_ARGS__))
#define tensor_conv2d(...) tensor__at(TENSOR_HERE, (tensor_conv2d)(__VA_ARGS__))
#define tensor_max_pool2d(...) tensor__at(TENSOR_HERE, (tensor_max_pool2d)(__VA_ARGS__))
#define tensor_avg_pool2d(...) tensor__at(TENSOR_HERE, (tensor_avg_pool2d)(__VA_ARGS__))
#define tensor_scaled_dot_product_attention(...)                                                             \
    tensor__at(TENSOR_HERE, (tensor_scaled_dot_product_attention)(__VA_ARGS__))
#define tensor_cross_entropy(...) tensor__at(TENSOR_HERE, (tensor_cross_entropy)(__VA_ARGS__))
#define tensor_nll_loss(...) tensor__at(TENSOR_HERE, (tensor_nll_loss)(__VA_ARGS__))
#define tensor_mse_loss(...) tensor__at(TENSOR_HERE, (tensor_mse_loss)(__VA_ARGS__))
#define tensor_l1_loss(...) tensor__at(TENSOR_HERE, (tensor_l1_loss)(__VA_ARGS__))
#define tensor_smooth_l1_loss(...) tensor__at(TENSOR_HERE, (tensor_smooth_l1_loss)(__VA_ARGS__))
#define tensor_huber_loss(...) tensor__at(TENSOR_HERE, (tensor_huber_loss)(__VA_ARGS__))
#define tensor_binary_cross_entropy(...) tensor__at(TENSOR_HERE, (tensor_binary_cross_entropy)(__VA_ARGS__))
#define tensor_binary_cross_entropy_with_logits(...)                                                         \
    tensor__at(TENSOR_HERE, (tensor_binary_cross_entropy_with_logits)(__VA_ARGS__))
#define tensor_kl_div(...) tensor__at(TENSOR_HERE, (tensor_kl_div)(__VA_ARGS__))
#endif

#endif   // TENSOR_NN_H_INCLUDED_7C1E

// ------------------------------------------------------------------------------
// >>nn-shared                                      MARK: layouts shared with backends
// ------------------------------------------------------------------------------

#if defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#ifndef TENSOR_NN_SHARED_7C1E
#define TENSOR_NN_SHARED_7C1E

// ------------------------------------------------------------------------------
// >>nn-ops                                         MARK: op table
// ------------------------------------------------------------------------------

#endif   // TENSOR_NN_SHARED_7C1E
#endif

#endif   // TENSOR_NN__PASS

// ------------------------------------------------------------------------------
// >>nn-kernels                                     MARK: CPU kernels, once per instruction set
// ------------------------------------------------------------------------------

#ifdef TENSOR_NN__PASS
#endif   // TENSOR_NN__PASS

// ------------------------------------------------------------------------------
// >>nn-impl                                        MARK: implementation
// ------------------------------------------------------------------------------

#if defined(TENSOR_NN_IMPLEMENTATION) && !defined(TENSOR_NN_IMPLEMENTATION_DONE) && !defined(TENSOR_NN__PASS)
#define TENSOR_NN_IMPLEMENTATION_DONE

// ------------------------------------------------------------------------------
// >>impl-functional                                MARK: functional fronts and gradients
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-losses                                    MARK: losses
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-modules                                   MARK: modules
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-layers                                    MARK: layers
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-init                                      MARK: initialisation
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-optim                                     MARK: optimizers
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-schedule                                  MARK: schedules
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-data                                      MARK: datasets, loaders
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-files                                     MARK: safetensors
// ------------------------------------------------------------------------------

// ------------------------------------------------------------------------------
// >>impl-progress                                  MARK: progress bar
// ------------------------------------------------------------------------------

#endif   // TENSOR_NN_IMPLEMENTATION

// ------------------------------------------------------------------------------
// >>nn-license                                     MARK: licence
// ------------------------------------------------------------------------------

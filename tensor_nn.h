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
// One args struct per function with options: tensor_conv2d(x, w, b, .stride = 2, .padding = 1). In such a
// call a member that is 0 has PyTorch's default and TENSOR_ZERO is a real zero; tensor_conv2d_with(a) takes
// the members literally, and tensor_conv2d_defaults() fills them. A negative stride_w, padding_w, dilation_w
// or kernel_w means "as the height's". f16 and bf16 are computed in f32. Rejected: long positional lists
// (nobody can read them).
// All: -> new, contiguous, dtype of the input;  errors SHAPE, DTYPE, OUT_OF_MEMORY, each naming the argument
// ------------------------------------------------------------------------------

// Members with initialisers make the structs non-POD, which clang++ dislikes to see returned from C; the
// layout stays C's.
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
    int64_t padding_idx TENSOR_INIT;        // row without gradient; 0 = none, TENSOR_ZERO = row 0
} tensor_embedding_args_t;
// Rows of weight named by index: tensor_embedding(index, weight, .padding_idx = TENSOR_ZERO).
//   index   any shape, i32/i64, values 0..rows-1
//   weight  [rows, width] f32/f64/f16/bf16
//   -> new [index's dims, width];  grad dweight = rows of g added in the order of index
//   errors  INDEX, SHAPE, DTYPE
TENSOR_API tensor_t *tensor_embedding_with(tensor_embedding_args_t a);
TENSOR_API tensor_embedding_args_t tensor_embedding_defaults(void);

typedef struct tensor_layer_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t normalized_dims TENSOR_INIT;    // how many trailing dims (PyTorch: their sizes); default 1
    tensor_t *weight TENSOR_INIT;
    tensor_t *bias TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_layer_norm_args_t;
// (x - mean) / sqrt(var + eps) * weight + bias over the last dims: tensor_layer_norm(x, 1, w, b).
//   x             [..., D...] f32/f64/f16/bf16, D... the normalized dims
//   weight, bias  [D...], dtype of x; NULL = 1, 0
//   -> new, shape of x;  grad through mean and variance (saves mean and 1 / deviation);  errors SHAPE, DTYPE
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
    int no_count_pad TENSOR_INIT;           // count_include_pad = False: divide by elements inside x
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
//   -> new (x if not training);  grad g by the same mask, drawn again;  errors SHAPE (p outside 0..1), DTYPE
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
// Input and target must have one shape (class indices excepted): a silently broadcast loss trains the wrong
// thing. Options as in >>functional. .reduction: TENSOR_MEAN (default), TENSOR_SUM, TENSOR_NONE.
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
//   target  [N] or [N, d...] i32/i64, values 0..C-1 or ignore_index; or probabilities as input
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
//   -> new 0-d, weighted as cross_entropy;  grad -weight at the targets;  errors INDEX, SHAPE, DTYPE
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
TENSOR_API tensor_t *
tensor_binary_cross_entropy_with_logits_with(tensor_binary_cross_entropy_with_logits_args_t a);
TENSOR_API tensor_binary_cross_entropy_with_logits_args_t
tensor_binary_cross_entropy_with_logits_defaults(void);

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
TENSOR_API tensor_t *
tensor__binary_cross_entropy_with_logits(tensor_binary_cross_entropy_with_logits_args_t a);
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
    tensor__binary_cross_entropy_with_logits(                                                                \
        TENSOR_ARGS(tensor_binary_cross_entropy_with_logits_args_t, __VA_ARGS__))
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
// Options in C++: tensor_conv2d(x, w, {.bias = b, .stride = 2}) from C++20 on; before, a filled
// tensor_conv2d_args_t. The members are those of C, 0 = PyTorch's default.
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
//
// What the parameters of a call mean, for whoever writes a kernel of these families.
// ------------------------------------------------------------------------------

#if defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#ifndef TENSOR_NN_SHARED_7C1E
#define TENSOR_NN_SHARED_7C1E

// params.i of CONV and POOL: kernel, stride, padding before, dilation (height, width), groups, size of the
// large image. AVG_POOL2D: i[NN__MODE] as below, i[NN__DIVISOR] 0 = the window's size.
enum { NN__KH, NN__KW, NN__SH, NN__SW, NN__PH, NN__PW, NN__DH, NN__DW,
       NN__GROUPS, NN__H, NN__W, NN__DIVISOR };
enum { NN__MODE = NN__GROUPS, NN__COUNT_PAD = 0, NN__NO_COUNT_PAD = 1, NN__ADAPTIVE = 2 };
// params.i of LOSS: which, reduction. f[0] is beta or delta. Order of NN_LOSSES. params.i of CROSS_ENTROPY:
// reduction, ignore_index, whether input is log-probabilities (nll). f[0] smoothing. EMBEDDING: i[0] row
// without gradient, -1 = none; i[1] zero it (the gradient of the gradient). LAYER_NORM: i[0] elements of a
// row, f[0] eps. ATTENTION: i[0] causal, f[0] scale. DROPOUT: f[0] p; word i & 3 of block i >> 2 of the
// call's stream decides over element i.

// Windows of a convolution or pool over planes [h, w], giving [oh, ow].
typedef struct nn__window_t {
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, mode, h, w, divisor, oh, ow;
} nn__window_t;

// The output columns lo..hi-1 whose input column (for kernel column kx) lies inside the image.
TENSOR__INLINE void nn__window_range(const nn__window_t *g, int64_t kx, int64_t *lo, int64_t *hi) {
    int64_t first = g->pw - kx * g->dw, end = g->w + first;
    *lo = first > 0 ? (first + g->sw - 1) / g->sw : 0;
    *hi = end > 0 ? (end + g->sw - 1) / g->sw : 0;
    if (*hi > g->ow) *hi = g->ow;
    if (*lo > *hi) *lo = *hi;
}

// Averaging window (oy, ox): r = {y0, y1, x0, x1} inside the image. -> what its sum is divided by
TENSOR__INLINE double nn__window_mean(const nn__window_t *g, int64_t oy, int64_t ox, int64_t *r) {
    int64_t all;
    if (g->mode == NN__ADAPTIVE) {
        r[0] = oy * g->h / g->oh;
        r[1] = ((oy + 1) * g->h + g->oh - 1) / g->oh;
        r[2] = ox * g->w / g->ow;
        r[3] = ((ox + 1) * g->w + g->ow - 1) / g->ow;
        return (double)((r[1] - r[0]) * (r[3] - r[2]));
    }
    r[0] = oy * g->sh - g->ph;
    r[1] = r[0] + g->kh < g->h + g->ph ? r[0] + g->kh : g->h + g->ph;
    r[2] = ox * g->sw - g->pw;
    r[3] = r[2] + g->kw < g->w + g->pw ? r[2] + g->kw : g->w + g->pw;
    all = (r[1] - r[0]) * (r[3] - r[2]);
    if (r[0] < 0) r[0] = 0;
    if (r[2] < 0) r[2] = 0;
    if (r[1] > g->h) r[1] = g->h;
    if (r[3] > g->w) r[3] = g->w;
    if (g->divisor) return (double)g->divisor;
    if (g->mode == NN__NO_COUNT_PAD) all = (r[1] - r[0]) * (r[3] - r[2]);
    return all > 0 ? (double)all : 1;
}

// Inner loops of one instruction set and element type; what each does stands at its text in >>nn-kernels.
typedef struct nn__cpu_t {
    void (*fill)(void *y, double a, int64_t n);
    void (*add)(void *y, const void *x, int64_t n);
    void (*scale)(void *y, double a, int64_t n);
    double (*dot)(const void *x, const void *y, int64_t n);
    double (*lse)(const void *x, int64_t n);
    void (*col2im)(const void *columns, void *image, const nn__window_t *g, int64_t channels, int64_t oy0,
                   int64_t oy1);
    void (*max_pool)(const void *x, void *y, int32_t *place, const nn__window_t *g);
    void (*max_unpool)(const void *grad, const int32_t *place, void *gx, int64_t n);
    void (*avg_pool)(void *x, void *y, const nn__window_t *g, int back);
    void (*layer_norm)(const void *x, const void *w, const void *b, void *y, void *mean, void *rstd,
                       int64_t rows, int64_t n, double eps);
    void (*layer_norm_back)(const void *grad, const void *x, const void *w, const void *mean,
                            const void *rstd, void *gx, void *gw, void *gb, int64_t rows, int64_t n);
    void (*softmax_minus)(const void *x, const void *w, void *gx, double lse, double a, double b, int64_t n);
    double (*loss)(int which, const void *x, const void *t, const void *w, const void *q, void *y, int64_t n,
                   double p);
    void (*loss_back)(int which, const void *g, int64_t step, double c, const void *x, const void *t,
                      const void *w, const void *q, void *gx, void *gt, int64_t n, double p);
    double (*attend)(void *s, int64_t valid, int64_t n, double scale, double *lse);
    void (*attend_back)(void *s, void *d, int64_t valid, int64_t n, double scale, double lse, double delta);
    void (*dropout)(const void *x, void *y, int64_t first, int64_t n, tensor_generator_t rng, uint32_t keep,
                    double scale);
} nn__cpu_t;

// ------------------------------------------------------------------------------
// >>nn-ops                                         MARK: op table
//
// As TENSOR_OPS_OTHER of tensor.h, with one more column: how many inputs are required (the others may be
// absent). Columns: ID, name, family, inputs, required, outputs, CPU kernel, scratch, gradient, saves, doc.
// Outputs from 1 on are kept for the gradient only. The three convolutions are bilinear, each the gradient of
// the others, so they need no rows for gradients of gradients; fused gradients (_BACKWARD) are used when no
// graph of the gradient is wanted, else the engine differentiates the op composed from smaller ones
// (nn__composed_*).
// ------------------------------------------------------------------------------

// clang-format off
#define NN_OPS(X) \
    X(ATTENTION, scaled_dot_product_attention, ATTENTION, 3, 3, 2, nn__cpu_attention, nn__scratch_attention, nn__grad_attention, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY | TENSOR__SY1, "softmax(q kT scale) v; logsumexp") \
    X(ATTENTION_BACKWARD, scaled_dot_product_attention_backward, ATTENTION, 6, 6, 3, nn__cpu_attention_back, nn__scratch_attention, NOGRAD, 0, "dq, dk, dv from g, q, k, v, y, logsumexp") \
    X(AVG_POOL2D, avg_pool2d, POOL, 1, 1, 1, nn__cpu_avg_pool, NULL, nn__grad_avg_pool, 0, "mean of windows") \
    X(AVG_POOL2D_BACKWARD, avg_pool2d_backward, POOL, 1, 1, 1, nn__cpu_avg_pool, NULL, nn__grad_avg_pool, 0, "g spread over windows") \
    X(CONV2D, conv2d, CONV, 3, 2, 1, nn__cpu_conv, nn__scratch_conv, nn__grad_conv, TENSOR__SA | TENSOR__SB, "convolution of x, w, bias") \
    X(CONV2D_INPUT, conv2d_input, CONV, 2, 2, 1, nn__cpu_conv_input, nn__scratch_conv, nn__grad_conv_input, TENSOR__SA | TENSOR__SB, "gradient of the input from g, w") \
    X(CONV2D_WEIGHT, conv2d_weight, CONV, 2, 2, 1, nn__cpu_conv_weight, nn__scratch_conv, nn__grad_conv_weight, TENSOR__SA | TENSOR__SB, "gradient of the weight from g, x") \
    X(CROSS_ENTROPY, cross_entropy, LOSS, 3, 2, 3, nn__cpu_cross_entropy, nn__scratch_cross_entropy, nn__grad_cross_entropy, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, "of logits [N, C], classes [N], weight [C]; logsumexp [N], divisor []") \
    X(CROSS_ENTROPY_BACKWARD, cross_entropy_backward, LOSS, 6, 5, 1, nn__cpu_cross_entropy_back, NULL, NOGRAD, 0, "from g, logits, classes, logsumexp, divisor, weight") \
    X(DROPOUT, dropout, DROPOUT, 1, 1, 1, nn__cpu_dropout, NULL, nn__grad_dropout, 0, "x or 0, scaled") \
    X(EMBEDDING, embedding, EMBEDDING, 2, 2, 1, nn__cpu_embedding, NULL, nn__grad_embedding, TENSOR__SA, "rows of weight named by index") \
    X(EMBEDDING_BACKWARD, embedding_backward, EMBEDDING, 2, 2, 1, nn__cpu_embedding_back, NULL, nn__grad_embedding_back, TENSOR__SA, "rows of g added at index; i[2] rows") \
    X(LAYER_NORM, layer_norm, NORM, 3, 1, 3, nn__cpu_layer_norm, NULL, nn__grad_layer_norm, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, "normalised rows, weight, bias; mean, 1 / deviation") \
    X(LAYER_NORM_BACKWARD, layer_norm_backward, NORM, 5, 4, 3, nn__cpu_layer_norm_back, nn__scratch_layer_norm_back, NOGRAD, 0, "dx, dweight, dbias from g, x, mean, 1 / deviation, weight") \
    X(LINEAR, linear, MATMUL, 3, 2, 1, nn__cpu_linear, nn__scratch_linear, nn__grad_linear, TENSOR__SA | TENSOR__SB, "x wT + bias") \
    X(LOSS_BACKWARD, loss_backward, LOSS, 5, 3, 2, nn__cpu_loss_back, NULL, NOGRAD, 0, "dinput, dtarget from g, input, target, weight, pos_weight") \
    X(MAX_POOL2D, max_pool2d, POOL, 1, 1, 2, nn__cpu_max_pool, NULL, nn__grad_max_pool, TENSOR__SY1, "largest of windows; its place in the plane, i32") \
    X(MAX_POOL2D_BACKWARD, max_pool2d_backward, POOL, 2, 2, 1, nn__cpu_max_unpool, NULL, nn__grad_max_unpool, TENSOR__SB, "g added at places") \
    X(LOSS_MSE, mse_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "(x - t)^2") \
    X(LOSS_L1, l1_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "|x - t|") \
    X(LOSS_SMOOTH_L1, smooth_l1_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "d^2 / 2p near 0, else |d| - p / 2") \
    X(LOSS_HUBER, huber_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "d^2 / 2 near 0, else p (|d| - p / 2)") \
    X(LOSS_BCE, binary_cross_entropy, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "-(t log x + (1 - t) log(1 - x))") \
    X(LOSS_BCE_LOGITS, binary_cross_entropy_with_logits, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "binary cross entropy of sigmoid(x)") \
    X(LOSS_KL_DIV, kl_div, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "t (log t - x)") \
    X(LOSS_KL_DIV_LOG, kl_div, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, "e^t (t - x)")

// Pointwise losses: ID, formula, derivatives by x and t; x input, t target, p = f[0], q pos_weight. W names
// the words: V_ (vectors of each instruction set, and doubles) or T_ (tensors, formulas only).
#define NN_LOSSES(X) \
    X(MSE, NN__MSE, NN__MSE_DX, NN__MSE_DT) \
    X(L1, NN__L1, NN__L1_DX, NN__L1_DT) \
    X(SMOOTH_L1, NN__SMOOTH, NN__SMOOTH_DX, NN__SMOOTH_DT) \
    X(HUBER, NN__HUBER, NN__HUBER_DX, NN__HUBER_DT) \
    X(BCE, NN__BCE, NN__BCE_DX, NN__BCE_DT) \
    X(BCE_LOGITS, NN__BCEL, NN__BCEL_DX, NN__BCEL_DT) \
    X(KL_DIV, NN__KL, NN__KL_DX, NN__KL_DT) \
    X(KL_DIV_LOG, NN__KLL, NN__KLL_DX, NN__KLL_DT)

#define NN__SQ(W, a) W##MUL(a, a)
#define NN__SIGN(W, a) W##SEL(W##LT(a, W##SET(0)), W##SET(-1), W##SEL(W##GT(a, W##SET(0)), W##SET(1), a))
#define NN__MSE(W, x, t, p, q) NN__SQ(W, W##SUB(x, t))
#define NN__MSE_DX(W, x, t, p, q) W##MUL(W##SET(2), W##SUB(x, t))
#define NN__MSE_DT(W, x, t, p, q) W##MUL(W##SET(2), W##SUB(t, x))
#define NN__L1(W, x, t, p, q) W##ABS(W##SUB(x, t))
#define NN__L1_DX(W, x, t, p, q) NN__SIGN(W, W##SUB(x, t))
#define NN__L1_DT(W, x, t, p, q) NN__SIGN(W, W##SUB(t, x))
#define NN__HALF(W, a) W##MUL(W##SET(0.5), a)
#define NN__SMOOTH(W, x, t, p, q)                                                                            \
    W##SEL(W##LT(W##ABS(W##SUB(x, t)), p), NN__HALF(W, W##DIV(NN__SQ(W, W##SUB(x, t)), p)),                  \
           W##SUB(W##ABS(W##SUB(x, t)), NN__HALF(W, p)))
#define NN__SMOOTH_D(W, d, p) W##SEL(W##LT(W##ABS(d), p), W##DIV(d, p), NN__SIGN(W, d))
#define NN__SMOOTH_DX(W, x, t, p, q) NN__SMOOTH_D(W, W##SUB(x, t), p)
#define NN__SMOOTH_DT(W, x, t, p, q) NN__SMOOTH_D(W, W##SUB(t, x), p)
#define NN__HUBER(W, x, t, p, q)                                                                             \
    W##SEL(W##LE(W##ABS(W##SUB(x, t)), p), NN__HALF(W, NN__SQ(W, W##SUB(x, t))),                             \
           W##MUL(p, W##SUB(W##ABS(W##SUB(x, t)), NN__HALF(W, p))))
#define NN__HUBER_D(W, d, p) W##SEL(W##LE(W##ABS(d), p), d, W##MUL(p, NN__SIGN(W, d)))
#define NN__HUBER_DX(W, x, t, p, q) NN__HUBER_D(W, W##SUB(x, t), p)
#define NN__HUBER_DT(W, x, t, p, q) NN__HUBER_D(W, W##SUB(t, x), p)
#define NN__LOG100(W, a) W##MAX(W##LOG(a), W##SET(-100))
#define NN__LOG1M100(W, a) W##MAX(W##LOG1P(W##NEG(a)), W##SET(-100))
#define NN__BCE(W, x, t, p, q)                                                                               \
    W##NEG(W##ADD(W##MUL(t, NN__LOG100(W, x)), W##MUL(W##SUB(W##SET(1), t), NN__LOG1M100(W, x))))
#define NN__BCE_DX(W, x, t, p, q)                                                                            \
    W##DIV(W##SUB(x, t), W##MAX(W##MUL(W##SUB(W##SET(1), x), x), W##SET(1e-12)))
#define NN__BCE_DT(W, x, t, p, q) W##SUB(NN__LOG1M100(W, x), NN__LOG100(W, x))
// NLS is -log(sigmoid(x)), stable.
#define NN__POS(W, t, q) W##ADD(W##SET(1), W##MUL(W##SUB(q, W##SET(1)), t))
#define NN__BCEL(W, x, t, p, q) W##ADD(W##MUL(W##SUB(W##SET(1), t), x), W##MUL(NN__POS(W, t, q), W##NLS(x)))
#define NN__BCEL_DX(W, x, t, p, q)                                                                           \
    W##SUB(W##SUB(W##SET(1), t), W##MUL(NN__POS(W, t, q), W##SIGMOID(W##NEG(x))))
#define NN__BCEL_DT(W, x, t, p, q) W##SUB(W##MUL(W##SUB(q, W##SET(1)), W##NLS(x)), x)
// t log t is 0 at 0; the inner SEL keeps the log finite there.
#define NN__KL(W, x, t, p, q)                                                                                \
    W##MUL(t, W##SUB(W##LOG(W##SEL(W##EQ(t, W##SET(0)), W##SET(1), t)), x))
#define NN__KL_DX(W, x, t, p, q) W##NEG(t)
#define NN__KL_DT(W, x, t, p, q)                                                                             \
    W##SEL(W##GT(t, W##SET(0)), W##ADD(W##SUB(W##LOG(t), x), W##SET(1)), W##SET(0))
#define NN__KLL(W, x, t, p, q) W##MUL(W##EXP(t), W##SUB(t, x))
#define NN__KLL_DX(W, x, t, p, q) W##NEG(W##EXP(t))
#define NN__KLL_DT(W, x, t, p, q) W##MUL(W##EXP(t), W##ADD(W##SUB(t, x), W##SET(1)))
// clang-format on

typedef enum nn_op_id_t {
    NN__OP_BEFORE_FIRST = TENSOR_OP_NN_FIRST - 1,
#define TENSOR__X(ID, ...) NN_OP_##ID,
    NN_OPS(TENSOR__X)
#undef TENSOR__X
    NN_OP_END
} nn_op_id_t;
enum { NN_OP_COUNT = (int)NN_OP_END - (int)TENSOR_OP_NN_FIRST };

typedef enum nn__loss_t {
#define TENSOR__X(ID, f, dx, dt) NN__LOSS_##ID,
    NN_LOSSES(TENSOR__X)
#undef TENSOR__X
    NN__LOSS_COUNT
} nn__loss_t;

#endif   // TENSOR_NN_SHARED_7C1E
#endif

#endif   // TENSOR_NN__PASS

// ------------------------------------------------------------------------------
// >>nn-kernels                                     MARK: CPU kernels, once per instruction set
//
// The file includes itself six times: passes 0..3 are tensor.h's (scalar, SSE2, AVX2, AVX-512, all f32), pass
// 4 is the same text in doubles on f64, pass 5 in doubles on f32 (TENSOR_REFERENCE). NN__R is the element
// type, NN__S the type of a sum. Only inner loops stand here; what cuts the work and calls them stands in
// >>impl-functional. Pointers are void so that one table serves both element types. Rejected: a second, plain
// text of every kernel for f64 and the reference.
// ------------------------------------------------------------------------------

#ifdef TENSOR_NN__PASS

#if TENSOR_NN__PASS == 0
#define NN__K(name) nn__##name##_scalar
#elif TENSOR_NN__PASS == 1
#define NN__K(name) nn__##name##_sse2
#elif TENSOR_NN__PASS == 2
#define NN__K(name) nn__##name##_avx2
#elif TENSOR_NN__PASS == 3
#define NN__K(name) nn__##name##_avx512
#elif TENSOR_NN__PASS == 4
#define NN__K(name) nn__##name##_f64
#else
#define NN__K(name) nn__##name##_reference
#endif

#if TENSOR_NN__PASS < 4
#define TENSOR__PASS TENSOR_NN__PASS
#define TENSOR__PASS_OPEN
#include "tensor.h"
#undef TENSOR__PASS_OPEN
#define NN__R float
#define NN__S float
#else
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#if TENSOR_NN__PASS == 4
#define NN__R double
#else
#define NN__R float
#endif
#define NN__S double
#define V_N 1
#define V_F double
#define V_LOAD(p) ((double)*(const NN__R *)(p))
#define V_STORE(p, v) ((void)(*(NN__R *)(p) = (NN__R)(v)))
#define V_SET(x) ((double)(x))
#define V_ZERO() 0.0
#define V_ADD(a, b) ((a) + (b))
#define V_SUB(a, b) ((a) - (b))
#define V_MUL(a, b) ((a) * (b))
#define V_DIV(a, b) ((a) / (b))
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_NEG(a) (-(a))
#define V_ABS(a) fabs(a)
#define V_SQRT(a) sqrt(a)
#define V_EXP(a) exp(a)
#define V_LOG(a) log(a)
#define V_LOG1P(a) log1p(a)
#define V_SIGMOID(a) (1 / (1 + exp(-(a))))
#define V_LT(a, b) ((a) < (b))
#define V_LE(a, b) ((a) <= (b))
#define V_GT(a, b) ((a) > (b))
#define V_EQ(a, b) ((a) == (b))
#define V_SEL(m, a, b) ((m) ? (a) : (b))
#define V_MAX(a, b) NN__K(larger)(a, b)
#define V_HSUM(a) (a)
#define V_HMAX(a) (a)
TENSOR__INLINE double NN__K(larger)(double a, double b) { return a > b || a != a ? a : b; }
#endif
// Lanes 0, 2, 4.. of two vectors.
#if TENSOR_NN__PASS == 1
#define NN__EVEN(a, b) _mm_shuffle_ps(a, b, 0x88)
#elif TENSOR_NN__PASS == 2
#define NN__EVEN(a, b)                                                                                       \
    _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xD8))
#elif TENSOR_NN__PASS == 3
#define NN__EVEN(a, b)                                                                                       \
    _mm512_castpd_ps(_mm512_permutexvar_pd(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0),                         \
                                           _mm512_castps_pd(_mm512_shuffle_ps(a, b, 0x88))))
#endif
#define V_NLS(a) V_ADD(V_LOG1P(V_EXP(V_NEG(V_ABS(a)))), V_MAX(V_NEG(a), V_ZERO()))

// Ends of rows, 0 < n < V_N: the first n elements at p with fill in the lanes beyond; the first n lanes stored;
// the lanes from n on made 0.
#if TENSOR_NN__PASS == 3
#define NN__MASK(n) ((__mmask16)((1u << (n)) - 1))
#define NN__PART(p, n, fill) _mm512_mask_loadu_ps(V_SET(fill), NN__MASK(n), p)
#define NN__PUT_PART(p, n, v) _mm512_mask_storeu_ps(p, NN__MASK(n), v)
#define NN__CUT_PART(v, n) _mm512_maskz_mov_ps(NN__MASK(n), v)
#else
TENSOR__INLINE V_F NN__K(part)(const NN__R *p, int64_t n, NN__R fill) {
    NN__R t[V_N];
    int64_t i;
    for (i = 0; i < V_N; i++) t[i] = i < n ? p[i] : fill;
    return V_LOAD(t);
}
TENSOR__INLINE void NN__K(put_part)(NN__R *p, int64_t n, V_F v) {
    NN__R t[V_N];
    int64_t i;
    V_STORE(t, v);
    for (i = 0; i < n; i++) p[i] = t[i];
}
TENSOR__INLINE V_F NN__K(cut_part)(V_F v, int64_t n) {
    NN__R t[V_N];
    V_STORE(t, v);
    return NN__K(part)(t, n, 0);
}
#define NN__PART(p, n, fill) NN__K(part)(p, n, fill)
#define NN__PUT_PART(p, n, v) NN__K(put_part)(p, n, v)
#define NN__CUT_PART(v, n) NN__K(cut_part)(v, n)
#endif
#define NN__LOAD(p, n, fill) (TENSOR__LIKELY((n) >= V_N) ? V_LOAD(p) : NN__PART(p, n, (NN__R)(fill)))
TENSOR__INLINE void NN__K(put)(NN__R *p, int64_t n, V_F v) {
    if (TENSOR__LIKELY(n >= V_N))
        V_STORE(p, v);
    else
        NN__PUT_PART(p, n, v);
}
TENSOR__INLINE V_F NN__K(cut)(V_F v, int64_t n) { return TENSOR__LIKELY(n >= V_N) ? v : NN__CUT_PART(v, n); }

// y[i] = a
TENSOR__FN void NN__K(fill)(void *y, double a, int64_t n) {
    NN__R *p = (NN__R *)y;
    int64_t i;
    for (i = 0; i < n; i += V_N) NN__K(put)(p + i, n - i, V_SET(a));
}

// y[i] += x[i]
TENSOR__FN void NN__K(add)(void *y, const void *x, int64_t n) {
    NN__R *p = (NN__R *)y;
    const NN__R *q = (const NN__R *)x;
    int64_t i;
    for (i = 0; i < n; i += V_N)
        NN__K(put)(p + i, n - i, V_ADD(NN__LOAD(p + i, n - i, 0), NN__LOAD(q + i, n - i, 0)));
}

// y[i] *= a
TENSOR__FN void NN__K(scale)(void *y, double a, int64_t n) {
    NN__R *p = (NN__R *)y;
    int64_t i;
    for (i = 0; i < n; i += V_N) NN__K(put)(p + i, n - i, V_MUL(NN__LOAD(p + i, n - i, 0), V_SET(a)));
}

// sum of x[i] y[i]; of x[i] if y is NULL
TENSOR__FN double NN__K(dot)(const void *x, const void *y, int64_t n) {
    const NN__R *p = (const NN__R *)x, *q = (const NN__R *)y;
    V_F s = V_ZERO();
    int64_t i;
    if (!q)
        for (i = 0; i < n; i += V_N) s = V_ADD(s, NN__LOAD(p + i, n - i, 0));
    else
        for (i = 0; i < n; i += V_N) s = V_FMA(NN__LOAD(p + i, n - i, 0), NN__LOAD(q + i, n - i, 0), s);
    return (double)V_HSUM(s);
}

TENSOR__INLINE NN__S NN__K(row_max)(const NN__R *p, int64_t n) {
    V_F m = V_SET(-INFINITY);
    int64_t i;
    for (i = 0; i < n; i += V_N) m = V_MAX(m, NN__LOAD(p + i, n - i, -INFINITY));
    return V_HMAX(m);
}

// log(sum of e^x[i])
TENSOR__FN double NN__K(lse)(const void *x, int64_t n) {
    const NN__R *p = (const NN__R *)x;
    NN__S m = NN__K(row_max)(p, n);
    V_F s = V_ZERO(), vm;
    int64_t i;
    if (m == (NN__S)-INFINITY || m == (NN__S)INFINITY) return (double)m;
    vm = V_SET(m);
    for (i = 0; i < n; i += V_N) s = V_ADD(s, NN__K(cut)(V_EXP(V_SUB(NN__LOAD(p + i, n - i, 0), vm)), n - i));
    return (double)m + log((double)V_HSUM(s));
}

// ------------------------------------------------------------------------------
// >>nn-kernel-conv                                 MARK: convolution
//
// Columns (im2col) for a GEMM: row r = (channel, ky, kx), one column per output pixel. Copying them is one
// text for all element types and stands in >>impl-functional; only the adding back is here.
// ------------------------------------------------------------------------------

// Adds the columns of output rows oy0..oy1 of `channels` planes of x back.
TENSOR__FN void NN__K(col2im)(const void *columns, void *image, const nn__window_t *g, int64_t channels,
                              int64_t oy0, int64_t oy1) {
    const NN__R *q = (const NN__R *)columns;
    int64_t c, ky, kx, oy, ox, lo, hi;
    for (c = 0; c < channels; c++)
        for (ky = 0; ky < g->kh; ky++)
            for (kx = 0; kx < g->kw; kx++) {
                nn__window_range(g, kx, &lo, &hi);
                for (oy = oy0; oy < oy1; oy++, q += g->ow) {
                    int64_t iy = oy * g->sh - g->ph + ky * g->dh;
                    NN__R *p = (NN__R *)image + (c * g->h + iy) * g->w + (kx * g->dw - g->pw);
                    if (iy < 0 || iy >= g->h) continue;
                    if (g->sw == 1)
                        NN__K(add)(p + lo, q + lo, hi - lo);
                    else
                        for (ox = lo; ox < hi; ox++) p[ox * g->sw] = (NN__R)(p[ox * g->sw] + q[ox]);
                }
            }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-pool                                 MARK: pooling
//
// One plane [H, W] -> [OH, OW] per call. Largest: of equals the first in row-major order, NaN wins (as
// PyTorch).
// ------------------------------------------------------------------------------

TENSOR__INLINE void NN__K(max_window)(const NN__R *x, const nn__window_t *g, int64_t oy, int64_t ox, NN__R *y,
                                      int32_t *place) {
    int64_t y0 = oy * g->sh - g->ph, x0 = ox * g->sw - g->pw, iy, ix, at = -1;
    int64_t y1 = y0 + (g->kh - 1) * g->dh + 1, x1 = x0 + (g->kw - 1) * g->dw + 1;
    NN__R best = (NN__R)-INFINITY;
    while (y0 < 0) y0 += g->dh;
    while (x0 < 0) x0 += g->dw;
    if (y1 > g->h) y1 = g->h;
    if (x1 > g->w) x1 = g->w;
    for (iy = y0; iy < y1; iy += g->dh)
        for (ix = x0; ix < x1; ix += g->dw) {
            NN__R v = x[iy * g->w + ix];
            if (v > best || v != v || at < 0) {
                best = v;
                at = iy * g->w + ix;
            }
        }
    *y = best;
    *place = (int32_t)at;
}

#if TENSOR_NN__PASS > 0 && TENSOR_NN__PASS < 4
// V_N windows of one row, n of them kept. The row segment they look at comes from the image, or from a copy
// with -inf around where it leaves the image. -> 0 if it is too long for that
TENSOR__FN int NN__K(max_lanes)(const float *x, const nn__window_t *g, int64_t oy, int64_t ox, int64_t n,
                                float *y, int32_t *place) {
    enum { LONGEST = 256 };
    float copy[LONGEST];
    int32_t at[V_N];
    int64_t x0 = ox * g->sw - g->pw, length = (g->kw - 1) * g->dw + g->sw * V_N, i, kx, ky, iy;
    int64_t left = x0 < 0 ? -x0 : 0, right = g->w - x0 < length ? g->w - x0 : length;
    int inside = left == 0 && right == length;
    V_F m = V_SET(-INFINITY);
    V_I best = VI_SET(-1), step;
    if (length > LONGEST) return 0;
    for (i = 0; i < V_N; i++) at[i] = (int32_t)(i * g->sw);
    step = VI_LOAD(at);
    if (!inside)
        for (i = 0; i < length; i++) copy[i] = -INFINITY;
    for (ky = 0, iy = oy * g->sh - g->ph; ky < g->kh; ky++, iy += g->dh) {
        const float *row;
        if (iy < 0 || iy >= g->h) continue;
        row = x + iy * g->w;
        if (inside) {
            row += x0;
        } else {
            for (i = left; i < right; i++) copy[i] = row[x0 + i];
            row = copy;
        }
        if (M_ANY(VI_EQ(best, VI_SET(-1)))) {
            // The first element of the window: it wins where all are -inf.
            for (i = 0; i < V_N; i++) {
                int64_t c = x0 + i * g->sw;
                while (c < 0) c += g->dw;
                at[i] = (int32_t)(iy * g->w + c);
            }
            best = VI_LOAD(at);
        }
        for (kx = 0; kx < g->kw; kx++) {
            const float *p = row + kx * g->dw;
            V_F v;
            V_M better;
            if (g->sw == 1) {
                v = V_LOAD(p);
            } else if (g->sw == 2) {
                v = NN__EVEN(V_LOAD(p), V_LOAD(p + V_N));
            } else {
                float t[V_N];
                for (i = 0; i < V_N; i++) t[i] = p[i * g->sw];
                v = V_LOAD(t);
            }
            better = M_OR(V_GT(v, m), V_ISNAN(v));
            m = V_SEL(better, v, m);
            best = VI_SEL(better, VI_ADD(step, VI_SET((int32_t)(iy * g->w + x0 + kx * g->dw))), best);
        }
    }
    NN__K(put)(y, n, m);
    VI_STORE(at, best);
    memcpy(place, at, (size_t)(n < V_N ? n : V_N) * sizeof at[0]);
    return 1;
}
#endif

TENSOR__FN void NN__K(max_pool)(const void *x, void *y, int32_t *place, const nn__window_t *g) {
    const NN__R *p = (const NN__R *)x;
    NN__R *o = (NN__R *)y;
    int64_t oy, ox;
    for (oy = 0; oy < g->oh; oy++, o += g->ow, place += g->ow) {
        ox = 0;
#if TENSOR_NN__PASS > 0 && TENSOR_NN__PASS < 4
        while (ox < g->ow && NN__K(max_lanes)(p, g, oy, ox, g->ow - ox, o + ox, place + ox)) ox += V_N;
#endif
        for (; ox < g->ow; ox++) NN__K(max_window)(p, g, oy, ox, o + ox, place + ox);
    }
}

// gx[place] += g over one plane.
TENSOR__FN void NN__K(max_unpool)(const void *grad, const int32_t *place, void *gx, int64_t n) {
    const NN__R *q = (const NN__R *)grad;
    NN__R *p = (NN__R *)gx;
    int64_t i;
    for (i = 0; i < n; i++) p[place[i]] = (NN__R)(p[place[i]] + q[i]);
}

// back 0: x -> y means; 1: x += y spread over the windows.
TENSOR__FN void NN__K(avg_pool)(void *x, void *y, const nn__window_t *g, int back) {
    NN__R *p = (NN__R *)x, *o = (NN__R *)y;
    int64_t oy, ox, iy, ix, r[4];
    for (oy = 0; oy < g->oh; oy++)
        for (ox = 0; ox < g->ow; ox++, o++) {
            NN__S divisor = (NN__S)nn__window_mean(g, oy, ox, r), s = 0;
            if (back) {
                s = (NN__S)*o / divisor;
                for (iy = r[0]; iy < r[1]; iy++)
                    for (ix = r[2]; ix < r[3]; ix++) p[iy * g->w + ix] = (NN__R)(p[iy * g->w + ix] + s);
                continue;
            }
            for (iy = r[0]; iy < r[1]; iy++)
                for (ix = r[2]; ix < r[3]; ix++) s += (NN__S)p[iy * g->w + ix];
            *o = (NN__R)(s / divisor);
        }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-norm                                 MARK: layer norm
//
// Two passes over a row for the statistics: one pass (E[x^2] - E[x]^2) cancels.
// ------------------------------------------------------------------------------

TENSOR__FN void NN__K(layer_norm)(const void *x, const void *w, const void *b, void *y, void *mean,
                                  void *rstd, int64_t rows, int64_t n, double eps) {
    const NN__R *p = (const NN__R *)x, *wp = (const NN__R *)w, *bp = (const NN__R *)b;
    NN__R *o = (NN__R *)y;
    int64_t r, i;
    for (r = 0; r < rows; r++, p += n, o += n) {
        double m = NN__K(dot)(p, NULL, n) / (double)n, d;
        V_F vm = V_SET(m), s = V_ZERO(), vr;
        for (i = 0; i < n; i += V_N) {
            V_F v = NN__K(cut)(V_SUB(NN__LOAD(p + i, n - i, 0), vm), n - i);
            s = V_FMA(v, v, s);
        }
        d = 1 / sqrt((double)V_HSUM(s) / (double)n + eps);
        vr = V_SET(d);
        ((NN__R *)mean)[r] = (NN__R)m;
        ((NN__R *)rstd)[r] = (NN__R)d;
        for (i = 0; i < n; i += V_N) {
            V_F v = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
            if (wp) v = V_MUL(v, NN__LOAD(wp + i, n - i, 0));
            if (bp) v = V_ADD(v, NN__LOAD(bp + i, n - i, 0));
            NN__K(put)(o + i, n - i, v);
        }
    }
}

// gx of these rows; gw += g xhat and gb += g (both may be NULL).
TENSOR__FN void NN__K(layer_norm_back)(const void *grad, const void *x, const void *w, const void *mean,
                                       const void *rstd, void *gx, void *gw, void *gb, int64_t rows,
                                       int64_t n) {
    const NN__R *gp = (const NN__R *)grad, *p = (const NN__R *)x, *wp = (const NN__R *)w;
    NN__R *o = (NN__R *)gx, *ow = (NN__R *)gw, *ob = (NN__R *)gb;
    int64_t r, i;
    for (r = 0; r < rows; r++, p += n, gp += n, o += n) {
        V_F vm = V_SET(((const NN__R *)mean)[r]), vr = V_SET(((const NN__R *)rstd)[r]);
        V_F s = V_ZERO(), t = V_ZERO();
        for (i = 0; i < n; i += V_N) {
            V_F gv = NN__LOAD(gp + i, n - i, 0);
            V_F h = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
            if (ow) {
                NN__K(put)(ow + i, n - i, V_FMA(gv, h, NN__LOAD(ow + i, n - i, 0)));
                NN__K(put)(ob + i, n - i, V_ADD(gv, NN__LOAD(ob + i, n - i, 0)));
            }
            if (wp) gv = V_MUL(gv, NN__LOAD(wp + i, n - i, 0));
            s = V_ADD(s, gv);
            t = V_FMA(gv, h, t);
        }
        s = V_SET((double)V_HSUM(s) / (double)n);
        t = V_SET((double)V_HSUM(t) / (double)n);
        for (i = 0; i < n; i += V_N) {
            V_F gv = NN__LOAD(gp + i, n - i, 0);
            V_F h = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
            if (wp) gv = V_MUL(gv, NN__LOAD(wp + i, n - i, 0));
            NN__K(put)(o + i, n - i, V_MUL(vr, V_SUB(V_SUB(gv, s), V_MUL(h, t))));
        }
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-loss                                 MARK: losses
// ------------------------------------------------------------------------------

// One row of cross entropy's gradient: gx = a softmax(x) - b w (w NULL = 1), softmax(x) = e^(x - lse).
TENSOR__FN void NN__K(softmax_minus)(const void *x, const void *w, void *gx, double lse, double a, double b,
                                     int64_t n) {
    const NN__R *p = (const NN__R *)x, *wp = (const NN__R *)w;
    NN__R *o = (NN__R *)gx;
    V_F vl = V_SET(lse), va = V_SET(a), vb = V_SET(b);
    int64_t i;
    for (i = 0; i < n; i += V_N) {
        V_F v = V_MUL(V_EXP(V_SUB(NN__LOAD(p + i, n - i, 0), vl)), va);
        if (b != 0) v = V_SUB(v, wp ? V_MUL(vb, NN__LOAD(wp + i, n - i, 0)) : vb);
        NN__K(put)(o + i, n - i, v);
    }
}

// Pointwise losses of n elements: into y, or summed if y is NULL. w, q (pos_weight) may be NULL = 1.
TENSOR__FN double NN__K(loss)(int which, const void *x, const void *t, const void *w, const void *q, void *y,
                              int64_t n, double p) {
    const NN__R *xp = (const NN__R *)x, *tp = (const NN__R *)t, *wp = (const NN__R *)w,
                *qp = (const NN__R *)q;
    NN__R *o = (NN__R *)y;
    V_F s = V_ZERO(), vp = V_SET(p), one = V_SET(1), v;
    int64_t i;
    (void)vp;
    for (i = 0; i < n; i += V_N) {
        V_F vx = NN__LOAD(xp + i, n - i, 0.5), vt = NN__LOAD(tp + i, n - i, 0.5);
        V_F vq = qp ? NN__LOAD(qp + i, n - i, 0) : one;
        switch (which) {
#define TENSOR__X(ID, f, dx, dt)                                                                             \
    case NN__LOSS_##ID: v = f(V_, vx, vt, vp, vq); break;
            NN_LOSSES(TENSOR__X)
#undef TENSOR__X
        default: v = vx;
        }
        if (wp) v = V_MUL(v, NN__LOAD(wp + i, n - i, 0));
        if (o)
            NN__K(put)(o + i, n - i, v);
        else
            s = V_ADD(s, NN__K(cut)(v, n - i));
    }
    return (double)V_HSUM(s);
}

// Their gradients (gx or gt may be NULL): g[i * step] c times the derivative.
TENSOR__FN void NN__K(loss_back)(int which, const void *g, int64_t step, double c, const void *x,
                                 const void *t, const void *w, const void *q, void *gx, void *gt, int64_t n,
                                 double p) {
    const NN__R *xp = (const NN__R *)x, *tp = (const NN__R *)t, *wp = (const NN__R *)w,
                *qp = (const NN__R *)q;
    const NN__R *gp = (const NN__R *)g;
    NN__R *ox = (NN__R *)gx, *ot = (NN__R *)gt;
    V_F vp = V_SET(p), one = V_SET(1), vc = V_SET(c), all = V_SET((double)gp[0] * c), a, b;
    int64_t i;
    (void)vp;
    for (i = 0; i < n; i += V_N) {
        V_F vx = NN__LOAD(xp + i, n - i, 0.5), vt = NN__LOAD(tp + i, n - i, 0.5);
        V_F vq = qp ? NN__LOAD(qp + i, n - i, 0) : one;
        V_F k = step ? V_MUL(NN__LOAD(gp + i, n - i, 0), vc) : all;
        if (wp) k = V_MUL(k, NN__LOAD(wp + i, n - i, 0));
        a = b = k;
        switch (which) {
#define TENSOR__X(ID, f, dx, dt)                                                                             \
    case NN__LOSS_##ID:                                                                                      \
        if (ox) a = V_MUL(k, dx(V_, vx, vt, vp, vq));                                                        \
        if (ot) b = V_MUL(k, dt(V_, vx, vt, vp, vq));                                                        \
        break;
            NN_LOSSES(TENSOR__X)
#undef TENSOR__X
        default: break;
        }
        if (ox) NN__K(put)(ox + i, n - i, a);
        if (ot) NN__K(put)(ot + i, n - i, b);
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-attention                            MARK: attention
//
// One row of scores against n keys, of which the first `valid` may be looked at. The products around are the
// GEMM's.
// ------------------------------------------------------------------------------

// s = e^(scale s - max), 0 from valid on. -> sum of s; *lse = logsumexp (-inf if nothing may be looked at)
TENSOR__FN double NN__K(attend)(void *s, int64_t valid, int64_t n, double scale, double *lse) {
    NN__R *p = (NN__R *)s;
    V_F vs = V_SET(scale), m = V_SET(-INFINITY), sum = V_ZERO(), vm;
    double top, total;
    int64_t i;
    for (i = 0; i < valid; i += V_N) {
        // Lanes past valid repeat an element that counts.
        V_F v = V_MUL(NN__LOAD(p + i, valid - i, p[i]), vs);
        m = V_MAX(m, v);
    }
    top = (double)V_HMAX(m);
    if (valid <= 0 || top == -INFINITY) {
        NN__K(fill)(p, 0, n);
        *lse = -INFINITY;
        return 0;
    }
    vm = V_SET(-top);
    for (i = 0; i < valid; i += V_N) {
        V_F v = NN__K(cut)(V_EXP(V_FMA(NN__LOAD(p + i, valid - i, 0), vs, vm)), valid - i);
        sum = V_ADD(sum, v);
        NN__K(put)(p + i, valid - i, v);
    }
    NN__K(fill)(p + valid, 0, n - valid);
    total = (double)V_HSUM(sum);
    *lse = top + log(total);
    return total;
}

// s = probabilities e^(scale s - lse); d = s (d - delta) scale; both 0 from valid on.
TENSOR__FN void NN__K(attend_back)(void *s, void *d, int64_t valid, int64_t n, double scale, double lse,
                                   double delta) {
    NN__R *p = (NN__R *)s, *q = (NN__R *)d;
    V_F vs = V_SET(scale), vl = V_SET(-lse), vd = V_SET(delta);
    int64_t i;
    if (lse == -INFINITY) valid = 0;
    for (i = 0; i < valid; i += V_N) {
        V_F v = V_EXP(V_FMA(NN__LOAD(p + i, valid - i, 0), vs, vl));
        V_F e = V_MUL(V_MUL(v, V_SUB(NN__LOAD(q + i, valid - i, 0), vd)), vs);
        NN__K(put)(p + i, valid - i, v);
        NN__K(put)(q + i, valid - i, e);
    }
    NN__K(fill)(p + valid, 0, n - valid);
    NN__K(fill)(q + valid, 0, n - valid);
}

// ------------------------------------------------------------------------------
// >>nn-kernel-dropout                              MARK: dropout
// ------------------------------------------------------------------------------

// y = x scale where the 24-bit uniform number of element first + i is below keep (in 2^-24), else 0.
TENSOR__FN void NN__K(dropout)(const void *x, void *y, int64_t first, int64_t n, tensor_generator_t rng,
                               uint32_t keep, double scale) {
    const NN__R *p = (const NN__R *)x;
    NN__R *o = (NN__R *)y;
    uint32_t word[4];
    int64_t i, k;
    for (i = 0; i < n; i += 4) {
        TENSOR__(philox)(rng.seed, rng.offset, (uint64_t)(first + i) >> 2, word);
        for (k = 0; k < 4 && i + k < n; k++)
            o[i + k] = (NN__R)(p[i + k] * ((word[k] >> 8) < keep ? (NN__R)scale : (NN__R)0));
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-table                                MARK: table of a pass
// ------------------------------------------------------------------------------

static const nn__cpu_t NN__K(cpu) = {
    NN__K(fill), NN__K(add), NN__K(scale), NN__K(dot), NN__K(lse), NN__K(col2im), NN__K(max_pool),
    NN__K(max_unpool), NN__K(avg_pool), NN__K(layer_norm), NN__K(layer_norm_back), NN__K(softmax_minus),
    NN__K(loss), NN__K(loss_back), NN__K(attend), NN__K(attend_back), NN__K(dropout)
};

#undef NN__LOAD
#undef NN__MASK
#undef NN__PART
#undef NN__PUT_PART
#undef NN__CUT_PART
#undef V_NLS
#undef NN__R
#undef NN__S
#undef NN__EVEN
#if TENSOR_NN__PASS < 4
#define TENSOR__PASS_CLOSE
#include "tensor.h"
#undef TENSOR__PASS_CLOSE
#undef TENSOR__PASS
#else
#undef V_N
#undef V_F
#undef V_LOAD
#undef V_STORE
#undef V_SET
#undef V_ZERO
#undef V_ADD
#undef V_SUB
#undef V_MUL
#undef V_DIV
#undef V_FMA
#undef V_NEG
#undef V_ABS
#undef V_SQRT
#undef V_EXP
#undef V_LOG
#undef V_LOG1P
#undef V_SIGMOID
#undef V_LT
#undef V_LE
#undef V_GT
#undef V_EQ
#undef V_SEL
#undef V_MAX
#undef V_HSUM
#undef V_HMAX
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#endif
#undef NN__K
#endif   // TENSOR_NN__PASS

// ------------------------------------------------------------------------------
// >>nn-impl                                        MARK: implementation
// ------------------------------------------------------------------------------

#if defined(TENSOR_NN_IMPLEMENTATION) && !defined(TENSOR_NN_IMPLEMENTATION_DONE) && !defined(TENSOR_NN__PASS)
#define TENSOR_NN_IMPLEMENTATION_DONE

// ------------------------------------------------------------------------------
// >>impl-functional                                MARK: functional fronts and gradients
//
// Per op: kernel driver (cuts the work, calls inner loops and the GEMM), front (checks, shape), gradient. An
// op with a fused gradient also has a form composed of public ops, which the engine differentiates when a
// graph of the gradient is wanted: one mechanism for all of them (nn__grad_composed) instead of a second
// gradient by hand for each.
// ------------------------------------------------------------------------------

#define TENSOR_NN__PASS 0
#include "tensor_nn.h"
#undef TENSOR_NN__PASS
#ifdef TENSOR__X86_PASSES
#define TENSOR_NN__PASS 1
#include "tensor_nn.h"
#undef TENSOR_NN__PASS
#define TENSOR_NN__PASS 2
#include "tensor_nn.h"
#undef TENSOR_NN__PASS
#define TENSOR_NN__PASS 3
#include "tensor_nn.h"
#undef TENSOR_NN__PASS
#endif
#define TENSOR_NN__PASS 4
#include "tensor_nn.h"
#undef TENSOR_NN__PASS
#define TENSOR_NN__PASS 5
#include "tensor_nn.h"
#undef TENSOR_NN__PASS

// Row of an NN_OP_x; the table stands behind the functions it names, at the end of >>impl-losses.
TENSOR__FN const tensor__row_t *nn__row(int id);

TENSOR__FN const nn__cpu_t *nn__cpu(int dtype) {
    if (dtype == TENSOR_F64) return &nn__cpu_f64;
    if (TENSOR__(reference)()) return &nn__cpu_reference;
    switch (TENSOR__(isa)()) {
#ifdef TENSOR__X86_PASSES
    case 1: return &nn__cpu_sse2;
    case 2: return &nn__cpu_avx2;
    case 3: return &nn__cpu_avx512;
#endif
    default: return &nn__cpu_scalar;
    }
}

TENSOR__FN int64_t nn__min(int64_t a, int64_t b) { return a < b ? a : b; }
TENSOR__FN int64_t nn__max(int64_t a, int64_t b) { return a > b ? a : b; }
TENSOR__FN int64_t nn__ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
TENSOR__FN size_t nn__es(int dtype) { return dtype == TENSOR_F64 ? 8 : 4; }
TENSOR__FN uint64_t nn__line(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Items per task for n items of `cost` element operations each, where the cut has no say in the result: a
// join costs about as much as 32K operations.
TENSOR__FN int64_t nn__per(int64_t n, int64_t cost) {
    int64_t tasks = 4 * (int64_t)TENSOR__(thread_count)();
    if (tasks <= 4 || (double)n * (double)cost < 32768.0) return nn__max(n, 1);
    return nn__max(nn__ceil(n, tasks), 1);
}

// Runs the tasks; a single one on the calling thread, so that a GEMM in it may use the others.
TENSOR__FN void nn__run(int64_t tasks, tensor__task_fn fn, void *arg) {
    if (tasks == 1)
        fn(arg, 0, 0);
    else if (tasks > 1)
        TENSOR__(parallel)(tasks, fn, arg);
}

TENSOR__FN void nn__gemm(const tensor__gemm_t *g, int dtype) {
    if (dtype == TENSOR_F64)
        TENSOR__(gemm_f64)(g);
    else
        TENSOR__(gemm_f32)(g);
}

// c[m, n] (+)= a b for one item, strides in elements.
TENSOR__FN tensor__gemm_t nn__product(int64_t m, int64_t n, int64_t k) {
    tensor__gemm_t g;
    memset(&g, 0, sizeof g);
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = 1;
    g.ars = k;
    g.acs = 1;
    g.brs = n;
    g.bcs = 1;
    g.crs = n;
    return g;
}

// i-th index of an i32/i64 argument without gaps.
TENSOR__FN int64_t nn__index(const tensor_arg_t *a, int64_t i) {
    return a->dtype == TENSOR_I32 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
}
TENSOR__FN double nn__value(const void *p, int dtype, int64_t i) {
    return dtype == TENSOR_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
TENSOR__FN void nn__store(void *p, int dtype, int64_t i, double v) {
    if (dtype == TENSOR_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}
TENSOR__FN char *nn__at(const tensor_arg_t *a, int64_t i) {
    return a->data ? (char *)a->data + i * (int64_t)nn__es(a->dtype) : NULL;
}

// ---- fronts: checks

TENSOR__FN int nn__is_float(const tensor_t *x) {
    return x->dtype == TENSOR_F32 || x->dtype == TENSOR_F64 || x->dtype == TENSOR_F16 ||
           x->dtype == TENSOR_BF16;
}
TENSOR__FN int nn__is_half(const tensor_t *x) { return x->dtype == TENSOR_F16 || x->dtype == TENSOR_BF16; }
TENSOR__FN int nn__is_index(const tensor_t *x) { return x->dtype == TENSOR_I32 || x->dtype == TENSOR_I64; }

// Whether the inputs of `mask` (bit k = input k; absent ones do not count) are floats of one dtype; raises if
// not.
TENSOR__FN int nn__floats(tensor__op_t *o, unsigned mask) {
    tensor_t *first = NULL;
    int k;
    for (k = 0; k < o->nin; k++) {
        tensor_t *x = o->in[k];
        if (!(mask >> k & 1u) || !x) continue;
        if (!nn__is_float(x)) {
            (void)TENSOR__(fail)(o->th, TENSOR_ERR_DTYPE, "%s: argument %i is %y, must be a float",
                                 o->row->name, k + 1, x);
            return 0;
        }
        if (!first) first = x;
        if (x->dtype != first->dtype) {
            (void)TENSOR__(fail)(o->th, TENSOR_ERR_DTYPE, "%s: argument %i is %y, the first is %y",
                                 o->row->name, k + 1, x, first);
            return 0;
        }
    }
    return 1;
}

// Half precision is computed in f32: the operands widened, the result narrowed.
TENSOR__FN tensor_t *nn__wide(tensor_t *x) { return x && nn__is_half(x) ? (tensor_to)(x, TENSOR_F32) : x; }
TENSOR__FN tensor_t *nn__narrow(tensor_t *y, const tensor_t *like) {
    return (tensor_to)(y, (tensor_dtype_t)like->dtype);
}

// Whether a positional argument too many was given; raises if so.
TENSOR__FN int nn__surplus(const char *op, const void *surplus) {
    if (surplus)
        (void)TENSOR__(fail)(TENSOR__(self)(), TENSOR_ERR_SHAPE,
                             "%s: too many positional arguments, options are named", op);
    return surplus != NULL;
}

// 0 = the default, TENSOR_ZERO = 0.
TENSOR__FN int64_t nn__or(int64_t value, int64_t otherwise) {
    return value == 0 ? otherwise : value == TENSOR_ZERO ? 0 : value;
}
TENSOR__FN double nn__or_f(double value, double otherwise) {
    return value == 0 ? otherwise : value == (double)TENSOR_ZERO ? 0 : value;
}

TENSOR__FN tensor_t *nn__contiguous(tensor_t *x) { return x ? (tensor_contiguous)(x) : x; }

// Saved input k inside a gradient, NULL if the op was called without it.
TENSOR__FN tensor_t *nn__saved(tensor__grad_t *g, int k) {
    const tensor__node_t *n = g->node;
    int i;
    for (i = 0; i < n->nsaved; i++)
        if (n->saved[i].source == k && !n->saved[i].storage && !n->saved[i].is_immediate) return NULL;
    return TENSOR__(grad_in)(g, k);
}

// ---- gradients through a composed form

typedef tensor_t *(*nn__composed_fn)(tensor_t *const *in, const tensor_params_t *p);

// Gradients of node's op by differentiating fn(inputs), which is the same function made of public ops.
TENSOR__FN void nn__grad_composed(tensor__grad_t *g, nn__composed_fn fn) {
    tensor_t *in[TENSOR__MAX_IN], *wanted[TENSOR__MAX_IN], *got[TENSOR__MAX_IN], *y;
    int k, n = 0, at[TENSOR__MAX_IN];
    for (k = 0; k < g->node->nin; k++) {
        in[k] = nn__saved(g, k);
        if (!in[k] || !TENSOR__(grad_need)(g, k)) continue;
        // A view of its own: a tensor given twice must get two gradients.
        in[k] = (tensor_view_n)(in[k], in[k]->dims, in[k]->ndim);
        wanted[n] = in[k];
        at[n++] = k;
    }
    if (n == 0) return;
    y = fn(in, g->p);
    (tensor_autograd_grad)(&y, 1, &g->gy[0], wanted, n, got, TENSOR_CREATE_GRAPH | TENSOR_ALLOW_UNUSED);
    for (k = 0; k < n; k++) g->gx[at[k]] = got[k];
}

// ---- linear

TENSOR__FN void nn__linear_product(const tensor_call_t *c, tensor__gemm_t *g) {
    const tensor_arg_t *x = &c->arg[0], *w = &c->arg[1];
    int64_t k = w->dims[1];
    *g = nn__product(k ? x->numel / k : c->arg[3].numel / nn__max(w->dims[0], 1), w->dims[0], k);
    g->a = x->data;
    g->b = w->data;
    g->brs = w->strides[1];
    g->bcs = w->strides[0];
    g->c = c->arg[3].data;
    g->bias = c->arg[2].data;
}
TENSOR__FN uint64_t nn__scratch_linear(const tensor_call_t *c) {
    tensor__gemm_t g;
    nn__linear_product(c, &g);
    return TENSOR__(gemm_scratch)(&g);
}
TENSOR__FN int nn__cpu_linear(tensor_call_t *c) {
    tensor__gemm_t g;
    nn__linear_product(c, &g);
    g.scratch = c->scratch;
    g.scratch_bytes = (size_t)TENSOR__(gemm_scratch)(&g);
    nn__gemm(&g, c->arg[0].dtype);
    return TENSOR_OK;
}

TENSOR_API tensor_t *(tensor_linear)(tensor_t *x, tensor_t *weight, tensor_t *bias) {
    tensor__op_t o;
    tensor_t *const in[3] = {x, weight, bias};
    tensor_t *ready[3];
    int64_t dims[TENSOR_MAX_DIMS];
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_LINEAR), in, 3)) return TENSOR__(poison);
    if (!nn__floats(&o, 7)) return TENSOR__(poison);
    if (weight->ndim != 2)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "linear: weight %t must be 2-d [out, in]", weight);
    if (x->ndim < 1 || x->dims[x->ndim - 1] != weight->dims[1])
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "linear: the last dim of x %t must be the %d columns of weight %t", x,
                              weight->dims[1], weight);
    if (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0]))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "linear: bias %t must have the %d rows of weight %t",
                              bias, weight->dims[0], weight);
    if (nn__is_half(x)) return nn__narrow((tensor_linear)(nn__wide(x), nn__wide(weight), nn__wide(bias)), x);
    ready[0] = nn__contiguous(x);
    ready[1] = weight;
    ready[2] = nn__contiguous(bias);
    if (ready[0] != x || ready[2] != bias) return (tensor_linear)(ready[0], ready[1], ready[2]);
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    dims[x->ndim - 1] = weight->dims[0];
    TENSOR__(result)(&o, x->dtype, dims, x->ndim);
    return TENSOR__(finish)(&o);
}

TENSOR__FN void nn__grad_linear(tensor__grad_t *g) {
    tensor_t *w = TENSOR__(grad_in)(g, 1), *flat;
    const tensor__meta_t *x = &g->node->in[0];
    int64_t dims[2], d;
    dims[0] = 1;
    for (d = 0; d + 1 < x->ndim; d++) dims[0] *= x->dims[d];
    dims[1] = w->dims[0];
    flat = (tensor_reshape_n)(g->gy[0], dims, 2);
    if (TENSOR__(grad_need)(g, 0)) g->gx[0] = (tensor_reshape_n)((tensor_matmul)(flat, w), x->dims, x->ndim);
    dims[1] = w->dims[1];
    if (TENSOR__(grad_need)(g, 1))
        g->gx[1] =
            (tensor_matmul)((tensor_mT)(flat), (tensor_reshape_n)(TENSOR__(grad_in)(g, 0), dims, 2));
    if (TENSOR__(grad_need)(g, 2)) g->gx[2] = (tensor_sum_dim)(flat, 0, 0);
}

// ---- embedding

typedef struct nn__embedding_t {
    tensor_call_t *c;
    const nn__cpu_t *k;
    int64_t per, rows, width;
} nn__embedding_t;

TENSOR__FN void nn__embedding_task(void *arg, int64_t task, int worker) {
    const nn__embedding_t *v = (const nn__embedding_t *)arg;
    const tensor_call_t *c = v->c;
    size_t bytes = (size_t)v->width * nn__es(c->arg[1].dtype);
    int64_t i = task * v->per, end = nn__min(i + v->per, c->arg[0].numel);
    (void)worker;
    for (; i < end; i++) {
        int64_t at = nn__index(&c->arg[0], i);
        char *to = nn__at(&c->arg[2], i * v->width);
        if (c->p->i[1] && at == c->p->i[0])
            memset(to, 0, bytes);
        else
            memcpy(to, nn__at(&c->arg[1], at * v->width), bytes);
    }
}

// The task owns rows of the result: it scans all indices and adds, in their order, those that are its.
TENSOR__FN void nn__embedding_back_task(void *arg, int64_t task, int worker) {
    const nn__embedding_t *v = (const nn__embedding_t *)arg;
    const tensor_call_t *c = v->c;
    int64_t first = task * v->per, end = nn__min(first + v->per, v->rows), i;
    (void)worker;
    v->k->fill(nn__at(&c->arg[2], first * v->width), 0, (end - first) * v->width);
    for (i = 0; i < c->arg[1].numel; i++) {
        int64_t at = nn__index(&c->arg[1], i);
        if (at < first || at >= end || at == c->p->i[0]) continue;
        v->k->add(nn__at(&c->arg[2], at * v->width), nn__at(&c->arg[0], i * v->width), v->width);
    }
}

TENSOR__FN int nn__check_index(tensor_call_t *c, const tensor_arg_t *index, int64_t rows) {
    int64_t i, at;
    for (i = 0; i < index->numel; i++) {
        at = nn__index(index, i);
        if (at >= 0 && at < rows) continue;
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                             "%s: index %d at position %d is not in 0..%d (%d rows)", c->row->name, at, i,
                             rows - 1, rows);
        return TENSOR_ERR_INDEX;
    }
    return TENSOR_OK;
}

TENSOR__FN int nn__cpu_embedding(tensor_call_t *c) {
    nn__embedding_t v;
    int code = nn__check_index(c, &c->arg[0], c->arg[1].dims[0]);
    if (code != TENSOR_OK) return code;
    v.c = c;
    v.k = NULL;
    v.rows = c->arg[1].dims[0];
    v.width = c->arg[1].dims[1];
    v.per = nn__per(c->arg[0].numel, v.width + 16);
    nn__run(nn__ceil(c->arg[0].numel, v.per), nn__embedding_task, &v);
    return TENSOR_OK;
}

TENSOR__FN int nn__cpu_embedding_back(tensor_call_t *c) {
    nn__embedding_t v;
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.rows = c->arg[2].dims[0];
    v.width = c->arg[2].dims[1];
    v.per = nn__max(nn__ceil(v.rows, TENSOR__(thread_count)()), 1);
    if (c->arg[0].numel + c->arg[2].numel < 32768) v.per = nn__max(v.rows, 1);
    nn__run(nn__ceil(v.rows, v.per), nn__embedding_back_task, &v);
    return TENSOR_OK;
}

// padding: a row or -1; zero: rows of that index are 0.
TENSOR__FN tensor_t *nn__embedding_lookup(tensor_t *index, tensor_t *weight, int64_t padding, int zero) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__contiguous(index), nn__contiguous(weight)};
    int64_t dims[TENSOR_MAX_DIMS];
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_EMBEDDING), in, 2)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.i[0] = padding;
    o.params.i[1] = zero;
    memcpy(dims, index->dims, (size_t)index->ndim * sizeof dims[0]);
    dims[index->ndim] = weight->dims[1];
    TENSOR__(result)(&o, weight->dtype, dims, index->ndim + 1);
    return TENSOR__(finish)(&o);
}

TENSOR__FN tensor_t *nn__embedding_gradient(tensor_t *gy, tensor_t *index, int64_t padding, int64_t rows,
                                            int64_t width) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__contiguous(gy), nn__contiguous(index)};
    int64_t dims[2];
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_EMBEDDING_BACKWARD), in, 2)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.i[0] = padding;
    o.params.i[1] = 1;
    dims[0] = rows;
    dims[1] = width;
    TENSOR__(result)(&o, gy->dtype, dims, 2);
    return TENSOR__(finish)(&o);
}

TENSOR__FN void nn__grad_embedding(tensor__grad_t *g) {
    const tensor__meta_t *w = &g->node->in[1];
    if (TENSOR__(grad_need)(g, 1))
        g->gx[1] =
            nn__embedding_gradient(g->gy[0], TENSOR__(grad_in)(g, 0), g->p->i[0], w->dims[0], w->dims[1]);
}
TENSOR__FN void nn__grad_embedding_back(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__embedding_lookup(TENSOR__(grad_in)(g, 1), g->gy[0], g->p->i[0], 1);
}

TENSOR_API tensor_embedding_args_t tensor_embedding_defaults(void) {
    tensor_embedding_args_t a;
    memset((void *)&a, 0, sizeof a);
    return a;
}
TENSOR_API tensor_t *tensor_embedding_with(tensor_embedding_args_t a) {
    tensor__op_t o;
    tensor_t *const in[2] = {a.index, a.weight};
    tensor_t *y = TENSOR__(poison), *w = a.weight;
    int64_t padding = -1;
    if (nn__surplus("embedding", a.surplus_) || !TENSOR__(begin)(&o, nn__row(NN_OP_EMBEDDING), in, 2) ||
        !nn__floats(&o, 2))
        return tensor__at(a.site_, y);
    if (a.padding_idx != 0) {
        padding = a.padding_idx == TENSOR_ZERO ? 0 : a.padding_idx;
        if (w->ndim == 2 && padding < 0) padding += w->dims[0];
    }
    if (w->ndim != 2)
        y = TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "embedding: weight %t must be 2-d [rows, width]", w);
    else if (!nn__is_index(a.index))
        y = TENSOR__(fail)(o.th, TENSOR_ERR_DTYPE, "embedding: index is %y, must be i32 or i64", a.index);
    else if (a.index->ndim + 1 > TENSOR_MAX_DIMS)
        y = TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "embedding: index %t has too many dims", a.index);
    else if (a.padding_idx != 0 && (padding < 0 || padding >= w->dims[0]))
        y = TENSOR__(fail)(o.th, TENSOR_ERR_INDEX,
                           "embedding: padding_idx %d is outside the %d rows of weight %t", a.padding_idx,
                           w->dims[0], w);
    else if (nn__is_half(w))
        y = nn__narrow(nn__embedding_lookup(a.index, nn__wide(w), padding, 0), w);
    else
        y = nn__embedding_lookup(a.index, w, padding, 0);
    return tensor__at(a.site_, y);
}
TENSOR_API tensor_t *tensor__embedding(tensor_embedding_args_t a) { return tensor_embedding_with(a); }

// ---- layer norm

typedef struct nn__norm_t {
    tensor_call_t *c;
    const nn__cpu_t *k;
    int64_t rows, n, per, chunks;
    size_t es;
} nn__norm_t;

TENSOR__FN void nn__layer_norm_task(void *arg, int64_t task, int worker) {
    const nn__norm_t *v = (const nn__norm_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per;
    (void)worker;
    v->k->layer_norm(nn__at(&a[0], r * v->n), a[1].data, a[2].data, nn__at(&a[3], r * v->n), nn__at(&a[4], r),
                     nn__at(&a[5], r), nn__min(v->per, v->rows - r), v->n, v->c->p->f[0]);
}
TENSOR__FN int nn__cpu_layer_norm(tensor_call_t *c) {
    nn__norm_t v;
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.n = c->p->i[0];
    v.rows = c->arg[4].numel;
    v.per = nn__per(v.rows, 4 * v.n);
    if (c->arg[0].numel > 0) nn__run(nn__ceil(v.rows, v.per), nn__layer_norm_task, &v);
    return TENSOR_OK;
}

// dweight and dbias: chunks of rows (by shape alone) into scratch, added in order.
TENSOR__FN int64_t nn__norm_chunks(int64_t rows, int64_t n) {
    return nn__max(1, nn__min(nn__min(rows, 16), rows * n / 16384));
}
TENSOR__FN uint64_t nn__scratch_layer_norm_back(const tensor_call_t *c) {
    int64_t n = c->p->i[0];
    return (uint64_t)(nn__norm_chunks(c->arg[2].numel, n) * 2 * n) * nn__es(c->arg[0].dtype);
}
TENSOR__FN void nn__layer_norm_back_task(void *arg, int64_t task, int worker) {
    const nn__norm_t *v = (const nn__norm_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = v->rows * task / v->chunks, end = v->rows * (task + 1) / v->chunks;
    char *gw = NULL, *gb = NULL;
    (void)worker;
    if (a[6].numel) {
        gw = (char *)v->c->scratch + task * 2 * v->n * (int64_t)v->es;
        gb = gw + v->n * (int64_t)v->es;
        v->k->fill(gw, 0, 2 * v->n);
    }
    v->k->layer_norm_back(nn__at(&a[0], r * v->n), nn__at(&a[1], r * v->n), a[4].data, nn__at(&a[2], r),
                          nn__at(&a[3], r), nn__at(&a[5], r * v->n), gw, gb, end - r, v->n);
}
TENSOR__FN int nn__cpu_layer_norm_back(tensor_call_t *c) {
    nn__norm_t v;
    int64_t i;
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.es = nn__es(c->arg[0].dtype);
    v.n = c->p->i[0];
    v.rows = c->arg[2].numel;
    v.chunks = nn__norm_chunks(v.rows, v.n);
    if (c->arg[0].numel > 0) nn__run(v.chunks, nn__layer_norm_back_task, &v);
    if (!c->arg[6].numel) return TENSOR_OK;
    v.k->fill(c->arg[6].data, 0, v.n);
    v.k->fill(c->arg[7].data, 0, v.n);
    for (i = 0; i < v.chunks && c->arg[0].numel > 0; i++) {
        char *part = (char *)c->scratch + i * 2 * v.n * (int64_t)v.es;
        v.k->add(c->arg[6].data, part, v.n);
        v.k->add(c->arg[7].data, part + v.n * (int64_t)v.es, v.n);
    }
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__composed_layer_norm(tensor_t *const *in, const tensor_params_t *p) {
    tensor_t *x = in[0], *d, *y;
    int64_t dims[2];
    dims[0] = x->numel / nn__max(p->i[0], 1);
    dims[1] = p->i[0];
    d = (tensor_reshape_n)(x, dims, 2);
    d = (tensor_sub)(d, (tensor_mean_dim)(d, -1, 1));
    y = (tensor_add_scalar)((tensor_mean_dim)((tensor_square)(d), -1, 1), p->f[0]);
    y = (tensor_mul)(d, (tensor_rsqrt)(y));
    if (in[1]) y = (tensor_mul)(y, (tensor_reshape_n)(in[1], dims + 1, 1));
    if (in[2]) y = (tensor_add)(y, (tensor_reshape_n)(in[2], dims + 1, 1));
    return (tensor_reshape_n)(y, x->dims, x->ndim);
}

TENSOR__FN void nn__grad_layer_norm(tensor__grad_t *g) {
    tensor__op_t o;
    tensor_t *in[5], *r;
    int k, parameters = TENSOR__(grad_need)(g, 1) || TENSOR__(grad_need)(g, 2);
    int64_t n[1];
    if (g->create) {
        nn__grad_composed(g, nn__composed_layer_norm);
        return;
    }
    in[0] = nn__contiguous(g->gy[0]);
    in[1] = TENSOR__(grad_in)(g, 0);
    in[2] = TENSOR__(grad_out)(g, 1);
    in[3] = TENSOR__(grad_out)(g, 2);
    in[4] = nn__saved(g, 1);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_LAYER_NORM_BACKWARD), in, 5)) return;
    o.p = &o.params;
    o.params = *g->p;
    o.visible = 3;
    n[0] = parameters ? g->p->i[0] : 0;
    TENSOR__(result)(&o, in[0]->dtype, in[0]->dims, in[0]->ndim);
    TENSOR__(result)(&o, in[0]->dtype, n, 1);
    TENSOR__(result)(&o, in[0]->dtype, n, 1);
    r = TENSOR__(finish)(&o);
    for (k = 0; k < 3; k++)
        if (TENSOR__(grad_need)(g, k)) {
            const tensor__meta_t *m = &g->node->in[k];
            g->gx[k] = r->state == TENSOR__POISON_STATE ? r : (tensor_reshape_n)(o.out[k], m->dims, m->ndim);
        }
}

TENSOR_API tensor_layer_norm_args_t tensor_layer_norm_defaults(void) {
    tensor_layer_norm_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.normalized_dims = 1;
    a.eps = 1e-5;
    return a;
}
TENSOR__FN tensor_t *nn__layer_norm_front(const tensor_layer_norm_args_t *a) {
    tensor__op_t o;
    tensor_t *in[3], *x = a->x;
    int64_t lead[TENSOR_MAX_DIMS], n = 1, k, i, first;
    in[0] = x;
    in[1] = a->weight;
    in[2] = a->bias;
    if (nn__surplus("layer_norm", a->surplus_)) return TENSOR__(poison);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_LAYER_NORM), in, 3) || !nn__floats(&o, 7)) return TENSOR__(poison);
    if (a->normalized_dims < 1 || a->normalized_dims > x->ndim)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "layer_norm: normalized_dims %d must be in 1..%i, the dims of x %t",
                              a->normalized_dims, (int)x->ndim, x);
    first = x->ndim - a->normalized_dims;
    for (i = first; i < x->ndim; i++) n *= x->dims[i];
    for (k = 1; k < 3; k++) {
        int same = !in[k] || in[k]->ndim == a->normalized_dims;
        for (i = 0; in[k] && same && i < in[k]->ndim; i++) same = in[k]->dims[i] == x->dims[first + i];
        if (!same)
            return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                                  "layer_norm: %s %t must have the last %d dims of x %t",
                                  k == 1 ? "weight" : "bias", in[k], a->normalized_dims, x);
    }
    if (nn__is_half(x)) {
        tensor_layer_norm_args_t wide = *a;
        wide.x = nn__wide(x);
        wide.weight = nn__wide(a->weight);
        wide.bias = nn__wide(a->bias);
        return nn__narrow(nn__layer_norm_front(&wide), x);
    }
    for (k = 0; k < 3; k++) in[k] = nn__contiguous(in[k]);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_LAYER_NORM), in, 3)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.i[0] = n;
    o.params.f[0] = a->eps;
    memcpy(lead, x->dims, (size_t)first * sizeof lead[0]);
    TENSOR__(result)(&o, x->dtype, x->dims, x->ndim);
    TENSOR__(result)(&o, x->dtype, lead, (int)first);
    TENSOR__(result)(&o, x->dtype, lead, (int)first);
    return TENSOR__(finish)(&o);
}
TENSOR_API tensor_t *tensor_layer_norm_with(tensor_layer_norm_args_t a) {
    return tensor__at(a.site_, nn__layer_norm_front(&a));
}
TENSOR_API tensor_t *tensor__layer_norm(tensor_layer_norm_args_t a) {
    a.normalized_dims = nn__or(a.normalized_dims, 1);
    a.eps = nn__or_f(a.eps, 1e-5);
    return tensor_layer_norm_with(a);
}

// ---- conv2d: y = W columns per image and group, the columns in blocks of whole output rows that stay in L2

typedef struct nn__conv_t {
    const nn__cpu_t *k;
    const tensor_call_t *c;
    nn__window_t g;
    const tensor_arg_t *x, *w, *y;   // the image, the weight, the output, whichever of them is being computed
    int64_t images, groups, cg, og;   // channels and outputs of a group
    int64_t taps, kk, pixels;         // KH KW, cg taps, OH OW
    int64_t rows, blocks;             // output rows per block, blocks per image
    int64_t step, steps;              // channels per task of the input gradient, tasks per image and group
    int64_t chunks;                   // parts of the images of the weight gradient
    int dtype, direct;                // direct: the image is its own columns (1 x 1)
    size_t es;
    uint64_t columns, gemm, worker;   // bytes: columns of a worker, its GEMM, both
} nn__conv_t;

TENSOR__FN nn__window_t nn__window(const tensor_params_t *p, const tensor_arg_t *y) {
    nn__window_t g;
    memcpy(&g, p->i, sizeof p->i);
    g.oh = y->dims[y->ndim - 2];
    g.ow = y->dims[y->ndim - 1];
    return g;
}

TENSOR__FN void nn__conv_plan(const tensor_call_t *c, nn__conv_t *v) {
    int id = c->row->id;
    tensor__gemm_t g;
    int64_t m, rows;
    v->c = c;
    v->y = id == NN_OP_CONV2D ? &c->arg[3] : &c->arg[0];
    v->x = id == NN_OP_CONV2D ? &c->arg[0] : id == NN_OP_CONV2D_INPUT ? &c->arg[2] : &c->arg[1];
    v->w = id == NN_OP_CONV2D_WEIGHT ? &c->arg[2] : &c->arg[1];
    v->dtype = v->x->dtype;
    v->es = nn__es(v->dtype);
    v->g = nn__window(c->p, v->y);
    v->groups = v->g.mode;
    v->images = v->x->dims[0];
    v->cg = v->w->dims[1];
    v->og = v->w->dims[0] / v->groups;
    v->taps = v->g.kh * v->g.kw;
    v->kk = v->cg * v->taps;
    v->pixels = v->g.oh * v->g.ow;
    v->direct = v->taps == 1 && v->g.sh == 1 && v->g.sw == 1 && v->g.ph == 0 && v->g.pw == 0 &&
                v->g.oh == v->g.h && v->g.ow == v->g.w;
    v->step = id == NN_OP_CONV2D_INPUT ? nn__max(1, nn__min(v->cg, 256 / v->taps)) : v->cg;
    v->steps = nn__ceil(v->cg, v->step);
    m = v->step * v->taps;
    rows = 262144 / nn__max(1, m * v->g.ow * (int64_t)v->es);
    rows = nn__min(nn__max(rows, nn__ceil(64, nn__max(v->g.ow, 1))), nn__max(v->g.oh, 1));
    v->blocks = nn__max(1, nn__ceil(v->g.oh, rows));
    v->rows = nn__ceil(v->g.oh, v->blocks);
    v->chunks = nn__min(v->images, 8);
    if ((double)v->w->numel * (double)v->es * (double)v->chunks > 33554432.0) v->chunks = 1;
    g = nn__product(v->og, v->rows * v->g.ow, v->kk);
    if (id == NN_OP_CONV2D_INPUT) g = nn__product(m, v->rows * v->g.ow, v->og);
    if (id == NN_OP_CONV2D_WEIGHT) g = nn__product(v->og, v->kk, v->rows * v->g.ow);
    v->columns = v->direct ? 0 : nn__line((uint64_t)(m * v->rows * v->g.ow) * v->es);
    v->gemm = nn__line(TENSOR__(gemm_scratch)(&g));
    // The last block or step may be narrow, and a GEMM over a small result may want more.
    g.m = nn__min(g.m, 64);
    g.n = nn__min(g.n, 64);
    if (TENSOR__(gemm_scratch)(&g) > v->gemm) v->gemm = nn__line(TENSOR__(gemm_scratch)(&g));
    v->worker = v->columns + v->gemm;
}
TENSOR__FN uint64_t nn__scratch_conv(const tensor_call_t *c) {
    nn__conv_t v;
    uint64_t bytes;
    nn__conv_plan(c, &v);
    bytes = v.worker * (uint64_t)TENSOR__(thread_count)();
    if (c->row->id == NN_OP_CONV2D_WEIGHT) bytes += (uint64_t)v.chunks * (uint64_t)v.w->numel * v.es;
    return bytes;
}

// Columns of output rows oy0..oy1 of `channels` planes: [channels * KH * KW][rows * OW].
TENSOR__FN void nn__im2col(const char *x, char *columns, const nn__window_t *g, size_t es, int64_t channels,
                           int64_t oy0, int64_t oy1) {
    int64_t c, ky, kx, oy, ox, lo, hi;
    for (c = 0; c < channels; c++)
        for (ky = 0; ky < g->kh; ky++)
            for (kx = 0; kx < g->kw; kx++) {
                nn__window_range(g, kx, &lo, &hi);
                for (oy = oy0; oy < oy1; oy++, columns += g->ow * (int64_t)es) {
                    int64_t iy = oy * g->sh - g->ph + ky * g->dh, x0 = kx * g->dw - g->pw;
                    const char *from = x + (c * g->h + iy) * g->w * (int64_t)es;
                    if (iy < 0 || iy >= g->h) {
                        memset(columns, 0, (size_t)g->ow * es);
                        continue;
                    }
                    if (lo > 0) memset(columns, 0, (size_t)lo * es);
                    if (g->sw == 1)
                        memcpy(columns + lo * (int64_t)es, from + (lo + x0) * (int64_t)es,
                               (size_t)(hi - lo) * es);
                    else if (es == 4)
                        for (ox = lo; ox < hi; ox++)
                            ((float *)(void *)columns)[ox] =
                                ((const float *)(const void *)from)[ox * g->sw + x0];
                    else
                        for (ox = lo; ox < hi; ox++)
                            ((double *)(void *)columns)[ox] =
                                ((const double *)(const void *)from)[ox * g->sw + x0];
                    if (hi < g->ow) memset(columns + hi * (int64_t)es, 0, (size_t)(g->ow - hi) * es);
                }
            }
}

// Addresses of a task: plane 0 of image i and group q, of x and of y; group q of w.
TENSOR__FN char *nn__conv_x(const nn__conv_t *v, int64_t i, int64_t q) {
    return nn__at(v->x, (i * v->groups + q) * v->cg * v->g.h * v->g.w);
}
TENSOR__FN char *nn__conv_y(const nn__conv_t *v, int64_t i, int64_t q) {
    return nn__at(v->y, (i * v->groups + q) * v->og * v->pixels);
}

TENSOR__FN void nn__conv_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t b = task % v->blocks, q = task / v->blocks % v->groups, i = task / v->blocks / v->groups, o;
    int64_t oy = b * v->rows, end = nn__min(oy + v->rows, v->g.oh), n = (end - oy) * v->g.ow;
    char *columns = (char *)v->c->scratch + v->worker * (uint64_t)worker;
    char *y = nn__conv_y(v, i, q) + oy * v->g.ow * (int64_t)v->es;
    const tensor_arg_t *bias = &v->c->arg[2];
    tensor__gemm_t g = nn__product(v->og, n, v->kk);
    g.a = nn__at(v->w, q * v->og * v->kk);
    g.b = columns;
    if (v->direct) {
        g.b = nn__conv_x(v, i, q) + oy * v->g.ow * (int64_t)v->es;
        g.brs = v->pixels;
    } else
        nn__im2col(nn__conv_x(v, i, q), columns, &v->g, v->es, v->cg, oy, end);
    g.c = y;
    g.crs = v->pixels;
    if (bias->data) {
        g.accumulate = 1;
        for (o = 0; o < v->og; o++)
            v->k->fill(y + o * v->pixels * (int64_t)v->es, nn__value(bias->data, v->dtype, q * v->og + o), n);
    }
    g.scratch = columns + v->columns;
    g.scratch_bytes = (size_t)v->gemm;
    nn__gemm(&g, v->dtype);
}
TENSOR__FN int nn__cpu_conv(tensor_call_t *c) {
    nn__conv_t v;
    nn__conv_plan(c, &v);
    v.k = nn__cpu(v.dtype);
    if (v.y->numel) nn__run(v.images * v.groups * v.blocks, nn__conv_task, &v);
    return TENSOR_OK;
}

// Columns = WT g, added back; a task has some channels of one image, which no other task writes.
TENSOR__FN void nn__conv_input_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t s = task % v->steps, q = task / v->steps % v->groups, i = task / v->steps / v->groups, oy, end;
    int64_t c0 = s * v->step, nc = nn__min(v->step, v->cg - c0), plane = v->g.h * v->g.w;
    char *columns = (char *)v->c->scratch + v->worker * (uint64_t)worker;
    char *x = nn__conv_x(v, i, q) + c0 * plane * (int64_t)v->es;
    v->k->fill(x, 0, nc * plane);
    for (oy = 0; oy < v->g.oh; oy = end) {
        tensor__gemm_t g;
        end = nn__min(oy + v->rows, v->g.oh);
        g = nn__product(nc * v->taps, (end - oy) * v->g.ow, v->og);
        g.a = nn__at(v->w, q * v->og * v->kk + c0 * v->taps);
        g.ars = 1;
        g.acs = v->kk;
        g.b = nn__conv_y(v, i, q) + oy * v->g.ow * (int64_t)v->es;
        g.brs = v->pixels;
        g.c = columns;
        if (v->direct) {
            g.c = x + oy * v->g.ow * (int64_t)v->es;
            g.crs = v->pixels;
        }
        g.scratch = columns + v->columns;
        g.scratch_bytes = (size_t)v->gemm;
        nn__gemm(&g, v->dtype);
        if (!v->direct) v->k->col2im(columns, x, &v->g, nc, oy, end);
    }
}
TENSOR__FN int nn__cpu_conv_input(tensor_call_t *c) {
    nn__conv_t v;
    nn__conv_plan(c, &v);
    v.k = nn__cpu(v.dtype);
    if (v.x->numel) nn__run(v.images * v.groups * v.steps, nn__conv_input_task, &v);
    return TENSOR_OK;
}

// gw = sum over images of g columnsT: each chunk of images sums into its own copy, copies are added in order.
TENSOR__FN void nn__conv_weight_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t q = task / v->chunks, part = task % v->chunks, i, oy, end;
    int64_t first = v->images * part / v->chunks, last = v->images * (part + 1) / v->chunks;
    char *columns = (char *)v->c->scratch + v->worker * (uint64_t)worker, *to = (char *)v->w->data;
    if (v->chunks > 1)
        to = (char *)v->c->scratch + v->worker * (uint64_t)TENSOR__(thread_count)() +
             (uint64_t)part * (uint64_t)v->w->numel * v->es;
    to += q * v->og * v->kk * (int64_t)v->es;
    for (i = first; i < last; i++)
        for (oy = 0; oy < v->g.oh; oy = end) {
            tensor__gemm_t g;
            end = nn__min(oy + v->rows, v->g.oh);
            g = nn__product(v->og, v->kk, (end - oy) * v->g.ow);
            g.a = nn__conv_y(v, i, q) + oy * v->g.ow * (int64_t)v->es;
            g.ars = v->pixels;
            g.b = columns;
            g.brs = 1;
            g.bcs = g.k;
            if (v->direct) {
                g.b = nn__conv_x(v, i, q) + oy * v->g.ow * (int64_t)v->es;
                g.bcs = v->pixels;
            } else
                nn__im2col(nn__conv_x(v, i, q), columns, &v->g, v->es, v->cg, oy, end);
            g.c = to;
            g.accumulate = i > first || oy > 0;
            g.scratch = columns + v->columns;
            g.scratch_bytes = (size_t)v->gemm;
            nn__gemm(&g, v->dtype);
        }
}
TENSOR__FN int nn__cpu_conv_weight(tensor_call_t *c) {
    nn__conv_t v;
    int64_t i;
    const char *parts;
    nn__conv_plan(c, &v);
    v.k = nn__cpu(v.dtype);
    if (v.y->numel == 0 || v.x->numel == 0) {
        v.k->fill(v.w->data, 0, v.w->numel);
        return TENSOR_OK;
    }
    nn__run(v.groups * v.chunks, nn__conv_weight_task, &v);
    if (v.chunks == 1) return TENSOR_OK;
    parts = (const char *)c->scratch + v.worker * (uint64_t)TENSOR__(thread_count)();
    memcpy(v.w->data, parts, (size_t)v.w->numel * v.es);
    for (i = 1; i < v.chunks; i++)
        v.k->add(v.w->data, parts + (uint64_t)i * (uint64_t)v.w->numel * v.es, v.w->numel);
    return TENSOR_OK;
}

// The three convolutions as recorded ops: out has `dims`.
TENSOR__FN tensor_t *nn__conv_op(int id, tensor_t *a, tensor_t *b, tensor_t *bias, const tensor_params_t *p,
                                 const int64_t *dims) {
    tensor__op_t o;
    tensor_t *const in[3] = {nn__contiguous(a), nn__contiguous(b), nn__contiguous(bias)};
    if (!TENSOR__(begin)(&o, nn__row(id), in, id == NN_OP_CONV2D ? 3 : 2)) return TENSOR__(poison);
    o.p = &o.params;
    o.params = *p;
    TENSOR__(result)(&o, in[0]->dtype, dims, 4);
    return TENSOR__(finish)(&o);
}
TENSOR__FN void nn__grad_conv(tensor__grad_t *g) {
    static const int64_t others[3] = {0, 2, 3};
    const tensor__meta_t *in = g->node->in;
    tensor_t *gy = g->gy[0];
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__conv_op(NN_OP_CONV2D_INPUT, gy, TENSOR__(grad_in)(g, 1), NULL, g->p, in[0].dims);
    if (TENSOR__(grad_need)(g, 1))
        g->gx[1] = nn__conv_op(NN_OP_CONV2D_WEIGHT, gy, TENSOR__(grad_in)(g, 0), NULL, g->p, in[1].dims);
    if (TENSOR__(grad_need)(g, 2)) g->gx[2] = (tensor_sum_dims)(gy, others, 3, 0);
}
TENSOR__FN void nn__grad_conv_input(tensor__grad_t *g) {   // inputs g, w; the incoming gradient looks like x
    const tensor__meta_t *in = g->node->in;
    tensor_t *x = g->gy[0];
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__conv_op(NN_OP_CONV2D, x, TENSOR__(grad_in)(g, 1), NULL, g->p, in[0].dims);
    if (TENSOR__(grad_need)(g, 1))
        g->gx[1] = nn__conv_op(NN_OP_CONV2D_WEIGHT, TENSOR__(grad_in)(g, 0), x, NULL, g->p, in[1].dims);
}
TENSOR__FN void nn__grad_conv_weight(tensor__grad_t *g) {   // inputs g, x; the incoming gradient looks like w
    const tensor__meta_t *in = g->node->in;
    tensor_t *w = g->gy[0];
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__conv_op(NN_OP_CONV2D, TENSOR__(grad_in)(g, 1), w, NULL, g->p, in[0].dims);
    if (TENSOR__(grad_need)(g, 1))
        g->gx[1] = nn__conv_op(NN_OP_CONV2D_INPUT, TENSOR__(grad_in)(g, 0), w, NULL, g->p, in[1].dims);
}

// Stride, padding, dilation of both dims into params; -1 for the width = as the height.
TENSOR__FN void nn__window_params(tensor_params_t *p, int64_t kh, int64_t kw, int64_t sh, int64_t sw,
                                  int64_t ph, int64_t pw, int64_t dh, int64_t dw) {
    memset(p, 0, sizeof *p);
    p->i[NN__KH] = kh;
    p->i[NN__KW] = kw < 0 ? kh : kw;
    p->i[NN__SH] = sh;
    p->i[NN__SW] = sw < 0 ? sh : sw;
    p->i[NN__PH] = ph;
    p->i[NN__PW] = pw < 0 ? ph : pw;
    p->i[NN__DH] = dh;
    p->i[NN__DW] = dw < 0 ? dh : dw;
}
// Whether they are in range (large ones would overflow the sizes); raises if not.
TENSOR__FN int nn__window_valid(tensor__thread_t *th, const char *op, const tensor_params_t *p) {
    int k;
    for (k = NN__KH; k <= NN__DW; k++) {
        static const char *const what[8] = {"kernel",  "kernel_w",  "stride",   "stride_w",
                                            "padding", "padding_w", "dilation", "dilation_w"};
        int64_t low = k == NN__PH || k == NN__PW ? 0 : 1;
        if (p->i[k] >= low && p->i[k] <= 0x3FFFFFFF) continue;
        (void)TENSOR__(fail)(th, TENSOR_ERR_SHAPE, "%s: %s %d must be at least %d and below 2^30", op,
                             what[k], p->i[k], low);
        return 0;
    }
    return 1;
}

TENSOR_API tensor_conv2d_args_t tensor_conv2d_defaults(void) {
    tensor_conv2d_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.stride = a.dilation = a.groups = 1;
    a.stride_w = a.padding_w = a.dilation_w = -1;
    return a;
}
TENSOR__FN tensor_t *nn__conv2d_front(const tensor_conv2d_args_t *a) {
    tensor__op_t o;
    tensor_t *in[3], *x = a->x, *w = a->weight, *y;
    tensor_params_t p;
    int64_t dims[4], d, k;
    in[0] = x;
    in[1] = w;
    in[2] = a->bias;
    if (nn__surplus("conv2d", a->surplus_)) return TENSOR__(poison);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_CONV2D), in, 3) || !nn__floats(&o, 7)) return TENSOR__(poison);
    if (x->ndim != 4 && x->ndim != 3)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "conv2d: x %t must be [N, C, H, W] or [C, H, W]", x);
    if (w->ndim != 4)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "conv2d: weight %t must be [O, C / groups, KH, KW]", w);
    if (a->groups < 1 || w->dims[0] % a->groups != 0)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "conv2d: groups %d must divide the %d outputs of weight %t", a->groups,
                              w->dims[0], w);
    if (x->dims[x->ndim - 3] != w->dims[1] * a->groups)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "conv2d: x %t must have %d channels for weight %t, groups %d", x,
                              w->dims[1] * a->groups, w, a->groups);
    if (a->bias && (a->bias->ndim != 1 || a->bias->dims[0] != w->dims[0]))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "conv2d: bias %t must have the %d outputs of weight %t",
                              a->bias, w->dims[0], w);
    nn__window_params(&p, w->dims[2], w->dims[3], a->stride, a->stride_w, a->padding, a->padding_w,
                      a->dilation, a->dilation_w);
    if (!nn__window_valid(o.th, "conv2d", &p)) return TENSOR__(poison);
    if (a->same && (p.i[NN__SH] != 1 || p.i[NN__SW] != 1 || p.i[NN__PH] != 0 || p.i[NN__PW] != 0))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "conv2d: same needs stride 1 and no padding (got stride %d, %d)", p.i[NN__SH],
                              p.i[NN__SW]);
    if (nn__is_half(x)) {
        tensor_conv2d_args_t wide = *a;
        wide.x = nn__wide(x);
        wide.weight = nn__wide(w);
        wide.bias = nn__wide(a->bias);
        return nn__narrow(nn__conv2d_front(&wide), x);
    }
    p.i[NN__GROUPS] = a->groups;
    dims[0] = x->ndim == 4 ? x->dims[0] : 1;
    dims[1] = w->dims[0];
    for (d = 0; d < 2; d++) {
        int64_t size = x->dims[x->ndim - 2 + d], span = p.i[NN__DH + d] * (p.i[NN__KH + d] - 1);
        p.i[NN__H + d] = size;
        if (a->same) {
            p.i[NN__PH + d] = span / 2;
            dims[2 + d] = size;
            continue;
        }
        k = size + 2 * p.i[NN__PH + d] - span - 1;
        if (k < 0)
            return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                                  "conv2d: kernel of weight %t (%d with dilation) is larger than "
                                  "x %t with padding %d",
                                  w, span + 1, x, p.i[NN__PH + d]);
        dims[2 + d] = k / p.i[NN__SH + d] + 1;
    }
    y = nn__conv_op(NN_OP_CONV2D, x->ndim == 4 ? x : (tensor_unsqueeze)(x, 0), w, a->bias, &p, dims);
    return x->ndim == 4 ? y : (tensor_reshape_n)(y, dims + 1, 3);
}
TENSOR_API tensor_t *tensor_conv2d_with(tensor_conv2d_args_t a) {
    return tensor__at(a.site_, nn__conv2d_front(&a));
}
TENSOR_API tensor_t *tensor__conv2d(tensor_conv2d_args_t a) {
    a.stride = nn__or(a.stride, 1);
    a.dilation = nn__or(a.dilation, 1);
    a.groups = nn__or(a.groups, 1);
    a.stride_w = nn__or(a.stride_w, -1);
    a.padding = nn__or(a.padding, 0);
    a.padding_w = nn__or(a.padding_w, -1);
    a.dilation_w = nn__or(a.dilation_w, -1);
    return tensor_conv2d_with(a);
}

// ---- pooling: one plane after another

typedef struct nn__pool_t {
    const nn__cpu_t *k;
    nn__window_t g;
    const tensor_arg_t *x, *y, *place;
    int64_t planes, per, in, out;   // planes, of them per task, elements of an input and an output plane
    int back;
} nn__pool_t;

TENSOR__FN void nn__pool_plan(nn__pool_t *v, const tensor_params_t *p, const tensor_arg_t *x,
                              const tensor_arg_t *y, const tensor_arg_t *place, int back) {
    v->k = nn__cpu(x->dtype);
    v->g = nn__window(p, y);
    v->x = x;
    v->y = y;
    v->place = place;
    v->back = back;
    v->in = v->g.h * v->g.w;
    v->out = v->g.oh * v->g.ow;
    v->planes = v->out ? y->numel / v->out : 0;
    v->per = nn__per(v->planes, v->in + v->out * 4);
}
TENSOR__FN void nn__max_pool_task(void *arg, int64_t task, int worker) {
    const nn__pool_t *v = (const nn__pool_t *)arg;
    int64_t i = task * v->per, end = nn__min(i + v->per, v->planes);
    (void)worker;
    for (; i < end; i++) {
        int32_t *place = (int32_t *)v->place->data + i * v->out;
        if (!v->back) {
            v->k->max_pool(nn__at(v->x, i * v->in), nn__at(v->y, i * v->out), place, &v->g);
            continue;
        }
        v->k->fill(nn__at(v->x, i * v->in), 0, v->in);
        v->k->max_unpool(nn__at(v->y, i * v->out), place, nn__at(v->x, i * v->in), v->out);
    }
}
TENSOR__FN void nn__avg_pool_task(void *arg, int64_t task, int worker) {
    const nn__pool_t *v = (const nn__pool_t *)arg;
    int64_t i = task * v->per, end = nn__min(i + v->per, v->planes);
    (void)worker;
    for (; i < end; i++) {
        if (v->back) v->k->fill(nn__at(v->x, i * v->in), 0, v->in);
        v->k->avg_pool(nn__at(v->x, i * v->in), nn__at(v->y, i * v->out), &v->g, v->back);
    }
}
TENSOR__FN int nn__cpu_max_pool(tensor_call_t *c) {
    nn__pool_t v;
    nn__pool_plan(&v, c->p, &c->arg[0], &c->arg[1], &c->arg[2], 0);
    nn__run(nn__ceil(v.planes, v.per), nn__max_pool_task, &v);
    return TENSOR_OK;
}
TENSOR__FN int nn__cpu_max_unpool(tensor_call_t *c) {
    nn__pool_t v;
    nn__pool_plan(&v, c->p, &c->arg[2], &c->arg[0], &c->arg[1], 1);
    nn__run(nn__ceil(v.planes, v.per), nn__max_pool_task, &v);
    return TENSOR_OK;
}
TENSOR__FN int nn__cpu_avg_pool(tensor_call_t *c) {
    nn__pool_t v;
    int back = c->row->id == NN_OP_AVG_POOL2D_BACKWARD;
    nn__pool_plan(&v, c->p, &c->arg[back], &c->arg[1 - back], NULL, back);
    nn__run(nn__ceil(v.planes, v.per), nn__avg_pool_task, &v);
    return TENSOR_OK;
}

// A pooling op of x (and places, for the gradient of max) with the last two dims h, w.
TENSOR__FN tensor_t *nn__pool_op(int id, tensor_t *x, tensor_t *place, const tensor_params_t *p, int64_t h,
                                 int64_t w) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__contiguous(x), place};
    int64_t dims[TENSOR_MAX_DIMS];
    if (!TENSOR__(begin)(&o, nn__row(id), in, place ? 2 : 1)) return TENSOR__(poison);
    o.p = &o.params;
    o.params = *p;
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    dims[x->ndim - 2] = h;
    dims[x->ndim - 1] = w;
    TENSOR__(result)(&o, x->dtype, dims, x->ndim);
    if (id == NN_OP_MAX_POOL2D) TENSOR__(result)(&o, TENSOR_I32, dims, x->ndim);
    return TENSOR__(finish)(&o);
}
TENSOR__FN void nn__grad_max_pool(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__pool_op(NN_OP_MAX_POOL2D_BACKWARD, g->gy[0], TENSOR__(grad_out)(g, 1), g->p,
                               g->p->i[NN__H], g->p->i[NN__W]);
}
// Of the gradient: what was added at the places is gathered from them.
TENSOR__FN void nn__grad_max_unpool(tensor__grad_t *g) {
    tensor_t *place = TENSOR__(grad_in)(g, 1), *flat;
    const tensor__meta_t *in = &g->node->in[0];
    int64_t from[2], to[2];
    if (!TENSOR__(grad_need)(g, 0)) return;
    to[1] = in->dims[in->ndim - 2] * in->dims[in->ndim - 1];
    to[0] = from[0] = place->numel / nn__max(to[1], 1);
    from[1] = g->p->i[NN__H] * g->p->i[NN__W];
    flat = (tensor_gather)((tensor_reshape_n)(g->gy[0], from, 2), 1, (tensor_reshape_n)(place, to, 2));
    g->gx[0] = (tensor_reshape_n)(flat, in->dims, in->ndim);
}
TENSOR__FN void nn__grad_avg_pool(tensor__grad_t *g) {
    int back = g->node->row->id == NN_OP_AVG_POOL2D_BACKWARD;
    const tensor__meta_t *in = &g->node->in[0];
    if (TENSOR__(grad_need)(g, 0))
        g->gx[0] = nn__pool_op(back ? NN_OP_AVG_POOL2D : NN_OP_AVG_POOL2D_BACKWARD, g->gy[0], NULL, g->p,
                               in->dims[in->ndim - 2], in->dims[in->ndim - 1]);
}

// The common front. ceil: windows may start inside the padded image and end outside.
TENSOR__FN tensor_t *nn__pool_front(int id, tensor_t *x, tensor_params_t *p, int ceil) {
    tensor__op_t o;
    const char *op = nn__row(id)->name;
    int64_t out[2], d, k;
    if (!TENSOR__(begin)(&o, nn__row(id), &x, 1) || !nn__floats(&o, 1)) return TENSOR__(poison);
    if (x->ndim != 4 && x->ndim != 3)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: x %t must be [N, C, H, W] or [C, H, W]", op, x);
    if (!nn__window_valid(o.th, op, p)) return TENSOR__(poison);
    for (d = 0; d < 2; d++) {
        int64_t size = x->dims[x->ndim - 2 + d], pad = p->i[NN__PH + d], stride = p->i[NN__SH + d];
        p->i[NN__H + d] = size;
        if (2 * pad > p->i[NN__KH + d])
            return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: padding %d must be at most half the kernel %d",
                                  op, pad, p->i[NN__KH + d]);
        k = size + 2 * pad - p->i[NN__DH + d] * (p->i[NN__KH + d] - 1) - 1;
        if (k < 0 || size == 0)
            return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                                  "%s: kernel %d does not fit into x %t with padding %d", op,
                                  p->i[NN__KH + d], x, pad);
        out[d] = (k + (ceil ? stride - 1 : 0)) / stride + 1;
        if (ceil && (out[d] - 1) * stride >= size + pad) out[d]--;
    }
    if (p->i[NN__H] * p->i[NN__W] > 0x7FFFFFFF || p->i[NN__H] > 0x7FFFFFFF || p->i[NN__W] > 0x7FFFFFFF)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: planes of x %t must have less than 2^31 elements",
                              op, x);
    if (nn__is_half(x)) return nn__narrow(nn__pool_op(id, nn__wide(x), NULL, p, out[0], out[1]), x);
    return nn__pool_op(id, x, NULL, p, out[0], out[1]);
}

TENSOR_API tensor_max_pool2d_args_t tensor_max_pool2d_defaults(void) {
    tensor_max_pool2d_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.dilation = 1;
    a.kernel_w = a.stride_w = a.padding_w = a.dilation_w = -1;
    return a;
}
TENSOR_API tensor_t *tensor_max_pool2d_with(tensor_max_pool2d_args_t a) {
    tensor_params_t p;
    if (nn__surplus("max_pool2d", a.surplus_)) return tensor__at(a.site_, TENSOR__(poison));
    nn__window_params(&p, a.kernel, a.kernel_w, a.stride ? a.stride : a.kernel,
                      a.stride_w < 0 && !a.stride ? a.kernel_w : a.stride_w, a.padding, a.padding_w,
                      a.dilation, a.dilation_w);
    return tensor__at(a.site_, nn__pool_front(NN_OP_MAX_POOL2D, a.x, &p, a.ceil_mode));
}
TENSOR_API tensor_t *tensor__max_pool2d(tensor_max_pool2d_args_t a) {
    a.kernel_w = nn__or(a.kernel_w, -1);
    a.stride_w = nn__or(a.stride_w, -1);
    a.padding = nn__or(a.padding, 0);
    a.padding_w = nn__or(a.padding_w, -1);
    a.dilation = nn__or(a.dilation, 1);
    a.dilation_w = nn__or(a.dilation_w, -1);
    return tensor_max_pool2d_with(a);
}

TENSOR_API tensor_avg_pool2d_args_t tensor_avg_pool2d_defaults(void) {
    tensor_avg_pool2d_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.kernel_w = a.stride_w = a.padding_w = -1;
    return a;
}
TENSOR_API tensor_t *tensor_avg_pool2d_with(tensor_avg_pool2d_args_t a) {
    tensor_params_t p;
    if (nn__surplus("avg_pool2d", a.surplus_)) return tensor__at(a.site_, TENSOR__(poison));
    nn__window_params(&p, a.kernel, a.kernel_w, a.stride ? a.stride : a.kernel,
                      a.stride_w < 0 && !a.stride ? a.kernel_w : a.stride_w, a.padding, a.padding_w, 1, 1);
    p.i[NN__MODE] = a.no_count_pad ? NN__NO_COUNT_PAD : NN__COUNT_PAD;
    p.i[NN__DIVISOR] = a.divisor_override;
    return tensor__at(a.site_, nn__pool_front(NN_OP_AVG_POOL2D, a.x, &p, a.ceil_mode));
}
TENSOR_API tensor_t *tensor__avg_pool2d(tensor_avg_pool2d_args_t a) {
    a.kernel_w = nn__or(a.kernel_w, -1);
    a.stride_w = nn__or(a.stride_w, -1);
    a.padding = nn__or(a.padding, 0);
    a.padding_w = nn__or(a.padding_w, -1);
    return tensor_avg_pool2d_with(a);
}
TENSOR_API tensor_t *(tensor_adaptive_avg_pool2d)(tensor_t *x, int64_t h, int64_t w) {
    tensor__op_t o;
    tensor_params_t p;
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_AVG_POOL2D), &x, 1) || !nn__floats(&o, 1)) return TENSOR__(poison);
    if ((x->ndim != 4 && x->ndim != 3) || h < 1 || w < 1 || x->dims[x->ndim - 1] < 1 ||
        x->dims[x->ndim - 2] < 1)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "adaptive_avg_pool2d: x %t must be [N, C, H, W] or [C, H, W], "
                              "output %d x %d at least 1 x 1",
                              x, h, w);
    nn__window_params(&p, 1, 1, 1, 1, 0, 0, 1, 1);
    p.i[NN__MODE] = NN__ADAPTIVE;
    p.i[NN__H] = x->dims[x->ndim - 2];
    p.i[NN__W] = x->dims[x->ndim - 1];
    if (nn__is_half(x)) return nn__narrow(nn__pool_op(NN_OP_AVG_POOL2D, nn__wide(x), NULL, &p, h, w), x);
    return nn__pool_op(NN_OP_AVG_POOL2D, x, NULL, &p, h, w);
}

// ---- dropout: the mask is a function of the stream and the element's index, so backward draws it again

typedef struct nn__dropout_t {
    const tensor_call_t *c;
    const nn__cpu_t *k;
    uint32_t keep;
    double scale;
} nn__dropout_t;
enum { NN__DROPOUT_BLOCK = 16384 };   // elements per task, a multiple of 4

TENSOR__FN void nn__dropout_task(void *arg, int64_t task, int worker) {
    const nn__dropout_t *v = (const nn__dropout_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t first = task * NN__DROPOUT_BLOCK;
    (void)worker;
    v->k->dropout(nn__at(&a[0], first), nn__at(&a[1], first), first,
                  nn__min(NN__DROPOUT_BLOCK, a[0].numel - first), v->c->rng, v->keep, v->scale);
}
TENSOR__FN int nn__cpu_dropout(tensor_call_t *c) {
    nn__dropout_t v;
    double p = c->p->f[0];
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.keep = (uint32_t)((1 - p) * 16777216.0 + 0.5);
    v.scale = p < 1 ? 1 / (1 - p) : 0;
    nn__run(nn__ceil(c->arg[0].numel, NN__DROPOUT_BLOCK), nn__dropout_task, &v);
    return TENSOR_OK;
}
TENSOR__FN tensor_t *nn__dropout_op(tensor_t *x, double p, const tensor_generator_t *rng) {
    tensor__op_t o;
    tensor_t *const in[1] = {nn__contiguous(x)};
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_DROPOUT), in, 1)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.f[0] = p;
    o.rng = rng ? *rng : TENSOR__(next_stream)(o.th);
    TENSOR__(result)(&o, x->dtype, x->dims, x->ndim);
    return TENSOR__(finish)(&o);
}
TENSOR__FN void nn__grad_dropout(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0)) g->gx[0] = nn__dropout_op(g->gy[0], g->p->f[0], &g->node->rng);
}
TENSOR_API tensor_t *(tensor_dropout)(tensor_t *x, double p, int training) {
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_DROPOUT), &x, 1) || !nn__floats(&o, 1)) return TENSOR__(poison);
    if (!(p >= 0 && p <= 1))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "dropout: p %g must be in 0..1 (x %t)", p, x);
    if (!training || p == 0) return x;
    if (nn__is_half(x)) return nn__narrow(nn__dropout_op(nn__wide(x), p, NULL), x);
    return nn__dropout_op(x, p, NULL);
}

// ---- attention: blocks of 64 queries of one head against all keys; scores never leave the worker's scratch

enum { NN__QUERIES = 64 };

typedef struct nn__attention_t {
    const nn__cpu_t *k;
    const tensor_arg_t *q, *key, *v, *y, *lse, *g, *dq, *dk, *dv;
    int64_t heads, t, s, e, ev, blocks;
    int causal, dtype;
    double scale;
    size_t es;
    char *scratch;
    uint64_t tile, gemm, worker;   // bytes: one block of scores, a GEMM, a worker
} nn__attention_t;

TENSOR__FN void nn__attention_plan(const tensor_call_t *c, nn__attention_t *v) {
    int back = c->row->id == NN_OP_ATTENTION_BACKWARD, k;
    const tensor_arg_t *a = c->arg;
    int64_t bq, sizes[5][3];
    v->g = back ? a++ : NULL;
    v->q = a++;
    v->key = a++;
    v->v = a++;
    v->y = a++;
    v->lse = a++;
    v->dq = a;
    v->dk = a + 1;
    v->dv = a + 2;
    v->dtype = v->q->dtype;
    v->es = nn__es(v->dtype);
    v->t = v->q->dims[v->q->ndim - 2];
    v->e = v->q->dims[v->q->ndim - 1];
    v->s = v->key->dims[v->key->ndim - 2];
    v->ev = v->v->dims[v->v->ndim - 1];
    v->heads = v->lse->numel / nn__max(v->t, 1);
    v->blocks = nn__ceil(v->t, NN__QUERIES);
    v->causal = (int)c->p->i[0];
    v->scale = c->p->f[0];
    v->scratch = (char *)c->scratch;
    bq = nn__min(v->t, NN__QUERIES);
    sizes[0][0] = bq, sizes[0][1] = v->s, sizes[0][2] = v->e;
    sizes[1][0] = bq, sizes[1][1] = v->ev, sizes[1][2] = v->s;
    sizes[2][0] = bq, sizes[2][1] = v->s, sizes[2][2] = v->ev;
    sizes[3][0] = bq, sizes[3][1] = v->e, sizes[3][2] = v->s;
    sizes[4][0] = v->s, sizes[4][1] = nn__max(v->e, v->ev), sizes[4][2] = bq;
    for (v->gemm = 0, k = 0; k < 5; k++) {
        tensor__gemm_t g = nn__product(sizes[k][0], sizes[k][1], sizes[k][2]);
        uint64_t bytes = nn__line(TENSOR__(gemm_scratch)(&g));
        if (bytes > v->gemm) v->gemm = bytes;
    }
    v->tile = nn__line((uint64_t)bq * (uint64_t)v->s * v->es);
    v->worker = v->tile * (back ? 2 : 1) + v->gemm;
}
TENSOR__FN uint64_t nn__scratch_attention(const tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    return v.worker * (uint64_t)TENSOR__(thread_count)();
}

// Address of row t of head `head`, for any strides.
TENSOR__FN char *nn__head(const tensor_arg_t *a, int64_t head, int64_t t) {
    int64_t offset = t * a->strides[a->ndim - 2];
    int d;
    for (d = a->ndim - 3; d >= 0; d--) {
        offset += head % a->dims[d] * a->strides[d];
        head /= a->dims[d];
    }
    return nn__at(a, offset);
}

// c (+)= a b; a and b are rows of heads (their own strides; bt: b transposed) or tiles (NULL argument).
TENSOR__FN void nn__attention_product(const nn__attention_t *v, tensor__gemm_t *g, const tensor_arg_t *a,
                                      const tensor_arg_t *b, int bt, char *scratch) {
    if (a) {
        g->ars = a->strides[a->ndim - 2];
        g->acs = a->strides[a->ndim - 1];
    }
    if (b) {
        g->brs = b->strides[b->ndim - 2 + bt];
        g->bcs = b->strides[b->ndim - 1 - bt];
    }
    g->scratch = scratch;
    g->scratch_bytes = (size_t)v->gemm;
    nn__gemm(g, v->dtype);
}

// Scores of queries t..t+n of a head against the first `keys` keys.
TENSOR__FN void nn__attention_scores(const nn__attention_t *v, int64_t head, int64_t t, int64_t n,
                                     int64_t keys, char *tile, char *scratch) {
    tensor__gemm_t g = nn__product(n, keys, v->e);
    g.a = nn__head(v->q, head, t);
    g.b = nn__head(v->key, head, 0);
    g.c = tile;
    nn__attention_product(v, &g, v->q, v->key, 1, scratch);
}

TENSOR__FN void nn__attention_task(void *arg, int64_t task, int worker) {
    const nn__attention_t *v = (const nn__attention_t *)arg;
    int64_t head = task / v->blocks, t = task % v->blocks * NN__QUERIES, n = nn__min(NN__QUERIES, v->t - t),
            i;
    int64_t keys = v->causal ? nn__min(v->s, t + n) : v->s;
    char *tile = v->scratch + v->worker * (uint64_t)worker, *y = nn__at(v->y, (head * v->t + t) * v->ev);
    double sum[NN__QUERIES], lse;
    tensor__gemm_t g;
    nn__attention_scores(v, head, t, n, keys, tile, tile + v->tile);
    for (i = 0; i < n; i++) {
        int64_t valid = v->causal ? nn__min(keys, t + i + 1) : keys;
        sum[i] = v->k->attend(tile + i * keys * (int64_t)v->es, valid, keys, v->scale, &lse);
        nn__store(v->lse->data, v->dtype, head * v->t + t + i, lse);
    }
    g = nn__product(n, v->ev, keys);
    g.a = tile;
    g.b = nn__head(v->v, head, 0);
    g.c = y;
    nn__attention_product(v, &g, NULL, v->v, 0, tile + v->tile);
    for (i = 0; i < n; i++)
        v->k->scale(y + i * v->ev * (int64_t)v->es, sum[i] > 0 ? 1 / sum[i] : sum[i], v->ev);
}
TENSOR__FN int nn__cpu_attention(tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    v.k = nn__cpu(v.dtype);
    if (v.y->numel || v.lse->numel) nn__run(v.heads * v.blocks, nn__attention_task, &v);
    return TENSOR_OK;
}

// One head: with P recomputed and D = P (g vT - delta) scale, dv = PT g, dq = D k, dk = DT q, block after
// block.
TENSOR__FN void nn__attention_back_task(void *arg, int64_t head, int worker) {
    const nn__attention_t *v = (const nn__attention_t *)arg;
    char *p = v->scratch + v->worker * (uint64_t)worker, *d = p + v->tile, *scratch = d + v->tile;
    char *dk = nn__at(v->dk, head * v->s * v->e), *dv = nn__at(v->dv, head * v->s * v->ev);
    int64_t t, i;
    v->k->fill(dk, 0, v->s * v->e);
    v->k->fill(dv, 0, v->s * v->ev);
    for (t = 0; t < v->t; t += NN__QUERIES) {
        int64_t n = nn__min(NN__QUERIES, v->t - t), keys = v->causal ? nn__min(v->s, t + n) : v->s;
        tensor__gemm_t m = nn__product(n, keys, v->ev);
        nn__attention_scores(v, head, t, n, keys, p, scratch);
        m.a = nn__head(v->g, head, t);
        m.b = nn__head(v->v, head, 0);
        m.c = d;
        nn__attention_product(v, &m, v->g, v->v, 1, scratch);
        for (i = 0; i < n; i++) {
            int64_t row = head * v->t + t + i, at = i * keys * (int64_t)v->es;
            double delta = v->k->dot(nn__head(v->g, head, t + i), nn__at(v->y, row * v->ev), v->ev);
            v->k->attend_back(p + at, d + at, v->causal ? nn__min(keys, t + i + 1) : keys, keys, v->scale,
                              nn__value(v->lse->data, v->dtype, row), delta);
        }
        m = nn__product(keys, v->ev, n);
        m.a = p;
        m.ars = 1;
        m.acs = keys;
        m.b = nn__head(v->g, head, t);
        m.c = dv;
        m.accumulate = 1;
        nn__attention_product(v, &m, NULL, v->g, 0, scratch);
        m = nn__product(keys, v->e, n);
        m.a = d;
        m.ars = 1;
        m.acs = keys;
        m.b = nn__head(v->q, head, t);
        m.c = dk;
        m.accumulate = 1;
        nn__attention_product(v, &m, NULL, v->q, 0, scratch);
        m = nn__product(n, v->e, keys);
        m.a = d;
        m.b = nn__head(v->key, head, 0);
        m.c = nn__at(v->dq, (head * v->t + t) * v->e);
        nn__attention_product(v, &m, NULL, v->key, 0, scratch);
    }
}
TENSOR__FN int nn__cpu_attention_back(tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    v.k = nn__cpu(v.dtype);
    if (v.dq->numel || v.dk->numel || v.dv->numel) nn__run(v.heads, nn__attention_back_task, &v);
    return TENSOR_OK;
}

// mask: bool (true = look) or float to add, NULL = none.
TENSOR__FN tensor_t *nn__attention_composed(tensor_t *q, tensor_t *k, tensor_t *v, tensor_t *mask, int causal,
                                            double scale, double dropout) {
    tensor_t *s = (tensor_mul_scalar)((tensor_matmul)(q, (tensor_mT)(k)), scale), *dead;
    int64_t dims[2];
    if (causal) {
        dims[0] = q->dims[q->ndim - 2];
        dims[1] = k->dims[k->ndim - 2];
        mask = (tensor_tril)((tensor_ones_n)(dims, 2, TENSOR_BOOL), 0);
    }
    if (mask && mask->dtype == TENSOR_BOOL)
        s = (tensor_masked_fill)(s, (tensor_logical_not)(mask), -INFINITY);
    else if (mask)
        s = (tensor_add)(s, mask);
    // A row of -inf alone would be NaN; it counts as zeros.
    dead = mask ? (tensor_eq_scalar)((tensor_amax_dim)((tensor_detach)(s), -1, 1), -INFINITY) : NULL;
    if (dead) s = (tensor_masked_fill)(s, dead, 0);
    s = (tensor_softmax)(s, -1);
    if (dead) s = (tensor_masked_fill)(s, dead, 0);
    if (dropout > 0) s = (tensor_dropout)(s, dropout, 1);
    return (tensor_matmul)(s, v);
}
TENSOR__FN tensor_t *nn__composed_attention(tensor_t *const *in, const tensor_params_t *p) {
    return nn__attention_composed(in[0], in[1], in[2], NULL, (int)p->i[0], p->f[0], 0);
}

TENSOR__FN void nn__grad_attention(tensor__grad_t *g) {
    tensor__op_t o;
    tensor_t *in[6], *r;
    int k;
    if (g->create) {
        nn__grad_composed(g, nn__composed_attention);
        return;
    }
    in[0] = g->gy[0];
    if (in[0]->strides[in[0]->ndim - 1] != 1) in[0] = nn__contiguous(in[0]);
    for (k = 0; k < 3; k++) in[1 + k] = nn__saved(g, k);
    in[4] = TENSOR__(grad_out)(g, 0);
    in[5] = TENSOR__(grad_out)(g, 1);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_ATTENTION_BACKWARD), in, 6)) return;
    o.p = &o.params;
    o.params = *g->p;
    o.visible = 3;
    for (k = 0; k < 3; k++) TENSOR__(result)(&o, in[1 + k]->dtype, in[1 + k]->dims, in[1 + k]->ndim);
    r = TENSOR__(finish)(&o);
    for (k = 0; k < 3; k++)
        if (TENSOR__(grad_need)(g, k)) g->gx[k] = r->state == TENSOR__POISON_STATE ? r : o.out[k];
}

TENSOR_API tensor_scaled_dot_product_attention_args_t tensor_scaled_dot_product_attention_defaults(void) {
    tensor_scaled_dot_product_attention_args_t a;
    memset((void *)&a, 0, sizeof a);
    return a;
}
TENSOR__FN tensor_t *nn__attention_front(const tensor_scaled_dot_product_attention_args_t *a) {
    static const char name[] = "scaled_dot_product_attention";
    tensor__op_t o;
    tensor_t *const in[3] = {a->query, a->key, a->value};
    tensor_t *q = a->query, *k = a->key, *v = a->value, *mask = a->attn_mask;
    int64_t dims[TENSOR_MAX_DIMS], d, same;
    double scale;
    if (nn__surplus(name, a->surplus_)) return TENSOR__(poison);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_ATTENTION), in, 3) || !nn__floats(&o, 7)) return TENSOR__(poison);
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "%s: query %t, key %t, value %t must have at least 2 dims", name, q, k, v);
    if (q->dims[q->ndim - 1] != k->dims[k->ndim - 1])
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: query %t and key %t must have one last dim", name,
                              q, k);
    if (k->dims[k->ndim - 2] != v->dims[v->ndim - 2])
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: key %t and value %t must have one length", name, k,
                              v);
    if (mask && a->is_causal)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: attn_mask %t and is_causal exclude each other",
                              name, mask);
    if (mask && mask->state == TENSOR__LIVE && mask->dtype != TENSOR_BOOL && mask->dtype != q->dtype)
        return TENSOR__(fail)(o.th, TENSOR_ERR_DTYPE, "%s: attn_mask is %y, must be bool or %y as query",
                              name, mask, q);
    if (!(a->dropout_p >= 0 && a->dropout_p <= 1))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: dropout_p %g must be in 0..1", name, a->dropout_p);
    if (nn__is_half(q)) {
        tensor_scaled_dot_product_attention_args_t wide = *a;
        wide.query = nn__wide(q);
        wide.key = nn__wide(k);
        wide.value = nn__wide(v);
        wide.attn_mask = nn__wide(mask);
        return nn__narrow(nn__attention_front(&wide), q);
    }
    scale = a->scale != 0 ? a->scale : 1 / sqrt((double)nn__max(q->dims[q->ndim - 1], 1));
    same = q->ndim == k->ndim && q->ndim == v->ndim;
    for (d = 0; same && d + 2 < q->ndim; d++) same = q->dims[d] == k->dims[d] && q->dims[d] == v->dims[d];
    if (mask || a->dropout_p > 0 || !same || k->dims[k->ndim - 2] == 0)
        return nn__attention_composed(q, k, v, mask, a->is_causal, scale, a->dropout_p);
    o.p = &o.params;
    o.params.i[0] = a->is_causal != 0;
    o.params.f[0] = scale;
    memcpy(dims, q->dims, (size_t)q->ndim * sizeof dims[0]);
    dims[q->ndim - 1] = v->dims[v->ndim - 1];
    TENSOR__(result)(&o, q->dtype, dims, q->ndim);
    TENSOR__(result)(&o, q->dtype, dims, q->ndim - 1);
    return TENSOR__(finish)(&o);
}
TENSOR_API tensor_t *tensor_scaled_dot_product_attention_with(tensor_scaled_dot_product_attention_args_t a) {
    return tensor__at(a.site_, nn__attention_front(&a));
}
TENSOR_API tensor_t *tensor__scaled_dot_product_attention(tensor_scaled_dot_product_attention_args_t a) {
    return tensor_scaled_dot_product_attention_with(a);
}

// ------------------------------------------------------------------------------
// >>impl-losses                                    MARK: losses
//
// Sums are cut by shape alone into chunks whose partial sums (double) are added in order.
// ------------------------------------------------------------------------------

enum { NN__LOSS_CHUNK = 4096 };   // elements per task

// Words of the loss formulas on tensors; constants are 0-d tensors of the dtype dt.
#define T_ADD(a, b) (tensor_add)(a, b)
#define T_SUB(a, b) (tensor_sub)(a, b)
#define T_MUL(a, b) (tensor_mul)(a, b)
#define T_DIV(a, b) (tensor_div)(a, b)
#define T_NEG(a) (tensor_neg)(a)
#define T_ABS(a) (tensor_abs)(a)
#define T_EXP(a) (tensor_exp)(a)
#define T_LOG(a) (tensor_log)(a)
#define T_LOG1P(a) (tensor_log1p)(a)
#define T_MAX(a, b) (tensor_maximum)(a, b)
#define T_LT(a, b) (tensor_lt)(a, b)
#define T_LE(a, b) (tensor_le)(a, b)
#define T_EQ(a, b) (tensor_eq)(a, b)
#define T_SEL(m, a, b) (tensor_where)(m, a, b)
#define T_SET(c) (tensor_scalar)(c, dt)
#define T_NLS(a) (tensor_neg)((tensor_logsigmoid)(a))

// ---- pointwise losses

typedef struct nn__loss_job_t {
    const tensor_call_t *c;
    const nn__cpu_t *k;
    int64_t n, rows, per, classes;
    double scale;
    int reduction, dtype;
    double *part;
} nn__loss_job_t;

// What a loss of n terms is multiplied with. batch: size of dim 0.
TENSOR__FN double nn__loss_factor(int reduction, int64_t n, int64_t batch) {
    return reduction == TENSOR_MEAN ? 1 / (double)n : reduction == TENSOR_BATCHMEAN ? 1 / (double)batch : 1;
}
TENSOR__FN double nn__loss_scale(const tensor_params_t *p, const tensor_arg_t *x) {
    return nn__loss_factor((int)p->i[1], x->numel, x->ndim ? x->dims[0] : 1);
}

TENSOR__FN uint64_t nn__scratch_loss(const tensor_call_t *c) {
    return (uint64_t)(c->arg[0].numel / NN__LOSS_CHUNK + 1) * 2 * sizeof(double);
}
TENSOR__FN void nn__loss_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t first = task * NN__LOSS_CHUNK;
    char *y = v->reduction == TENSOR_NONE ? nn__at(&a[4], first) : NULL;
    (void)worker;
    v->part[task] =
        v->k->loss((int)v->c->p->i[0], nn__at(&a[0], first), nn__at(&a[1], first), nn__at(&a[2], first),
                   nn__at(&a[3], first), y, nn__min(NN__LOSS_CHUNK, v->n - first), v->c->p->f[0]);
}
TENSOR__FN int nn__cpu_loss(tensor_call_t *c) {
    nn__loss_job_t v;
    int64_t i, tasks;
    double s = 0;
    v.c = c;
    v.dtype = c->arg[0].dtype;
    v.k = nn__cpu(v.dtype);
    v.n = c->arg[0].numel;
    v.reduction = (int)c->p->i[1];
    v.part = (double *)c->scratch;
    for (i = 0; c->p->i[0] == NN__LOSS_BCE && i < v.n; i++) {
        double x = nn__value(c->arg[0].data, v.dtype, i);
        if (x >= 0 && x <= 1) continue;
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX, "%s: input %g at position %d is not in 0..1",
                             c->row->name, x, i);
        return TENSOR_ERR_INDEX;
    }
    tasks = nn__ceil(v.n, NN__LOSS_CHUNK);
    nn__run(tasks, nn__loss_task, &v);
    if (v.reduction == TENSOR_NONE) return TENSOR_OK;
    for (i = 0; i < tasks; i++) s += v.part[i];
    nn__store(c->arg[4].data, v.dtype, 0, s * nn__loss_scale(c->p, &c->arg[0]));
    return TENSOR_OK;
}

TENSOR__FN void nn__loss_back_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t first = task * NN__LOSS_CHUNK, step = v->reduction == TENSOR_NONE;
    (void)worker;
    v->k->loss_back((int)v->c->p->i[0], nn__at(&a[0], first * step), step, v->scale, nn__at(&a[1], first),
                    nn__at(&a[2], first), nn__at(&a[3], first), nn__at(&a[4], first),
                    a[5].numel ? nn__at(&a[5], first) : NULL, a[6].numel ? nn__at(&a[6], first) : NULL,
                    nn__min(NN__LOSS_CHUNK, v->n - first), v->c->p->f[0]);
}
TENSOR__FN int nn__cpu_loss_back(tensor_call_t *c) {
    nn__loss_job_t v;
    v.c = c;
    v.dtype = c->arg[1].dtype;
    v.k = nn__cpu(v.dtype);
    v.n = c->arg[1].numel;
    v.reduction = (int)c->p->i[1];
    v.scale = nn__loss_scale(c->p, &c->arg[1]);
    nn__run(nn__ceil(v.n, NN__LOSS_CHUNK), nn__loss_back_task, &v);
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__reduced(tensor_t *y, const tensor_params_t *p, const tensor_t *x) {
    if (p->i[1] == TENSOR_NONE) return y;
    y = (tensor_sum)(y);
    return (tensor_mul_scalar)(y, nn__loss_factor((int)p->i[1], x->numel, x->ndim ? x->dims[0] : 1));
}

TENSOR__FN tensor_t *nn__composed_loss(tensor_t *const *in, const tensor_params_t *params) {
    tensor_t *x = in[0], *t = in[1], *p, *q, *y;
    tensor_dtype_t dt = (tensor_dtype_t)x->dtype;
    p = T_SET(params->f[0]);
    q = in[3] ? in[3] : T_SET(1);
    switch (params->i[0]) {
#define TENSOR__X(ID, f, dx, dt_)                                                                            \
    case NN__LOSS_##ID: y = f(T_, x, t, p, q); break;
        NN_LOSSES(TENSOR__X)
#undef TENSOR__X
    default: y = TENSOR__(poison);
    }
    if (in[2]) y = (tensor_mul)(y, in[2]);
    return nn__reduced(y, params, x);
}

TENSOR__FN void nn__grad_loss(tensor__grad_t *g) {
    tensor__op_t o;
    tensor_t *in[5], *r;
    int64_t none[1] = {0};
    int k;
    if (g->create) {
        nn__grad_composed(g, nn__composed_loss);
        return;
    }
    in[0] = nn__contiguous(g->gy[0]);
    for (k = 0; k < 4; k++) in[1 + k] = nn__saved(g, k);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_LOSS_BACKWARD), in, 5)) return;
    o.p = &o.params;
    o.params = *g->p;
    o.visible = 2;
    for (k = 0; k < 2; k++) {
        int need = TENSOR__(grad_need)(g, k);
        TENSOR__(result)(&o, in[1]->dtype, need ? in[1]->dims : none, need ? in[1]->ndim : 1);
    }
    r = TENSOR__(finish)(&o);
    for (k = 0; k < 2; k++)
        if (TENSOR__(grad_need)(g, k)) g->gx[k] = r->state == TENSOR__POISON_STATE ? r : o.out[k];
}

// Whether *w (weight or pos_weight, may be NULL) broadcasts to x; made as large as x. Raises if not.
TENSOR__FN int nn__loss_weight(const tensor__op_t *o, const char *what, tensor_t **w, const tensor_t *x) {
    int d, k, fits;
    if (!*w) return 1;
    fits = (*w)->ndim <= x->ndim;
    for (d = 0; fits && d < (*w)->ndim; d++) {
        k = x->ndim - (*w)->ndim + d;
        fits = (*w)->dims[d] == x->dims[k] || (*w)->dims[d] == 1;
    }
    if (!fits) {
        (void)TENSOR__(fail)(o->th, TENSOR_ERR_SHAPE, "%s: %s %t does not broadcast to input %t",
                             o->row->name, what, *w, x);
        return 0;
    }
    *w = nn__contiguous((tensor_expand_n)(*w, x->dims, x->ndim));
    return 1;
}

TENSOR__FN tensor_t *nn__loss_front(int which, const void *surplus, tensor_t *x, tensor_t *t, tensor_t *w,
                                    tensor_t *q, double f, tensor_reduction_t reduction) {
    const tensor__row_t *row = nn__row(NN_OP_LOSS_MSE + which);
    tensor__op_t o;
    tensor_t *in[4];
    int d, same;
    in[0] = x;
    in[1] = t;
    in[2] = w;
    in[3] = q;
    if (nn__surplus(row->name, surplus)) return TENSOR__(poison);
    if (!TENSOR__(begin)(&o, row, in, 4) || !nn__floats(&o, 15)) return TENSOR__(poison);
    same = x->ndim == t->ndim;
    for (d = 0; same && d < x->ndim; d++) same = x->dims[d] == t->dims[d];
    if (!same)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: input %t and target %t must have one shape",
                              row->name, x, t);
    if ((int)reduction < 0 || reduction > TENSOR_BATCHMEAN ||
        (reduction == TENSOR_BATCHMEAN && which != NN__LOSS_KL_DIV && which != NN__LOSS_KL_DIV_LOG))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: reduction %i (input %t) is none of its own",
                              row->name, (int)reduction, x);
    if (which == NN__LOSS_SMOOTH_L1 && f == 0)
        return nn__loss_front(NN__LOSS_L1, NULL, x, t, w, q, 0, reduction);
    if ((which == NN__LOSS_SMOOTH_L1 && !(f > 0)) || (which == NN__LOSS_HUBER && !(f > 0)))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: %s %g (input %t) is out of range", row->name,
                              which == NN__LOSS_HUBER ? "delta" : "beta", f, x);
    if (nn__is_half(x))
        return nn__narrow(
            nn__loss_front(which, NULL, nn__wide(x), nn__wide(t), nn__wide(w), nn__wide(q), f, reduction), x);
    if (!nn__loss_weight(&o, "weight", &in[2], x) || !nn__loss_weight(&o, "pos_weight", &in[3], x))
        return TENSOR__(poison);
    o.params.i[0] = which;
    o.params.i[1] = reduction;
    o.params.f[0] = f;
    // The fused gradient knows input and target only.
    if (tensor_grad_enabled() && ((w && tensor_requires_grad(w)) || (q && tensor_requires_grad(q))))
        return nn__composed_loss(in, &o.params);
    in[0] = nn__contiguous(x);
    in[1] = nn__contiguous(t);
    if (!TENSOR__(begin)(&o, row, in, 4)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.i[0] = which;
    o.params.i[1] = reduction;
    o.params.f[0] = f;
    TENSOR__(result)(&o, x->dtype, x->dims, reduction == TENSOR_NONE ? x->ndim : 0);
    return TENSOR__(finish)(&o);
}

// ---- cross entropy and nll of logits [rows, classes]

// Label of row r, -1 if it is ignored.
TENSOR__FN int64_t nn__label(const nn__loss_job_t *v, const tensor_arg_t *labels, int64_t r) {
    int64_t t = nn__index(labels, r);
    return t == v->c->p->i[1] ? -1 : t;
}

TENSOR__FN void nn__cross_entropy_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), classes = v->classes;
    double loss = 0, weights = 0, smooth = v->c->p->f[0], wsum = (double)classes;
    (void)worker;
    if (a[2].data && smooth > 0) wsum = v->k->dot(a[2].data, NULL, classes);
    for (; r < end; r++) {
        const char *x = nn__at(&a[0], r * classes);
        int64_t t = nn__label(v, &a[1], r);
        double w = t < 0 ? 0 : a[2].data ? nn__value(a[2].data, v->dtype, t) : 1, y = 0;
        double lse = v->c->p->i[2] ? 0 : v->k->lse(x, classes);
        nn__store(a[4].data, v->dtype, r, lse);
        if (t >= 0) {
            y = (1 - smooth) * w * (lse - nn__value(x, v->dtype, t));
            if (smooth > 0) y += smooth / (double)classes * (lse * wsum - v->k->dot(x, a[2].data, classes));
        }
        if (v->reduction == TENSOR_NONE) nn__store(a[3].data, v->dtype, r, y);
        loss += y;
        weights += w;
    }
    v->part[2 * task] = loss;
    v->part[2 * task + 1] = weights;
}
TENSOR__FN void nn__cross_entropy_plan(nn__loss_job_t *v, const tensor_call_t *c, const tensor_arg_t *x) {
    v->c = c;
    v->dtype = x->dtype;
    v->k = nn__cpu(v->dtype);
    v->rows = x->dims[0];
    v->classes = x->dims[1];
    v->per = nn__max(1, NN__LOSS_CHUNK / nn__max(v->classes, 1));
    v->reduction = (int)c->p->i[0];
    v->part = (double *)c->scratch;
}
TENSOR__FN uint64_t nn__scratch_cross_entropy(const tensor_call_t *c) {
    return (uint64_t)(c->arg[0].dims[0] + 1) * 2 * sizeof(double);
}
TENSOR__FN int nn__cpu_cross_entropy(tensor_call_t *c) {
    nn__loss_job_t v;
    const tensor_arg_t *a = c->arg;
    int64_t i, tasks;
    double loss = 0, weights = 0;
    nn__cross_entropy_plan(&v, c, &a[0]);
    for (i = 0; i < v.rows; i++) {
        int64_t t = nn__index(&a[1], i);
        if (t == c->p->i[1] || (t >= 0 && t < v.classes)) continue;
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                             "%s: target %d at position %d is not in 0..%d (%d classes)",
                             c->p->i[2] ? "nll_loss" : c->row->name, t, i, v.classes - 1, v.classes);
        return TENSOR_ERR_INDEX;
    }
    tasks = nn__ceil(v.rows, v.per);
    nn__run(tasks, nn__cross_entropy_task, &v);
    for (i = 0; i < tasks; i++) {
        loss += v.part[2 * i];
        weights += v.part[2 * i + 1];
    }
    nn__store(a[5].data, v.dtype, 0, weights);
    if (v.reduction != TENSOR_NONE)
        nn__store(a[3].data, v.dtype, 0, v.reduction == TENSOR_MEAN ? loss / weights : loss);
    return TENSOR_OK;
}

TENSOR__FN void nn__cross_entropy_back_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), classes = v->classes;
    double smooth = v->c->p->f[0], wsum = (double)classes;
    (void)worker;
    if (a[5].data && smooth > 0) wsum = v->k->dot(a[5].data, NULL, classes);
    for (; r < end; r++) {
        int64_t t = nn__label(v, &a[2], r);
        char *gx = nn__at(&a[6], r * classes);
        double g, w, flat;
        if (t < 0) {
            v->k->fill(gx, 0, classes);
            continue;
        }
        g = nn__value(a[0].data, v->dtype, v->reduction == TENSOR_NONE ? r : 0);
        if (v->reduction == TENSOR_MEAN) g /= nn__value(a[4].data, v->dtype, 0);
        w = g * (1 - smooth) * (a[5].data ? nn__value(a[5].data, v->dtype, t) : 1);
        flat = g * smooth / (double)classes;
        // nll: no softmax. A factor 0 times e^x would be NaN where that overflows.
        if (v->c->p->i[2])
            v->k->fill(gx, 0, classes);
        else
            v->k->softmax_minus(nn__at(&a[1], r * classes), a[5].data, gx, nn__value(a[3].data, v->dtype, r),
                                w + flat * wsum, flat, classes);
        nn__store(gx, v->dtype, t, nn__value(gx, v->dtype, t) - w);
    }
}
TENSOR__FN int nn__cpu_cross_entropy_back(tensor_call_t *c) {
    nn__loss_job_t v;
    nn__cross_entropy_plan(&v, c, &c->arg[1]);
    v.per = nn__per(v.rows, v.classes * 4);
    nn__run(nn__ceil(v.rows, v.per), nn__cross_entropy_back_task, &v);
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__composed_cross_entropy(tensor_t *const *in, const tensor_params_t *p) {
    tensor_t *x = in[0], *ignored, *t, *lp, *y, *w, *flat;
    int64_t rows = x->dims[0], classes = x->dims[1];
    ignored = (tensor_eq_scalar)(in[1], (double)p->i[1]);
    t = (tensor_masked_fill)(in[1], ignored, 0);
    lp = p->i[2] ? x : (tensor_log_softmax)(x, 1);
    y = (tensor_neg)((tensor_reshape_n)((tensor_gather)(lp, 1, (tensor_unsqueeze)(t, 1)), &rows, 1));
    w = in[2] ? (tensor_index_select)(in[2], 0, t) : (tensor_ones_n)(&rows, 1, (tensor_dtype_t)x->dtype);
    w = (tensor_masked_fill)(w, ignored, 0);
    y = (tensor_mul_scalar)((tensor_mul)(y, w), 1 - p->f[0]);
    if (p->f[0] > 0) {
        flat = (tensor_sum_dim)(in[2] ? (tensor_mul)(lp, in[2]) : lp, 1, 0);
        y = (tensor_sub)(y, (tensor_mul_scalar)(flat, p->f[0] / (double)classes));
    }
    y = (tensor_masked_fill)(y, ignored, 0);
    if (p->i[0] == TENSOR_NONE) return y;
    y = (tensor_sum)(y);
    return p->i[0] == TENSOR_SUM ? y : (tensor_div)(y, (tensor_sum)(w));
}

TENSOR__FN void nn__grad_cross_entropy(tensor__grad_t *g) {
    tensor__op_t o;
    tensor_t *in[6];
    if (g->create) {
        nn__grad_composed(g, nn__composed_cross_entropy);
        return;
    }
    in[0] = nn__contiguous(g->gy[0]);
    in[1] = TENSOR__(grad_in)(g, 0);
    in[2] = TENSOR__(grad_in)(g, 1);
    in[3] = TENSOR__(grad_out)(g, 1);
    in[4] = TENSOR__(grad_out)(g, 2);
    in[5] = nn__saved(g, 2);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_CROSS_ENTROPY_BACKWARD), in, 6)) return;
    o.p = &o.params;
    o.params = *g->p;
    TENSOR__(result)(&o, in[1]->dtype, in[1]->dims, 2);
    g->gx[0] = TENSOR__(finish)(&o);
}

// Probability targets, any layout with the classes in dim 1 (0 without a batch).
TENSOR__FN tensor_t *nn__cross_entropy_soft(tensor_t *x, tensor_t *t, tensor_t *w, double smooth,
                                            tensor_reduction_t reduction) {
    int64_t dim = x->ndim > 1, classes = x->dims[dim], shape[TENSOR_MAX_DIMS], d;
    tensor_t *y = (tensor_log_softmax)(x, dim);
    if (smooth > 0) t = (tensor_add_scalar)((tensor_mul_scalar)(t, 1 - smooth), smooth / (double)classes);
    y = (tensor_mul)(y, t);
    if (w) {
        for (d = 0; d < x->ndim; d++) shape[d] = d == dim ? classes : 1;
        y = (tensor_mul)(y, (tensor_reshape_n)(w, shape, x->ndim));
    }
    y = (tensor_neg)((tensor_sum_dim)(y, dim, 0));
    if (reduction == TENSOR_NONE) return y;
    if (reduction == TENSOR_SUM) return (tensor_sum)(y);
    return (tensor_mean)(y);
}

// nll: input is log-probabilities.
TENSOR__FN tensor_t *nn__cross_entropy_front(const tensor_cross_entropy_args_t *a, int nll) {
    const char *op = nll ? "nll_loss" : "cross_entropy";
    tensor__op_t o;
    tensor_t *in[3], *x = a->input, *t = a->target, *w = a->weight, *y;
    int64_t dims[2], dim, d, same;
    in[0] = x;
    in[1] = t;
    in[2] = w;
    if (nn__surplus(op, a->surplus_)) return TENSOR__(poison);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_CROSS_ENTROPY), in, 3) || !nn__floats(&o, 5))
        return TENSOR__(poison);
    dim = x->ndim > 1;
    if (x->ndim < 1 || x->dims[dim] == 0)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "%s: input %t must be [N, C], [N, C, d...] or [C], C > 0", op, x);
    if ((int)a->reduction < 0 || a->reduction > TENSOR_NONE)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: reduction %i (input %t) is none of its own", op,
                              (int)a->reduction, x);
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: label_smoothing %g (input %t) must be in 0..1", op,
                              a->label_smoothing, x);
    if (w && (w->ndim != 1 || w->dims[0] != x->dims[dim]))
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE, "%s: weight %t must have the %d classes of input %t",
                              op, w, x->dims[dim], x);
    if (w && tensor_grad_enabled() && tensor_requires_grad(w))
        return TENSOR__(fail)(o.th, TENSOR_ERR_UNSUPPORTED,
                              "%s: weight %t requires grad, which it cannot get", op, w);
    if (nn__is_half(x)) {
        tensor_cross_entropy_args_t wide = *a;
        wide.input = nn__wide(x);
        wide.target = nn__wide(t);
        wide.weight = nn__wide(w);
        return nn__narrow(nn__cross_entropy_front(&wide, nll), x);
    }
    if (!nll && t->dtype == x->dtype) {
        same = t->ndim == x->ndim;
        for (d = 0; same && d < x->ndim; d++) same = t->dims[d] == x->dims[d];
        if (!same)
            return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                                  "%s: target probabilities %t must have the shape of input %t", op, t, x);
        return nn__cross_entropy_soft(x, t, w, a->label_smoothing, a->reduction);
    }
    if (!nn__is_index(t))
        return TENSOR__(fail)(o.th, TENSOR_ERR_DTYPE, "%s: target is %y, must be i32 or i64%s", op, t,
                              nll ? "" : ", or the dtype of input");
    same = t->ndim == x->ndim - 1;
    for (d = 0; same && d < t->ndim; d++) same = t->dims[d] == x->dims[d == 0 && dim ? 0 : d + 1];
    if (!same)
        return TENSOR__(fail)(o.th, TENSOR_ERR_SHAPE,
                              "%s: target %t must have the dims of input %t without the classes", op, t, x);
    // Classes last: [rows, C].
    dims[1] = x->dims[dim];
    dims[0] = x->numel / dims[1];
    if (x->ndim > 2) x = nn__contiguous((tensor_movedim)(x, 1, -1));
    in[0] = nn__contiguous((tensor_reshape_n)(x, dims, 2));
    in[1] = nn__contiguous((tensor_reshape_n)(t, dims, 1));
    in[2] = nn__contiguous(w);
    if (!TENSOR__(begin)(&o, nn__row(NN_OP_CROSS_ENTROPY), in, 3)) return TENSOR__(poison);
    o.p = &o.params;
    o.params.i[0] = a->reduction;
    o.params.i[1] = a->ignore_index;
    o.params.i[2] = nll;
    o.params.f[0] = a->label_smoothing;
    TENSOR__(result)(&o, x->dtype, dims, a->reduction == TENSOR_NONE ? 1 : 0);
    TENSOR__(result)(&o, x->dtype, dims, 1);
    TENSOR__(result)(&o, x->dtype, dims, 0);
    y = TENSOR__(finish)(&o);
    return a->reduction == TENSOR_NONE ? (tensor_reshape_n)(y, t->dims, t->ndim) : y;
}

TENSOR_API tensor_cross_entropy_args_t tensor_cross_entropy_defaults(void) {
    tensor_cross_entropy_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.ignore_index = -100;
    return a;
}
TENSOR_API tensor_t *tensor_cross_entropy_with(tensor_cross_entropy_args_t a) {
    return tensor__at(a.site_, nn__cross_entropy_front(&a, 0));
}
TENSOR_API tensor_t *tensor__cross_entropy(tensor_cross_entropy_args_t a) {
    a.ignore_index = nn__or(a.ignore_index, -100);
    return tensor_cross_entropy_with(a);
}

TENSOR_API tensor_nll_loss_args_t tensor_nll_loss_defaults(void) {
    tensor_nll_loss_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.ignore_index = -100;
    return a;
}
TENSOR_API tensor_t *tensor_nll_loss_with(tensor_nll_loss_args_t a) {
    tensor_cross_entropy_args_t b = tensor_cross_entropy_defaults();
    b.input = a.input;
    b.target = a.target;
    b.weight = a.weight;
    b.surplus_ = a.surplus_;
    b.ignore_index = a.ignore_index;
    b.reduction = a.reduction;
    return tensor__at(a.site_, nn__cross_entropy_front(&b, 1));
}
TENSOR_API tensor_t *tensor__nll_loss(tensor_nll_loss_args_t a) {
    a.ignore_index = nn__or(a.ignore_index, -100);
    return tensor_nll_loss_with(a);
}

// ---- public functions of the pointwise losses

#define NN__LOSS_DEFAULTS(name, set)                                                                         \
    TENSOR_API tensor_##name##_args_t tensor_##name##_defaults(void) {                                       \
        tensor_##name##_args_t a;                                                                            \
        memset((void *)&a, 0, sizeof a);                                                                     \
        set;                                                                                                 \
        return a;                                                                                            \
    }
NN__LOSS_DEFAULTS(mse_loss, (void)0)
NN__LOSS_DEFAULTS(l1_loss, (void)0)
NN__LOSS_DEFAULTS(smooth_l1_loss, a.beta = 1)
NN__LOSS_DEFAULTS(huber_loss, a.delta = 1)
NN__LOSS_DEFAULTS(binary_cross_entropy, (void)0)
NN__LOSS_DEFAULTS(binary_cross_entropy_with_logits, (void)0)
NN__LOSS_DEFAULTS(kl_div, (void)0)
#undef NN__LOSS_DEFAULTS

// Body of a _with function: which loss, weights, parameter.
#define NN__LOSS_RUN(which, w, q, f)                                                                         \
    return tensor__at(a.site_, nn__loss_front(which, a.surplus_, a.input, a.target, w, q, f, a.reduction))

TENSOR_API tensor_t *tensor_mse_loss_with(tensor_mse_loss_args_t a) {
    NN__LOSS_RUN(NN__LOSS_MSE, NULL, NULL, 0);
}
TENSOR_API tensor_t *tensor__mse_loss(tensor_mse_loss_args_t a) { return tensor_mse_loss_with(a); }

TENSOR_API tensor_t *tensor_l1_loss_with(tensor_l1_loss_args_t a) {
    NN__LOSS_RUN(NN__LOSS_L1, NULL, NULL, 0);
}
TENSOR_API tensor_t *tensor__l1_loss(tensor_l1_loss_args_t a) { return tensor_l1_loss_with(a); }

TENSOR_API tensor_t *tensor_smooth_l1_loss_with(tensor_smooth_l1_loss_args_t a) {
    NN__LOSS_RUN(NN__LOSS_SMOOTH_L1, NULL, NULL, a.beta);
}
TENSOR_API tensor_t *tensor__smooth_l1_loss(tensor_smooth_l1_loss_args_t a) {
    a.beta = nn__or_f(a.beta, 1);
    return tensor_smooth_l1_loss_with(a);
}

TENSOR_API tensor_t *tensor_huber_loss_with(tensor_huber_loss_args_t a) {
    NN__LOSS_RUN(NN__LOSS_HUBER, NULL, NULL, a.delta);
}
TENSOR_API tensor_t *tensor__huber_loss(tensor_huber_loss_args_t a) {
    a.delta = nn__or_f(a.delta, 1);
    return tensor_huber_loss_with(a);
}

TENSOR_API tensor_t *tensor_binary_cross_entropy_with(tensor_binary_cross_entropy_args_t a) {
    NN__LOSS_RUN(NN__LOSS_BCE, a.weight, NULL, 0);
}
TENSOR_API tensor_t *tensor__binary_cross_entropy(tensor_binary_cross_entropy_args_t a) {
    return tensor_binary_cross_entropy_with(a);
}

TENSOR_API tensor_t *tensor_binary_cross_entropy_with_logits_with(
    tensor_binary_cross_entropy_with_logits_args_t a) {
    NN__LOSS_RUN(NN__LOSS_BCE_LOGITS, a.weight, a.pos_weight, 0);
}
TENSOR_API tensor_t *tensor__binary_cross_entropy_with_logits(
    tensor_binary_cross_entropy_with_logits_args_t a) {
    return tensor_binary_cross_entropy_with_logits_with(a);
}

TENSOR_API tensor_t *tensor_kl_div_with(tensor_kl_div_args_t a) {
    NN__LOSS_RUN(a.log_target ? NN__LOSS_KL_DIV_LOG : NN__LOSS_KL_DIV, NULL, NULL, 0);
}
TENSOR_API tensor_t *tensor__kl_div(tensor_kl_div_args_t a) { return tensor_kl_div_with(a); }
#undef NN__LOSS_RUN

// ---- the table

static const tensor__row_t nn__rows[NN_OP_COUNT] = {
#define NOGRAD NULL
#define TENSOR__X(ID, name, family, nin, required, nout, cpu, scratch, grad, saves, doc)                     \
    {#name, TENSOR_FAMILY_##family, nin, required, nout, 0, NN_OP_##ID, saves, grad, cpu, scratch, -2, 2,    \
     doc},
    NN_OPS(TENSOR__X)
#undef TENSOR__X
#undef NOGRAD
};
TENSOR__FN const tensor__row_t *nn__row(int id) { return &nn__rows[id - TENSOR_OP_NN_FIRST]; }

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

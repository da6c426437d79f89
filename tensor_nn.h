// tensor_nn.h - v0.2.0 - layers, losses, optimizers, data and files on tensor.h
// Licence: MIT-0 or public domain, at your choice; full text at the end of this file.
//
//   #define TENSOR_IMPLEMENTATION          in exactly ONE .c/.cpp file (best: a file of its own)
//   #define TENSOR_NN_IMPLEMENTATION
//   #include "tensor_nn.h"
//
// CONTENTS (search for the tag)
//   >>nn-manual  >>functional  >>losses  >>modules  >>layers  >>init  >>optim  >>schedule  >>data
//   >>files  >>progress  >>nn-cpp
//   >>nn-shared  >>nn-ops
//   >>nn-kernels  >>nn-kernel-conv  >>nn-kernel-direct  >>nn-kernel-pool  >>nn-kernel-norm
//   >>nn-kernel-loss  >>nn-kernel-attention  >>nn-kernel-recurrent  >>nn-kernel-dropout
//   >>nn-kernel-optim  >>nn-kernel-table
//   >>nn-impl  >>impl-functional  >>impl-linear  >>impl-embedding  >>impl-norm  >>impl-direct
//   >>impl-conv  >>impl-columns  >>impl-pool  >>impl-resample  >>impl-dropout  >>impl-composed
//   >>impl-attention  >>impl-recurrent  >>impl-losses  >>impl-ctc  >>nn-table
//   >>impl-modules  >>impl-layers  >>layers-calls  >>layers-linear  >>layers-image  >>layers-norm
//   >>layers-recurrent  >>layers-attention  >>layers-sequential
//   >>impl-copies  >>impl-init  >>impl-optim  >>impl-clip  >>impl-schedule  >>impl-data  >>impl-sources
//   >>impl-files  >>impl-state  >>impl-progress
//   >>nn-license

#ifndef TENSOR_NN__PASS

#ifndef TENSOR_NN_H_INCLUDED_7C1E
#define TENSOR_NN_H_INCLUDED_7C1E

#define TENSOR__LATER       // its implementation: see >>nn-impl
#include "tensor.h"
#undef TENSOR__LATER
#ifndef TENSOR_H_INCLUDED_7C1E
#error "tensor_nn.h: the tensor.h found before it on the include path is another library's"
#endif

// ------------------------------------------------------------------------------
// >>nn-manual                                      MARK: manual
//
// NAMES      Operations are tensor_ + the name in torch.nn.functional; objects and their verbs are nn_ +
//            snake case: nn_linear, nn_sequential, nn_adam, nn_forward, nn_step.
// OPTIONS    Designated initialisers: nn_conv2d(3, 64, 3, .stride = 2, .padding = 1). 0 = PyTorch's default,
//            TENSOR_ZERO a real zero. Without macros: nn_conv_args_t a = nn_conv_defaults(); ...;
//            nn_conv2d_with(a).
// OBJECTS    Modules, optimizers, loaders and readers belong to the context. They are freed one by one
//            (nn_free, nn_optimizer_free, nn_data_loader_free, nn_safetensors_close) or all together by
//            tensor_shutdown, in any order. Constructors return NULL on failure. Functions that are given
//            NULL return poison or the code, so one check of tensor_ok() is enough.
// TRAINING   nn_zero_grad(opt); tensor_backward(loss); nn_step(opt); then tensor_scope_reset frees the
//            tensors of the step.
// THREADS    A module may run forward on several threads at once if none of them changes it; dropout draws
//            from the calling thread's generator. To serve while training: nn_clone and nn_copy_state.
// FILES      safetensors, which PyTorch's users exchange as well. Files of torch.save(...) are refused; in
//            Python, safetensors.torch.save_file(model.state_dict(), "m.safetensors") writes what nn_load
//            reads.
// ------------------------------------------------------------------------------

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>functional                                     MARK: torch.nn.functional
//
// One args struct per function with options: tensor_conv2d(x, w, b, .stride = 2, .padding = 1). In such a
// call a member that is 0 has PyTorch's default and TENSOR_ZERO is a real zero. tensor_conv2d_with(a) takes
// the members literally, and tensor_conv_defaults() fills them. PyTorch's first arguments come before the
// options, in its order: tensor_max_pool2d(x, 2, 2). One argument too many gives a warning in C and is an
// error at run time; in C++ it is an error of the compiler. f16 and bf16 are computed in f32.
// Rejected: long positional lists (nobody can read them).
// All: -> new, contiguous, dtype of the input;  errors SHAPE, DTYPE, OUT_OF_MEMORY, each naming the argument
// ------------------------------------------------------------------------------

// Members with initialisers make the structs non-POD. clang++ warns when a function of C returns such a
// struct; the layout is C's all the same.
#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif

// y = x wT + b over the last dim.
//   x       [..., in] f32/f64/f16/bf16
//   weight  [out, in], dtype of x; or [in]: one output, and y has no dim for it
//   bias    [out], dtype of x; 0-d or [1] beside a weight [in]; NULL = none
//   -> new [..., out] or [...];  grad dx = g w, dw = gT x, db = sum of g;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_linear(tensor_t *x, tensor_t *weight, tensor_t *bias);
// tensor_relu or tensor_gelu_tanh of the result, in the same op: the same numbers with one tensor less. On
// CUDA this is the epilogue of cuBLASLt, as in torch._addmm_activation: it rounds in its own way, and relu of
// NaN may be 0. Therefore nn_sequential uses these functions on the CPU only, where one of these layers
// follows an nn_linear.
//   -> new [..., out];  grad as both;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_linear_relu(tensor_t *x, tensor_t *weight, tensor_t *bias);
TENSOR_API tensor_t *tensor_linear_gelu_tanh(tensor_t *x, tensor_t *weight, tensor_t *bias); // as linear_relu

typedef struct tensor_embedding_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *index TENSOR_INIT, *weight TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t padding_idx TENSOR_INIT;        // row without gradient; 0 = none, TENSOR_ZERO = row 0
    double max_norm TENSOR_INIT;            // > 0: rows used are scaled down to it, in weight itself
    double norm_type TENSOR_INIT;           // which norm, 0 = 2
    int scale_grad_by_freq TENSOR_INIT;     // gradients of a row are divided by how often index names it
    int sparse TENSOR_INIT;                 // a step costs only the rows used: see nn_sparse_adam
} tensor_embedding_args_t;

// The rows of weight that index names: tensor_embedding(index, weight, .padding_idx = TENSOR_ZERO).
//   index   any shape, i32/i64, values 0..rows-1
//   weight  [rows, width] f32/f64/f16/bf16
//   -> new [index's dims, width];  grad dweight = rows of g added in the order of index
//   errors  INDEX, SHAPE, DTYPE
TENSOR_API tensor_t *tensor_embedding_with(tensor_embedding_args_t a);
TENSOR_API tensor_embedding_args_t tensor_embedding_defaults(void);

typedef enum tensor_bag_mode_t { TENSOR_BAG_MEAN, TENSOR_BAG_SUM, TENSOR_BAG_MAX } tensor_bag_mode_t;
typedef struct tensor_embedding_bag_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *index TENSOR_INIT, *weight TENSOR_INIT, *offsets TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_bag_mode_t mode TENSOR_INIT;
    tensor_t *per_sample_weights TENSOR_INIT;   // shape of index, dtype of weight; TENSOR_BAG_SUM only
    int64_t padding_idx TENSOR_INIT;        // row that does not count; 0 = none, TENSOR_ZERO = row 0
    int include_last_offset TENSOR_INIT;    // offsets ends with the number of indices
    int scale_grad_by_freq TENSOR_INIT, sparse TENSOR_INIT;     // as tensor_embedding
    double max_norm TENSOR_INIT, norm_type TENSOR_INIT;         // as tensor_embedding
} tensor_embedding_bag_args_t;

// Mean, sum or maximum of the rows of each bag of indices; 0 for an empty bag.
//   index    [bags, n] i32/i64 without offsets, or [n]: bag k begins at offsets[k]
//   weight   [rows, width] f32/f64/f16/bf16
//   offsets  [bags] i32/i64 from 0 upwards, NULL for a matrix
//   -> new [bags, width];  grad as embedding (maximum: to the first largest);  errors INDEX, SHAPE, DTYPE
TENSOR_API tensor_t *tensor_embedding_bag_with(tensor_embedding_bag_args_t a);
TENSOR_API tensor_embedding_bag_args_t tensor_embedding_bag_defaults(void);

// y[o] = x1 weight[o] x2 + bias[o] over the last dims.
//   x1, x2  [..., in1], [..., in2], the same leading dims, f32/f64/f16/bf16
//   weight  [out, in1, in2]
//   bias    [out] or NULL
//   -> new [..., out];  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_bilinear(tensor_t *x1, tensor_t *x2, tensor_t *weight, tensor_t *bias);

typedef struct tensor_layer_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t normalized_dims TENSOR_INIT;    // how many trailing dims (PyTorch: their sizes); default 1
    tensor_t *weight TENSOR_INIT, *bias TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_layer_norm_args_t;

// (x - mean) / sqrt(var + eps) * weight + bias over the last dims: tensor_layer_norm(x, 1, w, b).
//   x             [..., D...] f32/f64/f16/bf16, D... the normalized dims
//   weight, bias  [D...], dtype of x; NULL = 1, 0
//   -> new, shape of x;  grad through mean and variance (saves mean and 1 / deviation);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_layer_norm_with(tensor_layer_norm_args_t a);
TENSOR_API tensor_layer_norm_args_t tensor_layer_norm_defaults(void);

typedef struct tensor_batch_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *running_mean TENSOR_INIT, *running_var TENSOR_INIT, *weight TENSOR_INIT;
    tensor_t *bias TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int training TENSOR_INIT;               // statistics of x; updates the running ones
    double momentum TENSOR_INIT;            // weight of x in the update, default 0.1
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_batch_norm_args_t;

// (x - mean) / sqrt(var + eps) * weight + bias per channel: tensor_batch_norm(x, m, v, w, b, .training = 1).
//   x             [N, C, ...] f32/f64/f16/bf16 (PyTorch also takes a 1-d x if it is empty)
//   running_...   [C], changed in training (var unbiased); may be NULL in training
//   weight, bias  [C]; NULL = 1, 0.  For a half x these four may be f32
//   -> new, shape of x;  grad through mean and variance in training
//   errors  SHAPE (also: one value per channel in training), DTYPE
TENSOR_API tensor_t *tensor_batch_norm_with(tensor_batch_norm_args_t a);
TENSOR_API tensor_batch_norm_args_t tensor_batch_norm_defaults(void);

typedef struct tensor_instance_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_t *running_mean TENSOR_INIT, *running_var TENSOR_INIT, *weight TENSOR_INIT, *bias TENSOR_INIT;
    int no_use_input_stats TENSOR_INIT;     // normalise by the running statistics
    double momentum TENSOR_INIT;            // default 0.1
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_instance_norm_args_t;

// batch_norm of each item of the batch separately.
//   x       [N, C, ...], at least one dim after C; the rest as batch_norm
//   -> new, shape of x;  grad through mean and variance
//   errors  SHAPE (also: one value per channel and item), DTYPE
TENSOR_API tensor_t *tensor_instance_norm_with(tensor_instance_norm_args_t a);
TENSOR_API tensor_instance_norm_args_t tensor_instance_norm_defaults(void);

typedef struct tensor_group_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t groups TENSOR_INIT;
    tensor_t *weight TENSOR_INIT, *bias TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // default 1e-5
} tensor_group_norm_args_t;

// The same over the groups of channels of each item: tensor_group_norm(x, 8, w, b).
//   x             [N, C, ...] f32/f64/f16/bf16, C a multiple of groups
//   weight, bias  [C]; NULL = 1, 0
//   -> new, shape of x;  grad through mean and variance;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_group_norm_with(tensor_group_norm_args_t a);
TENSOR_API tensor_group_norm_args_t tensor_group_norm_defaults(void);

typedef struct tensor_rms_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t normalized_dims TENSOR_INIT;    // how many trailing dims; default 1
    tensor_t *weight TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // 0 = the epsilon of x's dtype (f16, bf16: of f32)
} tensor_rms_norm_args_t;

// x / sqrt(mean of x^2 + eps) * weight over the last dims: tensor_rms_norm(x, 1, w).
//   x       [..., D...] f32/f64/f16/bf16
//   weight  [D...]; NULL = 1
//   -> new, shape of x;  grad through the mean;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_rms_norm_with(tensor_rms_norm_args_t a);
TENSOR_API tensor_rms_norm_args_t tensor_rms_norm_defaults(void);

typedef struct tensor_local_response_norm_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t size TENSOR_INIT;               // channels of a window
    const void *options_are_named_ TENSOR_INIT;
    double alpha TENSOR_INIT;               // default 1e-4
    double beta TENSOR_INIT;                // default 0.75
    double k TENSOR_INIT;                   // default 1
} tensor_local_response_norm_args_t;

// x / (k + alpha * mean of x^2 over size neighbouring channels)^beta.
//   x       [N, C, ...] f32/f64/f16/bf16, at least 3 dims
//   -> new, shape of x;  grad through the mean;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_local_response_norm_with(tensor_local_response_norm_args_t a);
TENSOR_API tensor_local_response_norm_args_t tensor_local_response_norm_defaults(void);

// Windows: stride, padding, dilation and kernel are for the first dim of the image: depth if it has three
// dims, height if it has two. .stride_w is for the last dim, .stride_h for the height of three. If they are
// left out (0; negative in _with), they are equal to the first.
typedef struct tensor_conv_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *weight TENSOR_INIT, *bias TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default 1
    int64_t padding TENSOR_INIT;            // zeros on both sides, default 0
    int64_t dilation TENSOR_INIT;           // default 1
    int64_t groups TENSOR_INIT;             // default 1
    const void *options_are_named_ TENSOR_INIT;
    int64_t stride_h TENSOR_INIT, stride_w TENSOR_INIT, padding_h TENSOR_INIT, padding_w TENSOR_INIT,
        dilation_h TENSOR_INIT, dilation_w TENSOR_INIT;
    int same TENSOR_INIT;                   // padding = 'same' (stride 1): output as large as the input
} tensor_conv_args_t;

// Convolution (cross-correlation, as in PyTorch): tensor_conv2d(x, w, b, .stride = 2, .padding = 1), or with
// PyTorch's positions tensor_conv2d(x, w, b, 2, 1). On the CPU, kernels of 3x3 and 5x5 with stride 1 between
// many channels use Winograd's algorithm: its root mean square error is up to about 4 times that of direct
// sums, and one infinity makes the 4x4 outputs (2x2 of 5x5) around it NaN.
//   x       [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N; any dtype except bool (integers are
//           multiplied and added with wrapping)
//   weight  [O, C / groups, K...], dtype of x
//   bias    [O], dtype of x; NULL = none
//   -> new [N, O, (L + 2 padding - dilation (K - 1) - 1) / stride + 1, ...];  grad differentiable itself
//   errors  SHAPE, DTYPE
TENSOR_API tensor_t *tensor_conv1d_with(tensor_conv_args_t a);
TENSOR_API tensor_t *tensor_conv2d_with(tensor_conv_args_t a);
TENSOR_API tensor_t *tensor_conv3d_with(tensor_conv_args_t a);
TENSOR_API tensor_conv_args_t tensor_conv_defaults(void);

typedef struct tensor_conv_transpose_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *weight TENSOR_INIT, *bias TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default 1
    int64_t padding TENSOR_INIT;            // cut from both sides of the result, default 0
    int64_t output_padding TENSOR_INIT;     // added at the far end, less than stride or dilation, default 0
    int64_t groups TENSOR_INIT;             // default 1
    int64_t dilation TENSOR_INIT;           // default 1
    const void *options_are_named_ TENSOR_INIT;
    int64_t stride_h TENSOR_INIT, stride_w TENSOR_INIT, padding_h TENSOR_INIT, padding_w TENSOR_INIT,
        output_padding_h TENSOR_INIT, output_padding_w TENSOR_INIT, dilation_h TENSOR_INIT,
        dilation_w TENSOR_INIT;
} tensor_conv_transpose_args_t;

// Transposed convolution: the gradient of a convolution with respect to its input.
//   x       as tensor_conv2d
//   weight  [C, O / groups, K...], dtype of x
//   bias    [O], dtype of x; NULL = none
//   -> new [N, O, (L - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1, ...];  grad
//      differentiable itself
//   errors  SHAPE, DTYPE
TENSOR_API tensor_t *tensor_conv_transpose1d_with(tensor_conv_transpose_args_t a);
TENSOR_API tensor_t *tensor_conv_transpose2d_with(tensor_conv_transpose_args_t a);
TENSOR_API tensor_t *tensor_conv_transpose3d_with(tensor_conv_transpose_args_t a);
TENSOR_API tensor_conv_transpose_args_t tensor_conv_transpose_defaults(void);

typedef struct tensor_columns_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    int64_t dilation TENSOR_INIT;           // default 1
    int64_t padding TENSOR_INIT;            // default 0
    int64_t stride TENSOR_INIT;             // default 1
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_w TENSOR_INIT, dilation_w TENSOR_INIT, padding_w TENSOR_INIT, stride_w TENSOR_INIT;
    int64_t height TENSOR_INIT, width TENSOR_INIT;   // of the images, col2im only; width 0 = height
} tensor_columns_args_t;

// Windows of images as columns, torch.nn.functional.unfold (Tensor.unfold is tensor_unfold_dim): row
// (c KH + ky) KW + kx of column oy OW + ox. tensor_im2col(x, kernel, .padding = 1).
//   x       [N, C, H, W] or [C, H, W], f32/f64/f16/bf16
//   -> new [N, C KH KW, OH OW];  grad col2im of g;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_im2col_with(tensor_columns_args_t a);
// Its transpose, torch.nn.functional.fold: columns added into images of height x width. tensor_col2im(x,
// height, kernel, .width = w, .padding = 1).
//   x       [N, C KH KW, OH OW] or without N, f32/f64/f16/bf16
//   -> new [N, C, height, width];  grad im2col of g;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_col2im_with(tensor_columns_args_t a);
TENSOR_API tensor_columns_args_t tensor_columns_defaults(void);

typedef struct tensor_max_pool_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default (0): the kernel
    int64_t padding TENSOR_INIT;            // minus infinity on both sides, at most kernel / 2
    int64_t dilation TENSOR_INIT;           // default 1
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT, dilation_h TENSOR_INIT, dilation_w TENSOR_INIT;
    int ceil_mode TENSOR_INIT;              // also windows that pass the end of the input
} tensor_max_pool_args_t;

// Largest element of each window; NaN wins. tensor_max_pool2d(x, 2) halves height and width.
//   x       [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N, any dtype except bool
//   -> new [N, C, OH, OW];  grad to the chosen element;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_max_pool1d_with(tensor_max_pool_args_t a);
TENSOR_API tensor_t *tensor_max_pool2d_with(tensor_max_pool_args_t a);
TENSOR_API tensor_t *tensor_max_pool3d_with(tensor_max_pool_args_t a);
TENSOR_API tensor_max_pool_args_t tensor_max_pool_defaults(void);
// tensor_max_pool2d_with_indices(x, 2) (also 1d, 3d) gives the values and their positions in the plane, i64.

typedef struct tensor_avg_pool_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default (0): the kernel
    int64_t padding TENSOR_INIT;            // zeros on both sides, at most kernel / 2
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT;
    int ceil_mode TENSOR_INIT;
    int no_count_pad TENSOR_INIT;           // count_include_pad = False: divide by elements inside x
    int64_t divisor_override TENSOR_INIT;   // 0 = the window's size
} tensor_avg_pool_args_t;

// Mean of each window; for integers without its fraction.
//   x       as tensor_max_pool2d
//   -> new [N, C, OH, OW];  grad spreads g over the window;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_avg_pool1d_with(tensor_avg_pool_args_t a);
TENSOR_API tensor_t *tensor_avg_pool2d_with(tensor_avg_pool_args_t a);
TENSOR_API tensor_t *tensor_avg_pool3d_with(tensor_avg_pool_args_t a);
TENSOR_API tensor_avg_pool_args_t tensor_avg_pool_defaults(void);

// Mean (or largest element, with its position in the plane) of windows that cover the input evenly.
//   x        shapes as tensor_max_pool2d, f32/f64/f16/bf16
//   l, d, h, w   sizes of the result; -1 = the size of x (PyTorch's None)
//   -> new [N, C, h, w]; the indices are i64;  grad as the pools';  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_adaptive_avg_pool1d(tensor_t *x, int64_t l);
TENSOR_API tensor_t *tensor_adaptive_avg_pool2d(tensor_t *x, int64_t h, int64_t w);
TENSOR_API tensor_t *tensor_adaptive_avg_pool3d(tensor_t *x, int64_t d, int64_t h, int64_t w);
TENSOR_API tensor_pair_t tensor_adaptive_max_pool1d(tensor_t *x, int64_t l);
TENSOR_API tensor_pair_t tensor_adaptive_max_pool2d(tensor_t *x, int64_t h, int64_t w);
TENSOR_API tensor_pair_t tensor_adaptive_max_pool3d(tensor_t *x, int64_t d, int64_t h, int64_t w);

// (sum of x^norm)^(1 / norm) of each window.
//   x        as tensor_max_pool2d; integers become floats
//   norm     not 0
//   stride   0 = kernel
//   ceil     also windows that pass the end of the input
//   -> new as tensor_avg_pool2d;  grad through it;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_lp_pool1d(tensor_t *x, double norm, int64_t kernel, int64_t stride, int ceil);
TENSOR_API tensor_t *tensor_lp_pool2d(tensor_t *x, double norm, int64_t kernel, int64_t stride, int ceil);
TENSOR_API tensor_t *tensor_lp_pool3d(tensor_t *x, double norm, int64_t kernel, int64_t stride, int ceil);

typedef struct tensor_max_unpool_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *indices TENSOR_INIT;
    int64_t kernel TENSOR_INIT;
    int64_t stride TENSOR_INIT;             // default (0): the kernel
    int64_t padding TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT;
    int64_t size TENSOR_INIT, size_h TENSOR_INIT, size_w TENSOR_INIT; // output_size; 0 = as the pool's input
} tensor_max_unpool_args_t;

// Zeros, with the elements of x at the positions that a max pool found.
//   indices  shape of x, i64: the indices of tensor_max_pool2d_with_indices
//   -> new [N, C, (H - 1) stride - 2 padding + kernel, ...];  grad gathers g;  errors SHAPE, INDEX, DTYPE
TENSOR_API tensor_t *tensor_max_unpool1d_with(tensor_max_unpool_args_t a);
TENSOR_API tensor_t *tensor_max_unpool2d_with(tensor_max_unpool_args_t a);
TENSOR_API tensor_t *tensor_max_unpool3d_with(tensor_max_unpool_args_t a);
TENSOR_API tensor_max_unpool_args_t tensor_max_unpool_defaults(void);

typedef enum tensor_pad_t {
    TENSOR_PAD_CONSTANT, TENSOR_PAD_REFLECT, TENSOR_PAD_REPLICATE, TENSOR_PAD_CIRCULAR,
    TENSOR_PAD_ZEROS = TENSOR_PAD_CONSTANT, TENSOR_PAD_BORDER = TENSOR_PAD_REPLICATE
} tensor_pad_t;

// x with elements added at the ends of its last dims (or removed, where a number is negative).
// tensor_pad(x, 1, 1, 2, 2) adds zeros: 1 at both ends of the last dim, 2 at both ends of the dim before it.
//   x      any dtype
//   pads   n / 2 pairs (before, after), beginning with the last dim
//   mode   what the new elements are: value; the inside mirrored at the edge (without the edge itself); the
//          edge; the elements of the other side
//   -> new;  grad of each element of x sums over its copies
//   errors SHAPE (reflect: pads below the size, circular: at most the size)
TENSOR_API tensor_t *tensor_pad_n(tensor_t *x, const int64_t *pads, int n, tensor_pad_t mode, double value);

// Channels become pixels: [..., C factor^2, H, W] -> [..., C, H factor, W factor], and back.
//   -> new;  grad the inverse;  errors SHAPE
TENSOR_API tensor_t *tensor_pixel_shuffle(tensor_t *x, int64_t factor);
TENSOR_API tensor_t *tensor_pixel_unshuffle(tensor_t *x, int64_t factor);
// Channels [N, groups x C, ...] are put in the order [N, C x groups, ...].
//   -> new;  grad the inverse;  errors SHAPE
TENSOR_API tensor_t *tensor_channel_shuffle(tensor_t *x, int64_t groups);

typedef enum tensor_interpolation_t {
    TENSOR_NEAREST = 1, TENSOR_NEAREST_EXACT, TENSOR_LINEAR, TENSOR_BILINEAR, TENSOR_BICUBIC,
    TENSOR_TRILINEAR, TENSOR_AREA
} tensor_interpolation_t;

typedef struct tensor_interpolate_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    int64_t size TENSOR_INIT;               // of the result's first dim (and the others), or scale_factor
    const void *options_are_named_ TENSOR_INIT;
    int64_t size_h TENSOR_INIT, size_w TENSOR_INIT;
    double scale_factor TENSOR_INIT, scale_factor_h TENSOR_INIT, scale_factor_w TENSOR_INIT;
    tensor_interpolation_t mode TENSOR_INIT;   // default TENSOR_NEAREST
    int align_corners TENSOR_INIT;             // the corner pixels' centres stay at the corners
    int recompute_scale_factor TENSOR_INIT;
} tensor_interpolate_args_t;

// Resamples images: tensor_interpolate(x, .scale_factor = 2, .mode = TENSOR_BILINEAR).
//   x       [N, C, L], [N, C, H, W] or [N, C, D, H, W]; floats; any dtype for the two nearest modes
//   -> new;  grad through the weights;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_interpolate_with(tensor_interpolate_args_t a);
TENSOR_API tensor_interpolate_args_t tensor_interpolate_defaults(void);

typedef struct tensor_grid_sample_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *grid TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_interpolation_t mode TENSOR_INIT;   // TENSOR_BILINEAR (default), _NEAREST; 4-d x: _BICUBIC
    tensor_pad_t padding_mode TENSOR_INIT;     // outside: TENSOR_PAD_ZEROS (default), _BORDER or _REFLECT
    int align_corners TENSOR_INIT;
} tensor_grid_sample_args_t;

// x at the points of grid: (x, y) or (x, y, z), where -1 and 1 are the edges of the image.
//   x       [N, C, H, W] (or [N, C, D, H, W]) f32/f64/f16/bf16
//   grid    [N, H', W', 2] (or [N, D', H', W', 3]), dtype of x
//   -> new [N, C, H', W'];  grad to x and grid;  errors SHAPE, DTYPE, UNSUPPORTED (another mode)
TENSOR_API tensor_t *tensor_grid_sample_with(tensor_grid_sample_args_t a);
TENSOR_API tensor_grid_sample_args_t tensor_grid_sample_defaults(void);
// The grid of sampling points of affine maps, for tensor_grid_sample.
//   theta   [N, 2, 3] (or [N, 3, 4]) f32/f64/f16/bf16
//   size    n = 4 (5) numbers: the shape [N, C, H, W] that the sampled images will have
//   -> new [N, H, W, 2];  grad through the product;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_affine_grid(tensor_t *theta, const int64_t *size, int n, int align_corners);

// Zeroes elements with probability p and scales the others by 1 / (1 - p); gives x itself when not training.
//   x         f32/f64/f16/bf16
//   p         0..1 (PyTorch's default is 0.5)
//   training  0 or 1
//   -> new (x if not training);  grad g by the same mask, drawn again;  errors SHAPE (p outside 0..1), DTYPE
TENSOR_API tensor_t *tensor_dropout(tensor_t *x, double p, int training);
// The same for whole channels: dim 1, or dim 0 of an input without a batch (2-d for 1d, 4-d for 3d).
//   -> as above;  errors as above, SHAPE (dims)
TENSOR_API tensor_t *tensor_dropout1d(tensor_t *x, double p, int training);      // [N, C, L], [C, L]
TENSOR_API tensor_t *tensor_dropout2d(tensor_t *x, double p, int training);      // [N, C, H, W], [N, C, L]
TENSOR_API tensor_t *tensor_dropout3d(tensor_t *x, double p, int training);   // [N, C, D, H, W], [C, D, H, W]
// Keeps mean 0 and variance 1 (for selu).   -> as above;  errors as above
TENSOR_API tensor_t *tensor_alpha_dropout(tensor_t *x, double p, int training);

// Activations that tensor.h does not have (it has relu, gelu, silu, elu, hardtanh, mish, ...).
//   x   f32/f64/f16/bf16
//   -> new, shape and dtype of x (glu: half of dim);  grad as PyTorch's
//   errors  DTYPE, SHAPE (celu: alpha 0; glu: odd size; prelu: weight; rrelu: lower > upper; softshrink:
//           lambd < 0)
TENSOR_API tensor_t *tensor_celu(tensor_t *x, double alpha);                     // PyTorch's default is 1
TENSOR_API tensor_t *tensor_glu(tensor_t *x, int64_t dim);                       // -1
TENSOR_API tensor_t *tensor_hardshrink(tensor_t *x, double lambd);               // 0.5
TENSOR_API tensor_t *tensor_prelu(tensor_t *x, tensor_t *weight);                // weight [channels] or [1]
TENSOR_API tensor_t *tensor_relu6(tensor_t *x);
TENSOR_API tensor_t *tensor_rrelu(tensor_t *x, double lower, double upper, int training);   // 1/8, 1/3, 0
TENSOR_API tensor_t *tensor_selu(tensor_t *x);
TENSOR_API tensor_t *tensor_softmin(tensor_t *x, int64_t dim);
TENSOR_API tensor_t *tensor_softshrink(tensor_t *x, double lambd);               // 0.5
TENSOR_API tensor_t *tensor_softsign(tensor_t *x);
TENSOR_API tensor_t *tensor_tanhshrink(tensor_t *x);
TENSOR_API tensor_t *tensor_threshold(tensor_t *x, double threshold, double value);
// softmax((x + Gumbel noise) / tau) along dim; hard: forward gives one-hot, backward is that of the soft one.
TENSOR_API tensor_t *tensor_gumbel_softmax(tensor_t *x, double tau, int hard, int64_t dim);   // 1, 0, -1

// x divided by max(p-norm along dim, eps) (PyTorch: 2, 1, 1e-12).   -> new, as x;  grad;  errors DTYPE, INDEX
TENSOR_API tensor_t *tensor_normalize(tensor_t *x, double p, int64_t dim, double eps);
// Cosine of the angle between a and b along dim, norms at least eps (PyTorch: 1, 1e-8); a and b broadcast.
//   -> new without dim;  grad to both;  errors DTYPE, INDEX, SHAPE
TENSOR_API tensor_t *tensor_cosine_similarity(tensor_t *a, tensor_t *b, int64_t dim, double eps);
// p-norm of a - b + eps along the last dim (PyTorch: 2, 1e-6, 0).   -> new;  grad to both;  errors as above
TENSOR_API tensor_t *tensor_pairwise_distance(tensor_t *a, tensor_t *b, double p, double eps, int keepdim);

typedef struct tensor_scaled_dot_product_attention_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *query TENSOR_INIT, *key TENSOR_INIT, *value TENSOR_INIT;
    tensor_t *attn_mask TENSOR_INIT;        // bool (true = look) or a float to add; broadcasts to [..., T, S]
    const void *options_are_named_ TENSOR_INIT;
    double dropout_p TENSOR_INIT;           // default 0
    int is_causal TENSOR_INIT;              // element t looks at s <= t; not together with attn_mask
    double scale TENSOR_INIT;               // 0 = 1 / sqrt(E)
    int enable_gqa TENSOR_INIT; // fewer heads (third dim from the end) in key and value: each serves several
} tensor_scaled_dot_product_attention_args_t;

// softmax(q kT scale + mask) v; a row that may look at nothing gives 0.
//   query, key, value   [..., T, E], [..., S, E], [..., S, V] f32/f64/f16/bf16; ... broadcasts
//   -> new [..., T, V];  grad to query, key, value (and a float mask)
//   errors  SHAPE, DTYPE
TENSOR_API tensor_t *tensor_scaled_dot_product_attention_with(tensor_scaled_dot_product_attention_args_t a);
TENSOR_API tensor_scaled_dot_product_attention_args_t tensor_scaled_dot_product_attention_defaults(void);

// What a recurrent net gives: y is the output of every step, h the state after the last one (and c, for LSTM
// only, else NULL). All of them are poison on failure.
typedef struct tensor_state_t { tensor_t *y, *h, *c; } tensor_state_t;

typedef struct tensor_rnn_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    tensor_t *const *weights TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_t *h TENSOR_INIT;                // first state, NULL = zeros
    tensor_t *c TENSOR_INIT;                // LSTM
    int64_t layers TENSOR_INIT;             // default 1
    int64_t proj_size TENSOR_INIT;          // LSTM: h is projected to that many features
    double dropout TENSOR_INIT;             // between layers, in training
    int training TENSOR_INIT, no_bias TENSOR_INIT, bidirectional TENSOR_INIT;
    int batch_first TENSOR_INIT;            // x and y are [N, T, ...]
    int relu TENSOR_INIT;                   // tensor_rnn: relu instead of tanh
} tensor_rnn_args_t;

// Recurrent nets over time (LSTM: Hochreiter and Schmidhuber, 1997): tensor_lstm(x, weights, .h = h, .c = c).
//   x        [T, N, I] or [T, I], T > 0, f32/f64/f16/bf16
//   weights  for each layer, for each direction: w_ih [G, I], w_hh [G, H], b_ih [G], b_hh [G] (not with
//            no_bias), w_hr [proj_size, H] (if that is set); G = H (rnn), 3 H (gru: r z n), 4 H (lstm: i f
//            g o)
//   h, c     [layers * directions, N, H] ([.., H] for x [T, I]); h of proj_size if set
//   -> y [T, N, directions * H], h, c of the last step, all new;  grad through time
//   errors   SHAPE, DTYPE, POISONED
TENSOR_API tensor_state_t tensor_lstm_with(tensor_rnn_args_t a);
TENSOR_API tensor_state_t tensor_gru_with(tensor_rnn_args_t a);
TENSOR_API tensor_state_t tensor_rnn_with(tensor_rnn_args_t a);
TENSOR_API tensor_rnn_args_t tensor_rnn_defaults(void);

// One step of these nets.
//   x           [N, I] or [I]
//   h, c        [N, H] or [H]; NULL = zeros
//   w_ih, w_hh  [G, I], [G, H]; b_ih, b_hh [G] or NULL
//   -> new state: h (lstm: y is h as well);  grad as above;  errors SHAPE, DTYPE
TENSOR_API tensor_state_t tensor_lstm_cell(tensor_t *x, tensor_t *h, tensor_t *c, tensor_t *w_ih,
                                           tensor_t *w_hh, tensor_t *b_ih, tensor_t *b_hh);
TENSOR_API tensor_t *tensor_gru_cell(tensor_t *x, tensor_t *h, tensor_t *w_ih, tensor_t *w_hh, tensor_t *b_ih,
                                     tensor_t *b_hh);
TENSOR_API tensor_t *tensor_rnn_cell(tensor_t *x, tensor_t *h, tensor_t *w_ih, tensor_t *w_hh, tensor_t *b_ih,
                                     tensor_t *b_hh, int relu);

// What the macros call: they note the place of the call in a state or a module, and the names that a call
// has in its results and errors. In C a call with options fills the args struct. In C++ it goes to an
// overload that does so, see >>nn-cpp.
TENSOR_API tensor_state_t nn__at_state(const char *site, tensor_state_t s);
#define NN__CALL(function, ...) nn__stamp(TENSOR__IN(function), (function)(__VA_ARGS__))
#ifdef __cplusplus
#define NN__WITH(function, type, ...) nn__stamp(TENSOR__IN(function), (function)(__VA_ARGS__))
#define NN__WITH_OWN(function, ...) nn__stamp(TENSOR__IN(function), (function)(__VA_ARGS__))
#define NN__NEEDS(function, type, ...) nn__stamp(TENSOR__IN(function), (function)(__VA_ARGS__))
#else
#define NN__WITH(function, type, ...) function##_with(TENSOR_ARGS(function, type##_args_t, __VA_ARGS__))
#define NN__WITH_OWN(function, ...) NN__WITH(function, function, __VA_ARGS__)
#define NN__NEEDS(function, type, ...)                                                                       \
    function##_with(TENSOR_ARGS_NEEDED(function, type##_args_t, __VA_ARGS__))
#endif
TENSOR_API tensor_pair_t tensor__max_pool1d_with_indices(tensor_max_pool_args_t a);
TENSOR_API tensor_pair_t tensor__max_pool2d_with_indices(tensor_max_pool_args_t a);
TENSOR_API tensor_pair_t tensor__max_pool3d_with_indices(tensor_max_pool_args_t a);
#define tensor_max_pool1d_with_indices_with tensor__max_pool1d_with_indices
#define tensor_max_pool2d_with_indices_with tensor__max_pool2d_with_indices
#define tensor_max_pool3d_with_indices_with tensor__max_pool3d_with_indices

#ifndef TENSOR_EDITOR
#define tensor_bilinear(...) TENSOR__CALL(tensor_bilinear, __VA_ARGS__)
#define tensor_lstm_cell(...) nn__at_state(TENSOR__IN(tensor_lstm_cell), (tensor_lstm_cell)(__VA_ARGS__))
#define tensor_gru_cell(...) TENSOR__CALL(tensor_gru_cell, __VA_ARGS__)
#define tensor_rnn_cell(...) TENSOR__CALL(tensor_rnn_cell, __VA_ARGS__)
#define tensor_linear(...) TENSOR__CALL3(tensor_linear, __VA_ARGS__)
#define tensor_linear_relu(...) TENSOR__CALL3(tensor_linear_relu, __VA_ARGS__)
#define tensor_linear_gelu_tanh(...) TENSOR__CALL3(tensor_linear_gelu_tanh, __VA_ARGS__)
#define tensor_adaptive_avg_pool1d(...) TENSOR__CALL(tensor_adaptive_avg_pool1d, __VA_ARGS__)
#define tensor_adaptive_avg_pool2d(...) TENSOR__CALL(tensor_adaptive_avg_pool2d, __VA_ARGS__)
#define tensor_adaptive_avg_pool3d(...) TENSOR__CALL(tensor_adaptive_avg_pool3d, __VA_ARGS__)
#define tensor_affine_grid(...) TENSOR__CALL(tensor_affine_grid, __VA_ARGS__)
#define tensor_channel_shuffle(...) TENSOR__CALL(tensor_channel_shuffle, __VA_ARGS__)
#define tensor_lp_pool1d(...) TENSOR__CALL(tensor_lp_pool1d, __VA_ARGS__)
#define tensor_lp_pool2d(...) TENSOR__CALL(tensor_lp_pool2d, __VA_ARGS__)
#define tensor_lp_pool3d(...) TENSOR__CALL(tensor_lp_pool3d, __VA_ARGS__)
#define tensor_pad_n(...) TENSOR__CALL(tensor_pad_n, __VA_ARGS__)
#define tensor_pixel_shuffle(...) TENSOR__CALL(tensor_pixel_shuffle, __VA_ARGS__)
#define tensor_pixel_unshuffle(...) TENSOR__CALL(tensor_pixel_unshuffle, __VA_ARGS__)
#define tensor_adaptive_max_pool1d(...) TENSOR__CALL_KIND(pair, tensor_adaptive_max_pool1d, __VA_ARGS__)
#define tensor_adaptive_max_pool2d(...) TENSOR__CALL_KIND(pair, tensor_adaptive_max_pool2d, __VA_ARGS__)
#define tensor_adaptive_max_pool3d(...) TENSOR__CALL_KIND(pair, tensor_adaptive_max_pool3d, __VA_ARGS__)
#define tensor_dropout(...) TENSOR__CALL(tensor_dropout, __VA_ARGS__)
#define tensor_dropout1d(...) TENSOR__CALL(tensor_dropout1d, __VA_ARGS__)
#define tensor_dropout2d(...) TENSOR__CALL(tensor_dropout2d, __VA_ARGS__)
#define tensor_dropout3d(...) TENSOR__CALL(tensor_dropout3d, __VA_ARGS__)
#define tensor_alpha_dropout(...) TENSOR__CALL(tensor_alpha_dropout, __VA_ARGS__)
#define tensor_celu(...) TENSOR__CALL(tensor_celu, __VA_ARGS__)
#define tensor_glu(...) TENSOR__CALL(tensor_glu, __VA_ARGS__)
#define tensor_hardshrink(...) TENSOR__CALL(tensor_hardshrink, __VA_ARGS__)
#define tensor_prelu(...) TENSOR__CALL2(tensor_prelu, __VA_ARGS__)
#define tensor_relu6(...) TENSOR__CALL1(tensor_relu6, __VA_ARGS__)
#define tensor_rrelu(...) TENSOR__CALL(tensor_rrelu, __VA_ARGS__)
#define tensor_selu(...) TENSOR__CALL1(tensor_selu, __VA_ARGS__)
#define tensor_softmin(...) TENSOR__CALL(tensor_softmin, __VA_ARGS__)
#define tensor_softshrink(...) TENSOR__CALL(tensor_softshrink, __VA_ARGS__)
#define tensor_softsign(...) TENSOR__CALL1(tensor_softsign, __VA_ARGS__)
#define tensor_tanhshrink(...) TENSOR__CALL1(tensor_tanhshrink, __VA_ARGS__)
#define tensor_threshold(...) TENSOR__CALL(tensor_threshold, __VA_ARGS__)
#define tensor_gumbel_softmax(...) TENSOR__CALL(tensor_gumbel_softmax, __VA_ARGS__)
#define tensor_normalize(...) TENSOR__CALL(tensor_normalize, __VA_ARGS__)
#define tensor_cosine_similarity(...) TENSOR__CALL(tensor_cosine_similarity, __VA_ARGS__)
#define tensor_pairwise_distance(...) TENSOR__CALL(tensor_pairwise_distance, __VA_ARGS__)
#endif
#define tensor_embedding(...) NN__WITH_OWN(tensor_embedding, __VA_ARGS__)
#define tensor_layer_norm(...) NN__WITH_OWN(tensor_layer_norm, __VA_ARGS__)
#define tensor_embedding_bag(...) NN__WITH_OWN(tensor_embedding_bag, __VA_ARGS__)
#define tensor_lstm(...) NN__WITH(tensor_lstm, tensor_rnn, __VA_ARGS__)
#define tensor_gru(...) NN__WITH(tensor_gru, tensor_rnn, __VA_ARGS__)
#define tensor_rnn(...) NN__WITH_OWN(tensor_rnn, __VA_ARGS__)
#define tensor_batch_norm(...) NN__WITH_OWN(tensor_batch_norm, __VA_ARGS__)
#define tensor_instance_norm(...) NN__WITH_OWN(tensor_instance_norm, __VA_ARGS__)
#define tensor_group_norm(...) NN__WITH_OWN(tensor_group_norm, __VA_ARGS__)
#define tensor_rms_norm(...) NN__WITH_OWN(tensor_rms_norm, __VA_ARGS__)
#define tensor_local_response_norm(...) NN__WITH_OWN(tensor_local_response_norm, __VA_ARGS__)
#define tensor_conv1d(...) NN__WITH(tensor_conv1d, tensor_conv, __VA_ARGS__)
#define tensor_conv2d(...) NN__WITH(tensor_conv2d, tensor_conv, __VA_ARGS__)
#define tensor_conv3d(...) NN__WITH(tensor_conv3d, tensor_conv, __VA_ARGS__)
#define tensor_conv_transpose1d(...) NN__WITH(tensor_conv_transpose1d, tensor_conv_transpose, __VA_ARGS__)
#define tensor_conv_transpose2d(...) NN__WITH(tensor_conv_transpose2d, tensor_conv_transpose, __VA_ARGS__)
#define tensor_conv_transpose3d(...) NN__WITH(tensor_conv_transpose3d, tensor_conv_transpose, __VA_ARGS__)
#define tensor_max_pool1d(...) NN__WITH(tensor_max_pool1d, tensor_max_pool, __VA_ARGS__)
#define tensor_max_pool2d(...) NN__WITH(tensor_max_pool2d, tensor_max_pool, __VA_ARGS__)
#define tensor_max_pool3d(...) NN__WITH(tensor_max_pool3d, tensor_max_pool, __VA_ARGS__)
#define tensor_avg_pool1d(...) NN__WITH(tensor_avg_pool1d, tensor_avg_pool, __VA_ARGS__)
#define tensor_avg_pool2d(...) NN__WITH(tensor_avg_pool2d, tensor_avg_pool, __VA_ARGS__)
#define tensor_avg_pool3d(...) NN__WITH(tensor_avg_pool3d, tensor_avg_pool, __VA_ARGS__)
#define tensor_max_unpool1d(...) NN__WITH(tensor_max_unpool1d, tensor_max_unpool, __VA_ARGS__)
#define tensor_max_unpool2d(...) NN__WITH(tensor_max_unpool2d, tensor_max_unpool, __VA_ARGS__)
#define tensor_max_unpool3d(...) NN__WITH(tensor_max_unpool3d, tensor_max_unpool, __VA_ARGS__)
#define tensor_max_pool1d_with_indices(...)                                                                  \
    NN__WITH(tensor_max_pool1d_with_indices, tensor_max_pool, __VA_ARGS__)
#define tensor_max_pool2d_with_indices(...)                                                                  \
    NN__WITH(tensor_max_pool2d_with_indices, tensor_max_pool, __VA_ARGS__)
#define tensor_max_pool3d_with_indices(...)                                                                  \
    NN__WITH(tensor_max_pool3d_with_indices, tensor_max_pool, __VA_ARGS__)
#define tensor_im2col(...) NN__WITH(tensor_im2col, tensor_columns, __VA_ARGS__)
#define tensor_interpolate(...) NN__WITH_OWN(tensor_interpolate, __VA_ARGS__)
#define tensor_grid_sample(...) NN__WITH_OWN(tensor_grid_sample, __VA_ARGS__)
#define tensor_scaled_dot_product_attention(...)                                                             \
    NN__WITH_OWN(tensor_scaled_dot_product_attention, __VA_ARGS__)
#ifndef __cplusplus
#define tensor_col2im(input, output, ...)                                                                    \
    NN__WITH(tensor_col2im, tensor_columns, .x = (input), .height = (output), .kernel = __VA_ARGS__)
#define tensor_pad(x, ...) tensor_pad_n(x, TENSOR_DIMS(__VA_ARGS__), TENSOR_PAD_CONSTANT, 0)
#endif

// ------------------------------------------------------------------------------
// >>losses                                         MARK: losses
//
// Input and target must have the same shape (except class indices and gaussian_nll_loss): a loss that
// broadcasts silently trains the wrong thing. Options work as in >>functional. .reduction is TENSOR_MEAN
// (default), TENSOR_SUM or TENSOR_NONE. Inputs of several dtypes promote, also integers; huber,
// binary_cross_entropy and the weights of classes do not promote.
// All: -> new 0-d (TENSOR_NONE: the shape of the target);  grad fused, differentiable itself
//      errors SHAPE (shapes differ), DTYPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

typedef enum tensor_reduction_t {
    TENSOR_MEAN, TENSOR_SUM, TENSOR_NONE,
    TENSOR_BATCHMEAN                        // sum / size of dim 0, kl_div only
} tensor_reduction_t;

typedef struct tensor_cross_entropy_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // [C], NULL = 1
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // [C], NULL = 1
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_mse_loss_args_t;

// (input - target)^2.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad 2 (input - target);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_mse_loss_with(tensor_mse_loss_args_t a);
TENSOR_API tensor_mse_loss_args_t tensor_mse_loss_defaults(void);

typedef struct tensor_l1_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_l1_loss_args_t;

// |input - target|.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad sign(input - target);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_l1_loss_with(tensor_l1_loss_args_t a);
TENSOR_API tensor_l1_loss_args_t tensor_l1_loss_defaults(void);

typedef struct tensor_smooth_l1_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // broadcasts to input, NULL = 1
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // broadcasts to input, NULL = 1
    tensor_t *pos_weight TENSOR_INIT;       // the same, for the positive term
    const void *options_are_named_ TENSOR_INIT;
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
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int log_target TENSOR_INIT;             // target is log-probabilities as well
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_kl_div_args_t;

// t (log t - input), the Kullback-Leibler divergence; input is log-probabilities.
//   input, target   any shape, the same, f32/f64/f16/bf16
//   -> new;  grad -t;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_kl_div_with(tensor_kl_div_args_t a);
TENSOR_API tensor_kl_div_args_t tensor_kl_div_defaults(void);

typedef struct tensor_margin_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    tensor_t *weight TENSOR_INIT;           // [C], NULL = 1; for multi_margin and multilabel_soft_margin
    const void *options_are_named_ TENSOR_INIT;
    double margin TENSOR_INIT;              // default 1; for hinge_embedding and multi_margin
    int64_t p TENSOR_INIT;                  // 1 (default) or 2; for multi_margin
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_margin_loss_args_t;

// x where target is 1, max(0, margin - x) where it is -1.
//   input   any shape, f32/f64/f16/bf16
//   target  shape of input, 1 or -1, a float of its dtype or an integer
//   -> new;  grad 1, -1 or 0;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_hinge_embedding_loss_with(tensor_margin_loss_args_t a);
TENSOR_API tensor_margin_loss_args_t tensor_hinge_embedding_loss_defaults(void);
// log(1 + exp(-target x)), stable; target 1 or -1.
//   -> new;  grad -target sigmoid(-target x);  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_soft_margin_loss_with(tensor_margin_loss_args_t a);
TENSOR_API tensor_margin_loss_args_t tensor_soft_margin_loss_defaults(void);
// Sum over the other classes i of weight[y] max(0, margin - x[y] + x[i])^p, over C.
//   input   [N, C] or [C]; [] means one class
//   target  [N], i32/i64, the class y of each row; [] or [1] for one row
//   -> new;  TENSOR_NONE: shape of target;  grad through the maximum
//   errors  INDEX (a target outside), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_multi_margin_loss_with(tensor_margin_loss_args_t a);
TENSOR_API tensor_margin_loss_args_t tensor_multi_margin_loss_defaults(void);
// Sum over target classes y and other classes i of max(0, 1 - x[y] + x[i]), over C.
//   input   [N, C] or [C]; [] means one class
//   target  the same shape, i32/i64: classes of the row, ended by -1; [] means [1]
//   -> new;  TENSOR_NONE: [N];  grad through the maximum;  errors INDEX (a target outside), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_multilabel_margin_loss_with(tensor_margin_loss_args_t a);
TENSOR_API tensor_margin_loss_args_t tensor_multilabel_margin_loss_defaults(void);
// Mean over classes of weight times the binary cross entropy of sigmoid(input).
//   input, target   [..., C]; target 0 to 1
//   -> new;  TENSOR_NONE: [...];  grad sigmoid(x) - t;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_multilabel_soft_margin_loss_with(tensor_margin_loss_args_t a);
TENSOR_API tensor_margin_loss_args_t tensor_multilabel_soft_margin_loss_defaults(void);

typedef struct tensor_ranking_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input1 TENSOR_INIT, *input2 TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double margin TENSOR_INIT;              // default 0
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_ranking_loss_args_t;

// max(0, margin - target (x1 - x2)).
//   input1, input2, target   one shape, f32/f64/f16/bf16; target 1 or -1, also of an integer dtype
//   -> new;  grad -target, target or 0;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_margin_ranking_loss_with(tensor_ranking_loss_args_t a);
TENSOR_API tensor_ranking_loss_args_t tensor_margin_ranking_loss_defaults(void);
// 1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1.
//   input1, input2   [N, D] or [D], f32/f64/f16/bf16
//   target           [N] or [], 1 or -1
//   -> new;  grad through the cosine;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_cosine_embedding_loss_with(tensor_ranking_loss_args_t a);
TENSOR_API tensor_ranking_loss_args_t tensor_cosine_embedding_loss_defaults(void);

typedef struct tensor_triplet_margin_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *anchor TENSOR_INIT, *positive TENSOR_INIT, *negative TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double margin TENSOR_INIT;              // default 1
    double p TENSOR_INIT;                   // which norm, default 2
    double eps TENSOR_INIT;                 // added to differences, default 1e-6
    int swap TENSOR_INIT;                   // negative is compared with the nearer of anchor and positive
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_triplet_margin_loss_args_t;

// max(0, margin + |anchor - positive| - |anchor - negative|), p-norms over the last dim.
//   anchor, positive, negative   [..., D], one shape, f32/f64/f16/bf16
//   -> new;  TENSOR_NONE: [...];  grad through the norms;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_triplet_margin_loss_with(tensor_triplet_margin_loss_args_t a);
TENSOR_API tensor_triplet_margin_loss_args_t tensor_triplet_margin_loss_defaults(void);

typedef struct tensor_gaussian_nll_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT, *var TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int full TENSOR_INIT;                   // adds log(2 pi) / 2
    double eps TENSOR_INIT;                 // least variance, default 1e-6
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_gaussian_nll_loss_args_t;

// (log var + (input - target)^2 / var) / 2.
//   input   any shape, f32/f64/f16/bf16
//   target  broadcasts to the shape of input (PyTorch: both broadcast to each other)
//   var     the shape of input, or with one dim of 1, or without the last dim; >= 0
//   -> new;  TENSOR_NONE: shape of input;  grad as if eps were not a bound
//   errors  INDEX (a negative var), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_gaussian_nll_loss_with(tensor_gaussian_nll_loss_args_t a);
TENSOR_API tensor_gaussian_nll_loss_args_t tensor_gaussian_nll_loss_defaults(void);

typedef struct tensor_poisson_nll_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *input TENSOR_INIT, *target TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int no_log_input TENSOR_INIT;           // input is the rate itself: input - target log(input + eps)
    int full TENSOR_INIT;                   // adds Stirling's formula for log target!
    double eps TENSOR_INIT;                 // default 1e-8
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_poisson_nll_loss_args_t;

// exp(input) - target input: input is the logarithm of a rate, target a count.
//   input, target   any shape, the same, f32/f64/f16/bf16 (target also integers)
//   -> new;  grad exp(input) - target;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_poisson_nll_loss_with(tensor_poisson_nll_loss_args_t a);
TENSOR_API tensor_poisson_nll_loss_args_t tensor_poisson_nll_loss_defaults(void);

typedef struct tensor_ctc_loss_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *log_probs TENSOR_INIT, *targets TENSOR_INIT, *input_lengths TENSOR_INIT;
    tensor_t *target_lengths TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t blank TENSOR_INIT;              // default 0
    int zero_infinity TENSOR_INIT;          // impossible alignments count as 0 instead of infinity
    tensor_reduction_t reduction TENSOR_INIT;
} tensor_ctc_loss_args_t;

// Connectionist temporal classification: -log of the probability of all alignments that give the targets.
//   log_probs                      [T, N, C] or [T, C], f32/f64/f16/bf16, logarithms of probabilities
//   targets                        [N, S] padded or [sum of target_lengths], i32/i64, no blanks; [S]
//   input_lengths, target_lengths  [N] or [], i32/i64
//   -> new 0-d: each item / max(its target length, 1), then the mean;  TENSOR_NONE: [N] or []
//   grad    for log_probs that come from log_softmax, as PyTorch's
//   errors  INDEX (a class or length outside), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_ctc_loss_with(tensor_ctc_loss_args_t a);
TENSOR_API tensor_ctc_loss_args_t tensor_ctc_loss_defaults(void);

#define tensor_cross_entropy(...) NN__WITH_OWN(tensor_cross_entropy, __VA_ARGS__)
#define tensor_nll_loss(...) NN__WITH_OWN(tensor_nll_loss, __VA_ARGS__)
#define tensor_mse_loss(...) NN__WITH_OWN(tensor_mse_loss, __VA_ARGS__)
#define tensor_l1_loss(...) NN__WITH_OWN(tensor_l1_loss, __VA_ARGS__)
#define tensor_smooth_l1_loss(...) NN__WITH_OWN(tensor_smooth_l1_loss, __VA_ARGS__)
#define tensor_huber_loss(...) NN__WITH_OWN(tensor_huber_loss, __VA_ARGS__)
#define tensor_binary_cross_entropy(...) NN__WITH_OWN(tensor_binary_cross_entropy, __VA_ARGS__)
#define tensor_binary_cross_entropy_with_logits(...)                                                         \
    NN__WITH_OWN(tensor_binary_cross_entropy_with_logits, __VA_ARGS__)
#define tensor_hinge_embedding_loss(...)                                                                     \
    NN__WITH(tensor_hinge_embedding_loss, tensor_margin_loss, __VA_ARGS__)
#define tensor_soft_margin_loss(...) NN__WITH(tensor_soft_margin_loss, tensor_margin_loss, __VA_ARGS__)
#define tensor_multi_margin_loss(...) NN__WITH(tensor_multi_margin_loss, tensor_margin_loss, __VA_ARGS__)
#define tensor_multilabel_margin_loss(...)                                                                   \
    NN__WITH(tensor_multilabel_margin_loss, tensor_margin_loss, __VA_ARGS__)
#define tensor_multilabel_soft_margin_loss(...)                                                              \
    NN__WITH(tensor_multilabel_soft_margin_loss, tensor_margin_loss, __VA_ARGS__)
#define tensor_margin_ranking_loss(...) NN__WITH(tensor_margin_ranking_loss, tensor_ranking_loss, __VA_ARGS__)
#define tensor_cosine_embedding_loss(...)                                                                    \
    NN__WITH(tensor_cosine_embedding_loss, tensor_ranking_loss, __VA_ARGS__)
#define tensor_triplet_margin_loss(...) NN__WITH_OWN(tensor_triplet_margin_loss, __VA_ARGS__)
#define tensor_gaussian_nll_loss(...) NN__WITH_OWN(tensor_gaussian_nll_loss, __VA_ARGS__)
#define tensor_poisson_nll_loss(...) NN__WITH_OWN(tensor_poisson_nll_loss, __VA_ARGS__)
#define tensor_ctc_loss(...) NN__WITH_OWN(tensor_ctc_loss, __VA_ARGS__)
#define tensor_kl_div(...) NN__WITH_OWN(tensor_kl_div, __VA_ARGS__)

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic pop
#endif

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif

// ------------------------------------------------------------------------------
// >>modules                                        MARK: modules
//
// A module is a forward function with named parameters, buffers and children. The struct is public so that a
// user's own struct can have it as its first member. What is registered is kept in a private block, so that
// shutdown never reads a user's struct that has no destroy function. Functions that are given NULL act as on
// a module that failed; constructors return NULL when they fail. Rejected: a vtable per kind (users write one
// function pointer).
//
//     typedef struct { nn_module_t base; tensor_t *w; nn_module_t *fc; } my_t;
//     static tensor_t *my_forward(nn_module_t *m, tensor_t *x) {
//         my_t *my = (my_t *)m;
//         return nn_forward(my->fc, tensor_mul(x, my->w));
//     }
//     ...
//     my_t my;
//     nn_module_init(&my.base, "My", my_forward, NULL);
//     my.w = nn_parameter(&my.base, "w", tensor_ones(8));
//     my.fc = nn_child(&my.base, "fc", nn_linear(8, 2));
//
// OWNERSHIP  Modules belong to the context: nn_free frees one early, tensor_shutdown frees all, in any order.
//            A child is freed with its last parent. A module owns what it registers, whatever scope is open.
//            A forward opens a scope and only its result leaves it. State that a module carries from call to
//            call is stored by tensor_set.
// ------------------------------------------------------------------------------

typedef struct nn_module_t nn_module_t;
typedef struct nn_module_impl_t nn_module_impl_t;
typedef tensor_t *(*nn_forward_fn_t)(nn_module_t *m, tensor_t *x);

struct nn_module_t {
    const char *name;                       // kind, "Linear"; static string
    nn_forward_fn_t forward;
    nn_module_t *(*clone)(nn_module_t *m);  // for nn_clone; makes a module of the same structure; or NULL
    int training;                           // 1 at first and after nn_train, 0 after nn_eval
    int code;                               // tensor_code_t of the first failure while it was built, 0 = none
    const char *site;                       // where it was made
    nn_module_impl_t *impl;                 // private
    uint32_t state_;                        // private: tells a module from other memory
};

// One entry of a module's state. The name has dots: "layer3.0.weight".
typedef struct nn_named_t { const char *name; tensor_t *tensor; int is_buffer; } nn_named_t;
typedef struct nn_named_list_t { const nn_named_t *item; int64_t count; } nn_named_list_t;

// Makes m a module without parameters. Cannot fail: when memory is short, m is marked as failed and its
// forward gives that error.
//   m        the user's storage; first member of the user's struct
//   name     static string
//   destroy  NULL, or called once when the module is freed: frees what the user allocated (also m itself, if
//            it came from malloc)
//   -> nothing;  errors OUT_OF_MEMORY
TENSOR_API void nn_module_init(nn_module_t *m, const char *name, nn_forward_fn_t forward,
                               void (*destroy)(nn_module_t *m));

// Registers a trainable tensor and sets its requires_grad. A tensor already registered by that name is
// replaced.
//   name    not empty, without dots; copied
//   t       leaf, any float dtype, any shape; the same tensor may be a parameter of several modules (tied
//           weights)
//   -> t (borrowed: the module holds it)
//   errors  SHAPE (name), DTYPE, AUTOGRAD (not a leaf); all mark m failed
TENSOR_API tensor_t *nn_parameter(nn_module_t *m, const char *name, tensor_t *t);

// Registers a tensor that is saved but not trained (running statistics).
//   -> t (borrowed);  errors SHAPE (name); mark m failed
TENSOR_API tensor_t *nn_buffer(nn_module_t *m, const char *name, tensor_t *t);

// Registers a module as part of m.
//   child   NULL or failed marks m failed; may be the child of several modules
//   -> child (borrowed);  errors SHAPE (name), OWNER (m is part of child)
TENSOR_API nn_module_t *nn_child(nn_module_t *m, const char *name, nn_module_t *child);

// Runs the module.
//   x       what the module takes
//   -> new;  grad through the operations inside;  errors of those, with the module's path in the text
TENSOR_API tensor_t *nn_forward(nn_module_t *m, tensor_t *x);

typedef tensor_t *(*nn_forward_pre_hook_t)(nn_module_t *m, tensor_t *x, void *user);
typedef tensor_t *(*nn_forward_hook_t)(nn_module_t *m, tensor_t *x, tensor_t *y, void *user);
typedef tensor_t *(*nn_full_backward_hook_t)(nn_module_t *m, tensor_t *grad_input, tensor_t *grad_output,
                                             void *user);

// Hooks that nn_forward runs in the order of their registration; a clone of m has none.
//   fn      pre hook, before the forward of m: returns what replaces x, NULL = leave x
//           hook, after the forward: the same for the result y
//           backward hook, when the gradients of x and y are there (grad_input is NULL if x requires none):
//           the same for grad_input
//   -> handle for nn_remove_hook, 0 on failure;  errors OWNER (fn is NULL), POISONED, OUT_OF_MEMORY
TENSOR_API int64_t nn_register_forward_pre_hook(nn_module_t *m, nn_forward_pre_hook_t fn, void *user);
TENSOR_API int64_t nn_register_forward_hook(nn_module_t *m, nn_forward_hook_t fn, void *user);
TENSOR_API int64_t nn_register_full_backward_hook(nn_module_t *m, nn_full_backward_hook_t fn, void *user);
// Removes a hook.   -> 1, 0 if m has no such hook;  errors none
TENSOR_API int nn_remove_hook(nn_module_t *m, int64_t handle);

// Switches m and all modules inside it to training (dropout acts) or to evaluation.   -> m;  errors none
TENSOR_API nn_module_t *nn_train(nn_module_t *m);
TENSOR_API nn_module_t *nn_eval(nn_module_t *m);

// Sets requires_grad of all parameters (0 freezes a part of a net).   -> m;  errors AUTOGRAD
TENSOR_API nn_module_t *nn_requires_grad_(nn_module_t *m, int on);

// Drops the gradients of all parameters (nn_zero_grad does so for those of an optimizer).
//   -> code;  errors POISONED
TENSOR_API int nn_module_zero_grad(nn_module_t *m);

// Frees m, and those children that have no other parent.
//   m       NULL does nothing. A freed module leaves about 200 bytes until tensor_shutdown, so that its use
//           is noticed
//   -> code;  errors OWNER if m is the child of another module or was freed already
TENSOR_API int nn_free(nn_module_t *m);

// All parameters with dotted names; a module's own come before those of its children, a shared one once.
//   -> borrowed list, valid until the next such call on m or until m is freed
//   errors  OUT_OF_MEMORY, POISONED (then empty)
TENSOR_API nn_named_list_t nn_named_parameters(nn_module_t *m);

// The same with buffers: what a file contains.   -> borrowed list, as above;  errors as above
TENSOR_API nn_named_list_t nn_state(nn_module_t *m);

// The same parameters as an array.
//   out     receives at most max of them; NULL = count only
//   -> how many there are, even if out has room for fewer;  errors OUT_OF_MEMORY, POISONED (then 0)
TENSOR_API int nn_parameters(nn_module_t *m, tensor_t **out, int max);

// Number of elements of all parameters.   -> count;  errors OUT_OF_MEMORY, POISONED (then 0)
TENSOR_API int64_t nn_num_parameters(nn_module_t *m);

// The parameter or buffer with a dotted name.   -> borrowed; poison if there is none;  errors INDEX
TENSOR_API tensor_t *nn_get(nn_module_t *m, const char *name);

// The module with a dotted name, "layer3.0".   -> borrowed; NULL if there is none;  errors INDEX
TENSOR_API nn_module_t *nn_get_child(nn_module_t *m, const char *name);

// The module's structure in PyTorch's form.
//   text    buffer of size bytes (may be NULL if size is 0); always terminated by 0 if size > 0
//   -> length of the whole text;  errors none
TENSOR_API size_t nn_to_string(nn_module_t *m, char *text, size_t size);

#ifndef TENSOR_NO_STDIO
// Prints this text and a newline to stdout.   -> code;  errors IO
TENSOR_API int nn_print(nn_module_t *m);
#endif

// A module of the same structure and values that shares nothing with m.
//   m       a module of this library, or the user's with .clone set
//   -> module, NULL on failure;  errors UNSUPPORTED (no .clone), OUT_OF_MEMORY
TENSOR_API nn_module_t *nn_clone(nn_module_t *m);

// Copies all parameters and buffers by name (e.g. into the clone that serves while the other one trains).
//   -> code;  errors FORMAT (names or shapes differ; then dst is unchanged), POISONED
TENSOR_API int nn_copy_state(nn_module_t *dst, nn_module_t *src);

// Converts all parameters, their gradients and buffers to another dtype or moves them to another device. The
// tensors stay the same objects, so optimizers continue with them. Integers and bool keep their dtype. Either
// all change or none does.
//   to      a float dtype (TENSOR_F64) or a device (TENSOR_CPU, TENSOR_CUDA)
//   -> code;  errors DTYPE (not a float dtype), DEVICE (no such device), AUTOGRAD (one is a view or has a
//      history), OUT_OF_MEMORY, POISONED
TENSOR_API int nn_to(nn_module_t *m, int to);

// What the macros call: they note the place of a call in the module that it made, or in its error.
TENSOR_API nn_module_t *nn__stamp(const char *site, nn_module_t *m);
TENSOR_API nn_named_list_t nn__at_list(const char *site, nn_named_list_t l);

// In C, a function's name without parentheses where a module is expected gives only a warning. For a
// transparent union with the same layout it is an error, and so is a number.
#if defined(__GNUC__) && !defined(__cplusplus)
typedef union nn__module_t { nn_module_t *m; } __attribute__((__transparent_union__)) nn__module_t;
#endif
#ifndef TENSOR_EDITOR
#define nn_parameter(...) TENSOR__CALL(nn_parameter, __VA_ARGS__)
#define nn_buffer(...) TENSOR__CALL(nn_buffer, __VA_ARGS__)
#if defined(__GNUC__) && !defined(__cplusplus)
TENSOR__IN_LINE nn_module_t *nn__child_of(nn__module_t m, const char *name,
                                                           nn__module_t child) {
    return (nn_child)(m.m, name, child.m);
}

TENSOR__IN_LINE tensor_t *nn__forward_of(nn__module_t m, tensor__tensor_t x) {
    return (nn_forward)(m.m, x.t);
}

#define nn_child(...) __extension__ nn__stamp(TENSOR__IN(nn_child), nn__child_of(__VA_ARGS__))
#define nn_forward(...) __extension__ tensor__at(TENSOR__IN(nn_forward), nn__forward_of(__VA_ARGS__))
#else
#define nn_child(...) NN__CALL(nn_child, __VA_ARGS__)
#define nn_forward(...) TENSOR__CALL(nn_forward, __VA_ARGS__)
#endif
#define nn_get(...) TENSOR__CALL(nn_get, __VA_ARGS__)
#define nn_get_child(...) NN__CALL(nn_get_child, __VA_ARGS__)
#define nn_clone(...) NN__CALL(nn_clone, __VA_ARGS__)
#define nn_train(...) NN__CALL(nn_train, __VA_ARGS__)
#define nn_eval(...) NN__CALL(nn_eval, __VA_ARGS__)
#define nn_requires_grad_(...) NN__CALL(nn_requires_grad_, __VA_ARGS__)
#define nn_free(...) TENSOR__CALL_KIND(int, nn_free, __VA_ARGS__)
#define nn_parameters(...) TENSOR__CALL_KIND(int, nn_parameters, __VA_ARGS__)
#define nn_module_zero_grad(...) TENSOR__CALL_KIND(int, nn_module_zero_grad, __VA_ARGS__)
#define nn_copy_state(...) TENSOR__CALL_KIND(int, nn_copy_state, __VA_ARGS__)
#define nn_named_parameters(...)                                                                             \
    nn__at_list(TENSOR__IN(nn_named_parameters), (nn_named_parameters)(__VA_ARGS__))
#define nn_state(...) nn__at_list(TENSOR__IN(nn_state), (nn_state)(__VA_ARGS__))
#define nn_num_parameters(...) TENSOR__CALL_KIND(i64, nn_num_parameters, __VA_ARGS__)
#define nn_register_forward_hook(...) TENSOR__CALL_KIND(i64, nn_register_forward_hook, __VA_ARGS__)
#define nn_to(...) TENSOR__CALL_KIND(int, nn_to, __VA_ARGS__)
#endif

// ------------------------------------------------------------------------------
// >>layers                                         MARK: layers
//
// Options, defaults, parameter names, shapes and initial distributions are PyTorch's. In nn_conv2d(3, 64, 3,
// .stride = 2) an option that is left out or 0 has PyTorch's default, and TENSOR_ZERO is a real zero.
// nn_x_with(args) takes every value literally (a negative _w is equal to the first), and nn_x_defaults()
// fills args. The numbers before the options are in PyTorch's order. If one is missing, a call without
// options does not compile, and a call with options fails at run time. One too many gives a warning in C and
// fails at run time; in C++ it does not compile.
// All: -> module, NULL on failure;  errors SHAPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// y = x weightT + bias.  weight [out, in], bias [out], both uniform in +-1/sqrt(in)
//   x       [..., in] f32/f64
//   -> module, y [..., out];  errors as above
typedef struct nn_linear_args_t {
    const char *site_ TENSOR_INIT;
    int64_t in_features TENSOR_INIT, out_features TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int no_bias TENSOR_INIT;
} nn_linear_args_t;
TENSOR_API nn_module_t *nn_linear_with(nn_linear_args_t a);
TENSOR_API nn_linear_args_t nn_linear_defaults(void);

// Convolutions in 1, 2 and 3 dims.  weight [out, in / groups, kernel...], bias [out], uniform in
// +-sqrt(groups / (in * kernel area)). nn_conv2d(3, 64, 3, 2, 1) has PyTorch's positions.
//   kernel, stride, padding, dilation   for the first dim of the image; the _w members are for the last dim,
//            the _h members for the height of three, 0 = equal to the first
//   same     pads so that y has x's size (stride 1)
//   padding_mode   what is padded with: TENSOR_PAD_ZEROS (default), _REFLECT, _REPLICATE, _CIRCULAR
//   x        [N, in, L], [N, in, H, W] or [N, in, D, H, W], or without N
//   -> module, y [N, out, H', W'];  errors as above
typedef struct nn_conv_args_t {
    const char *site_ TENSOR_INIT;
    int64_t in_channels TENSOR_INIT, out_channels TENSOR_INIT, kernel TENSOR_INIT, stride TENSOR_INIT,
        padding TENSOR_INIT, dilation TENSOR_INIT, groups TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT, dilation_h TENSOR_INIT, dilation_w TENSOR_INIT;
    int no_bias TENSOR_INIT, same TENSOR_INIT;
    tensor_pad_t padding_mode TENSOR_INIT;
} nn_conv_args_t;
TENSOR_API nn_module_t *nn_conv1d_with(nn_conv_args_t a);
TENSOR_API nn_module_t *nn_conv2d_with(nn_conv_args_t a);
TENSOR_API nn_module_t *nn_conv3d_with(nn_conv_args_t a);
TENSOR_API nn_conv_args_t nn_conv_defaults(void);

// Transposed convolutions.  weight [in, out / groups, kernel...], bias [out], uniform in
// +-sqrt(groups / (out * kernel area))
//   output_padding   elements added at the far end, less than stride or dilation
//   -> module;  errors as above
typedef struct nn_conv_transpose_args_t {
    const char *site_ TENSOR_INIT;
    int64_t in_channels TENSOR_INIT, out_channels TENSOR_INIT, kernel TENSOR_INIT, stride TENSOR_INIT,
        padding TENSOR_INIT, output_padding TENSOR_INIT, groups TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT, output_padding_h TENSOR_INIT,
        output_padding_w TENSOR_INIT, dilation TENSOR_INIT, dilation_h TENSOR_INIT, dilation_w TENSOR_INIT;
    int no_bias TENSOR_INIT;
} nn_conv_transpose_args_t;
TENSOR_API nn_module_t *nn_conv_transpose1d_with(nn_conv_transpose_args_t a);
TENSOR_API nn_module_t *nn_conv_transpose2d_with(nn_conv_transpose_args_t a);
TENSOR_API nn_module_t *nn_conv_transpose3d_with(nn_conv_transpose_args_t a);
TENSOR_API nn_conv_transpose_args_t nn_conv_transpose_defaults(void);

// Largest (mean) value in windows; stride 0 = kernel. The mean counts padding unless exclude_pad.
//   x       [N, C, L], [N, C, H, W] or [N, C, D, H, W], or without N
//   -> module;  errors as above
typedef struct nn_pool_args_t {
    const char *site_ TENSOR_INIT;
    int64_t kernel TENSOR_INIT, stride TENSOR_INIT, padding TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_h TENSOR_INIT, kernel_w TENSOR_INIT, stride_h TENSOR_INIT, stride_w TENSOR_INIT,
        padding_h TENSOR_INIT, padding_w TENSOR_INIT;
    int64_t dilation TENSOR_INIT, dilation_h TENSOR_INIT, dilation_w TENSOR_INIT;   // max only
    int ceil_mode TENSOR_INIT, exclude_pad TENSOR_INIT;
    int64_t divisor_override TENSOR_INIT;
} nn_pool_args_t;
TENSOR_API nn_module_t *nn_max_pool1d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_max_pool2d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_max_pool3d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_avg_pool1d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_avg_pool2d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_avg_pool3d_with(nn_pool_args_t a);
TENSOR_API nn_pool_args_t nn_pool_defaults(void);
// The inverse of a max pool with the same window: nn_max_unpool_forward(m, p.values, p.indices, NULL).
//   -> module;  errors as above
TENSOR_API nn_module_t *nn_max_unpool1d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_max_unpool2d_with(nn_pool_args_t a);
TENSOR_API nn_module_t *nn_max_unpool3d_with(nn_pool_args_t a);
//   size     of the result's last dims (1, 2 or 3 numbers), NULL = the smallest that the pool's input can be
//   -> new, as tensor_max_unpool1d, 2d, 3d;  errors SHAPE, INDEX, DTYPE, UNSUPPORTED (another kind of module)
TENSOR_API tensor_t *nn_max_unpool_forward(nn_module_t *m, tensor_t *x, tensor_t *indices,
                                           const int64_t *size);

// tensor_lp_pool1d, 2d, 3d.   -> module;  errors as above
TENSOR_API nn_module_t *nn_lp_pool1d(double norm, int64_t kernel, int64_t stride, int ceil);
TENSOR_API nn_module_t *nn_lp_pool2d(double norm, int64_t kernel, int64_t stride, int ceil);
TENSOR_API nn_module_t *nn_lp_pool3d(double norm, int64_t kernel, int64_t stride, int ceil);

// Pools that are given the size of their result, -1 = that of x.   -> module;  errors as above
TENSOR_API nn_module_t *nn_adaptive_avg_pool1d(int64_t l);
TENSOR_API nn_module_t *nn_adaptive_avg_pool2d(int64_t h, int64_t w);
TENSOR_API nn_module_t *nn_adaptive_avg_pool3d(int64_t d, int64_t h, int64_t w);
TENSOR_API nn_module_t *nn_adaptive_max_pool1d(int64_t l);
TENSOR_API nn_module_t *nn_adaptive_max_pool2d(int64_t h, int64_t w);
TENSOR_API nn_module_t *nn_adaptive_max_pool3d(int64_t d, int64_t h, int64_t w);

// tensor_interpolate: nn_upsample(.scale_factor = 2, .mode = TENSOR_BILINEAR).
//   -> module;  errors as above
typedef struct nn_upsample_args_t {
    const char *site_ TENSOR_INIT;
    int64_t size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t size_h TENSOR_INIT, size_w TENSOR_INIT;
    double scale_factor TENSOR_INIT, scale_factor_h TENSOR_INIT, scale_factor_w TENSOR_INIT;
    tensor_interpolation_t mode TENSOR_INIT;
    int align_corners TENSOR_INIT;
} nn_upsample_args_t;
TENSOR_API nn_module_t *nn_upsample_with(nn_upsample_args_t a);
TENSOR_API nn_upsample_args_t nn_upsample_defaults(void);

// tensor_pixel_shuffle, tensor_pixel_unshuffle.   -> module;  errors as above
TENSOR_API nn_module_t *nn_pixel_shuffle(int64_t factor);
TENSOR_API nn_module_t *nn_pixel_unshuffle(int64_t factor);

// tensor_pad_n with n numbers (at most 6); the others pad both ends of the last 1, 2 or 3 dims by `by`.
//   -> module;  errors as above
TENSOR_API nn_module_t *nn_pad_n(const int64_t *pads, int n, tensor_pad_t mode, double value);
TENSOR_API nn_module_t *nn_zero_pad2d(int64_t by);
TENSOR_API nn_module_t *nn_constant_pad2d(int64_t by, double value);
TENSOR_API nn_module_t *nn_reflection_pad2d(int64_t by);
TENSOR_API nn_module_t *nn_replication_pad2d(int64_t by);
TENSOR_API nn_module_t *nn_circular_pad1d(int64_t by);
TENSOR_API nn_module_t *nn_circular_pad2d(int64_t by);
TENSOR_API nn_module_t *nn_circular_pad3d(int64_t by);

// tensor_im2col; tensor_col2im into images of height x width: nn_fold(height, kernel, .padding = 1).
//   -> module;  errors as above
typedef struct nn_columns_args_t {
    const char *site_ TENSOR_INIT;
    int64_t kernel TENSOR_INIT, dilation TENSOR_INIT, padding TENSOR_INIT, stride TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t kernel_w TENSOR_INIT, dilation_w TENSOR_INIT, padding_w TENSOR_INIT, stride_w TENSOR_INIT;
    int64_t height TENSOR_INIT, width TENSOR_INIT;   // nn_fold; width 0 = height
} nn_columns_args_t;
TENSOR_API nn_module_t *nn_unfold_with(nn_columns_args_t a);
TENSOR_API nn_module_t *nn_fold_with(nn_columns_args_t a);
TENSOR_API nn_columns_args_t nn_columns_defaults(void);

// (x - mean) / sqrt(var + eps) * weight + bias over the last dim.  weight [size] ones, bias [size] zeros
//   x       [..., size]
//   -> module, y as x;  errors as above
typedef struct nn_layer_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // 1e-5
    int no_affine TENSOR_INIT, no_bias TENSOR_INIT;
} nn_layer_norm_args_t;
TENSOR_API nn_module_t *nn_layer_norm_with(nn_layer_norm_args_t a);
TENSOR_API nn_layer_norm_args_t nn_layer_norm_defaults(void);

// Attention, softmax(q kT / sqrt(head size)) v, over heads of projected inputs.  in_proj_weight
// [3 embed, embed] (with kdim or vdim: q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias [3 embed],
// out_proj (a Linear), bias_k and bias_v [1, 1, embed]
//   heads   must divide embed
//   x       nn_forward(m, x): self-attention of x [T, N, embed]
//   -> module;  errors as above
typedef struct nn_multihead_attention_args_t {
    const char *site_ TENSOR_INIT;
    int64_t embed TENSOR_INIT, heads TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double dropout TENSOR_INIT;
    int64_t kdim TENSOR_INIT, vdim TENSOR_INIT;   // features of key and value; 0 = embed
    int no_bias TENSOR_INIT, add_bias_kv TENSOR_INIT, add_zero_attn TENSOR_INIT, batch_first TENSOR_INIT;
} nn_multihead_attention_args_t;
TENSOR_API nn_module_t *nn_multihead_attention_with(nn_multihead_attention_args_t a);
TENSOR_API nn_multihead_attention_args_t nn_multihead_attention_defaults(void);

// Its forward: nn_multihead_attention_forward(m, q, k, v, .key_padding_mask = pad).
//   query, key, value   [T, N, embed], [S, N, kdim], [S, N, vdim]; batch_first: N comes first; also without N
//   attn_mask           [T, S] or [N * heads, T, S]; bool (true = must NOT look) or a float to add
//   key_padding_mask    [N, S]; the same
//   weights             NULL, or receives the softmax [N, T, S], the mean over heads; every_head:
//                       [N, heads, T, S]
//   -> new, shape of query;  grad through the operations inside;  errors SHAPE, DTYPE
typedef struct nn_attention_args_t {
    const char *site_ TENSOR_INIT;
    nn_module_t *module TENSOR_INIT;
    tensor_t *query TENSOR_INIT, *key TENSOR_INIT, *value TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_t *attn_mask TENSOR_INIT, *key_padding_mask TENSOR_INIT, **weights TENSOR_INIT;
    int is_causal TENSOR_INIT, every_head TENSOR_INIT;
} nn_attention_args_t;
TENSOR_API tensor_t *nn_multihead_attention_forward_with(nn_attention_args_t a);

// Layers of the Transformer (Vaswani et al., NIPS 2017): self-attention, in a decoder attention to memory,
// then linear, activation, linear. Each part is added to its input and normalised.  self_attn,
// multihead_attn, linear1, linear2, norm1..3, dropout, dropout1..3
//   -> module;  errors as above
typedef struct nn_transformer_layer_args_t {
    const char *site_ TENSOR_INIT;
    int64_t embed TENSOR_INIT, heads TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t feedforward TENSOR_INIT;        // width between the two linears, 2048
    double dropout TENSOR_INIT, eps TENSOR_INIT;   // 0.1, 1e-5
    int gelu TENSOR_INIT;                   // instead of relu
    int batch_first TENSOR_INIT, norm_first TENSOR_INIT, no_bias TENSOR_INIT;
} nn_transformer_layer_args_t;
TENSOR_API nn_module_t *nn_transformer_encoder_layer_with(nn_transformer_layer_args_t a);
TENSOR_API nn_module_t *nn_transformer_decoder_layer_with(nn_transformer_layer_args_t a);
TENSOR_API nn_transformer_layer_args_t nn_transformer_layer_defaults(void);

// count of these layers in sequence (layer and copies of it, named layers.0, ..), then norm.
//   layer   becomes part of the result
//   norm    a module, or NULL
//   -> module;  errors SHAPE (count not in 1..4096), OUT_OF_MEMORY, POISONED
TENSOR_API nn_module_t *nn_transformer_encoder(nn_module_t *layer, int64_t count, nn_module_t *norm);
TENSOR_API nn_module_t *nn_transformer_decoder(nn_module_t *layer, int64_t count, nn_module_t *norm);

// The forward of these four: nn_transformer_forward(m, x, memory, .is_causal = 1). nn_forward(encoder, x)
// uses no masks.
//   x        [T, N, embed]; batch_first: [N, T, embed]
//   memory   what a decoder also looks at, [S, N, embed]; NULL for an encoder
//   masks    as those of nn_multihead_attention_forward
//   -> new, shape of x;  grad through the operations inside;  errors SHAPE, DTYPE
typedef struct nn_transformer_args_t {
    const char *site_ TENSOR_INIT;
    nn_module_t *module TENSOR_INIT;
    tensor_t *x TENSOR_INIT, *memory TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_t *mask TENSOR_INIT, *key_padding_mask TENSOR_INIT;
    tensor_t *memory_mask TENSOR_INIT, *memory_key_padding_mask TENSOR_INIT;
    int is_causal TENSOR_INIT;              // x attends only to x before it
} nn_transformer_args_t;
TENSOR_API tensor_t *nn_transformer_forward_with(nn_transformer_args_t a);

// Rows of a table, reduced over bags: nn_forward(m, x) with x [bags, n] gives the mean.  weight [count,
// size], standard normal. For offsets and weights of samples use tensor_embedding_bag with nn_get(m,
// "weight")
//   -> module, y [bags, size];  errors as above
typedef struct nn_embedding_bag_args_t {
    const char *site_ TENSOR_INIT;
    int64_t count TENSOR_INIT, size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    tensor_bag_mode_t mode TENSOR_INIT;
    int64_t padding_idx TENSOR_INIT;        // as tensor_embedding_bag
    int scale_grad_by_freq TENSOR_INIT, sparse TENSOR_INIT;
    double max_norm TENSOR_INIT, norm_type TENSOR_INIT;   // as tensor_embedding
} nn_embedding_bag_args_t;
TENSOR_API nn_module_t *nn_embedding_bag_with(nn_embedding_bag_args_t a);
TENSOR_API nn_embedding_bag_args_t nn_embedding_bag_defaults(void);

// y = x1 weight x2 + bias.  weight [out, in1, in2], bias [out], uniform in +-1/sqrt(in1)
//   -> module; nn_bilinear_forward(m, x1, x2);  errors as above
TENSOR_API nn_module_t *nn_bilinear(int64_t in1, int64_t in2, int64_t out, int no_bias);
TENSOR_API tensor_t *nn_bilinear_forward(nn_module_t *m, tensor_t *x1, tensor_t *x2); // -> new;  errors SHAPE

// Recurrent nets with one or more layers.  weight_ih_l0 [G, in], weight_hh_l0 [G, hidden], bias_ih_l0 [G],
// bias_hh_l0 [G] (G as in tensor_lstm), weight_hr_l0 [proj_size, hidden], .._l1, ..; _reverse for the other
// direction; all uniform in +-1/sqrt(hidden)
//   dropout  between layers, in training
//   x        nn_forward(m, x): [T, N, in] (batch_first: [N, T, in]) or [T, in], from a state of zeros
//   -> module, y [T, N, directions * hidden];  errors as above
typedef struct nn_rnn_args_t {
    const char *site_ TENSOR_INIT;
    int64_t in_features TENSOR_INIT, hidden TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t layers TENSOR_INIT;             // 1
    int64_t proj_size TENSOR_INIT;          // LSTM
    double dropout TENSOR_INIT;
    int no_bias TENSOR_INIT, batch_first TENSOR_INIT, bidirectional TENSOR_INIT;
    int relu TENSOR_INIT;                   // nn_rnn, nn_rnn_cell: instead of tanh
} nn_rnn_args_t;
TENSOR_API nn_module_t *nn_lstm_with(nn_rnn_args_t a);
TENSOR_API nn_module_t *nn_gru_with(nn_rnn_args_t a);
TENSOR_API nn_module_t *nn_rnn_with(nn_rnn_args_t a);
// One step: weight_ih, weight_hh, bias_ih, bias_hh.  x [N, in] or [in].   -> module, y is h;  errors as above
TENSOR_API nn_module_t *nn_lstm_cell_with(nn_rnn_args_t a);
TENSOR_API nn_module_t *nn_gru_cell_with(nn_rnn_args_t a);
TENSOR_API nn_module_t *nn_rnn_cell_with(nn_rnn_args_t a);
TENSOR_API nn_rnn_args_t nn_rnn_defaults(void);

// Their forward with state, for nets and cells: y = nn_lstm_forward(m, x, &h, &c).
//   h, c    NULL, or *h is the state to begin with (NULL = zeros) and becomes the last state, as by
//           tensor_set: if *h was NULL the caller owns it (tensor_free), else its owner stays. Unchanged on
//           failure
//   -> new y;  grad through time (tensor_set(&h, tensor_detach(h)) cuts it)
//   errors  SHAPE, DTYPE, UNSUPPORTED (another kind of module)
TENSOR_API tensor_t *nn_lstm_forward(nn_module_t *m, tensor_t *x, tensor_t **h, tensor_t **c);
TENSOR_API tensor_t *nn_gru_forward(nn_module_t *m, tensor_t *x, tensor_t **h);
TENSOR_API tensor_t *nn_rnn_forward(nn_module_t *m, tensor_t *x, tensor_t **h);

// Batch norm over [N, C], [N, C, L] (1d), [N, C, H, W] (2d), [N, C, D, H, W] (3d).  weight [C] ones, bias [C]
// zeros, buffers running_mean [C], running_var [C], num_batches_tracked [] i64, which training changes
//   cumulative  running statistics are the mean over all batches (PyTorch: momentum None)
//   -> module, y as x;  errors as above
typedef struct nn_batch_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t channels TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT, momentum TENSOR_INIT;   // 1e-5, 0.1
    int cumulative TENSOR_INIT, no_affine TENSOR_INIT, no_track_running_stats TENSOR_INIT;
} nn_batch_norm_args_t;
TENSOR_API nn_module_t *nn_batch_norm1d_with(nn_batch_norm_args_t a);
TENSOR_API nn_module_t *nn_batch_norm2d_with(nn_batch_norm_args_t a);
TENSOR_API nn_module_t *nn_batch_norm3d_with(nn_batch_norm_args_t a);
TENSOR_API nn_batch_norm_args_t nn_batch_norm_defaults(void);

// Instance norm over the same shapes, also without N; it has parameters and buffers only if the options ask.
//   -> module, y as x;  errors as above
typedef struct nn_instance_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t channels TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT, momentum TENSOR_INIT;   // 1e-5, 0.1
    int affine TENSOR_INIT, track_running_stats TENSOR_INIT;
} nn_instance_norm_args_t;
TENSOR_API nn_module_t *nn_instance_norm1d_with(nn_instance_norm_args_t a);
TENSOR_API nn_module_t *nn_instance_norm2d_with(nn_instance_norm_args_t a);
TENSOR_API nn_module_t *nn_instance_norm3d_with(nn_instance_norm_args_t a);
TENSOR_API nn_instance_norm_args_t nn_instance_norm_defaults(void);

// Group norm over [N, C, ...].  weight [C] ones, bias [C] zeros
//   -> module, y as x;  errors as above
typedef struct nn_group_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t groups TENSOR_INIT, channels TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // 1e-5
    int no_affine TENSOR_INIT;
} nn_group_norm_args_t;
TENSOR_API nn_module_t *nn_group_norm_with(nn_group_norm_args_t a);
TENSOR_API nn_group_norm_args_t nn_group_norm_defaults(void);

// x / sqrt(mean of x^2 + eps) * weight over the last dim.  weight [size] ones
//   -> module, y as x;  errors as above
typedef struct nn_rms_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double eps TENSOR_INIT;                 // 0 = the epsilon of x's dtype
    int no_affine TENSOR_INIT;
} nn_rms_norm_args_t;
TENSOR_API nn_module_t *nn_rms_norm_with(nn_rms_norm_args_t a);
TENSOR_API nn_rms_norm_args_t nn_rms_norm_defaults(void);

// tensor_local_response_norm.   -> module;  errors as above
typedef struct nn_local_response_norm_args_t {
    const char *site_ TENSOR_INIT;
    int64_t size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double alpha TENSOR_INIT, beta TENSOR_INIT, k TENSOR_INIT;      // 1e-4, 0.75, 1
} nn_local_response_norm_args_t;
TENSOR_API nn_module_t *nn_local_response_norm_with(nn_local_response_norm_args_t a);
TENSOR_API nn_local_response_norm_args_t nn_local_response_norm_defaults(void);

// Rows of a table.  weight [count, size], standard normal
//   padding_idx  row that starts as zeros and gets no gradient; TENSOR_ZERO = row 0; in nn_embedding_with
//                -1 = none
//   x       [...] i32/i64, values 0..count-1
//   -> module, y [..., size];  errors as above
typedef struct nn_embedding_args_t {
    const char *site_ TENSOR_INIT;
    int64_t count TENSOR_INIT, size TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t padding_idx TENSOR_INIT;
    double max_norm TENSOR_INIT, norm_type TENSOR_INIT;   // as tensor_embedding
    int scale_grad_by_freq TENSOR_INIT, sparse TENSOR_INIT;
} nn_embedding_args_t;
TENSOR_API nn_module_t *nn_embedding_with(nn_embedding_args_t a);
TENSOR_API nn_embedding_args_t nn_embedding_defaults(void);

// In training: zeros with probability p, the other elements times 1 / (1 - p). In evaluation: x.
//   -> module;  errors SHAPE (p outside 0..1)
TENSOR_API nn_module_t *nn_dropout(double p);
TENSOR_API nn_module_t *nn_dropout1d(double p);
TENSOR_API nn_module_t *nn_dropout2d(double p);
TENSOR_API nn_module_t *nn_dropout3d(double p);
TENSOR_API nn_module_t *nn_alpha_dropout(double p);
// All dims except the first become one.   -> module;  errors as above
TENSOR_API nn_module_t *nn_flatten(void);
// y = x.   -> module;  errors as above
TENSOR_API nn_module_t *nn_identity(void);

// Modules in sequence, named "0", "1", ... Without recording, a result between two of them is freed at once.
//   list    n modules; a NULL or failed one marks the result as failed
//   -> module;  errors OUT_OF_MEMORY, POISONED
TENSOR_API nn_module_t *nn_sequential_n(nn_module_t *const *list, int n);
// Adds a module at the end of an nn_sequential.
//   -> sequential;  errors as nn_child, UNSUPPORTED (another kind of module)
TENSOR_API nn_module_t *nn_append(nn_module_t *sequential, nn_module_t *m);

// Activations.   -> module;  errors OUT_OF_MEMORY
TENSOR_API nn_module_t *nn_relu(void);
TENSOR_API nn_module_t *nn_tanh(void);
TENSOR_API nn_module_t *nn_sigmoid(void);
TENSOR_API nn_module_t *nn_gelu(void);
TENSOR_API nn_module_t *nn_gelu_tanh(void);
TENSOR_API nn_module_t *nn_silu(void);
TENSOR_API nn_module_t *nn_leaky_relu(double slope);                      // PyTorch's default is 0.01
TENSOR_API nn_module_t *nn_elu(double alpha);                             // 1
TENSOR_API nn_module_t *nn_softplus(double beta, double threshold);       // 1, 20
TENSOR_API nn_module_t *nn_celu(double alpha);                            // 1
TENSOR_API nn_module_t *nn_hardshrink(double lambd);                      // 0.5
TENSOR_API nn_module_t *nn_hardsigmoid(void);
TENSOR_API nn_module_t *nn_hardswish(void);
TENSOR_API nn_module_t *nn_hardtanh(double lo, double hi);                // -1, 1
TENSOR_API nn_module_t *nn_logsigmoid(void);
TENSOR_API nn_module_t *nn_mish(void);
TENSOR_API nn_module_t *nn_relu6(void);
TENSOR_API nn_module_t *nn_rrelu(double lower, double upper);             // 1/8, 1/3
TENSOR_API nn_module_t *nn_selu(void);
TENSOR_API nn_module_t *nn_softshrink(double lambd);                      // 0.5
TENSOR_API nn_module_t *nn_softsign(void);
TENSOR_API nn_module_t *nn_tanhshrink(void);
TENSOR_API nn_module_t *nn_threshold(double threshold, double value);
TENSOR_API nn_module_t *nn_softmax(int64_t dim);
TENSOR_API nn_module_t *nn_softmin(int64_t dim);
TENSOR_API nn_module_t *nn_log_softmax(int64_t dim);
TENSOR_API nn_module_t *nn_glu(int64_t dim);                              // -1
// weight [num_parameters], all init (PyTorch: 1, 0.25).
//   -> module;  errors SHAPE (num_parameters < 1), OUT_OF_MEMORY
TENSOR_API nn_module_t *nn_prelu(int64_t num_parameters, double init);

#define nn_linear(in_features, ...) NN__NEEDS(nn_linear, nn_linear, in_features, __VA_ARGS__)
#define nn_conv1d(in_channels, out_channels, ...)                                                            \
    NN__NEEDS(nn_conv1d, nn_conv, in_channels, out_channels, __VA_ARGS__)
#define nn_conv2d(in_channels, out_channels, ...)                                                            \
    NN__NEEDS(nn_conv2d, nn_conv, in_channels, out_channels, __VA_ARGS__)
#define nn_conv3d(in_channels, out_channels, ...)                                                            \
    NN__NEEDS(nn_conv3d, nn_conv, in_channels, out_channels, __VA_ARGS__)
#define nn_conv_transpose1d(in_channels, out_channels, ...)                                                  \
    NN__NEEDS(nn_conv_transpose1d, nn_conv_transpose, in_channels, out_channels, __VA_ARGS__)
#define nn_conv_transpose2d(in_channels, out_channels, ...)                                                  \
    NN__NEEDS(nn_conv_transpose2d, nn_conv_transpose, in_channels, out_channels, __VA_ARGS__)
#define nn_conv_transpose3d(in_channels, out_channels, ...)                                                  \
    NN__NEEDS(nn_conv_transpose3d, nn_conv_transpose, in_channels, out_channels, __VA_ARGS__)
#define nn_max_pool1d(...) NN__NEEDS(nn_max_pool1d, nn_pool, __VA_ARGS__)
#define nn_max_pool2d(...) NN__NEEDS(nn_max_pool2d, nn_pool, __VA_ARGS__)
#define nn_max_pool3d(...) NN__NEEDS(nn_max_pool3d, nn_pool, __VA_ARGS__)
#define nn_avg_pool1d(...) NN__NEEDS(nn_avg_pool1d, nn_pool, __VA_ARGS__)
#define nn_avg_pool2d(...) NN__NEEDS(nn_avg_pool2d, nn_pool, __VA_ARGS__)
#define nn_avg_pool3d(...) NN__NEEDS(nn_avg_pool3d, nn_pool, __VA_ARGS__)
#define nn_max_unpool1d(...) NN__NEEDS(nn_max_unpool1d, nn_pool, __VA_ARGS__)
#define nn_max_unpool2d(...) NN__NEEDS(nn_max_unpool2d, nn_pool, __VA_ARGS__)
#define nn_max_unpool3d(...) NN__NEEDS(nn_max_unpool3d, nn_pool, __VA_ARGS__)
#define nn_upsample(...) NN__WITH_OWN(nn_upsample, __VA_ARGS__)
#define nn_unfold(...) NN__NEEDS(nn_unfold, nn_columns, __VA_ARGS__)
#define nn_layer_norm(...) NN__NEEDS(nn_layer_norm, nn_layer_norm, __VA_ARGS__)
#define nn_multihead_attention(embed, ...)                                                                   \
    NN__NEEDS(nn_multihead_attention, nn_multihead_attention, embed, __VA_ARGS__)
#define nn_multihead_attention_forward(...)                                                                  \
    NN__WITH(nn_multihead_attention_forward, nn_attention, __VA_ARGS__)
#define nn_transformer_encoder_layer(embed, ...)                                                             \
    NN__NEEDS(nn_transformer_encoder_layer, nn_transformer_layer, embed, __VA_ARGS__)
#define nn_transformer_decoder_layer(embed, ...)                                                             \
    NN__NEEDS(nn_transformer_decoder_layer, nn_transformer_layer, embed, __VA_ARGS__)
#define nn_transformer_forward(...) NN__WITH(nn_transformer_forward, nn_transformer, __VA_ARGS__)
#define nn_embedding_bag(count, ...) NN__NEEDS(nn_embedding_bag, nn_embedding_bag, count, __VA_ARGS__)
#define nn_lstm(in_features, ...) NN__NEEDS(nn_lstm, nn_rnn, in_features, __VA_ARGS__)
#define nn_gru(in_features, ...) NN__NEEDS(nn_gru, nn_rnn, in_features, __VA_ARGS__)
#define nn_rnn(in_features, ...) NN__NEEDS(nn_rnn, nn_rnn, in_features, __VA_ARGS__)
#define nn_lstm_cell(in_features, ...) NN__NEEDS(nn_lstm_cell, nn_rnn, in_features, __VA_ARGS__)
#define nn_gru_cell(in_features, ...) NN__NEEDS(nn_gru_cell, nn_rnn, in_features, __VA_ARGS__)
#define nn_rnn_cell(in_features, ...) NN__NEEDS(nn_rnn_cell, nn_rnn, in_features, __VA_ARGS__)
#define nn_batch_norm1d(...) NN__NEEDS(nn_batch_norm1d, nn_batch_norm, __VA_ARGS__)
#define nn_batch_norm2d(...) NN__NEEDS(nn_batch_norm2d, nn_batch_norm, __VA_ARGS__)
#define nn_batch_norm3d(...) NN__NEEDS(nn_batch_norm3d, nn_batch_norm, __VA_ARGS__)
#define nn_instance_norm1d(...) NN__NEEDS(nn_instance_norm1d, nn_instance_norm, __VA_ARGS__)
#define nn_instance_norm2d(...) NN__NEEDS(nn_instance_norm2d, nn_instance_norm, __VA_ARGS__)
#define nn_instance_norm3d(...) NN__NEEDS(nn_instance_norm3d, nn_instance_norm, __VA_ARGS__)
#define nn_group_norm(groups, ...) NN__NEEDS(nn_group_norm, nn_group_norm, groups, __VA_ARGS__)
#define nn_rms_norm(...) NN__NEEDS(nn_rms_norm, nn_rms_norm, __VA_ARGS__)
#define nn_local_response_norm(...) NN__NEEDS(nn_local_response_norm, nn_local_response_norm, __VA_ARGS__)
#define nn_embedding(count, ...) NN__NEEDS(nn_embedding, nn_embedding, count, __VA_ARGS__)
#ifndef __cplusplus
#define nn_fold(output, ...) NN__WITH(nn_fold, nn_columns, .height = (output), .kernel = __VA_ARGS__)
#define nn_pad(mode, value, ...) nn_pad_n(TENSOR_DIMS(__VA_ARGS__), mode, value)
#define NN_LIST(...)                                                                                         \
    ((nn_module_t *const[]){__VA_ARGS__}),                                                                   \
        (int)(sizeof((nn_module_t *const[]){__VA_ARGS__}) / sizeof(nn_module_t *) +                          \
              NN__CHECKED(__VA_ARGS__))
// NN__CHECKED is 0. It makes the compiler check that the first 16 of a list are modules; later ones are
// checked at run time. Nothing is called. + 0 makes an empty list an argument.
#ifdef __GNUC__
int nn__are_modules(nn__module_t, nn__module_t, nn__module_t, nn__module_t, nn__module_t, nn__module_t,
                    nn__module_t, nn__module_t, nn__module_t, nn__module_t, nn__module_t, nn__module_t,
                    nn__module_t, nn__module_t, nn__module_t, nn__module_t, ...);
#define NN__CHECK(...)                                                                                       \
    __extension__(0 * sizeof(nn__are_modules(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)))
#ifdef __clang__
#define NN__CHECKED(...)                                                                                     \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wnull-pointer-arithmetic\"")       \
    NN__CHECK(__VA_ARGS__ + 0) _Pragma("clang diagnostic pop")
#else
#define NN__CHECKED(...) NN__CHECK(__VA_ARGS__ + 0)
#endif
#else
#define NN__CHECKED(...) 0
#endif
#define nn_sequential(...) nn_sequential_n(NN_LIST(__VA_ARGS__))
#endif
#ifndef TENSOR_EDITOR
#define nn_bilinear(...) NN__CALL(nn_bilinear, __VA_ARGS__)
#define nn_bilinear_forward(...) TENSOR__CALL(nn_bilinear_forward, __VA_ARGS__)
#define nn_max_unpool_forward(...) TENSOR__CALL(nn_max_unpool_forward, __VA_ARGS__)
#define nn_lp_pool1d(...) NN__CALL(nn_lp_pool1d, __VA_ARGS__)
#define nn_lp_pool2d(...) NN__CALL(nn_lp_pool2d, __VA_ARGS__)
#define nn_lp_pool3d(...) NN__CALL(nn_lp_pool3d, __VA_ARGS__)
#define nn_lstm_forward(...) TENSOR__CALL(nn_lstm_forward, __VA_ARGS__)
#define nn_gru_forward(...) TENSOR__CALL(nn_gru_forward, __VA_ARGS__)
#define nn_rnn_forward(...) TENSOR__CALL(nn_rnn_forward, __VA_ARGS__)
#define nn_transformer_encoder(...) NN__CALL(nn_transformer_encoder, __VA_ARGS__)
#define nn_transformer_decoder(...) NN__CALL(nn_transformer_decoder, __VA_ARGS__)
#define nn_adaptive_avg_pool1d(...) NN__CALL(nn_adaptive_avg_pool1d, __VA_ARGS__)
#define nn_adaptive_avg_pool2d(...) NN__CALL(nn_adaptive_avg_pool2d, __VA_ARGS__)
#define nn_adaptive_avg_pool3d(...) NN__CALL(nn_adaptive_avg_pool3d, __VA_ARGS__)
#define nn_adaptive_max_pool1d(...) NN__CALL(nn_adaptive_max_pool1d, __VA_ARGS__)
#define nn_adaptive_max_pool2d(...) NN__CALL(nn_adaptive_max_pool2d, __VA_ARGS__)
#define nn_adaptive_max_pool3d(...) NN__CALL(nn_adaptive_max_pool3d, __VA_ARGS__)
#define nn_circular_pad1d(...) NN__CALL(nn_circular_pad1d, __VA_ARGS__)
#define nn_circular_pad2d(...) NN__CALL(nn_circular_pad2d, __VA_ARGS__)
#define nn_circular_pad3d(...) NN__CALL(nn_circular_pad3d, __VA_ARGS__)
#define nn_constant_pad2d(...) NN__CALL(nn_constant_pad2d, __VA_ARGS__)
#define nn_pad_n(...) NN__CALL(nn_pad_n, __VA_ARGS__)
#define nn_pixel_shuffle(...) NN__CALL(nn_pixel_shuffle, __VA_ARGS__)
#define nn_pixel_unshuffle(...) NN__CALL(nn_pixel_unshuffle, __VA_ARGS__)
#define nn_reflection_pad2d(...) NN__CALL(nn_reflection_pad2d, __VA_ARGS__)
#define nn_replication_pad2d(...) NN__CALL(nn_replication_pad2d, __VA_ARGS__)
#define nn_zero_pad2d(...) NN__CALL(nn_zero_pad2d, __VA_ARGS__)
#define nn_dropout(...) NN__CALL(nn_dropout, __VA_ARGS__)
#define nn_flatten(...) NN__CALL(nn_flatten, __VA_ARGS__)
#define nn_identity(...) NN__CALL(nn_identity, __VA_ARGS__)
#define nn_sequential_n(...) NN__CALL(nn_sequential_n, __VA_ARGS__)
#if defined(__GNUC__) && !defined(__cplusplus)
TENSOR__IN_LINE nn_module_t *nn__append_to(nn__module_t sequential, nn__module_t m) {
    return (nn_append)(sequential.m, m.m);
}

#define nn_append(...) __extension__ nn__stamp(TENSOR__IN(nn_append), nn__append_to(__VA_ARGS__))
#else
#define nn_append(...) NN__CALL(nn_append, __VA_ARGS__)
#endif
#define nn_relu(...) NN__CALL(nn_relu, __VA_ARGS__)
#define nn_tanh(...) NN__CALL(nn_tanh, __VA_ARGS__)
#define nn_sigmoid(...) NN__CALL(nn_sigmoid, __VA_ARGS__)
#define nn_gelu(...) NN__CALL(nn_gelu, __VA_ARGS__)
#define nn_gelu_tanh(...) NN__CALL(nn_gelu_tanh, __VA_ARGS__)
#define nn_silu(...) NN__CALL(nn_silu, __VA_ARGS__)
#define nn_leaky_relu(...) NN__CALL(nn_leaky_relu, __VA_ARGS__)
#define nn_elu(...) NN__CALL(nn_elu, __VA_ARGS__)
#define nn_softplus(...) NN__CALL(nn_softplus, __VA_ARGS__)
#define nn_dropout1d(...) NN__CALL(nn_dropout1d, __VA_ARGS__)
#define nn_dropout2d(...) NN__CALL(nn_dropout2d, __VA_ARGS__)
#define nn_dropout3d(...) NN__CALL(nn_dropout3d, __VA_ARGS__)
#define nn_alpha_dropout(...) NN__CALL(nn_alpha_dropout, __VA_ARGS__)
#define nn_celu(...) NN__CALL(nn_celu, __VA_ARGS__)
#define nn_hardshrink(...) NN__CALL(nn_hardshrink, __VA_ARGS__)
#define nn_hardsigmoid(...) NN__CALL(nn_hardsigmoid, __VA_ARGS__)
#define nn_hardswish(...) NN__CALL(nn_hardswish, __VA_ARGS__)
#define nn_hardtanh(...) NN__CALL(nn_hardtanh, __VA_ARGS__)
#define nn_logsigmoid(...) NN__CALL(nn_logsigmoid, __VA_ARGS__)
#define nn_mish(...) NN__CALL(nn_mish, __VA_ARGS__)
#define nn_relu6(...) NN__CALL(nn_relu6, __VA_ARGS__)
#define nn_rrelu(...) NN__CALL(nn_rrelu, __VA_ARGS__)
#define nn_selu(...) NN__CALL(nn_selu, __VA_ARGS__)
#define nn_softshrink(...) NN__CALL(nn_softshrink, __VA_ARGS__)
#define nn_softsign(...) NN__CALL(nn_softsign, __VA_ARGS__)
#define nn_tanhshrink(...) NN__CALL(nn_tanhshrink, __VA_ARGS__)
#define nn_threshold(...) NN__CALL(nn_threshold, __VA_ARGS__)
#define nn_softmin(...) NN__CALL(nn_softmin, __VA_ARGS__)
#define nn_glu(...) NN__CALL(nn_glu, __VA_ARGS__)
#define nn_prelu(...) NN__CALL(nn_prelu, __VA_ARGS__)
#define nn_softmax(...) NN__CALL(nn_softmax, __VA_ARGS__)
#define nn_log_softmax(...) NN__CALL(nn_log_softmax, __VA_ARGS__)
#endif

// ------------------------------------------------------------------------------
// >>init                                           MARK: initialisation
//
// torch.nn.init: each function fills t without recording and returns it. Fans of [out, in, ...]: fan_in is in
// times the product of the remaining dims, fan_out is out times that product.
// All: -> t;  errors POISONED, DTYPE (not a float), SHAPE (fans need 2 dims)
// ------------------------------------------------------------------------------

typedef enum nn_nonlinearity_t {
    NN_LEAKY_RELU, NN_RELU, NN_TANH, NN_SIGMOID, NN_LINEAR, NN_SELU
} nn_nonlinearity_t;

// Recommended gain, in the order of the enum: sqrt(2 / (1 + a^2)), sqrt 2, 5/3, 1, 1, 3/4.
//   a       negative slope of NN_LEAKY_RELU, else unused
//   -> factor;  errors none
TENSOR_API double nn_gain(nn_nonlinearity_t nonlinearity, double a);

// Uniform in [low, high); normal; one value.   -> t;  errors as above
TENSOR_API tensor_t *nn_init_uniform_(tensor_t *t, double low, double high);
TENSOR_API tensor_t *nn_init_normal_(tensor_t *t, double mean, double std);
TENSOR_API tensor_t *nn_init_constant_(tensor_t *t, double value);
TENSOR_API tensor_t *nn_init_zeros_(tensor_t *t);
TENSOR_API tensor_t *nn_init_ones_(tensor_t *t);
// Normal; values outside [low, high] are drawn again (PyTorch: mean 0, std 1, -2, 2).
//   -> t;  errors as above, SHAPE (low > high)
TENSOR_API tensor_t *nn_init_trunc_normal_(tensor_t *t, double mean, double std, double low, double high);
// Uniform in +-gain sqrt(6 / (fan_in + fan_out)); normal with deviation gain sqrt(2 / (fan_in + fan_out)).
//   gain    PyTorch's default is 1
//   -> t;  errors as above
TENSOR_API tensor_t *nn_init_xavier_uniform_(tensor_t *t, double gain);
TENSOR_API tensor_t *nn_init_xavier_normal_(tensor_t *t, double gain);
// Uniform in +-gain sqrt(3 / fan); normal with deviation gain / sqrt(fan). Defaults: fan_in, NN_LEAKY_RELU
// with a = 0.
typedef struct nn_kaiming_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *t TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double a TENSOR_INIT;
    int fan_out TENSOR_INIT;
    nn_nonlinearity_t nonlinearity TENSOR_INIT;
} nn_kaiming_args_t;

//   -> t;  errors as above
TENSOR_API tensor_t *nn_init_kaiming_uniform__with(nn_kaiming_args_t a);
TENSOR_API tensor_t *nn_init_kaiming_normal__with(nn_kaiming_args_t a);
// gain times a random matrix [size of dim 0, all other dims] whose rows are orthonormal, or whose columns are
// if there are fewer of them (Saxe et al. 2014: Q of a normal matrix, signs of R's diagonal).
//   gain    PyTorch's default is 1
//   -> t;  errors as above
TENSOR_API tensor_t *nn_init_orthogonal_(tensor_t *t, double gain);
// Ones on the diagonal of a matrix, zeros elsewhere: a linear layer that passes its input on.
//   -> t;  errors as above, SHAPE (not 2-d)
TENSOR_API tensor_t *nn_init_eye_(tensor_t *t);
// The same for convolutions [out, in, K...]: a one in the middle of kernel i of output i of each group.
//   groups  must divide out
//   -> t;  errors as above, SHAPE (not 3-d to 5-d, groups)
TENSOR_API tensor_t *nn_init_dirac_(tensor_t *t, int64_t groups);
// Normal with deviation std; in each column ceil(sparsity * rows) random elements are 0.
//   sparsity  0..1
//   -> t;  errors as above, SHAPE (not 2-d, sparsity)
TENSOR_API tensor_t *nn_init_sparse_(tensor_t *t, double sparsity, double std);

#define nn_init_kaiming_uniform_(...) NN__WITH(nn_init_kaiming_uniform_, nn_kaiming, __VA_ARGS__)
#define nn_init_kaiming_normal_(...) NN__WITH(nn_init_kaiming_normal_, nn_kaiming, __VA_ARGS__)
#define nn_init_uniform_(...) TENSOR__CALL(nn_init_uniform_, __VA_ARGS__)
#define nn_init_normal_(...) TENSOR__CALL(nn_init_normal_, __VA_ARGS__)
#define nn_init_constant_(...) TENSOR__CALL(nn_init_constant_, __VA_ARGS__)
#define nn_init_zeros_(...) TENSOR__CALL1(nn_init_zeros_, __VA_ARGS__)
#define nn_init_ones_(...) TENSOR__CALL1(nn_init_ones_, __VA_ARGS__)
#define nn_init_trunc_normal_(...) TENSOR__CALL(nn_init_trunc_normal_, __VA_ARGS__)
#define nn_init_xavier_uniform_(...) TENSOR__CALL(nn_init_xavier_uniform_, __VA_ARGS__)
#define nn_init_xavier_normal_(...) TENSOR__CALL(nn_init_xavier_normal_, __VA_ARGS__)
#define nn_init_orthogonal_(...) TENSOR__CALL(nn_init_orthogonal_, __VA_ARGS__)
#define nn_init_eye_(...) TENSOR__CALL1(nn_init_eye_, __VA_ARGS__)
#define nn_init_dirac_(...) TENSOR__CALL(nn_init_dirac_, __VA_ARGS__)
#define nn_init_sparse_(...) TENSOR__CALL(nn_init_sparse_, __VA_ARGS__)

// ------------------------------------------------------------------------------
// >>optim                                          MARK: optimizers
//
// One fused loop per step over all parameters, state and gradients, in the order and with the rounding of
// PyTorch's rules (except that NAdam's product of momenta is in double), with the same bits for any number of
// threads. An optimizer holds its own references to its parameters, so modules and optimizers may be freed in
// any order. Muon and L-BFGS are made of the ops of tensor.h instead, also with the same bits for any number
// of threads. f16/bf16 parameters have f32 state. Parameters without a gradient are not changed.
// nn_adam(module, .lr = 3e-4) takes all parameters of a module, nn_adam(.list = tensors, .count = n) those
// that are given (in C++ after nullptr). Options work as in >>layers.
// All: -> optimizer, NULL on failure;  errors SHAPE (option out of range, no parameters), OUT_OF_MEMORY,
// POISONED
// ------------------------------------------------------------------------------

typedef struct nn_optimizer_t nn_optimizer_t;

// What all optimizers take: a module, or instead a list of tensors and how many they are; and the learning
// rate.
#define NN__OPTIMIZER_ARGS                                                                                   \
    const char *site_ TENSOR_INIT;                                                                           \
    nn_module_t *module TENSOR_INIT;                                                                         \
    const void *options_are_named_ TENSOR_INIT;                                                              \
    tensor_t *const *list TENSOR_INIT;                                                                       \
    int count TENSOR_INIT;                                                                                   \
    double lr TENSOR_INIT;

// Momentum b = momentum b + (1 - dampening) g (first step: b = g), x -= lr b; nesterov: x -= lr (g + momentum
// b). weight_decay adds weight_decay x to g.
typedef struct nn_sgd_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-3
    double momentum TENSOR_INIT, dampening TENSOR_INIT, weight_decay TENSOR_INIT;
    int nesterov TENSOR_INIT, maximize TENSOR_INIT;
} nn_sgd_args_t;
TENSOR_API nn_optimizer_t *nn_sgd_with(nn_sgd_args_t a);
TENSOR_API nn_sgd_args_t nn_sgd_defaults(void);
#define nn_sgd(...) NN__WITH_OWN(nn_sgd, __VA_ARGS__)

// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, x -= lr m^ / (sqrt(v^) + eps), where m^ and v^
// are m and v without their bias. Adam adds weight_decay x to g; AdamW shrinks x by 1 - lr weight_decay.
// amsgrad divides by the largest v so far.
typedef struct nn_adam_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-3
    double beta1 TENSOR_INIT, beta2 TENSOR_INIT, eps TENSOR_INIT;           // 0.9 0.999 1e-8
    double weight_decay TENSOR_INIT;        // Adam 0, AdamW 0.01
    int amsgrad TENSOR_INIT, maximize TENSOR_INIT;
} nn_adam_args_t;
typedef nn_adam_args_t nn_adamw_args_t;
TENSOR_API nn_optimizer_t *nn_adam_with(nn_adam_args_t a);
TENSOR_API nn_adam_args_t nn_adam_defaults(void);
TENSOR_API nn_optimizer_t *nn_adamw_with(nn_adamw_args_t a);
TENSOR_API nn_adamw_args_t nn_adamw_defaults(void);
#define nn_adam(...) NN__WITH_OWN(nn_adam, __VA_ARGS__)
#define nn_adamw(...) NN__WITH_OWN(nn_adamw, __VA_ARGS__)

// Adam for tables whose embeddings have .sparse: only the rows used since the last step change, and their m
// and v. nn_sgd and nn_adagrad also take such gradients, the other optimizers refuse them. Here all
// parameters must have such gradients, on the CPU. After tensor_grad() of a table its gradient keeps the
// whole table's shape.
typedef struct nn_sparse_adam_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-3
    double beta1 TENSOR_INIT, beta2 TENSOR_INIT, eps TENSOR_INIT;           // as nn_adam; lr, eps > 0
    int maximize TENSOR_INIT;
} nn_sparse_adam_args_t;
TENSOR_API nn_optimizer_t *nn_sparse_adam_with(nn_sparse_adam_args_t a);
TENSOR_API nn_sparse_adam_args_t nn_sparse_adam_defaults(void);
#define nn_sparse_adam(...) NN__WITH_OWN(nn_sparse_adam, __VA_ARGS__)

// v = alpha v + (1 - alpha) g^2, x -= lr g / (sqrt(v) + eps); centered subtracts the square of g's mean from
// v.
typedef struct nn_rmsprop_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-2
    double alpha TENSOR_INIT, eps TENSOR_INIT;                              // 0.99 1e-8
    double weight_decay TENSOR_INIT, momentum TENSOR_INIT;
    int centered TENSOR_INIT, maximize TENSOR_INIT;
} nn_rmsprop_args_t;
TENSOR_API nn_optimizer_t *nn_rmsprop_with(nn_rmsprop_args_t a);
TENSOR_API nn_rmsprop_args_t nn_rmsprop_defaults(void);
#define nn_rmsprop(...) NN__WITH_OWN(nn_rmsprop, __VA_ARGS__)

// s += g^2, x -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps) in step t; s is initial_accumulator_value at
// the beginning.
typedef struct nn_adagrad_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-2
    double lr_decay TENSOR_INIT, weight_decay TENSOR_INIT, initial_accumulator_value TENSOR_INIT;
    double eps TENSOR_INIT;                 // 1e-10
    int maximize TENSOR_INIT;
} nn_adagrad_args_t;
TENSOR_API nn_optimizer_t *nn_adagrad_with(nn_adagrad_args_t a);
TENSOR_API nn_adagrad_args_t nn_adagrad_defaults(void);
#define nn_adagrad(...) NN__WITH_OWN(nn_adagrad, __VA_ARGS__)

// v = rho v + (1 - rho) g^2, d = sqrt(a + eps) / sqrt(v + eps) g, a = rho a + (1 - rho) d^2, x -= lr d.
typedef struct nn_adadelta_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1
    double rho TENSOR_INIT, eps TENSOR_INIT, weight_decay TENSOR_INIT;      // 0.9 1e-6 0
    int maximize TENSOR_INIT;
} nn_adadelta_args_t;
TENSOR_API nn_optimizer_t *nn_adadelta_with(nn_adadelta_args_t a);
TENSOR_API nn_adadelta_args_t nn_adadelta_defaults(void);
#define nn_adadelta(...) NN__WITH_OWN(nn_adadelta, __VA_ARGS__)

// m as in Adam, u = max(beta2 u, |g| + eps), x -= lr m^ / u.
typedef struct nn_adamax_args_t {
    NN__OPTIMIZER_ARGS                      // lr 2e-3
    double beta1 TENSOR_INIT, beta2 TENSOR_INIT, eps TENSOR_INIT, weight_decay TENSOR_INIT; // as nn_adam
    int maximize TENSOR_INIT;
} nn_adamax_args_t;
TENSOR_API nn_optimizer_t *nn_adamax_with(nn_adamax_args_t a);
TENSOR_API nn_adamax_args_t nn_adamax_defaults(void);
#define nn_adamax(...) NN__WITH_OWN(nn_adamax, __VA_ARGS__)

// Adam with Nesterov's momentum, which rises by momentum_decay; decoupled_weight_decay: decay as in AdamW.
typedef struct nn_nadam_args_t {
    NN__OPTIMIZER_ARGS                      // lr 2e-3
    double beta1 TENSOR_INIT, beta2 TENSOR_INIT, eps TENSOR_INIT, weight_decay TENSOR_INIT; // as nn_adam
    double momentum_decay TENSOR_INIT;      // 4e-3
    int decoupled_weight_decay TENSOR_INIT, maximize TENSOR_INIT;
} nn_nadam_args_t;
TENSOR_API nn_optimizer_t *nn_nadam_with(nn_nadam_args_t a);
TENSOR_API nn_nadam_args_t nn_nadam_defaults(void);
#define nn_nadam(...) NN__WITH_OWN(nn_nadam, __VA_ARGS__)

// Adam that makes plain steps of m^ until v comes from enough steps, and then scales by the number of them.
typedef struct nn_radam_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-3
    double beta1 TENSOR_INIT, beta2 TENSOR_INIT, eps TENSOR_INIT, weight_decay TENSOR_INIT; // as nn_adam
    int decoupled_weight_decay TENSOR_INIT, maximize TENSOR_INIT;
} nn_radam_args_t;
TENSOR_API nn_optimizer_t *nn_radam_with(nn_radam_args_t a);
TENSOR_API nn_radam_args_t nn_radam_defaults(void);
#define nn_radam(...) NN__WITH_OWN(nn_radam, __VA_ARGS__)

// For the matrices of hidden layers: b += (1 - momentum) (g - b), o = the orthogonal matrix nearest to g +
// momentum (b - g) (no_nesterov: to b) by ns_steps of Newton-Schulz in bf16, x -= lr (weight_decay x + r o).
// r depends on the shape [m, n]: NN_ORIGINAL sqrt(max(1, m / n)), NN_MATCH_RMS_ADAMW 0.2 sqrt(max(m, n)),
// NN_SPECTRAL_UNCLAMPED sqrt(m / n). Use nn_adamw beside it for embeddings, heads and biases.
//   errors  also SHAPE if a parameter is not a matrix;  source: Jordan et al. 2024, Muon
typedef enum nn_adjust_lr_t { NN_ORIGINAL, NN_MATCH_RMS_ADAMW, NN_SPECTRAL_UNCLAMPED } nn_adjust_lr_t;
typedef struct nn_muon_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1e-3
    double weight_decay TENSOR_INIT, momentum TENSOR_INIT;                  // 0.1 0.95
    double ns_a TENSOR_INIT, ns_b TENSOR_INIT, ns_c TENSOR_INIT;            // 3.4445 -4.775 2.0315
    double eps TENSOR_INIT;                 // 1e-7
    int ns_steps TENSOR_INIT;               // 5
    int adjust_lr_fn TENSOR_INIT;           // a nn_adjust_lr_t
    int no_nesterov TENSOR_INIT, maximize TENSOR_INIT;
} nn_muon_args_t;
TENSOR_API nn_optimizer_t *nn_muon_with(nn_muon_args_t a);
TENSOR_API nn_muon_args_t nn_muon_defaults(void);
#define nn_muon(...) NN__WITH_OWN(nn_muon, __VA_ARGS__)

// Each nn_step_closure makes up to max_iter steps of length lr along minus the gradient times an estimate of
// the inverse Hessian, which comes from the last history_size changes of parameters and gradient. It ends
// when no element of the gradient is above tolerance_grad, when a step or the loss changes by less than
// tolerance_change, or after max_eval calls. NN_STRONG_WOLFE searches for a length that meets the strong
// Wolfe conditions instead of lr. All parameters must be in one group.
//   source: Nocedal and Wright 2006, Numerical Optimization, algorithms 7.4, 3.5, 3.6 (cubic interpolation)
typedef enum nn_line_search_t { NN_FIXED_STEP, NN_STRONG_WOLFE } nn_line_search_t;
typedef struct nn_lbfgs_args_t {
    NN__OPTIMIZER_ARGS                      // lr 1
    int max_iter TENSOR_INIT, max_eval TENSOR_INIT;                         // 20, 0: max_iter * 5 / 4
    double tolerance_grad TENSOR_INIT, tolerance_change TENSOR_INIT;        // 1e-7 1e-9
    int history_size TENSOR_INIT;           // 100
    int line_search_fn TENSOR_INIT;         // a nn_line_search_t
    int maximize TENSOR_INIT;
} nn_lbfgs_args_t;
TENSOR_API nn_optimizer_t *nn_lbfgs_with(nn_lbfgs_args_t a);
TENSOR_API nn_lbfgs_args_t nn_lbfgs_defaults(void);
#define nn_lbfgs(...) NN__WITH_OWN(nn_lbfgs, __VA_ARGS__)

// All optimizers: name, formula (see NN__STEPS), the gradients they take (DENSE, ROWS_TOO: also by rows,
// ROWS_ONLY; MATRICES: the step is that of nn__orthogonal; CLOSURE: see nn__lbfgs), default of lr; the names
// of their states in files, and the option that creates each; the options, each with its place in files and
// its default. A new optimizer is a row here, its text above and, if it has its own, a formula.
// clang-format off
#define NN__ADAM_STATES NN__STATE(exp_avg, ALWAYS) NN__STATE(exp_avg_sq, ALWAYS)
#define NN__ADAM_OPTIONS NN__NUMBER(BETA1, beta1, 0.9) NN__NUMBER(BETA2, beta2, 0.999) NN__NUMBER(EPS, eps, 1e-8)
#define NN__OPTIMIZERS(X) \
    X(sgd, sgd, ROWS_TOO, 1e-3, NN__STATE(momentum_buffer, MOMENTUM), NN__NUMBER(DECAY, weight_decay, 0) NN__NUMBER(MOMENTUM, momentum, 0) NN__NUMBER(DAMPENING, dampening, 0) NN__FLAG(NESTEROV, nesterov)) \
    X(adam, adam, DENSE, 1e-3, NN__ADAM_STATES NN__STATE(max_exp_avg_sq, AMSGRAD), NN__ADAM_OPTIONS NN__NUMBER(DECAY, weight_decay, 0) NN__FLAG(AMSGRAD, amsgrad)) \
    X(adamw, adam, DENSE, 1e-3, NN__ADAM_STATES NN__STATE(max_exp_avg_sq, AMSGRAD), NN__ADAM_OPTIONS NN__NUMBER(DECAY, weight_decay, 0.01) NN__FLAG(AMSGRAD, amsgrad) NN__ALWAYS_ON(DECOUPLED)) \
    X(sparse_adam, adam, ROWS_ONLY, 1e-3, NN__ADAM_STATES, NN__ADAM_OPTIONS) \
    X(rmsprop, rmsprop, DENSE, 1e-2, NN__STATE(square_avg, ALWAYS) NN__STATE(momentum_buffer, MOMENTUM) NN__STATE(grad_avg, CENTERED), NN__NUMBER(BETA2, alpha, 0.99) NN__NUMBER(EPS, eps, 1e-8) NN__NUMBER(DECAY, weight_decay, 0) NN__NUMBER(MOMENTUM, momentum, 0) NN__FLAG(CENTERED, centered)) \
    X(adagrad, adagrad, ROWS_TOO, 1e-2, NN__STATE(sum, ALWAYS), NN__NUMBER(DRAG, lr_decay, 0) NN__NUMBER(DECAY, weight_decay, 0) NN__NUMBER(INITIAL, initial_accumulator_value, 0) NN__NUMBER(EPS, eps, 1e-10)) \
    X(adadelta, adadelta, DENSE, 1, NN__STATE(square_avg, ALWAYS) NN__STATE(acc_delta, ALWAYS), NN__NUMBER(RHO, rho, 0.9) NN__NUMBER(EPS, eps, 1e-6) NN__NUMBER(DECAY, weight_decay, 0)) \
    X(adamax, adamax, DENSE, 2e-3, NN__STATE(exp_avg, ALWAYS) NN__STATE(exp_inf, ALWAYS), NN__ADAM_OPTIONS NN__NUMBER(DECAY, weight_decay, 0)) \
    X(nadam, nadam, DENSE, 2e-3, NN__ADAM_STATES, NN__ADAM_OPTIONS NN__NUMBER(DECAY, weight_decay, 0) NN__NUMBER(DRAG, momentum_decay, 4e-3) NN__FLAG(DECOUPLED, decoupled_weight_decay)) \
    X(radam, radam, DENSE, 1e-3, NN__ADAM_STATES, NN__ADAM_OPTIONS NN__NUMBER(DECAY, weight_decay, 0) NN__FLAG(DECOUPLED, decoupled_weight_decay)) \
    X(muon, sgd, MATRICES, 1e-3, NN__STATE(momentum_buffer, ALWAYS), NN__NUMBER(DECAY, weight_decay, 0.1) NN__NUMBER(MOMENTUM, momentum, 0.95) NN__NUMBER(EPS, eps, 1e-7) NN__NUMBER(NS_A, ns_a, 3.4445) NN__NUMBER(NS_B, ns_b, -4.775) NN__NUMBER(NS_C, ns_c, 2.0315) NN__NUMBER(NS_STEPS, ns_steps, 5) NN__NUMBER(ADJUST, adjust_lr_fn, NN_ORIGINAL) NN__FLAG(PLAIN, no_nesterov) NN__ALWAYS_ON(DECOUPLED)) \
    X(lbfgs, sgd, CLOSURE, 1, NN__STATE(old_dirs, ALWAYS) NN__STATE(old_stps, ALWAYS) NN__STATE(d, ALWAYS), NN__NUMBER(MAX_ITER, max_iter, 20) NN__NUMBER(MAX_EVAL, max_eval, 0) NN__NUMBER(GRAD_TOL, tolerance_grad, 1e-7) NN__NUMBER(CHANGE_TOL, tolerance_change, 1e-9) NN__NUMBER(HISTORY, history_size, 100) NN__NUMBER(SEARCH, line_search_fn, NN_FIXED_STEP))
// clang-format on

// Gives some parameters their own learning rate or weight decay (0 = the optimizer's, TENSOR_ZERO = none):
// nn_optimizer_group(opt, biases, n, .weight_decay = TENSOR_ZERO). They move there from the group that they
// are in, or they are new.
typedef struct nn_group_args_t {
    const char *site_ TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    double lr TENSOR_INIT, weight_decay TENSOR_INIT;
} nn_group_args_t;

//   -> code;  errors SHAPE, OUT_OF_MEMORY, POISONED, UNSUPPORTED (nn_lbfgs)
TENSOR_API int nn__optimizer_group(nn_optimizer_t *o, tensor_t *const *list, int n, nn_group_args_t a);

// Updates all parameters that have a gradient. Does nothing while an error is pending.
//   -> code of that error;  errors OWNER, DEVICE, OUT_OF_MEMORY, UNSUPPORTED (a gradient by rows, or one
//      that is not; nn_lbfgs)
TENSOR_API int nn_step(nn_optimizer_t *o);
// The step of nn_lbfgs, which needs the loss at several points; for the others, nn_step after one call.
//   closure  calls nn_zero_grad, computes the loss, calls tensor_backward and returns the loss, one element;
//            gradients are recorded while it runs
//   user     is passed to it
//   -> the loss of its first call;  errors as nn_step and those of the closure (the step ends at that point)
TENSOR_API tensor_t *nn_step_closure(nn_optimizer_t *o, tensor_t *(*closure)(void *user), void *user);

// Drops the gradients of its parameters, so that the next backward starts from zero.
//   -> code;  errors POISONED
TENSOR_API int nn_zero_grad(nn_optimizer_t *o);

// Sets the learning rate (groups with their own rate keep their ratio to it).
//   -> code;  errors SHAPE (negative, NaN)
TENSOR_API int nn_set_lr(nn_optimizer_t *o, double lr);
// The learning rate.   -> value, NaN for NULL;  errors none
TENSOR_API double nn_get_lr(nn_optimizer_t *o);

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all of them together
// (summed in double in a fixed order). It does not wait for a device; tensor_item of the norm does.
//   -> 0-d f64, the norm before scaling (if infinite or NaN, gradients become NaN, as in PyTorch)
//   errors  POISONED, SHAPE (max_norm negative or NaN)
TENSOR_API tensor_t *nn_clip_grad_norm(nn_optimizer_t *o, double max_norm);
// The same for a list of parameters.   -> norm;  errors as above
TENSOR_API tensor_t *nn_clip_grad_norm_n(tensor_t *const *list, int n, double max_norm);
// Clamps every gradient element to -limit..limit.   -> code;  errors POISONED, SHAPE
TENSOR_API int nn_clip_grad_value(nn_optimizer_t *o, double limit);
TENSOR_API int nn_clip_grad_value_n(tensor_t *const *list, int n, double limit);

// Scales the loss so that gradients of f16 do not underflow (torch.amp.GradScaler). The scaler is an f32 [6]
// on the default device, kept until tensor_free or tensor_shutdown: scale, growth factor 2, backoff factor
// 0.5, growth interval, steps since the scale changed, whether a gradient was infinite or NaN since the last
// update.
//   init_scale       PyTorch's default is 65536
//   growth_interval  the scale grows after that many steps without such a gradient; PyTorch's default is 2000
//   -> scaler;  errors SHAPE (not positive), OUT_OF_MEMORY
TENSOR_API tensor_t *nn_grad_scaler(double init_scale, int64_t growth_interval);
// loss times the scale.   -> as loss;  errors POISONED, SHAPE (not a scaler), DEVICE, OUT_OF_MEMORY
TENSOR_API tensor_t *nn_scaler_scale(tensor_t *scaler, tensor_t *loss);
// nn_scaler_unscale divides the gradients by the scale; it is needed only to clip them before the step.
// nn_scaler_step makes the step, as nn_step, or skips it if a gradient was infinite or NaN. Neither waits
// for a device; skipped steps do not count.
//   -> code;  errors as nn_step, SHAPE, DEVICE (scaler and gradients), UNSUPPORTED (unscaled since the last
//      step or nn_zero_grad; first in a capture)
TENSOR_API int nn_scaler_unscale(tensor_t *scaler, nn_optimizer_t *o);
TENSOR_API int nn_scaler_step(tensor_t *scaler, nn_optimizer_t *o);
// Lowers or raises the scale; call it once after the steps of all optimizers.
//   -> code;  errors POISONED, SHAPE
TENSOR_API int nn_scaler_update(tensor_t *scaler);

// Frees it before tensor_shutdown does; NULL does nothing. Later use is noticed until 64 more are freed.
//   -> code;  errors OWNER if it was freed already, UNSUPPORTED in a closure of its own step
TENSOR_API int nn_optimizer_free(nn_optimizer_t *o);

#ifndef __cplusplus
#define nn_optimizer_group(o, list, n, ...)                                                                  \
    nn__optimizer_group(o, list, n, TENSOR_ARGS(nn_optimizer_group, nn_group_args_t, __VA_ARGS__))
#endif
#define nn_step(...) TENSOR__CALL_KIND(int, nn_step, __VA_ARGS__)
#define nn_step_closure(...) TENSOR__CALL(nn_step_closure, __VA_ARGS__)
#define nn_optimizer_free(...) TENSOR__CALL_KIND(int, nn_optimizer_free, __VA_ARGS__)
#define nn_zero_grad(...) TENSOR__CALL_KIND(int, nn_zero_grad, __VA_ARGS__)
#define nn_set_lr(...) TENSOR__CALL_KIND(int, nn_set_lr, __VA_ARGS__)
#define nn_clip_grad_norm(...) TENSOR__CALL(nn_clip_grad_norm, __VA_ARGS__)
#define nn_clip_grad_norm_n(...) TENSOR__CALL(nn_clip_grad_norm_n, __VA_ARGS__)
#define nn_grad_scaler(...) TENSOR__CALL(nn_grad_scaler, __VA_ARGS__)
#define nn_scaler_scale(...) TENSOR__CALL2(nn_scaler_scale, __VA_ARGS__)
#define nn_scaler_unscale(...) TENSOR__CALL_KIND(int, nn_scaler_unscale, __VA_ARGS__)
#define nn_scaler_step(...) TENSOR__CALL_KIND(int, nn_scaler_step, __VA_ARGS__)
#define nn_scaler_update(...) TENSOR__CALL_KIND(int, nn_scaler_update, __VA_ARGS__)
#define nn_clip_grad_value(...) TENSOR__CALL_KIND(int, nn_clip_grad_value, __VA_ARGS__)
#define nn_clip_grad_value_n(...) TENSOR__CALL_KIND(int, nn_clip_grad_value_n, __VA_ARGS__)

// ------------------------------------------------------------------------------
// >>schedule                                       MARK: learning-rate schedules
//
// Plain functions of the step: nn_set_lr(opt, nn_lr_cosine_warmup(step, ...)). They have no state to save,
// so a resumed run continues exactly. For one after the other (SequentialLR) write step < n ? this(step) :
// that(step - n). Rejected: scheduler objects, which must be stepped in the right order.
// All: step counts from 0;  -> learning rate;  errors none
// ------------------------------------------------------------------------------

// Rises linearly to lr_max over warmup steps, then falls along half a cosine to lr_min at step total. Step 0
// has lr_max / warmup, so that no step is lost on a rate of 0; lr_max is reached at step warmup - 1 and is
// the rate of step warmup too. Without warmup (<= 0) step 0 has lr_max.
TENSOR_API double nn_lr_cosine_warmup(int64_t step, int64_t warmup, int64_t total, double lr_max,
                                      double lr_min);
// Half a cosine from lr_max to lr_min over total steps, then lr_min.
TENSOR_API double nn_lr_cosine(int64_t step, int64_t total, double lr_max, double lr_min);
// lr * gamma^(step / every), with integer division.
TENSOR_API double nn_lr_step(int64_t step, int64_t every, double lr, double gamma);
// lr * gamma^step.
TENSOR_API double nn_lr_exponential(int64_t step, double lr, double gamma);
// A straight line from lr * start to lr * end over total steps, then lr * end.
TENSOR_API double nn_lr_linear(int64_t step, int64_t total, double lr, double start, double end);
// lr * factor for total steps, then lr.
TENSOR_API double nn_lr_constant(int64_t step, int64_t total, double lr, double factor);
// lr * gamma^(the number of the n milestones that are <= step).   -> learning rate, NaN on failure;
// errors SHAPE if milestones is NULL and n > 0
TENSOR_API double nn_lr_multi_step(int64_t step, const int64_t *milestones, int n, double lr, double gamma);
// lr * (1 - step / total)^power, then 0.
TENSOR_API double nn_lr_polynomial(int64_t step, int64_t total, double lr, double power);
// Half a cosine from lr_max to lr_min over the first steps, again over mult times as many, and so on.
TENSOR_API double nn_lr_cosine_restarts(int64_t step, int64_t first, int64_t mult, double lr_max,
                                        double lr_min);
// A cosine from lr_max / div up to lr_max over the fraction part of total, then a cosine down to
// lr_max / div / final_div over the rest. PyTorch's defaults: part 0.3, div 25, final_div 1e4.
TENSOR_API double nn_lr_one_cycle(int64_t step, int64_t total, double lr_max, double part, double div_,
                                  double final_div);
// From lr_min up to lr_max in up steps, back in down steps, and again; the height is multiplied by gamma^step
// (1: "triangular"; for "triangular2" pass an lr_max whose height halves every up + down steps).
TENSOR_API double nn_lr_cyclic(int64_t step, int64_t up, int64_t down, double lr_min, double lr_max,
                               double gamma);
// ReduceLROnPlateau's options (0 = PyTorch's default, TENSOR_ZERO = 0), then its state, all 0 at the
// beginning.
typedef struct nn_plateau_t {
    double factor, threshold, min_lr;       // 0.1 1e-4 0
    int64_t patience, cooldown;             // 10 0
    int maximize, absolute;                 // mode "max", threshold_mode "abs"
    double best;
    int64_t seen, bad, resting;
} nn_plateau_t;

// The learning rate after one more value of the loss or metric: nn_set_lr(opt, nn_lr_plateau(&p, loss,
// nn_get_lr(opt))) lowers it by factor when the value has not improved for patience calls.
TENSOR_API double nn_lr_plateau(nn_plateau_t *p, double value, double lr);

// ------------------------------------------------------------------------------
// >>data                                           MARK: datasets, loaders
//
// A dataset states the shape and dtype of one sample, and its get function writes a sample directly into its
// row of the batch: no tensor per sample, no collate. Rejected: get returning tensors (one more allocation
// and copy per sample).
// ------------------------------------------------------------------------------

typedef struct nn_dataset_t {
    int64_t len;                            // samples
    // Writes sample index: x, y point to one sample's elements (y NULL if there is none).
    //   -> 0, or a tensor_code_t
    int (*get)(void *user, int64_t index, void *x, void *y);
    void *user;
    tensor_shape_t x_shape, y_shape;        // of one sample, without the batch dim
    tensor_dtype_t x_dtype, y_dtype;
    int has_y;
    tensor_t *x, *y;                        // in memory, instead of get: sample i is x[i]; held by loaders
} nn_dataset_t;

// A dataset of tensors in memory.
//   x       [N, ...] any dtype
//   y       [N, ...] any dtype, or NULL
//   -> struct that borrows both (len -1 on failure);  errors SHAPE (no dims, N differs), POISONED
TENSOR_API nn_dataset_t nn_tensor_dataset(tensor_t *x, tensor_t *y);

typedef struct nn_data_loader_t nn_data_loader_t;

// x and y are poison when there is no batch.
typedef struct nn_batch_t { tensor_t *x, *y; int64_t size, index, epoch; } nn_batch_t;

// Cuts a dataset into batches. The order of samples depends on seed and epoch alone.
//   batch_size  samples per batch, default 1; the last batch may be smaller unless drop_last
//   shuffle     another order in each epoch
//   seed        0 = the seed of the calling thread's generator
//   num_workers > 0: get is called for the samples of a batch on the kernel threads at the same time (it must
//               allow that)
//   pin_memory  1: batches are in pinned memory, for tensor_to_non_blocking
//   device      where batches go, through pinned memory: the next one is copied while this one is used
//   -> loader, NULL on failure;  errors SHAPE, DEVICE, UNSUPPORTED, OUT_OF_MEMORY
typedef struct nn_data_loader_args_t {
    const char *site_ TENSOR_INIT;
    nn_dataset_t dataset TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int64_t batch_size TENSOR_INIT;
    int shuffle TENSOR_INIT, drop_last TENSOR_INIT, num_workers TENSOR_INIT;
    uint64_t seed TENSOR_INIT;
    int pin_memory TENSOR_INIT, device TENSOR_INIT;   // 0 = the CPU
} nn_data_loader_args_t;
TENSOR_API nn_data_loader_t *nn_data_loader_with(nn_data_loader_args_t a);
#define nn_data_loader(...) NN__WITH_OWN(nn_data_loader, __VA_ARGS__)

// The next batch: while (nn_next(loader, &b)) is one epoch; the call after that starts the next epoch.
//   b       filled: x [size, ...], y [size, ...] or NULL, new tensors of the current scope
//   -> 1, or 0 at the end of the epoch or on failure;  errors what get returns, OUT_OF_MEMORY
TENSOR_API int nn_next(nn_data_loader_t *l, nn_batch_t *b);

// Batches in an epoch.   -> count;  errors none
TENSOR_API int64_t nn_num_batches(nn_data_loader_t *l);

// Goes to where the loader is that many batches after it was made (to resume from a checkpoint).
//   -> code;  errors SHAPE (negative), POISONED
TENSOR_API int nn_seek(nn_data_loader_t *l, int64_t batches);

// Frees it before tensor_shutdown does.   -> code;  errors none
TENSOR_API int nn_data_loader_free(nn_data_loader_t *l);

// Parses the bytes of an IDX file (MNIST and similar data sets).
//   -> new u8 i8 i16 i32 f32 or f64
//   errors  FORMAT (not IDX, truncated, trailing bytes, gzip), SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *nn_parse_idx(const void *data, size_t size);
#ifndef TENSOR_NO_STDIO
// The same from a file.   -> as above;  errors as above, IO
TENSOR_API tensor_t *nn_read_idx(const char *path);
#endif
#define nn_next(...) TENSOR__CALL_KIND(int, nn_next, __VA_ARGS__)
#define nn_data_loader_free(...) TENSOR__CALL_KIND(int, nn_data_loader_free, __VA_ARGS__)
#define nn_parse_idx(...) TENSOR__CALL(nn_parse_idx, __VA_ARGS__)
#define nn_read_idx(...) TENSOR__CALL(nn_read_idx, __VA_ARGS__)

// ------------------------------------------------------------------------------
// >>files                                          MARK: safetensors
//
// safetensors: names, dtypes, shapes and raw little-endian bytes; nothing in it is executed. Every length is
// checked before it is used. A file is read as a whole or refused as a whole: loads read and check
// everything, which takes the file's size in memory, before they change anything. Writers make a new file
// beside the old one (path.tmp-PROCESS-NUMBER, which stays if the process is killed), wait until it is on
// the disk and rename it. So a full disk, a crash or another writer never leaves a partial file. Links are
// followed, permissions are kept, and anything that is not a regular file (device, FIFO, directory) is
// refused. Rejected: PyTorch's pickles (they run code; convert them with two lines of Python).
// ------------------------------------------------------------------------------

typedef struct nn_safetensors_t nn_safetensors_t;
typedef struct nn_metadata_t { const char *key, *value; } nn_metadata_t;

enum { NN_SAFETENSORS_MAX_HEADER = 16 << 20 };      // bytes; a larger header is refused

// Opens a safetensors file in memory, which must stay until nn_safetensors_close.
//   -> reader, NULL on failure;  errors FORMAT, OUT_OF_MEMORY
TENSOR_API nn_safetensors_t *nn_safetensors_parse(const void *data, size_t size);
// Number of tensors; name of tensor i in the order of the file.
//   -> count; borrowed string, NULL if i is out of range;  errors none
TENSOR_API int64_t nn_safetensors_count(nn_safetensors_t *r);
TENSOR_API const char *nn_safetensors_name(nn_safetensors_t *r, int64_t i);
// Value of a __metadata__ key.   -> borrowed string, NULL if there is none;  errors none
TENSOR_API const char *nn_safetensors_metadata(nn_safetensors_t *r, const char *key);
// Reads one tensor. U16 becomes i32, U32 becomes i64.
//   -> new;  errors INDEX (no such name), UNSUPPORTED (U64, C64, F8, F6, F4, over 8 dims), IO,
//            OUT_OF_MEMORY
TENSOR_API tensor_t *nn_safetensors_get(nn_safetensors_t *r, const char *name);
// Ends the reader (the tensors that it gave stay).   -> code;  errors none
TENSOR_API int nn_safetensors_close(nn_safetensors_t *r);

// The bytes of a safetensors file with the given tensors.
//   names     n distinct UTF-8 strings, 1..4096 bytes
//   metadata  nmeta pairs; may be NULL if nmeta is 0
//   -> new u8 [bytes];  errors FORMAT (names), POISONED, OUT_OF_MEMORY
TENSOR_API tensor_t *nn_safetensors_format(const char *const *names, tensor_t *const *tensors, int n,
                                           const nn_metadata_t *metadata, int nmeta);
// The bytes that nn_save writes.   -> new u8 [bytes];  errors POISONED, OUT_OF_MEMORY
TENSOR_API tensor_t *nn_save_memory(nn_module_t *m);
// nn_load from memory.   -> code;  errors as nn_load
TENSOR_API int nn_load_memory(const void *data, size_t size, nn_module_t *m, int partial);

#ifndef TENSOR_NO_STDIO
// Opens a file; tensors are read when asked for.
//   -> reader, NULL on failure;  errors IO, FORMAT, OUT_OF_MEMORY
TENSOR_API nn_safetensors_t *nn_safetensors_open(const char *path);
// Writes a file.   -> code;  errors IO, FORMAT (names), POISONED, OUT_OF_MEMORY
TENSOR_API int nn_safetensors_write(const char *path, const char *const *names, tensor_t *const *tensors,
                                    int n, const nn_metadata_t *metadata, int nmeta);

// Saves parameters and buffers under their dotted names, a shared one under each, as in PyTorch.
//   -> code;  errors IO, OUT_OF_MEMORY, POISONED
TENSOR_API int nn_save(const char *path, nn_module_t *m);

// Loads them by name and converts dtypes. Unless partial, names must match exactly (one name of a shared
// tensor is enough); shapes must always match. The error text lists what is missing, unexpected or has
// another shape. After an error the module is unchanged.
typedef struct nn_load_args_t {
    const char *site_ TENSOR_INIT;
    const char *path TENSOR_INIT;
    nn_module_t *module TENSOR_INIT;
    const void *options_are_named_ TENSOR_INIT;
    int partial TENSOR_INIT;                // missing and unexpected names are ignored
    const char *prefix TENSOR_INIT;         // precedes the names in the file; others are ignored
} nn_load_args_t;

//   -> code;  errors IO, FORMAT, OUT_OF_MEMORY, POISONED
TENSOR_API int nn_load_with(nn_load_args_t a);
#define nn_load(path, ...) NN__WITH_OWN(nn_load, path, __VA_ARGS__)

// Saves the module, the optimizer's state and options, the calling thread's generator and a step count.
//   opt     NULL = none
//   -> code;  errors as nn_save
TENSOR_API int nn_save_checkpoint(const char *path, nn_module_t *m, nn_optimizer_t *opt, int64_t step);
// Loads them, so that training continues with the same bits (for a loader: nn_seek(loader, *step) if each
// step takes one batch). After an error all of it is unchanged.
//   opt     of the same kind, over the same parameters and groups
//   step    receives the count; may be NULL
//   -> code;  errors as nn_load
TENSOR_API int nn_load_checkpoint(const char *path, nn_module_t *m, nn_optimizer_t *opt, int64_t *step);
#endif
#define nn_safetensors_get(...) TENSOR__CALL(nn_safetensors_get, __VA_ARGS__)
#define nn_safetensors_close(...) TENSOR__CALL_KIND(int, nn_safetensors_close, __VA_ARGS__)
#define nn_safetensors_format(...) TENSOR__CALL(nn_safetensors_format, __VA_ARGS__)
#define nn_save_memory(...) TENSOR__CALL(nn_save_memory, __VA_ARGS__)
#define nn_load_memory(...) TENSOR__CALL_KIND(int, nn_load_memory, __VA_ARGS__)
#define nn_safetensors_write(...) TENSOR__CALL_KIND(int, nn_safetensors_write, __VA_ARGS__)
#define nn_save(...) TENSOR__CALL_KIND(int, nn_save, __VA_ARGS__)
#define nn_seek(...) TENSOR__CALL_KIND(int, nn_seek, __VA_ARGS__)
#define nn_safetensors_open(...)                                                                             \
    ((nn_safetensors_t *)(intptr_t)TENSOR__CALL_KIND(ptr, nn_safetensors_open, __VA_ARGS__))
#define nn_safetensors_parse(...)                                                                            \
    ((nn_safetensors_t *)(intptr_t)TENSOR__CALL_KIND(ptr, nn_safetensors_parse, __VA_ARGS__))
#define nn_save_checkpoint(...) TENSOR__CALL_KIND(int, nn_save_checkpoint, __VA_ARGS__)
#define nn_load_checkpoint(...) TENSOR__CALL_KIND(int, nn_load_checkpoint, __VA_ARGS__)

// ------------------------------------------------------------------------------
// >>progress                                       MARK: progress bar
//
// A bar on stderr with rate and time left, updated at most ten times per second. If stderr is not a
// terminal, it is a line every 30 seconds. It is in the caller's struct and owns nothing. Only this and
// nn_print print anything in this header.
// ------------------------------------------------------------------------------

#ifndef TENSOR_NO_STDIO
typedef struct nn_progress_t {
    const char *label;
    int64_t total, first;                   // first: units done when it began
    double start, shown;                    // seconds
    int terminal, width;
    int64_t last;
} nn_progress_t;

// Starts a bar.
//   label   is borrowed and must stay until the end
//   total   units of work, <= 0 = unknown
//   first   units done already (a resumed run)
//   -> struct;  errors none
TENSOR_API nn_progress_t nn_progress_begin(const char *label, int64_t total, int64_t first);
// Shows that done units are finished; the last one (done == total) ends the line.
//   note    NULL, or a text after the bar ("loss 0.31")
//   -> nothing;  errors none
TENSOR_API void nn_progress(nn_progress_t *p, int64_t done, const char *note);
#endif

#if defined(__cplusplus) && defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}

// ------------------------------------------------------------------------------
// >>nn-cpp                                         MARK: C++ face
//
// Positional arguments, then the options: tensor_conv2d(x, w, b, 2, {.groups = 4}) from C++20 on; before
// C++20, a filled tensor_conv_args_t. The members are those of C, and 0 is PyTorch's default. Layers and
// optimizers have their required positions and the options, nothing else: with one function, the compiler
// says which option it does not know instead of listing overloads. Functions of tensors and pools have one
// overload for each number of positional arguments, because a braced list does not match a template
// parameter. Rejected: default arguments, because then options would be possible after the last position
// only. Arguments without which a call means nothing are required.
// ------------------------------------------------------------------------------

// R is the result, f the function, T its args struct; A.. are (type, name) of the positions, members of T.
// The mark TENSOR__NO_SURPLUS makes 0 mean the default, as in C. Rejected: decltype of the members for their
// types (20 ms more for each file that includes this).
#define NN__CPP_tensor tensor_t *
#define NN__CPP_i64 int64_t
#define NN__CPP_int int
#define NN__CPP_list tensor_t *const *
#define NN__CPP_text const char *
#define NN__CPP_dataset nn_dataset_t
#define NN__CPP_module nn_module_t *
#define NN__CPP_optimizer nn_optimizer_t *
#define NN__CPP_loader nn_data_loader_t *
#define NN__CPP_pair tensor_pair_t
#define NN__CPP_state tensor_state_t
#define NN__CPP_ALL(...) __VA_ARGS__
#define NN__CPP_P(t, p) NN__CPP_##t p
#define NN__CPP_S(t, p) options_are_named.p = p;
#define NN__CPP(R, f, T, places, set)                                                                        \
    inline NN__CPP_##R (f)(NN__CPP_ALL places, T options_are_named = T()) { set NN__CPP_C(f) }
#define NN__CPP_C(f)                                                                                         \
    options_are_named.options_are_named_ = TENSOR__NO_SURPLUS;                                               \
    return f##_with(options_are_named);
#define NN__CPP_0(R, f, T) inline NN__CPP_##R (f)(T options_are_named) { NN__CPP_C(f) }
// NN__CPP_1 and NN__CPP_2 do not use NN__CPP, because compilers show every macro of an expansion in their
// errors.
#define NN__CPP_1(R, f, T, A)                                                                                \
    inline NN__CPP_##R (f)(NN__CPP_P A, T options_are_named = T()) { NN__CPP_S A NN__CPP_C(f) }
#define NN__CPP_2(R, f, T, A, B)                                                                             \
    inline NN__CPP_##R (f)(NN__CPP_P A, NN__CPP_P B, T options_are_named = T()) {                            \
        NN__CPP_S A NN__CPP_S B NN__CPP_C(f)                                                                 \
    }

#define NN__CPP_3(R, f, T, A, B, C)                                                                          \
    inline NN__CPP_##R (f)(NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, T options_are_named = T()) {               \
        NN__CPP_S A NN__CPP_S B NN__CPP_S C NN__CPP_C(f)                                                     \
    }
#define NN__CPP_4(R, f, T, A, B, C, D)                                                                       \
    NN__CPP(R, f, T, (NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, NN__CPP_P D), NN__CPP_S A NN__CPP_S B           \
            NN__CPP_S C NN__CPP_S D)
#define NN__CPP_5(R, f, T, A, B, C, D, E)                                                                    \
    NN__CPP(R, f, T, (NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, NN__CPP_P D, NN__CPP_P E), NN__CPP_S A          \
            NN__CPP_S B NN__CPP_S C NN__CPP_S D NN__CPP_S E)
#define NN__CPP_6(R, f, T, A, B, C, D, E, F)                                                                 \
    NN__CPP(R, f, T, (NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, NN__CPP_P D, NN__CPP_P E, NN__CPP_P F),         \
            NN__CPP_S A NN__CPP_S B NN__CPP_S C NN__CPP_S D NN__CPP_S E NN__CPP_S F)
#define NN__CPP_7(R, f, T, A, B, C, D, E, F, G)                                                              \
    NN__CPP(R, f, T, (NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, NN__CPP_P D, NN__CPP_P E, NN__CPP_P F,          \
            NN__CPP_P G), NN__CPP_S A NN__CPP_S B NN__CPP_S C NN__CPP_S D NN__CPP_S E NN__CPP_S F            \
            NN__CPP_S G)

#define NN__CPP_8(R, f, T, A, B, C, D, E, F, G, H)                                                           \
    NN__CPP(R, f, T, (NN__CPP_P A, NN__CPP_P B, NN__CPP_P C, NN__CPP_P D, NN__CPP_P E, NN__CPP_P F,          \
            NN__CPP_P G, NN__CPP_P H), NN__CPP_S A NN__CPP_S B NN__CPP_S C NN__CPP_S D NN__CPP_S E           \
            NN__CPP_S F NN__CPP_S G NN__CPP_S H)

// NN__CPP_m_n: from m to n positions.
#define NN__CPP_1_2(R, f, T, A, B) NN__CPP_1(R, f, T, A) NN__CPP_2(R, f, T, A, B)
#define NN__CPP_1_3(R, f, T, A, B, C) NN__CPP_1_2(R, f, T, A, B) NN__CPP_3(R, f, T, A, B, C)
#define NN__CPP_1_4(R, f, T, A, B, C, D) NN__CPP_1_3(R, f, T, A, B, C) NN__CPP_4(R, f, T, A, B, C, D)
#define NN__CPP_1_5(R, f, T, A, B, C, D, E) NN__CPP_1_4(R, f, T, A, B, C, D) NN__CPP_5(R, f, T, A, B, C, D, E)
#define NN__CPP_2_3(R, f, T, A, B, C) NN__CPP_2(R, f, T, A, B) NN__CPP_3(R, f, T, A, B, C)
#define NN__CPP_2_4(R, f, T, A, B, C, D) NN__CPP_2_3(R, f, T, A, B, C) NN__CPP_4(R, f, T, A, B, C, D)
#define NN__CPP_2_5(R, f, T, A, B, C, D, E) NN__CPP_2_4(R, f, T, A, B, C, D) NN__CPP_5(R, f, T, A, B, C, D, E)
#define NN__CPP_2_6(R, f, T, A, B, C, D, E, F)                                                               \
    NN__CPP_2_5(R, f, T, A, B, C, D, E) NN__CPP_6(R, f, T, A, B, C, D, E, F)
#define NN__CPP_2_7(R, f, T, A, B, C, D, E, F, G)                                                            \
    NN__CPP_2_6(R, f, T, A, B, C, D, E, F) NN__CPP_7(R, f, T, A, B, C, D, E, F, G)
#define NN__CPP_2_8(R, f, T, A, B, C, D, E, F, G, H)                                                         \
    NN__CPP_2_7(R, f, T, A, B, C, D, E, F, G) NN__CPP_8(R, f, T, A, B, C, D, E, F, G, H)
#define NN__CPP_3_4(R, f, T, A, B, C, D) NN__CPP_3(R, f, T, A, B, C) NN__CPP_4(R, f, T, A, B, C, D)
#define NN__CPP_3_5(R, f, T, A, B, C, D, E) NN__CPP_3_4(R, f, T, A, B, C, D) NN__CPP_5(R, f, T, A, B, C, D, E)
#define NN__CPP_3_6(R, f, T, A, B, C, D, E, F)                                                               \
    NN__CPP_3_5(R, f, T, A, B, C, D, E) NN__CPP_6(R, f, T, A, B, C, D, E, F)
#define NN__CPP_DIMS(face, R, f, end, T, ...)                                                                \
    face(R, f##1d##end, T, __VA_ARGS__)                                                                      \
    face(R, f##2d##end, T, __VA_ARGS__)                                                                      \
    face(R, f##3d##end, T, __VA_ARGS__)
NN__CPP_2(tensor, tensor_embedding, tensor_embedding_args_t, (tensor, index), (tensor, weight))
NN__CPP_2_3(tensor, tensor_embedding_bag, tensor_embedding_bag_args_t, (tensor, index), (tensor, weight),
            (tensor, offsets))
NN__CPP_1_4(tensor, tensor_layer_norm, tensor_layer_norm_args_t, (tensor, x), (i64, normalized_dims),
            (tensor, weight), (tensor, bias))
NN__CPP_1_5(tensor, tensor_batch_norm, tensor_batch_norm_args_t, (tensor, x), (tensor, running_mean),
            (tensor, running_var), (tensor, weight), (tensor, bias))
NN__CPP_1(tensor, tensor_instance_norm, tensor_instance_norm_args_t, (tensor, x))
NN__CPP_2_4(tensor, tensor_group_norm, tensor_group_norm_args_t, (tensor, x), (i64, groups),
            (tensor, weight), (tensor, bias))
NN__CPP_1_3(tensor, tensor_rms_norm, tensor_rms_norm_args_t, (tensor, x), (i64, normalized_dims),
            (tensor, weight))
NN__CPP_2(tensor, tensor_local_response_norm, tensor_local_response_norm_args_t, (tensor, x), (i64, size))
NN__CPP_2(state, tensor_lstm, tensor_rnn_args_t, (tensor, x), (list, weights))
NN__CPP_2(state, tensor_gru, tensor_rnn_args_t, (tensor, x), (list, weights))
NN__CPP_2(state, tensor_rnn, tensor_rnn_args_t, (tensor, x), (list, weights))
NN__CPP_DIMS(NN__CPP_2_7, tensor, tensor_conv, , tensor_conv_args_t, (tensor, x), (tensor, weight),
             (tensor, bias), (i64, stride), (i64, padding), (i64, dilation), (i64, groups))
NN__CPP_DIMS(NN__CPP_2_8, tensor, tensor_conv_transpose, , tensor_conv_transpose_args_t, (tensor, x),
             (tensor, weight), (tensor, bias), (i64, stride), (i64, padding), (i64, output_padding),
             (i64, groups), (i64, dilation))
NN__CPP_DIMS(NN__CPP_2_5, tensor, tensor_max_pool, , tensor_max_pool_args_t, (tensor, x), (i64, kernel),
             (i64, stride), (i64, padding), (i64, dilation))
NN__CPP_DIMS(NN__CPP_2_5, pair, tensor_max_pool, _with_indices, tensor_max_pool_args_t, (tensor, x),
             (i64, kernel), (i64, stride), (i64, padding), (i64, dilation))
NN__CPP_DIMS(NN__CPP_2_4, tensor, tensor_avg_pool, , tensor_avg_pool_args_t, (tensor, x), (i64, kernel),
             (i64, stride), (i64, padding))
NN__CPP_DIMS(NN__CPP_3_5, tensor, tensor_max_unpool, , tensor_max_unpool_args_t, (tensor, x),
             (tensor, indices), (i64, kernel), (i64, stride), (i64, padding))
NN__CPP_2_5(tensor, tensor_im2col, tensor_columns_args_t, (tensor, x), (i64, kernel), (i64, dilation),
            (i64, padding), (i64, stride))
NN__CPP_3_6(tensor, tensor_col2im, tensor_columns_args_t, (tensor, x), (i64, height), (i64, kernel),
            (i64, dilation), (i64, padding), (i64, stride))
NN__CPP_1_2(tensor, tensor_interpolate, tensor_interpolate_args_t, (tensor, x), (i64, size))
NN__CPP_2(tensor, tensor_grid_sample, tensor_grid_sample_args_t, (tensor, x), (tensor, grid))
NN__CPP_3_4(tensor, tensor_scaled_dot_product_attention, tensor_scaled_dot_product_attention_args_t,
            (tensor, query), (tensor, key), (tensor, value), (tensor, attn_mask))
NN__CPP_2_3(tensor, tensor_cross_entropy, tensor_cross_entropy_args_t, (tensor, input), (tensor, target),
            (tensor, weight))
NN__CPP_2_3(tensor, tensor_nll_loss, tensor_nll_loss_args_t, (tensor, input), (tensor, target),
            (tensor, weight))
NN__CPP_2(tensor, tensor_mse_loss, tensor_mse_loss_args_t, (tensor, input), (tensor, target))
NN__CPP_2(tensor, tensor_l1_loss, tensor_l1_loss_args_t, (tensor, input), (tensor, target))
NN__CPP_2(tensor, tensor_smooth_l1_loss, tensor_smooth_l1_loss_args_t, (tensor, input), (tensor, target))
NN__CPP_2(tensor, tensor_huber_loss, tensor_huber_loss_args_t, (tensor, input), (tensor, target))
NN__CPP_2(tensor, tensor_kl_div, tensor_kl_div_args_t, (tensor, input), (tensor, target))
NN__CPP_2(tensor, tensor_poisson_nll_loss, tensor_poisson_nll_loss_args_t, (tensor, input), (tensor, target))
NN__CPP_2_3(tensor, tensor_binary_cross_entropy, tensor_binary_cross_entropy_args_t, (tensor, input),
            (tensor, target), (tensor, weight))
NN__CPP_2_4(tensor, tensor_binary_cross_entropy_with_logits, tensor_binary_cross_entropy_with_logits_args_t,
            (tensor, input), (tensor, target), (tensor, weight), (tensor, pos_weight))
NN__CPP_2_3(tensor, tensor_hinge_embedding_loss, tensor_margin_loss_args_t, (tensor, input),
            (tensor, target), (tensor, weight))
NN__CPP_2_3(tensor, tensor_soft_margin_loss, tensor_margin_loss_args_t, (tensor, input), (tensor, target),
            (tensor, weight))
NN__CPP_2_3(tensor, tensor_multi_margin_loss, tensor_margin_loss_args_t, (tensor, input), (tensor, target),
            (tensor, weight))
NN__CPP_2_3(tensor, tensor_multilabel_margin_loss, tensor_margin_loss_args_t, (tensor, input),
            (tensor, target), (tensor, weight))
NN__CPP_2_3(tensor, tensor_multilabel_soft_margin_loss, tensor_margin_loss_args_t, (tensor, input),
            (tensor, target), (tensor, weight))
NN__CPP_3(tensor, tensor_margin_ranking_loss, tensor_ranking_loss_args_t, (tensor, input1),
          (tensor, input2), (tensor, target))
NN__CPP_3(tensor, tensor_cosine_embedding_loss, tensor_ranking_loss_args_t, (tensor, input1),
          (tensor, input2), (tensor, target))
NN__CPP_3(tensor, tensor_triplet_margin_loss, tensor_triplet_margin_loss_args_t, (tensor, anchor),
          (tensor, positive), (tensor, negative))
NN__CPP_3(tensor, tensor_gaussian_nll_loss, tensor_gaussian_nll_loss_args_t, (tensor, input),
          (tensor, target), (tensor, var))
NN__CPP_4(tensor, tensor_ctc_loss, tensor_ctc_loss_args_t, (tensor, log_probs), (tensor, targets),
          (tensor, input_lengths), (tensor, target_lengths))

template <class... D> inline tensor_t *tensor_pad(tensor_t *x, D... pads) {
    tensor_dims_pack p(pads...);
    return (tensor_pad_n)(x, p.d, p.n, TENSOR_PAD_CONSTANT, 0);
}

#define tensor_col2im(...) NN__CALL(tensor_col2im, __VA_ARGS__)
#define tensor_pad(...) NN__CALL(tensor_pad, __VA_ARGS__)

NN__CPP_2(module, nn_linear, nn_linear_args_t, (i64, in_features), (i64, out_features))
NN__CPP_3(module, nn_conv1d, nn_conv_args_t, (i64, in_channels), (i64, out_channels), (i64, kernel))
NN__CPP_3(module, nn_conv2d, nn_conv_args_t, (i64, in_channels), (i64, out_channels), (i64, kernel))
NN__CPP_3(module, nn_conv3d, nn_conv_args_t, (i64, in_channels), (i64, out_channels), (i64, kernel))
NN__CPP_3(module, nn_conv_transpose1d, nn_conv_transpose_args_t, (i64, in_channels), (i64, out_channels),
          (i64, kernel))
NN__CPP_3(module, nn_conv_transpose2d, nn_conv_transpose_args_t, (i64, in_channels), (i64, out_channels),
          (i64, kernel))
NN__CPP_3(module, nn_conv_transpose3d, nn_conv_transpose_args_t, (i64, in_channels), (i64, out_channels),
          (i64, kernel))
NN__CPP_DIMS(NN__CPP_1_3, module, nn_max_pool, , nn_pool_args_t, (i64, kernel), (i64, stride), (i64, padding))
NN__CPP_DIMS(NN__CPP_1_3, module, nn_avg_pool, , nn_pool_args_t, (i64, kernel), (i64, stride), (i64, padding))
NN__CPP_DIMS(NN__CPP_1_3, module, nn_max_unpool, , nn_pool_args_t, (i64, kernel), (i64, stride),
             (i64, padding))
NN__CPP_0(module, nn_upsample, nn_upsample_args_t)
NN__CPP_1(module, nn_upsample, nn_upsample_args_t, (i64, size))
NN__CPP_1_4(module, nn_unfold, nn_columns_args_t, (i64, kernel), (i64, dilation), (i64, padding),
            (i64, stride))
NN__CPP_2_5(module, nn_fold, nn_columns_args_t, (i64, height), (i64, kernel), (i64, dilation),
            (i64, padding), (i64, stride))
NN__CPP_1(module, nn_layer_norm, nn_layer_norm_args_t, (i64, size))
NN__CPP_1(module, nn_rms_norm, nn_rms_norm_args_t, (i64, size))
NN__CPP_1(module, nn_local_response_norm, nn_local_response_norm_args_t, (i64, size))
NN__CPP_DIMS(NN__CPP_1, module, nn_batch_norm, , nn_batch_norm_args_t, (i64, channels))
NN__CPP_DIMS(NN__CPP_1, module, nn_instance_norm, , nn_instance_norm_args_t, (i64, channels))
NN__CPP_2(module, nn_group_norm, nn_group_norm_args_t, (i64, groups), (i64, channels))
NN__CPP_2(module, nn_embedding, nn_embedding_args_t, (i64, count), (i64, size))
NN__CPP_2(module, nn_embedding_bag, nn_embedding_bag_args_t, (i64, count), (i64, size))
NN__CPP_2(module, nn_lstm, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_gru, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_rnn, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_lstm_cell, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_gru_cell, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_rnn_cell, nn_rnn_args_t, (i64, in_features), (i64, hidden))
NN__CPP_2(module, nn_multihead_attention, nn_multihead_attention_args_t, (i64, embed), (i64, heads))
NN__CPP_2(module, nn_transformer_encoder_layer, nn_transformer_layer_args_t, (i64, embed), (i64, heads))
NN__CPP_2(module, nn_transformer_decoder_layer, nn_transformer_layer_args_t, (i64, embed), (i64, heads))
NN__CPP_4(tensor, nn_multihead_attention_forward, nn_attention_args_t, (module, module), (tensor, query),
          (tensor, key), (tensor, value))
NN__CPP_2_3(tensor, nn_transformer_forward, nn_transformer_args_t, (module, module), (tensor, x),
            (tensor, memory))
NN__CPP_1(tensor, nn_init_kaiming_uniform_, nn_kaiming_args_t, (tensor, t))
NN__CPP_1(tensor, nn_init_kaiming_normal_, nn_kaiming_args_t, (tensor, t))

// nn_adam(nullptr, {.list = tensors, .count = n}) takes a list.
NN__CPP_1(optimizer, nn_sgd, nn_sgd_args_t, (module, module))
NN__CPP_1(optimizer, nn_adam, nn_adam_args_t, (module, module))
NN__CPP_1(optimizer, nn_adamw, nn_adamw_args_t, (module, module))
NN__CPP_1(optimizer, nn_sparse_adam, nn_sparse_adam_args_t, (module, module))
NN__CPP_1(optimizer, nn_rmsprop, nn_rmsprop_args_t, (module, module))
NN__CPP_1(optimizer, nn_adagrad, nn_adagrad_args_t, (module, module))
NN__CPP_1(optimizer, nn_adadelta, nn_adadelta_args_t, (module, module))
NN__CPP_1(optimizer, nn_adamax, nn_adamax_args_t, (module, module))
NN__CPP_1(optimizer, nn_nadam, nn_nadam_args_t, (module, module))
NN__CPP_1(optimizer, nn_radam, nn_radam_args_t, (module, module))
NN__CPP_1(optimizer, nn_muon, nn_muon_args_t, (module, module))
NN__CPP_1(optimizer, nn_lbfgs, nn_lbfgs_args_t, (module, module))
NN__CPP_1(loader, nn_data_loader, nn_data_loader_args_t, (dataset, dataset))
#ifndef TENSOR_NO_STDIO
NN__CPP_2(int, nn_load, nn_load_args_t, (text, path), (module, module))
#endif

template <class... D> inline nn_module_t *nn_pad(tensor_pad_t mode, double value, D... pads) {
    tensor_dims_pack p(pads...);
    return (nn_pad_n)(p.d, p.n, mode, value);
}

inline int nn_optimizer_group(nn_optimizer_t *o, tensor_t *const *list, int n,
                              nn_group_args_t a = nn_group_args_t()) {
    return nn__optimizer_group(o, list, n, a);
}

inline int (nn_zero_grad)(nn_module_t *m) { return nn_module_zero_grad(m); }
inline int (nn_free)(nn_optimizer_t *o) { return nn_optimizer_free(o); }
inline int (nn_free)(nn_data_loader_t *l) { return nn_data_loader_free(l); }
inline tensor_t *nn__stamp(const char *site, tensor_t *t) { return tensor__at(site, t); }
inline tensor_pair_t nn__stamp(const char *site, tensor_pair_t p) { return tensor__at_pair(site, p); }
inline tensor_state_t nn__stamp(const char *site, tensor_state_t s) { return nn__at_state(site, s); }
inline int nn__stamp(const char *site, int code) { return tensor__at_int(site, code); }

inline nn_optimizer_t *nn__stamp(const char *site, nn_optimizer_t *o) {
    (void)tensor__at_ptr(site, o);
    return o;
}

inline nn_data_loader_t *nn__stamp(const char *site, nn_data_loader_t *l) {
    (void)tensor__at_ptr(site, l);
    return l;
}

// A braced list, because C++ evaluates only this from left to right: the layers draw their weights in that
// order.
struct nn_sequential_pack {
    nn_module_t *m;
    template <class... M> explicit nn_sequential_pack(M *...list) : m(nullptr) {
        nn_module_t *const all[] = {list..., nullptr};
        m = (nn_sequential_n)(all, static_cast<int>(sizeof...(M)));
    }
};
#define nn_sequential(...) nn__stamp(TENSOR_HERE, nn_sequential_pack{__VA_ARGS__}.m)
#define nn_fold(...) NN__CALL(nn_fold, __VA_ARGS__)
#define nn_pad(...) NN__CALL(nn_pad, __VA_ARGS__)
#define nn_optimizer_group(...) NN__CALL(nn_optimizer_group, __VA_ARGS__)
#endif

#endif   // TENSOR_NN_H_INCLUDED_7C1E

// ------------------------------------------------------------------------------
// >>nn-shared                                      MARK: layouts shared with backends
//
// The meaning of a call's parameters, for those who write a kernel of these families.
// ------------------------------------------------------------------------------

// A second guard: a file may have included this header before it asked for the implementation.
#if defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#define TENSOR__LATER
#include "tensor.h"
#undef TENSOR__LATER
#endif
#if defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#ifndef TENSOR_NN_SHARED_7C1E
#define TENSOR_NN_SHARED_7C1E

typedef tensor__window_params_t nn__window_t;
// Modes of a pool's window: a mean counts the padding, it does not, the windows of an adaptive pool.
enum { NN__COUNT_PAD = 0, NN__NO_COUNT_PAD = 1, NN__ADAPTIVE = 2 };

// Kinds of recurrent nets. The gates kept for backward: LSTM i f g o; GRU r z n, and h's share of n.
enum { NN__TANH_NET, NN__RELU_NET, NN__LSTM_NET, NN__GRU_NET };

// The output columns lo..hi-1 whose input column (for kernel column kx) is inside the image.
TENSOR__INLINE void nn__window_range(const nn__window_t *g, int64_t kx, int64_t *lo, int64_t *hi) {
    int64_t first = g->pad[2] - kx * g->dilation[2], end = g->in[2] + first;
    *lo = first > 0 ? (first + g->stride[2] - 1) / g->stride[2] : 0;
    *hi = end > 0 ? (end + g->stride[2] - 1) / g->stride[2] : 0;
    if (*hi > g->out[2]) { *hi = g->out[2]; }
    if (*lo > *hi) { *lo = *hi; }
}

// Window o of a pool along dim d: input positions *from..*to-1 in steps of dilation, inside the image.
// -> how many of them a mean counts
TENSOR__INLINE int64_t nn__window_at(const nn__window_t *g, int d, int64_t o, int64_t *from, int64_t *to) {
    int64_t end = g->in[d] + g->pad[d];
    if (g->mode == NN__ADAPTIVE) {
        *from = o * g->in[d] / g->out[d];
        *to = ((o + 1) * g->in[d] + g->out[d] - 1) / g->out[d];
        return *to - *from;
    }
    *from = o * g->stride[d] - g->pad[d];
    *to = *from + (g->kernel[d] - 1) * g->dilation[d] + 1;
    if (*to > end) { *to = end; }
    int64_t all = *to - *from;
    while (*from < 0) { *from += g->dilation[d]; }
    if (*to > g->in[d]) { *to = g->in[d]; }
    return g->mode == NN__COUNT_PAD ? all : *to - *from;
}

// Transforms of Winograd's tiles: image 6 -> 6, gradient of the output 4 -> 6, kernel 3 -> 6, output 6 -> 4,
// and gradient of the kernel 6 -> 3. With NN__TILE_5 they are for kernels of 5 and outputs of 2.
enum { NN__TILE_IMAGE, NN__TILE_GRAD, NN__TILE_KERNEL, NN__TILE_OUT, NN__TILE_SUMS, NN__TILE_5 };

// A block of output pixels: columns x0..x1-1 of rows r0..r1-1, where a row is depth * height + y.
typedef struct nn__block_t { int64_t r0, r1, x0, x1; } nn__block_t;

// The numbers of one group of an optimizer at one step: lr is minus lr; rest is 1 - dampening; rest1 and
// rest2 are 1 - beta1 and 1 - beta2; drag is lr_decay or momentum_decay. The last four belong to the
// formula, and nn__at_step computes them.
#define NN__NUMBERS(X)                                                                                       \
    X(lr) X(weight_decay) X(shrink) X(momentum) X(rest) X(beta1) X(rest1) X(beta2) X(rest2) X(eps) X(drag)   \
    X(step) X(other) X(root) X(bias)
// OPTIMIZER calls have this struct as argument 0, on the host, then nn_optimizer_t's skip if step needs it,
// then x, gradient and three states of each parameter; the kind is the formula, or NN__SUM_SQUARES,
// NN__SCALE_GRADS.
typedef struct nn__update_t {
#define NN__MEMBER(x) double x;
    NN__NUMBERS(NN__MEMBER)
    double at;                          // the step, from 1
    // early: sgd's first step, radam's steps without v; lerp_back: PyTorch's lerp computed from its end
    int formula, decay, early, nesterov, decoupled, lerp_back, maximize, by_rows;
    const struct nn__formula_t *of;     // on the host; a device uses the number
} nn__update_t;

#ifdef __CUDACC__
#define NN__BOTH __host__ __device__ inline
#else
#define NN__BOTH TENSOR__INLINE
#endif

NN__BOTH void nn__at_sgd(nn__update_t *u, double t) { u->early = t == 1; }

NN__BOTH void nn__at_adam(nn__update_t *u, double t) {
    double root = sqrt(1 - pow(u->beta2, t));
    u->step = u->lr / (1 - pow(u->beta1, t));
    u->root = 1 / root;
    if (u->by_rows) {                   // SparseAdam, as in PyTorch: eps is not divided by the root
        u->step *= root;
        u->root = 1;
    }
}

NN__BOTH void nn__at_adagrad(nn__update_t *u, double t) { u->step = u->lr / (1 + (t - 1) * u->drag); }

NN__BOTH double nn__nadam_mu(const nn__update_t *u, double t) {
    return u->beta1 * (1 - 0.5 * pow(0.96, t * u->drag));
}

// The product of all mu so far is not a state: it is soon negligible beside 1, and where it is not, mu is
// soon beta1.
NN__BOTH void nn__at_nadam(nn__update_t *u, double t) {
    double mu = nn__nadam_mu(u, t), next = nn__nadam_mu(u, t + 1), by = pow(0.96, u->drag);
    double all = 1, q = by, i;
    for (i = 1; i <= t && all > 1e-17 && q > 1e-18; i++, q *= by) { all *= u->beta1 * (1 - 0.5 * q); }
    if (i <= t) { all *= pow(u->beta1, t - i + 1); }
    u->other = u->lr * (1 - mu) / (1 - all);
    u->step = u->lr * next / (1 - all * next);
    u->bias = 1 - pow(u->beta2, t);
}

NN__BOTH void nn__at_radam(nn__update_t *u, double t) {
    double power = pow(u->beta2, t), most = 2 / u->rest2 - 1, rho = most - 2 * t * power / (1 - power);
    u->early = rho <= 5;
    u->bias = 1 - pow(u->beta1, t);
    u->root = sqrt(1 - power);
    u->other = u->early ? 0 : sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho));
}

// The formulas: name, how many states they have at most, what part of their numbers depends on the step, how
// many states are always there (each of the others costs a test per iteration of the loop). NN__STEP_name is
// what becomes of parameter x, gradient g and states s0, s1, s2, in the operations of the kernels. NN__N is a
// number, NN__U a flag, NN__HAS whether a state is there. maximize and weight decay are applied before. Only
// + - * / sqrt and max are used, so every instruction set and every tail give the same bits; roundings are in
// the order of PyTorch's single-tensor rules.
#define NN__STEPS(X)                                                                                         \
    X(sgd, 1, nn__at_sgd, 0) X(adam, 3, nn__at_adam, 2) X(rmsprop, 3, nn__at_sgd, 1)                         \
    X(adagrad, 1, nn__at_adagrad, 1) X(adadelta, 2, nn__at_sgd, 2) X(adamax, 2, nn__at_adam, 2)              \
    X(nadam, 2, nn__at_nadam, 2) X(radam, 2, nn__at_radam, 2)

// clang-format off
#define NN__MEAN(s, beta) V_ADD(NN__MUL(s, NN__N(beta)), NN__MUL(NN__MUL(NN__N(rest2), g), g))
#define NN__STEP_M \
    s0 = NN__U(lerp_back) ? V_SUB(g, NN__MUL(V_SUB(g, s0), NN__N(beta1))) : V_ADD(s0, NN__MUL(V_SUB(g, s0), NN__N(rest1)));
#define NN__STEP_sgd \
    if (NN__HAS(0)) { \
        s0 = NN__U(early) ? g : V_ADD(NN__MUL(s0, NN__N(momentum)), NN__MUL(NN__N(rest), g)); \
        g = NN__U(nesterov) ? V_ADD(g, NN__MUL(NN__N(momentum), s0)) : s0; \
    } \
    x = V_ADD(x, NN__MUL(NN__N(lr), g));

#define NN__STEP_adam \
    NN__STEP_M \
    g = s1 = NN__MEAN(s1, beta2); \
    if (NN__HAS(2)) g = s2 = V_MAX(s2, s1); \
    x = V_ADD(x, NN__DIV(NN__MUL(NN__N(step), s0), V_ADD(V_MUL(NN__SQRT(g), NN__N(root)), NN__N(eps))));

#define NN__STEP_rmsprop { \
    NN__T v = s0 = NN__MEAN(s0, beta2); \
    if (NN__HAS(2)) { \
        s2 = V_ADD(s2, NN__MUL(V_SUB(g, s2), NN__N(rest2))); \
        v = V_SUB(v, NN__MUL(s2, s2)); \
    } \
    g = NN__DIV(g, V_ADD(NN__SQRT(v), NN__N(eps))); \
    if (NN__HAS(1)) g = s1 = V_ADD(NN__MUL(s1, NN__N(momentum)), g); \
    x = V_ADD(x, NN__MUL(NN__N(lr), g)); }
#define NN__STEP_adagrad \
    s0 = V_ADD(s0, NN__MUL(g, g)); \
    x = V_ADD(x, NN__DIV(NN__MUL(NN__N(step), g), V_ADD(NN__SQRT(s0), NN__N(eps))));
#define NN__STEP_adadelta \
    s0 = NN__MEAN(s0, beta2); \
    g = NN__MUL(NN__DIV(NN__SQRT(V_ADD(s1, NN__N(eps))), NN__SQRT(V_ADD(s0, NN__N(eps)))), g); \
    s1 = NN__MEAN(s1, beta2); \
    x = V_ADD(x, NN__MUL(NN__N(lr), g));

#define NN__STEP_adamax \
    NN__STEP_M \
    s1 = V_MAX(NN__MUL(s1, NN__N(beta2)), V_ADD(V_ABS(g), NN__N(eps))); \
    x = V_ADD(x, NN__DIV(NN__MUL(NN__N(step), s0), s1));

#define NN__STEP_nadam { \
    NN__STEP_M \
    s1 = NN__MEAN(s1, beta2); \
    NN__T by = V_ADD(NN__SQRT(NN__DIV(s1, NN__N(bias))), NN__N(eps)); \
    x = V_ADD(V_ADD(x, NN__DIV(NN__MUL(NN__N(other), g), by)), NN__DIV(NN__MUL(NN__N(step), s0), by)); }

#define NN__STEP_radam \
    NN__STEP_M \
    s1 = NN__MEAN(s1, beta2); \
    g = NN__MUL(NN__DIV(s0, NN__N(bias)), NN__N(lr)); \
    if (!NN__U(early)) g = NN__MUL(NN__MUL(g, NN__DIV(NN__N(root), V_ADD(NN__SQRT(s1), NN__N(eps)))), NN__N(other)); \
    x = V_ADD(x, g);
// clang-format on
enum {
#define NN__STEP_ID(name, states, at, must) NN__STEP_ID_##name,
    NN__STEPS(NN__STEP_ID)
    NN__SUM_SQUARES, NN__SCALE_GRADS
};

typedef void nn__update_fn(const nn__update_t *u, void *x, const void *g, void *s0, void *s1, void *s2,
                           int64_t n);

// A formula: its kernel in a pass, and the function for those of its numbers that depend on the step.
typedef struct nn__formula_t {
    nn__update_fn *(*step)(int place);
    void (*at)(nn__update_t *u, double t);
} nn__formula_t;

// Inner loops of the passes: name, result, parameters. What each does is said at its definition in
// >>nn-kernels. Each has a function of its own that gives it for a pass (NN__DO), so that a program contains
// only those that it can reach. Rejected: one table of all of them per pass, which is kept whole for anyone
// who wants one.
// clang-format off
#define NN__KERNELS(X) \
    X(fill, void, (void *y, double a, int64_t n)) \
    X(add, void, (void *y, const void *x, int64_t n)) \
    X(scale, void, (void *y, double a, int64_t n)) \
    X(dot, double, (const void *x, const void *y, int64_t n)) \
    X(lse, double, (const void *x, int64_t n)) \
    X(col2im, void, (const void *columns, void *image, const nn__window_t *g, int64_t channels, const \
           nn__block_t *b)) \
    X(max_pool, void, (const void *x, void *y, int32_t *place, const nn__window_t *g)) \
    X(max_unpool, void, (const void *grad, const int32_t *place, void *gx, int64_t n)) \
    X(avg_pool, void, (void *x, void *y, const nn__window_t *g, int back)) \
    X(layer_norm, void, (const void *x, const void *w, const void *b, void *y, void *mean, void *rstd, \
           int64_t rows, int64_t n, double eps, int rms)) \
    X(layer_norm_back, void, (const void *grad, const void *x, const void *w, const void *mean, const void \
           *rstd, void *gx, void *gw, void *gb, int64_t rows, int64_t n, int rms)) \
    X(deviation, double, (const void *g, const void *x, double mean, double *total, int64_t n)) \
    X(affine, void, (const void *g, const void *x, void *y, double a, double mean, double b, double c, \
           int64_t n)) \
    X(recur, void, (int kind, const void *gi, const void *hg, const void *h0, const void *c0, void *gates, \
           void *h, void *c, int64_t n)) \
    X(recur_back, void, (int kind, void *dh, void *dc, const void *gates, const void *h, const void *h0, \
           const void *c0, const void *c, void *dgi, void *dhg, int64_t n)) \
    X(softmax_minus, void, (const void *x, const void *w, void *gx, double lse, double a, double b, \
           int64_t n)) \
    X(loss, double, (nn__value_fn *value, const void *x, const void *t, const void *w, const void *q, void *y, \
           int64_t n, double p)) \
    X(loss_back, void, (nn__slope_fn *slope, const void *g, int64_t step, double c, const void *x, const void *t, \
           const void *w, const void *q, void *gx, void *gt, int64_t n, double p)) \
    X(attend, double, (void *s, int64_t valid, int64_t n, double scale, double *lse)) \
    X(attend_back, void, (void *s, void *d, int64_t valid, int64_t n, double scale, double lse, double \
           delta)) \
    X(dropout, void, (const void *x, void *y, int64_t first, int64_t n, tensor_generator_t rng, uint32_t \
           keep, double scale)) \
    X(squares, double, (const void *x, int64_t n)) \
    X(rescale, int, (void *x, double f, int64_t n))

// Only in passes of f32.
#define NN__KERNELS_F32(X) \
    X(direct, void, (int64_t co, int64_t n, const float *w, const int32_t *off, const float *b, const \
           float *p, int64_t ps, int64_t sw, float *y, int64_t ys, int64_t rows, int64_t ow)) \
    X(pad, void, (const float *x, int64_t h, int64_t w, int64_t uh, int64_t uw, int64_t first, int64_t \
           lines, int64_t pw, float *to, int64_t pitch)) \
    X(direct_weight, void, (int m, int taps, const int32_t *off, const float *grad, int64_t gs, int64_t \
           g_row, int64_t g_image, const float *image, int64_t x_row, int64_t x_image, int64_t images, \
           int64_t rows, int64_t width, int64_t sw, float *to, int64_t ts)) \
    X(turn, void, (int64_t rows, int64_t columns, const float *x, int64_t xs, float *y, int64_t ys)) \
    X(gather, void, (int rows, int two, int64_t n, const float *a, int64_t as, const int32_t *off, const \
           float *b, const float *start, float *c, int64_t cs)) \
    X(winograd, void, (int form, int64_t n, const float *x, int64_t xt, int64_t xr, int64_t xc, float *y, \
           int64_t yt, int64_t yr, int64_t yc, const float *start))
// clang-format on
typedef void nn__value_fn(const void *x, const void *t, const void *q, void *y, int64_t n, double p);
typedef void nn__slope_fn(const void *x, const void *t, const void *q, void *dx, void *dt, int64_t n,
                          double p);
#define NN__X(name, result, params) typedef result nn__##name##_fn params;
NN__KERNELS(NN__X)
NN__KERNELS_F32(NN__X)
#undef NN__X

// Sizes of a pass: the place of its kernels (see NN__EACH); outputs of a tile, taps of a tile, floats of a
// vector, rows of gather. All are 0 where there are no NN__KERNELS_F32.
typedef struct nn__cpu_t {
    int place, mr, kt, lanes, gr;
} nn__cpu_t;

// ------------------------------------------------------------------------------
// >>nn-ops                                         MARK: op table
//
// As TENSOR_OPS_OTHER of tensor.h, with two more columns: how many inputs are required (the others may be
// absent), and what error texts call them. The columns are ID, name, family, inputs, required, outputs, CPU
// kernel, scratch, gradient, saves, class, names of the inputs, doc, and what only this row has (row->own:
// nn__then_t, nn__taps_t, nn__integers_t, nn__pointwise_t).
// Outputs from 1 on are kept for the gradient only. The three convolutions are bilinear, each the gradient of
// the others, so they need no rows for gradients of gradients. Fused gradients (_BACKWARD) are used when no
// graph of the gradient is wanted; otherwise the engine differentiates the op composed of smaller ones
// (nn__composed_*).
// ------------------------------------------------------------------------------

// clang-format off
#define NN_OPS(X) \
    X(AFFINE_GRID, affine_grid, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, APART, "theta", "places of affine maps", NULL) \
    X(ATTENTION, scaled_dot_product_attention, ATTENTION, 3, 3, 2, nn__cpu_attention, nn__scratch_attention, nn__grad_attention, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY | TENSOR__SY1, LOW, "query key value", "softmax(q kT scale) v; logsumexp", NULL) \
    X(ATTENTION_BACKWARD, scaled_dot_product_attention_backward, ATTENTION, 6, 6, 3, nn__cpu_attention_back, nn__scratch_attention, NOGRAD, 0, AS_IS, "grad query key value y logsumexp", "dq, dk, dv from g, q, k, v, y, logsumexp", NULL) \
    X(AVG_POOL1D, avg_pool1d, POOL, 1, 1, 1, nn__cpu_avg_pool, NULL, nn__grad_avg_pool, 0, AS_IS, "x", "mean of windows", &nn__of_avg_pool_integers) \
    X(AVG_POOL2D, avg_pool2d, POOL, 1, 1, 1, nn__cpu_avg_pool, NULL, nn__grad_avg_pool, 0, AS_IS, "x", "mean of windows", &nn__of_avg_pool_integers) \
    X(AVG_POOL3D, avg_pool3d, POOL, 1, 1, 1, nn__cpu_avg_pool, NULL, nn__grad_avg_pool, 0, AS_IS, "x", "mean of windows", &nn__of_avg_pool_integers) \
    X(AVG_POOL_BACKWARD, avg_pool_backward, POOL, 1, 1, 1, nn__cpu_avg_unpool, NULL, nn__grad_avg_pool, 0, AS_IS, "grad", "g spread over windows", NULL) \
    X(BATCH_NORM, batch_norm, NORM, 3, 1, 4, nn__cpu_plane_norm, NULL, nn__grad_plane_norm, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, AS_IS, "x weight bias", "normalised channels, weight, bias; mean, 1 / deviation, variance", NULL) \
    X(CHANNEL_SHUFFLE, channel_shuffle, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x", "channels of groups interleaved", NULL) \
    X(COL2IM, col2im, CONV, 1, 1, 1, nn__cpu_columns, NULL, nn__grad_columns, 0, AS_IS, "x", "columns added into images", NULL) \
    X(CONV1D, conv1d, CONV, 3, 2, 1, nn__cpu_conv, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "convolution of x, w, bias", &nn__of_conv_taps) \
    X(CONV2D, conv2d, CONV, 3, 2, 1, nn__cpu_conv, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "convolution of x, w, bias", &nn__of_conv_taps) \
    X(CONV3D, conv3d, CONV, 3, 2, 1, nn__cpu_conv, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "convolution of x, w, bias", &nn__of_conv_taps) \
    X(CONV_TRANSPOSE1D, conv_transpose1d, CONV, 3, 2, 1, nn__cpu_conv_input, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "the gradient of conv1d by its input, of x, w; bias", &nn__of_conv_transposed_taps) \
    X(CONV_TRANSPOSE2D, conv_transpose2d, CONV, 3, 2, 1, nn__cpu_conv_input, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "the gradient of conv2d by its input, of x, w; bias", &nn__of_conv_transposed_taps) \
    X(CONV_TRANSPOSE3D, conv_transpose3d, CONV, 3, 2, 1, nn__cpu_conv_input, nn__scratch_conv, nn__grad_conv, TENSOR__CROSS, LOW, "x weight bias", "the gradient of conv3d by its input, of x, w; bias", &nn__of_conv_transposed_taps) \
    X(CONV_WEIGHT, conv_weight, CONV, 2, 2, 1, nn__cpu_conv_weight, nn__scratch_conv, nn__grad_conv_weight, TENSOR__CROSS, AS_IS, "grad x", "gradient of the weight from g, x", NULL) \
    X(CROSS_ENTROPY, cross_entropy, LOSS, 3, 2, 3, nn__cpu_cross_entropy, nn__scratch_cross_entropy, nn__grad_cross_entropy, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, FULL, "input target weight", "of logits [N, C], classes [N], weight [C]; logsumexp [N], divisor []", NULL) \
    X(CROSS_ENTROPY_BACKWARD, cross_entropy_backward, LOSS, 6, 5, 1, nn__cpu_cross_entropy_back, NULL, NOGRAD, 0, AS_IS, "grad input target logsumexp divisor weight", "from g, logits, classes, logsumexp, divisor, weight", NULL) \
    X(CTC_LOSS, ctc_loss, LOSS, 4, 4, 2, nn__cpu_ctc, nn__scratch_ctc, nn__grad_ctc, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD | TENSOR__SY1, AS_IS, "log_probs targets input_lengths target_lengths", "of each item; its gradient", NULL) \
    X(DROPOUT, dropout, DROPOUT, 1, 1, 1, nn__cpu_dropout, NULL, nn__grad_dropout, 0, AS_IS, "x", "x or 0, scaled", NULL) \
    X(EMBEDDING, embedding, EMBEDDING, 2, 2, 1, nn__cpu_embedding, NULL, nn__grad_embedding, TENSOR__SA, AS_IS, "index weight", "rows of weight named by index", NULL) \
    X(EMBEDDING_BACKWARD, embedding_backward, EMBEDDING, 2, 2, 1, nn__cpu_embedding_back, nn__scratch_embedding_back, nn__grad_embedding_back, TENSOR__SB, AS_IS, "grad index", "rows of g added at index", NULL) \
    X(GRID_SAMPLE, grid_sample, COMPOSED, 2, 2, 1, NULL, NULL, NOGRAD, 0, WIDEST, "x grid", "images at the places of a grid", NULL) \
    X(GROUP_NORM, group_norm, NORM, 3, 1, 4, nn__cpu_plane_norm, NULL, nn__grad_plane_norm, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, FULL, "x weight bias", "normalised groups, weight, bias; mean, 1 / deviation, variance", NULL) \
    X(GROUP_NORM_BACKWARD, group_norm_backward, NORM, 5, 4, 3, nn__cpu_plane_norm_back, nn__scratch_plane_norm_back, NOGRAD, 0, AS_IS, "grad x mean rstd weight", "dx, dweight, dbias of batch_norm or group_norm from g, x, mean, 1 / deviation, weight", NULL) \
    X(IM2COL, im2col, CONV, 1, 1, 1, nn__cpu_columns, NULL, nn__grad_columns, 0, AS_IS, "x", "windows of images as columns", NULL) \
    X(INTERPOLATE, interpolate, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, FULL, "x", "images resampled", NULL) \
    X(LAYER_NORM, layer_norm, NORM, 3, 1, 3, nn__cpu_layer_norm, NULL, nn__grad_layer_norm, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY1 | TENSOR__SY2, FULL, "x weight bias", "normalised rows, weight, bias; mean, 1 / deviation", NULL) \
    X(LAYER_NORM_BACKWARD, layer_norm_backward, NORM, 5, 4, 3, nn__cpu_layer_norm_back, nn__scratch_layer_norm_back, NOGRAD, 0, AS_IS, "grad x mean rstd weight", "dx, dweight, dbias from g, x, mean, 1 / deviation, weight", NULL) \
    X(LINEAR, linear, MATMUL, 3, 2, 1, nn__cpu_linear, nn__scratch_linear, nn__grad_linear, TENSOR__CROSS, LOW, "x weight bias", "x wT + bias", NULL) \
    X(LINEAR_GELU_TANH, linear_gelu_tanh, MATMUL, 3, 2, 2, nn__cpu_linear, nn__scratch_linear, nn__grad_linear, TENSOR__CROSS | TENSOR__SY1, LOW, "x weight bias", "gelu_tanh of x wT + bias; that, for the gradient", &nn__then_gelu_tanh) \
    X(LINEAR_RELU, linear_relu, MATMUL, 3, 2, 1, nn__cpu_linear, nn__scratch_linear, nn__grad_linear, TENSOR__CROSS | TENSOR__SY, LOW, "x weight bias", "relu of x wT + bias", &nn__then_relu) \
    X(LOSS_BACKWARD, loss_backward, LOSS, 5, 3, 2, nn__cpu_loss_back, NULL, NOGRAD, 0, AS_IS, "grad input target weight pos_weight", "dinput, dtarget from g, input, target, weight, pos_weight", NULL) \
    X(MAX_POOL1D, max_pool1d, POOL, 1, 1, 2, nn__cpu_max_pool, NULL, nn__grad_max_pool, TENSOR__SY1, AS_IS, "x", "largest of windows; its place in the plane, i32", &nn__of_max_pool_integers) \
    X(MAX_POOL2D, max_pool2d, POOL, 1, 1, 2, nn__cpu_max_pool, NULL, nn__grad_max_pool, TENSOR__SY1, AS_IS, "x", "largest of windows; its place in the plane, i32", &nn__of_max_pool_integers) \
    X(MAX_POOL3D, max_pool3d, POOL, 1, 1, 2, nn__cpu_max_pool, NULL, nn__grad_max_pool, TENSOR__SY1, AS_IS, "x", "largest of windows; its place in the plane, i32", &nn__of_max_pool_integers) \
    X(MAX_POOL_BACKWARD, max_pool_backward, POOL, 2, 2, 1, nn__cpu_max_unpool, NULL, nn__grad_max_unpool, TENSOR__SB, AS_IS, "grad place", "g added at places", NULL) \
    X(MAX_UNPOOL1D, max_unpool1d, COMPOSED, 2, 2, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x indices", "x at the places of a max pool", NULL) \
    X(MAX_UNPOOL2D, max_unpool2d, COMPOSED, 2, 2, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x indices", "x at the places of a max pool", NULL) \
    X(MAX_UNPOOL3D, max_unpool3d, COMPOSED, 2, 2, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x indices", "x at the places of a max pool", NULL) \
    X(PAD, pad, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x", "elements added at the ends of dims", NULL) \
    X(PIXEL_SHUFFLE, pixel_shuffle, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x", "channels as pixels", NULL) \
    X(PIXEL_UNSHUFFLE, pixel_unshuffle, COMPOSED, 1, 1, 1, NULL, NULL, NOGRAD, 0, AS_IS, "x", "pixels as channels", NULL) \
    X(RECURRENT, recurrent, RECURRENT, 5, 3, 3, nn__cpu_recurrent, nn__scratch_recurrent, nn__grad_recurrent, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD | TENSOR__SE | TENSOR__SY | TENSOR__SY1 | TENSOR__SY2, LOW, "gi w_hh h0 b_hh c0", "h of all steps from the gates' share of x [T, N, G]; c; gates", NULL) \
    X(RECURRENT_BACKWARD, recurrent_backward, RECURRENT, 8, 6, 4, nn__cpu_recurrent_back, nn__scratch_recurrent, NOGRAD, 0, AS_IS, "grad y c gates w_hh h0 dc c0", "dgi, dhg (GRU), dh0, dc0", NULL) \
    X(LOSS_MSE, mse_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "(x - t)^2", &nn__pointwise_MSE) \
    X(LOSS_L1, l1_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "|x - t|", &nn__pointwise_L1) \
    X(LOSS_SMOOTH_L1, smooth_l1_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "d^2 / 2p near 0, else |d| - p / 2", &nn__pointwise_SMOOTH_L1) \
    X(LOSS_HUBER, huber_loss, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "d^2 / 2 near 0, else p (|d| - p / 2)", &nn__pointwise_HUBER) \
    X(LOSS_BCE, binary_cross_entropy, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "-(t log x + (1 - t) log(1 - x))", &nn__pointwise_BCE) \
    X(LOSS_BCE_LOGITS, binary_cross_entropy_with_logits, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "binary cross entropy of sigmoid(x)", &nn__pointwise_BCE_LOGITS) \
    X(LOSS_KL_DIV, kl_div, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "t (log t - x)", &nn__pointwise_KL_DIV) \
    X(LOSS_KL_DIV_LOG, kl_div, LOSS, 4, 2, 1, nn__cpu_loss, nn__scratch_loss, nn__grad_loss, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD, FULL, "input target weight pos_weight", "e^t (t - x)", &nn__pointwise_KL_DIV_LOG)

// As TENSOR_OPS_COMPOSED; losses are those without a row.
#define NN_OPS_COMPOSED(X) \
    X(bilinear, WIDEST) X(cosine_similarity, FULL) X(local_response_norm, FULL) X(losses, FULL) \
    X(pairwise_distance, FULL) X(prelu, LOW)

// Pointwise losses: ID, formula, derivatives by x and t. x is input, t target, p beta, q pos_weight. W is the
// prefix of the operations: V_ (vectors of each instruction set, and doubles) or T_ (tensors, formulas only).
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
// t log t is 0 at t = 0; the inner SEL keeps the log finite there.
#define NN__KL(W, x, t, p, q)                                                                                \
    W##MUL(t, W##SUB(W##LOG(W##SEL(W##EQ(t, W##SET(0)), W##SET(1), t)), x))
#define NN__KL_DX(W, x, t, p, q) W##NEG(t)
#define NN__KL_DT(W, x, t, p, q)                                                                             \
    W##SUB(W##SEL(W##EQ(t, W##SET(0)), W##SET(0), W##ADD(W##LOG(t), W##SET(1))), x)
#define NN__KLL(W, x, t, p, q) W##MUL(W##EXP(t), W##SUB(t, x))
#define NN__KLL_DX(W, x, t, p, q) W##NEG(W##EXP(t))
#define NN__KLL_DT(W, x, t, p, q) W##MUL(W##EXP(t), W##ADD(W##SUB(t, x), W##SET(1)))
// clang-format on
enum {
#define TENSOR__X(name, cast) TENSOR__CAST_##name = TENSOR__##cast,
    NN_OPS_COMPOSED(TENSOR__X)
#undef TENSOR__X
};

typedef enum nn_op_id_t {
    NN__OP_BEFORE_FIRST = TENSOR_OP_NN_FIRST - 1,
#define TENSOR__X(ID, ...) NN_OP_##ID,
    NN_OPS(TENSOR__X)
#undef TENSOR__X
    NN_OP_END
} nn_op_id_t;
enum { NN_OP_COUNT = (int)NN_OP_END - (int)TENSOR_OP_NN_FIRST };

// Whole recurrent nets, and attention with a mask, which only a device's library runs. These rows are not in
// the table, because a test of every row on the CPU could not run them. If a kernel declines (UNSUPPORTED
// without an error), other rows do the work.
enum { NN_OP_NET = (int)NN_OP_END, NN_OP_NET_BACKWARD, NN_OP_BIASED, NN_OP_BIASED_BACKWARD, NN_OP_STEP,
       NN_OP_SUM_SQUARES, NN_OP_SCALE_GRADS };

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
// The file includes itself once per pass. Passes 0..5 are those of tensor.h (scalar, SSE2, AVX2, AVX-512,
// NEON, SIMD128, all f32), 6 is the same text in doubles on f64, 7 in doubles on f32 (TENSOR_REFERENCE).
// NN__R is the element type, NN__S the type of a sum. Only inner loops are here; the code that divides the
// work and calls them is in the sections from >>impl-functional on. Pointers are void so that one prototype
// serves both element types. Rejected: a second, plain text of every kernel for f64 and the reference.
// ------------------------------------------------------------------------------

#ifdef TENSOR_NN__PASS

#if TENSOR_NN__PASS == 0
#define NN__K(name) TENSOR__BUILT(nn__##name##_scalar)
#elif TENSOR_NN__PASS == 1
#define NN__K(name) TENSOR__BUILT(nn__##name##_sse2)
#elif TENSOR_NN__PASS == 2
#define NN__K(name) TENSOR__BUILT(nn__##name##_avx2)
#elif TENSOR_NN__PASS == 3
#define NN__K(name) TENSOR__BUILT(nn__##name##_avx512)
#elif TENSOR_NN__PASS == 4
#define NN__K(name) TENSOR__BUILT(nn__##name##_neon)
#elif TENSOR_NN__PASS == 5
#define NN__K(name) TENSOR__BUILT(nn__##name##_wasm)
#elif TENSOR_NN__PASS == 6
#define NN__K(name) nn__##name##_f64
#else
#define NN__K(name) nn__##name##_reference
#endif

// How a pass declares what the other parts use, which may be compiled in another file.
#if TENSOR_NN__PASS < 6
#define NN__KERNEL TENSOR__BETWEEN
#else
#define NN__KERNEL TENSOR__FN
#endif

#if TENSOR_NN__PASS < 6
#ifndef TENSOR__MORE_KERNELS
#define TENSOR__PASS TENSOR_NN__PASS
#define TENSOR__PASS_OPEN
#include "tensor.h"
#undef TENSOR__PASS_OPEN
#endif
#define NN__R float
#define NN__S float
#else
#define TENSOR__PASS 0   // whose closing lines also end these macros
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC diagnostic push
#endif
#if TENSOR_NN__PASS == 6
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
#define V_TANH(a) tanh(a)
#define V_LT(a, b) ((a) < (b))
#define V_LE(a, b) ((a) <= (b))
#define V_GT(a, b) ((a) > (b))
#define V_EQ(a, b) ((a) == (b))
#define V_SEL(m, a, b) ((m) ? (a) : (b))
#define V_MAX(a, b) NN__K(larger)(a, b)
#define V_HSUM(a) (a)
#define V_HMAX(a) (a)
#define V_MAXR(a, b) ((a) > (b) ? (a) : (b))
#define V_AHEAD(p, n) ((void)0)
#define V_PART(p, n, fill) V_LOAD(p)
#define V_PUT_PART(p, n, v) V_STORE(p, v)
#define V_CUT_PART(v, n) (v)
TENSOR__INLINE double NN__K(larger)(double a, double b) { return a > b || a != a ? a : b; }
#endif
// Lanes 0, 2, 4, ... of two vectors.
#if TENSOR_NN__PASS == 0
#define NN__EVEN(a, b) (a)
#elif TENSOR_NN__PASS == 1
#define NN__EVEN(a, b) _mm_shuffle_ps(a, b, 0x88)
#elif TENSOR_NN__PASS == 2
#define NN__EVEN(a, b)                                                                                       \
    _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xD8))
#elif TENSOR_NN__PASS == 3
#define NN__EVEN(a, b)                                                                                       \
    _mm512_castpd_ps(_mm512_permutexvar_pd(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0),                         \
                                           _mm512_castps_pd(_mm512_shuffle_ps(a, b, 0x88))))
#elif TENSOR_NN__PASS == 4
#define NN__EVEN(a, b) vuzp1q_f32(a, b)
#elif TENSOR_NN__PASS == 5
#define NN__EVEN(a, b) wasm_i32x4_shuffle(a, b, 0, 2, 4, 6)
#endif
#define V_NLS(a) V_ADD(V_LOG1P(V_EXP(V_NEG(V_ABS(a)))), V_MAX(V_NEG(a), V_ZERO()))

#define NN__LOAD(p, n, fill) (TENSOR__LIKELY((n) >= V_N) ? V_LOAD(p) : V_PART(p, n, (NN__R)(fill)))

TENSOR__INLINE void NN__K(put)(NN__R *p, int64_t n, V_F v) {
    if (TENSOR__LIKELY(n >= V_N)) {
        V_STORE(p, v);
    } else {
        V_PUT_PART(p, n, v);
    }
}

TENSOR__INLINE V_F NN__K(cut)(V_F v, int64_t n) { return TENSOR__LIKELY(n >= V_N) ? v : V_CUT_PART(v, n); }

// y[i] = a
NN__KERNEL void NN__K(fill)(void *y, double a, int64_t n) {
    NN__R *p = (NN__R *)y;
    for (int64_t i = 0; i < n; i += V_N) { NN__K(put)(p + i, n - i, V_SET(a)); }
}

// y[i] += x[i]
NN__KERNEL void NN__K(add)(void *y, const void *x, int64_t n) {
    NN__R *p = (NN__R *)y;
    const NN__R *q = (const NN__R *)x;
    for (int64_t i = 0; i < n; i += V_N) {
        NN__K(put)(p + i, n - i, V_ADD(NN__LOAD(p + i, n - i, 0), NN__LOAD(q + i, n - i, 0)));
    }
}

// y[i] *= a
NN__KERNEL void NN__K(scale)(void *y, double a, int64_t n) {
    NN__R *p = (NN__R *)y;
    for (int64_t i = 0; i < n; i += V_N) {
        NN__K(put)(p + i, n - i, V_MUL(NN__LOAD(p + i, n - i, 0), V_SET(a)));
    }
}

// Sum of x[i] y[i], or of x[i] if y is NULL. Leaves are summed in lanes, their sums in double, so long rows
// lose no digits.
#undef NN__LEAF
#define NN__LEAF ((int64_t)64 * V_N)

NN__KERNEL double NN__K(dot)(const void *x, const void *y, int64_t n) {
    const NN__R *p = (const NN__R *)x, *q = (const NN__R *)y;
    double sum = 0;
    int64_t k;
    for (int64_t i = 0; i < n; i = k) {
        V_F s = V_ZERO(), t = s;
        k = n - i < NN__LEAF ? n : i + NN__LEAF;
        if (!q) {
            for (; i + 2 * V_N <= k; i += 2 * V_N) {
                s = V_ADD(s, V_LOAD(p + i));
                t = V_ADD(t, V_LOAD(p + i + V_N));
            }
            s = V_ADD(s, t);
            for (; i < k; i += V_N) { s = V_ADD(s, NN__LOAD(p + i, n - i, 0)); }
        } else {
            for (; i < k; i += V_N) { s = V_FMA(NN__LOAD(p + i, n - i, 0), NN__LOAD(q + i, n - i, 0), s); }
        }
        sum += (double)V_HSUM(s);
    }
    return sum;
}

TENSOR__INLINE NN__S NN__K(row_max)(const NN__R *p, int64_t n) {
    V_F m = V_SET(-INFINITY);
    for (int64_t i = 0; i < n; i += V_N) { m = V_MAX(m, NN__LOAD(p + i, n - i, -INFINITY)); }
    return V_HMAX(m);
}

// e^y as a summand beside a 1, y <= 0: 2^n in sixteenths times a polynomial of degree 3, off by less than
// 2^-24. As a value of its own it is off by 1.1 ulp down to y = -1, 2.4 at -8, 20 at -86.
#if TENSOR_NN__PASS == 3
TENSOR__INLINE V_F NN__K(term)(V_F y) {
    static const float t[16] = {1.0f, 1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f, 1.2968396f,
                                1.3542556f, 1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f, 1.6817929f,
                                1.7562522f, 1.8340081f, 1.9152066f};
    V_F big = V_SET(786432.0f), l = V_SET(1.44269504f);
    y = V_MAXR(V_SET(-105.0f), y);
    V_F k = V_FMA(y, l, big);
    V_F n = V_SUB(k, big);
    V_F r = V_FMA(y, l, V_NEG(n));
    V_F h = V_LOOKUP(t, V_BITS(k));
    k = V_FMA(V_FMA(r, V_SET(0.05550411f), V_SET(0.2402265f)), r, V_SET(0.693147182f));
    return V_LDEXP(V_FMA(V_MUL(h, r), k, h), n);
}

#define NN__TERM(y) NN__K(term)(y)
#else
#define NN__TERM(y) V_EXP(y)
#endif

// log(sum of e^x[i])
NN__KERNEL double NN__K(lse)(const void *x, int64_t n) {
    const NN__R *p = (const NN__R *)x;
    V_F s = V_ZERO(), vm = V_SET(-INFINITY), v1 = vm, v2 = vm, v3 = vm;
    int64_t i;
    for (i = 0; i + 4 * V_N <= n; i += 4 * V_N) {
        vm = V_MAXR(V_LOAD(p + i), vm);
        v1 = V_MAXR(V_LOAD(p + i + V_N), v1);
        v2 = V_MAXR(V_LOAD(p + i + 2 * V_N), v2);
        v3 = V_MAXR(V_LOAD(p + i + 3 * V_N), v3);
    }
    for (; i < n; i += V_N) { vm = V_MAXR(NN__LOAD(p + i, n - i, -INFINITY), vm); }
    NN__S m = V_HMAX(V_MAXR(V_MAXR(v1, vm), V_MAXR(v3, v2)));
    if (m == (NN__S)-INFINITY || m == (NN__S)INFINITY) { return (double)NN__K(row_max)(p, n); }
    vm = V_SET(m);
    for (i = 0; i < n; i += V_N) {
        V_AHEAD(p + i, n);
        s = V_ADD(s, NN__K(cut)(NN__TERM(V_SUB(NN__LOAD(p + i, n - i, 0), vm)), n - i));
    }
    return (double)m + log((double)V_HSUM(s));
}
#undef NN__TERM

// ------------------------------------------------------------------------------
// >>nn-kernel-conv                                 MARK: convolution
//
// Columns (im2col) for a GEMM: row r = (channel, ky, kx), one column per output pixel. The copy into columns
// is one text for all element types, in >>impl-conv; only the addition back into the image is here. Rejected:
// col2im as a scatter of single elements (rows of pixels are contiguous).
// ------------------------------------------------------------------------------

// Adds the columns of a block of output pixels to `channels` planes.
NN__KERNEL void NN__K(col2im)(const void *columns, void *image, const nn__window_t *g, int64_t channels,
                              const nn__block_t *b) {
    const NN__R *q = (const NN__R *)columns;
    int64_t lo, hi, taps = g->kernel[0] * g->kernel[1] * g->kernel[2];
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < taps; k++) {
            int64_t kx = k % g->kernel[2], ky = k / g->kernel[2] % g->kernel[1];
            int64_t kz = k / g->kernel[2] / g->kernel[1], oz = b->r0 / g->out[1], oy = b->r0 % g->out[1];
            nn__window_range(g, kx, &lo, &hi);
            if (lo < b->x0) { lo = b->x0; }
            if (hi > b->x1) { hi = b->x1; }
            for (int64_t r = b->r0; r < b->r1; r++, q += b->x1 - b->x0) {
                int64_t iz = oz * g->stride[0] - g->pad[0] + kz * g->dilation[0];
                int64_t iy = oy * g->stride[1] - g->pad[1] + ky * g->dilation[1];
                NN__R *p = (NN__R *)image + ((c * g->in[0] + iz) * g->in[1] + iy) * g->in[2] +
                           (kx * g->dilation[2] - g->pad[2]);
                if (++oy == g->out[1]) {
                    oy = 0;
                    oz++;
                }
                if (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1] || lo >= hi) { continue; }
                if (g->stride[2] == 1) {
                    NN__K(add)(p + lo, q + (lo - b->x0), hi - lo);
                } else {
                    for (int64_t ox = lo; ox < hi; ox++) {
                        int64_t i = ox * g->stride[2];
                        p[i] = (NN__R)(p[i] + q[ox - b->x0]);
                    }
                }
            }
        }
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-direct                               MARK: convolution without columns
//
// f32 only. Images are copied once with their padding; then the input that output pixel p reads for the k-th
// (channel, ky, kx) is at p + off[k]. There are three forms: pixels in vectors (few outputs, stride 1 along
// the width, where a vector of pixels is one load), outputs in vectors (any stride and width; the result is
// transposed afterwards, the incoming gradient before), and Winograd's tiles for 3x3 and 5x5 with many
// channels. Rejected: columns for everything. To copy each input once per element of the kernel and to pack
// it again costs as much as the product if channels or pixels are few.
// ------------------------------------------------------------------------------

#if TENSOR_NN__PASS < 6
#undef NN__ROWS
#undef NN__MR
#if TENSOR_NN__PASS == 3 || TENSOR_NN__PASS == 4
#define NN__MR 8            // outputs of a tile: 16 sums + 2 + 1 of 32 registers
#define NN__ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define NN__MR 4            // 8 sums + 2 + 1 of 16
#define NN__ROWS(X) X(0) X(1) X(2) X(3)
#endif
#define NN__ZERO(i) V_F a##i = V_SET(b[i]), b##i = a##i;
#define NN__STEP(i) if (mr > i) { V_F u = V_SET(w[i]); a##i = V_FMA(u, x, a##i); b##i = V_FMA(u, z, b##i); }
#define NN__OUT(i) if (mr > i && m > i) { \
        NN__K(put)(y0 + i * ys, w0, a##i); \
        if (w1) NN__K(put)(y1 + i * ys, w1, b##i); }
// Pixel x of an output reads p[sw x]: sw is 1, or 2 if even is set. What is read beyond a line is not stored.
#define NN__AT(p) (even ? NN__EVEN(V_LOAD(p), V_LOAD((p) + V_N)) : V_LOAD(p))

// m outputs at two positions of w0 and w1 pixels (w1 may be 0). w [n][MR], b [MR].
TENSOR__INLINE void NN__K(direct_tile)(const int mr, const int even, int m, int64_t n, const float *w,
                                       const int32_t *off, const float *b, const float *p0, const float *p1,
                                       float *y0, float *y1, int64_t ys, int64_t w0, int64_t w1) {
    NN__ROWS(NN__ZERO)
    for (; n > 0; n--, w += NN__MR, off++) {
        V_F x = NN__AT(p0 + *off), z = NN__AT(p1 + *off);
        NN__ROWS(NN__STEP)
    }
    NN__ROWS(NN__OUT)
}

// One output with 3 x 3 taps (or any 9 taps whose offsets are equally far apart within each three).
#define NN__NINE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define NN__WEIGHT(k) V_F w##k = V_SET(w[k * NN__MR]);
#define NN__LINE3(l) V_F l##_0 = NN__AT(l), l##_1 = NN__AT(l + d), l##_2 = NN__AT(l + 2 * d);
#define NN__THREE(l, a, b, c, start) V_FMA(l##_2, c, V_FMA(l##_1, b, V_FMA(l##_0, a, start)))
#define NN__SUM9(l, m, n) V_ADD(V_ADD(NN__THREE(l, w0, w1, w2, start), NN__THREE(m, w3, w4, w5, zero)),      \
                                NN__THREE(n, w6, w7, w8, zero))

TENSOR__INLINE void NN__K(direct_nine)(const int even, const float *w, const int32_t *off, float b,
                                       const float *p, int64_t ps, float *y, int64_t rows, int64_t ow) {
    int64_t d = off[1] - off[0], pairs = NN__MR > 4 && off[3] - off[0] == ps && off[6] - off[3] == ps;
    V_F start = V_SET(b), zero = V_ZERO();
    NN__NINE(NN__WEIGHT)
    // Two rows of the output share two of the three lines they read, so they go together if registers
    // suffice.
    for (; pairs && rows > 1; rows -= 2, p += 2 * ps, y += 2 * ow) {
        const float *l0 = p + off[0], *l1 = p + off[3], *l2 = p + off[6], *l3 = l2 + ps;
        for (int64_t x = 0; x < ow; x += V_N, l0 += V_N << even, l1 += V_N << even, l2 += V_N << even,
                                      l3 += V_N << even) {
            NN__LINE3(l0)
            NN__LINE3(l1)
            NN__LINE3(l2)
            NN__LINE3(l3)
            V_AHEAD(y + x, 256);
            V_AHEAD(y + ow + x, 256);
            NN__K(put)(y + x, ow - x, NN__SUM9(l0, l1, l2));
            NN__K(put)(y + ow + x, ow - x, NN__SUM9(l1, l2, l3));
        }
    }
    for (; rows > 0; rows--, p += ps, y += ow) {
        const float *l0 = p + off[0], *l1 = p + off[3], *l2 = p + off[6];
        for (int64_t x = 0; x < ow; x += V_N, l0 += V_N << even, l1 += V_N << even, l2 += V_N << even) {
            NN__LINE3(l0)
            NN__LINE3(l1)
            NN__LINE3(l2)
            V_AHEAD(y + x, 128);
            NN__K(put)(y + x, ow - x, NN__SUM9(l0, l1, l2));
        }
    }
}

// Rows of ow pixels of co outputs: p advances by ps per row, y by ow per row and by ys per output.
NN__KERNEL void NN__K(direct)(int64_t co, int64_t n, const float *w, const int32_t *off, const float *b,
                              const float *p, int64_t ps, int64_t sw, float *y, int64_t ys, int64_t rows,
                              int64_t ow) {
    int64_t r = 0, x = 0;
    if (co == 1 && n == 9) {
        if (sw == 1) {
            NN__K(direct_nine)(0, w, off, *b, p, ps, y, rows, ow);
        } else {
            NN__K(direct_nine)(1, w, off, *b, p, ps, y, rows, ow);
        }
        return;
    }
    int64_t r1, x1, w1;
    for (; r < rows; r = x1 + V_N < ow ? r1 : r1 + 1, x = r == r1 ? x1 + V_N : 0) {
        const float *p0 = p + r * ps + x * sw;
        x1 = x + V_N < ow ? x + V_N : 0;
        r1 = x1 ? r : r + 1;
        w1 = r1 < rows ? ow - x1 : 0;
        const float *p1;
        p1 = w1 ? p + r1 * ps + x1 * sw : p0;
        for (int64_t o = 0; o < co; o += NN__MR) {
            const float *wo = w + o * n, *bo = b + o;
            float *y0 = y + o * ys + r * ow + x, *y1 = y + o * ys + r1 * ow + x1;
            int m = co - o < NN__MR ? (int)(co - o) : NN__MR;
#define NN__TILE(mr, even) NN__K(direct_tile)(mr, even, m, n, wo, off, bo, p0, p1, y0, y1, ys, ow - x, w1)
            if (sw != 1) {
                NN__TILE(1, 1);
            } else if (m > 4) {
                NN__TILE(NN__MR, 0);
            } else if (m > 1) {
                NN__TILE(4, 0);
            } else {
                NN__TILE(1, 0);
            }
        }
    }
}

// Lines first .. first + lines of a plane [h][w] whose elements are uh lines and uw columns apart, with zeros
// between and around them; pw zeros on the left. Writes up to one vector past the end.
NN__KERNEL void NN__K(pad)(const float *x, int64_t h, int64_t w, int64_t uh, int64_t uw, int64_t first,
                           int64_t lines, int64_t pw, float *to, int64_t pitch) {
    for (; lines > 0; lines--, first++, to += pitch) {
        for (int64_t i = 0; i < pitch; i += V_N) { V_STORE(to + i, V_ZERO()); }
        if (first < 0 || first >= h * uh || (uh > 1 && first % uh)) { continue; }
        const float *from = x + (uh > 1 ? first / uh : first) * w;  // a division costs as much as a line
        for (int64_t i = 0; uw == 1 && i < w; i += V_N) {
            V_AHEAD(from + i, h * w);                      // the plane that is copied next
            NN__K(put)(to + pw + i, w - i, NN__LOAD(from + i, w - i, 0));
        }
        for (int64_t i = 0; uw != 1 && i < w; i++) { to[pw + i * uw] = from[i]; }
    }
}

// Sums over pixels for the weight gradient: s[i][k] += sum of g[i gs + p] x[p + off[k]] over images x rows x
// width pixels. Tiles of 4 outputs and KT taps, or of 1 output and 9 taps, keep their sums in vectors until
// the last image.
#define NN__KT (TENSOR_NN__PASS == 3 || TENSOR_NN__PASS == 4 ? 5 : 2)   // 20 sums + 4 + 5 of 32 registers
#define NN__DOT(i, k) if (k < NN__KT) s##i##k = V_FMA(g##i, x##k, s##i##k);
#define NN__FOUR(X, k) X(0, k) X(1, k) X(2, k) X(3, k)
#define NN__FIVE(X) NN__FOUR(X, 0) NN__FOUR(X, 1) NN__FOUR(X, 2) NN__FOUR(X, 3) NN__FOUR(X, 4)
#define NN__SUM(i, k) V_F s##i##k = V_ZERO();
#define NN__FOLD(i, k) if (i < m && k < NN__KT && k < taps) to[i * ts + k] += V_HSUM(s##i##k);
#define NN__LINE(load) { \
        V_F g0 = load(g + r), g1 = load(g + r + g_1), g2 = load(g + r + g_2), g3 = load(g + r + g_3);        \
        V_F x0 = load(x + r + off[0]), x1 = load(x + r + o1), x2 = load(x + r + o2), x3 = load(x + r + o3);  \
        V_F x4 = load(x + r + o4); \
        NN__FIVE(NN__DOT) (void)x1, (void)x2, (void)x3, (void)x4; }
#define NN__TAP(k) V_F s##k = V_ZERO(); int64_t o##k = off[k < taps ? k : 0];
#define NN__MEET(k) s##k = V_FMA(u, V_SEL(r + V_N <= width ? all : keep, NN__AT(q + o##k), V_ZERO()), s##k);
#define NN__KEEP(k) if (k < taps) to[k] += V_HSUM(s##k);

TENSOR__INLINE void NN__K(nine_sums)(const int even, int taps, const int32_t *off, const float *grad,
                                     int64_t g_row, int64_t g_image, const float *image, int64_t x_row,
                                     int64_t x_image, int64_t images, int64_t rows, int64_t width,
                                         float *to) {
    int64_t r, left = width % V_N;
    V_M all = V_EQ(V_ZERO(), V_ZERO()), keep = V_NE(NN__K(cut)(V_SET(1), left ? left : V_N), V_ZERO());
    NN__NINE(NN__TAP)
    for (int64_t i = 0; i < images; i++) {
        for (int64_t k = 0; k < rows; k++) {
            const float *g = grad + i * g_image + k * g_row, *q = image + i * x_image + k * x_row;
            for (r = 0; r < width; r += V_N, q += V_N << even) {
                V_F u = NN__LOAD(g + r, width - r, 0);
                NN__NINE(NN__MEET)
            }
        }
    }
    NN__NINE(NN__KEEP)
}

NN__KERNEL void NN__K(direct_weight)(int m, int taps, const int32_t *off, const float *grad, int64_t gs,
                                     int64_t g_row, int64_t g_image, const float *image, int64_t x_row,
                                     int64_t x_image, int64_t images, int64_t rows, int64_t width, int64_t sw,
                                     float *to, int64_t ts) {
    int64_t g_1 = gs, g_2 = m > 2 ? 2 * gs : 0, g_3 = m > 3 ? 3 * gs : 0, r;
    int left = (int)(width % V_N);
    int32_t o1 = off[taps > 1 ? 1 : 0], o2 = off[taps > 2 ? 2 : 0], o3 = off[taps > 3 ? 3 : 0];
    int32_t o4 = off[taps > 4 ? 4 : 0];
    NN__FIVE(NN__SUM)
    if (m == 1) {
#define NN__ONE(even) \
    NN__K(nine_sums)(even, taps, off, grad, g_row, g_image, image, x_row, x_image, images, rows, width, to)
        if (sw == 1) {
            NN__ONE(0);
        } else {
            NN__ONE(1);
        }
        return;
    }
    for (int64_t i = 0; i < images; i++) {
        const float *g = grad + i * g_image, *x = image + i * x_image;
        for (int64_t k = 0; k < rows; k++, g += g_row, x += x_row) {
            for (r = 0; r + V_N <= width; r += V_N) { NN__LINE(V_LOAD) }
#define NN__TAIL(p) V_PART(p, left, 0.0f)
            if (left) { NN__LINE(NN__TAIL) }
        }
    }
    NN__FIVE(NN__FOLD)
    (void)o1, (void)o2, (void)o3, (void)o4;
}

// y[c ys + r] = x[r xs + c]
NN__KERNEL void NN__K(turn)(int64_t rows, int64_t columns, const float *x, int64_t xs, float *y, int64_t ys) {
    int64_t r = 0, c, i;
#if TENSOR_NN__PASS == 3
#define NN__HALVES(a, b, way) _mm512_maskz_shuffle_f32x4(0xFFFF, a, b, way)
    // Whole cache lines on both sides: rows are often 4096 bytes apart, and a cache holds few such lines.
    for (; r < rows; r += 16) {
        for (c = 0; c < columns; c += 16) {
            V_F v[16];
            int64_t left = rows - r, wide = columns - c;
            for (i = 0; i < 16; i++) {
                const float *p = x + (r + i) * xs + c;
                if (i < left) { V_AHEAD(p, 64); }
                v[i] = i < left ? NN__LOAD(p, wide, 0) : V_ZERO();
            }
            for (i = 0; i < 16; i += 4) { TENSOR__QUADS(v + i); }
            for (i = 0; i < 4; i++) {
                V_F a = NN__HALVES(v[i], v[i + 4], 0x44), b = NN__HALVES(v[i], v[i + 4], 0xEE);
                V_F e = NN__HALVES(v[i + 8], v[i + 12], 0x44), f = NN__HALVES(v[i + 8], v[i + 12], 0xEE);
                v[i] = NN__HALVES(a, e, 0x88);
                v[i + 4] = NN__HALVES(a, e, 0xDD);
                v[i + 8] = NN__HALVES(b, f, 0x88);
                v[i + 12] = NN__HALVES(b, f, 0xDD);
            }
            for (i = 0; i < 16 && i < wide; i++) {
                V_AHEAD(y + (c + i) * ys + r, 16);
                NN__K(put)(y + (c + i) * ys + r, left, v[i]);
            }
        }
    }
    return;
#endif
#if TENSOR_NN__PASS > 0
    for (; r + 4 <= rows; r += 4, x += 4 * xs, y += 4) {
        for (c = 0; c + 4 <= columns; c += 4) {
#if TENSOR_NN__PASS >= 4
            V_F v[4];
            for (i = 0; i < 4; i++) { v[i] = V_LOAD(x + i * xs + c); }
            TENSOR__QUADS(v);
            for (i = 0; i < 4; i++) { V_STORE(y + (c + i) * ys, v[i]); }
#else
            __m128 v0 = _mm_loadu_ps(x + c), v1 = _mm_loadu_ps(x + xs + c);
            __m128 v2 = _mm_loadu_ps(x + 2 * xs + c), v3 = _mm_loadu_ps(x + 3 * xs + c);
            _MM_TRANSPOSE4_PS(v0, v1, v2, v3);
            _mm_storeu_ps(y + c * ys, v0);
            _mm_storeu_ps(y + (c + 1) * ys, v1);
            _mm_storeu_ps(y + (c + 2) * ys, v2);
            _mm_storeu_ps(y + (c + 3) * ys, v3);
#endif
        }
        for (; c < columns; c++) {
            for (i = 0; i < 4; i++) { y[c * ys + i] = x[i * xs + c]; }
        }
    }
#endif
    for (; r < rows; r++, x += xs, y++) {
        for (c = 0; c < columns; c++) { y[c * ys] = x[c]; }
    }
    (void)i;
}

// A product with gathered columns, outputs in vectors: c[i cs + j] += sum over s < n of a[off[s] + i as]
// b[s][j], 0 <= i < rows <= GR, j over one vector or two; b is [n][2 V_N]. With start, c becomes start[j] +
// the sum.
#undef NN__GR
#undef NN__GATHER_ROWS
#undef NN__GATHER_HEIGHTS
#if TENSOR_NN__PASS == 3 || TENSOR_NN__PASS == 4
#define NN__GR 14           // 28 sums + 2 + 1 of 32 registers; images are often 14 2^k wide
#define NN__GATHER_ROWS(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
// 8 to 13 rows are two tiles, one after the other.
#define NN__GATHER_HEIGHTS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(13)
#elif TENSOR_NN__PASS == 2
#define NN__GR 6            // 12 + 2 + 1 of 16
#define NN__GATHER_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#else
#define NN__GR 4            // 8 + 2 + 1, and the products, as there is no FMA
#define NN__GATHER_ROWS(X) X(0) X(1) X(2) X(3)
#endif
#ifndef NN__GATHER_HEIGHTS
#define NN__GATHER_HEIGHTS(X) NN__GATHER_ROWS(X)
#endif
#define NN__GATHER_ZERO(i) V_F x##i = u, y##i = v;
#define NN__GATHER_STEP(i) if (rows > i) { \
        V_F t = V_SET((p + i / 3 * 3 * as)[i % 3 * as]); \
        x##i = V_FMA(t, u, x##i); \
        if (nv > 1) y##i = V_FMA(t, v, y##i); }
#define NN__GATHER_OUT(i) if (rows > i) { \
        V_STORE(c + i * cs, start ? x##i : V_ADD(V_LOAD(c + i * cs), x##i)); \
        if (nv > 1) V_STORE(c + i * cs + V_N, start ? y##i : V_ADD(V_LOAD(c + i * cs + V_N), y##i)); }

TENSOR__INLINE void NN__K(gather_tile)(const int rows, const int nv, int64_t n, const float *a, int64_t as,
                                       const int32_t *off, const float *b, const float *start, float *c,
                                       int64_t cs) {
    V_F u = start ? V_LOAD(start) : V_ZERO(), v = start && nv > 1 ? V_LOAD(start + V_N) : V_ZERO();
    NN__GATHER_ROWS(NN__GATHER_ZERO)
    for (; n > 0; n--, b += 2 * V_N, off++) {
        const float *p = a + *off;
        u = V_LOAD(b);
        if (nv > 1) { v = V_LOAD(b + V_N); }
        NN__GATHER_ROWS(NN__GATHER_STEP)
    }
    NN__GATHER_ROWS(NN__GATHER_OUT)
}

#define NN__GATHER_CASE(i) \
    case 2 * i: NN__K(gather_tile)(i + 1, 1, n, a, as, off, b, start, c, cs); return; \
    case 2 * i + 1: NN__K(gather_tile)(i + 1, 2, n, a, as, off, b, start, c, cs); return;

NN__KERNEL void NN__K(gather)(int rows, int two, int64_t n, const float *a, int64_t as, const int32_t *off,
                              const float *b, const float *start, float *c, int64_t cs) {
    switch (2 * (rows - 1) + two) {
        NN__GATHER_HEIGHTS(NN__GATHER_CASE)
    default: break;
    }
    int above = (rows + 1) / 2;
    NN__K(gather)(above, two, n, a, as, off, b, start, c, cs);
    NN__K(gather)(rows - above, two, n, a + above * as, as, off, b, start, c + above * cs, cs);
}

// Winograd's F(4x4, 3x3) and F(2x2, 5x5) with the points 0, +-5/8, +-3/2 and infinity: the output is OUT
// applied to the products of KERNEL and IMAGE, 36 multiplications instead of 144 or 100. The error is within
// 4 times that of direct sums (tests/conv.c); with the usual points 0, +-1, +-2 it is over 6 times. An
// infinity makes its whole tile NaN. The last of the `from` numbers, or of the `to` numbers, belongs to the
// point infinity.
TENSOR__INLINE void NN__K(winograd_line)(const int form, const int from, const int to, V_F x0, V_F x1, V_F x2,
                                         V_F x3, V_F x4, V_F x5, V_F *y) {
    const float a = 0.625f, b = 1.5f, a2 = a * a, b2 = b * b;
    const float fa = 1 / (2 * a2 * (a2 - b2)), fb = 1 / (2 * b2 * (b2 - a2)), fc = 1 / (a2 * b2);
    const int plain = form == NN__TILE_OUT || form == NN__TILE_GRAD;
    const float ca = plain ? 1 : fa, cb = plain ? 1 : fb;
    V_F p, q, r, u;
    if (form == NN__TILE_OUT || form == NN__TILE_SUMS) {
#define NN__TILE_AT(k, ka, m, kb, n) V_FMA(V_SET(ka), m, \
        to == k + 1 ? V_FMA(V_SET(kb), n, x5) : V_MUL(V_SET(kb), n))
        p = V_ADD(x1, x2), q = V_SUB(x1, x2), r = V_ADD(x3, x4), u = V_SUB(x3, x4);
        y[0] = plain ? V_ADD(V_ADD(p, r), x0) : V_FMA(V_SET(fc), x0, NN__TILE_AT(0, ca, p, cb, r));
        y[1] = NN__TILE_AT(1, a * ca, q, b * cb, u);
        y[2] = NN__TILE_AT(2, a2 * ca, p, b2 * cb, r);
        y[3] = NN__TILE_AT(3, a * a2 * ca, q, b * b2 * cb, u);
        return;
    }
    if (form == NN__TILE_IMAGE) {
        p = V_FMA(V_SET(-b2), x2, x4);
        q = V_MUL(V_SET(a), V_FMA(V_SET(-b2), x1, x3));
        r = V_FMA(V_SET(-a2), x2, x4);
        u = V_MUL(V_SET(b), V_FMA(V_SET(-a2), x1, x3));
        y[0] = V_FMA(V_SET(a2 * b2), x0, V_FMA(V_SET(-a2 - b2), x2, x4));
        y[5] = V_FMA(V_SET(a2 * b2), x1, V_FMA(V_SET(-a2 - b2), x3, x5));
    } else {                          // those of x2 to x4 from `from` on are 0
        p = V_MUL(V_SET(ca), V_FMA(V_SET(a2), from > 4 ? V_FMA(V_SET(a2), x4, x2) : x2, x0));
        q = V_MUL(V_SET(a * ca), V_FMA(V_SET(a2), x3, x1));
        r = V_MUL(V_SET(cb), V_FMA(V_SET(b2), from > 4 ? V_FMA(V_SET(b2), x4, x2) : x2, x0));
        u = V_MUL(V_SET(b * cb), V_FMA(V_SET(b2), x3, x1));
        y[0] = plain ? x0 : V_MUL(V_SET(fc), x0);
        if (from == 3) {
            y[5] = x2;
        } else if (from == 4) {
            y[5] = x3;
        } else {
            y[5] = x4;
        }
    }
    y[1] = V_ADD(p, q), y[2] = V_SUB(p, q), y[3] = V_ADD(r, u), y[4] = V_SUB(r, u);
}

#define NN__TILE_IN(k) k < from ? V_LOAD(x + i * xr + k * xc) : V_ZERO()
#define NN__TILE_LINE(k) k < from ? t[k * to + i] : V_ZERO()
#define NN__TILE_KEEP(k) (void)(k < to ? (t[i * to + k] = d[k], 0) : 0)
#define NN__TILE_PUT(k) (void)(k < to ? (V_STORE(y + k * yr + i * yc, V_ADD(d[k], add)), 0) : 0)
#define NN__SIX(X) X(0), X(1), X(2), X(3), X(4), X(5)

// n tiles of a vector of channels, from `from` x `from` to `to` x `to` numbers; x and y have strides per
// tile, row and column; start (may be NULL) is added.
TENSOR__INLINE void NN__K(winograd_tiles)(const int form, const int from, const int to, int64_t n,
                                          const float *x, int64_t xt, int64_t xr, int64_t xc, float *y,
                                          int64_t yt, int64_t yr, int64_t yc, const float *start) {
    V_F d[6], t[36], add = start ? V_LOAD(start) : V_ZERO();
    int i;
    for (; n > 0; n--, x += xt, y += yt) {
        for (i = 0; i < from; i++) {
            NN__K(winograd_line)(form, from, to, NN__SIX(NN__TILE_IN), d);
            NN__SIX(NN__TILE_KEEP);
        }
        for (i = 0; i < to; i++) {
            NN__K(winograd_line)(form, from, to, NN__SIX(NN__TILE_LINE), d);
            NN__SIX(NN__TILE_PUT);
        }
    }
}

#define NN__TILES(form, five, from, to) \
    case form + five: NN__K(winograd_tiles)(form, from, to, n, x, xt, xr, xc, y, yt, yr, yc, start); return;

NN__KERNEL void NN__K(winograd)(int form, int64_t n, const float *x, int64_t xt, int64_t xr, int64_t xc,
                                float *y, int64_t yt, int64_t yr, int64_t yc, const float *start) {
    switch (form) {
        NN__TILES(NN__TILE_IMAGE, 0, 6, 6)
        NN__TILES(NN__TILE_GRAD, 0, 4, 6)
        NN__TILES(NN__TILE_KERNEL, 0, 3, 6)
        NN__TILES(NN__TILE_OUT, 0, 6, 4)
        NN__TILES(NN__TILE_SUMS, 0, 6, 3)
        NN__TILES(NN__TILE_KERNEL, NN__TILE_5, 5, 6)
        NN__TILES(NN__TILE_OUT, NN__TILE_5, 6, 2)
    default: return;
    }
}
#endif

// ------------------------------------------------------------------------------
// >>nn-kernel-pool                                 MARK: pooling
//
// One plane [D, H, W] per call. Maximum: the first of equal elements in row-major order is taken, and NaN
// wins (as in PyTorch). Rejected: padding the plane first (a copy, and an infinity that could be chosen).
// ------------------------------------------------------------------------------

// The largest element of the window from..to, and its position.
TENSOR__INLINE void NN__K(max_window)(const NN__R *x, const nn__window_t *g, const int64_t *from,
                                      const int64_t *to, NN__R *y, int32_t *place) {
    int64_t at = -1;
    NN__R best = (NN__R)-INFINITY;
    for (int64_t iz = from[0]; iz < to[0]; iz += g->dilation[0]) {
        for (int64_t iy = from[1]; iy < to[1]; iy += g->dilation[1]) {
            for (int64_t ix = from[2]; ix < to[2]; ix += g->dilation[2]) {
                int64_t i = (iz * g->in[1] + iy) * g->in[2] + ix;
                NN__R v = x[i];
                if (v > best || v != v || at < 0) {
                    best = v;
                    at = i;
                }
            }
        }
    }
    *y = best;
    *place = at < 0 ? 0 : (int32_t)at;   // no element inside: a dilation larger than the image
}

#if TENSOR_NN__PASS > 0 && TENSOR_NN__PASS < 6
#undef NN__LONGEST
#define NN__LONGEST 256

// V_N windows of one row, of which the first n are kept; step holds 0, sw, 2 sw, ... They read a segment of
// a row of the image (the windows that are not kept may read any number of the plane), or a copy of it with
// -inf around it if a kept window leaves the row or a segment leaves the plane. two: windows of 2 x 2, side
// by side. room: how many windows there are up to the plane's end; later rows overwrite what is written
// beyond n.
TENSOR__INLINE void NN__K(max_lanes)(const int two, const float *x, const nn__window_t *g, const int64_t *o,
                                     V_I step, int64_t n, int64_t room, float *y, int32_t *place) {
    float copy[NN__LONGEST];
    int64_t sw = two ? 2 : g->stride[2], dw = two ? 1 : g->dilation[2], kw = two ? 2 : g->kernel[2];
    int64_t w = g->in[2], x0 = o[2] * sw - (two ? 0 : g->pad[2]), depth = two ? 1 : g->kernel[0];
    int64_t length = (kw - 1) * dw + sw * V_N, height = two ? 2 : g->kernel[1];
    int64_t left = x0 < 0 ? -x0 : 0, right = w - x0 < length ? w - x0 : length;
    int64_t last = x0 + ((n < V_N ? n : V_N) - 1) * sw, plane = g->in[0] * g->in[1] * w;
    int within = left == 0 && last + (kw - 1) * dw < w, first = 1, clean = 0;
    V_F m = V_SET(-INFINITY);
    V_I best = VI_SET(0);         // 0: no element inside: a dilation larger than the image
    for (int64_t kz = 0; kz < depth; kz++) {
        for (int64_t ky = 0; ky < height; ky++) {
            int64_t iz = two ? o[0] : o[0] * g->stride[0] - g->pad[0] + kz * g->dilation[0];
            int64_t iy = two ? 2 * o[1] + ky : o[1] * g->stride[1] - g->pad[1] + ky * g->dilation[1];
            if (!two && (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1])) { continue; }
            int64_t start = (iz * g->in[1] + iy) * w;
            const float *row = x + start;
            if (within && start + x0 + length <= plane) {
                row += x0;
            } else {
                for (int64_t i = 0; !clean && i < length; i += V_N) { V_STORE(copy + i, V_SET(-INFINITY)); }
                clean = 1;
                if (right > left) {
                    memcpy(copy + left, row + x0 + left, (size_t)(right - left) * sizeof copy[0]);
                }
                row = copy;
            }
            // The first element of the window: it is taken if all are -inf.
            if (first && left == 0 && last < w) {
                best = VI_ADD(step, VI_SET((int32_t)(start + x0)));
            } else if (first) {
                int32_t at[V_N];
                for (int64_t i = 0; i < V_N; i++) {
                    int64_t c = x0 + i * sw;
                    while (c < 0) { c += dw; }
                    at[i] = c < w ? (int32_t)(start + c) : 0;
                }
                best = VI_LOAD(at);
            }
            first = 0;
            for (int64_t kx = 0; kx < kw; kx++) {
                const float *p = row + kx * dw;
                if (two) { V_AHEAD(row + kx * V_N, 512); }
                V_F v;
                if (sw == 1) {
                    v = V_LOAD(p);
                } else if (sw == 2) {
                    v = NN__EVEN(V_LOAD(p), V_LOAD(p + V_N));
                } else {
                    float t[V_N];
                    for (int64_t i = 0; i < V_N; i++) { t[i] = p[i * sw]; }
                    v = V_LOAD(t);
                }
                V_M better = M_OR(V_GT(v, m), V_ISNAN(v));
                m = V_SEL(better, v, m);
                best = VI_SEL(better, VI_ADD(step, VI_SET((int32_t)(start + x0 + kx * dw))), best);
            }
        }
    }
    if (room >= V_N) {
        V_STORE(y, m);
        VI_STORE(place, best);
    } else {
        int32_t at[V_N];
        VI_STORE(at, best);
        NN__K(put)(y, n, m);
        for (int64_t i = 0; i < n && i < V_N; i++) { place[i] = at[i]; }
    }
}
#endif

NN__KERNEL void NN__K(max_pool)(const void *x, void *y, int32_t *place, const nn__window_t *g) {
    const NN__R *p = (const NN__R *)x;
    NN__R *q = (NN__R *)y;
    int64_t o[3], from[3], to[3];
#if TENSOR_NN__PASS > 0 && TENSOR_NN__PASS < 6
    const NN__R *end = q + g->out[0] * g->out[1] * g->out[2];
    int32_t steps[V_N];
    int two = g->mode != NN__ADAPTIVE && g->kernel[0] == 1 && g->stride[0] == 1 && g->pad[0] == 0;
    int lanes = g->mode != NN__ADAPTIVE &&
                (g->kernel[2] - 1) * g->dilation[2] + g->stride[2] * V_N <= NN__LONGEST;
    for (int d = 0; d < V_N; d++) { steps[d] = (int32_t)(d * g->stride[2]); }
    V_I step;
    step = VI_LOAD(steps);
    for (int d = 1; d < 3; d++) {
        two = two && g->kernel[d] == 2 && g->stride[d] == 2 && g->pad[d] == 0 && g->dilation[d] == 1 &&
              2 * g->out[d] <= g->in[d];
    }
#endif
    for (o[0] = 0; o[0] < g->out[0]; o[0]++) {
        for (o[1] = 0; o[1] < g->out[1]; o[1]++, q += g->out[2], place += g->out[2]) {
            o[2] = 0;
#if TENSOR_NN__PASS > 0 && TENSOR_NN__PASS < 6
            for (; lanes && o[2] < g->out[2]; o[2] += V_N) {
#define NN__LANES(two) \
    NN__K(max_lanes)(two, p, g, o, step, g->out[2] - o[2], end - q - o[2], q + o[2], place + o[2])
                if (two) {
                    NN__LANES(1);
                } else {
                    NN__LANES(0);
                }
            }
#endif
            for (; o[2] < g->out[2]; o[2]++) {
                for (int i = 0; i < 3; i++) { (void)nn__window_at(g, i, o[i], &from[i], &to[i]); }
                NN__K(max_window)(p, g, from, to, q + o[2], place + o[2]);
            }
        }
    }
}

// gx[place] += g for one plane.
NN__KERNEL void NN__K(max_unpool)(const void *grad, const int32_t *place, void *gx, int64_t n) {
    const NN__R *q = (const NN__R *)grad;
    NN__R *p = (NN__R *)gx;
    for (int64_t i = 0; i < n; i++) { p[place[i]] = (NN__R)(p[place[i]] + q[i]); }
}

// Sum over a window. Rows are added in double, because the window may be the whole image.
TENSOR__FN TENSOR__NOINLINE double NN__K(window_sum)(const NN__R *p, const nn__window_t *g, int64_t z0,
                                                     int64_t z1, int64_t y0, int64_t y1, int64_t x0,
                                                     int64_t x1) {
    double sum = 0;
    for (int64_t iz = z0; iz < z1; iz++) {
        for (int64_t iy = y0; iy < y1; iy++) {
            sum += NN__K(dot)(p + (iz * g->in[1] + iy) * g->in[2] + x0, NULL, x1 - x0);
        }
    }
    return sum;
}

// back 0: x -> y means; 1: x += y spread over the windows.
NN__KERNEL void NN__K(avg_pool)(void *x, void *y, const nn__window_t *g, int back) {
    NN__R *p = (NN__R *)x, *q = (NN__R *)y;
    int64_t z0, z1, y0, y1, x0, x1;
    for (int64_t oz = 0; oz < g->out[0]; oz++) {
        int64_t nz = nn__window_at(g, 0, oz, &z0, &z1);
        for (int64_t oy = 0; oy < g->out[1]; oy++) {
            int64_t ny = nz * nn__window_at(g, 1, oy, &y0, &y1);
            for (int64_t ox = 0; ox < g->out[2]; ox++, q++) {
                int64_t n = ny * nn__window_at(g, 2, ox, &x0, &x1);
                int64_t by = n > 0 ? n : 1;
                if (g->divisor) { by = g->divisor; }
                NN__S divisor = (NN__S)by, s = 0;
                if (!back && n > 32) {
                    *q = (NN__R)((NN__S)NN__K(window_sum)(p, g, z0, z1, y0, y1, x0, x1) / divisor);
                    continue;
                }
                if (back) { s = (NN__S)*q / divisor; }
                for (int64_t iz = z0; iz < z1; iz++) {
                    for (int64_t iy = y0; iy < y1; iy++) {
                        NN__R *row = p + (iz * g->in[1] + iy) * g->in[2];
                        if (back) {
                            for (int64_t ix = x0; ix < x1; ix++) { row[ix] = (NN__R)(row[ix] + s); }
                        } else {
                            for (int64_t ix = x0; ix < x1; ix++) { s += (NN__S)row[ix]; }
                        }
                    }
                }
                if (!back) { *q = (NN__R)(s / divisor); }
            }
        }
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-norm                                 MARK: norms
//
// Two passes over a row for the statistics, because one pass (E[x^2] - E[x]^2) cancels. Also rejected:
// Welford's running update, which divides at every element and is one chain of dependent steps; a row is in
// cache for the second pass. Sums are added in leaves, so the error does not depend on the width of the ISA.
// ------------------------------------------------------------------------------

// Sum of g (x - mean), and in *total the sum of g; sum of (x - mean)^2 if g is NULL.
NN__KERNEL double NN__K(deviation)(const void *g, const void *x, double mean, double *total, int64_t n) {
    const NN__R *gp = (const NN__R *)g, *p = (const NN__R *)x;
    V_F vm = V_SET(mean);
    double sum = 0, all = 0;
    int64_t k;
    for (int64_t i = 0; i < n; i = k) {
        V_F s = V_ZERO(), t = s, a = s, b = s;
        k = n - i < NN__LEAF ? n : i + NN__LEAF;
        for (; i + 2 * V_N <= k; i += 2 * V_N) {
            V_F u = V_SUB(V_LOAD(p + i), vm), v = V_SUB(V_LOAD(p + i + V_N), vm), gu = u, gv = v;
            if (gp) {
                a = V_ADD(a, gu = V_LOAD(gp + i));
                b = V_ADD(b, gv = V_LOAD(gp + i + V_N));
            } else {
                V_AHEAD(p + i, n);
                V_AHEAD(p + i + V_N, n);
            }
            s = V_FMA(gu, u, s);
            t = V_FMA(gv, v, t);
        }
        s = V_ADD(s, t);
        a = V_ADD(a, b);
        for (; i < k; i += V_N) {
            V_F v = NN__K(cut)(V_SUB(NN__LOAD(p + i, n - i, 0), vm), n - i), gv = v;
            if (gp) { a = V_ADD(a, gv = NN__LOAD(gp + i, n - i, 0)); }
            s = V_FMA(gv, v, s);
        }
        sum += (double)V_HSUM(s);
        if (gp) { all += (double)V_HSUM(a); }
    }
    if (gp) { *total = all; }
    return sum;
}

// rms: the mean counts as 0.
NN__KERNEL void NN__K(layer_norm)(const void *x, const void *w, const void *b, void *y, void *mean,
                                  void *rstd, int64_t rows, int64_t n, double eps, int rms) {
    const NN__R *p = (const NN__R *)x, *wp = (const NN__R *)w, *bp = (const NN__R *)b;
    NN__R *o = (NN__R *)y;
    for (int64_t r = 0; r < rows; r++, p += n, o += n) {
        double m = rms ? 0 : NN__K(dot)(p, NULL, n) / (double)n, d = NN__K(deviation)(NULL, p, m, NULL, n);
        V_F vm = V_SET(m);
        d = 1 / sqrt(d / (double)n + eps);
        V_F vr = V_SET(d);
        ((NN__R *)mean)[r] = (NN__R)m;
        ((NN__R *)rstd)[r] = (NN__R)d;
        for (int64_t i = 0; i < n; i += V_N) {
            V_F v = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
            V_AHEAD(o + i, n);
            if (wp) { v = V_MUL(v, NN__LOAD(wp + i, n - i, 0)); }
            if (bp) { v = V_ADD(v, NN__LOAD(bp + i, n - i, 0)); }
            NN__K(put)(o + i, n - i, v);
        }
    }
}

// gx of these rows; gw += g xhat and gb += g (both may be NULL).
NN__KERNEL void NN__K(layer_norm_back)(const void *grad, const void *x, const void *w, const void *mean,
                                       const void *rstd, void *gx, void *gw, void *gb, int64_t rows,
                                       int64_t n, int rms) {
    const NN__R *gp = (const NN__R *)grad, *p = (const NN__R *)x, *wp = (const NN__R *)w;
    NN__R *o = (NN__R *)gx, *ow = (NN__R *)gw, *ob = (NN__R *)gb;
    int64_t k;
    for (int64_t r = 0; r < rows; r++, p += n, gp += n, o += n) {
        V_F vm = V_SET(((const NN__R *)mean)[r]), vr = V_SET(((const NN__R *)rstd)[r]);
        V_F s, t;
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < n; i = k) {
            s = t = V_ZERO();
            k = n - i < NN__LEAF ? n : i + NN__LEAF;
            for (; i < k; i += V_N) {
                V_F gv = NN__LOAD(gp + i, n - i, 0);
                V_F h = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
                if (ow) {
                    NN__K(put)(ow + i, n - i, V_FMA(gv, h, NN__LOAD(ow + i, n - i, 0)));
                    NN__K(put)(ob + i, n - i, V_ADD(gv, NN__LOAD(ob + i, n - i, 0)));
                }
                if (wp) { gv = V_MUL(gv, NN__LOAD(wp + i, n - i, 0)); }
                s = V_ADD(s, gv);
                t = V_FMA(gv, h, t);
            }
            sum += (double)V_HSUM(s);
            dot += (double)V_HSUM(t);
        }
        s = rms ? V_ZERO() : V_SET(sum / (double)n);
        t = V_SET(dot / (double)n);
        for (int64_t i = 0; i < n; i += V_N) {
            V_F gv = NN__LOAD(gp + i, n - i, 0);
            V_F h = V_MUL(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vr);
            if (wp) { gv = V_MUL(gv, NN__LOAD(wp + i, n - i, 0)); }
            NN__K(put)(o + i, n - i, V_MUL(vr, V_SUB(V_SUB(gv, s), V_MUL(h, t))));
        }
    }
}

// y = a g + b (x - mean) + c; g may be NULL.
NN__KERNEL void NN__K(affine)(const void *g, const void *x, void *y, double a, double mean, double b,
                              double c, int64_t n) {
    const NN__R *gp = (const NN__R *)g, *p = (const NN__R *)x;
    NN__R *o = (NN__R *)y;
    V_F va = V_SET(a), vm = V_SET(mean), vb = V_SET(b), vc = V_SET(c);
    for (int64_t i = 0; i < n; i += V_N) {
        V_F v = V_FMA(V_SUB(NN__LOAD(p + i, n - i, 0), vm), vb, vc);
        if (gp) { v = V_FMA(NN__LOAD(gp + i, n - i, 0), va, v); }
        NN__K(put)(o + i, n - i, v);
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-loss                                 MARK: losses
//
// Gradients of the losses that need more than a pointwise formula, one row at a time. Rejected: composing
// them of softmax, gather and products (three passes over the logits and two temporaries).
// ------------------------------------------------------------------------------

// One row of cross entropy's gradient: gx = a softmax(x) - b w (w NULL = 1), softmax(x) = e^(x - lse).
NN__KERNEL void NN__K(softmax_minus)(const void *x, const void *w, void *gx, double lse, double a, double b,
                                     int64_t n) {
    const NN__R *p = (const NN__R *)x, *wp = (const NN__R *)w;
    NN__R *o = (NN__R *)gx;
    V_F vl = V_SET(lse), va = V_SET(a), vb = V_SET(b);
    for (int64_t i = 0; i < n; i += V_N) {
        V_F v = V_MUL(V_EXP(V_SUB(NN__LOAD(p + i, n - i, 0), vl)), va);
        if (b != 0) { v = V_SUB(v, wp ? V_MUL(vb, NN__LOAD(wp + i, n - i, 0)) : vb); }
        NN__K(put)(o + i, n - i, v);
    }
}

// A pointwise loss is two functions over whole vectors in arrays: its value and its derivatives (dx or dt
// may be NULL). What the losses have in common (loads of the last vector, weights, sums) is here once.
// Rejected: a switch over the formulas in one loop (a program that wants one has all), a loop with loads and
// stores for each (41 KB).
enum { NN__K(loss_block) = 8 };
#define TENSOR__X(ID, f, dx, dt)                                                                             \
    NN__KERNEL void NN__K(value_##ID)(const void *x, const void *t, const void *q, void *y, int64_t n,       \
                                      double p) {                                                            \
        const V_F *vx = (const V_F *)x, *vt = (const V_F *)t, *vq = (const V_F *)q, vp = V_SET(p);           \
        int64_t i;                                                                                           \
        (void)vq, (void)vp;                                                                                  \
        for (i = 0; i < n; i++) { ((V_F *)y)[i] = f(V_, vx[i], vt[i], vp, vq[i]); }                          \
    }                                                                                                        \
    NN__KERNEL void NN__K(slope_##ID)(const void *x, const void *t, const void *q, void *a, void *b,         \
                                      int64_t n, double p) {                                                 \
        const V_F *vx = (const V_F *)x, *vt = (const V_F *)t, *vq = (const V_F *)q, vp = V_SET(p);           \
        int64_t i;                                                                                           \
        (void)vx, (void)vt, (void)vq, (void)vp;                                                              \
        for (i = 0; a && i < n; i++) { ((V_F *)a)[i] = dx(V_, vx[i], vt[i], vp, vq[i]); }                    \
        for (i = 0; b && i < n; i++) { ((V_F *)b)[i] = dt(V_, vx[i], vt[i], vp, vq[i]); }                    \
    }
NN_LOSSES(TENSOR__X)
#undef TENSOR__X

// A loss of n elements: written to y, or summed if y is NULL. w and q (pos_weight) may be NULL = 1.
NN__KERNEL double NN__K(loss)(nn__value_fn *value, const void *x, const void *t, const void *w, const void *q,
                              void *y, int64_t n, double p) {
    const NN__R *xp = (const NN__R *)x, *tp = (const NN__R *)t, *wp = (const NN__R *)w,
                *qp = (const NN__R *)q;
    NN__R *o = (NN__R *)y;
    V_F vx[NN__K(loss_block)], vt[NN__K(loss_block)], vq[NN__K(loss_block)], v[NN__K(loss_block)];
    V_F s = V_ZERO(), one = V_SET(1);
    int64_t k, at;
    for (int64_t i = 0; i < n; i = at) {
        for (k = 0, at = i; k < NN__K(loss_block) && at < n; k++, at += V_N) {
            vx[k] = NN__LOAD(xp + at, n - at, 0.5);
            vt[k] = NN__LOAD(tp + at, n - at, 0.5);
            vq[k] = qp ? NN__LOAD(qp + at, n - at, 0) : one;
        }
        value(vx, vt, vq, v, k, p);
        for (k = 0, at = i; k < NN__K(loss_block) && at < n; k++, at += V_N) {
            if (wp) { v[k] = V_MUL(v[k], NN__LOAD(wp + at, n - at, 0)); }
            if (o) {
                NN__K(put)(o + at, n - at, v[k]);
            } else {
                s = V_ADD(s, NN__K(cut)(v[k], n - at));
            }
        }
    }
    return (double)V_HSUM(s);
}

// Its gradients (gx or gt may be NULL): g[i * step] times c times the derivative.
NN__KERNEL void NN__K(loss_back)(nn__slope_fn *slope, const void *g, int64_t step, double c, const void *x,
                                 const void *t, const void *w, const void *q, void *gx, void *gt, int64_t n,
                                 double p) {
    const NN__R *xp = (const NN__R *)x, *tp = (const NN__R *)t, *wp = (const NN__R *)w,
                *qp = (const NN__R *)q;
    const NN__R *gp = (const NN__R *)g;
    NN__R *ox = (NN__R *)gx, *ot = (NN__R *)gt;
    V_F vx[NN__K(loss_block)], vt[NN__K(loss_block)], vq[NN__K(loss_block)];
    V_F a[NN__K(loss_block)], b[NN__K(loss_block)];
    V_F one = V_SET(1), vc = V_SET(c), all = V_SET((double)gp[0] * c);
    int64_t k, at;
    for (int64_t i = 0; i < n; i = at) {
        for (k = 0, at = i; k < NN__K(loss_block) && at < n; k++, at += V_N) {
            vx[k] = NN__LOAD(xp + at, n - at, 0.5);
            vt[k] = NN__LOAD(tp + at, n - at, 0.5);
            vq[k] = qp ? NN__LOAD(qp + at, n - at, 0) : one;
        }
        slope(vx, vt, vq, ox ? a : NULL, ot ? b : NULL, k, p);
        for (k = 0, at = i; k < NN__K(loss_block) && at < n; k++, at += V_N) {
            V_F by = step ? V_MUL(NN__LOAD(gp + at, n - at, 0), vc) : all;
            if (wp) { by = V_MUL(by, NN__LOAD(wp + at, n - at, 0)); }
            if (ox) { NN__K(put)(ox + at, n - at, V_MUL(by, a[k])); }
            if (ot) { NN__K(put)(ot + at, n - at, V_MUL(by, b[k])); }
        }
    }
}

// ------------------------------------------------------------------------------
// >>nn-kernel-attention                            MARK: attention
//
// One row of scores against n keys, of which the first `valid` may be looked at. The products before and
// after are done by the GEMM. Rejected: a kernel of its own for the products with running maxima (the GEMM
// is faster on CPUs, and a block of scores stays in cache).
// ------------------------------------------------------------------------------

// s = e^(scale s - max), 0 from valid on. -> sum of s; *lse = logsumexp (-inf if no key may be looked at)
NN__KERNEL double NN__K(attend)(void *s, int64_t valid, int64_t n, double scale, double *lse) {
    NN__R *p = (NN__R *)s;
    V_F vs = V_SET(scale), m = V_SET(-INFINITY), sum = V_ZERO();
    for (int64_t i = 0; i < valid; i += V_N) {
        // Lanes past valid repeat an element that counts.
        V_F v = V_MUL(NN__LOAD(p + i, valid - i, p[i]), vs);
        m = V_MAX(m, v);
    }
    double top = (double)V_HMAX(m);
    if (valid <= 0 || top == -INFINITY) {
        NN__K(fill)(p, 0, n);
        *lse = -INFINITY;
        return 0;
    }
    V_F vm = V_SET(-top);
    for (int64_t i = 0; i < valid; i += V_N) {
        V_F v = NN__K(cut)(V_EXP(V_FMA(NN__LOAD(p + i, valid - i, 0), vs, vm)), valid - i);
        sum = V_ADD(sum, v);
        NN__K(put)(p + i, valid - i, v);
    }
    NN__K(fill)(p + valid, 0, n - valid);
    double total = (double)V_HSUM(sum);
    *lse = top + log(total);
    return total;
}

// s = probabilities e^(scale s - lse); d = s (d - delta) scale; both 0 from valid on.
NN__KERNEL void NN__K(attend_back)(void *s, void *d, int64_t valid, int64_t n, double scale, double lse,
                                   double delta) {
    NN__R *p = (NN__R *)s, *q = (NN__R *)d;
    V_F vs = V_SET(scale), vl = V_SET(-lse), vd = V_SET(delta);
    if (lse == -INFINITY) { valid = 0; }
    for (int64_t i = 0; i < valid; i += V_N) {
        V_F v = V_EXP(V_FMA(NN__LOAD(p + i, valid - i, 0), vs, vl));
        V_F e = V_MUL(V_MUL(v, V_SUB(NN__LOAD(q + i, valid - i, 0), vd)), vs);
        NN__K(put)(p + i, valid - i, v);
        NN__K(put)(q + i, valid - i, e);
    }
    NN__K(fill)(p + valid, 0, n - valid);
    NN__K(fill)(q + valid, 0, n - valid);
}

// ------------------------------------------------------------------------------
// >>nn-kernel-recurrent                            MARK: steps of recurrent nets
//
// One item of a step: n hidden features, each with its gates. gi and hg are what x and h add to the gates.
// The two products are GEMMs (the one with x over all steps at once); this is the arithmetic between them,
// in one sweep, with the gates kept for backward. Rejected: a dozen pointwise ops per step (their overhead
// is more than the arithmetic of small nets), gates recomputed in backward.
// ------------------------------------------------------------------------------

#define NN__GATE(p, k) NN__LOAD((const NN__R *)(p) + (k) * n + i, n - i, 0)
#define NN__PUT_GATE(p, k, v) NN__K(put)((NN__R *)(p) + (k) * n + i, n - i, v)

// The next h and c; the gates are in the order given at NN__LSTM_NET.
NN__KERNEL void NN__K(recur)(int kind, const void *gi, const void *hg, const void *h0, const void *c0,
                             void *gates, void *h, void *c, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += V_N) {
        V_F a = V_ADD(NN__GATE(gi, 0), NN__GATE(hg, 0)), b, v;
        if (kind == NN__LSTM_NET) {
            a = V_SIGMOID(a);
            NN__PUT_GATE(gates, 0, a);
            b = V_SIGMOID(V_ADD(NN__GATE(gi, 1), NN__GATE(hg, 1)));
            NN__PUT_GATE(gates, 1, b);
            v = V_TANH(V_ADD(NN__GATE(gi, 2), NN__GATE(hg, 2)));
            NN__PUT_GATE(gates, 2, v);
            v = V_ADD(V_MUL(b, NN__GATE(c0, 0)), V_MUL(a, v));
            NN__PUT_GATE(c, 0, v);
            b = V_SIGMOID(V_ADD(NN__GATE(gi, 3), NN__GATE(hg, 3)));
            NN__PUT_GATE(gates, 3, b);
            a = V_MUL(b, V_TANH(v));
        } else if (kind == NN__GRU_NET) {
            a = V_SIGMOID(a);
            NN__PUT_GATE(gates, 0, a);
            b = V_SIGMOID(V_ADD(NN__GATE(gi, 1), NN__GATE(hg, 1)));
            NN__PUT_GATE(gates, 1, b);
            v = NN__GATE(hg, 2);
            NN__PUT_GATE(gates, 3, v);
            v = V_TANH(V_ADD(NN__GATE(gi, 2), V_MUL(a, v)));
            NN__PUT_GATE(gates, 2, v);
            a = V_ADD(v, V_MUL(b, V_SUB(NN__GATE(h0, 0), v)));
        } else {
            a = kind == NN__TANH_NET ? V_TANH(a) : V_MAX(a, V_ZERO());
        }
        NN__PUT_GATE(h, 0, a);
    }
}

// dgi and dhg (NULL = equal to dgi) from dh and dc, which become those of h0 and c0, except for the part
// through hg.
NN__KERNEL void NN__K(recur_back)(int kind, void *dh, void *dc, const void *gates, const void *h,
                                  const void *h0, const void *c0, const void *c, void *dgi, void *dhg,
                                  int64_t n) {
    const V_F one = V_SET(1);
    int64_t i;
    for (i = 0; i < n; i += V_N) {
        V_F g = NN__GATE(dh, 0), next = V_ZERO(), a, b, v, t;
        if (kind == NN__LSTM_NET) {
            t = V_TANH(NN__GATE(c, 0));
            a = NN__GATE(gates, 3);
            NN__PUT_GATE(dgi, 3, V_MUL(V_MUL(g, t), V_MUL(a, V_SUB(one, a))));
            g = V_ADD(NN__GATE(dc, 0), V_MUL(V_MUL(g, a), V_SUB(one, V_MUL(t, t))));
            a = NN__GATE(gates, 0);
            b = NN__GATE(gates, 1);
            v = NN__GATE(gates, 2);
            NN__PUT_GATE(dgi, 0, V_MUL(V_MUL(g, v), V_MUL(a, V_SUB(one, a))));
            NN__PUT_GATE(dgi, 1, V_MUL(V_MUL(g, NN__GATE(c0, 0)), V_MUL(b, V_SUB(one, b))));
            NN__PUT_GATE(dgi, 2, V_MUL(V_MUL(g, a), V_SUB(one, V_MUL(v, v))));
            NN__PUT_GATE(dc, 0, V_MUL(g, b));
        } else if (kind == NN__GRU_NET) {
            a = NN__GATE(gates, 0);
            b = NN__GATE(gates, 1);
            v = NN__GATE(gates, 2);
            next = V_MUL(g, b);
            t = V_MUL(V_MUL(g, V_SUB(NN__GATE(h0, 0), v)), V_MUL(b, V_SUB(one, b)));
            NN__PUT_GATE(dgi, 1, t);
            NN__PUT_GATE(dhg, 1, t);
            g = V_MUL(V_MUL(g, V_SUB(one, b)), V_SUB(one, V_MUL(v, v)));
            NN__PUT_GATE(dgi, 2, g);
            NN__PUT_GATE(dhg, 2, V_MUL(g, a));
            t = V_MUL(V_MUL(g, NN__GATE(gates, 3)), V_MUL(a, V_SUB(one, a)));
            NN__PUT_GATE(dgi, 0, t);
            NN__PUT_GATE(dhg, 0, t);
        } else {
            a = NN__GATE(h, 0);
            b = kind == NN__TANH_NET ? V_MUL(g, V_SUB(one, V_MUL(a, a)))
                                     : V_SEL(V_GT(a, V_ZERO()), g, V_ZERO());
            NN__PUT_GATE(dgi, 0, b);
        }
        NN__PUT_GATE(dh, 0, next);
    }
}
#undef NN__GATE
#undef NN__PUT_GATE

// ------------------------------------------------------------------------------
// >>nn-kernel-dropout                              MARK: dropout
//
// The mask is a function of the element's index and the generator, so backward computes it again. Rejected:
// a mask that is saved (memory as large as the activation).
// ------------------------------------------------------------------------------

// y = x scale if the 24-bit uniform number of element first + i is below keep (in units of 2^-24), else 0.
NN__KERNEL void NN__K(dropout)(const void *x, void *y, int64_t first, int64_t n, tensor_generator_t rng,
                               uint32_t keep, double scale) {
    const NN__R *p = (const NN__R *)x;
    NN__R *o = (NN__R *)y;
#if TENSOR_NN__PASS < 6
    for (int64_t i = 0; i < n; i += 8 * V_N) {
        V_I w[8];
        TENSOR__K(philox)(rng, (uint64_t)(first + i) >> 2, w);
        V_F m[8];
        for (int64_t k = 0; k < 8; k++) {
            m[k] = V_SEL(VI_GT(VI_SET((int32_t)keep), VI_SHR(w[k], 8)), V_SET((float)scale), V_ZERO());
        }
        TENSOR__QUADS(m);
        TENSOR__QUADS(m + 4);
        for (int64_t k = 0; k < 8 && i + k * V_N < n; k++) {
            int64_t e = i + k * V_N;
            NN__K(put)(o + e, n - e, V_MUL(NN__LOAD(p + e, n - e, 0), m[k]));
        }
    }
#else
    uint32_t word[4];
    for (int64_t i = 0; i < n; i += 4) {
        TENSOR__(philox)(rng.seed, rng.offset, (uint64_t)(first + i) >> 2, word);
        for (int64_t k = 0; k < 4 && i + k < n; k++) {
            o[i + k] = (NN__R)(p[i + k] * ((word[k] >> 8) < keep ? (NN__R)scale : (NN__R)0));
        }
    }
#endif
}

// ------------------------------------------------------------------------------
// >>nn-kernel-optim                                MARK: optimizer kernels
//
// A formula of NN__STEPS over n contiguous elements; s0, s1, s2 are the states in the order of the row, NULL
// if unused. Rejected: FMA (the bits would depend on the ISA), one op after another (five sweeps over
// parameters that do not fit a cache).
// ------------------------------------------------------------------------------

#define NN__T V_F
#define NN__N(x) v_##x
#define NN__U(x) u.x
#define NN__HAS(k) has##k
#define NN__SPLAT(x) const V_F v_##x = V_SET(u.x); (void)v_##x;
#if TENSOR_NN__PASS < 6
// Below 2^-126 a product costs 160 cycles on x86, and the mean of a dead unit stays there. Sums and
// conversions cost nothing more; a result that is rounded from 53 bits has the bits of f32. 7e-18, because
// the gradient is squared.
#define NN__TINY(v, below) M_AND(V_LT(V_ABS(v), V_SET(below)), V_NE(v, V_ZERO()))
#define NN__SLOW_STATE 8e-31f

TENSOR__INLINE V_F NN__K(tiny_div)(V_F a, V_F b) {
    return M_ANY(NN__TINY(a, NN__SLOW_STATE)) ? F_OF_D(D_DIV(D_OF_F(a), D_OF_F(b))) : V_DIV(a, b);
}

TENSOR__INLINE V_F NN__K(tiny_sqrt)(V_F a) {
    return M_ANY(NN__TINY(a, NN__SLOW_STATE)) ? F_OF_D(D_SQRT(D_OF_F(a))) : V_SQRT(a);
}

#define NN__MUL(a, b) (tiny ? F_OF_D(D_MUL(D_OF_F(a), D_OF_F(b))) : V_MUL(a, b))
#define NN__DIV(a, b) (tiny ? NN__K(tiny_div)(a, b) : V_DIV(a, b))
#define NN__SQRT(a) (tiny ? NN__K(tiny_sqrt)(a) : V_SQRT(a))
#define NN__ANY_TINY()                                                                                       \
    M_ANY(M_OR(M_OR(NN__TINY(g, 7e-18f), NN__TINY(s0, NN__SLOW_STATE)),                                      \
               M_OR(NN__TINY(s1, NN__SLOW_STATE), NN__TINY(s2, NN__SLOW_STATE))))
#else
#define NN__MUL(a, b) V_MUL(a, b)
#define NN__DIV(a, b) V_DIV(a, b)
#define NN__SQRT(a) V_SQRT(a)
#define NN__ANY_TINY() 0
#endif
#define NN__STEP_KERNEL(name, states, at, must)                                                              \
    NN__KERNEL void NN__K(step_##name)(const nn__update_t *given, void *px, const void *pg, void *p0,        \
                                       void *p1, void *p2, int64_t n) {                                      \
        const nn__update_t u = *given;                                                                       \
        NN__R *qx = (NN__R *)px, *q0 = (NN__R *)p0, *q1 = (NN__R *)p1, *q2 = (NN__R *)p2;                    \
        const NN__R *qg = (const NN__R *)pg;                                                                 \
        const int has0 = must > 0 || q0, has1 = must > 1 || (states > 1 && q1), has2 = states > 2 && q2;     \
        NN__NUMBERS(NN__SPLAT)                                                                               \
        const V_F sign = V_SET(-1);                                                                          \
        int64_t i;                                                                                           \
        for (i = 0; i < n; i += V_N) {                                                                       \
            int64_t left = n - i;                                                                            \
            V_F x = NN__LOAD(qx + i, left, 0), g = NN__LOAD(qg + i, left, 0), s0 = g, s1 = g, s2 = g;        \
            V_AHEAD(qx + i, 256);                                                                            \
            V_AHEAD(qg + i, 256);                                                                            \
            if (has0) { V_AHEAD(q0 + i, 256); s0 = NN__LOAD(q0 + i, left, 0); }                              \
            if (has1) { V_AHEAD(q1 + i, 256); s1 = NN__LOAD(q1 + i, left, 0); }                              \
            if (has2) s2 = NN__LOAD(q2 + i, left, 0);                                                        \
            if (u.maximize) g = V_MUL(g, sign);                                                              \
            if (u.decoupled) x = V_MUL(x, v_shrink);                                                         \
            else if (u.decay) g = V_ADD(g, V_MUL(v_weight_decay, x));                                        \
            if (NN__ANY_TINY()) { enum { tiny = 1 }; NN__STEP_##name }                                       \
            else { enum { tiny = 0 }; NN__STEP_##name }                                                      \
            if (has0) NN__K(put)(q0 + i, left, s0);                                                          \
            if (has1) NN__K(put)(q1 + i, left, s1);                                                          \
            if (has2) NN__K(put)(q2 + i, left, s2);                                                          \
            NN__K(put)(qx + i, left, x);                                                                     \
        }                                                                                                    \
    }
NN__STEPS(NN__STEP_KERNEL)
#undef NN__MUL
#undef NN__DIV
#undef NN__SQRT
#undef NN__ANY_TINY

// x[i] *= f. -> whether one of x was infinite or NaN
NN__KERNEL int NN__K(rescale)(void *px, double f, int64_t n) {
    NN__R *p = (NN__R *)px;
    V_F bad = V_ZERO();
    const V_F by = V_SET(f);
    for (int64_t i = 0; i < n; i += V_N) {
        V_F x = NN__LOAD(p + i, n - i, 0);
        bad = V_ADD(bad, V_SUB(x, x));
        NN__K(put)(p + i, n - i, V_MUL(x, by));
    }
    return !(V_HSUM(bad) == 0);
}

// Sum of squares in double, in 8 lanes for every instruction set: for the norms of clipping.
NN__KERNEL double NN__K(squares)(const void *px, int64_t n) {
    const NN__R *x = (const NN__R *)px;
    double lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        for (int64_t k = 0; k < 8; k++) {
            double v = (double)x[i + k], q = v * v;
            lane[k] += q;
        }
    }
    for (int64_t k = 0; i < n; i++, k++) {
        double v = (double)x[i], q = v * v;
        lane[k] += q;
    }
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// ------------------------------------------------------------------------------
// >>nn-kernel-table                                MARK: table of a pass
//
// The sizes of a pass (its kernels are reached by NN__DO), and the end of its text.
// ------------------------------------------------------------------------------

#if TENSOR_NN__PASS < 6
TENSOR__TABLE nn__cpu_t NN__K(cpu) = {2 + TENSOR__PLACE_OF(TENSOR_NN__PASS), NN__MR, NN__KT, V_N, NN__GR};
#else
static const nn__cpu_t NN__K(cpu) = {TENSOR_NN__PASS - 6, 0, 0, 0, 0};
#endif

#undef NN__LOAD
#undef V_NLS
#undef NN__R
#undef NN__S
#undef NN__EVEN
#if TENSOR_NN__PASS > 5 || !defined(TENSOR__MORE_KERNELS)
#define TENSOR__PASS_CLOSE
#include "tensor.h"
#undef TENSOR__PASS_CLOSE
#endif
#undef TENSOR_NN__PASS
#undef NN__K
#undef NN__KERNEL
#endif   // kernels

// ------------------------------------------------------------------------------
// >>nn-impl                                        MARK: implementation
//
// Compiled if TENSOR_NN_IMPLEMENTATION is defined. First the implementation of tensor.h is included, if it is
// wanted here too: its passes end with the kernels above, so that the compiler reads the text of >>simd once
// for both. If it is in another file, or came before this header, the passes are opened here. Then the
// sections below follow.
// ------------------------------------------------------------------------------

#if defined(TENSOR_NN_IMPLEMENTATION) && !defined(TENSOR_NN_IMPLEMENTATION_DONE)
#define TENSOR_NN_IMPLEMENTATION_DONE

// The kernels, which another part may define.
#if TENSOR__PART
#ifdef __cplusplus
extern "C" {
#endif
extern TENSOR__BETWEEN const nn__cpu_t TENSOR__PASSES_OF(nn__cpu) nn__cpu_none;
#define NN__X(name, result, params) TENSOR__DECLARE(nn__##name##_fn, nn__##name)
NN__KERNELS(NN__X)
NN__KERNELS_F32(NN__X)
#undef NN__X
#define NN__X(name, states, at, must) TENSOR__DECLARE(nn__update_fn, nn__step_##name)
NN__STEPS(NN__X)
#undef NN__X
#define NN__X(ID, f, dx, dt)                                                                                 \
    TENSOR__DECLARE(nn__value_fn, nn__value_##ID) TENSOR__DECLARE(nn__slope_fn, nn__slope_##ID)
NN_LOSSES(NN__X)
#undef NN__X
#ifdef __cplusplus
}
#endif
#endif

#if defined(TENSOR_IMPLEMENTATION) && !defined(TENSOR_IMPLEMENTATION_DONE)
#define TENSOR__MORE_KERNELS "tensor_nn.h"
#include "tensor.h"
#endif

// As in tensor.h: calls in this file do not stamp a site; only the user's own calls do.
#undef TENSOR_HERE
#undef TENSOR__IN
#define TENSOR_HERE ((const char *)0)
#define TENSOR__IN(function) ((const char *)0)

// As in tensor.h: only V_FMA fuses a product and a sum.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#elif defined(__clang__)
TENSOR__PRECISE
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

// The passes that are not in the core's: see >>passes of tensor.h. f64 and the plain formulas are compiled
// together with this part of the file.
#ifndef TENSOR__MORE_KERNELS
#ifdef __cplusplus
extern "C" {
#endif
#if TENSOR__COMPILES_PASS(0)
#define TENSOR_NN__PASS 0
#include "tensor_nn.h"
#endif
#if TENSOR__COMPILES_PASS(1)
#define TENSOR_NN__PASS 1
#include "tensor_nn.h"
#endif
#if TENSOR__COMPILES_PASS(2)
#define TENSOR_NN__PASS 2
#include "tensor_nn.h"
#endif
#if TENSOR__COMPILES_PASS(3)
#define TENSOR_NN__PASS 3
#include "tensor_nn.h"
#endif
#if TENSOR__COMPILES_PASS(4)
#define TENSOR_NN__PASS 4
#include "tensor_nn.h"
#endif
#if TENSOR__COMPILES_PASS(5)
#define TENSOR_NN__PASS 5
#include "tensor_nn.h"
#endif
#ifdef __cplusplus
}
#endif
#endif

#if TENSOR__COMPILES_NN
#define TENSOR_NN__PASS 6

TENSOR__COLD

#include "tensor_nn.h"
#if TENSOR__HAS_PASS(7)
#define TENSOR_NN__PASS 7
#include "tensor_nn.h"
#endif

// ------------------------------------------------------------------------------
// >>impl-functional                                MARK: what all functions share
//
// What the functions of this header share: the kernels of the chosen pass, checks of arguments, options and
// their defaults, gradients through a composed form. Each section after this one has, for its ops, the
// kernel driver (divides the work, calls inner loops and the GEMM), the front (checks, shape) and the
// gradient.
//
// An op with a fused gradient also has a form composed of public ops, which the engine differentiates when a
// graph of the gradient is wanted. This is one mechanism for all of them (nn__grad_composed) instead of a
// second, hand-written gradient for each.
// ------------------------------------------------------------------------------

// Raises an error on the calling thread. -> poison; NN__GIVE -> value; NN__ERROR -> the code; NN__NO -> 0
#define NN__FAIL(...) TENSOR__(fail)(nn__self(), __VA_ARGS__)
#define NN__GIVE(value, ...) (NN__FAIL(__VA_ARGS__), value)
#define NN__ERROR(code, ...) NN__GIVE(code, code, __VA_ARGS__)
#define NN__NO(code, ...) NN__GIVE(0, code, __VA_ARGS__)
// What functions that need gradients do in a build without them. -> value
#define NN__UNTRAINED(value, op)                                                                             \
    NN__GIVE(value, TENSOR_ERR_UNSUPPORTED, "%s: this build has no gradients (TENSOR_NO_AUTOGRAD)", op)

TENSOR__END

TENSOR__FN tensor__thread_t *nn__self(void) {
    return TENSOR__(self)();
}

// Rows, as in tensor.h: NN__ROW(ID) is the row of NN_OP_ID. They are defined in >>nn-table, after the
// functions that they name. If a rank is computed, a switch within the family gives the row.
#define TENSOR__X(ID, ...) TENSOR__FN const tensor__row_t *nn__row_##ID(void);
NN_OPS(TENSOR__X)
#undef TENSOR__X
#define NN__ROW(ID) nn__row_##ID()
#define NN__RANKED_ROW(family, ID)                                                                           \
    TENSOR__FN const tensor__row_t *nn__##family##_row(int rank) {                                           \
        switch (rank) {                                                                                      \
        case 1: return nn__row_##ID##1D();                                                                   \
        case 2: return nn__row_##ID##2D();                                                                   \
        default: return nn__row_##ID##3D();                                                                  \
        }                                                                                                    \
    }
NN__RANKED_ROW(conv, CONV)
NN__RANKED_ROW(conv_transpose, CONV_TRANSPOSE)
NN__RANKED_ROW(max_pool, MAX_POOL)
NN__RANKED_ROW(avg_pool, AVG_POOL)
NN__RANKED_ROW(max_unpool, MAX_UNPOOL)
#undef NN__RANKED_ROW

// The kernels of all passes by place: f64, the plain formulas, then those of tensor.h (TENSOR__PASSES_OF).
#if TENSOR__HAS_PASS(7)
#define NN__EACH(f) f##_f64, f##_reference, TENSOR__PASSES_OF(f)
#else
#define NN__EACH(f) f##_f64, NULL, TENSOR__PASSES_OF(f)
#endif
#define NN__DO(cpu, name) nn__do_##name((cpu)->place)
#define NN__ACCESSOR(type, name, ...)                                                                        \
    TENSOR__FN type *nn__do_##name(int place) {                                                              \
        static type *const of[] = {__VA_ARGS__};                                                             \
        return of[place];                                                                                    \
    }
#define NN__X(name, result, params) NN__ACCESSOR(nn__##name##_fn, name, NN__EACH(nn__##name))
NN__KERNELS(NN__X)
#undef NN__X
#define NN__X(name, result, params)                                                                          \
    NN__ACCESSOR(nn__##name##_fn, name, NULL, NULL, TENSOR__PASSES_OF(nn__##name))
NN__KERNELS_F32(NN__X)
#undef NN__X
#define NN__X(name, states, at, must) NN__ACCESSOR(nn__update_fn, step_##name, NN__EACH(nn__step_##name))
NN__STEPS(NN__X)
#undef NN__X

#define NN__X(ID, f, dx, dt)                                                                                 \
    NN__ACCESSOR(nn__value_fn, value_##ID, NN__EACH(nn__value_##ID))                                         \
    NN__ACCESSOR(nn__slope_fn, slope_##ID, NN__EACH(nn__slope_##ID))
NN_LOSSES(NN__X)
#undef NN__X
#undef NN__ACCESSOR

TENSOR__FN const nn__cpu_t *nn__cpu(int dtype) {
    if (dtype == TENSOR_F64) { return &nn__cpu_f64; }
#if TENSOR__HAS_PASS(7)
    if (TENSOR__(reference)()) { return &nn__cpu_reference; }
#endif
    switch (TENSOR__(isa)()) {
#if TENSOR__HAS_PASS(0)
    case 0: return &TENSOR__BUILT(nn__cpu_scalar);
#endif
#if TENSOR__HAS_PASS(1)
    case 1: return &TENSOR__BUILT(nn__cpu_sse2);
#endif
#if TENSOR__HAS_PASS(2)
    case 2: return &TENSOR__BUILT(nn__cpu_avx2);
#endif
#if TENSOR__HAS_PASS(3)
    case 3: return &TENSOR__BUILT(nn__cpu_avx512);
#endif
#if TENSOR__HAS_PASS(4)
    case 1: return &TENSOR__BUILT(nn__cpu_neon);
#endif
#if TENSOR__HAS_PASS(5)
    case 1: return &TENSOR__BUILT(nn__cpu_wasm);
#endif
    default: return &nn__cpu_f64;       // not reached: the core chooses among the passes that are built
    }
}

// A core that was built with other passes, in another file, does not link.
#if !defined(TENSOR_STATIC) && (defined(__GNUC__) || defined(__clang__))
__attribute__((used)) static const char *const nn__core = &TENSOR__OF_BUILD(tensor__build);
#endif

TENSOR__FN int64_t nn__min(int64_t a, int64_t b) { return a < b ? a : b; }
TENSOR__FN int64_t nn__max(int64_t a, int64_t b) { return a > b ? a : b; }
TENSOR__FN int64_t nn__ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
TENSOR__FN size_t nn__es(int dtype) { return dtype == TENSOR_F64 ? 8 : 4; }
TENSOR__FN uint64_t nn__line(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Items per task for n items of `cost` element operations each, if the division does not affect the result:
// a join costs about as much as 32K operations.
TENSOR__FN int64_t nn__per(int64_t n, int64_t cost) {
    int64_t tasks = 4 * (int64_t)TENSOR__(thread_count)();
    if (tasks <= 4 || (double)n * (double)cost < 32768.0) { return nn__max(n, 1); }
    return nn__max(nn__ceil(n, tasks), 1);
}

// Runs the tasks. A single task runs on the calling thread, so that a GEMM in it may use the other threads.
TENSOR__FN void nn__run(int64_t tasks, tensor__task_fn fn, void *arg) {
    if (tasks == 1) {
        fn(arg, 0, 0);
    } else if (tasks > 1) {
        TENSOR__(parallel)(tasks, fn, arg);
    }
}

// c[m, n] (+)= a b for one item; strides in elements.
TENSOR__FN tensor__gemm_t nn__product(int64_t m, int64_t n, int64_t k) {
    tensor__gemm_t g;                   // member by member: a memset costs as much as a tiny product
    g.a = g.b = g.bias = NULL;
    g.c = g.scratch = NULL;
    g.aoff = g.boff = g.coff = NULL;
    g.accumulate = 0;
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

// The i-th index of a contiguous i32/i64 argument.
TENSOR__FN int64_t nn__index(const tensor_arg_t *a, int64_t i) {
    return a->dtype == TENSOR_I32 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
}

TENSOR__FN double nn__value(const void *p, int dtype, int64_t i) {
    return dtype == TENSOR_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

TENSOR__FN void nn__store(void *p, int dtype, int64_t i, double v) {
    if (dtype == TENSOR_F64) {
        ((double *)p)[i] = v;
    } else {
        ((float *)p)[i] = (float)v;
    }
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

// Name of input k in error texts. -> name
TENSOR__FN const char *nn__arg_name(const tensor__row_t *row, int k, char name[16]) {
    const char *a = row->args;
    int n = 0;
    for (; k > 0 && *a; a++) { k -= *a == ' '; }
    while (n < 15 && a[n] && a[n] != ' ') {
        name[n] = a[n];
        n++;
    }
    name[n] = 0;
    return name;
}

TENSOR__FN int nn__is_number(const tensor_t *x) { return x->dtype != TENSOR_BOOL; }

// Whether the inputs of `mask` (bit k = input k; absent inputs are ignored) have one dtype: a float one or,
// if integers are allowed, any but bool. Raises if not.
TENSOR__FN int nn__one_dtype(tensor__op_t *o, unsigned mask, int integers) {
    tensor_t *first = NULL;
    int at = 0;
    char name[16], other[16];
    for (int k = 0; k < o->nin; k++) {
        tensor_t *x = o->in[k];
        if (!(mask >> k & 1u) || !x) { continue; }
        if (!(integers ? nn__is_number(x) : nn__is_float(x))) {
            return NN__NO(TENSOR_ERR_DTYPE, "%s: %s %t is %y, must be a float%s", o->row->name,
                          nn__arg_name(o->row, k, name), x, x, integers ? " or an integer" : "");
        }
        if (!first) {
            first = x;
            at = k;
        }
        if (x->dtype != first->dtype) {
            return NN__NO(TENSOR_ERR_DTYPE, "%s: %s is %y, %s is %y; use tensor_to", o->row->name,
                          nn__arg_name(o->row, k, name), x, nn__arg_name(o->row, at, other), first);
        }
    }
    return 1;
}

TENSOR__FN int nn__floats(tensor__op_t *o, unsigned mask) { return nn__one_dtype(o, mask, 0); }

// Half precision is computed in f32: the operands are widened, the result is narrowed.
TENSOR__FN tensor_t *nn__wide(tensor_t *x) { return x && nn__is_half(x) ? (tensor_to)(x, TENSOR_F32) : x; }

TENSOR__FN tensor_t *nn__narrow(tensor_t *y, const tensor_t *like) {
    return (tensor_to)(y, (tensor_dtype_t)like->dtype);
}

// Converts the inputs of `which` (bits) to their common dtype, as arithmetic does. -> the first of them
TENSOR__FN tensor_t *nn__promote(tensor_t **in, int n, unsigned which) {
    int dtype = nn__is_float(in[0]) ? in[0]->dtype : -1;
    for (int k = 1; k < n; k++) {
        if (!(which >> k & 1u) || !in[k] || in[k]->dtype == dtype || !nn__is_float(in[k])) { continue; }
        if (dtype < 0) {
            dtype = in[k]->dtype;
        } else {
            dtype = dtype == TENSOR_F64 || in[k]->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
        }
    }
    if (dtype < 0) { return in[0]; }
    for (int k = 0; k < n; k++) {
        if ((which >> k & 1u) && in[k]) { in[k] = (tensor_to)(in[k], (tensor_dtype_t)dtype); }
    }
    return in[0];
}

// Whether a positional argument too many was given; raises if so. The macros put TENSOR__NO_SURPLUS (and a
// site) in its position, so that even 0 is noticed; a struct filled by hand has NULL there.
TENSOR__FN int nn__too_many(const char *op, const char *site, const void *surplus) {
    int bad = surplus ? surplus != TENSOR__NO_SURPLUS : site != NULL;
    if (bad) { NN__FAIL(TENSOR_ERR_SHAPE, "%s: too many positional arguments, options are named", op); }
    return bad;
}

TENSOR__FN int nn__same_shape(const tensor_t *a, const tensor_t *b) {
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof(int64_t)) == 0);
}

// The defaults of an args struct are in one list: NN__FILL(args, NN__OR(eps, 1e-5) ...). A member that is 0
// becomes the default and TENSOR_ZERO becomes 0. The list is applied to the args of a call whose macro
// marked them with TENSOR__NO_SURPLUS (args without the mark are taken literally), and to zeros for
// name_defaults().
#define NN__OR(member, value) a->member = a->member == 0 ? (value) : a->member == TENSOR_ZERO ? 0 : a->member;
#define NN__FILL(args, set)                                                                                  \
    TENSOR__FN void nn__fill_##args(args##_args_t *a) {                                                      \
        (void)a;                                                                                             \
        set                                                                                                  \
    }

#define NN__DEFAULTS(name, args)                                                                             \
    TENSOR_API args##_args_t name##_defaults(void) {                                                         \
        args##_args_t a;                                                                                     \
        memset((void *)&a, 0, sizeof a);                                                                     \
        nn__fill_##args(&a);                                                                                 \
        return a;                                                                                            \
    }
#define NN__FILL_DEFAULTS(args, set) NN__FILL(args, set) NN__DEFAULTS(args, args)
// Begins a function of the args `a`, a struct args_args_t: fills them. 0 after raising.
#define NN__TAKE(op, args, a)                                                                                \
    (!nn__too_many(op, (a).site_, (a).options_are_named_) &&                                                 \
     ((a).options_are_named_ ? (nn__fill_##args(&(a)), 1) : 1))
// tensor_op_with(a), whose result is `run`.
#define NN__FRONT(op, args, run)                                                                             \
    TENSOR_API tensor_t *tensor_##op##_with(args##_args_t a) {                                               \
        return tensor__at(a.site_, NN__TAKE(#op, args, a) ? run : TENSOR__(poison));                         \
    }
#define NN__OWN_FRONT(op, set, run) NN__FILL_DEFAULTS(tensor_##op, set) NN__FRONT(op, tensor_##op, run)

// t, which was made on the default device, moved to the device of x.
TENSOR__FN tensor_t *nn__beside(tensor_t *t, const tensor_t *x) {
    return x->state == TENSOR__LIVE ? (tensor_to)(t, TENSOR_CPU + (int)x->device) : t;
}

// A tensor filled with a value, with x's dtype and device.
TENSOR__FN tensor_t *nn__like(const int64_t *dims, int ndim, double value, const tensor_t *x) {
    return nn__beside((tensor_full_n)(dims, ndim, value, (tensor_dtype_t)x->dtype), x);
}

// A tensor that the host fills, whatever the default device is.
TENSOR__FN tensor_t *nn__host_tensor(const int64_t *dims, int ndim, tensor_dtype_t dtype) {
    tensor_device_t device = (tensor_get_default_device)();
    if (device != TENSOR_CPU) { (void)(tensor_set_default_device)(TENSOR_CPU); }
    tensor_t *t = (tensor_empty_n)(dims, ndim, dtype);
    if (device != TENSOR_CPU) { (void)(tensor_set_default_device)(device); }
    return t;
}

// Memory from the cache, until the scope ends; NULL after raising.
TENSOR__FN void *nn__lent(uint64_t n, size_t size) {
    int64_t bytes = (int64_t)(n * size);
    tensor_t *t = nn__host_tensor(&bytes, 1, TENSOR_U8);
    return (tensor_is_poison)(t) ? NULL : t->storage->data;
}

TENSOR__FN tensor_t *nn__contiguous(tensor_t *x) { return x ? (tensor_contiguous)(x) : x; }

// Channels stay innermost if the device accepts them so.
TENSOR__FN tensor_t *nn__image(tensor_t *x) { return TENSOR__(lasts)(x) ? x : nn__contiguous(x); }

// x with these dims. A view only if they differ: a gradient that is a view cannot become a leaf's own.
TENSOR__FN tensor_t *nn__shaped(tensor_t *x, const int64_t *dims, int ndim) {
    int same = x->ndim == ndim;
    for (int d = 0; same && d < ndim; d++) { same = x->dims[d] == dims[d]; }
    return same ? x : (tensor_reshape_n)(x, dims, ndim);
}

// x as [d0, d1, d2, d3], of which the first n are used.
TENSOR__FN tensor_t *nn__as(tensor_t *x, int n, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    const int64_t dims[4] = {d0, d1, d2, d3};
    return (tensor_reshape_n)(x, dims, n);
}

// Saved input k inside a gradient, NULL if the op was called without it.
TENSOR__FN tensor_t *nn__saved(tensor__grad_t *g, int k) {
    const tensor__node_t *n = g->node;
    for (int i = 0; i < n->nsaved; i++) {
        if (n->saved[i].source == k && !n->saved[i].storage && !n->saved[i].is_immediate) { return NULL; }
    }
    return TENSOR__(grad_in)(g, k);
}

// The next result of o; without elements where nobody reads it.
TENSOR__FN void nn__result_if(int read, tensor__op_t *o, int dtype, const int64_t *dims, int ndim) {
    const int64_t none = 0;
    if (read) {
        TENSOR__(result)(o, dtype, dims, ndim);
    } else {
        TENSOR__(result)(o, dtype, &none, 1);
    }
}

// ---- gradients through a composed form

typedef tensor_t *(*nn__composed_fn)(tensor_t *const *in, const tensor_params_t *p);

// Gradients of node's op by differentiating fn(inputs), which is the same function made of public ops. If no
// graph of the gradient is wanted, the forward is a graph of its own.
TENSOR__FN void nn__grad_composed_by(tensor__grad_t *g, nn__composed_fn fn, tensor__autograd_fn *autograd) {
    tensor_t *in[TENSOR__MAX_IN], *wanted[TENSOR__MAX_IN];
    int n = 0, at[TENSOR__MAX_IN];
    for (int k = 0; k < g->node->nin; k++) {
        in[k] = nn__saved(g, k);
        if (!in[k] || !TENSOR__(grad_need)(g, k)) { continue; }
        // A view of its own: a tensor that is given twice must get two gradients.
        in[k] = g->create ? (tensor_view_n)(in[k], in[k]->dims, in[k]->ndim)
                          : (tensor_requires_grad_)((tensor_detach)(in[k]), 1);
        wanted[n] = in[k];
        at[n++] = k;
    }
    if (n == 0) { return; }
    int mode = (tensor_set_grad_enabled)(1);
    tensor_t *y = fn(in, g->p);
    tensor_t *got[TENSOR__MAX_IN];
    autograd(&y, 1, &g->gy[0], wanted, n, got,
             (g->create ? TENSOR_CREATE_GRAPH : 0) | TENSOR_ALLOW_UNUSED);
    (void)(tensor_set_grad_enabled)(mode);
    for (int k = 0; k < n; k++) { g->gx[at[k]] = got[k]; }
}

TENSOR__FN void nn__grad_composed(tensor__grad_t *g, nn__composed_fn fn) {
    nn__grad_composed_by(g, fn, tensor_autograd_grad);
}

// The same if a graph of the gradient is wanted. -> whether it was
TENSOR__FN int nn__grad_created(tensor__grad_t *g, nn__composed_fn fn) {
    if (g->create) { nn__grad_composed_by(g, fn, g->autograd); }
    return g->create != 0;
}

// Fused gradients: the op of row over in, with the params of the forward op and n results, which are the
// gradients of the first n inputs of that op.
TENSOR__FN int nn__grad_begin(tensor__op_t *o, const tensor__grad_t *g, const tensor__row_t *row,
                              tensor_t *const *in, int nin, int n) {
    if (!TENSOR__(begin)(o, row, in, nin)) { return 0; }
    o->p = &o->params;
    o->params = *g->p;
    o->visible = (uint8_t)n;
    return 1;
}

TENSOR__FN void nn__grad_end(tensor__op_t *o, tensor__grad_t *g, int n) {
    tensor_t *r = TENSOR__(finish)(o);
    for (int k = 0; k < n; k++) {
        const tensor__meta_t *m = &g->node->in[k];
        if (!TENSOR__(grad_need)(g, k)) { continue; }
        g->gx[k] = r->state == TENSOR__POISON_STATE ? r : nn__shaped(o->out[k], m->dims, m->ndim);
    }
}

// Gradients of layer_norm, batch_norm and group_norm, whose parameters have n elements.
TENSOR__FN void nn__grad_norm(tensor__grad_t *g, const tensor__row_t *row, nn__composed_fn fn, int64_t n) {
    if (nn__grad_created(g, fn)) { return; }
    tensor_t *in[5];
    in[1] = TENSOR__(grad_in)(g, 0);
    in[0] = TENSOR__(lasts)(in[1]) ? (tensor_channels_last)(g->gy[0]) : nn__contiguous(g->gy[0]);
    in[2] = TENSOR__(grad_out)(g, 1);
    in[3] = TENSOR__(grad_out)(g, 2);
    in[4] = nn__saved(g, 1);
    tensor__op_t o;
    if (!nn__grad_begin(&o, g, row, in, 5, 3)) { return; }
    if (!TENSOR__(grad_need)(g, 1) && !TENSOR__(grad_need)(g, 2)) { n = 0; }
    TENSOR__(follow)(TENSOR__(result)(&o, in[0]->dtype, in[0]->dims, in[0]->ndim), in[0]);
    TENSOR__(result)(&o, in[2]->dtype, &n, 1);
    TENSOR__(result)(&o, in[2]->dtype, &n, 1);
    nn__grad_end(&o, g, 3);
}

TENSOR__COLD

// Begins an op whose row is not in a table. names: the names of the inputs.
TENSOR__FN int nn__row_begin(tensor__op_t *o, tensor__row_t *row, const char *op, const char *names,
                             int required, tensor_t *const *in, int nin) {
    memset((void *)row, 0, sizeof *row);
    row->name = op;
    row->args = names;
    row->nin = (int8_t)nin;
    row->required = (int8_t)required;
    return TENSOR__(begin)(o, row, in, nin);
}

// Whether its inputs are usable, and those of `floats` (bits) are floats of one dtype; raises if not.
TENSOR__FN int nn__inputs(const char *op, const char *names, int required, tensor_t *const *in, int nin,
                          unsigned floats) {
    tensor__op_t o;
    tensor__row_t row;
    return nn__row_begin(&o, &row, op, names, required, in, nin) && nn__floats(&o, floats);
}

// Whether the first n tensors (names in args) are usable floats; raises if not.
TENSOR__FN int nn__ready(const char *name, const char *args, tensor_t *const *in, int n) {
    for (int k = 0; k < n; k++) {
        if (!nn__inputs(name, args, n, in, n, 1u << k)) { return 0; }
    }
    return 1;
}

// tensor_op_with(a), whose result is `run`; its temporaries are freed with the scope.
#define NN__SCOPED(op, args, run)                                                                            \
    TENSOR_API tensor_t *tensor_##op##_with(args##_args_t a) {                                               \
        tensor_scope_t scope;                                                                                \
        if (!NN__TAKE(#op, args, a)) return tensor__at(a.site_, TENSOR__(poison));                           \
        scope = TENSOR__(scope)(-1);                                                                         \
        return tensor__at(a.site_, scope.thread ? (tensor_scope_return)(scope, run) : TENSOR__(poison));     \
    }

#define NN__OPTIONS(op, set, run) NN__FILL_DEFAULTS(tensor_##op, set) NN__SCOPED(op, tensor_##op, run)

#define NN__AUTOCAST(to, call, ...) TENSOR__AUTOCAST(TENSOR__(casting)(), to, call, __VA_ARGS__)

// ------------------------------------------------------------------------------
// >>impl-linear                                    MARK: linear
//
// y = x W^T + b, one GEMM over all leading dims. With an activation, that op's own kernel then runs in place
// on y, so the bits are those of the two ops. A weight with one dim is the only row of a matrix.
// tensor_bilinear is made of other ops. Rejected: an epilogue in the GEMM per activation (a set of tiles for
// each).
// ------------------------------------------------------------------------------

// What only rows with an activation have (row->own).
typedef struct nn__then_t {
    const tensor__row_t *(*row)(void);
    tensor_t *(*apply)(tensor_t *x);
} nn__then_t;

TENSOR__END

TENSOR__FN const tensor__row_t *nn__row_of_relu(void) { return TENSOR__(row_RELU)(); }
TENSOR__FN const tensor__row_t *nn__row_of_gelu_tanh(void) { return TENSOR__(row_GELU_TANH)(); }

static const nn__then_t nn__then_relu = {nn__row_of_relu, tensor_relu};
static const nn__then_t nn__then_gelu_tanh = {nn__row_of_gelu_tanh, tensor_gelu_tanh};

TENSOR__FN const nn__then_t *nn__then(const tensor__row_t *row) { return (const nn__then_t *)row->own; }

// The op that is applied to the product, NULL = none.
TENSOR__FN const tensor__row_t *nn__activation(const tensor__row_t *row) {
    return row->own ? nn__then(row)->row() : NULL;
}

TENSOR__FN void nn__linear_product(const tensor_call_t *c, tensor__gemm_t *g) {
    const tensor_arg_t *x = &c->arg[0], *w = &c->arg[1];
    int64_t m = 1;
    for (int d = 0; d + 1 < x->ndim; d++) { m *= x->dims[d]; }
    *g = nn__product(m, w->dims[0], w->dims[1]);
    g->a = x->data;
    g->b = w->data;
    g->brs = w->strides[1];
    g->bcs = w->strides[0];
    g->c = c->arg[c->nin + c->nout - 1].data;
    g->bias = c->arg[2].data;
}

TENSOR__FN uint64_t nn__scratch_linear(const tensor_call_t *c) {
    tensor__gemm_t g;
    nn__linear_product(c, &g);
    return TENSOR__(product_scratch)(&g, c->arg[0].dtype);
}

TENSOR__FN int nn__cpu_linear(tensor_call_t *c) {
    tensor__gemm_t g;
    tensor_call_t a = *c;
    const tensor__row_t *then = nn__activation(c->row);
    nn__linear_product(c, &g);
    g.scratch = c->scratch;
    TENSOR__(gemm)(&g, c->arg[0].dtype);
    if (!then) { return TENSOR_OK; }
    tensor_arg_t arg[2];
    arg[0] = c->arg[c->nin + c->nout - 1];
    arg[1] = c->arg[c->nin];
    a.row = then;
    a.arg = arg;
    a.nin = a.nout = 1;
    a.compute = arg[0].dtype;
    return a.row->cpu(&a);
}

TENSOR__FN tensor_t *nn__linear(const tensor__row_t *row, tensor_t *x, tensor_t *weight, tensor_t *bias);

// A weight [in] as the only row of a matrix; the output's dim of size 1 is removed.
TENSOR__FN tensor_t *nn__linear_row(const tensor__row_t *row, tensor_t *x, tensor_t *weight, tensor_t *bias) {
    if (bias && bias->numel != 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: bias %t must have one element beside the 1-d weight %t",
                        row->name, bias, weight);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    if (bias) { bias = (tensor_flatten)(bias, 0, -1); }
    tensor_t *y = nn__linear(row, x, (tensor_unsqueeze)(weight, 0), bias);
    return (tensor_scope_return)(scope, (tensor_squeeze)(y, -1));
}

TENSOR__FN tensor_t *nn__linear(const tensor__row_t *row, tensor_t *x, tensor_t *weight, tensor_t *bias) {
    const int id = row->id;
    tensor_t *const in[3] = {x, weight, bias};
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, row, in, 3)) { return TENSOR__(poison); }
    NN__AUTOCAST(o.row->cast, nn__linear(row, cast_[0], cast_[1], cast_[2]), x, weight, bias)
    if (!nn__floats(&o, 7)) { return TENSOR__(poison); }
    if (weight->ndim == 1) { return nn__linear_row(row, x, weight, bias); }
    if (weight->ndim != 2) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: weight %t must be 2-d [out, in] or 1-d [in]", o.row->name,
                        weight);
    }
    if (x->ndim < 1 || x->dims[x->ndim - 1] != weight->dims[1]) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: the last dim of x %t must be the %d columns of weight %t",
                        o.row->name, x, weight->dims[1], weight);
    }
    if (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0])) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: bias %t must have the %d rows of weight %t", o.row->name,
                        bias, weight->dims[0], weight);
    }
    if (nn__is_half(x) && (!TENSOR__(multiplies)(x) || (id != NN_OP_LINEAR && !x->device))) {
        if (id != NN_OP_LINEAR) { return nn__then(row)->apply((tensor_linear)(x, weight, bias)); }
        return nn__narrow((tensor_linear)(nn__wide(x), nn__wide(weight), nn__wide(bias)), x);
    }
    o.args[0] = nn__contiguous(x);
    o.args[2] = nn__contiguous(bias);
    if ((tensor_is_poison)(o.args[0]) || (bias && (tensor_is_poison)(o.args[2]))) {
        return TENSOR__(poison);
    }
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    dims[x->ndim - 1] = weight->dims[0];
    TENSOR__(result)(&o, x->dtype, dims, x->ndim);
    for (int k = 0; id == NN_OP_LINEAR_GELU_TANH && o.nout == 1 && k < 3 && tensor_grad_enabled(); k++) {
        if (in[k] && (tensor_requires_grad)(in[k])) { TENSOR__(result)(&o, x->dtype, dims, x->ndim); }
    }
    return TENSOR__(finish)(&o);
}

TENSOR_API tensor_t *(tensor_linear)(tensor_t *x, tensor_t *weight, tensor_t *bias) {
    return nn__linear(NN__ROW(LINEAR), x, weight, bias);
}

TENSOR_API tensor_t *(tensor_linear_relu)(tensor_t *x, tensor_t *weight, tensor_t *bias) {
    return nn__linear(NN__ROW(LINEAR_RELU), x, weight, bias);
}

TENSOR_API tensor_t *(tensor_linear_gelu_tanh)(tensor_t *x, tensor_t *weight, tensor_t *bias) {
    return nn__linear(NN__ROW(LINEAR_GELU_TANH), x, weight, bias);
}

// The gradient before the activation. The kernel of that op's gradient computes it, from relu's y or gelu's
// x. If a graph of it is wanted, the op itself is differentiated, relu at its y, where it has the same slope
// as at its x.
TENSOR__FN tensor_t *nn__grad_activation(tensor__grad_t *g) {
    int id = g->node->row->id;
    tensor_t *gy = g->gy[0];
    if (!g->node->row->own || !gy) { return gy; }
    tensor_t *at = TENSOR__(grad_out)(g, id == NN_OP_LINEAR_GELU_TANH);
    if (at->state == TENSOR__POISON_STATE) { return at; }
    tensor_t *y, *got;
    if (g->create) {
        at = (tensor_view_n)(at, at->dims, at->ndim);
        y = nn__then(g->node->row)->apply(at);
        g->autograd(&y, 1, &gy, &at, 1, &got, TENSOR_CREATE_GRAPH);
        return got;
    }
    y = gy->refs == 1 && gy->storage->refs == 1 && (gy->flags & TENSOR__CONTIGUOUS)     // used by nobody else
            ? gy
            : TENSOR__(make)(g->th, g->node->row->name, gy->dtype, gy->dims, gy->ndim, gy->device);
    if (y->state == TENSOR__POISON_STATE) { return y; }
    tensor_arg_t arg[6];
    memset((void *)arg, 0, sizeof arg);
    tensor_call_t c;
    memset((void *)&c, 0, sizeof c);
    for (int k = 0; k < 5; k++) { arg[k].role = TENSOR_READ; }
    TENSOR__(arg)(&arg[id == NN_OP_LINEAR_RELU ? 3 : 0], at, TENSOR_READ);
    TENSOR__(arg)(&arg[4], gy, TENSOR_READ);
    TENSOR__(arg)(&arg[5], y, TENSOR_WRITE);
    c.row = &tensor__point(nn__activation(g->node->row))->back;
    c.arg = arg;
    c.nin = 5;
    c.nout = 1;
    c.thread = g->th;
    c.compute = gy->dtype;
    c.device = gy->device;
    return TENSOR__(launch)(&c) ? TENSOR__(poison) : y;
}

TENSOR__FN void nn__grad_linear(tensor__grad_t *g) {
    tensor_t *flat = nn__grad_activation(g);
    const tensor__meta_t *x = &g->node->in[0], *w = &g->node->in[1];
    if (g->node->nout > 1 && g->gy[1]) { flat = flat ? (tensor_add)(flat, g->gy[1]) : g->gy[1]; }
    int64_t dims[2];
    dims[0] = 1;
    for (int64_t d = 0; d + 1 < x->ndim; d++) { dims[0] *= x->dims[d]; }
    dims[1] = w->dims[0];
    flat = (tensor_reshape_n)(flat, dims, 2);
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = (tensor_reshape_n)((tensor_matmul)(flat, TENSOR__(grad_in)(g, 1)), x->dims, x->ndim);
    }
    dims[1] = w->dims[1];
    if (TENSOR__(grad_need)(g, 1)) {
        g->gx[1] =
            (tensor_matmul)((tensor_mT)(flat), (tensor_reshape_n)(TENSOR__(grad_in)(g, 0), dims, 2));
    }
    if (TENSOR__(grad_need)(g, 2)) { g->gx[2] = (tensor_sum_dim)(flat, 0, 0); }
}

TENSOR__COLD

TENSOR_API tensor_t *(tensor_bilinear)(tensor_t *x1, tensor_t *x2, tensor_t *weight, tensor_t *bias) {
    tensor_t *const in[4] = {x1, x2, weight, bias};
    NN__AUTOCAST(TENSOR__CAST_bilinear, (tensor_bilinear)(cast_[0], cast_[1], cast_[2], cast_[3]), x1, x2,
                 weight, bias)
    if (!nn__inputs("bilinear", "x1 x2 weight bias", 3, in, 4, 15)) {
        return TENSOR__(poison);
    }
    int fits = x1->ndim == x2->ndim && x1->ndim > 0 && weight->ndim == 3;
    for (int d = 0; fits && d < x1->ndim - 1; d++) { fits = x1->dims[d] == x2->dims[d]; }
    if (!fits || x1->dims[x1->ndim - 1] != weight->dims[1] || x2->dims[x2->ndim - 1] != weight->dims[2] ||
        (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0]))) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "bilinear: x1 %t, x2 %t, weight %t must be [..., I], [..., J], [O, I, J], bias [O]",
                        x1, x2, weight);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    int64_t out = weight->dims[0];
    int64_t n1 = weight->dims[1];
    int64_t n2 = weight->dims[2];
    int64_t lead[TENSOR_MAX_DIMS];
    memcpy(lead, x1->dims, (size_t)x1->ndim * sizeof lead[0]);
    lead[x1->ndim - 1] = out;
    tensor_t *w = nn__as((tensor_transpose)(nn__wide(weight), 0, 1), 2, n1, out * n2, 0, 0);
    tensor_t *y = (tensor_matmul)(nn__as(nn__wide(x1), 2, x1->numel / nn__max(n1, 1), n1, 0, 0), w);
    y = nn__as(y, 3, y->dims[0], out, n2, 0);
    y = (tensor_reshape_n)((tensor_matmul)(y, nn__as(nn__wide(x2), 3, y->dims[0], n2, 1, 0)), lead, x1->ndim);
    if (bias) { y = (tensor_add)(y, nn__wide(bias)); }
    return (tensor_scope_return)(scope, nn__narrow(y, x1));
}

// ------------------------------------------------------------------------------
// >>impl-embedding                                 MARK: embeddings
//
// Rows of a table by index. Every index is checked before a row is read. The gradient is divided by rows of
// the table, so the sums for one row are in the order of the indices; a sparse gradient has only those rows.
// embedding_bag is made of gather and segment sums. Rejected: atomic adds.
// ------------------------------------------------------------------------------

typedef struct nn__embedding_t {
    tensor_call_t *c;
    const nn__cpu_t *k;
    int64_t per, rows, width;
} nn__embedding_t;

TENSOR__END

TENSOR__FN void nn__embedding_task(void *arg, int64_t task, int worker) {
    const nn__embedding_t *v = (const nn__embedding_t *)arg;
    const tensor_call_t *c = v->c;
    size_t bytes = (size_t)v->width * nn__es(c->arg[1].dtype);
    int64_t i = task * v->per, end = nn__min(i + v->per, c->arg[0].numel);
    (void)worker;
    for (; i < end; i++) {
        int64_t at = nn__index(&c->arg[0], i);
        char *to = nn__at(&c->arg[2], i * v->width);
        if (c->p->embedding.zero_padding && at == c->p->embedding.padding_idx) {
            memset(to, 0, bytes);
        } else {
            memcpy(to, nn__at(&c->arg[1], at * v->width), bytes);
        }
    }
}

// A task owns rows of the result: it scans all indices and adds those of its rows, in their order. If a row
// has many indices, its sum is moved into a sum in double from time to time, because long chains lose digits.
TENSOR__FN int64_t nn__embedding_block(const tensor_call_t *c) {
    int64_t block = 128 * c->arg[2].dims[0];
    return c->arg[2].dtype == TENSOR_F32 && block > 0 && c->arg[1].numel >= 2 * block ? block : 0;
}

TENSOR__FN uint64_t nn__scratch_embedding_back(const tensor_call_t *c) {
    return nn__embedding_block(c) ? (uint64_t)c->arg[2].numel * sizeof(double) : 0;
}

TENSOR__FN void nn__embedding_back_task(void *arg, int64_t task, int worker) {
    const nn__embedding_t *v = (const nn__embedding_t *)arg;
    const tensor_call_t *c = v->c;
    int64_t first = task * v->per, end = nn__min(first + v->per, v->rows);
    int64_t block = nn__embedding_block(c), own = (end - first) * v->width, n = c->arg[1].numel, left = block;
    double *sum = block ? (double *)c->scratch + first * v->width : NULL;
    (void)worker;
    NN__DO(v->k, fill)(nn__at(&c->arg[2], first * v->width), 0, own);
    for (int64_t k = 0; k < own && block; k++) { sum[k] = 0; }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = nn__index(&c->arg[1], i);
        if (at >= first && at < end && at != c->p->embedding.padding_idx) {
            NN__DO(v->k, add)(nn__at(&c->arg[2], at * v->width), nn__at(&c->arg[0], i * v->width), v->width);
        }
        if (block && (--left == 0 || i + 1 == n)) {
            float *y = (float *)(void *)nn__at(&c->arg[2], first * v->width);
            left = block;
            for (int64_t k = 0; k < own; k++) {
                sum[k] += (double)y[k];
                y[k] = i + 1 == n ? (float)sum[k] : 0;
            }
        }
    }
}

TENSOR__FN int nn__check_index(tensor_call_t *c, const tensor_arg_t *index, int64_t rows) {
    for (int64_t i = 0; i < index->numel; i++) {
        int64_t at = nn__index(index, i);
        if (at >= 0 && at < rows) { continue; }
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                             "%s: index %d at position %d of index %n is not in %s%d (%d rows)",
                             c->row->name, at, i, index->dims, (int)index->ndim, TENSOR__UP_TO(rows), rows);
        return TENSOR_ERR_INDEX;
    }
    return TENSOR_OK;
}

TENSOR__FN int nn__cpu_embedding(tensor_call_t *c) {
    int code = nn__check_index(c, &c->arg[0], c->arg[1].dims[0]);
    if (code != TENSOR_OK) { return code; }
    nn__embedding_t v;
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
    if (c->arg[0].numel + c->arg[2].numel < 32768) { v.per = nn__max(v.rows, 1); }
    nn__run(nn__ceil(v.rows, v.per), nn__embedding_back_task, &v);
    return TENSOR_OK;
}

// padding: a row or -1; zero: results for that index are 0.
TENSOR__FN tensor_t *nn__embedding_lookup(tensor_t *index, tensor_t *weight, int64_t padding, int zero,
                                          int by_frequency, int sparse) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__contiguous(index), nn__contiguous(weight)};
    if (!TENSOR__(begin)(&o, NN__ROW(EMBEDDING), in, 2)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.embedding.padding_idx = padding;
    o.params.embedding.zero_padding = zero;
    o.params.embedding.scale_grad_by_freq = by_frequency;
    o.params.embedding.sparse = sparse;
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, index->dims, (size_t)index->ndim * sizeof dims[0]);
    dims[index->ndim] = weight->dims[1];
    TENSOR__(result)(&o, weight->dtype, dims, index->ndim + 1);
    return TENSOR__(finish)(&o);
}

TENSOR__FN tensor_t *nn__embedding_gradient(tensor_t *gy, tensor_t *index, int64_t padding, int64_t rows,
                                            int64_t width) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__contiguous(gy), nn__contiguous(index)};
    const int64_t dims[2] = {rows, width};
    if (!TENSOR__(begin)(&o, NN__ROW(EMBEDDING_BACKWARD), in, 2)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.embedding.padding_idx = padding;
    o.params.embedding.zero_padding = 1;
    TENSOR__(result)(&o, gy->dtype, dims, 2);
    return TENSOR__(finish)(&o);
}

// A gradient by rows of a table: values [n, width] of the rows that index [n] names. Values of the same row
// are added up at the first or the last of its positions.
TENSOR__FN tensor_t *nn__by_rows(tensor_t *values, tensor_t *index, int64_t rows) {
    int64_t n = index->numel, size = rows + 1;
    tensor_t *at = (tensor_add_scalar)(index, 1);
    tensor_t *place = nn__beside((tensor_arange)(0, (double)n, 1, TENSOR_I64), index);
    tensor_t *one = nn__beside((tensor_empty_n)(&size, 1, TENSOR_I64), index);      // one position per row
    one = (tensor_index_select)((tensor_index_copy_)(one, 0, at, place), 0, at);
    tensor_t *y = nn__embedding_gradient(values, one, -1, n, values->dims[1]);
    one = (tensor_masked_fill)(index, (tensor_ne)(one, place), -1);
    if ((tensor_is_poison)(y) || (tensor_is_poison)(one)) { return TENSOR__(poison); }
    one->flags |= TENSOR__ROWS;
    y->flags |= TENSOR__ROWS;
    y->grad = TENSOR__(hold)(one);
    return y;
}

// The gradient of t as it is stored, by rows, each row once; NULL = none, poison = raised.
TENSOR__FN tensor_t *nn__stored_grad(tensor_t *t) {
    tensor_t *g = t->grad;
    if (!tensor__rows_of(g) || (g->grad->flags & TENSOR__ROWS)) { return g; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *y = TENSOR__(merge_rows)()(g, g->grad, t->dims[0]);
    if (!(tensor_is_poison)(y)) {
        t->grad = TENSOR__(hold)(y);
        TENSOR__(drop)(g);
    }
    (tensor_scope_end)(scope);
    return y;
}

TENSOR__FN void nn__grad_embedding(tensor__grad_t *g) {
    const tensor__embedding_params_t *p = &g->p->embedding;
    const tensor__meta_t *w = &g->node->in[1];
    tensor_t *gy = g->gy[0], *leaf = g->node->edge[1].leaf;
    if (!TENSOR__(grad_need)(g, 1)) { return; }
    tensor_t *index = TENSOR__(grad_in)(g, 0);
    if (p->scale_grad_by_freq) {
        tensor_t *flat = (tensor_flatten)(index, 0, -1),
                 *n = (tensor_zeros_n)(w->dims, 1, (tensor_dtype_t)gy->dtype);
        n = (tensor_index_add)(n, 0, flat, (tensor_ones_n)(&flat->numel, 1, (tensor_dtype_t)gy->dtype));
        n = (tensor_reshape_n)((tensor_index_select)(n, 0, flat), index->dims, index->ndim);
        gy = (tensor_div)(gy, (tensor_unsqueeze)(n, -1));
    }

    // Only a leaf's plain gradient is kept by rows; others have the shape of the tensor they belong to.
    if (p->sparse && leaf && !(leaf->flags & TENSOR__HOOKED) && !g->create && !g->pass && !leaf->device) {
        const int64_t dims[2] = {index->numel, w->dims[1]};
        index = (tensor_to)((tensor_flatten)(index, 0, -1), TENSOR_I64);
        gy = (tensor_reshape_n)(gy, dims, 2);
        if (p->padding_idx >= 0) {
            tensor_t *none = (tensor_eq_scalar)(index, (double)p->padding_idx);
            index = (tensor_masked_fill)(index, none, -1);
            gy = (tensor_masked_fill)(gy, (tensor_unsqueeze)(none, 1), 0);
        }
        TENSOR__(know_rows)(g->th, nn__by_rows);
        g->gx[1] = nn__by_rows(gy, index, w->dims[0]);
        return;
    }
    g->gx[1] = nn__embedding_gradient(gy, index, p->padding_idx, w->dims[0], w->dims[1]);
}

TENSOR__FN void nn__grad_embedding_back(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0)) {
        int64_t padding = g->p->embedding.padding_idx;
        g->gx[0] = nn__embedding_lookup(TENSOR__(grad_in)(g, 1), g->gy[0], padding, 1, 0, 0);
    }
}

// Scales the rows of weight that index names down to max_norm. -> weight
TENSOR__FN tensor_t *nn__renormed(tensor_t *index, tensor_t *weight, double max_norm, double p) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *w = nn__wide(weight), *norm, *flat = (tensor_flatten)(index, 0, -1);
    int64_t rows = w->dims[0];
    if (p == 0 || p == 2) {
        norm = (tensor_norm_dim)(w, 1, 0);
    } else {
        norm = (tensor_pow_scalar)((tensor_sum_dim)((tensor_pow_scalar)((tensor_abs)(w), p), 1, 0), 1 / p);
    }
    tensor_t *used = nn__like(&rows, 1, 0, w);
    used = (tensor_index_add)(used, 0, flat, nn__like(&flat->numel, 1, 1, w));
    used = (tensor_logical_and)((tensor_gt_scalar)(used, 0), (tensor_gt_scalar)(norm, max_norm));
    norm = (tensor_mul_scalar)((tensor_reciprocal)((tensor_add_scalar)(norm, 1e-7)), max_norm);
    norm = (tensor_masked_fill)(norm, (tensor_logical_not)(used), 1);
    w = (tensor_copy_)(weight, (tensor_mul)(w, (tensor_unsqueeze)(norm, 1)));
    return (tensor_scope_return)(scope, w);
}

TENSOR__FN tensor_t *nn__embedding_front(tensor_t *index, tensor_t *w, int64_t row, double max_norm,
                                         double norm_type, int by_frequency, int sparse) {
    tensor_t *const in[2] = {index, w};
    int64_t padding;
    if (row == TENSOR_ZERO) {
        padding = 0;
    } else if (row == 0) {
        padding = -1;
    } else {
        padding = row;
    }
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(EMBEDDING), in, 2) || !nn__floats(&o, 2)) { return TENSOR__(poison); }
    if (w->ndim != 2) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "embedding: weight %t must be 2-d [rows, width]", w);
    }
    if (!nn__is_index(index)) {
        return NN__FAIL(TENSOR_ERR_DTYPE, "embedding: index is %y, must be i32 or i64", index);
    }
    if (index->ndim + 1 > TENSOR_MAX_DIMS) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "embedding: index %t has too many dims", index);
    }
    if (row != 0 && padding < 0) { padding += w->dims[0]; }
    if (row != 0 && (padding < 0 || padding >= w->dims[0])) {
        return NN__FAIL(TENSOR_ERR_INDEX, "embedding: padding_idx %d is outside the %d rows of weight %t",
                        row, w->dims[0], w);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    tensor_t *y = max_norm > 0 ? nn__renormed(index, w, max_norm, norm_type) : w;
    if (!(tensor_is_poison)(y)) {
        y = nn__embedding_lookup(index, nn__wide(w), padding, 0, by_frequency != 0, sparse != 0);
    }
    return (tensor_scope_return)(scope, nn__narrow(y, w));
}

NN__OWN_FRONT(embedding, , nn__embedding_front(a.index, a.weight, a.padding_idx, a.max_norm, a.norm_type,
                                               a.scale_grad_by_freq, a.sparse))

TENSOR__COLD

TENSOR__FN tensor_t *nn__run_embedding_bag(const tensor_embedding_bag_args_t *a) {
    static const char op[] = "embedding_bag";
    tensor_t *in[4] = {a->index, a->weight, a->offsets, a->per_sample_weights};
    tensor_t *index = a->index, *w = a->weight, *keep = NULL;
    int64_t padding = a->padding_idx == TENSOR_ZERO ? 0 : a->padding_idx, longest = 0;
    if (!nn__inputs(op, "index weight offsets per_sample_weights", 2, in, 4, 10)) {
        return TENSOR__(poison);
    }
    if (w->ndim != 2 || index->ndim < 1 || index->ndim > 2 || (index->ndim == 2) != !a->offsets) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "%s: index %t must be [bags, n], or [n] with offsets; weight %t [rows, width]", op,
                        index, w);
    }
    if (!nn__is_index(index) || (a->offsets && !nn__is_index(a->offsets))) {
        return NN__FAIL(TENSOR_ERR_DTYPE, "%s: index and offsets must be i32 or i64 (index is %y)", op,
                        index);
    }
    if (in[3] && (in[3]->ndim != index->ndim || in[3]->numel != index->numel || a->mode != TENSOR_BAG_SUM)) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "%s: per_sample_weights %t must have the shape of index %t, mode be the sum", op,
                        in[3], index);
    }
    if ((int)a->mode < 0 || a->mode > TENSOR_BAG_MAX || (a->offsets && a->offsets->ndim != 1)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: mode %i of index %t, or dims of offsets", op, (int)a->mode,
                        index);
    }
    int64_t n = index->numel;
    int64_t bags = a->offsets ? a->offsets->dims[0] - (a->include_last_offset != 0) : index->dims[0];
    if (bags < 0) { bags = 0; }

    // The bag of each index, and its position in the bag.
    tensor_t *bag = (tensor_zero_)(nn__host_tensor(&n, 1, TENSOR_I64));
    tensor_t *slot = nn__host_tensor(&n, 1, TENSOR_I64);
    if ((tensor_is_poison)(bag) || (tensor_is_poison)(slot)) { return TENSOR__(poison); }
    tensor_arg_t arg;
    memset((void *)&arg, 0, sizeof arg);
    int has_offsets = a->offsets && a->offsets->numel > 0;
    if (has_offsets) {
        tensor_t *c = (tensor_to)(nn__contiguous(a->offsets), TENSOR_CPU);
        if ((tensor_is_poison)(c)) { return c; }
        arg.data = TENSOR__(host)(c, TENSOR_SHAPE_FROM_DATA, op);
        arg.dtype = c->dtype;
    }
    int64_t *bag_of = (int64_t *)TENSOR__(host)(bag, TENSOR_HOST_WRITE, op);
    int64_t *slot_of = (int64_t *)TENSOR__(host)(slot, TENSOR_HOST_WRITE, op);
    if (!bag_of || !slot_of || (has_offsets && !arg.data)) { return TENSOR__(poison); }
    for (int64_t b = 0; b < bags; b++) {
        int64_t first = arg.data ? nn__index(&arg, b) : b * index->dims[1];
        int64_t end;
        if (!arg.data) {
            end = first + index->dims[1];
        } else if (b + 1 < a->offsets->dims[0]) {
            end = nn__index(&arg, b + 1);
        } else {
            end = n;
        }
        if (first < 0 || end < first || end > n || (b == 0 && first != 0) ||
            (b == bags - 1 && end != n)) {
            return NN__FAIL(TENSOR_ERR_INDEX, "%s: offsets %d..%d of bag %d are not in order in 0..%d", op,
                            first, end, b, n);
        }
        for (int64_t i = first; i < end; i++) {
            bag_of[i] = b;
            slot_of[i] = i - first;
        }
        longest = nn__max(longest, end - first);
    }
    index = (tensor_flatten)(index, 0, -1);
    if (a->padding_idx != 0) {
        if (padding < 0) { padding += w->dims[0]; }
        if (padding < 0 || padding >= w->dims[0]) {
            return NN__FAIL(TENSOR_ERR_INDEX, "%s: padding_idx %d is outside the %d rows of weight %t", op,
                            a->padding_idx, w->dims[0], w);
        }
        keep = (tensor_ne_scalar)(index, (double)padding);
    }
    if (a->max_norm > 0 && (tensor_is_poison)(nn__renormed(index, w, a->max_norm, a->norm_type))) {
        return TENSOR__(poison);
    }
    tensor_t *x = nn__embedding_lookup(index, nn__wide(w), -1, 0, a->scale_grad_by_freq != 0, a->sparse != 0);
    if ((tensor_is_poison)(x)) { return x; }
    int64_t dims[3];
    dims[0] = bags;
    dims[1] = w->dims[1];
    tensor_t *list[2], *y;
    if (a->mode == TENSOR_BAG_MAX) {
        // Rows side by side, with -inf (row n) after the end of a bag.
        y = nn__like(dims + 1, 1, -INFINITY, x);
        list[0] =
            keep ? (tensor_masked_fill)(x, (tensor_unsqueeze)((tensor_logical_not)(keep), 1), -INFINITY) : x;
        list[1] = (tensor_unsqueeze)(y, 0);
        x = (tensor_cat_n)(list, 2, 0);
        dims[0] = bags * nn__max(longest, 1);
        y = (tensor_fill_)(nn__host_tensor(dims, 1, TENSOR_I64), (double)n);
        int64_t *to = (int64_t *)TENSOR__(host)(y, TENSOR_HOST_WRITE, op);
        if (!to) { return TENSOR__(poison); }
        for (int64_t i = 0; i < n; i++) { to[bag_of[i] * longest + slot_of[i]] = i; }
        x = (tensor_index_select)(x, 0, nn__beside(y, index));
        dims[0] = bags;
        dims[1] = nn__max(longest, 1);
        dims[2] = w->dims[1];
        x = (tensor_max_dim)((tensor_reshape_n)(x, dims, 3), 1, 0).values;
        return nn__narrow((tensor_masked_fill)(x, (tensor_eq_scalar)((tensor_detach)(x), -INFINITY), 0), w);
    }
    if (in[3]) { x = (tensor_mul)(x, (tensor_unsqueeze)((tensor_flatten)(nn__wide(in[3]), 0, -1), 1)); }
    if (keep) { x = (tensor_masked_fill)(x, (tensor_unsqueeze)((tensor_logical_not)(keep), 1), 0); }
    bag = nn__beside(bag, index);
    y = nn__like(dims, 2, 0, x);
    y = (tensor_index_add)(y, 0, bag, x);
    if (a->mode == TENSOR_BAG_MEAN) {
        x = keep ? (tensor_to)(keep, (tensor_dtype_t)y->dtype) : nn__like(&n, 1, 1, y);
        x = (tensor_index_add)(nn__like(dims, 1, 0, y), 0, bag, x);
        y = (tensor_div)(y, (tensor_unsqueeze)((tensor_maximum_scalar)(x, 1), 1));
    }
    return nn__narrow(y, w);
}

NN__OPTIONS(embedding_bag, , nn__run_embedding_bag(&a))

// ------------------------------------------------------------------------------
// >>impl-norm                                      MARK: norms
//
// Layer and rms norm work on rows; batch, group and instance norm work on x as [items, channels, plane],
// where a statistic covers the planes of one channel or group. Statistics are doubles, saved for the fused
// gradient. Rejected: Welford per element (one division each), f32 sums.
// ------------------------------------------------------------------------------

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
    NN__DO(v->k, layer_norm)(nn__at(&a[0], r * v->n), a[1].data, a[2].data, nn__at(&a[3], r * v->n),
                             nn__at(&a[4], r), nn__at(&a[5], r), nn__min(v->per, v->rows - r), v->n,
                             v->c->p->layer_norm.eps, (int)v->c->p->layer_norm.rms);
}

TENSOR__FN int nn__cpu_layer_norm(tensor_call_t *c) {
    nn__norm_t v;
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.n = c->p->layer_norm.columns;
    v.rows = c->arg[4].numel;
    v.per = nn__per(v.rows, 4 * v.n);
    if (c->arg[0].numel > 0) { nn__run(nn__ceil(v.rows, v.per), nn__layer_norm_task, &v); }
    return TENSOR_OK;
}

// dweight and dbias: chunks of rows (their number depends on shape alone; they are short, since each is one
// chain) go into scratch and are added as a tree.
TENSOR__FN int64_t nn__norm_chunks(int64_t rows, int64_t n) {
    return nn__max(nn__max(1, nn__ceil(rows, 32)), nn__min(nn__min(rows, 16), rows * n / 16384));
}

TENSOR__FN uint64_t nn__scratch_layer_norm_back(const tensor_call_t *c) {
    int64_t n = c->p->layer_norm.columns;
    return (uint64_t)(nn__norm_chunks(c->arg[2].numel, n) * 2 * n) * nn__es(c->arg[0].dtype);
}

TENSOR__FN void nn__layer_norm_back_task(void *arg, int64_t task, int worker) {
    const nn__norm_t *v = (const nn__norm_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t i = task * v->per, last = nn__min(i + v->per, v->chunks);
    char *gw = NULL, *gb = NULL;
    (void)worker;
    for (; i < last; i++) {
        int64_t r = v->rows * i / v->chunks, end = v->rows * (i + 1) / v->chunks;
        if (a[6].numel) {
            gw = (char *)v->c->scratch + i * 2 * v->n * (int64_t)v->es;
            gb = gw + v->n * (int64_t)v->es;
            NN__DO(v->k, fill)(gw, 0, 2 * v->n);
        }
        NN__DO(v->k, layer_norm_back)(nn__at(&a[0], r * v->n), nn__at(&a[1], r * v->n), a[4].data,
                                      nn__at(&a[2], r), nn__at(&a[3], r), nn__at(&a[5], r * v->n), gw, gb,
                                      end - r, v->n, (int)v->c->p->layer_norm.rms);
    }
}

TENSOR__FN int nn__cpu_layer_norm_back(tensor_call_t *c) {
    nn__norm_t v;
    char *part = (char *)c->scratch;
    v.c = c;
    v.k = nn__cpu(c->arg[0].dtype);
    v.es = nn__es(c->arg[0].dtype);
    v.n = c->p->layer_norm.columns;
    v.rows = c->arg[2].numel;
    v.chunks = nn__norm_chunks(v.rows, v.n);
    v.per = nn__per(v.chunks, 32 * v.n);
    int64_t bytes = v.n * (int64_t)v.es;
    if (c->arg[0].numel > 0) {
        nn__run(nn__ceil(v.chunks, v.per), nn__layer_norm_back_task, &v);
    } else if (c->arg[6].numel) {
        NN__DO(v.k, fill)(part, 0, 2 * v.n);
    }
    if (!c->arg[6].numel) { return TENSOR_OK; }
    for (int64_t step = 1; step < v.chunks; step *= 2) {
        for (int64_t i = 0; i + step < v.chunks; i += 2 * step) {
            NN__DO(v.k, add)(part + 2 * i * bytes, part + 2 * (i + step) * bytes, 2 * v.n);
        }
    }
    memcpy(c->arg[6].data, part, (size_t)bytes);
    memcpy(c->arg[7].data, part + bytes, (size_t)bytes);
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__composed_layer_norm(tensor_t *const *in, const tensor_params_t *p) {
    const int64_t n = p->layer_norm.columns;
    tensor_t *x = in[0], *d = nn__as(nn__wide(x), 2, x->numel / nn__max(n, 1), n, 0, 0);
    if (!p->layer_norm.rms) { d = (tensor_sub)(d, (tensor_mean_dim)(d, -1, 1)); }
    tensor_t *y = (tensor_add_scalar)((tensor_mean_dim)((tensor_square)(d), -1, 1), p->layer_norm.eps);
    y = (tensor_mul)(d, (tensor_rsqrt)(y));
    if (in[1]) { y = (tensor_mul)(y, (tensor_reshape_n)(in[1], &n, 1)); }
    if (in[2]) { y = (tensor_add)(y, (tensor_reshape_n)(in[2], &n, 1)); }
    return nn__narrow((tensor_reshape_n)(y, x->dims, x->ndim), x);
}

TENSOR__FN void nn__grad_layer_norm(tensor__grad_t *g) {
    nn__grad_norm(g, NN__ROW(LAYER_NORM_BACKWARD), nn__composed_layer_norm, g->p->layer_norm.columns);
}

NN__FILL_DEFAULTS(tensor_layer_norm, NN__OR(normalized_dims, 1) NN__OR(eps, 1e-5))

// rms: no mean; eps < 0 means the epsilon of the dtype of the computation.
TENSOR__FN tensor_t *nn__layer_norm_front(tensor_t *x, tensor_t *w, tensor_t *b, int64_t nd, double eps,
                                          int rms) {
    const char *op = rms ? "rms_norm" : "layer_norm";
    tensor__row_t shown = *NN__ROW(LAYER_NORM);
    tensor_t *in[3] = {x, w, b};
    int64_t n = 1;
    NN__AUTOCAST(shown.cast, nn__layer_norm_front(cast_[0], cast_[1], cast_[2], nd, eps, rms), x, w, b)
    shown.name = op;
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, &shown, in, 3) || !nn__floats(&o, 7)) { return TENSOR__(poison); }
    if (nd < 1 || nd > x->ndim) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: normalized_dims %d must be in 1..%i, the dims of x %t", op, nd,
                        (int)x->ndim, x);
    }
    int64_t first = x->ndim - nd;
    for (int64_t i = first; i < x->ndim; i++) { n *= x->dims[i]; }
    for (int64_t k = 1; k < 3; k++) {
        int same = !in[k] || in[k]->ndim == nd;
        for (int64_t i = 0; in[k] && same && i < in[k]->ndim; i++) {
            same = in[k]->dims[i] == x->dims[first + i];
        }
        if (!same) {
            return NN__FAIL(TENSOR_ERR_SHAPE, "%s: %s %t must have the last %d dims of x %t", op,
                            k == 1 ? "weight" : "bias", in[k], nd, x);
        }
    }
    if (nn__is_half(x) && !TENSOR__(halves)(x)) {
        return nn__narrow(nn__layer_norm_front(nn__wide(x), nn__wide(w), nn__wide(b), nd, eps, rms), x);
    }
    if (rms && eps < 0) { eps = x->dtype == TENSOR_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-7; }
    for (int64_t k = 0; k < 3; k++) { in[k] = nn__contiguous(k ? nn__wide(in[k]) : x); }
    if (!TENSOR__(begin)(&o, NN__ROW(LAYER_NORM), in, 3)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.layer_norm.columns = n;
    o.params.layer_norm.rms = rms;
    o.params.layer_norm.eps = eps;
    int64_t lead[TENSOR_MAX_DIMS];
    memcpy(lead, x->dims, (size_t)first * sizeof lead[0]);
    TENSOR__(result)(&o, x->dtype, x->dims, x->ndim);
    for (int64_t k = 0; k < 2; k++) {
        TENSOR__(result)(&o, nn__is_half(x) ? (int)TENSOR_F32 : x->dtype, lead, (int)first);
    }
    return TENSOR__(finish)(&o);
}

NN__FRONT(layer_norm, tensor_layer_norm,
          nn__layer_norm_front(a.x, a.weight, a.bias, a.normalized_dims, a.eps, 0))

NN__OPTIONS(rms_norm, NN__OR(normalized_dims, 1) NN__OR(eps, -1),
            nn__layer_norm_front(a.x, a.weight, NULL, a.normalized_dims, a.eps, 1))

// ---- batch, group and instance norm: x as [items, channels, plane]. A statistic covers the planes of one
// channel in all items (batch) or of the channels of a group in one item.

typedef struct nn__plane_norm_t {
    const tensor_call_t *c;
    const nn__cpu_t *k;
    int64_t rows, planes, per;   // statistics, planes of each
    double *part;                // of each plane: sum of g, sum of g xhat
} nn__plane_norm_t;

TENSOR__FN void nn__plane_norm_plan(nn__plane_norm_t *v, const tensor_call_t *c) {
    const tensor__group_norm_params_t *p = &c->p->group_norm;
    v->c = c;
    v->k = nn__cpu(c->arg[0].dtype);
    v->rows = p->groups ? p->groups * p->items : p->channels;
    v->planes = p->groups ? p->channels / p->groups : p->items;
    v->per = nn__per(v->rows, 6 * v->planes * p->plane);
    v->part = (double *)c->scratch;
}

// Number of plane j of statistic r in x; its channel is this number modulo channels.
TENSOR__FN int64_t nn__plane(const tensor__group_norm_params_t *p, int64_t planes, int64_t r, int64_t j) {
    return p->groups ? r * planes + j : j * p->channels + r;
}

TENSOR__FN void nn__plane_norm_task(void *arg, int64_t task, int worker) {
    const nn__plane_norm_t *v = (const nn__plane_norm_t *)arg;
    const tensor__group_norm_params_t *p = &v->c->p->group_norm;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), n = p->plane;
    (void)worker;
    for (; r < end; r++) {
        double mean = 0, var = 0;
        for (int64_t j = 0; j < v->planes; j++) {
            mean += NN__DO(v->k, dot)(nn__at(&a[0], nn__plane(p, v->planes, r, j) * n), NULL, n);
        }
        mean /= (double)(v->planes * n);
        // From the last plane to the first: the last ones are still in L2.
        for (int64_t j = v->planes; j-- > 0;) {
            var += NN__DO(v->k, deviation)(NULL, nn__at(&a[0], nn__plane(p, v->planes, r, j) * n), mean, NULL,
                                           n);
        }
        var /= (double)(v->planes * n);
        double rstd = 1 / sqrt(var + p->eps);
        for (int64_t j = 0; j < v->planes; j++) {
            int64_t at = nn__plane(p, v->planes, r, j), c = at % p->channels;
            NN__DO(v->k, affine)(NULL, nn__at(&a[0], at * n), nn__at(&a[3], at * n), 0, mean,
                                 a[1].data ? rstd * nn__value(a[1].data, a[1].dtype, c) : rstd,
                                 a[2].data ? nn__value(a[2].data, a[2].dtype, c) : 0, n);
        }
        nn__store(a[4].data, a[4].dtype, r, mean);
        nn__store(a[5].data, a[5].dtype, r, rstd);
        nn__store(a[6].data, a[6].dtype, r, var);
    }
}

TENSOR__FN int nn__cpu_plane_norm(tensor_call_t *c) {
    nn__plane_norm_t v;
    nn__plane_norm_plan(&v, c);
    nn__run(nn__ceil(v.rows, v.per), nn__plane_norm_task, &v);
    return TENSOR_OK;
}

// dx = rstd (w g - mean of w g - xhat * mean of w g xhat)
TENSOR__FN void nn__plane_norm_back_task(void *arg, int64_t task, int worker) {
    const nn__plane_norm_t *v = (const nn__plane_norm_t *)arg;
    const tensor__group_norm_params_t *p = &v->c->p->group_norm;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), n = p->plane;
    (void)worker;
    for (; r < end; r++) {
        double mean = nn__value(a[2].data, a[2].dtype, r), rstd = nn__value(a[3].data, a[3].dtype, r), w = 1;
        double s = 0, t = 0, count = (double)(v->planes * n);
        for (int64_t j = 0; j < v->planes; j++) {
            int64_t at = nn__plane(p, v->planes, r, j);
            double *part = v->part + 2 * at;
            part[1] = NN__DO(v->k, deviation)(nn__at(&a[0], at * n), nn__at(&a[1], at * n), mean, part, n) *
                      (n ? rstd : 0);
            if (a[4].data) { w = nn__value(a[4].data, a[4].dtype, at % p->channels); }
            s += w * part[0];
            t += w * part[1];
        }
        for (int64_t j = v->planes; j-- > 0;) {
            int64_t at = nn__plane(p, v->planes, r, j);
            if (a[4].data) { w = nn__value(a[4].data, a[4].dtype, at % p->channels); }
            NN__DO(v->k, affine)(nn__at(&a[0], at * n), nn__at(&a[1], at * n), nn__at(&a[5], at * n),
                                 rstd * w, mean, -rstd * rstd * t / count, -rstd * s / count, n);
        }
    }
}

TENSOR__FN uint64_t nn__scratch_plane_norm_back(const tensor_call_t *c) {
    return (uint64_t)(c->p->group_norm.items * c->p->group_norm.channels) * 2 * sizeof(double);
}

TENSOR__FN int nn__cpu_plane_norm_back(tensor_call_t *c) {
    nn__plane_norm_t v;
    int64_t channels = c->p->group_norm.channels;
    nn__plane_norm_plan(&v, c);
    nn__run(nn__ceil(v.rows, v.per), nn__plane_norm_back_task, &v);
    for (int64_t k = 0; k < channels && c->arg[6].numel; k++) {
        double w = 0, b = 0;
        for (int64_t i = 0; i < c->p->group_norm.items; i++) {
            b += v.part[2 * (i * channels + k)];
            w += v.part[2 * (i * channels + k) + 1];
        }
        nn__store(c->arg[6].data, c->arg[6].dtype, k, w);
        nn__store(c->arg[7].data, c->arg[7].dtype, k, b);
    }
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__composed_plane_norm(tensor_t *const *in, const tensor_params_t *params) {
    const tensor__group_norm_params_t *p = &params->group_norm;
    const int64_t groups = nn__max(p->groups, 1), over[2] = {p->groups ? 1 : 0, 2};
    const int64_t planes[3] = {p->items, p->channels, p->plane};
    tensor_t *x = in[0];
    tensor_t *d = nn__as(nn__wide(x), 3, groups * p->items, p->channels / groups, p->plane, 0);
    d = (tensor_sub)(d, (tensor_mean_dims)(d, over, 2, 1));
    tensor_t *y = (tensor_add_scalar)((tensor_mean_dims)((tensor_square)(d), over, 2, 1), p->eps);
    y = (tensor_reshape_n)((tensor_mul)(d, (tensor_rsqrt)(y)), planes, 3);
    if (in[1]) { y = (tensor_mul)(y, (tensor_unsqueeze)(in[1], 1)); }
    if (in[2]) { y = (tensor_add)(y, (tensor_unsqueeze)(in[2], 1)); }
    return nn__narrow((tensor_reshape_n)(y, x->dims, x->ndim), x);
}

TENSOR__FN void nn__grad_plane_norm(tensor__grad_t *g) {
    nn__grad_norm(g, NN__ROW(GROUP_NORM_BACKWARD), nn__composed_plane_norm, g->p->group_norm.channels);
}

// x [N, C, ...]; groups 0 = batch norm, which may take f16 and bf16 (with f32 w and b) if the device's kernel
// does. stat, if not NULL, receives mean and variance.
TENSOR__FN tensor_t *nn__plane_norm(tensor_t *x, tensor_t *w, tensor_t *b, int64_t groups, double eps,
                                    tensor_t **stat) {
    tensor_t *in[3];

    // A plane of one element: with channels before items, the planes are those of all items together.
    int64_t turned = !groups && x->ndim == 2, channels = x->dims[1];
    if (groups) {
        in[0] = nn__contiguous(x);
    } else {
        in[0] = nn__image(turned ? (tensor_mT)(x) : x);
    }
    in[1] = nn__contiguous(w);
    in[2] = nn__contiguous(b);
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, groups ? NN__ROW(GROUP_NORM) : NN__ROW(BATCH_NORM), in, 3)) {
        return TENSOR__(poison);
    }
    o.p = &o.params;
    tensor__group_norm_params_t *p = &o.params.group_norm;
    p->groups = groups;
    p->items = turned ? 1 : x->dims[0];
    p->channels = channels;
    p->plane = turned ? x->dims[0] : 1;
    for (int64_t k = 2; k < x->ndim; k++) { p->plane *= x->dims[k]; }
    p->eps = eps;
    o.visible = 4;
    int64_t rows = groups ? groups * x->dims[0] : channels;
    TENSOR__(follow)(TENSOR__(result)(&o, x->dtype, in[0]->dims, in[0]->ndim), in[0]);
    for (int64_t k = 0; k < 3; k++) {
        TENSOR__(result)(&o, nn__is_half(x) ? (int)TENSOR_F32 : x->dtype, &rows, 1);
    }
    tensor_t *y = TENSOR__(finish)(&o);
    if (y->state != TENSOR__POISON_STATE && stat) {
        stat[0] = o.out[1];
        stat[1] = o.out[3];
    }
    return turned ? (tensor_mT)(y) : y;
}

// Whether a parameter of a norm (NULL is accepted) is a float [C] of x's dtype or f32; raises if not.
TENSOR__FN int nn__per_channel(const char *op, const char *what, const tensor_t *w, const tensor_t *x) {
    if (w && w->dtype != x->dtype && !(nn__is_half(x) && w->dtype == TENSOR_F32)) {
        return NN__NO(TENSOR_ERR_DTYPE, "%s: %s is %y, x is %y; use tensor_to", op, what, w, x);
    }
    if (w && (w->ndim != 1 || w->dims[0] != x->dims[1])) {
        return NN__NO(TENSOR_ERR_SHAPE, "%s: %s %t must have the %d channels of x %t", op, what, w,
                      x->dims[1], x);
    }
    return 1;
}

// instance: statistics per item. own: use the statistics of x, not the running ones.
TENSOR__FN tensor_t *nn__batch_norm(tensor_t *x, tensor_t *mean, tensor_t *var, tensor_t *w, tensor_t *b,
                                    int instance, int own, double momentum, double eps) {
    static const char *const names[5] = {"x", "running_mean", "running_var", "weight", "bias"};
    const char *op = instance ? "instance_norm" : "batch_norm";
    tensor_t *const in[5] = {x, mean, var, w, b};
    int64_t n = 1;
    NN__AUTOCAST(instance ? (int)TENSOR__APART : (int)NN__ROW(BATCH_NORM)->cast,   // group_norm is FULL
                 nn__batch_norm(cast_[0], mean, var, w, b, instance, own, momentum, eps), x)
    if (!nn__inputs(op, "x running_mean running_var weight bias", 1, in, 5, 1)) {
        return TENSOR__(poison);
    }
    if (x->ndim < 2 + instance) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must be [N, C, ...] with at least %i dims", op, x,
                        2 + instance);
    }
    for (int64_t k = 1; k < 5; k++) {
        if (!nn__per_channel(op, names[k], in[k], x)) { return TENSOR__(poison); }
    }
    if (!mean != !var || (!own && !mean)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t needs running_mean and running_var%s", op, x,
                        own ? ", or neither" : "");
    }
    for (int64_t k = instance ? 2 : 0; k < x->ndim; k++) { n *= k == 1 ? 1 : x->dims[k]; }
    w = nn__wide(w);
    b = nn__wide(b);
    tensor_t *y;
    int64_t dims[TENSOR_MAX_DIMS];
    if (!own) {   // y = x k + (b - mean k)
        y = (tensor_rsqrt)((tensor_add_scalar)(nn__wide(var), eps));
        if (w) { y = (tensor_mul)(y, w); }
        w = (tensor_neg)((tensor_mul)(nn__wide(mean), y));
        if (b) { w = (tensor_add)(w, b); }
        for (int64_t k = 0; k < x->ndim; k++) { dims[k] = k == 1 ? x->dims[1] : 1; }
        y = (tensor_mul)(nn__wide(x), (tensor_reshape_n)(y, dims, x->ndim));
        return nn__narrow((tensor_add)(y, (tensor_reshape_n)(w, dims, x->ndim)), x);
    }
    if (n == 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t has one value per channel, its variance is 0", op, x);
    }
    tensor_t *stat[2];
    stat[0] = NULL;
    y = nn__plane_norm(!instance && x->numel && TENSOR__(halves)(x) ? x : nn__wide(x), w, b,
                       instance ? nn__max(x->dims[1], 1) : 0, eps, stat);
    if (mean && stat[0] && x->numel) {   // without elements there are no statistics
        tensor_scope_t scope = TENSOR__(scope)(0);
        const double share[2] = {momentum, momentum * (double)n / (double)(n - 1)};
        for (int64_t k = 0; k < 2; k++) {
            tensor_t *s = stat[k], *r = in[1 + k];
            if (instance) { s = (tensor_mean_dim)((tensor_reshape_n)(s, x->dims, 2), 0, 0); }
            s = (tensor_mul_scalar)(s, share[k]);
            s = (tensor_add)((tensor_mul_scalar)(nn__wide(r), 1 - momentum), s);
            if ((tensor_is_poison)((tensor_copy_)(r, s))) { y = TENSOR__(poison); }
        }
        (tensor_scope_end)(scope);
    }
    return nn__narrow(y, x);
}

NN__OPTIONS(batch_norm, NN__OR(momentum, 0.1) NN__OR(eps, 1e-5),
            nn__batch_norm(a.x, a.running_mean, a.running_var, a.weight, a.bias, 0, a.training, a.momentum,
                           a.eps))
NN__OPTIONS(instance_norm, NN__OR(momentum, 0.1) NN__OR(eps, 1e-5),
            nn__batch_norm(a.x, a.running_mean, a.running_var, a.weight, a.bias, 1, !a.no_use_input_stats,
                           a.momentum, a.eps))

TENSOR__FN tensor_t *nn__group_norm(tensor_t *x, int64_t groups, tensor_t *w, tensor_t *b, double eps) {
    tensor_t *const in[3] = {x, w, b};
    NN__AUTOCAST(NN__ROW(GROUP_NORM)->cast,
                 nn__group_norm(cast_[0], groups, cast_[1], cast_[2], eps), x, w, b)
    if (!nn__inputs("group_norm", "x weight bias", 1, in, 3, 1)) {
        return TENSOR__(poison);
    }
    if (x->ndim < 2) { return NN__FAIL(TENSOR_ERR_SHAPE, "group_norm: x %t must be [N, C, ...]", x); }
    if (groups < 1 || x->dims[1] % groups != 0) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "group_norm: the channels of x %t must be a multiple of groups %d",
                        x, groups);
    }
    if (!nn__per_channel("group_norm", "weight", w, x) || !nn__per_channel("group_norm", "bias", b, x)) {
        return TENSOR__(poison);
    }
    if (x->numel == groups) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "group_norm: x %t has one value per group, its variance is 0", x);
    }
    return nn__narrow(nn__plane_norm(nn__wide(x), nn__wide(w), nn__wide(b), groups, eps, NULL), x);
}

NN__OPTIONS(group_norm, NN__OR(eps, 1e-5), nn__group_norm(a.x, a.groups, a.weight, a.bias, a.eps))

TENSOR__FN tensor_t *nn__local_response_norm(tensor_t *x, int64_t size, double alpha, double beta,
                                             double k0) {
    NN__AUTOCAST(TENSOR__CAST_local_response_norm,
                 nn__local_response_norm(cast_[0], size, alpha, beta, k0), x)
    tensor_t *const given = x;
    tensor_t *sum = NULL;
    if (!nn__inputs("local_response_norm", "x", 1, &x, 1, 1)) {
        return TENSOR__(poison);
    }
    if (x->ndim < 3 || size < 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "local_response_norm: x %t must be [N, C, d...] and size %d at least 1", x, size);
    }
    x = nn__wide(x);
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    int64_t before = nn__min(size / 2, x->dims[1]);  // more channels than these do not exist
    int64_t after = nn__min((size - 1) / 2, x->dims[1]);
    dims[1] = before;
    tensor_t *list[3];
    list[0] = nn__like(dims, x->ndim, 0, x);
    list[1] = (tensor_square)(x);
    dims[1] = after;
    list[2] = nn__like(dims, x->ndim, 0, x);
    tensor_t *s = (tensor_cat_n)(list, 3, 1);
    for (int64_t k = 0; k <= before + after; k++) {
        tensor_t *part = (tensor_narrow)(s, 1, k, x->dims[1]);
        sum = sum ? (tensor_add)(sum, part) : part;
    }
    s = (tensor_add_scalar)((tensor_mul_scalar)(sum, alpha / (double)size), k0);
    return nn__narrow((tensor_div)(x, (tensor_pow_scalar)(s, beta)), given);
}

NN__OPTIONS(local_response_norm, NN__OR(alpha, 1e-4) NN__OR(beta, 0.75) NN__OR(k, 1),
            nn__local_response_norm(a.x, a.size, a.alpha, a.beta, a.k))

// ------------------------------------------------------------------------------
// >>impl-direct                                    MARK: convolution without columns
//
// Images are padded once and read where they are (kernels in >>nn-kernel-direct). 3x3 and 5x5 with stride 1
// between many channels use Winograd's algorithm: a block of rows of tiles is transformed, multiplied for
// each of the tile's positions, and transformed back. Which way is taken depends on shapes alone. Rejected:
// FFT (for large kernels only), Winograd with 6x6 tiles (two digits fewer).
// ------------------------------------------------------------------------------

typedef struct nn__direct_t {
    const nn__cpu_t *k;
    const float *x, *weight, *bias;   // weight [groups co, ci, kh, kw]; flipped: [groups ci, co, kh, kw]
    float *y;
    int64_t images, groups, ci, co;   // channels of a group, in and out
    int64_t h, w, oh, ow, kh, kw, dh, dw, ph, pw, sh, sw, uh, uw;   // x: uh, uw apart, zeros between
    int64_t n, rows, blocks, lines, pitch;   // n = ci kh kw; lines of the padded block, floats of one
    int64_t mr, tiles;                // outputs of a tile of weights, tiles of a group
    int64_t per, image, cuts;         // images of a block, floats of one; tasks that share its outputs
    int flipped;                      // the input gradient: x is the output's, the kernel reversed
    int sums;                         // the weight gradient
    int gather;                       // 1 = outputs in vectors, 0 = pixels
    float *packed, *start;            // [groups][tiles][n][mr] and [groups][tiles][mr]
    int32_t *off;                     // [n]; of gathered sums [per][rows][ow]
    char *work;
    uint64_t weights, offsets, worker, bytes;   // of the packed weights, off, a worker's block, everything
    // For Winograd: tiles of an image; floats of one of the 36 planes of image, output and kernel tiles
    int64_t tx, ty, side, image_plane, out_plane, kernel_plane, chain;   // outputs side x side
    float *in, *out, *sum;            // in [36][tiles][pitch], out [36][tiles of co][tiles][mr]; gw
    int64_t group, first, count;      // the rows of tiles in work
    int winograd, five, own;          // five: NN__TILE_5 or 0; own: a block of tiles is one task
} nn__direct_t;

enum {
    NN__DIRECT_BYTES = 262144,        // of padded images
    NN__GATHER_BYTES = 131072,        // of gathered outputs
    NN__GATHER_TAPS = 192,            // steps of one chain: their weights stay in L1
    NN__GATHER_PIXELS = 128,
    NN__WINOGRAD_CHAIN = 64,          // steps of a chain (5x5: half): more: over 4 x direct sums' error
    NN__WINOGRAD_BLOCK = 48,          // tiles in work
    NN__WINOGRAD_TILES = 8,           // of a row, transposed at a time
    NN__WINOGRAD_KERNEL = 8192        // floats of a plane of kernels: all planes are 1.2 MB
};

TENSOR__END

// Computes the sizes. 0 = columns are better.
TENSOR__FN int nn__direct_plan(nn__direct_t *v) {
    int64_t lanes = v->k->lanes;
    if (!v->k->lanes || v->ph < 0 || v->pw < 0 || v->kh * v->kw == 1) { return 0; }
    v->n = v->ci * v->kh * v->kw;
    int64_t fill = v->ow * 100 / (nn__ceil(v->ow, lanes) * lanes);
    if (v->co == 1 && v->n > 64) { fill = 0; }  // two long chains of sums
    if (v->sw != 1 || (v->sums && v->ow < 24)) { fill = 0; }
    if (v->co == 1 && v->ci == 1 && v->sw < 3) { fill = 100; }  // columns would be products with a vector

    // Vectors of outputs if they are full and enough steps pay for the transposition; if one vector takes
    // all outputs, pixels are as good.
    v->gather = lanes > 1 && v->co * 4 >= nn__ceil(v->co, lanes) * lanes * 3 && v->n >= 64 &&
                (v->sums || v->ow >= 4) && (v->co > lanes || fill < 60);
    if (!v->gather && fill < 60) { return 0; }  // mostly empty vectors
    v->mr = v->gather ? 2 * lanes : v->k->mr;
    v->tiles = nn__ceil(v->co, v->mr);
    v->pitch = nn__max(v->pw + v->w * v->uw, (v->ow - 1) * v->sw + (v->kw - 1) * v->dw + 1);
    int64_t line = v->ci * v->pitch * 4;
    v->rows = (NN__DIRECT_BYTES / nn__max(line, 1) - (v->kh - 1) * v->dh - 1) / v->sh + 1;
    if (v->gather) { v->rows = nn__min(v->rows, NN__GATHER_BYTES / (v->ow * v->mr * 4)); }
    v->rows = v->sums && !v->gather ? v->oh : nn__min(nn__max(v->rows, 4), v->oh);
    v->blocks = nn__ceil(v->oh, v->rows);
    v->rows = nn__ceil(v->oh, v->blocks);
    v->blocks = nn__ceil(v->oh, v->rows);
    v->lines = (v->rows - 1) * v->sh + (v->kh - 1) * v->dh + 1;
    v->image = v->ci * v->lines * v->pitch;
    if (v->image > 0x7FFFFFF) { return 0; }
    v->per = 1;
    if (v->gather && v->blocks == 1) {
        v->per =
            nn__min(2 * NN__DIRECT_BYTES / (v->image * 4), NN__GATHER_BYTES / (v->rows * v->ow * v->mr * 4));
    } else if (v->sums && !v->gather) {
        v->per = NN__DIRECT_BYTES / (v->image * 4);
    }
    v->per = nn__max(1, nn__min(v->per, nn__ceil(v->images, 8)));
    int64_t pixels = v->per * v->rows * v->ow;
    v->worker = nn__line((uint64_t)(v->per * v->image) * 4 + 256);
    if (v->gather) { v->worker += nn__line((uint64_t)(pixels * v->mr) * 4); }
    if (v->gather && v->sums) { v->worker += nn__line((uint64_t)(v->n * v->mr) * 4); }
    v->weights = v->sums ? 0 : nn__line((uint64_t)(v->groups * v->tiles * v->mr * (v->n + 1)) * 4);
    v->offsets = nn__line((uint64_t)(v->gather && v->sums ? pixels : v->n) * 4);
    v->bytes = v->weights + v->offsets + v->worker * (uint64_t)TENSOR__(thread_count)();
    return 1;
}

// Lines first .. first + lines of the padded planes.
TENSOR__FN void nn__direct_pad(const nn__direct_t *v, const float *x, int64_t first, int64_t lines,
                               float *to) {
    for (int64_t c = 0; c < v->ci; c++, to += lines * v->pitch) {
        NN__DO(v->k, pad)(x + c * v->h * v->w, v->h, v->w, v->uh, v->uw, first - v->ph, lines, v->pw, to,
                          v->pitch);
    }
    memset(to, 0, 64 * 4);              // what the last vectors read past the end
}

TENSOR__FN void nn__direct_offsets(const nn__direct_t *v, int64_t lines, int32_t *off) {
    for (int64_t c = 0; c < v->ci; c++) {
        for (int64_t ky = 0; ky < v->kh; ky++) {
            for (int64_t kx = 0; kx < v->kw; kx++) {
                *off++ = (int32_t)((c * lines + ky * v->dh) * v->pitch + kx * v->dw);
            }
        }
    }
}

TENSOR__FN void nn__direct_task(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t b = task % v->blocks, q = task / v->blocks % v->groups, i = task / v->blocks / v->groups;
    int64_t oy = b * v->rows, plane = v->oh * v->ow;
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker);
    nn__direct_pad(v, v->x + (i * v->groups + q) * v->ci * v->h * v->w, oy * v->sh, v->lines, block);
    NN__DO(v->k, direct)(v->co, v->n, v->packed + q * v->tiles * v->n * v->mr, v->off,
                         v->start + q * v->tiles * v->mr, block, v->sh * v->pitch, v->sw,
                         v->y + (i * v->groups + q) * v->co * plane + oy * v->ow, plane,
                         nn__min(v->rows, v->oh - oy), v->ow);
}

// One task: some images, one group, one block of rows, a part of the outputs. Every chunk of weights is
// applied to all of their pixels.
TENSOR__FN void nn__direct_gather(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t cut = task % v->cuts, last = v->tiles * (cut + 1) / v->cuts;
    int64_t b = (task /= v->cuts) % v->blocks, q = task / v->blocks % v->groups, oy = b * v->rows;
    int64_t first = task / v->blocks / v->groups * v->per, rows = nn__min(v->rows, v->oh - oy);
    int64_t plane = v->oh * v->ow, runs = nn__ceil(v->ow, v->k->gr), parts = nn__ceil(v->n, NN__GATHER_TAPS);
    int64_t images = nn__min(v->per, v->images - first), run = v->ow / runs, more = v->ow % runs;
    int64_t i;
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker);
    float *out = block + nn__line((uint64_t)(v->per * v->image) * 4 + 256) / 4;
    for (i = 0; i < images; i++) {
        nn__direct_pad(v, v->x + ((first + i) * v->groups + q) * v->ci * v->h * v->w, oy * v->sh, v->lines,
                       block + i * v->image);
    }
    int64_t from, to;
    int64_t x, n, u;
    for (int64_t o = v->tiles * cut / v->cuts; o < last; o++) {
        const float *w = v->packed + (q * v->tiles + o) * v->n * v->mr,
                    *start = v->start + (q * v->tiles + o) * v->mr;
        int64_t m = nn__min(v->co - o * v->mr, v->mr);
        for (int64_t k = 0; k < parts; k++) {
            for (from = v->n * k / parts, to = v->n * (k + 1) / parts, i = 0; i < images; i++) {
                for (int64_t r = 0; r < rows; r++) {
                    for (x = 0, u = 0; u < runs; x += n, u++) {
                        n = run + (u < more);
                        NN__DO(v->k, gather)((int)n, m > v->k->lanes, to - from,
                                             block + i * v->image + r * v->sh * v->pitch + x * v->sw, v->sw,
                                             v->off + from, w + from * v->mr, k ? NULL : start,
                                             out + ((i * rows + r) * v->ow + x) * v->mr, v->mr);
                    }
                }
            }
        }
        for (i = 0; i < images; i++) {
            NN__DO(v->k, turn)(rows * v->ow, m, out + i * rows * v->ow * v->mr, v->mr,
                               v->y + (((first + i) * v->groups + q) * v->co + o * v->mr) * plane +
                                   oy * v->ow,
                               plane);
        }
    }
}

// ---- 3x3 and 5x5 with stride 1 between many channels, by Winograd: a block of rows of tiles is transformed,
// multiplied plane by plane (channels in vectors), and transformed back.

TENSOR__FN int nn__winograd_plan(nn__direct_t *v) {
    int64_t lanes = v->k->lanes, least = v->kh == 5 ? 16 : 32;
    int64_t threads = TENSOR__(thread_count)();
    if (lanes < 2 || (v->kh != 3 && v->kh != 5) || v->kw != v->kh) { return 0; }
    if (v->dh != 1 || v->dw != 1 || v->sh != 1 || v->sw != 1) { return 0; }
    if (v->ci < least || v->co < least || v->ci % lanes || v->co % lanes) { return 0; }
    if (v->ci + v->co < 3 * lanes) { return 0; }  // one vector to one: direct sums are as fast
    if (v->sums && v->kh == 5) { return 0; }   // the error is up to 4.8 x that of direct sums
    v->five = v->kh == 5 ? NN__TILE_5 : 0;
    v->side = 7 - v->kh;
    v->tx = nn__ceil(v->ow, v->side);
    v->ty = nn__ceil(v->oh, v->side);
    int64_t all = v->images * v->ty;

    // Few tiles do not pay for the kernel's transform; tiles that are mostly empty do not pay for their own.
    if (all * v->tx < 32) { return 0; }
    if (v->oh * v->ow * 2 < v->side * v->side * v->tx * v->ty) { return 0; }

    // A kernel's gradient sums over tiles: chains of about the root of their number lose the fewest digits.
    v->chain = v->five ? NN__WINOGRAD_CHAIN / 2 : NN__WINOGRAD_CHAIN;
    if (v->sums) { v->chain = nn__min(24, nn__max(8, all * v->tx / 12)); }
    v->mr = 2 * lanes;
    v->tiles = nn__ceil(v->co, v->mr);
    v->pitch = v->ci + 16;
    v->blocks = nn__ceil(all, nn__ceil(NN__WINOGRAD_BLOCK, v->tx));
    v->rows = nn__ceil(all, v->blocks);
    v->blocks = nn__ceil(all, v->rows);
    int64_t tiles = v->rows * v->tx;

    // Planes whose distance is a multiple of 4096 bytes would share their sets in the caches.
    v->image_plane = nn__ceil(tiles * v->pitch, 1024) * 1024 + 48;
    v->out_plane = nn__ceil(tiles * v->tiles * v->mr, 1024) * 1024 + 48;
    v->kernel_plane = nn__ceil(v->ci * v->tiles * v->mr, 1024) * 1024 + 48;
    v->offsets = nn__line((uint64_t)NN__WINOGRAD_CHAIN * 4);
    v->worker = (uint64_t)((4 * NN__WINOGRAD_TILES + 2) * 6 * v->mr) * 4;

    // If a cache holds all kernels, each thread takes blocks of its own (data that another thread wrote is
    // far away); otherwise the threads share the planes of a block.
    v->bytes = (uint64_t)(36 * (v->image_plane + v->out_plane)) * 4;
    v->own = !v->sums && v->kernel_plane <= NN__WINOGRAD_KERNEL && v->blocks >= 2 * threads &&
             v->bytes <= 4 << 20;
    if (v->own) { v->worker += v->bytes, v->bytes = 0; }
    v->bytes += (uint64_t)(36 * v->kernel_plane) * 4 + v->offsets +
                nn__line((uint64_t)((v->tiles + 1) * v->mr) * 4) + v->worker * (uint64_t)threads;
    v->winograd = 1;
    return 1;
}

// Some columns of tiles of one vector of channels, from the image or from the output's gradient.
TENSOR__FN void nn__winograd_in(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t lanes = v->k->lanes, parts = nn__ceil(v->tx, NN__WINOGRAD_TILES), c = task / parts * lanes;
    int64_t t0 = task % parts * NN__WINOGRAD_TILES, n = nn__min(NN__WINOGRAD_TILES, v->tx - t0);
    int grad = c >= v->ci;
    int64_t step = v->side, side = grad ? step : 6, h = grad ? v->oh : v->h, w = grad ? v->ow : v->w;
    int64_t x0 = step * t0 - (grad ? 0 : v->pw), columns = step * n + side - step;
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker);
    if (grad) { c -= v->ci; }
    int64_t line = columns * lanes;
    int64_t lo = nn__min(nn__max(-x0, 0), columns);
    int64_t hi = nn__min(nn__max(w - x0, lo), columns);
    float *to;
    for (int64_t r = 0; r < v->count; r++) {
        int64_t image = (v->first + r) / v->ty, row = (v->first + r) % v->ty, tile = r * v->tx + t0;
        const float *x = (grad ? v->y : v->x) +
                         ((image * v->groups + v->group) * (grad ? v->co : v->ci) + c) * h * w;
        int64_t i = r > 0 && row > 0 ? side - step : 0;  // lines of the row above
        if (i) { memmove(block, block + step * line, (size_t)(i * line) * 4); }
        for (to = block + i * line; i < side; i++, to += line) {
            int64_t y = step * row - (grad ? 0 : v->ph) + i;
            if (y < 0 || y >= h) {
                memset(to, 0, (size_t)line * 4);
                continue;
            }
            memset(to, 0, (size_t)(lo * lanes) * 4);
            NN__DO(v->k, turn)(lanes, hi - lo, x + y * w + x0 + lo, h * w, to + lo * lanes, lanes);
            memset(to + hi * lanes, 0, (size_t)((columns - hi) * lanes) * 4);
        }
        if (grad) {
            NN__DO(v->k, winograd)(NN__TILE_GRAD, n, block, step * lanes, line, lanes,
                                   v->out + (c / v->mr * v->rows * v->tx + tile) * v->mr + c % v->mr, v->mr,
                                   6 * v->out_plane, v->out_plane, NULL);
        } else {
            NN__DO(v->k, winograd)(NN__TILE_IMAGE, n, block, step * lanes, line, lanes,
                                   v->in + tile * v->pitch + c, v->pitch, 6 * v->image_plane, v->image_plane,
                                   NULL);
        }
    }
}

// One plane, one pair of vectors of outputs: sums over channels for the outputs, over tiles for the kernel's
// gradient.
TENSOR__FN void nn__winograd_product(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t e = task / v->tiles, o = task % v->tiles, tiles = v->count * v->tx;
    int64_t steps = v->sums ? tiles : v->ci, many = v->sums ? v->ci : tiles;
    int64_t parts = nn__ceil(steps, v->chain), runs = nn__ceil(many, v->k->gr);
    const float *in = v->in + e * v->image_plane;
    float *kernel = v->packed + e * v->kernel_plane + o * v->ci * v->mr;
    float *out = v->out + e * v->out_plane + o * v->rows * v->tx * v->mr;
    const float *b = v->sums ? out : kernel, *zero = v->start + v->tiles * v->mr;
    float *c = v->sums ? kernel : out;
    for (int64_t k = 0; k < parts; k++) {
        for (int64_t u = 0; u < runs; u++) {
            int64_t from = steps * k / parts, to = steps * (k + 1) / parts;
            int64_t r0 = many * u / runs, r1 = many * (u + 1) / runs;
            NN__DO(v->k, gather)((int)(r1 - r0), v->co - o * v->mr > v->k->lanes, to - from,
                                 in + (v->sums ? from * v->pitch + r0 : r0 * v->pitch + from),
                                 v->sums ? 1 : v->pitch, v->off, b + from * v->mr,
                                 k > 0 || (v->sums && v->first > 0) ? NULL : zero, c + r0 * v->mr, v->mr);
        }
    }
    (void)worker;
}

// A row of tiles of one pair of vectors of outputs.
TENSOR__FN void nn__winograd_out(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t o = task % v->tiles, r = task / v->tiles, m = nn__min(v->co - o * v->mr, v->mr), n;
    int64_t s = v->side, image = (v->first + r) / v->ty, y0 = (v->first + r) % v->ty * s;
    int64_t plane = v->oh * v->ow;
    float *y = v->y + ((image * v->groups + v->group) * v->co + o * v->mr) * plane + y0 * v->ow;
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker);
    for (int64_t t = 0; t < v->tx; t += n) {
        n = nn__min(NN__WINOGRAD_TILES, v->tx - t);
        for (int64_t j = 0; j < m; j += v->k->lanes) {
            NN__DO(v->k, winograd)(NN__TILE_OUT + v->five, n,
                                   v->out + ((o * v->rows + r) * v->tx + t) * v->mr + j, v->mr,
                                   6 * v->out_plane, v->out_plane, block + j, s * v->mr, s * n * v->mr, v->mr,
                                   v->start + o * v->mr + j);
        }
        for (int64_t i = 0; i < nn__min(s, v->oh - y0); i++) {
            NN__DO(v->k, turn)(nn__min(s * n, v->ow - s * t), m, block + s * i * n * v->mr, v->mr,
                               y + i * v->ow + s * t, plane);
        }
    }
}

// The kernels from one channel to a pair of vectors of outputs; for the gradient, the transform back.
TENSOR__FN void nn__winograd_kernel(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t o = task / v->ci, c = task % v->ci, m = nn__min(v->co - o * v->mr, v->mr), mr = v->mr;
    int64_t taps = v->kh * v->kw, at = v->flipped ? ((v->group * v->ci + c) * v->co + o * mr) * taps
                                                  : ((v->group * v->co + o * mr) * v->ci + c) * taps;
    int64_t e = v->kernel_plane, step = v->flipped ? -mr : mr, row = v->kw * step;
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker), *u = v->packed + task * mr;
    if (!v->sums) {
        NN__DO(v->k, turn)(m, taps, v->weight + at, v->flipped ? taps : taps * v->ci, block, mr);
    }
    for (int64_t j = 0; j < m; j += v->k->lanes) {
        if (v->sums) {
            NN__DO(v->k, winograd)(NN__TILE_SUMS, 1, u + j, 0, 6 * e, e, block + j, 0, row, mr, NULL);
        } else {
            NN__DO(v->k, winograd)(NN__TILE_KERNEL + v->five, 1,
                                   block + j + (v->flipped ? (taps - 1) * mr : 0), 0, row, step, u + j, 0,
                                   6 * e, e, NULL);
        }
    }
    if (v->sums) { NN__DO(v->k, turn)(taps, m, block, mr, v->sum + at, taps * v->ci); }
}

// Block `task` of the tiles, from image to output, in the worker's own planes.
TENSOR__FN void nn__winograd_block(void *arg, int64_t task, int worker) {
    nn__direct_t v = *(const nn__direct_t *)arg;
    int64_t all = v.images * v.ty;
    v.work += v.worker * (uint64_t)worker;
    v.in = (float *)(void *)v.work;
    v.out = v.in + 36 * v.image_plane;
    v.work = (char *)(v.out + 36 * v.out_plane);
    v.first = all * task / v.blocks;
    v.count = all * (task + 1) / v.blocks - v.first;
    for (int64_t i = 0; i < nn__ceil(v.tx, NN__WINOGRAD_TILES) * (v.ci / v.k->lanes); i++) {
        nn__winograd_in(&v, i, 0);
    }
    for (int64_t i = 0; i < 36 * v.tiles; i++) { nn__winograd_product(&v, i, 0); }
    for (int64_t i = 0; i < v.count * v.tiles; i++) { nn__winograd_out(&v, i, 0); }
}

TENSOR__FN void nn__winograd_run(nn__direct_t *v, void *scratch) {
    int64_t all = v->images * v->ty, parts = nn__ceil(v->tx, NN__WINOGRAD_TILES);
    v->packed = (float *)scratch;
    v->off = (int32_t *)(void *)(v->packed + 36 * v->kernel_plane);
    v->start = v->packed + 36 * v->kernel_plane + v->offsets / 4;
    v->in = v->start + nn__line((uint64_t)((v->tiles + 1) * v->mr) * 4) / 4;
    v->out = v->in + 36 * v->image_plane;
    v->work = (char *)(v->own ? v->in : v->out + 36 * v->out_plane);
    for (int64_t i = 0; i < NN__WINOGRAD_CHAIN; i++) { v->off[i] = (int32_t)(v->sums ? i * v->pitch : i); }
    for (v->group = 0; v->group < v->groups; v->group++) {
        for (int64_t i = 0; i < (v->tiles + 1) * v->mr; i++) {
            v->start[i] = v->bias && i < v->co ? v->bias[v->group * v->co + i] : 0;
        }
        if (!v->sums) { nn__run(v->tiles * v->ci, nn__winograd_kernel, v); }
        if (v->own) { nn__run(v->blocks, nn__winograd_block, v); }
        for (v->first = 0; !v->own && v->first < all; v->first += v->count) {
            v->count = nn__min(v->rows, all - v->first);
            nn__run(parts * ((v->ci + (v->sums ? v->co : 0)) / v->k->lanes), nn__winograd_in, v);
            nn__run(36 * v->tiles, nn__winograd_product, v);
            if (!v->sums) { nn__run(v->count * v->tiles, nn__winograd_out, v); }
        }
        if (v->sums) { nn__run(v->tiles * v->ci, nn__winograd_kernel, v); }
    }
}

// The weights of a tile, [n][mr].
TENSOR__FN void nn__direct_pack(void *arg, int64_t task, int worker) {
    const nn__direct_t *v = (const nn__direct_t *)arg;
    int64_t mr = v->mr, q = task / v->tiles, t = task % v->tiles, m = nn__min(v->co - t * mr, mr);
    int64_t taps = v->kh * v->kw;
    float *p = v->packed + task * v->n * mr;
    (void)worker;
    if (m < mr) { memset(p, 0, (size_t)(v->n * mr) * 4); }
    if (!v->flipped) {
        NN__DO(v->k, turn)(m, v->n, v->weight + (q * v->co + t * mr) * v->n, v->n, p, mr);
    } else {
        for (int64_t c = 0; c < v->ci; c++) {
            NN__DO(v->k, turn)(m, taps, v->weight + ((q * v->ci + c) * v->co + t * mr) * taps, taps,
                               p + (c * taps + taps - 1) * mr, -mr);
        }
    }
}

TENSOR__FN void nn__direct_run(nn__direct_t *v, void *scratch) {
    int64_t mr = v->mr, tiles = v->tiles, threads = TENSOR__(thread_count)();
    float *p = (float *)scratch;
    if (v->winograd) {
        nn__winograd_run(v, scratch);
        return;
    }
    v->packed = p;
    v->start = p += v->groups * tiles * mr * v->n;
    v->off = (int32_t *)(void *)((char *)scratch + v->weights);
    v->work = (char *)v->off + v->offsets;
    nn__run(v->groups * tiles, nn__direct_pack, v);
    for (int64_t q = 0; q < v->groups; q++) {
        for (int64_t j = 0; j < tiles * mr; j++) { *p++ = v->bias && j < v->co ? v->bias[q * v->co + j] : 0; }
    }
    nn__direct_offsets(v, v->lines, v->off);
    int64_t tasks = nn__ceil(v->images, v->per) * v->groups * v->blocks;
    v->cuts = v->gather && threads > 1 ? nn__min(tiles, nn__ceil(2 * threads, tasks)) : 1;
    nn__run(tasks * v->cuts, v->gather ? nn__direct_gather : nn__direct_task, v);
}

// gw[o][k] += sum of g x over n images from first on, of group q, padded in block.
// gy [images][groups co][oh][ow], to [co][n].
TENSOR__FN void nn__direct_weight(const nn__direct_t *v, const float *gy, int64_t q, int64_t first,
                                  int64_t n, float *block, float *to) {
    int64_t plane = v->oh * v->ow, taps = v->co == 1 ? 9 : v->k->kt;
    for (int64_t o = 0; o < v->co; o += 4) {
        for (int64_t k = 0; k < v->n; k += taps) {
            NN__DO(v->k, direct_weight)((int)nn__min(4, v->co - o), (int)nn__min(taps, v->n - k), v->off + k,
                                        gy + ((first * v->groups + q) * v->co + o) * plane, plane, v->ow,
                                        v->groups * v->co * plane, block, v->sh * v->pitch, v->image, n,
                                        v->oh, v->ow, v->sw, to + o * v->n + k, v->n);
        }
    }
}

// The same for tile o and the rows from oy on, where a step is a pixel and vectors hold outputs: sums
// [n][mr].
TENSOR__FN void nn__gather_weight(const nn__direct_t *v, const float *gy, int64_t q, int64_t o, int64_t first,
                                  int64_t n, int64_t oy, const float *block, float *out, float *sums) {
    int64_t plane = v->oh * v->ow, pixels = nn__min(v->rows, v->oh - oy) * v->ow, all = n * pixels;
    int64_t parts = nn__ceil(all, NN__GATHER_PIXELS), m = nn__min(v->co - o * v->mr, v->mr);
    int64_t taps = v->kh * v->kw;

    // The rows of a tile are channels, or the columns of the kernel.
    int by_channel = v->ci >= v->kw;
    int64_t many = by_channel ? v->ci : v->kw, others = by_channel ? taps : v->ci * v->kh;
    int64_t as = by_channel ? v->lines * v->pitch : v->dw, cs = by_channel ? taps * v->mr : v->mr;
    int64_t runs = nn__ceil(many, v->k->gr);
    if (m % v->k->lanes) { memset(out, 0, (size_t)(all * v->mr) * 4); }
    for (int64_t i = 0; i < n; i++) {
        NN__DO(v->k, turn)(m, pixels,
                           gy + (((first + i) * v->groups + q) * v->co + o * v->mr) * plane + oy * v->ow,
                           plane, out + i * pixels * v->mr, v->mr);
    }
    for (int64_t k = 0; k < parts; k++) {
        int64_t from = all * k / parts, to = all * (k + 1) / parts;
        for (int64_t r = 0; r < runs; r++) {
            int64_t r0 = many * r / runs, r1 = many * (r + 1) / runs;
            for (int64_t t = 0; t < others; t++) {
                int64_t tap = by_channel ? t : t * v->kw, c = tap / taps, ky = tap / v->kw % v->kh,
                        kx = tap % v->kw;
                NN__DO(v->k, gather)((int)(r1 - r0), m > v->k->lanes, to - from,
                                     block + (c * v->lines + ky * v->dh) * v->pitch + kx * v->dw + r0 * as,
                                     as, v->off + from, out + from * v->mr, NULL,
                                     sums + tap * v->mr + r0 * cs, cs);
            }
        }
    }
}

// gw = sum of g x over the images first .. last of group q: for all outputs, or for those of tile o with
// gather.
TENSOR__FN void nn__direct_sums(const nn__direct_t *v, const float *gy, int64_t q, int64_t o, int64_t first,
                                int64_t last, int worker, float *to) {
    float *block = (float *)(void *)(v->work + v->worker * (uint64_t)worker);
    float *out = block + nn__line((uint64_t)(v->per * v->image) * 4 + 256) / 4;
    float *sums = v->gather ? out + nn__line((uint64_t)(v->per * v->rows * v->ow * v->mr) * 4) / 4 : to;
    memset(sums, 0, (size_t)((v->gather ? v->mr : v->co) * v->n) * 4);
    int64_t n;
    for (; first < last; first += n) {
        n = nn__min(v->per, last - first);
        for (int64_t b = 0; b < v->blocks; b++) {
            for (int64_t i = 0; i < n; i++) {
                nn__direct_pad(v, v->x + ((first + i) * v->groups + q) * v->ci * v->h * v->w,
                               b * v->rows * v->sh, v->lines, block + i * v->image);
            }
            if (v->gather) {
                nn__gather_weight(v, gy, q, o, first, n, b * v->rows, block, out, sums);
            } else {
                nn__direct_weight(v, gy, q, first, n, block, to);
            }
        }
    }
    if (v->gather) {
        NN__DO(v->k, turn)(v->n, nn__min(v->co - o * v->mr, v->mr), sums, v->mr, to + o * v->mr * v->n, v->n);
    }
}

// The offsets of gathered sums.
TENSOR__FN void nn__gather_pixels(const nn__direct_t *v, int32_t *off) {
    for (int64_t i = 0; i < v->per; i++) {
        for (int64_t r = 0; r < v->rows; r++) {
            for (int64_t x = 0; x < v->ow; x++) {
                *off++ = (int32_t)(i * v->image + r * v->sh * v->pitch + x * v->sw);
            }
        }
    }
}

// ------------------------------------------------------------------------------
// >>impl-conv                                      MARK: convolution
//
// y = W columns per image and group, with the columns in blocks of output pixels that stay in the cache.
// Transposed convolution and both gradients are the same three kernels with their roles exchanged: each is
// the gradient of the others. Integers are summed one tap of the window at a time, by other ops. Rejected:
// whole columns in memory (k times the image).
// ------------------------------------------------------------------------------

typedef struct nn__conv_t {
    const nn__cpu_t *k;
    const tensor_call_t *c;
    nn__window_t g;
    const tensor_arg_t *x, *w, *y;   // the image, the weight, the output; one of them is computed
    int64_t images, groups, cg, og;   // channels and outputs of a group
    int64_t taps, kk, plane, pixels;  // size of the kernel, cg taps, sizes of an image and an output plane
    int64_t rows, wide, parts, blocks;   // rows and columns per block, blocks per row, blocks per image
    int64_t step, steps;              // channels per task of the input gradient, tasks per image and group
    int64_t chunks;                   // parts of the images of the weight gradient
    int dtype, direct;                // direct: the image is its own columns (1 x 1)
    size_t es;
    uint64_t columns, gemm, worker;   // bytes: columns of a worker, its GEMM, all of it
    uint64_t turned;                  // of a transposed weight gradient, after the GEMM; 0 = not transposed
    const nn__direct_t *sums;         // the weight gradient without columns, or NULL
    char *pieces;                     // of the weight gradient, chunks of them
    char *work;                       // the scratch after the plan
    nn__direct_t without;             // says how, if there are no columns
    int columnless;
} nn__conv_t;

TENSOR__FN int64_t nn__volume(const int64_t v[3]) { return v[0] * v[1] * v[2]; }

// 1 = without columns, and d says how. It may change v->chunks: Winograd uses no partial sums of the weight's
// gradient.
TENSOR__FN int nn__conv_direct(const tensor_call_t *c, nn__conv_t *v, nn__direct_t *d) {
    const nn__window_t *g = &v->g;
    memset(d, 0, sizeof *d);
    d->sums = c->row->id == NN_OP_CONV_WEIGHT;
    d->flipped = v->x == &c->arg[3];
    if (v->dtype != TENSOR_F32) { return 0; }
    if (g->kernel[0] != 1 || g->in[0] != 1 || g->out[0] != 1 || g->pad[0] != 0) { return 0; }
    if (!v->x->numel || !v->y->numel || !v->w->numel) { return 0; }
    d->k = nn__cpu(v->dtype);
    d->images = v->images;
    d->groups = v->groups;
    d->kh = g->kernel[1];
    d->kw = g->kernel[2];
    d->dh = g->dilation[1];
    d->dw = g->dilation[2];
    d->sh = d->flipped ? 1 : g->stride[1];
    d->sw = d->flipped ? 1 : g->stride[2];
    d->uh = d->flipped ? g->stride[1] : 1;
    d->uw = d->flipped ? g->stride[2] : 1;
    d->weight = (const float *)v->w->data;
    d->bias = d->sums ? NULL : (const float *)c->arg[2].data;
    d->ci = d->flipped ? v->og : v->cg;
    d->co = d->flipped ? v->cg : v->og;

    // With many channels, the zeros in between would cost more than the columns do.
    if (d->uh * d->uw > (d->ci == 1 && d->co == 1 ? 4 : 1)) { return 0; }
    d->x = (const float *)(d->flipped ? v->y : v->x)->data;
    d->y = (float *)(d->flipped ? v->x : v->y)->data;
    d->h = d->flipped ? g->out[1] : g->in[1];
    d->w = d->flipped ? g->out[2] : g->in[2];
    d->oh = d->flipped ? g->in[1] : g->out[1];
    d->ow = d->flipped ? g->in[2] : g->out[2];
    d->ph = d->flipped ? d->dh * (d->kh - 1) - g->pad[1] : g->pad[1];
    d->pw = d->flipped ? d->dw * (d->kw - 1) - g->pad[2] : g->pad[2];
    if (nn__winograd_plan(d)) {
        v->chunks = 0;
        return 1;
    }
    if (!nn__direct_plan(d)) { return 0; }

    // Tiles are tasks as well.
    if (d->gather) { v->chunks = nn__min(v->chunks, nn__ceil(8, d->tiles * d->groups)); }
    return 1;
}

TENSOR__FN void nn__conv_plan(const tensor_call_t *c, nn__conv_t *v) {
    int id = c->row->id, weight = id == NN_OP_CONV_WEIGHT, input = !weight && id >= NN_OP_CONV_TRANSPOSE1D;
    v->c = c;
    v->sums = NULL;
    v->y = &c->arg[weight || input ? 0 : 3];
    v->x = &c->arg[input ? 3 : weight];
    v->w = &c->arg[weight ? 2 : 1];
    v->dtype = v->x->dtype;
    v->es = nn__es(v->dtype);
    v->g = c->p->window;
    v->groups = v->g.groups;
    v->images = v->x->dims[0];
    v->cg = v->w->dims[1];
    v->og = v->w->dims[0] / v->groups;
    v->taps = nn__volume(v->g.kernel);
    v->kk = v->cg * v->taps;
    v->plane = nn__volume(v->g.in);
    v->pixels = nn__volume(v->g.out);
    v->direct = v->taps == 1;
    for (int d = 0; d < 3; d++) {
        v->direct &= v->g.stride[d] == 1 && v->g.pad[d] == 0 && v->g.out[d] == v->g.in[d];
    }
    v->step = nn__max(1, input ? nn__min(v->cg, 256 / v->taps) : v->cg);
    v->steps = nn__ceil(v->cg, v->step);
    int64_t m = v->step * v->taps;
    int64_t all = v->g.out[0] * v->g.out[1];
    v->parts = nn__ceil(nn__max(v->g.out[2], 1), nn__max(512, 262144 / nn__max(1, m * (int64_t)v->es)));
    v->wide = nn__ceil(v->g.out[2], v->parts);
    v->rows = (v->direct ? 524288 : 262144) / nn__max(1, m * v->wide * (int64_t)v->es);
    v->rows = nn__min(nn__max(v->rows, nn__ceil(64, nn__max(v->wide, 1))), nn__max(all, 1));
    if (v->parts > 1) { v->rows = 1; }
    v->blocks = nn__max(1, nn__ceil(all, v->rows));
    v->rows = nn__ceil(all, v->blocks);
    v->blocks *= v->parts;
    v->chunks = nn__min(v->images, 8);
    if ((double)v->w->numel * (double)v->es * (double)v->chunks > 33554432.0) { v->chunks = 1; }
    tensor__gemm_t g = nn__product(v->og, v->rows * v->wide, v->kk);
    if (input) { g = nn__product(m, v->rows * v->wide, v->og); }

    // The transposed gradient of the weight is cheaper: the smaller of the two factors is packed.
    v->turned = weight && v->og >= 32 && v->og < v->kk ? nn__line((uint64_t)(v->og * v->kk) * v->es) : 0;
    if (weight) { g = nn__product(v->turned ? v->kk : v->og, v->turned ? v->og : v->kk, v->rows * v->wide); }
    v->columns = v->direct ? 0 : nn__line((uint64_t)(m * v->rows * v->wide) * v->es);
    v->gemm = nn__line(TENSOR__(gemm_scratch)(&g, v->dtype));

    // The last block or step may be narrow, and a GEMM with a small result may need more scratch.
    g.m = nn__min(g.m, 64);
    g.n = nn__min(g.n, 64);
    uint64_t narrow = nn__line(TENSOR__(gemm_scratch)(&g, v->dtype));
    if (narrow > v->gemm) { v->gemm = narrow; }
    v->worker = v->columns + v->gemm + v->turned;
    v->columnless = nn__conv_direct(c, v, &v->without);
}

typedef char nn__conv_plan_fits[sizeof(nn__conv_t) <= TENSOR__PLAN_BYTES ? 1 : -1];
#define NN__CONV_PLAN nn__line(sizeof(nn__conv_t))

// Leaves the plan at the head of the scratch.
TENSOR__FN uint64_t nn__scratch_conv(const tensor_call_t *c) {
    nn__conv_t *v = (nn__conv_t *)c->scratch;
    nn__conv_plan(c, v);
    uint64_t bytes = v->columnless ? v->without.bytes : v->worker * (uint64_t)TENSOR__(thread_count)();
    if (c->row->id == NN_OP_CONV_WEIGHT) { bytes += (uint64_t)v->chunks * (uint64_t)v->w->numel * v->es; }
    return NN__CONV_PLAN + bytes;
}

// The plan of the call, with what lies behind it in the scratch.
TENSOR__FN nn__conv_t *nn__conv_planned(const tensor_call_t *c) {
    nn__conv_t *v = (nn__conv_t *)c->scratch;
    v->k = nn__cpu(v->dtype);
    v->work = (char *)c->scratch + NN__CONV_PLAN;
    return v;
}

// Block i. -> its first pixel; n = how many
TENSOR__FN int64_t nn__conv_block(const nn__conv_t *v, int64_t i, nn__block_t *b, int64_t *n) {
    b->r0 = i / v->parts * v->rows;
    b->r1 = nn__min(b->r0 + v->rows, v->g.out[0] * v->g.out[1]);
    b->x0 = i % v->parts * v->wide;
    b->x1 = nn__min(b->x0 + v->wide, v->g.out[2]);
    *n = (b->r1 - b->r0) * (b->x1 - b->x0);
    return b->r0 * v->g.out[2] + b->x0;
}

// Columns of a block of output pixels of `channels` planes: [channels * taps][pixels].
TENSOR__FN void nn__im2col(const char *x, char *columns, const nn__window_t *g, size_t es, int64_t channels,
                           const nn__block_t *b) {
    int64_t lo, hi, taps = nn__volume(g->kernel), n = b->x1 - b->x0, step = g->stride[2];
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < taps; k++) {
            int64_t kx = k % g->kernel[2], ky = k / g->kernel[2] % g->kernel[1];
            int64_t kz = k / g->kernel[2] / g->kernel[1], oz = b->r0 / g->out[1], oy = b->r0 % g->out[1];
            nn__window_range(g, kx, &lo, &hi);
            lo = nn__min(nn__max(lo, b->x0), b->x1);
            hi = nn__min(nn__max(hi, lo), b->x1);
            for (int64_t r = b->r0; r < b->r1; r++, columns += n * (int64_t)es) {
                int64_t iz = oz * g->stride[0] - g->pad[0] + kz * g->dilation[0];
                int64_t iy = oy * g->stride[1] - g->pad[1] + ky * g->dilation[1];
                int64_t x0 = kx * g->dilation[2] - g->pad[2];
                const char *from = x + ((c * g->in[0] + iz) * g->in[1] + iy) * g->in[2] * (int64_t)es;
                char *to = columns - b->x0 * (int64_t)es;
                if (++oy == g->out[1]) {
                    oy = 0;
                    oz++;
                }
                if (iz < 0 || iz >= g->in[0] || iy < 0 || iy >= g->in[1]) {
                    memset(columns, 0, (size_t)n * es);
                    continue;
                }
                if (lo > b->x0) { memset(columns, 0, (size_t)(lo - b->x0) * es); }
                if (step == 1) {
                    memcpy(to + lo * (int64_t)es, from + (lo + x0) * (int64_t)es, (size_t)(hi - lo) * es);
                } else if (es == 4) {
                    for (int64_t ox = lo; ox < hi; ox++) {
                        ((float *)(void *)to)[ox] = ((const float *)(const void *)from)[ox * step + x0];
                    }
                } else {
                    for (int64_t ox = lo; ox < hi; ox++) {
                        ((double *)(void *)to)[ox] = ((const double *)(const void *)from)[ox * step + x0];
                    }
                }
                if (hi < b->x1) { memset(to + hi * (int64_t)es, 0, (size_t)(b->x1 - hi) * es); }
            }
        }
    }
}

// Plane 0 of image i and group q, of x and of y.
TENSOR__FN char *nn__conv_x(const nn__conv_t *v, int64_t i, int64_t q) {
    return nn__at(v->x, (i * v->groups + q) * v->cg * v->plane);
}

TENSOR__FN char *nn__conv_y(const nn__conv_t *v, int64_t i, int64_t q) {
    return nn__at(v->y, (i * v->groups + q) * v->og * v->pixels);
}

TENSOR__FN void nn__conv_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t q = task / v->blocks % v->groups, i = task / v->blocks / v->groups, n;
    nn__block_t b;
    char *columns = v->work + v->worker * (uint64_t)worker;
    const tensor_arg_t *bias = &v->c->arg[2];
    int64_t first = nn__conv_block(v, task % v->blocks, &b, &n);
    char *y = nn__conv_y(v, i, q) + first * (int64_t)v->es;
    tensor__gemm_t g = nn__product(v->og, n, v->kk);
    g.a = nn__at(v->w, q * v->og * v->kk);
    g.b = columns;
    if (v->direct) {
        g.b = nn__conv_x(v, i, q) + first * (int64_t)v->es;
        g.brs = v->pixels;
    } else {
        nn__im2col(nn__conv_x(v, i, q), columns, &v->g, v->es, v->cg, &b);
    }
    g.c = y;
    g.crs = v->pixels;
    if (bias->data) {
        g.accumulate = 1;
        for (int64_t o = 0; o < v->og; o++) {
            NN__DO(v->k, fill)(y + o * v->pixels * (int64_t)v->es,
                               nn__value(bias->data, v->dtype, q * v->og + o), n);
        }
    }
    g.scratch = columns + v->columns;
    TENSOR__(gemm)(&g, v->dtype);
}

TENSOR__FN int nn__cpu_conv(tensor_call_t *c) {
    nn__conv_t *v = nn__conv_planned(c);
    if (v->columnless) {
        nn__direct_run(&v->without, v->work);
    } else if (v->y->numel) {
        nn__run(v->images * v->groups * v->blocks, nn__conv_task, v);
    }
    return TENSOR_OK;
}

// Columns = WT g, added back into the image. A task has some channels of one image, which no other task
// writes.
TENSOR__FN void nn__conv_input_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t s = task % v->steps, q = task / v->steps % v->groups, i = task / v->steps / v->groups;
    int64_t c0 = s * v->step, nc = nn__min(v->step, v->cg - c0);
    char *columns = v->work + v->worker * (uint64_t)worker;
    char *x = nn__conv_x(v, i, q) + c0 * v->plane * (int64_t)v->es;
    const tensor_arg_t *bias = &v->c->arg[2];
    for (int64_t k = 0; k < nc && (!v->direct || bias->data); k++) {
        NN__DO(v->k, fill)(x + k * v->plane * (int64_t)v->es,
                           bias->data ? nn__value(bias->data, v->dtype, q * v->cg + c0 + k) : 0, v->plane);
    }
    int64_t n;
    for (int64_t k = 0; v->pixels && k < v->blocks; k++) {
        nn__block_t b;
        int64_t first = nn__conv_block(v, k, &b, &n);
        tensor__gemm_t g = nn__product(nc * v->taps, n, v->og);
        g.a = nn__at(v->w, q * v->og * v->kk + c0 * v->taps);
        g.ars = 1;
        g.acs = v->kk;
        g.b = nn__conv_y(v, i, q) + first * (int64_t)v->es;
        g.brs = v->pixels;
        g.c = columns;
        if (v->direct) {
            g.c = x + first * (int64_t)v->es;
            g.crs = v->pixels;
            g.accumulate = bias->data != NULL;
        }
        g.scratch = columns + v->columns;
        TENSOR__(gemm)(&g, v->dtype);
        if (!v->direct) { NN__DO(v->k, col2im)(columns, x, &v->g, nc, &b); }
    }
}

TENSOR__FN int nn__cpu_conv_input(tensor_call_t *c) {
    nn__conv_t *v = nn__conv_planned(c);
    if (v->columnless) {
        nn__direct_run(&v->without, v->work);
    } else if (v->x->numel) {
        nn__run(v->images * v->groups * v->steps, nn__conv_input_task, v);
    }
    return TENSOR_OK;
}

// gw = sum over images of g columnsT: each chunk of images sums into its own copy; copies are added in order.
TENSOR__FN void nn__conv_weight_task(void *arg, int64_t task, int worker) {
    const nn__conv_t *v = (const nn__conv_t *)arg;
    int64_t tiles = v->sums && v->sums->gather ? v->sums->tiles : 1;
    int64_t q = task / v->chunks / tiles, part = task % v->chunks;
    int64_t first = v->images * part / v->chunks, last = v->images * (part + 1) / v->chunks;
    char *columns = v->work + v->worker * (uint64_t)worker, *to = (char *)v->w->data;
    char *turned = columns + v->columns + v->gemm;
    if (v->chunks > 1) { to = v->pieces + (uint64_t)part * (uint64_t)v->w->numel * v->es; }
    to += q * v->og * v->kk * (int64_t)v->es;
    if (v->sums) {
        nn__direct_sums(v->sums, (const float *)v->y->data, q, task / v->chunks % tiles, first, last, worker,
                        (float *)(void *)to);
        return;
    }
    int64_t n, at;
    for (int64_t i = first; i < last; i++) {
        for (int64_t k = 0; k < v->blocks; k++) {
            nn__block_t b;
            at = nn__conv_block(v, k, &b, &n);
            tensor__gemm_t g = nn__product(v->og, v->kk, n);
            g.a = nn__conv_y(v, i, q) + at * (int64_t)v->es;
            g.ars = v->pixels;
            g.b = columns;
            g.brs = 1;
            g.bcs = g.k;
            if (v->direct) {
                g.b = nn__conv_x(v, i, q) + at * (int64_t)v->es;
                g.bcs = v->pixels;
            } else {
                nn__im2col(nn__conv_x(v, i, q), columns, &v->g, v->es, v->cg, &b);
            }
            g.c = to;
            if (v->turned) {
                tensor__gemm_t t = nn__product(v->kk, v->og, n);
                t.a = g.b;
                t.ars = g.bcs;
                t.b = g.a;
                t.brs = 1;
                t.bcs = g.ars;
                t.c = turned;
                g = t;
            }
            g.accumulate = i > first || k > 0;
            g.scratch = columns + v->columns;
            TENSOR__(gemm)(&g, v->dtype);
        }
    }
    for (int64_t k = 0; v->turned && k < v->kk; k += 16) {
        for (at = 0; at < v->og; at++) {
            for (int64_t i = k; i < nn__min(k + 16, v->kk); i++) {
                int64_t from = i * v->og + at, here = at * v->kk + i;
                if (v->es == 4) {
                    ((float *)(void *)to)[here] = ((const float *)(const void *)turned)[from];
                } else {
                    ((double *)(void *)to)[here] = ((const double *)(const void *)turned)[from];
                }
            }
        }
    }
}

TENSOR__FN int nn__cpu_conv_weight(tensor_call_t *c) {
    nn__conv_t *v = nn__conv_planned(c);
    nn__direct_t *d = &v->without;
    if (v->y->numel == 0 || v->x->numel == 0) {
        NN__DO(v->k, fill)(v->w->data, 0, v->w->numel);
        return TENSOR_OK;
    }
    if (v->columnless && d->winograd) {
        d->sum = (float *)v->w->data;
        nn__winograd_run(d, v->work);
        return TENSOR_OK;
    }
    if (v->columnless) {
        d->off = (int32_t *)(void *)v->work;
        d->work = v->work + d->offsets;
        if (d->gather) {
            nn__gather_pixels(d, d->off);
        } else {
            nn__direct_offsets(d, d->lines, d->off);
        }
        v->sums = d;
        v->pieces = v->work + d->bytes;
    } else {
        v->pieces = v->work + v->worker * (uint64_t)TENSOR__(thread_count)();
    }
    nn__run(v->groups * (v->sums && d->gather ? d->tiles : 1) * v->chunks, nn__conv_weight_task, v);
    if (v->chunks == 1) { return TENSOR_OK; }
    memcpy(v->w->data, v->pieces, (size_t)v->w->numel * v->es);
    for (int64_t i = 1; i < v->chunks; i++) {
        NN__DO(v->k, add)(v->w->data, v->pieces + (uint64_t)i * (uint64_t)v->w->numel * v->es, v->w->numel);
    }
    return TENSOR_OK;
}

TENSOR__COLD

// Runs the begun convolution o, whose result has `dims`, as many as its first input.
TENSOR__FN tensor_t *nn__conv_run(tensor__op_t *o, const nn__window_t *g, const int64_t *dims) {
    tensor_t **in = o->args, *like;
    if (TENSOR__(lasts)(in[0])) {
        like = in[0];
    } else if (TENSOR__(lasts)(in[1])) {
        like = in[1];
    } else {
        like = NULL;
    }
    for (int i = 0; i < o->nin; i++) {
        in[i] = like && i < 2 ? (tensor_channels_last)(in[i]) : nn__contiguous(in[i]);
        if (in[i] && (tensor_is_poison)(in[i])) { return in[i]; }
    }
    o->p = &o->params;
    o->p->window = *g;
    TENSOR__(follow)(TENSOR__(result)(o, in[0]->dtype, dims, in[0]->ndim), like);
    return TENSOR__(finish)(o);
}

// A convolution of the gradients.
TENSOR__FN tensor_t *nn__conv_op(const tensor__row_t *row, tensor_t *a, tensor_t *b,
                                 const nn__window_t *window, const int64_t *dims) {
    tensor__op_t o;
    tensor_t *in[3] = {a, b, NULL};
    if (!TENSOR__(begin)(&o, row, in, row->nin)) { return TENSOR__(poison); }
    return nn__conv_run(&o, window, dims);
}

// The gradient of a convolution and of a transposed one (in which x and y have exchanged roles).
TENSOR__FN void nn__grad_conv(tensor__grad_t *g) {
    static const int64_t others[4] = {0, 2, 3, 4};
    const tensor__meta_t *in = g->node->in;
    tensor_t *gy = g->gy[0];
    int rank = in[0].ndim - 2, input = g->node->row->id >= NN_OP_CONV_TRANSPOSE1D;
    const tensor__row_t *other = input ? nn__conv_row(rank) : nn__conv_transpose_row(rank);
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = nn__conv_op(other, gy, TENSOR__(grad_in)(g, 1), &g->p->window, in[0].dims);
    }
    if (TENSOR__(grad_need)(g, 1)) {
        tensor_t *x = TENSOR__(grad_in)(g, 0);
        g->gx[1] = nn__conv_op(NN__ROW(CONV_WEIGHT), input ? x : gy, input ? gy : x, &g->p->window,
                               in[1].dims);
    }
    if (TENSOR__(grad_need)(g, 2)) { g->gx[2] = (tensor_sum_dims)(gy, others, rank + 1, 0); }
}

TENSOR__FN void nn__grad_conv_weight(tensor__grad_t *g) {   // inputs g, x; the incoming gradient looks like w
    const tensor__meta_t *in = g->node->in;
    tensor_t *w = g->gy[0];
    const nn__window_t *window = &g->p->window;
    int rank = in[0].ndim - 2;
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = nn__conv_op(nn__conv_row(rank), TENSOR__(grad_in)(g, 1), w, window, in[0].dims);
    }
    if (TENSOR__(grad_need)(g, 1)) {
        g->gx[1] = nn__conv_op(nn__conv_transpose_row(rank), TENSOR__(grad_in)(g, 0), w, window, in[1].dims);
    }
}

// The options m, m_h, m_w of a window, and m, m_w of one without m_h: m has its default, the others -1.
#define NN__OR_DIMS(m, value) NN__OR(m, value) NN__OR(m##_h, -1) NN__OR(m##_w, -1)
#define NN__OR_PAIR(m, value) NN__OR(m, value) NN__OR(m##_w, -1)
#define NN__TRIPLE(op, rank, a, m, to) nn__triple(op, #m, rank, (a)->m, (a)->m##_h, (a)->m##_w, to)
#define NN__PAIR(op, a, m, to) nn__triple(op, #m, 2, (a)->m, -1, (a)->m##_w, to)

// One number per dim from the options v (the first), v_h, v_w, right-aligned into to[3]; negative ones are
// equal to the first. A 1-d op has no v_h and v_w, a 2-d op no v_h; raises if they are given.
TENSOR__FN int nn__triple(const char *op, const char *what, int rank, int64_t v, int64_t h, int64_t w,
                          int64_t *to) {
    if ((h >= 0 && rank < 3) || (w >= 0 && rank < 2)) {
        int wide = w >= 0 && rank < 2;
        int64_t given = wide ? w : h;
        const char *plural = rank == 1 ? "" : "s";
        return NN__NO(TENSOR_ERR_SHAPE, "%s: %s_%s is %d, must be left out: images have %i dim%s", op, what,
                      wide ? "w" : "h", given, rank, plural);
    }
    to[2] = rank > 1 && w >= 0 ? w : v;
    if (rank > 1) { to[1] = rank > 2 && h >= 0 ? h : v; }
    if (rank > 2) { to[0] = v; }
    return 1;
}

// A window with 1 everywhere; the dims that an op has are then set from the right.
TENSOR__FN nn__window_t nn__window_unit(void) {
    nn__window_t g;
    memset(&g, 0, sizeof g);
    for (int d = 0; d < 3; d++) { g.kernel[d] = g.stride[d] = g.dilation[d] = g.in[d] = g.out[d] = 1; }
    g.groups = 1;
    g.mode = NN__NO_COUNT_PAD;
    return g;
}

// Whether the window's numbers are in range (large ones would overflow the sizes); raises if not.
TENSOR__FN int nn__window_valid(const char *op, int rank, const nn__window_t *g) {
    static const char *const what[4] = {"kernel", "stride", "padding", "dilation"};
    static const char *const dim[3] = {"", "_h", "_w"};
    const int64_t *const list[4] = {g->kernel, g->stride, g->pad, g->dilation};
    for (int k = 0; k < 4; k++) {
        for (int d = 3 - rank; d < 3; d++) {
            int64_t low = k != 2;
            if (list[k][d] >= low && list[k][d] <= 0x3FFFFFFF) { continue; }
            return NN__NO(TENSOR_ERR_SHAPE, "%s: %s%s %d must be at least %d and below 2^30", op, what[k],
                          d == 3 - rank ? "" : dim[d], list[k][d], low);
        }
    }
    return 1;
}

TENSOR__FN const char *nn__image_text(int rank) {
    if (rank == 1) { return "[N, C, L] or [C, L]"; }
    if (rank == 2) { return "[N, C, H, W] or [C, H, W]"; }
    return "[N, C, D, H, W] or [C, D, H, W]";
}

// ---- convolutions and pools of integers, made of other ops: one tap of the window at a time, for all
// outputs at once. Images are [N, C, d, h, w], with 1 for dims that x lacks; sums wrap.

// How many taps the window has.
TENSOR__FN int64_t nn__taps(const nn__window_t *g) { return nn__volume(g->kernel); }

// The input elements under one tap, a view [N, C, out...] of image: x with its padding.
TENSOR__FN tensor_t *nn__under_tap(tensor_t *image, const nn__window_t *g, int64_t tap) {
    int64_t offset = image->offset;
    if (image->state != TENSOR__LIVE) { return image; }
    int64_t at[3];
    at[2] = tap % g->kernel[2];
    at[1] = tap / g->kernel[2] % g->kernel[1];
    at[0] = tap / g->kernel[2] / g->kernel[1];
    int64_t dims[5], strides[5];
    for (int64_t d = 0; d < 2; d++) {
        dims[d] = image->dims[d];
        strides[d] = image->strides[d];
    }
    for (int64_t d = 0; d < 3; d++) {
        dims[2 + d] = g->out[d];
        strides[2 + d] = image->strides[2 + d] * g->stride[d];
        offset += at[d] * g->dilation[d] * image->strides[2 + d];
    }
    return (tensor_as_strided)(image, dims, strides, 5, offset);
}

// The size of the image that the taps of all outputs cover, along d.
TENSOR__FN int64_t nn__covered(const nn__window_t *g, int64_t d) {
    return (g->out[d] - 1) * g->stride[d] + (g->kernel[d] - 1) * g->dilation[d] + 1;
}

// x as such an image, or as a larger one with value around it.
TENSOR__FN tensor_t *nn__framed(tensor_t *x, const nn__window_t *g, double value) {
    int64_t pads[6];                    // beginning with the last dim
    for (int64_t d = 0; d < 3; d++) {
        pads[4 - 2 * d] = g->pad[d];
        pads[5 - 2 * d] = nn__max(nn__covered(g, d) - g->in[d] - g->pad[d], 0);
    }
    return nn__contiguous((tensor_pad_n)(x, pads, 6, TENSOR_PAD_CONSTANT, value));
}

// The kernel's elements for one tap as matrices [groups, rows, columns], of weight [d0, d1, kernel...].
TENSOR__FN tensor_t *nn__weight_tap(tensor_t *w, const nn__window_t *g, int64_t tap) {
    int64_t groups = g->groups;
    tensor_t *flat = nn__as(w, 3, w->dims[0], w->dims[1], nn__taps(g), 0);
    return nn__as((tensor_select)(flat, 2, tap), 3, groups, w->dims[0] / groups, w->dims[1], 0);
}

// x [N, C, L], [N, C, H, W] or [N, C, D, H, W] with all its dims.
TENSOR__FN tensor_t *nn__with_depth(tensor_t *x) {
    int64_t dims[5] = {1, 1, 1, 1, 1};
    for (int d = 0; d < 2; d++) { dims[d] = x->dims[d]; }
    for (int d = 2; d < x->ndim; d++) { dims[5 - x->ndim + d] = x->dims[d]; }
    return (tensor_reshape_n)(x, dims, 5);
}

// The convolution, [N, groups, O / groups, outputs]: the sum over the taps of matrix products.
TENSOR__FN tensor_t *nn__conv_taps(tensor_t *x, tensor_t *w, const nn__window_t *g) {
    int64_t n = x->dims[0], groups = g->groups, inputs = x->dims[1] / groups;
    tensor_t *image = nn__framed(nn__with_depth(x), g, 0), *y = NULL;
    for (int64_t tap = 0; tap < nn__taps(g); tap++) {
        tensor_t *part = nn__as(nn__under_tap(image, g, tap), 4, n, groups, inputs, nn__volume(g->out));
        part = (tensor_matmul)(nn__weight_tap(w, g, tap), part);
        y = y ? (tensor_add)(y, part) : part;
    }
    return y;
}

// The transposed convolution, [N, O, d, h, w]: each tap adds to the elements that it reaches; the padding is
// cut off. g.in is the size of the result, g.out that of x.
TENSOR__FN tensor_t *nn__conv_transposed_taps(tensor_t *x, tensor_t *w, const nn__window_t *g) {
    int64_t n = x->dims[0], groups = g->groups, inputs = x->dims[1] / groups, dims[5];
    tensor_t *columns = nn__as(x, 4, n, groups, inputs, nn__volume(g->out));
    dims[0] = n;
    dims[1] = w->dims[1] * groups;
    for (int64_t d = 0; d < 3; d++) { dims[2 + d] = nn__max(nn__covered(g, d), g->in[d] + g->pad[d]); }
    tensor_t *y = nn__like(dims, 5, 0, x);
    for (int64_t tap = 0; tap < nn__taps(g); tap++) {
        tensor_t *part = (tensor_matmul)((tensor_mT)(nn__weight_tap(w, g, tap)), columns);
        tensor_t *to = nn__under_tap(y, g, tap);
        if ((tensor_is_poison)(to)) { return to; }
        part = (tensor_add_)(to, (tensor_reshape_n)(part, to->dims, to->ndim));
        if ((tensor_is_poison)(part)) { return part; }
    }
    for (int64_t d = 0; d < 3; d++) { y = (tensor_narrow)(y, 2 + d, g->pad[d], g->in[d]); }
    return y;
}

// What only rows of the convolutions have (row->own).
typedef struct nn__taps_t {
    tensor_t *(*run)(tensor_t *x, tensor_t *w, const nn__window_t *g);
} nn__taps_t;
static const nn__taps_t nn__of_conv_taps = {nn__conv_taps};
static const nn__taps_t nn__of_conv_transposed_taps = {nn__conv_transposed_taps};

// A convolution or a transposed one, with bias; x has a batch dim, and the result has dims.
TENSOR__FN tensor_t *nn__conv_integers(const tensor__row_t *row, tensor_t *x, tensor_t *w, tensor_t *bias,
                                       const nn__window_t *g, const int64_t *dims) {
    tensor_t *y = ((const nn__taps_t *)row->own)->run(x, w, g);
    int64_t each[5] = {1, 1, 1, 1, 1};
    y = (tensor_reshape_n)(y, dims, x->ndim);
    if (!bias) { return (tensor_contiguous)(y); }
    each[0] = dims[1];
    return (tensor_add)(y, (tensor_reshape_n)(bias, each, x->ndim - 1));
}

// Checks x, weight and bias and convolves them (transposed: the transposed convolution). g holds stride,
// padding and dilation, mode the groups, and in the output_padding of a transposed one.
TENSOR__FN tensor_t *nn__conv_front(const tensor__row_t *row, tensor_t *x, tensor_t *w, tensor_t *bias,
                                    nn__window_t g, int same) {
    const int id = row->id;
    tensor__op_t o;
    tensor_t *in[3] = {x, w, bias};
    int transposed = id >= NN_OP_CONV_TRANSPOSE1D;
    int rank = id - (transposed ? NN_OP_CONV_TRANSPOSE1D : NN_OP_CONV1D) + 1;
    int64_t groups = g.groups;
    const char *op = row->name;
    NN__AUTOCAST(row->cast, nn__conv_front(row, cast_[0], cast_[1], cast_[2], g, same), x, w, bias)
    if (!TENSOR__(begin)(&o, row, in, 3) || !nn__one_dtype(&o, 7, 1)) { return TENSOR__(poison); }
    if (x->ndim != rank + 2 && x->ndim != rank + 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must be %s", op, x, nn__image_text(rank));
    }
    if (w->ndim != rank + 2) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: weight %t must have %i dims, %s", op, w, rank + 2,
                        transposed ? "[C, O / groups, kernel]" : "[O, C / groups, kernel]");
    }
    if (groups < 1 || w->dims[0] % groups != 0) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: groups %d must divide the first dim of weight %t", op, groups,
                        w);
    }
    int64_t channels = transposed ? w->dims[0] : w->dims[1] * groups;
    int64_t dims[5];
    dims[1] = transposed ? w->dims[1] * groups : w->dims[0];
    if (x->dims[x->ndim - rank - 1] != channels) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must have %d channels for weight %t, groups %d", op, x,
                        channels, w, groups);
    }
    if (bias && (bias->ndim != 1 || bias->dims[0] != dims[1])) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: bias %t must have the %d outputs of weight %t", op, bias,
                        dims[1], w);
    }
    for (int64_t d = 0; d < rank; d++) { g.kernel[3 - rank + d] = w->dims[2 + d]; }
    for (int64_t d = 0; d < 3 && !transposed; d++) {  // any that gives one output
        if (nn__max(x->numel, g.pad[d]) <= 1 << 28) { g.stride[d] = nn__min(g.stride[d], 0x3FFFFFFF); }
    }
    if (!nn__window_valid(op, rank, &g)) { return TENSOR__(poison); }
    for (int64_t d = 0; d < 3; d++) {
        if (same && (g.stride[d] != 1 || g.pad[d] != 0)) {
            return NN__FAIL(TENSOR_ERR_SHAPE,
                            "%s: same needs stride 1 and no padding (got stride %d, padding %d)", op,
                            g.stride[d], g.pad[d]);
        }
    }
    if (nn__is_half(x) && !TENSOR__(halves)(x)) {
        return nn__narrow(nn__conv_front(row, nn__wide(x), nn__wide(w), nn__wide(bias), g, same), x);
    }
    dims[0] = x->ndim == rank + 2 ? x->dims[0] : 1;
    for (int64_t d = 3 - rank; d < 3; d++) {
        int64_t size = x->dims[x->ndim - 3 + d], span = g.dilation[d] * (g.kernel[d] - 1), out;
        if (transposed) {
            if (g.in[d] < 0 || (g.in[d] >= g.stride[d] && g.in[d] >= g.dilation[d])) {
                return NN__FAIL(TENSOR_ERR_SHAPE,
                                "%s: output_padding %d must be below the stride %d or the dilation %d", op,
                                g.in[d], g.stride[d], g.dilation[d]);
            }
            out = size > 0x7FFFFFFF ? -1 : (size - 1) * g.stride[d] - 2 * g.pad[d] + span + g.in[d] + 1;
            if (size < 1 || out < 1) {
                return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t and padding %d leave no output", op, x, g.pad[d]);
            }
            g.in[d] = out;
            g.out[d] = size;
        } else {
            int64_t k = size + 2 * g.pad[d] - span - 1;
            if (same) {
                g.pad[d] = span / 2;
            } else if (k < 0) {
                return NN__FAIL(TENSOR_ERR_SHAPE,
                                "%s: kernel of weight %t (%d with dilation) is larger than "
                                "x %t with padding %d",
                                op, w, span + 1, x, g.pad[d]);
            }
            g.in[d] = size;
            g.out[d] = out = same ? size : k / g.stride[d] + 1;
        }
        dims[2 + d - (3 - rank)] = out;
    }
    tensor_t *y;
    if (!nn__is_float(x)) {
        tensor_scope_t scope = TENSOR__(scope)(0);
        tensor_t *batch = x->ndim == rank + 2 ? x : (tensor_unsqueeze)(x, 0);
        if ((tensor_is_poison)(batch)) { return (tensor_scope_return)(scope, batch); }
        y = nn__conv_integers(row, batch, w, bias, &g, dims);
        if (x->ndim == rank + 1) { y = (tensor_squeeze)(y, 0); }
        return (tensor_scope_return)(scope, y);
    }
    if (x->ndim == rank + 2) { return nn__conv_run(&o, &g, dims); }
    o.args[0] = (tensor_unsqueeze)(x, 0);
    if ((tensor_is_poison)(o.args[0])) { return TENSOR__(poison); }
    return (tensor_reshape_n)(nn__conv_run(&o, &g, dims), dims + 1, rank + 1);
}

// What all of these functions and layers read from their options `a` into the window g. 0 after raising.
#define NN__CONV_WINDOW(op, rank, a, g)                                                                      \
    ((g)->groups = (a)->groups, NN__TRIPLE(op, rank, a, stride, (g)->stride) &&                              \
                                  NN__TRIPLE(op, rank, a, padding, (g)->pad) &&                              \
                                  NN__TRIPLE(op, rank, a, dilation, (g)->dilation))

TENSOR__FN tensor_t *nn__conv_call(const tensor_conv_args_t *a, int rank) {
    const tensor__row_t *row = nn__conv_row(rank);
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    if (!NN__CONV_WINDOW(op, rank, a, &g)) { return TENSOR__(poison); }
    return nn__conv_front(row, a->x, a->weight, a->bias, g, a->same);
}

TENSOR__FN tensor_t *nn__conv_transpose_call(const tensor_conv_transpose_args_t *a, int rank) {
    const tensor__row_t *row = nn__conv_transpose_row(rank);
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    if (!NN__CONV_WINDOW(op, rank, a, &g) || !NN__TRIPLE(op, rank, a, output_padding, g.in)) {
        return TENSOR__(poison);
    }
    return nn__conv_front(row, a->x, a->weight, a->bias, g, 0);
}

#define NN__CONV_SET NN__OR(groups, 1) NN__OR_DIMS(stride, 1) NN__OR_DIMS(padding, 0) NN__OR_DIMS(dilation, 1)
// The functions of an op for 1, 2 and 3 dims.
#define NN__PER_RANK(op)                                                                                     \
    NN__FRONT(op##1d, tensor_##op, nn__##op##_call(&a, 1))                                                   \
    NN__FRONT(op##2d, tensor_##op, nn__##op##_call(&a, 2))                                                   \
    NN__FRONT(op##3d, tensor_##op, nn__##op##_call(&a, 3))
NN__FILL_DEFAULTS(tensor_conv, NN__CONV_SET)
NN__FILL_DEFAULTS(tensor_conv_transpose, NN__CONV_SET NN__OR_DIMS(output_padding, 0))
NN__PER_RANK(conv)
NN__PER_RANK(conv_transpose)

// ------------------------------------------------------------------------------
// >>impl-columns                                   MARK: im2col, col2im
//
// A task has one plane of images [N, C, H, W], or its columns in [N, C taps, pixels]; each of the two ops is
// the gradient of the other. Rejected: views with overlapping strides (their gradient would need the same
// sums).
// ------------------------------------------------------------------------------

typedef struct nn__columns_t {
    const nn__cpu_t *k;
    const tensor_arg_t *from, *to;
    nn__window_t g;
    nn__block_t b;
    int64_t per, planes;
    int back;
} nn__columns_t;

TENSOR__FN void nn__columns_task(void *arg, int64_t task, int worker) {
    const nn__columns_t *v = (const nn__columns_t *)arg;
    int64_t i = task * v->per, end = nn__min(i + v->per, v->planes), plane = nn__volume(v->g.in);
    int64_t column = nn__volume(v->g.kernel) * nn__volume(v->g.out);
    (void)worker;
    for (; i < end; i++) {
        if (!v->back) {
            nn__im2col(nn__at(v->from, i * plane), nn__at(v->to, i * column), &v->g, nn__es(v->to->dtype), 1,
                       &v->b);
            continue;
        }
        NN__DO(v->k, fill)(nn__at(v->to, i * plane), 0, plane);
        NN__DO(v->k, col2im)(nn__at(v->from, i * column), nn__at(v->to, i * plane), &v->g, 1, &v->b);
    }
}

TENSOR__FN int nn__cpu_columns(tensor_call_t *c) {
    nn__columns_t v;
    v.k = nn__cpu(c->arg[0].dtype);
    v.from = &c->arg[0];
    v.to = &c->arg[1];
    v.g = c->p->window;
    v.back = c->row->id == NN_OP_COL2IM;
    v.b.r0 = v.b.x0 = 0;
    v.b.r1 = v.g.out[0] * v.g.out[1];
    v.b.x1 = v.g.out[2];
    const tensor_arg_t *image = v.back ? v.to : v.from;
    v.planes = image->dims[0] * image->dims[1];
    v.per = nn__per(v.planes, nn__volume(v.g.kernel) * nn__volume(v.g.out));
    nn__run(nn__ceil(v.planes, v.per), nn__columns_task, &v);
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__columns_op(const tensor__row_t *row, tensor_t *x, const nn__window_t *window,
                                    const int64_t *dims, int ndim) {
    tensor__op_t o;
    tensor_t *const in[1] = {nn__contiguous(x)};
    if (!TENSOR__(begin)(&o, row, in, 1)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.window = *window;
    TENSOR__(result)(&o, in[0]->dtype, dims, ndim);
    return TENSOR__(finish)(&o);
}

TENSOR__FN void nn__grad_columns(tensor__grad_t *g) {
    const tensor__meta_t *in = &g->node->in[0];
    int back = g->node->row->id == NN_OP_COL2IM;
    const tensor__row_t *other = back ? NN__ROW(IM2COL) : NN__ROW(COL2IM);
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = nn__columns_op(other, g->gy[0], &g->p->window, in->dims, in->ndim);
    }
}

#define NN__COLUMNS_WINDOW(op, a, g)                                                                         \
    (NN__PAIR(op, a, kernel, (g)->kernel) && NN__PAIR(op, a, dilation, (g)->dilation) &&                     \
     NN__PAIR(op, a, padding, (g)->pad) && NN__PAIR(op, a, stride, (g)->stride) &&                           \
     nn__triple(op, "height", 2, (a)->height, -1, (a)->width > 0 ? (a)->width : -1, (g)->in))
#define NN__COLUMNS_SET                                                                                      \
    NN__OR_PAIR(kernel, 0) NN__OR_PAIR(dilation, 1) NN__OR_PAIR(padding, 0) NN__OR_PAIR(stride, 1)

// g.in: the size of the images that col2im adds into.
TENSOR__FN tensor_t *nn__columns_front(const tensor__row_t *row, tensor_t *x, nn__window_t g) {
    tensor__op_t o;
    const char *op = row->name;
    int64_t back = row->id == NN_OP_COL2IM;
    if (!TENSOR__(begin)(&o, row, &x, 1) || !nn__floats(&o, 1) || !nn__window_valid(op, 2, &g)) {
        return TENSOR__(poison);
    }
    int lead = x->ndim - (back ? 2 : 3);
    if (lead != 0 && lead != 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must be %s", op, x,
                        back ? "[N, C taps, L] or [C taps, L]" : nn__image_text(2));
    }
    int64_t taps = g.kernel[1] * g.kernel[2];
    int64_t dims[4];
    dims[0] = lead ? x->dims[0] : 1;
    for (int64_t d = 1; d < 3; d++) {
        if (!back) { g.in[d] = x->dims[lead + d]; }
        g.out[d] = g.in[d] < 1 || g.in[d] > 0x7FFFFFFF ? -1
                   : g.in[d] + 2 * g.pad[d] - g.dilation[d] * (g.kernel[d] - 1) - 1;
        if (g.out[d] < 0) {
            return NN__FAIL(TENSOR_ERR_SHAPE, "%s: kernel %d does not fit into an image of %d", op,
                            g.kernel[d], g.in[d]);
        }
        g.out[d] = g.out[d] / g.stride[d] + 1;
        dims[1 + d] = g.in[d];
    }
    if (back && (x->dims[lead] % taps != 0 || x->dims[lead + 1] != g.out[1] * g.out[2])) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must have a multiple of %d rows and %d columns", op, x,
                        taps, g.out[1] * g.out[2]);
    }
    dims[1] = back ? x->dims[lead] / taps : x->dims[lead] * taps;
    if (!back) { dims[2] = g.out[1] * g.out[2]; }
    tensor_t *y =
        nn__columns_op(row, lead ? nn__wide(x) : (tensor_unsqueeze)(nn__wide(x), 0), &g, dims, back ? 4 : 3);
    return nn__narrow(lead ? y : (tensor_squeeze)(y, 0), x);
}

TENSOR__FN tensor_t *nn__columns_call(const tensor__row_t *row, const tensor_columns_args_t *a) {
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    return NN__COLUMNS_WINDOW(op, a, &g) ? nn__columns_front(row, a->x, g) : TENSOR__(poison);
}

NN__FILL_DEFAULTS(tensor_columns, NN__COLUMNS_SET)
NN__FRONT(im2col, tensor_columns, nn__columns_call(NN__ROW(IM2COL), &a))
NN__FRONT(col2im, tensor_columns, nn__columns_call(NN__ROW(COL2IM), &a))

// ------------------------------------------------------------------------------
// >>impl-pool                                      MARK: pooling
//
// One plane after another; a window is cut at the padding. max_pool keeps the position of each maximum, for
// its gradient and for unpooling. Adaptive, lp and integer pools are made of other ops. Rejected: windows as
// an unfolded copy.
// ------------------------------------------------------------------------------

typedef struct nn__pool_t {
    const nn__cpu_t *k;
    nn__window_t g;
    const tensor_arg_t *x, *y, *place;
    int64_t planes, per, in, out;   // planes, planes per task, elements of an input and an output plane
    void (*plane)(const struct nn__pool_t *v, char *x, char *y, int32_t *place);
} nn__pool_t;

TENSOR__FN void nn__pool_task(void *arg, int64_t task, int worker) {
    const nn__pool_t *v = (const nn__pool_t *)arg;
    int64_t i = task * v->per, end = nn__min(i + v->per, v->planes);
    (void)worker;
    for (; i < end; i++) {
        int32_t *place = v->place ? (int32_t *)v->place->data + i * v->out : NULL;
        v->plane(v, nn__at(v->x, i * v->in), nn__at(v->y, i * v->out), place);
    }
}

// place: NULL for the mean.
TENSOR__FN int nn__pool(const tensor_call_t *c, const tensor_arg_t *x, const tensor_arg_t *y,
                        const tensor_arg_t *place,
                        void (*plane)(const nn__pool_t *v, char *x, char *y, int32_t *place)) {
    nn__pool_t v;
    v.k = nn__cpu(x->dtype);
    v.g = c->p->window;
    v.x = x;
    v.y = y;
    v.place = place;
    v.plane = plane;
    v.in = nn__volume(v.g.in);
    v.out = nn__volume(v.g.out);
    v.planes = v.out ? y->numel / v.out : 0;
    if (!v.out && v.in) { v.planes = x->numel / v.in; }  // no outputs: a gradient of zeros
    v.per = nn__per(v.planes, v.in + v.out * 4);
    nn__run(nn__ceil(v.planes, v.per), nn__pool_task, &v);
    return TENSOR_OK;
}

TENSOR__FN void nn__max_pool_plane(const nn__pool_t *v, char *x, char *y, int32_t *place) {
    if (v->out) { NN__DO(v->k, max_pool)(x, y, place, &v->g); }
}

TENSOR__FN void nn__max_unpool_plane(const nn__pool_t *v, char *x, char *y, int32_t *place) {
    NN__DO(v->k, fill)(x, 0, v->in);
    if (v->out) { NN__DO(v->k, max_unpool)(y, place, x, v->out); }
}

TENSOR__FN void nn__avg_pool_plane(const nn__pool_t *v, char *x, char *y, int32_t *place) {
    (void)place;
    if (v->out) { NN__DO(v->k, avg_pool)(x, y, &v->g, 0); }
}

TENSOR__FN void nn__avg_unpool_plane(const nn__pool_t *v, char *x, char *y, int32_t *place) {
    (void)place;
    NN__DO(v->k, fill)(x, 0, v->in);
    if (v->out) { NN__DO(v->k, avg_pool)(x, y, &v->g, 1); }
}

TENSOR__FN int nn__cpu_max_pool(tensor_call_t *c) {
    return nn__pool(c, &c->arg[0], &c->arg[1], &c->arg[2], nn__max_pool_plane);
}

TENSOR__FN int nn__cpu_max_unpool(tensor_call_t *c) {
    return nn__pool(c, &c->arg[2], &c->arg[0], &c->arg[1], nn__max_unpool_plane);
}

TENSOR__FN int nn__cpu_avg_pool(tensor_call_t *c) {
    return nn__pool(c, &c->arg[0], &c->arg[1], NULL, nn__avg_pool_plane);
}

TENSOR__FN int nn__cpu_avg_unpool(tensor_call_t *c) {
    return nn__pool(c, &c->arg[1], &c->arg[0], NULL, nn__avg_unpool_plane);
}

// A pooling op of x (and of places, for max's gradient) with a result of `dims`, as many as x has. places:
// output or NULL.
TENSOR__FN tensor_t *nn__pool_op(const tensor__row_t *row, tensor_t *x, tensor_t *place,
                                 const nn__window_t *window, const int64_t *dims, tensor_t **places) {
    tensor__op_t o;
    tensor_t *const in[2] = {nn__image(x), place};
    tensor_t *like = place && TENSOR__(lasts)(place) ? place : in[0];
    if (!TENSOR__(begin)(&o, row, in, place ? 2 : 1)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.window = *window;
    TENSOR__(follow)(TENSOR__(result)(&o, x->dtype, dims, x->ndim), like);
    if (row->nout == 2) {
        TENSOR__(follow)(TENSOR__(result)(&o, TENSOR_I32, dims, x->ndim), like);
        if (places) { o.visible = 2; }
    }
    tensor_t *y = TENSOR__(finish)(&o);
    if (places) { *places = y->state == TENSOR__POISON_STATE ? y : o.out[1]; }
    return y;
}

TENSOR__FN void nn__grad_max_pool(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = nn__pool_op(NN__ROW(MAX_POOL_BACKWARD), g->gy[0], TENSOR__(grad_out)(g, 1), &g->p->window,
                               g->node->in[0].dims, NULL);
    }
}

// The gradient of unpooling: g is gathered from the positions where elements were put.
TENSOR__FN void nn__grad_max_unpool(tensor__grad_t *g) {
    tensor_t *place = TENSOR__(grad_in)(g, 1);
    const tensor__meta_t *in = &g->node->in[0];
    nn__window_t w = g->p->window;
    if (!TENSOR__(grad_need)(g, 0)) { return; }
    int64_t to[2];
    to[1] = nn__volume(w.out);
    int64_t from[2];
    to[0] = from[0] = place->numel / nn__max(to[1], 1);
    from[1] = nn__volume(w.in);
    tensor_t *flat =
        (tensor_gather)((tensor_reshape_n)(g->gy[0], from, 2), 1, (tensor_reshape_n)(place, to, 2));
    g->gx[0] = (tensor_reshape_n)(flat, in->dims, in->ndim);
}

TENSOR__FN void nn__grad_avg_pool(tensor__grad_t *g) {
    int back = g->node->row->id == NN_OP_AVG_POOL_BACKWARD;
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = nn__pool_op(back ? NN__ROW(AVG_POOL2D) : NN__ROW(AVG_POOL_BACKWARD), g->gy[0], NULL,
                               &g->p->window, g->node->in[0].dims, NULL);
    }
}

// Pools of integers, the planes of x as [1, planes, in...]. places: as nn__pool_op.
TENSOR__FN tensor_t *nn__max_pool_integers(tensor_t *x, const nn__window_t *g, tensor_t **places) {
    int64_t plane = nn__volume(g->in);
    int bits = 8 * (int)(tensor_dtype_size)((tensor_dtype_t)x->dtype);
    double least = x->dtype == TENSOR_U8 ? 0 : -ldexp(1, bits - 1);
    tensor_t *image = nn__framed(x, g, least);

    // The position of each element in its plane, -1 outside it.
    tensor_t *grid = nn__beside((tensor_arange)(0, (double)plane, 1, TENSOR_I32), x);
    const int64_t dims[5] = {1, 1, g->in[0], g->in[1], g->in[2]};
    grid = nn__framed((tensor_reshape_n)(grid, dims, 5), g, -1);
    tensor_t *y = nn__under_tap(image, g, 0);
    tensor_t *place = nn__under_tap(grid, g, 0);
    for (int64_t tap = 1; tap < nn__taps(g); tap++) {
        tensor_t *value = nn__under_tap(image, g, tap), *at = nn__under_tap(grid, g, tap);
        // The first of the largest elements, and none outside the plane.
        tensor_t *better = (tensor_logical_or)((tensor_lt_scalar)(place, 0), (tensor_gt)(value, y));
        better = (tensor_logical_and)(better, (tensor_ge_scalar)(at, 0));
        y = (tensor_where)(better, value, y);
        place = (tensor_where)(better, at, place);
    }
    if (!(tensor_is_poison)(y)) { *places = (tensor_expand_n)(place, y->dims, y->ndim); }
    return nn__taps(g) > 1 ? y : (tensor_clone)(y);         // with one tap it is a view of x
}

// How many elements the mean of each window counts, [1, 1, out...]; 1 if it has none.
TENSOR__FN tensor_t *nn__window_counts(const nn__window_t *g) {
    const int64_t dims[5] = {1, 1, g->out[0], g->out[1], g->out[2]};
    tensor_t *counts = nn__host_tensor(dims, 5, TENSOR_I64);
    int64_t *n = (int64_t *)TENSOR__(host)(counts, TENSOR_HOST_WRITE, "avg_pool");
    if (!n) { return TENSOR__(poison); }
    int64_t from, to;
    for (int64_t oz = 0; oz < g->out[0]; oz++) {
        int64_t nz = nn__window_at(g, 0, oz, &from, &to);
        for (int64_t oy = 0; oy < g->out[1]; oy++) {
            int64_t ny = nz * nn__window_at(g, 1, oy, &from, &to);
            for (int64_t ox = 0; ox < g->out[2]; ox++) {
                *n++ = nn__max(ny * nn__window_at(g, 2, ox, &from, &to), 1);
            }
        }
    }
    return counts;
}

TENSOR__FN tensor_t *nn__avg_pool_integers(tensor_t *x, const nn__window_t *g, tensor_t **places) {
    tensor_t *image = nn__framed((tensor_to)(x, TENSOR_I64), g, 0), *y = nn__under_tap(image, g, 0);
    (void)places;
    for (int64_t tap = 1; tap < nn__taps(g); tap++) { y = (tensor_add)(y, nn__under_tap(image, g, tap)); }
    tensor_t *counts = g->divisor ? (tensor_scalar)((double)g->divisor, TENSOR_I64) : nn__window_counts(g);
    return (tensor_to)((tensor_div_mode)(y, nn__beside(counts, x), "trunc"), x->dtype);
}

// What only rows of the pools have (row->own).
typedef struct nn__integers_t {
    tensor_t *(*run)(tensor_t *x, const nn__window_t *g, tensor_t **places);
} nn__integers_t;
static const nn__integers_t nn__of_max_pool_integers = {nn__max_pool_integers};
static const nn__integers_t nn__of_avg_pool_integers = {nn__avg_pool_integers};

// The pool of integers x; the result has dims.
TENSOR__FN tensor_t *nn__pool_integers(const tensor__row_t *row, tensor_t *x, const nn__window_t *g,
                                       const int64_t *dims, tensor_t **places) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *place = TENSOR__(poison);
    int ndim = x->ndim;
    int64_t plane = nn__volume(g->in);
    const int64_t image[5] = {1, x->numel / plane, g->in[0], g->in[1], g->in[2]};
    tensor_t *y = (tensor_reshape_n)(x, image, 5);
    if (!(tensor_is_poison)(y)) { y = ((const nn__integers_t *)row->own)->run(y, g, &place); }
    y = (tensor_reshape_n)(y, dims, ndim);
    if (places && !(tensor_is_poison)(y)) {     // stays after the scope: nn__indexed frees it
        *places = (tensor_keep)((tensor_reshape_n)(place, dims, ndim));
    }
    return (tensor_scope_return)(scope, y);
}

// The front of all pools. ceil: windows may start inside the padded image and end outside. places: as
// nn__pool_op.
TENSOR__FN tensor_t *nn__pool_front(const tensor__row_t *row, int rank, tensor_t *x, nn__window_t g,
                                    int ceil, tensor_t **places) {
    const char *op = row->name;
    int64_t volume = 1;
    if (places) { *places = TENSOR__(poison); }
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, row, &x, 1)) { return TENSOR__(poison); }
    if (!nn__one_dtype(&o, 1, g.mode != NN__ADAPTIVE)) { return TENSOR__(poison); }
    if (x->ndim != rank + 2 && x->ndim != rank + 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must be %s", op, x, nn__image_text(rank));
    }
    if (!nn__window_valid(op, rank, &g)) { return TENSOR__(poison); }
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    for (int64_t d = 3 - rank; d < 3; d++) {
        int64_t size = x->dims[x->ndim - 3 + d], pad = g.pad[d], stride = g.stride[d];
        if (size > 0x7FFFFFFF || (size > 0 && (volume *= size) > 0x7FFFFFFF)) {
            return NN__FAIL(TENSOR_ERR_SHAPE, "%s: planes of x %t must have less than 2^31 elements", op, x);
        }
        g.in[d] = size;
        if (g.mode == NN__ADAPTIVE) {
            if (size < 1) { return NN__FAIL(TENSOR_ERR_SHAPE, "%s: planes of x %t are empty", op, x); }
            if (g.out[d] < -1) {
                return NN__FAIL(TENSOR_ERR_SHAPE, "%s: size %d of the result must be >= 0, or -1 as x's", op,
                                g.out[d]);
            }
            if (g.out[d] < 0) { g.out[d] = size; }
        } else {
            if (2 * pad > g.kernel[d]) {
                return NN__FAIL(TENSOR_ERR_SHAPE, "%s: padding %d must be at most half the kernel %d", op,
                                pad, g.kernel[d]);
            }
            int64_t k = size + 2 * pad - g.dilation[d] * (g.kernel[d] - 1) - 1;
            if (ceil) { k += stride - 1; }
            if (k < 0 || size == 0) {
                return NN__FAIL(TENSOR_ERR_SHAPE, "%s: kernel %d does not fit into x %t with padding %d", op,
                                g.kernel[d], x, pad);
            }
            g.out[d] = k / stride + 1;
            if (ceil && (g.out[d] - 1) * stride >= size + pad) { g.out[d]--; }
        }
        dims[x->ndim - 3 + d] = g.out[d];
    }
    if (!nn__is_float(x)) { return nn__pool_integers(row, x, &g, dims, places); }
    return nn__is_half(x) ? nn__narrow(nn__pool_op(row, nn__wide(x), NULL, &g, dims, places), x)
                          : nn__pool_op(row, x, NULL, &g, dims, places);
}

// The stride of a pool: 0 means the kernel's size; in args taken literally (called is NULL), -1 as well.
TENSOR__FN int nn__pool_stride(const char *op, int rank, const void *called, int64_t v, int64_t h, int64_t w,
                               nn__window_t *g) {
    const int64_t stride[3] = {v, h, w};
    int given = v != 0 && (v != -1 || called);
    if (!nn__triple(op, "stride", rank, called && v == TENSOR_ZERO ? 0 : v, h, w, g->stride)) { return 0; }
    for (int d = 3 - rank; d < 3 && !given; d++) {
        if (d == 3 - rank || stride[d] < 0) { g->stride[d] = g->kernel[d]; }
    }
    return 1;
}

#define NN__POOL_WINDOW(op, rank, a, g)                                                                      \
    (NN__TRIPLE(op, rank, a, kernel, (g)->kernel) && NN__TRIPLE(op, rank, a, padding, (g)->pad) &&           \
     nn__pool_stride(op, rank, (a)->options_are_named_, (a)->stride, (a)->stride_h, (a)->stride_w, g))
#define NN__POOL_SET NN__OR_DIMS(kernel, 0) NN__OR_DIMS(padding, 0) NN__OR(stride_h, -1) NN__OR(stride_w, -1)

TENSOR__FN tensor_t *nn__max_pool_run(const tensor_max_pool_args_t *a, int rank, tensor_t **places) {
    const tensor__row_t *row = nn__max_pool_row(rank);
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    if (!NN__POOL_WINDOW(op, rank, a, &g) || !NN__TRIPLE(op, rank, a, dilation, g.dilation)) {
        return TENSOR__(poison);
    }
    return nn__pool_front(row, rank, a->x, g, a->ceil_mode, places);
}

TENSOR__FN tensor_t *nn__max_pool_call(const tensor_max_pool_args_t *a, int rank) {
    return nn__max_pool_run(a, rank, NULL);
}

// The positions as i64, as in PyTorch.
TENSOR__FN tensor_pair_t nn__indexed(tensor_t *y, tensor_t *places) {
    tensor_pair_t r;
    r.values = y;
    r.indices = (tensor_to)(places, TENSOR_I64);
    if (places->state == TENSOR__LIVE) { (tensor_free)(places); }
    if ((tensor_is_poison)(r.indices)) { r.values = r.indices; }
    return r;
}

TENSOR__FN tensor_t *nn__avg_pool_call(const tensor_avg_pool_args_t *a, int rank) {
    const tensor__row_t *row = nn__avg_pool_row(rank);
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    g.mode = a->no_count_pad ? NN__NO_COUNT_PAD : NN__COUNT_PAD;
    g.divisor = a->divisor_override;
    if (!NN__POOL_WINDOW(op, rank, a, &g)) { return TENSOR__(poison); }
    return nn__pool_front(row, rank, a->x, g, a->ceil_mode, NULL);
}

NN__FILL_DEFAULTS(tensor_max_pool, NN__POOL_SET NN__OR_DIMS(dilation, 1))
NN__FILL_DEFAULTS(tensor_avg_pool, NN__POOL_SET)
NN__PER_RANK(max_pool)
NN__PER_RANK(avg_pool)
#define NN__X(rank)                                                                                          \
    TENSOR_API tensor_pair_t tensor__max_pool##rank##d_with_indices(tensor_max_pool_args_t a) {              \
        tensor_t *places = TENSOR__(poison), *y = places;                                                    \
        if (NN__TAKE("max_pool" #rank "d", tensor_max_pool, a)) y = nn__max_pool_run(&a, rank, &places);     \
        return tensor__at_pair(a.site_, nn__indexed(y, places));                                             \
    }
NN__X(1) NN__X(2) NN__X(3)
#undef NN__X

// The window of an adaptive pool with results of d x h x w.
TENSOR__FN nn__window_t nn__adaptive(int64_t d, int64_t h, int64_t w) {
    nn__window_t g = nn__window_unit();
    g.mode = NN__ADAPTIVE;
    g.out[0] = d;
    g.out[1] = h;
    g.out[2] = w;
    return g;
}

#define NN__X(rank, params, d0, d1, d2)                                                                      \
    TENSOR_API tensor_t *(tensor_adaptive_avg_pool##rank##d) params {                                        \
        return nn__pool_front(nn__avg_pool_row(rank), rank, x, nn__adaptive(d0, d1, d2), 0, NULL);           \
    }                                                                                                        \
    TENSOR_API tensor_pair_t (tensor_adaptive_max_pool##rank##d) params {                                    \
        tensor_t *places, *y;                                                                                \
        y = nn__pool_front(nn__max_pool_row(rank), rank, x, nn__adaptive(d0, d1, d2), 0, &places);           \
        return nn__indexed(y, places);                                                                       \
    }
NN__X(1, (tensor_t *x, int64_t l), 1, 1, l)
NN__X(2, (tensor_t *x, int64_t h, int64_t w), 1, h, w)
NN__X(3, (tensor_t *x, int64_t d, int64_t h, int64_t w), d, h, w)
#undef NN__X

// For functions made of others: their temporaries are freed, only the result stays.
#define NN__OPEN tensor_scope_t scope_ = TENSOR__(scope)(-1);
#define NN__CLOSE(y) return (tensor_scope_return)(scope_, y)

TENSOR__FN tensor_t *nn__lp_pool(tensor_t *x, int rank, double norm, int64_t kernel, int64_t stride,
                                 int ceil) {
    NN__OPEN
    tensor_avg_pool_args_t a = tensor_avg_pool_defaults();
    tensor_t *y = TENSOR__(poison);
    double side = (double)kernel;
    double window;
    if (rank == 1) {
        window = side;
    } else if (rank == 2) {
        window = side * side;
    } else {
        window = side * side * side;
    }
    if (norm == 0 || norm != norm || stride < 0) {
        y = NN__FAIL(TENSOR_ERR_SHAPE, "lp_pool%id: norm must not be 0, nor stride negative (got %g, %d)",
                     rank,
                     norm, stride);
        NN__CLOSE(y);
    }
    if (TENSOR__GIVEN(x) && x->state == TENSOR__LIVE && !nn__is_float(x)) {
        x = (tensor_to)(x, (tensor_get_default_dtype)());
    }
    a.x = (tensor_pow_scalar)(x, norm);
    a.kernel = kernel;
    a.stride = stride;
    a.ceil_mode = ceil;
    y = nn__avg_pool_call(&a, rank);
    y = (tensor_mul)((tensor_sign)(y), (tensor_relu)((tensor_abs)(y)));
    NN__CLOSE((tensor_pow_scalar)((tensor_mul_scalar)(y, window), 1 / norm));
}

#define NN__X(rank)                                                                                          \
    TENSOR_API tensor_t *(tensor_lp_pool##rank##d)(tensor_t *x, double norm, int64_t kernel, int64_t stride, \
                                                   int ceil) {                                               \
        return nn__lp_pool(x, rank, norm, kernel, stride, ceil);                                             \
    }
NN__X(1) NN__X(2) NN__X(3)
#undef NN__X

// sized: g.in is the size of the result, else that follows from x.
TENSOR__FN tensor_t *nn__max_unpool_front(const tensor__row_t *row, tensor_t *x, tensor_t *index,
                                          nn__window_t g, int sized) {
    const char *op = row->name;
    tensor__op_t o;
    tensor_t *const in[2] = {x, index};
    int rank = (int)row->id - NN_OP_MAX_UNPOOL1D + 1;
    if (!TENSOR__(begin)(&o, row, in, 2)) { return TENSOR__(poison); }
    if ((x->ndim != rank + 2 && x->ndim != rank + 1) || !nn__same_shape(x, index)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t and indices %t must have the same shape, %s", op, x,
                        index, nn__image_text(rank));
    }
    if (!nn__window_valid(op, rank, &g)) { return TENSOR__(poison); }
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, x->dims, (size_t)x->ndim * sizeof dims[0]);
    int64_t flat[2];
    flat[0] = 1;
    for (int d = 0; d < x->ndim - rank; d++) { flat[0] *= dims[d]; }
    int64_t from[2];
    from[0] = flat[0];
    from[1] = flat[1] = 1;
    for (int d = 3 - rank; d < 3; d++) {
        int64_t size = x->dims[x->ndim - 3 + d];
        int64_t usual = size > 0x7FFFFFFF ? 0 : (size - 1) * g.stride[d] - 2 * g.pad[d] + g.kernel[d];
        if (!sized) { g.in[d] = usual; }
        if (g.in[d] < 1 || g.in[d] > 0x7FFFFFFF / flat[1] || g.in[d] <= usual - g.stride[d] ||
            g.in[d] >= usual + g.stride[d]) {
            return NN__FAIL(TENSOR_ERR_SHAPE, "%s: size %d must be in %d..%d for x %t", op, g.in[d],
                            usual - g.stride[d] + 1, usual + g.stride[d] - 1, x);
        }
        from[1] *= size;
        flat[1] *= dims[x->ndim - 3 + d] = g.in[d];
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    tensor_t *y = nn__like(flat, 2, 0, x);
    y = (tensor_scatter)(y, 1, (tensor_reshape_n)(index, from, 2), (tensor_reshape_n)(x, from, 2));
    return (tensor_scope_return)(scope, (tensor_reshape_n)(y, dims, x->ndim));
}

TENSOR__FN tensor_t *nn__max_unpool_call(const tensor_max_unpool_args_t *a, int rank) {
    const tensor__row_t *row = nn__max_unpool_row(rank);
    const char *op = row->name;
    nn__window_t g = nn__window_unit();
    if (!NN__POOL_WINDOW(op, rank, a, &g) || !NN__TRIPLE(op, rank, a, size, g.in)) {
        return TENSOR__(poison);
    }
    return nn__max_unpool_front(row, a->x, a->indices, g, a->size > 0);
}

NN__FILL_DEFAULTS(tensor_max_unpool, NN__POOL_SET NN__OR_DIMS(size, 0))
NN__PER_RANK(max_unpool)
#undef NN__PER_RANK

// ------------------------------------------------------------------------------
// >>impl-resample                                  MARK: padding, shuffles, resampling
//
// Made of other ops: padding writes into a filled result, shuffles are views, resampling is products with the
// weights of each axis. So they need no gradients of their own. Rejected: a kernel per mode and rank.
// ------------------------------------------------------------------------------

// Elements i of dim d of x, with i clamped, mirrored or wrapped into its range.
TENSOR__FN tensor_t *nn__take(tensor_t *x, int64_t d, tensor_t *i, tensor_pad_t mode) {
    double last = (double)x->dims[d] - 1;
    if (mode == TENSOR_PAD_REPLICATE) {
        i = (tensor_clamp)(i, 0, last);
    } else if (mode == TENSOR_PAD_CIRCULAR) {
        i = (tensor_remainder_scalar)(i, last + 1);
    } else {  // last - |last - |i||
        i = (tensor_rsub_scalar)((tensor_abs)((tensor_rsub_scalar)((tensor_abs)(i), last)), last);
    }
    return (tensor_index_select)(x, d, (tensor_to)(i, TENSOR_I64));
}

TENSOR_API tensor_t *(tensor_pad_n)(tensor_t *x, const int64_t *pads, int n, tensor_pad_t mode,
                                    double value) {
    NN__OPEN
    tensor__op_t o;
    tensor_t *y = x;
    int64_t at = 0, step = 1;
    int changed = 0;
    if (!TENSOR__(begin)(&o, NN__ROW(PAD), &x, 1)) { NN__CLOSE(TENSOR__(poison)); }
    if (n < 0 || n % 2 != 0 || n > 2 * x->ndim || (n > 0 && !pads)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "pad: %i numbers for x %t, two for each dim from the last one are needed", n, x));
    }
    int64_t dims[TENSOR_MAX_DIMS], cut[TENSOR_MAX_DIMS];
    for (int d = x->ndim - 1; d >= 0; d--) {
        int64_t k = 2 * (x->ndim - 1 - d), left = 0, right = 0;
        if (k < n) {
            left = pads[k];
            right = pads[k + 1];
        }
        int64_t size = x->dims[d], most = mode == TENSOR_PAD_REFLECT ? size - 1 : size, sum;
        if (left < -0x3FFFFFFF || right < -0x3FFFFFFF || left > 0x3FFFFFFF || right > 0x3FFFFFFF ||
            (sum = size + left + right) < 0 || -left > size || -right > size) {
            NN__CLOSE(
                NN__FAIL(TENSOR_ERR_SHAPE, "pad: %d and %d do not fit dim %i of x %t", left, right, d, x));
        }
        if (mode != TENSOR_PAD_CONSTANT && (left || right)) {
            if ((mode != TENSOR_PAD_REPLICATE && (left > most || right > most)) || size == 0) {
                NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "pad: %d and %d must be at most %d for dim %i of x %t",
                                   left, right, most, d, x));
            }
            if (mode == TENSOR_PAD_CIRCULAR &&
                (left < 0 || right < 0)) {  // what is cut off does not return
                y = (tensor_narrow)(y, d, nn__max(-left, 0), size + nn__min(left, 0) + nn__min(right, 0));
                left = nn__max(left, 0);
            }
            y = nn__take(y, d,
                         nn__beside((tensor_arange)((double)-left, (double)(sum - left), 1, TENSOR_I64), x),
                         mode);
        }
        if (mode == TENSOR_PAD_CONSTANT) {
            // What remains of x, and its position in the result.
            if (left < 0 || right < 0) {
                y = (tensor_narrow)(y, d, left < 0 ? -left : 0, size + nn__min(left, 0) + nn__min(right, 0));
            }
            at += nn__max(left, 0) * step;
            cut[d] = step;
            changed |= left > 0 || right > 0;
            if (sum > 0 && step > 0x7FFFFFFFFFFF / sum) {
                NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "pad: the result for x %t is too large", x));
            }
            step *= sum;
        }
        dims[d] = sum;
    }
    if (changed && y->state == TENSOR__LIVE) {
        tensor_t *all = nn__like(dims, x->ndim, value, x);
        y = (tensor_as_strided_scatter)(all, y, y->dims, cut, y->ndim, at);
    }
    NN__CLOSE(y == x || !changed ? (tensor_clone)(y) : y);
}

// y, copied if it is a view of x: the result of a function that is documented as new.
TENSOR__FN tensor_t *nn__not_view(tensor_t *y, const tensor_t *x) {
    return y->state == TENSOR__LIVE && y->storage == x->storage ? (tensor_clone)(y) : y;
}

// [N, C, r, r, H, W] -> [N, C, H, r, W, r] and back.
TENSOR__FN tensor_t *nn__pixels(const tensor__row_t *row, tensor_t *x, int64_t r, const char *dims_text) {
    static const int64_t orders[2][6] = {{0, 1, 4, 2, 5, 3}, {0, 1, 3, 5, 2, 4}};
    NN__OPEN
    tensor__op_t o;
    int64_t lead = 1;
    int back = row->id == NN_OP_PIXEL_UNSHUFFLE;
    if (!TENSOR__(begin)(&o, row, &x, 1)) { NN__CLOSE(TENSOR__(poison)); }
    int n = x->ndim;
    if (n < 3 || r < 1 || r > 0x7FFF ||
        (back ? x->dims[n - 2] % r != 0 || x->dims[n - 1] % r != 0 : x->dims[n - 3] % (r * r) != 0)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must be %s for a factor of %d", o.row->name, x,
                           dims_text, r));
    }
    for (int d = 0; d < n - 3; d++) { lead *= x->dims[d]; }
    int64_t c = back ? x->dims[n - 3] : x->dims[n - 3] / (r * r);
    int64_t h = back ? x->dims[n - 2] / r : x->dims[n - 2];
    int64_t w = back ? x->dims[n - 1] / r : x->dims[n - 1];
    int64_t dims[TENSOR_MAX_DIMS];
    dims[0] = lead;
    dims[1] = c;
    dims[2] = back ? h : r;
    dims[3] = r;
    dims[4] = back ? w : h;
    dims[5] = back ? r : w;
    tensor_t *y = (tensor_permute_n)((tensor_reshape_n)(x, dims, 6), orders[back], 6);
    memcpy(dims, x->dims, (size_t)n * sizeof dims[0]);
    dims[n - 3] = back ? c * r * r : c;
    dims[n - 2] = back ? h : h * r;
    dims[n - 1] = back ? w : w * r;
    NN__CLOSE(nn__not_view((tensor_reshape_n)((tensor_contiguous)(y), dims, n), x));
}

TENSOR_API tensor_t *(tensor_pixel_shuffle)(tensor_t *x, int64_t factor) {
    return nn__pixels(NN__ROW(PIXEL_SHUFFLE), x, factor, "[..., C factor^2, H, W]");
}

TENSOR_API tensor_t *(tensor_pixel_unshuffle)(tensor_t *x, int64_t factor) {
    return nn__pixels(NN__ROW(PIXEL_UNSHUFFLE), x, factor, "[..., H factor, W factor]");
}

TENSOR_API tensor_t *(tensor_channel_shuffle)(tensor_t *x, int64_t groups) {
    NN__OPEN
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(CHANNEL_SHUFFLE), &x, 1)) { NN__CLOSE(TENSOR__(poison)); }
    if (x->ndim < 3 || groups < 1 || x->dims[1] % groups != 0) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "channel_shuffle: x %t must be [N, C, ...], C a multiple of groups %d", x,
                           groups));
    }
    x = nn__as(x, 4, x->dims[0], groups, x->dims[1] / groups, x->numel / nn__max(x->dims[0] * x->dims[1], 1));
    x = (tensor_contiguous)((tensor_transpose)(x, 1, 2));
    NN__CLOSE(nn__not_view((tensor_reshape_n)(x, o.in[0]->dims, o.in[0]->ndim), o.in[0]));
}

// Dim d of x resampled at `out` points; scale = input elements per output element.
TENSOR__FN tensor_t *nn__resample(tensor_t *x, int64_t d, int64_t out, double scale, int mode, int align) {
    tensor_dtype_t dtype = x->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
    tensor_t *at = nn__beside((tensor_arange)(0, (double)out, 1, dtype), x), *y = NULL;
    int64_t dims[TENSOR_MAX_DIMS];
    for (int64_t k = 0; k < x->ndim; k++) { dims[k] = k == d ? out : 1; }
    if (mode == TENSOR_NEAREST || mode == TENSOR_NEAREST_EXACT) {
        if (mode == TENSOR_NEAREST_EXACT) { at = (tensor_add_scalar)(at, 0.5); }
        return nn__take(x, d, (tensor_floor)((tensor_mul_scalar)(at, scale)), TENSOR_PAD_REPLICATE);
    }
    at = align ? (tensor_mul_scalar)(at, scale)
               : (tensor_sub_scalar)((tensor_mul_scalar)((tensor_add_scalar)(at, 0.5), scale), 0.5);
    if (mode != TENSOR_BICUBIC) { at = (tensor_clamp)(at, 0, (double)x->dims[d] - 1); }
    tensor_t *low = (tensor_floor)(at);
    tensor_t *t = (tensor_reshape_n)((tensor_sub)(at, low), dims, x->ndim);
    int64_t first = 0, end = 2;                 // neighbours: two, or four from one before
    if (mode == TENSOR_BICUBIC) {
        first = -1;
        end = 3;
    }
    for (int64_t k = first; k < end; k++) {
        tensor_t *v = nn__take(x, d, (tensor_add_scalar)(low, (double)k), TENSOR_PAD_REPLICATE);
        tensor_t *u;
        if (k == 0) {
            u = t;
        } else if (k == 1) {
            u = (tensor_rsub_scalar)(t, 1);
        } else {
            u = NULL;
        }
        tensor_t *w;
        if (mode != TENSOR_BICUBIC) {
            w = k == 1 ? t : (tensor_rsub_scalar)(t, 1);
        } else if (u) {  // ((A + 2) u - (A + 3)) u u + 1 with A = -0.75
            w = (tensor_add_scalar)(
                (tensor_mul)((tensor_sub_scalar)((tensor_mul_scalar)(u, 1.25), 2.25), (tensor_mul)(u, u)), 1);
        } else {  // ((A u - 5 A) u + 8 A) u - 4 A
            u = k < 0 ? (tensor_add_scalar)(t, 1) : (tensor_rsub_scalar)(t, 2);
            w = (tensor_mul)((tensor_add_scalar)((tensor_mul_scalar)(u, -0.75), 3.75), u);
            w = (tensor_add_scalar)((tensor_mul)((tensor_sub_scalar)(w, 6), u), 3);
        }
        v = (tensor_mul)(v, w);
        y = y ? (tensor_add)(y, v) : v;
    }
    return y;
}

// sizes and factors: of the first dim, the height of three, the last; 0 = equal to the first.
TENSOR__FN tensor_t *nn__interpolate_front(tensor_t *x, const int64_t *sizes, const double *factors, int mode,
                                           int align, int recompute) {
    static const char *const names[8] = {"", "nearest", "nearest_exact", "linear", "bilinear", "bicubic",
                                         "trilinear", "area"};
    static const char *const ends[3] = {"", "_h", "_w"};
    NN__OPEN
    int wanted;
    if (mode == TENSOR_LINEAR) {
        wanted = 1;
    } else if (mode == TENSOR_TRILINEAR) {
        wanted = 3;
    } else if (mode >= TENSOR_AREA) {
        wanted = 0;
    } else {
        wanted = 2;
    }
    int64_t size[3], out[3] = {0, 0, 0};
    memcpy(size, sizes, sizeof size);
    double factor[3];
    memcpy(factor, factors, sizeof factor);
    if (mode == 0) { mode = TENSOR_NEAREST; }
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(INTERPOLATE), &x, 1)) { NN__CLOSE(TENSOR__(poison)); }
    int rank = x->ndim - 2;
    if (rank < 1 || rank > 3) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "interpolate: x %t must be [N, C, L], [N, C, H, W] or [N, C, D, H, W]", x));
    }
    if (mode < 1 || mode > TENSOR_AREA || (mode > TENSOR_NEAREST_EXACT && wanted && wanted != rank)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "interpolate: mode %s is not one for x %t",
                           mode < 1 || mode > TENSOR_AREA ? "?" : names[mode], x));
    }
    if (align && (mode <= TENSOR_NEAREST_EXACT || mode == TENSOR_AREA)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "interpolate: align_corners has no meaning for mode %s; x %t",
                           names[mode], x));
    }
    if ((sizes[0] > 0) == (factors[0] > 0)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "interpolate: size %d, scale_factor %g: just one of them must be positive "
                           "(size_h, size_w, scale_factor_h, scale_factor_w follow it); x %t",
                           sizes[0], factors[0], x));
    }
    for (int d = 0; d < 3; d++) {
        int there = d == 0 || rank == 3 || (rank == 2 && d == 2) || (size[d] <= 0 && factor[d] == 0);
        if (there && factor[d] >= 0 && factor[d] < 1e300 && (size[d] <= 0 || sizes[0] > 0)) { continue; }
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "interpolate: scale_factor%s %g, size%s %d with x %t: a factor must be "
                           "finite and positive, sizes go with size and the dims of x",
                           ends[d], factor[d], ends[d], size[d], x));
    }
    if (mode > TENSOR_NEAREST_EXACT && !nn__floats(&o, 1)) { NN__CLOSE(TENSOR__(poison)); }
    double scale[3];
    for (int d = 0; d < rank; d++) {
        // The options are for the first dim, _h for the second of three, _w for the last; 0 = equal to the
        // first.
        int k = d == 0 ? 0 : 3 - rank + d;
        double n = (double)x->dims[2 + d];
        if (size[k] <= 0) { size[k] = size[0]; }
        if (!(factor[k] > 0)) { factor[k] = factor[0]; }
        out[d] = size[k];
        if (factor[k] > 0 && n * factor[k] >= 2147483648.0) {
            NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                               "interpolate: dim %i of x %t times scale_factor %g is too large", 2 + d, x,
                               factor[k]));
        }
        if (factor[k] > 0) { out[d] = (int64_t)floor(n * factor[k]); }
        if (x->dims[2 + d] < 1 || out[d] < 1 || out[d] > 0x7FFFFFFF) {
            NN__CLOSE(
                NN__FAIL(TENSOR_ERR_SHAPE, "interpolate: dim %i of x %t cannot become %d", 2 + d, x, out[d]));
        }
        if (align && mode > TENSOR_NEAREST_EXACT) {
            scale[d] = out[d] > 1 ? (n - 1) / ((double)out[d] - 1) : 0;
        } else if (factor[k] > 0 && !recompute) {
            scale[d] = 1 / factor[k];
        } else {
            scale[d] = n / (double)out[d];
        }
    }
    if (mode == TENSOR_AREA) {
        nn__window_t g = nn__adaptive(1, 1, 1);
        memcpy(g.out + 3 - rank, out, (size_t)rank * sizeof out[0]);
        NN__CLOSE(nn__pool_front(nn__avg_pool_row(rank), rank, x, g, 0, NULL));
    }
    tensor_t *y = mode > TENSOR_NEAREST_EXACT ? nn__wide(x) : x;
    for (int d = 0; d < rank && y->state == TENSOR__LIVE; d++) {
        if (out[d] != x->dims[2 + d] || scale[d] != 1) {
            y = nn__resample(y, 2 + d, out[d], scale[d], mode, align);
        }
    }
    NN__CLOSE(y == x ? (tensor_clone)(x) : nn__narrow(y, x));
}

TENSOR__FN tensor_t *nn__interpolate_call(const tensor_interpolate_args_t *a) {
    const int64_t size[3] = {a->size, a->size_h, a->size_w};
    const double factor[3] = {a->scale_factor, a->scale_factor_h, a->scale_factor_w};
    NN__AUTOCAST(a->mode == TENSOR_AREA ? (int)TENSOR__APART : NN__ROW(INTERPOLATE)->cast,
                 nn__interpolate_front(cast_[0], size, factor, (int)a->mode, a->align_corners,
                                       a->recompute_scale_factor), a->x)
    return nn__interpolate_front(a->x, size, factor, (int)a->mode, a->align_corners,
                                 a->recompute_scale_factor);
}

NN__OWN_FRONT(interpolate, , nn__interpolate_call(&a))

// Coordinates -1..1 as positions 0..size-1.
TENSOR__FN tensor_t *nn__grid_places(tensor_t *g, int64_t size, int align) {
    double n = (double)size;
    g = (tensor_mul_scalar)((tensor_add_scalar)(g, 1), (align ? n - 1 : n) / 2);
    return align ? g : (tensor_sub_scalar)(g, 0.5);
}

// Positions brought into the image according to padding.
TENSOR__FN tensor_t *nn__grid_fold(tensor_t *g, int64_t size, int padding, int align) {
    double n = (double)size, low = -0.5, span = n;
    if (align) {
        low = 0;
        span = n - 1;
    }
    if (padding == TENSOR_PAD_REFLECT) {   // mirrored at low and low + span
        if (!(span > 0)) { return (tensor_mul_scalar)(g, 0); }
        g = (tensor_abs)((tensor_sub_scalar)(g, low));
        tensor_t *odd = (tensor_remainder_scalar)((tensor_floor)((tensor_div_scalar)(g, span)), 2);
        g = (tensor_fmod_scalar)(g, span);
        g = (tensor_add)(g, (tensor_mul)(odd, (tensor_rsub_scalar)((tensor_mul_scalar)(g, 2), span)));
        g = (tensor_add_scalar)(g, low);
    }
    // As clamp, but without a gradient at the two ends.
    return padding == TENSOR_PAD_CONSTANT ? g : (tensor_hardtanh)(g, 0, n - 1);
}

// Weight of the pixel floor(place) + tap - 1, t = place - floor(place) (Keys, 1981, a = -0.75).
TENSOR__FN tensor_t *nn__grid_cubic(tensor_t *t, int tap) {
    static const double near_by[4] = {1.25, -2.25, 0, 1}, far_off[4] = {-0.75, 3.75, -6, 3};
    const double *c = tap == 1 || tap == 2 ? near_by : far_off;
    tensor_t *x = tap < 2 ? (tensor_add_scalar)(t, 1 - tap) : (tensor_rsub_scalar)(t, tap - 1);
    tensor_t *y = (tensor_add_scalar)((tensor_mul_scalar)(x, c[0]), c[1]);
    y = (tensor_add_scalar)((tensor_mul)(y, x), c[2]);
    return (tensor_add_scalar)((tensor_mul)(y, x), c[3]);
}

TENSOR__FN tensor_t *nn__grid_sample_front(const tensor_grid_sample_args_t *a) {
    NN__OPEN
    tensor_t *x = a->x, *grid = a->grid, *in[2] = {x, grid}, *y = NULL;
    int64_t q = 1;
    int nearest = a->mode == TENSOR_NEAREST, cubic = a->mode == TENSOR_BICUBIC;
    int taps;
    if (nearest) {
        taps = 1;
    } else if (cubic) {
        taps = 4;
    } else {
        taps = 2;
    }
    int corners = 1;
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(GRID_SAMPLE), in, 2) || !nn__floats(&o, 3)) {
        NN__CLOSE(TENSOR__(poison));
    }
    int rank = x->ndim - 2;
    if ((rank != 2 && rank != 3) || grid->ndim != x->ndim || grid->dims[rank + 1] != rank ||
        grid->dims[0] != x->dims[0] || (x->numel == 0 && grid->numel != 0)) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "grid_sample: x %t must be [N, C, H, W], grid %t [N, H', W', 2] "
                           "(or [N, C, D, H, W], [N, D', H', W', 3])",
                           x, grid));
    }
    if ((a->mode && a->mode != TENSOR_BILINEAR && !nearest && (!cubic || rank != 2)) ||
        a->padding_mode == TENSOR_PAD_CIRCULAR) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_UNSUPPORTED,
                           "grid_sample: mode must be bilinear, nearest or (for [N, C, H, W]) bicubic, "
                           "padding_mode zeros, border or reflection (x %t)",
                           x));
    }
    x = nn__wide(x);
    grid = nn__wide(grid);
    int64_t planes = x->dims[1];
    int64_t three[3];
    three[0] = x->dims[0];
    three[1] = planes;
    three[2] = x->numel / nn__max(x->dims[0] * planes, 1);
    tensor_t *flat = (tensor_reshape_n)(x, three, 3);
    for (int d = 1; d <= rank; d++) { q *= grid->dims[d]; }
    three[2] = q;
    int64_t dims[TENSOR_MAX_DIMS];
    dims[0] = x->dims[0];
    dims[1] = 1;
    dims[2] = q;
    tensor_t *place[3], *low[3];
    for (int d = 0; d < rank; d++) {
        tensor_t *g = (tensor_reshape_n)((tensor_select)(grid, rank + 1, rank - 1 - d), dims, 3);
        place[d] = nn__grid_places(g, x->dims[2 + d], a->align_corners);
        if (!cubic) {
            place[d] = nn__grid_fold(place[d], x->dims[2 + d], (int)a->padding_mode, a->align_corners);
        }
        corners *= taps;
        low[d] = nearest ? (tensor_round)(place[d]) : (tensor_floor)((tensor_detach)(place[d]));
    }
    for (int corner = 0; corner < corners; corner++) {
        tensor_t *at = NULL, *weight = NULL, *inside = NULL;
        int rest = corner;
        for (int d = 0; d < rank; d++, rest /= taps) {
            int up = rest % taps;
            double last = (double)x->dims[2 + d] - 1;
            tensor_t *i = up - cubic ? (tensor_add_scalar)(low[d], up - cubic) : low[d];
            if (cubic) { i = nn__grid_fold(i, x->dims[2 + d], (int)a->padding_mode, a->align_corners); }
            tensor_t *ok = (tensor_logical_and)((tensor_ge_scalar)(i, 0), (tensor_le_scalar)(i, last));
            inside = inside ? (tensor_logical_and)(inside, ok) : ok;
            i = (tensor_to)((tensor_masked_fill)(i, (tensor_logical_not)(ok), 0), TENSOR_I64);
            at = at ? (tensor_add)((tensor_mul_scalar)(at, last + 1), i) : i;
            if (nearest) { continue; }
            tensor_t *w = (tensor_sub)(place[d], low[d]);
            if (cubic) {
                w = nn__grid_cubic(w, up);
            } else if (!up) {
                w = (tensor_rsub_scalar)(w, 1);
            }
            weight = weight ? (tensor_mul)(weight, w) : w;
        }
        tensor_t *v = (tensor_gather)(flat, 2, (tensor_expand_n)(at, three, 3));
        if (!nearest) { v = (tensor_mul)(v, weight); }
        v = (tensor_masked_fill)(v, (tensor_logical_not)(inside), 0);
        y = y ? (tensor_add)(y, v) : v;
    }
    if (nearest && (tensor_requires_grad)(grid)) {      // a step function has slope 0: a gradient of zeros
        tensor_t *all = (tensor_eq_scalar)((tensor_zeros_like)(place[0]), 0);
        y = (tensor_mul)(y, (tensor_masked_fill)(place[0], all, 1));
    }
    memcpy(dims + 2, grid->dims + 1, (size_t)rank * sizeof dims[0]);
    dims[1] = planes;
    NN__CLOSE(nn__narrow((tensor_reshape_n)(y, dims, rank + 2), a->x));
}

TENSOR__FN tensor_t *nn__grid_sample_call(tensor_grid_sample_args_t *a) {
    NN__AUTOCAST(NN__ROW(GRID_SAMPLE)->cast,
                 (a->x = cast_[0], a->grid = cast_[1], nn__grid_sample_front(a)), a->x, a->grid)
    return nn__grid_sample_front(a);
}

NN__OWN_FRONT(grid_sample, , nn__grid_sample_call(&a))

TENSOR_API tensor_t *(tensor_affine_grid)(tensor_t *theta, const int64_t *size, int n, int align_corners) {
    NN__AUTOCAST(NN__ROW(AFFINE_GRID)->cast,
                 (tensor_affine_grid)(cast_[0], size, n, align_corners), theta)
    NN__OPEN
    tensor__op_t o;
    int64_t points = 1;
    int rank = n < 2 ? 0 : n - 2;
    if (!TENSOR__(begin)(&o, NN__ROW(AFFINE_GRID), &theta, 1) || !nn__floats(&o, 1)) {
        NN__CLOSE(TENSOR__(poison));
    }
    if ((n != 4 && n != 5) || theta->ndim != 3 || theta->dims[1] != rank || theta->dims[2] != rank + 1 ||
        !size || size[0] != theta->dims[0]) {
        NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE,
                           "affine_grid: theta %t must be [N, 2, 3] for a size of [N, C, H, W], "
                           "[N, 3, 4] for [N, C, D, H, W]",
                           theta));
    }
    int64_t all[5];
    for (int d = 0; d < rank; d++) {
        all[d] = size[2 + d];
        if (all[d] < 1 || all[d] > 0x7FFFFFFF / points) {
            NN__CLOSE(NN__FAIL(TENSOR_ERR_SHAPE, "affine_grid: size %d must be in 1..%d", all[d],
                               0x7FFFFFFF / points));
        }
        points *= all[d];
    }
    tensor_t *list[4], *base;
    int64_t dims[5];
    for (int d = 0; d < rank; d++) {  // coordinate d belongs to dim -1 - d
        int64_t s = all[rank - 1 - d];
        double ends;
        if (s < 2) {
            ends = 0;
        } else if (align_corners) {
            ends = 1;
        } else {
            ends = 1 - 1 / (double)s;
        }
        double step = s < 2 ? 0 : 2 * ends / ((double)s - 1);
        for (int k = 0; k < rank; k++) { dims[k] = k == rank - 1 - d ? s : 1; }
        base = (tensor_mul_scalar)((tensor_arange)(0, (double)s, 1, (tensor_dtype_t)theta->dtype), step);
        base = (tensor_reshape_n)((tensor_sub_scalar)(base, ends), dims, rank);
        list[d] = (tensor_reshape_n)((tensor_expand_n)(base, all, rank), &points, 1);
    }
    list[rank] = (tensor_ones_n)(&points, 1, (tensor_dtype_t)theta->dtype);
    base = nn__beside((tensor_stack_n)(list, rank + 1, 1), theta);
    base = (tensor_matmul)(base, (tensor_mT)(theta));
    dims[0] = theta->dims[0];
    memcpy(dims + 1, all, (size_t)rank * sizeof dims[0]);
    dims[rank + 1] = rank;
    NN__CLOSE((tensor_reshape_n)(base, dims, rank + 2));
}

// ------------------------------------------------------------------------------
// >>impl-dropout                                   MARK: dropout
//
// The mask is a function of the stream and the element's index, so backward draws it again and nothing is
// saved. Rejected: a saved mask (one byte per element).
// ------------------------------------------------------------------------------

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
    NN__DO(v->k, dropout)(nn__at(&a[0], first), nn__at(&a[1], first), first,
                          nn__min(NN__DROPOUT_BLOCK, a[0].numel - first), v->c->rng, v->keep, v->scale);
}

TENSOR__FN int nn__cpu_dropout(tensor_call_t *c) {
    nn__dropout_t v;
    double p = c->p->dropout.p;
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
    if (!TENSOR__(begin)(&o, NN__ROW(DROPOUT), in, 1)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.dropout.p = p;
    o.rng = rng ? *rng : TENSOR__(next_stream)(o.th);
    TENSOR__(result)(&o, x->dtype, x->dims, x->ndim);
    return TENSOR__(finish)(&o);
}

TENSOR__FN void nn__grad_dropout(tensor__grad_t *g) {
    if (TENSOR__(grad_need)(g, 0)) { g->gx[0] = nn__dropout_op(g->gy[0], g->p->dropout.p, &g->node->rng); }
}

TENSOR_API tensor_t *(tensor_dropout)(tensor_t *x, double p, int training) {
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(DROPOUT), &x, 1) || !nn__floats(&o, 1)) { return TENSOR__(poison); }
    if (!(p >= 0 && p <= 1)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "dropout: p %g must be in 0..1 (x %t)", p, x);
    }
    if (!training || p == 0) { return x; }
    if (nn__is_half(x)) { return nn__narrow(nn__dropout_op(nn__wide(x), p, NULL), x); }
    return nn__dropout_op(x, p, NULL);
}

// Drops whole channels of x: the mask is [N, C, 1, ...], or [C, 1, ...] for an input of `single` dims.
TENSOR__FN tensor_t *nn__dropout_channels(tensor_t *x, double p, int single) {
    int64_t dims[TENSOR_MAX_DIMS];
    int kept = x->ndim == single ? 1 : 2;
    for (int k = 0; k < x->ndim; k++) { dims[k] = k < kept ? x->dims[k] : 1; }
    tensor_t *ones = nn__like(dims, x->ndim, 1, x);
    return (tensor_mul)(x, (tensor_dropout)(ones, p, 1));
}

#define NN__X(name, single, least, most)                                                                     \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, double p, int training) {                              \
        tensor_scope_t scope;                                                                                \
        if (!nn__ready(#name, "x", &x, 1)) return TENSOR__(poison);                                          \
        if (x->ndim < least || x->ndim > most)                                                               \
            return NN__FAIL(TENSOR_ERR_SHAPE, #name ": x %t must have %i to %i dims", x, least, most);       \
        if (!(p >= 0 && p <= 1)) return NN__FAIL(TENSOR_ERR_SHAPE, #name ": p %g must be in 0..1", p);       \
        if (!training || p == 0) return x;                                                                   \
        scope = TENSOR__(scope)(-1);                                                                         \
        return (tensor_scope_return)(scope, nn__dropout_channels(x, p, single));                             \
    }
NN__X(dropout1d, 2, 2, 3)
NN__X(dropout2d, 0, 3, 4)
NN__X(dropout3d, 4, 4, 5)
#undef NN__X

// ------------------------------------------------------------------------------
// >>impl-composed                                  MARK: functions made of others
//
// Functions made of public ops; one macro (NN__COMPOSED) has their checks and autocast. Their gradients are
// those of the ops they are made of. Rejected: kernels of their own (no program spends much time in these
// functions).
// ------------------------------------------------------------------------------

// A function of x, computed in f32 for halves. refused: a condition that makes the call an error with this
// text.
#define NN__COMPOSED(...) NN__COMPOSED_TO(TENSOR__APART, __VA_ARGS__)
#define NN__COMPOSED_TO(to, name, params, refused, text, result)                                             \
    TENSOR_API tensor_t *(tensor_##name) params {                                                            \
        tensor_t *x_ = x;                                                                                    \
        tensor_scope_t scope_;                                                                               \
        if (!nn__ready(#name, "x", &x_, 1)) return TENSOR__(poison);                                         \
        if (refused) return NN__FAIL(TENSOR_ERR_SHAPE, #name ": " text);                                     \
        scope_ = TENSOR__(scope)(-1);                                                                        \
        if (scope_.thread) TENSOR__(autocast)(to, &x_, 1);                                                   \
        x = nn__wide(x_);                                                                                    \
        return (tensor_scope_return)(scope_, nn__narrow(result, x_));                                        \
    }

// 0-d, of x's dtype
TENSOR__FN tensor_t *nn__number(double v, const tensor_t *x) {
    return (tensor_scalar)(v, (tensor_dtype_t)x->dtype);
}

TENSOR__FN tensor_t *nn__celu(tensor_t *x, double alpha) {
    tensor_t *low = (tensor_expm1)((tensor_div_scalar)((tensor_clamp_max)(x, 0), alpha));
    return (tensor_add)((tensor_relu)(x), (tensor_mul_scalar)(low, alpha));
}

TENSOR__FN tensor_t *nn__random_slopes(tensor_t *x, double lower, double upper) {
    tensor_t *r = (tensor_uniform_)((tensor_empty_like)(x), lower, upper);
    return (tensor_where)((tensor_le_scalar)(x, 0), (tensor_mul)(x, r), x);
}

TENSOR__FN tensor_t *nn__gumbel(tensor_t *x, double tau, int hard, int64_t dim) {
    // In double, whose logarithm has the same bits everywhere.
    tensor_t *u = (tensor_exponential_)((tensor_empty_like)((tensor_to)(x, TENSOR_F64)), 1);
    tensor_t *y = (tensor_sub)(x, (tensor_to)((tensor_log)(u), (tensor_dtype_t)x->dtype));
    y = (tensor_softmax)((tensor_div_scalar)(y, tau), dim);
    if (!hard) { return y; }
    tensor_t *best = (tensor_argmax_dim)(y, dim, 1);
    if ((tensor_is_poison)(best)) { return best; }
    u = nn__like(best->dims, best->ndim, 1, y);
    u = (tensor_scatter)((tensor_zeros_like)(y), dim, best, u);
    return (tensor_add)((tensor_sub)(u, (tensor_detach)(y)), y);
}

TENSOR__FN tensor_t *nn__p_norm(tensor_t *x, double p, int64_t dim, int keepdim) {
    if (p == 2) { return (tensor_norm_dim)(x, dim, keepdim); }
    tensor_t *a = (tensor_abs)(x);
    if (p > 1.7976931348623157e308) { return (tensor_amax_dim)(a, dim, keepdim); }
    if (p < -1.7976931348623157e308) { return (tensor_amin_dim)(a, dim, keepdim); }
    if (p == 0) {   // depends on x nevertheless, with gradient 0
        tensor_t *other = (tensor_ne_scalar)(a, 0);
        other = (tensor_to)(other, (tensor_dtype_t)x->dtype);
        a = (tensor_where)((tensor_ge_scalar)(other, 0), other, a);
    } else if (p != 1) {
        a = (tensor_pow_scalar)(a, p);
    }
    a = (tensor_sum_dim)(a, dim, keepdim);
    return p == 0 || p == 1 ? a : (tensor_pow_scalar)(a, 1 / p);
}

// Keeps mean 0 and variance 1: dropped elements become -1.758 = selu(-infinity), then a x + b.
TENSOR__FN tensor_t *nn__alpha_dropout(tensor_t *x, double p) {
    double alpha = -1.7580993408473766, a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
    tensor_t *keep = (tensor_bernoulli)((tensor_full_like)(x, 1 - p));
    if (p == 1) { return (tensor_mul_scalar)(x, 0); }
    tensor_t *shift = (tensor_mul_scalar)((tensor_add_scalar)((tensor_neg)(keep), 1 - p), a * alpha);
    return (tensor_add)((tensor_mul)(x, (tensor_mul_scalar)(keep, a)), shift);
}

// clang-format off
NN__COMPOSED(alpha_dropout, (tensor_t *x, double p, int training), !(p >= 0 && p <= 1), "p must be in 0..1",
             !training || p == 0 ? x_ : nn__alpha_dropout(x, p))
NN__COMPOSED(celu, (tensor_t *x, double alpha), alpha == 0, "alpha must not be 0", nn__celu(x, alpha))
NN__COMPOSED_TO(TENSOR__FULL, gumbel_softmax, (tensor_t *x, double tau, int hard, int64_t dim), 0, "",
             nn__gumbel(x, tau, hard, dim))
NN__COMPOSED(hardshrink, (tensor_t *x, double lambd), 0, "",
             (tensor_where)((tensor_le_scalar)((tensor_abs)(x), lambd), nn__number(0, x), x))
NN__COMPOSED_TO(TENSOR__FULL, normalize, (tensor_t *x, double p, int64_t dim, double eps), 0, "",
             (tensor_div)(x, (tensor_clamp_min)(nn__p_norm(x, p, dim, 1), eps)))
NN__COMPOSED(relu6, (tensor_t *x), 0, "", (tensor_hardtanh)(x, 0, 6))
NN__COMPOSED(rrelu, (tensor_t *x, double lower, double upper, int training), !(lower <= upper),
             "lower is above upper",
             training ? nn__random_slopes(x, lower, upper) : (tensor_leaky_relu)(x, (lower + upper) / 2))
NN__COMPOSED(selu, (tensor_t *x), 0, "",
             (tensor_mul_scalar)((tensor_elu)(x, 1.6732632423543772), 1.0507009873554805))
NN__COMPOSED_TO(TENSOR__FULL, softmin, (tensor_t *x, int64_t dim), 0, "",
                (tensor_softmax)((tensor_neg)(x), dim))
NN__COMPOSED(softshrink, (tensor_t *x, double lambd), !(lambd >= 0), "lambd must be >= 0",
             (tensor_sub)(x, (tensor_clamp)(x, -lambd, lambd)))
NN__COMPOSED(softsign, (tensor_t *x), 0, "", (tensor_div)(x, (tensor_add_scalar)((tensor_abs)(x), 1)))
NN__COMPOSED(tanhshrink, (tensor_t *x), 0, "", (tensor_sub)(x, (tensor_tanh)(x)))
NN__COMPOSED(threshold, (tensor_t *x, double threshold, double value), 0, "",
             (tensor_where)((tensor_le_scalar)(x, threshold), nn__number(value, x), x))

// clang-format on
TENSOR_API tensor_t *(tensor_glu)(tensor_t *x, int64_t dim) {
    if (!nn__ready("glu", "x", &x, 1)) { return TENSOR__(poison); }
    int64_t d = dim < 0 ? dim + x->ndim : dim;
    if (d < 0 || d >= x->ndim || x->dims[d] % 2) {
        return NN__FAIL(d < 0 || d >= x->ndim ? TENSOR_ERR_INDEX : TENSOR_ERR_SHAPE,
                        "glu: x %t must have dim %d, of even size", x, dim);
    }
    int64_t half = x->dims[d] / 2;
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    tensor_t *w = nn__wide(x);
    tensor_t *gate = (tensor_sigmoid)((tensor_narrow)(w, d, half, half));
    return (tensor_scope_return)(scope, nn__narrow((tensor_mul)((tensor_narrow)(w, d, 0, half), gate), x));
}

TENSOR_API tensor_t *(tensor_prelu)(tensor_t *x, tensor_t *weight) {
    tensor_t *in[2] = {x, weight};
    NN__AUTOCAST(TENSOR__CAST_prelu, (tensor_prelu)(cast_[0], cast_[1]), x, weight)
    if (!nn__ready("prelu", "x weight", in, 2)) { return TENSOR__(poison); }
    if (weight->ndim > 1 || (weight->numel != 1 && (x->ndim < 2 || weight->numel != x->dims[1]))) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "prelu: weight %t must be [1] or have the %d channels of x %t",
                        weight, x->ndim > 1 ? x->dims[1] : 1, x);
    }
    int64_t dims[TENSOR_MAX_DIMS];
    for (int k = 0; k < x->ndim; k++) { dims[k] = k == 1 ? weight->numel : 1; }
    if (x->ndim == 1) { dims[0] = 1; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    in[0] = nn__wide(x);
    in[1] = (tensor_reshape_n)(nn__wide(weight), dims, x->ndim);
    in[1] = (tensor_where)((tensor_gt_scalar)(in[0], 0), in[0], (tensor_mul)(in[0], in[1]));
    return (tensor_scope_return)(scope, nn__narrow(in[1], x));
}

TENSOR_API tensor_t *(tensor_cosine_similarity)(tensor_t *a, tensor_t *b, int64_t dim, double eps) {
    tensor_t *in[2] = {a, b};
    NN__AUTOCAST(TENSOR__CAST_cosine_similarity,
                 (tensor_cosine_similarity)(cast_[0], cast_[1], dim, eps), a, b)
    if (!nn__ready("cosine_similarity", "a b", in, 2)) { return TENSOR__(poison); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    tensor_t *shape = (tensor_mul)(in[0], in[1]);
    for (int k = 0; k < 2 && !(tensor_is_poison)(shape); k++) {
        in[k] = (tensor_expand_n)(nn__wide(in[k]), shape->dims, shape->ndim);
        tensor_t *n = (tensor_norm_dim)(in[k], dim, 1);  // eps bounds its value, not its gradient
        n = (tensor_add)(n, (tensor_relu)((tensor_rsub_scalar)((tensor_detach)(n), eps)));
        in[k] = (tensor_div)(in[k], n);
    }
    if (!(tensor_is_poison)(shape)) {
        in[0] = (tensor_sum_dim)((tensor_mul)(in[0], in[1]), dim, 0);
        shape = nn__narrow(in[0], shape);
    }
    return (tensor_scope_return)(scope, shape);
}

TENSOR_API tensor_t *(tensor_pairwise_distance)(tensor_t *a, tensor_t *b, double p, double eps, int keepdim) {
    tensor_t *in[2] = {a, b};
    NN__AUTOCAST(TENSOR__CAST_pairwise_distance,
                 (tensor_pairwise_distance)(cast_[0], cast_[1], p, eps, keepdim), a, b)
    if (!nn__ready("pairwise_distance", "a b", in, 2)) { return TENSOR__(poison); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    in[0] = (tensor_sub)(nn__wide(a), nn__wide(b));
    in[0] = nn__p_norm((tensor_add_scalar)(in[0], eps), p, -1, keepdim);
    if (nn__is_half(a) && a->dtype == b->dtype) { in[0] = nn__narrow(in[0], a); }
    return (tensor_scope_return)(scope, in[0]);
}

// ------------------------------------------------------------------------------
// >>impl-attention                                 MARK: attention
//
// Blocks of queries of one head against the keys. Scores stay in the worker's scratch, and backward computes
// them again from the saved row sums. A mask that broadcasts is read by strides. Rejected: the whole matrix
// of scores (its memory grows with the square of the length).
// ------------------------------------------------------------------------------

// Queries of a task, of a block, and of a causal block, which computes few forbidden scores; and the number
// of queries from which on keys are read transposed, [features, keys].
enum { NN__QUERIES = 128, NN__BLOCK = 64, NN__CAUSAL = 32, NN__TURN = 32 };

typedef struct nn__attention_t {
    const nn__cpu_t *k;
    const tensor_arg_t *q, *key, *v, *y, *lse, *g, *dq, *dk, *dv;
    int64_t heads, t, s, e, ev, blocks, rows, pitch;    // pitch: line of transposed keys
    int causal, dtype;
    double scale;
    size_t es;
    char *scratch;
    uint64_t tile, turned, gemm, worker;   // bytes: a block of scores, a transposed head, a GEMM, a worker
} nn__attention_t;

TENSOR__FN void nn__attention_plan(const tensor_call_t *c, nn__attention_t *v) {
    int back = c->row->id == NN_OP_ATTENTION_BACKWARD;
    const tensor_arg_t *a = c->arg;
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
    v->k = nn__cpu(v->dtype);
    v->es = nn__es(v->dtype);
    v->t = v->q->dims[v->q->ndim - 2];
    v->e = v->q->dims[v->q->ndim - 1];
    v->s = v->key->dims[v->key->ndim - 2];
    v->ev = v->v->dims[v->v->ndim - 1];
    int k;
    for (v->heads = 1, k = 0; k < v->q->ndim - 2; k++) { v->heads *= v->q->dims[k]; }  // also without queries
    v->blocks = nn__ceil(v->t, NN__QUERIES);
    v->causal = (int)c->p->attention.is_causal;
    v->rows = v->causal ? NN__CAUSAL : NN__BLOCK;
    v->scale = c->p->attention.scale;
    v->scratch = (char *)c->scratch;
    int64_t bq = nn__min(v->t, v->rows);
    int64_t sizes[5][3];
    sizes[0][0] = bq, sizes[0][1] = v->s, sizes[0][2] = v->e;
    sizes[1][0] = bq, sizes[1][1] = v->ev, sizes[1][2] = v->s;
    sizes[2][0] = bq, sizes[2][1] = v->s, sizes[2][2] = v->ev;
    sizes[3][0] = bq, sizes[3][1] = v->e, sizes[3][2] = v->s;
    sizes[4][0] = v->s, sizes[4][1] = nn__max(v->e, v->ev), sizes[4][2] = bq;
    for (v->gemm = 0, k = 0; k < 5; k++) {
        tensor__gemm_t g = nn__product(sizes[k][0], sizes[k][1], sizes[k][2]);
        uint64_t bytes = nn__line(TENSOR__(gemm_scratch)(&g, v->dtype));
        if (bytes > v->gemm) { v->gemm = bytes; }
    }
    v->pitch = v->s + 16;
    v->turned = v->k->lanes && v->t >= NN__TURN ? nn__line((uint64_t)(sizes[4][1] * v->pitch) * 4) : 0;
    v->tile = nn__line((uint64_t)bq * (uint64_t)v->s * v->es);
    v->worker = (v->tile + v->turned) * (back ? 2 : 1) + v->gemm;
    if (!v->worker) { v->worker = nn__line(1); }    // nothing to compute, but addresses within it are formed
}

TENSOR__FN uint64_t nn__scratch_attention(const tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    return v.worker * (uint64_t)TENSOR__(thread_count)();
}

// Address of row t of head `head`, for any strides.
TENSOR__FN char *nn__head(const tensor_arg_t *a, int64_t head, int64_t t) {
    int64_t offset = t * a->strides[a->ndim - 2];
    for (int d = a->ndim - 3; d >= 0; d--) {
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
    TENSOR__(gemm)(g, v->dtype);
}

// The first `keys` rows of a head, transposed at `to`. -> NULL: the products read them as they are
TENSOR__FN const char *nn__attention_turn(const nn__attention_t *v, const tensor_arg_t *a, int64_t head,
                                          int64_t keys, char *to) {
    if (!v->turned || a->strides[a->ndim - 1] != 1) { return NULL; }
    NN__DO(v->k, turn)(keys, a->dims[a->ndim - 1], (const float *)(const void *)nn__head(a, head, 0),
                       a->strides[a->ndim - 2], (float *)(void *)to, v->pitch);
    return to;
}

// Rows t..t+n of a times the first `keys` rows of b, which may be transposed, of one head.
TENSOR__FN void nn__attention_scores(const nn__attention_t *v, const tensor_arg_t *a, const tensor_arg_t *b,
                                     const char *turned, int64_t head, int64_t t, int64_t n, int64_t keys,
                                     char *tile, char *scratch) {
    tensor__gemm_t g = nn__product(n, keys, b->dims[b->ndim - 1]);
    g.a = nn__head(a, head, t);
    g.b = turned ? turned : nn__head(b, head, 0);
    g.c = tile, g.brs = v->pitch;
    nn__attention_product(v, &g, a, turned ? NULL : b, 1, scratch);
}

TENSOR__FN void nn__attention_task(void *arg, int64_t task, int worker) {
    const nn__attention_t *v = (const nn__attention_t *)arg;
    int64_t head = task / v->blocks, t = task % v->blocks * NN__QUERIES, end = nn__min(t + NN__QUERIES, v->t);
    int64_t n, keys = v->causal ? nn__min(v->s, end) : v->s;
    char *tile = v->scratch + v->worker * (uint64_t)worker, *room = tile + v->tile;
    char *scratch = room + v->turned;
    const char *turned = nn__attention_turn(v, v->key, head, keys, room);
    double sum[NN__BLOCK], lse;
    for (; t < end; t += n) {
        char *y = nn__at(v->y, (head * v->t + t) * v->ev);
        n = nn__min(v->rows, end - t);
        keys = v->causal ? nn__min(v->s, t + n) : v->s;
        nn__attention_scores(v, v->q, v->key, turned, head, t, n, keys, tile, scratch);
        for (int64_t i = 0; i < n; i++) {
            int64_t valid = v->causal ? nn__min(keys, t + i + 1) : keys;
            sum[i] = NN__DO(v->k, attend)(tile + i * keys * (int64_t)v->es, valid, keys, v->scale, &lse);
            nn__store(v->lse->data, v->dtype, head * v->t + t + i, lse);
        }
        tensor__gemm_t g = nn__product(n, v->ev, keys);
        g.a = tile;
        g.b = nn__head(v->v, head, 0);
        g.c = y;
        nn__attention_product(v, &g, NULL, v->v, 0, scratch);
        for (int64_t i = 0; i < n; i++) {
            NN__DO(v->k, scale)(y + i * v->ev * (int64_t)v->es, sum[i] > 0 ? 1 / sum[i] : sum[i], v->ev);
        }
    }
}

TENSOR__FN int nn__cpu_attention(tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    if (v.y->numel || v.lse->numel) { nn__run(v.heads * v.blocks, nn__attention_task, &v); }
    return TENSOR_OK;
}

// y (+)= tileT b, rows t..t+n of b: what a block adds to the gradient of keys or values.
TENSOR__FN void nn__attention_sum(const nn__attention_t *v, const char *tile, const tensor_arg_t *b,
                                  const tensor_arg_t *y, int64_t head, int64_t t, int64_t n, int64_t keys,
                                  int add, char *scratch) {
    tensor__gemm_t m = nn__product(keys, b->dims[b->ndim - 1], n);
    m.a = tile;
    m.ars = 1, m.acs = keys;
    m.b = nn__head(b, head, t);
    m.c = nn__head(y, head, 0);
    m.accumulate = add;
    nn__attention_product(v, &m, NULL, b, 0, scratch);
}

// One head: with P recomputed and D = P (g vT - delta) scale, dv = PT g, dq = D k, dk = DT q. Blocks go from
// the last one, which sees the most keys, to the first.
TENSOR__FN void nn__attention_back_task(void *arg, int64_t head, int worker) {
    const nn__attention_t *v = (const nn__attention_t *)arg;
    char *p = v->scratch + v->worker * (uint64_t)worker, *d = p + v->tile, *scratch = d + v->tile;
    int64_t first = (v->t - 1) / v->rows * v->rows, last = v->causal ? nn__min(v->s, v->t) : v->s;
    const char *keyt = nn__attention_turn(v, v->key, head, last, scratch);
    const char *vt = nn__attention_turn(v, v->v, head, last, scratch + v->turned);
    scratch += 2 * v->turned;
    NN__DO(v->k, fill)(nn__head(v->dk, head, last), 0, (v->s - last) * v->e);
    NN__DO(v->k, fill)(nn__head(v->dv, head, last), 0, (v->s - last) * v->ev);
    for (int64_t t = first; t >= 0; t -= v->rows) {
        int64_t n = nn__min(v->rows, v->t - t), keys = v->causal ? nn__min(v->s, t + n) : v->s;
        nn__attention_scores(v, v->q, v->key, keyt, head, t, n, keys, p, scratch);
        nn__attention_scores(v, v->g, v->v, vt, head, t, n, keys, d, scratch);
        for (int64_t i = 0; i < n; i++) {
            int64_t row = head * v->t + t + i, at = i * keys * (int64_t)v->es;
            double delta = NN__DO(v->k, dot)(nn__head(v->g, head, t + i), nn__at(v->y, row * v->ev), v->ev);
            NN__DO(v->k, attend_back)(p + at, d + at, v->causal ? nn__min(keys, t + i + 1) : keys, keys,
                                      v->scale, nn__value(v->lse->data, v->dtype, row), delta);
        }
        nn__attention_sum(v, p, v->g, v->dv, head, t, n, keys, t < first, scratch);
        nn__attention_sum(v, d, v->q, v->dk, head, t, n, keys, t < first, scratch);
        tensor__gemm_t m = nn__product(n, v->e, keys);
        m.a = d;
        m.b = nn__head(v->key, head, 0);
        m.c = nn__at(v->dq, (head * v->t + t) * v->e);
        nn__attention_product(v, &m, NULL, v->key, 0, scratch);
    }
}

TENSOR__FN int nn__cpu_attention_back(tensor_call_t *c) {
    nn__attention_t v;
    nn__attention_plan(c, &v);
    if (v.dq->numel || v.dk->numel || v.dv->numel) { nn__run(v.heads, nn__attention_back_task, &v); }
    return TENSOR_OK;
}

// mask: bool (true = look) or a float to add, NULL = none. weights, if not NULL, receives the softmax after
// the dropout.
TENSOR__FN tensor_t *nn__attention_composed(tensor_t *q, tensor_t *k, tensor_t *v, tensor_t *mask, int causal,
                                            double scale, double dropout, tensor_t **weights) {
    tensor_t *s = (tensor_mul_scalar)((tensor_matmul)(q, (tensor_mT)(k)), scale);
    if (causal) {
        const int64_t dims[2] = {q->dims[q->ndim - 2], k->dims[k->ndim - 2]};
        mask = (tensor_tril)(nn__beside((tensor_ones_n)(dims, 2, TENSOR_BOOL), q), 0);
    }
    if (mask && mask->dtype == TENSOR_BOOL) {
        s = (tensor_masked_fill)(s, (tensor_logical_not)(mask), -INFINITY);
    } else if (mask) {
        s = (tensor_add)(s, mask);
    }

    // A row with nothing but -inf would be NaN; it counts as zeros.
    tensor_t *dead = mask && k->dims[k->ndim - 2]
                         ? (tensor_eq_scalar)((tensor_amax_dim)((tensor_detach)(s), -1, 1), -INFINITY) : NULL;
    if (dead) { s = (tensor_masked_fill)(s, dead, 0); }
    s = (tensor_softmax)(s, -1);
    if (dead) { s = (tensor_masked_fill)(s, dead, 0); }
    if (dropout > 0) { s = (tensor_dropout)(s, dropout, 1); }
    if (weights) { *weights = s; }
    return (tensor_matmul)(s, v);
}

TENSOR__FN tensor_t *nn__composed_attention(tensor_t *const *in, const tensor_params_t *p) {
    return nn__narrow(nn__attention_composed(nn__wide(in[0]), nn__wide(in[1]), nn__wide(in[2]), NULL,
                                             (int)p->attention.is_causal, p->attention.scale, 0, NULL),
                      in[0]);
}

TENSOR__FN void nn__grad_attention(tensor__grad_t *g) {
    if (nn__grad_created(g, nn__composed_attention)) { return; }
    tensor_t *in[6];
    in[0] = g->gy[0];
    if (in[0]->strides[in[0]->ndim - 1] != 1) { in[0] = nn__contiguous(in[0]); }
    for (int k = 0; k < 3; k++) { in[1 + k] = nn__saved(g, k); }
    in[4] = TENSOR__(grad_out)(g, 0);
    in[5] = TENSOR__(grad_out)(g, 1);
    tensor__op_t o;
    if (!nn__grad_begin(&o, g, NN__ROW(ATTENTION_BACKWARD), in, 6, 3)) { return; }
    for (int k = 0; k < 3; k++) { TENSOR__(result)(&o, in[1 + k]->dtype, in[1 + k]->dims, in[1 + k]->ndim); }
    nn__grad_end(&o, g, 3);
}

TENSOR__FN double nn__attention_scale(const tensor_scaled_dot_product_attention_args_t *a) {
    const tensor_t *q = a->query;
    return a->scale != 0 ? a->scale : 1 / sqrt((double)nn__max(q->dims[q->ndim - 1], 1));
}

// The CPU kernel of rows that only a device's library runs: it always declines.
TENSOR__FN int nn__declined(tensor_call_t *c) {
    (void)c;
    return TENSOR_ERR_UNSUPPORTED;
}

// What a front returns when a row gave no result: NULL, so that the front composes the function, if no error
// was raised since `before`; otherwise poison.
TENSOR__FN tensor_t *nn__unless_raised(int before) {
    return before || !(tensor_error_code)() ? NULL : TENSOR__(poison);
}

TENSOR__FN tensor_t *nn__composed_biased(tensor_t *const *in, const tensor_params_t *p) {
    return nn__narrow(nn__attention_composed(nn__wide(in[0]), nn__wide(in[1]), nn__wide(in[2]),
                                             nn__wide(in[3]),
                                             0, p->attention.scale, 0, NULL), in[0]);
}

TENSOR__FN void nn__grad_biased(tensor__grad_t *g);
static const tensor__row_t nn__biased_rows[2] = {
    {"attention_biased", TENSOR_FAMILY_ATTENTION, 4, 4, 2, 0, 0, NN_OP_BIASED,
     TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD | TENSOR__SY | TENSOR__SY1, nn__grad_biased,
     nn__declined, NULL, "query key value bias", NULL},
    {"attention_biased_backward", TENSOR_FAMILY_ATTENTION, 7, 7, 3, 0, 0, NN_OP_BIASED_BACKWARD, 0, NULL,
     nn__declined, NULL, "grad query key value y logsumexp bias", NULL}};

TENSOR__FN void nn__grad_biased(tensor__grad_t *g) {
    tensor_t *in[7];
    in[0] = g->gy[0];
    if (in[0]->strides[in[0]->ndim - 1] != 1) { in[0] = nn__contiguous(in[0]); }
    for (int k = 0; k < 3; k++) { in[1 + k] = nn__saved(g, k); }
    in[4] = TENSOR__(grad_out)(g, 0);
    in[5] = TENSOR__(grad_out)(g, 1);
    in[6] = nn__saved(g, 3);
    tensor__op_t o;
    if (!g->create && TENSOR__(begin)(&o, &nn__biased_rows[1], in, 7)) {
        o.p = &o.params;
        o.params = *g->p;
        o.visible = 3;
        for (int k = 0; k < 3; k++) {
            TENSOR__(result)(&o, in[1 + k]->dtype, in[1 + k]->dims, in[1 + k]->ndim);
        }
        if (TENSOR__(finish)(&o)->state != TENSOR__POISON_STATE) {
            for (int k = 0; k < 3; k++) {
                if (TENSOR__(grad_need)(g, k)) { g->gx[k] = o.out[k]; }
            }
            return;
        }
    }
    nn__grad_composed(g, nn__composed_biased);
}

// Attention of f16 and bf16 with a mask that is added to the scores, by a device's library. NULL = the
// library has no plan, or the mask needs a gradient. Rows that look at nothing are zeros.
TENSOR__FN tensor_t *nn__attention_biased(tensor_t *q, tensor_t *k, tensor_t *v, tensor_t *mask,
                                          double scale) {
    int n = q->ndim, before = (tensor_error_code)();
    if (!q->device || !TENSOR__(halves)(q) || n < 3 || n > 4 || k->ndim != n || v->ndim != n ||
        mask->state != TENSOR__LIVE || mask->device != q->device || mask->ndim > n || mask->ndim < 2 ||
        ((tensor_grad_enabled)() && (tensor_requires_grad)(mask)) || !q->numel || !v->numel || !mask->numel) {
        return NULL;
    }
    int64_t dims[4];
    for (int d = 0; d < n; d++) {
        int at = mask->ndim - n + d;
        int64_t given = at < 0 ? 1 : mask->dims[at];
        int64_t full = d < n - 1 ? q->dims[d] : k->dims[n - 2];
        if ((given != 1 && given != full) ||
            (d < n - 2 && (k->dims[d] != full || v->dims[d] != full))) {
            return NULL;
        }
        dims[d] = d < n - 2 ? given : full;
    }
    tensor_t *y = mask;
    if (mask->dtype == TENSOR_BOOL) {
        y = nn__beside((tensor_zeros_n)(mask->dims, mask->ndim, (tensor_dtype_t)q->dtype), q);
        y = (tensor_masked_fill)(y, (tensor_logical_not)(mask), -INFINITY);
    }
    tensor_t *dead = (tensor_eq_scalar)((tensor_amax_dim)(y, -1, 1), -INFINITY);
    tensor_t *in[4];
    in[0] = q;
    in[1] = k;
    in[2] = v;
    in[3] = nn__contiguous((tensor_expand_n)((tensor_masked_fill)(y, dead, 0), dims, n));
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, &nn__biased_rows[0], in, 4)) { return nn__unless_raised(before); }
    o.p = &o.params;
    o.params.attention.is_causal = 0;
    o.params.attention.scale = scale;
    memcpy(dims, q->dims, (size_t)n * sizeof dims[0]);
    dims[n - 1] = v->dims[n - 1];
    TENSOR__(result)(&o, q->dtype, dims, n);
    TENSOR__(result)(&o, TENSOR_F32, dims, n - 1);
    y = TENSOR__(finish)(&o);
    return y->state == TENSOR__POISON_STATE ? nn__unless_raised(before) : (tensor_masked_fill)(y, dead, 0);
}

TENSOR__FN tensor_t *
nn__run_scaled_dot_product_attention(const tensor_scaled_dot_product_attention_args_t *a) {
    static const char name[] = "scaled_dot_product_attention";
    tensor__op_t o;
    tensor_t *const in[3] = {a->query, a->key, a->value};
    tensor_t *q = a->query, *k = a->key, *v = a->value, *mask = a->attn_mask;
    if (!TENSOR__(begin)(&o, NN__ROW(ATTENTION), in, 3) || !nn__floats(&o, 7)) { return TENSOR__(poison); }
    if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: query %t, key %t, value %t must have at least 2 dims", name, q,
                        k, v);
    }
    if (q->dims[q->ndim - 1] != k->dims[k->ndim - 1]) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: query %t and key %t must have the same last dim", name, q, k);
    }
    if (k->dims[k->ndim - 2] != v->dims[v->ndim - 2]) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: key %t and value %t must have the same length", name, k, v);
    }
    if (mask && a->is_causal) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: attn_mask %t and is_causal exclude each other", name, mask);
    }
    if (TENSOR__GIVEN(mask) && mask->state == TENSOR__LIVE && mask->dtype != TENSOR_BOOL &&
        mask->dtype != q->dtype) {
        return NN__FAIL(TENSOR_ERR_DTYPE, "%s: attn_mask is %y, must be bool or %y as query", name, mask, q);
    }
    if (!(a->dropout_p >= 0 && a->dropout_p <= 1)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: dropout_p %g must be in 0..1", name, a->dropout_p);
    }
    if (nn__is_half(q) && (mask || a->dropout_p > 0 || !q->numel || !v->numel || !TENSOR__(halves)(q))) {
        tensor_scaled_dot_product_attention_args_t wide = *a;
        tensor_t *y = mask && a->dropout_p <= 0 ? nn__attention_biased(q, k, v, mask,
                                                                       nn__attention_scale(a)) : NULL;
        if (y) { return y; }
        wide.query = nn__wide(q);
        wide.key = nn__wide(k);
        wide.value = nn__wide(v);
        wide.attn_mask = nn__wide(mask);
        return nn__narrow(nn__run_scaled_dot_product_attention(&wide), q);
    }
    int64_t dims[TENSOR_MAX_DIMS], d;
    if (a->enable_gqa && q->ndim > 2 && k->ndim == q->ndim && v->ndim == q->ndim &&
        q->ndim < TENSOR_MAX_DIMS) {
        // query [..., heads, each, T, E]; key, value and mask have size 1 at `each`.
        tensor_scaled_dot_product_attention_args_t b = *a;
        int at = q->ndim - 3;
        int64_t heads = k->dims[at], each = heads ? q->dims[at] / heads : 0;
        if (v->dims[at] != heads || heads * each != q->dims[at]) {
            return NN__FAIL(TENSOR_ERR_SHAPE,
                            "%s: the heads of query %t must be a multiple of those of key %t and value %t",
                            name, q, k, v);
        }
        b.enable_gqa = 0;
        memcpy(dims, q->dims, (size_t)at * sizeof dims[0]);
        dims[at] = heads;
        dims[at + 1] = each;
        for (d = 0; d < 2; d++) { dims[at + 2 + d] = q->dims[at + 1 + d]; }
        b.query = (tensor_reshape_n)(q, dims, q->ndim + 1);
        for (d = 0; d < 2; d++) {
            tensor_t *x = d ? v : k;
            dims[at + 2] = x->dims[at + 1];
            dims[at + 3] = x->dims[at + 2];
            *(d ? &b.value : &b.key) = (tensor_expand_n)((tensor_unsqueeze)(x, at + 1), dims, q->ndim + 1);
        }
        if (mask && mask->ndim > 2 && mask->dims[mask->ndim - 3] == q->dims[at]) {
            memcpy(dims, mask->dims, (size_t)mask->ndim * sizeof dims[0]);
            d = mask->ndim - 3;
            dims[d] = heads;
            dims[d + 1] = each;
            dims[d + 2] = mask->dims[d + 1];
            dims[d + 3] = mask->dims[d + 2];
            b.attn_mask = (tensor_reshape_n)(mask, dims, mask->ndim + 1);
        } else if (mask && mask->ndim > 2) {
            b.attn_mask = (tensor_unsqueeze)(mask, -3);
        }
        memcpy(dims, q->dims, (size_t)q->ndim * sizeof dims[0]);
        dims[q->ndim - 1] = v->dims[v->ndim - 1];
        return (tensor_reshape_n)(nn__run_scaled_dot_product_attention(&b), dims, q->ndim);
    }
    double scale = nn__attention_scale(a);
    int64_t same = q->ndim == k->ndim && q->ndim == v->ndim;
    for (d = 0; same && d + 2 < q->ndim; d++) { same = q->dims[d] == k->dims[d] && q->dims[d] == v->dims[d]; }
    if (mask || a->dropout_p > 0 || !same || k->dims[k->ndim - 2] == 0) {
        return nn__narrow(nn__attention_composed(nn__wide(q), nn__wide(k), nn__wide(v), mask, a->is_causal,
                                                 scale, a->dropout_p, NULL), q);
    }
    o.p = &o.params;
    o.params.attention.is_causal = a->is_causal != 0;
    o.params.attention.scale = scale;
    memcpy(dims, q->dims, (size_t)q->ndim * sizeof dims[0]);
    dims[q->ndim - 1] = v->dims[v->ndim - 1];
    TENSOR__(result)(&o, q->dtype, dims, q->ndim);
    TENSOR__(result)(&o, nn__is_half(q) ? (int)TENSOR_F32 : q->dtype, dims, q->ndim - 1);
    return TENSOR__(finish)(&o);
}

TENSOR__FN tensor_t *nn__attention_call(tensor_scaled_dot_product_attention_args_t *a) {
    NN__AUTOCAST(NN__ROW(ATTENTION)->cast, (a->query = cast_[0], a->key = cast_[1], a->value = cast_[2],
                 a->attn_mask = cast_[3], nn__run_scaled_dot_product_attention(a)),
                 a->query, a->key, a->value, a->attn_mask)
    return nn__run_scaled_dot_product_attention(a);
}

NN__OPTIONS(scaled_dot_product_attention, , nn__attention_call(&a))

// ------------------------------------------------------------------------------
// >>impl-recurrent                                 MARK: recurrent nets
//
// What x adds to the gates is one product over all steps, made before; then the kernel goes from step to
// step. A device's library may run a whole net of layers and directions; then the weights are one row.
// Rejected: a node per step (graphs of thousands of nodes for the work of one kernel).
// ------------------------------------------------------------------------------

enum { NN__NET_GATES = 4 };   // gates kept of each feature (LSTM, GRU)

TENSOR__FN int64_t nn__net_gates(int64_t kind) {
    if (kind == NN__LSTM_NET) { return 4; }
    if (kind == NN__GRU_NET) { return 3; }
    return 1;
}

typedef struct nn__recurrent_t {
    const tensor_call_t *c;
    const nn__cpu_t *k;
    const tensor_arg_t *y, *cell, *gates, *w, *h0, *c0, *dgi, *dhg;   // the last two in backward only
    int64_t t, n, h, g, per, at, before; // at, before: this step, the one before or -1
    int kind, reverse, dtype;
    char *hg;
} nn__recurrent_t;

TENSOR__FN void nn__recurrent_plan(nn__recurrent_t *v, const tensor_call_t *c) {
    const tensor_arg_t *a = c->arg;
    int back = c->row->id == NN_OP_RECURRENT_BACKWARD;
    memset((void *)v, 0, sizeof *v);
    v->c = c;
    v->y = back ? &a[1] : &a[5];
    v->cell = back ? &a[2] : &a[6];
    v->gates = back ? &a[3] : &a[7];
    v->w = back ? &a[4] : &a[1];
    v->h0 = back ? &a[5] : &a[2];
    v->c0 = back ? &a[7] : &a[4];
    v->kind = (int)c->p->recurrent.kind;
    v->reverse = (int)c->p->recurrent.reverse;
    v->dtype = a[0].dtype;
    v->t = v->y->dims[0];
    v->n = v->y->dims[1];
    v->h = v->y->dims[2];
    v->g = v->h * nn__net_gates(v->kind);
    v->per = nn__per(v->n, 20 * v->g);
    v->dgi = back ? &a[8] : NULL;
    v->dhg = NULL;
    if (back) { v->dhg = v->kind == NN__GRU_NET ? &a[9] : &a[8]; }
    v->hg = (char *)c->scratch;
}

// The product hg[n, g] = h w_hhT + b_hh (in backward: dh[n, h] += dhg w_hh).
TENSOR__FN tensor__gemm_t nn__recurrent_product(const nn__recurrent_t *v) {
    tensor__gemm_t g = v->dgi ? nn__product(v->n, v->h, v->g) : nn__product(v->n, v->g, v->h);
    g.b = v->w->data;
    if (v->dgi) {
        g.accumulate = 1;
    } else {
        g.brs = 1;
        g.bcs = v->h;
        g.bias = v->c->arg[3].data;
    }
    return g;
}

TENSOR__FN uint64_t nn__scratch_recurrent(const tensor_call_t *c) {
    nn__recurrent_t v;
    nn__recurrent_plan(&v, c);
    tensor__gemm_t g = nn__recurrent_product(&v);
    return nn__line((uint64_t)(v.n * v.g) * nn__es(v.dtype)) + TENSOR__(gemm_scratch)(&g, v.dtype);
}

// Item n of step t, or of the first state (t < 0).
TENSOR__FN char *nn__state(const nn__recurrent_t *v, const tensor_arg_t *all, const tensor_arg_t *first,
                           int64_t t, int64_t n) {
    return t < 0 ? nn__at(first, n * v->h) : nn__at(all, (t * v->n + n) * v->h);
}

TENSOR__FN void nn__recurrent_task(void *arg, int64_t task, int worker) {
    const nn__recurrent_t *v = (const nn__recurrent_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t n = task * v->per, end = nn__min(n + v->per, v->n), es = (int64_t)nn__es(v->dtype);
    (void)worker;
    for (; n < end; n++) {
        int64_t item = v->at * v->n + n;
        if (v->dgi) {
            NN__DO(v->k, recur_back)(v->kind, nn__at(&a[10], n * v->h), nn__at(&a[11], n * v->h),
                                     nn__at(v->gates, item * NN__NET_GATES * v->h), nn__at(v->y, item * v->h),
                                     nn__state(v, v->y, v->h0, v->before, n),
                                     nn__state(v, v->cell, v->c0, v->before, n), nn__at(v->cell, item * v->h),
                                     nn__at(v->dgi, item * v->g), nn__at(v->dhg, item * v->g), v->h);
        } else {
            NN__DO(v->k, recur)(v->kind, nn__at(&a[0], item * v->g), v->hg + n * v->g * es,
                                nn__state(v, v->y, v->h0, v->before, n),
                                nn__state(v, v->cell, v->c0, v->before, n),
                                nn__at(v->gates, item * NN__NET_GATES * v->h), nn__at(v->y, item * v->h),
                                nn__at(v->cell, item * v->h), v->h);
        }
    }
}

TENSOR__FN void nn__recurrent_steps(nn__recurrent_t *v) {
    const tensor_arg_t *a = v->c->arg;
    tensor__gemm_t g = nn__recurrent_product(v);
    int64_t size = v->n * v->h;
    v->k = nn__cpu(v->dtype);
    g.scratch = v->hg + nn__line((uint64_t)(v->n * v->g) * nn__es(v->dtype));
    for (int64_t s = 0; s < v->t && size > 0; s++) {
        int64_t forward = v->dgi ? v->t - 1 - s : s;
        v->at = v->reverse ? v->t - 1 - forward : forward;
        if (forward == 0) {
            v->before = -1;
        } else if (v->reverse) {
            v->before = v->at + 1;
        } else {
            v->before = v->at - 1;
        }
        if (v->dgi) {
            NN__DO(v->k, add)(a[10].data, nn__at(&a[0], v->at * size), size);
            if (a[6].data) { NN__DO(v->k, add)(a[11].data, nn__at(&a[6], v->at * size), size); }
        } else {
            g.a = nn__state(v, v->y, v->h0, v->before, 0);
            g.c = v->hg;
            TENSOR__(gemm)(&g, v->dtype);
        }
        if (v->h) { nn__run(nn__ceil(v->n, v->per), nn__recurrent_task, v); }
        if (!v->dgi) { continue; }
        g.a = nn__at(v->dhg, v->at * v->n * v->g);
        g.c = a[10].data;
        TENSOR__(gemm)(&g, v->dtype);
    }
}

TENSOR__FN int nn__cpu_recurrent(tensor_call_t *c) {
    nn__recurrent_t v;
    nn__recurrent_plan(&v, c);
    nn__recurrent_steps(&v);
    return TENSOR_OK;
}

TENSOR__FN int nn__cpu_recurrent_back(tensor_call_t *c) {
    nn__recurrent_t v;
    nn__recurrent_plan(&v, c);
    NN__DO(nn__cpu(v.dtype), fill)(c->arg[10].data, 0, c->arg[10].numel);
    NN__DO(nn__cpu(v.dtype), fill)(c->arg[11].data, 0, c->arg[11].numel);
    nn__recurrent_steps(&v);
    return TENSOR_OK;
}

// The same, made of public ops, with the projection w_hr (or NULL). *c becomes the c of all steps.
TENSOR__FN tensor_t *nn__recurrent_composed(int kind, int reverse, tensor_t *gi, tensor_t *w, tensor_t *h,
                                            tensor_t *b, tensor_t **c, tensor_t *w_hr) {
    int64_t steps = gi->dims[0], n = w->dims[0] / nn__net_gates(kind);
    tensor__thread_t *th = TENSOR__(self)();
    tensor_t **list = (tensor_t **)TENSOR__(memory)(th, (uint64_t)steps * 2 * sizeof *list), *cell = *c;
    if (!list) { return TENSOR__(poison); }
    for (int64_t s = 0; s < steps; s++) {
        int64_t at = reverse ? steps - 1 - s : s;
        tensor_t *x = (tensor_select)(gi, 0, at), *g = (tensor_linear)(h, w, b);
        if (kind != NN__GRU_NET) { g = (tensor_add)(x, g); }
        tensor_t *gate[4];
        for (int64_t k = 0; k < nn__net_gates(kind); k++) {
            gate[k] = (tensor_narrow)(g, -1, k * n, n);
            tensor_t *z = (tensor_narrow)(x, -1, k * n, n);
            if (kind == NN__GRU_NET && k == 2) {
                gate[k] = (tensor_tanh)((tensor_add)(z, (tensor_mul)(gate[0], gate[k])));
            } else if (kind == NN__GRU_NET) {
                gate[k] = (tensor_sigmoid)((tensor_add)(z, gate[k]));
            } else if (kind == NN__LSTM_NET) {
                gate[k] = k == 2 ? (tensor_tanh)(gate[k]) : (tensor_sigmoid)(gate[k]);
            }
        }
        if (kind == NN__LSTM_NET) {
            cell = (tensor_add)((tensor_mul)(gate[1], cell), (tensor_mul)(gate[0], gate[2]));
            h = (tensor_mul)(gate[3], (tensor_tanh)(cell));
            if (w_hr) { h = (tensor_linear)(h, w_hr, NULL); }
        } else if (kind == NN__GRU_NET) {
            h = (tensor_add)(gate[2], (tensor_mul)(gate[1], (tensor_sub)(h, gate[2])));
        } else {
            h = kind == NN__TANH_NET ? (tensor_tanh)(g) : (tensor_relu)(g);
        }
        list[at] = h;
        list[steps + at] = cell;
    }
    tensor_t *y = (tensor_stack_n)(list, (int)steps, 0);
    if (kind == NN__LSTM_NET) { *c = (tensor_stack_n)(list + steps, (int)steps, 0); }
    TENSOR__(memory_free)(th, (void *)list);
    return y;
}

// y and c side by side: one output to differentiate.
TENSOR__FN tensor_t *nn__composed_recurrent(tensor_t *const *in, const tensor_params_t *p) {
    tensor_t *both[2], *c = in[4];
    both[0] = nn__recurrent_composed((int)p->recurrent.kind, (int)p->recurrent.reverse, in[0], in[1], in[2],
                                     in[3], &c, NULL);
    both[1] = c;
    return c ? (tensor_cat_n)(both, 2, -1) : both[0];
}

TENSOR__FN void nn__grad_recurrent(tensor__grad_t *g) {
    tensor_t *y = TENSOR__(grad_out)(g, 0), *in[8];
    const tensor__meta_t *h0 = &g->node->in[2];
    int64_t kind = g->p->recurrent.kind, steps = y->dims[0];
    in[0] = g->gy[0] ? nn__contiguous(g->gy[0]) : (tensor_zeros_like)(y);
    in[6] = kind == NN__LSTM_NET && g->gy[1] ? nn__contiguous(g->gy[1]) : NULL;
    tensor_t *r, *list[2];
    if (g->create) {
        tensor__grad_t both = *g;
        list[0] = in[0];
        list[1] = in[6] ? in[6] : (tensor_zeros_like)(y);
        r = kind == NN__LSTM_NET ? (tensor_cat_n)(list, 2, -1) : in[0];
        both.gy = &r;
        nn__grad_composed(&both, nn__composed_recurrent);
        return;
    }
    in[1] = y;
    in[2] = TENSOR__(grad_out)(g, 1);
    in[3] = TENSOR__(grad_out)(g, 2);
    tensor_t *w;
    in[4] = w = TENSOR__(grad_in)(g, 1);
    in[5] = TENSOR__(grad_in)(g, 2);
    in[7] = nn__saved(g, 4);
    tensor__op_t o;
    if (!nn__grad_begin(&o, g, NN__ROW(RECURRENT_BACKWARD), in, 8, 4)) { return; }
    int k;
    for (k = 0; k < 2; k++) {
        nn__result_if(!k || kind == NN__GRU_NET, &o, y->dtype, g->node->in[0].dims, 3);
    }
    for (k = 0; k < 2; k++) {
        nn__result_if(!k || kind == NN__LSTM_NET, &o, y->dtype, h0->dims, 2);
    }
    r = TENSOR__(finish)(&o);
    if (r->state == TENSOR__POISON_STATE) {
        g->gx[0] = r;
        return;
    }
    g->gx[0] = o.out[0];
    g->gx[2] = o.out[2];
    if (kind == NN__LSTM_NET) { g->gx[4] = o.out[3]; }
    int64_t dims[2];
    dims[0] = -1;
    dims[1] = w->dims[0];
    tensor_t *dhg = (tensor_reshape_n)(o.out[kind == NN__GRU_NET], dims, 2);
    if (TENSOR__(grad_need)(g, 3)) { g->gx[3] = (tensor_sum_dim)(dhg, 0, 0); }
    if (!TENSOR__(grad_need)(g, 1)) { return; }
    k = g->p->recurrent.reverse != 0;   // the states before each step
    list[k] = (tensor_unsqueeze)(in[5], 0);
    list[!k] = (tensor_narrow)(y, 0, k, steps - 1);
    dims[1] = w->dims[1];
    g->gx[1] = (tensor_matmul)((tensor_mT)(dhg), (tensor_reshape_n)((tensor_cat_n)(list, 2, 0), dims, 2));
}

// One layer and direction: gi [T, N, G], h and c [N, H], f32 or f64. -> y; *h and *c become the last states
TENSOR__FN tensor_t *nn__recurrent(int kind, int reverse, tensor_t *gi, tensor_t *w, tensor_t *b,
                                   tensor_t *w_hr, tensor_t **h, tensor_t **c) {
    tensor__op_t o;
    tensor_t *in[5], *y, *cells;
    int64_t dims[3], last = reverse ? 0 : gi->dims[0] - 1;
    if (w_hr) {
        cells = *c;
        y = nn__recurrent_composed(kind, reverse, gi, w, *h, b, &cells, w_hr);
    } else {
        in[0] = nn__contiguous(gi);
        in[1] = nn__contiguous(w);
        in[2] = nn__contiguous(*h);
        in[3] = nn__contiguous(b);
        in[4] = kind == NN__LSTM_NET ? nn__contiguous(*c) : NULL;
        if (!TENSOR__(begin)(&o, NN__ROW(RECURRENT), in, 5)) { return TENSOR__(poison); }
        o.p = &o.params;
        o.params.recurrent.kind = kind;
        o.params.recurrent.reverse = reverse;
        o.visible = 2;
        dims[0] = gi->dims[0];
        dims[1] = gi->dims[1];
        dims[2] = w->dims[1];
        TENSOR__(result)(&o, gi->dtype, dims, 3);
        nn__result_if(kind == NN__LSTM_NET, &o, gi->dtype, dims, 3);
        dims[2] *= NN__NET_GATES;
        nn__result_if(kind >= NN__LSTM_NET, &o, gi->dtype, dims, 3);
        y = TENSOR__(finish)(&o);
        if (y->state == TENSOR__POISON_STATE) { return y; }
        cells = o.out[1];
    }
    *h = (tensor_select)(y, 0, last);
    if (kind == NN__LSTM_NET) { *c = (tensor_select)(cells, 0, last); }
    return y;
}

TENSOR__FN tensor_state_t nn__no_state(void) {
    tensor_state_t s;
    s.y = s.h = s.c = TENSOR__(poison);
    return s;
}

// Whether t is [d0, d1] (d1 < 0: [d0]) of x's dtype; raises if not.
TENSOR__FN int nn__fits(const char *op, const char *what, const tensor_t *t, const tensor_t *x, int64_t d0,
                        int64_t d1) {
    if (!TENSOR__GIVEN(t) || t->state != TENSOR__LIVE) {
        NN__FAIL(TENSOR_ERR_POISONED, "%s: %s is missing, freed or failed earlier", op, what);
    } else if (t->dtype != x->dtype) {
        NN__FAIL(TENSOR_ERR_DTYPE, "%s: %s is %y, x is %y; use tensor_to", op, what, t, x);
    } else if (d1 < 0 && (t->ndim != 1 || t->dims[0] != d0)) {
        NN__FAIL(TENSOR_ERR_SHAPE, "%s: %s %t must be [%d] (x %t)", op, what, t, d0, x);
    } else if (d1 >= 0 && (t->ndim != 2 || t->dims[0] != d0 || t->dims[1] != d1)) {
        NN__FAIL(TENSOR_ERR_SHAPE, "%s: %s %t must be [%d, %d] (x %t)", op, what, t, d0, d1, x);
    } else {
        return 1;
    }
    return 0;
}

// ---- whole nets by a device's library: weights are one row, first w_ih and w_hh of all layers and
// directions, then their biases; states are h, then c (LSTM)

TENSOR__FN tensor_state_t nn__net(const char *op, int kind, const tensor_rnn_args_t *a, int own);

// y and the states in one row.
TENSOR__FN tensor_t *nn__composed_net(tensor_t *const *in, const tensor_params_t *params) {
    const tensor__net_params_t *p = &params->net;
    tensor_rnn_args_t a = tensor_rnn_defaults();
    int64_t n = p->num_layers * p->directions, h = p->hidden_size, at = 0;
    int per = p->no_bias ? 2 : 4;
    tensor_t **w = (tensor_t **)TENSOR__(memory)(nn__self(), (uint64_t)(n * per) * sizeof *w);
    if (!w) { return TENSOR__(poison); }
    int64_t dims[2];
    dims[0] = h * nn__net_gates(p->kind);
    for (int j = 0; j < per; j += 2) {
        for (int64_t k = 0; k < 2 * n; k++) {
            if (j) {
                dims[1] = 1;
            } else if (k & 1) {
                dims[1] = h;
            } else if (k / 2 < p->directions) {
                dims[1] = in[0]->dims[2];
            } else {
                dims[1] = h * p->directions;
            }
            tensor_t *part = (tensor_narrow)(in[1], 0, at, dims[0] * dims[1]);
            w[k / 2 * per + j + (k & 1)] = j ? part : (tensor_reshape_n)(part, dims, 2);
            at += dims[0] * dims[1];
        }
    }
    a.x = in[0];
    a.weights = w;
    a.h = in[2];
    a.c = in[3];
    a.layers = p->num_layers;
    a.bidirectional = p->directions == 2;
    a.no_bias = (int)p->no_bias;
    a.batch_first = (int)p->batch_first;
    tensor_state_t s = nn__net("recurrent_net", (int)p->kind, &a, 1);
    TENSOR__(memory_free)(nn__self(), (void *)w);
    tensor_t *list[3];
    list[0] = (tensor_flatten)(s.y, 0, -1);
    list[1] = (tensor_flatten)(s.h, 0, -1);
    if (s.c) { list[2] = (tensor_flatten)(s.c, 0, -1); }
    return (tensor_cat_n)(list, s.c ? 3 : 2, 0);
}

TENSOR__FN void nn__grad_net(tensor__grad_t *g);
static const tensor__row_t nn__net_rows[2] = {
    {"recurrent_net", TENSOR_FAMILY_RECURRENT, 4, 2, 3, 0, 0, NN_OP_NET,
     TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SD | TENSOR__SY | TENSOR__SY2, nn__grad_net, nn__declined,
     NULL, "x weights h0 c0", NULL},
    {"recurrent_net_backward", TENSOR_FAMILY_RECURRENT, 8, 5, 4, 0, 0, NN_OP_NET_BACKWARD, 0, NULL,
     nn__declined, NULL, "grad x weights y reserve h0 c0 dstates", NULL}};

TENSOR__FN void nn__grad_net(tensor__grad_t *g) {
    tensor__grad_t both = *g;
    tensor_t *in[8], *y = TENSOR__(grad_out)(g, 0);
    in[0] = g->gy[0] ? nn__contiguous(g->gy[0]) : (tensor_zeros_like)(y);
    in[1] = TENSOR__(grad_in)(g, 0);
    in[2] = TENSOR__(grad_in)(g, 1);
    in[3] = y;
    in[4] = TENSOR__(grad_out)(g, 2);
    in[5] = nn__saved(g, 2);
    in[6] = nn__saved(g, 3);
    in[7] = g->gy[1] ? nn__contiguous(g->gy[1]) : NULL;
    tensor__op_t o;
    tensor_t *r;
    if (!g->create && TENSOR__(begin)(&o, &nn__net_rows[1], in, 8)) {
        o.p = &o.params;
        o.params = *g->p;
        o.visible = 4;
        for (int k = 0; k < 4; k++) {
            r = in[k < 2 ? 1 + k : 3 + k];
            nn__result_if(r != NULL, &o, y->dtype, r ? r->dims : NULL, r ? r->ndim : 0);
        }
        if (TENSOR__(finish)(&o)->state != TENSOR__POISON_STATE) {
            for (int k = 0; k < 4; k++) {
                if (TENSOR__(grad_need)(g, k)) { g->gx[k] = o.out[k]; }
            }
            return;
        }
    }
    int64_t dims[4];
    if (!in[7]) {
        const tensor__net_params_t *p = &g->p->net;
        dims[0] = p->kind == NN__LSTM_NET ? 2 : 1;
        dims[1] = p->num_layers * p->directions;
        dims[2] = y->dims[!p->batch_first];
        dims[3] = p->hidden_size;
        in[7] = nn__beside((tensor_zeros_n)(dims, 4, (tensor_dtype_t)y->dtype), y);
    }
    in[0] = (tensor_flatten)(in[0], 0, -1);
    in[1] = (tensor_flatten)(in[7], 0, -1);
    r = (tensor_cat_n)(in, 2, 0);
    both.gy = &r;
    nn__grad_composed(&both, nn__composed_net);
}

// `run` layers from layer l on; x [T, N, ..] -> y, and states [1 or 2, run * directions, N, H]. NULL = the
// device has no library for it.
TENSOR__FN tensor_t *nn__net_whole(int kind, const tensor_rnn_args_t *a, tensor_t *x, int64_t hidden,
                                   int64_t l, int64_t run, tensor_t **states) {
    int64_t dirs = a->bidirectional ? 2 : 1;
    int64_t per = a->no_bias ? 2 : 4, n = run * dirs;
    int count = 0, single = a->x->ndim == 2, before = (tensor_error_code)();
    tensor_t *in[4] = {NULL, NULL, NULL, NULL};
    if (a->proj_size > 0 || !x->device || !x->numel || hidden <= 0) { return NULL; }
    tensor_params_t p;
    memset((void *)&p, 0, sizeof p);
    p.net.kind = kind;
    p.net.num_layers = run;
    p.net.directions = dirs;
    p.net.no_bias = a->no_bias != 0;
    p.net.batch_first = a->batch_first && !single;
    p.net.hidden_size = hidden;
    p.net.training = (tensor_grad_enabled)();
    x = nn__narrow(x, a->x);
    if (p.net.batch_first) { x = (tensor_transpose)(x, 0, 1); }
    int64_t reserve = (tensor_is_poison)(x) ? -1 : TENSOR__(net)(x, &p);
    if (reserve < 0) { return NULL; }
    tensor_t **list;
    list = (tensor_t **)TENSOR__(memory)(nn__self(), (uint64_t)(n * per) * sizeof *list);
    if (!list) { return nn__unless_raised(before); }
    for (int64_t j = 0; j < per; j += 2) {
        for (int64_t k = 0; k < 2 * n; k++) {
            list[count++] = (tensor_flatten)(a->weights[(l * dirs + k / 2) * per + j + (k & 1)], 0, -1);
        }
    }
    in[0] = nn__contiguous(x);
    in[1] = (tensor_cat_n)(list, count, 0);
    TENSOR__(memory_free)(nn__self(), (void *)list);
    tensor_t *y;
    for (int64_t k = 0; k < (kind == NN__LSTM_NET ? 2 : 1); k++) {
        y = k ? a->c : a->h;
        if (y) {
            in[2 + k] = nn__contiguous((tensor_narrow)(single ? (tensor_unsqueeze)(y, 1) : y, 0, l * dirs,
                                                       n));
        }
    }
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, &nn__net_rows[0], in, 4)) { return nn__unless_raised(before); }
    o.p = &o.params;
    o.params = p;
    o.visible = 2;
    int64_t dims[4];
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    dims[2] = dirs * hidden;
    TENSOR__(result)(&o, x->dtype, dims, 3);
    dims[0] = kind == NN__LSTM_NET ? 2 : 1;
    dims[1] = n;
    dims[2] = x->dims[!p.net.batch_first];
    dims[3] = hidden;
    TENSOR__(result)(&o, x->dtype, dims, 4);
    TENSOR__(result)(&o, TENSOR_U8, &reserve, 1);
    y = TENSOR__(finish)(&o);
    if (y->state == TENSOR__POISON_STATE) { return nn__unless_raised(before); }
    *states = o.out[1];
    return p.net.batch_first ? (tensor_transpose)(y, 0, 1) : y;
}

enum { NN__LAYERS = 65535 };        // of a recurrent net, at most

// Runs all layers and directions, in the scope of the caller. own: without a device's library.
TENSOR__FN tensor_state_t nn__net(const char *op, int kind, const tensor_rnn_args_t *a, int own) {
    tensor_t *in[3] = {a->x, a->h, a->c}, *const *w = a->weights, *first[2] = {NULL, NULL};
    int64_t dirs = a->bidirectional ? 2 : 1, gates = nn__net_gates(kind);
    int64_t per = (a->no_bias ? 2 : 4) + (a->proj_size > 0);
    int states = kind == NN__LSTM_NET ? 2 : 1, drops = a->training && a->dropout > 0, made = 0;
    tensor_state_t s = nn__no_state();
    if (!nn__inputs(op, "x h c", 1, in, 3, TENSOR__(casting)() ? 0 : 7)) { return s; }
    tensor_t *x = a->x;
    int single = x->ndim == 2;
    if (x->ndim < 2 || x->ndim > 3 || x->dims[a->batch_first && !single] == 0) {
        return NN__GIVE(s, TENSOR_ERR_SHAPE, "%s: x %t must be [%s, I] or [T, I], T > 0", op, x,
                        a->batch_first ? "N, T" : "T, N");
    }
    if (a->layers < 1 || a->layers > NN__LAYERS || a->proj_size < 0 ||
        (a->proj_size > 0 && kind != NN__LSTM_NET) || !w || !(a->dropout >= 0 && a->dropout <= 1)) {
        return NN__GIVE(s, TENSOR_ERR_SHAPE, "%s: needs weights%s, layers (%d) in 1..%d, proj_size (%d) >= 0 "
                        "(LSTM), dropout (%g) in 0..1; x %t", op, w ? "" : " (they are NULL)", a->layers,
                        (int64_t)NN__LAYERS, a->proj_size, a->dropout, x);
    }
    int64_t ends = a->layers * dirs;
    int64_t n;
    tensor_t **end;
    if (TENSOR__(casting)()) {
        tensor_rnn_args_t b = *a;
        tensor_dtype_t was = (tensor_autocast_dtype)();
        n = 3 + ends * per;
        end = (tensor_t **)nn__lent((uint64_t)n, sizeof *end);
        if (!end) { return s; }
        memcpy(end, in, sizeof in);
        memcpy(end + 3, w, (size_t)(n - 3) * sizeof *end);
        TENSOR__(autocast)(NN__ROW(RECURRENT)->cast, end, (int)n);
        b.x = end[0];
        b.h = end[1];
        b.c = end[2];
        b.weights = end + 3;
        s = nn__net(op, kind, &b, own);
        (tensor_set_autocast)(was);     // the caller's scope may have failed to open
        return s;
    }
    if (!TENSOR__GIVEN(w[1]) || w[1]->state != TENSOR__LIVE) {
        return NN__GIVE(s, TENSOR_ERR_OWNER, "%s: weight 1 (w_hh) is %s", op,
                        w[1] ? "no live tensor" : "NULL");
    }
    if (w[1]->ndim != 2 || w[1]->dims[0] % gates != 0) {
        return NN__GIVE(s, TENSOR_ERR_SHAPE, "%s: weight 1 %t must be w_hh [%d H, H] (x %t)", op, w[1], gates,
                        x);
    }
    int64_t hidden = w[1]->dims[0] / gates;
    int64_t size = a->proj_size > 0 ? a->proj_size : hidden;
    int64_t features = x->dims[x->ndim - 1];
    for (int64_t l = 0; l < a->layers; l++, features = dirs * size) {
        for (int64_t d = 0; d < dirs; d++) {
            tensor_t *const *p = w + (l * dirs + d) * per;
            if (!nn__fits(op, "w_ih", p[0], x, gates * hidden, features) ||
                !nn__fits(op, "w_hh", p[1], x, gates * hidden, size) ||
                (!a->no_bias && (!nn__fits(op, "b_ih", p[2], x, gates * hidden, -1) ||
                                 !nn__fits(op, "b_hh", p[3], x, gates * hidden, -1))) ||
                (a->proj_size > 0 && !nn__fits(op, "w_hr", p[per - 1], x, size, hidden))) {
                return s;
            }
        }
    }
    n = single ? 1 : x->dims[!a->batch_first];
    int64_t dims[3];
    for (int64_t k = 0; k < states; k++) {
        tensor_t *f = in[1 + k];
        dims[0] = ends;
        dims[1] = n;
        dims[2] = k ? hidden : size;
        if (f && (f->ndim != x->ndim || f->dims[0] != ends || f->dims[f->ndim - 1] != dims[2] ||
                  (!single && f->dims[1] != n))) {
            const char *name = k ? "c" : "h";
            const char *without = single ? ": without the second dim" : "";
            return NN__GIVE(s, TENSOR_ERR_SHAPE, "%s: %s %t must be [%d, %d, %d] (x %t%s)", op, name, f, ends,
                            n, dims[2], x, without);
        }
    }
    end = (tensor_t **)nn__lent((uint64_t)ends * 2, sizeof *end);
    if (!end) { return s; }
    if (single) {
        x = (tensor_unsqueeze)(x, 1);
    } else if (a->batch_first) {
        x = (tensor_transpose)(x, 0, 1);
    }
    tensor_t *state[2], *side[2];
    int64_t run;
    for (int64_t l = 0; l < a->layers && !(tensor_is_poison)(x); l += run) {
        tensor_t *both = NULL;
        run = drops ? 1 : a->layers - l;
        tensor_t *y = own ? NULL : nn__net_whole(kind, a, x, hidden, l, run, &both);
        if (y) {
            x = y;
            for (int64_t k = 0; k < states && !(tensor_is_poison)(x); k++) {
                end[k * ends + made] = (tensor_select)(both, 0, k);
            }
            made++;
        } else {
            run = 1;
            x = nn__wide(x);
            for (int64_t k = 0; k < states && !first[k]; k++) {
                tensor_t *f = nn__wide(in[1 + k]);
                dims[2] = k ? hidden : size;
                if (!f) {
                    first[k] = nn__beside((tensor_zeros_n)(dims, 3, (tensor_dtype_t)x->dtype), x);
                } else if (single) {
                    first[k] = (tensor_unsqueeze)(f, 1);
                } else {
                    first[k] = f;
                }
            }
            for (int64_t d = 0; d < dirs; d++, made++) {
                tensor_t *const *p = w + (l * dirs + d) * per;
                tensor_t *gi = (tensor_linear)(x, nn__wide(p[0]), a->no_bias ? NULL : nn__wide(p[2]));
                for (int64_t k = 0; k < states; k++) {
                    state[k] = (tensor_select)(first[k], 0, l * dirs + d);
                }
                side[d] = gi;
                if (!(tensor_is_poison)(gi)) {
                    tensor_t *w_hr = a->proj_size > 0 ? nn__wide(p[per - 1]) : NULL;
                    tensor_t *b_hh = a->no_bias ? NULL : nn__wide(p[3]);
                    side[d] = nn__recurrent(kind, (int)d, gi, nn__wide(p[1]), b_hh, w_hr, &state[0],
                                            &state[1]);
                }
                for (int64_t k = 0; k < states; k++) {
                    end[k * ends + made] = (tensor_unsqueeze)(state[k], 0);
                }
            }
            x = dirs == 2 ? (tensor_cat_n)(side, 2, -1) : side[0];
        }
        if (l + run < a->layers && drops) { x = (tensor_dropout)(x, a->dropout, 1); }
    }
    tensor_t *out[2];
    for (int64_t k = 0; k < states && !(tensor_is_poison)(x); k++) {
        out[k] = (tensor_cat_n)(end + k * ends, made, 0);
        out[k] = nn__narrow(single ? (tensor_squeeze)(out[k], 1) : out[k], a->x);
    }
    if ((tensor_is_poison)(x)) { return s; }
    if (single) {
        x = (tensor_squeeze)(x, 1);
    } else if (a->batch_first) {
        x = (tensor_transpose)(x, 0, 1);
    }
    s.y = nn__narrow(x, a->x);
    s.h = out[0];
    s.c = states == 2 ? out[1] : NULL;
    return s;
}

// Moves three results out of a scope: tensor_set gives h and c to tensors of the scope around it.
typedef struct nn__state_scope_t {
    tensor_t *h, *c;
    tensor_scope_t scope;
} nn__state_scope_t;

TENSOR__FN nn__state_scope_t nn__state_begin(int kind) {
    nn__state_scope_t b;
    b.h = (tensor_scalar)(0, TENSOR_F32);
    b.c = kind == NN__LSTM_NET ? (tensor_scalar)(0, TENSOR_F32) : NULL;
    b.scope = TENSOR__(scope)(-1);
    return b;
}

TENSOR__FN tensor_state_t nn__state_end(nn__state_scope_t *b, tensor_state_t s, const char *site) {
    int bad = s.y == TENSOR__(poison);
    if (!bad) {
        bad = (tensor_set)(&b->h, s.h) != TENSOR_OK || (b->c && (tensor_set)(&b->c, s.c) != TENSOR_OK);
    }
    s.y = tensor__at(site, (tensor_scope_return)(b->scope, bad ? TENSOR__(poison) : s.y));
    s.h = b->h;
    s.c = b->c;
    if (!bad) { return s; }
    (tensor_free)(b->h);
    (tensor_free)(b->c);
    return nn__no_state();
}

#define NN__RNN_SET NN__OR(layers, 1) NN__OR(proj_size, 0) NN__OR(dropout, 0)
NN__FILL_DEFAULTS(tensor_rnn, NN__RNN_SET)
#define NN__NET(op, kind)                                                                                    \
    TENSOR_API tensor_state_t tensor_##op##_with(tensor_rnn_args_t a) {                                      \
        nn__state_scope_t b;                                                                                 \
        if (!NN__TAKE(#op, tensor_rnn, a)) {                                                                 \
            (void)tensor__at(a.site_, TENSOR__(poison));                                                     \
            return nn__no_state();                                                                           \
        }                                                                                                    \
        b = nn__state_begin(kind);                                                                           \
        return nn__state_end(&b, nn__net(#op, kind, &a, 0), a.site_);                                        \
    }
NN__NET(lstm, NN__LSTM_NET)
NN__NET(gru, NN__GRU_NET)
NN__NET(rnn, a.relu ? NN__RELU_NET : NN__TANH_NET)

// A cell is a net of one layer over one step.
TENSOR__FN tensor_state_t nn__cell(const char *op, int kind, tensor_t *x, tensor_t *h, tensor_t *c,
                                   tensor_t *const *w) {
    tensor_t *const in[3] = {x, h, c};
    tensor_rnn_args_t a = tensor_rnn_defaults();
    tensor_state_t s = nn__no_state();
    if (!nn__inputs(op, "x h c", 1, in, 3, 0)) { return s; }
    if (x->ndim < 1 || x->ndim > 2 || (h && h->ndim != x->ndim) || (c && c->ndim != x->ndim)) {
        return NN__GIVE(s, TENSOR_ERR_SHAPE, "%s: x %t must be [N, I] or [I], h and c alike", op, x);
    }
    nn__state_scope_t b = nn__state_begin(kind);
    a.x = (tensor_unsqueeze)(x, 0);
    a.h = h ? (tensor_unsqueeze)(h, 0) : h;
    a.c = c ? (tensor_unsqueeze)(c, 0) : c;
    a.weights = w;
    a.no_bias = !w[2] && !w[3];
    s = nn__net(op, kind, &a, 0);
    if (s.y != TENSOR__(poison)) {
        s.y = s.h = (tensor_select)(s.h, 0, 0);
        if (s.c) { s.c = (tensor_select)(s.c, 0, 0); }
        s.y = (tensor_view_n)(s.y, s.y->dims, s.y->ndim);
    }
    return nn__state_end(&b, s, NULL);
}

TENSOR_API tensor_state_t nn__at_state(const char *site, tensor_state_t s) {
    tensor__at(site, s.y);
    tensor__at(site, s.h);
    if (s.c) { tensor__at(site, s.c); }
    return s;
}

TENSOR_API tensor_state_t (tensor_lstm_cell)(tensor_t *x, tensor_t *h, tensor_t *c, tensor_t *w_ih,
                                             tensor_t *w_hh, tensor_t *b_ih, tensor_t *b_hh) {
    tensor_t *const w[4] = {w_ih, w_hh, b_ih, b_hh};
    return nn__cell("lstm_cell", NN__LSTM_NET, x, h, c, w);
}

TENSOR_API tensor_t *(tensor_gru_cell)(tensor_t *x, tensor_t *h, tensor_t *w_ih, tensor_t *w_hh,
                                       tensor_t *b_ih, tensor_t *b_hh) {
    tensor_t *const w[4] = {w_ih, w_hh, b_ih, b_hh};
    return nn__cell("gru_cell", NN__GRU_NET, x, h, NULL, w).y;
}

TENSOR_API tensor_t *(tensor_rnn_cell)(tensor_t *x, tensor_t *h, tensor_t *w_ih, tensor_t *w_hh,
                                       tensor_t *b_ih, tensor_t *b_hh, int relu) {
    tensor_t *const w[4] = {w_ih, w_hh, b_ih, b_hh};
    return nn__cell("rnn_cell", relu ? NN__RELU_NET : NN__TANH_NET, x, h, NULL, w).y;
}

// ------------------------------------------------------------------------------
// >>impl-losses                                    MARK: losses
//
// Sums are divided, by shape alone, into chunks whose partial sums (double) are added in order. Rejected:
// float atomics or one chain per thread (the result would depend on the number of threads), f32 sums.
// ------------------------------------------------------------------------------

enum { NN__LOSS_CHUNK = 4096 };   // elements per task

// The operations of the loss formulas on tensors; constants are 0-d tensors of dtype dt.
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

// What only rows of pointwise losses have (row->own): the functions of a pass, the formula on tensors, the
// row of the gradient.
typedef struct nn__pointwise_t {
    nn__value_fn *(*value)(int place);
    nn__slope_fn *(*slope)(int place);
    nn__composed_fn composed;
    const tensor__row_t *(*back)(void);
} nn__pointwise_t;

typedef struct nn__loss_job_t {
    const tensor_call_t *c;
    const nn__cpu_t *k;
    const nn__pointwise_t *own;
    int64_t n, rows, per, classes;
    double scale;
    int reduction, dtype;
    double *part;
} nn__loss_job_t;

// The factor for a loss of n terms. batch: size of dim 0.
TENSOR__FN double nn__loss_factor(int reduction, int64_t n, int64_t batch) {
    if (reduction == TENSOR_MEAN) { return 1 / (double)n; }
    if (reduction == TENSOR_BATCHMEAN) { return 1 / (double)batch; }
    return 1;
}

TENSOR__FN double nn__loss_scale(const tensor_params_t *p, const tensor_arg_t *x) {
    return nn__loss_factor((int)p->loss.reduction, x->numel, x->ndim ? x->dims[0] : 1);
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
        NN__DO(v->k, loss)(v->own->value(v->k->place), nn__at(&a[0], first), nn__at(&a[1], first),
                           nn__at(&a[2], first), nn__at(&a[3], first), y,
                           nn__min(NN__LOSS_CHUNK, v->n - first), v->c->p->loss.beta);
}

TENSOR__FN int nn__cpu_loss(tensor_call_t *c) {
    nn__loss_job_t v;
    double s = 0;
    v.c = c;
    v.own = (const nn__pointwise_t *)c->row->own;
    v.dtype = c->arg[0].dtype;
    v.k = nn__cpu(v.dtype);
    v.n = c->arg[0].numel;
    v.reduction = (int)c->p->loss.reduction;
    v.part = (double *)c->scratch;
    for (int64_t i = 0; c->p->loss.kind == NN__LOSS_BCE && i < v.n; i++) {
        double x = nn__value(c->arg[0].data, v.dtype, i);
        if (x >= 0 && x <= 1) { continue; }
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX, "%s: input %g at position %d of %n is not in 0..1",
                             c->row->name, x, i, c->arg[0].dims, (int)c->arg[0].ndim);
        return TENSOR_ERR_INDEX;
    }
    int64_t tasks = nn__ceil(v.n, NN__LOSS_CHUNK);
    nn__run(tasks, nn__loss_task, &v);
    if (v.reduction == TENSOR_NONE) { return TENSOR_OK; }
    for (int64_t i = 0; i < tasks; i++) { s += v.part[i]; }
    nn__store(c->arg[4].data, v.dtype, 0, s * nn__loss_scale(c->p, &c->arg[0]));
    return TENSOR_OK;
}

TENSOR__FN void nn__loss_back_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t first = task * NN__LOSS_CHUNK, step = v->reduction == TENSOR_NONE;
    (void)worker;
    NN__DO(v->k, loss_back)(v->own->slope(v->k->place), nn__at(&a[0], first * step), step, v->scale,
                            nn__at(&a[1], first), nn__at(&a[2], first), nn__at(&a[3], first),
                            nn__at(&a[4], first), a[5].numel ? nn__at(&a[5], first) : NULL,
                            a[6].numel ? nn__at(&a[6], first) : NULL, nn__min(NN__LOSS_CHUNK, v->n - first),
                            v->c->p->loss.beta);
}

TENSOR__FN int nn__cpu_loss_back(tensor_call_t *c) {
    nn__loss_job_t v;
    v.c = c;
    v.own = (const nn__pointwise_t *)c->row->own;
    v.dtype = c->arg[1].dtype;
    v.k = nn__cpu(v.dtype);
    v.n = c->arg[1].numel;
    v.reduction = (int)c->p->loss.reduction;
    v.scale = nn__loss_scale(c->p, &c->arg[1]);
    nn__run(nn__ceil(v.n, NN__LOSS_CHUNK), nn__loss_back_task, &v);
    return TENSOR_OK;
}

TENSOR__FN tensor_t *nn__reduced(tensor_t *y, const tensor_params_t *p, const tensor_t *x) {
    int reduction = (int)p->loss.reduction;
    if (reduction == TENSOR_NONE) { return y; }
    y = (tensor_sum)(y);
    return (tensor_mul_scalar)(y, nn__loss_factor(reduction, x->numel, x->ndim ? x->dims[0] : 1));
}

// The rows of the gradient, one for each loss.
#define NN__LOSS_BACKWARD(own)                                                                               \
    {"loss_backward", TENSOR_FAMILY_LOSS, 5, 3, 2, 0, TENSOR__AS_IS, NN_OP_LOSS_BACKWARD, 0, NULL,           \
     nn__cpu_loss_back, NULL, "grad input target weight pos_weight", own}

#define NN__X(ID, value, dx, dt_)                                                                            \
    TENSOR__FN tensor_t *nn__composed_##ID(tensor_t *const *in, const tensor_params_t *params) {             \
        const tensor_dtype_t dt = (tensor_dtype_t)in[0]->dtype;                                              \
        tensor_t *p = T_SET(params->loss.beta), *q = in[3] ? in[3] : T_SET(1);                               \
        tensor_t *y = value(T_, in[0], in[1], p, q);                                                         \
        (void)p, (void)q;                                                                                    \
        if (in[2]) { y = (tensor_mul)(y, in[2]); }                                                           \
        return nn__reduced(y, params, in[0]);                                                                \
    }                                                                                                        \
    TENSOR__FN const tensor__row_t *nn__row_back_##ID(void);                                                 \
    static const nn__pointwise_t nn__pointwise_##ID = {                                                      \
        nn__do_value_##ID, TENSOR__GRAD(nn__do_slope_##ID), TENSOR__GRAD(nn__composed_##ID),                 \
        TENSOR__GRAD(nn__row_back_##ID)};                                                                    \
    TENSOR__FN const tensor__row_t *nn__row_back_##ID(void) {                                                \
        static const tensor__row_t row = NN__LOSS_BACKWARD(&nn__pointwise_##ID);                             \
        return &row;                                                                                         \
    }
NN_LOSSES(NN__X)
#undef NN__X

TENSOR__FN const nn__pointwise_t *nn__pointwise(const tensor__row_t *row) {
    return (const nn__pointwise_t *)row->own;
}

TENSOR__FN void nn__grad_loss(tensor__grad_t *g) {
    if (nn__grad_created(g, nn__pointwise(g->node->row)->composed)) { return; }
    tensor_t *in[5];
    in[0] = nn__contiguous(g->gy[0]);
    for (int k = 0; k < 4; k++) { in[1 + k] = nn__saved(g, k); }
    tensor__op_t o;
    if (!nn__grad_begin(&o, g, nn__pointwise(g->node->row)->back(), in, 5, 2)) { return; }
    for (int k = 0; k < 2; k++) {
        nn__result_if(TENSOR__(grad_need)(g, k), &o, in[1]->dtype, in[1]->dims, in[1]->ndim);
    }
    nn__grad_end(&o, g, 2);
}

// Whether *w (weight or pos_weight, may be NULL) broadcasts to x; if so it is expanded to x's shape. Raises
// if not.
TENSOR__FN int nn__loss_weight(const char *op, const char *what, tensor_t **w, const tensor_t *x) {
    if (!*w) { return 1; }
    int fits = (*w)->ndim <= x->ndim;
    for (int d = 0; fits && d < (*w)->ndim; d++) {
        int k = x->ndim - (*w)->ndim + d;
        fits = (*w)->dims[d] == x->dims[k] || (*w)->dims[d] == 1;
    }
    if (!fits) {
        return NN__NO(TENSOR_ERR_SHAPE, "%s: %s %t does not broadcast to input %t", op, what, *w, x);
    }
    *w = nn__contiguous((tensor_expand_n)(*w, x->dims, x->ndim));
    return 1;
}

// at_zero: NULL, or the row that is used instead if f is 0.
TENSOR__FN tensor_t *nn__loss_front(const tensor__row_t *row, const tensor__row_t *at_zero, tensor_t *x,
                                    tensor_t *t, tensor_t *w, tensor_t *q, double f,
                                    tensor_reduction_t reduction) {
    const int which = row->id - NN_OP_LOSS_MSE;
    tensor_t *in[4] = {x, t, w, q};
    if (which == NN__LOSS_BCE && TENSOR__(casting)()) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "binary_cross_entropy: unsafe under autocast (input %t); "
                        "binary_cross_entropy_with_logits is safe", x);
    }
    tensor__op_t o;
    NN__AUTOCAST(row->cast,
                 nn__loss_front(row, at_zero, cast_[0], cast_[1], cast_[2], cast_[3], f, reduction), x, t, w,
                 q)
    if (!TENSOR__(begin)(&o, row, in, 4)) { return TENSOR__(poison); }
    tensor_scope_t scope;
    if (x->dtype != t->dtype && (nn__is_float(x) || nn__is_float(t)) &&
        (which < NN__LOSS_HUBER || (which > NN__LOSS_BCE && nn__is_float(t)))) {
        scope = TENSOR__(scope)(-1);
        nn__promote(in, 2, 3);
        x = nn__loss_front(row, at_zero, in[0], in[1], w, q, f, reduction);
        return (tensor_scope_return)(scope, which == NN__LOSS_BCE_LOGITS ? nn__narrow(x, t) : x);
    }
    for (int k = 2; k < 4; k++) {
        if (in[k]) { o.args[k] = in[k] = nn__narrow(in[k], x); }
    }
    if (!nn__floats(&o, 15)) { return TENSOR__(poison); }
    if (!nn__same_shape(x, t)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: input %t and target %t must have the same shape", row->name, x,
                        t);
    }
    if ((int)reduction < 0 || reduction > TENSOR_BATCHMEAN ||
        (reduction == TENSOR_BATCHMEAN && which != NN__LOSS_KL_DIV && which != NN__LOSS_KL_DIV_LOG)) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "%s: reduction %i (input %t) must be TENSOR_MEAN, TENSOR_SUM or TENSOR_NONE",
                        row->name, (int)reduction, x);
    }
    if (at_zero && f == 0) { return nn__loss_front(at_zero, NULL, x, t, w, q, 0, reduction); }
    if ((which == NN__LOSS_SMOOTH_L1 && !(f > 0)) || (which == NN__LOSS_HUBER && !(f > 0))) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: %s %g (input %t) is out of range", row->name,
                        which == NN__LOSS_HUBER ? "delta" : "beta", f, x);
    }
    if (nn__is_half(x)) {
        scope = TENSOR__(scope)(-1);
        t = nn__loss_front(row, at_zero, nn__wide(x), nn__wide(t), nn__wide(w), nn__wide(q), f, reduction);
        return (tensor_scope_return)(scope, nn__narrow(t, x));
    }
    if (!nn__loss_weight(row->name, "weight", &in[2], x) ||
        !nn__loss_weight(row->name, "pos_weight", &in[3], x)) {
        return TENSOR__(poison);
    }
    o.params.loss.kind = which;
    o.params.loss.reduction = reduction;
    o.params.loss.beta = f;

    // The fused gradient is for input and target only.
    if (TENSOR__TRAINS && tensor_grad_enabled() &&
        ((w && tensor_requires_grad(w)) || (q && tensor_requires_grad(q)))) {
        return nn__pointwise(row)->composed(in, &o.params);
    }
    in[0] = nn__contiguous(x);
    in[1] = nn__contiguous(t);
    if (!TENSOR__(begin)(&o, row, in, 4)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.loss.kind = which;
    o.params.loss.reduction = reduction;
    o.params.loss.beta = f;
    TENSOR__(result)(&o, x->dtype, x->dims, reduction == TENSOR_NONE ? x->ndim : 0);
    return TENSOR__(finish)(&o);
}

// ---- cross entropy and nll of logits [rows, classes]

// Label of row r, -1 if it is ignored.
TENSOR__FN int64_t nn__label(const nn__loss_job_t *v, const tensor_arg_t *labels, int64_t r) {
    int64_t t = nn__index(labels, r);
    return t == v->c->p->cross_entropy.ignore_index ? -1 : t;
}

TENSOR__FN void nn__cross_entropy_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), classes = v->classes;
    double loss = 0, weights = 0, smooth = v->c->p->cross_entropy.label_smoothing, wsum = (double)classes;
    (void)worker;
    if (a[2].data && smooth > 0) { wsum = NN__DO(v->k, dot)(a[2].data, NULL, classes); }
    for (; r < end; r++) {
        const char *x = nn__at(&a[0], r * classes);
        int64_t t = nn__label(v, &a[1], r);
        double w;
        if (t < 0) {
            w = 0;
        } else if (a[2].data) {
            w = nn__value(a[2].data, v->dtype, t);
        } else {
            w = 1;
        }
        double y = 0;
        double lse = v->c->p->cross_entropy.log_probs ? 0 : NN__DO(v->k, lse)(x, classes);
        nn__store(a[4].data, v->dtype, r, lse);
        if (t >= 0) {
            y = (1 - smooth) * w * (lse - nn__value(x, v->dtype, t));
            if (smooth > 0) {
                y += smooth / (double)classes *
                     (lse * wsum - NN__DO(v->k, dot)(x, a[2].data, classes));
            }
        }
        if (v->reduction == TENSOR_NONE) { nn__store(a[3].data, v->dtype, r, y); }
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
    v->reduction = (int)c->p->cross_entropy.reduction;
    v->part = (double *)c->scratch;
}

TENSOR__FN uint64_t nn__scratch_cross_entropy(const tensor_call_t *c) {
    return (uint64_t)(c->arg[0].dims[0] + 1) * 2 * sizeof(double);
}

TENSOR__FN int nn__cpu_cross_entropy(tensor_call_t *c) {
    nn__loss_job_t v;
    const tensor_arg_t *a = c->arg;
    double loss = 0, weights = 0;
    nn__cross_entropy_plan(&v, c, &a[0]);
    for (int64_t i = 0; i < v.rows; i++) {
        int64_t t = nn__index(&a[1], i);
        if (t == c->p->cross_entropy.ignore_index || (t >= 0 && t < v.classes)) { continue; }
        (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                             "%s: target %d at position %d of target %n is not in %s%d (%d classes)",
                             c->p->cross_entropy.log_probs ? "nll_loss" : c->row->name, t, i, a[1].dims,
                             (int)a[1].ndim, TENSOR__UP_TO(v.classes), v.classes);
        return TENSOR_ERR_INDEX;
    }
    int64_t tasks = nn__ceil(v.rows, v.per);
    nn__run(tasks, nn__cross_entropy_task, &v);
    for (int64_t i = 0; i < tasks; i++) {
        loss += v.part[2 * i];
        weights += v.part[2 * i + 1];
    }
    nn__store(a[5].data, v.dtype, 0, weights);
    if (v.reduction != TENSOR_NONE) {
        nn__store(a[3].data, v.dtype, 0, v.reduction == TENSOR_MEAN ? loss / weights : loss);
    }
    return TENSOR_OK;
}

TENSOR__FN void nn__cross_entropy_back_task(void *arg, int64_t task, int worker) {
    const nn__loss_job_t *v = (const nn__loss_job_t *)arg;
    const tensor_arg_t *a = v->c->arg;
    int64_t r = task * v->per, end = nn__min(r + v->per, v->rows), classes = v->classes;
    double smooth = v->c->p->cross_entropy.label_smoothing, wsum = (double)classes;
    (void)worker;
    if (a[5].data && smooth > 0) { wsum = NN__DO(v->k, dot)(a[5].data, NULL, classes); }
    for (; r < end; r++) {
        int64_t t = nn__label(v, &a[2], r);
        char *gx = nn__at(&a[6], r * classes);
        if (t < 0) {
            NN__DO(v->k, fill)(gx, 0, classes);
            continue;
        }
        double g = nn__value(a[0].data, v->dtype, v->reduction == TENSOR_NONE ? r : 0);
        if (v->reduction == TENSOR_MEAN) { g /= nn__value(a[4].data, v->dtype, 0); }
        double w = g * (1 - smooth) * (a[5].data ? nn__value(a[5].data, v->dtype, t) : 1);
        double flat = g * smooth / (double)classes;
        // nll: no softmax. A factor 0 times e^x would be NaN if e^x overflows.
        if (v->c->p->cross_entropy.log_probs) {
            NN__DO(v->k, fill)(gx, 0, classes);
        } else {
            NN__DO(v->k, softmax_minus)(nn__at(&a[1], r * classes), a[5].data, gx,
                                        nn__value(a[3].data, v->dtype, r), w + flat * wsum, flat, classes);
        }
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

TENSOR__FN tensor_t *nn__composed_cross_entropy(tensor_t *const *in, const tensor_params_t *params) {
    const tensor__cross_entropy_params_t *p = &params->cross_entropy;
    tensor_t *x = in[0];
    int64_t rows = x->dims[0], classes = x->dims[1];
    tensor_t *ignored = (tensor_eq_scalar)(in[1], (double)p->ignore_index);
    tensor_t *t = (tensor_masked_fill)(in[1], ignored, 0);
    tensor_t *lp = p->log_probs ? x : (tensor_log_softmax)(x, 1);
    tensor_t *y =
        (tensor_neg)((tensor_reshape_n)((tensor_gather)(lp, 1, (tensor_unsqueeze)(t, 1)), &rows, 1));
    tensor_t *w =
        in[2] ? (tensor_index_select)(in[2], 0, t) : (tensor_ones_n)(&rows, 1, (tensor_dtype_t)x->dtype);
    w = (tensor_masked_fill)(w, ignored, 0);
    y = (tensor_mul_scalar)((tensor_mul)(y, w), 1 - p->label_smoothing);
    if (p->label_smoothing > 0) {
        tensor_t *flat = (tensor_sum_dim)(in[2] ? (tensor_mul)(lp, in[2]) : lp, 1, 0);
        y = (tensor_sub)(y, (tensor_mul_scalar)(flat, p->label_smoothing / (double)classes));
    }
    y = (tensor_masked_fill)(y, ignored, 0);
    if (p->reduction == TENSOR_NONE) { return y; }
    y = (tensor_sum)(y);
    return p->reduction == TENSOR_SUM ? y : (tensor_div)(y, (tensor_sum)(w));
}

TENSOR__FN void nn__grad_cross_entropy(tensor__grad_t *g) {
    if (nn__grad_created(g, nn__composed_cross_entropy)) { return; }
    tensor_t *in[6];
    in[0] = nn__contiguous(g->gy[0]);
    in[1] = TENSOR__(grad_in)(g, 0);
    in[2] = TENSOR__(grad_in)(g, 1);
    in[3] = TENSOR__(grad_out)(g, 1);
    in[4] = TENSOR__(grad_out)(g, 2);
    in[5] = nn__saved(g, 2);
    tensor__op_t o;
    if (!nn__grad_begin(&o, g, NN__ROW(CROSS_ENTROPY_BACKWARD), in, 6, 1)) { return; }
    TENSOR__(result)(&o, in[1]->dtype, in[1]->dims, 2);
    g->gx[0] = TENSOR__(finish)(&o);
}

// Probabilities as targets, in any layout, with the classes in dim 1 (0 without a batch).
TENSOR__FN tensor_t *nn__cross_entropy_soft(tensor_t *x, tensor_t *t, tensor_t *w, double smooth,
                                            tensor_reduction_t reduction) {
    int64_t dim = x->ndim > 1, classes = x->dims[dim];
    tensor_t *y = (tensor_log_softmax)(x, dim);
    if (smooth > 0) { t = (tensor_add_scalar)((tensor_mul_scalar)(t, 1 - smooth), smooth / (double)classes); }
    y = (tensor_mul)(y, t);
    int64_t shape[TENSOR_MAX_DIMS];
    if (w) {
        for (int64_t d = 0; d < x->ndim; d++) { shape[d] = d == dim ? classes : 1; }
        y = (tensor_mul)(y, (tensor_reshape_n)(w, shape, x->ndim));
    }
    y = (tensor_neg)((tensor_sum_dim)(y, dim, 0));
    if (reduction == TENSOR_NONE) { return y; }
    if (reduction == TENSOR_SUM) { return (tensor_sum)(y); }
    return (tensor_mean)(y);
}

// nll: input is log-probabilities.
TENSOR__FN tensor_t *nn__cross_entropy_front(const tensor_cross_entropy_args_t *a, int nll) {
    const char *op = nll ? "nll_loss" : "cross_entropy";
    tensor__row_t shown = *NN__ROW(CROSS_ENTROPY);
    tensor_t *x = a->input, *t = a->target, *w = a->weight, *in[3] = {x, t, w};
    shown.name = op;
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, &shown, in, 3) || !nn__floats(&o, 5)) { return TENSOR__(poison); }
    int64_t dim = x->ndim > 1;
    if (x->ndim < 1 || x->dims[dim] == 0) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: input %t must be [N, C], [N, C, d...] or [C], C > 0", op, x);
    }
    if ((int)a->reduction < 0 || a->reduction > TENSOR_NONE) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "%s: reduction %i (input %t) must be TENSOR_MEAN, TENSOR_SUM or TENSOR_NONE", op,
                        (int)a->reduction, x);
    }
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: label_smoothing %g (input %t) must be in 0..1", op,
                        a->label_smoothing, x);
    }
    if (w && (w->ndim != 1 || w->dims[0] != x->dims[dim])) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: weight %t must have the %d classes of input %t", op, w,
                        x->dims[dim], x);
    }
    if (w && tensor_grad_enabled() && tensor_requires_grad(w)) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "%s: weight %t requires grad, which it cannot get", op, w);
    }
    int mixed = !nll && nn__is_float(t) && (t->dtype != x->dtype || (w && w->dtype != x->dtype));
    if (mixed || nn__is_half(x)) {
        tensor_cross_entropy_args_t wide = *a;
        tensor_scope_t scope = TENSOR__(scope)(-1);
        if (mixed) { nn__promote(in, 3, 7); }
        wide.input = nn__wide(in[0]);
        wide.target = nn__wide(in[1]);
        wide.weight = nn__wide(in[2]);
        return (tensor_scope_return)(scope, nn__narrow(nn__cross_entropy_front(&wide, nll), in[0]));
    }
    if (!nll && t->dtype == x->dtype) {
        if (!nn__same_shape(t, x)) {
            return NN__FAIL(TENSOR_ERR_SHAPE,
                            "%s: target probabilities %t must have the shape of input %t; class indices "
                            "are i32 or i64, not %y",
                            op, t, x, t);
        }
        if (a->ignore_index >= 0) {
            return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "%s: ignore_index is not for probabilities %t", op, t);
        }
        return nn__cross_entropy_soft(x, t, w, a->label_smoothing, a->reduction);
    }
    if (!nn__is_index(t)) {
        return NN__FAIL(TENSOR_ERR_DTYPE, "%s: target is %y, must be i32 or i64%s", op, t,
                        nll ? "" : ", or a float");
    }
    int64_t same = t->ndim == x->ndim - 1;
    for (int64_t d = 0; same && d < t->ndim; d++) { same = t->dims[d] == x->dims[d == 0 && dim ? 0 : d + 1]; }
    if (!same) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: target %t must have the dims of input %t without the classes",
                        op, t, x);
    }

    // Move the classes to the last dim: [rows, C].
    const int64_t dims[2] = {x->numel / x->dims[dim], x->dims[dim]};
    if (x->ndim > 2) { x = nn__contiguous((tensor_movedim)(x, 1, -1)); }
    in[0] = nn__contiguous(nn__shaped(x, dims, 2));
    in[1] = nn__contiguous(nn__shaped(t, dims, 1));
    in[2] = nn__contiguous(w);
    if (!TENSOR__(begin)(&o, NN__ROW(CROSS_ENTROPY), in, 3)) { return TENSOR__(poison); }
    o.p = &o.params;
    o.params.cross_entropy.reduction = a->reduction;
    o.params.cross_entropy.ignore_index = a->ignore_index;
    o.params.cross_entropy.log_probs = nll;
    o.params.cross_entropy.label_smoothing = a->label_smoothing;
    TENSOR__(result)(&o, x->dtype, dims, a->reduction == TENSOR_NONE ? 1 : 0);
    TENSOR__(result)(&o, x->dtype, dims, 1);
    TENSOR__(result)(&o, x->dtype, dims, 0);
    tensor_t *y = TENSOR__(finish)(&o);
    return a->reduction == TENSOR_NONE ? (tensor_reshape_n)(y, t->dims, t->ndim) : y;
}

TENSOR__FN tensor_t *nn__cross_entropy_call(tensor_cross_entropy_args_t *a, int nll) {
    NN__AUTOCAST(NN__ROW(CROSS_ENTROPY)->cast, (a->input = cast_[0], a->target = cast_[1],
                 a->weight = cast_[2], nn__cross_entropy_front(a, nll)), a->input, a->target, a->weight)
    return nn__cross_entropy_front(a, nll);
}

NN__OWN_FRONT(cross_entropy, NN__OR(ignore_index, -100), nn__cross_entropy_call(&a, 0))

TENSOR__FN tensor_t *nn__nll_front(const tensor_nll_loss_args_t *a) {
    tensor_cross_entropy_args_t b = tensor_cross_entropy_defaults();
    b.input = a->input;
    b.target = a->target;
    b.weight = a->weight;
    b.ignore_index = a->ignore_index;
    b.reduction = a->reduction;
    return nn__cross_entropy_call(&b, 1);
}

NN__OWN_FRONT(nll_loss, NN__OR(ignore_index, -100), nn__nll_front(&a))

// ---- public functions of the pointwise losses: row, at_zero, weights, parameter, its default

#define NN__LOSS(op, row, at_zero, w, q, f, set)                                                             \
    NN__OWN_FRONT(op, set, nn__loss_front(row, at_zero, a.input, a.target, w, q, f, a.reduction))
NN__LOSS(mse_loss, NN__ROW(LOSS_MSE), NULL, NULL, NULL, 0, )
NN__LOSS(l1_loss, NN__ROW(LOSS_L1), NULL, NULL, NULL, 0, )
NN__LOSS(smooth_l1_loss, NN__ROW(LOSS_SMOOTH_L1), NN__ROW(LOSS_L1), NULL, NULL, a.beta, NN__OR(beta, 1))
NN__LOSS(huber_loss, NN__ROW(LOSS_HUBER), NULL, NULL, NULL, a.delta, NN__OR(delta, 1))
NN__LOSS(binary_cross_entropy, NN__ROW(LOSS_BCE), NULL, a.weight, NULL, 0, )
NN__LOSS(binary_cross_entropy_with_logits, NN__ROW(LOSS_BCE_LOGITS), NULL, a.weight, a.pos_weight, 0, )
NN__LOSS(kl_div, a.log_target ? NN__ROW(LOSS_KL_DIV_LOG) : NN__ROW(LOSS_KL_DIV), NULL, NULL, NULL, 0, )

// ---- losses made of other ops

// Begins such a loss. reduction must be TENSOR_MEAN, TENSOR_SUM or TENSOR_NONE. Inputs of `floats` (bits) are
// promoted to one float dtype, those of `signs` are converted to it from any dtype, those of `same` must
// have the shape of input 0. Halves become f32. -> a tensor with the result's dtype, NULL after raising
TENSOR__FN const tensor_t *nn__loss_inputs(const char *op, const char *names,
                               tensor_t **in, int nin, int required, unsigned floats, unsigned signs,
                               unsigned same, tensor_reduction_t reduction) {
    tensor__op_t o;
    tensor__row_t row;
    if (!nn__row_begin(&o, &row, op, names, required, in, nin)) { return NULL; }
    const tensor_t *like = nn__promote(in, nin, floats);
    for (int k = 0; k < nin; k++) { o.args[k] = in[k] = signs >> k & 1u ? nn__narrow(in[k], like) : in[k]; }
    if (!nn__floats(&o, floats | signs)) { return NULL; }
    char name[16], first[16];
    for (int k = 1; k < nin; k++) {
        if (!(same >> k & 1u)) { continue; }
        if (nn__same_shape(in[k], in[0])) { continue; }
        return NN__GIVE((const tensor_t *)NULL, TENSOR_ERR_SHAPE,
                        "%s: %s %t and %s %t must have the same shape", op, nn__arg_name(&row, 0, first),
                        in[0], nn__arg_name(&row, k, name), in[k]);
    }
    if ((int)reduction < 0 || reduction > TENSOR_NONE) {
        return NN__GIVE((const tensor_t *)NULL, TENSOR_ERR_SHAPE, "%s: reduction %i (%s %t) must be "
                        "TENSOR_MEAN, TENSOR_SUM or TENSOR_NONE", op, (int)reduction,
                        nn__arg_name(&row, 0, first), in[0]);
    }
    for (int k = 0; k < nin; k++) { in[k] = nn__wide(in[k]); }
    return like;
}

TENSOR__FN tensor_t *nn__reduce(tensor_t *y, tensor_reduction_t reduction, const tensor_t *like) {
    if (reduction != TENSOR_NONE) { y = reduction == TENSOR_SUM ? (tensor_sum)(y) : (tensor_mean)(y); }
    return nn__narrow(y, like);
}

// x where condition is true, else 0.
TENSOR__FN tensor_t *nn__only(tensor_t *x, tensor_t *condition) {
    return (tensor_masked_fill)(x, (tensor_logical_not)(condition), 0);
}

TENSOR__FN tensor_t *nn__hinge_embedding_loss(const tensor_margin_loss_args_t *a, tensor_t **in) {
    tensor_t *y = (tensor_relu)((tensor_rsub_scalar)(in[0], a->margin));
    y = nn__only(y, (tensor_ne_scalar)(in[1], 1));
    return (tensor_add)(y, nn__only(in[0], (tensor_ne_scalar)(in[1], -1)));
}

TENSOR__FN tensor_t *nn__soft_margin_loss(const tensor_margin_loss_args_t *a, tensor_t **in) {
    (void)a;
    return (tensor_neg)((tensor_logsigmoid)((tensor_mul)(in[0], in[1])));
}

// Whether input is [N, C] or [C], C > 0, target an index tensor with the expected dims (without C, or all of
// them), weight [C] or absent; raises if not. An input [] becomes [1]. A target with one element for one row
// (all: for one class) gets the dims that it should have.
TENSOR__FN int nn__classes(const char *op, tensor_t **in, int all) {
    static const int64_t one = 1;
    const tensor_t *w = in[2];
    if (in[0]->ndim == 0) { in[0] = (tensor_reshape_n)(in[0], &one, 1); }
    const tensor_t *x = in[0];
    int nd = x->ndim - !all;
    int row = x->ndim == 1 || (!all && x->ndim == 2 && x->dims[0] == 1);
    if (row && in[1]->ndim < 2 && in[1]->numel == 1) { in[1] = (tensor_reshape_n)(in[1], &one, nd); }
    const tensor_t *t = in[1];
    int fits = t->ndim == nd;
    if (x->ndim < 1 || x->ndim > 2 || x->dims[x->ndim - 1] == 0) {
        NN__FAIL(TENSOR_ERR_SHAPE, "%s: input %t must be [N, C] or [C], C > 0", op, x);
    } else if (!nn__is_index(t)) {
        NN__FAIL(TENSOR_ERR_DTYPE, "%s: target is %y, must be i32 or i64", op, t);
    } else {
        for (int d = 0; fits && d < nd; d++) { fits = t->dims[d] == x->dims[d]; }
        if (!fits) {
            NN__FAIL(TENSOR_ERR_SHAPE, "%s: target %t must have the dims of input %t%s", op, t, x,
                     all ? "" : " without the classes");
        } else if (w && (w->ndim != 1 || w->dims[0] != x->dims[x->ndim - 1])) {
            NN__FAIL(TENSOR_ERR_SHAPE, "%s: weight %t must have the %d classes of input %t", op, w,
                     x->dims[x->ndim - 1], x);
        } else if (w && w->dtype != x->dtype) {
            NN__FAIL(TENSOR_ERR_DTYPE, "%s: weight is %y, input is %y; use tensor_to", op, w, x);
        } else {
            return 1;
        }
    }
    return 0;
}

TENSOR__FN tensor_t *nn__multi_margin_loss(const tensor_margin_loss_args_t *a, tensor_t **in) {
    tensor_t *target = in[1];
    if (!nn__classes("multi_margin_loss", in, 0)) { return TENSOR__(poison); }
    tensor_t *x = in[0];
    if (a->p != 1 && a->p != 2) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "multi_margin_loss: p %d must be 1 or 2 (input %t)", a->p, x);
    }
    tensor_t *t = (tensor_unsqueeze)(in[1], -1);
    tensor_t *y = (tensor_relu)((tensor_add_scalar)((tensor_sub)(x, (tensor_gather)(x, -1, t)), a->margin));
    if (a->p == 2) { y = (tensor_square)(y); }
    if (in[2]) { y = (tensor_mul)(y, (tensor_gather)((tensor_expand_n)(in[2], x->dims, x->ndim), -1, t)); }

    // The class itself would give margin^p; it is not a term of the sum.
    y = (tensor_scatter)(y, -1, t, nn__like(t->dims, t->ndim, 0, x));
    y = (tensor_div_scalar)((tensor_sum_dim)(y, -1, 0), (double)x->dims[x->ndim - 1]);
    return nn__shaped(y, target->dims, target->ndim);
}

TENSOR__FN tensor_t *nn__multilabel_margin_loss(const tensor_margin_loss_args_t *a, tensor_t **in) {
    tensor_t *both[3] = {in[0], in[1], NULL};
    (void)a;
    if (!nn__classes("multilabel_margin_loss", both, 1)) { return TENSOR__(poison); }
    tensor_t *x = both[0];
    tensor_t *t = both[1];

    // The classes before the first -1.
    tensor_t *real = (tensor_eq_scalar)((tensor_cumsum)((tensor_eq_scalar)(t, -1), -1), 0);
    t = nn__only(t, real);
    tensor_t *y = (tensor_zeros_like)(x);
    y = (tensor_eq_scalar)((tensor_scatter_add)(y, -1, t, (tensor_to)(real, (tensor_dtype_t)x->dtype)), 0);
    t = (tensor_unsqueeze)((tensor_gather)(x, -1, t), -1);
    t = (tensor_relu)((tensor_add_scalar)((tensor_sub)((tensor_unsqueeze)(x, -2), t), 1));
    y = (tensor_logical_and)((tensor_unsqueeze)(y, -2), (tensor_unsqueeze)(real, -1));
    y = (tensor_sum_dim)((tensor_sum_dim)(nn__only(t, y), -1, 0), -1, 0);
    return (tensor_div_scalar)(y, (double)x->dims[x->ndim - 1]);
}

TENSOR__FN tensor_t *nn__multilabel_soft_margin_loss(const tensor_margin_loss_args_t *a, tensor_t **in) {
    tensor_t *x = in[0];
    (void)a;
    if (x->ndim < 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "multilabel_soft_margin_loss: input %t must be [..., C]", x);
    }
    if (!nn__loss_weight("multilabel_soft_margin_loss", "weight", &in[2], x)) { return TENSOR__(poison); }

    // t log s(x) + (1 - t) log s(-x) = log s(x) - (1 - t) x
    tensor_t *y = (tensor_sub)((tensor_mul)((tensor_rsub_scalar)(in[1], 1), x), (tensor_logsigmoid)(x));
    if (in[2]) { y = (tensor_mul)(y, in[2]); }
    return (tensor_mean_dim)(y, -1, 0);
}

TENSOR__FN tensor_t *nn__margin_ranking_loss(const tensor_ranking_loss_args_t *a, tensor_t **in) {
    tensor_t *y = (tensor_mul)(in[2], (tensor_sub)(in[1], in[0]));
    return (tensor_relu)((tensor_add_scalar)(y, a->margin));
}

TENSOR__FN tensor_t *nn__cosine_embedding_loss(const tensor_ranking_loss_args_t *a, tensor_t **in) {
    tensor_t *x = in[0], *t = in[2];
    if (x->ndim < 1 || x->ndim > 2 || t->ndim != x->ndim - 1 || (t->ndim && t->dims[0] != x->dims[0])) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "cosine_embedding_loss: input1 %t must be [N, D] or [D], target %t [N] or []", x, t);
    }
    tensor_t *y = (tensor_add_scalar)((tensor_sum_dim)((tensor_square)(x), -1, 0), 1e-12);
    y = (tensor_mul)(y, (tensor_add_scalar)((tensor_sum_dim)((tensor_square)(in[1]), -1, 0), 1e-12));
    y = (tensor_div)((tensor_sum_dim)((tensor_mul)(x, in[1]), -1, 0), (tensor_sqrt)(y));
    x = nn__only((tensor_rsub_scalar)(y, 1), (tensor_eq_scalar)(t, 1));
    y = nn__only((tensor_relu)((tensor_sub_scalar)(y, a->margin)), (tensor_eq_scalar)(t, -1));
    return (tensor_add)(x, y);
}

TENSOR__FN tensor_t *nn__distance(tensor_t *a, tensor_t *b, double p, double eps) {
    tensor_t *d = (tensor_add_scalar)((tensor_sub)(a, b), eps);
    if (p == 2) { return (tensor_norm_dim)(d, -1, 0); }
    d = (tensor_abs)(d);
    if (p == INFINITY) { return (tensor_amax_dim)(d, -1, 0); }
    if (p == 1) { return (tensor_sum_dim)(d, -1, 0); }
    return (tensor_pow_scalar)((tensor_sum_dim)((tensor_pow_scalar)(d, p), -1, 0), 1 / p);
}

TENSOR__FN tensor_t *nn__triplet_margin_loss(const tensor_triplet_margin_loss_args_t *a, tensor_t **in) {
    if (!(a->p > 0) || !(a->margin > 0)) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "triplet_margin_loss: p %g and margin %g must be above 0 (anchor %t)", a->p,
                        a->margin, in[0]);
    }
    for (int k = 0; k < 3; k++) {
        if (!in[k]->ndim) { in[k] = (tensor_unsqueeze)(in[k], 0); }
    }
    tensor_t *y = nn__distance(in[0], in[1], a->p, a->eps);
    tensor_t *away = nn__distance(in[0], in[2], a->p, a->eps);
    if (a->swap) { away = (tensor_minimum)(away, nn__distance(in[1], in[2], a->p, a->eps)); }
    return (tensor_relu)((tensor_add_scalar)((tensor_sub)(y, away), a->margin));
}

TENSOR__FN tensor_t *nn__gaussian_nll_loss(const tensor_gaussian_nll_loss_args_t *a, tensor_t **in) {
    tensor_t *x = in[0], *v = in[2];
    int ones = 0, less = v->ndim + 1 == x->ndim, fits = v->ndim == x->ndim || less;
    for (int d = 0; fits && d < v->ndim; d++) {
        if (v->dims[d] == x->dims[d]) { continue; }
        fits = !less && v->dims[d] == 1;
        ones++;
    }
    if (!fits || ones > 1) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "gaussian_nll_loss: var %t must have the shape of input %t, one dim of it 1, or no "
                        "last dim",
                        v, x);
    }
    if (!nn__loss_weight("gaussian_nll_loss", "target", &in[1], x)) { return TENSOR__(poison); }
    if ((tensor_item)((tensor_any)((tensor_lt_scalar)((tensor_detach)(v), 0))) != 0) {
        return NN__FAIL(TENSOR_ERR_INDEX, "gaussian_nll_loss: var %t has a negative element", v);
    }
    if (less) { v = (tensor_unsqueeze)(v, -1); }

    // eps + v - v has the value of the bound and the gradient of v.
    v = (tensor_where)((tensor_lt_scalar)(v, a->eps),
                       (tensor_add_scalar)((tensor_sub)(v, (tensor_detach)(v)), a->eps), v);
    tensor_t *y = (tensor_div)((tensor_square)((tensor_sub)(x, in[1])), v);
    y = (tensor_mul_scalar)((tensor_add)((tensor_log)(v), y), 0.5);
    return a->full ? (tensor_add_scalar)(y, 0.91893853320467274) : y;
}

TENSOR__FN tensor_t *nn__poisson_nll_loss(const tensor_poisson_nll_loss_args_t *a, tensor_t **in) {
    tensor_t *x = in[0], *t = in[1], *y;
    if (a->no_log_input) {
        y = (tensor_sub)(x, (tensor_mul)(t, (tensor_log)((tensor_add_scalar)(x, a->eps))));
    } else {
        y = (tensor_sub)((tensor_exp)(x), (tensor_mul)(t, x));
    }
    if (a->full) {   // t log t - t + log(2 pi t) / 2 above 1
        tensor_t *low = (tensor_le_scalar)(t, 1), *log_t = (tensor_log)((tensor_masked_fill)(t, low, 1));
        tensor_t *s = (tensor_sub)((tensor_mul)((tensor_add_scalar)(t, 0.5), log_t), t);
        y = (tensor_add)(y, (tensor_masked_fill)((tensor_add_scalar)(s, 0.91893853320467274), low, 0));
    }
    return y;
}

// tensor_op_with(a): nn__op(&a, in), reduced. The arguments after `same` are the inputs of nn__loss_inputs.
#define NN__LOSS_OF(op, args, names, required, floats, signs, same, ...)                                     \
    TENSOR__FN tensor_t *nn__run_##op(const args##_args_t *a) {                                              \
        tensor_t *in[] = {__VA_ARGS__};                                                                      \
        const tensor_t *like;                                                                                \
        TENSOR__(autocast)(TENSOR__CAST_losses, in, (int)(sizeof in / sizeof in[0]));                        \
        like = nn__loss_inputs(#op, names, in, (int)(sizeof in / sizeof in[0]), required, floats, signs,     \
                               same, a->reduction);                                                          \
        return like ? nn__reduce(nn__##op(a, in), a->reduction, like) : TENSOR__(poison);                    \
    }                                                                                                        \
    NN__SCOPED(op, args, nn__run_##op(&a))
NN__FILL(tensor_margin_loss, NN__OR(margin, 1) NN__OR(p, 1))
NN__FILL(tensor_ranking_loss, NN__OR(margin, 0))
NN__FILL_DEFAULTS(tensor_triplet_margin_loss, NN__OR(margin, 1) NN__OR(p, 2) NN__OR(eps, 1e-6))
NN__FILL_DEFAULTS(tensor_gaussian_nll_loss, NN__OR(eps, 1e-6))
NN__FILL_DEFAULTS(tensor_poisson_nll_loss, NN__OR(eps, 1e-8))
#define NN__X(op, args, ...) NN__DEFAULTS(tensor_##op, args) NN__LOSS_OF(op, args, __VA_ARGS__)
NN__X(hinge_embedding_loss, tensor_margin_loss, "input target", 2, 1, 2, 2, a->input, a->target)
NN__X(soft_margin_loss, tensor_margin_loss, "input target", 2, 3, 0, 2, a->input, a->target)
NN__X(multi_margin_loss, tensor_margin_loss, "input target weight", 2, 1, 0, 0, a->input, a->target,
      a->weight)
NN__X(multilabel_margin_loss, tensor_margin_loss, "input target", 2, 1, 0, 0, a->input, a->target)
NN__X(multilabel_soft_margin_loss, tensor_margin_loss, "input target weight", 2, 7, 0, 2, a->input, a->target,
      a->weight)
NN__X(margin_ranking_loss, tensor_ranking_loss, "input1 input2 target", 3, 7, 0, 6, a->input1, a->input2,
      a->target)
NN__X(cosine_embedding_loss, tensor_ranking_loss, "input1 input2 target", 3, 3, 4, 2, a->input1, a->input2,
      a->target)
#undef NN__X

NN__LOSS_OF(triplet_margin_loss, tensor_triplet_margin_loss, "anchor positive negative", 3, 7, 0, 6,
            a->anchor, a->positive, a->negative)
NN__LOSS_OF(gaussian_nll_loss, tensor_gaussian_nll_loss, "input target var", 3, 7, 0, 0, a->input, a->target,
            a->var)
NN__LOSS_OF(poisson_nll_loss, tensor_poisson_nll_loss, "input target", 2, 3, 0, 2, a->input, a->target)

// ------------------------------------------------------------------------------
// >>impl-ctc                                       MARK: connectionist temporal classification
//
// Log-space forward and backward sums over the blank-separated labels of an item (2 L + 1 states). Items are
// divided over threads. An item without a path has the loss infinity, or 0 with zero_infinity. Rejected:
// probabilities with rescaling (they underflow within a step of long items).
// ------------------------------------------------------------------------------

typedef struct nn__ctc_t {
    const tensor_call_t *c;
    int64_t t, n, classes, states;   // states: room for each item
    size_t worker;                   // doubles of scratch
} nn__ctc_t;

TENSOR__FN void nn__ctc_plan(nn__ctc_t *v, const tensor_call_t *c) {
    int64_t most = 0;
    for (int64_t i = 0; i < c->arg[3].numel; i++) { most = nn__max(most, nn__index(&c->arg[3], i)); }
    v->c = c;
    v->t = c->arg[0].dims[0];
    v->n = c->arg[0].dims[1];
    v->classes = c->arg[0].dims[2];
    v->states = 2 * nn__min(most, c->arg[1].numel) + 1;
    v->worker = (size_t)((c->p->ctc.with_grad ? v->t + 1 : 2) * v->states + v->classes);
}

TENSOR__FN uint64_t nn__scratch_ctc(const tensor_call_t *c) {
    nn__ctc_t v;
    nn__ctc_plan(&v, c);
    return (uint64_t)v.worker * sizeof(double) * (uint64_t)TENSOR__(thread_count)();
}

// First label of item n; lengths have been checked.
TENSOR__FN int64_t nn__ctc_first(const tensor_call_t *c, int64_t n) {
    int64_t columns = c->p->ctc.columns, at = n * columns;
    for (int64_t i = 0; columns == 0 && i < n; i++) { at += nn__index(&c->arg[3], i); }
    return at;
}

TENSOR__FN double nn__log_add(double a, double b) {
    double m = a > b ? a : b;
    if (m == -INFINITY) { return m; }
    return m + log1p(exp((a > b ? b : a) - m));
}

// Label of state s of an item whose labels start at first: blanks are between them.
TENSOR__INLINE int64_t nn__ctc_label(const tensor_call_t *c, int64_t first, int64_t s) {
    return s % 2 ? nn__index(&c->arg[1], first + s / 2) : c->p->ctc.blank;
}

TENSOR__FN void nn__ctc_task(void *arg, int64_t n, int worker) {
    const nn__ctc_t *v = (const nn__ctc_t *)arg;
    const tensor_call_t *c = v->c;
    const tensor_arg_t *x = &c->arg[0];
    int64_t first = nn__ctc_first(c, n), length = nn__index(&c->arg[2], n),
            states = 2 * nn__index(&c->arg[3], n) + 1;
    int64_t grad = c->p->ctc.with_grad, rows = grad ? v->t : 1;
    double *alpha = (double *)c->scratch + (size_t)worker * v->worker, *row = alpha,
           *beta = alpha + rows * v->states;
    double *sum = beta + v->states;
    for (int64_t t = 0; t < length; t++) {
        const double *old = row;
        if (t > 0 && grad) { row += v->states; }
        for (int64_t s = states - 1; s >= 0; s--) {  // downwards: row may be the same as old
            double a = s < 2 && t == 0 ? 0 : -INFINITY;
            if (t > 0) {
                a = old[s];
                if (s > 0) { a = nn__log_add(a, old[s - 1]); }
                if (s > 1 && s % 2 && nn__ctc_label(c, first, s) != nn__ctc_label(c, first, s - 2)) {
                    a = nn__log_add(a, old[s - 2]);
                }
            }
            int64_t at = (t * v->n + n) * v->classes + nn__ctc_label(c, first, s);
            row[s] = a + nn__value(x->data, x->dtype, at);
        }
    }
    double before = states > 1 ? row[states - 2] : -INFINITY;
    double loss;
    if (length > 0) {
        loss = -nn__log_add(row[states - 1], before);
    } else if (states > 1) {
        loss = INFINITY;
    } else {
        loss = 0;
    }
    nn__store(c->arg[4].data, x->dtype, n, loss == INFINITY && c->p->ctc.zero_infinity ? 0 : loss);
    int64_t k;
    for (int64_t t = v->t - 1; grad && t >= 0; t--) {
        int64_t at = (t * v->n + n) * v->classes;
        if (t >= length || loss == INFINITY) {
            double fill = t < length && !c->p->ctc.zero_infinity ? (double)NAN : 0;
            for (k = 0; k < v->classes; k++) { nn__store(c->arg[5].data, x->dtype, at + k, fill); }
            continue;
        }
        for (k = 0; k < v->classes; k++) { sum[k] = -INFINITY; }
        for (int64_t s = 0; s < states; s++) {  // upwards: beta[s + 1..] are still those of t + 1
            double b = s >= states - 2 && t == length - 1 ? 0 : -INFINITY;
            k = nn__ctc_label(c, first, s);
            if (t < length - 1) {
                b = beta[s];
                if (s + 1 < states) { b = nn__log_add(b, beta[s + 1]); }
                if (s + 2 < states && s % 2 && k != nn__ctc_label(c, first, s + 2)) {
                    b = nn__log_add(b, beta[s + 2]);
                }
            }
            sum[k] = nn__log_add(sum[k], alpha[t * v->states + s] + b);
            beta[s] = b + nn__value(x->data, x->dtype, at + k);
        }
        for (k = 0; k < v->classes; k++) {
            nn__store(c->arg[5].data, x->dtype, at + k,
                      exp(nn__value(x->data, x->dtype, at + k)) - exp(sum[k] + loss));
        }
    }
}

TENSOR__FN int nn__cpu_ctc(tensor_call_t *c) {
    const tensor_arg_t *a = c->arg;
    int64_t columns = c->p->ctc.columns, room = columns ? columns : a[1].numel;
    int64_t total = 0, classes = a[0].dims[2], most = a[0].dims[0];
    for (int64_t i = 0; i < a[2].numel; i++) {
        int64_t t = nn__index(&a[2], i), s = nn__index(&a[3], i);
        if (t < 0 || t > most || s < 0 || s > room || (total += columns ? 0 : s) > room) {
            TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                "ctc_loss: input length %d, target length %d of item %d do not fit %d steps, %d targets", t,
                s, i, most, room);
            return TENSOR_ERR_INDEX;
        }
    }
    for (int64_t i = 0; i < a[2].numel; i++) {
        int64_t first = nn__ctc_first(c, i);
        for (int64_t k = 0; k < nn__index(&a[3], i); k++) {
            int64_t label = nn__index(&a[1], first + k);
            if (label >= 0 && label < classes) { continue; }
            (void)TENSOR__(fail)(c->thread, TENSOR_ERR_INDEX,
                                 "ctc_loss: target %d of item %d is not in 0..%d", label, i, classes - 1);
            return TENSOR_ERR_INDEX;
        }
    }
    nn__ctc_t v;
    nn__ctc_plan(&v, c);
    nn__run(v.n, nn__ctc_task, &v);
    return TENSOR_OK;
}

// The same recursion on tensors, with -1e30 for -inf so that no gradient is NaN. PyTorch's gradient also
// contains exp(log_probs), which is added with the value 0.
TENSOR__FN tensor_t *nn__composed_ctc(tensor_t *const *in, const tensor_params_t *params) {
    const tensor__ctc_params_t *p = &params->ctc;
    tensor_t *x = in[0], *a = NULL, *low = (tensor_scalar)(-1e30, (tensor_dtype_t)x->dtype);
    tensor_arg_t arg[4];
    int64_t first = 0, states = 1;
    for (int64_t i = 1; i < 4; i++) {
        tensor_t *here = (tensor_to)(in[i], TENSOR_CPU);
        arg[i].data = TENSOR__(host)(here, TENSOR_SHAPE_FROM_DATA, "ctc_loss");
        if (!arg[i].data) { return TENSOR__(poison); }
        arg[i].dtype = here->dtype;
    }
    for (int64_t i = 0; i < x->dims[1]; i++) { states = nn__max(states, 2 * nn__index(&arg[3], i) + 1); }
    const int64_t dims[2] = {x->dims[1], states};
    tensor_t *label = (tensor_fill_)(nn__host_tensor(dims, 2, TENSOR_I64), (double)p->blank);
    tensor_t *skip = (tensor_zero_)(nn__host_tensor(dims, 2, TENSOR_BOOL));
    tensor_t *end = (tensor_zero_)(nn__host_tensor(dims, 2, TENSOR_BOOL));
    int64_t *labels = (int64_t *)TENSOR__(host)(label, TENSOR_HOST_WRITE, "ctc_loss");
    uint8_t *skips = (uint8_t *)TENSOR__(host)(skip, TENSOR_HOST_WRITE, "ctc_loss");
    uint8_t *ends = (uint8_t *)TENSOR__(host)(end, TENSOR_HOST_WRITE, "ctc_loss");
    if (!labels || !skips || !ends) { return TENSOR__(poison); }
    for (int64_t i = 0; i < dims[0]; i++) {
        int64_t *to = labels + i * states, n = nn__index(&arg[3], i);
        uint8_t *may = skips + i * states, *last = ends + i * states;
        if (p->columns) { first = i * p->columns; }
        for (int64_t s = 0; s < n; s++) {
            to[2 * s + 1] = nn__index(&arg[1], first + s);
            may[2 * s + 1] = s > 0 && to[2 * s + 1] != to[2 * s - 1];
        }
        last[2 * n] = 1;
        if (n > 0) { last[2 * n - 1] = 1; }
        first += n;
    }
    label = nn__beside(label, x);
    skip = nn__beside(skip, x);
    end = nn__beside(end, x);
    tensor_t *q = nn__like(dims, 1, 0, x);
    for (int64_t t = 0; t < x->dims[0]; t++) {
        tensor_t *row = (tensor_select)(x, 0, t), *on = (tensor_gt_scalar)(in[2], (double)t), *b, *list[3];
        if (t == 0) {
            b = (tensor_where)((tensor_lt_scalar)(nn__beside((tensor_arange)(0, (double)states, 1,
                                                                             TENSOR_I64), x), 2),
                               (tensor_scalar)(0, (tensor_dtype_t)x->dtype), low);
            a = b = (tensor_expand_n)(b, dims, 2);
        } else {
            tensor_t *pad = (tensor_expand_n)(low, dims, 1), *both[2];
            both[0] = (tensor_unsqueeze)(pad, 1);
            list[0] = a;
            for (int64_t i = 1; i < 3; i++) {
                both[1] = (tensor_narrow)(list[i - 1], 1, 0, states - 1);
                list[i] = states > 1 ? (tensor_cat_n)(both, 2, 1) : both[0];
            }
            list[2] = (tensor_where)(skip, list[2], low);
            b = (tensor_logsumexp)((tensor_stack_n)(list, 3, 0), 0, 0);
        }
        b = (tensor_add)(b, (tensor_gather)(row, 1, label));
        a = (tensor_where)((tensor_unsqueeze)(on, 1), b, a);
        q = (tensor_add)(q, nn__only((tensor_sum_dim)((tensor_exp)(row), 1, 0), on));
    }
    if (!a) { return q; }
    a = (tensor_neg)((tensor_logsumexp)((tensor_where)(end, a, low), 1, 0));
    end = (tensor_gt_scalar)(a, 1e29);
    if (p->zero_infinity) {
        a = (tensor_masked_fill)((tensor_add)(a, (tensor_sub)(q, (tensor_detach)(q))), end, 0);
    } else {
        a = (tensor_mul)((tensor_add)(a, (tensor_sub)(q, (tensor_detach)(q))),
                         (tensor_masked_fill)((tensor_ones_like)((tensor_detach)(a)), end, INFINITY));
    }
    return a;
}

TENSOR__FN void nn__grad_ctc(tensor__grad_t *g) {
    if (nn__grad_created(g, nn__composed_ctc)) { return; }
    if (TENSOR__(grad_need)(g, 0)) {
        g->gx[0] = (tensor_mul)(TENSOR__(grad_out)(g, 1), (tensor_unsqueeze)(g->gy[0], 1));
    }
}

TENSOR__FN tensor_t *nn__run_ctc_loss(const tensor_ctc_loss_args_t *a) {
    tensor_t *in[4] = {a->log_probs, a->targets, a->input_lengths, a->target_lengths};
    if (!nn__loss_inputs("ctc_loss", "log_probs targets input_lengths target_lengths", in, 4, 4, 1,
                         0, 0, a->reduction)) {
        return TENSOR__(poison);
    }
    tensor_t *x = in[0];
    int single = x->ndim == 2;
    if (!nn__is_index(in[1]) || !nn__is_index(in[2]) || !nn__is_index(in[3])) {
        return NN__FAIL(TENSOR_ERR_DTYPE,
                        "ctc_loss: targets, input_lengths, target_lengths are %y, %y, %y, must be i32 or i64",
                        in[1], in[2], in[3]);
    }
    if (single) { x = (tensor_unsqueeze)(x, 1); }
    for (int64_t k = 2; single && k < 4; k++) {
        if (in[k]->ndim == 0) { in[k] = (tensor_unsqueeze)(in[k], 0); }
    }
    if (x->ndim != 3 || x->dims[2] == 0 || in[1]->ndim < 1 || in[1]->ndim > 2 - single ||
        (in[1]->ndim == 2 && in[1]->dims[0] != x->dims[1])) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "ctc_loss: log_probs %t must be [T, N, C] or [T, C], targets %t [N, S] or [sum]",
                        a->log_probs, in[1]);
    }
    if (in[2]->ndim != 1 || in[2]->dims[0] != x->dims[1] || in[3]->ndim != 1 ||
        in[3]->dims[0] != x->dims[1]) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
            "ctc_loss: input_lengths %t and target_lengths %t must have the %d items of log_probs %t",
            a->input_lengths, a->target_lengths, x->dims[1], a->log_probs);
    }
    if (a->blank < 0 || a->blank >= x->dims[2]) {
        return NN__FAIL(TENSOR_ERR_INDEX, "ctc_loss: blank %d is not in 0..%d (log_probs %t)", a->blank,
                        x->dims[2] - 1, a->log_probs);
    }
    in[0] = nn__contiguous(x);
    for (int64_t k = 1; k < 4; k++) { in[k] = nn__contiguous(in[k]); }
    tensor__op_t o;
    if (!TENSOR__(begin)(&o, NN__ROW(CTC_LOSS), in, 4)) { return TENSOR__(poison); }
    o.p = &o.params;
    int with_grad = (tensor_grad_enabled)() && (tensor_requires_grad)(in[0]);
    o.params.ctc.blank = a->blank;
    o.params.ctc.columns = in[1]->ndim == 2 ? nn__max(in[1]->dims[1], 1) : 0;
    o.params.ctc.with_grad = with_grad;
    o.params.ctc.zero_infinity = a->zero_infinity != 0;
    TENSOR__(result)(&o, x->dtype, x->dims + 1, 1);
    nn__result_if(with_grad, &o, x->dtype, x->dims, 3);
    tensor_t *y = TENSOR__(finish)(&o);
    if (a->reduction == TENSOR_MEAN) {
        y = (tensor_div)(y, (tensor_to)((tensor_maximum_scalar)(in[3], 1), (tensor_dtype_t)x->dtype));
    }
    if (single && a->reduction == TENSOR_NONE) { y = (tensor_squeeze)(y, 0); }
    return nn__reduce(y, a->reduction, a->log_probs);
}

NN__OPTIONS(ctc_loss, NN__OR(blank, 0), nn__run_ctc_loss(&a))

// ------------------------------------------------------------------------------
// >>nn-table                                       MARK: rows
//
// The rows of NN_OPS: they connect a name, a family, a kernel and a gradient. They are after all functions
// that they name. Rejected: registration at run time.
// ------------------------------------------------------------------------------

#define NOGRAD NULL
#define NN__ROW_OF(ID, name, family, nin, required, nout, cpu, scratch, grad, saves, cast, args, doc, own)   \
    TENSOR__FN const tensor__row_t *nn__row_##ID(void) {                                                     \
        static const tensor__row_t row = {#name, TENSOR_FAMILY_##family, nin, required, nout, 0,             \
                                          TENSOR__##cast, NN_OP_##ID, saves, TENSOR__GRAD(grad), cpu,        \
                                          scratch, args, own};                                               \
        return &row;                                                                                         \
    }
NN_OPS(NN__ROW_OF)
#undef NN__ROW_OF
#undef NOGRAD

#ifdef TENSOR_ALL_ROWS
// The row of an id, for code that has only the number: tests, the manual.
TENSOR__FN const tensor__row_t *nn__row(int id) {
    static const tensor__row_t *(*const rows[])(void) = {
#define TENSOR__X(ID, ...) nn__row_##ID,
        NN_OPS(TENSOR__X)
#undef TENSOR__X
    };
    return rows[id - TENSOR_OP_NN_FIRST]();
}
#endif

TENSOR__END

// ------------------------------------------------------------------------------
// >>impl-modules                                   MARK: modules
//
// A module's private block (nn_module_impl_t) has a reference count of its own: parents hold the block,
// never the user's struct, so that shutdown may close modules in any order. Blocks are linked into the
// context. Rejected: reference counts in the user's struct (it may be on a stack), a registry by name.
// ------------------------------------------------------------------------------

#include <limits.h>
#include <stdlib.h>
#ifndef TENSOR_NO_STDIO
#include <errno.h>
#include <stdio.h>
#include <time.h>
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <sys/stat.h>
#include <windows.h>
#define NN__HAS_STAT
#elif defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#define NN__HAS_STAT
#define NN__HAS_LINKS
#if defined(__STRICT_ANSI__) && !defined(__cplusplus)   // strict C: the headers may hide what the library has
extern ssize_t readlink(const char *path, char *to, size_t size);
extern FILE *fdopen(int fd, const char *mode);
extern int fileno(FILE *f);
extern int fsync(int fd);
#endif
#endif
#endif

enum { NN__PARAMETER, NN__BUFFER, NN__CHILD };
enum { NN__MAX_NAME = 200 };

typedef struct nn__slot_t {
    char *name;
    tensor_t *tensor;   // held; NULL for a child
    nn_module_impl_t *child;
    int kind;
} nn__slot_t;

// What a layer becomes when it follows one of kind `after` in a sequential: one op with that layer's weight
// and bias; NULL = the two change places.
typedef struct nn__join_t {
    int after;   // an id
    tensor_t *(*as)(tensor_t *x, tensor_t *weight, tensor_t *bias);
} nn__join_t;
typedef struct nn__field_t nn__field_t;   // a member of a layer's struct, see >>impl-layers

// What layers of one kind share, see NN__SPECIAL_KIND; a user's module has none.
typedef struct nn__kind_t {
    const char *name;           // as it is printed
    nn_forward_fn_t forward;
    size_t size;                // of the layer's struct
    const nn__field_t *fields;  // its options as they are printed; NULL = none
    void (*print)(const nn_module_t *m, tensor__text_t *t);   // instead of fields, or NULL
    int dims;                   // of its images; 0 if that is not part of the kind
    int composite;              // its forward makes temporaries, so a scope is opened for it
    int id;                     // NN__ANY, or one of those that code asks for
    const nn__join_t *join;     // NULL, or what it becomes after another kind in a sequential
} nn__kind_t;

typedef struct nn__hook_t {
    struct nn__hook_t *next;
    int64_t id;
    nn_forward_pre_hook_t pre;   // one of the three is set
    nn_forward_hook_t post;
    nn_full_backward_hook_t back;
    void *user;
    tensor_t *(*forward)(nn_module_t *m, tensor_t *x);      // runs all of a module: nn__forward_hooked
} nn__hook_t;

struct nn_module_impl_t {
    tensor__owned_t owned;   // first: the context's list
    nn_module_t *module;     // NULL = closed
    const nn__kind_t *kind;
    void (*destroy)(nn_module_t *m);
    nn__slot_t *slot;
    int nslots;
    int64_t cap;
    int parents, refs;    // refs = parents + 1 while open + calls whose backward hooks wait
    nn__hook_t *hooks;    // in the order of registration
    int64_t last_hook;
    const char *key;      // its name in its first parent, NULL for a root
    void *list, *names;   // the last results of nn_named_parameters
};

// A tensor found under m. first is the index of the first entry with the same tensor (its own index if it is
// the first).
typedef struct nn__item_t {
    const char *name;
    tensor_t *tensor;
    nn__slot_t *slot;
    int64_t first;
} nn__item_t;

typedef struct nn__items_t {
    nn__item_t *item;
    int64_t n;
} nn__items_t;

// Appends to a text: %s string, %d int64_t, %u uint64_t, %i int, %g double.
#define NN__PUT TENSOR__(text)

TENSOR__FN tensor__text_t nn__text(char *p, size_t room) {
    tensor__text_t t;
    t.p = p;
    t.room = p ? room : 0;
    t.length = 0;
    if (t.room) { p[0] = 0; }
    return t;
}

// Zeroed memory; NULL after raising OUT_OF_MEMORY.
TENSOR__FN void *nn__memory(uint64_t count, uint64_t size) {
    tensor__thread_t *th = nn__self();
    if (size != 0 && count > ((uint64_t)1 << 62) / size) {
        return NN__GIVE((void *)NULL, TENSOR_ERR_OUT_OF_MEMORY, "nn: %d elements do not fit memory",
                        (int64_t)(count >> 1));
    }
    return TENSOR__(memory)(th, count != 0 && size != 0 ? count * size : 1);
}

TENSOR__FN void nn__free(void *p) {
    if (p) { TENSOR__(memory_free)(nn__self(), p); }
}

// A block of at least want elements with the first used ones copied; the old block is freed. NULL = out of
// memory.
TENSOR__FN void *nn__grow(void *p, uint64_t used, uint64_t want, uint64_t size) {
    void *q = nn__memory(want, size);
    if (!q) { return NULL; }
    if (p && used) { memcpy(q, p, (size_t)(used * size)); }
    nn__free(p);
    return q;
}

// A list of n elements with room for one more: p, or a larger block that replaces it. NULL = out of memory.
TENSOR__FN void *nn__room(void *p, int64_t n, int64_t *cap, int64_t first, uint64_t size) {
    int64_t want = *cap ? 2 * *cap : first;
    if (n < *cap) { return p; }
    p = nn__grow(p, (uint64_t)n, (uint64_t)want, size);
    if (p) { *cap = want; }
    return p;
}

TENSOR__FN char *nn__copy_string(const char *s) {
    size_t n = strlen(s) + 1;
    char *q = (char *)nn__memory(n, 1);
    if (q) { memcpy(q, s, n); }
    return q;
}

// The error of a call on something that is NULL or failed earlier; if the thread has an error pending,
// nothing new.
TENSOR__FN int nn__poisoned(const char *op, const char *what, const void *p) {
    int code = tensor_error_code();
    if (code != TENSOR_OK) { return code; }
    return NN__ERROR(TENSOR_ERR_POISONED, "%s: %s %s", op, what, p ? "failed earlier" : "is NULL");
}

// Whether m was made by nn_module_init, freed or not; or it is zeroed storage that is not initialised yet.
enum { NN__A_MODULE = 0x7E50B0D1 };

TENSOR__FN int nn__is_module(const nn_module_t *m) {
    return TENSOR__GIVEN(m) && (uintptr_t)m % sizeof(void *) == 0 && m->state_ == NN__A_MODULE;
}

TENSOR__FN int nn__is_zeroed(const nn_module_t *m) {
    return TENSOR__GIVEN(m) && (uintptr_t)m % sizeof(void *) == 0 && m->state_ == 0 && !m->impl;
}

// Whether m is initialised and not freed. A dead block has no module; a block in use again has another
// module.
TENSOR__FN int nn__open_module(const nn_module_t *m) {
    return nn__is_module(m) && m->impl && m->impl->module == m;
}

// Raises the error of a module that cannot be used.
TENSOR__FN int nn__unusable(const char *op, const char *what, const nn_module_t *m) {
    int code = tensor_error_code();
    const char *why = "was freed";
    if (code != TENSOR_OK || !m || nn__open_module(m)) { return nn__poisoned(op, what, m); }
    if (nn__is_zeroed(m)) {
        why = "was never initialised";
    } else if (!nn__is_module(m)) {
        why = "is not a module (a function without its parentheses?)";
    } else if (!m->impl && m->code == TENSOR_ERR_OUT_OF_MEMORY) {
        return nn__poisoned(op, what, m);
    }
    return NN__ERROR(TENSOR_ERR_POISONED, "%s: %s %s", op, what, why);
}

TENSOR__FN void nn__mark(nn_module_t *m, int code) {
    if (m && m->code == TENSOR_OK) { m->code = code != TENSOR_OK ? code : TENSOR_ERR_POISONED; }
}

TENSOR__FN int nn__usable(const nn_module_t *m) {
    return nn__open_module(m) && m->code == TENSOR_OK;
}

// Whether p is not NULL, m is open and m is usable; raises if not.
TENSOR__FN int nn__there(const char *op, const char *what, const void *p) {
    if (!p) { nn__poisoned(op, what, p); }
    return p != NULL;
}

TENSOR__FN int nn__whole(const char *op, const char *what, tensor_t *t) {
    int good = t && !(tensor_is_poison)(t);
    if (!good) { nn__poisoned(op, what, t); }
    return good;
}

TENSOR__FN int nn__opened(const char *op, const char *what, const nn_module_t *m) {
    if (!nn__open_module(m)) { nn__unusable(op, what, m); }
    return nn__open_module(m);
}

TENSOR__FN int nn__can_use(const char *op, const char *what, const nn_module_t *m) {
    if (!nn__usable(m)) { nn__unusable(op, what, m); }
    return nn__usable(m);
}

// Parameters, buffers and children say where their module was made.
TENSOR__FN void nn__stamp_slots(const char *site, const nn_module_t *m) {
    for (int k = 0; nn__open_module(m) && k < m->impl->nslots; k++) {
        tensor_t *t = m->impl->slot[k].tensor;
        nn_module_t *part = m->impl->slot[k].child ? m->impl->slot[k].child->module : NULL;
        if (t && !t->site) { t->site = site; }
        if (!part || part->site) { continue; }
        part->site = site;
        nn__stamp_slots(site, part);
    }
}

TENSOR_API nn_module_t *nn__stamp(const char *site, nn_module_t *m) {
    if (nn__is_module(m) && !m->site) {
        m->site = site;
        if (site) { nn__stamp_slots(site, m); }
    }
    (void)tensor__at_ptr(site, m);
    return m;
}

// ------------------------------------------------------------------------------
// Life
// ------------------------------------------------------------------------------

TENSOR__FN void nn__close(nn_module_impl_t *impl);

// For a user's module, whose struct may no longer exist, the dead block says that it was freed; for a layer,
// its struct does.
TENSOR__FN void nn__let_go(nn_module_impl_t *impl) {
    TENSOR__(bury)(impl, TENSOR__MODULE);
}

TENSOR__FN void nn__leave_child(nn__slot_t *s) {
    nn_module_impl_t *c = s->child;
    if (c->key == s->name) { c->key = NULL; }
    c->parents--;
    c->refs--;
    if (c->refs == 0) {
        nn__let_go(c);
    } else if (c->parents == 0 && c->module) {
        nn__close(c);
    }
}

TENSOR__FN void nn__clear_slot(nn__slot_t *s) {
    if (s->tensor) { TENSOR__(drop)(s->tensor); }
    if (s->child) { nn__leave_child(s); }
    s->tensor = NULL;
    s->child = NULL;
}

TENSOR__FN void nn__close(nn_module_impl_t *impl) {
    nn_module_t *m = impl->module;
    if (!m) { return; }
    impl->module = NULL;
    TENSOR__(disown)(&impl->owned);
    for (int i = 0; i < impl->nslots; i++) {
        nn__clear_slot(&impl->slot[i]);
        nn__free(impl->slot[i].name);
    }
    nn__free(impl->slot);
    nn__free(impl->list);
    nn__free(impl->names);
    while (impl->hooks) {
        nn__hook_t *h = impl->hooks;
        impl->hooks = h->next;
        nn__free(h);
    }
    impl->slot = NULL;
    impl->list = NULL;
    impl->names = NULL;
    impl->nslots = 0;
    if (impl->destroy) {
        tensor_scope_t scope = TENSOR__(scope)(-1);     // the library's own: a shutdown inside it is refused
        impl->destroy(m);
        (tensor_scope_end)(scope);
    }
    if (--impl->refs == 0) { nn__let_go(impl); }
}

// At shutdown: children may be closed before or after their parents.
TENSOR__FN void nn__module_shutdown(tensor__owned_t *o) {
    nn__close((nn_module_impl_t *)(void *)o);
}

TENSOR_API void nn_module_init(nn_module_t *m, const char *name, nn_forward_fn_t forward,
                               void (*destroy)(nn_module_t *m)) {
    if (!nn__there("module_init", "the module", m)) { return; }
    nn_module_impl_t *impl;
    impl = (nn_module_impl_t *)TENSOR__(object)(nn__self(), TENSOR__MODULE, sizeof *impl);
    m->name = name ? name : "Module";
    m->forward = forward;
    m->clone = NULL;
    m->training = 1;
    m->code = impl ? TENSOR_OK : TENSOR_ERR_OUT_OF_MEMORY;
    m->site = NULL;
    m->impl = impl;
    m->state_ = NN__A_MODULE;
    if (!impl) { return; }
    impl->module = m;
    impl->destroy = destroy;
    impl->refs = 1;
    impl->owned.destroy = nn__module_shutdown;
    TENSOR__(own)(nn__self(), &impl->owned);
}

TENSOR_API int (nn_free)(nn_module_t *m) {
    if (!m || nn__is_zeroed(m)) { return TENSOR_OK; }
    if (!nn__is_module(m)) { return nn__unusable("free", "the argument", m); }
    nn_module_impl_t *impl = m->impl;
    if (impl ? impl->module != m : m->code == TENSOR_ERR_OWNER) {
        return NN__ERROR(TENSOR_ERR_OWNER, "free: the module was freed already");
    }
    if (!impl) { return TENSOR_OK; }
    if (impl->parents > 0) {
        return NN__ERROR(TENSOR_ERR_OWNER, "free: module %s is part of another module, free that", m->name);
    }
    m->impl = NULL;
    m->code = TENSOR_ERR_OWNER;
    nn__close(impl);
    return TENSOR_OK;
}

// ------------------------------------------------------------------------------
// Registration
// ------------------------------------------------------------------------------

TENSOR__FN nn__slot_t *nn__find_slot(const nn_module_impl_t *impl, const char *name, size_t n) {
    for (int i = 0; i < impl->nslots; i++) {
        if (strncmp(impl->slot[i].name, name, n) == 0 && impl->slot[i].name[n] == 0) {
            return &impl->slot[i];
        }
    }
    return NULL;
}

// The slot for name: the old slot of that name, emptied, or a new one. NULL after raising (and marking m as
// failed).
TENSOR__FN nn__slot_t *nn__slot(nn_module_t *m, const char *op, const char *name, int kind) {
    nn_module_impl_t *impl = m->impl;
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n > NN__MAX_NAME || strchr(name, '.')) {
        const char *got = name ? name : "";
        if (n > NN__MAX_NAME) { got = "a longer one"; }
        NN__FAIL(TENSOR_ERR_SHAPE, "%s: a name has 1 to 200 bytes and no dot (got \"%s\")", op, got);
        nn__mark(m, TENSOR_ERR_SHAPE);
        return NULL;
    }
    nn__slot_t *s = nn__find_slot(impl, name, n);
    if (!s) {
        char *copy = nn__copy_string(name);
        s = copy ? (nn__slot_t *)nn__room(impl->slot, impl->nslots, &impl->cap, 4, sizeof *s) : NULL;
        if (!s) {
            nn__free(copy);
            nn__mark(m, TENSOR_ERR_OUT_OF_MEMORY);
            return NULL;
        }
        impl->slot = s;
        s = &impl->slot[impl->nslots++];
        s->name = copy;
    }
    s->kind = kind;
    return s;
}

TENSOR__FN tensor_t *nn__register(nn_module_t *m, const char *op, const char *name, tensor_t *t, int kind) {
    if (!nn__opened(op, "the module", m)) { return TENSOR__(poison); }
    if (!t || (tensor_is_poison)(t)) {
        nn__mark(m, nn__poisoned(op, "the tensor", t));
        return TENSOR__(poison);
    }
    if (kind == NN__PARAMETER) {
        if (!(tensor_is_leaf)(t)) {
            NN__FAIL(TENSOR_ERR_AUTOGRAD,
                     "parameter: \"%s\" %t is the result of a recorded operation; make it without recording",
                     name ? name : "", t);
            nn__mark(m, TENSOR_ERR_AUTOGRAD);
            return TENSOR__(poison);
        }
        if (TENSOR__TRAINS && (tensor_is_poison)((tensor_requires_grad_)(t, 1))) {
            nn__mark(m, tensor_error_code());
            return TENSOR__(poison);
        }
    }
    nn__slot_t *s = nn__slot(m, op, name, kind);
    if (!s) { return TENSOR__(poison); }
    TENSOR__(hold)(t);
    nn__clear_slot(s);
    s->tensor = t;
    return t;
}

TENSOR_API tensor_t *(nn_parameter)(nn_module_t *m, const char *name, tensor_t *t) {
    return nn__register(m, "parameter", name, t, NN__PARAMETER);
}

TENSOR_API tensor_t *(nn_buffer)(nn_module_t *m, const char *name, tensor_t *t) {
    return nn__register(m, "buffer", name, t, NN__BUFFER);
}

TENSOR__FN int nn__contains(const nn_module_impl_t *outer, const nn_module_impl_t *inner) {
    if (outer == inner) { return 1; }
    for (int i = 0; i < outer->nslots; i++) {
        if (outer->slot[i].child && nn__contains(outer->slot[i].child, inner)) { return 1; }
    }
    return 0;
}

TENSOR_API nn_module_t *(nn_child)(nn_module_t *m, const char *name, nn_module_t *child) {
    if (!nn__opened("child", "the module", m)) { return child; }
    if (!nn__open_module(child)) {
        nn__mark(m, nn__unusable("child", "the child", child));
        return child;
    }
    if (child->code != TENSOR_OK) { nn__mark(m, child->code); }
    if (nn__contains(child->impl, m->impl)) {
        NN__FAIL(TENSOR_ERR_OWNER, "child: %s is part of %s already", m->name, child->name);
        nn__mark(m, TENSOR_ERR_OWNER);
        return child;
    }
    nn__slot_t *s = nn__slot(m, "child", name, NN__CHILD);
    if (!s) { return child; }
    if (s->child == child->impl) { return child; }
    child->impl->parents++;
    child->impl->refs++;
    nn__clear_slot(s);
    s->child = child->impl;
    if (!child->impl->key) { child->impl->key = s->name; }
    return child;
}

// ------------------------------------------------------------------------------
// Use
// ------------------------------------------------------------------------------

TENSOR__FN tensor_t *nn__forward_plain(nn_module_t *m, tensor_t *x) {
    if (m->impl->kind && !m->impl->kind->composite) { return m->forward(m, x); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    tensor_t *y = m->forward(m, x);
    if (!y) {
        y = NN__FAIL(TENSOR_ERR_INTERNAL, "forward: the forward of %s returned NULL, must return a tensor",
                     m->name);
    }
    return (tensor_scope_return)(scope, y);
}

// One call whose backward hooks wait: identities around x and y give it their gradients.
typedef struct nn__hooked_t {
    tensor__count_t refs;          // the two identities
    nn_module_impl_t *impl;
    tensor_t *grad_output;         // held
    int input;                     // x requires grad
} nn__hooked_t;

TENSOR__FN void nn__hooked_destroy(void *user) {
    nn__hooked_t *c = (nn__hooked_t *)user;
    if (!TENSOR__DROP(&c->refs)) { return; }
    if (c->grad_output) { TENSOR__(drop)(c->grad_output); }
    if (--c->impl->refs == 0) { nn__let_go(c->impl); }
    nn__free(c);
}

TENSOR__FN tensor_t *nn__hooked_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return in[0];
}

TENSOR__FN int nn__hooked_run(nn__hooked_t *c, tensor_t *grad, tensor_t **result) {
    int64_t last = 0;
    *result = grad;
    nn__hook_t *h;
    for (;;) {                     // a hook may remove any hook
        for (h = c->impl->module ? c->impl->hooks : NULL; h && (h->id <= last || !h->back); h = h->next) { }
        if (!h) { return tensor_error_code(); }
        last = h->id;
        grad = h->back(c->impl->module, *result, c->grad_output, h->user);
        if (grad && *result) { *result = grad; }
        if (tensor_error_code()) { return tensor_error_code(); }
    }
}

TENSOR__FN int nn__hooked_input(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    nn__hooked_t *c = (nn__hooked_t *)tensor_function_user(ctx);
    (void)n;
    return nn__hooked_run(c, grad, &grads[0]);
}

TENSOR__FN int nn__hooked_output(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    nn__hooked_t *c = (nn__hooked_t *)tensor_function_user(ctx);
    tensor_t *nothing = NULL, *old = c->grad_output;
    (void)n;
    grads[0] = grad;
    c->grad_output = TENSOR__(hold)(grad);
    if (old) { TENSOR__(drop)(old); }
    return c->input ? TENSOR_OK : nn__hooked_run(c, NULL, &nothing);
}

TENSOR__FN tensor_t *nn__forward_hooked(nn_module_t *m, tensor_t *x) {
    static const tensor_function_t input = {"backward_hook", nn__hooked_forward, nn__hooked_input,
                                            nn__hooked_destroy},
                                   output = {"backward_hook", nn__hooked_forward, nn__hooked_output,
                                             nn__hooked_destroy};
    tensor_scope_t scope = TENSOR__(scope)(-1);
    nn__hooked_t *c = NULL;
    nn__hook_t *h;
    tensor_t *r;
    int back = 0;
    for (int64_t last = 0;;) {
        for (h = m->impl->hooks; h && (h->id <= last || !h->pre); h = h->next) { }
        if (!h) { break; }
        last = h->id;
        r = h->pre(m, x, h->user);
        if (r) { x = r; }
    }
    for (h = m->impl->hooks; h; h = h->next) { back |= h->back != NULL; }
    if (back && tensor_grad_enabled() && x && !(tensor_is_poison)(x)) {
        c = (nn__hooked_t *)nn__memory(1, sizeof *c);
        if (!c) { return (tensor_scope_return)(scope, TENSOR__(poison)); }
        c->refs = 2;
        c->impl = m->impl;
        c->impl->refs++;
        c->input = tensor_requires_grad(x);
        x = (tensor_apply)(&input, c, &x, 1);
    }
    tensor_t *y = nn__forward_plain(m, x);
    for (int64_t last = 0;;) {
        for (h = m->impl->hooks; h && (h->id <= last || !h->post); h = h->next) { }
        if (!h) { break; }
        last = h->id;
        r = h->post(m, x, y, h->user);
        if (r) { y = r; }
    }
    if (c) { y = (tensor_apply)(&output, c, &y, 1); }  // frees c's reference if y is poison
    return (tensor_scope_return)(scope, y);
}

TENSOR__FN int64_t nn__add_hook(nn_module_t *m, const char *op, nn_forward_pre_hook_t pre,
                                nn_forward_hook_t post, nn_full_backward_hook_t back, void *user) {
    if (!nn__opened(op, "the module", m)) { return 0; }
    if (!pre && !post && !back) { return NN__NO(TENSOR_ERR_OWNER, "%s: fn is NULL", op); }
    nn__hook_t *h;
    h = (nn__hook_t *)nn__memory(1, sizeof *h);
    if (!h) { return 0; }
    h->forward = nn__forward_hooked;
    h->id = ++m->impl->last_hook;
    h->pre = pre;
    h->post = post;
    h->back = back;
    h->user = user;
    nn__hook_t **at;
    for (at = &m->impl->hooks; *at; at = &(*at)->next) { }
    *at = h;
    return h->id;
}

TENSOR_API int64_t nn_register_forward_pre_hook(nn_module_t *m, nn_forward_pre_hook_t fn, void *user) {
    return nn__add_hook(m, "register_forward_pre_hook", fn, NULL, NULL, user);
}

TENSOR_API int64_t (nn_register_forward_hook)(nn_module_t *m, nn_forward_hook_t fn, void *user) {
    return nn__add_hook(m, "register_forward_hook", NULL, fn, NULL, user);
}

TENSOR_API int64_t nn_register_full_backward_hook(nn_module_t *m, nn_full_backward_hook_t fn, void *user) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int64_t)0, "register_full_backward_hook"); }
    return nn__add_hook(m, "register_full_backward_hook", NULL, NULL, fn, user);
}

TENSOR_API int nn_remove_hook(nn_module_t *m, int64_t handle) {
    if (!nn__open_module(m)) { return 0; }
    nn__hook_t **at;
    for (at = &m->impl->hooks; *at && (*at)->id != handle; at = &(*at)->next) { }
    nn__hook_t *h = *at;
    if (!h) { return 0; }
    *at = h->next;
    nn__free(h);
    return 1;
}

TENSOR_API tensor_t *(nn_forward)(nn_module_t *m, tensor_t *x) {
    tensor__thread_t *th = nn__self();
    if (!nn__usable(m) || !m->forward) {
        if (tensor_error_code() == TENSOR_OK) {
            if (nn__open_module(m) && m->code != TENSOR_OK) {
                TENSOR__(fail)(th, m->code, "forward: module %s failed when it was made", m->name);
            } else if (nn__open_module(m)) {
                TENSOR__(fail)(th, TENSOR_ERR_POISONED, "forward: module %s has no forward", m->name);
            } else {
                nn__unusable("forward", "the module", m);
            }
        }
        return TENSOR__(poison);
    }
    nn_module_impl_t *impl = m->impl;
    int pushed = impl->key != NULL;
    if (pushed) { TENSOR__(push_path)(th, impl->key); }
    tensor_t *y = impl->hooks ? impl->hooks->forward(m, x) : nn__forward_plain(m, x);
    if (pushed) { TENSOR__(pop_path)(th); }
    return y;
}

TENSOR__FN void nn__set_training(nn_module_impl_t *impl, int on) {
    if (impl->module) { impl->module->training = on; }
    for (int i = 0; i < impl->nslots; i++) {
        if (impl->slot[i].child) { nn__set_training(impl->slot[i].child, on); }
    }
}

TENSOR_API nn_module_t *(nn_train)(nn_module_t *m) {
    if (nn__open_module(m)) { nn__set_training(m->impl, 1); }
    return m;
}

TENSOR_API nn_module_t *(nn_eval)(nn_module_t *m) {
    if (nn__open_module(m)) { nn__set_training(m->impl, 0); }
    return m;
}

// ------------------------------------------------------------------------------
// Lists
// ------------------------------------------------------------------------------

typedef struct nn__prefix_t {
    const struct nn__prefix_t *up;
    const char *name;
    size_t len;
} nn__prefix_t;

TENSOR__FN void nn__count_items(const nn_module_impl_t *impl, size_t prefix, uint64_t *items,
                                uint64_t *bytes) {
    for (int i = 0; i < impl->nslots; i++) {
        const nn__slot_t *s = &impl->slot[i];
        size_t n = prefix + strlen(s->name) + 1;
        if (s->child) {
            nn__count_items(s->child, n, items, bytes);
            continue;
        }
        *items += 1;
        *bytes += n;
    }
}

TENSOR__FN char *nn__write_name(char *to, const nn__prefix_t *p) {
    if (p->up) { to = nn__write_name(to, p->up); }
    memcpy(to, p->name, p->len);
    to[p->len] = '.';
    return to + p->len + 1;
}

TENSOR__FN void nn__fill_items(nn_module_impl_t *impl, const nn__prefix_t *up, nn__items_t *out,
                               char **names) {
    for (int kind = NN__PARAMETER; kind <= NN__CHILD; kind++) {
        for (int i = 0; i < impl->nslots; i++) {
            nn__slot_t *s = &impl->slot[i];
            if (s->kind != kind || (!s->tensor && !s->child)) { continue; }
            nn__prefix_t p;
            p.up = up;
            p.name = s->name;
            p.len = strlen(s->name);
            if (kind == NN__CHILD) {
                nn__fill_items(s->child, &p, out, names);
            } else {
                nn__item_t *it = &out->item[out->n++];
                it->name = *names;
                it->tensor = s->tensor;
                it->slot = s;
                *names = nn__write_name(*names, &p);
                (*names)[-1] = 0;
            }
        }
    }
}

// Every tensor under m by each of its names. kept: in a block to free, else in memory until the scope ends.
// -> that memory, NULL after raising; out->item points into it
TENSOR__FN void *nn__collect_in(nn_module_t *m, const char *op, nn__items_t *out, int kept) {
    uint64_t items = 0, bytes = 0, slots = 16;
    out->item = NULL;
    out->n = 0;
    if (!nn__can_use(op, "the module", m)) { return NULL; }
    nn__count_items(m->impl, 0, &items, &bytes);
    while (slots < 2 * items) { slots *= 2; }
    uint64_t size = items * sizeof(nn__item_t) + slots * sizeof(int32_t) + bytes;
    unsigned char *block = (unsigned char *)(kept ? nn__memory(size, 1) : nn__lent(size, 1));
    if (!block) { return NULL; }
    if (!kept) { memset(block, 0, (size_t)size); }
    out->item = (nn__item_t *)(void *)block;
    int32_t *table = (int32_t *)(void *)(block + items * sizeof(nn__item_t));
    char *names = (char *)(table + slots);
    nn__fill_items(m->impl, NULL, out, &names);
    uint64_t k;
    for (int64_t i = 0; i < out->n; i++) {
        uint64_t h = (uint64_t)(uintptr_t)out->item[i].tensor;
        h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
        for (k = (h >> 32) & (slots - 1); table[k] != 0; k = (k + 1) & (slots - 1)) {
            if (out->item[table[k] - 1].tensor == out->item[i].tensor) { break; }
        }
        if (table[k] == 0) { table[k] = (int32_t)(i + 1); }
        out->item[i].first = table[k] - 1;
    }
    return block;
}

TENSOR__FN void *nn__collect(nn_module_t *m, const char *op, nn__items_t *out) {
    return nn__collect_in(m, op, out, 1);
}

TENSOR__FN void *nn__collect_lent(nn_module_t *m, const char *op, nn__items_t *out) {
    return nn__collect_in(m, op, out, 0);
}

TENSOR__FN nn_named_list_t nn__named(nn_module_t *m, const char *op, int buffers) {
    nn_named_list_t r;
    nn__items_t all;
    void *block = nn__collect(m, op, &all);
    r.item = NULL;
    r.count = 0;
    if (!block) { return r; }
    nn_named_t *list = (nn_named_t *)nn__memory((uint64_t)all.n, sizeof(nn_named_t));
    if (!list) {
        nn__free(block);
        return r;
    }
    for (int64_t i = 0; i < all.n; i++) {
        if (all.item[i].first != i || (all.item[i].slot->kind == NN__BUFFER && !buffers)) { continue; }
        list[r.count].name = all.item[i].name;
        list[r.count].tensor = all.item[i].tensor;
        list[r.count].is_buffer = all.item[i].slot->kind == NN__BUFFER;
        r.count++;
    }
    r.item = list;
    nn__free(m->impl->list);
    nn__free(m->impl->names);
    m->impl->list = list;
    m->impl->names = block;
    return r;
}

TENSOR_API nn_named_list_t nn__at_list(const char *site, nn_named_list_t l) {
    if (site) { (void)tensor__at_i64(site, 0); }
    return l;
}

TENSOR_API nn_named_list_t (nn_named_parameters)(nn_module_t *m) {
    return nn__named(m, "named_parameters", 0);
}

TENSOR_API nn_named_list_t (nn_state)(nn_module_t *m) {
    return nn__named(m, "state", 1);
}

TENSOR_API int (nn_parameters)(nn_module_t *m, tensor_t **out, int max) {
    tensor_scope_t scope = TENSOR__(scope)(-1);
    nn__items_t all;
    void *block = nn__collect_lent(m, "parameters", &all);
    int n = 0;
    for (int64_t i = 0; block && i < all.n; i++) {
        if (all.item[i].first != i || all.item[i].slot->kind != NN__PARAMETER) { continue; }
        if (out && n < max) { out[n] = all.item[i].tensor; }
        n++;
    }
    (tensor_scope_end)(scope);
    return n;
}

TENSOR_API int64_t (nn_num_parameters)(nn_module_t *m) {
    tensor_scope_t scope = TENSOR__(scope)(-1);
    nn__items_t all;
    void *block = nn__collect_lent(m, "num_parameters", &all);
    int64_t n = 0;
    for (int64_t i = 0; block && i < all.n; i++) {
        if (all.item[i].first == i && all.item[i].slot->kind == NN__PARAMETER) {
            n += all.item[i].tensor->numel;
        }
    }
    (tensor_scope_end)(scope);
    return n;
}

TENSOR_API nn_module_t *(nn_requires_grad_)(nn_module_t *m, int on) {
    tensor_scope_t scope = TENSOR__(scope)(-1);
    nn__items_t all;
    void *block = nn__collect_lent(m, "requires_grad_", &all);
    for (int64_t i = 0; block && i < all.n; i++) {
        if (all.item[i].slot->kind == NN__PARAMETER) { (tensor_requires_grad_)(all.item[i].tensor, on); }
    }
    (tensor_scope_end)(scope);
    return m;
}

TENSOR_API int (nn_module_zero_grad)(nn_module_t *m) {
    tensor_scope_t scope = TENSOR__(scope)(-1);
    nn__items_t all;
    void *block = nn__collect_lent(m, "zero_grad", &all);
    for (int64_t i = 0; block && i < all.n; i++) {
        if (all.item[i].tensor->grad) { (tensor_set_grad)(all.item[i].tensor, NULL); }
    }
    (tensor_scope_end)(scope);
    return block ? TENSOR_OK : tensor_error_code();
}

// The slot with a dotted name, NULL if there is none.
TENSOR__FN nn__slot_t *nn__lookup(const nn_module_impl_t *impl, const char *name) {
    nn__slot_t *s = NULL;
    while (impl) {
        const char *dot = strchr(name, '.');
        s = nn__find_slot(impl, name, dot ? (size_t)(dot - name) : strlen(name));
        if (!s || !dot) { return s; }
        impl = s->child;
        name = dot + 1;
    }
    return NULL;
}

TENSOR_API tensor_t *(nn_get)(nn_module_t *m, const char *name) {
    if (!nn__can_use("get", "the module", m)) { return TENSOR__(poison); }
    if (!nn__there("get", "name", name)) { return TENSOR__(poison); }
    nn__slot_t *s = nn__lookup(m->impl, name);
    if (s && s->tensor) { return s->tensor; }
    return NN__FAIL(TENSOR_ERR_INDEX, "get: %s has no parameter or buffer \"%s\"", m->name, name);
}

TENSOR_API nn_module_t *(nn_get_child)(nn_module_t *m, const char *name) {
    if (!nn__can_use("get_child", "the module", m)) { return NULL; }
    if (!nn__there("get_child", "name", name)) { return NULL; }
    nn__slot_t *s = nn__lookup(m->impl, name);
    if (s && s->child && s->child->module) { return s->child->module; }
    return NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_INDEX, "get_child: %s has no module \"%s\"", m->name,
                    name);
}

// ------------------------------------------------------------------------------
// >>impl-layers                                    MARK: what all layers share
//
// A layer is a struct that begins with its nn_module_t, as a module of a user does. Its other members are its
// options under PyTorch's names and as they are used: defaults are filled in, lists are copied. The kind of a
// layer (nn__kind_t) knows its printed name, its forward, the size of its struct and a table of its fields.
// Printing and nn_clone need no more than that, so they are written once. Tensors are in the module's slots,
// which nn_parameter may replace (tie). The sections from here to >>layers-sequential have for each layer, in
// this order: struct, fields, forward, kind, constructor. A constructor reaches its kind by NN__KIND(ID), so
// a program contains only the layers that it makes. Rejected: one struct of numbered options for all layers
// (a slip is a silent wrong answer), a print and a clone function per layer, one table of all kinds.
// ------------------------------------------------------------------------------

TENSOR__COLD

// Memory of every layer: a dead one may become a layer of another kind, see tensor__object.
enum { NN__LAYER_SIZE = 288 };

// Ids of the kinds that code asks for; the others have NN__ANY. Those of nn_transformer_forward are
// neighbours.
enum {
    NN__ANY,
    NN__LINEAR_ID,
    NN__RELU_ID,
    NN__BILINEAR_ID,
    NN__MAX_UNPOOL_ID,
    NN__RNN_ID,
    NN__LSTM_ID,
    NN__GRU_ID,
    NN__ATTENTION_ID,
    NN__ENCODER_LAYER_ID,
    NN__DECODER_LAYER_ID,
    NN__ENCODER_ID,
    NN__DECODER_ID,
    NN__SEQUENTIAL_ID
};

// ---- fields

// How a member is printed.
enum {
    NN__INT,             // int64_t
    NN__SIZE,            // int64_t, None if it is negative
    NN__FLOAT,           // double
    NN__FLOAT_OR_NONE,   // double, None if it is NaN
    NN__BOOL,            // int
    NN__WORD,            // int, the index of a word
    NN__TUPLE,           // int64_t[3], of which the last ones are used, one for each of the kind's dims
    NN__SIZES,           // the same; one number if they are equal: 3; None for negative ones
    NN__LIST,            // nn__list_t
    NN__NOTE             // nothing: the name itself is printed
};

// At most 6 numbers, printed as a tuple.
typedef struct nn__list_t {
    int64_t n, v[6];
} nn__list_t;

// A field that is printed as name=value, or as the value if the name is empty. One that is equal to its
// default is not printed; NN__SHOWN is a default that no option has. NN__LAST ends a table.
struct nn__field_t {
    const char *name;
    size_t offset;
    int type;
    double usual;               // the default
    const char *const *words;   // of NN__WORD
};
#define NN__SHOWN (-9.0e18)
#define NN__LAST {NULL, 0, NN__NOTE, NN__SHOWN, NULL}
#define NN__OF(layer, member) offsetof(nn__##layer##_layer_t, member)

TENSOR__FN int nn__dims(const nn_module_t *m) { return m->impl->kind->dims; }

// Whether the last `rank` of v[3] have that value.
TENSOR__FN int nn__all_are(const int64_t *v, int64_t rank, int64_t value) {
    for (int64_t d = 3 - rank; d < 3; d++) {
        if (v[d] != value) { return 0; }
    }
    return 1;
}

TENSOR__FN int nn__is_usual(const nn__field_t *f, const void *at, int rank) {
    if (f->usual == NN__SHOWN) { return 0; }
    switch (f->type) {
    case NN__FLOAT: return *(const double *)at == f->usual;
    case NN__BOOL:
    case NN__WORD: return *(const int *)at == (int)f->usual;
    case NN__TUPLE: return nn__all_are((const int64_t *)at, rank, (int64_t)f->usual);
    default: return *(const int64_t *)at == (int64_t)f->usual;
    }
}

// The shortest decimal that is equal to v, as in Python: 1.0, 0.1, 123456.5; six digits outside 1e-4..1e15.
TENSOR__FN void nn__put_float(tensor__text_t *t, double v) {
    double by = 1, x = fabs(v);
    int k = 0;
    if (x != 0 && !(x >= 1e-4 && x < 1e15)) {
        NN__PUT(t, "%g", v);
        return;
    }
    double whole;
    while ((whole = floor(x * by + 0.5)) / by != x && x * by < 9e14) { by *= 10, k++; }
    NN__PUT(t, v < 0 ? "-%d." : "%d.", (int64_t)(whole / by));
    int d;
    for (whole -= floor(whole / by) * by, d = 0; d < k; d++, whole -= floor(whole / by) * by) {
        by /= 10;
        NN__PUT(t, "%d", (int64_t)(whole / by));
    }
    if (k == 0) { NN__PUT(t, "0"); }
}

TENSOR__FN void nn__put_size(tensor__text_t *t, int64_t v) { NN__PUT(t, v < 0 ? "None" : "%d", v); }

// As Python prints a tuple: (1, 2), (1,).
TENSOR__FN void nn__put_tuple(tensor__text_t *t, const int64_t *v, int64_t n) {
    NN__PUT(t, "(");
    for (int64_t i = 0; i < n; i++) { NN__PUT(t, i == 0 ? "%d" : ", %d", v[i]); }
    NN__PUT(t, n == 1 ? ",)" : ")");
}

// The sizes of the last `rank` dims: one number if they are equal.
TENSOR__FN void nn__put_sizes(tensor__text_t *t, const int64_t *v, int rank) {
    if (nn__all_are(v, rank, v[2])) {
        nn__put_size(t, v[2]);
        return;
    }
    for (int d = 3 - rank; d < 3; d++) {
        NN__PUT(t, d == 3 - rank ? "(" : ", ");
        nn__put_size(t, v[d]);
    }
    NN__PUT(t, ")");
}

TENSOR__FN void nn__put_field(tensor__text_t *t, const nn__field_t *f, const void *at, int rank) {
    const nn__list_t *list = (const nn__list_t *)at;
    NN__PUT(t, f->name[0] && f->type != NN__NOTE ? "%s=" : "%s", f->name);
    switch (f->type) {
    case NN__INT: NN__PUT(t, "%d", *(const int64_t *)at); break;
    case NN__SIZE: nn__put_size(t, *(const int64_t *)at); break;
    case NN__FLOAT: nn__put_float(t, *(const double *)at); break;
    case NN__FLOAT_OR_NONE:
        if (*(const double *)at != *(const double *)at) {
            NN__PUT(t, "None");
        } else {
            nn__put_float(t, *(const double *)at);
        }
        break;
    case NN__BOOL: NN__PUT(t, *(const int *)at ? "True" : "False"); break;
    case NN__WORD: NN__PUT(t, "%s", f->words[*(const int *)at]); break;
    case NN__TUPLE: nn__put_tuple(t, (const int64_t *)at + 3 - rank, rank); break;
    case NN__SIZES: nn__put_sizes(t, (const int64_t *)at, rank); break;
    case NN__LIST: nn__put_tuple(t, list->v, list->n); break;
    default: break;
    }
}

// The options of a layer in PyTorch's form.
TENSOR__FN void nn__put_fields(const nn_module_t *m, tensor__text_t *t) {
    int any = 0;
    for (const nn__field_t *f = m->impl->kind->fields; f && f->name; f++) {
        const void *at = (const char *)m + f->offset;
        if (nn__is_usual(f, at, nn__dims(m))) { continue; }
        if (any) { NN__PUT(t, ", "); }
        nn__put_field(t, f, at, nn__dims(m));
        any = 1;
    }
}

// ---- kinds

// Defines the kind ID of layers that are a `layer` (a struct type). It is a function, so that it is reached
// only from where it is named. Most kinds are of one of the five forms below it.
//   print      NULL, or a function that prints the options instead of the fields
//   dims       of the layer's images; 0 if that is not part of the kind
//   composite  its forward makes temporaries, so nn_forward opens a scope for it
//   id, join   NN__ANY and NULL, or see their types
#define NN__KIND(ID) nn__kind_##ID()
#define NN__SPECIAL_KIND(ID, layer, name, forward, fields, print, dims, composite, id, join)                 \
    TENSOR__FN const nn__kind_t *nn__kind_##ID(void) {                                                       \
        static const nn__kind_t kind = {name, forward,   NN__FITTING(layer), fields, print,                  \
                                        dims, composite, id,                 join};                          \
        return &kind;                                                                                        \
    }
#define NN__FITTING(layer) (sizeof(layer) * sizeof(char[sizeof(layer) <= NN__LAYER_SIZE ? 1 : -1]))

#define NN__PLAIN_KIND(ID, layer, name, forward, fields)                                                     \
    NN__SPECIAL_KIND(ID, layer, name, forward, fields, NULL, 0, 0, NN__ANY, NULL)
// One that code asks for.
#define NN__KNOWN_KIND(ID, layer, name, forward, fields, id)                                                 \
    NN__SPECIAL_KIND(ID, layer, name, forward, fields, NULL, 0, 0, id, NULL)
// One whose forward makes temporaries.
#define NN__SCOPED_KIND(ID, layer, name, forward, fields, id)                                                \
    NN__SPECIAL_KIND(ID, layer, name, forward, fields, NULL, 0, 1, id, NULL)
// One of images with that many dims.
#define NN__IMAGE_KIND(ID, layer, name, forward, fields, dims)                                               \
    NN__SPECIAL_KIND(ID, layer, name, forward, fields, NULL, dims, 0, NN__ANY, NULL)
// The kinds ID1D, ID2D and ID3D, of images with 1, 2 and 3 dims.
#define NN__KINDS(ID, layer, name, forward, fields, id, join)                                                \
    NN__SPECIAL_KIND(ID##1D, layer, name "1d", forward, fields, NULL, 1, 0, id, join)                        \
    NN__SPECIAL_KIND(ID##2D, layer, name "2d", forward, fields, NULL, 2, 0, id, join)                        \
    NN__SPECIAL_KIND(ID##3D, layer, name "3d", forward, fields, NULL, 3, 0, id, join)

// nn__family_kind(dims), one of them.
#define NN__KIND_BY_DIMS(family, ID)                                                                         \
    TENSOR__FN const nn__kind_t *nn__##family##_kind(int dims) {                                             \
        switch (dims) {                                                                                      \
        case 1: return nn__kind_##ID##1D();                                                                  \
        case 2: return nn__kind_##ID##2D();                                                                  \
        default: return nn__kind_##ID##3D();                                                                 \
        }                                                                                                    \
    }

// ---- construction
//
// A layer is made in one block with its options; its parameters are drawn as PyTorch draws them. If a layer
// cannot be made, what exists of it is freed and the result is NULL. Rejected: two-step construction
// (half-made layers).

// The dead struct shows that the layer was freed, so a later use is noticed.
TENSOR__FN void nn__destroy_layer(nn_module_t *m) {
    m->impl = NULL;
    m->code = TENSOR_ERR_OWNER;
    TENSOR__(bury)(m, TENSOR__LAYER);
}

// A layer of that kind, for its constructor to fill; NULL after raising OUT_OF_MEMORY.
TENSOR__FN void *nn__make(const nn__kind_t *kind) {
    TENSOR__(push_path)(nn__self(), kind->name);
    nn_module_t *m = (nn_module_t *)TENSOR__(object)(nn__self(), TENSOR__LAYER, NN__LAYER_SIZE);
    if (m) { nn_module_init(m, kind->name, kind->forward, nn__destroy_layer); }
    TENSOR__(pop_path)(nn__self());
    if (!m) { return NULL; }
    if (!m->impl) {
        nn__free(m);
        return NULL;
    }
    m->impl->kind = kind;
    return m;
}

// A layer of that kind with the options of `like`, which has a struct of that kind; NULL after raising.
TENSOR__FN void *nn__make_like(const nn__kind_t *kind, const nn_module_t *like) {
    nn_module_t *m = (nn_module_t *)nn__make(kind);
    if (m) { memcpy((char *)m + sizeof *m, (const char *)like + sizeof *like, kind->size - sizeof *m); }
    return m;
}

TENSOR__FN nn_module_t *nn__clone_layer(nn_module_t *m) {
    nn_module_t *c = (nn_module_t *)nn__make_like(m->impl->kind, m);
    if (c) { c->site = m->site; }
    return c;
}

// The finished layer, or NULL if anything in it failed.
TENSOR__FN nn_module_t *nn__done(nn_module_t *m) {
    if (!m || m->code == TENSOR_OK) { return m; }
    (nn_free)(m);
    return NULL;
}

TENSOR__FN nn_module_t *nn__refuse(const char *layer, const char *what, int64_t got) {
    return NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_SHAPE, "%s: %s (got %d)", layer, what, got);
}

TENSOR__FN nn_module_t *nn__refuse_number(const char *layer, const char *what, double got) {
    return NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_SHAPE, "%s: %s (got %g)", layer, what, got);
}

// The same with a text of its own, that says which argument was what and what it must be.
#define NN__REFUSE(...) NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_SHAPE, __VA_ARGS__)

// Fresh f32 parameters: uniform in +-bound, normal with that deviation, bound everywhere, ones, zeros. Each
// is a function of its own, so that a program contains only those of its layers.
typedef tensor_t *(*nn__start_fn)(const int64_t *dims, int ndim, double bound);

TENSOR__FN tensor_t *nn__start_uniform(const int64_t *dims, int ndim, double bound) {
    tensor_t *t = (tensor_empty_n)(dims, ndim, TENSOR_F32);
    return (tensor_is_poison)(t) ? t : (tensor_uniform_)(t, -bound, bound);
}

TENSOR__FN tensor_t *nn__start_normal(const int64_t *dims, int ndim, double bound) {
    tensor_t *t = (tensor_empty_n)(dims, ndim, TENSOR_F32);
    return (tensor_is_poison)(t) ? t : (tensor_normal_)(t, 0, bound);
}

TENSOR__FN tensor_t *nn__start_constant(const int64_t *dims, int ndim, double bound) {
    return (tensor_full_n)(dims, ndim, bound, TENSOR_F32);
}

TENSOR__FN tensor_t *nn__start_ones(const int64_t *dims, int ndim, double bound) {
    (void)bound;
    return (tensor_full_n)(dims, ndim, 1, TENSOR_F32);
}

TENSOR__FN tensor_t *nn__start_zeros(const int64_t *dims, int ndim, double bound) {
    (void)bound;
    return (tensor_full_n)(dims, ndim, 0, TENSOR_F32);
}

// Registers a fresh parameter.
TENSOR__FN void nn__add_parameter(nn_module_t *m, const char *name, const int64_t *dims, int ndim,
                                  nn__start_fn start, double bound) {
    if (m->code != TENSOR_OK) { return; }
    TENSOR__(push_path)(nn__self(), m->name);
    tensor_scope_t scope = TENSOR__(scope)(0);
    (nn_parameter)(m, name, start(dims, ndim, bound));
    (tensor_scope_end)(scope);
    TENSOR__(pop_path)(nn__self());
}

// Gives m weight [n] of ones and bias [n] of zeros, if they are wanted.
TENSOR__FN void nn__add_affine(nn_module_t *m, int64_t n, int weight, int bias) {
    if (weight) { nn__add_parameter(m, "weight", &n, 1, nn__start_ones, 0); }
    if (bias) { nn__add_parameter(m, "bias", &n, 1, nn__start_zeros, 0); }
}

// Registers a buffer [n] (n < 0: 0-d) filled with one value.
TENSOR__FN void nn__add_buffer(nn_module_t *m, const char *name, int64_t n, double value,
                               tensor_dtype_t dtype) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    if (m->code == TENSOR_OK) { (nn_buffer)(m, name, (tensor_full_n)(&n, n >= 0, value, dtype)); }
    (tensor_scope_end)(scope);
}

// nn_layer_with(a), whose result is `make`, an expression of a.
#define NN__LAYER(layer, args, make)                                                                         \
    TENSOR_API nn_module_t *nn_##layer##_with(args##_args_t a) {                                             \
        return nn__stamp(a.site_, NN__TAKE(#layer, args, a) ? make : NULL);                                  \
    }
#define NN__OWN_LAYER(layer, set, make) NN__FILL_DEFAULTS(nn_##layer, set) NN__LAYER(layer, nn_##layer, make)
#define NN__LAYER_PER_DIMS(layer, args, make)                                                                \
    NN__LAYER(layer##1d, args, make(&a, 1))                                                                  \
    NN__LAYER(layer##2d, args, make(&a, 2))                                                                  \
    NN__LAYER(layer##3d, args, make(&a, 3))

// ---- inside a forward

// The tensor of slot k, NULL if the layer has fewer.
TENSOR__FN tensor_t *nn__tensor(const nn_module_t *m, int k) {
    return k < m->impl->nslots ? m->impl->slot[k].tensor : NULL;
}

// The tensor with that name, NULL if the layer has none.
TENSOR__FN tensor_t *nn__called(const nn_module_t *m, const char *name) {
    const nn__slot_t *s = nn__lookup(m->impl, name);
    return s ? s->tensor : NULL;
}

// The child with that name, NULL if there is none.
TENSOR__FN nn_module_t *nn__kid(const nn_module_t *m, const char *name) {
    const nn__slot_t *s = nn__lookup(m->impl, name);
    return s && s->child ? s->child->module : NULL;
}

// Begins a typed forward: m must be a layer of a kind first..last (ids), which are made by `makers`.
// -> 0 after raising
TENSOR__FN int nn__enter(const char *op, const char *makers, const nn_module_t *m, int first, int last) {
    if (!nn__usable(m)) {
        if (nn__open_module(m) && tensor_error_code() == TENSOR_OK) {
            NN__FAIL(m->code, "%s: module %s failed when it was made", op, m->name);
        } else {
            nn__unusable(op, "the module", m);
        }
        return 0;
    }
    if (!m->impl->kind || m->impl->kind->id < first || m->impl->kind->id > last) {
        return NN__NO(TENSOR_ERR_UNSUPPORTED, "%s: the module is a %s, must be made by %s", op, m->name,
                      makers);
    }
    if (m->impl->key) { TENSOR__(push_path)(nn__self(), m->impl->key); }
    return 1;
}

// Ends one that opened no scope.
TENSOR__FN tensor_t *nn__leave_plain(const nn_module_t *m, tensor_t *y) {
    if (m->impl->key) { TENSOR__(pop_path)(nn__self()); }
    return y;
}

TENSOR__FN tensor_t *nn__leave(const nn_module_t *m, tensor_scope_t scope, tensor_t *y) {
    return nn__leave_plain(m, (tensor_scope_return)(scope, y));
}

// k n for a small k; if it would overflow, a size that no tensor can have.
TENSOR__FN int64_t nn__times(int64_t k, int64_t n) {
    return n > -(INT64_MAX / 8) && n < INT64_MAX / 8 ? k * n : INT64_MAX;
}

// ------------------------------------------------------------------------------
// >>layers-calls                                   MARK: activations, dropout
//
// Layers that are one call. The macros below define everything about one of them in a row: struct, fields,
// forward, kind, constructor. An option is INT (int64_t) or FLOAT (double). Rejected: structs and forwards by
// hand (thirty times the same ten lines).
// ------------------------------------------------------------------------------

#define NN__C_TYPE_INT int64_t
#define NN__C_TYPE_FLOAT double

// y = tensor_name(x).
#define NN__CALL_FORWARD(name)                                                                               \
    TENSOR__FN tensor_t *nn__forward_##name(nn_module_t *m, tensor_t *x) {                                   \
        (void)m;                                                                                             \
        return (tensor_##name)(x);                                                                           \
    }
#define NN__CALL_CONSTRUCTOR(ID, name)                                                                       \
    TENSOR_API nn_module_t *(nn_##name)(void) { return (nn_module_t *)nn__make(NN__KIND(ID)); }
#define NN__CALL_0(ID, name, printed, fields)                                                                \
    NN__CALL_FORWARD(name)                                                                                   \
    NN__PLAIN_KIND(ID, nn_module_t, printed, nn__forward_##name, fields)                                     \
    NN__CALL_CONSTRUCTOR(ID, name)

// y = tensor_name(x, option); `label` is the option's printed name.
#define NN__CALL_1(ID, name, printed, TYPE, label, option)                                                   \
    typedef struct nn__##name##_layer_t {                                                                    \
        nn_module_t base;                                                                                    \
        NN__C_TYPE_##TYPE option;                                                                            \
    } nn__##name##_layer_t;                                                                                  \
    static const nn__field_t nn__##name##_fields[] = {                                                       \
        {label, NN__OF(name, option), NN__##TYPE, NN__SHOWN, NULL}, NN__LAST};                               \
    TENSOR__FN tensor_t *nn__forward_##name(nn_module_t *m, tensor_t *x) {                                   \
        return (tensor_##name)(x, ((const nn__##name##_layer_t *)m)->option);                                \
    }                                                                                                        \
    NN__PLAIN_KIND(ID, nn__##name##_layer_t, printed, nn__forward_##name, nn__##name##_fields)               \
    TENSOR_API nn_module_t *(nn_##name)(NN__C_TYPE_##TYPE option) {                                          \
        nn__##name##_layer_t *l = (nn__##name##_layer_t *)nn__make(NN__KIND(ID));                            \
        if (!l) { return NULL; }                                                                             \
        l->option = option;                                                                                  \
        return &l->base;                                                                                     \
    }

// y = tensor_name(x, one, two), both FLOAT, printed with their names. In parts for a forward of another form.
#define NN__CALL_2_STRUCT(name, one, two)                                                                    \
    typedef struct nn__##name##_layer_t {                                                                    \
        nn_module_t base;                                                                                    \
        double one, two;                                                                                     \
    } nn__##name##_layer_t;                                                                                  \
    static const nn__field_t nn__##name##_fields[] = {                                                       \
        {#one, NN__OF(name, one), NN__FLOAT, NN__SHOWN, NULL},                                               \
        {#two, NN__OF(name, two), NN__FLOAT, NN__SHOWN, NULL},                                               \
        NN__LAST};
#define NN__CALL_2_CONSTRUCTOR(ID, name, one, two)                                                           \
    TENSOR_API nn_module_t *(nn_##name)(double one, double two) {                                            \
        nn__##name##_layer_t *l = (nn__##name##_layer_t *)nn__make(NN__KIND(ID));                            \
        if (!l) { return NULL; }                                                                             \
        l->one = one;                                                                                        \
        l->two = two;                                                                                        \
        return &l->base;                                                                                     \
    }
#define NN__CALL_2(ID, name, printed, one, two)                                                              \
    NN__CALL_2_STRUCT(name, one, two)                                                                        \
    TENSOR__FN tensor_t *nn__forward_##name(nn_module_t *m, tensor_t *x) {                                   \
        const nn__##name##_layer_t *l = (const nn__##name##_layer_t *)m;                                     \
        return (tensor_##name)(x, l->one, l->two);                                                           \
    }                                                                                                        \
    NN__PLAIN_KIND(ID, nn__##name##_layer_t, printed, nn__forward_##name, nn__##name##_fields)               \
    NN__CALL_2_CONSTRUCTOR(ID, name, one, two)

// clang-format off
NN__CALL_0(HARDSIGMOID, hardsigmoid, "Hardsigmoid", NULL)
NN__CALL_0(HARDSWISH,   hardswish,   "Hardswish",   NULL)
NN__CALL_0(LOGSIGMOID,  logsigmoid,  "LogSigmoid",  NULL)
NN__CALL_0(MISH,        mish,        "Mish",        NULL)
NN__CALL_0(RELU6,       relu6,       "ReLU6",       NULL)
NN__CALL_0(SELU,        selu,        "SELU",        NULL)
NN__CALL_0(SIGMOID,     sigmoid,     "Sigmoid",     NULL)
NN__CALL_0(SILU,        silu,        "SiLU",        NULL)
NN__CALL_0(SOFTSIGN,    softsign,    "Softsign",    NULL)
NN__CALL_0(TANH,        tanh,        "Tanh",        NULL)
NN__CALL_0(TANHSHRINK,  tanhshrink,  "Tanhshrink",  NULL)

NN__CALL_1(CELU,            celu,            "CELU",           FLOAT, "alpha",            alpha)
NN__CALL_1(ELU,             elu,             "ELU",            FLOAT, "alpha",            alpha)
NN__CALL_1(GLU,             glu,             "GLU",            INT,   "dim",              dim)
NN__CALL_1(HARDSHRINK,      hardshrink,      "Hardshrink",     FLOAT, "",                 lambd)
NN__CALL_1(LEAKY_RELU,      leaky_relu,      "LeakyReLU",      FLOAT, "negative_slope",   slope)
NN__CALL_1(LOG_SOFTMAX,     log_softmax,     "LogSoftmax",     INT,   "dim",              dim)
NN__CALL_1(PIXEL_SHUFFLE,   pixel_shuffle,   "PixelShuffle",   INT,   "upscale_factor",   factor)
NN__CALL_1(PIXEL_UNSHUFFLE, pixel_unshuffle, "PixelUnshuffle", INT,   "downscale_factor", factor)
NN__CALL_1(SOFTMAX,         softmax,         "Softmax",        INT,   "dim",              dim)
NN__CALL_1(SOFTMIN,         softmin,         "Softmin",        INT,   "dim",              dim)
NN__CALL_1(SOFTSHRINK,      softshrink,      "Softshrink",     FLOAT, "",                 lambd)

NN__CALL_2(HARDTANH,  hardtanh,  "Hardtanh",  min_val,   max_val)
NN__CALL_2(SOFTPLUS,  softplus,  "Softplus",  beta,      threshold)
NN__CALL_2(THRESHOLD, threshold, "Threshold", threshold, value)
// clang-format on

// ---- those that become one op with the linear before them in a sequential

static const nn__field_t nn__gelu_fields[] = {{"approximate='none'", 0, NN__NOTE, NN__SHOWN, NULL}, NN__LAST};
static const nn__field_t nn__gelu_tanh_fields[] = {{"approximate='tanh'", 0, NN__NOTE, NN__SHOWN, NULL},
                                                   NN__LAST};
static const nn__join_t nn__join_relu = {NN__LINEAR_ID, tensor_linear_relu};
static const nn__join_t nn__join_gelu_tanh = {NN__LINEAR_ID, tensor_linear_gelu_tanh};

NN__CALL_FORWARD(relu)
NN__SPECIAL_KIND(RELU, nn_module_t, "ReLU", nn__forward_relu, NULL, NULL, 0, 0, NN__RELU_ID, &nn__join_relu)
NN__CALL_CONSTRUCTOR(RELU, relu)

NN__CALL_0(GELU, gelu, "GELU", nn__gelu_fields)

NN__CALL_FORWARD(gelu_tanh)
NN__SPECIAL_KIND(GELU_TANH, nn_module_t, "GELU", nn__forward_gelu_tanh, nn__gelu_tanh_fields, NULL, 0, 0,
                 NN__ANY, &nn__join_gelu_tanh)
NN__CALL_CONSTRUCTOR(GELU_TANH, gelu_tanh)

// ---- rrelu: draws its slopes in training

NN__CALL_2_STRUCT(rrelu, lower, upper)

TENSOR__FN tensor_t *nn__forward_rrelu(nn_module_t *m, tensor_t *x) {
    const nn__rrelu_layer_t *l = (const nn__rrelu_layer_t *)m;
    return (tensor_rrelu)(x, l->lower, l->upper, m->training);
}

NN__PLAIN_KIND(RRELU, nn__rrelu_layer_t, "RReLU", nn__forward_rrelu, nn__rrelu_fields)
NN__CALL_2_CONSTRUCTOR(RRELU, rrelu, lower, upper)

// ---- prelu

typedef struct nn__prelu_layer_t {
    nn_module_t base;
    int64_t num_parameters;
} nn__prelu_layer_t;

static const nn__field_t nn__prelu_fields[] = {
    {"num_parameters", NN__OF(prelu, num_parameters), NN__INT, NN__SHOWN, NULL}, NN__LAST};

TENSOR__FN tensor_t *nn__forward_prelu(nn_module_t *m, tensor_t *x) {
    return (tensor_prelu)(x, nn__tensor(m, 0));
}

NN__PLAIN_KIND(PRELU, nn__prelu_layer_t, "PReLU", nn__forward_prelu, nn__prelu_fields)

TENSOR_API nn_module_t *(nn_prelu)(int64_t num_parameters, double init) {
    if (num_parameters < 1) { return nn__refuse("prelu", "num_parameters must be > 0", num_parameters); }
    nn__prelu_layer_t *l = (nn__prelu_layer_t *)nn__make(NN__KIND(PRELU));
    if (!l) { return NULL; }
    l->num_parameters = num_parameters;
    nn__add_parameter(&l->base, "weight", &num_parameters, 1, nn__start_constant, init);
    return nn__done(&l->base);
}

// ---- dropout

typedef struct nn__dropout_layer_t {
    nn_module_t base;
    double p;
} nn__dropout_layer_t;

static const nn__field_t nn__dropout_fields[] = {{"p", NN__OF(dropout, p), NN__FLOAT, NN__SHOWN, NULL},
                                                 {"inplace=False", 0, NN__NOTE, NN__SHOWN, NULL},
                                                 NN__LAST};

TENSOR__FN nn_module_t *nn__make_dropout(const nn__kind_t *kind, const char *op, double p) {
    if (!(p >= 0 && p <= 1)) { return nn__refuse_number(op, "p must be in 0..1", p); }
    nn__dropout_layer_t *l = (nn__dropout_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->p = p;
    return &l->base;
}

#define NN__DROPOUT(ID, name, printed)                                                                       \
    TENSOR__FN tensor_t *nn__forward_##name(nn_module_t *m, tensor_t *x) {                                   \
        return (tensor_##name)(x, ((const nn__dropout_layer_t *)m)->p, m->training);                         \
    }                                                                                                        \
    NN__PLAIN_KIND(ID, nn__dropout_layer_t, printed, nn__forward_##name, nn__dropout_fields)                 \
    TENSOR_API nn_module_t *(nn_##name)(double p) { return nn__make_dropout(NN__KIND(ID), #name, p); }
NN__DROPOUT(DROPOUT, dropout, "Dropout")
NN__DROPOUT(DROPOUT1D, dropout1d, "Dropout1d")
NN__DROPOUT(DROPOUT2D, dropout2d, "Dropout2d")
NN__DROPOUT(DROPOUT3D, dropout3d, "Dropout3d")
NN__DROPOUT(ALPHA_DROPOUT, alpha_dropout, "AlphaDropout")

// ---- flatten, identity

static const nn__field_t nn__flatten_fields[] = {{"start_dim=1, end_dim=-1", 0, NN__NOTE, NN__SHOWN, NULL},
                                                 NN__LAST};

TENSOR__FN tensor_t *nn__forward_flatten(nn_module_t *m, tensor_t *x) {
    (void)m;
    return (tensor_flatten)(x, 1, -1);
}

NN__PLAIN_KIND(FLATTEN, nn_module_t, "Flatten", nn__forward_flatten, nn__flatten_fields)
NN__CALL_CONSTRUCTOR(FLATTEN, flatten)

TENSOR__FN tensor_t *nn__forward_identity(nn_module_t *m, tensor_t *x) {
    (void)m;
    return x ? x : NN__FAIL(TENSOR_ERR_POISONED, "identity: x is NULL");
}

NN__PLAIN_KIND(IDENTITY, nn_module_t, "Identity", nn__forward_identity, NULL)
NN__CALL_CONSTRUCTOR(IDENTITY, identity)

// ------------------------------------------------------------------------------
// >>layers-linear                                  MARK: linear layers, embeddings
//
// Layers that are a table of weights: matrices and rows that are looked up.
// ------------------------------------------------------------------------------

// ---- linear

typedef struct nn__linear_layer_t {
    nn_module_t base;
    int64_t in_features, out_features;
    int bias;
} nn__linear_layer_t;

// clang-format off
static const nn__field_t nn__linear_fields[] = {
    {"in_features",  NN__OF(linear, in_features),  NN__INT,  NN__SHOWN, NULL},
    {"out_features", NN__OF(linear, out_features), NN__INT,  NN__SHOWN, NULL},
    {"bias",         NN__OF(linear, bias),         NN__BOOL, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_linear(nn_module_t *m, tensor_t *x) {
    return (tensor_linear)(x, nn__tensor(m, 0), nn__tensor(m, 1));
}

NN__KNOWN_KIND(LINEAR, nn__linear_layer_t, "Linear", nn__forward_linear, nn__linear_fields, NN__LINEAR_ID)

TENSOR__FN nn_module_t *nn__make_linear(nn_linear_args_t a) {
    if (a.in_features < 1) { return nn__refuse("linear", "in_features must be > 0", a.in_features); }
    if (a.out_features < 1) { return nn__refuse("linear", "out_features must be > 0", a.out_features); }
    nn__linear_layer_t *l = (nn__linear_layer_t *)nn__make(NN__KIND(LINEAR));
    if (!l) { return NULL; }
    l->in_features = a.in_features;
    l->out_features = a.out_features;
    l->bias = !a.no_bias;
    const int64_t dims[2] = {a.out_features, a.in_features};
    double bound = 1 / sqrt((double)a.in_features);
    nn__add_parameter(&l->base, "weight", dims, 2, nn__start_uniform, bound);
    if (l->bias) { nn__add_parameter(&l->base, "bias", dims, 1, nn__start_uniform, bound); }
    return nn__done(&l->base);
}

NN__OWN_LAYER(linear, , nn__make_linear(a))

// ---- bilinear: has no forward of one tensor

typedef struct nn__bilinear_layer_t {
    nn_module_t base;
    int64_t in1_features, in2_features, out_features;
    int bias;
} nn__bilinear_layer_t;

// clang-format off
static const nn__field_t nn__bilinear_fields[] = {
    {"in1_features", NN__OF(bilinear, in1_features), NN__INT,  NN__SHOWN, NULL},
    {"in2_features", NN__OF(bilinear, in2_features), NN__INT,  NN__SHOWN, NULL},
    {"out_features", NN__OF(bilinear, out_features), NN__INT,  NN__SHOWN, NULL},
    {"bias",         NN__OF(bilinear, bias),         NN__BOOL, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

NN__KNOWN_KIND(BILINEAR, nn__bilinear_layer_t, "Bilinear", NULL, nn__bilinear_fields, NN__BILINEAR_ID)

TENSOR_API nn_module_t *(nn_bilinear)(int64_t in1, int64_t in2, int64_t out, int no_bias) {
    if (in1 < 1) { return nn__refuse("bilinear", "in1 must be > 0", in1); }
    if (in2 < 1) { return nn__refuse("bilinear", "in2 must be > 0", in2); }
    if (out < 1) { return nn__refuse("bilinear", "out must be > 0", out); }
    nn__bilinear_layer_t *l = (nn__bilinear_layer_t *)nn__make(NN__KIND(BILINEAR));
    if (!l) { return NULL; }
    l->in1_features = in1;
    l->in2_features = in2;
    l->out_features = out;
    l->bias = !no_bias;
    const int64_t dims[3] = {out, in1, in2};
    double bound = 1 / sqrt((double)in1);
    nn__add_parameter(&l->base, "weight", dims, 3, nn__start_uniform, bound);
    if (l->bias) { nn__add_parameter(&l->base, "bias", dims, 1, nn__start_uniform, bound); }
    return nn__done(&l->base);
}

TENSOR_API tensor_t *(nn_bilinear_forward)(nn_module_t *m, tensor_t *x1, tensor_t *x2) {
    if (!nn__enter("bilinear_forward", "nn_bilinear", m, NN__BILINEAR_ID, NN__BILINEAR_ID)) {
        return TENSOR__(poison);
    }
    return nn__leave_plain(m, (tensor_bilinear)(x1, x2, nn__tensor(m, 0), nn__tensor(m, 1)));
}

// ---- embedding

typedef struct nn__embedding_layer_t {
    nn_module_t base;
    int64_t num_embeddings, embedding_dim, padding_idx;   // padding_idx: a row, -1 = none
    double max_norm, norm_type;                           // max_norm: 0 = any
    int scale_grad_by_freq, sparse;
} nn__embedding_layer_t;

// clang-format off
static const nn__field_t nn__embedding_fields[] = {
    {"",                   NN__OF(embedding, num_embeddings),     NN__INT,   NN__SHOWN, NULL},
    {"",                   NN__OF(embedding, embedding_dim),      NN__INT,   NN__SHOWN, NULL},
    {"padding_idx",        NN__OF(embedding, padding_idx),        NN__INT,   -1,         NULL},
    {"max_norm",           NN__OF(embedding, max_norm),           NN__FLOAT, 0,         NULL},
    {"norm_type",          NN__OF(embedding, norm_type),          NN__FLOAT, 2,          NULL},
    {"scale_grad_by_freq", NN__OF(embedding, scale_grad_by_freq), NN__BOOL,  0,          NULL},
    {"sparse",             NN__OF(embedding, sparse),             NN__BOOL,  0,          NULL},
    NN__LAST
};
// clang-format on

// A row (-1 = none) as tensor_embedding is given it.
TENSOR__FN int64_t nn__padding_option(int64_t row) {
    if (row < 0) { return 0; }
    return row == 0 ? TENSOR_ZERO : row;
}

TENSOR__FN tensor_t *nn__forward_embedding(nn_module_t *m, tensor_t *x) {
    const nn__embedding_layer_t *l = (const nn__embedding_layer_t *)m;
    return nn__embedding_front(x, nn__tensor(m, 0), nn__padding_option(l->padding_idx), l->max_norm,
                               l->norm_type, l->scale_grad_by_freq, l->sparse);
}

NN__PLAIN_KIND(EMBEDDING, nn__embedding_layer_t, "Embedding", nn__forward_embedding, nn__embedding_fields)

// Registers weight [rows, size], of which row `padding` (-1 = none) is zeros.
TENSOR__FN void nn__add_table(nn_module_t *m, int64_t rows, int64_t size, int64_t padding) {
    const int64_t dims[2] = {rows, size};
    nn__add_parameter(m, "weight", dims, 2, nn__start_normal, 1);
    if (padding < 0 || m->code != TENSOR_OK) { return; }
    tensor_scope_t scope = TENSOR__(scope)(0);
    TENSOR__(assign)((tensor_select)(nn__tensor(m, 0), 0, padding), 0);
    (tensor_scope_end)(scope);
}

// The row that padding_idx means. In a call 0 means none, TENSOR_ZERO row 0, and negative ones count from the
// end; in args that are taken literally negative ones mean none.
TENSOR__FN int64_t nn__padding_row(const nn_embedding_args_t *a) {
    if (!a->options_are_named_) { return a->padding_idx < 0 ? -1 : a->padding_idx; }
    if (a->padding_idx == TENSOR_ZERO) { return 0; }
    if (a->padding_idx == 0) { return -1; }
    return a->padding_idx < 0 ? a->padding_idx + a->count : a->padding_idx;
}

TENSOR__FN nn_module_t *nn__make_embedding(nn_embedding_args_t a) {
    if (a.count < 1) { return nn__refuse("embedding", "count must be > 0", a.count); }
    if (a.size < 1) { return nn__refuse("embedding", "size must be > 0", a.size); }
    int64_t padding = nn__padding_row(&a);
    if (padding < 0 && a.options_are_named_ && a.padding_idx != 0) {
        return NN__REFUSE("embedding: padding_idx %d must be at least -count %d", a.padding_idx, -a.count);
    }
    if (padding >= a.count) {
        return NN__REFUSE("embedding: padding_idx %d must be below count %d", padding, a.count);
    }
    nn__embedding_layer_t *l = (nn__embedding_layer_t *)nn__make(NN__KIND(EMBEDDING));
    if (!l) { return NULL; }
    l->num_embeddings = a.count;
    l->embedding_dim = a.size;
    l->padding_idx = padding;
    l->max_norm = a.max_norm > 0 ? a.max_norm : 0;
    l->norm_type = a.norm_type == 0 ? 2 : a.norm_type;
    l->scale_grad_by_freq = a.scale_grad_by_freq != 0;
    l->sparse = a.sparse != 0;
    nn__add_table(&l->base, a.count, a.size, padding);
    return nn__done(&l->base);
}

NN__OWN_LAYER(embedding, a->padding_idx = a->options_are_named_ ? a->padding_idx : -1;, nn__make_embedding(a))

// ---- embedding_bag

typedef struct nn__bag_layer_t {
    nn_module_t base;
    int64_t num_embeddings, embedding_dim, padding_idx;   // as nn__embedding_layer_t
    double max_norm, norm_type;
    int scale_grad_by_freq, sparse, mode;                 // mode: a tensor_bag_mode_t
} nn__bag_layer_t;

static const char *const nn__bag_modes[] = {"'mean'", "'sum'", "'max'"};

// clang-format off
static const nn__field_t nn__bag_fields[] = {
    {"",                   NN__OF(bag, num_embeddings),     NN__INT,   NN__SHOWN, NULL},
    {"",                   NN__OF(bag, embedding_dim),      NN__INT,   NN__SHOWN, NULL},
    {"max_norm",           NN__OF(bag, max_norm),           NN__FLOAT, 0,         NULL},
    {"norm_type",          NN__OF(bag, norm_type),          NN__FLOAT, 2,          NULL},
    {"scale_grad_by_freq", NN__OF(bag, scale_grad_by_freq), NN__BOOL,  0,          NULL},
    {"mode",               NN__OF(bag, mode),               NN__WORD,  NN__SHOWN, nn__bag_modes},
    {"padding_idx",        NN__OF(bag, padding_idx),        NN__INT,   -1,         NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_embedding_bag(nn_module_t *m, tensor_t *x) {
    const nn__bag_layer_t *l = (const nn__bag_layer_t *)m;
    tensor_embedding_bag_args_t a = tensor_embedding_bag_defaults();
    a.index = x;
    a.weight = nn__tensor(m, 0);
    a.mode = (tensor_bag_mode_t)l->mode;
    a.padding_idx = nn__padding_option(l->padding_idx);
    a.scale_grad_by_freq = l->scale_grad_by_freq;
    a.sparse = l->sparse;
    a.max_norm = l->max_norm;
    a.norm_type = l->norm_type;
    return (tensor_embedding_bag_with)(a);
}

NN__PLAIN_KIND(EMBEDDING_BAG, nn__bag_layer_t, "EmbeddingBag", nn__forward_embedding_bag, nn__bag_fields)

TENSOR__FN nn_module_t *nn__make_embedding_bag(nn_embedding_bag_args_t a) {
    if (a.count < 1) { return nn__refuse("embedding_bag", "count must be > 0", a.count); }
    if (a.size < 1) { return nn__refuse("embedding_bag", "size must be > 0", a.size); }
    if ((int)a.mode < 0 || a.mode > TENSOR_BAG_MAX) {
        return nn__refuse("embedding_bag", "mode must be a tensor_bag_mode_t", (int64_t)a.mode);
    }
    int64_t padding = a.padding_idx == TENSOR_ZERO ? 0 : a.padding_idx;
    if (padding >= a.count) {
        return NN__REFUSE("embedding_bag: padding_idx %d must be below count %d", padding, a.count);
    }
    if (padding < -a.count) {
        return NN__REFUSE("embedding_bag: padding_idx %d must be at least -count %d", padding, -a.count);
    }
    if (a.padding_idx == 0) {
        padding = -1;
    } else if (padding < 0) {
        padding += a.count;
    }
    nn__bag_layer_t *l = (nn__bag_layer_t *)nn__make(NN__KIND(EMBEDDING_BAG));
    if (!l) { return NULL; }
    l->num_embeddings = a.count;
    l->embedding_dim = a.size;
    l->padding_idx = padding;
    l->max_norm = a.max_norm > 0 ? a.max_norm : 0;
    l->norm_type = a.norm_type == 0 ? 2 : a.norm_type;
    l->scale_grad_by_freq = a.scale_grad_by_freq != 0;
    l->sparse = a.sparse != 0;
    l->mode = (int)a.mode;
    nn__add_table(&l->base, a.count, a.size, padding);
    return nn__done(&l->base);
}

NN__OWN_LAYER(embedding_bag, , nn__make_embedding_bag(a))

// ------------------------------------------------------------------------------
// >>layers-image                                   MARK: convolutions, pools, layers of images
//
// Layers with a window hold it as the front of their op takes it: the constructor reads all dims of it from
// the options. The kind says how many dims the images have. Rejected: a struct and a forward for each number
// of dims (three copies of one text).
// ------------------------------------------------------------------------------

// ---- convolutions

typedef struct nn__conv_layer_t {
    nn_module_t base;
    int64_t in_channels, out_channels;
    nn__window_t window;            // in: output_padding of a transposed one
    int bias, same, padding_mode;   // padding_mode: a tensor_pad_t
} nn__conv_layer_t;

static const char *const nn__same_words[] = {"", "same"};
static const char *const nn__padding_modes[] = {"zeros", "reflect", "replicate", "circular"};

// clang-format off
static const nn__field_t nn__conv_fields[] = {
    {"",             NN__OF(conv, in_channels),     NN__INT,   NN__SHOWN, NULL},
    {"",             NN__OF(conv, out_channels),    NN__INT,   NN__SHOWN, NULL},
    {"kernel_size",  NN__OF(conv, window.kernel),   NN__TUPLE, NN__SHOWN, NULL},
    {"stride",       NN__OF(conv, window.stride),   NN__TUPLE, NN__SHOWN, NULL},
    {"padding",      NN__OF(conv, window.pad),      NN__TUPLE, 0,         NULL},
    {"padding",      NN__OF(conv, same),            NN__WORD,  0,          nn__same_words},
    {"dilation",     NN__OF(conv, window.dilation), NN__TUPLE, 1,         NULL},
    {"groups",       NN__OF(conv, window.groups),   NN__INT,   1,          NULL},
    {"bias",         NN__OF(conv, bias),            NN__BOOL,  1,          NULL},
    {"padding_mode", NN__OF(conv, padding_mode),    NN__WORD,  0,          nn__padding_modes},
    NN__LAST
};

static const nn__field_t nn__conv_transpose_fields[] = {
    {"",               NN__OF(conv, in_channels),     NN__INT,   NN__SHOWN, NULL},
    {"",               NN__OF(conv, out_channels),    NN__INT,   NN__SHOWN, NULL},
    {"kernel_size",    NN__OF(conv, window.kernel),   NN__TUPLE, NN__SHOWN, NULL},
    {"stride",         NN__OF(conv, window.stride),   NN__TUPLE, NN__SHOWN, NULL},
    {"padding",        NN__OF(conv, window.pad),      NN__TUPLE, 0,         NULL},
    {"dilation",       NN__OF(conv, window.dilation), NN__TUPLE, 1,         NULL},
    {"output_padding", NN__OF(conv, window.in),       NN__TUPLE, 0,         NULL},
    {"groups",         NN__OF(conv, window.groups),   NN__INT,   1,          NULL},
    {"bias",           NN__OF(conv, bias),            NN__BOOL,  1,          NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_conv(nn_module_t *m, tensor_t *x) {
    const nn__conv_layer_t *l = (const nn__conv_layer_t *)m;
    nn__window_t g = l->window;
    int rank = nn__dims(m), same = l->same;
    if (l->padding_mode != TENSOR_PAD_CONSTANT) {
        int64_t pads[6];
        for (int d = 0; d < rank; d++) {
            int64_t span = g.dilation[2 - d] * (g.kernel[2 - d] - 1);
            pads[2 * d] = same ? span / 2 : g.pad[2 - d];
            pads[2 * d + 1] = same ? span - span / 2 : g.pad[2 - d];
            g.pad[2 - d] = 0;
        }
        x = (tensor_pad_n)(x, pads, 2 * rank, (tensor_pad_t)l->padding_mode, 0);
        same = 0;
    }
    return nn__conv_front(nn__conv_row(rank), x, nn__tensor(m, 0), nn__tensor(m, 1), g, same);
}

TENSOR__FN tensor_t *nn__forward_conv_transpose(nn_module_t *m, tensor_t *x) {
    const nn__conv_layer_t *l = (const nn__conv_layer_t *)m;
    return nn__conv_front(nn__conv_transpose_row(nn__dims(m)), x, nn__tensor(m, 0), nn__tensor(m, 1),
                          l->window, 0);
}

NN__KINDS(CONV, nn__conv_layer_t, "Conv", nn__forward_conv, nn__conv_fields, NN__ANY, NULL)
NN__KIND_BY_DIMS(conv, CONV)
NN__KINDS(CONV_TRANSPOSE, nn__conv_layer_t, "ConvTranspose", nn__forward_conv_transpose,
          nn__conv_transpose_fields, NN__ANY, NULL)
NN__KIND_BY_DIMS(conv_transpose, CONV_TRANSPOSE)

// A layer with the options of `like`. transposed: weight is [in, out / groups, ...].
TENSOR__FN nn_module_t *nn__make_conv(const char *op, const nn__kind_t *kind, const nn__conv_layer_t *like,
                                      int transposed) {
    const nn__window_t *g = &like->window;
    int64_t in = like->in_channels, out = like->out_channels, groups = g->groups;
    if (in < 1) { return nn__refuse(op, "in_channels must be > 0", in); }
    if (out < 1) { return nn__refuse(op, "out_channels must be > 0", out); }
    if (groups < 1) { return nn__refuse(op, "groups must be > 0", groups); }
    if (in % groups != 0) {
        return NN__REFUSE("%s: in_channels %d must be a multiple of groups %d", op, in, groups);
    }
    if (out % groups != 0) {
        return NN__REFUSE("%s: out_channels %d must be a multiple of groups %d", op, out, groups);
    }
    if (!nn__window_valid(op, kind->dims, g)) { return NULL; }
    if (like->padding_mode < 0 || like->padding_mode > TENSOR_PAD_CIRCULAR) {
        return nn__refuse(op, "padding_mode must be a tensor_pad_t", like->padding_mode);
    }
    for (int d = 0; d < 3; d++) {
        if (like->same && (g->stride[d] != 1 || g->pad[d] != 0)) {
            return NN__REFUSE("%s: same needs stride 1 and no padding (got stride %d, padding %d)", op,
                              g->stride[d], g->pad[d]);
        }
    }
    nn_module_t *m = (nn_module_t *)nn__make_like(kind, &like->base);
    if (!m) { return NULL; }
    int64_t dims[5];
    dims[0] = transposed ? in : out;
    dims[1] = (transposed ? out : in) / groups;
    double fan = (double)dims[1];
    for (int d = 0; d < kind->dims; d++) {
        dims[2 + d] = g->kernel[3 - kind->dims + d];
        fan *= (double)dims[2 + d];
    }
    nn__add_parameter(m, "weight", dims, kind->dims + 2, nn__start_uniform, 1 / sqrt(fan));
    if (like->bias) { nn__add_parameter(m, "bias", &out, 1, nn__start_uniform, 1 / sqrt(fan)); }
    return nn__done(m);
}

TENSOR__FN nn_module_t *nn__conv_new(const nn_conv_args_t *a, int rank) {
    const char *op = nn__conv_row(rank)->name;
    nn__conv_layer_t l;
    memset((void *)&l, 0, sizeof l);
    l.in_channels = a->in_channels;
    l.out_channels = a->out_channels;
    l.window = nn__window_unit();
    l.bias = !a->no_bias;
    l.same = a->same != 0;
    l.padding_mode = (int)a->padding_mode;
    if (!NN__TRIPLE(op, rank, a, kernel, l.window.kernel) || !NN__CONV_WINDOW(op, rank, a, &l.window)) {
        return NULL;
    }
    return nn__make_conv(op, nn__conv_kind(rank), &l, 0);
}

TENSOR__FN nn_module_t *nn__conv_transpose_new(const nn_conv_transpose_args_t *a, int rank) {
    const char *op = nn__conv_transpose_row(rank)->name;
    nn__conv_layer_t l;
    memset((void *)&l, 0, sizeof l);
    l.in_channels = a->in_channels;
    l.out_channels = a->out_channels;
    l.window = nn__window_unit();
    l.bias = !a->no_bias;
    if (!NN__TRIPLE(op, rank, a, kernel, l.window.kernel) || !NN__CONV_WINDOW(op, rank, a, &l.window) ||
        !NN__TRIPLE(op, rank, a, output_padding, l.window.in)) {
        return NULL;
    }
    return nn__make_conv(op, nn__conv_transpose_kind(rank), &l, 1);
}

NN__FILL_DEFAULTS(nn_conv, NN__CONV_SET NN__OR_DIMS(kernel, 0))
NN__FILL_DEFAULTS(nn_conv_transpose, NN__CONV_SET NN__OR_DIMS(kernel, 0) NN__OR_DIMS(output_padding, 0))
NN__LAYER_PER_DIMS(conv, nn_conv, nn__conv_new)
NN__LAYER_PER_DIMS(conv_transpose, nn_conv_transpose, nn__conv_transpose_new)

// ---- pools

typedef struct nn__pool_layer_t {
    nn_module_t base;
    nn__window_t window;   // mode: NN__COUNT_PAD ..; out: the size of an adaptive one's result
    int ceil_mode;
} nn__pool_layer_t;

// clang-format off
static const nn__field_t nn__max_pool_fields[] = {
    {"kernel_size", NN__OF(pool, window.kernel),   NN__SIZES, NN__SHOWN, NULL},
    {"stride",      NN__OF(pool, window.stride),   NN__SIZES, NN__SHOWN, NULL},
    {"padding",     NN__OF(pool, window.pad),      NN__SIZES, NN__SHOWN, NULL},
    {"dilation",    NN__OF(pool, window.dilation), NN__SIZES, NN__SHOWN, NULL},
    {"ceil_mode",   NN__OF(pool, ceil_mode),       NN__BOOL,  NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__avg_pool_fields[] = {
    {"kernel_size", NN__OF(pool, window.kernel), NN__SIZES, NN__SHOWN, NULL},
    {"stride",      NN__OF(pool, window.stride), NN__SIZES, NN__SHOWN, NULL},
    {"padding",     NN__OF(pool, window.pad),    NN__SIZES, NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__pool_tuples[] = {   // AvgPool1d, MaxUnpool
    {"kernel_size", NN__OF(pool, window.kernel), NN__TUPLE, NN__SHOWN, NULL},
    {"stride",      NN__OF(pool, window.stride), NN__TUPLE, NN__SHOWN, NULL},
    {"padding",     NN__OF(pool, window.pad),    NN__TUPLE, NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__adaptive_fields[] = {
    {"output_size", NN__OF(pool, window.out), NN__SIZES, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_max_pool(nn_module_t *m, tensor_t *x) {
    const nn__pool_layer_t *l = (const nn__pool_layer_t *)m;
    return nn__pool_front(nn__max_pool_row(nn__dims(m)), nn__dims(m), x, l->window, l->ceil_mode, NULL);
}

TENSOR__FN tensor_t *nn__forward_avg_pool(nn_module_t *m, tensor_t *x) {
    const nn__pool_layer_t *l = (const nn__pool_layer_t *)m;
    return nn__pool_front(nn__avg_pool_row(nn__dims(m)), nn__dims(m), x, l->window, l->ceil_mode, NULL);
}

// In a sequential a max pool runs before the relu that it follows, see nn__pair.
static const nn__join_t nn__join_max_pool = {NN__RELU_ID, NULL};

NN__KINDS(MAX_POOL, nn__pool_layer_t, "MaxPool", nn__forward_max_pool, nn__max_pool_fields, NN__ANY,
          &nn__join_max_pool)
NN__KIND_BY_DIMS(max_pool, MAX_POOL)
NN__IMAGE_KIND(AVG_POOL1D, nn__pool_layer_t, "AvgPool1d", nn__forward_avg_pool, nn__pool_tuples, 1)
NN__IMAGE_KIND(AVG_POOL2D, nn__pool_layer_t, "AvgPool2d", nn__forward_avg_pool, nn__avg_pool_fields, 2)
NN__IMAGE_KIND(AVG_POOL3D, nn__pool_layer_t, "AvgPool3d", nn__forward_avg_pool, nn__avg_pool_fields, 3)
NN__KIND_BY_DIMS(avg_pool, AVG_POOL)
NN__KINDS(MAX_UNPOOL, nn__pool_layer_t, "MaxUnpool", NULL, nn__pool_tuples, NN__MAX_UNPOOL_ID, NULL)
NN__KIND_BY_DIMS(max_unpool, MAX_UNPOOL)
NN__KINDS(ADAPTIVE_AVG_POOL, nn__pool_layer_t, "AdaptiveAvgPool", nn__forward_avg_pool,
          nn__adaptive_fields, NN__ANY, NULL)
NN__KINDS(ADAPTIVE_MAX_POOL, nn__pool_layer_t, "AdaptiveMaxPool", nn__forward_max_pool,
          nn__adaptive_fields, NN__ANY, NULL)

// mode: of the window. divisor: 0 = the window's size. dilates: whether there is a dilation.
TENSOR__FN nn_module_t *nn__make_pool(const nn_pool_args_t *a, const char *op, const nn__kind_t *kind,
                                      int mode, int64_t divisor, int dilates) {
    nn__pool_layer_t l;
    memset((void *)&l, 0, sizeof l);
    nn__window_t *g = &l.window;
    *g = nn__window_unit();
    g->mode = mode;
    g->divisor = divisor;
    l.ceil_mode = a->ceil_mode != 0;
    if (!NN__POOL_WINDOW(op, kind->dims, a, g) || !NN__TRIPLE(op, kind->dims, a, dilation, g->dilation) ||
        !nn__window_valid(op, kind->dims, g)) {
        return NULL;
    }
    for (int d = 0; d < 3; d++) {
        if (2 * g->pad[d] > g->kernel[d]) {
            return NN__REFUSE("%s: padding %d must be at most half the kernel %d", op, g->pad[d],
                              g->kernel[d]);
        }
        if (!dilates && g->dilation[d] != 1) {
            return NN__REFUSE("%s: dilation %d must be 1: only max pools have one", op, g->dilation[d]);
        }
    }
    return (nn_module_t *)nn__make_like(kind, &l.base);
}

TENSOR__FN nn_module_t *nn__max_pool_new(const nn_pool_args_t *a, int rank) {
    return nn__make_pool(a, nn__max_pool_row(rank)->name, nn__max_pool_kind(rank), NN__COUNT_PAD, 0, 1);
}

TENSOR__FN nn_module_t *nn__avg_pool_new(const nn_pool_args_t *a, int rank) {
    return nn__make_pool(a, nn__avg_pool_row(rank)->name, nn__avg_pool_kind(rank),
                         a->exclude_pad ? NN__NO_COUNT_PAD : NN__COUNT_PAD, a->divisor_override, 0);
}

TENSOR__FN nn_module_t *nn__max_unpool_new(const nn_pool_args_t *a, int rank) {
    return nn__make_pool(a, nn__max_unpool_row(rank)->name, nn__max_unpool_kind(rank), NN__COUNT_PAD, 0, 0);
}

NN__FILL_DEFAULTS(nn_pool, NN__POOL_SET NN__OR_DIMS(dilation, 1))
NN__LAYER_PER_DIMS(max_pool, nn_pool, nn__max_pool_new)
NN__LAYER_PER_DIMS(avg_pool, nn_pool, nn__avg_pool_new)
NN__LAYER_PER_DIMS(max_unpool, nn_pool, nn__max_unpool_new)

TENSOR_API tensor_t *(nn_max_unpool_forward)(nn_module_t *m, tensor_t *x, tensor_t *indices,
                                             const int64_t *size) {
    if (!nn__enter("max_unpool_forward", "nn_max_unpool", m, NN__MAX_UNPOOL_ID, NN__MAX_UNPOOL_ID)) {
        return TENSOR__(poison);
    }
    nn__window_t g = ((const nn__pool_layer_t *)m)->window;
    size_t rank = (size_t)nn__dims(m);
    if (size) { memcpy(g.in + 3 - rank, size, rank * sizeof size[0]); }
    tensor_t *y = nn__max_unpool_front(nn__max_unpool_row((int)rank), x, indices, g, size != NULL);
    return nn__leave_plain(m, y);
}

TENSOR__FN nn_module_t *nn__make_adaptive(const nn__kind_t *kind, int64_t d, int64_t h, int64_t w) {
    nn__pool_layer_t l;
    memset((void *)&l, 0, sizeof l);
    l.window = nn__adaptive(d, h, w);
    return (nn_module_t *)nn__make_like(kind, &l.base);
}

TENSOR_API nn_module_t *(nn_adaptive_avg_pool1d)(int64_t l) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_AVG_POOL1D), 1, 1, l);
}

TENSOR_API nn_module_t *(nn_adaptive_avg_pool2d)(int64_t h, int64_t w) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_AVG_POOL2D), 1, h, w);
}

TENSOR_API nn_module_t *(nn_adaptive_avg_pool3d)(int64_t d, int64_t h, int64_t w) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_AVG_POOL3D), d, h, w);
}

TENSOR_API nn_module_t *(nn_adaptive_max_pool1d)(int64_t l) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_MAX_POOL1D), 1, 1, l);
}

TENSOR_API nn_module_t *(nn_adaptive_max_pool2d)(int64_t h, int64_t w) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_MAX_POOL2D), 1, h, w);
}

TENSOR_API nn_module_t *(nn_adaptive_max_pool3d)(int64_t d, int64_t h, int64_t w) {
    return nn__make_adaptive(NN__KIND(ADAPTIVE_MAX_POOL3D), d, h, w);
}

// ---- lp pool

typedef struct nn__lp_pool_layer_t {
    nn_module_t base;
    double norm_type;
    int64_t kernel_size, stride;   // stride: negative = the kernel's size
    int ceil_mode;
} nn__lp_pool_layer_t;

// clang-format off
static const nn__field_t nn__lp_pool_fields[] = {
    {"norm_type",   NN__OF(lp_pool, norm_type),   NN__FLOAT, NN__SHOWN, NULL},
    {"kernel_size", NN__OF(lp_pool, kernel_size), NN__INT,   NN__SHOWN, NULL},
    {"stride",      NN__OF(lp_pool, stride),      NN__SIZE,  NN__SHOWN, NULL},
    {"ceil_mode",   NN__OF(lp_pool, ceil_mode),   NN__BOOL,  NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_lp_pool(nn_module_t *m, tensor_t *x) {
    const nn__lp_pool_layer_t *l = (const nn__lp_pool_layer_t *)m;
    int64_t stride = l->stride < 0 ? l->kernel_size : l->stride;
    return nn__lp_pool(x, nn__dims(m), l->norm_type, l->kernel_size, stride, l->ceil_mode);
}

NN__KINDS(LP_POOL, nn__lp_pool_layer_t, "LPPool", nn__forward_lp_pool, nn__lp_pool_fields, NN__ANY, NULL)

TENSOR__FN nn_module_t *nn__make_lp_pool(const nn__kind_t *kind, const char *op, double norm, int64_t kernel,
                                         int64_t stride, int ceil) {
    if (kernel < 1) { return nn__refuse(op, "kernel must be > 0", kernel); }
    if (stride < 0) { return nn__refuse(op, "stride must be >= 0", stride); }
    if (norm == 0 || norm != norm) { return nn__refuse(op, "norm must not be 0", 0); }
    nn__lp_pool_layer_t *l = (nn__lp_pool_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->norm_type = norm;
    l->kernel_size = kernel;
    l->stride = stride ? stride : -1;
    l->ceil_mode = ceil != 0;
    return &l->base;
}

TENSOR_API nn_module_t *(nn_lp_pool1d)(double norm, int64_t kernel, int64_t stride, int ceil) {
    return nn__make_lp_pool(NN__KIND(LP_POOL1D), "lp_pool1d", norm, kernel, stride, ceil);
}

TENSOR_API nn_module_t *(nn_lp_pool2d)(double norm, int64_t kernel, int64_t stride, int ceil) {
    return nn__make_lp_pool(NN__KIND(LP_POOL2D), "lp_pool2d", norm, kernel, stride, ceil);
}

TENSOR_API nn_module_t *(nn_lp_pool3d)(double norm, int64_t kernel, int64_t stride, int ceil) {
    return nn__make_lp_pool(NN__KIND(LP_POOL3D), "lp_pool3d", norm, kernel, stride, ceil);
}

// ---- upsample: the numbers that PyTorch prints depend on which were given, so it prints itself

typedef struct nn__upsample_layer_t {
    nn_module_t base;
    int64_t size[3];          // of the first dim, of the second of three, of the last; 0 = that of the first
    double scale_factor[3];   // the same; either the sizes or the factors are all 0
    int mode, align_corners;  // mode: a tensor_interpolation_t
} nn__upsample_layer_t;

static const char *const nn__upsample_modes[] = {"nearest", "nearest",  "nearest-exact", "linear",
                                                 "bilinear", "bicubic", "trilinear",     "area"};

TENSOR__FN void nn__print_upsample(const nn_module_t *m, tensor__text_t *t) {
    const nn__upsample_layer_t *l = (const nn__upsample_layer_t *)m;
    int sized = l->size[0] > 0, given = 1;
    for (int d = 1; d < 3; d++) { given += sized ? l->size[d] > 0 : l->scale_factor[d] > 0; }
    NN__PUT(t, sized ? "size=" : "scale_factor=");
    if (given > 1) { NN__PUT(t, "("); }
    for (int d = 0; d < 3; d++) {
        if (sized ? l->size[d] <= 0 : !(l->scale_factor[d] > 0)) { continue; }
        if (d) { NN__PUT(t, ", "); }
        if (sized) {
            NN__PUT(t, "%d", l->size[d]);
        } else {
            nn__put_float(t, l->scale_factor[d]);
        }
    }
    if (given > 1) { NN__PUT(t, ")"); }
    NN__PUT(t, ", mode='%s'", nn__upsample_modes[l->mode]);
}

TENSOR__FN tensor_t *nn__forward_upsample(nn_module_t *m, tensor_t *x) {
    const nn__upsample_layer_t *l = (const nn__upsample_layer_t *)m;
    return nn__interpolate_front(x, l->size, l->scale_factor, l->mode, l->align_corners, 0);
}

NN__SPECIAL_KIND(UPSAMPLE, nn__upsample_layer_t, "Upsample", nn__forward_upsample, NULL, nn__print_upsample,
                 0, 0, NN__ANY, NULL)

TENSOR__FN nn_module_t *nn__make_upsample(nn_upsample_args_t a) {
    if ((a.size > 0) == (a.scale_factor > 0)) {
        return NN__REFUSE("upsample: size %d, scale_factor %g: just one of them must be positive", a.size,
                          a.scale_factor);
    }
    if ((int)a.mode < 0 || a.mode > TENSOR_AREA) {
        return nn__refuse("upsample", "mode must be a tensor_interpolation_t", (int64_t)a.mode);
    }
    nn__upsample_layer_t *l = (nn__upsample_layer_t *)nn__make(NN__KIND(UPSAMPLE));
    if (!l) { return NULL; }
    l->size[0] = a.size;
    l->size[1] = a.size_h;
    l->size[2] = a.size_w;
    l->scale_factor[0] = a.scale_factor;
    l->scale_factor[1] = a.scale_factor_h;
    l->scale_factor[2] = a.scale_factor_w;
    l->mode = (int)a.mode;
    l->align_corners = a.align_corners != 0;
    return &l->base;
}

NN__OWN_LAYER(upsample, , nn__make_upsample(a))

// ---- pads

typedef struct nn__pad_layer_t {
    nn_module_t base;
    nn__list_t padding;   // before and after the last dim, then the one before it, ..
    double value;
    int mode;             // a tensor_pad_t
} nn__pad_layer_t;

// clang-format off
static const nn__field_t nn__constant_pad_fields[] = {
    {"padding", NN__OF(pad, padding), NN__LIST,  NN__SHOWN, NULL},
    {"value",   NN__OF(pad, value),   NN__FLOAT, NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__pad_fields[] = {
    {"", NN__OF(pad, padding), NN__LIST, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_pad(nn_module_t *m, tensor_t *x) {
    const nn__pad_layer_t *l = (const nn__pad_layer_t *)m;
    return (tensor_pad_n)(x, l->padding.v, (int)l->padding.n, (tensor_pad_t)l->mode, l->value);
}

#define NN__PAD_KINDS(family, ID, name, fields)                                                              \
    NN__KINDS(ID, nn__pad_layer_t, name, nn__forward_pad, fields, NN__ANY, NULL)                             \
    NN__KIND_BY_DIMS(family, ID)
NN__PAD_KINDS(constant_pad, CONSTANT_PAD, "ConstantPad", nn__constant_pad_fields)
NN__PAD_KINDS(reflection_pad, REFLECTION_PAD, "ReflectionPad", nn__pad_fields)
NN__PAD_KINDS(replication_pad, REPLICATION_PAD, "ReplicationPad", nn__pad_fields)
NN__PAD_KINDS(circular_pad, CIRCULAR_PAD, "CircularPad", nn__pad_fields)
#undef NN__PAD_KINDS
NN__IMAGE_KIND(ZERO_PAD2D, nn__pad_layer_t, "ZeroPad2d", nn__forward_pad, nn__pad_fields, 2)

TENSOR__FN nn_module_t *nn__make_pad(const nn__kind_t *kind, const int64_t *pads, int n, tensor_pad_t mode,
                                     double value) {
    nn__pad_layer_t *l = (nn__pad_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->padding.n = n;
    if (n) { memcpy(l->padding.v, pads, (size_t)n * sizeof pads[0]); }
    l->value = value;
    l->mode = (int)mode;
    return &l->base;
}

TENSOR_API nn_module_t *(nn_pad_n)(const int64_t *pads, int n, tensor_pad_t mode, double value) {
    if (n < 0 || n > 6 || n % 2 != 0 || (n > 0 && !pads)) {
        return nn__refuse("pad", "at most 6 numbers, two for each dim, are needed", n);
    }
    int dims = n == 0 ? 1 : n / 2;
    switch (mode) {
    case TENSOR_PAD_CONSTANT: return nn__make_pad(nn__constant_pad_kind(dims), pads, n, mode, value);
    case TENSOR_PAD_REFLECT: return nn__make_pad(nn__reflection_pad_kind(dims), pads, n, mode, value);
    case TENSOR_PAD_REPLICATE: return nn__make_pad(nn__replication_pad_kind(dims), pads, n, mode, value);
    case TENSOR_PAD_CIRCULAR: return nn__make_pad(nn__circular_pad_kind(dims), pads, n, mode, value);
    default: return nn__refuse("pad", "mode must be a tensor_pad_t", (int64_t)mode);
    }
}

// Both ends of the kind's dims padded by `by`.
TENSOR__FN nn_module_t *nn__make_even_pad(const nn__kind_t *kind, int64_t by, tensor_pad_t mode,
                                          double value) {
    const int64_t pads[6] = {by, by, by, by, by, by};
    return nn__make_pad(kind, pads, 2 * kind->dims, mode, value);
}

TENSOR_API nn_module_t *(nn_zero_pad2d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(ZERO_PAD2D), by, TENSOR_PAD_CONSTANT, 0);
}

TENSOR_API nn_module_t *(nn_constant_pad2d)(int64_t by, double value) {
    return nn__make_even_pad(NN__KIND(CONSTANT_PAD2D), by, TENSOR_PAD_CONSTANT, value);
}

TENSOR_API nn_module_t *(nn_reflection_pad2d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(REFLECTION_PAD2D), by, TENSOR_PAD_REFLECT, 0);
}

TENSOR_API nn_module_t *(nn_replication_pad2d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(REPLICATION_PAD2D), by, TENSOR_PAD_REPLICATE, 0);
}

TENSOR_API nn_module_t *(nn_circular_pad1d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(CIRCULAR_PAD1D), by, TENSOR_PAD_CIRCULAR, 0);
}

TENSOR_API nn_module_t *(nn_circular_pad2d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(CIRCULAR_PAD2D), by, TENSOR_PAD_CIRCULAR, 0);
}

TENSOR_API nn_module_t *(nn_circular_pad3d)(int64_t by) {
    return nn__make_even_pad(NN__KIND(CIRCULAR_PAD3D), by, TENSOR_PAD_CIRCULAR, 0);
}

// ---- unfold, fold

typedef struct nn__columns_layer_t {
    nn_module_t base;
    nn__window_t window;   // in: the size of fold's images
} nn__columns_layer_t;

// clang-format off
static const nn__field_t nn__unfold_fields[] = {
    {"kernel_size", NN__OF(columns, window.kernel),   NN__SIZES, NN__SHOWN, NULL},
    {"dilation",    NN__OF(columns, window.dilation), NN__SIZES, NN__SHOWN, NULL},
    {"padding",     NN__OF(columns, window.pad),      NN__SIZES, NN__SHOWN, NULL},
    {"stride",      NN__OF(columns, window.stride),   NN__SIZES, NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__fold_fields[] = {
    {"output_size", NN__OF(columns, window.in),       NN__SIZES, NN__SHOWN, NULL},
    {"kernel_size", NN__OF(columns, window.kernel),   NN__SIZES, NN__SHOWN, NULL},
    {"dilation",    NN__OF(columns, window.dilation), NN__SIZES, NN__SHOWN, NULL},
    {"padding",     NN__OF(columns, window.pad),      NN__SIZES, NN__SHOWN, NULL},
    {"stride",      NN__OF(columns, window.stride),   NN__SIZES, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_unfold(nn_module_t *m, tensor_t *x) {
    return nn__columns_front(NN__ROW(IM2COL), x, ((const nn__columns_layer_t *)m)->window);
}

TENSOR__FN tensor_t *nn__forward_fold(nn_module_t *m, tensor_t *x) {
    return nn__columns_front(NN__ROW(COL2IM), x, ((const nn__columns_layer_t *)m)->window);
}

NN__IMAGE_KIND(UNFOLD, nn__columns_layer_t, "Unfold", nn__forward_unfold, nn__unfold_fields, 2)
NN__IMAGE_KIND(FOLD, nn__columns_layer_t, "Fold", nn__forward_fold, nn__fold_fields, 2)

TENSOR__FN nn_module_t *nn__make_columns(const nn_columns_args_t *a, const char *op, const nn__kind_t *kind) {
    nn__columns_layer_t l;
    memset((void *)&l, 0, sizeof l);
    l.window = nn__window_unit();
    if (!NN__COLUMNS_WINDOW(op, a, &l.window) || !nn__window_valid(op, 2, &l.window)) { return NULL; }
    return (nn_module_t *)nn__make_like(kind, &l.base);
}

TENSOR__FN nn_module_t *nn__make_fold(const nn_columns_args_t *a) {
    if (a->height < 1) { return nn__refuse("fold", "height must be > 0", a->height); }
    return nn__make_columns(a, "fold", NN__KIND(FOLD));
}

NN__FILL_DEFAULTS(nn_columns, NN__COLUMNS_SET)
NN__LAYER(unfold, nn_columns, nn__make_columns(&a, "unfold", NN__KIND(UNFOLD)))
NN__LAYER(fold, nn_columns, nn__make_fold(&a))

// ------------------------------------------------------------------------------
// >>layers-norm                                    MARK: norms
//
// An option that PyTorch prints as None is a NaN here, so that a forward can tell it from every number.
// ------------------------------------------------------------------------------

// ---- layer norm, rms norm

typedef struct nn__layer_norm_layer_t {
    nn_module_t base;
    nn__list_t normalized_shape;    // one size
    double eps;                     // rms: NaN = the epsilon of x's dtype
    int affine, bias;
} nn__layer_norm_layer_t;

// clang-format off
static const nn__field_t nn__layer_norm_fields[] = {
    {"",                   NN__OF(layer_norm, normalized_shape), NN__LIST,  NN__SHOWN, NULL},
    {"eps",                NN__OF(layer_norm, eps),              NN__FLOAT, NN__SHOWN, NULL},
    {"elementwise_affine", NN__OF(layer_norm, affine),           NN__BOOL,  NN__SHOWN, NULL},
    {"bias",               NN__OF(layer_norm, bias),             NN__BOOL,  NN__SHOWN, NULL},
    NN__LAST
};

static const nn__field_t nn__rms_norm_fields[] = {
    {"",                   NN__OF(layer_norm, normalized_shape), NN__LIST,          NN__SHOWN, NULL},
    {"eps",                NN__OF(layer_norm, eps),              NN__FLOAT_OR_NONE, NN__SHOWN, NULL},
    {"elementwise_affine", NN__OF(layer_norm, affine),           NN__BOOL,          NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__normed(nn_module_t *m, tensor_t *x, const char *op, double eps, int rms) {
    int64_t size = ((const nn__layer_norm_layer_t *)m)->normalized_shape.v[0];
    if (x && !(tensor_is_poison)(x) && (x->ndim < 1 || x->dims[x->ndim - 1] != size)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must end in a dim of %d", op, x, size);
    }
    return nn__layer_norm_front(x, nn__tensor(m, 0), nn__tensor(m, 1), 1, eps, rms);
}

TENSOR__FN tensor_t *nn__forward_layer_norm(nn_module_t *m, tensor_t *x) {
    return nn__normed(m, x, "layer_norm", ((const nn__layer_norm_layer_t *)m)->eps, 0);
}

TENSOR__FN tensor_t *nn__forward_rms_norm(nn_module_t *m, tensor_t *x) {
    double eps = ((const nn__layer_norm_layer_t *)m)->eps;
    return nn__normed(m, x, "rms_norm", eps != eps ? -1 : eps, 1);
}

NN__PLAIN_KIND(LAYER_NORM, nn__layer_norm_layer_t, "LayerNorm", nn__forward_layer_norm, nn__layer_norm_fields)
NN__SCOPED_KIND(RMS_NORM, nn__layer_norm_layer_t, "RMSNorm", nn__forward_rms_norm, nn__rms_norm_fields,
                NN__ANY)

TENSOR__FN nn_module_t *nn__make_last_norm(const nn__kind_t *kind, int64_t size, double eps, int affine,
                                           int bias) {
    nn__layer_norm_layer_t *l = (nn__layer_norm_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->normalized_shape.n = 1;
    l->normalized_shape.v[0] = size;
    l->eps = eps;
    l->affine = affine;
    l->bias = bias;
    nn__add_affine(&l->base, size, affine, bias);
    return nn__done(&l->base);
}

TENSOR__FN nn_module_t *nn__make_layer_norm(nn_layer_norm_args_t a) {
    if (a.size < 1) { return nn__refuse("layer_norm", "size must be > 0", a.size); }
    return nn__make_last_norm(NN__KIND(LAYER_NORM), a.size, a.eps, !a.no_affine, !a.no_affine && !a.no_bias);
}

TENSOR__FN nn_module_t *nn__make_rms_norm(nn_rms_norm_args_t a) {
    if (a.size < 1) { return nn__refuse("rms_norm", "size must be > 0", a.size); }
    return nn__make_last_norm(NN__KIND(RMS_NORM), a.size, a.eps < 0 ? NAN : a.eps, !a.no_affine, 0);
}

NN__OWN_LAYER(layer_norm, NN__OR(eps, 1e-5), nn__make_layer_norm(a))
NN__OWN_LAYER(rms_norm, NN__OR(eps, -1), nn__make_rms_norm(a))

// ---- batch norm, instance norm

typedef struct nn__batch_norm_layer_t {
    nn_module_t base;
    int64_t num_features;
    double eps, momentum;       // momentum: NaN = the running statistics are the mean over all batches
    int affine, track_running_stats;
    int instance;
} nn__batch_norm_layer_t;

// clang-format off
static const nn__field_t nn__batch_norm_fields[] = {
    {"",                    NN__OF(batch_norm, num_features),        NN__INT,           NN__SHOWN, NULL},
    {"eps",                 NN__OF(batch_norm, eps),                 NN__FLOAT,         NN__SHOWN, NULL},
    {"momentum",            NN__OF(batch_norm, momentum),            NN__FLOAT_OR_NONE, NN__SHOWN, NULL},
    {"affine",              NN__OF(batch_norm, affine),              NN__BOOL,          NN__SHOWN, NULL},
    {"bias",                NN__OF(batch_norm, affine),              NN__BOOL,          NN__SHOWN, NULL},
    {"track_running_stats", NN__OF(batch_norm, track_running_stats), NN__BOOL,          NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_batch_norm(nn_module_t *m, tensor_t *x) {
    const nn__batch_norm_layer_t *l = (const nn__batch_norm_layer_t *)m;
    tensor_t *mean = nn__called(m, "running_mean"), *batches = nn__called(m, "num_batches_tracked");
    int most = nn__dims(m) + 2;
    int fewest = l->instance || nn__dims(m) == 1 ? most - 1 : most;
    int single = 0;             // an image without N
    if (x && !(tensor_is_poison)(x)) {
        single = l->instance && x->ndim == fewest;
        if (x->ndim < fewest || x->ndim > most || x->dims[!single] != l->num_features) {
            return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must have %i%s dims and %d channels",
                            l->instance ? "instance_norm" : "batch_norm", x, most,
                            fewest == most ? "" : " (or one less)", l->num_features);
        }
    }
    double momentum = l->momentum;
    if (momentum != momentum) {
        momentum = m->training && batches ? 1 / (double)((tensor_item_i64)(batches) + 1) : 0;
    }
    tensor_scope_t scope = TENSOR__(scope)(-1);
    tensor_t *y = nn__batch_norm(single ? (tensor_unsqueeze)(x, 0) : x, mean, nn__called(m, "running_var"),
                                 nn__called(m, "weight"), nn__called(m, "bias"), l->instance,
                                 m->training || !mean, momentum, l->eps);
    y = (tensor_scope_return)(scope, single ? (tensor_squeeze)(y, 0) : y);
    if (m->training && batches && !l->instance && !(tensor_is_poison)(y)) {
        (tensor_add_scalar_)(batches, 1);
    }
    return y;
}

NN__KINDS(BATCH_NORM, nn__batch_norm_layer_t, "BatchNorm", nn__forward_batch_norm, nn__batch_norm_fields,
          NN__ANY, NULL)
NN__KIND_BY_DIMS(batch_norm, BATCH_NORM)
NN__KINDS(INSTANCE_NORM, nn__batch_norm_layer_t, "InstanceNorm", nn__forward_batch_norm,
          nn__batch_norm_fields, NN__ANY, NULL)
NN__KIND_BY_DIMS(instance_norm, INSTANCE_NORM)

TENSOR__FN nn_module_t *nn__make_batch_norm(const nn__kind_t *kind, const nn_batch_norm_args_t *a,
                                            int instance) {
    if (a->channels < 1) {
        return nn__refuse(instance ? "instance_norm" : "batch_norm", "channels must be > 0", a->channels);
    }
    nn__batch_norm_layer_t *l = (nn__batch_norm_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->num_features = a->channels;
    l->eps = a->eps;
    l->momentum = a->cumulative ? NAN : a->momentum;
    l->affine = !a->no_affine;
    l->track_running_stats = !a->no_track_running_stats;
    l->instance = instance;
    nn__add_affine(&l->base, a->channels, l->affine, l->affine);
    if (l->track_running_stats) {
        nn__add_buffer(&l->base, "running_mean", a->channels, 0, TENSOR_F32);
        nn__add_buffer(&l->base, "running_var", a->channels, 1, TENSOR_F32);
        nn__add_buffer(&l->base, "num_batches_tracked", -1, 0, TENSOR_I64);
    }
    return nn__done(&l->base);
}

TENSOR__FN nn_module_t *nn__batch_norm_new(const nn_batch_norm_args_t *a, int dims) {
    return nn__make_batch_norm(nn__batch_norm_kind(dims), a, 0);
}

TENSOR__FN nn_module_t *nn__instance_norm_new(const nn_instance_norm_args_t *a, int dims) {
    nn_batch_norm_args_t b = nn_batch_norm_defaults();
    b.channels = a->channels;
    b.eps = a->eps;
    b.momentum = a->momentum;
    b.no_affine = !a->affine;
    b.no_track_running_stats = !a->track_running_stats;
    return nn__make_batch_norm(nn__instance_norm_kind(dims), &b, 1);
}

NN__FILL_DEFAULTS(nn_batch_norm, NN__OR(eps, 1e-5) NN__OR(momentum, 0.1))
NN__FILL_DEFAULTS(nn_instance_norm, NN__OR(eps, 1e-5) NN__OR(momentum, 0.1))
NN__LAYER_PER_DIMS(batch_norm, nn_batch_norm, nn__batch_norm_new)
NN__LAYER_PER_DIMS(instance_norm, nn_instance_norm, nn__instance_norm_new)

// ---- group norm

typedef struct nn__group_norm_layer_t {
    nn_module_t base;
    int64_t num_groups, num_channels;
    double eps;
    int affine;
} nn__group_norm_layer_t;

// clang-format off
static const nn__field_t nn__group_norm_fields[] = {
    {"",       NN__OF(group_norm, num_groups),   NN__INT,   NN__SHOWN, NULL},
    {"",       NN__OF(group_norm, num_channels), NN__INT,   NN__SHOWN, NULL},
    {"eps",    NN__OF(group_norm, eps),          NN__FLOAT, NN__SHOWN, NULL},
    {"affine", NN__OF(group_norm, affine),       NN__BOOL,  NN__SHOWN, NULL},
    {"bias",   NN__OF(group_norm, affine),       NN__BOOL,  NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_group_norm(nn_module_t *m, tensor_t *x) {
    const nn__group_norm_layer_t *l = (const nn__group_norm_layer_t *)m;
    if (x && !(tensor_is_poison)(x) && (x->ndim < 2 || x->dims[1] != l->num_channels)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "group_norm: x %t must be [N, %d, ...]", x, l->num_channels);
    }
    return nn__group_norm(x, l->num_groups, nn__tensor(m, 0), nn__tensor(m, 1), l->eps);
}

NN__SCOPED_KIND(GROUP_NORM, nn__group_norm_layer_t, "GroupNorm", nn__forward_group_norm,
                nn__group_norm_fields, NN__ANY)

TENSOR__FN nn_module_t *nn__make_group_norm(nn_group_norm_args_t a) {
    if (a.groups < 1) { return nn__refuse("group_norm", "groups must be > 0", a.groups); }
    if (a.channels < 1 || a.channels % a.groups != 0) {
        return NN__REFUSE("group_norm: channels %d must be a positive multiple of groups %d", a.channels,
                          a.groups);
    }
    nn__group_norm_layer_t *l = (nn__group_norm_layer_t *)nn__make(NN__KIND(GROUP_NORM));
    if (!l) { return NULL; }
    l->num_groups = a.groups;
    l->num_channels = a.channels;
    l->eps = a.eps;
    l->affine = !a.no_affine;
    nn__add_affine(&l->base, a.channels, l->affine, l->affine);
    return nn__done(&l->base);
}

NN__OWN_LAYER(group_norm, NN__OR(eps, 1e-5), nn__make_group_norm(a))

// ---- local response norm

typedef struct nn__response_layer_t {
    nn_module_t base;
    int64_t size;
    double alpha, beta, k;
} nn__response_layer_t;

// clang-format off
static const nn__field_t nn__response_fields[] = {
    {"",      NN__OF(response, size),  NN__INT,   NN__SHOWN, NULL},
    {"alpha", NN__OF(response, alpha), NN__FLOAT, NN__SHOWN, NULL},
    {"beta",  NN__OF(response, beta),  NN__FLOAT, NN__SHOWN, NULL},
    {"k",     NN__OF(response, k),     NN__FLOAT, NN__SHOWN, NULL},
    NN__LAST
};
// clang-format on

TENSOR__FN tensor_t *nn__forward_local_response_norm(nn_module_t *m, tensor_t *x) {
    const nn__response_layer_t *l = (const nn__response_layer_t *)m;
    return nn__local_response_norm(x, l->size, l->alpha, l->beta, l->k);
}

NN__SCOPED_KIND(LOCAL_RESPONSE_NORM, nn__response_layer_t, "LocalResponseNorm",
                nn__forward_local_response_norm, nn__response_fields, NN__ANY)

TENSOR__FN nn_module_t *nn__make_local_response_norm(nn_local_response_norm_args_t a) {
    if (a.size < 1) { return nn__refuse("local_response_norm", "size must be > 0", a.size); }
    nn__response_layer_t *l = (nn__response_layer_t *)nn__make(NN__KIND(LOCAL_RESPONSE_NORM));
    if (!l) { return NULL; }
    l->size = a.size;
    l->alpha = a.alpha;
    l->beta = a.beta;
    l->k = a.k;
    return &l->base;
}

NN__OWN_LAYER(local_response_norm, NN__OR(alpha, 1e-4) NN__OR(beta, 0.75) NN__OR(k, 1),
              nn__make_local_response_norm(a))

// ------------------------------------------------------------------------------
// >>layers-recurrent                               MARK: recurrent nets and cells
//
// One struct, forward and constructor for nets and cells. The slots are the list of weights that the ops
// take. Rejected: a struct for cells (all but two options are the same).
// ------------------------------------------------------------------------------

typedef struct nn__rnn_layer_t {
    nn_module_t base;
    int64_t input_size, hidden_size, num_layers, proj_size;
    double dropout;
    int bias, batch_first, bidirectional, relu;
    int net, cell;      // net: NN__TANH_NET ..
} nn__rnn_layer_t;

static const char *const nn__nonlinearities[] = {"tanh", "relu"};

// clang-format off
static const nn__field_t nn__rnn_fields[] = {
    {"",              NN__OF(rnn, input_size),    NN__INT,   NN__SHOWN, NULL},
    {"",              NN__OF(rnn, hidden_size),   NN__INT,   NN__SHOWN, NULL},
    {"proj_size",     NN__OF(rnn, proj_size),     NN__INT,   0,          NULL},
    {"num_layers",    NN__OF(rnn, num_layers),    NN__INT,   1,          NULL},
    {"bias",          NN__OF(rnn, bias),          NN__BOOL,  1,          NULL},
    {"batch_first",   NN__OF(rnn, batch_first),   NN__BOOL,  0,          NULL},
    {"dropout",       NN__OF(rnn, dropout),       NN__FLOAT, 0,         NULL},
    {"bidirectional", NN__OF(rnn, bidirectional), NN__BOOL,  0,          NULL},
    NN__LAST
};

static const nn__field_t nn__cell_fields[] = {
    {"",             NN__OF(rnn, input_size),  NN__INT,   NN__SHOWN, NULL},
    {"",             NN__OF(rnn, hidden_size), NN__INT,   NN__SHOWN, NULL},
    {"bias",         NN__OF(rnn, bias),        NN__BOOL,  1,          NULL},
    {"batch_first",  NN__OF(rnn, batch_first), NN__BOOL,  0,          NULL},
    {"dropout",      NN__OF(rnn, dropout),     NN__FLOAT, 0,         NULL},
    {"nonlinearity", NN__OF(rnn, relu),        NN__WORD,  0,          nn__nonlinearities},
    NN__LAST
};
// clang-format on

// h, c: NULL, or the state, which is replaced.
TENSOR__FN tensor_t *nn__forward_state(nn_module_t *m, tensor_t *x, tensor_t **h, tensor_t **c) {
    static const char *const ops[2][4] = {{"rnn", "rnn", "lstm", "gru"},
                                          {"rnn_cell", "rnn_cell", "lstm_cell", "gru_cell"}};
    const nn__rnn_layer_t *l = (const nn__rnn_layer_t *)m;
    const char *op = ops[l->cell][l->net];
    int n = m->impl->nslots;
    if (x && !(tensor_is_poison)(x) && x->ndim > 0 && x->dims[x->ndim - 1] != l->input_size) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: x %t must end in a dim of %d", op, x, l->input_size);
    }
    nn__state_scope_t b = nn__state_begin(l->net);
    tensor_t **w = (tensor_t **)nn__lent((uint64_t)n + 2, sizeof *w);
    tensor_state_t s = nn__no_state();
    if (w) {
        w[n] = w[n + 1] = NULL;
        for (int k = 0; k < n; k++) { w[k] = m->impl->slot[k].tensor; }
        tensor_rnn_args_t a = tensor_rnn_defaults();
        a.x = x;
        a.weights = w;
        a.h = h ? *h : NULL;
        a.c = c ? *c : NULL;
        a.layers = l->num_layers;
        a.no_bias = !l->bias;
        a.batch_first = l->batch_first;
        a.bidirectional = l->bidirectional;
        a.proj_size = l->proj_size;
        a.dropout = l->dropout;
        a.training = m->training;
        s = l->cell ? nn__cell(op, l->net, x, a.h, a.c, w) : nn__net(op, l->net, &a, 0);
    }
    s = nn__state_end(&b, s, NULL);
    if (s.y == TENSOR__(poison)) { return s.y; }
    if (h && (tensor_set)(h, s.h) != TENSOR_OK) { return TENSOR__(poison); }
    if (c && s.c && (tensor_set)(c, s.c) != TENSOR_OK) { return TENSOR__(poison); }
    if (!h) { (tensor_free)(s.h); }
    if (!c) { (tensor_free)(s.c); }
    return s.y;
}

TENSOR__FN tensor_t *nn__forward_recurrent(nn_module_t *m, tensor_t *x) {
    return nn__forward_state(m, x, NULL, NULL);
}

#define NN__RNN_KIND(ID, name, fields, id)                                                                   \
    NN__KNOWN_KIND(ID, nn__rnn_layer_t, name, nn__forward_recurrent, fields, id)
NN__RNN_KIND(RNN, "RNN", nn__rnn_fields, NN__RNN_ID)
NN__RNN_KIND(LSTM, "LSTM", nn__rnn_fields, NN__LSTM_ID)
NN__RNN_KIND(GRU, "GRU", nn__rnn_fields, NN__GRU_ID)
NN__RNN_KIND(RNN_CELL, "RNNCell", nn__cell_fields, NN__RNN_ID)
NN__RNN_KIND(LSTM_CELL, "LSTMCell", nn__cell_fields, NN__LSTM_ID)
NN__RNN_KIND(GRU_CELL, "GRUCell", nn__cell_fields, NN__GRU_ID)
#undef NN__RNN_KIND

// Registers the weights of one layer and direction; `in` features come from the layer before it.
TENSOR__FN void nn__add_gates(nn__rnn_layer_t *l, int64_t layer, int reverse, int64_t in) {
    static const char *const names[5] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"};
    int64_t gates = nn__times(nn__net_gates(l->net), l->hidden_size);
    int64_t size = l->proj_size > 0 ? l->proj_size : l->hidden_size;
    const int64_t dims[5][2] = {{gates, in}, {gates, size}, {gates, 0}, {gates, 0}, {size, l->hidden_size}};
    for (int k = 0; k < 5; k++) {
        int bias = k == 2 || k == 3;
        if ((bias && !l->bias) || (k == 4 && l->proj_size == 0)) { continue; }
        char name[64];
        tensor__text_t t = nn__text(name, sizeof name);
        NN__PUT(&t, "%s", names[k]);
        if (!l->cell) { NN__PUT(&t, reverse ? "_l%d_reverse" : "_l%d", layer); }
        nn__add_parameter(&l->base, name, dims[k], bias ? 1 : 2, nn__start_uniform,
                          1 / sqrt((double)l->hidden_size));
    }
}

TENSOR__FN nn_module_t *nn__make_recurrent(nn_rnn_args_t a, const char *op, const nn__kind_t *kind, int net,
                                           int cell) {
    int dirs = a.bidirectional ? 2 : 1;
    if (a.in_features < 1) { return nn__refuse(op, "in_features must be > 0", a.in_features); }
    if (a.hidden < 1) { return nn__refuse(op, "hidden must be > 0", a.hidden); }
    if (a.layers < 1 || a.layers > NN__LAYERS) {
        return nn__refuse(op, "layers must be in 1..65535", a.layers);
    }
    if (a.proj_size < 0 || (a.proj_size > 0 && (net != NN__LSTM_NET || cell || a.proj_size >= a.hidden))) {
        return NN__REFUSE("%s: proj_size %d must be 0, or in lstm less than hidden %d", op, a.proj_size,
                          a.hidden);
    }
    if (!(a.dropout >= 0 && a.dropout <= 1)) {
        return nn__refuse_number(op, "dropout must be in 0..1", a.dropout);
    }
    if (cell && a.layers > 1) { return nn__refuse(op, "layers must be 1 for a cell", a.layers); }
    if (cell && dirs > 1) { return nn__refuse(op, "bidirectional must be 0 for a cell", a.bidirectional); }
    nn__rnn_layer_t *l = (nn__rnn_layer_t *)nn__make(kind);
    if (!l) { return NULL; }
    l->input_size = a.in_features;
    l->hidden_size = a.hidden;
    l->num_layers = a.layers;
    l->proj_size = a.proj_size;
    l->dropout = a.dropout;
    l->bias = !a.no_bias;
    l->batch_first = a.batch_first != 0;
    l->bidirectional = dirs == 2;
    l->relu = net == NN__RELU_NET;
    l->net = net;
    l->cell = cell;
    int64_t in = a.in_features;
    for (int64_t layer = 0; layer < a.layers; layer++) {
        for (int d = 0; d < dirs; d++) { nn__add_gates(l, layer, d, in); }
        in = nn__times(dirs, a.proj_size > 0 ? a.proj_size : a.hidden);
    }
    return nn__done(&l->base);
}

NN__FILL_DEFAULTS(nn_rnn, NN__RNN_SET)
NN__LAYER(lstm, nn_rnn, nn__make_recurrent(a, "lstm", NN__KIND(LSTM), NN__LSTM_NET, 0))
NN__LAYER(gru, nn_rnn, nn__make_recurrent(a, "gru", NN__KIND(GRU), NN__GRU_NET, 0))
NN__LAYER(rnn, nn_rnn,
          nn__make_recurrent(a, "rnn", NN__KIND(RNN), a.relu ? NN__RELU_NET : NN__TANH_NET, 0))
NN__LAYER(lstm_cell, nn_rnn, nn__make_recurrent(a, "lstm_cell", NN__KIND(LSTM_CELL), NN__LSTM_NET, 1))
NN__LAYER(gru_cell, nn_rnn, nn__make_recurrent(a, "gru_cell", NN__KIND(GRU_CELL), NN__GRU_NET, 1))
NN__LAYER(rnn_cell, nn_rnn,
          nn__make_recurrent(a, "rnn_cell", NN__KIND(RNN_CELL), a.relu ? NN__RELU_NET : NN__TANH_NET, 1))

// id: of the net and of its cell.
TENSOR__FN tensor_t *nn__state_forward(const char *op, const char *makers, nn_module_t *m, int id,
                                       tensor_t *x, tensor_t **h, tensor_t **c) {
    if (!nn__enter(op, makers, m, id, id)) { return TENSOR__(poison); }
    return nn__leave_plain(m, nn__forward_state(m, x, h, c));
}

TENSOR_API tensor_t *(nn_lstm_forward)(nn_module_t *m, tensor_t *x, tensor_t **h, tensor_t **c) {
    return nn__state_forward("lstm_forward", "nn_lstm or nn_lstm_cell", m, NN__LSTM_ID, x, h, c);
}

TENSOR_API tensor_t *(nn_gru_forward)(nn_module_t *m, tensor_t *x, tensor_t **h) {
    return nn__state_forward("gru_forward", "nn_gru or nn_gru_cell", m, NN__GRU_ID, x, h, NULL);
}

TENSOR_API tensor_t *(nn_rnn_forward)(nn_module_t *m, tensor_t *x, tensor_t **h) {
    return nn__state_forward("rnn_forward", "nn_rnn or nn_rnn_cell", m, NN__RNN_ID, x, h, NULL);
}

// ------------------------------------------------------------------------------
// >>layers-attention                               MARK: attention, Transformer
//
// nn_multihead_attention and the layers that are made of it. The layers of a Transformer are children, which
// print and copy themselves. Rejected: a struct of options for them (their children have these).
// ------------------------------------------------------------------------------

typedef struct nn__attention_layer_t {
    nn_module_t base;
    int64_t embed_dim, num_heads, kdim, vdim;
    double dropout;
    int batch_first, add_zero_attn;
} nn__attention_layer_t;

// [T, N, E] or [T, E] (first: N first) -> [N, T, E]; its own inverse with the same x->ndim.
TENSOR__FN tensor_t *nn__batch_first(tensor_t *x, int ndim, int first) {
    if (ndim == 2) { return x->ndim == 2 ? (tensor_unsqueeze)(x, 0) : (tensor_squeeze)(x, 0); }
    return first ? x : (tensor_transpose)(x, 0, 1);
}

// Adds one key that every query sees to a mask [..., S].
TENSOR__FN tensor_t *nn__longer_mask(tensor_t *mask) {
    if (!mask) { return mask; }
    int64_t dims[TENSOR_MAX_DIMS];
    memcpy(dims, mask->dims, (size_t)mask->ndim * sizeof dims[0]);
    dims[mask->ndim - 1] = 1;
    tensor_t *list[2];
    list[0] = mask;
    list[1] = nn__like(dims, mask->ndim, 0, mask);
    return (tensor_cat_n)(list, 2, -1);
}

static const char *const nn__qkv[3] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
static const char *const nn__norms[3] = {"norm1", "norm2", "norm3"};
static const char *const nn__drops[3] = {"dropout1", "dropout2", "dropout3"};

TENSOR__FN tensor_t *nn__attend(nn_module_t *m, const nn_attention_args_t *a) {
    static const char op[] = "multihead_attention";
    static const char *const extra[2] = {"bias_k", "bias_v"};
    const nn__attention_layer_t *l = (const nn__attention_layer_t *)m;
    const int64_t features[3] = {l->embed_dim, l->kdim, l->vdim};
    tensor_t *in[5] = {a->query, a->key, a->value, a->attn_mask, a->key_padding_mask};
    tensor_t *w = nn__called(m, "in_proj_weight"), *b = nn__called(m, "in_proj_bias"), *mask = in[3];
    int64_t embed = l->embed_dim, heads = l->num_heads;
    double scale = 1 / sqrt((double)(embed / heads)), drop = m->training ? l->dropout : 0;
    if (!nn__inputs(op, "query key value attn_mask key_padding_mask", 3, in, 5, 7)) {
        return TENSOR__(poison);
    }
    int nd = in[0]->ndim;
    for (int k = 0; k < 3; k++) {
        if (in[k]->ndim != nd || nd < 2 || nd > 3 || in[k]->dims[nd - 1] != features[k]) {
            return NN__FAIL(TENSOR_ERR_SHAPE,
                            "%s: query %t, key %t, value %t must be [T, N, %d], "
                            "[S, N, %d], [S, N, %d], or all without N",
                            op, in[0], in[1], in[2], embed, l->kdim, l->vdim);
        }
    }
    tensor_t *q[3];
    for (int k = 0; k < 3; k++) { q[k] = nn__batch_first(in[k], nd, l->batch_first); }
    int64_t n = q[0]->dims[0];
    int64_t t = q[0]->dims[1];
    int64_t s = q[1]->dims[1];
    if (q[1]->dims[0] != n || q[2]->dims[0] != n || q[2]->dims[1] != s) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "%s: query %t, key %t, value %t must have the same N, key and value the same S%s", op,
                        in[0], in[1], in[2], l->batch_first ? " (batch_first: [N, S, ...])" : "");
    }
    if (in[4] && nd == 2 && in[4]->ndim == 1) { in[4] = (tensor_unsqueeze)(in[4], 0); }
    if (in[4] && (in[4]->ndim != 2 || in[4]->dims[0] != n || in[4]->dims[1] != s)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: key_padding_mask %t must be [%d, %d]", op, in[4], n, s);
    }
    if (mask && (mask->ndim < 2 || mask->ndim > 3 || mask->dims[mask->ndim - 2] != t ||
                 mask->dims[mask->ndim - 1] != s || (mask->ndim == 3 && mask->dims[0] != n * heads))) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "%s: attn_mask %t must be [%d, %d] or [%d, %d, %d]", op, mask, t, s,
                        n * heads, t, s);
    }
    for (int k = 3; k < 5; k++) {
        if (in[k] && in[k]->dtype != TENSOR_BOOL && in[k]->dtype != in[0]->dtype) {
            return NN__FAIL(TENSOR_ERR_DTYPE, "%s: %s is %y, must be bool or %y as query", op,
                            k == 3 ? "attn_mask" : "key_padding_mask", in[k], in[0]);
        }
    }
    if (a->is_causal && !mask) {
        const int64_t square[2] = {t, s};
        mask = (tensor_tril)(nn__beside((tensor_ones_n)(square, 2, TENSOR_BOOL), in[0]), 0);
        mask = (tensor_logical_not)(mask);
    }
    tensor_t *y;
    if (w && in[0] == in[1] && in[1] == in[2]) {
        y = (tensor_linear)(q[0], w, b);
        for (int k = 0; k < 3; k++) { q[k] = (tensor_narrow)(y, 2, k * embed, embed); }
    } else {
        for (int k = 0; k < 3; k++) {
            q[k] =
                (tensor_linear)(q[k], w ? (tensor_narrow)(w, 0, k * embed, embed) : nn__called(m, nn__qkv[k]),
                                b ? (tensor_narrow)(b, 0, k * embed, embed) : NULL);
        }
    }
    int64_t dims[3];
    dims[0] = n;
    dims[1] = 1;
    dims[2] = embed;
    tensor_t *list[2];
    for (int zeros = 0; zeros < 2; zeros++) {   // one more key and value: bias_k and bias_v, then zeros
        if (zeros ? !l->add_zero_attn : !nn__called(m, extra[0])) { continue; }
        for (int k = 0; k < 2; k++) {
            list[0] = q[1 + k];
            list[1] = zeros ? nn__like(dims, 3, 0, in[0])
                            : (tensor_expand_n)(nn__called(m, extra[k]), dims, 3);
            q[1 + k] = (tensor_cat_n)(list, 2, 1);
        }
        mask = nn__longer_mask(mask);
        in[4] = nn__longer_mask(in[4]);
    }
    for (int k = 0; k < 3; k++) {
        if ((tensor_is_poison)(q[k])) { return q[k]; }
        q[k] = (tensor_transpose)(nn__as(q[k], 4, n, q[k]->dims[1], heads, embed / heads), 1, 2);
    }
    if (mask && mask->ndim == 3) { mask = nn__as(mask, 4, n, heads, t, q[1]->dims[2]); }
    if (in[4]) {
        tensor_t *pad = (tensor_unsqueeze)((tensor_unsqueeze)(in[4], 1), 1);
        if (!mask) {
            mask = pad;
        } else if (mask->dtype == TENSOR_BOOL && pad->dtype == TENSOR_BOOL) {
            mask = (tensor_logical_or)(mask, pad);
        } else {
            for (int k = 0; k < 2; k++) {
                tensor_t **f = k ? &mask : &pad;
                if ((*f)->dtype == TENSOR_BOOL) {
                    *f = (tensor_masked_fill)(nn__like((*f)->dims, (*f)->ndim, 0, in[0]), *f, -INFINITY);
                }
            }
            mask = (tensor_add)(mask, pad);
        }
    }
    if (mask && mask->dtype == TENSOR_BOOL) { mask = (tensor_logical_not)(mask); }
    if (a->weights) {
        y = nn__attention_composed(nn__wide(q[0]), nn__wide(q[1]), nn__wide(q[2]), nn__wide(mask), 0, scale,
                                   drop, &list[0]);
        y = nn__narrow(y, in[0]);
        if (!a->every_head) { list[0] = (tensor_mean_dim)(list[0], 1, 0); }
        list[0] = nn__narrow(nd == 2 ? (tensor_squeeze)(list[0], 0) : list[0], in[0]);
        (tensor_set)(a->weights, list[0]);
    } else {
        tensor_scaled_dot_product_attention_args_t c = tensor_scaled_dot_product_attention_defaults();
        c.query = q[0];
        c.key = q[1];
        c.value = q[2];
        c.attn_mask = mask;
        c.dropout_p = drop;
        y = (tensor_scaled_dot_product_attention_with)(c);
    }
    y = (nn_forward)(nn__kid(m, "out_proj"), nn__as((tensor_transpose)(y, 1, 2), 3, n, t, embed, 0));
    return (tensor_is_poison)(y) ? y : nn__batch_first(y, nd, l->batch_first);
}

TENSOR__FN tensor_t *nn__forward_attention(nn_module_t *m, tensor_t *x) {
    nn_attention_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.query = a.key = a.value = x;
    return nn__attend(m, &a);
}

NN__SCOPED_KIND(ATTENTION, nn__attention_layer_t, "MultiheadAttention", nn__forward_attention, NULL,
                NN__ATTENTION_ID)

TENSOR__FN nn_module_t *nn__make_attention(nn_multihead_attention_args_t a) {
    if (a.embed < 1) { return nn__refuse("multihead_attention", "embed must be > 0", a.embed); }
    if (a.heads < 1 || a.embed % a.heads != 0) {
        return NN__REFUSE("multihead_attention: heads %d must divide embed %d", a.heads, a.embed);
    }
    if (a.kdim < 0) { return nn__refuse("multihead_attention", "kdim must be >= 0", a.kdim); }
    if (a.vdim < 0) { return nn__refuse("multihead_attention", "vdim must be >= 0", a.vdim); }
    if (!(a.dropout >= 0 && a.dropout <= 1)) {
        return nn__refuse_number("multihead_attention", "dropout must be in 0..1", a.dropout);
    }
    nn__attention_layer_t *l = (nn__attention_layer_t *)nn__make(NN__KIND(ATTENTION));
    if (!l) { return NULL; }
    nn_module_t *m = &l->base;
    l->embed_dim = a.embed;
    l->num_heads = a.heads;
    l->kdim = a.kdim ? a.kdim : a.embed;
    l->vdim = a.vdim ? a.vdim : a.embed;
    l->dropout = a.dropout;
    l->batch_first = a.batch_first != 0;
    l->add_zero_attn = a.add_zero_attn != 0;
    const int64_t features[3] = {a.embed, l->kdim, l->vdim};
    double e = (double)a.embed;
    int64_t dims[3];
    dims[0] = nn__times(3, a.embed);
    dims[1] = a.embed;
    if (l->kdim == a.embed && l->vdim == a.embed) {
        nn__add_parameter(m, "in_proj_weight", dims, 2, nn__start_uniform, sqrt(6 / (4 * e)));
    } else {
        for (int k = 0; k < 3; k++) {
            dims[0] = a.embed;
            dims[1] = features[k];
            nn__add_parameter(m, nn__qkv[k], dims, 2, nn__start_uniform, sqrt(6 / (e + (double)dims[1])));
        }
    }
    dims[0] = nn__times(3, a.embed);
    if (!a.no_bias) { nn__add_parameter(m, "in_proj_bias", dims, 1, nn__start_zeros, 0); }
    nn_linear_args_t out = nn_linear_defaults();
    out.in_features = out.out_features = a.embed;
    out.no_bias = a.no_bias;
    (nn_child)(m, "out_proj", (nn_linear_with)(out));
    if (!a.no_bias && m->code == TENSOR_OK) {
        tensor_scope_t scope = TENSOR__(scope)(0);
        TENSOR__(assign)(nn__called(nn__kid(m, "out_proj"), "bias"), 0);
        (tensor_scope_end)(scope);
    }
    dims[0] = dims[1] = 1;
    dims[2] = a.embed;
    if (a.add_bias_kv) {
        nn__add_parameter(m, "bias_k", dims, 3, nn__start_normal, 1 / sqrt(e));
        nn__add_parameter(m, "bias_v", dims, 3, nn__start_normal, 1 / sqrt(e));
    }
    return nn__done(m);
}

NN__OWN_LAYER(multihead_attention, NN__OR(dropout, 0), nn__make_attention(a))

TENSOR_API tensor_t *nn_multihead_attention_forward_with(nn_attention_args_t a) {
    tensor_t *y = TENSOR__(poison), *w = NULL, **out = a.weights;
    if (nn__too_many("multihead_attention", a.site_, a.options_are_named_)) { return tensor__at(a.site_, y); }
    if (out) { w = *out = (tensor_scalar)(0, TENSOR_F32); }  // it gets a slot in the caller's scope
    a.weights = out ? &w : NULL;
    if (nn__enter("multihead_attention", "nn_multihead_attention", a.module, NN__ATTENTION_ID,
                  NN__ATTENTION_ID)) {
        tensor_scope_t scope = TENSOR__(scope)(-1);
        y = nn__leave(a.module, scope, nn__attend(a.module, &a));
    }
    if (out) {
        *out = (tensor_is_poison)(y) ? y : w;
        if (w != *out) { (tensor_free)(w); }
    }
    return tensor__at(a.site_, y);
}

// ---- layers of a Transformer

typedef struct nn__transformer_layer_t {
    nn_module_t base;
    int norm_first, gelu;
} nn__transformer_layer_t;

TENSOR__FN tensor_t *nn__layer_attend(nn_module_t *m, const char *name, const char *drop, tensor_t *x,
                                      tensor_t *memory, tensor_t *mask, tensor_t *padding, int causal) {
    nn_attention_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.module = nn__kid(m, name);
    a.query = x;
    a.key = a.value = memory;
    a.attn_mask = mask;
    a.key_padding_mask = padding;
    a.is_causal = causal;
    return (nn_forward)(nn__kid(m, drop), nn_multihead_attention_forward_with(a));
}

TENSOR__FN tensor_t *nn__transformer_layer(nn_module_t *m, const nn_transformer_args_t *a, tensor_t *x) {
    const nn__transformer_layer_t *l = (const nn__transformer_layer_t *)m;
    int decoder = m->impl->kind->id == NN__DECODER_LAYER_ID;
    int blocks = decoder ? 3 : 2;
    if (decoder && !a->memory) {
        return NN__FAIL(TENSOR_ERR_OWNER, "transformer_decoder_layer: memory is NULL; a decoder needs "
                                          "nn_transformer_forward(m, x, memory)");
    }
    for (int k = 0; k < blocks; k++) {
        nn_module_t *norm = nn__kid(m, nn__norms[k]);
        tensor_t *y = l->norm_first ? (nn_forward)(norm, x) : x;
        if (k == 0) {
            y = nn__layer_attend(m, "self_attn", nn__drops[k], y, y, a->mask, a->key_padding_mask,
                                 a->is_causal);
        } else if (k == 1 && decoder) {
            y = nn__layer_attend(m, "multihead_attn", nn__drops[k], y, a->memory, a->memory_mask,
                                 a->memory_key_padding_mask, 0);
        } else {
            y = (nn_forward)(nn__kid(m, "linear1"), y);
            y = (nn_forward)(nn__kid(m, "dropout"), l->gelu ? (tensor_gelu)(y) : (tensor_relu)(y));
            y = (nn_forward)(nn__kid(m, nn__drops[k]), (nn_forward)(nn__kid(m, "linear2"), y));
        }
        x = (tensor_add)(x, y);
        if (!l->norm_first) { x = (nn_forward)(norm, x); }
    }
    return x;
}

TENSOR__FN tensor_t *nn__forward_transformer_layer(nn_module_t *m, tensor_t *x) {
    nn_transformer_args_t a;
    memset((void *)&a, 0, sizeof a);
    return nn__transformer_layer(m, &a, x);
}

NN__SCOPED_KIND(ENCODER_LAYER, nn__transformer_layer_t, "TransformerEncoderLayer",
                nn__forward_transformer_layer, NULL, NN__ENCODER_LAYER_ID)
NN__SCOPED_KIND(DECODER_LAYER, nn__transformer_layer_t, "TransformerDecoderLayer",
                nn__forward_transformer_layer, NULL, NN__DECODER_LAYER_ID)

TENSOR__FN nn_module_t *nn__make_transformer_layer(nn_transformer_layer_args_t a, int decoder) {
    const char *op = decoder ? "transformer_decoder_layer" : "transformer_encoder_layer";
    if (a.embed < 1) { return nn__refuse(op, "embed must be > 0", a.embed); }
    if (a.heads < 1 || a.embed % a.heads != 0) {
        return NN__REFUSE("%s: heads %d must divide embed %d", op, a.heads, a.embed);
    }
    if (a.feedforward < 1) { return nn__refuse(op, "feedforward must be > 0", a.feedforward); }
    if (!(a.dropout >= 0 && a.dropout <= 1)) {
        return nn__refuse_number(op, "dropout must be in 0..1", a.dropout);
    }
    nn__transformer_layer_t *l =
        (nn__transformer_layer_t *)nn__make(decoder ? NN__KIND(DECODER_LAYER) : NN__KIND(ENCODER_LAYER));
    if (!l) { return NULL; }
    nn_module_t *m = &l->base;
    l->norm_first = a.norm_first != 0;
    l->gelu = a.gelu != 0;
    nn_multihead_attention_args_t attention = nn_multihead_attention_defaults();
    nn_linear_args_t linear = nn_linear_defaults();
    nn_layer_norm_args_t norm = nn_layer_norm_defaults();
    attention.embed = a.embed;
    attention.heads = a.heads;
    attention.dropout = a.dropout;
    attention.batch_first = a.batch_first;
    attention.no_bias = linear.no_bias = norm.no_bias = a.no_bias;
    (nn_child)(m, "self_attn", (nn_multihead_attention_with)(attention));
    if (decoder) { (nn_child)(m, "multihead_attn", (nn_multihead_attention_with)(attention)); }
    linear.in_features = a.embed;
    linear.out_features = a.feedforward;
    (nn_child)(m, "linear1", (nn_linear_with)(linear));
    (nn_child)(m, "dropout", (nn_dropout)(a.dropout));
    linear.in_features = a.feedforward;
    linear.out_features = a.embed;
    (nn_child)(m, "linear2", (nn_linear_with)(linear));
    norm.size = a.embed;
    norm.eps = a.eps;
    for (int k = 0; k < 2 + decoder; k++) { (nn_child)(m, nn__norms[k], (nn_layer_norm_with)(norm)); }
    for (int k = 0; k < 2 + decoder; k++) { (nn_child)(m, nn__drops[k], (nn_dropout)(a.dropout)); }
    return nn__done(m);
}

NN__FILL_DEFAULTS(nn_transformer_layer, NN__OR(feedforward, 2048) NN__OR(dropout, 0.1) NN__OR(eps, 1e-5))
NN__LAYER(transformer_encoder_layer, nn_transformer_layer, nn__make_transformer_layer(a, 0))
NN__LAYER(transformer_decoder_layer, nn_transformer_layer, nn__make_transformer_layer(a, 1))

// ---- their stacks: children "layers" (a ModuleList) and "norm", no options

TENSOR__FN tensor_t *nn__transformer(nn_module_t *m, const nn_transformer_args_t *a) {
    const nn_module_t *layers = nn__kid(m, "layers");
    nn_module_t *norm = nn__kid(m, "norm");
    nn_transformer_args_t b = *a;
    for (int k = 0; layers && k < layers->impl->nslots; k++) {
        b.module = layers->impl->slot[k].child->module;
        b.site_ = NULL;
        b.x = nn_transformer_forward_with(b);
    }
    return norm ? (nn_forward)(norm, b.x) : b.x;
}

TENSOR__FN tensor_t *nn__forward_transformer(nn_module_t *m, tensor_t *x) {
    nn_transformer_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.x = x;
    return nn__transformer(m, &a);
}

NN__SCOPED_KIND(ENCODER, nn_module_t, "TransformerEncoder", nn__forward_transformer, NULL, NN__ENCODER_ID)
NN__SCOPED_KIND(DECODER, nn_module_t, "TransformerDecoder", nn__forward_transformer, NULL, NN__DECODER_ID)
NN__PLAIN_KIND(MODULE_LIST, nn_module_t, "ModuleList", NULL, NULL)

TENSOR_API tensor_t *nn_transformer_forward_with(nn_transformer_args_t a) {
    static const char op[] = "transformer_forward";
    tensor_t *y = TENSOR__(poison);
    if (nn__too_many(op, a.site_, a.options_are_named_) ||
        !nn__enter(op, "nn_transformer_..", a.module, NN__ENCODER_LAYER_ID, NN__DECODER_ID)) {
        return tensor__at(a.site_, y);
    }
    tensor_scope_t scope = TENSOR__(scope)(-1);
    int id = a.module->impl->kind->id;
    int decoder = id == NN__DECODER_LAYER_ID || id == NN__DECODER_ID;
    if (decoder != (a.memory != NULL)) {
        NN__FAIL(TENSOR_ERR_SHAPE, "%s: memory is %s, must be %s for the module %s", op,
                 decoder ? "NULL" : "given", decoder ? "a tensor" : "NULL", a.module->name);
    } else if (nn__kid(a.module, "layers")) {
        y = nn__transformer(a.module, &a);
    } else {
        y = nn__transformer_layer(a.module, &a, a.x);
    }
    return tensor__at(a.site_, nn__leave(a.module, scope, y));
}

// each: the id of its layers
TENSOR__FN nn_module_t *nn__make_transformer(const char *op, const nn__kind_t *kind, int each,
                                             nn_module_t *layer, int64_t count, nn_module_t *norm) {
    if (count < 1 || count > 4096) { return nn__refuse(op, "count must be in 1..4096", count); }
    if (!nn__can_use(op, "the layer", layer)) { return NULL; }
    if (!layer->impl->kind || layer->impl->kind->id != each) {
        return NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_UNSUPPORTED,
                        "%s: the layer is a %s, must be made by nn_%s_layer", op, layer->name, op);
    }
    nn_module_t *m = (nn_module_t *)nn__make(kind);
    nn_module_t *list = (nn_module_t *)nn__make(NN__KIND(MODULE_LIST));
    if (!m || !list) { return NULL; }
    (nn_child)(m, "layers", list);
    char name[24];
    for (int64_t k = 0; k < count && list->code == TENSOR_OK; k++) {
        tensor__text_t t = nn__text(name, sizeof name);
        NN__PUT(&t, "%d", k);
        (nn_child)(list, name, k == 0 ? layer : (nn_clone)(layer));
    }
    if (list->code != TENSOR_OK) { nn__mark(m, list->code); }
    if (norm) { (nn_child)(m, "norm", norm); }
    return nn__done(m);
}

TENSOR_API nn_module_t *(nn_transformer_encoder)(nn_module_t *layer, int64_t count, nn_module_t *norm) {
    return nn__make_transformer("transformer_encoder", NN__KIND(ENCODER), NN__ENCODER_LAYER_ID, layer, count,
                                norm);
}

TENSOR_API nn_module_t *(nn_transformer_decoder)(nn_module_t *layer, int64_t count, nn_module_t *norm) {
    return nn__make_transformer("transformer_decoder", NN__KIND(DECODER), NN__DECODER_LAYER_ID, layer, count,
                                norm);
}

// ------------------------------------------------------------------------------
// >>layers-sequential                              MARK: modules in sequence
//
// A sequential opens its scope itself, so that it may free what it does not need. Rejected: fusing when it is
// made (children may be replaced, and hooks may be added, at any time).
// ------------------------------------------------------------------------------

// What becomes of a child and the one after it, if there is no hook between them. Either they are one op
// with the same bits, or they change places: a relu runs after the max pool, which leaves it fewer elements.
// The largest element of a window is the same before and after relu (except for the sign of a zero), and so
// is the element that gets the gradient. NULL = neither.
TENSOR__FN const nn__join_t *nn__pair(const nn__slot_t *s, const tensor_t *x) {
    const nn_module_impl_t *a = s[0].child, *b = s[1].child;
    if (!a || !b || a->hooks || b->hooks || !nn__usable(a->module) || !nn__usable(b->module)) { return NULL; }
    const nn__join_t *join = a->kind && b->kind ? b->kind->join : NULL;
    if (!join || join->after != a->kind->id) { return NULL; }
    if (a->module->forward != a->kind->forward || b->module->forward != b->kind->forward) { return NULL; }
    if (!join->as) {                            // a window with dilation may be empty, which gives -inf
        const nn__window_t *g = &((const nn__pool_layer_t *)b->module)->window;
        return nn__all_are(g->dilation, 3, 1) && !nn__all_are(g->stride, 3, 1) ? join : NULL;
    }
    return x && !x->device ? join : NULL;
}

// A result between two children is freed when nothing needs it. The tape keeps what it saves, so without
// recording this is at once. The user can have its pointer only by tensor_keep (keeps > 0).
TENSOR__FN tensor_t *nn__forward_sequential(nn_module_t *m, tensor_t *x) {
    tensor_scope_t scope = TENSOR__(scope)(-1);
    int recording = tensor_grad_enabled(), waits = 0;
    tensor_t *y = x;
    for (int i = 0; i < m->impl->nslots; i++) {
        tensor_t *before = y;
        const nn__slot_t *s = m->impl->slot + i;
        const nn__join_t *join = NULL;
        if (waits <= 0 && i + 1 < m->impl->nslots) { join = nn__pair(s, before); }
        // 1: the pool is next, -1: the relu before it is next
        waits = waits > 0 ? -1 : join && !join->as;
        nn_module_impl_t *c = s[waits].child;
        if (!c) { continue; }
        if (join && join->as) {
            TENSOR__(push_path)(nn__self(), c->key ? c->key : s->name);
            y = join->as(before, nn__tensor(c->module, 0), nn__tensor(c->module, 1));
            TENSOR__(pop_path)(nn__self());
            i++;
        } else {
            y = (nn_forward)(c->module, before);
        }
        if ((tensor_is_poison)(y)) { break; }
        if (!recording && before != x && before != y && before->keeps == 0 && before->home == scope.thread &&
            before->slot >= scope.mark) {
            (tensor_free)(before);
        }
    }
    if (!y) { y = nn__forward_identity(m, y); }
    return (tensor_scope_return)(scope, y);
}

NN__KNOWN_KIND(SEQUENTIAL, nn_module_t, "Sequential", nn__forward_sequential, NULL, NN__SEQUENTIAL_ID)

TENSOR_API nn_module_t *(nn_append)(nn_module_t *sequential, nn_module_t *m) {
    if (!nn__opened("append", "the sequential", sequential)) { return sequential; }
    if (!sequential->impl->kind || sequential->impl->kind->id != NN__SEQUENTIAL_ID) {
        return NN__GIVE(sequential, TENSOR_ERR_UNSUPPORTED, "append: %s is not a nn_sequential",
                        sequential->name);
    }
    char name[24];
    tensor__text_t t = nn__text(name, sizeof name);
    NN__PUT(&t, "%i", sequential->impl->nslots);
    (nn_child)(sequential, name, m);
    return sequential;
}

TENSOR_API nn_module_t *(nn_sequential_n)(nn_module_t *const *list, int n) {
    nn_module_t *s = (nn_module_t *)nn__make(NN__KIND(SEQUENTIAL));
    if (s && !list && n > 0) { nn__mark(s, nn__poisoned("sequential", "the list", list)); }
    for (int i = 0; s && list && i < n; i++) {
        nn_module_t *m = list[i];
        if (m && !nn__is_module(m) && !nn__is_zeroed(m) && tensor_ok()) {
            NN__FAIL(TENSOR_ERR_POISONED,
                     "sequential: argument %i is not a module; a layer is made by a call: nn_relu()", i + 1);
        }
        (nn_append)(s, m);
    }
    return s;   // if a child failed, its code says so
}

// ------------------------------------------------------------------------------
// >>impl-copies                                    MARK: printing, copies of modules
//
// Texts of modules as PyTorch prints them, copies of state, moves to a device or dtype, clones. All of these
// need the tables of >>impl-layers, so they come after it. Rejected: a print and a clone function per kind
// of layer.
// ------------------------------------------------------------------------------

TENSOR__FN void nn__describe(nn_module_impl_t *impl, tensor__text_t *t, int depth) {
    int children = 0;
    if (!impl->module) { return; }
    NN__PUT(t, "%s(", impl->module->name);
    if (impl->kind && impl->kind->print) {
        impl->kind->print(impl->module, t);
    } else if (impl->kind) {
        nn__put_fields(impl->module, t);
    }
    for (int i = 0; i < impl->nslots; i++) {
        if (!impl->slot[i].child) { continue; }
        children++;
        NN__PUT(t, "\n");
        for (int k = 0; k <= depth; k++) { NN__PUT(t, "  "); }
        NN__PUT(t, "(%s): ", impl->slot[i].name);
        nn__describe(impl->slot[i].child, t, depth + 1);
    }
    if (children) {
        NN__PUT(t, "\n");
        for (int k = 0; k < depth; k++) { NN__PUT(t, "  "); }
    }
    NN__PUT(t, ")");
}

TENSOR_API size_t nn_to_string(nn_module_t *m, char *text, size_t size) {
    tensor__text_t t = nn__text(text, size);
    if (nn__open_module(m)) {
        nn__describe(m->impl, &t, 0);
    } else {
        NN__PUT(&t, "None");
    }
    return t.length;
}

#ifndef TENSOR_NO_STDIO
TENSOR_API int nn_print(nn_module_t *m) {
    size_t n = nn_to_string(m, NULL, 0);
    char *text = (char *)nn__memory(n + 1, 1);
    if (!text) { return TENSOR_ERR_OUT_OF_MEMORY; }
    nn_to_string(m, text, n + 1);
    int bad = puts(text) < 0;
    nn__free(text);
    if (!bad) { return TENSOR_OK; }
    return NN__ERROR(TENSOR_ERR_IO, "print: stdout cannot be written");
}
#endif

TENSOR_API int (nn_copy_state)(nn_module_t *dst, nn_module_t *src) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    nn__items_t a, b;
    int code = TENSOR_OK;
    if (!nn__collect_lent(dst, "copy_state", &a) || !nn__collect_lent(src, "copy_state", &b)) {
        (tensor_scope_end)(scope);
        return tensor_error_code();
    }
    for (int64_t i = 0; i < a.n && i < b.n && code == TENSOR_OK; i++) {
        if (strcmp(a.item[i].name, b.item[i].name) == 0 &&
            nn__same_shape(a.item[i].tensor, b.item[i].tensor)) {
            continue;
        }
        code = NN__ERROR(TENSOR_ERR_FORMAT, "copy_state: \"%s\" %t and \"%s\" %t differ", a.item[i].name,
                         a.item[i].tensor, b.item[i].name, b.item[i].tensor);
    }
    if (code == TENSOR_OK && a.n != b.n) {
        code = NN__ERROR(TENSOR_ERR_FORMAT, "copy_state: modules of %d and %d tensors", a.n, b.n);
    }
    for (int64_t i = 0; i < a.n && code == TENSOR_OK; i++) {
        if (a.item[i].first != i || a.item[i].tensor == b.item[i].tensor) { continue; }
        if ((tensor_is_poison)((tensor_copy_)(a.item[i].tensor, b.item[i].tensor))) {
            code = tensor_error_code();
        }
    }
    (tensor_scope_end)(scope);
    return code;
}

// t takes the data of fresh, and fresh that of t: the header must stay the one that optimizers and users
// have.
TENSOR__FN void nn__exchange(tensor_t *t, tensor_t *fresh) {
    tensor_t was = *t;
    t->dtype = fresh->dtype;
    t->device = fresh->device;
    t->flags = (uint8_t)(t->flags | TENSOR__CONTIGUOUS);
    t->offset = fresh->offset;
    t->storage = fresh->storage;
    t->storage->version = was.storage->version + 1;     // those who compare t's version read it again
    for (int k = 0; k < t->ndim; k++) { t->strides[k] = fresh->strides[k]; }
    fresh->dtype = was.dtype;
    fresh->device = was.device;
    fresh->offset = was.offset;
    fresh->storage = was.storage;
}

// t with its new device or dtype, in the current scope; NULL after raising.
TENSOR__FN tensor_t *nn__moved(tensor_t *t, const char *name, int to) {
    if (to < TENSOR_CPU && !nn__is_float(t)) { return t; }
    if (t->node || t->base) {
        return NN__GIVE((tensor_t *)NULL, TENSOR_ERR_AUTOGRAD, "to: \"%s\" %t %s", name, t,
                        t->base ? "is a view" : "has a history");
    }
    t = (tensor_to)(t, to);
    if (!(tensor_is_poison)(t) && !(t->flags & TENSOR__CONTIGUOUS)) { t = (tensor_contiguous)(t); }
    return (tensor_is_poison)(t) ? NULL : t;
}

TENSOR_API int (nn_to)(nn_module_t *m, int to) {
    int64_t n = 0;
    if (to < TENSOR_CPU && to != TENSOR_F32 && to != TENSOR_F64 && to != TENSOR_F16 && to != TENSOR_BF16) {
        return NN__ERROR(TENSOR_ERR_DTYPE, "to: %s is neither a float dtype nor a device",
                         tensor_dtype_name((tensor_dtype_t)to));
    }
    nn__items_t a;
    void *block = nn__collect(m, "to", &a);
    if (!block) { return tensor_error_code(); }
    tensor_t **fresh;
    fresh = (tensor_t **)nn__memory((uint64_t)(2 * a.n + 1), sizeof *fresh);
    if (!fresh) {
        nn__free(block);
        return tensor_error_code();
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    int64_t i;
    for (i = 0; i < a.n; i++) {
        tensor_t *t = a.item[i].tensor;
        fresh[2 * i] = fresh[2 * i + 1] = NULL;
        if (a.item[i].first != i) { continue; }
        fresh[2 * i] = nn__moved(t, a.item[i].name, to);
        tensor_t *g = (tensor_grad)(t);
        if (fresh[2 * i] && g && !(tensor_is_poison)(g)) {
            fresh[2 * i + 1] = nn__moved(g, a.item[i].name, to);
        }
        if (!fresh[2 * i] || (g && !fresh[2 * i + 1])) { break; }
        n = i + 1;
    }
    int code = i < a.n ? tensor_error_code() : TENSOR_OK;
    for (i = 0; i < n && code == TENSOR_OK; i++) {
        tensor_t *t = a.item[i].tensor;
        if (fresh[2 * i] && fresh[2 * i] != t) { nn__exchange(t, fresh[2 * i]); }
        if (fresh[2 * i + 1] && fresh[2 * i + 1] != t->grad) { nn__exchange(t->grad, fresh[2 * i + 1]); }
    }
    (tensor_scope_end)(scope);
    nn__free(fresh);
    nn__free(block);
    return code;
}

// Pairs old, new of the tensors and modules met so far, so that shared ones stay shared.
typedef struct nn__clones_t {
    const void **pair;
    uint64_t n, cap;
} nn__clones_t;

TENSOR__FN void *nn__cloned(const nn__clones_t *c, const void *old) {
    for (uint64_t i = 0; i < c->n; i++) {
        if (c->pair[2 * i] == old) { return (void *)(uintptr_t)c->pair[2 * i + 1]; }
    }
    return NULL;
}

TENSOR__FN int nn__remember(nn__clones_t *c, const void *old, const void *fresh) {
    if (c->n == c->cap) {
        uint64_t cap = c->cap ? 2 * c->cap : 16;
        const void **q =
            (const void **)nn__grow((void *)(uintptr_t)c->pair, 2 * c->n, 2 * cap, sizeof(void *));
        if (!q) {
            c->pair = NULL;
            c->n = c->cap = 0;
            return 0;
        }
        c->pair = q;
        c->cap = cap;
    }
    c->pair[2 * c->n] = old;
    c->pair[2 * c->n + 1] = fresh;
    c->n++;
    return 1;
}

TENSOR__FN nn_module_t *nn__clone(nn_module_t *m, nn__clones_t *known) {
    nn_module_t *c = (nn_module_t *)nn__cloned(known, m);
    int own = m->impl->kind != NULL;
    if (c) { return c; }
    if (!own && !m->clone) {
        return NN__GIVE((nn_module_t *)NULL, TENSOR_ERR_UNSUPPORTED,
                        "clone: module %s has no clone function; set base.clone", m->name);
    }
    c = own ? nn__clone_layer(m) : m->clone(m);
    if (!nn__usable(c)) {
        nn__unusable("clone", "the copy", c);
        if (c) { (nn_free)(c); }
        return NULL;
    }
    c->training = m->training;
    if (!own) {
        if ((nn_copy_state)(c, m) != TENSOR_OK) {
            (nn_free)(c);
            return NULL;
        }
    }
    for (int i = 0; own && i < m->impl->nslots; i++) {
        nn__slot_t *s = &m->impl->slot[i];
        if (s->child) {
            (nn_child)(c, s->name, s->child->module ? nn__clone(s->child->module, known) : NULL);
        } else {
            tensor_scope_t scope = TENSOR__(scope)(0);
            tensor_t *t = (tensor_t *)nn__cloned(known, s->tensor);
            if (!t) {
                t = (tensor_clone)(s->tensor);
                if (TENSOR__TRAINS && s->kind == NN__PARAMETER) { (tensor_requires_grad_)(t, 1); }
                if (!nn__remember(known, s->tensor, t)) { nn__mark(c, TENSOR_ERR_OUT_OF_MEMORY); }
            }
            nn__register(c, "clone", s->name, t, s->kind);
            if (TENSOR__TRAINS && s->kind == NN__PARAMETER && !(tensor_requires_grad)(s->tensor)) {
                (tensor_requires_grad_)(t, 0);
            }
            (tensor_scope_end)(scope);
        }
    }
    if (c->code != TENSOR_OK || !nn__remember(known, m, c)) {
        (nn_free)(c);
        return NULL;
    }
    return c;
}

TENSOR_API nn_module_t *(nn_clone)(nn_module_t *m) {
    if (!nn__can_use("clone", "the module", m)) { return NULL; }
    nn__clones_t known;
    known.pair = NULL;
    known.n = known.cap = 0;
    nn_module_t *c = nn__clone(m, &known);
    nn__free((void *)(uintptr_t)known.pair);
    return c;
}

// ------------------------------------------------------------------------------
// >>impl-init                                      MARK: initialisation
//
// Distributions come from the core's generator, one stream per call. Rejected: a seed argument per call
// (PyTorch has none: the thread's generator decides).
// ------------------------------------------------------------------------------

TENSOR_API double nn_gain(nn_nonlinearity_t nonlinearity, double a) {
    switch (nonlinearity) {
    case NN_LEAKY_RELU: return sqrt(2 / (1 + a * a));
    case NN_RELU: return sqrt(2.0);
    case NN_TANH: return 5.0 / 3;
    case NN_SELU: return 0.75;
    case NN_SIGMOID:
    case NN_LINEAR:
    default: return 1;
    }
}

// Ends the scope of an init whose last call gave r. -> t, or poison
TENSOR__FN tensor_t *nn__init_end(tensor_scope_t scope, tensor_t *t, tensor_t *r) {
    (tensor_scope_end)(scope);
    return (tensor_is_poison)(r) ? r : t;
}

TENSOR__FN tensor_t *nn__init_fill(tensor_t *t, double a, double b) {
    (void)b;
    return (tensor_fill_)(t, a);
}

TENSOR__FN tensor_t *nn__init(tensor_t *t, tensor_t *(*fill)(tensor_t *t, double a, double b), double a,
                              double b) {
    if (!nn__there("init", "the tensor", t)) { return TENSOR__(poison); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *r = fill(t, a, b);
    return nn__init_end(scope, t, r);
}

#define NN__X(name, params, how, a, b)                                                                       \
    TENSOR_API tensor_t *(nn_init_##name##_) params { return nn__init(t, how, a, b); }
NN__X(uniform, (tensor_t *t, double low, double high), tensor_uniform_, low, high)
NN__X(normal, (tensor_t *t, double mean, double std), tensor_normal_, mean, std)
NN__X(constant, (tensor_t *t, double value), nn__init_fill, value, 0)
NN__X(zeros, (tensor_t *t), nn__init_fill, 0, 0)
NN__X(ones, (tensor_t *t), nn__init_fill, 1, 0)
#undef NN__X

// Inverse of the standard normal distribution function, by Newton steps on erfc that bisection keeps safe;
// |error| < 1e-14.
TENSOR__FN double nn__inverse_normal(double u) {
    double lo = -40, hi = 40, x = 0;
    for (int k = 0; k < 200; k++) {
        double f = 0.5 * erfc(-x * 0.70710678118654752) - u;
        double d = 0.39894228040143268 * exp(-0.5 * x * x);
        if (f > 0) {
            hi = x;
        } else {
            lo = x;
        }
        double next = d > 0 ? x - f / d : lo;
        if (!(next > lo && next < hi)) { next = 0.5 * (lo + hi); }
        if (fabs(next - x) <= 1e-15 * (1 + fabs(x))) { return next; }
        x = next;
    }
    return x;
}

TENSOR_API tensor_t *(nn_init_trunc_normal_)(tensor_t *t, double mean, double std, double low, double high) {
    if (!nn__whole("trunc_normal_", "the tensor", t)) { return TENSOR__(poison); }
    if (!(low <= high) || !(std >= 0)) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "trunc_normal_: needs low <= high and std >= 0 (got %g, %g, %g)",
                        low, high, std);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *u = (tensor_uniform_)(nn__host_tensor(t->dims, t->ndim, TENSOR_F32), 0, 1);
    float *v = (float *)tensor_data_mut(u);
    double a = std > 0 ? 0.5 * erfc(-(low - mean) / std * 0.70710678118654752) : 0;
    double b = std > 0 ? 0.5 * erfc(-(high - mean) / std * 0.70710678118654752) : 1;
    for (int64_t i = 0; v && i < u->numel; i++) {
        double x = mean + std * nn__inverse_normal(a + (b - a) * ((double)v[i] + 2.9802322387695312e-8));
        if (x < low) { x = low; }
        if (x > high) { x = high; }
        v[i] = (float)x;
    }
    return nn__init_end(scope, t, (tensor_copy_)(t, u));
}

// Computes the fans of t, fan[0] (in) and fan[1] (out); 0 after raising.
TENSOR__FN int nn__fans(tensor_t *t, const char *op, double fan[2]) {
    double area = 1;
    if (!nn__whole(op, "the tensor", t)) { return 0; }
    if (t->ndim < 2) { return NN__NO(TENSOR_ERR_SHAPE, "%s: t %t must have at least 2 dims", op, t); }
    for (int i = 2; i < t->ndim; i++) { area *= (double)t->dims[i]; }
    fan[0] = (double)t->dims[1] * area;
    fan[1] = (double)t->dims[0] * area;
    if (fan[0] < 1) { fan[0] = 1; }
    if (fan[1] < 1) { fan[1] = 1; }
    return 1;
}

TENSOR_API tensor_t *(nn_init_xavier_uniform_)(tensor_t *t, double gain) {
    double fan[2];
    if (!nn__fans(t, "xavier_uniform_", fan)) { return TENSOR__(poison); }
    double bound = gain * sqrt(6 / (fan[0] + fan[1]));
    return nn__init(t, tensor_uniform_, -bound, bound);
}

TENSOR_API tensor_t *(nn_init_xavier_normal_)(tensor_t *t, double gain) {
    double fan[2];
    if (!nn__fans(t, "xavier_normal_", fan)) { return TENSOR__(poison); }
    return nn__init(t, tensor_normal_, 0, gain * sqrt(2 / (fan[0] + fan[1])));
}

TENSOR_API tensor_t *nn_init_kaiming_uniform__with(nn_kaiming_args_t a) {
    double fan[2];
    if (nn__too_many("kaiming_uniform_", a.site_, a.options_are_named_) ||
        !nn__fans(a.t, "kaiming_uniform_", fan)) {
        return tensor__at(a.site_, TENSOR__(poison));
    }
    double bound = nn_gain(a.nonlinearity, a.a) * sqrt(3 / fan[a.fan_out != 0]);
    return nn__init(a.t, tensor_uniform_, -bound, bound);
}

TENSOR_API tensor_t *nn_init_kaiming_normal__with(nn_kaiming_args_t a) {
    double fan[2];
    if (nn__too_many("kaiming_normal_", a.site_, a.options_are_named_) ||
        !nn__fans(a.t, "kaiming_normal_", fan)) {
        return tensor__at(a.site_, TENSOR__(poison));
    }
    return nn__init(a.t, tensor_normal_, 0, nn_gain(a.nonlinearity, a.a) / sqrt(fan[a.fan_out != 0]));
}

TENSOR_API tensor_t *(nn_init_orthogonal_)(tensor_t *t, double gain) {
    double fan[2];
    if (!nn__fans(t, "orthogonal_", fan)) { return TENSOR__(poison); }
    if (t->numel == 0) { return t; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    int64_t wide = t->dims[0] < t->numel / t->dims[0];
    int64_t dims[2];
    dims[wide] = t->dims[0];                            // the longer side first: Q has orthonormal columns
    dims[!wide] = t->numel / t->dims[0];
    tensor_qr_t f =
        (tensor_qr)((tensor_to)((tensor_randn_n)(dims, 2), t->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32));
    tensor_t *x = (tensor_mul_scalar)((tensor_mul)(f.q, (tensor_sgn)((tensor_diagonal)(f.r, 0, 0, 1))), gain);
    if (wide) { x = (tensor_transpose)(x, 0, 1); }
    return nn__init_end(scope, t, (tensor_copy_)(t, (tensor_reshape_n)(x, t->dims, t->ndim)));
}

TENSOR_API tensor_t *(nn_init_eye_)(tensor_t *t) {
    double fan[2];
    if (!nn__fans(t, "eye_", fan)) { return TENSOR__(poison); }
    if (t->ndim != 2) { return NN__FAIL(TENSOR_ERR_SHAPE, "eye_: t %t must have 2 dims", t); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    return nn__init_end(scope, t, (tensor_copy_)(t, (tensor_eye)(t->dims[0], t->dims[1])));
}

TENSOR_API tensor_t *(nn_init_dirac_)(tensor_t *t, int64_t groups) {
    int64_t centre = 0;
    double fan[2];
    if (!nn__fans(t, "dirac_", fan)) { return TENSOR__(poison); }
    if (t->ndim < 3 || t->ndim > 5 || groups < 1 || t->dims[0] % groups) {
        return NN__FAIL(TENSOR_ERR_SHAPE, "dirac_: t %t must be [out, in, K...], out a multiple of %d groups",
                        t, groups);
    }
    for (int d = 2; d < t->ndim; d++) { centre = centre * t->dims[d] + t->dims[d] / 2; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *x = (tensor_zero_)(nn__host_tensor(t->dims, t->ndim, TENSOR_F32));
    float *v = (float *)tensor_data_mut(x);
    int64_t out = t->dims[0] / groups;
    int64_t area = t->numel ? t->numel / t->dims[0] / t->dims[1] : 0;
    for (int64_t i = 0; v && i < t->dims[0] && area; i++) {
        if (i % out < t->dims[1]) { v[(i * t->dims[1] + i % out) * area + centre] = 1; }
    }
    return nn__init_end(scope, t, (tensor_copy_)(t, x));
}

TENSOR_API tensor_t *(nn_init_sparse_)(tensor_t *t, double sparsity, double std) {
    double fan[2];
    if (!nn__fans(t, "sparse_", fan)) { return TENSOR__(poison); }
    if (t->ndim != 2 || !(sparsity >= 0 && sparsity <= 1) || !(std >= 0)) {
        return NN__FAIL(TENSOR_ERR_SHAPE,
                        "sparse_: t %t must have 2 dims, sparsity %g lie in 0..1, std %g be >= 0", t,
                        sparsity, std);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *x = (tensor_normal_)(nn__host_tensor(t->dims, t->ndim, TENSOR_F32), 0, std);
    float *v = (float *)TENSOR__(host)(x, TENSOR_HOST_WRITE, "sparse_");
    int64_t zeros = (int64_t)ceil(sparsity * (double)t->dims[0]);
    for (int64_t j = 0; v && j < t->dims[1]; j++) {
        tensor_t *order = (tensor_to)((tensor_randperm)(t->dims[0]), TENSOR_CPU);
        const int64_t *row = (const int64_t *)TENSOR__(host)(order, TENSOR_HOST_READ, "sparse_");
        for (int64_t i = 0; row && i < zeros; i++) { v[row[i] * t->dims[1] + j] = 0; }
        (tensor_free)(order);
    }
    return nn__init_end(scope, t, (tensor_copy_)(t, x));
}

// ------------------------------------------------------------------------------
// >>impl-optim                                     MARK: optimizers
//
// A step is two passes: the first goes over the parameters, collects pointers and makes missing state (all
// that can fail), the second updates, in fixed chunks, on several threads if that pays. Rejected: one call
// per parameter through the gate (the small net of the manual would spend its time there).
// ------------------------------------------------------------------------------

enum { NN__MAX_STATE = 3, NN__CHUNK = 16384, NN__PARALLEL_FROM = 65536 };

// Options of an optimizer; those that its rule does not have are 0. Files store them in this order; files of
// earlier versions have the first ones only.
enum {
    NN__LR, NN__DECAY, NN__MOMENTUM, NN__DAMPENING, NN__NESTEROV, NN__MAXIMIZE, NN__BETA1, NN__BETA2,
    NN__EPS, NN__AMSGRAD, NN__CENTERED, NN__DECOUPLED, NN__DRAG, NN__INITIAL, NN__RHO, NN__NS_A, NN__NS_B,
    NN__NS_C, NN__NS_STEPS, NN__ADJUST, NN__PLAIN, NN__MAX_ITER, NN__MAX_EVAL, NN__GRAD_TOL, NN__CHANGE_TOL,
    NN__HISTORY, NN__SEARCH, NN__PAIRS, NN__LENGTH,      // the last two: states of lbfgs, see nn__lbfgs
    NN__OPTIONS, NN__OLD_OPTIONS = NN__DECOUPLED, NN__ALWAYS = NN__OPTIONS
};

enum { NN__DENSE, NN__ROWS_TOO, NN__ROWS_ONLY, NN__MATRICES, NN__CLOSURE };
struct nn__param_t;
struct nn__search_t;
// What some rules do in their own way; it is reached from their rules only.
typedef struct nn__ways_t {
    // What the formula adds to p with gradient g, with a scaler's skip; *state: what state 0 becomes.
    tensor_t *(*turned)(const nn_optimizer_t *o, const struct nn__param_t *p, tensor_t *g, tensor_t *skip,
                        tensor_t **state);
    tensor_t *(*minimize)(struct nn__search_t *s);      // a step with a closure
} nn__ways_t;

typedef struct nn__rule_t {
    const char *name;
    const nn__ways_t *ways;
    const nn__formula_t *of;
    int formula, takes;
    struct {
        const char *name;
        int needs;                      // the option without which this state does not exist
    } state[NN__MAX_STATE + 1];         // ends with a NULL
} nn__rule_t;
#define NN__STATE(name, option) {#name, NN__##option},
#define NN__FORMULA(name, states, at, must)                                                                  \
    static const nn__formula_t nn__formula_##name = {nn__do_step_##name, at};
NN__STEPS(NN__FORMULA)
#undef NN__FORMULA

TENSOR__FN tensor_t *nn__orthogonal(const nn_optimizer_t *o, const struct nn__param_t *p, tensor_t *g,
                                    tensor_t *skip, tensor_t **state);
TENSOR__FN tensor_t *nn__lbfgs(struct nn__search_t *s);
static const nn__ways_t nn__ways_DENSE = {NULL, NULL}, nn__ways_ROWS_TOO = {NULL, NULL},
                        nn__ways_ROWS_ONLY = {NULL, NULL}, nn__ways_MATRICES = {nn__orthogonal, NULL},
                        nn__ways_CLOSURE = {NULL, nn__lbfgs};
#define NN__RULE(name, step, takes, lr, states, options)                                                     \
    static const nn__rule_t nn__rule_##name = {#name, &nn__ways_##takes, &nn__formula_##step,                \
                                               NN__STEP_ID_##step, NN__##takes, {states {NULL, 0}}};
NN__OPTIMIZERS(NN__RULE)

typedef struct nn__param_t {
    tensor_t *t;                      // held
    tensor_t *state[NN__MAX_STATE];   // held; NULL until the first step
    int64_t step;
    int group, owes;                  // owes: steps since the last nn__settle counted it
} nn__param_t;

typedef struct nn__group_t {
    double ratio;   // learning rate = ratio * option LR
    double weight_decay;
    int64_t step;   // in a running step: its numbers are in o->update[update]
    int update;
} nn__group_t;

// One parameter in one step: the tensor and its gradient, or copies of them.
typedef struct nn__job_t {
    nn__param_t *param;
    tensor_t *from, *grad, *rows;       // rows: NULL, or i64, the row of the parameter for each row of grad
    tensor_t *state;                    // NULL, or what state 0 becomes; then the formula has no states
    int update, done;
} nn__job_t;

struct nn_optimizer_t {
    tensor__owned_t owned;   // first: the context's list
    int dead;                // freed: a later use is noticed
    int nparams, ngroups, cap;
    const nn__rule_t *rule;
    double option[NN__OPTIONS];
    nn__param_t *param;
    nn__group_t *group;
    nn__job_t *job;   // cap each: scratch of a step
    nn__update_t *update;
    int njobs;
    // With a scaler, held, f32 [2]: whether the gradients have an inf or NaN; the number of steps skipped
    // for that reason, which the step counts of the parameters that owe still include. owes: some parameters
    // do
    tensor_t *skip;
    int (*settle)(nn_optimizer_t *o);   // NULL without a scaler, else nn__settle
    int owes;
    int unscaled;            // its gradients are unscaled
    int stepping;            // nn__lbfgs is running: its closure must not change the optimizer
    const char *site;
};

TENSOR__FN void nn__optimizer_close(nn_optimizer_t *o) {
    TENSOR__(disown)(&o->owned);
    if (o->skip) { TENSOR__(drop)(o->skip); }
    for (int i = 0; i < o->nparams; i++) {
        TENSOR__(drop)(o->param[i].t);
        for (int k = 0; k < NN__MAX_STATE; k++) {
            if (o->param[i].state[k]) { TENSOR__(drop)(o->param[i].state[k]); }
        }
    }
    nn__free(o->param);
    nn__free(o->group);
    nn__free(o->job);
    nn__free(o->update);
    o->param = NULL;
    o->group = NULL;
    o->job = NULL;
    o->update = NULL;
    o->nparams = o->ngroups = o->cap = 0;
    o->dead = 1;
    TENSOR__(bury)(o, TENSOR__OPTIMIZER);
}

// If o cannot be used, the code after raising, else 0.
TENSOR__FN int nn__bad_optimizer(const char *op, const nn_optimizer_t *o) {
    if (!o) { return nn__poisoned(op, "the optimizer", o); }
    if (!o->dead) { return TENSOR_OK; }
    return NN__ERROR(TENSOR_ERR_OWNER, "%s: the optimizer was freed", op);
}

TENSOR__FN void nn__optimizer_shutdown(tensor__owned_t *o) {
    nn__optimizer_close((nn_optimizer_t *)(void *)o);
}

// The same for functions that change it or its states.
TENSOR__FN int nn__busy_optimizer(const char *op, const nn_optimizer_t *o) {
    int code = nn__bad_optimizer(op, o);
    if (code != TENSOR_OK || !o->stepping) { return code; }
    return NN__ERROR(TENSOR_ERR_UNSUPPORTED, "%s: a step of this optimizer is under way", op);
}

TENSOR_API int (nn_optimizer_free)(nn_optimizer_t *o) {
    int code = o ? nn__busy_optimizer("optimizer_free", o) : TENSOR_OK;
    if (o && code == TENSOR_OK) { nn__optimizer_close(o); }
    return code;
}

// Puts tensors into group g and moves those that are in another one.
TENSOR__FN int nn__add_params(nn_optimizer_t *o, tensor_t *const *list, int n, int g) {
    int k;
    for (int i = 0; i < n; i++) {
        tensor_t *t = list[i];
        if (!t || (tensor_is_poison)(t)) { return nn__poisoned(o->rule->name, "a parameter", t); }
        if (!nn__is_float(t)) {
            return NN__ERROR(TENSOR_ERR_DTYPE, "%s: parameter %d is %y, not a float", o->rule->name,
                             (int64_t)i, t);
        }
        if (!(tensor_is_leaf)(t)) {
            return NN__ERROR(TENSOR_ERR_AUTOGRAD,
                             "%s: parameter %d %t is not a leaf: it is the result of an operation",
                             o->rule->name, (int64_t)i, t);
        }
        if (o->rule->takes == NN__MATRICES && t->ndim != 2) {
            return NN__ERROR(TENSOR_ERR_SHAPE, "%s: parameter %d %t must have 2 dims", o->rule->name,
                             (int64_t)i, t);
        }
        for (k = 0; k < t->ndim; k++) {
            if (t->dims[k] > 1 && t->strides[k] == 0) {
                return NN__ERROR(TENSOR_ERR_SHAPE,
                                 "%s: parameter %d %t is expanded, several elements share one place",
                                 o->rule->name, (int64_t)i, t);
            }
        }
        for (k = 0; k < o->nparams && o->param[k].t != t; k++) { }
        if (k == o->nparams) {
            if (o->nparams == o->cap) {
                int cap;
                if (o->cap) {
                    cap = 2 * o->cap;
                } else if (n > 8) {
                    cap = n;
                } else {
                    cap = 8;
                }
                nn__param_t *p =
                    (nn__param_t *)nn__grow(o->param, (uint64_t)o->nparams, (uint64_t)cap, sizeof *p);
                if (!p) { return TENSOR_ERR_OUT_OF_MEMORY; }
                o->param = p;
                nn__job_t *j;
                j = (nn__job_t *)nn__grow(o->job, 0, (uint64_t)cap, sizeof *j);
                if (!j) { return TENSOR_ERR_OUT_OF_MEMORY; }
                o->job = j;
                nn__update_t *u;
                u = (nn__update_t *)nn__grow(o->update, 0, (uint64_t)cap, sizeof *u);
                if (!u) { return TENSOR_ERR_OUT_OF_MEMORY; }
                o->update = u;
                o->cap = cap;
            }
            o->param[o->nparams++].t = TENSOR__(hold)(t);
        }
        o->param[k].group = g;
    }
    return TENSOR_OK;
}

// The group with these options, a new one if there is none; < 0 after raising.
TENSOR__FN int nn__find_group(nn_optimizer_t *o, double ratio, double weight_decay) {
    nn__group_t *g = o->group;
    for (int i = 0; i < o->ngroups; i++) {
        if (g[i].ratio == ratio && g[i].weight_decay == weight_decay) { return i; }
    }
    g = (nn__group_t *)nn__grow(g, (uint64_t)o->ngroups, (uint64_t)o->ngroups + 1, sizeof *g);
    if (!g) { return -1; }
    o->group = g;
    g[o->ngroups].ratio = ratio;
    g[o->ngroups].weight_decay = weight_decay;
    return o->ngroups++;
}

TENSOR__FN nn_optimizer_t *nn__optimizer(const nn__rule_t *rule, const double *option, nn_module_t *m,
                                         tensor_t *const *list, int count, const char *site, int code) {
    const char *name = rule->name;
    nn_optimizer_t *o = NULL;
    tensor_t **all = NULL;
    void *block = NULL;
    if (code == TENSOR_OK && option[NN__NESTEROV] != 0 &&
        (option[NN__MOMENTUM] == 0 || option[NN__DAMPENING] != 0)) {
        code = NN__ERROR(TENSOR_ERR_SHAPE, "%s: nesterov needs a momentum and no dampening", name);
    }
    if (code == TENSOR_OK && rule->takes == NN__ROWS_ONLY && !(option[NN__LR] > 0 && option[NN__EPS] > 0)) {
        code = NN__ERROR(TENSOR_ERR_SHAPE, "%s: lr and eps must be > 0", name);
    }
    if (code == TENSOR_OK && rule->takes == NN__CLOSURE && option[NN__HISTORY] < 1) {
        code = NN__ERROR(TENSOR_ERR_SHAPE, "%s: history_size must be > 0", name);
    }
    if (code == TENSOR_OK && !list && !m && count > 0) { code = nn__poisoned(name, "the list", list); }
    nn__items_t items;
    int64_t i;
    if (code == TENSOR_OK && !list) {
        block = nn__collect(m, name, &items);
        if (block) { all = (tensor_t **)nn__memory((uint64_t)items.n, sizeof(tensor_t *)); }
        if (!all) { code = TENSOR_ERR_OUT_OF_MEMORY; }
        for (i = 0, count = 0; all && i < items.n; i++) {
            if (items.item[i].first == i && items.item[i].slot->kind == NN__PARAMETER) {
                all[count++] = items.item[i].tensor;
            }
        }
        list = all;
    }
    if (code == TENSOR_OK && count < 1) {
        code = NN__ERROR(TENSOR_ERR_SHAPE, "%s: no parameters", name);
    }
    if (code == TENSOR_OK) {
        o = (nn_optimizer_t *)TENSOR__(object)(nn__self(), TENSOR__OPTIMIZER, sizeof *o);
        if (!o) { code = TENSOR_ERR_OUT_OF_MEMORY; }
    }
    if (o) {
        o->rule = rule;
        o->site = site;
        memcpy(o->option, option, sizeof o->option);
        o->owned.destroy = nn__optimizer_shutdown;
        TENSOR__(own)(nn__self(), &o->owned);
        if (nn__find_group(o, 1, option[NN__DECAY]) < 0) {
            code = TENSOR_ERR_OUT_OF_MEMORY;
        } else {
            code = nn__add_params(o, list, count, 0);
        }
        if (code != TENSOR_OK) {
            nn__optimizer_close(o);
            o = NULL;
        }
    }
    nn__free(all);
    nn__free(block);
    TENSOR__(pop_path)(nn__self());
    if (site) { (void)tensor__at_ptr(site, o); }
    return o;
}

TENSOR__FN double nn__option_below(int option) {
    if (option == NN__BETA1 || option == NN__BETA2 || option == NN__RHO) { return 1; }
    if (option == NN__NS_STEPS) { return 100; }
    if (option == NN__ADJUST) { return NN_SPECTRAL_UNCLAMPED + 1; }
    if (option == NN__SEARCH) { return NN_STRONG_WOLFE + 1; }
    if (option == NN__MAX_ITER || option == NN__MAX_EVAL || option == NN__HISTORY) { return 2147483648.0; }
    if (option == NN__PAIRS) { return 9e15; }
    return 1e300;
}

TENSOR__FN int nn__option_holds(int option, double v) {
    return (v >= 0 && v < nn__option_below(option)) || (v == 1 && option == NN__RHO) ||
           (v - v == 0 && (option == NN__DAMPENING || (option >= NN__NS_A && option <= NN__NS_C)));
}

// Checks that an option is in its range. -> code
TENSOR__FN int nn__option(const char *op, const char *name, int option, double v, double *to) {
    double below = nn__option_below(option);
    *to = v;
    if (nn__option_holds(option, v)) { return TENSOR_OK; }
    return NN__ERROR(TENSOR_ERR_SHAPE, "%s: %s must be >= 0 and %s %g (got %g)", op, name,
                     option == NN__RHO ? "<=" : "<", below, v);
}

// nn_name_with and nn_name_defaults of each row.
#define NN__NUMBER(option, member, value) NN__OR(member, value)
#define NN__FLAG(option, member)
#define NN__ALWAYS_ON(option)
#define NN__OPTIMIZER_DEFAULTS(name, step, takes, value, states, options)                                    \
    NN__FILL_DEFAULTS(nn_##name, NN__OR(lr, value) options)
NN__OPTIMIZERS(NN__OPTIMIZER_DEFAULTS)
#undef NN__NUMBER
#undef NN__FLAG
#undef NN__ALWAYS_ON
#define NN__NUMBER(option, member, value)                                                                    \
    if (code == TENSOR_OK) code = nn__option(op, #member, NN__##option, a.member, &v[NN__##option]);
#define NN__FLAG(option, member) v[NN__##option] = a.member != 0;
#define NN__ALWAYS_ON(option) v[NN__##option] = 1;
#define NN__OPTIMIZER(name, step, takes, value, states, options)                                             \
    TENSOR_API nn_optimizer_t *nn_##name##_with(nn_##name##_args_t a) {                                      \
        const char *op = #name;                                                                              \
        double v[NN__OPTIONS] = {0};                                                                         \
        int code;                                                                                            \
        TENSOR__(push_path)(nn__self(), op);                                                                 \
        code = NN__TAKE(op, nn_##name, a) ? TENSOR_OK : TENSOR_ERR_SHAPE;                                    \
        NN__NUMBER(LR, lr, value)                                                                            \
        NN__FLAG(MAXIMIZE, maximize)                                                                         \
        options                                                                                              \
        return nn__optimizer(&nn__rule_##name, v, a.module, a.list, a.count, a.site_, code);                 \
    }
NN__OPTIMIZERS(NN__OPTIMIZER)

TENSOR_API int nn__optimizer_group(nn_optimizer_t *o, tensor_t *const *list, int n, nn_group_args_t a) {
    double lr = a.lr, decay = a.weight_decay;
    int code = nn__bad_optimizer("optimizer_group", o);
    if (code == TENSOR_OK && nn__too_many("optimizer_group", a.site_, a.options_are_named_)) {
        code = TENSOR_ERR_SHAPE;
    }
    if (code == TENSOR_OK && !list && n > 0) { code = nn__poisoned("optimizer_group", "the list", list); }
    if (code == TENSOR_OK && n < 0) {
        code = NN__ERROR(TENSOR_ERR_SHAPE, "optimizer_group: %d parameters", (int64_t)n);
    }
    if (code != TENSOR_OK) { return tensor__at_int(a.site_, code); }
    if (o->rule->takes == NN__CLOSURE) {
        return tensor__at_int(a.site_, NN__ERROR(TENSOR_ERR_UNSUPPORTED, "optimizer_group: %s has one group",
                                                 o->rule->name));
    }
    if (lr == 0) {
        lr = o->option[NN__LR];
    } else if (lr == TENSOR_ZERO) {
        lr = 0;
    }
    if (decay == 0) {
        decay = o->option[NN__DECAY];
    } else if (decay == TENSOR_ZERO) {
        decay = 0;
    }
    if (!(lr >= 0) || !(decay >= 0) || (o->option[NN__LR] == 0 && lr != 0)) {
        NN__FAIL(TENSOR_ERR_SHAPE,
            "optimizer_group: lr and weight_decay must be >= 0, and lr 0 if the optimizer's is (got %g, %g)",
            lr, decay);
        return tensor__at_int(a.site_, TENSOR_ERR_SHAPE);
    }
    int g = nn__find_group(o, o->option[NN__LR] > 0 ? lr / o->option[NN__LR] : 1, decay);
    code = g < 0 ? TENSOR_ERR_OUT_OF_MEMORY : nn__add_params(o, list, n, g);
    return tensor__at_int(a.site_, code);
}

// ------------------------------------------------------------------------------
// The step
// ------------------------------------------------------------------------------

// Whether the options of this optimizer use state k.
TENSOR__FN int nn__uses_state(const nn_optimizer_t *o, int k) {
    int needs = o->rule->state[k].needs;
    return o->rule->state[k].name && (needs == NN__ALWAYS || o->option[needs] != 0);
}

// Computes what depends on the step; t = 1 is the first.
TENSOR__FN void nn__at_step(nn__update_t *u, double t) {
    u->at = t;
    u->of->at(u, t);
}

// The numbers of group g at step t (1 = first).
TENSOR__FN void nn__numbers(const nn_optimizer_t *o, int g, int64_t t, nn__update_t *u) {
    const double *v = o->option;
    double lr = v[NN__LR] * o->group[g].ratio, decay = o->group[g].weight_decay;
    memset(u, 0, sizeof *u);
    u->of = o->rule->of;
    u->formula = o->rule->formula;
    u->by_rows = o->rule->takes == NN__ROWS_ONLY;
    u->lr = -lr;
    u->weight_decay = decay;
    u->shrink = 1 - lr * decay;
    u->decoupled = v[NN__DECOUPLED] != 0 && decay != 0;
    u->decay = v[NN__DECOUPLED] == 0 && decay != 0;
    u->maximize = v[NN__MAXIMIZE] != 0;
    u->momentum = v[NN__MOMENTUM];
    u->rest = 1 - v[NN__DAMPENING];
    u->nesterov = v[NN__NESTEROV] != 0;
    u->beta1 = v[NN__BETA1];
    u->beta2 = v[NN__BETA2] + v[NN__RHO];   // a rule has one of the two
    u->rest1 = 1 - u->beta1;
    u->rest2 = 1 - u->beta2;
    u->lerp_back = u->rest1 >= 0.5;
    u->eps = v[NN__EPS];
    u->drag = v[NN__DRAG];
    nn__at_step(u, (double)t);
}

typedef struct nn__stepping_t { const tensor_call_t *c; nn__update_t u; } nn__stepping_t;

// task counts chunks over all parameters.
TENSOR__FN void nn__step_task(void *arg, int64_t task, int worker) {
    const nn__stepping_t *s = (const nn__stepping_t *)arg;
    const tensor_arg_t *a = s->c->arg + 2;

    // NULL, or the row of x and its states for each row of g; < 0 = none
    (void)worker;
    for (; task >= nn__ceil(a[1].numel, NN__CHUNK); a += 5) { task -= nn__ceil(a[1].numel, NN__CHUNK); }
    const int64_t *rows = a[4].dtype == TENSOR_I64 ? (const int64_t *)a[4].data : NULL;
    int64_t width = rows ? a[1].dims[1] : a[1].numel;
    size_t size = a->dtype == TENSOR_F64 ? 8 : 4;
    int64_t from = task * NN__CHUNK;
    char *at[5];
    int64_t n;
    for (int64_t end = nn__min(a[1].numel, from + NN__CHUNK); from < end; from += n) {
        n = nn__min(end - from, width - from % width);
        int64_t to = rows ? rows[from / width] * width + from % width : from;
        if (to < 0) { continue; }
        for (int k = 0; k < 5; k++) {
            at[k] = (char *)a[k].data;
            if (at[k]) { at[k] += (size_t)(k == 1 ? from : to) * size; }
        }
        if (rows) { at[4] = NULL; }
        s->u.of->step(nn__cpu(a->dtype)->place)(&s->u, at[0], at[1], at[2], at[3], at[4], n);
    }
}

// The first row of OPTIMIZER, which updates parameters; no tape sees it.
TENSOR__FN int nn__cpu_step(tensor_call_t *c) {
    const float *skip = (const float *)c->arg[1].data;
    int64_t tasks = 0, total = 0;
    nn__stepping_t s;
    s.c = c;
    s.u = *(const nn__update_t *)c->arg[0].data;
    if (skip && skip[0] != 0) { return TENSOR_OK; }
    if (skip && skip[1] > 0) { nn__at_step(&s.u, s.u.at - (double)skip[1]); }
    for (int64_t i = 2; i < c->nin + c->nout; i += 5) {
        tasks += nn__ceil(c->arg[i + 1].numel, NN__CHUNK);
        total += c->arg[i + 1].numel;
    }
    if (total >= NN__PARALLEL_FROM) {
        TENSOR__(parallel)(tasks, nn__step_task, &s);
    } else {
        for (int64_t i = 0; i < tasks; i++) { nn__step_task(&s, i, 0); }
    }
    return TENSOR_OK;
}

static const tensor__row_t nn__step_row = {"step", TENSOR_FAMILY_OPTIMIZER, -1, 0, 0, 0, 0, NN_OP_STEP, 0,
                                           NULL, nn__cpu_step, NULL, NULL, NULL};

TENSOR__FN void nn__step_arg(tensor_arg_t *a, tensor_t *t, int role) {
    if (t) {
        TENSOR__(arg)(a, t, role);
    } else {
        memset(a, 0, sizeof *a);
    }
}

// Calls one of these rows with the arguments a. -> code
TENSOR__FN int nn__optimizer_call(const tensor__row_t *row, int kind, tensor_arg_t *a, int nin, int nout,
                                  int device) {
    tensor_params_t p;
    memset(&p, 0, sizeof p);
    tensor_call_t c;
    memset(&c, 0, sizeof c);
    p.optimizer.kind = kind;
    c.row = row;
    c.arg = a;
    c.nin = nin;
    c.nout = nout;
    c.p = &p;
    c.device = (uint8_t)device;
    c.thread = TENSOR__(self)();
    return TENSOR__(launch)(&c);
}

// All jobs with the device, update and dtype of `like`; a: room for their arguments. -> code
TENSOR__FN int nn__step_on(nn_optimizer_t *o, const nn__job_t *like, tensor_arg_t *a, tensor_t *skip) {
    int n = 2;
    nn__step_arg(&a[0], NULL, TENSOR_READ);
    a[0].data = &o->update[like->update];
    nn__step_arg(&a[1], skip, TENSOR_READ);
    for (int i = 0; i < o->njobs; i++) {
        nn__job_t *j = &o->job[i];
        if (j->from->device != like->from->device || j->update != like->update ||
            j->from->dtype != like->from->dtype) {
            continue;
        }
        j->done = (int)(like - o->job) + 1;
        nn__step_arg(&a[n++], j->from, TENSOR_UPDATE);
        nn__step_arg(&a[n++], j->grad, TENSOR_READ);
        for (int k = 0; k < NN__MAX_STATE; k++) {
            nn__step_arg(&a[n++], j->state ? NULL : j->param->state[k], TENSOR_UPDATE);
        }
        // Rules that accept rows have no third state; its argument is the list of rows.
        if (j->rows) { nn__step_arg(&a[n - 1], j->rows, TENSOR_READ); }
    }
    return nn__optimizer_call(&nn__step_row, o->rule->formula, a, 2, n - 2, like->from->device);
}

// A step that a device records (captures): what each of its replays must do on the host.
typedef struct nn__again_t {
    nn_optimizer_t *o;
    int n, owes, *param, *at;   // whose numbers are in update[at]
    nn__update_t *update;
} nn__again_t;

TENSOR__FN void nn__again(void *user, int run) {
    nn__again_t *a = (nn__again_t *)user;
    if (!run) { nn__free(a); }
    if (!run || nn__bad_optimizer("step", a->o) != TENSOR_OK) { return; }
    for (int i = 0; i < a->n; i++) {
        nn__param_t *p = &a->o->param[a->param[i]];
        p->step++;
        p->owes |= a->owes;
        a->o->owes |= a->owes;
        if (!i || a->at[i] != a->at[i - 1]) { nn__numbers(a->o, p->group, p->step, &a->update[a->at[i]]); }
    }
}

// NULL = nothing is being recorded, or an error was raised.
TENSOR__FN nn__again_t *nn__step_again(nn_optimizer_t *o, int nupdates, int owes) {
    uint64_t n = (uint64_t)o->njobs, numbers = (uint64_t)nupdates * sizeof(nn__update_t);
    int device = 0;
    for (int i = 0; i < o->njobs; i++) { device = o->job[i].from->device ? o->job[i].from->device : device; }
    if (!TENSOR__(recording)(nn__self(), device, NULL, NULL)) { return NULL; }
    nn__again_t *a;
    a = (nn__again_t *)nn__memory(1, sizeof *a + numbers + 2 * n * sizeof(int));
    if (!a) { return NULL; }
    a->o = o;
    a->owes = owes;
    a->update = (nn__update_t *)(void *)(a + 1);
    a->param = (int *)(void *)(a->update + nupdates);
    a->at = a->param + n;
    memcpy(a->update, o->update, (size_t)numbers);
    for (int i = 0; i < o->njobs; i++) {
        a->param[a->n] = (int)(o->job[i].param - o->param);
        a->at[a->n++] = o->job[i].update;
    }
    TENSOR__(recording)(nn__self(), device, nn__again, a);
    return a;
}

// A held tensor filled with v on like's device, f64 if like is f64, else f32; NULL after raising.
TENSOR__FN tensor_t *nn__full_held(const tensor_t *like, double v) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *t =
        (tensor_full_n)(like->dims, like->ndim, v, like->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32);
    t = nn__beside(t, like);
    t = (tensor_is_poison)(t) ? NULL : TENSOR__(hold)(t);
    (tensor_scope_end)(scope);
    return t;
}

TENSOR__FN int nn__plain(const tensor_t *t, int dtype) {
    return t->dtype == dtype && (t->flags & TENSOR__CONTIGUOUS) != 0;
}

// t itself if the kernels can read it as it is, else a contiguous copy, complete before anything changes.
TENSOR__FN tensor_t *nn__step_operand(tensor_t *t, int dtype) {
    return nn__plain(t, dtype) ? t : (tensor_clone)((tensor_to)(t, (tensor_dtype_t)dtype));
}

// Converts a state whose parameter changed between f64 and the other dtypes, or its device. -> code
TENSOR__FN int nn__bring(tensor_t *t, int dtype, int device) {
    tensor_t *fresh = (tensor_to)((tensor_to)(t, dtype), TENSOR_CPU + device);
    if ((tensor_is_poison)(fresh)) { return tensor_error_code(); }
    nn__exchange(t, fresh);
    return TENSOR_OK;
}

// Corrects the step counts for steps that were skipped. -> code
TENSOR__FN int nn__settle(nn_optimizer_t *o) {
    if (!o->owes) { return TENSOR_OK; }
    if (TENSOR__(recording)(nn__self(), o->skip->device, NULL, NULL)) {
        return NN__ERROR(TENSOR_ERR_UNSUPPORTED, "step: steps with the scaler came before the capture; take "
                         "a step as it is captured first");
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *gone = (tensor_select)(o->skip, 0, 1);
    int64_t n = (int64_t)(tensor_item)(gone);
    (tensor_zero_)(gone);
    int code = tensor_error_code();
    for (int i = 0; i < o->nparams && code == TENSOR_OK; i++) {
        nn__param_t *p = &o->param[i];
        if (p->owes) { p->step = nn__max(p->step - n, 0); }
        p->owes = 0;
    }
    if (code == TENSOR_OK) { o->owes = 0; }
    (tensor_scope_end)(scope);
    return code;
}

// Whether a step must settle first: a step without the scaler, or with other parameters than those that owe.
TENSOR__FN int nn__unsettled(const nn_optimizer_t *o, const tensor_t *skip) {
    for (int i = 0; i < o->nparams && o->owes && skip; i++) {
        const nn__param_t *p = &o->param[i];
        if ((p->t->grad && p->t->numel) != (p->owes != 0)) { return 1; }
    }
    return o->owes && !skip;
}

// The gradient that the optimizer uses for p, by rows if its rule can; poison = raised.
TENSOR__FN tensor_t *nn__step_grad(const nn_optimizer_t *o, const nn__param_t *p) {
    int rows = tensor__rows_of(p->t->grad) != NULL;
    if (rows ? o->rule->takes != NN__ROWS_TOO && o->rule->takes != NN__ROWS_ONLY
             : o->rule->takes == NN__ROWS_ONLY) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, rows ?
                        "%s: the gradient of %t is by rows (.sparse); sgd, adagrad, sparse_adam take it" :
                        "%s: the gradient of %t is not by rows: not of .sparse embeddings on the CPU alone, "
                        "or tensor_grad() was called", o->rule->name, p->t);
    }
    if (rows && o->group[p->group].weight_decay != 0) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "%s: weight_decay and the gradient of %t by rows (.sparse)",
                        o->rule->name, p->t);
    }
    return rows && o->option[NN__MOMENTUM] != 0 ? (tensor_grad)(p->t) : nn__stored_grad(p->t);
}

// Muon's step of p with gradient g, times r; *state: its momentum. poison = raised.
TENSOR__FN tensor_t *nn__orthogonal(const nn_optimizer_t *o, const nn__param_t *p, tensor_t *g,
                                    tensor_t *skip, tensor_t **state) {
    const double *v = o->option;
    double m = (double)p->t->dims[0], n = (double)p->t->dims[1];
    int adjust = (int)v[NN__ADJUST];
    double r;
    if (adjust == NN_ORIGINAL) {
        r = sqrt(m > n ? m / n : 1);
    } else if (adjust == NN_MATCH_RMS_ADAMW) {
        r = 0.2 * sqrt(m > n ? m : n);
    } else {
        r = sqrt(m / n);
    }
    tensor_t *b = (tensor_lerp_scalar)(p->state[0], g, 1 - v[NN__MOMENTUM]);
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *x =
        (tensor_to)(v[NN__PLAIN] != 0 ? b : (tensor_lerp_scalar)(g, b, v[NN__MOMENTUM]), TENSOR_BF16);
    if (m > n) { x = (tensor_mT)(x); }
    x = (tensor_div)(x, (tensor_clamp_min)((tensor_norm)(x), v[NN__EPS]));
    for (int k = 0; k < (int)v[NN__NS_STEPS]; k++) {
        tensor_t *y = (tensor_matmul)(x, (tensor_mT)(x));
        y = (tensor_addmm)(y, y, y, v[NN__NS_B], v[NN__NS_C]);
        x = (tensor_addmm)(x, y, x, v[NN__NS_A], 1);
    }
    if (m > n) { x = (tensor_mT)(x); }
    x = (tensor_mul_scalar)((tensor_to)(x, p->state[0]->dtype), r);
    x = (tensor_scope_return)(scope, x);
    if (skip) { b = (tensor_where)((tensor_ne_scalar)((tensor_select)(skip, 0, 0), 0), p->state[0], b); }
    *state = b;
    return (tensor_is_poison)(b) ? b : x;
}

// All that can fail comes before the first change, so that a step is made for every parameter or for none
// (on a device, a launch that fails leaves earlier groups changed).
TENSOR__FN int nn__step(nn_optimizer_t *o, tensor_t *skip) {
    int code = tensor_error_code(), nupdates = 0;
    nn__update_t *numbers = o ? o->update : NULL;
    nn__again_t *again = NULL;
    if (code != TENSOR_OK) { return code; }
    code = nn__bad_optimizer("step", o);
    if (code == TENSOR_OK && o->rule->takes == NN__CLOSURE) {
        code = NN__ERROR(TENSOR_ERR_UNSUPPORTED, "step: %s needs nn_step_closure", o->rule->name);
    }
    if (code == TENSOR_OK && nn__unsettled(o, skip)) { code = o->settle(o); }
    if (code != TENSOR_OK) { return code; }
    int i;
    for (i = 0; i < o->ngroups; i++) { o->group[i].step = -1; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    o->njobs = 0;
    int k;
    for (i = 0; i < o->nparams; i++) {
        nn__param_t *p = &o->param[i];
        nn__group_t *group = &o->group[p->group];
        int dtype = p->t->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
        nn__job_t *j = &o->job[o->njobs];
        if (!p->t->grad || p->t->numel == 0) { continue; }
        for (k = 0; k < NN__MAX_STATE; k++) {
            if (!nn__uses_state(o, k)) { continue; }
            if (!p->state[k] && TENSOR__(recording)(nn__self(), p->t->device, NULL, NULL)) {
                NN__FAIL(TENSOR_ERR_UNSUPPORTED,
                         "step: take a step before the capture, which makes the states");
            } else if (!p->state[k]) {
                p->state[k] = nn__full_held(p->t, o->option[NN__INITIAL]);
            }
            if (!p->state[k]) { break; }
            if (p->state[k]->dtype == dtype && p->state[k]->device == p->t->device) { continue; }
            if (nn__bring(p->state[k], dtype, p->t->device)) { break; }  // after nn_to
        }
        if (k < NN__MAX_STATE) { break; }
        j->param = p;
        j->from = nn__step_operand(p->t, dtype);
        tensor_t *g = nn__step_grad(o, p);
        j->rows = tensor__rows_of(g);
        j->state = NULL;
        if (!(tensor_is_poison)(g)) { g = nn__step_operand(g, dtype); }
        if (!(tensor_is_poison)(g) && o->rule->ways->turned) {
            g = nn__step_operand(o->rule->ways->turned(o, p, g, skip, &j->state), dtype);
        }
        if ((tensor_is_poison)(j->from) || (tensor_is_poison)(g)) { break; }
        if (p->step + 1 != group->step) {
            group->step = p->step + 1;
            group->update = nupdates;
            nn__numbers(o, p->group, p->step + 1, &o->update[nupdates++]);
        }
        j->grad = g;
        j->update = group->update;
        j->done = 0;
        o->njobs++;
    }
    code = i < o->nparams ? tensor_error_code() : TENSOR_OK;
    tensor_arg_t *a;
    a = code ? NULL : (tensor_arg_t *)nn__lent((uint64_t)o->njobs * 5 + 2, sizeof *a);
    if (a) { again = nn__step_again(o, nupdates, skip != NULL); }
    if (again) { o->update = again->update; }
    code = tensor_error_code();
    for (i = 0; i < o->njobs && code == TENSOR_OK; i++) {
        if (o->job[i].done) { continue; }
        code = nn__step_on(o, &o->job[i], a, skip);
        for (k = i; k < o->njobs && code != TENSOR_OK; k++) {
            if (o->job[k].done == i + 1) { o->job[k].done = 0; }
        }
    }
    o->update = numbers;
    for (i = 0; i < o->njobs; i++) {
        nn__param_t *p = o->job[i].param;
        if (!o->job[i].done) { continue; }
        if (o->job[i].from != p->t && (tensor_is_poison)(TENSOR__(write)(p->t, o->job[i].from))) {
            code = tensor_error_code();
        }
        if (o->job[i].state && (tensor_is_poison)(TENSOR__(write)(p->state[0], o->job[i].state))) {
            code = tensor_error_code();
        }
        p->step += again == NULL;
        if (skip && !again) { p->owes = o->owes = 1; }
    }
    (tensor_scope_end)(scope);
    return code;
}

TENSOR_API int (nn_step)(nn_optimizer_t *o) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int)TENSOR_ERR_UNSUPPORTED, "step"); }
    return nn__step(o, NULL);
}

// L-BFGS, where all parameters are one vector. Its states belong to parameter 0. old_dirs and old_stps
// [room, N] are the last changes y of the gradient and s of the parameters; room grows up to HISTORY, change
// k is in row k % HISTORY, and there have been PAIRS of them so far. d [2, N] is the direction and the
// gradient before it; the last step was LENGTH times the direction. Scalars go through double on the host.
typedef struct nn__search_t {
    nn_optimizer_t *o;
    tensor_t *(*closure)(void *user);
    void *user;
    tensor_t *x, *d, *g[3];             // start of the search, its direction, gradients
    int calls;
} nn__search_t;

// The parameters, or their gradients (0 where there are none), as one vector; f64 if one of them is, else
// f32. -> [N]
TENSOR__FN tensor_t *nn__vector(const nn_optimizer_t *o, int gradients) {
    tensor_t **part = (tensor_t **)nn__memory((uint64_t)o->nparams, sizeof *part);
    tensor_scope_t scope = TENSOR__(scope)(0);
    int64_t flat = -1;
    for (int i = 0; part && i < o->nparams; i++) {
        tensor_t *t = o->param[i].t;
        if (gradients) { t = t->grad ? (tensor_grad)(t) : (tensor_zeros_like)(t); }
        t = (tensor_reshape_n)((tensor_detach)(t), &flat, 1);
        part[i] = t->dtype == TENSOR_F64 ? t : (tensor_to)(t, TENSOR_F32);
    }
    tensor_t *all = part ? (tensor_cat_n)(part, o->nparams, 0) : TENSOR__(poison);
    if (gradients && o->option[NN__MAXIMIZE] != 0) { all = (tensor_neg)(all); }
    nn__free(part);
    return (tensor_scope_return)(scope, all);
}

// Ends the scope in which r was computed. -> the value of r, NaN after raising
TENSOR__FN double nn__ended(tensor_scope_t scope, tensor_t *r) {
    double v = (tensor_item)(r);
    (tensor_scope_end)(scope);
    return v;
}

TENSOR__FN double nn__dot(tensor_t *a, tensor_t *b) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    return nn__ended(scope, (tensor_dot)(a, b));
}

TENSOR__FN double nn__largest(tensor_t *x) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    return nn__ended(scope, (tensor_max)((tensor_abs)(x)));
}

// y += a x
TENSOR__FN void nn__add_scaled(tensor_t *y, double a, tensor_t *x) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    (tensor_add_)(y, (tensor_mul_scalar)(x, a));
    (tensor_scope_end)(scope);
}

// Sets the parameters to x + t d.
TENSOR__FN void nn__place(const nn__search_t *s, double t) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *to = (tensor_add)(s->x, (tensor_mul_scalar)(s->d, t));
    int64_t at = 0;
    for (int i = 0; i < s->o->nparams && tensor_error_code() == TENSOR_OK; i++) {
        tensor_t *p = s->o->param[i].t;
        (tensor_copy_)(p, (tensor_view_as)((tensor_narrow)(to, 0, at, p->numel), p));
        at += p->numel;
    }
    (tensor_scope_end)(scope);
}

// The loss at the current parameters, with its gradient in g[k]; first, if not NULL, receives the closure's
// tensor.
TENSOR__FN double nn__evaluate(nn__search_t *s, int k, tensor_t **first) {
    tensor_scope_t scope = TENSOR__(scope)(1);
    tensor_t *y = s->closure(s->user);
    if (!y && tensor_error_code() == TENSOR_OK) {
        NN__FAIL(TENSOR_ERR_POISONED, "step_closure: the closure returned NULL");
    }
    double loss = tensor_error_code() == TENSOR_OK ? (tensor_item)(y) : (double)NAN;
    s->calls++;
    if (tensor_error_code() == TENSOR_OK && s->g[k]) { (tensor_copy_)(s->g[k], nn__vector(s->o, 1)); }
    if (first) {
        *first = (tensor_scope_return)(scope, y);
    } else {
        (tensor_scope_end)(scope);
    }
    return s->o->option[NN__MAXIMIZE] != 0 ? -loss : loss;
}

TENSOR__FN double nn__try(nn__search_t *s, double t, int k, double *slope) {
    nn__place(s, t);
    double loss = nn__evaluate(s, k, NULL);
    *slope = nn__dot(s->g[k], s->d);
    return loss;
}

typedef struct nn__point_t {
    double t, loss, slope;              // at x + t d
    int g;                              // which of the gradients
} nn__point_t;

// The position in lo..hi where the cubic through two points has its minimum.
TENSOR__FN double nn__cubic(const nn__point_t *a, const nn__point_t *b, double lo, double hi) {
    if (a->t > b->t) { return nn__cubic(b, a, lo, hi); }
    double v = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t);
    double root = v * v - a->slope * b->slope;
    if (!(root >= 0)) { return (lo + hi) / 2; }
    root = sqrt(root);
    double t = b->t - (b->t - a->t) * ((b->slope + root - v) / (b->slope - a->slope + 2 * root));
    if (t < lo) { return lo; }
    if (t > hi) { return hi; }
    return t;
}

// A step length that meets the strong Wolfe conditions, beginning with t, with at most `most` more calls.
// g[0] has the gradient at x and receives the one at the result. First a bracket is found, then it is
// narrowed.
TENSOR__FN double nn__strong_wolfe(nn__search_t *s, double *loss, double slope, double t, double most) {
    const double enough = 1e-4 * slope, flat = -0.9 * slope, change = s->o->option[NN__CHANGE_TOL];
    double largest = nn__largest(s->d);
    nn__point_t at[2];                  // the ends of the bracket; before there is one, at[0]
    int i = 0, low = 1, done = 0, stuck = 0;
    at[0].t = 0;
    at[0].loss = *loss;
    at[0].slope = slope;
    at[0].g = 0;
    at[1].g = 1;
    at[1].t = t;
    at[1].loss = nn__try(s, t, 1, &at[1].slope);
    for (; i < most && tensor_error_code() == TENSOR_OK; i++) {
        if (at[1].loss > *loss + at[1].t * enough || (i > 1 && at[1].loss >= at[0].loss)) { break; }
        done = fabs(at[1].slope) <= flat;
        if (done || at[1].slope >= 0) { break; }
        t = nn__cubic(&at[0], &at[1], at[1].t + 0.01 * (at[1].t - at[0].t), at[1].t * 10);
        at[0] = at[1];
        at[1].g = 3 - at[0].g;          // g[0] is kept
        at[1].t = t;
        at[1].loss = nn__try(s, t, at[1].g, &at[1].slope);
    }
    if (i == most) {
        at[0].t = 0;
        at[0].loss = *loss;
        at[0].g = 0;
    }
    if (!done) { low = at[0].loss <= at[1].loss ? 0 : 1; }
    int spare = 3 - at[0].g - at[1].g;
    nn__point_t fresh;
    while (!done && i < most && tensor_error_code() == TENSOR_OK) {
        double bottom = at[0].t < at[1].t ? at[0].t : at[1].t;
        double top = at[0].t < at[1].t ? at[1].t : at[0].t;
        if ((top - bottom) * largest < change) { break; }
        t = nn__cubic(&at[0], &at[1], bottom, top);
        double margin = 0.1 * (top - bottom);
        if (top - t < margin || t - bottom < margin) {          // too near to an end for the second time
            if (stuck || t >= top || t <= bottom) {
                t = fabs(t - top) < fabs(t - bottom) ? top - margin : bottom + margin;
                stuck = 0;
            } else {
                stuck = 1;
            }
        } else {
            stuck = 0;
        }
        fresh.t = t;
        fresh.g = spare;
        fresh.loss = nn__try(s, t, spare, &fresh.slope);
        i++;
        if (fresh.loss > *loss + t * enough || fresh.loss >= at[low].loss) {
            spare = at[!low].g;
            at[!low] = fresh;
            low = at[0].loss <= at[1].loss ? 0 : 1;
        } else {
            done = fabs(fresh.slope) <= flat;
            if (!done && fresh.slope * (at[!low].t - at[low].t) >= 0) {
                spare = at[!low].g;
                at[!low] = at[low];
            } else {
                spare = at[low].g;
            }
            at[low] = fresh;
        }
    }
    tensor_t *g = s->g[at[low].g];
    s->g[at[low].g] = s->g[0];
    s->g[0] = g;
    *loss = at[low].loss;
    return at[low].t;
}

// State k of lbfgs with at least these rows, with the dtype and device of g [N]; NULL after raising.
TENSOR__FN tensor_t *nn__rows_state(nn_optimizer_t *o, int k, int64_t rows, tensor_t *g) {
    tensor_t **state = &o->param[0].state[k], *old = *state;
    if (old && (old->ndim != 2 || old->dims[1] != g->numel)) {
        return NN__GIVE((tensor_t *)NULL, TENSOR_ERR_SHAPE, "lbfgs: %d elements, and %t from the step before",
                        g->numel, old);
    }
    if (old && (old->dtype != g->dtype || old->device != g->device) &&
        nn__bring(old, g->dtype, g->device) != TENSOR_OK) {
        return NULL;
    }
    if (old && old->dims[0] >= rows) { return old; }
    int64_t dims[2];
    dims[0] = old ? rows - old->dims[0] : rows;
    dims[1] = g->numel;
    tensor_t *list[2];
    list[0] = old;
    tensor_t *fresh;
    list[1] = fresh = nn__beside((tensor_zeros_n)(dims, 2, (tensor_dtype_t)g->dtype), g);
    if (old) { fresh = (tensor_cat_n)(list, 2, 0); }
    if ((tensor_is_poison)(fresh)) { return NULL; }
    *state = TENSOR__(hold)(fresh);
    if (old) { TENSOR__(drop)(old); }
    return fresh;
}

// Computes the direction d for gradient g after the last step, and adds that step to the history. -> code
TENSOR__FN int nn__direction(nn_optimizer_t *o, tensor_t *d, tensor_t *before, tensor_t *g) {
    double *v = o->option, scale = 1;
    int64_t history = nn__max((int64_t)v[NN__HISTORY], 1), count = (int64_t)v[NN__PAIRS];
    tensor_t *y = (tensor_sub)(g, before), *s = (tensor_mul_scalar)(d, v[NN__LENGTH]);
    int64_t need = nn__min(count + 1, history);
    int64_t have = o->param[0].state[0] ? o->param[0].state[0]->dims[0] : 0;
    if (need > have) { have = nn__min(history, nn__max(need, 2 * have)); }
    tensor_t *dirs = nn__rows_state(o, 0, have, g);
    tensor_t *steps = dirs ? nn__rows_state(o, 1, have, g) : NULL;
    double *room = steps ? (double *)nn__memory(2 * (uint64_t)need, sizeof(double)) : NULL;
    if (!room) { return tensor_error_code(); }
    if (nn__dot(y, s) > 1e-10) {
        (tensor_copy_)((tensor_select)(dirs, 0, count % history), y);
        (tensor_copy_)((tensor_select)(steps, 0, count % history), s);
        v[NN__PAIRS] = (double)++count;
    }
    (tensor_copy_)(d, (tensor_neg)(g));
    int64_t i, k;
    for (i = count - 1; i >= 0 && i >= count - history; i--) {
        k = i % history;
        y = (tensor_select)(dirs, 0, k);
        s = (tensor_select)(steps, 0, k);
        room[2 * k] = nn__dot(y, s);
        room[2 * k + 1] = nn__dot(s, d) / room[2 * k];
        nn__add_scaled(d, -room[2 * k + 1], y);
        if (i == count - 1) { scale = room[2 * k] / nn__dot(y, y); }
    }
    (tensor_mul_scalar_)(d, scale);
    for (i++; i < count; i++) {
        k = i % history;
        y = (tensor_select)(dirs, 0, k);
        nn__add_scaled(d, room[2 * k + 1] - nn__dot(y, d) / room[2 * k], (tensor_select)(steps, 0, k));
    }
    nn__free(room);
    return tensor_error_code();
}

TENSOR__FN tensor_t *nn__lbfgs(nn__search_t *s) {
    nn_optimizer_t *o = s->o;
    double *v = o->option;
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *first = NULL;
    double calls = v[NN__MAX_EVAL] > 0 ? v[NN__MAX_EVAL] : floor(v[NN__MAX_ITER] * 5 / 4);
    o->stepping = 1;
    double loss = nn__evaluate(s, 0, &first);
    s->g[0] = tensor_error_code() == TENSOR_OK ? nn__vector(o, 1) : TENSOR__(poison);
    int k;
    for (k = 1; k < 3; k++) { s->g[k] = v[NN__SEARCH] != 0 ? (tensor_zeros_like)(s->g[0]) : NULL; }
    tensor_t *state = (tensor_is_poison)(s->g[0]) ||
        !s->g[0]->numel ? NULL : nn__rows_state(o, 2, 2, s->g[0]);
    double t;
    for (int i = 0; state && i < (int)v[NN__MAX_ITER] && tensor_error_code() == TENSOR_OK; i++) {
        if (i == 0 && nn__largest(s->g[0]) <= v[NN__GRAD_TOL]) { break; }
        tensor_scope_t turn = TENSOR__(scope)(0);
        s->d = (tensor_select)(state, 0, 0);
        tensor_t *last = (tensor_select)(state, 0, 1);
        if (o->param[0].step++ == 0) {
            (tensor_copy_)(s->d, (tensor_neg)(s->g[0]));
            t = 1 / (tensor_item)((tensor_sum)((tensor_abs)(s->g[0])));
            t = v[NN__LR] * (t < 1 ? t : 1);
        } else {
            nn__direction(o, s->d, last, s->g[0]);
            t = v[NN__LR];
        }
        (tensor_copy_)(last, s->g[0]);
        double before = loss;
        double slope = nn__dot(s->g[0], s->d);
        k = tensor_error_code() == TENSOR_OK && !(slope > -v[NN__CHANGE_TOL]);      // whether to continue
        v[NN__LENGTH] = t;
        if (k) {
            s->x = nn__vector(o, 0);
            if (v[NN__SEARCH] != 0) {
                t = nn__strong_wolfe(s, &loss, slope, t, calls - s->calls);
            }
            if (tensor_error_code() == TENSOR_OK) { nn__place(s, v[NN__LENGTH] = t); }
            k = i + 1 < (int)v[NN__MAX_ITER];
            if (k && v[NN__SEARCH] == 0) { loss = nn__evaluate(s, 0, NULL); }
            k = k && tensor_error_code() == TENSOR_OK && s->calls < calls &&
                !(nn__largest(s->g[0]) <= v[NN__GRAD_TOL]) &&
                !(nn__largest(s->d) * fabs(t) <= v[NN__CHANGE_TOL]) &&
                !(fabs(loss - before) < v[NN__CHANGE_TOL]);
        }
        (tensor_scope_end)(turn);
        if (!k) { break; }
    }
    o->stepping = 0;
    if (tensor_error_code() != TENSOR_OK) { first = TENSOR__(poison); }
    return (tensor_scope_return)(scope, first);
}

TENSOR_API tensor_t *(nn_step_closure)(nn_optimizer_t *o, tensor_t *(*closure)(void *user), void *user) {
    tensor_t *loss = NULL;
    if (!TENSOR__TRAINS) { return NN__UNTRAINED(TENSOR__(poison), "step_closure"); }
    nn__search_t s;
    memset(&s, 0, sizeof s);
    s.o = o;
    s.closure = closure;
    s.user = user;
    if (tensor_error_code() != TENSOR_OK || nn__busy_optimizer("step_closure", o) != TENSOR_OK) {
        return TENSOR__(poison);
    }
    if (!closure) { return NN__FAIL(TENSOR_ERR_POISONED, "step_closure: the closure is NULL"); }
    if (o->rule->ways->minimize) { return o->rule->ways->minimize(&s); }
    nn__evaluate(&s, 0, &loss);
    return tensor_error_code() == TENSOR_OK && nn__step(o, NULL) == TENSOR_OK ? loss : TENSOR__(poison);
}

TENSOR_API int (nn_zero_grad)(nn_optimizer_t *o) {
    int code = nn__bad_optimizer("zero_grad", o);
    if (code != TENSOR_OK) { return code; }
    for (int i = 0; i < o->nparams; i++) {
        if (o->param[i].t->grad) { (tensor_set_grad)(o->param[i].t, NULL); }
    }
    o->unscaled = 0;
    return TENSOR_OK;
}

TENSOR_API int (nn_set_lr)(nn_optimizer_t *o, double lr) {
    int code = nn__bad_optimizer("set_lr", o);
    if (code != TENSOR_OK) { return code; }
    if (!(lr >= 0)) { return NN__ERROR(TENSOR_ERR_SHAPE, "set_lr: lr must be >= 0 (got %g)", lr); }
    o->option[NN__LR] = lr;
    return TENSOR_OK;
}

TENSOR_API double nn_get_lr(nn_optimizer_t *o) {
    return o && !o->dead ? o->option[NN__LR] : (double)NAN;
}

// ------------------------------------------------------------------------------
// >>impl-clip                                      MARK: clipping, loss scaling
//
// Norms and scales over the gradients of many parameters: one launch per device and dtype, partial sums in
// order. Rejected: one op per parameter (on devices, one launch each).
// ------------------------------------------------------------------------------

typedef struct nn__grads_t {
    const nn__cpu_t *k;
    char *x;
    size_t size;
    int64_t n;
    const double *factor;
    double *sum;
} nn__grads_t;

TENSOR__FN void nn__grads_task(void *arg, int64_t task, int worker) {
    const nn__grads_t *s = (const nn__grads_t *)arg;
    int64_t from = task * NN__CHUNK, n = nn__min(s->n - from, NN__CHUNK);
    char *x = s->x + (size_t)from * s->size;
    double f;
    if (!s->factor) {
        f = 0;
    } else if (s->size == 4) {
        f = (double)(float)*s->factor;
    } else {
        f = *s->factor;
    }
    (void)worker;
    s->sum[task] = s->factor ? NN__DO(s->k, rescale)(x, f, n) : NN__DO(s->k, squares)(x, n);
}

// Works on gradients that are f32 or f64 and contiguous, from arg 2 on. factor NULL: -> the sum of their
// squares; otherwise they are multiplied by it -> > 0 if one was infinite or NaN
TENSOR__FN double nn__over_grads(const tensor_call_t *c, const double *factor) {
    double sum[64], total = 0;
    for (int k = 2; k < c->nout; k++) {
        const tensor_arg_t *a = &c->arg[k];
        nn__grads_t s;
        s.k = nn__cpu(a->dtype);
        s.size = nn__es(a->dtype);
        s.factor = factor;
        s.sum = sum;
        s.x = (char *)a->data;
        for (s.n = a->numel; s.n > 0; s.n -= 64 * NN__CHUNK, s.x += 64 * NN__CHUNK * s.size) {
            int64_t chunks = nn__min(nn__ceil(s.n, NN__CHUNK), 64);
            if (s.n >= NN__PARALLEL_FROM) {
                TENSOR__(parallel)(chunks, nn__grads_task, &s);
            } else {
                for (int64_t i = 0; i < chunks; i++) { nn__grads_task(&s, i, 0); }
            }
            for (int64_t i = 0; i < chunks; i++) { total += sum[i]; }
        }
    }
    return total;
}

// arg 0: f64, the sum of squares.
TENSOR__FN int nn__cpu_squares(tensor_call_t *c) {
    *(double *)c->arg[0].data = nn__over_grads(c, NULL);
    return TENSOR_OK;
}

// Multiplies the gradients by arg 0. arg 1, if not absent, is f32 and becomes 1 if one of them is infinite
// or NaN.
TENSOR__FN int nn__cpu_scale(tensor_call_t *c) {
    const double *factor = (const double *)c->arg[0].data;
    float *found = (float *)c->arg[1].data;
    if (!found && *factor == 1) { return TENSOR_OK; }
    if (nn__over_grads(c, factor) > 0 && found) { *found = 1; }
    return TENSOR_OK;
}

static const tensor__row_t nn__grads_row[2] = {
    {"clip_grad_norm", TENSOR_FAMILY_OPTIMIZER, -1, 0, 0, 0, 0, NN_OP_SUM_SQUARES, 0, NULL, nn__cpu_squares,
     NULL, NULL, NULL},
    {"scale_grad", TENSOR_FAMILY_OPTIMIZER, -1, 0, 0, 0, 0, NN_OP_SCALE_GRADS, 0, NULL, nn__cpu_scale, NULL,
     NULL, NULL}};

// Tensor i of o or of list, of which one is given.
TENSOR__FN tensor_t *nn__listed(nn_optimizer_t *o, tensor_t *const *list, int i) {
    return o ? o->param[i].t : list[i];
}

// One call for all gradients on a device. scale: the gradients change. -> code
TENSOR__FN int nn__grads_call(nn_optimizer_t *o, tensor_t *const *list, int n, int device, int scale,
                              tensor_t *head, tensor_t *found) {
    tensor_arg_t *a = (tensor_arg_t *)nn__lent((uint64_t)n + 2, sizeof *a + sizeof(tensor_t *));
    tensor_t **copy = a ? (tensor_t **)(void *)(a + n + 2) : NULL;
    int m = 2;
    if (!a || (tensor_is_poison)(head) || (found && (tensor_is_poison)(found))) {
        return tensor_error_code();
    }
    nn__step_arg(&a[0], head, scale ? TENSOR_READ : TENSOR_WRITE);
    nn__step_arg(&a[1], found, TENSOR_UPDATE);
    tensor_t *g;
    for (int i = 0; i < n && tensor_error_code() == TENSOR_OK; i++) {
        copy[i] = NULL;
        g = nn__stored_grad(nn__listed(o, list, i));
        if (g && found && g->device != device) {
            NN__FAIL(TENSOR_ERR_DEVICE, "scaler_unscale: gradient %d is not where the scaler is", (int64_t)i);
        }
        if (!g || g->device != device || g->numel == 0) { continue; }
        copy[i] = nn__step_operand(g, g->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32);
        nn__step_arg(&a[m++], copy[i], scale ? TENSOR_UPDATE : TENSOR_READ);
    }
    int code = tensor_error_code();
    if (code == TENSOR_OK) {
        code = nn__optimizer_call(&nn__grads_row[scale], NN__SUM_SQUARES + scale, a, 0, m, device);
    }
    for (int i = 0; i < n && code == TENSOR_OK && scale; i++) {
        g = nn__listed(o, list, i)->grad;
        if (copy[i] && copy[i] != g) { (tensor_copy_)(g, copy[i]); }
        code = tensor_error_code();
    }
    return code;
}

// The norm, and the factor computed from it, stay on the gradients' devices.
TENSOR__FN tensor_t *nn__clip_norm(nn_optimizer_t *o, tensor_t *const *list, int n, double max_norm) {
    tensor_t *total = NULL;
    unsigned devices = 0;
    if (!o && !list && n > 0) { nn__poisoned("clip_grad_norm", "the list", list); }
    if (tensor_error_code() != TENSOR_OK) { return TENSOR__(poison); }
    if (!(max_norm >= 0)) {
        NN__FAIL(TENSOR_ERR_SHAPE, "clip_grad_norm: max_norm must be >= 0 (got %g)", max_norm);
        return TENSOR__(poison);
    }
    for (int i = 0; i < n; i++) {
        tensor_t *t = nn__listed(o, list, i);
        if (!nn__whole("clip_grad_norm", "a parameter", t)) { return TENSOR__(poison); }
        if (t->grad) { devices |= 1u << t->grad->device; }
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *part;
    for (int d = 0; devices >> d; d++) {
        if (!(devices >> d & 1)) { continue; }
        part = TENSOR__(make)(nn__self(), "clip_grad_norm", TENSOR_F64, NULL, 0, d);
        nn__grads_call(o, list, n, d, 0, part, NULL);
        total = total ? (tensor_add)(total, nn__beside(part, total)) : part;
    }
    tensor_t *norm = total ? (tensor_sqrt)(total) : (tensor_zeros_n)(NULL, 0, TENSOR_F64);
    part = nn__host_tensor(NULL, 0, TENSOR_F64);
    double *most = (double *)TENSOR__(host)(part, TENSOR_HOST_WRITE, "clip_grad_norm");
    if (most) { *most = max_norm; }
    tensor_t *factor =
        (tensor_clamp)((tensor_div)(part, (tensor_add_scalar)(norm, 1e-6)), -(double)INFINITY, 1);
    int code = tensor_error_code();
    for (int d = 0; devices >> d && code == TENSOR_OK; d++) {
        if (devices >> d & 1) {
            code = nn__grads_call(o, list, n, d, 1, (tensor_to)(factor, TENSOR_CPU + d), NULL);
        }
    }
    return (tensor_scope_return)(scope, code == TENSOR_OK ? norm : TENSOR__(poison));
}

TENSOR_API tensor_t *(nn_clip_grad_norm)(nn_optimizer_t *o, double max_norm) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED(TENSOR__(poison), "clip_grad_norm"); }
    if (nn__bad_optimizer("clip_grad_norm", o) != TENSOR_OK) { return TENSOR__(poison); }
    return nn__clip_norm(o, NULL, o->nparams, max_norm);
}

TENSOR_API tensor_t *(nn_clip_grad_norm_n)(tensor_t *const *list, int n, double max_norm) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED(TENSOR__(poison), "clip_grad_norm"); }
    return nn__clip_norm(NULL, list, n, max_norm);
}

TENSOR__FN int nn__clip_value(nn_optimizer_t *o, tensor_t *const *list, int n, double limit) {
    int code = tensor_error_code();
    if (code != TENSOR_OK) { return code; }
    if (!(limit >= 0)) {
        return NN__ERROR(TENSOR_ERR_SHAPE, "clip_grad_value: limit must be >= 0 (got %g)", limit);
    }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    for (int i = 0; i < n; i++) {
        tensor_t *t = nn__listed(o, list, i);
        if (!t || (tensor_is_poison)(t)) {
            nn__poisoned("clip_grad_value", "a parameter", t);
        } else if (t->grad && !(tensor_is_poison)(nn__stored_grad(t))) {
            (tensor_clamp_)(t->grad, -limit, limit);
        }
    }
    (tensor_scope_end)(scope);
    return tensor_error_code();
}

TENSOR_API int (nn_clip_grad_value)(nn_optimizer_t *o, double limit) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int)TENSOR_ERR_UNSUPPORTED, "clip_grad_value"); }
    int code = nn__bad_optimizer("clip_grad_value", o);
    if (code != TENSOR_OK) { return code; }
    return nn__clip_value(o, NULL, o->nparams, limit);
}

TENSOR_API int (nn_clip_grad_value_n)(tensor_t *const *list, int n, double limit) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int)TENSOR_ERR_UNSUPPORTED, "clip_grad_value"); }
    if (!list && n > 0) { return nn__poisoned("clip_grad_value", "the list", list); }
    return nn__clip_value(NULL, list, n, limit);
}

// The numbers of a scaler.
enum { NN__SCALE, NN__GROWTH, NN__BACKOFF, NN__INTERVAL, NN__GROWN, NN__FOUND, NN__SCALER };

TENSOR__FN tensor_t *nn__scaler(tensor_t *s, int i) {
    if (!nn__whole("grad_scaler", "the scaler", s)) { return TENSOR__(poison); }
    if (s->ndim == 1 && s->dims[0] == NN__SCALER && s->dtype == TENSOR_F32) {
        return (tensor_select)(s, 0, i);
    }
    NN__FAIL(TENSOR_ERR_SHAPE, "grad_scaler: %t is not a scaler", s);
    return TENSOR__(poison);
}

TENSOR_API tensor_t *(nn_grad_scaler)(double init_scale, int64_t growth_interval) {
    double v[NN__SCALER] = {init_scale, 2, 0.5, (double)growth_interval, 0, 0};
    int64_t n = NN__SCALER;
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *s = (tensor_to)((tensor_from_n)(v, TENSOR_F64, &n, 1), TENSOR_F32);
    if (!(init_scale > 0) || growth_interval < 1) {
        NN__FAIL(TENSOR_ERR_SHAPE, "grad_scaler: the scale and the interval must be > 0 (got %g, %d)",
                 init_scale, growth_interval);
        s = TENSOR__(poison);
    }
    return (tensor_keep)((tensor_scope_return)(scope, s));
}

TENSOR_API tensor_t *(nn_scaler_scale)(tensor_t *scaler, tensor_t *loss) {
    return (tensor_mul)(loss, (tensor_clone)(nn__scaler(scaler, NN__SCALE)));   // loss keeps this scale
}

TENSOR_API int (nn_scaler_unscale)(tensor_t *scaler, nn_optimizer_t *o) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int)TENSOR_ERR_UNSUPPORTED, "scaler_unscale"); }
    int code = nn__bad_optimizer("scaler_unscale", o);
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    tensor_t *factor = (tensor_reciprocal)((tensor_to)(nn__scaler(scaler, NN__SCALE), TENSOR_F64));
    tensor_t *worst = nn__scaler(scaler, NN__FOUND);
    if (code == TENSOR_OK) { code = tensor_error_code(); }
    if (code == TENSOR_OK && o->unscaled) {
        code = NN__ERROR(TENSOR_ERR_UNSUPPORTED, "scaler_unscale: the gradients were unscaled already");
    }
    if (code == TENSOR_OK && !o->skip) {
        if (TENSOR__(recording)(nn__self(), scaler->device, NULL, NULL)) {
            NN__FAIL(TENSOR_ERR_UNSUPPORTED, "scaler_unscale: take a step before the capture");
        } else {
            o->skip = nn__full_held((tensor_narrow)(scaler, 0, 0, 2), 0);
        }
        o->settle = nn__settle;
        code = tensor_error_code();
    }
    if (code == TENSOR_OK && o->skip->device != scaler->device) {      // after nn_to
        code = nn__settle(o);
        if (code == TENSOR_OK) { code = nn__bring(o->skip, TENSOR_F32, scaler->device); }
    }
    if (code == TENSOR_OK) {
        tensor_t *found = (tensor_zero_)((tensor_select)(o->skip, 0, 0));
        factor = (tensor_to)((tensor_to)(factor, TENSOR_F32), TENSOR_F64);
        code = nn__grads_call(o, NULL, o->nparams, scaler->device, 1, factor, found);
        (tensor_copy_)(worst, (tensor_maximum)(worst, found));
        o->unscaled = code == TENSOR_OK;
        code = tensor_error_code();
    }
    (tensor_scope_end)(scope);
    return code;
}

TENSOR_API int (nn_scaler_step)(tensor_t *scaler, nn_optimizer_t *o) {
    if (!TENSOR__TRAINS) { return NN__UNTRAINED((int)TENSOR_ERR_UNSUPPORTED, "scaler_step"); }
    int code = nn__bad_optimizer("scaler_step", o);
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    if (code == TENSOR_OK && !o->unscaled) { code = (nn_scaler_unscale)(scaler, o); }
    if (code == TENSOR_OK) {
        code = nn__step(o, o->skip);
        if (code == TENSOR_OK) {
            o->unscaled = 0;
            (tensor_add_)((tensor_select)(o->skip, 0, 1), (tensor_select)(o->skip, 0, 0));
        }
    }
    (tensor_scope_end)(scope);
    return code;
}

TENSOR_API int (nn_scaler_update)(tensor_t *scaler) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *v[NN__SCALER];
    for (int i = 0; i < NN__SCALER; i++) { v[i] = nn__scaler(scaler, i); }
    tensor_t *bad = (tensor_gt_scalar)(v[NN__FOUND], 0);
    tensor_t *grown = (tensor_add_scalar)(v[NN__GROWN], 1);
    tensor_t *due = (tensor_eq)(grown, v[NN__INTERVAL]);
    tensor_t *up = (tensor_mul)(v[NN__SCALE], v[NN__GROWTH]);
    up = (tensor_where)((tensor_logical_and)(due, (tensor_isfinite)(up)), up, v[NN__SCALE]);
    (tensor_copy_)(v[NN__SCALE], (tensor_where)(bad, (tensor_mul)(v[NN__SCALE], v[NN__BACKOFF]), up));
    (tensor_copy_)(v[NN__GROWN], (tensor_masked_fill)(grown, (tensor_logical_or)(bad, due), 0));
    (tensor_zero_)(v[NN__FOUND]);
    (tensor_scope_end)(scope);
    return tensor_error_code();
}

// ------------------------------------------------------------------------------
// >>impl-schedule                                  MARK: schedules
//
// Closed forms, so that the rate of any step can be computed in any order. Rejected: a running product of
// factors (it drifts, and a resumed run would have to store it).
// ------------------------------------------------------------------------------

TENSOR__FN double nn__half_cosine(double step, double total, double from, double to) {
    return to + 0.5 * (from - to) * (1 + cos(3.14159265358979323846 * step / total));
}

TENSOR_API double nn_lr_cosine(int64_t step, int64_t total, double lr_max, double lr_min) {
    if (step >= total) { return lr_min; }
    return step <= 0 ? lr_max : nn__half_cosine((double)step, (double)total, lr_max, lr_min);
}

TENSOR_API double nn_lr_cosine_warmup(int64_t step, int64_t warmup, int64_t total, double lr_max,
                                      double lr_min) {
    if (step < warmup) { return lr_max * (double)(step < 0 ? 1 : step + 1) / (double)warmup; }
    if (warmup < 0) { warmup = 0; }
    return nn_lr_cosine(step - warmup, total > warmup ? total - warmup : 0, lr_max, lr_min);
}

TENSOR_API double nn_lr_step(int64_t step, int64_t every, double lr, double gamma_) {
    return lr * pow(gamma_, every > 0 ? (double)(step / every) : 0);
}

TENSOR_API double nn_lr_exponential(int64_t step, double lr, double gamma_) {
    return lr * pow(gamma_, (double)step);
}

TENSOR_API double nn_lr_linear(int64_t step, int64_t total, double lr, double start, double end) {
    double t;
    if (step <= 0) {
        t = 0;
    } else if (step >= total) {
        t = 1;
    } else {
        t = (double)step / (double)total;
    }
    return lr * (start + (end - start) * t);
}

TENSOR_API double nn_lr_constant(int64_t step, int64_t total, double lr, double factor) {
    return step < total ? lr * factor : lr;
}

TENSOR_API double nn_lr_multi_step(int64_t step, const int64_t *milestones, int n, double lr, double gamma_) {
    int passed = 0;
    if (!milestones && n > 0) {
        return NN__GIVE((double)NAN, TENSOR_ERR_SHAPE, "nn_lr_multi_step: milestones is NULL, n is %i", n);
    }
    for (int i = 0; i < n; i++) { passed += milestones[i] <= step; }
    return lr * pow(gamma_, passed);
}

TENSOR_API double nn_lr_polynomial(int64_t step, int64_t total, double lr, double power) {
    return lr * pow(nn_lr_linear(step, total, 1, 1, 0), power);
}

TENSOR_API double nn_lr_cosine_restarts(int64_t step, int64_t first, int64_t mult, double lr_max,
                                        double lr_min) {
    if (first < 1) { return lr_min; }
    if (mult <= 1) { step %= first; }
    while (step >= first) {
        step -= first;
        first = first > INT64_MAX / mult ? INT64_MAX : first * mult;
    }
    return nn_lr_cosine(step, first, lr_max, lr_min);
}

TENSOR_API double nn_lr_one_cycle(int64_t step, int64_t total, double lr_max, double part, double div_,
                                  double final_div) {
    double top = part * (double)total - 1, end = (double)total - 1, t = (double)nn__max(step, 0);
    if (t <= top) { return top > 0 ? nn__half_cosine(t, top, lr_max / div_, lr_max) : lr_max; }
    if (t >= end) { return lr_max / div_ / final_div; }
    return nn__half_cosine(t - top, end - top, lr_max, lr_max / div_ / final_div);
}

TENSOR_API double nn_lr_cyclic(int64_t step, int64_t up, int64_t down, double lr_min, double lr_max,
                               double gamma_) {
    int64_t rise = nn__max(up, 0), fall = nn__min(nn__max(down, 0), INT64_MAX - rise), whole = rise + fall;
    int64_t at = whole > 0 ? nn__max(step, 0) % whole : 0;
    double height = at <= rise ? (double)at / (double)nn__max(rise, 1) : (double)(whole - at) / (double)fall;
    return lr_min + (lr_max - lr_min) * height * pow(gamma_, (double)step);
}

TENSOR_API double nn_lr_plateau(nn_plateau_t *p, double value, double lr) {
    nn_plateau_t q, *a = &q;
    if (!p) {
        nn__poisoned("lr_plateau", "its state", NULL);
        return lr;
    }
    q = *p;
    double sign = q.maximize ? -1 : 1;
    double best = q.seen ? sign * q.best : (double)INFINITY;
    NN__OR(factor, 0.1)
    NN__OR(threshold, 1e-4)
    NN__OR(patience, 10)
    NN__OR(cooldown, 0)
    NN__OR(min_lr, 0)
    p->bad++;
    if (sign * value < (q.absolute ? best - q.threshold : best * (1 - sign * q.threshold))) {
        p->seen = 1;
        p->best = value;
        p->bad = 0;
    }
    if (p->resting > 0) {
        p->resting--;
        p->bad = 0;
    }
    if (p->bad <= q.patience) { return lr; }
    p->resting = q.cooldown;
    p->bad = 0;
    double fresh = lr * q.factor > q.min_lr ? lr * q.factor : q.min_lr;
    return lr - fresh > 1e-8 ? fresh : lr;      // PyTorch's eps
}

// ------------------------------------------------------------------------------
// >>impl-data                                      MARK: datasets, loaders
//
// The order of an epoch is a Fisher-Yates shuffle by Philox(seed, stream = epoch), so a loader has no state
// except seed and position. Rejected: storing the permutation in a checkpoint, a generator shared with the
// model (its draws would change the order).
// ------------------------------------------------------------------------------

struct nn_data_loader_t {
    tensor__owned_t owned;   // first: the context's list
    int dead;                // as in nn_optimizer_t
    nn_dataset_t set;        // its x and y are held and contiguous
    int64_t batch, batches, position, epoch;
    int64_t *order;   // len entries; NULL if not shuffled
    int64_t order_epoch;
    int *codes;       // the results of get for the rows of a batch; NULL if the samples are in memory
    uint64_t seed;
    int workers, pinned, device;
    nn_batch_t ahead;   // the next batch, held, on its way to the device; size 0 = none
};

TENSOR_API nn_dataset_t nn_tensor_dataset(tensor_t *x, tensor_t *y) {
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.len = -1;
    for (int which = 0; which < 2; which++) {
        tensor_t *t = which ? y : x;
        tensor_shape_t *shape = which ? &d.y_shape : &d.x_shape;
        if (which && !y) { break; }
        if (!nn__whole("tensor_dataset", which ? "y" : "x", t)) { return d; }
        if (t->ndim < 1 || (which && y->dims[0] != x->dims[0])) {
            if (t->ndim < 1) {
                NN__FAIL(TENSOR_ERR_SHAPE, "tensor_dataset: %s must have a first dim", which ? "y" : "x");
            } else {
                NN__FAIL(TENSOR_ERR_SHAPE, "tensor_dataset: x %t and y %t differ in the number of samples", x,
                         y);
            }
            return d;
        }
        shape->ndim = t->ndim - 1;
        for (int k = 1; k < t->ndim; k++) { shape->dims[k - 1] = t->dims[k]; }
    }
    d.x = x;
    d.y = y;
    d.x_dtype = (tensor_dtype_t)x->dtype;
    d.y_dtype = y ? (tensor_dtype_t)y->dtype : TENSOR_F32;
    d.has_y = y != NULL;
    d.len = x->dims[0];
    return d;
}

TENSOR__FN void nn__drop_ahead(nn_data_loader_t *l) {
    if (l->ahead.size) { TENSOR__(drop)(l->ahead.x); }
    if (l->ahead.size && l->ahead.y) { TENSOR__(drop)(l->ahead.y); }
    l->ahead.size = 0;
}

TENSOR__FN void nn__loader_close(nn_data_loader_t *l) {
    TENSOR__(disown)(&l->owned);
    nn__drop_ahead(l);
    if (l->set.x) { TENSOR__(drop)(l->set.x); }
    if (l->set.y) { TENSOR__(drop)(l->set.y); }
    nn__free(l->order);
    nn__free(l->codes);
    l->order = NULL;
    l->codes = NULL;
    l->batches = 0;
    l->dead = 1;
    TENSOR__(bury)(l, TENSOR__LOADER);
}

// If l cannot be used, the code after raising, else 0.
TENSOR__FN int nn__bad_loader(const char *op, const nn_data_loader_t *l) {
    if (!l) { return nn__poisoned(op, "the loader", l); }
    if (!l->dead) { return TENSOR_OK; }
    return NN__ERROR(TENSOR_ERR_OWNER, "%s: the loader was freed", op);
}

TENSOR__FN void nn__loader_shutdown(tensor__owned_t *o) {
    nn__loader_close((nn_data_loader_t *)(void *)o);
}

TENSOR_API int (nn_data_loader_free)(nn_data_loader_t *l) {
    int code = l ? nn__bad_loader("data_loader_free", l) : TENSOR_OK;
    if (l && code == TENSOR_OK) { nn__loader_close(l); }
    return code;
}

// A held contiguous tensor with t's elements, on the CPU; NULL after raising.
TENSOR__FN tensor_t *nn__held_contiguous(tensor_t *t) {
    tensor_scope_t scope = TENSOR__(scope)(0);
    tensor_t *c = (tensor_to)((tensor_contiguous)(t), TENSOR_CPU);
    c = (tensor_is_poison)(c) ? NULL : TENSOR__(hold)(c);
    (tensor_scope_end)(scope);
    return c;
}

TENSOR_API nn_data_loader_t *nn_data_loader_with(nn_data_loader_args_t a) {
    nn_data_loader_t *l = NULL;
    const nn_dataset_t *d = &a.dataset;
    int64_t size = a.batch_size == 0 ? 1 : a.batch_size;
    int bad = 0;
    if (d->x) { a.dataset = nn_tensor_dataset(d->x, d->y); }
    if (nn__too_many("data_loader", a.site_, a.options_are_named_)) {
        l = NULL;
    } else if (d->len < 0) {
        if (tensor_error_code() == TENSOR_OK) {
            NN__FAIL(TENSOR_ERR_SHAPE, "data_loader: the dataset's len is negative (got %d)", d->len);
        }
    } else if (size < 1) {
        NN__FAIL(TENSOR_ERR_SHAPE, "data_loader: batch_size must be > 0 (got %d)", a.batch_size);
    } else if (!d->x && !d->get) {
        NN__FAIL(TENSOR_ERR_SHAPE, "data_loader: the dataset has neither x nor get");
    } else if (d->x_shape.ndim < 0 || d->x_shape.ndim >= TENSOR_MAX_DIMS || d->y_shape.ndim < 0 ||
               d->y_shape.ndim >= TENSOR_MAX_DIMS) {
        NN__FAIL(TENSOR_ERR_SHAPE, "data_loader: a sample has 0..7 dims");
    } else {
        l = (nn_data_loader_t *)TENSOR__(object)(nn__self(), TENSOR__LOADER, sizeof *l);
    }
    if (l) {
        memcpy((void *)&l->set, d, sizeof l->set);
        l->set.x = NULL;
        l->set.y = NULL;
        l->batch = size;
        l->batches = d->len / size + (d->len % size != 0 && !a.drop_last);
        l->seed = a.seed ? a.seed : tensor_get_generator().seed;
        l->workers = a.num_workers;
        l->device = a.device == TENSOR_CPU ? 0 : a.device;
        l->pinned = a.pin_memory || l->device;
        l->order_epoch = -1;
        l->owned.destroy = nn__loader_shutdown;
        TENSOR__(own)(nn__self(), &l->owned);
        if (d->x) {
            l->set.x = nn__held_contiguous(d->x);
            bad |= !l->set.x;
        }
        if (d->x && d->y) {
            l->set.y = nn__held_contiguous(d->y);
            bad |= !l->set.y;
        }
        if (a.shuffle) {
            l->order = (int64_t *)nn__memory((uint64_t)d->len, sizeof(int64_t));
            bad |= !l->order;
        }
        if (!d->x) {
            l->codes = (int *)nn__memory((uint64_t)(size < d->len ? size : d->len) + 1, sizeof(int));
            bad |= !l->codes;
        }
        if (l->pinned) {
            bad |= (tensor_is_poison)((tensor_pin_memory)(nn__host_tensor(NULL, 0, TENSOR_F32)));
        }
        if (l->device) {
            bad |= (tensor_is_poison)((tensor_to)(nn__host_tensor(NULL, 0, TENSOR_F32),
                                                  l->device));
        }
        if (bad) {
            nn__loader_close(l);
            l = NULL;
        }
    }
    if (a.site_) { (void)tensor__at_ptr(a.site_, l); }
    return l;
}

TENSOR_API int64_t nn_num_batches(nn_data_loader_t *l) {
    return l ? l->batches : 0;
}

TENSOR_API int (nn_seek)(nn_data_loader_t *l, int64_t batches) {
    int code = nn__bad_loader("seek", l);
    if (code != TENSOR_OK) { return code; }
    if (batches < 0) { return NN__ERROR(TENSOR_ERR_SHAPE, "seek: batches must be >= 0 (got %d)", batches); }
    nn__drop_ahead(l);
    l->epoch = l->batches > 0 ? batches / l->batches : 0;
    l->position = l->batches > 0 ? batches % l->batches : 0;
    return TENSOR_OK;
}

// Uniform in 0..n-1 from 64-bit words of a Philox stream; words that would favour small values are skipped.
typedef struct nn__draw_t {
    uint64_t seed, stream, block;
    uint32_t word[4];
    int used;
} nn__draw_t;

TENSOR__FN uint64_t nn__draw(nn__draw_t *d, uint64_t n) {
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, v;
    do {
        if (d->used == 4) {
            TENSOR__(philox)(d->seed, d->stream, d->block++, d->word);
            d->used = 0;
        }
        v = (uint64_t)d->word[d->used] << 32 | d->word[d->used + 1];
        d->used += 2;
    } while (v >= limit);
    return v % n;
}

TENSOR__FN void nn__shuffle(nn_data_loader_t *l) {
    if (!l->order || l->order_epoch == l->epoch) { return; }
    nn__draw_t d;
    memset(&d, 0, sizeof d);
    d.seed = l->seed;
    d.stream = (uint64_t)l->epoch;
    d.used = 4;
    for (int64_t i = 0; i < l->set.len; i++) { l->order[i] = i; }
    for (int64_t i = l->set.len - 1; i > 0; i--) {
        int64_t k = (int64_t)nn__draw(&d, (uint64_t)i + 1), t = l->order[i];
        l->order[i] = l->order[k];
        l->order[k] = t;
    }
    l->order_epoch = l->epoch;
}

// Rows of one batch, divided into tasks with a fixed number of rows.
typedef struct nn__gather_t {
    const nn_data_loader_t *l;
    const char *all_x, *all_y;          // the data set's; NULL if samples come from its function
    char *x, *y;
    size_t x_row, yr;   // bytes
    int64_t from, rows, per_task;
} nn__gather_t;

TENSOR__FN void nn__gather_task(void *arg, int64_t task, int worker) {
    nn__gather_t *g = (nn__gather_t *)arg;
    const nn_dataset_t *d = &g->l->set;
    int64_t i = task * g->per_task, end = i + g->per_task < g->rows ? i + g->per_task : g->rows;
    (void)worker;
    for (; i < end; i++) {
        int64_t at = g->l->order ? g->l->order[g->from + i] : g->from + i;
        char *x = g->x + (size_t)i * g->x_row, *y = g->y ? g->y + (size_t)i * g->yr : NULL;
        if (d->x) {
            if (g->x_row) { memcpy(x, g->all_x + (size_t)at * g->x_row, g->x_row); }
            if (y && g->yr) { memcpy(y, g->all_y + (size_t)at * g->yr, g->yr); }
        } else {
            g->l->codes[i] = d->get(d->user, at, x, y);
        }
    }
}

// A batch tensor [rows, sample...].
TENSOR__FN tensor_t *nn__batch_tensor(const tensor_shape_t *sample, tensor_dtype_t dtype, int64_t rows,
                                      int pinned) {
    int64_t dims[TENSOR_MAX_DIMS];
    dims[0] = rows;
    for (int k = 0; k < sample->ndim; k++) { dims[k + 1] = sample->dims[k]; }
    if (!pinned) { return nn__host_tensor(dims, sample->ndim + 1, dtype); }
    return TENSOR__(make)(nn__self(), "next", dtype, dims, sample->ndim + 1, TENSOR__PINNED);
}

TENSOR__FN int nn__gather(nn_data_loader_t *l, nn_batch_t *b) {
    if (!nn__there("next", "the batch", b)) { return 0; }
    b->x = b->y = TENSOR__(poison);
    b->size = b->index = b->epoch = 0;
    if (tensor_error_code() != TENSOR_OK) { return 0; }
    if (nn__bad_loader("next", l) != TENSOR_OK) { return 0; }
    if (l->position >= l->batches) {
        l->position = 0;
        l->epoch++;
        return 0;
    }
    nn__shuffle(l);
    nn__gather_t g;
    g.l = l;
    g.from = l->position * l->batch;
    g.rows = l->set.len - g.from < l->batch ? l->set.len - g.from : l->batch;
    b->x = nn__batch_tensor(&l->set.x_shape, l->set.x_dtype, g.rows, l->pinned);
    b->y = l->set.has_y ? nn__batch_tensor(&l->set.y_shape, l->set.y_dtype, g.rows, l->pinned) : NULL;
    const nn_dataset_t *d = &l->set;
    g.all_x = d->x ? (const char *)TENSOR__(host)(d->x, TENSOR_HOST_READ, "next") : NULL;
    g.all_y = d->y ? (const char *)TENSOR__(host)(d->y, TENSOR_HOST_READ, "next") : NULL;
    g.x = (char *)TENSOR__(host)(b->x, TENSOR_HOST_WRITE, "next");
    g.y = b->y ? (char *)TENSOR__(host)(b->y, TENSOR_HOST_WRITE, "next") : NULL;
    if (!g.x || (b->y && !g.y) || (d->x && !g.all_x) || (d->y && !g.all_y)) {
        b->x = b->y = TENSOR__(poison);
        return 0;
    }
    g.x_row = (size_t)(b->x->numel / g.rows) * tensor_dtype_size(l->set.x_dtype);
    g.yr = b->y ? (size_t)(b->y->numel / g.rows) * tensor_dtype_size(l->set.y_dtype) : 0;
    g.per_task = 1 + (int64_t)(65536 / (g.x_row + g.yr + 1));
    if (!l->set.x) { g.per_task = 1; }
    int64_t tasks = (g.rows + g.per_task - 1) / g.per_task;
    tensor_scope_t scope;
    scope = TENSOR__(scope)(-1);
    if (tasks > 1 && (l->set.x || l->workers > 0)) {
        TENSOR__(parallel)(tasks, nn__gather_task, &g);
    } else {
        for (int64_t i = 0; i < tasks; i++) { nn__gather_task(&g, i, 0); }
    }
    (tensor_scope_end)(scope);
    for (int64_t i = 0; l->codes && i < g.rows; i++) {
        int code = l->codes[i];
        if (code == 0) { continue; }
        int64_t sample = l->order ? l->order[g.from + i] : g.from + i;
        NN__FAIL(code > 0 && code < TENSOR_ERR_COUNT ? code : TENSOR_ERR_IO,
                 "next: get failed for sample %d with code %d", sample, (int64_t)code);
        b->x = b->y = TENSOR__(poison);
        return 0;
    }
    b->size = g.rows;
    b->index = l->position++;
    b->epoch = l->epoch;
    if (!l->device) { return 1; }
    TENSOR__(aside)(nn__self(), l->device - TENSOR_CPU, 1);
    b->x = (tensor_to_non_blocking)(b->x, l->device);
    if (b->y) { b->y = (tensor_to_non_blocking)(b->y, l->device); }
    TENSOR__(aside)(nn__self(), l->device - TENSOR_CPU, 0);
    return tensor_error_code() == TENSOR_OK;
}

TENSOR_API int (nn_next)(nn_data_loader_t *l, nn_batch_t *b) {
    if (!b || !l || l->dead || tensor_error_code() != TENSOR_OK || !l->ahead.size) {
        if (!nn__gather(l, b)) { return 0; }
    } else {
        *b = l->ahead;
        b->x = (tensor_detach)(b->x);
        b->y = b->y ? (tensor_detach)(b->y) : NULL;
        nn__drop_ahead(l);
    }
    if (!l->device || l->position >= l->batches) { return 1; }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    if (nn__gather(l, &l->ahead)) {
        TENSOR__(hold)(l->ahead.x);
        TENSOR__(hold)(l->ahead.y);
    } else {
        l->ahead.size = 0;
    }
    (tensor_scope_end)(scope);
    return 1;
}

// ------------------------------------------------------------------------------
// >>impl-sources                                   MARK: bytes of files and memory, IDX
//
// Readers see a source of bytes, which is a file or memory, and check its size before they allocate.
// Rejected: a read of the whole file (large ones are read one tensor at a time).
// ------------------------------------------------------------------------------

typedef struct nn__source_t {
    const unsigned char *data;   // NULL = file
    void *file;
    uint64_t size, at;   // at: the file's position
} nn__source_t;

#ifndef TENSOR_NO_STDIO
TENSOR__FN int nn__seek_file(FILE *f, uint64_t at) {
#if defined(_WIN32)
    return _fseeki64(f, (int64_t)at, SEEK_SET);
#else
    if (at > (uint64_t)LONG_MAX) { return -1; }
    return fseek(f, (long)at, SEEK_SET);
#endif
}

// Names of files are UTF-8 everywhere. Windows takes such names in UTF-16 alone; one that is not UTF-8 is
// taken for the system's code page.
#if defined(_WIN32)
// -> block to free, NULL with errno set
TENSOR__FN wchar_t *nn__path(const char *path) {
    unsigned page = CP_UTF8;
    int n = MultiByteToWideChar(page, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    if (n <= 0) {
        page = CP_ACP;
        n = MultiByteToWideChar(page, 0, path, -1, NULL, 0);
    }
    errno = n > 0 ? ENOMEM : EINVAL;
    wchar_t *wide = n > 0 ? (wchar_t *)nn__memory((size_t)n, sizeof *wide) : NULL;
    if (wide) { MultiByteToWideChar(page, 0, path, -1, wide, n); }
    return wide;
}

TENSOR__FN FILE *nn__open_file(const char *path) {
    wchar_t *wide = nn__path(path);
    FILE *f = wide ? _wfopen(wide, L"rb") : NULL;
    int error = errno;
    nn__free(wide);
    errno = error;
    return f;
}

TENSOR__FN void nn__remove(const char *path) {
    wchar_t *wide = nn__path(path);
    if (wide) { (void)_wremove(wide); }
    nn__free(wide);
}
#else
TENSOR__FN FILE *nn__open_file(const char *path) { return fopen(path, "rb"); }

TENSOR__FN void nn__remove(const char *path) { (void)remove(path); }
#endif

enum { NN__ABSENT, NN__REGULAR, NN__NO_FILE };

// What path is, with links followed: absent, a regular file or something else (device, FIFO, directory).
// mode, if not NULL, receives the permissions of a regular file, -1 if it has none.
TENSOR__FN int nn__file_kind(const char *path, int *mode) {
    if (mode) { *mode = -1; }
#if defined(NN__HAS_STAT) && defined(_WIN32)
    {
        struct _stat64 st;
        wchar_t *wide = nn__path(path);
        int absent = !wide || _wstat64(wide, &st) != 0;
        nn__free(wide);
        if (absent) { return NN__ABSENT; }
        return (st.st_mode & _S_IFMT) == _S_IFREG ? NN__REGULAR : NN__NO_FILE;
    }
#elif defined(NN__HAS_STAT)
    {
        struct stat st;
        if (stat(path, &st) != 0) { return errno == EOVERFLOW ? NN__NO_FILE : NN__ABSENT; }
        if (!S_ISREG(st.st_mode)) { return NN__NO_FILE; }
        if (mode) { *mode = (int)(st.st_mode & 0777); }
        return NN__REGULAR;
    }
#else
    (void)path;
    return NN__ABSENT;
#endif
}

// Opens path and finds its size; 0 after raising IO.
TENSOR__FN int nn__open(nn__source_t *s, const char *op, const char *path) {
    int64_t size = -1;
    memset(s, 0, sizeof *s);
    if (!path) { return NN__NO(TENSOR_ERR_IO, "%s: cannot open \"(null)\": no path", op); }
    if (nn__file_kind(path, NULL) == NN__NO_FILE) {           // opening a FIFO would wait for its writer
        return NN__NO(TENSOR_ERR_IO, "%s: \"%s\" is not a regular file", op, path);
    }
    FILE *f = nn__open_file(path);
    if (!f) { return NN__NO(TENSOR_ERR_IO, "%s: cannot open \"%s\": %s", op, path, strerror(errno)); }
#if defined(_WIN32)
    if (_fseeki64(f, 0, SEEK_END) == 0) { size = _ftelli64(f); }
#else
    if (fseek(f, 0, SEEK_END) == 0) { size = (int64_t)ftell(f); }
#endif
    if (size < 0 || size == LONG_MAX || fseek(f, 0, SEEK_SET) != 0) {
        fclose(f);
        return NN__NO(TENSOR_ERR_IO, "%s: \"%s\" is not a regular file", op, path);
    }
    s->file = f;
    s->size = (uint64_t)size;
    return 1;
}
#endif

TENSOR__FN nn__source_t nn__from_memory(const void *data, size_t size) {
    static const unsigned char none = 0;
    nn__source_t s;
    memset(&s, 0, sizeof s);
    s.data = data ? (const unsigned char *)data : &none;
    s.size = data ? size : 0;
    return s;
}

// n bytes from at; 0 (nothing raised) if the source does not have them.
TENSOR__FN int nn__read(nn__source_t *s, uint64_t at, void *to, uint64_t n) {
    if (at > s->size || n > s->size - at) { return 0; }
    if (n == 0) { return 1; }
    if (s->data) {
        memcpy(to, s->data + at, (size_t)n);
        return 1;
    }
#ifndef TENSOR_NO_STDIO
    if (s->at != at && nn__seek_file((FILE *)s->file, at) != 0) { return 0; }
    s->at = at + n;
    if (fread(to, 1, (size_t)n, (FILE *)s->file) == (size_t)n) { return 1; }
    s->at = UINT64_MAX;
#endif
    return 0;
}

TENSOR__FN void nn__close_source(nn__source_t *s) {
#ifndef TENSOR_NO_STDIO
    if (s->file) { fclose((FILE *)s->file); }
#endif
    s->file = NULL;
}

// Reverses the bytes of n elements.
TENSOR__FN void nn__swap(void *data, uint64_t n, size_t size) {
    unsigned char *p = (unsigned char *)data;
    for (uint64_t i = 0; size > 1 && i < n; i++, p += size) {
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char t = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = t;
        }
    }
}

TENSOR__FN int nn__little_endian(void) {
    uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

// Widens n u16 at the start of data to i32 (u32 to i64), from the last to the first.
enum { NN__U16, NN__U32 };

TENSOR__FN void nn__widen(void *data, uint64_t n, int from) {
    unsigned char *p = (unsigned char *)data;
    while (n-- > 0) {
        if (from == NN__U32) {
            uint32_t v;
            memcpy(&v, p + 4 * n, 4);
            int64_t w = (int64_t)v;
            memcpy(p + 8 * n, &w, 8);
        } else {
            uint16_t v;
            memcpy(&v, p + 2 * n, 2);
            int32_t w = (int32_t)v;
            memcpy(p + 4 * n, &w, 4);
        }
    }
}

// ------------------------------------------------------------------------------
// IDX
// ------------------------------------------------------------------------------

TENSOR__FN tensor_t *nn__idx(nn__source_t *s, const char *label) {
    unsigned char head[4 + 4 * TENSOR_MAX_DIMS];
    uint64_t numel = 1, got = s->size < 4 ? s->size : 4;
    tensor_dtype_t dtype = TENSOR_I32;
    if (!nn__read(s, 0, head, got)) { return NN__FAIL(TENSOR_ERR_IO, "idx: \"%s\" cannot be read", label); }
    if (got >= 2 && head[0] == 0x1F && head[1] == 0x8B) {
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" is gzip-compressed; decompress it first (gunzip)",
                        label);
    }
    if (got < 4 || head[0] != 0 || head[1] != 0) {
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" is not an IDX file (first bytes are not 0 0)", label);
    }
    int rank = head[3];
    switch (head[2]) {
    case 0x08:
        dtype = TENSOR_U8;
        break;
    case 0x09:
        dtype = TENSOR_I8;
        break;
    case 0x0B:
        dtype = TENSOR_I16;
        break;
    case 0x0C: break;
    case 0x0D:
        dtype = TENSOR_F32;
        break;
    case 0x0E:
        dtype = TENSOR_F64;
        break;
    default:
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" has the unknown type code %d", label,
                        (int64_t)head[2]);
    }
    size_t size = tensor_dtype_size(dtype);
    if (rank < 1 || rank > TENSOR_MAX_DIMS) {
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" has %d dims; 1 to 8 are allowed", label,
                        (int64_t)rank);
    }
    if (!nn__read(s, 4, head + 4, 4 * (uint64_t)rank)) {
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" ends inside its header", label);
    }
    int64_t dims[TENSOR_MAX_DIMS];
    for (int k = 0; k < rank; k++) {
        const unsigned char *p = head + 4 + 4 * k;
        dims[k] =
            (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3]);
        if (dims[k] == 0) { return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" has a dim of 0", label); }
        if (numel > ((uint64_t)1 << 60) / (uint64_t)dims[k]) {
            return NN__FAIL(TENSOR_ERR_FORMAT, "idx: the sizes in \"%s\" overflow", label);
        }
        numel *= (uint64_t)dims[k];
    }
    uint64_t bytes = numel * size;
    if (bytes != s->size - 4 - 4 * (uint64_t)rank) {
        return NN__FAIL(TENSOR_ERR_FORMAT, "idx: \"%s\" must hold %d bytes of data (got %d)", label,
                        (int64_t)bytes, (int64_t)(s->size - 4 - 4 * (uint64_t)rank));
    }
    tensor_t *t = nn__host_tensor(dims, rank, dtype);
    void *elements = TENSOR__(host)(t, TENSOR_HOST_WRITE, "idx");
    if (!elements) { return TENSOR__(poison); }
    if (!nn__read(s, 4 + 4 * (uint64_t)rank, elements, bytes)) {
        (tensor_free)(t);
        return NN__FAIL(TENSOR_ERR_IO, "idx: \"%s\" cannot be read", label);
    }
    if (nn__little_endian()) { nn__swap(elements, numel, size); }
    return t;
}

TENSOR_API tensor_t *(nn_parse_idx)(const void *data, size_t size) {
    nn__source_t s = nn__from_memory(data, size);
    return nn__idx(&s, "memory");
}

#ifndef TENSOR_NO_STDIO
TENSOR_API tensor_t *(nn_read_idx)(const char *path) {
    nn__source_t s;
    if (!nn__open(&s, "read_idx", path)) { return TENSOR__(poison); }
    tensor_t *t = nn__idx(&s, path);
    nn__close_source(&s);
    return t;
}
#endif

// ------------------------------------------------------------------------------
// >>impl-files                                     MARK: safetensors
//
// The parser accepts only the grammar that a header can have, so nesting is bounded by the program's text.
// Strings are decoded in place. All numbers are checked while they are read, so later code never sees an
// unchecked one. Rejected: a general JSON parser (recursion, numbers as doubles), reading first and checking
// later.
// ------------------------------------------------------------------------------

typedef struct nn__entry_t {
    const char *name;
    int64_t dims[TENSOR_MAX_DIMS];   // the first dims; a file may have more
    uint64_t numel, begin, end;      // begin, end: in the data
    int ndim, dtype;                 // row of nn__dtypes
} nn__entry_t;

typedef struct nn__named_index_t {
    const char *name;
    int64_t index;
} nn__named_index_t;

struct nn_safetensors_t {
    tensor__owned_t owned;   // first: the context's list
    int dead;                // as in nn_optimizer_t
    nn__source_t source;
    char *header, *label;
    uint64_t data;   // where the data begins in the source
    nn__entry_t *entry;
    int64_t count, cap;
    nn__named_index_t *sorted;   // by name
    nn_metadata_t *metadata;
    int64_t nmetadata, metadata_cap;
};

// The types of the format, with our dtype for those that can be read.
static const struct {
    const char *name;
    int bits, dtype, widen;
} nn__dtypes[] = {
    {"F32", 32, TENSOR_F32, -1},
    {"F64", 64, TENSOR_F64, -1},
    {"I32", 32, TENSOR_I32, -1},
    {"I64", 64, TENSOR_I64, -1},
    {"U8", 8, TENSOR_U8, -1},
    {"BOOL", 8, TENSOR_BOOL, -1},
    {"F16", 16, TENSOR_F16, -1},
    {"BF16", 16, TENSOR_BF16, -1},
    {"I8", 8, TENSOR_I8, -1},
    {"I16", 16, TENSOR_I16, -1},
    {"U16", 16, TENSOR_I32, NN__U16},
    {"U32", 32, TENSOR_I64, NN__U32},
    {"U64", 64, -1, -1},
    {"C64", 64, -1, -1},
    {"F8_E4M3", 8, -1, -1},
    {"F8_E4M3FNUZ", 8, -1, -1},
    {"F8_E5M2", 8, -1, -1},
    {"F8_E5M2FNUZ", 8, -1, -1},
    {"F8_E8M0", 8, -1, -1},
    {"F6_E2M3", 6, -1, -1},
    {"F6_E3M2", 6, -1, -1},
    {"F4", 4, -1, -1},
};
enum { NN__DTYPES = (int)(sizeof nn__dtypes / sizeof nn__dtypes[0]) };

TENSOR__FN void nn__reader_close(nn_safetensors_t *r) {
    TENSOR__(disown)(&r->owned);
    nn__close_source(&r->source);
    nn__free(r->header);
    nn__free(r->label);
    nn__free(r->entry);
    nn__free(r->sorted);
    nn__free(r->metadata);
    r->count = r->nmetadata = 0;
    r->dead = 1;
    TENSOR__(bury)(r, TENSOR__READER);
}

TENSOR__FN void nn__reader_shutdown(tensor__owned_t *o) {
    nn__reader_close((nn_safetensors_t *)(void *)o);
}

TENSOR_API int (nn_safetensors_close)(nn_safetensors_t *r) {
    if (r && r->dead) {
        return NN__ERROR(TENSOR_ERR_OWNER, "safetensors_close: the reader was closed already");
    }
    if (r) { nn__reader_close(r); }
    return TENSOR_OK;
}

// ------------------------------------------------------------------------------
// The header
// ------------------------------------------------------------------------------

typedef struct nn__json_t {
    nn_safetensors_t *r;
    char *p, *end;
    int failed;
} nn__json_t;

// Refuses the file; about is the name of the tensor concerned, or "".
TENSOR__FN int nn__malformed(nn__json_t *j, const char *about, const char *what) {
    if (!j->failed) {
        NN__FAIL(TENSOR_ERR_FORMAT, "safetensors: \"%s\": %s%s%s", j->r->label, about, *about ? ": " : "",
                 what);
    }
    j->failed = 1;
    return 0;
}

TENSOR__FN int nn__peek(nn__json_t *j) {
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t')) { j->p++; }
    return j->p < j->end ? (unsigned char)*j->p : -1;
}

TENSOR__FN int nn__expect(nn__json_t *j, int c, const char *about, const char *what) {
    if (nn__peek(j) != c) { return nn__malformed(j, about, what); }
    j->p++;
    return 1;
}

// Length of the UTF-8 sequence at p, 0 if it is malformed (overlong, surrogate, too large, cut off).
TENSOR__FN int nn__utf8(const unsigned char *p, const unsigned char *end) {
    int n;
    if (*p < 0x80) {
        n = 1;
    } else if (*p >= 0xC2 && *p < 0xE0) {
        n = 2;
    } else if (*p >= 0xE0 && *p < 0xF0) {
        n = 3;
    } else if (*p >= 0xF0 && *p < 0xF5) {
        n = 4;
    } else {
        n = 0;
    }
    if (n < 2) { return n; }
    if (end - p < n) { return 0; }
    uint32_t c = *p & (0x7Fu >> n);
    for (int k = 1; k < n; k++) {
        if ((p[k] & 0xC0) != 0x80) { return 0; }
        c = c << 6 | (p[k] & 0x3Fu);
    }
    if ((n == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) || (n == 4 && (c < 0x10000 || c > 0x10FFFF))) {
        return 0;
    }
    return n;
}

TENSOR__FN int nn__hex4(const char *p, const char *end, uint32_t *out) {
    *out = 0;
    if (end - p < 4) { return 0; }
    for (int k = 0; k < 4; k++) {
        int c = p[k];
        int v;
        if (c >= '0' && c <= '9') {
            v = c - '0';
        } else if (c >= 'a' && c <= 'f') {
            v = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            v = c - 'A' + 10;
        } else {
            v = -1;
        }
        if (v < 0) { return 0; }
        *out = *out << 4 | (uint32_t)v;
    }
    return 1;
}

TENSOR__FN char *nn__no_string(nn__json_t *j, const char *about, const char *what) {
    nn__malformed(j, about, what);
    return NULL;
}

// A string, decoded in place and terminated. NULL after refusing.
TENSOR__FN char *nn__string(nn__json_t *j, const char *about) {
    if (nn__peek(j) != '"') { return nn__no_string(j, about, "a string is expected"); }
    char *start, *to;
    start = to = ++j->p;
    for (;;) {
        if (j->p >= j->end) { return nn__no_string(j, about, "unterminated string"); }
        unsigned char c = (unsigned char)*j->p;
        if (c == '"') { break; }
        if (c < 0x20) { return nn__no_string(j, about, "control character in a string"); }
        int n;
        if (c == '\\') {
            static const unsigned char lead[4] = {0, 0xC0, 0xE0, 0xF0};
            static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
            const char *e = NULL;
            if (j->end - j->p < 2) { return nn__no_string(j, about, "unterminated escape"); }
            if (j->p[1] != 'u') {
                for (e = escapes; *e && *e != j->p[1]; e += 2) { }
                if (!*e) { return nn__no_string(j, about, "unknown escape"); }
                *to++ = e[1];
                j->p += 2;
                continue;
            }
            uint32_t v;
            if (!nn__hex4(j->p + 2, j->end, &v)) { return nn__no_string(j, about, "malformed \\u escape"); }
            j->p += 6;
            uint32_t low;
            if (v >= 0xD800 && v < 0xE000) {
                if (v >= 0xDC00 || j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u' ||
                    !nn__hex4(j->p + 2, j->end, &low) || low < 0xDC00 || low > 0xDFFF) {
                    return nn__no_string(j, about, "unpaired surrogate");
                }
                v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
                j->p += 6;
            }
            if (v == 0) { return nn__no_string(j, about, "NUL in a string"); }
            // bytes after the first
            if (v < 0x80) {
                n = 0;
            } else if (v < 0x800) {
                n = 1;
            } else if (v < 0x10000) {
                n = 2;
            } else {
                n = 3;
            }
            *to++ = (char)(lead[n] | v >> 6 * n);
            while (n-- > 0) { *to++ = (char)(0x80 | (v >> 6 * n & 0x3F)); }
            continue;
        }
        n = nn__utf8((const unsigned char *)j->p, (const unsigned char *)j->end);
        if (n == 0) { return nn__no_string(j, about, "a string is not UTF-8"); }
        while (n-- > 0) { *to++ = *j->p++; }
    }
    j->p++;
    *to = 0;
    return start;
}

// Whether a tensor may have this name: 1..4096 bytes, no control characters.
TENSOR__FN int nn__name_ok(const char *s) {
    const unsigned char *p = (const unsigned char *)s, *end = p + strlen(s);
    if (p == end || end - p > 4096) { return 0; }
    while (p < end) {
        int n = nn__utf8(p, end);
        if (n == 0 || *p < 0x20 || *p == 0x7F) { return 0; }
        p += n;
    }
    return 1;
}

// A JSON integer 0 .. 2^53; no sign, fraction, exponent or leading zero.
TENSOR__FN int nn__integer(nn__json_t *j, const char *about, uint64_t *out) {
    int first = nn__peek(j);
    uint64_t v = 0;
    if (first < '0' || first > '9') { return nn__malformed(j, about, "a whole number >= 0 is expected"); }
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9') {
        v = v * 10 + (uint64_t)(*j->p - '0');
        if (v > (uint64_t)1 << 53) { return nn__malformed(j, about, "a number is too large"); }
        j->p++;
        if (first == '0' && j->p < j->end && *j->p >= '0' && *j->p <= '9') {
            return nn__malformed(j, about, "a number with a leading zero");
        }
    }
    if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E')) {
        return nn__malformed(j, about, "a whole number is expected");
    }
    *out = v;
    return 1;
}

TENSOR__FN int nn__parse_entry(nn__json_t *j, nn__entry_t *e, const char *name) {
    int have_dtype = 0, have_shape = 0, have_offsets = 0;
    if (!nn__expect(j, '{', name, "an object is expected")) { return 0; }
    e->name = name;
    e->numel = 1;
    int k;
    uint64_t v;
    do {
        const char *key = nn__string(j, name);
        if (!key || !nn__expect(j, ':', name, "a colon is expected")) { return 0; }
        if (strcmp(key, "dtype") == 0) {
            const char *d = nn__string(j, name);
            if (!d) { return 0; }
            if (have_dtype++) { return nn__malformed(j, name, "dtype stands twice"); }
            for (k = 0; k < NN__DTYPES && strcmp(nn__dtypes[k].name, d) != 0; k++) { }
            if (k == NN__DTYPES) { return nn__malformed(j, name, "unknown dtype"); }
            e->dtype = k;
        } else if (strcmp(key, "shape") == 0) {
            if (have_shape++) { return nn__malformed(j, name, "shape stands twice"); }
            if (!nn__expect(j, '[', name, "shape must be a list")) { return 0; }
            if (nn__peek(j) == ']') {
                j->p++;
                continue;
            }
            do {
                if (!nn__integer(j, name, &v)) { return 0; }
                if (e->ndim < TENSOR_MAX_DIMS) { e->dims[e->ndim] = (int64_t)v; }
                e->ndim++;
                if (v != 0 && e->numel > ((uint64_t)1 << 60) / v) {
                    return nn__malformed(j, name, "the shape overflows");
                }
                e->numel *= v;
            } while (nn__peek(j) == ',' && j->p++);
            if (!nn__expect(j, ']', name, "a closing bracket is expected")) { return 0; }
        } else if (strcmp(key, "data_offsets") == 0) {
            if (have_offsets++) { return nn__malformed(j, name, "data_offsets stands twice"); }
            if (!nn__expect(j, '[', name, "data_offsets must be a list") ||
                !nn__integer(j, name, &e->begin) ||
                !nn__expect(j, ',', name, "data_offsets must be two numbers") ||
                !nn__integer(j, name, &e->end) ||
                !nn__expect(j, ']', name, "data_offsets must be two numbers")) {
                return 0;
            }
        } else {
            return nn__malformed(j, name, "unknown key");
        }
    } while (nn__peek(j) == ',' && j->p++);
    if (!nn__expect(j, '}', name, "a closing brace is expected")) { return 0; }
    if (!have_dtype || !have_shape || !have_offsets) {
        return nn__malformed(j, name, "dtype, shape or data_offsets is missing");
    }
    if (e->begin > e->end) { return nn__malformed(j, name, "data_offsets end before they begin"); }
    if (e->end > j->r->source.size - j->r->data) {
        return nn__malformed(j, name, "data_offsets lie beyond the file's end");
    }
    uint64_t bits = (uint64_t)nn__dtypes[e->dtype].bits;  // 8 elements have that many bytes
    if (e->numel % 8 * bits % 8 != 0 || e->numel / 8 * bits + e->numel % 8 * bits / 8 != e->end - e->begin) {
        return nn__malformed(j, name, "shape and data_offsets disagree on the size");
    }
    return 1;
}

TENSOR__FN int nn__parse_metadata(nn__json_t *j) {
    nn_safetensors_t *r = j->r;
    if (!nn__expect(j, '{', "__metadata__", "an object is expected")) { return 0; }
    if (nn__peek(j) == '}') {
        j->p++;
        return 1;
    }
    do {
        const char *key = nn__string(j, "__metadata__");
        if (!key || !nn__expect(j, ':', "__metadata__", "a colon is expected")) { return 0; }
        const char *value = nn__string(j, "__metadata__");
        if (!value) { return 0; }
        nn_metadata_t *q;
        q = (nn_metadata_t *)nn__room(r->metadata, r->nmetadata, &r->metadata_cap, 8, sizeof *q);
        if (!q) { return 0; }
        r->metadata = q;
        r->metadata[r->nmetadata].key = key;
        r->metadata[r->nmetadata++].value = value;
    } while (nn__peek(j) == ',' && j->p++);
    return nn__expect(j, '}', "__metadata__", "a closing brace is expected");
}

// Compares structs whose first member is a name.
TENSOR__FN int nn__by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

TENSOR__FN int nn__by_offset(const void *a, const void *b) {
    const nn__entry_t *x = (const nn__entry_t *)a, *y = (const nn__entry_t *)b;
    if (x->begin != y->begin) { return x->begin < y->begin ? -1 : 1; }
    return x->end < y->end ? -1 : x->end > y->end;
}

// Parses header[0..n-1] of r. 0 after raising.
TENSOR__FN int nn__parse_header(nn_safetensors_t *r, uint64_t n) {
    nn__json_t j;
    uint64_t at = 0;
    int seen_metadata = 0;
    j.r = r;
    j.p = r->header;
    j.end = r->header + n;
    j.failed = 0;
    if (!nn__expect(&j, '{', "", "the header does not begin with {")) { return 0; }
    if (nn__peek(&j) == '}') {
        j.p++;
    } else {
        do {
            char *name = nn__string(&j, "header");
            if (!name || !nn__expect(&j, ':', name, "a colon is expected")) { return 0; }
            if (strcmp(name, "__metadata__") == 0) {
                if (seen_metadata++) { return nn__malformed(&j, name, "stands twice"); }
                if (!nn__parse_metadata(&j)) { return 0; }
                continue;
            }
            if (!nn__name_ok(name)) {
                return nn__malformed(&j, "header", "a name is empty, too long or has control characters");
            }
            nn__entry_t *q;
            q = (nn__entry_t *)nn__room(r->entry, r->count, &r->cap, 16, sizeof *q);
            if (!q) { return 0; }
            r->entry = q;
            if (!nn__parse_entry(&j, &r->entry[r->count], name)) { return 0; }
            r->count++;
        } while (nn__peek(&j) == ',' && j.p++);
        if (!nn__expect(&j, '}', "", "a closing brace is expected")) { return 0; }
    }
    if (nn__peek(&j) != -1) { return nn__malformed(&j, "", "text after the header's object"); }
    if (r->count) { qsort(r->entry, (size_t)r->count, sizeof *r->entry, nn__by_offset); }
    for (int64_t i = 0; i < r->count; i++) {
        if (r->entry[i].begin > at) { return nn__malformed(&j, r->entry[i].name, "a hole before its data"); }
        if (r->entry[i].begin < at) {
            return nn__malformed(&j, r->entry[i].name, "its data overlap another tensor's");
        }
        at = r->entry[i].end;
    }
    if (at != r->source.size - r->data) { return nn__malformed(&j, "", "bytes after the last tensor"); }
    r->sorted = (nn__named_index_t *)nn__memory((uint64_t)r->count, sizeof *r->sorted);
    if (!r->sorted) { return 0; }
    for (int64_t i = 0; i < r->count; i++) {
        r->sorted[i].name = r->entry[i].name;
        r->sorted[i].index = i;
    }
    if (r->count) { qsort(r->sorted, (size_t)r->count, sizeof *r->sorted, nn__by_name); }
    for (int64_t i = 1; i < r->count; i++) {
        if (strcmp(r->sorted[i - 1].name, r->sorted[i].name) == 0) {
            return nn__malformed(&j, r->sorted[i].name, "two tensors of this name");
        }
    }
    if (r->nmetadata) { qsort(r->metadata, (size_t)r->nmetadata, sizeof *r->metadata, nn__by_name); }
    for (int64_t i = 1; i < r->nmetadata; i++) {
        if (strcmp(r->metadata[i - 1].key, r->metadata[i].key) == 0) {
            return nn__malformed(&j, "__metadata__", "two entries of one key");
        }
    }
    return 1;
}

// Other files that are mistaken for safetensors, by their first bytes, and what to do with them.
static const struct {
    const char *magic, *what;
} nn__foreign[] = {
    {"PK\3\4", "is a torch.save file (zip), not safetensors; convert it in Python: "
                "safetensors.torch.save_file({k: v.clone() for k, v in torch.load(old).items()}, new)"},
    {"\x80\2", "is a pickle (an old torch.save file), not safetensors; convert it in Python: "
               "safetensors.torch.save_file({k: v.clone() for k, v in torch.load(old).items()}, new)"},
    {"\x80\3", "is a pickle, not safetensors"},
    {"\x80\4", "is a pickle, not safetensors"},
    {"\x80\5", "is a pickle, not safetensors"},
    {"GGUF", "is a GGUF file, not safetensors; load the safetensors file it was made from"},
    {"\x93NUMPY", "is a NumPy file, not safetensors; convert it in Python: "
                  "safetensors.numpy.save_file({\"x\": numpy.load(old)}, new)"},
    {"\x89HDF", "is an HDF5 file, not safetensors"},
    {"\x1F\x8B", "is gzip-compressed; decompress it first (gunzip)"},
    {"version ", "is a pointer of Git LFS, not the file itself; fetch it (git lfs pull)"},
};

// What the first 8 bytes say about a file if they are not the length of a header.
TENSOR__FN const char *nn__foreign_text(const unsigned char *head) {
    for (size_t i = 0; i < sizeof nn__foreign / sizeof *nn__foreign; i++) {
        const char *magic = nn__foreign[i].magic;
        if (memcmp(head, magic, strlen(magic)) == 0) { return nn__foreign[i].what; }
    }
    return NULL;
}

// Reads the header of r's source. 0 after raising.
TENSOR__FN int nn__read_header(nn_safetensors_t *r) {
    const char *label = r->label;
    uint64_t n = 0, size = r->source.size;
    if (size < 8) { return NN__NO(TENSOR_ERR_FORMAT, "safetensors: \"%s\": shorter than 8 bytes", label); }
    unsigned char head[8];
    if (!nn__read(&r->source, 0, head, 8)) {
        return NN__NO(TENSOR_ERR_IO, "safetensors: \"%s\" cannot be read", label);
    }
    for (int k = 7; k >= 0; k--) { n = n << 8 | head[k]; }
    if ((n > size - 8 || n > NN_SAFETENSORS_MAX_HEADER) && nn__foreign_text(head)) {
        return NN__NO(TENSOR_ERR_FORMAT, "safetensors: \"%s\" %s", label, nn__foreign_text(head));
    }
    if (n > size - 8) {
        return NN__NO(TENSOR_ERR_FORMAT, "safetensors: \"%s\": the header's length exceeds the file", label);
    }
    if (n > NN_SAFETENSORS_MAX_HEADER) {
        return NN__NO(TENSOR_ERR_FORMAT, "safetensors: \"%s\": a header of %d bytes is over the limit", label,
                      (int64_t)n);
    }
    r->header = (char *)nn__memory(n + 1, 1);
    if (!r->header) { return 0; }
    if (!nn__read(&r->source, 8, r->header, n)) {
        return NN__NO(TENSOR_ERR_IO, "safetensors: \"%s\" cannot be read", label);
    }
    r->data = 8 + n;
    return nn__parse_header(r, n);
}

// Takes over the source, even if it fails.
TENSOR__FN nn_safetensors_t *nn__reader(nn__source_t *s, const char *label) {
    nn_safetensors_t *r = (nn_safetensors_t *)TENSOR__(object)(nn__self(), TENSOR__READER, sizeof *r);
    if (!r) {
        nn__close_source(s);
        return NULL;
    }
    r->source = *s;
    r->owned.destroy = nn__reader_shutdown;
    TENSOR__(own)(nn__self(), &r->owned);
    r->label = nn__copy_string(label);
    if (r->label && nn__read_header(r)) { return r; }
    nn__reader_close(r);
    return NULL;
}

TENSOR_API nn_safetensors_t *(nn_safetensors_parse)(const void *data, size_t size) {
    nn__source_t s = nn__from_memory(data, size);
    return nn__reader(&s, "memory");
}

TENSOR_API int64_t nn_safetensors_count(nn_safetensors_t *r) {
    return r ? r->count : 0;
}

TENSOR_API const char *nn_safetensors_name(nn_safetensors_t *r, int64_t i) {
    return r && i >= 0 && i < r->count ? r->entry[i].name : NULL;
}

TENSOR_API const char *nn_safetensors_metadata(nn_safetensors_t *r, const char *key) {
    if (!r || !key || r->nmetadata == 0) { return NULL; }
    nn_metadata_t want;
    want.key = key;
    want.value = NULL;
    nn_metadata_t *found =
        (nn_metadata_t *)bsearch(&want, r->metadata, (size_t)r->nmetadata, sizeof want, nn__by_name);
    return found ? found->value : NULL;
}

// A name in two parts.
typedef struct nn__two_names_t {
    const char *prefix, *name;
} nn__two_names_t;

TENSOR__FN int nn__by_two_names(const void *a, const void *b) {
    const nn__two_names_t *want = (const nn__two_names_t *)a;
    const char *name = ((const nn__named_index_t *)b)->name;
    size_t n = strlen(want->prefix);
    int order = strncmp(want->prefix, name, n);
    return order != 0 ? order : strcmp(want->name, name + n);
}

TENSOR__FN nn__entry_t *nn__find_entry(nn_safetensors_t *r, const char *prefix, const char *name) {
    if (r->count == 0) { return NULL; }
    nn__two_names_t want;
    want.prefix = prefix;
    want.name = name;
    nn__named_index_t *found;
    found = (nn__named_index_t *)bsearch(&want, r->sorted, (size_t)r->count, sizeof *found, nn__by_two_names);
    return found ? &r->entry[found->index] : NULL;
}

TENSOR__FN tensor_t *nn__read_entry(nn_safetensors_t *r, const nn__entry_t *e) {
    int dtype = nn__dtypes[e->dtype].dtype, size = nn__dtypes[e->dtype].bits / 8,
        widen = nn__dtypes[e->dtype].widen;
    uint64_t bytes = e->end - e->begin;
    if (dtype < 0) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "safetensors: \"%s\": %s has dtype %s", r->label, e->name,
                        nn__dtypes[e->dtype].name);
    }
    if (e->ndim > TENSOR_MAX_DIMS) {
        return NN__FAIL(TENSOR_ERR_UNSUPPORTED, "safetensors: \"%s\": %s has %i dims, tensors at most %i",
                        r->label, e->name, e->ndim, (int)TENSOR_MAX_DIMS);
    }
    tensor_t *t = nn__host_tensor(e->dims, e->ndim, (tensor_dtype_t)dtype);
    if ((tensor_is_poison)(t) || bytes == 0) { return t; }
    void *elements = TENSOR__(host)(t, TENSOR_HOST_WRITE, "safetensors");
    if (!elements) { return TENSOR__(poison); }
    if (!nn__read(&r->source, r->data + e->begin, elements, bytes)) {
        (tensor_free)(t);
        return NN__FAIL(TENSOR_ERR_IO, "safetensors: \"%s\": %s cannot be read", r->label, e->name);
    }
    if (!nn__little_endian()) { nn__swap(elements, bytes / (uint64_t)size, (size_t)size); }
    if (widen >= 0) { nn__widen(elements, bytes / (uint64_t)size, widen); }
    if (dtype == TENSOR_BOOL) {
        unsigned char *b = (unsigned char *)elements;
        for (uint64_t k = 0; k < bytes; k++) { b[k] = b[k] != 0; }
    }
    return t;
}

TENSOR_API tensor_t *(nn_safetensors_get)(nn_safetensors_t *r, const char *name) {
    if (!r || !name) {
        nn__poisoned("safetensors_get", r ? "name" : "the reader", NULL);
        return TENSOR__(poison);
    }
    if (r->dead) { return NN__FAIL(TENSOR_ERR_OWNER, "safetensors_get: the reader was closed"); }
    nn__entry_t *e = nn__find_entry(r, "", name);
    if (e) { return nn__read_entry(r, e); }
    return NN__FAIL(TENSOR_ERR_INDEX, "safetensors: \"%s\" has no tensor \"%s\"", r->label, name);
}

#ifndef TENSOR_NO_STDIO
TENSOR_API nn_safetensors_t *(nn_safetensors_open)(const char *path) {
    nn__source_t s;
    if (!nn__open(&s, "safetensors", path)) { return NULL; }
    return nn__reader(&s, path);
}
#endif

// ------------------------------------------------------------------------------
// Writing
// ------------------------------------------------------------------------------

// A file or a growing text. After a failure a sink stays failed.
typedef struct nn__sink_t {
    void *file;
    char *p;
    uint64_t n, cap;
    int failed;
} nn__sink_t;

TENSOR__FN void nn__write(nn__sink_t *s, const void *data, uint64_t n) {
    if (s->failed || n == 0) { return; }
#ifndef TENSOR_NO_STDIO
    if (s->file) {
        if (fwrite(data, 1, (size_t)n, (FILE *)s->file) != (size_t)n) { s->failed = TENSOR_ERR_IO; }
        s->n += n;
        return;
    }
#endif
    if (n > s->cap - s->n) {
        uint64_t cap = 2 * s->cap > s->n + n ? 2 * s->cap : s->n + n + 256;
        char *q = (char *)nn__grow(s->p, s->n, cap, 1);
        if (!q) {
            s->failed = TENSOR_ERR_OUT_OF_MEMORY;
            return;
        }
        s->p = q;
        s->cap = cap;
    }
    memcpy(s->p + s->n, data, (size_t)n);
    s->n += n;
}

TENSOR__FN void nn__write_text(nn__sink_t *s, const char *text) {
    nn__write(s, text, strlen(text));
}

TENSOR__FN void nn__write_u64(nn__sink_t *s, uint64_t v) {
    char b[24];
    tensor__text_t t = nn__text(b, sizeof b);
    NN__PUT(&t, "%u", v);
    nn__write(s, b, t.length);
}

TENSOR__FN void nn__write_string(nn__sink_t *s, const char *text) {
    static const char hex[] = "0123456789abcdef";
    nn__write(s, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            nn__write(s, "\\", 1);
            nn__write(s, text, 1);
        } else if (c < 0x20) {
            char e[6] = {'\\', 'u', '0', '0', '0', '0'};
            e[4] = hex[c >> 4];
            e[5] = hex[c & 15];
            nn__write(s, e, 6);
        } else {
            nn__write(s, text, 1);
        }
    }
    nn__write(s, "\"", 1);
}

// A tensor to be written.
typedef struct nn__out_t {
    const char *name;
    tensor_t *t;
    uint64_t bytes;
    int dtype, size;
} nn__out_t;

// Elements with large sizes first, so that all are aligned; then by name.
TENSOR__FN int nn__by_size(const void *a, const void *b) {
    const nn__out_t *x = (const nn__out_t *)a, *y = (const nn__out_t *)b;
    if (x->size != y->size) { return x->size > y->size ? -1 : 1; }
    return strcmp(x->name, y->name);
}

// Checks and sorts the tensors and makes the header (length included). -> block to free, NULL after raising
TENSOR__FN nn__out_t *nn__plan(const char *const *names, tensor_t *const *tensors, int n,
                               const nn_metadata_t *metadata, int nmeta, nn__sink_t *header) {
    uint64_t at = 0;
    int bad = 0;
    memset(header, 0, sizeof *header);
    if (n > 0 && (!names || !tensors)) {
        nn__poisoned("safetensors", names ? "tensors" : "names", NULL);
        return NULL;
    }
    for (int i = 0; i < nmeta; i++) {
        if (metadata && metadata[i].key && metadata[i].value) { continue; }
        nn__poisoned("safetensors", metadata ? "a metadata string" : "metadata", NULL);
        return NULL;
    }
    nn__out_t *out;
    out = (nn__out_t *)nn__memory((uint64_t)(n > 0 ? n : 1), sizeof *out);
    if (!out) { return NULL; }
    int k;
    for (int i = 0; i < n && !bad; i++) {
        tensor_t *t = tensors[i];
        bad = 1;
        if (!t || (tensor_is_poison)(t)) {
            nn__poisoned("safetensors", names[i] ? names[i] : "a tensor", t);
        } else if (!names[i] || !nn__name_ok(names[i]) || strcmp(names[i], "__metadata__") == 0) {
            NN__FAIL(TENSOR_ERR_FORMAT, "safetensors: tensor %d has a name no file may hold", (int64_t)i);
        } else {
            bad = 0;
        }
        for (k = 0; !bad && nn__dtypes[k].dtype != (int)t->dtype; k++) { }
        if (bad) { break; }
        out[i].name = names[i];
        out[i].t = t;
        out[i].dtype = k;
        out[i].size = nn__dtypes[k].bits / 8;
        out[i].bytes = (uint64_t)t->numel * (uint64_t)out[i].size;
    }
    if (!bad && n > 1) { qsort(out, (size_t)n, sizeof *out, nn__by_name); }
    for (int i = 1; i < n && !bad; i++) {
        if (strcmp(out[i - 1].name, out[i].name) != 0) { continue; }
        bad = 1;
        NN__FAIL(TENSOR_ERR_FORMAT, "safetensors: two tensors are called \"%s\"", out[i].name);
    }
    if (!bad && n > 1) { qsort(out, (size_t)n, sizeof *out, nn__by_size); }
    nn__write(header, "\0\0\0\0\0\0\0\0{", 9);
    if (nmeta > 0) {
        nn__write_text(header, "\"__metadata__\":{");
        for (int i = 0; i < nmeta; i++) {
            if (i) { nn__write_text(header, ","); }
            nn__write_string(header, metadata[i].key);
            nn__write_text(header, ":");
            nn__write_string(header, metadata[i].value);
        }
        nn__write_text(header, n > 0 ? "}," : "}");
    }
    for (int i = 0; i < n && !bad; i++) {
        if (i) { nn__write_text(header, ","); }
        nn__write_string(header, out[i].name);
        nn__write_text(header, ":{\"dtype\":\"");
        nn__write_text(header, nn__dtypes[out[i].dtype].name);
        nn__write_text(header, "\",\"shape\":[");
        for (k = 0; k < out[i].t->ndim; k++) {
            if (k) { nn__write_text(header, ","); }
            nn__write_u64(header, (uint64_t)out[i].t->dims[k]);
        }
        nn__write_text(header, "],\"data_offsets\":[");
        nn__write_u64(header, at);
        at += out[i].bytes;
        nn__write_text(header, ",");
        nn__write_u64(header, at);
        nn__write_text(header, "]}");
    }
    nn__write_text(header, "}");
    while (header->n % 8 != 0 && !header->failed) { nn__write_text(header, " "); }
    if (!bad && !header->failed && header->n - 8 > NN_SAFETENSORS_MAX_HEADER) {
        bad = 1;
        NN__FAIL(TENSOR_ERR_FORMAT, "safetensors: a header of %d bytes is over the limit",
                 (int64_t)header->n);
    }
    if (bad || header->failed) {
        nn__free(header->p);
        nn__free(out);
        return NULL;
    }
    for (k = 0; k < 8; k++) { header->p[k] = (char)(unsigned char)((header->n - 8) >> (8 * k)); }
    return out;
}

// Writes header and data into s; s->failed says whether it failed.
TENSOR__FN void nn__emit(nn__sink_t *s, const nn__sink_t *header, const nn__out_t *out, int n) {
    nn__write(s, header->p, header->n);
    for (int i = 0; i < n && !s->failed; i++) {
        tensor_scope_t scope = TENSOR__(scope)(0);
        tensor_t *c = (tensor_to)((tensor_contiguous)(out[i].t), TENSOR_CPU);
        if (out[i].bytes > 0) {
            if (!nn__little_endian()) { c = (tensor_clone)(c); }
            void *elements = TENSOR__(host)(c, TENSOR_HOST_READ, "safetensors");
            if (!elements) {
                s->failed = tensor_error_code();
            } else {
                if (!nn__little_endian()) { nn__swap(elements, (uint64_t)c->numel, (size_t)out[i].size); }
                nn__write(s, elements, out[i].bytes);
            }
        }
        (tensor_scope_end)(scope);
    }
}

TENSOR_API tensor_t *(nn_safetensors_format)(const char *const *names, tensor_t *const *tensors, int n,
                                             const nn_metadata_t *metadata, int nmeta) {
    nn__sink_t header;
    nn__out_t *out = nn__plan(names, tensors, n, metadata, nmeta, &header);
    if (!out) { return TENSOR__(poison); }
    nn__sink_t s;
    memset(&s, 0, sizeof s);
    s.cap = header.n;
    for (int i = 0; i < n; i++) { s.cap += out[i].bytes; }
    int64_t bytes = (int64_t)s.cap;
    tensor_t *t = nn__host_tensor(&bytes, 1, TENSOR_U8);
    s.p = (char *)TENSOR__(host)(t, TENSOR_HOST_WRITE, "safetensors_format");
    if (s.p) {
        nn__emit(&s, &header, out, n);
        if (s.failed) {
            (tensor_free)(t);
            t = TENSOR__(poison);
        }
    }
    nn__free(header.p);
    nn__free(out);
    return s.p ? t : TENSOR__(poison);
}

#ifndef TENSOR_NO_STDIO
TENSOR__FN int nn__io_failed(const char *what, const char *path, int error) {
    return NN__ERROR(TENSOR_ERR_IO, "safetensors: %s \"%s\": %s", what, path, strerror(error));
}

enum { NN__MAX_LINKS = 40 };   // as in Linux

// path with the links at its end followed, so that the links stay. -> block to free, NULL after raising
TENSOR__FN char *nn__follow(const char *path) {
    char *at = nn__copy_string(path);
#ifdef NN__HAS_LINKS
    char to[4097];
    for (int k = 0; at; k++) {
        ssize_t n = readlink(at, to, sizeof to - 1);
        if (n < 0) { break; }
        if (k == NN__MAX_LINKS || (size_t)n == sizeof to - 1) {
            nn__io_failed("cannot write", path, ELOOP);
            nn__free(at);
            return NULL;
        }
        to[n] = 0;
        char *slash = strrchr(at, '/');
        size_t keep = to[0] == '/' || !slash ? 0 : (size_t)(slash - at) + 1;
        char *next = (char *)nn__memory(keep + (size_t)n + 1, 1);
        if (next) {
            memcpy(next, at, keep);
            memcpy(next + keep, to, (size_t)n + 1);
        }
        nn__free(at);
        at = next;
    }
#endif
    return at;
}

// Whether path can be written: it is absent or a regular file, itself or at the end of its links.
TENSOR__FN int nn__writable(const char *path, int *mode) {
    if (nn__file_kind(path, mode) != NN__NO_FILE) { return 1; }
    return NN__NO(TENSOR_ERR_IO, "save: %s is not a regular file", path);
}

// Opens a new file for writing. NULL: errno says why; EEXIST: it exists already.
TENSOR__FN FILE *nn__create_new(const char *path) {
#if defined(NN__HAS_LINKS)
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (fd >= 0 && !f) {
        close(fd);
        (void)unlink(path);
    }
    return f;
#elif defined(_WIN32)
    wchar_t *wide = nn__path(path);
    int fd = wide ? _wopen(wide, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, _S_IREAD | _S_IWRITE) : -1;
    int error = errno;
    FILE *f = fd >= 0 ? _fdopen(fd, "wb") : NULL;
    if (fd >= 0 && !f) {
        error = errno;
        _close(fd);
        nn__remove(path);
    }
    nn__free(wide);
    errno = error;
    return f;
#else
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
        errno = EEXIST;
        return NULL;
    }
    return fopen(path, "wb");
#endif
}

// Creates target.tmp-PROCESS-NUMBER, which no other save uses, empty, with target's permissions (mode < 0:
// the usual ones). *path receives its name, a block to free. NULL after raising.
TENSOR__FN FILE *nn__create(const char *target, int mode, char **path) {
    static tensor__count_t saves;
    size_t room = strlen(target) + 60;
    tensor__text_t t;
    FILE *f = NULL;
    int process = 0, short_name = 0;
    const char *slash = strrchr(target, '/');
    int folder = slash ? (int)(slash - target) + 1 : 0;     // characters of target that are not its name
#if defined(NN__HAS_LINKS)
    process = (int)getpid();
#elif defined(_WIN32)
    process = (int)_getpid();
#endif
    *path = (char *)nn__memory(room, 1);
    if (!*path) { return NULL; }
    for (int tries = 0; !f && tries < 10000; tries++) {  // files of processes that were killed stay
        t = nn__text(*path, room);
        if (short_name) {
            memcpy(*path, target, (size_t)folder);
            t = nn__text(*path + folder, room - (size_t)folder);
            NN__PUT(&t, ".tensor.tmp-%i-%i", process, (int)TENSOR__ATOMIC_ADD(&saves, 1));
        } else {
            NN__PUT(&t, "%s.tmp-%i-%i", target, process, (int)TENSOR__ATOMIC_ADD(&saves, 1));
        }
        errno = 0;
        f = nn__create_new(*path);
        if (!f && errno == ENAMETOOLONG && !short_name) {
            short_name = 1;             // the target's own name leaves no room for more
            continue;
        }
        if (!f && errno != EEXIST) { break; }
    }
    if (!f) { nn__io_failed("cannot create", *path, errno); }
#ifdef NN__HAS_LINKS
    // While it is empty, so that private data stays private.
    if (f && mode >= 0 && chmod(*path, (mode_t)mode) != 0) {
        nn__io_failed("cannot create", *path, errno);
        fclose(f);
        (void)remove(*path);
        f = NULL;
    }
#else
    (void)mode;
#endif
    return f;
}

// Waits until the data is on the disk. 0, or errno if the system reports a failure.
TENSOR__FN int nn__sync_file(FILE *f) {
#if defined(NN__HAS_LINKS)
    // a file system without fsync
    if (fsync(fileno(f)) == 0 || errno == EINVAL || errno == ENOSYS) { return 0; }
    return errno;
#elif defined(_WIN32)
    return _commit(_fileno(f)) == 0 ? 0 : errno;
#else
    (void)f;
    return 0;
#endif
}

// The same for the folder of path, which contains its name; a folder that cannot be opened is ignored.
TENSOR__FN int nn__sync_folder(char *path) {
#if defined(NN__HAS_LINKS)
    char *slash = strrchr(path, '/');
    int error = 0;
    if (slash) { slash[slash == path] = 0; }
    int fd = open(slash ? path : ".", O_RDONLY);
    if (fd < 0) { return 0; }
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOSYS) { error = errno; }
    close(fd);
    return error;
#else
    (void)path;
    return 0;
#endif
}

// Renames the finished file to target. 0 or errno.
TENSOR__FN int nn__replace(const char *from, const char *target) {
#if defined(_WIN32)
    wchar_t *old = nn__path(from), *now = nn__path(target);
    int error = ENOMEM;
    if (old && now) {
        int done = MoveFileExW(old, now, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0;
        int denied = !done && GetLastError() == ERROR_ACCESS_DENIED;
        error = denied ? EACCES : EIO;
        if (done) { error = 0; }
    }
    nn__free(old);
    nn__free(now);
    return error;
#else
    errno = 0;
    return rename(from, target) == 0 ? 0 : errno;
#endif
}

// Writes, waits for the disk and closes. -> code
TENSOR__FN int nn__write_file(FILE *f, const char *path, const nn__sink_t *header, const nn__out_t *out,
                              int n) {
    nn__sink_t s;
    int error = 0;
    memset(&s, 0, sizeof s);
    s.file = f;
    errno = 0;
    nn__emit(&s, header, out, n);
    if (fflush(f) != 0 && !s.failed) { s.failed = TENSOR_ERR_IO; }
    if (s.failed == TENSOR_ERR_IO) {
        error = errno ? errno : EIO;
    } else if (!s.failed) {
        error = nn__sync_file(f);
    }
    errno = 0;
    if (fclose(f) != 0 && !error) { error = errno ? errno : EIO; }
    if (s.failed && s.failed != TENSOR_ERR_IO) { return s.failed; }
    return error ? nn__io_failed("cannot write", path, error) : TENSOR_OK;
}

TENSOR_API int (nn_safetensors_write)(const char *path, const char *const *names, tensor_t *const *tensors,
                                     int n, const nn_metadata_t *metadata, int nmeta) {
    char *temporary = NULL;
    int error = 0, mode = -1;
    if (!path) { return nn__io_failed("cannot write", "(null)", EINVAL); }
    if (!nn__writable(path, &mode)) { return TENSOR_ERR_IO; }
    char *target = nn__follow(path);
    if (!target) { return tensor_error_code(); }
    nn__sink_t header;
    nn__out_t *out = nn__plan(names, tensors, n, metadata, nmeta, &header);
    if (!out) {
        nn__free(target);
        return tensor_error_code();
    }
    FILE *f = nn__create(target, mode, &temporary);
    int code = f ? nn__write_file(f, temporary, &header, out, n) : tensor_error_code();
    if (code == TENSOR_OK) {
        error = nn__replace(temporary, target);
        if (error) { code = nn__io_failed("cannot rename to", target, error); }
    }
    if (f && code != TENSOR_OK) { nn__remove(temporary); }
    if (code == TENSOR_OK) {
        error = nn__sync_folder(target);
        if (error) { code = nn__io_failed("cannot sync the folder of", path, error); }
    }
    nn__free(temporary);
    nn__free(target);
    nn__free(header.p);
    nn__free(out);
    return code;
}
#endif

// ------------------------------------------------------------------------------
// >>impl-state                                     MARK: state of modules, checkpoints
//
// A module's state to and from safetensors, and checkpoints with the optimizer's state and the generator.
// Everything is read and compared before the first parameter is written. Rejected: pickles (they run code),
// partial loads by default.
// ------------------------------------------------------------------------------

// Names and tensors of a module's state, then room for more. -> block to free, NULL after raising
typedef struct nn__save_t {
    const char **name;
    tensor_t **t;
    int n;
    void *items;
    nn__items_t all;
} nn__save_t;

TENSOR__FN int nn__save_begin(nn__save_t *s, nn_module_t *m, const char *op, int more) {
    memset(s, 0, sizeof *s);
    s->items = nn__collect(m, op, &s->all);
    if (!s->items) { return 0; }
    s->name = (const char **)nn__memory((uint64_t)s->all.n + (uint64_t)more, sizeof(char *));
    s->t = (tensor_t **)nn__memory((uint64_t)s->all.n + (uint64_t)more, sizeof(tensor_t *));
    if (!s->name || !s->t) { return 0; }
    for (int64_t i = 0; i < s->all.n; i++) {  // a shared tensor under each of its names, as in PyTorch
        s->name[s->n] = s->all.item[i].name;
        s->t[s->n++] = s->all.item[i].tensor;
    }
    return 1;
}

TENSOR__FN void nn__save_end(nn__save_t *s) {
    nn__free((void *)(uintptr_t)s->name);
    nn__free(s->t);
    nn__free(s->items);
}

TENSOR_API tensor_t *(nn_save_memory)(nn_module_t *m) {
    static const nn_metadata_t format[1] = {{"format", "pt"}};
    nn__save_t s;
    tensor_t *t = TENSOR__(poison);
    if (nn__save_begin(&s, m, "save", 0)) { t = (nn_safetensors_format)(s.name, s.t, s.n, format, 1); }
    nn__save_end(&s);
    return t;
}

// The text has a few names per kind of mismatch; the others are counted.
typedef struct nn__mismatch_t {
    tensor__text_t t;
    int count;
    char text[200];
} nn__mismatch_t;

// Adds name and, if about is not NULL, what is wrong with it.
TENSOR__FN void nn__mismatch_name(nn__mismatch_t *m, const char *name, const char *about) {
    tensor__text_t *t = &m->t;
    size_t more = about ? strlen(about) + 1 : 0;
    if (t->length + strlen(name) + more + 8 < t->room) {
        if (m->count) { NN__PUT(t, ", "); }
        NN__PUT(t, "%s", name);
        if (about) { NN__PUT(t, " %s", about); }
    } else if (t->length + 6 < t->room && (t->length < 3 || strcmp(t->p + t->length - 3, "...") != 0)) {
        NN__PUT(t, "%s", m->count ? ", ..." : "...");
    }
    m->count++;
}

// Whether the file's tensor can become t; if not, text says what it is and what t is.
TENSOR__FN int nn__entry_fits(const nn__entry_t *e, const tensor_t *t, char *text, size_t room) {
    tensor__text_t s = nn__text(text, room);
    int same = e->ndim == t->ndim;
    for (int k = 0; same && k < e->ndim; k++) { same = e->dims[k] == t->dims[k]; }
    if (nn__dtypes[e->dtype].dtype < 0) {
        NN__PUT(&s, "%s (module: %y)", nn__dtypes[e->dtype].name, t);
        return 0;
    }
    if (e->ndim > TENSOR_MAX_DIMS) {
        NN__PUT(&s, "of %i dims (module: %t)", e->ndim, t);
    } else {
        NN__PUT(&s, "%n (module: %t)", e->dims, e->ndim, t);
    }
    return same;
}

// Compares what the file has under names that begin with prefix with what m needs. Names that begin with
// skip are not reported as unexpected.
TENSOR__FN int nn__check_state(nn_safetensors_t *r, const nn__items_t *all, const char *prefix, int partial,
                               const char *skip) {
    unsigned char *known = (unsigned char *)nn__lent((uint64_t)r->count + 1, 1);
    unsigned char *found = (unsigned char *)nn__lent((uint64_t)all->n + 1, 1);
    if (!known || !found) { return TENSOR_ERR_OUT_OF_MEMORY; }
    memset(known, 0, (size_t)r->count + 1);
    memset(found, 0, (size_t)all->n + 1);
    nn__mismatch_t missing, unexpected, differ;
    missing.count = unexpected.count = differ.count = 0;
    missing.t = nn__text(missing.text, sizeof missing.text);
    unexpected.t = nn__text(unexpected.text, sizeof unexpected.text);
    differ.t = nn__text(differ.text, sizeof differ.text);
    char about[200];
    for (int64_t i = 0; i < all->n; i++) {
        nn__entry_t *e = nn__find_entry(r, prefix, all->item[i].name);
        if (!e) { continue; }
        known[e - r->entry] = 1;
        found[all->item[i].first] = 1;
        if (!nn__entry_fits(e, all->item[i].tensor, about, sizeof about)) {
            nn__mismatch_name(&differ, all->item[i].name, about);
        }
    }
    for (int64_t i = 0; i < all->n && !partial; i++) {
        if (all->item[i].first == i && !found[i]) {
            nn__mismatch_name(&missing, all->item[i].name, NULL);
        }
    }
    for (int64_t i = 0; i < r->count && !partial; i++) {
        const char *name = r->entry[i].name;
        if (known[i] || strncmp(name, prefix, strlen(prefix)) != 0) { continue; }
        if (!skip || strncmp(name, skip, strlen(skip)) != 0) { nn__mismatch_name(&unexpected, name, NULL); }
    }
    if (!missing.count && !unexpected.count && !differ.count) { return TENSOR_OK; }
    return NN__ERROR(TENSOR_ERR_FORMAT,
                     "load: \"%s\": %i missing [%s], %i unexpected [%s], %i of another shape [%s]", r->label,
                     missing.count, missing.text, unexpected.count, unexpected.text, differ.count,
                     differ.text);
}

// Reads what the file has for the module, after nn__check_state, and makes sure that nn__put_state cannot
// fail. -> a list in memory of the scope, as long as all (NULL: not in the file); NULL after raising
TENSOR__FN tensor_t **nn__stage_state(nn_safetensors_t *r, const nn__items_t *all, const char *prefix) {
    tensor_t **fresh = (tensor_t **)nn__lent((uint64_t)all->n + 1, sizeof *fresh);
    for (int64_t i = 0; fresh && i < all->n; i++) {
        nn__entry_t *e = nn__find_entry(r, prefix, all->item[i].name);
        tensor_t *to = all->item[i].tensor;
        fresh[i] = NULL;
        if (!e) { continue; }
        if (!TENSOR__(changeable)(nn__self(), "load", to)) { return NULL; }
        tensor_t *read = nn__read_entry(r, e);
        tensor_t *t = (tensor_to)(read, (int)to->dtype);
        if ((tensor_is_poison)(t)) { return NULL; }
        if (t != read) { (tensor_free)(read); }
        if (to->device) {       // the memory that the copy will need there stays in the cache
            tensor_t *room = (tensor_to)(t, TENSOR_CPU + (int)to->device);
            if ((tensor_is_poison)(room)) { return NULL; }
            (tensor_free)(room);
        }
        fresh[i] = t;
    }
    return fresh;
}

// Writes them into the module. -> code
TENSOR__FN int nn__put_state(const nn__items_t *all, tensor_t *const *fresh) {
    for (int64_t i = 0; i < all->n; i++) {
        if (fresh[i] && (tensor_is_poison)((tensor_copy_)(all->item[i].tensor, fresh[i]))) {
            return tensor_error_code();
        }
    }
    return TENSOR_OK;
}

TENSOR__FN int nn__load_from(nn_safetensors_t *r, nn_module_t *m, const char *prefix, int partial) {
    tensor_t **fresh = NULL;
    if (!r) { return tensor_error_code(); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    nn__items_t all;
    int code = nn__collect_lent(m, "load", &all) ? TENSOR_OK : tensor_error_code();
    if (code == TENSOR_OK) { code = nn__check_state(r, &all, prefix, partial, NULL); }
    if (code == TENSOR_OK) {
        fresh = nn__stage_state(r, &all, prefix);
        code = fresh ? nn__put_state(&all, fresh) : tensor_error_code();
    }
    (tensor_scope_end)(scope);
    return code;
}

TENSOR_API int (nn_load_memory)(const void *data, size_t size, nn_module_t *m, int partial) {
    nn_safetensors_t *r = (nn_safetensors_parse)(data, size);
    int code = nn__load_from(r, m, "", partial);
    nn_safetensors_close(r);
    return code;
}

#ifndef TENSOR_NO_STDIO
TENSOR_API int (nn_save)(const char *path, nn_module_t *m) {
    static const nn_metadata_t format[1] = {{"format", "pt"}};
    nn__save_t s;
    int code;
    if (nn__save_begin(&s, m, "save", 0)) {
        code = (nn_safetensors_write)(path, s.name, s.t, s.n, format, 1);
    } else {
        code = tensor_error_code();
    }
    nn__save_end(&s);
    return code;
}

TENSOR_API int nn_load_with(nn_load_args_t a) {
    int code = TENSOR_ERR_SHAPE;
    if (!nn__too_many("load", a.site_, a.options_are_named_)) {
        nn_safetensors_t *r = (nn_safetensors_open)(a.path);
        code = nn__load_from(r, a.module, a.prefix ? a.prefix : "", a.partial);
        nn_safetensors_close(r);
    }
    return tensor__at_int(a.site_, code);
}

// ------------------------------------------------------------------------------
// Checkpoints
//
// Optimizer state is stored as "optimizer/exp_avg/NAME" beside the parameters, with "optimizer/steps" [n] i64
// in the order of the optimizer's parameters, "optimizer/groups" [g, 2] f64 and "optimizer/options" f64; the
// rest is metadata.
// ------------------------------------------------------------------------------

// The file's name for state k of parameter i: made from the parameter's name in the module, or its number.
TENSOR__FN char *nn__state_name(const nn_optimizer_t *o, int i, int k, const nn__items_t *all) {
    char number[24];
    const char *name = number, *state = o->rule->state[k].name;
    tensor__text_t t = nn__text(number, sizeof number);
    NN__PUT(&t, "#%i", i);
    for (int64_t a = 0; a < all->n; a++) {
        if (all->item[a].tensor == o->param[i].t) {
            name = all->item[a].name;
            break;
        }
    }
    size_t size = strlen("optimizer//") + strlen(state) + strlen(name) + 1;
    t = nn__text((char *)nn__memory(size, 1), size);
    if (!t.p) { return NULL; }
    NN__PUT(&t, "optimizer/%s/%s", state, name);
    return t.p;
}

TENSOR_API int (nn_save_checkpoint)(const char *path, nn_module_t *m, nn_optimizer_t *opt, int64_t step) {
    static const char *const fixed[3] = {"optimizer/steps", "optimizer/groups", "optimizer/options"};
    tensor_generator_t g = tensor_get_generator();
    tensor_scope_t scope;
    int own = 0, code = TENSOR_OK, nmeta = 4, named = 0;
    if (tensor_error_code() != TENSOR_OK) { return tensor_error_code(); }
    uint64_t values[3];
    values[0] = (uint64_t)step;
    values[1] = g.seed;
    values[2] = g.offset;
    nn_metadata_t metadata[5];
    char number[3][24];
    for (int i = 0; i < 3; i++) {
        tensor__text_t t = nn__text(number[i], sizeof number[i]);
        NN__PUT(&t, "%u", values[i]);
        metadata[i + 1].value = number[i];
    }
    metadata[0].key = "format";
    metadata[0].value = "pt";
    metadata[1].key = "step";
    metadata[2].key = "generator.seed";
    metadata[3].key = "generator.offset";
    scope = TENSOR__(scope)(0);
    nn__save_t s;
    if (!nn__save_begin(&s, m, "save_checkpoint", opt ? opt->nparams * NN__MAX_STATE + 3 : 0)) {
        code = tensor_error_code();
    }
    named = s.n;
    if (opt && code == TENSOR_OK) {
        metadata[nmeta].key = "optimizer";
        metadata[nmeta++].value = opt->rule->name;
        for (int i = 0; i < opt->nparams && code == TENSOR_OK; i++) {
            for (int k = 0; k < NN__MAX_STATE && code == TENSOR_OK; k++) {
                if (!opt->param[i].state[k]) { continue; }
                s.name[s.n] = nn__state_name(opt, i, k, &s.all);
                if (!s.name[s.n]) {
                    code = TENSOR_ERR_OUT_OF_MEMORY;
                    continue;
                }
                s.t[s.n++] = opt->param[i].state[k];
                own++;
            }
        }
        int64_t n = opt->nparams;
        tensor_t *extra[3];
        extra[0] = nn__host_tensor(&n, 1, TENSOR_I64);
        int64_t dims[2];
        dims[0] = opt->ngroups;
        dims[1] = 2;
        extra[1] = nn__host_tensor(dims, 2, TENSOR_F64);
        n = NN__OPTIONS;
        extra[2] = (tensor_from_n)(opt->option, TENSOR_F64, &n, 1);
        int64_t *steps = (int64_t *)TENSOR__(host)(extra[0], TENSOR_HOST_WRITE, "save_checkpoint");
        double *groups = (double *)TENSOR__(host)(extra[1], TENSOR_HOST_WRITE, "save_checkpoint");
        if (!steps || !groups || (tensor_is_poison)(extra[2])) {
            code = tensor_error_code();
        } else if (code == TENSOR_OK) {
            code = opt->settle ? opt->settle(opt) : TENSOR_OK;
            for (int i = 0; i < opt->nparams; i++) { steps[i] = opt->param[i].step; }
            for (int i = 0; i < opt->ngroups; i++) {
                groups[2 * i] = opt->group[i].ratio;
                groups[2 * i + 1] = opt->group[i].weight_decay;
            }
            for (int i = 0; i < 3; i++) {
                s.name[s.n] = fixed[i];
                s.t[s.n++] = extra[i];
            }
        }
    }
    if (code == TENSOR_OK) { code = (nn_safetensors_write)(path, s.name, s.t, s.n, metadata, nmeta); }
    for (int i = named; i < named + own; i++) { nn__free((void *)(uintptr_t)s.name[i]); }
    nn__save_end(&s);
    (tensor_scope_end)(scope);
    return code;
}

// A decimal u64; 0 if text is not one.
TENSOR__FN int nn__decimal(const char *text, uint64_t *out) {
    uint64_t v = 0;
    if (!text || !*text) { return 0; }
    for (; *text; text++) {
        uint64_t d = (uint64_t)(unsigned char)*text - '0';
        if (d > 9 || v > (UINT64_MAX - d) / 10) { return 0; }
        v = v * 10 + d;
    }
    *out = v;
    return 1;
}

// The tensor name of r, contiguous and owned by the scope, if it has that dtype (a state: f32 or f64) and
// shape; poison after raising.
TENSOR__FN tensor_t *nn__expected(nn_safetensors_t *r, const char *name, int dtype, const int64_t *dims,
                                  int ndim, int state) {
    nn__entry_t *e = nn__find_entry(r, "", name);
    int from = e ? nn__dtypes[e->dtype].dtype : -1;
    int same = e && e->ndim == ndim && nn__dtypes[e->dtype].widen < 0 &&
               (from == dtype || (state && (from == TENSOR_F32 || from == TENSOR_F64)));
    for (int k = 0; same && k < ndim; k++) { same = e->dims[k] == dims[k]; }
    if (same) { return state ? (tensor_to)(nn__read_entry(r, e), dtype) : nn__read_entry(r, e); }
    return NN__FAIL(TENSOR_ERR_FORMAT, "load_checkpoint: \"%s\": %s %s", r->label, name,
                    e ? "does not fit this optimizer" : "is missing");
}

// What a checkpoint has for an optimizer, in the current scope.
typedef struct nn__staged_t {
    const int64_t *steps;
    const double *groups, *options;     // nothing more than the elements of tensors
    int64_t noptions;
    tensor_t **state;    // NN__MAX_STATE for each parameter; NULL = none
} nn__staged_t;

// Whether all numbers are possible for an optimizer.
TENSOR__FN int nn__staged_numbers(const nn_optimizer_t *o, const nn__staged_t *s) {
    for (int i = 0; i < s->noptions; i++) {
        if (!nn__option_holds(i, s->options[i])) { return 0; }
    }
    for (int i = 0; i < 2 * o->ngroups; i++) {
        if (!(s->groups[i] >= 0 && s->groups[i] - s->groups[i] == 0)) { return 0; }
    }
    for (int i = 0; i < o->nparams; i++) {
        if (s->steps[i] < 0 || s->steps[i] > (int64_t)1 << 53) { return 0; }
    }
    return 1;
}

// Reads and checks everything that the optimizer needs. -> code
TENSOR__FN int nn__stage_optimizer(nn_safetensors_t *r, nn_optimizer_t *o, const nn__items_t *all,
                                   nn__staged_t *s) {
    const char *rule = nn_safetensors_metadata(r, "optimizer");
    int64_t left = -3;                          // names of the optimizer that were not read
    int code = nn__busy_optimizer("load_checkpoint", o);
    if (code != TENSOR_OK) { return code; }
    for (int64_t e = 0; e < nn_safetensors_count(r); e++) {
        left += strncmp(nn_safetensors_name(r, e), "optimizer/", 10) == 0;
    }
    if (!rule || strcmp(rule, o->rule->name) != 0) {
        return NN__ERROR(TENSOR_ERR_FORMAT, "load_checkpoint: \"%s\" holds the state of %s, not of %s",
                         r->label, rule ? rule : "no optimizer", o->rule->name);
    }
    int64_t dims[2];
    dims[0] = o->nparams;
    tensor_t *steps = nn__expected(r, "optimizer/steps", TENSOR_I64, dims, 1, 0);
    dims[0] = o->ngroups;
    dims[1] = 2;
    tensor_t *groups = nn__expected(r, "optimizer/groups", TENSOR_F64, dims, 2, 0);
    nn__entry_t *entry = nn__find_entry(r, "", "optimizer/options");
    dims[0] = NN__OPTIONS;
    if (entry && entry->ndim == 1 && entry->dims[0] >= NN__OLD_OPTIONS && entry->dims[0] < NN__OPTIONS) {
        dims[0] = entry->dims[0];
    }
    tensor_t *options = nn__expected(r, "optimizer/options", TENSOR_F64, dims, 1, 0);
    s->noptions = dims[0];
    s->steps = (const int64_t *)TENSOR__(host)(steps, TENSOR_HOST_READ, "load_checkpoint");
    s->groups = (const double *)TENSOR__(host)(groups, TENSOR_HOST_READ, "load_checkpoint");
    s->options = (const double *)TENSOR__(host)(options, TENSOR_HOST_READ, "load_checkpoint");
    if (!s->steps || !s->groups || !s->options) { return tensor_error_code(); }
    s->state = (tensor_t **)nn__lent((uint64_t)o->nparams * NN__MAX_STATE + 1, sizeof(tensor_t *));
    if (!s->state) { return TENSOR_ERR_OUT_OF_MEMORY; }
    memset((void *)s->state, 0, (size_t)o->nparams * NN__MAX_STATE * sizeof(tensor_t *));
    for (int i = 0; i < o->nparams; i++) {
        for (int k = 0; k < NN__MAX_STATE && o->rule->state[k].name; k++) {
            const tensor_t *p = o->param[i].t;
            int as = p->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
            char *name = nn__state_name(o, i, k, all);
            tensor_t *t = NULL;
            if (!name) { return TENSOR_ERR_OUT_OF_MEMORY; }
            entry = nn__find_entry(r, "", name);
            left -= entry != NULL;
            if (entry && o->rule->takes == NN__CLOSURE) {
                t = nn__expected(r, name, as, entry->dims, 2, 1);
            } else if (entry) {
                t = nn__expected(r, name, as, p->dims, p->ndim, 1);
            }
            nn__free(name);
            if (t && (tensor_is_poison)(t)) { return tensor_error_code(); }
            s->state[i * NN__MAX_STATE + k] = t;
        }
    }
    if (left != 0) {
        return NN__ERROR(TENSOR_ERR_FORMAT,
                         "load_checkpoint: \"%s\" holds %d tensors that this optimizer does not have",
                         r->label, left);
    }
    if (!nn__staged_numbers(o, s)) {
        return NN__ERROR(TENSOR_ERR_FORMAT,
                         "load_checkpoint: \"%s\" holds a step count, learning rate or option no optimizer "
                         "can have",
                         r->label);
    }
    return o->settle ? o->settle(o) : TENSOR_OK;
}

TENSOR__FN void nn__put_optimizer(nn_optimizer_t *o, const nn__staged_t *s) {
    memcpy(o->option, s->options, (size_t)s->noptions * sizeof(double));
    for (int i = 0; i < o->ngroups; i++) {
        o->group[i].ratio = s->groups[2 * i];
        o->group[i].weight_decay = s->groups[2 * i + 1];
    }
    for (int i = 0; i < o->nparams; i++) {
        o->param[i].step = s->steps[i];
        for (int k = 0; k < NN__MAX_STATE; k++) {
            tensor_t *t = s->state[i * NN__MAX_STATE + k], *old = o->param[i].state[k];
            o->param[i].state[k] = t ? TENSOR__(hold)(t) : NULL;
            if (old) { TENSOR__(drop)(old); }
        }
    }
}

// In the caller's scope: everything is read and checked before anything changes.
TENSOR__FN int nn__load_checkpoint_from(nn_safetensors_t *r, nn_module_t *m, nn_optimizer_t *opt,
                                        int64_t *step) {
    nn__staged_t staged;
    tensor_generator_t g = {0, 0};
    uint64_t count = 0;
    memset(&staged, 0, sizeof staged);
    nn__items_t all;
    if (!nn__collect_lent(m, "load_checkpoint", &all)) { return tensor_error_code(); }
    int code = nn__check_state(r, &all, "", 0, "optimizer/");
    if (code != TENSOR_OK) { return code; }
    if (!nn__decimal(nn_safetensors_metadata(r, "step"), &count) ||
        !nn__decimal(nn_safetensors_metadata(r, "generator.seed"), &g.seed) ||
        !nn__decimal(nn_safetensors_metadata(r, "generator.offset"), &g.offset)) {
        return NN__ERROR(TENSOR_ERR_FORMAT,
                         "load_checkpoint: \"%s\" has no step or generator; it is not a checkpoint",
                         r->label);
    }
    tensor_t **fresh = nn__stage_state(r, &all, "");
    if (!fresh) { return tensor_error_code(); }
    if (opt) { code = nn__stage_optimizer(r, opt, &all, &staged); }
    if (code == TENSOR_OK) { code = nn__put_state(&all, fresh); }
    if (code != TENSOR_OK) { return code; }
    if (opt) { nn__put_optimizer(opt, &staged); }
    tensor_set_generator(g);
    if (step) { *step = (int64_t)count; }
    return TENSOR_OK;
}

TENSOR_API int (nn_load_checkpoint)(const char *path, nn_module_t *m, nn_optimizer_t *opt, int64_t *step) {
    if (tensor_error_code() != TENSOR_OK) { return tensor_error_code(); }
    nn_safetensors_t *r = (nn_safetensors_open)(path);
    if (!r) { return tensor_error_code(); }
    tensor_scope_t scope;
    scope = TENSOR__(scope)(0);
    int code = nn__load_checkpoint_from(r, m, opt, step);
    (tensor_scope_end)(scope);
    nn_safetensors_close(r);
    return code;
}
#endif

// ------------------------------------------------------------------------------
// >>impl-progress                                  MARK: progress bar
//
// Seconds come from the best clock that the language mode provides; with time() the bar moves once per
// second. Rejected: a thread that draws (a program without threads must stay without them).
// ------------------------------------------------------------------------------

#ifndef TENSOR_NO_STDIO
#if defined(_WIN32)
#include <io.h>
#define NN__IS_TERMINAL() (_isatty(2) != 0)
#elif defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#define NN__IS_TERMINAL() (isatty(2) != 0)
#else
#define NN__IS_TERMINAL() 0
#endif

TENSOR__FN double nn__seconds(void) {
#if defined(_WIN32)
    return (double)clock() / CLOCKS_PER_SEC;        // on that system it is wall-clock time
#elif defined(CLOCK_MONOTONIC)
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#elif defined(TIME_UTC)
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)time(NULL);
#endif
}

TENSOR_API nn_progress_t nn_progress_begin(const char *label, int64_t total, int64_t first) {
    nn_progress_t p;
    memset(&p, 0, sizeof p);
    p.label = label ? label : "";
    p.total = total;
    p.first = first;
    p.last = first;
    p.start = nn__seconds();
    p.shown = -1e9;
    p.terminal = NN__IS_TERMINAL();
    return p;
}

TENSOR__FN void nn__put_time(tensor__text_t *t, double seconds) {
    int64_t s;
    if (seconds < 0) {
        s = 0;
    } else if (seconds > 3.6e9) {
        s = (int64_t)3600000000;
    } else {
        s = (int64_t)seconds;
    }
    if (s >= 3600) {
        NN__PUT(t, "%d%s", s / 3600, s / 60 % 60 < 10 ? ":0" : ":");
    }
    NN__PUT(t, "%d%s%d", s / 60 % 60, s % 60 < 10 ? ":0" : ":", s % 60);
}

TENSOR_API void nn_progress(nn_progress_t *p, int64_t done, const char *note) {
    double now = nn__seconds();
    if (!p) { return; }
    double spent = now - p->start;
    int finished = p->total > 0 && done >= p->total;
    if (!finished && now - p->shown < (p->terminal ? 0.1 : 30)) { return; }
    if (finished && p->last >= p->total) { return; }
    p->shown = now;
    p->last = done;
    double rate = spent > 0 ? (double)(done - p->first) / spent : 0;
    char line[400];
    tensor__text_t t = nn__text(line, sizeof line);
    if (p->terminal) { NN__PUT(&t, "\r"); }
    if (*p->label) { NN__PUT(&t, "%s ", p->label); }
    if (p->total > 0) {
        int filled = (int)(24 * (done < p->total ? (double)done / (double)p->total : 1));
        if (p->terminal) {
            NN__PUT(&t, "[");
            for (int k = 0; k < 24; k++) { NN__PUT(&t, k < filled ? "#" : "-"); }
            NN__PUT(&t, "] ");
        }
        NN__PUT(&t, "%d/%d", done, p->total);
    } else {
        NN__PUT(&t, "%d", done);
    }
    if (rate < 100) {
        NN__PUT(&t, "  %g/s  ", floor(rate * 100 + 0.5) / 100);
    } else {
        NN__PUT(&t, "  %d/s  ", (int64_t)(rate < 1e18 ? rate + 0.5 : 1e18));
    }
    nn__put_time(&t, spent);
    if (p->total > 0 && !finished && rate > 0) {
        NN__PUT(&t, "<");
        nn__put_time(&t, (double)(p->total - done) / rate);
    }
    if (note) {
        NN__PUT(&t, "  %s", note);
    }
    int width = (int)(t.length < sizeof line ? t.length : sizeof line - 1);
    fputs(line, stderr);
    for (int k = width; p->terminal && k < p->width; k++) { fputc(' ', stderr); }
    p->width = width;
    if (finished || !p->terminal) { fputc('\n', stderr); }
    fflush(stderr);
}
#endif

TENSOR__END

#endif   // TENSOR__COMPILES_NN
#undef TENSOR__MORE_KERNELS

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#elif defined(__clang__)
TENSOR__PRECISE_END
#endif

#undef TENSOR_HERE
#undef TENSOR__IN
#define TENSOR_HERE TENSOR__SITE
#define TENSOR__IN(function) TENSOR__SITE_OF(function)

#endif   // TENSOR_NN_IMPLEMENTATION

// The implementation of tensor.h where that of this header is not wanted.
#if defined(TENSOR_IMPLEMENTATION) && !defined(TENSOR_IMPLEMENTATION_DONE)
#include "tensor.h"
#endif

// ------------------------------------------------------------------------------
// >>nn-license                                     MARK: licence
//
// This file is available under two licences; choose whichever you prefer.
//
// ALTERNATIVE A - MIT No Attribution (MIT-0)
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN
// NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
// WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
// SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
//
// ALTERNATIVE B - Public domain (www.unlicense.org)
//
// This is free and unencumbered software released into the public domain. Anyone is free to copy, modify,
// publish, use, compile, sell, or distribute this software, either in source code form or as a compiled
// binary, for any purpose, commercial or non-commercial, and by any means.
//
// In jurisdictions that recognize copyright laws, the author or authors of this software dedicate any and
// all copyright interest in the software to the public domain. We make this dedication for the benefit of
// the public at large and to the detriment of our heirs and successors. We intend this dedication to be an
// overt act of relinquishment in perpetuity of all present and future rights to this software under
// copyright law.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN
// NO EVENT SHALL THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
// CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
// DEALINGS IN THE SOFTWARE.
// ------------------------------------------------------------------------------

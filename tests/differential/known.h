// known.h - where the library and PyTorch differ on purpose, or PyTorch is at fault: how to know it, and why
//
// Counted, and printed with the counts. What differs so is left out of its program, and the rest is compared.
typedef struct known_t {
    const char *names, *text, *why; // "a b": the statement, "" = any; a part of the difference; why
    long count;
} known_t;
static known_t knowns[] = {
    {"", "\" against \"NotImplementedError", "PyTorch has no kernel for the dtype", 0},
    {"",
     "\"\" against \"RuntimeError: unsupported operation: some elements of the input tensor and the "
     "written-to",
     "operands that overlap are copied first", 0},
    {"", "\"\" against \"RuntimeError: expected dtype", "operands of several dtypes promote", 0},
    {"", "is not differentiable with respect to argument", "more gradients than PyTorch has", 0},
    {"", "\"\" against \"RuntimeError: derivative for aten::", "more gradients than PyTorch has", 0},
    {"unique unique_dim unique_consecutive unique_consecutive_dim heaviside histogram histogramdd",
     "requires grad 0, leaf 1 against 1, 0", "what has no gradient does not require one", 0},
    {"eq_ ne_ lt_ le_ gt_ ge_", "requires grad 0, leaf 1 against 1, 0",
     "what has no gradient does not require one", 0},
    {"igamma igammac zeta", "there is no gradient of the first argument", "PyTorch says so in backward", 0},
    {"logical_and_ logical_or_ logical_xor_ logical_not_", "is a leaf that requires grad",
     "PyTorch at fault: a leaf that is changed", 0},
    {"mvlgamma", "may not be a boolean", "PyTorch has no kernel for the dtype", 0},
    {"backward grad", "Function PixelShuffleBackward0 returned an invalid gradient",
     "PyTorch at fault: the sizes of images without elements", 0},
    {"view_dtype", "requires grad 1, leaf ", "of its own dtype it is x itself", 0},
    {"view_dtype", "\"\" against \"RuntimeError: self.stride(", "the stride of a dim of 1 may be any number", 0},
    {"channel_shuffle", "\"\" against \"RuntimeError: Number of groups to divide channels in must be positive",
     "PyTorch at fault: the second derivative of no channels", 0},
    {"addcdiv addcmul", "\"\" against \"RuntimeError: result type", "operands of several dtypes promote", 0},
    {"", "given to vhp should contain a single", "results without a gradient may have any shape", 0},
    {"", "given to hvp should contain a single", "results without a gradient may have any shape", 0},
    {"",
     "\"\" against \"RuntimeError: one of the variables needed for gradient computation has been modified",
     "a change by the own value has right gradients", 0},
    {"", "\"\" against \"RuntimeError: Only Tensors of floating",
     "integers are constants of vjp and its like", 0},
    {"index_copy_ index_copy index_add_ index_add", "Expected a long tensor for index, but got Int",
     "indices of i32 are taken", 0},
    {"", "\"\" against \"RuntimeError: Autograd not support dtype",
     "integers are constants of vjp and its like", 0},
    {"", "given to hessian should contain a single", "results without a gradient may have any shape", 0},
    {"", "Setting requires_grad=True on inference tensor", "vjp and its like take tensors of inference mode",
     0},
    {"", "stack expects a non-empty TensorList", "PyTorch's jacobian has no empty results", 0},
    {"kron backward grad", "\"\" against \"RuntimeError: view size is not compatible",
     "PyTorch at fault: it views what is no view", 0},
    {"backward grad scatter scatter_add scatter_reduce", "returned an invalid gradient at index 1",
     "PyTorch at fault: scatter of an index smaller than src", 0},
    {"cartesian_prod", "meshgrid expects all tensors to have the same dtype",
     "operands of several dtypes promote", 0},
    {"allclose", "did not match", "operands of several dtypes promote", 0},
    {"cdist", "\"\" against", "operands of several dtypes promote", 0},
    {"cdist", "-d f64 against", "operands of several dtypes promote", 0},
    {"cdist", "-d f32 against", "operands of several dtypes promote", 0},
    {"gradient", "-d f32 against", "integers give the default dtype", 0},
    {"kl_div", "Integral inputs not supported", "integers are taken as f32", 0},
    {"lp_pool1d lp_pool2d lp_pool3d", "with optional 0 dim batch size", "no channels are taken", 0},
    {"fractional_max_pool2d fractional_max_pool3d", "has no 0 windows", "a result without windows is refused", 0},
    {"fractional_max_pool3d", "too large relative to input", "windows may fill a dim of 3d, as they may of 2d",
     0},
    {"take take_along_dim one_hot nll_loss gather scatter index_select", "ong", "indices of i32 are taken",
     0},
    {"multi_margin_loss multilabel_margin_loss", "expected scalar type Long but found Int",
     "indices of i32 are taken", 0},
    {"flatten masked_fill_tensor_ index_fill_tensor_ reshape_as squeeze",
     "requires grad 0, leaf 1 against 1, 0",
     "PyTorch at fault: integers and results of inference mode require no grad", 0},
    {"local_response_norm", "leaf 0 against 1, 1", "PyTorch returns the input itself", 0},
    {"trapezoid cumulative_trapezoid rpow_scalar", "i64", "a whole number keeps the dtype of integers", 0},
    {"polygamma", "is inf against", "PyTorch at fault: poles are large numbers", 0},
    {"polygamma", "0 against nan", "PyTorch at fault: 0 at inf", 0},
    {"polygamma", "0 against -nan", "PyTorch at fault: 0 at inf", 0},
    {"poisson_nll_loss cosine_embedding_loss", "against 0-d f32", "operands of several dtypes promote", 0},
    {"searchsorted bucketize", "must be", "values have the dtype of the sorted ones", 0},
    {"prelu", "Type promoting not supported", "operands of several dtypes promote", 0},
    {"linalg_vecdot", "to have the same dtype", "operands of several dtypes promote", 0},
    {"group_norm batch_norm instance_norm layer_norm", "expected scalar type",
     "operands of several dtypes promote", 0},
    {"module", "leaf 0 against 1, 1", "what a module with a hook hands on is not its input", 0},
    {"group_norm batch_norm instance_norm layer_norm", "mixed dtype (CPU)", "operands of several dtypes promote", 0},
    {"group_norm", "to be greater than 0", "no channels are taken", 0},
    {"backward grad", "to have non-zero size for non-batch", "no channels are taken", 0},
    {"", "\"\" against \"RuntimeError: ZeroTensors are immutable", "PyTorch at fault: its zeros cannot be written", 0},
    {"clip_grads", "AttributeError: 'NoneType' object has no attribute 'device'",
     "a gradient of zeros is as good as none", 0},
    {"conv_transpose1d conv_transpose2d conv_transpose3d conv1d conv2d conv3d", "\"\" against \"IndexError",
     "no channels are taken", 0},
    {"detach_", "Can't detach views", "PyTorch makes views inside", 0},
    {"detach_", "is a view; use tensor_detach\" against \"\"", "views of all modes are views", 0},
    {"det", "inf against -nan", "the derivative of a determinant beyond the largest number", 0},
    {"det", "inf against nan", "the derivative of a determinant beyond the largest number", 0},
    {"linalg_solve_triangular", "convert one with tensor_to", "one dtype is wanted", 0},
    {"baddbmm", "-d f32 against 3-d u8", "PyTorch at fault: alpha is cut to an integer", 0},
    {"ormqr", "tau.shape[-1] must be equal", "fewer reflections are taken", 0},
    {"as_strided", "stride", "PyTorch's result of jvp", 0},
    {"triplet_margin_loss", "\"\" against", "operands of several dtypes promote", 0},
    {"triplet_margin_loss", "against -nan", "the curvature at a distance that f16 takes for 0", 0},
    {"triplet_margin_with_distance_loss", "0-d f16 against 0-d f32", "operands of several dtypes promote", 0},
    {"triplet_margin_with_distance_loss", "0-d bf16 against 0-d f32", "operands of several dtypes promote", 0},
    {"triplet_margin_loss soft_margin_loss", "-d f64 against", "operands of several dtypes promote", 0},
    {"triplet_margin_loss soft_margin_loss", "-d f32 against", "operands of several dtypes promote", 0},
    {"triplet_margin_loss soft_margin_loss", "-d f16 against", "operands of several dtypes promote", 0},
    {"triplet_margin_loss soft_margin_loss", "-d bf16 against", "operands of several dtypes promote", 0},
    {"linalg_vander", "N must be greater than 1", "N of 1 is taken", 0},
    {"quantile quantile_dim nanquantile nanquantile_dim", "must be non-empty", "no elements are taken", 0},
    {"unique_consecutive_dim unique_dim", "zero sized dimensions", "no elements are taken", 0},
    {"lstm", "must be w_hh", "PyTorch reads any weights", 0},
    {"lstm gru rnn", ": h [", "PyTorch expands a first state", 0},
    {"lstm gru rnn", ": w_ih [", "PyTorch reads any weights", 0},
    {"lstm gru rnn", ": w_hh [", "PyTorch reads any weights", 0},
    {"pixel_unshuffle pixel_shuffle", ": size ", "PyTorch at fault: the sizes of images without elements", 0},
    {"gaussian_nll_loss soft_margin_loss", "can't be cast to the desired output",
     "operands of several dtypes promote", 0},
    {"bilinear", "cannot reshape tensor of 0 elements", "no elements are taken", 0},
    {"batch_norm", "IndexError", "no channels are taken", 0},
    {"binary_cross_entropy triplet_margin_with_distance_loss", "nan against 0",
     "the mean of nothing is NaN, and so are its derivatives", 0},
    {"", "\"\" against \"RuntimeError: Inference tensors cannot be saved", "what is not needed is not saved", 0},
    {"", "dims; there must be 0 to 8", "a tensor has at most 8 dims", 0},
    {"masked_fill_tensor_ index_fill_tensor_ masked_fill_tensor index_fill_tensor", "without overflow",
     "numbers saturate", 0},
    {"backward grad", "input 2 of recurrent, shape", "a recurrent net saves its first state, needed or not", 0},
    {"backward grad", "has been detached in-place", "detach_ leaves what was saved", 0},
    {"backward grad", "\"\" against \"RuntimeError: Trying to backward through the graph a second time",
     "what saves nothing can run again", 0},
    {"as_strided_scatter", "element", "PyTorch at fault: gradients of overwritten elements", 0},
    {"adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "must be a float", "integers are refused",
     0},
    {"sigmoid exp2 custom multilabel_margin_loss", "requires grad 0, leaf 1 against 1, 0",
     "a view from before requires_grad_ stays as it is", 0},
    {"vander combinations linalg_matrix_norm trapezoid cumulative_trapezoid", "requires grad 1, leaf 0 against 0, 1", "a graph that leads nowhere is kept", 0},
    {"reshape view narrow select slice", "requires grad 0, leaf 1 against 1, 0",
     "a view from before requires_grad_ stays as it is", 0},
    {"conv1d conv2d conv3d", "size 1", "PyTorch at fault: no channels in, none out", 0},
    {"channels_last", "against 1, 0", "PyTorch returns a copy of no elements", 0},
    {"linalg_lstsq", "element", "PyTorch at fault: residuals of no columns", 0},
    {"affine_grid", "non-zero, positive output size", "no elements are taken", 0},
    {"cosine_similarity", "must be a float", "integers are refused", 0},
    {"backward grad", "can't be cast to the desired output type", "operands of several dtypes promote", 0},
    {"huber_loss smooth_l1_loss l1_loss mse_loss hinge_embedding_loss margin_ranking_loss soft_margin_loss "
     "multilabel_soft_margin_loss gaussian_nll_loss kl_div poisson_nll_loss",
     "must have the same shape", "losses do not broadcast", 0},
    {"scatter_reduce scatter scatter_add", "\"\" against \"RuntimeError: The size of tensor",
     "PyTorch at fault: an index smaller than src", 0},
    {"instance_norm", "IndexError", "no channels are taken", 0},
    {"equal", "element", "tensors of several dtypes are not equal", 0},
    {"std std_dim std_dims", "0 against -nan", "a deviation of 0 has the derivative 0, in jvp too", 0},
    {"std std_dim std_dims", "0 against nan", "a deviation of 0 has the derivative 0, in jvp too", 0},
    {"std_mean var_mean std_mean_dims var_mean_dims", "against nan",
     "PyTorch at fault: the mean of what holds inf is NaN", 0},
    {"std_mean var_mean std_mean_dims var_mean_dims", "against -nan",
     "PyTorch at fault: the mean of what holds inf is NaN", 0},
    {"grad", "requires grad 0, leaf 1 against 1, 0", "the gradient of what is linear is a constant", 0},
    {"grad", "requires grad 1, leaf 0 against 0, 1", "the gradient of what is linear is a constant", 0},
    {"max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d conv1d conv2d conv3d im2col col2im "
     "max_unpool1d "
     "max_unpool2d max_unpool3d conv_transpose1d conv_transpose2d conv_transpose3d lp_pool1d lp_pool2d "
     "lp_pool3d",
     "\"\" against \"RuntimeError", "-1 is as the first size; no channels are taken", 0},
    {"adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
     "adaptive_avg_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
     "\"\" against \"RuntimeError", "-1 is as the input; no channels are taken", 0},
    {"linalg_cross cross", "expected scalar type", "operands of several dtypes promote", 0},
    {"meshgrid", "to have the same dtype", "operands of several dtypes promote", 0},
    {"nanquantile_dim quantile_dim quantile nanquantile", "must be same dtype as the input",
     "operands of several dtypes promote", 0},
    {"cross_entropy", "Long or Byte, but got Int", "indices of i32 are taken", 0},
    {"allclose isclose", "must be greater than or equal to zero", "any tolerance is taken", 0},
    {"binary_cross_entropy module", "should be between 0 and 1", "targets are not looked at", 0},
    {"backward grad", "must have the same dtype, but got", "operands of several dtypes promote", 0},
    {"backward grad", "\"\" against \"RuntimeError: The size of tensor",
     "PyTorch at fault: an index smaller than src", 0},
    {"", "requires grad 0, leaf 1 against 1, 1",
     "PyTorch 2.15 at fault: views made under no_grad require grad", 0},
    {"flatten", "shares memory", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten", "leaf 1 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"flatten broadcast_tensors", "leaf 0 against 1, 1", "PyTorch returns the input itself, the library a view of it", 0},
    {"cosine_similarity", "eps must be non-negative", "any eps is taken", 0},
    {"logcumsumexp", "by jvp: element", "PyTorch at fault: NaN, for the logarithm of a negative gradient", 0},
    {"logcumsumexp", "by hvp: element", "PyTorch at fault: NaN, for the logarithm of a gradient of 0", 0},
    {"gelu module", "inf against -nan", "gelu(-inf) is 0, gelu(inf) is inf", 0},
    {"gelu module", "inf against nan", "gelu(-inf) is 0, gelu(inf) is inf", 0},
    {"pixel_shuffle pixel_unshuffle", "returned an invalid gradient", "no elements are taken", 0},
    {"linalg_matrix_power matrix_power", "LinAlgError", "singular except for rounding errors", 0},
    {"unbind", "needs more than 16 places", "the machine has room for 16 results", 0},
    {"unbind split chunk tensor_split", "places, there are 16", "the machine has room for 16 results", 0},
    {"backward grad", "In-place elu backward", "more gradients than PyTorch has", 0},
    {"backward grad", "In-place leakyReLu backward", "more gradients than PyTorch has", 0},
    {"backward grad", "output 0 of bessel", "the functions of all orders keep their result", 0},
    {"normalize", "0 against -nan", "PyTorch at fault: eps is 0 in f16", 0},
    {"normalize", "0 against nan", "PyTorch at fault: eps is 0 in f16", 0},
    {"div div_", "inf against -inf", "a divisor of 0 after rounding, whose sign is not said", 0},
    {"div div_", "-inf against inf", "a divisor of 0 after rounding, whose sign is not said", 0},
    {"logit", "by jvp: element", "PyTorch at fault: 0, where logit itself is NaN", 0},
    {"linalg_solve_triangular", "f32 or f64 is needed", "integers are refused", 0},
    {"huber_loss", "must be a float", "integers are refused", 0},
    {"huber_loss rnn lstm gru gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell conv1d conv2d conv3d conv_transpose1d "
     "conv_transpose2d conv_transpose3d", "use tensor_to", "one dtype is wanted", 0},
    {"lstm", "must be a float\" against \"\"", "integers are refused", 0},
    {"addr", "must not be a floating point number", "integers and a fraction promote", 0},
    {"clamp", "by vjp: element", "clamp passes the gradient on at its bounds", 0},
    {"multi_margin_loss", "element 0 is 0 against",
     "PyTorch at fault: the sum of nothing is what memory held", 0},
    {"segment_reduce", "Expected axis to be the last dimension of lengths", "runs along any dim are taken", 0},
    {"as_strided_scatter", "must have the view's shape", "one dtype is wanted", 0},
    {"empty_strided init", "is expanded", "no change in place of what is expanded", 0},
    {"conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", "must be at least 1 and below",
     "windows have elements", 0},
    {"dist", "but got None", "PyTorch at fault: the gradient of order 0", 0},
    {"tensordot", "both inputs should have same dtype", "operands of several dtypes promote", 0},
    {"interpolate", "Non-empty", "no channels are taken", 0},
    {"backward grad", "Number of groups to divide channels", "no channels are taken", 0},
    {"embedding_bag", "step must be nonzero", "no elements are taken", 0},
    {"multi_margin_loss", "nan against", "PyTorch at fault: the mean of nothing is what memory held", 0},
    {"addbmm addmm", "-d f32 against 2-d i", "PyTorch at fault: alpha is cut to an integer", 0},
    {"addmv", "-d f32 against 1-d i", "PyTorch at fault: alpha is cut to an integer", 0},
    {"linalg_lstsq", "does not have full rank", "PyTorch divides by what rounding left of the rank", 0},
    {"baddbmm", "-d f32 against 3-d i", "PyTorch at fault: alpha is cut to an integer", 0},
    {"softmax log_softmax", "a float dtype is needed", "integers are refused", 0},
    {"scatter_add_ scatter_add scatter_ scatter scatter_reduce scatter_reduce_", "do not fit x",
     "an index without elements is looked at", 0},
    {"unbind", "list index out of range", "the derivative of no results", 0},
    {"backward grad", "of linalg_", "PyTorch's side has copied a result that is not row-major", 0},
    {"", "is a view and its base or another view of its base has been modified inplace",
     "one of several views may be read after a change of its base", 0},
    {"addr", "must have the same dtype", "operands of several dtypes promote", 0},
    {"chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
     "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
     "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
     "legendre_polynomial_p scaled_modified_bessel_k0 scaled_modified_bessel_k1",
     "requires grad 1, leaf 0 against 0, 1", "more gradients than PyTorch has", 0},
    {"var var_dim var_dims std std_dim std_dims var_mean std_mean var_mean_dims std_mean_dims backward grad",
     "is -inf against inf", "slopes where no degree of freedom is left: PyTorch leaves out their sign", 0},
    {"linalg_householder_product ormqr", "nan against", "a NaN among the reflections reaches every column", 0},
    {"bessel_j0 bessel_j1 bessel_y0 bessel_y1", "0 against -nan", "PyTorch at fault: 0 at inf", 0},
    {"bessel_j0 bessel_j1 bessel_y0 bessel_y1", "0 against nan", "PyTorch at fault: 0 at inf", 0},
    {"addcmul addcmul_", "\"\" against \"RuntimeError: value cannot be converted to type uint8_t",
     "a negative number wraps, whether it is written -1 or -1.0", 0},
    {"index_add index_add_ index_add_alpha", "must have the same scalar type", "operands of several dtypes promote", 0},
    {"linalg_lstsq", "INTERNAL ASSERT FAILED", "PyTorch at fault: it asks for a report", 0},
    {"rms_norm", "must be a float", "weights of integers are refused", 0},
    {"backward grad", "input 0 of layer_norm at", "rms_norm saves its input, PyTorch the input less its scale", 0},
    {"optimize", "ZeroDivisionError", "PyTorch at fault: Adafactor of no elements", 0},
    {"geqrf", "requires grad 0, leaf 1 against 1, 0", "what has no gradient does not require one", 0},
    {"svd_lowrank pca_lowrank", "element", "by random projections", 0},
    {"custom_", "requires grad 1, leaf", "the result is the input that was changed", 0},
    {"pow pow_ linalg_vander vander", "0 against -nan", "PyTorch at fault: the derivative of x^0 is 0 at 0, too", 0},
    {"pow pow_ linalg_vander vander", "0 against nan", "PyTorch at fault: the derivative of x^0 is 0 at 0, too", 0},
    {"init", "is out of bounds for dimension 2 with size 0", "PyTorch at fault: dirac of a window of no elements", 0},
    {"clip_grads", "cannot compute the infinity norm on an empty tensor", "the norm of nothing is 0", 0},
    {"sign sign_ sgn sgn_", "nan against 0", "the sign of NaN is NaN", 0},
    {"backward", "\"\" against \"RuntimeError: Inplace update to inference tensor",
     "gradients made in inference mode are added to", 0},
    {"clip_grads", "\"\" against \"RuntimeError: Inplace update to inference tensor",
     "gradients made in inference mode are clipped", 0},
    {"", "is a leaf of the graph that it would become the result of", "a graph that holds itself would stay for ever", 0},
    {"", "\"\" against \"RuntimeError: A view was created in no_grad mode",
     "a view whose base was freed is not a view any more", 0},
};

// Whether a change in place of the program before step reads what it writes: PyTorch's kernels of scatters and the like
// do not notice, and read what they have written already.
static long n_overlaps;
TEST_FN int storage_of(const trace_t *a, int var) {
    int r;
    for (r = 0; r < a->n; r++) {
        if (a->r[r].kind == 'v' && a->r[r].var == var) { return a->r[r].alias < 0 ? var : a->r[r].alias; }
    }
    return -1;
}
TEST_FN int overlaps(const program_t *p, const trace_t *a, int step) {
    int k, j;
    for (k = 0; k <= step; k++) {
        const step_t *s = &p->step[k];
        const char *name = name_of(s);
        if (s->what >= NOPS || name[strlen(name) - 1] != '_') { continue; }
        for (j = 1; j < s->nin; j++) {
            if (s->in[j] >= 0 && s->in[j] != s->in[0] && storage_of(a, s->in[j]) == storage_of(a, s->in[0])) {
                return 1;
            }
        }
    }
    return 0;
}

TEST_FN int uses(const program_t *p, const char *name) {
    int k;
    for (k = 0; k < p->n; k++) {
        if (strcmp(name_of(&p->step[k]), name) == 0) { return 1; }
    }
    return 0;
}

TEST_FN int uses_halves(const program_t *p) {
    int k;
    for (k = 0; k < p->n; k++) {
        if (is(&p->step[k], DO_leaf) && p->step[k].i[AT_DTYPE] >= TENSOR_F16 &&
            is_real((int)p->step[k].i[AT_DTYPE])) {
            return 1;
        }
    }
    return 0;
}
static long n_equals;
TEST_FN int of_equals(const char *name) {
    static const char *const names[] = {"mode", "kthvalue",   "argsort",      "topk",
                                        "sort", "median_dim", "nanmedian_dim"};
    int k;
    for (k = 0; k < (int)(sizeof names / sizeof names[0]); k++) {
        if (strcmp(names[k], name) == 0) { return 1; }
    }
    return 0;
}

// What a part of the difference does not tell apart.

static const record_t *record_at(const trace_t *a, int at) {
    return at >= 1000 && at < 5000 ? &a->r[at - 1000] : NULL;
}
static const step_t *step_at(const program_t *p, const trace_t *a, int at) {
    int step = at < 1000 ? at - 1 : record_at(a, at) ? record_at(a, at)->step : -1;
    return step < 0 ? NULL : &p->step[step];
}
// The value that var was made with.
static const record_t *made(const trace_t *a, int var) {
    int r;
    for (r = 0; r < a->n; r++) {
        if (a->r[r].kind == 'v' && a->r[r].var == var) { return &a->r[r]; }
    }
    return NULL;
}
static int state_of_halves(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at, (void)name;
    return strstr(what, "element") && uses(p, "optimize") && uses_halves(p);
}
// The gradients of elements that as_strided_scatter overwrites, of the unread triangle, of residuals.
static int overwritten(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at;
    if (!uses(p, "as_strided_scatter") && !uses(p, "cholesky_inverse") && !uses(p, "cholesky_solve") &&
        !uses(p, "linalg_lstsq")) {
        return 0;
    }
    return strstr(what, "gradient") || strstr(what, " by ") || strcmp(name, "grad") == 0 ||
           (strstr(what, "element") && (uses(p, "optimize") || strcmp(name, "clip_grads") == 0));
}
static int detached(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at, (void)name;
    return uses(p, "detach_") && (uses(p, "hook") || strstr(what, "requires grad") || strstr(what, "there") ||
                                  strstr(what, "does not require grad"));
}
static int bytes(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)p, (void)name;
    return strstr(what, "element") && record_at(a, at) && record_at(a, at)->dtype == TENSOR_U8;
}
static int bytes_negated(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    int k;
    if (!s || !strstr(what, "element") ||
        (strcmp(name, "margin_ranking_loss") && strcmp(name, "soft_margin_loss") &&
         strcmp(name, "triplet_margin_loss") && strcmp(name, "triplet_margin_with_distance_loss") &&
         strcmp(name, "trapezoid") && strcmp(name, "cumulative_trapezoid"))) {
        return 0;
    }
    for (k = 0; k < s->nin; k++) {
        if (s->in[k] >= 0 && made(a, s->in[k]) && made(a, s->in[k])->dtype == TENSOR_U8) { return 1; }
    }
    return 0;
}
// PyTorch's mean of integers has lost its fraction before it is multiplied by the window's size.
static int cut_mean(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    return x && !is_real(x->dtype) && strncmp(name, "lp_pool", 7) == 0 && strstr(what, "element");
}
// Which of equal elements an order statistic stands for decides where its derivative goes.
static int equal_elements(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    int64_t i, j;
    if (!x || !x->v || !strstr(what, " by ") || !strstr(what, "element")) { return 0; }
    if (!strstr(name, "quantile") && !strstr(name, "median") && !of_equals(name)) { return 0; }
    for (i = 0; i < x->n; i++) {
        for (j = 0; j < i; j++) {
            if (x->v[i] == x->v[j]) { return 1; }
        }
    }
    return 0;
}
static int hooked(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at;
    return strstr(what, "element") && strcmp(name, "grad") == 0 && uses(p, "hook");
}
// PyTorch's graph leads past a view whose base was changed in place.
static int led_past(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at), *t;
    int changed = 0;
    for (t = p->step; s && t < s; t++) {
        changed |= is(t, DO_poke) || name_of(t)[strlen(name_of(t)) - 1] == '_';
    }
    return changed && strcmp(name, "grad") == 0 && strstr(what, "there against") && strstr(what, "not there") &&
           record_at(a, at)->there;
}
// So a hook of such a view is not called: that of y in y = x.flatten(), z = y[:9], y.fill_(1) under no_grad,
// z.sum().backward().
static int led_past_hook(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, changed = 0, hooked_view = 0;
    (void)at, (void)name;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        changed |= is(s, DO_init) || is(s, DO_poke);
        hooked_view |= is(s, DO_hook) && s->in[0] >= 0 && storage_of(a, s->in[0]) != s->in[0];
    }
    return changed && hooked_view && strstr(what, "element");
}
// The gradient by a result of a gradient that was made of it: softmax along another dim than the last one hands on a
// view of what it saves.
static int made_of_result(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const record_t *r = record_at(a, at);
    int k, there = 0;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        there |= strstr(is(s, DO_module) ? module_names[s->i[0]] : name_of(s), "softm") != NULL;
    }
    return there && r && !r->there && strcmp(name, "grad") == 0 && strstr(what, "\", there");
}
static int inferred(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at), *t;
    int kind[MAX_DEPTH + 2], depth = 0, k;
    (void)name, (void)what;
    if (!s || s->via <= CHECKPOINTED) { return 0; }
    for (t = p->step; t < s; t++) {
        if (is(t, DO_begin)) { kind[++depth] = (int)t->i[0]; }
        if (is(t, DO_end) && depth) { depth--; }
    }
    for (k = 1; k <= depth; k++) {
        if (kind[k] == INFERENCE) { return 1; }
    }
    return 0;
}
// The result of a module may be a view that PyTorch makes inside.
static int stale_view(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at), *t;
    int of_module = 0, changed = 0;
    (void)name;
    if (!s || !s->nin || s->in[0] < 0 ||
        !strstr(what, "\"\" against \"RuntimeError: a leaf Variable that requires grad is being")) {
        return 0;
    }
    if (storage_of(a, s->in[0]) != s->in[0]) { return 1; }
    for (t = p->step; t < s; t++) {
        const char *other = name_of(t);
        int in_place = other[strlen(other) - 1] == '_';
        of_module |= is(t, DO_module) && t->out == s->in[0];
        changed |= in_place && t->nin && t->in[0] >= 0 && t->in[0] != s->in[0] && storage_of(a, t->in[0]) == s->in[0];
    }
    return of_module && changed;
}
static int ran_twice(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at, (void)name;
    return strstr(what, "saved by mul were freed") && (uses(p, "trapezoid") || uses(p, "cumulative_trapezoid"));
}
// The result of logic in place is a constant; PyTorch's keeps what x was made by.
static int is_logic_in_place(const char *name) {
    return strncmp(name, "logical_", 8) == 0 && name[strlen(name) - 1] == '_';
}
static int logic(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)a, (void)at;
    for (k = 0; k < p->n; k++) { there |= is_logic_in_place(name_of(&p->step[k])); }
    return there && (strstr(what, "gradient") || strstr(what, "requires grad") || strstr(what, " by ") ||
                     strcmp(name, "grad") == 0 || strcmp(name, "clip_grads") == 0);
}
// A backward that fails may have added to the gradients of some leaves.
static int half_done(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k;
    (void)at, (void)name;
    if (!strstr(what, "gradient") && !strstr(what, "values against")) { return 0; }
    for (k = 0; k < a->steps; k++) {
        if (is(&p->step[k], DO_backward) && a->failed[k]) { return 1; }
    }
    return 0;
}
// PyTorch loses the gradient of what was changed through a view.
static int retained(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at, (void)name;
    return uses(p, "retain") && (strstr(what, "there against") || strstr(what, "values against"));
}
// The library makes a new sum where PyTorch adds into the tensor that was set.
static int set_before(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at, (void)name;
    return uses(p, "set_grad") && uses(p, "backward") && strstr(what, "element");
}
static int six(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    double x, y;
    const char *v = strstr(what, " is ");
    int k, there = 0;
    (void)a, (void)at;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        there |= strncmp(is(s, DO_module) ? module_names[s->i[0]] : name_of(s), "hards", 5) == 0;
    }
    if (!there || (strcmp(name, "grad") && strcmp(name, "clip_grads") && !strstr(what, "gradient"))) {
        return 0;
    }
    return v && sscanf(v, " is %lf against %lf", &x, &y) == 2 && fabs(x - y) <= 1e-7 * (fabs(x) + fabs(y));
}
static int eps_of_halves(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    int k;
    (void)p;
    if (!s || !strstr(what, "nan") || (strcmp(name, "cosine_similarity") && strcmp(name, "cosine_embedding_loss") &&
                                       strcmp(name, "triplet_margin_with_distance_loss"))) {
        return 0;
    }
    for (k = 0; k < s->nin; k++) {
        if (s->in[k] >= 0 && made(a, s->in[k]) && made(a, s->in[k])->dtype == TENSOR_F16) { return 1; }
    }
    return 0;
}
// What is rounded to whole numbers, or to whole multiples, jumps where the last bits of its input differ.
static int jumped(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    static const char *const whole[] = {"div_mode", "trunc", "floor", "ceil", "round"};
    static const char *const multiple[] = {"remainder_scalar", "remainder",    "fmod",
                                           "fmod_scalar",      "floor_divide", "floor_divide_scalar"};
    const char *v = strstr(what, " is ");
    size_t n = strlen(name), in_place = n && name[n - 1] == '_';
    double x, y;
    int k;
    (void)p, (void)a, (void)at;
    if (!strstr(what, "element") || !v || sscanf(v, " is %lf against %lf", &x, &y) != 2) { return 0; }
    if (x - x != 0 || y - y != 0) { return 0; }     // inf and NaN are no jump
    if (strcmp(name, "frexp") == 0) { return x == 0 || y == 0; }    // 0, or what rounding left of it
    n -= in_place;
    for (k = 0; k < (int)(sizeof whole / sizeof whole[0]); k++) {
        if (strlen(whole[k]) == n && strncmp(name, whole[k], n) == 0) { return fabs(x - y) >= 0.5; }
    }
    for (k = 0; k < (int)(sizeof multiple / sizeof multiple[0]); k++) {
        if (strlen(multiple[k]) == n && strncmp(name, multiple[k], n) == 0) { return 1; }
    }
    return 0;
}
// Between samples that are no distance apart slopes are infinite, and their differences NaN.
static int no_distance(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    return s && strcmp(name, "gradient") == 0 && s->f[0] == 0 && strstr(what, "nan against");
}
// A result that is not to include x shares its gradient with the elements of x that are equal to it.
static int shared_with_excluded(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)a, (void)at;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        there |= strncmp(name_of(s), "index_reduce", 12) == 0 && !s->i[1] && s->s[0] == 'a';    // amin, amax
    }
    return there && strstr(what, "element") &&
           (strcmp(name, "grad") == 0 || strstr(what, "gradient") || strstr(what, " by "));
}
static int bytes_of_atan2(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)at;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        const record_t *x = strncmp(name_of(s), "atan2", 5) == 0 && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
        there |= x && x->dtype == TENSOR_U8;
    }
    return there && strstr(what, "element") &&
           (strcmp(name, "grad") == 0 || strstr(what, "gradient") || strstr(what, " by "));
}
// PyTorch's ASGD takes a new learning rate one step later.
static int rate_of_asgd(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)a, (void)at, (void)name;
    for (k = 0; k < p->n; k++) {
        there |= is(&p->step[k], DO_optimize) && strcmp(optimizer_names[p->step[k].i[0]], "asgd") == 0;
    }
    return there && strstr(what, "element");
}
// PyTorch takes functions that have no derivative there for constants.
static int constant_there(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    return s && s->via && strstr(what, "element") && strstr(what, "against 0") &&
           (strstr(name, "_polynomial_") || strncmp(name, "scaled_modified_bessel_k", 24) == 0);
}
// The inverse of what is singular except for rounding errors.
static int singular(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *r = record_at(a, at), *x = s && s->nin ? made(a, s->in[0]) : NULL;
    (void)p;
    if (!r || !x || !strstr(what, "element")) { return 0; }
    if (!strstr(name, "power") && !strstr(name, "inv") && !strstr(name, "solve")) { return 0; }
    return largest(r) > (r->dtype == TENSOR_F64 ? 1e12 : 1e5) * (largest(x) > 1 ? largest(x) : 1);
}
// 1 / 0 and 1 / -0: softshrink(x) is x - clamp(x), whose 0 is +0; PyTorch's is x * 0.
static int shrunk(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)a, (void)at, (void)name;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        there |= strcmp(is(s, DO_module) ? module_names[s->i[0]] : name_of(s), "softshrink") == 0;
    }
    return there && (strstr(what, " is inf against -inf") || strstr(what, " is -inf against inf"));
}
// Where an element is not the extreme one, the gradient of max and min is 0 times the result's, as PyTorch has it on
// a GPU; on the CPU it is +0 there.
static int beside_extreme(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, extreme = 0, slopes = 0;
    (void)a, (void)at, (void)name;
    for (k = 0; k < p->n; k++) {
        extreme |= strcmp(name_of(&p->step[k]), "max") == 0 || strcmp(name_of(&p->step[k]), "min") == 0;
        slopes |= is(&p->step[k], DO_grad) || is(&p->step[k], DO_backward);
    }
    return extreme && slopes && (strstr(what, " is inf against -inf") || strstr(what, " is -inf against inf"));
}
// An index of a tensor without elements is outside of it.
static int nothing_to_index(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    return x && !x->n && strncmp(name, "index_", 6) == 0 && strstr(what, " is outside ") && strstr(what, "against \"\"");
}
// The directional derivative of a mean, median or norm of no elements: nothing times NaN, or nothing.
static int of_nothing(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    return x && !x->n && s->via == JVP && strstr(what, "nan") && strstr(what, "element") &&
           (strncmp(name, "mean", 4) == 0 || strncmp(name, "median", 6) == 0 ||
            strcmp(name, "linalg_vector_norm") == 0 || strncmp(name, "norm_p", 6) == 0 ||
            strcmp(name, "l1_loss") == 0 || strcmp(name, "kl_div") == 0);
}
// The last state of a recurrent net is a step of its output; PyTorch computes it beside the output.
static int of_last_state(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at), *t;
    const record_t *r = record_at(a, at);
    int k = s && r ? r->var - s->out + 1 : 0, found = 0;
    if (strcmp(name, "grad") || k < 1 || k >= s->nin || !r->there || !strstr(what, "not there")) { return 0; }
    for (t = p->step; t < s; t++) {
        int net = strcmp(name_of(t), "rnn") == 0 || strcmp(name_of(t), "gru") == 0 || strcmp(name_of(t), "lstm") == 0;
        found |= net && t->out == s->in[k];
    }
    return found;
}
// Elements that differ by rounding alone are one element of the set, or two.
static int nearly_equal(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    int64_t i, j;
    (void)p;
    if (!x || !x->v || strncmp(name, "unique", 6) || !(strstr(what, "size") || strstr(what, "element"))) { return 0; }
    for (i = 0; i < x->n; i++) {
        for (j = 0; j < i; j++) {
            double d = fabs(x->v[i] - x->v[j]);
            if (d > 0 && d <= 32 * (x->dtype == TENSOR_F64 ? 0x1p-52 : 0x1p-23) * largest(x)) { return 1; }
        }
    }
    return 0;
}
// Below 0 there is no incomplete gamma function and no quantile of the normal distribution; whether what should be
// 0 is below it, rounding decides.
static int rounded_below_0(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    int64_t k;
    (void)p;
    if (!x || !x->v || !strstr(what, "nan") || (strncmp(name, "igamma", 6) && strcmp(name, "ndtri"))) { return 0; }
    for (k = 0; k < x->n; k++) {
        if (fabs(x->v[k]) <= (x->dtype == TENSOR_F64 ? 1e-12 : 1e-6)) { return 1; }
    }
    return 0;
}
// autograd.functional.jvp differentiates a gradient by a zero, for which xlogy's is 0; torch.func.jvp has NaN too.
static int no_logarithm(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    return s && s->via == JVP && strstr(what, "nan against ") && strstr(what, "element") &&
           (strcmp(name, "kl_div") == 0 || strcmp(name, "xlogy") == 0);
}
// PyTorch rounds the slopes at the ends to halves, where those between are wider, as the distances are.
static int gradient_of_halves(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)at, (void)name;
    for (k = 0; k < p->n; k++) {
        const step_t *s = &p->step[k];
        int of_gradient = strcmp(name_of(s), "gradient") == 0 && s->nin > 1 && s->in[0] >= 0 && s->in[1] >= 0;
        const record_t *x = of_gradient ? made(a, s->in[0]) : NULL, *c = of_gradient ? made(a, s->in[1]) : NULL;
        there |= x && c && (x->dtype == TENSOR_F16 || x->dtype == TENSOR_BF16) && c->dtype != x->dtype;
    }
    return there && strstr(what, "element");
}
// PyTorch has no derivative of a view of the own dtype.
static int of_own_dtype(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *x = s && s->nin && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    return x && strcmp(name, "view_dtype") == 0 && s->via && x->dtype == dtype_of(s->s) && strstr(what, "against 0");
}
static int of_order_0(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)a, (void)at, (void)name;
    for (k = 0; k < p->n; k++) { there |= strcmp(name_of(&p->step[k]), "dist") == 0 && p->step[k].f[0] == 0; }
    return there && strstr(what, "Expected a proper Tensor but got None");
}
static int holds_value(const record_t *r, double v) {
    int64_t k;
    for (k = 0; r && r->v && k < r->n; k++) {
        if (r->v[k] == v) { return 1; }
    }
    for (k = 0; r && r->i && k < r->n; k++) {
        if ((double)r->i[k] == v) { return 1; }
    }
    return 0;
}
// An element of x that is equal to its bound.
static int on_a_bound(const program_t *p, const trace_t *a, int step) {
    const step_t *s = &p->step[step];
    const record_t *x = strcmp(name_of(s), "clamp_tensor") == 0 && s->in[0] >= 0 ? made(a, s->in[0]) : NULL;
    int64_t k;
    int i;
    for (k = 0; x && x->v && k < x->n; k++) {
        for (i = 1; i < s->nin; i++) {
            if (s->in[i] >= 0 && holds_value(made(a, s->in[i]), x->v[k])) { return 1; }
        }
    }
    return 0;
}
static int shared_with_bounds(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    int k, there = 0;
    (void)at;
    for (k = 0; k < p->n; k++) { there |= on_a_bound(p, a, k); }
    return there && strstr(what, "element") &&
           (strcmp(name, "grad") == 0 || strstr(what, "gradient") || strstr(what, " by "));
}
// The largest or smallest elements of rows without elements, of which there are none.
static int none_of_none(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *y = s && s->nout ? made(a, s->out) : NULL;
    return y && !y->n && (strncmp(name, "amax", 4) == 0 || strncmp(name, "amin", 4) == 0) &&
           strstr(what, "to have non-zero size");
}
// What is not a reflection lengthens columns, here by more than rounding leaves digits of.
static int no_reflections(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const record_t *r = record_at(a, at);
    (void)p;
    return r && r->v && largest(r) > 1e12 && strstr(what, "element") &&
           (strcmp(name, "ormqr") == 0 || strcmp(name, "linalg_householder_product") == 0);
}
// PyTorch's rows of an image that becomes one column: each is the first one.
static int one_column(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *r = record_at(a, at);
    return s && r && strcmp(name, "interpolate") == 0 && s->ni > 6 && s->i[6] && r->nd == 4 && r->dims[3] == 1 &&
           strstr(what, "element");
}
// Singular vectors turn by what rounding changes of the matrix, over the distance of their values.
static int close_values(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    const step_t *s = step_at(p, a, at);
    const record_t *r = record_at(a, at), *d = s ? made(a, s->out) : NULL;
    const char *v = strstr(what, " is ");
    double x, y, gap = (double)INFINITY;
    int64_t k, n = d && d->nd ? d->dims[d->nd - 1] : 0;
    if ((strcmp(name, "linalg_svd") && strcmp(name, "svd")) || !r || r == d || !n || !v) { return 0; }
    if (sscanf(v, " is %lf against %lf", &x, &y) != 2) { return 0; }
    for (k = 1; k < d->n; k++) {
        if (k % n && fabs(d->v[k] - d->v[k - 1]) < gap) { gap = fabs(d->v[k] - d->v[k - 1]); }
    }
    return fabs(x - y) * gap <= 50 * (r->dtype == TENSOR_F64 ? 0x1p-52 : 0x1p-23) * largest(d);
}
// Gradients of random projections, of which some have a singular value of 0.
static int of_projections(const program_t *p, const trace_t *a, int at, const char *name, const char *what) {
    (void)a, (void)at;
    return (uses(p, "svd_lowrank") || uses(p, "pca_lowrank")) && strstr(what, "element") &&
           (strcmp(name, "grad") == 0 || strcmp(name, "clip_grads") == 0 || strstr(what, "gradient"));
}
// What is left out of the program before the rest of it is compared.
typedef int drop_t(const program_t *p, const trace_t *a, int step);
static int optimizing(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is(&p->step[step], DO_optimize);
}
static int detaching(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is(&p->step[step], DO_detach_);
}
static int hooking(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is(&p->step[step], DO_hook) || is(&p->step[step], DO_post_hook) || is(&p->step[step], DO_unhook);
}
static int failing(const program_t *p, const trace_t *a, int step) {
    return is(&p->step[step], DO_backward) && a->failed[step];
}
static int retaining(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is(&p->step[step], DO_retain);
}
static int setting_grad(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is(&p->step[step], DO_set_grad);
}
static int projecting(const program_t *p, const trace_t *a, int step) {
    const char *name = name_of(&p->step[step]);
    (void)a;
    return strcmp(name, "svd_lowrank") == 0 || strcmp(name, "pca_lowrank") == 0;
}
static int deciding(const program_t *p, const trace_t *a, int step) {
    (void)a;
    return is_logic_in_place(name_of(&p->step[step]));
}
static int overwriting(const program_t *p, const trace_t *a, int step) {
    const char *name = name_of(&p->step[step]);
    (void)a;
    return !strcmp(name, "as_strided_scatter") || !strcmp(name, "cholesky_inverse") ||
           !strcmp(name, "cholesky_solve") || !strcmp(name, "linalg_lstsq");
}
static struct {
    int (*holds)(const program_t *p, const trace_t *a, int at, const char *name, const char *what);
    drop_t *drop; // NULL: the statement that differs
    const char *why;
    long count;
} cases[] = {
    {overwritten, overwriting,
     "PyTorch at fault: gradients of as_strided_scatter, cholesky_inverse, cholesky_solve, lstsq", 0},
    {state_of_halves, optimizing, "the state of optimizers of f16 and bf16 is f32", 0},
    {detached, detaching, "detach_: what hooks and views still hold", 0},
    {bytes, NULL, "conversions to u8 saturate", 0},
    {bytes_negated, NULL, "PyTorch at fault: -target, differences and trapezoids of u8 wrap", 0},
    {rate_of_asgd, optimizing, "ASGD takes a new learning rate at once, PyTorch one step later", 0},
    {bytes_of_atan2, NULL, "PyTorch at fault: the derivative of atan2 negates a, which wraps for u8", 0},
    {cut_mean, NULL, "PyTorch at fault: lp_pool of integers loses the fraction of their mean", 0},
    {equal_elements, NULL, "which of equal elements is meant is not said", 0},
    {hooked, hooking, "autograd_grad gives hooked gradients", 0},
    {eps_of_halves, NULL, "PyTorch at fault: in f16 eps is 0", 0},
    {logic, deciding, "PyTorch at fault: the gradient of what logic in place has overwritten", 0},
    {made_of_result, NULL, "the gradient of softmax's gradient by softmax's result", 0},
    {led_past, NULL, "PyTorch's graph leads past a view whose base was changed", 0},
    {led_past_hook, hooking, "PyTorch's graph leads past the hook of a view whose base was changed", 0},
    {inferred, NULL, "PyTorch records nothing for vjp and its like in inference mode", 0},
    {stale_view, NULL, "PyTorch 2.15 at fault: a view whose base was changed is a leaf until its grad_fn is read", 0},
    {ran_twice, NULL, "trapezoid: PyTorch saves nothing of a number", 0},
    {half_done, failing, "a backward that fails may have added to some gradients", 0},
    {retained, retaining, "PyTorch has no gradient of what was changed through a view", 0},
    {set_before, setting_grad, "PyTorch adds into the gradient that was set, also where it has a graph", 0},
    {six, NULL, "PyTorch at fault: 1/6 of hardsigmoid and hardswish in f64 is that of f32", 0},
    {jumped, NULL, "whole numbers and whole multiples after rounding", 0},
    {shrunk, NULL, "the sign of softshrink's 0", 0},
    {beside_extreme, NULL, "the sign of the 0 in a gradient of max or min", 0},
    {no_distance, NULL, "the slope between samples that are no distance apart", 0},
    {shared_with_excluded, NULL, "PyTorch at fault: what index_reduce excludes takes a share of the gradient", 0},
    {nothing_to_index, NULL, "an index is looked at where x has no elements, too", 0},
    {constant_there, NULL, "more gradients than PyTorch has", 0},
    {of_projections, projecting, "gradients of random projections", 0},
    {none_of_none, NULL, "no elements are taken", 0},
    {no_reflections, NULL, "products of what is not a reflection", 0},
    {one_column, NULL, "PyTorch at fault: antialiased images of one column have equal rows", 0},
    {close_values, NULL, "singular vectors of values that lie close", 0},
    {of_nothing, NULL, "the derivative of a mean, median or norm of no elements is NaN, or 0", 0},
    {of_own_dtype, NULL, "PyTorch has no derivative of a view of the own dtype", 0},
    {of_order_0, NULL, "PyTorch at fault: the gradient of dist of order 0", 0},
    {shared_with_bounds, on_a_bound, "clamp_tensor passes the gradient on at its bounds, PyTorch shares it", 0},
    {singular, NULL, "the inverse of what is singular except for rounding errors", 0},
    {no_logarithm, NULL, "PyTorch at fault: xlogy by jvp where there is no logarithm", 0},
    {gradient_of_halves, NULL, "PyTorch rounds slopes at the ends to halves, where the result is wider", 0},
    {of_last_state, NULL, "the last state of a recurrent net is a step of its output", 0},
    {nearly_equal, NULL, "elements that rounding makes equal, or not", 0},
    {rounded_below_0, NULL, "igamma, igammac and ndtri of what rounding puts below 0", 0},
};

// at: differ's answer, the statement + 1, or 1000 + a record. Sets *drop and *step: what is left out of the program for
// the rest to be compared; NULL and -1: nothing can be.
TEST_FN int known(const program_t *p, const trace_t *a, int at, const char *what, drop_t **drop, int *at_step) {
    int step = at < 1000 ? at - 1 : at < 5000 ? a->r[at - 1000].step : -1, k;
    const char *name = step < 0 ? "" : name_of(&p->step[step]);
    size_t n = strlen(name);
    *at_step = step, *drop = NULL;
    if (step >= 0 && a->failed[step] && skipped(name, "DTYPE")) { return 1; } // ops.def counts and says why
    for (k = 0; k < (int)(sizeof cases / sizeof cases[0]); k++) {
        if (cases[k].holds(p, a, at, name, what)) {
            cases[k].count++;
            *drop = cases[k].drop;
            return 1;
        }
    }
    if (at >= 1000 && at < 5000 && a->r[at - 1000].dtype == TENSOR_I64 && of_equals(name)) {
        n_equals++;
        return 1;
    }
    if (step >= 0 && overlaps(p, a, step)) {
        n_overlaps++;
        return 1;
    }
    for (k = 0; k < (int)(sizeof knowns / sizeof knowns[0]); k++) {
        known_t *w = &knowns[k];
        const char *found = *w->names ? strstr(w->names, name) : name;
        while (*w->names && found &&
               !((found == w->names || found[-1] == ' ') && (found[n] == 0 || found[n] == ' '))) {
            found = strstr(found + 1, name);
        }
        if (!found || !strstr(what, w->text)) { continue; }
        w->count++;
        return 1;
    }
    return 0;
}

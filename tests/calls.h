// calls.h - the ops by name, called with what a fixture's line has (its form: fixtures/generate.py)
#include "test.h"

static const char *const fixture_files[] = {
    "pointwise", "reduce", "linalg", "index", "nn",   "pointwise2", "sort",
    "linalg2",   "index2", "norm",   "conv",  "rest", "nn2",        "small",
    "optim",
};
enum {
    MAX_IN = 32,
    MAX_OUT = 16,
    MAX_ARGS = 32,
    FIXTURE_FILES = (int)(sizeof fixture_files / sizeof fixture_files[0])
};

typedef struct arguments_t {
    tensor_t *in[MAX_IN];
    int nin, ni, nf, nout;
    int64_t i[MAX_ARGS];
    double f[MAX_ARGS];
    char s[256];
    tensor_t *out[MAX_OUT];
} arguments_t;

// An option of a call: 0 is 0, not the default.
static int64_t zero_i(int64_t v) {
    return v ? v : TENSOR_ZERO;
}
static double zero_f(double v) {
    return v != 0 ? v : (double)TENSOR_ZERO;
}
static tensor_dtype_t dtype_of(const char *name) {
    int d;
    for (d = 0; d < TENSOR_DTYPE_COUNT; d++)
        if (strcmp(tensor_dtype_name((tensor_dtype_t)d), name) == 0) break;
    return (tensor_dtype_t)d;
}

// ---- calls of several results; an absent one is NULL ----

static int results(arguments_t *a, tensor_t *x, tensor_t *y, tensor_t *z) {
    int n = 0;
    if (x) a->out[n++] = x;
    if (y) a->out[n++] = y;
    if (z) a->out[n++] = z;
    return n;
}
static int slogdet(arguments_t *a, tensor_slogdet_t s) {
    return results(a, s.sign, s.logabsdet, NULL);
}
static int lu_factor(arguments_t *a, tensor_lu_factor_t f) {
    return results(a, f.lu, f.pivots, NULL);
}
static int lu(arguments_t *a, tensor_lu_t f) {
    return results(a, f.p, f.l, f.u);
}
static tensor_t *lu_solve(tensor_t *x, tensor_t *b, int old) {
    tensor_lu_factor_t f = tensor_linalg_lu_factor(x);
    return old ? tensor_lu_solve(b, f.lu, f.pivots) : tensor_linalg_lu_solve(f.lu, f.pivots, b);
}
static int lu_unpack(arguments_t *a) {
    tensor_lu_factor_t f = tensor_linalg_lu_factor(a->in[0]);
    return lu(a, tensor_lu_unpack(f.lu, f.pivots));
}
static int qr(arguments_t *a, tensor_qr_t f) {
    return results(a, strcmp(a->s, "r") == 0 ? NULL : f.q, f.r, NULL);
}
// What the signs of the vectors leave alone: their sizes, and a function of the matrix made of them. Full
// matrices: the projections on them.
static int svd(arguments_t *a, tensor_t *u, tensor_t *s, tensor_t *vh, int full) {
    tensor_t *uut = tensor_matmul(u, tensor_mT(u)), *vvt = tensor_matmul(vh, tensor_mT(vh));
    if (full) return results(a, s, uut, vvt);
    a->out[3] = tensor_matmul(tensor_mul(u, tensor_unsqueeze(tensor_mul(s, s), -2)), vh);
    return results(a, s, tensor_abs(u), tensor_abs(vh)) + 1;
}
static int linalg_svd(arguments_t *a, tensor_linalg_svd_t f) {
    return svd(a, f.u, f.s, f.vh, (int)a->i[0]);
}
static int svd_of(arguments_t *a, tensor_svd_t f) {
    return svd(a, f.u, f.s, tensor_mT(f.v), 0);
}
static int eigh(arguments_t *a, tensor_eigh_t f) {
    tensor_t *w = f.eigenvalues, *q = f.eigenvectors,
             *w3 = tensor_unsqueeze(tensor_mul(tensor_mul(w, w), w), -2);
    return results(a, w, tensor_abs(q), tensor_matmul(tensor_mul(q, w3), tensor_mT(q)));
}
static int lstsq(arguments_t *a, tensor_lstsq_t f) {
    tensor_shape_t s = tensor_shape(a->in[0]);
    return results(a, f.solution, s.dims[s.ndim - 2] > s.dims[s.ndim - 1] ? f.residuals : NULL, NULL);
}
static int state(arguments_t *a, tensor_state_t s) {
    return results(a, s.y, s.h, s.c);
}
static int cell(arguments_t *a, tensor_state_t s) {
    return results(a, s.h, s.c, NULL);
}
// Inputs x, h, c, weights; layers, proj_size, bidirectional, batch_first, relu, bias.
static tensor_rnn_args_t recurrent(arguments_t *a) {
    tensor_rnn_args_t r = tensor_rnn_defaults();
    r.x = a->in[0], r.h = a->in[1], r.c = a->in[2], r.weights = a->in + 3;
    r.layers = a->i[0], r.proj_size = a->i[1], r.bidirectional = (int)a->i[2], r.batch_first = (int)a->i[3];
    r.relu = (int)a->i[4], r.no_bias = !a->i[5];
    return r;
}
// Inputs query, key, value, attn_mask, key_padding_mask, then the parameters.
static nn_module_t *module; // of a case: the graph needs it until the end
static int attention(arguments_t *a) {
    nn_module_t *m, *out;
    tensor_t **w = a->in + 5, *weights = NULL, *y;
    int64_t e = a->i[0];
    nn_multihead_attention_args_t o = nn_multihead_attention_defaults();
    o.embed = e, o.heads = a->i[1], o.batch_first = (int)a->i[2], o.no_bias = !a->i[4];
    o.add_bias_kv = (int)a->i[6], o.add_zero_attn = (int)a->i[7];
    o.kdim = tensor_size(a->in[1], -1), o.vdim = tensor_size(a->in[2], -1);
    module = m = nn_multihead_attention_with(o);
    out = nn_get_child(m, "out_proj");
    if (a->i[8]) {
        nn_parameter(m, "q_proj_weight", *w++);
        nn_parameter(m, "k_proj_weight", *w++);
        nn_parameter(m, "v_proj_weight", *w++);
    } else
        nn_parameter(m, "in_proj_weight", *w++);
    if (a->i[4]) nn_parameter(m, "in_proj_bias", *w++);
    nn_parameter(out, "weight", *w++);
    if (a->i[4]) nn_parameter(out, "bias", *w++);
    if (a->i[6]) {
        nn_parameter(m, "bias_k", w[0]);
        nn_parameter(m, "bias_v", w[1]);
    }
    y = nn_multihead_attention_forward(m, a->in[0], a->in[1], a->in[2], .attn_mask = a->in[3],
                                       .key_padding_mask = a->in[4], .weights = &weights,
                                       .is_causal = (int)a->i[3], .every_head = (int)a->i[5]);
    return results(a, y, weights, NULL);
}
// w after a step for each row of gradients; f: the options in the order of the case, none = PyTorch's.
static tensor_t *steps(arguments_t *a) {
    tensor_t *w = tensor_requires_grad_(tensor_clone(a->in[0]), 1);
    nn_optimizer_t *o = NULL;
    double v[8];
    int k, up = (int)a->i[0], flag = (int)a->i[1];
    for (k = 0; k < 8; k++) v[k] = a->nf ? zero_f(a->f[k]) : 0;
#define WHOSE .list = &w, .count = 1, .lr = v[0], .weight_decay = v[1], .maximize = up
#define BETAS .beta1 = v[2], .beta2 = v[3], .eps = v[4]
    if (strcmp(a->s, "sgd") == 0)
        o = nn_sgd(WHOSE, .momentum = v[2], .dampening = v[3], .nesterov = flag);
    if (strcmp(a->s, "adam") == 0) o = nn_adam(WHOSE, BETAS, .amsgrad = flag);
    if (strcmp(a->s, "adamw") == 0) o = nn_adamw(WHOSE, BETAS, .amsgrad = flag);
    if (strcmp(a->s, "rmsprop") == 0)
        o = nn_rmsprop(WHOSE, .alpha = v[2], .eps = v[3], .momentum = v[4], .centered = flag);
    if (strcmp(a->s, "adagrad") == 0)
        o = nn_adagrad(WHOSE, .lr_decay = v[2], .initial_accumulator_value = v[3], .eps = v[4]);
    if (strcmp(a->s, "adadelta") == 0) o = nn_adadelta(WHOSE, .rho = v[2], .eps = v[3]);
    if (strcmp(a->s, "adamax") == 0) o = nn_adamax(WHOSE, BETAS);
    if (strcmp(a->s, "nadam") == 0)
        o = nn_nadam(WHOSE, BETAS, .momentum_decay = v[5], .decoupled_weight_decay = flag);
    if (strcmp(a->s, "radam") == 0) o = nn_radam(WHOSE, BETAS, .decoupled_weight_decay = flag);
#undef WHOSE
#undef BETAS
    for (k = 0; o && k < tensor_size(a->in[1], 0); k++) {
        tensor_set_grad(w, tensor_clone(tensor_select(a->in[1], 0, k)));
        nn_step(o);
    }
    nn_optimizer_free(o);
    return tensor_clone(tensor_detach(w));
}
// w after a step of Muon for each gradient.
static tensor_t *muon(arguments_t *a) {
    tensor_t *w = tensor_requires_grad_(tensor_clone(a->in[0]), 1);
    nn_optimizer_t *o;
    double v[7];
    int k;
    for (k = 0; k < 7; k++) v[k] = k < a->nf ? zero_f(a->f[k]) : 0;
    o = nn_muon(.list = &w, .count = 1, .lr = v[0], .weight_decay = v[1], .momentum = v[2], .eps = v[3],
                .ns_a = v[4], .ns_b = v[5], .ns_c = v[6], .no_nesterov = (int)a->i[0],
                .adjust_lr_fn = (int)a->i[1], .ns_steps = (int)a->i[2]);
    for (k = 0; o && k < tensor_size(a->in[1], 0); k++) {
        tensor_set_grad(w, tensor_clone(tensor_select(a->in[1], 0, k)));
        nn_step(o);
    }
    nn_optimizer_free(o);
    return tensor_clone(tensor_detach(w));
}
typedef struct fit_t {
    arguments_t *a;
    tensor_t *w[2];
    nn_optimizer_t *o;
    int calls;
} fit_t;
static tensor_t *fit_loss(void *user) {
    fit_t *f = (fit_t *)user;
    tensor_t *y = tensor_tanh(tensor_matmul(f->a->in[0], tensor_cat(0, f->w[0], f->w[1])));
    y = tensor_mean(tensor_square(tensor_sub(y, f->a->in[1])));
    if (f->a->i[5]) y = tensor_neg(y);
    nn_zero_grad(f->o);
    tensor_backward(y);
    return y;
}
// Squares of tanh(a w) - y by L-BFGS: w after the steps, and the last step's loss.
static tensor_t *lbfgs(arguments_t *a) {
    tensor_t *w = tensor_detach(a->in[2]), *loss = NULL;
    fit_t f;
    int k;
    f.a = a;
    f.w[0] = tensor_requires_grad_(tensor_clone(tensor_narrow(w, 0, 0, 2)), 1);
    f.w[1] = tensor_requires_grad_(tensor_clone(tensor_narrow(w, 0, 2, 3)), 1);
    f.o = nn_lbfgs(.list = f.w, .count = 2, .lr = a->f[0], .max_iter = (int)a->i[1], .max_eval = (int)a->i[2],
                   .history_size = (int)a->i[3], .line_search_fn = (int)a->i[4], .maximize = (int)a->i[5]);
    for (k = 0; f.o && k < a->i[0]; k++) loss = nn_step_closure(f.o, fit_loss, &f);
    nn_optimizer_free(f.o);
    return tensor_detach(tensor_cat(0, f.w[0], f.w[1], tensor_reshape(loss, 1)));
}
// Where L-BFGS is after the steps from x on, the last step's loss, how often it called.
static tensor_t *path_loss(void *user) {
    fit_t *f = (fit_t *)user;
    int64_t n = tensor_numel(f->w[0]);
    tensor_t *x = f->w[0], *a = tensor_narrow(x, 0, 0, n - 1), *b = tensor_narrow(x, 0, 1, n - 1), *y;
    tensor_t *xx = tensor_mul(x, x);
    f->calls++;
    switch (f->a->i[0]) {
    case 0:
        y = tensor_mul_scalar(tensor_square(tensor_sub(b, tensor_mul(a, a))), 100);
        y = tensor_add(y, tensor_square(tensor_rsub_scalar(a, 1)));
        break;
    case 1: y = tensor_add(tensor_sin(tensor_mul_scalar(x, 3)), tensor_mul_scalar(xx, 0.1)); break;
    case 2: y = tensor_add(tensor_abs(x), tensor_exp(tensor_mul_scalar(x, -2))); break;
    case 3: y = tensor_sqrt(tensor_add_scalar(xx, 1e-6)); break;
    default: y = tensor_log(tensor_add_scalar(tensor_square(tensor_sub_scalar(xx, 2)), 1e-3)); break;
    }
    y = tensor_sum(y);
    nn_zero_grad(f->o);
    tensor_backward(y);
    return y;
}
static tensor_t *lbfgs_path(arguments_t *a) {
    tensor_t *loss = NULL;
    fit_t f;
    int k;
    f.a = a;
    f.calls = 0;
    f.w[0] = tensor_requires_grad_(tensor_clone(a->in[0]), 1);
    f.o = nn_lbfgs(.list = f.w, .count = 1, .lr = a->f[0], .max_iter = (int)a->i[2], .max_eval = (int)a->i[3],
                   .history_size = (int)a->i[4], .line_search_fn = (int)a->i[5]);
    for (k = 0; f.o && k < a->i[1]; k++) loss = nn_step_closure(f.o, path_loss, &f);
    nn_optimizer_free(f.o);
    loss = tensor_stack(0, loss, tensor_scalar(f.calls, TENSOR_F64));
    return tensor_detach(tensor_cat(0, f.w[0], loss));
}
// The learning rates of steps 0 .. i[0] - 1; plateau: after each value of the input.
static tensor_t *rates(arguments_t *a) {
    const int64_t *i = a->i;
    const double *f = a->f;
    double v[128], lr = f[0];
    nn_plateau_t p = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    int64_t k, n = a->nin ? tensor_numel(a->in[0]) : i[0];
    p.factor = f[1], p.threshold = zero_f(f[2]), p.min_lr = f[3];
    p.patience = zero_i(i[1]), p.cooldown = i[2], p.maximize = (int)i[3], p.absolute = (int)i[4];
    for (k = 0; k < n && k < 128; k++) {
        if (a->nin) lr = nn_lr_plateau(&p, tensor_item(tensor_select(a->in[0], 0, k)), lr);
        v[k] = a->nin ? lr : strcmp(a->s, "cosine") == 0 ? nn_lr_cosine(k, i[1], f[0], f[1])
               : strcmp(a->s, "step") == 0 ? nn_lr_step(k, i[1], f[0], f[1])
               : strcmp(a->s, "exponential") == 0 ? nn_lr_exponential(k, f[0], f[1])
               : strcmp(a->s, "linear") == 0 ? nn_lr_linear(k, i[1], f[0], f[1], f[2])
               : strcmp(a->s, "constant") == 0 ? nn_lr_constant(k, i[1], f[0], f[1])
               : strcmp(a->s, "multi step") == 0 ? nn_lr_multi_step(k, i + 1, a->ni - 1, f[0], f[1])
               : strcmp(a->s, "polynomial") == 0 ? nn_lr_polynomial(k, i[1], f[0], f[1])
               : strcmp(a->s, "restarts") == 0 ? nn_lr_cosine_restarts(k, i[1], i[2], f[0], f[1])
               : strcmp(a->s, "one cycle") == 0 ? nn_lr_one_cycle(k, i[1], f[0], f[1], f[2], f[3])
               : strcmp(a->s, "cyclic") == 0 ? nn_lr_cyclic(k, i[1], i[2], f[0], f[1], f[2]) : -1;
    }
    return tensor_from_n(v, TENSOR_F64, &n, 1);
}
// "pattern|reduce"; h, c, w are the first sizes.
static tensor_t *rearrange(arguments_t *a) {
    char *bar = strchr(a->s, '|');
    if (bar) *bar = 0;
    return tensor_rearrange(a->in[0], a->s, bar ? bar + 1 : NULL, .h = a->i[0]);
}
// The second and third result are the running statistics.
static int batch_norm(arguments_t *a, tensor_t *mean, tensor_t *var) {
    tensor_t *y = tensor_batch_norm(a->in[0], mean, var, a->in[3], a->in[4], .training = (int)a->i[0],
                                    .momentum = a->f[0]);
    return results(a, y, mean, var);
}
static int instance_norm(arguments_t *a) {
    tensor_t *mean = a->nin > 1 ? tensor_clone(a->in[1]) : NULL,
             *var = a->nin > 1 ? tensor_clone(a->in[2]) : NULL;
    tensor_t *y = tensor_instance_norm(a->in[0], .running_mean = mean, .running_var = var, .weight = a->in[3],
                                       .bias = a->in[4], .no_use_input_stats = a->nin > 1 && !a->i[0],
                                       .momentum = a->f[0]);
    return results(a, y, mean, var);
}
static tensor_t *truth(int yes) {
    return tensor_scalar(yes, TENSOR_BOOL);
}

// ---- the ops: name, and the call by inputs A B C D, integers I(k), numbers F(k), text S ----
#define A a->in[0]
#define B a->in[1]
#define C a->in[2]
#define D a->in[3]
#define I(k) a->i[k]
#define F(k) a->f[k]
#define Z(k) zero_i(a->i[k])
#define DT dtype_of(a->s)
#define DIMS a->i, a->ni
#define COPY tensor_clone(A)
#define REST a->i + 1, a->ni - 1
#define RED(k) .reduction = (tensor_reduction_t)I(k)
// The sizes and strides of as_strided: half of the integers each, then the offset.
#define STRIDED a->i, a->i + a->ni / 2, a->ni / 2, a->i[a->ni - 1]

// X: one result; P: values and indices; N: a number of results.
// clang-format off
#define OPS(X, P, N) \
    X(abs, tensor_abs(A)) X(abs_, tensor_abs_(COPY)) X(acos, tensor_acos(A)) X(asin, tensor_asin(A)) \
    X(atan, tensor_atan(A)) X(bitwise_not, tensor_bitwise_not(A)) X(ceil, tensor_ceil(A)) \
    X(clamp, tensor_clamp(A, F(0), F(1))) X(clamp_, tensor_clamp_(COPY, F(0), F(1))) X(clone, tensor_clone(A)) \
    X(contiguous, tensor_contiguous(A)) X(cos, tensor_cos(A)) X(cosh, tensor_cosh(A)) X(detach, tensor_detach(A)) \
    X(elu, tensor_elu(A, F(0))) X(erf, tensor_erf(A)) X(erfc, tensor_erfc(A)) X(exp, tensor_exp(A)) \
    X(exp2, tensor_exp2(A)) X(exp_, tensor_exp_(COPY)) X(expm1, tensor_expm1(A)) X(floor, tensor_floor(A)) \
    X(gelu, tensor_gelu(A)) X(gelu_tanh, tensor_gelu_tanh(A)) X(isfinite, tensor_isfinite(A)) X(isinf, tensor_isinf(A)) \
    X(isnan, tensor_isnan(A)) X(leaky_relu, tensor_leaky_relu(A, F(0))) X(log, tensor_log(A)) X(log10, tensor_log10(A)) \
    X(log1p, tensor_log1p(A)) X(log2, tensor_log2(A)) X(logical_not, tensor_logical_not(A)) \
    X(logsigmoid, tensor_logsigmoid(A)) X(neg, tensor_neg(A)) X(neg_, tensor_neg_(COPY)) \
    X(reciprocal, tensor_reciprocal(A)) X(relu, tensor_relu(A)) X(relu_, tensor_relu_(COPY)) X(round, tensor_round(A)) \
    X(rsqrt, tensor_rsqrt(A)) X(sigmoid, tensor_sigmoid(A)) X(sigmoid_, tensor_sigmoid_(COPY)) X(sign, tensor_sign(A)) \
    X(silu, tensor_silu(A)) X(sin, tensor_sin(A)) X(sinh, tensor_sinh(A)) X(softplus, tensor_softplus(A, F(0), F(1))) \
    X(sqrt, tensor_sqrt(A)) X(sqrt_, tensor_sqrt_(COPY)) X(square, tensor_square(A)) X(tan, tensor_tan(A)) \
    X(tanh, tensor_tanh(A)) X(tanh_, tensor_tanh_(COPY)) X(to, tensor_to(A, DT)) X(trunc, tensor_trunc(A)) \
    X(add, tensor_add(A, B)) X(add_, tensor_add_(COPY, B)) X(add_scalar, tensor_add_scalar(A, F(0))) \
    X(add_scalar_, tensor_add_scalar_(COPY, F(0))) X(addcdiv, tensor_addcdiv(A, B, C, F(0))) \
    X(addcmul, tensor_addcmul(A, B, C, F(0))) X(addcmul_, tensor_addcmul_(COPY, B, C, F(0))) X(atan2, tensor_atan2(A, B)) \
    X(bitwise_and, tensor_bitwise_and(A, B)) X(bitwise_or, tensor_bitwise_or(A, B)) \
    X(bitwise_xor, tensor_bitwise_xor(A, B)) X(copy_, tensor_copy_(COPY, B)) X(div, tensor_div(A, B)) \
    X(div_, tensor_div_(COPY, B)) X(div_scalar, tensor_div_scalar(A, F(0))) X(div_scalar_, tensor_div_scalar_(COPY, F(0))) \
    X(eq, tensor_eq(A, B)) X(eq_scalar, tensor_eq_scalar(A, F(0))) X(fill_, tensor_fill_(COPY, F(0))) \
    X(floor_divide, tensor_floor_divide(A, B)) X(floor_divide_scalar, tensor_floor_divide_scalar(A, F(0))) \
    X(fmod, tensor_fmod(A, B)) X(fmod_scalar, tensor_fmod_scalar(A, F(0))) X(ge, tensor_ge(A, B)) \
    X(ge_scalar, tensor_ge_scalar(A, F(0))) X(gt, tensor_gt(A, B)) X(gt_scalar, tensor_gt_scalar(A, F(0))) \
    X(le, tensor_le(A, B)) X(le_scalar, tensor_le_scalar(A, F(0))) X(lerp, tensor_lerp(A, B, C)) \
    X(logical_and, tensor_logical_and(A, B)) X(logical_or, tensor_logical_or(A, B)) X(logical_xor, tensor_logical_xor(A, B)) \
    X(lt, tensor_lt(A, B)) X(lt_scalar, tensor_lt_scalar(A, F(0))) X(maximum, tensor_maximum(A, B)) \
    X(maximum_scalar, tensor_maximum_scalar(A, F(0))) X(minimum, tensor_minimum(A, B)) \
    X(minimum_scalar, tensor_minimum_scalar(A, F(0))) X(mul, tensor_mul(A, B)) X(mul_, tensor_mul_(COPY, B)) \
    X(mul_scalar, tensor_mul_scalar(A, F(0))) X(mul_scalar_, tensor_mul_scalar_(COPY, F(0))) X(ne, tensor_ne(A, B)) \
    X(ne_scalar, tensor_ne_scalar(A, F(0))) X(pow, tensor_pow(A, B)) X(pow_scalar, tensor_pow_scalar(A, F(0))) \
    X(remainder, tensor_remainder(A, B)) X(remainder_scalar, tensor_remainder_scalar(A, F(0))) \
    X(rsub_scalar, tensor_rsub_scalar(A, F(0))) X(sub, tensor_sub(A, B)) X(sub_, tensor_sub_(COPY, B)) \
    X(sub_scalar, tensor_sub_scalar(A, F(0))) X(sub_scalar_, tensor_sub_scalar_(COPY, F(0))) X(where, tensor_where(A, B, C)) \
    X(zero_, tensor_zero_(COPY)) \
    X(all, tensor_all(A)) X(all_dim, tensor_all_dim(A, I(0), (int)I(1))) X(amax_dim, tensor_amax_dim(A, I(0), (int)I(1))) \
    X(amin_dim, tensor_amin_dim(A, I(0), (int)I(1))) X(any, tensor_any(A)) X(any_dim, tensor_any_dim(A, I(0), (int)I(1))) \
    X(argmax, tensor_argmax(A)) X(argmax_dim, tensor_argmax_dim(A, I(0), (int)I(1))) X(argmin, tensor_argmin(A)) \
    X(argmin_dim, tensor_argmin_dim(A, I(0), (int)I(1))) X(cumsum, tensor_cumsum(A, I(0))) \
    X(log_softmax, tensor_log_softmax(A, I(0))) X(logsumexp, tensor_logsumexp(A, I(0), (int)I(1))) X(max, tensor_max(A)) \
    P(max_dim, tensor_max_dim(A, I(0), (int)I(1))) X(mean, tensor_mean(A)) \
    X(mean_dim, tensor_mean_dim(A, I(0), (int)I(1))) X(mean_dims, tensor_mean_dims(A, a->i + 1, a->ni - 1, (int)I(0))) \
    X(min, tensor_min(A)) P(min_dim, tensor_min_dim(A, I(0), (int)I(1))) X(norm, tensor_norm(A)) \
    X(norm_dim, tensor_norm_dim(A, I(0), (int)I(1))) X(prod, tensor_prod(A)) \
    X(prod_dim, tensor_prod_dim(A, I(0), (int)I(1))) X(softmax, tensor_softmax(A, I(0))) X(std, tensor_std(A, I(0))) \
    X(std_dim, tensor_std_dim(A, I(0), I(1), (int)I(2))) X(sum, tensor_sum(A)) \
    X(sum_dim, tensor_sum_dim(A, I(0), (int)I(1))) X(sum_dims, tensor_sum_dims(A, a->i + 1, a->ni - 1, (int)I(0))) \
    X(var, tensor_var(A, I(0))) X(var_dim, tensor_var_dim(A, I(0), I(1), (int)I(2))) \
    X(addmm, tensor_addmm(A, B, C, F(0), F(1))) X(bmm, tensor_bmm(A, B)) X(dot, tensor_dot(A, B)) \
    X(matmul, tensor_matmul(A, B)) X(mm, tensor_mm(A, B)) X(mv, tensor_mv(A, B)) X(outer, tensor_outer(A, B)) \
    X(tril, tensor_tril(A, I(0))) X(triu, tensor_triu(A, I(0))) \
    X(arange, tensor_arange(F(0), F(1), F(2), DT)) X(eye, tensor_eye(I(0), I(1))) \
    X(full, tensor_full_n(DIMS, F(0), DT)) X(full_like, tensor_full_like(A, F(0))) \
    X(linspace, tensor_linspace(F(0), F(1), I(0))) X(ones, tensor_ones_n(DIMS, DT)) X(ones_like, tensor_ones_like(A)) \
    X(scalar, tensor_scalar(F(0), DT)) X(zeros, tensor_zeros_n(DIMS, DT)) X(zeros_like, tensor_zeros_like(A)) \
    X(as_strided, tensor_as_strided(A, STRIDED)) X(as_strided_scatter, tensor_as_strided_scatter(A, B, STRIDED)) \
    X(at, tensor_at(A, a->s)) N(chunk, tensor_chunk(A, (int)I(0), I(1), a->out, MAX_OUT)) X(expand, tensor_expand_n(A, DIMS)) \
    X(flatten, tensor_flatten(A, I(0), I(1))) X(mT, tensor_mT(A)) X(movedim, tensor_movedim(A, I(0), I(1))) \
    X(narrow, tensor_narrow(A, I(0), I(1), I(2))) X(permute, tensor_permute_n(A, DIMS)) \
    X(repeat, tensor_repeat_n(A, DIMS)) X(reshape, tensor_reshape_n(A, DIMS)) X(select, tensor_select(A, I(0), I(1))) \
    X(slice, tensor_slice(A, I(0), I(1), I(2), I(3))) N(split, tensor_split(A, I(0), I(1), a->out, MAX_OUT)) \
    X(squeeze, tensor_squeeze(A, I(0))) X(transpose, tensor_transpose(A, I(0), I(1))) \
    X(unsqueeze, tensor_unsqueeze(A, I(0))) X(view, tensor_view_n(A, DIMS)) \
    X(cat, tensor_cat_n(a->in, a->nin, I(0))) X(gather, tensor_gather(A, I(0), B)) \
    X(index_add, tensor_index_add(A, I(0), B, C)) X(index_select, tensor_index_select(A, I(0), B)) \
    X(masked_fill, tensor_masked_fill(A, B, F(0))) X(masked_fill_, tensor_masked_fill_(COPY, B, F(0))) \
    X(masked_select, tensor_masked_select(A, B)) X(one_hot, tensor_one_hot(A, I(0))) \
    X(scatter, tensor_scatter(A, I(0), B, C)) X(scatter_add, tensor_scatter_add(A, I(0), B, C)) \
    X(stack, tensor_stack_n(a->in, a->nin, I(0))) \
    X(adaptive_avg_pool2d, tensor_adaptive_avg_pool2d(A, I(0), I(1))) \
    X(avg_pool2d, tensor_avg_pool2d(A, I(0), .kernel_w = I(1), .stride = I(2), .stride_w = I(3), .padding = I(4), \
        .padding_w = Z(5), .ceil_mode = (int)I(6), .no_count_pad = (int)I(7), .divisor_override = I(8))) \
    X(conv2d, tensor_conv2d(A, B, C, .stride = I(0), .stride_w = I(1), .padding = I(2), .padding_w = Z(3), \
        .dilation = I(4), .dilation_w = I(5), .groups = I(6), .same = (int)I(7))) \
    X(dropout, tensor_dropout(A, F(0), (int)I(0))) \
    X(embedding, tensor_embedding(A, B, .padding_idx = I(0) < 0 ? 0 : Z(0))) \
    X(layer_norm, tensor_layer_norm(A, I(0), B, C, .eps = F(0))) X(linear, tensor_linear(A, B, C)) \
    X(max_pool2d, tensor_max_pool2d(A, I(0), .kernel_w = I(1), .stride = I(2), .stride_w = I(3), .padding = I(4), \
        .padding_w = Z(5), .dilation = I(6), .dilation_w = I(7), .ceil_mode = (int)I(8))) \
    X(scaled_dot_product_attention, tensor_scaled_dot_product_attention(A, B, C, D, .is_causal = (int)I(0), .scale = F(0), \
        .enable_gqa = (int)I(1))) \
    X(binary_cross_entropy, tensor_binary_cross_entropy(A, B, C, RED(0))) \
    X(binary_cross_entropy_with_logits, tensor_binary_cross_entropy_with_logits(A, B, C, D, RED(0))) \
    X(cross_entropy, tensor_cross_entropy(A, B, C, .ignore_index = I(1), .label_smoothing = F(0), RED(0))) \
    X(huber_loss, tensor_huber_loss(A, B, .delta = zero_f(F(0)), RED(0))) \
    X(kl_div, tensor_kl_div(A, B, .log_target = (int)I(1), RED(0))) X(l1_loss, tensor_l1_loss(A, B, RED(0))) \
    X(mse_loss, tensor_mse_loss(A, B, RED(0))) \
    X(nll_loss, tensor_nll_loss(A, B, C, .ignore_index = I(1), RED(0))) \
    X(smooth_l1_loss, tensor_smooth_l1_loss(A, B, .beta = zero_f(F(0)), RED(0)))
#define OPS_POINTWISE2(X, P, N) \
    X(acosh, tensor_acosh(A)) X(addcdiv_, tensor_addcdiv_(COPY, B, C, F(0))) X(asinh, tensor_asinh(A)) \
    X(atanh, tensor_atanh(A)) X(bitwise_and_, tensor_bitwise_and_(COPY, B)) \
    X(bitwise_and_scalar, tensor_bitwise_and_scalar(A, F(0))) \
    X(bitwise_and_scalar_, tensor_bitwise_and_scalar_(COPY, F(0))) \
    X(bitwise_left_shift, tensor_bitwise_left_shift(A, B)) \
    X(bitwise_left_shift_scalar, tensor_bitwise_left_shift_scalar(A, F(0))) \
    X(bitwise_or_, tensor_bitwise_or_(COPY, B)) X(bitwise_or_scalar, tensor_bitwise_or_scalar(A, F(0))) \
    X(bitwise_or_scalar_, tensor_bitwise_or_scalar_(COPY, F(0))) \
    X(bitwise_right_shift, tensor_bitwise_right_shift(A, B)) \
    X(bitwise_right_shift_scalar, tensor_bitwise_right_shift_scalar(A, F(0))) \
    X(bitwise_xor_, tensor_bitwise_xor_(COPY, B)) X(bitwise_xor_scalar, tensor_bitwise_xor_scalar(A, F(0))) \
    X(bitwise_xor_scalar_, tensor_bitwise_xor_scalar_(COPY, F(0))) X(ceil_, tensor_ceil_(COPY)) \
    X(celu, tensor_celu(A, F(0))) X(clamp_max, tensor_clamp_max(A, F(0))) X(clamp_max_, tensor_clamp_max_(COPY, F(0))) \
    X(clamp_min, tensor_clamp_min(A, F(0))) X(clamp_min_, tensor_clamp_min_(COPY, F(0))) \
    X(clamp_tensor, tensor_clamp_tensor(A, B, C)) X(copysign, tensor_copysign(A, B)) \
    X(copysign_scalar, tensor_copysign_scalar(A, F(0))) X(cos_, tensor_cos_(COPY)) \
    X(cosine_similarity, tensor_cosine_similarity(A, B, I(0), F(0))) X(deg2rad, tensor_deg2rad(A)) \
    X(digamma, tensor_digamma(A)) X(div_mode, tensor_div_mode(A, B, a->s)) X(elu_, tensor_elu_(COPY, F(0))) \
    X(erf_, tensor_erf_(COPY)) X(erfinv, tensor_erfinv(A)) X(erfinv_, tensor_erfinv_(COPY)) X(exp2_, tensor_exp2_(COPY)) \
    X(expm1_, tensor_expm1_(COPY)) X(float_power, tensor_float_power(A, B)) \
    X(float_power_scalar, tensor_float_power_scalar(A, F(0))) X(floor_, tensor_floor_(COPY)) \
    X(floor_divide_, tensor_floor_divide_(COPY, B)) X(floor_divide_scalar_, tensor_floor_divide_scalar_(COPY, F(0))) \
    X(fmax, tensor_fmax(A, B)) X(fmin, tensor_fmin(A, B)) X(fmod_, tensor_fmod_(COPY, B)) \
    X(fmod_scalar_, tensor_fmod_scalar_(COPY, F(0))) X(frac, tensor_frac(A)) X(glu, tensor_glu(A, I(0))) \
    X(hardshrink, tensor_hardshrink(A, F(0))) X(hardsigmoid, tensor_hardsigmoid(A)) X(hardswish, tensor_hardswish(A)) \
    X(hardtanh, tensor_hardtanh(A, F(0), F(1))) X(hardtanh_, tensor_hardtanh_(COPY, F(0), F(1))) \
    X(heaviside, tensor_heaviside(A, B)) X(hypot, tensor_hypot(A, B)) \
    X(isclose, tensor_isclose(A, B, F(0), F(1), (int)I(0))) X(isneginf, tensor_isneginf(A)) X(isposinf, tensor_isposinf(A)) \
    X(ldexp, tensor_ldexp(A, B)) X(leaky_relu_, tensor_leaky_relu_(COPY, F(0))) X(lerp_, tensor_lerp_(COPY, B, C)) \
    X(lerp_scalar, tensor_lerp_scalar(A, B, F(0))) X(lerp_scalar_, tensor_lerp_scalar_(COPY, B, F(0))) \
    X(lgamma, tensor_lgamma(A)) X(log10_, tensor_log10_(COPY)) X(log1p_, tensor_log1p_(COPY)) X(log2_, tensor_log2_(COPY)) \
    X(log_, tensor_log_(COPY)) X(logaddexp, tensor_logaddexp(A, B)) X(logaddexp2, tensor_logaddexp2(A, B)) \
    X(logit, tensor_logit(A, F(0))) X(mish, tensor_mish(A)) X(nan_to_num, tensor_nan_to_num(A, F(0), F(1), F(2))) \
    X(nan_to_num_, tensor_nan_to_num_(COPY, F(0), F(1), F(2))) X(normalize, tensor_normalize(A, F(0), I(0), F(1))) \
    X(pairwise_distance, tensor_pairwise_distance(A, B, F(0), F(1), (int)I(0))) \
    X(polygamma, tensor_polygamma((int)I(0), A)) X(positive, tensor_positive(A)) X(pow_, tensor_pow_(COPY, B)) \
    X(pow_scalar_, tensor_pow_scalar_(COPY, F(0))) X(prelu, tensor_prelu(A, B)) X(rad2deg, tensor_rad2deg(A)) \
    X(reciprocal_, tensor_reciprocal_(COPY)) X(relu6, tensor_relu6(A)) X(remainder_, tensor_remainder_(COPY, B)) \
    X(remainder_scalar_, tensor_remainder_scalar_(COPY, F(0))) X(round_, tensor_round_(COPY)) \
    X(round_decimals, tensor_round_decimals(A, (int)I(0))) X(rpow_scalar, tensor_rpow_scalar(A, F(0))) \
    X(rrelu, tensor_rrelu(A, F(0), F(1), (int)I(0))) X(rsqrt_, tensor_rsqrt_(COPY)) X(selu, tensor_selu(A)) \
    X(sgn, tensor_sgn(A)) X(sign_, tensor_sign_(COPY)) X(signbit, tensor_signbit(A)) X(sin_, tensor_sin_(COPY)) \
    X(sinc, tensor_sinc(A)) X(softmin, tensor_softmin(A, I(0))) X(softshrink, tensor_softshrink(A, F(0))) \
    X(softsign, tensor_softsign(A)) X(square_, tensor_square_(COPY)) X(tan_, tensor_tan_(COPY)) \
    X(tanhshrink, tensor_tanhshrink(A)) X(threshold, tensor_threshold(A, F(0), F(1))) X(trunc_, tensor_trunc_(COPY)) \
    X(xlogy, tensor_xlogy(A, B)) X(xlogy_scalar, tensor_xlogy_scalar(A, F(0)))
#define OPS_SORT(X, P, N) \
    X(amax_dims, tensor_amax_dims(A, REST, (int)I(0))) X(amin_dims, tensor_amin_dims(A, REST, (int)I(0))) \
    X(argsort, tensor_argsort(A, I(0), (int)I(1))) X(bincount, tensor_bincount(A, NULL, I(0))) \
    X(bucketize, tensor_bucketize(A, B, (int)I(0))) X(cdist, tensor_cdist(A, B, F(0))) X(corrcoef, tensor_corrcoef(A)) \
    X(count_nonzero, tensor_count_nonzero(A)) X(cov, tensor_cov(A, I(0), NULL, NULL)) P(cummax, tensor_cummax(A, I(0))) \
    P(cummin, tensor_cummin(A, I(0))) X(cumprod, tensor_cumprod(A, I(0))) X(diff, tensor_diff(A, I(0), I(1))) \
    X(dist, tensor_dist(A, B, F(0))) X(histc, tensor_histc(A, I(0), F(0), F(1))) X(isin, tensor_isin(A, B)) \
    P(kthvalue, tensor_kthvalue(A, I(0), I(1), (int)I(2))) X(logcumsumexp, tensor_logcumsumexp(A, I(0))) \
    X(logsumexp_dims, tensor_logsumexp_dims(A, REST, (int)I(0))) X(median, tensor_median(A)) \
    P(median_dim, tensor_median_dim(A, I(0), (int)I(1))) X(nanmean, tensor_nanmean(A)) X(nansum, tensor_nansum(A)) \
    X(norm_p, tensor_norm_p(A, F(0))) X(quantile, tensor_quantile(A, B)) \
    X(searchsorted, tensor_searchsorted(A, B, (int)I(0))) P(sort, tensor_sort(A, I(0), (int)I(1))) \
    X(std_dims, tensor_std_dims(A, REST, 1, (int)I(0))) P(topk, tensor_topk(A, I(0), I(1), (int)I(2), 1)) \
    X(unique, tensor_unique(A, NULL, NULL)) X(var_dims, tensor_var_dims(A, REST, 1, (int)I(0)))
#define OPS_LINALG2(X, P, N) \
    X(addbmm, tensor_addbmm(A, B, C, F(0), F(1))) X(addmv, tensor_addmv(A, B, C, F(0), F(1))) \
    X(addr, tensor_addr(A, B, C, F(0), F(1))) X(baddbmm, tensor_baddbmm(A, B, C, F(0), F(1))) \
    X(einsum, tensor_einsum_n(a->s, a->in, a->nin)) X(inner, tensor_inner(A, B)) X(kron, tensor_kron(A, B)) \
    X(linalg_cholesky, tensor_linalg_cholesky(A, (int)I(0))) X(linalg_cross, tensor_linalg_cross(A, B, I(0))) \
    X(linalg_det, tensor_linalg_det(A)) X(linalg_eigvalsh, tensor_linalg_eigvalsh(A, (int)I(0))) \
    X(linalg_inv, tensor_linalg_inv(A)) X(linalg_matrix_exp, tensor_linalg_matrix_exp(A)) \
    X(linalg_matrix_norm, tensor_linalg_matrix_norm(A, a->s, -2, -1, 0)) \
    X(linalg_matrix_power, tensor_linalg_matrix_power(A, I(0))) X(linalg_pinv, tensor_linalg_pinv(A, -1)) \
    N(linalg_slogdet, slogdet(a, tensor_linalg_slogdet(A))) X(linalg_solve, tensor_linalg_solve(A, B)) X(linalg_svdvals, tensor_linalg_svdvals(A)) \
    X(linalg_vector_norm, tensor_linalg_vector_norm(A, F(0), a->i, 1, 0)) X(tensordot, tensor_tensordot(A, B, (int)I(0))) \
    X(trace, tensor_trace(A))
#define OPS_INDEX2(X, P, N) \
    X(diag, tensor_diag(A, I(0))) X(diag_embed, tensor_diag_embed(A, I(0), I(1), I(2))) \
    X(diagonal, tensor_diagonal(A, I(0), I(1), I(2))) X(diagonal_scatter, tensor_diagonal_scatter(A, B, I(0), I(1), I(2))) \
    X(dstack, tensor_dstack_n(a->in, a->nin)) X(flip, tensor_flip_n(A, DIMS)) X(hstack, tensor_hstack_n(a->in, a->nin)) \
    X(index, tensor_index_n(A, a->in + 1, a->nin - 1)) X(index_copy, tensor_index_copy(A, I(0), B, C)) \
    X(index_fill, tensor_index_fill(A, I(0), B, F(0))) X(masked_scatter, tensor_masked_scatter(A, B, C)) \
    X(nonzero, tensor_nonzero(A)) X(ravel, tensor_ravel(A)) \
    X(repeat_interleave, tensor_repeat_interleave(A, I(0), I(1))) X(roll, tensor_roll(A, I(0), I(1))) \
    X(rot90, tensor_rot90(A, I(0), I(1), I(2))) X(scatter_reduce, tensor_scatter_reduce(A, I(0), B, C, a->s, (int)I(1))) \
    X(select_scatter, tensor_select_scatter(A, B, I(0), I(1))) \
    X(slice_scatter, tensor_slice_scatter(A, B, I(0), I(1), I(2), I(3))) X(take, tensor_take(A, B)) \
    X(take_along_dim, tensor_take_along_dim(A, B, I(0))) N(tensor_split, tensor_tensor_split(A, (int)I(0), I(1), a->out, MAX_OUT)) \
    X(tile, tensor_tile_n(A, DIMS)) X(tril_indices, tensor_tril_indices(I(0), I(1), I(2))) \
    X(triu_indices, tensor_triu_indices(I(0), I(1), I(2))) N(unbind, tensor_unbind(A, I(0), a->out, MAX_OUT)) \
    X(unflatten, tensor_unflatten_n(A, I(0), a->i + 1, a->ni - 1)) X(unfold_dim, tensor_unfold_dim(A, I(0), I(1), I(2))) \
    X(vstack, tensor_vstack_n(a->in, a->nin))
#define OPS_NORM(X, P, N) \
    N(batch_norm, batch_norm(a, tensor_clone(B), tensor_clone(C))) \
    X(cosine_embedding_loss, tensor_cosine_embedding_loss(A, B, C, .margin = F(0), RED(0))) \
    X(gaussian_nll_loss, tensor_gaussian_nll_loss(A, B, C, .full = (int)I(1), RED(0))) X(group_norm, tensor_group_norm(A, I(0), B, C, .eps = F(0))) \
    X(hinge_embedding_loss, tensor_hinge_embedding_loss(A, B, .margin = F(0), RED(0))) N(instance_norm, instance_norm(a)) \
    X(local_response_norm, tensor_local_response_norm(A, I(0))) \
    X(margin_ranking_loss, tensor_margin_ranking_loss(A, B, C, .margin = F(0), RED(0))) \
    X(multi_margin_loss, tensor_multi_margin_loss(A, B, C, .margin = F(0), .p = I(1), RED(0))) \
    X(multilabel_soft_margin_loss, tensor_multilabel_soft_margin_loss(A, B, C, RED(0))) \
    X(poisson_nll_loss, tensor_poisson_nll_loss(A, B, .no_log_input = !I(1), .full = (int)I(2), RED(0))) X(rms_norm, tensor_rms_norm(A, I(0), B, .eps = F(0))) \
    X(soft_margin_loss, tensor_soft_margin_loss(A, B, RED(0))) X(triplet_margin_loss, tensor_triplet_margin_loss(A, B, C, .margin = F(0), .p = F(1), .swap = (int)I(1), RED(0)))
#define OPS_CONV(X, P, N) \
    X(adaptive_avg_pool1d, tensor_adaptive_avg_pool1d(A, I(0))) \
    X(avg_pool1d, tensor_avg_pool1d(A, I(0), .stride = I(1), .padding = I(2), .ceil_mode = (int)I(3), .no_count_pad = (int)I(4))) \
    X(avg_pool3d, tensor_avg_pool3d(A, I(0), .stride = I(1), .padding = I(2), .ceil_mode = (int)I(3), .no_count_pad = (int)I(4))) \
    X(channel_shuffle, tensor_channel_shuffle(A, I(0))) \
    X(conv1d, tensor_conv1d(A, B, C, .stride = I(0), .padding = I(1), .dilation = I(2), .groups = I(3))) \
    X(conv3d, tensor_conv3d(A, B, C, .stride = I(0), .padding = I(1))) \
    X(conv_transpose1d, tensor_conv_transpose1d(A, B, C, I(0), I(1), I(2), I(3), I(4))) \
    X(conv_transpose2d, tensor_conv_transpose2d(A, B, C, I(0), I(1), I(2), I(3), I(4))) \
    X(interpolate, tensor_interpolate(A, .size = I(3), .size_h = a->ni == 5 ? 0 : I(4), .size_w = I(a->ni == 5 ? 4 : 5), .scale_factor = F(0), \
        .mode = (tensor_interpolation_t)I(0), .align_corners = (int)I(1), .recompute_scale_factor = (int)I(2))) \
    X(max_pool1d, tensor_max_pool1d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(max_pool3d, tensor_max_pool3d(A, I(0), .stride = I(1), .padding = I(2))) \
    X(pad, tensor_pad_n(A, a->i + 1, a->ni - 1, (tensor_pad_t)I(0), 0)) X(pixel_shuffle, tensor_pixel_shuffle(A, I(0))) \
    X(pixel_unshuffle, tensor_pixel_unshuffle(A, I(0)))
#define OPS_REST(X, P, N) \
    X(T, tensor_T(A)) X(all_dims, tensor_all_dims(A, REST, (int)I(0))) X(allclose, truth(tensor_allclose(A, B, F(0), F(1)))) \
    N(aminmax, (a->out[0] = tensor_aminmax(A, &a->out[1]), 2)) \
    N(aminmax_dim, (a->out[0] = tensor_aminmax_dim(A, I(0), (int)I(1), &a->out[1]), 2)) \
    X(any_dims, tensor_any_dims(A, REST, (int)I(0))) X(atleast_1d, tensor_atleast_1d(A)) X(atleast_2d, tensor_atleast_2d(A)) \
    X(atleast_3d, tensor_atleast_3d(A)) X(block_diag, tensor_block_diag(a->in, a->nin)) \
    N(broadcast_tensors, (tensor_broadcast_tensors(a->in, a->nin, a->out), a->nin)) \
    X(cartesian_prod, tensor_cartesian_prod(a->in, a->nin)) X(chain_matmul, tensor_chain_matmul_n(a->in, a->nin)) \
    X(channels_last, tensor_channels_last(A)) X(cholesky, tensor_cholesky(A, (int)I(0))) \
    X(cholesky_inverse, tensor_cholesky_inverse(A, (int)I(0))) X(cholesky_solve, tensor_cholesky_solve(A, B, (int)I(0))) \
    X(column_stack, tensor_column_stack_n(a->in, a->nin)) X(combinations, tensor_combinations(A, (int)I(0), (int)I(1))) \
    X(count_nonzero_dims, tensor_count_nonzero_dims(A, DIMS)) X(cross, tensor_cross(A, B, I(0))) \
    X(cumulative_trapezoid, tensor_cumulative_trapezoid(A, B, F(0), I(0))) X(det, tensor_det(A)) \
    X(diagflat, tensor_diagflat(A, I(0))) N(dsplit, tensor_dsplit(A, (int)I(0), a->out, MAX_OUT)) \
    X(equal, truth(tensor_equal(A, B))) X(expand_as, tensor_expand_as(A, B)) X(fliplr, tensor_fliplr(A)) \
    X(flipud, tensor_flipud(A)) N(hsplit, tensor_hsplit(A, (int)I(0), a->out, MAX_OUT)) \
    X(index_add_, tensor_index_add_(COPY, I(0), B, C)) X(index_add_alpha, tensor_index_add_alpha(A, I(0), B, C, F(0))) \
    X(index_copy_, tensor_index_copy_(COPY, I(0), B, C)) X(index_fill_, tensor_index_fill_(COPY, I(0), B, F(0))) \
    X(index_put, tensor_index_put_n(A, a->in + 2, a->nin - 2, B, (int)I(0))) \
    X(index_put_, tensor_index_put_n_(COPY, a->in + 2, a->nin - 2, B, (int)I(0))) X(inverse, tensor_inverse(A)) \
    X(linalg_cond, tensor_linalg_cond(A, a->s)) N(linalg_eigh, eigh(a, tensor_linalg_eigh(A, (int)I(0)))) \
    N(linalg_lstsq, lstsq(a, tensor_linalg_lstsq(A, B))) N(linalg_lu, lu(a, tensor_linalg_lu(A))) \
    N(linalg_lu_factor, lu_factor(a, tensor_linalg_lu_factor(A))) X(linalg_lu_solve, lu_solve(A, B, 0)) \
    X(linalg_matrix_rank, tensor_linalg_matrix_rank(A, -1)) X(linalg_multi_dot, tensor_linalg_multi_dot_n(a->in, a->nin)) \
    X(linalg_norm, tensor_linalg_norm(A, *a->s ? a->s : NULL, REST, (int)I(0))) \
    N(linalg_qr, qr(a, tensor_linalg_qr(A, a->s))) \
    X(linalg_solve_triangular, tensor_linalg_solve_triangular(A, B, (int)I(0), (int)I(1), (int)I(2))) \
    N(linalg_svd, linalg_svd(a, tensor_linalg_svd(A, (int)I(0)))) X(linalg_vecdot, tensor_linalg_vecdot(A, B, I(0))) \
    X(logdet, tensor_logdet(A)) X(logspace, tensor_logspace(F(0), F(1), I(0), F(2))) X(lu_solve, lu_solve(A, B, 1)) \
    N(lu_unpack, lu_unpack(a)) X(masked_scatter_, tensor_masked_scatter_(COPY, B, C)) X(matrix_exp, tensor_matrix_exp(A)) \
    X(matrix_power, tensor_matrix_power(A, I(0))) N(meshgrid, (tensor_meshgrid(a->in, a->nin, a->s, a->out), a->nin)) \
    P(mode, tensor_mode(A, I(0), (int)I(1))) X(msort, tensor_msort(A)) X(nanmean_dims, tensor_nanmean_dims(A, REST, (int)I(0))) \
    X(nanmedian, tensor_nanmedian(A)) P(nanmedian_dim, tensor_nanmedian_dim(A, I(0), (int)I(1))) \
    X(nanquantile, tensor_nanquantile(A, B)) X(nanquantile_dim, tensor_nanquantile_dim(A, B, I(0), (int)I(1), a->s)) \
    X(nansum_dims, tensor_nansum_dims(A, REST, (int)I(0))) X(norm_p_dims, tensor_norm_p_dims(A, F(0), REST, (int)I(0))) \
    X(pinverse, tensor_pinverse(A)) X(prod_dims, tensor_prod_dims(A, REST, (int)I(0))) X(put, tensor_put(A, B, C, (int)I(0))) \
    N(qr, qr(a, tensor_qr(A))) X(quantile_dim, tensor_quantile_dim(A, B, I(0), (int)I(1), a->s)) X(rearrange, rearrange(a)) \
    X(renorm, tensor_renorm(A, F(0), I(0), F(1))) X(repeat_interleave_tensor, tensor_repeat_interleave_tensor(A, B, I(0))) \
    X(reshape_as, tensor_reshape_as(A, B)) X(scatter_, tensor_scatter_(COPY, I(0), B, C)) \
    X(scatter_add_, tensor_scatter_add_(COPY, I(0), B, C)) \
    X(scatter_reduce_, tensor_scatter_reduce_(COPY, I(0), B, C, a->s, (int)I(1))) \
    X(scatter_value, tensor_scatter_value(A, I(0), B, F(0))) X(scatter_value_, tensor_scatter_value_(COPY, I(0), B, F(0))) \
    N(slogdet, slogdet(a, tensor_slogdet(A))) \
    N(split_with_sizes, tensor_split_with_sizes(A, REST, I(0), a->out)) X(squeeze_all, tensor_squeeze_all(A)) \
    X(squeeze_dims, tensor_squeeze_dims(A, DIMS)) N(std_mean, (a->out[0] = tensor_std_mean(A, I(0), &a->out[1]), 2)) \
    N(std_mean_dims, (a->out[0] = tensor_std_mean_dims(A, REST, 1, (int)I(0), &a->out[1]), 2)) \
    N(svd, svd_of(a, tensor_svd(A))) X(swapaxes, tensor_swapaxes(A, I(0), I(1))) X(swapdims, tensor_swapdims(A, I(0), I(1))) \
    N(tensor_split_at, tensor_tensor_split_at(A, REST, I(0), a->out)) \
    X(tensordot_dims, tensor_tensordot_dims(A, B, a->i, a->i + a->ni / 2, a->ni / 2)) \
    X(trapezoid, tensor_trapezoid(A, B, F(0), I(0))) \
    N(unique_consecutive, (a->out[0] = tensor_unique_consecutive(A, &a->out[1], &a->out[2]), 3)) \
    N(unique_consecutive_dim, (a->out[0] = tensor_unique_consecutive_dim(A, I(0), &a->out[1], &a->out[2]), 3)) \
    N(unique_dim, (a->out[0] = tensor_unique_dim(A, I(0), &a->out[1], &a->out[2]), 3)) \
    X(vander, tensor_vander(A, I(0), (int)I(1))) N(var_mean, (a->out[0] = tensor_var_mean(A, I(0), &a->out[1]), 2)) \
    N(var_mean_dims, (a->out[0] = tensor_var_mean_dims(A, REST, 1, (int)I(0), &a->out[1]), 2)) X(vdot, tensor_vdot(A, B)) \
    X(view_as, tensor_view_as(A, B)) N(vsplit, tensor_vsplit(A, (int)I(0), a->out, MAX_OUT))
#define MAX_POOL .stride = I(1), .padding = I(2), .dilation = I(3), .ceil_mode = (int)I(4)
#define COLUMNS .kernel_w = I(1), .dilation = I(2), .dilation_w = I(3), .padding = I(4), .padding_w = Z(5), .stride = I(6), .stride_w = I(7)
#define OPS_NN2(X, P, N) \
    X(adaptive_avg_pool3d, tensor_adaptive_avg_pool3d(A, I(0), I(1), I(2))) P(adaptive_max_pool1d, tensor_adaptive_max_pool1d(A, I(0))) \
    P(adaptive_max_pool2d, tensor_adaptive_max_pool2d(A, I(0), I(1))) \
    P(adaptive_max_pool3d, tensor_adaptive_max_pool3d(A, I(0), I(1), I(2))) \
    X(affine_grid, tensor_affine_grid(A, REST, (int)I(0))) X(alpha_dropout, tensor_alpha_dropout(A, F(0), (int)I(0))) \
    X(bilinear, tensor_bilinear(A, B, C, D)) X(col2im, tensor_col2im(A, I(8), I(0), .width = I(9), COLUMNS)) \
    X(conv_transpose3d, tensor_conv_transpose3d(A, B, C, I(0), I(1), I(2), I(3), I(4))) \
    X(ctc_loss, tensor_ctc_loss(tensor_log_softmax(A, -1), B, C, D, .blank = I(1), .zero_infinity = (int)I(2), RED(0))) \
    X(dropout1d, tensor_dropout1d(A, F(0), (int)I(0))) X(dropout2d, tensor_dropout2d(A, F(0), (int)I(0))) \
    X(dropout3d, tensor_dropout3d(A, F(0), (int)I(0))) \
    X(embedding_bag, tensor_embedding_bag(A, B, C, .mode = (tensor_bag_mode_t)I(0), .per_sample_weights = D, \
        .padding_idx = I(1) < 0 ? 0 : Z(1), .include_last_offset = (int)I(2))) \
    X(grid_sample, tensor_grid_sample(A, B, .mode = (tensor_interpolation_t)I(0), .padding_mode = (tensor_pad_t)I(1), \
        .align_corners = (int)I(2))) \
    N(gru, state(a, tensor_gru_with(recurrent(a)))) X(gru_cell, tensor_gru_cell(A, B, C, D, a->in[4], a->in[5])) \
    X(im2col, tensor_im2col(A, I(0), COLUMNS)) X(lp_pool1d, tensor_lp_pool1d(A, F(0), I(0), I(1), (int)I(2))) \
    X(lp_pool2d, tensor_lp_pool2d(A, F(0), I(0), I(1), (int)I(2))) X(lp_pool3d, tensor_lp_pool3d(A, F(0), I(0), I(1), (int)I(2))) \
    N(lstm, state(a, tensor_lstm_with(recurrent(a)))) \
    N(lstm_cell, cell(a, tensor_lstm_cell(A, B, C, D, a->in[4], a->in[5], a->in[6]))) \
    P(max_pool1d_with_indices, tensor_max_pool1d_with_indices(A, I(0), MAX_POOL)) \
    P(max_pool2d_with_indices, tensor_max_pool2d_with_indices(A, I(0), MAX_POOL)) \
    P(max_pool3d_with_indices, tensor_max_pool3d_with_indices(A, I(0), MAX_POOL)) \
    X(max_unpool1d, tensor_max_unpool1d(A, B, I(0), .stride = I(1), .padding = I(2), .size = I(3))) \
    X(max_unpool2d, tensor_max_unpool2d(A, B, I(0), .stride = I(1), .padding = I(2), .size = I(3), .size_w = I(4))) \
    X(max_unpool3d, tensor_max_unpool3d(A, B, I(0), .stride = I(1), .padding = I(2), .size = I(3), .size_h = I(4), .size_w = I(5))) \
    X(multilabel_margin_loss, tensor_multilabel_margin_loss(A, B, RED(0))) N(nn_multihead_attention, attention(a)) \
    N(rnn, state(a, tensor_rnn_with(recurrent(a)))) X(rnn_cell, tensor_rnn_cell(A, B, C, D, a->in[4], a->in[5], (int)I(0)))
#define OPS_ALL(X, P, N) OPS(X, P, N) OPS_POINTWISE2(X, P, N) OPS_SORT(X, P, N) OPS_LINALG2(X, P, N) OPS_INDEX2(X, P, N) \
    OPS_NORM(X, P, N) OPS_CONV(X, P, N) OPS_REST(X, P, N) OPS_NN2(X, P, N) X(learning_rate, rates(a)) X(optimizer, steps(a)) \
    X(muon, muon(a)) X(lbfgs, lbfgs(a)) X(lbfgs_path, lbfgs_path(a))
// clang-format on

#define ONE(name, call)                                                                                      \
    static void call_##name(arguments_t *a) {                                                                \
        a->out[0] = call, a->nout = 1;                                                                       \
    }
#define PAIR(name, call)                                                                                     \
    static void call_##name(arguments_t *a) {                                                                \
        tensor_pair_t p = call;                                                                              \
        a->out[0] = p.values, a->out[1] = p.indices, a->nout = 2;                                            \
    }
#define MANY(name, call)                                                                                     \
    static void call_##name(arguments_t *a) {                                                                \
        a->nout = call;                                                                                      \
    }
OPS_ALL(ONE, PAIR, MANY)
#define ENTRY(name, call) {#name, call_##name, 0, 0},
static struct {
    const char *name;
    void (*call)(arguments_t *a);
    long cases, gradients;
} ops[] = {OPS_ALL(ENTRY, ENTRY, ENTRY)};
enum { NOPS = (int)(sizeof ops / sizeof ops[0]) };
#undef A
#undef B
#undef C
#undef D
#undef I
#undef F

// ---- reading ----

// The tensor x in a layout, over memory of its own whose other bytes are 0x7F.
static tensor_t *arrange(tensor_t *x, char layout) {
    tensor_shape_t s = tensor_shape(x);
    int64_t strides[TENSOR_MAX_DIMS], n = tensor_numel(x), room, offset = 0, k;
    size_t size = tensor_dtype_size(tensor_dtype(x));
    char *from, *to;
    int d, nd = s.ndim;
    if (nd == 0 && layout != 'O') layout = 'C';
    room = 1;
    for (d = 0; d < nd; d++) {
        int e = layout == 'T' ? d : nd - 1 - d;
        strides[e] = room;
        if (layout == 'S' && d == 0)
            strides[e] = 2, room = 2 * s.dims[e] + 1;
        else if (layout == 'N' && d == 0)
            room = s.dims[e] + 3;
        else
            room *= s.dims[e];
    }
    if (layout == 'S') offset = 1;
    if (layout == 'N') offset = 2;
    if (layout == 'O') offset = 3, room += 3;
    if (layout == 'E' && n) strides[0] = 0;
    if (n == 0) room = offset;
    from = (char *)malloc((size_t)n * size + 1);
    to = (char *)malloc((size_t)room * size + 1);
    memset(to, 0x7F, (size_t)room * size + 1);
    CHECK(tensor_copy_out(x, from, (size_t)n * size) == 0);
    for (k = 0; k < n; k++) {
        int64_t rest = k, at = offset;
        for (d = nd - 1; d >= 0; d--) {
            at += rest % s.dims[d] * strides[d];
            rest /= s.dims[d];
        }
        memcpy(to + (size_t)at * size, from + (size_t)k * size, size);
    }
    x = tensor_from_n(to, tensor_dtype(x), &room, 1);
    x = tensor_as_strided(x, s.dims, strides, nd, offset);
    free(from);
    free(to);
    return x;
}

// The inputs and arguments in a line; its other words (results, gradients, tolerances) are left.
static void read_arguments(nn_safetensors_t *r, const char *line, arguments_t *a) {
    char word[300];
    const char *p = line;
    int k;
    memset(a, 0, sizeof *a);
    while (sscanf(p, "%299s", word) == 1) {
        char *v = strchr(word, '=') + 1, *slash = strchr(word, '/');
        p = strstr(p, word) + strlen(word);
        if (strncmp(word, "in=", 3) == 0) {
            if (slash) *slash = 0;
            a->in[a->nin++] = slash ? arrange(nn_safetensors_get(r, v), slash[1]) : NULL;
        } else if (strncmp(word, "i=", 2) == 0)
            for (; *v; v += *v == ',')
                a->i[a->ni++] = strtoll(v, &v, 10);
        else if (strncmp(word, "f=", 2) == 0)
            for (; *v; v += *v == ',')
                a->f[a->nf++] = strtod(v, &v);
        else if (strncmp(word, "s=", 2) == 0)
            for (k = 0; v[k]; k++)
                a->s[k] = v[k] == '_' ? ' ' : v[k];
    }
}

static int find(const char *name) {
    int k;
    for (k = 0; k < NOPS && strcmp(ops[k].name, name) != 0; k++) {}
    return k;
}

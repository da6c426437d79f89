// calls.h - the ops of ops.def by name, called with what a line of a fixture or a case of their row has (the
// form of a line: fixtures/generate.py; of a case: ops.def)
#ifndef TEST_CALLS_H
#define TEST_CALLS_H
#include "test.h"

// The last one is there when rows of ops.def have no other cases than their own (fixtures/generate.py).
static const char *const fixture_files[] = {
    "pointwise", "reduce", "linalg", "index", "nn",   "pointwise2", "sort",
    "linalg2",   "index2", "norm",   "conv",  "rest", "nn2",        "small",
    "optim",     "rows",
};
enum {
    MAX_IN = 32,
    MAX_OUT = 16,
    MAX_ARGS = 32,
    FIXTURE_FILES = (int)(sizeof fixture_files / sizeof fixture_files[0])
};

// How many of them are there.
TEST_FN int fixture_count(const char *directory) {
    char path[300];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, fixture_files[FIXTURE_FILES - 1]);
    f = fopen(path, "rb");
    if (f) { fclose(f); }
    return f ? FIXTURE_FILES : FIXTURE_FILES - 1;
}

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
    for (d = 0; d < TENSOR_DTYPE_COUNT; d++) {
        if (strcmp(tensor_dtype_name((tensor_dtype_t)d), name) == 0) { break; }
    }
    return (tensor_dtype_t)d;
}

// ---- calls of several results; an absent one is NULL ----

static int results(arguments_t *a, tensor_t *x, tensor_t *y, tensor_t *z) {
    int n = 0;
    if (x) { a->out[n++] = x; }
    if (y) { a->out[n++] = y; }
    if (z) { a->out[n++] = z; }
    return n;
}
static int slogdet(arguments_t *a, tensor_slogdet_t s) {
    return results(a, s.sign, s.logabsdet, NULL);
}
static int lu_factor(arguments_t *a, tensor_lu_factor_t f) {
    return results(a, f.lu, f.pivots, NULL);
}
static int linalg_ex(arguments_t *a, tensor_linalg_ex_t e) {
    return results(a, e.result, e.info, NULL);
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
// What the documentation shows: not what tests compare.
static int results_as_they_are;
// What the signs of the vectors leave alone: their sizes, and a function of the matrix made of them. Full
// matrices: the projections on them.
static int svd(arguments_t *a, tensor_t *u, tensor_t *s, tensor_t *vh, int full) {
    tensor_t *uut = tensor_matmul(u, tensor_mT(u)), *vvt = tensor_matmul(vh, tensor_mT(vh));
    if (full) { return results(a, s, uut, vvt); }
    a->out[3] = tensor_matmul(tensor_mul(u, tensor_unsqueeze(tensor_mul(s, s), -2)), vh);
    return results(a, s, tensor_abs(u), tensor_abs(vh)) + 1;
}
static int linalg_svd(arguments_t *a, tensor_linalg_svd_t f) {
    if (results_as_they_are) { return results(a, f.u, f.s, f.vh); }
    return svd(a, f.u, f.s, f.vh, (int)a->i[0]);
}
static int svd_of(arguments_t *a, tensor_svd_t f) {
    if (results_as_they_are) { return results(a, f.u, f.s, f.v); }
    return svd(a, f.u, f.s, tensor_mT(f.v), 0);
}
static int lowrank(arguments_t *a, tensor_svd_t f) {
    if (results_as_they_are) { return results(a, f.u, f.s, f.v); }
    return results(a, f.s, tensor_matmul(tensor_mul(f.u, tensor_unsqueeze(f.s, -2)), tensor_mT(f.v)), NULL);
}
static int eigh(arguments_t *a, tensor_eigh_t f) {
    tensor_t *w = f.eigenvalues, *q = f.eigenvectors,
             *w3 = tensor_unsqueeze(tensor_mul(tensor_mul(w, w), w), -2);
    if (results_as_they_are) { return results(a, w, q, NULL); }
    return results(a, w, tensor_abs(q), tensor_matmul(tensor_mul(q, w3), tensor_mT(q)));
}
static int lstsq(arguments_t *a, tensor_lstsq_t f) {
    tensor_shape_t s = tensor_shape(a->in[0]);
    int tall = s.ndim > 1 && s.dims[s.ndim - 2] > s.dims[s.ndim - 1];       // no dims: it is not a tensor
    return results(a, f.solution, tall ? f.residuals : NULL, NULL);
}
// Points, edges of two dims, weights; whether a density.
TEST_FN tensor_t *histogramdd(arguments_t *a) {
    return tensor_histogramdd(a->in[0], a->in + 1, 2, a->in[3], (int)a->i[0]);
}
static int state(arguments_t *a, tensor_state_t s) {
    return results(a, s.y, s.h, s.c);
}
static int cell(arguments_t *a, tensor_state_t s) {
    if (results_as_they_are) { return state(a, s); }
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
    } else {
        nn_parameter(m, "in_proj_weight", *w++);
    }
    if (a->i[4]) { nn_parameter(m, "in_proj_bias", *w++); }
    nn_parameter(out, "weight", *w++);
    if (a->i[4]) { nn_parameter(out, "bias", *w++); }
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
    for (k = 0; k < 8; k++) { v[k] = a->nf ? zero_f(a->f[k]) : 0; }
#define WHOSE .list = &w, .count = 1, .lr = v[0], .weight_decay = v[1], .maximize = up
#define BETAS .beta1 = v[2], .beta2 = v[3], .eps = v[4]
    if (strcmp(a->s, "sgd") == 0) {
        o = nn_sgd(WHOSE, .momentum = v[2], .dampening = v[3], .nesterov = flag);
    }
    if (strcmp(a->s, "adam") == 0) { o = nn_adam(WHOSE, BETAS, .amsgrad = flag); }
    if (strcmp(a->s, "adamw") == 0) { o = nn_adamw(WHOSE, BETAS, .amsgrad = flag); }
    if (strcmp(a->s, "rmsprop") == 0) {
        o = nn_rmsprop(WHOSE, .alpha = v[2], .eps = v[3], .momentum = v[4], .centered = flag);
    }
    if (strcmp(a->s, "adagrad") == 0) {
        o = nn_adagrad(WHOSE, .lr_decay = v[2], .initial_accumulator_value = v[3], .eps = v[4]);
    }
    if (strcmp(a->s, "adadelta") == 0) { o = nn_adadelta(WHOSE, .rho = v[2], .eps = v[3]); }
    if (strcmp(a->s, "adamax") == 0) { o = nn_adamax(WHOSE, BETAS); }
    if (strcmp(a->s, "nadam") == 0) {
        o = nn_nadam(WHOSE, BETAS, .momentum_decay = v[5], .decoupled_weight_decay = flag);
    }
    if (strcmp(a->s, "asgd") == 0) { o = nn_asgd(WHOSE, .lambd = v[2], .alpha = v[3], .t0 = v[4]); }
    if (strcmp(a->s, "rprop") == 0) {
        o = nn_rprop(.list = &w, .count = 1, .lr = v[0], .maximize = up, .etaminus = v[2], .etaplus = v[3],
                     .step_size_min = v[4], .step_size_max = v[5]);
    }
    if (strcmp(a->s, "adafactor") == 0) {
        o = nn_adafactor(WHOSE, .beta2_decay = v[2], .eps1 = v[3], .eps2 = v[4], .d = v[5]);
    }
    if (strcmp(a->s, "radam") == 0) { o = nn_radam(WHOSE, BETAS, .decoupled_weight_decay = flag); }
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
    for (k = 0; k < 7; k++) { v[k] = k < a->nf ? zero_f(a->f[k]) : 0; }
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
    if (f->a->i[5]) { y = tensor_neg(y); }
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
    for (k = 0; f.o && k < a->i[0]; k++) { loss = nn_step_closure(f.o, fit_loss, &f); }
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
    for (k = 0; f.o && k < a->i[1]; k++) { loss = nn_step_closure(f.o, path_loss, &f); }
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
        if (a->nin) { lr = nn_lr_plateau(&p, tensor_item(tensor_select(a->in[0], 0, k)), lr); }
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
TEST_FN tensor_t *rearrange(arguments_t *a) {
    char *bar = strchr(a->s, '|');
    if (bar) { *bar = 0; }
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

// ---- what the calls of ops.def are written in: inputs A B C D, integers I(k), numbers F(k), text S ----
#define A a->in[0]
#define B a->in[1]
#define C a->in[2]
#define D a->in[3]
#define I(k) a->i[k]
#define F(k) a->f[k]
#define Z(k) zero_i(a->i[k])
#define DT dtype_of(a->s)
#define LIST a->in, a->nin
#define DIMS a->i, a->ni
#define REST a->i + 1, a->ni - 1
// What is changed in place: a copy of the first input, or that itself.
static int changes_itself;
#define COPY (changes_itself ? A : tensor_clone(A))
#define RED(k) .reduction = (tensor_reduction_t)I(k)
// The sizes and strides of as_strided: half of the integers each, then the offset.
#define STRIDED a->i, a->i + a->ni / 2, a->ni / 2, a->i[a->ni - 1]
// k of topk, all elements of the dim if it is negative
#define MANY_OR_ALL(k, dim) (I(k) >= 0 ? I(k) : tensor_ndim(A) ? tensor_size(A, I(dim)) : 1)
#define MAX_POOL .stride = I(1), .padding = I(2), .dilation = I(3), .ceil_mode = (int)I(4)
#define COLUMNS                                                                                              \
    .kernel_w = I(1), .dilation = I(2), .dilation_w = I(3), .padding = I(4), .padding_w = Z(5),              \
    .stride = I(6), .stride_w = I(7)
// What tensor_from and tensor_wrap are given.
static double memory[1 << 16];

// A function for each op and each of its twins.
#define CALL(name, ...)                                                                                      \
    static void call_##name(arguments_t *a) {                                                                \
        a->out[0] = __VA_ARGS__;                                                                             \
        a->nout = 1;                                                                                         \
    }
#define CALL_ONE(name, args) CALL(name, tensor_##name args)
#define CALL_ONE_N(name, args) CALL(name, tensor_##name##_n args)
#define CALL_AS(name, expression) CALL(name, expression)
#define CALL_PAIR(name, args)                                                                                \
    static void call_##name(arguments_t *a) {                                                                \
        tensor_pair_t p = tensor_##name args;                                                                \
        a->out[0] = p.values, a->out[1] = p.indices, a->nout = 2;                                            \
    }
#define CALL_MANY(name, expression)                                                                          \
    static void call_##name(arguments_t *a) {                                                                \
        a->nout = expression;                                                                                \
    }
#define IN_PLACE(name, ...)                                                                                  \
    static void call_##name(arguments_t *given) {                                                            \
        arguments_t copied = *given, *a = &copied;                                                           \
        copied.in[0] = changes_itself ? given->in[0] : tensor_clone(given->in[0]);                           \
        given->out[0] = __VA_ARGS__;                                                                         \
        given->nout = 1;                                                                                     \
    }
#define HERE_ONE(name, args) IN_PLACE(name##_, tensor_##name##_ args)
#define HERE_ONE_N(name, args) IN_PLACE(name##_, tensor_##name##_n_ args)
#define TWINS_ONLY(form, name, args)
#define TWINS_HERE(form, name, args) HERE_##form(name, args)
#define TWINS_NUMBER(form, name, args) CALL(name##_scalar, tensor_##name##_scalar(A, F(0)))
#define TWINS_ALL(form, name, args)                                                                          \
    HERE_##form(name, args)                                                                                  \
    TWINS_NUMBER(form, name, args)                                                                           \
    IN_PLACE(name##_scalar_, tensor_##name##_scalar_(A, F(0)))
#define OP(name, twins, form, args, cases, time, torch)                                                      \
    CALL_##form(name, args) TWINS_##twins(form, name, args)
#include "ops.def"
// What only fixtures call: modules, optimizers, schedules.
CALL_MANY(nn_multihead_attention, attention(a))
CALL_AS(learning_rate, rates(a))
CALL_AS(optimizer, steps(a))
CALL_AS(muon, muon(a))
CALL_AS(lbfgs, lbfgs(a))
CALL_AS(lbfgs_path, lbfgs_path(a))
#undef A
#undef B
#undef C
#undef D
#undef I
#undef F

typedef enum twin_t { ITSELF, HERE, NUMBER, NUMBER_HERE } twin_t;
typedef struct entry_t {
    const char *name;
    void (*call)(arguments_t *a);
    const char *cases, *time, *torch;
    int operands;                       // of a pointwise row, 0 = of another
    double lo, hi;                      // and the range of its inputs
    const char *dtypes;
    twin_t twin;
    int random;
    long seen, gradients;
} entry_t;
#define ENTRY(name, twin, ...) {#name, call_##name, __VA_ARGS__, twin, 0, 0, 0},
#define ENTRIES_ONLY(name, ...) ENTRY(name, ITSELF, __VA_ARGS__)
#define ENTRIES_HERE(name, ...) ENTRY(name, ITSELF, __VA_ARGS__) ENTRY(name##_, HERE, __VA_ARGS__)
#define ENTRIES_NUMBER(name, ...) ENTRY(name, ITSELF, __VA_ARGS__) ENTRY(name##_scalar, NUMBER, __VA_ARGS__)
#define ENTRIES_ALL(name, ...)                                                                               \
    ENTRIES_HERE(name, __VA_ARGS__)                                                                          \
    ENTRY(name##_scalar, NUMBER, __VA_ARGS__) ENTRY(name##_scalar_, NUMBER_HERE, __VA_ARGS__)
#define OP(name, twins, form, args, cases, time, torch) ENTRIES_##twins(name, cases, time, torch, 0, 0, 0, "")
#define UNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, units, torch)                   \
    ENTRIES_##twins(name, cases, "", torch, 1, lo, hi, #dtypes)
#define BINARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                         \
    ENTRIES_##twins(name, cases, "", torch, 2, lo, hi, #dtypes)
#define TERNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                        \
    ENTRIES_##twins(name, cases, "", torch, 3, lo, hi, #dtypes)
static entry_t ops[] = {
#include "ops.def"
    ENTRY(nn_multihead_attention, ITSELF, "", "", "-", 0, 0, 0, "")
    ENTRY(learning_rate, ITSELF, "", "", "-", 0, 0, 0, "")
    ENTRY(optimizer, ITSELF, "", "", "-", 0, 0, 0, "")
    ENTRY(muon, ITSELF, "", "", "-", 0, 0, 0, "")
    ENTRY(lbfgs, ITSELF, "", "", "-", 0, 0, 0, "")
    ENTRY(lbfgs_path, ITSELF, "", "", "-", 0, 0, 0, "")
};
enum { NOPS = (int)(sizeof ops / sizeof ops[0]), ONLY_FIXTURES = 6 };

// What an op is not tried on: why, or NULL. names: "rand randn".
static const struct { const char *names, *test, *why; } skips[] = {
#define SKIP(names, test, why) {#names, #test, why},
#include "ops.def"
    {"", "", ""},
};
enum { SKIPS = (int)(sizeof skips / sizeof skips[0]) };
TEST_FN const char *skipped(const char *name, const char *test) {
    size_t n = strlen(name);
    int k;
    for (k = 0; k < SKIPS; k++) {
        const char *p = skips[k].names;
        if (strcmp(skips[k].test, test) != 0) { continue; }
        for (; (p = strstr(p, name)) != NULL; p += n) {
            if ((p == skips[k].names || p[-1] == ' ') && (p[n] == 0 || p[n] == ' ')) { return skips[k].why; }
        }
    }
    return NULL;
}

// ---- reading ----

// The tensor x in a layout, over memory of its own whose other bytes are 0x7F.
TEST_FN tensor_t *arrange(tensor_t *x, char layout) {
    tensor_shape_t s = tensor_shape(x);
    int64_t strides[TENSOR_MAX_DIMS], n = tensor_numel(x), room, offset = 0, k;
    size_t size = tensor_dtype_size(tensor_dtype(x));
    char *from, *to;
    int d, nd = s.ndim;
    if (nd == 0 && layout != 'O') { layout = 'C'; }
    room = 1;
    for (d = 0; d < nd; d++) {
        int e = layout == 'T' ? d : nd - 1 - d;
        strides[e] = room;
        if (layout == 'S' && d == 0) {
            strides[e] = 2, room = 2 * s.dims[e] + 1;
        } else if (layout == 'N' && d == 0) {
            room = s.dims[e] + 3;
        } else {
            room *= s.dims[e];
        }
    }
    if (layout == 'S') { offset = 1; }
    if (layout == 'N') { offset = 2; }
    if (layout == 'O') { offset = 3, room += 3; }
    if (layout == 'E' && n) { strides[0] = 0; }
    if (n == 0) { room = offset; }
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
TEST_FN void read_arguments(nn_safetensors_t *r, const char *line, arguments_t *a) {
    char word[300];
    const char *p = line;
    int k;
    memset(a, 0, sizeof *a);
    while (sscanf(p, "%299s", word) == 1) {
        char *v = strchr(word, '=') + 1, *slash = strchr(word, '/');
        p = strstr(p, word) + strlen(word);
        if (strncmp(word, "in=", 3) == 0) {
            if (slash) { *slash = 0; }
            a->in[a->nin++] = slash ? arrange(nn_safetensors_get(r, v), slash[1]) : NULL;
        } else if (strncmp(word, "i=", 2) == 0) {
            for (; *v; v += *v == ',') { a->i[a->ni++] = strtoll(v, &v, 10); }
        } else if (strncmp(word, "f=", 2) == 0) {
            for (; *v; v += *v == ',') { a->f[a->nf++] = strtod(v, &v); }
        } else if (strncmp(word, "s=", 2) == 0) {
            for (k = 0; v[k]; k++) { a->s[k] = v[k] == '_' ? ' ' : v[k]; }
        }
    }
}

TEST_FN int find(const char *name) {
    int k;
    for (k = 0; k < NOPS && strcmp(ops[k].name, name) != 0; k++) {}
    return k;
}

#endif

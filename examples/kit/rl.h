// rl.h - what reinforcement learning needs beside a network: distributions over actions, advantages, a
// replay buffer, targets that follow slowly
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_RL_IMPLEMENTATION
//   #include "kit/rl.h"
//
//   kit_dist_t policy = kit_categorical(nn_forward(net, state));         // logits [N, actions]
//   tensor_t *action = kit_sample(policy);                                // i64 [N]
//   tensor_t *loss = tensor_neg(tensor_mean(tensor_mul(kit_log_prob(policy, action), advantage)));
//
// Distributions agree with torch.distributions. Log-probabilities and entropies have gradients.
#ifndef KIT_RL_H
#define KIT_RL_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- distributions ----

typedef enum kit_dist_kind_t {
    KIT_CATEGORICAL,
    KIT_NORMAL,
    KIT_SQUASHED_NORMAL,
    KIT_BERNOULLI
} kit_dist_kind_t;

// A value that borrows its tensors; it lives as long as they do. One draw for each place of the batch.
typedef struct kit_dist_t {
    kit_dist_kind_t kind;
    tensor_t *a; // logits (of a categorical: normalised, classes in the last dim), or the mean
    tensor_t *b; // standard deviation, or NULL
} kit_dist_t;

// All: -> struct, its tensors are poison on failure;  errors those of the ops, at the latest when it is used;
// SHAPE: logits or a mean with a NaN, logits that are all -inf, a deviation that is not above 0.
kit_dist_t kit_categorical(tensor_t *logits);                  // classes 0..n-1 by logits [..., n]
kit_dist_t kit_normal(tensor_t *mean, tensor_t *std);          // broadcast to each other
kit_dist_t kit_squashed_normal(tensor_t *mean, tensor_t *std); // tanh of a normal one, in (-1, 1)
kit_dist_t kit_bernoulli(tensor_t *logits);                    // 1 with probability sigmoid(logits), else 0

// 0 = no look at the values: for a capture, which cannot read elements, or to spare a GPU the wait.
void kit_set_default_validate_args(int on);

// A draw without gradient.   -> new: i64 of a categorical, else in the dtype of the parameters
tensor_t *kit_sample(kit_dist_t d);

typedef struct kit_draw_t {
    tensor_t *value, *log_prob;
} kit_draw_t;
// A draw with gradients to mean and deviation, and its log-probability, exact also where tanh rounds to 1.
//   -> struct of two new tensors, poison on failure;  errors UNSUPPORTED of a categorical and Bernoulli one
kit_draw_t kit_rsample(kit_dist_t d);

// log p(value), each place for itself: sum over the last dim for an action of several numbers.
//   value   what kit_sample gives; squashed: of magnitude over 1 - 1e-7 counts as that
//   -> new;  grad to parameters and value;  errors INDEX (no such class), SHAPE (NaN, squashed: outside of
//      -1..1, Bernoulli: not 0 or 1)
tensor_t *kit_log_prob(kit_dist_t d, tensor_t *value);

//   -> new;  errors UNSUPPORTED of a squashed one (it has no formula: take -log_prob of a draw)
tensor_t *kit_entropy(kit_dist_t d);

// KL(p || q).   -> new;  errors UNSUPPORTED if they are not of one kind
tensor_t *kit_kl(kit_dist_t p, kit_dist_t q);

// The most likely value.   -> new: i64 of a categorical, tanh(mean) of a squashed one
tensor_t *kit_mode(kit_dist_t d);

// ---- advantages ----
// T steps of N environments: rewards and done [T, ...], values [T + 1, ...] with the value of the state
// after the last step. done 1 = the episode ended with this step, so that nothing behind it counts. No
// gradients.

typedef struct kit_advantages_t {
    tensor_t *advantages; // [T, ...]
    tensor_t *returns;    // what the value should have been, [T, ...]
} kit_advantages_t;

// Generalised advantage estimation (Schulman et al. 2016).
//   gamma, lambda  0..1
//   -> struct of two new tensors, poison on failure;  errors SHAPE
kit_advantages_t kit_gae(tensor_t *rewards, tensor_t *values, tensor_t *done, double gamma, double lambda);

// V-trace (Espeholt et al. 2018), for steps that another policy took.
//   log_rhos  log of (probability now / probability then) of the actions, [T, ...]
//   gamma     0..1; clip_rho, clip_pg_rho  above 0
//   -> struct as above: the advantages for the policy gradient, vs;  errors SHAPE
kit_advantages_t kit_vtrace(tensor_t *log_rhos, tensor_t *rewards, tensor_t *values, tensor_t *done,
                            double gamma, double clip_rho, double clip_pg_rho);

// ---- replay buffer, targets ----

enum { KIT_REPLAY_FIELDS = 8 };
typedef struct kit_replay_t {
    tensor_t *field[KIT_REPLAY_FIELDS]; // [capacity, ...]
    int fields;
    int64_t capacity, size, next;
} kit_replay_t;

// Room for transitions of several tensors (state, action, reward, next state, done).
//   like    one tensor [B, ...] for each field, for shapes without the first dim, dtypes and devices
//   -> struct, fields 0 on failure;  errors SHAPE, OUT_OF_MEMORY
kit_replay_t kit_replay_new(int64_t capacity, tensor_t *const *like, int fields);
void kit_replay_free(kit_replay_t *r);
// Takes B transitions, each field [B, ...]; the oldest are overwritten.
//   -> code;  errors SHAPE (also B over the capacity), DTYPE
int kit_replay_push(kit_replay_t *r, tensor_t *const *fields);
// Draws n transitions, any of them more than once.
//   out     receives one tensor [n, ...] for each field, poison on failure
//   -> code;  errors SHAPE (the buffer is empty, n < 1)
int kit_replay_sample(const kit_replay_t *r, int64_t n, tensor_t **out);

// target = target + tau (source - target) for all parameters; buffers are copied.
//   -> code;  errors SHAPE (tau is not in 0..1, they are not built alike)
int kit_polyak(nn_module_t *target, nn_module_t *source, double tau);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_RL_IMPLEMENTATION) && !defined(KIT_RL_DONE)
#define KIT_RL_DONE

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

//   -> poison
static tensor_t *kit_rl__fail(int code, const char *what) {
    (tensor_raise)(code, what);
    (void)tensor_empty(0);      // reports it, without a line of this file
    return (tensor_detach)(NULL);
}

// good, after raising what if it is 0.
static int kit_rl__wanted(int good, const char *what) {
    if (!good) { kit_rl__fail(TENSOR_ERR_SHAPE, what); }
    return good;
}

// ---- distributions ----

static int kit_rl__unchecked;

void kit_set_default_validate_args(int on) { kit_rl__unchecked = !on; }

// x, unless one of its elements is NaN or below least: then poison, after raising what.
static tensor_t *kit_rl__checked(tensor_t *x, double least, const char *what) {
    if (kit_rl__unchecked || tensor_numel(x) == 0) { return x; }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    const int good = tensor_item(tensor_min(x)) >= least;
    tensor_scope_end(scope);
    return good ? x : kit_rl__fail(TENSOR_ERR_SHAPE, what);
}

kit_dist_t kit_categorical(tensor_t *logits) {
    kit_dist_t d = {KIT_CATEGORICAL, NULL, NULL};
    d.a = kit_rl__checked(tensor_log_softmax(logits, -1), -INFINITY, "kit_categorical: NaN or all -inf");
    return d;
}

kit_dist_t kit_normal(tensor_t *mean, tensor_t *std) {
    kit_dist_t d = {KIT_NORMAL, NULL, NULL};
    tensor_t *out[2], *list[2] = {kit_rl__checked(mean, -INFINITY, "kit_normal: the mean has a NaN"),
                                  kit_rl__checked(std, DBL_MIN, "kit_normal: std must be above 0")};
    tensor_broadcast_tensors(list, 2, out);
    d.a = out[0];
    d.b = out[1];
    return d;
}

kit_dist_t kit_squashed_normal(tensor_t *mean, tensor_t *std) {
    kit_dist_t d = kit_normal(mean, std);
    d.kind = KIT_SQUASHED_NORMAL;
    return d;
}

kit_dist_t kit_bernoulli(tensor_t *logits) {
    kit_dist_t d = {KIT_BERNOULLI, NULL, NULL};
    d.a = kit_rl__checked(logits, -INFINITY, "kit_bernoulli: logits have a NaN");
    return d;
}

static tensor_t *kit_rl__normal_draw(kit_dist_t d) {
    return tensor_add(d.a, tensor_mul(d.b, tensor_randn_like(d.a)));
}

tensor_t *kit_sample(kit_dist_t d) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *y = NULL;
    switch (d.kind) {
    case KIT_CATEGORICAL: {
        // The first of exponential clocks with these rates.
        tensor_t *clock = tensor_log(tensor_exponential_(tensor_empty_like(d.a), 1));
        y = tensor_argmax_dim(tensor_sub(d.a, clock), -1, 0);
        break;
    }
    case KIT_NORMAL: y = kit_rl__normal_draw(d); break;
    case KIT_SQUASHED_NORMAL: y = tensor_tanh(kit_rl__normal_draw(d)); break;
    case KIT_BERNOULLI: y = tensor_bernoulli(tensor_sigmoid(d.a)); break;
    }
    return tensor_scope_return(scope, y);
}

static tensor_t *kit_rl__normal_log_prob(kit_dist_t d, tensor_t *x) {
    const double log_sqrt_2_pi = 0.91893853320467274178;
    tensor_t *z = tensor_div(tensor_sub(x, d.a), d.b);
    return tensor_sub_scalar(tensor_sub(tensor_mul_scalar(tensor_square(z), -0.5), tensor_log(d.b)),
                             log_sqrt_2_pi);
}

// log p of tanh(x): less log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)).
static tensor_t *kit_rl__squashed_log_prob(kit_dist_t d, tensor_t *x) {
    tensor_t *softplus = tensor_neg(tensor_logsigmoid(tensor_mul_scalar(x, 2)));
    tensor_t *slope =
        tensor_mul_scalar(tensor_rsub_scalar(tensor_add(x, softplus), 0.69314718055994530942), 2);
    return tensor_sub(kit_rl__normal_log_prob(d, x), slope);
}

kit_draw_t kit_rsample(kit_dist_t d) {
    kit_draw_t r = {NULL, NULL};
    if (d.kind == KIT_NORMAL || d.kind == KIT_SQUASHED_NORMAL) {
        tensor_t *x = kit_rl__normal_draw(d);
        int squashed = d.kind == KIT_SQUASHED_NORMAL;
        r.value = squashed ? tensor_tanh(x) : x;
        r.log_prob = squashed ? kit_rl__squashed_log_prob(d, x) : kit_rl__normal_log_prob(d, x);
    } else {
        r.value =
            kit_rl__fail(TENSOR_ERR_UNSUPPORTED, "kit_rsample: draws of whole numbers have no gradient");
        r.log_prob = r.value;
    }
    return r;
}

// value, if d can give it, else poison. Classes are looked at by tensor_gather.
static tensor_t *kit_rl__given(kit_dist_t d, tensor_t *value) {
    tensor_t *x = tensor_detach(value);
    if (d.kind == KIT_CATEGORICAL) { return value; }
    if (d.kind == KIT_SQUASHED_NORMAL) {
        x = kit_rl__checked(tensor_neg(tensor_abs(x)), -1, "kit_log_prob: a squashed value is in -1..1");
    } else if (d.kind == KIT_BERNOULLI) {
        x = tensor_neg(tensor_abs(tensor_sub(tensor_square(x), x)));
        x = kit_rl__checked(x, 0, "kit_log_prob: a value of a Bernoulli distribution is 0 or 1");
    } else {
        x = kit_rl__checked(x, -INFINITY, "kit_log_prob: the value has a NaN");
    }
    return tensor_is_poison(x) ? x : value;
}

tensor_t *kit_log_prob(kit_dist_t d, tensor_t *value) {
    const double most = 1 - 1e-7;
    value = kit_rl__given(d, value);
    switch (d.kind) {
    case KIT_CATEGORICAL: return tensor_squeeze(tensor_gather(d.a, -1, tensor_unsqueeze(value, -1)), -1);
    case KIT_NORMAL: return kit_rl__normal_log_prob(d, value);
    case KIT_SQUASHED_NORMAL:
        return kit_rl__squashed_log_prob(d, tensor_atanh(tensor_clamp(value, -most, most)));
    case KIT_BERNOULLI: break;
    }
    // v log sigmoid(x) + (1 - v) log sigmoid(-x)
    return tensor_add(tensor_mul(tensor_sub_scalar(value, 1), d.a), tensor_logsigmoid(d.a));
}

tensor_t *kit_entropy(kit_dist_t d) {
    // 0 log 0 is 0 here.
    tensor_t *logits = d.kind == KIT_CATEGORICAL ? tensor_clamp_min(d.a, -1e30) : NULL;
    switch (d.kind) {
    case KIT_CATEGORICAL: return tensor_neg(tensor_sum_dim(tensor_mul(tensor_exp(logits), logits), -1, 0));
    case KIT_NORMAL: return tensor_add_scalar(tensor_log(d.b), 1.41893853320467274178); // (1 + log 2 pi) / 2
    case KIT_SQUASHED_NORMAL:
        return kit_rl__fail(TENSOR_ERR_UNSUPPORTED, "kit_entropy: a squashed normal has no formula; take "
                                                    "-log_prob of a draw");
    case KIT_BERNOULLI: break;
    }
    return tensor_sub(tensor_mul(tensor_rsub_scalar(tensor_sigmoid(d.a), 1), d.a), tensor_logsigmoid(d.a));
}

static tensor_t *kit_rl__normal_kl(kit_dist_t p, kit_dist_t q) {
    tensor_t *ratio = tensor_square(tensor_div(p.b, q.b)),
             *z = tensor_square(tensor_div(tensor_sub(p.a, q.a), q.b));
    tensor_t *sum = tensor_sub_scalar(tensor_add(ratio, z), 1);
    return tensor_mul_scalar(tensor_sub(sum, tensor_log(ratio)), 0.5);
}

// One side of a Bernoulli's KL: P log(P / Q), P = sigmoid(x).
static tensor_t *kit_rl__bernoulli_kl(tensor_t *x, tensor_t *y) {
    return tensor_mul(tensor_sigmoid(x), tensor_sub(tensor_logsigmoid(x), tensor_logsigmoid(y)));
}

tensor_t *kit_kl(kit_dist_t p, kit_dist_t q) {
    if (p.kind != q.kind) {
        return kit_rl__fail(TENSOR_ERR_UNSUPPORTED, "kit_kl: the two are not of one kind");
    }
    if (p.kind == KIT_NORMAL || p.kind == KIT_SQUASHED_NORMAL) { return kit_rl__normal_kl(p, q); }
    if (p.kind == KIT_BERNOULLI) {
        return tensor_add(kit_rl__bernoulli_kl(p.a, q.a),
                          kit_rl__bernoulli_kl(tensor_neg(p.a), tensor_neg(q.a)));
    }
    // Classes that p never draws count nothing, and infinitely much those that only p draws.
    tensor_t *never = tensor_isneginf(p.a), *from = tensor_masked_fill(p.a, never, -1e30);
    tensor_t *terms = tensor_mul(tensor_exp(from), tensor_sub(from, q.a));
    return tensor_sum_dim(tensor_masked_fill(terms, never, 0), -1, 0);
}

tensor_t *kit_mode(kit_dist_t d) {
    switch (d.kind) {
    case KIT_CATEGORICAL: return tensor_argmax_dim(d.a, -1, 0);
    case KIT_NORMAL: return tensor_clone(d.a);
    case KIT_SQUASHED_NORMAL: return tensor_tanh(d.a);
    case KIT_BERNOULLI: break;
    }
    return tensor_to(tensor_gt_scalar(d.a, 0), tensor_dtype(d.a));
}

// ---- advantages ----

// The numbers of x as doubles of the host, NULL if it is not [T + more, ...] with as many numbers in each
// step.
static const double *kit_rl__steps(tensor_t *x, int64_t steps, int64_t each) {
    tensor_t *host = tensor_contiguous(tensor_to(tensor_to(tensor_detach(x), TENSOR_CPU), TENSOR_F64));
    if (tensor_is_poison(host)) { return NULL; }
    if (tensor_ndim(host) > 0 && tensor_size(host, 0) == steps && tensor_numel(host) == steps * each) {
        static const double none = 0;
        return tensor_numel(host) ? (const double *)tensor_data(host) : &none;
    }
    kit_rl__fail(TENSOR_ERR_SHAPE, "advantages: rewards and done are [T, ...], values are [T + 1, ...]");
    return NULL;
}

// Both results in the shape, dtype and place of rewards.
static kit_advantages_t kit_rl__results(tensor_scope_t scope, tensor_t *rewards, double *const data[2]) {
    tensor_shape_t shape = tensor_shape(rewards);
    kit_advantages_t r = {NULL, NULL};
    tensor_scope_end(scope);
    for (int k = 0; k < 2; k++) {
        scope = tensor_scope_begin_no_grad();
        tensor_t *t =
            data[k] ? tensor_from_n(data[k], TENSOR_F64, shape.dims, shape.ndim) : tensor_detach(NULL);
        t = data[k] ? tensor_to(tensor_to(t, tensor_dtype(rewards)), tensor_device(rewards)) : t;
        *(k ? &r.returns : &r.advantages) = tensor_scope_return(scope, t);
    }
    return r;
}

// Two arrays of n doubles at out[0] and out[1].   -> to be freed, NULL = raised
static double *kit_rl__arrays(int64_t n, double *out[2]) {
    double *room = (double *)calloc((size_t)n + 1, 2 * sizeof *room);
    if (!room) { kit_rl__fail(TENSOR_ERR_OUT_OF_MEMORY, "advantages: out of memory"); }
    out[0] = room;
    out[1] = room ? room + n : NULL;
    return room;
}

kit_advantages_t kit_gae(tensor_t *rewards, tensor_t *values, tensor_t *done, double gamma, double lambda) {
    const int good = kit_rl__wanted(gamma >= 0 && gamma <= 1 && lambda >= 0 && lambda <= 1,
                                    "kit_gae: gamma and lambda must be in 0..1");
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    const int64_t steps = tensor_ndim(rewards) > 0 ? tensor_size(rewards, 0) : 0;
    const int64_t each = steps > 0 ? tensor_numel(rewards) / steps : 0, n = steps * each;
    const double *r = good ? kit_rl__steps(rewards, steps, each) : NULL;
    const double *d = r ? kit_rl__steps(done, steps, each) : NULL;
    const double *v = d ? kit_rl__steps(values, steps + 1, each) : NULL;
    double *out[2] = {NULL, NULL}, *room = v ? kit_rl__arrays(n, out) : NULL;
    for (int64_t i = n - 1; i >= 0 && room; i--) {
        const double goes_on = 1 - d[i], later = i + each < n ? out[0][i + each] : 0;
        const double delta = r[i] + gamma * goes_on * v[i + each] - v[i];
        out[0][i] = delta + gamma * lambda * goes_on * later;
        out[1][i] = out[0][i] + v[i];
    }
    kit_advantages_t result = kit_rl__results(scope, rewards, out);
    free(room);
    return result;
}

// NaN stays NaN, unlike in fmin: a policy that is NaN must be seen.
static double kit_rl__at_most(double x, double most) {
    return x > most ? most : x;
}

kit_advantages_t kit_vtrace(tensor_t *log_rhos, tensor_t *rewards, tensor_t *values, tensor_t *done,
                            double gamma, double clip_rho, double clip_pg_rho) {
    const int good = kit_rl__wanted(gamma >= 0 && gamma <= 1 && clip_rho > 0 && clip_pg_rho > 0,
                                    "kit_vtrace: gamma must be in 0..1, the clips above 0");
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    const int64_t steps = tensor_ndim(rewards) > 0 ? tensor_size(rewards, 0) : 0;
    const int64_t each = steps > 0 ? tensor_numel(rewards) / steps : 0, n = steps * each;
    const double *r = good ? kit_rl__steps(rewards, steps, each) : NULL;
    const double *d = r ? kit_rl__steps(done, steps, each) : NULL;
    const double *v = d ? kit_rl__steps(values, steps + 1, each) : NULL;
    const double *l = v ? kit_rl__steps(log_rhos, steps, each) : NULL;
    double *out[2] = {NULL, NULL}, *room = l ? kit_rl__arrays(n, out) : NULL;
    for (int64_t i = n - 1; i >= 0 && room; i--) {
        const int last = i + each >= n;
        const double rho = exp(l[i]), goes_on = gamma * (1 - d[i]),
                     next = last ? v[i + each] : out[1][i + each];
        const double delta = kit_rl__at_most(rho, clip_rho) * (r[i] + goes_on * v[i + each] - v[i]);
        out[1][i] = v[i] + delta + goes_on * kit_rl__at_most(rho, 1) * (next - v[i + each]);
        out[0][i] = kit_rl__at_most(rho, clip_pg_rho) * (r[i] + goes_on * next - v[i]);
    }
    kit_advantages_t result = kit_rl__results(scope, rewards, out);
    free(room);
    return result;
}

// ---- replay buffer, targets ----

kit_replay_t kit_replay_new(int64_t capacity, tensor_t *const *like, int fields) {
    kit_replay_t r;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    int good = kit_rl__wanted(capacity > 0 && fields > 0 && fields <= KIT_REPLAY_FIELDS,
                              "kit_replay_new: capacity is below 1, or not 1..8 fields");
    memset(&r, 0, sizeof r);
    for (int k = 0; k < fields && good; k++, r.fields += good) {
        tensor_shape_t shape = tensor_shape(like[k]);
        good = shape.ndim > 0;
        (void)kit_rl__wanted(good || tensor_is_poison(like[k]), "kit_replay_new: a field has no dims");
        shape.dims[0] = capacity;
        tensor_t *t =
            good ? tensor_zeros_n(shape.dims, shape.ndim, tensor_dtype(like[k])) : tensor_detach(NULL);
        t = tensor_to(t, good ? (int)tensor_device(like[k]) : TENSOR_CPU);
        good = good && !tensor_is_poison(t);
        if (good) { r.field[k] = tensor_keep(t); }
    }
    tensor_scope_end(scope);
    r.capacity = capacity;
    if (!good) { kit_replay_free(&r); }
    return r;
}

void kit_replay_free(kit_replay_t *r) {
    for (int k = 0; k < r->fields; k++) { tensor_free(r->field[k]); }
    memset(r, 0, sizeof *r);
}

int kit_replay_push(kit_replay_t *r, tensor_t *const *fields) {
    const int64_t n = r->fields > 0 && tensor_ndim(fields[0]) > 0 ? tensor_size(fields[0], 0) : 0;
    const int64_t first = n < r->capacity - r->next ? n : r->capacity - r->next;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    (void)kit_rl__wanted(n >= 1 && n <= r->capacity, "kit_replay_push: no transitions, or over the capacity");
    // All is looked at before anything is changed.
    for (int k = 0; k < r->fields && tensor_ok(); k++) {
        tensor_shape_t have = tensor_shape(r->field[k]), got = tensor_shape(fields[k]);
        have.dims[0] = n;
        int same =
            have.ndim == got.ndim && !memcmp(have.dims, got.dims, (size_t)have.ndim * sizeof *have.dims);
        (void)kit_rl__wanted(same, "kit_replay_push: a field has another shape than the buffer's");
        if (tensor_dtype(fields[k]) != tensor_dtype(r->field[k])) {
            kit_rl__fail(TENSOR_ERR_DTYPE, "kit_replay_push: a field has another dtype than the buffer's");
        }
    }
    for (int k = 0; k < r->fields && tensor_ok(); k++) {
        tensor_copy_(tensor_narrow(r->field[k], 0, r->next, first), tensor_narrow(fields[k], 0, 0, first));
        if (first == n) { continue; }
        tensor_copy_(tensor_narrow(r->field[k], 0, 0, n - first),
                     tensor_narrow(fields[k], 0, first, n - first));
    }
    const int code = tensor_error_code();
    tensor_scope_end(scope);
    if (code) { return code; }
    r->next = (r->next + n) % r->capacity;
    r->size = r->size + n < r->capacity ? r->size + n : r->capacity;
    return 0;
}

int kit_replay_sample(const kit_replay_t *r, int64_t n, tensor_t **out) {
    const int good = kit_rl__wanted(r->size > 0 && n > 0,
                                    "kit_replay_sample: the buffer is empty, or less than 1 is asked for");
    tensor_t *index = good ? tensor_randint_n(0, r->size, &n, 1) : tensor_detach(NULL);
    for (int k = 0; k < r->fields; k++) {
        out[k] =
            good ? tensor_index_select(r->field[k], 0, tensor_to(index, tensor_device(r->field[k]))) : index;
    }
    return tensor_error_code();
}

int kit_polyak(nn_module_t *target, nn_module_t *source, double tau) {
    (void)kit_rl__wanted(tau >= 0 && tau <= 1, "kit_polyak: tau must be in 0..1");
    const nn_named_list_t to = nn_state(target), from = nn_state(source);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    (void)kit_rl__wanted(to.count == from.count, "kit_polyak: the modules are not built alike");
    for (int64_t i = 0; i < to.count && tensor_ok(); i++) {
        if (to.item[i].is_buffer) {
            tensor_copy_(to.item[i].tensor, from.item[i].tensor);
        } else {
            tensor_lerp_scalar_(to.item[i].tensor, from.item[i].tensor, tau);
        }
    }
    const int code = tensor_error_code();
    tensor_scope_end(scope);
    return code;
}

#endif

// advantages.h - how much better actions were than expected: GAE and V-trace, for rl.h
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_ADVANTAGES_IMPLEMENTATION
//   #include "kit/advantages.h"
//
// T steps of N environments: rewards and done [T, ...], values [T + 1, ...] with the value of the state
// after the last step. done 1 = the episode ended with this step, so that nothing behind it counts. No
// gradients. Results have the dtype of the rewards, or of the values if the rewards are integers.
#ifndef KIT_ADVANTAGES_H
#define KIT_ADVANTAGES_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_advantages_t {
    tensor_t *advantages; // [T, ...]
    tensor_t *returns;    // what the value should have been, [T, ...]
} kit_advantages_t;

// Generalised advantage estimation (Schulman et al. 2016).
//   gamma, lambda  0..1
//   -> struct of two new tensors, poison on failure;  errors SHAPE, DTYPE (the values are integers too)
kit_advantages_t kit_gae(tensor_t *rewards, tensor_t *values, tensor_t *done, double gamma, double lambda);

// V-trace (Espeholt et al. 2018), for steps that another policy took.
//   log_rhos  log of (probability now / probability then) of the actions, [T, ...]
//   gamma     0..1; clip_rho, clip_pg_rho  above 0
//   -> struct as above: the advantages for the policy gradient, vs;  errors as above
kit_advantages_t kit_vtrace(tensor_t *log_rhos, tensor_t *rewards, tensor_t *values, tensor_t *done,
                            double gamma, double clip_rho, double clip_pg_rho);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_ADVANTAGES_IMPLEMENTATION) && !defined(KIT_ADVANTAGES_DONE)
#define KIT_ADVANTAGES_DONE

#include "file.h"

#include <math.h>

// What both formulas read and write, as doubles of the host. room is NULL after an error.
typedef struct kit_advantages__steps_t {
    tensor_scope_t scope;
    tensor_dtype_t dtype; // of the results
    int64_t n, each;      // numbers, and in each step
    const double *r, *d, *v, *l;
    double *room, *advantage, *ret;
} kit_advantages__steps_t;

// The numbers of x, NULL if it is not [steps, ...] with as many numbers in each step.
static const double *kit_advantages__numbers(const char *op, tensor_t *x, int64_t steps, int64_t each) {
    if (!x) {
        kit_file__fail(TENSOR_ERR_OWNER, op, NULL, -1, "an argument is NULL");
        return NULL;
    }
    tensor_t *host = tensor_contiguous(tensor_to(tensor_to(tensor_detach(x), TENSOR_CPU), TENSOR_F64));
    if (tensor_is_poison(host)) { return NULL; }
    if (tensor_ndim(host) > 0 && tensor_size(host, 0) == steps && tensor_numel(host) == steps * each) {
        static const double none = 0;
        return tensor_numel(host) ? (const double *)tensor_data(host) : &none;
    }
    kit_file__fail(TENSOR_ERR_SHAPE, op, NULL, -1,
                   "rewards and done are [T, ...], values are [T + 1, ...]");
    return NULL;
}

static int kit_advantages__is_float(tensor_t *x) {
    const tensor_dtype_t t = tensor_dtype(x);
    return t == TENSOR_F32 || t == TENSOR_F64 || t == TENSOR_F16 || t == TENSOR_BF16;
}

// good = the plain numbers are. kit_gae, which has no log_rhos, gives its rewards a second time.
static kit_advantages__steps_t kit_advantages__begin(const char *op, int good, tensor_t *rewards,
                                                     tensor_t *values, tensor_t *done,
                                                     tensor_t *log_rhos) {
    kit_advantages__steps_t s;
    memset(&s, 0, sizeof s);
    s.scope = tensor_scope_begin_no_grad();
    const int64_t steps = rewards && tensor_ndim(rewards) > 0 ? tensor_size(rewards, 0) : 0;
    s.each = steps > 0 ? tensor_numel(rewards) / steps : 0;
    s.n = steps * s.each;
    s.r = good ? kit_advantages__numbers(op, rewards, steps, s.each) : NULL;
    s.d = s.r ? kit_advantages__numbers(op, done, steps, s.each) : NULL;
    s.v = s.d ? kit_advantages__numbers(op, values, steps + 1, s.each) : NULL;
    s.l = s.v ? kit_advantages__numbers(op, log_rhos, steps, s.each) : NULL;
    if (s.l) { s.dtype = tensor_dtype(kit_advantages__is_float(rewards) ? rewards : values); }
    if (s.l && !kit_advantages__is_float(rewards) && !kit_advantages__is_float(values)) {
        kit_file__fail(TENSOR_ERR_DTYPE, op, NULL, -1, "rewards or values must be of floats");
    } else if (s.l) {
        s.room = (double *)calloc((size_t)s.n + 1, 2 * sizeof *s.room);
        if (!s.room) { kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, op, NULL, -1, "out of memory"); }
    }
    s.advantage = s.room;
    s.ret = s.room ? s.room + s.n : NULL;
    return s;
}

// Both results in the shape and place of rewards.
static kit_advantages_t kit_advantages__end(kit_advantages__steps_t *s, tensor_t *rewards) {
    tensor_shape_t shape = tensor_shape(rewards);
    kit_advantages_t r = {NULL, NULL};
    tensor_scope_end(s->scope);
    for (int k = 0; k < 2; k++) {
        const double *data = k ? s->ret : s->advantage;
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        tensor_t *t = data ? tensor_from_n(data, TENSOR_F64, shape.dims, shape.ndim) : tensor_detach(NULL);
        t = data ? tensor_to(tensor_to(t, s->dtype), tensor_device(rewards)) : t;
        *(k ? &r.returns : &r.advantages) = tensor_scope_return(scope, t);
    }
    free(s->room);
    return r;
}

kit_advantages_t kit_gae(tensor_t *rewards, tensor_t *values, tensor_t *done, double gamma, double lambda) {
    const int good = gamma >= 0 && gamma <= 1 && lambda >= 0 && lambda <= 1;
    if (!good) {
        kit_file__fail(TENSOR_ERR_SHAPE, "kit_gae", NULL, -1, "gamma and lambda must be in 0..1");
    }
    kit_advantages__steps_t s = kit_advantages__begin("kit_gae", good, rewards, values, done, rewards);
    for (int64_t i = s.n - 1; i >= 0 && s.room; i--) {
        const double goes_on = 1 - s.d[i], later = i + s.each < s.n ? s.advantage[i + s.each] : 0;
        const double delta = s.r[i] + gamma * goes_on * s.v[i + s.each] - s.v[i];
        s.advantage[i] = delta + gamma * lambda * goes_on * later;
        s.ret[i] = s.advantage[i] + s.v[i];
    }
    return kit_advantages__end(&s, rewards);
}

// NaN stays NaN, unlike in fmin: a policy that is NaN must be seen.
static double kit_advantages__at_most(double x, double most) {
    return x > most ? most : x;
}

kit_advantages_t kit_vtrace(tensor_t *log_rhos, tensor_t *rewards, tensor_t *values, tensor_t *done,
                            double gamma, double clip_rho, double clip_pg_rho) {
    const int good = gamma >= 0 && gamma <= 1 && clip_rho > 0 && clip_pg_rho > 0;
    if (!good) {
        kit_file__fail(TENSOR_ERR_SHAPE, "kit_vtrace", NULL, -1,
                       "gamma must be in 0..1, the clips above 0");
    }
    kit_advantages__steps_t s = kit_advantages__begin("kit_vtrace", good, rewards, values, done, log_rhos);
    for (int64_t i = s.n - 1; i >= 0 && s.room; i--) {
        const int64_t after = i + s.each;
        const double rho = exp(s.l[i]), goes_on = gamma * (1 - s.d[i]),
                     next = after >= s.n ? s.v[after] : s.ret[after];
        const double delta = s.r[i] + goes_on * s.v[after] - s.v[i];
        s.ret[i] = s.v[i] + kit_advantages__at_most(rho, clip_rho) * delta;
        s.ret[i] += goes_on * kit_advantages__at_most(rho, 1) * (next - s.v[after]);
        s.advantage[i] = kit_advantages__at_most(rho, clip_pg_rho) * (s.r[i] + goes_on * next - s.v[i]);
    }
    return kit_advantages__end(&s, rewards);
}

#endif

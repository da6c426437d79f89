// execute.h - runs a program in one configuration and notes what every statement gave
#ifndef DIFFERENTIAL_EXECUTE_H
#define DIFFERENTIAL_EXECUTE_H
#include "program.h"

// ---- which public functions were called, by name (machine.c compares them with the headers) ----

enum { MAX_USED = 400 };
static const char *used_names[MAX_USED];
static int nused;
TEST_FN void use(const char *name) {
    int k;
    for (k = 0; k < nused; k++)
        if (used_names[k] == name) return;
    if (nused < MAX_USED) used_names[nused++] = name;
}
#define USE(name) (use(#name), name)
// The functions that a text calls.
TEST_FN void use_text(const char *p) {
    static char names[MAX_USED][48];
    static int n;
    int k;
    for (; (p = strstr(p, "nn_")) != NULL; p += 3) {
        size_t length = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (p[length] != '(' || length > 47) continue;
        for (k = 0; k < n && (strncmp(names[k], p, length) != 0 || names[k][length]); k++) {}
        if (k < n || n == MAX_USED) continue;
        snprintf(names[n], sizeof names[n], "%.*s", (int)length, p);
        use(names[n++]);
    }
}

// ---- a trace ----

typedef struct record_t {
    char kind;                        // v: a value when it was made, f: at the end, g: its gradient
    int var, step, there;             // there: 0 = NULL
    int dtype, nd, grad, leaf, alias; // alias: the first value with the same storage
    int more;                         // bits of what else is known of it
    const char *made_by;
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS], offset, n;
    double *v;  // floats
    int64_t *i; // all others
} record_t;
enum { MAX_RECORDS = 1024 };
typedef struct trace_t {
    int n, steps, invalid; // invalid: the program used a value that is not there
    int failed[MAX_STEPS]; // the code of its error
    char text[MAX_STEPS][160];
    int made[MAX_STEPS];   // how many values
    int alive[MAX_VALUES]; // at the end
    int leaked;
    record_t *r;
} trace_t;

TEST_FN void trace_begin(trace_t *t) {
    memset(t, 0, sizeof *t);
    t->r = (record_t *)calloc(MAX_RECORDS, sizeof *t->r);
}
TEST_FN void trace_end(trace_t *t) {
    int k;
    for (k = 0; k < t->n; k++)
        free(t->r[k].v), free(t->r[k].i);
    free(t->r);
    t->r = NULL;
    t->n = 0;
}

// ---- a configuration ----

typedef struct config_of_run_t {
    const char *name, *isa; // isa NULL: the best
    int threads, device;    // device: the mirror
    uint64_t noise;         // results are off by units of the last place; 0: as they are
} setting_t;

typedef struct variable_t {
    tensor_t *t;
    int depth, kept; // the scope that owns it
    int step;
} variable_t;
enum { MAX_HOOKS = 16 };
typedef struct run_state_t {
    const setting_t *setting;
    variable_t x[MAX_VALUES];
    tensor_scope_t scope[MAX_DEPTH + 1];
    int depth; // scopes that the program opened
    int64_t hooks[MAX_HOOKS];
    int nhooks, nmodules;
    nn_module_t *module[MAX_STEPS];
    trace_t *trace;
} state_t;

static long n_hooks; // calls of the hooks below
TEST_FN tensor_t *hook_twice(tensor_t *g, void *user) {
    (void)user;
    n_hooks++;
    return tensor_mul_scalar(g, 2);
}
TEST_FN tensor_t *hook_seen(tensor_t *g, void *user) {
    (void)g, (void)user;
    n_hooks++;
    return NULL;
}
TEST_FN void hook_done(tensor_t *x, void *user) {
    (void)x, (void)user;
    n_hooks++;
}
TEST_FN void *pack_value(tensor_t *x, void *user) {
    (void)user;
    return USE(tensor_keep)(tensor_clone(x));
}
TEST_FN tensor_t *unpack_value(void *packed, void *user) {
    (void)user;
    return (tensor_t *)packed;
}
TEST_FN void drop_value(void *packed, void *user) {
    (void)user;
    USE(tensor_free)((tensor_t *)packed);
}
static const tensor_saved_hooks_t packing = {pack_value, unpack_value, drop_value, NULL};

// x * x * y and x + y; the second has a gradient only to x
TEST_FN tensor_t *custom_forward(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    (void)n;
    USE(tensor_save_for_backward)(c, 0, in[0]);
    USE(tensor_save_for_backward)(c, 1, in[1]);
    USE(tensor_set_output)(c, 1, tensor_add(in[0], in[1]));
    USE(tensor_function_user)(c);
    return tensor_mul(tensor_mul(in[0], in[0]), in[1]);
}
TEST_FN int custom_backward(tensor_function_ctx_t *c, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *x = USE(tensor_saved)(c, 0), *y = USE(tensor_saved)(c, 1), *h = USE(tensor_grad_output)(c, 1);
    (void)n;
    if (USE(tensor_needs_input_grad)(c, 0))
        grads[0] = tensor_add(tensor_mul(tensor_mul_scalar(tensor_mul(x, y), 2), g), h);
    if (tensor_needs_input_grad(c, 1)) grads[1] = tensor_add(tensor_mul(tensor_mul(x, x), g), h);
    return 0;
}
// The same, whose second result has no gradient.
TEST_FN tensor_t *half_forward(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    USE(tensor_mark_non_differentiable)(c, 1);
    return custom_forward(c, in, n);
}
// x * x, of one input and one result
TEST_FN tensor_t *square_forward(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(c, 0, in[0]);
    return tensor_mul(in[0], in[0]);
}
TEST_FN int square_backward(tensor_function_ctx_t *c, tensor_t *g, tensor_t **grads, int n) {
    (void)n;
    grads[0] = tensor_mul(tensor_mul_scalar(tensor_saved(c, 0), 2), g);
    return 0;
}
// x *= -2
TEST_FN tensor_t *twice_forward(tensor_function_ctx_t *c, tensor_t *const *in, int n) {
    (void)n;
    if (USE(tensor_mark_dirty)(c, 0)) return in[0];
    return tensor_mul_scalar_(in[0], -2);
}
TEST_FN int twice_backward(tensor_function_ctx_t *c, tensor_t *g, tensor_t **grads, int n) {
    (void)c, (void)n;
    grads[0] = tensor_mul_scalar(g, -2);
    return 0;
}
static const tensor_function_t custom = {"custom", custom_forward, custom_backward, NULL},
                               half = {"half", half_forward, custom_backward, NULL},
                               square = {"square of the user", square_forward, square_backward, NULL},
                               twice = {"twice", twice_forward, twice_backward, NULL};

// ---- modules and optimizers ----

static const int64_t pads[2] = {1, 2};
TEST_FN tensor_t *two_indices(void) {
    static const int64_t list[2] = {3, 1};
    int64_t n = 2;
    return tensor_from_n(list, TENSOR_I64, &n, 1);
}
TEST_FN tensor_t *two_lengths(void) {
    return tensor_to(two_indices(), TENSOR_CPU);
}
TEST_FN tensor_t *one_index(int64_t k) {
    int64_t n = 1;
    return tensor_from_n(&k, TENSOR_I64, &n, 1);
}
TEST_FN tensor_t *two_labels(void) {
    static const int64_t list[4] = {3, 1, -1, 0}, dims[2] = {1, 4};
    return tensor_from_n(list, TENSOR_I64, dims, 2);
}
// 1 where x > 0, else -1
TEST_FN tensor_t *signs(tensor_t *x) {
    tensor_t *above = tensor_to(tensor_gt_scalar(x, 0), (int)tensor_dtype(x));
    return tensor_sub_scalar(tensor_mul_scalar(above, 2), 1);
}
TEST_FN tensor_t *masked_as(tensor_t *x) {
    return tensor_to(tensor_to(USE(nn_generate_square_subsequent_mask)(3), (int)tensor_dtype(x)), (int)tensor_device(x));
}
TEST_FN tensor_t *ends(tensor_state_t s) {
    return tensor_cat(0, tensor_flatten(s.y, 0, -1), tensor_flatten(s.h, 0, -1), tensor_flatten(s.c, 0, -1));
}
TEST_FN tensor_t *unpooled(nn_module_t *m, tensor_pair_t p) {
    return USE(nn_max_unpool_forward)(m, p.values, p.indices, NULL);
}
#define MODULE(name, dims, make, forward, python, python_forward)                                            \
    static nn_module_t *make_##name(void) {                                                                  \
        return make;                                                                                         \
    }                                                                                                        \
    static tensor_t *forward_##name(nn_module_t *m, tensor_t *x) {                                           \
        return forward;                                                                                      \
    }
#define OPTIMIZER(name, make, python)                                                                        \
    static nn_optimizer_t *optimizer_##name(tensor_t *x) {                                                   \
        return make;                                                                                         \
    }
#include "modules.def"
static const struct {
    const char *made, *called, *dims;
    nn_module_t *(*make)(void);
    tensor_t *(*forward)(nn_module_t *m, tensor_t *x);
} modules[] = {
#define MODULE(name, dims, make, forward, python, python_forward)                                            \
    {"nn_" #name "(" #make, #forward, dims, make_##name, forward_##name},
#include "modules.def"
};
static const struct {
    const char *made;
    nn_optimizer_t *(*make)(tensor_t *x);
} optimizers[] = {
#define OPTIMIZER(name, make, python) {"nn_" #name "(", optimizer_##name},
#include "modules.def"
};
// Parameters and buffers by their names: the same numbers in PyTorch.
TEST_FN void fill_module(nn_module_t *m) {
    nn_named_list_t l = USE(nn_state)(m);
    int64_t k, j;
    for (k = 0; k < l.count; k++) {
        tensor_t *t = l.item[k].tensor;
        tensor_shape_t shape = tensor_shape(t);
        const char *name = l.item[k].name;
        int64_t n = tensor_numel(t), seed = 0;
        double *v = (double *)malloc(((size_t)n + 1) * sizeof *v),
               from = strstr(name, "running_var") ? 0.5 : -0.45;
        tensor_scope_t s = tensor_scope_begin_no_grad();
        for (j = 0; name[j]; j++)
            seed += name[j] * (j + 1);
        for (j = 0; j < n; j++)
            v[j] = from + (double)((seed + 37 * j) % 101) / 128;
        if (is_real((int)tensor_dtype(t)))
            tensor_copy_(
                t, tensor_to(tensor_from_n(v, TENSOR_F64, shape.dims, shape.ndim), (int)tensor_device(t)));
        tensor_scope_end(s);
        free(v);
    }
}

#include "objects.h"

// ---- reading ----

static const int sizes[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
TEST_FN double half_at(unsigned h) {
    unsigned e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(1024 + m, (int)e - 25)
                       : ldexp(m, -24);
    return h >> 15 ? -x : x;
}
TEST_FN double bhalf_at(unsigned h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}
TEST_FN double real_at(const void *p, int dtype) {
    if (dtype == TENSOR_F64) return *(const double *)p;
    if (dtype == TENSOR_F32) return (double)*(const float *)p;
    return dtype == TENSOR_F16 ? half_at(*(const uint16_t *)p) : bhalf_at(*(const uint16_t *)p);
}
TEST_FN int64_t whole_at(const void *p, int dtype) {
    switch (dtype) {
    case TENSOR_I32: return *(const int32_t *)p;
    case TENSOR_I64: return *(const int64_t *)p;
    case TENSOR_I16: return *(const int16_t *)p;
    case TENSOR_I8: return *(const int8_t *)p;
    default: return *(const uint8_t *)p;
    }
}
// Where element k (row-major) lies, in elements.
TEST_FN int64_t place_of(const tensor_t *t, int64_t k) {
    int64_t at = t->offset;
    int d;
    for (d = t->ndim - 1; d >= 0; d--) {
        at += k % t->dims[d] * t->strides[d];
        k /= t->dims[d];
    }
    return at;
}
TEST_FN void note(state_t *s, char kind, int var, int step, tensor_t *x) {
    trace_t *t = s->trace;
    record_t *r;
    tensor_scope_t scope;
    tensor_t *here;
    int64_t k;
    int d;
    if (t->n == MAX_RECORDS) return;
    r = &t->r[t->n++];
    memset(r, 0, sizeof *r);
    r->kind = kind, r->var = var, r->step = step, r->there = x != NULL;
    if (!x) return;
    r->dtype = (int)USE(tensor_dtype)(x), r->nd = USE(tensor_ndim)(x), r->n = USE(tensor_numel)(x);
    r->grad = USE(tensor_requires_grad)(x), r->leaf = USE(tensor_is_leaf)(x);
    r->offset = USE(tensor_storage_offset)(x);
    r->more =
        USE(tensor_is_inference)(x) + 2 * USE(tensor_is_channels_last)(x) + 4 * USE(tensor_is_poison)(x);
    r->more += 8 * (int)USE(tensor_dtype_size)((tensor_dtype_t)r->dtype);
    r->made_by = USE(tensor_grad_fn_name)(x);
    for (d = 0; d < r->nd; d++) {
        r->dims[d] = USE(tensor_size)(x, d);
        r->strides[d] = USE(tensor_stride)(x, d);
    }
    r->alias = -1;
    for (k = 0; k < MAX_VALUES && r->alias < 0; k++)
        if (s->x[k].t && s->x[k].t->storage == x->storage) r->alias = (int)k;
    scope = USE(tensor_scope_begin_no_grad)();
    here = s->setting->device ? USE(tensor_to)(x, TENSOR_CPU) : x;
    if (here->state != TENSOR__LIVE) {
        tensor_scope_end(scope);
        return;
    }
    if (is_real(r->dtype))
        r->v = (double *)malloc(((size_t)r->n + 1) * sizeof *r->v);
    else
        r->i = (int64_t *)malloc(((size_t)r->n + 1) * sizeof *r->i);
    for (k = 0; k < r->n; k++) {
        const char *p = (const char *)here->storage->data + place_of(here, k) * sizes[r->dtype];
        if (r->v)
            r->v[k] = real_at(p, r->dtype);
        else
            r->i[k] = whole_at(p, r->dtype);
    }
    USE(tensor_scope_end)(scope);
}

// ---- noise: what rounding may change, changed ----

// floor: of a size at least, for gradients, which may cancel; 2: to 0 even, where a step hangs on their sign.
enum { NOISE_UP = 4, NOISE_DOWN = 5 };
TEST_FN void disturb(tensor_t *x, uint64_t noise, int place, double floor_) {
    uint64_t seed = noise * 7919u + (uint64_t)place;
    int64_t k;
    double most = floor_, small;
    if (x->state != TENSOR__LIVE || !is_real(x->dtype) || !x->storage->data) return;
    for (k = 0; k < x->numel; k++) {
        double v = fabs(real_at((char *)x->storage->data + place_of(x, k) * sizes[x->dtype], x->dtype));
        if (v - v == 0 && v > most) most = v;
    }
    // a value as small as the rounding errors of the others may be 0 as well
    small = floor_ > 0 ? 0 : most * (x->dtype == TENSOR_F64 ? 0x1p-52 : x->dtype == TENSOR_F32 ? 0x1p-23 : 0x1p-7);
    for (k = 0; k < x->numel; k++) {
        char *p = (char *)x->storage->data + place_of(x, k) * sizes[x->dtype];
        double u = (double)(mixed(seed + (uint64_t)k) >> 11) * 0x1p-52 - 1, v = real_at(p, x->dtype);
        if ((v == 0 && floor_ < 2) || v - v != 0) continue;
        if (noise >= NOISE_UP) u = noise == NOISE_UP ? fabs(u) : -fabs(u);
        if (fabs(v) < small && u < 0) {
            memset(p, 0, (size_t)sizes[x->dtype]);
            continue;
        }
        if (x->dtype == TENSOR_F64) *(double *)p = v + u * (fabs(v) + most / 8) * 0x1p-50;
        if (x->dtype == TENSOR_F32) *(float *)p = (float)(v + u * (fabs(v) + most / 8) * 0x1p-21);
        if (x->dtype >= TENSOR_F16 && (*(uint16_t *)p & 0x7F) != 0 && (*(uint16_t *)p & 0x7F) != 0x7F)
            *(uint16_t *)p = (uint16_t)(*(uint16_t *)p + (u < -0.3 ? -1 : u > 0.3));
    }
}
// Whether each element is one of the inputs', or 0 or 1: nothing was rounded.
TEST_FN int is_exact(const state_t *s, const step_t *step, const tensor_t *y) {
    int64_t k, j;
    int i;
    if (!is_real(y->dtype)) return 1;
    if (y->numel > 512) return 0;
    for (k = 0; k < y->numel; k++) {
        double v = real_at((char *)y->storage->data + place_of(y, k) * sizes[y->dtype], y->dtype);
        int there = v == 0 || v == 1 || v != v;
        for (i = 0; i < step->nin && !there; i++) {
            const tensor_t *x = step->in[i] >= 0 ? s->x[step->in[i]].t : NULL;
            if (!x || x->dtype != y->dtype || x->numel > 512) continue;
            for (j = 0; j < x->numel && !there; j++)
                there = fabs(real_at((char *)x->storage->data + place_of(x, j) * sizes[x->dtype],
                                     x->dtype)) == fabs(v);
        }
        if (!there) return 0;
    }
    return 1;
}

// ---- statements ----

// The gradient that backward begins with: few bits, some negative.
TEST_FN tensor_t *weights_of(tensor_t *y) {
    tensor_shape_t shape = USE(tensor_shape)(y);
    int64_t n = tensor_numel(y), k;
    double *v = (double *)malloc(((size_t)n + 1) * sizeof *v);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *w;
    for (k = 0; k < n; k++)
        v[k] = (double)(k * 5 % 13) / 8 - 0.5;
    w = tensor_from_n(v, TENSOR_F64, shape.dims, shape.ndim);
    free(v);
    w = tensor_to(tensor_to(w, tensor_dtype(y)), (int)USE(tensor_device)(y));
    return USE(tensor_scope_return)(scope, w);
}
TEST_FN tensor_t *make_leaf(const state_t *s, const step_t *step) {
    int64_t n = leaf_numel(step);
    double *v = (double *)malloc(((size_t)n + 1) * sizeof *v);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *x;
    leaf_elements(step, v);
    x = tensor_to(tensor_from_n(v, TENSOR_F64, step->i + AT_DIMS, leaf_ndim(step)), (int)step->i[AT_DTYPE]);
    free(v);
    if (step->i[AT_LAYOUT]) x = arrange(x, (char)step->i[AT_LAYOUT]);
    if (s->setting->device) x = tensor_to(x, TENSOR_CUDA);
    x = USE(tensor_scope_return)(scope, x);
    if (step->i[AT_GRAD] && tensor_grad_enabled()) USE(tensor_requires_grad_)(x, 1);
    return x;
}
// An op as a function of its inputs that are floats (for checkpoint, vjp ...).
typedef struct closure_t {
    int what;
    arguments_t a;
    int at[MAX_INPUTS], n;
} closure_t;
TEST_FN tensor_t *call_closure(tensor_t *const *in, int n, void *user) {
    closure_t *c = (closure_t *)user;
    arguments_t a = c->a;
    int k;
    for (k = 0; k < n; k++)
        a.in[c->at[k]] = in[k];
    ops[c->what].call(&a);
    return a.nout ? a.out[0] : NULL; // unbind of no places
}
static closure_t closures[MAX_STEPS]; // checkpoints call them until backward
static int nclosures;

// -> how many results, -1: there is nothing to differentiate
TEST_FN int call_via(const step_t *step, const arguments_t *a, tensor_t **out) {
    closure_t *c = &closures[nclosures++ % MAX_STEPS];
    tensor_t *in[MAX_INPUTS], *v[MAX_INPUTS] = {NULL}, *y = NULL;
    int k;
    c->what = step->what, c->a = *a, c->n = 0;
    for (k = 0; k < a->nin; k++)
        if (a->in[k] && is_real((int)tensor_dtype(a->in[k]))) c->at[c->n] = k, in[c->n++] = a->in[k];
    if (!c->n) return -1;
    for (k = 0; k < c->n; k++)
        v[k] = weights_of(in[k]);
    out[0] = out[1] = NULL;
    switch (step->via) {
    case CHECKPOINTED: out[0] = USE(tensor_checkpoint)(call_closure, c, in, c->n); return 1;
    case VJP:
        y = call_closure(in, c->n, c);
        if (!y) return -1;
        if (tensor_is_poison(y)) return out[0] = y, 1;
        out[0] = USE(tensor_vjp)(call_closure, c, in, c->n, weights_of(y), v, 0);
        out[1] = v[0];
        return 2;
    case JVP: out[0] = USE(tensor_jvp)(call_closure, c, in, c->n, v, &out[1], 0); return 2;
    case JACOBIAN:
        USE(tensor_jacobian)(call_closure, c, in, c->n, v, 0);
        out[0] = v[0];
        return 1;
    case HESSIAN: {
        tensor_t *h[MAX_INPUTS * MAX_INPUTS] = {NULL};
        USE(tensor_hessian)(call_closure, c, in, c->n, h, 0);
        out[0] = h[0];
        return 1;
    }
    default: {
        tensor_t *w[MAX_INPUTS] = {NULL};
        if (step->via == HVP)
            out[0] = USE(tensor_hvp)(call_closure, c, in, c->n, v, w, 0);
        else
            out[0] = USE(tensor_vhp)(call_closure, c, in, c->n, v, w, 0);
        out[1] = w[0];
        return 2;
    }
    }
}

// What is new is made row-major: PyTorch's side does the same.
TEST_FN tensor_t *dense(const state_t *s, const step_t *step, tensor_t *x) {
    const char *name = name_of(step);
    int k;
    if (!x || x->state != TENSOR__LIVE || USE(tensor_is_contiguous)(x)) return x;
    if (!strcmp(name, "channels_last") || !strcmp(name, "empty_strided") || !strcmp(name, "as_strided"))
        return x;
    for (k = 0; k < MAX_VALUES; k++)
        if (s->x[k].t && s->x[k].t->storage == x->storage) return x;
    return tensor_contiguous(x);
}

// Whether another value that outlives the scope is the same tensor (what changed it in place gives it).
TEST_FN int stays(const state_t *s, const variable_t *x) {
    int k;
    for (k = 0; k < MAX_VALUES; k++)
        if (s->x[k].t == x->t && s->x[k].depth <= s->depth) return 1;
    return 0;
}
TEST_FN void end_scope(state_t *s, int returned) {
    int k;
    s->depth--;
    for (k = 0; k < MAX_VALUES; k++) {
        variable_t *x = &s->x[k];
        if (x->t && x->depth > s->depth && (x->kept || k == returned)) x->depth = s->depth;
    }
    for (k = 0; k < MAX_VALUES; k++) {
        variable_t *x = &s->x[k];
        if (!x->t || x->depth <= s->depth) continue;
        // a leaf and a gradient with a graph hold each other
        if (tensor_is_leaf(x->t) && tensor_grad(x->t) && !stays(s, x)) tensor_set_grad(x->t, NULL);
        x->t = NULL;
    }
}
// -> whether the statement could be run: all that it uses is there
TEST_FN int execute(state_t *s, const step_t *step, int number) {
    trace_t *t = s->trace;
    tensor_t *in[MAX_INPUTS] = {NULL}, *out[MAX_OUT] = {NULL};
    int k, nout = 0, changes = 0;
    static arguments_t a;
    for (k = 0; k < step->nin; k++) {
        if (step->in[k] < 0) continue;
        in[k] = s->x[step->in[k]].t;
        if (!in[k]) return 0;
    }
    if (step->what < NOPS) {
        const char *name = name_of(step);
        int shared = 0, r;
        memset(&a, 0, sizeof a);
        memcpy(a.in, in, sizeof in);
        memcpy(a.i, step->i, sizeof step->i);
        memcpy(a.f, step->f, sizeof step->f);
        snprintf(a.s, sizeof a.s, "%s", step->s);
        a.nin = step->nin, a.ni = step->ni, a.nf = step->nf;
        changes = name[strlen(name) - 1] == '_';
        changes_itself = 1;
        if (step->via) {
            nout = call_via(step, &a, out);
            if (nout < 0) return 0;
        } else {
            // the steps of a net may magnify what is lost in each
            if (s->setting->noise && (!strcmp(name, "rnn") || !strcmp(name, "gru") || !strcmp(name, "lstm"))) {
                a.in[0] = tensor_clone(a.in[0]);
                if (tensor_ok()) disturb(a.in[0], s->setting->noise, number, 0);
            }
            ops[step->what].call(&a);
            nout = a.nout < MAX_RESULTS ? a.nout : MAX_RESULTS;
            memcpy(out, a.out, sizeof out);
            if (strncmp(name, "empty", 5) == 0 && USE(tensor_ok)()) tensor_zero_(out[0]);
        }
        for (r = 0; r < nout && s->setting->noise && tensor_ok(); r++) {
            if (!out[r] || out[r]->state != TENSOR__LIVE) continue;
            for (shared = 0, k = 0; k < MAX_VALUES && !changes; k++)
                shared |= s->x[k].t && s->x[k].t->storage == out[r]->storage;
            if (!shared && !is_exact(s, step, out[r]))
                disturb(out[r], s->setting->noise, number * 31 + r, 0);
        }
    } else {
        int was;
        switch (step->what - NOPS) {
        case DO_leaf: out[nout++] = make_leaf(s, step); break;
        case DO_begin:
            if (s->depth == MAX_DEPTH) return 0;
            switch (step->i[0]) {
            case PLAIN: s->scope[++s->depth] = USE(tensor_scope_begin)(); break;
            case NO_GRAD: s->scope[++s->depth] = USE(tensor_scope_begin_no_grad)(); break;
            case WITH_GRAD: s->scope[++s->depth] = USE(tensor_scope_begin_grad)(); break;
            case INFERENCE: s->scope[++s->depth] = USE(tensor_scope_begin_inference)(); break;
            case CAST_F16: s->scope[++s->depth] = USE(tensor_scope_begin_autocast)(TENSOR_F16); break;
            default: s->scope[++s->depth] = tensor_scope_begin_autocast(TENSOR_BF16); break;
            }
            break;
        case DO_end:
            if (!s->depth) return 0;
            was = s->depth;
            end_scope(s, step->nin ? step->in[0] : -1);
            if (step->nin)
                tensor_scope_return(s->scope[was], in[0]);
            else
                tensor_scope_end(s->scope[was]);
            break;
        case DO_reset:
            if (!s->depth) return 0;
            was = s->depth;
            end_scope(s, -1);
            s->depth = was;
            USE(tensor_scope_reset)(s->scope[was]);
            break;
        case DO_mode:
            if (!s->depth) return 0;
            USE(tensor_set_grad_enabled)((int)step->i[0]);
            break;
        case DO_pack:
            if (!s->depth) return 0;
            USE(tensor_set_saved_tensors_hooks)(&packing);
            break;
        case DO_hook:
            if (s->nhooks == MAX_HOOKS) return 0;
            s->hooks[s->nhooks++] =
                USE(tensor_register_hook)(in[0], step->i[0] ? hook_twice : hook_seen, NULL);
            break;
        case DO_post_hook:
            if (s->nhooks == MAX_HOOKS) return 0;
            s->hooks[s->nhooks++] = USE(tensor_register_post_accumulate_grad_hook)(in[0], hook_done, NULL);
            break;
        case DO_unhook:
            if (step->i[0] >= s->nhooks) return 0;
            USE(tensor_remove_hook)(s->hooks[step->i[0]]);
            break;
        case DO_retain: USE(tensor_retain_grad)(in[0]); break;
        case DO_detach_: USE(tensor_detach_)(in[0]); break;
        case DO_require: USE(tensor_requires_grad_)(in[0], (int)step->i[0]); break;
        case DO_grad: {
            tensor_t *w = weights_of(in[0]);
            USE(tensor_autograd_grad)(&in[0], 1, &w, in + 1, step->nin - 1, out, (int)step->i[0]);
            nout = step->nin - 1 < MAX_RESULTS ? step->nin - 1 : MAX_RESULTS;
            for (k = 0; k < nout; k++) // they may be views of each other, with any strides
                if (out[k] && !tensor_is_poison(out[k])) {
                    out[k] = tensor_clone(out[k]);
                    if (s->setting->noise)
                        disturb(out[k], s->setting->noise, number * 31 + k, 1);
                }
            break;
        }
        case DO_backward:
            if (step->ni > 1 && step->i[1])
                USE(tensor_backward)(in[0]);
            else
                USE(tensor_backward_with)(in[0], weights_of(in[0]), (int)step->i[0]);
            break;
        case DO_module: {
            nn_module_t *m, *kept, *other;
            tensor_t *weight[1] = {NULL};
            use_text(modules[step->i[0]].made), use_text(modules[step->i[0]].called);
            m = s->module[s->nmodules++] = modules[step->i[0]].make();
            fill_module(m);
            if (tensor_dtype(in[0]) != TENSOR_F32 && is_real((int)tensor_dtype(in[0])))
                USE(nn_to)(m, (int)tensor_dtype(in[0]));
            if (step->i[2] && tensor_ok()) {
                kept = s->module[s->nmodules++] = modules[step->i[0]].make();
                other = s->module[s->nmodules++] = modules[step->i[0]].make();
                nn_to(kept, (int)module_dtype(m)), nn_to(other, (int)module_dtype(m));
                m = go_by(s, m, kept, other, (int)step->i[2]);
            }
            step->i[1] ? USE(nn_train)(m) : USE(nn_eval)(m);
            use("nn_forward");
            out[nout++] = modules[step->i[0]].forward(m, in[0]);
            if (USE(nn_parameters)(m, weight, 1) > 0 && weight[0] && tensor_ok()) out[nout++] = weight[0];
            if (s->setting->noise && tensor_ok() && out[0]->storage != in[0]->storage)
                disturb(out[0], s->setting->noise, number * 31, 0);
            break;
        }
        case DO_optimize: {
            nn_optimizer_t *o;
            use_text(optimizers[step->i[0]].made);
            if (s->setting->noise && tensor_grad(in[0]))
                disturb(tensor_grad(in[0]), s->setting->noise, number * 31, 2);
            o = optimizers[step->i[0]].make(in[0]);
            USE(nn_step)(o);
            USE(nn_set_lr)(o, USE(nn_get_lr)(o) * 2);
            ways_of_step[tensor_ok() ? step->i[1] : 0](o, in[0]);
            USE(nn_optimizer_free)(o);
            break;
        }
        case DO_carry:
            if (!way_is_open(in[0], (int)step->i[0])) return 0;
            out[nout++] = go_round(in[0], (int)step->i[0]);
            break;
        case DO_clip_grads:
            for (k = 0; k < step->nin; k++) {
                int j;
                if (!tensor_grad(in[k]) || tensor_is_poison(in[k])) return 0;
                for (j = 0; j < k; j++)
                    if (in[j] == in[k] || tensor_grad(in[j])->storage == tensor_grad(in[k])->storage) return 0;
                if (s->setting->noise) disturb(tensor_grad(in[k]), s->setting->noise, number * 31 + k, 2);
            }
            out[0] = clip_gradients(in, step->nin, (int)step->i[0], step->f[0]);
            nout = out[0] != NULL;
            break;
        case DO_init:
            fill_first(in[0], (int)step->i[0], step->f[0]);
            if (s->setting->noise && step->i[0] >= INIT_UNIFORM) disturb(in[0], s->setting->noise, number * 31, 0);
            break;
        case DO_look: look_at(in[0], (int)step->i[0]); break;
        case DO_clear: USE(tensor_set_grad)(in[0], NULL); break;
        case DO_set_grad: tensor_set_grad(in[0], in[1]); break;
        case DO_keep: USE(tensor_keep)(in[0]); break;
        case DO_set:
            USE(tensor_set)(&out[0], in[0]);
            tensor_set(&out[0], in[1]);
            nout = 1;
            break;
        case DO_custom:
            nout = step->i[0] == CUSTOM_ONE ? 1 : 2;
            if (nout == 1)
                out[0] = USE(tensor_apply)(&square, NULL, in, 1);
            else
                USE(tensor_apply_n)(step->i[0] == CUSTOM_HALF ? &half : &custom, NULL, in, 2, out, 2);
            break;
        case DO_custom_: out[nout++] = tensor_apply(&twice, NULL, in, 1); break;
        default:
            if (!tensor_numel(in[0])) return 0;
            if (s->setting->device) { // no address of the host: the same by a view of the one element
                tensor_scope_t scope = tensor_scope_begin_no_grad();
                tensor_fill_(tensor_as_strided(in[0], NULL, NULL, 0, tensor_storage_offset(in[0])),
                             step->f[0]);
                tensor_scope_end(scope);
            } else {
                tensor_scope_t scope = tensor_scope_begin_no_grad();
                void *p = USE(tensor_data_mut)(in[0]);
                if (p && tensor_dtype(in[0]) == TENSOR_F64) *(double *)p = step->f[0];
                if (p && tensor_dtype(in[0]) == TENSOR_F32) *(float *)p = (float)step->f[0];
                tensor_scope_end(scope);
            }
            break;
        }
    }
    t->failed[number] = USE(tensor_error_code)();
    if (t->failed[number]) {
        snprintf(t->text[number], sizeof t->text[number], "%s", USE(tensor_error_text)());
        USE(tensor_clear_error)();
        t->made[number] = 0;
        if (is(step, DO_set) && out[0]) tensor_free(out[0]);
        return 1;
    }
    for (k = 0; k < nout && (step->what < NOPS || is(step, DO_module)); k++)
        out[k] = dense(s, step, out[k]);
    if (is(step, DO_keep)) s->x[step->in[0]].kept++;
    t->made[number] = nout;
    for (k = 0; k < nout && k < step->nout; k++) {
        variable_t *x = &s->x[step->out + k];
        note(s, 'v', step->out + k, number, out[k]);
        x->t = out[k];
        x->depth = s->depth;
        x->kept = is(step, DO_set);
        x->step = number;
    }
    return 1;
}

// ---- a whole program ----

TEST_FN void state_begin(state_t *s, const setting_t *setting, trace_t *t) {
    memset(s, 0, sizeof *s);
    s->setting = setting;
    s->trace = t;
    memset(memory, 0, sizeof memory);
    USE(tensor_set_isa)(setting->isa);
    USE(tensor_set_num_threads)(setting->threads);
    USE(tensor_set_default_device)(setting->device ? TENSOR_CUDA : TENSOR_CPU);
    USE(tensor_manual_seed)(7);
    nclosures = 0;
    s->scope[0] = USE(tensor_scope_begin)();
}
TEST_FN void state_end(state_t *s) {
    trace_t *t = s->trace;
    int k;
    for (k = 0; k < MAX_VALUES; k++)
        if (s->x[k].t) t->alive[k] = 1, note(s, 'f', k, -1, s->x[k].t);
    for (k = 0; k < MAX_VALUES; k++) {
        tensor_t *g = s->x[k].t && s->x[k].t->state == TENSOR__LIVE ? USE(tensor_grad)(s->x[k].t) : NULL;
        if (g) note(s, 'g', k, -1, g);
    }
    for (k = 0; k < MAX_VALUES; k++) {
        if (!s->x[k].t) continue;
        if (tensor_is_leaf(s->x[k].t) && tensor_grad(s->x[k].t)) tensor_set_grad(s->x[k].t, NULL);
    }
    for (k = 0; k < MAX_VALUES; k++)
        while (s->x[k].t && s->x[k].kept-- > 0)
            USE(tensor_free)(s->x[k].t);
    tensor_scope_end(s->scope[0]);
    for (k = 0; k < s->nmodules; k++)
        USE(nn_module_zero_grad)(s->module[k]), USE(nn_free)(s->module[k]);
    tensor_set_default_device(TENSOR_CPU);
    USE(tensor_set_parallel_for)(NULL, NULL, 0);
    remove(a_path());
    tensor_clear_error();
}
TEST_FN void run_program(const program_t *p, const setting_t *setting, trace_t *t) {
    static state_t s;
    tensor_memory_stats_t before = USE(tensor_memory_stats)(), after;
    int k;
    trace_begin(t);
    state_begin(&s, setting, t);
    for (k = 0; k < p->n && !t->invalid; k++) {
        t->steps = k + 1;
        if (!execute(&s, &p->step[k], k)) t->invalid = 1;
    }
    state_end(&s);
    after = tensor_memory_stats();
    t->leaked = after.live_tensors != before.live_tensors || after.live_nodes != before.live_nodes;
}

#endif

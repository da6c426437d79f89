// ops.c - every row of the op tables against naive references: values, dtypes, layouts, instruction sets,
// threads, gradients, errors
//
// Each row needs its case here. Pointwise rows: ref_<name> (double, from libm) and, when integers stay
// integers, int_<name>; the rest: a list other_<name>. A row without them does not compile (see
// pointwise_cases, other_cases).
#define TENSOR_IMPLEMENTATION
#include "mirror.h"
#include "promotion.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
enum { MAXD = TENSOR_MAX_DIMS, MAX_IN = 3, ALL = 99 };

static long n_device, n_ops, n_values, n_bits, n_threads, n_grad, n_gradgrad, n_errors, n_dtypes,
    n_gradvalues,
    n_lenient, n_skipped,
    n_skipped_half, n_skipped_twins, n_skipped_dtypes;

// ---- plain arrays ----

typedef struct nd_t {
    int nd, dtype;
    int64_t d[MAXD], n;
    double *v;
    int64_t *i;
} nd_t;

static void nd_make(nd_t *a, int nd, const int64_t *d) {
    int k;
    a->nd = nd;
    a->n = 1;
    for (k = 0; k < nd; k++) a->n *= a->d[k] = d[k];
    a->v = (double *)calloc((size_t)a->n + 1, sizeof *a->v);
    a->i = (int64_t *)calloc((size_t)a->n + 1, sizeof *a->i);
}
static void nd_free(nd_t *a) { free(a->v), free(a->i), a->v = NULL, a->i = NULL; }
static int is_float(int dtype) {
    return dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
}
static const char *dname(int dtype) { return tensor_dtype_name((tensor_dtype_t)dtype); }

// Own decoders: exact, and nothing of the library takes part.
static double half_value(unsigned h) {
    unsigned e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(1024 + m, (int)e - 25)
                       : ldexp(m, -24);
    return h >> 15 ? -x : x;
}
static double bhalf_value(unsigned h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}
static void element(const void *p, int dtype, double *v, int64_t *i) {
    switch (dtype) {
    case TENSOR_F32: *v = (double)*(const float *)p; break;
    case TENSOR_F64: *v = *(const double *)p; break;
    case TENSOR_I32:
        *i = *(const int32_t *)p;
        *v = (double)*i;
        return;
    case TENSOR_I64:
        *i = *(const int64_t *)p;
        *v = (double)*i;
        return;
    case TENSOR_U8:
    case TENSOR_BOOL:
        *i = *(const uint8_t *)p;
        *v = (double)*i;
        return;
    case TENSOR_I8:
        *i = *(const int8_t *)p;
        *v = (double)*i;
        return;
    case TENSOR_I16:
        *i = *(const int16_t *)p;
        *v = (double)*i;
        return;
    case TENSOR_F16: *v = half_value(*(const uint16_t *)p); break;
    default: *v = bhalf_value(*(const uint16_t *)p); break;
    }
    *i = 0;
}
// Walks the strides itself.
static void nd_read(nd_t *a, const tensor_t *t) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    int64_t k;
    nd_make(a, t->ndim, t->dims);
    a->dtype = t->dtype;
    for (k = 0; k < a->n; k++) {
        int64_t rest = k, at = t->offset;
        int d;
        for (d = a->nd - 1; d >= 0; d--) {
            at += rest % a->d[d] * t->strides[d];
            rest /= a->d[d];
        }
        element((const char *)t->storage->data + at * size[t->dtype], t->dtype, &a->v[k], &a->i[k]);
    }
}
// Flat place in b of the flat place k in the broadcast shape of out.
static int64_t nd_at(const nd_t *out, const nd_t *b, int64_t k) {
    int64_t at = 0, step = 1;
    int d;
    for (d = 1; d <= out->nd; d++) {
        int64_t i = k % out->d[out->nd - d];
        k /= out->d[out->nd - d];
        if (d > b->nd) continue;
        if (b->d[b->nd - d] != 1) at += i * step;
        step *= b->d[b->nd - d];
    }
    return at;
}

// ---- inputs in every layout ----

enum { LC, LT, LS, LO, LN, LE, LAYOUTS }; // contiguous, transposed, strided slice, offset, narrowed, expanded
static const char layout_names[] = "CTSONE";
typedef enum { VALUES, STEPS, SIGNED, INDEX, EDGES } fill_t;

static uint64_t lcg_state = 1;
static double lcg(void) {
    lcg_state = lcg_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(lcg_state >> 11) * 1.1102230246251565e-16;
}
static void store(void *p, int dtype, double v) {
    switch (dtype) {
    case TENSOR_F32: *(float *)p = (float)v; break;
    case TENSOR_F64: *(double *)p = v; break;
    case TENSOR_I32: *(int32_t *)p = (int32_t)v; break;
    case TENSOR_I64: *(int64_t *)p = (int64_t)v; break;
    case TENSOR_U8: *(uint8_t *)p = (uint8_t)v; break;
    case TENSOR_I8: *(int8_t *)p = (int8_t)v; break;
    case TENSOR_I16: *(int16_t *)p = (int16_t)v; break;
    case TENSOR_BOOL: *(uint8_t *)p = (uint8_t)(v != 0); break;
    case TENSOR_F16: { // values of moderate size: round the mantissa to 11 bits
        int e;
        double m = frexp(v, &e), r = rint(ldexp(m, 11));
        int64_t q = (int64_t)fabs(r);
        if (q == 2048) q = 1024, e++;
        *(uint16_t *)p =
            (uint16_t)(v == 0 || e < -13 ? 0 : (unsigned)((e + 14) << 10 | (int)(q - 1024)) | (v < 0) << 15);
        break;
    }
    default: {
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, 4);
        *(uint16_t *)p = (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
    }
    }
}
static void release(void *data, void *user) { (void)user, free(data); }

// dims in the given layout over malloc'd memory of just that size (a sanitizer sees one element too far).
// bound: index values are below it.
static tensor_t *make(int dtype, int nd, const int64_t *dims, int layout, double lo, double hi, fill_t fill,
                      int64_t bound) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    int64_t p[MAXD], n = 1, k;
    int d, pn = nd;
    int64_t perm[MAXD];
    char *data;
    tensor_t *t;
    if (!nd && layout != LO) layout = LC;
    for (d = 0; d < nd; d++) p[d] = dims[d];
    if (layout == LT)
        for (d = 0; d < nd; d++) p[d] = dims[nd - 1 - d];
    if (layout == LS) p[nd - 1] = dims[nd - 1] * 2 + 1;
    if (layout == LN) p[nd - 1] = dims[nd - 1] + 3;
    if (layout == LE) p[0] = dims[0] ? 1 : 0;
    for (d = 0; d < nd; d++) n *= p[d];
    if (layout == LO) n += 3, pn = 1, p[0] = n;
    data = (char *)malloc((size_t)(n ? n : 1) * (size_t)size[dtype]);
    for (k = 0; k < n; k++) {
        double v = lo + (hi - lo) * lcg();
        if (fill == STEPS) v = floor(v * 2) / 2;
        if (!is_float(dtype)) {
            double low = fill == SIGNED ? 1 : -9;
            v = dtype == TENSOR_BOOL ? lcg() < 0.5
                : dtype == TENSOR_U8 ? floor(lcg() * 20)
                                     : floor(low + lcg() * (10 - low));
            if (fill == SIGNED && v == 0) v = 1;
            if (fill == STEPS && dtype != TENSOR_BOOL) v = floor(lcg() * 4);
            if (fill == INDEX) v = bound > 0 ? floor(lcg() * (double)bound) : 0;
        }
        store(data + k * size[dtype], dtype, v);
    }
    t = tensor_wrap_n(data, (tensor_dtype_t)dtype, p, pn, release, NULL);
    if (tensor_is_poison(t)) {
        free(data);
        return t;
    }
    switch (layout) {
    case LT:
        for (d = 0; d < nd; d++) perm[d] = nd - 1 - d;
        return tensor_permute_n(t, perm, nd);
    case LS: return tensor_slice(t, nd - 1, 1, dims[nd - 1] * 2 + 1, 2);
    case LO: return tensor_view_n(tensor_narrow(t, 0, 3, n - 3), dims, nd);
    case LN: return tensor_narrow(t, nd - 1, 2, dims[nd - 1]);
    case LE: return tensor_expand_n(t, dims, nd);
    default: return t;
    }
}
// The same values in a fresh contiguous tensor, without the library's own copy kernels.
static tensor_t *packed(const tensor_t *t) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    tensor_t *r = tensor_empty_n(t->dims, t->ndim, (tensor_dtype_t)t->dtype);
    int64_t k;
    for (k = 0; k < t->numel; k++) {
        int64_t rest = k, at = t->offset;
        int d;
        for (d = t->ndim - 1; d >= 0; d--) {
            at += rest % t->dims[d] * t->strides[d];
            rest /= t->dims[d];
        }
        memcpy((char *)r->storage->data + k * size[t->dtype],
               (const char *)t->storage->data + at * size[t->dtype], (size_t)size[t->dtype]);
    }
    return r;
}
static int same_bits(const tensor_t *a, const tensor_t *b) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    int d;
    if (a->state != TENSOR__LIVE || b->state != TENSOR__LIVE || a->ndim != b->ndim || a->dtype != b->dtype)
        return 0;
    for (d = 0; d < a->ndim; d++)
        if (a->dims[d] != b->dims[d]) return 0;
    if (!(a->flags & TENSOR__CONTIGUOUS)) a = packed(a);
    if (!(b->flags & TENSOR__CONTIGUOUS)) b = packed(b);
    return !a->numel || memcmp((char *)a->storage->data + a->offset * size[a->dtype],
                               (char *)b->storage->data + b->offset * size[b->dtype],
                               (size_t)a->numel * (size_t)size[a->dtype]) == 0;
}

// ---- one case ----

typedef struct shape_t {
    int nd;
    int64_t d[5];
} shape_t;
typedef struct config_t {
    shape_t in[MAX_IN];
} config_t;
typedef enum { SAME, BOOL, TRUTH, I64, SUMS, FLT, ONLY_FLOAT, NUMBERS } rule_t;
typedef struct op_t op_t;
struct op_t {
    const char *label;
    int nin;
    tensor_t *(*call)(tensor_t *const *in, int n, void *user);
    void (*ref)(const op_t *op, const nd_t *in, nd_t *out);
    const config_t *configs;
    int nconfigs;
    rule_t rule;
    int64_t p[6];
    int index;         // input k is an index (0 = none)
    int mask;          // input k - 1 is bool
    double atol, half; // factors of the absolute tolerance (of f16 and bf16), 0 = 1
    double lo, hi;     // 0, 0 = those of the row
    int flags;
    int (*special)(void); // instead of all that
    int id;
    double (*f)(const double *v); // pointwise
    int64_t (*g)(const int64_t *v);
    int kind;
};
// NO_BITS: sums whose order follows the strides in memory (for a given layout it does not depend on threads).
enum { NO_GRAD = 1, NO_GRADGRAD = 2, VIEW = 4, NO_BITS = 8, NO_SECOND = 16 };
#define P(k) (((const op_t *)user)->p[k])

static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "reference"};
static int isa_there[COUNT(isas)];

static int refuses(const op_t *op, int dtype);
static int result_dtype(const op_t *op, int dtype) {
    if (refuses(op, dtype)) return -1;
    if (dtype == TENSOR_BOOL && (op->id == TENSOR_OP_CLAMP || op->id == TENSOR_OP_SQUARE)) return TENSOR_I64;
    switch (op->rule) {
    case BOOL: return TENSOR_BOOL;
    case TRUTH: return dtype == TENSOR_U8 ? TENSOR_U8 : TENSOR_BOOL;    // as PyTorch's
    case I64: return TENSOR_I64;
    case SUMS: return is_float(dtype) ? dtype : TENSOR_I64;
    case FLT: return is_float(dtype) ? dtype : TENSOR_F32;
    case ONLY_FLOAT: return is_float(dtype) ? dtype : -1;
    case NUMBERS: return dtype == TENSOR_BOOL ? -1 : dtype;
    default: return dtype;
    }
}
static int64_t wrap_int(int64_t i, int dtype) {
    switch (dtype) {
    case TENSOR_I32: return (int32_t)(uint32_t)(uint64_t)i;
    case TENSOR_U8: return (uint8_t)(uint64_t)i;
    case TENSOR_I8: return (int8_t)(uint8_t)(uint64_t)i;
    case TENSOR_I16: return (int16_t)(uint16_t)(uint64_t)i;
    case TENSOR_BOOL: return i != 0;
    default: return i;
    }
}
static int value_good(double got, double want, int dtype, double atol) {
    static const double rt[] = {1e-5, 1e-12, 0, 0, 0, 0, 1.0e-3, 8e-3, 0, 0},
                        at[] = {1e-6, 1e-12, 0, 0, 0, 0, 3e-6, 1e-5, 0, 0};
    if (want != want) return got != got;
    if (got == want) return 1;
    return fabs(got - want) <= at[dtype] * (atol > 0 ? atol : 1) + rt[dtype] * fabs(want);
}
static int compare(const op_t *op, const tensor_t *y, const nd_t *want, int dtype, const char *what) {
    nd_t got;
    int64_t k;
    int d, good = 1;
    if (y->state != TENSOR__LIVE) {
        CHECK_MSG(0, "%s %s: %s", op->label, what, tensor_error_text());
        tensor_clear_error();
        return 0;
    }
    for (d = 0; d < want->nd; d++) good &= y->ndim == want->nd && y->dims[d] == want->d[d];
    if (!good || y->ndim != want->nd || y->dtype != dtype) {
        CHECK_MSG(0, "%s %s: result is %d-d %s, expected %d-d %s", op->label, what, y->ndim, dname(y->dtype),
                  want->nd, dname(dtype));
        return 0;
    }
    nd_read(&got, y);
    for (k = 0; k < got.n && good; k++) {
        if (is_float(dtype))
            good = value_good(got.v[k], want->v[k], dtype,
                              dtype >= TENSOR_F16 && op->half > 0 ? op->half : op->atol);
        else
            good = got.i[k] == want->i[k];
    }
    CHECK_MSG(good, "%s %s: element %lld is %.9g, expected %.9g", op->label, what, (long long)k - 1,
              is_float(dtype) ? got.v[k ? k - 1 : 0] : (double)got.i[k ? k - 1 : 0],
              is_float(dtype) ? want->v[k ? k - 1 : 0] : (double)want->i[k ? k - 1 : 0]);
    nd_free(&got);
    return good;
}

static int input_dtype(const op_t *op, int k, int dtype) {
    if (op->index && k == op->index) return dtype == TENSOR_I32 ? TENSOR_I32 : TENSOR_I64;
    if (op->mask && k == op->mask - 1) return TENSOR_BOOL;
    return dtype;
}
static tensor_t *input(const op_t *op, const config_t *c, int k, int dtype, int layout) {
    const tensor__row_t *row = &tensor__rows[op->id];
    double lo = op->lo < op->hi ? op->lo : row->lo, hi = op->lo < op->hi ? op->hi : row->hi;
    int divides =
        op->id == TENSOR_OP_FLOOR_DIVIDE || op->id == TENSOR_OP_FMOD || op->id == TENSOR_OP_REMAINDER;
    int own = input_dtype(op, k, dtype);
    fill_t fill = op->kind == TENSOR__CMP || op->kind == TENSOR__LOG ? STEPS : VALUES;
    tensor_t *t;
    if (op->index && k == op->index) fill = INDEX;
    if (k == 1 && (divides || op->id == TENSOR_OP_POW)) fill = SIGNED;
    if (!(lo < hi)) lo = -3, hi = 3;
    t = make(own, c->in[k].nd, c->in[k].d, layout, lo, hi, fill,
             fill == INDEX ? c->in[0].d[op->p[0] < 0 ? c->in[0].nd + op->p[0] : op->p[0]] : 0);
    return t;
}

static const char layouts_used[][MAX_IN] = {{LC, LC, LC}, {LT, LT, LT}, {LS, LS, LS},
                                            {LO, LO, LO}, {LN, LN, LN}, {LE, LE, LE},
                                            {LC, LT, LS}, {LS, LC, LE}, {LE, LO, LT}};

static void run_values(const op_t *op) {
    int c, l, dtype, isa, k;
    for (c = 0; c < op->nconfigs; c++)
        for (l = 0; l < COUNT(layouts_used); l++) {
            const config_t *config = &op->configs[c];
            int useful = l == 0;
            for (k = 0; k < op->nin; k++) useful |= config->in[k].nd > 0;
            if (op->nin == 1 && l > 5) continue;
            if (!useful) continue;
            for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *in[MAX_IN] = {0}, *flat[MAX_IN] = {0}, *y, *z;
                nd_t a[MAX_IN], want;
                char what[96];
                int out = result_dtype(op, dtype), n = 0;
                lcg_state = (uint64_t)(c * 100 + l * 10 + dtype + 1);
                n = sprintf(what, "config %d layout ", c);
                for (k = 0; k < op->nin; k++) {
                    in[k] = input(op, config, k, dtype, layouts_used[l][k]);
                    n += sprintf(what + n, "%c", layout_names[(int)layouts_used[l][k]]);
                }
                sprintf(what + n, " %s", dname(dtype));
                CHECK_OK();
                if (out < 0) { // refused dtype
                    y = op->call(in, op->nin, (void *)(uintptr_t)op);
                    CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_DTYPE &&
                                  strstr(tensor_error_text(), dname(dtype)),
                              "%s %s: expected a DTYPE error, got \"%s\"", op->label, what,
                              tensor_error_text());
                    tensor_clear_error();
                    n_errors++;
                    tensor_scope_end(s);
                    continue;
                }
                for (k = 0; k < op->nin; k++) nd_read(&a[k], in[k]);
                want.dtype = out;
                op->ref(op, a, &want);
                if (!is_float(out))
                    for (k = 0; k < want.n; k++) want.i[k] = wrap_int(want.i[k], out);
                for (k = 0; k < op->nin; k++) flat[k] = packed(in[k]);
                for (isa = 0; isa < COUNT(isas); isa++) {
                    char full[128];
                    if (!isa_there[isa]) {
                        n_skipped++;
                        continue;
                    }
                    tensor_set_cpu(isas[isa]);
                    sprintf(full, "%s %s", what, isas[isa]);
                    y = op->call(in, op->nin, (void *)(uintptr_t)op);
                    n_values++;
                    if (!compare(op, y, &want, out, full)) break;
                    if (l && !(op->flags & NO_BITS)) {
                        z = op->call(flat, op->nin, (void *)(uintptr_t)op);
                        n_bits++;
                        CHECK_MSG(same_bits(y, z), "%s %s: bits differ from contiguous inputs", op->label,
                                  full);
                    }
                }
                tensor_set_cpu(NULL);
                for (k = 0; k < op->nin; k++) nd_free(&a[k]);
                nd_free(&want);
                CHECK_OK();
                tensor_scope_end(s);
            }
        }
}

// ---- gradients ----

static int row_grad[TENSOR_OP_COUNT], row_gradgrad[TENSOR_OP_COUNT];

typedef struct graph_t {
    const op_t *op;
    int mode, nin;
    const config_t *config;
    tensor_t *constant[MAX_IN];
} graph_t;
enum { G_PLAIN, G_PERMUTE, G_SLICE, G_EXPAND, G_MODES };

static tensor_t *graph_call(tensor_t *const *in, int n, void *user) {
    graph_t *g = (graph_t *)user;
    tensor_t *v[MAX_IN] = {0};
    int k, d;
    int64_t perm[MAXD];
    for (k = 0; k < n; k++) {
        int nd = tensor_ndim(in[k]);
        v[k] = in[k];
        if (g->constant[k]) {
            v[k] = g->constant[k];
            continue;
        }
        if (!nd) continue;
        if (g->mode == G_PERMUTE) {
            for (d = 0; d < nd; d++) perm[d] = nd - 1 - d;
            v[k] = tensor_permute_n(in[k], perm, nd);
        }
        if (g->mode == G_SLICE) v[k] = tensor_slice(in[k], -1, 1, tensor_size(in[k], -1), 2);
        if (g->mode == G_EXPAND) v[k] = tensor_expand_n(in[k], g->config->in[k].d, nd);
    }
    return g->op->call(v, n, (void *)(uintptr_t)g->op);
}

static void run_grad(const op_t *op) {
    int c, v, k, d;
    if ((op->flags & NO_GRAD) || !tensor__rows[op->id].grad) return;
    for (c = 0; c < op->nconfigs; c++) {
        const config_t *config = &op->configs[c];
        int64_t biggest = 0, smallest = 1;
        for (k = 0; k < op->nin; k++) {
            int64_t n = 1;
            for (d = 0; d < config->in[k].nd; d++) n *= config->in[k].d[d];
            if (n > biggest) biggest = n;
            if (!n) smallest = 0;
        }
        if (biggest > 40 || !smallest)
            continue; // central differences cost numel calls (twice numel^2 for the second)
        for (v = 0; v < 8; v++) {
            // Leaf layouts C T S O N, then leaves behind a permute, a slice, an expand.
            static const int leaf[] = {LC, LT, LS, LO, LN, LC, LC, LC},
                             mode[] = {0, 0, 0, 0, 0, G_PERMUTE, G_SLICE, G_EXPAND};
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[MAX_IN] = {0};
            graph_t g = {op, mode[v], op->nin, config, {0}};
            int code, dims = 0;
            lcg_state = (uint64_t)(c * 10 + v + 7);
            for (k = 0; k < op->nin; k++) {
                config_t phys = *config;
                shape_t *p = &phys.in[k];
                int own = input_dtype(op, k, TENSOR_F64);
                dims |= p->nd;
                if (p->nd && own == TENSOR_F64) {
                    if (mode[v] == G_PERMUTE)
                        for (d = 0; d < p->nd; d++) p->d[d] = config->in[k].d[p->nd - 1 - d];
                    if (mode[v] == G_SLICE) p->d[p->nd - 1] = config->in[k].d[p->nd - 1] * 2 + 1;
                    if (mode[v] == G_EXPAND) p->d[0] = 1;
                }
                in[k] = tensor_detach(input(op, &phys, k, TENSOR_F64, leaf[v]));
                if (own == TENSOR_F64)
                    tensor_requires_grad_(in[k], 1);
                else
                    g.constant[k] = in[k];
            }
            if (!dims && v) {
                tensor_scope_end(s);
                continue;
            }
            CHECK_OK();
            code = tensor_gradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
            n_grad++;
            row_grad[op->id]++;
            CHECK_MSG(code == 0, "%s config %d variant %d: %s", op->label, c, v, tensor_error_text());
            tensor_clear_error();
            if (!(op->flags & NO_GRADGRAD) && biggest <= 24) {
                code = tensor_gradgradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
                n_gradgrad++;
                row_gradgrad[op->id]++;
                CHECK_MSG(code == 0, "%s config %d variant %d second order: %s", op->label, c, v,
                          tensor_error_text());
                tensor_clear_error();
            }
            tensor_scope_end(s);
        }
    }
}

// Gradients in every dtype and on every instruction set against those in f64, and the fused kernels (first
// order) against the same formula made of tensors (CREATE_GRAPH).
static int gradients_of(const op_t *op, tensor_t *const *in, tensor_t **grads, int flags) {
    tensor_t *leaf[MAX_IN], *v[MAX_IN], *y, *w;
    int k, n = 0;
    for (k = 0; k < op->nin; k++) {
        v[k] = in[k];
        if (!is_float(in[k]->dtype)) continue;
        v[k] = leaf[n++] = tensor_requires_grad_(tensor_detach(in[k]), 1);
    }
    y = op->call(v, op->nin, (void *)(uintptr_t)op);
    if (tensor_is_poison(y)) return -1;
    // weights with few bits, some negative
    w = tensor_arange(0, (double)tensor_numel(y), 1, TENSOR_F64);
    w = tensor_sub_scalar(tensor_div_scalar(tensor_remainder_scalar(w, 13), 8), 0.5);
    w = tensor_to(tensor_reshape_n(w, y->dims, y->ndim), y->dtype);
    w = tensor_to(w, (int)tensor_device(y));
    if (!n) return 0;
    return tensor_autograd_grad(&y, 1, &w, leaf, n, grads, flags | TENSOR_ALLOW_UNUSED) ? -1 : n;
}
static void run_grad_values(const op_t *op) {
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    static const double rtol[] = {3e-5, 1e-11, 2e-2, 1e-1}, atol[] = {3e-5, 1e-11, 2e-2, 1e-1};
    static const char layouts[][MAX_IN] = {{LC, LC, LC}, {LT, LT, LT}, {LS, LC, LO}};
    int c, l, t, isa, k, flags;
    if ((op->flags & NO_GRAD) || !tensor__rows[op->id].grad) return;
    for (c = 0; c < op->nconfigs; c++)
        for (l = 0; l < COUNT(layouts); l++)
            for (t = 0; t < COUNT(dtypes); t++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *in[MAX_IN] = {0}, *wide[MAX_IN] = {0}, *got[MAX_IN], *want[MAX_IN];
                double scale = op->atol > 0 ? op->atol : 1;
                int n;
                lcg_state = (uint64_t)(c * 100 + l * 10 + t + 3);
                for (k = 0; k < op->nin; k++) {
                    in[k] = input(op, &op->configs[c], k, dtypes[t], layouts[l][k]);
                    wide[k] = is_float(in[k]->dtype) ? tensor_to(packed(in[k]), TENSOR_F64) : in[k];
                }
                if (gradients_of(op, wide, want, 0) < 0) {
                    CHECK_OK();
                    tensor_scope_end(s);
                    continue;
                }
                for (isa = 0; isa < COUNT(isas); isa++)
                    for (flags = 0; flags <= TENSOR_CREATE_GRAPH; flags += TENSOR_CREATE_GRAPH) {
                        if (!isa_there[isa] ||
                            (flags && (l || isa < 3 || (op->flags & NO_GRADGRAD)))) continue;
                        tensor_set_cpu(isas[isa]);
                        n = gradients_of(op, in, got, flags);
                        n_gradvalues++;
                        CHECK_MSG(n >= 0, "%s config %d: %s", op->label, c, tensor_error_text());
                        tensor_clear_error();
                        for (k = 0; k < n; k++) {
                            nd_t a, b;
                            int64_t j;
                            int good = 1;
                            if (!got[k] || !want[k]) {
                                CHECK_MSG(got[k] == want[k], "%s: a gradient is there in one dtype only",
                                          op->label);
                                continue;
                            }
                            nd_read(&a, got[k]), nd_read(&b, want[k]);
                            good = a.n == b.n && a.nd == b.nd && a.dtype == dtypes[t];
                            for (j = 0; j < a.n && good; j++)
                                good = (a.v[j] != a.v[j] && b.v[j] != b.v[j]) || a.v[j] == b.v[j] ||
                                       fabs(a.v[j] - b.v[j]) <= scale * atol[t] + rtol[t] * fabs(b.v[j]);
                            if (good) j = 1;
                            CHECK_MSG(good,
                                      "%s config %d layout %c %s %s%s: gradient of input %d, "
                                      "element %lld is %.9g, in f64 %.9g",
                                      op->label, c, layout_names[(int)layouts[l][0]], dname(dtypes[t]),
                                          isas[isa],
                                      flags ? " CREATE_GRAPH" : "", k, (long long)j - 1, a.v[j ? j - 1 : 0],
                                      b.v[j ? j - 1 : 0]);
                            nd_free(&a), nd_free(&b);
                        }
                    }
                tensor_set_cpu(NULL);
                tensor_scope_end(s);
            }
}

// ---- threads ----

static void run_threads(const op_t *op, const config_t *big) {
    int dtype, k, isa;
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64, TENSOR_F16};
    for (dtype = 0; dtype < COUNT(dtypes); dtype++)
        for (isa = 0; isa < COUNT(isas); isa++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[MAX_IN] = {0}, *one, *four;
            if (!isa_there[isa] || result_dtype(op, dtypes[dtype]) < 0 || (isa < 3 && dtype)) {
                tensor_scope_end(s);
                continue;
            }
            lcg_state = 99;
            for (k = 0; k < op->nin; k++) in[k] = input(op, big, k, dtypes[dtype], k == 1 ? LT : LC);
            tensor_set_cpu(isas[isa]);
            tensor_set_num_threads(1);
            one = op->call(in, op->nin, (void *)(uintptr_t)op);
            tensor_set_num_threads(4);
            four = op->call(in, op->nin, (void *)(uintptr_t)op);
            tensor_set_num_threads(1);
            n_threads++;
            if (dtypes[dtype] == TENSOR_F32 && tensor__rows[op->id].grad && !(op->flags & NO_GRAD)) {
                tensor_t *g1[MAX_IN], *g4[MAX_IN];
                int n1 = gradients_of(op, in, g1, 0), n4;
                tensor_set_num_threads(4);
                n4 = gradients_of(op, in, g4, 0);
                tensor_set_num_threads(1);
                for (k = 0; k < n1 && n1 == n4; k++)
                    CHECK_MSG((!g1[k] && !g4[k]) || (g1[k] && g4[k] && same_bits(g1[k], g4[k])),
                              "%s %s: gradient %d differs between 1 and 4 threads", op->label, isas[isa], k);
                CHECK_MSG(n1 == n4 && n1 >= 0, "%s: %s", op->label, tensor_error_text());
                n_threads++;
            }
            CHECK_MSG(same_bits(one, four), "%s %s %s: 1 and 4 threads differ (%s)", op->label,
                      dname(dtypes[dtype]), isas[isa], tensor_error_text());
            tensor_set_cpu(NULL);
            CHECK_OK();
            tensor_scope_end(s);
        }
}

// ---- another device: results and gradients are the mirror's, bit for bit, or CUDA's, within tolerances ----

static tensor_t *here(tensor_t *t) { return t ? tensor_to(t, TENSOR_CPU) : NULL; }
static int device_agrees(const op_t *op, const tensor_t *a, const tensor_t *b) {
#ifdef TEST_CUDA
    nd_t x, y;
    int64_t k;
    int d, good = a->state == TENSOR__LIVE && b->state == TENSOR__LIVE && a->ndim == b->ndim &&
                  a->dtype == b->dtype;
    double atol = good && a->dtype >= TENSOR_F16 && op->half > 0 ? op->half : op->atol;
    for (d = 0; good && d < a->ndim; d++) good = a->dims[d] == b->dims[d];
    if (!good) return 0;
    nd_read(&x, a), nd_read(&y, b);
    for (k = 0; k < x.n && good; k++)
        good = is_float(a->dtype) ? value_good(y.v[k], x.v[k], a->dtype, atol) : x.i[k] == y.i[k];
    if (!good) printf("element %lld: %.9g, the CPU's is %.9g\n", (long long)k - 1, y.v[k - 1], x.v[k - 1]);
    nd_free(&x), nd_free(&y);
    return good;
#else
    (void)op;
    return same_bits(a, b);
#endif
}
static void run_device(const op_t *op) {
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64, TENSOR_F16, TENSOR_BF16};
    int c, t, k;
    for (c = 0; c < op->nconfigs && c < 6; c++)
        for (t = 0; t < COUNT(dtypes); t++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[MAX_IN] = {0}, *far[MAX_IN] = {0}, *one, *two, *g1[MAX_IN], *g2[MAX_IN];
            if (result_dtype(op, dtypes[t]) < 0) {
                tensor_scope_end(s);
                continue;
            }
            lcg_state = (uint64_t)(c * 10 + t + 7);
            for (k = 0; k < op->nin; k++) {
                in[k] = input(op, &op->configs[c], k, dtypes[t], LC);
                far[k] = tensor_to(in[k], TENSOR_CUDA);
            }
            one = op->call(in, op->nin, (void *)(uintptr_t)op);
            tensor_set_default_device(TENSOR_CUDA);     // of what the case itself makes
            two = op->call(far, op->nin, (void *)(uintptr_t)op);
            tensor_set_default_device(TENSOR_CPU);
            if (tensor_is_poison(one)) {        // the case's refusals are refused there too
                CHECK_MSG(tensor_is_poison(two), "%s %s: refused on the CPU alone", op->label,
                          dname(dtypes[t]));
                tensor_clear_error();
                tensor_scope_end(s);
                continue;
            }
            CHECK_MSG(tensor_device(two) == TENSOR_CUDA, "%s: the result is not on the device", op->label);
            CHECK_MSG(device_agrees(op, one, here(two)), "%s %s: device and CPU differ (%s)", op->label,
                      dname(dtypes[t]),
                      tensor_error_text());
            tensor_clear_error();
            n_device++;
            if (is_float(dtypes[t]) && tensor__rows[op->id].grad && !(op->flags & NO_GRAD)) {
                int n1 = gradients_of(op, in, g1, 0), n2;
                tensor_set_default_device(TENSOR_CUDA);
                n2 = gradients_of(op, far, g2, 0);
                tensor_set_default_device(TENSOR_CPU);
                CHECK_MSG(n1 == n2 && n1 >= 0, "%s on a device: %s", op->label, tensor_error_text());
                for (k = 0; k < n1 && n1 == n2; k++)
                    CHECK_MSG(!g1[k] == !g2[k] && (!g1[k] || device_agrees(op, g1[k], here(g2[k]))),
                              "%s %s: gradient %d differs between device and CPU", op->label,
                                  dname(dtypes[t]), k);
                n_device++;
            }
            device_note(dtypes[t]);
            tensor_clear_error();
            tensor_scope_end(s);
        }
}

// ---- misuse of every input ----

static void run_misuse(const op_t *op) {
    int k;
    for (k = 0; k < op->nin; k++) {
        tensor_t *in[MAX_IN] = {0}, *dead, *y;
        tensor_scope_t s = tensor_scope_begin(), inner;
        int j;
        for (j = 0; j < op->nin; j++) in[j] = input(op, &op->configs[0], j, TENSOR_F32, LC);
        in[k] = NULL;
        y = op->call(in, op->nin, (void *)(uintptr_t)op);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER &&
                      strstr(tensor_error_text(), "NULL"),
                  "%s: input %d NULL gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        in[k] = tensor_zeros(-1);
        tensor_clear_error();
        CHECK(tensor_is_poison(in[k]));
        y = op->call(in, op->nin, (void *)(uintptr_t)op);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_POISONED,
                  "%s: input %d poison gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        inner = tensor_scope_begin();
        dead = tensor_zeros(2);
        tensor_scope_end(inner);
        in[k] = dead;
        y = op->call(in, op->nin, (void *)(uintptr_t)op);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER &&
                      strstr(tensor_error_text(), "scope ended") && strstr(tensor_error_text(), "ops.c:"),
                  "%s: input %d dead gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        n_errors += 3;
        tensor_scope_end(s);
    }
}

// ---- pointwise rows ----

// clang-format off
#define A v[0]
#define B v[1]
#define C v[2]
#define F(name, expression) static double ref_##name(const double *v) { return expression; }
F(abs, fabs(A)) F(acos, acos(A)) F(asin, asin(A)) F(atan, atan(A)) F(ceil, ceil(A)) F(cos, cos(A))
F(cosh, cosh(A))
F(clamp, A < -1 ? -1 : A > 2 ? 2 : A)
F(elu, A > 0 ? A : 1.25 * expm1(A)) F(erf, erf(A)) F(erfc, erfc(A)) F(exp, exp(A)) F(exp2, exp2(A))
F(expm1, expm1(A)) F(floor, floor(A)) F(gelu, 0.5 * A * erfc(-A / sqrt(2.0)))
F(gelu_tanh, 0.5 * A * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (A + 0.044715 * A * A * A))))
F(hardsigmoid, A < -3 ? 0 : A > 3 ? 1 : (A + 3) / 6) F(hardswish, A < -3 ? 0 : A > 3 ? A : A * (A + 3) / 6)
F(hardtanh, A < -1 ? -1 : A > 2 ? 2 : A) F(mish, A *tanh(log1p(exp(A))))
F(leaky_relu, A > 0 ? A : 0.125 * A) F(log, log(A)) F(log10, log10(A)) F(log1p, log1p(A)) F(log2, log2(A))
F(logsigmoid, -log1p(exp(-A))) F(neg, -A) F(reciprocal, 1 / A) F(relu, A > 0 ? A : 0) F(round, rint(A))
F(rsqrt, 1 / sqrt(A)) F(sigmoid, 1 / (1 + exp(-A))) F(sign, A > 0 ? 1 : A < 0 ? -1 : 0)
F(silu, A / (1 + exp(-A)))
F(sin, sin(A)) F(sinh, sinh(A)) F(softplus, A * 1.5 > 5 ? A : log1p(exp(A * 1.5)) / 1.5) F(sqrt, sqrt(A))
F(square, A *A) F(tan, tan(A)) F(tanh, tanh(A)) F(trunc, trunc(A)) F(clone, A)
F(add, A + B) F(atan2, atan2(A, B)) F(div, A / B) F(floor_divide, floor(A / B)) F(fmod, fmod(A, B))
F(maximum, A > B ? A : B) F(minimum, A < B ? A : B) F(mul, A *B) F(pow, pow(A, B))
F(remainder, A - floor(A / B) * B) F(sub, A - B)
F(addcdiv, A + 0.5 * B / C) F(addcmul, A + 0.5 * B * C) F(lerp, A + C * (B - A)) F(where, A != 0 ? B : C)
F(eq, A == B) F(ge, A >= B) F(gt, A > B) F(le, A <= B) F(lt, A < B) F(ne, A != B)
F(isfinite, A - A == 0) F(isinf, fabs(A) > 1.7976931348623157e308) F(isnan, A != A)
F(logical_and, A != 0 && B != 0) F(logical_or, A != 0 || B != 0) F(logical_xor, (A != 0) != (B != 0))
F(logical_not, A == 0)
F(acosh, log(A + sqrt(A * A - 1))) F(asinh, log(A + sqrt(A * A + 1))) F(atanh, 0.5 * log((1 + A) / (1 - A)))
static double ref_erfinv(const double *v) { // bisection
    double lo = -40, hi = 40;
    int k;
    if (!(fabs(A) < 1)) return fabs(A) == 1 ? A * (double)INFINITY : (double)NAN;
    for (k = 0; k < 200; k++) {
        double mid = (lo + hi) / 2;
        if (erf(mid) < A) lo = mid;
        else hi = mid;
    }
    return (lo + hi) / 2;
}
F(lgamma, lgamma(A))
static double ref_polygamma(const double *v) { // n = 1
    double s = 0, x = A;
    int k;
    for (k = 0; k < 1000; k++, x += 1) s += 1 / (x * x);
    return s + 1 / x + 1 / (2 * x * x) + 1 / (6 * x * x * x);
}
F(sinc, A == 0 ? 1 : sin(3.14159265358979323846 * A) / (3.14159265358979323846 * A))
F(copysign, signbit(B) ? -fabs(A) : fabs(A)) F(hypot, sqrt(A * A + B * B)) F(logaddexp, log(exp(A) + exp(B)))
F(logaddexp2, log2(exp2(A) + exp2(B))) F(xlogy, A == 0 ? 0 : A * log(B))
#undef F
// Integers wrap: computed on uint64_t.
#define U(x) ((uint64_t)(x))
#define I(name, expression) static int64_t int_##name(const int64_t *v) { return (int64_t)(expression); }
I(abs, A < 0 ? 0 - U(A) : U(A)) I(ceil, A) I(clamp, A < -1 ? -1 : A > 2 ? 2 : A) I(floor, A) I(neg, 0 - U(A))
I(hardtanh, A < -1 ? -1 : A > 2 ? 2 : A) I(addcmul, A)     // 0.5 of an integer is 0
I(relu, A > 0 ? A : 0) I(round, A) I(sign, (A > 0) - (A < 0)) I(square, U(A) * U(A)) I(trunc, A) I(clone, A)
I(add, U(A) + U(B)) I(mul, U(A) * U(B)) I(sub, U(A) - U(B)) I(maximum, A > B ? A : B)
I(minimum, A < B ? A : B)
I(floor_divide, B == -1 ? (int64_t)(0 - U(A)) : A / B - (A % B != 0 && (A < 0) != (B < 0)))
I(fmod, B == -1 ? 0 : A % B) I(remainder, B == -1 ? 0 : A % B + (A % B != 0 && (A < 0) != (B < 0) ? B : 0))
static int64_t int_pow(const int64_t *v) {
    uint64_t r = 1;
    int64_t k;
    if (B < 0) return A == 1 ? 1 : A == -1 ? (B % 2 ? -1 : 1) : 0;
    for (k = 0; k < B; k++) r *= U(A);
    return (int64_t)r;
}
I(where, A ? B : C)
I(eq, A == B) I(ge, A >= B) I(gt, A > B) I(le, A <= B) I(lt, A < B) I(ne, A != B)
I(isfinite, A == A) I(isinf, A != A) I(isnan, A != A)
I(logical_and, A &&B) I(logical_or, A || B) I(logical_xor, !A != !B) I(logical_not, !A)
I(bitwise_left_shift, B < 0 || B > 63 ? 0 : U(A) << B) I(bitwise_right_shift, A >> (B < 0 || B > 63 ? 63 : B))
I(bitwise_and, A &B) I(bitwise_or, A | B) I(bitwise_xor, A ^ B) I(bitwise_not, ~A)
#undef I
#undef A
#undef B
#undef C

// How the public function is called; the ops with numbers among their arguments get fixed ones.
#define call_name(name) static tensor_t *call_##name(tensor_t *const *in, int n, void *user)
#define CALL1(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0] __VA_ARGS__); }
#define CALL2(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0], in[1]            \
    __VA_ARGS__); }
#define CALL3(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0], in[1], in[2]     \
    __VA_ARGS__); }
CALL1(abs, ) CALL1(acos, ) CALL1(asin, ) CALL1(atan, ) CALL1(ceil, ) CALL1(clamp, , -1, 2) CALL1(cos, )
CALL1(cosh, )
CALL1(elu, , 1.25) CALL1(erf, ) CALL1(erfc, ) CALL1(exp, ) CALL1(exp2, ) CALL1(expm1, ) CALL1(floor, )
CALL1(gelu, )
CALL1(hardsigmoid, ) CALL1(hardswish, ) CALL1(hardtanh, , -1, 2) CALL1(mish, )
CALL1(gelu_tanh, ) CALL1(leaky_relu, , 0.125) CALL1(log, ) CALL1(log10, ) CALL1(log1p, ) CALL1(log2, )
CALL1(logsigmoid, ) CALL1(neg, ) CALL1(reciprocal, ) CALL1(relu, ) CALL1(round, ) CALL1(rsqrt, )
CALL1(sigmoid, )
CALL1(sign, ) CALL1(silu, ) CALL1(sin, ) CALL1(sinh, ) CALL1(softplus, , 1.5, 5) CALL1(sqrt, ) CALL1(square, )
CALL1(tan, ) CALL1(tanh, ) CALL1(trunc, ) CALL1(clone, )
CALL2(add, ) CALL2(atan2, ) CALL2(div, ) CALL2(floor_divide, ) CALL2(fmod, ) CALL2(maximum, ) CALL2(minimum, )
CALL2(mul, ) CALL2(pow, ) CALL2(remainder, ) CALL2(sub, )
CALL3(addcdiv, , 0.5) CALL3(addcmul, , 0.5) CALL3(lerp, ) CALL3(where, )
CALL2(eq, ) CALL2(ge, ) CALL2(gt, ) CALL2(le, ) CALL2(lt, ) CALL2(ne, ) CALL1(isfinite, ) CALL1(isinf, )
CALL1(isnan, )
CALL2(logical_and, ) CALL2(logical_or, ) CALL2(logical_xor, ) CALL1(logical_not, )
CALL2(bitwise_and, ) CALL2(bitwise_or, ) CALL2(bitwise_xor, ) CALL1(bitwise_not, )
CALL2(bitwise_left_shift, ) CALL2(bitwise_right_shift, )
CALL1(acosh, ) CALL1(asinh, ) CALL1(atanh, ) CALL1(erfinv, ) CALL1(lgamma, ) CALL1(sinc, )
CALL2(copysign, ) CALL2(hypot, ) CALL2(logaddexp, ) CALL2(logaddexp2, ) CALL2(xlogy, )
call_name(polygamma) { (void)n, (void)user; return tensor_polygamma(1, in[0]); }
    // clang-format on

    static void ref_pointwise(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t d[MAXD], k;
    int nd = 0, i, j, dtype = out->dtype;
    for (i = 0; i < op->nin; i++)
        if (in[i].nd > nd) nd = in[i].nd;
    for (j = 0; j < nd; j++) d[j] = 1;
    for (i = 0; i < op->nin; i++)
        for (j = 0; j < in[i].nd; j++)
            if (in[i].d[j] != 1) d[nd - in[i].nd + j] = in[i].d[j];
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        double v[MAX_IN];
        int64_t g[MAX_IN] = {0};
        int ints = 1;
        for (i = 0; i < op->nin; i++) {
            int64_t at = nd_at(out, &in[i], k);
            v[i] = in[i].v[at];
            g[i] = in[i].i[at];
            if (is_float(in[i].dtype)) ints = 0;
        }
        if (op->g && (ints || !op->f)) out->i[k] = op->g(g);
        if (op->id == TENSOR_OP_BITWISE_NOT && in[0].dtype == TENSOR_BOOL) out->i[k] = !g[0];
        if (op->id == TENSOR_OP_WHERE && !is_float(in[1].dtype))
            out->i[k] = op->g(g);
        else if (op->g && (ints || !op->f))
            continue;
        else if (is_float(dtype))
            out->v[k] = op->f(v);
        else
            out->i[k] = (int64_t)op->f(v);
    }
}

#define IF_NUM(name) int_##name
#define IF_FLT(name) NULL
#define IF_CMP(name) int_##name
#define IF_LOG(name) int_##name
#define RULE_NUM SAME
#define RULE_FLT FLT
#define RULE_CMP BOOL
#define RULE_LOG BOOL
#define NO_CONFIGS NULL, 0
// Shapes of up to three operands.
#define S0                                                                                                   \
    {                                                                                                        \
        0, { 0 }                                                                                             \
    }
#define S1(a)                                                                                                \
    {                                                                                                        \
        1, { a }                                                                                             \
    }
#define S2(a, b)                                                                                             \
    {                                                                                                        \
        2, { a, b }                                                                                          \
    }
#define S3(a, b, c)                                                                                          \
    {                                                                                                        \
        3, { a, b, c }                                                                                       \
    }
#define S4(a, b, c, d)                                                                                       \
    {                                                                                                        \
        4, { a, b, c, d }                                                                                    \
    }
#define EACH(s)                                                                                              \
    {                                                                                                        \
        { s, s, s }                                                                                          \
    }
#define ES1(a)                                                                                               \
    {                                                                                                        \
        { S1(a), S1(a), S1(a) }                                                                              \
    }
#define ES2(a, b)                                                                                            \
    {                                                                                                        \
        { S2(a, b), S2(a, b), S2(a, b) }                                                                     \
    }
#define ES3(a, b, c)                                                                                         \
    {                                                                                                        \
        { S3(a, b, c), S3(a, b, c), S3(a, b, c) }                                                            \
    }
static const config_t pointwise_configs[] = {{{S2(3, 4), S2(3, 4), S2(3, 4)}},
                                             {{S0, S0, S0}},
                                             ES1(0),
                                             ES1(1),
                                             ES1(3),
                                             ES1(17),
                                             ES1(257),
                                             ES2(5, 7),
                                             ES2(0, 3),
                                             ES2(13, 17),
                                             ES3(4, 3, 5),
                                             ES1(1025),
                                             {{S4(2, 3, 4, 5), S4(2, 3, 4, 5), S4(2, 3, 4, 5)}},
                                             {{S2(5, 1), S2(1, 7), S2(5, 7)}},
                                             {{S1(7), S2(5, 7), S1(1)}},
                                             {{S2(5, 7), S0, S1(7)}},
                                             {{S0, S2(5, 3), S2(5, 1)}},
                                             {{S3(4, 1, 5), S2(3, 1), S3(4, 3, 5)}},
                                             {{S2(0, 3), S2(1, 3), S1(3)}},
                                             {{S2(33, 65), S1(65), S2(33, 1)}},
                                             {{S2(1, 1), S1(1), S0}},
                                             {{S1(1), S1(0), S1(1)}},
                                             {{S1(3), S2(2, 3), S2(2, 1)}},
                                             {{S2(2, 1), S1(3), S0}}};
static const config_t pointwise_big[] = {{{S2(257, 301), S2(257, 301), S2(257, 301)}},
                                         {{S2(257, 301), S1(301), S2(257, 1)}}};

static op_t pointwise_cases[] = {
#define TENSOR__X(ID, name, kind_, ...)                                                                      \
    {.label = #name,                                                                                         \
     .id = TENSOR_OP_##ID,                                                                                   \
     .call = call_##name,                                                                                    \
     .f = ref_##name,                                                                                        \
     .g = IF_##kind_(name),                                                                                  \
     .nin = 1,                                                                                               \
     .rule = RULE_##kind_},
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind_, ...)                                                                      \
    {.label = #name,                                                                                         \
     .id = TENSOR_OP_##ID,                                                                                   \
     .call = call_##name,                                                                                    \
     .f = ref_##name,                                                                                        \
     .g = IF_##kind_(name),                                                                                  \
     .nin = 2,                                                                                               \
     .rule = RULE_##kind_},
        TENSOR_OPS_BINARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind_, ...)                                                                      \
    {.label = #name,                                                                                         \
     .id = TENSOR_OP_##ID,                                                                                   \
     .call = call_##name,                                                                                    \
     .f = ref_##name,                                                                                        \
     .g = IF_##kind_(name),                                                                                  \
     .nin = 3,                                                                                               \
     .rule = RULE_##kind_},
            TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, n, kind_, ...)                                                                   \
    {.label = #name,                                                                                         \
     .id = TENSOR_OP_##ID,                                                                                   \
     .call = call_##name,                                                                                    \
     .f = ref_##name,                                                                                        \
     .g = int_##name,                                                                                        \
     .nin = n,                                                                                               \
     .rule = BOOL,                                                                                           \
     .kind = TENSOR__##kind_},
                TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, n, ...)                                                                          \
    {.label = #name,                                                                                         \
     .id = TENSOR_OP_##ID,                                                                                   \
     .call = call_##name,                                                                                    \
     .g = int_##name,                                                                                        \
     .nin = n,                                                                                               \
     .kind = TENSOR__BIT},
                    TENSOR_OPS_BITWISE(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, ...)                                                                             \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .nin = 1, .rule = FLT},
                        TENSOR_OPS_DOUBLE1(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, ...)                                                                             \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .nin = 2, .rule = FLT},
                            TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
};
typedef char every_pointwise_row_has_its_case[COUNT(pointwise_cases) == TENSOR_OP_POINTWISE_COUNT ? 1 : -1];

// What a table cannot say in a line.
static void prepare_pointwise(void) {
    int k;
    for (k = 0; k < COUNT(pointwise_cases); k++) {
        op_t *op = &pointwise_cases[k];
        CHECK_MSG(op->id == k && strcmp(tensor__rows[k].name, op->label) == 0, "row %d is %s, its case %s", k,
                  tensor__rows[k].name, op->label);
        op->ref = ref_pointwise;
        op->configs = pointwise_configs;
        op->nconfigs = COUNT(pointwise_configs);
        if (k == TENSOR_OP_WHERE) op->mask = 1;
        if (k == TENSOR_OP_ADDCDIV) op->rule = ONLY_FLOAT;
    }
}
// Some dtypes are refused by single ops: integers below keep the table above simple.
static int refuses(const op_t *op, int dtype) {
    int shifts = op->id == TENSOR_OP_BITWISE_LEFT_SHIFT || op->id == TENSOR_OP_BITWISE_RIGHT_SHIFT;
    if (op->kind == TENSOR__BIT) return is_float(dtype) || (shifts && dtype == TENSOR_BOOL);
    return dtype == TENSOR_BOOL && (op->id == TENSOR_OP_SUB || op->id == TENSOR_OP_NEG ||
                                    op->id == TENSOR_OP_HARDTANH || op->id == TENSOR_OP_ADDCMUL);
}

// ---- the other rows ----

// clang-format off
#define REDUCE1(name, expression) call_name(name) { (void)n; return expression; }
#define DIM (int)P(0)
#define KEEP (int)P(1)
REDUCE1(amax, P(0) == ALL ? tensor_max(in[0]) : tensor_amax_dim(in[0], DIM, KEEP))
REDUCE1(amin, P(0) == ALL ? tensor_min(in[0]) : tensor_amin_dim(in[0], DIM, KEEP))
REDUCE1(all, P(0) == ALL ? tensor_all(in[0]) : tensor_all_dim(in[0], DIM, KEEP))
REDUCE1(any, P(0) == ALL ? tensor_any(in[0]) : tensor_any_dim(in[0], DIM, KEEP))
REDUCE1(argmax, P(0) == ALL ? tensor_argmax(in[0]) : tensor_argmax_dim(in[0], DIM, KEEP))
REDUCE1(argmin, P(0) == ALL ? tensor_argmin(in[0]) : tensor_argmin_dim(in[0], DIM, KEEP))
REDUCE1(sum, P(0) == ALL ? tensor_sum(in[0]) : tensor_sum_dim(in[0], DIM, KEEP))
REDUCE1(mean, P(0) == ALL ? tensor_mean(in[0]) : tensor_mean_dim(in[0], DIM, KEEP))
REDUCE1(prod, P(0) == ALL ? tensor_prod(in[0]) : tensor_prod_dim(in[0], DIM, KEEP))
REDUCE1(var, P(0) == ALL ? tensor_var(in[0], P(2)) : tensor_var_dim(in[0], DIM, P(2), KEEP))
REDUCE1(std, P(0) == ALL ? tensor_std(in[0], P(2)) : tensor_std_dim(in[0], DIM, P(2), KEEP))
REDUCE1(norm, P(0) == ALL ? tensor_norm(in[0]) : tensor_norm_dim(in[0], DIM, KEEP))
REDUCE1(logsumexp, tensor_logsumexp(in[0], DIM, KEEP))
REDUCE1(softmax, tensor_softmax(in[0], DIM))
REDUCE1(log_softmax, tensor_log_softmax(in[0], DIM))
REDUCE1(cumsum, tensor_cumsum(in[0], DIM))
REDUCE1(cumprod, tensor_cumprod(in[0], DIM))
REDUCE1(logcumsumexp, tensor_logcumsumexp(in[0], DIM))
REDUCE1(cummax, tensor_cummax(in[0], DIM).indices)
REDUCE1(cummin, tensor_cummin(in[0], DIM).indices)
REDUCE1(cummax_values, tensor_cummax(in[0], DIM).values)
REDUCE1(argsort, tensor_argsort(in[0], DIM, (int)P(2)))
REDUCE1(sort_values, tensor_sort(in[0], DIM, (int)P(2)).values)
REDUCE1(topk, tensor_topk(in[0], tensor_ndim(in[0]) ? tensor_size(in[0], DIM) : 1, DIM, (int)P(2), 1).indices)
REDUCE1(kthvalue, tensor_kthvalue(in[0], 1, DIM, KEEP).indices)
REDUCE1(kthvalue_values, tensor_kthvalue(in[0], 1, DIM, KEEP).values)
REDUCE1(median_values, tensor_median_dim(in[0], DIM, KEEP).values)
REDUCE1(mode, tensor_mode(in[0], DIM, KEEP).indices)
REDUCE1(linear_scan, !tensor__live(in[0]) || !tensor__live(in[1]) ? tensor_add(in[0], in[1]) :
                     !tensor__needs_float("linear_scan", in[0]) ? TENSOR__POISON :
                     tensor__linear_scan(in[0], in[1], (int)P(2)))
REDUCE1(searchsorted, tensor_searchsorted(tensor_sort(in[0], -1, 0).values, in[1], (int)P(2)))
// clang-format on

call_name(sum_dims) {
    int64_t d[2];
    (void)n;
    d[0] = P(0), d[1] = P(2);
    return tensor_sum_dims(in[0], d, 2, KEEP);
}
call_name(mean_dims) {
    int64_t d[2];
    (void)n;
    d[0] = P(0), d[1] = P(2);
    return tensor_mean_dims(in[0], d, 2, KEEP);
}
call_name(max_values) {
    (void)n;
    return tensor_max_dim(in[0], DIM, KEEP).values;
}
call_name(max_indices) {
    (void)n;
    return tensor_max_dim(in[0], DIM, KEEP).indices;
}
call_name(min_values) {
    (void)n;
    return tensor_min_dim(in[0], DIM, KEEP).values;
}
call_name(min_indices) {
    (void)n;
    return tensor_min_dim(in[0], DIM, KEEP).indices;
}
// d out / d in of an op whose kernel is reached only in backward; in[1] is the incoming gradient.
static tensor_t *backward_of(tensor_t *(*f)(tensor_t *const *, int, void *), tensor_t *const *in,
                             void *user) {
    tensor_t *x, *y, *g, *grad = in[1];
    if (!in[0] || tensor_is_poison(in[0]) || !in[1] || tensor_is_poison(in[1]) ||
        in[0]->state != TENSOR__LIVE || in[1]->state != TENSOR__LIVE)
        return tensor_add(in[0], in[1]);
    x = tensor_requires_grad_(tensor_detach(in[0]), 1);
    y = f(&x, 1, user);
    if (tensor_is_poison(y)) return y;
    if (tensor_autograd_grad(&y, 1, &grad, &x, 1, &g, 0)) return g;
    return g;
}
call_name(prod_backward) {
    (void)n;
    return backward_of(call_prod, in, user);
}
call_name(softmax_backward) {
    (void)n;
    return backward_of(call_softmax, in, user);
}
call_name(log_softmax_backward) {
    (void)n;
    return backward_of(call_log_softmax, in, user);
}

// One row v[0..n-1] (second input w); results in o, as many as returned.
static int64_t row_values(const op_t *op, const double *v, const double *w, int64_t n, double *o) {
    double s = 0, m = -INFINITY;
    int64_t k, best = 0;
    switch (op->id) {
    case TENSOR_OP_SUM:
        for (k = 0; k < n; k++) s += v[k];
        o[0] = s;
        return 1;
    case TENSOR_OP_MEAN:
        for (k = 0; k < n; k++) s += v[k];
        o[0] = s / (double)n;
        return 1;
    case TENSOR_OP_PROD:
        for (s = 1, k = 0; k < n; k++) s *= v[k];
        o[0] = s;
        return 1;
    case TENSOR_OP_ALL:
        for (s = 1, k = 0; k < n; k++)
            if (v[k] == 0) s = 0;
        o[0] = s;
        return 1;
    case TENSOR_OP_ANY:
        for (k = 0; k < n; k++)
            if (v[k] != 0) s = 1;
        o[0] = s;
        return 1;
    case TENSOR_OP_AMAX:
    case TENSOR_OP_ARGMAX:
        for (k = 1; k < n; k++)
            if (v[k] > v[best]) best = k;
        o[0] = op->id == TENSOR_OP_AMAX ? v[best] : (double)best;
        return 1;
    case TENSOR_OP_AMIN:
    case TENSOR_OP_ARGMIN:
        for (k = 1; k < n; k++)
            if (v[k] < v[best]) best = k;
        o[0] = op->id == TENSOR_OP_AMIN ? v[best] : (double)best;
        return 1;
    case TENSOR_OP_VAR:
        for (k = 0; k < n; k++) s += v[k] / (double)n;
        for (m = 0, k = 0; k < n; k++) m += (v[k] - s) * (v[k] - s);
        m = n > op->p[2] ? m / (double)(n - op->p[2]) : NAN;
        o[0] = op->p[3] ? sqrt(m) : m;
        return 1;
    case TENSOR_OP_NORM:
        for (k = 0; k < n; k++) s += v[k] * v[k];
        o[0] = sqrt(s);
        return 1;
    case TENSOR_OP_CUMSUM:
        for (k = 0; k < n; k++) o[k] = s += v[k];
        return n;
    case TENSOR_OP_CUMPROD:
        for (s = 1, k = 0; k < n; k++) o[k] = s *= v[k];
        return n;
    case TENSOR_OP_LOGCUMSUMEXP:
        for (k = 0; k < n; k++) o[k] = log(s += exp(v[k]));
        return n;
    case TENSOR_OP_LINEAR_SCAN:
        for (k = 0; k < n; k++) {
            int64_t i = op->p[2] ? n - 1 - k : k;
            o[i] = s = v[i] + (k ? w[i] * s : 0);
        }
        return n;
    case TENSOR_OP_CUMMAX:
    case TENSOR_OP_CUMMIN:
        for (k = 0; k < n; k++) {
            if (op->id == TENSOR_OP_CUMMAX ? v[k] >= v[best] : v[k] <= v[best]) best = k;
            o[k] = op->p[3] ? v[best] : (double)best;
        }
        return n;
    case TENSOR_OP_SORT:
    case TENSOR_OP_TOPK: // the place of k: how many go before it
        for (k = 0; k < n; k++) {
            int64_t i, at = 0;
            for (i = 0; i < n; i++) at += (op->p[2] ? v[i] > v[k] : v[i] < v[k]) || (v[i] == v[k] && i < k);
            o[at] = op->p[3] ? v[k] : (double)k;
        }
        return n;
    case TENSOR_OP_KTHVALUE: // p[4]: lower median, else the smallest
    case TENSOR_OP_MODE: {
        int64_t i, most = 0, less, same;
        for (k = n - 1; k >= 0; k--) {
            for (less = same = i = 0; i < n; i++) less += v[i] < v[k], same += v[i] == v[k];
            if (op->id == TENSOR_OP_KTHVALUE) {
                int64_t rank = op->p[4] ? (n - 1) / 2 : 0;
                if (less <= rank && rank < less + same) best = k;
            } else if (same > most || (same == most && v[k] < v[best]))
                best = k, most = same;
        }
        o[0] = op->p[3] ? v[best] : (double)best;
        return 1;
    }
    default: break;
    }
    for (k = 0; k < n; k++)
        if (v[k] > m) m = v[k];
    for (k = 0; k < n; k++) s += exp(v[k] - m);
    switch (op->id) {
    case TENSOR_OP_LOGSUMEXP: o[0] = n ? m + log(s) : -INFINITY; return 1;
    case TENSOR_OP_SOFTMAX:
        for (k = 0; k < n; k++) o[k] = exp(v[k] - m) / s;
        return n;
    case TENSOR_OP_LOG_SOFTMAX:
        for (k = 0; k < n; k++) o[k] = v[k] - m - log(s);
        return n;
    case TENSOR_OP_SOFTMAX_BACKWARD: {
        double t = 0;
        for (k = 0; k < n; k++) t += w[k] * exp(v[k] - m) / s;
        for (k = 0; k < n; k++) o[k] = exp(v[k] - m) / s * (w[k] - t);
        return n;
    }
    case TENSOR_OP_LOG_SOFTMAX_BACKWARD: {
        double t = 0;
        for (k = 0; k < n; k++) t += w[k];
        for (k = 0; k < n; k++) o[k] = w[k] - exp(v[k] - m) / s * t;
        return n;
    }
    default: return 0;
    }
}
// Any reduction or row op over dim p[0] (ALL; p[5]: two dims, the second is p[2]).
static void ref_rows(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t d[MAXD] = {0}, k, j, rows = 1, row = 1;
    int reduced[MAXD] = {0}, nd = 0, i, dtype = out->dtype, whole;
    double *v, *w, *o;
    for (i = 0; i < x->nd; i++) {
        reduced[i] = op->p[0] == ALL || i == (op->p[0] < 0 ? op->p[0] + x->nd : op->p[0]) ||
                     (op->p[5] && i == op->p[2]);
        if (reduced[i])
            row *= x->d[i];
        else
            rows *= x->d[i];
    }
    whole = op->id == TENSOR_OP_SOFTMAX || op->id == TENSOR_OP_LOG_SOFTMAX || op->id == TENSOR_OP_CUMSUM ||
            op->id == TENSOR_OP_SOFTMAX_BACKWARD || op->id == TENSOR_OP_LOG_SOFTMAX_BACKWARD ||
            op->id == TENSOR_OP_CUMPROD || op->id == TENSOR_OP_LOGCUMSUMEXP ||
                op->id == TENSOR_OP_LINEAR_SCAN ||
            op->id == TENSOR_OP_CUMMAX || op->id == TENSOR_OP_CUMMIN || op->id == TENSOR_OP_SORT ||
            op->id == TENSOR_OP_TOPK;
    for (i = 0; i < x->nd; i++) {
        if (whole || !reduced[i])
            d[nd++] = x->d[i];
        else if (op->p[1])
            d[nd++] = 1;
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    v = (double *)malloc((size_t)(row + 1) * 3 * sizeof *v);
    w = v + row + 1, o = w + row + 1;
    for (k = 0; k < rows; k++) {
        int64_t at = 0, got;
        for (j = 0; j < row; j++) {
            int64_t a = k, b = j, step = 1;
            at = 0;
            for (i = x->nd - 1; i >= 0; i--) {
                int64_t *from = reduced[i] ? &b : &a;
                at += *from % x->d[i] * step;
                *from /= x->d[i];
                step *= x->d[i];
            }
            v[j] = x->v[at];
            if (op->nin > 1) w[j] = in[1].v[at];
        }
        got = row_values(op, v, op->nin > 1 ? w : NULL, row, o);
        for (j = 0; j < got; j++) {
            int64_t to = k;
            if (whole) {
                int64_t a = k, b = j, step = 1;
                to = 0;
                for (i = x->nd - 1; i >= 0; i--) {
                    int64_t *from = reduced[i] ? &b : &a;
                    to += *from % x->d[i] * step;
                    *from /= x->d[i];
                    step *= x->d[i];
                }
            }
            out->v[to] = o[j];
            out->i[to] = fabs(o[j]) < 9e18 ? (int64_t)o[j] : 0;
        }
    }
    free(v);
}
// The gradient of prod_dim(x, 0): every element's is the product of the others times g.
static void ref_prod_others(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t rows = x->d[0], n = rows ? x->n / rows : 0, k, i, j;
    int dtype = out->dtype;
    (void)op;
    nd_make(out, x->nd, x->d);
    out->dtype = dtype;
    for (k = 0; k < n; k++)
        for (i = 0; i < rows; i++) {
            double p = in[1].v[k];
            for (j = 0; j < rows; j++)
                if (j != i) p *= x->v[j * n + k];
            out->v[i * n + k] = p;
        }
}
// How many elements of in[0]'s row lie below each value (or not above).
static void ref_searchsorted(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0], *v = &in[1];
    int64_t k, i, n = x->d[x->nd - 1], row = v->nd ? v->d[v->nd - 1] : 1;
    nd_make(out, v->nd, v->d);
    out->dtype = TENSOR_I64;
    for (k = 0; k < v->n; k++) {
        const double *r = x->v + (x->nd == 1 ? 0 : k / row * n);
        for (i = 0; i < n; i++) out->i[k] += op->p[2] ? r[i] <= v->v[k] : r[i] < v->v[k];
        out->v[k] = (double)out->i[k];
    }
}
static const config_t reduce_configs[] = {
    {{S2(3, 4)}},    {{S1(1)}},       {{S1(17)}},         {{S1(257)}}, {{S2(5, 7)}}, {{S2(33, 70)}},
    {{S3(4, 3, 2)}}, {{S3(2, 1, 5)}}, {{S4(2, 3, 4, 5)}}, {{S0}},      {{S1(3000)}}};
static const config_t row_configs[] = {{{S2(3, 4), S2(3, 4)}},
                                       {{S1(1), S1(1)}},
                                       {{S1(17), S1(17)}},
                                       {{S1(257), S1(257)}},
                                       {{S2(5, 7), S2(5, 7)}},
                                       {{S3(4, 3, 2), S3(4, 3, 2)}},
                                       {{S4(2, 3, 4, 5), S4(2, 3, 4, 5)}},
                                       {{S2(0, 3), S2(0, 3)}},
                                       {{S2(3, 0), S2(3, 0)}}};
static const config_t deep_configs[] = {{{S2(3, 4)}},    {{S2(5, 7)}},    {{S2(70, 33)}},
                                        {{S3(4, 3, 2)}}, {{S3(2, 1, 5)}}, {{S4(2, 3, 4, 5)}}};
static const config_t empty_configs[] = {{{S2(3, 4)}}, {{S1(0)}}, {{S2(0, 3)}}, {{S2(3, 0)}}};
static const config_t small_configs[] = {{{S2(3, 4)}}, {{S1(1)}}, {{S1(9)}}, {{S3(2, 3, 2)}}, {{S0}}};
// clang-format off
#define ON(c) .configs = c, .nconfigs = COUNT(c)
#define ROWOP(title, fn, r, ...) .label = title, .call = call_##fn, .ref = ref_rows, .nin = 1, .rule = r,    \
    .p = {__VA_ARGS__}

static const op_t other_amax[] = {
    {ROWOP("max", amax, SAME, ALL), ON(reduce_configs)},
    {ROWOP("amax_dim 0", amax, SAME, 0, 0), ON(deep_configs)},
    {ROWOP("amax_dim -1 keep", amax, SAME, -1, 1), ON(reduce_configs)},
    {ROWOP("max_dim values", max_values, SAME, 0, 0), ON(deep_configs)},
    {ROWOP("max_dim values keep", max_values, SAME, 1, 1), ON(deep_configs)}};
static const op_t other_amin[] = {
    {ROWOP("min", amin, SAME, ALL), ON(reduce_configs)},
    {ROWOP("amin_dim 1", amin, SAME, 1, 0), ON(deep_configs)},
    {ROWOP("amin_dim -2 keep", amin, SAME, -2, 1), ON(deep_configs)},
    {ROWOP("min_dim values", min_values, SAME, 0, 0), ON(deep_configs)}};
static const op_t other_all[] = {
    {ROWOP("all", all, TRUTH, ALL), ON(reduce_configs)},
    {ROWOP("all_dim 0", all, TRUTH, 0, 0), ON(deep_configs)},
    {ROWOP("all_dim -1", all, TRUTH, -1, 1), ON(reduce_configs)},
    {ROWOP("all empty", all, TRUTH, -1, 0), ON(empty_configs)}};
static const op_t other_any[] = {
    {ROWOP("any", any, TRUTH, ALL), ON(reduce_configs)},
    {ROWOP("any_dim 0", any, TRUTH, 0, 0), ON(deep_configs)},
    {ROWOP("any_dim -1", any, TRUTH, -1, 1), ON(reduce_configs)},
    {ROWOP("any empty", any, TRUTH, -1, 0), ON(empty_configs)}};
static const op_t other_argmax[] = {
    {ROWOP("argmax", argmax, I64, ALL), ON(reduce_configs)},
    {ROWOP("argmax_dim 0", argmax, I64, 0, 0), ON(deep_configs)},
    {ROWOP("argmax_dim -1 keep", argmax, I64, -1, 1), ON(reduce_configs)},
    {ROWOP("max_dim indices", max_indices, I64, 1, 0), ON(deep_configs)}};
static const op_t other_argmin[] = {
    {ROWOP("argmin", argmin, I64, ALL), ON(reduce_configs)},
    {ROWOP("argmin_dim 0", argmin, I64, 0, 1), ON(deep_configs)},
    {ROWOP("min_dim indices", min_indices, I64, -1, 1), ON(deep_configs)}};
static const op_t other_sum[] = {
    {ROWOP("sum", sum, SUMS, ALL), .atol = 300, ON(reduce_configs)},
    {ROWOP("sum_dim 0", sum, SUMS, 0, 0), .flags = NO_BITS, .atol = 100, ON(deep_configs)},
    {ROWOP("sum_dim -1 keep", sum, SUMS, -1, 1), .flags = NO_BITS, .atol = 300, ON(reduce_configs)},
    {ROWOP("sum_dims 0 1", sum_dims, SUMS, 0, 0, 1, 0, 0, 1), .flags = NO_BITS, .atol = 300, ON(deep_configs)},
    {ROWOP("sum empty", sum, SUMS, 0, 0), ON(empty_configs)}};
static const op_t other_mean[] = {
    {ROWOP("mean", mean, ONLY_FLOAT, ALL), ON(reduce_configs)},
    {ROWOP("mean_dim 0", mean, ONLY_FLOAT, 0, 0), .flags = NO_BITS, ON(deep_configs)},
    {ROWOP("mean_dim -1 keep", mean, ONLY_FLOAT, -1, 1), .flags = NO_BITS, ON(reduce_configs)},
    {ROWOP("mean_dims 0 1", mean_dims, ONLY_FLOAT, 0, 1, 1, 0, 0, 1), .flags = NO_BITS, ON(deep_configs)},
    {ROWOP("mean empty", mean, ONLY_FLOAT, 0, 0), ON(empty_configs)}};
static const op_t other_prod[] = {
    {ROWOP("prod", prod, SUMS, ALL), ON(small_configs)},
    {ROWOP("prod_dim 0", prod, SUMS, 0, 0), ON(small_configs)},
    {ROWOP("prod_dim -1 keep", prod, SUMS, -1, 1), ON(small_configs)},
    {ROWOP("prod empty", prod, SUMS, -1, 0), ON(empty_configs)}};
static const config_t others_configs[] = {{{S2(3, 4), S1(4)}}, {{S1(1), S0}}, {{S1(9), S0}}, {{S3(2, 3, 2), S2(3, 2)}},
                                          {{S2(12, 3000), S1(3000)}}};
static const op_t other_prod_others[] = {
    {.label = "prod backward", .call = call_prod_backward, .ref = ref_prod_others, .nin = 2, .rule = ONLY_FLOAT,
     .kind = TENSOR__CMP, .lo = -1.5, .hi = 2, .half = 100, ON(others_configs)}};
static const op_t other_var[] = {
    {ROWOP("var", var, ONLY_FLOAT, ALL, 0, 1), ON(deep_configs)},
    {ROWOP("var_dim 0", var, ONLY_FLOAT, 0, 0, 0), ON(deep_configs)},
    {ROWOP("var_dim -1 keep", var, ONLY_FLOAT, -1, 1, 1), ON(deep_configs)},
    {ROWOP("std", std, ONLY_FLOAT, ALL, 0, 1, 1), ON(deep_configs)},
    {ROWOP("std_dim 1 keep", std, ONLY_FLOAT, 1, 1, 0, 1), ON(deep_configs)}};
static const op_t other_norm[] = {
    {ROWOP("norm", norm, ONLY_FLOAT, ALL), ON(reduce_configs)},
    {ROWOP("norm_dim 0", norm, ONLY_FLOAT, 0, 0), ON(deep_configs)},
    {ROWOP("norm_dim -1 keep", norm, ONLY_FLOAT, -1, 1), ON(row_configs)}};
static const op_t other_logsumexp[] = {
    {ROWOP("logsumexp 0", logsumexp, FLT, 0, 0), ON(row_configs)},
    {ROWOP("logsumexp -1 keep", logsumexp, FLT, -1, 1), ON(row_configs)}};
static const op_t other_softmax[] = {
    {ROWOP("softmax 0", softmax, ONLY_FLOAT, 0), ON(row_configs)},
    {ROWOP("softmax -1", softmax, ONLY_FLOAT, -1), ON(row_configs)},
    {ROWOP("softmax 1", softmax, ONLY_FLOAT, 1), ON(deep_configs)}};
static const op_t other_log_softmax[] = {
    {ROWOP("log_softmax 0", log_softmax, ONLY_FLOAT, 0), ON(row_configs)},
    {ROWOP("log_softmax -1", log_softmax, ONLY_FLOAT, -1), ON(row_configs)},
    {ROWOP("log_softmax 1", log_softmax, ONLY_FLOAT, 1), ON(deep_configs)}};
#undef ROWOP
#define ROWOP(title, fn, r, ...) .label = title, .call = call_##fn, .ref = ref_rows, .nin = 2, .rule = r,    \
    .p = {__VA_ARGS__}
static const op_t other_softmax_backward[] = {
    {ROWOP("softmax backward 0", softmax_backward, ONLY_FLOAT, 0), .flags = NO_BITS, .atol = 3,
     .half = 3000, ON(row_configs)},
    {ROWOP("softmax backward -1", softmax_backward, ONLY_FLOAT, -1), .flags = NO_BITS, .atol = 3,
     .half = 3000, ON(row_configs)}};
static const op_t other_log_softmax_backward[] = {
    {ROWOP("log_softmax backward 0", log_softmax_backward, ONLY_FLOAT, 0), .flags = NO_BITS, .atol = 3,
     .half = 10000, ON(row_configs)},
    {ROWOP("log_softmax backward -1", log_softmax_backward, ONLY_FLOAT, -1), .flags = NO_BITS, .atol = 3,
     .half = 10000, ON(row_configs)}};
#undef ROWOP
#define ROWOP(title, fn, r, ...) .label = title, .call = call_##fn, .ref = ref_rows, .nin = 1, .rule = r,    \
    .p = {__VA_ARGS__}
static const op_t other_cumsum[] = {
    {ROWOP("cumsum 0", cumsum, SUMS, 0), .atol = 100, ON(row_configs)},
    {ROWOP("cumsum -1", cumsum, SUMS, -1), .atol = 100, ON(row_configs)}};
static const op_t other_cumprod[] = {
    {ROWOP("cumprod 0", cumprod, SUMS, 0), .half = 300, ON(small_configs)},
    {ROWOP("cumprod -1", cumprod, SUMS, -1), .half = 300, ON(small_configs)}};
static const op_t other_logcumsumexp[] = {
    {ROWOP("logcumsumexp 0", logcumsumexp, ONLY_FLOAT, 0), ON(row_configs)},
    {ROWOP("logcumsumexp -1", logcumsumexp, ONLY_FLOAT, -1), ON(row_configs)}};
static const op_t other_cummax[] = {
    {ROWOP("cummax 0", cummax, I64, 0), ON(reduce_configs)},
    {ROWOP("cummax -1", cummax, I64, -1), ON(row_configs)},
    {ROWOP("cummax values", cummax_values, SAME, 0, 0, 0, 1), ON(row_configs)}};
static const op_t other_cummin[] = {
    {ROWOP("cummin 0", cummin, I64, 0), ON(reduce_configs)},
    {ROWOP("cummin -1", cummin, I64, -1), ON(row_configs)}};
static const op_t other_sort[] = {
    {ROWOP("argsort 0", argsort, I64, 0), ON(reduce_configs)},
    {ROWOP("argsort -1 descending", argsort, I64, -1, 0, 1), ON(row_configs)},
    {ROWOP("sort values", sort_values, SAME, 0, 0, 0, 1), ON(row_configs)},
    {ROWOP("sort values descending", sort_values, SAME, -1, 0, 1, 1), ON(reduce_configs)}};
static const op_t other_topk[] = {
    {ROWOP("topk 0", topk, I64, 0, 0, 1), ON(reduce_configs)},
    {ROWOP("topk -1 smallest", topk, I64, -1, 0, 0), ON(row_configs)}};
static const op_t other_kthvalue[] = {
    {ROWOP("kthvalue 0", kthvalue, I64, 0), ON(deep_configs)},
    {ROWOP("kthvalue -1 keep", kthvalue_values, SAME, -1, 1, 0, 1), ON(reduce_configs)},
    {ROWOP("median 0", median_values, SAME, 0, 0, 0, 1, 1), ON(reduce_configs)}};
static const op_t other_mode[] = {
    {ROWOP("mode 0", mode, I64, 0), ON(deep_configs)},
    {ROWOP("mode -1 keep", mode, I64, -1, 1), ON(reduce_configs)}};
static const config_t scan_configs[] = {{{S2(3, 4), S2(3, 4)}}, {{S1(1), S1(1)}}, {{S1(9), S1(9)}},
                                        {{S3(2, 3, 2), S3(2, 3, 2)}}, {{S2(3, 0), S2(3, 0)}}};
static const config_t search_configs[] = {{{S2(3, 4), S2(3, 5)}}, {{S1(1), S0}}, {{S1(9), S2(5, 7)}}, {{S1(0), S1(3)}},
                                          {{S3(2, 3, 7), S3(2, 3, 2)}}, {{S1(300), S1(3000)}}};
#undef ROWOP
#define ROWOP(title, fn, r, reference, ...) .label = title, .call = call_##fn, .ref = reference, .nin = 2,   \
    .rule = r, .p = {__VA_ARGS__}
static const op_t other_linear_scan[] = {
    {ROWOP("linear_scan", linear_scan, ONLY_FLOAT, ref_rows, -1), .lo = -1.2, .hi = 1.2, .half = 100,
     ON(scan_configs)},
    {ROWOP("linear_scan back", linear_scan, ONLY_FLOAT, ref_rows, -1, 0, 1), .lo = -1.2, .hi = 1.2, .half = 100,
     ON(scan_configs)}};
static const op_t other_searchsorted[] = {
    {ROWOP("searchsorted", searchsorted, I64, ref_searchsorted, -1), ON(search_configs)},
    {ROWOP("searchsorted right", searchsorted, I64, ref_searchsorted, -1, 0, 1), ON(search_configs)}};
// clang-format on

// -- matrix products --

CALL2(matmul, ) CALL2(mm, ) CALL2(bmm, ) CALL2(mv, ) CALL2(dot, ) CALL2(outer, ) call_name(addmm) {
    (void)n, (void)user;
    return tensor_addmm(in[2], in[0], in[1], 3, 2);
}
static void ref_matmul(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *a = &in[0], *b = &in[1];
    int64_t d[MAXD], m = a->nd > 1 ? a->d[a->nd - 2] : 1, kk = a->d[a->nd - 1],
                     n = b->nd > 1 ? b->d[b->nd - 1] : 1, k, i, j, t;
    int nd = 0, dtype = out->dtype, l;
    nd_t batch, pa = *a, pb = *b;
    if (op->p[0] == 1) kk = 1, m = a->d[0], n = b->d[0]; // outer
    pa.nd = a->nd > 2 ? a->nd - 2 : 0, pb.nd = b->nd > 2 ? b->nd - 2 : 0;
    batch.nd = pa.nd > pb.nd ? pa.nd : pb.nd;
    batch.n = 1;
    for (l = 0; l < batch.nd; l++) {
        int la = l - (batch.nd - pa.nd), lb = l - (batch.nd - pb.nd);
        int64_t da = la >= 0 ? a->d[la] : 1, db = lb >= 0 ? b->d[lb] : 1;
        batch.n *= batch.d[l] = d[nd++] = da == 1 ? db : da;
    }
    if (a->nd > 1 || op->p[0] == 1) d[nd++] = m;
    if (b->nd > 1 || op->p[0] == 1) d[nd++] = n;
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < batch.n; k++) {
        int64_t oa = nd_at(&batch, &pa, k) * m * kk, ob = nd_at(&batch, &pb, k) * kk * n;
        for (i = 0; i < m; i++)
            for (j = 0; j < n; j++) {
                double s = 0;
                for (t = 0; t < kk; t++) s += a->v[oa + i * kk + t] * b->v[ob + t * n + j];
                if (op->nin == 3) s = 2 * s + 3 * in[2].v[nd_at(out, &in[2], i * n + j)];
                out->v[(k * m + i) * n + j] = s;
                out->i[(k * m + i) * n + j] = dtype == TENSOR_BOOL ? s != 0 : (int64_t)s;
            }
    }
}
static const config_t matmul_configs[] = {{{S2(3, 4), S2(4, 2)}},
                                          {{S1(5), S1(5)}},
                                          {{S1(4), S2(4, 3)}},
                                          {{S2(3, 4), S1(4)}},
                                          {{S2(1, 1), S2(1, 1)}},
                                          {{S2(17, 33), S2(33, 9)}},
                                          {{S2(65, 70), S2(70, 67)}},
                                          {{S3(2, 3, 4), S3(2, 4, 2)}},
                                          {{S3(2, 3, 4), S2(4, 5)}},
                                          {{S2(3, 4), S3(2, 4, 2)}},
                                          {{S4(2, 1, 3, 4), S3(3, 4, 2)}},
                                          {{S3(2, 3, 4), S1(4)}},
                                          {{S1(4), S3(2, 4, 3)}},
                                          {{S2(0, 4), S2(4, 3)}},
                                          {{S2(3, 0), S2(0, 3)}},
                                          {{S3(0, 3, 4), S3(0, 4, 2)}},
                                          {{S2(1, 64), S2(64, 50)}},
                                          {{S2(50, 64), S2(64, 1)}},
                                          {{S2(2, 300), S2(300, 3)}}};
static const config_t mm_configs[] = {{{S2(3, 4), S2(4, 2)}}, {{S2(7, 5), S2(5, 6)}}, {{S2(0, 4), S2(4, 2)}}};
static const config_t bmm_configs[] = {{{S3(2, 3, 4), S3(2, 4, 2)}}, {{S3(5, 7, 9), S3(5, 9, 3)}}};
static const config_t mv_configs[] = {{{S2(3, 4), S1(4)}}, {{S2(33, 65), S1(65)}}};
static const config_t dot_configs[] = {{{S1(4), S1(4)}}, {{S1(257), S1(257)}}, {{S1(0), S1(0)}}};
static const config_t outer_configs[] = {{{S1(4), S1(3)}}, {{S1(17), S1(1)}}};
static const config_t addmm_configs[] = {{{S2(3, 4), S2(4, 2), S2(3, 2)}},
                                         {{S2(3, 4), S2(4, 2), S1(2)}},
                                         {{S2(3, 4), S2(4, 5), S2(3, 1)}},
                                         {{S2(33, 40), S2(40, 35), S1(35)}}};
static const op_t other_matmul[] = {{.label = "matmul",
                                     .call = call_matmul,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = NUMBERS,
                                     .atol = 100,
                                     .flags = NO_BITS,
                                     ON(matmul_configs)},
                                    {.label = "mm",
                                     .call = call_mm,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = NUMBERS,
                                     .atol = 100,
                                     .flags = NO_BITS,
                                     ON(mm_configs)},
                                    {.label = "bmm",
                                     .call = call_bmm,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = NUMBERS,
                                     .atol = 100,
                                     .flags = NO_BITS,
                                     ON(bmm_configs)},
                                    {.label = "mv",
                                     .call = call_mv,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = NUMBERS,
                                     .atol = 100,
                                     .flags = NO_BITS,
                                     ON(mv_configs)},
                                    {.label = "dot",
                                     .call = call_dot,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = NUMBERS,
                                     .atol = 200,
                                     .flags = NO_BITS,
                                     ON(dot_configs)},
                                    {.label = "outer",
                                     .call = call_outer,
                                     .ref = ref_matmul,
                                     .nin = 2,
                                     .rule = SAME,
                                     .p = {1},
                                     ON(outer_configs)},
                                    {.label = "addmm",
                                     .call = call_addmm,
                                     .ref = ref_matmul,
                                     .nin = 3,
                                     .rule = NUMBERS,
                                     .atol = 300,
                                     .half = 40000,
                                     .flags = NO_BITS,
                                     ON(addmm_configs)}};

// -- views: out[k] is in[place(k)] --

enum {
    V_PERMUTE,
    V_TRANSPOSE,
    V_MT,
    V_MOVEDIM,
    V_RESHAPE,
    V_FLATTEN,
    V_UNSQUEEZE,
    V_SQUEEZE,
    V_EXPAND,
    V_NARROW,
    V_SELECT,
    V_SLICE,
    V_AT,
    V_AS_STRIDED,
    V_REPEAT,
    V_TRIL,
    V_TRIU,
    V_FILL,
    V_SPLIT,
    V_CHUNK
};
call_name(view) {
    tensor_t *x = in[0], *part[8];
    int64_t d[MAXD], s[MAXD];
    int nd = tensor_ndim(x), k;
    (void)n;
    switch (P(5)) {
    case V_PERMUTE:
        for (k = 0; k < nd; k++) d[k] = (k + 1) % nd;
        return tensor_permute_n(x, d, nd);
    case V_TRANSPOSE: return tensor_transpose(x, P(0), P(1));
    case V_MT: return tensor_mT(x);
    case V_MOVEDIM: return tensor_movedim(x, P(0), P(1));
    case V_RESHAPE: d[0] = -1, d[1] = 1, d[2] = P(0); return tensor_reshape_n(x, d, 3);
    case V_FLATTEN: return tensor_flatten(x, P(0), P(1));
    case V_UNSQUEEZE: return tensor_unsqueeze(x, P(0));
    case V_SQUEEZE: return tensor_squeeze(x, P(0));
    case V_EXPAND:
        d[0] = 2;
        for (k = 0; k < nd; k++) d[k + 1] = tensor_size(x, k) == 1 ? 3 : -1;
        return tensor_expand_n(x, d, nd + 1);
    case V_REPEAT:
        d[0] = 2;
        for (k = 0; k < nd; k++) d[k + 1] = k % 2 ? 3 : 1;
        return tensor_repeat_n(x, d, nd + 1);
    case V_NARROW: return tensor_narrow(x, P(0), P(1), P(2));
    case V_SELECT: return tensor_select(x, P(0), P(1));
    case V_SLICE: return tensor_slice(x, P(0), P(1), P(2), P(3));
    case V_AT: return tensor_at(x, "..., 1, None, ::2");
    case V_AS_STRIDED:
        d[0] = 3, d[1] = 3, s[0] = 1, s[1] = 2;
        return tensor_as_strided(tensor_clone(x), d, s, 2, 1);
    case V_TRIL: return tensor_tril(x, P(0));
    case V_TRIU: return tensor_triu(x, P(0));
    case V_FILL: return tensor_fill_(tensor_clone(x), 2);
    case V_SPLIT:
        k = tensor_split(x, P(1), P(0), part, 8);
        return k ? tensor_add(part[0], part[k - 1]) : tensor_add(part[0], part[0]);
    default: k = tensor_chunk(x, 2, P(0), part, 8); return k ? part[k - 1] : part[0];
    }
}
static void ref_view(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t d[MAXD], k, strides[MAXD], os[MAXD], base = 0, zero = 0;
    int nd = x->nd, i, dtype = out->dtype, kind = (int)op->p[5];
    int64_t dim = op->p[0] < 0 ? op->p[0] + x->nd : op->p[0], b = op->p[1], add = -1;
    for (i = x->nd - 1, k = 1; i >= 0; i--) strides[i] = k, k *= x->d[i];
    for (i = 0; i < nd; i++) d[i] = x->d[i], os[i] = strides[i];
    switch (kind) {
    case V_PERMUTE:
        for (i = 0; i < nd; i++) d[i] = x->d[(i + 1) % nd], os[i] = strides[(i + 1) % nd];
        break;
    case V_TRANSPOSE:
    case V_MT:
        if (kind == V_MT) dim = nd - 1, b = nd - 2;
        if (b < 0) b += nd;
        d[dim] = x->d[b], os[dim] = strides[b], d[b] = x->d[dim], os[b] = strides[dim];
        break;
    case V_MOVEDIM: {
        int to = (int)(b < 0 ? b + nd : b), from = (int)dim, j = 0;
        for (i = 0; i < nd; i++) {
            if (i == to) {
                d[i] = x->d[from], os[i] = strides[from];
                continue;
            }
            if (j == from) j++;
            d[i] = x->d[j], os[i] = strides[j++];
        }
        break;
    }
    case V_RESHAPE: nd = 3, d[0] = x->n / dim, d[1] = 1, d[2] = dim, os[0] = dim, os[1] = 0, os[2] = 1; break;
    case V_FLATTEN: {
        int e = (int)(b < 0 ? b + x->nd : b), j = 0;
        for (i = 0; i < x->nd; i++) {
            if (i > dim && i <= e)
                d[j - 1] *= x->d[i], os[j - 1] = strides[i];
            else
                d[j] = x->d[i], os[j++] = strides[i];
        }
        nd = j;
        break;
    }
    case V_UNSQUEEZE:
        dim = op->p[0] < 0 ? op->p[0] + x->nd + 1 : op->p[0];
        for (i = nd; i > dim; i--) d[i] = d[i - 1], os[i] = os[i - 1];
        d[dim] = 1, os[dim] = 0, nd++;
        break;
    case V_SQUEEZE:
        if (x->d[dim] == 1) {
            for (i = (int)dim; i < nd - 1; i++) d[i] = d[i + 1], os[i] = os[i + 1];
            nd--;
        }
        break;
    case V_EXPAND:
        for (i = 0; i < nd; i++)
            d[i + 1] = x->d[i] == 1 ? 3 : x->d[i], os[i + 1] = x->d[i] == 1 ? 0 : strides[i];
        d[0] = 2, os[0] = 0, nd++;
        break;
    case V_REPEAT:
        for (i = 0; i < nd; i++) d[i + 1] = x->d[i] * (i % 2 ? 3 : 1);
        d[0] = 2, nd++;
        break;
    case V_NARROW: d[dim] = op->p[2], base = b * strides[dim]; break;
    case V_SELECT:
        base = (b < 0 ? b + x->d[dim] : b) * strides[dim];
        for (i = (int)dim; i < nd - 1; i++) d[i] = d[i + 1], os[i] = os[i + 1];
        nd--;
        break;
    case V_SLICE: {
        int64_t s = b < 0 ? b + x->d[dim] : b, e = op->p[2] < 0 ? op->p[2] + x->d[dim] : op->p[2];
        if (s < 0) s = 0;
        if (e > x->d[dim]) e = x->d[dim];
        if (s > e) e = s;
        d[dim] = (e - s + op->p[3] - 1) / op->p[3], os[dim] *= op->p[3], base = s * strides[dim];
        break;
    }
    case V_AT: // "..., 1, None, ::2"
        base = strides[nd - 2];
        d[nd - 2] = 1, os[nd - 2] = 0;
        d[nd - 1] = (x->d[nd - 1] + 1) / 2, os[nd - 1] = 2;
        break;
    case V_AS_STRIDED: nd = 2, d[0] = d[1] = 3, os[0] = 1, os[1] = 2, base = 1; break;
    case V_SPLIT: {
        int64_t parts = (x->d[dim] + b - 1) / b;
        d[dim] = b, add = (parts - 1) * b * strides[dim];
        break;
    }
    case V_CHUNK: {
        int64_t per = (x->d[dim] + 1) / 2;
        base = x->d[dim] > per ? per * strides[dim] : 0, d[dim] = x->d[dim] > per ? x->d[dim] - per : per;
        break;
    }
    default: break;
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int64_t rest = k, at = base, idx[MAXD] = {0};
        for (i = nd - 1; i >= 0; i--) {
            idx[i] = rest % d[i];
            rest /= d[i];
            if (kind == V_REPEAT)
                at += i ? idx[i] % x->d[i - 1] * strides[i - 1] : 0;
            else
                at += idx[i] * os[i];
        }
        zero = (kind == V_TRIL && idx[nd - 1] > idx[nd - 2] + op->p[0]) ||
               (kind == V_TRIU && idx[nd - 1] < idx[nd - 2] + op->p[0]);
        out->v[k] = zero ? 0 : x->v[at];
        out->i[k] = zero ? 0 : x->i[at];
        if (kind == V_FILL) out->v[k] = 2, out->i[k] = 2;
        if (add >= 0) out->v[k] += x->v[at + add], out->i[k] += x->i[at + add];
    }
}
// clang-format off
#define VIEWOP(title, kind, ...) .label = title, .call = call_view, .ref = ref_view, .nin = 1, .p =          \
    {__VA_ARGS__, kind}
static const config_t view_configs[] = {{{S2(3, 4)}}, {{S3(4, 3, 2)}}, {{S3(2, 1, 4)}},
    {{S4(2, 3, 1, 4)}}, {{S2(6, 8)}}};
static const config_t view3_configs[] = {{{S3(4, 3, 2)}}, {{S3(3, 1, 4)}}, {{S3(5, 4, 4)}}};
static const config_t at_configs[] = {{{S2(3, 4)}}, {{S3(4, 3, 2)}}, {{S3(5, 4, 7)}}};
static const config_t split_configs[] = {{{S2(4, 3)}}, {{S3(2, 3, 2)}}, {{S2(6, 8)}}};
static const config_t square_configs[] = {{{S2(4, 4)}}, {{S2(3, 5)}}, {{S3(2, 4, 3)}}, {{S2(1, 1)}},
    {{S2(0, 3)}}};
static const op_t other_permute[] = {
    {VIEWOP("permute", V_PERMUTE, 0, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("transpose", V_TRANSPOSE, 0, -1, 0, 0, 0), ON(view_configs)},
    {VIEWOP("mT", V_MT, 0, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("movedim 0 -1", V_MOVEDIM, 0, -1, 0, 0, 0), ON(view_configs)},
    {VIEWOP("movedim -1 0", V_MOVEDIM, -1, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("movedim 2 1", V_MOVEDIM, 2, 1, 0, 0, 0), ON(view3_configs)}};
static const op_t other_reshape[] = {
    {VIEWOP("reshape", V_RESHAPE, 2, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("flatten 0 -1", V_FLATTEN, 0, -1, 0, 0, 0), ON(view_configs)},
    {VIEWOP("flatten 1 2", V_FLATTEN, 1, 2, 0, 0, 0), ON(view3_configs)},
    {VIEWOP("unsqueeze 1", V_UNSQUEEZE, 1, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("unsqueeze -1", V_UNSQUEEZE, -1, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("squeeze 1", V_SQUEEZE, 1, 0, 0, 0, 0), ON(view_configs)}};
static const op_t other_expand[] = {
    {VIEWOP("expand", V_EXPAND, 0, 0, 0, 0, 0), ON(view_configs)},
    {VIEWOP("repeat", V_REPEAT, 0, 0, 0, 0, 0), ON(view_configs)}};
static const op_t other_slice[] = {
    {VIEWOP("slice", V_SLICE, 0, 1, 9, 2, 0), ON(view_configs)},
    {VIEWOP("slice negative", V_SLICE, -1, -3, -1, 1, 0), ON(view_configs)},
    {VIEWOP("narrow", V_NARROW, 0, 1, 1, 0, 0), ON(view_configs)},
    {VIEWOP("select", V_SELECT, -1, -1, 0, 0, 0), ON(view_configs)},
    {VIEWOP("select 0", V_SELECT, 0, 1, 0, 0, 0), ON(view_configs)},
    {VIEWOP("at", V_AT, 0, 0, 0, 0, 0), ON(at_configs)},
    {VIEWOP("split", V_SPLIT, 0, 2, 0, 0, 0), ON(split_configs)},
    {VIEWOP("chunk", V_CHUNK, 1, 0, 0, 0, 0), ON(view_configs)}};
static const op_t other_slice_backward[] = {        // reached by its second order
    {VIEWOP("slice twice", V_SLICE, 0, 1, 9, 2, 0), ON(view_configs)}};
static const op_t other_as_strided[] = {
    {VIEWOP("as_strided", V_AS_STRIDED, 0, 0, 0, 0, 0), ON(view_configs)}};
static const op_t other_as_strided_backward[] = {
    {VIEWOP("as_strided overlapping", V_AS_STRIDED, 0, 0, 0, 0, 0), ON(view3_configs)}};
static const op_t other_tril[] = {
    {VIEWOP("tril 0", V_TRIL, 0, 0, 0, 0, 0), ON(square_configs)},
    {VIEWOP("tril 1", V_TRIL, 1, 0, 0, 0, 0), ON(square_configs)},
    {VIEWOP("tril -2", V_TRIL, -2, 0, 0, 0, 0), ON(square_configs)}};
static const op_t other_triu[] = {
    {VIEWOP("triu 0", V_TRIU, 0, 0, 0, 0, 0), ON(square_configs)},
    {VIEWOP("triu 1", V_TRIU, 1, 0, 0, 0, 0), ON(square_configs)},
    {VIEWOP("triu -2", V_TRIU, -2, 0, 0, 0, 0), ON(square_configs)}};
static const op_t other_fill[] = {
    {VIEWOP("fill_", V_FILL, 0, 0, 0, 0, 0), ON(square_configs)}};
// clang-format on

// -- joining, indexing --

REDUCE1(cat, (tensor_cat_n)(in, 3, P(0)))
REDUCE1(stack, (tensor_stack_n)(in, 2, P(0)))
REDUCE1(index_select, tensor_index_select(in[0], P(0), in[1]))
REDUCE1(index_add, tensor_index_add(in[0], P(0), in[1], in[2]))
call_name(take) {
    (void)n, (void)user;
    return tensor_take(in[0], in[1]);
}
REDUCE1(index_copy, tensor_index_copy(in[0], P(0), in[1], in[2]))
REDUCE1(scatter_reduce, tensor_scatter_reduce(in[0], P(0), in[1], in[2], "amax", 1))
REDUCE1(gather, tensor_gather(in[0], P(0), in[1]))
REDUCE1(scatter_add, tensor_scatter_add(in[0], P(0), in[1], in[2]))
REDUCE1(scatter, tensor_scatter(in[0], P(0), in[1], in[2]))
// x[i] = src along dim 0 with the indices 1, 2, .. (no place twice, so that the gradient is defined).
call_name(scatter_once) {
    tensor_t *index = tensor_expand(tensor_reshape(tensor_arange(1, 3, 1, TENSOR_I64), 2, 1), 2, 4);
    (void)n;
    return tensor_scatter(in[0], P(0), index, in[1]);
}
call_name(copy_once) {
    (void)n;
    return tensor_index_copy(in[0], P(0), tensor_arange(1, 3, 1, TENSOR_I64), in[1]);
}
call_name(scatter_view) {
    static const int64_t d[2] = {2, 2}, s[2] = {4, 2};
    (void)n, (void)user;
    return tensor_as_strided_scatter(in[0], in[1], d, s, 2, 1);
}
call_name(masked_select) {
    tensor_t *mask;
    (void)n, (void)user;
    if (!in[0] || in[0]->state != TENSOR__LIVE) return tensor_masked_select(in[0], in[0]);
    mask = tensor_eq_scalar(
        tensor_remainder_scalar(tensor_reshape_n(tensor_arange(0, (double)tensor_numel(in[0]), 1, TENSOR_I64),
                                                 in[0]->dims, in[0]->ndim),
                                3),
        1);
    return tensor_masked_select(in[0], mask);
}
call_name(masked_fill) {
    (void)n, (void)user;
    return tensor_masked_fill(in[0], in[1], 1);
}

static void ref_cat(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t d[MAXD], k, at = 0;
    int i, t, dtype = out->dtype, nd = in[0].nd + (op->p[1] != 0),
              dim = (int)(op->p[0] < 0 ? op->p[0] + nd : op->p[0]);
    for (i = 0; i < nd; i++) {
        int from = op->p[1] && i > dim ? i - 1 : i;
        d[i] = i == dim && op->p[1] ? op->nin : in[0].d[from];
        if (i == dim && !op->p[1])
            for (t = 1; t < op->nin; t++) d[i] += in[t].d[i];
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (t = 0; t < op->nin; t++) {
        int64_t inner = 1, len = op->p[1] ? 1 : in[t].d[dim], step;
        for (i = dim + 1; i < nd; i++) inner *= d[i];
        step = len * inner;
        for (k = 0; k < in[t].n; k++) {
            int64_t to = k / step * d[dim] * inner + at * inner + k % step;
            out->v[to] = in[t].v[k], out->i[to] = in[t].i[k];
        }
        at += len;
    }
}
// The five ops along dim with an index; for rows the index counts along dim only.
static void ref_index(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0], *index = &in[1], *src = &in[2];
    int dtype = out->dtype, dim = (int)(op->p[0] < 0 ? op->p[0] + x->nd : op->p[0]), i;
    int takes = op->id == TENSOR_OP_INDEX_SELECT || op->id == TENSOR_OP_GATHER || op->id == TENSOR_OP_INDEX;
    int rows = (takes && op->id != TENSOR_OP_GATHER) || op->id == TENSOR_OP_INDEX_ADD ||
               op->id == TENSOR_OP_INDEX_COPY;
    nd_t walk = *x;
    int64_t k;
    for (i = 0, walk.n = 1; i < x->nd; i++) {
        walk.d[i] = rows ? (i == dim ? index->d[0] : x->d[i]) : index->d[i];
        walk.n *= walk.d[i];
    }
    nd_make(out, x->nd, takes ? walk.d : x->d);
    out->dtype = dtype;
    if (!takes)
        memcpy(out->v, x->v, (size_t)x->n * sizeof *x->v), memcpy(out->i, x->i, (size_t)x->n * sizeof *x->i);
    for (k = 0; k < walk.n; k++) {
        int64_t idx[MAXD], rest = k, ix = 0, at = 0, from = 0, v;
        for (i = x->nd - 1; i >= 0; i--) idx[i] = rest % walk.d[i], rest /= walk.d[i];
        for (i = 0; i < x->nd; i++) ix = rows ? idx[dim] : ix * index->d[i] + idx[i];
        v = index->i[ix];
        for (i = 0; i < x->nd; i++) {
            at = at * x->d[i] + (i == dim ? v : idx[i]);
            if (!takes) from = from * src->d[i] + idx[i];
        }
        if (takes)
            out->v[k] = x->v[at], out->i[k] = x->i[at];
        else if (op->id == TENSOR_OP_SCATTER || op->id == TENSOR_OP_INDEX_COPY ||
                 (op->id == TENSOR_OP_SCATTER_REDUCE &&
                  (is_float(dtype) ? src->v[from] != src->v[from] || src->v[from] > out->v[at]
                                   : src->i[from] > out->i[at])))
            out->v[at] = src->v[from], out->i[at] = src->i[from];
        else if (op->id == TENSOR_OP_SCATTER_REDUCE)
            continue;
        else
            out->v[at] += src->v[from], out->i[at] = wrap_int(out->i[at] + src->i[from], dtype);
    }
}
// x[i] = src along dim 0 with the indices 1, 2, ..
static void ref_scatter_once(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k;
    int dtype = out->dtype;
    (void)op;
    nd_make(out, 2, in[0].d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int64_t r = k / 4;
        const nd_t *from = r == 1 || r == 2 ? &in[1] : &in[0];
        int64_t at = r == 1 || r == 2 ? (r - 1) * in[1].d[1] + k % 4 : k;
        out->v[k] = from->v[at], out->i[k] = from->i[at];
    }
}
static void ref_scatter_view(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k;
    int dtype = out->dtype;
    (void)op;
    nd_make(out, in[0].nd, in[0].d);
    out->dtype = dtype;
    memcpy(out->v, in[0].v, (size_t)out->n * sizeof *out->v),
        memcpy(out->i, in[0].i, (size_t)out->n * sizeof *out->i);
    for (k = 0; k < 4; k++)
        out->v[1 + k / 2 * 4 + k % 2 * 2] = in[1].v[k], out->i[1 + k / 2 * 4 + k % 2 * 2] = in[1].i[k];
}
static void ref_masked_select(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k, n = 0, d;
    int dtype = out->dtype;
    (void)op;
    d = (in[0].n + 1) / 3;
    nd_make(out, 1, &d);
    out->dtype = dtype;
    for (k = 1; k < in[0].n; k += 3, n++) out->v[n] = in[0].v[k], out->i[n] = in[0].i[k];
}
static void ref_masked_fill(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k;
    int dtype = out->dtype;
    (void)op;
    nd_make(out, in[0].nd, in[0].d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int mask = in[1].i[nd_at(out, &in[1], k)] != 0;
        out->v[k] = mask ? 1 : in[0].v[k], out->i[k] = mask ? 1 : in[0].i[k];
    }
}
static const config_t cat0_configs[] = {
    {{S2(3, 4), S2(1, 4), S2(2, 4)}}, {{S1(3), S1(0), S1(2)}}, {{S3(1, 2, 3), S3(2, 2, 3), S3(1, 2, 3)}}};
static const config_t cat1_configs[] = {{{S2(3, 4), S2(3, 1), S2(3, 2)}},
                                        {{S3(2, 2, 3), S3(2, 2, 1), S3(2, 2, 2)}}};
static const config_t stack_configs[] = {
    {{S2(3, 4), S2(3, 4)}}, {{S1(5), S1(5)}}, {{S3(2, 2, 3), S3(2, 2, 3)}}};
static const config_t select0_configs[] = {
    {{S2(3, 4), S1(5)}}, {{S1(7), S1(3)}}, {{S3(4, 3, 2), S1(2)}}, {{S2(3, 4), S1(0)}}};
static const config_t select1_configs[] = {{{S2(3, 4), S1(5)}}, {{S3(4, 3, 2), S1(2)}}};
static const config_t add0_configs[] = {
    {{S2(3, 4), S1(5), S2(5, 4)}}, {{S1(7), S1(3), S1(3)}}, {{S3(4, 3, 2), S1(2), S3(2, 3, 2)}}};
static const config_t add1_configs[] = {{{S2(3, 4), S1(5), S2(3, 5)}}, {{S3(4, 3, 2), S1(2), S3(4, 2, 2)}}};
static const config_t gather0_configs[] = {
    {{S2(3, 4), S2(5, 4)}}, {{S2(3, 4), S2(2, 3)}}, {{S1(7), S1(3)}}, {{S3(4, 3, 2), S3(2, 3, 1)}}};
static const config_t gather1_configs[] = {{{S2(3, 4), S2(3, 6)}}, {{S3(4, 3, 2), S3(4, 5, 2)}}};
static const config_t scatter0_configs[] = {
    {{S2(3, 4), S2(5, 4), S2(5, 4)}}, {{S2(3, 4), S2(2, 3), S2(4, 4)}}, {{S1(7), S1(3), S1(3)}}};
static const config_t scatter1_configs[] = {{{S2(3, 4), S2(3, 6), S2(3, 6)}},
                                            {{S3(4, 3, 2), S3(4, 5, 2), S3(4, 5, 2)}}};
static const config_t once_configs[] = {{{S2(3, 4), S2(2, 4)}}, {{S2(4, 4), S2(3, 5)}}};
static const config_t take_configs[] = {{{S1(3), S1(5)}}, {{S1(7), S1(3)}}, {{S1(4), S1(0)}}};
static const config_t copy_configs[] = {{{S2(3, 4), S2(2, 4)}}, {{S2(4, 4), S2(2, 4)}}};
static const config_t scatter_view_configs[] = {{{S2(3, 4), S2(2, 2)}}};
static const config_t masked_configs[] = {{{S2(3, 4)}}, {{S1(17)}}, {{S3(4, 3, 2)}}, {{S1(1)}}};
static const config_t masked_fill_configs[] = {{{S2(3, 4), S2(3, 4)}}, {{S2(3, 4), S1(4)}}, {{S2(3, 4), S0}}};
// clang-format off
#define XOP(title, fn, reference, count, ...) .label = title, .call = call_##fn, .ref = reference, .nin =    \
    count, .p = {__VA_ARGS__}
static const op_t other_cat[] = {
    {XOP("cat 0", cat, ref_cat, 3, 0), ON(cat0_configs)},
    {XOP("cat -1", cat, ref_cat, 3, -1), ON(cat1_configs)},
    {XOP("stack 0", stack, ref_cat, 2, 0, 1), ON(stack_configs)},
    {XOP("stack 1", stack, ref_cat, 2, 1, 1), ON(stack_configs)}};
static const op_t other_index_select[] = {
    {XOP("index_select 0", index_select, ref_index, 2, 0), .index = 1, ON(select0_configs)},
    {XOP("index_select 1", index_select, ref_index, 2, 1), .index = 1, ON(select1_configs)}};
static const op_t other_index[] = {
    {XOP("take", take, ref_index, 2, 0), .index = 1, ON(take_configs)}};
static const op_t other_index_copy[] = {
    {XOP("index_copy 0", index_copy, ref_index, 3, 0), .index = 1, .flags = NO_GRAD, ON(add0_configs)},
    {XOP("index_copy 1", index_copy, ref_index, 3, 1), .index = 1, .flags = NO_GRAD, ON(add1_configs)},
    {XOP("index_copy once", copy_once, ref_scatter_once, 2, 0), ON(copy_configs)}};
static const op_t other_scatter_reduce[] = {
    {XOP("scatter_reduce 0", scatter_reduce, ref_index, 3, 0), .index = 1, ON(scatter0_configs)},
    {XOP("scatter_reduce 1", scatter_reduce, ref_index, 3, 1), .index = 1, ON(scatter1_configs)}};
static const op_t other_index_add[] = {
    {XOP("index_add 0", index_add, ref_index, 3, 0), .index = 1, .half = 3000, ON(add0_configs)},
    {XOP("index_add 1", index_add, ref_index, 3, 1), .index = 1, .half = 3000, ON(add1_configs)}};
static const op_t other_gather[] = {
    {XOP("gather 0", gather, ref_index, 2, 0), .index = 1, ON(gather0_configs)},
    {XOP("gather 1", gather, ref_index, 2, 1), .index = 1, ON(gather1_configs)}};
static const op_t other_scatter_add[] = {
    {XOP("scatter_add 0", scatter_add, ref_index, 3, 0), .index = 1, .half = 3000, ON(scatter0_configs)},
    {XOP("scatter_add 1", scatter_add, ref_index, 3, 1), .index = 1, .half = 3000, ON(scatter1_configs)}};
static const op_t other_scatter[] = {
    {XOP("scatter 0", scatter, ref_index, 3, 0), .index = 1, .flags = NO_GRAD, ON(scatter0_configs)},
    {XOP("scatter 1", scatter, ref_index, 3, 1), .index = 1, .flags = NO_GRAD, ON(scatter1_configs)},
    {XOP("scatter once", scatter_once, ref_scatter_once, 2, 0), ON(once_configs)}};
static const op_t other_as_strided_scatter[] = {
    {XOP("as_strided_scatter", scatter_view, ref_scatter_view, 2, 0), ON(scatter_view_configs)}};
static const op_t other_nonzero[] = {
    {XOP("masked_select", masked_select, ref_masked_select, 1, 0), ON(masked_configs)},
    {XOP("masked_fill", masked_fill, ref_masked_fill, 2, 0), .mask = 2, ON(masked_fill_configs)}};
// clang-format on

// -- rows without inputs, random rows, custom functions: by hand --

static int special_arange(void) {
    tensor_t *t = tensor_arange(1, 1.3, 0.1, TENSOR_F64);
    int dtype;
    CHECK(tensor_numel(t) == 4); // rounding, as PyTorch
    CHECK_NEAR(((const double *)tensor_data(t))[3], 1.3, 1e-15);
    t = tensor_arange(5, -1, -2, TENSOR_I64);
    CHECK(tensor_numel(t) == 3 && ((const int64_t *)tensor_data(t))[2] == 1);
    CHECK(tensor_numel(tensor_arange(0, 0, 1, TENSOR_F32)) == 0);
    for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++) {
        nd_t a;
        t = tensor_arange(0, 2, 1, (tensor_dtype_t)dtype);
        nd_read(&a, t);
        CHECK_MSG(a.n == 2 && a.v[0] == 0 && a.v[1] == 1 && a.dtype == dtype, "arange %s", dname(dtype));
        nd_free(&a);
        n_values++;
    }
    CHECK_POISON(tensor_arange(0, 1, 0, TENSOR_F32), TENSOR_ERR_SHAPE, "arange: step 0");
    CHECK_POISON(tensor_arange(0, 1, -1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange: step");
    CHECK_POISON(tensor_arange(0, NAN, 1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange");
    CHECK_POISON(tensor_arange(0, INFINITY, 1, TENSOR_F32), TENSOR_ERR_SHAPE, "arange");
    CHECK_POISON(tensor_arange(0, 1, 1, (tensor_dtype_t)77), TENSOR_ERR_DTYPE, "77");
    t = tensor_linspace(-1, 2, 4);
    CHECK(((const float *)tensor_data(t))[0] == -1 && ((const float *)tensor_data(t))[1] == 0 &&
          ((const float *)tensor_data(t))[3] == 2);
    CHECK(tensor_numel(tensor_linspace(0, 1, 0)) == 0 && tensor_item(tensor_linspace(3, 9, 1)) == 3);
    CHECK_POISON(tensor_linspace(0, 1, -1), TENSOR_ERR_SHAPE, "linspace");
    t = tensor_eye(2, 3);
    CHECK(tensor_size(t, 1) == 3 && tensor_item(tensor_sum(t)) == 2 &&
          ((const float *)tensor_data(t))[4] == 1);
    CHECK_POISON(tensor_eye(-1, 2), TENSOR_ERR_SHAPE, "eye");
    n_values += 6, n_errors += 7;
    return 0;
}
// The first numbers of each distribution after tensor_manual_seed(42), prefix property, threads.
typedef tensor_t *(*draw_t)(int64_t n);
static tensor_t *draw_rand(int64_t n) { return tensor_rand(n); }
static tensor_t *draw_randn(int64_t n) { return tensor_randn(n); }
static tensor_t *draw_randint(int64_t n) { return tensor_randint(-5, 100, n); }
static tensor_t *draw_bernoulli(int64_t n) { return tensor_bernoulli(tensor_full(0.25, n)); }
static tensor_t *draw_uniform(int64_t n) { return tensor_uniform_(tensor_empty_of(TENSOR_F64, n), -1, 3); }
static tensor_t *draw_normal(int64_t n) { return tensor_normal_(tensor_empty(n), 2, 0.5); }
static tensor_t *draw_multinomial(int64_t n) {
    return tensor_multinomial(tensor_from(((float[]){1, 0, 3, 4}), TENSOR_F32, 4), n);
}
static void draws(const char *name, draw_t draw, double mean, double deviation) {
    tensor_t *a, *b, *c;
    double m, s;
    nd_t v;
    int64_t k;
    tensor_manual_seed(42);
    a = draw(100003);
    b = draw(7);
    tensor_manual_seed(42);
    c = draw(1001);
    CHECK_MSG(same_bits(tensor_narrow(a, 0, 0, 1001), c), "%s: not a prefix of the longer draw", name);
    CHECK_MSG(same_bits(draw(7), b), "%s: the length of a draw shifts the next", name);
    tensor_set_num_threads(4);
    tensor_manual_seed(42);
    c = draw(100003);
    tensor_set_num_threads(1);
    CHECK_MSG(same_bits(a, c), "%s: 1 and 4 threads differ", name);
    n_threads++;
    for (k = 0; k < COUNT(isas); k++) {
        if (!isa_there[k]) continue;
        tensor_set_cpu(isas[k]);
        tensor_manual_seed(42);
        CHECK_MSG(same_bits(a, draw(100003)), "%s: differs on %s", name, isas[k]);
        n_values++;
    }
    tensor_set_cpu(NULL);
    nd_read(&v, a);
    for (m = s = 0, k = 0; k < v.n; k++) m += v.v[k] / (double)v.n;
    for (k = 0; k < v.n; k++) s += (v.v[k] - m) * (v.v[k] - m) / (double)v.n;
    CHECK_MSG(fabs(m - mean) < 4 * deviation / sqrt((double)v.n), "%s: mean %g, expected %g", name, m, mean);
    CHECK_MSG(fabs(sqrt(s) - deviation) < 0.02 * deviation, "%s: deviation %g, expected %g", name, sqrt(s),
              deviation);
    nd_free(&v);
}
static int special_rand(void) {
    static const struct {
        uint64_t seed, stream, block;
        uint32_t out[4];
    } kat[] = {{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
               {~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
               // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0, low words first
               {0x299f31d0a4093822u,
                0x0370734413198a2eu,
                0x85a308d3243f6a88u,
                {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    uint32_t w[4];
    tensor_t *t;
    int k;
    for (k = 0; k < COUNT(kat); k++) {
        tensor__philox(kat[k].seed, kat[k].stream, kat[k].block, w);
        CHECK_MSG(memcmp(w, kat[k].out, sizeof w) == 0, "philox known answer %d", k);
        n_values++;
    }
    // seed 0, stream 0: the first known answer is the first block of rand
    tensor_manual_seed(0);
    t = tensor_rand(4);
    for (k = 0; k < 4; k++)
        CHECK(((const float *)tensor_data(t))[k] == (float)(kat[0].out[k] >> 8) * 5.9604644775390625e-8f);
    draws("rand", draw_rand, 0.5, sqrt(1 / 12.0));
    draws("uniform_", draw_uniform, 1, 4 * sqrt(1 / 12.0));
    {
        tensor_generator_t g;
        tensor_manual_seed(7);
        tensor_rand(3);
        g = tensor_get_generator();
        CHECK(g.seed == 7 && g.offset == 1);
        t = tensor_rand(5);
        tensor_set_generator(g);
        CHECK(same_bits(t, tensor_rand(5)));
        CHECK(tensor_item(tensor_max(tensor_rand(100000))) < 1 &&
              tensor_item(tensor_min(tensor_rand(100000))) >= 0);
        CHECK(tensor_numel(tensor_rand(0)) == 0);
        CHECK_POISON(tensor_rand(-1), TENSOR_ERR_SHAPE, "rand");
        CHECK_POISON(tensor_uniform_(tensor_zeros_of(TENSOR_I64, 2), 0, 1), TENSOR_ERR_DTYPE, "i64");
        CHECK_POISON(tensor_uniform_(tensor_requires_grad_(tensor_zeros(2), 1), 0, 1), TENSOR_ERR_AUTOGRAD,
                     "leaf");
        n_values += 4, n_errors += 3;
    }
    return 0;
}
static int special_randn(void) {
    draws("randn", draw_randn, 0, 1);
    draws("normal_", draw_normal, 2, 0.5);
    CHECK_POISON(tensor_randn(-1), TENSOR_ERR_SHAPE, "randn");
    n_errors++;
    return 0;
}
static int special_randint(void) {
    tensor_t *t;
    draws("randint", draw_randint, 47, sqrt((105.0 * 105 - 1) / 12));
    t = tensor_randint(-5, 100, 100000);
    CHECK(tensor_item_i64(tensor_min(t)) == -5 && tensor_item_i64(tensor_max(t)) == 99);
    CHECK_POISON(tensor_randint(3, 3, 2), TENSOR_ERR_SHAPE, "randint: high 3 must be above low 3");
    t = tensor_randint(INT64_MIN, INT64_MAX, 1000);
    CHECK(tensor_item_i64(tensor_min(t)) < -((int64_t)1 << 60) && tensor_item_i64(tensor_max(t)) > (int64_t)1
                                                                                                       << 60);
    n_errors++, n_values += 2;
    return 0;
}
static int special_randperm(void) {
    tensor_t *a, *b, *c;
    int64_t k, sorted = 0;
    char seen[1000] = {0};
    tensor_manual_seed(5);
    a = tensor_randperm(1000);
    tensor_manual_seed(5);
    b = tensor_randperm(1000);
    c = tensor_randperm(1000);
    CHECK(same_bits(a, b) && !same_bits(a, c));
    for (k = 0; k < 1000; k++) {
        int64_t v = ((const int64_t *)tensor_data(a))[k];
        if (v >= 0 && v < 1000) seen[v]++;
        sorted += v == k;
    }
    CHECK(memchr(seen, 0, 1000) == NULL && sorted < 20);
    CHECK(tensor_numel(tensor_randperm(0)) == 0 && tensor_item_i64(tensor_randperm(1)) == 0);
    CHECK_POISON(tensor_randperm(-1), TENSOR_ERR_SHAPE, "randperm");
    n_values += 3, n_errors++;
    return 0;
}
static int special_bernoulli(void) {
    float p[2] = {0, 1};
    tensor_t *t;
    draws("bernoulli", draw_bernoulli, 0.25, sqrt(0.1875));
    t = tensor_bernoulli(tensor_expand(tensor_from(p, TENSOR_F32, 2), 1000, 2));
    CHECK(tensor_item(tensor_sum(tensor_select(t, 1, 0))) == 0 &&
          tensor_item(tensor_sum(tensor_select(t, 1, 1))) == 1000);
    CHECK_POISON(tensor_bernoulli(tensor_zeros_of(TENSOR_I64, 2)), TENSOR_ERR_DTYPE, "bernoulli");
    CHECK_POISON((tensor_bernoulli)(NULL), TENSOR_ERR_OWNER, "NULL");
    n_values++, n_errors += 2;
    return 0;
}
static tensor_t *draw_poisson(int64_t n) { return tensor_poisson(tensor_full(3.5, n)); }
static tensor_t *draw_poisson_much(int64_t n) { return tensor_poisson(tensor_full(200, n)); }
static int special_poisson(void) {
    draws("poisson", draw_poisson, 3.5, sqrt(3.5));
    draws("poisson 200", draw_poisson_much, 200, sqrt(200));
    CHECK(tensor_item(tensor_sum(tensor_poisson(tensor_zeros(100)))) == 0);
    CHECK_POISON(tensor_poisson(tensor_full(-1, 2)), TENSOR_ERR_INDEX, "poisson: rates [2] must lie in 0..");
    CHECK_POISON(tensor_poisson(tensor_full(NAN, 2)), TENSOR_ERR_INDEX, "poisson");
    CHECK_POISON(tensor_poisson(tensor_zeros_of(TENSOR_I64, 2)), TENSOR_ERR_DTYPE, "poisson");
    n_values++, n_errors += 3;
    return 0;
}
static int special_multinomial(void) {
    float bad[] = {1, -1, 2}, none[] = {0, 0}, nan[] = {1, NAN};
    tensor_t *t;
    draws("multinomial", draw_multinomial, (0 + 3 * 2 + 4 * 3) / 8.0,
          sqrt((6 * 6 * 0 + 3 * 4 + 4 * 9) / 8.0 - 2.25 * 2.25));
    t = tensor_multinomial(tensor_rand(3, 5), 7);
    CHECK(tensor_size(t, 0) == 3 && tensor_size(t, 1) == 7 && tensor_dtype(t) == TENSOR_I64);
    CHECK_POISON(tensor_multinomial(tensor_from(bad, TENSOR_F32, 3), 2), TENSOR_ERR_INDEX, "weight -1");
    CHECK_POISON(tensor_multinomial(tensor_from(none, TENSOR_F32, 2), 2), TENSOR_ERR_INDEX,
                 "no weight above 0");
    CHECK_POISON(tensor_multinomial(tensor_from(nan, TENSOR_F32, 2), 2), TENSOR_ERR_INDEX, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_zeros(2, 0), 2), TENSOR_ERR_INDEX, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_ones_of(TENSOR_I64, 2), 2), TENSOR_ERR_DTYPE, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_scalar(1, TENSOR_F32), 2), TENSOR_ERR_SHAPE, "multinomial");
    CHECK_POISON(tensor_multinomial(tensor_ones(2), -1), TENSOR_ERR_SHAPE, "multinomial");
    n_values++, n_errors += 7;
    return 0;
}
// y = a^2 b by hand, differentiable twice.
static tensor_t *custom_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    tensor_save_for_backward(ctx, 1, in[1]);
    return tensor_mul(tensor_mul(in[0], in[0]), in[1]);
}
static int custom_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *a = tensor_saved(ctx, 0), *b = tensor_saved(ctx, 1);
    (void)n;
    if (tensor_needs_input_grad(ctx, 0)) grads[0] = tensor_mul(g, tensor_mul(tensor_mul_scalar(a, 2), b));
    if (tensor_needs_input_grad(ctx, 1)) grads[1] = tensor_mul(g, tensor_square(a));
    return 0;
}
static const tensor_function_t square_times = {"square_times", custom_forward, custom_backward, NULL};
call_name(custom) {
    (void)user;
    return tensor_apply(&square_times, NULL, in, n);
}
static double f_custom(const double *v) { return v[0] * v[0] * v[1]; }
static int64_t g_custom(const int64_t *v) {
    return (int64_t)((uint64_t)v[0] * (uint64_t)v[0] * (uint64_t)v[1]);
}
static const config_t custom_configs[] = {
    {{S2(3, 4), S2(3, 4)}}, {{S1(5), S1(5)}}, {{S3(2, 3, 2), S3(2, 3, 2)}}};
static const op_t other_custom[] = {{.label = "custom",
                                     .call = call_custom,
                                     .ref = ref_pointwise,
                                     .nin = 2,
                                     .f = f_custom,
                                     .g = g_custom,
                                     .atol = 10,
                                     .half = 300,
                                     .lo = -2,
                                     .hi = 2,
                                     ON(custom_configs)}};
// There and back, the layout in the middle: user is its number.
static tensor_t *there(tensor_t *const *in, int n, void *user) {
    tensor_t *x = in[0];
    (void)n;
    switch (*(int *)user) {
    case 1: x = tensor_mT(x); break;
    case 2: x = tensor_narrow(x, 1, 1, 2); break;
    case 3: x = tensor_expand(tensor_narrow(x, 0, 1, 1), 3, 4); break;
    case 4: x = tensor_sum(x); break;
    default: break;
    }
    return tensor_square(tensor_to(tensor_to(x, TENSOR_CUDA), TENSOR_CPU));
}
// The same bits at the other side, a gradient that comes back; more in device.c.
static int special_transfer(void) {
    tensor_t *x = tensor_to(tensor_randn(3, 4), TENSOR_F64), *y, *const in[1] = {x};
    int layout;
    CHECK_POISON(tensor_to(x, TENSOR_CUDA), TENSOR_ERR_DEVICE, "to: no CUDA device 0");
    device_start();
    y = tensor_to(x, TENSOR_CUDA);
    CHECK(tensor_device(y) == TENSOR_CUDA && tensor_equal(x, tensor_to(y, TENSOR_CPU)));
    tensor_requires_grad_(x, 1);
    for (layout = 0; layout < 5; layout++) {
        CHECK(tensor_gradcheck(there, &layout, in, 1, 1e-6, 1e-5, 1e-3) == 0);
        CHECK(tensor_gradgradcheck(there, &layout, in, 1, 1e-6, 1e-5, 1e-3) == 0);
        n_grad++, n_gradgrad++;
        row_grad[TENSOR_OP_TRANSFER]++, row_gradgrad[TENSOR_OP_TRANSFER]++;
    }
    n_values++, n_errors++;
    return 0;
}
#define SPECIAL(name) static const op_t other_##name[] = {{.label = #name, .special = special_##name}};
SPECIAL(transfer)
SPECIAL(arange)
SPECIAL(rand) SPECIAL(randn) SPECIAL(randint) SPECIAL(randperm) SPECIAL(bernoulli) SPECIAL(poisson)
SPECIAL(multinomial)

// -- torch.linalg: values, errors and more gradients are in linalg.c --

typedef tensor_t *(*call_t)(tensor_t *const *in, int n, void *user);
static tensor_t *linalg_spd(tensor_t *x) {
    return tensor_add(tensor_matmul(x, tensor_mT(x)), tensor_to(tensor_eye(3, 3), TENSOR_F64));
}
static tensor_t *linalg_strong(tensor_t *x) {
    return tensor_add(x, tensor_mul_scalar(tensor_to(tensor_eye(3, 3), TENSOR_F64), 9));
}
#define LINALG_CALL(name, ...)                                                                               \
    static tensor_t *call_##name(tensor_t *const *in, int n, void *user) { (void)n, (void)user; __VA_ARGS__ }
LINALG_CALL(linalg_cholesky, return tensor_linalg_cholesky(linalg_spd(in[0]), 0);)
LINALG_CALL(linalg_det, return tensor_linalg_det(in[0]);)
LINALG_CALL(linalg_eigh, tensor_eigh_t e = tensor_linalg_eigh(linalg_spd(in[0]), 0);
            return tensor_matmul(tensor_square(e.eigenvectors), tensor_unsqueeze(e.eigenvalues, -1));)
LINALG_CALL(linalg_lu_factor, return tensor_linalg_lu_factor(linalg_strong(in[0])).lu;)
LINALG_CALL(linalg_pinv, return tensor_linalg_pinv(linalg_strong(in[0]), -1);)
LINALG_CALL(linalg_qr, tensor_qr_t q = tensor_linalg_qr(linalg_strong(in[0]), NULL);
            return tensor_add(tensor_sin(q.q), q.r);)
LINALG_CALL(linalg_solve, return tensor_linalg_solve(linalg_strong(in[0]), in[1]);)
LINALG_CALL(linalg_solve_triangular,
            return tensor_linalg_solve_triangular(linalg_strong(in[0]), in[1], 1, 1, 0);)
LINALG_CALL(linalg_svd, tensor_linalg_svd_t s = tensor_linalg_svd(in[0], 0);
            return tensor_matmul(tensor_mul(s.u, tensor_unsqueeze(tensor_sin(s.s), -2)), s.vh);)
// One row: gradcheck in every layout of x [2, 3, 3] (and b), whose values do not depend on the layout.
static int linalg_case(int id, call_t call) {
    static const int64_t dims[3] = {2, 3, 3};
    int l, k;
    for (l = 0; l < LE; l++) {
        tensor_t *in[2], *flat[2];
        for (k = 0; k < 2; k++) {
            lcg_state = (uint64_t)(l + 7 * k + 3);
            in[k] = tensor_requires_grad_(tensor_detach(make(TENSOR_F64, 3, dims, l, -2, 2, VALUES, 0)), 1);
            flat[k] = packed(in[k]);
        }
        k = tensor__rows[id].nin;
        CHECK_MSG(same_bits(call(in, k, NULL), call(flat, k, NULL)), "%s: layout %c differs",
                  tensor__rows[id].name, layout_names[l]);
        n_values++, n_bits++, n_grad++, n_gradgrad++;
        row_grad[id] += tensor_gradcheck(call, NULL, in, k, 1e-6, 1e-5, 1e-3) == 0;
        CHECK_OK();
        row_gradgrad[id] += tensor_gradgradcheck(call, NULL, in, k, 1e-6, 1e-5, 1e-3) == 0;
        CHECK_OK();
    }
    return 1;
}
#define LINALG_CASE(ID, name)                                                                                \
    static int special_##name(void) { return linalg_case(TENSOR_OP_##ID, call_##name); }                     \
    SPECIAL(name)
LINALG_CASE(LINALG_CHOLESKY, linalg_cholesky) LINALG_CASE(LINALG_DET, linalg_det)
LINALG_CASE(LINALG_EIGH, linalg_eigh) LINALG_CASE(LINALG_LU_FACTOR, linalg_lu_factor)
LINALG_CASE(LINALG_PINV, linalg_pinv) LINALG_CASE(LINALG_QR, linalg_qr)
LINALG_CASE(LINALG_SOLVE, linalg_solve)
LINALG_CASE(LINALG_SOLVE_TRIANGULAR, linalg_solve_triangular) LINALG_CASE(LINALG_SVD, linalg_svd)
// On a device, batched and transposed: the CPU's results, gradients, and gradients of gradients.
static void linalg_devices(void) {
    static const struct { int id; call_t call; } list[] = {
        {TENSOR_OP_LINALG_CHOLESKY, call_linalg_cholesky}, {TENSOR_OP_LINALG_DET, call_linalg_det},
        {TENSOR_OP_LINALG_EIGH, call_linalg_eigh}, {TENSOR_OP_LINALG_LU_FACTOR, call_linalg_lu_factor},
        {TENSOR_OP_LINALG_PINV, call_linalg_pinv}, {TENSOR_OP_LINALG_QR, call_linalg_qr},
        {TENSOR_OP_LINALG_SOLVE, call_linalg_solve}, {TENSOR_OP_LINALG_SVD, call_linalg_svd},
        {TENSOR_OP_LINALG_SOLVE_TRIANGULAR, call_linalg_solve_triangular}};
    static const int64_t dims[3] = {2, 3, 3};
    int c, d, k;
    for (c = 0; c < COUNT(list); c++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x[2], *in[2], *y[2], *g[2], *gg[2], *sum;
        lcg_state = (uint64_t)c + 5;
        for (k = 0; k < 2; k++) x[k] = make(TENSOR_F64, 3, dims, LC, -2, 2, VALUES, 0);
        for (d = 0; d < 2; d++) {
            tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
            for (k = 0; k < 2; k++) {
                in[k] = tensor_mT(d ? tensor_to(x[k], TENSOR_CUDA) : tensor_clone(x[k]));
                tensor_requires_grad_(in[k], 1);
            }
            y[d] = list[c].call(in, tensor__rows[list[c].id].nin, NULL);
            sum = tensor_sum(tensor_square(y[d]));
            tensor_autograd_grad(&sum, 1, NULL, in, 1, &g[d], TENSOR_CREATE_GRAPH);
            sum = tensor_sum(tensor_square(g[d]));
            tensor_autograd_grad(&sum, 1, NULL, in, 1, &gg[d], 0);
        }
        tensor_set_default_device(TENSOR_CPU);
        k = tensor_device(y[1]) == TENSOR_CUDA && tensor_allclose(y[0], off(y[1]), 1e-9, 1e-9);
        k = k && tensor_allclose(g[0], off(g[1]), 1e-7, 1e-7);
        k = k && tensor_allclose(gg[0], off(gg[1]), 1e-5, 1e-5);
        CHECK_MSG(k && tensor_ok(), "%s on a device differs: %s", tensor__rows[list[c].id].name,
                  tensor_error_text());
        tensor_clear_error();
        n_device++;
        device_note(TENSOR_F64);
        tensor_scope_end(s);
    }
}
static int special_linalg_swaps(void) {
    tensor_t *p = tensor_linalg_lu(tensor_reshape(tensor_arange(0, 4, 1, TENSOR_F32), 2, 2)).p;
    CHECK(tensor_equal(p, tensor_rsub_scalar(tensor_eye(2, 2), 1)));    // rows swapped
    return 1;
}
SPECIAL(linalg_swaps)

    static const struct {
    const op_t *list;
    int n;
} other_cases[] = {
#define TENSOR__X(ID, name, ...) {other_##name, COUNT(other_##name)},
    TENSOR_OPS_OTHER(TENSOR__X)
#undef TENSOR__X
};
typedef char
    every_other_row_has_its_case[COUNT(other_cases) == TENSOR_OP_COUNT - TENSOR_OP_POINTWISE_COUNT ? 1 : -1];

// ---- main loops ----

static void each(void (*visit)(const op_t *op)) {
    int k, j;
    for (k = 0; k < COUNT(pointwise_cases); k++) {
        if (test_lines > TEST_MAX_LINES - 4) test_lines = TEST_MAX_LINES - 4;
        visit(&pointwise_cases[k]);
    }
    for (k = 0; k < COUNT(other_cases); k++)
        for (j = 0; j < other_cases[k].n; j++) {
            op_t op = other_cases[k].list[j];
            op.id = TENSOR_OP_POINTWISE_COUNT + k;
            if (test_lines > TEST_MAX_LINES - 4) test_lines = TEST_MAX_LINES - 4;
            visit(&op);
        }
}
static void visit_values(const op_t *op) {
    n_ops++;
    if (op->special)
        op->special();
    else
        run_values(op);
}
static void visit_grad(const op_t *op) {
    if (!op->special) run_grad(op);
}
static void visit_misuse(const op_t *op) {
    if (!op->special) run_misuse(op);
}
static void visit_threads(const op_t *op) {
    static const config_t rows = {{S2(301, 257), S2(301, 257), S2(301, 257)}},
                          product = {{S2(130, 300), S2(300, 257), S1(257)}},
                          column = {{S2(301, 300), S1(300), S2(300, 300)}},
                          flat = {{S1(100003), S1(100003), S1(100003)}};
    if (op->special) return;
    if (op->ref == ref_pointwise) {
        run_threads(op, pointwise_big);
        if (op->nin > 1 && op->id != TENSOR_OP_CUSTOM) run_threads(op, pointwise_big + 1);
    } else if (op->ref == ref_rows) {
        run_threads(op, &rows);
        if (op->p[0] == ALL && op->nin == 1) run_threads(op, &flat);
    } else if (op->label[0] == 'm' && op->id == TENSOR_OP_MATMUL && op->label[1] != 'v')
        run_threads(op, &product);
    else if (op->id == TENSOR_OP_INDEX_SELECT || op->id == TENSOR_OP_INDEX_ADD) {
        if (op->p[0] == 0) run_threads(op, &column);
    } else if (op->id == TENSOR_OP_GATHER || op->id == TENSOR_OP_SCATTER_ADD)
        run_threads(op, &rows);
    else if (op->id == TENSOR_OP_PROD_OTHERS)
        run_threads(op, &op->configs[op->nconfigs - 1]);
    else if (op->id == TENSOR_OP_TRIL || op->id == TENSOR_OP_TRIU || op->id == TENSOR_OP_FILL)
        run_threads(op, &rows);
    else
        run_threads(op, &op->configs[0]);
}
static void values(void) { each(visit_values); }
static void threads(void) { each(visit_threads); }
static void visit_device(const op_t *op) {
    if (!op->special) run_device(op);
}
static void devices(void) {
    device_start();
    each(visit_device);
    linalg_devices();
}
#ifdef TEST_CUDA
static void special_transfer_only(void) { special_transfer(); }
#endif
static void visit_grad_values(const op_t *op) {
    if (!op->special) run_grad_values(op);
}
static void gradients(void) {
    int k;
    each(visit_grad);
    for (k = 0; k < TENSOR_OP_COUNT; k++)
        CHECK_MSG(!tensor__rows[k].grad || (row_grad[k] >= 5 && row_gradgrad[k] >= 5),
                  "%s: %d gradcheck and %d gradgradcheck cases, at least 5 are wanted", tensor__rows[k].name,
                      row_grad[k],
                  row_gradgrad[k]);
}
static void gradient_values(void) { each(visit_grad_values); }
static void misuse(void) { each(visit_misuse); }
// ---- dtypes: the table from PyTorch ----

static const op_t *case_named(const char *name) {
    int k;
    for (k = 0; k < COUNT(pointwise_cases); k++)
        if (strcmp(pointwise_cases[k].label, name) == 0) return &pointwise_cases[k];
    return NULL;
}
static const char dtype_letters[] = "fdilubhgcs";
// Whether (got a result, letter) agree. Dtypes PyTorch refuses and this library takes are counted, except
// those it promises to refuse.
static void promotion_check(const char *op, const char *what, const tensor_t *y, char want, int must_refuse) {
    n_dtypes++;
    if (want == 'x') {
        if (must_refuse)
            CHECK_MSG(y->state == TENSOR__POISON_STATE && tensor_error_code() == TENSOR_ERR_DTYPE,
                      "%s %s: expected a DTYPE error, got %s", op, what,
                      y->state == TENSOR__POISON_STATE ? tensor_error_text() : dname(y->dtype));
        else
            n_lenient += y->state == TENSOR__LIVE;
        tensor_clear_error();
        return;
    }
    CHECK_MSG(y->state == TENSOR__LIVE && dtype_letters[y->dtype] == want,
              "%s %s: result is %s, PyTorch's %s", op, what,
              y->state == TENSOR__LIVE ? dname(y->dtype) : tensor_error_text(),
              dname((int)(strchr(dtype_letters, want) - dtype_letters)));
    tensor_clear_error();
}
// The value of a mixed pair is that of both operands converted to the computing dtype first.
static void promotion_value(const op_t *op, tensor_t *const *in, tensor_t *y) {
    tensor_t *same[2], *z;
    nd_t a, b;
    int compute = tensor__promote(in, 2), k, good = 1;
    int64_t j;
    for (k = 0; k < 2; k++) same[k] = tensor_to(in[k], (tensor_dtype_t)compute);
    z = op->call(same, 2, NULL);
    if (!tensor_ok()) {
        CHECK_OK();
        return;
    }
    nd_read(&a, y), nd_read(&b, z);
    for (j = 0; j < a.n; j++) good &= (a.v[j] == b.v[j] || a.v[j] != a.v[j]) && a.i[j] == b.i[j];
    CHECK_MSG(good && a.dtype == b.dtype, "%s %s %s: differs from operands converted first", op->label,
              dname(in[0]->dtype), dname(in[1]->dtype));
    n_values++;
    nd_free(&a), nd_free(&b);
}
static void promotion(void) {
    int k, form, a, b;
    for (k = 0; k < COUNT(promotion_binary); k++) {
        const op_t *op = case_named(promotion_binary[k].op);
        int bits;
        CHECK_MSG(op != NULL && op->nin == 2, "%s is in promotion.h and not in the table",
                  promotion_binary[k].op);
        if (!op) continue;
        bits = op->kind == TENSOR__BIT;
        for (form = 0; form < 4; form++)
            for (a = 0; a < TENSOR_DTYPE_COUNT; a++)
                for (b = 0; b < TENSOR_DTYPE_COUNT; b++) {
                    static const int64_t three[1] = {3};
                    tensor_scope_t s = tensor_scope_begin();
                    tensor_t *in[2], *y;
                    int a_half;
                    char what[64], want = promotion_binary[k].pair[form][a * TENSOR_DTYPE_COUNT + b];
                    lcg_state = 5;
                    in[0] = make(a, form < 2, three, LC, 0.5, 3, SIGNED, 0);
                    in[1] = make(b, form == 0 || form == 2, three, LC, 0.5, 3, SIGNED, 0);
                    if (b == TENSOR_BOOL) in[1] = tensor_ones_like(in[1]);
                    sprintf(what, "%s%s %s%s", dname(a), form < 2 ? "" : " 0-d", dname(b),
                            form == 0 || form == 2 ? "" : " 0-d");
                    y = op->call(in, 2, NULL);
                    promotion_check(op->label, what, y, want,
                                    bits ||
                                        (op->id == TENSOR_OP_SUB && a == TENSOR_BOOL && b == TENSOR_BOOL));
                    // a 0-d operand of a half result (of a row computed in double) takes part unrounded
                    a_half = is_float(tensor__promote(in, 2)) && tensor__promote(in, 2) >= TENSOR_F16;
                    if (form % 3 && (a_half || tensor__rows[op->id].kind == TENSOR__DBL))
                        n_skipped_half++;
                    else if (want != 'x' && y->state == TENSOR__LIVE && a != b)
                        promotion_value(op, in, y);
                    tensor_scope_end(s);
                }
    }
    for (k = 0; k < COUNT(promotion_unary) + COUNT(promotion_reduce); k++) {
        int reduce = k >= COUNT(promotion_unary);
        const promotion1_t *row =
            reduce ? &promotion_reduce[k - COUNT(promotion_unary)] : &promotion_unary[k];
        for (a = 0; a < TENSOR_DTYPE_COUNT; a++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *x = tensor_ones_of((tensor_dtype_t)a, 3), *y;
            const op_t *op = reduce ? NULL : case_named(row->op);
            int firm = 0, j;
            for (j = 0; reduce && j < COUNT(other_cases); j++)
                if (strcmp(tensor__rows[TENSOR_OP_POINTWISE_COUNT + j].name,
                           strcmp(row->op, "max") ? strcmp(row->op, "std") ? row->op : "var" : "amax") == 0) {
                    int v;
                    op = other_cases[j].list;
                    for (v = 0; v < other_cases[j].n; v++)
                        if (strcmp(other_cases[j].list[v].label, row->op) == 0) op = &other_cases[j].list[v];
                }
            CHECK_MSG(op != NULL, "%s is in promotion.h and not in a table", row->op);
            if (!op) continue;
            firm =
                reduce ? strcmp(row->op, "argmax") != 0 : op->id == TENSOR_OP_NEG || op->kind == TENSOR__BIT;
            // any and all give bool for u8 too, where PyTorch keeps an old habit
            if (a == TENSOR_U8 && (strcmp(row->op, "any") == 0 || strcmp(row->op, "all") == 0))
                n_skipped_dtypes++;
            else {
                tensor_t *in[2];
                in[0] = in[1] = x;
                y = op->call(in, op->nin, (void *)(uintptr_t)op);
                promotion_check(row->op, dname(a), y, row->result[a], firm);
            }
            tensor_clear_error();
            tensor_scope_end(s);
        }
    }
}

// ---- scalar twins, in place ----

typedef tensor_t *(*with_number_t)(tensor_t *a, double b);
typedef tensor_t *(*two_t)(tensor_t *a, tensor_t *b);
typedef tensor_t *(*one_t)(tensor_t *a);
static tensor_t *rsub(tensor_t *a, tensor_t *b) { return tensor_sub(b, a); }
static void scalar_twins(void) {
    static const struct {
        const char *name;
        with_number_t number;
        two_t two;
    } twins[] = {
#define TWIN(name) {#name, (tensor_##name##_scalar), (tensor_##name)}
        TWIN(add),
        TWIN(div),
        TWIN(floor_divide),
        TWIN(fmod),
        TWIN(maximum),
        TWIN(minimum),
        TWIN(mul),
        TWIN(pow),
        TWIN(remainder),
        TWIN(sub),
        TWIN(eq),
        TWIN(ge),
        TWIN(gt),
        TWIN(le),
        TWIN(lt),
        TWIN(ne),
        TWIN(bitwise_and),
        TWIN(bitwise_or),
        TWIN(bitwise_xor),
        TWIN(bitwise_left_shift),
        TWIN(bitwise_right_shift),
        TWIN(copysign),
        TWIN(xlogy),
        {"rsub", (tensor_rsub_scalar), rsub}};
    static const double numbers[] = {2, 0.5, 3, -1.5, 1, -1};
    int k, dtype, j, isa;
    for (k = 0; k < COUNT(twins); k++)
        for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++)
            for (j = 0; j < COUNT(numbers); j++)
                for (isa = 0; isa < COUNT(isas); isa++) {
                    static const int64_t dims[2] = {7, 9};
                    tensor_scope_t s = tensor_scope_begin();
                    double v = numbers[j];
                    tensor_t *a, *y, *z;
                    int weak = is_float(dtype)                            ? dtype
                               : v != floor(v)                            ? TENSOR_F32
                               : dtype == TENSOR_BOOL && v != 0 && v != 1 ? TENSOR_I64
                                                                          : dtype;
                    if (!isa_there[isa] || (isa && j > 1) ||
                        (!is_float(dtype) && weak != TENSOR_F32 && v < 0 && (dtype == TENSOR_U8 || k == 7))) {
                        n_skipped_twins++;
                        tensor_scope_end(s);
                        continue;
                    }
                    tensor_set_cpu(isas[isa]);
                    lcg_state = (uint64_t)(k * 10 + j + 1);
                    a = make(dtype, 2, dims, j % 2 ? LT : LC, -3, 3, VALUES, 0);
                    y = twins[k].number(a, v);
                    z = twins[k].two(tensor_to(a, (tensor_dtype_t)weak),
                                     tensor_scalar(v, (tensor_dtype_t)weak));
                    n_values++;
                    if (tensor_is_poison(z))
                        CHECK_MSG(tensor_is_poison(y), "%s_scalar %s %g: the twin refuses", twins[k].name,
                                  dname(dtype), v);
                    else
                        CHECK_MSG(same_bits(y, z),
                                  "%s_scalar(%s, %g) on %s differs from the tensor form (%s)", twins[k].name,
                                  dname(dtype), v, isas[isa], tensor_error_text());
                    tensor_clear_error();
                    tensor_set_cpu(NULL);
                    tensor_scope_end(s);
                }
    { // 64-bit integers that a double does not hold
        int64_t big[2] = {((int64_t)1 << 53) + 1, INT64_MAX};
        tensor_t *a = tensor_from(big, TENSOR_I64, 2), *y = tensor_add_scalar(a, 1);
        CHECK(((const int64_t *)tensor_data(y))[0] == big[0] + 1 &&
              ((const int64_t *)tensor_data(y))[1] == INT64_MIN);
        y = tensor_mul_scalar(a, 3);
        CHECK(((const int64_t *)tensor_data(y))[0] == big[0] * 3);
        y = tensor_eq_scalar(a, (double)((int64_t)1 << 53));
        CHECK(((const uint8_t *)tensor_data(y))[0] == 0);
        n_values += 3;
    }
}
static void in_place(void) {
    static const struct {
        const char *name;
        one_t there, here;
    } unary[] = {
#define HERE(name) {#name "_", (tensor_##name), (tensor_##name##_)}
        HERE(abs), HERE(exp), HERE(neg), HERE(relu), HERE(sigmoid), HERE(sqrt), HERE(tanh), HERE(ceil),
        HERE(cos), HERE(erf), HERE(erfinv), HERE(exp2), HERE(expm1), HERE(floor), HERE(log), HERE(log10),
        HERE(log1p), HERE(log2), HERE(reciprocal), HERE(round), HERE(rsqrt), HERE(sign), HERE(sin),
        HERE(square), HERE(tan), HERE(trunc)};
    static const struct {
        const char *name;
        two_t there, here;
        with_number_t number, number_here;
    } binary[] = {
#define HERE2(name)                                                                                          \
    {#name "_", (tensor_##name), (tensor_##name##_), (tensor_##name##_scalar), (tensor_##name##_scalar_)}
        HERE2(add), HERE2(sub), HERE2(mul), HERE2(div), HERE2(pow), HERE2(remainder), HERE2(fmod),
        HERE2(floor_divide), HERE2(bitwise_and), HERE2(bitwise_or), HERE2(bitwise_xor)};
    static const int64_t dims[2] = {6, 9}, row[1] = {9};
    int k, dtype, layout, form;
    for (dtype = 0; dtype < TENSOR_DTYPE_COUNT; dtype++)
        for (layout = LC; layout <= LN; layout++) {
            for (k = 0; k < COUNT(unary); k++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *x = make(dtype, 2, dims, layout, 0.5, 3, VALUES, 0), *y = unary[k].there(x), *z;
                if (tensor_is_poison(y) || tensor__category(y->dtype) > tensor__category(dtype)) {
                    tensor_clear_error();
                    z = unary[k].here(x);
                    CHECK_MSG(tensor_is_poison(z) && tensor_error_code() == TENSOR_ERR_DTYPE,
                              "%s %s: expected DTYPE", unary[k].name, dname(dtype));
                    n_errors++;
                } else {
                    z = unary[k].here(x);
                    CHECK_MSG(z == x && same_bits(y, z), "%s %s %c differs from the new one", unary[k].name,
                              dname(dtype), layout_names[layout]);
                    n_values++;
                }
                tensor_clear_error();
                tensor_scope_end(s);
            }
            for (k = 0; k < COUNT(binary); k++)
                for (form = 0; form < 4; form++) { // same shape, broadcast row, 0-d, number
                    tensor_scope_t s = tensor_scope_begin();
                    tensor_t *x = make(dtype, 2, dims, layout, 0.5, 3, VALUES, 0), *y, *z;
                    tensor_t *b = form == 0   ? make(dtype, 2, dims, LT, 0.5, 3, SIGNED, 0)
                                  : form == 1 ? make(dtype, 1, row, LS, 0.5, 3, SIGNED, 0)
                                              : tensor_scalar(2, (tensor_dtype_t)dtype);
                    y = form == 3 ? binary[k].number(x, 2) : binary[k].there(x, b);
                    if (tensor_is_poison(y) || tensor__category(y->dtype) > tensor__category(dtype)) {
                        tensor_clear_error();
                        z = form == 3 ? binary[k].number_here(x, 2) : binary[k].here(x, b);
                        CHECK_MSG(tensor_is_poison(z) && tensor_error_code() == TENSOR_ERR_DTYPE,
                                  "%s %s: expected DTYPE, got %s", binary[k].name, dname(dtype),
                                  tensor_error_text());
                        n_errors++;
                    } else {
                        z = form == 3 ? binary[k].number_here(x, 2) : binary[k].here(x, b);
                        CHECK_MSG(z == x && same_bits(y, z), "%s %s %c form %d differs from the new one: %s",
                                  binary[k].name, dname(dtype), layout_names[layout], form,
                                  tensor_error_text());
                        n_values++;
                    }
                    tensor_clear_error();
                    tensor_scope_end(s);
                }
            {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *x = make(dtype, 2, dims, layout, -3, 3, VALUES, 0), *c = packed(x), *y,
                         *m = tensor_gt_scalar(c, 1);
                int from;
                if (dtype == TENSOR_BOOL)
                    CHECK_POISON(tensor_clamp_(x, -1, 2), TENSOR_ERR_DTYPE, "clamp_: a result of i64");
                else
                    CHECK_MSG(same_bits(tensor_clamp_(x, -1, 2), tensor_clamp(c, -1, 2)), "clamp_ %s",
                              dname(dtype));
                y = tensor_masked_fill(c, m, 1);
                CHECK_MSG(same_bits(tensor_masked_fill_(tensor_copy_(x, c), m, 1), y), "masked_fill_ %s",
                          dname(dtype));
                CHECK_MSG(same_bits(tensor_fill_(x, 1), tensor_ones_n(dims, 2, (tensor_dtype_t)dtype)),
                          "fill_ %s", dname(dtype));
                CHECK_MSG(same_bits(tensor_zero_(x), tensor_zeros_n(dims, 2, (tensor_dtype_t)dtype)),
                          "zero_ %s", dname(dtype));
                for (from = 0; from < TENSOR_DTYPE_COUNT; from++) {
                    tensor_t *src = make(from, 1, row, LS, 0, 100, VALUES, 0);
                    CHECK_MSG(same_bits(tensor_copy_(x, src),
                                        tensor_contiguous(
                                            tensor_expand(tensor_to(src, (tensor_dtype_t)dtype), 6, 9))),
                              "copy_ %s to %s %c", dname(from), dname(dtype), layout_names[layout]);
                    n_values++;
                }
                if (is_float(dtype)) {
                    y = tensor_addcmul(c, c, c, 0.5);
                    CHECK_MSG(same_bits(tensor_addcmul_(tensor_copy_(x, c), c, c, 0.5), y), "addcmul_ %s",
                              dname(dtype));
                }
                n_values += 5;
                CHECK_OK();
                tensor_scope_end(s);
            }
        }
}

// ---- edge values (the table of semantics in the manual's terms) ----

static float one_f32(tensor_t *y, int k) {
    return tensor_is_poison(y) ? 12345.f : ((const float *)tensor_data(tensor_contiguous(y)))[k];
}
#define F32(...)                                                                                             \
    tensor_from(((const float[]){__VA_ARGS__}), TENSOR_F32, COUNT(((const float[]){__VA_ARGS__})))
#define I32(...)                                                                                             \
    tensor_from(((const int32_t[]){__VA_ARGS__}), TENSOR_I32, COUNT(((const int32_t[]){__VA_ARGS__})))
#define I64S(...)                                                                                            \
    tensor_from(((const int64_t[]){__VA_ARGS__}), TENSOR_I64, COUNT(((const int64_t[]){__VA_ARGS__})))
static void is_values(tensor_t *y, const double *want, int n, int line) {
    nd_t a;
    int k;
    n_values++;
    if (tensor_is_poison(y)) {
        test_note(0, __FILE__, line, "%s on %s", tensor_error_text(), tensor_cpu_name());
        tensor_clear_error();
        return;
    }
    nd_read(&a, y);
    test_note(a.n == n, __FILE__, line, "%lld numbers, expected %d", (long long)a.n, n);
    for (k = 0; k < n && k < a.n; k++) {
        double v = is_float(a.dtype) ? a.v[k] : (double)a.i[k];
        test_note((v != v && want[k] != want[k]) || (v == want[k] && signbit(v) == signbit(want[k])),
                  __FILE__, line, "number %d is %g, expected %g on %s %s", k, v, want[k], tensor_cpu_name(),
                  dname(a.dtype));
    }
    nd_free(&a);
}
#define IS(y, ...)                                                                                           \
    is_values(y, (const double[]){__VA_ARGS__}, COUNT(((const double[]){__VA_ARGS__})), __LINE__)
static void edges_of_isa(void) {
    const float nan = NAN, inf = INFINITY;
    tensor_t *a = F32(nan, 1, -inf, 0, -0.f, inf, 2.5f, -2.5f),
             *b = F32(1, nan, nan, -0.f, 0, -inf, inf, -inf);
    int dtype;
    for (dtype = 0; dtype < 4; dtype++) {
        static const tensor_dtype_t floats[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
        tensor_t *x = tensor_to(a, floats[dtype]), *y = tensor_to(b, floats[dtype]);
        IS(tensor_gt_scalar(tensor_maximum(tensor_narrow(x, 0, 5, 3), tensor_narrow(y, 0, 5, 3)), 2), 1, 1,
           0);
        IS(tensor_isnan(tensor_maximum(x, y)), 1, 1, 1, 0, 0, 0, 0, 0);
        IS(tensor_isnan(tensor_minimum(x, y)), 1, 1, 1, 0, 0, 0, 0, 0);
        IS(tensor_isnan(tensor_clamp(x, -1, 1)), 1, 0, 0, 0, 0, 0, 0, 0);
        IS(tensor_clamp(tensor_narrow(x, 0, 1, 2), 2, -3), -3, -3); // lo > hi gives hi
        IS(tensor_relu(x), NAN, 1, 0, 0, -0.0, INFINITY, 2.5, 0);
        IS(tensor_sign(x), NAN, 1, -1, 0, tensor_item(tensor_sign(tensor_scalar(-0.0, floats[dtype]))), 1, 1,
           -1);
        IS(tensor_abs(x), NAN, 1, INFINITY, 0, 0, INFINITY, 2.5, 2.5);
        IS(tensor_neg(tensor_narrow(x, 0, 3, 3)), -0.0, 0, -INFINITY);
        IS(tensor_isinf(x), 0, 0, 1, 0, 0, 1, 0, 0);
        IS(tensor_isfinite(x), 0, 1, 0, 1, 1, 0, 1, 1);
        IS(tensor_eq(x, x), 0, 1, 1, 1, 1, 1, 1, 1);
        IS(tensor_ne(x, x), 1, 0, 0, 0, 0, 0, 0, 0);
        IS(tensor_lt(x, y), 0, 0, 0, 0, 0, 0, 1, 0);
        IS(tensor_ge(x, y), 0, 0, 0, 1, 1, 1, 0, 1);
        IS(tensor_logical_not(x), 0, 0, 0, 1, 1, 0, 0, 0);
        IS(tensor_to(x, TENSOR_BOOL), 1, 1, 1, 0, 0, 1, 1, 1); // NaN is true
        IS(tensor_where(tensor_isnan(x), y, x), 1, 1, -INFINITY, 0, -0.0, INFINITY, 2.5, -2.5);
        IS(tensor_max(x), NAN), IS(tensor_min(x), NAN), IS(tensor_argmax(x), 0), IS(tensor_argmin(y), 1),
            IS(tensor_sum(x), NAN);
        IS(tensor_argmax(tensor_slice(x, 0, 1, 8, 1)), 4), IS(tensor_argmin(tensor_slice(x, 0, 1, 8, 1)), 1);
        IS(tensor_exp(tensor_narrow(x, 0, 2, 4)), 0, 1, 1, INFINITY);
        IS(tensor_log(tensor_narrow(x, 0, 2, 4)), NAN, -INFINITY, -INFINITY, INFINITY);
        IS(tensor_sqrt(tensor_narrow(x, 0, 2, 4)), NAN, 0, -0.0, INFINITY);
        IS(tensor_tanh(tensor_narrow(x, 0, 2, 4)), -1, 0, -0.0, 1);
        IS(tensor_sigmoid(tensor_narrow(x, 0, 2, 4)), 0, 0.5, 0.5, 1);
        IS(tensor_erf(tensor_narrow(x, 0, 2, 4)), -1, 0, -0.0, 1);
        IS(tensor_isnan(tensor_sin(x)), 1, 0, 1, 0, 0, 1, 0, 0);
        IS(tensor_reciprocal(tensor_narrow(x, 0, 2, 4)), -0.0, INFINITY, -INFINITY, 0);
        IS(tensor_logsumexp(tensor_narrow(x, 0, 2, 1), 0, 0), -INFINITY);
        IS(tensor_logsumexp(tensor_narrow(x, 0, 0, 0), 0, 0), -INFINITY);
        IS(tensor_softmax(tensor_narrow(x, 0, 2, 1), 0), NAN);
        IS(tensor_any(tensor_narrow(x, 0, 0, 1)), 1), IS(tensor_all(tensor_narrow(x, 0, 2, 3)), 0);
    }
    // half to even
    IS(tensor_round(F32(0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 8388609.f, 1e30f)), 0, 2, 2, -0.0, -2, 8388609,
       (double)1e30f);
    IS(tensor_ceil(F32(-0.5f, 0.1f, 8388607.5f)), -0.0, 1, 8388608),
        IS(tensor_floor(F32(-0.5f, 0.9f, -1e30f)), -1, 0, (double)-1e30f);
    IS(tensor_trunc(F32(-1.9f, 1.9f, -0.1f)), -1, 1, -0.0);
    // division: sign of the divisor (floor, remainder), of the dividend (fmod)
    IS(tensor_floor_divide(I32(-7, 7, -7, 7), I32(2, -2, -2, 2)), -4, -4, 3, 3);
    IS(tensor_remainder(I32(-7, 7, -7, 7), I32(3, -3, -3, 3)), 2, -2, -1, 1);
    IS(tensor_fmod(I32(-7, 7, -7, 7), I32(3, -3, -3, 3)), -1, 1, -1, 1);
    IS(tensor_remainder(F32(-7, 7, -7.5f), F32(3, -3, 2)), 2, -2, 0.5),
        IS(tensor_fmod(F32(-7, 7, 5.5f), F32(3, -3, inf)), -1, 1, 5.5);
    IS(tensor_floor_divide(F32(-7, 1, 1, 0), F32(2, 0, -0.f, 0)), -4, INFINITY, -INFINITY, NAN);
    IS(tensor_div(I32(1, -7), I32(2, 2)), 0.5, -3.5), IS(tensor_div(I32(1, 0), I32(0, 0)), INFINITY, NAN);
    // overflow wraps
    IS(tensor_abs(I32(INT32_MIN, INT32_MAX)), INT32_MIN, INT32_MAX),
        IS(tensor_neg(I32(INT32_MIN)), INT32_MIN);
    IS(tensor_add(I32(INT32_MAX), I32(1)), INT32_MIN), IS(tensor_mul(I32(65536), I32(65537)), 65536);
    IS(tensor_floor_divide(I32(INT32_MIN), I32(-1)), INT32_MIN),
        IS(tensor_remainder(I32(INT32_MIN), I32(-1)), 0), IS(tensor_fmod(I32(INT32_MIN), I32(-1)), 0);
    IS(tensor_eq(tensor_floor_divide(I64S(INT64_MIN), I64S(-1)), I64S(INT64_MIN)), 1),
        IS(tensor_remainder(I64S(INT64_MIN), I64S(-1)), 0);
    IS(tensor_eq(tensor_abs(I64S(INT64_MIN)), I64S(INT64_MIN)), 1),
        IS(tensor_fmod(I64S(INT64_MIN), I64S(-1)), 0);
    IS(tensor_sub(tensor_to(I32(1, 0), TENSOR_U8), tensor_to(I32(2, 255), TENSOR_U8)), 255, 1);
    // pow
    IS(tensor_pow(F32(0, -8, 2, nan, 1, 0, -2), F32(0, 1 / 3.f, -1, 0, nan, -1, 3)), 1, NAN, 0.5, 1, 1,
       INFINITY, -8);
    IS(tensor_pow(I32(2, 1, -1, -1, 0, 3), I32(-1, -5, -1, -2, 0, 4)), 0, 1, -1, 1, 1, 81);
    // float to integer: saturates, NaN gives 0
    a = F32(nan, inf, -inf, 300.7f, -1.5f, 3e9f, -3e9f, 1e19f, 255.9f, -0.9f);
    IS(tensor_to(a, TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX, INT32_MIN, INT32_MAX, 255, 0);
    IS(tensor_to(a, TENSOR_U8), 0, 255, 0, 255, 0, 255, 0, 255, 255, 0);
    IS(tensor_to(a, TENSOR_I64), 0, 9223372036854775807.0, -9223372036854775808.0, 300, -1, (double)3e9f,
       (double)-3e9f, 9223372036854775807.0, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_F64), TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX,
       INT32_MIN, INT32_MAX, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_F16), TENSOR_U8), 0, 255, 0, 255, 0, 255, 0, 255, 255, 0);
    IS(tensor_to(tensor_to(a, TENSOR_BF16), TENSOR_I32), 0, INT32_MAX, INT32_MIN, 300, -1, INT32_MAX,
       INT32_MIN, INT32_MAX, 256, 0);
    // f16 and bf16: to nearest even
    IS(tensor_to(F32(65504, 65519.996f, 65520, -65520, 1e-8f, 5.9604645e-8f, 2.9802322e-8f, 2.9802326e-8f,
                     2049, 2051, nan, -0.f),
                 TENSOR_F16),
       65504, 65504, INFINITY, -INFINITY, 0, 5.9604644775390625e-8, 0, 5.9604644775390625e-8, 2048, 2052, NAN,
       -0.0);
    IS(tensor_to(tensor_to(F32(65519.996f, 65520), TENSOR_F64), TENSOR_F16), 65504, INFINITY);
    IS(tensor_to(F32(257, 259, 3.4028235e38f, nan, -0.f, 1e-45f), TENSOR_BF16), 256, 260, INFINITY, NAN, -0.0,
       0);
    {
        uint32_t u = 0xFFA5A5A5u; // a signalling negative NaN stays a NaN with its sign
        uint16_t h;
        float f;
        memcpy(&f, &u, 4);
        tensor_copy_out(tensor_to(tensor_from(&f, TENSOR_F32, 1), TENSOR_BF16), &h, 2);
        CHECK_MSG(h == 0xFFE5, "bf16 of a NaN is %04x on %s", h, tensor_cpu_name());
        tensor_copy_out(tensor_to(tensor_from(&f, TENSOR_F32, 1), TENSOR_F16), &h, 2);
        CHECK_MSG((h & 0xFE00) == 0xFE00, "f16 of a NaN is %04x on %s", h, tensor_cpu_name());
    }
    CHECK(tensor_item(tensor_sum(tensor_ones_of(TENSOR_F16, 70000))) == (double)INFINITY);
    CHECK(tensor_item(tensor_mean(tensor_ones_of(TENSOR_F16, 70000))) == 1);
    CHECK(tensor_item(tensor_sum(tensor_ones(20000000))) == 20000000); // does not stick at 2^24
    // ranges of the exponential functions
    IS(tensor_gt_scalar(tensor_exp(F32(88.7f, -103.f)), 0), 1, 1),
        IS(tensor_exp(F32(89, -104.f)), INFINITY, 0);
    CHECK_NEAR(one_f32(tensor_log1p(F32(1e38f)), 0), log1p(1e38), 1e-4),
        CHECK_NEAR(one_f32(tensor_log1p(F32(1e-20f)), 0), 1e-20, 1e-26);
    CHECK_NEAR(one_f32(tensor_expm1(F32(1e-10f)), 0), 1e-10, 1e-16),
        CHECK_NEAR(one_f32(tensor_tanh(F32(1e-10f)), 0), 1e-10, 1e-16);
    CHECK_NEAR(one_f32(tensor_sin(F32(1e6f)), 0), sin(1e6), 1e-6),
        CHECK_NEAR(one_f32(tensor_cos(F32(1e30f)), 0), cos((double)1e30f), 1e-6);
    CHECK(one_f32(tensor_gelu(F32(-7)), 0) < 0 &&
          fabs(one_f32(tensor_gelu(F32(-7)), 0) / (-7 * 0.5 * erfc(7 / sqrt(2.0))) - 1) < 1e-5);
    CHECK_NEAR(one_f32(tensor_norm(F32(3e30f, 4e30f)), 0) / 5e30, 1, 1e-6),
        CHECK_NEAR(one_f32(tensor_norm(F32(3e-30f, 4e-30f)), 0) / 5e-30, 1, 1e-6);
    CHECK_NEAR(one_f32(tensor_var(F32(1e4f, 1e4f + 1e-3f, 1e4f - 1e-3f), 1), 0), 9.5367431640625e-7,
               1e-12); // the floats are 1e4 +- 2^-10
    CHECK(one_f32(tensor_softplus(F32(30, -30), 1, 20), 0) == 30 &&
          one_f32(tensor_softplus(F32(30, -30), 1, 20), 1) > 9e-14f);
    CHECK(one_f32(tensor_logsigmoid(F32(-200, 200)), 0) == -200 &&
          one_f32(tensor_logsigmoid(F32(-200, 200)), 1) <= 0);
    IS(tensor_log_softmax(F32(1000, -1000), 0), 0, -2000), IS(tensor_softmax(F32(1000, 1000), 0), 0.5, 0.5);
    n_values += 14;
}
static void edges(void) {
    int isa;
    tensor_t *e = tensor_zeros(0, 3), *t;
    for (isa = 0; isa < COUNT(isas); isa++) {
        if (!isa_there[isa]) continue;
        tensor_set_cpu(isas[isa]);
        edges_of_isa();
        CHECK_OK();
    }
    tensor_set_cpu(NULL);
    IS(tensor_sum(e), 0), IS(tensor_prod(e), 1), IS(tensor_mean(e), NAN), IS(tensor_all(e), 1),
        IS(tensor_any(e), 0), IS(tensor_norm(e), 0);
    IS(tensor_var(e, 1), NAN), IS(tensor_var(F32(1), 1), NAN), IS(tensor_var(F32(1), 0), 0),
        IS(tensor_std(F32(2, 2, 2), 1), 0);
    CHECK(tensor_numel(tensor_amax_dim(e, 1, 0)) == 0 && tensor_ok()); // (0,3).max(1) is empty
    CHECK(tensor_numel(tensor_max_dim(e, 1, 0).values) == 0 && tensor_ok());
    CHECK_POISON(tensor_max(e), TENSOR_ERR_SHAPE, "amax: x [0,3] has no element");
    CHECK_POISON(tensor_amin_dim(e, 0, 0), TENSOR_ERR_SHAPE, "amin_dim: x [0,3]");
    CHECK_POISON(tensor_argmax(e), TENSOR_ERR_SHAPE, "argmax");
    CHECK_POISON(tensor_max_dim(e, 0, 0).values, TENSOR_ERR_SHAPE, "argmax");
    IS(tensor_sum(tensor_to(F32(1, 0, 3), TENSOR_BOOL)), 2);
    IS(tensor_sum(tensor_full_of(TENSOR_U8, 255, 1000)), 255000),
        IS(tensor_sum(tensor_full_of(TENSOR_I32, 2e9, 10)), 2e10);
    IS(tensor_argmax(F32(1, 3, 3, 2)), 1), IS(tensor_argmin(F32(1, 0, 3, 0)), 1),
        IS(tensor_argmax(F32(1, NAN, NAN, 5)), 1);
    IS(tensor_max_dim(F32(1, NAN, 5), 0, 0).values, NAN), IS(tensor_max_dim(F32(1, NAN, 5), 0, 0).indices, 1);
    IS(tensor_cumsum(F32(1, NAN, 1), 0), 1, NAN, NAN);
    t = tensor_matmul(tensor_zeros(2, 0), tensor_zeros(0, 3));
    IS(t, 0, 0, 0, 0, 0, 0);
    // matmul lets NaN and infinity through
    t = tensor_matmul(tensor_reshape(F32(NAN, 0), 1, 2), tensor_reshape(F32(0, 1), 2, 1));
    IS(t, NAN);
    CHECK(tensor_equal(F32(1, 2), F32(1, 2)) && !tensor_equal(F32(NAN), F32(NAN)) &&
          !tensor_equal(F32(1), I32(1)));
    CHECK(tensor_allclose(F32(1, 2), F32(1.000001f, 2), 1e-5, 1e-8) &&
          !tensor_allclose(F32(1), F32(1.1f), 1e-5, 1e-8));
    CHECK(!tensor_allclose(F32(NAN), F32(NAN), 1e-5, 1e-8));
    IS(tensor_one_hot(I64S(1, 0), 3), 0, 1, 0, 1, 0, 0);
    t = tensor_repeat(tensor_ones(1), 3); // new, not a view with stride 0
    CHECK(!tensor_is_poison(tensor_add_scalar_(t, 1)));
    tensor_clear_error();
    t = F32(1, 2);
    CHECK(tensor_data(tensor_repeat(t, 1)) != tensor_data(t));
    CHECK(tensor_item_i64(tensor_scalar(9007199254740992.0, TENSOR_I64)) == 9007199254740992);
    CHECK_MSG(one_f32(tensor_where(tensor_scalar(1, TENSOR_BOOL), F32(1, 2), F32(3, 4)), 1) == 2,
              "where with a 0-d condition");
}
// Gradients at kinks and of degenerate inputs.
static void kinks(void) {
    static const struct {
        const char *name;
        tensor_t *(*f)(tensor_t *);
        double x[3], g[3];
    } rows[] = {{"relu", (tensor_relu), {0, -1, NAN}, {0, 0, NAN}},
                {"abs", (tensor_abs), {0, -2, 2}, {0, -1, 1}},
                {"sqrt", (tensor_sqrt), {0, 1, 4}, {INFINITY, 0.5, 0.25}},
                {"norm", (tensor_norm), {0, 0, 0}, {0, 0, 0}},
                {"max", (tensor_max), {2, 1, 2}, {0.5, 0, 0.5}},
                {"min", (tensor_min), {2, 1, 1}, {0, 0.5, 0.5}},
                {"prod", (tensor_prod), {0, 2, 3}, {6, 0, 0}}};
    tensor_t *x, *g, *y, *z, *in[2], *out[2];
    int k;
    for (k = 0; k < COUNT(rows); k++) {
        x = tensor_requires_grad_(tensor_from(rows[k].x, TENSOR_F64, 3), 1);
        y = rows[k].f(x);
        if (tensor_ndim(y)) y = tensor_sum(y);
        CHECK_MSG(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0, "%s: %s", rows[k].name,
                  tensor_error_text());
        if (k == 0)
            is_values(g,
                      (const double[]){0, 0, tensor_is_poison(g) ? 0 : ((const double *)tensor_data(g))[2]},
                      3, __LINE__);
        else
            is_values(g, rows[k].g, 3, __LINE__);
        n_grad++;
    }
    x = tensor_requires_grad_(F32(-1, 0.5f, 1), 1);
    y = tensor_sum(tensor_clamp(x, -1, 1)); // 1 at the bounds
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 1, 1, 1);
    y = tensor_max_dim(tensor_requires_grad_(tensor_set_grad(x, NULL) ? x : x, 1), 0, 0).values;
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 1);
    x = tensor_requires_grad_(F32(2, 2, 1), 1);
    y = tensor_max_dim(x, 0, 0).values; // the chosen place alone
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 1, 0, 0);
    z = tensor_requires_grad_(F32(2, 3, 1), 1);
    in[0] = x, in[1] = z;
    y = tensor_sum(tensor_maximum(x, z)); // half each
    tensor_autograd_grad(&y, 1, NULL, in, 2, out, 0);
    IS(out[0], 0.5, 0, 0.5), IS(out[1], 0.5, 1, 0.5);
    x = tensor_requires_grad_(tensor_full(-INFINITY, 3), 1);
    y = tensor_logsumexp(x, 0, 0);
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 0);
    x = tensor_requires_grad_(F32(3, 3, 3), 1);
    y = tensor_std(x, 1);
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 0);
    x = tensor_requires_grad_(F32(-1, 4, 1), 1); // a known trap, as PyTorch
    y = tensor_sum(tensor_where(tensor_gt_scalar(x, 0), tensor_sqrt(x), tensor_zeros(3)));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, NAN, 0.25, 0.5);
    x = tensor_requires_grad_(F32(0, 2, 0), 1); // pow at 0
    y = tensor_sum(tensor_pow(x, F32(2, 3, 0)));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 12, 0);
    n_grad += 9;
}

// ---- wrong arguments ----

static void errors(void) {
    tensor_t *a = tensor_ones(2, 3), *i = I64S(0, 5), *out[4], *v = tensor_ones(4);
    static const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                         huge[3] = {(int64_t)1 << 40, (int64_t)1 << 40, 2}, twice[2] = {0, 0};
    int k;
#define BAD(expression, code, part)                                                                          \
    do {                                                                                                     \
        CHECK_POISON(expression, TENSOR_ERR_##code, part);                                                   \
        n_errors++;                                                                                          \
    } while (0)
    for (k = 0; k < COUNT(pointwise_cases); k++) {
        const op_t *op = &pointwise_cases[k];
        tensor_t *in[3];
        if (op->nin < 2) continue;
        in[0] = tensor_ones_of(op->kind == TENSOR__BIT ? TENSOR_I32
                               : k == TENSOR_OP_WHERE  ? TENSOR_BOOL
                                                       : TENSOR_F32,
                               2, 3);
        in[1] = tensor_ones_of(op->kind == TENSOR__BIT ? TENSOR_I32 : TENSOR_F32, 4);
        in[2] = tensor_ones(1);
        CHECK_MSG(tensor_is_poison(op->call(in, op->nin, NULL)) && tensor_error_code() == TENSOR_ERR_SHAPE &&
                      strstr(tensor_error_text(), op->label) && strstr(tensor_error_text(), "[2,3]") &&
                      strstr(tensor_error_text(), "[4]") && strstr(tensor_error_text(), "ops.c:"),
                  "%s of [2,3] and [4]: \"%s\"", op->label, tensor_error_text());
        tensor_clear_error();
        n_errors++;
    }
    BAD(tensor_floor_divide(I32(1, 2), I32(1, 0)), INDEX,
        "floor_divide: integer division by zero at element 1");
    BAD(tensor_remainder(I64S(1, 2), I64S(0, 1)), INDEX, "remainder: integer division by zero at element 0");
    BAD(tensor_fmod(tensor_ones_of(TENSOR_U8, 3), tensor_zeros_of(TENSOR_U8, 1)), INDEX, "division by zero");
    BAD(tensor_floor_divide_scalar(I32(1), 0), INDEX, "division by zero");
    BAD(tensor_remainder_scalar(I32(1), 0), INDEX, "division by zero");
    { // and nothing is written: beyond the first block, in place too
        tensor_t *big = tensor_ones_of(TENSOR_I32, 100000), *d = tensor_ones_of(TENSOR_I32, 100000);
        ((int32_t *)tensor_data_mut(d))[99999] = 0;
        BAD(tensor_floor_divide(big, d), INDEX, "at element 99999");
        tensor_set_num_threads(4);
        BAD(tensor_remainder(big, d), INDEX, "at element 99999");
        tensor_set_num_threads(1);
    }
    BAD(tensor_sub(tensor_ones_of(TENSOR_BOOL, 2), tensor_ones_of(TENSOR_BOOL, 2)), DTYPE, "sub: bool");
    BAD(tensor_neg(tensor_ones_of(TENSOR_BOOL, 2)), DTYPE, "neg: bool");
    BAD(tensor_bitwise_and(v, v), DTYPE, "bitwise_and: x [4] is f32");
    BAD(tensor_bitwise_not(v), DTYPE, "bitwise_not: x [4] is f32");
    BAD(tensor_where(v, v, v), DTYPE, "where");
    BAD(tensor_masked_fill(v, v, 0), DTYPE, "masked_fill: mask [4] must be bool, not f32");
    BAD(tensor_masked_select(v, v), DTYPE, "masked_select: mask [4] must be bool");
    BAD(tensor_masked_select(v, tensor_ones_of(TENSOR_BOOL, 3)), SHAPE, "masked_select");
    BAD(tensor_masked_fill(v, tensor_ones_of(TENSOR_BOOL, 3), 0), SHAPE, "[3]");
    BAD(tensor_to(v, (tensor_dtype_t)42), DTYPE, "to: 42 is no dtype");
    // shapes
    BAD(tensor_zeros_n(nine, 9, TENSOR_F32), SHAPE, "9 dims");
    BAD(tensor_zeros_n(nine, -1, TENSOR_F32), SHAPE, "-1 dims");
    BAD(tensor_zeros_n(huge, 3, TENSOR_F32), SHAPE, "too many elements");
    BAD(tensor_empty(2, -3), SHAPE, "[2,-3]");
    BAD(tensor_zeros_n(nine, 1, (tensor_dtype_t)-1), DTYPE, "no dtype");
    BAD(tensor_from_n(NULL, TENSOR_F32, nine, 1), SHAPE, "from: data is NULL");
    BAD(tensor_wrap_n(NULL, TENSOR_F32, nine, 1, NULL, NULL), SHAPE, "wrap: data is NULL");
    BAD(tensor_wrap_n((void *)(uintptr_t)3, TENSOR_F32, nine, 1, NULL, NULL), SHAPE, "misaligned");
    CHECK(!tensor_is_poison(tensor_from_n(NULL, TENSOR_F32, (const int64_t[]){0}, 1)));
    BAD(tensor_reshape(a, 4, 2), SHAPE, "reshape: x [2,3] (6 elements) does not fit shape [4,2]");
    BAD(tensor_reshape(a, -1, -1), SHAPE, "reshape");
    BAD(tensor_reshape(a, -1, 4), SHAPE, "reshape");
    BAD(tensor_reshape(a, -2, 3), SHAPE, "reshape");
    BAD(tensor_reshape(tensor_zeros(0), -1, 0), SHAPE, "reshape");
    BAD(tensor_view(tensor_mT(a), 6), SHAPE, "use reshape");
    BAD(tensor_transpose(a, 0, 2), INDEX, "dim 2 is outside -2..1");
    BAD(tensor_mT(v), SHAPE, "mT: x [4] needs at least 2 dims");
    BAD(tensor_permute(a, 0), SHAPE, "permute: x [2,3] has 2 dims, the order 1");
    BAD(tensor_permute(a, 0, 0), INDEX, "dim 0 appears twice");
    BAD(tensor_permute(a, 0, 5), INDEX, "dim 5");
    BAD(tensor_movedim(a, 0, 2), INDEX, "dim 2");
    BAD(tensor_unsqueeze(a, 4), INDEX, "dim 4");
    BAD(tensor_squeeze(a, 2), INDEX, "dim 2");
    BAD(tensor_unsqueeze(tensor_zeros_n(nine, 8, TENSOR_F32), 0), SHAPE, "8 dims already");
    BAD(tensor_expand(a, 4, 3), SHAPE, "expand: x [2,3] does not expand to [4,3]");
    BAD(tensor_expand(a, 3), SHAPE, "expand");
    BAD(tensor_expand(v, -1, 4), SHAPE, "expand");
    BAD(tensor_narrow(a, 0, 1, 2), INDEX, "narrow: start 1, length 2 leave dim 0 of x [2,3]");
    BAD(tensor_narrow(a, 0, 0, -1), INDEX, "narrow");
    BAD(tensor_narrow(a, 0, INT64_MAX, INT64_MAX), INDEX, "narrow");
    BAD(tensor_narrow(tensor_scalar(1, TENSOR_F32), 0, 0, 1), INDEX, "0-d");
    BAD(tensor_select(a, 1, 3), INDEX, "select: index 3 is outside dim 1 of x [2,3]");
    BAD(tensor_select(a, 1, -4), INDEX, "index -4");
    BAD(tensor_select(a, 1, INT64_MIN), INDEX, "select");
    BAD(tensor_slice(a, 0, 0, 2, 0), SHAPE, "slice: step 0");
    BAD(tensor_slice(a, 2, 0, 2, 1), INDEX, "dim 2");
    BAD(tensor_at(a, "0, 0, 0"), INDEX, "indexes 3 dims of x [2,3]");
    BAD(tensor_at(a, "5"), INDEX, "at: index 5 in \"5\" is outside dim 0 of x [2,3]");
    BAD(tensor_at(a, "::-1"), SHAPE, "step");
    BAD(tensor_at(a, "x"), FORMAT, "cannot read \"x\"");
    BAD(tensor_at(a, "0,,1"), FORMAT, "cannot read");
    BAD(tensor_at(a, "..., ..."), FORMAT, "more than one");
    BAD(tensor_at(a, "99999999999999999999"), INDEX, "is outside dim 0");
    BAD(tensor_at(a, NULL), FORMAT, "NULL");
    BAD(tensor_as_strided(a, nine, nine, 2, 6), SHAPE, "leaves the storage");
    BAD(tensor_as_strided(a, (const int64_t[]){7}, nine, 1, 0), SHAPE,
        "leaves the storage of x [2,3] (6 elements)");
    BAD(tensor_as_strided(a, nine, nine, 1, -1), SHAPE, "leaves the storage");
    BAD(tensor_as_strided(a, (const int64_t[]){2}, (const int64_t[]){INT64_MAX}, 1, 0), SHAPE,
        "leaves the storage");
    BAD(tensor_as_strided_scatter(a, v, nine, nine, 1, 0), SHAPE, "as_strided_scatter");
    CHECK(tensor_split(a, 1, 0, out, 1) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split: dim 0 of x [2,3] in parts of 1 needs 2 places, there are 1");
    CHECK(tensor_split(a, 0, 0, out, 4) == 0 && tensor_is_poison(out[3]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split");
    CHECK(tensor_split(a, 1, 2, out, 4) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim 2");
    CHECK(tensor_chunk(a, 0, 0, out, 4) == 0 && tensor_is_poison(out[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "chunk");
    BAD(tensor_flatten(a, 1, 0), INDEX, "flatten: start 1 lies behind end 0");
    BAD(tensor_repeat(a, 2), SHAPE, "repeat: x [2,3] needs at least 2 repeats, got 1");
    BAD(tensor_repeat(a, 2, -1), SHAPE, "repeat");
    // reductions
    BAD(tensor_sum_dim(a, 2, 0), INDEX, "sum_dim: dim 2 is outside -2..1");
    BAD(tensor_sum_dims(a, twice, 2, 0), INDEX, "sum_dims: dim 0 appears twice");
    BAD(tensor_mean(I32(1)), DTYPE, "mean: x [1] is i32");
    BAD(tensor_softmax(I32(1), 0), DTYPE, "softmax: x [1] is i32");
    BAD(tensor_softmax(a, -3), INDEX, "softmax: dim -3");
    BAD(tensor_var(I32(1), 0), DTYPE, "var");
    BAD(tensor_norm(I32(1)), DTYPE, "norm");
    BAD(tensor_cumsum(a, 5), INDEX, "cumsum: dim 5");
    BAD(tensor_logsumexp(a, 5, 0), INDEX, "logsumexp: dim 5");
    BAD(tensor_argmax_dim(a, 9, 0), INDEX, "argmax_dim: dim 9");
    BAD(tensor_max_dim(a, 9, 0).indices, INDEX, "argmax: dim 9");
    // products
    BAD(tensor_matmul(a, a), SHAPE, "matmul: a [2,3] and b [2,3] do not agree on K (3 vs 2)");
    BAD(tensor_matmul(a, tensor_scalar(1, TENSOR_F32)), SHAPE, "at least 1 dim");
    BAD(tensor_matmul(a, tensor_to(a, TENSOR_F64)), DTYPE, "convert one with tensor_to");
    BAD(tensor_matmul(tensor_ones(2, 2, 3), tensor_ones(3, 3, 2)), SHAPE, "batch dims");
    BAD(tensor_mm(a, v), SHAPE, "mm: a [2,3] and b [4] must have 2 and 2 dims");
    BAD(tensor_bmm(tensor_ones(2, 2, 3), tensor_ones(3, 3, 2)), SHAPE, "bmm");
    BAD(tensor_mv(a, v), SHAPE, "K (3 vs 4)");
    BAD(tensor_dot(v, tensor_ones(3)), SHAPE, "K (4 vs 3)");
    BAD(tensor_dot(a, v), SHAPE, "dot");
    BAD(tensor_outer(a, v), SHAPE, "outer");
    BAD(tensor_addmm(tensor_ones(5), a, tensor_ones(3, 2), 1, 1), SHAPE, "[5]");
    BAD(tensor_addmm(tensor_ones(4, 2, 2), a, tensor_ones(3, 2), 1, 1), SHAPE,
        "addmm"); // x must broadcast to [M, N]
    BAD(tensor_tril(v, 0), SHAPE, "tril: x [4] needs at least 2 dims");
    BAD(tensor_triu(v, 0), SHAPE, "triu");
    // joining, indices
    BAD((tensor_cat_n)(NULL, 0, 0), SHAPE, "cat: needs at least one tensor");
    BAD(tensor_cat(0, a, v), SHAPE, "cat: tensor 1 [4] does not fit the first [2,3] along dim 0");
    BAD(tensor_cat(2, a, a), INDEX, "cat: dim 2");
    BAD(tensor_cat(0, tensor_scalar(1, TENSOR_F32), tensor_scalar(1, TENSOR_F32)), SHAPE, "0-d");
    BAD(tensor_cat(0, a, (tensor_t *)NULL), OWNER, "NULL");
    BAD(tensor_stack(0, a, v), SHAPE, "stack: tensor 1 [4] has not the shape of the first [2,3]");
    BAD(tensor_stack(3, a, a), INDEX, "stack: dim 3");
    BAD(tensor_index_select(a, 0, i), INDEX,
        "index_select: index 5 at element 1 of index [2] is outside 0..1 (x [2,3])");
    BAD(tensor_index_select(a, 0, I64S(-1)), INDEX, "index -1 at element 0");
    BAD(tensor_index_select(a, 0, v), DTYPE, "index [4] must be i64 or i32, not f32");
    BAD(tensor_index_select(a, 2, i), INDEX, "dim 2");
    BAD(tensor_index_select(a, 0, tensor_zeros_of(TENSOR_I64, 1, 1)), SHAPE, "index_select");
    BAD(tensor_index_add(a, 0, I64S(2), tensor_ones(1, 3)), INDEX,
        "index_add: index 2 at element 0 of index [1] is outside 0..1 (x [2,3])");
    BAD(tensor_index_add(a, 0, I64S(0), tensor_ones(2, 3)), SHAPE, "index_add");
    BAD(tensor_index_add(a, 0, I64S(0), tensor_ones_of(TENSOR_F64, 1, 3)), DTYPE,
        "src [1,3] is f64, x is f32");
    BAD(tensor_gather(a, 1, tensor_full_of(TENSOR_I64, 3, 2, 1)), INDEX,
        "gather: index 3 at element 0 of index [2,1] is outside 0..2 (x [2,3])");
    BAD(tensor_gather(a, 1, tensor_zeros_of(TENSOR_I64, 3, 1)), SHAPE,
        "gather: index [3,1] does not fit x [2,3] along dim 1");
    BAD(tensor_gather(a, 1, i), SHAPE, "gather");
    BAD(tensor_scatter(a, 1, tensor_full_of(TENSOR_I64, -1, 2, 1), a), INDEX, "scatter: index -1");
    BAD(tensor_scatter(a, 1, tensor_zeros_of(TENSOR_I64, 2, 4), a), SHAPE, "scatter");
    BAD(tensor_scatter_add(a, 0, tensor_full_of(TENSOR_I32, 7, 1, 3), a), INDEX, "scatter_add: index 7");
    BAD(tensor_one_hot(I64S(0, 3), 3), INDEX, "index 3");
    BAD(tensor_one_hot(I64S(0), 0), SHAPE, "one_hot");
    BAD(tensor_one_hot(v, 3), DTYPE, "f32");
    // getters and the rest
    CHECK(tensor_size(a, 2) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim 2");
    CHECK(tensor_stride(a, -3) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "dim -3");
    CHECK(tensor_item(a) != tensor_item(a));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "item: x [2,3] must have exactly one element");
    CHECK(tensor_item_i64(tensor_zeros(0)) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "[0]");
    CHECK(tensor_copy_out(a, out, 5) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "copy_out: x [2,3] f32 needs 24 bytes, got 5");
    CHECK(tensor_set_cpu("mmx") == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "mmx");
    CHECK(tensor_set_num_threads(0) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "set_num_threads");
    CHECK(tensor_set_num_threads(1000) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "256");
    n_errors += 13;
}

static void prepare(void) {
    int isa;
    for (isa = 0; isa < COUNT(isas); isa++)
        isa_there[isa] = tensor_set_cpu(isas[isa]) == 0, tensor_clear_error();
    tensor_set_cpu(NULL);
    prepare_pointwise();
}

int main(void) {
    RUN(prepare);
#if defined(__SANITIZE_THREAD__)
    // One thread cannot race with itself: under the thread sanitizer only what uses several is run.
    RUN(threads);
    printf("skipped under the thread sanitizer: 10 of 12 groups (one thread each), %ld thread cases run\n",
           n_threads);
    return test_report();
#endif
#ifdef TEST_CUDA
    RUN(special_transfer_only);
    RUN(devices);
    printf("%ld device cases\n", n_device);
    device_print();
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    return test_report();
#endif
    RUN(values);
    RUN(threads);
    RUN(gradients);
    RUN(gradient_values);
    RUN(misuse);
    RUN(promotion);
    RUN(scalar_twins);
    RUN(in_place);
    RUN(edges);
    RUN(kinks);
    RUN(errors);
    RUN(devices);
    printf("%ld ops, %ld value cases, %ld compared bitwise with contiguous, %ld thread cases, %ld gradcheck "
           "cases, %ld gradgradcheck cases, %ld gradients against f64, %ld error cases, %ld device cases, "
           "%ld dtype pairs\n",
           n_ops, n_values, n_bits, n_threads, n_grad, n_gradgrad, n_gradvalues, n_errors, n_device,
               n_dtypes);
    printf("skipped: %ld for an instruction set this machine lacks, %ld of half results with a 0-d operand, "
           "%ld scalar twins "
           "(negative numbers on unsigned dtypes; all instruction sets only for the first two numbers), %ld "
           "dtypes where "
           "PyTorch keeps u8 or widens bool; %ld dtypes are accepted that PyTorch refuses\n",
           n_skipped, n_skipped_half, n_skipped_twins, n_skipped_dtypes, n_lenient);
    return test_report();
}

// ops.c - every row of the op tables against naive references: values, dtypes, layouts, instruction sets, threads,
// gradients, errors
//
// Each row needs its case here. Pointwise rows: ref_<name> (double, from libm) and, when integers stay integers,
// int_<name>; the rest: a list other_<name>. A row without them does not compile (see pointwise_cases, other_cases).
#define TENSOR_IMPLEMENTATION
#include "test.h"
#include "promotion.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
enum { MAXD = TENSOR_MAX_DIMS, MAX_IN = 3, ALL = 99 };

static long n_ops, n_values, n_bits, n_threads, n_grad, n_gradgrad, n_errors, n_dtypes, n_skipped, n_lenient;

// ---- plain arrays ----

typedef struct nd_t { int nd, dtype; int64_t d[MAXD], n; double *v; int64_t *i; } nd_t;

static void nd_make(nd_t *a, int nd, const int64_t *d) {
    int k;
    a->nd = nd;
    a->n = 1;
    for (k = 0; k < nd; k++) a->n *= a->d[k] = d[k];
    a->v = (double *)calloc((size_t)a->n + 1, sizeof *a->v);
    a->i = (int64_t *)calloc((size_t)a->n + 1, sizeof *a->i);
}
static void nd_free(nd_t *a) { free(a->v), free(a->i), a->v = NULL, a->i = NULL; }
static int is_float(int dtype) { return dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype >= TENSOR_F16; }
static const char *dname(int dtype) { return tensor_dtype_name((tensor_dtype_t)dtype); }

// Own decoders: exact, and nothing of the library takes part.
static double half_value(unsigned h) {
    unsigned e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(1024 + m, (int)e - 25) : ldexp(m, -24);
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
    case TENSOR_I32: *i = *(const int32_t *)p; *v = (double)*i; return;
    case TENSOR_I64: *i = *(const int64_t *)p; *v = (double)*i; return;
    case TENSOR_U8: case TENSOR_BOOL: *i = *(const uint8_t *)p; *v = (double)*i; return;
    case TENSOR_F16: *v = half_value(*(const uint16_t *)p); break;
    default: *v = bhalf_value(*(const uint16_t *)p); break;
    }
    *i = 0;
}
// Walks the strides itself.
static void nd_read(nd_t *a, const tensor_t *t) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2};
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

enum { LC, LT, LS, LO, LN, LE, LAYOUTS };           // contiguous, transposed, strided slice, offset, narrowed, expanded
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
    case TENSOR_BOOL: *(uint8_t *)p = (uint8_t)(v != 0); break;
    case TENSOR_F16: {                              // values of moderate size: round the mantissa to 11 bits
        int e;
        double m = frexp(v, &e), r = rint(ldexp(m, 11));
        int64_t q = (int64_t)fabs(r);
        if (q == 2048) q = 1024, e++;
        *(uint16_t *)p = (uint16_t)(v == 0 || e < -13 ? 0 : (unsigned)((e + 14) << 10 | (int)(q - 1024)) | (v < 0) << 15);
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

// dims in the given layout over malloc'd memory of just that size (a sanitizer sees one element too far). bound: index
// values are below it.
static tensor_t *make(int dtype, int nd, const int64_t *dims, int layout, double lo, double hi, fill_t fill, int64_t bound) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2};
    int64_t p[MAXD], n = 1, k;
    int order[MAXD], d, pn = nd;
    int64_t perm[MAXD];
    char *data;
    tensor_t *t;
    (void)order;
    if (!nd && layout != LO) layout = LC;
    for (d = 0; d < nd; d++) p[d] = dims[d];
    if (layout == LT) for (d = 0; d < nd; d++) p[d] = dims[nd - 1 - d];
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
            v = dtype == TENSOR_BOOL ? lcg() < 0.5 : dtype == TENSOR_U8 ? floor(lcg() * 20) : floor(low + lcg() * (10 - low));
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
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2};
    tensor_t *r = tensor_empty_n(t->dims, t->ndim, (tensor_dtype_t)t->dtype);
    int64_t k;
    for (k = 0; k < t->numel; k++) {
        int64_t rest = k, at = t->offset;
        int d;
        for (d = t->ndim - 1; d >= 0; d--) {
            at += rest % t->dims[d] * t->strides[d];
            rest /= t->dims[d];
        }
        memcpy((char *)r->storage->data + k * size[t->dtype], (const char *)t->storage->data + at * size[t->dtype],
               (size_t)size[t->dtype]);
    }
    return r;
}
static int same_bits(const tensor_t *a, const tensor_t *b) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2};
    int d;
    if (a->state != TENSOR__LIVE || b->state != TENSOR__LIVE || a->ndim != b->ndim || a->dtype != b->dtype) return 0;
    for (d = 0; d < a->ndim; d++) if (a->dims[d] != b->dims[d]) return 0;
    if (!(a->flags & TENSOR__CONTIGUOUS)) a = packed(a);
    if (!(b->flags & TENSOR__CONTIGUOUS)) b = packed(b);
    return !a->numel || memcmp((char *)a->storage->data + a->offset * size[a->dtype],
                               (char *)b->storage->data + b->offset * size[b->dtype], (size_t)a->numel * (size_t)size[a->dtype]) == 0;
}

// ---- one case ----

typedef struct shape_t { int nd; int64_t d[5]; } shape_t;
typedef struct config_t { shape_t in[MAX_IN]; } config_t;
typedef enum { SAME, BOOL, I64, SUMS, FLT, ONLY_FLOAT, FIRST_FLOAT } rule_t;
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
    int index;                          // input k is an index (0 = none)
    int mask;                           // input k - 1 is bool
    double atol;                        // factor of the absolute tolerance, 0 = 1
    double lo, hi;                      // 0, 0 = those of the row
    int flags;
    int (*special)(void);               // instead of all that
    int id;
    double (*f)(const double *v);       // pointwise
    int64_t (*g)(const int64_t *v);
    int kind;
};
enum { NO_GRAD = 1, NO_GRADGRAD = 2, VIEW = 4, NO_BITS = 8, NO_SECOND = 16 };
#define P(k) (((const op_t *)user)->p[k])

static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "reference"};
static int isa_there[COUNT(isas)];

static int refuses(const op_t *op, int dtype);
static int result_dtype(const op_t *op, int dtype) {
    if (refuses(op, dtype)) return -1;
    switch (op->rule) {
    case BOOL: return TENSOR_BOOL;
    case I64: return TENSOR_I64;
    case SUMS: return is_float(dtype) ? dtype : TENSOR_I64;
    case FLT: return is_float(dtype) ? dtype : TENSOR_F32;
    case ONLY_FLOAT: return is_float(dtype) ? dtype : -1;
    default: return dtype;
    }
}
static int64_t wrap_int(int64_t i, int dtype) {
    switch (dtype) {
    case TENSOR_I32: return (int32_t)(uint32_t)(uint64_t)i;
    case TENSOR_U8: return (uint8_t)(uint64_t)i;
    case TENSOR_BOOL: return i != 0;
    default: return i;
    }
}
static int value_good(double got, double want, int dtype, double atol) {
    static const double rt[] = {1e-5, 1e-12, 0, 0, 0, 0, 1.0e-3, 8e-3}, at[] = {1e-6, 1e-12, 0, 0, 0, 0, 3e-6, 1e-5};
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
        CHECK_MSG(0, "%s %s: result is %d-d %s, expected %d-d %s", op->label, what, y->ndim, dname(y->dtype), want->nd,
                  dname(dtype));
        return 0;
    }
    nd_read(&got, y);
    for (k = 0; k < got.n && good; k++) {
        if (is_float(dtype)) good = value_good(got.v[k], want->v[k], dtype, op->atol);
        else good = got.i[k] == want->i[k];
    }
    CHECK_MSG(good, "%s %s: element %lld is %.9g, expected %.9g", op->label, what, (long long)k - 1,
              is_float(dtype) ? got.v[k - 1] : (double)got.i[k - 1], is_float(dtype) ? want->v[k - 1] : (double)want->i[k - 1]);
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
    int divides = op->id == TENSOR_OP_FLOOR_DIVIDE || op->id == TENSOR_OP_FMOD || op->id == TENSOR_OP_REMAINDER;
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

static const char layouts_used[][MAX_IN] = {
    {LC, LC, LC}, {LT, LT, LT}, {LS, LS, LS}, {LO, LO, LO}, {LN, LN, LN}, {LE, LE, LE}, {LC, LT, LS}, {LS, LC, LE}, {LE, LO, LT}};

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
                if (out < 0) {          // refused dtype
                    y = op->call(in, op->nin, (void *)(uintptr_t)op);
                    CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_DTYPE && strstr(tensor_error_text(), dname(dtype)),
                              "%s %s: expected a DTYPE error, got \"%s\"", op->label, what, tensor_error_text());
                    tensor_clear_error();
                    n_errors++;
                    tensor_scope_end(s);
                    continue;
                }
                for (k = 0; k < op->nin; k++) nd_read(&a[k], in[k]);
                want.dtype = out;
                op->ref(op, a, &want);
                if (!is_float(out)) for (k = 0; k < want.n; k++) want.i[k] = wrap_int(want.i[k], out);
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
                        CHECK_MSG(same_bits(y, z), "%s %s: bits differ from contiguous inputs", op->label, full);
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

typedef struct graph_t { const op_t *op; int mode, nin; const config_t *config; tensor_t *constant[MAX_IN]; } graph_t;
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
        if (biggest > 40 || !smallest) continue;        // central differences cost numel calls (twice numel^2 for the second)
        for (v = 0; v < 8; v++) {
            // Leaf layouts C T S O N, then leaves behind a permute, a slice, an expand.
            static const int leaf[] = {LC, LT, LS, LO, LN, LC, LC, LC}, mode[] = {0, 0, 0, 0, 0, G_PERMUTE, G_SLICE, G_EXPAND};
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
                if (own == TENSOR_F64) tensor_requires_grad_(in[k], 1);
                else g.constant[k] = in[k];
            }
            if (!dims && v) {
                tensor_scope_end(s);
                continue;
            }
            CHECK_OK();
            code = tensor_gradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
            n_grad++;
            CHECK_MSG(code == 0, "%s config %d variant %d: %s", op->label, c, v, tensor_error_text());
            tensor_clear_error();
            if (!(op->flags & NO_GRADGRAD) && biggest <= 24) {
                code = tensor_gradgradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
                n_gradgrad++;
                CHECK_MSG(code == 0, "%s config %d variant %d second order: %s", op->label, c, v, tensor_error_text());
                tensor_clear_error();
            }
            tensor_scope_end(s);
        }
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
            tensor_set_cpu(NULL);
            n_threads++;
            CHECK_MSG(same_bits(one, four), "%s %s %s: 1 and 4 threads differ (%s)", op->label, dname(dtypes[dtype]), isas[isa],
                      tensor_error_text());
            CHECK_OK();
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
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER && strstr(tensor_error_text(), "NULL"),
                  "%s: input %d NULL gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        in[k] = tensor_zeros(-1);
        tensor_clear_error();
        CHECK(tensor_is_poison(in[k]));
        y = op->call(in, op->nin, (void *)(uintptr_t)op);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_POISONED, "%s: input %d poison gives \"%s\"", op->label, k,
                  tensor_error_text());
        tensor_clear_error();
        inner = tensor_scope_begin();
        dead = tensor_zeros(2);
        tensor_scope_end(inner);
        in[k] = dead;
        y = op->call(in, op->nin, (void *)(uintptr_t)op);
        CHECK_MSG(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_OWNER && strstr(tensor_error_text(), "scope ended") &&
                      strstr(tensor_error_text(), "ops.c:"),
                  "%s: input %d dead gives \"%s\"", op->label, k, tensor_error_text());
        tensor_clear_error();
        n_errors += 3;
        tensor_scope_end(s);
    }
}

// ---- pointwise rows ----

#define A v[0]
#define B v[1]
#define C v[2]
#define F(name, expression) static double ref_##name(const double *v) { return expression; }
F(abs, fabs(A)) F(acos, acos(A)) F(asin, asin(A)) F(atan, atan(A)) F(ceil, ceil(A)) F(cos, cos(A)) F(cosh, cosh(A))
F(clamp, A < -1 ? -1 : A > 2 ? 2 : A)
F(elu, A > 0 ? A : 1.25 * expm1(A)) F(erf, erf(A)) F(erfc, erfc(A)) F(exp, exp(A)) F(exp2, exp2(A))
F(expm1, expm1(A)) F(floor, floor(A)) F(gelu, 0.5 * A * erfc(-A / sqrt(2.0)))
F(gelu_tanh, 0.5 * A * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (A + 0.044715 * A * A * A))))
F(leaky_relu, A > 0 ? A : 0.125 * A) F(log, log(A)) F(log10, log10(A)) F(log1p, log1p(A)) F(log2, log2(A))
F(logsigmoid, -log1p(exp(-A))) F(neg, -A) F(reciprocal, 1 / A) F(relu, A > 0 ? A : 0) F(round, rint(A))
F(rsqrt, 1 / sqrt(A)) F(sigmoid, 1 / (1 + exp(-A))) F(sign, A > 0 ? 1 : A < 0 ? -1 : 0) F(silu, A / (1 + exp(-A)))
F(sin, sin(A)) F(sinh, sinh(A)) F(softplus, A * 1.5 > 5 ? A : log1p(exp(A * 1.5)) / 1.5) F(sqrt, sqrt(A))
F(square, A *A) F(tan, tan(A)) F(tanh, tanh(A)) F(trunc, trunc(A)) F(clone, A)
F(add, A + B) F(atan2, atan2(A, B)) F(div, A / B) F(floor_divide, floor(A / B)) F(fmod, fmod(A, B))
F(maximum, A > B ? A : B) F(minimum, A < B ? A : B) F(mul, A *B) F(pow, pow(A, B))
F(remainder, A - floor(A / B) * B) F(sub, A - B)
F(addcdiv, A + 0.5 * B / C) F(addcmul, A + 0.5 * B * C) F(lerp, A + C * (B - A)) F(where, A != 0 ? B : C)
F(eq, A == B) F(ge, A >= B) F(gt, A > B) F(le, A <= B) F(lt, A < B) F(ne, A != B)
F(isfinite, A - A == 0) F(isinf, fabs(A) > 1.7976931348623157e308) F(isnan, A != A)
F(logical_and, A != 0 && B != 0) F(logical_or, A != 0 || B != 0) F(logical_xor, (A != 0) != (B != 0)) F(logical_not, A == 0)
#undef F
// Integers wrap: computed on uint64_t.
#define U(x) ((uint64_t)(x))
#define I(name, expression) static int64_t int_##name(const int64_t *v) { return (int64_t)(expression); }
I(abs, A < 0 ? 0 - U(A) : U(A)) I(ceil, A) I(clamp, A < -1 ? -1 : A > 2 ? 2 : A) I(floor, A) I(neg, 0 - U(A))
I(relu, A > 0 ? A : 0) I(round, A) I(sign, (A > 0) - (A < 0)) I(square, U(A) * U(A)) I(trunc, A) I(clone, A)
I(add, U(A) + U(B)) I(mul, U(A) * U(B)) I(sub, U(A) - U(B)) I(maximum, A > B ? A : B) I(minimum, A < B ? A : B)
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
I(isfinite, 1) I(isinf, 0) I(isnan, 0)
I(logical_and, A &&B) I(logical_or, A || B) I(logical_xor, !A != !B) I(logical_not, !A)
I(bitwise_and, A &B) I(bitwise_or, A | B) I(bitwise_xor, A ^ B) I(bitwise_not, ~A)
#undef I
#undef A
#undef B
#undef C

// How the public function is called; the ops with numbers among their arguments get fixed ones.
#define call_name(name) static tensor_t *call_##name(tensor_t *const *in, int n, void *user)
#define TENSOR_CLAMP_ARGS , -1, 2
#define CALL1(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0] __VA_ARGS__); }
#define CALL2(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0], in[1] __VA_ARGS__); }
#define CALL3(name, ...) call_name(name) { (void)n, (void)user; return tensor_##name(in[0], in[1], in[2] __VA_ARGS__); }
CALL1(abs, ) CALL1(acos, ) CALL1(asin, ) CALL1(atan, ) CALL1(ceil, ) CALL1(clamp, , -1, 2) CALL1(cos, ) CALL1(cosh, )
CALL1(elu, , 1.25) CALL1(erf, ) CALL1(erfc, ) CALL1(exp, ) CALL1(exp2, ) CALL1(expm1, ) CALL1(floor, ) CALL1(gelu, )
CALL1(gelu_tanh, ) CALL1(leaky_relu, , 0.125) CALL1(log, ) CALL1(log10, ) CALL1(log1p, ) CALL1(log2, )
CALL1(logsigmoid, ) CALL1(neg, ) CALL1(reciprocal, ) CALL1(relu, ) CALL1(round, ) CALL1(rsqrt, ) CALL1(sigmoid, )
CALL1(sign, ) CALL1(silu, ) CALL1(sin, ) CALL1(sinh, ) CALL1(softplus, , 1.5, 5) CALL1(sqrt, ) CALL1(square, )
CALL1(tan, ) CALL1(tanh, ) CALL1(trunc, ) CALL1(clone, )
CALL2(add, ) CALL2(atan2, ) CALL2(div, ) CALL2(floor_divide, ) CALL2(fmod, ) CALL2(maximum, ) CALL2(minimum, )
CALL2(mul, ) CALL2(pow, ) CALL2(remainder, ) CALL2(sub, )
CALL3(addcdiv, , 0.5) CALL3(addcmul, , 0.5) CALL3(lerp, ) CALL3(where, )
CALL2(eq, ) CALL2(ge, ) CALL2(gt, ) CALL2(le, ) CALL2(lt, ) CALL2(ne, ) CALL1(isfinite, ) CALL1(isinf, ) CALL1(isnan, )
CALL2(logical_and, ) CALL2(logical_or, ) CALL2(logical_xor, ) CALL1(logical_not, )
CALL2(bitwise_and, ) CALL2(bitwise_or, ) CALL2(bitwise_xor, ) CALL1(bitwise_not, )

static void ref_pointwise(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t d[MAXD], k;
    int nd = 0, i, j, dtype = out->dtype;
    for (i = 0; i < op->nin; i++) if (in[i].nd > nd) nd = in[i].nd;
    for (j = 0; j < nd; j++) d[j] = 1;
    for (i = 0; i < op->nin; i++)
        for (j = 0; j < in[i].nd; j++) if (in[i].d[j] != 1) d[nd - in[i].nd + j] = in[i].d[j];
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        double v[MAX_IN];
        int64_t g[MAX_IN];
        int ints = 1;
        for (i = 0; i < op->nin; i++) {
            int64_t at = nd_at(out, &in[i], k);
            v[i] = in[i].v[at];
            g[i] = in[i].i[at];
            if (is_float(in[i].dtype)) ints = 0;
        }
        if (op->g && (ints || !op->f)) out->i[k] = op->g(g);
        else if (is_float(dtype)) out->v[k] = op->f(v);
        else out->i[k] = (int64_t)op->f(v);
        if (op->id == TENSOR_OP_WHERE && !is_float(in[1].dtype)) out->i[k] = op->g(g);
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
#define S0 {0, {0}}
#define S1(a) {1, {a}}
#define S2(a, b) {2, {a, b}}
#define S3(a, b, c) {3, {a, b, c}}
#define S4(a, b, c, d) {4, {a, b, c, d}}
#define EACH(s) {{s, s, s}}
#define ES1(a) {{S1(a), S1(a), S1(a)}}
#define ES2(a, b) {{S2(a, b), S2(a, b), S2(a, b)}}
#define ES3(a, b, c) {{S3(a, b, c), S3(a, b, c), S3(a, b, c)}}
static const config_t pointwise_configs[] = {
    {{S2(3, 4), S2(3, 4), S2(3, 4)}},
    {{S0, S0, S0}}, ES1(0), ES1(1), ES1(3), ES1(17), ES1(257), ES2(5, 7), ES2(0, 3), ES2(13, 17), ES3(4, 3, 5), ES1(1025),
    {{S4(2, 3, 4, 5), S4(2, 3, 4, 5), S4(2, 3, 4, 5)}},
    {{S2(5, 1), S2(1, 7), S2(5, 7)}}, {{S1(7), S2(5, 7), S1(1)}}, {{S2(5, 7), S0, S1(7)}}, {{S0, S2(5, 3), S2(5, 1)}},
    {{S3(4, 1, 5), S2(3, 1), S3(4, 3, 5)}}, {{S2(0, 3), S2(1, 3), S1(3)}}, {{S2(33, 65), S1(65), S2(33, 1)}},
    {{S2(1, 1), S1(1), S0}}, {{S1(1), S1(0), S1(1)}}, {{S1(3), S2(2, 3), S2(2, 1)}}, {{S2(2, 1), S1(3), S0}}};
static const config_t pointwise_big[] = {{{S2(257, 301), S2(257, 301), S2(257, 301)}}, {{S2(257, 301), S1(301), S2(257, 1)}}};

static op_t pointwise_cases[] = {
#define TENSOR__X(ID, name, kind_, ...)                                                                                    \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .g = IF_##kind_(name), .nin = 1,     \
     .rule = RULE_##kind_},
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind_, ...)                                                                                    \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .g = IF_##kind_(name), .nin = 2,     \
     .rule = RULE_##kind_},
    TENSOR_OPS_BINARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind_, ...)                                                                                    \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .g = IF_##kind_(name), .nin = 3,     \
     .rule = RULE_##kind_},
    TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, n, kind_, ...)                                                                                 \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .f = ref_##name, .g = int_##name, .nin = n,           \
     .rule = BOOL, .kind = TENSOR__##kind_},
    TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, n, ...)                                                                                        \
    {.label = #name, .id = TENSOR_OP_##ID, .call = call_##name, .g = int_##name, .nin = n, .kind = TENSOR__BIT},
    TENSOR_OPS_BITWISE(TENSOR__X)
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
    }
}
// Some dtypes are refused by single ops: integers below keep the table above simple.
static int refuses(const op_t *op, int dtype) {
    if (op->kind == TENSOR__BIT) return is_float(dtype);
    return dtype == TENSOR_BOOL && (op->id == TENSOR_OP_SUB || op->id == TENSOR_OP_NEG);
}

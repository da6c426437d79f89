// ops.h - the ops of ops.def that have a reference (tests/references.h): their cases, inputs in every
// layout, dtypes of their results, comparison. Nothing of the library takes part in making, reading and
// comparing elements.
//
// Every row of the op tables is in ops.def: one without a row there does not compile (see `there`).
#ifndef TEST_OPS_H
#define TEST_OPS_H
#define TENSOR_BACKEND
#include "mirror.h"
#include "cases.h"
#include "elements.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
enum { MAXD = TENSOR_MAX_DIMS, OPERANDS = 3, WHOLE = 99 };

// ---- every row of the tables is in ops.def ----

enum {
#define ROW(name, why) THERE_##name,
#define INSIDE(name, call, cases, dtypes, reference, flags) THERE_##name,
#define OP(name, twins, form, args, cases, time, torch) THERE_##name,
#include "ops.def"
    THERE_COUNT
};
#define X(ID, name, ...) THERE_##name,
TEST_FN int rows_there(void) {
    static const int there[] = {TENSOR_OPS_POINTWISE(X, X, X, X, X) TENSOR_OPS_OTHER(X) NN_OPS(X)};
    return COUNT(there);
}
#undef X
// The row of tensor.h with this name; -1: none has it.
TEST_FN int row_named(const char *name) {
    int k;
    for (k = 0; k < TENSOR_OP_COUNT; k++) {
        if (strcmp(TENSOR__(row)(k)->name, name) == 0) { return k; }
    }
    return -1;
}

// ---- plain arrays ----

typedef struct nd_t {
    int nd, dtype;
    int64_t d[MAXD], n;
    double *v;
    int64_t *i;
} nd_t;

TEST_FN void nd_make(nd_t *a, int nd, const int64_t *d) {
    int k;
    a->nd = nd;
    a->n = 1;
    for (k = 0; k < nd; k++) { a->n *= a->d[k] = d[k]; }
    a->v = (double *)calloc((size_t)a->n + 1, sizeof *a->v);
    a->i = (int64_t *)calloc((size_t)a->n + 1, sizeof *a->i);
}
TEST_FN void nd_free(nd_t *a) {
    free(a->v), free(a->i);
    a->v = NULL, a->i = NULL;
}
TEST_FN int is_float(int dtype) {
    return dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
}
static const char *dname(int dtype) { return tensor_dtype_name((tensor_dtype_t)dtype); }

// Own decoders: exact, and nothing of the library takes part.
TEST_FN double half_value(unsigned h) {
    unsigned e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? (double)NAN : (double)INFINITY)
               : e     ? ldexp(1024 + m, (int)e - 25)
                       : ldexp(m, -24);
    return h >> 15 ? -x : x;
}
TEST_FN double bhalf_value(unsigned h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}
TEST_FN void element(const void *p, int dtype, double *v, int64_t *i) {
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
TEST_FN void nd_read(nd_t *a, const tensor_t *t) {
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
TEST_FN int64_t nd_at(const nd_t *out, const nd_t *b, int64_t k) {
    int64_t at = 0, step = 1;
    int d;
    for (d = 1; d <= out->nd; d++) {
        int64_t i = k % out->d[out->nd - d];
        k /= out->d[out->nd - d];
        if (d > b->nd) { continue; }
        if (b->d[b->nd - d] != 1) { at += i * step; }
        step *= b->d[b->nd - d];
    }
    return at;
}

// ---- inputs in every layout ----

enum { LC, LT, LS, LO, LN, LE, LAYOUTS }; // contiguous, transposed, strided slice, offset, narrowed, expanded
static const char layout_names[] = "CTSONE";
typedef enum { VALUES, STEPS, SIGNED, INDEX } fill_t;

static uint64_t lcg_state = 1;
TEST_FN double lcg(void) {
    lcg_state = lcg_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(lcg_state >> 11) * 1.1102230246251565e-16;
}
TEST_FN void store(void *p, int dtype, double v) {
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
        if (q == 2048) { q = 1024, e++; }
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
TEST_FN void release(void *data, void *user) { (void)user, free(data); }

// dims in the given layout over malloc'd memory of just that size (a sanitizer sees one element too far).
// bound: index values are below it.
TEST_FN tensor_t *make(int dtype, int nd, const int64_t *dims, int layout, double lo, double hi, fill_t fill,
                      int64_t bound) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    int64_t p[MAXD], n = 1, k;
    int d, pn = nd;
    int64_t perm[MAXD];
    char *data;
    tensor_t *t;
    if (!nd && layout != LO) { layout = LC; }
    for (d = 0; d < nd; d++) { p[d] = dims[d]; }
    if (layout == LT) {
        for (d = 0; d < nd; d++) { p[d] = dims[nd - 1 - d]; }
    }
    if (layout == LS) { p[nd - 1] = dims[nd - 1] * 2 + 1; }
    if (layout == LN) { p[nd - 1] = dims[nd - 1] + 3; }
    if (layout == LE) { p[0] = dims[0] ? 1 : 0; }
    for (d = 0; d < nd; d++) { n *= p[d]; }
    if (layout == LO) { n += 3, pn = 1, p[0] = n; }
    data = (char *)malloc((size_t)(n ? n : 1) * (size_t)size[dtype]);
    for (k = 0; k < n; k++) {
        double v = lo + (hi - lo) * lcg();
        if (fill == STEPS) { v = floor(v * 2) / 2; }
        if (!is_float(dtype)) {
            double low = fill == SIGNED ? 1 : -9;
            v = dtype == TENSOR_BOOL ? lcg() < 0.5
                : dtype == TENSOR_U8 ? floor(lcg() * 20)
                                     : floor(low + lcg() * (10 - low));
            if (fill == SIGNED && v == 0) { v = 1; }
            if (fill == STEPS && dtype != TENSOR_BOOL) { v = floor(lcg() * 4); }
            if (fill == INDEX) { v = bound > 0 ? floor(lcg() * (double)bound) : 0; }
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
        for (d = 0; d < nd; d++) { perm[d] = nd - 1 - d; }
        return tensor_permute_n(t, perm, nd);
    case LS: return tensor_slice(t, nd - 1, 1, dims[nd - 1] * 2 + 1, 2);
    case LO: return tensor_view_n(tensor_narrow(t, 0, 3, n - 3), dims, nd);
    case LN: return tensor_narrow(t, nd - 1, 2, dims[nd - 1]);
    case LE: return tensor_expand_n(t, dims, nd);
    default: return t;
    }
}
// The same values in a fresh contiguous tensor, without the library's own copy kernels.
TEST_FN tensor_t *packed(const tensor_t *t) {
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
TEST_FN int same_bits(const tensor_t *a, const tensor_t *b) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    int d;
    if (a->state != TENSOR__LIVE || b->state != TENSOR__LIVE || a->ndim != b->ndim || a->dtype != b->dtype) {
        return 0;
    }
    for (d = 0; d < a->ndim; d++) {
        if (a->dims[d] != b->dims[d]) { return 0; }
    }
    if (!(a->flags & TENSOR__CONTIGUOUS)) { a = packed(a); }
    if (!(b->flags & TENSOR__CONTIGUOUS)) { b = packed(b); }
    return !a->numel || memcmp((char *)a->storage->data + a->offset * size[a->dtype],
                               (char *)b->storage->data + b->offset * size[b->dtype],
                               (size_t)a->numel * (size_t)size[a->dtype]) == 0;
}

// ---- one op with one case ----

typedef enum {
    SAME, TO_FLOAT, FLOATS, TO_BOOL, TRUTH, TO_I64, SUMS, NO_BOOL, BOOL_TO_I64, INTEGERS, SHIFTS
} rule_t;
enum { NO_BITS = 1 };                   // sums whose order follows the strides in memory
typedef struct config_t {
    word_t in[OPERANDS];
} config_t;
typedef struct op_t op_t;
struct op_t {
    char label[200];
    void (*call)(arguments_t *a);
    const entry_t *entry;               // NULL of a row that no function has
    arguments_t given;
    int nin, result;                    // which of its results
    void (*ref)(const op_t *op, const nd_t *in, nd_t *out);
    int id;                             // the row of the table
    int64_t p[8];                       // what the reference is told
    double (*f)(const double *v, const arguments_t *a);         // of a pointwise row
    int64_t (*g)(const int64_t *v, const arguments_t *a);
    rule_t rule;
    int flags, steps, no_grad;
    double lo, hi, atol, half, gradient_half;
    config_t *configs, *large;
    int nconfigs, nlarge;
};

TEST_FN tensor_t *run(const op_t *op, tensor_t *const *in) {
    arguments_t a = op->given;
    int k;
    a.nin = op->nin;
    for (k = 0; k < op->nin; k++) { a.in[k] = in[k]; }
    op->call(&a);
    return a.out[op->result < a.nout ? op->result : 0];
}
// For tensor_gradcheck: user is the op.
TEST_FN tensor_t *run_user(tensor_t *const *in, int n, void *user) {
    (void)n;
    return run((const op_t *)user, in);
}

// -> the dtype of the result, -1: refused
TEST_FN int result_dtype(const op_t *op, int dtype) {
    int real = is_float(dtype), truth = dtype == TENSOR_BOOL;
    switch (op->rule) {
    case TO_FLOAT: return real ? dtype : TENSOR_F32;
    case FLOATS: return real ? dtype : -1;
    case TO_BOOL: return TENSOR_BOOL;
    case TRUTH: return dtype == TENSOR_U8 ? TENSOR_U8 : TENSOR_BOOL;
    case TO_I64: return TENSOR_I64;
    case SUMS: return real ? dtype : TENSOR_I64;
    case NO_BOOL: return truth ? -1 : dtype;
    case BOOL_TO_I64: return truth ? TENSOR_I64 : dtype;
    case INTEGERS: return real ? -1 : dtype;
    case SHIFTS: return real || truth ? -1 : dtype;
    default: return dtype;
    }
}
TEST_FN int input_dtype(const word_t *w, int dtype) {
    if (has_letter(w, 'k') || has_letter(w, 'l')) { return dtype == TENSOR_I32 ? TENSOR_I32 : TENSOR_I64; }
    return has_letter(w, 'm') ? TENSOR_BOOL : dtype;
}
TEST_FN int64_t wrap_int(int64_t i, int dtype) {
    switch (dtype) {
    case TENSOR_I32: return (int32_t)(uint32_t)(uint64_t)i;
    case TENSOR_U8: return (uint8_t)(uint64_t)i;
    case TENSOR_I8: return (int8_t)(uint8_t)(uint64_t)i;
    case TENSOR_I16: return (int16_t)(uint16_t)(uint64_t)i;
    case TENSOR_BOOL: return i != 0;
    default: return i;
    }
}

// Writes what a letter asks for over the elements: the integers of a list, rows in order.
TEST_FN void arrange_elements(tensor_t *t, const word_t *w) {
    static const int size[] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
    const char *p = w->list;
    char *end;
    int64_t n = t->numel, row = w->nd ? w->dims[w->nd - 1] : 1, k, j;
    nd_t a;
    if (!*p && !has_letter(w, 'o')) { return; }
    nd_read(&a, t);
    for (k = 0; k < n && *p; k++, p = *end == ',' ? end + 1 : end) { a.v[k] = (double)strtoll(p, &end, 10); }
    for (k = 0; k < n && !*w->list; k++) {
        for (j = k; j % row && a.v[j] < a.v[j - 1]; j--) {
            double v = a.v[j];
            a.v[j] = a.v[j - 1];
            a.v[j - 1] = v;
        }
    }
    for (k = 0; k < n; k++) {
        int64_t rest = k, at = t->offset;
        int d;
        for (d = t->ndim - 1; d >= 0; d--) {
            at += rest % t->dims[d] * t->strides[d];
            rest /= t->dims[d];
        }
        store((char *)t->storage->data + at * size[t->dtype], t->dtype, a.v[k]);
    }
    nd_free(&a);
}
TEST_FN tensor_t *input(const op_t *op, const config_t *c, int k, int dtype, int layout) {
    const word_t *w = &c->in[k];
    double lo = op->lo, hi = op->hi;
    fill_t fill = op->steps ? STEPS : VALUES;
    tensor_t *t;
    if (has_letter(w, 'k') || has_letter(w, 'l')) { fill = INDEX; }
    if (has_letter(w, 'n')) { fill = SIGNED; }
    if (!(lo < hi)) { lo = -3, hi = 3; }
    if (layout == LE && (has_letter(w, 'l') || has_letter(w, 'o'))) { layout = LC; }
    t = make(input_dtype(w, dtype), w->nd, w->dims, layout, lo, hi, fill, w->below);
    if (t->state == TENSOR__LIVE) { arrange_elements(t, w); }
    return t;
}

// ---- the table ----

#include "references.h"

// References of whole tensors are told numbers that depend on the arguments.
#define I(k) a->i[k]
#define TELL(function, ID, ...)                                                                              \
    const int64_t told[] = {__VA_ARGS__};                                                                    \
    (void)a;                                                                                                 \
    op->ref = ref_##function;                                                                                \
    op->id = TENSOR_OP_##ID;                                                                                 \
    memcpy(op->p, told, sizeof told);
#define TOLD(name, reference) static void tell_##name(op_t *op, const arguments_t *a) { TELL reference }
#define REF(name, twins, form, args, cases, dtypes, reference, flags, time, torch) TOLD(name, reference)
#define PAIRS(name, args, cases, reference, indices, time, torch)                                            \
    TOLD(name, reference)                                                                                    \
    TOLD(name##_indices, indices)
#define INSIDE(name, call, cases, dtypes, reference, flags) TOLD(name, reference)
#include "ops.def"
#undef I

typedef struct line_t {
    const char *name, *cases;
    int operands;                       // of a pointwise row, else 0
    double lo, hi;
    double (*f)(const double *v, const arguments_t *a);
    int64_t (*g)(const int64_t *v, const arguments_t *a);
    rule_t rule;
    void (*tell)(op_t *op, const arguments_t *a);
    int result, results, flags;         // results: how many of its kind may be there
    void (*inside)(arguments_t *a);
} line_t;
#define RESULTS_ONE 1
#define RESULTS_ONE_N 1
#define RESULTS_MANY 3
static const line_t lines[] = {
#define UNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, units, torch)                   \
    {#name, cases, 1, lo, hi, ref_##name, int_##name, dtypes, NULL, 0, 1, 0, NULL},
#define BINARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                         \
    {#name, cases, 2, lo, hi, ref_##name, int_##name, dtypes, NULL, 0, 1, 0, NULL},
#define TERNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                        \
    {#name, cases, 3, lo, hi, ref_##name, int_##name, dtypes, NULL, 0, 1, 0, NULL},
#define REF(name, twins, form, args, cases, dtypes, reference, flags, time, torch)                           \
    {#name, cases, 0, 0, 0, NULL, NULL, dtypes, tell_##name, 0, RESULTS_##form, flags, NULL},
#define PAIRS(name, args, cases, reference, indices, time, torch)                                            \
    {#name, cases, 0, 0, 0, NULL, NULL, SAME, tell_##name, 0, 1, 0, NULL},                                   \
    {#name, cases, 0, 0, 0, NULL, NULL, TO_I64, tell_##name##_indices, 1, 1, 0, NULL},
#define INSIDE(name, call, cases, dtypes, reference, flags)                                                  \
    {#name, cases, 0, 0, 0, NULL, NULL, dtypes, tell_##name, 0, 1, flags, inside_##call},
#include "ops.def"
};

enum { MAX_TESTED = 400 };
static op_t tested[MAX_TESTED];
static int ntested;

TEST_FN config_t *configs_of(const case_t *cases, int n, const case_t *letters, int nin) {
    config_t *c = (config_t *)calloc((size_t)n + 1, sizeof *c);
    int k, i;
    for (k = 0; k < n; k++) {
        for (i = 0; i < nin && i < OPERANDS; i++) {
            c[k].in[i] = cases[k].in[i];
            if (letters) { memcpy(c[k].in[i].letters, letters->in[i].letters, sizeof c[k].in[i].letters); }
        }
    }
    return c;
}
// One case of a line, of all shapes of its list, and one of its results.
TEST_FN void add_tested(const line_t *line, const char *text, int result) {
    static case_t list[MAX_CASES], one[2];
    op_t *op = &tested[ntested];
    int entry = find(line->name), n;
    CHECK_MSG(ntested < MAX_TESTED, "%s: no room in `tested`", line->name);
    if (ntested == MAX_TESTED) { return; }
    ntested++;
    snprintf(op->label, sizeof op->label, "%.40s%s%.120s%s", line->name, *text ? " " : "", text,
             result ? " (another result)" : "");
    n = read_cases(text, line->operands, "", 1, list, MAX_CASES);
    op->given = list[0].given;
    op->nin = list[0].nin;
    op->lo = list[0].lo < list[0].hi ? list[0].lo : line->lo;
    op->hi = list[0].lo < list[0].hi ? list[0].hi : line->hi;
    op->atol = list[0].atol, op->half = list[0].half, op->gradient_half = list[0].gradient_half;
    op->steps = list[0].steps, op->no_grad = list[0].no_grad;
    op->rule = line->rule, op->flags = line->flags, op->result = result;
    CHECK_MSG(op->nin <= OPERANDS, "%s: %d inputs", op->label, op->nin);
    if (entry < NOPS) { op->entry = &ops[entry]; }
    op->call = line->inside ? line->inside : op->entry ? op->entry->call : NULL;
    CHECK_MSG(op->call != NULL, "%s cannot be called", line->name);
    if (line->operands) {
        one[0] = list[0];
        op->ref = ref_pointwise;
        op->id = row_named(line->name);
        CHECK_MSG(op->id >= 0, "%s is not a row of the tables", line->name);
        op->f = line->rule == INTEGERS || line->rule == SHIFTS ? NULL : line->f;
        op->g = line->rule == TO_FLOAT || line->rule == FLOATS ? NULL : line->g;
        op->nlarge = read_cases("@large", 0, "", 1, list, MAX_CASES);
        op->large = configs_of(list, op->nlarge, &one[0], op->nin);
        n = read_cases("@operands", 0, "", 1, list, MAX_CASES);
        op->configs = configs_of(list, n, &one[0], op->nin);
    } else {
        line->tell(op, &op->given);
        op->configs = configs_of(list, n, NULL, op->nin);
    }
    op->nconfigs = n;
}
TEST_FN void prepare_tested(void) {
    char part[400];
    int k, j, r;
    CHECK(rows_there() == (int)TENSOR_OP_COUNT + (int)NN_OP_COUNT);
    for (k = 0; k < COUNT(lines); k++) {
        for (j = 0; part_of(lines[k].cases, j, part, sizeof part); j++) {
            for (r = 0; r < lines[k].results; r++) { add_tested(&lines[k], part, lines[k].result + r); }
        }
    }
}
TEST_FN void each(void (*visit)(const op_t *op)) {
    int k;
    for (k = 0; k < ntested; k++) {
        if (test_lines > TEST_MAX_LINES - 4) { test_lines = TEST_MAX_LINES - 4; }
        visit(&tested[k]);
    }
}

// ---- instruction sets ----

static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "reference"};
static int isa_there[COUNT(isas)];

// For the start of main.
TEST_FN void prepare(void) {
    int isa;
    for (isa = 0; isa < COUNT(isas); isa++) {
        isa_there[isa] = tensor_set_isa(isas[isa]) == 0;
        tensor_clear_error();
    }
    tensor_set_isa(NULL);
    prepare_tested();
}

// ---- comparison ----

TEST_FN int value_good(double got, double want, int dtype, double atol) {
    static const double rt[] = {1e-5, 1e-12, 0, 0, 0, 0, 1.0e-3, 8e-3, 0, 0},
                        at[] = {1e-6, 1e-12, 0, 0, 0, 0, 3e-6, 1e-5, 0, 0};
    if (want != want) { return got != got; }
    if (got == want) { return 1; }
    return fabs(got - want) <= at[dtype] * (atol > 0 ? atol : 1) + rt[dtype] * fabs(want);
}
TEST_FN int compare(const op_t *op, const tensor_t *y, const nd_t *want, int dtype, const char *what) {
    nd_t got;
    int64_t k;
    int d, good = 1;
    if (y->state != TENSOR__LIVE) {
        CHECK_MSG(0, "%s %s: %s", op->label, what, tensor_error_text());
        tensor_clear_error();
        return 0;
    }
    for (d = 0; d < want->nd; d++) { good &= y->ndim == want->nd && y->dims[d] == want->d[d]; }
    if (!good || y->ndim != want->nd || y->dtype != dtype) {
        CHECK_MSG(0, "%s %s: result is %d-d %s, expected %d-d %s", op->label, what, y->ndim, dname(y->dtype),
                  want->nd, dname(dtype));
        return 0;
    }
    nd_read(&got, y);
    for (k = 0; k < got.n && good; k++) {
        if (is_float(dtype)) {
            good = value_good(got.v[k], want->v[k], dtype,
                              dtype >= TENSOR_F16 && op->half > 0 ? op->half : op->atol);
        } else {
            good = got.i[k] == want->i[k];
        }
    }
    CHECK_MSG(good, "%s %s: element %lld is %.9g, expected %.9g", op->label, what, (long long)k - 1,
              is_float(dtype) ? got.v[k ? k - 1 : 0] : (double)got.i[k ? k - 1 : 0],
              is_float(dtype) ? want->v[k ? k - 1 : 0] : (double)want->i[k ? k - 1 : 0]);
    nd_free(&got);
    return good;
}

// ---- gradients of one case ----

// -> how many inputs have one; -1: the op gives poison, or backward fails
TEST_FN int gradients_of(const op_t *op, tensor_t *const *in, tensor_t **grads, int flags) {
    tensor_t *leaf[OPERANDS], *v[OPERANDS] = {NULL}, *y, *w;
    int k, n = 0;
    for (k = 0; k < op->nin; k++) {
        v[k] = in[k];
        if (!is_float(in[k]->dtype)) { continue; }
        v[k] = leaf[n++] = tensor_requires_grad_(tensor_detach(in[k]), 1);
    }
    y = run(op, v);
    if (tensor_is_poison(y)) { return -1; }
    if (!n || !tensor_requires_grad(y)) { return 0; }
    // weights with few bits, some negative
    w = tensor_arange(0, (double)tensor_numel(y), 1, TENSOR_F64);
    w = tensor_sub_scalar(tensor_div_scalar(tensor_remainder_scalar(w, 13), 8), 0.5);
    w = tensor_to(tensor_reshape_n(w, y->dims, y->ndim), y->dtype);
    w = tensor_to(w, (int)tensor_device(y));
    return tensor_autograd_grad(&y, 1, &w, leaf, n, grads, flags | TENSOR_ALLOW_UNUSED) ? -1 : n;
}
// Whether the result has a gradient: rows that only gradients run have one if their row says so.
TEST_FN int has_gradient(const op_t *op) {
    if (op->no_grad || op->rule == TO_BOOL || op->rule == TRUTH || op->rule == TO_I64 ||
        op->rule == INTEGERS || op->rule == SHIFTS) {
        return 0;
    }
    return op->entry != NULL || TENSOR__(row)(op->id)->grad != NULL;
}

#endif

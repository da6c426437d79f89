// fixtures.c - replays what PyTorch gave: tests/fixtures/*.safetensors, written by tests/fixtures/generate.py
//
// Each case is one line of a file's metadata (its form: the head of generate.py): inputs with layouts,
// arguments, results, gradients. Shapes and dtypes of results must be equal, elements within the tolerance
// class of the case, NaN only where PyTorch has NaN. An op in the files without a row in ops.def fails.
//
//   build/tests/fixtures [-v] [op ..]   -v prints every mismatch, known ones too; op ..: those only
#include "calls.h"

enum { MAX_WHY = 64 };

// Tolerance: eps of the dtype * (relative * |want| + scaled * largest finite |want| of the tensor or 1).
// The class "tol" of a case is for its results; its gradients have "gtol", or else `gradient` of the class.
static const struct {
    const char *name;
    double relative, scaled;
    const char *gradient;
} classes[] = {
    {"exact", 0, 0, "exact"}, {"fine", 4, 0, "near"},     {"near", 6, 2, "near"},
    {"sum", 4, 8, "sum"},     {"loose", 16, 16, "loose"},
    {"rough", 256, 256, "rough"},       // of ill-conditioned matrices
    {"path", 4e9, 4e9, "path"},         // f64, where an optimizer is after up to 180 steps
};
enum { CLASSES = (int)(sizeof classes / sizeof classes[0]) };

// ---- reading ----

static int verbose;
static long n_cases, n_gradients, n_why[MAX_WHY];
static char why_key[MAX_WHY][64];
static const char *why_text[MAX_WHY];

// Elements as doubles and as integers, in row-major order.
typedef struct values_t {
    int64_t n;
    double *v;
    int64_t *i;
} values_t;

static void values_of(values_t *x, tensor_t *t) {
    tensor_dtype_t dtype = tensor_dtype(t);
    int real = dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
    int64_t k;
    x->n = tensor_numel(t);
    x->v = (double *)calloc((size_t)x->n + 1, sizeof(double));
    x->i = (int64_t *)calloc((size_t)x->n + 1, sizeof(int64_t));
    t = tensor_to(tensor_detach(t), real ? TENSOR_F64 : TENSOR_I64); // exact
    CHECK(tensor_copy_out(t, real ? (void *)x->v : (void *)x->i, (size_t)x->n * 8) == 0);
    if (!real) {
        for (k = 0; k < x->n; k++) { x->v[k] = (double)x->i[k]; }
    }
}
static void values_free(values_t *x) {
    free(x->v), free(x->i);
}

static tensor_t *weights_of(tensor_t *y) {
    tensor_shape_t s = tensor_shape(y);
    int64_t n = tensor_numel(y), k;
    double *w = (double *)malloc((size_t)n * sizeof *w + 1);
    tensor_t *t;
    for (k = 0; k < n; k++) { w[k] = (double)(k * 5 % 7 - 3) * 0.25 + 0.125; }
    t = tensor_to(tensor_from_n(w, TENSOR_F64, s.dims, s.ndim), tensor_dtype(y));
    free(w);
    return t;
}

// ---- comparing ----

// Where results differ and shall (or do for now): op, what differs (r result, g gradient, e error), in how
// many cases, why. Any other number of differing cases is a failure.
static struct {
    const char *op;
    char what;
    int cases;
    const char *why;
    int seen;
} known[] = {
    {"abs", 'g', 8, "the gradient at NaN is NaN (PyTorch: 0)", 0},
    {"amax_dim", 'g', 8, "the gradient of a NaN result goes to the NaNs, as max's (PyTorch: 0 / 0)", 0},
    {"amin_dim", 'g', 8, "the gradient of a NaN result goes to the NaNs, as min's (PyTorch: 0 / 0)", 0},
    {"as_strided_scatter", 'g', 4, "the gradient of x is g outside the view (PyTorch's is wrong there)", 0},
    {"atan2", 'g', 8, "a u8 operand is not squared in u8 (PyTorch overflows)", 0},
    {"binary_cross_entropy", 'g', 4, "at 0 and 1 the derivatives of the clamped logs (PyTorch: of the logs)",
     0},
    {"clamp", 'g', 24, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_", 'g', 4, "1 at the bounds, as PyTorch was (2.15: 0)", 0},
    {"elu", 'g', 14, "the gradient at NaN is NaN (PyTorch: g)", 0},
    {"floor_divide", 'r', 4, "u8 by a negative 0-d integer: the number is not wrapped to u8 first", 0},
    {"floor_divide_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"fmod", 'r', 4, "u8 by a negative 0-d integer: the number is not wrapped to u8 first", 0},
    {"fmod_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"gelu", 'r', 8, "inf at inf, 0 at -inf, in every dtype (PyTorch: NaN)", 0},
    {"prod", 'g', 16, "the product of the others, whatever x is (PyTorch divides by NaN and inf)", 0},
    {"prod_dim", 'g', 20, "the product of the others, whatever x is (PyTorch divides by NaN and inf)", 0},
    {"remainder", 'r', 5, "a 0-d operand is not rounded to the other's f16 first; nor wrapped to u8", 0},
    {"remainder_scalar", 'r', 8, "u8 by a negative number: the number is not wrapped to u8 first", 0},
    {"celu", 'g', 2, "the gradient at NaN is g, in every dtype (PyTorch: NaN in f64)", 0},
    {"clamp_max", 'g', 8, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_min", 'g', 8, "1 at the bounds and NaN kept, as PyTorch was (2.15: 0)", 0},
    {"clamp_tensor", 'g', 4, "ties with a bound as clamp's (PyTorch 2.15: shared)", 0},
    {"digamma", 'g', 8, "PyTorch's trigamma is good to 1e-10 only", 0},
    {"hardshrink", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"hardsigmoid", 'g', 9, "1 / 6 is exact in f64 (PyTorch: that of f32); NaN", 0},
    {"hardswish", 'g', 1, "the gradient at NaN is g, in every dtype (PyTorch: NaN in f64)", 0},
    {"hardtanh", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"logit", 'g', 14, "the gradient at -0 is 1 / -0, that of a clamped NaN 0 (PyTorch: inf, NaN)", 0},
    {"igamma", 'r', 4, "the series and PyTorch's differ by 2e-15", 0},
    {"igamma", 'g', 4, "by the logarithm of gamma, which is good to 5e-15", 0},
    {"igammac", 'g', 8, "by the logarithm of gamma, which is good to 5e-15", 0},
    {"logical_and_", 'g', 16, "the gradient of x is 0, as of eq_ (PyTorch's passes x's place by)", 0},
    {"logical_not_", 'g', 16, "the gradient of x is 0, as of eq_ (PyTorch's passes x's place by)", 0},
    {"logical_or_", 'g', 16, "the gradient of x is 0, as of eq_ (PyTorch's passes x's place by)", 0},
    {"logical_xor_", 'g', 16, "the gradient of x is 0, as of eq_ (PyTorch's passes x's place by)", 0},
    {"mvlgamma", 'r', 4, "a sum of two lgamma, each within its tolerance", 0},
    {"polygamma", 'g', 8, "PyTorch's polygamma is good to 1e-10 only", 0},
    {"polygamma", 'r', 8, "PyTorch's polygamma is good to 1e-10 only", 0},
    {"relu6", 'g', 2, "the gradient at NaN is g (PyTorch: 0)", 0},
    {"selu", 'g', 7, "the gradient at NaN is NaN (PyTorch: g)", 0},
    {"softshrink", 'g', 4, "the gradient at NaN is g (PyTorch: 0)", 0},
};
enum { KNOWN = (int)(sizeof known / sizeof known[0]) };

// A mismatch of one case. what: r, g or e as in known, 0 = a fault of the file.
static void differs(char what, const char *op, const char *line, const char *format, ...) {
    va_list list;
    int k;
    for (k = 0; k < KNOWN; k++) {
        if (known[k].what == what && strcmp(known[k].op, op) == 0) {
            known[k].seen++;
            if (!verbose) { return; }
            break;
        }
    }
    if (k == KNOWN) { test_failed++; }
    if (++test_lines > TEST_MAX_LINES && !verbose) { return; }
    printf("%s: ", op);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n    %.300s\n", line);
}

static double epsilon(tensor_dtype_t d) {
    switch (d) {
    case TENSOR_F32: return 0x1p-23;
    case TENSOR_F64: return 0x1p-52;
    case TENSOR_F16: return 0x1p-10;
    case TENSOR_BF16: return 0x1p-7;
    default: return 0;
    }
}
// The smallest normal number: below it only the absolute error counts.
static double tiny(tensor_dtype_t d) {
    return d == TENSOR_F64 ? 0x1p-1022 : d == TENSOR_F16 ? 0x1p-14 : 0x1p-126;
}

// Whether got is what PyTorch has; eps is that of the coarsest float dtype of the case (for a gradient).
static int agree(tensor_t *got, tensor_t *want, const char *class_name, int gradient, double eps,
                 const char *what, const char *op, const char *line) {
    tensor_dtype_t dtype = tensor_dtype(want);
    tensor_shape_t g = tensor_shape(got), w = tensor_shape(want);
    values_t x, y;
    double scale = 1, worst = 0;
    int64_t k, at = -1;
    int c, d, same = g.ndim == w.ndim;
    for (c = 0; c < CLASSES && strcmp(classes[c].name, class_name) != 0; c++) {}
    if (gradient == 1) {   // the class is the op's own
        for (d = c, c = 0; d < CLASSES && c < CLASSES && strcmp(classes[c].name, classes[d].gradient) != 0;
             c++) {}
    }
    if (c == CLASSES) {
        differs(0, op, line, "no tolerance class %s", class_name);
        return 0;
    }
    for (d = 0; d < w.ndim && same; d++) { same = g.dims[d] == w.dims[d]; }
    if (!same || tensor_dtype(got) != dtype) {
        char a[128], b[128];
        int na = 0, nb = 0;
        for (d = 0; d < g.ndim; d++) {
            na += snprintf(a + na, sizeof a - (size_t)na, "%lld,", (long long)g.dims[d]);
        }
        for (d = 0; d < w.ndim; d++) {
            nb += snprintf(b + nb, sizeof b - (size_t)nb, "%lld,", (long long)w.dims[d]);
        }
        a[na] = b[nb] = 0;
        differs(*what, op, line, "%s is %s [%s], PyTorch's %s [%s]%s%s", what,
                tensor_dtype_name(tensor_dtype(got)), a, tensor_dtype_name(dtype), b, tensor_ok() ? "" : ": ",
                tensor_error_text());
        tensor_clear_error();
        return 0;
    }
    values_of(&x, got);
    values_of(&y, want);
    if (!gradient) { eps = epsilon(dtype); }
    for (k = 0; k < y.n; k++) {
        if (isfinite(y.v[k]) && fabs(y.v[k]) > scale) { scale = fabs(y.v[k]); }
    }
    for (k = 0; k < y.n; k++) {
        double a = x.v[k], b = y.v[k], e;
        if ((a != a && b != b) || (a == b && x.i[k] == y.i[k])) { continue; }
        e = fabs(a - b) / (eps * (classes[c].relative * fabs(b) + classes[c].scaled * scale) +
                           (classes[c].relative > 0 ? tiny(dtype) : 0));
        if (!(e <= worst) || at < 0) { worst = e, at = k; }
        if (e != e || !isfinite(a) || !isfinite(b)) {
            worst = (double)INFINITY, at = k;
            break;
        }
    }
    same = at < 0 || worst <= 1;
    if (same) {
        test_passed++;
    } else {
        differs(*what, op, line, "%s[%lld] is %.9g, PyTorch's %.9g: %.3g times the tolerance %s", what,
                (long long)at, x.v[at], y.v[at], worst, classes[c].name);
    }
    values_free(&x);
    values_free(&y);
    return same;
}

// ---- one case ----

static void one(nn_safetensors_t *r, int op, const char *line) {
    arguments_t a;
    tensor_t *want[MAX_OUT], *grad[MAX_IN], *from[MAX_IN], *ys[MAX_OUT], *ws[MAX_OUT], *got[MAX_IN];
    int nwant = 0, ngrad = 0, nfrom = 0, ny = 0, k;
    char tol[32] = "exact", gtol[32] = "", word[300];
    double eps = 0;
    const char *p = line;
    read_arguments(r, line, &a);
    while (sscanf(p, "%299s", word) == 1) {
        char *v = strchr(word, '=') + 1;
        p = strstr(p, word) + strlen(word);
        if (strncmp(word, "out=", 4) == 0) {
            want[nwant++] = nn_safetensors_get(r, v);
        } else if (strncmp(word, "grad=", 5) == 0) {
            grad[ngrad++] = *v == '-' ? NULL : nn_safetensors_get(r, v);
        } else if (strncmp(word, "tol=", 4) == 0) {
            snprintf(tol, sizeof tol, "%s", v);
        } else if (strncmp(word, "gtol=", 5) == 0) {
            snprintf(gtol, sizeof gtol, "%s", v);
        } else if (strncmp(word, "why=", 4) == 0) {
            for (k = 0; why_key[k][0] && strcmp(why_key[k], v) != 0; k++) {}
            if (!why_key[k][0]) {
                char key[80];
                snprintf(key, sizeof key, "why.%s", v);
                snprintf(why_key[k], sizeof why_key[k], "%s", v);
                why_text[k] = nn_safetensors_metadata(r, key);
                CHECK_MSG(why_text[k] != NULL, "no %s in the file", key);
                if (why_text[k]) {
                    why_text[k] = strcpy((char *)malloc(strlen(why_text[k]) + 1), why_text[k]);
                }
            }
            n_why[k]++;
        } else if (!strchr("ifs", *word)) {
            differs(0, ops[op].name, line, "no meaning of %s", word);
        }
    }
    for (k = 0; k < ngrad; k++) {
        if (grad[k]) {
            a.in[k] = tensor_requires_grad_(a.in[k], 1);
            from[nfrom++] = a.in[k];
        }
    }
    for (k = 0; k < a.nin; k++) {
        if (a.in[k] && epsilon(tensor_dtype(a.in[k])) > eps) { eps = epsilon(tensor_dtype(a.in[k])); }
    }
    for (k = 0; k < nwant; k++) {
        if (epsilon(tensor_dtype(want[k])) > eps) { eps = epsilon(tensor_dtype(want[k])); }
    }
    CHECK_OK();
    ops[op].call(&a);
    ops[op].seen++;
    n_cases++;
    if (!tensor_ok() || a.nout != nwant) {
        differs('e', ops[op].name, line, "%d results, PyTorch's %d: %s", a.nout, nwant, tensor_error_text());
        tensor_clear_error();
        return;
    }
    for (k = 0; k < nwant; k++) {
        if (!agree(a.out[k], want[k], tol, 0, 0, "result", ops[op].name, line)) { return; }
    }
    if (!nfrom) { return; }
    for (k = 0; k < nwant; k++) {
        if (tensor_requires_grad(a.out[k])) { ys[ny] = a.out[k], ws[ny++] = weights_of(a.out[k]); }
    }
    ops[op].gradients++;
    n_gradients++;
    if (tensor_autograd_grad(ys, ny, ws, from, nfrom, got, TENSOR_ALLOW_UNUSED)) {
        differs('e', ops[op].name, line, "gradient: %s", tensor_error_text());
        tensor_clear_error();
        return;
    }
    for (k = 0, nfrom = 0; k < ngrad; k++) {
        if (grad[k]) {
            char what[32];
            snprintf(what, sizeof what, "gradient of input %d", k);
            if (!got[nfrom]) { got[nfrom] = tensor_zeros_like(a.in[k]); } // unused is zero
            if (!agree(got[nfrom++], grad[k], *gtol ? gtol : tol, *gtol ? 2 : 1, eps, what, ops[op].name,
                       line)) {
                break;
            }
        }
    }
}

static const char *directory = "tests/fixtures";
static char *const *only; // n_only names on the command line
static int n_only;
static const char *file_name;

static int wanted(const char *name) {
    int k = 0;
    while (k < n_only && strcmp(only[k], name) != 0) { k++; }
    return !n_only || k < n_only;
}

static void file(void) {
    char path[300], name[64];
    const char *list, *p;
    nn_safetensors_t *r;
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, file_name);
    r = nn_safetensors_open(path);
    CHECK_MSG(r != NULL, "%s: %s", path, tensor_error_text());
    if (!r) {
        tensor_clear_error();
        return;
    }
    list = nn_safetensors_metadata(r, "ops");
    CHECK(list != NULL);
    for (p = list ? list : ""; sscanf(p, "%63s", name) == 1; p = strstr(p, name) + strlen(name)) {
        const char *lines = nn_safetensors_metadata(r, name);
        int op = find(name);
        test_lines = 0;
        CHECK_MSG(op < NOPS, "%s: no row in ops.def", name);
        CHECK_MSG(lines != NULL, "%s: no cases", name);
        if (op == NOPS || !lines || !wanted(name)) { continue; }
        while (*lines) {
            char line[4096];
            size_t n = strcspn(lines, "\n");
            tensor_scope_t scope = tensor_scope_begin();
            snprintf(line, sizeof line, "%.*s", (int)n, lines);
            one(r, op, line);
            tensor_scope_end(scope);
            if (module) { nn_free(module); }
            module = NULL;
            lines += n + (lines[n] == '\n');
        }
        if (test_lines > TEST_MAX_LINES && !verbose) {
            printf("%s: more failures are counted, not printed\n", name);
        }
    }
    CHECK(nn_safetensors_close(r) == 0);
}

int main(int argc, char **argv) {
    int k, n = 0, n_skipped = 0;
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    only = argv + 1 + verbose;
    n_only = argc - 1 - verbose;
    for (k = 0; k < fixture_count(directory); k++) {
        file_name = fixture_files[k];
        test_run(fixture_files[k], file);
    }
    for (k = 0; k < NOPS; k++) { n += ops[k].seen > 0; }
    test_name = "rows without cases";
    for (k = 0; k < NOPS && !n_only; k++) {
        const char *why = skipped(ops[k].name, "FIXTURE");
        CHECK_MSG((ops[k].seen > 0) == !why, "%s: %s", ops[k].name,
                  why ? "has cases, and a SKIP in ops.def" : "no case in the files, and no SKIP in ops.def");
        n_skipped += why != NULL;
    }
    for (k = 0; k < KNOWN && !n_only; k++) {
        CHECK_MSG(known[k].seen == known[k].cases, "%s '%c': %d cases differ, %d do as known", known[k].op,
                  known[k].what, known[k].seen, known[k].cases);
        printf("%6d cases differ, as known: %s: %s\n", known[k].seen, known[k].op, known[k].why);
    }
    for (k = 0; k < MAX_WHY && why_key[k][0]; k++) {
        printf("%6ld cases differ on purpose: %s\n", n_why[k], why_text[k]);
    }
    printf("%ld fixture cases over %d ops, %ld of them with gradients\n", n_cases, n, n_gradients);
    if (!n_only) { printf("skipped: %d ops without a fixture; ops.def says why\n", n_skipped); }
    return test_report();
}

// op_examples.h - an example of each op from its row in ops.def: small inputs, the call as a program writes
// it, what it gives. The same example as C is what tests/readme.sh compiles and runs.
//
// A row's arguments are the text of a call in the words of calls.h (A, F(0), DIMS ..). Here that text is read
// with the numbers of the row's first case in place of the words.
#ifndef TEST_OP_EXAMPLES_H
#define TEST_OP_EXAMPLES_H
#include "cases.h"
#include "spell.h"

#define EXAMPLE_WORDS(...) EXAMPLE_WORDS_(__VA_ARGS__)
#define EXAMPLE_WORDS_(...) #__VA_ARGS__

typedef struct example_row_t {
    const char *name, *form, *arguments;
} example_row_t;

#define ROW_ONLY(name, form, args) {#name, form, args},
#define ROW_HERE(name, form, args) ROW_ONLY(name, form, args) ROW_ONLY(name##_, form, args)
#define ROW_NUMBER(name, form, args) ROW_ONLY(name, form, args) ROW_ONLY(name##_scalar, "ONE", "(A, F(0))")
#define ROW_ALL(name, form, args)                                                                            \
    ROW_HERE(name, form, args)                                                                               \
    ROW_ONLY(name##_scalar, "ONE", "(A, F(0))") ROW_ONLY(name##_scalar_, "ONE", "(A, F(0))")
enum { EXAMPLE_SEED = 3 };      // of which dropout drops some and leaves some
static const example_row_t example_rows[] = {
#define OP(name, twins, form, args, cases, time, torch) ROW_##twins(name, #form, #args)
#define UNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, units, torch)                   \
    ROW_##twins(name, "ONE", #args)
#define BINARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                         \
    ROW_##twins(name, "ONE", #args)
#define TERNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                        \
    ROW_##twins(name, "ONE", #args)
#define REF(name, twins, form, args, cases, dtypes, reference, flags, time, torch)                           \
    ROW_##twins(name, #form, #args)
#define PAIRS(name, args, cases, reference, indices, time, torch) ROW_ONLY(name, "PAIR", #args)
#include "ops.def"
};
enum { EXAMPLE_ROWS = (int)(sizeof example_rows / sizeof example_rows[0]) };

// Rows that call a function of the tests: what a program writes. 2: what it writes before.
static const char *const example_calls[][3] = {
    {"batch_norm", "(A, B, C, D, a->in[4], .training = I(0), .momentum = F(0))", ""},
    {"instance_norm",
     "(A, .running_mean = B, .running_var = C, .weight = D, .bias = a->in[4], .momentum = F(0))", ""},
    {"lstm", "(A, PARAMETERS, .h = B, .c = C)", ""},
    {"gru", "(A, PARAMETERS, .h = B)", ""},
    {"rnn", "(A, PARAMETERS, .h = B)", ""},
    {"rearrange", "(A, a->s, NULL, .h = I(0))", ""},
    {"linalg_lu_solve", "(f.lu, f.pivots, B)", "tensor_lu_factor_t f = tensor_linalg_lu_factor(a);"},
    {"lu_solve", "(B, f.lu, f.pivots)", "tensor_lu_factor_t f = tensor_linalg_lu_factor(a);"},
    {"lu_unpack", "(f.lu, f.pivots)", "tensor_lu_factor_t f = tensor_linalg_lu_factor(a);"},
    {"from", "(v, DT, SIZES)", "float v[] = {0, 1, 2, 3, 4, 5};"},
    {"wrap", "(v, DT, SIZES)", "float v[] = {0, 1, 2, 3, 4, 5};"},
    {"rand_of", "(DT, SIZES)", ""},
    {"randn_of", "(DT, SIZES)", ""},
    {"allclose", "(A, B, F(0), F(1))", ""},
    {"equal", "(A, B)", ""},
    {"histogramdd", "(A, edges, 2, NULL, 0)", "tensor_t *edges[] = {b, c};"},
};

// First inputs that show something where numbers of the row's range do not: both answers, or a change.
static const struct {
    const char *name;
    int n;
    float v[6];
} example_values[] = {
    {"frac", 3, {1.5f, -2.25f, 0.5f}},
    {"nan_to_num", 3, {1.5f, NAN, -2}},
    {"isinf", 3, {1, INFINITY, NAN}},
    {"isposinf", 3, {1, INFINITY, -INFINITY}},
    {"isneginf", 3, {1, INFINITY, -INFINITY}},
    {"clamp_max", 3, {0.5f, 1.5f, -2}},
    {"clamp_min", 3, {0.5f, 1.5f, -2}},
    {"maximum", 3, {1.5f, -0.5f, 2.5f}},
    {"minimum", 3, {1.5f, -0.5f, 2.5f}},
    {"any_dim", 3, {0, 1, 0}},
    {"all_dim", 6, {0, 1, 1, 1, 1, 0}},
    {"any_dims", 3, {0, 1, 0}},
    {"all_dims", 6, {0, 1, 1, 1, 1, 0}},
    {"msort", 6, {0.57f, -0.16f, 0.9f, -0.7f, 0.04f, 0.97f}},
    {"isin", 3, {0.49f, 1, -0.36f}},
    {"linear_relu", 6, {-0.9f, 0.16f, -0.57f, 0.7f, 0.04f, -0.77f}},
    {"relu6", 6, {-1, 3, 8, 0.5f, 6, 7}},
    {"nextafter", 3, {1.5f, INFINITY, -INFINITY}},
    {"count_nonzero", 6, {0, 1.5f, 0, -2, 3, 0}},
    {"nonzero", 4, {0, 1.5f, -2, 0}},
    {"cummax", 6, {1, 3, 2, 4, 2, 5}},
    {"cummin", 6, {1, 3, 2, 0, 4, 1}},
    {"mode", 6, {1, 3, 2, 1, 2, 2}},
    {"unique_dim", 2, {1, 2}},
    {"unique_consecutive_dim", 2, {1, 2}},
    {"unique_consecutive", 6, {1, 1, 2, 2, 2, 1}},
    {"unique", 6, {2, 1, 2, 3, 1, 2}},
    {"histogramdd", 6, {-0.5f, -0.3f, 0.2f, -0.5f, 0.4f, 0.9f}},
};

// Cases that show something where the row's first one does not.
static const char *const example_cases[][2] = {
    {"squeeze", "2x1x3 i=1"},
    {"atleast_1d", "."},
    {"atleast_2d", "3"},
    {"view_dtype", "z2x2 s=i32"},
};

// Which of them an op takes, whose function may end in _, _scalar or _scalar_. -1 = none
static int example_values_of(const char *op) {
    for (int k = 0; k < (int)(sizeof example_values / sizeof example_values[0]); k++) {
        size_t n = strlen(example_values[k].name);
        if (strncmp(example_values[k].name, op, n) == 0 && (!op[n] || op[n] == '_')) return k;
    }
    return -1;
}

// Members of the structs that functions return.
static const char *const example_members[][4] = {
    {"tensor_pair_t", "values", "indices", ""},
    {"tensor_qr_t", "q", "r", ""},
    {"tensor_linalg_svd_t", "u", "s", "vh"},
    {"tensor_svd_t", "u", "s", "v"},
    {"tensor_eigh_t", "eigenvalues", "eigenvectors", ""},
    {"tensor_slogdet_t", "sign", "logabsdet", ""},
    {"tensor_lu_factor_t", "lu", "pivots", ""},
    {"tensor_lu_t", "p", "l", "u"},
    {"tensor_lstsq_t", "solution", "residuals", ""},
    {"tensor_linalg_ex_t", "result", "info", ""},
    {"tensor_state_t", "y", "h", "c"},
};

typedef struct example_t {
    char inputs[2000]; // a = [1, 2]  b = [3, 4]
    char make[3000];   // the same as C
    char call[600];
    char gives[6000];
    char show[1400]; // the statement that prints what the call gives
} example_t;

typedef struct example_writer_t {
    char *at;
    size_t left;
    const arguments_t *a;
} example_writer_t;

static void example_put(example_writer_t *w, const char *text) {
    size_t n = (size_t)snprintf(w->at, w->left, "%s", text);
    if (n >= w->left) n = w->left - 1;
    w->at += n;
    w->left -= n;
}

static void example_integer(example_writer_t *w, int64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    example_put(w, text);
}

static void example_real(example_writer_t *w, double v) {
    char text[40];
    snprintf(text, sizeof text, "%.6g", v);
    example_put(w, v != v ? "NAN" : v - v != 0 ? (v > 0 ? "INFINITY" : "-INFINITY") : text);
}

// The integers from..from+n-1, as an array or as arguments.
static void example_integers(example_writer_t *w, int from, int n, int array) {
    int k;
    if (array) example_put(w, "(int64_t[]){");
    for (k = 0; k < n; k++) {
        if (k) example_put(w, ", ");
        example_integer(w, w->a->i[from + k]);
    }
    if (array) example_put(w, "}");
}

static void example_input(example_writer_t *w, int k) {
    char name[2] = {(char)('a' + k), 0};
    example_put(w, k < w->a->nin && w->a->in[k] ? name : "NULL");
}

static void example_inputs(example_writer_t *w, int from, int array) {
    int k;
    if (array) example_put(w, "(tensor_t *[]){");
    for (k = from; k < w->a->nin; k++) {
        if (k > from) example_put(w, ", ");
        example_input(w, k);
    }
    if (array) example_put(w, "}");
}

static int example_takes(const char **p, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0) return 0;
    *p += n;
    return 1;
}

// Lists as a call of the array form has them; as arguments of the macro they are left for the end (variadic).
static void example_expand(example_writer_t *w, const char *p, int variadic, int *list_from,
                           int *tensors_from) {
    static const char *const enums[] = {"(tensor_bag_mode_t)", "(tensor_interpolation_t)", "(tensor_pad_t)"};
    static const char *const reductions[] = {"0", "TENSOR_SUM", "TENSOR_NONE"};
    static const char *const interpolations[] = {"0",
                                                 "TENSOR_NEAREST",
                                                 "TENSOR_NEAREST_EXACT",
                                                 "TENSOR_LINEAR",
                                                 "TENSOR_BILINEAR",
                                                 "TENSOR_BICUBIC",
                                                 "TENSOR_TRILINEAR",
                                                 "TENSOR_AREA"};
    const arguments_t *a = w->a;
    const char *before = p;
    while (*p) {
        int inside =
            p > before && (p[-1] == '_' || (p[-1] >= 'a' && p[-1] <= 'z') || (p[-1] >= 'A' && p[-1] <= 'Z'));
        char one[2] = {*p, 0};
        int k, from = -1, tensors = -1;
        char *end;
        if (inside) {
            example_put(w, one);
            p++;
            continue;
        }
        if (example_takes(&p, "(int)")) continue;
        if (example_takes(&p, enums[0]) || example_takes(&p, enums[2])) continue;
        if (example_takes(&p, "(tensor_interpolation_t)I(")) {
            k = (int)a->i[strtol(p, &end, 10)];
            example_put(w, interpolations[k >= 0 && k < 8 ? k : 0]);
            p = end + 1;
            continue;
        }
        if (example_takes(&p, "*a->s ? a->s : NULL") || example_takes(&p, "a->s")) {
            example_put(w, "\"");
            example_put(w, a->s);
            example_put(w, "\"");
            continue;
        }
        if (example_takes(&p, "a->i + 2, a->ni - 2"))
            from = 2;
        else if (example_takes(&p, "DIMS"))
            from = 0;
        else if (example_takes(&p, "REST"))
            from = 1;
        else if (example_takes(&p, "a->in + 1, a->nin - 1"))
            tensors = 1;
        else if (example_takes(&p, "a->in + 2, a->nin - 2"))
            tensors = 2;
        else if (example_takes(&p, "LIST"))
            tensors = 0;
        if (from >= 0 || tensors >= 0) {
            if (variadic) {
                *list_from = from;
                *tensors_from = tensors;
                example_put(w, "LAST");
            } else {
                if (from >= 0)
                    example_integers(w, from, a->ni - from, 1);
                else
                    example_inputs(w, tensors, 1);
                example_put(w, ", ");
                example_integer(w, from >= 0 ? a->ni - from : a->nin - tensors);
            }
            continue;
        }
        if (example_takes(&p, "a->f, a->nf")) {
            example_put(w, "(double[]){");
            for (k = 0; k < a->nf; k++) {
                if (k) example_put(w, ", ");
                example_real(w, a->f[k]);
            }
            example_put(w, "}, ");
            example_integer(w, a->nf);
            continue;
        }
        if (example_takes(&p, "SIZES")) {
            example_integers(w, 0, a->ni, 0);
            continue;
        }
        if (example_takes(&p, "PARAMETERS")) {
            example_inputs(w, 3, 1);
            continue;
        }
        if (example_takes(&p, "STRIDED") || example_takes(&p, "a->i, a->i + a->ni / 2, a->ni / 2")) {
            example_integers(w, 0, a->ni / 2, 1);
            example_put(w, ", ");
            example_integers(w, a->ni / 2, a->ni / 2, 1);
            example_put(w, ", ");
            example_integer(w, a->ni / 2);
            if (p[-1] == 'D') {
                example_put(w, ", ");
                example_integer(w, a->i[a->ni - 1]);
            }
            continue;
        }
        if (example_takes(&p, "a->in[")) {
            example_input(w, (int)strtol(p, &end, 10));
            p = end + 1;
            continue;
        }
        if (example_takes(&p, "a->ni == 5 ? 0 : I(4)")) {
            example_integer(w, a->ni == 5 ? 0 : a->i[4]);
            continue;
        }
        if (example_takes(&p, "I(a->ni == 5 ? 4 : 5)")) {
            example_integer(w, a->i[a->ni == 5 ? 4 : 5]);
            continue;
        }
        if (example_takes(&p, "a->i, 1")) {
            example_integers(w, 0, 1, 1);
            example_put(w, ", 1");
            continue;
        }
        if (example_takes(&p, "a->out, MAX_OUT")) {
            example_put(w, "out, 4");
            continue;
        }
        if (example_takes(&p, "a->out")) {
            k = *p == '[' ? (int)strtol(p + 1, &end, 10) : 0;
            if (*p == '[') {
                example_put(w, k == 1 ? "second" : "third");
                p = end + 1;
            } else {
                example_put(w, "out");
            }
            continue;
        }
        if (example_takes(&p, "MANY_OR_ALL(0, 1)")) {
            example_integer(w, a->i[0] >= 0 ? a->i[0] : 2);
            continue;
        }
        if (example_takes(&p, "MAX_POOL")) {
            example_expand(w, EXAMPLE_WORDS(MAX_POOL), 0, NULL, NULL);
            continue;
        }
        if (example_takes(&p, "COLUMNS")) {
            example_expand(w, EXAMPLE_WORDS(COLUMNS), 0, NULL, NULL);
            continue;
        }
        if (example_takes(&p, "tensor_clone(A)") || example_takes(&p, "COPY")) {
            example_input(w, 0);
            continue;
        }
        if (example_takes(&p, "RED(")) {
            k = (int)a->i[strtol(p, &end, 10)];
            example_put(w, ".reduction = ");
            example_put(w, reductions[k >= 0 && k < 3 ? k : 0]);
            p = end + 1;
            continue;
        }
        if (example_takes(&p, "zero_f(F(")) {
            example_real(w, a->f[strtol(p, &end, 10)]);
            p = end + 2;
            continue;
        }
        if (strncmp(p, "I(0) < 0 ? 0 : Z(0)", 19) == 0 || strncmp(p, "I(1) < 0 ? 0 : Z(1)", 19) == 0) {
            k = p[2] - '0';
            p += 19;
            if (a->i[k] == 0)
                example_put(w, "TENSOR_ZERO");
            else
                example_integer(w, a->i[k] < 0 ? 0 : a->i[k]);
            continue;
        }
        if (example_takes(&p, "zero_i(a->i[")) { // Z in a text that was expanded
            k = (int)strtol(p, &end, 10);
            p = end + 2;
            if (a->i[k] == 0)
                example_put(w, "TENSOR_ZERO");
            else
                example_integer(w, a->i[k]);
            continue;
        }
        if ((*p == 'I' || *p == 'F' || *p == 'Z') && p[1] == '(') {
            char kind = *p;
            k = (int)strtol(p + 2, &end, 10);
            p = end + 1;
            if (kind == 'Z' && a->i[k] == 0)
                example_put(w, "TENSOR_ZERO");
            else if (kind == 'F')
                example_real(w, a->f[k]);
            else
                example_integer(w, a->i[k]);
            continue;
        }
        if (example_takes(&p, "!")) { // !I(1)
            k = (int)strtol(p + 2, &end, 10);
            p = end + 1;
            example_integer(w, !a->i[k]);
            continue;
        }
        if (example_takes(&p, "DT")) {
            const char *name = tensor_dtype_name(dtype_of(a->s));
            char upper[16];
            for (k = 0; name[k] && k < 15; k++)
                upper[k] = (char)(name[k] >= 'a' && name[k] <= 'z' ? name[k] - 32 : name[k]);
            upper[k] = 0;
            example_put(w, "TENSOR_");
            example_put(w, upper);
            continue;
        }
        if (*p >= 'A' && *p <= 'D' && !(p[1] >= 'A' && p[1] <= 'Z') && p[1] != '_') {
            example_input(w, *p - 'A');
            p++;
            continue;
        }
        if (example_takes(&p, "(double)")) continue;
        example_put(w, one);
        p++;
    }
}

// The arguments without options that say the default, NULL or 0, and without what variadic macros do not
// take; the list of those comes last.
static void example_arguments(const char *text, const char *op, int variadic, const arguments_t *a, char *out,
                              size_t size) {
    char whole[600], part[300];
    example_writer_t w = {NULL, 0, NULL}, to = {NULL, 0, NULL};
    const char *p, *from;
    int depth = 0, list = -1, tensors = -1, first = 1;
    w.at = whole, w.left = sizeof whole, w.a = a;
    to.at = out, to.left = size, to.a = a;
    example_expand(&w, text, variadic, &list, &tensors);
    *out = 0;
    for (p = from = whole;; p++) {
        if (*p == '(' || *p == '{') depth++;
        if (*p == ')' || *p == '}') depth--;
        if (*p == 0 || (*p == ',' && depth == 0)) {
            size_t n;
            while (*from == ' ')
                from++;
            snprintf(part, sizeof part, "%.*s", (int)(p - from), from);
            n = strlen(part);
            from = p + 1;
            if (!(*part == '.' && ((n > 4 && strcmp(part + n - 4, " = 0") == 0) ||
                                   (n > 7 && strcmp(part + n - 7, " = NULL") == 0))) &&
                strcmp(part, "LAST") != 0 && !(variadic && strncmp(part, "TENSOR_F", 8) == 0) &&
                !(variadic && strcmp(op, "pad") == 0 && !first)) {
                if (!first) example_put(&to, ", ");
                example_put(&to, part);
                first = 0;
            }
        }
        if (*p == 0) break;
    }
    if (list >= 0 || tensors >= 0) {
        if (!first) example_put(&to, ", ");
        if (list >= 0)
            example_integers(&to, list, a->ni - list, 0);
        else
            example_inputs(&to, tensors, 0);
    }
}

// One input, of few and round numbers. A long one is a ramp, which is said in a few words.
static tensor_t *example_tensor(const word_t *word, int k, const entry_t *op, const case_t *c, char *text,
                                size_t text_size, char *make, size_t make_size) {
    double lo = c->lo < c->hi ? c->lo : op->lo, hi = c->lo < c->hi ? c->hi : op->hi;
    tensor_t *x = input_of(word, k, lo, hi, TENSOR_F32);
    int64_t n, j;
    tensor_shape_t s;
    size_t at = 0;
    char number[64], dims[100] = "", name = (char)('a' + k);
    const char *type;
    int truths = strcmp(op->dtypes, "TO_BOOL") == 0 || strcmp(op->dtypes, "TRUTH") == 0, d;
    *text = *make = 0;
    if (!x) return NULL;
    n = tensor_numel(x);
    s = tensor_shape(x);
    for (d = 0; d < s.ndim; d++)
        snprintf(dims + strlen(dims), sizeof dims - strlen(dims), ", %lld", (long long)s.dims[d]);
    if (tensor_dtype(x) == TENSOR_F32 && n > SPELL_MOST) {
        double from = lo < hi ? lo : -1, to = lo < hi ? hi : 1;
        if (has_letter(word, 'p')) from = 0.1, to = 0.9;
        char call[240];
        snprintf(call, sizeof call, "tensor_reshape(tensor_linspace(%g, %g, %lld)%s)", from, to, (long long)n,
                 dims);
        snprintf(text, text_size, "%c = %s", name, call);
        snprintf(make, make_size, "tensor_t *%s;", text);
        return tensor_reshape_n(tensor_linspace(from, to, n), s.dims, s.ndim);
    }
    const int own = k ? -1 : example_values_of(op->name);
    if (tensor_dtype(x) == TENSOR_F32 && own >= 0) {
        float v[SPELL_MOST];
        for (j = 0; j < n; j++)
            v[j] = example_values[own].v[j % example_values[own].n];
        x = tensor_from_n(v, TENSOR_F32, s.dims, s.ndim);
    } else if (tensor_dtype(x) == TENSOR_F32 && c->steps) {
        // Less, more and equal, zero and not, of a pair and beside the scalar 2.
        static const float kinds[3][5] = {{0, 0, 2, 3, NAN}, {0, 3, 2, 0, NAN}, {0, NAN, 1, -INFINITY, 2}};
        float v[SPELL_MOST];
        for (j = 0; j < n; j++)
            v[j] = kinds[c->nin < 2 && op->operands < 2 ? 2 : k & 1][j % 5];
        x = tensor_from_n(v, TENSOR_F32, s.dims, s.ndim);
    } else if (tensor_dtype(x) == TENSOR_F32) {
        double unit = truths ? 1 : 10;
        // Of numbers that are closer than tenths a hundredth is kept.
        if (!truths && (n > 8 || hi - lo < 2.5 || has_letter(word, 'p') || has_letter(word, 'o'))) unit = 100;
        x = tensor_div_scalar(tensor_round(tensor_mul_scalar(x, unit)), unit);
    }
    type = tensor_dtype(x) == TENSOR_I64    ? "int64_t"
           : tensor_dtype(x) == TENSOR_BOOL ? "unsigned char"
           : tensor_dtype(x) == TENSOR_F32  ? "float"
                                            : "double";
    at += (size_t)snprintf(make + at, make_size - at, "tensor_t *%c = tensor_from(((%s[]){", name, type);
    for (j = 0; j < n; j++) {
        double v = tensor_item(tensor_select(tensor_reshape(x, -1), 0, j));
        snprintf(number, sizeof number, "%.9g%s", v,
                 tensor_dtype(x) == TENSOR_F32 && floor(v) != v ? "f" : "");
        if (v != v || v - v != 0)
            snprintf(number, sizeof number, v != v ? "NAN" : v > 0 ? "INFINITY" : "-INFINITY");
        at += (size_t)snprintf(make + at, make_size - at, "%s%s", j ? ", " : "", number);
    }
    snprintf(make + at, make_size - at, "}), %s%s);",
             tensor_dtype(x) == TENSOR_I64    ? "TENSOR_I64"
             : tensor_dtype(x) == TENSOR_BOOL ? "TENSOR_BOOL"
                                              : "TENSOR_F32",
             s.ndim ? dims : "");
    if (s.ndim == 0) snprintf(make, make_size, "tensor_t *%c = tensor_scalar(%s, TENSOR_F32);", name, number);
    snprintf(text, text_size, "%c = ", name);
    spell(x, text + 4, text_size - 4);
    return x;
}

// Sizes above 2 become smaller, the same ones alike, so that shapes still agree.
static void example_shrink(case_t *c) {
    int k, d;
    for (k = 0; k < c->nin; k++)
        for (d = 0; d < c->in[k].nd && !*c->in[k].list; d++)
            if (c->in[k].dims[d] == 3 || c->in[k].dims[d] == 4) c->in[k].dims[d]--;
}

static int example_of(const char *name, const char *type, int small, example_t *e) {
    static case_t cases[MAX_CASES];
    entry_t own = ops[find(name)];
    const entry_t *op = &own;
    const example_row_t *row = NULL;
    const char *text, *before = "", *base = name;
    char function[80], arguments[500], one[2000], made[2500], value[2000];
    arguments_t a;
    case_t *c = &cases[0];
    int k, m, variadic, ends_here, undefined = strncmp(name, "empty", 5) == 0, shown;
    memset(e, 0, sizeof *e);
    for (k = 0; k < (int)(sizeof example_cases / sizeof example_cases[0]); k++)
        if (strcmp(example_cases[k][0], name) == 0) own.cases = example_cases[k][1];
    for (k = 0; k < EXAMPLE_ROWS && !row; k++)
        if (strcmp(example_rows[k].name, name) == 0) row = &example_rows[k];
    if (!row || cases_of_op(op, 0, cases, MAX_CASES) < 1) return 0;
    if (op->operands && strncmp(op->cases, "@", 1) != 0 && (!*op->cases || c->nin <= op->operands))
        for (k = 0; k < c->nin; k++)
            if (c->in[k].nd == 2 && c->in[k].dims[0] == 3 && c->in[k].dims[1] == 4 && !*c->in[k].list)
                c->in[k].nd = 1, c->in[k].dims[0] = c->steps ? 5 : 4;
    if (small) example_shrink(c);
    begin_arguments(op, c, &a);
    for (k = 0; k < a.nin; k++) {
        a.in[k] = example_tensor(&c->in[k], k, op, c, one, sizeof one, made, sizeof made);
        if (!a.in[k]) continue;
        if (*e->inputs) strncat(e->inputs, "  ", sizeof e->inputs - strlen(e->inputs) - 1);
        strncat(e->inputs, one, sizeof e->inputs - strlen(e->inputs) - 1);
        strncat(e->make, made, sizeof e->make - strlen(e->make) - 1);
        strncat(e->make, " ", sizeof e->make - strlen(e->make) - 1);
    }

    // The call.
    variadic = strcmp(row->form, "ONE_N") == 0;
    snprintf(function, sizeof function, "tensor_%s", name);
    text = row->arguments;
    for (k = 0; k < (int)(sizeof example_calls / sizeof example_calls[0]); k++)
        if (strcmp(example_calls[k][0], name) == 0) text = example_calls[k][1], before = example_calls[k][2];
    if (strstr(text, "SIZES")) variadic = 0;
    if (text == row->arguments && (strcmp(row->form, "MANY") == 0 || strcmp(row->form, "AS") == 0)) {
        const char *at = strstr(text, function);
        text = at ? at + strlen(function) : text;
    }
    // Between the parentheses.
    for (k = m = 0; text[k]; k++) {
        if (text[k] == '(') m++;
        if (text[k] == ')' && --m == 0) break;
    }
    snprintf(one, sizeof one, "%.*s", k - 1, text + 1);
    if (variadic && (strcmp(a.s, "") != 0 && strcmp(a.s, "f32") != 0) && strstr(one, "DT"))
        strcat(function, "_of");
    example_arguments(one, base, variadic, &a, arguments, sizeof arguments);
    snprintf(e->call, sizeof e->call, "%s(%s)", function, arguments);
    if (*before) {
        strncat(e->make, before, sizeof e->make - strlen(e->make) - 1);
        if (*e->inputs) strncat(e->inputs, "  ", sizeof e->inputs - strlen(e->inputs) - 1);
        strncat(e->inputs, before, sizeof e->inputs - strlen(e->inputs) - 1);
    }

    // What it gives.
    for (k = 0; k < 6; k++) {
        float v = (float)k;
        memcpy((char *)memory + (size_t)k * sizeof v, &v, sizeof v);
    }
    tensor_manual_seed(EXAMPLE_SEED);
    results_as_they_are = 1;
    op->call(&a);
    results_as_they_are = 0;
    if (!tensor_ok()) {
        snprintf(e->gives, sizeof e->gives, "error: %s", tensor_error_text());
        if (strstr(e->gives, " at ")) *strstr(e->gives, " at ") = 0; // a line of the tests
        snprintf(e->show, sizeof e->show, "%s; show_error();", e->call);
        return 1;
    }
    ends_here = -1;
    for (k = 0; k < (int)(sizeof example_members / sizeof example_members[0]); k++)
        if (strcmp(example_members[k][0], type) == 0) ends_here = k;
    shown = ends_here >= 0 || strncmp(type, "int", 3) == 0 || strstr(e->call, "&second") ? a.nout : 1;
    for (k = m = 0; k < shown; k++, m++) {
        char label[40] = "";
        if (ends_here >= 0) {
            snprintf(label, sizeof label, "%s = ", example_members[ends_here][1 + m]);
        } else if (strstr(e->call, "&second")) {
            static const char *const words[] = {"", "second = ", "third = "};
            snprintf(label, sizeof label, "%s", words[k]);
        } else if (shown > 1 || strstr(e->call, "out")) {
            if (strncmp(type, "int", 3) == 0) snprintf(label, sizeof label, "out[%d] = ", k);
        }
        if (undefined)
            spell_shape(a.out[k], value, sizeof value);
        else
            spell(a.out[k], value, sizeof value);
        if (k) strcat(e->gives, "  ");
        strncat(e->gives, label, sizeof e->gives - strlen(e->gives) - 1);
        strncat(e->gives, value, sizeof e->gives - strlen(e->gives) - 1);
    }
    if (ends_here >= 0) {
        snprintf(e->show, sizeof e->show, "%s r = %s; ", type, e->call);
        for (m = 1; m < 4 && *example_members[ends_here][m]; m++)
            snprintf(e->show + strlen(e->show), sizeof e->show - strlen(e->show), "show(\"%s = \", r.%s); ",
                     example_members[ends_here][m], example_members[ends_here][m]);
    } else if (strstr(e->call, "&second")) {
        snprintf(e->show, sizeof e->show,
                 "tensor_t *second, *third = NULL, *r = %s; show(\"\", r); show(\"second = \", second); "
                 "show(\"third = \", third);",
                 e->call);
    } else if (strncmp(type, "int", 3) == 0 && strstr(e->call, "out")) {
        snprintf(e->show, sizeof e->show, "tensor_t *out[8]; %s; show_list(out, %d);", e->call, a.nout);
    } else if (strncmp(type, "int", 3) == 0) {
        snprintf(e->show, sizeof e->show, "show(\"\", tensor_scalar(%s, TENSOR_BOOL));", e->call);
    } else {
        snprintf(e->show, sizeof e->show, "%s(\"\", %s);", undefined ? "show_shape" : "show", e->call);
    }
    return 1;
}
#endif

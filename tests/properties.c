// properties.c - what holds of every op: what its comment calls new shares no memory with its inputs and is
// dense; under autocast it gives what the same call with its casts written out gives, in every mix of dtypes;
// an operand that is no tensor gives an error and poison
#define TENSOR_BACKEND
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

// ---- what the headers call new ----

enum { MAX_NEW = 800 };
static char new_names[MAX_NEW][64];
static int n_new;

// "-> new", but not "-> new or x" nor "-> new (x itself if ...)".
static int says_new(const char *text) {
    const char *at = text ? strstr(text, "-> new") : NULL;
    return at && strncmp(at + 6, " or x", 5) != 0 && strncmp(at + 6, " (x", 3) != 0;
}
// The names of the functions whose comment, before them or behind them, says so.
static void read_new(const char *path) {
    FILE *f = fopen(path, "r");
    char line[1024];
    int is_new = 0, in_comment = 0;
    CHECK_MSG(f != NULL, "%s is not there", path);
    if (!f) { return; }
    while (fgets(line, sizeof line, f) && strncmp(line, "// >>shared", 11) &&
           strncmp(line, "// >>nn-shared", 14)) {
        char *name, *end, *behind = strstr(line, "//");
        if (strncmp(line, "//", 2) == 0) {
            if (!in_comment) { is_new = 0; }
            in_comment = 1;
            is_new |= says_new(line);
            continue;
        }
        in_comment = 0;
        if (strncmp(line, "TENSOR_API tensor_", 18) != 0 || !(name = strstr(line + 18, "tensor_"))) {
            continue;
        }
        if (behind && strstr(behind, "->") ? !says_new(behind) : !is_new) { continue; }
        end = strchr(name, '(');
        if (!end || n_new == MAX_NEW || end - name >= 64) { continue; }
        snprintf(new_names[n_new++], 64, "%.*s", (int)(end - name), name);
    }
    fclose(f);
}
static int is_new(const char *name) {
    char full[4][80];
    int k, j;
    snprintf(full[0], sizeof full[0], "tensor_%s", name);
    snprintf(full[1], sizeof full[1], "tensor_%s_n", name);
    snprintf(full[2], sizeof full[2], "tensor_%s_with", name);
    snprintf(full[3], sizeof full[3], "tensor__%s", name);
    for (k = 0; k < n_new; k++) {
        for (j = 0; j < 4; j++) {
            if (strcmp(new_names[k], full[j]) == 0) { return 1; }
        }
    }
    return 0;
}

// Whether the elements of x fill a piece of memory, each place once.
static int is_dense(const tensor_t *x) {
    int64_t want = 1;
    int d, found = 1, used[TENSOR_MAX_DIMS] = {0}, left = 0;
    if (x->numel < 2) { return 1; }
    for (d = 0; d < x->ndim; d++) { left += x->dims[d] > 1; }
    for (; left > 0 && found; left--) {
        for (found = 0, d = 0; d < x->ndim && !found; d++) {
            if (!used[d] && x->dims[d] > 1 && x->strides[d] == want) {
                used[d] = found = 1;
                want *= x->dims[d];
            }
        }
    }
    return found;
}

static long n_shares, n_turned;
static char turned[2000]; // ops whose results are not row-major

static void shares_nothing(const entry_t *op, const case_t *c) {
    static const int64_t numbers[] = {-99, 1, 0, -1, 2}; // -99: those of the case
    int layout, k, r, way, failed;
    if (!is_new(op->name) || op->twin == HERE || op->twin == NUMBER_HERE) { return; }
    for (way = 0; way < COUNT(numbers); way++) {
        for (layout = 0; layout < 4; layout++) {
            tensor_scope_t s = tensor_scope_begin();
            arguments_t a;
            arguments_of(op, c, TENSOR_F32, &a);
            for (k = 0; k < a.nin; k++) {
                if (a.in[k] && is_data(&c->in[k])) { a.in[k] = arrange(a.in[k], "CTSO"[layout]); }
            }
            for (k = 0; k < a.ni && numbers[way] != -99; k++) { a.i[k] = numbers[way]; }
            op->call(&a);
            failed = !tensor_ok();
            CHECK_MSG(!failed || way, "%s %s: %s", op->name, c->text, tensor_error_text());
            tensor_clear_error();
            for (r = 0; r < a.nout && !failed; r++) {
                tensor_t *y = a.out[r];
                if (!y || !y->numel) { continue; }
                for (k = 0; k < a.nin; k++) {
                    CHECK_MSG(!a.in[k] || a.in[k]->storage != y->storage,
                              "%s %s, numbers %d, layout %c: result %d shares memory with input %d", op->name,
                              c->text, (int)numbers[way], "CTSO"[layout], r, k);
                }
                for (k = 0; k < r; k++) {
                    CHECK_MSG(!a.out[k] || a.out[k]->storage != y->storage,
                              "%s %s: results %d and %d share memory", op->name, c->text, k, r);
                }
                CHECK_MSG(is_dense(y), "%s %s, numbers %d, layout %c: result %d has gaps or overlaps",
                          op->name, c->text, (int)numbers[way], "CTSO"[layout], r);
                if (!tensor_is_contiguous(y) && !strstr(turned, op->name) &&
                    strlen(turned) < sizeof turned - 80) {
                    n_turned++, strcat(strcat(turned, " "), op->name);
                }
                n_shares++;
            }
            tensor_scope_end(s);
        }
    }
}
static int left_new;
static void new_is_new(void) {
    read_new("tensor.h");
    read_new("tensor_nn.h");
    CHECK(n_new > 200);
    left_new = every_case("LAYOUT", shares_nothing);
}

// ---- autocast ----

// What a class does with the dtypes of its inputs; one of them is the op's, in every mix.
enum { AS_THEY_ARE, LOW, SINGLE, WIDEST, CLASSES };
static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16,
                                        TENSOR_F64, TENSOR_I64, TENSOR_BOOL};
enum { MIXES = 64 };

static int castable(tensor_t *x) {
    tensor_dtype_t d = tensor_dtype(x);
    return d == TENSOR_F32 || d == TENSOR_F16 || d == TENSOR_BF16;
}
// The inputs of a class, the casts written out.
static void cast_inputs(const arguments_t *a, int class_of, tensor_dtype_t low, arguments_t *b) {
    tensor_dtype_t to = class_of == LOW ? low : TENSOR_F32;
    int k, seen = 0;
    *b = *a;
    if (class_of == AS_THEY_ARE) { return; }
    for (k = 0; k < a->nin; k++) {
        if (a->in[k] && castable(a->in[k])) { seen |= 1 << tensor_dtype(a->in[k]); }
    }
    if (class_of == WIDEST && seen == 1 << TENSOR_F16) { to = TENSOR_F16; }
    if (class_of == WIDEST && seen == 1 << TENSOR_BF16) { to = TENSOR_BF16; }
    for (k = 0; k < a->nin; k++) {
        if (a->in[k] && castable(a->in[k])) { b->in[k] = tensor_to(a->in[k], to); }
    }
}
static int same_result(const arguments_t *a, int code, const arguments_t *b, int other) {
    int r;
    if (code != other || (!code && a->nout != b->nout)) { return 0; }
    for (r = 0; r < a->nout && !code; r++) {
        if (!a->out[r] != !b->out[r]) { return 0; }
        if (a->out[r] && !test_same_bits(a->out[r], b->out[r])) { return 0; }
    }
    return 1;
}
static int call_code(const entry_t *op, arguments_t *a) {
    int code;
    tensor_manual_seed(7);
    op->call(a);
    code = tensor_error_code();
    tensor_clear_error();
    return code;
}
// Ops without a class of their own.
static const struct {
    const char *names, *why;
} composed[] = {
    {"corrcoef cov histogram linalg_matrix_power matrix_power trapezoid cumulative_trapezoid",
     "made of ops, each of which casts as ever"},
    {"linalg_eigh linalg_svd svd", "their vectors are compared by products, which cast"},
    {"empty empty_like empty_strided", "their elements are whatever memory held"},
    {"binary_cross_entropy", "refused: binary_cross_entropy_with_logits is safe there"},
};
static const char *why_composed(const char *name) {
    size_t n = strlen(name);
    int k;
    for (k = 0; k < COUNT(composed); k++) {
        const char *at;
        for (at = strstr(composed[k].names, name); at; at = strstr(at + 1, name)) {
            if ((at == composed[k].names || at[-1] == ' ') && (at[n] == ' ' || !at[n])) {
                return composed[k].why;
            }
        }
    }
    return NULL;
}

static long n_composed;
static long n_mixes, n_refused, n_class[CLASSES];

static void mixed(const entry_t *op, const case_t *c) {
    int fits = (1 << CLASSES) - 1, was, mix, n = 0, k, low, mixes = 1;
    char what[160] = "";
    if (why_composed(op->name)) {
        n_composed++;
        return;
    }
    for (k = 0; k < c->nin; k++) { n += is_data(&c->in[k]); }
    for (k = 0; k < n && mixes < MIXES; k++) { mixes *= COUNT(dtypes); }
    if (mixes > MIXES) { mixes = MIXES; }
    for (low = 0; low < 2; low++) {
        for (mix = 0; mix < mixes; mix++) {
            tensor_scope_t s = tensor_scope_begin(), autocast;
            tensor_dtype_t half = low ? TENSOR_F16 : TENSOR_BF16;
            unsigned digits = n > 2 ? (unsigned)mix * 2654435761u >> 4 : (unsigned)mix;
            arguments_t a, b, got;
            int code, class_of;
            begin_arguments(op, c, &a);
            for (k = 0; k < a.nin; k++) {
                double lo = c->lo < c->hi ? c->lo : op->lo, hi = c->lo < c->hi ? c->hi : op->hi;
                tensor_dtype_t dtype = dtypes[digits % (unsigned)COUNT(dtypes)];
                if (is_data(&c->in[k])) { digits /= (unsigned)COUNT(dtypes); }
                a.in[k] = input_of(&c->in[k], k, lo, hi, dtype);
            }
            tensor_clear_error();
            got = a;
            autocast = tensor_scope_begin_autocast(half);
            code = call_code(op, &got);
            tensor_set_autocast(TENSOR_DTYPE_NONE);
            n_refused += code != 0;
            was = fits;
            for (class_of = 0; class_of < CLASSES; class_of++) {
                if (!(fits >> class_of & 1)) { continue; }
                cast_inputs(&a, class_of, half, &b);
                if (!same_result(&got, code, &b, call_code(op, &b))) { fits &= ~(1 << class_of); }
            }
            if (was && !fits) {
                int at = snprintf(what, sizeof what, "autocast to %s of", tensor_dtype_name(half));
                for (k = 0; k < a.nin && at < 120; k++) {
                    at += snprintf(what + at, sizeof what - (size_t)at, " %s",
                                   a.in[k] ? tensor_dtype_name(tensor_dtype(a.in[k])) : "-");
                }
                snprintf(what + at, sizeof what - (size_t)at, " (until then class %d)", was);
            }
            tensor_scope_end(autocast);
            tensor_scope_end(s);
            n_mixes++;
        }
    }
    CHECK_MSG(fits, "%s %s: no class of casts gives %s", op->name, c->text, what);
    for (k = 0; k < CLASSES; k++) {
        if (fits >> k & 1) {
            n_class[k]++;
            break;
        }
    }
}
static int left_mixed;
static void autocast_mixes(void) {
    left_mixed = every_case("AUTOCAST", mixed);
}

// ---- operands that are no tensors ----

static long n_unusable, n_optional;

// A number, or the statistics that a norm keeps.
static int is_no_result(const char *name, int r) {
    if (strcmp(name, "equal") == 0 || strcmp(name, "allclose") == 0) { return 1; }
    return r > 0 && (strcmp(name, "batch_norm") == 0 || strcmp(name, "instance_norm") == 0);
}
// Each operand of the case in turn is something else; NULL may be an operand that is left out.
static void unusable(const entry_t *op, const case_t *c) {
    enum { NOTHING, A_NUMBER, A_POISON, A_DEAD, KINDS };
    static const char *const kinds[] = {"NULL", "a number", "poison", "of a scope that ended"};
    int operands = 1;
    for (int at = 0; at < operands * KINDS; at++) {
        tensor_scope_t s = tensor_scope_begin(), inner = tensor_scope_begin();
        tensor_t *bad[KINDS] = {NULL, (tensor_t *)(uintptr_t)3, tensor_zeros(-1), tensor_zeros(2)};
        int k = at / KINDS, kind = at % KINDS;
        arguments_t a;
        tensor_scope_end(inner);
        tensor_clear_error();
        arguments_of(op, c, TENSOR_F32, &a);
        operands = a.nin;
        if (k < a.nin && a.in[k]) {
            a.in[k] = bad[kind];
            op->call(&a);
            if (kind == NOTHING && tensor_ok()) {
                n_optional++;
            } else {
                int code = kind == A_POISON ? TENSOR_ERR_POISONED : TENSOR_ERR_OWNER;
                CHECK_MSG(tensor_error_code() == code || (!is_data(&c->in[k]) && kind == NOTHING),
                          "%s %s, operand %d %s: \"%s\"", op->name, c->text, k, kinds[kind],
                          tensor_error_text());
                for (int r = 0; r < a.nout; r++) {
                    CHECK_MSG(!a.out[r] || tensor_is_poison(a.out[r]) || is_no_result(op->name, r),
                              "%s %s, operand %d %s: result %d is there", op->name, c->text, k,
                              kinds[kind], r);
                }
                n_unusable++;
            }
        }
        tensor_clear_error();
        tensor_scope_end(s);
    }
}
static int left_unusable;
static void operands_that_are_none(void) {
    left_unusable = every_case("OPERANDS", unusable);
}

int main(void) {
    int k;
    RUN(new_is_new);
    RUN(autocast_mixes);
    RUN(operands_that_are_none);
    printf("%d functions are documented as new: %ld results share nothing and are dense; of %ld ops they are "
           "not row-major:"
           "%s\n",
           n_new, n_shares, n_turned, turned);
    printf("%ld mixes under autocast, %ld of them refused; cases as they are %ld, in half %ld, in f32 %ld, "
           "in the widest %ld\n",
           n_mixes, n_refused, n_class[0], n_class[1], n_class[2], n_class[3]);
    printf("%ld operands that are no tensors are errors; %ld times NULL is an operand that is left out\n",
           n_unusable, n_optional);
    printf("skipped: %d ops without layouts, %d under autocast, %d without such operands; ops.def says why; "
           "%ld cases of ops without a class:\n",
           left_new, left_mixed, left_unusable, n_composed);
    for (k = 0; k < COUNT(composed); k++) { printf("    %s: %s\n", composed[k].names, composed[k].why); }
    return test_report();
}

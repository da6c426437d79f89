// cases.h - the cases of ops.def as inputs and arguments (their form: the head of that file)
#ifndef TEST_CASES_H
#define TEST_CASES_H
#include "calls.h"

enum { MAX_CASES = 64, MAX_INPUTS = 16 };

// One input of a case.
typedef struct word_t {
    char letters[4];
    int absent, nd;
    int64_t dims[TENSOR_MAX_DIMS], below;
    char list[200];                     // the integers of l, "" = none
} word_t;

typedef struct case_t {
    word_t in[MAX_INPUTS];
    int nin;
    arguments_t given;                  // i, f and s alone
    double atol, half, gradient_half, lo, hi;   // 0: the test's own
    int steps, no_grad;
    char text[240];
} case_t;

static const struct { const char *name, *cases; } shapes[] = {
#define SHAPES(name, cases) {#name, cases},
#include "ops.def"
};
enum { SHAPE_LISTS = (int)(sizeof shapes / sizeof shapes[0]) };

// Part k of text between " ; " copied into part; 0 = there is none.
TEST_FN int part_of(const char *text, int k, char *part, size_t size) {
    const char *end;
    for (; k > 0; k--) {
        text = strstr(text, " ; ");
        if (!text) { return 0; }
        text += 3;
    }
    end = strstr(text, " ; ");
    snprintf(part, size, "%.*s", end ? (int)(end - text) : (int)strlen(text), text);
    return 1;
}

TEST_FN int has_letter(const word_t *w, char letter) {
    return strchr(w->letters, letter) != NULL;
}

TEST_FN void read_word(const char *p, word_t *w) {
    char *end;
    int n = 0;
    memset(w, 0, sizeof *w);
    if (strcmp(p, "-") == 0) {
        w->absent = 1;
        return;
    }
    while (*p >= 'a' && *p <= 'z' && n < (int)sizeof w->letters - 1) { w->letters[n++] = *p++; }
    if (has_letter(w, 'l') && !strchr(p, ':')) {        // l4,0,2: one dim
        snprintf(w->list, sizeof w->list, "%s", p);
        w->nd = 1;
        for (w->dims[0] = 1; *p; p++) { w->dims[0] += *p == ','; }
        return;
    }
    while (*p >= '0' && *p <= '9') {
        w->dims[w->nd++] = strtoll(p, &end, 10);
        p = *end == 'x' ? end + 1 : end;
    }
    if (*p == '<') { w->below = strtoll(p + 1, NULL, 10); }
    if (*p == ':') { snprintf(w->list, sizeof w->list, "%s", p + 1); }
}

TEST_FN void read_case(const char *text, case_t *c) {
    char word[200];
    const char *p = text;
    int k;
    memset(c, 0, sizeof *c);
    snprintf(c->text, sizeof c->text, "%s", text);
    for (p = c->text; sscanf(p, "%199s", word) == 1;) {
        char *v = strchr(word, '=');
        const char *at = strstr(p, word);
        p = at + strlen(word);
        if (!v) {
            read_word(word, &c->in[c->nin++]);
            continue;
        }
        v++;
        if (strncmp(word, "i=", 2) == 0) {
            for (; *v; v += *v == ',') { c->given.i[c->given.ni++] = strtoll(v, &v, 10); }
        } else if (strncmp(word, "f=", 2) == 0) {
            for (; *v; v += *v == ',') { c->given.f[c->given.nf++] = strtod(v, &v); }
        } else if (strncmp(word, "s=", 2) == 0) {
            for (k = 0; v[k]; k++) { c->given.s[k] = v[k] == '_' ? ' ' : v[k]; }
        } else if (strncmp(word, "atol=", 5) == 0) {
            c->atol = strtod(v, NULL);
        } else if (strncmp(word, "half=", 5) == 0) {
            c->half = strtod(v, NULL);
        } else if (strncmp(word, "ghalf=", 6) == 0) {
            c->gradient_half = strtod(v, NULL);
        } else if (strncmp(word, "lo=", 3) == 0) {
            c->lo = strtod(v, NULL);
        } else if (strncmp(word, "hi=", 3) == 0) {
            c->hi = strtod(v, NULL);
        } else if (strcmp(word, "fill=steps") == 0) {
            c->steps = 1;
        } else if (strcmp(word, "grad=no") == 0) {
            c->no_grad = 1;
        } else {
            CHECK_MSG(0, "case \"%s\": no meaning of %s", text, word);
        }
    }
}

// The cases of a row, those of its lists of shapes one by one. every: all shapes of a list, else the first.
// operands: how many inputs a case without any has, of 3x4. -> how many
TEST_FN int read_cases(const char *text, int operands, const char *letter, int every, case_t *out, int most) {
    char part[400], shape[200], whole[640], name[32];
    int k, j, l, n = 0;
    for (k = 0; part_of(text, k, part, sizeof part); k++) {
        const char *behind = part;
        l = SHAPE_LISTS;
        if (*part == '@') {
            sscanf(part, "@%31s", name);
            for (l = 0; l < SHAPE_LISTS && strcmp(shapes[l].name, name) != 0; l++) {}
            CHECK_MSG(l < SHAPE_LISTS, "case \"%s\": no list of shapes %s", text, name);
            behind = part + 1 + strlen(name);
        }
        for (j = 0; j < (l < SHAPE_LISTS && every ? 1000 : 1); j++) {
            *shape = 0;
            if (l < SHAPE_LISTS && !part_of(shapes[l].cases, j, shape, sizeof shape)) { break; }
            snprintf(whole, sizeof whole, "%s%s", shape, behind);
            CHECK_MSG(n < most, "case \"%s\": too many", text);
            if (n == most) { return n; }
            read_case(whole, &out[n]);
            if (out[n].nin == 0 && operands > 0) {
                char words[64] = "";
                int left;
                for (left = operands; left > 0; left--) { strcat(strcat(strcat(words, letter), "3x4"), " "); }
                snprintf(whole, sizeof whole, "%s%s", words, behind);
                read_case(whole, &out[n]);
            }
            n++;
        }
    }
    return n;
}
// Those of an op: with the letter of rows that take integers alone.
TEST_FN int cases_of_op(const entry_t *op, int every, case_t *out, int most) {
    int bits = strcmp(op->dtypes, "INTEGERS") == 0 || strcmp(op->dtypes, "SHIFTS") == 0;
    return read_cases(op->cases, op->operands, bits ? "z" : "", every, out, most);
}

// A tensor of a case, away from kinks and ties: elements of one input are 0.019 and more apart (up to 101 of
// them), none is 0. dtype is that of data; indices are i64.
TEST_FN tensor_t *input_of(const word_t *w, int k, double lo, double hi, tensor_dtype_t dtype) {
    static const int64_t step[] = {37, 53, 71, 19, 29, 43, 61, 83};
    int64_t n = 1, i, size;
    int d;
    double *v;
    tensor_t *x;
    if (w->absent) { return NULL; }
    for (d = 0; d < w->nd; d++) { n *= w->dims[d]; }
    v = (double *)malloc(((size_t)n + 1) * sizeof *v);
    for (i = 0; i < n; i++) {
        double wave = (double)((i * step[k % 8] + 17 * k + 5) % 101);
        int64_t whole = (int64_t)wave;
        v[i] = -1 + (wave + 0.3 + 0.07 * (k % 8)) / 50.5;
        if (has_letter(w, 'k')) {
            v[i] = (double)(whole % (w->below ? w->below : 10));
        } else if (has_letter(w, 'm')) {
            v[i] = whole % 3 == 1;
        } else if (has_letter(w, 'z')) {
            v[i] = (double)(whole % 8 - (k == 0 ? 3 : 0));
        } else if (has_letter(w, 'p')) {
            v[i] = 0.5 + 0.4 * v[i];
        } else if (has_letter(w, 'q')) {
            v[i] = 1.5 + 0.4 * v[i];
        } else if (lo < hi) {
            v[i] = lo + (hi - lo) * (v[i] + 1) / 2;
        }
    }
    if (*w->list) {
        const char *p = w->list;
        char *end;
        for (i = 0; i < n; i++, p = *end == ',' ? end + 1 : end) { v[i] = (double)strtoll(p, &end, 10); }
    }
    x = tensor_from_n(v, TENSOR_F64, w->dims, w->nd);
    free(v);
    if (has_letter(w, 'k') || has_letter(w, 'l')) { return tensor_to(x, TENSOR_I64); }
    if (has_letter(w, 'm')) { return tensor_to(x, TENSOR_BOOL); }
    if (has_letter(w, 'z')) {
        int real = dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
        return tensor_to(x, real ? TENSOR_I64 : dtype);
    }
    if (has_letter(w, 'o') && w->nd) { x = tensor_sort(x, -1, 0).values; }
    if (has_letter(w, 's') || has_letter(w, 'r')) {
        size = w->dims[w->nd - 1];
        if (has_letter(w, 's')) { x = tensor_div_scalar(tensor_matmul(x, tensor_mT(x)), (double)size); }
        x = tensor_add(x, tensor_mul_scalar(tensor_to(tensor_eye(size, size), TENSOR_F64),
                                            has_letter(w, 's') ? 1 : (double)size));
    }
    return tensor_to(x, dtype);
}
// Whether an input holds data, whose dtype and gradient a test may choose.
TEST_FN int is_data(const word_t *w) {
    return !w->absent && !has_letter(w, 'k') && !has_letter(w, 'l') && !has_letter(w, 'm') &&
           !has_letter(w, 'z');
}
// The arguments and how many inputs: a twin that takes a number has one input, and 2 where the case has no
// number.
TEST_FN void begin_arguments(const entry_t *op, const case_t *c, arguments_t *a) {
    int number = op->twin == NUMBER || op->twin == NUMBER_HERE;
    *a = c->given;
    a->nin = number ? 1 : c->nin;
    if (number && !a->nf) { a->f[0] = 2, a->nf = 1; }
}
// All inputs and the arguments.
TEST_FN void arguments_of(const entry_t *op, const case_t *c, tensor_dtype_t dtype, arguments_t *a) {
    int k;
    begin_arguments(op, c, a);
    for (k = 0; k < a->nin; k++) {
        double lo = c->lo < c->hi ? c->lo : op->lo, hi = c->lo < c->hi ? c->hi : op->hi;
        a->in[k] = input_of(&c->in[k], k, lo, hi, dtype);
    }
}
// Calls visit for every op and twin with each of its cases; what a SKIP names is counted.
TEST_FN int every_case(const char *test, void (*visit)(const entry_t *op, const case_t *c)) {
    static case_t cases[MAX_CASES];
    int k, j, n, left = 0;
    for (k = 0; k < NOPS - ONLY_FIXTURES; k++) {
        if (skipped(ops[k].name, test)) {
            left++;
            continue;
        }
        if (test_lines > TEST_MAX_LINES - 4) { test_lines = TEST_MAX_LINES - 4; }
        n = cases_of_op(&ops[k], 0, cases, MAX_CASES);
        for (j = 0; j < n; j++) { visit(&ops[k], &cases[j]); }
    }
    return left;
}

#endif

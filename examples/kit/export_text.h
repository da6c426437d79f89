// export_text.h - how export_c.h writes C: text, loops, formulas
//
// Included by the implementation of export_c.h; copy it with that. It prints the formulas of ops and reads
// the numbers of their calls (>>ops and >>shared of tensor.h), hence TENSOR_BACKEND.
#ifndef KIT_EXPORT_TEXT_H
#define KIT_EXPORT_TEXT_H

#ifndef TENSOR_BACKEND
#define TENSOR_BACKEND
#endif
#include "tensor_nn.h"

#include "export_math.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__GNUC__) || defined(__clang__)
#define KIT_TEXT_FN __attribute__((unused)) static
#define KIT_PRINTF(at) __attribute__((format(printf, at, at + 1)))
#else
#define KIT_TEXT_FN static
#define KIT_PRINTF(at)
#endif

// What a memory of the step is in the file: part of the arena, an array that steps change, an array of
// constants, an argument of the step.
typedef enum kit_kind_t { KIT_TEMPORARY, KIT_STATE, KIT_CONSTANT, KIT_INPUT, KIT_OUTPUT } kit_kind_t;

typedef struct kit_place_t {
    const void *memory, *data;          // as the operands have it; its first element
    kit_kind_t kind;
    int older, touched;                 // than the capture; dtype is known
    int changes, placed;                // by the step; in the arena
    int uses, weights;                  // operands of calls, and those that are weights of a product
    int spare;                          // an output that nobody has to ask for
    int listed;                         // 1 + its number in NAME_state; 0 = none
    int64_t row;                        // elements of a row of those weights; -1 = they differ
    tensor_dtype_t dtype;
    int64_t numel, first, last, at;     // calls that use it; place in the arena of its dtype
    int64_t rows;                       // int8: a scale for each row; 0 = the elements are as they are
    const char *op, *site;              // of the first call that uses it
    char name[64];
} kit_place_t;

enum { KIT_WORD = 240, KIT_FORMULA = 4000 };  // of an index in 8 dims; of a formula
typedef struct kit_word_t { char text[KIT_WORD]; } kit_word_t;

typedef struct kit_export_state_t {
    const tensor_graph_t *graph;
    tensor_graph_call_t call;           // that is being written
    tensor_graph_operand_t *arg;        // its operands
    int args;                           // for which there is room
    char *text;                         // the body of the step
    size_t used, room;
    int failed;                         // out of memory
    kit_place_t *place;
    int64_t places;
    int listed, parameters;             // of them, in NAME_state; the first ones, which are parameters
    uint64_t needs;                     // functions of export_math.h
    int64_t row, wide;                  // floats and doubles that an op needs beside the arena
    int lanes;                          // sums that are made side by side: the K_LANES of the file
    int inexact;                        // some sums are in another order than the library's
    int updates, draws;                 // optimizer groups; whether random numbers are drawn
    const nn_update_t *update[16];
    int depth;                          // of loops
    double flops;
    char why[300];                      // the refusal; "" = none
} kit_export_state_t;

KIT_TEXT_FN void kit_put(kit_export_state_t *x, const char *format, ...) KIT_PRINTF(2);
KIT_TEXT_FN void kit_line(kit_export_state_t *x, const char *format, ...) KIT_PRINTF(2);
KIT_TEXT_FN int kit_cannot(kit_export_state_t *x, const char *format, ...) KIT_PRINTF(2);
KIT_TEXT_FN kit_word_t kit_word(const char *format, ...) KIT_PRINTF(1);

KIT_TEXT_FN void kit_put_list(kit_export_state_t *x, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n < 0 || x->failed) { return; }
    if (x->used + (size_t)n + 1 > x->room) {
        size_t room = 2 * x->room + (size_t)n + 4096;
        char *text = (char *)realloc(x->text, room);
        if (!text) {
            x->failed = 1;
            return;
        }
        x->text = text;
        x->room = room;
    }
    vsnprintf(x->text + x->used, (size_t)n + 1, format, list);
    x->used += (size_t)n;
}

// Appends to the text.
KIT_TEXT_FN void kit_put(kit_export_state_t *x, const char *format, ...) {
    va_list list;
    va_start(list, format);
    kit_put_list(x, format, list);
    va_end(list);
}

// Appends a line, indented by the loops that are open.
KIT_TEXT_FN void kit_line(kit_export_state_t *x, const char *format, ...) {
    va_list list;
    va_start(list, format);
    kit_put(x, "%*s", 4 * (x->depth + 1), "");
    kit_put_list(x, format, list);
    kit_put(x, "\n");
    va_end(list);
}

// Notes why the step cannot be written; the first reason stays.   -> 0
KIT_TEXT_FN int kit_cannot(kit_export_state_t *x, const char *format, ...) {
    va_list list;
    if (x->why[0]) { return 0; }
    va_start(list, format);
    vsnprintf(x->why, sizeof x->why, format, list);
    va_end(list);
    return 0;
}

KIT_TEXT_FN kit_word_t kit_word(const char *format, ...) {
    kit_word_t w;
    va_list list;
    va_start(list, format);
    vsnprintf(w.text, sizeof w.text, format, list);
    va_end(list);
    return w;
}

KIT_TEXT_FN void kit_need(kit_export_state_t *x, kit_math_t function) { x->needs |= KIT_ON(function); }

// A loop; kit_close ends it.
KIT_TEXT_FN void kit_for(kit_export_state_t *x, const char *i, int64_t n) {
    kit_line(x, "for (int %s = 0; %s < %lld; %s++) {", i, i, (long long)n, i);
    x->depth++;
}

KIT_TEXT_FN void kit_close(kit_export_state_t *x, int n) {
    for (; n > 0; n--) {
        x->depth--;
        kit_line(x, "}");
    }
}

// A number as C text of that dtype.
KIT_TEXT_FN kit_word_t kit_number(kit_export_state_t *x, double v, tensor_dtype_t dtype) {
    kit_word_t w;
    if (dtype != TENSOR_F32 && dtype != TENSOR_F64) { return kit_word("%lld", (long long)v); }
    if (dtype == TENSOR_F32) { v = (double)(float)v; }
    if (v != v) {
        kit_need(x, KIT_NAN);
        return kit_word("%s", "K_NAN");
    }
    if (v - v != 0) {
        kit_need(x, KIT_INF);
        return kit_word("%s", v > 0 ? "K_INF" : "(-K_INF)");
    }
    w = kit_word(dtype == TENSOR_F32 ? "%.9g" : "%.17g", v);
    if (!strpbrk(w.text, ".e")) { strcat(w.text, ".0"); }
    if (dtype == TENSOR_F32) { strcat(w.text, "f"); }
    return v < 0 ? kit_word("(%s)", w.text) : w;
}

KIT_TEXT_FN const char *kit_type(tensor_dtype_t dtype) {
    switch (dtype) {
    case TENSOR_F32: return "float";
    case TENSOR_F64: return "double";
    case TENSOR_I32: return "int32_t";
    case TENSOR_I64: return "int64_t";
    case TENSOR_U8: case TENSOR_BOOL: return "uint8_t";
    default: return NULL;
    }
}

KIT_TEXT_FN const char *kit_arena(tensor_dtype_t dtype) {
    switch (dtype) {
    case TENSOR_F32: return "floats";
    case TENSOR_F64: return "doubles";
    case TENSOR_I32: return "ints";
    case TENSOR_I64: return "longs";
    default: return "bytes";
    }
}

// ---- formulas

// A word of the rows' formulas, as C. wide: bit 0 = of doubles too, bit 1 = of integers.
typedef struct kit_formula_word_t { const char *word, *c; int wide; kit_math_t needs; } kit_formula_word_t;

typedef struct kit_formula_t {
    kit_export_state_t *x;
    const char *at;                     // the rest of the text
    const double *p;
    tensor_dtype_t dtype;               // in which it is computed
    unsigned reads;                     // operands, by letter: bit 0 = a
} kit_formula_t;

KIT_TEXT_FN int kit_formula_fail(kit_formula_t *f) {
    return kit_cannot(f->x, "%s: export_c.h cannot write this op for %s: it has no C for \"%.20s\"",
                      f->x->call.op, tensor_dtype_name(f->dtype), f->at);
}

KIT_TEXT_FN int kit_formula_read(kit_formula_t *f, char *out);

// The text in brackets after a word.
KIT_TEXT_FN kit_word_t kit_formula_inside(kit_formula_t *f) {
    kit_word_t w = kit_word("%s", "");
    size_t n = 0;
    if (*f->at == '(') { f->at++; }
    while (*f->at && *f->at != ')' && n + 1 < sizeof w.text) { w.text[n++] = *f->at++; }
    w.text[n] = 0;
    if (*f->at == ')') { f->at++; }
    return w;
}

// Writes the expression at the head of the text.   -> 0 if it cannot
KIT_TEXT_FN int kit_formula_read(kit_formula_t *f, char *out) {
    static const kit_formula_word_t words[] = {
        {"ADD", "(%s + %s)", 3, KIT_MATH_COUNT},
        {"SUB", "(%s - %s)", 3, KIT_MATH_COUNT},
        {"MUL", "(%s * %s)", 3, KIT_MATH_COUNT},
        {"DIV", "(%s / %s)", 1, KIT_MATH_COUNT},
        {"NEG", "(-%s)", 3, KIT_MATH_COUNT},
        {"ABS", "k_abs(%s)", 0, KIT_ABS},
        {"SIGN", "k_sign(%s)", 0, KIT_SIGN},
        {"SQRT", "k_sqrt(%s)", 0, KIT_SQRT},
        {"RSQRT", "(1.0f / k_sqrt(%s))", 0, KIT_SQRT},
        {"MIN", "k_min(%s, %s)", 0, KIT_LESSER},
        {"MAX", "k_max(%s, %s)", 0, KIT_LARGER},
        {"FLOOR", "k_floor(%s)", 0, KIT_FLOOR},
        {"TRUNC", "k_trunc(%s)", 0, KIT_FLOOR},
        {"EXP", "k_exp(%s)", 0, KIT_EXP},
        {"EXPM1", "k_expm1(%s)", 0, KIT_EXPM1},
        {"LOG", "k_log(%s)", 0, KIT_LOG},
        {"LOG1P", "k_log1p(%s)", 0, KIT_LOG1P},
        {"TANH", "k_tanh(%s)", 0, KIT_TANH},
        {"SIGMOID", "k_sigmoid(%s)", 0, KIT_SIGMOID},
        {"ERF", "k_erf(%s)", 0, KIT_ERF},
        {"ERFC", "k_erfc(%s)", 0, KIT_ERFC},
        {"GELU", "k_gelu(%s)", 0, KIT_GELU},
        {"LT", "(%s < %s)", 3, KIT_MATH_COUNT},
        {"LE", "(%s <= %s)", 3, KIT_MATH_COUNT},
        {"GT", "(%s > %s)", 3, KIT_MATH_COUNT},
        {"GE", "(%s >= %s)", 3, KIT_MATH_COUNT},
        {"EQ", "(%s == %s)", 3, KIT_MATH_COUNT},
        {"NE", "(%s != %s)", 3, KIT_MATH_COUNT},
        {"AND", "(%s && %s)", 3, KIT_MATH_COUNT},
        {"OR", "(%s || %s)", 3, KIT_MATH_COUNT},
        {"XOR", "(%s != %s)", 3, KIT_MATH_COUNT},
        {"SEL", "(%s ? %s : %s)", 3, KIT_MATH_COUNT},
        // of the losses: -log(sigmoid(x))
        {"NLS", "(k_log1p(k_exp(-k_abs(%s))) + k_max(-%s, 0.0f))", 0, KIT_LOG1P}};
    while (*f->at == ' ') { f->at++; }
    size_t n = strcspn(f->at, "(), ");
    char word[24];
    snprintf(word, sizeof word, "%.*s", (int)(n < 23 ? n : 23), f->at);
    const char *name = strncmp(word, "F_", 2) == 0 || strncmp(word, "V_", 2) == 0 ? word + 2 : word;
    const char *letter = strchr("ABYGxtq", name[0]);
    if ((name[1] == 0 && letter) || strcmp(name, "C_") == 0) {
        f->at += n;
        char c = name[0] < 'a' ? (char)(name[0] - 'A' + 'a') : name[0];
        f->reads |= 1u << (c - 'a');
        sprintf(out, "%c", c);
        return 1;
    }
    int wide = 2;
    if (f->dtype == TENSOR_F32) { wide = 0; }
    if (f->dtype == TENSOR_F64) { wide = 1; }
    if (strcmp(name, "P") == 0 || strcmp(name, "C") == 0 || strcmp(name, "SET") == 0) {
        f->at += n;
        kit_word_t inside = kit_formula_inside(f);
        double v = strcmp(inside.text, "-INFINITY") == 0 ? -INFINITY : strtod(inside.text, NULL);
        if (name[0] == 'P') { v = f->p[atoi(inside.text)]; }
        strcpy(out, kit_number(f->x, v, f->dtype).text);
        return 1;
    }
    if (strcmp(name, "p") == 0 || strcmp(name, "INF") == 0) {
        f->at += n;
        strcpy(out, kit_number(f->x, name[0] == 'p' ? f->p[0] : (double)INFINITY, f->dtype).text);
        return 1;
    }
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (strcmp(name, words[k].word) != 0) { continue; }
        const char *c = words[k].c;
        kit_math_t needs = words[k].needs;
        if (wide == 1 && needs == KIT_SQRT) {
            c = name[0] == 'R' ? "(1.0 / k_sqrt64(%s))" : "k_sqrt64(%s)";
            needs = KIT_SQRT64;
        } else if (wide && (needs == KIT_LESSER || needs == KIT_LARGER)) {
            c = needs == KIT_LESSER ? "K_MIN(%s, %s)" : "K_MAX(%s, %s)";
            needs = KIT_WIDE;
        } else if (wide && !(words[k].wide >> (wide - 1) & 1)) {
            return kit_formula_fail(f);
        }
        if (needs != KIT_MATH_COUNT) { kit_need(f->x, needs); }
        char *part = (char *)malloc(3 * KIT_FORMULA);
        int parts = 0, good = part != NULL;
        f->at += n;
        while (good && parts < 3 && (*f->at == '(' || *f->at == ',')) {
            f->at++;
            good = kit_formula_read(f, part + parts++ * KIT_FORMULA);
        }
        while (*f->at == ' ') { f->at++; }
        good = good && *f->at == ')';
        f->at += good;
        if (good && strcmp(name, "NLS") == 0) {
            kit_need(f->x, KIT_EXP);
            kit_need(f->x, KIT_ABS);
            kit_need(f->x, KIT_LARGER);
            strcpy(part + KIT_FORMULA, part);
        }
        if (good) {                     // c has at most three %s, all of them from words
            char *to = out, *end = out + KIT_FORMULA - 1;
            int next = 0;
            for (; *c && to < end; c++) {
                if (*c != '%') {
                    *to++ = *c;
                    continue;
                }
                c++;
                const char *from = part + next++ * KIT_FORMULA;
                while (*from && to < end) { *to++ = *from++; }
            }
            *to = 0;
            good = to < end;
        }
        free(part);
        return good ? 1 : kit_formula_fail(f);
    }
    return kit_formula_fail(f);
}

// A formula of a row as a C expression in a, b, c, y, g or x, t, q.   -> 0 if it cannot be written
KIT_TEXT_FN int kit_formula(kit_export_state_t *x, const char *text, const double *p, tensor_dtype_t dtype,
                            char *out, unsigned *reads) {
    kit_formula_t f;
    f.x = x;
    f.at = text;
    f.p = p;
    f.dtype = dtype;
    f.reads = 0;
    int good = kit_formula_read(&f, out);
    size_t n = strlen(out);
    if (good && out[0] == '(' && out[n - 1] == ')') {   // the outer brackets, if they are one pair
        int open = 0;
        size_t k = 0;
        for (; k < n; k++) {
            open += (out[k] == '(') - (out[k] == ')');
            if (!open) { break; }
        }
        if (k == n - 1) {
            memmove(out, out + 1, n - 2);
            out[n - 2] = 0;
        }
    }
    *reads |= f.reads;
    return good;
}

#endif

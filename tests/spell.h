// spell.h - the elements of a tensor as a short text: [[1, 0.5], [2, 3]], with four decimals, and its dtype
// if that is not f32. More than SPELL_MOST elements are cut, and the shape says how many there are.
#ifndef TEST_SPELL_H
#define TEST_SPELL_H
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SPELL_MOST = 24, SPELL_FIRST = 8 };

static void spell_number(double v, char *out, size_t size) {
    size_t n;
    if (v != v || v - v != 0) {
        snprintf(out, size, "%s", v != v ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    snprintf(out, size, fabs(v) < 1e6 ? "%.4f" : "%.4e", v);
    if (!strchr(out, 'e')) {
        n = strlen(out);
        while (out[n - 1] == '0') { out[--n] = 0; }
        if (out[n - 1] == '.') { out[--n] = 0; }
    }
    if (strcmp(out, "-0") == 0) { snprintf(out, size, "0"); }
}

static void spell(tensor_t *x, char *out, size_t size) {
    tensor_shape_t s = tensor_shape(x);
    int64_t n = tensor_numel(x), shown = n > SPELL_MOST ? SPELL_FIRST : n, k;
    tensor_t *flat = tensor_reshape(tensor_to(tensor_detach(x), TENSOR_F64), -1);
    char number[64];
    size_t at = 0;
    int d;
#define SPELL_ADD(text) at += (size_t)snprintf(out + at, size - at, "%s", text)
    *out = 0;
    for (k = 0; k < shown; k++) {
        int64_t block = 1;
        for (d = s.ndim - 1; d >= 0 && n <= SPELL_MOST; d--) {
            block *= s.dims[d];
            if (k % block == 0) { SPELL_ADD("["); }
        }
        if (k == 0 && n > SPELL_MOST) { SPELL_ADD("["); }
        spell_number(tensor_item(tensor_select(flat, 0, k)), number, sizeof number);
        if (tensor_dtype(x) == TENSOR_BOOL) {
            snprintf(number, sizeof number, strcmp(number, "0") ? "true" : "false");
        }
        SPELL_ADD(number);
        block = 1;
        for (d = s.ndim - 1; d >= 0 && n <= SPELL_MOST; d--) {
            block *= s.dims[d];
            if ((k + 1) % block == 0) { SPELL_ADD("]"); }
        }
        if (k + 1 < shown) { SPELL_ADD(", "); }
    }
    if (n > SPELL_MOST) { SPELL_ADD(", ..]"); }
    if (n == 0) { SPELL_ADD("[]"); }
    if (n == 0 || n > SPELL_MOST) {
        for (d = 0; d < s.ndim; d++) {
            snprintf(number, sizeof number, "%s%lld", d ? "x" : " of ", (long long)s.dims[d]);
            SPELL_ADD(number);
        }
    }
    if (tensor_dtype(x) != TENSOR_F32 && tensor_dtype(x) != TENSOR_BOOL) {
        SPELL_ADD(" ");
        SPELL_ADD(tensor_dtype_name(tensor_dtype(x)));
    }
#undef SPELL_ADD
}

// The shape alone, for memory that nothing was written to.
static void spell_shape(tensor_t *x, char *out, size_t size) {
    tensor_shape_t s = tensor_shape(x);
    size_t at = 0;
    int d;
    for (d = 0; d < s.ndim; d++) {
        at += (size_t)snprintf(out + at, size - at, "%s%lld", d ? "x" : "", (long long)s.dims[d]);
    }
    snprintf(out + at, size - at, ", elements of any value");
}
#endif

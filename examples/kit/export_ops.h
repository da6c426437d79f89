// export_ops.h - the ops that export_c.h writes: pointwise, products, sums, rows, losses, optimizers
//
// Included by the implementation of export_c.h; copy it with that. Sums are in the order of the library's
// portable kernels, or with kit_export_state_t.lanes = 1 in that of the scalar ones; where that is not so,
// kit_export_state_t.inexact says it.
#ifndef KIT_EXPORT_OPS_H
#define KIT_EXPORT_OPS_H

#include "export_call.h"

// ---- pointwise

typedef struct kit_row_t { const char *name, *formula[4]; } kit_row_t;

#define KIT_TEXT(...) #__VA_ARGS__
#define KIT_ONE(ID, name, kind, f, dA, ...) {#name, {KIT_TEXT(f), KIT_TEXT(dA), NULL, NULL}},
#define KIT_TWO(ID, name, kind, f, dA, dB, ...) {#name, {KIT_TEXT(f), KIT_TEXT(dA), KIT_TEXT(dB), NULL}},
#define KIT_THREE(ID, name, kind, f, dA, dB, dC, ...)                                                        \
    {#name, {KIT_TEXT(f), KIT_TEXT(dA), KIT_TEXT(dB), KIT_TEXT(dC)}},
#define KIT_TEST(ID, name, nin, kind, f, cast) {#name, {KIT_TEXT(f), NULL, NULL, NULL}},

KIT_TEXT_FN const kit_row_t *kit_row(const char *name) {
    static const kit_row_t rows[] = {TENSOR_OPS_FORMULAS(KIT_ONE, KIT_TWO, KIT_THREE)
                                         TENSOR_OPS_COMPARE(KIT_TEST){NULL, {NULL, NULL, NULL, NULL}}};
    for (const kit_row_t *r = rows; r->name; r++) {
        if (strcmp(r->name, name) == 0) { return r; }
    }
    return NULL;
}

// What is written before a float that becomes another dtype, and behind it. An integer is the nearest one.
KIT_TEXT_FN void kit_cast(kit_export_state_t *x, tensor_dtype_t from, tensor_dtype_t to, kit_word_t *begin,
                          kit_word_t *end) {
    int floats = from == TENSOR_F32 || from == TENSOR_F64;
    const char *range = NULL;
    if (to == TENSOR_U8) { range = "0, UINT8_MAX"; }
    if (to == TENSOR_I32) { range = "INT32_MIN, INT32_MAX"; }
    if (to == TENSOR_I64) { range = "INT64_MIN, INT64_MAX"; }
    *begin = *end = kit_word("%s", "");
    if (from == to) { return; }
    *begin = kit_word("(%s)", kit_type(to));
    if (!floats || !range) { return; }
    kit_need(x, KIT_WHOLE);
    *begin = kit_word("(%s)k_whole((double)", kit_type(to));
    *end = kit_word(", %s)", range);
}

KIT_TEXT_FN int kit_write_pointwise(kit_export_state_t *x, const kit_call_t *c) {
    const kit_row_t *row = kit_row(c->name);
    int back = c->family == TENSOR_FAMILY_POINTWISE_BACKWARD, which = -1;
    if (!row) { return kit_cannot(x, "%s: export_c.h does not know this op", c->name); }
    tensor_dtype_t dtype = c->compute;
    if (dtype != TENSOR_F32 && dtype != TENSOR_F64) { dtype = TENSOR_I64; }
    kit_nest_t nest;
    memset(&nest, 0, sizeof nest);
    for (int i = 0; i < c->nout; i++) {
        const kit_arg_t *a = &c->arg[c->nin + i];
        if (!a->data) { continue; }
        which = which < 0 ? i : which;
        nest.ndim = a->ndim;
        for (int d = 0; d < a->ndim; d++) { nest.dims[d] = a->dims[d]; }
    }
    if (which < 0) { return 1; }
    char *text = (char *)malloc(4 * KIT_FORMULA);
    unsigned reads = 0;
    int good = text != NULL;
    for (int i = which; i < c->nout && good; i++) {
        if (!c->arg[c->nin + i].data) { continue; }
        const char *f = row->formula[back + i];
        good = f && kit_formula(x, f, c->p ? c->p->pointwise.p : NULL, dtype, text + i * KIT_FORMULA, &reads);
    }
    static const char *const letter[] = {"a", "b", "c", "y", "g"};
    static const unsigned bit[] = {1u << 0, 1u << 1, 1u << 2, 1u << ('y' - 'a'), 1u << ('g' - 'a')};
    const char *type = kit_type(dtype);
    int64_t count = c->arg[c->nin + which].numel;
    int at[5];
    for (int i = 0; i < c->nin && i < 5 && good; i++) {
        const kit_arg_t *a = &c->arg[i];
        at[i] = -1;
        if (!(reads & bit[i])) { continue; }
        if (!a->data) { good = kit_cannot(x, "%s: an operand of its formula is absent", c->name); }
        if (!a->memory || !good) { continue; }
        at[i] = nest.n;
        kit_nest_add(&nest, a);
        kit_declare(x, kit_word("p%s", letter[i]).text, a);
    }
    int first = nest.n;
    for (int i = which; i < c->nout && good; i++) {
        if (!c->arg[c->nin + i].data) { continue; }
        kit_nest_add(&nest, &c->arg[c->nin + i]);
        kit_declare(x, c->nout > 1 ? kit_word("d%s", letter[i]).text : "out", &c->arg[c->nin + i]);
    }
    if (!good) {
        free(text);
        return 0;
    }
    kit_nest_join(&nest);
    kit_nest_open(x, &nest);
    for (int i = 0; i < c->nin && i < 5; i++) {
        const kit_arg_t *a = &c->arg[i];
        if (!(reads & bit[i])) { continue; }
        if (at[i] < 0) {
            kit_line(x, "const %s %s = %s;", type, letter[i], kit_immediate_text(x, a, dtype).text);
        } else {
            kit_word_t cast, end;
            kit_cast(x, a->dtype, dtype, &cast, &end);
            kit_line(x, "const %s %s = %sp%s[%s]%s;", type, letter[i], cast.text, letter[i],
                     kit_nest_index(&nest, at[i]).text, end.text);
        }
    }
    for (int i = which; i < c->nout; i++) {
        const kit_arg_t *a = &c->arg[c->nin + i];
        if (!a->data) { continue; }
        kit_word_t name = c->nout > 1 ? kit_word("d%s", letter[i]) : kit_word("out");
        kit_word_t cast, end;
        kit_cast(x, dtype, a->dtype, &cast, &end);
        const char *is = a->dtype == TENSOR_BOOL ? " != 0" : "";
        kit_line(x, cast.text[0] ? "%s[%s] = %s((%s)%s)%s;" : "%s[%s] = %s%s%s%s;", name.text,
                 kit_nest_index(&nest, first++).text, cast.text, text + i * KIT_FORMULA, is, end.text);
    }
    kit_close(x, nest.ndim);
    x->flops += (double)count;
    free(text);
    return 1;
}

// A number that the host wrote in the capture.
KIT_TEXT_FN int kit_write_constant(kit_export_state_t *x, const kit_call_t *c) {
    kit_place_t *p = kit_place(x, c->arg[1].memory);
    kit_arg_t from = c->arg[0], to = c->arg[1];
    from.dtype = to.dtype = p->dtype;
    to.at /= (int64_t)tensor_dtype_size(p->dtype);      // it counted bytes
    kit_line(x, "*(%s) = %s;", kit_pointer(x, &to).text, kit_immediate_text(x, &from, p->dtype).text);
    return 1;
}

KIT_TEXT_FN int kit_write_fill(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *y = &c->arg[c->nin];
    const tensor_fill_params_t *p = &c->p->fill;
    kit_nest_t nest;
    memset(&nest, 0, sizeof nest);
    nest.ndim = y->ndim;
    for (int d = 0; d < y->ndim; d++) { nest.dims[d] = y->dims[d]; }
    kit_nest_add(&nest, y);
    kit_nest_join(&nest);
    kit_declare(x, "y", y);
    kit_nest_open(x, &nest);
    tensor_dtype_t dtype = y->dtype;
    if (c->id == TENSOR_OP_ARANGE && nest.ndim) {
        kit_line(x, "y[i] = (%s)(%s + i * %s);", kit_type(dtype), kit_number(x, p->start, TENSOR_F64).text,
                 kit_number(x, p->step, TENSOR_F64).text);
    } else {
        kit_line(x, "y[%s] = %s;", kit_nest_index(&nest, 0).text, kit_number(x, p->start, dtype).text);
    }
    kit_close(x, nest.ndim);
    return 1;
}

// ---- products

// How many steps of k the scalar kernels sum in one chain; 0 = they sum in another way.
KIT_TEXT_FN int64_t kit_chain(int64_t batch, int64_t m, int64_t n, int64_t k, const int64_t *s) {
    int64_t ars = s[0], acs = s[1], brs = s[2], bcs = s[3], parts = (k + 511) / 512;
    if (!m || !n) { return k; }
    if (k == 1) { acs = 1; }
    if (n == 1) { bcs = 1; }
    if (k == 1 && n != 1 && bcs != 1) { brs = 1; }
    if (k >= 4096 && batch == 1 && m <= 65536 / n && ((m <= 64 && n <= 64 && m > 4) || k > 8 * 16384)) {
        return 0;
    }
    if (acs == 1 && brs == 1 && bcs != 1 && 20 * m <= k && m <= 40) { return 1024; }
    if (bcs == 1 && n * k > 65536 && (m <= 8 || k * n <= 32768)) { return 32; }
    (void)ars;
    return k <= 512 ? k : ((k + parts - 1) / parts + 15) / 16 * 16;
}

// Whether a product's sums are made in lanes, by k_dot, 1024 terms at a time. adds: to what is there.
KIT_TEXT_FN int kit_dots(const kit_export_state_t *x, int64_t batch, int64_t m, int64_t n, int64_t k,
                         const int64_t *s, int adds) {
    int64_t acs = k == 1 ? 1 : s[1], brs = s[2], bcs = n == 1 ? 1 : s[3];
    if (k == 1 && n != 1 && bcs != 1) { brs = 1; }
    int row = m == 1 && batch == 1 && (brs == 1 || n == 1) && k <= 1024 && n * k <= 65536 && !adds;
    int few = acs == 1 && brs == 1 && bcs != 1 && 20 * m <= k && m <= 40;
    return x->lanes > 1 && (row || few) && kit_chain(batch, m, n, k, s) > 0;
}

KIT_TEXT_FN long long kit_up(long long n, long long by) {
    return (n + by - 1) / by;
}

// How many of n sums are made at a time, at most so many: one alone waits for its own additions.
KIT_TEXT_FN int kit_together(int64_t n, int most) {
    while (n % most) { most /= 2; }
    return most;
}

// A loop over p, the terms of a sum of k: over so many of them from q on, or all.
KIT_TEXT_FN void kit_terms(kit_export_state_t *x, int64_t k, int64_t chain) {
    if (chain >= k) {
        kit_for(x, "p", k);
        return;
    }
    kit_line(x, "for (int p = q; p < %lld && p < q + %lld; p++) {", (long long)k, (long long)chain);
    x->depth++;
}

// y = a b (+ bias), with pointers a, b, y, bias to the first elements. s: strides of the rows and columns of
// a, of b, of the rows of y.
KIT_TEXT_FN void kit_write_product(kit_export_state_t *x, int64_t batch, int64_t m, int64_t n, int64_t k,
                                   const int64_t *s, int bias, const char *weight) {
    int64_t chain = kit_chain(batch, m, n, k, s);
    int across = s[3] == 1 && s[2] != 1 && n > 1;
    if (!chain) { x->inexact = 1; }
    if (!chain) { chain = k; }
    x->flops += 2.0 * (double)batch * (double)m * (double)n * (double)k;
    kit_for(x, "i", m);
    if (!weight && kit_dots(x, batch, m, n, k, s, 0)) {
        int cut = k > 1024;
        kit_need(x, KIT_DOT);
        kit_for(x, "j", n);
        if (cut) {
            kit_line(x, "float *to = y + %lld * i + j;", (long long)s[4]);
            kit_line(x, "for (int q = 0; q < %lld; q += 1024) {", (long long)k);
            kit_line(x, "    const int terms = %lld - q > 1024 ? 1024 : %lld - q;", (long long)k,
                     (long long)k);
        }
        kit_word_t first = kit_word("%lld * i%s", (long long)s[0], cut ? " + q" : "");
        kit_word_t second = kit_word("%lld * j%s", (long long)s[3], cut ? " + q" : "");
        kit_word_t sum = kit_word("k_dot(a + %.60s, %lld, b + %.60s, %lld, ", first.text, (long long)s[1],
                                  second.text, (long long)s[2]);
        const char *more = bias ? " + bias[j]" : "";
        if (cut) {
            kit_line(x, "    const float s = %sterms);", sum.text);
            kit_line(x, "    *to = q ? *to + s : s%s;", more);
            kit_line(x, "}");
        } else {
            kit_line(x, "y[%lld * i + j] = %s%lld)%s;", (long long)s[4], sum.text, (long long)k, more);
        }
        kit_close(x, 2);
        return;
    }
    if (across) {                       // a row of y at a time: the loop over j is one of vectors
        int cut = chain < k;            // parts of k are summed apart
        kit_line(x, cut ? "float *to = y + %lld * i, *line = row;" : "float *line = y + %lld * i;",
                 (long long)s[4]);
        if (cut) {
            x->row = n > x->row ? n : x->row;
            kit_line(x, "for (int q = 0; q < %lld; q += %lld) {", (long long)k, (long long)chain);
            x->depth++;
        }
        kit_line(x, "for (int j = 0; j < %lld; j++) { line[j] = 0; }", (long long)n);
        kit_terms(x, k, cut ? chain : k);
        kit_line(x, "const float s = a[%lld * i + %lld * p], *t = b + %lld * p;", (long long)s[0],
                 (long long)s[1], (long long)s[2]);
        kit_line(x, "for (int j = 0; j < %lld; j++) { line[j] += s * t[j]; }", (long long)n);
        kit_close(x, 1);
        if (cut) {
            kit_line(x, "for (int j = 0; j < %lld; j++) { to[j] = q ? to[j] + line[j] : line[j]%s; }",
                     (long long)n, bias ? " + bias[j]" : "");
        } else if (bias) {
            kit_line(x, "for (int j = 0; j < %lld; j++) { line[j] += bias[j]; }", (long long)n);
        }
        kit_close(x, 1 + cut);
        return;
    }
    // Some columns at a time; in parts of k, as the library adds.
    int some = kit_together(n, 8), parts = chain < k && !weight;
    kit_line(x, "for (int j = 0; j < %lld; j += %d) {", (long long)n, some);
    x->depth++;
    kit_line(x, "float s[%d];", some);
    if (parts) {
        kit_line(x, "for (int q = 0; q < %lld; q += %lld) {", (long long)k, (long long)chain);
        x->depth++;
    }
    kit_line(x, "for (int r = 0; r < %d; r++) { s[r] = 0; }", some);
    kit_terms(x, k, parts ? chain : k);
    kit_line(x, "const float f = a[%lld * i + %lld * p];", (long long)s[0], (long long)s[1]);
    kit_line(x, "for (int r = 0; r < %d; r++) { s[r] += f * %sb[%lld * p + %lld * (j + r)]; }", some,
             weight ? "(float)" : "", (long long)s[2], (long long)s[3]);
    kit_close(x, 1);
    kit_for(x, "r", some);
    kit_line(x, "float *to = y + %lld * i + j + r;", (long long)s[4]);
    kit_word_t scaled = weight ? kit_word(" * %.60s[j + r]", weight) : kit_word("%s", "");
    kit_line(x, parts ? "*to = q ? *to + s[r] : s[r]%s%s;" : "*to = s[r]%s%s;", scaled.text,
             bias ? " + bias[j + r]" : "");
    kit_close(x, 3 + parts);
}

KIT_TEXT_FN int kit_write_matmul(kit_export_state_t *x, const kit_call_t *c) {
    kit_matrix_t matrix[3];
    kit_matrices(c, matrix);
    const kit_arg_t *a = &matrix[0].arg, *b = &matrix[1].arg, *y = &matrix[2].arg;
    if (a->dtype != TENSOR_F32) { return kit_cannot(x, "matmul: export_c.h knows products of f32 alone"); }
    int64_t m = a->dims[a->ndim - 2], k = a->dims[a->ndim - 1], n = b->dims[b->ndim - 1], batch = 1;
    int64_t s[5];
    s[0] = a->strides[a->ndim - 2];
    s[1] = a->strides[a->ndim - 1];
    s[2] = b->strides[b->ndim - 2];
    s[3] = b->strides[b->ndim - 1];
    s[4] = n;
    kit_nest_t nest;
    memset(&nest, 0, sizeof nest);
    nest.ndim = y->ndim - 2;
    for (int d = 0; d < nest.ndim; d++) { batch *= nest.dims[d] = y->dims[d]; }
    for (int i = 0; i < 2; i++) {
        kit_arg_t outer = matrix[i].arg;
        outer.ndim -= 2;
        kit_nest_add(&nest, &outer);
    }
    nest.n = 3;
    int64_t step = m * n;
    for (int d = nest.ndim - 1; d >= 0; d--, step *= nest.dims[d + 1]) { nest.stride[2][d] = step; }
    kit_nest_join(&nest);
    if (!nest.ndim) {
        kit_declare(x, "a", a);
        kit_declare(x, "b", b);
        kit_declare(x, "y", y);
    } else {
        for (int d = 0; d < nest.ndim; d++) { kit_for(x, kit_word("n%d", d).text, nest.dims[d]); }
        static const char *const name[] = {"a", "b", "y"};
        for (int i = 0; i < 3; i++) {
            kit_word_t at = kit_word("%s", "");
            for (int d = 0; d < nest.ndim; d++) {
                at = kit_word("%.180s + %lld * n%d", at.text, (long long)nest.stride[i][d], d);
            }
            kit_word_t from = kit_pointer(x, &matrix[i].arg);
            kit_line(x, "%sfloat *%s = %s%s;", i < 2 ? "const " : "", name[i], from.text, at.text);
        }
    }
    kit_write_product(x, batch, m, n, k, s, 0, NULL);
    kit_close(x, nest.ndim);
    return 1;
}

KIT_TEXT_FN int kit_write_linear(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *a = &c->arg[0], *w = &c->arg[1], *y = &c->arg[c->nin];
    int64_t m = 1, k = w->dims[w->ndim - 1], n = w->ndim > 1 ? w->dims[0] : 1, s[5];
    if (a->dtype != TENSOR_F32) { return kit_cannot(x, "linear: export_c.h knows products of f32 alone"); }
    for (int d = 0; d + 1 < a->ndim; d++) { m *= a->dims[d]; }
    s[0] = s[1] = s[2] = s[3] = 1;
    s[0] = k;
    s[2] = w->strides[w->ndim - 1];
    s[3] = w->ndim > 1 ? w->strides[0] : k;
    s[4] = n;
    int alone = c->id == NN_OP_LINEAR;
    if (!alone) {                       // a block of its own: the activation has an `a` too
        kit_line(x, "{");
        x->depth++;
    }
    kit_declare(x, "a", a);
    kit_word_t scale = kit_declare_weight(x, "b", w);
    if (c->arg[2].data) { kit_declare(x, "bias", &c->arg[2]); }
    kit_declare(x, "y", y);
    kit_write_product(x, 1, m, n, k, s, c->arg[2].data != NULL, scale.text[0] ? scale.text : NULL);
    if (alone) { return 1; }
    kit_close(x, 1);
    kit_declare(x, "y", y);
    const char *then = strcmp(c->name, "linear_relu") == 0 ? "relu" : "gelu_tanh";
    char text[KIT_FORMULA];
    unsigned reads = 0;
    if (!kit_formula(x, kit_row(then)->formula[0], NULL, TENSOR_F32, text, &reads)) { return 0; }
    int kept = c->nout > 1 && c->arg[c->nin + 1].data;  // the product before the activation
    if (kept) { kit_declare(x, "before", &c->arg[c->nin + 1]); }
    kit_for(x, "i", m * n);
    kit_line(x, "const float a = y[i];");
    if (kept) { kit_line(x, "before[i] = a;"); }
    kit_line(x, "y[i] = %s;", text);
    kit_close(x, 1);
    return 1;
}

// ---- sums

// Merges a dim of a reduction with the one before it, where they are walked as one.
KIT_TEXT_FN void kit_merge(int64_t *dims, int64_t *strides, int *n, int64_t dim, int64_t stride) {
    if (dim == 1) { return; }
    if (*n && strides[*n - 1] == stride * dim) {
        dims[*n - 1] *= dim;
        strides[*n - 1] = stride;
        return;
    }
    dims[*n] = dim;
    strides[(*n)++] = stride;
}

// Adds the leaf s to the sum where it is full.
KIT_TEXT_FN void kit_leaf(kit_export_state_t *x, const char *full) {
    kit_line(x, "if (%s) {", full);
    kit_line(x, "    sum += (double)s;");
    kit_line(x, "    s = 0;");
    kit_line(x, "}");
}

// Loops over dims with indices named after `letter`.   -> the offset that they give
KIT_TEXT_FN kit_word_t kit_write_loops(kit_export_state_t *x, char letter, const int64_t *dims,
                                       const int64_t *strides, int n) {
    kit_word_t at = kit_word("0");
    for (int d = 0; d < n; d++) {
        kit_for(x, kit_word("%c%d", letter, d).text, dims[d]);
        at = kit_word("%.180s%s%lld * %c%d", d ? at.text : "", d ? " + " : "", (long long)strides[d], letter,
                      d);
    }
    return at;
}

KIT_TEXT_FN int kit_write_reduce(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *a = &c->arg[0], *y = &c->arg[1];
    int64_t kd[TENSOR_MAX_DIMS], ks[TENSOR_MAX_DIMS], rd[TENSOR_MAX_DIMS], rs[TENSOR_MAX_DIMS], kept = 1,
                                                                                                n = 1;
    int nk = 0, nr = 0, id = c->id, mean = id == TENSOR_OP_MEAN, most = id == TENSOR_OP_AMAX;
    if (id != TENSOR_OP_SUM && !mean && !most && id != TENSOR_OP_AMIN) {
        return kit_cannot(x, "%s: export_c.h does not know this op", c->name);
    }
    for (int d = 0; d < a->ndim; d++) {
        int out = c->p->reduce.mask >> d & 1;
        kit_merge(out ? rd : kd, out ? rs : ks, out ? &nr : &nk, a->dims[d], a->strides[d]);
        kept *= out ? 1 : a->dims[d];
        n *= out ? a->dims[d] : 1;
    }
    if (!nr) {
        rd[0] = n;
        rs[0] = 1;
        nr = 1;
    }
    int f32 = a->dtype == TENSOR_F32 && y->dtype == TENSOR_F32;
    const char *type = a->dtype == TENSOR_F32 || a->dtype == TENSOR_F64 ? "double" : "int64_t";
    kit_word_t over = mean ? kit_word(n ? " / %lld" : " / %lld.0", (long long)n) : kit_word("%s", "");
    x->flops += (double)a->numel;
    kit_declare(x, "x", a);
    kit_declare(x, "y", y);
    kit_line(x, "int k = 0;");
    kit_word_t base = kit_write_loops(x, 'k', kd, ks, nk);
    if (most || id == TENSOR_OP_AMIN) {
        kit_line(x, "%s s = x[%s];", kit_type(a->dtype), base.text);
        kit_word_t at = kit_write_loops(x, 'r', rd, rs, nr);
        kit_need(x, KIT_WIDE);
        kit_line(x, "s = K_%s(s, x[%s + %s]);", most ? "MAX" : "MIN", base.text, at.text);
        kit_close(x, nr);
        kit_line(x, "y[k++] = s;");
    } else if (f32 && nk == 1 && ks[0] == 1 && kept >= 8 && rs[nr - 1] != 1) {
        // Rows are added in leaves of 64 rows, leaves in double.
        if (n > 64) { kit_line(x, "double sum = 0;"); }
        if (n > 64) { kit_line(x, "int n = 0;"); }
        kit_line(x, "float s = 0;");
        kit_word_t at = kit_write_loops(x, 'r', rd, rs, nr);
        kit_line(x, "s += x[%s + %s];", base.text, at.text);
        if (n > 64) { kit_leaf(x, "++n % 64 == 0"); }
        kit_close(x, nr);
        kit_word_t all = kit_word(mean ? "(double)s" : "s");
        if (n > 64) { all = kit_word("sum + (double)s"); }
        kit_word_t by = mean ? kit_word(n ? " * (1.0 / %lld)" : " * (1.0 / %lld.0)", (long long)n)
                             : kit_word("%s", "");
        kit_line(x, "y[k++] = (float)((%s)%s);", all.text, by.text);
    } else if (f32) {
        if (kept < 32 && n > 65536) { x->inexact = 1; }
        kit_need(x, KIT_SUM);
        if (nr > 1 || rs[0] != 1) {     // leaves are gathered first
            int64_t leaf = n < 1024 ? n : 1024;
            if (!leaf) { leaf = 1; }        // C has no empty arrays
            x->row = leaf > x->row ? leaf : x->row;
            kit_line(x, "double s = 0;");
            kit_line(x, "int n = 0;");
            kit_word_t at = kit_write_loops(x, 'r', rd, rs, nr);
            kit_line(x, "row[n++] = x[%s + %s];", base.text, at.text);
            if (n > 1024) {
                kit_line(x, "if (n == 1024) {");
                kit_line(x, "    s += k_sum(row, n);");
                kit_line(x, "    n = 0;");
                kit_line(x, "}");
            }
            kit_close(x, nr);
            kit_line(x, "s += k_sum(row, n);");
            kit_line(x, "y[k++] = (float)(s%s);", over.text);
        } else {
            kit_line(x, "y[k++] = (float)(k_sum(x + %s, %lld)%s);", base.text, (long long)n, over.text);
        }
    } else {
        kit_line(x, "%s s = 0;", type);
        kit_word_t at = kit_write_loops(x, 'r', rd, rs, nr);
        kit_line(x, "s += x[%s + %s];", base.text, at.text);
        kit_close(x, nr);
        kit_line(x, "y[k++] = (%s)(s%s);", kit_type(y->dtype), over.text);
    }
    kit_close(x, nk);
    return 1;
}

#endif

// export_sequence.h - the ops that export_c.h writes: indices, embeddings, layer norm
//
// Included by the implementation of export_c.h; copy it with that. The order of sums is that of the
// library's kernels; kit_export_state_t.inexact says where it is not.
#ifndef KIT_EXPORT_SEQUENCE_H
#define KIT_EXPORT_SEQUENCE_H

#include "export_ops.h"

// Declares the operands by their names, a word each; "-" = not this one.
KIT_TEXT_FN void kit_declare_all(kit_export_state_t *x, const kit_call_t *c, const char *const *name,
                                 int n) {
    for (int k = 0; k < n; k++) {
        if (c->arg[k].data && name[k][0] != '-') {
            kit_declare(x, name[k], &c->arg[k]);
        }
    }
}

// Rows without elements, of which only logsumexp makes something.
KIT_TEXT_FN int kit_write_no_rows(kit_export_state_t *x, const kit_call_t *c) {
    for (int k = 0; k < c->nin + c->nout; k++) {
        if (!c->arg[k].memory) { continue; }
        kit_declare(x, kit_word("p%d", k).text, &c->arg[k]);
        kit_line(x, "(void)p%d;", k);
    }
    if (c->id == TENSOR_OP_LOGSUMEXP) {
        kit_need(x, KIT_INF);
        kit_line(x, "for (int i = 0; i < %lld; i++) { p1[i] = -K_INF; }", (long long)c->arg[1].numel);
    }
    return 1;
}

// ---- indices

KIT_TEXT_FN void kit_check_index(kit_export_state_t *x, long long n, long long size) {
    kit_for(x, "i", n);
    kit_line(x, "if (index[i] < 0 || index[i] >= %lld) { return 1; }", size);
    kit_close(x, 1);
}

// index_select, index_add, index_copy by rows; gather, scatter, scatter_add by elements.
KIT_TEXT_FN int kit_write_index(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *a = &c->arg[0], *index = &c->arg[1], *src = &c->arg[2], *y = &c->arg[c->nin];
    int id = c->id, d = (int)c->p->index.dim,
        takes = id == TENSOR_OP_INDEX_SELECT || id == TENSOR_OP_GATHER;
    int adds = id == TENSOR_OP_INDEX_ADD || id == TENSOR_OP_SCATTER_ADD;
    int rows = id == TENSOR_OP_INDEX_SELECT || id == TENSOR_OP_INDEX_ADD || id == TENSOR_OP_INDEX_COPY;
    if (!rows && id != TENSOR_OP_GATHER && id != TENSOR_OP_SCATTER && id != TENSOR_OP_SCATTER_ADD) {
        return kit_cannot(x, "%s: export_c.h does not know this op", c->name);
    }
    if (adds && a->dtype != TENSOR_F32) {
        return kit_cannot(x, "%s: export_c.h knows f32 alone", c->name);
    }
    long long n = a->dims[d], outer = 1, inner = 1, m = index->numel;
    for (int i = 0; i < d; i++) {
        outer *= a->dims[i];
    }
    for (int i = d + 1; i < a->ndim; i++) {
        inner *= a->dims[i];
    }
    kit_declare(x, "x", a);
    kit_declare(x, "index", index);
    if (!takes) {
        kit_declare(x, "src", src);
    }
    kit_declare(x, "y", y);
    kit_check_index(x, m, n);
    // Where an element gets many terms, the sums are doubles.
    int wide = adds && m / 16 >= (rows ? n : a->numel);
    const char *to = wide ? "wide" : "y";
    if (wide) {
        x->wide = a->numel > x->wide ? a->numel : x->wide;
    }
    if (wide || (!takes && a->data != y->data)) {
        kit_line(x,
                 wide ? "for (int i = 0; i < %lld; i++) { %s[i] = (double)x[i]; }"
                      : "for (int i = 0; i < %lld; i++) { %s[i] = x[i]; }",
                 (long long)a->numel, to);
    } else if (!takes) {
        kit_line(x, "(void)x;");
    }
    kit_word_t here = kit_word("%s", ""), there = kit_word("%s", "");
    int loops = 3;
    if (rows) {
        kit_for(x, "o", outer);
        kit_for(x, "k", m);
        kit_for(x, "i", inner);
        here = kit_word("%lld * o + %lld * k + i", m * inner, inner);
        there = kit_word("%lld * o + %lld * (int)index[k] + i", n * inner, inner);
    } else {
        loops = index->ndim;
        kit_word_t at = kit_word("%s", "");
        int64_t step = 1;
        for (int e = index->ndim - 1; e >= 0; step *= index->dims[e], e--) {
            at = kit_word("%lld * i%d%s%.180s", (long long)step, e, at.text[0] ? " + " : "", at.text);
        }
        for (int e = 0; e < index->ndim; e++) {
            kit_for(x, kit_word("i%d", e).text, index->dims[e]);
        }
        kit_line(x, "const int k = (int)index[%s];", at.text);
        for (int e = 0; e < index->ndim; e++) {
            const char *plus = e ? " + " : "";
            kit_word_t i = e == d ? kit_word("k") : kit_word("i%d", e);
            there = kit_word("%.180s%s%lld * %.8s", there.text, plus, (long long)a->strides[e], i.text);
            if (!takes) {
                here = kit_word("%.180s%s%lld * i%d", here.text, plus, (long long)src->strides[e], e);
            }
        }
        if (takes) {
            here = at;
        }
    }
    if (takes) {
        kit_line(x, "y[%s] = x[%s];", here.text, there.text);
    } else {
        kit_line(x, "%s[%s] %s %ssrc[%s];", to, there.text, adds ? "+=" : "=", wide ? "(double)" : "",
                 here.text);
    }
    kit_close(x, loops);
    if (wide) {
        kit_line(x, "for (int i = 0; i < %lld; i++) { y[i] = (float)wide[i]; }", (long long)a->numel);
    }
    return 1;
}

// tril and triu: the other part of each matrix becomes 0.
KIT_TEXT_FN int kit_write_tri(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *a = &c->arg[0], *y = &c->arg[1];
    long long rows = a->dims[a->ndim - 2], columns = a->dims[a->ndim - 1];
    if (!kit_contiguous(a) || !kit_contiguous(y)) {
        return kit_cannot(x, "%s: export_c.h knows contiguous alone", c->name);
    }
    kit_declare(x, "x", a);
    kit_declare(x, "y", y);
    kit_for(x, "i", a->numel);
    kit_line(x, "const int off = i %% %lld - i / %lld %% %lld;", columns, columns, rows);
    kit_line(x,
             c->id == TENSOR_OP_TRIL ? "y[i] = (%s)(off <= %lld ? x[i] : 0);"
                                          : "y[i] = (%s)(off >= %lld ? x[i] : 0);",
             kit_type(y->dtype), (long long)c->p->tri.diagonal);
    kit_close(x, 1);
    return 1;
}

// Rows of a table: index, weight.
KIT_TEXT_FN int kit_write_embedding(kit_export_state_t *x, const kit_call_t *c) {
    long long rows = c->arg[1].dims[0], width = c->arg[1].dims[1], n = c->arg[0].numel;
    if (!kit_plain(x, c, 3, 0)) {
        return 0;
    }
    kit_declare(x, "index", &c->arg[0]);
    kit_declare(x, "w", &c->arg[1]);
    kit_declare(x, "y", &c->arg[2]);
    kit_check_index(x, n, rows);
    kit_for(x, "i", n);
    kit_line(x, "const float *from = w + %lld * (int)index[i];", width);
    if (c->p->embedding.zero_padding && c->p->embedding.padding_idx >= 0) {
        kit_line(x, "const int none = index[i] == %lld;", (long long)c->p->embedding.padding_idx);
        kit_line(x, "for (int j = 0; j < %lld; j++) { y[%lld * i + j] = none ? 0 : from[j]; }", width, width);
    } else {
        kit_line(x, "for (int j = 0; j < %lld; j++) { y[%lld * i + j] = from[j]; }", width, width);
    }
    kit_close(x, 1);
    return 1;
}

// The sums of each row are in the order of the indices; where rows have many, blocks of them are added in
// double.
KIT_TEXT_FN int kit_write_embedding_back(kit_export_state_t *x, const kit_call_t *c) {
    const kit_arg_t *y = &c->arg[2];
    long long width = y->dims[1], n = c->arg[1].numel, block = 128 * (long long)y->dims[0], all = y->numel;
    int many = block > 0 && n >= 2 * block;
    if (!kit_plain(x, c, 3, 1)) {
        return 0;
    }
    kit_declare(x, "g", &c->arg[0]);
    kit_declare(x, "index", &c->arg[1]);
    kit_declare(x, "y", y);
    kit_line(x, "for (int i = 0; i < %lld; i++) { y[i] = 0; }", all);
    if (many) {
        x->wide = all > x->wide ? all : x->wide;
        kit_line(x, "for (int i = 0; i < %lld; i++) { wide[i] = 0; }", all);
    }
    kit_for(x, "i", n);
    kit_line(x, "float *to = y + %lld * (int)index[i];", width);
    if (c->p->embedding.padding_idx >= 0) {
        kit_line(x, "const float by = index[i] == %lld ? 0.0f : 1.0f;",
                 (long long)c->p->embedding.padding_idx);
    }
    kit_line(x,
             c->p->embedding.padding_idx >= 0
                 ? "for (int j = 0; j < %lld && by > 0; j++) { to[j] += g[%lld * i + j]; }"
                 : "for (int j = 0; j < %lld; j++) { to[j] += g[%lld * i + j]; }",
             width, width);
    if (many) {
        kit_line(x, "if ((i + 1) %% %lld != 0 && i + 1 != %lld) { continue; }", block, n);
        kit_for(x, "k", all);
        kit_line(x, "wide[k] += (double)y[k];");
        kit_line(x, "y[k] = i + 1 == %lld ? (float)wide[k] : 0;", n);
        kit_close(x, 1);
    }
    kit_close(x, 1);
    x->flops += (double)(n * width);
    return 1;
}

// ---- layer and rms norm

KIT_TEXT_FN int kit_write_layer_norm(kit_export_state_t *x, const kit_call_t *c) {
    static const char *const name[] = {"x", "w", "b", "y", "mean", "rstd"};
    long long n = c->p->layer_norm.columns, rows = c->arg[4].numel;
    int rms = c->p->layer_norm.rms != 0;
    if (!kit_plain(x, c, 6, -1)) {
        return 0;
    }
    kit_declare_all(x, c, name, 6);
    kit_need(x, KIT_LEAVES);
    kit_need(x, KIT_DEVIATION);
    kit_need(x, KIT_SQRT64);
    kit_for(x, "r", rows);
    kit_line(x, "const float *p = x + %lld * r;", n);
    if (rms) {
        kit_line(x, "const double m = 0;");
    } else {
        kit_line(x, "const double m = k_leaves(p, %lld) / %lld.0;", n, n);
    }
    kit_line(x, "const double d = k_deviation(0, p, (float)m, 0, %lld) / %lld.0;", n, n);
    kit_line(x, "const float scale = (float)(1 / k_sqrt64(d + %s));",
             kit_number(x, c->p->layer_norm.eps, TENSOR_F64).text);
    kit_line(x, "mean[r] = (float)m;");
    kit_line(x, "rstd[r] = scale;");
    kit_line(x, "for (int j = 0; j < %lld; j++) { y[%lld * r + j] = (p[j] - (float)m) * scale%s%s; }", n, n,
             c->arg[1].data ? " * w[j]" : "", c->arg[2].data ? " + b[j]" : "");
    kit_close(x, 1);
    x->flops += 8.0 * (double)c->arg[0].numel;
    return 1;
}

// The gradients by weight and bias: parts of the rows, which are added as a tree.
KIT_TEXT_FN int kit_write_layer_norm_back(kit_export_state_t *x, const kit_call_t *c) {
    static const char *const name[] = {"grad", "x", "mean", "rstd", "w", "out", "dw", "db"};
    long long n = c->p->layer_norm.columns, rows = c->arg[2].numel, parts = (rows + 31) / 32;
    long long most = rows < 16 ? rows : 16, by_size = rows * n / 16384;
    int weights = c->arg[6].numel > 0;
    if (by_size < most) {
        most = by_size;
    }
    if (most > parts) {
        parts = most;
    }
    if (parts < 1) {
        parts = 1;
    }
    if (!kit_plain(x, c, weights ? 8 : 6, -1)) {
        return 0;
    }
    kit_declare_all(x, c, name, weights ? 8 : 6);
    if (weights) {
        x->row = 2 * n * parts > x->row ? 2 * n * parts : x->row;
        kit_line(x, "for (int i = 0; i < %lld; i++) { row[i] = 0; }", 2 * n * parts);
    }
    kit_for(x, "k", parts);
    if (weights) {
        kit_line(x, "float *pw = row + %lld * k, *pb = pw + %lld;", 2 * n, n);
    }
    kit_line(x, "for (int r = %lld * k / %lld; r < %lld * (k + 1) / %lld; r++) {", rows, parts, rows, parts);
    x->depth++;
    kit_line(x, "const float *g = grad + %lld * r, *p = x + %lld * r, m = mean[r], d = rstd[r];", n, n);
    kit_need(x, KIT_FOLD);
    kit_line(x, "float s[K_LANES] = {0}, t[K_LANES] = {0}, sf, tf;");
    kit_line(x, "double sum = 0, dot = 0;");
    kit_for(x, "j", n);
    kit_line(x, "const float h = (p[j] - m) * d, v = g[j]%s;", c->arg[4].data ? " * w[j]" : "");
    if (weights) {
        kit_line(x, "pw[j] += g[j] * h;");
        kit_line(x, "pb[j] += g[j];");
    }
    kit_line(x, "s[j %% K_LANES] += v;");
    kit_line(x, "t[j %% K_LANES] += v * h;");
    kit_line(x, "if ((j + 1) %% (64 * K_LANES) == 0 || j + 1 == %lld) {", n);
    kit_line(x, "    sum += (double)k_fold(s, 1);");
    kit_line(x, "    dot += (double)k_fold(t, 1);");
    kit_line(x, "    for (int l = 0; l < K_LANES; l++) { s[l] = t[l] = 0; }");
    kit_line(x, "}");
    kit_close(x, 1);
    kit_line(x, "sf = (float)(sum / %lld.0);", n);
    if (c->p->layer_norm.rms) {
        kit_line(x, "sf = 0;");
    }
    kit_line(x, "tf = (float)(dot / %lld.0);", n);
    kit_for(x, "j", n);
    kit_line(x, "const float h = (p[j] - m) * d;");
    kit_line(x, "out[%lld * r + j] = d * (g[j]%s - sf - h * tf);", n, c->arg[4].data ? " * w[j]" : "");
    kit_close(x, 3);
    if (weights) {
        if (parts > 1) {
            kit_line(x, "for (int step = 1; step < %lld; step *= 2) {", parts);
            kit_line(x, "    for (int i = 0; i + step < %lld; i += 2 * step) {", parts);
            kit_line(x, "        float *to = row + %lld * i, *from = to + %lld * step;", 2 * n, 2 * n);
            kit_line(x, "        for (int j = 0; j < %lld; j++) { to[j] += from[j]; }", 2 * n);
            kit_line(x, "    }");
            kit_line(x, "}");
        }
        kit_for(x, "j", n);
        kit_line(x, "dw[j] = row[j];");
        kit_line(x, "db[j] = row[%lld + j];", n);
        kit_close(x, 1);
    }
    x->flops += 14.0 * (double)c->arg[0].numel;
    return 1;
}

#endif

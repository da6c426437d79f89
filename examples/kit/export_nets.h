// export_nets.h - the ops that export_c.h writes: attention, recurrent nets
//
// Included by the implementation of export_c.h; copy it with that. The order of sums is that of the
// library's kernels; kit_export_state_t.inexact says where it is not.
#ifndef KIT_EXPORT_NETS_H
#define KIT_EXPORT_NETS_H

#include "export_sequence.h"

// ---- attention

typedef struct kit_attention_t {
    const kit_arg_t *q, *k, *v, *y, *lse, *g, *dq, *dk, *dv, *mask; // mask: NULL if there is none
    long long t, s, e, ev, rows; // rows: queries of a block
    int causal;
    double dropout;
    kit_nest_t heads;
} kit_attention_t;

KIT_TEXT_FN int kit_attention(kit_export_state_t *x, const kit_call_t *c, kit_attention_t *v) {
    int back = c->id == NN_OP_ATTENTION_BACKWARD, n = back ? 9 : 5;
    const kit_arg_t *a = c->arg;
    memset((void *)v, 0, sizeof *v);
    v->mask = c->nin > (back ? 6 : 3) ? &c->arg[c->nin - 1] : NULL;
    v->dropout = c->p->attention.dropout;
    for (int k = 0; k < n + (v->mask != NULL); k++) {
        if (a[k].dtype != TENSOR_F32 && (&a[k] != v->mask || a[k].dtype != TENSOR_BOOL)) {
            return kit_cannot(x, "%s: export_c.h knows f32 alone", c->name);
        }
    }
    v->g = back ? a++ : NULL;
    v->q = a++;
    v->k = a++;
    v->v = a++;
    a += v->mask && !back;
    v->y = a++;
    v->lse = a++;
    a += v->mask && back;
    v->dq = a;
    v->dk = a + 1;
    v->dv = a + 2;
    int nd = v->q->ndim;
    v->t = v->q->dims[nd - 2];
    v->e = v->q->dims[nd - 1];
    v->s = v->k->dims[nd - 2];
    v->ev = v->v->dims[nd - 1];
    v->causal = c->p->attention.is_causal != 0;
    v->rows = v->causal ? 32 : 64;
    v->heads.ndim = nd - 2;
    for (int d = 0; d < nd - 2; d++) {
        v->heads.dims[d] = v->q->dims[d];
    }
    const kit_arg_t *all[9] = {v->q, v->k, v->v, v->y, v->lse, v->g, v->dq, v->dk, v->dv};
    for (int k = 0; k < (back ? 9 : 5); k++) {
        kit_arg_t outer = *all[k];
        outer.ndim = nd - 2;
        kit_nest_add(&v->heads, &outer);
    }
    if (v->mask) {
        kit_arg_t outer = *v->mask;
        outer.ndim = nd - 2;
        kit_nest_add(&v->heads, &outer);
    }
    kit_nest_join(&v->heads);
    // Long rows are cut by the library's products.
    long long high = v->t < v->rows ? v->t : v->rows;
    const int64_t *qs = v->q->strides + nd - 2, *ks = v->k->strides + nd - 2, *vs = v->v->strides + nd - 2;
    int turned = v->t >= 32 && ks[1] == 1;
    int64_t scores[5] = {qs[0], qs[1], ks[1], ks[0], 0};
    int64_t result[5] = {v->s, 1, vs[0], vs[1], 0};
    if (turned) {
        scores[2] = v->s + 16;
    }
    if (kit_chain(1, high, v->s, v->e, scores) < v->e || kit_chain(1, high, v->ev, v->s, result) < v->s) {
        x->inexact = 1;
    }
    x->flops += 2.0 * (double)v->lse->numel * (double)v->s * (double)(v->e + v->ev) * (back ? 2.5 : 1);
    return 1;
}

// The index of element j of row i of an operand.
KIT_TEXT_FN kit_word_t kit_element(const kit_arg_t *a, const char *i, const char *j) {
    long long row = a->strides[a->ndim - 2], step = a->strides[a->ndim - 1];
    return step == 1 ? kit_word("%lld * %s + %s", row, i, j)
                     : kit_word("%lld * %s + %lld * %s", row, i, step, j);
}

// Loops over heads with a pointer to the head's part of each operand.
KIT_TEXT_FN void kit_heads(kit_export_state_t *x, const kit_attention_t *v) {
    static const char *const name[] = {"q", "k", "v", "y", "lse", "g", "dq", "dk", "dv"};
    const kit_arg_t *all[9] = {v->q, v->k, v->v, v->y, v->lse, v->g, v->dq, v->dk, v->dv};
    for (int n = 0; n < v->heads.ndim; n++) {
        kit_for(x, kit_index_name(&v->heads, n).text, v->heads.dims[n]);
    }
    for (int k = 0; k < (v->g ? 9 : 5); k++) {
        kit_word_t at = kit_nest_index(&v->heads, k), from = kit_pointer(x, all[k]);
        kit_line(x, "%sfloat *%s = %s + %s;", all[k]->changes ? "" : "const ", name[k], from.text,
                 at.text);
    }
    if (v->mask) {
        kit_line(x, "const %s *mask = %s + %s;", kit_type(v->mask->dtype), kit_pointer(x, v->mask).text,
                 kit_nest_index(&v->heads, v->g ? 9 : 5).text);
    }
    if (v->dropout > 0) { kit_line(x, "const int of = %s;", kit_nest_index(&v->heads, 4).text); }
}

// kept = what dropout multiplies the probability of query t and key j by.
KIT_TEXT_FN void kit_export__kept(kit_export_state_t *x, const kit_call_t *c, const kit_attention_t *v) {
    const double p = v->dropout;
    const long long stream = x->call.random_stream;
    kit_need(x, KIT_PHILOX);
    x->draws = 1;
    kit_line(x, "const uint32_t at = (uint32_t)(of + t) * %lldu + (uint32_t)j;", v->s);
    kit_line(x, "uint32_t word[4];");
    if (stream >= 0) {
        kit_line(x, "k_philox(seed, stream + %lld, at / 4, word);", stream);
    } else {
        kit_line(x, "k_philox(%lluu, %lluu, at / 4, word);", (unsigned long long)c->rng.seed,
                 (unsigned long long)c->rng.offset);
    }
    kit_word_t scale = kit_number(x, p < 1 ? 1 / (1 - p) : 0, TENSOR_F32);
    kit_line(x, "const float kept = word[at %% 4] >> 8 < %luu ? %s : 0.0f;",
             (unsigned long)((1 - p) * 16777216.0 + 0.5), scale.text);
}

// s[j] = q k for one query i and the keys that it may look at, masked.   -> what it must be multiplied by
KIT_TEXT_FN kit_word_t kit_export__scores(kit_export_state_t *x, const kit_attention_t *v,
                                          kit_word_t scale) {
    if (v->causal) {
        kit_line(x, "const int n = t < %lld ? t + 1 : %lld;", v->s, v->s);
    } else {
        kit_line(x, "const int n = %lld;", v->s);
    }
    kit_line(x, "for (int j = 0; j < n; j++) {");
    x->depth++;
    kit_line(x, "float f = 0;");
    kit_word_t q = kit_element(v->q, "t", "e"), k = kit_element(v->k, "j", "e");
    kit_line(x, "for (int e = 0; e < %lld; e++) { f += q[%s] * k[%s]; }", v->e, q.text, k.text);
    if (!v->mask) {
        kit_line(x, "s[j] = f;");
        return scale;
    }
    kit_word_t at = kit_element(v->mask, "t", "j");
    if (v->mask->dtype == TENSOR_BOOL) {
        kit_line(x, "s[j] = f = mask[%s] ? f * %s : -K_INF;", at.text, scale.text);
    } else {
        kit_line(x, "s[j] = f = f * %s + mask[%s];", scale.text, at.text);
    }
    return kit_word("%s", "1.0f");
}

// y = softmax(scale q kT) v
KIT_TEXT_FN int kit_write_attention(kit_export_state_t *x, const kit_call_t *c) {
    kit_attention_t v;
    if (!kit_attention(x, c, &v)) {
        return 0;
    }
    kit_word_t scale = kit_number(x, c->p->attention.scale, TENSOR_F32);
    kit_need(x, KIT_INF);
    kit_need(x, KIT_EXP);
    kit_need(x, KIT_FOLD);
    kit_need(x, KIT_LOG64);
    x->row = v.s > x->row ? v.s : x->row;
    kit_heads(x, &v);
    kit_for(x, "t", v.t);
    kit_line(x, "float *s = row, *to = y + %lld * t, most = -K_INF, sum[K_LANES] = {0}, total;", v.ev);
    scale = kit_export__scores(x, &v, scale);
    kit_line(x, "most = most > f * %s ? most : f * %s;", scale.text, scale.text);
    kit_close(x, 1);
    kit_line(x, "for (int e = 0; e < %lld; e++) { to[e] = 0; }", v.ev);
    kit_line(x, "lse[t] = -K_INF;");
    kit_line(x, "if (most == -K_INF) { continue; }");
    kit_line(x, "for (int j = 0; j < n; j++) {");
    x->depth++;
    kit_line(x, "s[j] = k_exp(s[j] * %s + -most);", scale.text);
    kit_line(x, "sum[j %% K_LANES] += s[j];");
    kit_word_t at = kit_element(v.v, "j", "e");
    if (v.dropout > 0) {
        kit_export__kept(x, c, &v);
        kit_line(x, "s[j] *= kept;");
    }
    kit_line(x, "for (int e = 0; e < %lld; e++) { to[e] += s[j] * v[%s]; }", v.ev, at.text);
    kit_close(x, 1);
    kit_line(x, "total = k_fold(sum, 1);");
    kit_line(x, "lse[t] = (float)((double)most + k_log64((double)total));");
    kit_line(x, "total = (float)(1 / (double)total);");
    kit_line(x, "for (int e = 0; e < %lld; e++) { to[e] *= total; }", v.ev);
    kit_close(x, 1 + v.heads.ndim);
    return 1;
}

// Does something with element e of each row j of a gradient.
KIT_TEXT_FN void kit_each(kit_export_state_t *x, const kit_attention_t *v, const char *gradient,
                          const kit_arg_t *a, const char *does) {
    const long long n = a->dims[a->ndim - 1];
    kit_word_t at = kit_element(a, "j", "e");
    kit_for(x, "j", v->s);
    kit_line(x, "for (int e = 0; e < %lld; e++) { %s[%s] %s; }", n, gradient, at.text, does);
    kit_close(x, 1);
}

// With P computed again and D = P (g vT - delta) scale: dv = PT g, dq = D k, dk = DT q. The library adds
// blocks of queries, from the last one to the first.
KIT_TEXT_FN int kit_write_attention_back(kit_export_state_t *x, const kit_call_t *c) {
    kit_attention_t v;
    if (!kit_attention(x, c, &v)) {
        return 0;
    }
    kit_word_t scale = kit_number(x, c->p->attention.scale, TENSOR_F32);
    int blocks = v.t > v.rows;
    long long room = 2 * v.s + (blocks ? v.s * (v.e + v.ev) : 0);
    kit_need(x, KIT_INF);
    kit_need(x, KIT_EXP);
    kit_need(x, KIT_FOLD);
    x->row = room > x->row ? room : x->row;
    kit_heads(x, &v);
    kit_line(x, "float *s = row, *d = row + %lld;", v.s);
    kit_each(x, &v, "dk", v.dk, "= 0");
    kit_each(x, &v, "dv", v.dv, "= 0");
    if (blocks) {
        kit_line(x, "float *pk = d + %lld, *pv = pk + %lld;", v.s, v.s * v.e);
        kit_line(x, "for (int first = %lld; first >= 0; first -= %lld) {", (v.t - 1) / v.rows * v.rows,
                 v.rows);
        x->depth++;
        kit_line(x, "for (int z = 0; z < %lld; z++) { pk[z] = 0; }", v.s * (v.e + v.ev));
        kit_line(x, "for (int t = first; t < %lld && t < first + %lld; t++) {", v.t, v.rows);
        x->depth++;
    } else {
        kit_line(x, "float *pk = dk, *pv = dv;");
        kit_for(x, "t", v.t);
    }
    kit_word_t g = kit_element(v.g, "t", "e"), value = kit_element(v.v, "j", "e"),
               key = kit_element(v.k, "j", "e");
    kit_word_t query = kit_element(v.q, "t", "e");
    kit_line(x, "float *to = dq + %lld * t, sum[K_LANES] = {0};", (long long)v.dq->strides[v.dq->ndim - 2]);
    kit_line(x, "double all = 0;");
    kit_line(x, "for (int e = 0; e < %lld; e++) { to[e] = 0; }", v.e);
    kit_line(x, "if (lse[t] == -K_INF) { continue; }");
    kit_for(x, "e", v.ev);
    kit_line(x, "sum[e %% K_LANES] += g[%s] * y[%lld * t + e];", g.text, v.ev);
    kit_line(x, "if ((e + 1) %% (64 * K_LANES) == 0 || e + 1 == %lld) {", v.ev);
    kit_line(x, "    all += (double)k_fold(sum, 1);");
    kit_line(x, "    for (int l = 0; l < K_LANES; l++) { sum[l] = 0; }");
    kit_line(x, "}");
    kit_close(x, 1);
    kit_word_t left = kit_export__scores(x, &v, scale);
    kit_line(x, "f = 0;");
    kit_line(x, "for (int e = 0; e < %lld; e++) { f += g[%s] * v[%s]; }", v.ev, g.text, value.text);
    if (v.dropout > 0) {
        kit_export__kept(x, c, &v);
        kit_line(x, "f *= kept;");
    }
    kit_line(x, "s[j] = k_exp(s[j] * %s + -lse[t]);", left.text);
    kit_line(x, "d[j] = s[j] * (f - (float)all) * %s;", scale.text);
    if (v.dropout > 0) { kit_line(x, "s[j] *= kept;"); }
    kit_line(x, "for (int e = 0; e < %lld; e++) { to[e] += d[j] * k[%s]; }", v.e, key.text);
    kit_line(x, "for (int e = 0; e < %lld; e++) { pv[%lld * j + e] += s[j] * g[%s]; }", v.ev,
             blocks ? v.ev : (long long)v.dv->strides[v.dv->ndim - 2], g.text);
    kit_line(x, "for (int e = 0; e < %lld; e++) { pk[%lld * j + e] += d[j] * q[%s]; }", v.e,
             blocks ? v.e : (long long)v.dk->strides[v.dk->ndim - 2], query.text);
    kit_close(x, 2);
    if (blocks) {
        kit_word_t from = kit_word("+= pk[%lld * j + e]", v.e);
        kit_each(x, &v, "dk", v.dk, from.text);
        from = kit_word("+= pv[%lld * j + e]", v.ev);
        kit_each(x, &v, "dv", v.dv, from.text);
        kit_close(x, 1);
    }
    kit_close(x, v.heads.ndim);
    return 1;
}

// ---- recurrent nets: one layer in one direction

typedef struct kit_recurrent_t {
    long long t, n, h, g; // steps, items, features, gates of all features
    int kind, reverse;
} kit_recurrent_t;

KIT_TEXT_FN kit_recurrent_t kit_recurrent(const kit_call_t *c, const kit_arg_t *y) {
    kit_recurrent_t v;
    v.kind = (int)c->p->recurrent.kind;
    v.reverse = c->p->recurrent.reverse != 0;
    v.t = y->dims[0];
    v.n = y->dims[1];
    v.h = y->dims[2];
    v.g = v.h;
    if (v.kind == NN_LSTM_NET) {
        v.g = 4 * v.h;
    }
    if (v.kind == NN_GRU_NET) {
        v.g = 3 * v.h;
    }
    return v;
}

// The loop over steps, with `at`, the step, and `from`, the first element of the state before it.
KIT_TEXT_FN void kit_steps(kit_export_state_t *x, const kit_recurrent_t *v, int back, const char *states) {
    long long size = v->n * v->h, last = v->t - 1;
    if (back) {
        kit_line(x, "for (int t = %lld; t >= 0; t--) {", last);
        x->depth++;
    } else {
        kit_for(x, "t", v->t);
    }
    kit_line(x, v->reverse ? "const int at = %lld - t;" : "const int at = t;", last);
    kit_line(x, "const float *h = t ? out + %lld * (at %s 1) : h0;", size, v->reverse ? "+" : "-");
    if (v->kind == NN_LSTM_NET) {
        kit_line(x, "const float *c = t ? %s + %lld * (at %s 1) : c0;", states, size, v->reverse ? "+" : "-");
    }
}

// What becomes of one feature: x and u are what the input and h add to its gates, p the gates that are kept.
KIT_TEXT_FN void kit_cell(kit_export_state_t *x, const kit_recurrent_t *v, int kept) {
    long long h = v->h;
    if (v->kind == NN_LSTM_NET) {
        kit_need(x, KIT_SIGMOID);
        kit_need(x, KIT_TANH);
        kit_line(x, "const float a = k_sigmoid(x[i] + u[i]), b = k_sigmoid(x[%lld + i] + u[%lld + i]);", h,
                 h);
        kit_line(
            x, "const float f = k_tanh(x[%lld + i] + u[%lld + i]), o = k_sigmoid(x[%lld + i] + u[%lld + i]);",
            2 * h, 2 * h, 3 * h, 3 * h);
        kit_line(x, "const float e = b * c[%lld * n + i] + a * f;", h);
        kit_line(x, "cells[%lld * m + i] = e;", h);
        kit_line(x, "out[%lld * m + i] = o * k_tanh(e);", h);
    } else if (v->kind == NN_GRU_NET) {
        kit_need(x, KIT_SIGMOID);
        kit_need(x, KIT_TANH);
        kit_line(x, "const float a = k_sigmoid(x[i] + u[i]), b = k_sigmoid(x[%lld + i] + u[%lld + i]);", h,
                 h);
        kit_line(x, "const float o = u[%lld + i], f = k_tanh(x[%lld + i] + a * o);", 2 * h, 2 * h);
        kit_line(x, "out[%lld * m + i] = f + b * (h[%lld * n + i] - f);", h, h);
    } else {
        kit_need(x, v->kind == NN_TANH_NET ? KIT_TANH : KIT_LARGER);
        kit_line(x,
                 v->kind == NN_TANH_NET ? "out[%lld * m + i] = k_tanh(x[i] + u[i]);"
                                         : "out[%lld * m + i] = k_max(x[i] + u[i], 0.0f);",
                 h);
    }
    if (!kept || v->kind < NN_LSTM_NET) {
        return;
    }
    kit_line(x, "gates[%lld * m + i] = a;", 4 * h);
    kit_line(x, "gates[%lld * m + %lld + i] = b;", 4 * h, h);
    kit_line(x, "gates[%lld * m + %lld + i] = f;", 4 * h, 2 * h);
    kit_line(x, "gates[%lld * m + %lld + i] = o;", 4 * h, 3 * h);
}

KIT_TEXT_FN int kit_write_recurrent(kit_export_state_t *x, const kit_call_t *c) {
    static const char *const name[] = {"gi", "-", "h0", "bias", "c0", "out"};
    kit_recurrent_t v = kit_recurrent(c, &c->arg[5]);
    if (!kit_plain(x, c, 8, -1)) {
        return 0;
    }
    int lstm = v.kind == NN_LSTM_NET, gates = lstm || v.kind == NN_GRU_NET;
    const kit_place_t *place = gates ? kit_place(x, c->arg[7].memory) : NULL;
    int kept = place && place->uses > 1;
    int64_t strides[5] = {v.h, 1, 1, v.h, v.g};
    x->row = v.n * v.g > x->row ? v.n * v.g : x->row;
    kit_declare_all(x, c, name, 6);
    if (lstm) {
        kit_declare(x, "cells", &c->arg[6]);
    }
    if (kept) {
        kit_declare(x, "gates", &c->arg[7]);
    }
    kit_steps(x, &v, 0, "cells");
    kit_line(x, "{                                       // what h adds to the gates");
    x->depth++;
    kit_declare(x, "b", &c->arg[1]);
    kit_line(x, "const float *a = h;");
    kit_line(x, "float *y = row;");
    double before = x->flops;
    kit_write_product(x, 1, v.n, v.g, v.h, strides, c->arg[3].data != NULL, NULL);
    x->flops = before + (x->flops - before) * (double)v.t + 12.0 * (double)(v.t * v.n * v.g);
    kit_close(x, 1);
    kit_for(x, "n", v.n);
    kit_line(x, "const int m = %lld * at + n;", v.n);
    kit_line(x, "const float *x = gi + %lld * m, *u = row + %lld * n;", v.g, v.g);
    kit_for(x, "i", v.h);
    kit_cell(x, &v, kept);
    kit_close(x, 3);
    return 1;
}

// The same backward: dh and dc become the gradients of the state before, apart from what goes through w.
KIT_TEXT_FN void kit_cell_back(kit_export_state_t *x, const kit_recurrent_t *v) {
    long long h = v->h;
    if (v->kind == NN_LSTM_NET) {
        kit_need(x, KIT_TANH);
        kit_line(x, "const float *p = gates + %lld * m + i, a = p[0], b = p[%lld], f = p[%lld], o = p[%lld];",
                 4 * h, h, 2 * h, 3 * h);
        kit_line(x, "const float d = to[i], e = k_tanh(cells[%lld * m + i]);", h);
        kit_line(x, "const float s = dc[%lld * n + i] + d * o * (1 - e * e);", h);
        kit_line(x, "q[%lld + i] = d * e * (o * (1 - o));", 3 * h);
        kit_line(x, "q[i] = s * f * (a * (1 - a));");
        kit_line(x, "q[%lld + i] = s * c[%lld * n + i] * (b * (1 - b));", h, h);
        kit_line(x, "q[%lld + i] = s * a * (1 - f * f);", 2 * h);
        kit_line(x, "dc[%lld * n + i] = s * b;", h);
        kit_line(x, "to[i] = 0;");
    } else if (v->kind == NN_GRU_NET) {
        kit_line(x, "const float *p = gates + %lld * m + i, a = p[0], b = p[%lld], f = p[%lld], o = p[%lld];",
                 4 * h, h, 2 * h, 3 * h);
        kit_line(x, "const float d = to[i], s = d * (1 - b) * (1 - f * f);");
        kit_line(x, "r[%lld + i] = q[%lld + i] = d * (h[%lld * n + i] - f) * (b * (1 - b));", h, h, h);
        kit_line(x, "q[%lld + i] = s;", 2 * h);
        kit_line(x, "r[%lld + i] = s * a;", 2 * h);
        kit_line(x, "r[i] = q[i] = s * o * (a * (1 - a));");
        kit_line(x, "to[i] = d * b;");
    } else {
        kit_line(x, "const float f = out[%lld * m + i];", h);
        kit_line(x, v->kind == NN_TANH_NET ? "q[i] = to[i] * (1 - f * f);" : "q[i] = f > 0 ? to[i] : 0;");
        kit_line(x, "to[i] = 0;");
    }
}

KIT_TEXT_FN int kit_write_recurrent_back(kit_export_state_t *x, const kit_call_t *c) {
    static const char *const name[] = {"grad", "out", "cells", "gates", "w",  "h0",
                                       "more", "c0",  "dgi",   "dhg",   "dh", "dc"};
    kit_recurrent_t v = kit_recurrent(c, &c->arg[1]);
    int lstm = v.kind == NN_LSTM_NET, gru = v.kind == NN_GRU_NET;
    if (!kit_plain(x, c, 12, -1)) {
        return 0;
    }
    int64_t strides[5] = {v.g, 1, v.h, 1, v.h}, chain = kit_chain(1, v.n, v.h, v.g, strides);
    if (!chain) {
        x->inexact = 1;
    }
    if (!chain) {
        chain = v.g;
    }
    for (int k = 0; k < 12; k++) {
        int used = c->arg[k].data && c->arg[k].numel;
        if ((k == 2 || k == 7 || k == 11) && !lstm) {
            used = 0;
        }
        if ((k == 3 && !lstm && !gru) || (k == 9 && !gru) || (k == 6 && !lstm)) {
            used = 0;
        }
        if (used) {
            kit_declare(x, name[k], &c->arg[k]);
        }
    }
    kit_line(x, "for (int i = 0; i < %lld; i++) { dh[i] = %s0; }", v.n * v.h, lstm ? "dc[i] = " : "");
    kit_steps(x, &v, 1, "cells");
    if (!gru) {
        kit_line(x, "(void)h;");
    }
    kit_line(x, "for (int i = 0; i < %lld; i++) { dh[i] += grad[%lld * at + i]; }", v.n * v.h, v.n * v.h);
    if (lstm && c->arg[6].data) {
        kit_line(x, "for (int i = 0; i < %lld; i++) { dc[i] += more[%lld * at + i]; }", v.n * v.h, v.n * v.h);
    }
    kit_for(x, "n", v.n);
    kit_line(x, "const int m = %lld * at + n;", v.n);
    kit_line(x, "float *to = dh + %lld * n, *q = dgi + %lld * m%s;", v.h, v.g,
             gru ? kit_word(", *r = dhg + %lld * m", v.g).text : "");
    kit_for(x, "i", v.h);
    kit_cell_back(x, &v);
    kit_close(x, 1);
    kit_line(x, "for (int from = 0; from < %lld; from += %lld) {", v.g, (long long)chain);
    x->depth++;
    kit_line(x, "float s[%lld];", v.h);
    kit_line(x, "for (int i = 0; i < %lld; i++) { s[i] = 0; }", v.h);
    kit_line(x, "for (int p = from; p < %lld && p < from + %lld; p++) {", v.g, (long long)chain);
    x->depth++;
    kit_line(x, "for (int i = 0; i < %lld; i++) { s[i] += %s[p] * w[%lld * p + i]; }", v.h, gru ? "r" : "q",
             v.h);
    kit_close(x, 1);
    kit_line(x, "for (int i = 0; i < %lld; i++) { to[i] += s[i]; }", v.h);
    kit_close(x, 3);
    x->flops += (double)(v.t * v.n * v.g) * (2.0 * (double)v.h + 8);
    return 1;
}

#endif

// export_train.h - the ops that export_c.h writes: rows, losses, dropout, clipping, optimizers
//
// Included by the implementation of export_c.h; copy it with that.
#ifndef KIT_EXPORT_TRAIN_H
#define KIT_EXPORT_TRAIN_H

#include "export_ops.h"

// ---- rows of the last dim

// Softmax, log_softmax, logsumexp and their gradients. An operand whose rows are not contiguous goes through
// a buffer.
KIT_TEXT_FN int kit_write_rows(kit_export_state_t *x, const kit_call_t *c) {
    int id = c->id, n_in = c->nin, gathered[3] = {0, 0, 0};
    int back = id == TENSOR_OP_SOFTMAX_BACKWARD || id == TENSOR_OP_LOG_SOFTMAX_BACKWARD;
    int known = back || id == TENSOR_OP_SOFTMAX || id == TENSOR_OP_LOG_SOFTMAX || id == TENSOR_OP_LOGSUMEXP;
    static const char *const name[2][3] = {{"x", "y", ""}, {"g", "y", "out"}};
    const kit_arg_t *a = &c->arg[0];
    if (!known || a->dtype != TENSOR_F32) {
        return kit_cannot(x, "%s: export_c.h does not know this op", c->name);
    }
    int64_t n = a->dims[a->ndim - 1];
    kit_nest_t nest;
    memset(&nest, 0, sizeof nest);
    nest.ndim = a->ndim - 1;
    for (int d = 0; d < nest.ndim; d++) { nest.dims[d] = a->dims[d]; }
    for (int i = 0; i < n_in + 1; i++) {
        kit_arg_t outer = c->arg[i];
        if (outer.ndim == a->ndim) {
            gathered[i] = outer.strides[a->ndim - 1] != 1 && n > 1;
            outer.ndim--;
        }
        kit_nest_add(&nest, &outer);
    }
    kit_nest_join(&nest);
    for (int i = 0; i < n_in + 1; i++) { kit_declare(x, kit_word("%s_", name[back][i]).text, &c->arg[i]); }
    kit_nest_open(x, &nest);
    int64_t room = 0;
    for (int i = 0; i < n_in + 1; i++) {
        const char *of = name[back][i];
        kit_word_t at = kit_nest_index(&nest, i);
        const char *constant = i < n_in ? "const " : "";
        if (!gathered[i]) {
            kit_line(x, "%sfloat *%s = %s_ + %s;", constant, of, of, at.text);
            continue;
        }
        kit_line(x, "float *%s = row + %lld;", of, (long long)room);
        room += n;
        if (i < n_in) {
            kit_line(x, "for (int j = 0; j < %lld; j++) { %s[j] = %s_[%s + %lld * j]; }", (long long)n, of,
                     of, at.text, (long long)c->arg[i].strides[a->ndim - 1]);
        }
    }
    kit_word_t each = kit_word("for (int j = 0; j < %lld; j++)", (long long)n);
    x->flops += 4.0 * (double)a->numel;
    if (back) {
        kit_need(x, KIT_SUM);
        if (id == TENSOR_OP_SOFTMAX_BACKWARD) {
            kit_line(x, "float sum[4 * K_LANES] = {0};");
            kit_line(x, "%s { sum[k_place(j, %lld, 4)] += g[j] * y[j]; }", each.text, (long long)n);
            kit_line(x, "const float s = k_fold(sum, 4);");
            kit_line(x, "%s { out[j] = y[j] * (g[j] - s); }", each.text);
        } else {
            kit_need(x, KIT_EXP);
            kit_line(x, "const float s = k_leaf(g, %lld);", (long long)n);
            kit_line(x, "%s { out[j] = g[j] - k_exp(y[j]) * s; }", each.text);
        }
    } else {
        int own = id == TENSOR_OP_LOGSUMEXP;    // its terms are not wanted
        kit_need(x, KIT_EXP_ROW);
        kit_line(x, "float max, s = k_exp_row(x, %s, %lld, &max);",
                 own ? kit_word("row + %lld", (long long)room).text : "y", (long long)n);
        if (own) {
            room += n;
            kit_need(x, KIT_LOG);
            kit_line(x, "y[0] = max - max != 0 ? max : max + k_log(s);");
        } else if (id == TENSOR_OP_SOFTMAX) {
            kit_line(x, "s = 1.0f / s;");
            kit_line(x, "%s { y[j] = y[j] * s; }", each.text);
        } else {
            kit_need(x, KIT_LOG);
            kit_line(x, "s = k_log(s);");
            kit_line(x, "%s { y[j] = x[j] - max - s; }", each.text);
        }
    }
    if (gathered[n_in]) {
        kit_line(x, "%s { %s_[%s + %lld * j] = %s[j]; }", each.text, name[back][n_in],
                 kit_nest_index(&nest, n_in).text, (long long)c->arg[n_in].strides[a->ndim - 1],
                 name[back][n_in]);
    }
    x->row = room > x->row ? room : x->row;
    kit_close(x, nest.ndim);
    return 1;
}

// ---- losses

// The words of a loss are macros of tensor_nn.h, which leave words of formulas: one level more expands them.
#define KIT_WORDS(...) KIT_TEXT(__VA_ARGS__)
#define KIT_LOSS(ID, f, dx, dt)                                                                              \
    {#ID, {KIT_WORDS(f(V_, x, t, p, q)), KIT_WORDS(dx(V_, x, t, p, q)), KIT_WORDS(dt(V_, x, t, p, q)), NULL}},

// The formula of a pointwise loss (0), its derivatives by input (1) and target (2).
KIT_TEXT_FN int kit_loss_formula(kit_export_state_t *x, const kit_call_t *c, int which, char *out,
                                 unsigned *reads) {
    static const kit_row_t rows[] = {NN_LOSSES(KIT_LOSS){NULL, {NULL, NULL, NULL, NULL}}};
    return kit_formula(x, rows[c->p->loss.kind].formula[which], &c->p->loss.beta, TENSOR_F32, out, reads);
}

// What the terms of a loss are multiplied by.
KIT_TEXT_FN double kit_loss_factor(const kit_call_t *c, const kit_arg_t *a) {
    if (c->p->loss.reduction == TENSOR_MEAN) { return 1 / (double)a->numel; }
    if (c->p->loss.reduction == TENSOR_BATCHMEAN) { return 1 / (double)(a->ndim ? a->dims[0] : 1); }
    return 1;
}

// The loads of input, target, weight and pos_weight that the formula reads; a[0] is the input.
KIT_TEXT_FN void kit_loss_loads(kit_export_state_t *x, unsigned reads) {
    static const char letter[] = "xtq";
    for (const char *l = letter; *l; l++) {
        if (reads >> (*l - 'a') & 1) { kit_line(x, "const float %c = p%c[i];", *l, *l); }
    }
}

KIT_TEXT_FN int kit_loss_pointers(kit_export_state_t *x, const kit_arg_t *a, unsigned reads) {
    if (a[0].dtype != TENSOR_F32) {
        return kit_cannot(x, "%s: export_c.h knows losses of f32 alone", x->call.op);
    }
    if (reads >> ('x' - 'a') & 1) { kit_declare(x, "px", &a[0]); }
    if (reads >> ('t' - 'a') & 1) { kit_declare(x, "pt", &a[1]); }
    if (reads >> ('q' - 'a') & 1) {
        if (a[3].data) {
            kit_declare(x, "pq", &a[3]);
        } else {
            kit_line(x, "const float q = 1.0f;");
        }
    }
    if (a[2].data) { kit_declare(x, "w", &a[2]); }
    return 1;
}

KIT_TEXT_FN int kit_write_loss(kit_export_state_t *x, const kit_call_t *c) {
    char text[KIT_FORMULA];
    unsigned reads = 0;
    const kit_arg_t *a = c->arg;
    int whole = c->p->loss.reduction != TENSOR_NONE;
    if (!kit_loss_formula(x, c, 0, text, &reads) || !kit_loss_pointers(x, a, reads)) { return 0; }
    if (!a[3].data) { reads &= ~(1u << ('q' - 'a')); }
    if (c->id == NN_OP_LOSS_BCE) { kit_line(x, "// the input is in 0..1; here nobody checks it"); }
    kit_declare(x, "y", &a[4]);
    int cut = whole && a[0].numel > 4096;       // so many are summed at a time
    if (whole) {
        kit_need(x, KIT_FOLD);
        kit_line(x, "float s[K_LANES] = {0};");
    }
    if (cut) { kit_line(x, "double sum = 0;"); }
    kit_for(x, "i", a[0].numel);
    kit_loss_loads(x, reads);
    kit_line(x, "%s (%s)%s;", whole ? "s[i % K_LANES] +=" : "y[i] =", text, a[2].data ? " * w[i]" : "");
    if (cut) {
        kit_line(x, "if ((i + 1) %% 4096 == 0) {");
        kit_line(x, "    sum += (double)k_fold(s, 1);");
        kit_line(x, "    for (int l = 0; l < K_LANES; l++) { s[l] = 0; }");
        kit_line(x, "}");
    }
    kit_close(x, 1);
    if (whole) {
        kit_line(x, "*y = (float)((%s(double)k_fold(s, 1)) * %s);", cut ? "sum + " : "",
                 kit_number(x, kit_loss_factor(c, &a[0]), TENSOR_F64).text);
    }
    x->flops += 3.0 * (double)a[0].numel;
    return 1;
}

KIT_TEXT_FN int kit_write_loss_back(kit_export_state_t *x, const kit_call_t *c) {
    char text[2][KIT_FORMULA];
    unsigned reads = 0;
    const kit_arg_t *a = c->arg;
    int each = c->p->loss.reduction == TENSOR_NONE;
    for (int k = 0; k < 2; k++) {
        if (a[5 + k].numel && a[5 + k].data && !kit_loss_formula(x, c, 1 + k, text[k], &reads)) { return 0; }
    }
    if (!kit_loss_pointers(x, a + 1, reads)) { return 0; }
    if (!a[4].data) { reads &= ~(1u << ('q' - 'a')); }
    double factor = kit_loss_factor(c, &a[1]);
    kit_declare(x, "g", &a[0]);
    if (a[5].numel) { kit_declare(x, "dx", &a[5]); }
    if (a[6].numel) { kit_declare(x, "dt", &a[6]); }
    if (!each) {
        kit_line(x, "const float all = (float)((double)*g * %s);", kit_number(x, factor, TENSOR_F64).text);
    }
    kit_for(x, "i", a[1].numel);
    kit_loss_loads(x, reads);
    kit_line(x, "const float by = %s%s;", each ? "g[i]" : "all", a[3].data ? " * w[i]" : "");
    if (a[5].numel) { kit_line(x, "dx[i] = by * (%s);", text[0]); }
    if (a[6].numel) { kit_line(x, "dt[i] = by * (%s);", text[1]); }
    kit_close(x, 1);
    x->flops += 3.0 * (double)a[1].numel;
    return 1;
}

// Labels of logits [rows, classes].
KIT_TEXT_FN int kit_write_cross_entropy(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_cross_entropy_params_t *p = &c->p->cross_entropy;
    const kit_arg_t *a = c->arg;
    long long rows = a[0].dims[0], classes = a[0].dims[1];
    if (a[0].dtype != TENSOR_F32) {
        return kit_cannot(x, "cross_entropy: export_c.h knows losses of f32 alone");
    }
    if (p->label_smoothing > 0 && a[2].data) {
        return kit_cannot(x, "cross_entropy: export_c.h does not know label_smoothing beside weights");
    }
    kit_declare(x, "x", &a[0]);
    kit_declare(x, "label", &a[1]);
    if (a[2].data) { kit_declare(x, "w", &a[2]); }
    kit_declare(x, "y", &a[3]);
    kit_declare(x, "lse", &a[4]);
    kit_declare(x, "divisor", &a[5]);
    long long per = classes < 4096 ? 4096 / classes : 1;
    int cut = rows > per;               // so many rows are summed at a time
    kit_line(x, "double loss = 0, weights = 0;");
    if (cut) {
        kit_line(x, "for (int first = 0; first < %lld; first += %lld) {", rows, per);
        x->depth++;
        kit_line(x, "double part = 0, counted = 0;");
        kit_line(x, "for (int r = first; r < %lld && r < first + %lld; r++) {", rows, per);
        x->depth++;
    } else {
        kit_for(x, "r", rows);
    }
    kit_line(x, "const float *t = x + %lld * r;", classes);
    kit_line(x, "double l = 0;");
    if (!p->log_probs) {
        kit_need(x, KIT_EXP);
        kit_need(x, KIT_LOG64);
        kit_need(x, KIT_FOLD);
        kit_line(x, "float max = t[0], s[K_LANES] = {0};");
        kit_line(x, "for (int j = 1; j < %lld; j++) { max = max > t[j] ? max : t[j]; }", classes);
        kit_line(x, "for (int j = 0; j < %lld; j++) { s[j %% K_LANES] += k_exp(t[j] - max); }", classes);
        kit_line(x, "l = (double)max + k_log64((double)k_fold(s, 1));");
    }
    kit_line(x, "lse[r] = (float)l;");
    if (p->reduction == TENSOR_NONE) { kit_line(x, "y[r] = 0;"); }
    kit_line(x, "if (label[r] == %lld) { continue; }", (long long)p->ignore_index);
    kit_line(x, "if (label[r] < 0 || label[r] >= %lld) { return 1; }", classes);
    kit_line(x, "const double w1 = %s;", a[2].data ? "(double)w[label[r]]" : "1");
    kit_line(x, "double e = %s * w1 * (l - (double)t[label[r]]);",
             kit_number(x, 1 - p->label_smoothing, TENSOR_F64).text);
    if (p->label_smoothing > 0) {
        kit_need(x, KIT_LEAVES);
        kit_line(x, "e += %s * (l * %lld - k_leaves(t, %lld));",
                 kit_number(x, p->label_smoothing / (double)classes, TENSOR_F64).text, classes, classes);
    }
    if (p->reduction == TENSOR_NONE) { kit_line(x, "y[r] = (float)e;"); }
    kit_line(x, "%s += e;", cut ? "part" : "loss");
    kit_line(x, "%s += w1;", cut ? "counted" : "weights");
    kit_close(x, 1);
    if (cut) {
        kit_line(x, "loss += part;");
        kit_line(x, "weights += counted;");
        kit_close(x, 1);
    }
    kit_line(x, "*divisor = (float)weights;");
    if (p->reduction == TENSOR_MEAN) { kit_line(x, "*y = (float)(loss / weights);"); }
    if (p->reduction == TENSOR_SUM) { kit_line(x, "*y = (float)loss;"); }
    if (p->reduction == TENSOR_NONE) { kit_line(x, "(void)loss;"); }
    x->flops += 5.0 * (double)a[0].numel;
    return 1;
}

KIT_TEXT_FN int kit_write_cross_entropy_back(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_cross_entropy_params_t *p = &c->p->cross_entropy;
    const kit_arg_t *a = c->arg;
    long long rows = a[1].dims[0], classes = a[1].dims[1];
    if (p->label_smoothing > 0 && a[5].data) {
        return kit_cannot(x, "cross_entropy: export_c.h does not know label_smoothing beside weights");
    }
    kit_declare(x, "g", &a[0]);
    if (!p->log_probs) { kit_declare(x, "x", &a[1]); }
    kit_declare(x, "label", &a[2]);
    if (!p->log_probs) { kit_declare(x, "lse", &a[3]); }
    if (p->reduction == TENSOR_MEAN) { kit_declare(x, "divisor", &a[4]); }
    if (a[5].data) { kit_declare(x, "weight", &a[5]); }
    kit_declare(x, "out", &a[6]);
    kit_for(x, "r", rows);
    kit_line(x, "float *d = out + %lld * r;", classes);
    kit_line(x, "if (label[r] == %lld) {", (long long)p->ignore_index);
    kit_line(x, "    for (int j = 0; j < %lld; j++) { d[j] = 0; }", classes);
    kit_line(x, "    continue;");
    kit_line(x, "}");
    kit_line(x, "const double g1 = (double)g[%s]%s;", p->reduction == TENSOR_NONE ? "r" : "0",
             p->reduction == TENSOR_MEAN ? " / (double)*divisor" : "");
    kit_line(x, "const double w = g1%s%s;",
             p->label_smoothing > 0
                 ? kit_word(" * %s", kit_number(x, 1 - p->label_smoothing, TENSOR_F64).text).text
                 : "",
             a[5].data ? " * (double)weight[label[r]]" : "");
    if (p->log_probs) {
        kit_line(x, "for (int j = 0; j < %lld; j++) { d[j] = 0; }", classes);
    } else if (p->label_smoothing > 0) {
        kit_need(x, KIT_EXP);
        kit_line(x, "const double flat = g1 * %s / %lld;", kit_number(x, p->label_smoothing, TENSOR_F64).text,
                 classes);
        kit_line(x, "const float by = (float)(w + flat * %lld), less = (float)flat;", classes);
        kit_line(x, "for (int j = 0; j < %lld; j++) { d[j] = k_exp(x[%lld * r + j] - lse[r]) * by - less; }",
                 classes, classes);
    } else {
        kit_need(x, KIT_EXP);
        kit_line(x, "const float by = (float)w;");
        kit_line(x, "for (int j = 0; j < %lld; j++) { d[j] = k_exp(x[%lld * r + j] - lse[r]) * by; }",
                 classes, classes);
    }
    kit_line(x, "d[label[r]] = (float)((double)d[label[r]] - w);");
    kit_close(x, 1);
    x->flops += 4.0 * (double)a[1].numel;
    return 1;
}

// ---- dropout

KIT_TEXT_FN int kit_write_dropout(kit_export_state_t *x, const kit_call_t *c) {
    double p = c->p->dropout.p;
    unsigned long keep = (unsigned long)((1 - p) * 16777216.0 + 0.5);
    long long n = c->arg[0].numel, stream = x->call.random_stream;
    if (c->arg[0].dtype != TENSOR_F32) { return kit_cannot(x, "dropout: export_c.h knows f32 alone"); }
    kit_need(x, KIT_PHILOX);
    x->draws = 1;
    kit_declare(x, "x", &c->arg[0]);
    kit_declare(x, "y", &c->arg[1]);
    kit_line(x, "for (int i = 0; i < %lld; i += 4) {", n);
    kit_line(x, "    uint32_t word[4];");
    if (stream >= 0) {
        kit_line(x, "    k_philox(seed, stream + %lld, (uint32_t)i / 4, word);", stream);
    } else {
        kit_line(x, "    k_philox(%lluu, %lluu, (uint32_t)i / 4, word);", (unsigned long long)c->rng.seed,
                 (unsigned long long)c->rng.offset);
    }
    kit_line(x, "    for (int j = 0; j < 4 && i + j < %lld; j++) {", n);
    kit_line(x, "        y[i + j] = x[i + j] * (word[j] >> 8 < %luu ? %s : 0.0f);", keep,
             kit_number(x, p < 1 ? 1 / (1 - p) : 0, TENSOR_F32).text);
    kit_line(x, "    }");
    kit_line(x, "}");
    x->flops += (double)n;
    return 1;
}

// ---- clipping and optimizers

// The sum of the squares of all gradients in double, eight chains for each 16384 elements of a gradient.
KIT_TEXT_FN int kit_write_squares(kit_export_state_t *x, const kit_call_t *c) {
    kit_declare(x, "y", &c->arg[0]);
    kit_line(x, "double total = 0;");
    for (int i = 2; i < c->nout; i++) {
        if (c->arg[i].dtype != TENSOR_F32) {
            return kit_cannot(x, "clip_grad_norm: export_c.h knows f32 alone");
        }
        kit_line(x, "total += %s_squares(%s, %lld);", "k", kit_pointer(x, &c->arg[i]).text,
                 (long long)c->arg[i].numel);
        x->flops += 2.0 * (double)c->arg[i].numel;
    }
    kit_need(x, KIT_SQUARES);
    kit_line(x, "*y = total;");
    return 1;
}

KIT_TEXT_FN int kit_write_scale(kit_export_state_t *x, const kit_call_t *c) {
    if (c->arg[1].data) { return kit_cannot(x, "scale_grad: export_c.h does not know gradient scalers"); }
    kit_declare(x, "by", &c->arg[0]);
    for (int i = 2; i < c->nin + c->nout; i++) {
        if (c->arg[i].dtype != TENSOR_F32) { return kit_cannot(x, "scale_grad: export_c.h knows f32 alone"); }
        kit_line(x, "for (int i = 0; i < %lld && *by != 1; i++) { (%s)[i] *= (float)*by; }",
                 (long long)c->arg[i].numel, kit_pointer(x, &c->arg[i]).text);
        x->flops += (double)c->arg[i].numel;
    }
    return 1;
}

// The number of a group of an optimizer.   -> -1 if there are too many
KIT_TEXT_FN int kit_update(kit_export_state_t *x, const nn_update_t *u) {
    int i = 0;
    while (i < x->updates && x->update[i] != u) { i++; }
    if (i == 16) { return -1; }
    if (i == x->updates) { x->update[x->updates++] = u; }
    return i;
}

// How often the step of a graph steps the parameter that lies there.
KIT_TEXT_FN int64_t kit_steps_of(const kit_export_state_t *x, const void *data, int64_t calls) {
    int64_t n = 0;
    for (int64_t i = 0; i < calls; i++) {
        tensor_graph_call_t call = tensor_graph_call(x->graph, i);
        if (strcmp(call.kernel->row->name, "step") != 0) { continue; }
        for (int k = TENSOR_STEP_HEAD; k < call.inputs + call.outputs; k += TENSOR_STEP_EACH) {
            n += tensor_graph_operand(&call, k).data == data;
        }
    }
    return n;
}

// How often it steps each parameter.   -> -1 if they differ
KIT_TEXT_FN int64_t kit_step_count(const kit_export_state_t *x, int64_t calls) {
    int64_t each = -1;
    for (int64_t i = 0; i < calls; i++) {
        tensor_graph_call_t call = tensor_graph_call(x->graph, i);
        if (strcmp(call.kernel->row->name, "step") != 0) { continue; }
        for (int k = TENSOR_STEP_HEAD; k < call.inputs + call.outputs; k += TENSOR_STEP_EACH) {
            int64_t n = kit_steps_of(x, tensor_graph_operand(&call, k).data, calls);
            if (each < 0) { each = n; }
            if (n != each) { return -1; }
        }
    }
    return each;
}

// What becomes of x, g and the states at one element.
KIT_TEXT_FN int kit_write_update(kit_export_state_t *x, const nn_update_t *u, int states) {
    if (u->maximize) { kit_line(x, "g = -g;"); }
    if (u->decoupled) { kit_line(x, "w = w * shrink;"); }
    if (u->decay) { kit_line(x, "g = g + %s * w;", kit_number(x, u->weight_decay, TENSOR_F32).text); }
    if (u->formula == NN_STEP_sgd) {
        if (states > 0) {
            kit_line(x, "s0[i] = first ? g : s0[i] * %s + %s * g;",
                     kit_number(x, u->momentum, TENSOR_F32).text, kit_number(x, u->rest, TENSOR_F32).text);
            kit_line(x, u->nesterov ? "g = g + %s * s0[i];" : "g = s0[i];",
                     kit_number(x, u->momentum, TENSOR_F32).text);
        }
        kit_line(x, "p[i] = w + rate * g;");
        return 1;
    }
    if (u->formula != NN_STEP_adam) {
        return kit_cannot(x, "step: export_c.h knows SGD, Adam and AdamW alone");
    }
    kit_need(x, KIT_SQRT);
    if (u->lerp_back) {
        kit_line(x, "s0[i] = g - (g - s0[i]) * %s;", kit_number(x, u->beta1, TENSOR_F32).text);
    } else {
        kit_line(x, "s0[i] = s0[i] + (g - s0[i]) * %s;", kit_number(x, u->rest1, TENSOR_F32).text);
    }
    kit_line(x, "s1[i] = s1[i] * %s + %s * g * g;", kit_number(x, u->beta2, TENSOR_F32).text,
             kit_number(x, u->rest2, TENSOR_F32).text);
    if (states > 2) {
        kit_need(x, KIT_LARGER);
        kit_line(x, "s2[i] = k_max(s2[i], s1[i]);");
    }
    kit_line(x, "p[i] = w + size * s0[i] / (k_sqrt(s%d[i]) * root + %s);", states > 2 ? 2 : 1,
             kit_number(x, u->eps, TENSOR_F32).text);
    return 1;
}

KIT_TEXT_FN int kit_write_step(kit_export_state_t *x, const kit_call_t *c) {
    const nn_update_t *u = (const nn_update_t *)c->arg[TENSOR_STEP_NUMBERS].data;
    const void *skip = c->arg[TENSOR_STEP_SKIP].data;
    if (skip) { return kit_cannot(x, "step: export_c.h does not know gradient scalers"); }
    int group = kit_update(x, u);
    if (group < 0) { return kit_cannot(x, "step: export_c.h knows at most 16 groups"); }
    if (u->by_rows) { return kit_cannot(x, "step: export_c.h does not know sparse gradients"); }
    const long long now = (long long)(u->at - x->update[0]->at);
    kit_line(x, "const double lr = rates[%d];", group);
    if (u->formula == NN_STEP_adam) {
        kit_need(x, KIT_POWER);
        kit_need(x, KIT_SQRT64);
        kit_line(x, "const float size = (float)(-lr / (1 - k_power(%s, steps + %lld)));",
                 kit_number(x, u->beta1, TENSOR_F64).text, now);
        kit_line(x, "const float root = (float)(1 / k_sqrt64(1 - k_power(%s, steps + %lld)));",
                 kit_number(x, u->beta2, TENSOR_F64).text, now);
    } else {
        kit_line(x, "const float rate = (float)-lr;");
    }
    if (u->decoupled) {
        kit_line(x, "const float shrink = (float)(1 - lr * %s);",
                 kit_number(x, u->weight_decay, TENSOR_F64).text);
    }
    for (int i = TENSOR_STEP_HEAD; i < c->nin + c->nout; i += TENSOR_STEP_EACH) {
        const kit_arg_t *a = &c->arg[i], *rows = &a[TENSOR_STEP_ROWS];
        int states = 0;
        if (rows->dtype == TENSOR_I64 && rows->data) {
            return kit_cannot(x, "step: export_c.h does not know sparse gradients");
        }
        if (a[0].dtype != TENSOR_F32) { return kit_cannot(x, "step: export_c.h knows f32 alone"); }
        kit_line(x, "{");
        x->depth++;
        kit_declare(x, "p", &a[TENSOR_STEP_PARAMETER]);
        kit_declare(x, "grad", &a[TENSOR_STEP_GRADIENT]);
        for (int k = 0; k < 3; k++) {
            if (!a[TENSOR_STEP_STATES + k].data) { continue; }
            kit_declare(x, kit_word("s%d", k).text, &a[TENSOR_STEP_STATES + k]);
            states = k + 1;
        }
        int early = u->formula == NN_STEP_sgd && states > 0;
        if (early) { kit_line(x, "const int first = steps + %lld == 1;", now); }
        kit_for(x, "i", a[0].numel);
        kit_line(x, "float w = p[i], g = grad[i];");
        if (!kit_write_update(x, u, states)) { return 0; }
        kit_close(x, 2);
        x->flops += (u->formula == NN_STEP_adam ? 12.0 : 2.0 + 3.0 * states) * (double)a[0].numel;
    }
    return 1;
}

#endif

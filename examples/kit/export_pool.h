// export_pool.h - the ops that export_c.h writes: pools, batch and group norm
//
// Included by the implementation of export_c.h; copy it with that. Images are [N, C, H, W] or [N, C, L],
// contiguous. The order of sums is that of the library's kernels.
#ifndef KIT_EXPORT_POOL_H
#define KIT_EXPORT_POOL_H

#include "export_ops.h"

// ---- pools

// The part of the image that window o of a pool covers, in y0 and y1 (or x0, x1): letter is 'y' or 'x'.
// counts: n0 (or n1) becomes how many elements of it a mean counts.   -> how many at most
KIT_TEXT_FN long long kit_window(kit_export_state_t *x, const tensor_window_params_t *g, int d, char letter,
                                 int counts) {
    long long in = g->in[d], out = g->out[d], step = g->stride[d],
              size = (g->kernel[d] - 1) * g->dilation[d] + 1;
    long long pad = g->pad[d], most = size;
    char i = letter == 'y' ? 'i' : 'j';
    if (g->mode == NN_POOL_ADAPTIVE) {
        kit_line(x, "const int %c0 = %c * %lld / %lld, %c1 = ((%c + 1) * %lld + %lld) / %lld;", letter, i, in,
                 out, letter, i, in, out - 1, out);
        if (counts) {
            kit_line(x, "const int n%c = %c1 - %c0;", letter, letter, letter);
        }
        most = (in + out - 1) / out + (in % out != 0);
        return most < in ? most : in;
    }
    if (!pad && (out - 1) * step + size <= in) {
        kit_line(x, "const int %c0 = %lld * %c, %c1 = %c0 + %lld;", letter, step, i, letter, letter, size);
        if (counts) {
            kit_line(x, "const int n%c = %lld;", letter, size);
        }
        return most;
    }
    kit_line(x, "int %c0 = %lld * %c - %lld, %c1 = %c0 + %lld;", letter, step, i, pad, letter, letter, size);
    kit_line(x, "if (%c1 > %lld) { %c1 = %lld; }", letter, in + pad, letter, in + pad);
    if (counts && g->mode == NN_POOL_COUNT_PAD) {
        kit_line(x, "const int n%c = %c1 - %c0;", letter, letter, letter);
    }
    kit_line(x, "while (%c0 < 0) { %c0 += %lld; }", letter, letter, (long long)g->dilation[d]);
    kit_line(x, "if (%c1 > %lld) { %c1 = %lld; }", letter, in, letter, in);
    if (counts && g->mode != NN_POOL_COUNT_PAD) {
        kit_line(x, "const int n%c = %c1 - %c0;", letter, letter, letter);
    }
    return most;
}

// Loops over planes and outputs, with pointers p and q into x and y.   -> 0 if the pool cannot be written
KIT_TEXT_FN int kit_pool(kit_export_state_t *x, const kit_call_t *c, const kit_arg_t *in,
                         const kit_arg_t *out) {
    const tensor_window_params_t *g = &c->p->window;
    long long plane = g->out[1] * g->out[2], planes = plane ? out->numel / plane : 0;
    int plain = in->dtype == TENSOR_F32 && kit_contiguous(in) && kit_contiguous(out);
    if (g->in[0] != 1 || g->out[0] != 1 || !plain) {
        return kit_cannot(x, "%s: export_c.h knows planes of contiguous f32 alone", c->name);
    }
    kit_declare(x, "x", in);
    kit_declare(x, "y", out);
    if (in->changes) {
        kit_line(x, "for (int i = 0; i < %lld; i++) { x[i] = 0; }", (long long)in->numel);
    }
    kit_for(x, "n", planes);
    kit_line(x, "%sfloat *p = x + %lld * n;", in->changes ? "" : "const ",
             (long long)(g->in[1] * g->in[2]));
    kit_line(x, "%sfloat *q = y + %lld * n;", out->changes ? "" : "const ", plane);
    return 1;
}

// The largest of a window, the first of equal ones, and its place if anyone reads that.
KIT_TEXT_FN int kit_write_max_pool(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_window_params_t *g = &c->p->window;
    const kit_place_t *place = kit_place(x, c->arg[2].memory);
    int kept = place && place->uses > 1;
    if (kept) {
        kit_declare(x, "place", &c->arg[2]);
    }
    if (!kit_pool(x, c, &c->arg[0], &c->arg[1])) {
        return 0;
    }
    long long ow = g->out[2], plane = g->out[1] * ow;
    kit_for(x, "i", g->out[1]);
    int tall = g->in[1] > 1 || g->pad[1];
    if (tall) {
        (void)kit_window(x, g, 1, 'y', 0);
    }
    kit_for(x, "j", ow);
    (void)kit_window(x, g, 2, 'x', 0);
    kit_need(x, KIT_INF);
    kit_line(x, "float best = -K_INF;");
    if (kept) {
        kit_line(x, "int at = -1;");
    }
    if (tall) {
        kit_line(x, "for (int u = y0; u < y1; u += %lld) {", (long long)g->dilation[1]);
        x->depth++;
    }
    kit_line(x, "for (int v = x0; v < x1; v += %lld) {", (long long)g->dilation[2]);
    x->depth++;
    kit_line(x, tall ? "const float f = p[%lld * u + v];" : "const float f = p[v];", (long long)g->in[2]);
    if (kept) {
        kit_line(x, "if (f > best || f != f || at < 0) {");
        kit_line(x, "    best = f;");
        kit_line(x, tall ? "    at = %lld * u + v;" : "    at = v;", (long long)g->in[2]);
        kit_line(x, "}");
    } else {
        kit_line(x, "best = f > best || f != f ? f : best;");
    }
    kit_close(x, 1 + tall);
    kit_line(x, "q[%lld * i + j] = best;", ow);
    if (kept) {
        kit_line(x, "place[%lld * n + %lld * i + j] = at < 0 ? 0 : at;", plane, ow);
    }
    kit_close(x, 3);
    x->flops += (double)c->arg[1].numel * (double)(g->kernel[1] * g->kernel[2]);
    return 1;
}

KIT_TEXT_FN int kit_write_max_pool_back(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_window_params_t *g = &c->p->window;
    long long plane = g->out[1] * g->out[2];
    kit_declare(x, "place", &c->arg[1]);
    if (!kit_pool(x, c, &c->arg[2], &c->arg[0])) {
        return 0;
    }
    kit_line(x, "for (int i = 0; i < %lld; i++) { p[place[%lld * n + i]] += q[i]; }", plane, plane);
    kit_close(x, 1);
    x->flops += (double)c->arg[0].numel;
    return 1;
}

// Means over windows, adaptive ones too, and their gradient.
KIT_TEXT_FN int kit_write_avg_pool(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_window_params_t *g = &c->p->window;
    int back = c->id == NN_OP_AVG_POOL_BACKWARD;
    if (!kit_pool(x, c, &c->arg[back], &c->arg[!back])) {
        return 0;
    }
    int exact = !g->divisor;
    kit_for(x, "i", g->out[1]);
    long long high = kit_window(x, g, 1, 'y', exact);
    kit_for(x, "j", g->out[2]);
    long long broad = kit_window(x, g, 2, 'x', exact), ow = g->out[2], w = g->in[2];
    kit_word_t by =
        exact ? kit_word("(float)(ny * nx > 0 ? ny * nx : 1)") : kit_word("%lld.0f", (long long)g->divisor);
    if (back) {
        kit_line(x, "const float f = q[%lld * i + j] / %s;", ow, by.text);
    } else if (high * broad > 32) { // a large window is summed by rows
        int even = g->in[1] % g->out[1] == 0 && g->in[2] % g->out[2] == 0;
        int alike = exact && (g->mode != NN_POOL_ADAPTIVE || even);
        if (!alike || g->pad[1] || g->pad[2]) {
            x->inexact = 1;
        }
        kit_need(x, KIT_LEAVES);
        kit_line(x, "double s = 0;");
        kit_line(x, "for (int u = y0; u < y1; u++) { s += k_leaves(p + %lld * u + x0, x1 - x0); }", w);
    } else {
        kit_line(x, "float s = 0;");
    }
    if (back || high * broad <= 32) {
        kit_line(x, "for (int u = y0; u < y1; u++) {");
        x->depth++;
        kit_line(x,
                 back ? "for (int v = x0; v < x1; v++) { p[%lld * u + v] += f; }"
                      : "for (int v = x0; v < x1; v++) { s += p[%lld * u + v]; }",
                 w);
        kit_close(x, 1);
    }
    if (!back) {
        kit_line(x, "q[%lld * i + j] = (float)s / %s;", ow, by.text);
    }
    kit_close(x, 3);
    x->flops += (double)c->arg[!back].numel * (double)(high * broad);
    return 1;
}

// ---- batch and group norm: x as [items, channels, plane]

// The offset of plane j of statistic r.
KIT_TEXT_FN kit_word_t kit_plane(const tensor_group_norm_params_t *p) {
    long long n = p->plane, c = p->channels;
    return p->groups ? kit_word("%lld * r + %lld * j", c / (long long)p->groups * n, n)
                     : kit_word("%lld * j + %lld * r", c * n, n);
}

KIT_TEXT_FN int kit_write_plane_norm(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_group_norm_params_t *p = &c->p->group_norm;
    long long groups = p->groups, rows = groups ? groups * p->items : p->channels;
    long long planes = groups ? p->channels / groups : p->items, n = p->plane;
    kit_word_t at = kit_plane(p), channel = kit_word("r");
    if (groups) {
        channel = kit_word("%lld * (r %% %lld) + j", planes, groups);
    }
    if (!kit_plain(x, c, 7, -1)) {
        return 0;
    }
    static const char *const name[] = {"x", "w", "b", "y", "mean", "rstd", "var"};
    for (int k = 0; k < 7; k++) {
        if (c->arg[k].data) {
            kit_declare(x, name[k], &c->arg[k]);
        }
    }
    kit_need(x, KIT_LEAVES);
    kit_need(x, KIT_DEVIATION);
    kit_need(x, KIT_SQRT64);
    kit_for(x, "r", rows);
    kit_line(x, "double m = 0, d = 0, scale;");
    kit_line(x, "for (int j = 0; j < %lld; j++) { m += k_leaves(x + %s, %lld); }", planes, at.text, n);
    kit_line(x, "m /= %lld.0;", planes * n);
    kit_line(x, "for (int j = %lld; j >= 0; j--) { d += k_deviation(0, x + %s, (float)m, 0, %lld); }",
             planes - 1, at.text, n);
    kit_line(x, "d /= %lld.0;", planes * n);
    kit_line(x, "mean[r] = (float)m;");
    kit_line(x, "var[r] = (float)d;");
    kit_line(x, "scale = 1 / k_sqrt64(d + %s);", kit_number(x, p->eps, TENSOR_F64).text);
    kit_line(x, "rstd[r] = (float)scale;");
    kit_for(x, "j", planes);
    kit_line(x,
             c->arg[1].data ? "const float f = (float)(scale * (double)w[%s]), *from = x + %s;"
                            : "const float f = (float)scale, *from = x + %s;",
             c->arg[1].data ? channel.text : at.text, at.text);
    kit_line(x, "float *to = y + %s;", at.text);
    if (c->arg[2].data) {
        kit_line(x, "const float shift = b[%s];", channel.text);
    }
    kit_line(x, "for (int i = 0; i < %lld; i++) { to[i] = (from[i] - (float)m) * f + %s; }", n,
             c->arg[2].data ? "shift" : "0.0f");
    kit_close(x, 2);
    x->flops += 7.0 * (double)c->arg[0].numel;
    return 1;
}

// dx = rstd (w g - mean of w g - xhat * mean of w g xhat)
KIT_TEXT_FN int kit_write_plane_norm_back(kit_export_state_t *x, const kit_call_t *c) {
    const tensor_group_norm_params_t *p = &c->p->group_norm;
    long long groups = p->groups, rows = groups ? groups * p->items : p->channels, channels = p->channels;
    long long planes = groups ? channels / groups : p->items, n = p->plane;
    kit_word_t at = kit_plane(p), channel = kit_word("r");
    int weights = c->arg[6].numel > 0 && c->arg[6].data;
    if (groups) {
        channel = kit_word("%lld * (r %% %lld) + j", planes, groups);
    }
    if (!kit_plain(x, c, 8, -1)) {
        return 0;
    }
    static const char *const name[] = {"grad", "x", "mean", "rstd", "w", "out", "dw", "db"};
    for (int k = 0; k < (weights ? 8 : 6); k++) {
        if (c->arg[k].data) {
            kit_declare(x, name[k], &c->arg[k]);
        }
    }
    kit_need(x, KIT_DEVIATION);
    if (weights) {
        x->wide = 2 * channels > x->wide ? 2 * channels : x->wide;
        kit_line(x, "for (int k = 0; k < %lld; k++) { wide[k] = 0; }", 2 * channels);
    }
    kit_for(x, "r", rows);
    kit_line(x, "const double m = (double)mean[r], d = (double)rstd[r];");
    kit_line(x, "double s = 0, t = 0;");
    kit_for(x, "j", planes);
    kit_line(x, "double total, f = k_deviation(grad + %s, x + %s, (float)m, &total, %lld) * d;", at.text,
             at.text, n);
    kit_word_t by = c->arg[4].data ? kit_word("(double)w[%.40s] * ", channel.text) : kit_word("%s", "");
    kit_line(x, "s += %stotal;", by.text);
    kit_line(x, "t += %sf;", by.text);
    if (weights) {
        kit_line(x, "wide[%s] += f;", channel.text);
        kit_line(x, "wide[%lld + %s] += total;", channels, channel.text);
    }
    kit_close(x, 1);
    kit_for(x, "j", planes);
    kit_line(
        x, "const float a = (float)(d%s), b = (float)(-d * d * t / %lld.0), e = (float)(-d * s / %lld.0);",
        c->arg[4].data ? kit_word(" * (double)w[%.40s]", channel.text).text : "", planes * n, planes * n);
    kit_line(x, "const float *g = grad + %s, *from = x + %s;", at.text, at.text);
    kit_line(x, "float *to = out + %s;", at.text);
    kit_line(x, "for (int i = 0; i < %lld; i++) { to[i] = g[i] * a + ((from[i] - (float)m) * b + e); }", n);
    kit_close(x, 2);
    if (weights) {
        kit_for(x, "k", channels);
        kit_line(x, "dw[k] = (float)wide[k];");
        kit_line(x, "db[k] = (float)wide[%lld + k];", channels);
        kit_close(x, 1);
    }
    x->flops += 11.0 * (double)c->arg[0].numel;
    return 1;
}

#endif

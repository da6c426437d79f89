// export_image.h - the ops that export_c.h writes: convolutions and their gradients
//
// Included by the implementation of export_c.h; copy it with that. Images are [N, C, H, W] or [N, C, L],
// contiguous. The order of sums is that of the library's kernels: see kit_conv_way.
#ifndef KIT_EXPORT_IMAGE_H
#define KIT_EXPORT_IMAGE_H

#include "export_ops.h"

// ---- convolution

// A convolution, its gradient by the image (flipped: x is then the gradient that comes in) or by the weight.
typedef struct kit_conv_t {
    long long images, groups, ci, co;         // channels of a group, read and written
    long long h, w, oh, ow, kh, kw;           // planes that are read and written, the kernel
    long long dh, dw, ph, pw, sh, sw, uh, uw; // uh, uw: distance of the elements that are read
    long long lines, pitch;                   // of a plane with its padding
    int flipped, padded;
    // Blocks of pixels of the library's products: rows and columns of a block, blocks of a row.
    long long rows, wide, parts;
    long long high, items, tiles; // KIT_GATHERED: rows of a block, images of one, vectors of outputs
} kit_conv_t;

// -> 0 if the convolution cannot be written
KIT_TEXT_FN int kit_conv(kit_export_state_t *x, const kit_call_t *c, kit_conv_t *v) {
    const tensor_window_params_t *g = &c->p->window;
    int id = c->id, weight = id == NN_OP_CONV_WEIGHT, flipped = !weight && id >= NN_OP_CONV_TRANSPOSE1D;
    const kit_arg_t *image = &c->arg[flipped ? 3 : weight], *w = &c->arg[weight ? 2 : 1];
    memset((void *)v, 0, sizeof *v);
    if (!kit_plain(x, c, weight ? 3 : 4, -1)) { return 0; }
    if (g->kernel[0] != 1 || g->in[0] != 1 || g->out[0] != 1 || g->pad[0] != 0) {
        return kit_cannot(x, "%s: export_c.h does not know volumes", c->name);
    }
    v->flipped = flipped;
    v->images = image->dims[0];
    v->groups = g->groups;
    v->kh = g->kernel[1];
    v->kw = g->kernel[2];
    v->dh = g->dilation[1];
    v->dw = g->dilation[2];
    v->ci = flipped ? w->dims[0] / g->groups : w->dims[1];
    v->co = flipped ? w->dims[1] : w->dims[0] / g->groups;
    v->h = flipped ? g->out[1] : g->in[1];
    v->w = flipped ? g->out[2] : g->in[2];
    v->oh = flipped ? g->in[1] : g->out[1];
    v->ow = flipped ? g->in[2] : g->out[2];
    v->sh = flipped ? 1 : g->stride[1];
    v->sw = flipped ? 1 : g->stride[2];
    v->uh = flipped ? g->stride[1] : 1;
    v->uw = flipped ? g->stride[2] : 1;
    v->ph = flipped ? v->dh * (v->kh - 1) - g->pad[1] : g->pad[1];
    v->pw = flipped ? v->dw * (v->kw - 1) - g->pad[2] : g->pad[2];
    v->lines = (v->oh - 1) * v->sh + (v->kh - 1) * v->dh + 1;
    v->pitch = (v->ow - 1) * v->sw + (v->kw - 1) * v->dw + 1;
    v->padded = v->ph || v->pw || v->uh > 1 || v->uw > 1 || v->lines > v->h || v->pitch > v->w;
    long long high = v->ph + (v->h - 1) * v->uh + 1, broad = v->pw + (v->w - 1) * v->uw + 1;
    v->lines = v->lines > high ? v->lines : high;
    v->pitch = v->pitch > broad ? v->pitch : broad;

    long long taps = v->kh * v->kw, cg = flipped ? v->co : v->ci, step = cg, all = g->out[1], least;
    if (flipped) { step = 256 / taps < cg ? 256 / taps : cg; }
    long long m = (step > 1 ? step : 1) * taps, most = 262144 / (m * 4) > 512 ? 262144 / (m * 4) : 512;
    int as_is = taps == 1 && g->stride[1] == 1 && g->stride[2] == 1 && !g->pad[1] && !g->pad[2];
    v->parts = (g->out[2] + most - 1) / most;
    v->wide = (g->out[2] + v->parts - 1) / v->parts;
    v->rows = (as_is ? 524288 : 262144) / (m * v->wide * 4);
    least = (64 + v->wide - 1) / v->wide;
    v->rows = v->rows > least ? v->rows : least;
    v->rows = v->rows < all ? v->rows : all;
    if (v->parts > 1) { v->rows = 1; }
    long long blocks = (all + v->rows - 1) / v->rows;
    v->rows = (all + blocks - 1) / blocks;
    x->flops += 2.0 * (double)v->images * (double)v->groups * (double)(v->ci * v->co) * (double)taps *
                (double)(g->out[1] * g->out[2]);
    return 1;
}

// How the library sums: a product of matrices of columns; each output in one chain that begins with the bias,
// pixels or outputs in vectors.
typedef enum kit_way_t { KIT_COLUMNS, KIT_PIXELS, KIT_GATHERED } kit_way_t;

// The way of a convolution, or of its gradient by the weight (sums).
KIT_TEXT_FN kit_way_t kit_conv_way(const kit_export_state_t *x, kit_conv_t *v, int sums) {
    long long lanes = x->lanes, n = v->ci * v->kh * v->kw;
    int one = v->ci == 1 && v->co == 1;
    if (v->uh * v->uw > (one ? 4 : 1)) { return KIT_COLUMNS; }
    if (v->ph < 0 || v->pw < 0 || v->kh * v->kw == 1) { return KIT_COLUMNS; }
    int full = v->ow * 100 / (kit_up(v->ow, lanes) * lanes) >= 60;  // the vectors of a line
    if ((v->co == 1 && n > 64) || v->sw != 1 || (sums && v->ow < 24)) { full = 0; }
    if (one && v->sw < 3) { full = 1; }
    int gathered = lanes > 1 && v->co * 4 >= kit_up(v->co, lanes) * lanes * 3 && n >= 64 &&
                   (sums || v->ow >= 4) && (v->co > lanes || !full);
    if (!gathered) { return full ? KIT_PIXELS : KIT_COLUMNS; }
    long long pitch = v->pw + v->w * v->uw, span = (v->ow - 1) * v->sw + (v->kw - 1) * v->dw + 1;
    pitch = pitch > span ? pitch : span;
    long long outputs = 131072 / (v->ow * 2 * lanes * 4);   // rows of them
    v->high = (262144 / (v->ci * pitch * 4) - (v->kh - 1) * v->dh - 1) / v->sh + 1;
    v->high = v->high < outputs ? v->high : outputs;
    v->high = v->high > 4 ? v->high : 4;
    v->high = v->high < v->oh ? v->high : v->oh;
    v->high = kit_up(v->oh, kit_up(v->oh, v->high));
    v->tiles = kit_up(v->co, 2 * lanes);
    v->items = 1;
    if (v->high == v->oh) {
        long long image = v->ci * ((v->oh - 1) * v->sh + (v->kh - 1) * v->dh + 1) * pitch;
        long long held = 131072 / (v->oh * v->ow * 2 * lanes * 4), most = kit_up(v->images, 8);
        v->items = 524288 / (image * 4);
        v->items = v->items < held ? v->items : held;
        v->items = v->items < most ? v->items : most;
        v->items = v->items > 1 ? v->items : 1;
    }
    return KIT_GATHERED;
}

// The chain of products whose blocks of pixels are summed alike; 0 = they are not.
KIT_TEXT_FN int64_t kit_conv_chain(const kit_conv_t *v, long long oh, long long ow, int64_t m, int64_t k,
                                   const int64_t *strides) {
    int64_t chain = 0;
    for (long long r = 0; r < oh; r += v->rows) {
        for (long long c = 0; c < ow; c += v->wide) {
            long long high = oh - r < v->rows ? oh - r : v->rows, broad = ow - c < v->wide ? ow - c : v->wide;
            int64_t one = kit_chain(1, m, high * broad, k, strides);
            if (!one || (chain && one != chain)) { return 0; }
            chain = one;
        }
    }
    return chain;
}

// in = channels of image n and group q: with zeros around them, in row, or as they are.
KIT_TEXT_FN void kit_conv_image(kit_export_state_t *x, const kit_conv_t *v, const char *from, long long ci) {
    if (!v->padded) {
        kit_line(x, "const float *in = %s;", from);
        return;
    }
    int64_t room = ci * v->lines * v->pitch + 8; // kit_conv_lines may read beyond
    x->row = room > x->row ? room : x->row;
    kit_line(x, "const float *plane = %s, *in = row;", from);
    kit_for(x, "c", ci);
    kit_for(x, "i", v->h);
    kit_line(x, "float *line = row + %lld * c + %lld * i + %lld;", v->lines * v->pitch, v->uh * v->pitch,
             v->ph * v->pitch + v->pw);
    kit_line(x, "for (int j = 0; j < %lld; j++) { line[%s] = plane[%lld * c + %lld * i + j]; }", v->w,
             v->uw > 1 ? kit_word("%lld * j", v->uw).text : "j", v->h * v->w, v->w);
    kit_close(x, 2);
}

KIT_TEXT_FN void kit_conv_zeros(kit_export_state_t *x, const kit_conv_t *v, long long ci) {
    if (!v->padded) { return; }
    kit_line(x, "for (int i = 0; i < %lld; i++) { row[i] = 0; }", ci * v->lines * v->pitch);
}

// Three sums, a line of the kernel each: the scalar kernel of one output from nine elements.
KIT_TEXT_FN void kit_conv_nine(kit_export_state_t *x, const kit_conv_t *v, int bias) {
    static const char name[] = "abc";
    kit_for(x, "o", v->co);
    kit_line(x, "const float *f = k + 9 * o%s;", v->flipped ? " + 8" : "");
    kit_for(x, "i", v->oh);
    kit_for(x, "j", v->ow);
    kit_line(x, "const float *p = in + %lld * i + %lld * j;", v->sh * v->pitch, v->sw);
    kit_line(x, "float a = %s, b = 0, c = 0;", bias ? "bias[o]" : "0");
    kit_for(x, "t", 3);
    for (int l = 0; l < 3; l++) {
        kit_word_t tap = v->flipped ? kit_word("f[-t - %d]", 3 * l) : kit_word("f[t + %d]", 3 * l);
        kit_line(x, "%c += %s * p[%lld + %lld * t];", name[l], tap.text, l * v->dh * v->pitch, v->dw);
    }
    kit_close(x, 1);
    kit_line(x, "to[%lld * o + %lld * i + j] = a + b + c;", v->oh * v->ow, v->ow);
    kit_close(x, 3);
}

// Behind the last tap of a line goes to the next line of the kernel, or to the next channel. With an index in
// place of p, gcc does not keep the sums in registers.
KIT_TEXT_FN void kit_conv_turn(kit_export_state_t *x, const kit_conv_t *v) {
    long long line = v->dh * v->pitch, channel = v->lines * v->pitch, high = v->kh > 1;
    const char *indent = high ? "        " : "    ";
    kit_line(x, "if (t == %lld) {", v->kw);
    kit_line(x, "    t = 0;");
    if (high) {
        kit_line(x, "    p += %lld;", line - v->dw * v->kw);
        kit_line(x, "    if (++u == %lld) {", v->kh);
        kit_line(x, "        u = 0;");
    }
    kit_line(x, "%sp += %lld;", indent, channel - (high ? line * v->kh : v->dw * v->kw));
    if (v->flipped) { kit_line(x, "%stap += %lld;", indent, (v->co + 1) * v->kh * v->kw); }
    if (high) { kit_line(x, "    }"); }
    kit_line(x, "}");
}

// Sums over channels and taps that the library makes in parts: of `chain` terms each, added to the bias, or
// (chain 0) so many equal ones, of which the first begins with it. Lines of some outputs at a time.
KIT_TEXT_FN void kit_conv_parts(kit_export_state_t *x, const kit_conv_t *v, int bias, int64_t chain,
                                long long parts) {
    long long taps = v->kh * v->kw, n = v->ci * taps, plane = v->oh * v->ow, each = v->flipped ? taps : n;
    long long wide = v->padded && v->sw == 1 ? (v->ow + 7) / 8 * 8 : v->ow;     // as in kit_conv_lines
    int some = kit_together(v->co, 4);
    const char *start = bias ? "bias[o + r]" : "0";
    if (chain) { parts = kit_up(n, chain); }
    kit_line(x, "for (int o = 0; o < %lld; o += %d) {", v->co, some);
    x->depth++;
    kit_for(x, "i", v->oh);
    kit_line(x, "float *out = to + %lld * o + %lld * i;", plane, v->ow);
    kit_line(x, "const float *p = in + %lld * i;", v->sh * v->pitch);
    kit_line(x, "int tap = %lld * o%s, t = 0%s;", each,
             v->flipped ? kit_word(" + %lld", taps - 1).text : "", v->kh > 1 ? ", u = 0" : "");
    kit_for(x, "part", parts);
    if (chain) {
        kit_line(x, "const int first = %lld * part, last = first + %lld < %lld ? first + %lld : %lld;",
                 (long long)chain, (long long)chain, n, (long long)chain, n);
    } else {
        kit_line(x, "const int first = %lld * part / %lld;", n, parts);
        kit_line(x, "const int last = %lld * (part + 1) / %lld;", n, parts);
    }
    kit_line(x, "float s[%d][%lld];", some, wide);
    kit_for(x, "r", some);
    kit_line(x, "for (int j = 0; j < %lld; j++) { s[r][j] = %s; }", wide,
             chain ? "0" : kit_word("part ? 0 : %s", start).text);
    kit_close(x, 1);
    kit_line(x, "for (int q = first; q < last; q++, t++) {");
    x->depth++;
    kit_conv_turn(x, v);
    kit_for(x, "r", some);
    kit_line(x, "for (int j = 0; j < %lld; j++) { s[r][j] += k[tap + %lld * r] * p[%s]; }", wide, each,
             v->sw > 1 ? kit_word("%lld * j", v->sw).text : "j");
    kit_close(x, 1);
    kit_line(x, v->flipped ? "tap--;" : "tap++;");
    kit_line(x, "p += %lld;", v->dw);
    kit_close(x, 1);
    kit_for(x, "r", some);
    kit_line(x, "float *line = out + %lld * r;", plane);
    kit_line(x, "for (int j = 0; j < %lld; j++) { line[j] = %s; }", v->ow,
             chain ? kit_word("(part ? line[j] : %s) + s[r][j]", start).text
                   : "part ? line[j] + s[r][j] : s[r][j]");
    kit_close(x, 4);
}

// Lines of outputs, some at a time, each a sum over channels and taps. start: it begins with the bias.
KIT_TEXT_FN void kit_conv_lines(kit_export_state_t *x, const kit_conv_t *v, int start, int bias,
                                const char *scale) {
    long long taps = v->kh * v->kw, n = v->ci * taps, plane = v->oh * v->ow, each = v->flipped ? taps : n;
    int some = kit_together(v->co, 4), unrolled = v->kw <= 8, way = v->flipped ? -1 : 1;
    const char *cast = scale ? "(float)" : "", *from = bias ? "bias[o + r]" : "0";

    // Lines of a copy may be longer: what is beyond the output is not kept.
    long long wide = v->padded && v->sw == 1 ? (v->ow + 7) / 8 * 8 : v->ow;
    kit_line(x, "for (int o = 0; o < %lld; o += %d) {", v->co, some);
    x->depth++;
    kit_for(x, "i", v->oh);
    kit_line(x, "float s[%d][%lld];", some, wide);
    kit_for(x, "r", some);
    kit_line(x, "for (int j = 0; j < %lld; j++) { s[r][j] = %s; }", wide, start ? from : "0");
    kit_close(x, 1);
    kit_for(x, "c", v->ci);
    kit_for(x, "y", v->kh);
    kit_line(x, "const float *p = in + %lld * c + %lld * i + %lld * y;", v->lines * v->pitch,
             v->sh * v->pitch, v->dh * v->pitch);
    if (v->flipped) { // the last tap of the kernel first
        kit_line(x, "const float *taps = k + %lld * o - %lld * y + %lld * c + %lld;", each, v->kw,
                 v->co * taps, taps - 1);
    } else {
        kit_line(x, "const %s *taps = k + %lld * o + %lld * y + %lld * c;", scale ? "int8_t" : "float", each,
                 v->kw, taps);
    }
    kit_for(x, "r", some);
    kit_line(x, "const %s *f = taps + %lld * r;", scale ? "int8_t" : "float", each);
    if (!unrolled) { kit_for(x, "t", v->kw); }
    kit_for(x, "j", wide);
    kit_line(x, "s[r][j] = s[r][j]");
    for (long long t = 0; t < (unrolled ? v->kw : 1); t++) {
        kit_word_t tap = kit_word(way < 0 ? "-t" : "t");
        if (unrolled) { tap = kit_word("%lld", t * way); }
        kit_word_t at = unrolled ? kit_word("%lld", t * v->dw) : kit_word("%lld * t", v->dw);
        kit_word_t j = v->sw > 1 ? kit_word("%lld * j", v->sw) : kit_word("j");
        const char *end = t + 1 == v->kw || !unrolled ? ";" : "";
        kit_line(x, "    + %sf[%s] * p[%s + %s]%s", cast, tap.text, j.text, at.text, end);
    }
    kit_close(x, 4 + !unrolled);
    kit_for(x, "r", some);
    kit_line(x, "for (int j = 0; j < %lld; j++) { to[%lld * (o + r) + %lld * i + j] = %s%ss[r][j]%s; }",
             v->ow, plane, v->ow, start || !bias ? "" : from, start || !bias ? "" : " + ",
             scale ? " * scale[o + r]" : "");
    kit_close(x, 3);
}

// The gradient by the image where the library adds columns into it: a tap at a time, for some rows of g.
KIT_TEXT_FN void kit_conv_scatter(kit_export_state_t *x, const kit_conv_t *v, const kit_call_t *c) {
    const tensor_window_params_t *g = &c->p->window;
    long long taps = v->kh * v->kw, pixels = g->out[1] * g->out[2], step = 256 / taps;
    int64_t strides[5] = {1, v->co * taps, pixels, 1, 0};
    if (step > v->co) { step = v->co; }
    if (step < 1) { step = 1; }
    int64_t chain = kit_conv_chain(v, v->h, v->w, step * taps, v->ci, strides);
    if (!chain || v->parts > 1 || (chain < v->ci)) { x->inexact = 1; }
    kit_line(x, "for (int i = 0; i < %lld; i++) { to[i] = %s; }", v->co * v->oh * v->ow,
             c->arg[2].data ? kit_word("bias[i / %lld]", v->oh * v->ow).text : "0");
    kit_line(x, "for (int first = 0; first < %lld; first += %lld) {", v->h, v->rows);
    x->depth++;
    kit_for(x, "o", v->co);
    if (v->kh > 1) { kit_for(x, "u", v->kh); }
    kit_for(x, "t", v->kw);
    kit_line(x, "for (int i = first; i < %lld && i < first + %lld; i++) {", v->h, v->rows);
    x->depth++;
    kit_word_t tap =
        v->kh > 1 ? kit_word("%lld * o + %lld * u + t", taps, v->kw) : kit_word("%lld * o + t", taps);
    kit_word_t line = v->kh > 1 ? kit_word("%lld * i - %lld + %lld * u", v->uh, (long long)g->pad[1], v->dh)
                                : kit_word("%lld * i - %lld", v->uh, (long long)g->pad[1]);
    kit_line(x, "const int y = %s;", line.text);
    kit_line(x, "float s[%lld];", v->w);
    kit_line(x, "if (y < 0 || y >= %lld) { continue; }", v->oh);
    kit_line(x, "for (int j = 0; j < %lld; j++) { s[j] = 0; }", v->w);
    kit_for(x, "c", v->ci);
    kit_line(x, "const float f = k[%lld * c + %s], *p = g + %lld * c + %lld * i;", v->co * taps, tap.text,
             pixels, v->w);
    kit_line(x, "for (int j = 0; j < %lld; j++) { s[j] += f * p[j]; }", v->w);
    kit_close(x, 1);
    kit_for(x, "j", v->w);
    kit_line(x, "const int at = %lld * j - %lld + %lld * t;", v->uw, (long long)g->pad[2], v->dw);
    kit_line(x, "if (at >= 0 && at < %lld) { to[%lld * o + %lld * y + at] += s[j]; }", v->ow, v->oh * v->ow,
             v->ow);
    kit_close(x, v->kh > 1 ? 6 : 5);
}

// Convolutions (x, weight, bias) and their gradients by the image, which are transposed convolutions.
KIT_TEXT_FN int kit_write_conv(kit_export_state_t *x, const kit_call_t *c) {
    kit_conv_t v;
    if (!kit_conv(x, c, &v)) { return 0; }
    const kit_place_t *place = kit_place(x, c->arg[1].memory);
    long long taps = v.kh * v.kw, n = v.ci * taps, pixels = v.oh * v.ow;
    kit_way_t way = kit_conv_way(x, &v, 0);
    int direct = way != KIT_COLUMNS, bias = c->arg[2].data != NULL, scatter = v.flipped && !direct;
    int64_t strides[5] = {n, 1, pixels, 1, 0}, chain = n;
    long long parts = way == KIT_GATHERED ? kit_up(n, 192) : 1;
    if (kit_dots(x, 1, v.co, pixels, n, strides, 0)) { x->inexact = 1; }
    if (!direct && !scatter) {
        chain = kit_conv_chain(&v, v.oh, v.ow, v.co, n, strides);
        if (!chain) { x->inexact = 1; }
        if (!chain) { chain = n; }
    }
    kit_declare(x, "x", &c->arg[0]);
    kit_word_t scale = kit_declare_weight(x, "w", &c->arg[1]);
    if (bias) { kit_declare(x, v.groups > 1 ? "all" : "bias", &c->arg[2]); }
    kit_declare(x, "result", &c->arg[3]);
    if (!scatter) { kit_conv_zeros(x, &v, v.ci); }
    if (v.images > 1) { kit_for(x, "n", v.images); }
    if (v.groups > 1) { kit_for(x, "q", v.groups); }
    char from[2][KIT_WORD], part[KIT_WORD];
    long long plane[2] = {v.ci * v.h * v.w, v.co * pixels};
    for (int k = 0; k < 2; k++) {
        kit_word_t image = v.images > 1 ? kit_word(" + %lld * n", v.groups * plane[k]) : kit_word("%s", "");
        kit_word_t group = v.groups > 1 ? kit_word(" + %lld * q", plane[k]) : kit_word("%s", "");
        snprintf(from[k], sizeof from[k], "%s%.40s%.40s", k ? "result" : "x", image.text, group.text);
    }
    snprintf(part, sizeof part, v.groups > 1 ? "w + %lld * q" : "w", v.co * n);
    kit_line(x, "const %s *k = %s;", place->rows ? "int8_t" : "float", part);
    if (place->rows) {
        const char *line = v.groups > 1 ? "const float *scale = %s + %lld * q;" : "const float *scale = %s;";
        kit_line(x, line, scale.text, v.co);
    }
    if (bias && v.groups > 1) {
        kit_line(x, "const float *bias = all + %lld * q;", v.co);
    }
    kit_line(x, "float *to = %s;", from[1]);
    if (scatter) {
        kit_line(x, "const float *g = %s;", from[0]);
        kit_conv_scatter(x, &v, c);
    } else {
        int nine = way == KIT_PIXELS && v.co == 1 && n == 9 && !place->rows;
        kit_conv_image(x, &v, from[0], v.ci);
        if (nine && v.kh != 3) { x->inexact = 1; }
        if (nine && v.kh == 3 && v.kw == 3) {
            kit_conv_nine(x, &v, bias);
        } else if ((chain < n || parts > 1) && !place->rows) {
            kit_conv_parts(x, &v, bias, parts > 1 ? 0 : chain, parts);
        } else {
            kit_conv_lines(x, &v, direct && !place->rows, bias, place->rows ? "scale" : NULL);
        }
    }
    kit_close(x, (v.images > 1) + (v.groups > 1));
    return 1;
}

// The gradient by the weight. The library sums parts of the images apart, and within a part a chain of
// products for some images (pixels in vectors), for some pixels of them (outputs in vectors), or for a block
// of pixels of each image.
KIT_TEXT_FN int kit_write_conv_weight(kit_export_state_t *x, const kit_call_t *c) {
    kit_conv_t v;
    if (!kit_conv(x, c, &v)) { return 0; }
    long long taps = v.kh * v.kw, n = v.ci * taps, pixels = v.oh * v.ow, sums = v.co * taps;
    long long chunks = v.images < 8 ? v.images : 8, each = (v.images + 7) / 8, chain = pixels;
    kit_way_t way = kit_conv_way(x, &v, 1);
    int lanes = way == KIT_PIXELS;      // a sum is made in lanes: those of a line, or of a dot product
    const char *lane = "j % K_LANES";
    if ((double)c->arg[2].numel * 4 * (double)chunks > 33554432.0) { chunks = 1; }
    if (way == KIT_PIXELS) {
        long long image = v.ci * ((v.oh - 1) * v.sh + (v.kh - 1) * v.dh + 1) * v.pitch * 4;
        each = 262144 / image < each ? 262144 / image : each;
        each = each > 1 ? each : 1;
    } else if (way == KIT_GATHERED) {
        long long most = kit_up(8, v.tiles * v.groups);
        chunks = chunks < most ? chunks : most;
    } else {
        int64_t plain[5] = {pixels, 1, 1, v.rows * v.wide, 0}, turned[5] = {v.rows * v.wide, 1, 1, pixels, 0};
        int turn = v.co >= 32 && v.co < n;
        const int64_t *of = turn ? turned : plain;
        long long first = v.rows * v.wide, last = pixels - (v.oh - 1) / v.rows * v.rows * v.ow;
        long long high = turn ? n : v.co, broad = turn ? v.co : n;
        chain = kit_chain(1, high, broad, first, of);
        int64_t end = kit_chain(1, high, broad, last, of);
        int alike = chain == end || (chain >= first && end >= last);
        lanes = kit_dots(x, 1, high, broad, first, of, 1);
        if (lanes != kit_dots(x, 1, high, broad, last, of, 1)) { alike = 0; }
        if (!chain || v.parts > 1 || !alike) { x->inexact = 1; }
        if (!chain) { chain = pixels; }
        lane = "more % K_LANES";
    }
    long long room = v.padded ? v.lines * v.pitch : 0, block = v.rows * v.ow;
    long long all = room + (1 + (lanes ? x->lanes : 1)) * sums;
    x->row = all > x->row ? all : x->row;
    kit_declare(x, "grad", &c->arg[0]);
    kit_declare(x, "x", &c->arg[1]);
    kit_declare(x, "w", &c->arg[2]);
    kit_line(x, "float *part = row + %lld, *s = row + %lld;", room, room + sums);
    if (lanes) { kit_need(x, KIT_FOLD); }
    kit_conv_zeros(x, &v, 1);
    kit_for(x, "q", v.groups);
    kit_for(x, "c", v.ci);
    kit_for(x, "m", chunks);
    int counts = way != KIT_PIXELS || each > 1;
    kit_line(x, counts ? "int last = %lld * (m + 1) / %lld, more = 0;" : "int last = %lld * (m + 1) / %lld;",
             v.images, chunks);
    if (way == KIT_GATHERED) { kit_line(x, "int all = 0, cut = 0;"); }
    kit_line(x, "for (int k = 0; k < %lld; k++) { part[k] = 0; }", sums);
    kit_line(x, "for (int k = 0; k < %lld%s; k++) { s[k] = 0; }", sums, lanes ? " * K_LANES" : "");
    kit_line(x, "for (int n = %lld * m / %lld; n < last; n++) {", v.images, chunks);
    x->depth++;
    kit_line(x, "const float *g = grad + %lld * n + %lld * q;", v.groups * v.co * pixels, v.co * pixels);
    kit_word_t from = kit_word("x + %lld * n + %lld * q + %lld * c", v.groups * v.ci * v.h * v.w,
                               v.ci * v.h * v.w, v.h * v.w);
    if (v.padded) {
        kit_line(x, "const float *plane = %s, *in = row;", from.text);
        kit_for(x, "i", v.h);
        kit_line(x, "for (int j = 0; j < %lld; j++) { row[%lld * i + j + %lld] = plane[%lld * i + j]; }", v.w,
                 v.pitch, v.ph * v.pitch + v.pw, v.w);
        kit_close(x, 1);
    } else {
        kit_line(x, "const float *in = %s;", from.text);
    }
    kit_for(x, "i", v.oh);
    kit_for(x, "j", v.ow);
    kit_line(x, "const float *p = in + %lld * i + %lld * j;", v.sh * v.pitch, v.sw);
    if (way == KIT_GATHERED && v.items > 1) {       // pixels of some images, or of a block, in equal parts
        kit_line(x, "if (!more) { all = (last - n > %lld ? %lld : last - n) * %lld; }", v.items, v.items,
                 pixels);
    } else if (way == KIT_GATHERED) {
        kit_line(x, "if (!more) { all = (%lld - i > %lld ? %lld : %lld - i) * %lld; }", v.oh, v.high, v.high,
                 v.oh, v.ow);
    }
    kit_for(x, "o", v.co);
    kit_line(x, "const float d = g[%lld * o + %lld * i + j];", pixels, v.ow);
    kit_for(x, "y", v.kh);
    kit_line(x, "float *to = s + %s(%lld * o + %lld * y)%s%s;", lanes ? "K_LANES * " : "", taps, v.kw,
             lanes ? " + " : "", lanes ? lane : "");
    kit_line(x, "for (int t = 0; t < %lld; t++) { to[%st] += d * p[%lld * y + %lld * t]; }", v.kw,
             lanes ? "K_LANES * " : "", v.dh * v.pitch, v.dw);
    kit_close(x, 2);
    if (way == KIT_PIXELS) {            // the chain ends with some images
        kit_close(x, 2);
        if (each > 1) {
            kit_line(x, "if (++more < %lld && n + 1 < last) { continue; }", each);
            kit_line(x, "more = 0;");
        }
    } else if (way == KIT_GATHERED) {
        kit_line(x, "if (++more != all * (cut + 1) / ((all + 127) / 128)) { continue; }");
        kit_line(x, "cut++;");
        kit_line(x, "if (more == all) { more = cut = 0; }");
    } else {                            // or within the pixels of one
        kit_line(x, "const int done = %lld * i + j + 1, ends = done %% %lld == 0 || done == %lld;", v.ow,
                 block, pixels);
        kit_line(x, "more++;");
        kit_line(x, "if (more %% %lld != 0 && !ends) { continue; }", chain);
        kit_line(x, "if (ends) { more = 0; }");
    }
    kit_for(x, "k", sums);
    if (lanes) {
        kit_line(x, "part[k] += k_fold(s + K_LANES * k, 1);");
        kit_line(x, "for (int l = 0; l < K_LANES; l++) { s[K_LANES * k + l] = 0; }");
    } else {
        kit_line(x, "part[k] += s[k];");
        kit_line(x, "s[k] = 0;");
    }
    kit_close(x, way == KIT_PIXELS ? 2 : 4);
    kit_for(x, "o", v.co);
    kit_for(x, "k", taps);
    kit_line(x, "float *to = w + %lld * (%lld * q + o) + %lld * c + k;", n, v.co, taps);
    kit_line(x, "*to = m ? *to + part[%lld * o + k] : part[%lld * o + k];", taps, taps);
    kit_close(x, 5);
    return 1;
}

#endif

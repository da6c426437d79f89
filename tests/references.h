// references.h - what ops must give, in plain C on arrays of doubles and integers; ops.h includes it
//
// Each is told numbers by the row in ops.def (op->p) and has the arguments of the case (op->given).

// -- element by element --

static void ref_pointwise(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t d[MAXD], k;
    int nd = 0, i, j, dtype = out->dtype;
    for (i = 0; i < op->nin; i++) {
        if (in[i].nd > nd) { nd = in[i].nd; }
    }
    for (j = 0; j < nd; j++) { d[j] = 1; }
    for (i = 0; i < op->nin; i++) {
        for (j = 0; j < in[i].nd; j++) {
            if (in[i].d[j] != 1) { d[nd - in[i].nd + j] = in[i].d[j]; }
        }
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        double v[OPERANDS];
        int64_t g[OPERANDS] = {0};
        int ints = 1;
        for (i = 0; i < op->nin; i++) {
            int64_t at = nd_at(out, &in[i], k);
            v[i] = in[i].v[at];
            g[i] = in[i].i[at];
            if (is_float(in[i].dtype)) { ints = 0; }
        }
        if (op->g && (ints || !op->f)) {
            out->i[k] = op->g(g, &op->given);
            if (!op->f && dtype == TENSOR_BOOL) { out->i[k] &= 1; }         // of bits one is left
        } else if (is_float(dtype)) {
            out->v[k] = op->f(v, &op->given);
        } else {
            out->i[k] = (int64_t)op->f(v, &op->given);
        }
    }
}

// -- rows: reductions and what goes along a dim --

// One row v[0..n-1] (second input w); results in o, as many as returned.
static int64_t row_values(const op_t *op, const double *v, const double *w, int64_t n, double *o) {
    double s = 0, m = -INFINITY;
    int64_t k, best = 0;
    switch (op->id) {
    case TENSOR_OP_SUM:
        for (k = 0; k < n; k++) { s += v[k]; }
        o[0] = s;
        return 1;
    case TENSOR_OP_MEAN:
        for (k = 0; k < n; k++) { s += v[k]; }
        o[0] = s / (double)n;
        return 1;
    case TENSOR_OP_PROD:
        for (s = 1, k = 0; k < n; k++) { s *= v[k]; }
        o[0] = s;
        return 1;
    case TENSOR_OP_ALL:
        for (s = 1, k = 0; k < n; k++) {
            if (v[k] == 0) { s = 0; }
        }
        o[0] = s;
        return 1;
    case TENSOR_OP_ANY:
        for (k = 0; k < n; k++) {
            if (v[k] != 0) { s = 1; }
        }
        o[0] = s;
        return 1;
    case TENSOR_OP_AMAX:
    case TENSOR_OP_ARGMAX:
        for (k = 1; k < n; k++) {
            if (v[k] > v[best]) { best = k; }
        }
        o[0] = op->id == TENSOR_OP_AMAX ? v[best] : (double)best;
        return 1;
    case TENSOR_OP_AMIN:
    case TENSOR_OP_ARGMIN:
        for (k = 1; k < n; k++) {
            if (v[k] < v[best]) { best = k; }
        }
        o[0] = op->id == TENSOR_OP_AMIN ? v[best] : (double)best;
        return 1;
    case TENSOR_OP_VAR:
        for (k = 0; k < n; k++) { s += v[k] / (double)n; }
        for (m = 0, k = 0; k < n; k++) { m += (v[k] - s) * (v[k] - s); }
        m = n > op->p[2] ? m / (double)(n - op->p[2]) : NAN;
        o[0] = op->p[3] ? sqrt(m) : m;
        return 1;
    case TENSOR_OP_NORM:
        for (k = 0; k < n; k++) { s += v[k] * v[k]; }
        o[0] = sqrt(s);
        return 1;
    case TENSOR_OP_CUMSUM:
        for (k = 0; k < n; k++) { o[k] = s += v[k]; }
        return n;
    case TENSOR_OP_CUMPROD:
        for (s = 1, k = 0; k < n; k++) { o[k] = s *= v[k]; }
        return n;
    case TENSOR_OP_LOGCUMSUMEXP:
        for (k = 0; k < n; k++) { o[k] = log(s += exp(v[k])); }
        return n;
    case TENSOR_OP_LINEAR_SCAN:
        for (k = 0; k < n; k++) {
            int64_t i = op->p[2] ? n - 1 - k : k;
            o[i] = s = v[i] + (k ? w[i] * s : 0);
        }
        return n;
    case TENSOR_OP_CUMMAX:
    case TENSOR_OP_CUMMIN:
        for (k = 0; k < n; k++) {
            if (op->id == TENSOR_OP_CUMMAX ? v[k] >= v[best] : v[k] <= v[best]) { best = k; }
            o[k] = op->p[3] ? v[best] : (double)best;
        }
        return n;
    case TENSOR_OP_SORT:
    case TENSOR_OP_TOPK: // the place of k: how many go before it
        for (k = 0; k < n; k++) {
            int64_t i, at = 0;
            for (i = 0; i < n; i++) {
                at += (op->p[2] ? v[i] > v[k] : v[i] < v[k]) || (v[i] == v[k] && i < k);
            }
            o[at] = op->p[3] ? v[k] : (double)k;
        }
        return n;
    case TENSOR_OP_KTHVALUE: // p[4]: lower median, else the smallest
    case TENSOR_OP_MODE: {
        int64_t i, most = 0, less, same;
        for (k = n - 1; k >= 0; k--) {
            for (less = same = i = 0; i < n; i++) {
                less += v[i] < v[k] || (v[i] == v[k] && i < k);
                same += v[i] == v[k];
            }
            if (op->id == TENSOR_OP_KTHVALUE) {         // as a stable sort has them
                if (less == (op->p[4] ? (n - 1) / 2 : 0)) { best = k; }
            } else if (same > most || (same == most && v[k] < v[best])) {
                best = k, most = same;
            }
        }
        o[0] = op->p[3] ? v[best] : (double)best;
        return 1;
    }
    default: break;
    }
    for (k = 0; k < n; k++) {
        if (v[k] > m) { m = v[k]; }
    }
    for (k = 0; k < n; k++) { s += exp(v[k] - m); }
    switch (op->id) {
    case TENSOR_OP_LOGSUMEXP: o[0] = n ? m + log(s) : -INFINITY; return 1;
    case TENSOR_OP_SOFTMAX:
        for (k = 0; k < n; k++) { o[k] = exp(v[k] - m) / s; }
        return n;
    case TENSOR_OP_LOG_SOFTMAX:
        for (k = 0; k < n; k++) { o[k] = v[k] - m - log(s); }
        return n;
    case TENSOR_OP_SOFTMAX_BACKWARD: {
        double t = 0;
        for (k = 0; k < n; k++) { t += w[k] * exp(v[k] - m) / s; }
        for (k = 0; k < n; k++) { o[k] = exp(v[k] - m) / s * (w[k] - t); }
        return n;
    }
    case TENSOR_OP_LOG_SOFTMAX_BACKWARD: {
        double t = 0;
        for (k = 0; k < n; k++) { t += w[k]; }
        for (k = 0; k < n; k++) { o[k] = w[k] - exp(v[k] - m) / s * t; }
        return n;
    }
    default: return 0;
    }
}
// Any reduction or row op over dim p[0] (WHOLE; p[5]: two dims, the second is p[2]).
static void ref_rows(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t d[MAXD] = {0}, k, j, rows = 1, row = 1;
    int reduced[MAXD] = {0}, nd = 0, i, dtype = out->dtype, whole;
    double *v, *w, *o;
    for (i = 0; i < x->nd; i++) {
        reduced[i] = op->p[0] == WHOLE || i == (op->p[0] < 0 ? op->p[0] + x->nd : op->p[0]) ||
                     (op->p[5] && i == op->p[2]);
        if (reduced[i]) {
            row *= x->d[i];
        } else {
            rows *= x->d[i];
        }
    }
    whole = op->id == TENSOR_OP_SOFTMAX || op->id == TENSOR_OP_LOG_SOFTMAX || op->id == TENSOR_OP_CUMSUM ||
            op->id == TENSOR_OP_SOFTMAX_BACKWARD || op->id == TENSOR_OP_LOG_SOFTMAX_BACKWARD ||
            op->id == TENSOR_OP_CUMPROD || op->id == TENSOR_OP_LOGCUMSUMEXP ||
            op->id == TENSOR_OP_LINEAR_SCAN ||
            op->id == TENSOR_OP_CUMMAX || op->id == TENSOR_OP_CUMMIN || op->id == TENSOR_OP_SORT ||
            op->id == TENSOR_OP_TOPK;
    for (i = 0; i < x->nd; i++) {
        if (whole || !reduced[i]) {
            d[nd++] = x->d[i];
        } else if (op->p[1]) {
            d[nd++] = 1;
        }
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    v = (double *)malloc((size_t)(row + 1) * 3 * sizeof *v);
    w = v + row + 1, o = w + row + 1;
    for (k = 0; k < rows; k++) {
        int64_t at = 0, got;
        for (j = 0; j < row; j++) {
            int64_t a = k, b = j, step = 1;
            at = 0;
            for (i = x->nd - 1; i >= 0; i--) {
                int64_t *from = reduced[i] ? &b : &a;
                at += *from % x->d[i] * step;
                *from /= x->d[i];
                step *= x->d[i];
            }
            v[j] = x->v[at];
            if (op->nin > 1) { w[j] = in[1].v[at]; }
        }
        got = row_values(op, v, op->nin > 1 ? w : NULL, row, o);
        for (j = 0; j < got; j++) {
            int64_t to = k;
            if (whole) {
                int64_t a = k, b = j, step = 1;
                to = 0;
                for (i = x->nd - 1; i >= 0; i--) {
                    int64_t *from = reduced[i] ? &b : &a;
                    to += *from % x->d[i] * step;
                    *from /= x->d[i];
                    step *= x->d[i];
                }
            }
            out->v[to] = o[j];
            out->i[to] = fabs(o[j]) < 9e18 ? (int64_t)o[j] : 0;
        }
    }
    free(v);
}
// The gradient of prod_dim(x, 0): every element's is the product of the others times g.
static void ref_prod_others(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t rows = x->d[0], n = rows ? x->n / rows : 0, k, i, j;
    int dtype = out->dtype;
    (void)op;
    nd_make(out, x->nd, x->d);
    out->dtype = dtype;
    for (k = 0; k < n; k++) {
        for (i = 0; i < rows; i++) {
            double p = in[1].v[k];
            for (j = 0; j < rows; j++) {
                if (j != i) { p *= x->v[j * n + k]; }
            }
            out->v[i * n + k] = p;
        }
    }
}
// How many elements of in[0]'s row lie below each value (or not above).
static void ref_searchsorted(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0], *v = &in[1];
    int64_t k, i, n = x->d[x->nd - 1], row = v->nd ? v->d[v->nd - 1] : 1;
    nd_make(out, v->nd, v->d);
    out->dtype = TENSOR_I64;
    for (k = 0; k < v->n; k++) {
        const double *r = x->v + (x->nd == 1 ? 0 : k / row * n);
        for (i = 0; i < n; i++) { out->i[k] += op->p[0] ? r[i] <= v->v[k] : r[i] < v->v[k]; }
        out->v[k] = (double)out->i[k];
    }
}

// -- matrix products --

// The product of a and b; p[0]: outer.
static void ref_product(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *a = &in[0], *b = &in[1];
    int64_t d[MAXD], m = a->nd > 1 ? a->d[a->nd - 2] : 1, kk = a->d[a->nd - 1],
                     n = b->nd > 1 ? b->d[b->nd - 1] : 1, k, i, j, t;
    int nd = 0, dtype = out->dtype, l;
    nd_t batch, pa = *a, pb = *b;
    if (op->p[0] == 1) { kk = 1, m = a->d[0], n = b->d[0]; } // outer
    pa.nd = a->nd > 2 ? a->nd - 2 : 0, pb.nd = b->nd > 2 ? b->nd - 2 : 0;
    batch.nd = pa.nd > pb.nd ? pa.nd : pb.nd;
    batch.n = 1;
    for (l = 0; l < batch.nd; l++) {
        int la = l - (batch.nd - pa.nd), lb = l - (batch.nd - pb.nd);
        int64_t da = la >= 0 ? a->d[la] : 1, db = lb >= 0 ? b->d[lb] : 1;
        batch.n *= batch.d[l] = d[nd++] = da == 1 ? db : da;
    }
    if (a->nd > 1 || op->p[0] == 1) { d[nd++] = m; }
    if (b->nd > 1 || op->p[0] == 1) { d[nd++] = n; }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < batch.n; k++) {
        int64_t oa = nd_at(&batch, &pa, k) * m * kk, ob = nd_at(&batch, &pb, k) * kk * n;
        for (i = 0; i < m; i++) {
            for (j = 0; j < n; j++) {
                double s = 0;
                for (t = 0; t < kk; t++) { s += a->v[oa + i * kk + t] * b->v[ob + t * n + j]; }
                out->v[(k * m + i) * n + j] = s;
                out->i[(k * m + i) * n + j] = dtype == TENSOR_BOOL ? s != 0 : (int64_t)s;
            }
        }
    }
}
// f[0] x + f[1] a b
static void ref_addmm(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k;
    ref_product(op, in + 1, out);
    for (k = 0; k < out->n; k++) {
        double x = in[0].v[nd_at(out, &in[0], k)];
        out->v[k] = op->given.f[0] * x + op->given.f[1] * out->v[k];
        out->i[k] = (int64_t)out->v[k];
    }
}

// -- views: out[k] is in[place(k)] --

enum {
    V_AT = 1,
    V_CHUNK,
    V_EXPAND,
    V_FILL,
    V_FLATTEN,
    V_MOVEDIM,
    V_MT,
    V_NARROW,
    V_PERMUTE,
    V_REPEAT,
    V_RESHAPE,
    V_SELECT,
    V_SLICE,
    V_SPLIT,
    V_SQUEEZE,
    V_TRANSPOSE,
    V_TRIL,
    V_TRIU,
    V_UNSQUEEZE
};
// p: the kind, then the arguments it needs.
static void ref_view(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0];
    int64_t d[MAXD], k, strides[MAXD], os[MAXD], base = 0, zero = 0;
    int nd = x->nd, i, dtype = out->dtype, kind = (int)op->p[0];
    int64_t dim = op->p[1] < 0 ? op->p[1] + x->nd : op->p[1], b = op->p[2];
    const int64_t *list = op->given.i;
    for (i = x->nd - 1, k = 1; i >= 0; i--) { strides[i] = k, k *= x->d[i]; }
    for (i = 0; i < nd; i++) { d[i] = x->d[i], os[i] = strides[i]; }
    switch (kind) {
    case V_PERMUTE:
        for (i = 0; i < nd; i++) { d[i] = x->d[list[i]], os[i] = strides[list[i]]; }
        break;
    case V_TRANSPOSE:
    case V_MT:
        if (kind == V_MT) { dim = nd - 1, b = nd - 2; }
        if (b < 0) { b += nd; }
        d[dim] = x->d[b], os[dim] = strides[b], d[b] = x->d[dim], os[b] = strides[dim];
        break;
    case V_MOVEDIM: {
        int to = (int)(b < 0 ? b + nd : b), from = (int)dim, j = 0;
        for (i = 0; i < nd; i++) {
            if (i == to) {
                d[i] = x->d[from], os[i] = strides[from];
                continue;
            }
            if (j == from) { j++; }
            d[i] = x->d[j], os[i] = strides[j++];
        }
        break;
    }
    case V_RESHAPE:
        for (nd = op->given.ni, i = 0, k = 1; i < nd; i++) { k *= list[i] < 0 ? 1 : list[i]; }
        for (i = nd - 1; i >= 0; i--) {
            d[i] = list[i] < 0 ? x->n / k : list[i];
            os[i] = i == nd - 1 ? 1 : os[i + 1] * d[i + 1];
        }
        break;
    case V_FLATTEN: {
        int e = (int)(b < 0 ? b + x->nd : b), j = 0;
        for (i = 0; i < x->nd; i++) {
            if (i > dim && i <= e) {
                d[j - 1] *= x->d[i], os[j - 1] = strides[i];
            } else {
                d[j] = x->d[i], os[j++] = strides[i];
            }
        }
        nd = j;
        break;
    }
    case V_UNSQUEEZE:
        dim = op->p[1] < 0 ? op->p[1] + x->nd + 1 : op->p[1];
        for (i = nd; i > dim; i--) { d[i] = d[i - 1], os[i] = os[i - 1]; }
        d[dim] = 1, os[dim] = 0, nd++;
        break;
    case V_SQUEEZE:
        if (x->d[dim] == 1) {
            for (i = (int)dim; i < nd - 1; i++) { d[i] = d[i + 1], os[i] = os[i + 1]; }
            nd--;
        }
        break;
    case V_EXPAND:
        for (nd = op->given.ni, i = nd - 1; i >= 0; i--) {
            int from = i - (nd - x->nd);
            int64_t size = from >= 0 ? x->d[from] : 1;
            d[i] = list[i] < 0 ? size : list[i];
            os[i] = from < 0 || size == 1 ? 0 : strides[from];
        }
        break;
    case V_REPEAT:
        for (nd = op->given.ni, i = nd - 1; i >= 0; i--) {
            int from = i - (nd - x->nd);
            d[i] = (from >= 0 ? x->d[from] : 1) * list[i];
        }
        break;
    case V_NARROW: d[dim] = op->p[3], base = b * strides[dim]; break;
    case V_SELECT:
        base = (b < 0 ? b + x->d[dim] : b) * strides[dim];
        for (i = (int)dim; i < nd - 1; i++) { d[i] = d[i + 1], os[i] = os[i + 1]; }
        nd--;
        break;
    case V_SLICE: {
        int64_t s = b < 0 ? b + x->d[dim] : b, e = op->p[3] < 0 ? op->p[3] + x->d[dim] : op->p[3];
        if (s < 0) { s = 0; }
        if (e > x->d[dim]) { e = x->d[dim]; }
        if (s > e) { e = s; }
        d[dim] = (e - s + op->p[4] - 1) / op->p[4], os[dim] *= op->p[4], base = s * strides[dim];
        break;
    }
    case V_AT: // "..., 1, None, ::2"
        base = strides[nd - 2];
        d[nd - 2] = 1, os[nd - 2] = 0;
        d[nd - 1] = (x->d[nd - 1] + 1) / 2, os[nd - 1] = 2;
        break;
    case V_SPLIT:
    case V_CHUNK: {                     // part `result`; p[2]: the size of one, the number of parts
        int64_t size = kind == V_SPLIT ? b : (x->d[dim] + b - 1) / b, start = size * op->result;
        if (start >= x->d[dim]) {
            nd_make(out, 0, d);
            out->nd = -1;
            return;
        }
        base = start * strides[dim];
        d[dim] = start + size < x->d[dim] ? size : x->d[dim] - start;
        break;
    }
    default: break;
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int64_t rest = k, at = base, idx[MAXD] = {0};
        for (i = nd - 1; i >= 0; i--) {
            idx[i] = rest % d[i];
            rest /= d[i];
            if (kind == V_REPEAT) {
                int from = i - (nd - x->nd);
                at += from >= 0 ? idx[i] % x->d[from] * strides[from] : 0;
            } else {
                at += idx[i] * os[i];
            }
        }
        zero = (kind == V_TRIL && idx[nd - 1] > idx[nd - 2] + op->p[1]) ||
               (kind == V_TRIU && idx[nd - 1] < idx[nd - 2] + op->p[1]);
        out->v[k] = zero ? 0 : x->v[at];
        out->i[k] = zero ? 0 : x->i[at];
        if (kind == V_FILL) { out->v[k] = op->given.f[0], out->i[k] = (int64_t)op->given.f[0]; }
    }
}
// Any view of x in order: half of the integers are sizes, half strides, the last the offset.
static void ref_strided(const op_t *op, const nd_t *in, nd_t *out) {
    int nd = op->given.ni / 2, i, dtype = out->dtype;
    const int64_t *size = op->given.i, *stride = op->given.i + nd;
    int64_t k;
    nd_make(out, nd, size);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int64_t rest = k, at = stride[nd];
        for (i = nd - 1; i >= 0; i--) { at += rest % size[i] * stride[i], rest /= size[i]; }
        out->v[k] = in[0].v[at], out->i[k] = in[0].i[at];
    }
}
// x with such a view replaced.
static void ref_scatter_strided(const op_t *op, const nd_t *in, nd_t *out) {
    int nd = op->given.ni / 2, i, dtype = out->dtype;
    const int64_t *size = op->given.i, *stride = op->given.i + nd;
    int64_t k;
    nd_make(out, in[0].nd, in[0].d);
    out->dtype = dtype;
    memcpy(out->v, in[0].v, (size_t)out->n * sizeof *out->v);
    memcpy(out->i, in[0].i, (size_t)out->n * sizeof *out->i);
    for (k = 0; k < in[1].n; k++) {
        int64_t rest = k, at = stride[nd];
        for (i = nd - 1; i >= 0; i--) { at += rest % size[i] * stride[i], rest /= size[i]; }
        out->v[at] = in[1].v[k], out->i[at] = in[1].i[k];
    }
}

// -- joining, indexing --

static void ref_cat(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t d[MAXD], k, at = 0;
    int i, t, dtype = out->dtype, nd = in[0].nd + (op->p[1] != 0),
              dim = (int)(op->p[0] < 0 ? op->p[0] + nd : op->p[0]);
    for (i = 0; i < nd; i++) {
        int from = op->p[1] && i > dim ? i - 1 : i;
        d[i] = i == dim && op->p[1] ? op->nin : in[0].d[from];
        if (i == dim && !op->p[1]) {
            for (t = 1; t < op->nin; t++) { d[i] += in[t].d[i]; }
        }
    }
    nd_make(out, nd, d);
    out->dtype = dtype;
    for (t = 0; t < op->nin; t++) {
        int64_t inner = 1, len = op->p[1] ? 1 : in[t].d[dim], step;
        for (i = dim + 1; i < nd; i++) { inner *= d[i]; }
        step = len * inner;
        for (k = 0; k < in[t].n; k++) {
            int64_t to = k / step * d[dim] * inner + at * inner + k % step;
            out->v[to] = in[t].v[k], out->i[to] = in[t].i[k];
        }
        at += len;
    }
}
// The five ops along dim with an index; for rows the index counts along dim only.
static void ref_index(const op_t *op, const nd_t *in, nd_t *out) {
    const nd_t *x = &in[0], *index = &in[1], *src = &in[2];
    int dtype = out->dtype, dim = (int)(op->p[0] < 0 ? op->p[0] + x->nd : op->p[0]), i;
    int takes = op->id == TENSOR_OP_INDEX_SELECT || op->id == TENSOR_OP_GATHER || op->id == TENSOR_OP_INDEX;
    int rows = (takes && op->id != TENSOR_OP_GATHER) || op->id == TENSOR_OP_INDEX_ADD ||
               op->id == TENSOR_OP_INDEX_COPY;
    nd_t walk = *x;
    int64_t k;
    for (i = 0, walk.n = 1; i < x->nd; i++) {
        walk.d[i] = rows ? (i == dim ? index->d[0] : x->d[i]) : index->d[i];
        walk.n *= walk.d[i];
    }
    nd_make(out, x->nd, takes ? walk.d : x->d);
    out->dtype = dtype;
    if (!takes) {
        memcpy(out->v, x->v, (size_t)x->n * sizeof *x->v), memcpy(out->i, x->i, (size_t)x->n * sizeof *x->i);
    }
    for (k = 0; k < walk.n; k++) {
        int64_t idx[MAXD], rest = k, ix = 0, at = 0, from = 0, v;
        for (i = x->nd - 1; i >= 0; i--) { idx[i] = rest % walk.d[i], rest /= walk.d[i]; }
        for (i = 0; i < x->nd; i++) { ix = rows ? idx[dim] : ix * index->d[i] + idx[i]; }
        v = index->i[ix];
        for (i = 0; i < x->nd; i++) {
            at = at * x->d[i] + (i == dim ? v : idx[i]);
            if (!takes) { from = from * src->d[i] + idx[i]; }
        }
        if (takes) {
            out->v[k] = x->v[at], out->i[k] = x->i[at];
        } else if (op->id == TENSOR_OP_SCATTER || op->id == TENSOR_OP_INDEX_COPY ||
                 (op->id == TENSOR_OP_SCATTER_REDUCE &&
                  (is_float(dtype) ? src->v[from] != src->v[from] || src->v[from] > out->v[at]
                                   : src->i[from] > out->i[at]))) {
            out->v[at] = src->v[from], out->i[at] = src->i[from];
        } else if (op->id == TENSOR_OP_SCATTER_REDUCE) {
            continue;
        } else {
            out->v[at] += src->v[from], out->i[at] = wrap_int(out->i[at] + src->i[from], dtype);
        }
    }
}
static void ref_masked_select(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k, n = 0;
    int dtype = out->dtype;
    (void)op;
    for (k = 0; k < in[0].n; k++) { n += in[1].i[k] != 0; }
    nd_make(out, 1, &n);
    out->dtype = dtype;
    for (k = n = 0; k < in[0].n; k++) {
        if (in[1].i[k]) { out->v[n] = in[0].v[k], out->i[n++] = in[0].i[k]; }
    }
}
static void ref_masked_fill(const op_t *op, const nd_t *in, nd_t *out) {
    int64_t k;
    int dtype = out->dtype;
    nd_make(out, in[0].nd, in[0].d);
    out->dtype = dtype;
    for (k = 0; k < out->n; k++) {
        int mask = in[1].i[nd_at(out, &in[1], k)] != 0;
        out->v[k] = mask ? op->given.f[0] : in[0].v[k];
        out->i[k] = mask ? (int64_t)op->given.f[0] : in[0].i[k];
    }
}

// -- rows that no public function has: how they are run --

// d out / d in of an op whose kernel is run in backward alone; in[1] is the incoming gradient.
static void backward_of(arguments_t *a, tensor_t *(*f)(tensor_t *x, int64_t dim)) {
    tensor_t *x, *y, *g = NULL, *grad = a->in[1];
    a->nout = 1;
    if (!a->in[0] || !a->in[1] || a->in[0]->state != TENSOR__LIVE || a->in[1]->state != TENSOR__LIVE) {
        a->out[0] = tensor_add(a->in[0], a->in[1]);
        return;
    }
    x = tensor_requires_grad_(tensor_detach(a->in[0]), 1);
    y = f(x, a->i[0]);
    if (!tensor_is_poison(y)) { tensor_autograd_grad(&y, 1, &grad, &x, 1, &g, 0); }
    a->out[0] = g ? g : y;
}
static tensor_t *prod_of(tensor_t *x, int64_t dim) { return (tensor_prod_dim)(x, dim, 0); }
static void inside_prod_backward(arguments_t *a) { backward_of(a, prod_of); }
static void inside_softmax_backward(arguments_t *a) { backward_of(a, (tensor_softmax)); }
static void inside_log_softmax_backward(arguments_t *a) { backward_of(a, (tensor_log_softmax)); }
// Their second order runs the row.
static void inside_of_slice(arguments_t *a) {
    a->out[0] = tensor_slice(a->in[0], a->i[0], a->i[1], a->i[2], a->i[3]);
    a->nout = 1;
}
static void inside_of_strided(arguments_t *a) {
    int n = a->ni / 2;
    a->out[0] = tensor_as_strided(tensor_clone(a->in[0]), a->i, a->i + n, n, a->i[2 * n]);
    a->nout = 1;
}
// y_k = a_k + b_k y_(k-1) along the last dim; i[0]: from its end.
static void inside_linear_scan(arguments_t *a) {
    tensor_t *in[2], *y = tensor_add(a->in[0], a->in[1]);
    tensor__op_t o;
    a->out[0] = y, a->nout = 1;
    if (tensor_is_poison(y)) { return; }
    if (!is_float(a->in[0]->dtype)) {
        a->out[0] = TENSOR__(fail)(TENSOR__(self)(), TENSOR_ERR_DTYPE, "linear_scan: x %t is %s", a->in[0],
                                   dname(a->in[0]->dtype));
        return;
    }
    in[0] = tensor_contiguous(a->in[0]), in[1] = tensor_contiguous(a->in[1]);
    if (!TENSOR__(begin)(&o, TENSOR__(row)(TENSOR_OP_LINEAR_SCAN), in, 2)) {
        a->out[0] = TENSOR__(poison);
        return;
    }
    memset(&o.params, 0, sizeof o.params);
    o.p = &o.params;
    o.params.rows.reverse = a->i[0];
    TENSOR__(result)(&o, in[0]->dtype, in[0]->dims, in[0]->ndim);
    a->out[0] = TENSOR__(finish)(&o);
}
// y = a^2 b by hand, differentiable twice.
static tensor_t *square_times_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    tensor_save_for_backward(ctx, 1, in[1]);
    return tensor_mul(tensor_mul(in[0], in[0]), in[1]);
}
static int square_times_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *a = tensor_saved(ctx, 0), *b = tensor_saved(ctx, 1);
    (void)n;
    if (tensor_needs_input_grad(ctx, 0)) { grads[0] = tensor_mul(g, tensor_mul(tensor_mul_scalar(a, 2), b)); }
    if (tensor_needs_input_grad(ctx, 1)) { grads[1] = tensor_mul(g, tensor_square(a)); }
    return 0;
}
static void inside_square_times(arguments_t *a) {
    static const tensor_function_t f = {"square_times", square_times_forward, square_times_backward, NULL};
    a->out[0] = tensor_apply(&f, NULL, a->in, a->nin);
    a->nout = 1;
}
static double square_times_f(const double *v, const arguments_t *a) {
    (void)a;
    return v[0] * v[0] * v[1];
}
static int64_t square_times_g(const int64_t *v, const arguments_t *a) {
    (void)a;
    return (int64_t)((uint64_t)v[0] * (uint64_t)v[0] * (uint64_t)v[1]);
}
static void ref_square_times(const op_t *op, const nd_t *in, nd_t *out) {
    op_t own = *op;
    own.f = square_times_f, own.g = square_times_g;
    ref_pointwise(&own, in, out);
}

// compare.h - whether two runs of a program agree, and what of it is left when they do not
#ifndef DIFFERENTIAL_COMPARE_H
#define DIFFERENTIAL_COMPARE_H
#include "generate.h"

TEST_FN const char *dtype_text(int dtype) {
    return dtype < 0 ? "no dtype" : tensor_dtype_name((tensor_dtype_t)dtype);
}

enum { EXACT, CLOSE, FOREIGN }; // bits; within tolerances; the same of another library

// zeros: gradients of zeros against none; loose: elements whose rounding decides
typedef struct compared_t {
    long records, elements, loose, errors, zeros;
} compared_t;
static compared_t compared;

// Largest difference of element k of record r between the run and those with noise; -1: they disagree about
// more than rounding.
TEST_FN double spread(const trace_t *const *noisy, int n, int r, int64_t k, const record_t *base) {
    double most = 0;
    int j;
    for (j = 0; j < n; j++) {
        const record_t *o = r < noisy[j]->n ? &noisy[j]->r[r] : NULL;
        if (!o || o->kind != base->kind || o->var != base->var || o->n != base->n || !o->v != !base->v) {
            return -1;
        }
        if (base->v) {
            double a = o->v[k], b = base->v[k], d = fabs(a - b);
            if (a == b || (a != a && b != b)) { continue; }
            if (d != d || d - d != 0) { return -1; }
            if (d > most) { most = d; }
        } else if (base->i && o->i[k] != base->i[k]) {
            return -1;
        }
    }
    return most;
}
TEST_FN double largest(const record_t *r) {
    double most = 0;
    int64_t k;
    for (k = 0; r->v && k < r->n; k++) {
        if (r->v[k] - r->v[k] == 0 && fabs(r->v[k]) > most) { most = fabs(r->v[k]); }
    }
    return most;
}
// What rounding alone may do to a result, as a part of the largest element around.
TEST_FN double base_tolerance(int dtype) {
    return dtype == TENSOR_F64 ? 1e-9 : dtype == TENSOR_F32 ? 3e-5 : dtype == TENSOR_F16 ? 6e-3 : 5e-2;
}
// What PyTorch computes in f64 with numbers of f32: 1/6, the trigamma function to 1e-9, Y0, Y1 to 1e-7 and J0, J1
// to 5e-7.
TEST_FN int is_coarse(const char *name) {
    return strncmp(name, "hardsigmoid", 11) == 0 || strncmp(name, "polygamma", 9) == 0 ||
           strncmp(name, "bessel_", 7) == 0;
}
// A gradient of zeros is as good as none: one of the two libraries may have it and the other not.
TEST_FN int zeros(const record_t *r) {
    int64_t k;
    for (k = 0; k < r->n; k++) {
        if (r->v ? r->v[k] != 0 : r->i[k] != 0) { return 0; }
    }
    compared.zeros++;
    return 1;
}
// a: the run in question, b: the one it is compared with. Fills what with the first difference.
TEST_FN int differ(const program_t *p, const trace_t *a, const trace_t *b, const trace_t *const *noisy,
                   int nnoisy, int how, char *what, size_t size) {
    int k, r, q, d, steps = a->steps < b->steps ? a->steps : b->steps, loose = 0, first;
    int more = 0; // gradients of zeros of a, less those of b
    const char *name;
    double scale[MAX_VALUES], coarse[MAX_VALUES], coarsest = 0;
    if (a->invalid || b->invalid) { return 0; }
    for (k = 0; k < MAX_VALUES; k++) { scale[k] = coarse[k] = 0; }
    if (a->leaked) {
        snprintf(what, size, "tensors or nodes are left alive");
        return 1;
    }
    for (first = 0; first < steps; first++) { // the first statement that only one of them took
        int same =
            how == FOREIGN ? !a->failed[first] == !b->failed[first] : a->failed[first] == b->failed[first];
        compared.errors += same && a->failed[first] != 0;
        for (r = 0; r < nnoisy && !same; r++) { loose |= !noisy[r]->failed[first] != !a->failed[first]; }
        if (!same) { break; }
        name = name_of(&p->step[first]);
        if (how == FOREIGN && a->failed[first] && name[strlen(name) - 1] == '_') {
            return 0; // PyTorch has written a part
        }
    }
    for (r = 0, q = 0; r < a->n && q < b->n; r++, q++) {
        const record_t *x = &a->r[r], *y = &b->r[q];
        const char *kind = x->kind == 'v' ? "value" : x->kind == 'f' ? "value at the end" : "gradient";
        const step_t *s = x->step >= 0 ? &p->step[x->step] : NULL;
        char where[96];
        double most, unit;
        int64_t i;
        snprintf(where, sizeof where, "%s x%d%s%s%s%s", kind, x->var, s ? " of " : "", s ? name_of(s) : "",
                 s && s->via ? " by " : "", s && s->via ? vias[s->via] : "");
        if (first < steps && (x->kind != 'v' || x->step >= first)) { break; }
        if (how == FOREIGN && x->kind == 'g' && y->kind == 'g' && x->var != y->var) {
            const record_t *extra = x->var < y->var ? x : y;
            if (zeros(extra)) {
                more += extra == x ? 1 : -1;
                r -= extra == y, q -= extra == x;
                continue;
            }
        }
        if (how == FOREIGN && x->kind == y->kind && x->var == y->var && x->there != y->there &&
            zeros(x->there ? x : y)) {
            continue;
        }
        if (x->kind != y->kind || x->var != y->var || x->there != y->there) {
            snprintf(what, size, "%s: %s against \"%c x%d\", %s", where, x->there ? "there" : "not there",
                     y->kind, y->var, y->there ? "there" : "not there");
            return 1000 + r;
        }
        if (!x->there) { continue; }
        if (x->dtype != y->dtype || x->nd != y->nd) {
            snprintf(what, size, "%s: %d-d %s against %d-d %s", where, x->nd, dtype_text(x->dtype), y->nd,
                     dtype_text(y->dtype));
            return 1000 + r;
        }
        if (x->grad != y->grad || x->leaf != y->leaf) {
            snprintf(what, size, "%s: requires grad %d, leaf %d against %d, %d", where, x->grad, x->leaf,
                     y->grad, y->leaf);
            return 1000 + r;
        }
        if (how == EXACT && (x->more != y->more || !x->made_by != !y->made_by ||
                             (x->made_by && strcmp(x->made_by, y->made_by) != 0))) {
            snprintf(what, size, "%s: made by %s (%d) against %s (%d)", where,
                     x->made_by ? x->made_by : "none", x->more, y->made_by ? y->made_by : "none", y->more);
            return 1000 + r;
        }
        for (d = 0; d < x->nd; d++) {
            if (x->dims[d] != y->dims[d]) {
                for (k = 0; k < nnoisy; k++) {   // a size may hang on a rounded value
                    if (r >= noisy[k]->n || noisy[k]->r[r].dims[d] != x->dims[d]) { return 0; }
                }
                snprintf(what, size, "%s: size %d is %lld against %lld", where, d, (long long)x->dims[d],
                         (long long)y->dims[d]);
                return 1000 + r;
            }
        }
        if (x->kind != 'g' && x->n > 0 && x->alias != y->alias) {
            snprintf(what, size, "%s: shares memory with x%d against x%d", where, x->alias, y->alias);
            return 1000 + r;
        }
        for (d = 0; d < x->nd && x->n > 1 && x->kind != 'g'; d++) {
            if (x->dims[d] > 1 && x->strides[d] != y->strides[d]) {
                snprintf(what, size, "%s: stride %d is %lld against %lld", where, d, (long long)x->strides[d],
                         (long long)y->strides[d]);
                return 1000 + r;
            }
        }
        compared.records++;
        compared.elements += x->n;
        most = largest(x);
        unit = base_tolerance(is_real(x->dtype) ? x->dtype : TENSOR_F32);
        if (s && how == FOREIGN && is_coarse(name_of(s))) { unit = base_tolerance(TENSOR_F32); }
        if (s) {
            for (k = 0; k < s->nin; k++) {
                if (s->in[k] >= 0) {
                    if (scale[s->in[k]] > most) { most = scale[s->in[k]]; }
                    if (coarse[s->in[k]] > unit) { unit = coarse[s->in[k]]; }
                }
            }
            if (unit > coarsest) { coarsest = unit; }
        } else {
            if (scale[x->var] > most) { most = scale[x->var]; }
            unit = coarsest;
        }
        coarse[x->var] = unit;
        name = s ? name_of(s) : "";
        if (*name && name[strlen(name) - 1] == '_' && s->in[0] >= 0) { coarse[s->in[0]] = unit; }
        scale[x->var] = most > 1 ? most : 1;
        for (i = 0; i < x->n; i++) {
            double wide, room;
            if (x->v ? x->v[i] == y->v[i] || (x->v[i] != x->v[i] && y->v[i] != y->v[i]) : x->i[i] == y->i[i]) {
                continue;
            }
            if (how != EXACT) {
                wide = spread(noisy, nnoisy, r, i, x);
                if (wide < 0) {
                    compared.loose++;
                    continue;
                }
                room = 200 * wide + unit * (most > 1 ? most : 1);
                if (x->v && fabs(x->v[i] - y->v[i]) <= room) { continue; }
            }
            if (x->v) {
                snprintf(what, size, "%s: element %lld is %.17g against %.17g", where, (long long)i, x->v[i],
                         y->v[i]);
            } else {
                snprintf(what, size, "%s: element %lld is %lld against %lld", where, (long long)i,
                         (long long)x->i[i], (long long)y->i[i]);
            }
            return 1000 + r;
        }
    }
    if (first < steps && !loose) {
        snprintf(what, size, "statement %d, %s: \"%.150s\" against \"%.150s\"", first,
                 name_of(&p->step[first]), a->text[first], b->text[first]);
        return first + 1;
    }
    for (; how == FOREIGN && first == steps && r < a->n && a->r[r].kind == 'g' && zeros(&a->r[r]); r++) {
        more++;
    }
    for (; how == FOREIGN && first == steps && q < b->n && b->r[q].kind == 'g' && zeros(&b->r[q]); q++) {
        more--;
    }
    if (a->n - more != b->n && !loose) {
        snprintf(what, size, "%d values against %d", a->n - more, b->n);
        return 5000;
    }
    return 0;
}

#endif

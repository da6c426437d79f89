// ops_gradients.c - gradients of the ops of ops.def: numeric ones of first and second order in every layout,
// those of every dtype and instruction set against f64's, kinks
#include "literals.h"
#include "ops_linalg.h"

static long n_grad, n_gradgrad, n_gradvalues;

static int row_grad[TENSOR_OP_COUNT], row_gradgrad[TENSOR_OP_COUNT];

typedef struct graph_t {
    const op_t *op;
    int mode, nin;
    const config_t *config;
    tensor_t *constant[OPERANDS];
} graph_t;
enum { G_PLAIN, G_PERMUTE, G_SLICE, G_EXPAND, G_MODES };

static tensor_t *graph_call(tensor_t *const *in, int n, void *user) {
    graph_t *g = (graph_t *)user;
    tensor_t *v[OPERANDS] = {0};
    int k, d;
    int64_t perm[MAXD];
    for (k = 0; k < n; k++) {
        int nd = tensor_ndim(in[k]);
        v[k] = in[k];
        if (g->constant[k]) {
            v[k] = g->constant[k];
            continue;
        }
        if (!nd) { continue; }
        if (g->mode == G_PERMUTE) {
            for (d = 0; d < nd; d++) { perm[d] = nd - 1 - d; }
            v[k] = tensor_permute_n(in[k], perm, nd);
        }
        if (g->mode == G_SLICE) { v[k] = tensor_slice(in[k], -1, 1, tensor_size(in[k], -1), 2); }
        if (g->mode == G_EXPAND) { v[k] = tensor_expand_n(in[k], g->config->in[k].dims, nd); }
    }
    return run(g->op, v);
}

// Whether this result is there (of an op with some) and has a gradient.
static int wanted(graph_t *g, tensor_t *const *in) {
    tensor_t *y;
    arguments_t a = g->op->given;
    nd_t list[OPERANDS], out;
    int k, there;
    (void)a;
    for (k = 0; k < g->nin; k++) { nd_read(&list[k], in[k]); }
    out.dtype = TENSOR_F64;
    there = 1;
    if (g->op->result > 0 && g->mode == G_PLAIN) {
        g->op->ref(g->op, list, &out);
        there = out.nd >= 0;
        nd_free(&out);
    }
    for (k = 0; k < g->nin; k++) { nd_free(&list[k]); }
    if (!there) { return 0; }
    y = graph_call(in, g->nin, g);
    return tensor_requires_grad(y);
}

static void run_grad(const op_t *op) {
    int c, v, k, d;
    if (!has_gradient(op)) { return; }
    for (c = 0; c < op->nconfigs; c++) {
        const config_t *config = &op->configs[c];
        int64_t biggest = 0, smallest = 1;
        for (k = 0; k < op->nin; k++) {
            int64_t n = 1;
            for (d = 0; d < config->in[k].nd; d++) { n *= config->in[k].dims[d]; }
            if (n > biggest) { biggest = n; }
            if (!n) { smallest = 0; }
        }
        if (biggest > 40 || !smallest) {
            continue; // central differences cost numel calls (twice numel^2 for the second)
        }
        for (v = 0; v < 8; v++) {
            // Leaf layouts C T S O N, then leaves behind a permute, a slice, an expand.
            static const int leaf[] = {LC, LT, LS, LO, LN, LC, LC, LC},
                             mode[] = {0, 0, 0, 0, 0, G_PERMUTE, G_SLICE, G_EXPAND};
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[OPERANDS] = {0};
            graph_t g = {op, mode[v], op->nin, config, {0}};
            int code, dims = 0;
            lcg_state = (uint64_t)(c * 10 + v + 7);
            for (k = 0; k < op->nin; k++) {
                config_t phys = *config;
                word_t *p = &phys.in[k];
                int own = input_dtype(p, TENSOR_F64);
                dims |= p->nd;
                if (p->nd && own == TENSOR_F64) {
                    if (mode[v] == G_PERMUTE) {
                        for (d = 0; d < p->nd; d++) { p->dims[d] = config->in[k].dims[p->nd - 1 - d]; }
                    }
                    if (mode[v] == G_SLICE) { p->dims[p->nd - 1] = config->in[k].dims[p->nd - 1] * 2 + 1; }
                    if (mode[v] == G_EXPAND) { p->dims[0] = 1; }
                }
                in[k] = tensor_detach(input(op, &phys, k, TENSOR_F64, leaf[v]));
                if (own == TENSOR_F64) {
                    tensor_requires_grad_(in[k], 1);
                } else {
                    g.constant[k] = in[k];
                }
            }
            if (!dims && v) {
                tensor_scope_end(s);
                continue;
            }
            CHECK_OK();
            if (!wanted(&g, in)) {
                tensor_scope_end(s);
                continue;
            }
            code = tensor_gradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
            n_grad++;
            row_grad[op->id]++;
            CHECK_MSG(code == 0, "%s config %d variant %d: %s", op->label, c, v, tensor_error_text());
            tensor_clear_error();
            if (biggest <= 24) {
                code = tensor_gradgradcheck(graph_call, &g, in, op->nin, 1e-6, 1e-5, 1e-3);
                n_gradgrad++;
                row_gradgrad[op->id]++;
                CHECK_MSG(code == 0, "%s config %d variant %d second order: %s", op->label, c, v,
                          tensor_error_text());
                tensor_clear_error();
            }
            tensor_scope_end(s);
        }
    }
}

// Gradients in every dtype and on every instruction set against those in f64, and the fused kernels (first
// order) against the same formula made of tensors (CREATE_GRAPH).
static void run_grad_values(const op_t *op) {
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    static const double rtol[] = {3e-5, 1e-11, 2e-2, 1e-1}, atol[] = {3e-5, 1e-11, 2e-2, 1e-1};
    static const char layouts[][OPERANDS] = {{LC, LC, LC}, {LT, LT, LT}, {LS, LC, LO}};
    int c, l, t, isa, k, flags;
    if (!has_gradient(op)) { return; }
    for (c = 0; c < op->nconfigs; c++) {
        for (l = 0; l < COUNT(layouts); l++) {
            for (t = 0; t < COUNT(dtypes); t++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *in[OPERANDS] = {0}, *wide[OPERANDS] = {0}, *got[OPERANDS], *want[OPERANDS];
                double scale = t > 1 && op->gradient_half > 0 ? op->gradient_half
                               : op->atol > 0                 ? op->atol
                                                              : 1;
                int n;
                lcg_state = (uint64_t)(c * 100 + l * 10 + t + 3);
                for (k = 0; k < op->nin; k++) {
                    in[k] = input(op, &op->configs[c], k, dtypes[t], layouts[l][k]);
                    wide[k] = is_float(in[k]->dtype) ? tensor_to(packed(in[k]), TENSOR_F64) : in[k];
                }
                if (gradients_of(op, wide, want, 0) < 0) {
                    CHECK_OK();
                    tensor_scope_end(s);
                    continue;
                }
                for (isa = 0; isa < COUNT(isas); isa++) {
                    for (flags = 0; flags <= TENSOR_CREATE_GRAPH; flags += TENSOR_CREATE_GRAPH) {
                        if (!isa_there[isa] ||
                            (flags && (l || isa < 3))) {
                            continue;
                        }
                        tensor_set_isa(isas[isa]);
                        n = gradients_of(op, in, got, flags);
                        n_gradvalues++;
                        CHECK_MSG(n >= 0, "%s config %d: %s", op->label, c, tensor_error_text());
                        tensor_clear_error();
                        for (k = 0; k < n; k++) {
                            nd_t a, b;
                            int64_t j;
                            int good = 1;
                            if (!got[k] || !want[k]) {
                                CHECK_MSG(got[k] == want[k], "%s: a gradient is there in one dtype only",
                                          op->label);
                                continue;
                            }
                            nd_read(&a, got[k]), nd_read(&b, want[k]);
                            good = a.n == b.n && a.nd == b.nd && a.dtype == dtypes[t];
                            for (j = 0; j < a.n && good; j++) {
                                good = (a.v[j] != a.v[j] && b.v[j] != b.v[j]) || a.v[j] == b.v[j] ||
                                       fabs(a.v[j] - b.v[j]) <= scale * atol[t] + rtol[t] * fabs(b.v[j]);
                            }
                            if (good) { j = 1; }
                            CHECK_MSG(good,
                                      "%s config %d layout %c %s %s%s: gradient of input %d, "
                                      "element %lld is %.9g, in f64 %.9g",
                                      op->label, c, layout_names[(int)layouts[l][0]], dname(dtypes[t]),
                                          isas[isa],
                                      flags ? " CREATE_GRAPH" : "", k, (long long)j - 1, a.v[j ? j - 1 : 0],
                                      b.v[j ? j - 1 : 0]);
                            nd_free(&a), nd_free(&b);
                        }
                    }
                }
                tensor_set_isa(NULL);
                tensor_scope_end(s);
            }
        }
    }
}

// ---- torch.linalg ----

// One row: gradcheck in every layout of x [2, 3, 3] (and b), whose values do not depend on the layout.
static void linalg_case(int id, call_t call) {
    static const int64_t dims[3] = {2, 3, 3};
    int l, k;
    for (l = 0; l < LE; l++) {
        tensor_t *in[2], *flat[2];
        for (k = 0; k < 2; k++) {
            lcg_state = (uint64_t)(l + 7 * k + 3);
            in[k] = tensor_requires_grad_(tensor_detach(make(TENSOR_F64, 3, dims, l, -2, 2, VALUES, 0)), 1);
            flat[k] = packed(in[k]);
        }
        k = TENSOR__(row)(id)->nin;
        CHECK_MSG(same_bits(call(in, k, NULL), call(flat, k, NULL)), "%s: layout %c differs",
                  TENSOR__(row)(id)->name, layout_names[l]);
        n_grad++, n_gradgrad++;
        row_grad[id] += tensor_gradcheck(call, NULL, in, k, 1e-6, 1e-5, 1e-3) == 0;
        CHECK_OK();
        row_gradgrad[id] += tensor_gradgradcheck(call, NULL, in, k, 1e-6, 1e-5, 1e-3) == 0;
        CHECK_OK();
    }
}

static void linalg_cases(void) {
    int k;
    for (k = 0; k < LINALG_CASES; k++) { linalg_case(linalg_list[k].id, linalg_list[k].call); }
    CHECK(tensor_equal(tensor_linalg_lu(tensor_reshape(tensor_arange(0, 4, 1, TENSOR_F32), 2, 2)).p,
                       tensor_rsub_scalar(tensor_eye(2, 2), 1)));       // rows swapped
}

// Gradients at kinks and of degenerate inputs.
static void kinks(void) {
    static const struct {
        const char *name;
        tensor_t *(*f)(tensor_t *);
        double x[3], g[3];
    } rows[] = {{"relu", (tensor_relu), {0, -1, NAN}, {0, 0, NAN}},
                {"abs", (tensor_abs), {0, -2, 2}, {0, -1, 1}},
                {"sqrt", (tensor_sqrt), {0, 1, 4}, {INFINITY, 0.5, 0.25}},
                {"norm", (tensor_norm), {0, 0, 0}, {0, 0, 0}},
                {"max", (tensor_max), {2, 1, 2}, {0.5, 0, 0.5}},
                {"min", (tensor_min), {2, 1, 1}, {0, 0.5, 0.5}},
                {"prod", (tensor_prod), {0, 2, 3}, {6, 0, 0}}};
    tensor_t *x, *g, *y, *z, *in[2], *out[2];
    int k;
    for (k = 0; k < COUNT(rows); k++) {
        x = tensor_requires_grad_(tensor_from(rows[k].x, TENSOR_F64, 3), 1);
        y = rows[k].f(x);
        if (tensor_ndim(y)) { y = tensor_sum(y); }
        CHECK_MSG(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0, "%s: %s", rows[k].name,
                  tensor_error_text());
        if (k == 0) {
            is_values(g,
                      (const double[]){0, 0, tensor_is_poison(g) ? 0 : ((const double *)tensor_data(g))[2]},
                      3, __LINE__);
        } else {
            is_values(g, rows[k].g, 3, __LINE__);
        }
        n_grad++;
    }
    x = tensor_requires_grad_(F32(-1, 0.5f, 1), 1);
    y = tensor_sum(tensor_clamp(x, -1, 1)); // 1 at the bounds
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 1, 1, 1);
    y = tensor_max_dim(tensor_requires_grad_(tensor_set_grad(x, NULL) ? x : x, 1), 0, 0).values;
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 1);
    x = tensor_requires_grad_(F32(2, 2, 1), 1);
    y = tensor_max_dim(x, 0, 0).values; // the chosen place alone
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 1, 0, 0);
    z = tensor_requires_grad_(F32(2, 3, 1), 1);
    in[0] = x, in[1] = z;
    y = tensor_sum(tensor_maximum(x, z)); // half each
    tensor_autograd_grad(&y, 1, NULL, in, 2, out, 0);
    IS(out[0], 0.5, 0, 0.5), IS(out[1], 0.5, 1, 0.5);
    x = tensor_requires_grad_(tensor_full(-INFINITY, 3), 1);
    y = tensor_logsumexp(x, 0, 0);
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 0);
    x = tensor_requires_grad_(F32(3, 3, 3), 1);
    y = tensor_std(x, 1);
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 0, 0);
    x = tensor_requires_grad_(F32(-1, 4, 1), 1); // a known trap, as PyTorch
    y = tensor_sum(tensor_where(tensor_gt_scalar(x, 0), tensor_sqrt(x), tensor_zeros(3)));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, NAN, 0.25, 0.5);
    x = tensor_requires_grad_(F32(0, 2, 0), 1); // pow at 0
    y = tensor_sum(tensor_pow(x, F32(2, 3, 0)));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    IS(g, 0, 12, 0);
    n_grad += 9;
}

// Rows whose functions choose their numbers, or whose first operand, here user, is a constant.
#define SPECIAL(name, ...)                                                                                   \
    static tensor_t *call_of_##name(tensor_t *const *in, int n, void *user) {                                \
        (void)n, (void)user;                                                                                 \
        return __VA_ARGS__;                                                                                  \
    }
SPECIAL(i0, tensor_i0(in[0]))
SPECIAL(i0e, tensor_i0e(in[0]))
SPECIAL(i1, tensor_i1(in[0]))
SPECIAL(i1e, tensor_i1e(in[0]))
SPECIAL(bessel_j0, tensor_bessel_j0(in[0]))
SPECIAL(bessel_j1, tensor_bessel_j1(in[0]))
SPECIAL(bessel_y0, tensor_bessel_y0(in[0]))
SPECIAL(bessel_y1, tensor_bessel_y1(in[0]))
SPECIAL(modified_bessel_k0, tensor_modified_bessel_k0(in[0]))
SPECIAL(modified_bessel_k1, tensor_modified_bessel_k1(in[0]))
SPECIAL(scaled_modified_bessel_k0, tensor_scaled_modified_bessel_k0(in[0]))
SPECIAL(scaled_modified_bessel_k1, tensor_scaled_modified_bessel_k1(in[0]))
SPECIAL(igamma, tensor_igamma((tensor_t *)user, in[0]))
SPECIAL(igammac, tensor_igammac((tensor_t *)user, in[0]))
SPECIAL(zeta, tensor_zeta((tensor_t *)user, in[0]))
static void special_cases(void) {
    static const struct { int id; call_t call; } list[] = {
        {TENSOR_OP_BESSEL_I, call_of_i0}, {TENSOR_OP_BESSEL_I, call_of_i0e}, {TENSOR_OP_BESSEL_I, call_of_i1},
        {TENSOR_OP_BESSEL_I, call_of_i1e}, {TENSOR_OP_BESSEL, call_of_bessel_j0},
        {TENSOR_OP_BESSEL, call_of_bessel_j1}, {TENSOR_OP_BESSEL, call_of_bessel_y0},
        {TENSOR_OP_BESSEL, call_of_bessel_y1}, {TENSOR_OP_BESSEL, call_of_modified_bessel_k0},
        {TENSOR_OP_BESSEL, call_of_modified_bessel_k1}, {TENSOR_OP_BESSEL, call_of_scaled_modified_bessel_k0},
        {TENSOR_OP_BESSEL, call_of_scaled_modified_bessel_k1}, {TENSOR_OP_INCOMPLETE_GAMMA, call_of_igamma},
        {TENSOR_OP_INCOMPLETE_GAMMA, call_of_igammac}, {TENSOR_OP_HURWITZ_ZETA, call_of_zeta},
    };
    int j, v, k;
    for (j = 0; j < COUNT(list); j++) {
        for (v = 0; v < 5; v++) {
            tensor_scope_t s = tensor_scope_begin();
            double values[6], constants[6];
            tensor_t *x, *constant;
            int code, id = list[j].id;
            for (k = 0; k < 6; k++) {
                values[k] = 0.35 + 0.45 * k + 0.2 * v;
                if (id == TENSOR_OP_BESSEL_I && k % 2) { values[k] *= -10; }        // both series
                if (id == TENSOR_OP_BESSEL && k % 3 == 2) { values[k] *= 15; }
                constants[k] = 1.3 + 0.5 * (5 - k);
            }
            x = tensor_requires_grad_(tensor_from(values, TENSOR_F64, 3, 2), 1);
            constant = tensor_from(constants, TENSOR_F64, 3, 2);
            if (list[j].call == call_of_i0 || list[j].call == call_of_i1) {   // of numbers of one size
                x = tensor_requires_grad_(tensor_clone(tensor_detach(tensor_clamp(x, -6, 6))), 1);
            }
            code = tensor_gradcheck(list[j].call, constant, &x, 1, 1e-6, 1e-5, 1e-3);
            CHECK_MSG(code == 0, "special %d, %d: %s", j, v, tensor_error_text());
            tensor_clear_error();
            code = tensor_gradgradcheck(list[j].call, constant, &x, 1, 1e-6, 1e-5, 1e-3);
            CHECK_MSG(code == 0, "special %d, %d, second order: %s", j, v, tensor_error_text());
            tensor_clear_error();
            row_grad[id]++, row_gradgrad[id]++;
            n_grad++, n_gradgrad++;
            tensor_scope_end(s);
        }
    }
}

static void first_and_second(void) {
    int k;
    each(run_grad);
    linalg_cases();
    special_cases();
    for (k = 0; k < TENSOR_OP_COUNT; k++) {
        if (k == TENSOR_OP_TRANSFER) { continue; }          // ops_device.c
        CHECK_MSG(!TENSOR__(row)(k)->grad || (row_grad[k] >= 5 && row_gradgrad[k] >= 5),
                  "%s: %d gradcheck and %d gradgradcheck cases, at least 5 are wanted",
                  TENSOR__(row)(k)->name, row_grad[k], row_gradgrad[k]);
    }
}
static void against_f64(void) { each(run_grad_values); }

int main(void) {
    RUN(prepare);
    RUN(first_and_second);
    RUN(against_f64);
    RUN(kinks);
    printf("%ld gradcheck cases, %ld gradgradcheck cases, %ld gradients against f64\n", n_grad, n_gradgrad,
           n_gradvalues);
    return test_report();
}

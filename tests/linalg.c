// linalg.c - einsum and its kin, decompositions, solvers and norms: against naive loops, against numbers from
// PyTorch, by what a decomposition must satisfy, by gradcheck and gradgradcheck, and by their error texts
#include "test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

// ---- helpers ----

static uint64_t seed = 1;
static double number(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 2.2204460492503131e-16 - 1;
}
static tensor_t *random_n(tensor_dtype_t dtype, const int64_t *dims, int n) {
    tensor_t *x = tensor_empty_n(dims, n, TENSOR_F64);
    double *p = (double *)tensor_data_mut(x);
    int64_t k;
    for (k = 0; k < tensor_numel(x); k++) { p[k] = number(); }
    return tensor_to(x, dtype);
}
#define R(...) random_n(TENSOR_F64, TENSOR_DIMS(__VA_ARGS__))
#define R_OF(dtype, ...) random_n(dtype, TENSOR_DIMS(__VA_ARGS__))
#define LEAF(x) tensor_requires_grad_(x, 1)
static double at(tensor_t *x, int64_t k) {
    tensor_t *c = tensor_contiguous(tensor_to(x, TENSOR_F64));
    return tensor_numel(c) > k ? ((const double *)tensor_data(c))[k] : NAN;
}
// x against literal numbers, row-major.
static void same(tensor_t *x, const double *want, int n, double tol, int line) {
    int k;
    test_note(tensor_numel(x) == n, __FILE__, line, "%lld elements, expected %d (%s)",
              (long long)tensor_numel(x), n, tensor_error_text());
    for (k = 0; k < n && tensor_numel(x) == n; k++) {
        test_near(at(x, k), want[k], tol, __FILE__, line, "element");
    }
}
#define IS(x, tol, ...)                                                                                      \
    do {                                                                                                     \
        const double want_[] = {__VA_ARGS__};                                                                \
        same(x, want_, COUNT(want_), tol, __LINE__);                                                         \
    } while (0)
static void shaped(tensor_t *x, const int64_t *dims, int n, int line) {
    int d, good = !tensor_is_poison(x) && tensor_ndim(x) == n;
    for (d = 0; good && d < n; d++) { good = tensor_size(x, d) == dims[d]; }
    test_note(good, __FILE__, line, "wrong shape (%s)", tensor_error_text());
}
#define SHAPED(x, ...) shaped(x, TENSOR_DIMS(__VA_ARGS__), __LINE__)
// Shapes equal and no element further apart than tol.
static void close_to(tensor_t *a, tensor_t *b, double tol, int line) {
    double gap;
    if (tensor_is_poison(a) || tensor_is_poison(b)) {
        test_note(0, __FILE__, line, "poison: %s", tensor_error_text());
        return;
    }
    shaped(a, tensor_shape(b).dims, tensor_ndim(b), line);
    if (tensor_numel(a) == 0 || tensor_numel(a) != tensor_numel(b)) { return; }
    gap = tensor_item(tensor_max(tensor_abs(tensor_sub(tensor_to(a, TENSOR_F64), tensor_to(b, TENSOR_F64)))));
    test_note(gap <= tol, __FILE__, line, "differ by %g, %g is allowed", gap, tol);
}
#define CLOSE(a, b, tol) close_to(a, b, tol, __LINE__)

typedef tensor_t *(*fn_t)(tensor_t *const *in, int n, void *user);
static void grads(fn_t fn, void *user, tensor_t *const *in, int n, int second, int line) {
    int code = tensor_gradcheck(fn, user, in, n, 1e-6, 1e-5, 1e-3);
    test_note(!code, __FILE__, line, "gradcheck: %s", tensor_error_text());
    tensor_clear_error();
    if (!second) { return; }
    code = tensor_gradgradcheck(fn, user, in, n, 1e-6, 1e-5, 1e-3);
    test_note(!code, __FILE__, line, "gradgradcheck: %s", tensor_error_text());
    tensor_clear_error();
}
#define GRADS(fn, user, ...)                                                                                 \
    do {                                                                                                     \
        tensor_t *const in_[] = {__VA_ARGS__};                                                               \
        grads(fn, user, in_, COUNT(in_), 1, __LINE__);                                                       \
    } while (0)

// ---- einsum ----

// The notation read once more, by one loop over all labels; the equation is explicit and has no spaces.
static tensor_t *naive(const char *equation, tensor_t *const *list, int n) {
    char label[4][9] = {{0}}, out[9] = {0}, all[64] = {0};
    int64_t size[64], od[8], total = 1, k;
    const char *s = equation;
    int i, j, d;
    tensor_t *y;
    double *p;
    for (i = 0; i <= n; i++) {
        char *l = i < n ? label[i] : out, text[9] = {0};
        int m = 0, letters = 0, dots = 0;
        for (; *s && *s != ',' && *s != '-'; s++) {
            if (*s == '.') {
                text[m] = '.', m += !dots, dots = 1;
            } else {
                text[m++] = *s, letters++;
            }
        }
        s += *s == ',' ? 1 : *s ? 2 : 0;
        for (j = d = 0; j < m; j++) {
            int e, run = i < n ? tensor_ndim(list[i]) - letters : 0;
            if (i == n) {
                for (e = 0; e < 8; e++) { run += strchr(all, '0' + e) != NULL; }
            }
            if (text[j] != '.') {
                l[d++] = text[j];
            } else {
                for (e = run; e > 0; e--) {
               l[d++] = (char)('0' + 8 - e);
           }
            }
        }
        for (j = 0; i < n && j < d; j++) {
            char *at_ = strchr(all, l[j]);
            if (!at_) { at_ = all + strlen(all), *at_ = l[j], size[at_ - all] = 1; }
            if (tensor_size(list[i], j) != 1) { size[at_ - all] = tensor_size(list[i], j); }
        }
    }
    for (j = 0; all[j]; j++) { total *= size[j]; }
    for (j = 0; out[j]; j++) { od[j] = size[strchr(all, out[j]) - all]; }
    y = tensor_zeros_n(od, (int)strlen(out), TENSOR_F64);
    p = (double *)tensor_data_mut(y);
    for (k = 0; k < total; k++) {
        int64_t index[64], rest = k, to = 0;
        double v = 1;
        for (j = (int)strlen(all) - 1; j >= 0; j--) { index[j] = rest % size[j], rest /= size[j]; }
        for (i = 0; i < n; i++) {
            int64_t from = 0;
            tensor_t *x = list[i];
            for (j = 0; label[i][j]; j++) {
                if (tensor_size(x, j) != 1) {
                    from += index[strchr(all, label[i][j]) - all] * tensor_stride(x, j);
                }
            }
            v *= ((const double *)tensor_data(x))[from];
        }
        for (j = 0; out[j]; j++) { to = to * od[j] + index[strchr(all, out[j]) - all]; }
        p[to] += v;
    }
    return y;
}
static tensor_t *fn_einsum(tensor_t *const *in, int n, void *user) {
    return tensor_einsum_n((const char *)user, in, n);
}
static void einsum(void) {
    // equation, the same for the naive loop, shapes (0 ends a shape)
    static const struct { const char *text, *plain; int64_t d[3][6]; } cases[] = {
        {"ij,jk->ik", "ij,jk->ik", {{2, 3}, {3, 4}}},
        {"ij,jk", "ij,jk->ik", {{2, 3}, {3, 4}}},
        {" i j , k j -> k i ", "ij,kj->ki", {{2, 3}, {4, 3}}},
        {"bij,bjk->bik", "bij,bjk->bik", {{2, 2, 3}, {2, 3, 2}}},
        {"bij,kj", "bij,kj->bik", {{2, 2, 3}, {4, 3}}},
        {"ba", "ba->ab", {{2, 3}}},
        {"aB", "aB->Ba", {{2, 3}}},
        {"ij->", "ij->", {{2, 3}}},
        {"ij->i", "ij->i", {{2, 3}}},
        {"ii", "ii->", {{3, 3}}},
        {"ii->i", "ii->i", {{3, 3}}},
        {"iijj->ij", "iijj->ij", {{2, 2, 3, 3}}},
        {"iii->i", "iii->i", {{3, 3, 3}}},
        {"iji->j", "iji->j", {{3, 2, 3}}},
        {"i,j->ij", "i,j->ij", {{3}, {2}}},
        {"i,i", "i,i->", {{3}, {3}}},
        {"i,i->i", "i,i->i", {{3}, {3}}},
        {"ij,j", "ij,j->i", {{2, 3}, {3}}},
        {"...ij->...ji", "...ij->...ji", {{2, 1, 3, 2}}},
        {"...ij,...jk->...ik", "...ij,...jk->...ik", {{2, 1, 2, 3}, {2, 3, 2}}},
        {"...ij,...jk", "...ij,...jk->...ik", {{2, 1, 2, 3}, {3, 3, 2}}},
        {"i...,j...->...ij", "i...,j...->...ij", {{2, 3}, {3, 2, 1}}},
        {"...,...", "...,...->...", {{2, 3}, {3}}},
        {"...i->...", "...i->...", {{2, 3, 2}}},
        {"...i->i", "...i->i", {{2, 3, 2}}},
        {"ij,ij->ij", "ij,ij->ij", {{2, 3}, {1, 3}}},
        {"ij,ij->i", "ij,ij->i", {{2, 3}, {2, 1}}},
        {"ij,jk,kl->il", "ij,jk,kl->il", {{2, 3}, {3, 2}, {2, 4}}},
        {"i,ij,j", "i,ij,j->", {{2}, {2, 3}, {3}}},
        {"ij,kj,ik->j", "ij,kj,ik->j", {{2, 3}, {4, 3}, {2, 4}}},
        {"abcd,bd,ce->eab", "abcd,bd,ce->eab", {{2, 2, 3, 2}, {2, 2}, {3, 2}}},
        {"bhqd,bhkd->bhqk", "bhqd,bhkd->bhqk", {{1, 2, 3, 2}, {1, 2, 2, 2}}},
        {"ik,jkl,il->ij", "ik,jkl,il->ij", {{2, 3}, {2, 3, 2}, {2, 2}}},
    };
    int c, i, n, d;
    for (c = 0; c < COUNT(cases); c++) {
        tensor_t *in[3], *strided[3], *want;
        for (n = 0; n < 3 && cases[c].d[n][0]; n++) {
            for (d = 0; d < 6 && cases[c].d[n][d]; d++) { }
            in[n] = LEAF(random_n(TENSOR_F64, cases[c].d[n], d));
            strided[n] = in[n];
            if (d > 1) {
                strided[n] = tensor_transpose(tensor_contiguous(tensor_transpose(in[n], 0, -1)), 0, -1);
            }
        }
        want = naive(cases[c].plain, in, n);
        CLOSE(tensor_einsum_n(cases[c].text, in, n), want, 1e-12);
        CLOSE(tensor_einsum_n(cases[c].text, strided, n), want, 1e-12);
        grads(fn_einsum, (void *)(uintptr_t)cases[c].text, in, n, tensor_numel(want) < 20, __LINE__);
        for (i = 0; i < n; i++) { in[i] = tensor_to(in[i], TENSOR_F32); }
        CLOSE(tensor_einsum_n(cases[c].text, in, n), want, 1e-5);
    }
    {   // other dtypes, 0-d, sizes of 0
        tensor_t *x = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I64), 2, 3), *h = tensor_to(x, TENSOR_F16);
        IS(tensor_einsum("ij,kj->ik", x, x), 0, 5, 14, 14, 50);
        CHECK(tensor_dtype(tensor_einsum("ij,kj->ik", x, x)) == TENSOR_I64);
        IS(tensor_einsum("ij,kj->ik", h, h), 0, 5, 14, 14, 50);
        CHECK(tensor_dtype(tensor_einsum("ij,kj->ik", h, h)) == TENSOR_F16);
        IS(tensor_einsum(",i->i", tensor_scalar(2, TENSOR_F64),
                         tensor_to(tensor_select(x, 0, 1), TENSOR_F64)),
           0, 6, 8, 10);
        IS(tensor_einsum("", tensor_scalar(2, TENSOR_F64)), 0, 2);
        SHAPED(tensor_einsum("ij,jk->ik", R(0, 3), R(3, 2)), 0, 2);
        IS(tensor_einsum("ij,jk->ik", R(2, 0), R(0, 2)), 0, 0, 0, 0, 0);
        IS(tensor_einsum("ij->j", R(0, 2)), 0, 0, 0);
    }
    CHECK_POISON(tensor_einsum("ij,jk->ik", R(2, 3), R(4, 2)), TENSOR_ERR_SHAPE,
                 "einsum: dim 0 of tensor 1 [4,2] does not fit the size 3");
    CHECK_POISON(tensor_einsum("ij", R(2)), TENSOR_ERR_SHAPE, "einsum: tensor 0 [2] has 1 dims");
    CHECK_POISON(tensor_einsum("i", R(2, 2)), TENSOR_ERR_SHAPE, "names 1");
    CHECK_POISON(tensor_einsum("i", R(2), R(2)), TENSOR_ERR_FORMAT, "must have 2 terms");
    CHECK_POISON(tensor_einsum("i,i", R(2)), TENSOR_ERR_FORMAT, "must have 1 terms");
    CHECK_POISON(tensor_einsum("i->ij", R(2)), TENSOR_ERR_FORMAT, "is not a label of the inputs");
    CHECK_POISON(tensor_einsum("i->ii", R(2)), TENSOR_ERR_FORMAT, "occurs twice");
    CHECK_POISON(tensor_einsum("i-i", R(2)), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_einsum("i1->i", R(2, 2)), TENSOR_ERR_FORMAT, "cannot read \"1->i\"");
    CHECK_POISON(tensor_einsum("i..->i", R(2, 2)), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_einsum("ii", R(2, 3)), TENSOR_ERR_SHAPE, "einsum");
    CHECK_POISON(tensor_einsum("abcde,fghij", R(1, 1, 1, 1, 1), R(1, 1, 1, 1, 1)), TENSOR_ERR_SHAPE,
                 "10 dims");
    CHECK_POISON(tensor_einsum("i,i", R(2), R_OF(TENSOR_F32, 2)), TENSOR_ERR_DTYPE, "einsum");
    CHECK_POISON(tensor_einsum_n("i", NULL, 1), TENSOR_ERR_FORMAT, "einsum: list is NULL");
}

// ---- products ----

static tensor_t *fn_product(tensor_t *const *in, int n, void *user) {
    switch (((const char *)user)[0]) {
    case 'd': return tensor_tensordot(in[0], in[1], 2);
    case 'l': {
        static const int64_t da[2] = {2, 0}, db[2] = {0, -1};
        return tensor_tensordot_dims(in[0], in[1], da, db, 2);
    }
    case 'i': return tensor_inner(in[0], in[1]);
    case 'b': return tensor_baddbmm(in[0], in[1], in[2], 0.5, 2);
    case 's': return tensor_addbmm(in[0], in[1], in[2], 0.5, 2);
    case 'v': return tensor_addmv(in[0], in[1], in[2], 0.5, 2);
    case 'r': return tensor_addr(in[0], in[1], in[2], 0.5, 2);
    case 'm': return tensor_linalg_multi_dot_n(in, n);
    case 'k': return tensor_kron(in[0], in[1]);
    case 'c': return tensor_linalg_cross(in[0], in[1], -1);
    case 't': return tensor_trace(in[0]);
    default: return tensor_vdot(in[0], in[1]);
    }
}
#define PRODUCT(name, ...) GRADS(fn_product, (void *)(uintptr_t)name, __VA_ARGS__)
static void products(void) {
    tensor_t *a = LEAF(R(2, 3, 2)), *b = LEAF(R(3, 2, 4)), *c = LEAF(R(2, 2, 2)), *m = LEAF(R(3, 4));
    tensor_t *v = LEAF(R(3)), *w = LEAF(R(4)), *list[4], *h;
    static const int64_t da[2] = {2, 0}, db[2] = {0, -1}, one[1] = {0}, twice[2] = {0, 0};
    CLOSE(tensor_tensordot(a, b, 2), tensor_einsum("abc,bcd->ad", a, b), 1e-12);
    CLOSE(tensor_tensordot_dims(a, c, da, db, 2), tensor_einsum("abc,cda->bd", a, c), 1e-12);
    CLOSE(tensor_tensordot(v, w, 0), tensor_outer(v, w), 1e-12);
    CLOSE(tensor_tensordot(R(2, 0), R(0, 3), 1), tensor_zeros_of(TENSOR_F64, 2, 3), 0);
    CLOSE(tensor_tensordot(tensor_scalar(2, TENSOR_F64), v, 0), tensor_mul_scalar(v, 2), 0);
    CLOSE(tensor_inner(a, c), tensor_einsum("abc,dec->abde", a, c), 1e-12);
    CLOSE(tensor_inner(a, tensor_scalar(3, TENSOR_F64)), tensor_mul_scalar(a, 3), 0);
    CLOSE(tensor_inner(v, v), tensor_dot(v, v), 1e-12);
    CLOSE(tensor_vdot(v, v), tensor_dot(v, v), 0);
    CLOSE(tensor_linalg_vecdot(c, tensor_ones_of(TENSOR_F64, 2), -1), tensor_sum_dim(c, -1, 0), 1e-12);
    CLOSE(tensor_linalg_vecdot(c, c, 0), tensor_sum_dim(tensor_square(c), 0, 0), 1e-12);
    h = tensor_ones_of(TENSOR_I32, 2);
    CHECK(tensor_dtype(tensor_linalg_vecdot(h, h, 0)) == TENSOR_I32);
    CHECK_POISON(tensor_linalg_vecdot(v, w, 0), TENSOR_ERR_SHAPE, "linalg_vecdot: mul: ");
    CHECK_POISON(tensor_linalg_vecdot(v, v, 1), TENSOR_ERR_INDEX, "linalg_vecdot: sum: dim 1");
    CLOSE(tensor_baddbmm(R(1, 1), a, c, 0, 2), tensor_mul_scalar(tensor_bmm(a, c), 2), 1e-12);
    CLOSE(tensor_addbmm(tensor_ones_of(TENSOR_F64, 2), a, c, 0.5, 2),
          tensor_add_scalar(tensor_mul_scalar(tensor_einsum("bij,bjk->ik", a, c), 2), 0.5), 1e-12);
    CLOSE(tensor_addmv(v, m, w, 1, 1), tensor_add(v, tensor_mv(m, w)), 1e-12);
    CLOSE(tensor_addr(m, v, w, 1, 1), tensor_add(m, tensor_outer(v, w)), 1e-12);
    h = tensor_addr(tensor_full_like(m, 1 / 3.0), tensor_to(v, TENSOR_BF16), tensor_to(w, TENSOR_BF16), 1, 0);
    CHECK(tensor_dtype(h) == TENSOR_F64 && tensor_item(tensor_at(h, "0, 0")) == 1 / 3.0);
    CHECK(tensor_dtype(tensor_addr(tensor_ones(3, 4), h = tensor_ones_of(TENSOR_I64, 3),
                                   tensor_ones_of(TENSOR_I64, 4), 0, 1)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_addr(tensor_ones(3, 4), tensor_to(h, TENSOR_BF16), w, 1, 1)) == TENSOR_F64);
    {   // beta 0: x is not looked at, and still gets its gradient, of zeros
        tensor_t *x = tensor_requires_grad_(tensor_full(NAN, 3), 1), *y;
        y = tensor_addmm(x, tensor_ones(3, 2), tensor_ones(2, 3), 0, 1);
        CHECK(tensor_requires_grad(y) && tensor_item(tensor_sum(y)) == 18);
        CHECK(tensor_backward(tensor_sum(y)) == 0 && tensor_equal(tensor_grad(x), tensor_zeros(3)));
    }
    CHECK_POISON(tensor_addmm(tensor_ones(3, 3), tensor_ones_of(TENSOR_BF16, 3, 2), tensor_ones(2, 3), 1, 1),
                 TENSOR_ERR_DTYPE, "bf16");
    CHECK_POISON(tensor_addmm(tensor_ones_of(TENSOR_F64, 3, 3), tensor_ones_of(TENSOR_BF16, 3, 2),
                              tensor_ones_of(TENSOR_BF16, 2, 3), 1, 1),
                 TENSOR_ERR_DTYPE, "must be bf16 as a [");
    h = tensor_addmv(tensor_to(v, TENSOR_BF16), tensor_to(m, TENSOR_BF16), tensor_to(w, TENSOR_BF16), 1, 1);
    CHECK(tensor_dtype(h) == TENSOR_BF16);
    list[0] = w, list[1] = tensor_mT(m), list[2] = LEAF(R(3, 2)), list[3] = LEAF(R(2));
    CLOSE(tensor_linalg_multi_dot_n(list, 4),
          tensor_dot(tensor_mv(tensor_mT(list[2]), tensor_mv(m, w)), list[3]), 1e-12);
    CLOSE(tensor_chain_matmul(m, tensor_mT(m), m), tensor_mm(m, tensor_mm(tensor_mT(m), m)), 1e-12);
    {   // the order matters: 1 x 200 by 200 x 1 by 1 x 200 never makes a 200 x 200 matrix
        tensor_t *p = R(200, 1), *q = R(1, 200);
        CLOSE(tensor_linalg_multi_dot(q, p, q, p), tensor_mm(tensor_mm(q, p), tensor_mm(q, p)), 1e-9);
    }
    IS(tensor_kron(tensor_reshape(tensor_arange(1, 5, 1, TENSOR_F32), 2, 2),
                   tensor_arange(1, 3, 1, TENSOR_F32)),
       0, 1, 2, 2, 4, 3, 6, 4, 8);
    SHAPED(tensor_kron(R(2, 3), R(2, 2, 2)), 2, 4, 6);
    SHAPED(tensor_kron(R(0, 3), R(2, 2)), 0, 6);
    IS(tensor_cross(tensor_arange(1, 4, 1, TENSOR_F32), tensor_arange(4, 7, 1, TENSOR_F32), 0), 0, -3, 6, -3);
    SHAPED(tensor_linalg_cross(R(2, 1, 3), R(1, 4, 3), -1), 2, 4, 3);
    IS(tensor_linalg_cross(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I32), 3, 2),
                           tensor_reshape(tensor_arange(1, 7, 1, TENSOR_I32), 3, 2), 0),
       0, -2, -2, 4, 4, -2, -2);
    IS(tensor_trace(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I32), 2, 3)), 0, 4);
    CHECK(tensor_dtype(tensor_trace(tensor_ones_of(TENSOR_I32, 2, 2))) == TENSOR_I64);
    IS(tensor_trace(R(0, 3)), 0, 0);
    PRODUCT("d", a, b);
    PRODUCT("l", a, c);
    PRODUCT("i", a, c);
    PRODUCT("v", v, m, w);
    PRODUCT("r", m, v, w);
    PRODUCT("b", LEAF(R(3, 1)), a, c);
    PRODUCT("s", LEAF(R(2)), a, c);
    PRODUCT("m", LEAF(R(2, 3)), LEAF(R(3, 2)), LEAF(R(2, 2)), LEAF(R(2)));
    PRODUCT("k", LEAF(R(2, 2)), LEAF(R(1, 2, 3)));
    PRODUCT("c", LEAF(R(2, 3)), LEAF(R(1, 3)));
    PRODUCT("t", LEAF(R(2, 3)));
    PRODUCT("t", LEAF(R(4, 3)));
    PRODUCT("-", v, LEAF(R(3)));
    CHECK_POISON(tensor_tensordot(a, b, 3), TENSOR_ERR_SHAPE, "tensordot: dim 0 of a [2,3,2]");
    CHECK_POISON(tensor_tensordot(a, b, 4), TENSOR_ERR_SHAPE, "have no 4 dims to sum");
    CHECK_POISON(tensor_tensordot(a, b, -1), TENSOR_ERR_SHAPE, "have no -1 dims to sum");
    CHECK_POISON(tensor_tensordot_dims(c, c, twice, db, 2), TENSOR_ERR_INDEX, "appears twice");
    CHECK_POISON(tensor_tensordot_dims(a, m, one, one, 1), TENSOR_ERR_SHAPE, "do not agree");
    CHECK_POISON(tensor_tensordot_dims(v, m, da, one, 1), TENSOR_ERR_INDEX, "tensordot_dims: dim 2");
    CHECK_POISON(tensor_tensordot_dims(v, m, NULL, one, 1), TENSOR_ERR_SHAPE, "dims_a is NULL, must have 1");
    CHECK_POISON(tensor_tensordot_dims(v, m, one, NULL, 1), TENSOR_ERR_SHAPE, "dims_b is NULL, must have 1");
    CHECK_POISON(tensor_inner(v, w), TENSOR_ERR_SHAPE, "inner: the last dims of a [3] and b [4]");
    CHECK_POISON(tensor_baddbmm(R(3), a, c, 1, 1), TENSOR_ERR_SHAPE, "baddbmm: x [3] does not broadcast");
    CHECK_POISON(tensor_addbmm(v, a, b, 1, 1), TENSOR_ERR_SHAPE, "addbmm: a [2,3,2] and b [3,2,4]");
    CHECK_POISON(tensor_addmv(w, m, w, 1, 1), TENSOR_ERR_SHAPE, "addmv: x [4] does not broadcast");
    CHECK_POISON(tensor_addmv(v, m, v, 1, 1), TENSOR_ERR_SHAPE, "addmv: ");
    CHECK_POISON(tensor_addr(m, m, w, 1, 1), TENSOR_ERR_SHAPE, "outer: a [3,4]");
    CHECK_POISON(tensor_vdot(v, w), TENSOR_ERR_SHAPE, "K (3 vs 4)");
    CHECK_POISON(tensor_linalg_multi_dot(m), TENSOR_ERR_SHAPE, "linalg_multi_dot: n 1 must be at least 2");
    CHECK_POISON(tensor_linalg_multi_dot(m, m), TENSOR_ERR_SHAPE, "tensors 0 [3,4] and 1 [3,4] do not agree");
    CHECK_POISON(tensor_chain_matmul(m, w), TENSOR_ERR_SHAPE, "chain_matmul: tensor 1 [4] must be a matrix");
    CHECK_POISON(tensor_kron(R(1, 1, 1, 1, 1), m), TENSOR_ERR_SHAPE, "more than 4 dims");
    CHECK_POISON(tensor_linalg_cross(v, w, 0), TENSOR_ERR_SHAPE,
                 "linalg_cross: a [3] and b [4] must have size 3");
    CHECK_POISON(tensor_cross(v, v, 1), TENSOR_ERR_INDEX, "cross: dim 1");
    CHECK_POISON(tensor_trace(v), TENSOR_ERR_SHAPE, "trace: x [3] must have 2 dims");
}

// ---- torch.linalg: values ----

static const double A3[] = {2, -1, 0.5, 1, 3, -2, 0.25, 1.5, 4}, B3[] = {1, 2, 3, 4, 5, 6},
                    T3[] = {1, 2, 3, 4, 2, -1, 0, 1, 0.5, 0.25, -3, 2};
#define FROM(p, ...) tensor_from(p, TENSOR_F64, __VA_ARGS__)
static tensor_t *gram(tensor_t *x) { return tensor_matmul(x, tensor_mT(x)); }
static tensor_t *eye(int64_t n) { return tensor_to(tensor_eye(n, n), TENSOR_F64); }
// x with 4 on its diagonal added: far from singular.
static tensor_t *heavy(tensor_t *x) {
    return tensor_add(x, tensor_mul_scalar(eye(tensor_size(x, -1)), 4));
}

// Numbers from PyTorch, in f64 and f32, from a transposed copy too.
static void values(void) {
    int v;
    for (v = 0; v < 3; v++) {
        tensor_t *a = FROM(A3, 3, 3), *b = FROM(B3, 3, 2), *t = FROM(T3, 3, 4), *s = gram(a), *y, *l;
        tensor_lu_factor_t lu;
        tensor_slogdet_t d;
        tensor_qr_t q;
        tensor_lstsq_t ls;
        double tol = v == 1 ? 4e-5 : 1e-8;
        static const int64_t both[2] = {0, 1}, one[1] = {1};
        if (v == 1) {
            a = tensor_to(a, TENSOR_F32), b = tensor_to(b, TENSOR_F32), t = tensor_to(t, TENSOR_F32);
            s = tensor_to(s, TENSOR_F32);
        }
        if (v == 2) {
            a = tensor_mT(tensor_contiguous(tensor_mT(a))), b = tensor_mT(tensor_contiguous(tensor_mT(b)));
            t = tensor_mT(tensor_contiguous(tensor_mT(t))), s = tensor_mT(tensor_contiguous(tensor_mT(s)));
        }
        l = tensor_linalg_cholesky(s, 0);
        CHECK(tensor_dtype(l) == tensor_dtype(a));
        IS(l, tol, 2.291287847, 0, 0, -0.8728715609, 3.638419332, 0, 0.4364357805, -0.7885423193,
           4.183327004);
        CLOSE(tensor_cholesky(s, 1), tensor_mT(l), tol);
        CLOSE(tensor_linalg_cholesky(tensor_tril(s, 0), 0), l, 0);      // the other triangle is not read
        CLOSE(tensor_linalg_cholesky(tensor_triu(s, 0), 1), tensor_mT(l), 0);
        y = tensor_cholesky_solve(b, l, 0);
        IS(y, tol, 0.2535938644, 0.4769722897, 0.3240323223, 0.4420806516, 0.3166968564, 0.3800567824);
        CLOSE(tensor_cholesky_solve(b, tensor_mT(l), 1), y, tol);
        IS(tensor_cholesky_inverse(l, 0), tol, 0.2021042895, 0.02744055189, -0.006166416156, 0.02744055189,
           0.07822355828, 0.01238421911, -0.006166416156, 0.01238421911, 0.05714212305);
        IS(tensor_linalg_solve(a, b), tol, 0.9103942652, 1.491039427, 1.193548387, 1.419354839, 0.7455197133,
           0.8745519713);
        IS(tensor_linalg_solve(a, tensor_select(b, 1, 0)), tol, 0.9103942652, 1.193548387, 0.7455197133);
        y = tensor_linalg_inv(a);
        IS(y, tol, 0.4301075269, 0.1362007168, 0.01433691756, -0.1290322581, 0.2258064516, 0.1290322581,
           0.02150537634, -0.09318996416, 0.2007168459);
        CLOSE(tensor_inverse(a), y, 0);
        IS(tensor_linalg_det(a), 10 * tol, 34.875);
        IS(tensor_det(a), 10 * tol, 34.875);
        d = tensor_linalg_slogdet(tensor_neg(a));
        IS(d.sign, 0, -1);
        IS(d.logabsdet, tol, 3.55177024);
        d = tensor_slogdet(a);
        IS(d.sign, 0, 1);
        IS(tensor_logdet(a), tol, 3.55177024);
        IS(tensor_logdet(tensor_neg(a)), 0, NAN);
        lu = tensor_linalg_lu_factor(tensor_mT(t));
        IS(lu.lu, tol, 4, 1, 2, 0.25, 1.75, 0, 0.75, -0.4285714286, -4.5, 0.5, -0.8571428571, 0.1666666667);
        IS(lu.pivots, 0, 4, 4, 3);
        CHECK(tensor_dtype(lu.pivots) == TENSOR_I32);
        lu = tensor_linalg_lu_factor(a);
        CLOSE(tensor_linalg_lu_solve(lu.lu, lu.pivots, b), tensor_linalg_solve(a, b), tol);
        CLOSE(tensor_lu_solve(b, lu.lu, lu.pivots), tensor_linalg_solve(a, b), tol);
        q = tensor_linalg_qr(t, NULL);
        IS(q.q, tol, -0.4364357805, 0.8785651659, -0.1940285, -0.8728715609, -0.4657453891, -0.145521375,
           -0.2182178902, 0.1058512248, 0.9701425001);
        IS(q.r, tol, -2.291287847, -0.05455447256, -0.6546536707, -3.055050463, 0, 2.249338527, 2.318141823,
           3.260217724, 0, 0, -3.492513001, 1.018649625);
        q = tensor_qr(tensor_mT(t));
        IS(q.r, tol, -5.477225575, -0.7302967433, 0, 0, 2.338090389, 1.176173519, 0, 0, 3.453855216);
        y = tensor_linalg_qr(tensor_mT(t), "r").r;
        CHECK(tensor_linalg_qr(tensor_mT(t), "r").q == NULL);
        CLOSE(y, q.r, 0);
        q = tensor_linalg_qr(tensor_mT(t), "complete");
        IS(tensor_abs(tensor_select(q.q, 1, 3)), tol, 0.5595632076, 0.7121713552, 0.1186952259, 0.4069550601);
        {
            tensor_svd_t d = tensor_svd(t);
            CLOSE(tensor_matmul(tensor_mul(d.u, d.s), tensor_mT(d.v)), t, tol);
        }
        IS(tensor_linalg_svdvals(t), tol, 5.537191236, 3.760211009, 2.124341399);
        IS(tensor_linalg_eigvalsh(s, 0), 4 * tol, 4.807901538, 12.47298246, 20.281616);
        IS(tensor_linalg_eigvalsh(tensor_triu(s, 0), 1), 4 * tol, 4.807901538, 12.47298246, 20.281616);
        y = tensor_linalg_pinv(t, -1);
        IS(y, tol, -0.01466359977, 0.3599769983, -0.03680276021, 0.1025493579, -0.269120184, 0.07437224459,
           0.09401955147, 0.044853364, -0.2346175963, 0.1318765574, 0.01092581944, 0.147977765);
        CLOSE(tensor_pinverse(t), y, tol);
        IS(tensor_linalg_matrix_exp(a), 10 * tol, 7.655056883, 2.317321907, 21.11314447, -0.3806431745,
           -13.06071299, -34.09893084, 14.4299297, 26.5425375, 14.64048547);
        IS(tensor_mul_scalar(tensor_matrix_exp(tensor_mul_scalar(a, 10)), 1e-10), 1e4 * tol, 1717.237531,
           2152.341458, -1146.879628, -2158.490058, -376.6922282, 4427.654914, -585.7370135, -3323.815485,
           -2624.336984);
        ls = tensor_linalg_lstsq(tensor_mT(t), tensor_to(tensor_reshape(tensor_at(FROM(T3, 12), "0:4"), 4, 1),
                                                         tensor_dtype(t)));
        IS(ls.solution, tol, 1, 0, 0);
        IS(ls.residuals, tol, 0);
        {
            static const double rhs[] = {1, 2, 3, -4};
            tensor_t *r = tensor_to(FROM(rhs, 4, 1), tensor_dtype(t));
            ls = tensor_linalg_lstsq(tensor_mT(t), r);
            IS(ls.solution, tol, -0.05501245927, -0.08740655549, -1.18382212);
            y = tensor_sub(tensor_matmul(tensor_mT(t), ls.solution), r);
            CLOSE(ls.residuals, tensor_sum_dim(tensor_mul(y, y), 0, 0), 10 * tol);
        }
        ls = tensor_linalg_lstsq(t, b);
        IS(ls.solution, tol, 0.881253594, 1.189764232, -0.3329499712, -0.4251485528, -0.9445083381,
           -1.040253019, 0.9045428407, 1.195322983);
        SHAPED(ls.residuals, 0);
        IS(tensor_linalg_matrix_power(a, 5), 100 * tol, 62.65625, 252.453125, 523.8828125, -195.921875,
           -726.84375, -625.71875, 375.0039062, 497.5546875, -103.0625);
        IS(tensor_matrix_power(a, -2), tol, 0.1677265194, 0.08799989723, 0.02661836307, -0.08185917447,
           0.02138975604, 0.05318533935, 0.02559062705, -0.03681864313, 0.02857106152);
        CLOSE(tensor_matrix_power(a, 0), eye(3), 0);
        CLOSE(tensor_matrix_power(a, 1), a, 0);
        CHECK(tensor_data(tensor_matrix_power(a, 1)) != tensor_data(a));
        {
            static const struct { const char *ord; double norm, cond; } norms[] = {
                {NULL, 7.022285953, 2.053872572}, {"fro", 7.022285953, 3.560367366},
                {"nuc", 11.42174364, 9.831666112}, {"1", 7, 3.774193548}, {"-1", 3.25, 1.11827957},
                {"2", 5.537191236, 2.053872572}, {"-2", 2.124341399, 0.486885123}, {"inf", 10, 3.483870968},
                {"-inf", 4, 1.103942652}};
            static const struct { double ord, rows[3], all; } vectors[] = {
                {0, {4, 3, 4}, 11}, {1, {10, 4, 5.75}, 19.75},
                {2, {5.477225575, 2.449489743, 3.64862988}, 7.022285953},
                {3, {4.641588834, 2.15443469, 3.275441348}, 5.255285682},
                {0.5, {37.77656571, 11.65685425, 18.95184038}, 193.5951963},
                {-1, {0.48, 0, 0.1463414634}, 0}, {(double)INFINITY, {4, 2, 3}, 4},
                {-(double)INFINITY, {1, 0, 0.25}, 0}};
            int k;
            for (k = 0; k < COUNT(norms); k++) {
                CHECK_NEAR(tensor_item(tensor_linalg_matrix_norm(t, norms[k].ord, -2, -1, 0)), norms[k].norm,
                           4 * tol);
                CHECK_NEAR(tensor_item(tensor_linalg_norm(t, norms[k].ord, NULL, 0, 0)), norms[k].norm,
                           4 * tol);
                CHECK_NEAR(tensor_item(tensor_linalg_cond(a, norms[k].ord)), norms[k].cond, 10 * tol);
            }
            for (k = 0; k < COUNT(vectors); k++) {
                char text[32];
                sprintf(text, "%g", vectors[k].ord);
                same(tensor_linalg_vector_norm(t, vectors[k].ord, one, 1, 0), vectors[k].rows, 3, 10 * tol,
                     __LINE__);
                same(tensor_linalg_norm(t, text, one, 1, 1), vectors[k].rows, 3, 10 * tol, __LINE__);
                CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(t, vectors[k].ord, NULL, 0, 0)),
                           vectors[k].all, 100 * tol);
            }
            CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(t, 2.5, both, 2, 0)), 5.866427565, tol);
            SHAPED(tensor_linalg_vector_norm(t, 2, one, 1, 1), 3, 1);
            SHAPED(tensor_linalg_vector_norm(t, 1, NULL, 0, 1), 1, 1);
            SHAPED(tensor_linalg_matrix_norm(R(2, 3, 4, 5), "nuc", 3, 1, 1), 2, 1, 4, 1);
            y = R(2, 3, 4, 5);
            CLOSE(tensor_linalg_matrix_norm(y, "1", 3, 1, 0),
                  tensor_linalg_matrix_norm(tensor_permute(y, 0, 2, 3, 1), "1", -2, -1, 0), 0);
            CLOSE(tensor_linalg_vector_norm(y, 2, both, 2, 0), tensor_linalg_norm(y, "fro", both, 2, 0),
                  1e-12);
            CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(tensor_to(t, TENSOR_F16), 1, NULL, 0, 0)), 19.75,
                       0.02);
        }
    }
    IS(tensor_linalg_cond(tensor_ones(2, 2), "1"), 0, INFINITY);
    IS(tensor_linalg_matrix_rank(FROM(T3, 3, 4), -1), 0, 3);
    IS(tensor_linalg_matrix_rank(tensor_ones(3, 4), -1), 0, 1);
    IS(tensor_linalg_matrix_rank(tensor_zeros(2, 3, 4), -1), 0, 0, 0);
    IS(tensor_linalg_matrix_rank(FROM(T3, 3, 4), 0.5), 0, 2);
    CHECK(tensor_dtype(tensor_linalg_matrix_rank(tensor_ones(3, 4), -1)) == TENSOR_I64);
    CLOSE(tensor_linalg_pinv(tensor_ones(3, 2), -1), tensor_full(1.0 / 6, 2, 3), 1e-6);    // not of full rank
    {   // singular matrices have determinants
        tensor_slogdet_t d = tensor_linalg_slogdet(tensor_ones(2, 2));
        IS(d.sign, 0, 0);
        IS(d.logabsdet, 0, -INFINITY);
        IS(tensor_logdet(tensor_zeros(2, 2)), 0, -INFINITY);
        IS(tensor_linalg_lu_factor(tensor_zeros(2, 2)).pivots, 0, 1, 2);
        // and no inverse, which is the gradient of the logarithm: others of the batch have theirs
        static const double two[] = {1, 2, 2, 4, 1, 0, 0, 2};
        tensor_t *x = LEAF(FROM(two, 2, 2, 2));
        CHECK(tensor_backward(tensor_sum(tensor_slogdet(x).logabsdet)) == 0);
        CHECK(tensor_item_i64(tensor_sum(tensor_isnan(tensor_select(tensor_grad(x), 0, 0)))) == 4);
        IS(tensor_select(tensor_grad(x), 0, 1), 0, 1, 0, 0, 0.5);
    }
    {   // no elements
        tensor_t *none = R(2, 0, 0), *flat = R(0, 3), *tall = R(3, 0);
        IS(tensor_linalg_det(none), 0, 1, 1);
        IS(tensor_linalg_slogdet(none).logabsdet, 0, 0, 0);
        SHAPED(tensor_linalg_inv(none), 2, 0, 0);
        SHAPED(tensor_linalg_cholesky(none, 1), 2, 0, 0);
        SHAPED(tensor_linalg_solve(none, R(2, 0, 3)), 2, 0, 3);
        SHAPED(tensor_linalg_solve(R(0, 3, 3), R(3, 2)), 0, 3, 2);
        SHAPED(tensor_linalg_solve(R(3, 3), R(3, 0)), 3, 0);
        SHAPED(tensor_linalg_qr(flat, NULL).r, 0, 3);
        CLOSE(tensor_linalg_qr(tall, "complete").q, eye(3), 0);
        CLOSE(tensor_linalg_svd(tall, 1).u, eye(3), 0);
        SHAPED(tensor_linalg_svd(flat, 0).vh, 0, 3);
        SHAPED(tensor_linalg_svdvals(flat), 0);
        SHAPED(tensor_linalg_eigh(none, 0).eigenvalues, 2, 0);
        SHAPED(tensor_linalg_pinv(tall, -1), 0, 3);
        SHAPED(tensor_linalg_matrix_exp(none), 2, 0, 0);
        SHAPED(tensor_linalg_lu(tall).p, 3, 3);
        SHAPED(tensor_linalg_lu(none).p, 2, 0, 0);
        SHAPED(tensor_linalg_matrix_power(none, 0), 2, 0, 0);
        IS(tensor_linalg_matrix_rank(flat, -1), 0, 0);
        IS(tensor_linalg_cond(none, NULL), 0, 0, 0);
        IS(tensor_linalg_matrix_norm(flat, "nuc", -2, -1, 0), 0, 0);
        IS(tensor_linalg_matrix_norm(flat, "1", -2, -1, 0), 0, 0);
        IS(tensor_linalg_matrix_norm(tall, "1", -2, -1, 0), 0, 0);
        IS(tensor_linalg_matrix_norm(flat, "inf", -2, -1, 0), 0, 0);
        IS(tensor_linalg_matrix_norm(tall, "2", -2, -1, 0), 0, 0);
        CHECK_POISON(tensor_linalg_matrix_norm(tall, "-2", -2, -1, 0), TENSOR_ERR_SHAPE, "no element");
        IS(tensor_linalg_vector_norm(R(0), 2, NULL, 0, 0), 0, 0);
        IS(tensor_linalg_vector_norm(tensor_scalar(-3, TENSOR_F64), 1, NULL, 0, 0), 0, 3);
    }
}

// ---- torch.linalg: what a decomposition must satisfy, over sizes, batches, ranks and scales ----

static void properties_of(tensor_t *x, double tol, int line) {
    int64_t m = tensor_size(x, -2), n = tensor_size(x, -1), k = m < n ? m : n;
    double big = tensor_item(tensor_max(tensor_abs(x)));
    tensor_lu_t lu = tensor_linalg_lu(x);
    tensor_linalg_svd_t s;
    tensor_qr_t q;
    int full;
    tol *= big > 0 ? (double)(m + n) * big : 1;
    close_to(tensor_matmul(lu.p, tensor_matmul(lu.l, lu.u)), x, tol, line);
    test_note(tensor_item(tensor_max(tensor_abs(lu.l))) <= 1, __FILE__, line, "no pivoting");
    for (full = 0; full < 2; full++) {
        double one = tol / (big > 0 ? big : 1);
        q = tensor_linalg_qr(x, full ? "complete" : NULL);
        close_to(tensor_matmul(q.q, q.r), x, tol, line);
        close_to(tensor_matmul(tensor_mT(q.q), q.q), tensor_expand_n(eye(tensor_size(q.q, -1)),
                 tensor_shape(tensor_matmul(tensor_mT(q.q), q.q)).dims, tensor_ndim(x)), one, line);
        close_to(tensor_tril(q.r, -1), tensor_zeros_like(q.r), 0, line);
        s = tensor_linalg_svd(x, full);
        close_to(tensor_matmul(tensor_mul(tensor_narrow(s.u, -1, 0, k), tensor_unsqueeze(s.s, -2)),
                               tensor_narrow(s.vh, -2, 0, k)), x, tol, line);
        close_to(tensor_matmul(tensor_mT(s.u), s.u), tensor_expand_n(eye(tensor_size(s.u, -1)),
                 tensor_shape(tensor_matmul(tensor_mT(s.u), s.u)).dims, tensor_ndim(x)), one, line);
        close_to(gram(s.vh), tensor_expand_n(eye(tensor_size(s.vh, -2)), tensor_shape(gram(s.vh)).dims,
                                             tensor_ndim(x)), one, line);
        if (k > 1) {
            test_note(tensor_item(tensor_min(tensor_sub(tensor_narrow(s.s, -1, 0, k - 1),
                                                        tensor_narrow(s.s, -1, 1, k - 1)))) >= 0,
                      __FILE__, line, "singular values are not descending");
        }
    }
    close_to(tensor_linalg_svdvals(x), s.s, 0, line);
    if (m == n) {
        tensor_t *h = tensor_add(x, tensor_mT(x));
        tensor_eigh_t e = tensor_linalg_eigh(h, 0);
        close_to(tensor_matmul(tensor_mul(e.eigenvectors, tensor_unsqueeze(e.eigenvalues, -2)),
                               tensor_mT(e.eigenvectors)), h, 2 * tol, line);
        close_to(gram(e.eigenvectors), tensor_expand_n(eye(n), tensor_shape(h).dims, tensor_ndim(x)),
                 tol / (big > 0 ? big : 1), line);
        if (n > 1) {
            test_note(tensor_item(tensor_min(tensor_sub(tensor_narrow(e.eigenvalues, -1, 1, n - 1),
                                                        tensor_narrow(e.eigenvalues, -1, 0, n - 1)))) >= 0,
                      __FILE__, line, "eigenvalues are not ascending");
        }
    }
    CHECK_OK();
}
#define PROPERTIES(x, tol) properties_of(x, tol, __LINE__)
static void properties(void) {
    static const int64_t sizes[][4] = {{1, 1}, {2, 2},   {3, 3},   {5, 5},   {4, 1},   {1, 4},  {6, 3},
                                       {3, 6}, {20, 20}, {33, 20}, {20, 33}, {64, 64}, {90, 90}};
    tensor_t *x, *y;
    int k;
    for (k = 0; k < COUNT(sizes); k++) { PROPERTIES(random_n(TENSOR_F64, sizes[k], 2), 1e-15); }
    PROPERTIES(R(3, 4, 3), 1e-15);
    PROPERTIES(R(2, 2, 5, 5), 1e-15);
    PROPERTIES(tensor_zeros_of(TENSOR_F64, 4, 3), 1e-15);
    PROPERTIES(tensor_zeros_of(TENSOR_F64, 4, 4), 1e-15);
    PROPERTIES(tensor_ones_of(TENSOR_F64, 5, 5), 1e-15);
    PROPERTIES(eye(6), 1e-15);
    PROPERTIES(tensor_mul_scalar(R(7, 7), 1e250), 1e-15);
    PROPERTIES(tensor_mul_scalar(R(7, 5), 1e-250), 1e-15);
    PROPERTIES(tensor_matmul(R(12, 3), R(3, 10)), 2e-15);               // rank 3
    PROPERTIES(tensor_matmul(R(10, 2), R(2, 10)), 2e-15);
    x = tensor_exp(tensor_mul_scalar(tensor_arange(0, 24, 1, TENSOR_F64), -2));     // condition 1e20
    y = tensor_mul(R(24, 24), x);
    PROPERTIES(y, 1e-15);
    PROPERTIES(tensor_mul(R(24, 24), tensor_unsqueeze(x, 1)), 1e-15);
    {   // f32: the error is that of the rounding, the condition matters in f64 only
        x = heavy(R_OF(TENSOR_F32, 40, 40)), y = R_OF(TENSOR_F32, 40, 8);
        x = tensor_to(x, TENSOR_F32);
        CLOSE(tensor_linalg_solve(x, y),
              tensor_linalg_solve(tensor_to(x, TENSOR_F64), tensor_to(y, TENSOR_F64)), 1e-5);
    }
    x = heavy(R(5, 1, 4, 4)), y = R(3, 4, 2);                            // batches broadcast
    CLOSE(tensor_matmul(x, tensor_linalg_solve(x, y)), tensor_expand(y, 5, 3, 4, 2), 1e-12);
    CLOSE(tensor_matmul(tensor_expand(x, 5, 3, 4, 4), tensor_unsqueeze(tensor_linalg_solve(
          tensor_expand(x, 5, 3, 4, 4), tensor_expand(tensor_select(y, 2, 0), 5, 3, 4)), -1)),
          tensor_expand(tensor_narrow(y, -1, 0, 1), 5, 3, 4, 1), 1e-12);
    {
        tensor_lu_factor_t f = tensor_linalg_lu_factor(x);
        CLOSE(tensor_matmul(x, tensor_linalg_lu_solve(tensor_expand(f.lu, 5, 3, 4, 4),
              tensor_expand(f.pivots, 5, 3, 4), y)), tensor_expand(y, 5, 3, 4, 2), 1e-12);
    }
    for (k = 0; k < 8; k++) {               // every side, triangle and diagonal
        tensor_t *a = tensor_squeeze(tensor_narrow(x, 0, k % 5, 1), 0), *b = k & 1 ? y : tensor_mT(y), *t;
        t = k & 2 ? tensor_triu(a, 0) : tensor_tril(a, 0);
        if (k & 4) { t = tensor_add(tensor_sub(t, tensor_mul(t, eye(4))), eye(4)); }
        {
            tensor_t *s = tensor_linalg_solve_triangular(a, b, k & 2, k & 1, k & 4);
            CLOSE(k & 1 ? tensor_matmul(t, s) : tensor_matmul(s, t), b, 1e-11);
        }
    }
    IS(tensor_linalg_solve_triangular(tensor_zeros(1, 1), tensor_ones(1, 1), 1, 1, 0), 0, INFINITY);
    {   // many small ones and threads: the same bits
        tensor_t *many = heavy(R(300, 5, 5)), *large = heavy(R(3, 40, 40));
        uint64_t h[2];
        for (k = 0; k < 2; k++) {
            tensor_set_num_threads(k ? 4 : 1);
            h[k] = test_hash(TEST_HASH, tensor_linalg_inv(many));
            h[k] = test_hash(h[k], tensor_linalg_svd(many, 1).u);
            h[k] = test_hash(h[k], tensor_linalg_eigh(large, 0).eigenvectors);
            h[k] = test_hash(h[k], tensor_linalg_det(many));
            h[k] = test_hash(h[k], tensor_linalg_qr(large, NULL).r);
            h[k] = test_hash(h[k], tensor_linalg_lu(many).p);
        }
        tensor_set_num_threads(1);
        CHECK(h[0] == h[1]);
    }
}

// ---- torch.linalg: gradients ----

// Functions of vectors of undetermined sign are made independent of it.
static tensor_t *fn_linalg(tensor_t *const *in, int n, void *user) {
    const char *f = (const char *)user;
    tensor_t *x = in[0];
#define F(name) (strcmp(f, name) == 0)
    (void)n;
    if (F("cholesky")) { return tensor_linalg_cholesky(gram(x), 0); }
    if (F("cholesky upper")) { return tensor_linalg_cholesky(gram(x), 1); }
    if (F("cholesky_solve")) { return tensor_cholesky_solve(in[1], x, 0); }
    if (F("cholesky_inverse")) { return tensor_cholesky_inverse(x, 1); }
    if (F("solve")) { return tensor_linalg_solve(x, in[1]); }
    if (F("triangular")) { return tensor_linalg_solve_triangular(x, in[1], 1, 1, 0); }
    if (F("triangular unit")) { return tensor_linalg_solve_triangular(x, in[1], 0, 0, 1); }
    if (F("inv")) { return tensor_linalg_inv(x); }
    if (F("det")) { return tensor_linalg_det(x); }
    if (F("slogdet")) { return tensor_linalg_slogdet(x).logabsdet; }
    if (F("logdet")) { return tensor_logdet(gram(x)); }
    if (F("lu")) {
        tensor_lu_t r = tensor_linalg_lu(x);
        return tensor_matmul(tensor_sin(r.l), tensor_sin(r.u));
    }
    if (F("lu_factor")) { return tensor_linalg_lu_factor(x).lu; }
    if (F("lu_solve")) {
        tensor_lu_factor_t r = tensor_linalg_lu_factor(x);
        return tensor_linalg_lu_solve(r.lu, r.pivots, in[1]);
    }
    if (F("qr")) {
        tensor_qr_t r = tensor_linalg_qr(x, NULL);
        return tensor_matmul(tensor_sin(r.q), tensor_sin(r.r));
    }
    if (F("qr q")) { return tensor_linalg_qr(x, NULL).q; }
    if (F("qr r")) { return tensor_linalg_qr(x, "r").r; }
    if (F("qr complete")) { return tensor_linalg_qr(x, "complete").r; }
    if (F("svdvals")) { return tensor_linalg_svdvals(x); }
    if (F("svd")) {     // U f(S) Vh
        tensor_linalg_svd_t r = tensor_linalg_svd(x, 0);
        return tensor_matmul(tensor_mul(r.u, tensor_unsqueeze(tensor_sin(r.s), -2)), r.vh);
    }
    if (F("svd u")) {   // projector on the first vectors
        tensor_t *u = tensor_narrow(tensor_linalg_svd(x, 1).u, -1, 0, 1);
        return tensor_matmul(u, tensor_mT(u));
    }
    if (F("svd v")) { return gram(tensor_mT(tensor_narrow(tensor_linalg_svd(x, 1).vh, -2, 0, 1))); }
    if (F("svd all")) {
        tensor_linalg_svd_t r = tensor_linalg_svd(x, 0);
        return tensor_add(tensor_sum(tensor_mul(tensor_square(r.u), tensor_unsqueeze(r.s, -2))),
                          tensor_sum(tensor_exp(tensor_square(r.vh))));
    }
    if (F("eigvalsh")) { return tensor_linalg_eigvalsh(tensor_add(x, tensor_mT(x)), 0); }
    if (F("eigh")) {
        tensor_eigh_t r = tensor_linalg_eigh(tensor_add(x, tensor_mT(x)), 1);
        return tensor_matmul(tensor_mul(r.eigenvectors, tensor_unsqueeze(tensor_sin(r.eigenvalues), -2)),
                             tensor_mT(r.eigenvectors));
    }
    if (F("eigh v")) {
        tensor_eigh_t r = tensor_linalg_eigh(tensor_add(x, tensor_mT(x)), 0);
        return tensor_mul(tensor_square(r.eigenvectors), tensor_exp(tensor_unsqueeze(r.eigenvalues, -2)));
    }
    if (F("pinv")) { return tensor_linalg_pinv(x, -1); }
    if (F("pinv rank 2")) { return tensor_linalg_pinv(tensor_matmul(x, in[1]), 1e-10); }
    if (F("lstsq")) { return tensor_linalg_lstsq(x, in[1]).solution; }
    if (F("residuals")) { return tensor_linalg_lstsq(x, in[1]).residuals; }
    if (F("power")) { return tensor_linalg_matrix_power(x, 3); }
    if (F("power -2")) { return tensor_linalg_matrix_power(x, -2); }
    if (F("exp")) { return tensor_linalg_matrix_exp(x); }
    if (F("norm 3")) { return tensor_linalg_vector_norm(x, 3, NULL, 0, 0); }
    if (F("norm 1")) { return tensor_linalg_norm(x, "1", NULL, 0, 0); }
    if (F("norm inf")) { return tensor_linalg_matrix_norm(x, "inf", -2, -1, 1); }
    if (F("norm nuc")) { return tensor_linalg_matrix_norm(x, "nuc", 0, 1, 0); }
    if (F("norm 2")) { return tensor_linalg_matrix_norm(x, "2", -2, -1, 0); }
    if (F("norm fro")) { return tensor_linalg_norm(x, NULL, NULL, 0, 0); }
    if (F("cond")) { return tensor_linalg_cond(x, NULL); }
    if (F("cond fro")) { return tensor_linalg_cond(x, "fro"); }
    CHECK_MSG(0, "no function %s", f);
    return x;
}
#define LINALG(name, ...) GRADS(fn_linalg, (void *)(uintptr_t)name, __VA_ARGS__)
static void gradients(void) {
    static const char *const any[] = {"lu",     "lu_factor", "qr",       "qr q",    "qr r",    "svdvals",
                                      "svd",    "svd u",     "svd v",    "svd all", "pinv",    "norm 3",
                                      "norm 1", "norm inf",  "norm nuc", "norm 2",  "norm fro"};
    static const char *const squares[] = {"cholesky", "cholesky upper", "inv",         "det",
                                          "slogdet",  "logdet",         "qr complete", "eigvalsh",
                                          "eigh",     "eigh v",         "power",       "power -2",
                                          "exp",      "cond",           "cond fro",    "cholesky_inverse"};
    int k;
    for (k = 0; k < COUNT(any); k++) {
        LINALG(any[k], LEAF(R(3, 3)));
        if (strncmp(any[k], "norm 1", 6) != 0) { LINALG(any[k], LEAF(R(2, 3, 2))); }
        if (strncmp(any[k], "qr q", 4) != 0) {
            LINALG(any[k], LEAF(R(2, 3)));
        } else {
            LINALG(any[k], LEAF(R(4, 2)));
        }
    }
    for (k = 0; k < COUNT(squares); k++) {
        LINALG(squares[k], LEAF(heavy(R(3, 3))));
        LINALG(squares[k], LEAF(heavy(R(2, 2, 2))));
        LINALG(squares[k], LEAF(heavy(R(1, 1))));
    }
    LINALG("qr complete", LEAF(R(2, 4)));
    {   // PyTorch's gradient of a matrix whose one triangle was read: symmetric
        tensor_t *x = LEAF(gram(FROM(A3, 3, 3))), *y = tensor_linalg_cholesky(x, 0), *g;
        tensor_t *w = tensor_reshape(tensor_sin(tensor_arange(1, 10, 1, TENSOR_F64)), 3, 3);
        CHECK(tensor_autograd_grad(&y, 1, &w, &x, 1, &g, 0) == 0);
        IS(g, 1e-8, 0.05939726025, -0.23117278, 0.1898449445, -0.23117278, -0.0999978279, 0.1466352588,
           0.1898449445, 0.1466352588, 0.049257264);
    }
    LINALG("solve", LEAF(heavy(R(3, 3))), LEAF(R(3, 2)));
    LINALG("solve", LEAF(heavy(R(3, 3))), LEAF(R(3)));
    LINALG("solve", LEAF(heavy(R(2, 1, 2, 2))), LEAF(R(2, 2, 1)));
    LINALG("cholesky_solve", LEAF(heavy(R(3, 3))), LEAF(R(3, 2)));
    LINALG("triangular", LEAF(heavy(R(3, 3))), LEAF(R(2, 3, 2)));
    LINALG("triangular unit", LEAF(heavy(R(3, 3))), LEAF(R(2, 3)));
    LINALG("lu_solve", LEAF(heavy(R(3, 3))), LEAF(R(3, 2)));
    LINALG("lstsq", LEAF(R(4, 2)), LEAF(R(4, 2)));
    LINALG("lstsq", LEAF(R(2, 3)), LEAF(R(2, 1)));
    LINALG("residuals", LEAF(R(4, 2)), LEAF(R(4, 1)));
    LINALG("pinv rank 2", LEAF(R(4, 2)), LEAF(R(2, 3)));
    {   // singular matrices: cofactors, as PyTorch's
        static const double s[] = {1, 2, 3, 2, 4, 6, 1, 0, 1};
        tensor_t *x = LEAF(FROM(s, 3, 3)), *y, *g;
        y = tensor_linalg_det(x);
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
        IS(g, 1e-12, 4, 4, -4, -2, -2, 2, 0, 0, 0);
        x = LEAF(tensor_zeros_of(TENSOR_F64, 2, 3, 3));
        y = tensor_sum(tensor_linalg_det(x));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
        CLOSE(g, tensor_zeros_like(x), 0);
    }
    LINALG("det", LEAF(FROM(((const double[]){1, 2, 2, 4}), 2, 2)));
    LINALG("det", LEAF(FROM(((const double[]){1, 2, 3, 2, 4, 6, 1, 0, 1}), 3, 3)));
    {   // the gradient of a zero norm is 0
        static const double ords[] = {1, 2, 3, 0};
        for (k = 0; k < COUNT(ords); k++) {
            tensor_t *x = LEAF(tensor_zeros_of(TENSOR_F64, 3)),
                     *y = tensor_linalg_vector_norm(x, ords[k], NULL, 0, 0), *g;
            CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
            IS(g, 0, 0, 0, 0);
        }
    }
    {   // no gradient where logdet is NaN; one of 0 for the power 0
        static const double minus[] = {1, 2, 3, 1};
        tensor_t *x = LEAF(FROM(minus, 2, 2)), *y = tensor_logdet(x), *g;
        IS(y, 0, NAN);
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
        IS(g, 0, 0, 0, 0, 0);
        y = tensor_sum(tensor_matrix_power(x, 0));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
        IS(g, 0, 0, 0, 0, 0);
    }
    {   // f32
        tensor_t *x = heavy(R(3, 3)), *x32 = LEAF(tensor_to(x, TENSOR_F32)), *y, *g, *want;
        x = LEAF(x);
        y = tensor_sum(tensor_sin(tensor_linalg_inv(x)));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &want, 0) == 0);
        y = tensor_sum(tensor_sin(tensor_linalg_inv(x32)));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x32, 1, &g, 0) == 0);
        CHECK(tensor_dtype(g) == TENSOR_F32);
        CLOSE(g, want, 1e-6);
    }
    {
        tensor_t *x = LEAF(R(4, 2)), *y = tensor_sum(tensor_linalg_qr(x, "complete").q), *g;
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == TENSOR_ERR_AUTOGRAD);
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "mode \"complete\" has no gradient for x [4,2]");
    }
}

// ---- torch.linalg: errors ----

static void errors(void) {
    static const double two[] = {1, 0, 0, 1, 1, 2, 2, 1}, ones[] = {1, 0, 0, 1, 1, 2, 2, 4};
    tensor_t *s = FROM(two, 2, 2, 2), *flat = R(2, 3), *v = R(3), *a = heavy(R(3, 3)), *nan, *one = R(1, 1);
    static const int64_t twice[2] = {0, 0}, dims3[3] = {0, 1, 2};
    nan = tensor_full_of(TENSOR_F64, NAN, 3, 2, 2);
    CHECK_POISON(
        tensor_linalg_cholesky(s, 0), TENSOR_ERR_LINALG,
        "linalg_cholesky: matrix 1 of x [2,2,2] is not positive definite: its leading minor of order 2");
    CHECK_TEXT(tensor_code_name(TENSOR_ERR_LINALG), "LINALG");
    s = FROM(ones, 2, 2, 2);
    CHECK_POISON(tensor_linalg_inv(s), TENSOR_ERR_LINALG,
                 "linalg_inv: linalg_solve: matrix 1 of a [2,2,2] is singular: pivot 2 is 0");
    CHECK_POISON(tensor_linalg_solve(s, R(2, 1)), TENSOR_ERR_LINALG, "linalg_solve: matrix 1 of a [2,2,2]");
    CHECK_POISON(tensor_linalg_matrix_power(s, -1), TENSOR_ERR_LINALG, "singular");
    CHECK_POISON(tensor_linalg_svdvals(nan), TENSOR_ERR_LINALG,
                 "linalg_svd: matrix 0 of x [3,2,2] has inf or NaN");
    CHECK_POISON(tensor_linalg_eigh(nan, 0).eigenvectors, TENSOR_ERR_LINALG, "linalg_eigh: matrix 0");
    CHECK_POISON(tensor_linalg_svd(tensor_full_of(TENSOR_F64, INFINITY, 2, 3), 1).u, TENSOR_ERR_LINALG,
                 "inf or NaN");
    CHECK_POISON(tensor_linalg_pinv(nan, -1), TENSOR_ERR_LINALG, "inf or NaN");
    CHECK(isnan(tensor_item(tensor_linalg_det(tensor_select(nan, 0, 0)))));
    CHECK(isnan(at(tensor_linalg_solve(nan, R(2, 1)), 0)));
    CHECK(isnan(at(tensor_linalg_matrix_exp(nan), 0)));
    CHECK_POISON(tensor_linalg_inv(flat), TENSOR_ERR_SHAPE, "linalg_inv: x [2,3] must be a square matrix");
    CHECK_POISON(tensor_linalg_det(v), TENSOR_ERR_SHAPE, "linalg_det: x [3] must be a square matrix");
    CHECK_POISON(tensor_linalg_cholesky(flat, 1), TENSOR_ERR_SHAPE, "linalg_cholesky: x [2,3]");
    CHECK_POISON(tensor_linalg_qr(v, NULL).r, TENSOR_ERR_SHAPE, "linalg_qr: x [3] must be a matrix");
    CHECK_POISON(tensor_linalg_qr(flat, "full").q, TENSOR_ERR_FORMAT, "mode \"full\"");
    CHECK_POISON(tensor_linalg_svd(v, 0).s, TENSOR_ERR_SHAPE, "linalg_svd: x [3]");
    CHECK_POISON(tensor_svd(v).v, TENSOR_ERR_SHAPE, "linalg_svd: x [3]");
    CHECK_POISON(tensor_linalg_eigvalsh(flat, 0), TENSOR_ERR_SHAPE, "linalg_eigh: x [2,3]");
    CHECK_POISON(tensor_linalg_lu(v).l, TENSOR_ERR_SHAPE, "linalg_lu_factor: x [3]");
    CHECK_POISON(tensor_linalg_slogdet(flat).sign, TENSOR_ERR_SHAPE, "linalg_det: x [2,3]");
    CHECK_POISON(tensor_logdet(flat), TENSOR_ERR_SHAPE, "[2,3]");
    CHECK_POISON(tensor_linalg_solve(a, R(2, 2)), TENSOR_ERR_SHAPE,
                 "linalg_solve: a [3,3] and b [2,2] do not fit");
    CHECK_POISON(tensor_linalg_solve(R(2, 3, 3), R(3, 3, 1)), TENSOR_ERR_SHAPE, "do not fit");
    CHECK_POISON(tensor_linalg_solve(a, tensor_ones(3, 1)), TENSOR_ERR_DTYPE,
                 "a [3,3] is f64 and b [3,1] is f32");
    CHECK_POISON(tensor_linalg_solve_triangular(a, v, 1, 1, 0), TENSOR_ERR_SHAPE, "b [3] must be a matrix");
    CHECK_POISON(tensor_linalg_solve_triangular(a, R(2, 2), 1, 0, 0), TENSOR_ERR_SHAPE, "do not fit");
    CHECK_POISON(tensor_linalg_inv(tensor_to(a, TENSOR_F16)), TENSOR_ERR_DTYPE,
                 "linalg_inv: x [3,3] is f16, f32 or f64 is needed");
    CHECK_POISON(tensor_linalg_cholesky(tensor_to(a, TENSOR_I64), 0), TENSOR_ERR_DTYPE, "i64");
    CHECK_POISON(tensor_linalg_svdvals(tensor_to(a, TENSOR_BF16)), TENSOR_ERR_DTYPE, "bf16");
    CHECK_POISON(tensor_linalg_lu_solve(a, tensor_full_of(TENSOR_I32, 4, 3), flat), TENSOR_ERR_SHAPE,
                 "do not fit");
    CHECK_POISON(tensor_linalg_lu_solve(a, tensor_full_of(TENSOR_I32, 4, 3), a), TENSOR_ERR_INDEX,
                 "linalg_swaps: pivot 0 of matrix 0 is outside 1..3");
    CHECK_POISON(tensor_linalg_lu_solve(a, tensor_zeros_of(TENSOR_I32, 3), a), TENSOR_ERR_INDEX,
                 "outside 1..3");
    CHECK_POISON(tensor_linalg_lu_solve(a, tensor_ones_of(TENSOR_I32, 4), a), TENSOR_ERR_SHAPE, "pivots [4]");
    CHECK_POISON(tensor_lu_unpack(a, tensor_ones_of(TENSOR_I64, 3)).p, TENSOR_ERR_DTYPE,
                 "lu_unpack: pivots [3]");
    CHECK_POISON(tensor_linalg_lstsq(tensor_ones(3, 2), tensor_ones(3, 1)).solution, TENSOR_ERR_LINALG,
                 "linalg_lstsq: a [3,2] does not have full rank");
    tensor_raise(TENSOR_ERR_SHAPE, "an error that waits");      // stops nothing
    CHECK(!tensor_is_poison(tensor_linalg_lstsq(R(3, 2), R(3, 1)).solution));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "an error that waits");
    CHECK_POISON(tensor_linalg_lstsq(flat, v).solution, TENSOR_ERR_SHAPE, "linalg_lstsq: b [3]");
    CHECK_POISON(tensor_linalg_lstsq(flat, R(3, 1)).residuals, TENSOR_ERR_SHAPE,
                 "must have the same number of rows");
    CHECK_POISON(tensor_linalg_matrix_exp(flat), TENSOR_ERR_SHAPE, "linalg_matrix_exp: x [2,3]");
    CHECK_POISON(tensor_matrix_power(flat, 2), TENSOR_ERR_SHAPE, "matrix_power: x [2,3]");
    CHECK_POISON(tensor_linalg_vector_norm(flat, 2, twice, 2, 0), TENSOR_ERR_INDEX,
                 "linalg_vector_norm: dim 0 appears");
    CHECK_POISON(tensor_linalg_vector_norm(flat, 2, dims3, 3, 0), TENSOR_ERR_INDEX, "dim 2 is outside");
    CHECK_POISON(tensor_linalg_vector_norm(tensor_ones_of(TENSOR_I32, 2), 2, NULL, 0, 0), TENSOR_ERR_DTYPE,
                 "i32");
    CHECK_POISON(tensor_linalg_vector_norm(R(0), INFINITY, NULL, 0, 0), TENSOR_ERR_SHAPE,
                 "no element to choose");
    CHECK_POISON(tensor_linalg_vector_norm(R(0), -1, NULL, 0, 0), TENSOR_ERR_SHAPE, "no element to choose");
    CHECK_POISON(tensor_linalg_matrix_norm(flat, "3", -2, -1, 0), TENSOR_ERR_FORMAT, "ord \"3\"");
    CHECK_POISON(tensor_linalg_matrix_norm(flat, "", -2, -1, 0), TENSOR_ERR_FORMAT, "ord \"\"");
    CHECK_POISON(tensor_linalg_matrix_norm(v, "1", -2, -1, 0), TENSOR_ERR_SHAPE, "linalg_matrix_norm: x [3]");
    CHECK_POISON(tensor_linalg_matrix_norm(flat, "1", 1, 1, 0), TENSOR_ERR_INDEX, "appears twice");
    CHECK_POISON(tensor_linalg_matrix_norm(tensor_to(flat, TENSOR_F16), "nuc", -2, -1, 0), TENSOR_ERR_DTYPE,
                 "f16");
    CHECK_POISON(tensor_linalg_norm(s, "2", NULL, 0, 0), TENSOR_ERR_SHAPE,
                 "linalg_norm: ord \"2\" is not a norm of 3 dims");
    CHECK_POISON(tensor_linalg_norm(v, "fro", NULL, 0, 0), TENSOR_ERR_FORMAT, "linalg_norm: ord \"fro\"");
    CHECK_POISON(tensor_linalg_cond(flat, "1"), TENSOR_ERR_SHAPE, "linalg_cond: x [2,3]");
    CHECK_POISON(tensor_linalg_cond(one, "x"), TENSOR_ERR_FORMAT, "linalg_cond: ord \"x\"");
    CHECK_POISON(tensor_linalg_cholesky(NULL, 0), TENSOR_ERR_OWNER, "linalg_cholesky");
}

// ---- there is memory for k allocations ----

typedef struct heap_t { long calls, fail_at, blocks; } heap_t;
static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    char *raw, *p;
    if (h->fail_at >= 0 && h->calls >= h->fail_at) { return NULL; }     // and all that follow
    if (!(raw = (char *)malloc(bytes + alignment + sizeof raw))) { return NULL; }
    h->calls++;
    p = raw + sizeof raw;
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    h->blocks++;
    return p;
}
static void heap_free(void *user, void *block, size_t bytes, size_t alignment) {
    char *raw;
    (void)bytes, (void)alignment;
    memcpy(&raw, (char *)block - sizeof raw, sizeof raw);
    free(raw);
    ((heap_t *)user)->blocks--;
}
static void memory(void) {
    long k;
    int failed = 1;
    for (k = 0; failed && k < 500; k++) {
        heap_t h = {0, -1, 0};
        tensor_allocator_t a;
        tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
        tensor_scope_t s;
        a.alloc = heap_alloc, a.free = heap_free, a.user = &h;
        tensor_set_allocator(&a);
        tensor_set_error_handler(test_quiet, NULL);
        s = tensor_scope_begin();
        {
            tensor_t *x = LEAF(heavy(R(40, 40))), *y, *list[3];
            tensor_lu_t lu;
            tensor_svd_t svd;
            tensor_lstsq_t ls;
            h.fail_at = h.calls + k;
            lu = tensor_linalg_lu(x);
            CHECK(tensor_is_poison(lu.p) == tensor_is_poison(lu.u) &&
                  tensor_is_poison(lu.l) == tensor_is_poison(lu.u));
            svd = tensor_svd(x);
            CHECK(tensor_is_poison(svd.u) == tensor_is_poison(svd.v) &&
                  tensor_is_poison(svd.s) == tensor_is_poison(svd.v));
            ls = tensor_linalg_lstsq(tensor_narrow(x, 1, 0, 30), x);
            CHECK(tensor_is_poison(ls.solution) == tensor_is_poison(ls.residuals));
            list[0] = list[1] = list[2] = x;
            y = tensor_add(tensor_linalg_multi_dot_n(list, 3), tensor_linalg_pinv(x, -1));
            y = tensor_add(y, tensor_einsum("ij,kj,kl->il", x, lu.l, lu.u));
            y = tensor_add(tensor_sum(y), tensor_add(tensor_sum(ls.solution), tensor_linalg_det(x)));
            tensor_backward(tensor_add(y, tensor_linalg_cond(x, "1")));
            failed = !tensor_ok();
            CHECK(!failed || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
            CHECK(failed || !tensor_is_poison(y));
            tensor_clear_error();
            h.fail_at = -1;
        }
        tensor_scope_end(s);
        tensor_context_use(before);
        tensor_context_free(context);
        CHECK_MSG(h.blocks == 0, "k = %ld: %ld blocks not given back", k, h.blocks);
    }
    CHECK_MSG(k > 20 && !failed, "%ld allocations", k);
}

// Large products, whose A the threads pack together or read in place: more rows than a block has, several
// chunks of k, A by rows and by columns.
static void threads(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon"};
    for (int i = 0; i < 5; i++) {
        if (tensor_set_isa(isas[i])) {
            tensor_clear_error();
            continue;
        }
        for (int k = 0; k < 6; k++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *a = k & 1 ? tensor_randn(1024, 1037) : tensor_randn(1037, 1024);
            tensor_t *b = k & 2 ? tensor_randn(133, 1024) : tensor_randn(1024, 133);
            tensor_t *one, *many;
            if (k & 1) { a = tensor_mT(a); }
            if (k & 2) { b = tensor_mT(b); }
            if (k & 4) { a = tensor_narrow(a, 1, 3, 1000), b = tensor_narrow(b, 0, 3, 1000); }
            one = tensor_matmul(a, b);
            tensor_set_num_threads(3);
            many = tensor_matmul(a, b);
            tensor_set_num_threads(1);
            CHECK_MSG(tensor_equal(one, many), "%s: case %d", isas[i], k);
            tensor_scope_end(scope);
        }
    }
    tensor_set_isa(NULL);
}

// Equal rows and columns give equal elements, wherever they stand in a tile and whichever tile; products of
// f64 are the same on every machine.
static void positions(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon"};
    static const int64_t sizes[][3] = {{1, 5, 40}, {1, 6, 3}, {1, 11, 13}, {1, 64, 64}, {5, 6, 700},
        {7, 9, 513}, {13, 37, 65}, {14, 150, 300},
        {16, 16, 16}, {20, 21, 400}, {25, 130, 129}, {64, 70, 520}};
    uint64_t first = 0;
    for (int i = 0; i < 5; i++) {
        uint64_t h = TEST_HASH;
        if (tensor_set_isa(isas[i])) {
            tensor_clear_error();
            continue;
        }
        tensor_manual_seed(4);
        for (int k = 0; k < (int)(sizeof sizes / sizeof sizes[0]) * 4; k++) {
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t *n = sizes[k / 4];
            int64_t da[2] = {n[0], n[2]}, db[2] = {n[2], n[1]}, dy[2] = {n[0], n[1]};
            tensor_t *a = tensor_randn(n[0], n[2]), *b = tensor_randn(n[2], n[1]), *y, *single;
            tensor_t *ra = tensor_contiguous(tensor_expand_n(tensor_at(a, "0:1"), da, 2));
            tensor_t *cb = tensor_contiguous(tensor_expand_n(tensor_at(b, ":, 0:1"), db, 2));
            if (k & 1) { ra = tensor_mT(tensor_contiguous(tensor_mT(ra))); }
            if (k & 2) { cb = tensor_mT(tensor_contiguous(tensor_mT(cb))); }
            y = tensor_matmul(ra, cb);
            CHECK_MSG(tensor_equal(y, tensor_expand_n(tensor_at(y, "0:1, 0:1"), dy, 2)), "%s: case %d",
                      isas[i], k);
            single = tensor_matmul(k & 1 ? tensor_mT(tensor_contiguous(tensor_mT(a))) : a,
                                   k & 2 ? tensor_mT(tensor_contiguous(tensor_mT(b))) : b);
            a = tensor_to(a, TENSOR_F64);
            b = tensor_to(b, TENSOR_F64);
            if (k & 1) { a = tensor_mT(tensor_contiguous(tensor_mT(a))); }
            if (k & 2) { b = tensor_mT(tensor_contiguous(tensor_mT(b))); }
            y = tensor_matmul(a, b);
            h = test_hash(h, y);
            CHECK_MSG(tensor_allclose(tensor_to(single, TENSOR_F64), y, 1e-4, 1e-4), "%s: case %d of f32",
                      isas[i], k);
            CHECK(fabs(tensor_item(tensor_at(y, "-1, -1")) -
                       tensor_item(tensor_sum(tensor_mul(tensor_at(a, "-1"), tensor_at(b, ":, -1")))))
                  < 1e-9);
            tensor_scope_end(scope);
        }
        if (!first) { first = h; }
        CHECK_MSG(h == first, "%s: other bits of f64", isas[i]);
    }
    tensor_set_isa(NULL);
}

// Small products take a way of their own: the bits of the general one (a batch takes it), whatever the
// strides, at every end of a tile and a vector; nothing allocated but the result.
static int same_bits(tensor_t *a, tensor_t *b) {
    a = tensor_contiguous(a);
    b = tensor_contiguous(b);
    return tensor_numel(a) == tensor_numel(b) &&
           memcmp(tensor_data(a), tensor_data(b), (size_t)tensor_numel(a) * sizeof(float)) == 0;
}
static tensor_t *twice(tensor_t *x) {
    return tensor_expand(tensor_unsqueeze(x, 0), 2, tensor_size(x, 0), tensor_size(x, 1));
}
static void small_products(void) {
    static const int ends[] = {2, 5, 13, 14, 16, 17, 31, 33, 64, 65}, depths[] = {1, 4, 23, 128, 129};
    int i, j, k, c, right = 0, all = 0;
    for (i = 0; i < COUNT(ends); i++) {
        for (j = 0; j < COUNT(ends); j++) {
            for (k = 0; k < COUNT(depths); k++) {
                tensor_scope_t scope = tensor_scope_begin();
                int m = ends[i], n = ends[j], d = depths[k];
                tensor_t *a[3], *b[3], *bias = R_OF(TENSOR_F32, n), *x, *y;
                a[0] = R_OF(TENSOR_F32, m, d);
                a[1] = tensor_mT(R_OF(TENSOR_F32, d, m));
                a[2] = tensor_narrow(R_OF(TENSOR_F32, m, d + 3), 1, 2, d);
                b[0] = R_OF(TENSOR_F32, d, n);
                b[1] = tensor_mT(R_OF(TENSOR_F32, n, d));
                b[2] = tensor_mT(tensor_narrow(R_OF(TENSOR_F32, n, d + 5), 1, 1, d));
                for (c = 0; c < 9; c++, all++) {
                    y = tensor_select(tensor_matmul(twice(a[c / 3]), twice(b[c % 3])), 0, 1);
                    right += same_bits(tensor_matmul(a[c / 3], b[c % 3]), y);
                }
                x = tensor_linear(a[0], tensor_mT(b[1]), bias);
                right += same_bits(x, tensor_add(tensor_matmul(a[0], b[1]), bias));
                right += same_bits(tensor_linear_relu(a[0], tensor_mT(b[1]), bias), tensor_relu(x));
                all += 2;
                tensor_scope_end(scope);
            }
        }
    }
    for (k = 1; k < 1100; k += k < 140 ? 1 : 97, all += 3) {     // a row by a column, wherever they lie
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *wide = R_OF(TENSOR_F32, k, 7), *x = tensor_narrow(wide, 1, 2, 1), *u = tensor_clone(x), *y;
        tensor_t *row = tensor_mT(tensor_narrow(wide, 1, 4, 1));
        y = tensor_matmul(tensor_clone(row), u);
        right += same_bits(tensor_matmul(tensor_clone(row), x), y);
        right += same_bits(tensor_matmul(row, x), y) + same_bits(tensor_matmul(row, u), y);
        tensor_scope_end(scope);
    }
    CHECK_MSG(right == all, "%d of %d small products have the bits of larger ones", right, all);
    {
        tensor_context_t *own = tensor_context_new(), *old = tensor_context_use(own);
        tensor_t *a = tensor_ones(16, 16), *b = tensor_ones(16, 16);
        uint64_t allocs;
        tensor_add(a, b);
        allocs = tensor_memory_stats().allocs;
        tensor_matmul(a, b);
        tensor_linear(a, b, NULL);
        CHECK(tensor_memory_stats().allocs == allocs);
        tensor_context_use(old);
        tensor_context_free(own);
    }
    {
        tensor_t *a = LEAF(R_OF(TENSOR_F32, 5, 7)), *w = LEAF(R_OF(TENSOR_F32, 9, 7));
        tensor_t *b = LEAF(R_OF(TENSOR_F32, 9)), *g = R_OF(TENSOR_F32, 5, 9), *y = tensor_linear(a, w, b), *x;
        CHECK(tensor_requires_grad(y) && tensor_backward_with(y, g, 0) == 0);
        CHECK(same_bits(tensor_grad(b), tensor_sum_dim(g, 0, 0)));
        CHECK(same_bits(tensor_grad(a), tensor_matmul(g, tensor_detach(w))));
        CHECK(same_bits(tensor_grad(w), tensor_matmul(tensor_mT(g), tensor_detach(a))));
        y = tensor_linear(tensor_detach(a), tensor_detach(w), tensor_requires_grad_(tensor_detach(b), 1));
        CHECK(tensor_requires_grad(y));
        CHECK(!tensor_requires_grad(tensor_matmul(tensor_detach(a), tensor_ones(7, 2))));
        {
            tensor_scope_t s = tensor_scope_begin_inference();
            x = tensor_scope_return(s, tensor_matmul(tensor_ones(4, 4), tensor_ones(4, 4)));
            CHECK_POISON(tensor_mul(tensor_requires_grad_(tensor_ones(4, 4), 1), x), TENSOR_ERR_AUTOGRAD,
                         "inference");
        }
        y = tensor_matmul(a, tensor_mT(w));
        tensor_add_(tensor_detach(a), tensor_ones(5, 7));
        CHECK(tensor_backward_with(y, g, 0) == TENSOR_ERR_AUTOGRAD);
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "matmul");
        CHECK_POISON(tensor_matmul(tensor_ones(3, 4), tensor_ones(5, 3)), TENSOR_ERR_SHAPE, "agree on K");
    }
    {   // the place of the largest: of ties the first, NaN above all
        float v[] = {1, 3, 3, -2, 0, NAN};
        tensor_t *x = tensor_from(v, TENSOR_F32, 2, 3), *few = tensor_narrow(x, 0, 0, 1);
        CHECK(tensor_item_i64(tensor_argmax(few)) == 1 && tensor_item_i64(tensor_argmin(few)) == 0);
        CHECK(tensor_item(tensor_argmax(x)) == 5 && tensor_item(tensor_argmin(x)) == 5);
        CHECK(tensor_item(tensor_argmax(tensor_mT(x))) == 5 && tensor_item(tensor_argmax(few)) == 1);
        CHECK(tensor_dtype(tensor_argmax(x)) == TENSOR_I64 && tensor_ndim(tensor_argmax(x)) == 0);
        CHECK_POISON(tensor_argmax(tensor_zeros(0)), TENSOR_ERR_SHAPE, "argmax");
        CHECK(tensor_item(tensor_from(v + 1, TENSOR_F32, 1)) == 3);
    }
}

// x among NaN, which no product may see: with rows, with columns next to each other, with neither.
static tensor_t *amid(tensor_t *x, int how) {
    int64_t rows = tensor_size(x, 0), columns = tensor_size(x, 1), step = how == 2 ? 3 : 1;
    tensor_t *room, *at;
    if (how == 1) { return tensor_mT(amid(tensor_mT(x), 0)); }
    room = tensor_fill_(tensor_zeros_of(TENSOR_BF16, rows + 2, step * columns + 7), NAN);
    at = tensor_narrow(tensor_slice(room, 1, 3, 3 + step * columns, step), 0, 1, rows);
    tensor_copy_(at, x);
    return at;
}

// Products of bf16 by instructions of their own where the machine has them: a rounding of the result and the
// sums' own error from the product in double, whatever the layout, edges, chunks of k and threads.
static void halves(void) {
    static const char *const isas[] = {"avx512", "avx512bf16", "amx", "neon", "reference"};
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 40, 33}, {2, 1100, 65}, {15, 16, 17}, {16, 32, 16},
        {17, 33, 32}, {31, 64, 100}, {33, 31, 47}, {64, 64, 64}, {70, 513, 90}, {100, 1100, 40},
        {40, 70, 1060}, {32, 64, 96}, {9, 96, 64}, {40, 1100, 120}, {600, 520, 40}, {33, 1120, 520},
        {1, 1024, 1100}};
    for (int i = 0; i < 5; i++) {
        if (tensor_set_isa(isas[i])) {
            tensor_clear_error();
            continue;
        }
        CHECK(strcmp(tensor_isa_name(), isas[i]) == 0);
        tensor_manual_seed(11);
        for (int k = 0; k < (int)(sizeof sizes / sizeof sizes[0]) * 9; k++) {
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t *n = sizes[k / 9];
            tensor_t *a = tensor_to(tensor_randn(n[0], n[1]), TENSOR_BF16), *wa = tensor_to(a, TENSOR_F64);
            tensor_t *b = tensor_to(tensor_randn(n[1], n[2]), TENSOR_BF16), *wb = tensor_to(b, TENSOR_F64);
            tensor_t *want = tensor_matmul(wa, wb), *one, *many, *room;
            room = tensor_matmul(tensor_abs(wa), tensor_abs(wb));
            room = tensor_add(tensor_mul_scalar(tensor_abs(want), 0.00391), tensor_mul_scalar(room, 1e-6));
            a = amid(a, k % 3);
            b = amid(b, k / 3 % 3);
            one = tensor_matmul(a, b);
            CHECK(tensor_dtype(one) == TENSOR_BF16);
            want = tensor_abs(tensor_sub(tensor_to(one, TENSOR_F64), want));
            CHECK_MSG(tensor_item(tensor_all(tensor_le(want, room))), "%s: case %d", isas[i], k);
            tensor_set_num_threads(3);
            many = tensor_matmul(a, b);
            tensor_set_num_threads(1);
            CHECK_MSG(tensor_equal(one, many), "%s: case %d by threads", isas[i], k);
            tensor_set_num_threads(3);
            many = tensor_matmul(twice(a), twice(b));       // a batch
            tensor_set_num_threads(1);
            CHECK_MSG(tensor_equal(tensor_select(many, 0, 0), one), "%s: case %d of a batch", isas[i], k);
            CHECK_MSG(tensor_equal(tensor_select(many, 0, 1), one), "%s: case %d of a batch", isas[i], k);
            tensor_scope_end(scope);
        }
        for (int k = 0; k < 3; k++) {                       // bias, gradients, no element, NaN and infinity
            tensor_scope_t scope = tensor_scope_begin();
            int64_t rows = k == 0 ? 3 : k == 1 ? 40 : 0;
            tensor_t *x = tensor_requires_grad_(tensor_to(tensor_randn(rows, 48), TENSOR_BF16), 1);
            tensor_t *w = tensor_requires_grad_(tensor_to(tensor_randn(50, 48), TENSOR_BF16), 1);
            tensor_t *v = tensor_requires_grad_(tensor_to(tensor_randn(50), TENSOR_BF16), 1);
            tensor_t *g = tensor_to(tensor_randn(rows, 50), TENSOR_BF16), *t[3], *f;
            tensor_t *y = tensor_linear(x, w, v);
            t[0] = tensor_requires_grad_(tensor_to(tensor_detach(x), TENSOR_F32), 1);
            t[1] = tensor_requires_grad_(tensor_to(tensor_detach(w), TENSOR_F32), 1);
            t[2] = tensor_requires_grad_(tensor_to(tensor_detach(v), TENSOR_F32), 1);
            f = tensor_linear(t[0], t[1], t[2]);
            CHECK(tensor_dtype(y) == TENSOR_BF16);
            CHECK(tensor_allclose(tensor_to(y, TENSOR_F32), f, 0.0045, 1e-4));
            CHECK(tensor_backward_with(y, g, 0) == 0);
            CHECK(tensor_backward_with(f, tensor_to(g, TENSOR_F32), 0) == 0);
            CHECK(tensor_allclose(tensor_to(tensor_grad(x), TENSOR_F32), tensor_grad(t[0]), 0.0045, 1e-4));
            CHECK(tensor_allclose(tensor_to(tensor_grad(w), TENSOR_F32), tensor_grad(t[1]), 0.0045, 1e-4));
            CHECK(tensor_allclose(tensor_to(tensor_grad(v), TENSOR_F32), tensor_grad(t[2]), 0.01, 0.05));
            y = tensor_to(tensor_linear_relu(x, w, v), TENSOR_F32);
            CHECK(tensor_allclose(y, tensor_relu(f), 0.0045, 1e-4));
            tensor_scope_end(scope);
        }
        {
            tensor_scope_t scope = tensor_scope_begin();
            float v[] = {1, NAN, 2, INFINITY, 0, 0};
            tensor_t *a = tensor_to(tensor_from(v, TENSOR_F32, 3, 2), TENSOR_BF16);
            tensor_t *y = tensor_matmul(a, tensor_ones_of(TENSOR_BF16, 2, 40));
            CHECK(isnan(tensor_item(tensor_at(y, "0, 39"))) && isinf(tensor_item(tensor_at(y, "1, 0"))));
            CHECK(tensor_item(tensor_at(y, "2, 7")) == 0);
            y = tensor_matmul(tensor_ones_of(TENSOR_BF16, 3, 0), tensor_ones_of(TENSOR_BF16, 0, 40));
            CHECK(tensor_size(y, 1) == 40 && tensor_item(tensor_sum(y)) == 0);
            tensor_scope_end(scope);
        }
    }
    tensor_set_isa(NULL);
}

// A column by a row has a way of its own too, up to 8,192 elements: the bits of the general one (a batch
// takes it), whatever the signs, and where results are 0, too small or not numbers.
static void outer_products(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon"};
    static const int64_t sizes[][2] = {{2, 65}, {8, 512}, {5, 784}, {65, 126}, {3, 2730}, {4096, 2},
        {9, 1023}};
    static const float odd[] = {-0.0f, 0, 1e-30f, -1e-30f, 1e-42f, -1.5f, INFINITY, 3e38f};
    for (int i = 0; i < 5; i++) {
        if (tensor_set_isa(isas[i])) {
            tensor_clear_error();
            continue;
        }
        for (int k = 0; k < (int)(sizeof sizes / sizeof sizes[0]); k++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *a = tensor_randn(sizes[k][0], 1), *b = tensor_randn(1, sizes[k][1]);
            tensor_t *some = tensor_from(odd, TENSOR_F32, 8);
            tensor_copy_(tensor_narrow(tensor_flatten(a, 0, -1), 0, 0, 2), tensor_narrow(some, 0, k % 7, 2));
            for (int64_t at = 0; at + 8 <= sizes[k][1]; at += 16) {
                tensor_copy_(tensor_narrow(tensor_flatten(b, 0, -1), 0, at, 8), some);
            }
            tensor_t *general = tensor_select(tensor_matmul(twice(a), twice(b)), 0, 1);
            CHECK_MSG(same_bits(tensor_matmul(a, b), general), "%s: case %d", isas[i], k);
            tensor_t *apart = tensor_narrow(tensor_contiguous(tensor_expand(a, sizes[k][0], 7)), 1, 2, 1);
            CHECK_MSG(same_bits(tensor_matmul(apart, b), general), "%s: case %d apart", isas[i], k);
            tensor_scope_end(scope);
        }
    }
    tensor_set_isa(NULL);
}

int main(void) {
    RUN(einsum);
    RUN(outer_products);
    RUN(halves);
    RUN(small_products);
    RUN(products);
    RUN(positions);
    RUN(threads);
    RUN(values);
    RUN(properties);
    RUN(gradients);
    RUN(errors);
    RUN(memory);
    return test_report();
}

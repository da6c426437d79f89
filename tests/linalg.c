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
    for (k = 0; k < tensor_numel(x); k++) p[k] = number();
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
    test_note(tensor_numel(x) == n, __FILE__, line, "%lld elements, expected %d (%s)", (long long)tensor_numel(x),
              n, tensor_error_text());
    for (k = 0; k < n && tensor_numel(x) == n; k++) test_near(at(x, k), want[k], tol, __FILE__, line, "element");
}
#define IS(x, tol, ...)                                                                                      \
    do {                                                                                                     \
        const double want_[] = {__VA_ARGS__};                                                                \
        same(x, want_, COUNT(want_), tol, __LINE__);                                                         \
    } while (0)
static void shaped(tensor_t *x, const int64_t *dims, int n, int line) {
    int d, good = !tensor_is_poison(x) && tensor_ndim(x) == n;
    for (d = 0; good && d < n; d++) good = tensor_size(x, d) == dims[d];
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
    if (tensor_numel(a) == 0 || tensor_numel(a) != tensor_numel(b)) return;
    gap = tensor_item(tensor_max(tensor_abs(tensor_sub(tensor_to(a, TENSOR_F64), tensor_to(b, TENSOR_F64)))));
    test_note(gap <= tol, __FILE__, line, "differ by %g, %g is allowed", gap, tol);
}
#define CLOSE(a, b, tol) close_to(a, b, tol, __LINE__)

typedef tensor_t *(*fn_t)(tensor_t *const *in, int n, void *user);
static void grads(fn_t fn, void *user, tensor_t *const *in, int n, int second, int line) {
    int code = tensor_gradcheck(fn, user, in, n, 1e-6, 1e-5, 1e-3);
    test_note(!code, __FILE__, line, "gradcheck: %s", tensor_error_text());
    tensor_clear_error();
    if (!second) return;
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
        for (; *s && *s != ',' && *s != '-'; s++)
            if (*s == '.') text[m] = '.', m += !dots, dots = 1;
            else text[m++] = *s, letters++;
        s += *s == ',' ? 1 : *s ? 2 : 0;
        for (j = d = 0; j < m; j++) {
            int e, run = i < n ? tensor_ndim(list[i]) - letters : 0;
            if (i == n)
                for (e = 0; e < 8; e++) run += strchr(all, '0' + e) != NULL;
            if (text[j] != '.') l[d++] = text[j];
            else for (e = run; e > 0; e--) l[d++] = (char)('0' + 8 - e);
        }
        for (j = 0; i < n && j < d; j++) {
            char *at_ = strchr(all, l[j]);
            if (!at_) at_ = all + strlen(all), *at_ = l[j], size[at_ - all] = 1;
            if (tensor_size(list[i], j) != 1) size[at_ - all] = tensor_size(list[i], j);
        }
    }
    for (j = 0; all[j]; j++) total *= size[j];
    for (j = 0; out[j]; j++) od[j] = size[strchr(all, out[j]) - all];
    y = tensor_zeros_n(od, (int)strlen(out), TENSOR_F64);
    p = (double *)tensor_data_mut(y);
    for (k = 0; k < total; k++) {
        int64_t index[64], rest = k, to = 0;
        double v = 1;
        for (j = (int)strlen(all) - 1; j >= 0; j--) index[j] = rest % size[j], rest /= size[j];
        for (i = 0; i < n; i++) {
            int64_t from = 0;
            tensor_t *x = list[i];
            for (j = 0; label[i][j]; j++)
                if (tensor_size(x, j) != 1) from += index[strchr(all, label[i][j]) - all] * tensor_stride(x, j);
            v *= ((const double *)tensor_data(x))[from];
        }
        for (j = 0; out[j]; j++) to = to * od[j] + index[strchr(all, out[j]) - all];
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
            if (d > 1) strided[n] = tensor_transpose(tensor_contiguous(tensor_transpose(in[n], 0, -1)), 0, -1);
        }
        want = naive(cases[c].plain, in, n);
        CLOSE(tensor_einsum_n(cases[c].text, in, n), want, 1e-12);
        CLOSE(tensor_einsum_n(cases[c].text, strided, n), want, 1e-12);
        grads(fn_einsum, (void *)(uintptr_t)cases[c].text, in, n, tensor_numel(want) < 20, __LINE__);
        for (i = 0; i < n; i++) in[i] = tensor_to(in[i], TENSOR_F32);
        CLOSE(tensor_einsum_n(cases[c].text, in, n), want, 1e-5);
    }
    {   // other dtypes, 0-d, sizes of 0
        tensor_t *x = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I64), 2, 3), *h = tensor_to(x, TENSOR_F16);
        IS(tensor_einsum("ij,kj->ik", x, x), 0, 5, 14, 14, 50);
        CHECK(tensor_dtype(tensor_einsum("ij,kj->ik", x, x)) == TENSOR_I64);
        IS(tensor_einsum("ij,kj->ik", h, h), 0, 5, 14, 14, 50);
        CHECK(tensor_dtype(tensor_einsum("ij,kj->ik", h, h)) == TENSOR_F16);
        IS(tensor_einsum(",i->i", tensor_scalar(2, TENSOR_F64), tensor_to(tensor_select(x, 0, 1), TENSOR_F64)), 0,
           6, 8, 10);
        IS(tensor_einsum("", tensor_scalar(2, TENSOR_F64)), 0, 2);
        SHAPED(tensor_einsum("ij,jk->ik", R(0, 3), R(3, 2)), 0, 2);
        IS(tensor_einsum("ij,jk->ik", R(2, 0), R(0, 2)), 0, 0, 0, 0, 0);
        IS(tensor_einsum("ij->j", R(0, 2)), 0, 0, 0);
    }
    CHECK_POISON(tensor_einsum("ij,jk->ik", R(2, 3), R(4, 2)), TENSOR_ERR_SHAPE,
                 "einsum: dim 0 of tensor 1 [4,2] does not fit the size 3");
    CHECK_POISON(tensor_einsum("ij", R(2)), TENSOR_ERR_SHAPE, "einsum: tensor 0 [2] has 1 dims");
    CHECK_POISON(tensor_einsum("i", R(2, 2)), TENSOR_ERR_SHAPE, "names 1");
    CHECK_POISON(tensor_einsum("i", R(2), R(2)), TENSOR_ERR_FORMAT, "has not 2 terms");
    CHECK_POISON(tensor_einsum("i,i", R(2)), TENSOR_ERR_FORMAT, "has not 1 terms");
    CHECK_POISON(tensor_einsum("i->ij", R(2)), TENSOR_ERR_FORMAT, "no label of the inputs");
    CHECK_POISON(tensor_einsum("i->ii", R(2)), TENSOR_ERR_FORMAT, "there twice");
    CHECK_POISON(tensor_einsum("i-i", R(2)), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_einsum("i1->i", R(2, 2)), TENSOR_ERR_FORMAT, "cannot read \"1->i\"");
    CHECK_POISON(tensor_einsum("i..->i", R(2, 2)), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_einsum("ii", R(2, 3)), TENSOR_ERR_SHAPE, "einsum");
    CHECK_POISON(tensor_einsum("abcde,fghij", R(1, 1, 1, 1, 1), R(1, 1, 1, 1, 1)), TENSOR_ERR_SHAPE, "10 dims");
    CHECK_POISON(tensor_einsum("i,i", R(2), R_OF(TENSOR_F32, 2)), TENSOR_ERR_DTYPE, "einsum");
    CHECK_POISON(tensor_einsum_n("i", NULL, 1), TENSOR_ERR_FORMAT, "at least one");
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
    CLOSE(tensor_baddbmm(R(1, 1), a, c, 0, 2), tensor_mul_scalar(tensor_bmm(a, c), 2), 1e-12);
    CLOSE(tensor_addbmm(tensor_ones_of(TENSOR_F64, 2), a, c, 0.5, 2),
          tensor_add_scalar(tensor_mul_scalar(tensor_einsum("bij,bjk->ik", a, c), 2), 0.5), 1e-12);
    CLOSE(tensor_addmv(v, m, w, 1, 1), tensor_add(v, tensor_mv(m, w)), 1e-12);
    CLOSE(tensor_addr(m, v, w, 1, 1), tensor_add(m, tensor_outer(v, w)), 1e-12);
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
    IS(tensor_kron(tensor_reshape(tensor_arange(1, 5, 1, TENSOR_F32), 2, 2), tensor_arange(1, 3, 1, TENSOR_F32)),
       0, 1, 2, 2, 4, 3, 6, 4, 8);
    SHAPED(tensor_kron(R(2, 3), R(2, 2, 2)), 2, 4, 6);
    SHAPED(tensor_kron(R(0, 3), R(2, 2)), 0, 6);
    IS(tensor_cross(tensor_arange(1, 4, 1, TENSOR_F32), tensor_arange(4, 7, 1, TENSOR_F32), 0), 0, -3, 6, -3);
    SHAPED(tensor_linalg_cross(R(2, 1, 3), R(1, 4, 3), -1), 2, 4, 3);
    IS(tensor_linalg_cross(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_I32), 3, 2),
                           tensor_reshape(tensor_arange(1, 7, 1, TENSOR_I32), 3, 2), 0), 0, -2, -2, 4, 4, -2, -2);
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
    CHECK_POISON(tensor_tensordot_dims(v, m, da, one, 1), TENSOR_ERR_INDEX, "tensordot: dim 2");
    CHECK_POISON(tensor_tensordot_dims(v, m, NULL, one, 1), TENSOR_ERR_SHAPE, "dims is NULL");
    CHECK_POISON(tensor_inner(v, w), TENSOR_ERR_SHAPE, "inner: the last dims of a [3] and b [4]");
    CHECK_POISON(tensor_baddbmm(R(3), a, c, 1, 1), TENSOR_ERR_SHAPE, "baddbmm: x [3] does not broadcast");
    CHECK_POISON(tensor_addbmm(v, a, b, 1, 1), TENSOR_ERR_SHAPE, "addbmm: a [2,3,2] and b [3,2,4]");
    CHECK_POISON(tensor_addmv(w, m, w, 1, 1), TENSOR_ERR_SHAPE, "addmv: x [4] does not broadcast");
    CHECK_POISON(tensor_addmv(v, m, v, 1, 1), TENSOR_ERR_SHAPE, "addmv: ");
    CHECK_POISON(tensor_addr(m, m, w, 1, 1), TENSOR_ERR_SHAPE, "outer: a [3,4]");
    CHECK_POISON(tensor_vdot(v, w), TENSOR_ERR_SHAPE, "K (3 vs 4)");
    CHECK_POISON(tensor_linalg_multi_dot(m), TENSOR_ERR_SHAPE, "at least 2 tensors");
    CHECK_POISON(tensor_linalg_multi_dot(m, m), TENSOR_ERR_SHAPE, "tensors 0 [3,4] and 1 [3,4] do not agree");
    CHECK_POISON(tensor_chain_matmul(m, w), TENSOR_ERR_SHAPE, "chain_matmul: tensor 1 [4] must be a matrix");
    CHECK_POISON(tensor_kron(R(1, 1, 1, 1, 1), m), TENSOR_ERR_SHAPE, "more than 4 dims");
    CHECK_POISON(tensor_linalg_cross(v, w, 0), TENSOR_ERR_SHAPE, "linalg_cross: a [3] and b [4] must have size 3");
    CHECK_POISON(tensor_cross(v, v, 1), TENSOR_ERR_INDEX, "cross: dim 1");
    CHECK_POISON(tensor_trace(v), TENSOR_ERR_SHAPE, "trace: x [3] must have 2 dims");
}

int main(void) {
    RUN(einsum);
    RUN(products);
    return test_report();
}

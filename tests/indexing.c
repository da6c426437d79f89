// indexing.c - indexing, creation, views and shapes, patterns: values from PyTorch 2.15, gradients, errors
#include "test.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

// ---- small tensors ----

static tensor_t *count_up(const int64_t *dims, int ndim) {
    int64_t n = 1;
    int i;
    for (i = 0; i < ndim; i++) { n *= dims[i]; }
    return tensor_reshape_n(tensor_arange(0, (double)n, 1, TENSOR_F32), dims, ndim);
}
static tensor_t *list_of(const double *v, int n, tensor_dtype_t dtype) {
    int64_t dims = n;
    return tensor_to(tensor_from_n(v, TENSOR_F64, &dims, 1), dtype);
}
#define LIST(dtype, ...)                                                                                     \
    list_of((const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),    \
            dtype)
#define A(...) count_up(TENSOR_DIMS(__VA_ARGS__))               // 0, 1, 2, .. in a shape
#define F(...) LIST(TENSOR_F32, __VA_ARGS__)
#define D(...) LIST(TENSOR_F64, __VA_ARGS__)
#define I(...) LIST(TENSOR_I64, __VA_ARGS__)
#define J(...) LIST(TENSOR_I32, __VA_ARGS__)
#define B(...) LIST(TENSOR_BOOL, __VA_ARGS__)
#define I2(rows, cols, ...) tensor_reshape(I(__VA_ARGS__), rows, cols)
#define B2(rows, cols, ...) tensor_reshape(B(__VA_ARGS__), rows, cols)

// "f32 [2,3] 0 1 2 3 4 5"
static const char *text(tensor_t *x) {
    static char s[4096];
    tensor_t *flat;
    int n = snprintf(s, sizeof s, "%s [", tensor_dtype_name(tensor_dtype(x))), i;
    int64_t k;
    if (tensor_is_poison(x)) { return tensor_error_text(); }
    for (i = 0; i < tensor_ndim(x); i++) {
        n += snprintf(s + n, sizeof s - (size_t)n, "%s%d", i ? "," : "", (int)tensor_size(x, i));
    }
    n += snprintf(s + n, sizeof s - (size_t)n, "]");
    flat = tensor_numel(x) ? tensor_reshape(tensor_to(tensor_detach(x), TENSOR_F64), -1) : x;
    for (k = 0; k < tensor_numel(x) && n < (int)sizeof s - 32; k++) {
        double v = tensor_item(tensor_select(flat, 0, k));
        n += snprintf(s + n, sizeof s - (size_t)n, v != v ? " nan" : " %.6g", v);
    }
    return s;
}
#define IS(x, want) CHECK_TEXT(text(x), want)

typedef tensor_t *(*fn_t)(tensor_t *const *in, int n, void *user);
static tensor_t *leaf(tensor_t *x) {
    return tensor_requires_grad_(tensor_clone(tensor_detach(tensor_to(x, TENSOR_F64))), 1);
}
// Both orders of gradients of fn in up to three f64 inputs, contiguous and as every second column of a wider
// tensor.
static void graded(const char *name, fn_t fn, tensor_t *a, tensor_t *b, tensor_t *c) {
    tensor_t *given[3], *in[3];
    int n = 0, pass, i;
    if (a) { given[n++] = a; }
    if (b) { given[n++] = b; }
    if (c) { given[n++] = c; }
    for (pass = 0; pass < 2; pass++) {
        for (i = 0; i < n; i++) {
            in[i] = leaf(given[i]);
            if (pass && tensor_ndim(in[i]) && tensor_size(in[i], -1)) {
                tensor_t *wide[2];
                wide[0] = wide[1] = tensor_detach(in[i]);
                in[i] = tensor_flatten(tensor_stack_n(wide, 2, -1), -2, -1);
                in[i] = tensor_slice(in[i], -1, 0, INT64_MAX, 2);
                in[i] = tensor_requires_grad_(tensor_detach(in[i]), 1);
            }
        }
        CHECK_MSG(tensor_gradcheck(fn, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s: %s", name,
                  tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(tensor_gradgradcheck(fn, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s: second order: %s", name,
                  tensor_error_text());
        tensor_clear_error();
    }
}
#define FN(name) static tensor_t *name(tensor_t *const *in, int n, void *user)
#define UNUSED (void)in, (void)n, (void)user
#define GRADED(fn, ...) graded(#fn, fn, __VA_ARGS__)

// ---- indexing ----

FN(f_index) { UNUSED; return tensor_index(in[0], NULL, I2(2, 2, 0, 2, 2, 1)); }
FN(f_index_gap) { UNUSED; return tensor_index(in[0], I(0, 1, 1), NULL, I(1, 0, 0)); }
FN(f_index_mask) { UNUSED; return tensor_index(in[0], NULL, B(1, 0, 1)); }
FN(f_put) { UNUSED; return tensor_index_put(in[0], in[1], 0, I(0, 1), NULL, I(1, 0)); }
FN(f_put_add) { UNUSED; return tensor_index_put(in[0], in[1], 1, NULL, I(1, 1)); }
FN(f_put_inplace) {
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    tensor_index_put_(y, in[1], 0, NULL, I(1, 2));
    return tensor_mul(y, y);
}
FN(f_take) { UNUSED; return tensor_take(in[0], I2(2, 2, 0, -1, 3, 3)); }
FN(f_flat_put) { UNUSED; return tensor_put(in[0], I(0, -1), in[1], 0); }
FN(f_flat_put_add) { UNUSED; return tensor_put(in[0], I(0, 0), in[1], 1); }
FN(f_along) { UNUSED; return tensor_take_along_dim(in[0], I2(1, 2, 2, 0), 1); }
FN(f_index_fill) { UNUSED; return tensor_index_fill(in[0], 1, I(0, -1), 9); }
FN(f_index_copy) { UNUSED; return tensor_index_copy(in[0], 1, I(2, 0), in[1]); }
FN(f_index_copy_) {
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    return tensor_square(tensor_index_copy_(y, 1, I(2, 0), in[1]));
}
FN(f_index_add_) {
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    return tensor_square(tensor_index_add_(y, 1, I(2, 2), in[1]));
}
FN(f_scatter_view) {          // in place through a view that is not contiguous: the base knows
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    tensor_scatter_add_(tensor_mT(y), 0, I2(2, 2, 2, 0, 1, 1), in[1]);
    return tensor_square(y);
}
FN(f_scatter_value) { UNUSED; return tensor_scatter_value(in[0], 1, I2(2, 1, 2, 0), 9); }
FN(f_alpha) { UNUSED; return tensor_index_add_alpha(in[0], 1, I(1, 1), in[1], -2); }
FN(f_masked_scatter) { UNUSED; return tensor_masked_scatter(in[0], B(1, 0, 1), in[1]); }
static const char *reduce_name;
static int reduce_self;
FN(f_reduce) {
    UNUSED;
    return tensor_scatter_reduce(in[0], 1, I2(2, 3, 0, 0, 2, 1, 1, 1), in[1], reduce_name, reduce_self);
}
static void index_gradients(void) {
    static const char *const names[] = {"sum", "prod", "mean", "amax", "amin"};
    tensor_t *x = tensor_add_scalar(A(2, 3), 1), *x3 = A(2, 3, 2), *s;
    int k;
    GRADED(f_index, x, NULL, NULL);
    GRADED(f_index_gap, x3, NULL, NULL);
    GRADED(f_index_mask, x, NULL, NULL);
    GRADED(f_put, x3, A(2, 3), NULL);
    GRADED(f_put_add, x, A(2, 2), NULL);
    GRADED(f_put_inplace, x, A(2, 2), NULL);
    GRADED(f_take, x, NULL, NULL);
    GRADED(f_flat_put, x, A(2), NULL);
    GRADED(f_flat_put_add, x, A(2), NULL);
    GRADED(f_along, x, NULL, NULL);
    GRADED(f_index_fill, x, NULL, NULL);
    GRADED(f_index_copy, x, A(2, 2), NULL);
    GRADED(f_index_copy_, x, A(2, 2), NULL);
    GRADED(f_index_add_, x, A(2, 2), NULL);
    GRADED(f_scatter_view, x, A(2, 2), NULL);
    GRADED(f_scatter_value, x, NULL, NULL);
    GRADED(f_alpha, x, A(2, 2), NULL);
    GRADED(f_masked_scatter, x, A(5), NULL);
    s = tensor_reshape(D(0.5, 4, 2.5, -1, 6, 3, 9, 9), 2, 4);        // wider than index
    for (k = 0; k < COUNT(names); k++) {
        for (reduce_self = 0; reduce_self < 2; reduce_self++) {
            reduce_name = names[k];
            GRADED(f_reduce, x, s, NULL);
        }
    }
    reduce_name = "prod", reduce_self = 1;                           // with a zero, with two
    GRADED(f_reduce, x, tensor_reshape(D(0, 4, 0, 0, 0, 3, 9, 9), 2, 4), NULL);
    GRADED(f_reduce, tensor_sub_scalar(x, 1), s, NULL);
    {   // amax shares the gradient among ties, as PyTorch
        tensor_t *in[2];
        in[0] = leaf(F(2, 5, 1)), in[1] = leaf(F(2, 2, 7, 1));
        tensor_backward(tensor_sum(tensor_scatter_reduce(in[0], 0, I(0, 0, 1, 1), in[1], "amax", 1)));
        IS(tensor_grad(in[0]), "f64 [3] 0.333333 0 1");
        IS(tensor_grad(in[1]), "f64 [4] 0.333333 0.333333 1 0");
    }
}
static void index_in_place(void) {
    tensor_t *x = A(3, 2), *base = A(2, 3), *y;
    const void *data = tensor_data(x);
    CHECK(tensor_index_put_(x, F(9), 0, I(0, -1), I(1, 0)) == x && tensor_data(x) == data);
    IS(x, "f32 [3,2] 0 9 2 3 9 5");
    tensor_index_put_(x, F(1), 1, I(0, 0));
    IS(x, "f32 [3,2] 2 11 2 3 9 5");
    CHECK(tensor_index_add_(x, 0, I(1, 1), tensor_ones(2, 2)) == x);
    IS(x, "f32 [3,2] 2 11 4 5 9 5");
    CHECK(tensor_index_copy_(x, 1, I(0), tensor_zeros(3, 1)) == x);
    IS(x, "f32 [3,2] 0 11 0 5 0 5");
    CHECK(tensor_index_fill_(x, 0, I(-1), 7) == x);
    IS(x, "f32 [3,2] 0 11 0 5 7 7");
    CHECK(tensor_scatter_(x, 0, I2(1, 2, 2, 1), tensor_full(3, 1, 2)) == x);
    IS(x, "f32 [3,2] 0 11 0 3 3 7");
    CHECK(tensor_scatter_add_(x, 1, I2(1, 2, 1, 1), tensor_ones(1, 2)) == x);
    CHECK(tensor_scatter_value_(x, 1, I2(1, 1, 0), -1) == x);
    CHECK(tensor_scatter_reduce_(x, 0, I2(1, 2, 1, 1), tensor_full(2, 1, 2), "prod", 1) == x);
    IS(x, "f32 [3,2] -1 13 0 6 3 7");
    CHECK(tensor_masked_scatter_(x, tensor_eq_scalar(x, 3), F(30)) == x && tensor_data(x) == data);
    IS(x, "f32 [3,2] -1 13 0 6 30 7");
    tensor_index_put_(tensor_mT(base), F(8), 0, I(1));              // strided views write through
    IS(base, "f32 [2,3] 0 8 2 3 8 5");
    tensor_index_add_(tensor_slice(base, 1, 0, 3, 2), 1, I(1, 0), tensor_full(100, 2, 2));
    IS(base, "f32 [2,3] 100 8 102 103 8 105");
    tensor_index_put_(base, F(1, 2), 0, NULL, I(0, 2));
    IS(base, "f32 [2,3] 1 8 2 1 8 2");
    y = A(4);                                                       // src lies in x itself
    tensor_index_add_(y, 0, I(3, 2, 1, 0), y);
    IS(y, "f32 [4] 3 3 3 3");
    y = tensor_scalar(5, TENSOR_F32);
    tensor_index_fill_(y, 0, I(0), 6);
    tensor_scatter_add_(y, 0, tensor_scalar(0, TENSOR_I64), tensor_scalar(1, TENSOR_F32));
    IS(y, "f32 [] 7");
    y = leaf(A(3));
    CHECK_POISON(tensor_index_fill_(y, 0, I(0), 1), TENSOR_ERR_AUTOGRAD, "leaf that requires grad");
    CHECK_POISON(tensor_index_put_(y, D(1), 0, I(0)), TENSOR_ERR_AUTOGRAD, "leaf that requires grad");
    CHECK_POISON(tensor_scatter_value_(tensor_expand(F(1), 3), 0, I(0), 1), TENSOR_ERR_AUTOGRAD, "expanded");
    CHECK_POISON(tensor_index_put_(tensor_expand(F(1), 3), F(2), 0, I(0)), TENSOR_ERR_AUTOGRAD, "expanded");
    y = tensor_mul_scalar(y, 1);                                    // a saved value is guarded
    {
        tensor_t *z = tensor_square(y);
        tensor_index_fill_(y, 0, I(0), 1);
        CHECK(tensor_backward(tensor_sum(z)) != 0);
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "index_copy");
    }
}
static void index_dtypes(void) {
    int k;
    for (k = 0; k < TENSOR_DTYPE_COUNT; k++) {
        tensor_dtype_t t = (tensor_dtype_t)k;
        char want[64];
        int b = t == TENSOR_BOOL;
        tensor_t *x = tensor_to(F(1, 0, 3, 4), t), *y;
        snprintf(want, sizeof want, b ? "%s [2] 1 0" : "%s [2] 4 0", tensor_dtype_name(t));
        IS(tensor_index(x, J(-1, 1)), want);
        IS(tensor_take(x, I(3, 1)), want);
        y = tensor_index_copy(x, 0, I(1), tensor_to(F(1), t));
        snprintf(want, sizeof want, b ? "%s [4] 1 1 1 1" : "%s [4] 1 1 3 4", tensor_dtype_name(t));
        IS(y, want);
        IS(tensor_masked_scatter(x, B(0, 1, 0, 0), tensor_to(F(1), t)), want);
        IS(tensor_index_fill(x, 0, I(-3), 1), want);
        IS(tensor_scatter_reduce(x, 0, I(1), tensor_to(F(1), t), "amax", 1), want);
        IS(tensor_scatter_reduce(x, 0, I(1), tensor_to(F(1), t), "amin", 0), want);
        IS(tensor_scatter_reduce(x, 0, I(1), tensor_to(F(1), t), "prod", 0), want);
        if (b) { continue; }
        snprintf(want, sizeof want, "%s [4] 1 0 3 24", tensor_dtype_name(t));
        IS(tensor_scatter_reduce(x, 0, I(3, 3), tensor_to(F(2, 3), t), "prod", 1), want);
    }
    IS(tensor_index(A(3), tensor_to(I(1), TENSOR_I32)), "f32 [1] 1");
    IS(tensor_scatter_reduce(I(4611686018427387904, 1), 0, I(0), I(4), "prod", 1), "i64 [2] 0 1");  // wraps
}
// clang-format off
static void index_errors(void) {
    tensor_t *x = A(2, 3), *list[9] = {NULL};
    CHECK_POISON(tensor_index(x, I(0, 2)), TENSOR_ERR_INDEX, "index: index 2 at element 1 of [2] is outside -2..1");
    CHECK_POISON(tensor_index(x, NULL, I(-4)), TENSOR_ERR_INDEX, "index: index -4 at element 0 of [1] is outside -3..2");
    CHECK_POISON(tensor_index(x, I(0), I(0), I(0)), TENSOR_ERR_INDEX,
                 "index: 3 indices are too many for x [2,3]");
    CHECK_POISON(tensor_index(x, B(1, 0, 1)), TENSOR_ERR_INDEX, "index: mask [3] does not fit x [2,3] at dim 0");
    CHECK_POISON(tensor_index(x, B2(1, 1, 1)), TENSOR_ERR_INDEX, "mask [1,1]");
    CHECK_POISON(tensor_index(tensor_zeros(1, 1, 1, 1, 1, 1, 1, 1), tensor_scalar(1, TENSOR_BOOL)),
                 TENSOR_ERR_SHAPE, "more than 8 dims");
    CHECK_POISON(tensor_index(x, I(0, 1), I(0, 1, 2)), TENSOR_ERR_SHAPE,
                 "index: index [3] does not broadcast with [2]");
    CHECK_POISON(tensor_index(x, F(0)), TENSOR_ERR_DTYPE, "index: index [1] must be i64, i32 or bool, not f32");
    CHECK_POISON(tensor_index_n(x, list, 2), TENSOR_ERR_SHAPE, "index: no index tensor for x [");
    CHECK_POISON(tensor_index_n(x, NULL, 2), TENSOR_ERR_SHAPE, "index: no index tensor for x [");
    CHECK_POISON(tensor_index_n(x, list, 9), TENSOR_ERR_INDEX, "too many");
    CHECK_POISON(tensor_index(A(1, 1, 1, 1), tensor_zeros_of(TENSOR_I64, 1, 1, 1, 1, 1, 1)), TENSOR_ERR_SHAPE,
                 "more than 8 dims");
    CHECK_POISON(tensor_index(A(0, 3), I(0)), TENSOR_ERR_INDEX, "index: index 0 at element 0 of [1] is outside a dim of size 0");
    CHECK_POISON(tensor_index_put(x, F(1, 2), 0, I(0), I(0, 1, 2)), TENSOR_ERR_SHAPE, "expand");
    CHECK_POISON(tensor_index_put(x, D(1), 0, I(0)), TENSOR_ERR_DTYPE, "src [1,3] is f64, must be f32 as x");
    list[0] = I(0, 5);
    CHECK_POISON(tensor_index_put_n_(x, list, 1, F(1), 0), TENSOR_ERR_INDEX, "index_put_: ");
    IS(x, "f32 [2,3] 0 1 2 3 4 5");                     // nothing was written
    CHECK_POISON(tensor_index_copy_(x, 1, I(0, 3), tensor_ones(2, 2)), TENSOR_ERR_INDEX,
                 "index_copy_: index 3 at element 1 of index [2] is outside 0..2 (x [2,3])");
    CHECK_POISON(tensor_scatter_value_(x, 1, I2(1, 2, 0, 3), 9), TENSOR_ERR_INDEX, "scatter_value_: index 3");
    IS(x, "f32 [2,3] 0 1 2 3 4 5");
    CHECK_POISON(tensor_take(x, I(6)), TENSOR_ERR_INDEX, "take: index: index 6 at element 0 of [1] is outside -6..5");
    CHECK_POISON(tensor_put(x, I(0, 1), F(1), 0), TENSOR_ERR_SHAPE, "index [2] and src [1]");
    CHECK_POISON(tensor_index_fill(A(1, 0), 0, I(2), 1), TENSOR_ERR_INDEX, "index 2 at element 0 of [1] is outside -1..0");
    CHECK_POISON(tensor_index_copy(A(1, 0), 0, I(2), A(1, 0)), TENSOR_ERR_INDEX, "index 2 at element 0");
    CHECK_POISON(tensor_index_add(A(3, 0), 0, I(-5), A(1, 0)), TENSOR_ERR_INDEX, "index -5 at element 0");
    CHECK_POISON(tensor_index_fill(x, 2, I(0), 1), TENSOR_ERR_INDEX, "index_fill: dim 2 is outside -2..1");
    CHECK_POISON(tensor_index_fill(x, 1, I(3), 1), TENSOR_ERR_INDEX, "index_fill: index 3");
    CHECK_POISON(tensor_index_copy(x, 0, I(0), tensor_ones(2, 3)), TENSOR_ERR_SHAPE,
                 "index_copy: index [1] and src [2,3] do not fit x [2,3] along dim 0");
    CHECK_POISON(tensor_scatter_reduce(x, 0, I2(1, 1, 0), x, "median", 1), TENSOR_ERR_FORMAT,
                 "reduce must be sum, prod, mean, amax or amin, not \"median\"");
    CHECK_POISON(tensor_scatter_reduce(x, 0, I2(1, 1, 0), x, NULL, 1), TENSOR_ERR_FORMAT, "NULL");
    CHECK_POISON(tensor_scatter_reduce(x, 0, I2(1, 1, 2), x, "mean", 0), TENSOR_ERR_INDEX, "scatter_reduce");
    CHECK_POISON(tensor_take_along_dim(x, I(0), 0), TENSOR_ERR_SHAPE,
                 "take_along_dim: index [1] does not fit x [2,3] along dim 0");
    CHECK_POISON(tensor_take_along_dim(x, I2(3, 1, 0, 0, 0), 1), TENSOR_ERR_SHAPE, "index [3,1]");
    CHECK_POISON(tensor_masked_scatter(x, B(1, 0, 1), F(1, 2, 3)), TENSOR_ERR_SHAPE,
                 "masked_scatter: src [3] has fewer elements than the 4 true ones");
    CHECK_POISON(tensor_masked_scatter(x, F(1, 0, 1), F(1, 2, 3)), TENSOR_ERR_DTYPE, "mask [3] must be bool");
    CHECK_POISON(tensor_masked_select(x, B(1, 0)), TENSOR_ERR_SHAPE, "x [2,3] and mask [2] do not broadcast");
    CHECK_POISON(tensor_nonzero(NULL), TENSOR_ERR_OWNER, "nonzero: argument x is NULL");
}
// clang-format on
// clang-format off
static void index_values(void) {
    IS(tensor_index(A(2,3), tensor_scalar(1, TENSOR_BOOL)),
       "f32 [1,2,3] 0 1 2 3 4 5");
    IS(tensor_index(A(2,3), tensor_scalar(0, TENSOR_BOOL)),
       "f32 [0,2,3]");
    IS(tensor_index(tensor_scalar(7, TENSOR_F32), tensor_scalar(1, TENSOR_BOOL)),
       "f32 [1] 7");
    IS(tensor_index(A(2,3), tensor_scalar(1, TENSOR_BOOL), I(1,0)),
       "f32 [2,3] 3 4 5 0 1 2");
    IS(tensor_index_put(A(2,2), F(9), 0, tensor_scalar(1, TENSOR_BOOL)),
       "f32 [2,2] 9 9 9 9");
    IS(tensor_index_put(A(2,2), F(9), 0, tensor_scalar(0, TENSOR_BOOL)),
       "f32 [2,2] 0 1 2 3");
    IS(tensor_index(A(4,3), I(2,-1,2)),
       "f32 [3,3] 6 7 8 9 10 11 6 7 8");
    IS(tensor_index(A(4,3), NULL, I(0,-1)),
       "f32 [4,2] 0 2 3 5 6 8 9 11");
    IS(tensor_index(A(4,3), I(0,3), I(1,-1)),
       "f32 [2] 1 11");
    IS(tensor_index(A(4,3), I2(2,1,0,3), I(1,-1)),
       "f32 [2,2] 1 2 10 11");
    IS(tensor_index(A(2,3,4), I(0,1), NULL, I(3,2)),
       "f32 [2,3] 3 7 11 14 18 22");
    IS(tensor_index(A(2,3,4), NULL, I(0,2), I(3,2)),
       "f32 [2,2] 3 10 15 22");
    IS(tensor_index(A(2,3,4), NULL, I2(2,2,0,2,1,1)),
       "f32 [2,2,2,4] 0 1 2 3 8 9 10 11 4 5 6 7 4 5 6 7 12 13 14 15 20 21 22 23 16 17 18 19 16 17 18 19");
    IS(tensor_index(A(2,3,4), NULL, NULL, tensor_scalar(-1, TENSOR_I64)),
       "f32 [2,3] 3 7 11 15 19 23");
    IS(tensor_index(A(4), tensor_scalar(2, TENSOR_I32)),
       "f32 [] 2");
    IS(tensor_index(tensor_mT(A(2,3,4)), I(1), I(3,0), NULL),
       "f32 [2,3] 15 19 23 12 16 20");
    IS(tensor_index(A(3,4), B(1,0,1)),
       "f32 [2,4] 0 1 2 3 8 9 10 11");
    IS(tensor_index(A(2,3), B2(2,3,1,0,1,0,0,1)),
       "f32 [3] 0 2 5");
    IS(tensor_index(A(2,3,2), NULL, B2(3,2,1,0,1,0,0,1)),
       "f32 [2,3] 0 2 5 6 8 11");
    IS(tensor_index(A(3,4), B(1,0,1), I(0,-1)),
       "f32 [2] 0 11");
    IS(tensor_index(A(2,3,2), B(1,1), NULL, I(1,0)),
       "f32 [2,3] 1 3 5 6 8 10");
    IS(tensor_index(A(3,4), B(0,0,0)),
       "f32 [0,4]");
    IS(tensor_index(A(3,4), tensor_zeros_of(TENSOR_I64, 0)),
       "f32 [0,4]");
    IS(tensor_index(A(0,4), tensor_zeros_of(TENSOR_I64, 0)),
       "f32 [0,4]");
    IS(tensor_index(A(2,1,3,2), I(0,1), NULL, I2(2,1,2,0)),
       "f32 [2,2,1,2] 4 5 10 11 0 1 6 7");
    IS(tensor_index_put(A(3,2), tensor_full(9, 2), 0, I(0,-1)),
       "f32 [3,2] 9 9 2 3 9 9");
    IS(tensor_index_put(A(3,2), tensor_full(9, 2, 1), 0, I(0,-1)),
       "f32 [3,2] 9 9 2 3 9 9");
    IS(tensor_index_put(A(3,2), F(1,2,4), 1, I(1,1,0), I(0,0,1)),
       "f32 [3,2] 0 5 5 3 4 5");
    IS(tensor_index_put(A(2,3,2), F(100), 1, I(0,1), NULL, I(1,0)),
       "f32 [2,3,2] 0 101 2 103 4 105 106 7 108 9 110 11");
    IS(tensor_index_put(A(2,3,2), A(2,3), 0, I(0,1), NULL, I(1,0)),
       "f32 [2,3,2] 0 0 2 1 4 2 3 7 4 9 5 11");
    IS(tensor_index_put(A(2,3), F(7), 0, B2(2,3,1,0,1,0,0,1)),
       "f32 [2,3] 7 1 7 3 4 7");
    IS(tensor_index_put(A(2,3), F(7,8,9), 0, B2(2,3,1,0,1,0,0,1)),
       "f32 [2,3] 7 1 8 3 4 9");
    IS(tensor_index_put(A(3,2), tensor_reshape(F(7,8,9), 3, 1), 0, NULL, I(1)),
       "f32 [3,2] 0 7 2 8 4 9");
    IS(tensor_take(A(2,3), I2(2,2,0,-1,4,4)),
       "f32 [2,2] 0 5 4 4");
    IS(tensor_take(tensor_mT(A(2,3)), I(1)),
       "f32 [1] 3");
    IS(tensor_put(A(2,3), I(0,-1,0), F(10,20,30), 1),
       "f32 [2,3] 40 1 2 3 4 25");
    IS(tensor_put(A(2,3), I(1,-1), F(10,20), 0),
       "f32 [2,3] 0 10 2 3 4 20");
    IS(tensor_nonzero(A(2,3)),
       "i64 [5,2] 0 1 0 2 1 0 1 1 1 2");
    IS(tensor_nonzero(tensor_mT(A(2,3))),
       "i64 [5,2] 0 1 1 0 1 1 2 0 2 1");
    IS(tensor_nonzero(tensor_scalar(3, TENSOR_F32)),
       "i64 [1,0]");
    IS(tensor_nonzero(tensor_scalar(0, TENSOR_F32)),
       "i64 [0,0]");
    IS(tensor_nonzero(A(0,3)),
       "i64 [0,2]");
    IS(tensor_nonzero(F(NAN, 0, -0.0, 1e-30)),
       "i64 [2,1] 0 3");
    IS(tensor_take_along_dim(A(2,3), I2(2,1,2,0), 1),
       "f32 [2,1] 2 3");
    IS(tensor_take_along_dim(A(2,3), I2(1,4,2,0,1,1), 1),
       "f32 [2,4] 2 0 1 1 5 3 4 4");
    IS(tensor_take_along_dim(A(1,3), I2(2,1,2,0), -1),
       "f32 [2,1] 2 0");
    IS(tensor_index_fill(A(3,2), 0, I(0,-1), 9),
       "f32 [3,2] 9 9 2 3 9 9");
    IS(tensor_index_fill(A(3,2), -1, tensor_scalar(1, TENSOR_I64), 9),
       "f32 [3,2] 0 9 2 9 4 9");
    IS(tensor_index_copy(A(3,2), 0, I(2,0), tensor_full(7, 2, 2)),
       "f32 [3,2] 7 7 2 3 7 7");
    IS(tensor_index_copy(A(3,2), 1, I(1), A(3,1)),
       "f32 [3,2] 0 0 2 1 4 2");
    IS(tensor_index_add_alpha(A(3,2), 0, I(1,1), A(2,2), -2),
       "f32 [3,2] 0 1 -2 -5 4 5");
    IS(tensor_scatter_value(A(2,3), 1, I2(2,1,2,0), 9),
       "f32 [2,3] 0 1 9 9 4 5");
    IS(tensor_index_select(tensor_scalar(5, TENSOR_F32), 0, I(0)),
       "f32 [] 5");
    IS(tensor_index_select(A(2,3), 0, tensor_scalar(1, TENSOR_I64)),
       "f32 [1,3] 3 4 5");
    IS(tensor_gather(tensor_scalar(5, TENSOR_F32), 0, I(0,0)),
       "f32 [2] 5 5");
    IS(tensor_gather(tensor_scalar(5, TENSOR_F32), 0, tensor_scalar(0, TENSOR_I64)),
       "f32 [] 5");
    IS(tensor_scatter(tensor_scalar(5, TENSOR_F32), 0, tensor_scalar(0, TENSOR_I64), tensor_scalar(3, TENSOR_F32)),
       "f32 [] 3");
    IS(tensor_scatter(A(4), 0, tensor_scalar(1, TENSOR_I64), tensor_scalar(7, TENSOR_F32)),
       "f32 [4] 0 7 2 3");
    IS(tensor_index_add(tensor_scalar(5, TENSOR_F32), 0, I(0), tensor_scalar(3, TENSOR_F32)),
       "f32 [] 8");
    IS(tensor_index_fill(tensor_scalar(5, TENSOR_F32), 0, I(0), 3),
       "f32 [] 3");
    IS(tensor_take(tensor_scalar(5, TENSOR_F32), I(0,-1)),
       "f32 [2] 5 5");
    IS(tensor_masked_scatter(A(2,3), B(1,0,1), F(10,20,30,40,50)),
       "f32 [2,3] 10 1 20 30 4 40");
    IS(tensor_masked_scatter(A(3), B2(2,3,1,0,1,0,0,1), F(10,20,30,40,50)),
       "f32 [2,3] 10 1 20 0 1 30");
    IS(tensor_masked_scatter(A(2,3), B(0,0,0), F(1)),
       "f32 [2,3] 0 1 2 3 4 5");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "sum", 1),
       "f32 [4] 2.5 -1 5 8");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "sum", 1),
       "i32 [4] 5 -1 5 8");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "sum", 0),
       "f32 [4] 0.5 2 5 1");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "sum", 0),
       "i32 [4] 3 2 5 1");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "prod", 1),
       "f32 [4] 1 72 5 -504");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "prod", 1),
       "i32 [4] 6 72 5 -504");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "prod", 0),
       "f32 [4] 0.5 -24 5 -72");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "prod", 0),
       "i32 [4] 3 -24 5 -72");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "mean", 1),
       "f32 [4] 1.25 -0.333333 5 2.66667");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "mean", 1),
       "i32 [4] 2 -1 5 2");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "mean", 0),
       "f32 [4] 0.5 1 5 0.5");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "mean", 0),
       "i32 [4] 3 1 5 0");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "amax", 1),
       "f32 [4] 2 6 5 9");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "amax", 1),
       "i32 [4] 3 6 5 9");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "amax", 0),
       "f32 [4] 0.5 6 5 9");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "amax", 0),
       "i32 [4] 3 6 5 9");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "amin", 1),
       "f32 [4] 0.5 -4 5 -8");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "amin", 1),
       "i32 [4] 2 -4 5 -8");
    IS(tensor_scatter_reduce(F(2,-3,5,7), 0, I(1,1,0,3,3), F(-4,6,0.5,9,-8), "amin", 0),
       "f32 [4] 0.5 -4 5 -8");
    IS(tensor_scatter_reduce(J(2,-3,5,7), 0, I(1,1,0,3,3), J(-4,6,3,9,-8), "amin", 0),
       "i32 [4] 3 -4 5 -8");
    IS(tensor_scatter_reduce(A(2,3), 1, I2(2,2,2,0,2,2), tensor_full(2, 2, 4), "prod", 1),
       "f32 [2,3] 0 1 4 3 4 20");
    IS(tensor_scatter_reduce(F(1,NAN,3), 0, I(0,1,2), F(NAN,2,2), "amax", 1),
       "f32 [3] nan nan 3");
    IS(tensor_scatter_reduce(F(1,NAN,3), 0, I(0,1,2), F(NAN,2,2), "amin", 0),
       "f32 [3] nan 2 2");
    IS(tensor_scatter_reduce(B(1,0), 0, I(1,1), B(1,0), "amax", 0),
       "bool [2] 1 1");
    IS(tensor_scatter_reduce(B(1,1), 0, I(1,1), B(0,0), "amax", 0),
       "bool [2] 1 0");
    IS(tensor_scatter_reduce(B(1,0), 0, I(1,1), B(1,1), "amin", 0),
       "bool [2] 1 1");
}
// clang-format on

// ---- views and shapes ----

FN(f_diagonal) { UNUSED; return tensor_diagonal(tensor_mT(in[0]), 1, 0, 1); }
FN(f_diagonal_) {
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    tensor_mul_(tensor_diagonal(y, -1, 0, 1), in[1]);
    return tensor_square(y);
}
FN(f_unfold) { UNUSED; return tensor_unfold_dim(in[0], 1, 2, 1); }
FN(f_flip) { UNUSED; return tensor_flip(in[0], 0, 1); }
FN(f_rot90) { UNUSED; return tensor_rot90(in[0], 3, 0, 1); }
FN(f_roll) { UNUSED; return tensor_roll(in[0], 1, 1); }
FN(f_interleave) { UNUSED; return tensor_repeat_interleave(in[0], 2, 1); }
FN(f_interleave_tensor) { UNUSED; return tensor_repeat_interleave_tensor(in[0], I(2, 0, 1), 1); }
FN(f_select_scatter) { UNUSED; return tensor_select_scatter(in[0], in[1], 1, -1); }
FN(f_slice_scatter) { UNUSED; return tensor_slice_scatter(in[0], in[1], 1, 0, 3, 2); }
FN(f_diagonal_scatter) { UNUSED; return tensor_diagonal_scatter(in[0], in[1], 0, 0, 1); }
FN(f_column_stack) { UNUSED; return tensor_column_stack(in[0], in[1]); }
FN(f_unbind) {
    tensor_t *part[3];
    UNUSED;
    tensor_unbind(in[0], 1, part, 3);
    return tensor_mul(part[0], part[2]);
}
FN(f_channels_last) { UNUSED; return tensor_square(tensor_channels_last(in[0])); }
FN(f_unflatten) { UNUSED; return tensor_unflatten(in[0], 1, 3, 1); }
FN(f_views) {
    UNUSED;
    return tensor_mul(tensor_squeeze_all(tensor_atleast_3d(tensor_T(in[0]))),
                      tensor_reshape_as(in[0], A(3, 2)));
}
static void view_gradients(void) {
    tensor_t *x = tensor_add_scalar(A(2, 3), 1);
    GRADED(f_diagonal, x, NULL, NULL);
    GRADED(f_diagonal_, x, F(3), NULL);
    GRADED(f_unfold, x, NULL, NULL);
    GRADED(f_flip, x, NULL, NULL);
    GRADED(f_rot90, x, NULL, NULL);
    GRADED(f_roll, x, NULL, NULL);
    GRADED(f_interleave, x, NULL, NULL);
    GRADED(f_interleave_tensor, x, NULL, NULL);
    GRADED(f_select_scatter, x, A(2), NULL);
    GRADED(f_slice_scatter, x, A(2, 2), NULL);
    GRADED(f_diagonal_scatter, x, A(2), NULL);
    GRADED(f_column_stack, A(2), A(2), NULL);
    GRADED(f_unbind, x, NULL, NULL);
    GRADED(f_channels_last, A(1, 2, 2, 2), NULL, NULL);
    GRADED(f_unflatten, x, NULL, NULL);
    GRADED(f_views, x, NULL, NULL);
}
static int shares(tensor_t *a, tensor_t *b) { return tensor_data(a) == tensor_data(b); }
static void view_storage(void) {
    tensor_t *x = A(3, 4), *part[8], *y;
    const int64_t sizes[3] = {1, 0, 3}, at[2] = {1, -1};
    CHECK(shares(tensor_diagonal(x, 0, 0, 1), x) && shares(tensor_unfold_dim(x, 1, 2, 1), x));
    CHECK(shares(tensor_T(x), x) && shares(tensor_unflatten(x, 1, 2, 2), x) && shares(tensor_ravel(x), x));
    CHECK(shares(tensor_atleast_3d(x), x) && shares(tensor_squeeze_all(x), x));
    CHECK(shares(tensor_view_as(x, A(12)), x));
    tensor_fill_(tensor_diagonal(x, 1, 0, 1), 9);
    IS(x, "f32 [3,4] 0 9 2 3 4 5 9 7 8 9 10 9");
    CHECK(tensor_unbind(x, 0, part, 8) == 3 && shares(part[0], x));
    tensor_fill_(part[2], 0);
    IS(x, "f32 [3,4] 0 9 2 3 4 5 9 7 0 0 0 0");
    CHECK(tensor_split_with_sizes(x, sizes, 3, -1, part) == 3);
    IS(part[1], "f32 [3,0]");
    IS(part[2], "f32 [3,3] 9 2 3 5 9 7 0 0 0");
    CHECK(tensor_tensor_split(x, 3, 1, part, 8) == 3);
    IS(part[0], "f32 [3,2] 0 9 4 5 0 0");
    IS(part[2], "f32 [3,1] 3 7 0");
    CHECK(tensor_tensor_split(A(2), 3, 0, part, 8) == 3);
    IS(part[2], "f32 [0]");
    CHECK(tensor_tensor_split_at(A(5), at, 2, 0, part) == 3);
    IS(part[0], "f32 [1] 0");
    IS(part[1], "f32 [3] 1 2 3");
    IS(part[2], "f32 [1] 4");
    CHECK(tensor_hsplit(A(2, 4), 2, part, 8) == 2);
    IS(part[1], "f32 [2,2] 2 3 6 7");
    CHECK(tensor_hsplit(A(4), 2, part, 8) == 2);
    IS(part[1], "f32 [2] 2 3");
    CHECK(tensor_vsplit(A(2, 2), 2, part, 8) == 2 && tensor_dsplit(A(1, 1, 3), 3, part, 8) == 3);
    IS(part[2], "f32 [1,1,1] 2");
    CHECK(tensor_hsplit(A(2, 3), 2, part, 8) == 0 && tensor_is_poison(part[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "hsplit: dim 1 of x [2,3] does not divide into 2");
    CHECK(tensor_dsplit(A(2, 3), 1, part, 8) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "dsplit: dim 2");
    part[0] = A(3), part[1] = tensor_reshape(F(7, 8), 2, 1);
    CHECK(tensor_broadcast_tensors(part, 2, part + 2) == 0);
    IS(part[2], "f32 [2,3] 0 1 2 0 1 2");
    IS(part[3], "f32 [2,3] 7 7 7 8 8 8");
    x = A(1, 2, 2, 3);
    y = tensor_channels_last(x);
    CHECK(!tensor_is_channels_last(x) && tensor_is_channels_last(y) && tensor_channels_last(y) == y);
    CHECK(tensor_equal(x, y) && tensor_stride(y, 1) == 1 && tensor_stride(y, 3) == 2 &&
          tensor_stride(y, 2) == 6);
    CHECK(tensor_is_channels_last(tensor_add(y, y)) == 0);     // results are row-major
    CHECK(tensor_is_channels_last(A(2, 1, 3, 3)) == 1 && tensor_is_channels_last(A(3, 3)) == 0);
    CHECK(tensor_data(tensor_roll(A(4), 0, 0)) != NULL);
    x = A(4);
    CHECK(!shares(tensor_roll(x, 0, 0), x) && !shares(tensor_rot90(tensor_reshape(x, 2, 2), 0, 0, 1), x));
    CHECK(!shares(tensor_repeat_interleave(x, 1, 0), x) && !shares(tensor_flip(x, 0), x));
}
// clang-format off
static void view_errors(void) {
    tensor_t *x = A(2, 3), *part[2], *out[2];
    const int64_t sizes[2] = {1, 1}, twice[2] = {0, -2}, wrong[2] = {-1, 4};
    CHECK_POISON(tensor_squeeze_dims(x, twice, 2), TENSOR_ERR_INDEX, "squeeze_dims: dim 0 appears twice");
    CHECK_POISON(tensor_unflatten(x, 1, 2, -1), TENSOR_ERR_SHAPE, "unflatten: sizes [2,-1] do not make up dim 1 of x [2,3]");
    CHECK_POISON(tensor_unflatten(x, 1, -1, -1), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten(x, 1, 3, 1, 1, 1, 1, 1, 1, 1), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten(A(0), 0, 0, -1), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten(x, 1, INT64_MAX, INT64_MAX), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_diagonal(x, 0, 0, -2), TENSOR_ERR_INDEX, "diagonal: dims 0 and -2 of x [2,3] are the same");
    CHECK_POISON(tensor_diagonal(A(3), 0, 0, 1), TENSOR_ERR_INDEX, "diagonal: dim 1");
    IS(tensor_diagonal(x, INT64_MAX, 0, 1), "f32 [0]");
    IS(tensor_diagonal(x, INT64_MIN, 0, 1), "f32 [0]");
    CHECK_POISON(tensor_unfold_dim(x, 1, 4, 1), TENSOR_ERR_SHAPE, "unfold_dim: windows of 4, step 1 do not fit dim 1 of x [2,3]");
    CHECK_POISON(tensor_unfold_dim(x, 1, 1, 0), TENSOR_ERR_SHAPE, "step 0");
    CHECK_POISON(tensor_flip(x, 0, 0), TENSOR_ERR_INDEX, "flip: dim 0 appears twice");
    CHECK_POISON(tensor_fliplr(A(3)), TENSOR_ERR_SHAPE, "fliplr: x [3] needs at least 2 dims");
    CHECK_POISON(tensor_rot90(x, 1, 1, 1), TENSOR_ERR_INDEX, "rot90: dim 1 appears twice");
    CHECK_POISON(tensor_roll(x, 1, 2), TENSOR_ERR_INDEX, "roll: dim 2 is outside -2..1");
    CHECK_POISON(tensor_tile(x, -1), TENSOR_ERR_SHAPE, "repeat");
    CHECK_POISON(tensor_repeat_interleave(x, -1, 0), TENSOR_ERR_SHAPE, "cannot be repeated -1 times");
    CHECK_POISON(tensor_repeat_interleave(x, INT64_MAX, 0), TENSOR_ERR_SHAPE, "repeat_interleave");
    CHECK_POISON(tensor_repeat_interleave_tensor(x, I(1), 0), TENSOR_ERR_SHAPE, "repeats [1] i64 must be one integer for each");
    CHECK_POISON(tensor_repeat_interleave_tensor(x, I(1, -1), 0), TENSOR_ERR_INDEX, "repeats [2] has -1, must be >= 0");
    CHECK_POISON(tensor_select_scatter(x, A(3), 1, 0), TENSOR_ERR_SHAPE, "select_scatter: src [3] must have the shape [2]");
    CHECK_POISON(tensor_slice_scatter(x, A(3), 1, 0, 1, 1), TENSOR_ERR_SHAPE, "slice_scatter: src [3]");
    CHECK_POISON(tensor_hstack_n(NULL, 0), TENSOR_ERR_SHAPE, "hstack: needs at least one tensor");
    CHECK_POISON(tensor_vstack(A(2), A(3)), TENSOR_ERR_SHAPE, "cat: tensor 1 [1,3] does not fit the first [1,2]");
    CHECK_POISON(tensor_channels_last(A(2)), TENSOR_ERR_SHAPE, "channels_last: x [2]");
    CHECK_POISON(tensor_view_as(tensor_mT(x), A(6)), TENSOR_ERR_SHAPE, "view");
    CHECK_POISON(tensor_expand_as(x, NULL), TENSOR_ERR_OWNER, "expand_as: argument other is NULL");
    CHECK_POISON(tensor_atleast_2d(NULL), TENSOR_ERR_OWNER, "argument x is NULL");
    CHECK_POISON(tensor_T(NULL), TENSOR_ERR_OWNER, NULL);
    CHECK(tensor_split_with_sizes(x, sizes, 2, 1, part) == 0 && tensor_is_poison(part[0]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split_with_sizes: sizes [1,1] do not make up dim 1 of x [2,3]");
    CHECK(tensor_split_with_sizes(x, NULL, 2, 1, part) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split_with_sizes: sizes is NULL, must have 2 numbers");
    CHECK(tensor_split_with_sizes(x, wrong, 2, 1, part) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "split_with_sizes");
    CHECK(tensor_tensor_split(x, 3, 1, part, 2) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "tensor_split: 3 parts, there are 2 places");
    CHECK(tensor_unbind(x, 1, part, 2) == 0 && tensor_is_poison(part[1]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "unbind: dim 1 of x [2,3] needs more than 2 places");
    part[0] = A(2), part[1] = A(3);
    CHECK(tensor_broadcast_tensors(part, 2, out) == TENSOR_ERR_SHAPE && tensor_is_poison(out[1]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
}
// clang-format on
// clang-format off
static void view_values(void) {
    IS(tensor_squeeze_all(A(1,3,1)),
       "f32 [3] 0 1 2");
    IS(tensor_squeeze_dims(A(1,3,1,1), (const int64_t[]){0, 1, -1}, 3),
       "f32 [3,1] 0 1 2");
    IS(tensor_squeeze(A(1,3), 1),
       "f32 [1,3] 0 1 2");
    IS(tensor_unflatten(A(2,6), 1, 2, -1),
       "f32 [2,2,3] 0 1 2 3 4 5 6 7 8 9 10 11");
    IS(tensor_unflatten(A(6), -1, 1, 6),
       "f32 [1,6] 0 1 2 3 4 5");
    IS(tensor_unflatten(A(0,2), 0, 0, 3),
       "f32 [0,3,2]");
    IS(tensor_ravel(tensor_mT(A(2,3))),
       "f32 [6] 0 3 1 4 2 5");
    IS(tensor_T(A(2,3)),
       "f32 [3,2] 0 3 1 4 2 5");
    IS(tensor_T(A(3)),
       "f32 [3] 0 1 2");
    IS(tensor_swapaxes(A(1,2,3), 0, -1),
       "f32 [3,2,1] 0 3 1 4 2 5");
    IS(tensor_swapdims(A(1,2,3), 0, 1),
       "f32 [2,1,3] 0 1 2 3 4 5");
    IS(tensor_broadcast_to(A(3), 2, 3),
       "f32 [2,3] 0 1 2 0 1 2");
    IS(tensor_expand_as(A(3,1), A(2,3,2)),
       "f32 [2,3,2] 0 0 1 1 2 2 0 0 1 1 2 2");
    IS(tensor_reshape_as(tensor_mT(A(3,2)), A(1,6)),
       "f32 [1,6] 0 2 4 1 3 5");
    IS(tensor_view_as(A(3,2), A(6)),
       "f32 [6] 0 1 2 3 4 5");
    IS(tensor_atleast_1d(tensor_scalar(5, TENSOR_F32)),
       "f32 [1] 5");
    IS(tensor_atleast_1d(A(2)),
       "f32 [2] 0 1");
    IS(tensor_atleast_1d(A(2,3)),
       "f32 [2,3] 0 1 2 3 4 5");
    IS(tensor_atleast_1d(A(1,2,3,1)),
       "f32 [1,2,3,1] 0 1 2 3 4 5");
    IS(tensor_atleast_2d(tensor_scalar(5, TENSOR_F32)),
       "f32 [1,1] 5");
    IS(tensor_atleast_2d(A(2)),
       "f32 [1,2] 0 1");
    IS(tensor_atleast_2d(A(2,3)),
       "f32 [2,3] 0 1 2 3 4 5");
    IS(tensor_atleast_2d(A(1,2,3,1)),
       "f32 [1,2,3,1] 0 1 2 3 4 5");
    IS(tensor_atleast_3d(tensor_scalar(5, TENSOR_F32)),
       "f32 [1,1,1] 5");
    IS(tensor_atleast_3d(A(2)),
       "f32 [1,2,1] 0 1");
    IS(tensor_atleast_3d(A(2,3)),
       "f32 [2,3,1] 0 1 2 3 4 5");
    IS(tensor_atleast_3d(A(1,2,3,1)),
       "f32 [1,2,3,1] 0 1 2 3 4 5");
    IS(tensor_diagonal(A(3,4), 0, 0, 1),
       "f32 [3] 0 5 10");
    IS(tensor_diagonal(A(3,4), 1, 0, 1),
       "f32 [3] 1 6 11");
    IS(tensor_diagonal(A(3,4), -1, 0, 1),
       "f32 [2] 4 9");
    IS(tensor_diagonal(A(3,4), 2, 0, 1),
       "f32 [2] 2 7");
    IS(tensor_diagonal(A(3,4), 3, 0, 1),
       "f32 [1] 3");
    IS(tensor_diagonal(A(3,4), -3, 0, 1),
       "f32 [0]");
    IS(tensor_diagonal(A(3,4), 7, 0, 1),
       "f32 [0]");
    IS(tensor_diagonal(A(3,4), -7, 0, 1),
       "f32 [0]");
    IS(tensor_diagonal(A(3,4), -2, 0, 1),
       "f32 [1] 8");
    IS(tensor_diagonal(A(2,3,2), 0, 0, 2),
       "f32 [3,2] 0 7 2 9 4 11");
    IS(tensor_diagonal(A(2,3,2), 1, -1, 1),
       "f32 [2,2] 2 5 8 11");
    IS(tensor_diagonal(tensor_mT(A(3,4)), 1, 0, 1),
       "f32 [2] 4 9");
    IS(tensor_diagonal(A(0,4), 0, 0, 1),
       "f32 [0]");
    IS(tensor_unfold_dim(A(7), 0, 3, 2),
       "f32 [3,3] 0 1 2 2 3 4 4 5 6");
    IS(tensor_unfold_dim(A(2,4), 1, 2, 1),
       "f32 [2,3,2] 0 1 1 2 2 3 4 5 5 6 6 7");
    IS(tensor_unfold_dim(tensor_mT(A(2,4)), 0, 4, 9),
       "f32 [1,2,4] 0 1 2 3 4 5 6 7");
    IS(tensor_unfold_dim(A(3), 0, 0, 1),
       "f32 [4,0]");
    IS(tensor_unfold_dim(tensor_scalar(4, TENSOR_F32), 0, 1, 1),
       "f32 [1] 4");
    IS(tensor_flip(A(2,3), 0),
       "f32 [2,3] 3 4 5 0 1 2");
    IS(tensor_flip(A(2,3), 0, -1),
       "f32 [2,3] 5 4 3 2 1 0");
    IS(tensor_flip(tensor_slice(A(2,6), 1, 0, 6, 2), 1),
       "f32 [2,3] 4 2 0 10 8 6");
    IS(tensor_flip(A(2,0), 1),
       "f32 [2,0]");
    IS(tensor_flip(tensor_scalar(4, TENSOR_F32), 0),
       "f32 [] 4");
    IS(tensor_fliplr(A(2,3)),
       "f32 [2,3] 2 1 0 5 4 3");
    IS(tensor_flipud(A(2,3)),
       "f32 [2,3] 3 4 5 0 1 2");
    IS(tensor_flipud(A(3)),
       "f32 [3] 2 1 0");
    IS(tensor_roll(A(5), 2, 0),
       "f32 [5] 3 4 0 1 2");
    IS(tensor_roll(A(2,3), -1, 1),
       "f32 [2,3] 1 2 0 4 5 3");
    IS(tensor_roll(A(2,3), 7, -1),
       "f32 [2,3] 2 0 1 5 3 4");
    IS(tensor_roll(A(0,3), 7, -1),
       "f32 [0,3]");
    IS(tensor_tile(A(2,3), 2),
       "f32 [2,6] 0 1 2 0 1 2 3 4 5 3 4 5");
    IS(tensor_tile(A(2), 2, 3),
       "f32 [2,6] 0 1 0 1 0 1 0 1 0 1 0 1");
    IS(tensor_repeat_interleave(A(2,2), 2, 1),
       "f32 [2,4] 0 0 1 1 2 2 3 3");
    IS(tensor_repeat_interleave(A(2,2), 3, 0),
       "f32 [6,2] 0 1 0 1 0 1 2 3 2 3 2 3");
    IS(tensor_repeat_interleave(A(2,2), 1, 0),
       "f32 [2,2] 0 1 2 3");
    IS(tensor_repeat_interleave(A(2,2), 0, 0),
       "f32 [0,2]");
    IS(tensor_repeat_interleave(tensor_scalar(4, TENSOR_F32), 2, 0),
       "f32 [2] 4 4");
    IS(tensor_repeat_interleave_tensor(A(4), I(2,0,0,3), 0),
       "f32 [5] 0 0 3 3 3");
    IS(tensor_repeat_interleave_tensor(A(2,3), J(0,1,2), -1),
       "f32 [2,3] 1 2 2 4 5 5");
    IS(tensor_repeat_interleave_tensor(A(2), I(0,0), 0),
       "f32 [0]");
    IS(tensor_select_scatter(A(2,3), F(7,8), 1, -1),
       "f32 [2,3] 0 1 7 3 4 8");
    IS(tensor_slice_scatter(A(2,4), tensor_full(9, 2, 2), 1, 0, 4, 2),
       "f32 [2,4] 9 1 9 3 9 5 9 7");
    IS(tensor_diagonal_scatter(A(3,3), F(7,8), 1, 0, 1),
       "f32 [3,3] 0 7 2 3 4 8 6 7 8");
    IS(tensor_rot90(A(2,3), -1, 0, 1),
       "f32 [3,2] 3 0 4 1 5 2");
    IS(tensor_rot90(A(2,3), 0, 0, 1),
       "f32 [2,3] 0 1 2 3 4 5");
    IS(tensor_rot90(A(2,3), 1, 0, 1),
       "f32 [3,2] 2 5 1 4 0 3");
    IS(tensor_rot90(A(2,3), 2, 0, 1),
       "f32 [2,3] 5 4 3 2 1 0");
    IS(tensor_rot90(A(2,3), 3, 0, 1),
       "f32 [3,2] 3 0 4 1 5 2");
    IS(tensor_rot90(A(2,3), 5, 0, 1),
       "f32 [3,2] 2 5 1 4 0 3");
    IS(tensor_rot90(A(2,1,3), 1, 2, 0),
       "f32 [3,1,2] 3 0 4 1 5 2");
    IS(tensor_hstack(A(3), F(7,8,9)),
       "f32 [6] 0 1 2 7 8 9");
    IS(tensor_hstack(A(2,2), tensor_full(9, 2, 2)),
       "f32 [2,4] 0 1 9 9 2 3 9 9");
    IS(tensor_hstack(tensor_scalar(1, TENSOR_F32), tensor_scalar(2, TENSOR_F32)),
       "f32 [2] 1 2");
    IS(tensor_hstack(A(1,2,2), A(1,2,2)),
       "f32 [1,4,2] 0 1 2 3 0 1 2 3");
    IS(tensor_vstack(A(3), F(7,8,9)),
       "f32 [2,3] 0 1 2 7 8 9");
    IS(tensor_vstack(A(2,2), tensor_full(9, 2, 2)),
       "f32 [4,2] 0 1 2 3 9 9 9 9");
    IS(tensor_vstack(tensor_scalar(1, TENSOR_F32), tensor_scalar(2, TENSOR_F32)),
       "f32 [2,1] 1 2");
    IS(tensor_vstack(A(1,2,2), A(1,2,2)),
       "f32 [2,2,2] 0 1 2 3 0 1 2 3");
    IS(tensor_dstack(A(3), F(7,8,9)),
       "f32 [1,3,2] 0 7 1 8 2 9");
    IS(tensor_dstack(A(2,2), tensor_full(9, 2, 2)),
       "f32 [2,2,2] 0 9 1 9 2 9 3 9");
    IS(tensor_dstack(tensor_scalar(1, TENSOR_F32), tensor_scalar(2, TENSOR_F32)),
       "f32 [1,1,2] 1 2");
    IS(tensor_dstack(A(1,2,2), A(1,2,2)),
       "f32 [1,2,4] 0 1 0 1 2 3 2 3");
    IS(tensor_column_stack(A(3), F(7,8,9)),
       "f32 [3,2] 0 7 1 8 2 9");
    IS(tensor_column_stack(A(2,2), tensor_full(9, 2, 2)),
       "f32 [2,4] 0 1 9 9 2 3 9 9");
    IS(tensor_column_stack(tensor_scalar(1, TENSOR_F32), tensor_scalar(2, TENSOR_F32)),
       "f32 [1,2] 1 2");
    IS(tensor_column_stack(A(1,2,2), A(1,2,2)),
       "f32 [1,4,2] 0 1 2 3 0 1 2 3");
}
// clang-format on

// ---- creation ----

FN(f_diag_embed) { UNUSED; return tensor_diag_embed(in[0], -1, 0, 2); }
FN(f_diag) { UNUSED; return tensor_diag(in[0], 1); }
FN(f_diagflat) { UNUSED; return tensor_diagflat(in[0], 1); }
FN(f_block) { UNUSED; return tensor_block_diag(in, n); }
FN(f_cartesian) { UNUSED; return tensor_cartesian_prod(in, n); }
FN(f_combinations) { UNUSED; return tensor_combinations(in[0], 2, 1); }
FN(f_vander) { UNUSED; return tensor_vander(in[0], 3, 0); }
static void create_gradients(void) {
    GRADED(f_diag_embed, A(2, 3), NULL, NULL);
    GRADED(f_diag, A(2, 3), NULL, NULL);
    GRADED(f_diagflat, A(2, 2), NULL, NULL);
    GRADED(f_block, A(2, 2), A(3), NULL);
    GRADED(f_cartesian, A(2), A(3), NULL);
    GRADED(f_combinations, A(3), NULL, NULL);
    GRADED(f_vander, F(0.5, -2, 3), NULL, NULL);
}
static void create_views(void) {
    const int64_t dims[2] = {2, 3}, strides[2] = {1, 2}, none[2] = {0, 3};
    tensor_t *x = tensor_empty_strided(dims, strides, 2, TENSOR_I64), *list[3], *out[3];
    CHECK(tensor_stride(x, 0) == 1 && tensor_stride(x, 1) == 2 && tensor_dtype(x) == TENSOR_I64);
    tensor_copy_(x, A(2, 3));
    IS(tensor_as_strided(x, (const int64_t[]){6}, (const int64_t[]){1}, 1, 0), "i64 [6] 0 3 1 4 2 5");
    CHECK(tensor_numel(tensor_empty_strided(none, strides, 2, TENSOR_F32)) == 0);
    list[0] = A(2), list[1] = F(7, 8, 9), list[2] = tensor_scalar(5, TENSOR_F32);
    CHECK(tensor_meshgrid(list, 3, "ij", out) == 0);
    IS(out[0], "f32 [2,3,1] 0 0 0 1 1 1");
    IS(out[1], "f32 [2,3,1] 7 8 9 7 8 9");
    IS(out[2], "f32 [2,3,1] 5 5 5 5 5 5");
    CHECK(tensor_meshgrid(list, 2, "xy", out) == 0);
    IS(out[0], "f32 [3,2] 0 1 0 1 0 1");
    IS(out[1], "f32 [3,2] 7 7 8 8 9 9");
    IS(tensor_cartesian_prod(list, 2), "f32 [6,2] 0 7 0 8 0 9 1 7 1 8 1 9");
    IS(tensor_cartesian_prod(list + 1, 1), "f32 [3] 7 8 9");
    list[1] = tensor_to(tensor_full(9, 2, 1), TENSOR_F64);
    IS(tensor_block_diag(list, 3), "f64 [4,4] 0 1 0 0 0 0 9 0 0 0 9 0 0 0 0 5");
    {   // a 0-d tensor gives no dtype to others of its kind
        tensor_t *mixed[] = {tensor_scalar(2, TENSOR_F64), tensor_ones_of(TENSOR_F32, 1, 1)};
        IS(tensor_block_diag(mixed, 2), "f32 [2,2] 2 0 0 1");
    }
}
static void create_default(void) {
    CHECK(tensor_get_default_dtype() == TENSOR_F32);
    CHECK(tensor_set_default_dtype(TENSOR_I64) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "set_default_dtype: i64 is not a float dtype");
    CHECK(tensor_set_default_dtype((tensor_dtype_t)77) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, NULL);
    CHECK(tensor_set_default_dtype(TENSOR_F64) == 0);
    IS(tensor_zeros(2), "f64 [2] 0 0");
    IS(tensor_full(3, 1), "f64 [1] 3");
    IS(tensor_eye(2, 3), "f64 [2,3] 1 0 0 0 1 0");
    IS(tensor_linspace(0, 1, 3), "f64 [3] 0 0.5 1");
    IS(tensor_logspace(0, 1, 2, 2), "f64 [2] 1 2");
    IS(tensor_sqrt(I(4)), "f64 [1] 2");
    IS(tensor_div(I(1), I(2)), "f64 [1] 0.5");
    IS(tensor_mul_scalar(I(3), 0.5), "f64 [1] 1.5");
    IS(tensor_add(F(1), I(1)), "f32 [1] 2");
    CHECK(tensor_dtype(tensor_rand(2)) == TENSOR_F64 && tensor_dtype(tensor_randn(2)) == TENSOR_F64);
    CHECK(tensor_dtype(tensor_logsumexp(I(1, 2), 0, 0)) == TENSOR_F64);
    tensor_set_default_dtype(TENSOR_F16);
    IS(tensor_ones(2), "f16 [2] 1 1");
    IS(tensor_sqrt(I(4)), "f16 [1] 2");
    tensor_set_default_dtype(TENSOR_F32);
    IS(tensor_eye(2, 2), "f32 [2,2] 1 0 0 1");
    IS(tensor_eye(0, 2), "f32 [0,2]");
    IS(tensor_linspace(0, 1, 1), "f32 [1] 0");
}
static double mean_of(tensor_t *x) { return tensor_item(tensor_mean(tensor_to(x, TENSOR_F64))); }
static double low_half(tensor_t *x, double at) { return mean_of(tensor_lt_scalar(x, at)); }
// Moments and quantiles of 40,000 draws within five standard errors; same numbers for any thread count.
static tensor_t *fill_exponential(tensor_t *x) { return tensor_exponential_(x, 2); }
static tensor_t *fill_cauchy(tensor_t *x) { return tensor_cauchy_(x, 1, 3); }
static tensor_t *fill_log_normal(tensor_t *x) { return tensor_log_normal_(x, 1, 0.5); }
static tensor_t *fill_geometric(tensor_t *x) { return tensor_geometric_(x, 0.25); }
static tensor_t *fill_bernoulli(tensor_t *x) { return tensor_bernoulli_(x, 0.3); }
static tensor_t *fill_random(tensor_t *x) { return tensor_random_(x, -3, 5); }
static void create_random(void) {
    static tensor_t *(*const fill[])(tensor_t *) = {fill_exponential, fill_cauchy, fill_log_normal,
        fill_geometric, fill_bernoulli, fill_random};
    tensor_t *x = tensor_empty(40000), *y, *m;
    int k;
    tensor_manual_seed(3);
    CHECK(tensor_exponential_(x, 2) == x);
    CHECK_NEAR(mean_of(x), 0.5, 0.0125);
    CHECK_NEAR(low_half(x, 0.34657359), 0.5, 0.0125);
    CHECK(tensor_item(tensor_min(x)) >= 0);
    tensor_cauchy_(x, 1, 3);
    CHECK_NEAR(low_half(x, 1), 0.5, 0.0125);
    CHECK_NEAR(low_half(x, 4), 0.75, 0.011);
    tensor_log_normal_(x, 1, 0.5);
    CHECK_NEAR(mean_of(tensor_log(x)), 1, 0.0125);
    CHECK_NEAR(tensor_item(tensor_std(tensor_log(x), 1)), 0.5, 0.009);
    tensor_geometric_(x, 0.25);
    CHECK_NEAR(mean_of(x), 4, 0.09);
    CHECK_NEAR(low_half(x, 1.5), 0.25, 0.011);
    CHECK(tensor_item(tensor_min(x)) == 1);
    y = tensor_bernoulli_(tensor_empty_of(TENSOR_BOOL, 40000), 0.3);
    CHECK_NEAR(mean_of(y), 0.3, 0.0115);
    IS(tensor_bernoulli_(tensor_empty(2), 1), "f32 [2] 1 1");
    IS(tensor_bernoulli_(tensor_empty(2), 0), "f32 [2] 0 0");
    y = tensor_random_(tensor_empty_of(TENSOR_I32, 40000), -3, 5);
    CHECK(tensor_item(tensor_min(y)) == -3 && tensor_item(tensor_max(y)) == 4);
    CHECK_NEAR(mean_of(y), 0.5, 0.058);
    y = tensor_randint_like(tensor_empty_of(TENSOR_F16, 100), 2, 4);
    CHECK(tensor_dtype(y) == TENSOR_F16 && tensor_item(tensor_min(y)) == 2);
    CHECK(tensor_item(tensor_max(y)) == 3);
    y = tensor_rand_like(tensor_zeros_of(TENSOR_F64, 3, 2));
    CHECK(tensor_dtype(y) == TENSOR_F64 && tensor_ndim(y) == 2 && tensor_size(y, 1) == 2);
    CHECK(tensor_dtype(tensor_randn_like(tensor_zeros_of(TENSOR_BF16, 3))) == TENSOR_BF16);
    for (k = 0; k < 2; k++) {                   // none rounds to 1
        y = tensor_rand_like(tensor_zeros_of(k ? TENSOR_BF16 : TENSOR_F16, 300, 301));
        CHECK_NEAR(tensor_item(tensor_max(y)), k ? 1 - 0x1p-8 : 1 - 0x1p-11, 0);
        CHECK_NEAR(mean_of(tensor_to(y, TENSOR_F64)), 0.5, 0.005);
    }
    m = tensor_requires_grad_(tensor_zeros(40000, 1), 1);
    y = tensor_normal(m, F(1, 0));
    CHECK(tensor_size(y, 1) == 2 && !tensor_requires_grad(y));
    CHECK_NEAR(mean_of(tensor_at(y, ":, 0")), 0, 0.025);
    CHECK_NEAR(tensor_item(tensor_std(tensor_at(y, ":, 0"), 1)), 1, 0.018);
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_at(y, ":, 1")))) == 0);
    tensor_exponential_(tensor_at(x, "::2"), 1);                    // through a view: others stay
    CHECK(tensor_item(tensor_max(tensor_remainder_scalar(tensor_at(x, "1::2"), 1))) == 0);
    for (k = 0; k < COUNT(fill); k++) {
        tensor_t *a, *b;
        tensor_manual_seed(9);
        a = fill[k](tensor_empty(100003));
        tensor_set_num_threads(4);
        tensor_manual_seed(9);
        b = fill[k](tensor_empty(100003));
        tensor_set_num_threads(1);
        CHECK_MSG(test_same_bits(a, b), "fill %d: 1 and 4 threads differ", k);
        tensor_manual_seed(9);
        CHECK_MSG(test_same_bits(tensor_narrow(a, 0, 0, 1001), fill[k](tensor_empty(1001))),
                  "fill %d: not a prefix of the longer draw", k);
    }
}
// clang-format off
// Whatever an op is made of: its errors have its own name, the argument and the place of the call.
static void named_errors(void) {
    char line[64];
    tensor_t *x = A(2, 3), *none = NULL, *out[2];
    CHECK_POISON(tensor_zeros_like(none), TENSOR_ERR_OWNER, "zeros_like: full_like: argument x is NULL at indexing.c:");
    CHECK_POISON(tensor_mT(none), TENSOR_ERR_OWNER, "mT: permute: argument x is NULL at indexing.c:");
    CHECK_POISON(tensor_add_scalar_(none, 1), TENSOR_ERR_OWNER, "add_scalar_: argument x is NULL at indexing.c:");
    CHECK_POISON(tensor_zeros(-1), TENSOR_ERR_SHAPE, "zeros: shape [-1]");
    CHECK_POISON(tensor_max(tensor_zeros(0, 3)), TENSOR_ERR_SHAPE, "max: amax: x [0,3] has no element");
    CHECK_POISON(tensor_addmm(x, none, x, 1, 1), TENSOR_ERR_OWNER, "addmm: mm: argument a is NULL at indexing.c:");
    CHECK_POISON(tensor_fill_(none, 1), TENSOR_ERR_OWNER, "fill_: argument x is NULL at indexing.c:");
    CHECK_POISON(tensor_zero_(none), TENSOR_ERR_OWNER, "zero_: fill_: argument x is NULL at indexing.c:");
    CHECK_POISON(tensor_copy_(x, none), TENSOR_ERR_OWNER, "copy_: argument src is NULL at indexing.c:");
    CHECK(tensor_broadcast_tensors(NULL, 2, out) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "broadcast_tensors: n 2 must be >= 0, list and out must not be NULL");
    CHECK(tensor_size(tensor_zeros_n(NULL, 0, TENSOR_F32), 0) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "size: dim 0 of x [], which has no dims at indexing.c:");
    CHECK(tensor_stride(tensor_zeros_n(NULL, 0, TENSOR_F32), -1) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "stride: dim -1 of x [], which has no dims at indexing.c:");
    CHECK_POISON(tensor_one_hot(I(0, 1), INT64_MAX), TENSOR_ERR_SHAPE, "one_hot: zeros: shape [2,9223372036854775807]");
    CHECK_POISON(tensor_one_hot(I(0, 1), INT64_MAX), TENSOR_ERR_SHAPE, "at indexing.c:");
    CHECK_TEXT(text(tensor_one_hot(I(2, 0), -1)), "i64 [2,3] 0 0 1 1 0 0");
    CHECK_TEXT(text(tensor_cat(0, tensor_zeros(0), A(2, 2), tensor_zeros(0))), text(A(2, 2)));
    CHECK_TEXT(text(tensor_cat(1, A(1, 2), tensor_zeros_of(TENSOR_F64, 0), A(1, 1))), "f64 [1,3] 0 1 0");
    CHECK_POISON(tensor_cat(0, tensor_ones(1), A(2, 2)), TENSOR_ERR_SHAPE, "cat: tensor 1 [2,2] does not fit");
    CHECK_POISON(tensor_narrow(A(2, 6), 1, -100, 2), TENSOR_ERR_INDEX, "narrow: start -100, length 2 leave dim 1");
    CHECK_POISON(tensor_softmax(A(2, 6), 9), TENSOR_ERR_INDEX, "softmax: dim 9 is outside -2..1 (x [2,6])");
    CHECK_POISON(tensor_cat_n(NULL, 3, 0), TENSOR_ERR_SHAPE, "cat: needs at least one tensor, got NULL as a list of 3");
    CHECK_POISON(tensor_empty_n((const int64_t[]){(int64_t)1 << 61}, 1, TENSOR_F64), TENSOR_ERR_SHAPE, "empty");
    {
        tensor_t *x = tensor_requires_grad_(tensor_full(2, 1), 1), *src;
        src = tensor_requires_grad_(tensor_mul_scalar(tensor_floor(tensor_div_scalar(A(3), 2)), 3), 1);   // 0 0 3
        tensor_backward(tensor_scatter_reduce(x, 0, I(0, 0, 0), src, "prod", 1));
        CHECK_TEXT(text(tensor_grad(src)), "f32 [3] 0 0 0");
        CHECK_TEXT(text(tensor_grad(x)), "f32 [1] 0");
    }
    CHECK(tensor_numel(tensor_matmul(tensor_zeros((int64_t)1 << 40, 0, 3), tensor_zeros(1, 3, 5))) == 0 && tensor_ok());
    CHECK_POISON(tensor_one_hot(I(INT64_MAX, 1), -1), TENSOR_ERR_SHAPE, "one_hot: zeros: shape [2,9223372036854775807]");
    CHECK_POISON(tensor_one_hot(tensor_zeros_of(TENSOR_I64, 0), -1), TENSOR_ERR_SHAPE, "one_hot: index [0] must have at most 7 dims, and classes");
    CHECK(tensor_storage_offset(tensor_at(tensor_zeros(3, 4), "1, 2:")) == 6 && tensor_stride(
          tensor_unfold_dim(A(7), 0, 7, INT64_MAX), 0) > 0);
    CHECK_POISON(tensor_uniform_(tensor_zeros(2), 2, 1), TENSOR_ERR_INDEX, "uniform_: low 2 and high 1 must be finite");
    CHECK_POISON(tensor_normal_(tensor_zeros(2), 0, -1), TENSOR_ERR_INDEX, "normal_: std -1 must be >= 0");
    CHECK_POISON(tensor_uniform_(tensor_zeros(2), 0, NAN), TENSOR_ERR_INDEX, "uniform_: low 0 and high nan must be finite");
    CHECK_POISON(tensor_vander(A(2), (int64_t)1 << 62, 0), TENSOR_ERR_SHAPE, "vander: arange: 4.61169e+18 elements are too many, at most 1e15 at indexing.c:");
    CHECK_POISON(tensor_arange(0, 1e18, 1, TENSOR_I64), TENSOR_ERR_SHAPE, "arange: 1e+18 elements are too many, at most 1e15");
    CHECK_POISON(tensor_at(x, "0,99999999999999999999"), TENSOR_ERR_INDEX, "a number in \"0,99999999999999999999\" is outside dim 1 of x [2,3]");
    IS(tensor_at(A(3), "1:99999999999999999999"), "f32 [2] 1 2");
    // sizes that do not fit: errors, or what PyTorch gives, without overflow
    CHECK_POISON(tensor_as_strided(x, NULL, NULL, 0, INT64_MAX), TENSOR_ERR_SHAPE, "as_strided: the view leaves");
    IS(tensor_var_dim(A(2, 3), 1, INT64_MIN, 0), "f32 [2] 2.1684e-19 2.1684e-19");
    CHECK(nn_lstm(2, INT64_MAX) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "has a negative size or too many elements");
    CHECK(nn_multihead_attention(INT64_MAX, 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "has a negative size or too many elements");
    // PyTorch's form of what has no elements
    CHECK(tensor_to_string(tensor_zeros(0, 3), line, sizeof line) == 23 && !strcmp(line, "tensor([], size=(0, 3))"));
    CHECK(tensor_to_string(tensor_zeros(0), line, sizeof line) == 10 && !strcmp(line, "tensor([])"));
}
// Uniform numbers stay below the end of their range whatever the dtype rounds, integers within what it holds.
static void drawn_ranges(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F64, TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    static const double range[][2] = {{1, 1.5}, {-1, 1}, {-3, -2}, {100, 100.5}, {-1, 0}, {0.25, 1.0 / 3}, {1, 1}};
    for (int d = 0; d < 4; d++) {
        for (int k = 0; k < 7; k++) {
            tensor_t *x = tensor_empty_of(dtypes[d], 200000);
            double low = tensor_item(tensor_scalar(range[k][0], dtypes[d])), high = range[k][1], most;
            most = tensor_item(tensor_max(tensor_uniform_(x, range[k][0], high)));
            CHECK_MSG(tensor_item(tensor_min(x)) >= low && (low < high ? most < high : most == high),
                      "dtype %d: [%g, %g) has %.17g", d, low, high, most);
            if (low == high) { continue; }
            CHECK_MSG((high - most) / (high - low) < (d < 2 ? 1e-4 : 1.1), "dtype %d: up to %.17g", d, most);
        }
        tensor_t *x = tensor_random_(tensor_empty_of(dtypes[d], 200000), 0, 4096);
        CHECK(tensor_item(tensor_max(x)) == (d == 3 ? 4080 : d == 2 ? 4094 : 4095) && tensor_item(tensor_min(x)) == 0);
        x = tensor_random_(tensor_empty_of(dtypes[d], 2000), INT64_MAX - 1, INT64_MAX);
        if (d == 2) {
            CHECK_ERROR(TENSOR_ERR_INDEX, "random_: 9.22337e+18 .. 9.22337e+18 is outside the dtype of x");
        } else {
            CHECK(tensor_item(tensor_max(x)) == 9223372036854775808.0);
        }
    }
    CHECK_POISON(tensor_uniform_(tensor_zeros_of(TENSOR_F16, 2), 0, 65536), TENSOR_ERR_INDEX,
                 "uniform_: 0 .. 65536 is outside the dtype of x [2] (f16)");
    CHECK_POISON(tensor_uniform_(tensor_zeros(2), -1e39, 0), TENSOR_ERR_INDEX, "is outside the dtype");
    CHECK_POISON(tensor_random_(tensor_zeros_of(TENSOR_F16, 2), 0, 65506), TENSOR_ERR_INDEX, "random_: 0 .. 65505");
    CHECK_POISON(tensor_random_(tensor_zeros_of(TENSOR_U8, 2), 0, 257), TENSOR_ERR_INDEX, "random_: 0 .. 256");
    CHECK_POISON(tensor_random_(tensor_zeros_of(TENSOR_I8, 2), -129, 3), TENSOR_ERR_INDEX, "random_: -129 .. 2");
    CHECK_POISON(tensor_randint_like(tensor_zeros_of(TENSOR_BOOL, 2), 0, 3), TENSOR_ERR_INDEX, "randint_like: 0 .. 2");
    CHECK(tensor_item(tensor_max(tensor_random_(tensor_zeros_of(TENSOR_U8, 9999), 0, 256))) == 255);
    CHECK(tensor_item(tensor_min(tensor_random_(tensor_zeros_of(TENSOR_I8, 9999), -128, 128))) == -128);
    CHECK_OK();
}
// Sizes 0 and 0 dims as PyTorch takes them.
static void odd_shapes(void) {
    tensor_t *x = tensor_slice(tensor_expand(tensor_zeros(1, 3), 4, 3), 1, 0, 0, 1);
    tensor_pair_t p;
    CHECK(tensor_add_scalar_(x, 1) == x && tensor_zero_(x) == x && tensor_uniform_(x, 0, 1) == x);
    IS(tensor_index_fill_(A(3), 0, tensor_scalar(1, TENSOR_I64), 7), "f32 [3] 0 7 2");
    IS(tensor_index_fill(tensor_scalar(1, TENSOR_F32), 0, tensor_scalar(0, TENSOR_I64), 7), "f32 [] 7");
    p = tensor_topk(tensor_scalar(5, TENSOR_F32), 0, -1, 1, 1);
    IS(p.values, "f32 [] 5");
    IS(p.indices, "i64 [] 0");
    CHECK(tensor_is_poison(tensor_topk(tensor_scalar(5, TENSOR_F32), 2, -1, 1, 1).values));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "topk: k must be 0..1");
    CHECK_POISON(tensor_std(I(1, 2), 1), TENSOR_ERR_DTYPE, "std: x [2] is i64, a float");
    CHECK_POISON(tensor_std_dim(tensor_zeros_of(TENSOR_I64, 2, 2), 0, 1, 0), TENSOR_ERR_DTYPE, "std_dim: x [2,2] is i64");
    CHECK_POISON(tensor_gather(tensor_zeros(2, 0), 1, tensor_zeros_of(TENSOR_I64, 2, 1)), TENSOR_ERR_INDEX,
                 "gather: index 0 at element 0 of index [2,1] is outside a dim of size 0 (x [2,0])");
    CHECK_POISON(tensor_conv_transpose2d(tensor_zeros(1, 2, 2, 2), tensor_zeros(2, 3, 1, 1), NULL, .padding = 1),
                 TENSOR_ERR_SHAPE, "conv_transpose2d: x [1,2,2,2] and padding 1 leave no output");
    CHECK(tensor_numel(tensor_conv_transpose1d(tensor_zeros(0, 2, 4), tensor_zeros(2, 3, 1), NULL)) == 0);
    x = tensor_cat(-1, leaf(tensor_zeros(0)), A(2, 3));
    CHECK(tensor_requires_grad(x) && tensor_backward(tensor_sum(x)) == 0);
    IS(x, "f64 [2,3] 0 1 2 3 4 5");
    IS(tensor_cat(0, tensor_zeros_of(TENSOR_F64, 0), A(3), tensor_zeros(0)), "f64 [3] 0 1 2");
    CHECK(tensor_to_string(NULL, NULL, 0) == 14);
    CHECK_ERROR(TENSOR_ERR_OWNER, "to_string: print: argument x is NULL at indexing.c:");
    CHECK_OK();
}
static void create_errors(void) {
    const int64_t dims[2] = {2, 3}, bad[2] = {-1, 1}, huge[2] = {INT64_MAX, INT64_MAX};
    tensor_t *list[9], *out[9], *x = A(2, 3);
    int i;
    CHECK_POISON(tensor_logspace(0, 1, -1, 10), TENSOR_ERR_SHAPE, "logspace: n -1 is negative");
    CHECK_POISON(tensor_empty_strided(dims, bad, 2, TENSOR_F32), TENSOR_ERR_SHAPE, "empty_strided: dims [2,3] and strides [-1,1] must be");
    CHECK_POISON(tensor_empty_strided(dims, huge, 2, TENSOR_F32), TENSOR_ERR_SHAPE, "empty_strided");
    CHECK_POISON(tensor_empty_strided(huge, dims, 2, TENSOR_F32), TENSOR_ERR_SHAPE, "empty_strided");
    CHECK_POISON(tensor_empty_strided(NULL, dims, 2, TENSOR_F32), TENSOR_ERR_SHAPE, "empty_strided: dims is NULL");
    CHECK_POISON(tensor_empty_strided(dims, NULL, 2, TENSOR_F32), TENSOR_ERR_SHAPE,
        "empty_strided: strides is NULL, must have 2 numbers");
    CHECK_POISON(tensor_tril_indices(-1, 2, 0), TENSOR_ERR_SHAPE, NULL);
    for (i = 0; i < 9; i++) { list[i] = A(2); }
    CHECK(tensor_meshgrid(list, 9, "ij", out) == TENSOR_ERR_SHAPE && tensor_is_poison(out[8]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "meshgrid: needs 1 to 8 tensors, not 9");
    CHECK(tensor_meshgrid(NULL, 2, "ij", out) == TENSOR_ERR_SHAPE && tensor_is_poison(out[1]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "meshgrid: list is NULL");
    CHECK(tensor_meshgrid(list, 2, "ij", NULL) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "meshgrid: out is NULL");
    CHECK(tensor_meshgrid(list, 2, "yx", out) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "meshgrid: indexing must be ij or xy, not \"yx\"");
    list[1] = x;
    CHECK(tensor_meshgrid(list, 2, "ij", out) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "meshgrid: tensor 1 [2,3] must be 1-d");
    CHECK_POISON(tensor_cartesian_prod(list, 9), TENSOR_ERR_SHAPE, "meshgrid");
    CHECK_POISON(tensor_cartesian_prod(list, 2), TENSOR_ERR_SHAPE, "tensor 1 [2,3] must be 1-d");
    CHECK_POISON(tensor_combinations(x, 2, 0), TENSOR_ERR_SHAPE, "combinations: x [2,3] must be 1-d and r 2 in 0..1024");
    list[2] = A(1, 1, 1);
    CHECK_POISON(tensor_block_diag(list, 3), TENSOR_ERR_SHAPE, "block_diag: tensor 2 [1,1,1] has more than 2 dims");
    CHECK_POISON(tensor_block_diag(NULL, 3), TENSOR_ERR_SHAPE, "block_diag: needs at least one tensor");
    CHECK_POISON(tensor_diag_embed(x, 0, 1, 1), TENSOR_ERR_SHAPE, "diag_embed: x [2,3] must have 1 to 7 dims, dims 1 and 1 differ");
    CHECK_POISON(tensor_diag_embed(x, INT64_MIN, 0, 1), TENSOR_ERR_SHAPE, "diag_embed");
    CHECK_POISON(tensor_diag_embed(x, 0, 0, 3), TENSOR_ERR_INDEX, "diag_embed: dim 3");
    CHECK_POISON(tensor_diag(A(1, 1, 1), 0), TENSOR_ERR_SHAPE, "diag: x [1,1,1] must be 1-d or 2-d");
    CHECK_POISON(tensor_vander(x, 2, 0), TENSOR_ERR_SHAPE, "vander: x [2,3] must be 1-d");
    CHECK_POISON(tensor_rand_like(I(1)), TENSOR_ERR_DTYPE, "rand_like");
    CHECK_POISON(tensor_randint_like(x, 3, 3), TENSOR_ERR_SHAPE, "randint");
    CHECK_POISON(tensor_normal(x, F(-1)), TENSOR_ERR_INDEX, "normal: std [1] must not be negative");
    CHECK_POISON(tensor_normal(I(1), I(1)), TENSOR_ERR_DTYPE, "normal");
    CHECK_POISON(tensor_exponential_(x, 0), TENSOR_ERR_INDEX, "exponential_: lambda 0 must be > 0, finite");
    CHECK_POISON(tensor_exponential_(x, NAN), TENSOR_ERR_INDEX, "exponential_");
    CHECK_POISON(tensor_exponential_(I(1), 1), TENSOR_ERR_DTYPE, "exponential_");
    CHECK_POISON(tensor_geometric_(x, 1), TENSOR_ERR_INDEX, "geometric_");
    CHECK_POISON(tensor_log_normal_(x, 0, -1), TENSOR_ERR_INDEX, "log_normal_");
    CHECK_POISON(tensor_bernoulli_(x, 1.5), TENSOR_ERR_INDEX, "bernoulli_");
    CHECK_POISON(tensor_random_(x, 1, 1), TENSOR_ERR_SHAPE, "random_: randint");
    CHECK_POISON(tensor_exponential_(leaf(A(2)), 1), TENSOR_ERR_AUTOGRAD, "leaf that requires grad");
    CHECK_POISON(tensor_random_(tensor_mul_scalar(leaf(A(2)), 2), 0, 1), TENSOR_ERR_AUTOGRAD, "part of a graph");
    CHECK_POISON(tensor_bernoulli_(tensor_expand(F(1), 2), 0.5), TENSOR_ERR_AUTOGRAD, "expanded");
}
// clang-format on
// clang-format off
static void create_values(void) {
    IS(tensor_logspace(-1, 2, 4, 10),
       "f32 [4] 0.1 1 10 100");
    IS(tensor_logspace(0, 3, 4, 2),
       "f32 [4] 1 2 4 8");
    IS(tensor_logspace(1, 3, 1, 10),
       "f32 [1] 10");
    IS(tensor_logspace(1, 3, 0, 10),
       "f32 [0]");
    IS(tensor_tril_indices(3, 3, 0),
       "i64 [2,6] 0 1 1 2 2 2 0 0 1 0 1 2");
    IS(tensor_triu_indices(3, 3, 0),
       "i64 [2,6] 0 0 0 1 1 2 0 1 2 1 2 2");
    IS(tensor_tril_indices(3, 4, 1),
       "i64 [2,9] 0 0 1 1 1 2 2 2 2 0 1 0 1 2 0 1 2 3");
    IS(tensor_triu_indices(3, 4, 1),
       "i64 [2,6] 0 0 0 1 1 2 1 2 3 2 3 3");
    IS(tensor_tril_indices(3, 2, -1),
       "i64 [2,3] 1 2 2 0 0 1");
    IS(tensor_triu_indices(3, 2, -1),
       "i64 [2,5] 0 0 1 1 2 0 1 0 1 1");
    IS(tensor_tril_indices(2, 2, -5),
       "i64 [2,0]");
    IS(tensor_triu_indices(2, 2, -5),
       "i64 [2,4] 0 0 1 1 0 1 0 1");
    IS(tensor_tril_indices(2, 2, 5),
       "i64 [2,4] 0 0 1 1 0 1 0 1");
    IS(tensor_triu_indices(2, 2, 5),
       "i64 [2,0]");
    IS(tensor_tril_indices(0, 3, 0),
       "i64 [2,0]");
    IS(tensor_triu_indices(0, 3, 0),
       "i64 [2,0]");
    IS(tensor_diag_embed(A(2,2), 0, -2, -1),
       "f32 [2,2,2] 0 0 0 1 2 0 0 3");
    IS(tensor_diag(A(2), 0),
       "f32 [2,2] 0 0 0 1");
    IS(tensor_diag(A(2,3), 0),
       "f32 [2] 0 4");
    IS(tensor_diag_embed(A(2,2), 1, -2, -1),
       "f32 [2,3,3] 0 0 0 0 0 1 0 0 0 0 2 0 0 0 3 0 0 0");
    IS(tensor_diag(A(2), 1),
       "f32 [3,3] 0 0 0 0 0 1 0 0 0");
    IS(tensor_diag(A(2,3), 1),
       "f32 [2] 1 5");
    IS(tensor_diag_embed(A(2,2), -1, -2, -1),
       "f32 [2,3,3] 0 0 0 0 0 0 0 1 0 0 0 0 2 0 0 0 3 0");
    IS(tensor_diag(A(2), -1),
       "f32 [3,3] 0 0 0 0 0 0 0 1 0");
    IS(tensor_diag(A(2,3), -1),
       "f32 [1] 3");
    IS(tensor_diag_embed(A(2,2), 1, 0, 2),
       "f32 [3,2,3] 0 0 0 0 2 0 0 0 1 0 0 3 0 0 0 0 0 0");
    IS(tensor_diag_embed(A(2,2), 1, 2, 0),
       "f32 [3,2,3] 0 0 0 0 0 0 0 0 0 2 0 0 0 1 0 0 3 0");
    IS(tensor_diag_embed(A(2), 0, -1, 0),
       "f32 [2,2] 0 0 0 1");
    IS(tensor_diag_embed(A(0), 1, 0, 1),
       "f32 [1,1] 0");
    IS(tensor_diagflat(A(2,2), -1),
       "f32 [5,5] 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 2 0 0 0 0 0 3 0");
    IS(tensor_diagflat(tensor_scalar(3, TENSOR_F32), 0),
       "f32 [1,1] 3");
    IS(tensor_vander(A(3), 3, 0),
       "f32 [3,3] 0 0 1 1 1 1 4 2 1");
    IS(tensor_vander(F(2,-3), 4, 1),
       "f32 [2,4] 1 2 4 8 1 -3 9 -27");
    IS(tensor_vander(I(2,3), 3, 0),
       "i64 [2,3] 4 2 1 9 3 1");
    IS(tensor_vander(A(2), 0, 0),
       "f32 [2,0]");
    IS(tensor_combinations(A(4), 2, 0),
       "f32 [6,2] 0 1 0 2 0 3 1 2 1 3 2 3");
    IS(tensor_combinations(A(10), 9, 0),
       "f32 [10,9] 0 1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 9 0 1 2 3 4 5 6 8 9 0 1 2 3 4 5 7 8 9 0 1 2 3 4 6 7 8 9 "
       "0 1 2 3 5 6 7 8 9 0 1 2 4 5 6 7 8 9 0 1 3 4 5 6 7 8 9 0 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9");
    IS(tensor_combinations(A(2), 9, 0),
       "f32 [0,9]");
    IS(tensor_combinations(A(2), 0, 0),
       "f32 [0]");
    IS(tensor_combinations(A(3), 2, 1),
       "f32 [6,2] 0 0 0 1 0 2 1 1 1 2 2 2");
    IS(tensor_combinations(A(4), 3, 0),
       "f32 [4,3] 0 1 2 0 1 3 0 2 3 1 2 3");
    IS(tensor_combinations(A(3), 1, 0),
       "f32 [3,1] 0 1 2");
    IS(tensor_combinations(A(2), 3, 0),
       "f32 [0,3]");
}
// clang-format on

// ---- tensor_at, patterns ----

FN(f_at) { UNUSED; return tensor_at(in[0], "None, 1, ::2"); }
FN(f_at_write) {
    tensor_t *y = tensor_mul_scalar(in[0], 2);
    UNUSED;
    tensor_copy_(tensor_at(y, ":, 1:"), in[1]);
    tensor_mul_(tensor_at(tensor_mT(y), "0"), tensor_at(y, ":, 2"));
    return tensor_square(y);
}
static void at_writes(void) {
    tensor_t *x = A(2, 3), *y;
    CHECK(tensor_ok() && tensor_data(tensor_at(x, "...")) == tensor_data(x));
    tensor_copy_(tensor_at(x, "1, ::2"), F(7, 8));
    IS(x, "f32 [2,3] 0 1 2 7 4 8");
    tensor_copy_(tensor_at(x, ":, None, 1"), tensor_scalar(-1, TENSOR_I64));     // broadcast, converted
    IS(x, "f32 [2,3] 0 -1 2 7 -1 8");
    tensor_fill_(tensor_at(tensor_at(x, "-1"), "1:"), 5);
    IS(x, "f32 [2,3] 0 -1 2 7 5 5");
    y = tensor_scalar(3, TENSOR_F32);
    tensor_fill_(tensor_at(y, "None, ..., newaxis"), 4);
    IS(y, "f32 [] 4");
    CHECK(tensor_is_contiguous(tensor_at(x, "1")) && !tensor_is_contiguous(tensor_at(x, ":, 1")));
    CHECK_POISON(tensor_at(x, "1, 5"), TENSOR_ERR_INDEX,
                 "at: index 5 in \"1, 5\" is outside dim 1 of x [2,3]");
    CHECK_POISON(tensor_at(x, "-3"), TENSOR_ERR_INDEX, "at: index -3 in \"-3\" is outside dim 0 of x [2,3]");
    CHECK(tensor_stride(tensor_at(x, "1::2888888888333333333"), 0) == 3);  // one row: the step takes no part
    CHECK_POISON(tensor_at(x, "::0"), TENSOR_ERR_SHAPE, "at: step 0 in \"::0\" must be at least 1");
    CHECK_POISON(tensor_at(x, "::-1"), TENSOR_ERR_SHAPE,
                 "at: step -1 in \"::-1\" must be at least 1; tensor_flip(x, dim) reverses a dim");
    CHECK_POISON(tensor_at(x, "[0, 1, 1, 0, 1, 0, 1]"), TENSOR_ERR_FORMAT,
                 "has a list, and it may have numbers, slices, None and ... alone; tensor_index_select");
    CHECK_POISON(tensor_at(x, ":, (0, 2)"), TENSOR_ERR_FORMAT, "has a list");
    CHECK_POISON(tensor_at(x, "1:2:3:4"), TENSOR_ERR_FORMAT, "at: cannot read \"1:2:3:4\"");
    CHECK_POISON(tensor_at(x, "1 2"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_at(x, "none"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_at(x, "-"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_at(x, ".."), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_at(x, "None, None, None, None, None, None, None"), TENSOR_ERR_SHAPE,
                 "more than 8 dims");
    CHECK_POISON(tensor_at(tensor_scalar(1, TENSOR_F32), ":"), TENSOR_ERR_INDEX, "indexes 1 dims of x []");
}
FN(f_rearrange) { UNUSED; return tensor_rearrange(in[0], "b (h d) -> (d b) h 2", .h = 3); }
FN(f_reduce_max) { UNUSED; return tensor_rearrange(in[0], "b (h d) -> h b", "mean", .d = 2); }
static void pattern_gradients(void) {
    GRADED(f_at, A(2, 3), NULL, NULL);
    GRADED(f_at_write, A(2, 3), A(2, 2), NULL);
    GRADED(f_rearrange, A(2, 6), NULL, NULL);
    GRADED(f_reduce_max, A(2, 6), NULL, NULL);
}
static void pattern_checks(void) {
    tensor_t *x = A(2, 64, 3, 5);
    int64_t b = 0, h = 0, w = 0, c = 4;
    CHECK(tensor_check(x, "b 64 h w", &b, &h, &w) == 0 && b == 2 && h == 3 && w == 5);
    CHECK(tensor_check(A(3, 2), "h b", &h, &b) == 0 && tensor_check(A(3, 2), "3 2") == 0);
    CHECK(tensor_check(A(3, 4, 2), "h ... b", &h, &b) == 0 && tensor_check(A(3, 2), "h ... b", &h, &b) == 0);
    CHECK(tensor_check(A(2, 9), "... _") == 0 && tensor_check(tensor_scalar(1, TENSOR_F32), "") == 0);
    CHECK(tensor_check(A(4, 4), "n n", &c) == 0 && tensor_check(A(2, 7), "rows _", NULL) == 0);
    CHECK(tensor_check_n(A(3, 2), "h b", NULL, 0) == 0);
    w = 0;
    CHECK(tensor_check(x, "w 64 h b", &w, &h, &b) == TENSOR_ERR_SHAPE && w == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE,
                "check: x [2,64,3,5] is not \"w 64 h b\": dim 3 (b) is 5, not 2 at indexing.c:");
    tensor_check(x, "b 32 h w");
    CHECK_ERROR(TENSOR_ERR_SHAPE, "check: x [2,64,3,5] is not \"b 32 h w\": dim 1 is 64, not 32");
    tensor_check(x, "b h");
    CHECK_ERROR(TENSOR_ERR_SHAPE, "is not \"b h\": it has 4 dims, not 2");
    tensor_check(A(3), "a ... b");
    CHECK_ERROR(TENSOR_ERR_SHAPE, "it has 1 dims, not 2 or more");
    tensor_check(A(3, 4), "n n");
    CHECK_ERROR(TENSOR_ERR_SHAPE, "dim 1 (n) is 4, not 3");
    tensor_check(x, "b (h w)");
    CHECK_ERROR(TENSOR_ERR_FORMAT, "check: cannot read \"b (h w)\"");
    tensor_check(x, "... b ...");
    CHECK_ERROR(TENSOR_ERR_FORMAT, "cannot read");
    tensor_check(A(3, 2), "3 _", &b);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "check: \"3 _\" has 0 names for 1 sizes");
    CHECK(tensor_check_n(x, "b c", NULL, 2) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "check: sizes is NULL, must have 2 pointers");
    CHECK(tensor_check_n(x, NULL, NULL, 0) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "NULL");
    CHECK(tensor_check(NULL, "a") == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "check: argument x is NULL");
}
// clang-format off
static void pattern_errors(void) {
    tensor_t *x = A(2, 6);
    CHECK(tensor_data(tensor_rearrange(x, "b (h d) -> h b d", .h = 2)) == tensor_data(x));      // a view
    CHECK_POISON(tensor_rearrange(tensor_ones(2, 3), "a b -> a 99999999999999999999 b"), TENSOR_ERR_FORMAT, NULL);
    CHECK_POISON(tensor_rearrange(x, "b h d -> b d h"), TENSOR_ERR_SHAPE, "rearrange: x [2,6] has 2 dims, \"b h d -> b d h\" 3 at indexing.c:");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h", .h = 4), TENSOR_ERR_SHAPE,
                 "rearrange: dim 1 of x [2,6] does not fit the sizes in \"b (h d) -> b d h\": the sizes that are "
                 "given do not divide it");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h"), TENSOR_ERR_SHAPE, "two of its names have no size");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h", .h = 3, .d = 3), TENSOR_ERR_SHAPE,
                 "the product of its sizes is another number");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h"), TENSOR_ERR_SHAPE, "dim 1");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h", .h = -2), TENSOR_ERR_SHAPE, "dim 1");
    CHECK_POISON(tensor_rearrange(x, "b (h d) -> b d h", .h = INT64_MAX, .d = INT64_MAX), TENSOR_ERR_SHAPE, "dim 1");
    CHECK_POISON(tensor_rearrange(x, "b h -> b", .h = 6), TENSOR_ERR_FORMAT, "rearrange: h in \"b h -> b\" is only on the left; name a reduction");
    CHECK_POISON(tensor_rearrange(x, "b h -> b h c"), TENSOR_ERR_FORMAT, "rearrange: c in \"b h -> b h c\" is only on the right and has no size");
    CHECK_POISON(tensor_rearrange(x, "b h -> b h", .k = 3), TENSOR_ERR_FORMAT, "rearrange: k in \"b h -> b h\" has a size but no place");
    CHECK_POISON(tensor_rearrange(x, "b h -> h", "median"), TENSOR_ERR_FORMAT, "rearrange: cannot read \"b h -> h\", median; reduce is sum, mean, prod, max, min, any or all");
    CHECK_POISON(tensor_rearrange(x, "b h"), TENSOR_ERR_FORMAT, "rearrange: cannot read \"b h\"");
    CHECK_POISON(tensor_rearrange(x, "b b -> b"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_rearrange(x, "b h -> b h h"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_rearrange(x, "b (h -> b h"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_rearrange(x, "b h) -> b h"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_rearrange(x, "b ? -> b"), TENSOR_ERR_FORMAT, "cannot read");
    CHECK_POISON(tensor_rearrange(x, NULL), TENSOR_ERR_FORMAT, "NULL");
    CHECK_POISON(tensor_rearrange(x, "b h -> b h c", .c = INT64_MAX), TENSOR_ERR_SHAPE, "rearrange: expand");
    CHECK_POISON(tensor_rearrange(x, "b h -> 1 1 1 1 1 1 1 b h"), TENSOR_ERR_SHAPE, "more than 8 names");
    CHECK_POISON(tensor_rearrange(NULL, "b -> b"), TENSOR_ERR_OWNER, "rearrange: argument x is NULL");
}
// clang-format on
// clang-format off
static void at_values(void) {
    IS(tensor_at(A(2,3,4), "1"),
       "f32 [3,4] 12 13 14 15 16 17 18 19 20 21 22 23");
    IS(tensor_at(A(2,3,4), "-1, ..., 0"),
       "f32 [3] 12 16 20");
    IS(tensor_at(A(2,3,4), ":, ::2, 1:3"),
       "f32 [2,2,2] 1 2 9 10 13 14 21 22");
    IS(tensor_at(A(2,3,4), ":, None, -1"),
       "f32 [2,1,4] 8 9 10 11 20 21 22 23");
    IS(tensor_at(A(2,3,4), "newaxis, ..., newaxis"),
       "f32 [1,2,3,4,1] 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23");
    IS(tensor_at(A(2,3,4), "..., 3"),
       "f32 [2,3] 3 7 11 15 19 23");
    IS(tensor_at(A(2,3,4), "0:1, 5:, :"),
       "f32 [1,0,4]");
    IS(tensor_at(A(2,3,4), "..., "),
       "f32 [2,3,4] 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23");
    IS(tensor_at(A(2,3,4), "-100:100:2, 1, -2:"),
       "f32 [1,2] 6 7");
    IS(tensor_at(A(2,3,4), " 1 , : , 3 "),
       "f32 [3] 15 19 23");
    IS(tensor_at(A(2,3,4), "1, 2, 3"),
       "f32 [] 23");
    IS(tensor_at(A(2,3,4), ":, 2:1"),
       "f32 [2,0,4]");
    IS(tensor_rearrange(A(2,6), "b (h d) -> b d h", .h = 2),
       "f32 [2,3,2] 0 3 1 4 2 5 6 9 7 10 8 11");
    IS(tensor_rearrange(A(2,3,4), "b h t -> t (b h)"),
       "f32 [4,6] 0 4 8 12 16 20 1 5 9 13 17 21 2 6 10 14 18 22 3 7 11 15 19 23");
    IS(tensor_rearrange(A(2,3,4), "... t -> t ..."),
       "f32 [4,2,3] 0 4 8 12 16 20 1 5 9 13 17 21 2 6 10 14 18 22 3 7 11 15 19 23");
    IS(tensor_rearrange(A(2,3,4), "b ... -> (...) b"),
       "f32 [12,2] 0 12 1 13 2 14 3 15 4 16 5 17 6 18 7 19 8 20 9 21 10 22 11 23");
    IS(tensor_rearrange(A(2,3), "b h -> b 1 h 1"),
       "f32 [2,1,3,1] 0 1 2 3 4 5");
    IS(tensor_rearrange(A(2,1,3), "b 1 h -> h b"),
       "f32 [3,2] 0 3 1 4 2 5");
    IS(tensor_rearrange(A(2,3), "row col -> col row"),
       "f32 [3,2] 0 3 1 4 2 5");
    IS(tensor_rearrange(A(4,4), "(h i) (w j) -> h w (i j)", .i = 2, .j = 2),
       "f32 [2,2,4] 0 1 4 5 2 3 6 7 8 9 12 13 10 11 14 15");
    IS(tensor_rearrange(A(2,2), "h w -> h w c", .c = 3),
       "f32 [2,2,3] 0 0 0 1 1 1 2 2 2 3 3 3");
    IS(tensor_rearrange(A(2,2), "h w -> (2 h) w"),
       "f32 [4,2] 0 1 2 3 0 1 2 3");
    IS(tensor_rearrange(A(2,2), "h w -> (h a) w", .a = 2),
       "f32 [4,2] 0 1 0 1 2 3 2 3");
    IS(tensor_rearrange(A(4,4), "(h i) (w j) -> h w", "max", .i = 2, .j = 2),
       "f32 [2,2] 5 7 13 15");
    IS(tensor_rearrange(A(2,3,4), "b c t -> b c", "mean"),
       "f32 [2,3] 1.5 5.5 9.5 13.5 17.5 21.5");
    IS(tensor_rearrange(A(2,3,4), "b ... -> b", "sum"),
       "f32 [2] 66 210");
    IS(tensor_rearrange(A(2,3), "b c -> ", "min"),
       "f32 [] 0");
    IS(tensor_rearrange(A(2,3), "b c -> b 1", "prod"),
       "f32 [2,1] 0 60");
    IS(tensor_rearrange(A(2,3), "b c -> () c", "sum"),
       "f32 [1,3] 3 5 7");
    IS(tensor_rearrange(B2(2,2,1,0,1,1), "b c -> b", "all"),
       "bool [2] 0 1");
    IS(tensor_rearrange(A(0,6), "b (h d) -> h b d", .h = 2),
       "f32 [2,0,3]");
    IS(tensor_rearrange(tensor_scalar(3, TENSOR_F32), " -> 2"),
       "f32 [2] 3 3");
    IS(tensor_rearrange(tensor_mT(A(6,2)), "b (h d) -> (h b) d", .d = 3),
       "f32 [4,3] 0 2 4 1 3 5 6 8 10 7 9 11");
}
// clang-format on

// ---- allocations fail from the k-th on ----

static long heap_left, heap_blocks, heap_refused;
static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    char *raw;
    (void)user;
    heap_refused += !heap_left;
    if (!heap_left || !(raw = (char *)malloc(bytes + alignment + sizeof(void *)))) { return NULL; }
    heap_left -= heap_left > 0;
    heap_blocks++;
    {
        char *p = raw + sizeof(void *);
        p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
        memcpy(p - sizeof(void *), &raw, sizeof raw);
        return p;
    }
}
static void heap_free(void *user, void *p, size_t bytes, size_t alignment) {
    void *raw;
    (void)user, (void)bytes, (void)alignment;
    memcpy(&raw, (char *)p - sizeof(void *), sizeof raw);
    heap_blocks--;
    free(raw);
}
static void many_ops(void) {
    tensor_t *x = tensor_requires_grad_(tensor_rand(60, 61), 1), *i = tensor_randint(0, 60, 300);
    tensor_t *y, *list[2];
    tensor_t *mask = tensor_gt_scalar(tensor_detach(x), 0.5), *parts[61];
    tensor_backward(tensor_sum(tensor_index(x, i)));
    tensor_backward(tensor_sum(tensor_index(x, mask)));
    y = tensor_mul_scalar(x, 2);
    tensor_index_put_(y, tensor_ones(61), 1, i);
    tensor_fill_(tensor_diagonal(y, 1, 0, 1), 3);
    tensor_copy_(tensor_at(y, "::2, None, 3:"), tensor_ones(58));
    tensor_backward(tensor_sum(tensor_masked_scatter(y, mask, tensor_ones(60, 61))));
    tensor_backward(tensor_sum(tensor_scatter_reduce(x, 0, tensor_expand(tensor_unsqueeze(i, 1), 300, 61),
                                                     tensor_ones(300, 61), "prod", 0)));
    tensor_backward(tensor_sum(tensor_rearrange(x, "(a b) c -> b c a 2", .a = 6)));
    tensor_backward(tensor_sum(tensor_flip(tensor_roll(x, 5, 0), 0)));
    y = tensor_remainder_scalar(tensor_arange(0, 60, 1, TENSOR_I64), 3);
    tensor_backward(tensor_sum(tensor_repeat_interleave_tensor(x, y, 0)));
    list[0] = list[1] = tensor_at(x, "0");
    tensor_meshgrid(list, 2, "xy", parts);
    tensor_unbind(x, 1, parts, 61);
    tensor_backward(tensor_sum(tensor_channels_last(tensor_diag_embed(x, 0, 0, 2))));
    tensor_backward(tensor_sum(tensor_block_diag(list, 2)));
    tensor_combinations(tensor_at(x, "0"), 2, 0);
    tensor_poisson(tensor_detach(tensor_abs(x)));
    tensor_exponential_(tensor_empty(60, 61), 1);
    tensor_column_stack(x, tensor_vander(tensor_at(x, ":, 0"), 40, 0));
    tensor_nonzero(mask);
}
static void memory(void) {
    tensor_allocator_t a;
    long k, failed = 0;
    a.alloc = heap_alloc, a.free = heap_free, a.user = NULL;
    for (k = 0; k < 2000; k++) {
        tensor_context_t *mine, *before;
        tensor_scope_t scope;
        int code;
        heap_left = -1;
        mine = tensor_context_new();
        before = tensor_context_use(mine);
        tensor_set_error_handler(test_quiet, NULL);
        tensor_set_allocator(&a);
        heap_left = k;
        heap_refused = 0;
        scope = tensor_scope_begin();
        many_ops();
        code = tensor_error_code();
        tensor_clear_error();
        tensor_scope_end(scope);
        tensor_clear_error();
        if (!heap_refused) { k = 2000; }
        CHECK_MSG(code == (heap_refused ? TENSOR_ERR_OUT_OF_MEMORY : 0), "allocation %ld: code %d", k,
                  code);
        failed += code != 0;
        tensor_context_use(before);
        tensor_context_free(mine);
        CHECK_MSG(heap_blocks == 0, "allocation %ld: %ld blocks left", k, heap_blocks);
    }
    CHECK_MSG(failed > 20, "only %ld allocations failed", failed);
}

// Rows longer than the blocks they are added in, of every dtype.
static void long_rows_added(void) {
    static const tensor_dtype_t types[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_I64,
                                           TENSOR_I32, TENSOR_I16, TENSOR_I8,  TENSOR_U8};
    enum { N = 1500 };
    int64_t at[] = {1, 1, 2}, i;
    int k;
    for (k = 0; k < 9; k++) {
        tensor_t *where = tensor_from(at, TENSOR_I64, 3), *src = tensor_fmod_scalar(
            tensor_arange(0, 3 * N, 1, TENSOR_F64), 7);
        tensor_t *x = tensor_zeros_of(types[k], 3, N), *y;
        src = tensor_to(tensor_reshape(src, 3, N), types[k]);
        y = tensor_contiguous(tensor_to(tensor_index_add(x, 0, where, src), TENSOR_F64));
        for (i = 0; i < N; i++) {
            const double *p = (const double *)tensor_data(y);
            double two = (double)(i % 7 + (N + i) % 7), one = (double)((2 * N + i) % 7);
            if (p[i] != 0 || p[N + i] != two || p[2 * N + i] != one) { break; }
        }
        CHECK_MSG(i == N, "%s: element %d of a row", tensor_dtype_name(types[k]), (int)i);
    }
}

int main(void) {
    RUN(index_values);
    RUN(index_in_place);
    RUN(index_dtypes);
    RUN(index_gradients);
    RUN(index_errors);
    RUN(view_values);
    RUN(view_storage);
    RUN(view_gradients);
    RUN(view_errors);
    RUN(create_values);
    RUN(create_views);
    RUN(create_default);
    RUN(create_random);
    RUN(create_gradients);
    RUN(create_errors);
    RUN(drawn_ranges);
    RUN(odd_shapes);
    RUN(named_errors);
    RUN(at_values);
    RUN(at_writes);
    RUN(pattern_gradients);
    RUN(pattern_checks);
    RUN(pattern_errors);
    RUN(memory);
    RUN(long_rows_added);
    return test_report();
}

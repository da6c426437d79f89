// sorting.c - sort, selection, running extremes and products, reductions over dims, quantiles, counting
//
// Numbers in IS are PyTorch 2.15's for the same lines (indices of ties: those of its stable sort).
#include "test.h"

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

// "2x3", "" for 0-d
static int dims_of(const char *shape, int64_t *dims) {
    int n = 0;
    for (; *shape; n++) {
        char *end;
        dims[n] = strtoll(shape, &end, 10);
        shape = *end ? end + 1 : end;
    }
    return n;
}
static tensor_t *make(tensor_dtype_t dtype, const char *shape, const double *v) {
    int64_t dims[TENSOR_MAX_DIMS];
    int n = dims_of(shape, dims);
    return tensor_to(tensor_from_n(v, TENSOR_F64, dims, n), dtype);
}
static void is(tensor_t *x, tensor_dtype_t dtype, const char *shape, const double *want, int n,
               const char *what,
               int line) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    int64_t dims[TENSOR_MAX_DIMS];
    int nd = dims_of(shape, dims), k, good = tensor_ndim(x) == nd && !tensor_is_poison(x);
    double tol = dtype == TENSOR_F64 ? 1e-6 : dtype == TENSOR_BF16 ? 1e-2 : dtype == TENSOR_F16 ? 1e-3 : 2e-6;
    tensor_t *d;
    const double *v;
    for (k = 0; k < nd && good; k++) { good = tensor_size(x, k) == dims[k]; }
    test_note(good, __FILE__, line, "%s has %d dims, numel %lld; expected [%s]: %s", what, tensor_ndim(x),
              (long long)tensor_numel(x), shape, tensor_error_text());
    test_note(tensor_dtype(x) == dtype, __FILE__, line, "%s is %s", what, tensor_dtype_name(tensor_dtype(x)));
    d = tensor_to(tensor_contiguous(x), TENSOR_F64);
    v = (const double *)tensor_data(d);
    for (k = 0; k < n && good && v; k++) {
        test_note((isnan(v[k]) && isnan(want[k])) || v[k] == want[k] ||
                  fabs(v[k] - want[k]) <= tol * (1 + fabs(want[k])),
                  __FILE__, line, "%s: number %d is %.9g, expected %.9g", what, k, v[k], want[k]);
    }
    tensor_scope_end(s);
    CHECK_OK();
}
#define IS(x, dtype, shape, ...)                                                                             \
    is(x, dtype, shape, (const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), #x, __LINE__)
#define NONE(x, dtype, shape) is(x, dtype, shape, NULL, 0, #x, __LINE__)

// ---- against PyTorch ----

static void sorts(void) {
    tensor_t *x = make(TENSOR_F32, "10", (const double[]){3, 1, 2, 1, NAN, -0, 0, 5, -INFINITY, INFINITY});
    tensor_t *m = make(TENSOR_F32, "3x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9});
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
    tensor_t *i = make(TENSOR_I64, "2x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
    tensor_t *b = make(TENSOR_BOOL, "5", (const double[]){1, 0, 1, 0, 0});
    IS(tensor_sort(x, 0, 0).values, TENSOR_F32, "10", -INFINITY, -0, 0, 1, 1, 2, 3, 5, INFINITY, NAN);
    IS(tensor_sort(x, 0, 0).indices, TENSOR_I64, "10", 8, 5, 6, 1, 3, 2, 0, 7, 9, 4);
    IS(tensor_sort(x, -1, 1).values, TENSOR_F32, "10", NAN, INFINITY, 5, 3, 2, 1, 1, -0, 0, -INFINITY);
    IS(tensor_sort(x, -1, 1).indices, TENSOR_I64, "10", 4, 9, 7, 0, 2, 1, 3, 5, 6, 8);
    IS(tensor_sort(m, 0, 0).values, TENSOR_F32, "3x5", 3, 1, 4, 1, 3, 5, 2, 6, 5, 5, 9, 8, 9, 7, 9);
    IS(tensor_sort(m, 0, 0).indices, TENSOR_I64, "3x5", 0, 0, 0, 0, 1, 2, 1, 1, 1, 0, 1, 2, 2, 2, 2);
    IS(tensor_sort(m, 1, 1).values, TENSOR_F32, "3x5", 5, 4, 3, 1, 1, 9, 6, 5, 3, 2, 9, 9, 8, 7, 5);
    IS(tensor_sort(m, 1, 1).indices, TENSOR_I64, "3x5", 4, 2, 0, 1, 3, 0, 2, 3, 4, 1, 2, 4, 1, 3, 0);
        IS(tensor_sort(tensor_mT(m), 0, 1).values, TENSOR_F32, "5x3", 5, 9, 9, 4, 6, 9, 3, 5, 8, 1,
       3, 7, 1, 2, 5);
        IS(tensor_sort(tensor_mT(m), 0, 1).indices, TENSOR_I64, "5x3", 4, 0, 2, 2, 2, 4, 0, 3, 1, 1,
       4, 3, 3, 1, 0);
    IS(tensor_sort(c, 1, 0).values, TENSOR_F32, "2x3x2", 0, -1.5, 1, 2, 3, 4, 0.5, -6, 5, 2, 7, 8);
    IS(tensor_sort(c, 1, 0).indices, TENSOR_I64, "2x3x2", 2, 2, 0, 0, 1, 1, 2, 0, 0, 2, 1, 1);
    IS(tensor_sort(i, 1, 0).values, TENSOR_I64, "2x5", 1, 1, 3, 4, 5, 2, 3, 5, 6, 9);
    IS(tensor_sort(i, 1, 0).indices, TENSOR_I64, "2x5", 1, 3, 0, 2, 4, 1, 4, 3, 2, 0);
    IS(tensor_sort(b, 0, 0).values, TENSOR_BOOL, "5", 0, 0, 0, 1, 1);
    IS(tensor_sort(b, 0, 0).indices, TENSOR_I64, "5", 1, 3, 4, 0, 2);
    IS(tensor_sort(b, 0, 1).values, TENSOR_BOOL, "5", 1, 1, 0, 0, 0);
    IS(tensor_sort(b, 0, 1).indices, TENSOR_I64, "5", 0, 2, 1, 3, 4);
    IS(tensor_argsort(m, 1, 1), TENSOR_I64, "3x5", 4, 2, 0, 1, 3, 0, 2, 3, 4, 1, 2, 4, 1, 3, 0);
    IS(tensor_msort(m), TENSOR_F32, "3x5", 3, 1, 4, 1, 3, 5, 2, 6, 5, 5, 9, 8, 9, 7, 9);
        IS(tensor_sort(tensor_to(m, TENSOR_BF16), 1, 0).values, TENSOR_BF16, "3x5", 1, 1, 3, 4, 5,
       2, 3, 5, 6, 9, 5, 7, 8, 9, 9);
        IS(tensor_sort(tensor_to(m, TENSOR_BF16), 1, 0).indices, TENSOR_I64, "3x5", 1, 3, 0, 2, 4,
       1, 4, 3, 2, 0, 0, 3, 1, 2, 4);
        IS(tensor_sort(tensor_to(x, TENSOR_F16), 0, 0).values, TENSOR_F16, "10", -INFINITY, -0, 0,
       1, 1, 2, 3, 5, INFINITY, NAN);
    IS(tensor_sort(tensor_to(x, TENSOR_F16), 0, 0).indices, TENSOR_I64, "10", 8, 5, 6, 1, 3, 2, 0, 7, 9, 4);
        IS(tensor_sort(tensor_to(x, TENSOR_F64), 0, 1).values, TENSOR_F64, "10", NAN, INFINITY, 5,
       3, 2, 1, 1, -0, 0, -INFINITY);
    IS(tensor_sort(tensor_to(x, TENSOR_F64), 0, 1).indices, TENSOR_I64, "10", 4, 9, 7, 0, 2, 1, 3, 5, 6, 8);
    IS(tensor_sort(tensor_scalar(3, TENSOR_F32), 0, 0).values, TENSOR_F32, "", 3);
    IS(tensor_sort(tensor_scalar(3, TENSOR_F32), 0, 0).indices, TENSOR_I64, "", 0);
    NONE(tensor_sort(tensor_zeros(0, 3), 0, 0).values, TENSOR_F32, "0x3");
    NONE(tensor_sort(tensor_zeros(0, 3), 0, 0).indices, TENSOR_I64, "0x3");
    NONE(tensor_sort(tensor_zeros(2, 0), 1, 1).values, TENSOR_F32, "2x0");
    NONE(tensor_sort(tensor_zeros(2, 0), 1, 1).indices, TENSOR_I64, "2x0");
}
static void selects(void) {
    tensor_t *x = make(TENSOR_F32, "10", (const double[]){3, 1, 2, 1, NAN, -0, 0, 5, -INFINITY, INFINITY});
    tensor_t *m = make(TENSOR_F32, "3x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9});
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
    tensor_t *h = make(TENSOR_F32, "2x5", (const double[]){NAN, 1, 2, NAN, 4, 1, 2, 3, 4, NAN});
    tensor_t *i = make(TENSOR_I64, "2x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
    tensor_t *b = make(TENSOR_BOOL, "5", (const double[]){1, 0, 1, 0, 0});
    IS(tensor_max_dim(tensor_scalar(3, TENSOR_F32), 0, 1).values, TENSOR_F32, "", 3);
    IS(tensor_max_dim(tensor_scalar(3, TENSOR_F32), 0, 1).indices, TENSOR_I64, "", 0);
    IS(tensor_min_dim(tensor_scalar(3, TENSOR_I64), -1, 0).values, TENSOR_I64, "", 3);
    IS(tensor_min_dim(tensor_scalar(3, TENSOR_I64), -1, 0).indices, TENSOR_I64, "", 0);
    IS(tensor_topk(x, 4, 0, 1, 1).values, TENSOR_F32, "4", NAN, INFINITY, 5, 3);
    IS(tensor_topk(x, 4, 0, 1, 1).indices, TENSOR_I64, "4", 4, 9, 7, 0);
    IS(tensor_topk(x, 2, 0, 0, 1).values, TENSOR_F32, "2", -INFINITY, -0);
    IS(tensor_topk(x, 2, 0, 0, 1).indices, TENSOR_I64, "2", 8, 5);
    IS(tensor_topk(c, 1, 1, 1, 1).values, TENSOR_F32, "2x1x2", 3, 4, 7, 8);
    IS(tensor_topk(c, 1, 1, 1, 1).indices, TENSOR_I64, "2x1x2", 1, 1, 1, 1);
    IS(tensor_topk(c, 2, 1, 0, 1).values, TENSOR_F32, "2x2x2", 0, -1.5, 1, 2, 0.5, -6, 5, 2);
    IS(tensor_topk(c, 2, 1, 0, 1).indices, TENSOR_I64, "2x2x2", 2, 2, 0, 0, 2, 0, 0, 2);
    IS(tensor_topk(i, 2, 1, 1, 1).values, TENSOR_I64, "2x2", 5, 4, 9, 6);
    IS(tensor_topk(i, 2, 1, 1, 1).indices, TENSOR_I64, "2x2", 4, 2, 0, 2);
    NONE(tensor_topk(m, 0, 1, 1, 1).values, TENSOR_F32, "3x0");
    NONE(tensor_topk(m, 0, 1, 1, 1).indices, TENSOR_I64, "3x0");
    IS(tensor_topk(tensor_scalar(3, TENSOR_F32), 1, 0, 1, 1).values, TENSOR_F32, "", 3);
    IS(tensor_topk(tensor_scalar(3, TENSOR_F32), 1, 0, 1, 1).indices, TENSOR_I64, "", 0);
    IS(tensor_kthvalue(m, 3, 0, 0).values, TENSOR_F32, "5", 9, 8, 9, 7, 9);
    IS(tensor_kthvalue(m, 3, 0, 0).indices, TENSOR_I64, "5", 1, 2, 2, 2, 2);
    IS(tensor_kthvalue(c, 2, 1, 1).values, TENSOR_F32, "2x1x2", 1, 2, 5, 2);
    IS(tensor_kthvalue(c, 2, 1, 1).indices, TENSOR_I64, "2x1x2", 0, 0, 0, 2);
    IS(tensor_kthvalue(x, 10, 0, 0).values, TENSOR_F32, "", NAN);
    IS(tensor_median(x), TENSOR_F32, "", NAN);
    IS(tensor_median(m), TENSOR_F32, "", 5);
    IS(tensor_nanmedian(h), TENSOR_F32, "", 2);
    IS(tensor_median(i), TENSOR_I64, "", 3);
    IS(tensor_median(tensor_zeros(0)), TENSOR_F32, "", NAN);
    IS(tensor_median_dim(h, 1, 0).values, TENSOR_F32, "2", NAN, NAN);
    IS(tensor_median_dim(h, 1, 0).indices, TENSOR_I64, "2", 0, 4);
    IS(tensor_median_dim(c, 1, 1).values, TENSOR_F32, "2x1x2", 1, 2, 5, 2);
    IS(tensor_median_dim(c, 1, 1).indices, TENSOR_I64, "2x1x2", 0, 0, 0, 2);
    IS(tensor_nanmedian_dim(h, 1, 0).values, TENSOR_F32, "2", 2, 2);
    IS(tensor_nanmedian_dim(h, 1, 0).indices, TENSOR_I64, "2", 2, 1);
    IS(tensor_median_dim(i, 0, 0).values, TENSOR_I64, "5", 3, 1, 4, 1, 3);
    IS(tensor_mode(i, 1, 0).values, TENSOR_I64, "2", 1, 2);
    IS(tensor_mode(i, 1, 0).indices, TENSOR_I64, "2", 3, 1);
    IS(tensor_mode(tensor_mT(m), 0, 1).values, TENSOR_F32, "1x3", 1, 2, 9);
    IS(tensor_mode(tensor_mT(m), 0, 1).indices, TENSOR_I64, "1x3", 3, 1, 4);
    IS(tensor_mode(b, 0, 0).values, TENSOR_BOOL, "", 0);
    IS(tensor_mode(b, 0, 0).indices, TENSOR_I64, "", 4);
    NONE(tensor_mode(tensor_zeros(0, 3), 1, 0).values, TENSOR_F32, "0");
    IS(tensor_cummax(x, 0).values, TENSOR_F32, "10", 3, 3, 3, 3, NAN, NAN, NAN, NAN, NAN, NAN);
    IS(tensor_cummax(x, 0).indices, TENSOR_I64, "10", 0, 0, 0, 0, 4, 4, 4, 4, 4, 4);
    IS(tensor_cummin(x, 0).values, TENSOR_F32, "10", 3, 1, 1, 1, NAN, NAN, NAN, NAN, NAN, NAN);
    IS(tensor_cummin(x, 0).indices, TENSOR_I64, "10", 0, 1, 1, 3, 4, 4, 4, 4, 4, 4);
    IS(tensor_cummin(m, 1).values, TENSOR_F32, "3x5", 3, 1, 1, 1, 1, 9, 2, 2, 2, 2, 5, 5, 5, 5, 5);
    IS(tensor_cummin(m, 1).indices, TENSOR_I64, "3x5", 0, 1, 1, 3, 3, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0);
    IS(tensor_cummax(i, 0).values, TENSOR_I64, "2x5", 3, 1, 4, 1, 5, 9, 2, 6, 5, 5);
    IS(tensor_cummax(i, 0).indices, TENSOR_I64, "2x5", 0, 0, 0, 0, 0, 1, 1, 1, 1, 0);
    IS(tensor_cummax(b, 0).values, TENSOR_BOOL, "5", 1, 1, 1, 1, 1);
    IS(tensor_cummax(b, 0).indices, TENSOR_I64, "5", 0, 0, 2, 2, 2);
    IS(tensor_cummax(tensor_scalar(3, TENSOR_F32), 0).values, TENSOR_F32, "", 3);
    IS(tensor_cummax(tensor_scalar(3, TENSOR_F32), 0).indices, TENSOR_I64, "", 0);
}
static void quantiles(void) {
    tensor_t *m = make(TENSOR_F32, "3x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9});
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
    tensor_t *h = make(TENSOR_F32, "2x5", (const double[]){NAN, 1, 2, NAN, 4, 1, 2, 3, 4, NAN});
    tensor_t *q = make(TENSOR_F32, "3", (const double[]){0.1, 0.5, 1}),
        *one = tensor_scalar(0.25, TENSOR_F32);
    IS(tensor_quantile(m, q), TENSOR_F32, "3", 1.4000001, 5, 9);
    IS(tensor_quantile(m, one), TENSOR_F32, "", 3);
    IS(tensor_quantile(h, one), TENSOR_F32, "", NAN);
    IS(tensor_nanquantile(h, q), TENSOR_F32, "3", 1, 2, 4);
        IS(tensor_quantile_dim(c, q, 1, 0, "linear"), TENSOR_F32, "3x2x2", 0.200000003,
       -0.800000012, 1.39999998, -4.4000001, 1, 2, 5, 2, 3, 4, 7, 8);
    IS(tensor_quantile_dim(m, one, 0, 1, "linear"), TENSOR_F32, "1x5", 4, 1.5, 5, 3, 4);
        IS(tensor_quantile_dim(c, q, 1, 0, "lower"), TENSOR_F32, "3x2x2", 0, -1.5, 0.5, -6, 1, 2, 5,
       2, 3, 4, 7, 8);
    IS(tensor_quantile_dim(m, one, 0, 1, "lower"), TENSOR_F32, "1x5", 3, 1, 4, 1, 3);
    IS(tensor_quantile_dim(c, q, 1, 0, "higher"), TENSOR_F32, "3x2x2", 1, 2, 5, 2, 1, 2, 5, 2, 3, 4, 7, 8);
    IS(tensor_quantile_dim(m, one, 0, 1, "higher"), TENSOR_F32, "1x5", 5, 2, 6, 5, 5);
        IS(tensor_quantile_dim(c, q, 1, 0, "midpoint"), TENSOR_F32, "3x2x2", 0.5, 0.25, 2.75, -2, 1,
       2, 5, 2, 3, 4, 7, 8);
    IS(tensor_quantile_dim(m, one, 0, 1, "midpoint"), TENSOR_F32, "1x5", 4, 1.5, 5, 3, 4);
        IS(tensor_quantile_dim(c, q, 1, 0, "nearest"), TENSOR_F32, "3x2x2", 0, -1.5, 0.5, -6, 1, 2,
       5, 2, 3, 4, 7, 8);
    IS(tensor_quantile_dim(m, one, 0, 1, "nearest"), TENSOR_F32, "1x5", 3, 1, 4, 1, 3);
    IS(tensor_nanquantile_dim(h, q, 1, 1, NULL), TENSOR_F32, "3x2x1", 1.20000005, 1.29999995, 2, 2.5, 4, 4);
    IS(tensor_nanquantile_dim(h, one, 0, 0, "nearest"), TENSOR_F32, "5", 1, 1, 2, 4, 4);
    IS(tensor_nanquantile(tensor_full(NAN, 2), one), TENSOR_F32, "", NAN);
    IS(tensor_quantile_dim(h, q, 1, 0, NULL), TENSOR_F32, "3x2", NAN, NAN, NAN, NAN, NAN, NAN);
    IS(tensor_quantile_dim(tensor_scalar(3, TENSOR_F32), q, 0, 1, NULL), TENSOR_F32, "3", 3, 3, 3);
        IS(tensor_quantile_dim(tensor_to(m, TENSOR_F64), q, -1, 1, NULL), TENSOR_F64, "3x3x1", 1,
       2.40000001, 5.80000001, 3, 5, 8, 5, 9, 9);
}
static void counts(void) {
    tensor_t *x = make(TENSOR_F32, "10", (const double[]){3, 1, 2, 1, NAN, -0, 0, 5, -INFINITY, INFINITY});
    tensor_t *z = make(TENSOR_F32, "6", (const double[]){0, 2, 0, 3, 0, -1});
    tensor_t *i = make(TENSOR_I64, "2x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
    tensor_t *w = make(TENSOR_I32, "6", (const double[]){4, 0, 2, 2, 7, 0});
    tensor_t *b = make(TENSOR_BOOL, "5", (const double[]){1, 0, 1, 0, 0});
    tensor_t *inverse, *count;
    IS(tensor_unique(i, &inverse, &count), TENSOR_I64, "7", 1, 2, 3, 4, 5, 6, 9);
    IS(inverse, TENSOR_I64, "2x5", 2, 0, 3, 0, 4, 6, 1, 5, 4, 2);
    IS(count, TENSOR_I64, "7", 2, 1, 2, 1, 2, 1, 1);
    tensor_t *k = make(TENSOR_I64, "3x5", (const double[]){1, 2, 1, 1, 2, 0, 5, 0, -1, 5, 7, 7, 7, 7, 7});
    IS(tensor_unique_dim(k, 1, &inverse, &count), TENSOR_I64, "3x3", 1, 1, 2, -1, 0, 5, 7, 7, 7);
    IS(inverse, TENSOR_I64, "5", 1, 2, 1, 0, 2);
    IS(count, TENSOR_I64, "3", 1, 2, 2);
        IS(tensor_unique_dim(k, 0, &inverse, &count), TENSOR_I64, "3x5", 0, 5, 0, -1, 5, 1, 2, 1, 1,
       2, 7, 7, 7, 7, 7);
    IS(inverse, TENSOR_I64, "3", 1, 0, 2);
    IS(count, TENSOR_I64, "3", 1, 1, 1);
    IS(tensor_unique_dim(tensor_mT(k), 0, &inverse, &count), TENSOR_I64, "3x3", 1, -1, 7, 1, 0, 7, 2, 5, 7);
    IS(inverse, TENSOR_I64, "5", 1, 2, 1, 0, 2);
    IS(count, TENSOR_I64, "3", 1, 2, 2);
        IS(tensor_unique_dim(tensor_reshape(k, 3, 1, 5), -1, &inverse, &count), TENSOR_I64, "3x1x3",
       1, 1, 2, -1, 0, 5, 7, 7, 7);
    IS(inverse, TENSOR_I64, "5", 1, 2, 1, 0, 2);
    IS(count, TENSOR_I64, "3", 1, 2, 2);
        IS(tensor_unique_consecutive_dim(k, 1, &inverse, &count), TENSOR_I64, "3x5", 1, 2, 1, 1, 2,
       0, 5, 0, -1, 5, 7, 7, 7, 7, 7);
    IS(inverse, TENSOR_I64, "5", 0, 1, 2, 3, 4);
    IS(count, TENSOR_I64, "5", 1, 1, 1, 1, 1);
        IS(tensor_unique_consecutive_dim(tensor_stack(1, k, k), 1, &inverse, &count), TENSOR_I64,
       "3x1x5", 1, 2, 1, 1, 2, 0, 5, 0, -1, 5, 7, 7, 7, 7, 7);
    IS(inverse, TENSOR_I64, "2", 0, 0);
    IS(count, TENSOR_I64, "1", 2);
    NONE(tensor_unique_dim(tensor_zeros(0, 3), 0, &inverse, &count), TENSOR_F32, "0x3");
    NONE(inverse, TENSOR_I64, "0");
    NONE(count, TENSOR_I64, "0");
    IS(tensor_unique(z, &inverse, &count), TENSOR_F32, "4", -1, 0, 2, 3);
    IS(inverse, TENSOR_I64, "6", 1, 2, 1, 3, 1, 0);
    IS(count, TENSOR_I64, "4", 1, 3, 1, 1);
    IS(tensor_unique(b, &inverse, &count), TENSOR_BOOL, "2", 0, 1);
    IS(inverse, TENSOR_I64, "5", 1, 0, 1, 0, 0);
    IS(count, TENSOR_I64, "2", 3, 2);
    IS(tensor_unique(w, &inverse, &count), TENSOR_I32, "4", 0, 2, 4, 7);
    IS(inverse, TENSOR_I64, "6", 2, 0, 1, 1, 3, 0);
    IS(count, TENSOR_I64, "4", 2, 2, 1, 1);
    NONE(tensor_unique(tensor_zeros(0, 2), &inverse, &count), TENSOR_F32, "0");
    NONE(inverse, TENSOR_I64, "0x2");
    NONE(count, TENSOR_I64, "0");
    IS(tensor_unique(tensor_scalar(3, TENSOR_F32), &inverse, &count), TENSOR_F32, "1", 3);
    IS(inverse, TENSOR_I64, "", 0);
    IS(count, TENSOR_I64, "1", 1);
    IS(tensor_unique_consecutive(z, &inverse, &count), TENSOR_F32, "6", 0, 2, 0, 3, 0, -1);
    IS(inverse, TENSOR_I64, "6", 0, 1, 2, 3, 4, 5);
    IS(count, TENSOR_I64, "6", 1, 1, 1, 1, 1, 1);
    IS(tensor_unique_consecutive(i, &inverse, &count), TENSOR_I64, "10", 3, 1, 4, 1, 5, 9, 2, 6, 5, 3);
    IS(inverse, TENSOR_I64, "2x5", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    IS(count, TENSOR_I64, "10", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        IS(tensor_unique_consecutive(tensor_mT(i), &inverse, &count), TENSOR_I64, "9", 3, 9, 1, 2,
       4, 6, 1, 5, 3);
    IS(inverse, TENSOR_I64, "5x2", 0, 1, 2, 3, 4, 5, 6, 7, 7, 8);
    IS(count, TENSOR_I64, "9", 1, 1, 1, 1, 1, 1, 1, 2, 1);
    IS(tensor_unique(w, NULL, NULL), TENSOR_I32, "4", 0, 2, 4, 7);
    IS(tensor_unique(w, NULL, &count), TENSOR_I32, "4", 0, 2, 4, 7);
    IS(count, TENSOR_I64, "4", 2, 2, 1, 1);
    IS(tensor_unique(w, &inverse, NULL), TENSOR_I32, "4", 0, 2, 4, 7);
    IS(inverse, TENSOR_I64, "6", 2, 0, 1, 1, 3, 0);
    tensor_t *e = make(TENSOR_F32, "4", (const double[]){-1, 0, 0, 3}), *rows = tensor_sort(i, 1, 0).values;
    IS(tensor_searchsorted(e, x, 0), TENSOR_I64, "10", 3, 3, 3, 3, 4, 1, 1, 4, 0, 4);
    IS(tensor_bucketize(z, e, 0), TENSOR_I64, "6", 1, 3, 1, 3, 1, 0);
    IS(tensor_searchsorted(rows, tensor_narrow(i, 1, 1, 3), 0), TENSOR_I64, "2x3", 0, 3, 0, 0, 3, 2);
    IS(tensor_searchsorted(e, x, 1), TENSOR_I64, "10", 4, 3, 3, 3, 4, 3, 3, 4, 0, 4);
    IS(tensor_bucketize(z, e, 1), TENSOR_I64, "6", 3, 3, 3, 4, 3, 1);
    IS(tensor_searchsorted(rows, tensor_narrow(i, 1, 1, 3), 1), TENSOR_I64, "2x3", 2, 4, 2, 1, 4, 3);
    IS(tensor_bucketize(tensor_scalar(1, TENSOR_F32), e, 0), TENSOR_I64, "", 3);
    IS(tensor_bucketize(z, tensor_zeros(0), 0), TENSOR_I64, "6", 0, 0, 0, 0, 0, 0);
    IS(tensor_isin(x, e), TENSOR_BOOL, "10", 1, 0, 0, 0, 0, 1, 1, 0, 0, 0);
    IS(tensor_isin(i, w), TENSOR_BOOL, "2x5", 0, 0, 1, 0, 0, 0, 1, 0, 0, 0);
    IS(tensor_isin(z, i), TENSOR_BOOL, "6", 0, 1, 0, 1, 0, 0);
    {       // NaN in test hides nothing and equals nothing
        const float v[] = {1, NAN, INFINITY, 2}, t[] = {NAN, 1, INFINITY, NAN};
        tensor_t *a = tensor_from(v, TENSOR_F32, 4), *b = tensor_from(t, TENSOR_F32, 4);
        IS(tensor_isin(a, b), TENSOR_BOOL, "4", 1, 0, 1, 0);
        IS(tensor_isin(a, tensor_narrow(b, 0, 0, 1)), TENSOR_BOOL, "4", 0, 0, 0, 0);
    }
    IS(tensor_isin(x, x), TENSOR_BOOL, "10", 1, 1, 1, 1, 0, 1, 1, 1, 1, 1);
    IS(tensor_isin(z, tensor_zeros(0)), TENSOR_BOOL, "6", 0, 0, 0, 0, 0, 0);
    IS(tensor_isin(tensor_scalar(3, TENSOR_F32), z), TENSOR_BOOL, "", 1);
    IS(tensor_isin(i, tensor_scalar(5, TENSOR_F32)), TENSOR_BOOL, "2x5", 0, 0, 0, 0, 1, 0, 0, 0, 1, 0);
    IS(tensor_bincount(w, NULL, 0), TENSOR_I64, "8", 2, 0, 2, 0, 1, 0, 0, 1);
    IS(tensor_bincount(w, NULL, 10), TENSOR_I64, "10", 2, 0, 2, 0, 1, 0, 0, 1, 0, 0);
    IS(tensor_bincount(w, z, 0), TENSOR_F32, "8", 1, 0, 3, 0, 0, 0, 0, 0);
    IS(tensor_bincount(w, tensor_to(z, TENSOR_I64), 0), TENSOR_F64, "8", 1, 0, 3, 0, 0, 0, 0, 0);
    IS(tensor_bincount(tensor_zeros_of(TENSOR_I64, 0), NULL, 2), TENSOR_I64, "2", 0, 0);
    IS(tensor_histc(z, 4, 0, 0), TENSOR_F32, "4", 1, 3, 0, 2);
    IS(tensor_histc(z, 3, 0, 2), TENSOR_F32, "3", 3, 0, 1);
    IS(tensor_histc(tensor_slice(x, 0, 1, 8, 1), 4, -1, 3), TENSOR_F32, "4", 0, 2, 2, 1);
    IS(tensor_histc(tensor_ones(3), 4, 0, 0), TENSOR_F32, "4", 0, 0, 3, 0);
    IS(tensor_histc(tensor_zeros(0), 2, 0, 0), TENSOR_F32, "2", 0, 0);
    {   // equal bounds are none, as in PyTorch
        float v[] = {1, 2, 3, 2};
        IS(tensor_histc(tensor_from(v, TENSOR_F32, 4), 4, 5, 5), TENSOR_F32, "4", 1, 0, 2, 1);
    }
    IS(tensor_count_nonzero(z), TENSOR_I64, "", 3);
    IS(tensor_count_nonzero(x), TENSOR_I64, "", 8);
    tensor_t *m = tensor_stack(0, z, tensor_flatten(tensor_narrow(tensor_to(w, TENSOR_F32), 0, 0, 6), 0, 0));
    IS(tensor_count_nonzero_dims(m, TENSOR_DIMS(1)), TENSOR_I64, "2", 3, 4);
    IS(tensor_count_nonzero_dims(m, TENSOR_DIMS(0, 1)), TENSOR_I64, "", 7);
}
static void reductions(void) {
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
    tensor_t *h = make(TENSOR_F32, "2x5", (const double[]){NAN, 1, 2, NAN, 4, 1, 2, 3, 4, NAN});
    tensor_t *i = make(TENSOR_I64, "2x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
    tensor_t *b = make(TENSOR_BOOL, "5", (const double[]){1, 0, 1, 0, 0});
    IS(tensor_sum_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 2, 22, 1);
    IS(tensor_sum_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_F32, "1x3x1", 2, 22, 1);
    IS(tensor_sum_dims(c, NULL, 0, 1), TENSOR_F32, "1x1x1", 25);
    IS(tensor_mean_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 0.5, 5.5, 0.25);
    IS(tensor_mean_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_F32, "1x3x1", 0.5, 5.5, 0.25);
    IS(tensor_mean_dims(c, NULL, 0, 1), TENSOR_F32, "1x1x1", 2.08333325);
    IS(tensor_amax_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 5, 8, 2);
    IS(tensor_amax_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_F32, "1x3x1", 5, 8, 2);
    IS(tensor_amax_dims(c, NULL, 0, 1), TENSOR_F32, "1x1x1", 8);
    IS(tensor_amin_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", -6, 3, -1.5);
    IS(tensor_amin_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_F32, "1x3x1", -6, 3, -1.5);
    IS(tensor_amin_dims(c, NULL, 0, 1), TENSOR_F32, "1x1x1", -6);
    IS(tensor_logsumexp_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 5.06589937, 8.33141136, 2.32834148);
        IS(tensor_logsumexp_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_F32, "1x3x1", 5.06589937,
       8.33141136, 2.32834148);
    IS(tensor_logsumexp_dims(c, NULL, 0, 1), TENSOR_F32, "1x1x1", 8.37125587);
    IS(tensor_any_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_BOOL, "3", 1, 1, 1);
    IS(tensor_any_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_BOOL, "1x3x1", 1, 1, 1);
    IS(tensor_all_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_BOOL, "3", 1, 1, 0);
    IS(tensor_all_dims(c, TENSOR_DIMS(-1, 0), 1), TENSOR_BOOL, "1x3x1", 1, 1, 0);
    IS(tensor_prod_dims(c, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", -60, 672, -0);
    IS(tensor_prod_dims(i, NULL, 0, 0), TENSOR_I64, "", 97200);
    IS(tensor_sum(tensor_to(i, TENSOR_F64)), TENSOR_F64, "", 39);
    IS(tensor_amax_dims(i, TENSOR_DIMS(0), 0), TENSOR_I64, "5", 9, 2, 6, 5, 5);
    IS(tensor_any_dims(b, NULL, 0, 0), TENSOR_BOOL, "", 1);
    IS(tensor_sum_dims(tensor_zeros(0, 3), TENSOR_DIMS(0), 0), TENSOR_F32, "3", 0, 0, 0);
    IS(tensor_var_dims(c, TENSOR_DIMS(0, 2), 1, 0), TENSOR_F32, "3", 21.666666, 5.66666651, 2.08333325);
        IS(tensor_var_dims(c, TENSOR_DIMS(1), 0, 1), TENSOR_F32, "2x1x2", 1.55555558, 5.16666651,
       7.38888884, 32.8888893);
    IS(tensor_var_dims(c, NULL, 0, 2, 0), TENSOR_F32, "", 15.8416662);
    IS(tensor_var_dims(tensor_ones(1), TENSOR_DIMS(0), 1, 0), TENSOR_F32, "", NAN);
    IS(tensor_std_dims(c, TENSOR_DIMS(0, 2), 1, 0), TENSOR_F32, "3", 4.65474653, 2.38047624, 1.44337571);
        IS(tensor_std_dims(c, TENSOR_DIMS(1), 0, 1), TENSOR_F32, "2x1x2", 1.24721909, 2.27303028,
       2.71825099, 5.73488331);
    IS(tensor_std_dims(c, NULL, 0, 2, 0), TENSOR_F32, "", 3.98015904);
    IS(tensor_std_dims(tensor_ones(1), TENSOR_DIMS(0), 1, 0), TENSOR_F32, "", NAN);
    tensor_t *second;
        IS(tensor_var_mean_dims(c, TENSOR_DIMS(0, 2), 1, 1, &second), TENSOR_F32, "1x3x1",
       21.666666, 5.66666651, 2.08333325);
    IS(second, TENSOR_F32, "1x3x1", 0.5, 5.5, 0.25);
    IS(tensor_std_mean(c, 0, &second), TENSOR_F32, "", 3.63337159);
    IS(second, TENSOR_F32, "", 2.08333325);
    IS(tensor_aminmax(c, NULL), TENSOR_F32, "", -6);
    IS(tensor_aminmax(c, &second), TENSOR_F32, "", -6);
    IS(second, TENSOR_F32, "", 8);
    IS(tensor_aminmax_dim(i, 1, 1, &second), TENSOR_I64, "2x1", 1, 2);
    IS(second, TENSOR_I64, "2x1", 5, 9);
    IS(tensor_aminmax_dim(h, 0, 0, &second), TENSOR_F32, "5", NAN, 1, 2, NAN, NAN);
    IS(second, TENSOR_F32, "5", NAN, 2, 3, NAN, NAN);
    IS(tensor_nansum(h), TENSOR_F32, "", 17);
    IS(tensor_nansum_dims(h, TENSOR_DIMS(0), 1), TENSOR_F32, "1x5", 1, 3, 5, 4, 4);
    IS(tensor_nansum(i), TENSOR_I64, "", 39);
    IS(tensor_nanmean(h), TENSOR_F32, "", 2.42857146);
    IS(tensor_nanmean_dims(h, TENSOR_DIMS(1), 0), TENSOR_F32, "2", 2.33333325, 2.5);
    IS(tensor_nanmean(tensor_full(NAN, 2)), TENSOR_F32, "", NAN);
    IS(tensor_norm_p(c, 0), TENSOR_F32, "", 11);
    IS(tensor_norm_p_dims(c, 0, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 4, 4, 3);
    IS(tensor_norm_p_dims(c, 0, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 2, 2, 1, 2, 2, 2);
    IS(tensor_dist(c, tensor_select(c, 0, 0), 0), TENSOR_F32, "", 6);
    IS(tensor_norm_p(c, 1), TENSOR_F32, "", 40);
    IS(tensor_norm_p_dims(c, 1, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 14, 22, 4);
    IS(tensor_norm_p_dims(c, 1, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 3, 7, 1.5, 11, 15, 2.5);
    IS(tensor_dist(c, tensor_select(c, 0, 0), 1), TENSOR_F32, "", 24);
    IS(tensor_norm_p(c, 2), TENSOR_F32, "", 14.5086184);
    IS(tensor_norm_p_dims(c, 2, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 8.1240387, 11.7473402, 2.54950976);
        IS(tensor_norm_p_dims(c, 2, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 2.23606801, 5, 1.5,
       7.81024981, 10.630146, 2.06155276);
    IS(tensor_dist(c, tensor_select(c, 0, 0), 2), TENSOR_F32, "", 11.1579571);
    IS(tensor_norm_p(c, INFINITY), TENSOR_F32, "", 8);
    IS(tensor_norm_p_dims(c, INFINITY, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 6, 8, 2);
    IS(tensor_norm_p_dims(c, INFINITY, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 2, 4, 1.5, 6, 8, 2);
    IS(tensor_dist(c, tensor_select(c, 0, 0), INFINITY), TENSOR_F32, "", 8);
    IS(tensor_norm_p(c, -INFINITY), TENSOR_F32, "", 0);
    IS(tensor_norm_p_dims(c, -INFINITY, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 1, 3, 0);
    IS(tensor_norm_p_dims(c, -INFINITY, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 1, 3, 0, 5, 7, 0.5);
    IS(tensor_dist(c, tensor_select(c, 0, 0), -INFINITY), TENSOR_F32, "", 0);
    IS(tensor_norm_p(c, 3), TENSOR_F32, "", 10.9348774);
    IS(tensor_norm_p_dims(c, 3, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 7.04729891, 9.81665993, 2.25717878);
        IS(tensor_norm_p_dims(c, 3, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 2.08008385,
       4.49794149, 1.5, 6.98636866, 9.49122047, 2.01036286);
    IS(tensor_dist(c, tensor_select(c, 0, 0), 3), TENSOR_F32, "", 9.07347298);
    IS(tensor_norm_p(c, 0.5), TENSOR_F32, "", 386.203674);
        IS(tensor_norm_p_dims(c, 0.5, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 50.4067535,
       84.7546539, 11.1961517);
        IS(tensor_norm_p_dims(c, 0.5, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 5.82842779,
       13.9282036, 1.50000012, 21.9544525, 29.966629, 4.49999952);
    IS(tensor_dist(c, tensor_select(c, 0, 0), 0.5), TENSOR_F32, "", 130.105103);
    IS(tensor_norm_p(c, -1), TENSOR_F32, "", 0);
    IS(tensor_norm_p_dims(c, -1, TENSOR_DIMS(0, 2), 0), TENSOR_F32, "3", 0.535714269, 1.17482507, 0);
        IS(tensor_norm_p_dims(c, -1, TENSOR_DIMS(-1), 1), TENSOR_F32, "2x3x1", 0.666666687,
       1.71428561, 0, 2.72727275, 3.73333335, 0.400000006);
    IS(tensor_dist(c, tensor_select(c, 0, 0), -1), TENSOR_F32, "", 0);
    IS(tensor_norm_p(tensor_zeros(0), 3), TENSOR_F32, "", 0);
    IS(tensor_norm_p(tensor_full_of(TENSOR_F16, 200, 400), 3), TENSOR_F16, "", 1474);
}
static void scans(void) {
    tensor_t *m = make(TENSOR_F32, "3x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9});
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
    tensor_t *i = make(TENSOR_I64, "2x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3});
    tensor_t *b = make(TENSOR_BOOL, "5", (const double[]){1, 0, 1, 0, 0});
    IS(tensor_cumprod(c, 1), TENSOR_F32, "2x3x2", 1, 2, 3, 8, 0, -12, 5, -6, 35, -48, 17.5, -96);
    IS(tensor_cumprod(i, 0), TENSOR_I64, "2x5", 3, 1, 4, 1, 5, 27, 2, 24, 5, 15);
    IS(tensor_cumprod(b, 0), TENSOR_I64, "5", 1, 0, 0, 0, 0);
    IS(tensor_cumprod(tensor_scalar(3, TENSOR_F32), 0), TENSOR_F32, "", 3);
        IS(tensor_logcumsumexp(c, 1), TENSOR_F32, "2x3x2", 1, 2, 3.12692809, 4.12692785, 3.16984606,
       4.1305213, 5, -6, 7.12692785, 8.00000095, 7.12825155, 8.00247669);
        IS(tensor_logcumsumexp(make(TENSOR_F32, "4", (const double[]){-INFINITY, -INFINITY, 1,
       1000}), 0), TENSOR_F32, "4", -INFINITY, -INFINITY, 1, 1000);
        IS(tensor_logcumsumexp(make(TENSOR_F32, "4", (const double[]){INFINITY, INFINITY, NAN, 1}),
       0), TENSOR_F32, "4", INFINITY, INFINITY, NAN, NAN);
    IS(tensor_diff(m, 1, -1), TENSOR_F32, "3x4", -2, 3, -3, 4, -7, 4, -1, -2, 3, 1, -2, 2);
    IS(tensor_diff(m, 2, 0), TENSOR_F32, "1x5", -10, 5, 1, -2, 8);
    NONE(tensor_diff(i, 7, 1), TENSOR_I64, "2x0");
    IS(tensor_diff(b, 1, 0), TENSOR_BOOL, "4", 1, 1, 1, 0);
    IS(tensor_diff(b, 2, 0), TENSOR_BOOL, "3", 0, 0, 1);
    IS(tensor_diff(m, 0, 0), TENSOR_F32, "3x5", 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9);
    IS(tensor_trapezoid(m, NULL, 1, -1), TENSOR_F32, "3", 10, 19, 31);
    IS(tensor_trapezoid(m, NULL, 0.5, 0), TENSOR_F32, "5", 6.5, 3.25, 6.25, 4.5, 5);
    IS(tensor_trapezoid(i, NULL, 1, 1), TENSOR_F32, "2", 10, 19);
    tensor_t *bytes = make(TENSOR_U8, "2", (const double[]){255, 7});
    tensor_t *places = make(TENSOR_U8, "2", (const double[]){4, 1});
    IS(tensor_trapezoid(bytes, NULL, 1, 0), TENSOR_F32, "", 131);
    IS(tensor_trapezoid(bytes, places, 1, 0), TENSOR_F32, "", -393);
    tensor_t *t = make(TENSOR_F32, "3", (const double[]){0, 1, 4});
    IS(tensor_trapezoid(m, t, 1, 0), TENSOR_F32, "5", 27, 16.5, 27.5, 21, 22);
    IS(tensor_trapezoid(c, t, 1, 1), TENSOR_F32, "2x2", 6.5, 6.75, 17.25, 16);
    IS(tensor_trapezoid(m, tensor_cumsum(m, 1), 1, 1), TENSOR_F32, "3", 29.5, 74.5, 256.5);
    IS(tensor_cumulative_trapezoid(m, t, 1, 0), TENSOR_F32, "2x5", 6, 1.5, 5, 3, 4, 27, 16.5, 27.5, 21, 22);
    IS(tensor_trapezoid(tensor_zeros(2, 1), NULL, 1, 1), TENSOR_F32, "2", 0, 0);
    IS(tensor_trapezoid(tensor_zeros(2, 0), NULL, 1, 1), TENSOR_F32, "2", 0, 0);
}
static void distances(void) {
    tensor_t *m = make(TENSOR_F32, "3x5", (const double[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9});
    tensor_t *c = make(TENSOR_F32, "2x3x2", (const double[]){1, 2, 3, 4, 0, -1.5, 5, -6, 7, 8, 0.5, 2});
        IS(tensor_cdist(m, tensor_narrow(m, 0, 1, 2), 2), TENSOR_F32, "3x2", 7.81024981, 11.4017544,
       0, 10.0498753, 10.0498753, 0);
        IS(tensor_cdist(c, tensor_narrow(c, 0, 0, 1), 2), TENSOR_F32, "2x3x3", 0, 2.82842708,
       3.64005494, 2.82842708, 0, 6.26498222, 3.64005494, 6.26498222, 0, 8.94427204, 10.1980391,
       6.72681189, 8.48528099, 5.65685415, 11.8004236, 0.5, 3.20156217, 3.53553391);
    IS(tensor_cdist(m, tensor_narrow(m, 0, 1, 2), 1), TENSOR_F32, "3x2", 15, 24, 0, 21, 21, 0);
        IS(tensor_cdist(c, tensor_narrow(c, 0, 0, 1), 1), TENSOR_F32, "2x3x3", 0, 4, 4.5, 4, 0, 8.5,
       4.5, 8.5, 0, 12, 12, 9.5, 12, 8, 16.5, 0.5, 4.5, 4);
    IS(tensor_cdist(m, tensor_narrow(m, 0, 1, 2), INFINITY), TENSOR_F32, "3x2", 6, 7, 0, 6, 6, 0);
        IS(tensor_cdist(c, tensor_narrow(c, 0, 0, 1), INFINITY), TENSOR_F32, "2x3x3", 0, 2, 3.5, 2,
       0, 5.5, 3.5, 5.5, 0, 8, 10, 5, 6, 4, 9.5, 0.5, 2.5, 3.5);
    IS(tensor_cdist(m, tensor_narrow(m, 0, 1, 2), 0), TENSOR_F32, "3x2", 5, 5, 0, 5, 5, 0);
        IS(tensor_cdist(c, tensor_narrow(c, 0, 0, 1), 0), TENSOR_F32, "2x3x3", 0, 2, 2, 2, 0, 2, 2,
       2, 0, 2, 2, 2, 2, 2, 2, 1, 2, 2);
        IS(tensor_cdist(m, tensor_narrow(m, 0, 1, 2), 1.5), TENSOR_F32, "3x2", 9.51574516,
       14.5020323, 0, 12.7297993, 12.7297993, 0);
        IS(tensor_cdist(c, tensor_narrow(c, 0, 0, 1), 1.5), TENSOR_F32, "2x3x3", 0, 3.17480206,
       3.84784389, 3.17480206, 0, 6.89237833, 3.84784389, 6.89237833, 0, 9.78904343, 10.5877314,
       7.5453763, 9.52440643, 6.34960413, 13.1712198, 0.5, 3.58267593, 3.62488055);
    IS(tensor_cdist(tensor_zeros(2, 0), tensor_zeros(3, 0), 2), TENSOR_F32, "2x3", 0, 0, 0, 0, 0, 0);
    NONE(tensor_cdist(tensor_zeros(0, 2), tensor_zeros(3, 2), 2), TENSOR_F32, "0x3");
        IS(tensor_renorm(m, 2, 0, 8), TENSOR_F32, "3x5", 3, 1, 4, 1, 5, 5.78317881, 1.28515089,
       3.85545254, 3.21287727, 1.92772627, 2.3094008, 3.69504142, 4.15692139, 3.23316121,
       4.15692139);
        IS(tensor_renorm(c, 1, 1, 5), TENSOR_F32, "2x3x2", 0.357142866, 0.714285731, 0.681818187,
       0.909090936, 0, -1.5, 1.78571439, -2.14285707, 1.59090912, 1.81818187, 0.5, 2);
        IS(tensor_renorm(m, 3, -1, 9), TENSOR_F32, "3x5", 2.81646991, 1, 3.58926415, 1, 4.69411659,
       8.44940948, 2, 5.38389635, 5, 2.81646991, 4.69411659, 8, 8.07584476, 7, 8.44940948);
    tensor_t *f = make(TENSOR_I64, "5", (const double[]){1, 2, 0, 3, 1}),
        *a = make(TENSOR_F32, "5", (const double[]){0.5, 1, 2, 0.25, 1});
        IS(tensor_cov(m, 1, NULL, NULL), TENSOR_F32, "3x3", 3.19999981, 0.74999994, 1.14999998,
       0.74999994, 7.5, -3.25, 1.14999998, -3.25, 2.79999971);
    IS(tensor_cov(tensor_select(m, 0, 0), 0, NULL, NULL), TENSOR_F32, "", 2.55999994);
        IS(tensor_cov(m, 1, f, NULL), TENSOR_F32, "3x3", 2.47619033, 0.571428597, 0.380952358,
       0.571428597, 5.95238113, -2.80952382, 0.380952358, -2.80952382, 1.57142866);
        IS(tensor_cov(m, 1, NULL, a), TENSOR_F32, "3x3", 3.07692313, 1.26153851, 1.20000005,
       1.26153851, 6.66153908, -1.67692327, 1.20000005, -1.67692327, 2.16923094);
        IS(tensor_cov(m, 1, f, a), TENSOR_F32, "3x3", 3.52136755, 0.888888896, 0.717948735,
       0.888888896, 6.25641012, -2.83760691, 0.717948735, -2.83760691, 1.70940173);
        IS(tensor_cov(m, 0, f, a), TENSOR_F32, "3x3", 2.85121107, 0.719723225, 0.581314862,
       0.719723225, 5.06574392, -2.29757786, 0.581314862, -2.29757786, 1.38408303);
        IS(tensor_corrcoef(m), TENSOR_F32, "3x3", 0.99999994, 0.153093085, 0.384188056, 0.1530931,
       0.99999994, -0.70920819, 0.384188056, -0.70920819, 1);
    IS(tensor_cov(tensor_narrow(m, 0, 0, 1), 1, f, a), TENSOR_F32, "", 3.52136779);
    IS(tensor_corrcoef(tensor_narrow(m, 0, 0, 1)), TENSOR_F32, "", 1);
    IS(tensor_corrcoef(tensor_select(m, 0, 1)), TENSOR_F32, "", 1);
}

// ---- against plain loops ----

static uint64_t seed = 7;
static double random_value(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 1.1102230246251565e-16;
}
// 1 if a goes before b: NaN largest, ties by index.
static int before(const double *v, int64_t a, int64_t b, int falling) {
    int na = isnan(v[a]), nb = isnan(v[b]);
    if (na != nb) { return falling ? na : nb; }
    if (!na && v[a] != v[b]) { return falling ? v[a] > v[b] : v[a] < v[b]; }
    return a < b;
}
static void every_dtype_and_length(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16,
                                            TENSOR_I32, TENSOR_I64, TENSOR_U8,  TENSOR_BOOL};
    static const int lengths[] = {1, 2, 47, 49, 300, 1000};
    int d, l, falling;
    for (d = 0; d < N(dtypes); d++) {
        for (l = 0; l < N(lengths); l++) {
            int64_t n = lengths[l], k, i, bad = 0, three = n < 3 ? n : 3;
            double v[1000];
            int real = dtypes[d] != TENSOR_BOOL && dtypes[d] > TENSOR_F64 && dtypes[d] < TENSOR_F16;
            tensor_t *x, *f;
            for (k = 0; k < n; k++) {
                double big = dtypes[d] == TENSOR_I64 ? 4e18 : dtypes[d] == TENSOR_I32 ? 2e9 : 100;
                double r = random_value();
                v[k] = r < 0.2 ? floor(r * 40) : dtypes[d] == TENSOR_U8 ? floor(r * 255) : (r - 0.5) * big;
                if (real) { v[k] = floor(v[k]); }
                if (!real && r > 0.95) {
                    v[k] = r > 0.97 ? (double)NAN : r > 0.96 ? -0.0 : (double)-INFINITY;
                }
            }
            x = tensor_to(tensor_from(v, TENSOR_F64, n), dtypes[d]);
            f = tensor_to(x, TENSOR_F64);
            tensor_copy_out(f, v, sizeof *v * (size_t)n);
            for (falling = 0; falling < 2; falling++) {
                tensor_pair_t s = tensor_sort(x, 0, falling), t = tensor_topk(x, three, 0, falling, 1);
                tensor_t *loose = tensor_topk(x, three, 0, falling, 0).indices;
                const int64_t *at = (const int64_t *)tensor_data(s.indices);
                double *sorted = (double *)malloc(sizeof *v * (size_t)n);
                tensor_copy_out(tensor_to(s.values, TENSOR_F64), sorted, sizeof *v * (size_t)n);
                for (k = 0; k < n; k++) {
                    if (k && !before(v, at[k - 1], at[k], falling)) { bad++; }
                    if (!(sorted[k] == v[at[k]] || (isnan(sorted[k]) && isnan(v[at[k]])))) { bad++; }
                }
                free(sorted);
                if (!tensor_equal(t.indices, tensor_narrow(s.indices, 0, 0, three))) { bad++; }
                if (!tensor_equal(tensor_sort(loose, 0, 0).values,
                                  tensor_sort(t.indices, 0, 0).values)) {
                    bad++;
                }
                if (falling) { continue; }
                for (i = 1; i <= n; i += 1 + n / 7) {
                    if (tensor_item_i64(tensor_kthvalue(x, i, 0, 0).indices) != at[i - 1]) { bad++; }
                }
                if (tensor_item_i64(tensor_nanmedian_dim(x, 0, 0).indices) !=
                    (tensor_item(tensor_isnan(tensor_nanmedian(x))) ? 0
                     : at[(n - 1 - (int64_t)tensor_item(tensor_sum(tensor_isnan(x)))) / 2])) {
                    bad++;
                }
            }
            CHECK_MSG(!bad, "%s, %d elements: %d wrong", tensor_dtype_name(dtypes[d]), (int)n, (int)bad);
        }
    }
}
static void large_integers(void) {
    static const int64_t v[] = {INT64_MAX, INT64_MIN, 0, -1, INT64_MAX - 1, 1};
    tensor_t *x = tensor_from(v, TENSOR_I64, 6), *s = tensor_sort(x, 0, 0).values;
    const int64_t *p = (const int64_t *)tensor_data(s);
    CHECK(p[0] == INT64_MIN && p[1] == -1 && p[4] == INT64_MAX - 1 && p[5] == INT64_MAX);
    CHECK(tensor_item_i64(tensor_searchsorted(s, tensor_select(x, 0, 4), 1)) == 5);
    CHECK(tensor_item_i64(tensor_select(tensor_cummin(x, 0).values, 0, 5)) == INT64_MIN);
}
static void unique_is_consistent(void) {
    tensor_t *x = tensor_randint(0, 50, 7, 300), *inverse, *counts, *v = tensor_unique(x, &inverse, &counts);
    CHECK(tensor_numel(v) == 50 && tensor_item_i64(tensor_sum(counts)) == 2100);
    CHECK(tensor_equal(tensor_reshape(tensor_index_select(v, 0, tensor_reshape(inverse, -1)), 7, 300), x));
    CHECK(tensor_equal(counts, tensor_bincount(tensor_reshape(x, -1), NULL, 0)));
    v = tensor_unique(make(TENSOR_F32, "6", (const double[]){NAN, 1, NAN, 0, -0.0, 1}), &inverse, &counts);
    IS(v, TENSOR_F32, "4", 0, 1, NAN, NAN); // every NaN is a value of its own, as in PyTorch
    IS(inverse, TENSOR_I64, "6", 2, 1, 3, 0, 0, 1);
    IS(counts, TENSOR_I64, "4", 2, 2, 1, 1);
}
// Long rows over matmul, and the same distances by differences.
static void distances_by_matmul(void) {
    tensor_t *a = tensor_to(tensor_randn(40, 5), TENSOR_F64), *b = tensor_to(tensor_randn(3, 5), TENSOR_F64);
    tensor_t *d = tensor_cdist(a, b, 2), *part = tensor_cdist(tensor_narrow(a, 0, 10, 20), b, 2);
    CHECK(tensor_allclose(tensor_narrow(d, 0, 10, 20), part, 1e-9, 1e-9));
    CHECK(tensor_item(tensor_select(tensor_select(tensor_cdist(a, a, 2), 0, 3), 0, 3)) < 1e-6);
}
static void same_bits_for_any_threads(void) {
    tensor_t *x = tensor_randn(300, 700), *r[2][8];
    int t, k;
    for (t = 0; t < 2; t++) {
        tensor_set_num_threads(t ? 4 : 1);
        r[t][0] = tensor_argsort(x, 1, 0);
        r[t][1] = tensor_topk(x, 20, 0, 1, 1).indices;
        r[t][2] = tensor_median_dim(x, 1, 0).values;
        r[t][3] = tensor_cummax(x, 1).values;
        r[t][4] = tensor_cumprod(x, 0);
        r[t][5] = tensor_logcumsumexp(x, 1);
        r[t][6] = tensor_searchsorted(tensor_sort(tensor_select(x, 0, 0), 0, 0).values, x, 0);
        r[t][7] = tensor_mode(tensor_round(x), 1, 0).indices;
    }
    tensor_set_num_threads(1);
    for (k = 0; k < 8; k++) { CHECK_MSG(test_same_bits(r[0][k], r[1][k]), "result %d", k); }
}

// ---- gradients ----

typedef tensor_t *(*fn_t)(tensor_t *x);
static tensor_t *call(tensor_t *const *in, int n, void *user) {
    (void)n;
    return (*(fn_t *)user)(in[0]);
}
#define FN(name, expression) static tensor_t *g_##name(tensor_t *x) { return expression; }
static tensor_t *second_of(tensor_t *first,
                           tensor_t **second) { return tensor_is_poison(first) ? first : *second; }
static tensor_t *other;
FN(sort, tensor_sort(x, 1, 1).values)
FN(msort, tensor_msort(tensor_square(x)))
FN(topk, tensor_topk(x, 2, 1, 1, 1).values)
FN(kth, tensor_kthvalue(x, 2, 0, 0).values)
FN(median, tensor_square(tensor_median(x)))
FN(median_dim, tensor_median_dim(x, 1, 1).values)
FN(nanmedian, tensor_nanmedian_dim(x, 1, 1).values)
FN(mode, tensor_mode(x, 1, 0).values)
FN(cummax, tensor_square(tensor_cummax(x, 1).values))
FN(cummin, tensor_square(tensor_cummin(x, 0).values))
FN(cumprod, tensor_cumprod(x, 1))
FN(cumprod0, tensor_cumprod(tensor_masked_fill(x, tensor_gt_scalar(x, 1), 0), 1))
FN(logcumsumexp, tensor_logcumsumexp(x, 1))
FN(quantile, tensor_quantile_dim(x, tensor_full(0.3, 2), 1, 0, NULL))
FN(nanquantile, tensor_nanquantile(x, tensor_scalar(0.6, TENSOR_F64)))
FN(midpoint, tensor_quantile_dim(x, tensor_scalar(0.3, TENSOR_F64), 0, 1, "midpoint"))
FN(amax, tensor_square(tensor_amax_dims(x, TENSOR_DIMS(0), 1)))
FN(prod, tensor_prod_dims(x, TENSOR_DIMS(0, 1), 0))
FN(var, tensor_var_dims(x, TENSOR_DIMS(0, 1), 1, 0))
FN(std, tensor_std_dims(x, TENSOR_DIMS(0), 0, 1))
FN(logsumexp, tensor_logsumexp_dims(x, TENSOR_DIMS(1, 0), 1))
FN(nansum, tensor_nansum_dims(tensor_square(x), TENSOR_DIMS(0), 0))
FN(nanmean, tensor_nanmean(tensor_square(x)))
FN(var_mean, second_of(tensor_var_mean_dims(tensor_square(x), TENSOR_DIMS(0), 1, 0, &other), &other))
FN(std_mean, tensor_std_mean(x, 1, &other))
FN(aminmax, second_of(tensor_aminmax(x, &other), &other))
FN(norm1, tensor_norm_p(x, 1))
FN(norm2, tensor_norm_p_dims(x, 2, TENSOR_DIMS(0), 0))
FN(norm3, tensor_norm_p_dims(x, 3, TENSOR_DIMS(0, 1), 1))
FN(norm_half, tensor_norm_p_dims(x, 0.5, TENSOR_DIMS(1), 0))
FN(norm_inf, tensor_norm_p_dims(x, INFINITY, TENSOR_DIMS(1), 0))
FN(norm_low, tensor_norm_p(x, -INFINITY))
FN(dist, tensor_dist(x, tensor_mul_scalar(tensor_square(x), 0.3), 3))
FN(cdist1, tensor_cdist(x, tensor_narrow(tensor_square(x), 0, 0, 2), 1))
FN(cdist2, tensor_cdist(x, tensor_narrow(tensor_square(x), 0, 0, 2), 2))
FN(renorm, tensor_renorm(x, 2, 0, 1.5))
FN(diff, tensor_diff(tensor_square(x), 2, 1))
FN(trapezoid, tensor_trapezoid(tensor_square(x), x, 1, 1))
FN(cumulative, tensor_cumulative_trapezoid(tensor_square(x), NULL, 0.3, 0))
FN(cov, tensor_cov(x, 1, NULL, tensor_full_of(TENSOR_F64, 0.7, 4)))
FN(corrcoef, tensor_corrcoef(x))
static tensor_t *g_cdist_mm(tensor_t *x) { return tensor_cdist(tensor_repeat(x, 9, 1), tensor_square(x), 2); }

static void gradients(void) {
    static const struct { const char *name; fn_t f; } list[] = {
#define G(name) {#name, g_##name}
        G(sort), G(msort), G(topk), G(kth), G(median), G(median_dim), G(nanmedian), G(mode), G(cummax),
            G(cummin),
        G(cumprod), G(cumprod0), G(logcumsumexp), G(quantile), G(nanquantile), G(midpoint), G(amax), G(prod),
        G(var), G(std), G(logsumexp), G(nansum), G(nanmean), G(var_mean), G(std_mean), G(aminmax), G(norm1),
        G(norm2), G(norm3), G(norm_half), G(norm_inf), G(norm_low), G(dist), G(cdist1), G(cdist2), G(renorm),
        G(diff), G(trapezoid), G(cumulative), G(cov), G(corrcoef), G(cdist_mm)};
    static const double v[] = {0.31, -1.27, 2.2, 0.9, -0.55, 1.8, -2.4, 0.14, 1.1, -0.8, 0.6, -1.6};
    int k;
    for (k = 0; k < N(list); k++) {
        tensor_scope_t s = tensor_scope_begin();
        fn_t f = list[k].f;
        tensor_t *x = tensor_requires_grad_(tensor_from(v, TENSOR_F64, 3, 4), 1);
        tensor_t *y = tensor_requires_grad_(tensor_clone(tensor_mT(tensor_from(v, TENSOR_F64, 4, 3))), 1),
            *in[1];
        CHECK_MSG(tensor_requires_grad(f(x)), "%s is not recorded", list[k].name);
        in[0] = x;
        CHECK_MSG(!tensor_gradcheck(call, &f, in, 1, 1e-6, 1e-5, 1e-3), "%s: %s", list[k].name,
                  tensor_error_text());
        CHECK_MSG(!tensor_gradgradcheck(call, &f, in, 1, 1e-6, 1e-5, 1e-3), "%s, twice: %s", list[k].name,
                  tensor_error_text());
        in[0] = y;
        CHECK_MSG(!tensor_gradcheck(call, &f, in, 1, 1e-6, 1e-5, 1e-3), "%s, second input: %s", list[k].name,
                  tensor_error_text());
        tensor_clear_error();
        tensor_scope_end(s);
    }
}
static tensor_t *grad_of(tensor_t *y, tensor_t *x) {
    tensor_t *g;
    y = tensor_sum(y);
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0);
    return g;
}
// Places where a plain formula gives NaN.
static void gradients_at_edges(void) {
    tensor_t *x = tensor_requires_grad_(make(TENSOR_F32, "4", (const double[]){1, 0, 3, 0}), 1);
    tensor_t *z = tensor_requires_grad_(tensor_zeros(2, 3), 1);
    tensor_t *l = tensor_requires_grad_(make(TENSOR_F32, "4", (const double[]){-INFINITY, -INFINITY, 1, 2}),
                                        1);
    tensor_t *h = tensor_requires_grad_(make(TENSOR_F32, "4", (const double[]){NAN, 1, 3, 2}), 1);
    IS(grad_of(tensor_cumprod(x, 0), x), TENSOR_F32, "4", 1, 4, 0, 0);
    IS(grad_of(tensor_norm_p(x, 3), x), TENSOR_F32, "4", 0.108449628, 0, 0.976046652, 0);
    IS(grad_of(tensor_norm_p(x, 0.5), x), TENSOR_F32, "4", 2.73205081, 0, 1.57735027, 0);
    IS(grad_of(tensor_norm_p(z, 3), z), TENSOR_F32, "2x3", 0, 0, 0, 0, 0, 0);
    IS(grad_of(tensor_norm_p(z, 2), z), TENSOR_F32, "2x3", 0, 0, 0, 0, 0, 0);
    IS(grad_of(tensor_cdist(z, z, 2), z), TENSOR_F32, "2x3", 0, 0, 0, 0, 0, 0);
    IS(grad_of(tensor_cdist(tensor_repeat(z, 20, 1), z, 2), z), TENSOR_F32, "2x3", 0, 0, 0, 0, 0, 0);
    IS(grad_of(tensor_renorm(z, 2, 0, 1), z), TENSOR_F32, "2x3", 1, 1, 1, 1, 1, 1);
    IS(grad_of(tensor_logcumsumexp(tensor_narrow(l, 0, 1, 3), 0), l), TENSOR_F32, "4", 0, 0, 1.26894142,
       0.731058579);
    IS(grad_of(tensor_nanmean(h), h), TENSOR_F32, "4", 0, 1. / 3, 1. / 3, 1. / 3);
    IS(grad_of(tensor_nanmedian(h), h), TENSOR_F32, "4", 0, 0, 0, 1);
    IS(grad_of(tensor_median(h), h), TENSOR_F32, "4", 1, 0, 0, 0);
    IS(grad_of(tensor_median(x), x), TENSOR_F32, "4", 0, 0.5, 0, 0.5);
    IS(tensor_var_dims(x, TENSOR_DIMS(0), 4, 0), TENSOR_F32, "", INFINITY);
    IS(grad_of(tensor_topk(x, 2, 0, 0, 1).values, x), TENSOR_F32, "4", 0, 1, 0, 1);
    CHECK(!tensor_requires_grad(tensor_argsort(x, 0, 0)) &&
          !tensor_requires_grad(tensor_unique(x, NULL, NULL)));
}

// ---- no memory from the k-th allocation on ----

typedef struct heap_t { long calls, fail_at, blocks; } heap_t;
static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    char *raw, *p;
    if ((h->calls++ >= h->fail_at && h->fail_at >= 0) ||
        !(raw = (char *)malloc(bytes + alignment + sizeof raw))) {
        return NULL;
    }
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
    ((heap_t *)user)->blocks--;
    free(raw);
}
// Results of a function with several are all there or all poison.
static void alike(tensor_t *a, tensor_t *b, tensor_t *c) {
    CHECK(a && b && c && tensor_is_poison(a) == tensor_is_poison(b) &&
          tensor_is_poison(a) == tensor_is_poison(c));
}
static void work(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(5, 400), 1), *q = tensor_full(0.3, 2), *a, *b, *c;
    tensor_pair_t p = tensor_sort(x, 0, 0);
    alike(p.values, p.indices, p.values);
    p = tensor_topk(x, 3, 1, 1, 1);
    alike(p.values, p.indices, p.values);
    tensor_backward(tensor_sum(p.values));
    p = tensor_mode(x, 0, 0);
    alike(p.values, p.indices, p.values);
    a = tensor_unique_dim(x, 1, &b, &c);
    alike(a, b, c);
    a = tensor_var_mean(x, 1, &b);
    alike(a, b, b);
    tensor_backward(tensor_add(a, b));
    tensor_backward(tensor_sum(tensor_cumprod(x, 1)));
    tensor_backward(tensor_sum(tensor_logcumsumexp(x, 1)));
    tensor_backward(tensor_sum(tensor_cdist(x, x, 1)));
    tensor_backward(tensor_sum(tensor_quantile_dim(x, q, 1, 1, NULL)));
    tensor_histc(x, 5, 0, 0);
    tensor_cov(x, 1, NULL, NULL);
    tensor_corrcoef(x);
    tensor_trapezoid(x, x, 1, 0);
    tensor_isin(x, q);
    tensor_norm_p(x, 3);
}
static void out_of_memory(void) {
    tensor_allocator_t a = {heap_alloc, heap_free, NULL};
    long k, last = 0, failed = 0;
    for (k = -1; k < last; k++) {
        heap_t h = {0, k, 0};
        tensor_context_t *context = tensor_context_new(), *mine = tensor_context_use(context);
        a.user = &h;
        tensor_set_allocator(&a);
        tensor_set_error_handler(test_quiet, NULL);
        {
            tensor_scope_t s = tensor_scope_begin();
            work();
            tensor_scope_end(s);
        }
        if (k < 0) { last = h.calls; }
        failed += tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY;
        CHECK_MSG(tensor_ok() ? k < 0 : tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY,
                  "k = %ld of %ld: %s", k, last,
                  tensor_error_text());
        tensor_clear_error();
        tensor_context_use(mine);
        tensor_context_free(context);
        CHECK_MSG(h.blocks == 0, "k = %ld: %ld blocks left", k, h.blocks);
    }
    CHECK(last > 20 && failed > 10);
}

// ---- errors ----

static void errors(void) {
    tensor_t *x = tensor_zeros(2, 3), *e = tensor_zeros(2, 0), *i = tensor_zeros_of(TENSOR_I64, 3), *inverse,
        *second;
    tensor_t *minus = tensor_full_of(TENSOR_I32, -1, 3), *two = tensor_scalar(1.5, TENSOR_F32);
    CHECK_POISON(tensor_sort(x, 2, 0).values, TENSOR_ERR_INDEX, "sort: dim 2 is outside -2..1");
    CHECK_POISON(tensor_sort(NULL, 0, 0).indices, TENSOR_ERR_OWNER, "sort: ");
    CHECK_POISON(tensor_argsort(x, -3, 0), TENSOR_ERR_INDEX, "argsort: sort: dim -3");
    CHECK_POISON(tensor_topk(x, 4, 1, 1, 1).values, TENSOR_ERR_SHAPE,
                 "topk: k must be 0..3 for dim 1 of x [2,3] (got 4)");
    CHECK_POISON(tensor_topk(x, -1, 1, 1, 1).indices, TENSOR_ERR_SHAPE, "topk: k must be");
    CHECK_POISON(tensor_kthvalue(x, 0, 0, 0).values, TENSOR_ERR_SHAPE, "kthvalue: k must be 1..2 for dim 0");
    CHECK_POISON(tensor_kthvalue(x, 1, 5, 0).values, TENSOR_ERR_INDEX, "kthvalue: dim 5");
    CHECK_POISON(tensor_median_dim(e, 1, 0).values, TENSOR_ERR_SHAPE,
                 "kthvalue: dim 1 of x [2,0] has no element");
    CHECK_POISON(tensor_mode(e, 1, 0).values, TENSOR_ERR_SHAPE, "mode: dim 1 of x [2,0] has no element");
    CHECK_POISON(tensor_median(tensor_zeros_of(TENSOR_I64, 0)), TENSOR_ERR_SHAPE, "median: ");
    CHECK_POISON(tensor_cummax(x, 2).values, TENSOR_ERR_INDEX, "cummax: dim 2");
    CHECK_POISON(tensor_logcumsumexp(i, 0), TENSOR_ERR_DTYPE, "logcumsumexp: x [3] is i64");
    CHECK_POISON(tensor_quantile(x, two), TENSOR_ERR_SHAPE,
                 "quantile: the elements of q [] must lie within 0..1");
    CHECK_POISON(tensor_quantile(x, tensor_full(NAN, 1)), TENSOR_ERR_SHAPE,
                 "quantile: the elements of q [1] must lie");
    CHECK_POISON(tensor_quantile(x, x), TENSOR_ERR_SHAPE, "quantile: q [2,3] must have at most one dim");
    CHECK_POISON(tensor_quantile(i, two), TENSOR_ERR_DTYPE,
                 "quantile: x [3] must be f32 or f64 and q float (got i64");
    CHECK_POISON(tensor_nanquantile_dim(x, tensor_zeros(1), 0, 0, "cubic"), TENSOR_ERR_FORMAT,
                 "interpolation \"cubic\"");
    CHECK_POISON(tensor_quantile_dim(e, tensor_zeros(1), 1, 0, NULL), TENSOR_ERR_SHAPE,
                 "quantile_dim: x [2,0] has no element");
    CHECK_POISON(tensor_searchsorted(x, i, 0), TENSOR_ERR_DTYPE,
                 "searchsorted: values [3] must be f32 as sorted (got i64)");
    CHECK_POISON(tensor_searchsorted(x, tensor_zeros(3, 3), 0), TENSOR_ERR_SHAPE,
                 "searchsorted: sorted [2,3] must be 1-d or");
    CHECK_POISON(tensor_searchsorted(NULL, x, 0), TENSOR_ERR_OWNER, "sorted");
    CHECK_POISON(tensor_bucketize(x, x, 0), TENSOR_ERR_SHAPE, "bucketize: boundaries [2,3] must be 1-d");
    CHECK_POISON(tensor_bincount(minus, NULL, 0), TENSOR_ERR_INDEX,
                 "bincount: x must not be negative (got -1)");
    CHECK_POISON(tensor_bincount(x, NULL, 0), TENSOR_ERR_DTYPE,
                 "bincount: x [2,3] must be of an integer dtype");
    CHECK_POISON(tensor_bincount(i, tensor_zeros(2), 0), TENSOR_ERR_SHAPE,
                 "bincount: x [3] must be 1-d, weights as long");
    CHECK_POISON(tensor_bincount(i, NULL, -1), TENSOR_ERR_SHAPE, "minlength >= 0 (got -1)");
    CHECK_POISON(tensor_bincount(tensor_from(((const int64_t[]){INT64_MAX}), TENSOR_I64, 1), NULL, 0),
                 TENSOR_ERR_SHAPE,
                 "bincount: ");
    CHECK_POISON(tensor_histc(x, 0, 0, 1), TENSOR_ERR_SHAPE, "histc: bins must be >= 1 (got 0)");
    CHECK_POISON(tensor_histc(x, 3, 2, 1), TENSOR_ERR_SHAPE, "the range 2..1 finite and rising");
    CHECK_POISON(tensor_histc(tensor_full(NAN, 2), 3, 0, 0), TENSOR_ERR_SHAPE, "range nan..nan");
    CHECK_POISON(tensor_histc(i, 3, 0, 0), TENSOR_ERR_DTYPE, "histc: x [3] is i64");
    CHECK_POISON(tensor_diff(tensor_scalar(1, TENSOR_F32), 1, 0), TENSOR_ERR_SHAPE,
                 "diff: x [] must have a dim");
    CHECK_POISON(tensor_diff(x, -1, 0), TENSOR_ERR_SHAPE, "n be >= 0 (got -1)");
    CHECK_POISON(tensor_trapezoid(x, tensor_zeros(2), 1, 1), TENSOR_ERR_SHAPE,
                 "trapezoid: y [2,3] must have a dim 1 and x");
    CHECK_POISON(tensor_cdist(x, tensor_zeros(2, 4), 2), TENSOR_ERR_SHAPE,
                 "cdist: a [2,3] and b [2,4] must be");
    CHECK_POISON(tensor_cdist(x, x, -1), TENSOR_ERR_SHAPE, "p >= 0 (got -1)");
    CHECK_POISON(tensor_renorm(x, 0, 0, 1), TENSOR_ERR_SHAPE,
                 "renorm: x [2,3] must have 2 dims, p be > 0 (got 0)");
    CHECK_POISON(tensor_renorm(x, 2, 0, -1), TENSOR_ERR_SHAPE, "maxnorm >= 0 (got -1)");
    CHECK_POISON(tensor_cov(tensor_zeros(1, 2, 3), 1, NULL, NULL), TENSOR_ERR_SHAPE,
                 "cov: x [1,2,3] must have at most 2");
    CHECK_POISON(tensor_cov(x, 1, x, NULL), TENSOR_ERR_SHAPE, "cov: fweights [2,3] must be integer [3]");
    CHECK_POISON(tensor_cov(x, 1, minus, NULL), TENSOR_ERR_INDEX, "cov: fweights [");
    CHECK_POISON(tensor_norm_p(i, 2), TENSOR_ERR_DTYPE, "norm_p: x [3] is i64");
    CHECK_POISON(tensor_norm_p_dims(e, INFINITY, TENSOR_DIMS(1), 0), TENSOR_ERR_SHAPE, "amax: x [2,0]");
    CHECK_POISON(tensor_var_dims(x, TENSOR_DIMS(0, 0), 1, 0), TENSOR_ERR_INDEX,
                 "var_dims: dim 0 appears twice");
    CHECK_POISON(tensor_amax_dims(x, TENSOR_DIMS(0, -2), 0), TENSOR_ERR_INDEX,
                 "amax_dims: dim 0 appears twice");
    CHECK_POISON(tensor_nanmean(i), TENSOR_ERR_DTYPE, "nanmean: x [3] is i64");
    CHECK_POISON(tensor_var_mean(i, 1, &second), TENSOR_ERR_DTYPE, "var");
    CHECK(tensor_is_poison(second));
    CHECK_POISON(tensor_aminmax(e, &second), TENSOR_ERR_SHAPE, "amin: x [2,0] has no element");
    CHECK(tensor_is_poison(second));
    CHECK_POISON(tensor_unique(NULL, &inverse, NULL), TENSOR_ERR_OWNER, "x");
    CHECK(tensor_is_poison(inverse));
    CHECK_POISON(tensor_unique_dim(x, 2, NULL, &second), TENSOR_ERR_INDEX,
                 "unique_dim: dim 2 is outside");
    CHECK(tensor_is_poison(second));
    CHECK_POISON(tensor_unique_dim(e, 0, NULL, NULL), TENSOR_ERR_SHAPE,
                 "unique_dim: x [2,0] must have dims, and none of them may be 0 except dim 0");
}

// As PyTorch's, results lie in the order of their dims, whichever dim was walked.
static void order_in_memory(void) {
    for (int d = 0; d < 3; d++) {
        tensor_t *x = tensor_randn(3, 4, 5);
        tensor_pair_t sorted = tensor_sort(x, d, 0), most = tensor_topk(x, 2, d, 1, 1);
        tensor_pair_t run = tensor_cummax(x, d);
        CHECK(tensor_is_contiguous(tensor_softmax(x, d)) && tensor_is_contiguous(tensor_log_softmax(x, d)));
        CHECK(tensor_is_contiguous(tensor_cumsum(x, d)) && tensor_is_contiguous(tensor_cumprod(x, d)));
        CHECK(tensor_is_contiguous(tensor_logcumsumexp(x, d)));
        CHECK(tensor_is_contiguous(tensor_argsort(x, d, 0)));
        CHECK(tensor_is_contiguous(sorted.values) && tensor_is_contiguous(sorted.indices));
        CHECK(tensor_is_contiguous(most.values) && tensor_is_contiguous(most.indices));
        CHECK(tensor_is_contiguous(run.values) && tensor_is_contiguous(run.indices));
        CHECK(tensor_numel(tensor_view(tensor_softmax(x, d), -1)) == 60);
    }
}

// The last element counts too, of every dtype.
static void extremes_at_the_end(void) {
    static const tensor_dtype_t types[] = {TENSOR_I64, TENSOR_I32, TENSOR_U8,
                                           TENSOR_F64, TENSOR_F32, TENSOR_F16};
    int64_t n;
    int k;
    for (k = 0; k < 6; k++) {
        for (n = 1; n < 70; n++) {
            tensor_t *x = tensor_arange(0, (double)n, 1, types[k]);
            CHECK(tensor_item_i64(tensor_argmax_dim(x, 0, 0)) == n - 1);
            CHECK(tensor_item_i64(tensor_argmin_dim(tensor_flip(x, 0), 0, 0)) == n - 1);
        }
    }
}

// One element is not like the others, and it is the last.
static void last_is_another(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64, TENSOR_I32, TENSOR_I16};
    for (int k = 0; k < 5; k++) {
        for (int64_t n = 2; n < 20000; n = n * 3 + 1) {
            tensor_t *x = tensor_to(tensor_full(7, n), (int)dtypes[k]);
            tensor_fill_(tensor_select(x, 0, n - 1), -300);
            tensor_pair_t p = tensor_sort(x, 0, 0);
            CHECK(tensor_item(tensor_select(p.values, 0, 0)) == -300);
            CHECK(tensor_item_i64(tensor_select(p.indices, 0, 0)) == n - 1);
            CHECK(tensor_item(tensor_select(p.values, 0, n - 1)) == 7);
        }
    }
}

static void mode_of_one(void) {
    tensor_pair_t p = tensor_mode(tensor_reshape(tensor_arange(5, 8, 1, TENSOR_F32), 3, 1), 1, 0);
    CHECK(tensor_item(tensor_select(p.values, 0, 2)) == 7);
    for (int k = 0; k < 3; k++) { CHECK(tensor_item_i64(tensor_select(p.indices, 0, k)) == 0); }
}

int main(void) {
    RUN(mode_of_one);
    RUN(last_is_another);
    RUN(order_in_memory);
    RUN(sorts);
    RUN(selects);
    RUN(quantiles);
    RUN(counts);
    RUN(reductions);
    RUN(scans);
    RUN(distances);
    RUN(every_dtype_and_length);
    RUN(large_integers);
    RUN(unique_is_consistent);
    RUN(distances_by_matmul);
    RUN(same_bits_for_any_threads);
    RUN(gradients);
    RUN(gradients_at_edges);
    RUN(out_of_memory);
    RUN(errors);
    RUN(extremes_at_the_end);
    return test_report();
}

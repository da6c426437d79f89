// accepted.c - arguments that PyTorch takes: tensors as values, rows as weights, integers in windows, options
//
// The cases of tests/fixtures/accepted.safetensors, which fixtures/accepted.py writes, through the
// expressions of CASES; then what a file cannot say: errors, places of calls, both orders of gradients,
// random numbers.
#include "test.h"

enum { MAX_IN = 4 };
static tensor_t *in[MAX_IN];
static int64_t *list_of(tensor_t *x) {
    return (int64_t *)(intptr_t)(tensor_data)(tensor_contiguous(x));
}
static double item(tensor_t *x, int64_t k) {
    return tensor_item(tensor_select(tensor_flatten(x, 0, -1), 0, k));
}

// The parts of x, each times its place in the list, as one row.
static tensor_t *joined(tensor_t **parts, int n) {
    int k;
    if (n < 1) return tensor_detach(NULL);
    for (k = 0; k < n; k++)
        parts[k] = tensor_mul_scalar(tensor_flatten(parts[k], 0, -1), k + 1);
    return tensor_cat_n(parts, n, 0);
}
#define CUT(function)                                                                                        \
    static tensor_t *function##_joined(void) {                                                               \
        tensor_t *parts[8];                                                                                  \
        return joined(parts, tensor_##function(in[0], list_of(in[1]), (int)tensor_numel(in[1]), parts));     \
    }
CUT(hsplit_at)
CUT(vsplit_at)
CUT(dsplit_at)

    static tensor_t *lu_solve(int right, int adjoint) {
    tensor_lu_factor_t f = tensor_linalg_lu_factor(in[0]);
    return tensor_linalg_lu_solve(f.lu, f.pivots, in[1], .right = right, .adjoint = adjoint);
}
static tensor_t *spaced(int log) {
    tensor_dtype_t d = TENSOR_F64;
    double start = item(in[0], 0), end = item(in[0], 1);
    int64_t n = (int64_t)item(in[0], 2);
    d = tensor_dtype(in[1]); // of the result, see `replay`
    return log ? tensor_logspace_of(d, start, end, n, item(in[0], 3)) : tensor_linspace_of(d, start, end, n);
}
// Its length, whether it is periodic, its numbers.
static tensor_t *window(const char *name) {
    const int64_t n = (int64_t)item(in[0], 0);
    const int periodic = (int)item(in[0], 1);
    tensor_t *y = NULL;
    tensor_set_default_dtype(tensor_dtype(in[1])); // of the result, see `replay`
    if (strcmp(name, "hann") == 0) y = tensor_hann_window(n, periodic);
    if (strcmp(name, "hamming") == 0) y = tensor_hamming_window(n, periodic, item(in[0], 2), item(in[0], 3));
    if (strcmp(name, "blackman") == 0) y = tensor_blackman_window(n, periodic);
    if (strcmp(name, "bartlett") == 0) y = tensor_bartlett_window(n, periodic);
    if (strcmp(name, "kaiser") == 0) y = tensor_kaiser_window(n, periodic, item(in[0], 2));
    if (strcmp(name, "cosine") == 0) y = tensor_cosine_window(n, periodic);
    if (strcmp(name, "nuttall") == 0) y = tensor_nuttall_window(n, periodic);
    if (strcmp(name, "exponential") == 0) y = tensor_exponential_window(n, periodic, item(in[0], 2));
    if (strcmp(name, "gaussian") == 0) y = tensor_gaussian_window(n, periodic, item(in[0], 2));
    if (strcmp(name, "general_cosine") == 0) {
        const double a[4] = {item(in[0], 2), item(in[0], 3), item(in[0], 4), item(in[0], 5)};
        y = tensor_general_cosine_window(n, periodic, a, 4);
    }
    tensor_set_default_dtype(TENSOR_F32);
    return y;
}
static tensor_t *joined_again(tensor_svd_t d) {
    return tensor_matmul(tensor_mul(d.u, tensor_unsqueeze(d.s, -2)), tensor_mT(d.v));
}
static tensor_t *bag_weight(void) {
    tensor_t *y = tensor_embedding_bag(in[0], in[1], NULL, .max_norm = 1);
    return tensor_is_poison(y) ? y : in[1];
}

#define TWICE tensor_mul_scalar(in[0], 2)
#define GAUSSIAN(how) tensor_gaussian_nll_loss(in[0], in[1], in[2], .reduction = how)
#define BAG(...) tensor_embedding_bag(in[0], in[1], NULL, __VA_ARGS__)
#define NUMBER(k) tensor_item(in[k])
#define ANTIALIAS(how, corners)                                                                              \
    tensor_interpolate(in[0], list_of(in[1])[0], .size_w = list_of(in[1])[1], .mode = how,                   \
                       .align_corners = corners, .antialias = 1)
#define SYMMETRIC tensor_add(tensor_matmul(in[0], tensor_mT(in[0])), tensor_to(tensor_eye(3, 3), TENSOR_F64))
static const int64_t first_last[2] = {0, 2};

// A case's name, its expression.
#define CASES(X)                                                                                             \
    X(masked_fill_tensor, tensor_masked_fill_tensor(in[0], in[2], in[1]))                                    \
    X(masked_fill_tensor_, tensor_masked_fill_tensor_(TWICE, in[2], in[1]))                                  \
    X(index_fill_tensor, tensor_index_fill_tensor(in[0], 1, in[2], in[1]))                                   \
    X(index_fill_tensor_, tensor_index_fill_tensor_(TWICE, 0, in[2], in[1]))                                 \
    X(index_fill_0d, tensor_index_fill_tensor(in[0], 0, in[2], in[1]))                                       \
    X(take_along_dim, tensor_take_along_dim(in[0], in[1], 1))                                                \
    X(linear, tensor_linear(in[0], in[1], NULL))                                                             \
    X(linear_bias, tensor_linear(in[0], in[1], in[2]))                                                       \
    X(linear_relu, tensor_linear_relu(in[0], in[1], in[2]))                                                  \
    X(gaussian_nll_none, GAUSSIAN(TENSOR_NONE))                                                              \
    X(gaussian_nll_mean, GAUSSIAN(TENSOR_MEAN))                                                              \
    X(gaussian_nll_sum, GAUSSIAN(TENSOR_SUM))                                                                \
    X(multi_margin_none, tensor_multi_margin_loss(in[0], in[1], .reduction = TENSOR_NONE))                   \
    X(multi_margin_mean, tensor_multi_margin_loss(in[0], in[1]))                                             \
    X(multi_margin_weight, tensor_multi_margin_loss(in[0], in[1], in[2], .p = 2, .reduction = TENSOR_NONE))  \
    X(multilabel_margin_none, tensor_multilabel_margin_loss(in[0], in[1], .reduction = TENSOR_NONE))         \
    X(multilabel_margin_mean, tensor_multilabel_margin_loss(in[0], in[1]))                                   \
    X(conv1d, tensor_conv1d(in[0], in[1], in[2]))                                                            \
    X(conv2d, tensor_conv2d(in[0], in[1], in[2]))                                                            \
    X(conv3d, tensor_conv3d(in[0], in[1], in[2]))                                                            \
    X(conv2d_options,                                                                                        \
      tensor_conv2d(in[0], in[1], NULL, .stride = 2, .stride_w = 1, .padding = 1, .padding_w = 2))           \
    X(conv2d_dilated, tensor_conv2d(in[0], in[1], NULL, .dilation = 2, .dilation_w = 3, .groups = 2))        \
    X(conv2d_same, tensor_conv2d(in[0], in[1], NULL, .same = 1))                                             \
    X(conv2d_far, tensor_conv2d(in[0], in[1], NULL, .stride = 9, .padding = 5))                              \
    X(conv_transpose1d, tensor_conv_transpose1d(in[0], in[1], in[2]))                                        \
    X(conv_transpose2d, tensor_conv_transpose2d(in[0], in[1], NULL, .stride = 2, .stride_w = 3,              \
                                                .padding = 1, .output_padding = 1, .groups = 2))             \
    X(conv_transpose2d_dilated, tensor_conv_transpose2d(in[0], in[1], NULL, .padding = 2, .dilation = 2))    \
    X(conv_transpose3d, tensor_conv_transpose3d(in[0], in[1], in[2]))                                        \
    X(max_pool2d, tensor_max_pool2d(in[0], 2))                                                               \
    X(max_pool3d, tensor_max_pool3d(in[0], 2, 1))                                                            \
    X(max_pool2d_options, tensor_max_pool2d(in[0], 3, .kernel_w = 2, .stride = 2, .stride_w = 3,             \
                                            .padding = 1, .dilation = 2, .dilation_w = 1, .ceil_mode = 1))   \
    X(max_pool2d_places, tensor_max_pool2d_with_indices(in[0], 3, 2, 1).indices)                             \
    X(max_pool1d_places, tensor_max_pool1d_with_indices(in[0], 2, 1, 1).indices)                             \
    X(avg_pool1d, tensor_avg_pool1d(in[0], 2))                                                               \
    X(avg_pool2d, tensor_avg_pool2d(in[0], 2))                                                               \
    X(avg_pool3d, tensor_avg_pool3d(in[0], 2, 1, 1))                                                         \
    X(avg_pool2d_options, tensor_avg_pool2d(in[0], 3, 2, 1, .ceil_mode = 1))                                 \
    X(avg_pool2d_inside, tensor_avg_pool2d(in[0], 3, 2, 1, .ceil_mode = 1, .no_count_pad = 1))               \
    X(avg_pool2d_divisor, tensor_avg_pool2d(in[0], 2, .divisor_override = 3))                                \
    X(lp_pool2d, tensor_lp_pool2d(in[0], 2, 2, 0, 0))                                                        \
    X(linspace, spaced(0))                                                                                   \
    X(logspace, spaced(1))                                                                                   \
    X(hann_window, window("hann"))                                                                           \
    X(hamming_window, window("hamming"))                                                                     \
    X(blackman_window, window("blackman"))                                                                   \
    X(bartlett_window, window("bartlett"))                                                                   \
    X(kaiser_window, window("kaiser"))                                                                       \
    X(tensorinv_1, tensor_linalg_tensorinv(in[0], 1))                                                        \
    X(tensorinv_2, tensor_linalg_tensorinv(in[0], 2))                                                        \
    X(tensorinv_3, tensor_linalg_tensorinv(in[0], 3))                                                        \
    X(tensorsolve, tensor_linalg_tensorsolve(in[0], in[1]))                                                  \
    X(chebyshev_polynomial_t, tensor_chebyshev_polynomial_t(in[0], tensor_item_i64(in[1])))                  \
    X(chebyshev_polynomial_u, tensor_chebyshev_polynomial_u(in[0], tensor_item_i64(in[1])))                  \
    X(chebyshev_polynomial_v, tensor_chebyshev_polynomial_v(in[0], tensor_item_i64(in[1])))                  \
    X(chebyshev_polynomial_w, tensor_chebyshev_polynomial_w(in[0], tensor_item_i64(in[1])))                  \
    X(shifted_chebyshev_polynomial_t, tensor_shifted_chebyshev_polynomial_t(in[0], tensor_item_i64(in[1])))  \
    X(shifted_chebyshev_polynomial_u, tensor_shifted_chebyshev_polynomial_u(in[0], tensor_item_i64(in[1])))  \
    X(shifted_chebyshev_polynomial_v, tensor_shifted_chebyshev_polynomial_v(in[0], tensor_item_i64(in[1])))  \
    X(shifted_chebyshev_polynomial_w, tensor_shifted_chebyshev_polynomial_w(in[0], tensor_item_i64(in[1])))  \
    X(hermite_polynomial_h, tensor_hermite_polynomial_h(in[0], tensor_item_i64(in[1])))                      \
    X(hermite_polynomial_he, tensor_hermite_polynomial_he(in[0], tensor_item_i64(in[1])))                    \
    X(laguerre_polynomial_l, tensor_laguerre_polynomial_l(in[0], tensor_item_i64(in[1])))                    \
    X(legendre_polynomial_p, tensor_legendre_polynomial_p(in[0], tensor_item_i64(in[1])))                    \
    X(cosine_window, window("cosine"))                                                                       \
    X(nuttall_window, window("nuttall"))                                                                     \
    X(exponential_window, window("exponential"))                                                             \
    X(gaussian_window, window("gaussian"))                                                                   \
    X(general_cosine_window, window("general_cosine"))                                                       \
    X(bessel_j0, tensor_bessel_j0(in[0]))                                                                    \
    X(bessel_j1, tensor_bessel_j1(in[0]))                                                                    \
    X(bessel_y0, tensor_bessel_y0(in[0]))                                                                    \
    X(bessel_y1, tensor_bessel_y1(in[0]))                                                                    \
    X(modified_bessel_k0, tensor_modified_bessel_k0(in[0]))                                                  \
    X(modified_bessel_k1, tensor_modified_bessel_k1(in[0]))                                                  \
    X(scaled_modified_bessel_k0, tensor_scaled_modified_bessel_k0(in[0]))                                    \
    X(scaled_modified_bessel_k1, tensor_scaled_modified_bessel_k1(in[0]))                                    \
    X(antialias_bilinear_0, ANTIALIAS(TENSOR_BILINEAR, 0))                                                   \
    X(antialias_bilinear_1, ANTIALIAS(TENSOR_BILINEAR, 1))                                                   \
    X(antialias_bicubic_0, ANTIALIAS(TENSOR_BICUBIC, 0))                                                     \
    X(antialias_bicubic_1, ANTIALIAS(TENSOR_BICUBIC, 1))                                                     \
    X(antialias_factor, tensor_interpolate(in[0], .scale_factor = NUMBER(1), .mode = TENSOR_BICUBIC,         \
                                           .antialias = 1))                                                  \
    X(householder_product, tensor_linalg_householder_product(in[0], in[1]))                                  \
    X(geqrf, tensor_geqrf(in[0]).q)                                                                          \
    X(geqrf_tau, tensor_geqrf(in[0]).r)                                                                      \
    X(ormqr_00, tensor_ormqr(in[0], in[1], in[2], 0, 0))                                                     \
    X(ormqr_01, tensor_ormqr(in[0], in[1], in[2], 0, 1))                                                     \
    X(ormqr_10, tensor_ormqr(in[0], in[1], in[2], 1, 0))                                                     \
    X(ormqr_11, tensor_ormqr(in[0], in[1], in[2], 1, 1))                                                     \
    X(cholesky_ex_result, tensor_linalg_cholesky_ex(in[0], 0).result)                                        \
    X(cholesky_ex_info, tensor_linalg_cholesky_ex(in[0], 0).info)                                            \
    X(cholesky_ex_upper, tensor_linalg_cholesky_ex(SYMMETRIC, 1).result)                                     \
    X(inv_ex_result, tensor_linalg_inv_ex(in[0]).result)                                                     \
    X(inv_ex_info, tensor_linalg_inv_ex(in[0]).info)                                                         \
    X(solve_ex_result, tensor_linalg_solve_ex(in[0], in[1]).result)                                          \
    X(solve_ex_info, tensor_linalg_solve_ex(in[0], in[1]).info)                                              \
    X(svd_lowrank_values, tensor_svd_lowrank(in[0], 3, 2).s)                                                 \
    X(svd_lowrank_product, joined_again(tensor_svd_lowrank(in[0], 3, 2)))                                    \
    X(pca_lowrank_values, tensor_pca_lowrank(in[0], 3, 1, 2).s)                                              \
    X(searchsorted_sorter, tensor_searchsorted(in[0], in[1], .sorter = in[2]))                               \
    X(searchsorted_right, tensor_searchsorted(in[0], in[1], 1, .sorter = in[2]))                             \
    X(matrix_rank, tensor_linalg_matrix_rank(in[0]))                                                         \
    X(matrix_rank_atol, tensor_linalg_matrix_rank(in[0], .atol = .01))                                       \
    X(matrix_rank_rtol, tensor_linalg_matrix_rank(in[0], 1e-4))                                              \
    X(matrix_rank_both, tensor_linalg_matrix_rank(in[0], 1e-9, .atol = .01))                                 \
    X(matrix_rank_zero, tensor_linalg_matrix_rank(in[0], TENSOR_ZERO))                                       \
    X(matrix_rank_hermitian, tensor_linalg_matrix_rank(in[0], .hermitian = 1, .atol = 1e-9))                 \
    X(matrix_rank_atols, tensor_linalg_matrix_rank(in[0], .atols = in[1]))                                   \
    X(matrix_rank_rtols, tensor_linalg_matrix_rank(in[0], .rtols = in[1]))                                   \
    X(matrix_rank_each, tensor_linalg_matrix_rank(in[0], .rtols = in[1], .atols = in[2]))                    \
    X(pinv, tensor_linalg_pinv(in[0]))                                                                       \
    X(pinv_atol, tensor_linalg_pinv(in[0], .atol = .01))                                                     \
    X(pinv_rtol, tensor_linalg_pinv(in[0], 1e-4))                                                            \
    X(pinv_both, tensor_linalg_pinv(in[0], 1e-9, .atol = .01))                                               \
    X(pinv_zero, tensor_linalg_pinv(in[0], TENSOR_ZERO))                                                     \
    X(pinv_hermitian, tensor_linalg_pinv(in[0], .hermitian = 1, .atol = 1e-9))                               \
    X(pinv_atols, tensor_linalg_pinv(in[0], .atols = in[1]))                                                 \
    X(lu_solve, lu_solve(0, 0))                                                                              \
    X(lu_solve_adjoint, lu_solve(0, 1))                                                                      \
    X(lu_solve_right, lu_solve(1, 0))                                                                        \
    X(lu_solve_right_adjoint, lu_solve(1, 1))                                                                \
    X(linalg_vander, tensor_linalg_vander(in[0], 0))                                                         \
    X(linalg_vander_5, tensor_linalg_vander(in[0], 5))                                                       \
    X(movedim, tensor_movedim_n(in[0], list_of(in[1]), list_of(in[2]), (int)tensor_numel(in[1])))            \
    X(hsplit_at, hsplit_at_joined())                                                                         \
    X(vsplit_at, vsplit_at_joined())                                                                         \
    X(dsplit_at, dsplit_at_joined())                                                                         \
    X(var, tensor_var(in[0], NUMBER(1)))                                                                     \
    X(var_dim, tensor_var_dim(in[0], 1, NUMBER(1), 0))                                                       \
    X(std_dim, tensor_std_dim(in[0], 0, NUMBER(1), 1))                                                       \
    X(var_mean, tensor_var_mean_dims(in[0], first_last, 2, NUMBER(1), 0, NULL))                              \
    X(std_mean, tensor_std_mean_dims(in[0], first_last, 2, NUMBER(1), 0, NULL))                              \
    X(bag_sum, BAG(.max_norm = 1, .mode = TENSOR_BAG_SUM))                                                   \
    X(bag_mean, BAG(.max_norm = 1))                                                                          \
    X(bag_max, BAG(.max_norm = 1, .mode = TENSOR_BAG_MAX))                                                   \
    X(bag_l1, BAG(.max_norm = 1.5, .norm_type = 1))                                                          \
    X(bag_padding, BAG(.max_norm = 1, .padding_idx = TENSOR_ZERO))                                           \
    X(bag_offsets, tensor_embedding_bag(in[0], in[2], in[1], .max_norm = 1, .mode = TENSOR_BAG_SUM))         \
    X(bag_weight, bag_weight())
#define X(name, expression)                                                                                  \
    static tensor_t *call_##name(void) {                                                                     \
        return expression;                                                                                   \
    }
CASES(X)
#undef X
#define X(name, expression) {#name, call_##name, 0},
static struct {
    const char *name;
    tensor_t *(*call)(void);
    int seen;
} cases[] = {CASES(X)};
#undef X
enum { CASE_COUNT = (int)(sizeof cases / sizeof cases[0]) };

// ---- the file ----

static int is_float(tensor_t *x) {
    return tensor_dtype(x) <= TENSOR_F64 || tensor_dtype(x) == TENSOR_F16 || tensor_dtype(x) == TENSOR_BF16;
}
static tensor_t *of(nn_safetensors_t *file, const char *key, const char *what) {
    char name[128];
    int64_t k;
    snprintf(name, sizeof name, "%.100s.%s", key, what);
    for (k = 0; k < nn_safetensors_count(file); k++)
        if (strcmp(nn_safetensors_name(file, k), name) == 0) return nn_safetensors_get(file, name);
    return NULL;
}
// Shape and dtype equal, elements near: relative to the largest one for gradients of sums that cancel.
static void near_to(tensor_t *got, tensor_t *want, const char *key, const char *what) {
    tensor_dtype_t d = tensor_dtype(want);
    double eps = d == TENSOR_F64   ? 1e-12
                 : d == TENSOR_F32 ? 2e-6
                 : d == TENSOR_F16 ? 2e-3
                                   : 1.6e-2,
           largest = 0;
    const double *a, *b;
    int64_t k, n = tensor_numel(want);
    int same = tensor_ndim(got) == tensor_ndim(want) && tensor_dtype(got) == d, i;
    for (i = 0; i < tensor_ndim(want) && same; i++)
        same = tensor_size(got, i) == tensor_size(want, i);
    CHECK_MSG(same, "%s%s: %d dims, %lld elements of %s; expected %d, %lld of %s: %s", key, what,
              tensor_ndim(got), (long long)tensor_numel(got), tensor_dtype_name(tensor_dtype(got)),
              tensor_ndim(want), (long long)n, tensor_dtype_name(d), tensor_error_text());
    CHECK_OK();
    if (!same) return;
    if (!is_float(want)) {
        CHECK_MSG(test_same_bits(tensor_contiguous(tensor_detach(got)), want), "%s%s: integers differ", key,
                  what);
        return;
    }
    a = (const double *)tensor_data(tensor_contiguous(tensor_to(tensor_detach(got), TENSOR_F64)));
    b = (const double *)tensor_data(tensor_contiguous(tensor_to(want, TENSOR_F64)));
    for (k = 0; k < n; k++)
        if (isfinite(b[k]) && fabs(b[k]) > largest) largest = fabs(b[k]);
    if (strncmp(key, "pinv", 4) == 0) eps = 1e-6; // the condition of its inputs is 3e9
    for (k = 0; k < n; k++) {
        int good = a[k] == b[k] || (isnan(a[k]) && isnan(b[k])) || fabs(a[k] - b[k]) <= eps * (1 + largest);
        CHECK_MSG(good, "%s%s: element %lld is %.9g, expected %.9g", key, what, (long long)k, a[k], b[k]);
    }
}
static void replay(nn_safetensors_t *file, const char *key) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *want = of(file, key, "y"), *y, *g[MAX_IN];
    size_t length = strcspn(key, "@");
    int k, c, any = 0;
    char what[16];
    for (c = 0; c < CASE_COUNT; c++)
        if (strlen(cases[c].name) == length && strncmp(cases[c].name, key, length) == 0) break;
    CHECK_MSG(c < CASE_COUNT, "%s has no expression", key);
    for (k = 0; k < MAX_IN; k++) {
        snprintf(what, sizeof what, "%d", k);
        in[k] = of(file, key, what);
        if (in[k]) in[k] = tensor_clone(in[k]);
        snprintf(what, sizeof what, "g%d", k);
        g[k] = of(file, key, what);
        if (g[k]) in[k] = tensor_requires_grad_(in[k], 1);
        any |= g[k] != NULL;
    }
    if (!in[1]) in[1] = want; // whose dtype creation is asked for
    y = c < CASE_COUNT ? cases[c].call() : want;
    near_to(y, want, key, "");
    if (any && !tensor_is_poison(y)) {
        int64_t n = tensor_numel(y), i;
        double *w = (double *)malloc((size_t)n * sizeof *w + 1);
        tensor_t *weights;
        for (i = 0; i < n; i++)
            w[i] = (double)(i * 5 % 7 - 3) * 0.25 + 0.125;
        weights =
            tensor_to(tensor_from_n(w, TENSOR_F64, tensor_shape(y).dims, tensor_ndim(y)), tensor_dtype(y));
        free(w);
        CHECK_MSG(tensor_requires_grad(y), "%s has no gradient", key);
        CHECK(tensor_backward(tensor_sum(tensor_mul(y, weights))) == 0);
        for (k = 0; k < MAX_IN; k++) {
            snprintf(what, sizeof what, ".g%d", k);
            if (g[k] && tensor_grad(in[k]))
                near_to(tensor_grad(in[k]), g[k], key, what);
            else if (g[k])
                CHECK_MSG(tensor_item(tensor_sum(tensor_abs(g[k]))) == 0, "%s%s: none", key, what);
        }
    }
    if (c < CASE_COUNT) cases[c].seen++;
    CHECK_OK();
    tensor_scope_end(scope);
}
static void as_pytorch(void) {
    nn_safetensors_t *file = nn_safetensors_open("tests/fixtures/accepted.safetensors");
    int64_t i;
    int c;
    CHECK_MSG(file != NULL, "%s", tensor_error_text());
    if (!file) return;
    for (i = 0; i < nn_safetensors_count(file); i++) {
        char key[128];
        const char *name = nn_safetensors_name(file, i);
        size_t n = strlen(name);
        if (n < 3 || n >= sizeof key || strcmp(name + n - 2, ".y") != 0) continue;
        snprintf(key, sizeof key, "%.*s", (int)(n - 2), name);
        replay(file, key);
    }
    for (c = 0; c < CASE_COUNT; c++)
        CHECK_MSG(cases[c].seen > 0, "%s has no case in the file", cases[c].name);
    nn_safetensors_close(file);
}

// ---- both orders of gradients ----

#define FN(name, expression)                                                                                 \
    static tensor_t *name(tensor_t *const *x, int n, void *user) {                                           \
        (void)n;                                                                                             \
        (void)user;                                                                                          \
        return expression;                                                                                   \
    }
static tensor_t *numbers(int64_t n) {
    return tensor_to(tensor_sin(tensor_arange(1, (double)n + 1, 1, TENSOR_F64)), TENSOR_F64);
}
static tensor_t *shaped(int64_t a, int64_t b) {
    return tensor_reshape(numbers(a * b), a, b);
}
static tensor_t *indices(int64_t a, int64_t b, int64_t c) {
    const int64_t v[3] = {a, b, c};
    return tensor_from(v, TENSOR_I64, 3);
}
static tensor_t *square(tensor_t *x) {
    return tensor_add(tensor_matmul(x, tensor_mT(x)), tensor_to(tensor_eye(3, 3), TENSOR_F64));
}
static tensor_t *solved(tensor_t *x, tensor_t *b, int right, int adjoint) {
    tensor_lu_factor_t f = tensor_linalg_lu_factor(square(x));
    return tensor_linalg_lu_solve(f.lu, f.pivots, b, .right = right, .adjoint = adjoint);
}
FN(masked, tensor_masked_fill_tensor(x[0], tensor_gt_scalar(tensor_detach(x[0]), 0), tensor_mul(x[1], x[1])))
FN(filled, tensor_mul(tensor_index_fill_tensor(x[0], 1, indices(0, 2, 0), x[1]), x[0]))
FN(along, tensor_take_along_dim(tensor_mul(x[0], x[0]), tensor_reshape(indices(-1, 0, -2), 3, 1), 1))
FN(row, tensor_linear(x[0], x[1], x[2]))
FN(likely, tensor_gaussian_nll_loss(x[0], x[1], tensor_exp(x[2]), .reduction = TENSOR_NONE))
FN(inverted, tensor_linalg_pinv(x[0], .atol = 1e-3))
FN(mirrored, tensor_linalg_pinv(square(x[0]), .hermitian = 1))
FN(solved_adjoint, solved(x[0], x[1], 0, 1))
FN(solved_right, solved(x[0], x[1], 1, 0))
FN(powers, tensor_linalg_vander(x[0], 4))
FN(spread, tensor_std_dim(x[0], 1, 0.25, 0))
static void gradients(void) {
    tensor_t *x = shaped(3, 4), *one = tensor_scalar(0.7, TENSOR_F64), *s = shaped(3, 3), *b = shaped(3, 3);
    tensor_t *line = numbers(4);
    const struct {
        const char *name;
        tensor_fn_t fn;
        tensor_t *in[3];
    } all[] = {
        {"masked_fill_tensor", masked, {x, one, NULL}},
        {"index_fill_tensor", filled, {x, one, NULL}},
        {"take_along_dim", along, {x, NULL, NULL}},
        {"linear", row, {x, line, one}},
        {"gaussian_nll_loss", likely, {x, line, shaped(3, 1)}},
        {"pinv", inverted, {x, NULL, NULL}},
        {"pinv hermitian", mirrored, {s, NULL, NULL}},
        {"lu_solve adjoint", solved_adjoint, {s, b, NULL}},
        {"lu_solve right", solved_right, {s, b, NULL}},
        {"linalg_vander", powers, {x, NULL, NULL}},
        {"std_dim", spread, {x, NULL, NULL}},
    };
    size_t k;
    for (k = 0; k < sizeof all / sizeof all[0]; k++) {
        tensor_t *list[3];
        int n = 0;
        for (; n < 3 && all[k].in[n]; n++)
            list[n] = tensor_requires_grad_(tensor_clone(all[k].in[n]), 1);
        CHECK_MSG(tensor_gradcheck(all[k].fn, NULL, list, n, 1e-6, 1e-5, 1e-3) == 0, "%s: %s", all[k].name,
                  tensor_error_text());
        CHECK_MSG(tensor_gradgradcheck(all[k].fn, NULL, list, n, 1e-6, 1e-4, 1e-3) == 0, "%s: %s",
                  all[k].name, tensor_error_text());
        CHECK_OK();
    }
}

// ---- in place, places of calls, errors ----

static void in_place(void) {
    tensor_t *x = shaped(3, 4), *leaf = tensor_requires_grad_(tensor_ones(3, 4), 1);
    tensor_t *mask = tensor_gt_scalar(x, 0), *v = tensor_scalar(5, TENSOR_F64), *y = tensor_clone(x);
    CHECK(tensor_masked_fill_tensor_(y, mask, v) == y);
    CHECK(test_same_bits(y, tensor_masked_fill(x, mask, 5)));
    y = tensor_clone(x);
    CHECK(tensor_index_fill_tensor_(y, -1, indices(1, -1, 1), v) == y);
    CHECK(test_same_bits(y, tensor_index_fill(x, 1, indices(1, 3, 1), 5)));
    CHECK_POISON(tensor_masked_fill_tensor_(leaf, mask, v), TENSOR_ERR_AUTOGRAD, "leaf that requires grad");
    CHECK_POISON(tensor_index_fill_tensor_(leaf, 0, indices(0, 0, 0), v), TENSOR_ERR_AUTOGRAD, "leaf");
    // a float in an integer tensor as tensor_to: its fraction goes, it saturates
    y = tensor_masked_fill_tensor(tensor_zeros_of(TENSOR_U8, 2), tensor_ones_of(TENSOR_BOOL, 2),
                                  tensor_scalar(300.5, TENSOR_F32));
    CHECK(tensor_item(tensor_select(y, 0, 1)) == 255);
}
static void errors(void) {
    tensor_t *x = tensor_ones(3, 4), *bad = tensor_ones(1), *mask = tensor_ones_of(TENSOR_BOOL, 3, 4);
    tensor_t *i64 = tensor_ones_of(TENSOR_I64, 1, 2, 4, 4), *w = tensor_ones_of(TENSOR_I64, 2, 2, 3, 3);
    tensor_t *eye = tensor_eye(3, 3), *places[4], *image = tensor_ones(1, 1, 4, 4);
    tensor_lu_factor_t f = tensor_linalg_lu_factor(eye);
    const int64_t two[2] = {0, 1}, same[2] = {1, 1}, far[1] = {9};
    int line;
    CHECK_POISON(tensor_masked_fill_tensor(x, mask, bad), TENSOR_ERR_SHAPE,
                 "masked_fill_tensor: value [1] must be 0-d");
    CHECK_POISON(tensor_masked_fill_tensor(x, x, tensor_sum(x)), TENSOR_ERR_DTYPE, "mask [3,4] must be bool");
    CHECK_POISON(tensor_masked_fill_tensor(x, mask, NULL), TENSOR_ERR_OWNER, "value");
    CHECK_POISON(tensor_index_fill_tensor(x, 1, indices(0, 1, 4), tensor_sum(x)), TENSOR_ERR_INDEX,
                 "index_fill_tensor: index 4");
    CHECK_POISON(tensor_index_fill_tensor(x, 2, indices(0, 1, 0), tensor_sum(x)), TENSOR_ERR_INDEX,
                 "index_fill_tensor: dim 2 is outside -2..1");
    CHECK_POISON(tensor_index_fill_tensor(x, 1, indices(0, 1, 0), bad), TENSOR_ERR_SHAPE, "must be 0-d");
    CHECK_POISON(tensor_take_along_dim(x, tensor_reshape(indices(0, -5, 0), 3, 1), 1), TENSOR_ERR_INDEX,
                 "index -5");
    CHECK_POISON(tensor_gather(x, 1, tensor_reshape(indices(0, -1, 0), 3, 1)), TENSOR_ERR_INDEX, "index -1");
    CHECK_POISON(tensor_linear(x, tensor_ones(4), tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "linear: bias [3] must have one element beside the 1-d weight [4]");
    CHECK_POISON(tensor_linear(x, tensor_ones(3), NULL), TENSOR_ERR_SHAPE, "last dim of x [3,4]");
    CHECK_POISON(tensor_linear(tensor_sum(x), tensor_ones(1), NULL), TENSOR_ERR_SHAPE, "linear");
    CHECK_POISON(tensor_gaussian_nll_loss(tensor_ones(3, 1), tensor_ones(3), tensor_ones(3, 1)),
                 TENSOR_ERR_SHAPE, "target [3] does not broadcast to input [3,1]");
    CHECK_POISON(tensor_gaussian_nll_loss(x, x, tensor_ones(1, 1)), TENSOR_ERR_SHAPE, "var [1,1]");
    CHECK_POISON(tensor_gaussian_nll_loss(x, x, tensor_ones(4)), TENSOR_ERR_SHAPE, "var [4]");
    CHECK_POISON(tensor_multi_margin_loss(tensor_ones(2, 3), tensor_zeros_of(TENSOR_I64, 1)),
                 TENSOR_ERR_SHAPE, "target [1]");
    CHECK_POISON(tensor_multi_margin_loss(tensor_sum(x), tensor_scalar(1, TENSOR_I64)), TENSOR_ERR_INDEX,
                 NULL);
    CHECK_POISON(tensor_multilabel_margin_loss(tensor_ones(3), tensor_zeros_of(TENSOR_I64, 1)),
                 TENSOR_ERR_SHAPE, "target [1]");
    CHECK_POISON(tensor_multilabel_margin_loss(tensor_sum(x), tensor_scalar(1, TENSOR_I64)), TENSOR_ERR_INDEX,
                 NULL);
    CHECK_POISON(tensor_conv2d(i64, tensor_to(w, TENSOR_I32)), TENSOR_ERR_DTYPE, "use tensor_to");
    CHECK_POISON(tensor_conv2d(i64, w, tensor_ones(2)), TENSOR_ERR_DTYPE, "use tensor_to");
    CHECK_POISON(tensor_max_pool2d(tensor_to(i64, TENSOR_BOOL), 2), TENSOR_ERR_DTYPE,
                 "a float or an integer");
    CHECK_POISON(tensor_adaptive_avg_pool2d(i64, 2, 2), TENSOR_ERR_DTYPE, "must be a float");
    CHECK_POISON(tensor_adaptive_max_pool2d(i64, 2, 2).indices, TENSOR_ERR_DTYPE, "must be a float");
    CHECK_POISON(tensor_linspace_of(TENSOR_BOOL, 0, 1, 3), TENSOR_ERR_DTYPE, "linspace_of: dtype bool");
    CHECK_POISON(tensor_linspace_of(TENSOR_I8, 0, 300, 3), TENSOR_ERR_DTYPE,
                 "300 is outside the range of i8");
    CHECK_POISON(tensor_linspace_of(TENSOR_I8, 0, 3, -1), TENSOR_ERR_SHAPE, "n -1 is negative");
    CHECK_POISON(tensor_logspace_of(TENSOR_U8, -1, 3, 3, 10), TENSOR_ERR_DTYPE,
                 "-1 is outside the range of u8");
    CHECK_POISON(tensor_interpolate(image, 2, .antialias = 1), TENSOR_ERR_SHAPE,
                 "interpolate: antialias is for modes bilinear and bicubic, not nearest; x [1,1,4,4]");
    CHECK_POISON(tensor_interpolate(tensor_ones(1, 1, 4), 2, .mode = TENSOR_LINEAR, .antialias = 1),
                 TENSOR_ERR_SHAPE, "not linear");
    CHECK_POISON(tensor_linalg_cholesky_ex(x, 0).result, TENSOR_ERR_SHAPE, "linalg_cholesky_ex: x [3,4]");
    CHECK_POISON(tensor_linalg_cholesky_ex(NULL, 0).info, TENSOR_ERR_OWNER, "linalg_cholesky_ex");
    CHECK_POISON(tensor_linalg_inv_ex(x).info, TENSOR_ERR_SHAPE,
                 "linalg_inv_ex: x [3,4] must be a square matrix");
    CHECK_POISON(tensor_linalg_inv_ex(tensor_to(eye, TENSOR_F16)).result, TENSOR_ERR_DTYPE, "is f16");
    CHECK_POISON(tensor_linalg_solve_ex(eye, NULL).result, TENSOR_ERR_OWNER,
                 "linalg_solve_ex: argument b is NULL");
    CHECK_POISON(tensor_linalg_solve_ex(eye, tensor_ones(5, 2)).info, TENSOR_ERR_SHAPE, "do not fit");
    CHECK_POISON(tensor_geqrf(tensor_ones(3)).q, TENSOR_ERR_SHAPE, "geqrf: x [3] must be a matrix");
    CHECK_POISON(tensor_linalg_householder_product(x, tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "linalg_householder_product: a [3,4] has more columns than rows");
    CHECK_POISON(tensor_linalg_householder_product(eye, tensor_ones(4)), TENSOR_ERR_SHAPE,
                 "linalg_householder_product: tau [4]");
    CHECK_POISON(tensor_ormqr(eye, tensor_ones(3), x, 0, 0), TENSOR_ERR_SHAPE,
                 "ormqr: c [3,4] f32 must have the dtype of a [3,3] f32 and 3 columns");
    CHECK_POISON(tensor_ormqr(eye, tensor_ones_of(TENSOR_F64, 3), x, 1, 0), TENSOR_ERR_SHAPE,
                 "ormqr: tau [3] f64");
    CHECK(tensor_size(tensor_svd_lowrank(x, 6, 2).u, -1) == 3);         // as in PyTorch: min(M, N)
    CHECK_POISON(tensor_svd_lowrank(x, -1, 2).u, TENSOR_ERR_SHAPE,
                 "svd_lowrank: q -1 must be in 0..min(M, N) of x [3,4], and niter 2 not negative");
    CHECK_POISON(tensor_pca_lowrank(x, 4, 1, 2).u, TENSOR_ERR_SHAPE, "pca_lowrank: q 4 must be in 0..min(M,");
    CHECK_POISON(tensor_pca_lowrank(x, 2, 1, -1).s, TENSOR_ERR_SHAPE, "pca_lowrank: q 2");
    CHECK_POISON(tensor_cosine_window(-1, 1), TENSOR_ERR_SHAPE, "cosine_window: n -1 is not a length");
    CHECK_POISON(tensor_exponential_window(3, 1, 0), TENSOR_ERR_SHAPE, "tau 0 must be above 0");
    CHECK_POISON(tensor_gaussian_window(3, 1, NAN), TENSOR_ERR_SHAPE, "must be above 0");
    CHECK_POISON(tensor_general_cosine_window(3, 1, NULL, 2), TENSOR_ERR_SHAPE,
                 "general_cosine_window: needs at least one number, not 0");
    CHECK_POISON(tensor_legendre_polynomial_p(x, 1001), TENSOR_ERR_SHAPE,
                 "legendre_polynomial_p: degree n 1001 is above 1000");
    CHECK_POISON(tensor_hermite_polynomial_h(NULL, 2), TENSOR_ERR_OWNER, "hermite_polynomial_h");
    CHECK_POISON(tensor_hann_window(-1, 1), TENSOR_ERR_SHAPE, "hann_window: n -1 is not a length");
    CHECK_POISON(tensor_hamming_window(INT64_MAX, 1, 0.5, 0.5), TENSOR_ERR_SHAPE, "hamming_window: n");
    CHECK_POISON(tensor_blackman_window(INT64_MIN, 0), TENSOR_ERR_SHAPE, "blackman_window: n");
    CHECK_POISON(tensor_bartlett_window(-1, 0), TENSOR_ERR_SHAPE, "bartlett_window: n");
    CHECK_POISON(tensor_kaiser_window(INT64_MAX, 0, 12), TENSOR_ERR_SHAPE, "kaiser_window: n");
    CHECK_POISON(tensor_linalg_tensorinv(x, 0), TENSOR_ERR_SHAPE,
                 "linalg_tensorinv: ind 0 is outside 1..2 for x [3,4]");
    CHECK_POISON(tensor_linalg_tensorinv(x, 3), TENSOR_ERR_SHAPE, "ind 3");
    CHECK_POISON(tensor_linalg_tensorinv(x, 1), TENSOR_ERR_SHAPE,
                 "linalg_tensorinv: the first 1 sizes of x [3,4] must have the product of the others");
    CHECK_POISON(tensor_linalg_tensorinv(tensor_ones(4, 2, 2), 1), TENSOR_ERR_LINALG, "singular");
    CHECK_POISON(tensor_linalg_tensorinv(i64, 2), TENSOR_ERR_SHAPE, NULL);
    CHECK_POISON(tensor_linalg_tensorinv(tensor_zeros_of(TENSOR_I64, 2, 2), 1), TENSOR_ERR_DTYPE,
                 "f32 or f64 is needed");
    CHECK_POISON(tensor_linalg_tensorsolve(x, tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "linalg_tensorsolve: a [3,4] must have the dims of b [3], then dims of as many elements");
    CHECK_POISON(tensor_linalg_tensorsolve(x, tensor_ones(4)), TENSOR_ERR_SHAPE, "b [4]");
    CHECK_POISON(tensor_linalg_tensorsolve(x, tensor_ones(3, 4, 1)), TENSOR_ERR_SHAPE, "b [3,4,1]");
    CHECK_POISON(tensor_linalg_tensorsolve(tensor_ones(2, 2), tensor_ones(2)), TENSOR_ERR_LINALG, "singular");
    CHECK_POISON(tensor_searchsorted(tensor_ones(3), tensor_ones(2), .sorter = indices(0, 1, 3)),
                 TENSOR_ERR_INDEX, "index 3");
    CHECK_POISON(tensor_searchsorted(tensor_ones(4), tensor_ones(2), .sorter = indices(0, 1, 2)),
                 TENSOR_ERR_SHAPE, "searchsorted: sorter [3] must have the shape of sorted [4]");
    CHECK_POISON(tensor_searchsorted(tensor_ones(3), tensor_ones(2), .sorter = tensor_ones(3)),
                 TENSOR_ERR_DTYPE, "must be i64 or i32");
    CHECK_POISON(tensor_linalg_pinv(x, .hermitian = 1), TENSOR_ERR_SHAPE,
                 "linalg_pinv: x [3,4] must be a square");
    CHECK_POISON(tensor_linalg_matrix_rank(tensor_ones(2, 3, 3), .atols = tensor_ones(3)), TENSOR_ERR_SHAPE,
                 "linalg_matrix_rank: atols [3] does not broadcast with the batch of x [2,3,3]");
    CHECK_POISON(tensor_linalg_matrix_rank(NULL), TENSOR_ERR_OWNER, "x");
    CHECK_POISON(tensor_linalg_lu_solve(f.lu, f.pivots, x, .right = 1), TENSOR_ERR_SHAPE, "do not fit");
    CHECK_POISON(tensor_linalg_lu_solve(f.lu, f.pivots, tensor_ones(3), .right = 1), TENSOR_ERR_SHAPE,
                 "linalg_lu_solve: b [3] must be a matrix");
    CHECK_POISON(tensor_movedim_n(x, two, same, 2), TENSOR_ERR_INDEX,
                 "movedim: destination dim 1 appears twice");
    CHECK_POISON(tensor_movedim_n(x, same, two, 2), TENSOR_ERR_INDEX, "movedim: source dim 1 appears twice");
    CHECK_POISON(tensor_movedim_n(x, far, two, 1), TENSOR_ERR_INDEX, "movedim: dim 9 is outside");
    CHECK_POISON(tensor_movedim_n(x, NULL, two, 1), TENSOR_ERR_SHAPE, "movedim");
    CHECK(tensor_dsplit_at(x, two, 1, places) == 0 && tensor_is_poison(places[1]));
    CHECK_ERROR(TENSOR_ERR_INDEX, "dsplit_at: dim 2");
    CHECK_POISON(tensor_linalg_vander(tensor_ones(2, 1), 0), TENSOR_ERR_SHAPE, "n 1 be at least 2");
    CHECK_POISON(tensor_linalg_vander(tensor_sum(x), 3), TENSOR_ERR_SHAPE,
                 "linalg_vander: x [] must have a dim");
    CHECK_POISON(tensor_linalg_vander(tensor_to(x, TENSOR_F16), 3), TENSOR_ERR_DTYPE, "is f16");
    CHECK_POISON(tensor_normal_scalar(x, -1), TENSOR_ERR_INDEX, "std -1 must not be negative");
    CHECK_POISON(tensor_normal_size(0, NAN, 2), TENSOR_ERR_INDEX, "must not be negative");
    CHECK_POISON(tensor_rnormal_scalar(tensor_neg(x), 0), TENSOR_ERR_INDEX, "std [3,4] must not be negative");
    CHECK_POISON(tensor_normal_scalar(i64, 1), TENSOR_ERR_DTYPE, "a float dtype is needed");
    line = __LINE__ + 1;
    CHECK(tensor_is_poison(tensor_linalg_pinv(bad)));
    {
        char at[32];
        snprintf(at, sizeof at, "accepted.c:%d", line);
        CHECK_ERROR(TENSOR_ERR_SHAPE, at);
    }
}

// What a struct filled by hand says is taken as in a call: 0 is the default.
static void singular(void) {
    // A matrix without a result has no gradient and spoils no other; PyTorch's factor of it is unspecified.
    double v[8] = {4, 1, 1, 3, 1, 2, 2, 4};
    tensor_t *x = tensor_requires_grad_(tensor_from(v, TENSOR_F64, 2, 2, 2), 1), *y, *g;
    tensor_linalg_ex_t e = tensor_linalg_inv_ex(x);
    int k;
    CHECK(tensor_dtype(e.info) == TENSOR_I32 && tensor_ndim(e.info) == 1);
    CHECK(item(e.info, 0) == 0 && item(e.info, 1) == 2);
    y = tensor_linalg_inv(tensor_at(tensor_detach(x), "0"));
    CHECK(test_same_bits(tensor_at(tensor_detach(e.result), "0"), y));
    CHECK(isnan(item(e.result, 4)) && isnan(item(e.result, 7)));
    CHECK(tensor_backward(tensor_sum(tensor_at(e.result, "0"))) == 0);
    g = tensor_grad(x);
    for (k = 0; k < 4; k++) CHECK(item(g, k) != 0 && item(g, k + 4) == 0);
    e = tensor_linalg_cholesky_ex(tensor_detach(x), 0);
    CHECK(item(e.info, 0) == 0 && item(e.info, 1) == 2 && item(e.result, 0) == 2 && isnan(item(e.result, 6)));
    CHECK(tensor_numel(tensor_linalg_cholesky_ex(tensor_zeros(0, 2, 2), 0).info) == 0);
    CHECK(item(tensor_linalg_cholesky_ex(tensor_zeros(1, 0, 0), 1).info, 0) == 0);
    CHECK(item(tensor_linalg_inv_ex(tensor_zeros(1, 0, 0)).info, 0) == 0);
    CHECK(tensor_ok());
    // reflections: Q from its vectors, orthogonal, and its gradient; none is the identity
    x = tensor_randn(5, 3);
    tensor_qr_t q = tensor_qr(x), raw = tensor_geqrf(x);
    y = tensor_linalg_householder_product(raw.q, raw.r);
    CHECK(tensor_allclose(y, q.q, 1e-5, 1e-6));
    q = tensor_linalg_qr(x, "complete");
    CHECK(tensor_allclose(tensor_ormqr(raw.q, raw.r, x, 1, 1), q.r, 1e-5, 1e-5));
    CHECK(!tensor_requires_grad(tensor_geqrf(tensor_requires_grad_(tensor_randn(3, 2), 1)).q));
    CHECK(tensor_equal(tensor_linalg_householder_product(x, tensor_zeros(0)), tensor_eye(5, 3)));
    // autocast leaves them alone
    tensor_scope_t scope = tensor_scope_begin_autocast(TENSOR_BF16);
    CHECK(test_same_bits(tensor_linalg_householder_product(raw.q, raw.r), y));
    CHECK(tensor_dtype(tensor_svd_lowrank(x, 2, 1).v) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_ormqr(raw.q, raw.r, x, 1, 0)) == TENSOR_F32);
    tensor_scope_end(scope);
}

// T5' = 5 U4, P3' = (15 x^2 - 3) / 2, L2' = x - 2, H4' = 8 H3, He4' = 4 He3.
static void derivatives(void) {
    double v[3] = {-0.7, 0.2, 0.9};
    tensor_t *x = tensor_requires_grad_(tensor_from(v, TENSOR_F64, 3), 1), *y = x, *g;
    tensor_t *z = tensor_detach(x), *want[5];
    int k;
    want[0] = tensor_mul_scalar(tensor_chebyshev_polynomial_u(z, 4), 5);
    want[1] = tensor_sub_scalar(tensor_mul_scalar(tensor_square(z), 7.5), 1.5);
    want[2] = tensor_sub_scalar(z, 2);
    want[3] = tensor_mul_scalar(tensor_hermite_polynomial_h(z, 3), 8);
    want[4] = tensor_mul_scalar(tensor_hermite_polynomial_he(z, 3), 4);
    for (k = 0; k < 5; k++) {
        if (k == 0) y = tensor_sum(tensor_chebyshev_polynomial_t(x, 5));
        if (k == 1) y = tensor_sum(tensor_legendre_polynomial_p(x, 3));
        if (k == 2) y = tensor_sum(tensor_laguerre_polynomial_l(x, 2));
        if (k == 3) y = tensor_sum(tensor_hermite_polynomial_h(x, 4));
        if (k == 4) y = tensor_sum(tensor_hermite_polynomial_he(x, 4));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, 0) == 0);
        CHECK(tensor_allclose(g, want[k], 1e-12, 1e-12));
    }
}

static void by_hand(void) {
    tensor_linalg_tolerance_args_t a;
    memset((void *)&a, 0, sizeof a);
    a.x = tensor_eye(3, 3);
    CHECK(tensor_item_i64(tensor_linalg_matrix_rank_with(a)) == 3);
    a.atol = 2;
    CHECK(tensor_item_i64(tensor_linalg_matrix_rank_with(a)) == 0);
    a.options_are_named_ = (const struct tensor_options_are_named *)(const void *)&a;
    CHECK_POISON(tensor_linalg_matrix_rank_with(a), TENSOR_ERR_SHAPE, "too many positional arguments");
}

// A weight with one row under autocast, with an activation, and empty.
static void rows(void) {
    tensor_t *x = tensor_randn(5, 4), *w = tensor_requires_grad_(tensor_randn(4), 1), *b = tensor_ones(1), *y;
    tensor_scope_t scope = tensor_scope_begin_autocast(TENSOR_BF16);
    y = tensor_linear(x, w, b);
    CHECK(tensor_dtype(y) == TENSOR_BF16 && tensor_ndim(y) == 1 && tensor_size(y, 0) == 5);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK(tensor_dtype(tensor_grad(w)) == TENSOR_F32 && tensor_ndim(tensor_grad(w)) == 1);
    tensor_scope_end(scope);
    y = tensor_gelu_tanh(tensor_linear(x, w, b));
    CHECK(test_same_bits(tensor_linear_gelu_tanh(x, w, b), y));
    CHECK(tensor_numel(tensor_linear(tensor_ones(0, 4), w, NULL)) == 0);
    CHECK(tensor_item(tensor_linear(tensor_ones(0), tensor_ones(0), NULL)) == 0);
}
// The weight of a bag is as it was when an index is outside.
static void bad_bag(void) {
    const int64_t v[2] = {0, 9};
    tensor_t *w = tensor_full(3, 4, 2), *k = tensor_from(v, TENSOR_I64, 1, 2);
    CHECK_POISON(tensor_embedding_bag(k, w, NULL, .max_norm = 1), TENSOR_ERR_INDEX, "index 9");
    CHECK(tensor_item(tensor_sum(w)) == 24);
}

// ---- random numbers ----

static void moments(tensor_t *x, double mean, double std) {
    CHECK_NEAR(tensor_item(tensor_mean(x)), mean, 5 * std / 100 + 1e-6);
    CHECK_NEAR(tensor_item(tensor_std(x, 1)), std, 0.05 * std);
}
static void normals(void) {
    tensor_t *two = tensor_full(2, 100, 100), *half = tensor_full_of(TENSOR_F64, 0.5, 100, 100), *x;
    tensor_manual_seed(3);
    moments(tensor_normal_scalar(two, 0.5), 2, 0.5);
    moments(tensor_rnormal_scalar(half, -3), -3, 0.5);
    moments(tensor_normal_size(7, 0.25, 100, 100), 7, 0.25);
    CHECK(tensor_dtype(tensor_normal_scalar(two, 1)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_rnormal_scalar(half, 1)) == TENSOR_F64);
    CHECK(tensor_item(tensor_sum(tensor_normal_size(2, 0, 4))) == 8);
    CHECK(tensor_numel(tensor_normal_size(2, 1, 0, 3)) == 0);
    CHECK(tensor_numel(tensor_rnormal_scalar(tensor_zeros(0, 3), 1)) == 0);
    // the same numbers as with both as tensors
    tensor_manual_seed(4);
    x = tensor_normal(two, tensor_full(0.5, 100, 100));
    tensor_manual_seed(4);
    CHECK(test_same_bits(x, tensor_normal_scalar(two, 0.5)));
}

// ---- layers ----

static void bags(void) {
    nn_module_t *m = nn_embedding_bag(4, 3, .max_norm = 1, .norm_type = 1, .mode = TENSOR_BAG_SUM);
    const int64_t v[4] = {0, 1, 1, 0};
    tensor_t *w = nn_get(m, "weight"), *y, *norms;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_fill_(w, 2);
    y = nn_forward(m, tensor_from(v, TENSOR_I64, 2, 2));
    norms = tensor_sum_dim(tensor_abs(w), 1, 0);
    CHECK_NEAR(item(norms, 0), 1, 1e-6);
    CHECK_NEAR(item(norms, 1), 1, 1e-6);
    CHECK(item(norms, 2) == 6 && item(norms, 3) == 6);
    CHECK_NEAR(item(y, 0), 2.0 / 3, 1e-6);
    tensor_scope_end(scope);
    nn_free(m);
}
// A pool by windows of one element is a copy.
static void copied(void) {
    tensor_t *x = tensor_ones_of(TENSOR_I64, 1, 2, 3), *y = tensor_max_pool1d(x, 1),
             *z = tensor_avg_pool1d(x, 1);
    tensor_fill_(x, 7);
    CHECK(tensor_item(tensor_sum(y)) == 6 && tensor_item(tensor_sum(z)) == 6);
}
// The places of a pool of integers make its unpooling.
static void unpooled(void) {
    tensor_t *x = tensor_reshape(tensor_arange(-8, 8, 1, TENSOR_I32), 1, 1, 4, 4);
    tensor_pair_t p = tensor_max_pool2d_with_indices(x, 2);
    CHECK(tensor_dtype(p.values) == TENSOR_I32 && tensor_dtype(p.indices) == TENSOR_I64);
    CHECK(test_same_bits(tensor_max_unpool2d(p.values, p.indices, 2),
                         tensor_where(tensor_isin(x, p.values), x, tensor_zeros_like(x))));
}

int main(void) {
    RUN(as_pytorch);
    RUN(gradients);
    RUN(in_place);
    RUN(errors);
    RUN(singular);
    RUN(derivatives);
    RUN(by_hand);
    RUN(rows);
    RUN(bad_bag);
    RUN(normals);
    RUN(bags);
    RUN(copied);
    RUN(unpooled);
    return test_report();
}

// autocast.c - mixed precision: dtypes of results against PyTorch's (autocast.h, by autocast.py), training,
// scopes, the cache of weights, checkpoints, second derivatives, modules
#define TENSOR_BACKEND
#include "test.h"
#include "autocast.h"

#include <stdint.h>

// Expressions as in autocast.py, of a, b, c [4, 4], v, u [4], i [4, 4] of i64.
#define OPS(X)                                                                                               \
    X(matmul, tensor_matmul(a, b))                                                                           \
    X(mm, tensor_mm(a, b))                                                                                   \
    X(bmm, tensor_bmm(tensor_unsqueeze(a, 0), tensor_unsqueeze(b, 0)))                                       \
    X(mv, tensor_mv(a, v))                                                                                   \
    X(addmm, tensor_addmm(a, b, c, 1, 1))                                                                    \
    X(baddbmm, tensor_baddbmm(tensor_unsqueeze(a, 0), tensor_unsqueeze(b, 0), tensor_unsqueeze(c, 0), 1, 1)) \
    X(addbmm, tensor_addbmm(a, tensor_unsqueeze(b, 0), tensor_unsqueeze(c, 0), 1, 1))                        \
    X(addmv, tensor_addmv(v, a, u, 1, 1))                                                                    \
    X(addr, tensor_addr(a, v, u, 1, 1))                                                                      \
    X(einsum, tensor_einsum("ij,jk->ik", a, b))                                                              \
    X(einsum_sum, tensor_einsum("ij->i", a))                                                                 \
    X(einsum_mul, tensor_einsum("ij,ij->ij", a, b))                                                          \
    X(linalg_vecdot, tensor_linalg_vecdot(v, u, -1))                                                         \
    X(linalg_multi_dot, tensor_linalg_multi_dot(a, b, c))                                                    \
    X(outer, tensor_outer(v, u))                                                                             \
    X(inner, tensor_inner(a, b))                                                                             \
    X(linear, tensor_linear(a, b, v))                                                                        \
    X(linear_relu, tensor_linear_relu(a, b, v))                                                              \
    X(linear_gelu_tanh, tensor_linear_gelu_tanh(a, b, v))                                                    \
    X(prelu, tensor_prelu(a, v))                                                                             \
    X(conv1d, tensor_conv1d(tensor_unsqueeze(a, 0), tensor_unsqueeze(b, 2)))                                 \
    X(conv2d, tensor_conv2d(tensor_reshape(a, 1, 4, 2, 2), tensor_reshape(b, 4, 4, 1, 1), v))                \
    X(conv3d, tensor_conv3d(tensor_reshape(a, 1, 4, 4, 1, 1), tensor_reshape(b, 4, 4, 1, 1, 1), v))          \
    X(conv_transpose1d, tensor_conv_transpose1d(tensor_unsqueeze(a, 0), tensor_unsqueeze(b, 2)))             \
    X(conv_transpose3d, tensor_conv_transpose3d(tensor_reshape(a, 1, 4, 4, 1, 1),                            \
        tensor_reshape(b, 4, 4, 1, 1, 1), v))                                                                \
    X(conv_transpose2d, tensor_conv_transpose2d(tensor_reshape(a, 1, 4, 2, 2),                               \
        tensor_reshape(b, 4, 4, 1, 1), v))                                                                   \
    X(scaled_dot_product_attention, tensor_scaled_dot_product_attention(tensor_unsqueeze(a, 0),              \
        tensor_unsqueeze(b, 0), tensor_unsqueeze(c, 0)))                                                     \
    X(rnn_cell, tensor_rnn_cell(a, b, c, c, v, v, 0))                                                        \
    X(dot, tensor_dot(v, u))                                                                                 \
    X(vdot, tensor_vdot(v, u))                                                                               \
    X(cross, tensor_cross(tensor_narrow(a, 0, 0, 3), tensor_narrow(b, 0, 0, 3), 0))                          \
    X(tensordot, tensor_tensordot(a, b, 1))                                                                  \
    X(bilinear, tensor_bilinear(a, b, tensor_reshape(c, 1, 4, 4), NULL))                                     \
    X(grid_sample, tensor_grid_sample(tensor_reshape(a, 1, 1, 4, 4), tensor_reshape(b, 1, 2, 4, 2)))         \
    X(index_put, tensor_index_put(a, b, 0, tensor_select(i, 0, 0)))                                          \
    X(scatter_add, tensor_scatter_add(a, 0, i, b))                                                           \
    X(addcmul, tensor_addcmul(a, b, c, 1))                                                                   \
    X(addcdiv, tensor_addcdiv(a, b, c, 1))                                                                   \
    X(atan2, tensor_atan2(a, b))                                                                             \
    X(cat, tensor_cat(0, a, b))                                                                              \
    X(stack, tensor_stack(0, a, b))                                                                          \
    X(where, tensor_where(tensor_eq_scalar(i, 0), a, b))                                                     \
    X(add, tensor_add(a, b))                                                                                 \
    X(mul, tensor_mul(a, b))                                                                                 \
    X(div, tensor_div(a, b))                                                                                 \
    X(acos, tensor_acos(a))                                                                                  \
    X(asin, tensor_asin(a))                                                                                  \
    X(cosh, tensor_cosh(a))                                                                                  \
    X(erfinv, tensor_erfinv(a))                                                                              \
    X(exp, tensor_exp(a))                                                                                    \
    X(expm1, tensor_expm1(a))                                                                                \
    X(log, tensor_log(a))                                                                                    \
    X(log10, tensor_log10(a))                                                                                \
    X(log1p, tensor_log1p(a))                                                                                \
    X(log2, tensor_log2(a))                                                                                  \
    X(pow, tensor_pow(a, b))                                                                                 \
    X(pow_scalar, tensor_pow_scalar(a, 2.5))                                                                 \
    X(rpow_scalar, tensor_rpow_scalar(a, 2.5))                                                               \
    X(reciprocal, tensor_reciprocal(a))                                                                      \
    X(rsqrt, tensor_rsqrt(a))                                                                                \
    X(sinh, tensor_sinh(a))                                                                                  \
    X(tan, tensor_tan(a))                                                                                    \
    X(square, tensor_square(a))                                                                              \
    X(softplus, tensor_softplus(a, 1, 20))                                                                   \
    X(exp2, tensor_exp2(a))                                                                                  \
    X(sqrt, tensor_sqrt(a))                                                                                  \
    X(tanh, tensor_tanh(a))                                                                                  \
    X(sigmoid, tensor_sigmoid(a))                                                                            \
    X(relu, tensor_relu(a))                                                                                  \
    X(gelu, tensor_gelu(a))                                                                                  \
    X(silu, tensor_silu(a))                                                                                  \
    X(logsigmoid, tensor_logsigmoid(a))                                                                      \
    X(sum, tensor_sum(a))                                                                                    \
    X(sum_dim, tensor_sum_dim(a, 0, 0))                                                                      \
    X(prod, tensor_prod(a))                                                                                  \
    X(mean, tensor_mean(a))                                                                                  \
    X(var, tensor_var(a, 1))                                                                                 \
    X(max, tensor_max(a))                                                                                    \
    X(cumsum, tensor_cumsum(a, 0))                                                                           \
    X(cumprod, tensor_cumprod(a, 0))                                                                         \
    X(softmax, tensor_softmax(a, 0))                                                                         \
    X(log_softmax, tensor_log_softmax(a, 0))                                                                 \
    X(softmin, tensor_softmin(a, 0))                                                                         \
    X(logsumexp, tensor_logsumexp(a, 0, 0))                                                                  \
    X(norm, tensor_norm(a))                                                                                  \
    X(norm_p, tensor_norm_p(a, 3))                                                                           \
    X(linalg_vector_norm, tensor_linalg_vector_norm(a, 3, NULL, 0, 0))                                       \
    X(linalg_matrix_norm, tensor_linalg_matrix_norm(a, NULL, -2, -1, 0))                                     \
    X(linalg_matrix_norm_1, tensor_linalg_matrix_norm(a, "1", -2, -1, 0))                                    \
    X(dist, tensor_dist(a, b, 2))                                                                            \
    X(cdist, tensor_cdist(a, b, 2))                                                                          \
    X(renorm, tensor_renorm(a, 2, 0, 1))                                                                     \
    X(cosine_similarity, tensor_cosine_similarity(a, b, 1, 1e-8))                                            \
    X(pairwise_distance, tensor_pairwise_distance(a, b, 2, 1e-6, 0))                                         \
    X(normalize, tensor_normalize(a, 2, 1, 1e-12))                                                           \
    X(gumbel_softmax, tensor_gumbel_softmax(a, 1, 0, -1))                                                    \
    X(layer_norm, tensor_layer_norm(a, .weight = v, .bias = u))                                           \
    X(rms_norm, tensor_rms_norm(a, .weight = v))                                                             \
    X(group_norm, tensor_group_norm(a, 2, v, u))                                                             \
    X(interpolate, tensor_interpolate(tensor_reshape(a, 1, 1, 4, 4), .scale_factor = 2,                      \
        .mode = TENSOR_BILINEAR))                                                                            \
    X(interpolate_nearest, tensor_interpolate(tensor_reshape(a, 1, 1, 4, 4), .scale_factor = 2,              \
        .mode = TENSOR_NEAREST))                                                                             \
    X(interpolate_area, tensor_interpolate(tensor_reshape(a, 1, 1, 4, 4), .scale_factor = 2,                 \
        .mode = TENSOR_AREA))                                                                                \
    X(max_pool2d, tensor_max_pool2d(tensor_reshape(a, 1, 1, 4, 4), 2))                                       \
    X(dropout, tensor_dropout(a, 0.5, 1))                                                                    \
    X(embedding, tensor_embedding(i, a))                                                                     \
    X(affine_grid, tensor_affine_grid(tensor_unsqueeze(tensor_at(a, ":2, :3"), 0), image, 4, 0))             \
    X(linalg_matrix_exp, tensor_linalg_matrix_exp(a))                                                        \
    X(matrix_exp, tensor_matrix_exp(a))                                                                      \
    X(linalg_pinv, tensor_linalg_pinv(a, -1))                                                                \
    X(matrix_power, tensor_matrix_power(a, 3))                                                               \
    X(trace, tensor_trace(a))                                                                                \
    X(nansum, tensor_nansum(a))                                                             \
    X(nanmean, tensor_nanmean(a))                                                           \
    X(logit, tensor_logit(a, -1))                                                                            \
    X(std, tensor_std(a, 1))                                                                                 \
    X(logcumsumexp, tensor_logcumsumexp(a, 0))                                                               \
    X(logaddexp, tensor_logaddexp(a, b))                                                                     \
    X(ldexp, tensor_ldexp(a, b))                                                                             \
    X(multilabel_soft_margin_loss, tensor_multilabel_soft_margin_loss(a, b))                                 \
    X(batch_norm, tensor_batch_norm(a, .training = 1))                                                       \
    X(local_response_norm, tensor_local_response_norm(tensor_unsqueeze(a, 0), 2))                            \
    X(lp_pool1d, tensor_lp_pool1d(tensor_unsqueeze(a, 0), 2, 2, 2, 0))                      \
    X(celu, tensor_celu(a, 1))                                                                               \
    X(glu, tensor_glu(a, -1))                                                                                \
    X(mish, tensor_mish(a))                                                                                  \
    X(tanhshrink, tensor_tanhshrink(a))                                                                      \
    X(softsign, tensor_softsign(a))                                                                          \
    X(cumulative_trapezoid, tensor_cumulative_trapezoid(a, NULL, 1, -1))                                     \
    X(float_power, tensor_float_power_scalar(a, 2))                                                          \
    X(kron, tensor_kron(a, b))                                                                               \
    X(vander, tensor_vander(v, 4, 0))                                                                        \
    X(cross_entropy, tensor_cross_entropy(a, tensor_select(i, 0, 0)))                                        \
    X(cross_entropy_soft, tensor_cross_entropy(a, b))                                                        \
    X(nll_loss, tensor_nll_loss(a, tensor_select(i, 0, 0)))                                                  \
    X(mse_loss, tensor_mse_loss(a, b))                                                                       \
    X(l1_loss, tensor_l1_loss(a, b))                                                                         \
    X(smooth_l1_loss, tensor_smooth_l1_loss(a, b))                                                           \
    X(huber_loss, tensor_huber_loss(a, b))                                                                   \
    X(kl_div, tensor_kl_div(a, b))                                                                           \
    X(binary_cross_entropy, tensor_binary_cross_entropy(a, b))                                               \
    X(binary_cross_entropy_with_logits, tensor_binary_cross_entropy_with_logits(a, b))                       \
    X(hinge_embedding_loss, tensor_hinge_embedding_loss(a, b))                                               \
    X(soft_margin_loss, tensor_soft_margin_loss(a, b))                                                       \
    X(multi_margin_loss, tensor_multi_margin_loss(a, tensor_select(i, 0, 0)))                                \
    X(multilabel_margin_loss, tensor_multilabel_margin_loss(a, i))                                           \
    X(margin_ranking_loss, tensor_margin_ranking_loss(a, b, c))                                              \
    X(cosine_embedding_loss, tensor_cosine_embedding_loss(a, b, v))                                          \
    X(triplet_margin_loss, tensor_triplet_margin_loss(a, b, c))                                              \
    X(poisson_nll_loss, tensor_poisson_nll_loss(a, b))

static const int64_t image[4] = {1, 1, 2, 2};
#define X(name, ...)                                                                                         \
    static tensor_t *op_##name(tensor_t *a, tensor_t *b, tensor_t *c, tensor_t *v, tensor_t *u,              \
                               tensor_t *i) {                                                                \
        (void)a, (void)b, (void)c, (void)v, (void)u, (void)i;                                                \
        return __VA_ARGS__;                                                                                  \
    }
OPS(X)
#undef X
typedef tensor_t *(*op_t)(tensor_t *, tensor_t *, tensor_t *, tensor_t *, tensor_t *, tensor_t *);
static const struct { const char *name; op_t call; } ops[] = {
#define X(name, ...) {#name, op_##name},
    OPS(X)
#undef X
};
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

// Every row with a class, and every function that has one without a row, is among them.
static void rows(void) {
    static const struct { const char *name; int cast; } all[] = {
#define X(ID, name, kind, f, dA, saves, cast, ...) {#name, TENSOR__##cast},
        TENSOR_OPS_UNARY(X) TENSOR_OPS_COPY(X) TENSOR_OPS_DOUBLE1(X)
#undef X
#define X(ID, name, kind, f, dA, dB, saves, cast, ...) {#name, TENSOR__##cast},
        TENSOR_OPS_BINARY(X) TENSOR_OPS_DOUBLE2(X)
#undef X
#define X(ID, name, kind, f, dA, dB, dC, saves, cast, ...) {#name, TENSOR__##cast},
        TENSOR_OPS_TERNARY(X)
#undef X
#define X(ID, name, n, kind, f, cast, doc) {#name, TENSOR__##cast},
        TENSOR_OPS_COMPARE(X)
#undef X
#define X(ID, name, n, f, cast, doc) {#name, TENSOR__##cast},
        TENSOR_OPS_BITWISE(X)
#undef X
#define X(ID, name, family, nin, nout, cpu, scratch, grad, saves, cast, doc) {#name, TENSOR__##cast},
        TENSOR_OPS_OTHER(X)
#undef X
#define X(ID, name, family, nin, need, nout, cpu, scratch, grad, saves, cast, ...) {#name, TENSOR__##cast},
        NN_OPS(X)
#undef X
#define X(name, cast) {#name, TENSOR__##cast},
        TENSOR_OPS_COMPOSED(X) NN_OPS_COMPOSED(X)
#undef X
    };
    static const char *const others[] = {"recurrent", "losses", "linalg_lstsq"};    // cells; any; scopes()
    int k, j, i;
    for (k = 0; k < COUNT(all); k++) {
        for (j = 0; j < COUNT(ops) && strcmp(ops[j].name, all[k].name) != 0; j++) { }
        for (i = 0; i < COUNT(others) && strcmp(others[i], all[k].name) != 0; i++) { }
        CHECK_MSG(all[k].cast == TENSOR__AS_IS || j < COUNT(ops) || i < COUNT(others), "%s has no line",
                  all[k].name);
    }
}

// Leaves that require grad, so that backward runs too.
static tensor_t *leaf(int64_t rows, tensor_dtype_t dtype, double shift) {
    int64_t dims[2];
    tensor_t *x;
    dims[0] = rows ? rows : 4, dims[1] = 4;
    x = tensor_arange(1, (double)(rows ? 4 * rows : 4) + 1, 1, TENSOR_F64);
    x = tensor_add_scalar(tensor_mul_scalar(tensor_sin(tensor_add_scalar(x, shift)), 0.3), 0.5);
    x = tensor_to(tensor_reshape_n(x, dims, rows ? 2 : 1), dtype);
    return tensor_requires_grad_(tensor_detach(x), 1);
}
enum { MIXES = 7 };
static void dtypes(void) {
    static const tensor_dtype_t first[MIXES] = {TENSOR_F32, TENSOR_BF16, TENSOR_F32, TENSOR_BF16, TENSOR_F64,
                                                TENSOR_BF16, TENSOR_F64},
                                rest[MIXES] = {TENSOR_F32, TENSOR_BF16, TENSOR_BF16, TENSOR_F32, TENSOR_F64,
                                               TENSOR_F64, TENSOR_BF16};
    int k, j, n;
    CHECK(COUNT(ops) == COUNT(autocast_rows));
    for (k = 0; k < COUNT(ops); k++)
        for (j = 0; j < MIXES; j++) {
            tensor_scope_t s = tensor_scope_begin_autocast(TENSOR_BF16);
            // v counts as first where there is no a
            int leads = ops[k].call == op_linalg_vecdot || ops[k].call == op_outer || ops[k].call == op_dot ||
                        ops[k].call == op_vdot || ops[k].call == op_vander;
            tensor_t *in[5], *y = NULL, *i = tensor_zeros_of(TENSOR_I64, 4, 4), *loss;
            char want = autocast_rows[k].result[j];
            tensor_dtype_t dtype;
            CHECK_TEXT(ops[k].name, autocast_rows[k].op);
            for (n = 0; n < 5; n++)
                in[n] = leaf(n < 3 ? 4 : 0, n == 0 || (n == 3 && leads) ? first[j] : rest[j], (double)n);
            y = ops[k].call(in[0], in[1], in[2], in[3], in[4], i);
            if (want == 'x') {
                if (ops[k].call == op_binary_cross_entropy)
                    CHECK_POISON(y, TENSOR_ERR_UNSUPPORTED, "autocast");
                tensor_clear_error();
                tensor_scope_end(s);
                continue;
            }
            if (tensor_is_poison(y)) {          // halves that it never takes
                tensor_clear_error();
                tensor_set_autocast(TENSOR_DTYPE_NONE);
                y = ops[k].call(in[0], in[1], in[2], in[3], in[4], i);
                CHECK_MSG(tensor_is_poison(y), "%s, inputs %i: refused in autocast only", ops[k].name, j);
                tensor_clear_error();
                tensor_scope_end(s);
                continue;
            }
            dtype = want == 'f' ? TENSOR_F32 : want == 'g' ? TENSOR_BF16 : TENSOR_F64;
            CHECK_MSG(tensor_dtype(y) == dtype, "%s, inputs %i: %s instead of %c", ops[k].name, j,
                      tensor_dtype_name(tensor_dtype(y)), want);
            CHECK_MSG(tensor_autocast_dtype() == TENSOR_BF16, "%s leaves the mode off", ops[k].name);
            // gradients have the dtypes of the leaves, inside autocast or not
            loss = tensor_sum(y);
            if (tensor_requires_grad(loss)) tensor_backward(loss);
            for (n = 0; n < 5; n++) {
                tensor_t *g = tensor_grad(in[n]);
                if (g) CHECK_MSG(tensor_dtype(g) == tensor_dtype(in[n]), "%s: gradient %i", ops[k].name, n);
            }
            CHECK_MSG(tensor_ok(), "%s, inputs %i: %s", ops[k].name, j, tensor_error_text());
            tensor_clear_error();
            tensor_scope_end(s);
        }
    printf("%d ops, %d cases\n", COUNT(ops), MIXES * COUNT(ops));
}

static tensor_t *waves(int64_t rows, int64_t cols, double step, double scale, double shift) {
    tensor_t *x = tensor_arange(0, (double)(rows * cols), 1, TENSOR_F32);
    x = tensor_mul_scalar(tensor_sin(tensor_add_scalar(tensor_mul_scalar(x, step), shift)), scale);
    return tensor_reshape(x, rows, cols);
}
// As PyTorch: every loss within two bf16 roundings of a value that is rounded.
static void training(void) {
    nn_module_t *net = nn_sequential(nn_linear(8, 16), nn_relu(), nn_linear(16, 4));
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.5);
    tensor_t *x = waves(12, 8, 1.3, 1, 0), *t = tensor_arange(0, 12, 1, TENSOR_I64);
    static const char *const names[4] = {"0.weight", "2.weight", "0.bias", "2.bias"};
    int k;
    tensor_scope_t all = tensor_scope_begin_no_grad();
    tensor_remainder_scalar_(t, 4);
    tensor_copy_(nn_get(net, names[0]), waves(16, 8, 0.7, 0.3, 8));
    tensor_copy_(nn_get(net, names[1]), waves(4, 16, 0.7, 0.3, 16));
    tensor_zero_(nn_get(net, names[2]));
    tensor_zero_(nn_get(net, names[3]));
    tensor_scope_end(all);
    for (k = 0; k < 20; k++) {
        tensor_scope_t step = tensor_scope_begin(), amp = tensor_scope_begin_autocast(TENSOR_BF16);
        tensor_t *y = nn_forward(net, x), *loss = tensor_cross_entropy(y, t);
        CHECK(tensor_dtype(y) == TENSOR_BF16 && tensor_dtype(loss) == TENSOR_F32);
        loss = tensor_scope_return(amp, loss);
        CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
        CHECK_NEAR(tensor_item(loss), autocast_losses[k], 1e-3);
        nn_zero_grad(opt);
        tensor_backward(loss);
        CHECK(tensor_dtype(tensor_grad(nn_get(net, names[0]))) == TENSOR_F32);
        nn_step(opt);
        tensor_scope_end(step);
    }
    for (k = 0; k < 4; k++)
        CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(nn_get(net, names[k]), 0, -1), 0, 0)),
                   autocast_weights[k], 4e-3);
    nn_optimizer_free(opt);
    nn_free(net);
}

static void scopes(void) {
    tensor_t *x = tensor_ones(4, 4), *at = tensor_zeros_of(TENSOR_I64, 4, 4),
             *m = tensor_add(leaf(4, TENSOR_F32, 1), tensor_eye(4, 4));
    tensor_lstsq_t ls;
    tensor_scope_t a, b, c;
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    a = tensor_scope_begin_autocast(TENSOR_BF16);
    b = tensor_scope_begin_autocast(TENSOR_F16);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_F16);
    c = tensor_scope_begin_autocast(TENSOR_DTYPE_NONE);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE && tensor_dtype(tensor_matmul(x, x)) == TENSOR_F32);
    tensor_scope_end(c);
    CHECK(tensor_autocast_dtype() == TENSOR_F16);
    tensor_scope_end(b);
    b = tensor_scope_begin();
    CHECK(tensor_autocast_dtype() == TENSOR_BF16);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_F32);
    tensor_scope_end(b);
    CHECK(tensor_dtype(tensor_matmul(x, x)) == TENSOR_BF16);
    // a square is a power
    CHECK(tensor_item(tensor_max(tensor_square(tensor_full_n(NULL, 0, 300, TENSOR_F16)))) == 90000);
    // in place as they are; f64 and integers too
    CHECK(tensor_dtype(tensor_exp_(tensor_to(x, TENSOR_BF16))) == TENSOR_BF16);
    CHECK(tensor_dtype(tensor_matmul(tensor_to(x, TENSOR_I64), tensor_to(x, TENSOR_I64))) == TENSOR_I64);
    CHECK_POISON(tensor_matmul(x, tensor_to(x, TENSOR_F64)), TENSOR_ERR_DTYPE, "matmul");
    CHECK_POISON(tensor_scatter_add_(tensor_to(x, TENSOR_BF16), 0, at, x), TENSOR_ERR_DTYPE, "scatter_add");
    CHECK_POISON(tensor_index_put_(tensor_to(x, TENSOR_BF16), x, 0, tensor_select(at, 0, 0)),
                 TENSOR_ERR_DTYPE, "index");
    // what is made of many ops sees no autocast inside
    ls = tensor_linalg_lstsq(m, x);
    CHECK(tensor_dtype(ls.solution) == TENSOR_F32 && tensor_autocast_dtype() == TENSOR_BF16);
    b = tensor_scope_begin_autocast(TENSOR_DTYPE_NONE);
    CHECK(tensor_equal(tensor_linalg_lstsq(m, x).solution, ls.solution));
    tensor_scope_end(b);
    CHECK_POISON(tensor_matmul(x, tensor_ones(3, 4)), TENSOR_ERR_SHAPE, "matmul");
    CHECK(tensor_autocast_dtype() == TENSOR_BF16);
    tensor_scope_end(a);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    CHECK(tensor_set_autocast(TENSOR_F64) == TENSOR_DTYPE_NONE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "must be f16, bf16 or");
    tensor_scope_end(tensor_scope_begin_autocast(TENSOR_F32));
    CHECK_ERROR(TENSOR_ERR_DTYPE, "scope_begin_autocast: dtype 0 must be f16, bf16");
    CHECK(tensor_set_autocast(TENSOR_F16) == TENSOR_DTYPE_NONE);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_F16);
}

static int64_t alive(void) {
    tensor_memory_stats_t m = tensor_memory_stats();
    return m.live_tensors;
}
// A weight is cast once a region, anew after a change; both gradients reach it.
static void cache(void) {
    tensor_t *w = leaf(4, TENSOR_F32, 0), *x = tensor_ones(4, 4), *y, *g, *first, *second;
    tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16), b, off;
    int64_t nodes[3], before, k, outside = alive();
    nodes[0] = tensor_memory_stats().live_nodes;
    first = tensor_matmul(x, w);
    nodes[1] = tensor_memory_stats().live_nodes;
    second = tensor_matmul(w, x);
    nodes[2] = tensor_memory_stats().live_nodes;
    CHECK_MSG(nodes[1] - nodes[0] == nodes[2] - nodes[1] + 1, "the first product alone casts w");
    y = tensor_add(first, second);
    before = alive();
    for (k = 0; k < 5; k++) {
        b = tensor_scope_begin();
        tensor_matmul(x, w);
        CHECK_MSG(alive() == before + 1, "a cast beside the result: %d", (int)(alive() - before));
        tensor_scope_end(b);
    }
    CHECK(alive() == before);
    tensor_backward(tensor_sum(y));
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 8, 0);
    CHECK_NEAR(tensor_item(tensor_min(tensor_grad(w))), 8, 0);
    // the same cast again, after a pass that dropped what its graph saved
    tensor_backward(tensor_sum(tensor_matmul(x, w)));
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 12, 0);
    off = tensor_scope_begin_no_grad();
    tensor_fill_(w, 2);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(tensor_matmul(x, w), 0, -1), 0, 0)), 8, 0);
    tensor_scope_end(off);
    // made without a graph, it is not taken where a graph is wanted
    y = tensor_matmul(x, w);
    CHECK(tensor_requires_grad(y));
    g = tensor_scope_return(a, tensor_sum(y));
    CHECK(alive() == outside + 2);              // the gradient of w, and g
    tensor_backward(g);
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(w))), 16, 0);
}

// What was cast is not taken for what a parameter is after it went elsewhere, and is gone where the mode
// ends.
static void ends(void) {
    nn_module_t *m = nn_linear(4, 4, .no_bias = 1);
    tensor_t *w = nn_get(m, "weight"), *x = tensor_ones(1, 4), *y, *z;
    int64_t before = alive();
    tensor_scope_t a;
    CHECK(tensor_set_autocast(TENSOR_BF16) == TENSOR_DTYPE_NONE);
    tensor_free(nn_forward(m, x));
    CHECK(alive() == before + 1);
    CHECK(tensor_set_autocast(TENSOR_DTYPE_NONE) == TENSOR_BF16 && alive() == before);
    a = tensor_scope_begin_autocast(TENSOR_F16);
    tensor_fill_(tensor_detach(w), 1.001);
    CHECK(nn_to(m, TENSOR_F64) == 0 && nn_to(m, TENSOR_F32) == 0);
    y = nn_forward(m, x);
    CHECK(nn_to(m, TENSOR_BF16) == 0 && nn_to(m, TENSOR_F32) == 0);
    z = nn_forward(m, x);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(y, 0, -1), 0, 0)), 4.0039, 1e-3);
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(z, 0, -1), 0, 0)), 4, 0);
    // the result of one operand is its own
    z = tensor_einsum("ij->ji", w);
    tensor_zero_(tensor_detach(z));
    CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(nn_forward(m, x), 0, -1), 0, 0)), 4, 0);
    tensor_scope_end(a);
    nn_free(m);
}
// A scope that cannot begin leaves the mode as it was.
static int failing;
static void *lean_alloc(void *user, size_t bytes, size_t alignment) {
    int fails = failing == 1 || (failing == 2 && bytes > 1024 && bytes < 8192);
    char *raw = fails ? NULL : (char *)malloc(bytes + alignment + sizeof raw), *p;
    (void)user;
    if (!raw) return NULL;
    p = raw + sizeof raw;
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}
static void lean_free(void *user, void *block, size_t bytes, size_t alignment) {
    char *raw;
    (void)user;
    (void)bytes;
    (void)alignment;
    memcpy(&raw, (char *)block - sizeof raw, sizeof raw);
    free(raw);
}
static void deep(void) {
    tensor_context_t *own = tensor_context_new(), *old = tensor_context_use(own);
    tensor_allocator_t lean;
    tensor_scope_t first, s;
    tensor_t *x, *w[4];
    int depth;
    memset((void *)&lean, 0, sizeof lean);
    lean.alloc = lean_alloc;
    lean.free = lean_free;
    CHECK(tensor_set_allocator(&lean) == 0);
    tensor_set_error_handler(test_quiet, NULL);
    x = tensor_ones(4, 4);
    w[0] = w[1] = x, w[2] = w[3] = NULL;
    first = tensor_scope_begin_autocast(TENSOR_F16);
    tensor_rnn(tensor_unsqueeze(x, 0), .weights = w, .no_bias = 1);
    for (depth = 1; depth < 70; depth++) {          // the list of scopes grows twice on the way
        failing = 1;
        if (tensor_is_poison(tensor_matmul(x, x))) CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, NULL);
        failing = 2;                                // the list of scopes alone
        if (tensor_is_poison(tensor_rnn_cell(x, x, x, x, NULL, NULL, 0)))
            CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, NULL);
        failing = 0;
        CHECK_MSG(tensor_autocast_dtype() == TENSOR_F16, "depth %d", depth);
        if (tensor_autocast_dtype() != TENSOR_F16) break;
        s = tensor_scope_begin();
        (void)s;
    }
    tensor_scope_end(first);
    tensor_context_use(old);
    tensor_context_free(own);
}

static tensor_t *product(tensor_t *const *inputs, int n, void *user) {
    tensor_t *w = (tensor_t *)user;
    (void)n;
    return tensor_softmax(tensor_matmul(tensor_tanh(tensor_matmul(inputs[0], w)), w), 1);
}
// A checkpoint runs again in the mode of forward, though backward is called outside.
static void checkpoints(void) {
    tensor_t *w = leaf(4, TENSOR_F32, 0), *x = leaf(4, TENSOR_F32, 1), *y[2], *c = leaf(4, TENSOR_F32, 2);
    int k;
    for (k = 0; k < 2; k++) {
        tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16);
        tensor_t *got[2], *in[2], *loss;
        in[0] = x, in[1] = w;
        tensor_matmul(x, w);                    // the cache has it already
        loss = tensor_sum(tensor_mul(k ? tensor_checkpoint(product, w, &x, 1) : product(&x, 1, w), c));
        loss = tensor_scope_return(a, loss);
        CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, got, 0) == TENSOR_OK);
        y[k] = tensor_cat(0, got[0], got[1]);
    }
    // the checkpoint casts w at each use: its two gradients are added in f32
    CHECK(tensor_dtype(y[0]) == TENSOR_F32 && tensor_dtype(y[1]) == TENSOR_F32);
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(y[0], y[1])))) <
          0.005 * tensor_item(tensor_max(tensor_abs(y[0]))));
}
// d2 of sum(tanh(x w)^2) within bf16 of that in f32; backward inside the region does as outside.
static void second(void) {
    tensor_t *got[2], *w = leaf(4, TENSOR_F32, 0), *x = leaf(4, TENSOR_F32, 1);
    int k;
    for (k = 0; k < 2; k++) {
        tensor_scope_t a = tensor_scope_begin_autocast(k ? TENSOR_BF16 : TENSOR_DTYPE_NONE);
        tensor_t *loss = tensor_sum(tensor_square(tensor_tanh(tensor_matmul(x, w)))), *g;
        CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &g, TENSOR_CREATE_GRAPH) == TENSOR_OK);
        CHECK(tensor_dtype(g) == TENSOR_F32);
        g = tensor_sum(tensor_square(g));
        CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &got[k], 0) == TENSOR_OK);
        got[k] = tensor_scope_return(a, got[k]);
        CHECK(tensor_dtype(got[k]) == TENSOR_F32);
    }
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(got[0], got[1])))) <
          0.05 * tensor_item(tensor_max(tensor_abs(got[0]))));
}

// Modules: recurrent, attention, convolution with norms, all with f32 weights and gradients.
static void modules(void) {
    nn_module_t *lstm = nn_lstm(4, 4, .layers = 2), *attention = nn_multihead_attention(4, 2),
                *conv = nn_sequential(nn_conv2d(2, 4, 3), nn_batch_norm2d(4), nn_relu(), nn_flatten(),
                                      nn_linear(16, 4), nn_layer_norm(4), nn_softmax(1));
    nn_module_t *all[3];
    tensor_t *x = leaf(6, TENSOR_F32, 0), *h = NULL, *c = NULL, *y[3];
    tensor_scope_t a = tensor_scope_begin_autocast(TENSOR_BF16);
    int k;
    all[0] = lstm, all[1] = attention, all[2] = conv;
    y[0] = nn_lstm_forward(lstm, tensor_reshape(x, 3, 2, 4), &h, &c);
    CHECK(tensor_dtype(y[0]) == TENSOR_BF16 && tensor_dtype(h) == TENSOR_BF16);
    CHECK(tensor_dtype(c) == TENSOR_BF16);
    y[1] = tensor_reshape(x, 3, 2, 4);
    y[1] = nn_multihead_attention_forward(attention, y[1], y[1], y[1]);
    CHECK(tensor_dtype(y[1]) == TENSOR_BF16);
    y[2] = nn_forward(conv, tensor_reshape(tensor_cat(0, x, tensor_narrow(x, 0, 0, 2)), 1, 2, 4, 4));
    CHECK(tensor_dtype(y[2]) == TENSOR_F32);
    for (k = 0; k < 3; k++) {
        tensor_t *list[16];
        int n, i;
        tensor_backward(tensor_sum(tensor_square(y[k])));
        CHECK_MSG(tensor_ok(), "module %i: %s", k, tensor_error_text());
        for (n = nn_parameters(all[k], list, 16), i = 0; i < n; i++) {
            tensor_t *g = tensor_grad(list[i]);
            CHECK_MSG(g && tensor_dtype(g) == TENSOR_F32, "module %i: gradient %i", k, i);
        }
    }
    tensor_free(h);
    tensor_free(c);
    tensor_scope_end(a);
    for (k = 0; k < 3; k++) nn_free(all[k]);
}

int main(void) {
    tensor_manual_seed(1);
    RUN(rows);
    RUN(dtypes);
    RUN(training);
    RUN(scopes);
    RUN(cache);
    RUN(ends);
    RUN(deep);
    RUN(checkpoints);
    RUN(second);
    RUN(modules);
    return test_report();
}

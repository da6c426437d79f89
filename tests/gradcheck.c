// gradcheck.c - gradcheck and gradgradcheck find what is wrong; second derivatives of the rows of tensor_nn.h
#define HERE "gradcheck.c:"
#include "graphs.h"

static int wobble;

static tensor_t *wobbling(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul_scalar(tensor_mul(in[0], in[0]), 1 + 1e-9 * wobble++);
}

static tensor_t *halved_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return tensor_mul_scalar(in[0], 2);
}

static int halved_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)n;
    grads[0] = tensor_mul_scalar(g, 1);
    return 0;
}

static tensor_t *halved(tensor_t *const *in, int n, void *user) {
    static const tensor_function_t f = {"halved", halved_forward, halved_backward, NULL};
    (void)user;
    return tensor_apply(&f, NULL, in, n);
}

static tensor_t *halved_last(tensor_t *const *in, int n, void *user) { return halved(in + n - 1, 1, user); }

static void checks(void) {
    tensor_t *x = LEAF64(0.3, 0.4), *in[2];
    in[0] = x;
    in[1] = DATA64(1, 2);
    CHECK(tensor_gradcheck(poly, NULL, in, 2, 0, 0, 0) == 0); // 0 = the defaults; a constant is not a leaf
    FAILS(tensor_gradcheck(halved, NULL, in, 1, 1e-6, 1e-5, 1e-3), TENSOR_ERR_AUTOGRAD,
          "gradcheck: input 0, element 0: autograd gives 1.67074, central differences 3.34147", HERE);
    tensor_t *second[2] = {in[1], x};           // the place is that in the caller's list
    FAILS(tensor_gradcheck(halved_last, NULL, second, 2, 1e-6, 1e-5, 1e-3), TENSOR_ERR_AUTOGRAD,
          "gradcheck: input 1, element 0: autograd gives 1.67074, central differences 3.34147, in [2]", HERE);
    FAILS(tensor_gradcheck(wobbling, NULL, in, 1, 0, 1, 1), TENSOR_ERR_AUTOGRAD,
          "input 0: a second backward pass gives a different gradient", HERE);
    in[0] = tensor_requires_grad_(tensor_detach(tensor_expand(DATA64(1), 3)), 1);
    FAILS(tensor_gradcheck(poly, NULL, in, 1, 0, 0, 0), TENSOR_ERR_AUTOGRAD,
          "elements of input 0 [3] share memory", HERE);
    in[0] = LEAF(1, 2);
    FAILS(tensor_gradcheck(poly, NULL, in, 2, 0, 0, 0), TENSOR_ERR_DTYPE, "f64 is needed", HERE);
    FAILS(tensor_gradcheck(NULL, NULL, in, 2, 0, 0, 0), TENSOR_ERR_OWNER, "gradcheck: argument fn is NULL",
          HERE);
    FAILS(tensor_gradgradcheck(poly, NULL, NULL, 2, 0, 0, 0), TENSOR_ERR_OWNER,
          "gradgradcheck: argument inputs is NULL", HERE);
}

typedef struct nn_case_t {
    const char *name;
    tensor_fn_t fn;
    int64_t dims[3][4]; // of the inputs, 0-terminated; positive values if .positive
    int n, positive;
} nn_case_t;

#define NN_FN(name, expression)                                                                              \
    static tensor_t *name(tensor_t *const *in, int n, void *user) {                                          \
        tensor_t *const a = in[0], *const b = n > 1 ? in[1] : NULL, *const c = n > 2 ? in[2] : NULL;         \
        (void)a, (void)b, (void)c, (void)user;                                                               \
        return expression;                                                                                   \
    }

static tensor_t *classes(int n) { // 0, 1, 2, 0, 1, ..
    return tensor_remainder_scalar(tensor_arange(0, n, 1, TENSOR_I64), 3);
}

NN_FN(nn_linear_, tensor_linear(a, b, c))
NN_FN(nn_conv_, tensor_conv2d(a, b, c, .stride = 2, .padding = 1))
NN_FN(nn_conv_groups, tensor_conv2d(a, b, NULL, .groups = 2, .dilation = 2))
NN_FN(nn_max_pool, tensor_max_pool2d(a, 2, .stride = 1))
NN_FN(nn_avg_pool, tensor_avg_pool2d(a, 3, .stride = 2, .padding = 1))
NN_FN(nn_adaptive, tensor_adaptive_avg_pool2d(a, 2, 2))
NN_FN(nn_layer_norm_, tensor_layer_norm(a, 1, b, c))
NN_FN(nn_layer_norm_2, tensor_layer_norm(a, 2, NULL, NULL))
NN_FN(nn_embedding_, tensor_square(tensor_embedding(classes(5), a)))
NN_FN(nn_attention, tensor_scaled_dot_product_attention(a, b, c, NULL))
NN_FN(nn_attention_causal, tensor_scaled_dot_product_attention(a, b, c, NULL, .is_causal = 1))
NN_FN(nn_cross_entropy_, tensor_cross_entropy(a, classes(4), DATA64(0.5, 1, 2)))
NN_FN(nn_cross_entropy_smooth, tensor_cross_entropy(a, classes(4), NULL, .label_smoothing = 0.2))
NN_FN(nn_cross_entropy_soft, tensor_cross_entropy(a, tensor_softmax(b, 1), NULL))
NN_FN(nn_nll, tensor_nll_loss(tensor_log_softmax(a, 1), classes(4), NULL))
NN_FN(nn_mse, tensor_mse_loss(a, b))
NN_FN(nn_l1, tensor_l1_loss(tensor_square(a), b))
NN_FN(nn_smooth_l1, tensor_smooth_l1_loss(a, b))
NN_FN(nn_huber, tensor_huber_loss(a, b, .delta = 0.5))
NN_FN(nn_bce, tensor_binary_cross_entropy(tensor_sigmoid(a), tensor_sigmoid(b), c))
NN_FN(nn_bce_logits, tensor_binary_cross_entropy_with_logits(a, tensor_sigmoid(b), NULL, c))
NN_FN(nn_kl, tensor_kl_div(a, b))
NN_FN(nn_kl_log, tensor_kl_div(a, b, .log_target = 1))

static tensor_t *nn_dropped(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    tensor_manual_seed(3);
    return tensor_square(tensor_dropout(in[0], 0.3, 1));
}

static void nn_second_derivatives(void) {
    static const nn_case_t cases[] = {
        {"linear", nn_linear_, {{3, 4}, {2, 4}, {2}}, 3, 0},
        {"conv2d", nn_conv_, {{1, 2, 5, 4}, {3, 2, 3, 3}, {3}}, 3, 0},
        {"conv2d groups", nn_conv_groups, {{1, 4, 5, 5}, {4, 2, 2, 2}}, 2, 0},
        {"max_pool2d", nn_max_pool, {{1, 2, 4, 4}}, 1, 0},
        {"avg_pool2d", nn_avg_pool, {{1, 2, 5, 5}}, 1, 0},
        {"adaptive_avg_pool2d", nn_adaptive, {{1, 2, 5, 5}}, 1, 0},
        {"layer_norm", nn_layer_norm_, {{3, 4}, {4}, {4}}, 3, 0},
        {"layer_norm 2", nn_layer_norm_2, {{2, 3, 4}}, 1, 0},
        {"embedding", nn_embedding_, {{4, 3}}, 1, 0},
        {"attention", nn_attention, {{1, 3, 4}, {1, 5, 4}, {1, 5, 2}}, 3, 0},
        {"attention causal", nn_attention_causal, {{1, 4, 2}, {1, 4, 2}, {1, 4, 3}}, 3, 0},
        {"cross_entropy", nn_cross_entropy_, {{4, 3}}, 1, 0},
        {"cross_entropy smooth", nn_cross_entropy_smooth, {{4, 3}}, 1, 0},
        {"cross_entropy soft", nn_cross_entropy_soft, {{4, 3}, {4, 3}}, 2, 0},
        {"nll_loss", nn_nll, {{4, 3}}, 1, 0},
        {"mse_loss", nn_mse, {{3, 4}, {3, 4}}, 2, 0},
        {"l1_loss", nn_l1, {{3, 4}, {3, 4}}, 2, 0},
        {"smooth_l1_loss", nn_smooth_l1, {{3, 4}, {3, 4}}, 2, 0},
        {"huber_loss", nn_huber, {{3, 4}, {3, 4}}, 2, 0},
        {"bce", nn_bce, {{3, 4}, {3, 4}, {3, 4}}, 3, 1},
        {"bce_with_logits", nn_bce_logits, {{3, 4}, {3, 4}, {4}}, 3, 1},
        {"kl_div", nn_kl, {{3, 4}, {3, 4}}, 2, 1},
        {"kl_div log", nn_kl_log, {{3, 4}, {3, 4}}, 2, 0},
        {"dropout", nn_dropped, {{3, 4}}, 1, 0}};
    int k, i, nd;
    for (k = 0; k < N(cases); k++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *in[3];
        tensor_manual_seed(100 + (uint64_t)k);
        for (i = 0; i < cases[k].n; i++) {
            for (nd = 0; nd < 4 && cases[k].dims[i][nd]; nd++) {}
            in[i] = tensor_to(cases[k].positive ? tensor_add_scalar(tensor_rand_n(cases[k].dims[i], nd), 0.3)
                                                : tensor_randn_n(cases[k].dims[i], nd), TENSOR_F64);
            tensor_requires_grad_(in[i], 1);
        }
        CHECK_MSG(tensor_gradcheck(cases[k].fn, NULL, in, cases[k].n, 0, 0, 0) == 0, "%s: %s", cases[k].name,
                  tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(tensor_gradgradcheck(cases[k].fn, NULL, in, cases[k].n, 0, 0, 0) == 0, "%s: %s",
                  cases[k].name, tensor_error_text());
        tensor_clear_error();
        tensor_scope_end(s);
    }
}

static int cube_back(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0);
    (void)n;
    grads[0] = tensor_detach(tensor_mul(grad, tensor_mul_scalar(tensor_mul(x, x), 3)));
    return 0;
}

static const tensor_function_t cubed = {"cubed", cube, cube_back, NULL};

static tensor_t *sum_of_cubes(tensor_t *const *in, int n, void *user) {
    int bad = *(const int *)user, k;
    tensor_t *y = tensor_apply(&cubed, NULL, &in[bad], 1);
    for (k = 0; k < n; k++) { y = k == bad ? y : tensor_add(y, tensor_mul(in[k], tensor_mul(in[k], in[k]))); }
    return y;
}

static void second_order_is_seen(void) {
    tensor_t *in[10];
    int bad;
    for (bad = 0; bad < 10; bad++) { in[bad] = tensor_requires_grad_(DATA64(0.5 + 0.1 * bad, -0.7), 1); }
    bad = 0;
    CHECK(tensor_gradcheck(sum_of_cubes, &bad, in, 1, 0, 0, 0) == 0);
    FAILS(tensor_gradgradcheck(sum_of_cubes, &bad, in, 1, 0, 0, 0), TENSOR_ERR_AUTOGRAD, "input 0",
          "gradgradcheck");
    for (bad = 0; bad < 10; bad += 3) {
        FAILS(tensor_gradgradcheck(sum_of_cubes, &bad, in, 10, 0, 0, 0), TENSOR_ERR_AUTOGRAD,
              "autograd gives",
              "gradgradcheck");
    }
}

int main(void) {
    RUN(checks);
    RUN(second_order_is_seen);
    RUN(nn_second_derivatives);
    return test_report();
}

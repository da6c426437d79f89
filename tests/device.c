// device.c - the door to other devices, tried with a mirror of the CPU, or with CUDA (mirror.h).
#if defined(TEST_CUDA_SIM) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L                 // setenv
#endif
#define TENSOR_BACKEND
#include "mirror.h"
#ifdef TEST_CUDA
#include <pthread.h>
#include <sched.h>
#endif

static void no_device(void) {
    tensor_t *x = tensor_ones(2, 3);
    CHECK(tensor_device(x) == TENSOR_CPU && tensor_to(x, TENSOR_CPU) == x);
    CHECK_POISON(tensor_to(x, TENSOR_CUDA), TENSOR_ERR_DEVICE, "the CUDA backend is not started");
    CHECK(tensor_set_default_device(TENSOR_CUDA) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "set_default_device: no CUDA device 0");
    CHECK_POISON(tensor_to(x, 63), TENSOR_ERR_DTYPE, "to: 63 is neither a dtype nor a device");
}
#ifdef TEST_CUDA
#ifdef TEST_CUDA_SIM
static void no_driver(void) {
    cusim_set("devices", 0);
    CHECK(!tensor_cuda_is_available() && tensor_cuda_device_count() == 0);
    CHECK(tensor_cuda_init() == TENSOR_ERR_CUDA);
    CHECK_ERROR(TENSOR_ERR_CUDA, "cuda_init:");
    CHECK(tensor_item(tensor_sum(tensor_ones(3))) == 3);        // the CPU goes on
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "no CUDA device 0 is started");
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == 0 && tensor_cuda_memory_reserved(TENSOR_CUDA) == 0);
    cusim_set("devices", -1);
    CHECK(tensor_cuda_init() == TENSOR_ERR_CUDA && !tensor_cuda_is_available());
    CHECK_ERROR(TENSOR_ERR_CUDA, "there is no NVIDIA driver, or it is too old for this CUDA");
    CHECK(tensor_item(tensor_sum(tensor_ones(3))) == 3);
    cusim_set("devices", 1);
    cusim_set("capability", 70);
    CHECK(tensor_cuda_init() == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "device 0 has compute capability 7.0, 7.5 is needed");
    cusim_set("capability", 90);
    cusim_set("devices", 2);
}
#endif
static void started(void) {
    CHECK(tensor_cuda_is_available() && tensor_cuda_init() == 0 && tensor_cuda_init() == 0);
    tensor_cuda_set_conv_tf32(0);               // results are compared with the CPU's
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
}
#else
static void other_version(void) {
    tensor_backend_t other = mirror;
    other.api++;
    CHECK(tensor__internals(TENSOR__API_VERSION)->set_backend(&other) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "built with another tensor.h");
    other.api--;
    other.size -= 8;
    CHECK(tensor__internals(TENSOR__API_VERSION)->set_backend(&other) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, NULL);
    CHECK(tensor__internals(TENSOR__API_VERSION)->set_backend(&mirror) == 0);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == TENSOR_ERR_UNSUPPORTED);         // this one has no graphs
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "capture_begin: the backend cannot capture");
    CHECK(tensor_capture_end() == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "capture_end: this thread captures nothing");
}
#endif

static void to_and_fro(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I32, TENSOR_I64, TENSOR_U8,
        TENSOR_BOOL,
                                            TENSOR_F16, TENSOR_BF16, TENSOR_I8, TENSOR_I16};
    size_t i;
    char text[200], want[200];
    tensor_t *x, *y, *z;
    float out[6];
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        x = tensor_to(tensor_mul_scalar(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3), 3),
                      dtypes[i]);
        y = on(x);
        CHECK(tensor_device(y) == TENSOR_CUDA && tensor_dtype(y) == dtypes[i] && tensor_size(y, 1) == 3);
        CHECK(tensor_equal(off(y), x) && tensor_equal(y, x) && tensor_allclose(x, y, 0, 0));
        z = on(tensor_mT(x));
        CHECK(tensor_is_contiguous(z) && tensor_equal(off(z), tensor_mT(x)) &&
              tensor_equal(off(tensor_mT(z)), x));
        CHECK(tensor_item(tensor_narrow(tensor_reshape(y, 6), 0, 4, 1)) == tensor_item(tensor_at(x, "1, 1")));
        CHECK(tensor_item_i64(tensor_narrow(tensor_reshape(y, 6), 0, 4, 1)) == tensor_item_i64(tensor_at(x,
                "1, 1")));
    }
    x = tensor_from(((float[]){1, 2.5f, 3}), TENSOR_F32, 3);
    if (device_two()) {
        y = tensor_to(x, TENSOR_CUDA + 1);
        CHECK(tensor_device(y) == TENSOR_CUDA + 1);
        CHECK(tensor_to(y, TENSOR_CUDA + 1) == y && tensor_equal(tensor_to(y, TENSOR_CUDA), x));
        CHECK_POISON(tensor_add(y, on(x)), TENSOR_ERR_DEVICE, NULL);
        tensor_to_string(y, text, sizeof text);
        CHECK_TEXT(text, "tensor([1.0000, 2.5000, 3.0000], device='" DEVICE_NAME ":1')");
    }
    CHECK_POISON(tensor_to(x, TENSOR_CUDA + 16), TENSOR_ERR_DEVICE, "no CUDA device 16");
    y = on(x);
    CHECK(tensor_copy_out(tensor_expand(on(x), 2, 3), out, sizeof out) == 0 && out[4] == 2.5f);
    CHECK(tensor_data(y) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE,
                "data: x [3] is on " DEVICE_NAME "; tensor_to(x, TENSOR_CPU) copies it");
    CHECK(tensor_data_mut(y) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "data_mut");
    tensor_copy_(x, tensor_add_scalar(y, 1));
    CHECK(tensor_item(tensor_sum(x)) == 9.5);
    tensor_copy_(y, x);
    CHECK(tensor_item(tensor_sum(y)) == 9.5);
    z = tensor_to(on(tensor_zeros(0, 3)), TENSOR_CPU);
    tensor_to_string(on(tensor_zeros(0, 3)), text, sizeof text);
    tensor_to_string(z, want, sizeof want);
    CHECK_TEXT(want, "tensor([], size=(0, 3))");
    CHECK_TEXT(text, "tensor([], device='" DEVICE_NAME ":0', size=(0, 3))");
}

static void mixing(void) {
    tensor_t *x = tensor_randn(4, 3), *y = on(x), *s = tensor_scalar(2, TENSOR_F32), *loss;
    int64_t before;
    int i;
    CHECK_POISON(tensor_add(x, y), TENSOR_ERR_DEVICE, "add: tensors on cpu and " DEVICE_NAME);
    CHECK_POISON(tensor_add(y, x), TENSOR_ERR_DEVICE, "add: tensors on cpu and " DEVICE_NAME);
    CHECK_POISON(tensor_matmul(y, tensor_ones(3, 2)), TENSOR_ERR_DEVICE, "matmul");
    CHECK_POISON(tensor_add_(x, y), TENSOR_ERR_DEVICE, NULL);
    CHECK_POISON(tensor_add_(tensor_scalar(1, TENSOR_F32), on(s)), TENSOR_ERR_DEVICE,
                 "add_: x [] is on the CPU, must be on " DEVICE_NAME " as the other operand");
    // 0-d tensors of the CPU go along, and their gradients come back.
    CHECK(tensor_equal(tensor_mul(y, s), tensor_mul(x, s)) && tensor_device(tensor_mul(s, y)) == TENSOR_CUDA);
    CHECK(tensor_equal(tensor_where(on(tensor_gt_scalar(x, 0)), s, y), tensor_where(tensor_gt_scalar(x, 0),
            s, x)));
    before = tensor_memory_stats().live_tensors;
    for (i = 0; i < 10; i++) { tensor_mul(y, s); }
    CHECK(tensor_memory_stats().live_tensors == before + 10);       // the results; the copies of s are gone
    tensor_requires_grad_(s, 1);
    loss = tensor_sum(tensor_mul(y, s));
    tensor_backward(loss);
    CHECK(tensor_device(tensor_grad(s)) == TENSOR_CPU && device_same(tensor_grad(s), tensor_sum(x)));
}

// Ops of every family on x [4, 6] > 0; each must give on the device what it gives here.
#define OPS(X)                                                                                               \
    X(tensor_exp(x)) X(tensor_tanh(x)) X(tensor_relu(x)) X(tensor_erf(x)) X(tensor_lgamma(x))                \
    X(tensor_add(x, x)) X(tensor_add_scalar(x, 2)) X(tensor_pow_scalar(x, 3)) X(tensor_mT(x))                \
    X(tensor_sum(x)) X(tensor_sum_dim(x, 0, 1)) X(tensor_mean(x)) X(tensor_amax_dim(x, 1, 0))                \
    X(tensor_argmax(x)) X(tensor_prod(x)) X(tensor_std(x, 1)) X(tensor_cumsum(x, 1)) X(tensor_softmax(x, 1)) \
    X(tensor_log_softmax(x, 0)) X(tensor_logsumexp(x, 1, 0)) X(tensor_matmul(x, tensor_mT(x)))           \
    X(tensor_cat(0, x, x)) X(tensor_stack(1, x, x)) X(tensor_at(x, "1:3, ::2")) X(tensor_tril(x, 0))         \
    X(tensor_index_select(x, 1, tensor_argmax_dim(x, 1, 0))) X(tensor_sort(x, 1, 0).values)                  \
    X(tensor_where(tensor_gt_scalar(x, 1), x, tensor_neg(x))) X(tensor_clone(x)) X(tensor_flip(x, 1))        \
    X(tensor_ones_like(x)) X(tensor_zeros_like(x)) X(tensor_to(x, TENSOR_F16)) X(tensor_cumprod(x, 0))       \
    X(tensor_conv2d(tensor_reshape(x, 1, 1, 4, 6), tensor_reshape(x, 4, 1, 2, 3)))                           \
    X(tensor_max_pool2d(tensor_reshape(x, 1, 1, 4, 6), 2)) X(tensor_layer_norm(x, 1))                        \
    X(tensor_gelu(x)) X(tensor_mse_loss(x, tensor_mul_scalar(x, 2))) X(tensor_norm(x))                       \
    X(tensor_scaled_dot_product_attention(tensor_reshape(x, 1, 4, 6), tensor_reshape(x, 1, 4, 6),            \
                                          tensor_reshape(x, 1, 4, 6)))                                       \
    X(tensor_masked_fill(x, tensor_gt_scalar(x, 1), 0)) X(positive(x))                                       \
    X(tensor_conv2d(image(x), tensor_reshape(x, 2, 3, 2, 2), .stride = 2, .padding = 1))                     \
    X(tensor_conv2d(image(x), tensor_reshape(x, 6, 1, 2, 2), .groups = 3, .padding = 1, .dilation = 2))      \
    X(tensor_conv2d(tensor_to(image(x), TENSOR_F64), tensor_to(tensor_reshape(x, 4, 3, 2, 1), TENSOR_F64)))  \
    X(tensor_conv1d(tensor_reshape(x, 2, 2, 6), tensor_reshape(x, 4, 2, 3), .bias = tensor_at(x, ":, 0")))   \
    X(tensor_conv3d(tensor_reshape(x, 1, 2, 2, 2, 3), tensor_reshape(x, 3, 2, 2, 1, 2), .padding = 1))       \
    X(tensor_conv_transpose2d(image(x), tensor_reshape(x, 3, 2, 2, 2), .stride = 2, .output_padding = 1))    \
    X(tensor_conv_transpose2d(image(x), tensor_reshape(x, 3, 4, 2, 1), .bias = tensor_at(x, ":, 1")))        \
    X(tensor_max_pool2d(image(x), 3, .stride = 1, .padding = 1))                                             \
    X(tensor_max_pool1d(tensor_reshape(x, 2, 12), 4, .stride = 3, .dilation = 2))                            \
    X(tensor_avg_pool2d(image(x), 2, .stride = 1, .padding = 1))                                             \
    X(tensor_avg_pool2d(image(x), 2, .padding = 1, .no_count_pad = 1))                                       \
    X(tensor_adaptive_avg_pool2d(tensor_reshape(x, 1, 1, 4, 6), 3, 4))                                       \
    X(tensor_adaptive_max_pool2d(tensor_reshape(x, 1, 1, 4, 6), 3, 4).values)                                \
    X(tensor_batch_norm(image(x), .weight = tensor_at(x, "0, :3"), .bias = tensor_at(x, "1, :3"),            \
                        .training = 1))                                                                      \
    X(tensor_group_norm(tensor_reshape(x, 2, 6, 2), 3, tensor_at(x, "0"), tensor_at(x, "1")))                \
    X(tensor_group_norm(tensor_to(tensor_reshape(x, 2, 6, 2), TENSOR_F64), 2))                               \
    X(tensor_layer_norm(x, 1, tensor_at(x, "0"), tensor_at(x, "1"))) X(tensor_rms_norm(x, 1))                \
    X(tensor_rms_norm(x, 1, tensor_at(x, "0"))) X(tensor_linear(x, x, tensor_at(x, ":, 0")))                 \
    X(tensor_linear(tensor_reshape(x, 2, 2, 6), x, NULL)) X(tensor_linear(x, tensor_at(x, "::2"), NULL))     \
    X(tensor_embedding(tensor_argmax_dim(x, 1, 0), tensor_reshape(x, 6, 4)))                                 \
    X(tensor_embedding(tensor_argmax_dim(x, 1, 0), tensor_reshape(x, 6, 4), .padding_idx = 2))               \
    X(tensor_embedding_bag(tensor_reshape(tensor_argmax_dim(x, 1, 0), 2, 2), tensor_reshape(x, 6, 4)))       \
    X(tensor_embedding_bag(tensor_reshape(tensor_argmax_dim(x, 1, 0), 2, 2), tensor_reshape(x, 6, 4),        \
                           .mode = TENSOR_BAG_MAX))                                                          \
    X(tensor_cross_entropy(x, tensor_argmax_dim(tensor_neg(x), 1, 0)))                                       \
    X(tensor_cross_entropy(x, tensor_argmax_dim(tensor_neg(x), 1, 0), .weight =                              \
                           tensor_detach(tensor_at(x, "1")),                                                 \
                           .label_smoothing = 0.2))                                                          \
    X(tensor_cross_entropy(x, tensor_argmax_dim(x, 1, 0), .reduction = TENSOR_NONE, .label_smoothing = 0.1)) \
    X(tensor_cross_entropy(x, tensor_argmax_dim(x, 1, 0), .ignore_index = 2, .reduction = TENSOR_SUM))       \
    X(tensor_nll_loss(tensor_log_softmax(x, 1), tensor_argmax_dim(x, 1, 0)))                                 \
    X(tensor_binary_cross_entropy_with_logits(x, tensor_neg(x)))                                             \
    X(tensor_binary_cross_entropy(tensor_sigmoid(x), tensor_sigmoid(tensor_neg(x))))                         \
    X(tensor_huber_loss(x, tensor_mul_scalar(x, 3))) X(tensor_smooth_l1_loss(x, tensor_square(x)))           \
    X(tensor_l1_loss(x, tensor_mul_scalar(x, 2), .reduction = TENSOR_NONE))                                  \
    X(tensor_kl_div(tensor_log_softmax(x, 1), tensor_softmax(x, 0)))                                         \
    X(tensor_scaled_dot_product_attention(heads(x, 0), heads(x, 1), heads(x, 2), .is_causal = 1))            \
    X(tensor_matmul(tensor_reshape(x, 2, 1, 3, 4), tensor_reshape(x, 3, 4, 2)))                              \
    X(tensor_matmul(heads(x, 0), tensor_mT(heads(x, 1)))) X(tensor_norm(tensor_mul_scalar(x, 1e25)))         \
    X(tensor_tanh(tensor_to(x, TENSOR_BF16))) X(tensor_mul(tensor_to(x, TENSOR_F64), x))                     \
    X(tensor_sum(tensor_expand(tensor_sum_dim(x, 0, 1), 700, 6))) X(tensor_triu(tensor_mT(x), 1))            \
    X(tensor_index_add(x, 1, tensor_argmax_dim(x, 1, 0), tensor_reshape(tensor_at(x, ":, 1:5"), 4, 4)))     \
    X(tensor_cumsum(tensor_to(x, TENSOR_F64), 0)) X(tensor_logsumexp(tensor_mul_scalar(x, 500), 1, 0))       \
    X(tensor_sum_dim(tensor_repeat_interleave(tensor_mul(x, x), 90, 0), 0, 0))  \
    X(tensor_pad(x, 1, 2)) X(tensor_local_response_norm(tensor_reshape(x, 1, 4, 6), 3))                      \
    X(tensor_multi_margin_loss(x, tensor_argmax_dim(x, 1, 0)))                                               \
    X((tensor_manual_seed(3), tensor_dropout1d(tensor_reshape(x, 1, 4, 6), 0.5, 1)))                         \
    X((tensor_manual_seed(3), tensor_rand_like(x))) X((tensor_manual_seed(3), tensor_randn_like(x)))         \
    X((tensor_manual_seed(3), tensor_randint_like(x, 2, 9)))                                                 \
    X((tensor_manual_seed(3), tensor_uniform_(tensor_empty_like(x), 1, 2)))                                  \
    X((tensor_manual_seed(3), tensor_normal_(tensor_empty_like(x), 1, 2)))                                   \
    X((tensor_manual_seed(3), tensor_exponential_(tensor_empty_like(x), 2)))                                 \
    X((tensor_manual_seed(3), tensor_random_(tensor_empty_like(x), 2, 9)))                                   \
    X((tensor_manual_seed(3), tensor_normal(x, tensor_abs(x))))                                              \
    X((tensor_manual_seed(3), tensor_bernoulli(tensor_sigmoid(x))))                                          \
    X((tensor_manual_seed(3), tensor_poisson(tensor_mul_scalar(tensor_exp(x), 9))))                          \
    X((tensor_manual_seed(3), tensor_poisson(tensor_to(x, TENSOR_F64))))                                     \
    X((tensor_manual_seed(3), tensor_multinomial(x, 40, 1)))                                                 \
    X((tensor_manual_seed(3), tensor_multinomial(tensor_repeat_interleave(x, 99, 1), 5, 1)))                 \
    X((tensor_manual_seed(3), tensor_multinomial(tensor_repeat_interleave(x, 99, 1), 5)))                    \
    X((tensor_manual_seed(3), tensor_randn_like(tensor_to(x, TENSOR_F64))))                                  \
    X(tensor_linalg_svdvals(x)) X(tensor_linalg_qr(x, NULL).r) X(tensor_linalg_eigvalsh(square(x), 0))       \
    X(tensor_abs(tensor_linalg_eigh(square(x), 0).eigenvectors)) X(tensor_one_hot(tensor_argmax(x), 24))    \
    X(tensor_linalg_det(square(x))) X(tensor_linalg_solve(square(x), x)) X(tensor_linalg_lu(square(x)).p)    \
    X(tensor_linalg_lu(square(x)).u) X(tensor_linalg_qr(tensor_mT(x), NULL).q) X(tensor_linalg_pinv(x, -1))  \
    X(tensor_matmul(tensor_linalg_svd(x, 0).u, tensor_linalg_svd(x, 0).vh)) X(tensor_inverse(square(x)))     \
    X(tensor_linalg_solve_triangular(tensor_triu(square(x), 0), x, 1, 1, 0))                                 \
    X(tensor_linalg_cholesky_ex(square(x), 0).result)                                                        \
    X((tensor_manual_seed(3), tensor_gumbel_softmax(x, 1, 1, 1)))                                            \
    X(tensor_embedding(tensor_argmax_dim(x, 1, 0), tensor_detach(tensor_mul_scalar(x, 1)), .max_norm = 0.5))

static tensor_t *square(tensor_t *x) {
    tensor_t *eye = tensor_to(tensor_eye(4, 4), (int)tensor_device(x));
    return tensor_add(tensor_matmul(x, tensor_mT(x)), eye);
}
static tensor_t *positive(tensor_t *x) {
    return tensor_cholesky(square(x), 0);
}
static tensor_t *image(tensor_t *x) { return tensor_reshape(tensor_sin(x), 2, 3, 2, 2); }
static tensor_t *heads(tensor_t *x, int64_t k) {
    return tensor_select(tensor_permute(tensor_reshape(x, 2, 3, 2, 2), 1, 0, 2, 3), 0, k);
}
static void ops(void) {
    tensor_t *here = tensor_add_scalar(tensor_rand(4, 6), 0.5), *there = on(here), *made[2], *twice[2];
    long before = device_calls();
    int k;
#define X(...)                                                                                               \
    {                                                                                                        \
        tensor_t *x = tensor_detach(here), *a, *b, *y, *z;                                                   \
        tensor_requires_grad_(x, 1);                                                                         \
        y = __VA_ARGS__;                                                                                     \
        a = tensor_requires_grad(y) ? tensor_sum(y) : NULL;                   \
        if (a) { tensor_backward(a); }                                                                       \
        a = tensor_grad(x);                                                                                  \
        x = tensor_detach(there);                                                                            \
        tensor_requires_grad_(x, 1);                                                                         \
        z = __VA_ARGS__;                                                                                     \
        CHECK_MSG(tensor_device(z) == TENSOR_CUDA && device_same(y, off(z)), "%s", #__VA_ARGS__);          \
        b = a ? tensor_sum(z) : NULL;                                                                        \
        if (b) { tensor_backward(b); }                                                                       \
        b = b ? tensor_grad(x) : NULL;                                                                       \
        CHECK_MSG(!a || (b && device_same(a, off(b))), "gradient of %s", #__VA_ARGS__);                  \
        CHECK_MSG(tensor_ok(), "%s: %s", #__VA_ARGS__, tensor_error_text());                                 \
        tensor_clear_error();                                                                                \
        device_note(TENSOR_F32);                                                                             \
    }
    OPS(X)
#undef X
    for (k = 0; k < 2; k++) {                   // what has no input is made on the default device
        tensor_manual_seed(3);
        if (k) { tensor_set_default_device(TENSOR_CUDA); }
        made[k] = tensor_cat(0, tensor_to(tensor_randperm(9), TENSOR_F32), tensor_arange(0, 9, 2, TENSOR_F32),
                             tensor_rand(4), tensor_randn(4), tensor_to(tensor_randint(2, 9, 4), TENSOR_F32));
        tensor_set_default_device(TENSOR_CPU);
    }
    for (k = 0; k < 2; k++) {                   // a gradient of a gradient
        tensor_t *x = tensor_requires_grad_(tensor_detach(k ? there : here), 1);
        tensor_t *y = tensor_sum(tensor_prod_dim(x, 1, 0)), *g;
        tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
        tensor_backward(tensor_sum(tensor_square(g)));
        twice[k] = tensor_grad(x);
    }
    CHECK_MSG(tensor_ok() && device_same(twice[0], off(twice[1])), "%s", tensor_error_text());
    CHECK(tensor_device(made[1]) == TENSOR_CUDA && device_same(made[0], off(made[1])));
    device_note(TENSOR_F32);
    CHECK(device_calls() > before + 100);
}

static nn_module_t *net(void) {
    return nn_sequential(nn_conv2d(1, 4, 3, .padding = 1), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                         nn_linear(4 * 4 * 4, 16), nn_layer_norm(16), nn_gelu(), nn_linear(16, 3));
}
// A network built, run forward and backward on the device has the CPU's parameters and gradients.
static void network(void) {
    tensor_t *x, *label, *loss[2], *grad[2][8], *p[8];
    int d, k, n = 0;
    nn_module_t *m[2];
    for (d = 0; d < 2; d++) {
        tensor_manual_seed(5);
        CHECK(tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU) == 0);
        CHECK(tensor_get_default_device() == (d ? TENSOR_CUDA : TENSOR_CPU));
        m[d] = net();
        x = tensor_randn(5, 1, 8, 8);
        label = tensor_from(((int64_t[]){0, 2, 1, 1, 0}), TENSOR_I64, 5);
        CHECK(tensor_device(x) == (d ? TENSOR_CUDA : TENSOR_CPU));
        loss[d] = tensor_cross_entropy(nn_forward(m[d], x), label);
        tensor_backward(loss[d]);
        n = nn_parameters(m[d], p, 8);
        CHECK(n == 8);
        for (k = 0; k < n; k++) {
            CHECK(tensor_device(p[k]) == (d ? TENSOR_CUDA : TENSOR_CPU));
            grad[d][k] = tensor_grad(p[k]);
        }
    }
    tensor_set_default_device(TENSOR_CPU);
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
    CHECK(device_same(loss[0], off(loss[1])));
    for (k = 0; k < n; k++) { CHECK_MSG(device_same(grad[0][k], off(grad[1][k])), "gradient %d", k); }
    nn_free(m[0]);
    nn_free(m[1]);
}

// A network moved there computes what it computed here; the way back gives the same parameters.
static void moved(void) {
    nn_module_t *m = net(), *twin = nn_clone(m);
    tensor_t *x = tensor_randn(2, 1, 8, 8), *y = nn_forward(m, x), *p[8], *q[8];
    int k;
    CHECK(nn_to(m, TENSOR_CUDA) == 0);
    CHECK(device_same(y, off(nn_forward(m, on(x)))));
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_DEVICE, "tensors on");
    CHECK(nn_to(m, TENSOR_CPU) == 0);
    CHECK(nn_parameters(m, p, 8) == 8 && nn_parameters(twin, q, 8) == 8);
    for (k = 0; k < 8; k++) { CHECK(tensor_device(p[k]) == TENSOR_CPU && tensor_equal(p[k], q[k])); }
    nn_free(m);
    nn_free(twin);
}

// gradcheck of tensors there: right gradients pass, a wrong one does not, and the inputs are what they were.
static tensor_t *product_of(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul(tensor_sin(in[0]), in[1]);
}
static tensor_t *cut_off(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul(in[0], tensor_detach(in[0]));
}
static void checked(void) {
    tensor_t *host[2], *in[2];
    int k;
    for (k = 0; k < 2; k++) {
        host[k] = tensor_to(tensor_rand(3, 2 + k), TENSOR_F64);
        in[k] = on(host[k]);
        if (k) { in[k] = tensor_narrow(in[k], 1, 0, 2); }           // strided
        in[k] = tensor_requires_grad_(tensor_detach(in[k]), 1);
    }
    CHECK(tensor_gradcheck(product_of, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(product_of, NULL, in, 2, 0, 0, 0) == 0);
    CHECK_OK();
    CHECK(device_same(host[0], off(in[0])) && device_same(tensor_narrow(host[1], 1, 0, 2), off(in[1])));
    CHECK(tensor_gradcheck(cut_off, NULL, in, 1, 0, 0, 0) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "autograd gives");
}

// Numbers drawn there are those drawn here, in every float.
static void random_numbers(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    int d, k;
    tensor_t *y[2][10], *half;
    for (k = 0; k < 4; k++) {
        for (d = 0; d < 2; d++) {
            tensor_manual_seed(11);
            tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
            half = tensor_to(tensor_full(0.3, 50, 30), dtypes[k]);
            y[d][0] = tensor_rand_like(half);
            y[d][1] = tensor_randn_like(half);
            y[d][2] = tensor_randint_like(half, -4, 90);
            y[d][3] = tensor_bernoulli(half);
            y[d][4] = tensor_dropout(half, 0.4, 1);
            y[d][5] = tensor_poisson(tensor_mul_scalar(half, 40));
            y[d][6] = tensor_multinomial(half, 7);
            y[d][7] = tensor_randperm(40);
            y[d][8] = tensor_arange(3, 9, 0.1, dtypes[k]);
            y[d][9] = tensor_randint(-4, 90, 33);
        }
        tensor_set_default_device(TENSOR_CPU);
        for (d = 0; d < 10; d++) {
            CHECK_MSG(tensor_dtype(y[0][d]) == tensor_dtype(y[1][d]) &&
                          (d == 1 && dtypes[k] == TENSOR_F64
                               ? tensor_allclose(y[0][d], off(y[1][d]), 1e-13, 1e-13)
                               : tensor_equal(y[0][d], off(y[1][d]))),
                      "numbers %d in %s", d, tensor_dtype_name(dtypes[k]));
        }
        device_note(dtypes[k]);
    }
}

// ---- whole trainings, here and there ----

typedef struct gpt_t {
    nn_module_t base, *token, *place, *qkv, *out, *mlp, *norm;
} gpt_t;
static tensor_t *gpt_forward(nn_module_t *m, tensor_t *tokens) {
    gpt_t *g = (gpt_t *)m;
    tensor_t *place = tensor_arange(0, (double)tensor_size(tokens, 1), 1, TENSOR_I64);
    tensor_t *x = tensor_add(nn_forward(g->token, tokens), nn_forward(g->place, place)), *h;
    int64_t B = tensor_size(x, 0), T = tensor_size(x, 1);
    h = tensor_permute(tensor_reshape(nn_forward(g->qkv, x), B, T, 3, 2, 8), 2, 0, 3, 1, 4);
    h = tensor_scaled_dot_product_attention(tensor_select(h, 0, 0), tensor_select(h, 0, 1),
                                            tensor_select(h, 0, 2), .is_causal = 1);
    x = tensor_add(x, nn_forward(g->out, tensor_reshape(tensor_transpose(h, 1, 2), B, T, 16)));
    x = tensor_add(x, nn_forward(g->mlp, x));
    return tensor_linear(nn_forward(g->norm, x), nn_get(g->token, "weight"), NULL);
}
static gpt_t gpt;
// No bias whose gradient is 0 but for rounding: Adam makes a step of that noise.
static nn_module_t *model(int which) {
    if (which == 0) { return nn_sequential(nn_linear(2, 16), nn_tanh(), nn_linear(16, 1)); }
    if (which == 1) {
        return nn_sequential(nn_conv2d(1, 4, 3, .padding = 1, .no_bias = 1), nn_batch_norm2d(4), nn_relu(),
                             nn_max_pool2d(2),
                             nn_conv2d(4, 6, 3), nn_relu(), nn_flatten(), nn_dropout(0.2), nn_linear(24, 3));
    }
    nn_module_init(&gpt.base, "Gpt", gpt_forward, NULL);
    gpt.token = nn_child(&gpt.base, "token", nn_embedding(11, 16));
    gpt.place = nn_child(&gpt.base, "place", nn_embedding(8, 16));
    gpt.qkv = nn_child(&gpt.base, "qkv", nn_sequential(nn_layer_norm(16), nn_linear(16, 48, .no_bias = 1)));
    gpt.out = nn_child(&gpt.base, "out", nn_linear(16, 16));
    gpt.mlp = nn_child(&gpt.base, "mlp",
                       nn_sequential(nn_layer_norm(16), nn_linear(16, 32), nn_gelu(), nn_linear(32, 16)));
    gpt.norm = nn_child(&gpt.base, "norm", nn_layer_norm(16));
    return &gpt.base;
}
static nn_optimizer_t *optimizer(int which, nn_module_t *m) {
    switch (which) {
    case 0: return nn_adam(m, .lr = 0.01);
    case 1: return nn_sgd(m, .lr = 0.05, .momentum = 0.9, .nesterov = 1, .weight_decay = 1e-3);
    case 2: return nn_adamw(m, .lr = 0.01, .weight_decay = 0.1);
    case 3: return nn_sgd(m, .lr = 0.1);
    case 4: return nn_rmsprop(m, .lr = 0.01, .momentum = 0.5, .centered = 1);
    case 6: return nn_adagrad(m, .lr_decay = 0.1, .initial_accumulator_value = 0.1, .weight_decay = 0.1);
    case 7: return nn_adadelta(m, .weight_decay = 0.1);
    case 8: return nn_adamax(m, .maximize = 1);
    case 9: return nn_nadam(m, .weight_decay = 0.1, .decoupled_weight_decay = 1);
    case 10: return nn_radam(m, .beta2 = 0.9);
    default: return nn_adam(m, .lr = 0.02, .amsgrad = 1, .maximize = 1, .weight_decay = 0.1);
    }
}
static tensor_t *loss_of(int which, nn_module_t *m) {
    tensor_t *x;
    if (which == 0) {
        x = tensor_from(((float[]){0, 0, 0, 1, 1, 0, 1, 1}), TENSOR_F32, 4, 2);
        return tensor_binary_cross_entropy_with_logits(nn_forward(m, x),
                                                       tensor_from(((float[]){0, 1, 1, 0}), TENSOR_F32, 4,
                                                                   1));
    }
    if (which == 1) {
        x = tensor_randn(5, 1, 8, 8);
        return tensor_cross_entropy(nn_forward(m, x), tensor_randint(0, 3, 5));
    }
    x = tensor_randint(0, 11, 3, 9);
    return tensor_cross_entropy(tensor_flatten(nn_forward(m, tensor_at(x, ":, :-1")), 0, 1),
                                tensor_flatten(tensor_at(x, ":, 1:"), 0, 1));
}
#ifdef TEST_CUDA
static void raw_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1 || sscanf(text, "num_device_free %lld", &n) == 1) {
        *(long long *)user += n;
    }
}
#endif
// Calls of CUDA for memory, so far.
static long long raw_calls(void) {
    long long n = 0;
#ifdef TEST_CUDA
    tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &n);
#endif
    return n;
}
// Five steps, a clipped gradient among them, on both sides: losses and parameters agree. After the second one
// the driver is not asked for memory, nor given any.
static void training(void) {
    int which, o, d, k, step;
#ifdef TEST_CUDA_SIM
    cusim_set("random", 1);                 // work runs now or later
#endif
    for (which = 0; which < 3; which++) {
        for (o = which; o < 6; o += 3) {
            double loss[2][5];
            tensor_t *p[2][24];
            int n = 0;
            long long raw = 0;
            tensor_scope_t s = tensor_scope_begin();
#ifdef TEST_CUDA
            tensor_cuda_empty_cache(TENSOR_CUDA);
#endif
            for (d = 0; d < 2; d++) {
                nn_module_t *m;
                nn_optimizer_t *opt;
                tensor_manual_seed(3);
                tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
                m = model(which);
                opt = optimizer(o, m);
                for (step = 0; step < 5; step++) {
                    tensor_t *l;
                    if (step == 2) { raw = raw_calls(); }
                    l = loss_of(which, m);
                    loss[d][step] = tensor_item(l);
                    CHECK(nn_zero_grad(opt) == 0 && tensor_backward(l) == 0);
                    if (step == 2) { CHECK(tensor_item(nn_clip_grad_norm(opt, 0.1)) > 0); }
                    CHECK_MSG(nn_step(opt) == 0, "%s", tensor_error_text());
                }
                CHECK_MSG(raw_calls() == raw, "model %d: %lld raw calls", which, raw_calls() - raw);
                n = nn_parameters(m, p[d], 24);
                CHECK(n > 3 && n <= 24);
                for (k = 0; k < n; k++) {
                    CHECK(tensor_device(p[d][k]) == (d ? TENSOR_CUDA : TENSOR_CPU));
                    p[d][k] = tensor_clone(p[d][k]);
                }
                nn_optimizer_free(opt);
                nn_free(m);
            }
            tensor_set_default_device(TENSOR_CPU);
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            for (step = 0; step < 5; step++) {
                CHECK_MSG(fabs(loss[0][step] - loss[1][step]) <= 2e-5 * (1 + fabs(loss[0][step])),
                          "model %d, optimizer %d, step %d: loss %.8g, the CPU's is %.8g", which, o, step,
                          loss[1][step], loss[0][step]);
            }
            CHECK(loss[0][0] != loss[0][4]);
            for (k = 0; k < n; k++) {
                CHECK_MSG(tensor_allclose(p[0][k], off(p[1][k]), 2e-3, 2e-4),
                          "model %d, optimizer %d: parameter %d",
                          which, o, k);
            }
            tensor_scope_end(s);
        }
    }
}
// The same gradient gives the same bits: f32, f64 and half parameters, and states that move with their
// module.
static void steps(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_BF16};
    int o, t, d, k, step;
    for (t = 0; t < 3; t++) {
        for (o = 0; o < 11; o++) {
            tensor_t *p[2][2];
            tensor_scope_t s = tensor_scope_begin();
            for (d = 0; d < 2; d++) {
                nn_module_t *m;
                nn_optimizer_t *opt;
                tensor_manual_seed(4);
                m = nn_linear(37, 5);
                CHECK(nn_to(m, dtypes[t]) == 0);
                opt = optimizer(o, m);
                for (step = 0; step < 8; step++) {
                    if (step == 1 && d) { CHECK(nn_to(m, TENSOR_CUDA) == 0); }
                    CHECK(nn_parameters(m, p[d], 2) == 2);
                    for (k = 0; k < 2; k++) {
                        tensor_t *g = tensor_to(tensor_randn_n(tensor_shape(p[d][k]).dims,
                                                               tensor_ndim(p[d][k])),
                                                dtypes[t]);
                        tensor_set_grad(p[d][k], d && step ? on(g) : g);
                    }
                    CHECK_MSG(nn_step(opt) == 0, "%s", tensor_error_text());
                }
                for (k = 0; k < 2; k++) { p[d][k] = off(tensor_clone(p[d][k])); }
                nn_optimizer_free(opt);
                nn_free(m);
            }
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            for (k = 0; k < 2; k++) {
                CHECK_MSG(tensor_equal(p[0][k], p[1][k]), "optimizer %d, parameter %d, dtype %d", o, k, t);
            }
            tensor_scope_end(s);
        }
    }
}

// Those that are made of other ops: Muon, whose products of bf16 may round otherwise, and L-BFGS.
typedef struct fit_t {
    nn_module_t *m;
    nn_optimizer_t *o;
    tensor_t *x, *y;
} fit_t;
static tensor_t *fit_loss(void *user) {
    fit_t *f = (fit_t *)user;
    tensor_t *loss = tensor_mse_loss(tensor_tanh(nn_forward(f->m, f->x)), f->y);
    nn_zero_grad(f->o);
    tensor_backward(loss);
    return loss;
}
static void composed_steps(void) {
    int which, d, k;
    for (which = 0; which < 2; which++) {
        tensor_t *w[2], *loss[2];
        tensor_scope_t s = tensor_scope_begin();
        for (d = 0; d < 2; d++) {
            fit_t f;
            tensor_manual_seed(7);
            f.m = nn_linear(6, 5, .no_bias = 1);
            f.x = tensor_randn(20, 6);
            f.y = tensor_tanh(tensor_randn(20, 5));
            if (d) {
                CHECK(nn_to(f.m, TENSOR_CUDA) == 0);
                f.x = on(f.x);
                f.y = on(f.y);
            }
            if (which) {
                f.o = nn_lbfgs(f.m, .line_search_fn = NN_STRONG_WOLFE, .max_iter = 4);
            } else {
                f.o = nn_muon(f.m, .lr = 0.05);
            }
            for (k = 0; k < 3; k++) { loss[d] = nn_step_closure(f.o, fit_loss, &f); }
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            w[d] = off(tensor_clone(tensor_detach(nn_get(f.m, "weight"))));
            CHECK(tensor_item(loss[d]) < 0.9);
            nn_optimizer_free(f.o);
            nn_free(f.m);
        }
        CHECK_MSG(tensor_allclose(w[0], w[1], 1e-3, which ? 1e-4 : 3e-3), "optimizer %d", which);
        tensor_scope_end(s);
    }
}

// What the host fills or reads itself, with a device as the default one: files, batches, bags, alignments.
static void host_side(void) {
    char path[] = "device_test.safetensors", text[400];
    tensor_t *y[2][8], *x, *label;
    int d, k;
    for (d = 0; d < 2; d++) {
        nn_module_t *m, *twin;
        nn_optimizer_t *opt, *again;
        nn_data_loader_t *l;
        nn_batch_t b;
        int64_t step = 0;
        tensor_manual_seed(8);
        tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
        m = model(0);
        twin = model(0);
        opt = optimizer(0, m);
        again = optimizer(0, twin);
        for (k = 0; k < 2; k++) {
            CHECK(nn_zero_grad(opt) == 0 && tensor_backward(loss_of(0, m)) == 0 && nn_step(opt) == 0);
        }
        CHECK_MSG(nn_save_checkpoint(path, m, opt, 7) == 0, "%s", tensor_error_text());
        CHECK_MSG(nn_load_checkpoint(path, twin, again, &step) == 0 && step == 7, "%s", tensor_error_text());
        remove(path);
        CHECK(tensor_backward(loss_of(0, twin)) == 0 && nn_step(again) == 0);
        y[d][0] = loss_of(0, twin);
        x = tensor_reshape(tensor_arange(0, 24, 1, TENSOR_F32), 8, 3);
        label = tensor_randint(0, 5, 8);
        l = nn_data_loader(nn_tensor_dataset(x, label), .batch_size = 3, .shuffle = 1, .seed = 2);
        CHECK(nn_next(l, &b) == 1 && tensor_device(b.x) == TENSOR_CPU && tensor_device(b.y) == TENSOR_CPU);
        y[d][1] = tensor_to(b.x, d ? TENSOR_CUDA : TENSOR_CPU);
        y[d][2] = tensor_to(b.y, d ? TENSOR_CUDA : TENSOR_CPU);
        nn_data_loader_free(l);
        for (k = 0; k < 3; k++) {
            y[d][3 + k] = tensor_embedding_bag(label, x, tensor_from(((int64_t[]){0, 3, 3, 5}), TENSOR_I64,
                                                                     4),
                                               .mode = (tensor_bag_mode_t)k);
        }
        y[d][6] = tensor_ctc_loss(tensor_log_softmax(tensor_reshape(x, 4, 2, 3), 2),
                                  tensor_ones_of(TENSOR_I64, 2, 1),
                                  off(tensor_full_of(TENSOR_I64, 4, 2)), tensor_ones_of(TENSOR_I64, 2));
        CHECK(tensor_to_string(x, text, sizeof text) > 20 && !strncmp(text, "tensor([[ 0.,  1.", 17));
        y[d][7] = tensor_norm(x);
        nn_optimizer_free(opt);
        nn_optimizer_free(again);
        nn_free(m);
        nn_free(twin);
    }
    tensor_set_default_device(TENSOR_CPU);
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
    for (k = 0; k < 8; k++) { CHECK_MSG(device_same(y[0][k], off(y[1][k])), "result %d", k); }
}

#ifndef TEST_CUDA
static void failures(void) {
    tensor_t *x = on(tensor_ones(2, 2)), *y;
    int before = mirror_blocks;
    mirror.kernel[TENSOR_FAMILY_LINALG] = NULL;
    CHECK_POISON(tensor_cholesky(x, 0), TENSOR_ERR_UNSUPPORTED, "mirror has no kernel for it");
    mirror.kernel[TENSOR_FAMILY_LINALG] = mirror_run;
    mirror_fail_alloc = 1;
    CHECK_POISON(tensor_add(x, x), TENSOR_ERR_OUT_OF_MEMORY, "add: out of device memory for shape [2,2] f32");
    CHECK_POISON(on(tensor_ones(2)), TENSOR_ERR_OUT_OF_MEMORY, NULL);
    mirror_fail_alloc = 0;
    mirror_fail_copy = 1;
    CHECK(isnan(tensor_item(tensor_sum(x))));
    CHECK_ERROR(TENSOR_ERR_CUDA, "item: copying 4 bytes between devices failed");
    CHECK_POISON(off(x), TENSOR_ERR_CUDA, NULL);
    CHECK_POISON(on(tensor_ones(3)), TENSOR_ERR_CUDA, NULL);
    mirror_fail_copy = 0;
    y = tensor_add(x, x);
    CHECK(tensor_item(tensor_sum(y)) == 8 && mirror_blocks >= before);
}
#else
static void failures(void) {
    tensor_t *x = on(tensor_ones(3)), *index = on(tensor_from(((int64_t[]){0, 5, 1}), TENSOR_I64, 3)), *y;
    tensor_t *fine = tensor_exp(x), *tall = NULL;
    int64_t before;
    char first[80];
    int k;
    // An index out of range: known when someone waits, and at once where the CPU does the op.
    y = tensor_index_select(x, 0, index);
    if (tensor_ok()) { CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX); }
    CHECK_ERROR(TENSOR_ERR_INDEX, "index_select");
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0 && tensor_size(y, 0) != 1);
    y = tensor_remainder(index, tensor_sub(index, index));
    sprintf(first, "remainder by zero at device.c:%d: element 0 at", __LINE__ - 1);
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX && tensor_size(y, 0) == 3);
    CHECK_ERROR(TENSOR_ERR_INDEX, first);
    // Without the CPU's help an op that has no kernel says so.
    CHECK(tensor_cuda_set_fallback(0) == 1);
    CHECK_POISON(tensor_group_norm(on(tensor_ones(2, 4, 0)), 2), TENSOR_ERR_UNSUPPORTED,
                 "group_norm: cuda has no kernel for f32");
    CHECK(tensor_cuda_set_fallback(1) == 0);
    before = tensor_cuda_fallbacks();
    CHECK(tensor_size(tensor_group_norm(on(tensor_ones(2, 4, 0)), 2), 1) == 4);
    CHECK(tensor_cuda_fallbacks() == before + 1);
#ifdef TEST_CUDA_SIM
    tall = on(tensor_full(3, (1 << 20) + 1, 1));        // more rows than the kernel takes
    // Each of the next calls of CUDA fails once: an error or a right result, and all goes on.
    for (k = 0; k < 40; k++) {
        cusim_set(k % 2 ? "fail_call" : "fail_alloc", k / 2);
        if (k % 4 == 0) { tensor_cuda_empty_cache(TENSOR_CUDA); }
        y = tensor_linalg_lu_factor(tall).lu;
        y = k % 3 ? tensor_narrow(tensor_narrow(y, 0, 0, 1), 1, 0, 1) : tensor_narrow(fine, 0, 0, 1);
        if (tensor_item(y) < 2) { CHECK_MSG(!tensor_ok(), "call %d", k); }
        cusim_set("fail_call", -1);
        cusim_set("fail_alloc", -1);
        tensor_clear_error();
    }
    CHECK(tensor_cuda_fallbacks() > before + 9);
#else
    (void)k, (void)tall;
#endif
    CHECK_NEAR(tensor_item(tensor_narrow(fine, 0, 1, 1)), 2.718281828, 1e-6);
    tensor_set_default_device(TENSOR_CUDA);
    CHECK_POISON(tensor_empty(1 << 20, 1 << 20), TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
    tensor_set_default_device(TENSOR_CPU);
    CHECK(strstr(tensor_cuda_memory_report(), "Tried to allocate 4.00 TiB") != NULL);
}
#ifdef TEST_CUDA_SIM
// The k-th call of CUDA, or the k-th allocation, in a step of training fails: an error that says so, and the
// next step is as ever.
static void faults(void) {
    nn_module_t *m;
    nn_optimizer_t *opt;
    int k, met = 0;
    tensor_set_default_device(TENSOR_CUDA);
    tensor_manual_seed(6);
    m = model(0);
    opt = optimizer(0, m);
    for (k = 0; k < 120; k++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *loss;
        tensor_cuda_empty_cache(TENSOR_CUDA);
        cusim_set(k % 2 ? "fail_call" : "fail_alloc", k / 2);
        loss = loss_of(0, m);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        tensor_item(loss);
        cusim_set("fail_call", -1);
        cusim_set("fail_alloc", -1);
        if (!tensor_ok()) {
            int code = tensor_error_code();
            CHECK_MSG(code == TENSOR_ERR_CUDA || code == TENSOR_ERR_OUT_OF_MEMORY, "call %d: %s", k,
                      tensor_error_text());
            met++;
        }
        tensor_clear_error();
        nn_zero_grad(opt);
        tensor_scope_end(s);
    }
    CHECK_MSG(met >= 3, "%d faults", met);      // an allocation that fails once is tried again, and succeeds
    CHECK(tensor_backward(loss_of(0, m)) == 0 && nn_step(opt) == 0);
    CHECK(tensor_item(loss_of(0, m)) < 1);
    nn_optimizer_free(opt);
    nn_free(m);
    tensor_set_default_device(TENSOR_CPU);
}
// There is no memory from the k-th allocation of a step on, for every k: the error says so, the parameters
// are all as before the step or all as behind it, the CPU works on, and the next step does what this one
// would have done.
enum { CNN_PARAMETERS = 7 };
static void alloc_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1) { *(long long *)user = n; }
}
static int cnn_step(nn_module_t *m, nn_optimizer_t *opt) {
    tensor_t *loss;
    tensor_set_default_device(TENSOR_CUDA);
    tensor_manual_seed(8);
    loss = loss_of(1, m);
    nn_zero_grad(opt);
    tensor_backward(loss);
    nn_step(opt);
    tensor_set_default_device(TENSOR_CPU);
    return tensor_error_code();
}
static int cnn_is(nn_module_t *m, tensor_t *const *want) {
    tensor_t *p[CNN_PARAMETERS];
    int k, same = nn_parameters(m, p, CNN_PARAMETERS) == CNN_PARAMETERS;
    for (k = 0; k < CNN_PARAMETERS && same; k++) { same = tensor_equal(off(p[k]), want[k]); }
    return same;
}
static void exhausted(void) {
    nn_module_t *start = model(1), *m;
    nn_optimizer_t *opt;
    tensor_t *before[CNN_PARAMETERS], *after[CNN_PARAMETERS];
    long long from = 0, to = 0;
    int64_t used = tensor_cuda_memory_allocated(TENSOR_CUDA);
    int k, met = 0, calls = 0;
    CHECK(nn_parameters(start, before, CNN_PARAMETERS) == CNN_PARAMETERS);
    for (k = 0; k < CNN_PARAMETERS; k++) { before[k] = tensor_clone(tensor_detach(before[k])); }
    for (k = -1; k < calls; k++) {              // -1: all is well
        tensor_scope_t scope = tensor_scope_begin();
        m = nn_clone(start);
        nn_to(m, TENSOR_CUDA);
        opt = optimizer(1, m);
        tensor_cuda_memory_stats(TENSOR_CUDA, alloc_line, &from);
        cusim_set("full", k);
        if (cnn_step(m, opt) != TENSOR_OK) {
            cusim_set("full", -1);
            CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
            CHECK(tensor_item(tensor_sum(tensor_ones(3))) == 3);
            if (cnn_is(m, before)) {
                CHECK_MSG(cnn_step(m, opt) == TENSOR_OK, "%d: %s", k, tensor_error_text());
            }
            met++;
        }
        cusim_set("full", -1);
        if (k < 0) {
            CHECK(nn_parameters(m, after, CNN_PARAMETERS) == CNN_PARAMETERS);
            for (int i = 0; i < CNN_PARAMETERS; i++) { after[i] = tensor_keep(off(tensor_detach(after[i]))); }
            tensor_cuda_memory_stats(TENSOR_CUDA, alloc_line, &to);
            calls = (int)(to - from);
        }
        CHECK_MSG(cnn_is(m, after) && !cnn_is(m, before), "allocation %d", k);
        nn_optimizer_free(opt);
        nn_free(m);
        tensor_scope_end(scope);
        CHECK_MSG(tensor_cuda_memory_allocated(TENSOR_CUDA) == used, "allocation %d", k);
    }
    CHECK_MSG(met > 40, "%d", met);
    CHECK(cnn_is(start, before));
    for (k = 0; k < CNN_PARAMETERS; k++) { tensor_free(after[k]); }
    nn_free(start);
}
#endif
#ifdef TEST_CUDA
// Parameters of f16 and bf16 step as they are: the CPU's bits, also in a graph, and one launch for all.
static nn_optimizer_t *half_rule(int rule, nn_module_t *m) {
    if (rule == 0) { return nn_sgd(m, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01); }
    if (rule == 1) { return nn_rmsprop(m, .lr = 0.01); }
    return nn_adamw(m, .lr = 0.02);
}
static void half_steps(void) {
    int dtype, rule, side, k, step;
    for (dtype = TENSOR_F16; dtype <= TENSOR_BF16; dtype++) {
        for (rule = 0; rule < 3; rule++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *p[2][20];
            nn_module_t *m[2];
            nn_optimizer_t *opt[2];
            tensor_graph_t *g;
            tensor_manual_seed(7);
            m[0] = nn_sequential();
            for (k = 0; k < 10; k++) { nn_append(m[0], nn_linear(5 + k, 7)); }
            nn_to(m[0], dtype);
            m[1] = nn_clone(m[0]);
            nn_to(m[1], TENSOR_CUDA);
            for (side = 0; side < 2; side++) {
                opt[side] = half_rule(rule, m[side]);
                CHECK(nn_parameters(m[side], p[side], 20) == 20);
            }
            for (k = 0; k < 20; k++) {
                tensor_t *slope = tensor_to(tensor_randn_like(p[0][k]), dtype);
                tensor_set_grad(p[0][k], slope);
                tensor_set_grad(p[1][k], on(slope));
            }
            for (step = 0; step < 2; step++) {
                CHECK(nn_step(opt[0]) == 0);
#ifdef TEST_CUDA_SIM
                long counted[5];
                cusim_set("reset", 0);
#endif
                CHECK(nn_step(opt[1]) == 0);
#ifdef TEST_CUDA_SIM
                cusim_counted(counted);
                if (step) { CHECK_MSG(counted[0] == 1, "rule %d: %ld launches", rule, counted[0]); }
#endif
            }
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0 && nn_step(opt[1]) == 0);
            CHECK((g = tensor_capture_end()) != NULL && tensor_graph_replay(g) == 0);
            CHECK(nn_step(opt[0]) == 0 && nn_step(opt[0]) == 0);
            for (k = 0; k < 20; k++) {
                CHECK(tensor_dtype(p[1][k]) == (tensor_dtype_t)dtype);
                CHECK_MSG(tensor_equal(off(p[1][k]), p[0][k]),
                          "dtype %d, rule %d, parameter %d", dtype, rule, k);
            }
            for (side = 0; side < 2; side++) {
                nn_optimizer_free(opt[side]);
                nn_free(m[side]);
            }
            CHECK(tensor_graph_free(g) == 0);
            tensor_scope_end(scope);
        }
    }
}

// A graph adds to a gradient, or steps with one: another one, also in the same memory, is an error. No
// storage of a GPU tells the graph of it.
static void other_gradients(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *flat = on(tensor_zeros(8)), *p[2] = {on(tensor_ones(4)), on(tensor_ones(4))};
    tensor_t *a = tensor_slice(flat, 0, 0, 4, 1), *b = tensor_slice(flat, 0, 4, 8, 1);
    for (int k = 0; k < 2; k++) { tensor_requires_grad_(p[k], 1); }
    nn_optimizer_t *o = nn_sgd(NULL, .list = p, .count = 2, .lr = 0.5);
    CHECK(tensor_set_grad(p[0], a) == 0 && tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_backward(tensor_sum(tensor_mul_scalar(p[0], 2)));
    tensor_graph_t *adds = tensor_capture_end();
    CHECK(tensor_graph_replay(adds) == 0 && tensor_capture_begin(TENSOR_CUDA) == 0);
    nn_step(o);
    tensor_graph_t *steps = tensor_capture_end();
    CHECK(tensor_graph_replay(steps) == 0);
    double was = tensor_item(tensor_sum(p[0]));
    tensor_set_grad(p[0], b);
    CHECK(tensor_graph_replay(adds) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the gradient of [4], which the step adds to, is gone or has other memory");
    CHECK(tensor_graph_replay(steps) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the gradient of [4], which the step reads, is gone or has other memory");
    tensor_set_grad(p[0], a);
    tensor_set_grad(p[1], b);
    CHECK(tensor_graph_replay(steps) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "[4] has a gradient, and had none where the step reads it at the capture");
    tensor_set_grad(p[1], NULL);
    CHECK(tensor_item(tensor_sum(p[0])) == was && tensor_item(tensor_sum(b)) == 0);
    CHECK(tensor_graph_replay(adds) == 0 && tensor_graph_replay(steps) == 0);
    CHECK(tensor_item(tensor_sum(a)) == 24 && tensor_item(tensor_sum(p[0])) == was - 12);
    tensor_graph_free(adds);
    tensor_graph_free(steps);
    nn_optimizer_free(o);
    tensor_scope_end(scope);
}
#endif
// ---- ranks ----

enum { RANK_NET = 6 * 12 + 12 + 12 * 3 + 3 };
typedef struct rank_t {
    int rank, ranks, joined;
    const char *id;
    char text[200];
    float net[RANK_NET], losses[2], sum[3];
    int captures;
    double timeout;
    int *turn;                                  // the rank whose turn it is to capture
} rank_t;
// Six steps on a rank's part of a batch of eight; without an id on the whole of it.
static void *rank_run(void *arg) {
    rank_t *r = (rank_t *)arg;
    tensor_device_t where = (tensor_device_t)(TENSOR_CUDA + r->rank);
    tensor_cuda_comm_t *c = NULL;
    tensor_t *p[4], *g[4], *x, *y, *mean, *all = NULL, *loss = NULL;
    nn_module_t *m;
    nn_optimizer_t *opt;
    int k, step, per = 8 / r->ranks, n = 0;
    if (r->id) { c = tensor_cuda_comm_new(r->rank, r->ranks, r->id, where, 0); }
    tensor_manual_seed((uint64_t)(5 + r->rank));
    m = nn_sequential(nn_linear(6, 12), nn_tanh(), nn_linear(12, 3));
    nn_to(m, (int)where);
    nn_parameters(m, p, 4);
    for (k = 0; k < 4 && c; k++) { tensor_cuda_broadcast(c, p[k], 0); }
    opt = nn_adam(m, .lr = 0.01);
    for (step = 0; step < 6; step++) {
        tensor_t *whole = tensor_sin(tensor_reshape(tensor_arange(step, step + 72, 1, TENSOR_F32), 8, 9));
        tensor_t *part = tensor_to(tensor_narrow(whole, 0, r->rank * per, per), (int)where);
        x = tensor_contiguous(tensor_narrow(part, 1, 0, 6));
        y = tensor_narrow(part, 1, 6, 3);
        loss = tensor_mse_loss(nn_forward(m, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        for (k = 0; k < 4; k++) { g[k] = tensor_grad(p[k]); }
        if (c) { tensor_cuda_all_reduce_n(c, g, 4, 1); }
        nn_step(opt);
    }
    if (c) {
        mean = tensor_to(tensor_full(r->rank + 1, 3), (int)where);
        all = tensor_to(tensor_zeros(r->ranks), (int)where);
        tensor_cuda_all_reduce(c, mean, 0);
        tensor_cuda_all_gather(c, all, tensor_reshape(tensor_detach(loss), 1));
        tensor_copy_out(mean, r->sum, sizeof r->sum);
        tensor_copy_out(all, r->losses, sizeof(float) * (size_t)r->ranks);
        r->joined = 1;
    } else if (tensor_ok()) {
        r->losses[0] = (float)tensor_item(loss);
    }
    for (k = 0; k < 4; k++) {
        if (tensor_ok()) { tensor_copy_out(p[k], r->net + n, (size_t)tensor_numel(p[k]) * sizeof(float)); }
        n += (int)tensor_numel(p[k]);
    }
    nn_optimizer_free(opt);
    nn_free(m);
    if (c) { tensor_cuda_comm_free(c); }
    snprintf(r->text, sizeof r->text, "%s", tensor_error_text());
    tensor_thread_end();
    return NULL;
}
// A rank's step with its collectives as a graph, replayed; beside it the same steps without one.
static void rank_step(const rank_t *r, nn_module_t *m, nn_optimizer_t *opt, tensor_cuda_comm_t *c,
                      tensor_t *x, tensor_t *all) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *p[4], *g[4], *want = tensor_zeros_like(tensor_narrow(x, 1, 0, 3));
    tensor_t *loss = tensor_mse_loss(nn_forward(m, x), want);
    int k;
    nn_parameters(m, p, 4);
    nn_zero_grad(opt);
    tensor_backward(loss);
    for (k = 0; k < 4; k++) { g[k] = tensor_grad(p[k]); }
    tensor_cuda_all_reduce_n(c, g, 4, 1);
    nn_step(opt);
    tensor_cuda_all_gather(c, all, tensor_reshape(tensor_detach(loss), 1));
    tensor_cuda_broadcast(c, x, r->ranks - 1);
    tensor_scope_end(s);
}
static void *rank_graph_run(void *arg) {
    rank_t *r = (rank_t *)arg;
    tensor_device_t where = (tensor_device_t)(TENSOR_CUDA + r->rank);
    tensor_cuda_comm_t *c = tensor_cuda_comm_new(r->rank, r->ranks, r->id, where, r->timeout);
    tensor_t *p[4], *x, *all = tensor_to(tensor_zeros(r->ranks), (int)where);
    tensor_graph_t *graph = NULL;
    nn_module_t *m;
    nn_optimizer_t *opt;
    int k, step, n = 0;
    tensor_manual_seed(5);
    m = nn_sequential(nn_linear(6, 12), nn_tanh(), nn_linear(12, 3));
    nn_to(m, (int)where);
    opt = nn_adam(m, .lr = 0.01);
    x = tensor_to(tensor_zeros(4, 6), (int)where);
    for (step = 0; step < 6; step++) {
        tensor_t *whole = tensor_sin(tensor_reshape(tensor_arange(step, step + 48, 1, TENSOR_F32), 8, 6));
        tensor_copy_(x, tensor_narrow(whole, 0, r->rank * 4, 4));
        if (graph) {
            tensor_graph_replay(graph);
        } else if (r->captures && step == 2) {
            while (r->turn && __atomic_load_n(r->turn, __ATOMIC_ACQUIRE) != r->rank) { sched_yield(); }
            tensor_capture_begin(where);            // one thread captures at a time
            rank_step(r, m, opt, c, x, all);
            graph = tensor_capture_end();
            if (r->turn) { __atomic_add_fetch(r->turn, 1, __ATOMIC_RELEASE); }
        } else {
            rank_step(r, m, opt, c, x, all);
        }
    }
    if (r->captures && !graph) { snprintf(r->text, sizeof r->text, "no graph"); }
    tensor_copy_out(all, r->losses, sizeof(float) * (size_t)r->ranks);
    tensor_copy_out(tensor_narrow(tensor_reshape(x, 24), 0, 0, 3), r->sum, sizeof r->sum);
    nn_parameters(m, p, 4);
    for (k = 0; k < 4; k++) {
        tensor_copy_out(p[k], r->net + n, (size_t)tensor_numel(p[k]) * sizeof(float));
        n += (int)tensor_numel(p[k]);
    }
    r->joined = tensor_ok();
    if (graph) {
        r->joined = r->joined && tensor_cuda_comm_free(c) == TENSOR_ERR_OWNER &&
                    strstr(tensor_error_text(), "cuda_comm_free: a graph uses the communicator") != NULL;
        tensor_clear_error();
        tensor_graph_free(graph);
    }
    nn_optimizer_free(opt);
    nn_free(m);
    tensor_cuda_comm_free(c);
    if (!tensor_ok()) { snprintf(r->text, sizeof r->text, "%s", tensor_error_text()); }
    tensor_thread_end();
    return NULL;
}
static void rank_graphs(void) {
    static rank_t many[2][2];
    static int turn;
    char id[TENSOR_CUDA_ID_BYTES];
    pthread_t thread[2];
    tensor_t *x = on(tensor_ones(3)), *all = on(tensor_zeros(3));
    tensor_cuda_comm_t *c = NULL;
    tensor_graph_t *g;
    int k, captures, timed, n = 1;
#ifdef TEST_CUDA_SIM
    n = 2;
#endif
    if (tensor_cuda_comm_id(id)) {
        tensor_clear_error();
        return;
    }
    for (timed = 0; timed < 2; timed++) {
        for (captures = 0; captures < 2; captures++) {
            CHECK(tensor_cuda_comm_id(id) == 0);
            turn = 0;
            for (k = 0; k < n; k++) {
                rank_t r = {k, n, 0, id, "", {0}, {0}, {0}, captures, 20 * timed, n > 1 ? &turn : NULL};
                many[captures][k] = r;
                pthread_create(&thread[k], NULL, rank_graph_run, &many[captures][k]);
            }
            for (k = 0; k < n; k++) { pthread_join(thread[k], NULL); }
            for (k = 0; k < n; k++) {
                rank_t *r = &many[captures][k];
                CHECK_MSG(r->joined && !r->text[0], "rank %d: %s", k, r->text);
                CHECK(!memcmp(r->net, many[0][0].net, sizeof r->net) && r->net[0] != 0);
                CHECK(!memcmp(r->losses, many[0][0].losses, sizeof r->losses) && r->losses[n - 1] != 0);
                CHECK(!memcmp(r->sum, many[0][0].sum, sizeof r->sum));
            }
        }
    }
    // A version is counted at each replay; a graph whose communicator was ended at once cannot run.
    CHECK(tensor_cuda_comm_id(id) == 0 && (c = tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 0)) != NULL);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0 && tensor_cuda_all_gather(c, all, x) == 0);
    CHECK((g = tensor_capture_end()) != NULL && tensor_item(tensor_sum(all)) == 3);
    all = tensor_mul(tensor_requires_grad_(on(tensor_ones(3)), 1), all);
    CHECK(tensor_graph_replay(g) == 0 && tensor_backward(tensor_sum(all)) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "graph_replay");
    CHECK(tensor_cuda_comm_abort(c) == 0 && tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_replay: a communicator of the graph was freed");
    CHECK(tensor_graph_free(g) == 0);
}
// Copies of a network on as many devices as there are train as one does: the same bits on all of them.
static void ranks(void) {
    static rank_t one, many[2];
    char id[TENSOR_CUDA_ID_BYTES];
    pthread_t thread[2];
    tensor_cuda_comm_t *c = NULL;
    tensor_t *x = on(tensor_ones(2, 3)), *bad;
    int k, i, n = 1;
#ifdef TEST_CUDA_SIM
    n = 2;                                      // as threads: real ranks have a process each
#endif
    if (tensor_cuda_comm_id(id)) {              // a program without NCCL hears of it, and goes on
        CHECK_ERROR(TENSOR_ERR_CUDA, "cuda_comm_id: NCCL 2");
        CHECK(tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 0) == NULL);
        CHECK_ERROR(TENSOR_ERR_CUDA, "cuda_comm_new: NCCL 2");
        CHECK(tensor_cuda_all_reduce(NULL, x, 1) == TENSOR_ERR_POISONED);
        CHECK_ERROR(TENSOR_ERR_POISONED, "cuda_all_reduce: the communicator is NULL");
        return;
    }
    one.ranks = 1;
    pthread_create(&thread[0], NULL, rank_run, &one);
    pthread_join(thread[0], NULL);
    CHECK_MSG(!one.text[0], "%s", one.text);
    for (k = 0; k < n; k++) {
        many[k].rank = k, many[k].ranks = n, many[k].id = id;
        pthread_create(&thread[k], NULL, rank_run, &many[k]);
    }
    for (k = 0; k < n; k++) { pthread_join(thread[k], NULL); }
    for (k = 0; k < n; k++) {
        CHECK_MSG(many[k].joined && !many[k].text[0], "rank %d: %s", k, many[k].text);
        CHECK(!memcmp(many[k].net, many[0].net, sizeof many[k].net));
        CHECK(!memcmp(many[k].losses, many[0].losses, sizeof many[k].losses));
        CHECK(many[k].sum[1] == (float)(n * (n + 1) / 2));
    }
    CHECK_NEAR(n == 2 ? (many[0].losses[0] + many[0].losses[1]) / 2 : many[0].losses[0], one.losses[0], 1e-5);
    for (i = 0; i < RANK_NET; i++) { CHECK(fabsf(many[0].net[i] - one.net[i]) < 1e-4f); }
    // What is refused.
    CHECK(tensor_cuda_comm_new(1, 1, id, TENSOR_CUDA, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_INDEX, "cuda_comm_new: rank 1 must be in 0..0");
    CHECK(tensor_cuda_comm_id(NULL) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(tensor_cuda_comm_id(id) == 0 && (c = tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 0)) != NULL);
    CHECK(tensor_cuda_all_reduce(c, tensor_ones(2), 1) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "cuda_all_reduce: a tensor is not on the communicator's device");
    CHECK(tensor_cuda_all_reduce(c, tensor_mT(x), 1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cuda_all_reduce: a tensor is not contiguous");
    bad = tensor_channels_last(on(tensor_ones(2, 3, 2, 2)));        // weights laid out so on all ranks
    CHECK(tensor_cuda_all_reduce(c, bad, 0) == 0 && tensor_cuda_broadcast(c, bad, 0) == 0);
    CHECK(!tensor_is_contiguous(bad) && tensor_item(tensor_sum(bad)) == 24);
    CHECK(tensor_cuda_all_gather(c, on(tensor_ones(2, 3, 2, 2)), bad) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cuda_all_gather: a tensor is not contiguous");
    CHECK(tensor_cuda_all_reduce(c, tensor_gt(x, x), 0) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "cuda_all_reduce: NCCL adds no bool and no i16");
    CHECK(tensor_cuda_broadcast(c, x, 1) == TENSOR_ERR_INDEX);
    CHECK_ERROR(TENSOR_ERR_INDEX, "cuda_broadcast: there is no such rank");
    CHECK(tensor_cuda_all_gather(c, x, on(tensor_ones(2))) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cuda_all_gather: y must have ranks times as many elements as x");
    CHECK(tensor_cuda_all_gather(c, NULL, x) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "cuda_all_gather: a tensor is NULL, freed, or failed");
    CHECK(tensor_cuda_broadcast(c, on(tensor_zeros(0)), 0) == 0 && tensor_cuda_broadcast(c, x, 0) == 0);
    // It is a change in place, which a saved tensor notices.
    bad = tensor_requires_grad_(on(tensor_ones(2, 3)), 1);
    bad = tensor_sum(tensor_mul(bad, x));
    CHECK(tensor_cuda_all_reduce(c, x, 1) == 0 && tensor_backward(bad) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "cuda_all_reduce");
    CHECK(tensor_item(tensor_sum(x)) == 6 && tensor_cuda_comm_free(c) == 0 &&
          tensor_cuda_comm_free(NULL) == 0);
    CHECK(tensor_cuda_all_reduce(c, x, 1) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_all_reduce: the communicator was freed");
    // With a timeout calls do not wait inside of NCCL; what was ended at once is gone, the stream goes on.
    CHECK(tensor_cuda_comm_id(id) == 0 && (c = tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 20)) != NULL);
    CHECK(tensor_cuda_all_reduce(c, x, 0) == 0 && tensor_cuda_all_reduce(c, x, 0) == 0 &&
          tensor_item(tensor_sum(x)) == 6);
    CHECK(tensor_cuda_comm_free(c) == 0 && tensor_cuda_comm_abort(c) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_comm_abort: the communicator was freed");
    CHECK(tensor_cuda_comm_id(id) == 0 && (c = tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 20)) != NULL);
    CHECK(tensor_cuda_all_reduce(c, x, 0) == 0 && tensor_cuda_comm_abort(c) == 0 &&
          tensor_cuda_synchronize(TENSOR_CUDA) == 0);
    CHECK(tensor_cuda_all_reduce(c, x, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_all_reduce: the communicator was freed");
    CHECK(tensor_cuda_comm_abort(NULL) == 0 && tensor_cuda_comm_abort_n(NULL, 0) == 0);
    CHECK(tensor_cuda_comm_abort_n(NULL, 1) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "cuda_comm_abort: the list is NULL");
    // the shutdown's
    for (k = 0; k < 2; k++) {
        CHECK(tensor_cuda_comm_id(id) == 0 && tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 20 * k) != NULL);
    }
}
static void count_line(void *user, const char *text) { *(int *)user += text[0] != 0; }
static void memory(void) {
    int64_t now = tensor_cuda_memory_allocated(TENSOR_CUDA), kib = 1024;
    tensor_t *x = tensor_empty(4, 4), *y;
    int lines = 0;
    tensor_cuda_reset_peak_memory_stats(TENSOR_CUDA);
    x = on(tensor_ones(256 * 1024));
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == now + 1024 * kib);
    y = tensor_neg(x);
    tensor_free(y);
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == now + 1024 * kib);
    CHECK(tensor_cuda_max_memory_allocated(TENSOR_CUDA) == now + 2048 * kib);
    CHECK(tensor_cuda_memory_reserved(TENSOR_CUDA) >= tensor_cuda_memory_allocated(TENSOR_CUDA));
    CHECK(tensor_cuda_max_memory_reserved(TENSOR_CUDA) >= tensor_cuda_memory_reserved(TENSOR_CUDA));
    tensor_cuda_empty_cache(TENSOR_CUDA);
    CHECK(tensor_cuda_memory_reserved(TENSOR_CUDA) >= 1024 * kib);
    tensor_cuda_memory_stats(TENSOR_CUDA, count_line, &lines);
    tensor_cuda_memory_snapshot(TENSOR_CUDA, count_line, &lines);
    CHECK(lines > 30);
    CHECK(tensor_cuda_set_per_process_memory_fraction(2, TENSOR_CUDA) == TENSOR_ERR_INDEX);
    CHECK_ERROR(TENSOR_ERR_INDEX, "the fraction must be in (0, 1]");
    CHECK(tensor_cuda_set_per_process_memory_fraction(1e-9, TENSOR_CUDA) == 0);
    CHECK_POISON(on(tensor_zeros(100, 1024, 1024)), TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
    CHECK(tensor_cuda_set_per_process_memory_fraction(1, TENSOR_CUDA) == 0);
    CHECK(tensor_item(tensor_sum(on(tensor_ones(7)))) == 7);
    CHECK(tensor_cuda_set_per_process_memory_fraction(1, TENSOR_CPU) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, NULL);
    CHECK(tensor_cuda_shutdown() == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "bytes are in use; call tensor_shutdown before");
}
#endif
// Mixed precision: as on the CPU within some roundings of f16.
static void mixed(void) {
    double loss[2];
    int d, k;
    for (d = 0; d < 2; d++) {
        nn_module_t *m;
        tensor_t *p[8], *x, *y, *l, *g;
        nn_optimizer_t *opt;
        tensor_scope_t amp;
        tensor_manual_seed(3);
        m = nn_sequential(nn_conv2d(1, 4, 3), nn_batch_norm2d(4), nn_relu(), nn_flatten(), nn_linear(16, 3));
        x = tensor_sin(tensor_reshape(tensor_arange(0, 32, 1, TENSOR_F32), 2, 1, 4, 4));
        y = tensor_remainder_scalar(tensor_arange(0, 2, 1, TENSOR_I64), 3);
        if (d) { nn_to(m, TENSOR_CUDA), x = on(x), y = on(y); }
        opt = nn_sgd(m, .lr = 0.1);
        for (k = 0; k < 3; k++) {
            amp = tensor_scope_begin_autocast(TENSOR_F16);
            l = nn_forward(m, x);
            CHECK(tensor_dtype(l) == TENSOR_F16);
            l = tensor_scope_return(amp, tensor_cross_entropy(l, y));
            nn_zero_grad(opt);
            CHECK_MSG(tensor_backward(l) == 0 && nn_step(opt) == 0, "%s", tensor_error_text());
            CHECK(tensor_dtype(l) == TENSOR_F32);
        }
        for (k = 0; k < nn_parameters(m, p, 8); k++) {
            g = tensor_grad(p[k]);
            CHECK(g && tensor_dtype(g) == TENSOR_F32 && tensor_device(g) == tensor_device(p[k]));
        }
        loss[d] = tensor_item(l);
        nn_optimizer_free(opt);
        nn_free(m);
    }
    CHECK_NEAR(loss[1], loss[0], 5e-3);
}

// Batch norm in evaluation with gradients, which are those of the statistics that it had: a step of training
// moves them before.
static void evaluated(void) {
    static const tensor_dtype_t dtypes[3] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    int k, last, d, i;
    for (k = 0; k < 3; k++) {
        for (last = 0; last < 2; last++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *y[2], *grad[2][3];
            const double tol = k == 0 ? 1e-5 : k == 1 ? 4e-3 : 3e-2;
            for (d = 0; d < 2; d++) {
                tensor_t *x = tensor_sin(tensor_reshape(tensor_arange(0, 240, 1, TENSOR_F32), 2, 6, 5, 4));
                tensor_t *p[3], *mean = tensor_linspace(-0.5, 0.5, 6), *var = tensor_linspace(0.5, 2, 6), *g;
                p[0] = tensor_to(x, dtypes[k]), p[1] = tensor_to(tensor_linspace(-1, 2, 6), dtypes[k]);
                p[2] = tensor_linspace(0.1, 0.6, 6);
                for (i = 0; i < 3; i++) {
                    if (d) { p[i] = on(p[i]); }
                    if (d && last && i == 0) { p[i] = tensor_channels_last(p[i]); }
                    tensor_requires_grad_(p[i], 1);
                }
                if (d) { mean = on(mean), var = on(var); }
                y[d] = tensor_batch_norm(p[0], mean, var, p[1], p[2], .eps = 0.01);
                g = tensor_to(y[d], TENSOR_F32);
                g = tensor_sum(tensor_mul(g, g));
                x = tensor_mul_scalar(tensor_detach(p[0]), 3);
                (void)tensor_batch_norm(x, mean, var, .training = 1);
                CHECK_MSG(tensor_autograd_grad(&g, 1, NULL, p, 3, grad[d], 0) == 0, "%s",
                          tensor_error_text());
            }
            y[1] = off(y[1]);
            CHECK_MSG(tensor_allclose(tensor_to(y[0], TENSOR_F32), tensor_to(y[1], TENSOR_F32), tol, tol),
                      "dtype %d, layout %d", k, last);
            for (i = 0; i < 3; i++) {
                CHECK_MSG(tensor_dtype(grad[0][i]) == tensor_dtype(grad[1][i]) &&
                              tensor_allclose(tensor_to(grad[0][i], TENSOR_F32),
                                              tensor_to(off(grad[1][i]), TENSOR_F32), tol, 8 * tol),
                          "dtype %d, layout %d, gradient %d", k, last, i);
            }
            tensor_scope_end(scope);
        }
    }
}

#ifndef TEST_CUDA
// Gradients are clipped wherever they are, also on the 41st device.
static void many_devices(void) {
    static const int at[3] = {0, 7, 39};
    tensor_t *x[3];
    int k;
    mirror_devices = 40;
    for (k = 0; k < 3; k++) {
        x[k] = tensor_requires_grad_(tensor_to(tensor_ones(4), (tensor_device_t)(TENSOR_CUDA + at[k])), 1);
        tensor_backward(tensor_sum(x[k]));
    }
    CHECK_NEAR(tensor_item(nn_clip_grad_norm_n(x, 3, 1)), sqrt(12.0), 1e-6);
    for (k = 0; k < 3; k++) {
        CHECK_NEAR(tensor_item(tensor_sum(off(tensor_grad(x[k])))), 4 / sqrt(12.0), 1e-5);
    }
    mirror_devices = 2;
}
#endif

// gelu in f32 has the same relative error where it is small: no cancellation, no error of a rounded argument.
static void gelu_tails(void) {
    const float odd[4] = {NAN, INFINITY, -INFINITY, -0.0f};
    tensor_t *x = tensor_linspace(-13, 6, 4001), *want = tensor_to(x, TENSOR_F64), *y, *g, *got;
    tensor_requires_grad_(want, 1);
    x = tensor_requires_grad_(on(x), 1);
    y = tensor_gelu(x);
    got = tensor_to(off(y), TENSOR_F64);
    tensor_t *ones = tensor_ones_like(y), *of = tensor_ones_like(want), *slope;
    CHECK(tensor_autograd_grad(&y, 1, &ones, &x, 1, &g, 0) == 0);
    y = tensor_gelu(want);
    CHECK_MSG(tensor_allclose(got, tensor_detach(y), 1.5e-6, 1e-36), "largest error %g",
              tensor_item(tensor_max(tensor_abs(tensor_sub_scalar(tensor_div(got, tensor_detach(y)), 1)))));
    CHECK(tensor_autograd_grad(&y, 1, &of, &want, 1, &slope, 0) == 0);
    CHECK(tensor_allclose(tensor_to(off(g), TENSOR_F64), slope, 1e-6, 3e-7));
    x = tensor_from(odd, TENSOR_F32, 4);
    CHECK(tensor_equal(tensor_isnan(off(tensor_gelu(on(x)))), tensor_isnan(x)));
}

// Products of ones are as large as k: steps that a library leaves out at the end of k are seen.
static void every_step(void) {
    static const int64_t depths[] = {7, 255, 1151, 16511}, rows[] = {1, 3, 17, 130};
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    for (int d = 0; d < 3; d++) {
        for (int k = 0; k < 4; k++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *b = tensor_to(on(tensor_ones(depths[k], 24)), dtypes[d]);
            for (int m = 0; m < 4; m++) {
                tensor_t *y = tensor_matmul(tensor_to(on(tensor_ones(rows[m], depths[k])), dtypes[d]), b);
                tensor_t *want = tensor_to(tensor_full((double)depths[k], rows[m], 24), dtypes[d]);
                CHECK_MSG(tensor_equal(off(y), want), "%s, %d steps, %d rows", tensor_dtype_name(dtypes[d]),
                          (int)depths[k], (int)rows[m]);
            }
            tensor_scope_end(s);
        }
    }
}

// The slope of relu at 0 is 0, by whatever kernel makes it.
static void relu_of_zeros(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    for (int d = 0; d < 3; d++) {
        tensor_scope_t s = tensor_scope_begin();
        nn_module_t *m = nn_sequential(nn_linear(64, 128), nn_relu(), nn_linear(128, 8));
        tensor_set_grad_enabled(0);
        tensor_fill_(nn_get(m, "0.bias"), 0);
        tensor_set_grad_enabled(1);
        CHECK(nn_to(m, TENSOR_CUDA) == 0 && nn_to(m, dtypes[d]) == 0);
        tensor_backward(tensor_sum(nn_forward(m, tensor_to(on(tensor_zeros(32, 64)), dtypes[d]))));
        CHECK_MSG(tensor_item(tensor_max(tensor_abs(off(tensor_grad(nn_get(m, "0.bias")))))) == 0, "%s",
                  tensor_dtype_name(dtypes[d]));
        nn_free(m);
        tensor_scope_end(s);
    }
}

// On a device x + dropout(y), and the norm behind it, are one kernel in the layers of a transformer, also
// where autocast makes y a half and x f32, and where y lies in another order. A hook that does nothing keeps
// the calls apart: bit for bit, the values and gradients are the same.
static tensor_t *as_it_is(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x;
    ++*(int *)user;
    return y;
}
static int sums[3];                     // of add, dropout and layer_norm; of dropout_add; of add_layer_norm
static void hear_sums(void *user, const tensor_profiler_call_t *call) {
    static const char *const apart[3] = {"add", "dropout", "layer_norm"};
    int k;
    (void)user;
    for (k = 0; k < 3; k++) { sums[0] += strcmp(call->op, apart[k]) == 0; }
    sums[1] += strcmp(call->op, "dropout_add") == 0;
    sums[2] += strcmp(call->op, "add_layer_norm") == 0;
}
static int same_numbers(tensor_t *a, tensor_t *b) { return a && b && tensor_equal(off(a), off(b)); }
static void residuals(void) {
    enum { GRADS = 6 };
    static const tensor_dtype_t dtypes[6] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_F32,
                                             TENSOR_F32};
    static const tensor_dtype_t casts[6] = {TENSOR_DTYPE_NONE, TENSOR_DTYPE_NONE, TENSOR_DTYPE_NONE,
                                            TENSOR_DTYPE_NONE, TENSOR_F16, TENSOR_BF16};
    static const char *const names[GRADS - 1] = {"linear1.weight", "norm1.weight", "norm2.bias",
                                                 "norm3.weight", "self_attn.out_proj.weight"};
    static const int64_t widths[3] = {8, 10, 24};       // rows of halves that a block holds, or does not
    int which, way, k;
    for (which = 0; which < 6 * 3 * 2 * 3; which++) {
        const tensor_dtype_t dtype = dtypes[which % 6], cast = casts[which % 6];
        const int64_t width = widths[which / 6 % 3];
        const int norm_first = which / 18 % 2, mode = which / 36;       // dropout, none, in evaluation
        const int batch_first = (which / 6 % 3 + norm_first + mode) % 2;
        const tensor_profiler_t notes = {NULL, hear_sums, NULL, NULL, NULL, NULL, NULL, NULL};
#ifdef TEST_CUDA
        const int fused = 1;
#else
        const int fused = which % 6 < 2;        // this device has no halves
#endif
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *y[2], *grad[2][GRADS];
        int counts[2][3], ran = 0;
        for (way = 0; way < 2; way++) {         // apart, at once
            tensor_t *x, *memory, *wanted[GRADS], *g;
            nn_module_t *m;
            char name[24];
            tensor_manual_seed(9);
            m = nn_transformer_decoder_layer(width, 2, .feedforward = 6, .norm_first = norm_first,
                                             .dropout = mode == 1 ? TENSOR_ZERO : 0.4,
                                             .batch_first = batch_first);
            x = tensor_to(tensor_randn(2, 2, width), dtype);
            memory = tensor_to(tensor_randn(2, 2, width), dtype);
            nn_to(m, dtype), nn_to(m, TENSOR_CUDA);
            if (mode == 2) { nn_eval(m); }
            wanted[0] = tensor_requires_grad_(on(x), 1);
            for (k = 1; k < GRADS; k++) { wanted[k] = nn_get(m, names[k - 1]); }
            for (k = 1; k < 4 && !way; k++) {
                snprintf(name, sizeof name, "dropout%d", k);
                nn_register_forward_hook(nn_get_child(m, name), as_it_is, &ran);
            }
            memset(sums, 0, sizeof sums);
            (void)tensor_profiler_set(&notes);
            tensor_scope_t scope_of_cast = tensor_scope_begin_autocast(cast);
            y[way] = tensor_scope_return(scope_of_cast, nn_transformer_forward(m, wanted[0], on(memory)));
            (void)tensor_profiler_set(NULL);
            memcpy(counts[way], sums, sizeof sums);
            g = tensor_sum(tensor_mul(y[way], y[way]));
            CHECK_MSG(tensor_autograd_grad(&g, 1, NULL, wanted, GRADS, grad[way], 0) == 0, "%s",
                      tensor_error_text());
            nn_free(m);
        }
        CHECK(ran == 3 && counts[0][1] == 0 && counts[0][2] == 0);
        CHECK_MSG(counts[1][2] == (fused ? 3 - norm_first : 0), "case %d: %d", which, counts[1][2]);
        CHECK_MSG(counts[1][1] == (fused && norm_first && mode == 0), "case %d: %d", which, counts[1][1]);
        if (fused) { CHECK(counts[0][0] - counts[1][0] >= (mode ? 4 : 6)); }
        CHECK_MSG(same_numbers(y[0], y[1]), "case %d: other values", which);
        for (k = 0; k < GRADS; k++) {
            CHECK_MSG(same_numbers(grad[0][k], grad[1][k]), "case %d: another gradient %d", which, k);
        }
        tensor_scope_end(scope);
    }
}

#ifdef TEST_CUDA
// Weights of convolutions laid out once (nn_channels_last): steps and inference copy none to another layout,
// and the values, gradients, states and files are those of row-major weights.
static int weight_copies;
static void note_copy(void *user, const tensor_profiler_call_t *call) {
    static const int64_t weights[4] = {270, 1080, 60, 80};      // elements; no image has as many
    tensor_profiler_operand_t x = tensor_profiler_operand(call, 0);
    int k;
    (void)user;
    for (k = 0; k < 4 && strcmp(call->op, "clone") == 0; k++) { weight_copies += x.numel == weights[k]; }
}
static nn_module_t *images_net(void) {
    nn_module_t *m;
    tensor_manual_seed(4);
    m = nn_sequential(nn_conv2d(3, 10, 3, .padding = 1, .no_bias = 1), nn_batch_norm2d(10), nn_relu(),
                      nn_conv2d(10, 12, 3, .stride = 2), nn_relu(), nn_conv2d(12, 5, 1),
                      nn_conv_transpose2d(5, 4, 2), nn_adaptive_avg_pool2d(1, 1), nn_flatten(),
                      nn_linear(4, 3));
    CHECK(nn_channels_last(m) == 0);            // nothing, on the CPU
    return m;
}
static tensor_t *images_step(nn_module_t *m, nn_optimizer_t *opt, tensor_t *x, tensor_t *y) {
    tensor_t *loss = tensor_cross_entropy(nn_forward(m, x), y);
    nn_zero_grad(opt);
    CHECK_MSG(tensor_backward(loss) == 0, "%s", tensor_error_text());
    nn_clip_grad_norm(opt, 1);
    CHECK_MSG(nn_step(opt) == 0, "%s", tensor_error_text());
    return loss;
}
static void innermost(void) {
    enum { OPTIMIZERS = 4, STEPS = 4, PARAMETERS = 11 };
    static const char *const names[OPTIMIZERS] = {"momentum_buffer", "exp_avg_sq", "row_var", "square_avg"};
    const tensor_profiler_t notes = {NULL, note_copy, NULL, NULL, NULL, NULL, NULL, NULL};
    int which, way, step, k;
    for (which = 0; which < OPTIMIZERS; which++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *p[3][PARAMETERS], *state[3], *out[3];
        int copied[3] = {0, 0, 0};
        nn_module_t *m[3];
        for (way = 0; way < 3; way++) {         // on the CPU; there, row-major; there, channels innermost
            tensor_t *x = tensor_sin(tensor_reshape(tensor_arange(0, 2 * 3 * 64, 1, TENSOR_F32), 2, 3, 8, 8));
            tensor_t *y = tensor_arange(0, 2, 1, TENSOR_I64), *w;
            tensor_graph_t *g = NULL;
            nn_optimizer_t *opt;
            m[way] = images_net();
            if (way) { nn_to(m[way], TENSOR_CUDA), x = on(x), y = on(y); }
            if (way) { x = tensor_channels_last(x); }
            if (way == 2 && which != 3) { CHECK(nn_channels_last(m[way]) == 0); }
            if (which == 0) {
                opt = nn_sgd(m[way], .lr = 0.05, .momentum = 0.9, .weight_decay = 0.01);
            } else if (which == 1) {
                opt = nn_adamw(m[way], .lr = 0.01, .amsgrad = 1);
            } else if (which == 2) {
                opt = nn_adafactor(m[way]);
            } else {
                opt = nn_rmsprop(m[way], .lr = 0.01, .momentum = 0.5);
            }
            const int64_t fallbacks = tensor_cuda_fallbacks();
            for (step = 0; step < STEPS; step++) {
                if (way == 2 && step == 1 && which == 3) {      // states follow
                    CHECK(nn_channels_last(m[way]) == 0);
                }
                if (step == 2) { weight_copies = 0; }   // the steady state comes then
                (void)tensor_profiler_set(&notes);
                // captured, where the backend was built with all that a step needs
                if (way == 2 && step == STEPS - 1 && which != 2 && tensor_cuda_fallbacks() == fallbacks) {
                    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
                    tensor_free(images_step(m[way], opt, x, y));
                    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
                } else {
                    tensor_free(images_step(m[way], opt, x, y));
                }
                (void)tensor_profiler_set(NULL);
            }
            (void)nn_eval(m[way]);
            tensor_scope_t no_grad = tensor_scope_begin_no_grad();
            (void)tensor_profiler_set(&notes);
            out[way] = nn_forward(m[way], x);
            (void)tensor_profiler_set(NULL);
            copied[way] = weight_copies;
            out[way] = tensor_scope_return(no_grad, tensor_to(out[way], TENSOR_CPU));
            CHECK(nn_parameters(m[way], p[way], PARAMETERS) == PARAMETERS);
            w = p[way][3];
            CHECK(tensor_is_channels_last(w) == (way == 2) && tensor_is_contiguous(w) == (way != 2));
            state[way] = nn_optimizer_state(opt, w, names[which]);
            CHECK(state[way] != NULL);
            if (which != 2) { CHECK(tensor_is_channels_last(state[way]) == (way == 2)); }
            state[way] = tensor_clone(tensor_to(tensor_contiguous(state[way]), TENSOR_CPU));
            if (way == 2 && which == 1) {       // files have rows
                nn_module_t *twin = images_net();
                nn_optimizer_t *other = nn_adamw(twin, .lr = 0.01, .amsgrad = 1);
                tensor_t *q[PARAMETERS];
                int64_t at = 0;
                CHECK_MSG(nn_save_checkpoint("device.safetensors", m[way], opt, 7) == 0 &&
                          nn_load_checkpoint("device.safetensors", twin, other, &at) == 0, "%s",
                          tensor_error_text());
                CHECK(nn_parameters(twin, q, PARAMETERS) == PARAMETERS && at == 7);
                CHECK(tensor_equal(q[3], off(tensor_contiguous(w))));
                CHECK(tensor_equal(nn_optimizer_state(other, q[3], "exp_avg_sq"), state[way]));
                remove("device.safetensors");
                nn_optimizer_free(other);
                nn_free(twin);
            }
            CHECK(tensor_graph_free(g) == 0);
            nn_optimizer_free(opt);
        }
        CHECK_MSG(copied[1] > 0 && copied[2] == 0,
                  "optimizer %d: %d copies of weights, with weights laid out once %d", which, copied[1],
                  copied[2]);
        for (k = 0; k < PARAMETERS; k++) {
            for (way = 1; way < 3; way++) {
                tensor_t *here = tensor_detach(p[0][k]), *there = tensor_detach(p[way][k]);
                CHECK_MSG(tensor_allclose(off(tensor_contiguous(there)), here, 2e-4, 2e-5),
                          "optimizer %d, way %d, parameter %d", which, way, k);
            }
        }
        for (way = 1; way < 3; way++) {
            CHECK_MSG(tensor_allclose(out[way], out[0], 2e-4, 2e-5), "optimizer %d, way %d", which, way);
            CHECK_MSG(tensor_allclose(state[way], state[0], 1e-3, 1e-6), "optimizer %d, way %d: state", which,
                      way);
        }
        // Another dtype keeps the layout; the CPU has rows.
        CHECK(nn_to(m[2], TENSOR_BF16) == 0 && tensor_is_channels_last(p[2][3]));
        CHECK(!tensor_is_contiguous(p[2][3]));
        CHECK(nn_to(m[2], TENSOR_F32) == 0 && nn_to(m[2], TENSOR_CPU) == 0 && tensor_is_contiguous(p[2][3]));
        CHECK(tensor_allclose(tensor_detach(p[2][3]), tensor_detach(p[0][3]), 1e-2, 1e-2));
        for (way = 0; way < 3; way++) { nn_free(m[way]); }
        CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
        tensor_scope_end(scope);
    }
}
#endif

// torch.amp.GradScaler(init_scale=1024, growth_interval=2): infinite gradients in steps 0 and 5 of one
// optimizer, in step 3 of the other; what PyTorch 2.15 has.
static void scaling(void) {
    static const double scales[8] = {512, 512, 1024, 512, 512, 256, 256, 512};
    static const double want[2][2] = {{0.474453628, -1.44379556}, {-0.702071369, 1.03890967}};
    float first[2] = {1, -2}, *x;
    tensor_t *p, *q, *scaler, *other, *g;
    nn_optimizer_t *o, *o2;
    int d, which, k;
    for (which = 0; which < 4; which++) {
        d = which / 2;
        tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
        p = tensor_requires_grad_(tensor_from(first, TENSOR_F32, 2), 1);
        q = tensor_requires_grad_(tensor_full(0.5, 1), 1);
        o = which % 2 ? nn_sgd(.list = &p, .count = 1, .lr = 0.1, .momentum = 0.9)
                      : nn_adam(.list = &p, .count = 1, .lr = 0.1);
        o2 = nn_sgd(.list = &q, .count = 1, .lr = 0.1);
        scaler = nn_grad_scaler(1024, 2);
        for (k = 0; k < 8; k++) {
            float data[2];
            data[0] = 0.3f * (float)(k + 1);
            data[1] = k == 0 || k == 5 ? INFINITY : 1;
            nn_zero_grad(o);
            nn_zero_grad(o2);
            g = tensor_sum(tensor_square(tensor_mul(p, tensor_from(data, TENSOR_F32, 2))));
            CHECK(tensor_backward(nn_scaler_scale(scaler, g)) == 0);
            CHECK(tensor_backward(nn_scaler_scale(scaler, tensor_sum(tensor_mul_scalar(q, k == 3 ? 1e36 :
                    2)))) ==
                  0);
            if (k % 2) {
                CHECK(nn_scaler_unscale(scaler, o) == 0);
                CHECK(nn_scaler_unscale(scaler, o) == TENSOR_ERR_UNSUPPORTED);
                CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "scaler_unscale: the gradients were unscaled already");
                nn_clip_grad_norm(o, 1.5);
            }
            CHECK_MSG(nn_scaler_step(scaler, o) == 0 && nn_scaler_step(scaler, o2) == 0, "%s",
                      tensor_error_text());
            CHECK(nn_scaler_update(scaler) == 0 && tensor_item(tensor_select(scaler, 0, 0)) == scales[k]);
        }
        g = off(p);
        x = (float *)tensor_data(g);
        CHECK_NEAR(x[0], want[which % 2][0], 2e-7);
        CHECK_NEAR(x[1], want[which % 2][1], 3e-7);
        CHECK_NEAR(tensor_item(q), -0.899999976, 1e-7);
        // A step without the scaler goes on where its own count would be: as one that never left a step out.
        CHECK(nn_step(o) == 0 && nn_step(o2) == 0);
        tensor_set_default_device(TENSOR_CPU);
        if (d) {
            other = nn_grad_scaler(2, 1);
            CHECK(nn_zero_grad(o) == 0 && tensor_backward(tensor_sum(p)) == 0);
            CHECK(nn_scaler_step(other, o) == TENSOR_ERR_DEVICE);
            CHECK_ERROR(TENSOR_ERR_DEVICE, "scaler_unscale: gradient 0 must be on the scaler's device");
            CHECK(nn_scaler_step(other, o) == TENSOR_ERR_DEVICE); // still not unscaled
            tensor_clear_error();
            tensor_free(other);
        }
        nn_optimizer_free(o);
        nn_optimizer_free(o2);
        tensor_free(scaler);
    }
    for (d = 0; d < 2; d++) { // a parameter that comes after a step was left out takes its first step
        tensor_t *both[2];
        tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
        both[0] = p = tensor_requires_grad_(tensor_ones(1), 1);
        both[1] = q = tensor_requires_grad_(tensor_ones(1), 1);
        o = nn_adam(.list = both, .count = 2, .lr = 0.1);
        scaler = nn_grad_scaler(4, 100);
        for (k = 0; k < 2; k++) {
            nn_zero_grad(o);
            g = tensor_sum(k ? tensor_mul(p, q) : tensor_mul_scalar(p, 3e38));
            CHECK(tensor_backward(nn_scaler_scale(scaler, g)) == 0);
            CHECK(nn_scaler_step(scaler, o) == 0 && nn_scaler_update(scaler) == 0);
            CHECK_NEAR(tensor_item(p), k ? 0.9 : 1, 1e-6);
            CHECK_NEAR(tensor_item(q), k ? 0.9 : 1, 1e-6);
        }
        nn_optimizer_free(o);
        tensor_free(scaler);
        tensor_set_default_device(TENSOR_CPU);
    }
    CHECK_POISON(nn_grad_scaler(0, 1), TENSOR_ERR_SHAPE,
                 "grad_scaler: the scale and the interval must be > 0");
    CHECK_POISON(nn_scaler_scale(q, q), TENSOR_ERR_SHAPE, "is not a scaler");
}

#ifdef TEST_CUDA
// Gradients of images with channels innermost stay on the device, whatever way the gradient of the result
// lies.
static void last_gradients(void) {
    static const int dtypes[3] = {TENSOR_F32, TENSOR_BF16, TENSOR_F16};
    int turns, i, was = tensor_cuda_set_fallback(0);
    for (turns = 0; turns < 12; turns++) {
        int dtype = dtypes[turns % 3], g_last = turns / 3 & 1, x_last = turns < 6;
        tensor_t *h = tensor_to(tensor_randn(2, 8, 3, 5), dtype), *v = tensor_to(tensor_randn(2, 8, 3, 5),
                dtype);
        tensor_t *w = tensor_to(tensor_randn(1, 8, 1, 1), dtype), *got[2][2];
        for (i = 0; i < 2; i++) {
            tensor_t *x = i ? on(h) : h, *g = i ? on(v) : v, *y;
            tensor_t *leaf = tensor_requires_grad_(x_last ? tensor_channels_last(x) : tensor_clone(x), 1);
            tensor_t *scale = tensor_requires_grad_(tensor_clone(i ? on(w) : w), 1);
            y = tensor_mul(leaf, scale);
            CHECK(tensor_backward_with(y, g_last ? tensor_channels_last(g) : g, 0) == 0);
            got[i][0] = off(tensor_grad(leaf));
            got[i][1] = off(tensor_grad(scale));
        }
        CHECK(tensor_allclose(got[1][0], got[0][0], 0, 0));
        CHECK(tensor_allclose(got[1][1], got[0][1], dtype == TENSOR_F32 ? 1e-5 : 2e-2, 1e-2));
    }
    CHECK(tensor_cuda_set_fallback(was) == 0);
}
#endif

#ifndef TEST_CUDA
// The device hears that a capture has ended before its graph is freed: once, also where a shutdown ends it.
static struct { int begun, ended, wanted, run, freed, early; } heard;
static int graph_begins(int index, void **graph) {
    heard.begun++;
    *graph = &heard;
    return index;
}
static int graph_ends(void *graph, int wanted) {
    heard.ended += graph == &heard;
    heard.wanted += wanted;
    return 0;
}
static int graph_runs(void *graph, int first) {
    heard.run += graph == &heard && first;
    return 0;
}
static int graph_made(const void *graph, const tensor__storage_t *storage) {
    return graph != &heard || storage->device != 0;
}
static void graph_frees(void *graph) {
    heard.freed += graph == &heard;
    heard.early += heard.ended < heard.freed;
}
static void graphs_end(void) {
    mirror.graph_begin = graph_begins;
    mirror.graph_end = graph_ends;
    mirror.graph_run = graph_runs;
    mirror.graph_made = graph_made;
    mirror.graph_free = graph_frees;
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && heard.begun == 1 && heard.ended == 1 && heard.wanted == 1 && heard.run == 1 && !heard.freed);
    CHECK(tensor_graph_free(g) == 0 && heard.ended == 1 && heard.freed == 1);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_matmul(tensor_ones(2, 3), tensor_ones(2, 3));
    CHECK(tensor_capture_end() == NULL && heard.ended == 2 && heard.wanted == 1 && heard.freed == 2);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "matmul");
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0 && heard.begun == 3);      // main shuts down
}
#endif

// The gradient of ctc_loss's gradient, over several steps.
static void ctc_twice(void) {
    tensor_t *x = tensor_log_softmax(tensor_to(tensor_randn(4, 1, 5), TENSOR_F64), -1), *second[2];
    tensor_t *labels = tensor_from(((int64_t[]){1, 2}), TENSOR_I64, 1, 2);
    tensor_t *length = tensor_full_of(TENSOR_I64, 4, 1), *few = tensor_full_of(TENSOR_I64, 2, 1);
    for (int there = 0; there < 2; there++) {
        tensor_t *p = tensor_requires_grad_(there ? on(x) : tensor_clone(x), 1), *g[1];
        tensor_t *loss = tensor_ctc_loss(p, there ? on(labels) : labels, there ? on(length) : length,
                                         there ? on(few) : few);
        CHECK(tensor_autograd_grad(&loss, 1, NULL, &p, 1, g, TENSOR_CREATE_GRAPH) == 0);
        CHECK_MSG(tensor_backward(tensor_sum(tensor_square(g[0]))) == 0, "%s", tensor_error_text());
        second[there] = tensor_ok() ? tensor_to(tensor_grad(p), TENSOR_CPU) : x;
        tensor_clear_error();
    }
    CHECK(tensor_allclose(second[0], second[1], 1e-9, 1e-9));
}

#ifdef TEST_CUDA
// The error of each family has the line of the call, once.
static void call_sites(void) {
    const tensor_device_t none = (tensor_device_t)(TENSOR_CUDA + 16);
    const tensor_cuda_allocator_t allocator = {0};
    char here[32];
    tensor_t *held = on(tensor_ones(1));
    tensor_cuda_event_t *event = tensor_cuda_event_new(TENSOR_CUDA, 0);
#define AT(call, code, part)                                                                                 \
    snprintf(here, sizeof here, " at device.c:%d", __LINE__);                                                \
    (void)(call);                                                                                            \
    {                                                                                                        \
        const char *text = tensor_error_text(), *at = strstr(text, here);                                    \
        CHECK_MSG(at && !at[strlen(here)] && !strncmp(text, part, strlen(part)), "%s", text);                \
        CHECK_ERROR(code, part);                                                                             \
    }
    AT(tensor_cuda_synchronize(none), TENSOR_ERR_DEVICE, "cuda_synchronize: no CUDA device 16");
    AT(tensor_cuda_stream_new(none), TENSOR_ERR_DEVICE, "cuda_stream_new: no CUDA device 16");
    AT(tensor_cuda_stream_free(tensor_cuda_default_stream(TENSOR_CUDA)), TENSOR_ERR_OWNER,
       "cuda_stream_free: ");
    AT(tensor_cuda_current_stream(none), TENSOR_ERR_DEVICE, "cuda_current_stream: no CUDA device 16");
    AT(tensor_record_stream(NULL, NULL), TENSOR_ERR_POISONED, "record_stream: ");
    AT(tensor_cuda_event_new(none, 1), TENSOR_ERR_DEVICE, "cuda_event_new: ");
    AT(tensor_cuda_event_record(NULL, NULL), TENSOR_ERR_POISONED, "cuda_event_record: ");
    AT(tensor_cuda_event_elapsed_time(event, event), TENSOR_ERR_UNSUPPORTED, "cuda_event_elapsed_time: ");
    AT(tensor_cuda_graph_pool_new(none), TENSOR_ERR_DEVICE, "cuda_graph_pool_new: ");
    AT(tensor_cuda_set_per_process_memory_fraction(2, TENSOR_CUDA), TENSOR_ERR_INDEX,
       "cuda_set_per_process_memory_fraction: ");
    AT(tensor_cuda_data(tensor_ones(2)), TENSOR_ERR_DEVICE, "cuda_data: ");
    AT(tensor_cuda_wrap(NULL, TENSOR_F32, NULL, 0, none, NULL, NULL), TENSOR_ERR_DEVICE, "cuda_wrap: ");
    AT(tensor_cuda_stream_wrap(NULL, TENSOR_CUDA), TENSOR_ERR_POISONED, "cuda_stream_wrap: ");
    AT(tensor_cuda_set_allocator(&allocator), TENSOR_ERR_OWNER, "cuda_set_allocator: ");
    AT(tensor_cuda_comm_id(NULL), TENSOR_ERR_POISONED, "cuda_comm_id: ");
    AT(tensor_cuda_comm_new(0, 1, NULL, none, 0), TENSOR_ERR_DEVICE, "cuda_comm_new: ");
    AT(tensor_cuda_all_reduce_n(NULL, NULL, 1, 0), TENSOR_ERR_POISONED, "cuda_all_reduce: ");
    AT(tensor_cuda_broadcast(NULL, NULL, 0), TENSOR_ERR_POISONED, "cuda_broadcast: ");
    AT(tensor_cuda_shutdown(), TENSOR_ERR_OWNER, "cuda_shutdown: ");
#undef AT
    CHECK(tensor_cuda_event_free(event) == 0);
    CHECK(tensor_item(held) == 1);
}
#endif
#ifdef TEST_CUDA_SIM
static void *pins(void *x) {                    // a thread that never made a device current
    tensor_t *mine = tensor_pin_memory(tensor_to(tensor_ones(100), TENSOR_CPU)), *theirs = (tensor_t *)x;
    CHECK(tensor_item(tensor_sum(tensor_to(theirs, TENSOR_CPU))) == 100);
    CHECK(tensor_item(tensor_sum(tensor_to(mine, TENSOR_CUDA + 1))) == 100);
    CHECK(tensor_free(theirs) == 0);
    CHECK(tensor_free(mine) == 0);
    tensor_thread_end();
    return NULL;
}
// A process of one device of several makes no context on another: pinned memory, threads, graphs, the end.
static void one_of_three(void) {
    cusim_set("devices", 3);
    cusim_set("new_process", 0);
    CHECK(tensor_cuda_init() == 0 && tensor_cuda_device_count() == 3);
    cusim_set("contexts", 0);
    const tensor_device_t own = (tensor_device_t)(TENSOR_CUDA + 1);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *host = tensor_ones(100);
    CHECK(tensor_set_default_device(own) == 0);
    tensor_t *pinned = tensor_pin_memory(host);
    cusim_set("contexts", 2);
    nn_module_t *net = nn_sequential(nn_linear(4, 8), nn_relu(), nn_linear(8, 1));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    tensor_t *x = tensor_randn(16, 4), *far = tensor_to(pinned, own);
    for (int k = 0; k < 3; k++) {
        nn_zero_grad(opt);
        CHECK(tensor_backward(tensor_mean(tensor_square(nn_forward(net, x)))) == 0 && nn_step(opt) == 0);
    }
    tensor_cuda_stream_t *side = tensor_cuda_stream_new(own), *before = tensor_cuda_set_stream(side);
    tensor_cuda_event_t *a = tensor_cuda_event_new(own, 1), *b = tensor_cuda_event_new(own, 1);
    CHECK(tensor_cuda_event_record(a, side) == 0 && tensor_cuda_event_record(b, side) == 0);
    CHECK(tensor_cuda_event_synchronize(b) == 0 && tensor_cuda_event_elapsed_time(a, b) >= 0);
    CHECK(tensor_cuda_event_query(b) == 1 && tensor_cuda_stream_query(side) == 1);
    CHECK(tensor_cuda_stream_wait_event(before, b) == 0 && tensor_cuda_stream_wait_stream(before, side) == 0);
    CHECK(tensor_item(tensor_sum(far)) == 100 && tensor_cuda_data(far));
    CHECK(tensor_cuda_set_stream(before) == side && tensor_cuda_event_free(a) == 0);
    CHECK(tensor_capture_begin(own) == 0);
    tensor_t *y = tensor_mul_scalar(far, 2);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(y)) == 200);
    CHECK(tensor_graph_set_memory_budget(g, 1) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_set_memory_budget: the memory of a GPU's graph");
    tensor_free(y);
    CHECK(tensor_graph_free(g) == 0);
    const int64_t n = 100;
    tensor_t *wrapped = tensor_cuda_wrap(tensor_cuda_data(far), TENSOR_F32, &n, 1, own, NULL, NULL);
    CHECK(tensor_item(tensor_sum(wrapped)) == 100 && tensor_free(wrapped) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pins, tensor_keep(far)) == 0 && pthread_join(thread, NULL) == 0);
    nn_free(net);
    nn_optimizer_free(opt);
    tensor_scope_end(scope);
    CHECK(tensor_set_default_device(TENSOR_CPU) == 0);
    tensor_cuda_empty_cache(TENSOR_CPU);
    tensor_cuda_empty_cache(own);
    CHECK(tensor_ok() && tensor_cuda_synchronize(own) == 0);
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    cusim_set("contexts", 2);
    cusim_set("live", 0);
    cusim_set("devices", 1);
}
#endif

int main(void) {
#ifdef TEST_CUDA_SIM
    cusim_set("protect", 1);                // the host touches nothing of the device's
#endif
    RUN(no_device);
#ifndef TEST_CUDA
    RUN(other_version);
#else
#ifdef TEST_CUDA_SIM
    RUN(no_driver);
#endif
    RUN(started);
#endif
    RUN(to_and_fro);
    RUN(mixing);
    RUN(ops);
    RUN(network);
    RUN(moved);
    RUN(checked);
    RUN(random_numbers);
    device_print();
    RUN(training);
    RUN(steps);
    RUN(composed_steps);
    RUN(host_side);
    RUN(scaling);
    RUN(mixed);
    RUN(evaluated);
    RUN(gelu_tails);
    RUN(every_step);
    RUN(relu_of_zeros);
    RUN(ctc_twice);
    RUN(residuals);
#ifndef TEST_CUDA
    RUN(many_devices);
#endif
    RUN(failures);
#ifdef TEST_CUDA
    RUN(innermost);
    RUN(last_gradients);
    RUN(half_steps);
    RUN(other_gradients);
#endif
#ifndef TEST_CUDA
    tensor_keep(on(tensor_ones(3)));        // shutdown gives device memory back too
    RUN(graphs_end);
    CHECK(tensor_shutdown() == 0 && mirror_blocks == 0);
    CHECK(heard.ended == 3 && heard.wanted == 1 && heard.freed == 3 && heard.early == 0);
#else
#ifdef TEST_CUDA_SIM
    RUN(faults);
#endif
    RUN(ranks);
    RUN(rank_graphs);
    RUN(memory);
    RUN(call_sites);
    tensor_keep(on(tensor_ones(3)));
    CHECK(tensor_shutdown() == 0 && tensor_cuda_memory_allocated(TENSOR_CUDA) == 0);
    CHECK(tensor_cuda_shutdown() == 0 && tensor_cuda_memory_reserved(TENSOR_CUDA) == 0);
    CHECK(tensor_cuda_init() == 0 && tensor_item(tensor_sum(on(tensor_ones(3)))) == 3);     // and again
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
#ifdef TEST_CUDA_SIM
    setenv("TENSOR_CUDA_NO_CACHE", "1", 1);     // an allocation is one of the driver's
    cusim_set("protect", 0);                    // of each of them, which takes time
    RUN(started);
    RUN(exhausted);
    unsetenv("TENSOR_CUDA_NO_CACHE");
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    cusim_set("live", 0);
    one_of_three();
#endif
#endif
    return test_report();
}

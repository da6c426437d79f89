// device.c - the door to other devices, tried with a mirror of the CPU.
#define TENSOR_BACKEND
#include "mirror.h"

static void no_device(void) {
    tensor_t *x = tensor_ones(2, 3);
    CHECK(tensor_device(x) == TENSOR_CPU && tensor_to(x, TENSOR_CPU) == x);
    CHECK_POISON(tensor_to(x, TENSOR_CUDA), TENSOR_ERR_DEVICE, "the CUDA backend is not started");
    CHECK(tensor_set_default_device(TENSOR_CUDA) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "set_default_device: no CUDA device 0");
    CHECK_POISON(tensor_to(x, 63), TENSOR_ERR_DTYPE, "to: 63 is no dtype and no device");
}
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
}

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
    y = tensor_to(x, TENSOR_CUDA + 1);
    CHECK(tensor_device(y) == TENSOR_CUDA + 1);
    CHECK(tensor_to(y, TENSOR_CUDA + 1) == y && tensor_equal(tensor_to(y, TENSOR_CUDA), x));
    CHECK_POISON(tensor_to(x, TENSOR_CUDA + 2), TENSOR_ERR_DEVICE, "no CUDA device 2");
    tensor_to_string(y, text, sizeof text);
    CHECK_TEXT(text, "tensor([1.0000, 2.5000, 3.0000], device='mirror:1')");
    CHECK(tensor_copy_out(tensor_expand(on(x), 2, 3), out, sizeof out) == 0 && out[4] == 2.5f);
    CHECK(tensor_data(y) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "data: x [3] lies on mirror; tensor_to(x, TENSOR_CPU) brings it here");
    CHECK(tensor_data_mut(y) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "data_mut");
    tensor_copy_(x, tensor_add_scalar(y, 1));
    CHECK(tensor_item(tensor_sum(x)) == 9.5);
    tensor_copy_(y, x);
    CHECK(tensor_item(tensor_sum(y)) == 9.5);
    z = tensor_to(on(tensor_zeros(0, 3)), TENSOR_CPU);
    tensor_to_string(on(tensor_zeros(0, 3)), text, sizeof text);
    tensor_to_string(z, want, sizeof want);
    CHECK(strncmp(text, want, strlen(want) - 1) == 0);
}

static void mixing(void) {
    tensor_t *x = tensor_randn(4, 3), *y = on(x), *s = tensor_scalar(2, TENSOR_F32), *loss;
    int i, blocks;
    CHECK_POISON(tensor_add(x, y), TENSOR_ERR_DEVICE, "add: tensors on cpu and mirror");
    CHECK_POISON(tensor_add(y, x), TENSOR_ERR_DEVICE, "add: tensors on cpu and mirror");
    CHECK_POISON(tensor_matmul(y, tensor_ones(3, 2)), TENSOR_ERR_DEVICE, "matmul");
    CHECK_POISON(tensor_add(y, tensor_to(x, TENSOR_CUDA + 1)), TENSOR_ERR_DEVICE, NULL);
    CHECK_POISON(tensor_add_(x, y), TENSOR_ERR_DEVICE, NULL);
    CHECK_POISON(tensor_add_(tensor_scalar(1, TENSOR_F32), on(s)), TENSOR_ERR_DEVICE,
                 "add_: x lies on the CPU");
    // 0-d tensors of the CPU go along, and their gradients come back.
    CHECK(tensor_equal(tensor_mul(y, s), tensor_mul(x, s)) && tensor_device(tensor_mul(s, y)) == TENSOR_CUDA);
    CHECK(tensor_equal(tensor_where(on(tensor_gt_scalar(x, 0)), s, y), tensor_where(tensor_gt_scalar(x, 0),
            s, x)));
    blocks = mirror_blocks;
    for (i = 0; i < 10; i++) tensor_mul(y, s);
    CHECK(mirror_blocks == blocks + 10);       // the results; the copies of s are gone
    tensor_requires_grad_(s, 1);
    loss = tensor_sum(tensor_mul(y, s));
    tensor_backward(loss);
    CHECK(tensor_device(tensor_grad(s)) == TENSOR_CPU && tensor_equal(tensor_grad(s), tensor_sum(x)));
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
    X((tensor_manual_seed(3), tensor_gumbel_softmax(x, 1, 1, 1)))                                            \
    X(tensor_embedding(tensor_argmax_dim(x, 1, 0), tensor_detach(tensor_mul_scalar(x, 1)), .max_norm = 0.5))

static tensor_t *positive(tensor_t *x) {
    tensor_t *eye = tensor_to(tensor_eye(4, 4), (int)tensor_device(x));
    return tensor_cholesky(tensor_add(tensor_matmul(x, tensor_mT(x)), eye), 0);
}
static void ops(void) {
    tensor_t *here = tensor_add_scalar(tensor_rand(4, 6), 0.5), *there = on(here);
    long before = mirror_kernels;
#define X(...)                                                                                               \
    {                                                                                                        \
        tensor_t *x = tensor_detach(here), *a, *b, *y, *z;                                                   \
        tensor_requires_grad_(x, 1);                                                                         \
        y = __VA_ARGS__;                                                                                     \
        a = tensor_requires_grad(y) ? tensor_sum(y) : NULL;                   \
        if (a) tensor_backward(a);                                                                           \
        a = tensor_grad(x);                                                                                  \
        x = tensor_detach(there);                                                                            \
        tensor_requires_grad_(x, 1);                                                                         \
        z = __VA_ARGS__;                                                                                     \
        CHECK_MSG(tensor_device(z) == TENSOR_CUDA && tensor_equal(y, off(z)), "%s", #__VA_ARGS__);           \
        b = a ? tensor_sum(z) : NULL;                                                                        \
        if (b) tensor_backward(b);                                                                           \
        b = b ? tensor_grad(x) : NULL;                                                                       \
        CHECK_MSG(!a || (b && tensor_equal(a, off(b))), "gradient of %s", #__VA_ARGS__);                     \
        CHECK_MSG(tensor_ok(), "%s: %s", #__VA_ARGS__, tensor_error_text());                                 \
        tensor_clear_error();                                                                                \
    }
    OPS(X)
#undef X
    CHECK(mirror_kernels > before + 100);
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
    CHECK(tensor_equal(loss[0], loss[1]));
    for (k = 0; k < n; k++) CHECK_MSG(tensor_equal(grad[0][k], grad[1][k]), "gradient %d", k);
    nn_free(m[0]);
    nn_free(m[1]);
}

// A network moved there computes what it computed here; the way back gives the same parameters.
static void moved(void) {
    nn_module_t *m = net(), *twin = nn_clone(m);
    tensor_t *x = tensor_randn(2, 1, 8, 8), *y = nn_forward(m, x), *p[8], *q[8];
    int k;
    CHECK(nn_to(m, TENSOR_CUDA) == 0);
    CHECK(tensor_equal(y, nn_forward(m, on(x))));
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_DEVICE, "tensors on");
    CHECK(nn_to(m, TENSOR_CPU) == 0);
    CHECK(nn_parameters(m, p, 8) == 8 && nn_parameters(twin, q, 8) == 8);
    for (k = 0; k < 8; k++) CHECK(tensor_device(p[k]) == TENSOR_CPU && tensor_equal(p[k], q[k]));
    nn_free(m);
    nn_free(twin);
}

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

int main(void) {
    RUN(no_device);
    RUN(other_version);
    RUN(to_and_fro);
    RUN(mixing);
    RUN(ops);
    RUN(network);
    RUN(moved);
    RUN(failures);
    tensor_keep(on(tensor_ones(3)));        // shutdown gives device memory back too
    CHECK(tensor_shutdown() == 0 && mirror_blocks == 0);
    return test_report();
}

// compile_bits.c - one line per group of operations with a hash of all result bits, forward and backward.
// Built with several language modes and optimisation levels by tests/compile.sh, which wants every build to
// print the same.
#include "test.h"

static void show(const char *name, uint64_t h) { printf("%-12s %016llx\n", name, (unsigned long long)h); }

// Hash of y and of the gradients that sum(y * weights) gives the leaves.
static uint64_t through(uint64_t h, tensor_t *y, tensor_t *const *leaves, int n) {
    int i;
    h = test_hash(h, y);
    tensor_backward(tensor_sum(tensor_mul(y, tensor_cos(tensor_detach(y)))));
    for (i = 0; i < n; i++) {
        h = test_hash(h, tensor_grad(leaves[i]));
        tensor_set_grad(leaves[i], NULL);
    }
    return h;
}

static tensor_t *leaf(tensor_t *x) { return tensor_requires_grad_(x, 1); }

static void random_numbers(void) {
    uint64_t h = TEST_HASH;
    h = test_hash(h, tensor_rand(1000));
    h = test_hash(h, tensor_randn(1001));
    h = test_hash(h, tensor_randint(-5, 1000000007, 33));
    h = test_hash(h, tensor_randperm(257));
    h = test_hash(h, tensor_bernoulli(tensor_full(0.3, 100)));
    show("random", h);
}

static void pointwise(void) {
    tensor_t *x = leaf(tensor_randn(7, 129)), *y = leaf(tensor_rand(129)), *in[2];
    tensor_t *p = tensor_add_scalar(tensor_square(x), 0.1);
    uint64_t h = TEST_HASH;
    in[0] = x;
    in[1] = y;
    h = through(h, tensor_div(tensor_mul(x, y), tensor_add_scalar(y, 1.5)), in, 2);
    h = through(h, tensor_add(tensor_exp(x), tensor_tanh(x)), in, 1);
    h = through(h, tensor_mul(tensor_sigmoid(x), tensor_gelu(x)), in, 1);
    h = through(h, tensor_sub(tensor_sin(x), tensor_cos(tensor_mul_scalar(x, 3))), in, 1);
    h = through(h, tensor_pow(p, y), in, 2);
    p = tensor_add_scalar(tensor_square(x), 0.1);
    h = through(h, tensor_add(tensor_log(p), tensor_rsqrt(p)), in, 1);
    h = through(h, tensor_addcmul(x, x, y, 0.7), in, 2);
    h = through(h, tensor_silu(tensor_erf(x)), in, 1);
    h = through(h, tensor_atan2(x, y), in, 2);
    h = test_hash(h, tensor_to(tensor_randn(333), TENSOR_BF16));
    h = test_hash(h, tensor_to(tensor_randn(333), TENSOR_F16));
    show("pointwise", h);
}

static void reductions(void) {
    tensor_t *x = leaf(tensor_randn(37, 1031)), *in[1];
    uint64_t h = TEST_HASH;
    in[0] = x;
    h = through(h, tensor_sum_dim(x, 0, 0), in, 1);
    h = through(h, tensor_mean_dim(x, 1, 0), in, 1);
    h = through(h, tensor_var_dim(x, 1, 1, 0), in, 1);
    h = through(h, tensor_softmax(x, 1), in, 1);
    h = through(h, tensor_log_softmax(x, 0), in, 1);
    h = through(h, tensor_logsumexp(x, 1, 0), in, 1);
    h = through(h, tensor_norm(x), in, 1);
    h = through(h, tensor_cumsum(x, 1), in, 1);
    show("reductions", h);
}

static void products(void) {
    tensor_t *a = leaf(tensor_randn(3, 67, 130)), *b = leaf(tensor_randn(130, 45)), *in[2];
    tensor_t *c = leaf(tensor_randn(200, 300)), *d = leaf(tensor_randn(300, 1)), *in2[2];
    uint64_t h = TEST_HASH;
    in[0] = a;
    in[1] = b;
    in2[0] = c;
    in2[1] = d;
    h = through(h, tensor_matmul(a, b), in, 2);
    h = through(h, tensor_matmul(c, d), in2, 2);
    h = through(h, tensor_matmul(tensor_mT(c), c), in2, 1);
    a = tensor_randn(1, 513);                          // C leaves open which argument is drawn first
    b = tensor_randn(513, 9);
    h = test_hash(h, tensor_matmul(a, b));
    a = tensor_to(tensor_randn(9, 65), TENSOR_F64);
    b = tensor_to(tensor_randn(65, 33), TENSOR_F64);
    h = test_hash(h, tensor_matmul(a, b));
    show("products", h);
}

static void layers(void) {
    tensor_t *x = leaf(tensor_randn(3, 4, 15, 14)), *w = leaf(tensor_randn(8, 4, 5, 5)), *in[2];
    tensor_t *q = leaf(tensor_randn(2, 3, 33, 16)), *in2[1];
    uint64_t h = TEST_HASH;
    in[0] = x;
    in[1] = w;
    in2[0] = q;
    h = through(h, tensor_conv2d(x, w), in, 2);
    h = through(h, tensor_max_pool2d(x, 2), in, 1);
    h = through(h, tensor_avg_pool2d(x, 3), in, 1);
    in[0] = leaf(tensor_randn(9, 16, 9, 10));   // outputs in vectors
    in[1] = leaf(tensor_randn(40, 16, 3, 3));
    tensor_conv_args_t padded = tensor_conv_defaults();
    padded.x = in[0];
    padded.weight = in[1];
    padded.padding = 1;
    h = through(h, tensor_conv2d_with(padded), in, 2);
    h = through(h, tensor_scaled_dot_product_attention(q, q, q), in2, 1);
    h = through(h, tensor_dropout(q, 0.2, 1), in2, 1);
    show("layers", h);
}

static void training(void) {
    nn_module_t *net = nn_sequential(nn_conv2d(1, 6, 3), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                                     nn_linear(54, 32), nn_layer_norm(32), nn_gelu(), nn_linear(32, 5));
    nn_optimizer_t *opt = nn_adamw(net);
    tensor_t *x = tensor_randn(10, 1, 8, 8), *y = tensor_randint(0, 5, 10);
    uint64_t h = TEST_HASH;
    int step;
    for (step = 0; step < 5; step++) {
        tensor_t *loss = tensor_cross_entropy(nn_forward(net, x), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        h = test_hash(h, loss);
    }
    h = test_hash(h, nn_forward(net, x));
    show("training", h);
}

int main(int argc, char **argv) {
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    tensor_manual_seed(5);
    random_numbers();
    pointwise();
    reductions();
    products();
    layers();
    training();
    if (!tensor_ok()) { printf("%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

// ops.c [threads] - single operations of the sizes deep learning uses: matrix products, convolutions,
// elementwise work in and beyond the caches, reductions, random numbers, and what they cost with gradients.
#include "bench.h"

#include "tensor_nn.h"

#include <string.h>

typedef struct case_t {
    const char *row;
    double work;                           // flops or elements per call; the row says GF/s or Gelem/s
    int mode;                              // 0 product, 1 elements, 2 with backward, 3 product with backward
    tensor_t *(*run)(const struct case_t *c);
    tensor_t *a, *b, *i;
    int64_t stride, padding, groups;
} case_t;

static tensor_t *matmul(const case_t *c) { return tensor_matmul(c->a, c->b); }
static tensor_t *linear(const case_t *c) { return tensor_linear(c->a, c->b, NULL); }
static tensor_t *add(const case_t *c) { return tensor_add(c->a, c->b); }
static tensor_t *mul(const case_t *c) { return tensor_mul(c->a, c->b); }
static tensor_t *where(const case_t *c) { return tensor_where(c->i, c->a, c->b); }
static tensor_t *power(const case_t *c) { return tensor_pow_scalar(c->a, 2.5); }
static tensor_t *softmax(const case_t *c) { return tensor_softmax(c->a, 1); }
static tensor_t *layer_norm(const case_t *c) {
    return tensor_layer_norm(c->a, 1, .weight = c->b, .bias = c->b);
}
static tensor_t *batch_norm(const case_t *c) {
    return tensor_batch_norm(c->a, tensor_zeros(64), tensor_ones(64), .weight = c->b, .bias = c->b,
                             .training = 1);
}
static tensor_t *cross_entropy(const case_t *c) { return tensor_cross_entropy(c->a, c->i); }
static tensor_t *argmax_dim(const case_t *c) { return tensor_argmax_dim(c->a, 1, 0); }
static tensor_t *random(const case_t *c) { return tensor_rand(tensor_numel(c->a)); }
static tensor_t *normal(const case_t *c) { return tensor_randn(tensor_numel(c->a)); }
static tensor_t *dropout(const case_t *c) { return tensor_dropout(c->a, 0.1, 1); }
static tensor_t *max_pool(const case_t *c) { return tensor_max_pool2d(c->a, 2); }
static tensor_t *transposed(const case_t *c) { return tensor_contiguous(tensor_transpose(c->a, 0, 1)); }
static tensor_t *conv(const case_t *c) {
    return tensor_conv2d(c->a, c->b, .stride = c->stride, .padding = c->padding, .groups = c->groups);
}
#define UNARY(name) static tensor_t *run_##name(const case_t *c) { return tensor_##name(c->a); }
UNARY(relu) UNARY(exp) UNARY(tanh) UNARY(erf) UNARY(gelu) UNARY(gelu_tanh) UNARY(sigmoid) UNARY(sum)
UNARY(argmax)

static void repeat(void *arg, long repeats) {
    const case_t *c = (const case_t *)arg;
    tensor_scope_t scope = c->mode >= 2 ? tensor_scope_begin() : tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_t *y = c->run(c);
        if (c->mode < 2) { continue; }
        if (tensor_numel(y) == 1) {
            tensor_backward(y);
        } else {
            tensor_backward_with(y, y, 0);
        }
        tensor_set_grad(c->a, NULL);
        if (c->b && tensor_requires_grad(c->b)) { tensor_set_grad(c->b, NULL); }
    }
    tensor_scope_end(scope);
}
static void measure(case_t c) {
    int product = c.mode == 0 || c.mode == 3;
    if (c.mode >= 2) { tensor_requires_grad_(c.a, 1); }
    if (c.mode >= 2 && c.b) { tensor_requires_grad_(c.b, 1); }
    bench_row(c.row, 1e-9 * c.work / bench_median(repeat, &c), product ? "GF/s" : "Gelem/s");
}

static void product_of(tensor_dtype_t dtype, const char *row, int64_t m, int64_t n, int64_t k, int nt) {
    tensor_scope_t scope = tensor_scope_begin();
    case_t c;
    memset(&c, 0, sizeof c);
    c.row = row;
    c.work = 2.0 * (double)m * (double)n * (double)k;
    c.run = nt ? linear : matmul;
    c.a = tensor_to(tensor_randn(m, k), dtype);
    c.b = tensor_to(nt ? tensor_randn(n, k) : tensor_randn(k, n), dtype);
    measure(c);
    tensor_scope_end(scope);
}
static void product(const char *row, int64_t m, int64_t n, int64_t k, int nt) {
    product_of(TENSOR_F32, row, m, n, k, nt);
}
static void elements(const char *row, tensor_t *(*run)(const case_t *c), int64_t rows, int64_t columns,
                     int backward) {
    tensor_scope_t scope = tensor_scope_begin();
    case_t c;
    memset(&c, 0, sizeof c);
    c.row = row;
    c.work = (double)(rows * columns);
    c.mode = backward ? 2 : 1;
    c.run = run;
    c.a = tensor_rand(rows, columns);
    if (run == max_pool || run == batch_norm) { c.a = tensor_reshape(c.a, 16, rows / 16, columns / 32, 32); }
    if (run == batch_norm) { c.b = tensor_ones(64); }
    if (run == layer_norm) { c.b = tensor_ones(columns); }
    if (run == add || run == mul || run == where) { c.b = tensor_randn(rows, columns); }
    if (run == where) { c.i = tensor_gt_scalar(c.a, 0.5); }
    if (run == cross_entropy) { c.i = tensor_randint(0, columns, rows); }
    measure(c);
    tensor_scope_end(scope);
}
static void convolution(const char *row, int64_t n, int64_t in, int64_t out, int64_t kernel, int64_t size,
                        int64_t stride, int64_t groups, int backward) {
    tensor_scope_t scope = tensor_scope_begin();
    case_t c;
    int64_t o = (size + kernel / 2 * 2 - kernel) / stride + 1;
    memset(&c, 0, sizeof c);
    c.row = row;
    c.work = 2.0 * (double)(n * out * o * o) * (double)(in / groups * kernel * kernel) * (backward ? 3 : 1);
    c.mode = backward ? 3 : 0;
    c.run = conv;
    c.a = tensor_randn(n, in, size, size);
    c.b = tensor_randn(out, in / groups, kernel, kernel);
    c.stride = stride;
    c.padding = kernel / 2;
    c.groups = groups;
    measure(c);
    tensor_scope_end(scope);
}

int main(int argc, char **argv) {
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    product("sgemm_16", 16, 16, 16, 0);
    product("sgemm_32", 32, 32, 32, 0);
    product("sgemm_64", 64, 64, 64, 0);
    product("sgemm_128", 128, 128, 128, 0);
    product("sgemm_256", 256, 256, 256, 0);
    product("sgemm_512", 512, 512, 512, 0);
    product("sgemm_1024", 1024, 1024, 1024, 0);
    product("sgemm_2048", 2048, 2048, 2048, 0);
    product("linear_1x1024x1024", 1, 1024, 1024, 1);
    product("linear_8x1024x1024", 8, 1024, 1024, 1);
    product("linear_20x800x400", 20, 800, 400, 1);
    product("linear_64x512x784", 64, 512, 784, 1);
    product("linear_128x3072x768", 128, 3072, 768, 1);
    product_of(TENSOR_BF16, "bf16_512", 512, 512, 512, 0);
    product_of(TENSOR_BF16, "bf16_1x1024x1024", 1, 1024, 1024, 1);
    product_of(TENSOR_BF16, "bf16_128x3072x768", 128, 3072, 768, 1);
    convolution("conv_lenet1", 64, 1, 32, 5, 28, 1, 1, 0);
    convolution("conv_lenet1_both", 64, 1, 32, 5, 28, 1, 1, 1);
    convolution("conv_lenet2", 64, 32, 64, 5, 12, 1, 1, 0);
    convolution("conv_lenet2_both", 64, 32, 64, 5, 12, 1, 1, 1);
    convolution("conv_64_3x3", 32, 64, 64, 3, 32, 1, 1, 0);
    convolution("conv_64_3x3_both", 32, 64, 64, 3, 32, 1, 1, 1);
    convolution("conv_256_3x3", 32, 256, 256, 3, 8, 1, 1, 0);
    convolution("conv_256_3x3_both", 32, 256, 256, 3, 8, 1, 1, 1);
    convolution("conv_1x1", 4, 256, 64, 1, 56, 1, 1, 0);
    convolution("conv_1x1_both", 4, 256, 64, 1, 56, 1, 1, 1);
    convolution("conv_7x7_stem", 4, 3, 64, 7, 224, 2, 1, 0);
    convolution("conv_depthwise", 4, 128, 128, 3, 56, 1, 128, 0);
    convolution("conv_depthwise_both", 4, 128, 128, 3, 56, 1, 128, 1);
    elements("add", add, 64, 1024, 0);
    elements("mul", mul, 64, 1024, 0);
    elements("relu", run_relu, 64, 1024, 0);
    elements("sum", run_sum, 64, 1024, 0);
    elements("add_64MB", add, 16384, 1024, 0);
    elements("exp", run_exp, 1024, 1024, 0);
    elements("sigmoid", run_sigmoid, 1024, 1024, 0);
    elements("tanh", run_tanh, 1024, 1024, 0);
    elements("erf", run_erf, 1024, 1024, 0);
    elements("gelu", run_gelu, 1024, 1024, 0);
    elements("gelu_tanh", run_gelu_tanh, 1024, 1024, 0);
    elements("pow", power, 1024, 1024, 0);
    elements("where", where, 1024, 1024, 0);
    elements("argmax", run_argmax, 1024, 1024, 0);
    elements("argmax_dim", argmax_dim, 1024, 1024, 0);
    elements("rand", random, 1024, 1024, 0);
    elements("randn", normal, 1024, 1024, 0);
    elements("dropout", dropout, 1024, 1024, 0);
    elements("max_pool2d", max_pool, 1024, 1024, 0);
    elements("transpose", transposed, 1024, 1024, 0);
    elements("softmax", softmax, 1024, 1000, 0);
    elements("softmax_both", softmax, 1024, 1000, 1);
    elements("layer_norm", layer_norm, 1024, 768, 0);
    elements("layer_norm_both", layer_norm, 1024, 768, 1);
    elements("cross_entropy", cross_entropy, 1024, 1000, 0);
    elements("cross_entropy_both", cross_entropy, 1024, 1000, 1);
    elements("batch_norm", batch_norm, 1024, 1024, 0);
    elements("batch_norm_both", batch_norm, 1024, 1024, 1);
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

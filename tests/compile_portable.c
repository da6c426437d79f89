// compile_portable.c - the losses of 100 training steps of small nets as bytes, and hashes of ops
//
//   compile_portable THREADS PART ...        mlp, cnn, lstm, gpt, ops
//
// tests/portable.sh builds it with TENSOR_ISA=portable for several processors, by several compilers and at
// several levels of optimisation, and wants every build to print the same. C leaves open which argument of a
// call is computed first, so a layer, which draws its parameters, has a line of its own.
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 100 };

static const char *net_name;
static int net_step;

static void show(const char *what, tensor_t *value) {
    float f = (float)tensor_item(value);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    printf("%s %d %s %08lx\n", net_name, net_step, what, (unsigned long)bits);
}

static void finish(nn_optimizer_t *optimizer, tensor_t *loss) {
    show("loss", loss);
    nn_zero_grad(optimizer);
    tensor_backward(loss);
    show("norm", nn_clip_grad_norm(optimizer, 1));
    nn_step(optimizer);
    net_step++;
}

static void mlp(void) {
    nn_module_t *first = nn_linear(13, 40);
    nn_module_t *second = nn_linear(40, 24);
    nn_module_t *third = nn_linear(24, 5);
    nn_module_t *net = nn_sequential(first, nn_tanh(), second, nn_relu(), third);
    nn_optimizer_t *optimizer = nn_adam(net);
    tensor_t *x = tensor_randn(37, 13);
    tensor_t *y = tensor_randint(0, 5, 37);
    while (net_step < STEPS) {
        tensor_scope_t scope = tensor_scope_begin();
        nn_set_lr(optimizer, nn_lr_cosine(net_step, STEPS, 0.01, 0.001));
        finish(optimizer, tensor_cross_entropy(nn_forward(net, x), y));
        tensor_scope_end(scope);
    }
    nn_optimizer_free(optimizer);
    nn_free(net);
}

static void cnn(void) {
    nn_module_t *first = nn_conv2d(1, 6, 3);
    nn_module_t *second = nn_conv2d(6, 8, 3);
    nn_module_t *third = nn_linear(32, 10);
    nn_module_t *net = nn_sequential(first, nn_batch_norm2d(6), nn_relu(), nn_max_pool2d(2), second,
                                     nn_gelu(), nn_max_pool2d(2), nn_flatten(), nn_dropout(0.1), third);
    nn_optimizer_t *optimizer = nn_sgd(net);
    tensor_t *x = tensor_randn(6, 1, 14, 14);
    tensor_t *y = tensor_randint(0, 10, 6);
    nn_set_lr(optimizer, 0.05);
    while (net_step < STEPS) {
        tensor_scope_t scope = tensor_scope_begin();
        finish(optimizer, tensor_cross_entropy(nn_forward(net, x), y));
        tensor_scope_end(scope);
    }
    nn_optimizer_free(optimizer);
    nn_free(net);
}

static void lstm(void) {
    nn_module_t *token = nn_embedding(11, 12);
    nn_module_t *body = nn_lstm(12, 16);
    nn_module_t *head = nn_linear(16, 5);
    nn_module_t *net = nn_sequential(token, body, head);
    nn_optimizer_t *optimizer = nn_adamw(net);
    tensor_t *x = tensor_randint(0, 11, 7, 5);
    tensor_t *y = tensor_randn(5, 5);
    while (net_step < STEPS) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *h = NULL, *c = NULL;
        tensor_t *states = nn_lstm_forward(body, nn_forward(token, x), &h, &c);
        tensor_t *guess = nn_forward(head, tensor_select(states, 0, -1));
        finish(optimizer, tensor_add(tensor_mse_loss(guess, y), tensor_mean(tensor_square(c))));
        tensor_free(h);
        tensor_free(c);
        tensor_scope_end(scope);
    }
    nn_optimizer_free(optimizer);
    nn_free(net);
}

static void gpt(void) {
    enum { WIDTH = 24, HEADS = 2, LENGTH = 9, ITEMS = 4, VOCABULARY = 17 };
    nn_module_t *token = nn_embedding(VOCABULARY, WIDTH);
    nn_module_t *place = nn_embedding(LENGTH, WIDTH);
    nn_module_t *norm = nn_layer_norm(WIDTH);
    nn_module_t *qkv = nn_linear(WIDTH, 3 * WIDTH);
    nn_module_t *out = nn_linear(WIDTH, WIDTH);
    nn_module_t *wide = nn_linear(WIDTH, 4 * WIDTH);
    nn_module_t *back = nn_linear(4 * WIDTH, WIDTH);
    nn_module_t *head = nn_linear(WIDTH, VOCABULARY);
    nn_module_t *mixer = nn_sequential(nn_layer_norm(WIDTH), wide, nn_gelu(), back);
    nn_module_t *net = nn_sequential(token, place, norm, qkv, out, mixer, head);
    nn_optimizer_t *optimizer = nn_adamw(net);
    tensor_t *x = tensor_randint(0, VOCABULARY, ITEMS, LENGTH);
    tensor_t *y = tensor_randint(0, VOCABULARY, ITEMS * LENGTH);
    tensor_t *order = tensor_arange(0, LENGTH, 1, TENSOR_I64);
    while (net_step < STEPS) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *h = tensor_add(nn_forward(token, x), nn_forward(place, order));
        tensor_t *p = nn_forward(qkv, nn_forward(norm, h));
        p = tensor_reshape(p, ITEMS, LENGTH, 3, HEADS, WIDTH / HEADS);
        p = tensor_permute(p, 2, 0, 3, 1, 4);
        tensor_scaled_dot_product_attention_args_t attention = tensor_scaled_dot_product_attention_defaults();
        attention.query = tensor_select(p, 0, 0);
        attention.key = tensor_select(p, 0, 1);
        attention.value = tensor_select(p, 0, 2);
        attention.is_causal = 1;
        p = tensor_scaled_dot_product_attention_with(attention);
        p = tensor_reshape(tensor_transpose(p, 1, 2), ITEMS, LENGTH, WIDTH);
        h = tensor_add(h, nn_forward(out, p));
        h = tensor_add(h, nn_forward(mixer, h));
        h = tensor_reshape(nn_forward(head, h), ITEMS * LENGTH, VOCABULARY);
        finish(optimizer, tensor_cross_entropy(h, y));
        tensor_scope_end(scope);
    }
    nn_optimizer_free(optimizer);
    nn_free(net);
}

// A hash of the bits of y, in the order of the elements whatever the processor's order of bytes is, and of
// x's gradient. The bits of a NaN are its processor's own.
static uint64_t words(uint64_t h, tensor_t *y) {
    tensor_t *t = tensor_to(tensor_contiguous(y), TENSOR_F64);
    const double *d = (const double *)tensor_data(t);
    for (int64_t i = 0; i < tensor_numel(t); i++) {
        uint64_t u = 0x7FF8000000000000u;
        if (d[i] == d[i]) { memcpy(&u, d + i, sizeof u); }
        h = (h ^ u) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}

static void hash(const char *name, tensor_t *x, tensor_t *y) {
    uint64_t h = words(1469598103934665603u, y);
    if (tensor_requires_grad(y)) {
        tensor_backward(tensor_sum(y));
        h = words(h, tensor_grad(x));
        tensor_set_grad(x, NULL);
    }
    printf("%s %08lx%08lx\n", name, (unsigned long)(h >> 32), (unsigned long)(h & 0xFFFFFFFFu));
}

static void pointwise(tensor_t *x) {
    // positive, between -1 and 1, at least 1; each a leaf, so that its gradient is that of one op
    tensor_t *p = tensor_requires_grad_(tensor_detach(tensor_add_scalar(tensor_abs(x), 0.01)), 1);
    tensor_t *u = tensor_requires_grad_(tensor_detach(tensor_tanh(x)), 1);
    tensor_t *g = tensor_requires_grad_(tensor_detach(tensor_add_scalar(tensor_abs(x), 1)), 1);
#define OF(f, a) hash(#f, a, tensor_##f(a));
    OF(exp, x) OF(exp2, x) OF(expm1, x) OF(sin, x) OF(cos, x) OF(tan, x) OF(atan, x) OF(sinh, x) OF(cosh, x)
    OF(tanh, x) OF(asinh, x) OF(erf, x) OF(erfc, x) OF(sigmoid, x) OF(silu, x) OF(gelu, x) OF(mish, x)
    OF(selu, x) OF(logsigmoid, x) OF(sinc, x) OF(round, x) OF(floor, x) OF(log, p) OF(log2, p) OF(log10, p)
    OF(log1p, p) OF(sqrt, p) OF(rsqrt, p) OF(reciprocal, p) OF(lgamma, p) OF(digamma, p) OF(asin, u)
    OF(acos, u) OF(atanh, u) OF(erfinv, u) OF(acosh, g)
    hash("elu", x, tensor_elu(x, 1));
    hash("softplus", x, tensor_softplus(x, 1, 20));
    hash("pow", p, tensor_pow(p, u));
    hash("atan2", u, tensor_atan2(u, p));
    hash("fmod", x, tensor_fmod(x, g));
    hash("remainder", x, tensor_remainder(x, g));
    hash("hypot", x, tensor_hypot(x, u));
    hash("logaddexp", x, tensor_logaddexp(x, u));
    hash("div", x, tensor_div(x, g));
    hash("maximum", x, tensor_maximum(x, u));
    hash("lerp", x, tensor_addcmul(x, u, g, 0.7));
}

static void ops(void) {
    for (int wide = 0; wide < 2; wide++) {
        tensor_dtype_t dtype = wide ? TENSOR_F64 : TENSOR_F32;
        tensor_t *x = tensor_requires_grad_(tensor_mul_scalar(tensor_to(tensor_randn(13, 67), dtype), 3), 1);
        x = tensor_requires_grad_(tensor_detach(x), 1);
        pointwise(x);
        OF(sum, x) OF(mean, x) OF(norm, x) OF(max, x)
        hash("sum_dim", x, tensor_sum_dim(x, 0, 0));
        hash("var_dim", x, tensor_var_dim(x, 1, 1, 0));
        hash("softmax", x, tensor_square(tensor_softmax(x, 1)));
        hash("log_softmax", x, tensor_log_softmax(x, 0));
        hash("logsumexp", x, tensor_logsumexp(x, 1, 0));
        hash("cumsum", x, tensor_cumsum(x, 1));
        hash("layer_norm", x, tensor_square(tensor_layer_norm(x)));
        hash("huber_loss", x, tensor_huber_loss(x, tensor_zeros_like(x)));
        tensor_t *wide_angles = tensor_mul_scalar(tensor_detach(x), 1e6);
        hash("large angles", x, tensor_sin(wide_angles));
        // products on all their paths: tiny, packed, a row, a column, a short depth, both transposed
        static const int64_t shapes[][3] = {{3, 5, 7},   {35, 66, 45}, {1, 313, 9},
                                            {80, 90, 1}, {33, 2, 65},  {50, 500, 30}};
        for (int i = 0; i < 6; i++) {
            int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
            tensor_t *a = tensor_requires_grad_(tensor_to(tensor_randn(m, k), dtype), 1);
            tensor_t *b = tensor_to(tensor_randn(k, n), dtype);
            hash("matmul", a, tensor_square(tensor_matmul(a, b)));
            hash("matmul, transposed", a, tensor_square(tensor_matmul(tensor_mT(b), tensor_mT(a))));
        }
        for (int stride = 1; stride < 3; stride++) {
            tensor_t *image = tensor_requires_grad_(tensor_to(tensor_randn(2, 16, 11, 10), dtype), 1);
            tensor_t *kernel = tensor_to(tensor_randn(24, 16, 3, 3), dtype);
            tensor_conv_args_t a = tensor_conv_defaults();
            a.x = image;
            a.weight = kernel;
            a.stride = stride;
            a.padding = 1;
            tensor_t *y = tensor_conv2d_with(a);
            hash("conv2d", image, tensor_square(y));
            hash("max_pool2d", image, tensor_square(tensor_max_pool2d(image, 3)));
            hash("avg_pool2d", image, tensor_square(tensor_avg_pool2d(image, 2)));
        }
    }
    tensor_t *x = tensor_randn(555);
    hash("f16", x, tensor_to(x, TENSOR_F16));
    hash("bf16", x, tensor_to(x, TENSOR_BF16));
    hash("i32", x, tensor_to(tensor_mul_scalar(x, 1e10), TENSOR_I32));
    hash("poisson", x, tensor_poisson(tensor_abs(tensor_mul_scalar(x, 20))));
    hash("bernoulli", x, tensor_bernoulli(tensor_sigmoid(x)));
    hash("randperm", x, tensor_randperm(257));
    hash("sort", x, tensor_topk(x, 100, 0, 1, 1).values);
}

int main(int argc, char **argv) {
    tensor_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    for (int i = 2; i < argc; i++) {
        net_name = argv[i];
        net_step = 0;
        tensor_manual_seed(5);
        if (!strcmp(net_name, "mlp")) { mlp(); }
        if (!strcmp(net_name, "cnn")) { cnn(); }
        if (!strcmp(net_name, "lstm")) { lstm(); }
        if (!strcmp(net_name, "gpt")) { gpt(); }
        if (!strcmp(net_name, "ops")) { ops(); }
    }
    printf("%s\n", tensor_isa_name());
    if (!tensor_ok()) { printf("%s\n", tensor_error_text()); }
    return tensor_shutdown();
}

// nn.c - modules, layers, initialisation, optimizers, schedules, data, safetensors
#ifdef __linux__
#define _XOPEN_SOURCE 600   // symlink, lstat
#endif
#include "test.h"

#ifdef __linux__
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

// ---- modules ----

typedef struct { nn_module_t base; tensor_t *w; nn_module_t *fc; int destroyed; } my_t;

static tensor_t *my_forward(nn_module_t *m, tensor_t *x) {
    my_t *my = (my_t *)m;
    return nn_forward(my->fc, tensor_mul(x, my->w));
}

static int destroyed;
static void my_destroy(nn_module_t *m) {
    (void)m;
    destroyed++;
}

static void my_init(my_t *my) {
    nn_module_init(&my->base, "My", my_forward, my_destroy);
    my->w = nn_parameter(&my->base, "w", tensor_full(2, 4));
    my->fc = nn_child(&my->base, "fc", nn_linear(4, 2));
    nn_buffer(&my->base, "seen", tensor_zeros(1));
}

static void user_module(void) {
    my_t my;
    nn_named_list_t list;
    tensor_t *y, *out[8];
    char text[400];
    destroyed = 0;
    my_init(&my);
    CHECK(my.base.code == 0 && my.base.training);
    y = nn_forward(&my.base, tensor_ones(3, 4));
    CHECK(tensor_size(y, 0) == 3 && tensor_size(y, 1) == 2);
    list = nn_named_parameters(&my.base);
    CHECK(list.count == 3);
    CHECK_TEXT(list.item[0].name, "w");
    CHECK_TEXT(list.item[1].name, "fc.weight");
    CHECK_TEXT(list.item[2].name, "fc.bias");
    list = nn_state(&my.base);
    CHECK(list.count == 4);
    CHECK_TEXT(list.item[1].name, "seen");
    CHECK(list.item[1].is_buffer && !list.item[0].is_buffer);
    CHECK(nn_parameters(&my.base, out, 8) == 3 && out[0] == my.w);
    CHECK(nn_parameters(&my.base, NULL, 0) == 3);
    CHECK(nn_num_parameters(&my.base) == 4 + 8 + 2);
    CHECK(nn_get(&my.base, "fc.bias") == out[2]);
    CHECK(nn_get_child(&my.base, "fc") == my.fc);
    CHECK_POISON(nn_get(&my.base, "fc.nothing"), TENSOR_ERR_INDEX, "fc.nothing");
    CHECK(nn_get_child(&my.base, "w") == NULL);
    CHECK_ERROR(TENSOR_ERR_INDEX, "no module");
    nn_to_string(&my.base, text, sizeof text);
    CHECK_TEXT(text, "My(\n  (fc): Linear(in_features=4, out_features=2, bias=True)\n)");
    CHECK(nn_to_string(&my.base, NULL, 0) == strlen(text));
    nn_eval(&my.base);
    CHECK(!my.base.training && !my.fc->training);
    nn_train(&my.base);
    CHECK(my.base.training && my.fc->training);
    nn_requires_grad_(&my.base, 0);
    CHECK(!tensor_requires_grad(my.w));
    nn_requires_grad_(&my.base, 1);
    tensor_backward(tensor_sum(nn_forward(&my.base, tensor_ones(3, 4))));
    CHECK(tensor_grad(my.w) != NULL);
    nn_module_zero_grad(&my.base);
    CHECK((tensor_grad)(my.w) == NULL);
    CHECK(nn_free(my.fc) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "part of another");
    CHECK(nn_free(&my.base) == 0 && destroyed == 1);
    CHECK(nn_free(&my.base) == TENSOR_ERR_OWNER && destroyed == 1);
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed already");
}

static void failed_modules(void) {
    my_t my;
    nn_module_t *m, *s;
    tensor_t *g = tensor_requires_grad_(tensor_ones(2), 1);
    CHECK(nn_linear(0, 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "in_features");
    CHECK(nn_conv2d(3, 4, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: kernel 0 must be at least 1 and below 2^30 at ");
    s = nn_sequential(nn_linear(2, 2), nn_conv2d(3, 4, 3, .groups = 2), nn_relu());
    CHECK_ERROR(TENSOR_ERR_SHAPE, "multiple of groups");
    CHECK_POISON(nn_forward(s, tensor_ones(2, 2)), TENSOR_ERR_SHAPE, "Sequential failed when it was made");
    CHECK(nn_adam(s) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(nn_save("nn_failed.safetensors", s) != 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(fopen("nn_failed.safetensors", "rb") == NULL);
    nn_free(s);
    CHECK_POISON(nn_forward(NULL, g), TENSOR_ERR_POISONED, "forward");
    CHECK(nn_step(NULL) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    nn_module_init(&my.base, "My", my_forward, NULL);
    CHECK_POISON(nn_parameter(&my.base, "a.b", tensor_ones(1)), TENSOR_ERR_SHAPE, "dot");
    CHECK(my.base.code == TENSOR_ERR_SHAPE);
    nn_free(&my.base);
    nn_module_init(&my.base, "My", my_forward, NULL);
    CHECK_POISON(nn_parameter(&my.base, "w", tensor_mul_scalar(g, 2)), TENSOR_ERR_AUTOGRAD, "recorded");
    nn_free(&my.base);
    nn_module_init(&my.base, "My", my_forward, NULL);
    CHECK_POISON(nn_parameter(&my.base, "w", tensor_zeros_of(TENSOR_I64, 2)), TENSOR_ERR_DTYPE, NULL);
    nn_free(&my.base);
    m = nn_sequential(nn_identity());
    s = nn_sequential(m);
    nn_append(m, s);
    CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
    nn_free(s);
}

// Freed twice, used after: told, not followed.
static void freed_objects(void) {
    nn_module_t *inner = nn_linear(2, 2), *m = nn_sequential(inner, nn_relu()), *other;
    nn_optimizer_t *o = nn_adam(m);
    tensor_t *x = tensor_ones(1, 2);
    my_t my;
    CHECK(nn_free(m) == 0);
    other = nn_sequential(nn_relu());
    CHECK(nn_free(m) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed already at nn.c");
    CHECK(nn_free(inner) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed already at nn.c");
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_POISONED, "forward: the module was freed");
    CHECK_POISON(nn_get(inner, "weight"), TENSOR_ERR_POISONED, "get: the module was freed");
    CHECK(nn_named_parameters(m).count == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "was freed");
    nn_append(other, m);
    CHECK_ERROR(TENSOR_ERR_POISONED, "the child was freed");
    nn_free(other);
    // A user's module that went with its parent.
    my_init(&my);
    other = nn_sequential(&my.base);
    nn_free(other);
    CHECK(nn_free(&my.base) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed already");
    CHECK_POISON(nn_forward(&my.base, x), TENSOR_ERR_POISONED, "was freed");
    memset(&my, 0, sizeof my);
    CHECK_POISON(nn_forward(&my.base, x), TENSOR_ERR_POISONED, "never initialised");
    CHECK(nn_free(&my.base) == 0);
    CHECK(nn_step(o) == 0 && nn_optimizer_free(o) == 0);
    CHECK(nn_optimizer_free(o) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "optimizer_free: the optimizer was freed");
    CHECK(nn_step(o) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "step: the optimizer was freed");
    CHECK(nn_zero_grad(o) == TENSOR_ERR_OWNER);
    tensor_clear_error();
}

static void null_arguments(void) {
    nn_progress_t bar;
    nn_module_t *m = nn_linear(2, 2), *s;
    const char *const name = "x";
    const nn_metadata_t half = {"key", NULL};
    tensor_t *x = tensor_ones(2);
    CHECK_POISON(nn_get(m, NULL), TENSOR_ERR_POISONED, "get: name is NULL");
    CHECK_POISON(nn_get(NULL, "x"), TENSOR_ERR_POISONED, "get: the module is NULL");
    CHECK(nn_get_child(m, NULL) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "get_child: name is NULL");
    s = nn_sequential_n(NULL, 3);
    CHECK_ERROR(TENSOR_ERR_POISONED, "sequential: the list is NULL");
    CHECK(s && s->code == TENSOR_ERR_POISONED);
    nn_free(s);
    nn_module_init(NULL, "My", my_forward, NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "module_init: the module is NULL");
    CHECK(nn_next(NULL, NULL) == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "next: ");
    CHECK(nn_parameters(m, NULL, 3) == 2);
    CHECK_POISON(nn_safetensors_format(NULL, &x, 1, NULL, 0), TENSOR_ERR_POISONED, "names is NULL");
    CHECK_POISON(nn_safetensors_format(&name, NULL, 1, NULL, 0), TENSOR_ERR_POISONED, "tensors is NULL");
    CHECK_POISON(nn_safetensors_format(&name, &x, 1, NULL, 1), TENSOR_ERR_POISONED, "metadata is NULL");
    CHECK_POISON(nn_safetensors_format(&name, &x, 1, &half, 1), TENSOR_ERR_POISONED,
                 "metadata string is NULL");
    CHECK(nn_safetensors_write("nn_null", NULL, NULL, 1, NULL, 0) == TENSOR_ERR_POISONED);
    tensor_clear_error();
    CHECK(fopen("nn_null", "rb") == NULL);
    nn_clip_grad_norm_n(NULL, 3, 1);
    CHECK_ERROR(TENSOR_ERR_POISONED, "clip_grad_norm: the list is NULL");
    CHECK(nn_clip_grad_value_n(NULL, 3, 1) == TENSOR_ERR_POISONED);
    tensor_clear_error();
    nn_progress(NULL, 1, NULL);
    bar = nn_progress_begin(NULL, 7, 2);
    CHECK(bar.total == 7 && bar.first == 2 && bar.last == 2 && bar.label[0] == 0);
    CHECK(nn_adam(NULL) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "adam: the module is NULL");
    CHECK(nn_adam(.list = NULL, .count = 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_POISONED, "adam: the list is NULL");
    CHECK(nn_step(NULL) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "step: the optimizer is NULL");
    CHECK(nn_adam(m, .beta1 = 1.0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "beta1 must be >= 0 and < 1 (got 1)");
    nn_free(m);
    m = nn_relu();
    CHECK(nn_adam(m) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "adam: at least one parameter is needed");
    nn_free(m);
}

// Error texts name an argument as the signature does.
static void argument_names(void) {
    tensor_t *x = tensor_ones(2, 3), *d = tensor_ones_of(TENSOR_F64, 2, 3),
        *i = tensor_zeros_of(TENSOR_I64, 2, 3);
    CHECK_POISON(tensor_linear(x, NULL, NULL), TENSOR_ERR_OWNER, "linear: argument weight is NULL");
    CHECK_POISON(tensor_conv2d(NULL, x), TENSOR_ERR_OWNER, "conv2d: argument x is NULL");
    CHECK_POISON(tensor_conv2d(x, NULL), TENSOR_ERR_OWNER, "conv2d: argument weight is NULL");
    CHECK_POISON(tensor_cross_entropy(x, NULL), TENSOR_ERR_OWNER, "cross_entropy: argument target is NULL");
    CHECK_POISON(tensor_nll_loss(x, NULL), TENSOR_ERR_OWNER, "nll_loss: argument target is NULL");
    CHECK_POISON(tensor_embedding(NULL, x), TENSOR_ERR_OWNER, "embedding: argument index is NULL");
    CHECK_POISON(tensor_embedding(tensor_zeros_of(TENSOR_I64, 1, 1, 1, 1, 1, 1, 1, 1), tensor_ones(2, 2)),
                 TENSOR_ERR_SHAPE, "has 8 dims, at most 7 fit");
    CHECK_POISON(tensor_layer_norm(NULL), TENSOR_ERR_OWNER, "layer_norm: argument x is NULL");
    CHECK_POISON(tensor_scaled_dot_product_attention(x, NULL, x), TENSOR_ERR_OWNER, "argument key is NULL");
    CHECK_POISON(tensor_huber_loss(x, d), TENSOR_ERR_DTYPE, "huber_loss: target is f64, input is f32");
    CHECK_POISON(tensor_linear(i, x, NULL), TENSOR_ERR_DTYPE, "linear: x [2,3] is i64, must be a float");
}

// A layer with its activation in one op: the bits of both ops, and of their gradients.
static tensor_t *activated(int one, int gelu, tensor_t *const *in) {
    tensor_t *y;
    if (one && gelu) { return tensor_linear_gelu_tanh(in[0], in[1], in[2]); }
    if (one) { return tensor_linear_relu(in[0], in[1], in[2]); }
    y = tensor_linear(in[0], in[1], in[2]);
    return gelu ? tensor_gelu_tanh(y) : tensor_relu(y);
}
static int same_data(tensor_t *a, tensor_t *b) {
    size_t size = (size_t)tensor_numel(a) * tensor_dtype_size(tensor_dtype(a));
    a = tensor_contiguous(a), b = tensor_contiguous(b);
    return tensor_ok() && tensor_dtype(a) == tensor_dtype(b) && tensor_numel(a) == tensor_numel(b) &&
        (size == 0 || memcmp(tensor_data(a), tensor_data(b), size) == 0);
}
static int looked;
static tensor_t *looks(nn_module_t *m, tensor_t *x, tensor_t *y, void *user) {
    (void)m, (void)x, (void)user;
    looked++;
    return y;
}
static void linear_activations(void) {
    static const int64_t sizes[][3] = {{1, 8, 64}, {1, 64, 64}, {32, 64, 4}, {3, 5, 7}, {0, 4, 3}, {2, 0, 3},
                                       {4, 3, 0}, {40, 33, 1000}, {2, 5000, 3}};
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    unsigned k;
    int v, d, one, i;
    for (v = 0; v < 16 * (int)(sizeof sizes / sizeof *sizes); v++) {
        for (d = 0; d < 4; d++) {
            const int64_t *s = sizes[v / 16];
            int gelu = v & 1, biased = v >> 1 & 1, turned = v >> 2 & 1, graph = v >> 3 & 1;
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *in[3], *plain[3], *y[2], *g[2][3], *gy, *second[2][3], *sum;
            tensor_manual_seed((uint64_t)v);
            in[0] = turned ? tensor_mT(tensor_randn(s[1], s[0])) : tensor_randn(s[0], s[1]);
            in[1] = turned ? tensor_mT(tensor_randn(s[1], s[2])) : tensor_randn(s[2], s[1]);
            in[2] = biased ? tensor_randn(s[2]) : NULL;
            gy = tensor_to(tensor_randn(s[0], s[2]), dtypes[d]);
            if (turned && s[0] == 3) { tensor_fill_(tensor_at(in[0], "1"), NAN); }
            for (i = 0; i < 2 + biased; i++) {
                in[i] = tensor_requires_grad_(tensor_to(in[i], dtypes[d]), 1);
            }
            for (i = 0; i < 3; i++) { plain[i] = in[i] ? tensor_detach(in[i]) : NULL; }
            CHECK_MSG(same_data(activated(0, gelu, plain), activated(1, gelu, plain)), "%d %d", v, d);
            for (one = 0; one < 2; one++) {
                y[one] = activated(one, gelu, in);
                CHECK(tensor_autograd_grad(&y[one], 1, &gy, in, 2 + biased, g[one],
                                           graph ? TENSOR_CREATE_GRAPH : 0) == 0);
                if (!graph) { continue; }
                sum = tensor_add(tensor_sum(tensor_sin(g[one][0])), tensor_sum(tensor_sin(g[one][1])));
                CHECK(tensor_autograd_grad(&sum, 1, NULL, in, 2, second[one], TENSOR_ALLOW_UNUSED) == 0);
            }
            CHECK_MSG(same_data(y[0], y[1]), "%d %d", v, d);
            for (i = 0; i < 2 + biased; i++) { CHECK_MSG(same_data(g[0][i], g[1][i]), "%d %d %d", v, d, i); }
            for (i = 0; graph && i < 2; i++) {
                CHECK_MSG(same_data(second[0][i], second[1][i]), "second %d %d %d", v, d, i);
            }
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            tensor_scope_end(scope);
        }
    }
    for (k = 0; k < 2; k++) {           // a sequence runs it where no hook looks between the two
        nn_module_t *first = nn_linear(6, 16), *act = k ? nn_gelu_tanh() : nn_relu();
        nn_module_t *m = nn_sequential(first, act, nn_linear(16, 3), nn_tanh());
        nn_module_t *pair = nn_sequential(first, act);
        tensor_t *x = tensor_randn(5, 6), *y[2], *g[2], *w = nn_get(first, "weight"), *half[2];
        int64_t hook;
        y[0] = nn_forward(m, x);
        half[0] = nn_forward(pair, x);
        CHECK_TEXT(tensor_grad_fn_name(half[0]), k ? "linear_gelu_tanh" : "linear_relu");
        hook = nn_register_forward_hook(k ? act : first, looks, NULL);
        half[1] = nn_forward(pair, x);
        CHECK_TEXT(tensor_grad_fn_name(half[1]), k ? "gelu_tanh" : "relu");
        y[1] = nn_forward(m, x);
        CHECK(looked == 2 * (int)k + 2 && same_data(y[0], y[1]) && same_data(half[0], half[1]));
        for (i = 0; i < 2; i++) {
            y[i] = tensor_sum(y[i]);
            CHECK(tensor_autograd_grad(&y[i], 1, NULL, &w, 1, &g[i], 0) == 0);
        }
        CHECK(same_data(g[0], g[1]));
        CHECK(nn_remove_hook(k ? act : first, hook));
        CHECK_POISON(nn_forward(m, tensor_ones(2, 5)), TENSOR_ERR_SHAPE, "in 0");
        nn_free(m);
        nn_free(pair);
    }
}

// In a sequence a relu waits for a largest-of-windows pool behind it: the bits of both as they stand, and of
// the gradients, but not where a hook looks between them, a window may see nothing or nothing is gained.
static void relu_after_pool(void) {
    static const int64_t sizes[][2] = {{14, 14}, {7, 9}, {28, 33}, {2, 2}};
    int k, v, i;
    for (v = 0; v < 4 * 5; v++) {
        tensor_scope_t scope = tensor_scope_begin();
        nn_module_t *act = nn_relu(), *pool = v / 4 == 0   ? nn_max_pool2d(2)
                                              : v / 4 == 1 ? nn_max_pool2d(2, 1, 1)
                                              : v / 4 == 2 ? nn_max_pool2d(2, .padding = 1, .dilation = 3)
                                              : v / 4 == 3 ? nn_max_pool2d(2, .ceil_mode = 1)
                                                           : nn_avg_pool2d(2);
        nn_module_t *m = nn_sequential(act, pool);
        tensor_t *x = tensor_randn(2, 3, sizes[v % 4][0], sizes[v % 4][1]), *y[2], *g[2], *gy;
        int64_t hook;
        if (v / 4 == 2 && v % 4 == 3) { x = tensor_randn(2, 3, 4, 5); }
        tensor_fill_(tensor_at(x, "0, 0, :2, :2"), -1);
        tensor_fill_(tensor_at(x, "0, 1, 0, 1"), NAN);
        x = tensor_requires_grad_(x, 1);
        gy = tensor_randn_like(nn_forward(pool, x));
        for (i = 0; i < 2; i++) {
            hook = i ? nn_register_forward_hook(act, looks, NULL) : 0;
            k = looked;
            y[i] = nn_forward(m, x);
            if (i) {
                CHECK(looked == k + 1 && nn_remove_hook(act, hook));
            } else {
                CHECK_TEXT(tensor_grad_fn_name(y[i]), v / 4 == 1 || v / 4 == 2 ? "max_pool2d"
                                                      : v / 4 < 4              ? "relu"
                                                                               : "avg_pool2d");
            }
            CHECK(tensor_autograd_grad(&y[i], 1, &gy, &x, 1, &g[i], 0) == 0);
        }
        CHECK_MSG(same_data(y[0], y[1]) && same_data(g[0], g[1]), "%d", v);
        CHECK_POISON(nn_forward(m, tensor_ones(5)), TENSOR_ERR_SHAPE, "in 1");
        nn_free(m);
        tensor_scope_end(scope);
    }
}

// A constructor that finds no memory says which and where.
static void constructors_out_of_memory(void) {
    int k;
    tensor_set_memory_limit(1);
    CHECK(nn_linear(4, 300) == NULL);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "at nn.c:");
    for (k = 0; k < 200 && nn_relu(); k++) {}           // until no dead one can serve again
    CHECK(k < 200);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "ReLU");
    tensor_set_memory_limit((uint64_t)1 << 30);
    CHECK(nn_linear(1 << 15, 1 << 14) == NULL);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "Linear");
    CHECK(nn_embedding(1 << 15, 1 << 14) == NULL);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "at nn.c:");
    tensor_set_memory_limit(0);
}

// A copy that fails is the code of nn_copy_state: an expanded buffer cannot be written to.
static void copy_state_fails(void) {
    nn_module_t a, b;
    nn_module_init(&a, "A", NULL, NULL);
    nn_module_init(&b, "B", NULL, NULL);
    nn_buffer(&a, "x", tensor_expand(tensor_ones(1), 3));
    nn_buffer(&b, "x", tensor_zeros(3));
    CHECK(nn_copy_state(&a, &b) != TENSOR_OK);
    CHECK(!tensor_ok());
    tensor_clear_error();
    CHECK(nn_copy_state(&b, &a) == TENSOR_OK && tensor_item(tensor_sum(nn_get(&b, "x"))) == 3);
    nn_free(&a);
    nn_free(&b);
}

static void paths(void) {
    nn_module_t *net = nn_sequential(nn_linear(4, 4), nn_sequential(nn_relu(), nn_linear(3, 3)));
    CHECK_POISON(nn_forward(net, tensor_ones(2, 4)), TENSOR_ERR_SHAPE, "1.1");
    nn_free(net);
    // one op runs both layers; the error is that of the layer
    net = nn_sequential(nn_linear(4, 4), nn_relu());
    CHECK_POISON(nn_forward(net, tensor_ones(2, 3)), TENSOR_ERR_SHAPE, "linear: the last dim of x [2,3]");
    CHECK_POISON(nn_forward(net, tensor_ones_of(TENSOR_I64, 2, 4)), TENSOR_ERR_DTYPE, "linear: ");
    CHECK_TEXT(tensor_grad_fn_name(nn_forward(net, tensor_ones(2, 4))), "linear_relu");
    nn_free(net);
}

static void sharing(void) {
    nn_module_t *a = nn_linear(3, 3), *b = nn_linear(3, 3), *net = nn_sequential(a, b, a), *c;
    tensor_t *w = nn_get(a, "weight");
    CHECK(nn_parameters(net, NULL, 0) == 4);
    nn_parameter(b, "weight", w);
    CHECK(nn_parameters(net, NULL, 0) == 3);
    c = nn_clone(net);
    CHECK(nn_parameters(c, NULL, 0) == 3);
    CHECK(nn_get(c, "0.weight") == nn_get(c, "1.weight") && nn_get(c, "0.weight") != w);
    CHECK(tensor_equal(nn_get(c, "2.weight"), w));
    CHECK(tensor_equal(nn_forward(c, tensor_ones(2, 3)), nn_forward(net, tensor_ones(2, 3))));
    nn_init_zeros_(w);
    CHECK(!tensor_equal(nn_get(c, "0.weight"), w));
    CHECK(nn_copy_state(c, net) == 0);
    CHECK(tensor_equal(nn_get(c, "0.weight"), w));
    CHECK(nn_copy_state(c, a) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "copy_state");
    CHECK(nn_free(net) == 0);
    CHECK(nn_free(c) == 0);
}

// Tensors alive while a sequence runs without recording: x, the input and the output of one child.
static int64_t most_alive;
static tensor_t *watch(nn_module_t *m, tensor_t *x) {
    tensor_memory_stats_t s = tensor_memory_stats();
    (void)m;
    if (s.live_tensors > most_alive) { most_alive = s.live_tensors; }
    return tensor_add_scalar(x, 1);
}

static void sequence_frees(void) {
    nn_module_t w[6], *list[6], *net;
    tensor_scope_t s;
    tensor_t *x = tensor_ones(3), *kept;
    int64_t before;
    int i;
    for (i = 0; i < 6; i++) {
        nn_module_init(&w[i], "Watch", watch, NULL);
        list[i] = &w[i];
    }
    net = nn_sequential_n(list, 6);
    before = tensor_memory_stats().live_tensors;
    s = tensor_scope_begin_no_grad();
    most_alive = 0;
    CHECK(tensor_item(tensor_sum(nn_forward(net, x))) == 21);
    CHECK_MSG(most_alive <= before + 1, "%d alive, %d before", (int)most_alive, (int)before);
    kept = tensor_keep(nn_forward(net, x));
    tensor_scope_end(s);
    CHECK(tensor_item(tensor_sum(kept)) == 21);
    tensor_free(kept);
    nn_free(net);
}

// ---- layers ----

static void near_bound(const char *what, tensor_t *t, double bound) {
    double low = tensor_item(tensor_min(t)), high = tensor_item(tensor_max(t));
    CHECK_MSG(low >= -bound && high < bound && low < -0.9 * bound && high > 0.9 * bound, "%s %g %g in +-%g",
              what, low, high, bound);
}

// The gains are those of torch.nn.init.calculate_gain.
static void plain_distributions(void) {
    static const double gains[] = {1.4141428569978354, 1.4142135623730951, 1.6666666666666667, 1, 1, 0.75};
    tensor_t *t = tensor_empty(400, 500);
    int k;
    for (k = 0; k < 6; k++) {
        CHECK(fabs(nn_gain((nn_nonlinearity_t)k, 0.01) - gains[k]) < 1e-15);
    }
    CHECK(fabs(nn_gain(NN_LEAKY_RELU, 0.2) - 1.3867504905630728) < 1e-15);
    CHECK(nn_gain(NN_TANH, 0.2) == gains[2]);
    CHECK(nn_init_ones_(t) == t && tensor_item(tensor_min(t)) == 1 && tensor_item(tensor_max(t)) == 1);
    CHECK(nn_init_constant_(t, -3) == t && tensor_item(tensor_sum(t)) == -600000);
    CHECK(nn_init_zeros_(t) == t && tensor_item(tensor_max(tensor_abs(t))) == 0);
    CHECK(nn_init_uniform_(t, 2, 5) == t);
    CHECK(tensor_item(tensor_min(t)) >= 2 && tensor_item(tensor_max(t)) < 5);
    CHECK(fabs(tensor_item(tensor_mean(t)) - 3.5) < 0.01);
    CHECK(fabs(tensor_item(tensor_var(t, 1)) - 0.75) < 0.01);
    CHECK(nn_init_normal_(t, -1, 0.5) == t);
    CHECK(fabs(tensor_item(tensor_mean(t)) + 1) < 0.01);
    CHECK(fabs(tensor_item(tensor_var(t, 1)) - 0.25) < 0.01);
    CHECK_POISON(nn_init_uniform_(NULL, 0, 1), TENSOR_ERR_POISONED, "");
}

static void structured_distributions(void) {
    tensor_t *t = tensor_empty(5, 12), *u, *v;
    u = nn_init_orthogonal_(t, 2);                     // rows of length 2, at right angles
    CHECK(u == t && tensor_allclose(tensor_matmul(t, tensor_mT(t)), tensor_mul_scalar(tensor_eye(5, 5), 4),
                                    1e-5, 1e-5));
    v = tensor_clone(t);
    CHECK(!tensor_equal(v, nn_init_orthogonal_(t, 2)));
    t = nn_init_orthogonal_(tensor_empty_of(TENSOR_F64, 12, 2, 3), 1);
    u = tensor_reshape(t, 12, 6);                      // columns here
    CHECK(tensor_allclose(tensor_matmul(tensor_mT(u), u), tensor_to(tensor_eye(6, 6), TENSOR_F64), 1e-10,
                          1e-10));
    t = nn_init_eye_(tensor_empty(2, 3));
    CHECK(tensor_equal(t, tensor_eye(2, 3)));
    t = nn_init_dirac_(tensor_empty(4, 3, 3, 2), 2);   // two groups of two outputs
    CHECK(tensor_item(tensor_sum(t)) == 4 && tensor_item(tensor_at(t, "0, 0, 1, 1")) == 1 &&
          tensor_item(tensor_at(t, "1, 1, 1, 1")) == 1 && tensor_item(tensor_at(t, "2, 0, 1, 1")) == 1 &&
          tensor_item(tensor_at(t, "3, 1, 1, 1")) == 1);
    u = tensor_randn(2, 3, 9);
    CHECK(tensor_equal(tensor_conv1d(u, nn_init_dirac_(tensor_empty(3, 3, 3), 1), .padding = 1), u));
    t = nn_init_sparse_(tensor_empty(40, 50), 0.3, 0.01);
    CHECK(tensor_item(tensor_min(tensor_sum_dim(tensor_eq_scalar(t, 0), 0, 0))) == 12 &&
          tensor_item(tensor_max(tensor_sum_dim(tensor_eq_scalar(t, 0), 0, 0))) == 12);
    CHECK_NEAR(tensor_item(tensor_std(t, 1)), 0.01 * sqrt(0.7), 1e-3);
    t = nn_init_orthogonal_(tensor_empty_of(TENSOR_BF16, 4, 4), 1);
    CHECK(tensor_dtype(t) == TENSOR_BF16 &&
          fabs(tensor_item(tensor_norm(tensor_to(t, TENSOR_F32))) - 2) < 0.02);
    CHECK(nn_init_orthogonal_(tensor_empty(0, 4), 1) && nn_init_dirac_(tensor_empty(2, 2, 0), 1) &&
          tensor_ok());
    CHECK_POISON(nn_init_eye_(tensor_ones(2, 2, 2)), TENSOR_ERR_SHAPE, "eye_: t [2,2,2] must have 2 dims");
    CHECK_POISON(nn_init_dirac_(tensor_ones(4, 2, 3), 3), TENSOR_ERR_SHAPE, "dirac_: t [4,2,3] must be");
    CHECK_POISON(nn_init_sparse_(tensor_ones(4, 2), 1.5, 1), TENSOR_ERR_SHAPE, "sparsity 1.5");
    CHECK_POISON(nn_init_orthogonal_(tensor_ones(4), 1), TENSOR_ERR_SHAPE, "orthogonal_: t [4] must have");
    CHECK_POISON(nn_init_orthogonal_(NULL, 1), TENSOR_ERR_POISONED, "orthogonal_");
}

static void initial_distributions(void) {
    nn_module_t *lin = nn_linear(100, 200), *conv = nn_conv2d(8, 64, 3, .groups = 2), *emb,
        *norm = nn_layer_norm(6);
    tensor_t *t = tensor_empty(200, 300), *u;
    near_bound("linear", nn_get(lin, "weight"), 0.1);
    near_bound("linear bias", nn_get(lin, "bias"), 0.1);
    near_bound("conv", nn_get(conv, "weight"), sqrt(2.0 / (8 * 9)));
    emb = nn_embedding(500, 20, .padding_idx = TENSOR_ZERO);
    CHECK_NEAR(tensor_item(tensor_mean(nn_get(emb, "weight"))), 0, 0.05);
    CHECK_NEAR(tensor_item(tensor_std(nn_get(emb, "weight"), 1)), 1, 0.05);
    CHECK(tensor_item(tensor_norm(tensor_select(nn_get(emb, "weight"), 0, 0))) == 0);
    CHECK(tensor_item(tensor_min(nn_get(norm, "weight"))) == 1 &&
          tensor_item(tensor_norm(nn_get(norm, "bias"))) == 0);
    near_bound("xavier", nn_init_xavier_uniform_(t, 2), 2 * sqrt(6.0 / 500));
    CHECK_NEAR(tensor_item(tensor_std(nn_init_xavier_normal_(t, 1), 1)), sqrt(2.0 / 500), 2e-3);
    near_bound("kaiming", nn_init_kaiming_uniform_(t), sqrt(2.0) * sqrt(3.0 / 300));
    near_bound("kaiming", nn_init_kaiming_uniform_(t, .a = sqrt(5.0)), 1 / sqrt(300.0));
    CHECK_NEAR(tensor_item(tensor_std(nn_init_kaiming_normal_(t, .fan_out = 1, .nonlinearity = NN_TANH), 1)),
               5.0 / 3 / sqrt(200.0), 2e-3);
    CHECK_NEAR(tensor_item(tensor_mean(nn_init_constant_(t, 3))), 3, 1e-6);
    u = nn_init_trunc_normal_(t, 1, 0.5, 0, 1.5);
    CHECK(u == t && tensor_item(tensor_min(t)) >= 0 && tensor_item(tensor_max(t)) <= 1.5);
    // phi(-2) = 0.0539910, phi(1) = 0.2419707; Phi(1) - Phi(-2) = 0.8185946
    CHECK_NEAR(tensor_item(tensor_mean(t)), 1 + 0.5 * (0.0539910 - 0.2419707) / 0.8185946, 5e-3);
    CHECK_POISON(nn_init_xavier_uniform_(tensor_ones(3), 1), TENSOR_ERR_SHAPE, "2 dims");
    structured_distributions();
    nn_free(lin);
    nn_free(conv);
    nn_free(emb);
    nn_free(norm);
}

static void layers_run(void) {
    nn_module_t *net = nn_sequential(nn_conv2d(1, 4, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                                     nn_conv2d(4, 6, 3, .stride = 2, .no_bias = 1), nn_leaky_relu(0.1),
                                     nn_avg_pool2d(2), nn_flatten(), nn_layer_norm(24), nn_linear(24, 10),
                                     nn_log_softmax(-1));
    nn_module_t *emb = nn_embedding(7, 5), *drop = nn_dropout(0.5),
        *same = nn_conv2d(2, 3, 4, .kernel_w = 3, .same = 1);
    tensor_t *x = tensor_randn(2, 1, 20, 20), *y = nn_forward(net, x), *d;
    char text[1500];
    CHECK(tensor_ndim(y) == 2 && tensor_size(y, 1) == 10);
    CHECK_NEAR(tensor_item(tensor_sum(tensor_exp(y))), 2, 1e-5);
    nn_to_string(net, text, sizeof text);
    CHECK(strstr(text, "(0): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))") != NULL);
    CHECK(strstr(text, "(4): LeakyReLU(negative_slope=0.1)") != NULL);
    CHECK(strstr(text, "(7): LayerNorm((24,), eps=1e-05, elementwise_affine=True, bias=True)") != NULL);
    y = nn_forward(emb, tensor_arange(0, 6, 1, TENSOR_I64));
    CHECK(tensor_size(y, 0) == 6 && tensor_size(y, 1) == 5);
    y = nn_forward(same, tensor_ones(1, 2, 9, 8));
    CHECK(tensor_size(y, 2) == 9 && tensor_size(y, 3) == 8);
    d = nn_forward(drop, tensor_ones(1000));
    CHECK(tensor_item(tensor_max(d)) == 2 && tensor_item(tensor_min(d)) == 0);
    nn_eval(drop);
    CHECK(tensor_item(tensor_min(nn_forward(drop, tensor_ones(1000)))) == 1);
    CHECK(nn_dropout(1.5) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "dropout: p must be in 0..1 (got 1.5)");
    CHECK_POISON(nn_forward(net, tensor_ones(2, 2, 20, 20)), TENSOR_ERR_SHAPE, "conv2d");
    nn_free(net);
    nn_free(emb);
    nn_free(drop);
    nn_free(same);
}

static void activations(void) {
    nn_module_t *list[11];
    tensor_t *x = tensor_linspace(-2, 2, 5), *want[11];
    int i;
    list[0] = nn_relu();
    want[0] = tensor_relu(x);
    list[1] = nn_tanh();
    want[1] = tensor_tanh(x);
    list[2] = nn_sigmoid();
    want[2] = tensor_sigmoid(x);
    list[3] = nn_gelu();
    want[3] = tensor_gelu(x);
    list[4] = nn_gelu_tanh();
    want[4] = tensor_gelu_tanh(x);
    list[5] = nn_silu();
    want[5] = tensor_silu(x);
    list[6] = nn_leaky_relu(0.2);
    want[6] = tensor_leaky_relu(x, 0.2);
    list[7] = nn_elu(1.5);
    want[7] = tensor_elu(x, 1.5);
    list[8] = nn_softplus(2, 20);
    want[8] = tensor_softplus(x, 2, 20);
    list[9] = nn_softmax(0);
    want[9] = tensor_softmax(x, 0);
    list[10] = nn_log_softmax(-1);
    want[10] = tensor_log_softmax(x, -1);
    for (i = 0; i < 11; i++) {
        CHECK_MSG(tensor_equal(nn_forward(list[i], x), want[i]), "activation %s", list[i]->name);
        nn_free(list[i]);
    }
}

// ---- optimizers ----

enum { OPT_N = 19 };
// torch.optim 2.15.0, 10 steps; see optimizer_case.
static const double trajectories[9][OPT_N] = {
    // sgd
    {-0.435335074, 0.302176963, -0.046905098, -0.274725662, 0.442518123, 0.183031749, -0.129904718,
     -0.485334674, 0.332108488, -0.00446787121, -0.33221493, 0.462770335, 0.152492728, -0.196589333,
     -0.424409897, 0.292833888, 0.0333475142, -0.279588953, 0.412770735},
    // sgd_momentum
    {-0.0857520909, 0.0564252211, -0.044934939, -0.11131793, 0.0804164452, 0.162741157, -0.104319338,
     -0.137804387, 0.159051928, 0.0104427831, -0.14626182, 0.236873847, 0.00265423137, -0.0987059287,
     -0.165088919, 0.0266454555, 0.108970167, -0.158090327, 0.184821551},
    // sgd_nesterov
    {-2.21459033, 1.49274823, 0.0692094141, -1.23403071, 2.13038002, 0.399324026, -0.539634271,
     -1.98901679, 1.15519289, -0.0555059089, -1.16579575, 1.68884803, 0.842175166, -0.581363646,
     -1.88460377, 1.47980696, -0.251249034, -1.19020733, 1.91442157},
    // adam
    {-0.380295109, 0.191128382, -0.00974661119, -0.296303898, 0.36089854, 0.207823182, -0.168689263,
     -0.370815428, 0.308123872, 0.00838992652, -0.238894425, 0.496030927, 0.0338815285, -0.102038471,
     -0.475875953, 0.170204724, 0.118060579, -0.308751253, 0.388743808},
    // adam_l2
    {-0.441446372, 0.24747172, -0.0498508342, -0.247050099, 0.399548046, 0.147889457, -0.111116753,
     -0.415572416, 0.281297914, -0.0288274146, -0.229974192, 0.408595064, 0.0979928835, -0.143552345,
     -0.436198828, 0.213517204, 0.0562136291, -0.260530223, 0.370649933},
    // adamw
    {-0.377777539, 0.189731195, -0.00986006103, -0.294302085, 0.35834748, 0.206760067, -0.167690395,
     -0.368276277, 0.306160978, 0.00839714593, -0.237329346, 0.492864714, 0.0334600599, -0.101463648,
     -0.472767382, 0.168783148, 0.117682538, -0.306809703, 0.3861733},
    // adamw_ams
    {-0.332417642, 0.164614914, -0.0118953851, -0.258186261, 0.312394442, 0.187514955, -0.149630301,
     -0.322563906, 0.270767887, 0.00848955856, -0.209126174, 0.435695983, 0.0259581799, -0.0911279337,
     -0.416647998, 0.143248819, 0.110739958, -0.271774561, 0.339854426},
    // rmsprop
    {-0.278771127, 0.13461683, -0.101257431, -0.179587981, 0.217821997, 0.112480968, -0.0869622711,
     -0.284287861, 0.193966657, -0.0491517825, -0.197819241, 0.259324846, 0.0311095593, -0.157912352,
     -0.328822797, 0.0939868921, 0.0531733947, -0.205593759, 0.134925432},
    // rmsprop_c
    {-0.335060331, 0.156324272, -0.0580289236, -0.220364205, 0.25686718, 0.132044727, -0.12841326,
     -0.287465371, 0.22024891, -0.0432512901, -0.173842921, 0.320252557, 0.0305417066, -0.121062661,
     -0.381108857, 0.104807553, 0.0680909724, -0.251849239, 0.246030155},
};
static nn_optimizer_t *optimizer_case(int k, tensor_t *const *w) {
    switch (k) {
    case 0: return nn_sgd(.list = w, .count = 1, .lr = 0.1);
    case 1: return nn_sgd(.list = w, .count = 1, .lr = 0.05, .momentum = 0.9, .dampening = 0.1,
                          .weight_decay = 0.01);
    case 2: return nn_sgd(.list = w, .count = 1, .lr = 0.05, .momentum = 0.9, .nesterov = 1, .maximize = 1);
    case 3: return nn_adam(.list = w, .count = 1, .lr = 0.05);
    case 4: return nn_adam(.list = w, .count = 1, .lr = 0.05, .beta1 = 0.4, .beta2 = 0.99, .eps = 1e-6,
                           .weight_decay = 0.1);
    case 5: return nn_adamw(.list = w, .count = 1, .lr = 0.05);
    case 6: return nn_adamw(.list = w, .count = 1, .lr = 0.05, .weight_decay = 0.2, .amsgrad = 1);
    case 7: return nn_rmsprop(.list = w, .count = 1, .lr = 0.02);
    case 9: return nn_adagrad(.list = w, .count = 1, .lr_decay = 0.1, .weight_decay = 0.1);
    case 10: return nn_adadelta(.list = w, .count = 1, .weight_decay = 0.1);
    case 11: return nn_adamax(.list = w, .count = 1, .maximize = 1);
    case 12: return nn_nadam(.list = w, .count = 1, .decoupled_weight_decay = 1, .weight_decay = 0.1);
    case 13: return nn_radam(.list = w, .count = 1, .beta2 = 0.9);
    default:
        return nn_rmsprop(.list = w, .count = 1, .lr = 0.02, .alpha = 0.9, .momentum = 0.5, .centered = 1,
                          .weight_decay = 0.1);
    }
}

// Sets the gradient of w for step t as the script that made the numbers did.
static void set_gradient(tensor_t *w, int t) {
    double v[OPT_N], g[OPT_N];
    tensor_scope_t s = tensor_scope_begin_no_grad();
    int i;
    tensor_copy_out(tensor_to(w, TENSOR_F64), v, sizeof v);
    for (i = 0; i < OPT_N; i++) { g[i] = 0.5 * v[i] + ((i * 7 + t * 3) % 11 - 5) * 0.1; }
    tensor_set_grad(w, tensor_to(tensor_from(g, TENSOR_F64, OPT_N), tensor_dtype(w)));
    tensor_scope_end(s);
}

static tensor_t *first_weight(tensor_dtype_t dtype) {
    double v[OPT_N];
    int i;
    for (i = 0; i < OPT_N; i++) { v[i] = ((i * 5) % 7 - 3) * 0.25; }
    return tensor_requires_grad_(tensor_to(tensor_from(v, TENSOR_F64, OPT_N), dtype), 1);
}

static void optimizers_follow_pytorch(void) {
    static const tensor_dtype_t dtypes[3] = {TENSOR_F32, TENSOR_F64, TENSOR_BF16};
    static const double tolerance[3] = {1e-6, 1e-8, 3e-2};
    int k, d, t, i;
    for (k = 0; k < 9; k++) {
        for (d = 0; d < 3; d++) {
            tensor_t *w = first_weight(dtypes[d]);
            nn_optimizer_t *o = optimizer_case(k, &w);
            double got[OPT_N], worst = 0;
            for (t = 0; t < 10; t++) {
                set_gradient(w, t);
                CHECK(nn_step(o) == 0);
            }
            tensor_copy_out(tensor_to(w, TENSOR_F64), got, sizeof got);
            for (i = 0; i < OPT_N; i++) { worst = fmax(worst, fabs(got[i] - trajectories[k][i])); }
            CHECK_MSG(worst <= tolerance[d], "optimizer %d, %s: off by %g", k, tensor_dtype_name(dtypes[d]),
                      worst);
            CHECK(nn_zero_grad(o) == 0 && (tensor_grad)(w) == NULL);
            nn_optimizer_free(o);
        }
    }
}

// Gradients and states that products can not hold in normal numbers: the bits of plain f32 operations, beside
// elements that are normal. Momenta shrink by 0.3 a step and end in the last bits.
static void tiny_states_keep_their_bits(void) {
    enum { N = 300, STEPS = 150 };
    static float x[2][N], m[2][N], v[N], g[N], got[N];
    for (int k = 0; k < 2; k++) {
        tensor_t *w = tensor_requires_grad_(tensor_zeros(N), 1);
        nn_optimizer_t *o = k ? nn_adam(.list = &w, .count = 1, .beta1 = 0.7, .beta2 = 0.3)
                              : nn_sgd(.list = &w, .count = 1, .lr = 0.01, .momentum = 0.3);
        for (int i = 0; i < N; i++) { x[k][i] = m[k][i] = v[i] = 0; }
        for (int t = 1; t <= STEPS; t++) {
            const float lr = -0.01f, momentum = 0.3f, rest1 = (float)(1 - 0.7), beta2 = 0.3f;
            const float rest2 = (float)(1 - 0.3), eps = 1e-8f, step = (float)(-1e-3 / (1 - pow(0.7, t)));
            const float root = (float)(1 / sqrt(1 - pow(0.3, t)));
            for (int i = 0; i < N; i++) {
                g[i] = i % 7 == 0 || (t > 4 && i % 3) ? 0
                     : (float)((i * 5 % 11 - 5.3) * pow(10, -(i * 13 % 46)));
            }
            for (int i = 0; i < N; i++) {
                volatile float a, b, c;             // volatile: no wider, none joined
                if (!k) {
                    a = m[k][i] * momentum;
                    m[k][i] = t == 1 ? g[i] : a + g[i];
                    a = lr * m[k][i];
                } else {
                    a = g[i] - m[k][i];
                    a = a * rest1;
                    m[k][i] += a;
                    a = v[i] * beta2;
                    b = rest2 * g[i];
                    b = b * g[i];
                    v[i] = a + b;
                    c = sqrtf(v[i]);
                    c = c * root;
                    c = c + eps;
                    a = step * m[k][i];
                    a = a / c;
                }
                x[k][i] += a;
            }
            tensor_set_grad(w, tensor_from(g, TENSOR_F32, N));
            CHECK(nn_step(o) == 0);
            tensor_copy_out(w, got, sizeof got);
            CHECK_MSG(memcmp(got, x[k], sizeof got) == 0, "rule %d, step %d", k, t);
        }
        nn_optimizer_free(o);
    }
}

// Rosenbrock's valley, from (-1.2, 1).
typedef struct valley_t {
    tensor_t *x;
    nn_optimizer_t *o;
    int calls, fails, how;      // fails: the call that does, and how
} valley_t;
static tensor_t *valley(void *user) {
    valley_t *v = (valley_t *)user;
    tensor_t *a = tensor_select(v->x, 0, 0), *b = tensor_select(v->x, 0, 1), *y;
    if (++v->calls == v->fails) {
        if (v->how == 0) { return tensor_matmul(v->x, tensor_ones_of(TENSOR_F64, 3)); }
        if (v->how == 1) { nn_step_closure(v->o, valley, v); }
        if (v->how == 2) { nn_optimizer_free(v->o); }
        return NULL;
    }
    y = tensor_square(tensor_sub(b, tensor_square(a)));
    y = tensor_add(tensor_mul_scalar(y, 100), tensor_square(tensor_rsub_scalar(a, 1)));
    nn_zero_grad(v->o);
    tensor_backward(y);
    return y;
}
static void valley_begin(valley_t *v) {
    const double start[2] = {-1.2, 1};
    v->x = tensor_requires_grad_(tensor_from(start, TENSOR_F64, 2), 1);
    v->calls = v->fails = v->how = 0;
}
static void lbfgs_finds_the_minimum(void) {
    const char *path = "nn_lbfgs.safetensors";
    tensor_t *one = tensor_ones_of(TENSOR_F64, 2), *loss, *halves;
    valley_t v, w;
    nn_module_t *m = nn_sequential_n(NULL, 0), *m2 = nn_sequential_n(NULL, 0), *m3;
    int k;
    valley_begin(&v);
    v.o = nn_lbfgs(.list = &v.x, .count = 1, .line_search_fn = NN_STRONG_WOLFE, .max_iter = 60,
                   .tolerance_change = 1e-15);
    loss = nn_step_closure(v.o, valley, &v);
    CHECK_NEAR(tensor_item(loss), 24.2, 1e-12);             // of the first call
    CHECK_MSG(tensor_allclose(v.x, one, 1e-8, 1e-8) && v.calls < 70, "%d calls", v.calls);
    nn_optimizer_free(v.o);
    // Three steps and three after a checkpoint are six; history_size 2 goes round.
    valley_begin(&v);
    valley_begin(&w);
    nn_parameter(m, "x", v.x);
    nn_parameter(m2, "x", w.x);
    v.o = nn_lbfgs(m, .line_search_fn = NN_STRONG_WOLFE, .max_iter = 3, .history_size = 2);
    for (k = 0; k < 3; k++) { nn_step_closure(v.o, valley, &v); }
    CHECK(nn_save_checkpoint(path, m, v.o, 3) == 0);
    for (k = 0; k < 3; k++) { nn_step_closure(v.o, valley, &v); }
    w.o = nn_lbfgs(m2);
    CHECK_MSG(nn_load_checkpoint(path, m2, w.o, NULL) == 0, "%s", tensor_error_text());
    for (k = 0; k < 3; k++) { nn_step_closure(w.o, valley, &w); }
    CHECK_NEAR(tensor_item(tensor_select(v.x, 0, 0)), -0.5125, 1e-4);        // PyTorch's
    CHECK(tensor_equal(v.x, w.x));
    // A closure that fails ends the step; the next one goes on.
    w.fails = w.calls + 2;
    CHECK(tensor_is_poison(nn_step_closure(w.o, valley, &w)));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "matmul");
    CHECK(!tensor_is_poison(nn_step_closure(w.o, valley, &w)) && tensor_ok());
    for (w.how = 1; w.how <= 3; w.how++) {
        w.fails = w.calls + 2;
        CHECK(tensor_is_poison(nn_step_closure(w.o, valley, &w)) && w.calls == w.fails);
        CHECK_ERROR(w.how < 3 ? TENSOR_ERR_UNSUPPORTED : TENSOR_ERR_POISONED,
                    w.how == 1   ? "step_closure: a step of this optimizer is under way"
                    : w.how == 2 ? "optimizer_free: a step of"
                                 : "step_closure: the closure returned NULL at nn.c");
    }
    CHECK(nn_step(w.o) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "step: lbfgs needs nn_step_closure");
    CHECK(nn_optimizer_group(w.o, &w.x, 1, .lr = 1) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "one group");
    CHECK(tensor_is_poison(nn_step_closure(w.o, NULL, NULL)));
    CHECK_ERROR(TENSOR_ERR_POISONED, "closure is NULL");
    CHECK(nn_lbfgs(m2, .history_size = TENSOR_ZERO) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "history_size");
    nn_optimizer_free(v.o);
    nn_optimizer_free(w.o);
    CHECK(tensor_is_poison(nn_step_closure(w.o, valley, &w)));
    CHECK_ERROR(TENSOR_ERR_OWNER, "freed");
    // The others take one call and one step; halves are computed in f32.
    valley_begin(&w);
    w.o = nn_sgd(.list = &w.x, .count = 1, .lr = 1e-3);
    CHECK_NEAR(tensor_item(nn_step_closure(w.o, valley, &w)), 24.2, 1e-12);
    CHECK_NEAR(tensor_item(tensor_select(w.x, 0, 0)), -1.2 + 0.2156, 1e-12);
    CHECK(w.calls == 1);
    nn_optimizer_free(w.o);
    halves = tensor_requires_grad_(tensor_to(tensor_detach(w.x), TENSOR_BF16), 1);
    w.x = halves;
    w.o = nn_lbfgs(.list = &w.x, .count = 1, .line_search_fn = NN_STRONG_WOLFE, .max_iter = 5);
    CHECK(tensor_item(nn_step_closure(w.o, valley, &w)) > tensor_item(valley(&w)));
    nn_optimizer_free(w.o);
    // Its states follow the parameters.
    m3 = nn_linear(2, 1, .no_bias = 1);
    w.o = nn_lbfgs(m3, .max_iter = 500000000, .max_eval = 3, .lr = 1e-3);
    for (k = 0; k < 3; k++) {
        nn_to(m3, k == 1 ? TENSOR_F64 : TENSOR_F32);
        w.x = tensor_select(nn_get(m3, "weight"), 0, 0);
        CHECK_MSG(!tensor_is_poison(nn_step_closure(w.o, valley, &w)), "%s", tensor_error_text());
    }
    nn_optimizer_free(w.o);
    nn_free(m3);
    nn_free(m);
    nn_free(m2);
    remove(path);
}
static void muon_keeps_its_rules(void) {
    const char *path = "nn_muon.safetensors";
    nn_module_t *net = nn_linear(6, 5, .no_bias = 1), *twin = nn_clone(net), *whole = nn_linear(6, 5);
    nn_optimizer_t *o = nn_muon(net, .lr = 0.1), *again = nn_muon(twin);
    tensor_t *w = nn_get(net, "weight"), *w2 = nn_get(twin, "weight"), *before, *scaler;
    int k;
    for (k = 0; k < 5; k++) {
        if (k == 2) {
            CHECK(nn_save_checkpoint(path, net, o, 2) == 0);
            CHECK(nn_load_checkpoint(path, twin, again, NULL) == 0);
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
        }
        tensor_set_grad(w, tensor_randn(5, 6));
        if (k > 1) { tensor_set_grad(w2, tensor_clone(tensor_grad(w))); }
        CHECK(nn_step(o) == 0 && nn_step(again) == 0);
    }
    CHECK(tensor_equal(w, w2));
    // A step that the scaler leaves out keeps the momentum.
    scaler = nn_grad_scaler(2, 10);
    tensor_set_grad(w, tensor_full(INFINITY, 5, 6));
    before = tensor_clone(tensor_detach(w));
    CHECK(nn_scaler_step(scaler, o) == 0 && nn_scaler_update(scaler) == 0 && tensor_equal(w, before));
    tensor_set_grad(w, tensor_ones(5, 6));
    tensor_set_grad(w2, tensor_ones(5, 6));
    CHECK(nn_step(o) == 0 && nn_step(again) == 0 && tensor_equal(w, w2) && !tensor_equal(w, before));
    nn_optimizer_free(again);
    again = nn_muon(twin, .weight_decay = TENSOR_ZERO);
    tensor_set_grad(w2, tensor_zeros(5, 6));
    CHECK(nn_step(again) == 0 && tensor_equal(w, w2));          // no gradient, no step, no NaN
    CHECK(nn_muon(whole) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "must have 2 dims");
    CHECK(nn_muon(net, .ns_steps = 100) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "ns_steps");
    CHECK(nn_muon(net, .adjust_lr_fn = 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "adjust_lr_fn");
    tensor_free(scaler);
    nn_optimizer_free(o);
    nn_optimizer_free(again);
    nn_free(net);
    nn_free(twin);
    nn_free(whole);
    remove(path);
}

// Tables whose embeddings are .sparse, against PyTorch 2.15: SparseAdam that maximizes, SGD with momentum,
// SGD. Adagrad against itself.
static const double by_rows[3][21] = {
    {-0.799999838929031, 0.450000856239555, 0.0499384873170776, -0.606611666747689, 1.01077652754586,
        0.263945071862465, -0.25, -0.75, 0.5, -0.0699860618324247, -0.481595496779519, 0.833550400284611,
        0.111026799774005, -0.255560661715132, -0.574319928870015, 0.575144546682583, -0.0316354001159606,
        -0.57642200965323, 0.821050723908964, 0.321869976325291, -0.20547099010157},
    {-0.0257479235791362, 0.636240332762712, -0.00189412714774645, 0.587828100735163, 0.047579099787884,
        -0.0866155442885486, -0.25, -0.75, 0.5, 0.207696276054163, -0.370314810813261, 0.115175465672491,
        0.442354607291334, -0.422005560991955, -1.09740573575337, 0.00227002424122092, 0.0214307595515406,
        0.0208881533631852, 0.478865568304632, 0.00643643637508835, -0.309770539990683},
    {-0.611175431692688, 0.526114533872371, -0.000363066109391809, -0.125174816061012, 0.434378079021021,
        0.116881575900548, -0.25, -0.75, 0.5, 0.0474052186847717, -0.466004684184508, 0.598512380236739,
        0.238676021402913, -0.266956291719089, -0.738198227901281, 0.380820106207985, 0.00728958750439866,
        -0.372942944333077, 0.660921796937373, 0.17780544622005, -0.261966532311407},
};
static tensor_t *first_table(void) {
    double v[21];
    for (int i = 0; i < 21; i++) { v[i] = ((i * 5) % 7 - 3) * 0.25; }
    return tensor_reshape(tensor_from(v, TENSOR_F64, 21), 7, 3);
}
static tensor_t *two_lookups(tensor_t *w, int t, int sparse) {
    int64_t i[6] = {1, t * 3 % 7, 2, 4, 1, t * t % 7};
    int32_t k[2] = {t * 5 % 7, 1};
    tensor_t *c = tensor_cos(tensor_add_scalar(tensor_arange(0, 18, 1, TENSOR_F64), t)), *a, *b;
    a = tensor_embedding(tensor_from(i, TENSOR_I64, 2, 3), w, .padding_idx = 2, .sparse = sparse);
    b = tensor_embedding(tensor_from(k, TENSOR_I32, 2), w, .padding_idx = 2, .sparse = sparse);
    return tensor_add(tensor_sum(tensor_mul(a, tensor_reshape(c, 2, 3, 3))), tensor_sum(tensor_square(b)));
}
static void steps_by_rows(void) {
    for (int k = 0; k < 4; k++) {
        tensor_t *w = tensor_requires_grad_(first_table(), 1), *dense = tensor_requires_grad_(first_table(),
                1);
        nn_optimizer_t *twin = k == 1 ? nn_sgd(.list = &dense, .count = 1, .lr = 0.1, .momentum = 0.9,
                                               .nesterov = 1)
                                : k == 3 ? nn_adagrad(.list = &dense, .count = 1, .lr_decay = 0.1)
                                         : nn_sgd(.list = &dense, .count = 1, .lr = 0.1);
        nn_optimizer_t *o = k == 0 ? nn_sparse_adam(.list = &w, .count = 1, .lr = 0.05, .beta1 = 0.8,
                                                    .beta2 = 0.95, .eps = 1e-6, .maximize = 1)
                            : k == 1 ? nn_sgd(.list = &w, .count = 1, .lr = 0.1, .momentum = 0.9,
                                              .nesterov = 1)
                            : k == 3 ? nn_adagrad(.list = &w, .count = 1, .lr_decay = 0.1)
                                     : nn_sgd(.list = &w, .count = 1, .lr = 0.1);
        double got[21], worst = 0;
        for (int t = 0; t < 6; t++) {
            nn_zero_grad(o);
            nn_zero_grad(twin);
            tensor_backward(two_lookups(w, t, 1));
            tensor_backward(two_lookups(dense, t, 0));
            CHECK_NEAR(tensor_item(nn_clip_grad_norm(o, 2)), tensor_item(nn_clip_grad_norm(twin, 2)),
                       k ? 1e-12 : 10);
            CHECK(nn_step(o) == 0 && nn_step(twin) == 0);
        }
        tensor_copy_out(tensor_detach(w), got, sizeof got);
        for (int i = 0; i < 21 && k < 3; i++) { worst = fmax(worst, fabs(got[i] - by_rows[k][i])); }
        CHECK_MSG(worst <= 1e-13, "case %d: off by %g", k, worst);
        CHECK(k == 0 || tensor_allclose(tensor_detach(w), tensor_detach(dense), 1e-13, 1e-14));
        nn_optimizer_free(o);
        nn_optimizer_free(twin);
    }
    CHECK_OK();
}
// What is not by rows: gradients that are looked at, asked for, hooked, added to others.
static tensor_t *same(tensor_t *g, void *user) {
    (void)user;
    CHECK(tensor_size(g, 0) == 7);
    return NULL;
}
static void gradients_by_rows(void) {
    tensor_t *w = tensor_requires_grad_(first_table(), 1), *dense = tensor_requires_grad_(first_table(), 1),
        *g, *got;
    nn_module_t *e = nn_embedding(5, 2, .sparse = 1), *bag = nn_embedding_bag(5, 2, .sparse = 1);
    nn_optimizer_t *o = nn_sparse_adam(.list = &w, .count = 1), *other;
    CHECK(nn_sparse_adam(.list = &w, .count = 1, .eps = TENSOR_ZERO) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "sparse_adam: lr and eps must be > 0 (got ");
    CHECK(nn_sparse_adam(.list = &w, .count = 1, .lr = TENSOR_ZERO) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "sparse_adam: lr and eps must be > 0 (got ");
    CHECK(nn_state(NULL).count == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "nn.c:");
    CHECK(nn_named_parameters(NULL).count == 0);
    CHECK_ERROR(TENSOR_ERR_POISONED, "nn.c:");
    for (int t = 0; t < 3; t++) {
        tensor_backward(two_lookups(w, t, 1));
        tensor_backward(two_lookups(dense, t, 0));
        if (t == 1) { CHECK(nn_clip_grad_value(o, 0.5) == 0 && nn_clip_grad_value_n(&dense, 1, 0.5) == 0); }
    }
    CHECK(tensor_allclose(tensor_grad(w), tensor_grad(dense), 1e-13, 1e-14));
    tensor_backward(two_lookups(w, 4, 1));
    tensor_backward(two_lookups(dense, 4, 0));
    CHECK(tensor_allclose(tensor_grad(w), tensor_grad(dense), 1e-13, 1e-14));
    CHECK(nn_step(o) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "is not by rows");
    nn_zero_grad(o);
    tensor_set_grad(dense, NULL);
    tensor_backward(tensor_add(two_lookups(w, 5, 1), tensor_sum(tensor_sin(w))));
    tensor_backward(tensor_add(two_lookups(dense, 5, 0), tensor_sum(tensor_sin(dense))));
    CHECK(tensor_allclose(tensor_grad(w), tensor_grad(dense), 1e-13, 1e-14));
    nn_zero_grad(o);
    g = two_lookups(w, 1, 1);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &w, 1, &got, TENSOR_CREATE_GRAPH) == 0 &&
          tensor_size(got, 0) == 7);
    other = nn_sgd(bag, .lr = 1);
    tensor_backward(tensor_sum(nn_forward(bag, tensor_zeros_of(TENSOR_I64, 1, 3))));
    g = tensor_clone(tensor_detach(nn_get(bag, "weight")));
    CHECK(nn_step(other) == 0);
    CHECK_NEAR(tensor_item(tensor_sum(tensor_sub(g, tensor_detach(nn_get(bag, "weight"))))), 2, 1e-6);
    nn_optimizer_free(other);
    tensor_register_hook(w, same, NULL);
    tensor_backward(two_lookups(w, 1, 1));
    CHECK(tensor_size(tensor_grad(w), 0) == 7);
    // who refuses them
    for (int k = 0; k < 4; k++) {
        other = k == 0 ? nn_adam(e) : k == 1 ? nn_adamw(e) : k == 2 ? nn_rmsprop(e) :
            nn_sgd(e, .weight_decay = 1);
        tensor_backward(tensor_sum(nn_forward(e, tensor_arange(0, 3, 1, TENSOR_I64))));
        CHECK(nn_step(other) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "by rows (.sparse)");
        nn_optimizer_free(other);
    }
    CHECK(nn_to(e, TENSOR_F64) == 0 && tensor_size(tensor_grad(nn_get(e, "weight")), 0) == 5);
    nn_optimizer_free(o);
    nn_free(e);
    nn_free(bag);
    CHECK_OK();
}

// maximize climbs where the others descend: the same way as with the gradient's sign changed.
static void maximizing(void) {
    for (int k = 0; k < 4; k++) {
        tensor_t *w[2];
        nn_optimizer_t *o[2];
        for (int up = 0; up < 2; up++) {
            w[up] = first_weight(TENSOR_F64);
            o[up] = k == 0 ? nn_sgd(.list = &w[up], .count = 1, .lr = 0.1, .momentum = 0.5, .maximize = up)
                    : k == 1 ? nn_adam(.list = &w[up], .count = 1, .lr = 0.1, .maximize = up)
                    : k == 2 ? nn_adamw(.list = &w[up], .count = 1, .lr = 0.1, .maximize = up)
                             : nn_rmsprop(.list = &w[up], .count = 1, .lr = 0.1, .centered = 1, .maximize =
                                          up);
            for (int step = 0; step < 3; step++) {
                tensor_t *g = tensor_to(tensor_cos(tensor_add_scalar(tensor_arange(0, OPT_N, 1, TENSOR_F64),
                                                                     step)),
                                        TENSOR_F64);
                tensor_set_grad(w[up], up ? tensor_neg(g) : g);
                CHECK(nn_step(o[up]) == 0);
            }
            nn_optimizer_free(o[up]);
        }
        CHECK_MSG(tensor_equal(tensor_detach(w[0]), tensor_detach(w[1])), "optimizer %d", k);
        CHECK(!tensor_equal(tensor_detach(w[0]), tensor_detach(first_weight(TENSOR_F64))));
    }
}

static void same_bits_everywhere(void) {
    static const char *const names[6] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
    int k, n, i;
    for (k = 0; k < 14; k++) {
        uint64_t want = 0;
        for (i = 0; i < 6; i++) {
            if (tensor_set_isa(names[i]) != 0) {
                tensor_clear_error();
                continue;
            }
            {
                tensor_t *w = first_weight(TENSOR_F32);
                nn_optimizer_t *o = optimizer_case(k, &w);
                uint64_t h;
                for (n = 0; n < 5; n++) {
                    set_gradient(w, n);
                    nn_step(o);
                }
                h = test_hash(TEST_HASH, w);
                if (!want) { want = h; }
                CHECK_MSG(h == want, "optimizer %d differs on %s", k, names[i]);
                nn_optimizer_free(o);
            }
        }
    }
    tensor_set_isa(NULL);
}

static void same_bits_for_threads(void) {
    uint64_t want = 0;
    double want_norm = 0;
    int threads;
    for (threads = 1; threads <= 3; threads++) {
        tensor_t *list[3], *g;
        nn_optimizer_t *o;
        uint64_t h;
        double norm;
        int i;
        if (tensor_set_num_threads(threads) != 0) {
            tensor_clear_error();
            break;
        }
        tensor_manual_seed(3);
        for (i = 0; i < 3; i++) {
            list[i] = tensor_requires_grad_(i == 1 ? tensor_randn(5) : tensor_randn(300, 333), 1);
            g = tensor_randn_n(tensor_shape(list[i]).dims, tensor_ndim(list[i]));
            tensor_set_grad(list[i], g);
        }
        o = nn_adamw(.list = list, .count = 3);
        norm = tensor_item(nn_clip_grad_norm(o, 1));
        nn_step(o);
        h = test_hash(test_hash(test_hash(TEST_HASH, list[0]), list[1]), list[2]);
        if (threads == 1) {
            want = h;
            want_norm = norm;
        }
        CHECK(h == want && norm == want_norm);
        nn_optimizer_free(o);
    }
    tensor_set_num_threads(1);
}

static void groups_and_rates(void) {
    tensor_t *p[3];
    nn_optimizer_t *o;
    int i;
    for (i = 0; i < 3; i++) {
        p[i] = tensor_requires_grad_(tensor_ones(4), 1);
        tensor_set_grad(p[i], tensor_zeros(4));
    }
    o = nn_adamw(.list = p, .count = 2, .lr = 0.1, .weight_decay = 0.5);
    CHECK(nn_optimizer_group(o, p + 1, 1, .weight_decay = TENSOR_ZERO) == 0);
    CHECK(nn_optimizer_group(o, p + 2, 1, .lr = 0.2) == 0);
    nn_step(o);
    CHECK_NEAR(tensor_item(tensor_mean(p[0])), 0.95, 1e-6);
    CHECK_NEAR(tensor_item(tensor_mean(p[1])), 1, 0);
    CHECK_NEAR(tensor_item(tensor_mean(p[2])), 0.9, 1e-6);
    CHECK(nn_set_lr(o, 0.2) == 0 && nn_get_lr(o) == 0.2);
    nn_step(o);
    CHECK_NEAR(tensor_item(tensor_mean(p[0])), 0.95 * 0.9, 1e-6);
    CHECK_NEAR(tensor_item(tensor_mean(p[2])), 0.9 * 0.8, 1e-6);
    CHECK(nn_set_lr(o, -1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "set_lr");
    tensor_raise(TENSOR_ERR_IO, "pending");
    CHECK(nn_step(o) == TENSOR_ERR_IO);
    tensor_clear_error();
    CHECK_NEAR(tensor_item(tensor_mean(p[0])), 0.95 * 0.9, 1e-6);
    nn_optimizer_free(o);
    CHECK(nn_sgd(.list = p, .count = 3, .nesterov = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "nesterov");
    CHECK(nn_adam(.list = p, .count = 3, .beta2 = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "beta2");
    CHECK(nn_rmsprop(.list = p, .count = 3, .alpha = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "rmsprop: alpha must be >= 0 and < 1");
    CHECK(nn_adadelta(.list = p, .count = 3, .rho = 1.5) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "adadelta: rho must be >= 0 and <= 1");
    CHECK(nn_adagrad(.list = p, .count = 3, .lr_decay = -1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lr_decay");
}

// A step for which memory is short happens to no parameter; the same step works afterwards.
static void step_is_whole(void) {
    tensor_t *p[3];
    nn_optimizer_t *o;
    uint64_t before = TEST_HASH, after = TEST_HASH, once = TEST_HASH, twice = TEST_HASH;
    int round, i, k, failed = 0;
    for (round = 0; round < 2; round++) {
        tensor_memory_stats_t m;
        tensor_manual_seed(3);
        p[0] = tensor_randn(50, 40);
        p[1] = tensor_to(tensor_randn(300, 300), TENSOR_F16);
        p[2] = tensor_transpose(tensor_randn(30, 300), 0, 1);
        for (i = 0; i < 3; i++) {
            p[i] = tensor_requires_grad_(tensor_detach(p[i]), 1);
            tensor_set_grad(p[i], tensor_ones_like(p[i]));
        }
        o = nn_adam(.list = p, .count = 3, .lr = 0.1);
        if (round == 1) {
            for (i = 0; i < 3; i++) { before = test_hash(before, p[i]); }
            tensor_empty_cache();
            m = tensor_memory_stats();
            for (i = 1; i < 100 && tensor_ok(); i++) {
                tensor_set_memory_limit((uint64_t)m.reserved_bytes + (uint64_t)i * 100000);
                if (nn_step(o) == 0) { break; }
                CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "");
                tensor_set_memory_limit(0);
                failed++;
                after = TEST_HASH;
                for (k = 0; k < 3; k++) { after = test_hash(after, p[k]); }
                CHECK(after == before);
            }
            tensor_set_memory_limit(0);
            CHECK(failed > 2);
        } else {
            CHECK(nn_step(o) == 0);
        }
        for (i = 0; i < 3; i++) { *(round ? &twice : &once) = test_hash(round ? twice : once, p[i]); }
        nn_optimizer_free(o);
    }
    CHECK_MSG(once == twice, "failed %d", failed);
    p[0] = tensor_mul_scalar(p[0], 2);
    CHECK(nn_adam(.list = p, .count = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "parameter 0 [50,40] is not a leaf");
}

static void step_counts_as_write(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(3), 1), *y = tensor_sum(tensor_mul(w, w));
    nn_optimizer_t *o = nn_sgd(.list = &w, .count = 1, .lr = 0.1);
    tensor_set_grad(w, tensor_ones(3));
    nn_step(o);
    CHECK(tensor_backward(y) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "step");
    nn_optimizer_free(o);
}

static void clipping(void) {
    tensor_t *a = tensor_requires_grad_(tensor_zeros(2), 1), *b = tensor_requires_grad_(tensor_zeros(1), 1),
        *list[2];
    list[0] = a;
    list[1] = b;
    tensor_set_grad(a, tensor_full(2, 2));
    tensor_set_grad(b, tensor_full(1, 1));
    CHECK_NEAR(tensor_item(nn_clip_grad_norm_n(list, 2, 30)), 3, 1e-12);
    CHECK(tensor_item(tensor_max(tensor_grad(a))) == 2);
    CHECK_NEAR(tensor_item(nn_clip_grad_norm_n(list, 2, 1.5)), 3, 1e-12);
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(a))), 1, 1e-6);
    CHECK_NEAR(tensor_item(tensor_grad(b)), 0.5, 1e-6);
    CHECK(nn_clip_grad_value_n(list, 2, 0.75) == 0);
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(a))), 0.75, 0);
    tensor_set_grad(b, tensor_full(INFINITY, 1));
    CHECK(isinf(tensor_item(nn_clip_grad_norm_n(list, 2, 1))));
    tensor_set_grad(b, tensor_full(0, 1));              // max_norm / (norm + 1e-6)
    tensor_set_grad(a, tensor_mul_scalar(tensor_arange(0, 2, 1, TENSOR_F32), 1e-6));
    CHECK_NEAR(tensor_item(nn_clip_grad_norm_n(list, 2, 1e-6)), 1e-6, 1e-12);
    CHECK_NEAR(tensor_item(tensor_max(tensor_grad(a))), 0.5e-6, 1e-12);
    tensor_set_grad(b, tensor_full(INFINITY, 1));
    CHECK(isinf(tensor_item(nn_clip_grad_norm_n(list, 2, 1))));
    CHECK(isnan(tensor_item(tensor_grad(b))) && tensor_item(tensor_norm(tensor_grad(a))) == 0);
    CHECK_POISON(nn_clip_grad_norm_n(list, 2, -1), TENSOR_ERR_SHAPE, "max_norm");
}
// What one thread clips and unscales, several do to the bit; large, strided and half gradients too.
static void scaling_by_threads(void) {
    for (int dtype = 0; dtype < 3; dtype++) {
        tensor_dtype_t d = dtype == 0 ? TENSOR_F32 : dtype == 1 ? TENSOR_F64 : TENSOR_BF16;
        tensor_t *w = tensor_requires_grad_(tensor_zeros_of(d, 1100, 1001), 1), *g, *norm, *factor;
        nn_optimizer_t *o = nn_sgd(.list = &w, .count = 1);
        tensor_t *scaler = nn_grad_scaler(8, 1);
        g = tensor_transpose(tensor_to(tensor_randn(1001, 1100), d), 0, 1);
        for (int threads = 1; threads < 4; threads += 2) {
            if (tensor_set_num_threads(threads)) {      // there are none
                tensor_clear_error();
                break;
            }
            tensor_set_grad(w, tensor_mul_scalar(g, 1));
            norm = nn_clip_grad_norm(o, 3);
            factor = tensor_div(tensor_full_of(TENSOR_F64, 3, 1), tensor_add_scalar(norm, 1e-6));
            CHECK(tensor_equal(tensor_grad(w), tensor_mul_scalar(g, tensor_item(factor))));
            nn_zero_grad(o);
            tensor_set_grad(w, tensor_mul_scalar(g, 1));
            CHECK(nn_scaler_unscale(scaler, o) == 0);
            CHECK(tensor_equal(tensor_grad(w), tensor_mul_scalar(g, 0.125)));
            CHECK(tensor_item(tensor_select(scaler, 0, 5)) == 0);
            nn_zero_grad(o);
            tensor_set_grad(w, tensor_mul_scalar(g, 1));
            tensor_fill_(tensor_at(tensor_grad(w), "1099, 1000"),
                         threads == 1 ? (double)INFINITY : (double)NAN);
            CHECK(nn_scaler_unscale(scaler, o) == 0);
            CHECK(tensor_item(tensor_select(scaler, 0, 5)) == 1);
            nn_scaler_update(scaler);
            tensor_fill_(tensor_select(scaler, 0, 0), 8);
            nn_zero_grad(o);
        }
        tensor_set_num_threads(1);
        tensor_free(scaler);
        nn_optimizer_free(o);
    }
    CHECK_OK();
}

static void schedules(void) {
    CHECK_NEAR(nn_lr_cosine_warmup(0, 10, 110, 1, 0.1), 0.1, 1e-12);
    CHECK_NEAR(nn_lr_cosine_warmup(9, 10, 110, 1, 0.1), 1, 1e-12);
    CHECK_NEAR(nn_lr_cosine_warmup(60, 10, 110, 1, 0.1), 0.55, 1e-12);
    CHECK_NEAR(nn_lr_cosine_warmup(500, 10, 110, 1, 0.1), 0.1, 1e-12);
    CHECK_NEAR(nn_lr_step(29, 10, 1, 0.1), 0.01, 1e-15);
    CHECK_NEAR(nn_lr_exponential(3, 2, 0.5), 0.25, 1e-15);
    CHECK_NEAR(nn_lr_linear(2, 4, 1, 0.5, 1), 0.75, 1e-15);
    CHECK_NEAR(nn_lr_linear(9, 4, 1, 0.5, 1), 1, 1e-15);
}

// ---- data ----

static int squares(void *user, int64_t index, void *x, void *y) {
    float *p = (float *)x;
    int64_t *label = (int64_t *)y;
    if (user && index == *(int64_t *)user) { return TENSOR_ERR_IO; }
    p[0] = (float)index;
    p[1] = (float)(index * index);
    *label = index;
    return 0;
}

// Each of the 24 orders of 4 items comes about as often: 4800 epochs, 200 +- 14 expected each.
static void fair_shuffle(void) {
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(tensor_arange(0, 4, 1, TENSOR_F32), NULL),
                                         .batch_size = 4,
                                         .shuffle = 1, .seed = 3);
    int count[256] = {0}, orders = 0;
    for (int e = 0; e < 4800; e++) {
        nn_batch_t b;
        int code = 0;
        while (nn_next(l, &b)) {
            for (int i = 0; i < 4; i++) { code = code * 4 + (int)((const float *)tensor_data(b.x))[i]; }
        }
        count[code]++;
    }
    for (int i = 0; i < 256; i++) {
        if (!count[i]) { continue; }
        orders++;
        CHECK_MSG(count[i] > 130 && count[i] < 270, "order %d came %d times of 4800", i, count[i]);
    }
    CHECK(orders == 24);
    nn_data_loader_free(l);
}

static void loaders(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 20, 1, TENSOR_F32), 10, 2),
        *y = tensor_arange(0, 10, 1, TENSOR_I64);
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 4, .shuffle = 1, .seed = 7),
        *l2;
    nn_dataset_t d;
    nn_batch_t b;
    uint64_t epochs[2][4];
    int64_t seen, bad = 5;
    int e, n = 0, i;
    CHECK(nn_num_batches(l) == 3);
    for (e = 0; e < 2; e++) {
        for (n = 0, seen = 0; nn_next(l, &b); n++) {
            const float *px = (const float *)tensor_data(b.x);
            const int64_t *py = (const int64_t *)tensor_data(b.y);
            CHECK(b.size == (n < 2 ? 4 : 2) && b.index == n && b.epoch == e && tensor_size(b.x, 0) == b.size);
            for (i = 0; i < b.size; i++) {
                CHECK(px[2 * i] == 2 * (float)py[i] && px[2 * i + 1] == 2 * (float)py[i] + 1);
                seen |= (int64_t)1 << py[i];
            }
            epochs[e][n] = test_hash(TEST_HASH, b.y);
        }
        CHECK(n == 3 && seen == 1023);
    }
    CHECK(epochs[0][0] != epochs[1][0]);
    l2 = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 4, .shuffle = 1, .seed = 7);
    nn_seek(l2, 4);
    CHECK(nn_next(l2, &b) && test_hash(TEST_HASH, b.y) == epochs[1][1] && b.epoch == 1 && b.index == 1);
    nn_data_loader_free(l);
    nn_data_loader_free(l2);
    l = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 4, .drop_last = 1);
    for (n = 0; nn_next(l, &b); n++) { CHECK(b.y == NULL && b.size == 4); }
    CHECK(n == 2);
    nn_data_loader_free(l);
    memset(&d, 0, sizeof d);
    d.len = 9;
    d.get = squares;
    d.x_shape.ndim = 1;
    d.x_shape.dims[0] = 2;
    d.x_dtype = TENSOR_F32;
    d.y_dtype = TENSOR_I64;
    d.has_y = 1;
    l = nn_data_loader(d, .batch_size = 9, .num_workers = 2);
    CHECK(nn_next(l, &b) == 1 && ((const float *)tensor_data(b.x))[17] == 64);
    CHECK(nn_next(l, &b) == 0 && tensor_is_poison(b.x));
    nn_data_loader_free(l);
    d.user = &bad;
    l = nn_data_loader(d, .batch_size = 3);
    CHECK(nn_next(l, &b) == 1 && nn_next(l, &b) == 0);
    CHECK_ERROR(TENSOR_ERR_IO, "sample 5");
    CHECK(nn_data_loader_free(l) == 0 && nn_data_loader_free(l) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "data_loader_free: the loader was freed");
    CHECK(nn_next(l, &b) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "next: the loader was freed");
    CHECK(nn_seek(l, 0) == TENSOR_ERR_OWNER && strstr(tensor_error_text(), " at nn.c:"));
    CHECK(nn_num_batches(l) == 0);
    tensor_clear_error();
    CHECK(nn_data_loader(nn_tensor_dataset(x, tensor_ones(3))) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "samples of x [");
    CHECK(nn_data_loader(nn_tensor_dataset(x, y), .batch_size = -1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "batch_size");
}

// ---- safetensors ----

static void safetensors_round_trip(void) {
    static const tensor_dtype_t dtypes[10] = {TENSOR_F32, TENSOR_F64, TENSOR_I32, TENSOR_I64,
                                             TENSOR_U8,  TENSOR_BOOL, TENSOR_F16, TENSOR_BF16,
                                              TENSOR_I8,  TENSOR_I16};
    const char *names[10], *path = "nn_round_trip.safetensors";
    const nn_metadata_t meta[2] = {{"format", "pt"}, {"note", "caf\xc3\xa9 \"x\"\\"}};
    tensor_t *list[10];
    nn_safetensors_t *r;
    int i;
    for (i = 0; i < 10; i++) {
        names[i] = tensor_dtype_name(dtypes[i]);
        list[i] = tensor_transpose(tensor_to(tensor_randint(0, 2 + 50 * i, 3, 4), dtypes[i]), 0, 1);
    }
    CHECK(nn_safetensors_write(path, names, list, 10, meta, 2) == 0);
    r = nn_safetensors_open(path);
    CHECK(nn_safetensors_count(r) == 10);
    CHECK_TEXT(nn_safetensors_metadata(r, "note"), meta[1].value);
    CHECK(nn_safetensors_metadata(r, "nothing") == NULL);
    for (i = 0; i < 10; i++) {
        CHECK_MSG(tensor_equal(nn_safetensors_get(r, names[i]), list[i]), "%s", names[i]);
    }
    CHECK_POISON(nn_safetensors_get(r, "nothing"), TENSOR_ERR_INDEX, "nothing");
    CHECK(nn_safetensors_close(r) == 0 && nn_safetensors_close(r) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "closed already");
    CHECK_POISON(nn_safetensors_get(r, names[0]), TENSOR_ERR_OWNER, "closed");
    CHECK(nn_safetensors_count(r) == 0 && nn_safetensors_name(r, 0) == NULL);
    names[1] = names[0];
    CHECK(nn_safetensors_write(path, names, list, 10, NULL, 0) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "f32");
    names[1] = "a\x01";
    CHECK(nn_safetensors_write(path, names, list, 10, NULL, 0) == TENSOR_ERR_FORMAT);
    tensor_clear_error();
    r = nn_safetensors_open(path);
    CHECK(nn_safetensors_count(r) == 10);
    nn_safetensors_close(r);
    CHECK(nn_safetensors_write("no/such/dir/x", names, list, 1, NULL, 0) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "no/such/dir/x.tmp");
    CHECK(nn_safetensors_open("no/such/file") == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "no/such/file");
    CHECK(nn_safetensors_parse("x", 1) == NULL && strstr(tensor_error_text(), " at nn.c:"));
    tensor_clear_error();
    remove(path);
}

// A disk that is full: the process may write no file over 64 KiB.
static void full_disk(void) {
#ifdef __linux__
    const char *const name = "x";
    tensor_t *few = tensor_ones(10), *big = tensor_zeros(100000);
    struct rlimit before, limit;
    nn_safetensors_t *r;
    CHECK(nn_safetensors_write("nn_full", &name, &few, 1, NULL, 0) == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = before;
    limit.rlim_cur = 65536;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(nn_safetensors_write("nn_full", &name, &big, 1, NULL, 0) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "cannot write");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(fopen("nn_full.tmp", "rb") == NULL);
    r = nn_safetensors_open("nn_full");
    CHECK(tensor_equal(nn_safetensors_get(r, "x"), few));
    nn_safetensors_close(r);
    remove("nn_full");
#endif
}

// Whether path is of this kind (S_IFIFO, S_IFDIR, S_IFLNK), the last link not followed.
#ifdef __linux__
static int is_still(const char *path, mode_t kind) {
    struct stat st;
    return lstat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}
#endif

static void no_regular_file(void) {
#ifdef __linux__
    const char *const name = "x";
    tensor_t *x = tensor_ones(10);
    nn_module_t *m = nn_linear(2, 2);
    struct stat st;
    CHECK(mkfifo("nn_fifo", 0600) == 0 && mkdir("nn_dir", 0700) == 0);
    CHECK(nn_save("nn_fifo", m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "save: \"nn_fifo\" is not a regular file");
    CHECK(nn_save_checkpoint("nn_fifo", m, NULL, 1) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "save_checkpoint: \"nn_fifo\" is not a regular file");
    CHECK(nn_load("no such file", m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "load: safetensors: cannot open \"no such file\"");
    CHECK(nn_load("no such file", m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, " at nn.c:");
    CHECK(nn_load("nn_fifo", m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "\"nn_fifo\" is not a regular file");
    CHECK(nn_safetensors_write("nn_dir", &name, &x, 1, NULL, 0) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "save: \"nn_dir\" is not a regular file");
    CHECK(is_still("nn_fifo", S_IFIFO) && is_still("nn_dir", S_IFDIR));
    CHECK(fopen("nn_fifo.tmp", "rb") == NULL && fopen("nn_dir.tmp", "rb") == NULL);
    // Links stay and lead to the new file; one to a FIFO is refused like it.
    CHECK(symlink("target", "nn_dir/link") == 0 && symlink("nn_dir/link", "nn_link") == 0);
    CHECK(nn_save("nn_link", m) == 0 && nn_load("nn_dir/target", m) == 0);
    CHECK(nn_save("nn_link", m) == 0 && nn_load("nn_link", m) == 0);
    CHECK(is_still("nn_link", S_IFLNK) && is_still("nn_dir/link", S_IFLNK) &&
          is_still("nn_dir/target", S_IFREG));
    remove("nn_link");
    CHECK(symlink("nn_fifo", "nn_link") == 0);
    CHECK(nn_save("nn_link", m) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "save: \"nn_link\" is not a regular file");
    remove("nn_link");
    CHECK(symlink("nn_link", "nn_link") == 0);
    CHECK(nn_save("nn_link", m) == TENSOR_ERR_IO);
    tensor_clear_error();
    remove("nn_link");
    // A name that other savers may use is left alone (tests/files.c has the ones in use).
    CHECK(symlink("nn_fifo", "nn_plain.tmp") == 0);
    CHECK(nn_save("nn_plain", m) == 0 && is_still("nn_plain.tmp", S_IFLNK));
    remove("nn_plain.tmp");
    // Permissions stay.
    CHECK(nn_save("nn_plain", m) == 0 && chmod("nn_plain", 0600) == 0 && nn_save("nn_plain", m) == 0);
    CHECK(stat("nn_plain", &st) == 0 && (st.st_mode & 0777) == 0600);
    remove("nn_plain");
    remove("nn_dir/target");
    remove("nn_dir/link");
    remove("nn_dir");
    remove("nn_fifo");
    nn_free(m);
#endif
}

static void save_and_load(void) {
    const char *path = "nn_save.safetensors";
    nn_module_t *a = nn_sequential(nn_linear(3, 4), nn_linear(4, 2)),
        *b = nn_sequential(nn_linear(3, 4), nn_linear(4, 2));
    nn_module_t *c = nn_sequential(nn_linear(3, 5), nn_linear(5, 2), nn_linear(2, 2)),
        *one = nn_sequential(nn_linear(3, 4));
    tensor_t *x = tensor_randn(2, 3), *file, *before = tensor_clone(tensor_detach(nn_get(c, "0.weight")));
    CHECK(nn_save(path, a) == 0);
    CHECK(nn_load(path, b) == 0);
    CHECK(tensor_equal(nn_forward(a, x), nn_forward(b, x)));
    CHECK(nn_load(path, c) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "2 missing [2.weight, 2.bias], 3 of another shape "
                "[0.weight [4,3] (module: [5,3]), 0.bias [4] (module: [5]), 1.weight [2,4] (module: [2,5])]");
    CHECK(tensor_equal(nn_get(c, "0.weight"), before));
    CHECK(nn_load(path, one) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "2 unexpected [1.");
    CHECK(nn_load(path, one, .partial = 1) == 0);
    CHECK(tensor_equal(nn_get(one, "0.weight"), nn_get(a, "0.weight")));
    file = nn_save_memory(a);
    nn_init_zeros_(nn_get(b, "1.bias"));
    CHECK(nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), b, 0) == 0);
    CHECK(tensor_equal(nn_get(b, "1.bias"), nn_get(a, "1.bias")));
    nn_free(a);
    nn_free(b);
    nn_free(c);
    nn_free(one);
    remove(path);
}

static nn_module_t *resumed_net(void) {
    return nn_sequential(nn_linear(6, 8), nn_gelu(), nn_dropout(0.25), nn_linear(8, 3));
}

static void train(nn_module_t *net, nn_optimizer_t *o, nn_data_loader_t *l, int64_t from, int64_t to) {
    nn_batch_t b;
    tensor_scope_t s = tensor_scope_begin();
    int64_t i;
    for (i = from; i < to; i++, tensor_scope_reset(s)) {
        if (!nn_next(l, &b)) { nn_next(l, &b); }
        nn_zero_grad(o);
        tensor_backward(tensor_mean(tensor_square(tensor_sub(nn_forward(net, b.x), b.y))));
        nn_clip_grad_norm(o, 0.5);
        nn_set_lr(o, nn_lr_cosine(i, 20, 0.01, 0.001));
        nn_step(o);
    }
    tensor_scope_end(s);
}

static uint64_t state_hash(nn_module_t *m) {
    nn_named_list_t list = nn_state(m);
    uint64_t h = TEST_HASH;
    int64_t i;
    for (i = 0; i < list.count; i++) { h = test_hash(h, list.item[i].tensor); }
    return h;
}

static nn_optimizer_t *resumed_optimizer(int which, nn_module_t *m) {
    switch (which) {
    case 2: return nn_adagrad(m, .lr_decay = 0.01, .initial_accumulator_value = 0.5);
    case 3: return nn_adadelta(m, .rho = 0.7);
    case 4: return nn_adamax(m);
    case 5: return nn_nadam(m, .decoupled_weight_decay = 1, .weight_decay = 0.1, .momentum_decay = 0.1);
    case 6: return nn_radam(m);
    default: return nn_adamw(m, .lr = 0.01, .amsgrad = 1);
    }
}
// The checkpoint as it was before the last options came.
static void make_old(const char *path, int64_t options) {
    static const char *const keys[] = {"format", "step", "generator.seed", "generator.offset", "optimizer"};
    const char *other = "nn_resume_old.safetensors", *names[40];
    nn_safetensors_t *r = nn_safetensors_open(path);
    tensor_t *all[40];
    nn_metadata_t metadata[5];
    int i, n = (int)nn_safetensors_count(r);
    CHECK(n > 10 && n <= 40);
    for (i = 0; i < n && i < 40; i++) {
        names[i] = nn_safetensors_name(r, i);
        all[i] = nn_safetensors_get(r, names[i]);
        if (strcmp(names[i], "optimizer/options") == 0) {
            CHECK(tensor_numel(all[i]) > options);
            all[i] = tensor_clone(tensor_narrow(all[i], 0, 0, options));
        }
        if (strcmp(names[i], "optimizer/groups") == 0) {        // ratio and weight decay only
            tensor_t *ratio = tensor_narrow(all[i], 1, 0, 1), *decay = tensor_narrow(all[i], 1, 2, 1);
            tensor_t *whole = tensor_select(nn_safetensors_get(r, "optimizer/options"), 0, 1);
            all[i] = tensor_cat(1, ratio, tensor_where(tensor_isnan(decay), whole, decay));
        }
    }
    for (i = 0; i < 5; i++) {
        metadata[i].key = keys[i];
        metadata[i].value = nn_safetensors_metadata(r, keys[i]);
    }
    CHECK(nn_safetensors_write(other, names, all, n, metadata, 5) == 0);
    nn_safetensors_close(r);
    CHECK(rename(other, path) == 0);
}

static void resume_with(int which) {
    const char *path = "nn_resume.safetensors";
    tensor_t *x = tensor_randn(10, 6), *y = tensor_randn(10, 3);
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 4, .shuffle = 1, .seed = 5);
    nn_module_t *net, *again;
    nn_optimizer_t *o;
    tensor_t *bias;
    int64_t step = 0;
    uint64_t want;
    tensor_manual_seed(1);
    net = resumed_net();
    o = resumed_optimizer(which, net);
    bias = nn_get(net, "0.bias");
    nn_optimizer_group(o, &bias, 1, .weight_decay = TENSOR_ZERO, .lr = 0.02);
    train(net, o, l, 0, 7);
    CHECK(nn_save_checkpoint(path, net, o, 7) == 0);
    if (which == 1 || which == 2) { make_old(path, which == 1 ? 11 : 15); }
    train(net, o, l, 7, 15);
    want = state_hash(net);
    nn_optimizer_free(o);
    nn_data_loader_free(l);
    tensor_manual_seed(99);
    again = resumed_net();
    o = resumed_optimizer(which, again);
    bias = nn_get(again, "0.bias");
    nn_optimizer_group(o, &bias, 1, .weight_decay = TENSOR_ZERO, .lr = 0.5);
    l = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 4, .shuffle = 1, .seed = 5);
    CHECK(nn_load_checkpoint(path, again, o, &step) == 0 && step == 7);
    nn_seek(l, step);
    train(again, o, l, step, 15);
    CHECK_MSG(state_hash(again) == want, "case %d: %s", which, tensor_error_text());
    nn_optimizer_free(o);
    nn_to(again, TENSOR_F64);           // the parameters and the optimizer's state are converted, and back
    o = resumed_optimizer(which, again);
    nn_optimizer_group(o, &bias, 1, .weight_decay = TENSOR_ZERO, .lr = 0.5);
    CHECK_MSG(nn_load_checkpoint(path, again, o, NULL) == 0, "case %d: %s", which, tensor_error_text());
    CHECK(nn_save_checkpoint(path, again, o, 7) == 0);
    nn_optimizer_free(o);
    nn_to(again, TENSOR_F32);
    o = resumed_optimizer(which, again);
    nn_optimizer_group(o, &bias, 1, .weight_decay = TENSOR_ZERO, .lr = 0.5);
    CHECK(nn_load_checkpoint(path, again, o, &step) == 0);
    nn_seek(l, step);
    train(again, o, l, step, 15);
    CHECK_MSG(state_hash(again) == want, "case %d: %s", which, tensor_error_text());
    nn_optimizer_free(o);
    o = nn_sgd(again);
    CHECK(nn_load_checkpoint(path, again, o, NULL) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, which < 2 ? "state of adamw, not of sgd" : "not of sgd");
    nn_optimizer_free(o);
    o = nn_sgd(net);                    // has no states: nothing in the file would tell
    CHECK(nn_save_checkpoint(path, again, o, 7) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "save_checkpoint: sgd has none of the module's parameters: it is the "
                                  "optimizer of another net");
    CHECK(nn_save_checkpoint(path, net, o, 7) == 0);
    CHECK(nn_load_checkpoint(path, again, o, &step) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "load_checkpoint: sgd has none of the module's parameters");
    nn_optimizer_free(o);
    CHECK(nn_load_checkpoint(path, again, NULL, &step) == 0);
    CHECK(nn_save(path, again) == 0);
    CHECK(nn_load_checkpoint(path, again, NULL, &step) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "not a checkpoint");
    nn_data_loader_free(l);
    nn_free(net);
    nn_free(again);
    remove(path);
}
// A batch is left out after its gradients were unscaled; nn_scaler_update forgets that, whoever drops them.
static void step_left_out(void) {
    for (int by_module = 0; by_module < 2; by_module++) {
        nn_module_t *net = nn_linear(2, 1);
        nn_optimizer_t *o = nn_sgd(net, .lr = 0.1), *other = nn_sgd(net, .lr = 0.1);
        tensor_t *scaler = nn_grad_scaler(1024, 1000), *second = nn_grad_scaler(2, 1000);
        tensor_t *x = tensor_ones(4, 2);
        nn_init_constant_(nn_get(net, "weight"), 1);
        for (int i = 0; i < 2; i++) {
            if (by_module) {
                nn_module_zero_grad(net);
            } else {
                nn_zero_grad(o);
            }
            CHECK(tensor_backward(nn_scaler_scale(scaler, tensor_mean(nn_forward(net, x)))) == 0);
            if (i == 0) {
                CHECK(nn_scaler_unscale(scaler, o) == 0);
            } else {
                CHECK(nn_scaler_step(scaler, o) == 0);
            }
            CHECK(nn_scaler_update(scaler) == 0);
        }
        CHECK_NEAR(tensor_item(tensor_at(tensor_detach(nn_get(net, "weight")), "0, 0")), 0.9, 1e-6);
        // the update of another scaler forgets nothing
        CHECK(nn_scaler_unscale(second, other) == 0 && nn_scaler_update(scaler) == 0);
        CHECK(nn_scaler_unscale(second, other) == TENSOR_ERR_UNSUPPORTED);
        tensor_clear_error();
        CHECK(nn_scaler_update(second) == 0 && nn_scaler_unscale(second, other) == 0);
        CHECK(nn_scaler_step(scaler, other) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "scaler_step: another scaler unscaled the gradients");
        CHECK(nn_scaler_step(NULL, other) == TENSOR_ERR_POISONED);
        tensor_clear_error();
        CHECK(nn_scaler_step(second, other) == 0);
        nn_optimizer_free(o);
        nn_optimizer_free(other);
        nn_free(net);
        tensor_free(scaler);
        tensor_free(second);
    }
}

static void resume_bit_for_bit(void) {
    for (int which = 0; which < 7; which++) { resume_with(which); }
}

// A million terms, all the same: one chain in f32 would be 1 % off. Columns of y are equal.
static void is_about(tensor_t *y, double want, double tol, int line) {
    double worst = tensor_item(tensor_max(tensor_abs(tensor_sub_scalar(tensor_to(y, TENSOR_F64), want))));
    test_note(worst <= tol * fabs(want), __FILE__, line, "%.9g: off by %.3g", want, worst);
}
#define ABOUT(y, want, tol) is_about(y, want, tol, __LINE__)
static void long_sums(void) {
    enum { N = 1000000 };
    const double t = (double)0.1f;
    tensor_t *x = tensor_full(0.1, N), *zero = tensor_zeros_of(TENSOR_I64, N), *one = tensor_ones(N, 3);
    tensor_t *w = tensor_requires_grad_(tensor_ones(3), 1), *y;
    tensor_t *b = tensor_requires_grad_(tensor_zeros(3), 1);
    tensor_t *table = tensor_requires_grad_(tensor_zeros(2, 3), 1), *g = tensor_full(0.1, N, 3);
    ABOUT(tensor_adaptive_avg_pool1d(tensor_reshape(x, 1, 1, N), 1), t, 1e-6);
    ABOUT(tensor_avg_pool1d(tensor_reshape(x, 1, 1, N), N), t, 1e-6);
    ABOUT(tensor_avg_pool2d(tensor_reshape(x, 1, 1, N / 2, 2), N / 2, .kernel_w = 2), t, 1e-6);
    ABOUT(tensor_avg_pool3d(tensor_reshape(x, 1, 1, 100, 100, 100), 100), t, 1e-6);
    y = tensor_layer_norm(tensor_mul(one, tensor_arange(0, 3, 1, TENSOR_F32)), 1, .weight = w, .bias = b);
    CHECK(tensor_backward_with(y, g, 0) == 0);
    ABOUT(tensor_grad(b), t * N, 2e-6);
    ABOUT(tensor_select(tensor_grad(w), 0, 2), t * N * 1.2247356859083902, 3e-6);      // 1 / sqrt(2/3 + 1e-5)
    w = tensor_requires_grad_(tensor_ones(3), 1);
    CHECK(tensor_backward_with(tensor_rms_norm(one, 1, .weight = w), g, 0) == 0);
    ABOUT(tensor_grad(w), t * N, 3e-6);
    CHECK(tensor_backward_with(tensor_embedding(zero, table), g, 0) == 0);
    ABOUT(tensor_select(tensor_grad(table), 0, 0), t * N, 1e-5);
    ABOUT(tensor_index_add(tensor_zeros(1), 0, zero, x), t * N, 1e-6);
    ABOUT(tensor_index_add(tensor_zeros(1, 3), 0, zero, g), t * N, 1e-6);
    ABOUT(tensor_scatter_add(tensor_zeros(1), 0, zero, x), t * N, 1e-6);
    ABOUT(tensor_index_add(tensor_zeros_of(TENSOR_BF16, 1), 0, zero, tensor_to(x, TENSOR_BF16)),
          N * 0.10009765625, 4e-3);
    ABOUT(tensor_dot(x, tensor_ones(N)), t * N, 1e-5);
    ABOUT(tensor_mv(tensor_transpose(g, 0, 1), tensor_ones(N)), t * N, 1e-5);
    ABOUT(tensor_matmul(tensor_transpose(g, 0, 1), one), t * N, 1e-5);
}

static void shutdown_frees_all(void) {
    static my_t my;
    nn_module_t *shared = nn_linear(2, 2), *a = nn_sequential(shared, nn_relu()),
        *b = nn_sequential(shared, a);
    nn_adam(b);
    destroyed = 0;
    my_init(&my);
    nn_child(&my.base, "b", b);
    nn_named_parameters(&my.base);
    nn_data_loader(nn_tensor_dataset(tensor_ones(3, 1), NULL), .shuffle = 1);
    nn_safetensors_parse("\2\0\0\0\0\0\0\0{}", 10);
    CHECK(tensor_ok());
}

// nn_to: the same tensors in another dtype, all or none; the optimizer goes on.
static void modules_change_dtype(void) {
    nn_module_t *m = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4), nn_linear(4, 2));
    nn_optimizer_t *o = nn_adam(m, .lr = 0.1);
    tensor_t *x = tensor_randn(5, 3), *p[8], *w, *before, *y;
    int n = nn_parameters(m, p, 8), i;
    w = p[0];
    before = tensor_clone(tensor_detach(w));
    tensor_backward(tensor_sum(tensor_square(nn_forward(m, x))));
    CHECK(nn_step(o) == 0);
    before = tensor_clone(tensor_detach(w));
    CHECK(nn_to(m, TENSOR_F64) == 0);
    CHECK(nn_parameters(m, p, 8) == n && p[0] == w && tensor_equal(w, tensor_to(before, TENSOR_F64)));
    for (i = 0; i < n; i++) {
        CHECK(tensor_dtype(p[i]) == TENSOR_F64 && tensor_requires_grad(p[i]));
        CHECK(tensor_dtype(tensor_grad(p[i])) == TENSOR_F64);
    }
    CHECK(tensor_dtype(nn_get(m, "1.running_mean")) == TENSOR_F64);
    CHECK(tensor_dtype(nn_get(m, "1.num_batches_tracked")) == TENSOR_I64);
    nn_zero_grad(o);
    y = nn_forward(m, tensor_to(x, TENSOR_F64));
    CHECK(tensor_dtype(y) == TENSOR_F64);
    tensor_backward(tensor_sum(tensor_square(y)));
    CHECK(nn_step(o) == 0 && !tensor_equal(w, tensor_to(before, TENSOR_F64)));
    CHECK(nn_to(m, TENSOR_F16) == 0 && tensor_dtype(w) == TENSOR_F16);
    CHECK(nn_to(m, TENSOR_F32) == 0 && tensor_dtype(nn_forward(m, x)) == TENSOR_F32);
    CHECK(nn_to(m, TENSOR_I64) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "to: i64 is neither a float dtype nor a device at nn.c");
    CHECK(nn_to(m, TENSOR_CUDA) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "no CUDA device 0");
    CHECK(nn_to(m, 12345) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "to: device 12345 must be TENSOR_CPU or TENSOR_CUDA + n");
    CHECK(nn_to(m, -1) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "to: -1 is neither a float dtype nor a device at nn.c");
    tensor_t *whole = tensor_zeros_of(TENSOR_I64, 3, 4);
    CHECK_POISON(nn_init_kaiming_uniform_(whole), TENSOR_ERR_DTYPE,
                 "kaiming_uniform_: t [3,4] is i64, a float dtype is needed at nn.c");
    CHECK_POISON(nn_init_trunc_normal_(whole, 0, 1, -2, 2), TENSOR_ERR_DTYPE, "t [3,4] is i64, a float");
    CHECK_POISON(nn_init_orthogonal_(whole, 1), TENSOR_ERR_DTYPE, "orthogonal_: t [3,4] is i64");
    CHECK(nn_to(NULL, TENSOR_F32) != 0);
    tensor_clear_error();
    nn_optimizer_free(o);
    nn_free(m);
}

// The gradient an op makes becomes the leaf's own: backward needs room for it once.
static void gradients_are_taken(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(64, 1000), 1), *w = tensor_ones(1000), *y, *t;
    uint64_t before, limit = 64 * 1000 * 4 * 3 / 2;
    int norm;
    for (norm = 0; norm < 2; norm++) {
        t = norm ? tensor_randn(64, 1000) : tensor_randint(0, 1000, 64);
        y = norm ? tensor_layer_norm(x, 1, w, w) : tensor_cross_entropy(x, t);
        tensor_reset_peak_memory();
        before = tensor_memory_stats().live_bytes;
        CHECK((norm ? tensor_backward_with(y, t, 0) : tensor_backward(y)) == 0);
        CHECK_MSG(tensor_memory_stats().peak_bytes - before < limit, "%s: %llu bytes", norm ? "norm" : "loss",
                  (unsigned long long)(tensor_memory_stats().peak_bytes - before));
        tensor_set_grad(x, NULL);
    }
}

// What a stranger tried and PyTorch refuses, or gives otherwise.
static void odd_arguments(void) {
    tensor_t *x = tensor_randn(1, 1, 4, 4), *a, *e, *list[2], *parts[4];
    tensor_pair_t p;
    nn_optimizer_t *o;
    CHECK_POISON(tensor_lp_pool2d(x, 0, 2, 0, 0), TENSOR_ERR_SHAPE, "lp_pool2d: norm must not be 0");
    CHECK_POISON(tensor_lp_pool2d(x, 2, 2, -1, 0), TENSOR_ERR_SHAPE, "stride must be >= 0 (got -1)");
    CHECK(nn_lp_pool2d(0, 2, 0, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "norm must not be 0");
    CHECK_POISON(tensor_adaptive_avg_pool2d(x, -2, 2), TENSOR_ERR_SHAPE, "size -2 of the result");
    CHECK(tensor_size(tensor_adaptive_avg_pool2d(x, -1, 2), 2) == 4);
    p = tensor_max_pool2d_with_indices(x, 2);
    CHECK_POISON(tensor_max_unpool2d(p.values, p.indices, 2, .size = 99), TENSOR_ERR_SHAPE,
                 "size 99 must be in 3..5");
    CHECK(tensor_size(tensor_max_unpool2d(p.values, p.indices, 2, .size = 5), 3) == 5);
    CHECK(nn_lr_one_cycle(9, 10, 1, 1.0, 25, 1e4) == 1 && nn_lr_one_cycle(9, 10, 1, 0.3, 25, 1e4) < 1e-5);
    CHECK(nn_lr_cyclic(5, INT64_MAX, 1, 0, 1, 1) > 0);      // 0 if the sum overflows
    CHECK(nn_lr_plateau(NULL, 1, 0.5) == 0.5);
    CHECK_ERROR(TENSOR_ERR_POISONED, "lr_plateau");
    nn_plateau_t grows = {.factor = 2};
    CHECK(nn_lr_plateau(&grows, 1, 0.5) == 0.5);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lr_plateau: factor is 2, must be less than 1");
    CHECK(tensor_chunk(tensor_zeros(3, 0), 4, 1, parts, 4) == 4 && tensor_size(parts[3], 1) == 0);
    a = tensor_requires_grad_(tensor_ones(2), 1);
    e = tensor_requires_grad_(tensor_detach(tensor_expand(tensor_ones(1), 2)), 1);
    list[0] = a;
    list[1] = e;
    CHECK(nn_adam(.list = list, .count = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "parameter 1 [2] is expanded");
    o = nn_adam(.list = list, .count = 1);
    CHECK(nn_optimizer_group(o, list, -1, .lr = 1) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "optimizer_group: n -1 must be >= 0");
    CHECK(tensor_backward(tensor_sum(tensor_embedding(tensor_arange(0, 3, 1, TENSOR_I64),
                                                      tensor_requires_grad_(
                                                          tensor_ones(6, 3), 1)))) == 0);
    nn_optimizer_free(o);
}

// Cross entropy against a plain sum in double: rows of one and of many classes, masked, far and near.
static void cross_entropy_values(void) {
    static const int sizes[] = {1, 2, 15, 16, 17, 63, 64, 100, 1000};
    for (int k = 0; k < (int)(sizeof sizes / sizeof sizes[0]); k++) {
        for (int scale = 1; scale <= 100; scale *= 10) {
            int n = sizes[k];
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *x = tensor_mul_scalar(tensor_randn(3, n), scale);
            tensor_t *t = tensor_zeros_of(TENSOR_I64, 3);
            float *p = (float *)tensor_data_mut(x);
            double want = 0, got;
            if (n > 2) { p[n - 1] = -INFINITY; }
            for (int r = 0; r < 3; r++) {
                double sum = 0, top = -INFINITY;
                for (int i = 0; i < n; i++) { top = p[r * n + i] > top ? (double)p[r * n + i] : top; }
                for (int i = 0; i < n; i++) { sum += exp((double)p[r * n + i] - top); }
                want += (top + log(sum) - (double)p[r * n]) / 3;
            }
            got = tensor_item(tensor_cross_entropy(x, t));
            CHECK_MSG(fabs(got - want) <= 1.5e-7 * (1 + fabs(want)), "%d classes, scale %d: %.9g, not %.9g",
                      n, scale, got, want);
            p[0] = NAN;
            got = tensor_item(tensor_cross_entropy(x, t));
            CHECK(got != got);
            tensor_scope_end(scope);
        }
    }
}

// What name_defaults() gives is taken literally, also with a site, and an option too many is still noticed.
static void literal_defaults(void) {
    nn_data_loader_args_t batches = nn_data_loader_defaults();
    nn_load_args_t file = nn_load_defaults();
    nn_kaiming_args_t start = nn_kaiming_defaults();
    nn_embedding_args_t table = nn_embedding_defaults();
    nn_module_t *m;
    nn_data_loader_t *l;
    nn_batch_t batch;
    CHECK(batches.batch_size == 1 && !file.partial && !start.fan_out && table.padding_idx == -1);
    batches.site_ = TENSOR_HERE;
    batches.dataset = nn_tensor_dataset(tensor_ones(4, 2), tensor_ones(4, 2));
    l = nn_data_loader_with(batches);
    CHECK(l && nn_num_batches(l) == 4 && nn_next(l, &batch) && tensor_size(batch.x, 0) == 1);
    nn_data_loader_free(l);
    table.count = 3, table.size = 2;
    m = nn_embedding_with(table);
    CHECK(tensor_item(tensor_sum(tensor_abs(tensor_select(nn_get(m, "weight"), 0, 2)))) > 0);
    nn_free(m);
    table.padding_idx = 0;
    m = nn_embedding_with(table);
    CHECK(tensor_item(tensor_sum(tensor_abs(tensor_select(nn_get(m, "weight"), 0, 0)))) == 0);
    nn_free(m);
    table.options_are_named_ = (const struct tensor_options_are_named *)(const void *)&table;
    CHECK(nn_embedding_with(table) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "embedding: too many positional arguments");
}

// Every layer prints what PyTorch 2.15 prints of it: print(torch.nn.Linear(4, 2)).
static void printed_layers(void) {
    const struct {
        nn_module_t *m;
        const char *text;
    } rows[] = {
        {nn_linear(4, 2), "Linear(in_features=4, out_features=2, bias=True)"},
        {nn_linear(4, 2, .no_bias = 1), "Linear(in_features=4, out_features=2, bias=False)"},
        {nn_conv1d(1, 2, 3, .same = 1), "Conv1d(1, 2, kernel_size=(3,), stride=(1,), padding=same)"},
        {nn_conv_transpose2d(2, 4, 3, 2, 1, 1),
         "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1))"},
        {nn_max_pool1d(2), "MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"},
        {nn_avg_pool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"},
        {nn_avg_pool2d(2, .kernel_w = 3), "AvgPool2d(kernel_size=(2, 3), stride=(2, 3), padding=0)"},
        {nn_adaptive_avg_pool1d(3), "AdaptiveAvgPool1d(output_size=3)"},
        {nn_adaptive_avg_pool2d(1, 1), "AdaptiveAvgPool2d(output_size=(1, 1))"},
        {nn_adaptive_max_pool3d(2, 2, 2), "AdaptiveMaxPool3d(output_size=(2, 2, 2))"},
        {nn_multihead_attention(8, 2),
         "MultiheadAttention(\n"
         "  (out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)\n"
         ")"},
        {nn_adaptive_avg_pool2d(-1, 3), "AdaptiveAvgPool2d(output_size=(None, 3))"},
        {nn_adaptive_avg_pool2d(-1, -1), "AdaptiveAvgPool2d(output_size=(None, None))"},
        {nn_max_unpool2d(2), "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"},
        {nn_lp_pool1d(2, 3, 0, 0), "LPPool1d(norm_type=2.0, kernel_size=3, stride=None, ceil_mode=False)"},
        {nn_lp_pool2d(2.5, 3, 2, 1), "LPPool2d(norm_type=2.5, kernel_size=3, stride=2, ceil_mode=True)"},
        {nn_upsample(.scale_factor = 2), "Upsample(scale_factor=2.0, mode='nearest')"},
        {nn_upsample(.scale_factor = 2, .scale_factor_w = 3),
         "Upsample(scale_factor=(2.0, 3.0), mode='nearest')"},
        {nn_upsample(5, .size_w = 6, .mode = TENSOR_BILINEAR), "Upsample(size=(5, 6), mode='bilinear')"},
        {nn_upsample(5, .mode = TENSOR_BILINEAR), "Upsample(size=5, mode='bilinear')"},
        {nn_constant_pad2d(1, 3), "ConstantPad2d(padding=(1, 1, 1, 1), value=3.0)"},
        {nn_unfold(2, .kernel_w = 3, .padding = 1),
         "Unfold(kernel_size=(2, 3), dilation=1, padding=1, stride=1)"},
        {nn_fold(5, 2, .width = 6),
         "Fold(output_size=(5, 6), kernel_size=2, dilation=1, padding=0, stride=1)"},
        {nn_layer_norm(5), "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=True)"},
        {nn_layer_norm(5, .no_affine = 1),
         "LayerNorm((5,), eps=1e-05, elementwise_affine=False, bias=False)"},
        {nn_layer_norm(5, .no_bias = 1), "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=False)"},
        {nn_embedding_bag(4, 2, .mode = TENSOR_BAG_SUM, .padding_idx = -3),
         "EmbeddingBag(4, 2, mode='sum', padding_idx=1)"},
        {nn_embedding_bag(4, 2, .max_norm = 1.5, .norm_type = 1, .scale_grad_by_freq = 1),
         "EmbeddingBag(4, 2, max_norm=1.5, norm_type=1.0, scale_grad_by_freq=True, mode='mean')"},
        {nn_sync_batch_norm(4),
         "SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"},
        {nn_fractional_max_pool2d(2, 3), "FractionalMaxPool2d()"},
        {nn_fractional_max_pool3d(2, .output_ratio = 0.5), "FractionalMaxPool3d()"},
        {nn_adaptive_log_softmax_with_loss(8, 9, .cutoffs = TENSOR_DIMS(3)),
         "AdaptiveLogSoftmaxWithLoss(\n"
         "  (head): Linear(in_features=8, out_features=4, bias=False)\n"
         "  (tail): ModuleList(\n"
         "    (0): Sequential(\n"
         "      (0): Linear(in_features=8, out_features=2, bias=False)\n"
         "      (1): Linear(in_features=2, out_features=6, bias=False)\n"
         "    )\n"
         "  )\n"
         ")"},
        {nn_bilinear(2, 3, 4, 0), "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)"},
        {nn_bilinear(2, 3, 4, 1), "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=False)"},
        {nn_rnn(5, 6, .relu = 1), "RNN(5, 6)"},
        {nn_rnn_cell(5, 6, .relu = 1, .no_bias = 1), "RNNCell(5, 6, bias=False, nonlinearity=relu)"},
        {nn_batch_norm2d(3),
         "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"},
        {nn_instance_norm2d(3),
         "InstanceNorm2d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, track_running_stats=False)"},
        {nn_group_norm(2, 4), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)"},
        {nn_rms_norm(5), "RMSNorm((5,), eps=None, elementwise_affine=True)"},
        {nn_local_response_norm(5), "LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=1.0)"},
        {nn_embedding(4, 2, .padding_idx = TENSOR_ZERO), "Embedding(4, 2, padding_idx=0)"},
        {nn_embedding(4, 2, .max_norm = 1, .norm_type = 1, .scale_grad_by_freq = 1, .sparse = 1),
         "Embedding(4, 2, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True, sparse=True)"},
        {nn_dropout(0.5), "Dropout(p=0.5, inplace=False)"},
        {nn_dropout2d(1), "Dropout2d(p=1.0, inplace=False)"},
        {nn_alpha_dropout(0.2), "AlphaDropout(p=0.2, inplace=False)"},
        {nn_flatten(), "Flatten(start_dim=1, end_dim=-1)"},
        {nn_leaky_relu(0), "LeakyReLU(negative_slope=0.0)"},
        {nn_elu(1), "ELU(alpha=1.0)"},
        {nn_softplus(1, 20), "Softplus(beta=1.0, threshold=20.0)"},
        {nn_hardtanh(-1, 1), "Hardtanh(min_val=-1.0, max_val=1.0)"},
        {nn_threshold(0.1, 20), "Threshold(threshold=0.1, value=20.0)"},
        {nn_threshold(1.0 / 3, 123456789), "Threshold(threshold=0.3333333333333333, value=123456789.0)"},
        {nn_elu(-123456.5), "ELU(alpha=-123456.5)"},
        {nn_celu(1e-5), "CELU(alpha=1e-05)"},
        {nn_upsample(4, .size_h = 5, .size_w = 6), "Upsample(size=(4, 5, 6), mode='nearest')"},
    };
    char text[300];
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        nn_module_t *copy = nn_clone(rows[k].m);
        nn_to_string(copy, text, sizeof text);
        CHECK_TEXT(text, rows[k].text);
        nn_free(copy), nn_free(rows[k].m);
    }
}

// The gradient of the logits takes their memory, unless that is the program's.
static void wrapped_logits(void) {
    static float buffer[2000 * 50];
    static int64_t label[2000];
    int i;
    for (i = 0; i < 2000 * 50; i++) { buffer[i] = (float)(i % 7); }
    for (i = 0; i < 2000; i++) { label[i] = i % 50; }
    tensor_t *w = tensor_requires_grad_(tensor_ones(50), 1), *x = tensor_wrap(buffer, TENSOR_F32, 2000, 50);
    tensor_mul_(x, w);
    tensor_t *loss = tensor_cross_entropy(x, tensor_from(label, TENSOR_I64, 2000));
    tensor_free(x);
    CHECK(tensor_backward(loss) == 0);
    for (i = 0; i < 2000 * 50 && buffer[i] == (float)(i % 7); i++) {}
    CHECK_MSG(i == 2000 * 50, "element %d is %g", i, (double)buffer[i % (2000 * 50)]);
}

int main(void) {
    RUN(odd_arguments);
    RUN(user_module);
    RUN(gradients_are_taken);
    RUN(failed_modules);
    RUN(freed_objects);
    RUN(null_arguments);
    RUN(argument_names);
    RUN(linear_activations);
    RUN(relu_after_pool);
    RUN(constructors_out_of_memory);
    RUN(copy_state_fails);
    RUN(paths);
    RUN(sharing);
    RUN(sequence_frees);
    RUN(initial_distributions);
    RUN(plain_distributions);
    RUN(layers_run);
    RUN(activations);
    RUN(literal_defaults);
    RUN(printed_layers);
    RUN(optimizers_follow_pytorch);
    RUN(tiny_states_keep_their_bits);
    RUN(lbfgs_finds_the_minimum);
    RUN(muon_keeps_its_rules);
    RUN(maximizing);
    RUN(steps_by_rows);
    RUN(gradients_by_rows);
    RUN(same_bits_everywhere);
    RUN(same_bits_for_threads);
    RUN(groups_and_rates);
    RUN(step_is_whole);
    RUN(step_counts_as_write);
    RUN(clipping);
    RUN(scaling_by_threads);
    RUN(schedules);
    RUN(loaders);
    RUN(fair_shuffle);
    RUN(safetensors_round_trip);
    RUN(full_disk);
    RUN(no_regular_file);
    RUN(save_and_load);
    RUN(resume_bit_for_bit);
    RUN(step_left_out);
    RUN(long_sums);
    RUN(cross_entropy_values);
    RUN(modules_change_dtype);
    RUN(wrapped_logits);
    shutdown_frees_all();
    return test_report();
}

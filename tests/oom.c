// oom.c - the k-th allocation fails, for every k, while a model is built and while it takes a training step:
// once (the next allocation works again) and for good (until memory is given back). No crash, no leak, the
// error is OUT_OF_MEMORY, the parameters are those of before or of after the step, and the next step works.
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE        // getpid, access
#endif
#include "heap.h"
#define KIT_IDX_IMPLEMENTATION
#include "../examples/kit/idx.h"
#ifdef __linux__
#include <unistd.h>
#endif

typedef struct world_t {
    tensor_context_t *context, *before;
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
} world_t;

// A context of its own on the failing heap, and in it a small convolutional network.
static int world_open(world_t *w, heap_t *h) {
    tensor_allocator_t a;
    a.alloc = heap_alloc;
    a.free = heap_free;
    a.user = h;
    w->context = tensor_context_new();
    if (!w->context) { return 0; }
    w->before = tensor_context_use(w->context);
    tensor_set_allocator(&a);
    tensor_set_error_handler(test_quiet, NULL);
    tensor_manual_seed(7);
    w->net = NULL;
    w->opt = NULL;
    return 1;
}
static int world_build(world_t *w) {
    w->net = nn_sequential(nn_conv2d(1, 4, 3, .padding = 1), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                           nn_linear(64, 8), nn_layer_norm(8), nn_dropout(0.1), nn_linear(8, 3));
    w->opt = nn_adam(w->net, .lr = 0.01);
    w->x = tensor_keep(tensor_randn(5, 1, 8, 8));
    w->y = tensor_keep(tensor_randint(0, 3, 5));
    return tensor_error_code();
}
static int amp;                        // steps in autocast
static int world_step(world_t *w) {
    tensor_scope_t scope = amp ? tensor_scope_begin_autocast(TENSOR_BF16) : tensor_scope_begin();
    tensor_t *loss = tensor_cross_entropy(nn_forward(w->net, w->x), w->y);
    nn_zero_grad(w->opt);
    tensor_backward(loss);
    nn_clip_grad_norm(w->opt, 1.0);
    nn_step(w->opt);
    tensor_scope_end(scope);
    return tensor_error_code();
}
static void world_close(world_t *w) {
    tensor_context_use(w->before);
    tensor_context_free(w->context);
}

// Hash of all parameters.
static uint64_t world_state(world_t *w) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    uint64_t h = TEST_HASH;
    nn_named_list_t list = nn_state(w->net);
    int64_t i;
    for (i = 0; i < list.count; i++) { h = test_hash(h, list.item[i].tensor); }
    tensor_scope_end(scope);
    return h;
}

// States after the first and the second step when nothing fails.
static uint64_t state0, state1, state2;
static long build_calls, step_calls;

static void without_failure(void) {
    heap_t h = {0, -1, 0, 0, 0, 0};
    world_t w;
    if (!world_open(&w, &h)) { return; }
    CHECK(world_build(&w) == 0);
    build_calls = h.calls;
    state0 = world_state(&w);
    build_calls = h.calls;
    CHECK(world_step(&w) == 0);
    step_calls = h.calls - build_calls;
    state1 = world_state(&w);
    CHECK(world_step(&w) == 0);
    state2 = world_state(&w);
    CHECK(state0 != state1 && state1 != state2);
    world_close(&w);
    balanced(&h, -1);
    printf("allocations: %ld to build, %ld in the first step\n", build_calls, step_calls);
}

static void in_a_step(int persistent) {
    long k;
    for (k = 0; k < step_calls; k++) {
        heap_t h = {0, -1, 0, 0, 0, 0};
        world_t w;
        uint64_t state;
        int code;
        if (!world_open(&w, &h)) { return; }
        CHECK(world_build(&w) == 0);
        world_state(&w);
        h.persistent = persistent;
        h.fail_at = h.calls + k;
        code = world_step(&w);
        h.fail_at = -1;
        CHECK_MSG(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY, "k = %ld: %s %s", k, tensor_code_name(code),
                  tensor_error_text());
        tensor_clear_error();
        state = world_state(&w);
        CHECK_MSG(state == state0 || state == state1, "k = %ld: the parameters are those of half a step", k);
        CHECK_MSG(world_step(&w) == 0, "k = %ld: the next step fails: %s", k, tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(world_state(&w) != state, "k = %ld: the next step changes nothing", k);
        world_close(&w);
        balanced(&h, k);
    }
}
static void in_a_step_once(void) { in_a_step(0); }
static void in_a_step_for_good(void) { in_a_step(1); }
static void in_a_mixed_step(void) {
    amp = 1;
    without_failure();
    in_a_step(0);
    in_a_step(1);
    amp = 0;
}

static void while_building(int persistent) {
    long k;
    for (k = 0; k < build_calls + step_calls; k++) {
        heap_t h = {0, k, 0, 0, 0, 0};
        world_t w;
        int code;
        h.persistent = persistent;
        if (!world_open(&w, &h)) { return; }
        code = world_build(&w);
        if (!code) {
            code = world_step(&w);
        } else {
            CHECK_MSG(world_step(&w) != 0, "k = %ld: a model that could not be built trains", k);
        }
        CHECK_MSG(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY, "k = %ld: %s %s", k, tensor_code_name(code),
                  tensor_error_text());
        world_close(&w);
        balanced(&h, k);
    }
}
static void while_building_once(void) { while_building(0); }
static void while_building_for_good(void) { while_building(1); }

// Gradients by rows: two lookups and two passes, so that they are joined, then a step or a look at the whole.
static int rows_step(world_t *w, int look) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(w->opt);
    for (int i = 0; i < 2; i++) {
        tensor_t *y = tensor_add(nn_forward(w->net, w->x), nn_forward(w->net, w->y));
        tensor_backward(tensor_sum(tensor_square(y)));
    }
    if (look) { tensor_grad(nn_get(w->net, "weight")); }
    nn_clip_grad_norm(w->opt, 1.0);
    nn_step(w->opt);
    tensor_scope_end(scope);
    return tensor_error_code();
}
// The optimizers made of other ops: three iterations of L-BFGS with a search, a step of Muon.
static tensor_t *composed_loss(void *user) {
    world_t *w = (world_t *)user;
    tensor_t *loss = tensor_mse_loss(tensor_tanh(nn_forward(w->net, w->x)), w->y);
    nn_zero_grad(w->opt);
    tensor_backward(loss);
    return loss;
}
static int composed_step(world_t *w) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_step_closure(w->opt, composed_loss, w);
    tensor_scope_end(scope);
    return tensor_error_code();
}
static void other_steps(void) {
    for (int look = 0; look < 4; look++) {
        long calls = 1, k;
        for (k = -1; k < calls; k++) {
            heap_t h = {0, -1, 0, 0, 0, 0};
            world_t w;
            if (!world_open(&w, &h)) { return; }
            if (look < 2) {
                w.net = nn_embedding(300, 40, .sparse = 1);
                w.opt = look ? nn_sgd(w.net) : nn_sparse_adam(w.net);
                w.x = tensor_keep(tensor_randint(0, 300, 70));
                w.y = tensor_keep(tensor_randint(0, 300, 70));
            } else {
                w.net = nn_linear(6, 4, .no_bias = 1);
                if (look == 2) {
                    w.opt = nn_muon(w.net);
                } else {
                    w.opt = nn_lbfgs(w.net, .max_iter = 3, .line_search_fn = NN_STRONG_WOLFE);
                }
                w.x = tensor_keep(tensor_randn(9, 6));
                w.y = tensor_keep(tensor_randn(9, 4));
            }
            CHECK(tensor_error_code() == 0);
            calls = k < 0 ? -h.calls : calls;
            h.fail_at = k < 0 ? -1 : h.calls + k;
            int code = look < 2 ? rows_step(&w, look) : composed_step(&w);
            if (k < 0) { calls += h.calls; }
            h.fail_at = -1;
            CHECK_MSG(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY, "k = %ld: %s", k, tensor_error_text());
            tensor_clear_error();
            code = look < 2 ? rows_step(&w, look) : composed_step(&w);
            CHECK_MSG(code == 0, "k = %ld: the next step fails: %s", k, tensor_error_text());
            tensor_clear_error();
            world_close(&w);
            balanced(&h, k);
        }
    }
}

// A layer is made whole or not at all.
static nn_module_t *layer(int which) {
    switch (which) {
    case 0: return nn_layer_norm(4);
    case 1: return nn_rms_norm(4);
    case 2: return nn_group_norm(2, 4);
    case 3: return nn_batch_norm2d(4);
    case 4: return nn_instance_norm1d(4, .affine = 1, .track_running_stats = 1);
    case 5: return nn_embedding(5, 3, .padding_idx = 2);
    case 6: return nn_embedding_bag(5, 3, .padding_idx = TENSOR_ZERO);
    case 7: return nn_bilinear(2, 3, 4, 0);
    case 8: return nn_lstm(2, 3, .layers = 2, .proj_size = 2, .bidirectional = 1);
    case 9: return nn_conv_transpose3d(2, 2, 2);
    case 10: return nn_adaptive_max_pool2d(2, 2);
    case 11: return nn_fold(4, 2);
    case 12: return nn_prelu(3, 0.25);
    case 13: return nn_max_unpool2d(2);
    case 14: return nn_lp_pool2d(2, 2, 0, 0);
    case 15: return nn_local_response_norm(3);
    case 16: return nn_circular_pad3d(1);
    default: return nn_celu(1);
    }
}
static void layers(void) {
    for (int which = 0; which < 18; which++) {
        int done = 0;
        for (long k = 0; !done; k++) {
            heap_t h = {0, -1, 0, 0, 0, 0};
            world_t w;
            nn_module_t *m;
            if (!world_open(&w, &h)) { return; }
            h.fail_at = h.calls + k;
            m = layer(which);
            done = h.calls <= h.fail_at;
            h.fail_at = -1;
            CHECK_MSG(m ? m->code == 0 && tensor_ok() : tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY,
                      "layer %d, k = %ld: %s", which, k, tensor_error_text());
            CHECK_MSG(m || !done, "layer %d", which);
            world_close(&w);
            balanced(&h, k);
        }
    }
}

// Functions made of others: all of the result or nothing.
static tensor_t *made(int which) {
    tensor_t *x = tensor_randn(3, 3), *k = tensor_ones_of(TENSOR_I32, 1, 2, 4, 4);
    tensor_lu_factor_t f;
    tensor_pair_t p;
    switch (which) {
    case 0: return tensor_linalg_pinv(x, .atol = 0.1);
    case 1: return tensor_linalg_pinv(x, .hermitian = 1);
    case 2:
        f = tensor_linalg_lu_factor(x);
        return tensor_linalg_lu_solve(f.lu, f.pivots, x, .right = 1);
    case 3: return tensor_conv2d(k, tensor_ones_of(TENSOR_I32, 2, 2, 3, 3), NULL, .padding = 1);
    case 4: return tensor_conv_transpose2d(k, tensor_ones_of(TENSOR_I32, 2, 2, 3, 3), NULL, .stride = 2);
    case 5:
        p = tensor_max_pool2d_with_indices(k, 2, 1, 1);
        CHECK(tensor_is_poison(p.values) == tensor_is_poison(p.indices));
        return p.indices;
    case 6: return tensor_avg_pool2d(k, 2);
    case 7: return tensor_linspace_of(TENSOR_I16, 0, 9, 7);
    case 8: return tensor_index_fill_tensor(x, 0, tensor_arange(0, 2, 1, TENSOR_I64), tensor_sum(x));
    default: return tensor_linear(x, tensor_ones(3), tensor_sum(x));
    }
}
static void composites(void) {
    for (int which = 0; which < 10; which++) {
        int done = 0;
        for (long k = 0; !done; k++) {
            heap_t h = {0, -1, 0, 0, 0, 0};
            world_t w;
            if (!world_open(&w, &h)) { return; }
            h.fail_at = h.calls + k;
            tensor_t *y = made(which);
            done = h.calls <= h.fail_at;
            h.fail_at = -1;
            CHECK_MSG(tensor_is_poison(y) ? tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY : tensor_ok(),
                      "function %d, k = %ld: %s", which, k, tensor_error_text());
            CHECK_MSG(!done || !tensor_is_poison(y), "function %d", which);
            world_close(&w);
            balanced(&h, k);
        }
    }
}

// ---- scenarios: whole pieces of a program; what they leave, the context frees ----

// Steps of training of a net on x; the loss of the last one.
static double fit(nn_module_t *m, nn_optimizer_t *o, tensor_t *x, int steps) {
    double last = 0;
    for (; steps > 0; steps--) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *loss = tensor_mean(tensor_square(nn_forward(m, x)));
        nn_zero_grad(o);
        tensor_backward(loss);
        nn_clip_grad_norm(o, 1.0);
        nn_step(o);
        last = tensor_item(loss);
        tensor_scope_end(scope);
    }
    return last;
}
static double trained(nn_optimizer_t *(*make)(nn_module_t *m)) {
    nn_module_t *m = nn_sequential(nn_linear(4, 6), nn_tanh(), nn_linear(6, 2));
    nn_optimizer_t *o = make(m);
    double last = fit(m, o, tensor_randn(5, 4), 3);
    nn_optimizer_free(o);
    nn_free(m);
    return last;
}
#define OPTIMIZER(name, ...)                                                                                 \
    static nn_optimizer_t *make_##name(nn_module_t *m) {                                                     \
        return nn_##name(m __VA_ARGS__);                                                                     \
    }                                                                                                        \
    static double with_##name(void) {                                                                        \
        return trained(make_##name);                                                                         \
    }
OPTIMIZER(sgd, , .momentum = 0.9, .nesterov = 1)
OPTIMIZER(adam, , .amsgrad = 1)
OPTIMIZER(adamw, )
OPTIMIZER(rmsprop, , .centered = 1, .momentum = 0.5)
OPTIMIZER(adagrad, )
OPTIMIZER(adadelta, )
OPTIMIZER(adamax, )
OPTIMIZER(nadam, )
OPTIMIZER(radam, )
#undef OPTIMIZER

static double of_groups(void) {
    nn_module_t *m = nn_sequential(nn_linear(4, 6), nn_linear(6, 2));
    nn_optimizer_t *o = nn_adamw(m, .lr = 0.01);
    tensor_t *bias[2];
    bias[0] = nn_get(m, "0.bias");
    bias[1] = nn_get(m, "1.bias");
    nn_optimizer_group(o, bias, 2, .weight_decay = 0.5);
    return fit(m, o, tensor_randn(3, 4), 2);
}
static double a_net(nn_module_t *m, tensor_t *x) {
    nn_optimizer_t *o = nn_adam(m, .lr = 0.01);
    return fit(m, o, x, 2);
}
static double conv_net(void) {
    return a_net(nn_sequential(nn_conv2d(1, 4, 3, .padding = 1), nn_batch_norm2d(4), nn_relu(),
                               nn_max_pool2d(2), nn_flatten(), nn_linear(64, 3)),
                 tensor_randn(3, 1, 8, 8));
}
static double wide_conv_net(void) {
    return a_net(nn_sequential(nn_conv2d(16, 16, 3, .padding = 1), nn_group_norm(4, 16), nn_silu(),
                               nn_conv_transpose2d(16, 8, 3), nn_avg_pool2d(2)),
                 tensor_randn(2, 16, 16, 16));
}
static double recurrent_net(nn_module_t *m, int kind) {
    nn_optimizer_t *o = nn_adam(m);
    tensor_t *x = tensor_randn(4, 3, 5), *h = NULL, *c = NULL;
    double last = 0;
    int step;
    for (step = 0; step < 2; step++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *y = kind == 0   ? nn_lstm_forward(m, x, &h, &c)
                      : kind == 1 ? nn_gru_forward(m, x, &h)
                                  : nn_forward(m, x);
        tensor_t *loss = tensor_sum(tensor_square(y));
        nn_zero_grad(o);
        tensor_backward(loss);
        nn_step(o);
        last = tensor_item(loss);
        if (h) { tensor_set(&h, tensor_detach(h)); }
        if (c) { tensor_set(&c, tensor_detach(c)); }
        tensor_scope_end(scope);
    }
    tensor_free(h);
    tensor_free(c);
    return last;
}
static double lstm_net(void) {
    return recurrent_net(nn_lstm(5, 4, .layers = 2, .dropout = 0.25), 0);
}
static double gru_net(void) {
    return recurrent_net(nn_gru(5, 4, .bidirectional = 1), 1);
}
static double rnn_net(void) {
    return recurrent_net(nn_rnn(5, 4), 2);
}
static double transformer(void) {
    return a_net(nn_transformer_encoder_layer(8, 2, .feedforward = 16), tensor_randn(3, 2, 8));
}
static double attention_weights(void) {
    nn_module_t *m = nn_multihead_attention(8, 2);
    tensor_t *x = tensor_randn(3, 2, 8), *weights = NULL;
    tensor_t *y = nn_multihead_attention_forward(m, x, x, x, .weights = &weights);
    return tensor_item(tensor_sum(y)) + (weights ? tensor_item(tensor_sum(weights)) : 0);
}
static double embeddings(void) {
    nn_module_t *m = nn_embedding(300, 40, .sparse = 1);
    nn_optimizer_t *o = nn_sparse_adam(m);
    return fit(m, o, tensor_randint(0, 300, 70), 2);
}
static double in_autocast(void) {
    nn_module_t *m = nn_sequential(nn_linear(8, 8), nn_layer_norm(8), nn_gelu(), nn_linear(8, 3));
    nn_optimizer_t *o = nn_sgd(m, .lr = 0.1);
    tensor_t *scaler = nn_grad_scaler(65536, 2000), *x = tensor_randn(4, 8), *loss;
    int step;
    for (step = 0; step < 3; step++) {
        tensor_scope_t scope = tensor_scope_begin_autocast(TENSOR_F16);
        loss = tensor_scope_return(scope, tensor_mean(tensor_square(nn_forward(m, x))));
        nn_zero_grad(o);
        tensor_backward(nn_scaler_scale(scaler, loss));
        nn_scaler_unscale(scaler, o);
        nn_clip_grad_norm(o, 1);
        nn_scaler_step(scaler, o);
        nn_scaler_update(scaler);
    }
    return tensor_item(tensor_sum(nn_get(m, "0.weight")));
}

// ---- autograd ----

static tensor_t *cubes(tensor_t *const *x, int n, void *user) {
    (void)n, (void)user;
    return tensor_sum(tensor_mul(tensor_mul(x[0], x[0]), tensor_sin(x[0])));
}
static double sum_of(tensor_t *x) {
    return tensor_item(tensor_sum(tensor_to(x, TENSOR_F64)));
}
static double derivatives(void) {
    tensor_t *x = tensor_requires_grad_(tensor_to(tensor_randn(4), TENSOR_F64), 1),
             *v = tensor_ones_of(TENSOR_F64, 4);
    tensor_t *out = NULL, *y = cubes(&x, 1, NULL), *g = NULL, *gg = NULL;
    double sum = 0;
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
    y = tensor_sum(tensor_square(g));
    tensor_autograd_grad(&y, 1, NULL, &x, 1, &gg, 0);
    sum += sum_of(gg);
    tensor_jacobian(cubes, NULL, &x, 1, &out, 0);
    sum += sum_of(out);
    tensor_hessian(cubes, NULL, &x, 1, &out, 0);
    sum += sum_of(out);
    tensor_vjp(cubes, NULL, &x, 1, NULL, &out, 0);
    sum += sum_of(out);
    tensor_jvp(cubes, NULL, &x, 1, &v, &out, 0);
    return sum + sum_of(out);
}
static double gradchecks(void) {
    tensor_t *x = tensor_requires_grad_(tensor_to(tensor_randn(3), TENSOR_F64), 1);
    return tensor_gradcheck(cubes, NULL, &x, 1, 1e-6, 1e-5, 1e-3) +
           2 * tensor_gradgradcheck(cubes, NULL, &x, 1, 1e-6, 1e-5, 1e-3);
}
static tensor_t *region(tensor_t *const *x, int n, void *user) {
    (void)n, (void)user;
    return tensor_dropout(tensor_matmul(x[0], tensor_tanh(x[0])), 0.3, 1);
}
static double checkpoints(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(5, 5), 1);
    tensor_backward(tensor_sum(tensor_checkpoint(region, NULL, &x, 1)));
    return sum_of(tensor_grad(x));
}
static tensor_t *cubed_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    return tensor_mul(in[0], tensor_mul(in[0], in[0]));
}
static int cubed_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0);
    (void)n;
    grads[0] = tensor_mul(grad, tensor_mul_scalar(tensor_mul(x, x), 3));
    return tensor_error_code();
}
static double functions(void) {
    static const tensor_function_t cubed = {"cubed", cubed_forward, cubed_backward, NULL};
    tensor_t *x = tensor_requires_grad_(tensor_randn(5), 1);
    tensor_backward(tensor_sum(tensor_apply(&cubed, NULL, &x, 1)));
    return sum_of(tensor_grad(x));
}
static tensor_t *doubled(tensor_t *g, void *user) {
    (void)user;
    return tensor_mul_scalar(g, 2);
}
static double hooks(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(5), 1), *y = tensor_exp(x);
    int64_t a = tensor_register_hook(y, doubled, NULL), b = tensor_register_hook(x, doubled, NULL);
    tensor_retain_grad(y);
    tensor_backward(tensor_sum(y));
    tensor_remove_hook(a);
    tensor_remove_hook(b);
    return sum_of(tensor_grad(x)) + sum_of(tensor_grad(y));
}
static double changed_views(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(4, 4), 1), *y = tensor_mul_scalar(x, 2),
             *v = tensor_select(y, 0, 1);
    tensor_mul_(v, tensor_exp(tensor_select(x, 1, 0)));
    tensor_add_(tensor_narrow(y, 1, 1, 2), tensor_narrow(x, 1, 0, 2));
    tensor_backward(tensor_sum(tensor_square(y)));
    return sum_of(tensor_grad(x));
}
// Long: the stack of the scope, the slabs and the list of backward grow more than once.
static double long_chain(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(2), 1), *y = x;
    int i;
    for (i = 0; i < 3000; i++) { y = tensor_add_scalar(y, 0.001); }
    tensor_backward(tensor_sum(y));
    return sum_of(tensor_grad(x)) + tensor_item(tensor_sum(y));
}
static double wide_graph(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(2), 1), *y[300];
    int i;
    for (i = 0; i < 300; i++) { y[i] = tensor_mul_scalar(x, i); }
    tensor_backward(tensor_sum(tensor_stack_n(y, 300, 0)));
    return sum_of(tensor_grad(x));
}

// ---- scopes, texts, data, files ----

static double many_scopes(void) {
    tensor_scope_t s[200];
    tensor_t *kept[200], *x = tensor_ones(3);
    double sum = 0;
    int i;
    for (i = 0; i < 200; i++) {
        s[i] = i & 1 ? tensor_scope_begin_no_grad() : tensor_scope_begin();
        x = tensor_add_scalar(x, 1);
        kept[i] = tensor_keep(x);
    }
    for (i = 199; i >= 0; i--) {
        if (i % 3) {
            x = tensor_scope_return(s[i], tensor_mul_scalar(kept[i], 1));
        } else {
            tensor_scope_end(s[i]);
        }
        sum += tensor_item(tensor_sum(kept[i]));
        tensor_free(kept[i]);
    }
    return sum;
}
static double texts(void) {
    char text[3000];
    nn_module_t *m = nn_sequential(nn_linear(2, 3), nn_sequential(nn_relu(), nn_dropout(0.5)));
    size_t n = tensor_to_string(tensor_randn(30, 30), text, sizeof text);
    n += nn_to_string(m, text, sizeof text);
    return (double)n;
}
static double data_loaders(void) {
    tensor_t *x = tensor_randn(10, 3), *y = tensor_arange(0, 10, 1, TENSOR_I64);
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 4, .shuffle = 1);
    nn_batch_t b;
    double sum = 0;
    while (tensor_ok() && nn_next(l, &b)) {
        sum += (double)b.size * tensor_item(tensor_sum(b.x)) + tensor_item(tensor_sum(b.y));
    }
    nn_seek(l, 1);
    if (tensor_ok() && nn_next(l, &b)) { sum += tensor_item(tensor_sum(b.x)); }
    nn_data_loader_free(l);
    return sum;
}
static double a_named(nn_module_t *m) {
    nn_named_list_t list = nn_state(m);
    double sum = 0;
    int64_t i;
    for (i = 0; i < list.count; i++) { sum += (double)(i + 1) * sum_of(list.item[i].tensor); }
    return sum;
}
static double in_memory_files(void) {
    nn_module_t *a = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4)), *b = nn_clone(a);
    tensor_t *file = nn_save_memory(a);
    nn_safetensors_t *r;
    double sum = 0;
    if (!tensor_ok()) { return 0; }
    nn_init_zeros_(nn_get(b, "0.weight"));
    nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), b, 0);
    r = nn_safetensors_parse(tensor_data(file), (size_t)tensor_numel(file));
    sum = a_named(b) + (r ? sum_of(nn_safetensors_get(r, "0.weight")) : 0);
    nn_safetensors_close(r);
    nn_copy_state(a, b);
    return sum + a_named(a);
}
static char oom_path[60];
static double files(void) {
    nn_module_t *m = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4));
    nn_optimizer_t *o = nn_adamw(m, .lr = 0.01);
    int64_t step = 0;
    double sum = fit(m, o, tensor_randn(5, 3), 1);
    if (!tensor_ok()) { return 0; }
    nn_save_checkpoint(oom_path, m, o, 7);
    sum += fit(m, o, tensor_randn(5, 3), 1);
    nn_load_checkpoint(oom_path, m, o, &step);
    nn_load(oom_path, m, .partial = 1);
    remove(oom_path);
    return sum + (double)step + a_named(m);
}
static double idx_files(void) {
    static const unsigned char file[] = {0, 0, 11, 2, 0, 0, 0, 2, 0, 0, 0, 3,
                                         0, 1, 0,  2, 0, 3, 0, 4, 0, 5, 0, 6};
    return sum_of(kit_parse_idx(file, sizeof file, "memory"));
}

// ---- what kernels lend ----

static double large_products(void) {
    tensor_t *x = tensor_randn(200, 300), *y = tensor_randn(300, 250);
    return sum_of(tensor_matmul(x, y)) + sum_of(tensor_softmax(tensor_matmul(x, tensor_mT(x)), 0));
}
static double large_sorts(void) {
    tensor_t *x = tensor_randn(3, 5000);
    tensor_pair_t p = tensor_sort(x, 1, 1), q = tensor_topk(x, 100, 1, 1, 1);
    return sum_of(tensor_select(p.values, 1, 7)) + sum_of(q.indices) +
           sum_of(tensor_unique(tensor_round(x), NULL, NULL));
}
static double matrices(void) {
    tensor_t *x = tensor_to(tensor_randn(12, 12), TENSOR_F64), *s = tensor_matmul(x, tensor_mT(x));
    return sum_of(tensor_linalg_svd(x, 0).s) + sum_of(tensor_linalg_eigh(s, 0).eigenvalues) +
           sum_of(tensor_linalg_solve(x, s)) + sum_of(tensor_abs(tensor_linalg_qr(x, "reduced").r));
}
static double large_sums(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 300000, 1, TENSOR_F32), 300, 1000);
    return sum_of(tensor_sum_dim(x, 0, 0)) + sum_of(tensor_cumsum(tensor_mT(x), 1)) +
           tensor_item(tensor_std(x, 1));
}
static double halves(void) {
    tensor_t *x = tensor_to(tensor_randn(40, 40), TENSOR_BF16),
             *y = tensor_to(tensor_randn(40, 40), TENSOR_F16);
    return sum_of(tensor_matmul(x, x)) + sum_of(tensor_layer_norm(y, 1)) +
           sum_of(tensor_expand(tensor_sum(x), 3, 4));
}
#ifndef TENSOR_NO_THREADS
static double threads(void) {
    double sum = 0;
    if (tensor_set_num_threads(3)) { return 0; }
    sum = large_products() + large_sorts();
    tensor_set_num_threads(1);
    return sum;
}
#endif
// A step that is captured, replayed, and done in time slices.
static double captured_step(void) {
    nn_module_t *net = nn_sequential(nn_linear(3, 5), nn_tanh(), nn_dropout(0.5), nn_linear(5, 1));
    nn_optimizer_t *o = nn_adam(net, .lr = 0.1);
    tensor_t *x = tensor_randn(4, 3);
    double sum = 0;
    tensor_backward(tensor_mean(nn_forward(net, x)));
    nn_step(o);                                 // makes the states
    if (tensor_capture_begin(TENSOR_CPU) == 0) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *loss = tensor_mean(tensor_square(nn_forward(net, x)));
        nn_zero_grad(o);
        tensor_backward(loss);
        nn_step(o);
        loss = tensor_scope_return(scope, loss);
        tensor_graph_t *g = tensor_capture_end();
        if (g) {
            tensor_graph_replay(g);
            for (int i = 0; i < 1000 && tensor_graph_resume(g, 0) == 0; i++) { }
            sum = tensor_item(loss);
            tensor_graph_free(g);
        }
    }
    nn_optimizer_free(o);
    nn_free(net);
    return sum;
}
// A change that fails is no change: the tensor has its value and its history.
static double changed_or_not(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(3), 1), *x = tensor_mul_scalar(w, 2);
    tensor_t *base = tensor_mul_scalar(w, 2), *part = tensor_narrow(base, 0, 1, 2);
    tensor_t *z = tensor_mul_scalar(w, 2.5);
    if (!tensor_ok()) { return 0; }
    tensor_add_(x, z);
    tensor_add_(part, tensor_narrow(z, 0, 1, 2));
    int code = tensor_error_code();
    if (!code) { return sum_of(x) + sum_of(base); }
    tensor_clear_error();
    tensor_backward(tensor_add(tensor_sum(x), tensor_sum(base)));
    // Of each sum by w: 2 a place, and 2.5 where the value shows that something was added.
    if (tensor_ok()) {
        double added = (sum_of(tensor_detach(x)) - 6 + sum_of(tensor_detach(base)) - 6) / 2.5;
        CHECK(sum_of(tensor_grad(w)) == 12 + 2.5 * added);
    }
    if (tensor_ok()) { tensor_raise(code, "again"); }
    return 0;
}
static void in_turn(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
    int64_t i;
    (void)user;
    for (i = 0; i < n; i++) { task(arg, i); }
}
static double own_jobs(void) {
    double sum;
    tensor_set_parallel_for(in_turn, NULL, 4);
    sum = large_products() + conv_net();
    tensor_set_parallel_for(NULL, NULL, 1);
    return sum;
}

static const struct scenario_t {
    const char *name;
    double (*run)(void);
} scenarios[] = {
#define RUNS(name) {#name, name},
    RUNS(with_sgd) RUNS(with_adam) RUNS(with_adamw) RUNS(with_rmsprop) RUNS(with_adagrad) RUNS(with_adadelta)
        RUNS(with_adamax) RUNS(with_nadam) RUNS(with_radam) RUNS(of_groups) RUNS(conv_net) RUNS(wide_conv_net)
            RUNS(lstm_net) RUNS(gru_net) RUNS(rnn_net) RUNS(transformer) RUNS(attention_weights)
                RUNS(embeddings) RUNS(in_autocast) RUNS(derivatives) RUNS(gradchecks) RUNS(checkpoints)
                    RUNS(functions) RUNS(hooks) RUNS(changed_views) RUNS(long_chain) RUNS(wide_graph)
                        RUNS(many_scopes) RUNS(texts) RUNS(data_loaders) RUNS(in_memory_files) RUNS(files)
                            RUNS(idx_files) RUNS(large_products) RUNS(large_sorts) RUNS(matrices)
                                RUNS(large_sums) RUNS(halves) RUNS(own_jobs) RUNS(captured_step)
                                    RUNS(changed_or_not)
#ifndef TENSOR_NO_THREADS
                                    RUNS(threads)
#endif
#undef RUNS
};
enum { SCENARIOS = (int)(sizeof scenarios / sizeof scenarios[0]) };
static long injected[HEAP_MODES];

static double seeded(const struct scenario_t *s) {
    tensor_scope_t scope = tensor_scope_begin();
    double r;
    tensor_manual_seed(7);
    r = s->run();
    tensor_scope_end(scope);
    return r;
}
// The k-th allocation of a scenario fails: OUT_OF_MEMORY or the right result, and when memory is there again,
// the right result in the same context.
static void scenario_fails(const struct scenario_t *s, int mode) {
    long calls = 0, k;
    double want = 0;
    for (k = -1; k < calls; k++) {
        world_of_heap_t w;
        double got;
        int code;
        if (!heap_open(&w, mode)) { return; }
        if (k < 0) {
            calls = -w.h.calls;
        } else {
            w.h.fail_at = w.h.calls + k;
        }
        got = seeded(s);
        if (k < 0) { calls += w.h.calls; }
        w.h.fail_at = -1;
        code = tensor_error_code();
        if (k < 0) { want = got; }
        CHECK_MSG(code == 0 ? got == want : k >= 0 && code == TENSOR_ERR_OUT_OF_MEMORY,
                  "%s, mode %d, k = %ld: %.17g, not %.17g, %s %s", s->name, mode, k, got, want,
                  tensor_code_name(code), tensor_error_text());
        tensor_clear_error();
        got = seeded(s);
        CHECK_MSG(tensor_ok() && got == want, "%s, mode %d, k = %ld, again: %.17g, not %.17g, %s", s->name,
                  mode, k, got, want, tensor_error_text());
        tensor_clear_error();
        heap_close(&w, k);
        injected[mode] += k >= 0;
    }
    CHECK_MSG(calls > 0, "%s allocates nothing", s->name);
}
static void whole_scenarios(void) {
    int i, mode;
    long sum = 0;
#ifdef __linux__
    snprintf(oom_path, sizeof oom_path, "/dev/shm/tensor-oom-%ld", (long)getpid());
    if (access("/dev/shm", W_OK) != 0) { snprintf(oom_path, sizeof oom_path, "oom.safetensors"); }
#else
    snprintf(oom_path, sizeof oom_path, "oom.safetensors");
#endif
    for (mode = 0; mode < HEAP_MODES_HERE; mode++) {
        for (i = 0; i < SCENARIOS; i++) {
            test_lines = 0;
            scenario_fails(&scenarios[i], mode);
        }
        sum += injected[mode];
    }
    printf("%ld cases of failed allocations in %d scenarios: %ld + %ld by the hook (once, for good), %ld + "
           "%ld by "
           "malloc\n",
           sum, SCENARIOS, injected[0], injected[1], injected[2], injected[3]);
}
// A context that there is no memory for.
static void contexts(void) {
#ifdef HEAP_WRAPPED
    heap_t h = {0, 0, 1, 0, 0, 0};
    tensor_context_t *context;
    heap_of_malloc = &h;
    context = tensor_context_new();
    heap_of_malloc = NULL;
    CHECK(context == NULL && h.blocks == 0);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "context_new");
#endif
}

int main(void) {
    RUN(without_failure);
    RUN(layers);
    RUN(composites);
    RUN(other_steps);
    RUN(in_a_step_once);
    RUN(in_a_step_for_good);
    RUN(while_building_once);
    RUN(while_building_for_good);
    RUN(in_a_mixed_step);
    RUN(contexts);
    RUN(whole_scenarios);
    return test_report();
}

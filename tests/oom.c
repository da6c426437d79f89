// oom.c - the k-th allocation fails, for every k, while a model is built and while it takes a training step:
// once (the next allocation works again) and for good (until memory is given back). No crash, no leak, the
// error is OUT_OF_MEMORY, the parameters are those of before or of after the step, and the next step works.
#include "heap.h"

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
    if (!w->context) return 0;
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
    for (i = 0; i < list.count; i++) h = test_hash(h, list.item[i].tensor);
    tensor_scope_end(scope);
    return h;
}

// States after the first and the second step when nothing fails.
static uint64_t state0, state1, state2;
static long build_calls, step_calls;

static void without_failure(void) {
    heap_t h = {0, -1, 0, 0, 0, 0};
    world_t w;
    if (!world_open(&w, &h)) return;
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
        if (!world_open(&w, &h)) return;
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
        if (!world_open(&w, &h)) return;
        code = world_build(&w);
        if (!code) code = world_step(&w);
        else {
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
    if (look) tensor_grad(nn_get(w->net, "weight"));
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
            if (!world_open(&w, &h)) return;
            if (look < 2) {
                w.net = nn_embedding(300, 40, .sparse = 1);
                w.opt = look ? nn_sgd(w.net) : nn_sparse_adam(w.net);
                w.x = tensor_keep(tensor_randint(0, 300, 70));
                w.y = tensor_keep(tensor_randint(0, 300, 70));
            } else {
                w.net = nn_linear(6, 4, .no_bias = 1);
                if (look == 2) w.opt = nn_muon(w.net);
                else w.opt = nn_lbfgs(w.net, .max_iter = 3, .line_search_fn = NN_STRONG_WOLFE);
                w.x = tensor_keep(tensor_randn(9, 6));
                w.y = tensor_keep(tensor_randn(9, 4));
            }
            CHECK(tensor_error_code() == 0);
            calls = k < 0 ? -h.calls : calls;
            h.fail_at = k < 0 ? -1 : h.calls + k;
            int code = look < 2 ? rows_step(&w, look) : composed_step(&w);
            if (k < 0) calls += h.calls;
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
            if (!world_open(&w, &h)) return;
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
            if (!world_open(&w, &h)) return;
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
    return test_report();
}

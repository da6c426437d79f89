// replays.c [seed N COUNT] - random training steps, by replays in turns with the steps themselves: whole, in
// slices, by another thread, in less memory, two graphs at a time, captured again; between them the program
// changes data, rates, weights, seeds, threads and instruction sets, and goes back to snapshots. After every
// turn all that is left has the bits of a run without captures.
#include "test.h"

#include <pthread.h>

enum { WIDTH = 16, CLASSES = 5, BLOCKS = 5, JOBS = 2, TURNS = 12, PARTS = 400 };

// ---- the random numbers that a program is made of; those of the library belong to the steps

static uint64_t drawn;

static int pick(int n) {
    uint64_t z = drawn += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

// ---- steps

typedef struct job_t {
    nn_module_t *net, *part[BLOCKS];    // net has the parts as children and is the last layer
    int kind[BLOCKS], option[BLOCKS];
    int blocks, loss, zero, clip, halves;
    int64_t items;
    nn_optimizer_t *opt;
    tensor_t *x, *target, *labels, *state, *index, *scaler, *left_loss, *result;
    tensor_graph_t *graph[2];           // of a step, of an evaluation
} job_t;

enum {
    LINEAR, RESIDUAL, LAYER_NORM, BATCH_NORM, GROUP_NORM, DROPOUT, CHAIN, IN_PLACE, VIEWS, OWN, CHECKPOINT,
    HOOKED, AUTOCAST, CONV, LSTM, GRU, ATTENTION, SORTED, SOFTMAX, DOUBLES, HALF, NOISE, PRODUCTS, SOLVE,
    LOOKUP, STATE, PENALTY, WEIGHT_NORM, PLACES, KINDS
};

// x tanh x, as a function of the program's own.
static tensor_t *own_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_t *t = tensor_tanh(in[0]);
    tensor_save_for_backward(ctx, 0, in[0]);
    return tensor_mul(in[0], t);
}

static int own_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)n;
    tensor_t *x = tensor_saved(ctx, 0), *t = tensor_tanh(x);
    tensor_t *slope = tensor_mul(x, tensor_rsub_scalar(tensor_square(t), 1));
    grads[0] = tensor_mul(grad, tensor_add(t, slope));
    return 0;
}

static const tensor_function_t own = {"own", own_forward, own_backward, NULL};

static tensor_t *recomputed(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_dropout(tensor_tanh(nn_forward((nn_module_t *)user, in[0])), 0.3, 1);
}

static tensor_t *halved(tensor_t *g, void *user) {
    (void)user;
    return tensor_mul_scalar(g, 0.5);
}

static nn_module_t *part_of(int kind) {
    switch (kind) {
    case LINEAR:
    case RESIDUAL:
    case CHECKPOINT:
    case HOOKED:
    case AUTOCAST: return nn_linear(WIDTH, WIDTH);
    case WEIGHT_NORM: return nn_weight_norm(nn_linear(WIDTH, WIDTH));
    case LAYER_NORM: return nn_layer_norm(WIDTH);
    case BATCH_NORM: return nn_batch_norm1d(WIDTH);
    case GROUP_NORM: return nn_group_norm(2, 4);
    case DROPOUT: return nn_dropout(0.25);
    case CONV:
        return nn_sequential(nn_conv2d(1, 3, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                             nn_conv_transpose2d(3, 1, 2, .stride = 2));
    case LSTM: return nn_lstm(4, 4, .layers = 2, .dropout = 0.2);
    case GRU: return nn_gru(4, 2, .bidirectional = 1);
    case LOOKUP: return nn_embedding(WIDTH, WIDTH);
    default: return NULL;
    }
}

// [items, WIDTH] as [4, items, 4], and back.
static tensor_t *as_sequence(tensor_t *h) { return tensor_permute(tensor_reshape(h, -1, 4, 4), 1, 0, 2); }
static tensor_t *of_sequence(tensor_t *h) { return tensor_reshape(tensor_permute(h, 1, 0, 2), -1, WIDTH); }

static tensor_t *by_views(tensor_t *h, int contiguous) {
    tensor_t *t = tensor_transpose(h, 0, 1);
    t = tensor_cat(0, tensor_flip(tensor_narrow(t, 0, 8, 8), 0), tensor_narrow(t, 0, 0, 8));
    t = tensor_transpose(t, 0, 1);
    return contiguous ? tensor_contiguous(t) : t;
}

static tensor_t *in_place(tensor_t *h) {
    tensor_t *y = tensor_mul_scalar(h, 1.5);
    tensor_add_scalar_(tensor_narrow(y, 1, 2, 5), 0.5);
    tensor_mul_(tensor_narrow(y, 0, 1, 1), tensor_narrow(h, 0, 0, 1));
    return tensor_relu_(y);
}

static tensor_t *with_state(job_t *j, tensor_t *h) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_mul_scalar_(j->state, 0.9);
    tensor_add_(j->state, tensor_mul_scalar(tensor_mean_dim(h, 0, 0), 0.1));
    tensor_scope_end(scope);
    return tensor_sub(h, tensor_clone(j->state));
}

// The gradient of a gradient.
static tensor_t *with_penalty(tensor_t *h) {
    if (!tensor_grad_enabled()) { return h; }
    tensor_t *s = tensor_sum(tensor_square(tensor_tanh(h))), *g;
    if (!tensor_requires_grad(h)) { return h; }
    tensor_autograd_grad(&s, 1, NULL, &h, 1, &g, TENSOR_CREATE_GRAPH);
    return tensor_add(h, tensor_mul_scalar(g, 0.1));
}

static tensor_t *attend(tensor_t *h, int training) {
    tensor_t *q = tensor_reshape(h, -1, 2, 4, 2), *k = tensor_mul_scalar(q, 0.5);
    q = tensor_scaled_dot_product_attention(q, k, q, .is_causal = 1, .dropout_p = training ? 0.1 : 0);
    return tensor_reshape(q, -1, WIDTH);
}

static tensor_t *in_autocast(nn_module_t *m, tensor_t *h, int option) {
    tensor_scope_t scope = tensor_scope_begin_autocast(option ? TENSOR_F16 : TENSOR_BF16);
    tensor_t *y = tensor_relu(nn_forward(m, h));
    return tensor_to(tensor_scope_return(scope, y), TENSOR_F32);
}

static tensor_t *recurrent(nn_module_t *m, int kind, tensor_t *h) {
    tensor_t *state = NULL, *cell = NULL, *x = as_sequence(h), *y;
    if (kind == LSTM) {
        y = nn_lstm_forward(m, x, &state, &cell);
        tensor_free(cell);
    } else {
        y = nn_gru_forward(m, x, &state);
    }
    tensor_free(state);
    return of_sequence(y);
}

static tensor_t *solved(tensor_t *h) {
    tensor_t *a = tensor_reshape(tensor_tanh(h), -1, 4, 4);
    tensor_t *b = tensor_add(tensor_mul_scalar(a, 0.2), tensor_eye(4, 4));
    return tensor_reshape(tensor_linalg_solve(b, a), -1, WIDTH);
}

static tensor_t *by_places(job_t *j, tensor_t *h) {
    tensor_t *y = tensor_cumsum(tensor_index_select(h, 1, j->index), 1);
    y = tensor_masked_fill(tensor_mul_scalar(y, 0.2), tensor_gt_scalar(y, 1), 0.25);
    return tensor_index_add(h, 1, j->index, tensor_mul_scalar(y, 0.5));
}

static tensor_t *block(job_t *j, int k, tensor_t *h, int training) {
    nn_module_t *m = j->part[k];
    switch (j->kind[k]) {
    case LINEAR: return tensor_relu(nn_forward(m, h));
    case RESIDUAL: return tensor_add(h, tensor_gelu(nn_forward(m, h)));
    case LAYER_NORM:
    case BATCH_NORM:
    case WEIGHT_NORM:
    case DROPOUT: return nn_forward(m, h);
    case GROUP_NORM: return tensor_reshape(nn_forward(m, tensor_reshape(h, -1, 4, 4)), -1, WIDTH);
    case CHAIN: {
        tensor_t *y = tensor_mul(tensor_tanh(tensor_add_scalar(h, 0.5)), tensor_sigmoid(h));
        return tensor_where(tensor_gt_scalar(h, 0.1), tensor_add(y, j->state), tensor_sin(h));
    }
    case IN_PLACE: return in_place(h);
    case VIEWS: return by_views(h, j->option[k]);
    case OWN: return tensor_apply(&own, NULL, &h, 1);
    case CHECKPOINT: return training ? tensor_checkpoint(recomputed, m, &h, 1) : nn_forward(m, h);
    case HOOKED: {
        tensor_t *y = nn_forward(m, h);
        if (tensor_requires_grad(y)) { tensor_register_hook(y, halved, NULL); }
        return y;
    }
    case AUTOCAST: return in_autocast(m, h, j->option[k]);
    case CONV: return tensor_reshape(nn_forward(m, tensor_reshape(h, -1, 1, 4, 4)), -1, WIDTH);
    case LSTM:
    case GRU: return recurrent(m, j->kind[k], h);
    case ATTENTION: return attend(h, training);
    case SORTED: return tensor_sort(h, j->option[k], 1).values;
    case SOFTMAX: return tensor_sub(tensor_log_softmax(h, 1), tensor_mul_scalar(tensor_softmax(h, 0), 3));
    case DOUBLES: {
        tensor_t *d = tensor_to(h, TENSOR_F64);
        return tensor_to(tensor_mul(d, tensor_exp(tensor_neg(tensor_square(d)))), TENSOR_F32);
    }
    case HALF: return tensor_to(tensor_mul_scalar(tensor_sqrt(tensor_abs(tensor_to(h, TENSOR_F16))), 2),
                                TENSOR_F32);
    case NOISE: return tensor_mul(tensor_add(h, tensor_mul_scalar(tensor_rand_like(h), 0.1)),
                                  tensor_bernoulli_(tensor_empty_like(h), 0.75));
    case PRODUCTS: {
        tensor_t *a = tensor_reshape(h, -1, 4, 4);
        return tensor_reshape(tensor_bmm(a, tensor_transpose(tensor_tanh(a), 1, 2)), -1, WIDTH);
    }
    case SOLVE: return solved(h);
    case LOOKUP: return tensor_add(h, nn_forward(m, tensor_argmax_dim(h, 1, 0)));
    case STATE: return with_state(j, h);
    case PENALTY: return with_penalty(h);
    default: return by_places(j, h);
    }
}

static tensor_t *forward(job_t *j, tensor_t *h, int training) {
    for (int k = 0; k < j->blocks; k++) { h = block(j, k, h, training); }
    return nn_forward(j->net, h);
}

static tensor_t *loss_of(job_t *j, int64_t from, int64_t n) {
    tensor_t *y = forward(j, tensor_narrow(j->x, 0, from, n), 1);
    tensor_t *target = tensor_narrow(j->target, 0, from, n), *labels = tensor_narrow(j->labels, 0, from, n);
    switch (j->loss) {
    case 0: return tensor_mse_loss(y, target);
    case 1: return tensor_cross_entropy(y, labels);
    case 2: return tensor_binary_cross_entropy_with_logits(y, tensor_sigmoid(target));
    case 3: return tensor_smooth_l1_loss(y, target);
    default: return tensor_nll_loss(tensor_log_softmax(tensor_tanh(y), 1), labels);
    }
}

static void backward(job_t *j, tensor_t *loss) {
    tensor_backward(j->scaler ? nn_scaler_scale(j->scaler, loss) : loss);
}

static void train(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin();
    if (j->zero == 0) { nn_zero_grad(j->opt); }
    tensor_t *loss = NULL;
    for (int k = 0; k < j->halves; k++) {               // gradients of the second add to the first
        loss = loss_of(j, k * j->items / j->halves, j->items / j->halves);
        backward(j, loss);
    }
    if (j->scaler && j->clip) { nn_scaler_unscale(j->scaler, j->opt); }
    if (j->clip == 1) { nn_clip_grad_norm(j->opt, 0.4); }
    if (j->clip == 2) { nn_clip_grad_value(j->opt, 0.02); }
    if (j->scaler) {
        nn_scaler_step(j->scaler, j->opt);
        nn_scaler_update(j->scaler);
    } else {
        nn_step(j->opt);
    }
    if (j->zero == 1) { nn_zero_grad(j->opt); }
    tensor_copy_(j->left_loss, tensor_detach(loss));
    tensor_scope_end(scope);
}

static void evaluate(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_eval(j->net);
    tensor_copy_(j->result, forward(j, j->x, 0));
    nn_train(j->net);
    tensor_scope_end(scope);
}

static nn_optimizer_t *optimizer(nn_module_t *net) {
    switch (pick(12)) {
    case 0: return nn_sgd(net, .lr = 0.05);
    case 1: return nn_sgd(net, .lr = 0.05, .momentum = 0.9, .nesterov = 1, .weight_decay = 0.01);
    case 2: return nn_adam(net, .lr = 0.01, .amsgrad = 1);
    case 3: return nn_adamw(net, .lr = 0.01);
    case 4: return nn_rmsprop(net, .lr = 0.01, .momentum = 0.5, .centered = 1);
    case 5: return nn_adagrad(net, .lr = 0.05, .lr_decay = 0.1);
    case 6: return nn_adadelta(net);
    case 7: return nn_adamax(net, .lr = 0.01);
    case 8: return nn_nadam(net, .lr = 0.01);
    case 9: return nn_radam(net, .lr = 0.01);
    case 10: return nn_asgd(net, .lr = 0.01);
    default: return nn_rprop(net, .lr = 0.01);
    }
}

// Most jobs are small; in large ones calls are done in parts.
static void job_begin(job_t *j) {
    static const int64_t items[] = {6, 6, 4, 40, 2600};
    memset(j, 0, sizeof *j);
    j->items = items[pick(5)];
    j->net = nn_linear(WIDTH, CLASSES);
    j->blocks = 1 + pick(BLOCKS);
    for (int k = 0; k < j->blocks; k++) {
        char name[16];
        snprintf(name, sizeof name, "block%d", k);
        j->kind[k] = pick(KINDS);
        j->option[k] = pick(2);
        j->part[k] = part_of(j->kind[k]);
        if (j->part[k]) { nn_child(j->net, name, j->part[k]); }
    }
    j->loss = pick(5);
    j->zero = pick(3);                                  // at the beginning, at the end, never
    j->clip = pick(3);
    j->halves = 1 + pick(2);
    j->opt = optimizer(j->net);
    tensor_t *weight = nn_get(j->net, "weight");
    if (pick(2)) { nn_optimizer_group(j->opt, &weight, 1, .lr = 0.02); }
    j->scaler = pick(4) ? NULL : nn_grad_scaler(64, 2);
    j->x = tensor_randn(j->items, WIDTH);
    j->target = tensor_randn(j->items, CLASSES);
    j->labels = tensor_randint(0, CLASSES, j->items);
    j->state = tensor_zeros(WIDTH);
    j->index = tensor_randperm(WIDTH);
    j->left_loss = tensor_scalar(0, TENSOR_F32);
    j->result = tensor_zeros(j->items, CLASSES);
}

static void job_end(job_t *j) {
    for (int k = 0; k < 2; k++) { CHECK(tensor_graph_free(j->graph[k]) == 0); }
    nn_optimizer_free(j->opt);
    nn_free(j->net);
    if (j->scaler) { tensor_free(j->scaler); }
}

// ---- what a turn leaves, a hash for each tensor

typedef struct left_t {
    int n, turn[PARTS * TURNS];
    uint64_t hash[PARTS * TURNS];
    char name[PARTS * TURNS][48];
} left_t;

static void leave(left_t *l, int turn, int job, const char *name, const char *what, uint64_t hash) {
    if (l->n == PARTS * TURNS) { return; }
    snprintf(l->name[l->n], sizeof l->name[0], "job %d, %s%s", job, what, name);
    l->turn[l->n] = turn;
    l->hash[l->n++] = hash;
}

static void leave_tensor(left_t *l, int turn, int job, const char *name, const char *what, tensor_t *t) {
    leave(l, turn, job, name, what, t ? test_hash(TEST_HASH, tensor_detach(t)) : 0);
}

static void leave_all(left_t *l, job_t *jobs, int turn) {
    tensor_scope_t scope = tensor_scope_begin();
    for (int k = 0; k < JOBS; k++) {
        job_t *j = &jobs[k];
        nn_named_list_t list = nn_state(j->net);
        for (int64_t i = 0; i < list.count; i++) {
            leave_tensor(l, turn, k, list.item[i].name, "", list.item[i].tensor);
            if (list.item[i].is_buffer) { continue; }
            leave_tensor(l, turn, k, list.item[i].name, "gradient of ", tensor_grad(list.item[i].tensor));
        }
        leave_tensor(l, turn, k, "state", "", j->state);
        leave_tensor(l, turn, k, "loss", "", j->left_loss);
        leave_tensor(l, turn, k, "result", "", j->result);
        leave_tensor(l, turn, k, "scaler", "", j->scaler);
        size_t bytes = nn_snapshot_size(j->net, j->opt);
        unsigned char *block = (unsigned char *)malloc(bytes);
        uint64_t hash = TEST_HASH;
        CHECK(nn_snapshot(j->net, j->opt, block, bytes) == 0);
        for (size_t i = 0; i < bytes; i++) { hash = (hash ^ block[i]) * 1099511628211u; }
        leave(l, turn, k, "snapshot", "", hash);
        free(block);
    }
    tensor_scope_end(scope);
}

// ---- turns

static uint64_t seed;
static int n_captured, n_squeezed, n_replayed, n_slices, n_threads;

static void do_it(job_t *j, int what) {
    if (what) {
        evaluate(j);
    } else {
        train(j);
    }
}

// Plans two of three graphs for the least memory, or for more.
static void squeeze(tensor_graph_t *g) {
    const uint64_t before = tensor_graph_info(g).packed_bytes;
    if (n_captured % 3 == 0 || tensor_graph_set_memory_budget(g, 1) == 0) { return; }
    const char *least = strstr(tensor_error_text(), " take ");
    uint64_t bytes = least ? strtoull(least + 6, NULL, 10) : 0;
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "bytes at least");
    n_squeezed += bytes < before;
    if (n_captured % 3 == 2) { bytes += (before - bytes) / 2; }
    CHECK_MSG(tensor_graph_set_memory_budget(g, bytes) == 0, "seed %d: %s", (int)seed, tensor_error_text());
    CHECK(bytes > 0 && tensor_graph_info(g).packed_bytes <= bytes);
}

static int capture(job_t *j, int what) {
    CHECK(tensor_graph_free(j->graph[what]) == 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    do_it(j, what);
    j->graph[what] = tensor_capture_end();
    CHECK_MSG(j->graph[what] != NULL, "seed %d: %s", (int)seed, tensor_error_text());
    tensor_clear_error();
    n_captured++;
    if (j->graph[what]) { squeeze(j->graph[what]); }
    return j->graph[what] != NULL;
}

// Some slices of a step, or a whole replay, on another thread.
typedef struct elsewhere_t {
    tensor_graph_t *graph;
    tensor_generator_t rng;
    int slices, code;
} elsewhere_t;

static void *replay_elsewhere(void *arg) {
    elsewhere_t *e = (elsewhere_t *)arg;
    tensor_set_generator(e->rng);
    e->code = 0;
    if (e->slices < 0) {
        e->code = tensor_graph_replay(e->graph);
    } else {
        for (int i = 0; i < e->slices && e->code == 0; i++) { e->code = tensor_graph_resume(e->graph, 0); }
    }
    e->rng = tensor_get_generator();
    tensor_clear_error();
    tensor_thread_end();
    return NULL;
}

static int elsewhere(tensor_graph_t *g, int slices) {
    elsewhere_t e = {g, tensor_get_generator(), slices, 0};
    pthread_t t;
    if (pthread_create(&t, NULL, replay_elsewhere, &e)) { return TENSOR_ERR_INTERNAL; }
    pthread_join(t, NULL);
    tensor_set_generator(e.rng);
    n_threads++;
    return e.code;
}

// A training step of a second job, which may come in the middle of one of the first.
static void second(job_t **other) {
    job_t *j = *other;
    *other = NULL;
    if (!j) { return; }
    if (j->graph[0]) {
        CHECK_MSG(tensor_graph_replay(j->graph[0]) == 0, "seed %d: %s", (int)seed, tensor_error_text());
        tensor_clear_error();
    } else {
        train(j);
    }
}

static void replay(job_t *j, int what, job_t **other) {
    tensor_graph_t *g = j->graph[what];
    int code = 0, way = pick(4), slices = 0;
    if (way == 0) {
        code = elsewhere(g, -1);
    } else if (way < 3) {
        code = tensor_graph_replay(g);
    } else {
        while (code == 0) {
            int budget = pick(20);
            code = tensor_graph_resume(g, budget ? 0 : 1e6);
            n_slices++;
            if (code || ++slices % 3) { continue; }
            int then = pick(5);                         // between slices
            if (then == 0 && tensor_set_num_threads(1 + pick(3))) { tensor_clear_error(); }
            if (then == 1) { code = elsewhere(g, 2); }
            if (then == 2) { tensor_matmul(tensor_ones(70, 70), tensor_ones(70, 70)); }
            if (then == 3) { second(other); }
        }
        CHECK_MSG(code == 1, "seed %d: slice: %d %s", (int)seed, code, tensor_error_text());
        code = 0;
    }
    CHECK_MSG(code == 0, "seed %d: replay: %s", (int)seed, tensor_error_text());
    tensor_clear_error();
    n_replayed++;
}

typedef struct kept_t {
    unsigned char *block;
    size_t bytes;
} kept_t;

static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "reference"};

// What a program does between steps.
static void between(job_t *j, kept_t *kept, int set_isa) {
    int option = pick(1000);
    switch (pick(8)) {
    case 0: {
        tensor_t *w = tensor_detach(nn_get(j->net, "weight"));
        tensor_copy_(w, tensor_mul_scalar(tensor_randn_like(w), 0.2));
        break;
    }
    case 1: tensor_manual_seed((uint64_t)option); break;
    case 2: nn_set_lr(j->opt, 0.001 * (1 + option % 20)); break;
    case 3:
        if (tensor_set_num_threads(1 + option % 3)) { tensor_clear_error(); }
        break;
    case 4:
        if (set_isa && tensor_set_isa(isas[option % 6])) { tensor_clear_error(); }
        break;
    case 5:
        kept->bytes = nn_snapshot_size(j->net, j->opt);
        kept->block = (unsigned char *)realloc(kept->block, kept->bytes);
        CHECK(nn_snapshot(j->net, j->opt, kept->block, kept->bytes) == 0);
        break;
    case 6:
        if (kept->block) { CHECK(nn_restore(j->net, j->opt, kept->block, kept->bytes) == 0); }
        break;
    default: tensor_matmul(tensor_randn(20, 20), tensor_ones(20, 20)); break;
    }
    tensor_copy_(j->x, tensor_randn_like(j->x));
    tensor_copy_(j->labels, tensor_remainder_scalar(tensor_add_scalar(j->labels, 3), CLASSES));
}

static void run(uint64_t of, int captured, left_t *l) {
    job_t jobs[JOBS];
    kept_t kept[JOBS] = {{NULL, 0}, {NULL, 0}};
    l->n = 0;
    seed = drawn = of;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(of);
    int set_isa = pick(2);
    if (set_isa && tensor_set_isa(isas[2])) { tensor_clear_error(); }
    for (int k = 0; k < JOBS; k++) { job_begin(&jobs[k]); }
    tensor_scope_t inner = tensor_scope_begin();
    for (int k = 0; k < JOBS; k++) { train(&jobs[k]); }
    for (int turn = 0; turn < TURNS; turn++, tensor_scope_reset(inner)) {
        drawn = of * 1000 + (uint64_t)turn;             // a replay draws numbers as well
        int k = pick(JOBS), what = pick(4) == 0, way = pick(6);
        job_t *j = &jobs[k], *other = pick(3) ? NULL : &jobs[1 - k];
        between(j, &kept[k], set_isa);
        if (!captured || way == 0) {
            do_it(j, what);
        } else if (way == 1 || !j->graph[what]) {
            capture(j, what);
        } else {
            replay(j, what, &other);
        }
        if (captured) {
            second(&other);
        } else if (other) {
            train(other);
        }
        CHECK_MSG(tensor_ok(), "seed %d: %s", (int)of, tensor_error_text());
        tensor_clear_error();
        leave_all(l, jobs, turn);
    }
    for (int k = 0; k < JOBS; k++) {
        job_end(&jobs[k]);
        free(kept[k].block);
    }
    tensor_set_isa(NULL);
    tensor_set_num_threads(1);
    tensor_scope_end(inner);
    tensor_scope_end(scope);
}

static void compare(uint64_t of) {
    static left_t eager, replayed;
    run(of, 0, &eager);
    run(of, 1, &replayed);
    CHECK(eager.n == replayed.n && eager.n < PARTS * TURNS);
    for (int i = 0; i < eager.n && i < replayed.n; i++) {
        int same = eager.hash[i] == replayed.hash[i];
        CHECK_MSG(same, "seed %d, turn %d: %s", (int)of, eager.turn[i], eager.name[i]);
        if (!same) { break; }
    }
}

static uint64_t first = 1, count = 200;

static void programs(void) {
    for (uint64_t i = 0; i < count; i++) { compare(first + i); }
}

int main(int argc, char **argv) {
    if (argc > 3) {
        first = strtoull(argv[2], NULL, 10);
        count = strtoull(argv[3], NULL, 10);
    }
    RUN(programs);
    CHECK(n_captured > 0 && n_squeezed > 0 && n_replayed > 0 && n_slices > 0 && n_threads > 0);
    printf("%d captures, %d in less memory, %d replays, %d slices, %d times another thread\n", n_captured,
           n_squeezed, n_replayed, n_slices, n_threads);
    return test_report();
}

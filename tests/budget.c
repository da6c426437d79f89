// budget.c - tensor_graph_set_memory_budget: a captured step in less memory, by calls that are computed a
// second time, leaves what the step itself leaves, bit for bit, under every budget that it can reach; a
// budget that it cannot reach, or one without memory to plan, leaves the plan as it was
#include "heap.h"

#include <pthread.h>

enum { STEPS = 12 };

typedef struct job_t {
    nn_module_t *net, *more;
    nn_optimizer_t *opt;
    tensor_t *x, *y, *loss;
    tensor_t *(*forward)(struct job_t *j);
} job_t;
typedef void (*make_t)(job_t *j);

static tensor_t *plain(job_t *j) { return nn_forward(j->net, j->x); }

static void cnn(job_t *j) {
    j->net = nn_sequential(nn_conv2d(3, 8, 3, .padding = 1, .no_bias = 1), nn_batch_norm2d(8), nn_relu(),
                           nn_conv2d(8, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_silu(),
                           nn_conv2d(8, 8, 3, .padding = 1), nn_group_norm(2, 8), nn_softplus(1, 20),
                           nn_max_pool2d(2), nn_conv2d(8, 12, 3), nn_avg_pool2d(2), nn_relu(),
                           nn_dropout(0.3), nn_flatten(), nn_linear(12 * 2 * 2, 5));
    j->opt = nn_sgd(j->net, .lr = 0.05, .momentum = 0.9);
    j->x = tensor_randn(6, 3, 12, 12);
    j->y = tensor_randint(0, 5, 6);
    j->forward = plain;
}

static tensor_t *sum_of_both(job_t *j) {
    tensor_t *x = tensor_relu(nn_forward(nn_get_child(j->net, "0"), j->x));
    for (int i = 1; i < 4; i++) {
        const char name[2] = {(char)('0' + i), 0};
        x = tensor_relu(tensor_add(nn_forward(nn_get_child(j->net, name), x), x));
    }
    return nn_forward(nn_get_child(j->net, "4"), tensor_mean_dim(tensor_flatten(x, 2, 3), 2, 0));
}
static nn_module_t *block(void) {
    return nn_sequential(nn_conv2d(8, 8, 3, .padding = 1, .no_bias = 1), nn_batch_norm2d(8), nn_relu(),
                         nn_conv2d(8, 8, 3, .padding = 1, .no_bias = 1), nn_batch_norm2d(8));
}
static void residual(job_t *j) {
    j->net = nn_sequential(nn_sequential(nn_conv2d(3, 8, 3, .padding = 1), nn_batch_norm2d(8)), block(),
                           block(), block(), nn_linear(8, 5));
    j->opt = nn_adam(j->net, .lr = 0.01);
    j->x = tensor_randn(6, 3, 10, 10);
    j->y = tensor_randint(0, 5, 6);
    j->forward = sum_of_both;
}

static void mlp(job_t *j) {
    j->net = nn_sequential(nn_linear(20, 300), nn_gelu(), nn_layer_norm(300), nn_linear(300, 200),
                           nn_layer_norm(200), nn_tanh(), nn_dropout(0.2), nn_linear(200, 100),
                           nn_softplus(1, 20), nn_linear(100, 5));
    j->opt = nn_adamw(j->net, .lr = 0.01);
    j->x = tensor_randn(64, 20);
    j->y = tensor_randint(0, 5, 64);
    j->forward = plain;
}

static tensor_t *last_place(job_t *j) { return tensor_select(nn_forward(j->net, j->x), 0, -1); }
static void encoder(job_t *j) {
    j->net = nn_sequential(nn_embedding(13, 24),
                           nn_transformer_encoder_layer(24, 2, .feedforward = 96, .dropout = 0.1),
                           nn_transformer_encoder_layer(24, 2, .feedforward = 96, .dropout = TENSOR_ZERO,
                                                        .norm_first = 1),
                           nn_linear(24, 5));
    j->opt = nn_adam(j->net, .lr = 0.01);
    j->x = tensor_randint(0, 13, 10, 6);
    j->y = tensor_randint(0, 5, 6);
    j->forward = last_place;
}

// Halves, a function that a checkpoint computes again, and a value that is changed in place.
static tensor_t *in_checkpoint(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_dropout(tensor_gelu(nn_forward((nn_module_t *)user, in[0])), 0.2, 1);
}
static tensor_t *mixed_forward(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin_autocast(TENSOR_BF16);
    tensor_t *x = tensor_checkpoint(in_checkpoint, nn_get_child(j->net, "0"), &j->x, 1);
    x = tensor_mul(tensor_exp(tensor_mul_scalar(x, 0.1)), tensor_sigmoid(x));
    tensor_t *y = tensor_softmax(tensor_to(nn_forward(nn_get_child(j->net, "1"), x), TENSOR_F32), 1);
    tensor_t *z = tensor_clone(y);
    tensor_mul_(z, y);
    y = tensor_add(tensor_add_scalar(z, 1), tensor_sqrt(tensor_add_scalar(y, 1)));
    y = tensor_to(nn_forward(nn_get_child(j->net, "2"), y), TENSOR_F32);
    return tensor_scope_return(scope, y);
}
static void mixed(job_t *j) {
    j->net = nn_sequential(nn_linear(20, 150), nn_linear(150, 100), nn_linear(100, 5));
    j->opt = nn_sgd(j->net, .lr = 0.05);
    j->x = tensor_randn(64, 20);
    j->y = tensor_randint(0, 5, 64);
    j->forward = mixed_forward;
}

static tensor_t *step(job_t *j) {
    tensor_t *loss = tensor_cross_entropy(j->forward(j), j->y);
    tensor_backward(loss);
    nn_clip_grad_norm(j->opt, 0.5);
    nn_step(j->opt);
    nn_zero_grad(j->opt);
    return loss;
}

static void job_begin(job_t *j, make_t make) {
    memset(j, 0, sizeof *j);
    tensor_manual_seed(17);
    make(j);
}
static void job_end(job_t *j) {
    tensor_free(j->loss);
    nn_optimizer_free(j->opt);
    nn_free(j->net);
}

static uint64_t left_by(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    uint64_t h = test_hash(TEST_HASH, tensor_detach(j->loss));
    nn_named_list_t list = nn_state(j->net);
    for (int64_t i = 0; i < list.count; i++) { h = test_hash(h, list.item[i].tensor); }
    const tensor_generator_t rng = tensor_get_generator();
    tensor_scope_end(scope);
    return h ^ rng.offset * 0x9E3779B97F4A7C15u;
}

// What the steps themselves leave, one after the other; the first is not noted.
static void eager(make_t make, uint64_t *left, int steps) {
    job_t j;
    job_begin(&j, make);
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = -1; i < steps; i++, tensor_scope_reset(scope)) {
        tensor_free(j.loss);
        j.loss = tensor_keep(tensor_detach(step(&j)));
        if (i >= 0) { left[i] = left_by(&j); }
    }
    tensor_scope_end(scope);
    job_end(&j);
}

// The graph of the second step.
static tensor_graph_t *captured(job_t *j, make_t make) {
    job_begin(j, make);
    tensor_scope_t scope = tensor_scope_begin();
    step(j);
    tensor_scope_reset(scope);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *loss = step(j);
    j->loss = loss ? tensor_keep(tensor_detach(loss)) : NULL;
    tensor_scope_end(scope);
    return tensor_capture_end();
}

// The least bytes that the error of a budget names, which is too small.
static uint64_t least_of(tensor_graph_t *g) {
    CHECK(tensor_graph_set_memory_budget(g, 1) == TENSOR_ERR_OUT_OF_MEMORY);
    const char *text = strstr(tensor_error_text(), " take ");
    const uint64_t least = text ? strtoull(text + 6, NULL, 10) : 0;
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "bytes at least, the budget is 1 at budget.c:");
    return least;
}

static int same_plan(const tensor_graph_info_t *a, const tensor_graph_info_t *b) {
    return a->calls == b->calls && a->packed_bytes == b->packed_bytes &&
           a->random_streams == b->random_streams && a->block_groups == b->block_groups &&
           a->temporary_bytes == b->temporary_bytes;
}

static int replay(tensor_graph_t *g, int i) {
    int done = 0;
    if (i % 3 < 2) { return tensor_graph_replay(g); }
    while (done == 0) { done = tensor_graph_resume(g, 0); }
    return done == 1 ? 0 : -done;
}

// Budgets from below the captured plan to the least one, then as captured. saves: of a hundred bytes at least
static void every_budget(const char *name, make_t make, int saves) {
    uint64_t want[STEPS];
    job_t j;
    eager(make, want, STEPS);
    tensor_graph_t *g = captured(&j, make);
    CHECK_MSG(g != NULL && left_by(&j) == want[0], "%s: %s", name, tensor_error_text());
    const tensor_graph_info_t before = tensor_graph_info(g);
    const uint64_t least = least_of(g);
    const tensor_graph_info_t refused = tensor_graph_info(g);
    CHECK(same_plan(&before, &refused));
    CHECK_MSG(100 * (before.packed_bytes - least) >= (uint64_t)saves * before.packed_bytes,
              "%s: %lu of %lu", name, (unsigned long)least, (unsigned long)before.packed_bytes);
    printf("%s: captured %lu bytes, at least %lu\n", name, (unsigned long)before.packed_bytes,
           (unsigned long)least);
    for (int i = 1; i < STEPS; i++) {
        // The last three: the least, as captured, the least again.
        uint64_t bytes = before.packed_bytes - 64;
        bytes -= (bytes - least) * (uint64_t)(i - 1) / (STEPS - 4);
        if (i == STEPS - 2) { bytes = 0; }
        if (i == STEPS - 1) { bytes = least; }
        CHECK_MSG(tensor_graph_set_memory_budget(g, bytes) == 0, "%s: %s", name, tensor_error_text());
        const tensor_graph_info_t now = tensor_graph_info(g);
        CHECK_MSG(bytes == 0 || now.packed_bytes <= bytes, "%s: %lu for %lu", name,
                  (unsigned long)now.packed_bytes, (unsigned long)bytes);
        CHECK(bytes != 0 || same_plan(&now, &before));
        CHECK(now.random_streams == before.random_streams && now.input_bytes == before.input_bytes);
        if (bytes == least && saves) { CHECK(now.calls > before.calls); }
        const uint64_t allocs = tensor_memory_stats().allocs;
        CHECK_MSG(replay(g, i) == 0, "%s: %s", name, tensor_error_text());
        if (i % 3 < 2) { CHECK(tensor_memory_stats().allocs == allocs); }
        CHECK_MSG(left_by(&j) == want[i], "%s, %d threads, budget %lu: other bits", name,
                  tensor_get_num_threads(), (unsigned long)bytes);
    }
    CHECK(tensor_graph_set_memory_budget(g, least - 1) == TENSOR_ERR_OUT_OF_MEMORY);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "at least");
    CHECK(tensor_graph_info(g).packed_bytes <= least);
    CHECK(tensor_graph_set_memory_budget(g, before.packed_bytes) == 0);
    const tensor_graph_info_t now = tensor_graph_info(g);
    CHECK(same_plan(&now, &before));
    CHECK(tensor_graph_free(g) == 0);
    job_end(&j);
}

static void budgets(void) {
    for (int threads = 1; threads <= 3; threads += 2) {
        if (tensor_set_num_threads(threads)) {
            tensor_clear_error();               // TENSOR_NO_THREADS
            continue;
        }
        every_budget("cnn", cnn, 10);
        every_budget("residual", residual, 10);
        every_budget("mlp", mlp, 5);
        every_budget("encoder", encoder, 1);
        every_budget("mixed", mixed, 1);
    }
    tensor_set_num_threads(1);
}

// Another instruction set and other threads plan the budget's plan anew.
static void other_kernels(void) {
    uint64_t want[4];
    job_t j;
    if (tensor_set_isa("scalar") || tensor_set_isa("reference") || tensor_set_isa("scalar")) {
        tensor_clear_error();               // TENSOR_ISA of the build
        return;
    }
    eager(cnn, want, 4);
    tensor_graph_t *g = captured(&j, cnn);
    CHECK(tensor_graph_set_memory_budget(g, least_of(g)) == 0);
    if (tensor_set_num_threads(2)) { tensor_clear_error(); }
    CHECK(tensor_graph_replay(g) == 0 && left_by(&j) == want[1]);
    CHECK(tensor_set_isa("reference") == 0 && tensor_set_isa("scalar") == 0);
    tensor_set_num_threads(1);
    CHECK(tensor_graph_replay(g) == 0 && left_by(&j) == want[2]);
    CHECK(tensor_graph_set_memory_budget(g, 0) == 0);
    CHECK(tensor_graph_replay(g) == 0 && left_by(&j) == want[3]);
    tensor_graph_free(g);
    tensor_set_isa(NULL);
    job_end(&j);
}

// The thread that sets the budget, and that which replays, need not be that of the capture.
typedef struct other_t {
    tensor_graph_t *graph;
    uint64_t bytes;
    tensor_generator_t rng;
    int code;
} other_t;
static void *elsewhere(void *arg) {
    other_t *o = (other_t *)arg;
    tensor_set_generator(o->rng);
    o->code = o->bytes == 1 ? 0 : tensor_graph_set_memory_budget(o->graph, o->bytes);
    if (!o->code) { o->code = tensor_graph_replay(o->graph); }
    o->rng = tensor_get_generator();
    tensor_thread_end();
    return NULL;
}
static void other_threads(void) {
    uint64_t want[6];
    job_t j;
    eager(cnn, want, 6);
    tensor_graph_t *g = captured(&j, cnn);
    const uint64_t least = least_of(g);
    const uint64_t bytes[] = {least, 0, 1, least, 0};
    for (int i = 0; i < 5; i++) {
        other_t o = {g, bytes[i], tensor_get_generator(), 0};
        if (i > 2) {
            CHECK(tensor_graph_set_memory_budget(g, o.bytes) == 0 && tensor_graph_replay(g) == 0);
        } else {
            pthread_t t;
            CHECK(pthread_create(&t, NULL, elsewhere, &o) == 0 && pthread_join(t, NULL) == 0 && o.code == 0);
            tensor_set_generator(o.rng);
        }
        CHECK_MSG(left_by(&j) == want[i + 1], "step %d", i);
    }
    tensor_graph_free(g);
    job_end(&j);
}

static void refused(void) {
    job_t j;
    CHECK(tensor_graph_set_memory_budget(NULL, 0) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "graph_set_memory_budget: the graph is NULL");
    tensor_graph_t *g = captured(&j, cnn);
    const uint64_t least = least_of(g);
    CHECK(tensor_graph_resume(g, 0) == 0);
    for (int k = 0; k < 2; k++) {
        CHECK(tensor_graph_set_memory_budget(g, k ? 0 : least) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_set_memory_budget: a step of this graph is under way");
    }
    while (tensor_graph_resume(g, 0) == 0) { }
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    CHECK(tensor_graph_set_memory_budget(g, least) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_set_memory_budget: not in a capture");
    tensor_graph_free(tensor_capture_end());
    tensor_clear_error();
    tensor_set_realtime(1);
    CHECK(tensor_graph_set_memory_budget(g, 0) == 0);       // nothing is to be done
    CHECK(tensor_graph_set_memory_budget(g, least) == TENSOR_ERR_OUT_OF_MEMORY);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "in real time");
    tensor_set_realtime(0);
    CHECK(tensor_graph_set_memory_budget(g, least) == 0);
    tensor_set_realtime(1);
    CHECK(tensor_graph_replay(g) == 0);                     // takes no memory
    tensor_set_realtime(0);
    CHECK(tensor_graph_free(g) == 0);
    CHECK(tensor_graph_set_memory_budget(g, least) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_set_memory_budget: the graph was freed");
    job_end(&j);

    g = captured(&j, cnn);
    tensor_free(j.loss);
    j.loss = NULL;
    nn_optimizer_free(j.opt);
    j.opt = NULL;
    nn_free(j.net);
    CHECK(tensor_graph_set_memory_budget(g, least) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "was freed since the capture");
    tensor_graph_free(g);
}

// What was made of a value that changes before it is read again cannot be made again. temporary: the value
// is one, else it is older than the step.
static tensor_t *changed_step(tensor_t *w, tensor_t *ones, tensor_t *m, int temporary) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *u = temporary ? tensor_mul_scalar(w, 2) : w;
    tensor_t *a = tensor_square(u), *b = tensor_square(ones);
    tensor_add_(u, ones);
    tensor_t *rows = tensor_reshape(a, 2, 2000), *small = tensor_matmul(rows, tensor_transpose(rows, 0, 1));
    tensor_t *peak = tensor_sum(tensor_matmul(tensor_matmul(m, small), tensor_transpose(m, 0, 1)));
    tensor_t *left = tensor_mul(tensor_div(a, peak), tensor_div(b, peak));      // behind the product
    left = tensor_add(tensor_mean(left), tensor_mean(u));
    return tensor_scope_return(scope, tensor_add(left, peak));
}
static void changed(void) {
    for (int temporary = 0; temporary < 2; temporary++) {
        tensor_t *w = tensor_ones(4000), *ones = tensor_ones(4000), *m = tensor_full(3e-5, 300, 2);
        float want[3];
        for (int i = 0; i < 3; i++) { want[i] = (float)tensor_item(changed_step(w, ones, m, temporary)); }
        tensor_copy_(w, ones);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = changed_step(w, ones, m, temporary);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_item(y) == (double)want[0]);
        const uint64_t least = least_of(g);
        CHECK(least < tensor_graph_info(g).packed_bytes);           // b is made again
        CHECK(tensor_graph_set_memory_budget(g, least) == 0);
        for (int i = 1; i < 3; i++) {
            CHECK(tensor_graph_replay(g) == 0);
            CHECK_NEAR(tensor_item(y), (double)want[i], 0);
        }
        tensor_graph_free(g);
    }
}

// A step without temporaries.
static void empty(void) {
    tensor_t *x = tensor_ones(3);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_set_memory_budget(g, 1) == 0 && tensor_graph_replay(g) == 0);
    tensor_graph_free(g);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_add_(x, x);
    g = tensor_capture_end();
    CHECK(tensor_graph_set_memory_budget(g, 1) == 0 && tensor_graph_replay(g) == 0);
    CHECK(tensor_item(tensor_sum(x)) == 12);
    tensor_graph_free(g);
}

// The k-th allocation fails while budgets are set, for every k, once and for good.
static uint64_t under_failures(int mode, long k, long *calls, const uint64_t *want) {
    static uint64_t least;
    world_of_heap_t w;
    job_t j;
    if (!heap_open(&w, mode)) { return 0; }
    tensor_scope_t scope = tensor_scope_begin();
    tensor_graph_t *g = captured(&j, cnn);
    const tensor_graph_info_t before = tensor_graph_info(g);
    if (k < 0) { least = least_of(g); }
    long from = w.h.calls;
    if (k >= 0) { w.h.fail_at = from + k; }
    int failed = 0;
    for (int i = 0; i < 3; i++) {               // a budget, a smaller one, as captured
        const uint64_t bytes[] = {(before.packed_bytes + least) / 2, least, 0};
        const tensor_graph_info_t then = tensor_graph_info(g);
        int code = tensor_graph_set_memory_budget(g, bytes[i]);
        CHECK_MSG(code == 0 || (k >= 0 && code == TENSOR_ERR_OUT_OF_MEMORY), "k = %ld: %s", k,
                  tensor_error_text());
        failed |= code;
        if (code) {
            const tensor_graph_info_t now = tensor_graph_info(g);
            CHECK_MSG(same_plan(&then, &now), "k = %ld: the plan is another one", k);
            tensor_clear_error();
            w.h.fail_at = -1;
            i--;                                // memory is there again
        }
        const int again = tensor_graph_replay(g);
        CHECK_MSG(again == 0 || w.h.fail_at >= 0, "k = %ld: %s", k, tensor_error_text());
        if (again) {
            tensor_clear_error();
            w.h.fail_at = -1;
            CHECK(tensor_graph_replay(g) == 0);
        }
    }
    if (k < 0) { *calls = w.h.calls - from; }
    w.h.fail_at = -1;
    const int steps = 3 + (failed != 0);
    CHECK_MSG(left_by(&j) == want[steps], "mode %d, k = %ld: other bits", mode, k);
    tensor_graph_free(g);
    job_end(&j);
    tensor_scope_end(scope);
    heap_close(&w, k);
    return least;
}
static void failures(void) {
    uint64_t want[5];
    long n = 0;
    eager(cnn, want, 5);
    for (int mode = 0; mode < HEAP_MODES_HERE; mode++) {
        long calls = 0;
        for (long k = -1; k < calls; k++, n++) { under_failures(mode, k, &calls, want); }
        CHECK(calls > 10);
    }
    printf("%ld failures\n", n);
}

int main(void) {
    RUN(budgets);
    RUN(other_kernels);
    RUN(other_threads);
    RUN(refused);
    RUN(changed);
    RUN(empty);
    RUN(failures);
    return test_report();
}

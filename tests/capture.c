// capture.c - a step that is captured and replayed leaves what the step itself leaves, bit for bit: losses,
// gradients, parameters, buffers, optimizer state, the generator; and what cannot be captured is an error
#include "test.h"

enum { STEPS = 6, ITEMS = 6, MOST = 200 };

// A network in training. step does everything but fill x and y.
typedef struct job_t {
    nn_module_t *net, *token, *place, *body, *head;
    nn_optimizer_t *opt;
    tensor_t *x, *y, *loss, *scaler, *mask;
    tensor_t *(*step)(struct job_t *j);
} job_t;
typedef void (*make_t)(job_t *j);

static tensor_t *finish(job_t *j, tensor_t *loss) {
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    nn_clip_grad_norm(j->opt, 0.5);
    nn_step(j->opt);
    return loss;
}

// ---- the networks

static tensor_t *mlp_step(job_t *j) {
    return finish(j, tensor_mse_loss(nn_forward(j->net, j->x), j->y));
}
static void mlp(job_t *j) {
    j->net = nn_sequential(nn_linear(8, 64), nn_relu(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 4));
    j->opt = nn_adam(j->net, .lr = 0.01);
    j->x = tensor_randn(ITEMS, 8);
    j->y = tensor_randn(ITEMS, 4);
    j->step = mlp_step;
}

static int labelled_line;               // of its loss
static tensor_t *labelled_step(job_t *j) {
    labelled_line = __LINE__ + 1;
    return finish(j, tensor_cross_entropy(nn_forward(j->net, j->x), j->y));
}
static void cnn(job_t *j) {
    j->net = nn_sequential(nn_conv2d(3, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_relu(), nn_max_pool2d(2),
                           nn_conv2d(8, 12, 3), nn_avg_pool2d(2), nn_dropout(0.3), nn_flatten(),
                           nn_linear(12 * 2 * 2, 5));
    j->opt = nn_sgd(j->net, .lr = 0.05, .momentum = 0.9, .nesterov = 1, .weight_decay = 0.01);
    j->x = tensor_randn(ITEMS, 3, 12, 12);
    j->y = tensor_randint(0, 5, ITEMS);
    j->step = labelled_step;
}

static tensor_t *lstm_step(job_t *j) {
    tensor_t *h = NULL, *c = NULL;
    tensor_t *y = nn_lstm_forward(j->body, nn_forward(j->token, j->x), &h, &c);
    tensor_t *logits = nn_forward(j->head, tensor_select(y, 0, -1));
    tensor_t *loss = tensor_add(tensor_cross_entropy(logits, j->y), tensor_mean(tensor_square(c)));
    tensor_free(h);
    tensor_free(c);
    return finish(j, loss);
}
static void lstm(job_t *j) {
    j->token = nn_embedding(11, 12);
    j->body = nn_lstm(12, 16, .layers = 2, .dropout = 0.2);
    j->head = nn_linear(16, 5);
    j->net = nn_sequential(j->token, j->body, j->head);
    j->opt = nn_adamw(j->net, .lr = 0.01, .weight_decay = 0.1);
    j->x = tensor_randint(0, 11, 7, ITEMS);
    j->y = tensor_randint(0, 5, ITEMS);
    j->step = lstm_step;
}

static tensor_t *gpt_step(job_t *j) {
    int64_t B = tensor_size(j->x, 0), T = tensor_size(j->x, 1);
    tensor_t *place = tensor_arange(0, (double)T, 1, TENSOR_I64);
    tensor_t *x = tensor_add(nn_forward(j->token, j->x), nn_forward(j->place, place));
    tensor_t *h = tensor_permute(tensor_reshape(nn_forward(j->body, x), B, T, 3, 2, 12), 2, 0, 3, 1, 4);
    h = tensor_scaled_dot_product_attention(tensor_select(h, 0, 0), tensor_select(h, 0, 1),
                                            tensor_select(h, 0, 2), .is_causal = 1);
    x = tensor_add(x, tensor_reshape(tensor_transpose(h, 1, 2), B, T, 24));
    x = tensor_dropout(tensor_add(x, nn_forward(j->head, x)), 0.1, 1);
    tensor_t *logits = tensor_linear(x, nn_get(j->token, "weight"), NULL);
    return finish(j, tensor_cross_entropy(tensor_reshape(logits, -1, 13), tensor_reshape(j->y, -1)));
}
static void gpt(job_t *j) {
    j->token = nn_embedding(13, 24);
    j->place = nn_embedding(10, 24);
    j->body = nn_sequential(nn_layer_norm(24), nn_linear(24, 72, .no_bias = 1));
    j->head = nn_sequential(nn_layer_norm(24), nn_linear(24, 96), nn_gelu(), nn_linear(96, 24));
    j->net = nn_sequential(j->token, j->place, j->body, j->head);
    j->opt = nn_adamw(j->net, .lr = 0.01, .beta2 = 0.99);
    j->x = tensor_randint(0, 13, ITEMS, 10);
    j->y = tensor_randint(0, 13, ITEMS, 10);
    j->step = gpt_step;
}

// Two passes into the same gradients, dropped at the end of the step, in a checkpoint with dropout.
static tensor_t *noisy(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_dropout(nn_forward((nn_module_t *)user, in[0]), 0.4, 1);
}
static tensor_t *sums_step(job_t *j) {
    tensor_t *loss = NULL;
    for (int half = 0; half < 2; half++) {
        tensor_t *x = tensor_narrow(j->x, 0, half * ITEMS / 2, ITEMS / 2);
        tensor_t *h = tensor_checkpoint(noisy, j->body, &x, 1);
        loss = tensor_mse_loss(nn_forward(j->head, h), tensor_narrow(j->y, 0, half * ITEMS / 2, ITEMS / 2));
        tensor_backward(tensor_div_scalar(loss, 2));
    }
    nn_step(j->opt);
    nn_zero_grad(j->opt);
    return loss;
}
static void sums(job_t *j) {
    j->body = nn_sequential(nn_linear(8, 20), nn_gelu());
    j->head = nn_linear(20, 4);
    j->net = nn_sequential(j->body, j->head);
    j->opt = nn_nadam(j->net, .lr = 0.01);
    j->x = tensor_randn(ITEMS, 8);
    j->y = tensor_randn(ITEMS, 4);
    j->step = sums_step;
}

static tensor_t *alpha_step(job_t *j) {
    tensor_t *y = tensor_alpha_dropout(tensor_selu(nn_forward(j->body, j->x)), 0.3, 1);
    y = tensor_flatten(tensor_feature_alpha_dropout(tensor_reshape(y, ITEMS, 8, 2), 0.4, 1), 1, -1);
    return finish(j, tensor_mse_loss(nn_forward(j->head, y), j->y));
}
static void alpha(job_t *j) {
    j->body = nn_linear(8, 16);
    j->head = nn_linear(16, 4);
    j->net = nn_sequential(j->body, j->head);
    j->opt = nn_sgd(j->net, .lr = 0.05);
    j->x = tensor_randn(ITEMS, 8);
    j->y = tensor_randn(ITEMS, 4);
    j->step = alpha_step;
}

// Half precision with a scaler, whose factor grows on the way.
static tensor_t *scaled_step(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin_autocast(TENSOR_F16);
    tensor_t *y = nn_forward(j->net, j->x);
    tensor_scope_return(scope, y);
    tensor_t *loss = tensor_mse_loss(tensor_to(y, TENSOR_F32), j->y);
    nn_zero_grad(j->opt);
    tensor_backward(nn_scaler_scale(j->scaler, loss));
    nn_scaler_step(j->scaler, j->opt);
    nn_scaler_update(j->scaler);
    return loss;
}
static void scaled(job_t *j) {
    mlp(j);
    j->scaler = nn_grad_scaler(1024, 2);
    j->step = scaled_step;
}

// A batch of one whose gradients go: the optimizer makes them. Zeros of both signs, and products that are too
// small, in rows shorter and longer than what is made at a time, and than what a product makes in one go.
static tensor_t *one_step(job_t *j) {
    tensor_t *x = tensor_mul(j->x, j->mask);
    tensor_t *y = nn_forward(j->body, tensor_narrow(x, 1, 0, 300));
    tensor_t *loss = tensor_add(tensor_mse_loss(y, j->y), tensor_sum(tensor_square(nn_forward(j->head, x))));
    tensor_backward(loss);
    nn_step(j->opt);
    nn_zero_grad(j->opt);
    return loss;
}
static void one(job_t *j) {
    static const float factors[] = {1, 0, -0.0f, 1e-3f, -1e-30f, 0.5f, 1e-38f};
    float *mask = (float *)malloc(9100 * sizeof *mask);
    for (int i = 0; i < 9100; i++) { mask[i] = factors[i % 7]; }
    j->mask = tensor_from(mask, TENSOR_F32, 1, 9100);
    free(mask);
    j->body = nn_sequential(nn_linear(300, 97), nn_relu(), nn_linear(97, 33));
    j->head = nn_linear(9100, 2);
    j->net = nn_sequential(j->body, j->head);
    j->x = tensor_randn(1, 9100);
    j->y = tensor_randn(1, 33);
    j->step = one_step;
}
static void one_adamw(job_t *j) {
    one(j);
    j->opt = nn_adamw(j->net, .lr = 0.01);
}
static void one_sgd(job_t *j) {
    one(j);
    j->opt = nn_sgd(j->net, .lr = 0.01, .momentum = 0.9, .maximize = 1);
}
static void one_rprop(job_t *j) {
    one(j);
    j->opt = nn_rprop(j->net, .lr = 0.01);
}

// Parameters whose gradients are large and go: each is stepped as soon as its gradient is whole.
static tensor_t *early_step(job_t *j) {
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    tensor_backward(loss);
    nn_step(j->opt);
    nn_zero_grad(j->opt);
    return loss;
}
static void early(job_t *j) {
    j->net = nn_sequential(nn_linear(200, 150), nn_relu(), nn_linear(150, 150), nn_tanh(), nn_linear(150, 4));
    j->opt = nn_adam(j->net, .lr = 0.01);
    tensor_t *weight = nn_get(j->net, "2.weight");
    nn_optimizer_group(j->opt, &weight, 1, .lr = 0.02);
    j->x = tensor_randn(ITEMS, 200);
    j->y = tensor_randn(ITEMS, 4);
    j->step = early_step;
}

// ---- what the steps leave

typedef struct left_t {
    float loss[STEPS];
    int n, items;
    size_t bytes;
    struct { char *data; size_t bytes; } part[MOST];
    char *file;
    size_t file_bytes;
    tensor_generator_t rng;
} left_t;

static void leave(left_t *l, tensor_t *t) {
    size_t bytes = (size_t)tensor_numel(t) * tensor_dtype_size(tensor_dtype(t));
    char *data = (char *)malloc(bytes + 1);
    CHECK(l->n < MOST && tensor_copy_out(tensor_detach(t), data, bytes) == 0);
    l->part[l->n].data = data;
    l->part[l->n++].bytes = bytes;
}

// Parameters, buffers, gradients; and the checkpoint, which has the optimizer's states and steps as well.
static void leave_all(left_t *l, job_t *j) {
    nn_named_list_t list = nn_state(j->net);
    for (int64_t i = 0; i < list.count; i++) {
        leave(l, list.item[i].tensor);
        if (!list.item[i].is_buffer && tensor_grad(list.item[i].tensor)) {
            leave(l, tensor_grad(list.item[i].tensor));
        }
    }
    if (j->scaler) { leave(l, j->scaler); }
    l->rng = tensor_get_generator();
    char path[300];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/tensor-capture-%p.ckpt", folder ? folder : "/tmp", (void *)l);
    CHECK(nn_save_checkpoint(path, j->net, j->opt, STEPS) == 0);
    FILE *f = fopen(path, "rb");
    l->file = (char *)malloc(1 << 20);
    l->file_bytes = f ? fread(l->file, 1, 1 << 20, f) : 0;
    CHECK(l->file_bytes > 0 && l->file_bytes < 1 << 20);
    if (f) { fclose(f); }
    remove(path);
}

static void forget(left_t *l) {
    for (int i = 0; i < l->n; i++) { free(l->part[i].data); }
    free(l->file);
}

// The least bytes that a graph can be planned for, from the error text of a budget that is too small.
static uint64_t least_budget(tensor_graph_t *g) {
    const tensor_graph_info_t before = tensor_graph_info(g);
    CHECK(tensor_graph_set_memory_budget(g, 1) == TENSOR_ERR_OUT_OF_MEMORY);
    const char *least = strstr(tensor_error_text(), " take ");
    const uint64_t bytes = least ? strtoull(least + 6, NULL, 10) : 0;
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "graph_set_memory_budget: the step's temporaries take ");
    const tensor_graph_info_t now = tensor_graph_info(g);
    CHECK(now.packed_bytes == before.packed_bytes && now.calls == before.calls);
    CHECK(bytes > 0 && bytes <= before.packed_bytes);
    return bytes;
}

// In turns between the captured and the least memory, the least, and as captured.
static void another_budget(tensor_graph_t *g, int turn) {
    static uint64_t plain, least;
    if (turn == 1) {
        plain = tensor_graph_info(g).packed_bytes;
        least = least_budget(g);
    }
    const uint64_t budgets[3] = {(least + plain) / 2, least, 0};
    CHECK_MSG(tensor_graph_set_memory_budget(g, budgets[(turn + 2) % 3]) == 0, "%s", tensor_error_text());
    const uint64_t packed = tensor_graph_info(g).packed_bytes;
    CHECK(turn % 3 ? packed <= budgets[(turn + 2) % 3] : packed == plain);
}

// One step of warming up, then STEPS of them with other data and another rate each: as they are, or the first
// one captured and the others replayed, the last of them in slices; 2: with other budgets of memory.
static void train(make_t make, int captured, left_t *l) {
    job_t j;
    tensor_graph_t *g = NULL;
    memset(&j, 0, sizeof j);
    memset(l, 0, sizeof *l);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(17);
    make(&j);
    tensor_scope_t inner = tensor_scope_begin();
    j.step(&j);
    tensor_scope_reset(inner);
    for (int i = 0; i < STEPS; i++) {
        int whole = tensor_dtype(j.x) == TENSOR_I64;
        tensor_copy_(j.x, whole ? tensor_remainder_scalar(tensor_add_scalar(j.x, 3), 11)
                                : tensor_add(j.x, tensor_mul_scalar(tensor_randn_like(j.x), 0.5)));
        nn_set_lr(j.opt, 0.02 / (1 + i));
        if (captured == 2 && i > 0) { another_budget(g, i); }
        if (captured && i == STEPS - 1) {
            int done;
            while ((done = tensor_graph_resume(g, 0)) == 0) {}
            CHECK(done == 1);
        } else if (captured && i > 0) {
            uint64_t before = tensor_memory_stats().allocs;
            int64_t alive = tensor_memory_stats().live_tensors;
            CHECK(tensor_graph_replay(g) == 0);
            CHECK_MSG(tensor_memory_stats().allocs == before, "a replay took memory");
            CHECK(tensor_memory_stats().live_tensors == alive);
        } else {
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            j.loss = tensor_keep(j.step(&j));
            tensor_scope_reset(inner);          // what it held becomes temporaries
            if (captured) {
                g = tensor_capture_end();
                CHECK_MSG(g != NULL, "%s", tensor_error_text());
                if (!g) { break; }
                tensor_graph_info_t info = tensor_graph_info(g);
                CHECK(info.packed_bytes > 0 && info.packed_bytes < info.temporary_bytes);
            }
        }
        l->loss[i] = (float)tensor_item(j.loss);
        if (!captured) { tensor_free(j.loss); }
    }
    if (captured) { tensor_free(j.loss); }
    leave_all(l, &j);
    CHECK(tensor_graph_free(g) == 0);
    nn_optimizer_free(j.opt);
    nn_free(j.net);
    if (j.scaler) { tensor_free(j.scaler); }
    tensor_scope_end(inner);
    tensor_scope_end(scope);
}

// captured: as in train.
static void compare_with(const char *name, make_t make, int captured) {
    left_t eager, replayed;
    train(make, 0, &eager);
    train(make, captured, &replayed);
    CHECK_MSG(eager.n == replayed.n, "%s: %d tensors left, %d by replays", name, eager.n, replayed.n);
    for (int i = 0; i < STEPS; i++) {
        CHECK_MSG(memcmp(&eager.loss[i], &replayed.loss[i], sizeof(float)) == 0,
                  "%s, %s, %d threads: loss %d is %.9g, replayed %.9g", name, tensor_isa_name(),
                  tensor_get_num_threads(), i, (double)eager.loss[i], (double)replayed.loss[i]);
    }
    for (int i = 0; i < eager.n && i < replayed.n; i++) {
        CHECK_MSG(eager.part[i].bytes == replayed.part[i].bytes &&
                      memcmp(eager.part[i].data, replayed.part[i].data, eager.part[i].bytes) == 0,
                  "%s, %s, %d threads: tensor %d differs", name, tensor_isa_name(),
                  tensor_get_num_threads(), i);
    }
    CHECK_MSG(eager.file_bytes == replayed.file_bytes &&
                  memcmp(eager.file, replayed.file, eager.file_bytes) == 0,
              "%s: the checkpoints differ", name);
    CHECK(memcmp(&eager.rng, &replayed.rng, sizeof eager.rng) == 0);
    CHECK_MSG(eager.loss[STEPS - 1] == eager.loss[STEPS - 1] && eager.loss[0] != eager.loss[STEPS - 1],
              "%s: nothing was learnt", name);
    forget(&eager);
    forget(&replayed);
}

static void compare(const char *name, make_t make) {
    for (int captured = 1; captured < 3; captured++) { compare_with(name, make, captured); }
}

static void bits(void) {
    static const char *const isa[] = {"scalar", "sse2",  "avx2", "avx512", "avx512bf16",
                                      "amx",    "neon", "wasm", "reference"};
    int tried = 0;
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++) {
        if (tensor_set_isa(isa[i])) {
            tensor_clear_error();
            continue;
        }
        tried++;
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            compare("mlp", mlp);
            compare("cnn", cnn);
            compare("lstm", lstm);
            compare("gpt", gpt);
            compare("sums", sums);
            compare("alpha", alpha);
            compare("scaled", scaled);
            compare("one, AdamW", one_adamw);
            compare("one, SGD", one_sgd);
            compare("one, Rprop", one_rprop);
            compare("early", early);
        }
    }
    CHECK(tried >= 2);
    tensor_set_isa(NULL);
    tensor_set_num_threads(1);
}

// ---- groups: pointwise calls that run block by block

typedef struct chain_t {
    tensor_t *x, *other, *row, *turned, *state, *y, *total;
} chain_t;

// Six and more pointwise ops with a row that is spread over all, a transposed operand, casts, random numbers
// between them, a state that changes in place, a sum in the middle of forward and backward.
static void chain_step(chain_t *c) {
    tensor_dtype_t dtype = tensor_dtype(c->x);
    tensor_t *y = tensor_add_scalar(tensor_mul(c->x, c->other), 2);
    y = tensor_mul(tensor_sub(y, c->row), tensor_transpose(c->turned, 0, 1));
    if (dtype == TENSOR_I64) {
        y = tensor_bitwise_xor(tensor_maximum(y, c->x), c->other);
        y = tensor_add(tensor_floor_divide_scalar(y, 3), tensor_to(tensor_gt(y, c->x), TENSOR_I64));
        y = tensor_to(tensor_neg(tensor_to(y, TENSOR_U8)), TENSOR_I64);
    } else {
        y = tensor_mul(tensor_tanh(y), c->x);
        y = tensor_dropout(y, 0.3, 1);
        y = tensor_sigmoid(tensor_to(tensor_to(y, TENSOR_F16), TENSOR_F64));
        y = tensor_where(tensor_gt_scalar(y, 0.4), tensor_to(y, dtype), c->x);
    }
    tensor_add_(c->state, tensor_mul_scalar(tensor_detach(y), 2));
    c->total = tensor_keep(tensor_sum(y));
    c->y = tensor_keep(tensor_sub(y, c->row));
    if (dtype != TENSOR_I64) {
        tensor_set_grad(c->x, NULL);
        tensor_backward(c->total);
    }
}

enum { LEFT = 4 };

// What a step leaves, as bytes.
static void chain_left(chain_t *c, char *to[LEFT], size_t bytes[LEFT]) {
    tensor_t *left[LEFT];
    left[0] = tensor_detach(c->y);
    left[1] = tensor_detach(c->total);
    left[2] = c->state;
    left[3] = tensor_dtype(c->x) == TENSOR_I64 ? c->state : tensor_grad(c->x);
    for (int i = 0; i < LEFT; i++) {
        bytes[i] = (size_t)tensor_numel(left[i]) * tensor_dtype_size(tensor_dtype(left[i]));
        to[i] = (char *)malloc(bytes[i] + 1);
        CHECK(tensor_copy_out(left[i], to[i], bytes[i]) == 0);
    }
}

static tensor_t *numbers(tensor_dtype_t dtype, int64_t rows, int64_t columns) {
    return tensor_to(tensor_mul_scalar(tensor_randn(rows, columns), dtype == TENSOR_I64 ? 9 : 1), dtype);
}

// A replay of the graph, planned for the kernels and threads of now, and the step itself.
static void chain_compare(tensor_graph_t *g, chain_t *c) {
    static const char *const what[LEFT] = {"result", "sum", "state", "gradient"};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *before = tensor_clone(c->state), *x = tensor_detach(c->x);
    int64_t rows = tensor_size(x, 0), columns = tensor_size(x, 1);
    tensor_copy_(x, numbers(tensor_dtype(x), rows, columns));
    tensor_generator_t rng = tensor_get_generator();
    char *replayed[LEFT], *eager[LEFT];
    size_t bytes[LEFT];
    CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
    chain_left(c, replayed, bytes);
    tensor_copy_(c->state, before);
    tensor_set_generator(rng);
    chain_t again = *c;
    chain_step(&again);
    chain_left(&again, eager, bytes);
    for (int i = 0; i < LEFT; i++) {
        CHECK_MSG(memcmp(eager[i], replayed[i], bytes[i]) == 0, "%s, %d threads, %s [%d,%d]: %s differs",
                  tensor_isa_name(), tensor_get_num_threads(), tensor_dtype_name(tensor_dtype(x)), (int)rows,
                  (int)columns, what[i]);
        free(eager[i]);
        free(replayed[i]);
    }
    tensor_free(again.y);
    tensor_free(again.total);
    tensor_scope_end(scope);
}

static void chain(tensor_dtype_t dtype, int64_t rows, int64_t columns) {
    static const char *const isa[] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm", "reference"};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(3);
    chain_t c;
    c.x = numbers(dtype, rows, columns);
    c.other = numbers(dtype, rows, columns);
    c.row = tensor_select(numbers(dtype, 1, columns), 0, 0);
    c.turned = numbers(dtype, columns, rows);
    c.state = numbers(dtype, rows, columns);
    if (dtype != TENSOR_I64) { tensor_requires_grad_(c.x, 1); }
    tensor_scope_t inner = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    chain_step(&c);
    tensor_scope_end(inner);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_MSG(g != NULL, "%s", tensor_error_text());
    int64_t blocks = 0, grouped = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        tensor_graph_call_t call = tensor_graph_call(g, i);
        grouped += call.block_group >= 0;
        for (int k = 0; k < call.inputs; k++) {
            blocks += tensor_graph_operand(&call, k).place == TENSOR_GRAPH_BLOCK;
        }
        CHECK(call.block_group < tensor_graph_info(g).block_groups);
        if (strncmp(call.op, "dropout", 7) == 0 || strncmp(call.op, "floor", 5) == 0) {
            CHECK(call.block_group == -1);
        }
    }
    if (rows * columns > 1) { CHECK(tensor_graph_info(g).block_groups >= 2 && grouped >= 8 && blocks >= 4); }
    chain_compare(g, &c);
    for (size_t i = 0; i < sizeof isa / sizeof *isa; i++) {
        if (tensor_set_isa(isa[i])) {
            tensor_clear_error();
            continue;
        }
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads) == 0) { chain_compare(g, &c); }
            tensor_clear_error();               // TENSOR_NO_THREADS
        }
    }
    tensor_set_isa(NULL);
    tensor_set_num_threads(1);
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(c.y);
    tensor_free(c.total);
    tensor_scope_end(scope);
}

// A step that is in the middle of a group does not go on with other kernels.
static void begun_group(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_randn(400000);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_sigmoid(tensor_exp(tensor_mul_scalar(x, 0.5)));
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && tensor_graph_info(g).block_groups == 1);
    tensor_fill_(y, 0);
    CHECK(tensor_graph_resume(g, 0) == 0);
    int others = strcmp(tensor_isa_name(), "scalar") != 0 && tensor_set_isa("scalar") == 0;
    if (others) {
        CHECK(tensor_graph_resume(g, 0) == -TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "is under way with the kernels of another instruction set");
    }
    tensor_clear_error();
    tensor_set_isa(NULL);
    int done;
    while ((done = tensor_graph_resume(g, 0)) == 0) {}
    CHECK(done == 1 && tensor_equal(y, tensor_sigmoid(tensor_exp(tensor_mul_scalar(x, 0.5)))));
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
}

static void chains(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_I64};
    static const int shapes[][2] = {{1, 1}, {2, 1}, {7, 3}, {16, 16}, {5, 51}, {13, 400}, {9, 4445}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            chain(dtypes[i], shapes[k][0], shapes[k][1]);
        }
    }
}

// Reductions of all elements run with the group that makes or reads these, in the order of their own kernels.
enum { REDUCED = 8 };
static void reduced_step(tensor_t *x, tensor_t *left[REDUCED]) {
    int floats = tensor_dtype(x) != TENSOR_I64;
    tensor_t *y = tensor_mul_scalar(x, 3);
    left[0] = tensor_keep(tensor_sum(y));
    left[1] = tensor_keep(floats ? tensor_mean(y) : tensor_prod(x));
    left[2] = tensor_keep(tensor_max(y));
    left[3] = tensor_keep(tensor_min(x));
    left[4] = tensor_keep(tensor_prod(tensor_add_scalar(tensor_mul_scalar(y, 1e-4), 1)));
    left[5] = tensor_keep(tensor_all(y));
    left[6] = tensor_keep(tensor_any(tensor_gt_scalar(y, 9)));
    left[7] = tensor_keep(tensor_sum(tensor_mul(y, tensor_neg(x))));
}

static void reduced_compare(tensor_graph_t *g, tensor_t *x, tensor_t *const captured[REDUCED], int slices) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *eager[REDUCED];
    for (int i = 0; i < REDUCED; i++) { tensor_fill_(captured[i], 77); }
    if (slices) {
        int done;
        while ((done = tensor_graph_resume(g, 0)) == 0) {}
        CHECK(done == 1);
    } else {
        CHECK(tensor_graph_replay(g) == 0);
    }
    reduced_step(x, eager);
    for (int i = 0; i < REDUCED; i++) {
        char a[8] = {0}, b[8] = {0};
        CHECK(tensor_dtype(eager[i]) == tensor_dtype(captured[i]));
        CHECK(tensor_copy_out(eager[i], a, tensor_dtype_size(tensor_dtype(eager[i]))) == 0);
        CHECK(tensor_copy_out(captured[i], b, tensor_dtype_size(tensor_dtype(eager[i]))) == 0);
        CHECK_MSG(memcmp(a, b, sizeof a) == 0, "%s, %d threads, %s [%d]: reduction %d differs",
                  tensor_isa_name(), tensor_get_num_threads(), tensor_dtype_name(tensor_dtype(x)),
                  (int)tensor_numel(x), i);
        tensor_free(eager[i]);
    }
    tensor_scope_end(scope);
}

static void reduced_of(tensor_dtype_t dtype, int64_t n) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_select(numbers(dtype, 1, n), 0, 0), *left[REDUCED];
    tensor_scope_t inner = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    reduced_step(x, left);
    tensor_scope_end(inner);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_MSG(g != NULL, "%s", tensor_error_text());
    int grouped = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        tensor_graph_call_t c = tensor_graph_call(g, i);
        grouped += c.block_group >= 0 && tensor_graph_operand(&c, c.inputs).numel == 1;
    }
    CHECK_MSG(grouped == REDUCED, "%d reductions of %d run in groups", grouped, REDUCED);
    tensor_copy_(x, tensor_select(numbers(dtype, 1, n), 0, 0));
    reduced_compare(g, x, left, 0);
    reduced_compare(g, x, left, 1);
    if (tensor_set_num_threads(3) == 0) { reduced_compare(g, x, left, 0); }
    tensor_clear_error();                       // TENSOR_NO_THREADS
    tensor_set_num_threads(1);
    if (n < 100000) {
        if (tensor_set_isa("reference") == 0) { reduced_compare(g, x, left, 0); }
        tensor_clear_error();                   // a build without it
        tensor_set_isa(NULL);
    }
    CHECK(tensor_graph_free(g) == 0);
    for (int i = 0; i < REDUCED; i++) { tensor_free(left[i]); }
    tensor_scope_end(scope);
}

static void reduced(void) {
    static const int64_t sizes[] = {2, 1023, 1024, 3001, 40000, 65537, 200001, 64 * 65536 + 1000};
    tensor_manual_seed(4);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        reduced_of(TENSOR_F32, sizes[i]);
        reduced_of(TENSOR_F64, sizes[i]);
        if (sizes[i] > 100000) { continue; }
        reduced_of(TENSOR_F16, sizes[i]);
        reduced_of(TENSOR_I64, sizes[i]);
    }
}

// So many results live at once make blocks short, but not shorter than what a sum adds up alone.
enum { WIDE = 12 };
static tensor_t *wide_step(tensor_t *x) {
    tensor_t *y[WIDE];
    for (int i = 0; i < WIDE; i++) { y[i] = tensor_mul_scalar(x, 1 + i * 0.25); }
    tensor_t *total = y[0];
    for (int i = 1; i < WIDE; i++) { total = tensor_add(total, y[i]); }
    return tensor_sum(total);
}

static void reduced_wide(void) {
    static const int64_t sizes[] = {3000, 65535, 65536, 65537, 131072};
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64};
    for (int i = 0; i < 10; i++) {
        tensor_t *x = tensor_to(tensor_rand(sizes[i % 5]), dtypes[i / 5]);
        double eager = tensor_item(wide_step(x));
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t inner = tensor_scope_begin();
        tensor_t *sum = tensor_scope_return(inner, wide_step(x));
        tensor_graph_t *g = tensor_capture_end();
        tensor_fill_(sum, 0);
        CHECK(tensor_graph_replay(g) == 0);
        CHECK_MSG(tensor_item(sum) == eager, "%d %s: %.17g, eager %.17g", (int)sizes[i % 5],
                  tensor_dtype_name(dtypes[i / 5]), tensor_item(sum), eager);
        CHECK(tensor_graph_free(g) == 0);
    }
}

// A group does not reach across elements: a read of others than those that it writes waits for all of them.
static void shifted(void) {
    enum { N = 40000 };
    tensor_t *a = tensor_arange(0, N, 1, TENSOR_F32), *b;
    for (int kind = 0; kind < 3; kind++) {
        tensor_t *want = NULL;
        tensor_graph_t *g = NULL;
        b = tensor_clone(a);
        for (int captured = 0; captured < 2; captured++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_copy_(b, a);
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            if (kind == 0) {                    // the same elements, one place on
                tensor_mul_scalar_(b, 2);
                tensor_add_(tensor_narrow(b, 0, 0, N - 1), tensor_neg(tensor_narrow(b, 0, 1, N - 1)));
            } else if (kind == 1) {             // columns for rows
                tensor_mul_scalar_(b, 3);
                tensor_t *turned = tensor_transpose(tensor_view(b, 200, 200), 0, 1);
                tensor_add_(tensor_view(b, 200, 200), tensor_mul_scalar(turned, 2));
            } else {                            // one element, spread
                tensor_add_scalar_(b, 1);
                tensor_copy_(b, tensor_mul(b, tensor_select(b, 0, 7)));
            }
            if (captured) {
                g = tensor_capture_end();
                CHECK_MSG(g != NULL, "%s", tensor_error_text());
                tensor_copy_(b, a);
                CHECK(tensor_graph_replay(g) == 0);
                CHECK_MSG(tensor_equal(b, want), "kind %d", kind);
                CHECK(tensor_graph_free(g) == 0);
            } else {
                want = tensor_keep(tensor_clone(b));
            }
            tensor_scope_end(scope);
        }
        tensor_free(want);
    }
}

// Products of bf16 are other calls where the processor multiplies it.
static void products_of_bf16(void) {
    tensor_t *x = tensor_to(tensor_randn(8, 8), TENSOR_BF16);
    CHECK(tensor_set_isa("scalar") == 0 && tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_matmul(x, x);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_replay(g) == 0);
    if (tensor_set_isa("avx512bf16") == 0) {
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_replay: the step has bf16");
    }
    tensor_clear_error();
    CHECK(tensor_set_isa("scalar") == 0 && tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
    tensor_set_isa(NULL);
}

// Every rule of an optimizer, with numbers that depend on its step.
static int rule;
static void adafactor_groups(job_t *j) {
    tensor_t *weight = nn_get(j->net, "2.weight");
    j->opt = nn_adafactor(j->net);
    nn_to(j->net, TENSOR_F64);
    j->x = tensor_to(j->x, TENSOR_F64);
    j->y = tensor_to(j->y, TENSOR_F64);
    nn_optimizer_group(j->opt, &weight, 1, .lr = 0.02);
}
static void one_rule(job_t *j) {
    mlp(j);
    nn_optimizer_free(j->opt);
    switch (rule) {
    case 0: j->opt = nn_adagrad(j->net, .lr = 0.05, .lr_decay = 0.1); break;
    case 1: j->opt = nn_adadelta(j->net); break;
    case 2: j->opt = nn_rmsprop(j->net, .lr = 0.01, .momentum = 0.9, .centered = 1); break;
    case 3: j->opt = nn_adamax(j->net, .lr = 0.01); break;
    case 4: j->opt = nn_radam(j->net, .lr = 0.01); break;
    case 5: j->opt = nn_asgd(j->net, .lr = 0.01); break;
    case 6: j->opt = nn_rprop(j->net); break;
    case 7: j->opt = nn_adafactor(j->net, .lr = 0.5, .d = 2, .weight_decay = 0.01); break;
    case 8: j->opt = nn_adafactor(j->net, .beta2_decay = -0.5, .maximize = 1); break;
    case 9: adafactor_groups(j); break;
    default: j->opt = nn_adam(j->net, .lr = 0.01, .amsgrad = 1, .weight_decay = 0.1); break;
    }
}
// Adafactor with a scaler, which skips steps: its factor grows until gradients overflow.
static void scaled_adafactor(job_t *j) {
    mlp(j);
    nn_optimizer_free(j->opt);
    j->opt = nn_adafactor(j->net, .lr = 0.5);
    j->scaler = nn_grad_scaler(65536, 1);
    j->step = scaled_step;
}

// Batch norm whose running statistics are the mean over all batches: the share of one is 1 / their number.
static void cumulative(job_t *j) {
    j->net = nn_sequential(nn_conv2d(3, 8, 3), nn_batch_norm2d(8, .cumulative = 1), nn_relu(), nn_flatten(),
                           nn_linear(8 * 10 * 10, 7), nn_batch_norm1d(7, .cumulative = 1), nn_linear(7, 5));
    j->opt = nn_sgd(j->net, .lr = 0.05);
    j->x = tensor_randn(ITEMS, 3, 12, 12);
    j->y = tensor_randint(0, 5, ITEMS);
    j->step = labelled_step;
}
static void cumulative_f64(job_t *j) {
    cumulative(j);
    nn_to(j->net, TENSOR_F64);
    j->x = tensor_to(j->x, TENSOR_F64);
}

static void rules(void) {
    for (rule = 0; rule <= 10; rule++) {
        char name[20];
        snprintf(name, sizeof name, "rule %d", rule);
        compare(name, one_rule);
    }
    compare("Adafactor with a scaler", scaled_adafactor);
    compare("cumulative batch norm", cumulative);
    compare("cumulative batch norm, f64", cumulative_f64);
}

// Bags of which later steps have other indices: the rows of these, or those that offsets name, which are
// other ones too; some bags are empty.
enum { BAGS = 4 };
typedef struct bags_t { tensor_t *w, *index, *offsets, *scale; int mode, last; } bags_t;
static tensor_t *bags_of(const bags_t *b, tensor_t *w) {
    return tensor_embedding_bag(b->index, w, b->offsets, .mode = (tensor_bag_mode_t)b->mode, .padding_idx = 2,
                                .include_last_offset = b->last, .per_sample_weights = b->scale);
}
static void bags_data(bags_t *b, int turn) {
    static const int64_t at[][BAGS + 1] = {{0, 3, 3, 7, 12}, {0, 0, 5, 11, 12}, {0, 1, 2, 3, 12},
                                           {0, 12, 12, 12, 12}};
    tensor_scope_t scope = tensor_scope_begin();
    tensor_copy_(b->index, tensor_randint_like(b->index, 0, 9));
    if (b->offsets) {
        tensor_copy_(b->offsets, tensor_from(at[turn], TENSOR_I64, BAGS + b->last));
    }
    tensor_scope_end(scope);
}
static void bags_follow(int mode, int offsets, int scaled, int last) {
    bags_t b;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(31);
    memset(&b, 0, sizeof b);
    b.mode = mode;
    b.last = last;
    b.w = tensor_requires_grad_(tensor_round(tensor_mul_scalar(tensor_randn(9, 5), 2)), 1);
    b.index = offsets ? tensor_zeros_of(TENSOR_I64, 12) : tensor_zeros_of(TENSOR_I64, 4, 3);
    if (offsets) { b.offsets = tensor_zeros_of(offsets == 1 ? TENSOR_I64 : TENSOR_I32, BAGS + last); }
    if (scaled) { b.scale = tensor_randn_of(TENSOR_F32, 12); }
    bags_data(&b, 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = bags_of(&b, b.w);
    tensor_backward(tensor_sum(tensor_square(y)));
    tensor_graph_t *g = tensor_capture_end();
    CHECK_MSG(g != NULL, "mode %d: %s", mode, tensor_error_text());
    for (int i = 0; i < 4 && g; i++) {
        if (i) {
            bags_data(&b, i);
            CHECK(tensor_graph_replay(g) == 0);
        }
        tensor_t *v = tensor_requires_grad_(tensor_clone(tensor_detach(b.w)), 1), *z = bags_of(&b, v);
        tensor_backward(tensor_sum(tensor_square(z)));
        CHECK_MSG(test_same_bits(tensor_detach(y), tensor_detach(z)), "mode %d, turn %d", mode, i);
        CHECK_MSG(test_same_bits(tensor_grad(b.w), tensor_grad(v)), "gradient, mode %d, turn %d", mode, i);
    }
    if (g && offsets) {                 // a replay notices offsets that are wrong, before it writes
        tensor_t *second = tensor_narrow(b.offsets, 0, 1, 1), *before = tensor_clone(tensor_grad(b.w));
        tensor_fill_(second, 13);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, "embedding_bag: offsets 0..13 of bag 0 are not in order in 0..12");
        CHECK(test_same_bits(tensor_grad(b.w), before));
    }
    tensor_graph_free(g);
    tensor_scope_end(scope);
}
static void bags(void) {
    for (int mode = TENSOR_BAG_MEAN; mode <= TENSOR_BAG_MAX; mode++) {
        for (int offsets = 0; offsets < 3; offsets++) {
            bags_follow(mode, offsets, offsets && mode == TENSOR_BAG_SUM, offsets == 2);
        }
    }
}

// A NaN in a bag is its largest element, and the first one of equal elements has the gradient.
static void bags_of_nan(void) {
    static const float rows[6][2] = {{1, NAN}, {3, 2}, {3, NAN}, {-INFINITY, 0}, {0, -0.0f}, {-0.0f, 0}};
    static const int64_t each[7] = {0, 1, 2, 3, 4, 5, 4}, at[4] = {0, 3, 4, 4};
    tensor_t *index = tensor_from(each, TENSOR_I64, 7), *offsets = tensor_from(at, TENSOR_I64, 4);
    tensor_t *w[2], *y[2];
    for (int captured = 0; captured < 2; captured++) {
        w[captured] = tensor_requires_grad_(tensor_from(rows, TENSOR_F32, 6, 2), 1);
        if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        y[captured] = tensor_embedding_bag(index, w[captured], offsets, .mode = TENSOR_BAG_MAX);
        tensor_backward(tensor_sum(y[captured]));
        if (captured) { CHECK(tensor_graph_free(tensor_capture_end()) == 0); }
    }
    CHECK(test_same_bits(tensor_detach(y[0]), tensor_detach(y[1])));
    CHECK(test_same_bits(tensor_grad(w[0]), tensor_grad(w[1])));
}

// A checkpoint that is older than the capture: each replay makes its dropout's mask again, also where the
// generator was set back to where the forward began, and where fn has a pass of its own.
static tensor_t *penalized(tensor_t *const *in, int n, void *user) {
    (void)n;
    tensor_t *x = in[0], *y = tensor_dropout(tensor_mul(x, x), 0.5, 1), *sum = tensor_sum(y), *g;
    if (!user) { return y; }
    tensor_autograd_grad(&sum, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH | TENSOR_RETAIN_GRAPH);
    return tensor_add(y, tensor_mul(tensor_dropout(x, 0.5, 1), g));
}
static void older_checkpoint(void) {
    for (int kind = 0; kind < 4; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_manual_seed(23);
        tensor_t *x = tensor_requires_grad_(tensor_randn(200), 1), *grads[3];
        tensor_generator_t back = tensor_get_generator();
        for (int captured = 0; captured < 2; captured++) {
            tensor_set_grad(x, NULL);
            tensor_set_generator(back);
            tensor_t *y = tensor_checkpoint(penalized, kind & 1 ? x : NULL, &x, 1);
            if (kind & 2) { tensor_set_generator(back); }
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            tensor_backward(tensor_sum(tensor_mul(y, y)));
            tensor_graph_t *g = captured ? tensor_capture_end() : NULL;
            grads[captured] = tensor_clone(tensor_grad(x));
            if (!captured) { continue; }
            tensor_manual_seed(99);
            CHECK(tensor_graph_replay(g) == 0);
            grads[2] = tensor_clone(tensor_grad(x));
            CHECK(tensor_graph_free(g) == 0);
        }
        CHECK_MSG(test_same_bits(grads[0], grads[1]), "kind %d: the capture differs", kind);
        CHECK_MSG(test_same_bits(grads[0], grads[2]), "kind %d: the replay drew another mask", kind);
        tensor_scope_end(scope);
    }
}

// ---- what cannot be captured

// The statements in a capture fail with a text that has `part`; the capture gives nothing, the next works.
#define NOT_CAPTURED(part, ...)                                                                              \
    {                                                                                                        \
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);                                                        \
        tensor_t *before_ = tensor_relu(x);                                                                  \
        __VA_ARGS__;                                                                                         \
        CHECK(before_ != NULL && tensor_capture_end() == NULL);                                              \
        CHECK_MSG(strstr(tensor_error_text(), "capture.c:") != NULL, "no line: %s", tensor_error_text());    \
        CHECK(tensor_error_code() == TENSOR_ERR_OWNER || tensor_error_code() == TENSOR_ERR_UNSUPPORTED);     \
        CHECK_ERROR(tensor_error_code(), part);                                                              \
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);                                                        \
        tensor_relu(x);                                                                                      \
        tensor_graph_t *good_ = tensor_capture_end();                                                        \
        CHECK(tensor_graph_replay(good_) == 0 && tensor_graph_free(good_) == 0);                             \
    }

static tensor_t *closure(void *user) {
    job_t *j = (job_t *)user;
    nn_zero_grad(j->opt);
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    tensor_backward(loss);
    return loss;
}

static void refused(void) {
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    tensor_t *x = tensor_from(data, TENSOR_F32, 8);
    job_t j;
    memset(&j, 0, sizeof j);
    mlp(&j);
    NOT_CAPTURED("item: the host reads elements", tensor_item(tensor_sum(x)))
    NOT_CAPTURED("item: the host reads elements", { if (tensor_item(tensor_sum(x)) > 0) { tensor_relu(x); } })
    NOT_CAPTURED("equal: the host reads elements", tensor_equal(x, x))
    NOT_CAPTURED("data: the host reads elements", tensor_data(x))
    NOT_CAPTURED("data_mut: the host", tensor_data_mut(x))
    NOT_CAPTURED("from: the host writes elements", tensor_from(data, TENSOR_F32, 8))
    NOT_CAPTURED("nonzero: the shape of its result", tensor_nonzero(x))
    NOT_CAPTURED("the shape of its result", tensor_masked_select(x, tensor_gt_scalar(x, 3)))
    NOT_CAPTURED("manual_seed: not in a capture", tensor_manual_seed(1))
    NOT_CAPTURED("set_generator: not in a capture", tensor_set_generator(tensor_get_generator()))
    nn_module_t *net = nn_lstm(3, 2);
    int64_t ends[2] = {2, 1};
    tensor_t *lengths = tensor_from(ends, TENSOR_I64, 2), *lines = tensor_ones(2, 2, 3);
    NOT_CAPTURED("recurrent_forward: lengths [2] are read by the host",
                 nn_recurrent_forward(net, lines, .lengths = lengths))
    nn_free(net);
    NOT_CAPTURED("set_lr: not in a capture", nn_set_lr(j.opt, 0.1))
    NOT_CAPTURED("set_group_lr: not in a capture", nn_set_group_lr(j.opt, 0, 0.1))
    NOT_CAPTURED("set_momentum: not in a capture", nn_set_momentum(j.opt, 0.8))
    nn_module_t *average = nn_clone(j.net);
    NOT_CAPTURED("swa_update: not in a capture", nn_swa_update(average, j.net, 3))
    NOT_CAPTURED("ema_update: not in a capture", nn_ema_update(average, j.net, 0, 0.5))
    nn_free(average);
    NOT_CAPTURED("capture_begin: another step is being captured", tensor_capture_begin(TENSOR_CPU))
    NOT_CAPTURED("take a step before the capture", mlp_step(&j))
    tensor_scope_t inner = tensor_scope_begin();
    tensor_t *keeps = tensor_keep(tensor_ones(5)), *given = tensor_ones(3);
    tensor_scope_return(inner, given);
    NOT_CAPTURED("set: the handle has a tensor older than the capture", tensor_neg(keeps);
                 tensor_set(&keeps, tensor_zeros(5)))
    NOT_CAPTURED("of 12 bytes that exp uses at capture.c:", tensor_exp(given); tensor_free(given))
    tensor_free(keeps);

    // A replay in a capture; an error that is cleared.
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_relu(x);
    tensor_graph_t *g = tensor_capture_end();
    NOT_CAPTURED("graph_replay: not in a capture", tensor_graph_replay(g))
    NOT_CAPTURED("capture_end: the step did what cannot be captured", tensor_item(x);
                 CHECK_ERROR(TENSOR_ERR_SHAPE, NULL); tensor_item(tensor_sum(x)); tensor_clear_error())

    // Work that cannot be captured, with its error cleared: still no graph, which would lack it.
#define CLEARED(text, ...)                                                                                   \
    NOT_CAPTURED("capture_end: the step did what cannot be captured", __VA_ARGS__;                           \
                 CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, text))
    tensor_t *scaler = nn_grad_scaler(4, 2);
    CLEARED("step: take a step before the capture", mlp_step(&j))
    CLEARED("scaler_unscale: take a step before the capture", nn_scaler_unscale(scaler, j.opt))
    CLEARED("graph_replay: not in a capture", tensor_graph_replay(g))
    CLEARED("manual_seed: not in a capture", tensor_manual_seed(1))
    CLEARED("capture_begin: another step", tensor_capture_begin(TENSOR_CPU))
    tensor_free(scaler);

    // An error of the step is the step's own.
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    CHECK(tensor_is_poison(tensor_matmul(x, tensor_ones(3))));
    CHECK(tensor_capture_end() == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "matmul: ");

    // L-BFGS decides by numbers that it reads.
    nn_optimizer_t *lbfgs = nn_lbfgs(j.net);
    NOT_CAPTURED("the host reads elements", nn_step_closure(lbfgs, closure, &j))
    nn_optimizer_free(lbfgs);

    // A loader hands out batches of the host.
    nn_dataset_t set = nn_tensor_dataset(tensor_randn(6, 8), tensor_randn(6, 4));
    nn_data_loader_t *loader = nn_data_loader(set, .batch_size = 2);
    nn_batch_t batch;
    NOT_CAPTURED("next: the host", nn_next(loader, &batch))
    nn_data_loader_free(loader);

    CHECK(tensor_capture_begin(TENSOR_CUDA) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "capture_begin: no CUDA device 0; the CUDA backend is not started");
    CHECK(tensor_capture_end() == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "capture_end: this thread captures nothing");
    tensor_set_detect_anomaly(1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "capture_begin: detect_anomaly");
    tensor_set_detect_anomaly(0);
    CHECK(tensor_graph_free(g) == 0 && tensor_graph_free(NULL) == 0);
    CHECK(tensor_graph_free(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_free: the graph was freed");
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_replay: the graph was freed");
    CHECK(tensor_graph_replay(NULL) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "graph_replay: the graph is NULL");
    nn_optimizer_free(j.opt);
    nn_free(j.net);
}

// ---- what a graph no longer fits

static void unfit(void) {
    tensor_t *x = tensor_ones(4), *w = tensor_requires_grad_(tensor_ones(4), 1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_mul(x, w), *loss = tensor_sum(tensor_square(y));
    tensor_backward(loss);
    tensor_graph_t *g = tensor_capture_end(), *h;
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_exp(x);
    h = tensor_capture_end();                   // two graphs of one input

    // Inputs are read anew; the gradient is linked again.
    tensor_fill_(x, 2);
    tensor_set_grad(w, NULL);
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(tensor_item(loss) == 16 && tensor_item(tensor_select(tensor_grad(w), 0, 1)) == 8);
    CHECK(tensor_item(tensor_select(y, 0, 3)) == 2);

    // A change in place counts as one.
    tensor_t *z = tensor_mul(w, w);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_add_scalar_(tensor_detach(w), 1);
    tensor_graph_t *k = tensor_capture_end();
    CHECK(tensor_graph_replay(k) == 0);
    CHECK(tensor_item(tensor_select(tensor_detach(w), 0, 0)) == 3);
    CHECK(tensor_backward(tensor_sum(z)) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "changed in place by add at capture.c:");
    CHECK(tensor_graph_free(k) == 0);

    CHECK(tensor_graph_free(g) == 0 && tensor_graph_replay(h) == 0);
    tensor_free(x);
    CHECK(tensor_graph_replay(h) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_replay: a tensor of 16 bytes that exp uses at capture.c:");
    CHECK(tensor_graph_free(h) == 0);
    CHECK(tensor_item(loss) == 16);             // an output outlives its graph
}

// A label out of range stops a replay before the optimizer.
static void stopped(void) {
    job_t j;
    memset(&j, 0, sizeof j);
    cnn(&j);
    tensor_scope_t scope = tensor_scope_begin();
    labelled_step(&j);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    labelled_step(&j);
    tensor_graph_t *g = tensor_capture_end();
    tensor_scope_end(scope);
    tensor_t *w = tensor_clone(tensor_detach(nn_get(j.net, "0.weight")));
    tensor_fill_(j.y, 5);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
    char place[60];
    snprintf(place, sizeof place, "(captured at capture.c:%d) at capture.c:%d", labelled_line, __LINE__ - 2);
    CHECK_ERROR(TENSOR_ERR_INDEX, place);
    CHECK(tensor_equal(w, tensor_detach(nn_get(j.net, "0.weight"))));
    tensor_fill_(j.y, 4);
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(!tensor_equal(w, tensor_detach(nn_get(j.net, "0.weight"))));
    nn_optimizer_free(j.opt);
    CHECK(tensor_graph_replay(g) != 0);
    tensor_clear_error();
    nn_free(j.net);
    CHECK(tensor_graph_free(g) == 0);
}

// What a step has changed before the call that stops it is changed, and nothing of what comes behind it.
static void stopped_between(void) {
    for (int kind = 0; kind < 3; kind++) {
        tensor_t *before = tensor_ones(8), *behind = tensor_ones(8), *x = tensor_ones(4, 4), *i;
        i = tensor_zeros_of(TENSOR_I64, 4);
        tensor_t *whole = tensor_ones_of(TENSOR_I64, 4);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_mul_scalar_(before, 2);
        if (kind == 0) { tensor_cross_entropy(x, i); }
        if (kind == 1) { tensor_index_select(x, 0, i); }
        if (kind == 2) { tensor_floor_divide(i, whole); }
        tensor_add_scalar_(behind, 1);
        tensor_scope_end(scope);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0);
        CHECK(tensor_item(tensor_max(before)) == 4 && tensor_item(tensor_max(behind)) == 3);
        tensor_fill_(i, 7);
        tensor_fill_(whole, 0);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
        tensor_clear_error();
        CHECK(tensor_item(tensor_max(before)) == 8 && tensor_item(tensor_max(behind)) == 3);
        CHECK(tensor_graph_free(g) == 0);
    }
}

// A plan that is made again takes the room that it took at first, also for a result of a group's last call
// that nobody reads.
static void planned_again(void) {
    tensor_t *x = tensor_requires_grad_(tensor_rand(40, 50), 1);
    tensor_t *w = tensor_requires_grad_(tensor_rand(40, 50), 1);
    tensor_t *given = tensor_ones(40, 50);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *y = tensor_div(x, w), *from = tensor_mul_scalar(given, 2), *in[2], *out[2];
    in[0] = x;
    in[1] = w;
    CHECK(tensor_autograd_grad(&y, 1, &from, in, 2, out, 0) == 0);
    tensor_t *gx = tensor_scope_return(scope, out[0]);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    uint64_t room = tensor_graph_info(g).room_bytes;
    CHECK(tensor_graph_info(g).block_groups == 1 && room > 0);
    for (int threads = 3; threads > 0; threads -= 2) {
        CHECK(tensor_set_num_threads(threads) == 0);
        CHECK(tensor_graph_replay(g) == 0);
        CHECK(tensor_graph_info(g).room_bytes == room * (uint64_t)threads);
        CHECK(test_same_bits(gx, tensor_div(tensor_full(2, 40, 50), tensor_detach(w))));
    }
    CHECK(tensor_graph_free(g) == 0);
}

// ---- the view of a graph

static void view(void) {
    tensor_t *x = tensor_ones(3, 4), *w = tensor_ones(4, 5), *b;
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    b = tensor_scalar(2, TENSOR_F32);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *y = tensor_relu(tensor_mul_scalar(tensor_add(tensor_matmul(x, w), b), 3));
    y = tensor_scope_return(scope, y);
    tensor_graph_t *g = tensor_capture_end();
    tensor_graph_info_t info = tensor_graph_info(g);
    CHECK(info.calls == 5 && info.input_bytes == 48 + 80 && info.output_bytes == 60 + 4);
    CHECK(info.temporary_bytes == 3 * 60 && info.packed_bytes == 64);
    CHECK(info.block_groups == 1 && info.room_bytes > 0);
    static const char *const ops[] = {"fill", "matmul", "add", "mul", "relu"};
    for (int64_t i = 0; i < info.calls; i++) {
        tensor_graph_call_t c = tensor_graph_call(g, i);
        CHECK_MSG(strncmp(c.op, ops[i], 3) == 0, "call %d is %s", (int)i, c.op);
        CHECK(c.site != NULL && strstr(c.site, "capture.c:") != NULL);
        CHECK(c.outputs == 1 && c.block_group == (i < 2 ? -1 : 0));
    }
    tensor_graph_call_t c = tensor_graph_call(g, 1);
    CHECK(tensor_graph_flops(&c) == 2 * 3 * 4 * 5 && tensor_graph_flops(NULL) == 0);
    tensor_graph_operand_t o = tensor_graph_operand(&c, 0);
    CHECK(o.place == TENSOR_GRAPH_INPUT && o.dtype == TENSOR_F32);
    CHECK(o.ndim == 2 && o.dims[1] == 4 && o.bytes == 48);
    CHECK(o.memory == tensor_graph_memory(x) && tensor_graph_memory(x) != tensor_graph_memory(w));
    CHECK(o.data == tensor_data(x) && o.at == 0 && o.strides[0] == 4 && o.strides[1] == 1 && !o.changes);
    o = tensor_graph_operand(&c, 2);
    CHECK(o.place == TENSOR_GRAPH_TEMPORARY && o.dims[1] == 5 && o.bytes == 60 && o.offset % 64 == 0);
    const void *product = o.memory;
    CHECK(o.changes == 1 && product != NULL && product != tensor_graph_operand(&c, 0).memory);
    c = tensor_graph_call(g, 2);
    CHECK(tensor_graph_operand(&c, 0).memory == product && !tensor_graph_operand(&c, 0).changes);
    c = tensor_graph_call(g, 3);
    o = tensor_graph_operand(&c, 1);
    CHECK(o.place == TENSOR_GRAPH_NUMBER && o.memory == NULL && o.dtype == TENSOR_F64);
    CHECK(*(const double *)o.data == 3);
    o = tensor_graph_operand(&c, 0);
    CHECK(o.place == TENSOR_GRAPH_BLOCK && o.dims[1] == 5 && o.bytes == 60 && o.offset == 0);
    CHECK(tensor_graph_operand(&c, 3).place == TENSOR_GRAPH_NONE);
    c = tensor_graph_call(g, 4);
    CHECK(tensor_graph_operand(&c, 1).place == TENSOR_GRAPH_OUTPUT);
    CHECK(tensor_graph_call(g, 5).op == NULL && tensor_graph_call(g, -1).op == NULL);
    CHECK(tensor_graph_call(g, 5).kernel == NULL && c.kernel != NULL);
    CHECK(c.random_stream == -1 && info.random_streams == 0);
    CHECK(tensor_graph_flops(&c) == 0);
    c = tensor_graph_call(g, 5);
    CHECK(tensor_graph_flops(&c) == 0);
    CHECK(tensor_graph_print(g) == 0);
    tensor_fill_(w, 2);
    CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_max(y)) == 30);
    CHECK(tensor_graph_free(g) == 0);
    CHECK(tensor_graph_operand(&c, 1).place == TENSOR_GRAPH_NONE && !tensor_graph_operand(&c, 1).data);
}

// The operations of all calls of a graph whose name begins so.
static double operations(const tensor_graph_t *g, const char *name) {
    double sum = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        tensor_graph_call_t c = tensor_graph_call(g, i);
        if (strncmp(c.op, name, strlen(name)) == 0) { sum += tensor_graph_flops(&c); }
    }
    return sum;
}

// Each kind of product, forward and backward, by its shapes.
static void operations_are_counted(void) {
    tensor_t *x = tensor_randn(2, 3, 10, 12), *wide = tensor_randn(2, 5, 8);
    tensor_t *sequence = tensor_randn(4, 2, 3);
    nn_module_t *m = nn_sequential(nn_conv2d(3, 6, 3), nn_conv_transpose2d(6, 4, 2), nn_flatten(),
                                   nn_linear(4 * 9 * 11, 7));
    nn_module_t *lstm = nn_lstm(3, 5);
    tensor_requires_grad_(x, 1);
    tensor_requires_grad_(wide, 1);
    tensor_requires_grad_(sequence, 1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *y = tensor_sum(nn_forward(m, x)), *keys = tensor_cat(1, wide, wide);
    tensor_t *z = tensor_sum(tensor_scaled_dot_product_attention(wide, keys, keys));
    tensor_backward(tensor_add(tensor_add(y, z), tensor_sum(nn_lstm_forward(lstm, sequence, NULL, NULL))));
    tensor_scope_end(scope);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_OK();
    // A convolution's gradient by its input is a transposed one, and the other way round.
    double conv = 2.0 * 2 * 6 * 8 * 10 * (3 * 9), transposed = 2.0 * 2 * 6 * 8 * 10 * (4 * 4);
    CHECK(operations(g, "conv2d") == conv + transposed);
    CHECK(operations(g, "conv_transpose2d") == transposed + conv);
    CHECK(operations(g, "conv_weight") == conv + transposed);
    CHECK(operations(g, "linear") == 2.0 * 4 * 2 * 3 * 20);         // the other one's result is not read
    CHECK(operations(g, "matmul") > 2 * 2.0 * 2 * 396 * 7);
    CHECK(operations(g, "scaled_dot_product_attention") == 2.0 * 2 * 5 * 10 * (2 * 8 + 5 * 8));
    CHECK(operations(g, "recurrent") == 2 * 2.0 * 4 * 2 * 20 * 5);
    CHECK(operations(g, "sum") == 0 && operations(g, "cat") == 0);
    CHECK(tensor_graph_print(g) == 0);
    CHECK(tensor_graph_free(g) == 0 && nn_free(m) == 0 && nn_free(lstm) == 0);
}

// A conversion has the row of a clone, but is listed as what it does.
static void conversions_are_named(void) {
    tensor_t *x = tensor_randn(3, 4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_clone(x);
    tensor_to(x, TENSOR_F64);
    tensor_copy_(tensor_zeros_of(TENSOR_F64, 3, 4), x);
    tensor_graph_t *g = tensor_capture_end();
    int converted = 0, copied = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        converted += !strcmp(tensor_graph_call(g, i).op, "to");
        copied += !strcmp(tensor_graph_call(g, i).op, "clone");
    }
    CHECK(converted == 1 && copied == 2);           // tensor_clone, tensor_copy_
    CHECK(tensor_graph_free(g) == 0);
}

// The block is as large as what is alive at one time: a temporary goes where a later one leaves room for it.
static void packed(void) {
    enum { UNIT = 1024 };
    tensor_t *one = tensor_randn(UNIT), *two = tensor_randn(2 * UNIT), *three = tensor_randn(3 * UNIT);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *a = tensor_softmax(one, 0), *b = tensor_softmax(two, 0);
    tensor_t *of_b = tensor_max(b);
    tensor_free(b);
    tensor_t *c = tensor_softmax(three, 0), *of_a = tensor_max(a);
    tensor_free(a);
    tensor_t *d = tensor_log_softmax(two, 0), *of_c = tensor_max(c), *of_d = tensor_max(d);
    tensor_free(c);
    tensor_free(d);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_info(g).packed_bytes == 5 * UNIT * sizeof(float));
    tensor_t *results[4];
    double was[4];
    results[0] = of_a, results[1] = of_b, results[2] = of_c, results[3] = of_d;
    for (int i = 0; i < 4; i++) { was[i] = tensor_item(results[i]); }
    CHECK(tensor_graph_replay(g) == 0);
    for (int i = 0; i < 4; i++) { CHECK(tensor_item(results[i]) == was[i]); }
    CHECK(tensor_graph_free(g) == 0);
}

// What a group makes of a product lies where the product did, but not where a later call reads the product.
static tensor_t *after_product(int reads_later, tensor_t *x, tensor_t *w, tensor_t *b, tensor_t *v) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *p = tensor_matmul(x, w), *h = tensor_relu(tensor_add(p, b));
    tensor_t *u = reads_later ? tensor_tanh(tensor_mul(h, p)) : NULL, *y = tensor_matmul(h, v);
    if (u) { y = tensor_add(y, tensor_matmul(u, v)); }
    return tensor_scope_return(scope, y);
}
static void in_place_of_product(void) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_BF16};
    static const int64_t rows[] = {1, 70, 257};
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const tensor_dtype_t dtype = dtypes[i / 6];
        const int64_t m = rows[i / 2 % 3], n = 301;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_to(tensor_randn(m, 20), dtype), *w = tensor_to(tensor_randn(20, n), dtype);
        tensor_t *b = tensor_to(tensor_randn(n), dtype), *v = tensor_to(tensor_randn(n, 3), dtype);
        tensor_t *was = after_product(i % 2, x, w, b, v);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = after_product(i % 2, x, w, b, v);
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%s", tensor_error_text());
        const uint64_t bytes = (uint64_t)(m * n) * tensor_dtype_size(dtype);
        const uint64_t packed = tensor_graph_info(g).packed_bytes;
        if (i % 2 == 0) { CHECK_MSG(packed < bytes + 64, "%d: %d bytes", i, (int)packed); }
        if (i % 2 == 1) { CHECK_MSG(packed >= 2 * bytes && packed < 3 * bytes, "%d: %d", i, (int)packed); }
        for (int turn = 0; turn < 4; turn++) {
            CHECK(tensor_set_num_threads(1 + turn / 2) == 0);
            if (turn % 2) {
                while (tensor_graph_resume(g, 1) == 0) { }
            } else {
                CHECK(tensor_graph_replay(g) == 0);
            }
            CHECK_MSG(test_same_bits(y, was), "%d, turn %d", i, turn);
            tensor_fill_(y, 0);
        }
        CHECK(tensor_set_num_threads(1) == 0 && tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
}

// A parameter of 64 KB and more is stepped when its gradient is whole and nothing reads the parameter any
// more, but not before a call that may raise an error; clipping needs all gradients, and one that stays is an
// output.
enum { EARLY, CLIPPED, CHECKED, STAYS, EARLIES };
static tensor_t *early_way(job_t *j, int way, tensor_t *at) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    if (way == STAYS) { nn_zero_grad(j->opt); }
    tensor_backward(loss);
    if (way == CLIPPED) { nn_clip_grad_norm(j->opt, 0.5); }
    if (way == CHECKED) { tensor_index_select(j->x, 1, at); }
    nn_step(j->opt);
    if (way != STAYS) { nn_zero_grad(j->opt); }
    return tensor_scope_return(scope, tensor_detach(loss));
}
static void stepped_early(void) {
    for (int way = 0; way < EARLIES; way++) {
        job_t j;
        memset(&j, 0, sizeof j);
        early(&j);
        tensor_t *at = tensor_zeros_of(TENSOR_I64, 3);
        early_way(&j, way, at);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        early_way(&j, way, at);
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%s", tensor_error_text());
        int64_t steps = 0, first_step = -1, last_back = -1, checked = -1;
        for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
            const char *op = tensor_graph_call(g, i).op;
            if (strcmp(op, "step") == 0) {
                steps++;
                if (first_step < 0) { first_step = i; }
            }
            if (strcmp(op, "index_select") == 0) { checked = i; }
            if (strcmp(op, "matmul") == 0) { last_back = i; }
        }
        CHECK_MSG(steps == (way == EARLY ? 3 : 2), "way %d: %d steps", way, (int)steps);
        CHECK((first_step < last_back) == (way == EARLY) && first_step > checked);
        uint64_t bytes = tensor_graph_info(g).packed_bytes;
        if (way == EARLY) { CHECK_MSG(bytes < 150000, "%d bytes", (int)bytes); }
        if (way == CLIPPED) { CHECK(bytes > 210000); }
        if (way == CHECKED) {
            tensor_t *w = tensor_clone(tensor_detach(nn_get(j.net, "2.weight")));
            CHECK(tensor_graph_replay(g) == 0);
            CHECK(!tensor_equal(w, tensor_detach(nn_get(j.net, "2.weight"))));
            tensor_copy_(w, tensor_detach(nn_get(j.net, "2.weight")));
            tensor_fill_(at, 200);
            CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
            tensor_clear_error();
            CHECK(tensor_equal(w, tensor_detach(nn_get(j.net, "2.weight"))));
        }
        CHECK(tensor_graph_free(g) == 0);
        nn_optimizer_free(j.opt);
        nn_free(j.net);
    }
}

// Calls whose results nobody reads are left out, but for those that may raise an error; the numbers of later
// random calls are those of the step.
static int n_calls(tensor_graph_t *g, const char *op) {
    int n = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) { n += !strcmp(tensor_graph_call(g, i).op, op); }
    return n;
}
static tensor_t *unread_step(tensor_t *x, tensor_t *w, tensor_t *v, tensor_t *at, tensor_t *state) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_matmul(tensor_exp(x), x);                            // nobody reads it
    tensor_cos(tensor_dropout(x, 0.5, 1));
    tensor_add_(tensor_sin(x), x);                              // nor what changes in place
    tensor_index_select(x, 0, at);                              // an index may be out of range
    tensor_max_pool2d(tensor_reshape(x, 1, 1, tensor_size(x, 0), -1), 2);
    tensor_linalg_qr(x, NULL);
    tensor_linalg_solve(x, w);                                  // a matrix may be singular
    tensor_rand(3);
    tensor_t *u = tensor_requires_grad_(tensor_clone(x), 1);    // its gradient goes with it
    tensor_backward(tensor_cross_entropy(tensor_embedding(at, u), at));
    tensor_copy_(state, tensor_tanh(x));                        // older than the capture
    tensor_t *empty = tensor_empty_like(x);
    tensor_mul_(state, tensor_fill_(tensor_zero_(empty), 2));
    tensor_t *y = tensor_mul(tensor_dropout(x, 0.5, 1), tensor_mul(w, v));
    tensor_set_grad(w, NULL);
    tensor_set_grad(v, NULL);
    tensor_backward(tensor_sum(tensor_square(y)));              // the sum is not read, nor v's gradient
    tensor_set_grad(v, NULL);
    return tensor_scope_return(scope, y);
}

// The gradient of a matrix that is multiplied by a column: a column times the row w, which the optimizer may
// change as well.
enum { MADE, KEPT, W_CHANGES, W_IS_STEPPED, W_CHANGES_LATER, MADES };
typedef struct product_t {
    tensor_t *m, *w;
    nn_optimizer_t *opt;
} product_t;

static void product_step(product_t *p, int way) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_backward(tensor_sum(tensor_square(tensor_matmul(p->m, p->w))));
    tensor_t *w = tensor_detach(p->w);
    if (way == W_CHANGES) { tensor_mul_scalar_(w, 1.5); }
    nn_step(p->opt);
    if (way != KEPT) { nn_zero_grad(p->opt); }
    if (way == KEPT) { tensor_set_grad(p->w, NULL); }
    if (way == W_CHANGES_LATER) { tensor_mul_scalar_(tensor_add_scalar_(w, 0.25), 1.5); }
    tensor_scope_end(scope);
}

// What is left of the matrix after three steps. made: whether its gradient is in no memory.
static void product_train(int way, int captured, float *m, int *made) {
    product_t p;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(5);
    p.m = tensor_requires_grad_(tensor_randn(6, 9), 1);
    p.w = tensor_randn(9, 1);
    if (way == W_IS_STEPPED) { tensor_requires_grad_(p.w, 1); }
    tensor_t *list[2];
    list[0] = p.m;
    list[1] = p.w;
    p.opt = nn_adam(NULL, .list = list, .count = way == W_IS_STEPPED ? 2 : 1, .lr = 0.1);
    tensor_graph_t *g = NULL;
    for (int i = 0; i < 4; i++) {
        if (i > 1 && captured) {
            CHECK(tensor_graph_replay(g) == 0);
            continue;
        }
        int capture = i == 1 && captured;
        if (way == KEPT) { nn_zero_grad(p.opt); }
        if (capture) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        product_step(&p, way);
        if (capture) { g = tensor_capture_end(); }
        if (capture) { CHECK_MSG(g != NULL, "%s", tensor_error_text()); }
    }
    *made = 0;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        tensor_graph_call_t c = tensor_graph_call(g, i);
        if (strcmp(c.op, "step")) { continue; }
        tensor_graph_operand_t grad = tensor_graph_operand(&c, 3);
        CHECK(grad.numel == 54);
        *made = grad.place == TENSOR_GRAPH_BLOCK;
    }
    CHECK(tensor_copy_out(tensor_detach(p.m), m, 54 * sizeof *m) == 0);
    tensor_graph_free(g);
    nn_optimizer_free(p.opt);
    tensor_scope_end(scope);
}

static void products_made(void) {
    for (int way = 0; way < MADES; way++) {
        float eager[54], replayed[54];
        int made;
        product_train(way, 0, eager, &made);
        product_train(way, 1, replayed, &made);
        CHECK_MSG(made == (way == MADE || way == W_CHANGES_LATER), "way %d: %d", way, made);
        CHECK_MSG(memcmp(eager, replayed, sizeof eager) == 0, "way %d", way);
    }
}

static void left_out(void) {
    enum { N = 30 };
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_randn(N, N), *w = tensor_randn(N, N), *v = tensor_randn(N, N);
    tensor_t *at = tensor_arange(0, 3, 1, TENSOR_I64), *state = tensor_zeros(N, N);
    tensor_requires_grad_(w, 1);
    tensor_requires_grad_(v, 1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = unread_step(x, w, v, at, state);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_MSG(g != NULL, "%s", tensor_error_text());
    static const char *const gone[] = {"exp",        "matmul",    "cos",  "sin",
                                       "add",        "sum",       "rand", "cross_entropy_backward",
                                       "max_pool2d", "linalg_qr", "embedding_backward"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        CHECK_MSG(n_calls(g, gone[i]) == 0, "%s", gone[i]);
    }
    static const char *const stay[] = {"index_select", "tanh",      "dropout",
                                       "linalg_solve", "embedding", "cross_entropy"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        CHECK_MSG(n_calls(g, stay[i]) == 1, "%s", stay[i]);
    }
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        tensor_graph_call_t c = tensor_graph_call(g, i);
        if (strcmp(c.op, "mul") || c.outputs < 2) { continue; }
        int results = 0;
        for (int k = 0; k < c.outputs; k++) {
            results += tensor_graph_operand(&c, c.inputs + k).place != TENSOR_GRAPH_NONE;
        }
        CHECK(results == 1);
    }
    tensor_generator_t rng = tensor_get_generator();
    tensor_copy_(x, tensor_randn(N, N));
    tensor_set_generator(rng);
    CHECK(tensor_graph_replay(g) == 0);
    tensor_generator_t after = tensor_get_generator();
    tensor_t *left[3], *grad = tensor_keep(tensor_clone(tensor_grad(w)));
    left[0] = tensor_clone(y);
    left[1] = tensor_clone(state);
    left[2] = grad;
    CHECK(tensor_grad(v) == NULL);
    tensor_set_generator(rng);
    tensor_t *again = unread_step(x, w, v, at, state);
    CHECK(tensor_equal(again, left[0]) && tensor_equal(state, left[1]));
    CHECK(tensor_equal(tensor_grad(w), left[2]));
    CHECK(tensor_get_generator().offset == after.offset);
    tensor_fill_(at, N);                                        // refused, as in the step
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
    CHECK_ERROR(TENSOR_ERR_INDEX, "index_select");
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(grad);
    tensor_scope_end(scope);
}

// A number that the host writes becomes part of the graph; hooks are told in the capture alone.
static int hooked;
static tensor_t *doubles(tensor_t *g, void *user) {
    (void)user;
    hooked++;
    return tensor_mul_scalar(g, 2);
}
static void host(void) {
    float three = 3;
    tensor_t *w = tensor_requires_grad_(tensor_ones(6), 1);
    tensor_register_hook(w, doubles, NULL);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *t = tensor_from(&three, TENSOR_F32, 1);
    three = 4;
    tensor_t *loss = tensor_sum(tensor_mul(w, t));
    tensor_set_grad(w, NULL);
    tensor_backward(loss);
    tensor_graph_t *g = tensor_capture_end();
    tensor_fill_(tensor_detach(w), 2);
    tensor_set_grad(w, NULL);
    CHECK(tensor_graph_replay(g) == 0 && hooked == 1);
    CHECK(tensor_item(loss) == 36 && tensor_item(tensor_max(tensor_grad(w))) == 6);
    CHECK(tensor_graph_free(g) == 0);
}

// A capture and a graph that nobody ends, at a shutdown.
static void left_open(void) {
    tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
    tensor_t *x = tensor_ones(4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_relu(x);
    CHECK(tensor_capture_end() != NULL);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_relu(x);
    CHECK(tensor_context_free(own) == 0);
    tensor_context_use(before);
    tensor_add_scalar(tensor_ones(4), 1);
}

// Other contexts are freed while a capture runs, in the context that is used and in another one: it goes on.
// With its own context it ends.
static void contexts_are_freed(void) {
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        tensor_context_t *other = tensor_context_new(), *more = tensor_context_new();
        tensor_t *x = tensor_ones(4);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = tensor_add_scalar(x, 1);
        if (elsewhere) {
            tensor_context_t *before = tensor_context_use(more);
            CHECK(tensor_context_free(other) == 0);
            CHECK(tensor_context_use(before) == more);
        } else {
            CHECK(tensor_context_free(other) == 0);
        }
        tensor_t *z = tensor_mul_scalar(y, 3);
        CHECK(tensor_context_free(more) == 0);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(g != NULL && tensor_ok());
        tensor_fill_(x, 2);
        CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(z)) == 4 * 3 * 3);
        CHECK(tensor_graph_free(g) == 0);
    }
    for (int used = 0; used < 2; used++) {      // whichever is used when it is freed
        tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_add_scalar(tensor_ones(4), 1);
        if (!used) { tensor_context_use(before); }
        CHECK(tensor_context_free(own) == 0);
        CHECK(tensor_capture_end() == NULL);
        CHECK_ERROR(TENSOR_ERR_OWNER, "this thread captures nothing");
        tensor_t *x = tensor_ones(4);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = tensor_add_scalar(x, 1);
        tensor_graph_t *g = tensor_capture_end();
        tensor_fill_(x, 2);
        CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(y)) == 12);
        CHECK(tensor_graph_free(g) == 0);
    }
}

// ---- parameters, gradients and memory that are no longer those of the capture

static tensor_t *first, *second;

static void two_step(nn_optimizer_t *o) {
    nn_zero_grad(o);
    tensor_backward(tensor_add(tensor_sum(tensor_square(first)), tensor_sum(tensor_square(second))));
    nn_step(o);
}

// Adam counts the steps of each parameter. A graph holds one count for those that had the same.
static void counts(void) {
    for (int kind = 0; kind < 3; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        first = tensor_requires_grad_(tensor_ones(1), 1);
        second = tensor_requires_grad_(tensor_ones(1), 1);
        tensor_t *both[2];
        both[0] = first;
        both[1] = second;
        nn_optimizer_t *o = nn_adam(NULL, .list = both, .count = 2, .lr = 0.1);
        two_step(o);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        two_step(o);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0);

        if (kind == 0) {                        // a step in which the second has no gradient
            nn_zero_grad(o);
            tensor_backward(tensor_sum(tensor_square(first)));
            nn_step(o);
        } else {
            nn_optimizer_group(o, &both[kind - 1], 1, .lr = 1e-6);
        }
        double was = tensor_item(second);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "no longer do; capture it again");
        CHECK(tensor_item(second) == was);
        CHECK(tensor_graph_free(g) == 0);
        nn_optimizer_free(o);
        tensor_scope_end(scope);
    }
}

// Two parameters alone, each with an optimizer of the same kind: one is trained by steps, one by replays.
typedef struct alone_t { tensor_t *w; nn_optimizer_t *o; } alone_t;

static void alone_step(const alone_t *a) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(a->o);
    tensor_backward(tensor_sum(tensor_square(tensor_add_scalar(a->w, 1))));
    nn_step(a->o);
    tensor_scope_end(scope);
}

static int alone_same(const alone_t *a, const alone_t *b) {
    return test_same_bits(tensor_detach(a->w), tensor_detach(b->w));
}

// An option is changed between replays: they do what the step does with it, or name it.
typedef struct option_t {
    const char *rule, *named;           // NULL: a replay has the new option
    double momentum;                    // less than 0: not set
    int amsgrad, decays;                // of a new group
} option_t;

static void option_change(const option_t *row, alone_t *a, int change) {
    tensor_t **list = &a->w;
    if (!change) {
        a->w = tensor_requires_grad_(tensor_full(1.5, 4, 4), 1);
        if (strcmp(row->rule, "sgd") == 0) { a->o = nn_sgd(NULL, .list = list, .count = 1, .lr = 0.1); }
        if (strcmp(row->rule, "sgd with") == 0) {
            a->o = nn_sgd(NULL, .list = list, .count = 1, .lr = 0.1, .momentum = 0.9);
        }
        if (strcmp(row->rule, "rmsprop") == 0) { a->o = nn_rmsprop(NULL, .list = list, .count = 1); }
        if (strcmp(row->rule, "muon") == 0) { a->o = nn_muon(NULL, .list = list, .count = 1); }
        if (strcmp(row->rule, "adam") == 0) { a->o = nn_adam(NULL, .list = list, .count = 1, .lr = 0.1); }
        return;
    }
    if (row->momentum >= 0) { CHECK(nn_set_momentum(a->o, row->momentum) == 0); }
    if (row->amsgrad) { CHECK(nn_optimizer_group(a->o, list, 1, .amsgrad = 1) == 0); }
    if (row->decays) { CHECK(nn_optimizer_group(a->o, list, 1, .weight_decay = 0.5) == 0); }
    CHECK(nn_set_lr(a->o, 0.01) == 0);
}

static void options(void) {
    static const option_t rows[] = {
        {"sgd", "step: momentum of sgd is 0.5 since the capture", 0.5, 0, 0},
        {"rmsprop", "step: momentum of rmsprop is 0.5 since the capture", 0.5, 0, 0},
        {"muon", "step: momentum of muon is 0.5 since the capture", 0.5, 0, 0},
        {"adam", "step: amsgrad of adam is 1 since the capture", -1, 1, 0},
        {"sgd", NULL, -1, 0, 1},
        {"sgd with", NULL, 0.5, 0, 0},
        {"sgd with", NULL, 0, 0, 0},
        {"muon", NULL, -1, 0, 1},
        {"adam", NULL, 0.5, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const option_t *row = &rows[i];
        tensor_scope_t scope = tensor_scope_begin();
        alone_t eager, replayed;
        option_change(row, &eager, 0);
        option_change(row, &replayed, 0);
        alone_step(&eager);
        alone_step(&eager);
        alone_step(&replayed);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        alone_step(&replayed);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(alone_same(&eager, &replayed));
        option_change(row, &eager, 1);
        option_change(row, &replayed, 1);
        for (int k = 0; k < 3; k++) {
            if (row->named) {
                CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
                CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, row->named);
                if (k == 1) {           // a state that it has by now is not in the captured calls either
                    alone_step(&eager);
                    alone_step(&replayed);
                }
            } else {
                CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
                alone_step(&eager);
            }
            CHECK_MSG(alone_same(&eager, &replayed), "row %d", (int)i);
        }
        CHECK(tensor_graph_free(g) == 0);
        nn_optimizer_free(eager.o);
        nn_optimizer_free(replayed.o);
        tensor_scope_end(scope);
    }
}

// A parameter that is frozen since the capture, or no longer is, is not trained as the step would.
static void frozen(void) {
    for (int before = 0; before < 2; before++) {
        job_t j;
        memset(&j, 0, sizeof j);
        mlp(&j);
        tensor_scope_t scope = tensor_scope_begin();
        nn_module_t *part = nn_get_child(j.net, "0");
        mlp_step(&j);
        CHECK(nn_zero_grad(j.opt) == 0 && nn_requires_grad_(part, !before) == part);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        mlp_step(&j);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0);
        tensor_t *was = tensor_clone(tensor_detach(nn_get(j.net, "0.weight")));
        CHECK(nn_requires_grad_(part, before) == part);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, before ? "graph_replay: [64,8] was frozen at the capture and"
                                                   : "of which the step makes a gradient, was frozen since");
        CHECK(test_same_bits(tensor_detach(nn_get(j.net, "0.weight")), was));
        CHECK(nn_requires_grad_(part, !before) == part && tensor_graph_replay(g) == 0);
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
        nn_optimizer_free(j.opt);
        nn_free(j.net);
    }
}

// The same where no optimizer is in the graph: a leaf that the step read, and that required no gradient, gets
// none.
static void unfrozen(void) {
    for (int backward = 0; backward < 2; backward++) {
        nn_module_t *net = nn_sequential(nn_linear(3, 4), nn_tanh(), nn_linear(4, 2));
        nn_module_t *part = nn_get_child(net, "0");
        tensor_t *x = tensor_randn(5, 3), *w = nn_get(net, "0.weight");
        tensor_scope_t scope = tensor_scope_begin();
        CHECK(nn_requires_grad_(part, 0) == part && tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = tensor_sum(nn_forward(net, x));
        if (backward) { tensor_backward(y); }
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0 && tensor_grad(w) == NULL);
        CHECK(nn_requires_grad_(net, 1) == net);
        int code = tensor_graph_replay(g);
        CHECK(code == (backward ? TENSOR_ERR_UNSUPPORTED : 0));
        if (backward) {
            CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                        "graph_replay: [4,3] was frozen at the capture and requires a gradient now, which "
                        "the step does not make (linear uses it at capture.c:");
        }

        // As at the capture again; what requires a gradient anyway is told so once more.
        CHECK(nn_requires_grad_(part, 0) == part && tensor_graph_replay(g) == 0);
        CHECK(nn_requires_grad_(nn_get_child(net, "2"), 1) != NULL && tensor_graph_replay(g) == 0);

        // The input, and a view of it that the step does not know.
        tensor_t *seen = tensor_requires_grad_(tensor_detach(x), 1);
        CHECK(tensor_graph_replay(g) == 0 && tensor_requires_grad(seen));
        tensor_requires_grad_(x, 1);
        CHECK(tensor_graph_replay(g) == (backward ? TENSOR_ERR_UNSUPPORTED : 0));
        if (backward) { CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "[5,3] was frozen at the capture"); }
        tensor_requires_grad_(x, 0);
        CHECK(tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
        nn_free(net);
        tensor_free(x);
    }
}

// The same for a parameter that is a detached view in a scope that is still open, and for two leaves over one
// memory, whichever of them it is.
static void unfrozen_views(void) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_module_t own;
    nn_module_init(&own, "own", NULL, NULL);
    tensor_t *w = tensor_requires_grad_(tensor_ones(4), 1), *all = tensor_randn(8);
    tensor_t *p = nn_parameter(&own, "p", tensor_detach(tensor_mul_scalar(tensor_randn(4), 0.1)));
    tensor_t *a = tensor_keep(tensor_detach(tensor_narrow(all, 0, 0, 4)));
    tensor_t *b = tensor_keep(tensor_detach(tensor_narrow(all, 0, 4, 4)));
    CHECK(nn_requires_grad_(&own, 0) == &own && tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_backward(tensor_sum(tensor_mul(tensor_mul(w, p), tensor_mul(a, b))));
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(nn_requires_grad_(&own, 1) == &own && tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "[4] was frozen at the capture");
    CHECK(nn_requires_grad_(&own, 0) == &own && tensor_graph_replay(g) == 0);
    for (int turn = 0; turn < 2; turn++) {
        tensor_t *one = turn ? b : a, *other = turn ? a : b;
        tensor_requires_grad_(one, 1);
        tensor_requires_grad_(tensor_requires_grad_(other, 1), 0);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "[4] was frozen at the capture");
        tensor_requires_grad_(one, 0);
        CHECK(tensor_graph_replay(g) == 0);
    }
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(a);
    tensor_free(b);
    nn_free(&own);
    tensor_scope_end(scope);
}

// isin has the shape of x, whatever the elements are; a NaN is equal to none, and in the way of none.
static void is_in(void) {
    const float numbers[6] = {1, NAN, -INFINITY, 3, 7, INFINITY}, some[4] = {3, NAN, INFINITY, 1};
    const int want[3][6] = {{1, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 0, 0}};
    tensor_t *x = tensor_from(numbers, TENSOR_F32, 6), *test = tensor_from(some, TENSOR_F32, 4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_isin(x, test);
    tensor_graph_t *g = tensor_capture_end();
    CHECK_MSG(g != NULL, "%s", tensor_error_text());
    for (int k = 0; k < 3; k++) {
        if (k) { tensor_fill_(test, NAN); }
        if (k == 2) { tensor_fill_(tensor_narrow(test, 0, 1, 1), -INFINITY); }
        if (k) { CHECK(tensor_graph_replay(g) == 0); }
        for (int i = 0; i < 6; i++) {
            CHECK_MSG((int)tensor_item(tensor_select(y, 0, i)) == want[k][i], "%d %d", k, i);
            CHECK((int)tensor_item(tensor_select(tensor_isin(x, test), 0, i)) == want[k][i]);
        }
    }
    CHECK(tensor_graph_free(g) == 0);
}

// Whether a leaf got no gradient is asked of the tensor that the step read, not of its memory: a detached one
// that only its scope holds is a leaf like others, and what the step reads through a detached one or by a
// comparison has no gradient in any case.
static void unfrozen_detached(void) {
    for (int kind = 0; kind < 4; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *w = tensor_requires_grad_(tensor_ones(4), 1), *x = tensor_randn(4), *by = tensor_detach(x);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_scope_t inner = tensor_scope_begin();
        tensor_t *y = w;
        if (kind == 0) { y = tensor_mul(w, by); }
        if (kind == 1) { y = tensor_mul(w, tensor_detach(x)); }
        if (kind == 2) { y = tensor_where(tensor_gt_scalar(x, 0), w, tensor_neg(w)); }
        if (kind == 3) { y = tensor_mul(tensor_mul(w, tensor_detach(x)), tensor_narrow(x, 0, 0, 4)); }
        tensor_backward(tensor_sum(y));
        tensor_scope_end(inner);
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0);
        tensor_requires_grad_(x, 1);
        CHECK_MSG(tensor_graph_replay(g) == (kind == 3 ? TENSOR_ERR_UNSUPPORTED : 0), "kind %d: %s", kind,
                  tensor_error_text());
        if (kind == 3) { CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "[4] was frozen at the capture"); }
        tensor_clear_error();
        tensor_requires_grad_(x, 0);
        tensor_requires_grad_(by, 1);
        CHECK_MSG(tensor_graph_replay(g) == (kind == 0 ? TENSOR_ERR_UNSUPPORTED : 0), "kind %d: %s", kind,
                  tensor_error_text());
        if (kind == 0) {
            CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                        "graph_replay: [4] was frozen at the capture and requires a gradient now, which the "
                        "step does not make (mul uses it at capture.c:");
        }
        tensor_clear_error();
        tensor_requires_grad_(by, 0);
        CHECK(tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
}

// A checkpoint goes into the states that are there, which a graph goes on with.
static void loaded(void) {
    static const char path[] = "build/tests/capture_loaded.st";
    job_t eager, replayed;
    memset(&eager, 0, sizeof eager);
    tensor_manual_seed(4);
    mlp(&eager);
    replayed = eager;
    replayed.net = nn_clone(eager.net);
    replayed.opt = nn_adam(replayed.net, .lr = 0.01);
    tensor_scope_t scope = tensor_scope_begin();
    mlp_step(&eager);
    mlp_step(&replayed);
    CHECK(nn_save_checkpoint(path, eager.net, eager.opt, 1) == 0);
    mlp_step(&eager);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    mlp_step(&replayed);
    tensor_graph_t *g = tensor_capture_end();
    tensor_t *w = nn_get(replayed.net, "0.weight"), *state = nn_optimizer_state(replayed.opt, w, "exp_avg");
    for (int kept = 0; kept < 2; kept++) {
        if (kept) { tensor_keep(state); }
        int64_t at = 0;
        CHECK(nn_load_checkpoint(path, eager.net, eager.opt, &at) == 0 && at == 1);
        CHECK(nn_load_checkpoint(path, replayed.net, replayed.opt, &at) == 0);
        CHECK(nn_optimizer_state(replayed.opt, w, "exp_avg") == state);
        for (int k = 0; k < 3; k++) {
            mlp_step(&eager);
            CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
            tensor_clear_error();
        }
        CHECK(test_same_bits(tensor_detach(nn_get(eager.net, "0.weight")), tensor_detach(w)));
    }
    tensor_free(state);
    remove(path);
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
    nn_optimizer_free(eager.opt);
    nn_optimizer_free(replayed.opt);
    nn_free(eager.net);
    nn_free(replayed.net);
}

// Steps that a scaler skipped are not counted when a replay steps without it.
static void alone_skipped(const alone_t *a, tensor_t *scaler) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(a->o);
    tensor_backward(nn_scaler_scale(scaler, tensor_sum(tensor_mul_scalar(a->w, INFINITY))));
    nn_scaler_step(scaler, a->o);
    nn_scaler_update(scaler);
    tensor_scope_end(scope);
}

static void skipped_before(void) {
    static const option_t adam = {"adam", NULL, -1, 0, 0};
    tensor_scope_t scope = tensor_scope_begin();
    alone_t a[2];
    tensor_t *scaler[2];
    tensor_graph_t *g = NULL;
    for (int i = 0; i < 2; i++) {
        option_change(&adam, &a[i], 0);
        scaler[i] = nn_grad_scaler(2, 1000);
        alone_step(&a[i]);
        if (i) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        alone_step(&a[i]);
        if (i) { g = tensor_capture_end(); }
        for (int k = 0; k < 6; k++) { alone_skipped(&a[i], scaler[i]); }
    }
    CHECK(alone_same(&a[0], &a[1]));
    for (int k = 0; k < 2; k++) {
        alone_step(&a[0]);
        CHECK(tensor_graph_replay(g) == 0 && alone_same(&a[0], &a[1]));
    }
    CHECK(tensor_graph_free(g) == 0);
    for (int i = 0; i < 2; i++) {
        nn_optimizer_free(a[i].o);
        tensor_free(scaler[i]);
    }
    tensor_scope_end(scope);
}

// A step that adds to a gradient older than itself needs that gradient.
static void older_gradient(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(1), 1);
    nn_optimizer_t *o = nn_sgd(NULL, .list = &w, .count = 1, .lr = 0.5);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_backward(tensor_sum(w));
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_backward(tensor_sum(w));
    nn_step(o);                                 // 1 - 0.5 * 2
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_item(w) == 0 && tensor_graph_replay(g) == 0);
    CHECK(tensor_item(w) == -1.5 && tensor_item(tensor_grad(w)) == 3);
    tensor_scope_reset(scope);

    tensor_t *held = tensor_detach(tensor_grad(w));         // its memory stays
    nn_zero_grad(o);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the gradient of [1], which the step adds to, is gone or has other memory "
                                  "than at the capture (nn_zero_grad");
    tensor_backward(tensor_sum(w));             // a new gradient
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "has other memory than at the capture");
    CHECK(tensor_item(w) == -1.5 && tensor_item(held) == 3);
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
    nn_optimizer_free(o);
}

// A module of another dtype than at the capture: the error says so, in training and, where no gradient tells
// whose memory it was, in inference, also if a view keeps that memory.
static void moved(void) {
    for (int kind = 0; kind < 4; kind++) {
        int training = kind & 1;
        nn_module_t *net = nn_linear(4, 3);
        tensor_t *kept = kind & 2 ? tensor_keep(tensor_detach(nn_get(net, "weight"))) : NULL;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_randn(5, 4);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = nn_forward(net, x);
        if (training) { tensor_backward(tensor_sum(y)); }
        tensor_graph_t *g = tensor_capture_end();
        CHECK(nn_to(net, TENSOR_F64) == 0 && tensor_graph_replay(g) == TENSOR_ERR_OWNER);
        CHECK_ERROR(TENSOR_ERR_OWNER, training ? "is f64, and was f32 at the capture (nn_to); capture"
                                               : "was freed since the capture, or moved by nn_to");
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
        nn_free(net);
        tensor_free(kept);
    }

    // In the capture itself.
    nn_module_t *net = nn_linear(4, 3);
    tensor_t *kept = tensor_keep(tensor_detach(nn_get(net, "weight")));
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_randn(5, 4);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    nn_forward(net, x);
    CHECK(nn_to(net, TENSOR_F64) == 0 && tensor_capture_end() == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "was freed or replaced in the capture");
    tensor_scope_end(scope);
    nn_free(net);
    tensor_free(kept);
}

// What a graph of a small step takes is small, and an error says how much was in use.
static void small_graph(void) {
    nn_module_t *net = nn_linear(2, 4);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_ones(4, 2);
    nn_forward(net, x);
    uint64_t before = tensor_memory_stats().reserved_bytes;
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    nn_forward(net, x);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_replay(g) == 0);
    uint64_t took = tensor_memory_stats().reserved_bytes - before;
    CHECK_MSG(took <= 48 * 1024, "%d bytes", (int)took);

    CHECK(tensor_set_memory_limit(1) == 0);
    (void)tensor_capture_begin(TENSOR_CPU);
    nn_forward(net, x);
    CHECK(tensor_capture_end() == NULL && tensor_set_memory_limit(0) == 0);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, " in use: it would pass the limit of tensor_set_memory_limit");
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
    nn_free(net);
}

// A leaf that the step makes over older memory: once it has gone, its header is another tensor's, which the
// graph lets alone.
static void gone_leaf(void) {
    tensor_t *in = tensor_ones(4, 3), *out = tensor_zeros(4, 3);
    for (int kind = 0; kind < 3; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *x = tensor_requires_grad_(tensor_detach(in), 1);
        tensor_backward(tensor_sum(tensor_mul(x, x)));
        tensor_copy_(out, tensor_grad(x));
        tensor_graph_t *g = tensor_capture_end();
        tensor_scope_end(scope);
        for (int turn = 0; turn < 4; turn++) {
            scope = tensor_scope_begin();
            tensor_t *other[40];
            for (int k = 0; k < 40; k++) {
                other[k] = kind ? tensor_detach(in) : tensor_zeros(2, 2);
                if (kind == 2) { tensor_requires_grad_(other[k], 1); }
            }
            CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(out)) == 24);
            for (int k = 0; k < 40; k++) { CHECK(tensor_grad(other[k]) == NULL); }
            tensor_scope_end(scope);
        }
        CHECK(tensor_graph_free(g) == 0);
    }
}

// The memory of the graph's optimizer is another optimizer's by now.
static void gone_optimizer(void) {
    nn_module_t *net = nn_linear(3, 8), *small = nn_linear(2, 1, .no_bias = 1);
    nn_optimizer_t *o = nn_sgd(net, .lr = 0.1), *other = NULL;
    uintptr_t was = (uintptr_t)o;
    tensor_t *x = tensor_randn(5, 3);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_backward(tensor_mean(nn_forward(net, x)));
    nn_step(o);
    tensor_graph_t *g = tensor_capture_end();
    nn_optimizer_free(o);
    int n = 0;
    for (; n < 1000 && (uintptr_t)other != was; n++) {
        nn_optimizer_free(other);
        other = nn_sgd(small, .lr = 1000);
    }
    CHECK(n < 1000);
    tensor_t *before = tensor_clone(tensor_detach(nn_get(net, "weight")));
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "step: the optimizer was freed");
    CHECK(tensor_equal(before, nn_get(net, "weight")));
    CHECK(tensor_graph_free(g) == 0);
    nn_optimizer_free(other);
    nn_free(small);
    nn_free(net);
}

// A dropout older than the capture keeps its mask, though the generator was set back and the step draws.
static void older_mask(void) {
    tensor_manual_seed(1);
    tensor_t *x = tensor_requires_grad_(tensor_ones(64), 1), *gradient = tensor_zeros(64);
    tensor_generator_t generator = tensor_get_generator();
    tensor_t *y = tensor_dropout(x, 0.5, 1), *mask = tensor_clone(tensor_detach(y));
    tensor_set_generator(generator);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *drawn = tensor_randn(4);
    tensor_backward_with(tensor_sum(y), NULL, TENSOR_RETAIN_GRAPH);
    tensor_copy_(gradient, tensor_grad(x));
    tensor_set_grad(x, NULL);
    tensor_graph_t *g = tensor_capture_end();
    tensor_t *first = tensor_clone(drawn);
    for (int i = 0; i < 3; i++) {
        CHECK(tensor_equal(gradient, mask));
        CHECK(tensor_graph_replay(g) == 0 && !tensor_equal(drawn, first));
    }
    CHECK(tensor_graph_free(g) == 0);
}

// A graph costs what its own tensors cost, whatever else there is.
static void tensors_apart(void) {
    tensor_t *x = tensor_ones(8);
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        for (int k = 0; k < 2000 && i; k++) { tensor_ones(1); }
        bytes[i] = tensor_memory_stats().reserved_bytes;
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_relu(x);
        tensor_graph_t *g = tensor_capture_end();
        bytes[i] = tensor_memory_stats().reserved_bytes - bytes[i];
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
    CHECK_MSG(bytes[1] <= bytes[0], "%d bytes beside others, %d without", (int)bytes[1], (int)bytes[0]);
}

// A gradient that the step itself sets is there after a replay.
static void own_gradient(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(2), 1), *x = tensor_ones(2);
    nn_optimizer_t *o = nn_sgd(NULL, .list = &w, .count = 1, .lr = 0.25);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_set_grad(w, tensor_mul_scalar(x, 2));
    nn_step(o);                                 // 1 - 0.25 * 2
    tensor_graph_t *g = tensor_capture_end();
    nn_zero_grad(o);
    tensor_fill_(x, 4);
    CHECK(tensor_graph_replay(g) == 0);         // 0.5 - 0.25 * 8
    CHECK(tensor_item(tensor_max(tensor_detach(w))) == -1.5);
    CHECK(tensor_grad(w) && tensor_item(tensor_max(tensor_grad(w))) == 8);
    CHECK(tensor_graph_free(g) == 0);
    nn_optimizer_free(o);
}

// Memory of the program is written where it lies, although the tensor over it was made in the capture.
static void memory_of_the_program(void) {
    float memory[2] = {0};
    tensor_t *x = tensor_ones(2);
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *out = tensor_wrap(memory, TENSOR_F32, 2);
    tensor_copy_(out, tensor_mul_scalar(x, 10));
    tensor_graph_t *g = tensor_capture_end();
    tensor_fill_(x, 7);
    CHECK(memory[0] == 10 && tensor_graph_replay(g) == 0 && memory[1] == 70);
    tensor_free(out);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "was freed since the capture");
    CHECK(memory[0] == 70 && tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
}

// A convolution of one image leaves nothing behind but its result.
static void one_image(void) {
    tensor_t *x = tensor_randn(2, 5, 5), *w = tensor_randn(3, 2, 3, 3);
    int64_t before = tensor_memory_stats().live_tensors;
    tensor_t *y = tensor_conv2d(x, w);
    CHECK(tensor_ndim(y) == 3 && tensor_free(y) == 0);
    CHECK(tensor_memory_stats().live_tensors == before);
}

// What a replay changes in place is a changed value for a graph that saved it before.
static void changed_by_replay(void) {
    for (int how = 0; how < 3; how++) {
        tensor_t *state = tensor_ones(3), *other = tensor_full(2, 3);
        tensor_t *w = tensor_requires_grad_(tensor_ones(3), 1);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        if (how == 0) { tensor_mul_scalar_(state, 2); }
        if (how == 1) { tensor_add_(state, other); }
        if (how == 2) { tensor_copy_(state, other); }
        tensor_graph_t *g = tensor_capture_end();
        CHECK(g != NULL);
        tensor_t *before = tensor_mul(w, state), *loss = tensor_sum(before);
        CHECK(tensor_graph_replay(g) == 0);
        CHECK(tensor_backward(loss) != 0);
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "changed in place");
        CHECK(tensor_backward(tensor_sum(tensor_mul(w, state))) == 0);
        CHECK(tensor_graph_free(g) == 0);
    }
}

// Temporaries lie where the definition puts them: the largest first, each in the smallest gap that is free
// while it is alive, or behind what is alive then. Each call is a step of its own: products, which run alone.
enum { PLACED = 300 };
typedef struct placed_t {
    uint64_t bytes, at, want;           // want: by the definition
    int64_t first, last, order;         // order: in which they are placed
} placed_t;
static placed_t placed[PLACED];

// The definition, in plain loops over a list in the order of its places.
static void place(int k) {
    placed_t *e = &placed[k];
    uint64_t from = 0, best = UINT64_MAX;
    for (uint64_t after = 0;;) {        // the next place from `after` on of what lives at the same time
        const placed_t *next = NULL;
        for (int i = 0; i < PLACED; i++) {
            const placed_t *p = &placed[i];
            if (p->order >= e->order || p->first > e->last || p->last < e->first || p->want < after) {
                continue;
            }
            int longer = next && p->want == next->want && p->bytes > next->bytes;
            if (!next || p->want < next->want || longer) { next = p; }
        }
        if (!next) { break; }
        if (next->want >= from + e->bytes && next->want - from < best) {
            best = next->want - from;
            e->want = from;
        }
        if (next->want + next->bytes > from) { from = next->want + next->bytes; }
        after = next->want + 1;
    }
    if (best == UINT64_MAX) { e->want = from; }
}

static void places(void) {
    tensor_t *a = tensor_randn(40, 3), *b = tensor_randn(3, 40), *u = tensor_randn(1, 40);
    tensor_t *y[PLACED], *z[4 * PLACED];
    int64_t at = 0, uses = 0;
    unsigned r = 7;
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    for (int i = 0; i < PLACED + 60; i++) {
        for (int k = 0; k < 3; k++) {           // uses some that were made a while ago; 60 at the end
            r = r * 1664525u + 1013904223u;
            int j = i - 1 - (int)(r >> 20) % 60;
            if (k == 0) { j = i - 60; }             // each one at least once
            if (j < 0 || j >= PLACED || uses == 4 * PLACED) { continue; }
            placed[j].last = at++;
            z[uses++] = tensor_keep(tensor_matmul(tensor_narrow(u, 1, 0, tensor_size(y[j], 0)), y[j]));
        }
        if (i >= PLACED) { continue; }
        r = r * 1664525u + 1013904223u;
        int64_t rows = 1 + (int64_t)(r >> 16) % 40, columns = 1 + (int64_t)(r >> 24) % 40;
        placed[i].first = at++;
        placed[i].bytes = ((uint64_t)(rows * columns) * sizeof(float) + 63) & ~(uint64_t)63;
        y[i] = tensor_matmul(tensor_narrow(a, 0, 0, rows), tensor_narrow(b, 1, 0, columns));
    }
    tensor_scope_end(scope);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_info(g).calls == at);

    int bad = 0;
    uint64_t end = 0;
    for (int i = 0; i < PLACED; i++) {
        const tensor_graph_call_t call = tensor_graph_call(g, placed[i].first);
        const tensor_graph_operand_t o = tensor_graph_operand(&call, call.inputs);
        CHECK(o.place == TENSOR_GRAPH_TEMPORARY);
        placed[i].at = o.offset;
        placed[i].order = 0;
        for (int j = 0; j < PLACED; j++) {      // of equal ones the last one that was made is first
            placed[i].order += placed[j].bytes > placed[i].bytes;
            placed[i].order += placed[j].bytes == placed[i].bytes && j > i;
        }
    }
    for (int k = 0; k < PLACED; k++) {
        for (int i = 0; i < PLACED; i++) {
            if (placed[i].order == k) { place(i); }
        }
    }
    for (int i = 0; i < PLACED; i++) {
        bad += placed[i].at != placed[i].want;
        if (placed[i].want + placed[i].bytes > end) { end = placed[i].want + placed[i].bytes; }
    }
    CHECK_MSG(bad == 0, "%d of %d temporaries lie elsewhere", bad, (int)PLACED);
    CHECK(tensor_graph_info(g).packed_bytes == end);
    CHECK(tensor_graph_free(g) == 0);
    for (int64_t i = 0; i < uses; i++) { tensor_free(z[i]); }
}

// ---- what is left between one graph and the next

// A step adds to a gradient of the step before it, another graph's, and drops it at its end.
static void gradient_of_another_graph(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(1), 1);
    nn_optimizer_t *o = nn_sgd(NULL, .list = &w, .count = 1, .lr = 0.5);
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_backward(tensor_sum(w));
    tensor_graph_t *first = tensor_capture_end();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_backward(tensor_sum(w));
    nn_step(o);                                 // 1 - 0.5 * 2
    nn_zero_grad(o);
    tensor_graph_t *second = tensor_capture_end();
    CHECK(tensor_item(w) == 0 && tensor_grad(w) == NULL);
    CHECK(tensor_graph_replay(first) == 0 && tensor_graph_replay(second) == 0);
    CHECK(tensor_item(w) == -1 && tensor_grad(w) == NULL);

    // The step itself would make a new gradient here.
    CHECK(tensor_graph_replay(second) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the gradient of [1], which the step adds to, is gone or has other memory");
    CHECK(tensor_item(w) == -1);
    CHECK(tensor_graph_replay(first) == 0 && tensor_graph_replay(second) == 0 && tensor_item(w) == -2);
    CHECK(tensor_graph_free(second) == 0 && tensor_graph_free(first) == 0);
    tensor_scope_end(scope);
    nn_optimizer_free(o);
}

// What was written before a draw that fails stays written, although a call after the draw runs with it.
static void refused_draw(void) {
    tensor_t *x = tensor_ones(64), *written = tensor_zeros(64), *weights = tensor_ones(4);
    tensor_t *other = tensor_zeros(64);
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_add_(written, x);
    tensor_multinomial(weights, 2, 1);
    tensor_copy_(other, tensor_mul(x, x));
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(written)) == 128);
    tensor_zero_(weights);
    tensor_zero_(other);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
    CHECK_ERROR(TENSOR_ERR_INDEX, "no weight above 0");
    CHECK(tensor_item(tensor_sum(written)) == 192 && tensor_item(tensor_sum(other)) == 0);
    CHECK(tensor_graph_free(g) == 0);
    tensor_scope_end(scope);
}

// A step with a scaler in parts, each of them captured or not: forward and backward, then unscaling and
// clipping, then the optimizer and the scaler. A left-out step stays left out.
enum { SCALED_PARTS = 3, SCALED_STEPS = 7 };

typedef struct scaled_t {
    nn_module_t *net;
    nn_optimizer_t *o;
    tensor_t *x, *scaler;
} scaled_t;

static void scaled_part(scaled_t *s, int part, int steps) {
    if (part == 0) {
        nn_zero_grad(s->o);
        tensor_t *loss = tensor_mean(tensor_square(nn_forward(s->net, s->x)));
        tensor_backward(nn_scaler_scale(s->scaler, loss));
    } else if (part == 1) {
        nn_scaler_unscale(s->scaler, s->o);
        nn_clip_grad_norm(s->o, 0.5);
    } else {
        if (steps) { nn_scaler_step(s->scaler, s->o); }
        nn_scaler_update(s->scaler);
    }
}

// captured: a bit for each part; together: they are one graph; leaves: every third step is left out, which
// the graphs do not have. -> the sum of the weights
static double scaled_run(int captured, int together, int leaves) {
    scaled_t s;
    tensor_graph_t *graph[SCALED_PARTS] = {NULL, NULL, NULL};
    tensor_manual_seed(4);
    s.net = nn_sequential(nn_linear(3, 4), nn_tanh(), nn_linear(4, 1));
    s.o = nn_sgd(s.net, .lr = 0.1, .momentum = 0.5);
    s.x = tensor_randn(4, 3);
    s.scaler = nn_grad_scaler(1024, 3);
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < SCALED_STEPS; step++) {
        int steps = !(leaves && step % 3 == 2);
        tensor_mul_scalar_(s.x, 1.1);
        for (int part = 0; part < SCALED_PARTS; part++) {
            int by_graph = step > 1 && (captured >> part & 1) && (part < 2 || steps);
            if (!by_graph) {
                scaled_part(&s, part, steps);
            } else if (graph[part]) {
                CHECK(tensor_graph_replay(graph[part]) == 0);
            } else {
                CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
                scaled_part(&s, part, steps);
                while (together && part < 2) { scaled_part(&s, ++part, steps); }
                graph[together ? 0 : part] = tensor_capture_end();
                CHECK_OK();
            }
            if (together && by_graph) { part = SCALED_PARTS; }
        }
    }
    CHECK_OK();
    tensor_t *parameters[4];
    double sum = 0;
    int n = nn_parameters(s.net, parameters, 4);
    for (int i = 0; i < n; i++) { sum += (i + 1) * tensor_item(tensor_sum(tensor_detach(parameters[i]))); }
    tensor_scope_end(scope);
    for (int k = 0; k < SCALED_PARTS; k++) { tensor_graph_free(graph[k]); }
    nn_optimizer_free(s.o);
    nn_free(s.net);
    tensor_free(s.x);
    tensor_free(s.scaler);
    return sum;
}

static void scaled_in_parts(void) {
    for (int leaves = 0; leaves < 2; leaves++) {
        double want = scaled_run(0, 0, leaves);
        for (int captured = 1; captured < 1 << SCALED_PARTS; captured += 2) {    // others: new gradients
            CHECK_MSG(scaled_run(captured, 0, leaves) == want, "parts %d%s", captured,
                      leaves ? ", steps are left out" : "");
        }
    }
    CHECK(scaled_run(1, 1, 0) == scaled_run(0, 0, 0));
}

// A captured step of a scaler, whose gradients had been unscaled before it, is given others; and the reverse.
static void unscaled_otherwise(void) {
    tensor_t *w = tensor_requires_grad_(tensor_ones(1), 1), *scaler = nn_grad_scaler(4, 100);
    nn_optimizer_t *o = nn_sgd(NULL, .list = &w, .count = 1, .lr = 0.5);
    tensor_scope_t scope = tensor_scope_begin();
    for (int before = 0; before < 2; before++) {
        tensor_graph_t *g = NULL;
        for (int i = 0; i < 3; i++) {
            if (tensor_grad(w)) { tensor_zero_(tensor_grad(w)); }           // graphs use its memory
            tensor_backward(nn_scaler_scale(scaler, tensor_sum(w)));
            if (before == (i < 2)) { nn_scaler_unscale(scaler, o); }        // the last time the other way
            if (i == 2) { break; }
            if (i) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            nn_scaler_step(scaler, o);
            if (i) { g = tensor_capture_end(); }
        }
        double was = tensor_item(w);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        const char *why = "scaler_unscale: the gradients were unscaled already";
        if (before) { why = "scaler_step: the gradients had been unscaled before the step that was"; }
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, why);
        CHECK(tensor_item(w) == was && tensor_item(tensor_grad(w)) == (before ? 4 : 1));
        CHECK(tensor_graph_free(g) == 0 && nn_zero_grad(o) == 0);
    }
    tensor_scope_end(scope);
    nn_optimizer_free(o);
    tensor_free(w);
    tensor_free(scaler);
}

int main(void) {
    RUN(bits);
    RUN(chains);
    RUN(begun_group);
    RUN(reduced);
    RUN(reduced_wide);
    RUN(shifted);
    RUN(products_of_bf16);
    RUN(rules);
    RUN(bags);
    RUN(bags_of_nan);
    RUN(older_checkpoint);
    RUN(refused);
    RUN(unfit);
    RUN(stopped);
    RUN(stopped_between);
    RUN(planned_again);
    RUN(view);
    RUN(operations_are_counted);
    RUN(conversions_are_named);
    RUN(packed);
    RUN(in_place_of_product);
    RUN(products_made);
    RUN(stepped_early);
    RUN(left_out);
    RUN(host);
    RUN(left_open);
    RUN(contexts_are_freed);
    RUN(counts);
    RUN(options);
    RUN(frozen);
    RUN(unfrozen);
    RUN(unfrozen_views);
    RUN(unfrozen_detached);
    RUN(is_in);
    RUN(loaded);
    RUN(skipped_before);
    RUN(older_gradient);
    RUN(moved);
    RUN(small_graph);
    RUN(gone_leaf);
    RUN(gone_optimizer);
    RUN(older_mask);
    RUN(tensors_apart);
    RUN(own_gradient);
    RUN(memory_of_the_program);
    RUN(one_image);
    RUN(changed_by_replay);
    RUN(places);
    RUN(gradient_of_another_graph);
    RUN(refused_draw);
    RUN(scaled_in_parts);
    RUN(unscaled_otherwise);
    return test_report();
}

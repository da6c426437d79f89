// realtime.c - training inside a frame: going back to a snapshot gives the same bits again, eagerly and by
// replays; slices of a step are the step; in real time nothing is asked of the system
#include "test.h"

#include <time.h>

enum { ITEMS = 6, STEPS = 5 };

// ---- networks in training

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y, *loss;
    tensor_graph_t *graph;
} job_t;
typedef void (*make_t)(job_t *j);

static void step(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    nn_clip_grad_norm(j->opt, 0.5);
    nn_step(j->opt);
    tensor_copy_(j->loss, tensor_detach(loss));
    tensor_scope_end(scope);
}

static void capture(job_t *j) {
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    step(j);
    j->graph = tensor_capture_end();
    CHECK_MSG(j->graph != NULL, "%s", tensor_error_text());
}

static void end(job_t *j) {
    CHECK(tensor_graph_free(j->graph) == 0);
    nn_optimizer_free(j->opt);
    nn_free(j->net);
}

static void data(job_t *j, tensor_t *x, tensor_t *y) {
    j->x = x;
    j->y = y;
    j->loss = tensor_scalar(0, tensor_dtype(y));
    j->graph = NULL;
}

static nn_module_t *layers(void) {
    return nn_sequential(nn_linear(8, 64), nn_relu(), nn_dropout(0.2), nn_linear(64, 4));
}

static void adam(job_t *j) {
    j->net = layers();
    j->opt = nn_adam(j->net, .lr = 0.01, .amsgrad = 1);
    data(j, tensor_randn(ITEMS, 8), tensor_randn(ITEMS, 4));
}

static void sgd(job_t *j) {
    j->net = nn_sequential(nn_conv2d(3, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_relu(), nn_max_pool2d(2),
                           nn_dropout(0.3), nn_flatten(), nn_linear(8 * 3 * 3, 4));
    j->opt = nn_sgd(j->net, .lr = 0.05, .momentum = 0.9);
    data(j, tensor_randn(ITEMS, 3, 6, 6), tensor_randn(ITEMS, 4));
}

// The learning rate is in a state; a parameter that is not contiguous; two groups.
static void rprop(job_t *j) {
    adam(j);
    nn_optimizer_free(j->opt);
    j->opt = nn_rprop(j->net, .lr = 0.01);
    tensor_t *bias = nn_get(j->net, "0.bias");
    nn_optimizer_group(j->opt, &bias, 1, .lr = 0.02);
}

static void images(job_t *j) {
    nn_module_t *conv = nn_conv2d(3, 8, 3, .padding = 1);
    tensor_t *turned = tensor_channels_last(tensor_detach(nn_get(conv, "weight")));
    nn_parameter(conv, "weight", tensor_requires_grad_(turned, 1));
    j->net = nn_sequential(conv, nn_relu(), nn_flatten(), nn_linear(8 * 6 * 6, 4));
    j->opt = nn_adamw(j->net, .lr = 0.01);
    data(j, tensor_randn(ITEMS, 3, 6, 6), tensor_randn(ITEMS, 4));
}

static void doubles(job_t *j) {
    adam(j);
    nn_to(j->net, TENSOR_F64);
    data(j, tensor_to(j->x, TENSOR_F64), tensor_to(j->y, TENSOR_F64));
}

// ---- snapshots

// Losses of STEPS steps, with other data each, and all parameters after them.
typedef struct trace_t {
    double loss[STEPS];
    double sum[40];
} trace_t;

static void run(job_t *j, trace_t *t, int by_replay) {
    memset(t, 0, sizeof *t);
    for (int i = 0; i < STEPS; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_copy_(j->x, tensor_randn_like(j->x));        // from the generator
        tensor_scope_end(scope);
        nn_set_lr(j->opt, nn_get_lr(j->opt) * 0.9);
        if (by_replay) {
            CHECK(tensor_graph_replay(j->graph) == 0);
        } else {
            step(j);
        }
        t->loss[i] = tensor_item(j->loss);
    }
    nn_named_list_t list = nn_state(j->net);
    CHECK(list.count <= 40);
    for (int64_t i = 0; i < list.count; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *w = tensor_to(tensor_detach(list.item[i].tensor), TENSOR_F64);
        t->sum[i] = tensor_item(tensor_sum(tensor_mul(w, tensor_add_scalar(w, 0.5))));
        tensor_scope_end(scope);
    }
}

static void same(const char *what, const trace_t *a, const trace_t *b) {
    CHECK_MSG(memcmp(a->loss, b->loss, sizeof a->loss) == 0, "%s: loss %.17g, then %.17g", what,
              a->loss[STEPS - 1], b->loss[STEPS - 1]);
    CHECK_MSG(memcmp(a->sum, b->sum, sizeof a->sum) == 0, "%s: other parameters", what);
}

static void back(make_t make, const char *name) {
    job_t j;
    trace_t first, again, other;
    tensor_manual_seed(5);
    make(&j);
    size_t size = nn_snapshot_size(j.net, j.opt);
    CHECK(size > 0);
    char *fresh = (char *)malloc(size + 1), *later = (char *)malloc(size);
    CHECK(nn_snapshot(j.net, j.opt, fresh + 1, size) == 0);         // before the first step, nowhere aligned
    run(&j, &first, 0);
    CHECK(nn_snapshot_size(j.net, j.opt) == size);

    CHECK(nn_snapshot(j.net, j.opt, later, size) == 0);
    run(&j, &other, 0);
    CHECK_MSG(memcmp(&first, &other, sizeof first) != 0, "%s: nothing changed", name);
    CHECK(nn_restore(j.net, j.opt, later, size) == 0);
    run(&j, &again, 0);
    same(name, &other, &again);

    CHECK(nn_restore(j.net, j.opt, fresh + 1, size) == 0);          // states exist now, as zeros
    run(&j, &again, 0);
    same(name, &first, &again);

    // By replays of a graph that is younger than the block, and eagerly after them.
    capture(&j);
    for (int by_replay = 1; by_replay >= 0; by_replay--) {
        CHECK(nn_restore(j.net, j.opt, later, size) == 0);
        run(&j, &again, by_replay);
        same(name, &other, &again);
    }

    // Not without the optimizer that is the net's.
    job_t k;
    make(&k);
    CHECK(nn_snapshot(j.net, k.opt, later, size) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "has none of the module's parameters: it is the optimizer of another net");
    CHECK(nn_restore(j.net, k.opt, later, size) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "restore: ");
    end(&k);

    // Another object of the same making, which has no states yet.
    make(&k);
    k.y = j.y;
    CHECK(nn_restore(k.net, k.opt, later, size) == 0);
    run(&k, &again, 0);
    same(name, &other, &again);
    end(&k);
    end(&j);
    free(fresh);
    free(later);
}

static void snapshots(void) {
    back(adam, "adam");
    back(sgd, "sgd");
    back(rprop, "rprop");
    back(images, "images");
    back(doubles, "doubles");
}

// Neither function takes memory, and nothing but elements and numbers changes.
static void without_memory(void) {
    job_t j;
    adam(&j);
    step(&j);
    size_t size = nn_snapshot_size(j.net, j.opt);
    char *block = (char *)malloc(size);
    uint64_t before = tensor_memory_stats().allocs;
    CHECK(nn_snapshot(j.net, j.opt, block, size) == 0);
    CHECK(nn_restore(j.net, j.opt, block, size) == 0);
    CHECK(tensor_memory_stats().allocs == before);

    // A forward before the restore saved what the restore changes.
    tensor_t *loss = tensor_mse_loss(nn_forward(j.net, j.x), j.y);
    CHECK(nn_restore(j.net, j.opt, block, size) == 0);
    CHECK(tensor_backward(loss) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "changed in place");
    free(block);
    end(&j);
}

// What a call changes by many others is said of that call, and of its line, whatever came after it.
enum { BY_RESTORE, BY_MEMORY, BY_COPY, BY_FILE, BY_CHECKPOINT, BY_TRAINING, CHANGES };
static int change(const job_t *j, nn_module_t *like, int by, const void *block, size_t size, tensor_t *file,
                  const char **name) {
    static const char model[] = "build/tests/realtime_model.st", state[] = "build/tests/realtime_state.st";
    nn_training_t all;
    memset((void *)&all, 0, sizeof all);
    all.module = j->net;
    all.optimizer = j->opt;
    switch (by) {
    case BY_RESTORE: *name = "restore"; return nn_restore(j->net, j->opt, block, size) ? 0 : __LINE__;
    case BY_COPY: *name = "copy_state"; return nn_copy_state(j->net, like) ? 0 : __LINE__;
    case BY_FILE:
        *name = "load";
        CHECK(nn_save(model, like) == 0);
        return nn_load(model, j->net) ? 0 : __LINE__;
    case BY_CHECKPOINT:
        *name = "load_checkpoint";
        CHECK(nn_save_checkpoint(state, j->net, j->opt, 1) == 0);
        return nn_load_checkpoint(state, j->net, j->opt, NULL) ? 0 : __LINE__;
    case BY_TRAINING: *name = "load_training"; return nn_load_training(state, &all) ? 0 : __LINE__;
    default:
        *name = "load_memory";
        return nn_load_memory(tensor_data(file), (size_t)tensor_numel(file), j->net, 0) ? 0 : __LINE__;
    }
}

static void changed_by(void) {
    job_t j;
    adam(&j);
    nn_module_t *like = nn_clone(j.net);
    step(&j);
    size_t size = nn_snapshot_size(j.net, j.opt);
    char *block = (char *)malloc(size);
    CHECK(nn_snapshot(j.net, j.opt, block, size) == 0);
#ifdef TENSOR_NO_STDIO
    int changes = BY_FILE;
#else
    int changes = CHANGES;
#endif
    for (int by = 0; by < changes; by++) {
        tensor_scope_t scope = tensor_scope_begin();
        const char *name = "";
        char want[100];
        tensor_t *file = nn_save_memory(like), *loss = tensor_mse_loss(nn_forward(j.net, j.x), j.y);
        int line = change(&j, like, by, block, size, file, &name);
        CHECK_MSG(line > 0, "%s: %s", name, tensor_error_text());
        tensor_detach(nn_get(j.net, "3.bias"));             // the last one that was written
        snprintf(want, sizeof want, "changed in place by %s at realtime.c:%d after it was saved", name, line);
        CHECK(tensor_backward(loss) == TENSOR_ERR_AUTOGRAD);
        CHECK_ERROR(TENSOR_ERR_AUTOGRAD, want);
        tensor_scope_end(scope);
    }
    free(block);
    nn_free(like);
    end(&j);
}

// The module alone; the optimizer alone, with its parameters.
static void halves(void) {
    job_t j;
    trace_t first, again;
    sgd(&j);
    step(&j);
    size_t whole = nn_snapshot_size(j.net, j.opt);
    size_t module = nn_snapshot_size(j.net, NULL), optimizer = nn_snapshot_size(NULL, j.opt);
    CHECK(module < optimizer && optimizer < whole);         // whole: running statistics as well
    char *block = (char *)malloc(whole);
    CHECK(nn_snapshot(j.net, NULL, block, whole) == 0);
    float *w = (float *)malloc(8 * 27 * 4), *v = (float *)malloc(8 * 27 * 4);
    CHECK(tensor_copy_out(tensor_detach(nn_get(j.net, "0.weight")), w, 8 * 27 * 4) == 0);
    run(&j, &first, 0);
    CHECK(nn_restore(j.net, NULL, block, whole) == 0);
    CHECK(tensor_copy_out(tensor_detach(nn_get(j.net, "0.weight")), v, 8 * 27 * 4) == 0);
    CHECK(memcmp(v, w, 8 * 27 * 4) == 0);
    nn_eval(j.net);                                         // running statistics stay
    CHECK(nn_snapshot(NULL, j.opt, block, whole) == 0);
    run(&j, &first, 0);
    CHECK(nn_restore(NULL, j.opt, block, whole) == 0);
    run(&j, &again, 0);
    same("optimizer", &first, &again);
    free(block);
    free(v);
    free(w);
    end(&j);
}

static void other_blocks(void) {
    job_t j, k;
    trace_t before, after;
    adam(&j);
    sgd(&k);
    size_t size = nn_snapshot_size(j.net, j.opt), other = nn_snapshot_size(k.net, k.opt);
    size_t most = 4 * (size > other ? size : other);
    char *block = (char *)malloc(most);
    CHECK(nn_snapshot(j.net, j.opt, block, size - 1) == TENSOR_ERR_SHAPE);
    char part[60];
    snprintf(part, sizeof part, "snapshot: the block has %d bytes, it needs %d", (int)size - 1, (int)size);
    CHECK_ERROR(TENSOR_ERR_SHAPE, part);
    CHECK(nn_snapshot(j.net, j.opt, NULL, size) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "the block is NULL");
    CHECK(nn_snapshot(NULL, NULL, block, size) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "snapshot: the module is NULL");
    nn_optimizer_t *lbfgs = nn_lbfgs(j.net);
    CHECK(nn_snapshot_size(j.net, lbfgs) == 0);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "snapshot_size: lbfgs has states that change");
    nn_optimizer_free(lbfgs);

    // Blocks of others. After the refusals, nothing has changed.
    step(&j);
    CHECK(nn_snapshot(j.net, j.opt, block, most) == 0);
    run(&j, &before, 0);
    CHECK(nn_restore(j.net, j.opt, block, most) == 0);
    tensor_generator_t rng = tensor_get_generator();
    char *good = (char *)malloc(most);
    memcpy(good, block, most);
    memset(block, 0, 100);
    CHECK(nn_restore(j.net, j.opt, block, most) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: nn_snapshot did not write this block");
    CHECK(nn_restore(j.net, j.opt, good, size / 2) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "restore: the block has");
    CHECK(nn_snapshot(k.net, k.opt, block, most) == 0);
    CHECK(nn_restore(j.net, j.opt, block, most) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: the block has the state of sgd, not of adam");
    CHECK(nn_restore(j.net, NULL, good, most) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "the block has the state of adam, not of no optimizer");
    CHECK(nn_snapshot(k.net, NULL, block, most) == 0);
    CHECK(nn_restore(j.net, NULL, block, most) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: the block has 9 tensors of a model, 0 parameters in 0 groups");

    // Other layers, other names, another order of the optimizer's parameters, each of the same shapes.
    for (int kind = 0; kind < 3; kind++) {
        nn_module_t *like = nn_sequential(nn_linear(8, 8), kind ? nn_tanh() : nn_relu(), nn_linear(8, 8));
        nn_module_t *from = nn_sequential(nn_linear(8, 8), nn_tanh(), nn_linear(8, 8));
        if (kind == 1) {
            nn_free(from);
            from = nn_sequential(nn_linear(8, 8), nn_linear(8, 8), nn_tanh());
        }
        tensor_t *p[4], *back[4];
        CHECK(nn_parameters(from, p, 4) == 4);
        for (int i = 0; i < 4; i++) { back[i] = p[(i + 2) % 4]; }
        nn_optimizer_t *of = nn_adam(like);
        nn_optimizer_t *at = kind == 2 ? nn_adam(.list = back, .count = 4) : nn_adam(from);
        CHECK(nn_snapshot(from, at, block, most) == 0);
        CHECK(nn_restore(like, of, block, most) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: the block is of a module of as many tensors, but of other");
        CHECK(nn_restore(from, at, block, most) == 0);
        nn_optimizer_free(of);
        nn_optimizer_free(at);
        nn_free(like);
        nn_free(from);
    }

    nn_module_t *wide = nn_sequential(nn_linear(8, 64), nn_relu(), nn_dropout(0.2), nn_linear(64, 5));
    nn_optimizer_t *opt = nn_adam(wide);
    CHECK(nn_snapshot(wide, opt, block, most) == 0);
    CHECK(nn_restore(j.net, j.opt, block, most) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: 3.weight is [4,64] f32, in the block it is [5,64] f32");
    nn_optimizer_free(opt);
    nn_free(wide);

    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    CHECK(nn_snapshot(j.net, j.opt, block, most) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "snapshot: not in a capture, whose replays would not do it again");
    CHECK(nn_restore(j.net, j.opt, good, most) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "restore: not in a capture, whose replays would not do it again");
    CHECK(tensor_graph_free(tensor_capture_end()) == 0);

    tensor_set_generator(rng);
    run(&j, &after, 0);
    same("after refusals", &before, &after);

    // Every cut and every flipped byte of the head: all is restored, or an error and all is as it was.
    size_t from = nn_snapshot_size(j.net, j.opt);
    char *was = (char *)malloc(from), *is = (char *)malloc(from), *exact = (char *)malloc(from);
    CHECK(nn_snapshot(j.net, j.opt, was, from) == 0 && memcmp(was, good, from) != 0);
    for (size_t cut = 0; cut < from; cut++) {
        char *less = (char *)malloc(cut + 1);
        memcpy(less, good, cut);
        CHECK(nn_restore(j.net, j.opt, less, cut) != 0);
        tensor_clear_error();
        free(less);
    }
    CHECK(nn_snapshot(j.net, j.opt, is, from) == 0 && memcmp(is, was, from) == 0);
    for (size_t i = 0; i < 900 && i < from; i++) {
        memcpy(exact, good, from);
        exact[i] = (char)(exact[i] ^ 0x55);
        int restored = nn_restore(j.net, j.opt, exact, from) == 0;
        tensor_clear_error();
        CHECK(nn_snapshot(j.net, j.opt, is, from) == 0);
        int as_given = memcmp(is, exact, from) == 0 || memcmp(is, good, from) == 0; // a byte that is not read
        int whole = restored ? as_given : memcmp(is, was, from) == 0;
        CHECK_MSG(whole, "byte %d: half is restored", (int)i);
        memcpy(was, is, from);
    }

    // A head that counts less than itself, and a count after which there is none.
    for (uint64_t less = 0; less < 320; less += 8) {
        memcpy(exact, good, from);
        memcpy(exact + 24, &less, sizeof less);
        CHECK(nn_restore(j.net, j.opt, exact, from) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: the block ends too early");
    }
    static const int64_t counts[8] = {1, 0, 1, 0, 1, 0, 1, 0};      // of four parameters: step, group
    size_t at = 0;
    while (at + sizeof counts < from && memcmp(good + at, counts, sizeof counts) != 0) { at += 8; }
    CHECK(at + sizeof counts < from);
    memcpy(exact, good, from);
    int64_t last = INT64_MAX;
    memcpy(exact + at, &last, sizeof last);
    CHECK(nn_restore(j.net, j.opt, exact, from) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "restore: the block holds a count or group of parameter 0");

    CHECK(nn_restore(j.net, j.opt, good, from) == 0);
    run(&j, &after, 0);
    same("after damage", &before, &after);
    free(exact);
    free(was);
    free(is);
    free(block);
    free(good);
    end(&j);
    end(&k);
}

// ---- slices

static double clock_us(void) {
#if defined(TIME_UTC)
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
#else
    return (double)clock() * 1e6 / CLOCKS_PER_SEC;
#endif
}

// One step in slices. -> their number
static int sliced(job_t *j, double budget) {
    int slices = 1, r;
    while ((r = tensor_graph_resume(j->graph, budget)) == 0) {
        slices++;
        tensor_scope_t scope = tensor_scope_begin();        // the frame's work, with its own random numbers
        tensor_generator_t rng = tensor_get_generator();
        tensor_matmul(tensor_randn(20, 20), tensor_ones(20, 20));
        tensor_set_generator(rng);
        tensor_scope_end(scope);
    }
    CHECK_MSG(r == 1, "%s", tensor_error_text());
    return slices;
}

// The calls of a graph; those of a group are one.
static int64_t units(const tensor_graph_t *g) {
    int64_t n = tensor_graph_info(g).block_groups;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) { n += tensor_graph_call(g, i).block_group < 0; }
    return n;
}

// A group ends its slice between blocks.
static void parts_of_a_group(void) {
    enum { N = 200000 };
    tensor_t *x = tensor_requires_grad_(tensor_randn(N), 1), *y;
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    y = tensor_keep(tensor_tanh(tensor_mul(x, x)));
    tensor_backward(tensor_sum(tensor_square(y)));
    tensor_scope_end(scope);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_graph_info(g).block_groups == 1 && units(g) < 5);
    CHECK(tensor_graph_replay(g) == 0);
    tensor_t *want = tensor_clone(tensor_detach(y)), *grad = tensor_clone(tensor_grad(x));
    for (int threads = 1; threads <= 3; threads += 2) {
        if (tensor_set_num_threads(threads)) {
            tensor_clear_error();               // TENSOR_NO_THREADS
            continue;
        }
        tensor_fill_(tensor_detach(y), 0);
        tensor_fill_(tensor_grad(x), 0);
        int n = 1, r;
        while ((r = tensor_graph_resume(g, 0)) == 0) { n++; }
        CHECK(r == 1 && n > (threads == 1 ? 12 : 4));
        CHECK(tensor_equal(want, tensor_detach(y)) && tensor_equal(grad, tensor_grad(x)));
        CHECK(tensor_graph_replay(g) == 0 && tensor_equal(grad, tensor_grad(x)));
    }

    // The plan for other threads takes memory, which is refused in real time; the graph stays good.
    if (tensor_set_num_threads(4) == 0) {
        tensor_set_realtime(1);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_OUT_OF_MEMORY);
        CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "in real time (tensor_set_realtime) at realtime.c:");
        tensor_set_realtime(0);
        CHECK(tensor_graph_replay(g) == 0 && tensor_equal(grad, tensor_grad(x)));
    }
    tensor_clear_error();
    tensor_set_num_threads(1);
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(y);
}

static void slices(void) {
    static const make_t all[] = {adam, sgd, images};
    for (int k = 0; k < 3; k++) {
        job_t j;
        trace_t want, got;
        tensor_manual_seed(9);
        all[k](&j);
        step(&j);
        size_t size = nn_snapshot_size(j.net, j.opt);
        char *block = (char *)malloc(size);
        CHECK(nn_snapshot(j.net, j.opt, block, size) == 0);
        run(&j, &want, 0);
        capture(&j);
        for (int budget = 0; budget < 3; budget++) {
            CHECK(nn_restore(j.net, j.opt, block, size) == 0);
            memset(&got, 0, sizeof got);
            int most = 0;
            for (int i = 0; i < STEPS; i++) {
                tensor_scope_t scope = tensor_scope_begin();
                tensor_copy_(j.x, tensor_randn_like(j.x));
                tensor_scope_end(scope);
                nn_set_lr(j.opt, nn_get_lr(j.opt) * 0.9);
                int n = sliced(&j, budget == 0 ? 0 : budget == 1 ? 10 : 1e9);
                most = n > most ? n : most;
                got.loss[i] = tensor_item(j.loss);
            }
            CHECK(memcmp(got.loss, want.loss, sizeof got.loss) == 0);
            if (budget == 0) { CHECK(most > units(j.graph)); }      // the optimizer counts too
            if (budget == 2) { CHECK(most == 1); }
        }

        // What a step under way refuses, and a step that ends by an error.
        CHECK(tensor_graph_resume(j.graph, 0) == 0);
        CHECK(tensor_graph_replay(j.graph) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_replay: a step of this graph is under way");
        CHECK(tensor_graph_resume(j.graph, (double)NAN) == -TENSOR_ERR_SHAPE);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "graph_resume: budget_us is NaN at realtime.c:");
        CHECK(tensor_graph_resume(j.graph, 1e9) == 1);
        CHECK(tensor_graph_replay(j.graph) == 0);
        CHECK(tensor_graph_resume(NULL, 1) == -TENSOR_ERR_POISONED);
        CHECK_ERROR(TENSOR_ERR_POISONED, "graph_resume: the graph is NULL");
        CHECK(tensor_graph_resume(j.graph, 0) == 0);        // freed in the middle
        end(&j);
        free(block);
    }
}

static void scaled_step(job_t *j, tensor_t *scaler, int scaled) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    nn_zero_grad(j->opt);
    tensor_backward(scaled ? nn_scaler_scale(scaler, loss) : loss);
    if (scaled) { nn_scaler_unscale(scaler, j->opt); }
    nn_clip_grad_norm(j->opt, 0.1);
    if (scaled) {
        nn_scaler_step(scaler, j->opt);
        nn_scaler_update(scaler);
    } else {
        nn_step(j->opt);
    }
    tensor_copy_(j->loss, tensor_detach(loss));
    tensor_scope_end(scope);
}

// A call whose result takes the place of what it reads is under way when the plan changes: what it has done
// stays done, and is not done to the results.
static void replanned(void) {
    enum { N = 300000 };
    int refused = 0;
    for (int kind = 0; kind < 4; kind++) {
        int isa = kind % 2;
        tensor_t *x = tensor_rand(N), *from = tensor_clone(x), *y = NULL;
        tensor_scope_t scope = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        if (kind < 2) {
            tensor_mul_scalar_(x, 2);                               // exact with each instruction set
        } else {
            y = tensor_sort(tensor_mul_scalar(tensor_sort(x, 0, 0).values, 2), 0, 0).values;
        }
        y = tensor_keep(tensor_neg(kind < 2 ? tensor_sort(x, 0, 0).values : y));
        tensor_scope_end(scope);
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%s", tensor_error_text());
        tensor_t *want = tensor_clone(y);
        for (int before = 1; before < 24; before += 4) {
            tensor_copy_(x, from);
            tensor_fill_(y, 0);
            int r = 0;
            for (int i = 0; i < before && r == 0; i++) { r = tensor_graph_resume(g, 0); }
            CHECK(r == 0);
            if (isa) {
                // A call that is under way ends with the kernels that began it.
                CHECK(tensor_set_isa("scalar") == 0);
                r = tensor_graph_resume(g, 0);
                if (r < 0) {
                    CHECK(r == -TENSOR_ERR_UNSUPPORTED);
                    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                                "is under way with the kernels of another instruction set");
                    refused++;
                    CHECK(tensor_set_isa(NULL) == 0);
                    r = 0;
                }
            } else if (tensor_set_num_threads(3)) {
                tensor_clear_error();                               // TENSOR_NO_THREADS
            }
            while (r == 0) { r = tensor_graph_resume(g, 0); }
            CHECK_MSG(r == 1 && tensor_equal(y, want), "kind %d, after %d slices", kind, before);
            tensor_set_isa(NULL);
            tensor_set_num_threads(1);
        }
        CHECK(tensor_graph_free(g) == 0);
        tensor_free(y);
    }
    CHECK(refused > 0 || !strcmp(tensor_isa_name(), "scalar"));
}

// The norm of clipping, and what a scaler finds, are not known before all gradients were seen, however many
// slices that takes.
static void clipped_in_slices(void) {
    for (int scaled = 0; scaled < 2; scaled++) {
        double loss[2][STEPS];
        for (int captured = 0; captured < 2; captured++) {
            job_t j;
            tensor_manual_seed(3);
            j.net = nn_sequential(nn_linear(300, 400), nn_relu(), nn_linear(400, 30));
            j.opt = nn_adam(j.net, .lr = 0.01);
            data(&j, tensor_randn(ITEMS, 300), tensor_randn(ITEMS, 30));
            tensor_t *scaler = nn_grad_scaler(64, 3);
            scaled_step(&j, scaler, scaled);
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            scaled_step(&j, scaler, scaled);
            if (captured) { j.graph = tensor_capture_end(); }
            for (int i = 0; i < STEPS; i++) {
                int r = 0;
                if (!captured) { scaled_step(&j, scaler, scaled); }
                while (captured && r == 0) { r = tensor_graph_resume(j.graph, 0); }
                CHECK_MSG(r == captured, "%s", tensor_error_text());
                loss[captured][i] = tensor_item(j.loss);
            }
            end(&j);
            tensor_free(scaler);
        }
        CHECK_MSG(memcmp(loss[0], loss[1], sizeof loss[0]) == 0, "scaled %d: %.9g, by slices %.9g", scaled,
                  loss[0][STEPS - 1], loss[1][STEPS - 1]);
        CHECK(loss[0][0] != loss[0][STEPS - 1]);
    }
}

// A long call ends its slice between its tasks: products with and without an activation, some of them of long
// sums; convolutions of each kind; attention; norms; pools; a loss; the optimizer; recurrent layers,
// embeddings, dropout, softmax, sums of rows, clipping that scales.
enum { LONG_KINDS = 13, LONG_STEPS = 3 };
typedef struct long_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y, *loss;
    double clip;
} long_t;
static void long_make(long_t *l, int kind) {
    tensor_manual_seed(40 + kind);
    l->x = tensor_randn(16, 3000);
    l->clip = kind < 5 ? 0 : 0.01;
    if (kind == 0) {                        // the first sum is made in several rounds
        l->x = tensor_randn(100, 2000);
        l->net = nn_sequential(nn_linear(2000, 300), nn_relu(), nn_linear(300, 200), nn_gelu(),
                               nn_linear(200, 30, .no_bias = 1));
    } else if (kind == 1) {                 // a sum that is split, and few rows
        l->net = nn_sequential(nn_linear(3000, 24), nn_relu(), nn_linear(24, 5));
    } else if (kind == 2) {
        l->net = nn_sequential(nn_conv2d(3, 16, 3, .padding = 1), nn_batch_norm2d(16), nn_relu(),
                               nn_conv2d(16, 32, 3, .padding = 1), nn_max_pool2d(2),
                               nn_conv2d(32, 8, 5, .stride = 2), nn_avg_pool2d(2),
                               nn_flatten(), nn_linear(72, 5));
        l->x = tensor_randn(4, 3, 32, 32);
    } else if (kind == 3) {
        l->net = nn_sequential(nn_conv_transpose2d(8, 6, 4, .stride = 2), nn_conv2d(6, 6, 3, .groups = 2),
                               nn_conv2d(6, 12, 1), nn_flatten(), nn_linear(12 * 32 * 32, 3));
        l->x = tensor_randn(2, 8, 16, 16);
    } else if (kind == 4) {
        l->net = nn_transformer_encoder_layer(64, 4, .feedforward = 256);
        l->x = tensor_randn(100, 6, 64);
    } else if (kind == 5) {
        l->net = nn_sequential(nn_embedding(700, 64), nn_dropout(0.3), nn_lstm(64, 72), nn_linear(72, 700),
                               nn_log_softmax(-1));
        l->x = tensor_randint(0, 700, 40, 24);
    } else if (kind == 6) {
        l->net = nn_sequential(nn_gru(48, 56, .bidirectional = 1), nn_linear(112, 600), nn_softmax(-1));
        l->x = tensor_randn(40, 24, 48);
    } else if (kind == 7) {                 // nothing is long but for the steps
        l->net = nn_lstm(6, 5);
        l->x = tensor_randn(60, 2, 6);
    } else if (kind == 8) {                 // each image is a long product
        l->net = nn_conv2d(64, 128, 1, .stride = 2);
        l->x = tensor_randn(8, 64, 32, 32);
    } else if (kind == 9) {                 // and a long sum
        l->net = nn_conv2d(96, 64, 3, .stride = 2, .padding = 1);
        l->x = tensor_randn(12, 96, 14, 14);
    } else if (kind == 10) {                // each step of a recurrent net is a long product
        l->net = nn_lstm(20, 176);
        l->x = tensor_randn(5, 24, 20);
    } else if (kind == 11) {
        l->net = nn_gru(20, 176, .bidirectional = 1);
        l->x = tensor_randn(5, 30, 20);
    } else {
        l->net = nn_rnn(20, 300);
        l->x = tensor_randn(5, 40, 20);
    }
    if (kind > 7) { tensor_requires_grad_(l->x, 1); }
    l->opt = nn_adam(l->net, .lr = 0.01);
    tensor_scope_t scope = tensor_scope_begin();
    l->y = tensor_keep(tensor_randn_like(nn_forward(l->net, l->x)));
    tensor_scope_end(scope);
    l->loss = tensor_scalar(0, TENSOR_F32);
}
static void long_step(long_t *l) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(l->opt);
    if (tensor_requires_grad(l->x)) { tensor_set_grad(l->x, NULL); }
    tensor_t *loss = tensor_mse_loss(nn_forward(l->net, l->x), l->y);
    tensor_backward(loss);
    if (l->clip > 0) { nn_clip_grad_norm(l->opt, l->clip); }
    nn_step(l->opt);
    tensor_copy_(l->loss, tensor_detach(loss));
    tensor_scope_end(scope);
}
static void long_end(long_t *l) {
    tensor_free(l->y);
    nn_optimizer_free(l->opt);
    nn_free(l->net);
}
static void parts_of_a_call(void) {
    for (int kind = 0; kind < LONG_KINDS; kind++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            long_t l;
            double want[LONG_STEPS], got[LONG_STEPS];
            long_make(&l, kind);
            for (int i = 0; i < 2 + LONG_STEPS; i++) {
                long_step(&l);
                if (i > 1) { want[i - 2] = tensor_item(l.loss); }
            }
            long_end(&l);
            long_make(&l, kind);
            long_step(&l);
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            long_step(&l);
            tensor_graph_t *g = tensor_capture_end();
            int slices = 0, r;
            for (int i = 0; i < LONG_STEPS; i++) {
                while ((r = tensor_graph_resume(g, i < 2 ? 0 : 100)) == 0) {
                    slices += i == 0;
                    tensor_scope_t scope = tensor_scope_begin();        // what needs the thread's scratch
                    tensor_generator_t rng = tensor_get_generator();
                    tensor_t *a = tensor_randn(150, 130);
                    tensor_matmul(a, tensor_transpose(a, 0, 1));
                    tensor_set_generator(rng);
                    tensor_scope_end(scope);
                }
                CHECK(r == 1);
                got[i] = tensor_item(l.loss);
            }
            int parts = kind < 7 || kind == 9 ? 3 : 100;        // the convolution of kind 8 has 8 tasks
            if (kind > 9) { parts = threads > 1 ? 180 : 500; }  // each step's product has some
            CHECK_MSG(slices > units(g) + parts, "kind %d: %d slices of %d calls", kind, slices,
                      (int)units(g));
            CHECK_MSG(memcmp(want, got, sizeof got) == 0, "kind %d, %d threads: %.9g %.9g %.9g", kind,
                      threads, got[0] - want[0], got[1] - want[1], got[2] - want[2]);
            CHECK(tensor_graph_free(g) == 0);
            long_end(&l);
        }
        tensor_set_num_threads(1);
    }
}

// More threads between two slices: a call that is under way has scratch for those of its beginning. Matrices,
// of which none is singular; a convolution, whose tasks make products of their own.
static void threads_between(void) {
    for (int kind = 0; kind < 2; kind++) {
        tensor_manual_seed(50 + kind);
        tensor_t *x = kind ? tensor_randn(8, 16, 24, 24) : tensor_randn(300, 12, 12);
        tensor_t *w = tensor_randn(300, kind ? 16 : 12, 1, 1);
        tensor_t *b = tensor_randn(300, 12, 3), *y = NULL, *got = NULL;
        tensor_graph_t *g = NULL;
        for (int captured = 0; captured < 2; captured++) {
            tensor_scope_t scope = tensor_scope_begin();
            if (captured) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
            tensor_t *z = kind ? tensor_conv2d(x, w, .stride = 2) : tensor_linalg_solve(x, b);
            *(captured ? &got : &y) = tensor_keep(z);
            tensor_scope_end(scope);
            if (captured) { g = tensor_capture_end(); }
        }
        tensor_fill_(got, 7);
        CHECK(tensor_graph_resume(g, 0) == 0);
        tensor_t *full[40];                                 // what the allocator gives next is not zero
        for (int i = 0; i < 40; i++) { full[i] = tensor_keep(tensor_full(3, 1 << (i % 20))); }
        for (int i = 0; i < 40; i++) { tensor_free(full[i]); }
        if (tensor_set_num_threads(4)) { tensor_clear_error(); }    // TENSOR_NO_THREADS
        int r;
        while ((r = tensor_graph_resume(g, 0)) == 0) { }
        CHECK_MSG(r == 1, "kind %d: %s", kind, tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(tensor_equal(y, got), "kind %d: other elements", kind);
        CHECK(tensor_set_num_threads(1) == 0);
        CHECK(tensor_graph_free(g) == 0);
        tensor_free(y);
        tensor_free(got);
    }
}

// Calls whose tasks come one after the other: a sort of one row, scattered writes, fills, blocks of a head.
enum { IN_TURN = 8 };
typedef struct turns_t {
    tensor_t *x, *many, *rows, *index, *other, *q, *y[2];
    int n;
} turns_t;

static void turns_step(turns_t *t, int kind) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *zero = tensor_zeros(200, 64);
    t->n = 1;
    if (kind == 0) {
        tensor_pair_t p = tensor_sort(t->x, -1, 1);
        t->y[1] = tensor_keep(p.indices);
        t->n = 2;
        t->y[0] = p.values;
    } else if (kind == 1) {
        t->y[0] = tensor_index_add(zero, 0, t->index, t->rows);
    } else if (kind == 2) {                 // sums in double
        t->y[0] = tensor_scatter_add(tensor_flatten(zero, 0, -1), 0, t->other, t->many);
    } else if (kind == 3) {
        t->y[0] = tensor_scatter_reduce(tensor_flatten(zero, 0, -1), 0, t->other, t->many, "amax", 1);
    } else if (kind == 4) {
        tensor_t *columns = tensor_remainder_scalar(t->other, 64);
        tensor_t *lines = tensor_remainder_scalar(t->other, 200);
        t->y[0] = tensor_index_put(zero, t->many, 1, lines, columns);
    } else if (kind == 5) {
        t->y[0] = tensor_full(3, 100000);
        tensor_index_copy_(t->y[0], 0, t->other, t->many);
    } else if (kind == 6) {                 // in place, in a tensor that the step has made
        t->y[0] = tensor_add_scalar(zero, 1);
        tensor_index_add_(t->y[0], 0, t->index, t->rows);
    } else {
        tensor_set_grad(t->q, NULL);
        tensor_t *y = tensor_scaled_dot_product_attention(t->q, t->q, t->q, .is_causal = 1);
        tensor_backward(tensor_sum(tensor_square(y)));
        t->y[0] = tensor_grad(t->q);
    }
    t->y[0] = tensor_keep(t->y[0]);
    tensor_scope_end(scope);
}

static void turns_data(turns_t *t) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_copy_(t->x, tensor_round(tensor_mul_scalar(tensor_randn(60000), 1000)));
    tensor_copy_(t->many, tensor_randn(60000));
    tensor_copy_(t->rows, tensor_randn(3000, 64));
    tensor_copy_(t->index, tensor_randint(0, 200, 3000));
    tensor_copy_(t->other, tensor_randint(0, 12800, 60000));
    tensor_copy_(t->q, tensor_randn(2, 300, 40));
    tensor_scope_end(scope);
}

static void parts_in_turn(void) {
    static const int parts[IN_TURN] = {100, 10, 30, 30, 12, 12, 10, 8};
    turns_t t, want;
    memset(&t, 0, sizeof t);
    t.x = tensor_zeros(60000);
    t.many = tensor_zeros(60000);
    t.rows = tensor_zeros(3000, 64);
    t.index = tensor_zeros_of(TENSOR_I64, 3000);
    t.other = tensor_zeros_of(TENSOR_I64, 60000);
    t.q = tensor_requires_grad_(tensor_zeros(2, 300, 40), 1);
    for (int kind = 0; kind < IN_TURN; kind++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            tensor_manual_seed(60 + kind);
            turns_data(&t);
            turns_step(&t, kind);
            for (int i = 0; i < t.n; i++) { tensor_free(t.y[i]); }
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            turns_step(&t, kind);
            tensor_graph_t *g = tensor_capture_end();
            turns_data(&t);
            int slices = 1, r;
            while ((r = tensor_graph_resume(g, 0)) == 0) {
                slices++;
                tensor_scope_t scope = tensor_scope_begin();            // what needs the thread's scratch
                tensor_sort(tensor_randn(500), 0, 0);
                tensor_scope_end(scope);
            }
            CHECK_MSG(r == 1, "kind %d: %s", kind, tensor_error_text());
            CHECK_MSG(slices > (int)units(g) + parts[kind], "kind %d: %d slices of %d calls", kind, slices,
                      (int)units(g));
            want = t;
            turns_step(&want, kind);
            if (kind == IN_TURN - 1) { CHECK(tensor_graph_replay(g) == 0); }    // links its gradient again
            for (int i = 0; i < t.n; i++) {
                CHECK_MSG(test_same_bits(t.y[i], want.y[i]), "kind %d, %d threads: result %d differs", kind,
                          threads, i);
                tensor_free(t.y[i]);
                tensor_free(want.y[i]);
            }
            CHECK(tensor_graph_free(g) == 0);
        }
        tensor_set_num_threads(1);
    }
    tensor_set_grad(t.q, NULL);
}

// Calls whose work is one row, one matrix or few sums: they are interrupted within it. Some come twice, so
// that a row or a matrix follows another one.
typedef struct one_t {
    const char *name;
    int parts;                          // slices beyond its calls, at least
} one_t;
static const one_t ONES[] = {
    {"topk", 60}, {"topk unsorted", 60}, {"topk of few", 40}, {"topk of rows", 80}, {"kthvalue", 60},
    {"median", 60}, {"median of NaN", 14}, {"nanmedian", 60}, {"mode", 60}, {"cummax", 26}, {"cummin", 26},
    {"sum", 300}, {"sum of rows", 150}, {"mean of columns", 15}, {"sum of two", 80}, {"amax of rows", 80},
    {"lu_factor", 140}, {"det", 140}, {"solve", 400}, {"solve of two", 900}, {"cholesky", 140},
    {"cholesky_ex", 140}, {"cholesky_ex, none", 140}, {"qr", 400}, {"qr, complete", 400}, {"geqrf", 240},
    {"solve_triangular", 140},
    {"eigh", 800}, {"eigh of two, upper", 1600}, {"svd", 2000}, {"svd of wide, all", 2000},
    {"softmax", 170}, {"softmax of rows", 170}, {"softmax of f64", 280}, {"log_softmax", 170},
    {"log_softmax of f64", 280}, {"logsumexp", 110}, {"logsumexp of f64", 220}, {"cumsum", 170},
    {"cumsum of integers", 170}, {"cumprod", 170}, {"cumprod of integers", 170}, {"logcumsumexp", 170},
    {"var", 220}, {"norm", 220}, {"argmax", 110}, {"argmin of NaN", 110}, {"argmax of f64", 170},
    {"argmin of integers", 170}, {"softmax, gradient", 280}, {"softmax of f64, gradient", 500},
    {"log_softmax, gradient", 280}, {"log_softmax of f64, gradient", 500}, {"cumsum, gradient", 170},
    {"cumprod, gradient", 340}, {"logcumsumexp, gradient", 340}, {"prod, gradient", 220},
    {"group_norm, gradient", 70}, {"batch_norm, gradient", 70},
    {"layer_norm, gradient", 70}, {"rms_norm, gradient", 70}, {"layer_norm of f64, gradient", 70},
    {"layer_norm of rows, gradient", 70}, {"cross_entropy, gradient", 70},
    {"cross_entropy, smoothed, gradient", 70}, {"cross_entropy of f64, gradient", 70},
    {"cross_entropy of infinities, gradient", 70}, {"nll_loss, gradient", 70},
    {"cross_entropy of many, gradient", 20}, {"binary_cross_entropy, gradient", 30},
    {"embedding of one row, gradient", 10}, {"embedding of many, gradient", 20},
    {"embedding, sums in double", 40}, {"index_select of a row", 3}, {"index_add of a row", 6},
    {"index_copy of a row", 6},
    {"max_pool, gradient", 22}, {"max_pool of long windows, gradient", 7},
    {"max_pool of a plane, gradient", 4}, {"max_pool of f64, gradient", 10}, {"avg_pool, gradient", 30},
    {"avg_pool of long windows, gradient", 10}, {"avg_pool of a plane, gradient", 6},
    {"avg_pool1d, gradient", 19}, {"avg_pool of f64, gradient", 35}, {"adaptive_avg_pool3d, gradient", 7},
    {"adaptive_max_pool2d, gradient", 5}, {"lp_pool2d, gradient", 10}, {"im2col, gradient", 52},
    {"im2col of a line, gradient", 17}, {"im2col of large kernels, gradient", 331}, {"col2im, gradient", 7},
    {"conv1d of a line, gradient", 865}, {"conv1d of one channel, gradient", 304},
    {"conv1d of many channels, gradient", 22}, {"conv1d of f64, gradient", 702},
    {"conv2d of few channels, gradient", 382}, {"conv2d of one channel, gradient", 331},
    {"conv2d with a stride, gradient", 525}, {"conv2d of a large kernel, gradient", 303},
    {"conv2d of few images, gradient", 409}, {"conv3d, gradient", 1280}, {"conv_transpose2d, gradient", 632},
    {"ctc_loss, gradient", 40}, {"ctc_loss", 20}, {"attention of few queries, gradient", 310},
    {"attention of long keys, gradient", 847}, {"attention of f64, causal, gradient", 28},
};
enum { ONE_KINDS = sizeof ONES / sizeof *ONES };
enum {                                  // the first of a sort
    ONES_EIGEN = 27, ONES_ROWS = 31, ONES_GRADIENTS = 49, ONES_NETS = 59, ONES_IMAGES = 76
};
typedef struct ones_t {
    tensor_t *x, *nan, *rows, *square, *two, *tall, *b, *y[3];
    int n;
} ones_t;

static void ones_pair(ones_t *t, tensor_t *a, tensor_t *b) {
    t->y[0] = a;
    t->y[1] = b;
    t->n = 2;
}

static void ones_order(ones_t *t, int kind) {
    tensor_pair_t p;
    switch (kind) {
    case 0: p = tensor_topk(t->x, 20000, -1, 1, 1); break;
    case 1: p = tensor_topk(t->x, 20000, -1, 0, 0); break;
    case 2: p = tensor_topk(t->x, 20, -1, 1, 1); break;
    case 3: p = tensor_topk(t->rows, 9000, -1, 1, 1); break;
    case 4: p = tensor_kthvalue(t->x, 31000, -1, 0); break;
    case 5: p = tensor_median_dim(t->x, -1, 0); break;
    case 6: p = tensor_median_dim(t->nan, -1, 0); break;
    case 7: p = tensor_nanmedian_dim(t->nan, -1, 0); break;
    case 8: p = tensor_mode(t->x, -1, 0); break;
    case 9: p = tensor_cummax(t->x, -1); break;
    default: p = tensor_cummin(t->nan, -1); break;
    }
    ones_pair(t, p.values, p.indices);
}

static void ones_sums(ones_t *t, int kind) {
    static const int64_t first[2] = {0, 1}, last[2] = {1, 2};
    tensor_t *x = tensor_flatten(t->rows, 0, -1);
    if (kind == 11) {                               // 20 million
        t->y[0] = tensor_sum(tensor_expand(x, 341, 60000));
    } else if (kind == 12) {
        t->y[0] = tensor_sum_dims(tensor_expand(x, 40, 5, 60000), last, 2, 0);
    } else if (kind == 13) {
        t->y[0] = tensor_mean_dims(tensor_expand(tensor_reshape(x, 1000, 60), 20, 1000, 60), first, 2, 0);
    } else if (kind == 14) {
        t->y[0] = tensor_sum_dims(tensor_expand(x, 2, 50, 60000), last, 2, 0);
    } else {
        t->y[0] = tensor_amax_dim(tensor_expand(x, 100, 60000), 1, 0);
    }
}

static void ones_matrix(ones_t *t, int kind) {
    tensor_t *a = t->square, *positive = tensor_matmul(a, tensor_transpose(a, 0, 1));
    if (kind == 16) {
        tensor_lu_factor_t f = tensor_linalg_lu_factor(a);
        ones_pair(t, f.lu, f.pivots);
    } else if (kind == 17) {
        t->y[0] = tensor_linalg_det(a);
    } else if (kind == 18) {
        t->y[0] = tensor_linalg_solve(a, t->b);
    } else if (kind == 19) {
        t->y[0] = tensor_linalg_solve(t->two, t->b);
    } else if (kind == 20) {
        t->y[0] = tensor_linalg_cholesky(positive, 0);
    } else if (kind < 23) {
        tensor_linalg_ex_t e = tensor_linalg_cholesky_ex(kind == 21 ? positive : a, 0);
        ones_pair(t, e.result, e.info);
    } else if (kind < 25) {
        tensor_qr_t f = tensor_linalg_qr(t->tall, kind == 23 ? NULL : "complete");
        ones_pair(t, f.q, f.r);
    } else if (kind == 25) {
        tensor_qr_t f = tensor_geqrf(tensor_transpose(t->tall, 0, 1));
        ones_pair(t, f.q, f.r);
    } else {
        t->y[0] = tensor_linalg_solve_triangular(a, t->b, 1, 1, 0);
    }
}

static void ones_eigen(ones_t *t, int kind) {
    if (kind < ONES_EIGEN + 2) {
        tensor_eigh_t e = tensor_linalg_eigh(kind == ONES_EIGEN ? t->square : t->two, kind > ONES_EIGEN);
        ones_pair(t, e.eigenvalues, e.eigenvectors);
        return;
    }
    int wide = kind == ONES_EIGEN + 3;
    tensor_linalg_svd_t d = tensor_linalg_svd(wide ? tensor_transpose(t->tall, 0, 1) : t->tall, wide);
    ones_pair(t, d.u, d.s);
    t->y[t->n++] = d.vh;
}

static void ones_rows(ones_t *t, int kind) {
    tensor_t *x = t->x, *small = tensor_mul_scalar(x, 1e-3), *wide = tensor_to(small, TENSOR_F64);
    tensor_t *integers = tensor_to(x, TENSOR_I64);
    switch (kind - ONES_ROWS) {
    case 0: t->y[0] = tensor_softmax(small, 0); break;
    case 1: t->y[0] = tensor_softmax(t->rows, 1); break;
    case 2: t->y[0] = tensor_softmax(wide, 0); break;
    case 3: t->y[0] = tensor_log_softmax(small, 0); break;
    case 4: t->y[0] = tensor_log_softmax(wide, 0); break;
    case 5: t->y[0] = tensor_logsumexp(small, 0, 0); break;
    case 6: t->y[0] = tensor_logsumexp(wide, 0, 0); break;
    case 7: t->y[0] = tensor_cumsum(small, 0); break;
    case 8: t->y[0] = tensor_cumsum(integers, 0); break;
    case 9: t->y[0] = tensor_cumprod(tensor_exp(tensor_mul_scalar(small, 1e-2)), 0); break;
    case 10: t->y[0] = tensor_cumprod(integers, 0); break;
    case 11: t->y[0] = tensor_logcumsumexp(small, 0); break;
    case 12: t->y[0] = tensor_var(x, 1); break;
    case 13: t->y[0] = tensor_norm_dim(x, 0, 0); break;
    case 14: t->y[0] = tensor_argmax_dim(x, 0, 0); break;
    case 15: t->y[0] = tensor_argmin_dim(t->nan, 0, 0); break;
    case 16: t->y[0] = tensor_argmax_dim(wide, 0, 0); break;
    default: t->y[0] = tensor_argmin_dim(integers, 0, 0); break;
    }
}

// The gradient of a row's function by the row.
static void ones_gradients(ones_t *t, int kind) {
    tensor_t *small = tensor_mul_scalar(t->x, 1e-3), *x = tensor_requires_grad_(tensor_clone(small), 1), *y;
    int f64 = 0;
    switch (kind - ONES_GRADIENTS) {
    case 0: y = tensor_softmax(x, 0); break;
    case 1: f64 = 1; y = tensor_softmax(tensor_to(x, TENSOR_F64), 0); break;
    case 2: y = tensor_log_softmax(x, 0); break;
    case 3: f64 = 1; y = tensor_log_softmax(tensor_to(x, TENSOR_F64), 0); break;
    case 4: y = tensor_cumsum(x, 0); break;
    case 5: y = tensor_cumprod(tensor_exp(tensor_mul_scalar(x, 1e-2)), 0); break;
    case 6: y = tensor_logcumsumexp(x, 0); break;
    case 7: y = tensor_prod(tensor_exp(tensor_mul_scalar(x, 1e-2))); break;
    case 8: y = tensor_flatten(tensor_group_norm(tensor_reshape(x, 1, 2, 30000), 1), 0, -1); break;
    default:
        y = tensor_batch_norm(tensor_reshape(x, 3, 1, 20000), NULL, NULL, NULL, NULL, .training = 1);
        y = tensor_flatten(y, 0, -1);
        break;
    }
    tensor_t *loss = tensor_sum(tensor_mul(y, f64 ? tensor_to(small, TENSOR_F64) : small));
    CHECK(tensor_autograd_grad(&loss, 1, NULL, &x, 1, &t->y[0], 0) == 0);
}

// The same of functions with weights, and those that go by numbers of rows; a: a row, w: as long.
static tensor_t *ones_net(int kind, tensor_t *a, tensor_t *w) {
    tensor_t *row = tensor_reshape(a, 1, 60000), *rows = tensor_reshape(a, 2, 30000);
    tensor_t *half = tensor_narrow(w, 0, 0, 30000), *few = tensor_reshape(a, 15000, 4);
    tensor_t *detached = tensor_abs(tensor_detach(w)), *none = tensor_zeros_of(TENSOR_I64, 1);
    tensor_t *label = tensor_full_of(TENSOR_I64, 54321, 1), *one = tensor_full_of(TENSOR_I64, 1, 2);
    tensor_t *labels = tensor_remainder_scalar(tensor_arange(0, 15000, 1, TENSOR_I64), 4);
    tensor_t *places = tensor_remainder_scalar(tensor_arange(0, 60000, 7, TENSOR_I64), 15000);
    switch (kind) {
    case 0: return tensor_layer_norm(row, 1, w, tensor_neg(w));
    case 1: return tensor_rms_norm(row, 1, w);
    case 2: return tensor_layer_norm(tensor_to(row, TENSOR_F64), 1, tensor_to(w, TENSOR_F64));
    case 3: return tensor_layer_norm(rows, 1, half, half);
    case 4: return tensor_cross_entropy(row, label);
    case 5:
        return tensor_cross_entropy(rows, one, .weight = tensor_narrow(detached, 0, 0, 30000),
                                    .label_smoothing = 0.1);
    case 6: return tensor_cross_entropy(tensor_to(row, TENSOR_F64), label, .reduction = TENSOR_SUM);
    case 7: return tensor_cross_entropy(tensor_log(tensor_clamp_min(row, 0)), none);
    case 8: return tensor_nll_loss(row, label, .weight = detached);
    case 9: return tensor_cross_entropy(few, labels);
    case 10: return tensor_binary_cross_entropy(tensor_sigmoid(a), tensor_sigmoid(tensor_detach(w)));
    case 11: return tensor_embedding(tensor_zeros_of(TENSOR_I64, 3), row);
    case 12: return tensor_embedding(places, few, .padding_idx = 3);
    case 13: return tensor_embedding(tensor_remainder_scalar(places, 5), tensor_narrow(few, 0, 0, 5));
    case 14: return tensor_index_select(row, 0, none);
    case 15: return tensor_index_add(row, 0, none, tensor_reshape(w, 1, 60000));
    default: return tensor_index_copy(row, 0, none, tensor_reshape(w, 1, 60000));
    }
}

// Two items of 150 steps.
static tensor_t *ones_ctc(tensor_t *a) {
    tensor_t *labels = tensor_remainder_scalar(tensor_arange(0, 120, 7, TENSOR_I64), 199);
    tensor_t *targets = tensor_add_scalar(tensor_reshape(labels, 2, 9), 1);
    return tensor_ctc_loss(tensor_log_softmax(tensor_reshape(a, 150, 2, 200), 2), targets,
                           tensor_full_of(TENSOR_I64, 150, 2), tensor_full_of(TENSOR_I64, 9, 2));
}

// One plane, line, image, item or head; a: a row, w: as long.
static tensor_t *ones_image(int kind, tensor_t *a, tensor_t *w) {
    tensor_t *plane = tensor_reshape(a, 1, 1, 240, 250), *line = tensor_reshape(a, 1, 1, 60000);
    tensor_t *large = tensor_repeat(line, 1, 1, 10), *square = tensor_reshape(large, 1, 1, 1000, 600);
#define WEIGHT(n, ...) tensor_reshape(tensor_narrow(w, 0, 0, n), __VA_ARGS__)
    switch (kind) {
    case 0: return tensor_max_pool2d(plane, 3, 1);
    case 1: return tensor_max_pool1d(line, 40000, 10000, .padding = 7000);
    case 2: return tensor_max_pool2d(plane, 240, .kernel_w = 250);
    case 3: return tensor_max_pool2d(tensor_to(plane, TENSOR_F64), 3, 2);
    case 4: return tensor_avg_pool2d(plane, 3, 1, .padding = 1);
    case 5: return tensor_avg_pool1d(line, 40000, 10000, .padding = 7000);
    case 6: return tensor_adaptive_avg_pool2d(plane, 1, 1);
    case 7: return tensor_avg_pool1d(line, 3, 1);
    case 8: return tensor_avg_pool2d(tensor_to(plane, TENSOR_F64), 7, 2, .padding = 3, .ceil_mode = 1);
    case 9: return tensor_adaptive_avg_pool3d(tensor_reshape(a, 1, 20, 50, 60), 3, 7, 11);
    case 10: return tensor_adaptive_max_pool2d(plane, 7, 9).values;
    case 11: return tensor_lp_pool2d(plane, 2, 2, 2, 0);
    case 12: return tensor_im2col(plane, 3, .padding = 1);
    case 13: return tensor_im2col(tensor_reshape(a, 1, 1, 1, 60000), 1, .kernel_w = 5, .stride_w = 2);
    case 14: return tensor_im2col(square, 300, .stride = 250);
    case 15:
        return tensor_col2im(tensor_reshape(a, 1, 6, 10000), 200, 2, .kernel_w = 3, .stride = 2,
                             .width = 201);
    case 16: return tensor_conv1d(large, WEIGHT(8 * 9, 8, 1, 9), WEIGHT(8, 8), .padding = 3);
    case 17: return tensor_conv1d(large, WEIGHT(9, 1, 1, 9), NULL, .stride = 2);
    case 18:
        return tensor_conv1d(tensor_reshape(a, 1, 30, 2000), WEIGHT(40 * 30 * 3, 40, 30, 3), NULL,
                             .padding = 1);
    case 19:
        return tensor_conv1d(tensor_to(large, TENSOR_F64), tensor_to(WEIGHT(2 * 5, 2, 1, 5), TENSOR_F64));
    case 20:
        return tensor_conv2d(tensor_reshape(large, 1, 2, 500, 600), WEIGHT(4 * 2 * 9, 4, 2, 3, 3), NULL);
    case 21: return tensor_conv2d(square, WEIGHT(9, 1, 1, 3, 3), NULL, .padding = 1);
    case 22:
        return tensor_conv2d(tensor_reshape(large, 1, 4, 500, 300), WEIGHT(16 * 4 * 25, 16, 4, 5, 5), NULL,
                             .stride = 2);
    case 23:
        return tensor_conv2d(square, WEIGHT(20000, 1, 1, 100, 200), WEIGHT(1, 1), .stride = 200);
    case 24:
        return tensor_conv2d(tensor_reshape(large, 10, 2, 100, 300), WEIGHT(4 * 2 * 9, 4, 2, 3, 3), NULL);
    case 25:
        return tensor_conv3d(tensor_reshape(large, 1, 1, 12, 200, 250), WEIGHT(4 * 27, 4, 1, 3, 3, 3), NULL);
    case 26:
        return tensor_conv_transpose2d(tensor_reshape(large, 1, 4, 300, 500), WEIGHT(4 * 4 * 4, 4, 4, 2, 2),
                                       WEIGHT(4, 4), .stride = 2);
    case 27: return ones_ctc(a);
    case 28: return tensor_add(ones_ctc(tensor_detach(a)), tensor_mean(a));         // without a gradient
    case 29:
        return tensor_scaled_dot_product_attention(WEIGHT(480, 1, 8, 60), tensor_reshape(large, 1, 10000, 60),
                                                   tensor_reshape(large, 1, 10000, 60));
    case 30:
        return tensor_scaled_dot_product_attention(WEIGHT(18000, 1, 300, 60), tensor_reshape(a, 1, 1000, 60),
                                                   tensor_reshape(w, 1, 1000, 60));
    default:
        w = tensor_to(w, TENSOR_F64);
        return tensor_scaled_dot_product_attention(WEIGHT(24000, 2, 200, 60),
                                                   tensor_to(tensor_reshape(a, 2, 500, 60), TENSOR_F64),
                                                   tensor_reshape(w, 2, 500, 60), .is_causal = 1);
    }
}

static void ones_nets(ones_t *t, int kind) {
    tensor_t *in[2], *y, *loss;
    in[0] = tensor_requires_grad_(tensor_mul_scalar(t->x, 1e-3), 1);
    in[1] = tensor_requires_grad_(tensor_flatten(tensor_clone(t->rows), 0, -1), 1);
    y = kind < ONES_IMAGES ? ones_net(kind - ONES_NETS, in[0], in[1])
                           : ones_image(kind - ONES_IMAGES, in[0], in[1]);
    loss = tensor_mean(tensor_mul(y, tensor_cos(y)));
    CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, &t->y[1], TENSOR_ALLOW_UNUSED) == 0);
    t->y[0] = tensor_detach(y);
    t->n = t->y[2] ? 3 : 2;
}

static void ones_step(ones_t *t, int kind) {
    tensor_scope_t scope = tensor_scope_begin();
    t->n = 1;
    if (kind < 11) {
        ones_order(t, kind);
    } else if (kind < 16) {
        ones_sums(t, kind);
    } else if (kind < ONES_EIGEN) {
        ones_matrix(t, kind);
    } else if (kind < ONES_ROWS) {
        ones_eigen(t, kind);
    } else if (kind < ONES_GRADIENTS) {
        ones_rows(t, kind);
    } else if (kind < ONES_NETS) {
        ones_gradients(t, kind);
    } else {
        ones_nets(t, kind);
    }
    for (int i = 0; i < t->n; i++) { t->y[i] = tensor_keep(t->y[i]); }
    tensor_scope_end(scope);
}

static void ones_data(ones_t *t) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_copy_(t->x, tensor_round(tensor_mul_scalar(tensor_randn(60000), 1000)));
    tensor_copy_(t->nan, tensor_where(tensor_gt_scalar(t->x, 1500), tensor_full(NAN, 60000), t->x));
    tensor_copy_(t->rows, tensor_randn(2, 30000));
    tensor_copy_(t->square, tensor_add(tensor_randn(150, 150), tensor_eye(150, 150)));
    tensor_copy_(t->two, tensor_randn(2, 150, 150));
    tensor_copy_(t->tall, tensor_randn(180, 140));
    tensor_copy_(t->b, tensor_randn(150, 40));
    tensor_scope_end(scope);
}

static void ones_new(ones_t *t) {
    memset(t, 0, sizeof *t);
    t->x = tensor_zeros(60000);
    t->nan = tensor_zeros(60000);
    t->rows = tensor_zeros(2, 30000);
    t->square = tensor_zeros(150, 150);
    t->two = tensor_zeros(2, 150, 150);
    t->tall = tensor_zeros(180, 140);
    t->b = tensor_zeros(150, 40);
}

static void parts_of_one(void) {
    ones_t t, want;
    ones_new(&t);
    for (int kind = 0; kind < ONE_KINDS; kind++) {
        const one_t *one = &ONES[kind];
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            tensor_manual_seed(90 + kind);
            ones_data(&t);
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            ones_step(&t, kind);
            tensor_graph_t *g = tensor_capture_end();
            CHECK_MSG(g != NULL, "%s: %s", one->name, tensor_error_text());
            ones_data(&t);
            int slices = 1, r;
            while ((r = tensor_graph_resume(g, 0)) == 0) {
                slices++;
                if (slices % 50) { continue; }
                tensor_scope_t scope = tensor_scope_begin();            // what needs the thread's scratch
                tensor_sort(tensor_randn(500), 0, 0);
                tensor_sum(tensor_ones(100000));
                tensor_linalg_inv(tensor_eye(10, 10));
                tensor_scope_end(scope);
            }
            CHECK_MSG(r == 1, "%s: %s", one->name, tensor_error_text());
            if (threads == 1) {
                CHECK_MSG(slices > (int)units(g) + one->parts, "%s: %d slices of %d calls", one->name, slices,
                          (int)units(g));
            }
            want = t;
            ones_step(&want, kind);
            for (int i = 0; i < t.n; i++) {
                CHECK_MSG(test_same_bits(t.y[i], want.y[i]), "%s, %d threads: result %d differs", one->name,
                          threads, i);
                tensor_free(t.y[i]);
                tensor_free(want.y[i]);
            }
            CHECK(tensor_graph_free(g) == 0);
        }
        tensor_set_num_threads(1);
    }
    tensor_empty_cache();               // of large blocks, which another test would be given
}

// A matrix that turns out to be singular in the middle of a step, behind one that is not.
static void singular_in_parts(void) {
    tensor_t *a = tensor_randn(2, 150, 150), *b = tensor_randn(150, 3), *y;
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    y = tensor_keep(tensor_linalg_solve(a, b));
    tensor_graph_t *g = tensor_capture_end();
    tensor_t *want = tensor_clone(y), *row = tensor_at(a, "1, 100");
    tensor_t *kept = tensor_clone(row);
    tensor_fill_(row, 0);
    int slices = 1, r;
    while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
    CHECK(r == -TENSOR_ERR_LINALG && slices > 300);
    CHECK_ERROR(TENSOR_ERR_LINALG, "matrix 1 of a [2,150,150] is singular");
    tensor_copy_(row, kept);
    tensor_fill_(y, 0);
    while ((r = tensor_graph_resume(g, 0)) == 0) { }
    CHECK(r == 1 && test_same_bits(y, want));
    tensor_scope_end(scope);
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(y);
}

// The user's job system, with more workers than a call was once cut for.
static void one_by_one(void *user, int64_t ntasks, void (*task)(void *arg, int64_t i), void *arg) {
    ++*(int64_t *)user;
    for (int64_t i = 0; i < ntasks; i++) { task(arg, i); }
}

static void many_workers(void) {
    int64_t rounds = 0;
    nn_module_t *net = nn_linear(1500, 400);
    tensor_t *x = tensor_randn(300, 1500), *y;
    CHECK(tensor_set_parallel_for(one_by_one, &rounds, 100) == 0);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *want = nn_forward(net, x);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    y = tensor_keep(nn_forward(net, x));
    tensor_graph_t *g = tensor_capture_end();
    tensor_fill_(y, 0);
    int slices = 1, r;
    while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
    CHECK(r == 1 && test_same_bits(y, want));
    CHECK_MSG(slices > 4, "%d slices", slices);
    CHECK(tensor_graph_free(g) == 0);
    tensor_free(y);
    tensor_scope_end(scope);
    CHECK(rounds > 0 && tensor_set_parallel_for(NULL, NULL, 1) == 0);
    nn_free(net);
}

// An index that is out of range, in the last of the tasks that look for one: nothing is written.
static void stopped_in_turn(void) {
    tensor_t *x = tensor_ones(500), *index = tensor_zeros_of(TENSOR_I64, 60000), *src = tensor_ones(60000);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_scatter_add_(x, 0, index, src);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(tensor_item(tensor_max(x)) == 60001);
    tensor_fill_(tensor_narrow(index, 0, 59999, 1), 500);
    int r, slices = 1;
    while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
    CHECK(r == -TENSOR_ERR_INDEX && slices > 3);
    CHECK_ERROR(TENSOR_ERR_INDEX, "index 500 at element 59999");
    CHECK(tensor_item(tensor_max(x)) == 60001 && tensor_item(tensor_min(x)) == 1);
    tensor_fill_(index, 1);
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(tensor_item(tensor_select(x, 0, 1)) == 60001);
    CHECK(tensor_graph_free(g) == 0);
}

// An error inside: it is minus its code, nothing is written to parameters, and the next slice begins anew.
static void stopped(void) {
    nn_module_t *net = nn_linear(4, 3);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_t *x = tensor_randn(5, 4), *labels = tensor_randint(0, 3, 5);
    tensor_graph_t *g = NULL;
    for (int i = 0; i < 2; i++) {
        tensor_scope_t scope = tensor_scope_begin();
        if (i) { CHECK(tensor_capture_begin(TENSOR_CPU) == 0); }
        nn_zero_grad(opt);
        tensor_backward(tensor_cross_entropy(nn_forward(net, x), labels));
        nn_step(opt);
        tensor_scope_end(scope);
        if (i) { g = tensor_capture_end(); }
    }
    tensor_t *w = tensor_clone(tensor_detach(nn_get(net, "weight")));
    tensor_fill_(labels, 3);
    int r;
    while ((r = tensor_graph_resume(g, 0)) == 0) { }
    CHECK(r == -TENSOR_ERR_INDEX);
    CHECK_ERROR(TENSOR_ERR_INDEX, "cross_entropy");
    CHECK(tensor_equal(w, tensor_detach(nn_get(net, "weight"))));
    tensor_fill_(labels, 2);
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(!tensor_equal(w, tensor_detach(nn_get(net, "weight"))));
    CHECK(tensor_graph_free(g) == 0);
    nn_optimizer_free(opt);
    nn_free(net);
}

// The longest slice of one step.
static double longest(job_t *j, double budget) {
    double worst = 0;
    for (int r = 0; r == 0;) {
        double before = clock_us();
        r = tensor_graph_resume(j->graph, budget);
        double took = clock_us() - before;
        worst = took > worst ? took : worst;
    }
    return worst;
}

// A slice keeps to its budget, where no call is longer (under a sanitizer, one is): in the best of some
// steps, as other programs run too.
static void budgets(void) {
    job_t j;
    j.net = nn_sequential(nn_linear(64, 128), nn_relu(), nn_linear(128, 128), nn_relu(), nn_linear(128, 64),
                          nn_tanh(), nn_linear(64, 32));
    j.opt = nn_adam(j.net);
    data(&j, tensor_randn(32, 64), tensor_randn(32, 32));
    step(&j);
    capture(&j);
    const double budget = 100;
    double call = 1e9, best = 1e9;
    for (int i = 0; i < 5; i++) {                           // how long the calls take is known then
        double one = longest(&j, 0);
        call = one < call ? one : call;
    }
    double most = call > budget ? call + 50 : budget + 50;
    for (int trial = 0; trial < 300 && best > most; trial++) {
        double slice = longest(&j, budget);
        best = slice < best ? slice : best;
    }
    CHECK_MSG(best <= most, "a slice of %g us took %g, the longest call %g", budget, best, call);
    end(&j);
}

// ---- real time

static void realtime(void) {
    job_t j;
    adam(&j);
    for (int i = 0; i < 3; i++) { step(&j); }
    capture(&j);
    CHECK(tensor_graph_replay(j.graph) == 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *one = tensor_exp(j.x);
    tensor_graph_t *spare = tensor_capture_end();
    nn_optimizer_t *unused = nn_sgd(j.net);
    tensor_context_t *other = tensor_context_new();
    size_t size = nn_snapshot_size(j.net, j.opt);
    char *block = (char *)malloc(size);
    tensor_memory_stats_t before = tensor_memory_stats();
    CHECK(tensor_is_realtime() == 0 && tensor_set_realtime(1) == 0 && tensor_is_realtime() == 1);
    for (int i = 0; i < 1000; i++) { tensor_graph_replay(j.graph); }
    while (tensor_graph_resume(j.graph, 5) == 0) { }
    CHECK_OK();
    for (int i = 0; i < 3; i++) { step(&j); }                   // what the cache has is enough
    CHECK_OK();
    CHECK(nn_snapshot(j.net, j.opt, block, size) == 0);
    CHECK(nn_restore(j.net, j.opt, block, size) == 0);
    CHECK_OK();
    CHECK(tensor_set_realtime(0) == 0);
    tensor_memory_stats_t after = tensor_memory_stats();
    CHECK(after.allocs == before.allocs && after.frees == before.frees);

    // Memory, a lock, files, threads: each names who asked and the line.
    tensor_set_realtime(1);
    CHECK_POISON(tensor_zeros(1000, 5000), TENSOR_ERR_OUT_OF_MEMORY,
                 "zeros: out of memory for shape [1000,5000] f32: it is taken from the allocator, in real "
                 "time (tensor_set_realtime) at realtime.c:");
    CHECK(nn_linear(3, 4) == NULL);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "linear: a lock of the system is taken, in real time");
    CHECK(nn_free(j.net) == TENSOR_ERR_UNSUPPORTED);        // is done, and noticed
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "a lock of the system is taken, in real time (tensor_set_realtime)");
    CHECK(nn_free(j.net) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "free: the module was freed already");
    CHECK(tensor_graph_free(spare) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_free: a lock of the system is taken, in real time");
    CHECK(tensor_graph_free(spare) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_free: the graph was freed");
    CHECK(nn_optimizer_free(unused) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "optimizer_free: a lock of the system is taken, in real time");
    tensor_context_t *here = tensor_context_use(other);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "context_use: it takes locks and memory; not in real time");
    CHECK(tensor_context_new() == NULL);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "context_new: out of memory: it is taken from the allocator, in "
                                          "real time (tensor_set_realtime) at realtime.c:");
    CHECK(tensor_context_free(other) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "not in real time (tensor_set_realtime) at realtime.c:");
    CHECK(tensor_capture_begin(TENSOR_CPU) != 0);
    CHECK_ERROR(tensor_error_code(), "capture_begin: a lock of the system is taken, in real time");
    CHECK(tensor_graph_print(j.graph) == TENSOR_ERR_UNSUPPORTED);
#ifndef TENSOR_NO_STDIO
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                "graph_print: stdout is a file, in real time (tensor_set_realtime) at realtime.c:");
#endif
    tensor_clear_error();
#ifndef TENSOR_NO_STDIO
    CHECK(nn_safetensors_open("nowhere.safetensors") == NULL);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "safetensors_open: \"nowhere.safetensors\" is a file, in real time");
    CHECK_POISON(nn_read_npy("nowhere.npy"), TENSOR_ERR_UNSUPPORTED, "\"nowhere.npy\" is a file");
    tensor_t *w = tensor_scalar(1, TENSOR_F32);
    const char *name = "w";
    CHECK(nn_safetensors_write("nowhere.safetensors", &name, &w, 1, NULL, 0) != 0);
    CHECK_ERROR(tensor_error_code(), "in real time (tensor_set_realtime) at realtime.c:");
    CHECK(tensor_print(w) == TENSOR_ERR_OUT_OF_MEMORY);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "in real time");
#endif
    tensor_set_realtime(0);
    CHECK(tensor_context_use(NULL) == here && tensor_context_free(other) == 0);
    CHECK(!tensor_is_poison(one));
    CHECK(!tensor_is_poison(tensor_zeros(1000, 5000)));
    nn_module_t *late = nn_linear(3, 4);
    CHECK(late != NULL && nn_free(late) == 0);
    free(block);
    CHECK(tensor_graph_free(j.graph) == 0);
    nn_optimizer_free(j.opt);
}

// What a call that is done asks of the system is an error that names it and its line, whatever it returns.
static void named(const char *op) {
    char begin[60];
    const char *text = tensor_error_text();
    snprintf(begin, sizeof begin, "%s: ", op);
    CHECK_MSG(strncmp(text, begin, strlen(begin)) == 0 && strstr(text, " at realtime.c:") != NULL,
              "%s: the error is \"%s\"", op, text);
    CHECK_ERROR(tensor_error_code(), "in real time (tensor_set_realtime)");
}

static tensor_t *own_call(nn_module_t *m, tensor_t *x) {
    (void)m;
    return x;
}

static void unusual_calls(void) {
    nn_module_t own, late;
    nn_module_init(&own, "own", own_call, NULL);
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1);
    nn_progress_t bar = nn_progress_begin("step", 10, 0);
    tensor_clear_error();                                   // TENSOR_NO_STDIO
    tensor_scope_t open = tensor_scope_begin(), deep;
    tensor_free(tensor_zeros(1 << 20));                     // the cache has it
    tensor_set_realtime(1);
    tensor_memory_stats();
    named("memory_stats");
    tensor_set_memory_limit(0);
    named("set_memory_limit");
    tensor_reset_peak_memory();
    named("reset_peak_memory");
    tensor_empty_cache();
    named("empty_cache");
    CHECK(tensor_memory_report(NULL, 0) > 0);
    named("memory_report");
    tensor_remove_hook(0);
    named("remove_hook");
    nn_module_init(&late, "late", own_call, NULL);
    named("module_init");
    do { deep = tensor_scope_begin(); } while (deep.thread);
    named("scope_begin");
    deep = tensor_scope_begin_no_grad();
    named("scope_begin_no_grad");
    CHECK(deep.thread == NULL && tensor_scope_end(open) == 0);
#ifndef TENSOR_NO_STDIO
    nn_progress(&bar, 5, NULL);                             // stderr is a file: it is quiet
    CHECK(bar.shown < bar.start);
    CHECK_OK();
    tensor_set_realtime(0);
    nn_progress(&bar, 10, NULL);
    CHECK(bar.shown >= bar.start);
#endif
    tensor_set_realtime(0);
    static const tensor_saved_hooks_t none = {NULL, NULL, NULL, NULL};
    tensor_set_saved_tensors_hooks(&none);
    CHECK_ERROR(TENSOR_ERR_OWNER, "hooks->pack is NULL at realtime.c:");
    CHECK(nn_free(&own) == 0);
    tensor_free(x);
    tensor_clear_error();
    nn_free(&late);
}

// ---- a steady step asks the allocator for nothing, whatever it calls

// x^2, as a function of the program's own.
static tensor_t *own_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    return tensor_mul(in[0], in[0]);
}

static int own_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)n;
    grads[0] = tensor_mul_scalar(tensor_mul(grad, tensor_saved(ctx, 0)), 2);
    return 0;
}

static tensor_t *cube(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_mul(in[0], tensor_mul(in[0], in[0]));
}

static tensor_t *block_of(tensor_t *const *in, int n, void *user) {
    (void)n;
    return tensor_tanh(nn_forward((nn_module_t *)user, in[0]));
}

enum { CALLS = 20 };
static nn_module_t *projected, *dense;

static const char *steady_call(int i) {
    static const tensor_function_t square = {"square", own_forward, own_backward, NULL};
    tensor_t *x = tensor_requires_grad_(tensor_ones(4, 4), 1), *y = tensor_ones(4, 4), *g, *loss;
    tensor_t *many[12] = {x, y, x, y, x, y, x, y, x, y, x, y}, *none = tensor_ones(0);
    tensor_t *flat[2] = {tensor_ones(3), tensor_ones(2)}, *grid[2];
    switch (i) {
    case 0: tensor_stack(0, x, y); return "stack";
    case 1: tensor_hstack(x, y); return "hstack";
    case 2: tensor_vstack(x, y); return "vstack";
    case 3: tensor_dstack(x, y); return "dstack";
    case 4: tensor_column_stack(x, y); return "column_stack";
    case 5: nn_pad_sequence(many, 2, 1, 0); return "pad_sequence";
    case 6: tensor_cat(0, x, none); return "cat with an empty one";
    case 7: tensor_backward(tensor_sum(tensor_cat_n(many, 12, 0))); return "backward of cat of 12";
    case 8: tensor_linalg_multi_dot(x, y, x); return "multi_dot";
    case 9:
        loss = tensor_sum(tensor_mul(x, y));
        tensor_autograd_grad(&loss, 1, NULL, &x, 1, &g, 0);
        return "autograd_grad";
    case 10: tensor_backward(tensor_sum(tensor_apply(&square, NULL, &x, 1))); return "apply";
    case 11: tensor_jacobian(cube, NULL, &x, 1, &g, 0); return "jacobian";
    case 12: tensor_vjp(cube, NULL, &x, 1, y, &g, 0); return "vjp";
    case 13: tensor_jvp(cube, NULL, &x, 1, &y, &g, 0); return "jvp";
    case 14:
        tensor_backward(tensor_sum(nn_forward(projected, tensor_ones(3, 2, 4))));
        return "lstm, proj_size";
    case 15:
        tensor_scope_begin_autocast(TENSOR_BF16);       // the scope of the caller ends it
        tensor_einsum("ij,jk->ik", x, y);
        return "einsum in autocast";
    case 16: tensor_meshgrid(flat, 2, "ij", grid); return "meshgrid";
    case 17: tensor_block_diag(many, 2); return "block_diag";
    case 18:
        tensor_backward(tensor_sum(tensor_checkpoint(block_of, dense, &x, 1)));
        return "checkpoint";
    default: tensor_cartesian_prod(flat, 2); return "cartesian_prod";
    }
}

static void steady(void) {
    projected = nn_lstm(4, 6, .proj_size = 2);
    dense = nn_linear(4, 4);
    for (int i = 0; i < CALLS; i++) {
        const char *name = "";
        tensor_memory_stats_t before = tensor_memory_stats();
        for (int turn = 0; turn < 9; turn++) {
            if (turn == 3) { before = tensor_memory_stats(); }
            tensor_set_realtime(turn >= 6);
            tensor_scope_t scope = tensor_scope_begin();
            name = steady_call(i);
            tensor_scope_end(scope);
        }
        tensor_set_realtime(0);
        tensor_memory_stats_t after = tensor_memory_stats();
        CHECK_MSG(tensor_ok(), "%s: %s", name, tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(after.allocs == before.allocs && after.frees == before.frees, "%s: %d allocations", name,
                  (int)(after.allocs - before.allocs));
    }
    nn_free(projected);
    nn_free(dense);
}

// ---- calls whose tasks are ranges: of elements, of lines, of what random numbers look at one after another

static const one_t RANGES[] = {
    {"multinomial", 45}, {"multinomial, each once", 45}, {"multinomial of many", 15}, {"randperm", 230},
    {"randint", 55}, {"randn of f64", 55}, {"arange", 6}, {"nonzero_static", 60}, {"triu", 2},
    {"tril of wide", 2}, {"digamma", 200}, {"floor_divide of integers", 30}, {"remainder of integers", 25},
    {"matmul of f64", 50}, {"matmul of f64, transposed", 24}, {"matmul of f64, long", 4},
    {"matmul of f64, many", 30}, {"matmul of many", 3}, {"inv of many", 500}, {"inv of 40", 200},
    {"eigvalsh of many", 45}, {"eigvalsh of 30", 100}, {"searchsorted", 1800}, {"bucketize", 220},
    {"gather", 800}, {"scatter_reduce", 800}, {"index", 25}, {"sort of rows", 200},
    {"logcumsumexp of rows", 110}, {"softmax of f64 rows", 110}, {"flip", 6}, {"unfold_dim", 16},
    {"rot90", 6}, {"lgamma", 225}, {"lgamma, summed", 50}, {"tanh of f64", 50}, {"pow", 12},
    {"matmul of long rows", 140}, {"matmul of 64", 400}, {"matmul of few rows", 345}, {"matmul of bf16", 24},
    {"chain of many calls", 15},
};
enum { RANGE_KINDS = sizeof RANGES / sizeof *RANGES, RANGE_GRADIENTS = 30 };    // and the first gradient

static tensor_t *ranges_numbers(int kind, tensor_t *weight, tensor_t *x) {
    switch (kind) {
    case 0: return tensor_multinomial(weight, 30, .replacement = 1);
    case 1: return tensor_multinomial(weight, 10);
    case 2: return tensor_multinomial(tensor_reshape(weight, 3000, 20), 3);
    case 3: return tensor_randperm(60000);
    case 4: return tensor_randint(0, 1000, 60000);
    case 5: return tensor_randn_of(TENSOR_F64, 60000);
    case 6: return tensor_arange(0.5, 60000, 1, TENSOR_F32);
    case 7: return tensor_nonzero_static(tensor_relu(x), 40000, -1);
    case 8: return tensor_triu(tensor_reshape(x, 300, 200), -20);
    default: return tensor_tril(tensor_reshape(x, 3, 20000), 12345);
    }
}

static tensor_t *ranges_matrix(int kind, tensor_t *x, tensor_t *many) {
    tensor_t *wide = tensor_to(x, TENSOR_F64), *a = tensor_reshape(wide, 200, 300), *b;
    switch (kind) {
    case 13: return tensor_matmul(tensor_reshape(wide, 300, 200), a);
    case 14: return tensor_matmul(a, tensor_transpose(a, 0, 1));
    case 15: return tensor_matmul(tensor_reshape(wide, 40, 1500), tensor_reshape(wide, 1500, 40));
    case 16:
        b = tensor_to(many, TENSOR_F64);
        return tensor_matmul(b, tensor_transpose(b, 1, 2));
    case 17: return tensor_matmul(many, tensor_transpose(many, 1, 2));
    case 18: return tensor_linalg_inv(tensor_add(many, tensor_eye(4, 4)));
    case 19: return tensor_linalg_inv(tensor_reshape(tensor_narrow(x, 0, 0, 16000), 10, 40, 40));
    case 20: b = tensor_reshape(tensor_narrow(x, 0, 0, 5000), 50, 10, 10); break;
    default: b = tensor_reshape(tensor_narrow(x, 0, 0, 1800), 2, 30, 30); break;
    }
    return tensor_linalg_eigvalsh(b, kind == 21);
}

static tensor_t *ranges_places(int kind, tensor_t *x, tensor_t *order) {
    tensor_t *rows = tensor_reshape(x, 40, 1500);
    switch (kind) {
    case 22: return tensor_searchsorted(tensor_sort(x, 0, 0).values, tensor_neg(x));
    case 23: return tensor_bucketize(x, tensor_arange(-3, 3, 0.25, TENSOR_F32), 1);
    case 24: return tensor_gather(x, 0, order);
    case 25: return tensor_scatter_reduce(x, 0, tensor_remainder_scalar(order, 1000), x, "amax", 1);
    case 26:
        return tensor_index(tensor_reshape(x, 300, 200), tensor_remainder_scalar(order, 300),
                            tensor_neg(tensor_remainder_scalar(order, 200)));
    case 27: return tensor_sort(tensor_reshape(x, 20, 3000), 1, 0).values;
    case 28: return tensor_logcumsumexp(rows, 1);
    default: return tensor_softmax(tensor_to(rows, TENSOR_F64), 1);
    }
}

static tensor_t *ranges_function(int kind, tensor_t *x) {
    tensor_t *y;
    switch (kind - RANGE_GRADIENTS) {
    case 0: return tensor_flip(x, 0);
    case 1: return tensor_flatten(tensor_unfold_dim(x, 0, 5, 3), 0, -1);
    case 2: return tensor_flatten(tensor_rot90(tensor_reshape(x, 300, 200), 1, 0, 1), 0, -1);
    case 3: return tensor_lgamma(x);
    case 4: return tensor_sum_dim(tensor_lgamma(x), 0, 1);
    case 5: return tensor_to(tensor_tanh(tensor_to(x, TENSOR_F64)), TENSOR_F32);
    case 6: return tensor_pow(tensor_add_scalar(tensor_abs(x), 1), x);
    case 7: x = tensor_reshape(x, 12, 5000); return tensor_matmul(x, tensor_transpose(tensor_sin(x), 0, 1));
    case 8:
        y = tensor_repeat(tensor_detach(tensor_reshape(x, 2, 100, 300)), 32, 1, 1);
        return tensor_add(tensor_mean(tensor_matmul(y, tensor_transpose(y, 1, 2))), x);
    case 9:
        x = tensor_reshape(x, 30, 2000);
        return tensor_matmul(x, tensor_transpose(tensor_repeat(tensor_detach(x), 20, 1), 0, 1));
    case 10:
        x = tensor_to(tensor_reshape(x, 40, 1500), TENSOR_BF16);
        return tensor_to(tensor_matmul(x, tensor_transpose(x, 0, 1)), TENSOR_F32);
    default:
        y = tensor_narrow(x, 0, 0, 3000);
        for (int i = 0; i < 40; i++) { y = tensor_tanh(tensor_add_scalar(tensor_mul(y, y), 0.1)); }
        return y;
    }
}

static void ranges_step(ones_t *t, int kind) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_flatten(t->rows, 0, -1), *whole = tensor_to(t->x, TENSOR_I64);
    tensor_t *many = tensor_reshape(x, 3750, 4, 4);
    t->n = 1;
    if (kind < 10) {
        t->y[0] = ranges_numbers(kind, tensor_abs(t->rows), x);
    } else if (kind == 10) {
        t->y[0] = tensor_digamma(x);
    } else if (kind == 11) {
        t->y[0] = tensor_floor_divide(whole, tensor_add_scalar(tensor_abs(whole), 1));
    } else if (kind == 12) {
        t->y[0] = tensor_remainder_scalar(whole, 7);
    } else if (kind < 22) {
        t->y[0] = ranges_matrix(kind, x, many);
    } else if (kind < RANGE_GRADIENTS) {
        t->y[0] = ranges_places(kind, x, tensor_argsort(x, 0, 0));
    } else {
        tensor_t *w = tensor_requires_grad_(tensor_clone(x), 1), *y = ranges_function(kind, w), *loss;
        loss = tensor_sum(tensor_mul(y, tensor_cos(tensor_detach(y))));
        CHECK(tensor_autograd_grad(&loss, 1, NULL, &w, 1, &t->y[0], 0) == 0);
    }
    t->y[0] = tensor_keep(t->y[0]);
    tensor_scope_end(scope);
}

// A slice of 1 us each. -> their number
static int ranges_run(tensor_graph_t *g, const char *name) {
    int slices = 1, r;
    while ((r = tensor_graph_resume(g, slices % 3 ? 0 : 1)) == 0) {
        if (++slices % 50) { continue; }
        tensor_scope_t scope = tensor_scope_begin();                // what needs the thread's scratch
        tensor_generator_t rng = tensor_get_generator();
        tensor_linalg_inv(tensor_eye(10, 10));
        tensor_multinomial(tensor_rand(1000), 3);
        tensor_set_generator(rng);
        tensor_scope_end(scope);
    }
    CHECK_MSG(r == 1, "%s: %s", name, tensor_error_text());
    return slices;
}

static void ranges(void) {
    ones_t t, want;
    ones_new(&t);
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            const char *name = RANGES[kind].name;
            tensor_manual_seed(120 + kind);
            ones_data(&t);
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            ranges_step(&t, kind);
            tensor_graph_t *g = tensor_capture_end();
            CHECK_MSG(g != NULL, "%s: %s", name, tensor_error_text());
            ones_data(&t);
            tensor_manual_seed(200 + kind);
            int slices = ranges_run(g, name);
            if (threads == 1) {
                int calls = (int)units(g);
                CHECK_MSG(slices > calls + RANGES[kind].parts, "%s: %d slices of %d calls", name, slices,
                          calls);
            }
            want = t;
            tensor_manual_seed(200 + kind);
            ranges_step(&want, kind);
            CHECK_MSG(test_same_bits(t.y[0], want.y[0]), "%s, %d threads: other elements", name, threads);
            tensor_free(t.y[0]);
            tensor_free(want.y[0]);
            CHECK(tensor_graph_free(g) == 0);
        }
        tensor_set_num_threads(1);
    }
}

// What a call refuses, in the last of its tasks: nothing is written, and the next slice begins anew.
static void ranges_refused(void) {
    tensor_t *x = tensor_full_of(TENSOR_I64, 100, 60000), *by = tensor_full_of(TENSOR_I64, 7, 60000);
    tensor_t *weight = tensor_ones(1, 60000), *y;
    tensor_scope_t scope = tensor_scope_begin();
    for (int kind = 0; kind < 2; kind++) {
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        if (kind) {
            tensor_floor_divide_(x, by);
            y = x;
        } else {
            y = tensor_keep(tensor_multinomial(weight, 3, .replacement = 1));
        }
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%s", tensor_error_text());
        tensor_fill_(kind ? x : y, 100);
        tensor_fill_(tensor_narrow(by, 0, 59999, 1), 0);
        tensor_fill_(tensor_narrow(weight, 1, 59999, 1), -1);
        int slices = 1, r;
        while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
        CHECK_MSG(r == -TENSOR_ERR_INDEX && slices > 2, "%d after %d slices", r, slices);
        CHECK_ERROR(TENSOR_ERR_INDEX, kind ? "integer division by zero at element 59999 of b [60000]"
                                           : "weight -1 at row 0, place 59999 must be finite and >= 0");
        CHECK(tensor_item(tensor_max(y)) == 100 && tensor_item(tensor_min(y)) == 100);
        tensor_fill_(by, 7);
        tensor_fill_(weight, 1);
        while ((r = tensor_graph_resume(g, 0)) == 0) { }
        CHECK_MSG(r == 1, "%s", tensor_error_text());
        CHECK(kind ? tensor_item(tensor_min(x)) == 14 : tensor_item(tensor_min(y)) >= 0);
        CHECK(tensor_graph_free(g) == 0);
        if (!kind) { tensor_free(y); }
    }
    tensor_scope_end(scope);
}

// Maxima of windows that are read in pieces, some of them side by side: equal elements, -infinity alone, NaN.
enum { MAXIMA_KINDS = 9 };

static tensor_pair_t maxima_of(int kind, tensor_t *x) {
    tensor_t *planes = tensor_reshape(x, 1, 2, 150, 200), *volume = tensor_reshape(x, 1, 20, 50, 60);
    tensor_t *wide = tensor_to(planes, TENSOR_F64);
    switch (kind) {
    case 0: return tensor_max_pool2d_with_indices(planes, 145, 1);
    case 1: return tensor_max_pool2d_with_indices(planes, 130, 3, .padding = 60);
    case 2:
        return tensor_max_pool2d_with_indices(planes, 50, 2, .kernel_w = 60, .padding = 25, .dilation_w = 3,
                                              .padding_w = 30);
    case 3:
        return tensor_max_pool3d_with_indices(volume, 18, 1, .kernel_h = 40, .kernel_w = 30, .padding = 5);
    case 4:
        return tensor_max_pool1d_with_indices(tensor_reshape(x, 1, 1, 60000), 20000, 5000, .padding = 9000);
    case 5: return tensor_max_pool2d_with_indices(planes, 100, 25, .kernel_w = 190, .padding = 50);
    case 6: return tensor_max_pool2d_with_indices(wide, 100, 30, .kernel_w = 190, .ceil_mode = 1);
    case 7: return tensor_adaptive_max_pool3d(volume, 2, 1, 3);
    default: return tensor_max_pool2d_with_indices(planes, 30, 1, .padding = 15);
    }
}

static void maxima_data(tensor_t *x, int kind) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *r = tensor_randn(60000), *some = tensor_randn(60000);
    if (kind == 0) { r = tensor_round(tensor_mul_scalar(r, 2)); }
    if (kind == 1) { r = tensor_where(tensor_gt_scalar(some, 3.5), r, tensor_full(-INFINITY, 60000)); }
    if (kind == 2) { r = tensor_where(tensor_gt_scalar(some, 3.5), tensor_full(NAN, 60000), r); }
    tensor_copy_(x, r);
    if (kind == 1) { tensor_fill_(tensor_narrow(x, 0, 30000, 30000), -INFINITY); }
    tensor_scope_end(scope);
}

static void maxima(void) {
    tensor_t *x = tensor_zeros(60000);
    for (int kind = 0; kind < MAXIMA_KINDS; kind++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            tensor_scope_t scope = tensor_scope_begin();
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            tensor_pair_t y = maxima_of(kind, x);
            tensor_keep(y.values);
            tensor_keep(y.indices);
            tensor_scope_end(scope);
            tensor_graph_t *g = tensor_capture_end();
            CHECK_MSG(g != NULL, "kind %d: %s", kind, tensor_error_text());
            for (int data = 0; data < 3; data++) {
                maxima_data(x, data);
                int slices = 1, r;
                while ((r = tensor_graph_resume(g, slices % 2 ? 0 : 1)) == 0) { slices++; }
                CHECK(r == 1 && slices > 2);
                scope = tensor_scope_begin();
                tensor_pair_t want = maxima_of(kind, x);
                CHECK_MSG(test_same_bits(y.values, want.values), "kind %d, %d threads: other maxima", kind,
                          threads);
                CHECK_MSG(tensor_equal(y.indices, want.indices), "kind %d, data %d, %d threads: other places",
                          kind, data, threads);
                tensor_scope_end(scope);
            }
            CHECK(tensor_graph_free(g) == 0);
            tensor_free(y.values);
            tensor_free(y.indices);
        }
        tensor_set_num_threads(1);
    }
}

// Products of many short rows are not cut into tasks that take less time than it takes to begin them. The
// gradient of the sum is one number over and over, whose rows are packed.
static void short_rows(void) {
    for (int kind = 0; kind < 2; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *in[2], *got[2], *want[2], *loss;
        in[0] = tensor_requires_grad_(kind ? tensor_randn(20000, 100) : tensor_randn(200000, 4), 1);
        in[1] = tensor_requires_grad_(kind ? tensor_randn(100, 4) : tensor_randn(4, 4), 1);
        loss = tensor_sum(tensor_matmul(in[0], in[1]));
        CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, want, 0) == 0);
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        loss = tensor_sum(tensor_matmul(in[0], in[1]));
        CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, got, 0) == 0);
        tensor_graph_t *g = tensor_capture_end();
        for (int i = 0; i < 2; i++) { tensor_fill_(got[i], 7); }
        int slices = 1, r;
        while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
        CHECK_MSG(r == 1 && slices > 20 && slices < 800, "kind %d: %d slices", kind, slices);
        for (int i = 0; i < 2; i++) { CHECK_MSG(test_same_bits(got[i], want[i]), "kind %d: %d", kind, i); }
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
}

// Calls whose tasks are neither long nor shorter than it takes to begin them: each with bounds of the slices
// that its step and its gradient have.
typedef struct cut_t {
    const char *name;
    int least, most;
} cut_t;
static const cut_t CUTS[] = {
    {"conv_transpose1d of a line", 12, 500}, {"solve_triangular of many columns", 150, 2000},
    {"solve of many columns", 250, 3000}, {"sum of short columns", 150, 1500}, {"sum of few columns", 6, 300},
    {"cdist", 700, 6000}, {"remainder", 100, 1000}, {"avg_pool of windows side by side", 400, 9000},
    {"avg_pool3d of large windows", 20, 2000}, {"matmul of bf16, short sums", 3, 600},
    {"layer_norm of short rows", 20, 2000}, {"prod of columns", 60, 6000},
};
enum { CUT_KINDS = sizeof CUTS / sizeof *CUTS };

static tensor_t *cut_of(int kind, tensor_t *x, tensor_t *w) {
    tensor_t *small = tensor_add(tensor_reshape(tensor_narrow(w, 0, 0, 16), 4, 4),
                                 tensor_mul_scalar(tensor_eye(4, 4), 4));
    switch (kind) {
    case 0:
        return tensor_conv_transpose1d(tensor_reshape(x, 1, 1, 240000),
                                       tensor_reshape(tensor_narrow(w, 0, 0, 4), 1, 1, 4), .stride = 2);
    case 1: return tensor_linalg_solve_triangular(small, tensor_reshape(x, 4, 60000), 1, 1, 0);
    case 2: return tensor_linalg_solve(small, tensor_reshape(x, 4, 60000));
    case 3: return tensor_sum_dim(tensor_reshape(x, 4, 4, 15000), 1, 0);
    case 4: return tensor_sum_dim(tensor_reshape(x, 960, 250), 0, 0);
    case 5: return tensor_cdist(tensor_reshape(x, 4, 60000), tensor_reshape(w, 4, 60000), 1);
    case 6: return tensor_remainder(x, w);
    case 7:
        return tensor_avg_pool2d(tensor_reshape(tensor_narrow(x, 0, 0, 60000), 1, 2, 150, 200), 100, 1,
                                 .padding = 20);
    case 8: return tensor_avg_pool3d(tensor_reshape(x, 1, 40, 60, 100), 30, 10);
    case 9:
        x = tensor_to(tensor_reshape(x, 60000, 4), TENSOR_BF16);
        return tensor_to(tensor_matmul(x, tensor_to(small, TENSOR_BF16)), TENSOR_F32);
    case 10: return tensor_layer_norm(tensor_reshape(x, 60000, 4), 1);
    default: return tensor_prod_dim(tensor_reshape(tensor_exp(tensor_mul_scalar(x, 1e-3)), 60000, 4), 0, 0);
    }
}

static void cut_step(int kind, tensor_t *x, tensor_t *w, tensor_t **y) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *in = tensor_requires_grad_(tensor_clone(x), 1), *loss;
    y[0] = cut_of(kind, in, w);
    loss = tensor_sum(tensor_mul(y[0], tensor_cos(tensor_detach(y[0]))));
    CHECK_MSG(tensor_autograd_grad(&loss, 1, NULL, &in, 1, &y[1], 0) == 0, "%s", CUTS[kind].name);
    for (int i = 0; i < 2; i++) { y[i] = tensor_keep(i ? y[i] : tensor_detach(y[i])); }
    tensor_scope_end(scope);
}

static void cuts(void) {
    tensor_t *x = tensor_randn(240000), *w = tensor_randn(240000), *y[2], *want[2];
    for (int kind = 0; kind < CUT_KINDS; kind++) {
        const cut_t *cut = &CUTS[kind];
        for (int threads = 1; threads <= 3; threads += 2) {
            if (tensor_set_num_threads(threads)) {
                tensor_clear_error();           // TENSOR_NO_THREADS
                continue;
            }
            cut_step(kind, x, w, want);
            CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
            cut_step(kind, x, w, y);
            tensor_graph_t *g = tensor_capture_end();
            CHECK_MSG(g != NULL, "%s: %s", cut->name, tensor_error_text());
            for (int i = 0; i < 2; i++) { tensor_fill_(y[i], 7); }
            int slices = 1 - (int)units(g), r;
            while ((r = tensor_graph_resume(g, 0)) == 0) { slices++; }
            CHECK_MSG(r == 1, "%s: %s", cut->name, tensor_error_text());
            CHECK_MSG(threads > 1 || (slices >= cut->least && slices <= cut->most),
                      "%s: %d slices beyond its calls", cut->name, slices);
            for (int i = 0; i < 2; i++) {
                CHECK_MSG(test_same_bits(y[i], want[i]), "%s, %d threads: result %d differs", cut->name,
                          threads, i);
                tensor_free(y[i]);
                tensor_free(want[i]);
            }
            CHECK(tensor_graph_free(g) == 0);
        }
        tensor_set_num_threads(1);
    }
    tensor_empty_cache();               // of large blocks, which another test would be given
}

// ---- sizes of 0 in time slices

static tensor_t *of_nothing(int kind, tensor_t *x) {
    tensor_t *none = tensor_reshape(tensor_narrow(x, 0, 0, 0), 2, 0, 6, 6);
    tensor_t *w = tensor_reshape(tensor_narrow(x, 0, 0, 54), 2, 3, 3, 3);
    tensor_t *images = tensor_reshape(x, 2, 3, 6, 6), *bias = tensor_narrow(x, 0, 0, 2);
    tensor_t *no_outputs = tensor_reshape(none, 0, 3, 3, 3), *wide;
    switch (kind) {
    case 0: return tensor_conv2d(none, tensor_reshape(none, 2, 0, 3, 3), bias);
    case 1: return tensor_conv2d(images, no_outputs, NULL);
    case 2: return tensor_conv2d(tensor_reshape(none, 0, 3, 6, 6), w, bias);
    case 3: return tensor_conv_transpose2d(none, no_outputs, NULL);
    case 4: return tensor_conv_transpose2d(tensor_reshape(none, 0, 2, 6, 6), w, NULL);
    case 5:
        return tensor_conv_transpose2d(tensor_reshape(x, 3, 2, 6, 6), tensor_reshape(none, 2, 0, 3, 3), NULL);
    case 6: return tensor_max_pool2d(none, 2);
    case 7: return tensor_avg_pool2d(tensor_reshape(none, 0, 3, 6, 6), 2);
    case 8: return tensor_im2col(none, 3);
    case 9: return tensor_im2col(tensor_reshape(none, 0, 3, 6, 6), 3);
    case 10: return tensor_scaled_dot_product_attention(none, none, none);
    case 11: return tensor_multinomial(tensor_abs(tensor_reshape(none, 0, 6)), 2, .replacement = 1);
    case 12: return tensor_matmul(tensor_reshape(none, 0, 6), tensor_reshape(images, 6, 36));
    case 13:
        wide = tensor_to(tensor_reshape(none, 0, 6, 6), TENSOR_F64);
        return tensor_matmul(wide, wide);
    case 14: return tensor_triu(tensor_reshape(none, 0, 6), 1);
    case 15: return tensor_lgamma(none);
    case 16: return tensor_flip(none, 2);
    case 17: return tensor_linalg_inv(tensor_reshape(none, 0, 6, 6));
    case 18: return tensor_gather(none, 2, tensor_zeros_of(TENSOR_I64, 2, 0, 6, 6));
    case 19: return tensor_sort(none, 2, 0).values;
    case 20: return tensor_conv1d(tensor_reshape(none, 2, 0, 36), tensor_reshape(none, 2, 0, 3), bias);
    default: return tensor_adaptive_avg_pool2d(none, 2, 2);
    }
}

static void nothing_in_parts(void) {
    for (int kind = 0; kind < 22; kind++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_manual_seed(3);
        tensor_t *x = tensor_requires_grad_(tensor_randn(216), 1), *grad = NULL;
        CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
        tensor_t *y = of_nothing(kind, x);
        if (tensor_requires_grad(y)) {
            tensor_t *sum = tensor_sum(y);
            tensor_autograd_grad(&sum, 1, NULL, &x, 1, &grad, TENSOR_ALLOW_UNUSED);
        }
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%d: %s", kind, tensor_error_text());
        if (!g) {
            tensor_clear_error();
            tensor_scope_end(scope);
            continue;
        }
        tensor_t *want = tensor_clone(tensor_detach(y)), *slope = grad ? tensor_clone(grad) : NULL;
        int r;
        while ((r = tensor_graph_resume(g, 0)) == 0) { }
        CHECK_MSG(r == 1, "%d: %s", kind, tensor_error_text());
        CHECK_MSG(test_same_bits(tensor_detach(y), want), "%d: other elements", kind);
        CHECK_MSG(!slope || test_same_bits(grad, slope), "%d: another gradient", kind);
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(scope);
    }
}

// Steps with a scaler, by themselves, as replays and in time slices: none takes a lock.
static void scaler_step(job_t *j, tensor_t *scaler) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *loss = tensor_mse_loss(nn_forward(j->net, j->x), j->y);
    nn_zero_grad(j->opt);
    tensor_backward(nn_scaler_scale(scaler, loss));
    nn_scaler_step(scaler, j->opt);
    nn_scaler_update(scaler);
    tensor_scope_end(scope);
}

static void with_scaler(void) {
    job_t j;
    adam(&j);
    tensor_t *scaler = nn_grad_scaler(1024, 2);
    for (int i = 0; i < 3; i++) { scaler_step(&j, scaler); }
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    scaler_step(&j, scaler);
    j.graph = tensor_capture_end();
    CHECK(tensor_graph_resume(j.graph, 1e9) == 1);
    tensor_set_realtime(1);
    scaler_step(&j, scaler);
    CHECK_OK();
    CHECK(tensor_graph_replay(j.graph) == 0);
    while (tensor_graph_resume(j.graph, 0) == 0) { }
    CHECK_OK();
    tensor_set_realtime(0);
    end(&j);
    tensor_free(scaler);
}

// The same for a training with checkpoints inside checkpoints, by the calls of the allocator's hooks.
static int64_t hook_calls;

static void *hook_alloc(void *user, size_t bytes, size_t alignment) {
    (void)user, (void)alignment;
    hook_calls++;
    char *p = (char *)malloc(bytes + 128);
    if (!p) { return NULL; }
    char *at = p + 64 + ((size_t)(0 - (uintptr_t)p) & 63);
    memcpy(at - sizeof p, &p, sizeof p);
    return at;
}

static void hook_free(void *user, void *p, size_t bytes, size_t alignment) {
    (void)user, (void)bytes, (void)alignment;
    hook_calls++;
    char *from;
    memcpy(&from, (char *)p - sizeof from, sizeof from);
    free(from);
}

static tensor_t *both_blocks(tensor_t *const *in, int n, void *user) {
    tensor_t *h = tensor_checkpoint(block_of, user, in, n);
    return tensor_checkpoint(block_of, user, &h, 1);
}

static void steady_checkpoints(void) {
    const tensor_allocator_t a = {hook_alloc, hook_free, NULL};
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_set_error_handler(test_quiet, NULL);
    CHECK(tensor_set_allocator(&a) == 0);
    nn_module_t *net = nn_sequential(nn_linear(8, 8), nn_tanh(), nn_linear(8, 8));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    tensor_t *x = tensor_randn(ITEMS, 8), *y = tensor_randn(ITEMS, 8);
    int64_t calls = 0;
    for (int i = 0; i < 103; i++) {
        if (i == 3) { calls = hook_calls; }
        tensor_set_realtime(i > 90);
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *loss = tensor_mse_loss(tensor_checkpoint(both_blocks, net, &x, 1), y);
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        tensor_scope_end(scope);
    }
    tensor_set_realtime(0);
    CHECK_OK();
    CHECK_MSG(hook_calls == calls, "%d calls of the allocator in 100 steps", (int)(hook_calls - calls));
    nn_optimizer_free(opt);
    nn_free(net);
    CHECK(tensor_context_use(before) == context && tensor_context_free(context) == 0);
}

// A scaler whose gradients are unscaled in one context is nothing to the scalers of another.
static void marked_elsewhere(void) {
    job_t here, there;
    adam(&here);
    tensor_t *scaler = nn_grad_scaler(1024, 2);
    for (int i = 0; i < 3; i++) { scaler_step(&here, scaler); }
    tensor_context_t *context = tensor_context_new(), *before = tensor_context_use(context);
    tensor_set_error_handler(test_quiet, NULL);
    adam(&there);
    tensor_t *other = nn_grad_scaler(1024, 2);
    tensor_backward(nn_scaler_scale(other, tensor_mse_loss(nn_forward(there.net, there.x), there.y)));
    CHECK(nn_scaler_unscale(other, there.opt) == 0);
    CHECK(tensor_context_use(before) == context);
    tensor_set_realtime(1);
    CHECK(nn_scaler_update(scaler) == 0);
    scaler_step(&here, scaler);
    CHECK_OK();
    tensor_set_realtime(0);
    end(&here);
    tensor_free(scaler);
    tensor_context_use(context);
    CHECK(nn_scaler_update(other) == 0);                    // forgets the mark of its own context
    CHECK(nn_scaler_unscale(other, there.opt) == 0);
    tensor_context_use(before);
    CHECK(tensor_context_free(context) == 0);
}

// ---- what a program may not do between two time slices

static void half_way(const char *op) {
    char text[80];
    snprintf(text, sizeof text, "%s: a step in time slices changes", op);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, text);
}

static void between(void) {
    job_t j, other;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_manual_seed(8);
    adam(&j);
    adam(&other);
    step(&j);
    step(&other);
    job_t again = j;
    again.opt = nn_sgd(j.net, .lr = 0.1);
    capture(&again);
    tensor_graph_t *second = again.graph;
    step(&j);
    capture(&j);
    size_t size = nn_snapshot_size(j.net, j.opt);
    char *block = (char *)malloc(size);
    CHECK(nn_snapshot(j.net, j.opt, block, size) == 0);
    tensor_t *file = nn_save_memory(j.net), *bias = tensor_detach(nn_get(j.net, "0.bias"));
    const void *bytes = tensor_data(file);
    size_t length = (size_t)tensor_numel(file);

    CHECK(tensor_graph_resume(j.graph, 0) == 0);
    CHECK(nn_snapshot_size(j.net, j.opt) == size);
    CHECK(nn_snapshot(j.net, j.opt, block, size) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "snapshot: a step in time slices changes 0.weight [64,8] of the");
    CHECK(nn_restore(j.net, j.opt, block, size) == TENSOR_ERR_UNSUPPORTED);
    half_way("restore");
    CHECK(tensor_is_poison(nn_save_memory(j.net)));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "save_memory: a step in time slices changes 0.weight [64,8] of");
    CHECK(nn_load_memory(bytes, length, j.net, 0) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "load_memory: a step in time slices changes 0.weight [64,8] of");
    for (int real = 0; real < 2; real++) {
        tensor_set_realtime(real);
        CHECK(tensor_is_poison(tensor_fill_(bias, 1)));
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                    "fill_: a step in time slices changes the memory of x [64] (0.bias); ");
        CHECK(nn_step(j.opt) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                    "step: a step in time slices changes the memory of x [64,8] (0.weight); ");
    }
    tensor_set_realtime(0);
    CHECK(nn_to(j.net, TENSOR_F64) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "to: a step in time slices changes 0.weight [64,8] of the model");
    // Its gradients, and what another graph changes of the same.
    tensor_scope_t inner = tensor_scope_begin_no_grad();
    CHECK(tensor_is_poison(tensor_fill_(tensor_grad(nn_get(j.net, "0.bias")), 1)));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                "fill_: a step in time slices changes the memory of x [64] (the gradient of 0.bias); ");
    tensor_scope_end(inner);
    CHECK(nn_clip_grad_norm(j.opt, 0.01) != 0 && tensor_error_code() == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "a step in time slices changes the memory of x [64,8] (the gradi");
    CHECK(tensor_backward(tensor_sum(nn_forward(j.net, j.x))) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "add: a step in time slices changes");
    CHECK(tensor_graph_replay(second) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED,
                "graph_replay: the step changes a tensor of 4 bytes that clone uses at realtime.c");
    CHECK(tensor_graph_resume(second, 0) == -TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "and so does the step of another graph, which is under way");
    // Reading is allowed, and so is everything with what the step does not use.
    CHECK(isfinite(tensor_item(tensor_sum(bias))));
    step(&other);
    CHECK(nn_snapshot(other.net, other.opt, block, size) == 0);
    CHECK(nn_restore(other.net, other.opt, block, size) == 0);

    while (tensor_graph_resume(j.graph, 0) == 0) { }
    CHECK(nn_snapshot(j.net, j.opt, block, size) == 0 && nn_restore(j.net, j.opt, block, size) == 0);
    CHECK(nn_load_memory(bytes, length, j.net, 0) == 0 && nn_step(j.opt) == 0);
    CHECK(tensor_fill_(bias, 1) == bias && tensor_graph_replay(j.graph) == 0);
    CHECK(tensor_graph_replay(second) == 0);
    // A step that is given up, with its graph.
    CHECK(tensor_graph_resume(j.graph, 0) == 0);
    free(block);
    CHECK(tensor_graph_free(j.graph) == 0);
    CHECK(tensor_fill_(bias, 1) == bias && tensor_graph_replay(second) == 0);
    CHECK(tensor_graph_free(second) == 0);
    nn_optimizer_free(again.opt);
    nn_optimizer_free(j.opt);
    nn_free(j.net);
    nn_optimizer_free(other.opt);
    nn_free(other.net);
    tensor_scope_end(scope);
}

int main(void) {
    RUN(between);
    RUN(with_scaler);
    RUN(marked_elsewhere);
    RUN(steady_checkpoints);
    RUN(unusual_calls);
    RUN(changed_by);
    RUN(nothing_in_parts);
    RUN(maxima);
    RUN(short_rows);
    RUN(cuts);
    RUN(slices);
    RUN(parts_of_a_group);
    RUN(replanned);
    RUN(clipped_in_slices);
    RUN(parts_of_a_call);
    RUN(threads_between);
    RUN(parts_in_turn);
    RUN(parts_of_one);
    RUN(singular_in_parts);
    RUN(many_workers);
    RUN(stopped_in_turn);
    RUN(stopped);
    RUN(budgets);
    RUN(realtime);
    RUN(steady);
    RUN(snapshots);
    RUN(without_memory);
    RUN(halves);
    RUN(other_blocks);
    RUN(ranges);
    RUN(ranges_refused);
    return test_report();
}

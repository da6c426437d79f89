// train.h - what the ranks of ranks.c (processes) and gpus.c (threads) do
#ifndef STEPS
#define STEPS 50
#endif
#ifndef LEAST
#define LEAST 1 // samples of the smallest batch: some ranks have none
#endif
enum { INPUTS = 16, CLASSES = 4, DATA = 264, SAVE_AT = STEPS / 2 };

// Each rank has its own, and says what it has to say there. RANKS_LOCAL: where ranks are threads.
#ifndef RANKS_LOCAL
#define RANKS_LOCAL
#endif
static RANKS_LOCAL kit_collectives_t ranks;
static RANKS_LOCAL tensor_t *data, *labels;
static RANKS_LOCAL FILE *out;

static void make_data(void) {
    tensor_manual_seed(11);
    tensor_t *centres = tensor_randn(CLASSES, INPUTS);
    labels = tensor_keep(tensor_randint(0, CLASSES, DATA));
    data = tensor_keep(tensor_add(tensor_index_select(centres, 0, labels), tensor_randn(DATA, INPUTS)));
}

// Other weights on each rank: the opening must make them equal. "idle" is a parameter that nothing uses.
static nn_module_t *make_net(int hidden, int norm) {
    tensor_manual_seed(100 + (uint64_t)ranks.rank * (uint64_t)(ranks.size > 1));
    nn_module_t *first = nn_linear(INPUTS, hidden), *last = nn_linear(hidden, CLASSES);
    nn_parameter(first, "idle", tensor_ones(3));
    if (norm) {
        nn_module_t *over_all = nn_sync_batch_norm(hidden, .all_reduce = kit_parallel_all_reduce, .user = &ranks);
        return nn_sequential(first, over_all, nn_tanh(), last);
    }
    return nn_sequential(first, nn_tanh(), nn_linear(hidden, hidden), nn_tanh(), last);
}

// This rank's part of the samples first .. first + n - 1: the first ranks have one more where it is not even.
static int64_t part_of(int64_t first, int64_t n, tensor_t **x, tensor_t **y) {
    int64_t each = n / ranks.size, more = n % ranks.size, rank = ranks.rank;
    int64_t begin = rank * each + (rank < more ? rank : more), mine = each + (rank < more);
    *x = tensor_narrow(data, 0, first + begin, mine);
    *y = tensor_narrow(labels, 0, first + begin, mine);
    return mine;
}

// Forward and backward of one batch. -> the mean loss over all ranks
static double batch(kit_parallel_t *p, nn_module_t *net, int64_t first, int64_t n) {
    tensor_t *x, *y, *loss = NULL;
    int64_t mine = part_of(first, n, &x, &y);
    if (mine) { loss = tensor_cross_entropy(nn_forward(net, x), y); }
    tensor_t *weighted = kit_parallel_loss(p, loss, mine);
    double value = loss ? tensor_item(loss) : 0;
    if (weighted) { tensor_backward(weighted); }
    return kit_parallel_mean(p, value, (double)mine);
}

// even: halves of 32; uneven: batches of 33 and of LEAST; norm: batch norm over ranks; twice: two batches a step
static int train(const char *how, const char *file, int resume) {
    int norm = !strcmp(how, "norm"), twice = !strcmp(how, "twice"), uneven = !strcmp(how, "uneven");
    nn_module_t *net = make_net(48, norm);
    // Adam hardly notices a wrong scale of gradients, SGD does.
    nn_optimizer_t *opt = uneven || norm ? nn_sgd(net, .lr = 0.1, .momentum = 0.9) : nn_adam(net, .lr = 3e-3);
    int64_t step = 0;
    if (resume) { nn_load_checkpoint(file, net, opt, &step); }
    kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, step);
    if (!p) { return 1; }
    tensor_scope_t scope = tensor_scope_begin();
    for (; step < STEPS && tensor_ok(); step++, tensor_scope_reset(scope)) {
        double loss;
        nn_zero_grad(opt);
        if (twice) {
            kit_parallel_sync(p, 0);
            loss = batch(p, net, 32 * (step % 4), 32);
            kit_parallel_sync(p, 1);
            loss += batch(p, net, 32 * (step % 4) + 128, 32);
        } else if (uneven) {
            loss = batch(p, net, 33 * (step % 8), step % 5 == 4 ? LEAST : 33);
        } else {
            loss = batch(p, net, 32 * (step % 8), 32);
        }
        if (kit_parallel_finish(p)) { break; }
        nn_step(opt);
        if (ranks.rank == 0) { fprintf(out, "%d %.9f\n", (int)step, loss); }
        if (!file || resume || step + 1 != SAVE_AT || ranks.rank) { continue; }
        nn_save_checkpoint(file, net, opt, step + 1);
    }
    tensor_scope_end(scope);
    nn_named_list_t list = nn_named_parameters(net);
    for (int64_t i = 0; i < list.count; i++) {
        int idle = !strcmp(list.item[i].name, "0.idle");
        if (idle && tensor_grad(list.item[i].tensor)) { fputs("idle has a gradient\n", out); }
    }
    kit_parallel_close(p);
    return tensor_error_code();
}

// A parameter that only rank 0 uses has its gradient on all.
static int missing(void) {
    nn_module_t *net = make_net(8, 0);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    tensor_t *idle = nn_named_parameters(net).item[2].tensor;
    if (ranks.rank == 0) { tensor_backward(tensor_sum(tensor_mul_scalar(idle, 5))); }
    if (kit_parallel_finish(p)) { return 1; }
    tensor_t *g = tensor_grad(idle);
    fprintf(out, "%s\n", g && tensor_item(tensor_sum(g)) * ranks.size == 15 ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// Two backwards before one finish: both count where the bucket has not begun, as "idle" keeps it here; and so do
// two more, which nn_zero_grad does not part from them.
static int again(void) {
    nn_module_t *net = nn_linear(4, 2);
    nn_parameter(net, "idle", tensor_ones(3));
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    int good = p != NULL;
    for (int round = 1; good && round <= 2; round++) {
        for (int k = 0; k < 2; k++) { tensor_backward(tensor_sum(nn_forward(net, tensor_ones(1, 4)))); }
        if (kit_parallel_finish(p)) { return 1; }
        tensor_t *g = tensor_grad(nn_get(net, "bias"));
        good = g && tensor_item(tensor_sum(g)) == 4 * round;
    }
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// Three steps that no nn_zero_grad parts: what an earlier finish has left counts once, as it is by then, whether or
// not gradients that nobody accumulates were asked for in between.
static int kept(void) {
    nn_module_t *net = make_net(8, 0);
    tensor_t *idle = nn_named_parameters(net).item[2].tensor;
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    tensor_t *weight = nn_named_parameters(net).item[0].tensor;
    tensor_set_grad(idle, tensor_full(0.5, 3));
    int good = p != NULL;
    double want = 0;
    for (int step = 0; good && step < 3; step++) {
        double mine = step + 1 + ranks.rank, sum = 0;
        for (int r = 0; r < ranks.size; r++) { sum += step + 1 + r; }
        if (step == 2) { kit_parallel_sync(p, 0); }
        tensor_backward(tensor_sum(tensor_mul_scalar(weight, mine)));
        want += sum / ranks.size;
        if (step == 2) {
            tensor_mul_scalar_(tensor_grad(weight), 0.25); // between two backwards of one sum, too
            want = 0.25 * want + sum / ranks.size;
            kit_parallel_sync(p, 1);
            tensor_backward(tensor_sum(tensor_mul_scalar(weight, mine)));
        }
        good = !kit_parallel_finish(p) && !kit_parallel_finish(p); // the second sums what is there
        tensor_t *asked = tensor_sum(tensor_square(weight)), *grad;
        tensor_autograd_grad(&asked, 1, NULL, &weight, 1, &grad, 0);
        tensor_mul_scalar_(tensor_grad(weight), 0.5);              // as clipping would
        want *= 0.5;
        tensor_t *wants = tensor_full_like(weight, want);
        good = good && tensor_allclose(tensor_grad(weight), wants, 1e-5, 1e-8);
        good = good && tensor_allclose(tensor_grad(idle), tensor_full(0.5, 3), 1e-5, 1e-8);
    }
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// An error of one rank fails the finish of all. Once all have cleared it they go on, with right gradients.
static int cleared(void) {
    nn_module_t *net = make_net(8, 0);
    tensor_t *weight = nn_named_parameters(net).item[0].tensor;
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    int good = p != NULL;
    for (int step = 0; good && step < 3; step++) {
        tensor_set_grad(weight, NULL);
        tensor_backward(tensor_sum(tensor_mul_scalar(weight, ranks.rank + 1)));
        if (step == 1 && ranks.rank == ranks.size - 1) { tensor_raise(TENSOR_ERR_INTERNAL, "its own"); }
        int code = kit_parallel_finish(p);
        good = step == 1 ? code != 0 : code == 0;
        tensor_clear_error();
        tensor_t *wants = tensor_full_like(weight, 0.5 * (ranks.size + 1));
        good = good && (step == 1 || tensor_allclose(tensor_grad(weight), wants, 1e-6, 0));
    }
    int line = __LINE__ + 1;
    tensor_t *shard = good ? kit_parallel_shard(p, -5, 1, 0) : NULL;
    char place[64];
    snprintf(place, sizeof place, "n is -5; it must be 0 or more at train.h:%d", line);
    good = good && tensor_is_poison(shard) && strstr(tensor_error_text(), place);
    tensor_clear_error();
    good = good && !kit_parallel_open(&ranks, NULL, NULL, 0);
    good = good && strstr(tensor_error_text(), "argument net is NULL at train.h:");
    tensor_clear_error();
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// Parameters that require no gradient on any rank are left out, and every other one has its mean.
static int frozen(void) {
    nn_module_t *net = make_net(8, 0);
    nn_named_list_t list = nn_named_parameters(net);        // until kit_parallel_open asks for its own
    tensor_t *first = list.item[0].tensor, *second = list.item[1].tensor, *fourth = list.item[3].tensor;
    tensor_requires_grad_(first, 0);
    tensor_requires_grad_(fourth, 0);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    int good = p != NULL;
    if (good) { batch(p, net, 0, 32); }
    good = good && !kit_parallel_finish(p);
    tensor_t *bias = tensor_grad(second);
    good = good && bias && !tensor_grad(first) && !tensor_grad(fourth);
    if (good) {
        tensor_t *all = kit_parallel_sum(&ranks, tensor_clone(bias));
        good = tensor_allclose(all, tensor_mul_scalar(bias, ranks.size), 1e-5, 1e-8);
        good = good && tensor_item(tensor_sum(tensor_abs(bias))) > 0;
    }
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// All samples are on one rank each, in another order in the next epoch.
static int shards(void) {
    nn_module_t *net = make_net(8, 0);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, NULL, 0);
    enum { N = 101 };
    int64_t at[N], next[N], differ = 0;
    tensor_t *seen = tensor_zeros(N);
    tensor_t *mine = kit_parallel_shard(p, N, 5, 0), *other = kit_parallel_shard(p, N, 5, 1);
    tensor_copy_out(mine, at, (size_t)tensor_numel(mine) * 8);
    tensor_copy_out(other, next, (size_t)tensor_numel(other) * 8);
    for (int64_t i = 0; i < tensor_numel(mine); i++) {
        tensor_add_scalar_(tensor_narrow(seen, 0, at[i], 1), 1);
        differ += at[i] != next[i];
    }
    seen = kit_parallel_sum(&ranks, seen);
    int good = differ > N / 4 && tensor_equal(seen, tensor_ones(N));
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

// What dropout keeps of 64 ones on this rank.   -> whether no two ranks agree
static int draw_mask(float mine[64]) {
    float *all = (float *)malloc((size_t)ranks.size * 64 * sizeof(float));
    int differ = all != NULL;
    tensor_copy_out(tensor_dropout(tensor_ones(64), 0.5, 1), mine, 64 * sizeof(float));
    if (!all || ranks.gather(ranks.user, mine, 64 * sizeof(float), all)) { differ = 0; }
    for (int i = 0; differ && i < ranks.size; i++) {
        for (int k = 0; k < i; k++) {
            differ = differ && memcmp(all + 64 * i, all + 64 * k, 64 * sizeof(float));
        }
    }
    free(all);
    return differ;
}

// Ranks that have one seed, or one checkpoint, have masks of their own, and a resume has those of the run.
static int masks(const char *file) {
    float first[64], then[64], resumed[64];
    int64_t step = 0;
    nn_module_t *net = nn_linear(4, 2);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_manual_seed(3);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, 0);
    int good = p && draw_mask(first);
    if (ranks.rank == 0) { nn_save_checkpoint(file, net, opt, 1); }
    good = good && draw_mask(then) && memcmp(first, then, sizeof then); // the others come after the file
    kit_parallel_close(p);
    nn_load_checkpoint(file, net, opt, &step);
    p = kit_parallel_open(&ranks, net, opt, step);
    good = good && p && draw_mask(resumed) && !memcmp(then, resumed, sizeof then);
    fprintf(out, "%s\n", good ? "good" : "wrong");
    kit_parallel_close(p);
    return tensor_error_code();
}

static void trouble(const char *how); // of what includes this

// The opening's gather of a rank that has another version of the library.
static RANKS_LOCAL int (*own_gather)(void *user, const void *mine, size_t bytes, void *all);

static int other_version(void *user, const void *mine, size_t bytes, void *all) {
    kit_parallel__summary_t s;
    if (bytes != sizeof s) { return own_gather(user, mine, bytes, all); }
    memcpy(&s, mine, bytes);
    s.version++;
    return own_gather(user, &s, bytes, all);
}

// As a checkpoint would: the optimizer has states afterwards.
static void one_step(nn_module_t *net, nn_optimizer_t *opt) {
    tensor_backward(tensor_sum(nn_forward(net, data)));
    nn_step(opt);
    nn_zero_grad(opt);
}

// What goes wrong on the last rank in step 3, or before.
static int broken(const char *how) {
    int last = ranks.rank == ranks.size - 1;
    own_gather = ranks.gather;
    if (last && !strcmp(how, "version")) { ranks.gather = other_version; }
    nn_module_t *net = make_net(last && !strcmp(how, "shapes") ? 9 : 8, last && !strcmp(how, "count"));
    if (last && !strcmp(how, "dtype")) { nn_to(net, TENSOR_F64); }
    if (last && !strcmp(how, "frozen")) { tensor_requires_grad_(nn_named_parameters(net).item[0].tensor, 0); }
    if (!strcmp(how, "again")) {
        net = nn_sequential(nn_linear(INPUTS, 2048), nn_linear(2048, 3400)); // backward begins two of three buckets
    }
    if (!strcmp(how, "error")) {
        net = nn_linear(INPUTS, CLASSES); // nothing idle: all gradients are there when backward ends
    }
    if (!strcmp(how, "empty")) { net = make_net(8, 1); }
    nn_optimizer_t *opt = nn_adam(net);
    if (last && !strcmp(how, "state")) { one_step(net, opt); }
    if (last && !strcmp(how, "file")) { nn_load_checkpoint("no/such/file", net, opt, NULL); }
    kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, last && !strcmp(how, "step"));
    for (int step = 0; p && step < 6 && tensor_ok(); step++) {
        if (last && step == 3) { trouble(how); }
        if (last && step == 3 && !strcmp(how, "leave")) { break; }
        batch(p, net, 0, step == 3 && !strcmp(how, "empty") ? 1 : 32); // 1: of rank 0
        if (last && step == 3 && !strcmp(how, "again")) {
            tensor_backward(tensor_sum(nn_forward(net, data)));
        }
        if (last && step == 3 && !strcmp(how, "late")) {
            trouble("hang"); // its last bucket begins in finish
        }
        if (last && step == 3 && !strcmp(how, "error")) { tensor_raise(TENSOR_ERR_INTERNAL, "its own"); }
        if (kit_parallel_finish(p)) { break; }
    }
    fprintf(out, "rank %d ends with %s: %s\n", ranks.rank, tensor_code_name(tensor_error_code()), tensor_error_text());
    fflush(out);
    kit_parallel_close(p);
    return tensor_error_code() != 0;
}

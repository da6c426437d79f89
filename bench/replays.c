// replays.c eager|replay|budget|kernels|floor ROW [THREADS] - a whole step of training or of inference, as
// the step itself or as a replay of its capture, also with a budget of memory; how much of the replay is in
// kernels; the least that such a step can take. For bench/compiled.py: it says "ready" (the floor says more
// about the step in a second line), and for each line that it reads the microseconds of a step.
// replays.c memory ROW - the bytes of a step's temporaries: those of the step itself, those of the capture,
// and the most that are alive at one time; then with a budget of 0.8 of the step's own, or of the least.
// replays.c realtime ROW - 1,000,000 replays (REPLAYS of the environment) in real time, and as many runs of
// an empty loop of the same length, in turns: allocations, and how long the slowest of 1,000 takes.
// replays.c slices ROW - how far slices of 200, 500 and 2,000 us pass their budget: the worst of 20 steps.
#define TENSOR_BACKEND          // floor.h looks at operands
#include "nets.h"

#include "floor.h"

// So small that thousands of steps on one batch leave the parameters as they are. With a usual rate the loss
// becomes 0 and the gradients numbers below 2^-126, with which processors are slow and jax.jit computes as if
// they were 0: after 1,000 steps of the MLP with a batch of one a step took 575 us for 335.
static const double RATE = 1e-12;
static const double SHARE = 0.8;        // of the memory of eager's temporaries: the budget

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y, *loss;         // y: NULL = inference, whose output is the loss
    double clip;
    int binary;
} job_t;
static gpt_t gpt;

// Forward, loss, backward and optimizer; of the chain forward, sum and backward; of an inference forward.
static void step(job_t *j) {
    if (!j->net) {
        tensor_set_grad(j->x, NULL);
        tensor_t *y = tensor_tanh(tensor_add_scalar(tensor_mul(j->x, j->y), 0.5));
        y = tensor_sub(tensor_sigmoid(tensor_mul(y, j->x)), j->y);
        j->loss = tensor_sum(y);
        tensor_backward(j->loss);
        return;
    }
    if (!j->y) {
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        j->loss = tensor_scope_return(scope, nn_forward(j->net, j->x));
        return;
    }
    tensor_t *y = nn_forward(j->net, j->x);
    if (j->binary) {
        j->loss = tensor_binary_cross_entropy_with_logits(y, j->y);
    } else {
        j->loss = tensor_cross_entropy(tensor_ndim(y) > 2 ? tensor_flatten(y, 0, 1) : y, j->y);
    }
    tensor_backward(j->loss);
    if (j->clip > 0) { nn_clip_grad_norm(j->opt, j->clip); }
    nn_step(j->opt);
    nn_zero_grad(j->opt);       // gradients that go here are temporaries of a capture
}

// x: of floats or of numbers of words; items: of y, which are classes.
static void data(job_t *j, tensor_t *x, int64_t items, int64_t classes) {
    j->x = x;
    j->y = tensor_randint(0, classes, items);
}
static void small(job_t *j) {
    j->net = nn_sequential(nn_linear(8, 64), nn_relu(), nn_linear(64, 64), nn_relu(), nn_linear(64, 4));
    j->opt = nn_adam(j->net, .lr = RATE);
    data(j, tensor_randn(32, 8), 32, 4);
}
static void mlp(job_t *j, int64_t batch) {
    j->net = nn_sequential(nn_linear(784, 512), nn_relu(), nn_linear(512, 256), nn_relu(),
                           nn_linear(256, 10));
    j->opt = nn_adam(j->net, .lr = RATE);
    data(j, tensor_randn(batch, 784), batch, 10);
}
static void cnn(job_t *j, int64_t batch) {
    j->net = nn_sequential(nn_conv2d(1, 16, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                           nn_conv2d(16, 32, 5, .padding = 2), nn_relu(), nn_max_pool2d(2), nn_flatten(),
                           nn_linear(1568, 128), nn_relu(), nn_linear(128, 10));
    j->opt = nn_sgd(j->net, .lr = RATE, .momentum = 0.9);
    data(j, tensor_randn(batch, 1, 28, 28), batch, 10);
}
static void text(job_t *j, int layers, int width, int64_t context, int words, int64_t batch) {
    gpt_init(&gpt, layers, layers, width, (int)context, words);
    j->net = &gpt.base;
    j->opt = nn_adamw(j->net, .lr = RATE);
    data(j, tensor_randint(0, words, batch, context), batch * context, words);
}
static void lstm(job_t *j) {
    j->net = lstm_lm_new(10000, 200, 2, 0);
    j->opt = nn_sgd(j->net, .lr = RATE);
    j->clip = 5;
    data(j, tensor_randint(0, 10000, 35, 20), 700, 10000);
}
static void films(job_t *j) {
    j->net = ncf(0);
    j->opt = nn_adam(j->net, .lr = RATE);
    j->binary = 1;
    j->x = tensor_stack(0, tensor_randint(0, 6040, 2048), tensor_randint(0, 3706, 2048));
    j->y = tensor_round(tensor_rand(2048));
}
static void resnet(job_t *j) {
    j->net = resnet_new(18, 10, 1, 1);
    j->opt = nn_sgd(j->net, .lr = RATE, .momentum = 0.9);
    data(j, tensor_randn(32, 3, 32, 32), 32, 10);
}
static void mlp_infer(job_t *j) {
    j->net = nn_eval(nn_sequential(nn_linear(784, 512), nn_relu(), nn_linear(512, 256), nn_relu(),
                                   nn_linear(256, 10)));
    j->x = tensor_randn(1, 784);
}
static void token(job_t *j) {
    gpt_init(&gpt, 6, 6, 384, 256, 65);
    gpt_remember(&gpt, 256);
    j->net = nn_eval(&gpt.base);
    j->x = tensor_zeros_of(TENSOR_I64, 1, 1);
}
static void resnet_infer(job_t *j) {
    j->net = nn_eval(resnet_new(18, 1000, 1, 0));
    j->x = tensor_randn(1, 3, 224, 224);
}
static void chain(job_t *j) {
    j->x = tensor_requires_grad_(tensor_randn(1000000), 1);
    j->y = tensor_randn(1000000);
}

// -> whether there is such a row
static int make(job_t *j, const char *row) {
    int batch = 0;
    if (!strcmp(row, "chain")) {
        chain(j);
    } else if (!strcmp(row, "rl_train_32")) {
        small(j);
    } else if (sscanf(row, "mlp_train_%d", &batch) == 1) {
        mlp(j, batch);
    } else if (sscanf(row, "cnn_train_%d", &batch) == 1) {
        cnn(j, batch);
    } else if (!strcmp(row, "gpt_step")) {
        text(j, 4, 128, 64, 98, 12), j->clip = 1;
    } else if (!strcmp(row, "gpt_baby_train")) {
        text(j, 6, 384, 256, 65, 8);
    } else if (!strcmp(row, "lstm_train")) {
        lstm(j);
    } else if (!strcmp(row, "ncf_train")) {
        films(j);
    } else if (!strcmp(row, "resnet18_train")) {
        resnet(j);
    } else if (!strcmp(row, "mlp_infer_1")) {
        mlp_infer(j);
    } else if (!strcmp(row, "gpt_baby_token")) {
        token(j);
    } else if (!strcmp(row, "resnet18_infer")) {
        resnet_infer(j);
    } else {
        return 0;
    }
    return 1;
}

// ---- memory

// A temporary of the graph, and the calls that use it first and last.
typedef struct temporary_t {
    const void *storage;
    uint64_t bytes;
    int64_t first, last;
} temporary_t;

// The bytes of temporaries that are alive at the same time, at most. Calls of one group run as one.
static uint64_t alive_at_most(tensor_graph_t *g) {
    enum { MOST = 4096 };
    static temporary_t list[MOST];
    int n = 0;
    int64_t at = 0, group = -1;
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        const tensor_graph_call_t call = tensor_graph_call(g, i);
        at += call.block_group < 0 || call.block_group != group;
        group = call.block_group;
        for (int k = 0; k < call.inputs + call.outputs; k++) {
            if (tensor_graph_operand(&call, k).place != TENSOR_GRAPH_TEMPORARY) { continue; }
            int j = 0;
            while (j < n && list[j].storage != call.kernel->arg[k].storage) { j++; }
            if (j == MOST) { return 0; }
            if (j == n) {
                list[n].storage = call.kernel->arg[k].storage;
                list[n].bytes = call.kernel->arg[k].storage->bytes;
                list[n++].first = at;
            }
            list[j].last = at;
        }
    }
    uint64_t most = 0;
    for (int64_t t = 0; t <= at; t++) {
        uint64_t bytes = 0;
        for (int j = 0; j < n; j++) {
            if (list[j].first <= t && t <= list[j].last) { bytes += list[j].bytes; }
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

// What a step takes above what is alive before and after it.
static uint64_t eager_peak(job_t *j, tensor_scope_t scope) {
    const uint64_t before = tensor_memory_stats().live_bytes;
    tensor_reset_peak_memory();
    step(j);
    tensor_scope_reset(scope);
    return tensor_memory_stats().peak_bytes - before;
}

// Plans the graph for SHARE of what the step itself takes, or for the least that it can be planned for.
static void set_budget(tensor_graph_t *g, uint64_t eager) {
    const uint64_t wanted = (uint64_t)(SHARE * (double)eager), room = tensor_graph_info(g).room_bytes;
    if (tensor_graph_set_memory_budget(g, wanted > room ? wanted - room : 1) == 0) { return; }
    const char *least = strstr(tensor_error_text(), " take ");
    const uint64_t bytes = least ? strtoull(least + 6, NULL, 10) : 0;
    tensor_clear_error();
    tensor_graph_set_memory_budget(g, bytes);
}

static void print_memory(tensor_graph_t *g, uint64_t eager, const char *name) {
    const tensor_graph_info_t info = tensor_graph_info(g);
    const double taken = 1e-6 * (double)(info.packed_bytes + info.room_bytes);
    const double least = 1e-6 * (double)alive_at_most(g);
    printf("temporaries: eager %.4g MB, %s %.4g MB (%.2f of eager's), alive at a time %.4g MB "
           "(%.2f of it), %ld calls\n", 1e-6 * (double)eager, name, taken, 1e6 * taken / (double)eager, least,
           taken / least, (long)info.calls);
}

// ---- real time

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The time that a share of n samples does not pass.
static double quantile(const float *sorted, long n, double share) {
    return sorted[(long)(share * (double)(n - 1))];
}

// An empty loop. -> what nobody needs
static unsigned spin(long turns) {
    volatile unsigned x = 1;
    for (long i = 0; i < turns; i++) { x = x * 5 + 1; }
    return x;
}

static long spin_of(double us) {
    long turns = 1000;
    for (int i = 0; i < 20; i++) {
        double best = 1e9;
        for (int k = 0; k < 20; k++) {
            const double begin = bench_now();
            spin(turns);
            const double took = 1e6 * (bench_now() - begin);
            best = took < best ? took : best;
        }
        turns = (long)((double)turns * us / best) + 1;
    }
    return turns;
}

static void print_realtime(tensor_graph_t *g) {
    const long n = getenv("REPLAYS") ? atol(getenv("REPLAYS")) : 1000000;
    float *us[2];
    for (int k = 0; k < 2; k++) { us[k] = (float *)malloc((size_t)n * sizeof **us); }
    double best = 1e9;
    for (int i = 0; i < 1000; i++) {
        const double begin = bench_now();
        tensor_graph_replay(g);
        const double took = 1e6 * (bench_now() - begin);
        best = took < best ? took : best;
    }
    const long turns = spin_of(best);
    const tensor_memory_stats_t before = tensor_memory_stats();
    tensor_set_realtime(1);
    for (long i = 0; i < n; i++) {
        const double begin = bench_now();
        tensor_graph_replay(g);
        const double middle = bench_now();
        spin(turns);
        us[0][i] = (float)(1e6 * (middle - begin));
        us[1][i] = (float)(1e6 * (bench_now() - middle));
    }
    tensor_set_realtime(0);
    const tensor_memory_stats_t after = tensor_memory_stats();
    double slow[2];
    printf("%ld replays, %lu allocations\n", n, (unsigned long)(after.allocs - before.allocs));
    for (int k = 0; k < 2; k++) {
        qsort(us[k], (size_t)n, sizeof **us, by_size);
        slow[k] = quantile(us[k], n, 0.999);
        printf("%s: median %.2f us, 99 %% %.2f, 99.9 %% %.2f, longest %.0f\n", k ? "loop" : "replay",
               quantile(us[k], n, 0.5), quantile(us[k], n, 0.99), slow[k], quantile(us[k], n, 1));
        free(us[k]);
    }
    printf("99.9 %%: replay / loop %.2f\n", slow[0] / slow[1]);
}

// The longest slice of a step is that of its best run, as other programs run too; the worst of the steps is
// printed beside it.
static void print_slices(tensor_graph_t *g) {
    static const double budgets[] = {200, 500, 2000};
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        double least = 1e9, most = 0;
        int slices = 0;
        for (int i = 0; i < 25; i++) {
            double longest = 0;
            int done = 0;
            for (slices = 0; !done; slices++) {
                const double begin = bench_now();
                done = tensor_graph_resume(g, budgets[b]);
                const double took = 1e6 * (bench_now() - begin);
                longest = took > longest ? took : longest;
            }
            if (i < 5 || done < 0) { continue; }    // how long calls take is known then
            least = longest < least ? longest : least;
            most = longest > most ? longest : most;
        }
        const double over = least - budgets[b], allowed = budgets[b] > 250 ? 0.2 * budgets[b] : 50;
        printf("slices of %g us: %d, the longest %.0f us (of other steps up to %.0f), over by %.0f "
               "(wanted %.0f)\n", budgets[b], slices, least, most, over > 0 ? over : 0, allowed);
    }
}

// Microseconds of a step: of some 50 ms of them, and one at least.
static double sample(job_t *j, tensor_graph_t *g, tensor_scope_t scope) {
    double begin = floor_now(), now = begin;
    long steps = 0;
    for (; now - begin < 0.05; steps++, now = floor_now()) {
        if (g) {
            tensor_graph_replay(g);
        } else {
            step(j);
            tensor_scope_reset(scope);
        }
    }
    return 1e6 * (now - begin) / (double)steps;
}

int main(int argc, char **argv) {
    enum { EAGER, REPLAY, BUDGET, KERNELS, FLOOR, MEMORY, REALTIME, SLICES, COLUMNS };
    static const char *const columns[COLUMNS] = {"eager", "replay", "budget",   "kernels",
                                                 "floor", "memory", "realtime", "slices"};
    int column = 0;
    job_t j;
    static floor_t least;
    char line[64];
    memset(&j, 0, sizeof j);
    while (argc > 2 && column < COLUMNS && strcmp(argv[1], columns[column])) { column++; }
    if (argc < 3 || column == COLUMNS) { return 2; }
    floor_threads = argc > 3 ? atoi(argv[3]) : 1;
    tensor_set_num_threads(floor_threads);
    tensor_scope_t outer = tensor_scope_begin();
    if (!make(&j, argv[2])) { return 2; }
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < 2; i++, tensor_scope_reset(scope)) { step(&j); }
    tensor_graph_t *g = NULL;
    const uint64_t eager = column == MEMORY || column == BUDGET ? eager_peak(&j, scope) : 0;
    if (column != EAGER) {
        tensor_capture_begin(TENSOR_CPU);
        step(&j);
        tensor_keep(j.loss);
        tensor_scope_reset(scope);
        g = tensor_capture_end();
        if (g) { tensor_graph_replay(g); }
    }
    if (column == FLOOR && g) { floor_init(&least, g); }
    if (column == BUDGET && g) { set_budget(g, eager); }
    if (column == MEMORY && g) {
        print_memory(g, eager, "replay");
        set_budget(g, eager);
        print_memory(g, eager, "with a budget");
    } else if (column == REALTIME && g) {
        print_realtime(g);
    } else if (column == SLICES && g) {
        print_slices(g);
    } else if (tensor_ok()) {
        printf("ready\n");
    }
    if (column == FLOOR && g) {
        printf("%.2f MB read, %.2f MB written, %.4g MFLOP of products\n", 1e-6 * least.read,
               1e-6 * least.written, 1e-6 * least.flops);
    }
    fflush(stdout);
    while (column < MEMORY && tensor_ok() && fgets(line, sizeof line, stdin)) {
        double us;
        if (column == KERNELS) {
            us = kernels_sample(g);
        } else if (column == FLOOR) {
            us = floor_sample(&least);
        } else {
            us = sample(&j, g, scope);
        }
        printf("%.6g\n", us);
        fflush(stdout);
    }
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    tensor_scope_end(outer);
    return tensor_shutdown();
}

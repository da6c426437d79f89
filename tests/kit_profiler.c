// kit_profiler.c - examples/kit/profiler.h: what the tables add up to, beside a clock of the system's too,
// products by shapes, gradients in their module and line, the trace
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#include "../bench/bench.h"

#include "test.h"

#if defined(__unix__)
#include <pthread.h>
#include <sys/stat.h>
#endif

#define KIT_PROFILER_IMPLEMENTATION
#include "../examples/kit/profiler.h"
#include "../examples/models/resnet.h"

#define main char_gpt_main
#include "../examples/char_gpt.c"
#undef main

enum { ROWS = 400 };
static kit_profiler_row_t rows[ROWS];

// Reads a table into rows.   -> their number
static int table(kit_profiler_t *p, int by) {
    int n = kit_profiler_rows(p, by, rows, ROWS);
    CHECK(n > 0 && n <= ROWS);
    for (int k = 1; k < n; k++) {
        CHECK_MSG(rows[k].share <= rows[k - 1].share, "row %d is out of order", k);
    }
    return n;
}

// The row of that name, of the table that was read last.
static const kit_profiler_row_t *row(int n, const char *name) {
    static const kit_profiler_row_t none = {"", 0, 0, 0, 0, 0, 0, 0};
    for (int k = 0; k < n; k++) {
        if (!strcmp(rows[k].name, name)) { return &rows[k]; }
    }
    CHECK_MSG(0, "there is no row %s", name);
    return &none;
}

static double sum_of(int n, int self) {
    double sum = 0;
    for (int k = 0; k < n; k++) { sum += self ? rows[k].self : rows[k].total; }
    return sum;
}

static const char *line_of(char *text, size_t size, int line) {
    snprintf(text, size, "kit_profiler.c:%d", line);
    return text;
}

static void tables_add_up(void) {
    nn_module_t *net = nn_sequential(nn_linear(64, 256), nn_tanh(), nn_linear(256, 8));
    nn_optimizer_t *opt = nn_adam(net);
    tensor_t *x = tensor_randn(128, 64), *y = tensor_randn(128, 8);
    kit_profiler_t *p = kit_profiler_start();
    char forward[40], update[40];
    for (int step = 0; step < 3; step++) {
        tensor_range_push("step");
        nn_zero_grad(opt);
        line_of(forward, sizeof forward, __LINE__ + 1);
        tensor_t *loss = tensor_mse_loss(nn_forward(net, x), y);
        tensor_backward(loss);
        line_of(update, sizeof update, __LINE__ + 1);
        nn_step(opt);
        tensor_range_pop();
    }
    kit_profiler_stop(p);
    double seconds = kit_profiler_seconds(p), op_self, op_total;
    int n = table(p, KIT_PROFILER_OPS);
    int64_t calls = 0;
    op_self = sum_of(n, 1);
    op_total = sum_of(n, 0);
    for (int k = 0; k < n; k++) {
        calls += rows[k].calls;
        CHECK_MSG(rows[k].self > 0 && rows[k].total >= rows[k].self && rows[k].bytes > 0, "%s", rows[k].name);
    }
    CHECK_MSG(op_self > 0 && op_self <= op_total && op_total <= 1.001 * seconds, "%g <= %g <= %g", op_self,
              op_total, seconds);
    CHECK(row(n, "linear")->calls == 6);
    CHECK(row(n, "linear")->flops == 3 * 2.0 * 128 * (64 * 256 + 256 * 8));
    // Of each layer the gradient of its weight, of the second that of its input, too.
    CHECK(row(n, "matmul")->calls == 9);
    CHECK(row(n, "matmul")->flops == 3 * 2.0 * 128 * (64 * 256 + 2 * 256 * 8));
    CHECK(row(n, "linear")->bytes == 3 * 4.0 * (128 * (64 + 256 + 256 + 8) + 64 * 256 + 256 + 256 * 8 + 8));
    CHECK(row(n, "tanh")->flops == 0);
    // Forward, the gradient with y and its incoming gradient.
    CHECK(row(n, "tanh")->bytes == 3 * 4.0 * 128 * 256 * (2 + 3));

    n = table(p, KIT_PROFILER_LINES);
    CHECK_NEAR(sum_of(n, 1), op_self, 1e-9 + 1e-6 * op_self);
    CHECK_NEAR(sum_of(n, 0), op_total, 1e-9 + 1e-6 * op_total);
    // The gradients of what a line made are counted there: the step is what is left.
    CHECK(row(n, forward)->calls > row(n, update)->calls);
    CHECK(row(n, forward)->flops == 3 * 2.0 * 128 * (2 * 64 * 256 + 3 * 256 * 8));

    n = table(p, KIT_PROFILER_MODULES);
    CHECK_NEAR(sum_of(n, 1), op_self, 1e-9 + 1e-6 * op_self);
    CHECK(row(n, "program")->calls == calls && row(n, "step")->calls == calls);
    CHECK_NEAR(row(n, "program")->total, seconds, 1e-9 + 1e-6 * seconds);
    CHECK(row(n, "step.0")->calls == 3 && row(n, "step.1")->calls == 3 && row(n, "step.2")->calls == 3);
    CHECK(row(n, "step.0")->flops == 3 * 2.0 * 128 * 64 * 256);
    CHECK(row(n, "step.backward.2")->flops == 3 * 2.0 * 128 * 2 * 256 * 8);
    CHECK(row(n, "step.backward.1")->calls == 3);
    CHECK(row(n, "step.backward")->total >= row(n, "step.backward.0")->total);
    kit_profiler_print(p, KIT_PROFILER_OPS, 5);
    kit_profiler_print(p, KIT_PROFILER_LINES, 5);
    kit_profiler_print(p, KIT_PROFILER_MODULES, 5);
    kit_profiler_flame(p);
    kit_profiler_free(p);
    nn_optimizer_free(opt);
    nn_free(net);
}

// Takes so many seconds.
static void spin(double seconds) {
    const double end = bench_now() + seconds;
    while (bench_now() < end) {}
}

// A module has the time between its begin and its end, and no other's: what the program does before it, in it
// after its last call, and in a range without calls.
static void modules_have_their_time(void) {
    nn_module_t *net = nn_linear(4, 4);
    tensor_t *x = tensor_randn(2, 4);
    nn_forward(net, x);
    kit_profiler_t *p = kit_profiler_start();
    spin(0.02);
    tensor_range_push("first");
    tensor_tanh(x);
    spin(0.01);
    tensor_range_pop();
    tensor_range_push("idle");
    spin(0.03);
    tensor_range_pop();
    tensor_range_push("outer");
    spin(0.04);
    tensor_range_push("inner");
    tensor_backward(tensor_sum(nn_forward(net, x)));
    tensor_range_pop();
    tensor_range_pop();
    spin(0.05);
    kit_profiler_stop(p);
    const int n = table(p, KIT_PROFILER_MODULES);
    const double seconds = kit_profiler_seconds(p), inner = row(n, "outer.inner")->total;
    // A turn takes longer where another program has the core, so only the least is known but for the sums.
    CHECK_MSG(row(n, "first")->total >= 0.01 && row(n, "idle")->total >= 0.03, "%g %g",
              row(n, "first")->total, row(n, "idle")->total);
    CHECK(row(n, "idle")->calls == 0 && row(n, "first")->calls == 1);
    CHECK_MSG(row(n, "outer")->total >= 0.04 + inner, "%g, inner %g", row(n, "outer")->total, inner);
    CHECK_NEAR(row(n, "program")->total, seconds, 1e-9 + 1e-6 * seconds);
    const double listed = row(n, "first")->total + row(n, "idle")->total + row(n, "outer")->total;
    CHECK_MSG(seconds - listed >= 0.07, "%g of %g seconds are outside of ranges", seconds - listed, seconds);
    CHECK_MSG(row(n, "outer.inner.backward")->total < inner, "%g", row(n, "outer.inner.backward")->total);
    kit_profiler_free(p);
    nn_free(net);
}

// Sleeps, works, and says how long both took by the system's clock.
static void sleep_and_work(double took[2]) {
    struct timespec pause = {0, 20000000};
    tensor_t *a = tensor_ones(256, 256);
    double begin = bench_now();
    tensor_range_push("sleep");
    nanosleep(&pause, NULL);
    tensor_range_pop();
    took[0] = bench_now() - begin;
    begin = bench_now();
    tensor_range_push("work");
    while (bench_now() - begin < 0.02) { tensor_matmul(a, a); }
    tensor_range_pop();
    took[1] = bench_now() - begin;
}

// Seconds are the system's, by the counter of the processor and without it. There are several turns because
// another program's turn on the core, between the readings of two clocks, is in one of them only.
static void seconds_are_the_systems(void) {
    for (int counts = 0; counts < 2; counts++) {
        double off[3] = {1, 1, 1}, took[2];
        if (counts && !kit_profiler__counts()) {
            printf("skipped 1 test of the processor's counter: it has none of one rate\n");
            continue;
        }
        for (int turn = 0; turn < 8; turn++) {
            kit_profiler_t *p = kit_profiler_start();
            kit_profiler__set_off(p, counts);
            const double begin = bench_now();
            sleep_and_work(took);
            const double whole = bench_now() - begin;
            kit_profiler_stop(p);
            const int n = table(p, KIT_PROFILER_MODULES);
            off[0] = fmin(off[0], fabs(row(n, "sleep")->total / took[0] - 1));
            off[1] = fmin(off[1], fabs(row(n, "work")->total / took[1] - 1));
            off[2] = fmin(off[2], fabs(kit_profiler_seconds(p) / whole - 1));
            kit_profiler_free(p);
        }
        printf("%s: %.0e, %.0e, %.0e from the system's seconds\n", counts ? "counter" : "clock", off[0],
               off[1], off[2]);
        CHECK_MSG(off[0] < 1e-3 && off[1] < 1e-3 && off[2] < 1e-3, "%g %g %g", off[0], off[1], off[2]);
    }
    // However short: there is time to know the rate.
    kit_profiler_t *p = kit_profiler_start();
    kit_profiler_stop(p);
    CHECK_MSG(kit_profiler_seconds(p) > 0 && kit_profiler_seconds(p) < 1e-3, "%g", kit_profiler_seconds(p));
    CHECK_MSG(!p->counts || (p->rate > 1e-11 && p->rate < 1e-6), "%g seconds a tick", p->rate);
    kit_profiler_free(p);
}

// A counter that goes back, as where a machine moves: no row has a time that is not there, and the sum is
// right.
static void a_counter_that_goes_back(void) {
    tensor_t *x = tensor_ones(8);
    kit_profiler_t *p = kit_profiler_start();
    const double begin = bench_now();
    tensor_range_push("first");
    tensor_tanh(x);
    tensor_range_pop();
    p->latest += p->latest / 2; // what comes is behind it
    tensor_range_push("second");
    tensor_exp(x);
    tensor_range_pop();
    kit_profiler_stop(p);
    const double whole = bench_now() - begin, seconds = kit_profiler_seconds(p);
    CHECK_MSG(seconds > 0 && seconds <= 1.1 * whole, "%g of %g seconds", seconds, whole);
    for (int by = KIT_PROFILER_OPS; by <= KIT_PROFILER_MODULES; by++) {
        const int n = table(p, by);
        for (int k = 0; k < n; k++) {
            const int good = rows[k].self >= 0 && rows[k].total >= 0 && rows[k].total <= 1.001 * seconds;
            CHECK_MSG(good, "%s: %g %g", rows[k].name, rows[k].self, rows[k].total);
        }
    }
    kit_profiler_free(p);
}

// The inner one of two has its part, the outer one all of it, whichever stops first.
static void several_listen(void) {
    tensor_t *x = tensor_randn(8);
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        kit_profiler_t *outer = kit_profiler_start();
        tensor_range_push("both");
        tensor_tanh(x);
        kit_profiler_t *inner = kit_profiler_start();
        nn_module_t *net = nn_linear(8, 8);
        tensor_backward(tensor_sum(nn_forward(net, x)));
        tensor_range_push("more");
        kit_profiler_stop(inner_first ? inner : outer);
        tensor_exp(x);
        tensor_range_pop();
        kit_profiler_stop(inner_first ? outer : inner);
        tensor_sin(x);
        int n = table(outer, KIT_PROFILER_OPS);
        CHECK(row(n, "tanh")->calls == 1 && row(n, "linear")->calls == 1 && row(n, "matmul")->calls == 1);
        CHECK(!inner_first || row(n, "exp")->calls == 1);
        CHECK(n == table(outer, KIT_PROFILER_OPS));
        const double whole = sum_of(n, 1);
        n = table(outer, KIT_PROFILER_MODULES);
        CHECK(row(n, "both")->calls > 3);
        n = table(inner, KIT_PROFILER_OPS);
        CHECK(row(n, "linear")->calls == 1 && row(n, "matmul")->calls == 1);
        CHECK(inner_first || row(n, "exp")->calls == 1);
        for (int k = 0; k < n; k++) { CHECK(strcmp(rows[k].name, "tanh") && strcmp(rows[k].name, "sin")); }
        CHECK(sum_of(n, 1) > 0 && whole > 0);
        kit_profiler_free(outer);
        kit_profiler_free(inner);
        nn_free(net);
    }
}

static job_t job;

static void main_job_step(void *user) {
    (void)user;
    job_step(&job);
}

typedef struct images_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
} images_t;

static void images_step(void *user) {
    images_t *i = (images_t *)user;
    nn_zero_grad(i->opt);
    tensor_backward(tensor_cross_entropy(nn_forward(i->net, i->x), i->y));
    nn_step(i->opt);
}

// What the rows of a table come to, of a step's time by a clock that the profiler does not read: at least 98
// percent of it, and not more than it by as much. There are several steps because another program's turn on
// the core between the readings of the two clocks takes from one.
static void step_adds_up(const char *name, void (*step)(void *user), void *user) {
    enum { STEPS_OF_IT = 12 };
    double best[2] = {0, 0};
    tensor_scope_t scope = tensor_scope_begin();
    for (int k = -2; k < STEPS_OF_IT; k++, tensor_scope_reset(scope)) {
        kit_profiler_t *p = kit_profiler_start();
        const double began = bench_now();
        step(user);
        const double took = bench_now() - began;
        kit_profiler_stop(p);
        const double ops = sum_of(table(p, KIT_PROFILER_OPS), 0) / took;
        const int n = table(p, KIT_PROFILER_MODULES);
        const double modules = row(n, "program")->total / took;
        kit_profiler_free(p);
        if (k < 0) { continue; }            // takes memory from the system
        best[0] = fmax(best[0], fmin(ops, 2 - ops));
        best[1] = fmax(best[1], fmin(modules, 2 - modules));
    }
    tensor_scope_end(scope);
    printf("%s: ops come to %.2f %%, modules to %.2f %% of a step by the clock\n", name, 100 * best[0],
           100 * best[1]);
    CHECK_MSG(best[0] >= 0.98 && best[1] >= 0.98, "%s: rows come to %g and %g of a step", name,
              best[0], best[1]);
}

static void steps_add_up(void) {
    images_t i = {resnet_new(50, 100, 4, 0), NULL, tensor_randn(4, 3, 64, 64), tensor_randint(0, 100, 4)};
    i.opt = nn_sgd(i.net, .lr = 0.01, .momentum = 0.9);
    step_adds_up("ResNet-50, thin", images_step, &i);
    nn_optimizer_free(i.opt);
    nn_free(i.net);
    (void)char_gpt_main;
    job.steps = STEPS;
    CHECK(job_open(&job, NULL) == 0);
    step_adds_up("main job", main_job_step, NULL);
    nn_optimizer_free(job.opt);
    nn_free(&job.gpt.base);
}

// Where kernels take milliseconds, next to nothing is left for the rest, if their results have memory
// already: to get some from the system may take longer than a product.
static void kernels_are_the_time(void) {
    tensor_t *a = tensor_randn(384, 384);
    tensor_free(tensor_matmul(a, a));
    kit_profiler_t *p = kit_profiler_start();
    for (int k = 0; k < 8; k++) { tensor_free(tensor_matmul(a, a)); }
    kit_profiler_stop(p);
    int n = table(p, KIT_PROFILER_OPS);
    CHECK(n == 1 && rows[0].calls == 8);
    CHECK_MSG(rows[0].share > 0.8 && rows[0].share <= 1.001, "%g", rows[0].share);
    kit_profiler_free(p);
}

static void products(void) {
    tensor_t *x = tensor_randn(2, 3, 10, 10), *w = tensor_requires_grad_(tensor_randn(6, 3, 3, 3), 1);
    tensor_t *up = tensor_randn(3, 4, 2, 2), *q = tensor_requires_grad_(tensor_randn(1, 2, 5, 8), 1);
    tensor_t *kv = tensor_randn(1, 2, 7, 8), *pair = tensor_randn(4, 3, 5);
    kit_profiler_t *p = kit_profiler_start();
    tensor_backward(tensor_sum(tensor_conv2d(x, w, NULL)));
    tensor_conv_transpose2d(x, up, NULL, .stride = 2);
    tensor_backward(tensor_sum(tensor_scaled_dot_product_attention(q, kv, kv)));
    tensor_matmul(pair, tensor_transpose(pair, 1, 2));
    int n = table(p, KIT_PROFILER_OPS);
    CHECK(row(n, "conv2d")->flops == 2.0 * 2 * 6 * 8 * 8 * 27);
    CHECK(row(n, "conv_weight")->flops == 2.0 * 2 * 6 * 8 * 8 * 27);
    CHECK(row(n, "conv_transpose2d")->flops == 2.0 * 2 * 3 * 100 * 16);
    CHECK(row(n, "scaled_dot_product_attention")->flops == 2.0 * 2 * 5 * 7 * (8 + 8));
    CHECK(row(n, "scaled_dot_product_attention_backward")->flops == 2.0 * 2 * 5 * 7 * (3 * 8 + 2 * 8));
    CHECK(row(n, "matmul")->flops == 2.0 * 4 * 3 * 3 * 5);
    kit_profiler_free(p);
}

// Ranges that do not match, that nest deeply, whose names are gone; a pass inside a range of its own.
static void ranges(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(8, 8), 1), *y;
    char name[16] = "first";
    tensor_range_push("before");
    kit_profiler_t *p = kit_profiler_start();
    tensor_range_pop();
    tensor_range_pop();
    tensor_range_push(name);
    y = tensor_matmul(x, x);
    tensor_range_pop();
    strcpy(name, "second");
    tensor_range_push(name);
    y = tensor_sum(tensor_matmul(y, x));
    tensor_range_pop();
    tensor_range_push("back");
    tensor_backward(y);
    for (int k = 0; k < 300; k++) { tensor_range_push("deep"); }
    tensor_tanh(x);
    int n = table(p, KIT_PROFILER_MODULES), deep = 0;
    for (int k = 0; k < n; k++) { deep += strstr(rows[k].name, "deep") != NULL; }
    CHECK(row(n, "first")->calls == 1 && row(n, "second")->calls == 2);
    CHECK(row(n, "back.backward.first")->flops == 2 * 2.0 * 8 * 8 * 8);
    CHECK(row(n, "back.backward.second")->flops == 2 * 2.0 * 8 * 8 * 8);
    CHECK_MSG(deep == 300, "%d", deep);
    kit_profiler_flame(p);
    kit_profiler_free(p);
}

// The row of that name has so many calls, products of so many flops, and a part of its own of the time.
static void has(int n, const char *name, int64_t calls, double flops) {
    const kit_profiler_row_t *r = row(n, name);
    CHECK_MSG(r->calls == calls && r->flops == flops && r->self > 0, "%s: %lld calls, %g flops, self %g",
              name, (long long)r->calls, r->flops, r->self);
}

static int there_is(int n, const char *name) {
    for (int k = 0; k < n; k++) {
        if (!strcmp(rows[k].name, name)) { return 1; }
    }
    return 0;
}

enum { IN_RANGE, IN_PASS, LEAVES_OPEN, ENDS_ONE, WAYS };

static tensor_t *inside(tensor_t *g, void *user) {
    const int way = *(const int *)user;
    tensor_t *w = tensor_requires_grad_(tensor_ones(8, 8), 1), *found;
    if (way == ENDS_ONE) { tensor_range_pop(); }
    if (way == IN_RANGE || way == LEAVES_OPEN) { tensor_range_push("hook"); }
    tensor_tanh(g);
    if (way == IN_RANGE) { tensor_range_pop(); }
    if (way == IN_PASS) {
        const int grads = tensor_set_grad_enabled(1);
        tensor_t *y = tensor_sum(tensor_matmul(w, w));
        CHECK(tensor_autograd_grad(&y, 1, NULL, &w, 1, &found, 0) == 0);
        tensor_set_grad_enabled(grads);
    }
    return NULL;
}

// A hook in the gradient of a layer, with a range of its own, a pass of its own, a range that it leaves open,
// or the end of one from before the pass: what comes behind is counted where it is without the hook.
static void hooks_change_no_place(void) {
    const double layer = 2.0 * 16 * 8 * 8, product = 2.0 * 8 * 8 * 8;
    nn_module_t *net = nn_sequential(nn_linear(8, 8), nn_tanh(), nn_linear(8, 8));
    tensor_t *x = tensor_randn(16, 8);
    for (int way = 0; way < WAYS; way++) {
        kit_profiler_t *p = kit_profiler_start();
        tensor_range_push("step");
        if (way == ENDS_ONE) { tensor_range_push("open"); }
        tensor_t *y = nn_forward(net, x);
        CHECK(tensor_register_hook(y, inside, &way) > 0);
        CHECK(tensor_backward(tensor_sum(y)) == 0);
        tensor_exp(x);
        if (way == LEAVES_OPEN) { tensor_range_pop(); }
        tensor_range_pop();
        tensor_sin(x);
        kit_profiler_stop(p);
        const int n = table(p, KIT_PROFILER_MODULES);
        const int64_t all = row(n, "program")->calls;
        CHECK_MSG(row(n, "step")->calls == all - 1, "way %d", way);
        if (way == IN_RANGE) {
            has(n, "step.backward.2.hook", 1, 0);
            has(n, "step.backward.2", row(n, "step.backward.2")->calls, 2 * layer);
            has(n, "step.backward.0", row(n, "step.backward.0")->calls, layer);
        } else if (way == IN_PASS) {
            has(n, "step.backward.2.backward", row(n, "step.backward.2.backward")->calls, 2 * product);
            has(n, "step.backward.2", row(n, "step.backward.2")->calls, 2 * layer + 3 * product);
            has(n, "step.backward.0", row(n, "step.backward.0")->calls, layer);
        } else if (way == LEAVES_OPEN) {
            CHECK(row(n, "step.backward.2.hook")->flops == 2 * layer + layer);      // until the pop
        } else {
            has(n, "step.open.backward.2", row(n, "step.open.backward.2")->calls, 2 * layer);
            has(n, "step.open.backward.0", row(n, "step.open.backward.0")->calls, layer);
        }
        kit_profiler_free(p);
    }
    nn_free(net);
}

static tensor_t *again(tensor_t *const *inputs, int n, void *user) {
    (void)n;
    return nn_forward((nn_module_t *)user, inputs[0]);
}

// What a checkpoint runs anew is below the gradient that needs it.
static void checkpoints(void) {
    nn_module_t *first = nn_linear(8, 8), *middle = nn_sequential(nn_linear(8, 8), nn_tanh());
    tensor_t *x = tensor_randn(16, 8);
    kit_profiler_t *p = kit_profiler_start();
    tensor_range_push("step");
    tensor_t *h = nn_forward(first, x);
    tensor_range_push("middle");
    h = tensor_checkpoint(again, middle, &h, 1);
    tensor_range_pop();
    CHECK(tensor_backward(tensor_sum(h)) == 0);
    tensor_range_pop();
    kit_profiler_stop(p);
    const int n = table(p, KIT_PROFILER_MODULES);
    has(n, "step.middle.0", 1, 2.0 * 16 * 8 * 8);
    has(n, "step.backward.middle.1.0", 1, 2.0 * 16 * 8 * 8);
    has(n, "step.backward.middle.1.1", 1, 0);
    has(n, "step.backward.middle.0", row(n, "step.backward.middle.0")->calls, 2 * 2.0 * 16 * 8 * 8);
    CHECK(!there_is(n, "step.0") && !there_is(n, "step.1"));
    kit_profiler_free(p);
    nn_free(first);
    nn_free(middle);
}

// A gradient is counted where its node was recorded: not where a call before it ran that was not recorded,
// for views too, and for those of a pass that is recorded itself.
static void gradients_by_node(void) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(8, 8), 1), *g;
    kit_profiler_t *p = kit_profiler_start();
    tensor_range_push("first");
    tensor_exp(tensor_randn(8));
    tensor_range_pop();
    tensor_range_push("second");
    tensor_t *y = tensor_narrow(x, 0, 0, 4);
    tensor_range_pop();
    tensor_range_push("third");
    tensor_exp(tensor_randn(8));
    tensor_range_pop();
    CHECK(tensor_backward_with(y, tensor_ones(4, 8), 0) == 0);
    int n = table(p, KIT_PROFILER_MODULES);
    CHECK(row(n, "backward.second")->calls > 0);
    CHECK(!there_is(n, "backward.first") && !there_is(n, "backward.third"));
    kit_profiler_free(p);

    p = kit_profiler_start();
    tensor_range_push("first");
    y = tensor_sum(tensor_pow_scalar(tensor_exp(x), 2));
    tensor_range_pop();
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_backward(tensor_sum(g)) == 0);
    n = table(p, KIT_PROFILER_MODULES);
    CHECK(row(n, "backward.first")->calls > 0 && row(n, "backward.backward.first")->calls > 0);
    kit_profiler_free(p);
}

// One address has two texts where a library is loaded anew.
static void texts_that_change(void) {
    char site[20] = "of/old.c:1", op[20] = "exp";
    kit_profiler_t *p = kit_profiler_start();
    for (int turn = 0; turn < 2; turn++) {
        CHECK_TEXT(kit_profiler__text(p, kit_profiler__literal(p, site, 1)), turn ? "new.c:22" : "old.c:1");
        CHECK_TEXT(kit_profiler__text(p, kit_profiler__literal(p, site, 1)), turn ? "new.c:22" : "old.c:1");
        CHECK_TEXT(kit_profiler__text(p, kit_profiler__literal(p, op, 0)), turn ? "matmul" : "exp");
        strcpy(site, "of/new.c:22");
        strcpy(op, "matmul");
    }
    kit_profiler_free(p);
}

// The error has that code and text, and no line: the kit's would be one, not the program's.
static void fails(int code, const char *text) {
    CHECK_MSG(!strstr(tensor_error_text(), ".h:"), "%s", tensor_error_text());
    CHECK_ERROR(code, text);
}

static void misuse(void) {
    kit_profiler_row_t one;
    kit_profiler_t *p = kit_profiler_start();
    tensor_tanh(tensor_randn(8));
    for (int by = -1; by <= 3; by += 4) {
        CHECK(kit_profiler_rows(p, by, &one, 1) == 0);
        fails(TENSOR_ERR_INDEX, "kit_profiler: by must be one of");
        kit_profiler_print(p, by, 5);
        fails(TENSOR_ERR_INDEX, "kit_profiler: by must be one of");
        CHECK(kit_profiler_rows(NULL, by, &one, 1) == 0);
    }
    CHECK(kit_profiler_trace(NULL, "build/kit_profiler.json") == TENSOR_ERR_OWNER);
    fails(TENSOR_ERR_OWNER, "kit_profiler_trace: the profiler is NULL");
    CHECK(kit_profiler_trace(p, NULL) == TENSOR_ERR_IO);
    fails(TENSOR_ERR_IO, "(no path): cannot be written");
    CHECK(kit_profiler_trace(p, "no/such/folder/x.json") == TENSOR_ERR_IO);
    fails(TENSOR_ERR_IO, "no/such/folder/x.json: cannot be written");
    kit_profiler_free(p);
}

#if defined(__unix__)
static void *reads_later(void *path) {
    static char text[4000];
    spin(0.1);
    FILE *file = fopen((const char *)path, "rb");
    while (file && fread(text, 1, sizeof text, file) > 0) {}
    if (file) { fclose(file); }
    return NULL;
}

// A pipe opens when somebody reads it: the time until then is not the program's.
static void traces_into_pipes(void) {
    static char path[] = "build/kit_profiler.pipe";
    pthread_t reader;
    remove(path);
    CHECK(mkfifo(path, 0600) == 0);
    kit_profiler_t *p = kit_profiler_start();
    tensor_tanh(tensor_randn(8));
    CHECK(pthread_create(&reader, NULL, reads_later, path) == 0);
    CHECK(kit_profiler_trace(p, path) == 0);
    CHECK(pthread_join(reader, NULL) == 0);
    CHECK_MSG(kit_profiler_seconds(p) < 0.09, "%g seconds", kit_profiler_seconds(p));
    kit_profiler_free(p);
    remove(path);
}
#endif

// Counts what the text of a trace has; braces must match outside of strings.
static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) { n++; }
    return n;
}

static void traces(void) {
    static char text[20000];
    const char *path = "build/kit_profiler.json";
    tensor_t *x = tensor_randn(8), *w = tensor_requires_grad_(tensor_ones(1), 1);
    tensor_t *loss = tensor_sum(w);
    kit_profiler_t *p = kit_profiler_start();
    tensor_range_push("a \"name\" with \\ and \n");
    tensor_tanh(tensor_add(x, x));
    tensor_range_pop();
    CHECK(tensor_backward(loss) == 0);
    tensor_range_push("left open");
    CHECK(kit_profiler_trace(p, path) == 0);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) { fclose(file); }
    text[size] = 0;
    CHECK(count(text, "\"ph\":\"X\"") == 3 + p->calls.count && count(text, "\"ph\":\"C\"") == p->calls.count);
    CHECK(p->calls.count >= 3 && count(text, "\"name\":\"backward\"") == 1);
    CHECK(count(text, "\"name\":\"add\"") == 1 && count(text, "\"name\":\"tanh\"") == 1);
    CHECK(count(text, "a \\\"name\\\" with \\\\ and  \"") == 1 && count(text, "left open") == 1);
    int open = 0, quoted = 0;
    for (const char *c = text; *c; c++) {
        if (quoted && *c == '\\') {
            c++;
        } else if (*c == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            open += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
        }
        CHECK(open >= 0);
    }
    CHECK(open == 0 && !quoted);
    remove(path);
    CHECK(kit_profiler_trace(p, "no/such/folder/x.json") == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "no/such/folder/x.json: cannot be written");
    kit_profiler_free(p);
}

int main(void) {
    RUN(tables_add_up);
    RUN(modules_have_their_time);
    RUN(seconds_are_the_systems);
    RUN(a_counter_that_goes_back);
    RUN(several_listen);
    RUN(steps_add_up);
    RUN(kernels_are_the_time);
    RUN(products);
    RUN(ranges);
    RUN(hooks_change_no_place);
    RUN(checkpoints);
    RUN(gradients_by_node);
    RUN(texts_that_change);
    RUN(misuse);
#if defined(__unix__)
    RUN(traces_into_pipes);
#endif
    RUN(traces);
    return test_report();
}

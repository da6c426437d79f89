// profiled.c - what examples/kit/profiler.h says of training steps, beside a clock that it does not read
//
// Of the main job (examples/char_gpt.c) and of ResNet-50, batch 4, one thread: milliseconds of a step without
// the profiler and with it, the calls of a step, and what the rows of its table come to, of the step by the
// clock: with the time between calls (total), and kernels alone (self). Steps with and without the profiler
// take turns; figures are medians. What it costs a call is in bench/micro: a step hides it in its noise.
//
// Build: make build/bench/profiled. Lines are "row value unit". STEPS (21) is read from the environment.
#include "bench.h"

#include "../examples/models/resnet.h"

#define KIT_PROFILER_IMPLEMENTATION
#include "../examples/kit/profiler.h"

#define main char_gpt_main
#define STEPS CHAR_GPT_STEPS
#include "../examples/char_gpt.c"
#undef STEPS
#undef main

enum { MOST = 101, ROWS = 400 };

static job_t job;

static void main_job(void *user) {
    (void)user;
    job_step(&job);
}

typedef struct images_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
} images_t;

static void resnet(void *user) {
    images_t *i = (images_t *)user;
    nn_zero_grad(i->opt);
    tensor_backward(tensor_cross_entropy(nn_forward(i->net, i->x), i->y));
    nn_step(i->opt);
}

static double seconds_of(void (*step)(void *user), void *user) {
    const double began = bench_now();
    step(user);
    return bench_now() - began;
}

static void say(const char *name, const char *what, double *values, int n, double scale, const char *unit) {
    char row[64];
    snprintf(row, sizeof row, "%s_%s", name, what);
    qsort(values, (size_t)n, sizeof *values, bench_compare);
    bench_row(row, scale * values[n / 2], unit);
}

static void measure(const char *name, void (*step)(void *user), void *user) {
    static kit_profiler_row_t rows[ROWS];
    static double without[MOST], with[MOST], total[MOST], self[MOST], calls[MOST];
    int steps = kit_setting("STEPS", 21, 1, 1000000);
    if (steps > MOST) { steps = MOST; }
    tensor_scope_t scope = tensor_scope_begin();
    for (int k = -2; k < steps; k++, tensor_scope_reset(scope)) {
        const int at = k < 0 ? 0 : k;           // the first two take memory from the system
        without[at] = seconds_of(step, user);
        tensor_scope_reset(scope);
        kit_profiler_t *p = kit_profiler_start();
        with[at] = seconds_of(step, user);
        kit_profiler_stop(p);
        const int n = kit_profiler_rows(p, KIT_PROFILER_OPS, rows, ROWS);
        calls[at] = total[at] = self[at] = 0;
        for (int r = 0; r < n && r < ROWS; r++) {
            calls[at] += (double)rows[r].calls;
            total[at] += rows[r].total / with[at];
            self[at] += rows[r].self / with[at];
        }
        kit_profiler_free(p);
    }
    tensor_scope_end(scope);
    say(name, "without", without, steps, 1e3, "ms");
    say(name, "with", with, steps, 1e3, "ms");
    say(name, "calls", calls, steps, 1, "calls");
    say(name, "total", total, steps, 100, "%");
    say(name, "self", self, steps, 100, "%");
}

int main(void) {
    (void)char_gpt_main;
    job.steps = CHAR_GPT_STEPS;
    if (job_open(&job, NULL)) { return 1; }
    measure("main_job", main_job, NULL);
    images_t i = {resnet_new(50, 1000, 1, 0), NULL, tensor_randn(4, 3, 224, 224), tensor_randint(0, 1000, 4)};
    i.opt = nn_sgd(i.net, .lr = 0.01, .momentum = 0.9);
    measure("resnet50", resnet, &i);
    return tensor_shutdown();
}

// micro.c - what an operation costs when its numbers cost nothing: 16 elements, a tiny network, start-up.
#include "bench.h"

#include "tensor_nn.h"

#define KIT_PROFILER_IMPLEMENTATION
#include "../examples/kit/profiler.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

enum { NODES = 64 };                   // operations per recorded chain

typedef struct pair_t { tensor_t *a, *b; } pair_t;

// Each repeat is one operation; the scope is emptied every NODES of them, as a program's loop would.
static void adds(void *arg, long repeats) {
    pair_t *p = (pair_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++) {
        tensor_add(p->a, p->b);
        if (i % NODES == NODES - 1) { tensor_scope_reset(scope); }
    }
    tensor_scope_end(scope);
}
// With the kit's profiler listening: what it costs is the difference to add16.
static void adds_profiled(void *arg, long repeats) {
    kit_profiler_t *p = kit_profiler_start();
    adds(arg, repeats);
    kit_profiler_free(p);
}
static void muls(void *arg, long repeats) {
    pair_t *p = (pair_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++) {
        tensor_mul(p->a, p->b);
        if (i % NODES == NODES - 1) { tensor_scope_reset(scope); }
    }
    tensor_scope_end(scope);
}

// A chain of NODES operations, products with a constant and tanh in turn: forward only, and forward with
// backward.
static tensor_t *chain(pair_t *p) {
    tensor_t *y = p->a;
    for (int i = 0; i < NODES; i += 2) { y = tensor_tanh(tensor_mul(y, p->b)); }
    return y;
}
static void chains(void *arg, long repeats) {
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) { chain((pair_t *)arg); }
    tensor_scope_end(scope);
}
static void chains_backward(void *arg, long repeats) {
    pair_t *p = (pair_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *ones = tensor_keep(tensor_ones(16));
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        tensor_backward_with(chain(p), ones, 0);
        tensor_set_grad(p->a, NULL);
    }
    tensor_scope_end(scope);
    tensor_free(ones);
}

typedef struct mlp_t { nn_module_t *net; nn_optimizer_t *opt; tensor_t *x, *y; } mlp_t;

static void mlp_steps(void *arg, long repeats) {
    mlp_t *m = (mlp_t *)arg;
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) {
        nn_zero_grad(m->opt);
        tensor_backward(tensor_mse_loss(nn_forward(m->net, m->x), m->y));
        nn_step(m->opt);
    }
    tensor_scope_end(scope);
}
// The same step, captured.
static tensor_graph_t *mlp_graph(mlp_t *m) {
    tensor_capture_begin(TENSOR_CPU);
    mlp_steps(m, 1);
    return tensor_capture_end();
}
static void mlp_replays(void *arg, long repeats) {
    for (long i = 0; i < repeats; i++) { tensor_graph_replay((tensor_graph_t *)arg); }
}
static void mlp_infer(void *arg, long repeats) {
    mlp_t *m = (mlp_t *)arg;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    for (long i = 0; i < repeats; i++, tensor_scope_reset(scope)) { nn_forward(m->net, m->x); }
    tensor_scope_end(scope);
}

// Start-up: this program runs itself and the child tells how long it took from the moment it was told to
// start, and from the first line of its main, until the first operation had its result.
static int child(const char *spawned_at, double main_at) {
    int wrong = tensor_item(tensor_sum(tensor_ones(4))) != 4.0;
    double done = bench_now();
    printf("%.9f %.9f\n", done - strtod(spawned_at, NULL), done - main_at);
    return wrong;
}
static void start_up(const char *self) {
    enum { RUNS = 21 };
    double whole[RUNS], inside[RUNS];
    for (int i = 0; i < RUNS; i++) {
        char command[512], line[128] = "";
        snprintf(command, sizeof command, "exec %s child %.9f", self, bench_now());
        FILE *f = popen(command, "r");
        if (!f || !fgets(line, sizeof line, f) || sscanf(line, "%lf %lf", &whole[i], &inside[i]) != 2) {
            whole[i] = inside[i] = 1;
        }
        if (f) { pclose(f); }
    }
    qsort(whole, RUNS, sizeof whole[0], bench_compare);
    qsort(inside, RUNS, sizeof inside[0], bench_compare);
    bench_row("start_main_to_first_op", 1e3 * inside[RUNS / 2], "ms");
    bench_row("start_fork_exec_first_op", 1e3 * whole[RUNS / 2], "ms");
}

int main(int argc, char **argv) {
    double main_at = bench_now();
    if (argc == 3 && strcmp(argv[1], "child") == 0) { return child(argv[2], main_at); }

    start_up(argv[0]);
    pair_t p = {tensor_rand(16), tensor_rand(16)};
    bench_row("add16", 1e9 * bench_median(adds, &p), "ns");
    bench_row("add16_profiled", 1e9 * bench_median(adds_profiled, &p), "ns");
    bench_row("mul16", 1e9 * bench_median(muls, &p), "ns");
    tensor_requires_grad_(p.a, 1);
    tensor_requires_grad_(p.b, 1);
    bench_row("add16_tape", 1e9 * bench_median(adds, &p), "ns");
    bench_row("mul16_tape", 1e9 * bench_median(muls, &p), "ns");
    tensor_requires_grad_(p.b, 0);
    double forward = bench_median(chains, &p), both = bench_median(chains_backward, &p);
    bench_row("backward_node", 1e9 * (both - forward) / NODES, "ns");

    mlp_t m;
    m.net = nn_sequential(nn_linear(8, 64), nn_relu(), nn_linear(64, 64), nn_relu(), nn_linear(64, 4));
    m.opt = nn_adam(m.net, .lr = 1e-3);
    m.x = tensor_randn(32, 8);
    m.y = tensor_randn(32, 4);
    bench_row("mlp_step", 1e6 * bench_median(mlp_steps, &m), "us");
    tensor_memory_stats_t before = tensor_memory_stats();
    mlp_steps(&m, 100);
    tensor_memory_stats_t after = tensor_memory_stats();
    bench_row("mlp_mallocs_per_step", (double)(after.allocs - before.allocs) / 100, "calls");
    tensor_graph_t *graph = mlp_graph(&m);
    bench_row("mlp_step_replay", 1e6 * bench_median(mlp_replays, graph), "us");
    tensor_graph_free(graph);
    m.x = tensor_randn(1, 8);
    bench_row("mlp_infer", 1e6 * bench_median(mlp_infer, &m), "us");
    return tensor_shutdown();
}

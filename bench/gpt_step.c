// gpt_step.c [threads...] - milliseconds per training step of the main job, by its own code.
#include "bench.h"

#define main char_gpt_main
#include "../examples/char_gpt.c"
#undef main

int main(int argc, char **argv) {
    enum { WARM = 4, TIMED = 12 };
    (void)char_gpt_main;
    for (int k = 1; k < argc || k == 1; k++) {
        int threads = argc > 1 ? atoi(argv[k]) : 1;
        double took[TIMED];
        char row[64];
        static job_t job;
        memset(&job, 0, sizeof job);
        job.steps = STEPS;
        tensor_set_num_threads(threads);
        if (job_open(&job, NULL)) { return 1; }
        tensor_scope_t scope = tensor_scope_begin();
        for (int i = 0; i < WARM; i++, tensor_scope_reset(scope)) { job_step(&job); }
        tensor_memory_stats_t before = tensor_memory_stats();
        for (int i = 0; i < TIMED; i++, tensor_scope_reset(scope)) {
            took[i] = bench_now();
            job_step(&job);
            took[i] = bench_now() - took[i];
        }
        tensor_memory_stats_t after = tensor_memory_stats();
        qsort(took, TIMED, sizeof took[0], bench_compare);
        snprintf(row, sizeof row, "gpt_step_%dt", threads);
        bench_row(row, 1e3 * took[TIMED / 2], "ms");
        snprintf(row, sizeof row, "gpt_mallocs_per_step_%dt", threads);
        bench_row(row, (double)(after.allocs - before.allocs) / TIMED, "calls");
        bench_row("gpt_vocabulary", (double)tensor_numel(job.symbols), "characters");
        if (tensor_shutdown()) { return 1; }
    }
    return 0;
}

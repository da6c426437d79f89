// gpt_step.c [threads...] - milliseconds per training step of the main job, with its own model and step.
#include "bench.h"

#define CHAR_GPT_NO_MAIN
#include "../examples/char_gpt.c"

int main(int argc, char **argv) {
    enum { STEPS = 12 };
    for (int k = 1; k < argc || k == 1; k++) {
        int threads = argc > 1 ? atoi(argv[k]) : 1;
        double took[STEPS];
        char row[64];
        job_t job = job_defaults();
        job.threads = threads;
        if (job_open(&job)) return 1;
        for (int i = 0; i < 4; i++) job_step(&job, i);
        tensor_memory_stats_t before = tensor_memory_stats();
        for (int i = 0; i < STEPS; i++) {
            took[i] = bench_now();
            job_step(&job, 4 + i);
            took[i] = bench_now() - took[i];
        }
        tensor_memory_stats_t after = tensor_memory_stats();
        qsort(took, STEPS, sizeof took[0], bench_compare);
        snprintf(row, sizeof row, "gpt_step_%dt", threads);
        bench_row(row, 1e3 * took[STEPS / 2], "ms");
        snprintf(row, sizeof row, "gpt_mallocs_per_step_%dt", threads);
        bench_row(row, (double)(after.allocs - before.allocs) / STEPS, "calls");
        bench_row("gpt_vocabulary", (double)job.vocabulary, "characters");
        if (job_close(&job)) return 1;
    }
    return 0;
}

// ranks.c MODE - examples/kit/parallel.h under mpirun; tests/parallel.sh compares what several ranks print
#define _DEFAULT_SOURCE // kill, sleep
#ifndef KIT_PARALLEL_BUCKET
#define KIT_PARALLEL_BUCKET 4096
#endif
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long fails_in = -1; // how many allocations of this rank succeed before all fail; -1: none fails

static int fails_now(void) {
    if (fails_in > 0) {
        fails_in--;
        return 0;
    }
    return fails_in == 0;
}

static void *own_malloc(size_t bytes) { return fails_now() ? NULL : malloc(bytes); }
static void *own_calloc(size_t n, size_t bytes) { return fails_now() ? NULL : calloc(n, bytes); }

#define malloc own_malloc
#define calloc own_calloc
#define KIT_PARALLEL_IMPLEMENTATION
#define KIT_MPI_IMPLEMENTATION
#include "../../examples/kit/mpi.h"
#undef malloc
#undef calloc

#include "train.h"

static void trouble(const char *how) {
    if (!strcmp(how, "hang")) sleep(60);
    if (!strcmp(how, "die")) kill(getpid(), SIGKILL);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { WIDTH = 2560, RUNS = 7 }; // a net of 105 MB

static double middle(double *took) {
    qsort(took, RUNS, sizeof *took, by_value);
    return took[RUNS / 2];
}

// Seconds of RUNS steps on a batch of that many samples over all ranks, with and without their sums; waits: those
// that a step waits for its sums after backward.
static void time_steps(kit_parallel_t *p, nn_module_t *net, nn_optimizer_t *opt, int64_t samples, int sums,
                       double took[RUNS], double waits[RUNS]) {
    tensor_scope_t scope = tensor_scope_begin();
    for (int run = 0; run < RUNS && tensor_ok(); run++, tensor_scope_reset(scope)) {
        double own[2], all[2];
        tensor_t *x = tensor_randn(samples / ranks.size, WIDTH);
        nn_zero_grad(opt);
        kit_parallel_total(&ranks, 0, 0, all); // ranks begin together
        double begin = MPI_Wtime();
        kit_parallel_sync(p, sums);
        tensor_t *loss = tensor_mean(tensor_square(nn_forward(net, x)));
        tensor_backward(kit_parallel_loss(p, loss, samples / ranks.size));
        own[1] = MPI_Wtime();
        if (sums) kit_parallel_finish(p);
        own[1] = MPI_Wtime() - own[1];
        nn_step(opt);
        own[0] = MPI_Wtime() - begin;
        kit_parallel_total(&ranks, own[0], own[1], all); // of ranks that differ, the mean
        took[run] = all[0] / ranks.size;
        waits[run] = all[1] / ranks.size;
    }
    tensor_scope_end(scope);
}

// Milliseconds, medians: a step; the same step without its sums; the sums with nothing beside them. Hidden is what
// of the sums is done when backward ends. Where ranks have no core to spare, backward takes longer for it: by how
// much a step grows is the cost of the sums, and stands beside it.
static int speed(int64_t samples) {
    tensor_set_num_threads(1); // a core for each rank
    nn_module_t *net = nn_sequential(nn_linear(WIDTH, WIDTH), nn_relu(), nn_linear(WIDTH, WIDTH), nn_relu(),
                                     nn_linear(WIDTH, WIDTH), nn_relu(), nn_linear(WIDTH, WIDTH));
    nn_optimizer_t *opt = nn_sgd(net, .lr = 1e-3);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, 0);
    if (!p) return 1;
    double with[RUNS], without[RUNS], alone[RUNS], waits[RUNS];
    time_steps(p, net, opt, samples, 1, with, waits); // warm
    time_steps(p, net, opt, samples, 0, without, waits);
    time_steps(p, net, opt, samples, 1, with, waits);
    for (int run = 0; run < RUNS && tensor_ok(); run++) {
        double begin = MPI_Wtime();
        kit_parallel_finish(p);
        alone[run] = MPI_Wtime() - begin;
    }
    double step = middle(with), bare = middle(without), sums = middle(alone);
    if (ranks.rank == 0 && tensor_ok()) {
        printf("%d ranks: step %.0f ms (%.0f-%.0f), %.0f ms without sums; sums alone %.0f ms (%.0f %% hidden)\n", ranks.size,
               1e3 * step, 1e3 * with[0], 1e3 * with[RUNS - 1], 1e3 * bare, 1e3 * sums, 100 * (1 - middle(waits) / sums));
    }
    kit_parallel_close(p);
    return tensor_error_code();
}

// Rank 0 gives up on a gather. What comes late must not be written where its memory has another use by then.
static int late_gather(void) {
    enum { N = 4 };
    double sums[2];
    int own_is_good = 1;
    if (ranks.rank) {
        sleep(3);
        kit_parallel_total(&ranks, 7, 7, sums);
        sleep(60); // rank 0 ends it
        return 1;
    }
    int code = kit_parallel_total(&ranks, 1, 2, sums), there;
    double *own = (double *)malloc(N * sizeof(double));
    for (int k = 0; own && k < N; k++) own[k] = k + 0.5;
    double end = MPI_Wtime() + 4;
    while (MPI_Wtime() < end) MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    for (int k = 0; own && k < N; k++) own_is_good = own_is_good && own[k] == k + 0.5;
    own_is_good = own_is_good && own && code == TENSOR_ERR_IO;
    puts(own_is_good ? "rank 0 ends with IO: its memory is its own" : "a late answer in other memory");
    fflush(stdout);
    free(own);
    return 1;
}

// MPI counts in int. The tensor is one element that stands for all of them.
static int large_sum(void) {
    void *request;
    int code = ranks.sum(ranks.user, 0, tensor_expand(tensor_zeros(1), ((int64_t)1 << 32) + 1), &request);
    printf("rank %d ends with %s: %s\n", ranks.rank, tensor_code_name(code), tensor_error_text());
    return 1;
}

static void *library_alloc(void *user, size_t bytes, size_t alignment) {
    void *block = NULL;
    (void)user;
    if (fails_now() || posix_memalign(&block, alignment, bytes)) { return NULL; }
    return block;
}

static void library_free(void *user, void *block, size_t bytes, size_t alignment) {
    (void)user, (void)bytes, (void)alignment;
    free(block);
}

// Whether all ranks have failed, or none has (-1: some). Those that have failed have an error, the last rank its
// own, and none has waited for the timeout.
static int failed_together(int failed, double took) {
    double sums[2];
    int last = ranks.rank == ranks.size - 1, code = tensor_error_code();
    int odd = took > 1 || failed != (code != 0) || (failed && (code == TENSOR_ERR_OUT_OF_MEMORY) != last);
    if (odd) printf("rank %d: %g s, failed %d: %s\n", ranks.rank, took, failed, tensor_error_text());
    tensor_clear_error();
    if (kit_parallel_total(&ranks, failed, odd, sums) || sums[1] > 0) return -1;
    if (sums[0] > 0 && sums[0] < ranks.size) return -1;
    return sums[0] > 0;
}

// The last rank has no memory from the k-th thing on that an opening asks for, for each k: all ranks hear of it at
// once, and the same ranks open what they could not open, and train.
static int memory(void) {
    int last = ranks.rank == ranks.size - 1, failed = 1, failures = 0;
    nn_module_t *net = make_net(8, 0);
    nn_optimizer_t *opt = nn_adam(net);
    kit_parallel_t *p = NULL;
    kit_collectives_t again = ranks;
    double begin = MPI_Wtime();
    fails_in = last ? 0 : -1;
    failed = kit_mpi_ranks(&again, 2);
    fails_in = -1;
    if (!failed) puts("an opening without memory succeeds");
    tensor_clear_error();
    if (MPI_Wtime() - begin > 1 || kit_mpi_ranks(&ranks, 2)) return 1;
    for (failed = 1; failed == 1; failures++) {
        tensor_empty_cache();
        begin = MPI_Wtime();
        fails_in = last ? failures : -1;
        p = kit_parallel_open(&ranks, net, opt, 0);
        fails_in = -1;
        failed = failed_together(p == NULL, MPI_Wtime() - begin);
        if (failed) kit_parallel_close(p);
    }
    if (failed || failures < 8) printf("%d openings: not all ranks alike\n", failures);
    int good = !failed && failures >= 8;
    if (good) batch(p, net, 0, 32);
    good = good && !kit_parallel_finish(p);
    puts(good ? "good" : "wrong");
    if (good) kit_parallel_close(p);
    return tensor_error_code();
}

// The last rank starts MPI and goes no further; or all of them have MPI as the mode says.
static void start_mpi(const char *mode) {
    int level, rank, size;
    if (!strcmp(mode, "broken-threads") || !strcmp(mode, "broken-ended")) MPI_Init(NULL, NULL);
    if (!strcmp(mode, "broken-ended")) MPI_Finalize();
    if (strcmp(mode, "broken-absent")) return;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1) sleep(60);
}

// The first process that ends with an error ends the others, who shall have said theirs by then.
static int leave(int code) {
    fflush(stdout);
    if (code) sleep(1);
    return code != 0;
}

static void quiet(int code, const char *text, void *user) { (void)code, (void)text, (void)user; }

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "even", *file = argc > 2 ? argv[2] : NULL;
    tensor_allocator_t allocator = {library_alloc, library_free, NULL};
    out = stdout;
    tensor_set_allocator(&allocator);
    tensor_set_error_handler(quiet, NULL);
    start_mpi(mode);
    if (kit_mpi_ranks(&ranks, !strcmp(mode, "speed") ? 60 : 2)) {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        printf("rank %s ends with %s: %s\n", rank ? rank : "?", tensor_code_name(tensor_error_code()), tensor_error_text());
        leave(1);
        if (!strcmp(mode, "broken-threads")) MPI_Finalize();
        return 1;
    }
    make_data();
    int code;
    if (!strcmp(mode, "missing")) code = missing();
    else if (!strcmp(mode, "shards")) code = shards();
    else if (!strcmp(mode, "speed")) code = speed(file ? atoi(file) : 1024);
    else if (!strcmp(mode, "again")) code = again();
    else if (!strcmp(mode, "kept")) code = kept();
    else if (!strcmp(mode, "frozen")) code = frozen();
    else if (!strcmp(mode, "cleared")) code = cleared();
    else if (!strcmp(mode, "masks")) code = masks(file);
    else if (!strcmp(mode, "memory")) code = memory();
    else if (!strcmp(mode, "broken-large")) code = large_sum();
    else if (!strcmp(mode, "broken-gather")) code = late_gather();
    else if (!strncmp(mode, "broken-", 7)) code = broken(mode + 7);
    else if (!strcmp(mode, "resume")) code = train("even", file, 1);
    else code = train(mode, file, 0);
    if (code && strncmp(mode, "broken-", 7)) printf("%s\n", tensor_error_text());
    tensor_shutdown();
    return leave(code);
}

// gpus.c - examples/kit/nccl.h: ranks that are threads with a GPU each, beside one rank; in the emulator, with a fake NCCL
#define _DEFAULT_SOURCE // usleep
#define KIT_PARALLEL_BUCKET 4096
#define KIT_PARALLEL_IMPLEMENTATION
#define KIT_NCCL_IMPLEMENTATION
#include "../../examples/kit/nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern void cusim_set(const char *what, long value); // of the emulator

#define RANKS_LOCAL __thread
#define STEPS 10 // the emulator takes its time
#include "train.h"

enum { RANKS = 2 };

typedef struct job_t {
    const char *mode, *id, *file;
    int rank, size, code;
    FILE *out;
} job_t;

static int passed, failed;

static void check(int good, const char *what, const char *mode) {
    passed += good;
    failed += !good;
    if (!good) printf("%s: %s\n", mode, what);
}

static int heard; // rank 0 has an error; atomic

// Hangs until rank 0 has given up; or is gone as a killed process is, with its work half done.
static void trouble(const char *how) {
    if (!strcmp(how, "die")) pthread_exit(NULL);
    if (strcmp(how, "hang")) return;
    for (int k = 0; k < 3000 && !__atomic_load_n(&heard, __ATOMIC_ACQUIRE); k++) usleep(10000);
}

static void quiet(int code, const char *text, void *user) { (void)code, (void)text, (void)user; }

static int run(const job_t *job) {
    if (!strcmp(job->mode, "missing")) return missing();
    if (!strcmp(job->mode, "shards")) return shards();
    if (!strcmp(job->mode, "again")) return again();
    if (!strcmp(job->mode, "resume")) return train("even", job->file, 1);
    if (!strncmp(job->mode, "broken-", 7)) return broken(job->mode + 7);
    return train(job->mode, job->file, 0);
}

// Whether a rank does not come to a sum, for which NCCL waits: its stream never ends.
static int stalls(const char *mode) {
    static const char *const all[] = {"broken-hang", "broken-late", "broken-leave", "broken-die", "broken-empty"};
    for (int k = 0; k < 5; k++) {
        if (!strcmp(mode, all[k])) return 1;
    }
    return 0;
}

static void *rank_run(void *arg) {
    job_t *job = (job_t *)arg;
    tensor_device_t device = (tensor_device_t)(TENSOR_CUDA + job->rank);
    tensor_set_error_handler(quiet, NULL);
    out = job->out;
    job->code = kit_nccl_ranks(&ranks, job->rank, job->size, job->id, device, stalls(job->mode) ? 2 : 60);
    if (!job->code) {
        tensor_set_default_device(device);
        make_data();
        job->code = run(job);
        if (job->rank == 0) __atomic_store_n(&heard, job->code != 0, __ATOMIC_RELEASE);
        if (!stalls(job->mode)) kit_nccl_end(&ranks);
    }
    if (job->code && strncmp(job->mode, "broken-", 7)) printf("rank %d: %s\n", job->rank, tensor_error_text());
    tensor_thread_end();
    return NULL;
}

// Runs a mode on so many ranks. -> whether all of them ended well; file[k]: what rank k says
static int start(const char *mode, int size, FILE **file, const char *path) {
    char id[TENSOR_CUDA_ID_BYTES];
    job_t job[RANKS];
    pthread_t thread[RANKS];
    int good = tensor_cuda_comm_id(id) == 0;
    heard = 0;
    for (int k = 0; k < size; k++) {
        job[k] = (job_t){mode, id, path, k, size, 0, tmpfile()};
        pthread_create(&thread[k], NULL, rank_run, &job[k]);
    }
    for (int k = 0; k < size; k++) {
        pthread_join(thread[k], NULL);
        good = good && job[k].code == 0;
        file[k] = job[k].out;
        rewind(file[k]);
    }
    return good;
}

// Lines "step loss" of one rank and of two that differ by 1e-6 at most. -> how many
static int same(FILE *one, FILE *two) {
    int step, other, n = 0;
    double loss, beside;
    while (fscanf(two, "%d %lf", &other, &beside) == 2) {
        do {
            if (fscanf(one, "%d %lf", &step, &loss) != 2) return -1;
        } while (step < other);
        if (step != other || !(loss - beside < 1e-6 && beside - loss < 1e-6)) return -1;
        n++;
    }
    return n;
}

static void text_is(const char *mode, FILE *file, const char *want) {
    char line[400] = "";
    check(fgets(line, sizeof line, file) && strstr(line, want), line[0] ? line : "says nothing", mode);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const char *const modes[] = {"even", "uneven", "norm", "twice"};
    static const char *const broken_by[][2] = {
        {"broken-shapes", "rank 1 has other names, shapes or dtypes than rank 0"},
        {"broken-count", "rank 1 has another number of parameters than rank 0"},
        {"broken-dtype", "rank 1 has a net that is not of f32 on its device"},
        {"broken-version", "rank 1 has another version of tensor.h than rank 0"},
        {"broken-state", "rank 1 has another optimizer state than rank 0"},
        {"broken-step", "rank 1 is at another step than rank 0"},
        {"broken-file", "rank 1 has an error: "},
        {"broken-error", "another rank has an error"},
    };
    enum { BROKEN = (int)(sizeof broken_by / sizeof *broken_by) };
    const char *path = argc > 1 ? argv[1] : "gpus.safetensors";
    FILE *one[1], *two[RANKS];
    tensor_set_error_handler(quiet, NULL);
    cusim_set("devices", RANKS);
    if (tensor_cuda_init() || tensor_cuda_device_count() < RANKS) {
        printf("%s\n0 passed, 1 failed\n", tensor_error_text());
        return 1;
    }
    for (int k = 0; k < 4; k++) {
        check(start(modes[k], 1, one, NULL), "one rank fails", modes[k]);
        check(start(modes[k], RANKS, two, path), "a rank fails", modes[k]);
        check(same(one[0], two[0]) == STEPS, "losses differ", modes[k]);
    }
    check(start("even", 1, one, NULL) && start("even", RANKS, two, path), "a rank fails", "even");
    check(start("resume", RANKS, two, path), "a rank fails", "resume");
    check(same(one[0], two[0]) == STEPS - SAVE_AT, "losses differ", "resume");
    static const char *const whole[] = {"missing", "shards", "again"};
    for (int k = 0; k < 3; k++) {
        const char *mode = whole[k];
        check(start(mode, RANKS, two, NULL), "a rank fails", mode);
        text_is(mode, two[0], "good");
        text_is(mode, two[1], "good");
    }
    for (int k = 0; k < BROKEN; k++) {
        check(!start(broken_by[k][0], RANKS, two, NULL), "no rank fails", broken_by[k][0]);
        text_is(broken_by[k][0], two[0], broken_by[k][1]);
    }
    // The last ones: streams of these ranks never end.
    static const char *const stalled[] = {"broken-hang", "broken-late", "broken-leave", "broken-die", "broken-empty"};
    for (int k = 0; k < 5; k++) {
        const char *says = k < 4 ? "rank 0: another rank has not answered in time"
                                 : "rank 0: another rank did not come to a layer's sum";
        time_t begin = time(NULL);
        check(!start(stalled[k], RANKS, two, NULL), "no rank fails", stalled[k]);
        text_is(stalled[k], two[0], says);
        if (k < 2) text_is(stalled[k], two[1], "rank 1: another rank has not answered in time");
        check(difftime(time(NULL), begin) < 30, "takes too long", stalled[k]);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

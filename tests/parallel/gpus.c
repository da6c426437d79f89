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

enum { RANKS = 2, MOST = 3 }; // MOST: where one of them is in trouble

typedef struct job_t {
    const char *mode, *id, *file;
    int rank, size, code;
    FILE *out;
} job_t;

static int passed, failed;

static void check(int good, const char *what, const char *mode) {
    passed += good;
    failed += !good;
    if (!good) { printf("%s: %s\n", mode, what); }
}

static int heard; // how many ranks have ended; atomic

// Hangs until the others have given up; or is gone as a killed process is, with its work half done.
static void trouble(const char *how) {
    if (!strcmp(how, "die")) { pthread_exit(NULL); }
    if (strcmp(how, "hang")) { return; }
    for (int k = 0; k < 3000 && __atomic_load_n(&heard, __ATOMIC_ACQUIRE) < MOST - 1; k++) { usleep(10000); }
}

static void quiet(int code, const char *text, void *user) { (void)code, (void)text, (void)user; }

// A stream that cannot be asked ends a wait without a limit.
static int stuck(void) {
    tensor_t *x = tensor_ones(8);
    void *request = NULL;
    int code = ranks.sum(ranks.user, 0, x, &request);
    tensor_capture_begin(ranks.device);
    if (!code) { code = ranks.wait(ranks.user, &request, 0); }
    fprintf(out, "%s\n", tensor_error_text());
    tensor_clear_error();
    tensor_graph_free(tensor_capture_end());
    tensor_clear_error();
    return code != TENSOR_ERR_UNSUPPORTED;
}

static int run(const job_t *job) {
    if (!strcmp(job->mode, "missing")) { return missing(); }
    if (!strcmp(job->mode, "shards")) { return shards(); }
    if (!strcmp(job->mode, "again")) { return again(); }
    if (!strcmp(job->mode, "kept")) { return kept(); }
    if (!strcmp(job->mode, "frozen")) { return frozen(); }
    if (!strcmp(job->mode, "cleared")) { return cleared(); }
    if (!strcmp(job->mode, "stuck")) { return stuck(); }
    if (!strcmp(job->mode, "masks")) { return masks(job->file); }
    if (!strcmp(job->mode, "resume")) { return train("even", job->file, 1); }
    if (!strncmp(job->mode, "broken-", 7)) { return broken(job->mode + 7); }
    return train(job->mode, job->file, 0);
}

// Ranks that wait for another one, which does not come, give up after two seconds.
static double timeout_of(const char *mode) {
    static const char *const all[] = {"broken-absent", "broken-hang", "broken-late", "broken-leave",
                                      "broken-die",    "broken-empty"};
    for (int k = 0; k < 6; k++) {
        if (!strcmp(mode, all[k])) { return 2; }
    }
    if (!strcmp(mode, "stuck")) { return 0; }
    return 60;
}

static void *rank_run(void *arg) {
    job_t *job = (job_t *)arg;
    tensor_device_t device = (tensor_device_t)(TENSOR_CUDA + job->rank);
    tensor_set_error_handler(quiet, NULL);
    out = job->out;
    if (!strcmp(job->mode, "broken-absent") && job->rank == job->size - 1) { return NULL; }
    job->code = kit_nccl_ranks(&ranks, job->rank, job->size, job->id, device, timeout_of(job->mode));
    if (job->code) {
        fprintf(out, "rank %d ends with %s: %s\n", job->rank, tensor_code_name(job->code), tensor_error_text());
    } else {
        tensor_set_default_device(device);
        make_data();
        job->code = run(job);
        __atomic_fetch_add(&heard, 1, __ATOMIC_ACQ_REL);
        kit_nccl_end(&ranks);
    }
    if (job->code && strncmp(job->mode, "broken-", 7)) {
        printf("rank %d: %s\n", job->rank, tensor_error_text());
    }
    tensor_thread_end();
    return NULL;
}

// Runs a mode on so many ranks. -> whether all of them ended well; file[k]: what rank k says
static int start(const char *mode, int size, FILE **file, const char *path) {
    char id[TENSOR_CUDA_ID_BYTES];
    job_t job[MOST];
    pthread_t thread[MOST];
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
            if (fscanf(one, "%d %lf", &step, &loss) != 2) { return -1; }
        } while (step < other);
        if (step != other || !(loss - beside < 1e-6 && beside - loss < 1e-6)) { return -1; }
        n++;
    }
    return n;
}

// The first line says one of two texts, which a '|' divides. A rank that comes to a sum when another one has given it
// up hears that from NCCL.
static void text_is(const char *mode, FILE *file, const char *want) {
    char line[500] = "says nothing", first[200];
    if (!fgets(line, sizeof line, file)) { strcpy(line, "says nothing"); }
    line[strcspn(line, "\n")] = 0;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(want, "|"), want);
    const char *second = strchr(want, '|');
    check(strstr(line, first) || (second && strstr(line, second + 1)), line, mode);
}

// One mode, and what ranks 0, 1 and 2 say, of which the last is in trouble; "" = it says nothing.
static void broken_is(const char *const row[4]) {
    time_t begin = time(NULL);
    FILE *says[MOST];
    check(!start(row[0], MOST, says, NULL), "no rank fails", row[0]);
    for (int rank = 0; rank < MOST; rank++) {
        if (row[1 + rank][0]) { text_is(row[0], says[rank], row[1 + rank]); }
    }
    check(difftime(time(NULL), begin) < 30, "takes too long", row[0]);
}

#define SILENT "another rank has not answered in time|NCCL: remote process exited"
#define NOT_HERE "cuda_comm_new: not all ranks have come in time|NCCL: remote process exited"

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const char *const modes[] = {"even", "uneven", "norm", "twice"};
    static const char *const broken_by[][4] = {
        {"broken-shapes", "rank 2 has other names, shapes", "rank 2 has other names", "rank 2 has other names"},
        {"broken-count", "rank 2 has another number", "rank 2 has another number", "rank 2 has another number"},
        {"broken-dtype", "rank 2 has a net that is not of f32", "rank 2 has a net", "rank 2 has a net"},
        {"broken-version", "rank 2 has another version", "rank 2 has another version", "rank 2 has another"},
        {"broken-state", "rank 2 has another optimizer state", "rank 2 has another", "rank 2 has another"},
        {"broken-step", "rank 2 is at another step", "rank 2 is at another", "rank 2 is at another"},
        {"broken-file", "rank 2 has an error: ", "rank 2 has an error: ", "no/such/file"},
        {"broken-error", "another rank has an error", "another rank has an error", "its own"},
        {"broken-absent", NOT_HERE, NOT_HERE, ""},
        {"broken-hang", SILENT, SILENT, "NCCL: remote process exited"},
        {"broken-late", SILENT, SILENT, "NCCL: remote process exited"},
        {"broken-leave", SILENT, SILENT, ""},
        {"broken-die", SILENT, SILENT, ""},
        {"broken-empty", "did not come to a layer's sum; all ranks need samples|remote process exited", SILENT, SILENT},
    };
    static const char *const old[4] = {"broken-old", "a timeout needs NCCL 2.14: libnccl.so.2 has no ncclCommInit",
                                       "a timeout needs NCCL 2.14", "a timeout needs NCCL 2.14"};
    enum { BROKEN = (int)(sizeof broken_by / sizeof *broken_by) };
    const char *path = argc > 1 ? argv[1] : "gpus.safetensors";
    FILE *one[1], *two[RANKS];
    tensor_set_error_handler(quiet, NULL);
    cusim_set("devices", MOST);
    if (tensor_cuda_init() || tensor_cuda_device_count() < MOST) {
        printf("%s\n0 passed, 1 failed\n", tensor_error_text());
        return 1;
    }
    cusim_set("old_nccl", 1); // before a library that has it is opened
    broken_is(old);
    cusim_set("old_nccl", 0);
    for (int k = 0; k < 4; k++) {
        check(start(modes[k], 1, one, NULL), "one rank fails", modes[k]);
        check(start(modes[k], RANKS, two, path), "a rank fails", modes[k]);
        check(same(one[0], two[0]) == STEPS, "losses differ", modes[k]);
    }
    check(start("even", 1, one, NULL) && start("even", RANKS, two, path), "a rank fails", "even");
    check(start("resume", RANKS, two, path), "a rank fails", "resume");
    check(same(one[0], two[0]) == STEPS - SAVE_AT, "losses differ", "resume");
    static const char *const whole[] = {"missing", "shards", "again", "kept", "cleared", "frozen", "masks"};
    for (int k = 0; k < (int)(sizeof whole / sizeof *whole); k++) {
        const char *mode = whole[k];
        check(start(mode, RANKS, two, path), "a rank fails", mode);
        text_is(mode, two[0], "good");
        text_is(mode, two[1], "good");
    }
    check(start("stuck", 1, one, NULL), "a rank fails", "stuck");
    text_is("stuck", one[0], "cuda_stream_query");
    for (int k = 0; k < BROKEN; k++) { broken_is(broken_by[k]); }
    // The ranks that have gone have left nothing that a shutdown would wait for.
    check(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0, "the shutdown fails", "all");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

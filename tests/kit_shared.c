// kit_shared.c - examples/kit/shared.h: two processes write to one tensor; memory that is gone, too small, or
// another user's
#define KIT_SHARED_IMPLEMENTATION
#include "../examples/kit/shared.h"

#include "test.h"

#if !defined(_WIN32) && !defined(__wasm__)
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#endif

enum { N = 1000, BYTES = N * 4, WORKERS = 2 };

static char name[24];

// Each process adds k + 1 to its half.
static int adds(const char *memory, int k) {
    kit_shared_t s;
    if (kit_shared_open(&s, memory, BYTES)) { return 1; }
    const int64_t half = N / 2;
    tensor_t *mine = tensor_wrap_n((float *)s.data + k * half, TENSOR_F32, &half, 1, NULL, NULL);
    tensor_add_scalar_(mine, k + 1);
    return tensor_error_code();
}

static int fails_once(const char *memory, int k) {
    (void)memory;
    return k == 1;
}

// Sends the parent, who waits, a signal that it handles, and goes on for a while.
static int signals(void) {
#if !defined(_WIN32) && !defined(__wasm__)
    const struct timespec pause = {0, 50000000};
    nanosleep(&pause, NULL);
    if (kill(getppid(), SIGUSR1)) { return 1; }
    nanosleep(&pause, NULL);
#endif
    return 0;
}

#if !defined(_WIN32) && !defined(__wasm__)
static volatile sig_atomic_t signals_heard;

static void heard(int number) {
    (void)number;
    signals_heard = signals_heard + 1;
}
#endif

// An owner that is killed before it can close.
static int dies(const char *memory) {
    kit_shared_t s;
    if (kit_shared_new(&s, memory, BYTES)) { return 0; }
#if defined(_WIN32)
    TerminateProcess(GetCurrentProcess(), 1);
#elif !defined(__wasm__)
    kill(getpid(), SIGKILL);
#endif
    return 0;
}

// Says who it is, without the end of a line, at which a terminal would have it.
static int prints(int k) { return printf("job %d.", k) < 0; }

static int any_job(const char *memory, int k) {
    if (memory[0] == 'p') { return prints(k); }
    if (memory[0] == 'd') { return dies(memory); }
    if (strcmp(memory, "signals") == 0) { return signals(); }
    return memory[0] == 'f' ? fails_once(memory, k) : adds(memory, k);
}

static void shares(const char *program) {
    kit_shared_t s, other;
    CHECK_MSG(kit_shared_new(&s, name, BYTES) == 0, "%s", tensor_error_text());
    if (!s.data) { return; }
    float *w = (float *)s.data;
    CHECK(w[0] == 0 && w[N - 1] == 0);
    CHECK(kit_shared_run(program, name, WORKERS, any_job) == 0);
    CHECK(w[0] == 1 && w[N / 2 - 1] == 1 && w[N / 2] == 2 && w[N - 1] == 2);
    // Another mapping of this process: the same bytes at another address; closing it leaves the name.
    CHECK(kit_shared_open(&other, name, BYTES) == 0 && other.data != s.data);
    w[7] = 70;
    CHECK(((float *)other.data)[7] == 70);
    kit_shared_close(&other);
    CHECK(other.data == NULL && kit_shared_open(&other, name, 1) == 0);
    kit_shared_close(&other);
    kit_shared_close(&s);
    CHECK(s.data == NULL);
    CHECK(kit_shared_run(program, "fails", 3, any_job) == 1);
    CHECK(kit_shared_run(program, "fails", 64, any_job) == 1);
    static const int wrong[] = {-1, 0, 65, 1000};
    for (int k = 0; k < 4; k++) {
        CHECK(kit_shared_run(program, "fails", wrong[k], any_job) == -1);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "it runs 1 to 64");
    }
}

// What jobs print into a pipe comes out of it.
static void jobs_print(const char *program) {
#if defined(_WIN32) || defined(__wasm__)
    (void)program;
    printf("skipped 1 test of jobs that print into a pipe: it needs a Unix\n");
#else
    char got[100] = "";
    int ends[2] = {-1, -1};
    fflush(stdout);
    const int out = dup(1);
    CHECK(out >= 0 && pipe(ends) == 0 && dup2(ends[1], 1) == 1);
    const int failed = kit_shared_run(program, "prints", 2, any_job);
    fflush(stdout);
    dup2(out, 1);
    close(out);
    close(ends[1]);
    size_t n = 0;
    ssize_t more;
    while ((more = read(ends[0], got + n, sizeof got - 1 - n)) > 0) { n += (size_t)more; }
    close(ends[0]);
    CHECK_MSG(failed == 0 && n == 12 && strstr(got, "job 0.") && strstr(got, "job 1."), "\"%s\"", got);
#endif
}

static void waits_through_signals(const char *program) {
#if defined(_WIN32) || defined(__wasm__)
    (void)program;
    printf("skipped 1 test of a signal while waiting: it needs a Unix\n");
#else
    struct sigaction handled, before;
    memset(&handled, 0, sizeof handled);
    handled.sa_handler = heard;                 // no SA_RESTART: waitpid ends with EINTR
    sigaction(SIGUSR1, &handled, &before);
    CHECK(kit_shared_run(program, "signals", 1, any_job) == 0);
    CHECK(signals_heard == 1);
    sigaction(SIGUSR1, &before, NULL);
#endif
}

// What a killed owner has left is in the way until it is removed; on Windows nothing is left.
static void removes(const char *program) {
    kit_shared_t s, other;
    char dead[32];
    snprintf(dead, sizeof dead, "dead-%s", name);
    CHECK(kit_shared_run(program, dead, 1, any_job) == 1);
#if !defined(_WIN32)
    CHECK(kit_shared_new(&s, dead, BYTES) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "kit_shared_remove frees a name whose owner has died at kit_shared.c:");
#endif
    CHECK(kit_shared_remove(dead) == 0);
    CHECK(kit_shared_remove(dead) == 0);            // also a name that nobody has
    CHECK(kit_shared_new(&s, dead, BYTES) == 0);
#if defined(_WIN32)
    (void)other;
    CHECK(kit_shared_remove(dead) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "is in use by a process");
#else
    // Removed under a living owner, and made anew: that owner keeps its memory and leaves the other's name.
    CHECK(kit_shared_remove(dead) == 0 && kit_shared_new(&other, dead, BYTES) == 0);
    ((float *)s.data)[0] = 1;
    CHECK(((float *)other.data)[0] == 0);
    kit_shared_close(&s);
    CHECK(kit_shared_open(&s, dead, BYTES) == 0);
    kit_shared_close(&other);
    CHECK(kit_shared_open(&other, dead, BYTES) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "is gone, or was never made at kit_shared.c:");
#endif
    kit_shared_close(&s);
    CHECK(kit_shared_remove("a/b") == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "letters, digits and '-' at kit_shared.c:");
}

static void refuses(void) {
    kit_shared_t s, other;
    CHECK(kit_shared_open(&other, name, BYTES) == TENSOR_ERR_IO && other.data == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "is gone, or was never made");
    CHECK(kit_shared_new(&s, name, BYTES) == 0);
    CHECK(kit_shared_new(&other, name, BYTES) == TENSOR_ERR_IO && other.data == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "is there already");
    CHECK(kit_shared_open(&other, name, 1 << 20) == TENSOR_ERR_IO && other.data == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "bytes, 1048576 are needed");
    kit_shared_close(&s);
    CHECK(kit_shared_open(&other, name, BYTES) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, name);
    static const char *const wrong[] = {"", "a/b", "..", "a-name-that-is-much-too-long", NULL};
    for (int k = 0; k < 5; k++) {
        CHECK(kit_shared_new(&s, wrong[k], BYTES) == TENSOR_ERR_SHAPE && s.data == NULL);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "letters, digits and '-'");
    }
    CHECK(kit_shared_new(&s, name, 0) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "no bytes");
}

// More than the system has: refused here, not with a SIGBUS at the first write.
static void more_than_there_is(void) {
#if !defined(_POSIX_ADVISORY_INFO) || _POSIX_ADVISORY_INFO <= 0
    printf("skipped 1 test of more memory than there is: this system reserves none\n");
#else
    kit_shared_t s;
    struct statvfs room;
    CHECK(kit_shared_new(&s, name, BYTES) == 0);
    const int file = shm_open(s.name, O_RDWR, 0);
    const int known = file >= 0 && fstatvfs(file, &room) == 0 && room.f_blocks > 0;
    close(file);
    kit_shared_close(&s);
    if (!known) {
        printf("skipped 1 test of more memory than there is: how much there is, the system does not say\n");
        return;
    }
    const size_t all = (size_t)room.f_blocks * (size_t)room.f_frsize;
    CHECK(kit_shared_new(&s, name, all + (1 << 20)) == TENSOR_ERR_IO && s.data == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, strerror(ENOSPC));
    // Neither a name nor a descriptor is left behind.
    CHECK(kit_shared_open(&s, name, 1) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "is gone, or was never made");
    const int next = open("/dev/null", O_RDONLY);
    CHECK(next == file);
    close(next);
#endif
}

// Only root can give a file away.
static void of_another_user(void) {
#if defined(_WIN32) || defined(__wasm__)
    printf("skipped 1 test of another user's memory: it needs a Unix\n");
#else
    kit_shared_t s, other;
    if (geteuid() != 0) {
        printf("skipped 1 test of another user's memory: this is not root\n");
        return;
    }
    CHECK(kit_shared_new(&s, name, BYTES) == 0);
    const int file = shm_open(s.name, O_RDWR, 0);
    CHECK(file >= 0 && fchown(file, 65534, 65534) == 0);
    close(file);
    CHECK(kit_shared_open(&other, name, BYTES) == TENSOR_ERR_IO && other.data == NULL);
    CHECK_ERROR(TENSOR_ERR_IO, "is another user's");
    // Nor may another user remove it.
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int refused = setuid(65533) == 0 && kit_shared_remove(name) == TENSOR_ERR_IO &&
                            strstr(tensor_error_text(), "is another user's");
        _exit(refused ? 0 : 1);
    }
    CHECK(kit_shared__succeeds(child));
    CHECK(kit_shared_remove(name) == 0);            // root may
    CHECK(kit_shared_open(&other, name, BYTES) == TENSOR_ERR_IO);
    CHECK_ERROR(TENSOR_ERR_IO, "is gone, or was never made");
    kit_shared_close(&s);
#endif
}

int main(int argc, char **argv) {
    kit_shared_child(argc, argv, any_job);
#if defined(_WIN32)
    snprintf(name, sizeof name, "test-%lu", GetCurrentProcessId());
#elif !defined(__wasm__)
    snprintf(name, sizeof name, "test-%ld", (long)getpid());
#endif
    test_name = "shares";
    shares(argv[0]);
    test_name = "removes";
    removes(argv[0]);
    test_name = "jobs_print";
    jobs_print(argv[0]);
    test_name = "waits_through_signals";
    waits_through_signals(argv[0]);
    RUN(refuses);
    RUN(more_than_there_is);
    RUN(of_another_user);
    return test_report();
}

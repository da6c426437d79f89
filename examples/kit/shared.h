// shared.h - memory that several processes have, and a job that they run: POSIX shared memory and fork, on
// Windows file mappings and the program started again
//
// A file to copy and to change. In one C file of the program, as its first include:
//
//   #define KIT_SHARED_IMPLEMENTATION
//   #include "kit/shared.h"
//
//   static int job(const char *name, int k) {                // process k; 0 is a success
//       kit_shared_t s;
//       if (kit_shared_open(&s, name, BYTES)) return 1;
//       tensor_t *w = tensor_wrap(s.data, TENSOR_F32, 256, 32);
//       ...
//   int main(int argc, char **argv) {
//       kit_shared_child(argc, argv, job);                   // first of all: Windows' children begin here
//       kit_shared_t s;
//       if (kit_shared_new(&s, "weights", BYTES)) return 1;
//       int failed = kit_shared_run(argv[0], "weights", 2, job);
//       kit_shared_close(&s);
#ifndef KIT_SHARED_H
#define KIT_SHARED_H

#if defined(KIT_SHARED_IMPLEMENTATION) && !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L         // shm_open, posix_fallocate, fork
#endif

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_shared_t {
    void *data;             // NULL: not mapped
    size_t bytes;
    char name[64];          // of the system; empty: this process does not own it
    void *handle;           // of Windows
    uint64_t made[2];       // of POSIX: which file this process has made
} kit_shared_t;

// Makes `bytes` zeros that have a name: letters, digits and '-', at most 24. Its owner closes last.
// Linux, BSD and Windows reserve all of it here; elsewhere a write may find that the system has no more.
//   -> code, s->data NULL on failure;  errors SHAPE (the name, 0 bytes), IO (it is taken, the system refuses)
int kit_shared_new(kit_shared_t *s, const char *name, size_t bytes);
// Maps what kit_shared_new of another process made.
//   -> code, s->data NULL on failure;  errors IO (it is gone, another user's, has fewer bytes), SHAPE
int kit_shared_open(kit_shared_t *s, const char *name, size_t bytes);
// Unmaps it: tensors over it must be gone. The owner's close takes the name away; who has it mapped keeps it.
void kit_shared_close(kit_shared_t *s);
// Frees a name whose owner died before it could close, or that nobody has. Who has the memory mapped keeps
// it. Its user may do so, and root. On Windows a name goes with the last process that has it mapped.
//   -> code;  errors SHAPE (the name), IO (another user's; of Windows: a process has it)
int kit_shared_remove(const char *name);

typedef int (*kit_shared_job_t)(const char *name, int k);
// Runs job(name, 0) .. job(name, n - 1), each in a process of its own, and waits for all of them.
//   program   argv[0], which Windows starts again
//   n         1 to 64
//   -> how many failed, -1 if none was started;  errors SHAPE (n)
int kit_shared_run(const char *program, const char *name, int n, kit_shared_job_t job);
// In a process that kit_shared_run has started on Windows: runs the job and ends it. Elsewhere nothing.
void kit_shared_child(int argc, char **argv, kit_shared_job_t job);

// As in tensor.h, an error names the place of the program's call.
int kit_shared__at(const char *site, int code);
#define kit_shared_new(...) kit_shared__at(TENSOR_HERE, (kit_shared_new)(__VA_ARGS__))
#define kit_shared_open(...) kit_shared__at(TENSOR_HERE, (kit_shared_open)(__VA_ARGS__))
#define kit_shared_remove(...) kit_shared__at(TENSOR_HERE, (kit_shared_remove)(__VA_ARGS__))
#define kit_shared_run(...) kit_shared__at(TENSOR_HERE, (kit_shared_run)(__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_SHARED_IMPLEMENTATION) && !defined(KIT_SHARED_DONE)
#define KIT_SHARED_DONE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIT_SHARED__PROCESSES = 64 };

// tensor_check_with gives the error that is pending the place in its options, unless it has one.
int kit_shared__at(const char *site, int code) {
    static tensor_check_args_t none;
    tensor_check_args_t place = none;
    place.site_ = site;
    if (!tensor_ok()) { (void)tensor_check_with(place); }
    return code;
}

static int kit_shared__fail(kit_shared_t *s, int code, const char *name, const char *what) {
    char text[200];
    snprintf(text, sizeof text, "kit_shared: the memory \"%.40s\" %s", name ? name : "", what);
    s->data = NULL;
    s->name[0] = 0;
    return (tensor_raise)(code, text);
}

// Whether kit_shared_run takes n.
static int kit_shared__count(int n) {
    char text[100];
    if (n >= 1 && n <= KIT_SHARED__PROCESSES) { return 1; }
    snprintf(text, sizeof text, "kit_shared_run: %d processes, it runs 1 to %d", n, KIT_SHARED__PROCESSES);
    (void)(tensor_raise)(TENSOR_ERR_SHAPE, text);
    return 0;
}

// Begins s; a name has no '/' and no other sign of the system's.
static int kit_shared__name(kit_shared_t *s, const char *name, size_t bytes, const char *before) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    const size_t n = name ? strlen(name) : 0;
    memset(s, 0, sizeof *s);
    if (n < 1 || n > 24 || strspn(name, allowed) != n) {
        return kit_shared__fail(s, TENSOR_ERR_SHAPE, name,
                                "has a name that is not 1 to 24 letters, digits and '-'");
    }
    if (bytes == 0) { return kit_shared__fail(s, TENSOR_ERR_SHAPE, name, "would have no bytes"); }
    snprintf(s->name, sizeof s->name, "%s%s", before, name);
    s->bytes = bytes;
    return 0;
}

static const char kit_shared__taken[] =
    "is there already; kit_shared_remove frees a name whose owner has died";

#if !defined(__wasm__)
static int kit_shared__small(kit_shared_t *s, const char *name, size_t there, size_t bytes) {
    char text[100];
    snprintf(text, sizeof text, "has %llu bytes, %llu are needed", (unsigned long long)there,
             (unsigned long long)bytes);
    return kit_shared__fail(s, TENSOR_ERR_IO, name, text);
}

static int kit_shared__absent(kit_shared_t *s, const char *name, int denied) {
    return kit_shared__fail(s, TENSOR_ERR_IO, name,
                            denied ? "is another user's" : "is gone, or was never made");
}
#endif

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <process.h>

int (kit_shared_new)(kit_shared_t *s, const char *name, size_t bytes) {
    const int code = kit_shared__name(s, name, bytes, "Local\\kit-");
    if (code) { return code; }
    const unsigned long long size = bytes;
    s->handle = CreateFileMappingA(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD)(size >> 32),
                                   (DWORD)(size & 0xFFFFFFFFu), s->name);
    const int taken = GetLastError() == ERROR_ALREADY_EXISTS;
    if (s->handle && !taken) { s->data = MapViewOfFile(s->handle, FILE_MAP_ALL_ACCESS, 0, 0, bytes); }
    if (s->data) { return 0; }
    if (s->handle) { CloseHandle(s->handle); }
    return kit_shared__fail(s, TENSOR_ERR_IO, name, taken ? kit_shared__taken : "cannot be made");
}

int (kit_shared_open)(kit_shared_t *s, const char *name, size_t bytes) {
    MEMORY_BASIC_INFORMATION region;
    const int code = kit_shared__name(s, name, bytes, "Local\\kit-");
    if (code) { return code; }
    s->handle = OpenFileMappingA(FILE_MAP_READ | FILE_MAP_WRITE, FALSE, s->name);
    if (!s->handle) {
        const int denied = GetLastError() == ERROR_ACCESS_DENIED;
        return kit_shared__absent(s, name, denied);
    }
    s->data = MapViewOfFile(s->handle, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, 0);
    s->name[0] = 0;
    if (!s->data || !VirtualQuery(s->data, &region, sizeof region)) {
        CloseHandle(s->handle);
        return kit_shared__fail(s, TENSOR_ERR_IO, name, "cannot be mapped");
    }
    if (region.RegionSize >= bytes) { return 0; }
    UnmapViewOfFile(s->data);
    CloseHandle(s->handle);
    return kit_shared__small(s, name, region.RegionSize, bytes);
}

void kit_shared_close(kit_shared_t *s) {
    if (s->data) {
        UnmapViewOfFile(s->data);
        CloseHandle(s->handle);
    }
    s->data = NULL;
}

int (kit_shared_remove)(const char *name) {
    kit_shared_t s;
    const int code = kit_shared__name(&s, name, 1, "Local\\kit-");
    if (code) { return code; }
    const HANDLE there = OpenFileMappingA(FILE_MAP_READ, FALSE, s.name);
    if (!there && GetLastError() != ERROR_ACCESS_DENIED) { return 0; }
    if (!there) { return kit_shared__absent(&s, name, 1); }
    CloseHandle(there);
    return kit_shared__fail(&s, TENSOR_ERR_IO, name, "is in use by a process");
}

int (kit_shared_run)(const char *program, const char *name, int n, kit_shared_job_t job) {
    intptr_t child[KIT_SHARED__PROCESSES];
    int failed = 0;
    (void)job;                              // the child finds it by kit_shared_child
    if (!kit_shared__count(n)) { return -1; }
    for (int k = 0; k < n; k++) {
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        child[k] = _spawnl(_P_NOWAIT, program, "kit-shared-child", name, number, NULL);
    }
    for (int k = 0; k < n; k++) {
        int status = 1;
        failed += child[k] == -1 || _cwait(&status, child[k], 0) == -1 || status != 0;
    }
    return failed;
}

void kit_shared_child(int argc, char **argv, kit_shared_job_t job) {
    if (argc == 3 && strcmp(argv[0], "kit-shared-child") == 0) { exit(job(argv[1], atoi(argv[2])) != 0); }
}

#elif defined(__wasm__)

int (kit_shared_new)(kit_shared_t *s, const char *name, size_t bytes) {
    const int code = kit_shared__name(s, name, bytes, "");
    return code ? code : kit_shared__fail(s, TENSOR_ERR_UNSUPPORTED, name, "needs a system with processes");
}

int (kit_shared_open)(kit_shared_t *s, const char *name, size_t bytes) {
    return (kit_shared_new)(s, name, bytes);
}

void kit_shared_close(kit_shared_t *s) { s->data = NULL; }

int (kit_shared_remove)(const char *name) {
    kit_shared_t s;
    return (kit_shared_new)(&s, name, 1);
}

int (kit_shared_run)(const char *program, const char *name, int n, kit_shared_job_t job) {
    (void)program, (void)name, (void)job;
    return kit_shared__count(n) ? n : -1;
}

void kit_shared_child(int argc, char **argv, kit_shared_job_t job) { (void)argc, (void)argv, (void)job; }

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Maps the file, or leaves why not in errno.
static int kit_shared__map(kit_shared_t *s, int file) {
    s->data = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (s->data == MAP_FAILED) { s->data = NULL; }
    return s->data != NULL;
}

// Notes which file this is, for the owner's close.
static int kit_shared__note(kit_shared_t *s, int file) {
    struct stat about;
    if (fstat(file, &about)) { return errno; }
    s->made[0] = (uint64_t)about.st_dev;
    s->made[1] = (uint64_t)about.st_ino;
    return 0;
}

// ftruncate alone reserves nothing: a write to a page that the system no longer has would be a SIGBUS.
//   -> 0, or an error of errno
static int kit_shared__reserve(int file, size_t bytes) {
    if (ftruncate(file, (off_t)bytes)) { return errno; }
#if defined(_POSIX_ADVISORY_INFO) && _POSIX_ADVISORY_INFO > 0
    int code;
    do { code = posix_fallocate(file, 0, (off_t)bytes); } while (code == EINTR);
    // These say that this kind of file cannot be reserved.
    return code == EINVAL || code == ENODEV || code == EOPNOTSUPP ? 0 : code;
#else
    return 0;
#endif
}

static int kit_shared__unmade(kit_shared_t *s, const char *name, int error) {
    char text[120];
    snprintf(text, sizeof text, "cannot be made: %.90s", strerror(error));
    return kit_shared__fail(s, TENSOR_ERR_IO, name, error == EEXIST ? kit_shared__taken : text);
}

int (kit_shared_new)(kit_shared_t *s, const char *name, size_t bytes) {
    const int code = kit_shared__name(s, name, bytes, "/kit-");
    if (code) { return code; }
    const int file = shm_open(s->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) { return kit_shared__unmade(s, name, errno); }
    int error = kit_shared__note(s, file);
    if (!error) { error = kit_shared__reserve(file, bytes); }
    if (!error && !kit_shared__map(s, file)) { error = errno; }
    close(file);
    if (!error) { return 0; }
    shm_unlink(s->name);
    return kit_shared__unmade(s, name, error);
}

int (kit_shared_open)(kit_shared_t *s, const char *name, size_t bytes) {
    struct stat about;
    const int code = kit_shared__name(s, name, bytes, "/kit-");
    if (code) { return code; }
    const int file = shm_open(s->name, O_RDWR, 0);
    s->name[0] = 0;
    if (file < 0) {
        return kit_shared__absent(s, name, errno == EACCES);
    }
    // Root may open what is another user's, who could cut it off at any time.
    if (fstat(file, &about) || about.st_uid != geteuid()) {
        close(file);
        return kit_shared__absent(s, name, 1);
    }
    if ((uint64_t)about.st_size < bytes) {          // pages behind the end would be a SIGBUS
        close(file);
        return kit_shared__small(s, name, (size_t)about.st_size, bytes);
    }
    const int mapped = kit_shared__map(s, file);
    close(file);
    return mapped ? 0 : kit_shared__fail(s, TENSOR_ERR_IO, name, "cannot be mapped");
}

// Whether the name is still that of the owner's file: after kit_shared_remove it may be another process's.
static int kit_shared__is_own(const kit_shared_t *s) {
    kit_shared_t now;
    memset(&now, 0, sizeof now);
    const int file = shm_open(s->name, O_RDONLY, 0);
    if (file < 0) { return 0; }
    const int known = kit_shared__note(&now, file) == 0;
    close(file);
    return known && now.made[0] == s->made[0] && now.made[1] == s->made[1];
}

void kit_shared_close(kit_shared_t *s) {
    if (s->data) { munmap(s->data, s->bytes); }
    if (s->data && s->name[0] && kit_shared__is_own(s)) { shm_unlink(s->name); }
    s->data = NULL;
}

int (kit_shared_remove)(const char *name) {
    kit_shared_t s;
    char text[120];
    const int code = kit_shared__name(&s, name, 1, "/kit-");
    if (code) { return code; }
    if (shm_unlink(s.name) == 0 || errno == ENOENT) { return 0; }
    if (errno == EACCES || errno == EPERM) { return kit_shared__absent(&s, name, 1); }
    snprintf(text, sizeof text, "cannot be removed: %.90s", strerror(errno));
    return kit_shared__fail(&s, TENSOR_ERR_IO, name, text);
}

// Whether a process that fork has started ends with 0. A signal that this program handles does not end the
// wait.
static int kit_shared__succeeds(pid_t child) {
    int status = 1;
    pid_t ended;
    if (child < 0) { return 0; }
    do { ended = waitpid(child, &status, 0); } while (ended < 0 && errno == EINTR);
    return ended == child && status == 0;
}

int (kit_shared_run)(const char *program, const char *name, int n, kit_shared_job_t job) {
    pid_t child[KIT_SHARED__PROCESSES];
    int failed = 0;
    (void)program;
    if (!kit_shared__count(n)) { return -1; }
    fflush(NULL);                                   // or each child writes it again
    for (int k = 0; k < n; k++) {
        child[k] = fork();
        if (child[k] == 0) {
            const int status = job(name, k) != 0;
            fflush(NULL);                           // what the job has printed, which _exit does not
            _exit(status);
        }
    }
    for (int k = 0; k < n; k++) { failed += !kit_shared__succeeds(child[k]); }
    return failed;
}

void kit_shared_child(int argc, char **argv, kit_shared_job_t job) { (void)argc, (void)argv, (void)job; }

#endif
#endif

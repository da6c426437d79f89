// fuzz.h - what the targets share. A target is a function of bytes:
//
//   static void idx_setup(void) {}
//   static void idx(const uint8_t *data, size_t size) { ... PROMISE(condition, "text"); ... }
//   FUZZ_TARGET(idx, idx_setup)
//
// setup is called before each input and makes what all inputs share. Compiled alone it is a libFuzzer program
// (make fuzz); tests/seeds.c includes all of them and runs the committed inputs. After each input the error
// is cleared, and no tensor, node or byte of storage may be left.
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif
#include "../test.h"
#ifdef __linux__
#include <unistd.h>
#endif

enum { FUZZ_MEMORY = 32 << 20 }; // bytes; beyond it an op is OUT_OF_MEMORY

#ifdef FUZZ_SEEDS
#define FUZZ_TARGET(name, setup)
#define PROMISE(condition, ...) CHECK_MSG(condition, __VA_ARGS__)
#else
#define FUZZ_TARGET(name, setup)                                                                             \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);                                            \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {                                           \
        fuzz_one(setup, name, data, size);                                                                   \
        return 0;                                                                                            \
    }
#define PROMISE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not %s: ", __FILE__, __LINE__, #condition);                              \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)
#endif

// One input through a target.
TEST_FN void fuzz_one(void (*setup)(void), void (*target)(const uint8_t *data, size_t size),
                      const uint8_t *data, size_t size) {
    tensor_memory_stats_t before, after;
    tensor_scope_t scope;
    tensor_set_error_handler(test_quiet, NULL);
    setup();
    tensor_set_memory_limit(FUZZ_MEMORY);
    tensor_manual_seed(1);
    before = tensor_memory_stats();
    scope = tensor_scope_begin();
    target(data, size);
    tensor_clear_error();
    tensor_scope_end(scope);
    tensor_clear_error();
    after = tensor_memory_stats();
    if (after.live_tensors != before.live_tensors) {
        static char text[2000];
        tensor_memory_report(text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
    PROMISE(after.live_tensors == before.live_tensors, "%lld tensors are left",
            (long long)(after.live_tensors - before.live_tensors));
    PROMISE(after.live_nodes == before.live_nodes, "%lld nodes are left",
            (long long)(after.live_nodes - before.live_nodes));
    PROMISE(after.live_bytes == before.live_bytes, "%lld bytes are left",
            (long long)(after.live_bytes - before.live_bytes));
    tensor_set_memory_limit(0);
}

// The path of a file that a target writes for each input; in memory where the system has such a folder, and of
// this process alone.
TEST_FN void fuzz_path(char *path, size_t room, const char *name) {
#ifdef __linux__
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "";
    snprintf(path, room, "%stensor-fuzz-%ld-%s", folder, (long)getpid(), name);
#else
    snprintf(path, room, "tensor-fuzz-%s", name);
#endif
}

// ---- reading an input; behind its end are zeros ----

typedef struct bytes_t {
    const uint8_t *p, *end;
} bytes_t;

TEST_FN unsigned next_byte(bytes_t *b) {
    return b->p < b->end ? *b->p++ : 0;
}
TEST_FN unsigned next_pair(bytes_t *b) {
    unsigned low = next_byte(b);
    return low | next_byte(b) << 8;
}

// The rest as a string in memory of its exact size, so that a sanitizer sees who reads past its end.
TEST_FN char *rest_as_string(bytes_t *b) {
    size_t n = (size_t)(b->end - b->p);
    char *s = (char *)malloc(n + 1);
    if (!s) { abort(); }
    memcpy(s, b->p, n);
    s[n] = 0;
    b->p = b->end;
    return s;
}

// The bytes of a safetensors file. The first byte of an input says which: 0 the rest as it is; else a
// header's text up to a NUL and data behind it, to which the length is put in front, so that not every change
// breaks it.
TEST_FN uint8_t *file_of(const uint8_t *data, size_t size, size_t *bytes) {
    const uint8_t *nul;
    size_t header, k;
    uint8_t *file;
    if (size == 0 || data[0] == 0) {
        *bytes = size ? size - 1 : 0;
        file = (uint8_t *)malloc(*bytes + 1);
        if (!file) { abort(); }
        if (*bytes) { memcpy(file, data + 1, *bytes); }
        return file;
    }
    data++, size--;
    nul = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    header = nul ? (size_t)(nul - data) : size;
    *bytes = 8 + header + (nul ? size - header - 1 : 0);
    file = (uint8_t *)malloc(*bytes);
    if (!file) { abort(); }
    for (k = 0; k < 8; k++) { file[k] = (uint8_t)(k < 4 ? header >> 8 * k : 0); }
    if (header) { memcpy(file + 8, data, header); }
    if (nul) { memcpy(file + 8 + header, nul + 1, size - header - 1); }
    return file;
}

#endif

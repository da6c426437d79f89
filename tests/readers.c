// readers.c - every reader does all or nothing: files cut at each byte, each byte changed, the k-th
// allocation failing, on modules, checkpoints and safetensors
#define _DEFAULT_SOURCE
#include "heap.h"

#include <unistd.h>

enum { MAX_BYTES = 1 << 15, MAX_PARTS = 64 };
static char path[64], other[64];
static unsigned char bytes[MAX_BYTES], changed[MAX_BYTES];
static size_t size;
static long n_cut, n_changed, n_refused, n_taken, n_oom;

static size_t read_file(const char *name, unsigned char *to) {
    FILE *f = fopen(name, "rb");
    size_t n = f ? fread(to, 1, MAX_BYTES, f) : 0;
    CHECK_MSG(f && n < MAX_BYTES, "%s: %d bytes", name, (int)n);
    if (f) { fclose(f); }
    return n;
}
static void write_file(const char *name, const unsigned char *from, size_t n) {
    FILE *f = fopen(name, "wb");
    CHECK(f && fwrite(from, 1, n, f) == n);
    if (f) { fclose(f); }
}

// A module, its optimizer and all that a checkpoint holds of them.
typedef struct work_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    int64_t step;
} work_t;
static work_t work_begin(uint64_t seed, int steps) {
    work_t w;
    int k;
    tensor_manual_seed(seed);
    w.net = nn_sequential(nn_linear(3, 4), nn_batch_norm1d(4), nn_linear(4, 2));
    w.opt = nn_adam(w.net, .lr = 0.01 * (double)seed);
    w.step = steps;
    for (k = 0; k < steps; k++) {
        nn_zero_grad(w.opt);
        tensor_backward(tensor_sum(tensor_square(nn_forward(w.net, tensor_randn(5, 3)))));
        nn_step(w.opt);
    }
    return w;
}
static void work_end(work_t *w) {
    nn_optimizer_free(w->opt);
    nn_free(w->net);
}
// Hashes of the parts of a module: its parameters and buffers.
static int parts_of(nn_module_t *m, uint64_t *hash) {
    nn_named_list_t l = nn_state(m);
    int k;
    for (k = 0; k < (int)l.count && k < MAX_PARTS; k++) { hash[k] = test_hash(TEST_HASH, l.item[k].tensor); }
    return k;
}
// Of everything that a checkpoint holds.
static uint64_t whole(work_t *w) {
    static unsigned char own[MAX_BYTES];
    uint64_t h = TEST_HASH;
    size_t n, k;
    CHECK(nn_save_checkpoint(other, w->net, w->opt, w->step) == 0);
    n = read_file(other, own);
    for (k = 0; k < n; k++) { h = (h ^ own[k]) * 1099511628211ull; }
    return h;
}

// ---- the readers: code of what they say of `n` bytes at p ----

typedef int (*reader_t)(work_t *w, const unsigned char *p, size_t n);
static int load_memory(work_t *w, const unsigned char *p, size_t n) {
    return nn_load_memory(p, n, w->net, 0);
}
static int load_file(work_t *w, const unsigned char *p, size_t n) {
    write_file(path, p, n);
    return nn_load(path, w->net);
}
static int load_partly(work_t *w, const unsigned char *p, size_t n) {
    return nn_load_memory(p, n, w->net, 1);
}
static int load_checkpoint(work_t *w, const unsigned char *p, size_t n) {
    write_file(path, p, n);
    return nn_load_checkpoint(path, w->net, w->opt, &w->step);
}

// After an error nothing is changed; after none nothing is left as it was.
static void try_bytes(reader_t reader, work_t *w, const unsigned char *p, size_t n, const uint64_t *old,
                      const uint64_t *wanted, const char *what, size_t at) {
    uint64_t before = whole(w), hash[MAX_PARTS];
    tensor_memory_stats_t live = tensor_memory_stats();
    tensor_scope_t s = tensor_scope_begin();
    int code = reader(w, p, n), parts, k, off = 0, stale = 0;
    tensor_clear_error();
    tensor_scope_end(s);
    CHECK_MSG(tensor_memory_stats().live_tensors == live.live_tensors, "%s at %d: tensors are left", what,
              (int)at);
    if (code) {
        n_refused++;
        CHECK_MSG(whole(w) == before, "%s at byte %d of %d: an error, and another state", what, (int)at,
                  (int)n);
        return;
    }
    n_taken++;
    parts = parts_of(w->net, hash);
    for (k = 0; k < parts; k++) {
        off += hash[k] != wanted[k];
        stale += hash[k] == old[k] && old[k] != wanted[k];
    }
    CHECK_MSG(off <= 1 && !stale, "%s at byte %d: %d of %d parts are others, %d were not loaded", what,
              (int)at, off, parts, stale);
}
static void all_or_nothing(reader_t reader, const char *name, int partial) {
    work_t from = work_begin(3, 3), to;
    uint64_t old[MAX_PARTS], wanted[MAX_PARTS];
    char what[80];
    size_t k, step;
    int way;
    if (reader == load_checkpoint) {
        CHECK(nn_save_checkpoint(path, from.net, from.opt, from.step) == 0);
        size = read_file(path, bytes);
    } else {
        tensor_t *b = nn_save_memory(from.net);
        size = (size_t)tensor_numel(b);
        CHECK(size < MAX_BYTES && tensor_copy_out(b, bytes, size) == 0);
    }
    parts_of(from.net, wanted);
    to = work_begin(5, 6);
    parts_of(to.net, old);
    for (k = 0; k < size; k++) { // cut at each byte
        snprintf(what, sizeof what, "%s, cut", name);
        try_bytes(reader, &to, bytes, k, old, wanted, what, k);
        n_cut++;
    }
    CHECK_MSG(n_taken == 0, "%s: %ld cut files were taken", name, n_taken);
    for (way = 0; way < 3 && !partial; way++) {   // each byte changed
        for (k = 0; k < size; k++) {
            memcpy(changed, bytes, size);
            changed[k] = (unsigned char)(way == 0 ? changed[k] ^ 1 : way == 1 ? changed[k] ^ 0x80 : 0);
            snprintf(what, sizeof what, "%s, changed by way %d", name, way);
            if (changed[k] == bytes[k]) { continue; }
            try_bytes(reader, &to, changed, size, old, wanted, what, k);
            n_changed++;
            if (reader(&to, bytes, size)) {
                CHECK_MSG(0, "%s: the whole file: %s", name, tensor_error_text());
            }
            work_end(&to);
            to = work_begin(5, 6);
        }
    }
    n_taken = 0;
    for (step = 0; step < 1; step++) { // whole
        CHECK(reader(&to, bytes, size) == 0);
        CHECK(parts_of(to.net, old) > 0 &&
              memcmp(old, wanted, sizeof old[0] * (size_t)parts_of(to.net, old)) == 0);
    }
    work_end(&from);
    work_end(&to);
    unlink(path), unlink(other);
}
static void memory(void) {
    all_or_nothing(load_memory, "load_memory", 0);
}
static void file(void) {
    all_or_nothing(load_file, "load", 0);
}
static void partly(void) {
    all_or_nothing(load_partly, "load_memory, partial", 1);
}
static void checkpoints(void) {
    all_or_nothing(load_checkpoint, "load_checkpoint", 0);
}

// ---- what is read in parts ----

static void safetensors(void) {
    work_t from = work_begin(3, 1);
    tensor_t *b = nn_save_memory(from.net);
    nn_safetensors_t *r;
    size_t k;
    int64_t i;
    size = (size_t)tensor_numel(b);
    CHECK(tensor_copy_out(b, bytes, size) == 0);
    for (k = 0; k <= size; k++) {
        tensor_scope_t s = tensor_scope_begin();
        r = nn_safetensors_parse(bytes, k);
        CHECK_MSG(!r == (k < size) && !r == !tensor_ok(), "parse of %d of %d bytes: %s", (int)k, (int)size,
                  tensor_error_text());
        tensor_clear_error();
        if (r) {
            CHECK(nn_safetensors_count(r) > 0);
            for (i = 0; i < nn_safetensors_count(r); i++) {
                CHECK(!tensor_is_poison(nn_safetensors_get(r, nn_safetensors_name(r, i))));
            }
            nn_safetensors_close(r);
        }
        tensor_scope_end(s);
        n_cut++;
    }
    for (k = 0; k < size; k++) { // a reader, or an error; each tensor whole, or poison
        tensor_scope_t s = tensor_scope_begin();
        memcpy(changed, bytes, size);
        changed[k] ^= 1 << k % 8;
        r = nn_safetensors_parse(changed, size);
        CHECK_MSG(!r == !tensor_ok(), "byte %d", (int)k);
        tensor_clear_error();
        for (i = 0; r && i < nn_safetensors_count(r); i++) {
            tensor_t *x = nn_safetensors_get(r, nn_safetensors_name(r, i));
            CHECK(tensor_is_poison(x) == !tensor_ok());
            tensor_clear_error();
        }
        if (r) { nn_safetensors_close(r); }
        tensor_scope_end(s);
        n_changed++;
    }
    work_end(&from);
}

// ---- the k-th allocation of a load fails ----

static void allocations(void) {
    reader_t const readers[3] = {load_memory, load_file, load_checkpoint};
    int r;
    for (r = 0; r < 3; r++) {
        long calls = 1, k;
        for (k = -1; k < calls; k++) {
            heap_t h = {0, -1, 0, 0, 0, 0};
            tensor_allocator_t allocator;
            tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
            work_t from, to;
            uint64_t was;
            long first;
            int code;
            allocator.alloc = heap_alloc, allocator.free = heap_free, allocator.user = &h;
            tensor_set_allocator(&allocator);
            tensor_set_error_handler(test_quiet, NULL);
            from = work_begin(3, 2), to = work_begin(5, 6);
            CHECK(nn_save_checkpoint(path, from.net, from.opt, 7) == 0);
            size = read_file(path, bytes);
            if (r < 2) {
                tensor_t *b = nn_save_memory(from.net);
                size = (size_t)tensor_numel(b);
                tensor_copy_out(b, bytes, size);
            }
            was = whole(&to);
            tensor_empty_cache();
            first = h.calls;
            h.fail_at = k < 0 ? -1 : h.calls + k;
            code = readers[r](&to, bytes, size);
            h.fail_at = -1;
            if (k < 0) { calls = h.calls - first; }
            tensor_clear_error();
            CHECK_MSG(code == 0 || (k >= 0 && code == TENSOR_ERR_OUT_OF_MEMORY), "reader %d, k = %ld: %s", r,
                      k, tensor_code_name(code));
            CHECK_MSG((whole(&to) == was) == (code != 0),
                      "reader %d, k = %ld: code %d and a part of the state", r, k, code);
            work_end(&from), work_end(&to);
            tensor_context_use(before);
            tensor_context_free(own);
            n_oom += k >= 0;
        }
        CHECK(calls > 0);
    }
    unlink(path), unlink(other);
}

int main(void) {
    const char *folder =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; // writing waits for no disk there
    snprintf(path, sizeof path, "%s/tensor_readers_%ld", folder, (long)getpid());
    snprintf(other, sizeof other, "%s/tensor_readers_%ld_other", folder, (long)getpid());
    RUN(memory);
    RUN(file);
    RUN(partly);
    RUN(checkpoints);
    RUN(safetensors);
    RUN(allocations);
    printf("%ld files cut, %ld changed, %ld loads refused, %ld allocations failed\n", n_cut, n_changed,
           n_refused, n_oom);
    return test_report();
}

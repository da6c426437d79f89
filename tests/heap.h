// heap.h - an allocator whose k-th call fails, once or from then on, and that sees what is not given back,
// given back with another size, or written past its end; and malloc, which fails in the same way
#ifndef TEST_HEAP_H
#define TEST_HEAP_H
#include "test.h"

typedef struct heap_t {
    long calls, fail_at;               // fail_at < 0: never
    int persistent;
    long blocks;                       // handed out and not yet given back
    long bytes;
    int misuse;                        // freed with another size, or twice
} heap_t;

enum { GUARD = 64 };                   // bytes before and behind each block, checked when it is freed

TEST_FN void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    size_t pad = alignment > GUARD ? alignment : GUARD;
    unsigned char *raw, *p;
    long call = __atomic_fetch_add(&h->calls, 1, __ATOMIC_RELAXED);
    if (h->fail_at >= 0 && (h->persistent ? call >= h->fail_at : call == h->fail_at)) { return NULL; }
    raw = (unsigned char *)malloc(bytes + 2 * pad + alignment + sizeof(void *));
    if (!raw) { return NULL; }
    p = raw + sizeof(void *) + pad;
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - GUARD / 2, &raw, sizeof raw);
    memcpy(p - GUARD / 2 + sizeof raw, &bytes, sizeof bytes);
    memset(p + bytes, 0x5A, GUARD / 2);
    __atomic_fetch_add(&h->blocks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&h->bytes, (long)bytes, __ATOMIC_RELAXED);
    return p;
}

TEST_FN void heap_free(void *user, void *block, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    unsigned char *p = (unsigned char *)block, *raw;
    size_t had;
    int i;
    (void)alignment;
    memcpy(&raw, p - GUARD / 2, sizeof raw);
    memcpy(&had, p - GUARD / 2 + sizeof raw, sizeof had);
    if (had != bytes) { h->misuse++; }
    for (i = 0; i < GUARD / 2; i++) {
        if (p[had + (size_t)i] != 0x5A) { h->misuse++; }
    }
    __atomic_fetch_sub(&h->blocks, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&h->bytes, (long)had, __ATOMIC_RELAXED);
    free(raw);
}

// Where the heap counts malloc's own blocks (their bytes are not known): the program must be linked with
// -Wl,--wrap=malloc,--wrap=free, which gives all of its calls to these two; see HEAP_WRAPPED in the Makefile.
#ifdef HEAP_WRAPPED
static heap_t *heap_of_malloc;         // NULL: malloc as ever
void *__real_malloc(size_t bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t bytes);
void __wrap_free(void *p);
void *__wrap_malloc(size_t bytes) {
    heap_t *h = heap_of_malloc;
    void *p;
    if (h) {
        long call = __atomic_fetch_add(&h->calls, 1, __ATOMIC_RELAXED);
        if (h->fail_at >= 0 && (h->persistent ? call >= h->fail_at : call == h->fail_at)) { return NULL; }
    }
    p = __real_malloc(bytes);
    if (h && p) { __atomic_fetch_add(&h->blocks, 1, __ATOMIC_RELAXED); }
    return p;
}
void __wrap_free(void *p) {
    if (heap_of_malloc && p) { __atomic_fetch_sub(&heap_of_malloc->blocks, 1, __ATOMIC_RELAXED); }
    __real_free(p);
}
#endif

// A context of its own whose memory comes from h: by the hook of the library, or by malloc.
typedef struct world_of_heap_t {
    tensor_context_t *context, *before;
    heap_t h;
} world_of_heap_t;
enum { HEAP_MODES = 4, HEAP_PERSISTENT = 1, HEAP_MALLOC = 2 };
#ifdef HEAP_WRAPPED
enum { HEAP_MODES_HERE = HEAP_MODES };
#else
enum { HEAP_MODES_HERE = HEAP_MALLOC };
#endif
TEST_FN int heap_open(world_of_heap_t *w, int mode) {
    tensor_allocator_t a;
    memset(&w->h, 0, sizeof w->h);
    w->h.fail_at = -1;
    w->h.persistent = (mode & HEAP_PERSISTENT) != 0;
#ifdef HEAP_WRAPPED
    heap_of_malloc = mode & HEAP_MALLOC ? &w->h : NULL;
#endif
    w->context = tensor_context_new();
    CHECK(w->context != NULL);
    if (!w->context) { return 0; }
    w->before = tensor_context_use(w->context);
    if (!(mode & HEAP_MALLOC)) {
        a.alloc = heap_alloc, a.free = heap_free, a.user = &w->h;
        tensor_set_allocator(&a);
    }
    tensor_set_error_handler(test_quiet, NULL);
    return 1;
}
TEST_FN void balanced(heap_t *h, long k) {
    CHECK_MSG(h->blocks == 0 && h->bytes == 0, "k = %ld: %ld blocks, %ld bytes not given back", k, h->blocks,
              h->bytes);
    CHECK_MSG(h->misuse == 0, "k = %ld: %d blocks freed with another size or written past their end", k,
              h->misuse);
}

TEST_FN void heap_close(world_of_heap_t *w, long k) {
    w->h.fail_at = -1;
    tensor_context_use(w->before);
    tensor_context_free(w->context);
#ifdef HEAP_WRAPPED
    heap_of_malloc = NULL;
#endif
    balanced(&w->h, k);
}

#endif

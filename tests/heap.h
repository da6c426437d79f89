// heap.h - an allocator whose k-th call fails, once or from then on, and that sees what is not given back,
// given back with another size, or written past its end
#ifndef TEST_HEAP_H
#define TEST_HEAP_H
#include "test.h"

typedef struct heap_t {
    long calls, fail_at;               // fail_at < 0: never
    int persistent;
    long blocks;                       // handed out and not yet given back
    long long bytes;
    int misuse;                        // freed with another size, or twice
} heap_t;

enum { GUARD = 64 };                   // bytes before and behind each block, checked when it is freed

TEST_FN void *heap_alloc(void *user, size_t bytes, size_t alignment) {
    heap_t *h = (heap_t *)user;
    size_t pad = alignment > GUARD ? alignment : GUARD;
    unsigned char *raw, *p;
    long call = h->calls++;
    if (h->fail_at >= 0 && (h->persistent ? call >= h->fail_at : call == h->fail_at)) return NULL;
    raw = (unsigned char *)malloc(bytes + 2 * pad + alignment + sizeof(void *));
    if (!raw) return NULL;
    p = raw + sizeof(void *) + pad;
    p += (alignment - (size_t)((uintptr_t)p % alignment)) % alignment;
    memcpy(p - GUARD / 2, &raw, sizeof raw);
    memcpy(p - GUARD / 2 + sizeof raw, &bytes, sizeof bytes);
    memset(p + bytes, 0x5A, GUARD / 2);
    h->blocks++;
    h->bytes += (long long)bytes;
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
    if (had != bytes) h->misuse++;
    for (i = 0; i < GUARD / 2; i++)
        if (p[had + (size_t)i] != 0x5A) h->misuse++;
    h->blocks--;
    h->bytes -= (long long)had;
    free(raw);
}

TEST_FN void balanced(heap_t *h, long k) {
    CHECK_MSG(h->blocks == 0 && h->bytes == 0, "k = %ld: %ld blocks, %lld bytes not given back", k, h->blocks,
              h->bytes);
    CHECK_MSG(h->misuse == 0, "k = %ld: %d blocks freed with another size or written past their end", k,
              h->misuse);
}

#endif

// tables.h - sets of byte strings and a map of pairs of numbers, for text.h; all static
#ifndef KIT_TABLES_H
#define KIT_TABLES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define KIT_TABLES__FN __attribute__((unused)) static
#else
#define KIT_TABLES__FN static
#endif

// Strings without doubles, numbered as they come. All zero = empty.
typedef struct kit_tables__set_t {
    char *bytes; // one after the other, a NUL behind each
    size_t used, room;
    size_t *start;     // where string i begins; start[count] is the end
    int32_t *slots;    // number + 1, 0 = free
    size_t slots_room; // power of two, over twice count
    int32_t count, most;
} kit_tables__set_t;

KIT_TABLES__FN void kit_tables__set_free(kit_tables__set_t *s) {
    free(s->bytes);
    free(s->start);
    free(s->slots);
    memset(s, 0, sizeof *s);
}

KIT_TABLES__FN const char *kit_tables__get(const kit_tables__set_t *s, int64_t i, size_t *size) {
    *size = s->start[i + 1] - s->start[i] - 1;
    return s->bytes + s->start[i];
}

// The slot where the string is or belongs.
KIT_TABLES__FN size_t kit_tables__slot(const kit_tables__set_t *s, const char *bytes, size_t size) {
    uint64_t h = UINT64_C(14695981039346656037);
    size_t slot, n;
    for (size_t i = 0; i < size; i++) { h = (h ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211); }
    for (slot = (size_t)(h ^ h >> 32); s->slots[slot &= s->slots_room - 1]; slot++) {
        const char *have = kit_tables__get(s, s->slots[slot] - 1, &n);
        if (n == size && memcmp(have, bytes, size) == 0) { break; }
    }
    return slot;
}

KIT_TABLES__FN int64_t kit_tables__find(const kit_tables__set_t *s, const char *bytes, size_t size) {
    return s->count ? s->slots[kit_tables__slot(s, bytes, size)] - 1 : -1;
}

KIT_TABLES__FN int kit_tables__set_grow(kit_tables__set_t *s, size_t size) {
    if (s->used + size + 1 > s->room) {
        size_t room = 2 * (s->used + size + 1) + 64;
        char *grown = (char *)realloc(s->bytes, room);
        if (!grown) { return 0; }
        s->bytes = grown;
        s->room = room;
    }
    if (s->count + 2 > s->most) {
        int32_t most = 2 * s->most + 64;
        size_t *grown = (size_t *)realloc(s->start, (size_t)most * sizeof *grown);
        if (!grown) { return 0; }
        if (s->count == 0) { grown[0] = 0; }
        s->start = grown;
        s->most = most;
    }
    if (2 * ((size_t)s->count + 1) > s->slots_room) {
        size_t room = s->slots_room ? 2 * s->slots_room : 256, n;
        int32_t *slots = (int32_t *)calloc(room, sizeof *slots);
        if (!slots) { return 0; }
        free(s->slots);
        s->slots = slots;
        s->slots_room = room;
        for (int32_t i = 0; i < s->count; i++) {
            const char *bytes = kit_tables__get(s, i, &n);
            slots[kit_tables__slot(s, bytes, n)] = i + 1;
        }
    }
    return s->count < INT32_MAX / 4;
}

// -> number of the string, -1 = out of memory
KIT_TABLES__FN int32_t kit_tables__add(kit_tables__set_t *s, const char *bytes, size_t size) {
    if (size > SIZE_MAX / 4 || !kit_tables__set_grow(s, size)) { return -1; }
    size_t slot = kit_tables__slot(s, bytes, size);
    if (s->slots[slot]) { return s->slots[slot] - 1; }
    if (size) { memcpy(s->bytes + s->used, bytes, size); }
    s->used += size;
    s->bytes[s->used++] = 0;
    s->slots[slot] = ++s->count;
    s->start[s->count] = s->used;
    return s->count - 1;
}

// Pairs of tokens and a number for each. All zero = empty.
typedef struct kit_tables__pair_t {
    int32_t left, right;
    int64_t value;
} kit_tables__pair_t;
typedef struct kit_tables__pairs_t {
    kit_tables__pair_t *at; // left < 0: free
    size_t room, count;
} kit_tables__pairs_t;

KIT_TABLES__FN kit_tables__pair_t *kit_tables__pair_slot(const kit_tables__pairs_t *m, int32_t left,
                                                         int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(h >> 32);
    while (m->at[i &= m->room - 1].left >= 0 && !(m->at[i].left == left && m->at[i].right == right)) { i++; }
    return &m->at[i];
}

KIT_TABLES__FN const kit_tables__pair_t *kit_tables__pair(const kit_tables__pairs_t *m, int32_t left,
                                                          int32_t right) {
    const kit_tables__pair_t *p = m->count ? kit_tables__pair_slot(m, left, right) : NULL;
    return p && p->left >= 0 ? p : NULL;
}

// The pair, new with value 0.   -> NULL = out of memory
KIT_TABLES__FN kit_tables__pair_t *kit_tables__pair_add(kit_tables__pairs_t *m, int32_t left, int32_t right) {
    if (2 * (m->count + 1) > m->room) {
        kit_tables__pairs_t grown = {NULL, m->room ? 2 * m->room : 1024, m->count};
        grown.at = (kit_tables__pair_t *)malloc(grown.room * sizeof *grown.at);
        if (!grown.at) { return NULL; }
        for (size_t i = 0; i < grown.room; i++) { grown.at[i].left = -1; }
        for (size_t i = 0; i < m->room; i++) {
            if (m->at[i].left >= 0) {
                *kit_tables__pair_slot(&grown, m->at[i].left, m->at[i].right) = m->at[i];
            }
        }
        free(m->at);
        *m = grown;
    }
    kit_tables__pair_t *p = kit_tables__pair_slot(m, left, right);
    if (p->left < 0) {
        p->left = left;
        p->right = right;
        p->value = 0;
        m->count++;
    }
    return p;
}

#endif

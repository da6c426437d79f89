// zip.h - the directory of a zip archive with stored entries, for torchfile.h; all static
#ifndef KIT_ZIP_H
#define KIT_ZIP_H

#include "file.h"

typedef struct kit_zip_entry_t {
    const char *name; // not ended by a NUL
    size_t length;
    const unsigned char *data;
    uint64_t size;
} kit_zip_entry_t;

typedef struct kit_zip_t {
    kit_zip_entry_t *entry; // sorted by name; to be freed
    int64_t count;
} kit_zip_t;

KIT_FILE__FN int kit_zip__order(const void *a, const void *b) {
    const kit_zip_entry_t *x = (const kit_zip_entry_t *)a, *y = (const kit_zip_entry_t *)b;
    const size_t n = x->length < y->length ? x->length : y->length;
    int c = n ? memcmp(x->name, y->name, n) : 0;
    return c ? c : (x->length > y->length) - (x->length < y->length);
}

// The entry prefix + name.   -> NULL = it is not there
KIT_FILE__FN const kit_zip_entry_t *kit_zip__find(const kit_zip_t *z, const char *prefix,
                                                  size_t prefix_length, const char *name, size_t length) {
    char text[512];
    kit_zip_entry_t key = {text, prefix_length + length, NULL, 0};
    if (prefix_length > sizeof text || length > sizeof text - prefix_length) { return NULL; }
    memcpy(text, prefix, prefix_length);
    memcpy(text + prefix_length, name, length);
    return (const kit_zip_entry_t *)bsearch(&key, z->entry, (size_t)z->count, sizeof key, kit_zip__order);
}

// One line of the central directory at *at into e; *at moves behind it.   -> NULL, or what is wrong
KIT_FILE__FN const char *kit_zip__line(const unsigned char *d, uint64_t size, uint64_t *at,
                                       kit_zip_entry_t *e) {
    if (size - *at < 46 || kit_file__u32(d + *at) != 0x02014B50) { return "the zip directory is damaged"; }
    const unsigned char *p = d + *at, *extra;
    uint64_t packed = kit_file__u32(p + 20), offset = kit_file__u32(p + 42), names = kit_file__u16(p + 28);
    uint64_t rest = kit_file__u16(p + 30), line = 46 + names + rest + kit_file__u16(p + 32);
    e->size = kit_file__u32(p + 24);
    if (size - *at < line) { return "the zip directory is damaged"; }
    e->name = (const char *)p + 46;
    e->length = (size_t)names;
    // Zip64: those that do not fit come behind the name, in this order.
    for (extra = p + 46 + names; rest >= 4;
         rest -= 4 + kit_file__u16(extra + 2), extra += 4 + kit_file__u16(extra + 2)) {
        uint64_t left = kit_file__u16(extra + 2), *value[3];
        const unsigned char *number = extra + 4;
        if (left > rest - 4) { return "the zip directory is damaged"; }
        if (kit_file__u16(extra) != 1) { continue; }
        value[0] = &e->size;
        value[1] = &packed;
        value[2] = &offset;
        for (int k = 0; k < 3; k++) {
            if (*value[k] != 0xFFFFFFFFu || left < 8) { continue; }
            *value[k] = kit_file__u64(number);
            number += 8;
            left -= 8;
        }
    }
    if (kit_file__u16(p + 10) != 0) { return "an entry of the archive is compressed"; }
    if (size < 30 || offset > size - 30 || kit_file__u32(d + offset) != 0x04034B50) {
        return "an entry of the archive is not where the directory says";
    }
    offset += 30 + (uint64_t)kit_file__u16(d + offset + 26) + kit_file__u16(d + offset + 28);
    if (packed != e->size || offset > size || e->size > size - offset) {
        return "an entry of the archive is longer than the file";
    }
    e->data = d + offset;
    *at += line;
    return NULL;
}

// All entries of an archive in memory.   -> NULL, or what is wrong (z->entry is to be freed then too)
KIT_FILE__FN const char *kit_zip__open(const unsigned char *d, uint64_t size, kit_zip_t *z) {
    const uint64_t least = size < 22 + 65535 ? 0 : size - 22 - 65535;
    uint64_t end = size < 22 ? 0 : size - 22, at;
    if (size < 22) { return "it is not a zip archive"; }
    while (end > least && kit_file__u32(d + end) != 0x06054B50) { end--; }
    if (kit_file__u32(d + end) != 0x06054B50) { return "it is not a zip archive"; }
    uint64_t count = kit_file__u16(d + end + 10);
    at = kit_file__u32(d + end + 16);
    if (end >= 20 && kit_file__u32(d + end - 20) == 0x07064B50) {
        const uint64_t wide = kit_file__u64(d + end - 12);
        if (wide > end - 20 || end - 20 - wide < 56 || kit_file__u32(d + wide) != 0x06064B50) {
            return "the end of the zip directory is damaged";
        }
        count = kit_file__u64(d + wide + 32);
        at = kit_file__u64(d + wide + 48);
    }
    if (at > size || count < 1 || count > (size - at) / 46) { return "the zip directory is damaged"; }
    z->entry = (kit_zip_entry_t *)malloc((size_t)count * sizeof *z->entry);
    if (!z->entry) { return "out of memory"; }
    for (; (uint64_t)z->count < count; z->count++) {
        const char *wrong = kit_zip__line(d, size, &at, &z->entry[z->count]);
        if (wrong) { return wrong; }
    }
    qsort(z->entry, (size_t)count, sizeof *z->entry, kit_zip__order);
    return NULL;
}

#endif

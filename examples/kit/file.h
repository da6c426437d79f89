// file.h - what the readers of the kit share: a whole file in memory, little-endian numbers, errors
//
// Included by the implementations of the kit's headers that read or write files; copy it with them. All
// of it is static, so that each of them may be implemented in another C file.
#ifndef KIT_FILE_H
#define KIT_FILE_H

#include "tensor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <wchar.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define KIT_FILE__FN __attribute__((unused)) static
#else
#define KIT_FILE__FN static
#endif

// Raises "file: record n: reason" (n < 0: "file: reason"). The error has no line of C, because that of this
// file would help nobody.   -> poison
KIT_FILE__FN tensor_t *kit_file__fail(int code, const char *file, const char *record, int64_t n,
                                      const char *reason) {
    const char *name = file ? file : "(memory)";
    char text[512];
    if (n < 0) {
        snprintf(text, sizeof text, "%.160s: %.300s", name, reason);
    } else {
        snprintf(text, sizeof text, "%.160s: %.60s %lld: %.230s", name, record, (long long)n, reason);
    }
    (tensor_raise)(code, text);
    // A call that succeeds reports what was raised before it, without its own line.
    (void)tensor_empty(0);
    return (tensor_detach)(NULL);
}

// The functions of C that take a file's name, for names in UTF-8. Windows has such names in UTF-16 alone; a
// name that is not UTF-8 is taken for the system's code page, in which main's argv is.
#if defined(_WIN32)
enum { KIT_FILE__NAME = 1024 };

// A name in UTF-16.   -> 0 if it is not UTF-8, or does not fit
KIT_FILE__FN int kit_file__wide(const char *path, wchar_t wide[KIT_FILE__NAME]) {
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)path; *p;) {
        int more = (*p >= 0xC2) + (*p >= 0xE0) + (*p >= 0xF0);      // bytes that follow
        uint32_t c = more ? *p & (0x3Fu >> more) : *p;
        int good = *p < 0x80 || (more && *p < 0xF5);
        p++;
        for (int k = 0; k < more && good; k++, p++) {
            good = (*p & 0xC0) == 0x80;
            c = c << 6 | (*p & 0x3Fu);
        }
        if (!good || n + 3 > KIT_FILE__NAME) { return 0; }
        if (c >= 0x10000) {
            wide[n++] = (wchar_t)(0xD800 + ((c - 0x10000) >> 10));
            c = 0xDC00 + ((c - 0x10000) & 0x3FF);
        }
        wide[n++] = (wchar_t)c;
    }
    wide[n] = 0;
    return 1;
}

KIT_FILE__FN FILE *kit_file__open(const char *path, const char *mode) {
    wchar_t wide[KIT_FILE__NAME], how[4] = {0, 0, 0, 0};
    for (int k = 0; k < 3 && mode[k]; k++) { how[k] = (wchar_t)mode[k]; }
    return kit_file__wide(path, wide) ? _wfopen(wide, how) : fopen(path, mode);
}

KIT_FILE__FN int kit_file__remove(const char *path) {
    wchar_t wide[KIT_FILE__NAME];
    return kit_file__wide(path, wide) ? _wremove(wide) : remove(path);
}

// Takes the place of a file that has the new name; the functions of Windows' C do not.
KIT_FILE__FN int kit_file__rename(const char *from, const char *to) {
    wchar_t wide[2][KIT_FILE__NAME];
    int both = kit_file__wide(from, wide[0]) && kit_file__wide(to, wide[1]);
    (void)kit_file__remove(to);
    return both ? _wrename(wide[0], wide[1]) : rename(from, to);
}
#else
KIT_FILE__FN FILE *kit_file__open(const char *path, const char *mode) { return fopen(path, mode); }

KIT_FILE__FN int kit_file__remove(const char *path) { return remove(path); }

KIT_FILE__FN int kit_file__rename(const char *from, const char *to) { return rename(from, to); }
#endif

// Closes a file that was written (NULL = it did not open), and removes it if it is not whole. Devices stay.
//   -> code;  errors IO
KIT_FILE__FN int kit_file__finish(FILE *f, const char *path) {
    int failed = !f || ferror(f);
    failed |= f && fclose(f);
    if (!failed) { return 0; }
    if (f && strncmp(path, "/dev/", 5) != 0) { (void)kit_file__remove(path); }
    kit_file__fail(TENSOR_ERR_IO, path ? path : "(no path)", NULL, -1, "cannot be written");
    return TENSOR_ERR_IO;
}

// The bytes of a file and a NUL behind them, to be freed. NULL = raised.
KIT_FILE__FN unsigned char *kit_file__load(const char *path, size_t *size) {
    unsigned char *data = NULL;
    size_t have = 0, room = 0;
    FILE *f = path ? kit_file__open(path, "rb") : NULL;
    *size = 0;
    if (!f) {
        kit_file__fail(TENSOR_ERR_IO, path ? path : "(no path)", NULL, -1, strerror(path ? errno : EINVAL));
        return NULL;
    }
    for (;;) {
        if (room - have < 2) {
            size_t more = room ? 2 * room : 65536;
            unsigned char *grown = more > room ? (unsigned char *)realloc(data, more) : NULL;
            if (!grown) {
                kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, path, NULL, -1, "the file does not fit into memory");
                break;
            }
            data = grown;
            room = more;
        }
        size_t got = fread(data + have, 1, room - have - 1, f);
        have += got;
        if (got == 0) {
            if (ferror(f)) {
                kit_file__fail(TENSOR_ERR_IO, path, "byte", (int64_t)have, strerror(errno));
                break;
            }
            data[have] = 0;
            *size = have;
            fclose(f);
            return data;
        }
    }
    free(data);
    fclose(f);
    return NULL;
}

KIT_FILE__FN uint32_t kit_file__u16(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
KIT_FILE__FN uint32_t kit_file__u32(const unsigned char *p) {
    return kit_file__u16(p) | kit_file__u16(p + 2) << 16;
}

KIT_FILE__FN uint64_t kit_file__u64(const unsigned char *p) {
    return kit_file__u32(p) | (uint64_t)kit_file__u32(p + 4) << 32;
}

KIT_FILE__FN float kit_file__f32(const unsigned char *p) {
    uint32_t bits = kit_file__u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

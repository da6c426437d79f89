// file.h - what the kit's readers and writers share: a whole file in memory, little-endian numbers, errors,
// files that appear whole or not at all
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
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <wchar.h>
// Not windows.h, whose macros and types (far, near, POINTS ..) a program may have for names of its own.
#ifdef __cplusplus
extern "C" {
#endif
__declspec(dllimport) int __stdcall MoveFileExA(const char *from, const char *to, unsigned long how);
__declspec(dllimport) int __stdcall MoveFileExW(const wchar_t *from, const wchar_t *to, unsigned long how);
__declspec(dllimport) unsigned long __stdcall GetLastError(void);
#ifdef __cplusplus
}
#endif
#elif defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#define KIT_FILE__HAS_LINKS
#if defined(__STRICT_ANSI__) && !defined(__cplusplus)   // strict C: the headers may hide what the library has
extern ssize_t readlink(const char *path, char *to, size_t size);
#endif
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

// Elements that a reader fills: on the CPU, whatever the thread's default device is.   -> new
KIT_FILE__FN tensor_t *kit_file__tensor(const int64_t *dims, int ndim, tensor_dtype_t dtype) {
    const tensor_device_t device = tensor_get_default_device();
    (void)tensor_set_default_device(TENSOR_CPU);
    tensor_t *x = tensor_empty_n(dims, ndim, dtype);
    (void)tensor_set_default_device(device);
    return x;
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

// Opens a new file. NULL: errno says why; EEXIST: it is there already.
KIT_FILE__FN FILE *kit_file__create(const char *path) {
    wchar_t wide[KIT_FILE__NAME];
    const int how = _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY, may = _S_IREAD | _S_IWRITE;
    const int file = kit_file__wide(path, wide) ? _wopen(wide, how, may) : _open(path, how, may);
    return file >= 0 ? _fdopen(file, "wb") : NULL;
}

// Takes the place of a file that has the new name, as POSIX' rename does; that of Windows' C does not.
KIT_FILE__FN int kit_file__rename(const char *from, const char *to) {
    wchar_t wide[2][KIT_FILE__NAME];
    const int both = kit_file__wide(from, wide[0]) && kit_file__wide(to, wide[1]);
    enum { REPLACES = 1, DENIED = 5 };          // of windows.h
    const int done = both ? MoveFileExW(wide[0], wide[1], REPLACES) : MoveFileExA(from, to, REPLACES);
    if (done) { return 0; }
    errno = GetLastError() == DENIED ? EACCES : EIO;
    return -1;
}
#else
KIT_FILE__FN FILE *kit_file__open(const char *path, const char *mode) { return fopen(path, mode); }

KIT_FILE__FN int kit_file__remove(const char *path) { return remove(path); }

// Opens a new file. NULL: errno says why; EEXIST: it is there already.
KIT_FILE__FN FILE *kit_file__create(const char *path) { return fopen(path, "wbx"); }

KIT_FILE__FN int kit_file__rename(const char *from, const char *to) { return rename(from, to); }
#endif

// ---- files that appear whole or not at all

// A file that is written beside its place, as path.tmp, and takes the place when it is whole. The writer
// writes to f, if there is one; f keeps in mind what failed.
typedef struct kit_file__new_t {
    FILE *f;                    // NULL = it cannot be written, see error
    const char *path;
    char *place, *beside;       // NULL = a device or a pipe, which is written where it is
    int error;                  // of errno
} kit_file__new_t;

// Whether path is a device, a pipe or a folder. A file that is renamed to it would replace the first two.
KIT_FILE__FN int kit_file__is_no_file(const char *path) {
#if defined(KIT_FILE__HAS_LINKS)
    struct stat there;
    return stat(path, &there) == 0 && !S_ISREG(there.st_mode);
#else
    (void)path;
    return 0;
#endif
}

// The first n characters of a name, and more.   -> to be freed, NULL = no memory
KIT_FILE__FN char *kit_file__join(const char *name, size_t n, const char *more) {
    const size_t size = strlen(more) + 1;
    char *joined = (char *)malloc(n + size);
    if (joined) {
        memcpy(joined, name, n);
        memcpy(joined + n, more, size);
    } else {
        errno = ENOMEM;
    }
    return joined;
}

// How many characters of a name are those of its folder.
KIT_FILE__FN size_t kit_file__folder(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) + 1 : 0;
}

// Where the links of path lead: they stay.   -> to be freed, NULL = errno
KIT_FILE__FN char *kit_file__place(const char *path) {
    char *at = kit_file__join(path, strlen(path), "");
#if defined(KIT_FILE__HAS_LINKS)
    char to[4097];
    for (int links = 0; at; links++) {
        const ssize_t n = readlink(at, to, sizeof to - 1);
        if (n < 0) { break; }
        to[n] = 0;
        char *next = kit_file__join(at, to[0] == '/' ? 0 : kit_file__folder(at), to);
        free(at);
        at = next;
        if (links == 40) {
            free(at);
            errno = ELOOP;
            return NULL;
        }
    }
#endif
    return at;
}

// Begins the file of a path (NULL: it cannot be written). kit_file__settle or _finish is called in any case,
// behind the last write: errno says then why a write has failed.
KIT_FILE__FN kit_file__new_t kit_file__begin(const char *path) {
    kit_file__new_t w = {NULL, path, NULL, NULL, EINVAL};
    if (!path) { return w; }
    errno = 0;
    if (kit_file__is_no_file(path)) {
        w.f = kit_file__open(path, "wb");
        w.error = w.f ? 0 : errno;
        return w;
    }
    w.place = kit_file__place(path);
    size_t n = w.place ? strlen(w.place) : 0;
    for (int k = 0; w.place && !w.f && k < 1000; k++) {
        char end[16] = ".tmp";
        if (k > 0) { snprintf(end, sizeof end, ".tmp%d", k); }
        free(w.beside);
        w.beside = kit_file__join(w.place, n, end);
        w.f = w.beside ? kit_file__create(w.beside) : NULL;
        if (!w.f && errno == ENAMETOOLONG && n > kit_file__folder(w.place)) {
            n = kit_file__folder(w.place);          // the file's own name leaves no room for more
        } else if (!w.f && errno != EEXIST) {
            break;
        }
    }
    w.error = w.f ? 0 : errno;
#if defined(KIT_FILE__HAS_LINKS)
    struct stat old;
    if (w.f && stat(w.place, &old) == 0 && chmod(w.beside, old.st_mode & 07777) != 0) { w.error = errno; }
#endif
    errno = 0;
    return w;
}

// Ends n files that were begun. If all are whole, each takes its place; else none does, what was there before
// stays, and nothing is left beside it.
//   -> the first that cannot be written, with its error; NULL = none
KIT_FILE__FN const kit_file__new_t *kit_file__settle(kit_file__new_t *files, int n) {
    const kit_file__new_t *failed = NULL;
    const int why = errno ? errno : EIO;
    for (int k = 0; k < n; k++) {
        kit_file__new_t *w = &files[k];
        if (w->f && ferror(w->f) && !w->error) { w->error = why; }
        errno = 0;
        const int closed = !w->f || fclose(w->f) == 0;
        if (!closed && !w->error) { w->error = errno ? errno : EIO; }
        if (w->error && !failed) { failed = w; }
    }
    for (int k = 0; k < n; k++) {
        kit_file__new_t *w = &files[k];
        if (!failed && w->beside && kit_file__rename(w->beside, w->place) != 0) {
            w->error = errno;
            failed = w;
        }
        if (failed && w->f && w->beside) { (void)kit_file__remove(w->beside); }
        free(w->place);
        free(w->beside);
    }
    return failed;
}

// The same; raises what failed.   -> code;  errors IO
KIT_FILE__FN int kit_file__finish(kit_file__new_t *files, int n) {
    char why[200];
    const kit_file__new_t *failed = kit_file__settle(files, n);
    if (!failed) { return TENSOR_OK; }
    snprintf(why, sizeof why, "cannot be written: %.150s", strerror(failed->error));
    kit_file__fail(TENSOR_ERR_IO, failed->path ? failed->path : "(no path)", NULL, -1, why);
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

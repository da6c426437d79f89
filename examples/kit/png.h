// png.h - tensors as PNG files
// Kit for tensor.h, to be copied and changed, with file.h beside it. Licence: MIT-0 or public domain, as
// tensor.h.
//
//   #define KIT_PNG_IMPLEMENTATION         in one file
//   #include "kit/png.h"
//
//   png_save("filters.png", tensor_rand(3, 64, 64), NULL);
//
// 8 bits RGB; deflate with fixed codes: a tenth larger than the best encoders, and 60 lines.
// A file appears whole or not at all. What fails is raised by tensor_raise.
#ifndef KIT_PNG_H_INCLUDED_7C1E
#define KIT_PNG_H_INCLUDED_7C1E

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes that grow. at ends with a 0 that n does not count; failed = no memory. To be freed: at.
typedef struct png_bytes_t {
    unsigned char *at;
    size_t n, room;
    int failed, nbits;                      // nbits of bits are not in at yet
    uint32_t bits;
} png_bytes_t;

void png_put(png_bytes_t *b, const void *data, size_t n);

// Elements of t, n of them, as doubles to be freed.
//   -> NULL on failure;  errors SHAPE, POISONED, OUT_OF_MEMORY
double *png_numbers(tensor_t *t, int64_t n);
// t [H, W], [1, H, W] or [3, H, W], u8 0..255, others 0..1 (clamped), as RGB bytes to be freed.
//   -> NULL on failure;  errors as png_numbers
unsigned char *png_pixels(tensor_t *t, int *width, int *height);
// Appends a PNG file. text: NULL, or what its chunk tEXt "Description" says.   -> nothing; b->failed
void png_encode(png_bytes_t *b, const unsigned char *rgb, int width, int height, const char *text);
// Writes beside path, then renames. A file that is there stays as it was on an error.
//   -> code;  errors IO (also: path is not a regular file), OUT_OF_MEMORY (b->failed)
int png_write_file(const char *path, const png_bytes_t *b);
// A tensor as png_pixels takes it, a pixel for a pixel.   -> code;  errors as png_pixels, IO
int png_save(const char *path, tensor_t *image, const char *text);

#ifdef __cplusplus
}
#endif
#endif

#ifdef KIT_PNG_IMPLEMENTATION
#ifndef KIT_PNG_IMPLEMENTED
#define KIT_PNG_IMPLEMENTED

#include <stdio.h>

#include "file.h"

static unsigned char png__byte(double v) {
    if (v >= 255) { return 255; }
    return v > 0 ? (unsigned char)(v + 0.5) : 0;                          // NaN is 0
}

double *png_numbers(tensor_t *t, int64_t n) {
    double *to = NULL;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *wide = tensor_to(tensor_detach(t), TENSOR_F64);
    if (tensor_is_poison(wide) || tensor_numel(wide) != n || n < 1 || n > INT64_C(1) << 28) {
        char text[160];
        snprintf(text, sizeof text, "a tensor has %lld elements, must have %lld (1 to 2^28)",
                 (long long)tensor_numel(wide), (long long)n);
        (void)(tensor_raise)(TENSOR_ERR_SHAPE, text);
    } else {
        to = (double *)malloc((size_t)n * sizeof *to);
        if (!to || tensor_copy_out(wide, to, (size_t)n * sizeof *to)) {
            free(to);
            to = NULL;
            (void)(tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "no memory for a tensor's elements");
        }
    }
    (void)(tensor_scope_end)(scope);
    return to;
}

unsigned char *png_pixels(tensor_t *t, int *width, int *height) {
    int64_t planes = tensor_ndim(t) == 3 ? tensor_size(t, 0) : 1;
    if (tensor_is_poison(t) || tensor_ndim(t) < 2 || tensor_ndim(t) > 3 || (planes != 1 && planes != 3) ||
        tensor_size(t, -1) < 1 || tensor_size(t, -1) > 8192 || tensor_size(t, -2) < 1 ||
        tensor_size(t, -2) > 8192) {
        (void)(tensor_raise)(TENSOR_ERR_SHAPE, "an image is [H, W], [1, H, W] or [3, H, W] to 8192");
        return NULL;
    }
    *width = (int)tensor_size(t, -1);
    *height = (int)tensor_size(t, -2);
    size_t area = (size_t)*width * (size_t)*height;
    double *v = png_numbers(t, (int64_t)area * planes), scale = tensor_dtype(t) == TENSOR_U8 ? 1 : 255;
    unsigned char *rgb = v ? (unsigned char *)malloc(area * 3) : NULL;
    for (size_t i = 0; i < area * 3 && rgb; i++) {
        rgb[i] = png__byte(v[(planes == 3 ? i % 3 * area : 0) + i / 3] * scale);
    }
    free(v);
    return rgb;
}

enum { PNG_TRIES = 48 };                    // places that are compared for the longest match

// ---- bytes that grow ----

void png_put(png_bytes_t *b, const void *data, size_t n) {
    if (b->n + n + 1 > b->room && !b->failed) {
        size_t room = (b->n + n + 1) * 2;
        unsigned char *more = (unsigned char *)realloc(b->at, room);
        if (more) { b->at = more; }
        b->room = more ? room : b->room;
        b->failed = !more;
    }
    if (b->failed) { return; }
    memcpy(b->at + b->n, data, n);
    b->at[b->n += n] = 0;
}

// ---- PNG: 8 bits RGB, deflate with fixed codes ----

static void png__big_endian(png_bytes_t *b, uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) {
        unsigned char byte = (unsigned char)(v >> shift & 255);
        png_put(b, &byte, 1);
    }
}

static void png__bits(png_bytes_t *b, uint32_t value, int count) {       // the lowest bit first
    b->bits |= value << b->nbits;
    for (b->nbits += count; b->nbits >= 8; b->nbits -= 8, b->bits >>= 8) {
        unsigned char byte = (unsigned char)(b->bits & 255);
        png_put(b, &byte, 1);
    }
}

static void png__code(png_bytes_t *b, uint32_t code, int count) {       // Huffman: the highest bit first
    while (count-- > 0) { png__bits(b, code >> count & 1, 1); }
}

static void png__symbol(png_bytes_t *b, unsigned s) {                    // RFC 1951, 3.2.6
    if (s < 144) {
        png__code(b, 0x30 + s, 8);
    } else if (s < 256) {
        png__code(b, 0x190 + s - 144, 9);
    } else if (s < 280) {
        png__code(b, s - 256, 7);
    } else {
        png__code(b, 0xC0 + s - 280, 8);
    }
}

// A length above 2 (base 3, 4 values a class of bits) or a distance (base 1, 2 values): RFC 1951, 3.2.5.
static int png__class(unsigned value, unsigned base, unsigned step, unsigned *low, int *extra) {
    int k = 0;
    for (*low = base, *extra = 0;; k++) {
        *extra = k < (int)step * 2 ? 0 : k / (int)step - 1;
        if (value < *low + (1u << *extra)) { return k; }
        *low += 1u << *extra;
    }
}

// Where three bytes were before, newest first: last[hash], then older[place]; places + 1, 0 = nowhere.
typedef struct png__places_t { int32_t last[1 << 15], older[1 << 15]; } png__places_t;

// Notes that three bytes stand at i.   -> the last place + 1 where the same hash stood
static size_t png__note(png__places_t *p, const unsigned char *data, size_t i) {
    uint32_t three = data[i] | (uint32_t)data[i + 1] << 8 | (uint32_t)data[i + 2] << 16;
    uint32_t hash = three * 2654435761u >> 17;
    int32_t at = p->last[hash];
    p->older[i & 32767] = at;
    p->last[hash] = (int32_t)i + 1;
    return (size_t)at;
}

static void png__deflate(png_bytes_t *b, const unsigned char *data, size_t n) {
    png__places_t *places = (png__places_t *)calloc(1, sizeof *places);
    uint32_t s1 = 1, s2 = 0;
    b->failed |= !places;
    png_put(b, "\x78\x01", 2);
    png__bits(b, 3, 3);                                                   // the last block, fixed codes
    for (size_t i = 0; i < n && !b->failed;) {
        unsigned length = 0, low;
        size_t from = 0;
        int extra;
        if (i + 3 <= n) {
            size_t at = png__note(places, data, i);
            for (int tries = 0; tries < PNG_TRIES && at && i + 1 - at < 32768 && length < 258; tries++) {
                unsigned same = 0;
                while (same < 258 && i + same < n && data[at - 1 + same] == data[i + same]) { same++; }
                if (same > length) {
                    length = same;
                    from = at;
                }
                size_t older = (size_t)places->older[(at - 1) & 32767];
                at = older < at ? older : 0;                               // overwritten since: a newer place
            }
        }
        if (length < 3) {
            png__symbol(b, data[i++]);
            continue;
        }
        int k = length == 258 ? 28 : png__class(length, 3, 4, &low, &extra);
        png__symbol(b, 257 + (unsigned)k);
        if (k < 28) { png__bits(b, length - low, extra); }
        unsigned distance = (unsigned)(i + 1 - from);
        png__code(b, (uint32_t)png__class(distance, 1, 2, &low, &extra), 5);
        png__bits(b, distance - low, extra);
        for (i++; --length; i++) {
            if (i + 3 <= n) { (void)png__note(places, data, i); }
        }
    }
    png__symbol(b, 256);
    png__bits(b, 0, 7);                                                   // to the end of the byte
    for (size_t i = 0; i < n; i++) {
        s1 = (s1 + data[i]) % 65521;
        s2 = (s2 + s1) % 65521;
    }
    png__big_endian(b, s2 << 16 | s1);
    free(places);
}

static void png__chunk(png_bytes_t *b, const char *name, const void *data, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    png__big_endian(b, (uint32_t)n);
    size_t begin = b->n;
    png_put(b, name, 4);
    png_put(b, data, n);
    for (size_t i = begin; i < b->n && !b->failed; i++) {
        crc ^= b->at[i];
        for (int k = 0; k < 8; k++) { crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0); }
    }
    png__big_endian(b, ~crc);
}

void png_encode(png_bytes_t *b, const unsigned char *rgb, int width, int height, const char *text) {
    size_t row = (size_t)width * 3;
    png_bytes_t head, body[2], note;
    memset(&head, 0, sizeof head);
    memset(body, 0, sizeof body);
    memset(&note, 0, sizeof note);
    unsigned char *lines = (unsigned char *)malloc((row + 1) * (size_t)height);
    for (int up = 0; up < 2 && lines; up++) {                    // rows as they are, or less the row above
        for (size_t y = 0; y < (size_t)height; y++) {
            lines[y * (row + 1)] = (unsigned char)(2 * up);
            for (size_t i = 0; i < row; i++) {
                int above = up && y ? rgb[(y - 1) * row + i] : 0;
                lines[y * (row + 1) + 1 + i] = (unsigned char)((rgb[y * row + i] - above) & 255);
            }
        }
        png__deflate(&body[up], lines, (row + 1) * (size_t)height);
    }
    const png_bytes_t *best = body[1].n < body[0].n ? &body[1] : &body[0];
    png_put(b, "\x89PNG\r\n\x1a\n", 8);
    png__big_endian(&head, (uint32_t)width);
    png__big_endian(&head, (uint32_t)height);
    png_put(&head, "\x08\x02\0\0", 5);                                   // 8 bits, RGB
    png__chunk(b, "IHDR", head.at, head.n);
    if (text && text[0]) {
        png_put(&note, "Description", 12);
        png_put(&note, text, strlen(text));
        png__chunk(b, "tEXt", note.at, note.n);
    }
    png__chunk(b, "IDAT", best->at, best->n);
    png__chunk(b, "IEND", "", 0);
    b->failed |= !lines || head.failed || body[0].failed || body[1].failed || note.failed;
    free(lines);
    free(head.at);
    free(body[0].at);
    free(body[1].at);
    free(note.at);
}

int png_write_file(const char *path, const png_bytes_t *b) {
    char text[1400];
    if (b->failed) { return (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "no memory for a picture's file"); }
    if (path && kit_file__is_no_file(path)) {
        (void)snprintf(text, sizeof text, "cannot write %.1300s: not a regular file", path);
        return (tensor_raise)(TENSOR_ERR_IO, text);
    }
    kit_file__new_t file = kit_file__begin(path);
    if (file.f) { (void)fwrite(b->at, 1, b->n, file.f); }
    const kit_file__new_t *failed = kit_file__settle(&file, 1);
    if (!failed) { return TENSOR_OK; }
    (void)snprintf(text, sizeof text, "cannot write %.1200s: %.150s", path ? path : "(no path)",
                   strerror(failed->error));
    return (tensor_raise)(TENSOR_ERR_IO, text);
}

int png_save(const char *path, tensor_t *image, const char *text) {
    int width = 0, height = 0, code;
    png_bytes_t b;
    memset(&b, 0, sizeof b);
    unsigned char *rgb = png_pixels(image, &width, &height);
    if (!rgb) { return tensor_error_code(); }
    png_encode(&b, rgb, width, height, text);
    code = png_write_file(path, &b);
    free(rgb);
    free(b.at);
    return code;
}

#endif
#endif

// gguf.h - the tensors and settings of GGUF files (llama.cpp's models)
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_GGUF_IMPLEMENTATION
//   #include "kit/gguf.h"
//
// f32, f16 and bf16 keep their dtype, blocks of Q8_0 and Q4_0 become f32; tensors of other types are there
// by name but cannot be read. Every length is checked in 64 bits against what is there before it is used; a
// file is opened as a whole or refused as a whole, with the byte where it is wrong.
#ifndef KIT_GGUF_H
#define KIT_GGUF_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_gguf_t kit_gguf_t;

// Opens a file in memory, which must stay until kit_gguf_close. Versions 2 and 3, little-endian.
//   name    for error texts
//   -> file, NULL on failure;  errors FORMAT, UNSUPPORTED (version), OUT_OF_MEMORY
kit_gguf_t *kit_gguf_parse(const void *data, size_t size, const char *name);
//   -> as above;  errors as above, IO
kit_gguf_t *kit_gguf_open(const char *path);
void kit_gguf_close(kit_gguf_t *f);

int64_t kit_gguf_count(const kit_gguf_t *f); // tensors
// Name of tensor i in alphabetical order.   -> borrowed, NULL = no such i
const char *kit_gguf_name(const kit_gguf_t *f, int64_t i);
// Dims in PyTorch's order, the last one without gaps.
//   -> new f32, f16 or bf16;  errors INDEX (no such name), UNSUPPORTED (its type), OUT_OF_MEMORY
tensor_t *kit_gguf_get(const kit_gguf_t *f, const char *name);

// A setting that is a number or a truth.   -> 1, or 0: there is none of that name and kind
int kit_gguf_number(const kit_gguf_t *f, const char *key, double *value);
// A setting that is a text, not ended by a NUL; place i of one that is a list of texts (else i is 0).
//   -> borrowed, NULL = there is none
const char *kit_gguf_text(const kit_gguf_t *f, const char *key, int64_t i, size_t *size);
// Entries of a setting that is a list.   -> count, -1 = there is none
int64_t kit_gguf_length(const kit_gguf_t *f, const char *key);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_GGUF_IMPLEMENTATION) && !defined(KIT_GGUF_DONE)
#define KIT_GGUF_DONE

#include "file.h"

enum { KIT_GGUF__BOOL = 7, KIT_GGUF__STRING = 8, KIT_GGUF__ARRAY = 9, KIT_GGUF__TYPES = 13 };
enum { KIT_GGUF__F32 = 0, KIT_GGUF__F16 = 1, KIT_GGUF__Q4_0 = 2, KIT_GGUF__Q8_0 = 8, KIT_GGUF__BF16 = 30 };

// A setting or a tensor.
typedef struct kit_gguf__entry_t {
    char *name;     // with a NUL; freed with the file
    uint32_t type;  // of a setting, of the elements of a tensor
    uint32_t inner; // of a list's entries
    uint64_t count; // entries of a list, elements of a tensor
    const unsigned char *data, **text; // text: where each text of a list is, behind its length
    tensor_shape_t shape;
} kit_gguf__entry_t;

struct kit_gguf_t {
    unsigned char *own;                  // the file's bytes if kit_gguf_open read them
    kit_gguf__entry_t *setting, *tensor; // sorted by name
    int64_t settings, tensors;
    const unsigned char *begin, *p, *end;
    const char *wrong;
    int code;
};

void kit_gguf_close(kit_gguf_t *f) {
    if (!f) { return; }
    for (int64_t i = 0; i < f->settings; i++) {
        free(f->setting[i].name);
        free((void *)f->setting[i].text);
    }
    for (int64_t i = 0; i < f->tensors; i++) { free(f->tensor[i].name); }
    free(f->setting);
    free(f->tensor);
    free(f->own);
    free(f);
}

// ---- reading ----

static int kit_gguf__bad(kit_gguf_t *f, const char *what) {
    if (!f->wrong) { f->wrong = what; }
    return 0;
}

static const unsigned char *kit_gguf__take(kit_gguf_t *f, uint64_t n) {
    const unsigned char *p = f->p;
    if (n > (uint64_t)(f->end - p)) {
        kit_gguf__bad(f, "the file ends too early");
        return NULL;
    }
    f->p += n;
    return p;
}

static uint64_t kit_gguf__u32(kit_gguf_t *f) {
    const unsigned char *p = kit_gguf__take(f, 4);
    return p ? kit_file__u32(p) : 0;
}
static uint64_t kit_gguf__u64(kit_gguf_t *f) {
    const unsigned char *p = kit_gguf__take(f, 8);
    return p ? kit_file__u64(p) : 0;
}

// A name of 1..most bytes.   -> copy with a NUL, NULL = said
static char *kit_gguf__name(kit_gguf_t *f, uint64_t most) {
    const uint64_t n = kit_gguf__u64(f);
    const unsigned char *p = f->wrong ? NULL : kit_gguf__take(f, n);
    if (p && (n == 0 || n > most || memchr(p, 0, (size_t)n))) {
        kit_gguf__bad(f, "a name is empty, too long or has a NUL");
    }
    char *copy = f->wrong ? NULL : (char *)malloc((size_t)n + 1);
    if (!copy) {
        kit_gguf__bad(f, "out of memory");
        return NULL;
    }
    memcpy(copy, p, (size_t)n);
    copy[n] = 0;
    return copy;
}

// Bytes of a number of that type, 0 = it is none.
static uint64_t kit_gguf__width(uint32_t type) {
    static const unsigned char width[KIT_GGUF__TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < KIT_GGUF__TYPES ? width[type] : 0;
}

// Goes over count values.
static int kit_gguf__values(kit_gguf_t *f, uint32_t type, uint64_t count) {
    const uint64_t width = kit_gguf__width(type), left = (uint64_t)(f->end - f->p);
    if (type == KIT_GGUF__STRING) {
        // Each has at least its length, so that a count that lies ends soon.
        for (uint64_t i = 0; i < count && !f->wrong; i++) {
            const uint64_t n = kit_gguf__u64(f);
            if (!f->wrong) { kit_gguf__take(f, n); }
        }
        return !f->wrong;
    }
    if (width == 0) { return kit_gguf__bad(f, "a setting has an unknown type"); }
    if (count > left / width) { return kit_gguf__bad(f, "a list is longer than the file"); }
    return kit_gguf__take(f, count * width) != NULL;
}

static int kit_gguf__setting(kit_gguf_t *f, kit_gguf__entry_t *e) {
    e->name = kit_gguf__name(f, 65535);
    f->settings += e->name != NULL;
    e->type = (uint32_t)kit_gguf__u32(f);
    if (f->wrong) { return 0; }
    e->count = 1;
    e->inner = e->type;
    if (e->type == KIT_GGUF__ARRAY) {
        e->inner = (uint32_t)kit_gguf__u32(f);
        e->count = kit_gguf__u64(f);
        if (e->inner == KIT_GGUF__ARRAY) { return kit_gguf__bad(f, "a list of lists"); }
    }
    e->data = f->p;
    if (f->wrong || !kit_gguf__values(f, e->inner, e->count)) { return 0; }
    if (e->inner != KIT_GGUF__STRING) { return 1; }
    // A text takes 8 bytes of the file or more, so that this list is not larger than the file.
    e->text = (const unsigned char **)malloc(((size_t)e->count + 1) * sizeof *e->text);
    if (!e->text) { return kit_gguf__bad(f, "out of memory"); }
    const unsigned char *p = e->data;
    for (uint64_t i = 0; i < e->count; i++) {
        e->text[i] = p + 8;
        p += 8 + kit_file__u64(p);
    }
    return 1;
}

// Elements and bytes of a block of a type that can be read, 0 = it is none.
static uint64_t kit_gguf__block(uint32_t type, uint64_t *bytes) {
    *bytes = 0;
    switch (type) {
    case KIT_GGUF__F32: *bytes = 4; return 1;
    case KIT_GGUF__F16: *bytes = 2; return 1;
    case KIT_GGUF__BF16: *bytes = 2; return 1;
    case KIT_GGUF__Q4_0: *bytes = 18; return 32;
    case KIT_GGUF__Q8_0: *bytes = 34; return 32;
    default: return 0;
    }
}

// The offset stays in count until the beginning of the data is known.
static int kit_gguf__tensor(kit_gguf_t *f, kit_gguf__entry_t *e) {
    e->name = kit_gguf__name(f, 255);
    f->tensors += e->name != NULL;
    const uint64_t ndim = kit_gguf__u32(f);
    uint64_t numel = 1;
    if (f->wrong) { return 0; }
    if (ndim > 4) { return kit_gguf__bad(f, "a tensor of over 4 dims"); }
    e->shape.ndim = (int)ndim;
    for (int k = (int)ndim - 1; k >= 0; k--) {
        const uint64_t d = kit_gguf__u64(f);
        if (d > INT64_MAX || (d > 0 && numel > (UINT64_C(1) << 59) / d)) {
            return kit_gguf__bad(f, "a tensor has too many elements");
        }
        e->shape.dims[k] = (int64_t)d;
        numel *= d ? d : 1; // the other dims of an empty tensor must fit, too
    }
    e->type = (uint32_t)kit_gguf__u32(f);
    e->count = kit_gguf__u64(f);
    uint64_t bytes, block = kit_gguf__block(e->type, &bytes);
    if (!f->wrong && block > 1 && (ndim == 0 || (uint64_t)e->shape.dims[ndim - 1] % block != 0)) {
        return kit_gguf__bad(f, "the last dim of a tensor is not whole blocks");
    }
    return !f->wrong;
}

static int kit_gguf__order(const void *a, const void *b) {
    return strcmp(((const kit_gguf__entry_t *)a)->name, ((const kit_gguf__entry_t *)b)->name);
}

static int kit_gguf__sort(kit_gguf_t *f, kit_gguf__entry_t *list, int64_t n) {
    if (n > 0) { qsort(list, (size_t)n, sizeof *list, kit_gguf__order); }
    for (int64_t i = 1; i < n; i++) {
        if (strcmp(list[i - 1].name, list[i].name) == 0) { return kit_gguf__bad(f, "a name is there twice"); }
    }
    return 1;
}

static const kit_gguf__entry_t *kit_gguf__find(const kit_gguf__entry_t *list, int64_t n, const char *name) {
    for (int64_t low = 0, high = n; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        const int c = strcmp(name, list[middle].name);
        if (c == 0) { return &list[middle]; }
        if (c < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

// Where each tensor's data is, once the settings said the alignment.
static int kit_gguf__places(kit_gguf_t *f) {
    const kit_gguf__entry_t *a = kit_gguf__find(f->setting, f->settings, "general.alignment");
    uint64_t align = 32;
    if (a) { align = a->type == 4 ? kit_file__u32(a->data) : 0; }
    if (align == 0 || (align & (align - 1)) != 0) {
        return kit_gguf__bad(f, "the alignment is not a power of two");
    }
    const uint64_t at = ((uint64_t)(f->p - f->begin) + align - 1) / align * align,
                   size = (uint64_t)(f->end - f->begin);
    for (int64_t i = 0; i < f->tensors; i++) {
        kit_gguf__entry_t *e = &f->tensor[i];
        const uint64_t offset = e->count;
        uint64_t bytes, block = kit_gguf__block(e->type, &bytes);
        e->count = 1;
        for (int k = 0; k < e->shape.ndim; k++) { e->count *= (uint64_t)e->shape.dims[k]; }
        if (offset % align != 0) { return kit_gguf__bad(f, "the offset of a tensor is not aligned"); }
        if (block == 0 || e->count == 0) { continue; }
        if (at > size || offset > size - at) {
            return kit_gguf__bad(f, "a tensor begins behind the end of the file");
        }
        // e->count is below 2^60 (kit_gguf__tensor).
        if (e->count / block > (size - at - offset) / bytes) {
            return kit_gguf__bad(f, "a tensor is longer than the file");
        }
        e->data = f->begin + at + offset;
    }
    return 1;
}

static int kit_gguf__read(kit_gguf_t *f) {
    const unsigned char *magic = kit_gguf__take(f, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) { return kit_gguf__bad(f, "it does not begin with GGUF"); }
    const uint64_t version = kit_gguf__u32(f), tensors = kit_gguf__u64(f), settings = kit_gguf__u64(f);
    if (!f->wrong && version != 2 && version != 3) {
        f->code = TENSOR_ERR_UNSUPPORTED;
        return kit_gguf__bad(f, "its version is not 2 or 3, or it is big-endian");
    }
    // An entry takes 13 bytes or more.
    const uint64_t most = (uint64_t)(f->end - f->begin) / 13;
    if (!f->wrong && (tensors > most || settings > most)) {
        return kit_gguf__bad(f, "more entries than the file has room for");
    }
    if (f->wrong) { return 0; }
    f->setting = (kit_gguf__entry_t *)calloc((size_t)settings + 1, sizeof *f->setting);
    f->tensor = (kit_gguf__entry_t *)calloc((size_t)tensors + 1, sizeof *f->tensor);
    if (!f->setting || !f->tensor) { return kit_gguf__bad(f, "out of memory"); }
    for (uint64_t i = 0; i < settings; i++) {
        if (!kit_gguf__setting(f, &f->setting[i])) { return 0; }
    }
    for (uint64_t i = 0; i < tensors; i++) {
        if (!kit_gguf__tensor(f, &f->tensor[i])) { return 0; }
    }
    if (!kit_gguf__sort(f, f->setting, f->settings) || !kit_gguf__sort(f, f->tensor, f->tensors)) {
        return 0;
    }
    return kit_gguf__places(f);
}

kit_gguf_t *kit_gguf_parse(const void *data, size_t size, const char *name) {
    kit_gguf_t *f = (kit_gguf_t *)calloc(1, sizeof *f);
    if (!f) {
        kit_file__fail(TENSOR_ERR_OUT_OF_MEMORY, name, NULL, -1, "out of memory");
        return NULL;
    }
    if (!data) { data = "", size = 0; }
    f->begin = f->p = (const unsigned char *)data;
    f->end = f->p + size;
    f->code = TENSOR_ERR_FORMAT;
    if (kit_gguf__read(f)) { return f; }
    if (strcmp(f->wrong, "out of memory") == 0) { f->code = TENSOR_ERR_OUT_OF_MEMORY; }
    kit_file__fail(f->code, name, "byte", (int64_t)(f->p - f->begin), f->wrong);
    kit_gguf_close(f);
    return NULL;
}

kit_gguf_t *kit_gguf_open(const char *path) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    kit_gguf_t *f = data ? kit_gguf_parse(data, size, path) : NULL;
    if (f) {
        f->own = data;
    } else {
        free(data);
    }
    return f;
}

// ---- settings ----

int kit_gguf_number(const kit_gguf_t *f, const char *key, double *value) {
    const kit_gguf__entry_t *e = f ? kit_gguf__find(f->setting, f->settings, key) : NULL;
    const uint64_t width = e ? kit_gguf__width(e->type) : 0;
    uint64_t bits = 0;
    if (width == 0) { return 0; }
    for (uint64_t k = 0; k < width; k++) { bits |= (uint64_t)e->data[k] << 8 * k; }
    const int is_signed = e->type == 1 || e->type == 3 || e->type == 5 || e->type == 11;
    if (e->type == 12) {
        memcpy(value, &bits, sizeof *value);
    } else if (e->type == 6) {
        *value = kit_file__f32(e->data);
    } else if (is_signed && bits >> (8 * width - 1)) {
        *value = -(double)((~bits & (UINT64_MAX >> (64 - 8 * width))) + 1);
    } else {
        *value = (double)bits;
    }
    return 1;
}

const char *kit_gguf_text(const kit_gguf_t *f, const char *key, int64_t i, size_t *size) {
    const kit_gguf__entry_t *e = f ? kit_gguf__find(f->setting, f->settings, key) : NULL;
    if (!e || e->inner != KIT_GGUF__STRING || i < 0 || (uint64_t)i >= e->count) { return NULL; }
    *size = (size_t)kit_file__u64(e->text[i] - 8);
    return (const char *)e->text[i];
}

int64_t kit_gguf_length(const kit_gguf_t *f, const char *key) {
    const kit_gguf__entry_t *e = f ? kit_gguf__find(f->setting, f->settings, key) : NULL;
    return e && e->type == KIT_GGUF__ARRAY ? (int64_t)e->count : -1;
}

// ---- tensors ----

int64_t kit_gguf_count(const kit_gguf_t *f) {
    return f ? f->tensors : 0;
}

const char *kit_gguf_name(const kit_gguf_t *f, int64_t i) {
    return i >= 0 && i < kit_gguf_count(f) ? f->tensor[i].name : NULL;
}

static float kit_gguf__half(const unsigned char *p) {
    const uint32_t h = kit_file__u16(p), sign = (h & 0x8000u) << 16, fraction = h & 0x3FFu;
    uint32_t exponent = h >> 10 & 31u, bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction / 16777216.0f; // 2^24
        return sign ? -value : value;
    }
    exponent = exponent == 31 ? 255 : exponent + 112;
    bits = sign | exponent << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A block of 32 numbers: a scale and 32 signed bytes, or 16 bytes with numbers 0..15 over 8 in their
// halves, the lower halves first.
static void kit_gguf__unpack(uint32_t type, const unsigned char *p, float *to) {
    const float scale = kit_gguf__half(p);
    for (int k = 0; k < 32; k++) {
        int q;
        if (type == KIT_GGUF__Q8_0) {
            q = p[2 + k] < 128 ? p[2 + k] : p[2 + k] - 256;
        } else {
            const int both = p[2 + k % 16];
            q = (k < 16 ? both & 15 : both >> 4) - 8;
        }
        to[k] = scale * (float)q;
    }
}

tensor_t *kit_gguf_get(const kit_gguf_t *f, const char *name) {
    const kit_gguf__entry_t *e = f ? kit_gguf__find(f->tensor, f->tensors, name) : NULL;
    char text[160];
    uint64_t bytes, block = e ? kit_gguf__block(e->type, &bytes) : 0;
    if (!e || block == 0) {
        snprintf(text, sizeof text, "kit_gguf_get: \"%.80s\" %s", name,
                 e ? "is of a type that is not read" : "is not there");
        (tensor_raise)(e ? TENSOR_ERR_UNSUPPORTED : TENSOR_ERR_INDEX, text);
        return (tensor_detach)(NULL);
    }
    tensor_dtype_t dtype = e->type == KIT_GGUF__F16 ? TENSOR_F16 : TENSOR_F32;
    if (e->type == KIT_GGUF__BF16) { dtype = TENSOR_BF16; }
    tensor_t *x = kit_file__tensor(e->shape.dims, e->shape.ndim, dtype);
    void *to = tensor_data_mut(x);
    for (uint64_t i = 0; i < e->count && to; i += block) {
        const unsigned char *p = e->data + i / block * bytes;
        if (block > 1) {
            kit_gguf__unpack(e->type, p, (float *)to + i);
        } else if (bytes == 4) {
            ((float *)to)[i] = kit_file__f32(p);
        } else {
            ((uint16_t *)to)[i] = (uint16_t)kit_file__u16(p);
        }
    }
    return x;
}

#endif

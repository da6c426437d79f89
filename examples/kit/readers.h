// readers.h - pictures and sound as tensors: CIFAR-10 and CIFAR-100, PPM and PGM, WAV
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_READERS_IMPLEMENTATION
//   #include "kit/readers.h"
//
// Each kit_read_x takes a path, each kit_parse_x the same bytes in memory and a name for error texts. Every
// size that a file states is checked in 64 bits against what is there before anything is allocated. A file is
// read as a whole or refused as a whole: the error names the file, the record and the reason. Tensors are on
// the CPU.
#ifndef KIT_READERS_H
#define KIT_READERS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- CIFAR ----

typedef struct kit_cifar_t {
    tensor_t *images; // u8 [N, 3, 32, 32]
    tensor_t *labels; // i64 [N], 0..9 or 0..99 (the fine label)
    tensor_t *coarse; // i64 [N], 0..19; NULL of CIFAR-10
} kit_cifar_t;

// The binary version: records of 1 label and 3072 bytes (CIFAR-10), of 2 labels and 3072 bytes (CIFAR-100).
//   classes 10 or 100
//   -> struct of new tensors, all poison on failure;  errors FORMAT, UNSUPPORTED (classes), OUT_OF_MEMORY
kit_cifar_t kit_parse_cifar(const void *data, size_t size, const char *name, int classes);
// One file, e.g. data_batch_1.bin; tensor_cat joins several.   -> as above;  errors as above, IO
kit_cifar_t kit_read_cifar(const char *path, int classes);

// ---- pictures and sound ----

// PGM (P2, P5) and PPM (P3, P6).
//   -> new u8 [1 or 3, H, W], i32 if maxval is over 255;  errors FORMAT, OUT_OF_MEMORY
tensor_t *kit_parse_pnm(const void *data, size_t size, const char *name);
//   -> as above;  errors as above, IO
tensor_t *kit_read_pnm(const char *path);

typedef struct kit_wav_t {
    tensor_t *samples; // f32 [channels, frames]; integers are scaled to -1..1
    int64_t rate;      // frames per second
    int bits;          // of a sample in the file
} kit_wav_t;

// RIFF WAVE with integers of 8, 16, 24, 32 bits or floats of 32, 64.
//   -> struct, samples is poison on failure;  errors FORMAT, UNSUPPORTED (another coding), OUT_OF_MEMORY
kit_wav_t kit_parse_wav(const void *data, size_t size, const char *name);
//   -> as above;  errors as above, IO
kit_wav_t kit_read_wav(const char *path);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_READERS_IMPLEMENTATION) && !defined(KIT_READERS_DONE)
#define KIT_READERS_DONE

#include "file.h"

// ---- CIFAR ----

kit_cifar_t kit_parse_cifar(const void *data, size_t size, const char *name, int classes) {
    if (!data) { size = 0; }
    const size_t pixels = 3 * 32 * 32, labels = classes == 100 ? 2 : 1, record = labels + pixels,
                 n = size / record;
    const unsigned char *p = (const unsigned char *)data;
    const int64_t dims[4] = {(int64_t)n, 3, 32, 32};
    kit_cifar_t r = {NULL, NULL, NULL};
    tensor_t *poison = NULL;
    if (classes != 10 && classes != 100) {
        poison = kit_file__fail(TENSOR_ERR_UNSUPPORTED, name, "classes", classes, "CIFAR has 10 or 100");
    } else if (size == 0 || size % record != 0) {
        poison = kit_file__fail(TENSOR_ERR_FORMAT, name, "record", (int64_t)n,
                                classes == 10 ? "the file is not a multiple of 3073 bytes"
                                              : "the file is not a multiple of 3074 bytes");
    }
    for (size_t i = 0; i < n && !poison; i++) {
        const unsigned char *label = p + i * record;
        if (label[labels - 1] >= classes || (labels == 2 && label[0] >= 20)) {
            poison = kit_file__fail(TENSOR_ERR_FORMAT, name, "record", (int64_t)i, "label out of range");
        }
    }
    if (!poison) {
        r.images = kit_file__tensor(dims, 4, TENSOR_U8);
        r.labels = kit_file__tensor(dims, 1, TENSOR_I64);
        r.coarse = classes == 100 ? kit_file__tensor(dims, 1, TENSOR_I64) : NULL;
        unsigned char *image = (unsigned char *)tensor_data_mut(r.images);
        int64_t *label = (int64_t *)tensor_data_mut(r.labels);
        int64_t *coarse = r.coarse ? (int64_t *)tensor_data_mut(r.coarse) : NULL;
        if (image && label && (coarse || classes == 10)) {
            for (size_t i = 0; i < n; i++, p += record) {
                if (coarse) { coarse[i] = p[0]; }
                label[i] = p[labels - 1];
                memcpy(image + i * pixels, p + labels, pixels);
            }
            return r;
        }
        poison = tensor_detach(NULL);
    }
    r.images = r.labels = poison;
    r.coarse = classes == 100 ? poison : NULL;
    return r;
}

kit_cifar_t kit_read_cifar(const char *path, int classes) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    kit_cifar_t r = {NULL, NULL, NULL};
    if (data) {
        r = kit_parse_cifar(data, size, path, classes);
    } else {
        r.images = r.labels = r.coarse = tensor_detach(NULL);
    }
    free(data);
    return r;
}

// ---- PGM and PPM ----

typedef struct kit_readers__text_t {
    const unsigned char *p, *end;
} kit_readers__text_t;

// The next number of a header behind white space and comments; -1 = there is none or it is over 2^31 - 1.
static int64_t kit_readers__pnm_number(kit_readers__text_t *t) {
    int64_t value = 0;
    for (;;) {
        while (t->p < t->end && (*t->p == ' ' || (*t->p >= '\t' && *t->p <= '\r'))) { t->p++; }
        if (t->p >= t->end || *t->p != '#') { break; }
        while (t->p < t->end && *t->p != '\n' && *t->p != '\r') { t->p++; }
    }
    if (t->p >= t->end || *t->p < '0' || *t->p > '9') { return -1; }
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++) {
        value = 10 * value + (*t->p - '0');
        if (value > INT32_MAX) { return -1; }
    }
    return value;
}

tensor_t *kit_parse_pnm(const void *data, size_t size, const char *name) {
    if (!data) { data = "", size = 0; }
    kit_readers__text_t t = {(const unsigned char *)data, (const unsigned char *)data + size};
    int kind = size > 2 && t.p[0] == 'P' ? t.p[1] - '0' : 0;
    if (kind != 2 && kind != 3 && kind != 5 && kind != 6) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "it does not begin with P2, P3, P5 or P6");
    }
    t.p += 2;
    int64_t w = kit_readers__pnm_number(&t), h = kit_readers__pnm_number(&t),
            top = kit_readers__pnm_number(&t);
    int64_t channels = kind == 3 || kind == 6 ? 3 : 1, plain = kind < 4;
    if (w < 1 || h < 1) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "width or height is wrong");
    }
    if (top < 1 || top > 65535) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "maxval is not 1..65535");
    }
    if (t.p >= t.end || !(*t.p == ' ' || (*t.p >= '\t' && *t.p <= '\r'))) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "the header has no end");
    }
    t.p++;
    // w and h are below 2^31, so that w * h fits; a sample takes 1 or 2 bytes, or a digit and a space.
    uint64_t pixels = (uint64_t)w * (uint64_t)h, left = (uint64_t)(t.end - t.p), each = top > 255 ? 2 : 1;
    if (plain && pixels > (left + 1) / 2 / (uint64_t)channels) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1,
                              "the file is too short for its width and height");
    }
    if (!plain &&
        (pixels > left / (each * (uint64_t)channels) || pixels * each * (uint64_t)channels != left)) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "the size is not what width and height say");
    }
    const int64_t dims[3] = {channels, h, w};
    tensor_t *x = kit_file__tensor(dims, 3, top > 255 ? TENSOR_I32 : TENSOR_U8);
    void *to = tensor_data_mut(x);
    for (uint64_t i = 0; i < pixels * (uint64_t)channels && to; i++) {
        uint64_t at = i % (uint64_t)channels * pixels + i / (uint64_t)channels;
        int64_t value = 0;
        if (plain) {
            value = kit_readers__pnm_number(&t);
        } else if (each == 2) {
            value = t.p[2 * i] << 8 | t.p[2 * i + 1];
        } else {
            value = t.p[i];
        }
        if (value < 0 || value > top) {
            return kit_file__fail(TENSOR_ERR_FORMAT, name, "sample", (int64_t)i, "missing, or over maxval");
        }
        if (top > 255) {
            ((int32_t *)to)[at] = (int32_t)value;
        } else {
            ((unsigned char *)to)[at] = (unsigned char)value;
        }
    }
    return x;
}

tensor_t *kit_read_pnm(const char *path) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    tensor_t *x = data ? kit_parse_pnm(data, size, path) : tensor_detach(NULL);
    free(data);
    return x;
}

// ---- WAV ----

// One sample as a number of -1..1.
static float kit_readers__sample(const unsigned char *p, int bits, int is_float) {
    uint32_t low;
    if (is_float && bits == 64) {
        uint64_t u = (uint64_t)kit_file__u32(p + 4) << 32 | kit_file__u32(p);
        double d;
        memcpy(&d, &u, sizeof d);
        return (float)d;
    }
    if (is_float) {
        float f;
        low = kit_file__u32(p);
        memcpy(&f, &low, sizeof f);
        return f;
    }
    if (bits == 8) { return (float)(p[0] - 128) / 128.0f; }
    // The bytes come to the top of 32 bits, the sign among them.
    low = 0;
    for (int k = 0; k < bits / 8; k++) { low |= (uint32_t)p[k] << (32 - bits + 8 * k); }
    return (float)((low & 0x80000000u ? (double)low - 4294967296.0 : (double)low) / 2147483648.0);
}

kit_wav_t kit_parse_wav(const void *data, size_t size, const char *name) {
    const unsigned char *p = (const unsigned char *)data, *format = NULL, *samples = NULL;
    uint64_t at = 12, bytes = 0;
    const char *wrong = NULL;
    kit_wav_t r = {NULL, 0, 0};
    if (!data) { size = 0; }
    if (size < 12 || memcmp(p, "RIFF", 4) != 0 || memcmp(p + 8, "WAVE", 4) != 0) {
        wrong = "it is not a RIFF WAVE file";
    }
    while (!wrong && !samples && at + 8 <= size) {
        const uint64_t chunk = kit_file__u32(p + at + 4);
        if (chunk > size - at - 8) {
            wrong = "a chunk is longer than the file";
            break;
        } else if (memcmp(p + at, "fmt ", 4) == 0 && chunk >= 16) {
            format = p + at + 8;
            if (kit_file__u16(format) == 0xFFFE && chunk < 26) { wrong = "the extended format is cut off"; }
        } else if (memcmp(p + at, "data", 4) == 0) {
            samples = p + at + 8;
            bytes = chunk;
        }
        at += 8 + chunk + (chunk & 1);
    }
    if (!wrong && (!format || !samples)) {
        wrong = format ? "there is no data chunk" : "there is no fmt chunk before the data";
    }
    int code = TENSOR_ERR_FORMAT, is_float = 0;
    int64_t channels = 0;
    if (!wrong) {
        uint32_t coding = kit_file__u16(format);
        if (coding == 0xFFFE) { coding = kit_file__u16(format + 24); }
        channels = kit_file__u16(format + 2);
        r.rate = kit_file__u32(format + 4);
        r.bits = (int)kit_file__u16(format + 14);
        is_float = coding == 3;
        int integer = coding == 1 && (r.bits == 8 || r.bits == 16 || r.bits == 24 || r.bits == 32);
        if (!integer && !(is_float && (r.bits == 32 || r.bits == 64))) {
            wrong = "its coding is neither integers of 8, 16, 24, 32 bits nor floats of 32, 64";
            code = TENSOR_ERR_UNSUPPORTED;
        } else if (channels < 1 || r.rate < 1 || kit_file__u16(format + 12) != channels * (r.bits / 8)) {
            wrong = "channels, rate or the size of a frame is wrong";
        } else if (bytes % (uint64_t)(channels * (r.bits / 8)) != 0) {
            wrong = "the data ends inside a frame";
        }
    }
    if (wrong) {
        r.samples = kit_file__fail(code, name, "byte", (int64_t)at, wrong);
        return r;
    }
    const int64_t width = r.bits / 8, frames = (int64_t)bytes / (channels * width),
                  dims[2] = {channels, frames};
    r.samples = kit_file__tensor(dims, 2, TENSOR_F32);
    float *to = (float *)tensor_data_mut(r.samples);
    for (int64_t i = 0; i < frames * channels && to; i++) {
        to[i % channels * frames + i / channels] = kit_readers__sample(samples + i * width, r.bits, is_float);
    }
    return r;
}

kit_wav_t kit_read_wav(const char *path) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    kit_wav_t r = {NULL, 0, 0};
    if (data) {
        r = kit_parse_wav(data, size, path);
    } else {
        r.samples = tensor_detach(NULL);
    }
    free(data);
    return r;
}

#endif

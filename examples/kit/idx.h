// idx.h - the files that MNIST, Fashion-MNIST and sets like them come in, as tensors
//
// A file to copy and to change, with file.h beside it. In one C file of the program:
//
//   #define KIT_IDX_IMPLEMENTATION
//   #include "kit/idx.h"
//
//   tensor_t *x = kit_read_idx("train-images-idx3-ubyte");              // u8 [60000, 28, 28]
//
// Every size that a file states is checked in 64 bits against what is there before anything is allocated. A
// file is read as a whole or refused as a whole: the error names the file and the reason.
#ifndef KIT_IDX_H
#define KIT_IDX_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Images are one file, labels another; both unpacked (gunzip).
//   name    of the bytes, for error texts
//   -> new u8 i8 i16 i32 f32 or f64, on the CPU;  errors FORMAT, OUT_OF_MEMORY
tensor_t *kit_parse_idx(const void *data, size_t size, const char *name);
//   -> as above;  errors as above, IO
tensor_t *kit_read_idx(const char *path);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_IDX_IMPLEMENTATION) && !defined(KIT_IDX_DONE)
#define KIT_IDX_DONE

#include "file.h"

// The dtype of a type code, -1 = there is no such code.
static int kit_idx__idx_dtype(int code) {
    switch (code) {
    case 0x08: return TENSOR_U8;
    case 0x09: return TENSOR_I8;
    case 0x0B: return TENSOR_I16;
    case 0x0C: return TENSOR_I32;
    case 0x0D: return TENSOR_F32;
    case 0x0E: return TENSOR_F64;
    default: return -1;
    }
}

// n numbers of width bytes, the most significant first, in the order of this processor.
static void kit_idx__from_big(unsigned char *to, const unsigned char *from, size_t n, size_t width) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    if (width == 1 || first == 0) {
        memcpy(to, from, n * width);
        return;
    }
    for (size_t i = 0; i < n; i++, to += width, from += width) {
        for (size_t k = 0; k < width; k++) { to[k] = from[width - 1 - k]; }
    }
}

tensor_t *kit_parse_idx(const void *data, size_t size, const char *name) {
    const unsigned char *p = (const unsigned char *)data;
    if (!data) { size = 0; }
    if (size >= 2 && p[0] == 0x1F && p[1] == 0x8B) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1,
                              "it is gzip-compressed; decompress it first (gunzip)");
    }
    if (size < 4 || p[0] != 0 || p[1] != 0) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1,
                              "it is not an IDX file (the first bytes are not 0 0)");
    }
    const int dtype = kit_idx__idx_dtype(p[2]), ndim = p[3];
    const size_t head = 4 + 4 * (size_t)ndim;
    if (dtype < 0) { return kit_file__fail(TENSOR_ERR_FORMAT, name, "type code", p[2], "it is unknown"); }
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, "number of dims", ndim, "1 to 8 are allowed");
    }
    if (size < head) {
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, "it ends inside its header");
    }

    int64_t dims[TENSOR_MAX_DIMS];
    uint64_t n = 1;
    for (int k = 0; k < ndim; k++) {
        const unsigned char *d = p + 4 + 4 * k;
        dims[k] = (int64_t)((uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3]);
        if (dims[k] == 0) { return kit_file__fail(TENSOR_ERR_FORMAT, name, "dim", k, "it is 0"); }
        if (n > ((uint64_t)1 << 60) / (uint64_t)dims[k]) {
            return kit_file__fail(TENSOR_ERR_FORMAT, name, "dim", k, "the sizes overflow");
        }
        n *= (uint64_t)dims[k];
    }
    const size_t width = tensor_dtype_size((tensor_dtype_t)dtype);
    if (n * width != size - head) {
        char why[100];
        snprintf(why, sizeof why, "it must hold %llu bytes of data (got %llu)",
                 (unsigned long long)(n * width), (unsigned long long)(size - head));
        return kit_file__fail(TENSOR_ERR_FORMAT, name, NULL, -1, why);
    }
    tensor_t *x = kit_file__tensor(dims, ndim, (tensor_dtype_t)dtype);
    unsigned char *to = (unsigned char *)tensor_data_mut(x);
    if (to) { kit_idx__from_big(to, p + head, (size_t)n, width); }
    return x;
}

tensor_t *kit_read_idx(const char *path) {
    size_t size;
    unsigned char *data = kit_file__load(path, &size);
    tensor_t *x = data ? kit_parse_idx(data, size, path) : tensor_detach(NULL);
    free(data);
    return x;
}

#endif

// arrays.c - the readers of npy and npz: an error, or as many elements as the file holds, which are written
// and read again
#include "fuzz.h"

static void arrays_setup(void) {}

static int arrays_known(int code) {
    return code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED ||
           code == TENSOR_ERR_OUT_OF_MEMORY;
}

static void arrays_again(tensor_t *x) {
    tensor_t *file = nn_format_npy(x);
    if (tensor_ok()) {
        tensor_t *y = nn_parse_npy(tensor_data(file), (size_t)tensor_numel(file));
        PROMISE(test_same_bits(x, y), "what was written came back otherwise: %s", tensor_error_text());
    }
    tensor_clear_error();
}

// The first byte of an input: 0 an npy file as it is, 1 an archive as it is, else an npy file of version 1
// whose header's text ends at the first NUL; the length and the line feed are added.
static void arrays(const uint8_t *data, size_t size) {
    unsigned kind = size ? *data++ : 0;
    if (size) { size--; }
    uint8_t *file = (uint8_t *)malloc(size + 12);
    if (!file) { abort(); }
    if (kind == 1) {
        if (size) { memcpy(file, data, size); }
        nn_npz_t *r = nn_npz_parse(file, size);
        PROMISE(arrays_known(tensor_error_code()), "%s", tensor_error_text());
        tensor_clear_error();
        for (int64_t k = 0; k < nn_npz_count(r) && k < 16; k++) {
            tensor_t *x = nn_npz_get(r, nn_npz_name(r, k));
            PROMISE(arrays_known(tensor_error_code()), "%s", tensor_error_text());
            tensor_clear_error();
            if (!tensor_is_poison(x)) { arrays_again(x); }
        }
        nn_npz_close(r);
    } else {
        size_t n = size;
        if (kind != 0) {
            const uint8_t *nul = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
            size_t header = nul ? (size_t)(nul - data) : size, rest = nul ? size - header - 1 : 0;
            memcpy(file, "\x93NUMPY\1", 8);
            file[8] = (uint8_t)((header + 1) & 255);
            file[9] = (uint8_t)((header + 1) >> 8 & 255);
            if (header) { memcpy(file + 10, data, header); }
            file[10 + header] = '\n';
            if (rest) { memcpy(file + 11 + header, nul + 1, rest); }
            n = 11 + header + rest;
        } else if (size) {
            memcpy(file, data, size);
        }
        tensor_t *x = nn_parse_npy(file, n);
        PROMISE(arrays_known(tensor_error_code()), "%s", tensor_error_text());
        tensor_clear_error();
        if (!tensor_is_poison(x)) {
            PROMISE((size_t)tensor_numel(x) <= n, "%lld elements of %llu bytes", (long long)tensor_numel(x),
                    (unsigned long long)n);
            arrays_again(x);
        }
    }
    free(file);
}
FUZZ_TARGET(arrays, arrays_setup)

// torchfile.c - examples/kit/torchfile.h with pickle.h and zip.h: refused as a whole by the file's name, or
// every tensor can be read; a module loads the file as a whole or is unchanged
#include "fuzz.h"

#define KIT_TORCHFILE_IMPLEMENTATION
#include "../../examples/kit/torchfile.h"

static nn_module_t *torchfile_net;

static void torchfile_setup(void) {
    if (!torchfile_net) { torchfile_net = nn_linear(3, 2); }
}

static size_t torchfile_number(uint8_t *p, size_t at, uint64_t value, int bytes) {
    for (int k = 0; k < bytes; k++) { p[at + (size_t)k] = (uint8_t)(value >> 8 * k); }
    return at + (size_t)bytes;
}

// A zip archive of three stored entries, so that not every change of a program breaks it: the program, the
// word little, and 64 bytes of a storage "0".
static uint8_t *torchfile_archive(const uint8_t *program, size_t n, size_t *bytes) {
    static const char *const names[3] = {"a/data.pkl", "a/byteorder", "a/data/0"};
    static const uint8_t storage[64] = {1, 2, 3, 0, 0, 0x80, 0x3F};
    const uint8_t *const data[3] = {program, (const uint8_t *)"little", storage};
    const size_t sizes[3] = {n, 6, sizeof storage};
    size_t offset[3], at = 0, directory;
    uint8_t *p = (uint8_t *)calloc(1, n + 600);
    if (!p) { abort(); }
    for (int k = 0; k < 3; k++) {
        size_t length = strlen(names[k]);
        offset[k] = at;
        torchfile_number(p, at, 0x04034B50u, 4);
        torchfile_number(p, at + 18, sizes[k], 4);
        torchfile_number(p, at + 22, sizes[k], 4);
        torchfile_number(p, at + 26, length, 2);
        memcpy(p + at + 30, names[k], length);
        if (sizes[k]) { memcpy(p + at + 30 + length, data[k], sizes[k]); }
        at += 30 + length + sizes[k];
    }
    directory = at;
    for (int k = 0; k < 3; k++) {
        size_t length = strlen(names[k]);
        torchfile_number(p, at, 0x02014B50u, 4);
        torchfile_number(p, at + 20, sizes[k], 4);
        torchfile_number(p, at + 24, sizes[k], 4);
        torchfile_number(p, at + 28, length, 2);
        torchfile_number(p, at + 42, offset[k], 4);
        memcpy(p + at + 46, names[k], length);
        at += 46 + length;
    }
    torchfile_number(p, at, 0x06054B50u, 4);
    torchfile_number(p, at + 8, 3, 2);
    torchfile_number(p, at + 10, 3, 2);
    torchfile_number(p, at + 12, at - directory, 4);
    torchfile_number(p, at + 16, directory, 4);
    *bytes = at + 22;
    return p;
}

static void torchfile_read(const uint8_t *file, size_t bytes) {
    kit_torch_t *f = kit_torch_parse(file, bytes, "fuzz.pt");
    int code = tensor_error_code();
    if (!f) {
        PROMISE(code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED ||
                    code == TENSOR_ERR_OUT_OF_MEMORY,
                "%s", tensor_error_text());
        PROMISE(strncmp(tensor_error_text(), "fuzz.pt: ", 9) == 0, "%s", tensor_error_text());
        return;
    }
    PROMISE(code == 0, "%s", tensor_error_text());
    int64_t count = kit_torch_count(f);
    PROMISE(!kit_torch_name(f, count) && !kit_torch_name(f, -1), "a name that is not there");
    for (int64_t i = 0; i < count && i < 64; i++) {
        tensor_t *x = kit_torch_get(f, kit_torch_name(f, i));
        code = tensor_error_code();
        PROMISE(tensor_is_poison(x) == (code != 0), "%s", tensor_error_text());
        PROMISE(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY, "%s", tensor_error_text());
        tensor_clear_error();
        if (!tensor_is_poison(x) && tensor_numel(x) < 4096) { test_hash(TEST_HASH, x); } // reads all of it
    }
    tensor_t *w = nn_get(torchfile_net, "weight"), *b = nn_get(torchfile_net, "bias");
    uint64_t before = test_hash(test_hash(TEST_HASH, w), b);
    code = kit_torch_load(f, torchfile_net, NULL);
    PROMISE(code == 0 || before == test_hash(test_hash(TEST_HASH, w), b),
            "a refused file changed the module");
    tensor_clear_error();
    kit_torch_close(f);
}

// The first byte of an input: 0 a file as it is, else the program of one.
static void torchfile(const uint8_t *data, size_t size) {
    size_t bytes;
    if (size && data[0] == 0) {
        torchfile_read(data + 1, size - 1);
        return;
    }
    uint8_t *file = torchfile_archive(data + !!size, size - !!size, &bytes);
    torchfile_read(file, bytes);
    free(file);
}
FUZZ_TARGET(torchfile, torchfile_setup)

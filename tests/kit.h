// kit.h - what the tests of the kit's readers share: bytes that lie, in memory of exactly their size
#ifndef KIT_H
#define KIT_H

#include "test.h"

// Reads size bytes as a file of that name.   -> 1 read, 0 refused
typedef int (*kit_try_t)(const void *data, size_t size, const char *name);

// Reads a copy that ends where its memory ends. A refusal has raised an error of a file, nothing else has.
TEST_FN int kit_try(kit_try_t read, const void *data, size_t size, const char *what) {
    unsigned char *copy = (unsigned char *)malloc(size ? size : 1);
    tensor_scope_t scope = tensor_scope_begin();
    uint64_t before = tensor_memory_stats().live_bytes;
    int good;
    if (size) { memcpy(copy, data, size); }
    tensor_reset_peak_memory();
    good = read(copy, size, "x.bin");
    CHECK_MSG(good == tensor_ok(), "%s: %s, but the error is \"%s\"", what, good ? "read" : "refused",
              tensor_error_text());
    if (!good) {
        int code = tensor_error_code();
        CHECK_MSG(code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED, "%s: error is %s \"%s\"", what,
                  tensor_code_name(code), tensor_error_text());
        CHECK_MSG(strncmp(tensor_error_text(), "x.bin: ", 7) == 0, "%s: \"%s\" does not name the file", what,
                  tensor_error_text());
    }
    CHECK_MSG(tensor_memory_stats().peak_bytes - before <= 64 * (uint64_t)size + 65536,
              "%s: %llu bytes for a file of %llu", what,
              (unsigned long long)(tensor_memory_stats().peak_bytes - before), (unsigned long long)size);
    tensor_clear_error();
    CHECK(tensor_scope_end(scope) == 0);
    free(copy);
    return good;
}

// Every shorter file; refused = all of them must be.
TEST_FN void kit_try_truncations(kit_try_t read, const void *data, size_t size, int refused) {
    for (size_t n = 0; n < size; n++) {
        char what[64];
        snprintf(what, sizeof what, "cut to %d bytes", (int)n);
        int good = kit_try(read, data, n, what);
        CHECK_MSG(!refused || !good, "%s: was read", what);
    }
}

// Every bit of bytes first..last turned over; and the numbers that overflow in each place of 4 and 8 bytes.
TEST_FN void kit_try_damage(kit_try_t read, const void *data, size_t size, size_t first, size_t last) {
    static const uint64_t numbers[] = {0,
                                       1,
                                       0x7FFFFFFFu,
                                       0x80000000u,
                                       0xFFFFFFFFu,
                                       UINT64_C(0x7FFFFFFFFFFFFFFF),
                                       UINT64_C(0xFFFFFFFFFFFFFFFF)};
    unsigned char *copy = (unsigned char *)malloc(size);
    char what[64];
    memcpy(copy, data, size);
    for (size_t i = first; i < last; i++) {
        for (int bit = 0; bit < 8; bit++) {
            copy[i] = (unsigned char)(copy[i] ^ 1 << bit);
            snprintf(what, sizeof what, "bit %d of byte %d", bit, (int)i);
            kit_try(read, copy, size, what);
            copy[i] = ((const unsigned char *)data)[i];
        }
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            for (size_t width = 4; width <= 8 && i + width <= size; width += 4) {
                for (size_t j = 0; j < width; j++) { copy[i + j] = (unsigned char)(numbers[k] >> 8 * j); }
                snprintf(what, sizeof what, "%d bytes at %d with number %d", (int)width, (int)i, (int)k);
                kit_try(read, copy, size, what);
                memcpy(copy + i, (const unsigned char *)data + i, width);
            }
        }
    }
    free(copy);
}

// Refused, and the text says so; for tables of malformed files.
#define KIT_REFUSED(read, data, size, part) kit_refused((read), (data), (size), (part), __LINE__)
TEST_FN void kit_refused(kit_try_t read, const void *data, size_t size, const char *part, int line) {
    unsigned char *copy = (unsigned char *)malloc(size ? size : 1);
    tensor_scope_t scope = tensor_scope_begin();
    if (size) { memcpy(copy, data, size); }
    int good = read(copy, size, "x.bin");
    test_note(!good && strstr(tensor_error_text(), part) && strstr(tensor_error_text(), "x.bin"), __FILE__,
              line, "%s: \"%s\"", good ? "read" : "refused", tensor_error_text());
    tensor_clear_error();
    tensor_scope_end(scope);
    free(copy);
}

// A file of tests/fixtures/kit with a NUL behind it, to be freed.
TEST_FN unsigned char *kit_fixture(const char *name, size_t *size) {
    enum { MOST = 1 << 20 };
    unsigned char *data = (unsigned char *)malloc(MOST);
    char path[200];
    snprintf(path, sizeof path, "tests/fixtures/kit/%s", name);
    FILE *f = fopen(path, "rb");
    *size = f ? fread(data, 1, MOST - 1, f) : 0;
    data[*size] = 0;
    CHECK_MSG(*size > 0, "%s cannot be read", path);
    if (f) { fclose(f); }
    return data;
}

// A file in the temporary folder, for readers that take paths.   -> its path
TEST_FN const char *kit_temporary(const char *name, const void *data, size_t size) {
    static char path[300];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/tensor-%d-%s", folder ? folder : "/tmp", (int)(size % 1000), name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, size, f) == size);
    if (f) { fclose(f); }
    return path;
}

#endif

// kit_gguf.c - examples/kit/gguf.h: a file of llama.cpp's package gguf (tests/fixtures/gguf_files.py) and
// files that lie
#include "kit.h"

#define KIT_GGUF_IMPLEMENTATION
#include "../examples/kit/gguf.h"

static int try_gguf(const void *data, size_t size, const char *name) {
    kit_gguf_t *f = kit_gguf_parse(data, size, name);
    size_t n;
    double value;
    for (int64_t i = 0; i < kit_gguf_count(f); i++) {
        tensor_t *x = kit_gguf_get(f, kit_gguf_name(f, i));
        if (tensor_is_poison(x)) {
            tensor_clear_error();
        } else {
            CHECK(test_hash(TEST_HASH, x) != 1);
        }
    }
    kit_gguf_text(f, "general.name", 0, &n);
    kit_gguf_text(f, "tokenizer.ggml.tokens", 2, &n);
    kit_gguf_number(f, "toy.eps", &value);
    kit_gguf_close(f);
    return f != NULL;
}

static void as_llama_cpp(void) {
    static const struct {
        const char *name;
        tensor_dtype_t dtype;
    } cases[] = {
        {"f32", TENSOR_F32},  {"f16", TENSOR_F16},  {"bf16", TENSOR_BF16},
        {"q8_0", TENSOR_F32}, {"q4_0", TENSOR_F32},
    };
    nn_safetensors_t *want = nn_safetensors_open("tests/fixtures/kit/gguf.safetensors");
    kit_gguf_t *f = kit_gguf_open("tests/fixtures/kit/small.gguf");
    double value = 0;
    size_t n;
    CHECK(kit_gguf_count(f) == 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensor_t *x = kit_gguf_get(f, cases[i].name);
        CHECK_MSG(tensor_dtype(x) == cases[i].dtype, "%s", cases[i].name);
        CHECK_MSG(test_same_bits(tensor_to(x, TENSOR_F32), nn_safetensors_get(want, cases[i].name)), "%s",
                  cases[i].name);
    }
    CHECK_POISON(kit_gguf_get(f, "q5_0"), TENSOR_ERR_UNSUPPORTED, "\"q5_0\" is of a type");
    CHECK_POISON(kit_gguf_get(f, "x"), TENSOR_ERR_INDEX, "\"x\" is not there");
    CHECK_TEXT(kit_gguf_name(f, 0), "bf16");
    CHECK(!kit_gguf_name(f, 6) && !kit_gguf_name(f, -1));
    CHECK(kit_gguf_number(f, "toy.block_count", &value) && value == 3);
    CHECK(kit_gguf_number(f, "toy.eps", &value) && value == 0.5);
    CHECK(kit_gguf_number(f, "toy.bool", &value) && value == 1);
    CHECK(kit_gguf_number(f, "toy.negative", &value) && value == -7);
    CHECK(kit_gguf_number(f, "toy.double", &value) && value == 0.1);
    CHECK(!kit_gguf_number(f, "general.name", &value) && !kit_gguf_number(f, "none", &value));
    const char *model = kit_gguf_text(f, "general.name", 0, &n);
    CHECK(n == 13 && !strncmp(model, "a small model", 13));
    CHECK(!strncmp(kit_gguf_text(f, "tokenizer.ggml.tokens", 1, &n), "bc", 2) && n == 2);
    CHECK(kit_gguf_text(f, "tokenizer.ggml.tokens", 2, &n) && n == 0);
    CHECK(!kit_gguf_text(f, "tokenizer.ggml.tokens", 3, &n) && !kit_gguf_text(f, "toy.numbers", 0, &n));
    CHECK(kit_gguf_length(f, "tokenizer.ggml.tokens") == 3 && kit_gguf_length(f, "toy.numbers") == 3);
    CHECK(kit_gguf_length(f, "toy.eps") == -1 && kit_gguf_length(f, "none") == -1);
    kit_gguf_close(f);
    kit_gguf_close(NULL);
    CHECK(!kit_gguf_parse(NULL, 100, "a"));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "a: ");
    nn_safetensors_close(want);
    CHECK(!kit_gguf_open("tests/fixtures/kit/none.gguf"));
    CHECK_ERROR(TENSOR_ERR_IO, "none.gguf");
    static const struct {
        unsigned bits;
        double value;
    } halves[] = {
        {0, 0},
        {1, 5.9604644775390625e-8},
        {0x3FF, 6.097555160522461e-5},
        {0x400, 6.103515625e-5},
        {0x3C00, 1},
        {0x7BFF, 65504},
        {0x7C00, INFINITY},
        {0xC000, -2},
        {0x8001, -5.9604644775390625e-8},
        {0x7E00, NAN},
    };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        const unsigned char p[2] = {(unsigned char)halves[i].bits, (unsigned char)(halves[i].bits >> 8)};
        CHECK_NEAR(kit_gguf__half(p), halves[i].value, 0);
    }
}

static size_t put(unsigned char *p, size_t at, uint64_t value, int bytes) {
    for (int k = 0; k < bytes; k++) { p[at + (size_t)k] = (unsigned char)(value >> 8 * k); }
    return at + (size_t)bytes;
}

// One setting "k" (u32 at 41), one tensor "t" [2, 32] of Q8_0, aligned to 32; the places are in the table
// below.
static size_t make(unsigned char *p) {
    size_t at = 4;
    memset(p, 0, 400);
    memcpy(p, "GGUF", 4);
    at = put(p, at, 3, 4);
    at = put(p, at, 1, 8);
    at = put(p, at, 1, 8);
    at = put(p, at, 1, 8);
    p[at++] = 'k';
    at = put(p, at, 4, 4);
    at = put(p, at, 32, 4);
    at = put(p, at, 1, 8);
    p[at++] = 't';
    at = put(p, at, 2, 4);
    at = put(p, at, 32, 8);
    at = put(p, at, 2, 8);
    at = put(p, at, 8, 4);
    at = put(p, at, 0, 8);
    return (at + 31) / 32 * 32 + 68;
}

static void hostile_files(void) {
    static const struct {
        size_t at;
        uint64_t value;
        int bytes;
        const char *part;
    } cases[] = {
        {0, 0, 1, "does not begin with GGUF"},
        {4, 0, 4, "version"},
        {4, 1, 4, "version"},
        {4, 4, 4, "version"},
        {4, 0x03000000u, 4, "version"},
        {8, UINT64_MAX, 8, "more entries"},
        {8, 0x7FFFFFFFu, 8, "more entries"},
        {16, UINT64_MAX, 8, "more entries"},
        {8, 2, 8, ""},
        {16, 2, 8, ""},
        {24, 0, 8, ""},
        {24, UINT64_MAX, 8, "ends too early"},
        {24, 70000, 8, "ends too early"},
        {32, 0, 1, "a name is empty, too long or has a NUL"},
        {33, 13, 4, "unknown type"},
        {33, 0xFFFFFFFFu, 4, "unknown type"},
        {33, 8, 4, "too early"},
        {33, 9, 4, ""},
        {41, 0, 8, "a name is empty"},
        {41, UINT64_MAX, 8, "ends too early"},
        {50, 5, 4, "over 4 dims"},
        {50, 0xFFFFFFFFu, 4, "over 4 dims"},
        {54, UINT64_MAX, 8, "too many elements"},
        {54, UINT64_C(1) << 62, 8, "too many elements"},
        {54, 33, 8, "whole blocks"},
        {54, 64, 8, "longer than the file"},
        {62, UINT64_C(1) << 57, 8, "too many elements"},
        {62, UINT64_C(1) << 50, 8, "longer than the file"},
        {62, 3, 8, "longer than the file"},
        {74, 1, 8, "not aligned"},
        {74, 32, 8, "longer than the file"},
        {74, 4096, 8, "begins behind the end"},
        {74, UINT64_MAX - 31, 8, "begins behind the end"},
    };
    unsigned char whole[512], file[512];
    size_t size = make(whole), n;
    CHECK(kit_try(try_gguf, whole, size, "whole"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(file, whole, size);
        put(file, cases[i].at, cases[i].value, cases[i].bytes);
        KIT_REFUSED(try_gguf, file, size, cases[i].part);
    }
    kit_try_truncations(try_gguf, whole, size, 1);
    kit_try_damage(try_gguf, whole, size, 0, size);
    // The alignment.
    static const struct {
        uint64_t type, value;
        const char *part;
    } alignments[] = {
        {4, 0, "alignment"},  {4, 33, "alignment"},       {5, 32, "alignment"},
        {6, 32, "alignment"}, {4, 0x80000000u, "behind"},
    };
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        memcpy(file, whole, 24);
        n = put(file, 24, 17, 8);
        memcpy(file + n, "general.alignment", 17);
        n = put(file, n + 17, alignments[i].type, 4);
        n = put(file, n, alignments[i].value, 4);
        memcpy(file + n, whole + 41, size - 41);
        KIT_REFUSED(try_gguf, file, n + size - 41, alignments[i].part);
    }
    // The same setting and the same tensor twice; a list of lists.
    memcpy(file, whole, 41);
    memcpy(file + 41, whole + 24, size - 24);
    put(file, 16, 2, 8);
    KIT_REFUSED(try_gguf, file, size + 17, "there twice");
    memcpy(file, whole, 82);
    memcpy(file + 82, whole + 41, size - 41);
    put(file, 8, 2, 8);
    KIT_REFUSED(try_gguf, file, size + 41, "there twice");
    memcpy(file, whole, size);
    put(file, put(file, 33, 9, 4), 9, 4);
    KIT_REFUSED(try_gguf, file, size, "a list of lists");
    unsigned char *data = kit_fixture("small.gguf", &size);
    // The last tensor is of a type whose size is not known here.
    kit_try_truncations(try_gguf, data, size, 0);
    kit_try_damage(try_gguf, data, size, 0, 400);
    free(data);
}

int main(void) {
    RUN(as_llama_cpp);
    RUN(hostile_files);
    return test_report();
}

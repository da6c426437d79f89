// kit_readers.c - examples/kit/idx.h, readers.h: IDX, CIFAR, PPM and PGM, WAV of every coding, files that lie
#include "kit.h"

#define KIT_IDX_IMPLEMENTATION
#include "../examples/kit/idx.h"
#define KIT_READERS_IMPLEMENTATION
#include "../examples/kit/readers.h"

static int try_idx(const void *data, size_t size, const char *name) {
    return !tensor_is_poison(kit_parse_idx(data, size, name));
}
static int try_cifar10(const void *data, size_t size, const char *name) {
    return !tensor_is_poison(kit_parse_cifar(data, size, name, 10).images);
}
static int try_cifar100(const void *data, size_t size, const char *name) {
    return !tensor_is_poison(kit_parse_cifar(data, size, name, 100).coarse);
}
static int try_pnm(const void *data, size_t size, const char *name) {
    return !tensor_is_poison(kit_parse_pnm(data, size, name));
}
static int try_wav(const void *data, size_t size, const char *name) {
    return !tensor_is_poison(kit_parse_wav(data, size, name).samples);
}

// ---- IDX ----

static void idx_is_read(void) {
    static const unsigned char u8[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};
    static const unsigned char i8[] = {0, 0, 9, 1, 0, 0, 0, 3, 0x80, 0x7F, 0xFF};
    static const unsigned char i16[] = {0, 0, 0x0B, 1, 0, 0, 0, 2, 0x01, 0x02, 0xFF, 0xFE};
    static const unsigned char i32[] = {0, 0, 0x0C, 1, 0, 0, 0, 2, 1, 2, 3, 4, 0xFF, 0xFF, 0xFF, 0xFE};
    static const unsigned char f32[] = {0, 0, 0x0D, 1, 0, 0, 0, 1, 0x3F, 0xC0, 0, 0};
    static const unsigned char f64[] = {0, 0, 0x0E, 1, 0, 0, 0, 1, 0xBF, 0xF8, 0, 0, 0, 0, 0, 0};
    static const struct {
        const unsigned char *data;
        size_t size;
        tensor_dtype_t dtype;
        double first, last;
    } cases[] = {
        {u8, sizeof u8, TENSOR_U8, 1, 255},
        {i8, sizeof i8, TENSOR_I8, -128, -1},
        {i16, sizeof i16, TENSOR_I16, 258, -2},
        {i32, sizeof i32, TENSOR_I32, 0x01020304, -2},
        {f32, sizeof f32, TENSOR_F32, 1.5, 1.5},
        {f64, sizeof f64, TENSOR_F64, -1.5, -1.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensor_t *x = kit_parse_idx(cases[i].data, cases[i].size, "x");
        CHECK_OK();
        CHECK(tensor_dtype(x) == cases[i].dtype);
        x = tensor_flatten(x, 0, -1);
        CHECK_NEAR(tensor_item(tensor_at(x, "0")), cases[i].first, 0);
        CHECK_NEAR(tensor_item(tensor_at(x, "-1")), cases[i].last, 0);
    }
    CHECK(tensor_size(kit_parse_idx(u8, sizeof u8, "x"), 1) == 3);
    kit_try_truncations(try_idx, u8, sizeof u8, 1);
    kit_try_damage(try_idx, u8, sizeof u8, 0, sizeof u8);
    kit_try_damage(try_idx, f64, sizeof f64, 0, 8);
}

#define BYTES(text) text, sizeof text - 1

static void hostile_idx(void) {
    static const struct {
        const char *name, *bytes;
        size_t size;
        const char *part;
    } cases[] = {
        {"good: 2 x 3 bytes", BYTES("\0\0\10\2\0\0\0\2\0\0\0\3abcdef"), NULL},
        {"good: eight dims",
         BYTES("\0\0\10\10\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1a"),
         NULL},
        {"idx of no byte", "", 0, "the first bytes are not 0 0"},
        {"idx of one byte", BYTES("\0"), "the first bytes are not 0 0"},
        {"idx of three bytes", BYTES("\0\0\10"), "the first bytes are not 0 0"},
        {"a first byte of 1", BYTES("\1\0\10\1\0\0\0\1a"), "the first bytes are not 0 0"},
        {"a second byte of 1", BYTES("\0\1\10\1\0\0\0\1a"), "the first bytes are not 0 0"},
        {"IDX in gzip", BYTES("\037\213\10\1\0\0\0\1a"), "gunzip"},
        {"two bytes of gzip", BYTES("\037\213"), "gunzip"},
        {"a type of 0", BYTES("\0\0\0\1\0\0\0\1a"), "type code 0: it is unknown"},
        {"a type of 7", BYTES("\0\0\7\1\0\0\0\1a"), "type code 7"},
        {"a type of 10", BYTES("\0\0\12\1\0\0\0\1a"), "type code 10"},
        {"a type of 15", BYTES("\0\0\17\1\0\0\0\1a"), "type code 15"},
        {"a type of 255", BYTES("\0\0\377\1\0\0\0\1a"), "type code 255"},
        {"no dims", BYTES("\0\0\10\0a"), "number of dims 0"},
        {"IDX of nine dims",
         BYTES("\0\0\10\11\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1a"),
         "number of dims 9"},
        {"255 dims", BYTES("\0\0\10\377\0\0\0\1a"), "number of dims 255"},
        {"no sizes", BYTES("\0\0\10\1"), "ends inside its header"},
        {"half a size", BYTES("\0\0\10\1\0\0"), "ends inside its header"},
        {"one size of two", BYTES("\0\0\10\2\0\0\0\1"), "ends inside its header"},
        {"a first size of 0", BYTES("\0\0\10\2\0\0\0\0\0\0\0\1"), "dim 0: it is 0"},
        {"a last size of 0", BYTES("\0\0\10\2\0\0\0\1\0\0\0\0"), "dim 1: it is 0"},
        {"sizes of 2^64", BYTES("\0\0\10\3\377\377\377\377\377\377\377\377\0\1\0\0a"), "overflow"},
        {"sizes of 2^61 doubles", BYTES("\0\0\16\2\200\0\0\0\100\0\0\0a"), "overflow"},
        {"sizes of 2^60 doubles", BYTES("\0\0\16\2\100\0\0\0\100\0\0\0"), "must hold"},
        {"2^32 bytes, 0 modulo 2^32", BYTES("\0\0\10\2\0\1\0\0\0\1\0\0"), "must hold 4294967296 bytes"},
        {"2^30 floats, 0 bytes modulo 2^32", BYTES("\0\0\15\1\100\0\0\0"), "must hold 4294967296 bytes"},
        {"2^31 bytes", BYTES("\0\0\10\1\200\0\0\0a"), "must hold 2147483648 bytes"},
        {"a size in the other order of bytes", BYTES("\0\0\10\1\1\0\0\0a"), "must hold 16777216 bytes"},
        {"one byte less", BYTES("\0\0\10\1\0\0\0\3ab"), "must hold 3 bytes of data (got 2)"},
        {"one byte more", BYTES("\0\0\10\1\0\0\0\3abcd"), "must hold 3 bytes of data (got 4)"},
        {"no data", BYTES("\0\0\10\1\0\0\0\3"), "must hold 3 bytes of data (got 0)"},
        {"half an i16", BYTES("\0\0\13\1\0\0\0\1a"), "must hold 2 bytes of data (got 1)"},
        {"half a float", BYTES("\0\0\15\1\0\0\0\1ab"), "must hold 4 bytes of data (got 2)"},
        {"half a double", BYTES("\0\0\16\1\0\0\0\1abcd"), "must hold 8 bytes of data (got 4)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!cases[i].part) {
            CHECK(kit_try(try_idx, cases[i].bytes, cases[i].size, cases[i].name));
            continue;
        }
        KIT_REFUSED(try_idx, cases[i].bytes, cases[i].size, cases[i].part);
        const char *path = kit_temporary("idx", cases[i].bytes, cases[i].size);
        CHECK_POISON(kit_read_idx(path), TENSOR_ERR_FORMAT, cases[i].part);
        remove(path);
    }
    const char *path = kit_temporary("idx", cases[0].bytes, cases[0].size);
    CHECK(tensor_equal(kit_read_idx(path), kit_parse_idx(cases[0].bytes, cases[0].size, "x")));
    remove(path);
    CHECK_POISON(kit_read_idx(path), TENSOR_ERR_IO, path);
    CHECK_POISON(kit_read_idx(NULL), TENSOR_ERR_IO, "(no path)");
    CHECK_POISON(kit_parse_idx(NULL, 0, NULL), TENSOR_ERR_FORMAT, "(memory): it is not an IDX file");
    CHECK_POISON(kit_parse_idx(NULL, 100, "a"), TENSOR_ERR_FORMAT, "a: it is not an IDX file");
    CHECK_POISON(kit_parse_cifar(NULL, 3073, "a", 10).images, TENSOR_ERR_FORMAT, "a: ");
    CHECK_POISON(kit_parse_pnm(NULL, 50, "a"), TENSOR_ERR_FORMAT, "a: it does not begin with P2");
    CHECK_POISON(kit_parse_wav(NULL, 100, "a").samples, TENSOR_ERR_FORMAT, "it is not a RIFF WAVE file");
}

// ---- CIFAR ----

static void cifar_is_read(void) {
    enum { RECORD = 3074 };
    unsigned char *data = (unsigned char *)malloc(2 * RECORD);
    for (size_t i = 0; i < 2 * RECORD; i++) { data[i] = (unsigned char)(i * 7 % 251); }
    data[0] = 3;
    data[3073] = 9;
    kit_cifar_t ten = kit_parse_cifar(data, 2 * 3073, "x", 10);
    CHECK(tensor_size(ten.images, 0) == 2 && tensor_size(ten.images, 1) == 3 &&
          tensor_size(ten.images, 3) == 32);
    CHECK(tensor_item_i64(tensor_at(ten.labels, "0")) == 3 &&
          tensor_item_i64(tensor_at(ten.labels, "1")) == 9);
    // Record 1, green, row 2, column 5.
    CHECK(tensor_item_i64(tensor_at(ten.images, "1, 1, 2, 5")) == data[3073 + 1 + 1024 + 2 * 32 + 5]);
    CHECK(ten.coarse == NULL);

    data[0] = 19;
    data[1] = 99;
    data[3074] = 0;
    data[3075] = 50;
    kit_cifar_t hundred = kit_parse_cifar(data, 2 * RECORD, "x", 100);
    CHECK(tensor_item_i64(tensor_at(hundred.coarse, "0")) == 19 &&
          tensor_item_i64(tensor_at(hundred.labels, "0")) == 99);
    CHECK(tensor_item_i64(tensor_at(hundred.labels, "1")) == 50);
    CHECK(tensor_item_i64(tensor_at(hundred.images, "1, 2, 31, 31")) == data[2 * RECORD - 1]);

    const char *path = kit_temporary("cifar.bin", data, 2 * RECORD);
    CHECK(tensor_equal(kit_read_cifar(path, 100).images, hundred.images));
    remove(path);
    CHECK_POISON(kit_read_cifar(path, 10).labels, TENSOR_ERR_IO, path);

    KIT_REFUSED(try_cifar10, data, 0, "not a multiple of 3073");
    KIT_REFUSED(try_cifar10, data, 2 * RECORD, "record 2: the file is not a multiple of 3073");
    KIT_REFUSED(try_cifar100, data, 3073, "not a multiple of 3074");
    data[3075] = 100;
    KIT_REFUSED(try_cifar100, data, 2 * RECORD, "record 1: label out of range");
    data[3075] = 0;
    data[0] = 20;
    KIT_REFUSED(try_cifar100, data, 2 * RECORD, "record 0: label out of range");
    data[0] = 10;
    KIT_REFUSED(try_cifar10, data, 3073, "record 0: label out of range");
    CHECK_POISON(kit_parse_cifar(data, 3073, "x", 11).images, TENSOR_ERR_UNSUPPORTED, "CIFAR has 10 or 100");
    free(data);
}

// ---- pictures ----

static void pictures_are_read(void) {
    static const struct {
        const char *data;
        size_t size;
        int channels, h, w;
        double first, last;
    } cases[] = {
        {"P5 2 1 255\n\x01\xFF", 13, 1, 1, 2, 1, 255},
        {"P6\n# a comment\n1 # another\n2\n255\n\x01\x02\x03\x04\x05\x06", 39, 3, 2, 1, 1, 6},
        {"P2\n3 1\n7\n0 1\n 7", 15, 1, 1, 3, 0, 7},
        {"P3 1 1 9 # c\n1 2 3\n", 19, 3, 1, 1, 1, 3},
        {"P5\t1\r\n1\n65535\n\x12\x34", 16, 1, 1, 1, 0x1234, 0x1234},
        {"P2 1 1 256 256", 14, 1, 1, 1, 256, 256},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensor_t *x = kit_parse_pnm(cases[i].data, cases[i].size, "x");
        CHECK_OK();
        CHECK_MSG(tensor_size(x, 0) == cases[i].channels && tensor_size(x, 1) == cases[i].h &&
                      tensor_size(x, 2) == cases[i].w,
                  "case %d", (int)i);
        CHECK_NEAR(tensor_item(tensor_at(x, "0, 0, 0")), cases[i].first, 0);
        CHECK_NEAR(tensor_item(tensor_at(x, "-1, -1, -1")), cases[i].last, 0);
        CHECK(tensor_dtype(x) == (cases[i].last > 255 ? TENSOR_I32 : TENSOR_U8));
    }
}

static void hostile_pictures(void) {
    static const struct {
        const char *data;
        size_t size;
        const char *part;
    } cases[] = {
        {"", 0, "does not begin with"},
        {"P4 1 1\n\x01", 8, "does not begin with"},
        {"P7\nWIDTH 1", 10, "does not begin with"},
        {"P5 0 1 255\n", 11, "width or height"},
        {"P5 -1 1 255\n", 12, "width or height"},
        {"P5 99999999999999999999 1 255\n", 30, "width or height"},
        {"P5 2147483647 2147483647 255\n1", 30, "the size is not"},
        {"P6 2147483647 2147483647 65535\n1", 32, "the size is not"},
        {"P2 2147483647 2147483647 255\n1", 30, "too short"},
        {"P3 2147483648 1 255\n1", 21, "width or height"},
        {"P5 1 1 0\n1", 10, "maxval"},
        {"P5 1 1 65536\n1", 14, "maxval"},
        {"P5 1 1\n", 7, "maxval"},
        {"P5 1 1 255", 10, "the header has no end"},
        {"P5 1 1 255#", 11, "the header has no end"},
        {"P5 2 2 255\n123", 14, "the size is not"},
        {"P5 2 2 255\n12345", 16, "the size is not"},
        {"P5 1 1 9\n\x0A", 10, "sample 0: missing, or over maxval"},
        {"P2 2 1 255\n1 x", 14, "sample 1: missing"},
        {"P2 1 1 255\n256", 14, "sample 0"},
        {"P2 1 1 255\n#", 12, "sample 0"},
    };
    static const char whole[] = "P6 #c\n2 1\n255\n\x01\x02\x03\x04\x05\x06", plain[] = "P2 2 2 9\n1 2 3 4";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KIT_REFUSED(try_pnm, cases[i].data, cases[i].size, cases[i].part);
    }
    CHECK(kit_try(try_pnm, whole, sizeof whole - 1, "whole"));
    kit_try_truncations(try_pnm, whole, sizeof whole - 1, 1);
    kit_try_truncations(try_pnm, plain, sizeof plain - 1, 1);
    kit_try_damage(try_pnm, whole, sizeof whole - 1, 0, sizeof whole - 1);
    kit_try_damage(try_pnm, plain, sizeof plain - 1, 0, sizeof plain - 1);
    const char *path = kit_temporary("a.ppm", whole, sizeof whole - 1);
    CHECK(tensor_size(kit_read_pnm(path), 0) == 3);
    remove(path);
    CHECK_POISON(kit_read_pnm(path), TENSOR_ERR_IO, path);
    CHECK_POISON(kit_read_pnm("."), TENSOR_ERR_IO, NULL);
}

// ---- sound ----

static size_t put(unsigned char *p, size_t at, uint64_t value, int bytes) {
    for (int k = 0; k < bytes; k++) { p[at + (size_t)k] = (unsigned char)(value >> 8 * k); }
    return at + (size_t)bytes;
}

// A file with a list chunk of odd size before the data.   -> its size
static size_t make_wav(unsigned char *p, int coding, int channels, int bits, const void *samples,
                       size_t bytes) {
    size_t at = 12;
    memcpy(p, "RIFF....WAVELIST\3\0\0\0abc\0fmt ", 28);
    at = put(p, 28, coding == 0xFFFE ? 40 : 16, 4);
    at = put(p, at, (uint64_t)coding, 2);
    at = put(p, at, (uint64_t)channels, 2);
    at = put(p, at, 16000, 4);
    at = put(p, at, (uint64_t)(16000 * channels * bits / 8), 4);
    at = put(p, at, (uint64_t)(channels * bits / 8), 2);
    at = put(p, at, (uint64_t)bits, 2);
    if (coding == 0xFFFE) {
        at = put(p, at, 22, 2);
        at = put(p, at, (uint64_t)bits, 2);
        at = put(p, at, 0, 4);
        at = put(p, at, 1, 2);
        memset(p + at, 0, 14);
        at += 14;
    }
    memcpy(p + at, "data", 4);
    at = put(p, at + 4, bytes, 4);
    memcpy(p + at, samples, bytes);
    put(p, 4, at + bytes - 8, 4);
    return at + bytes;
}

static void sound_is_read(void) {
    static const struct {
        int coding, bits;
        const char *bytes;
        double first, second;
    } cases[] = {
        {1, 8, "\x00\xC0", -1, 0.5},
        {1, 16, "\x00\x80\x00\x40", -1, 0.5},
        {1, 24, "\x00\x00\x80\x00\x00\x20", -1, 0.25},
        {1, 32, "\x00\x00\x00\x80\x00\x00\x00\x60", -1, 0.75},
        {3, 32, "\x00\x00\x80\xBF\x00\x00\x00\x40", -1, 2},
        {3, 64, "\x00\x00\x00\x00\x00\x00\xF0\xBF\x00\x00\x00\x00\x00\x00\xD0\x3F", -1, 0.25},
        {0xFFFE, 16, "\xFF\xFF\x01\x00", -1 / 32768.0, 1 / 32768.0},
    };
    unsigned char file[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int channels = 1; channels <= 2; channels++) {
            size_t size = make_wav(file, cases[i].coding, channels, cases[i].bits, cases[i].bytes,
                                   (size_t)cases[i].bits / 4);
            kit_wav_t w = kit_parse_wav(file, size, "x");
            CHECK_OK();
            CHECK(w.rate == 16000 && w.bits == cases[i].bits);
            CHECK(tensor_size(w.samples, 0) == channels && tensor_size(w.samples, 1) == 3 - channels);
            CHECK_NEAR(tensor_item(tensor_at(w.samples, "0, 0")), cases[i].first, 0);
            CHECK_NEAR(tensor_item(tensor_at(w.samples, "-1, -1")), cases[i].second, 0);
        }
    }
}

static void hostile_sound(void) {
    // Bytes of the header (they begin at 32) and what becomes of the file.
    static const struct {
        size_t at;
        uint64_t value;
        int bytes;
        const char *part;
    } cases[] = {
        {0, 0, 4, "not a RIFF WAVE"},
        {8, 0, 4, "not a RIFF WAVE"},
        {16, 0xFFFFFFFFu, 4, "a chunk is longer"},
        {16, 0x7FFFFFFFu, 4, "a chunk is longer"},
        {24, 0, 4, "no fmt chunk"},
        {28, 15, 4, "chunk"},
        {32, 2, 2, "coding"},
        {32, 0xFFFE, 2, "the extended format is cut off"},
        {34, 0, 2, "channels, rate"},
        {34, 0xFFFF, 2, "channels, rate"},
        {36, 0, 4, "channels, rate"},
        {44, 0, 2, "channels, rate"},
        {46, 0, 2, "coding"},
        {46, 12, 2, "coding"},
        {46, 64, 2, "coding"},
        {48, 0, 4, "no data chunk"},
        {52, 3, 4, "inside a frame"},
        {52, 5, 4, "longer than the file"},
        {52, 0xFFFFFFFFu, 4, "longer than the file"},
    };
    unsigned char whole[200], file[200];
    size_t size = make_wav(whole, 1, 1, 16, "\1\2\3\4", 4);
    CHECK(kit_try(try_wav, whole, size, "whole"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(file, whole, size);
        put(file, cases[i].at, cases[i].value, cases[i].bytes);
        KIT_REFUSED(try_wav, file, size, cases[i].part);
    }
    kit_try_truncations(try_wav, whole, size, 1);
    kit_try_damage(try_wav, whole, size, 0, size);
    size = make_wav(whole, 0xFFFE, 1, 16, "\1\2\3\4", 4);
    kit_try_damage(try_wav, whole, size, 0, size);
    const char *path = kit_temporary("a.wav", whole, size);
    CHECK(tensor_size(kit_read_wav(path).samples, 1) == 2);
    remove(path);
    CHECK_POISON(kit_read_wav(path).samples, TENSOR_ERR_IO, path);
    CHECK(tensor_size(kit_parse_wav(whole, make_wav(whole, 3, 2, 32, "", 0), "x").samples, 1) == 0);
}

int main(void) {
    RUN(idx_is_read);
    RUN(hostile_idx);
    RUN(cifar_is_read);
    RUN(pictures_are_read);
    RUN(hostile_pictures);
    RUN(sound_is_read);
    RUN(hostile_sound);
    return test_report();
}

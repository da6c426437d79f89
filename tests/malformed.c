// malformed.c - files that must be refused, by name, each with its code and its text: safetensors,
// checkpoints, modules, npy and npz. Each is also read by a second function where there is one
// (nn_load_memory, from the disk), and leaves nothing behind. Then every truncation and every flipped
// bit of good files: refused, or read without harm. The same table runs with 32-bit pointers (tests/host.sh).
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE // getpid, access
#endif
#include "test.h"

#include <time.h>
#ifdef __linux__
#include <unistd.h>
#endif

static char path[60];
static long n_refused;

static void put_file(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f) { fclose(f); }
}

// ---- safetensors: a header's text, n bytes of data ----

#define ENTRY(dtype, shape, offsets)                                                                         \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                                   \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" first "},"                                    \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" second "}}"
#define U8_1 "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}"
static const struct header_t {
    const char *name, *header;
    size_t n;
    const char *text; // NULL: a good file
} headers[] = {
    {"good: nothing", "{}", 0, NULL},
    {"good: nothing, with blanks", " { }\t\r\n ", 0, NULL},
    {"good: 0-d", " {\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  \n", 4, NULL},
    {"good: no elements", "{\"a\":{\"data_offsets\":[0,0],\"shape\":[0, 5],\"dtype\":\"I64\"}}", 0, NULL},
    {"good: escapes", "{\"__metadata__\":{\"k\":\"v\\u00e9\\n\"},\"\\u0061\\ud83d\\ude00\":" U8_1 "}", 1,
     NULL},
    {"good: not in order", TWO("[2,4]", "[0,2]"), 4, NULL},
    {"good: nine dims", ENTRY("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, NULL},
    {"good: a dim of 2^53 beside one of 0", ENTRY("U8", "[0,9007199254740992]", "[0,0]"), 0, NULL},
    {"good: metadata alone", "{\"__metadata__\":{}}", 0, NULL},
    {"good: a name that is __metadata", "{\"__metadata\":" U8_1 "}", 1, NULL},

    {"a list", "[]", 0, "does not begin with {"},
    {"a word", "x", 0, "does not begin with {"},
    {"an empty header", "", 0, "does not begin with {"},
    {"blanks alone", "   ", 0, "does not begin with {"},
    {"a byte order mark", "\xef\xbb\xbf{}", 0, "does not begin with {"},
    {"a number", "1", 0, "does not begin with {"},
    {"a string", "\"a\"", 0, "does not begin with {"},
    {"an open brace", "{", 0, "string is expected"},
    {"a comma at the begin", "{,\"a\":" U8_1 "}", 1, "string is expected"},
    {"a comma at the end", "{\"a\":" U8_1 ",}", 1, "string is expected"},
    {"two commas", "{\"a\":" U8_1 ",,\"b\":" U8_1 "}", 1, "string is expected"},
    {"a name without quotes", "{a:" U8_1 "}", 1, "string is expected"},
    {"a name in single quotes", "{'a':" U8_1 "}", 1, "string is expected"},
    {"a number for a name", "{1:" U8_1 "}", 1, "string is expected"},
    {"a comment", "{/* */\"a\":" U8_1 "}", 1, "string is expected"},
    {"a name without an end", "{\"a", 0, "unterminated string"},
    {"an escape without an end", "{\"a\\", 0, "unterminated escape"},
    {"an unknown escape", "{\"a\\x\":1}", 0, "unknown escape"},
    {"an escape of a digit", "{\"a\\0\":1}", 0, "unknown escape"},
    {"a short \\u", "{\"a\\u12\":1}", 0, "\\u escape"},
    {"a \\u at the end", "{\"a\\u", 0, "\\u escape"},
    {"a \\u that is not hexadecimal", "{\"a\\u00g0\":1}", 0, "\\u escape"},
    {"a \\u with a sign", "{\"a\\u+123\":1}", 0, "\\u escape"},
    {"a first surrogate alone", "{\"a\\ud800\":1}", 0, "surrogate"},
    {"a first surrogate at the end", "{\"a\\ud800\\u", 0, "surrogate"},
    {"a first surrogate twice", "{\"a\\ud800\\ud800\":1}", 0, "surrogate"},
    {"a first surrogate before a letter", "{\"a\\ud800\\u0041\":1}", 0, "surrogate"},
    {"a second surrogate alone", "{\"a\\udc00\":1}", 0, "surrogate"},
    {"NUL as an escape", "{\"a\\u0000\":1}", 0, "NUL"},
    {"a line feed in a name", "{\"a\n\":1}", 0, "control character"},
    {"a tab in a name", "{\"a\t\":1}", 0, "control character"},
    {"an escaped control character in a name", "{\"a\\u001f\":{}}", 0, "control characters"},
    {"an escaped line feed in a name", "{\"a\\n\":{}}", 0, "control characters"},
    {"DEL in a name", "{\"a\x7f\":{}}", 0, "control characters"},
    {"a name of no bytes", "{\"\":{}}", 0, "empty"},
    {"0xff in a name", "{\"a\xff\":1}", 0, "UTF-8"},
    {"a continuation byte alone", "{\"\x80\":1}", 0, "UTF-8"},
    {"an overlong NUL", "{\"a\xc0\x80\":1}", 0, "UTF-8"},
    {"an overlong slash of three bytes", "{\"\xe0\x80\xaf\":1}", 0, "UTF-8"},
    {"an overlong slash of four bytes", "{\"\xf0\x80\x80\xaf\":1}", 0, "UTF-8"},
    {"a surrogate in UTF-8", "{\"a\xed\xa0\x80\":1}", 0, "UTF-8"},
    {"beyond U+10FFFF", "{\"\xf4\x90\x80\x80\":1}", 0, "UTF-8"},
    {"a lead byte of five", "{\"\xf8\x88\x80\x80\x80\":1}", 0, "UTF-8"},
    {"a sequence cut by the quote", "{\"\xe2\x82\":1}", 0, "UTF-8"},
    {"a sequence cut by the header's end", "{\"\xe2\x82", 0, "UTF-8"},
    {"a name without a colon", "{\"a\"}", 0, "colon"},
    {"a name with an equals sign", "{\"a\"=" U8_1 "}", 1, "colon"},
    {"a number for a tensor", "{\"a\":1}", 0, "object is expected"},
    {"null for a tensor", "{\"a\":null}", 0, "object is expected"},
    {"a string for a tensor", "{\"a\":\"b\"}", 0, "object is expected"},
    {"nested lists for a tensor", "{\"a\":[[[[[[1]]]]]]}", 0, "object is expected"},
    {"an empty object for a tensor", "{\"a\":{}}", 0, "string is expected"},
    {"an object in a tensor", "{\"a\":{\"x\":{}}}", 0, "unknown key"},
    {"a tensor without an end", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]", 1,
     "closing brace"},
    {"a header without an end", "{\"a\":" U8_1, 1, "closing brace"},
    {"text behind the header", "{} x", 0, "after the header"},
    {"a second object", "{}{}", 0, "after the header"},
    {"a comma behind the header", "{},", 0, "after the header"},

    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "missing"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "missing"},
    {"no data_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "missing"},
    {"dtype twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "dtype is given twice"},
    {"shape twice", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "shape is given twice"},
    {"data_offsets twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}", 1,
     "data_offsets is given twice"},
    {"a key more", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
     "unknown key"},
    {"a key in capitals", "{\"a\":{\"DTYPE\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "unknown key"},
    {"a number for the dtype", "{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "string is expected"},
    {"an unknown dtype", ENTRY("C65", "[1]", "[0,1]"), 1, "unknown dtype"},
    {"a dtype of no letters", ENTRY("", "[1]", "[0,1]"), 1, "unknown dtype"},
    {"a dtype in small letters", ENTRY("u8", "[1]", "[0,1]"), 1, "unknown dtype"},
    {"a dtype with a blank", ENTRY("U8 ", "[1]", "[0,1]"), 1, "unknown dtype"},
    {"a number for the shape", ENTRY("U8", "1", "[0,1]"), 1, "shape must be a list"},
    {"a string for the shape", ENTRY("U8", "\"[1]\"", "[0,1]"), 1, "shape must be a list"},
    {"null for the shape", ENTRY("U8", "null", "[0,1]"), 1, "shape must be a list"},
    {"a shape without an end", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1", 1, "closing bracket"},
    {"a negative size", ENTRY("U8", "[-1]", "[0,1]"), 1, "whole number"},
    {"a size with a plus", ENTRY("U8", "[+1]", "[0,1]"), 1, "whole number"},
    {"a size with a fraction", ENTRY("U8", "[1.0]", "[0,1]"), 1, "whole number"},
    {"a size with an exponent", ENTRY("U8", "[1e0]", "[0,1]"), 1, "whole number"},
    {"a size with a large exponent", ENTRY("U8", "[1E5]", "[0,1]"), 1, "whole number"},
    {"a hexadecimal size", ENTRY("U8", "[0x1]", "[0,1]"), 1, "closing bracket"},
    {"a size with a leading zero", ENTRY("U8", "[01]", "[0,1]"), 1, "leading zero"},
    {"a size of two zeros", ENTRY("U8", "[00]", "[0,0]"), 0, "leading zero"},
    {"a comma behind the sizes", ENTRY("U8", "[1,]", "[0,1]"), 1, "whole number"},
    {"a comma before the sizes", ENTRY("U8", "[,1]", "[0,1]"), 1, "whole number"},
    {"sizes without a comma", ENTRY("U8", "[1 1]", "[0,1]"), 1, "closing bracket"},
    {"a size in quotes", ENTRY("U8", "[\"1\"]", "[0,1]"), 1, "whole number"},
    {"true for a size", ENTRY("U8", "[true]", "[0,1]"), 1, "whole number"},
    {"NaN for a size", ENTRY("U8", "[NaN]", "[0,1]"), 1, "whole number"},
    {"a list for a size", ENTRY("U8", "[[1]]", "[0,1]"), 1, "whole number"},
    {"a size of 2^53 + 1", ENTRY("U8", "[9007199254740993]", "[0,1]"), 1, "too large"},
    {"a size of 2^64 + 1", ENTRY("U8", "[18446744073709551617]", "[0,1]"), 1, "too large"},
    {"a size of 60 digits",
     ENTRY("U8", "[999999999999999999999999999999999999999999999999999999999999]", "[0,1]"), 1, "too large"},
    {"2^64 elements", ENTRY("U8", "[4294967296,4294967296]", "[0,0]"), 0, "overflows"},
    {"2^61 elements", ENTRY("U8", "[2147483648,1073741824]", "[0,0]"), 0, "overflows"},
    {"2^66 elements, 4 modulo 2^64", ENTRY("U8", "[4503599627370497,16384,4]", "[0,4]"), 4, "overflows"},
    {"2^33 elements of 8 bytes, 0 modulo 2^32", ENTRY("F64", "[8589934592]", "[0,0]"), 0, "disagree"},
    {"2^32 + 1 elements, 1 modulo 2^32", ENTRY("U8", "[4294967297]", "[0,1]"), 1, "disagree"},
    {"65537 x 65537 elements, 131073 modulo 2^32", ENTRY("U8", "[65537,65537]", "[0,1]"), 1, "disagree"},
    {"2^30 + 1 floats, 4 bytes modulo 2^32", ENTRY("F32", "[1073741825]", "[0,4]"), 4, "disagree"},
    {"2^60 doubles", ENTRY("F64", "[1073741824,1073741824]", "[0,0]"), 0, "disagree"},
    {"2^60 elements of 4 bits", ENTRY("F4", "[1073741824,1073741824]", "[0,0]"), 0, "disagree"},

    {"offsets of one number", ENTRY("U8", "[1]", "[0]"), 1, "two numbers"},
    {"offsets of no number", ENTRY("U8", "[1]", "[]"), 1, "whole number"},
    {"offsets of three numbers", ENTRY("U8", "[1]", "[0,1,2]"), 1, "two numbers"},
    {"offsets that are a number", ENTRY("U8", "[1]", "0"), 1, "data_offsets must be a list"},
    {"offsets that are a string", ENTRY("U8", "[1]", "\"0,1\""), 1, "data_offsets must be a list"},
    {"an offset that is negative", ENTRY("U8", "[1]", "[-1,0]"), 1, "whole number"},
    {"an offset with a fraction", ENTRY("U8", "[1]", "[0.0,1]"), 1, "whole number"},
    {"an offset with a leading zero", ENTRY("U8", "[1]", "[0,01]"), 1, "leading zero"},
    {"an offset of 2^64 - 1", ENTRY("U8", "[1]", "[0,18446744073709551615]"), 1, "too large"},
    {"an offset of 2^53", ENTRY("U8", "[1]", "[0,9007199254740992]"), 1, "beyond the file"},
    {"an offset of 2^32, 0 modulo 2^32", ENTRY("U8", "[0]", "[0,4294967296]"), 0, "beyond the file"},
    {"an offset of 2^32 + 1, 1 modulo 2^32", ENTRY("U8", "[1]", "[4294967296,4294967297]"), 1,
     "beyond the file"},
    {"an end before the begin", ENTRY("U8", "[1]", "[1,0]"), 1, "before they begin"},
    {"an end beyond the file", ENTRY("U8", "[2]", "[0,2]"), 1, "beyond the file"},
    {"an end one beyond, of two", TWO("[0,2]", "[2,4]"), 3, "beyond the file"},
    {"more bytes than the shape", ENTRY("U8", "[1]", "[0,2]"), 2, "disagree"},
    {"fewer bytes than the shape", ENTRY("F32", "[1]", "[0,1]"), 1, "disagree"},
    {"no bytes for one element", ENTRY("F32", "[]", "[0,0]"), 0, "disagree"},
    {"bytes for no element", ENTRY("F32", "[0]", "[0,4]"), 4, "disagree"},
    {"three elements of four bits", ENTRY("F4", "[3]", "[0,1]"), 1, "disagree"},
    {"two elements of six bits", ENTRY("F6_E2M3", "[2]", "[0,1]"), 1, "disagree"},
    {"complex numbers of half the bytes", ENTRY("C64", "[2]", "[0,8]"), 8, "disagree"},
    {"a hole before the first", ENTRY("U8", "[1]", "[1,2]"), 2, "hole"},
    {"a hole between two", TWO("[0,2]", "[3,5]"), 5, "hole"},
    {"bytes behind the last", ENTRY("U8", "[1]", "[0,1]"), 2, "after the last"},
    {"bytes and no tensor", "{}", 1, "after the last tensor"},
    {"an overlap of one byte", TWO("[0,2]", "[1,3]"), 3, "overlap"},
    {"the same bytes twice", TWO("[0,2]", "[0,2]"), 2, "overlap"},
    {"a name twice", "{\"a\":" U8_1 ",\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     "two tensors of this name"},
    {"a name twice, once as an escape",
     "{\"a\":" U8_1 ",\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     "two tensors of this name"},

    {"metadata that is a number", "{\"__metadata__\":1}", 0, "object is expected"},
    {"metadata that is null", "{\"__metadata__\":null}", 0, "object is expected"},
    {"metadata with a number", "{\"__metadata__\":{\"a\":1}}", 0, "string is expected"},
    {"metadata with an object", "{\"__metadata__\":{\"a\":{}}}", 0, "string is expected"},
    {"metadata without a colon", "{\"__metadata__\":{\"a\"}}", 0, "colon"},
    {"metadata with a comma at the end", "{\"__metadata__\":{\"a\":\"1\",}}", 0, "string is expected"},
    {"metadata without an end", "{\"__metadata__\":{\"a\":\"1\"", 0, "closing brace"},
    {"metadata with a key twice", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "one key"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
    {"metadata with a value that is not UTF-8", "{\"__metadata__\":{\"a\":\"\xff\"}}", 0, "UTF-8"},
    {"metadata with a control character", "{\"__metadata__\":{\"a\":\"\x01\"}}", 0, "control character"},
};
enum { HEADERS = (int)(sizeof headers / sizeof headers[0]) };

// ---- safetensors: whole files ----

#define BYTES(text) text, sizeof text - 1
static const struct raw_t {
    const char *name, *bytes;
    size_t n;
    const char *text;
} raws[] = {
    {"no byte", "", 0, "shorter than 8"},
    {"one byte", BYTES("{"), "shorter than 8"},
    {"seven bytes", BYTES("\2\0\0\0\0\0\0"), "shorter than 8"},
    {"a length and nothing", BYTES("\1\0\0\0\0\0\0\0"), "exceeds the file"},
    {"a length of 0", BYTES("\0\0\0\0\0\0\0\0"), "does not begin with {"},
    {"a length of 0 before a header", BYTES("\0\0\0\0\0\0\0\0{}"), "does not begin with {"},
    {"a length one too small", BYTES("\1\0\0\0\0\0\0\0{}"), "string is expected"},
    {"a length one too large", BYTES("\3\0\0\0\0\0\0\0{}"), "exceeds the file"},
    {"a length of 2^31 - 1", BYTES("\377\377\377\177\0\0\0\0{}"), "exceeds the file"},
    {"a length of 2^31", BYTES("\0\0\0\200\0\0\0\0{}"), "exceeds the file"},
    {"a length of 2^32 - 1", BYTES("\377\377\377\377\0\0\0\0{}"), "exceeds the file"},
    {"a length of 2^32 + 2, 2 modulo 2^32", BYTES("\2\0\0\0\1\0\0\0{}"), "exceeds the file"},
    {"a length of 2^63 - 1", BYTES("\377\377\377\377\377\377\377\177{}"), "exceeds the file"},
    {"a length of 2^63", BYTES("\0\0\0\0\0\0\0\200{}"), "exceeds the file"},
    {"a length of 2^64 - 1", BYTES("\377\377\377\377\377\377\377\377{}"), "exceeds the file"},
    {"a length of 2^64 - 8", BYTES("\370\377\377\377\377\377\377\377{}"), "exceeds the file"},
    {"a length in the other order of bytes", BYTES("\0\0\0\0\0\0\0\2{}"), "exceeds the file"},
    {"NUL behind the object", BYTES("\3\0\0\0\0\0\0\0{}\0"), "after the header"},
    {"NUL in a name", BYTES("\10\0\0\0\0\0\0\0{\"a\0\":1}"), "control character"},
    {"a zip file of torch.save", BYTES("PK\3\4\0\0\10\10\0\0\0\0"), "is a torch.save file"},
    {"a pickle of protocol 2", BYTES("\200\2\212\nl\374\234F\371 j"), "an old torch.save file"},
    {"a pickle of protocol 3", BYTES("\200\3}q\0X\1\0\0\0"), "pickle"},
    {"a pickle of protocol 4", BYTES("\200\4\225\0\0\0\0\0\0\0"), "pickle"},
    {"a pickle of protocol 5", BYTES("\200\5\225\0\0\0\0\0\0\0"), "pickle"},
    {"a GGUF file", BYTES("GGUF\3\0\0\0\1\0\0\0"), "GGUF"},
    {"a NumPy file", BYTES("\223NUMPY\1\0v\0{'"), "NumPy"},
    {"an HDF5 file", BYTES("\211HDF\r\n\032\n\0\0\0"), "HDF5"},
    {"a gzip file", BYTES("\037\213\10\0\0\0\0\0\0\3\0"), "gunzip"},
    {"a pointer of Git LFS", BYTES("version https://git-lfs"), "git lfs pull"},
    {"a text", BYTES("something else"), "exceeds the file"},
    {"JSON without a length", BYTES("{\"a\":1}  "), "exceeds the file"},
};
enum { RAWS = (int)(sizeof raws / sizeof raws[0]) };

static void check_safetensors(const char *name, const void *bytes, size_t n, const char *text) {
    nn_module_t *m = nn_linear(1, 1);
    nn_safetensors_t *r;
    uint8_t *copy = (uint8_t *)malloc(n + !n); // of its exact size, for sanitizers
    int code;
    if (!copy) { abort(); }
    memcpy(copy, bytes, n);
    r = nn_safetensors_parse(copy, n);
    if (!text) {
        CHECK_MSG(r != NULL, "%s: refused: %s", name, tensor_error_text());
        tensor_clear_error();
    } else {
        code = tensor_error_code();
        CHECK_MSG(r == NULL && code == TENSOR_ERR_FORMAT && strstr(tensor_error_text(), text),
                  "%s: %s \"%s\", not \"%s\"", name, tensor_code_name(code), tensor_error_text(), text);
        tensor_clear_error();
        CHECK_MSG(nn_load_memory(copy, n, m, 1) == TENSOR_ERR_FORMAT, "%s: loaded from memory", name);
        CHECK_ERROR(TENSOR_ERR_FORMAT, text);
        put_file(copy, n);
        CHECK_MSG(nn_load(path, m, .partial = 1) == TENSOR_ERR_FORMAT, "%s: loaded from the disk", name);
        CHECK_ERROR(TENSOR_ERR_FORMAT, text);
        n_refused++;
    }
    nn_safetensors_close(r);
    free(copy);
    nn_free(m);
}
static void refused_headers(void) {
    int i, k;
    for (i = 0; i < HEADERS; i++) {
        size_t length = strlen(headers[i].header), n = 8 + length + headers[i].n;
        uint8_t *file = (uint8_t *)calloc(1, n);
        if (!file) { abort(); }
        for (k = 0; k < 8; k++) { file[k] = (uint8_t)(k < 4 ? length >> 8 * k : 0); }
        memcpy(file + 8, headers[i].header, length);
        check_safetensors(headers[i].name, file, n, headers[i].text);
        free(file);
    }
}
static void refused_files(void) {
    int i;
    for (i = 0; i < RAWS; i++) { check_safetensors(raws[i].name, raws[i].bytes, raws[i].n, raws[i].text); }
}
// Sizes that a literal cannot have.
static void refused_sizes(void) {
    size_t limit = NN_SAFETENSORS_MAX_HEADER, n, k;
    char *big = (char *)calloc(1, limit + 64);
    if (!big) { abort(); }
    for (k = 0; k < 2; k++) { // a header as large as may be, and one byte more
        n = limit + k;
        memset(big, ' ', n + 8);
        for (int b = 0; b < 8; b++) { big[b] = (char)(b < 4 ? n >> 8 * b : 0); }
        memcpy(big + 8, "{}", 2);
        check_safetensors(k ? "a header over the limit" : "good: a header of the limit", big, n + 8,
                          k ? "over the limit" : NULL);
    }
    for (k = 4096; k < 4098; k++) { // a name
        char *p = big + 8;
        *p++ = '{', *p++ = '"';
        memset(p, 'n', k);
        n = 2 + k + (size_t)snprintf(p + k, 100, "\":%s}", U8_1);
        for (int b = 0; b < 8; b++) { big[b] = (char)(b < 4 ? n >> 8 * b : 0); }
        check_safetensors(k == 4096 ? "good: a name of 4096 bytes" : "a name of 4097 bytes", big, 8 + n + 1,
                          k == 4096 ? NULL : "too long");
    }
    free(big);
}

// ---- a module, a checkpoint ----

// What changes in a good checkpoint of nn_linear(2, 1) with SGD and momentum: from becomes to (of the same
// length, or NULL: cut there).
static const struct change_t {
    const char *name, *from, *to, *text;
} changes[] = {
    {"no step", "\"step\"", "\"stop\"", "has no step or generator"},
    {"a step that is not a number", "\"step\":\"3\"", "\"step\":\"x\"", "has no step or generator"},
    {"a negative step", "\"step\":\"3\"", "\"step\":\"-\"", "has no step or generator"},
    {"a step with a blank", "\"step\":\"3\"", "\"step\":\" \"", "has no step or generator"},
    {"no seed", "generator.seed", "generator.sead", "has no step or generator"},
    {"a seed beyond 2^64", "\"generator.seed\":\"67280421310721\",\"",
     "\"generator.seed\":\"67280421310721\\\"\"", "is expected"},
    {"no offset", "generator.offset", "generator.offsat", "has no step or generator"},
    {"another optimizer", "\"optimizer\":\"sgd\"", "\"optimizer\":\"adm\"", "the state of adm, not of sgd"},
    {"an optimizer in capitals", "\"optimizer\":\"sgd\"", "\"optimizer\":\"SGD\"",
     "the state of SGD, not of sgd"},
    {"no optimizer", "\"optimizer\":\"sgd\"", "\"optimyzer\":\"sgd\"", "the state of no optimizer"},
    {"no steps", "optimizer/steps", "optimizer/stops", "optimizer/steps is missing"},
    {"no groups", "optimizer/groups", "optimizer/groupz", "optimizer/groups is missing"},
    {"no options", "optimizer/options", "optimizer/optionz", "optimizer/options is missing"},
    {"groups of another shape", "\"shape\":[1,2]", "\"shape\":[2,1]", "load_checkpoint"},
    {"no weight", "\"weight\":{", "\"waight\":{", "1 missing [weight], 1 unexpected [waight]"},
    {"no bias", "\"bias\":{", "\"bios\":{", "1 missing [bias], 1 unexpected [bios]"},
    {"a weight of another shape", "\"weight\":{\"dtype\":\"F32\",\"shape\":[1,2]",
     "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,1]", "1 of another shape [weight [2,1]"},
    {"a weight of no shape", "\"weight\":{\"dtype\":\"F32\",\"shape\":[1,2]",
     "\"weight\":{\"dtype\":\"C64\",\"shape\":[1,1]", "C64"},
    {"a momentum of another shape", "momentum_buffer/weight\":{\"dtype\":\"F32\",\"shape\":[1,2]",
     "momentum_buffer/weight\":{\"dtype\":\"F32\",\"shape\":[2,1]", "does not fit this optimizer"},
    {"a momentum of integers", "momentum_buffer/weight\":{\"dtype\":\"F32\"",
     "momentum_buffer/weight\":{\"dtype\":\"I32\"", "does not fit this optimizer"},
    {"steps of doubles", "\"optimizer/steps\":{\"dtype\":\"I64\"", "\"optimizer/steps\":{\"dtype\":\"F64\"",
     "does not fit this optimizer"},
    {"options of integers", "\"optimizer/options\":{\"dtype\":\"F64\"",
     "\"optimizer/options\":{\"dtype\":\"I64\"", "does not fit this optimizer"},
    {"a brace less", "}}", "} ", NULL},
};
enum { CHANGES = (int)(sizeof changes / sizeof changes[0]) };

static uint8_t *contents(size_t *n) {
    FILE *f = fopen(path, "rb");
    uint8_t *p = (uint8_t *)malloc(1 << 16);
    *n = f && p ? fread(p, 1, 1 << 16, f) : 0;
    if (f) { fclose(f); }
    return p;
}
// Where text begins among the bytes; n: nowhere.
static size_t place_of(const uint8_t *bytes, size_t n, const char *text) {
    size_t i, length = strlen(text);
    for (i = 0; i + length <= n; i++) {
        if (memcmp(bytes + i, text, length) == 0) { return i; }
    }
    return n;
}
static uint64_t state_of(nn_module_t *m, nn_optimizer_t *o, int64_t step) {
    uint64_t h = TEST_HASH;
    size_t n, i;
    uint8_t *p;
    CHECK(nn_save_checkpoint(path, m, o, step) == 0);
    p = contents(&n);
    for (i = 0; i < n; i++) { h = (h ^ p[i]) * 1099511628211ull; }
    free(p);
    return h;
}
// n tensors without elements, the last two with the same name if twice.
// -> seconds of the processor that the reader took
static double read_many(int n, int twice) {
    size_t room = (size_t)n * 64 + 100, size = 8;
    char *file = (char *)malloc(room);
    if (!file) { abort(); }
    for (int i = 0; i < n; i++) {
        size += (size_t)snprintf(file + size, room - size,
                                 "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                                 i ? ',' : '{', i - (twice && i == n - 1));
    }
    file[size++] = '}';
    for (int k = 0; k < 8; k++) { file[k] = (char)((uint64_t)(size - 8) >> 8 * k & 255); }
    const clock_t begin = clock();
    nn_safetensors_t *r = nn_safetensors_parse(file, size);
    for (int i = 0; r && i < 1000; i++) {
        CHECK(tensor_numel(nn_safetensors_get(r, nn_safetensors_name(r, (int64_t)i * n / 1000))) == 0);
    }
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK(nn_safetensors_count(r) == (twice ? 0 : n));
    nn_safetensors_close(r);
    free(file);
    return seconds;
}

// Sixteen times the names take about sixteen times as long. If each was compared with each, it would be 256
// times.
static void many_names(void) {
    double few = 1, many;
    for (int k = 0; k < 3; k++) {
        double took = read_many(10000, 0);
        few = took < few ? took : few;
    }
    many = read_many(160000, 0);
    CHECK_MSG(many < 80 * (few + 0.001), "10,000 tensors take %g s, 160,000 take %g s", few, many);
    read_many(160000, 1);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "t159998");
}

static void refused_checkpoints(void) {
    nn_module_t *m = nn_linear(2, 1);
    nn_optimizer_t *o = nn_sgd(m, .lr = 0.5, .momentum = 0.5);
    int64_t step = 3;
    tensor_scope_t scope = tensor_scope_begin();
    uint64_t before;
    uint8_t *good;
    size_t n;
    int i;
    tensor_manual_seed(67280421310721u);
    tensor_backward(tensor_sum(nn_forward(m, tensor_ones(1, 2))));
    nn_step(o);
    tensor_scope_end(scope);
    before = state_of(m, o, step);
    good = contents(&n);
    for (i = 0; i < CHANGES; i++) {
        const struct change_t *c = &changes[i];
        size_t length = strlen(c->from), at = place_of(good, n, c->from);
        CHECK_MSG(at < n && strlen(c->to) == length, "%s: \"%s\" is not there", c->name, c->from);
        if (at == n || strlen(c->to) != length) { continue; }
        memcpy(good + at, c->to, length);
        put_file(good, n);
        memcpy(good + at, c->from, length);
        CHECK_MSG(nn_load_checkpoint(path, m, o, &step) == TENSOR_ERR_FORMAT, "%s: taken", c->name);
        CHECK_ERROR(TENSOR_ERR_FORMAT, c->text);
        CHECK_MSG(step == 3 && state_of(m, o, step) == before, "%s: half of it is in place", c->name);
        n_refused++;
    }
    for (i = 0; i < (int)n; i++) {
        put_file(good, (size_t)i);
        CHECK_MSG(nn_load_checkpoint(path, m, o, &step) == TENSOR_ERR_FORMAT, "the first %d bytes: taken", i);
        CHECK_ERROR(TENSOR_ERR_FORMAT, NULL);
    }
    put_file(good, n);
    CHECK(nn_load_checkpoint(path, m, o, &step) == 0 && step == 3);
    free(good);
    nn_optimizer_free(o);
    nn_free(m);
}

// ---- damaged files ----

// ---- npy: a header's text and n bytes of data ----

#define NPY(descr, fortran, shape) "{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }"
static const struct npy_t {
    const char *name, *header;
    size_t n;
    int code;
    const char *text; // NULL: a good file
} npys[] = {
    {"good", NPY("'<f4'", "False", "(2, 3)"), 24, 0, NULL},
    {"good: double quotes", "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (1,)}", 4, 0, NULL},
    {"good: another order", "{'shape': (1,), 'fortran_order': True, 'descr': '|u1'}", 1, 0, NULL},
    {"good: 0-d", NPY("'<f8'", "False", "()"), 8, 0, NULL},
    {"good: no elements", NPY("'<f8'", "False", "(0, 7)"), 0, 0, NULL},
    {"good: Python 2", NPY("'<f8'", "False", "(3L,)"), 24, 0, NULL},
    {"good: big-endian", NPY("'>i2'", "False", "(3,)"), 6, 0, NULL},
    {"good: blanks", "  { 'descr' : '|b1' , 'fortran_order' : False , 'shape' : ( 3 , ) }   ", 3, 0, NULL},
    {"nothing", "", 0, TENSOR_ERR_FORMAT, "not a dict"},
    {"a list", "[]", 0, TENSOR_ERR_FORMAT, "not a dict"},
    {"an empty dict", "{}", 0, TENSOR_ERR_FORMAT, "is missing"},
    {"no shape", "{'descr': '<f4', 'fortran_order': False}", 0, TENSOR_ERR_FORMAT, "is missing"},
    {"a key too many", "{'descr': '<f4', 'more': 1}", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"a key that begins as one", "{'descr2': '<f4'}", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"a key that is shorter", "{'desc': '<f4'}", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"a key twice", "{'descr': '<f4', 'descr': '<f4'}", 0, TENSOR_ERR_FORMAT, "twice"},
    {"a key without quotes", "{descr: '<f4'}", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"a key without an end", "{'descr", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"an escape", "{'des\\x63r': '<f4'}", 0, TENSOR_ERR_FORMAT, "unknown key"},
    {"no colon", "{'descr' '<f4'}", 0, TENSOR_ERR_FORMAT, "colon"},
    {"no comma", "{'descr': '<f4' 'shape': ()}", 0, TENSOR_ERR_FORMAT, "comma"},
    {"a structured array", NPY("[('a', '<f4')]", "False", "(2,)"), 8, TENSOR_ERR_UNSUPPORTED, "structured"},
    {"objects", NPY("'|O'", "False", "(2,)"), 8, TENSOR_ERR_UNSUPPORTED, "Python objects"},
    {"text", NPY("'<U4'", "False", "(2,)"), 32, TENSOR_ERR_UNSUPPORTED, "dtype <U4"},
    {"complex", NPY("'<c8'", "False", "(2,)"), 16, TENSOR_ERR_UNSUPPORTED, "dtype <c8"},
    {"u8", NPY("'<u8'", "False", "(2,)"), 16, TENSOR_ERR_UNSUPPORTED, "dtype <u8"},
    {"long double", NPY("'<f16'", "False", "(2,)"), 32, TENSOR_ERR_UNSUPPORTED, "dtype <f16"},
    {"the machine's order", NPY("'=f4'", "False", "(2,)"), 8, TENSOR_ERR_UNSUPPORTED, "dtype =f4"},
    {"no order", NPY("'|f4'", "False", "(2,)"), 8, TENSOR_ERR_UNSUPPORTED, "dtype |f4"},
    {"a dtype without quotes", NPY("<f4", "False", "(2,)"), 8, TENSOR_ERR_FORMAT, "not a text"},
    {"a dtype without letters", NPY("''", "False", "(2,)"), 8, TENSOR_ERR_UNSUPPORTED, "dtype  is"},
    {"an order that is 1", NPY("'<f4'", "1", "(2,)"), 8, TENSOR_ERR_FORMAT, "neither True nor False"},
    {"a shape that is a list", NPY("'<f4'", "False", "[2]"), 8, TENSOR_ERR_FORMAT, "not a tuple"},
    {"a shape that is a number", NPY("'<f4'", "False", "2"), 8, TENSOR_ERR_FORMAT, "not a tuple"},
    {"a number in brackets", NPY("'<f4'", "False", "(2)"), 8, TENSOR_ERR_FORMAT, "a number, not a tuple"},
    {"a negative size", NPY("'<f4'", "False", "(-2,)"), 8, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"a size of 1.0", NPY("'<f4'", "False", "(1.0,)"), 4, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"a size of 1e3", NPY("'<f4'", "False", "(1e3,)"), 4, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"a size of 0x2", NPY("'<f4'", "False", "(0x2,)"), 8, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"a size of 02", NPY("'<f4'", "False", "(02,)"), 8, TENSOR_ERR_FORMAT, "leading zero"},
    {"two commas", NPY("'<f4'", "False", "(2,,)"), 8, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"no comma in the shape", NPY("'<f4'", "False", "(2 2)"), 8, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"an open shape", "{'shape': (2,", 8, TENSOR_ERR_FORMAT, "sizes >= 0"},
    {"20 digits", NPY("'<f4'", "False", "(18446744073709551617,)"), 4, TENSOR_ERR_FORMAT, "overflows"},
    {"a product of 2^64", NPY("'<f4'", "False", "(4294967296,4294967296)"), 4, TENSOR_ERR_FORMAT, "overflow"},
    {"a product of 2^62", NPY("'<f4'", "False", "(2147483648,2147483648)"), 4, TENSOR_ERR_FORMAT, "overflow"},
    {"nine dims", NPY("'|u1'", "False", "(1,1,1,1,1,1,1,1,1)"), 1, TENSOR_ERR_UNSUPPORTED, "8 dims"},
    {"too little data", NPY("'<f4'", "False", "(2,)"), 7, TENSOR_ERR_FORMAT, "shorter than its shape"},
    {"too much data", NPY("'<f4'", "False", "(2,)"), 9, TENSOR_ERR_FORMAT, "longer than its shape"},
    {"data of 0-d missing", NPY("'<f4'", "False", "()"), 0, TENSOR_ERR_FORMAT, "shorter than its shape"},
    {"a claim of 2^50 bytes", NPY("'|u1'", "False", "(1125899906842624,)"), 9, TENSOR_ERR_FORMAT, "shorter"},
    {"text behind the dict", NPY("'<f4'", "False", "(1,)") "x", 4, TENSOR_ERR_FORMAT, "after the header"},
};
static const struct raw_t npy_files[] = {
    {"no byte", "", 0, "shorter than the header"},
    {"nine bytes", BYTES("\223NUMPY\1\0\0"), "shorter than the header"},
    {"another magic", BYTES("\223NUMPX\1\0\1\0\n"), "first bytes differ"},
    {"version 0", BYTES("\223NUMPY\0\0\1\0\n"), "unknown version"},
    {"version 4", BYTES("\223NUMPY\4\0\1\0\0\0\n"), "unknown version"},
    {"version 1.1", BYTES("\223NUMPY\1\1\1\0\n"), "unknown version"},
    {"a header longer than the file", BYTES("\223NUMPY\1\0\2\0\n"), "exceeds the file"},
    {"version 2 with half a length", BYTES("\223NUMPY\2\0\1\0\n"), "shorter than the header"},
    {"version 2 with 2^32 - 1", BYTES("\223NUMPY\2\0\377\377\377\377\n"), "exceeds the file"},
    {"no header", BYTES("\223NUMPY\1\0\0\0"), "line feed"},
    {"no line feed", BYTES("\223NUMPY\1\0\2\0{}"), "line feed"},
};
static const struct raw_t npz_files[] = {
    {"no byte", "", 0, "shorter than a zip"},
    {"no archive", BYTES("something that is not an archive"), "not a zip"},
    {"two disks", BYTES("PK\5\6\1\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "several parts"},
    {"a directory beyond the end", BYTES("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0"), "beyond"},
    {"more entries than bytes", BYTES("PK\5\6\0\0\0\0\377\377\377\377\0\0\0\0\0\0\0\0\0\0"), "beyond"},
    {"a directory of 2^32 - 1", BYTES("PK\5\6\0\0\0\0\1\0\1\0\377\377\377\377\0\0\0\0\0\0"), "beyond"},
    {"an entry that is none",
     BYTES("01234567890123456789012345678901234567890123456789"
           "PK\5\6\0\0\0\0\1\0\1\0\62\0\0\0\0\0\0\0\0\0"),
     "directory is damaged"},
};

static void refused_npy(void) {
    for (size_t i = 0; i < sizeof npys / sizeof npys[0]; i++) {
        size_t length = strlen(npys[i].header) + 1, n = 10 + length + npys[i].n;
        uint8_t *file = (uint8_t *)calloc(1, n);
        if (!file) { abort(); }
        memcpy(file, "\223NUMPY\1", 8);
        file[8] = (uint8_t)length;
        memcpy(file + 10, npys[i].header, length - 1);
        file[10 + length - 1] = '\n';
        if (npys[i].text) {
            CHECK_POISON(nn_parse_npy(file, n), npys[i].code, npys[i].text);
            put_file(file, n);
            CHECK_POISON(nn_read_npy(path), npys[i].code, npys[i].text);
            n_refused++;
        } else {
            CHECK_MSG(!tensor_is_poison(nn_parse_npy(file, n)), "%s: %s", npys[i].name, tensor_error_text());
            tensor_clear_error();
        }
        free(file);
    }
    for (size_t i = 0; i < sizeof npy_files / sizeof npy_files[0]; i++) {
        CHECK_POISON(nn_parse_npy(npy_files[i].bytes, npy_files[i].n), TENSOR_ERR_FORMAT, npy_files[i].text);
        n_refused++;
    }
    size_t n = 12 + 70000;
    char *big = (char *)calloc(1, n);
    if (!big) { abort(); }
    memcpy(big, "\223NUMPY\2\0\160\21\1", 12);
    CHECK_POISON(nn_parse_npy(big, n), TENSOR_ERR_FORMAT, "over the limit");
    free(big);
}
static void refused_npz(void) {
    for (size_t i = 0; i < sizeof npz_files / sizeof npz_files[0]; i++) {
        CHECK_MSG(nn_npz_parse(npz_files[i].bytes, npz_files[i].n) == NULL, "%s", npz_files[i].name);
        CHECK_ERROR(TENSOR_ERR_FORMAT, npz_files[i].text);
        n_refused++;
    }
}

// Every truncation and every flipped bit: refused, or read without harm.
enum { WEIGHTS, ARRAY, ARCHIVE };
static void damaged(int kind, const uint8_t *good, size_t n) {
    size_t i;
    int64_t k;
    for (i = 0; i < n + n * 8; i++) {
        size_t length = i < n ? i : n;
        uint8_t *copy = (uint8_t *)malloc(length + !length);
        if (!copy) { abort(); }
        memcpy(copy, good, length);
        if (i >= n) { copy[(i - n) / 8] ^= (uint8_t)(1u << (i - n) % 8); }
        if (kind == ARRAY) {
            (void)nn_parse_npy(copy, length);
        } else if (kind == ARCHIVE) {
            nn_npz_t *r = nn_npz_parse(copy, length);
            for (k = 0; k < nn_npz_count(r); k++) { (void)nn_npz_get(r, nn_npz_name(r, k)); }
            nn_npz_close(r);
        } else {
            nn_safetensors_t *r = nn_safetensors_parse(copy, length);
            for (k = 0; k < nn_safetensors_count(r); k++) {
                (void)nn_safetensors_get(r, nn_safetensors_name(r, k));
            }
            nn_safetensors_close(r);
        }
        CHECK_MSG(i >= n || tensor_error_code() == TENSOR_ERR_FORMAT, "the first %lld bytes are read",
                  (long long)i);
        CHECK_MSG(tensor_ok() || tensor_error_code() == TENSOR_ERR_FORMAT ||
                      tensor_error_code() == TENSOR_ERR_UNSUPPORTED,
                  "bit %lld: %s", (long long)(i - n), tensor_error_text());
        tensor_clear_error();
        free(copy);
    }
}
static void damaged_files(void) {
    const char *const names[3] = {"a", "layer.b", "c"};
    const nn_metadata_t meta[1] = {{"key", "value \"quoted\" \\ \n"}};
    tensor_t *list[3], *file;
    list[0] = tensor_ones(2, 3);
    list[1] = tensor_arange(0, 3, 1, TENSOR_I64);
    list[2] = tensor_zeros_of(TENSOR_U8, 0, 4);
    file = nn_safetensors_format(names, list, 3, meta, 1);
    damaged(WEIGHTS, (const uint8_t *)tensor_data(file), (size_t)tensor_numel(file));
    file = nn_format_npy(list[0]);
    damaged(ARRAY, (const uint8_t *)tensor_data(file), (size_t)tensor_numel(file));
    file = nn_npz_format(names, list, 3);
    damaged(ARCHIVE, (const uint8_t *)tensor_data(file), (size_t)tensor_numel(file));
}

int main(void) {
#ifdef __linux__
    snprintf(path, sizeof path, "%stensor-malformed-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : "",
             (long)getpid());
#else
    snprintf(path, sizeof path, "malformed.tmp");
#endif
    RUN(refused_headers);
    RUN(refused_files);
    RUN(refused_sizes);
    RUN(many_names);
    RUN(refused_checkpoints);
    RUN(refused_npy);
    RUN(refused_npz);
    RUN(damaged_files);
    remove(path);
    printf("%ld cases of malformed files, each refused with its text\n", n_refused);
    return test_report();
}

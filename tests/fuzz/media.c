// media.c - examples/kit/readers.h and transforms.h: CIFAR, PGM and PPM, WAV, pictures by a decoder. An error
// that names the file, or as many elements as its bytes can hold
#include "fuzz.h"

#define KIT_READERS_IMPLEMENTATION
#include "../../examples/kit/readers.h"
#define KIT_TRANSFORMS_IMPLEMENTATION
#include "../../examples/kit/transforms.h"

static void media_setup(void) {}

// What a parser gave: poison and an error of the file, or at most `most` elements.
static void media_given(tensor_t *x, uint64_t most) {
    int code = tensor_error_code();
    PROMISE(tensor_is_poison(x) == (code != 0), "%s", tensor_error_text());
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_UNSUPPORTED ||
                code == TENSOR_ERR_OUT_OF_MEMORY,
            "%s", tensor_error_text());
    PROMISE(code == 0 || code == TENSOR_ERR_OUT_OF_MEMORY || strncmp(tensor_error_text(), "fuzz: ", 6) == 0,
            "%s", tensor_error_text());
    PROMISE(code != 0 || (uint64_t)tensor_numel(x) <= most, "%lld elements, %llu can be there",
            (long long)tensor_numel(x), (unsigned long long)most);
    if (code == 0) { test_hash(TEST_HASH, x); } // reads all of it
    tensor_clear_error();
}

// 1 or 2 labels, then 3072 bytes made of the rest of the input over and over: a record is longer than inputs.
static void media_cifar(bytes_t *b, int classes) {
    size_t record = classes == 10 ? 3073 : 3074, size = next_byte(b) % 4 * record + next_byte(b) % 2;
    size_t n = (size_t)(b->end - b->p);
    uint8_t *file = (uint8_t *)malloc(size + !size);
    if (!file) { abort(); }
    for (size_t i = 0; i < size; i++) { file[i] = n ? b->p[(i / record + i % record) % n] : 0; }
    kit_cifar_t c = kit_parse_cifar(file, size, "fuzz", classes);
    int good = tensor_ok();
    PROMISE(!good || tensor_numel(c.labels) * (int64_t)record == (int64_t)size, "other records");
    PROMISE(!good || (c.coarse != NULL) == (classes == 100), "coarse labels");
    media_given(c.images, size);
    free(file);
}

// A decoder that says the sizes that the file has in its first 12 bytes, and lies where they are more than
// there is memory.
static unsigned char *media_decode(const void *data, size_t size, int *width, int *height, int *channels) {
    int says[3];
    if (size < sizeof says) { return NULL; }
    memcpy(says, data, sizeof says);
    *width = says[0], *height = says[1], *channels = says[2];
    double bytes = (double)says[0] * says[1] * says[2];
    return (unsigned char *)calloc(1, bytes >= 1 && bytes <= FUZZ_MEMORY ? (size_t)bytes : 1);
}

static void media_picture(const uint8_t *data, size_t size) {
    char path[64];
    fuzz_path(path, sizeof path, "picture");
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) { abort(); }
    tensor_t *x = kit_read_image(path, media_decode, free);
    int code = tensor_error_code();
    PROMISE(tensor_is_poison(x) == (code != 0), "%s", tensor_error_text());
    PROMISE(code == 0 || code == TENSOR_ERR_FORMAT || code == TENSOR_ERR_OUT_OF_MEMORY ||
                code == TENSOR_ERR_SHAPE, "%s", tensor_error_text());
    PROMISE(code != TENSOR_ERR_FORMAT || strstr(tensor_error_text(), path), "%s", tensor_error_text());
    PROMISE(code != 0 || (tensor_ndim(x) == 3 && tensor_numel(x) <= FUZZ_MEMORY), "%lld elements",
            (long long)tensor_numel(x));
    remove(path);
}

// The first byte of an input chooses the parser.
static void media(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    unsigned kind = next_byte(&b) % 5;
    const size_t n = (size_t)(b.end - b.p);
    if (kind == 0) {
        media_given(kit_parse_pnm(b.p, n, "fuzz"), n);
    } else if (kind == 1) {
        kit_wav_t w = kit_parse_wav(b.p, n, "fuzz");
        PROMISE(!tensor_ok() || (w.bits >= 8 && w.bits <= 64), "%d bits", w.bits);
        media_given(w.samples, n);
    } else if (kind == 4) {
        media_picture(b.p, n);
    } else {
        media_cifar(&b, kind == 2 ? 10 : 100);
    }
}
FUZZ_TARGET(media, media_setup)

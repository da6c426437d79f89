// kit_device.c - the kit where another device is the default one (mirror.h): readers give tensors on the CPU,
// transforms and spectra stay where their input is, and all bits are those that the CPU gives
#define TENSOR_BACKEND
#include "mirror.h"
#include "kit.h"

#define KIT_AUDIO_IMPLEMENTATION
#include "../examples/kit/audio.h"
#define KIT_CSV_IMPLEMENTATION
#include "../examples/kit/csv.h"
#define KIT_GGUF_IMPLEMENTATION
#include "../examples/kit/gguf.h"
#define KIT_READERS_IMPLEMENTATION
#include "../examples/kit/readers.h"
#define KIT_TORCHFILE_IMPLEMENTATION
#include "../examples/kit/torchfile.h"
#define KIT_TRANSFORMS_IMPLEMENTATION
#include "../examples/kit/transforms.h"

enum { MOST = 16 };

// What each reader makes of a small file.   -> how many
static int files(tensor_t **out) {
    static const char table[] = "a,b\n1,red\n2.5,green\n", picture[] = "P5 2 1 255\nAB";
    static const unsigned char sound[] = "RIFF\50\0\0\0WAVEfmt \20\0\0\0\1\0\1\0\100\37\0\0"
                                         "\200\76\0\0\2\0\20\0data\4\0\0\0\1\2\3\4";
    static unsigned char cifar[3073];
    const char *name = "a", *classes[2];
    int n = 0, count;
    kit_csv_t *csv = kit_parse_csv(table, sizeof table - 1, "table", ',');
    out[n++] = kit_csv_numbers(csv, TENSOR_F32, &name, 1);
    out[n++] = kit_csv_classes(csv, "b", classes, 2, &count);
    kit_csv_free(csv);
    out[n++] = kit_parse_pnm(picture, sizeof picture - 1, "picture");
    out[n++] = kit_parse_wav(sound, sizeof sound - 1, "sound").samples;
    cifar[0] = 7;
    cifar[3000] = 200;
    kit_cifar_t pictures = kit_parse_cifar(cifar, sizeof cifar, "cifar", 10);
    out[n++] = pictures.images;
    out[n++] = pictures.labels;
    kit_gguf_t *g = kit_gguf_open("tests/fixtures/kit/small.gguf");
    out[n++] = kit_gguf_get(g, "f16");
    out[n++] = kit_gguf_get(g, "q8_0");
    kit_gguf_close(g);
    kit_torch_t *t = kit_torch_open("tests/fixtures/kit/every.pt");
    out[n++] = kit_torch_get(t, "transposed");
    kit_torch_close(t);
    return n;
}

static void readers(void) {
    tensor_t *want[MOST], *got[MOST];
    int n = files(want);
    tensor_set_default_device(TENSOR_CUDA);
    CHECK(files(got) == n);
    CHECK(tensor_get_default_device() == TENSOR_CUDA);
    tensor_set_default_device(TENSOR_CPU);
    CHECK_OK();
    for (int i = 0; i < n; i++) {
        CHECK_MSG(tensor_device(got[i]) == TENSOR_CPU, "file %d is elsewhere", i);
        CHECK_MSG(test_same_bits(got[i], want[i]), "file %d", i);
    }
}

// What becomes of pictures x and of sound.   -> how many
static int changes(tensor_t *x, tensor_t *sound, tensor_t *labels, tensor_t **out) {
    static const kit_affine_t limits = {30, 0.2, 10, 0.1, 0.1};
    static const double mean[3] = {0.5, 0.4, 0.3}, std[3] = {0.5, 0.25, 0.125};
    tensor_generator_t g = {5, 0};
    int n = 0;
    out[n++] = kit_normalize(x, mean, std);
    out[n++] = kit_resize(x, 3, 9, 1);
    out[n++] = kit_random_horizontal_flip(&g, x, 0.5);
    out[n++] = kit_random_crop(&g, x, 4, 4, 2);
    out[n++] = kit_random_cutout(&g, x, 3);
    out[n++] = kit_random_affine(&g, x, limits);
    out[n++] = kit_color_jitter(&g, x, 0.4, 0.4, 0.4, 0.1);
    kit_mixup_t mixed = kit_mixup(&g, x, labels, 3, 0.4);
    out[n++] = mixed.x;
    out[n++] = mixed.y;
    out[n++] = kit_irfft(kit_rfft(sound), 64);
    out[n++] = kit_mel_spectrogram(sound, 8000, 16, 4, 5);
    return n;
}

static void transforms(void) {
    static const int64_t four[4] = {0, 2, 1, 2};
    tensor_t *want[MOST], *got[MOST], *x = tensor_rand(4, 3, 5, 7), *sound = tensor_randn(2, 64);
    tensor_t *labels = tensor_from(four, TENSOR_I64, 4);
    int n = changes(x, sound, labels, want);
    for (int there = 0; there < 2; there++) {
        const int place = there ? TENSOR_CUDA : TENSOR_CPU;
        tensor_set_default_device(TENSOR_CUDA);
        CHECK(changes(tensor_to(x, place), tensor_to(sound, place), tensor_to(labels, place), got) == n);
        tensor_set_default_device(TENSOR_CPU);
        CHECK_OK();
        for (int i = 0; i < n; i++) {
            const char *of = there ? DEVICE_NAME : "the CPU";
            CHECK_MSG((int)tensor_device(got[i]) == place, "change %d of %s is elsewhere", i, of);
            CHECK_MSG(test_same_bits(off(got[i]), want[i]), "change %d of %s", i, of);
        }
    }
}

int main(void) {
    CHECK(device_start() == 0);
    RUN(readers);
    RUN(transforms);
    return test_report();
}

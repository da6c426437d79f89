// tones.c - a small network learns what a sound is like: a sine, a square, a sawtooth or noise
//
// The sounds are WAV files in memory, a fifth of a second each, of a random pitch and under some noise. The
// network sees the logarithm of their mel spectrogram. Then it judges a file, if one is given.
//
// Build: make build/tones && build/tones [file.wav]   (STEPS=150)
// Output, with the share of 200 new sounds that it gets wrong:
//   wrong 0.5 %
#include "tensor_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_AUDIO_IMPLEMENTATION
#include "kit/audio.h"
#define KIT_READERS_IMPLEMENTATION
#include "kit/readers.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

enum { RATE = 8000, SAMPLES = 1600, CLASSES = 4, HEAD = 44, BATCH = 32, TESTED = 200 };
enum { WINDOW = 256, MELS = 32 };
static const char *const class_names[CLASSES] = {"sine", "square", "sawtooth", "noise"};

// A number of 0..1 from a generator of its own, so that every sound is its seed.
static double chance(tensor_generator_t *g) {
    tensor_generator_t mine = tensor_get_generator();
    tensor_set_generator(*g);
    double x = tensor_item(tensor_rand(1));
    *g = tensor_get_generator();
    tensor_set_generator(mine);
    return x;
}

static void put(unsigned char *p, unsigned value, int bytes) {
    for (int k = 0; k < bytes; k++) { p[k] = (unsigned char)(value >> 8 * k); }
}

// A WAV file of 16 bits and one channel.
static void make_file(unsigned char *file, int kind, tensor_generator_t *g) {
    const double turn = 6.283185307179586, pitch = 200 * pow(5, chance(g)), begin = chance(g);
    tensor_generator_t mine = tensor_get_generator();
    tensor_set_generator(*g);
    const float *noise = (const float *)tensor_data(tensor_randn(SAMPLES));
    *g = tensor_get_generator();
    tensor_set_generator(mine);
    memcpy(file, "RIFF\0\0\0\0WAVEfmt \20\0\0\0\1\0\1\0", 24);
    put(file + 4, HEAD - 8 + 2 * SAMPLES, 4);
    put(file + 24, RATE, 4);
    put(file + 28, 2 * RATE, 4);
    memcpy(file + 32, "\2\0\20\0data", 8);
    put(file + 40, 2 * SAMPLES, 4);
    for (int t = 0; noise && t < SAMPLES; t++) {
        double phase = pitch * t / RATE + begin, part = phase - floor(phase), wave = sin(turn * phase);
        if (kind == 1) { wave = part < 0.5 ? 1 : -1; }
        if (kind == 2) { wave = 2 * part - 1; }
        if (kind == 3) { wave = 0; }
        double sample = 0.3 * wave + (kind == 3 ? 0.2 : 0.02) * (double)noise[t];
        put(file + HEAD + 2 * t, (unsigned)(int)(32767 * fmax(-1, fmin(1, sample))), 2);
    }
}

// Sounds [N, SAMPLES] as the network sees them: [N, 1, MELS, frames].
static tensor_t *seen(tensor_t *sounds, int64_t rate) {
    tensor_t *power = kit_mel_spectrogram(sounds, rate, WINDOW, WINDOW / 2, MELS);
    return tensor_unsqueeze(tensor_log(tensor_add_scalar(power, 1e-3)), 1);
}

// A dataset: sound `index` of an epoch is that for ever, whichever worker makes it.
static int get_sound(void *user, nn_item_t *item, void *x, void *y) {
    unsigned char file[HEAD + 2 * SAMPLES];
    int64_t kind = item->index % CLASSES;
    (void)user;
    tensor_scope_t scope = tensor_scope_begin();
    make_file(file, (int)kind, &item->generator);
    kit_wav_t wav = kit_parse_wav(file, sizeof file, "sound");
    int code = tensor_copy_out(wav.samples, x, SAMPLES * sizeof(float));
    memcpy(y, &kind, sizeof kind);
    tensor_scope_end(scope);
    return code;
}

static nn_data_loader_t *sounds(int64_t count, int64_t batch, uint64_t seed) {
    nn_dataset_t d = {0};
    d.len = count;
    d.get_item = get_sound;
    d.x_shape.ndim = 1;
    d.x_shape.dims[0] = SAMPLES;
    d.x_dtype = TENSOR_F32;
    d.y_dtype = TENSOR_I64;
    d.has_y = 1;
    return nn_data_loader(d, .batch_size = batch, .shuffle = 1, .seed = seed, .num_workers = 1);
}

static void judge(nn_module_t *net, kit_wav_t wav) {
    int64_t frames = tensor_size(wav.samples, 1), n = frames < SAMPLES ? frames : SAMPLES;
    tensor_t *first = tensor_narrow(tensor_narrow(wav.samples, 0, 0, 1), 1, 0, n);
    tensor_t *p = tensor_softmax(nn_forward(net, seen(first, wav.rate)), 1);
    for (int k = 0; k < CLASSES && tensor_ok(); k++) {
        printf("%s %.3f\n", class_names[k], tensor_item(tensor_select(p, 1, k)));
    }
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 150, 1, 1000000);
    kit_wav_t wav = {0};
    if (argc > 1) { wav = kit_read_wav(argv[1]); }
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(1);
    nn_module_t *net =
        nn_sequential(nn_conv2d(1, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_relu(), nn_max_pool2d(2),
                      nn_conv2d(8, 16, 3, .padding = 1), nn_relu(), nn_adaptive_avg_pool2d(8, 1),
                      nn_flatten(), nn_linear(128, CLASSES));
    nn_optimizer_t *opt = nn_adam(net, .lr = 3e-3);
    nn_data_loader_t *train = sounds((int64_t)steps * BATCH, BATCH, 2);
    nn_batch_t b;
    tensor_scope_t scope = tensor_scope_begin();
    for (; nn_next(train, &b); tensor_scope_reset(scope)) {
        nn_zero_grad(opt);
        tensor_backward(tensor_cross_entropy(nn_forward(net, seen(b.x, RATE)), b.y));
        nn_step(opt);
    }
    nn_eval(net);
    tensor_scope_t judging = tensor_scope_begin_no_grad();
    if (nn_next(sounds(TESTED, TESTED, 3), &b)) {
        tensor_t *wrong = tensor_ne(tensor_argmax_dim(nn_forward(net, seen(b.x, RATE)), 1, 0), b.y);
        printf("wrong %.1f %%\n", 100 * tensor_item(tensor_mean(tensor_to(wrong, TENSOR_F32))));
    }
    if (argc > 1) { judge(net, wav); }
    tensor_scope_end(judging);
    tensor_scope_end(scope);
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "tones: cannot write to stdout");
    }
    int failed = !tensor_ok();
    return tensor_shutdown() != 0 || failed;
}

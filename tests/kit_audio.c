// kit_audio.c - examples/kit/audio.h: against torch.fft and torch.stft (fixtures by
// tests/fixtures/audio.py), gradients included
#include "kit.h"

#define KIT_AUDIO_IMPLEMENTATION
#include "../examples/kit/audio.h"

static nn_safetensors_t *fixtures;

static tensor_t *get(const char *name) {
    return nn_safetensors_get(fixtures, name);
}

static tensor_t *numbered(const char *name, int n) {
    char text[20];
    snprintf(text, sizeof text, "%s%d", name, n);
    return get(text);
}

static int near(tensor_t *got, tensor_t *want, double tol) {
    return tensor_ok() && tensor_dtype(got) == tensor_dtype(want) && tensor_ndim(got) == tensor_ndim(want) &&
           tensor_allclose(got, want, tol, tol);
}

static void transforms(void) {
    static const int sizes[] = {1, 2, 7, 12, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i];
        tensor_t *x = tensor_requires_grad_(numbered("x", n), 1), *y = kit_rfft(x);
        CHECK_MSG(near(y, numbered("y", n), 1e-12), "rfft of %d", n);
        tensor_backward(tensor_sum(tensor_mul(y, numbered("w", n))));
        CHECK_MSG(near(tensor_grad(x), numbered("g", n), 1e-12), "gradient of rfft of %d", n);
        CHECK_MSG(near(kit_irfft(numbered("z", n), n), numbered("i", n), 1e-12), "irfft of %d", n);
        CHECK_MSG(near(kit_irfft(tensor_detach(y), n), tensor_detach(x), 1e-12), "back and forth, %d", n);
    }
    // A long one in f32, where angles must not lose bits: a tone is in its bin alone.
    tensor_t *tone = tensor_cos(
        tensor_mul_scalar(tensor_remainder_scalar(tensor_arange(0, 4096 * 1000, 1000, TENSOR_F32), 4096),
                          2 * 3.14159265358979 / 4096));
    tensor_t *power = kit_magnitude(kit_rfft(tone));
    CHECK(tensor_item_i64(tensor_argmax(power)) == 1000);
    CHECK_NEAR(tensor_item(tensor_select(power, 0, 1000)), 2048, 0.5);
    CHECK(tensor_item(tensor_max(tensor_at(power, ":1000"))) < 0.5);
    CHECK_POISON(kit_rfft(tensor_scalar(1, TENSOR_F32)), TENSOR_ERR_SHAPE, "kit_rfft");
    CHECK_POISON(kit_rfft(tensor_zeros(3, 0)), TENSOR_ERR_SHAPE, "kit_rfft");
    CHECK_POISON(kit_irfft(tensor_zeros(4, 2), 5), TENSOR_ERR_SHAPE, "kit_irfft");
    CHECK_POISON(kit_irfft(tensor_zeros(3, 1), 5), TENSOR_ERR_SHAPE, "kit_irfft");
    CHECK_POISON(kit_rfft(NULL), TENSOR_ERR_OWNER, NULL);
}

static void spectrograms(void) {
    static const struct {
        const char *spectrum, *grad;
        int hop, window, center;
    } cases[] = {
        {"stft_a", "grad_a", 4, 1, 1},
        {"stft_b", "grad_b", 5, 0, 1},
        {"stft_c", "grad_c", 8, 1, 0},
    };
    CHECK(near(tensor_hann_window(16, 1), get("window"), 1e-6));
    for (size_t i = 0; i < 3; i++) {
        tensor_t *x = tensor_requires_grad_(get("signal"), 1);
        tensor_t *window = cases[i].window ? tensor_hann_window(16, 1) : NULL;
        tensor_t *y = kit_stft(x, 16, cases[i].hop, window, cases[i].center);
        CHECK_MSG(near(y, get(cases[i].spectrum), 1e-6), "%s", cases[i].spectrum);
        tensor_backward(tensor_sum(kit_magnitude(y)));
        CHECK_MSG(near(tensor_grad(x), get(cases[i].grad), 1e-5), "%s", cases[i].grad);
        // One signal without the batch.
        y = kit_stft(tensor_select(get("signal"), 0, 1), 16, cases[i].hop, window, cases[i].center);
        CHECK(near(y, tensor_select(get(cases[i].spectrum), 0, 1), 1e-6));
    }
    tensor_t *x = get("signal");
    CHECK(near(kit_stft(x, 16, 0, NULL, 1), kit_stft(x, 16, 4, NULL, 1), 0));
    CHECK(near(kit_mel_filters(9, 0, 4000, 5, 8000), get("mel"), 1e-6));
    CHECK(near(kit_mel_spectrogram(x, 8000, 16, 4, 5), get("mel_spectrogram"), 1e-5));
    CHECK(near(kit_power(get("stft_a")), tensor_square(kit_magnitude(get("stft_a"))), 1e-12));
    // Silence has a gradient.
    tensor_t *silence = tensor_requires_grad_(tensor_zeros(64), 1);
    tensor_backward(tensor_sum(kit_magnitude(kit_stft(silence, 16, 4, NULL, 1))));
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_grad(silence)))) == 0);
    CHECK_POISON(kit_stft(x, 0, 4, NULL, 1), TENSOR_ERR_SHAPE, "n_fft");
    CHECK_POISON(kit_stft(x, 16, -1, NULL, 1), TENSOR_ERR_SHAPE, "hop");
    CHECK_POISON(kit_stft(x, 16, 4, tensor_ones(15), 1), TENSOR_ERR_SHAPE, "the window is not");
    CHECK_POISON(kit_stft(x, 202, 4, NULL, 1), TENSOR_ERR_SHAPE, "shorter than a window");
    CHECK_POISON(kit_stft(x, 101, 4, NULL, 0), TENSOR_ERR_SHAPE, "shorter than a window");
    CHECK_POISON(kit_stft(tensor_zeros(1, 2, 50), 16, 4, NULL, 1), TENSOR_ERR_SHAPE, "[batch, samples]");
    CHECK_POISON(kit_mel_filters(9, 100, 50, 5, 8000), TENSOR_ERR_SHAPE, "frequencies");
    CHECK_POISON(kit_mel_spectrogram(x, 8000, 16, 4, 0), TENSOR_ERR_SHAPE, "kit_mel_filters");
    CHECK_POISON(kit_mel_spectrogram(x, 8000, 0, 4, 5), TENSOR_ERR_SHAPE, "n_fft");
    CHECK_POISON(kit_mel_spectrogram(x, 8000, -1, 4, 5), TENSOR_ERR_SHAPE, "n -1 is not a length");
}

// Cosines of integers would be whole numbers.
static void integers_are_refused(void) {
    tensor_t *x = tensor_arange(0, 8, 1, TENSOR_I64), *y = tensor_zeros_of(TENSOR_I32, 5, 2);
    CHECK_POISON(kit_rfft(x), TENSOR_ERR_DTYPE, "kit_rfft: x must be of floats");
    CHECK_POISON(kit_rfft(tensor_to(x, TENSOR_U8)), TENSOR_ERR_DTYPE, "kit_rfft");
    CHECK_POISON(kit_stft(x, 4, 2, NULL, 1), TENSOR_ERR_DTYPE, "kit_stft: x must be of floats");
    CHECK_POISON(kit_mel_spectrogram(x, 8000, 4, 2, 2), TENSOR_ERR_DTYPE, "kit_stft");
    CHECK_POISON(kit_irfft(y, 8), TENSOR_ERR_DTYPE, "kit_irfft: y must be of floats");
    CHECK_POISON(kit_power(y), TENSOR_ERR_DTYPE, "kit_power: y must be of floats");
    CHECK_POISON(kit_magnitude(y), TENSOR_ERR_DTYPE, "kit_magnitude: y must be of floats");
    CHECK(tensor_dtype(kit_rfft(tensor_to(x, TENSOR_BF16))) == TENSOR_BF16);
}

// The dtype is that of the spectrum, whatever the default dtype is.
static void other_default(void) {
    CHECK(tensor_set_default_dtype(TENSOR_F64) == 0);
    CHECK(near(kit_irfft(numbered("z", 12), 12), numbered("i", 12), 1e-12));
    CHECK(near(kit_irfft(numbered("z", 7), 7), numbered("i", 7), 1e-12));
    tensor_t *x = get("signal");
    CHECK(near(kit_mel_spectrogram(x, 8000, 16, 4, 5), get("mel_spectrogram"), 1e-5));
    CHECK(tensor_set_default_dtype(TENSOR_F32) == 0);
}

int main(void) {
    fixtures = nn_safetensors_open("tests/fixtures/kit/audio.safetensors");
    CHECK(fixtures != NULL);
    RUN(transforms);
    RUN(spectrograms);
    RUN(integers_are_refused);
    RUN(other_default);
    nn_safetensors_close(fixtures);
    return test_report();
}

// audio.h - spectra of sound: rfft, stft, mel spectrograms, with gradients
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_AUDIO_IMPLEMENTATION
//   #include "kit/audio.h"
//
// A complex number is a pair (real, imaginary) in a last dim of 2, as torch.view_as_real has it. The
// transforms are products with a matrix of cosines and sines: n^2 operations for n points instead of n log
// n, which for windows of up to some thousand points a product of matrices does quickly, and its gradient
// is another product. All: floats;  -> new, in the dtype of x;  errors SHAPE, DTYPE, OUT_OF_MEMORY
#ifndef KIT_AUDIO_H
#define KIT_AUDIO_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// torch.fft.rfft along the last dim.   -> [..., n / 2 + 1, 2]
tensor_t *kit_rfft(tensor_t *x);
// torch.fft.irfft: n real numbers of which y [..., n / 2 + 1, 2] is the spectrum.   -> [..., n]
tensor_t *kit_irfft(tensor_t *y, int64_t n);
// re^2 + im^2, and the root of it: |y| [...] of y [..., 2]. The magnitude's gradient at 0 is 0.
tensor_t *kit_power(tensor_t *y);
tensor_t *kit_magnitude(tensor_t *y);

// torch.stft(x, n_fft, hop, window=window, center, return_complex).
//   x       [samples] or [batch, samples]
//   hop     samples from one frame to the next, 0 = n_fft / 4
//   window  [n_fft], NULL = all ones
//   center  1: the signal is mirrored at its ends, so that frame t is around sample t hop (PyTorch's
// default)
//   -> [..., n_fft / 2 + 1, frames, 2]
tensor_t *kit_stft(tensor_t *x, int64_t n_fft, int64_t hop, tensor_t *window, int center);

// Triangles on the mel scale of HTK, as torchaudio.functional.melscale_fbanks has them by default.
//   -> [n_freqs, n_mels] f32
tensor_t *kit_mel_filters(int64_t n_freqs, double f_min, double f_max, int64_t n_mels, int64_t sample_rate);

// Power spectrogram on the mel scale, Hann window, 0 Hz to half the rate; its logarithm feeds a network.
//   -> [..., n_mels, frames]
tensor_t *kit_mel_spectrogram(tensor_t *x, int64_t sample_rate, int64_t n_fft, int64_t hop, int64_t n_mels);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_AUDIO_IMPLEMENTATION) && !defined(KIT_AUDIO_DONE)
#define KIT_AUDIO_DONE

#include <math.h>

static const double kit_audio__pi = 3.14159265358979323846;

static tensor_t *kit_audio__fail(const char *what) {
    (tensor_raise)(TENSOR_ERR_SHAPE, what);
    return (tensor_detach)(NULL);
}

// numbers (an f64 tensor of this function's caller) as x has them.
static tensor_t *kit_audio__like(tensor_t *numbers, tensor_t *x) {
    return tensor_to(tensor_to(numbers, tensor_dtype(x)), tensor_device(x));
}

// [n, 2 (n / 2 + 1)]: cos and -sin of 2 pi j k / n side by side for each k. The product j k is taken modulo
// n, so that the angle is exact for any n.
static tensor_t *kit_audio__matrix(int64_t n, tensor_t *x) {
    const int64_t bins = n / 2 + 1, dims[2] = {n, 2 * bins};
    tensor_t *m = tensor_to(tensor_zeros_n(dims, 2, TENSOR_F64), TENSOR_CPU);
    double *to = (double *)tensor_data_mut(m);
    for (int64_t j = 0; j < n && to; j++) {
        for (int64_t k = 0; k < bins; k++, to += 2) {
            const double angle =
                2 * kit_audio__pi * (double)((uint64_t)j * (uint64_t)k % (uint64_t)n) / (double)n;
            to[0] = cos(angle);
            to[1] = -sin(angle);
        }
    }
    return kit_audio__like(m, x);
}

// The last dim of x in pairs.
static tensor_t *kit_audio__pairs(tensor_t *x) {
    int64_t pair[2] = {0, 2};
    pair[0] = tensor_ndim(x) > 0 ? tensor_size(x, -1) / 2 : 0;
    return tensor_unflatten_n(x, -1, pair, 2);
}

tensor_t *kit_rfft(tensor_t *x) {
    if (!x || tensor_is_poison(x)) { return tensor_detach(x); }
    const int64_t n = tensor_ndim(x) > 0 ? tensor_size(x, -1) : 0;
    if (n < 1 || n > 1 << 20) { return kit_audio__fail("kit_rfft: the last dim of x is not 1..2^20"); }
    return kit_audio__pairs(tensor_matmul(x, kit_audio__matrix(n, x)));
}

tensor_t *kit_irfft(tensor_t *y, int64_t n) {
    if (!y || tensor_is_poison(y)) { return tensor_detach(y); }
    const int dims = tensor_ndim(y);
    if (n < 1 || n > 1 << 20 || dims < 2 || tensor_size(y, -1) != 2 || tensor_size(y, -2) != n / 2 + 1) {
        return kit_audio__fail("kit_irfft: y is not [..., n / 2 + 1, 2]");
    }
    // All bins but the first and, of an even n, the last stand for two: theirs and the mirrored one.
    const int64_t bins[2] = {n / 2 + 1, 1};
    tensor_t *twice = tensor_to(tensor_full_n(bins, 2, 2, TENSOR_F64), TENSOR_CPU);
    double *weight = (double *)tensor_data_mut(twice);
    if (weight) { weight[0] = 1; }
    if (weight && n % 2 == 0) { weight[n / 2] = 1; }
    y = tensor_mul(y, kit_audio__like(twice, y));
    tensor_t *x = tensor_matmul(tensor_flatten(y, -2, -1), tensor_T(kit_audio__matrix(n, y)));
    return tensor_div_scalar(x, (double)n);
}

tensor_t *kit_power(tensor_t *y) {
    return tensor_sum_dim(tensor_square(y), -1, 0);
}

tensor_t *kit_magnitude(tensor_t *y) {
    return tensor_norm_dim(y, -1, 0);
}

tensor_t *kit_stft(tensor_t *x, int64_t n_fft, int64_t hop, tensor_t *window, int center) {
    if (!x || tensor_is_poison(x)) { return tensor_detach(x); }
    const int64_t half = center ? n_fft / 2 : 0, pads[2] = {half, half};
    const int64_t samples = tensor_ndim(x) > 0 ? tensor_size(x, -1) : 0;
    if (hop == 0) { hop = n_fft / 4; }
    if (n_fft < 1 || n_fft > 1 << 20 || hop < 1 || tensor_ndim(x) < 1 || tensor_ndim(x) > 2) {
        return kit_audio__fail("kit_stft: x is not [samples] or [batch, samples], or n_fft or hop is wrong");
    }
    if (samples <= half || samples + 2 * half < n_fft) {
        return kit_audio__fail("kit_stft: x is shorter than a window");
    }
    if (window && (tensor_ndim(window) != 1 || tensor_size(window, 0) != n_fft)) {
        return kit_audio__fail("kit_stft: the window is not [n_fft]");
    }
    // Reflection wants dims before the last.
    tensor_t *frames = tensor_ndim(x) == 1 ? tensor_unsqueeze(x, 0) : x;
    if (half > 0) {
        frames = tensor_squeeze(tensor_pad_n(tensor_unsqueeze(frames, 0), pads, 2, TENSOR_PAD_REFLECT, 0), 0);
    }
    frames = tensor_unfold_dim(frames, -1, n_fft, hop);
    if (window) { frames = tensor_mul(frames, kit_audio__like(window, x)); }
    tensor_t *y = tensor_transpose(kit_rfft(frames), -3, -2);
    return tensor_ndim(x) == 1 ? tensor_squeeze(y, 0) : y;
}

static double kit_audio__mel(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}
static double kit_audio__hertz(double mel) {
    return 700 * (pow(10, mel / 2595) - 1);
}

tensor_t *kit_mel_filters(int64_t n_freqs, double f_min, double f_max, int64_t n_mels, int64_t sample_rate) {
    const int64_t dims[2] = {n_freqs, n_mels};
    if (n_freqs < 2 || n_mels < 1 || sample_rate < 1 || !(f_min >= 0 && f_max > f_min)) {
        return kit_audio__fail("kit_mel_filters: sizes or frequencies are wrong");
    }
    tensor_t *t = tensor_to(tensor_zeros_n(dims, 2, TENSOR_F32), TENSOR_CPU);
    float *to = (float *)tensor_data_mut(t);
    const double low = kit_audio__mel(f_min), step = (kit_audio__mel(f_max) - low) / (double)(n_mels + 1);
    for (int64_t m = 0; m < n_mels && to; m++) {
        const double left = kit_audio__hertz(low + step * (double)m),
                     top = kit_audio__hertz(low + step * (double)(m + 1));
        const double right = kit_audio__hertz(low + step * (double)(m + 2));
        for (int64_t k = 0; k < n_freqs; k++) {
            const double f = (double)(sample_rate / 2) * (double)k / (double)(n_freqs - 1);
            const double up = (f - left) / (top - left), down = (right - f) / (right - top);
            to[k * n_mels + m] = (float)fmax(0, fmin(up, down));
        }
    }
    return t;
}

tensor_t *kit_mel_spectrogram(tensor_t *x, int64_t sample_rate, int64_t n_fft, int64_t hop, int64_t n_mels) {
    tensor_t *power = kit_power(kit_stft(x, n_fft, hop, tensor_hann_window(n_fft, 1), 1));
    tensor_t *filters = kit_mel_filters(n_fft / 2 + 1, 0, (double)(sample_rate / 2), n_mels, sample_rate);
    if (tensor_is_poison(power) || tensor_is_poison(filters)) { return tensor_detach(NULL); }
    return tensor_matmul(tensor_T(kit_audio__like(filters, power)), power);
}

#endif

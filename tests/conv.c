// conv.c - operations and modules on images: convolutions, pools, padding, columns, resampling
//
// Values: a weighted sum of all elements of the result, with its shape, as PyTorch 2.15 gives them in f64
// (the weights differ from element to element, so no two of them can be exchanged). Inputs are f(seed,
// dims...): sin(1.7 i + seed). Gradients: gradcheck and gradgradcheck. f32, f16, bf16: near the f64 result.
#include "test.h"

static tensor_t *waves(double seed, const int64_t *dims, int ndim) {
    tensor_t *x = tensor_empty_n(dims, ndim, TENSOR_F64);
    double *p = (double *)tensor_data_mut(x);
    int64_t i, n = tensor_numel(x);
    for (i = 0; i < n; i++) { p[i] = sin(1.7 * (double)i + seed); }
    return x;
}
#define f(seed, ...) waves(seed, TENSOR_DIMS(__VA_ARGS__))

static double checksum(tensor_t *y) {
    tensor_t *d = tensor_contiguous(tensor_to(y, TENSOR_F64));
    const double *p = (const double *)tensor_data(d);
    int64_t i, n = tensor_numel(d);
    double sum = 0;
    for (i = 0; i < n; i++) { sum += p[i] * (1 + sin(0.9 * (double)i)); }
    return sum;
}
static void is(tensor_t *y, const char *shape, double want, int line) {
    char text[100] = "";
    int k;
    for (k = 0; k < tensor_ndim(y); k++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", k ? "x" : "",
                 (int)tensor_size(y, k));
    }
    test_note(tensor_ok() && strcmp(text, shape) == 0, __FILE__, line, "shape %s, expected %s %s", text,
              shape, tensor_error_text());
    test_near(checksum(y), want, 1e-9 * (1 + fabs(want)), __FILE__, line, "the result");
    tensor_clear_error();
}
#define IS(y, shape, want) is((y), (shape), (want), __LINE__)

static tensor_t *unpool(tensor_t *x) {
    tensor_pair_t p = tensor_max_pool2d_with_indices(x, 2);
    return tensor_max_unpool2d(p.values, p.indices, 2, 2, .size = 9, .size_w = 8);
}
static tensor_t *unpool1(tensor_t *x) {
    tensor_pair_t p = tensor_max_pool1d_with_indices(x, 2);
    return tensor_max_unpool1d(p.values, p.indices, 2);
}
static tensor_t *padded(tensor_t *x, tensor_pad_t mode, double value, int n, int64_t a, int64_t b, int64_t c,
                        int64_t d, int64_t e, int64_t g) {
    int64_t pads[6];
    pads[0] = a;
    pads[1] = b;
    pads[2] = c;
    pads[3] = d;
    pads[4] = e;
    pads[5] = g;
    if (n == 2) { x = tensor_reshape(x, 24, 5, 4); }
    if (n == 4) { x = tensor_reshape(x, 6, 4, 5, 4); }
    return tensor_pad_n(x, pads, n, mode, value);
}

static void values(void) {
    static const int64_t image_size[4] = {2, 3, 4, 5}, volume_size[5] = {2, 3, 1, 5, 3};
    IS(tensor_conv1d(f(1, 2, 4, 9), f(2, 6, 2, 3), f(3, 6), 2, 1, 1, 2), "2x6x5", -12.6163714976);
    IS(tensor_conv1d(f(1, 4, 11), f(2, 5, 4, 4), NULL, .same = 1, .dilation = 2), "5x11", 4.01102921866);
    IS(tensor_conv2d(f(1, 2, 4, 9, 7), f(2, 6, 2, 3, 2), f(3, 6), 2, 1, 1, 2, .stride_w = 1,
       .padding_w = TENSOR_ZERO, .dilation_w = 3),
       "2x6x5x4", -40.6809385101);
    IS(tensor_conv2d(f(1, 1, 2, 5, 1200), f(2, 3, 2, 3, 5), NULL, 1, 1, .padding_w = 2),
       "1x3x5x1200", -3.52420073398);
    IS(tensor_conv1d(f(1, 1, 3, 3000), f(2, 2, 3, 7), NULL, 3, 2), "1x2x1000", 0.0155508466479);
    IS(tensor_conv3d(f(1, 2, 4, 5, 6, 7), f(2, 4, 2, 2, 3, 2), f(3, 4), 2, 1, .stride_h = 1,
       .padding_w = TENSOR_ZERO, .dilation_h = 2, .groups = 2),
       "2x4x3x4x3", 17.6135914765);
    IS(tensor_conv3d(f(1, 2, 3, 4, 4), f(2, 3, 2, 1, 1, 1), f(3, 3)), "3x3x4x4", -36.0407329967);
    IS(tensor_conv_transpose1d(f(1, 2, 4, 9), f(2, 4, 3, 3), f(3, 6), 2, 1, 1, 2, 2),
       "2x6x20", -21.0204720547);
    IS(tensor_conv_transpose1d(f(1, 1, 3, 900), f(2, 3, 2, 5), NULL, 2), "1x2x1803", -23.5586630369);
    IS(tensor_conv_transpose2d(f(1, 2, 4, 5, 6), f(2, 4, 3, 3, 2), f(3, 6), 2, 1, 1, 2,
       .padding_w = TENSOR_ZERO, .stride_w = 3, .output_padding_w = 2),
       "2x6x10x19", -380.799982839);
    IS(tensor_conv_transpose2d(f(1, 4, 5, 6), f(2, 4, 3, 1, 1), f(3, 3)), "3x5x6", -27.4451022743);
    IS(tensor_conv_transpose3d(f(1, 2, 4, 3, 4, 3), f(2, 4, 2, 2, 3, 2), f(3, 2), 2, 1, 1, .dilation_w = 2),
       "2x2x5x8x6", -413.995269147);
    IS(tensor_max_pool1d(f(1, 2, 3, 17), 3, 2, 1, 2, .ceil_mode = 1), "2x3x8", 28.7807798412);
    IS(tensor_max_pool2d(f(1, 2, 3, 9, 41), 3, .kernel_w = 2, .stride_w = 1, .stride = 2, .padding = 1,
       .ceil_mode = 1),
       "2x3x5x42", 863.032840239);
    IS(tensor_max_pool3d(f(1, 2, 2, 6, 7, 23), 2, .stride_w = 1, .stride = 2, .padding = 1, .dilation_w = 2),
       "2x2x4x4x23", 1233.24218981);
    IS(tensor_max_pool3d(f(1, 2, 6, 7, 8), 2, .kernel_h = 3), "2x3x2x4", 46.6179592837);
    IS(tensor_to(tensor_max_pool2d_with_indices(f(1, 2, 3, 9, 8), 3, 2, 1).indices, TENSOR_F64),
       "2x3x5x4", 4469.83710138);
    IS(tensor_to(tensor_max_pool1d_with_indices(f(1, 3, 9), 2).indices, TENSOR_F64), "3x4", 47.1103197991);
    IS(tensor_to(tensor_max_pool3d_with_indices(f(1, 3, 5, 4, 6), 2, 1).indices, TENSOR_F64),
       "3x4x3x5", 10886.431377);
    IS(tensor_avg_pool1d(f(1, 2, 3, 17), 3, 2, 1, .ceil_mode = 1), "2x3x9", -0.0173734688251);
    IS(tensor_avg_pool2d(f(1, 2, 3, 9, 11), 3, 2, 1, .ceil_mode = 1, .no_count_pad = 1),
       "2x3x5x6", 1.10163965124);
    IS(tensor_avg_pool2d(f(1, 2, 3, 9, 11), 3, 2, 1, .divisor_override = 5, .kernel_w = 2),
       "2x3x5x6", 0.318144778556);
    IS(tensor_avg_pool3d(f(1, 2, 3, 6, 7, 8), 3, 2, 1, .ceil_mode = 1), "2x3x4x4x5", 0.285166191053);
    IS(tensor_avg_pool3d(f(1, 2, 6, 7, 8), 3, .stride_w = 1, .padding = 1, .no_count_pad = 1),
       "2x2x3x8", -0.0347979435768);
    IS(tensor_adaptive_avg_pool1d(f(1, 2, 3, 11), 4), "2x3x4", 0.91186880584);
    IS(tensor_adaptive_avg_pool2d(f(1, 2, 3, 11, 7), 4, -1), "2x3x4x7", -0.160828197123);
    IS(tensor_adaptive_avg_pool3d(f(1, 3, 5, 11, 7), 2, 4, 9), "3x2x4x9", -0.691358132105);
    IS(tensor_adaptive_max_pool1d(f(1, 2, 3, 11), 4).values, "2x3x4", 23.2656284852);
    IS(tensor_to(tensor_adaptive_max_pool1d(f(1, 2, 3, 11), 4).indices, TENSOR_F64), "2x3x4", 139.915718961);
    IS(tensor_adaptive_max_pool2d(f(1, 2, 3, 11, 7), 4, 3).values, "2x3x4x3", 70.9389991784);
    IS(tensor_to(tensor_adaptive_max_pool2d(f(1, 2, 3, 11, 7), 4, 3).indices, TENSOR_F64),
       "2x3x4x3", 2810.78233541);
    IS(tensor_adaptive_max_pool3d(f(1, 2, 3, 5, 6, 40), 2, 4, 33).values, "2x3x2x4x33", 1429.24259735);
    IS(tensor_to(tensor_adaptive_max_pool3d(f(1, 2, 3, 5, 6, 40), 2, 4, 33).indices, TENSOR_F64),
       "2x3x2x4x33", 940827.720682);
    IS(tensor_lp_pool1d(tensor_abs(f(1, 2, 3, 11)), 3, 3, 2, 1), "2x3x5", 35.7974173716);
    IS(tensor_lp_pool2d(f(1, 2, 3, 8, 11), 2, 3, 0, 0), "2x3x2x3", 76.1985975772);
    IS(tensor_lp_pool3d(tensor_abs(f(1, 2, 5, 8, 7)), 3, 2, 3, 1), "2x2x3x3", 54.5490458589);
    IS(unpool(f(1, 2, 3, 9, 8)), "2x3x9x8", 73.1838211706);
    IS(unpool1(f(1, 3, 8)), "3x8", 6.63885677416);
    IS(tensor_pad(f(1, 2, 3, 4), 1, 2, 0, 3), "2x6x7", -1.91595456313);
    IS(tensor_pad(f(1, 2, 5, 4), -1, 2, 1, -2), "2x4x5", -0.936363304038);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REFLECT, 0, 2, 2, 1, 0, 0, 0, 0), "24x5x7", 2.83270171687);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REFLECT, 0, 4, 2, 1, 0, 3, 0, 0), "6x4x8x7", 5.25776315608);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REFLECT, 0, 6, 1, 1, 2, 0, 1, 2), "2x3x7x7x6", 2.23367979662);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REFLECT, 0, 4, -1, 2, 2, -1, 0, 0), "6x4x6x5", -0.890527695062);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REPLICATE, 0, 2, 2, 1, 0, 0, 0, 0), "24x5x7", -3.64376473246);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REPLICATE, 0, 4, 2, 1, 0, 3, 0, 0), "6x4x8x7", -4.97188847167);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REPLICATE, 0, 6, 1, 1, 2, 0, 1, 2), "2x3x7x7x6", 4.93819447447);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_REPLICATE, 0, 4, -1, 2, 2, -1, 0, 0), "6x4x6x5", 4.97791658251);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CIRCULAR, 0, 2, 2, 1, 0, 0, 0, 0), "24x5x7", 1.03976329912);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CIRCULAR, 0, 4, 2, 1, 0, 3, 0, 0), "6x4x8x7", 5.99752476693);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CIRCULAR, 0, 6, 1, 1, 2, 0, 1, 2), "2x3x7x7x6", -3.84712964296);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CIRCULAR, 0, 4, -1, 2, 2, -1, 0, 0),
       "6x4x6x5", -0.584946324645);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CONSTANT, 2.5, 2, 2, 1, 0, 0, 0, 0), "24x5x7", 1378.66007753);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CONSTANT, 2.5, 4, 2, 1, 0, 3, 0, 0), "6x4x8x7", 2582.90525836);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CONSTANT, 2.5, 6, 1, 1, 2, 0, 1, 2),
       "2x3x7x7x6", 3143.46275206);
    IS(padded(f(1, 2, 3, 4, 5, 4), TENSOR_PAD_CONSTANT, 2.5, 4, -1, 2, 2, -1, 0, 0),
       "6x4x6x5", 1078.15831888);
    IS(tensor_im2col(f(1, 2, 3, 7, 8), 3, 2, 1, 2, .kernel_w = 2), "2x18x12", 0.171450027505);
    IS(tensor_im2col(f(1, 3, 7, 8), 2), "12x42", 0.257952338523);
    IS(tensor_col2im(f(1, 2, 12, 42), 7, 2, .width = 8), "2x3x7x8", 0.311631169692);
    IS(tensor_col2im(f(1, 18, 20), 7, 3, 2, 2, 2, .width = 9), "2x7x9", -3.45921463189);
    IS(tensor_pixel_shuffle(f(1, 2, 12, 3, 4), 2), "2x3x6x8", -11.7248478576);
    IS(tensor_pixel_unshuffle(f(1, 2, 6, 4), 2), "8x3x2", -2.55584860194);
    IS(tensor_pixel_shuffle(f(1, 9, 2, 4), 3), "1x6x12", -1.90831721089);
    IS(tensor_channel_shuffle(f(1, 2, 6, 3, 2), 3), "2x6x3x2", 3.89830987686);
    IS(tensor_channel_shuffle(f(1, 2, 6, 3), 2), "2x6x3", -5.84766014051);
    IS(tensor_interpolate(f(1, 2, 3, 11), 5, .mode = TENSOR_NEAREST), "2x3x5", 4.21671161404);
    IS(tensor_interpolate(f(1, 2, 3, 11), 13, .mode = TENSOR_NEAREST), "2x3x13", 4.0624354697);
    {                                       // places are computed in f32, as PyTorch does for every dtype
        tensor_t *row = tensor_reshape(tensor_arange(0, 16, 1, TENSOR_F64), 1, 1, 16);
        tensor_t *wide = tensor_interpolate(row, .scale_factor = 2.6, .mode = TENSOR_NEAREST);
        tensor_t *same = tensor_interpolate(tensor_to(row, TENSOR_F32), .scale_factor = 2.6,
                                            .mode = TENSOR_NEAREST);
        CHECK(tensor_equal(wide, tensor_to(same, TENSOR_F64)));
    }
    IS(tensor_interpolate(f(1, 2, 3, 11), .scale_factor = 2.3, .mode = TENSOR_NEAREST),
       "2x3x25", -7.86853354859);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_NEAREST), "2x3x5x5", 10.6110286935);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_NEAREST), "2x3x13x13", 6.52578389362);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_NEAREST),
       "2x3x16x20", 11.5899878563);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 5, .mode = TENSOR_NEAREST), "2x3x5x5x5", 2.31023883097);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 13, .mode = TENSOR_NEAREST), "2x3x13x13x13", 94.7143884602);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), .scale_factor = 2.3, .mode = TENSOR_NEAREST),
       "2x3x9x11x13", 28.560194521);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_NEAREST_EXACT), "2x3x5x5", 5.03174485019);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_NEAREST_EXACT), "2x3x13x13", 12.1528215284);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_NEAREST_EXACT),
       "2x3x16x20", -31.4416489931);
    IS(tensor_interpolate(f(1, 2, 3, 11), 5, .mode = TENSOR_LINEAR), "2x3x5", -0.16298613518);
    IS(tensor_interpolate(f(1, 2, 3, 11), 13, .mode = TENSOR_LINEAR), "2x3x13", -1.04234119081);
    IS(tensor_interpolate(f(1, 2, 3, 11), .scale_factor = 2.3, .mode = TENSOR_LINEAR),
       "2x3x25", 2.96536694653);
    IS(tensor_interpolate(f(1, 2, 3, 11), 5, .mode = TENSOR_LINEAR, .align_corners = 1),
       "2x3x5", -2.01188218453);
    IS(tensor_interpolate(f(1, 2, 3, 11), 13, .mode = TENSOR_LINEAR, .align_corners = 1),
       "2x3x13", -0.552114409625);
    IS(tensor_interpolate(f(1, 2, 3, 11), .scale_factor = 2.3, .mode = TENSOR_LINEAR, .align_corners = 1),
       "2x3x25", 1.78741350818);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_BILINEAR), "2x3x5x5", -0.890275940373);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_BILINEAR), "2x3x13x13", 1.74397469355);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_BILINEAR),
       "2x3x16x20", -0.155017168651);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_BILINEAR, .align_corners = 1),
       "2x3x5x5", -0.466342987982);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_BILINEAR, .align_corners = 1),
       "2x3x13x13", -0.354848053443);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_BILINEAR, .align_corners = 1),
       "2x3x16x20", -1.23592427237);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_BICUBIC), "2x3x5x5", -0.241166960863);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_BICUBIC), "2x3x13x13", 1.78694129565);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_BICUBIC),
       "2x3x16x20", -3.54510964641);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_BICUBIC, .align_corners = 1),
       "2x3x5x5", 0.177744236848);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_BICUBIC, .align_corners = 1),
       "2x3x13x13", -1.58232046588);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 2.3, .mode = TENSOR_BICUBIC, .align_corners = 1),
       "2x3x16x20", -8.39140398979);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 5, .mode = TENSOR_TRILINEAR), "2x3x5x5x5", 0.12583276239);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 13, .mode = TENSOR_TRILINEAR), "2x3x13x13x13", 62.5833304405);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), .scale_factor = 2.3, .mode = TENSOR_TRILINEAR),
       "2x3x9x11x13", 7.0200572436);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 5, .mode = TENSOR_TRILINEAR, .align_corners = 1),
       "2x3x5x5x5", 0.218685009526);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 13, .mode = TENSOR_TRILINEAR, .align_corners = 1),
       "2x3x13x13x13", 65.2584255303);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), .scale_factor = 2.3, .mode = TENSOR_TRILINEAR,
       .align_corners = 1),
       "2x3x9x11x13", 11.9883454057);
    IS(tensor_interpolate(f(1, 2, 3, 11), 5, .mode = TENSOR_AREA), "2x3x5", 0.264661398246);
    IS(tensor_interpolate(f(1, 2, 3, 11), 13, .mode = TENSOR_AREA), "2x3x13", -0.340460464105);
    IS(tensor_interpolate(f(1, 2, 3, 11), .scale_factor = 1.5, .mode = TENSOR_AREA), "2x3x16", 0.79248265212);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 5, .mode = TENSOR_AREA), "2x3x5x5", 0.760734932515);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), 13, .mode = TENSOR_AREA), "2x3x13x13", -0.541710101828);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 1.5, .mode = TENSOR_AREA),
       "2x3x10x13", 11.8685701169);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 5, .mode = TENSOR_AREA), "2x3x5x5x5", -0.361966393915);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), 13, .mode = TENSOR_AREA), "2x3x13x13x13", 70.4036913758);
    IS(tensor_interpolate(f(1, 2, 3, 4, 5, 6), .scale_factor = 1.5, .mode = TENSOR_AREA),
       "2x3x6x7x9", -4.97927065318);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 0.6, .scale_factor_w = 1.7,
       .mode = TENSOR_BILINEAR),
       "2x3x4x15", 15.8872002934);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9), .scale_factor = 0.6, .mode = TENSOR_BICUBIC,
       .recompute_scale_factor = 1),
       "2x3x4x5", 3.305136796);
    IS(tensor_interpolate(f(1, 2, 3, 7, 9, 5), 3, .size_h = 10, .size_w = 5), "2x3x3x10x5", -2.00863190167);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_ZEROS, .align_corners = 0),
       "2x3x4x7", 0);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_ZEROS, .align_corners = 1),
       "2x3x4x7", 0.381572210208);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_BORDER, .align_corners = 0),
       "2x3x4x7", -11.2520943164);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_BORDER, .align_corners = 1),
       "2x3x4x7", -7.03734985802);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_REFLECT, .align_corners = 0),
       "2x3x4x7", 4.00613529577);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_BILINEAR, .padding_mode = TENSOR_PAD_REFLECT, .align_corners = 1),
       "2x3x4x7", 2.67022770818);
    IS(tensor_grid_sample(f(1, 2, 3, 4, 5, 6), tensor_mul_scalar(f(2, 2, 3, 4, 2, 3), 1.2),
       .mode = TENSOR_BILINEAR),
       "2x3x3x4x2", 1.24293740433);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_ZEROS, .align_corners = 0),
       "2x3x4x7", 0);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_ZEROS, .align_corners = 1),
       "2x3x4x7", 0);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_BORDER, .align_corners = 0),
       "2x3x4x7", -19.4992926919);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_BORDER, .align_corners = 1),
       "2x3x4x7", -1.43513353832);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_REFLECT, .align_corners = 0),
       "2x3x4x7", 8.22416777682);
    IS(tensor_grid_sample(f(1, 2, 3, 5, 6), tensor_mul_scalar(f(2, 2, 4, 7, 2), 1.9),
       .mode = TENSOR_NEAREST, .padding_mode = TENSOR_PAD_REFLECT, .align_corners = 1),
       "2x3x4x7", -1.59361836617);
    IS(tensor_grid_sample(f(1, 2, 3, 4, 5, 6), tensor_mul_scalar(f(2, 2, 3, 4, 2, 3), 1.2),
       .mode = TENSOR_NEAREST),
       "2x3x3x4x2", 0.618028947439);
    IS(tensor_affine_grid(f(1, 2, 2, 3), image_size, 4, 0), "2x4x5x2", 10.8453202818);
    IS(tensor_affine_grid(f(1, 2, 3, 4), volume_size, 5, 0), "2x1x5x3x3", 52.1100673414);
    IS(tensor_affine_grid(f(1, 2, 2, 3), image_size, 4, 1), "2x4x5x2", 10.5940804948);
    IS(tensor_affine_grid(f(1, 2, 3, 4), volume_size, 5, 1), "2x1x5x3x3", 51.8854071975);
}

// ---- gradients

typedef tensor_t *(*fn_t)(tensor_t *const *in, int n, void *user);
#define GRAD(name, expression)                                                                               \
    static tensor_t *name(tensor_t *const *in, int n, void *user) {                                          \
        (void)n;                                                                                             \
        (void)user;                                                                                          \
        return expression;                                                                                   \
    }
GRAD(g_conv1d, tensor_conv1d(in[0], in[1], in[2], 2, 1, 2, 2))
GRAD(g_conv2d, tensor_conv2d(in[0], in[1], in[2], 2, 1, .groups = 2, .stride_w = 1, .dilation_w = 2))
GRAD(g_conv2d_same, tensor_conv2d(in[0], in[1], NULL, .same = 1))
GRAD(g_conv3d, tensor_conv3d(in[0], in[1], in[2], 1, 1, .stride_h = 2))
GRAD(g_conv_t1d, tensor_conv_transpose1d(in[0], in[1], in[2], 2, 1, 1, 2))
GRAD(g_conv_t2d, tensor_conv_transpose2d(in[0], in[1], in[2], 2, 1, 1, .dilation_w = 2))
GRAD(g_conv_t3d, tensor_conv_transpose3d(in[0], in[1], in[2]))
GRAD(g_max1, tensor_max_pool1d(in[0], 3, 2, 1, 1, .ceil_mode = 1))
GRAD(g_max3, tensor_max_pool3d(in[0], 2, 1))
GRAD(g_avg1, tensor_avg_pool1d(in[0], 3, 2, 1, .ceil_mode = 1))
GRAD(g_avg3, tensor_avg_pool3d(in[0], 2, 1, 1, .no_count_pad = 1))
GRAD(g_adaptive_avg, tensor_adaptive_avg_pool3d(in[0], 2, 2, 3))
GRAD(g_adaptive_max, tensor_adaptive_max_pool2d(tensor_reshape(in[0], 4, 4, 5), 2, 3).values)
GRAD(g_lp, tensor_lp_pool1d(tensor_abs(in[0]), 3, 2, 0, 0))
GRAD(g_unpool, unpool1(in[0]))
GRAD(g_pad, tensor_pad(in[0], 1, -1, 2, 0))
GRAD(g_reflect, padded(in[0], TENSOR_PAD_REFLECT, 0, 6, 2, 1, 1, 2, 0, 0))
GRAD(g_circular, padded(in[0], TENSOR_PAD_CIRCULAR, 0, 6, 2, 1, 1, 2, 0, 0))
GRAD(g_im2col, tensor_im2col(tensor_reshape(in[0], 4, 4, 5), 2, 1, 1, 2))
GRAD(g_col2im, tensor_col2im(in[0], 3, 2, .padding = 1, .width = 2))
GRAD(g_shuffle, tensor_pixel_shuffle(in[0], 2))
GRAD(g_bilinear, tensor_interpolate(in[0], 5, .mode = TENSOR_BILINEAR))
GRAD(g_bicubic, tensor_interpolate(in[0], .scale_factor = 1.4, .mode = TENSOR_BICUBIC))
GRAD(g_nearest, tensor_interpolate(in[0], .scale_factor = 2))
GRAD(g_grid, tensor_grid_sample(in[0], in[1], .padding_mode = TENSOR_PAD_BORDER))
GRAD(g_grid_zeros, tensor_grid_sample(in[0], in[1], .align_corners = 1))
GRAD(g_grid_reflect, tensor_grid_sample(in[0], in[1], .padding_mode = TENSOR_PAD_REFLECT))

static void check_grad(const char *name, fn_t fn, tensor_t *a, tensor_t *b, tensor_t *c) {
    tensor_t *in[3];
    int n = c ? 3 : b ? 2 : 1, k;
    in[0] = a;
    in[1] = b;
    in[2] = c;
    for (k = 0; k < n; k++) { tensor_requires_grad_(in[k], 1); }
    CHECK_MSG(tensor_gradcheck(fn, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s: %s", name, tensor_error_text());
    tensor_clear_error();
    CHECK_MSG(tensor_gradgradcheck(fn, NULL, in, n, 1e-6, 1e-5, 1e-3) == 0, "%s, second: %s", name,
              tensor_error_text());
    tensor_clear_error();
}
#define CHECK_GRAD(fn, a, b, c) check_grad(#fn, fn, a, b, c)

static void gradients(void) {
    tensor_t *volume = f(1, 1, 4, 4, 5), *image = f(1, 1, 2, 3, 4);
    CHECK_GRAD(g_conv1d, f(1, 2, 4, 7), f(2, 4, 2, 3), f(3, 4));
    CHECK_GRAD(g_conv2d, f(1, 1, 4, 5, 4), f(2, 4, 2, 2, 2), f(3, 4));
    CHECK_GRAD(g_conv2d, tensor_transpose(f(1, 1, 4, 4, 5), 2, 3), f(2, 4, 2, 2, 2), f(3, 4));
    CHECK_GRAD(g_conv2d_same, f(1, 2, 4, 5), f(2, 2, 2, 2, 3), NULL);
    CHECK_GRAD(g_conv3d, f(1, 1, 2, 2, 3, 3), f(2, 2, 2, 2, 2, 1), f(3, 2));
    CHECK_GRAD(g_conv_t1d, f(1, 2, 4, 4), f(2, 4, 2, 3), f(3, 4));
    CHECK_GRAD(g_conv_t2d, f(1, 1, 2, 3, 3), f(2, 2, 2, 3, 2), f(3, 2));
    CHECK_GRAD(g_conv_t2d, f(1, 2, 3, 3), f(2, 2, 2, 1, 2), f(3, 2));
    CHECK_GRAD(g_conv_t3d, f(1, 1, 2, 2, 2, 2), f(2, 2, 1, 2, 1, 2), f(3, 1));
    CHECK_GRAD(g_max1, f(1, 2, 2, 7), NULL, NULL);
    CHECK_GRAD(g_max3, volume, NULL, NULL);
    CHECK_GRAD(g_avg1, f(1, 2, 2, 7), NULL, NULL);
    CHECK_GRAD(g_avg3, volume, NULL, NULL);
    CHECK_GRAD(g_adaptive_avg, volume, NULL, NULL);
    CHECK_GRAD(g_adaptive_max, volume, NULL, NULL);
    CHECK_GRAD(g_lp, f(1, 2, 2, 6), NULL, NULL);
    CHECK_GRAD(g_unpool, f(1, 2, 6), NULL, NULL);
    CHECK_GRAD(g_pad, volume, NULL, NULL);
    CHECK(tensor_requires_grad(tensor_pad(tensor_requires_grad_(tensor_zeros(0, 3), 1), 1, 1, 2, 0)));
    CHECK(tensor_requires_grad(tensor_pad(tensor_requires_grad_(tensor_zeros(2, 1), 1), 0, -1)));
    CHECK_GRAD(g_reflect, volume, NULL, NULL);
    CHECK_GRAD(g_circular, volume, NULL, NULL);
    CHECK_GRAD(g_im2col, volume, NULL, NULL);
    CHECK_GRAD(g_col2im, f(1, 2, 8, 12), NULL, NULL);
    CHECK_GRAD(g_shuffle, f(1, 8, 2, 2), NULL, NULL);
    CHECK_GRAD(g_bilinear, image, NULL, NULL);
    CHECK_GRAD(g_bicubic, image, NULL, NULL);
    CHECK_GRAD(g_nearest, image, NULL, NULL);
    CHECK_GRAD(g_grid, image, tensor_mul_scalar(f(2, 1, 2, 3, 2), 1.3), NULL);
    CHECK_GRAD(g_grid_zeros, image, tensor_mul_scalar(f(2, 1, 2, 3, 2), 0.7), NULL);
    CHECK_GRAD(g_grid_reflect, image, tensor_mul_scalar(f(2, 1, 2, 3, 2), 1.6), NULL);
}

// ---- other dtypes, layouts, empty batches, threads

// Each takes an image [2, 4, 6, 8] (any layout) and a weight [4, 4, 3, 3].
static tensor_t *apply(int which, tensor_t *x, tensor_t *w) {
    tensor_t *line = tensor_reshape(x, tensor_size(x, 0), 8, 24), *box = tensor_unsqueeze(x, 2);
    tensor_t *w1 = tensor_reshape(w, 2, 8, 9);
    switch (which) {
    case 0: return tensor_conv2d(x, w, NULL, 1, 1);
    case 1: return tensor_conv1d(line, tensor_narrow(w1, 2, 0, 2), NULL, 2, 1);
    case 2: return tensor_conv3d(box, tensor_unsqueeze(w, 2), NULL, 2, 1);
    case 3: return tensor_conv_transpose2d(x, w, NULL, 2, 1, 1);
    case 4: return tensor_max_pool2d(x, 3, 2, 1);
    case 5: return tensor_max_pool3d(box, 1, .kernel_h = 2, .kernel_w = 3);
    case 6: return tensor_avg_pool1d(line, 3, 2, 1);
    case 7: return tensor_avg_pool3d(box, 1, .kernel_w = 3);
    case 8: return tensor_adaptive_avg_pool2d(x, 4, 5);
    case 9: return tensor_adaptive_max_pool2d(x, 4, 5).values;
    case 10: return tensor_im2col(x, 2, 1, 1);
    case 11: return tensor_col2im(tensor_reshape(x, tensor_size(x, 0), 16, 12), 5, 2, .width = 4);
    case 12: return tensor_pad(x, 1, 2, 3, 0);
    case 13: return tensor_interpolate(x, 9, .mode = TENSOR_BILINEAR);
    case 14: return tensor_interpolate(x, 7, .mode = TENSOR_BICUBIC);
    case 15: return tensor_interpolate(x, 9);
    case 16: return tensor_pixel_shuffle(x, 2);
    case 17: return tensor_lp_pool2d(tensor_abs(x), 2, 2, 0, 0);
    case 18: return tensor_grid_sample(x, tensor_mul_scalar(tensor_narrow(tensor_narrow(x, 3, 0, 2), 1, 0, 3),
                                                            1.5));
    default: return NULL;
    }
}
enum { APPLIED = 19 };

static double difference(tensor_t *a, tensor_t *b) {
    a = tensor_to(a, TENSOR_F64);
    if (tensor_numel(a) == 0) { return 0; }
    return tensor_item(tensor_max(tensor_abs(tensor_sub(a, tensor_to(b, TENSOR_F64)))));
}

static void layouts(void) {
    static const tensor_dtype_t dtypes[3] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    static const double tolerance[3] = {2e-5, 2e-2, 2e-1};
    tensor_t *x = f(1, 2, 4, 6, 8), *w = f(2, 4, 4, 3, 3), *odd, *wide;
    int k, t;
    // The same numbers as a transposed, stepped, offset view.
    wide = tensor_zeros_of(TENSOR_F64, 8, 13, 4, 3);
    odd = tensor_permute(tensor_slice(tensor_narrow(tensor_narrow(wide, 3, 1, 2), 1, 1, 12), 1, 0, 12, 2), 3,
                         2, 1, 0);
    tensor_copy_(odd, x);
    for (k = 0; k < APPLIED; k++) {
        tensor_t *y = apply(k, x, w), *r = apply(k, odd, w);
        CHECK_MSG(test_same_bits(y, r), "%d: strided differs", k);
        for (t = 0; t < 3; t++) {
            r = apply(k, tensor_to(x, dtypes[t]), tensor_to(w, dtypes[t]));
            CHECK_MSG(tensor_dtype(r) == dtypes[t] && tensor_ok(), "%d: dtype of %s", k,
                      tensor_dtype_name(dtypes[t]));
            CHECK_MSG(difference(r, y) < tolerance[t] * (1 + tensor_item(tensor_max(tensor_abs(y)))),
                      "%d: %s is %g off", k, tensor_dtype_name(dtypes[t]), difference(r, y));
        }
        r = apply(k, tensor_narrow(x, 0, 0, 0), w);
        CHECK_MSG(tensor_ok() && tensor_numel(r) == 0 && tensor_ndim(r) == tensor_ndim(y),
                  "%d: empty batch %s", k, tensor_error_text());
        tensor_clear_error();
    }
    CHECK_POISON(tensor_conv_transpose1d(tensor_ones(1, 2, 1), tensor_ones(2, 3, 2), NULL, 1, 1),
                 TENSOR_ERR_SHAPE, "conv_transpose1d: x [1,2,1] and padding 1 leave no output");
    // Padding, shuffles and nearest neighbours take any dtype.
    odd = tensor_arange(0, 12, 1, TENSOR_I64);
    CHECK(tensor_item_i64(tensor_sum(tensor_pad_n(odd, TENSOR_DIMS(2, 3), TENSOR_PAD_CONSTANT, 7))) ==
          66 + 35);
    CHECK(tensor_dtype(tensor_pad(tensor_to(odd, TENSOR_BOOL), 1, 1)) == TENSOR_BOOL);
    CHECK(tensor_item_i64(tensor_sum(tensor_interpolate(tensor_reshape(tensor_to(odd, TENSOR_U8), 1, 1, 3, 4),
                                                        .scale_factor = 2))) == 4 * 66);
    CHECK(tensor_numel(tensor_pad(tensor_zeros(0, 2), 1, 1)) == 0);
    CHECK(tensor_item(tensor_sum(tensor_pad_n(tensor_zeros(0), TENSOR_DIMS(1, 1), TENSOR_PAD_CONSTANT, 3))) ==
          6);
    CHECK(tensor_item(tensor_pad_n(tensor_ones_n(NULL, 0, TENSOR_F32), NULL, 0, TENSOR_PAD_CONSTANT, 3)) ==
          1);
}

static void special_values(void) {
    float p[4] = {-INFINITY, NAN, 1, -INFINITY};
    tensor_t *x = tensor_from(p, TENSOR_F32, 1, 1, 4);
    tensor_pair_t r = tensor_max_pool1d_with_indices(x, 2, 1);
    CHECK(isnan(tensor_item(tensor_at(r.values, "0, 0, 0"))));
    CHECK(isnan(tensor_item(tensor_at(r.values, "0, 0, 1"))));
    CHECK(tensor_item(tensor_at(r.values, "0, 0, 2")) == 1);
    CHECK(tensor_item_i64(tensor_at(r.indices, "0, 0, 1")) == 1);
    r = tensor_max_pool1d_with_indices(tensor_full(-INFINITY, 1, 1, 4), 2, 2);
    CHECK(tensor_item_i64(tensor_at(r.indices, "0, 0, 1")) == 2);
    CHECK(tensor_dtype(r.indices) == TENSOR_I64);
    // A dilation larger than the image leaves windows without an element.
    x = tensor_requires_grad_(tensor_ones(1, 1, 1, 40), 1);
    r = tensor_max_pool2d_with_indices(x, 2, 1, 1, 2);
    CHECK(tensor_item(tensor_max(r.values)) == -INFINITY && tensor_item_i64(tensor_max(r.indices)) == 0);
    CHECK(tensor_backward(tensor_sum(r.values)) == 0);
}

// A convolution is linear in either factor: <gw, v> = <conv(x, v), gy>, <gx, u> = <conv(u, w), gy>. More
// channels out than lanes of a vector, fewer than terms of a sum: the weight's gradient lies on its side.
static void wide(void) {
    static const int64_t cases[][4] = {{48, 40, 1, 1}, {96, 80, 1, 2}, {5, 40, 3, 1}, {33, 32, 1, 1}};
    for (int k = 0; k < 8; k++) {
        const int64_t *c = cases[k / 2];
        tensor_dtype_t type = k & 1 ? TENSOR_F32 : TENSOR_F64;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_to(tensor_randn(3, c[0], 23, 21), type), *u = tensor_randn_like(x);
        tensor_t *w = tensor_to(tensor_randn(c[1], c[0] / c[3], c[2], c[2]), type), *v = tensor_randn_like(w);
        tensor_t *y, *gy, *in[2], *g[2];
        double left[2], right[2];
        in[0] = tensor_requires_grad_(x, 1);
        in[1] = tensor_requires_grad_(w, 1);
        y = tensor_conv2d(x, w, .groups = c[3]);
        gy = tensor_randn_like(y);
        tensor_autograd_grad(&y, 1, &gy, in, 2, g, 0);
        left[0] = tensor_item(tensor_sum(tensor_mul(g[0], u)));
        left[1] = tensor_item(tensor_sum(tensor_mul(g[1], v)));
        right[0] = tensor_item(tensor_sum(tensor_mul(tensor_conv2d(u, w, .groups = c[3]), gy)));
        right[1] = tensor_item(tensor_sum(tensor_mul(tensor_conv2d(x, v, .groups = c[3]), gy)));
        for (int i = 0; i < 2; i++) {
            CHECK_MSG(fabs(left[i] - right[i]) < (k & 1 ? 0.05 : 1e-8), "case %d, %d: %.10g, %.10g", k, i,
                      left[i], right[i]);
        }
        tensor_scope_end(scope);
    }
}

static void threads(void) {
    static tensor_t *one[APPLIED];
    tensor_t *x = tensor_to(tensor_repeat(f(1, 2, 4, 6, 8), 8, 1, 1, 1), TENSOR_F32), *y;
    tensor_t *w = tensor_to(f(2, 4, 4, 3, 3), TENSOR_F32);
    tensor_t *lx = tensor_requires_grad_(tensor_to(f(4, 9, 4, 700), TENSOR_F32), 1);
    tensor_t *lw = tensor_requires_grad_(tensor_to(f(5, 4, 3, 9), TENSOR_F32), 1), *grads[2][2], *in[2];
    int k, t;
    in[0] = lx;
    in[1] = lw;
    for (t = 0; t < 2; t++) {
        tensor_set_num_threads(t ? 4 : 1);
        for (k = 0; k < APPLIED; k++) {
            y = apply(k, x, w);
            if (!t) {
                one[k] = y;
            } else {
                CHECK_MSG(test_same_bits(one[k], y), "%d: 4 threads differ from 1", k);
            }
        }
        y = tensor_sum(tensor_square(tensor_conv_transpose1d(lx, lw, NULL, 3, 2)));
        tensor_autograd_grad(&y, 1, NULL, in, 2, grads[t], 0);
    }
    tensor_set_num_threads(1);
    CHECK(test_same_bits(grads[0][0], grads[1][0]) && test_same_bits(grads[0][1], grads[1][1]));
}

static void count_tasks(void *user, int64_t ntasks, void (*task)(void *arg, int64_t i), void *arg) {
    for (int64_t i = ntasks - 1; i >= 0; i--) { task(arg, i); }
    *(int64_t *)user += ntasks;
}
// One small image keeps two threads busy, packing and summing, forward and backward.
static void one_image(void) {
    tensor_t *x = tensor_randn(1, 64, 14, 14), *w = tensor_randn(160, 64, 3, 3), *y[2][2];
    int64_t n = 0;
    for (int t = 0; t < 2; t++) {
        if (t) { CHECK(tensor_set_parallel_for(count_tasks, &n, 2) == 0); }
        y[t][0] = tensor_conv2d(x, w, .stride = 2, .padding = 1);
        y[t][1] = tensor_conv_transpose2d(x, tensor_transpose(w, 0, 1), .padding = 1, .dilation = 2);
    }
    CHECK(tensor_set_parallel_for(NULL, NULL, 1) == 0);
    CHECK_MSG(n >= 8, "%d tasks", (int)n);
    CHECK(test_same_bits(y[0][0], y[1][0]) && test_same_bits(y[0][1], y[1][1]));
}

static void count_jobs(void *user, int64_t ntasks, void (*task)(void *arg, int64_t i), void *arg) {
    for (int64_t i = ntasks - 1; i >= 0; i--) { task(arg, i); }
    ++*(int64_t *)user;
}
// Threads of a convolution by tiles meet twice, behind the kernels and at the end: what one of them wrote no
// other reads. Blocks may end inside of an image, and differ in size.
static void own_blocks(void) {
    static const int64_t kernel[2] = {5, 3};
    for (int k = 0; k < 2; k++) {
        tensor_t *x = tensor_randn(9, 32, 26, 30), *w = tensor_randn(48, 32, kernel[k], kernel[k]), *y[2][2];
        int64_t n = 0;
        for (int t = 0; t < 2; t++) {
            if (t) { CHECK(tensor_set_parallel_for(count_jobs, &n, 2) == 0); }
            y[t][0] = tensor_conv2d(x, w, .padding = 2);
            y[t][1] = tensor_conv_transpose2d(x, tensor_transpose(w, 0, 1), .padding = 1);
        }
        CHECK(tensor_set_parallel_for(NULL, NULL, 1) == 0);
        CHECK_MSG(n <= 6, "%d jobs", (int)n);   // the weight is turned by one more
        CHECK(test_same_bits(y[0][0], y[1][0]) && test_same_bits(y[0][1], y[1][1]));
    }
}

// Winograd's error in the root mean square against that of direct sums, which fewer than 32 outputs (or
// inputs) have, and of kernels of 5 those that are not square: of the gradients and the output.
static void winograd(void) {
    static const int64_t shape[6][5] = {{2, 64, 64, 32, 3}, {8, 128, 128, 8, 3}, {3, 48, 32, 30, 3},
                                        {8, 32, 64, 12, 5}, {64, 16, 32, 14, 5}, {3, 128, 48, 8, 5}};
    int k, t, j, i;
    for (k = 0; k < 6; k++) {
        const int64_t *s = shape[k], padding = s[4] / 2;
        tensor_t *exact[3] = {NULL, NULL, NULL}, *x, *w, *g;
        double error[2][3];
        tensor_scope_t scope = tensor_scope_begin();
        tensor_manual_seed((uint64_t)k);
        x = tensor_randn(s[0], s[1], s[3], s[3]);
        w = tensor_randn(s[2], s[1], s[4], s[4]);
        g = tensor_randn(s[0], s[2], s[3], s[3]);
        for (t = 0; t < 3; t++) {   // f64; Winograd; pieces of 16 outputs, or a column of zeros more
            tensor_t *got[3] = {NULL, NULL, NULL}, *in[2], *gy = tensor_to(g, t ? TENSOR_F32 : TENSOR_F64);
            in[0] = tensor_requires_grad_(tensor_detach(tensor_to(x, t ? TENSOR_F32 : TENSOR_F64)), 1);
            in[1] = tensor_requires_grad_(tensor_detach(tensor_to(w, t ? TENSOR_F32 : TENSOR_F64)), 1);
            if (t < 2 || s[4] == 5) {
                got[2] = t < 2 ? tensor_conv2d(in[0], in[1], .padding = padding)
                               : tensor_conv2d(tensor_pad(in[0], 0, 1), tensor_pad(in[1], 0, 1),
                                               .padding = padding);
                tensor_autograd_grad(&got[2], 1, &gy, in, 2, got, 0);
            } else {
                tensor_t *list[8], *part[2], *piece, *gw[8], *gx[8];
                for (i = 0; i < s[2] / 16; i++) {
                    in[1] = tensor_requires_grad_(tensor_detach(tensor_narrow(w, 0, 16 * i, 16)), 1);
                    list[i] = tensor_conv2d(in[0], in[1], .padding = 1);
                    piece = tensor_narrow(gy, 1, 16 * i, 16);
                    tensor_autograd_grad(&list[i], 1, &piece, in, 2, part, 0);
                    gw[i] = part[1];
                }
                for (i = 0; i < s[1] / 16; i++) {   // the image's gradient is a convolution, too
                    gx[i] = tensor_conv_transpose2d(gy, tensor_narrow(w, 1, 16 * i, 16), .padding = 1);
                }
                got[0] = tensor_cat_n(gx, (int)(s[1] / 16), 1);
                got[1] = tensor_cat_n(gw, (int)(s[2] / 16), 0);
                got[2] = tensor_cat_n(list, (int)(s[2] / 16), 1);
            }
            for (j = 0; j < 3; j++) {
                tensor_t *d;
                if (!t) { exact[j] = got[j]; }
                if (!t) { continue; }
                d = tensor_sub(tensor_to(got[j], TENSOR_F64), exact[j]);
                error[t - 1][j] = sqrt(tensor_item(tensor_mean(tensor_square(d))));
            }
        }
        for (j = 0; j < 3; j++) {
            CHECK_MSG(error[0][j] <= 4 * error[1][j], "%d, result %d: %g, direct %g", k, j, error[0][j],
                      error[1][j]);
        }
        tensor_scope_end(scope);
    }
}

// Convolutions with a bias and their gradients against f64, for every form of loop and its edges: outputs in
// vectors (several images in a block, several blocks of rows, part of a tile, steps), pixels in vectors,
// columns, Winograd's tiles (groups, part of a tile, a padding of 2; of 0 and 5 round a kernel of 5), single
// channels with a stride.
static void forms(void) {
    // images, channels, outputs, groups, kernel, height, width, stride, padding, dilation
    static const int64_t shape[22][10] = {
        {9, 16, 40, 1, 3, 9, 10, 1, 1, 1},  {2, 3, 32, 1, 7, 40, 37, 2, 3, 1},
        {3, 10, 48, 2, 5, 12, 11, 1, 2, 1}, {2, 16, 32, 1, 3, 40, 100, 1, 1, 1},
        {5, 8, 16, 1, 3, 15, 16, 2, 2, 2},  {17, 30, 64, 1, 3, 4, 5, 1, 1, 1},
        {2, 6, 6, 6, 3, 30, 30, 1, 1, 1},   {3, 4, 8, 4, 5, 14, 17, 1, 2, 1},
        {2, 1, 16, 1, 5, 28, 28, 1, 2, 1},  {2, 64, 1, 1, 3, 28, 28, 1, 1, 1},
        {3, 64, 96, 2, 3, 13, 43, 1, 0, 1}, {9, 48, 32, 1, 3, 7, 8, 1, 2, 1},
        {3, 6, 6, 6, 3, 14, 15, 2, 1, 1},   {2, 5, 5, 5, 5, 19, 37, 2, 2, 1},
        {2, 4, 4, 4, 3, 7, 7, 1, 2, 2},     {5, 16, 32, 1, 5, 14, 14, 1, 2, 1},
        {2, 16, 40, 1, 3, 12, 57, 2, 1, 1}, {2, 5, 5, 5, 3, 13, 20, 1, 1, 1},
        {3, 32, 64, 2, 5, 13, 43, 1, 0, 1}, {8, 16, 48, 1, 5, 3, 5, 1, 2, 1},
        {4, 32, 16, 1, 5, 6, 7, 1, 5, 1},   {16, 16, 32, 1, 5, 30, 30, 1, 2, 1}};
    int k, t, j;
    for (k = 0; k < (int)(sizeof shape / sizeof shape[0]); k++) {
        const int64_t *s = shape[k];
        tensor_t *first[4] = {NULL, NULL, NULL, NULL}, *exact[4] = {NULL, NULL, NULL, NULL};
        tensor_scope_t scope = tensor_scope_begin();
        for (t = 0; t < 3; t++) {   // f64; f32 on one thread; on three
            tensor_dtype_t dtype = t ? TENSOR_F32 : TENSOR_F64;
            tensor_t *in[3], *out[4], *y;
            tensor_set_num_threads(t == 2 ? 3 : 1);
            in[0] = tensor_requires_grad_(tensor_to(f(k + 1, s[0], s[1], s[5], s[6]), dtype), 1);
            in[1] = tensor_requires_grad_(tensor_to(f(k + 2, s[2], s[1] / s[3], s[4], s[4]), dtype), 1);
            in[2] = tensor_requires_grad_(tensor_to(f(k + 3, s[2]), dtype), 1);
            out[3] = tensor_conv2d(in[0], in[1], in[2], s[7], s[8], s[9], s[3]);
            y = tensor_sum(tensor_square(out[3]));
            tensor_autograd_grad(&y, 1, NULL, in, 3, out, 0);
            for (j = 0; j < 4; j++) {
                if (t == 0) {
                    exact[j] = out[j];
                } else if (t == 1) {
                    first[j] = out[j];
                } else {
                    CHECK_MSG(test_same_bits(first[j], out[j]), "form %d, result %d: 3 threads differ from 1",
                              k, j);
                }
                if (t == 1) {
                    CHECK_MSG(difference(out[j], exact[j]) <
                                  2e-5 * (1 + tensor_item(tensor_max(tensor_abs(exact[j])))),
                              "form %d, result %d: %g off", k, j, difference(out[j], exact[j]));
                }
            }
        }
        tensor_scope_end(scope);
    }
    tensor_set_num_threads(1);
}

// Pools of f32 choose the elements that those of f64 choose, whatever stands at the ends of rows.
static void pool_forms(void) {
    static const int64_t widths[5] = {5, 14, 28, 33, 67};
    int c, failures = 0;
    for (c = 0; c < 5 * 3 * 3 * 2 * 2; c++) {
        int64_t w = widths[c % 5], kernel = 1 + c / 5 % 3, stride = 1 + c / 15 % 3, dilation = 1 + c / 45 % 2;
        int64_t padding = c / 90 ? kernel / 2 : 0;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = tensor_to(f(c, 2, 2, 7, w), TENSOR_F32);
        tensor_pair_t a, b;
        tensor_copy_(tensor_narrow(x, 3, w - 2, 2), tensor_full(c % 2 ? NAN : -INFINITY, 2));
        a = tensor_max_pool2d_with_indices(x, kernel, stride, padding, dilation);
        b = tensor_max_pool2d_with_indices(tensor_to(x, TENSOR_F64), kernel, stride, padding, dilation);
        failures += !test_same_bits(a.values, tensor_to(b.values, TENSOR_F32)) ||
                    !test_same_bits(a.indices, b.indices);
        tensor_scope_end(scope);
    }
    CHECK_MSG(failures == 0 && tensor_ok(), "%d pools differ", failures);
}

// ---- modules

static double total(tensor_t *x) { return tensor_item(tensor_sum(tensor_to(x, TENSOR_F64))); }

static void modules(void) {
    static const char *const want =
        "Sequential(\n"
        "  (0): Conv1d(2, 4, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), groups=2)\n"
        "  (1): ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), bias=False)\n"
        "  (2): Conv3d(2, 4, kernel_size=(3, 3, 2), stride=(1, 1, 1), padding=same, padding_mode=circular)\n"
        "  (3): MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)\n"
        "  (4): AvgPool3d(kernel_size=(2, 2, 1), stride=(2, 2, 1), padding=0)\n"
        "  (5): AdaptiveAvgPool2d(output_size=(2, 3))\n"
        "  (6): Upsample(scale_factor=2.0, mode='bilinear')\n"
        "  (7): PixelShuffle(upscale_factor=2)\n"
        "  (8): ReflectionPad2d((1, 1, 1, 1))\n"
        "  (9): Unfold(kernel_size=2, dilation=1, padding=1, stride=1)\n"
        ")";
    nn_module_t *m = nn_sequential(
        nn_conv1d(2, 4, 3, 2, 1, 2, 2), nn_conv_transpose2d(2, 4, 3, 2, 0, 1, .no_bias = 1),
        nn_conv3d(2, 4, 3, .kernel_w = 2, .same = 1, .padding_mode = TENSOR_PAD_CIRCULAR),
        nn_max_pool2d(3, 2, 1), nn_avg_pool3d(2, .kernel_w = 1), nn_adaptive_avg_pool2d(2, 3),
        nn_upsample(.scale_factor = 2, .mode = TENSOR_BILINEAR), nn_pixel_shuffle(2), nn_reflection_pad2d(1),
        nn_unfold(2, .padding = 1)), *c;
    char text[2000];
    tensor_t *x, *w;
    nn_to_string(m, text, sizeof text);
    CHECK_TEXT(text, want);
    CHECK(tensor_size(nn_get(m, "1.weight"), 0) == 2 && tensor_size(nn_get(m, "1.weight"), 1) == 4);
    c = nn_clone(m);
    x = tensor_to(f(1, 1, 2, 4, 5, 6), TENSOR_F32);
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "2"), x), nn_forward(nn_get_child(c, "2"), x)));
    w = nn_get(m, "2.weight");
    CHECK(tensor_item(tensor_max(tensor_abs(w))) <= 1 / sqrt(2 * 18.0));
    // 'same' around, with PyTorch's order: the larger half at the far end.
    CHECK(
        tensor_allclose(nn_forward(nn_get_child(m, "2"), x),
                        tensor_conv3d(tensor_pad_n(x, TENSOR_DIMS(0, 1, 1, 1, 1, 1), TENSOR_PAD_CIRCULAR, 0),
                                      w, nn_get(m, "2.bias")),
                        1e-5, 1e-6));
    w = nn_get(m, "1.weight");
    x = tensor_to(f(1, 1, 2, 4, 5), TENSOR_F32);
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "1"), x), tensor_conv_transpose2d(x, w, NULL, 2, 0, 1)));
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "3"), x), tensor_max_pool2d(x, 3, 2, 1)));
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "5"), x), tensor_adaptive_avg_pool2d(x, 2, 3)));
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "6"), x),
                         tensor_interpolate(x, .scale_factor = 2, .mode = TENSOR_BILINEAR)));
    CHECK(test_same_bits(nn_forward(nn_get_child(m, "9"), x), tensor_im2col(x, 2, .padding = 1)));
    CHECK(tensor_size(nn_forward(nn_get_child(m, "8"), x), 3) == 7);
    x = nn_forward(nn_get_child(m, "4"), tensor_ones(1, 2, 4, 4, 3));
    CHECK(tensor_size(x, 4) == 3 && tensor_size(x, 2) == 2 && total(x) == 24);
    nn_free(m);
    nn_free(c);
    m = nn_sequential(nn_zero_pad2d(1), nn_constant_pad2d(1, 2), nn_replication_pad2d(1),
                      nn_pad(TENSOR_PAD_CIRCULAR, 0, 1, 0, 0, 1), nn_pixel_unshuffle(2),
                      nn_adaptive_max_pool2d(1, 1));
    x = nn_forward(m, tensor_ones(1, 1, 3, 3));
    CHECK(tensor_size(x, 1) == 4 && total(x) == 8);
    nn_free(m);
    m = nn_fold(4, 2, .stride = 2, .width = 6);
    CHECK(total(nn_forward(m, tensor_ones(1, 4, 6))) == 24);
    nn_free(m);
    m = nn_max_pool1d(2);
    CHECK(tensor_size(nn_forward(m, tensor_ones(1, 1, 7)), 2) == 3);
    nn_free(m);
    m = nn_avg_pool2d(2, 1, 1, .no_count_pad = 1);
    CHECK(total(nn_forward(m, tensor_ones(1, 1, 3, 3))) == 16);
    nn_free(m);
}

// What such a layer gives, and its copy.
static tensor_t *same_twice(nn_module_t *m, tensor_t *x) {
    nn_module_t *c = nn_clone(m);
    tensor_t *y = nn_forward(m, x);
    CHECK(test_same_bits(y, nn_forward(c, x)));
    nn_free(c);
    nn_free(m);
    return y;
}
static void function_modules(void) {
    static const char want[] =
        "Sequential(\n"
        "  (0): CircularPad2d((2, 2, 2, 2))\n"
        "  (1): LPPool2d(norm_type=3.0, kernel_size=2, stride=None, ceil_mode=True)\n"
        "  (2): LocalResponseNorm(5, alpha=0.5, beta=0.75, k=1.0)\n"
        "  (3): MaxUnpool2d(kernel_size=(2, 3), stride=(2, 3), padding=(0, 1))\n"
        "  (4): ZeroPad2d((1, 1, 1, 1))\n"
        "  (5): ConstantPad2d(padding=(1, 1, 1, 1), value=0.0)\n"
        "  (6): ConstantPad3d(padding=(1, 2, 3, 4, 5, 6), value=2.5)\n"
        "  (7): ReplicationPad1d((1, 2))\n"
        ")";
    nn_module_t *m = nn_sequential(nn_circular_pad2d(2), nn_lp_pool2d(3, 2, 0, 1),
                                   nn_local_response_norm(5, .alpha = 0.5),
                                   nn_max_unpool2d(2, .kernel_w = 3, .padding = TENSOR_ZERO, .padding_w = 1),
                                   nn_zero_pad2d(1), nn_constant_pad2d(1, 0),
                                   nn_pad_n(TENSOR_DIMS(1, 2, 3, 4, 5, 6), TENSOR_PAD_CONSTANT, 2.5),
                                   nn_pad_n(TENSOR_DIMS(1, 2), TENSOR_PAD_REPLICATE, 0));
    const int64_t sizes[3] = {5, 7, 6};
    tensor_t *x = tensor_to(tensor_abs(f(1, 2, 3, 5, 7)), TENSOR_F32), *line = tensor_select(x, 0, 0);
    tensor_t *cube = tensor_unsqueeze(x, 0), *y;
    tensor_pair_t p;
    char text[1000];
    nn_to_string(m, text, sizeof text);
    CHECK_TEXT(text, want);
    CHECK_POISON(nn_forward(m, x), TENSOR_ERR_POISONED, "module MaxUnpool2d has no forward");
    nn_free(m);
    CHECK(test_same_bits(same_twice(nn_circular_pad1d(2), x),
                         tensor_pad_n(x, TENSOR_DIMS(2, 2), TENSOR_PAD_CIRCULAR, 0)));
    CHECK(test_same_bits(same_twice(nn_circular_pad2d(1), x),
                         tensor_pad_n(x, TENSOR_DIMS(1, 1, 1, 1), TENSOR_PAD_CIRCULAR, 0)));
    CHECK(test_same_bits(same_twice(nn_circular_pad3d(1), cube),
                         tensor_pad_n(cube, TENSOR_DIMS(1, 1, 1, 1, 1, 1), TENSOR_PAD_CIRCULAR, 0)));
    CHECK(test_same_bits(same_twice(nn_lp_pool1d(1.5, 3, 2, 1), line), tensor_lp_pool1d(line, 1.5, 3, 2, 1)));
    CHECK(test_same_bits(same_twice(nn_lp_pool2d(3, 2, 0, 0), x), tensor_lp_pool2d(x, 3, 2, 0, 0)));
    CHECK(test_same_bits(same_twice(nn_lp_pool3d(2, 2, 1, 0), cube), tensor_lp_pool3d(cube, 2, 2, 1, 0)));
    CHECK(test_same_bits(same_twice(nn_local_response_norm(3, .beta = 0.5, .k = TENSOR_ZERO), x),
                         tensor_local_response_norm(x, 3, .beta = 0.5, .k = TENSOR_ZERO)));
    m = nn_max_unpool1d(2);
    p = tensor_max_pool1d_with_indices(line, 2);
    y = nn_max_unpool_forward(m, p.values, p.indices, NULL);
    CHECK(test_same_bits(y, tensor_max_unpool1d(p.values, p.indices, 2)));
    y = nn_max_unpool_forward(m, p.values, p.indices, sizes + 1);
    CHECK(test_same_bits(y, tensor_max_unpool1d(p.values, p.indices, 2, .size = 7)));
    nn_free(m);
    m = nn_max_unpool2d(2, 1);
    p = tensor_max_pool2d_with_indices(x, 2, 1);
    y = nn_max_unpool_forward(m, p.values, p.indices, NULL);
    CHECK(test_same_bits(y, tensor_max_unpool2d(p.values, p.indices, 2, 1)));
    y = nn_max_unpool_forward(m, p.values, p.indices, sizes);
    CHECK(test_same_bits(y, tensor_max_unpool2d(p.values, p.indices, 2, 1, .size = 5, .size_w = 7)));
    CHECK_POISON(tensor_max_unpool2d(p.values, p.indices, 2, 1, .size = 9), TENSOR_ERR_SHAPE,
                 "max_unpool2d: size 9 must be in 5..5 for x");
    CHECK_POISON(nn_max_unpool_forward(m, line, p.indices, NULL), TENSOR_ERR_SHAPE,
                 "max_unpool2d: x [3,5,7] and indices [2,3,4,6] must have the same shape");
    nn_free(m);
    m = nn_max_unpool3d(2, 2);
    p = tensor_max_pool3d_with_indices(tensor_abs(f(2, 1, 1, 5, 7, 6)), 2);
    y = nn_max_unpool_forward(m, p.values, p.indices, sizes);
    CHECK(test_same_bits(y, tensor_max_unpool3d(p.values, p.indices, 2, .size = 5, .size_h = 7,
                                                .size_w = 6)));
    nn_free(m);
    m = nn_relu();
    CHECK_POISON(nn_max_unpool_forward(m, line, p.indices, NULL), TENSOR_ERR_UNSUPPORTED,
                 "max_unpool_forward: the module is a ReLU, must be made by nn_max_unpool");
    nn_free(m);
    CHECK(!nn_max_unpool2d(2, 2, 2));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "max_unpool2d: padding 2 must be at most half the kernel 2");
    CHECK(!nn_max_unpool1d(2, .dilation = 2));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "max_unpool1d: dilation 2 must be 1: only max pools have a dilation");
    CHECK(!nn_lp_pool1d(2, 0, 0, 0));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lp_pool1d: kernel must be > 0 (got 0)");
    CHECK(!nn_local_response_norm(0));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "size must be > 0 (got 0)");
}

// ---- errors

static void errors(void) {
    tensor_t *x = tensor_ones(1, 4, 5, 5), *w = tensor_ones(4, 4, 3, 3), *line = tensor_ones(1, 4, 9);
    tensor_t *i64 = tensor_zeros_of(TENSOR_I64, 1, 4, 5, 5);
    nn_conv_args_t a = nn_conv_defaults();
    nn_module_t *m;
    CHECK_POISON(tensor_conv1d(x, w), TENSOR_ERR_SHAPE, "conv1d: x [1,4,5,5] must be [N, C, L] or [C, L]");
    CHECK_POISON(tensor_conv2d(x, line), TENSOR_ERR_SHAPE, "conv2d: weight [1,4,9] must have 4 dims");
    CHECK_POISON(tensor_conv2d(x, w, NULL, .groups = 3), TENSOR_ERR_SHAPE, "groups 3 must divide");
    CHECK_POISON(tensor_conv2d(x, w, NULL, .groups = 2), TENSOR_ERR_SHAPE, "must have 8 channels");
    CHECK_POISON(tensor_conv2d(x, w, tensor_ones(3)), TENSOR_ERR_SHAPE, "bias [3] must have the 4 outputs");
    CHECK_POISON(tensor_conv2d(x, w, NULL, -1), TENSOR_ERR_SHAPE, "conv2d: stride -1 must be at least 1");
    CHECK_POISON(tensor_conv2d(x, w, NULL, .stride_h = 2), TENSOR_ERR_SHAPE,
                 "conv2d: stride_h is 2, must be left out: images have 2 dims");
    CHECK_POISON(tensor_conv1d(line, line, NULL, .padding_w = 2), TENSOR_ERR_SHAPE,
                 "conv1d: padding_w is 2, must be left out: images have 1 dim");
    tensor_conv_args_t zeroed;
    memset((void *)&zeroed, 0, sizeof zeroed);
    zeroed.x = x;
    zeroed.weight = w;
    CHECK_POISON(tensor_conv2d_with(zeroed), TENSOR_ERR_SHAPE, "begins with its _defaults()");
    CHECK_POISON(tensor_conv2d(x, w, NULL, 2, .same = 1), TENSOR_ERR_SHAPE, "same needs stride 1");
    CHECK_POISON(tensor_conv2d(x, w, NULL, .dilation = 3), TENSOR_ERR_SHAPE,
                 "(7 with dilation) is larger than");
    CHECK_POISON(tensor_conv2d(i64, w), TENSOR_ERR_DTYPE, "conv2d: weight is f32, x is i64; use tensor_to");
    CHECK_POISON(tensor_conv2d(tensor_to(i64, TENSOR_BOOL), w), TENSOR_ERR_DTYPE,
                 "x [1,4,5,5] is bool, must be a float or an integer");
    CHECK_POISON(tensor_conv_transpose2d(x, tensor_ones(3, 4, 3, 3)), TENSOR_ERR_SHAPE,
                 "must have 3 channels");
    CHECK_POISON(tensor_conv_transpose2d(x, w, NULL, 2, 0, 2), TENSOR_ERR_SHAPE,
                 "output_padding 2 must be below the stride 2 or the dilation 1");
    CHECK_POISON(tensor_conv_transpose2d(x, w, NULL, 1, 9), TENSOR_ERR_SHAPE, "leave no output");
    CHECK_POISON(tensor_max_pool2d(tensor_ones(3, 4), 2), TENSOR_ERR_SHAPE,
                 "max_pool2d: x [3,4] must be [N, C, H, W] or [C, H, W]");
    CHECK_POISON(tensor_max_pool2d(x, 2, 2, 2), TENSOR_ERR_SHAPE,
                 "padding 2 must be at most half the kernel 2");
    CHECK_POISON(tensor_max_pool1d(line, 10), TENSOR_ERR_SHAPE, "kernel 10 does not fit into x [1,4,9]");
    CHECK_POISON(tensor_max_pool3d_with_indices(line, 2).indices, TENSOR_ERR_SHAPE,
                 "max_pool3d_with_indices: x [1,4,9] must be");
    CHECK_POISON(tensor_avg_pool2d(x, 0), TENSOR_ERR_SHAPE, "avg_pool2d: kernel 0 must be at least 1");
    CHECK_POISON(tensor_adaptive_avg_pool2d(tensor_ones(1, 2, 0, 3), 2, 2), TENSOR_ERR_SHAPE, "are empty");
    CHECK_POISON(tensor_max_unpool2d(x, NULL, 2), TENSOR_ERR_OWNER, "max_unpool2d: argument indices is NULL");
    CHECK_POISON(tensor_max_unpool2d(x, tensor_ones_of(TENSOR_I64, 1, 4, 5), 2), TENSOR_ERR_SHAPE,
                 "must have the same shape");
    CHECK_POISON(tensor_max_unpool2d(x, tensor_add_scalar(i64, 100), 2), TENSOR_ERR_INDEX, "");
    CHECK_POISON(tensor_pad(x, 1), TENSOR_ERR_SHAPE, "pad: 1 numbers for x [1,4,5,5]");
    CHECK_POISON(tensor_pad_n(x, NULL, 2, TENSOR_PAD_CONSTANT, 0), TENSOR_ERR_SHAPE,
        "pad: pads is NULL, must have 2");
    CHECK_POISON(tensor_pad(x, -3, -3), TENSOR_ERR_SHAPE, "pad: -3 and -3 do not fit dim 3");
    CHECK_POISON(tensor_pad_n(x, TENSOR_DIMS(-5, 2), TENSOR_PAD_CIRCULAR, 0), TENSOR_ERR_SHAPE,
                 "pad: nothing is left of dim 3 of x [1,4,5,5]");
    CHECK_POISON(tensor_pad_n(x, TENSOR_DIMS(5, 0), TENSOR_PAD_REFLECT, 0), TENSOR_ERR_SHAPE,
                 "at most 4 for dim 3");
    CHECK_POISON(tensor_pad_n(x, TENSOR_DIMS(6, 0), TENSOR_PAD_CIRCULAR, 0), TENSOR_ERR_SHAPE,
                 "at most 5 for dim 3");
    CHECK_POISON(tensor_pad(NULL, 1, 1), TENSOR_ERR_OWNER, "pad: argument x is NULL");
    CHECK_POISON(tensor_im2col(x, 6), TENSOR_ERR_SHAPE, "im2col: kernel 6 does not fit into an image of 5");
    CHECK_POISON(tensor_col2im(line, 5, 2), TENSOR_ERR_SHAPE,
                 "col2im: x [1,4,9] must have a multiple of 4 rows and 16 columns");
    CHECK_POISON(tensor_pixel_shuffle(x, 3), TENSOR_ERR_SHAPE, "pixel_shuffle: x [1,4,5,5] must be");
    CHECK_POISON(tensor_interpolate(x), TENSOR_ERR_SHAPE,
                 "interpolate: size 0, scale_factor 0: exactly one of them must be positive (size_h, size_w");
    CHECK_POISON(tensor_interpolate(x, .scale_factor = NAN), TENSOR_ERR_SHAPE,
        "scale_factor nan: exactly one");
    CHECK_POISON(tensor_interpolate(x, .scale_factor = 2, .scale_factor_w = NAN), TENSOR_ERR_SHAPE,
                 "interpolate: scale_factor_w nan");
    CHECK_POISON(tensor_interpolate(x, -2), TENSOR_ERR_SHAPE, "interpolate: size -2");
    CHECK_POISON(tensor_interpolate(x, 3, .align_corners = 1), TENSOR_ERR_SHAPE,
                 "interpolate: align_corners has no meaning for mode nearest; x [1,4,5,5]");
    CHECK_POISON(tensor_interpolate(x, .scale_factor = 1e20), TENSOR_ERR_SHAPE,
                 "interpolate: dim 2 of x [1,4,5,5] times scale_factor 1e+20 is too large");
    CHECK_POISON(tensor_adaptive_avg_pool2d(tensor_ones(9), 2, 2), TENSOR_ERR_SHAPE,
                 "adaptive_avg_pool2d: avg_pool2d: x [");
    CHECK_POISON(tensor_interpolate(x, 3, .mode = TENSOR_LINEAR), TENSOR_ERR_SHAPE,
                 "mode linear does not take x");
    CHECK_POISON(tensor_interpolate(x, .scale_factor = 1e-9), TENSOR_ERR_SHAPE,
                 "dim 2 of x [1,4,5,5] cannot");
    CHECK_POISON(tensor_interpolate(i64, 3, .mode = TENSOR_BILINEAR), TENSOR_ERR_DTYPE, "must be a float");
    CHECK_POISON(tensor_grid_sample(x, tensor_ones(1, 2, 2, 3)), TENSOR_ERR_SHAPE,
                 "grid_sample: x [1,4,5,5] must");
    CHECK_POISON(tensor_affine_grid(x, TENSOR_DIMS(1, 2, 3, 4), 0), TENSOR_ERR_SHAPE, "affine_grid: theta");
    // A zero after the positional arguments is noticed, as another number is.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Winitializer-overrides"
#elif defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
    CHECK_POISON(tensor_max_pool2d(x, 2, 2, 0, 1, 0), TENSOR_ERR_SHAPE,
                 "max_pool2d: too many positional arguments");
    CHECK(nn_linear(2, 3, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "linear: too many positional arguments, options are named at conv.c:");
    CHECK(nn_conv2d(1, 2, 3, 1, 1, 1, 1, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: too many positional arguments");
    CHECK(nn_gru(2, 3, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "gru: too many positional arguments");
    CHECK(nn_batch_norm2d(4, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "batch_norm2d: too many positional arguments");
    CHECK(nn_transformer_encoder_layer(8, 2, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "transformer_encoder_layer: too many positional arguments");
    CHECK(nn_pad_n(NULL, 0, (tensor_pad_t)4, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "pad: mode must be a tensor_pad_t");
    m = nn_sequential(nn_conv2d(1, 2, 3, 2, 1), nn_max_pool2d(2, 2), nn_avg_pool2d(2, 1, 1));
    CHECK(tensor_size(nn_forward(m, tensor_ones(1, 1, 8, 8)), 3) == 3);
    nn_free(m);
    a.in_channels = 1;
    a.out_channels = 2;
    a.kernel = 3;
    a.stride = 0;
    CHECK(nn_conv2d_with(a) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: stride 0 must be at least 1");
    CHECK(nn_conv_transpose1d(3, 4, 3, .groups = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv_transpose1d: in_channels 3 must be a multiple of groups 2");
    CHECK(nn_avg_pool2d(2, .dilation = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "avg_pool2d: dilation 2 must be 1: only max pools have a dilation");
    CHECK(nn_upsample(.align_corners = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "upsample: size 0, scale_factor 0: exactly one of them must be positive");
    CHECK(nn_upsample(4, .mode = (tensor_interpolation_t)8) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "upsample: mode must be a tensor_interpolation_t (got 8)");
    CHECK(nn_conv2d(1, 2, 3, .padding_mode = (tensor_pad_t)4) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: padding_mode must be a tensor_pad_t (got 4)");
    CHECK(nn_conv2d(4, 3, 3, .groups = 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: out_channels 3 must be a multiple of groups 2");
    CHECK(nn_conv2d(4, 4, 3, 2, .same = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "conv2d: same needs stride 1 and no padding (got stride 2, padding 0)");
}

// Values from the edge of what is allowed end soon; a gradient of zeros is one.
static void edges(void) {
    tensor_t *x = tensor_randn(1, 4, 2), *g = tensor_requires_grad_(tensor_zeros(1, 2, 2, 2), 1);
    CHECK(tensor_allclose(tensor_local_response_norm(x, INT64_MAX, .alpha = 1e18),
                          tensor_local_response_norm(x, 9, .alpha = 9.0 * 1e18 / (double)INT64_MAX), 1e-5,
                              1e-8));
    tensor_backward(tensor_sum(tensor_grid_sample(tensor_ones(1, 1, 3, 3), g, .mode = TENSOR_NEAREST)));
    CHECK(tensor_grad(g) && tensor_item(tensor_sum(tensor_abs(tensor_grad(g)))) == 0);
    CHECK_POISON(tensor_combinations(tensor_ones(200), 100, 0), TENSOR_ERR_SHAPE, "combinations: 100 of 200");
}

// Channels of their own by 3 x 3, every width and a few heights: the last column and the last row too.
static void every_width(void) {
    int64_t w, h, stride;
    for (w = 3; w < 38; w++) {
        for (h = 3; h < 8; h++) {
            for (stride = 1; stride < 3; stride++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *x = tensor_rand(1, 2, h, w), *k = tensor_rand(2, 1, 3, 3);
                tensor_t *y = tensor_conv2d(x, k, .groups = 2, .stride = stride);
                tensor_t *z = tensor_conv2d(tensor_to(x, TENSOR_F64), tensor_to(k, TENSOR_F64), .groups = 2,
                                            .stride = stride);
                CHECK_MSG(tensor_allclose(tensor_to(y, TENSOR_F64), z, 1e-5, 1e-6), "[%d, %d], stride %d",
                          (int)h, (int)w, (int)stride);
                tensor_scope_end(s);
            }
        }
    }
}

// Windows that reach over the edge (ceil_mode) see what lies inside.
static void pool_ceil(void) {
    int64_t w, k;
    for (w = 2; w < 40; w++) {
        for (k = 2; k < 4; k++) {
            tensor_t *x = tensor_neg(tensor_rand(2, w, w)), *y;
            y = tensor_max_pool2d(x, k, .ceil_mode = 1);
            CHECK_MSG(tensor_equal(tensor_to(y, TENSOR_F64),
                                   tensor_max_pool2d(tensor_to(x, TENSOR_F64), k, .ceil_mode = 1)) &&
                          tensor_size(y, 1) == (w + k - 1) / k && tensor_item(tensor_max(y)) <= 0,
                      "%d by %d, windows of %d", (int)w, (int)w, (int)k);
        }
    }
}

// Rows of every length, whose windows lanes take together, against those of f64, taken one by one.
static void pool_rows(void) {
    int64_t w, k, stride, padding, dilation, i;
    for (w = 3; w < 75; w++) {
        for (k = 2; k < 4; k++) {
            for (stride = 1; stride < 4; stride++) {
                for (padding = 0; padding < 2; padding++) {
                    for (dilation = 1; dilation < 3; dilation++) {
                        tensor_scope_t s = tensor_scope_begin();
                        tensor_t *x = tensor_randn(2, 5, w);
                        float *p = (float *)tensor_data_mut(x);
                        tensor_pair_t a, b;
                        if ((k - 1) * dilation >= w + 2 * padding || (k - 1) * dilation >= 5) {
                            tensor_scope_end(s);
                            continue;
                        }
                        for (i = 0; i < 10 * w; i++) {
                            if (i % 7 < 3) { p[i] = -INFINITY; }
                        }
                        a = tensor_max_pool2d_with_indices(x, k, stride, padding, dilation);
                        b = tensor_max_pool2d_with_indices(tensor_to(x, TENSOR_F64), k, stride, padding,
                                                           dilation);
                        CHECK_MSG(tensor_ok() && tensor_equal(tensor_to(a.values, TENSOR_F64), b.values) &&
                                      tensor_equal(a.indices, b.indices),
                                  "row of %d, kernel %d, stride %d, padding %d, dilation %d", (int)w, (int)k,
                                  (int)stride, (int)padding, (int)dilation);
                        tensor_scope_end(s);
                    }
                }
            }
        }
    }
}

static void huge_strides(void) {
    tensor_t *x = tensor_ones(1, 1, 4, 4), *w = tensor_ones(1, 1, 2, 2), *y;
    y = tensor_conv2d(x, w, .stride = (int64_t)1 << 40, .padding = 1);
    CHECK(tensor_numel(y) == 1 && tensor_item(y) == 1);
    y = tensor_conv2d(x, w, .stride = 1, .stride_w = INT64_MAX);
    CHECK(tensor_size(y, 2) == 3 && tensor_size(y, 3) == 1);
    CHECK_POISON(tensor_conv2d(x, w, .padding = (int64_t)1 << 40, .stride = (int64_t)1 << 40),
                 TENSOR_ERR_SHAPE, "conv2d: stride");
    CHECK_POISON(tensor_interpolate(tensor_ones(1, 1, 3), 4, .size_w = 7), TENSOR_ERR_SHAPE, "size_w 7");
}

// A place at the very border has no gradient, as in PyTorch.
static void border_gradient(void) {
    const float places[] = {0.5f, 1, -1, 0, 0.25f, -0.5f};
    tensor_t *x = tensor_reshape(tensor_arange(0, 9, 1, TENSOR_F32), 1, 1, 3, 3), *g;
    g = tensor_requires_grad_(tensor_from(places, TENSOR_F32, 1, 3, 1, 2), 1);
    tensor_backward(tensor_sum(
        tensor_grid_sample(x, g, .padding_mode = TENSOR_PAD_BORDER, .align_corners = 1)));
    g = tensor_grad(g);
    CHECK_NEAR(tensor_item(tensor_at(g, "0, 0, 0, 0")), 1, 1e-6);
    CHECK(tensor_item(tensor_at(g, "0, 0, 0, 1")) == 0 && tensor_item(tensor_at(g, "0, 1, 0, 0")) == 0);
    CHECK_NEAR(tensor_item(tensor_at(g, "0, 1, 0, 1")), 3, 1e-6);
    CHECK_NEAR(tensor_item(tensor_at(g, "0, 2, 0, 1")), 3, 1e-6);
}

int main(void) {
    RUN(pool_rows);
    RUN(values);
    RUN(gradients);
    RUN(layouts);
    RUN(special_values);
    RUN(threads);
    RUN(one_image);
    RUN(wide);
    RUN(forms);
    RUN(own_blocks);
    RUN(winograd);
    RUN(pool_forms);
    RUN(modules);
    RUN(function_modules);
    RUN(huge_strides);
    RUN(border_gradient);
    RUN(errors);
    RUN(edges);
    RUN(pool_ceil);
    RUN(every_width);
    return test_report();
}

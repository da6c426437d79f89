// kit_transforms.c - examples/kit/transforms.h: each against a plain loop, the same numbers from the same
// generator
#include "kit.h"

#define KIT_TRANSFORMS_IMPLEMENTATION
#include "../examples/kit/transforms.h"

enum { N = 64, C = 3, H = 5, W = 7 };

// Element [n, c, h, w] is its own number.
static tensor_t *numbered(void) {
    return tensor_reshape(tensor_arange(0, N * C * H * W, 1, TENSOR_F32), N, C, H, W);
}

static void normalize(void) {
    const double mean[] = {1, 2, 3}, std[] = {2, 4, 0.5};
    tensor_t *x = numbered(), *y = kit_normalize(x, mean, std);
    const float *a = (const float *)tensor_data(x), *b = (const float *)tensor_data(y);
    int same = 0;
    for (int i = 0; i < N * C * H * W; i++) {
        int c = i / (H * W) % C;
        same += fabs(b[i] - (a[i] - mean[c]) / std[c]) <= 1e-3;
    }
    CHECK(same == N * C * H * W);
    // Bytes have no halves: 0.5 would be a divisor of 0.
    tensor_t *bytes = tensor_to(x, TENSOR_U8);
    CHECK_POISON(kit_normalize(bytes, mean, std), TENSOR_ERR_DTYPE, "kit_normalize: x is u8, must be floats");
    CHECK_POISON(kit_random_rotation(NULL, bytes, 10), TENSOR_ERR_DTYPE, "kit_random_affine: x is u8");
    CHECK_POISON(kit_color_jitter(NULL, bytes, 0.5, 0, 0, 0), TENSOR_ERR_DTYPE, "kit_color_jitter: x is u8");
    CHECK_POISON(kit_adjust_hue(bytes, tensor_zeros(N)), TENSOR_ERR_DTYPE, "kit_adjust_hue: x is u8");
    kit_mixup_t mixed = kit_mixup(NULL, bytes, tensor_zeros_of(TENSOR_I64, N), 2, 1);
    CHECK(tensor_is_poison(mixed.y));
    CHECK_POISON(mixed.x, TENSOR_ERR_DTYPE, "kit_mixup: x is u8");
}

static tensor_t *made_smaller(tensor_t *const *x, int n, void *user) {
    (void)user;
    return n == 1 ? kit_resize(x[0], 3, 5, 1) : NULL;
}

// Bytes are rounded. PyTorch's weights are whole numbers there, so that it is 1 off at most. The numbers are
// interpolate(x, (3, 5), mode=mode, antialias=True) of torch 2.15,
// x = ((torch.arange(126) * 37) % 256).to(torch.uint8).reshape(1, 2, 7, 9).
static void resized_bytes(void) {
    static const unsigned char of_torch[2][30] = {
        {87,  128, 133, 101, 91,  124, 110, 123, 136, 122, 155, 145, 113, 118, 159,
         114, 155, 160, 128, 118, 98,  133, 132, 124, 104, 142, 120, 101, 128, 140},
        {83,  130, 133, 103, 89,  125, 110, 123, 136, 121, 157, 143, 113, 116, 163,
         110, 157, 162, 133, 116, 99,  140, 130, 119, 105, 143, 115, 98,  131, 140}};
    unsigned char bytes[126];
    for (int i = 0; i < 126; i++) { bytes[i] = (unsigned char)(i * 37 % 256); }
    for (int bicubic = 0; bicubic < 2; bicubic++) {
        tensor_t *small = kit_resize(tensor_from(bytes, TENSOR_U8, 1, 2, 7, 9), 3, 5, bicubic);
        CHECK(tensor_dtype(small) == TENSOR_U8 && tensor_numel(small) == 30);
        const unsigned char *p = (const unsigned char *)tensor_data(small);
        for (int i = 0; p && i < 30; i++) { CHECK(abs(p[i] - of_torch[bicubic][i]) <= 1); }
    }
    // What a bicubic edge exceeds 0..255 by is cut off.
    for (int i = 0; i < 126; i++) { bytes[i] = i % 9 < 4 ? 0 : 255; }
    tensor_t *wide = kit_resize(tensor_from(bytes, TENSOR_U8, 1, 2, 7, 9), 7, 30, 1);
    CHECK(tensor_item(tensor_min(wide)) == 0 && tensor_item(tensor_max(wide)) == 255);
    CHECK(tensor_item(tensor_sum(tensor_eq_scalar(tensor_select(wide, 3, 0), 0))) == 14);
    CHECK(tensor_item(tensor_sum(tensor_eq_scalar(tensor_select(wide, 3, 29), 255))) == 14);
}

// torch.nn.functional.interpolate(a, size=size, mode=mode, antialias=True), torch 2.15, first three elements
// and sum, where a = (torch.arange(126, dtype=torch.float64) * 37 % 101 / 101).reshape(1, 2, 7, 9)
static void resizes(void) {
    static const struct {
        int height, width, bicubic;
        double first[3], sum;
    } cases[] = {
        {3, 4, 0, {0.42956152758133, 0.40626832718115, 0.469158588332701}, 11.744276469341662},
        {3, 4, 1, {0.42073267576172, 0.397308525543947, 0.474799376676838}, 11.739999020387138},
        {5, 9, 0, {0.099009900990099, 0.465346534653465, 0.498349834983498}, 44.027402740274034},
        {5, 9, 1, {0.0702304503769249, 0.436567084040291, 0.512231266510599}, 44.17679595766687},
        {10, 6, 0, {0.137376237623762, 0.54015401540154, 0.291529152915292}, 58.7664191419142},
        {10, 6, 1, {0.0931636939493594, 0.599715722846324, 0.236955755485815}, 58.965623337234376},
        {1, 2, 0, {0.515733415747361, 0.484157285161329, 0.468561435511652}, 1.956446196580069},
        {1, 2, 1, {0.515331838027944, 0.481948809438683, 0.468484153219454}, 1.9531188145664875},
    };
    static double a[126];
    for (int i = 0; i < 126; i++) { a[i] = i * 37 % 101 / 101.0; }
    tensor_t *x = tensor_from(a, TENSOR_F64, 1, 2, 7, 9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tensor_t *y = kit_resize(x, cases[i].height, cases[i].width, cases[i].bicubic);
        const double *p = (const double *)tensor_data(y);
        CHECK(tensor_size(y, 1) == 2 && tensor_size(y, 2) == cases[i].height);
        for (int k = 0; p && k < 3; k++) { CHECK_NEAR(p[k], cases[i].first[k], 1e-13); }
        CHECK_NEAR(tensor_item(tensor_sum(y)), cases[i].sum, 1e-12);
    }
    CHECK(test_same_bits(kit_resize(x, 7, 9, 0), x));
    tensor_t *w = tensor_requires_grad_(tensor_rand_of(TENSOR_F64, 1, 2, 7, 9), 1);
    CHECK_MSG(tensor_gradcheck(made_smaller, NULL, &w, 1, 0, 0, 0) == 0, "%s", tensor_error_text());
    resized_bytes();
    CHECK_POISON(kit_resize(tensor_ones_of(TENSOR_I32, 1, 1, 4, 4), 2, 2, 0), TENSOR_ERR_DTYPE,
                 "kit_resize: x is i32, must be floats");
    CHECK_POISON(kit_resize(x, 0, 3, 0), TENSOR_ERR_SHAPE, "kit_resize");
    CHECK_POISON(kit_resize(tensor_ones(2, 3), 2, 3, 0), TENSOR_ERR_SHAPE, "kit_resize");
}

static void flips(void) {
    tensor_generator_t g = {1, 0};
    for (int vertical = 0; vertical < 2; vertical++) {
        tensor_t *x = numbered();
        tensor_t *y =
            vertical ? kit_random_vertical_flip(&g, x, 0.25) : kit_random_horizontal_flip(&g, x, 0.25);
        int flipped = 0, plain = 0;
        for (int64_t n = 0; n < N; n++) {
            tensor_t *a = tensor_select(x, 0, n), *b = tensor_select(y, 0, n);
            plain += tensor_equal(a, b);
            flipped += tensor_equal(vertical ? tensor_flip(a, 1) : tensor_flip(a, 2), b);
        }
        CHECK(plain + flipped == N && flipped > 4 && flipped < 32);
        CHECK(tensor_equal(kit_random_vertical_flip(&g, x, 0), x));
        CHECK(tensor_equal(kit_random_vertical_flip(&g, x, 1), tensor_flip(x, 2)));
    }
}

static void crops(void) {
    tensor_generator_t g = {2, 0};
    tensor_t *x = tensor_add_scalar(numbered(), 1), *y = kit_random_crop(&g, x, 6, 4, 2);
    const float *a = (const float *)tensor_data(x), *b = (const float *)tensor_data(y);
    int seen[4][8] = {{0}}, places = 0;
    CHECK(tensor_size(y, 0) == N && tensor_size(y, 1) == C && tensor_size(y, 2) == 6 &&
          tensor_size(y, 3) == 4);
    for (int n = 0; n < N; n++) {
        int found = 0;
        for (int top = -2; top <= 1; top++) {
            for (int left = -2; left <= 5; left++) {
                int same = 0;
                for (int i = 0; i < C * 6 * 4; i++) {
                    int c = i / 24, r = i / 4 % 6 + top, k = i % 4 + left;
                    int inside = r >= 0 && r < H && k >= 0 && k < W;
                    same += b[n * C * 24 + i] == (inside ? a[((n * C + c) * H + r) * W + k] : 0);
                }
                if (same < C * 24) { continue; }
                found++;
                seen[top + 2][left + 2]++;
            }
        }
        CHECK(found == 1);
    }
    for (int i = 0; i < 32; i++) { places += seen[i / 8][i % 8] > 0; }
    CHECK_MSG(places > 20, "%d of 32 places drawn", places);
    CHECK(tensor_equal(kit_random_crop(&g, x, H, W, 0), x));
    CHECK_POISON(kit_random_crop(&g, x, 8, 4, 1), TENSOR_ERR_SHAPE,
                 "the window is larger than picture and padding; crop less");
    CHECK_POISON(kit_random_crop(&g, x, 1, 1, -1), TENSOR_ERR_SHAPE, "or padding < 0");
    CHECK_POISON(kit_random_crop(&g, x, 0, 4, 1), TENSOR_ERR_SHAPE, "height or width < 1");
    CHECK_POISON(kit_random_crop(&g, tensor_ones(3, 5, 5), 4, 4, 1), TENSOR_ERR_SHAPE, "not [N, C, H, W]");
    CHECK(tensor_dtype(kit_random_crop(&g, tensor_to(x, TENSOR_U8), 3, 3, 0)) == TENSOR_U8);
}

// Rows that the host copies are the bits that indexing takes, which has a gradient and serves other devices.
static void crops_both_ways(void) {
    const struct { int64_t height, width, padding; } windows[] = {
        {H, W, 0}, {H, W, 3}, {2, 3, 0}, {1, 1, 9}, {H + 4, W + 6, 3}, {3, W + 8, 4}};
    const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        const int64_t height = windows[i].height, width = windows[i].width, padding = windows[i].padding;
        tensor_t *wide = tensor_mT(tensor_randn(N, C, W, H)); // not contiguous
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
            tensor_generator_t a = {11, 0}, b = {11, 0}, c = {11, 0};
            tensor_t *x = tensor_to(wide, dtypes[k]);
            tensor_t *leaf = tensor_requires_grad_(tensor_clone(x), 1);
            tensor_t *copied = kit_random_crop(&a, x, height, width, padding);
            tensor_t *indexed = kit_random_crop(&b, leaf, height, width, padding);
            CHECK(test_same_bits(copied, tensor_detach(indexed)) && a.offset == b.offset);
            tensor_t *bytes = tensor_to(tensor_gt_scalar(x, 0), TENSOR_U8);
            CHECK(tensor_equal(kit_random_crop(&c, bytes, height, width, padding),
                               tensor_to(tensor_gt_scalar(copied, 0), TENSOR_U8)));
            tensor_backward(tensor_sum(indexed));
            tensor_t *inside = tensor_ne_scalar(copied, 0);
            CHECK(tensor_item(tensor_sum(tensor_to(tensor_grad(leaf), TENSOR_F32))) ==
                  tensor_item(tensor_sum(inside)));
        }
    }
    tensor_generator_t g = {1, 0};
    CHECK(tensor_size(kit_random_crop(&g, tensor_zeros(0, C, H, W), 3, 3, 1), 0) == 0);
    tensor_t *x = tensor_rand(2, C, H, W);
    CHECK(tensor_capture_begin(TENSOR_CPU) == TENSOR_OK);
    CHECK_POISON(kit_random_crop(NULL, x, 3, 3, 1), TENSOR_ERR_UNSUPPORTED, "capture");
    tensor_graph_free(tensor_capture_end());
    tensor_clear_error();
}

static void cutouts(void) {
    tensor_generator_t g = {3, 0};
    tensor_t *y = kit_random_cutout(&g, tensor_ones(N, C, H, W), 3);
    int zeros[10] = {0};
    for (int64_t n = 0; n < N; n++) {
        tensor_t *one = tensor_select(tensor_select(y, 0, n), 0, 0);
        int count = H * W - (int)tensor_item(tensor_sum(one));
        CHECK(tensor_equal(one, tensor_select(tensor_select(y, 0, n), 0, 2)));
        CHECK(count >= 4 && count <= 9);
        zeros[count]++;
    }
    CHECK(zeros[4] && zeros[6] && zeros[9] && !zeros[5] && !zeros[7] && !zeros[8]);
    CHECK(tensor_equal(kit_random_cutout(&g, y, 0), y));
}

static void affine(void) {
    kit_affine_t maps[N];
    tensor_t *x = tensor_randn(N, 2, 6, 6), *y;
    memset(maps, 0, sizeof maps);
    for (int i = 0; i < N; i++) {
        maps[i].scale = 1;
        maps[i].degrees = 90.0 * (i % 4);
    }
    y = kit_affine(x, maps);
    for (int64_t n = 0; n < 4; n++) {
        CHECK(
            tensor_allclose(tensor_select(y, 0, n), tensor_rot90(tensor_select(x, 0, n), n, 1, 2), 0, 1e-4));
    }
    // Moved by whole pixels: rolled, where nothing came in from outside. Not square, so that w and h
    // differ.
    x = tensor_randn(1, 1, 6, 8);
    memset(maps, 0, sizeof maps);
    maps[0].scale = 1;
    maps[0].right = 2;
    maps[0].down = -1;
    y = kit_affine(x, maps);
    CHECK(tensor_allclose(tensor_at(y, "0, 0, :5, 2:"), tensor_at(x, "0, 0, 1:, :6"), 0, 1e-5));
    CHECK_NEAR(tensor_item(tensor_sum(tensor_abs(tensor_at(y, "0, 0, :, :2")))), 0, 1e-4);
    // Twice as large: the corner pixel of the middle half is at the corner, between 0.75 and 0.25 of its
    // neighbours.
    maps[0].right = maps[0].down = 0;
    maps[0].scale = 2;
    y = kit_affine(x, maps);
    double want = 0.75 * 0.75 * tensor_item(tensor_at(x, "0, 0, 2, 3")) +
                  0.1875 * tensor_item(tensor_at(x, "0, 0, 1, 3")) +
                  0.1875 * tensor_item(tensor_at(x, "0, 0, 2, 2")) +
                  0.0625 * tensor_item(tensor_at(x, "0, 0, 1, 2"));
    CHECK_NEAR(tensor_item(tensor_at(y, "0, 0, 1, 2")), want, 1e-5);
    // Sheared by 45 degrees: rows move by their height over the centre, here 2.5, 1.5, .. to the left and
    // right.
    maps[0].scale = 1;
    maps[0].shear = 45;
    y = kit_affine(x, maps);
    for (int64_t r = 0; r < 6; r++) {
        double move = (double)r - 2.5, low = floor(-move);
        tensor_t *row = tensor_select(tensor_at(x, "0, 0"), 0, r),
                 *got = tensor_select(tensor_at(y, "0, 0"), 0, r);
        double a = tensor_item(tensor_select(row, 0, 4 + (int64_t)low)),
               b = tensor_item(tensor_select(row, 0, 5 + (int64_t)low));
        CHECK_NEAR(tensor_item(tensor_select(got, 0, 4)), (a + b) / 2, 1e-5);
    }
    // Rotated by 90 degrees where it is not square: the middle column becomes the middle row.
    maps[0].shear = 0;
    maps[0].degrees = 90;
    x = tensor_randn(1, 1, 5, 9);
    y = kit_affine(x, maps);
    CHECK(tensor_allclose(tensor_at(y, "0, 0, 2, 2:7"), tensor_at(x, "0, 0, :, 4"), 0, 1e-4));

    tensor_generator_t g = {4, 0};
    const kit_affine_t limits = {30, 0.2, 10, 0.1, 0.1}, none = {0, 0, 0, 0, 0};
    CHECK(tensor_allclose(kit_random_affine(&g, x, none), x, 0, 1e-5));
    CHECK(!tensor_allclose(kit_random_affine(&g, x, limits), kit_random_affine(&g, x, limits), 0, 1e-3));
    CHECK(!tensor_allclose(kit_random_rotation(&g, x, 45), x, 0, 1e-3));
    CHECK_POISON(kit_affine(x, NULL), TENSOR_ERR_SHAPE, "maps is NULL");
}

// Python's colorsys.
static void turn_hue(double *rgb, double turns) {
    double v = fmax(rgb[0], fmax(rgb[1], rgb[2])), low = fmin(rgb[0], fmin(rgb[1], rgb[2])), d = v - low,
           h = 0;
    if (d > 0 && v == rgb[0]) {
        h = (rgb[1] - rgb[2]) / d;
    } else if (d > 0 && v == rgb[1]) {
        h = 2 + (rgb[2] - rgb[0]) / d;
    } else if (d > 0) {
        h = 4 + (rgb[0] - rgb[1]) / d;
    }
    h = h / 6 + turns;
    h = (h - floor(h)) * 6;
    double s = v > 0 ? d / v : 0, f = h - floor(h), p = v * (1 - s), q = v * (1 - s * f),
           t = v * (1 - s * (1 - f));
    double table[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    memcpy(rgb, table[(int)h % 6], sizeof table[0]);
}

static void colours(void) {
    tensor_t *x = tensor_rand(N, 3, H, W), *turns = tensor_sub_scalar(tensor_rand(N), 0.5);
    tensor_fill_(tensor_at(x, "0"), 0.5);
    tensor_t *y = kit_adjust_hue(x, turns);
    const float *a = (const float *)tensor_data(x), *b = (const float *)tensor_data(y),
                *t = (const float *)tensor_data(turns);
    double worst = 0;
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < H * W; i++) {
            double rgb[3];
            for (int c = 0; c < 3; c++) { rgb[c] = a[(n * 3 + c) * H * W + i]; }
            turn_hue(rgb, t[n]);
            for (int c = 0; c < 3; c++) { worst = fmax(worst, fabs(rgb[c] - b[(n * 3 + c) * H * W + i])); }
        }
    }
    CHECK_NEAR(worst, 0, 1e-5);

    tensor_generator_t g = {5, 0};
    CHECK(kit_color_jitter(&g, x, 0, 0, 0, 0) == x);
    // Brightness: one factor for a picture. Contrast keeps the mean of gray, saturation the gray of each
    // pixel.
    y = tensor_div(kit_color_jitter(&g, tensor_mul_scalar(x, 0.5), 0.5, 0, 0, 0), tensor_mul_scalar(x, 0.5));
    tensor_t *low = tensor_amin_dim(tensor_flatten(y, 1, -1), 1, 0),
             *high = tensor_amax_dim(tensor_flatten(y, 1, -1), 1, 0);
    CHECK(tensor_allclose(low, high, 1e-4, 0) && tensor_item(tensor_min(low)) >= 0.5 &&
          tensor_item(tensor_max(low)) < 1.5);
    CHECK(tensor_item(tensor_std(low, 1)) > 0.2);
    tensor_t *dull = tensor_add_scalar(tensor_mul_scalar(x, 0.2), 0.4);
    CHECK(tensor_allclose(kit_transforms__gray(kit_color_jitter(&g, dull, 0, 0, 0.9, 0)),
                          kit_transforms__gray(dull), 0, 1e-4));
    const int64_t dims[] = {1, 2, 3};
    tensor_t *gray = kit_transforms__gray(kit_color_jitter(&g, dull, 0, 0.9, 0, 0));
    CHECK(tensor_allclose(tensor_mean_dims(gray, dims, 3, 0),
                          tensor_mean_dims(kit_transforms__gray(dull), dims, 3, 0), 0, 1e-4));
    y = kit_color_jitter(&g, x, 0.4, 0.4, 0.4, 0.1);
    CHECK(tensor_item(tensor_min(y)) >= -1e-6 && tensor_item(tensor_max(y)) <= 1 + 1e-6 &&
          !tensor_equal(x, y));
    CHECK_POISON(kit_color_jitter(&g, tensor_ones(2, 1, 3, 3), 0.1, 0, 0, 0), TENSOR_ERR_SHAPE,
                 "[N, 3, H, W]");
    CHECK_POISON(kit_color_jitter(&g, x, -0.1, 0, 0, 0), TENSOR_ERR_SHAPE, "a limit wrong");
    CHECK_POISON(kit_adjust_hue(tensor_ones(2, 4, 3, 3), turns), TENSOR_ERR_SHAPE, "[N, 3, H, W]");
}

static void mixes(void) {
    tensor_generator_t g = {6, 0};
    tensor_t *labels = tensor_arange(0, 4, 1, TENSOR_I64),
             *x = tensor_to(tensor_reshape(labels, 4, 1, 1, 1), TENSOR_F32);
    double sum = 0, squares = 0;
    enum { DRAWS = 2000 };
    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < DRAWS; i++, tensor_scope_reset(scope)) {
        kit_mixup_t m = kit_mixup(&g, x, labels, 4, 0.4);
        tensor_t *number = tensor_to(tensor_arange(0, 4, 1, TENSOR_I64), TENSOR_F32);
        // The picture says the classes' numbers, so that x and y must agree.
        if (i < 50) { CHECK(tensor_allclose(tensor_flatten(m.x, 0, -1), tensor_mv(m.y, number), 0, 1e-5)); }
        if (i < 50) { CHECK(tensor_allclose(tensor_sum_dim(m.y, 1, 0), tensor_ones(4), 0, 1e-6)); }
        double lambda = exp(kit_transforms__log_gamma(0.4)), other = exp(kit_transforms__log_gamma(0.4));
        lambda = lambda / (lambda + other);
        sum += lambda;
        squares += lambda * lambda;
    }
    tensor_scope_end(scope);
    // Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)).
    CHECK_NEAR(sum / DRAWS, 0.5, 0.04);
    CHECK_NEAR(squares / DRAWS - sum / DRAWS * (sum / DRAWS), 1 / (4 * 1.8), 0.015);
    sum = squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double draw = exp(kit_transforms__log_gamma(3));
        sum += draw;
        squares += draw * draw;
    }
    CHECK_NEAR(sum / DRAWS, 3, 0.15);
    CHECK_NEAR(squares / DRAWS - sum / DRAWS * (sum / DRAWS), 3, 0.5);
    CHECK_POISON(kit_mixup(&g, x, labels, 4, 0).x, TENSOR_ERR_SHAPE, "alpha");
    CHECK_POISON(kit_mixup(&g, x, labels, 3, 0.4).y, TENSOR_ERR_INDEX, NULL);
}

static tensor_t *everything(tensor_generator_t *g, tensor_t *x) {
    const kit_affine_t limits = {30, 0.2, 10, 0.1, 0.1};
    x = kit_random_crop(g, x, H, W, 1);
    x = kit_random_horizontal_flip(g, x, 0.5);
    x = kit_random_affine(g, x, limits);
    x = kit_color_jitter(g, x, 0.2, 0.2, 0.2, 0.1);
    return kit_mixup(g, kit_random_cutout(g, x, 2), tensor_zeros_of(TENSOR_I64, N), 2, 1).x;
}

static void generators(void) {
    tensor_t *x = tensor_rand(N, 3, H, W);
    tensor_generator_t a = {7, 0}, b = {7, 0}, c = {8, 0}, own = tensor_get_generator();
    tensor_t *first = everything(&a, x);
    CHECK(test_same_bits(first, everything(&b, x)) && a.offset == b.offset && a.offset > 0);
    CHECK(!test_same_bits(first, everything(&a, x)) && !test_same_bits(first, everything(&c, x)));
    CHECK(tensor_get_generator().offset == own.offset);
    tensor_manual_seed(7);
    CHECK(test_same_bits(first, everything(NULL, x)));
    CHECK_POISON(everything(&a, tensor_ones(2, 2)), TENSOR_ERR_SHAPE, "kit_random_crop");
}

// ---- files ----

static int lie, releases;

// A picture of bytes "width height pixels".
static unsigned char *decode(const void *data, size_t size, int *width, int *height, int *channels) {
    const unsigned char *p = (const unsigned char *)data;
    unsigned char *pixels = (unsigned char *)malloc(size);
    if (size < 2 || size - 2 != (size_t)p[0] * p[1] * 2) {
        free(pixels);
        return NULL;
    }
    *width = lie == 1 ? -1 : p[0];
    *height = lie == 2 ? 0 : p[1];
    *channels = lie == 3 ? 5 : 2;
    memcpy(pixels, p + 2, size - 2);
    return pixels;
}

static void release(void *p) {
    releases++;
    free(p);
}

static void decoders(void) {
    const char *path = kit_temporary("a.picture", "\2\1abcd", 6);
    tensor_t *x = kit_read_image(path, decode, release);
    CHECK(tensor_size(x, 0) == 2 && tensor_size(x, 1) == 1 && tensor_size(x, 2) == 2 &&
          tensor_dtype(x) == TENSOR_U8);
    CHECK(tensor_item(tensor_at(x, "1, 0, 0")) == 'b' && tensor_item(tensor_at(x, "0, 0, 1")) == 'c');
    for (lie = 1; lie <= 3; lie++) {
        CHECK_POISON(kit_read_image(path, decode, release), TENSOR_ERR_FORMAT, "sizes that no picture has");
    }
    CHECK(releases == 4);
    remove(path);
    CHECK_POISON(kit_read_image(path, decode, release), TENSOR_ERR_IO, path);
    CHECK_POISON(kit_read_image(path, NULL, release), TENSOR_ERR_POISONED, "kit_read_image: decode is NULL");
    path = kit_temporary("b.picture", "\2\1abc", 5);
    CHECK_POISON(kit_read_image(path, decode, release), TENSOR_ERR_FORMAT, "the decoder cannot read it");
    remove(path);
}

int main(void) {
    tensor_manual_seed(1);
    RUN(normalize);
    RUN(resizes);
    RUN(flips);
    RUN(crops);
    RUN(crops_both_ways);
    RUN(cutouts);
    RUN(affine);
    RUN(colours);
    RUN(mixes);
    RUN(generators);
    RUN(decoders);
    return test_report();
}

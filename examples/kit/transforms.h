// transforms.h - augmentation of batches of pictures, and pictures from files by a decoder of yours
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_TRANSFORMS_IMPLEMENTATION
//   #include "kit/transforms.h"
//
//   tensor_generator_t g = {seed, 0};
//   x = kit_random_crop(&g, x, 32, 32, 4);
//   x = kit_random_horizontal_flip(&g, x, 0.5);
//   x = kit_normalize(x, mean, std);
//
// All take x [N, C, H, W] and draw for each picture of the batch anew. What they draw depends on *g alone,
// which moves on; NULL = the calling thread's generator.
// All: -> new;  errors SHAPE (x is not 4-d, sizes), DTYPE, OUT_OF_MEMORY
#ifndef KIT_TRANSFORMS_H
#define KIT_TRANSFORMS_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// (x - mean) / std, one of each for every channel.
tensor_t *kit_normalize(tensor_t *x, const double *mean, const double *std);

// To another size, smoothed where it becomes smaller: torch.nn.functional.interpolate(mode="bilinear",
// antialias=True), or "bicubic". A product with a matrix for each direction, so it has a gradient.
//   x       floats, or u8, whose results are rounded (PyTorch's, in whole numbers, may be 1 off)
//   -> [N, C, height, width];  errors as above
tensor_t *kit_resize(tensor_t *x, int64_t height, int64_t width, int bicubic);

// Left becomes right (top becomes bottom) with probability p.
tensor_t *kit_random_horizontal_flip(tensor_generator_t *g, tensor_t *x, double p);
tensor_t *kit_random_vertical_flip(tensor_generator_t *g, tensor_t *x, double p);

// A window at a random place of the picture with `padding` zeros around it. On the CPU the host copies rows,
// so an x without gradient is not for a capture there (as in kit_random_affine: UNSUPPORTED).
//   -> [N, C, height, width]
tensor_t *kit_random_crop(tensor_generator_t *g, tensor_t *x, int64_t height, int64_t width, int64_t padding);

// Zeros a square of size x size with its centre anywhere in the picture; what is outside is cut off.
tensor_t *kit_random_cutout(tensor_generator_t *g, tensor_t *x, int64_t size);

// What becomes of a picture about its centre: sheared, rotated, scaled, moved.
typedef struct kit_affine_t {
    double degrees;     // counter-clockwise
    double scale;       // 1 = as large as it was
    double shear;       // degrees by which the vertical leans
    double right, down; // pixels
} kit_affine_t;
// Bilinear, zeros outside.
//   maps    N of them
tensor_t *kit_affine(tensor_t *x, const kit_affine_t *maps);
// Uniform draws: degrees and shear from -limit..limit, right and down from -limit..limit of width and height,
// scale from 1 - limits.scale..1 + limits.scale (limits.right and .down are shares, 0.1 = a tenth).
tensor_t *kit_random_affine(tensor_generator_t *g, tensor_t *x, kit_affine_t limits);
tensor_t *kit_random_rotation(tensor_generator_t *g, tensor_t *x, double degrees);

// Brightness, contrast and saturation are multiplied by uniform numbers from 1 - limit..1 + limit (not below
// 0), the hue is turned by -hue..hue of the circle, one after the other. x [N, 3, H, W] of 0..1.
tensor_t *kit_color_jitter(tensor_generator_t *g, tensor_t *x, double brightness, double contrast,
                           double saturation, double hue);
// Hue turned by turns [N] of the circle: red to green is a third.
tensor_t *kit_adjust_hue(tensor_t *x, tensor_t *turns);

typedef struct kit_mixup_t {
    tensor_t *x, *y;
} kit_mixup_t;
// Each picture mixed with another one of the batch, lambda x + (1 - lambda) x', lambda from Beta(alpha,
// alpha), for a loss that takes shares of classes (tensor_cross_entropy does).
//   labels  i64 [N]
//   -> struct of new x and y [N, classes];  errors SHAPE (alpha too), INDEX (labels)
kit_mixup_t kit_mixup(tensor_generator_t *g, tensor_t *x, tensor_t *labels, int64_t classes, double alpha);

// A decoder makes bytes of a file in memory into width * height * channels bytes, row by row; NULL = it
// cannot. With stb_image.h:
//
//   static unsigned char *decode(const void *data, size_t size, int *width, int *height, int *channels) {
//       return stbi_load_from_memory(data, (int)size, width, height, channels, 0);
//   }
//   tensor_t *picture = kit_read_image("cat.png", decode, stbi_image_free);
typedef unsigned char *(*kit_decode_image_t)(const void *data, size_t size, int *width, int *height,
                                             int *channels);
//   release for what decode returned, e.g. free
//   -> new u8 [channels, height, width];  errors IO, FORMAT (the decoder cannot, or says impossible sizes)
tensor_t *kit_read_image(const char *path, kit_decode_image_t decode, void (*release)(void *));

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_TRANSFORMS_IMPLEMENTATION) && !defined(KIT_TRANSFORMS_DONE)
#define KIT_TRANSFORMS_DONE

#include "file.h"

#include <math.h>

// ---- draws ----

// What is drawn between begin and end comes from *g. Returns the thread's own generator.
static tensor_generator_t kit_transforms__begin(const tensor_generator_t *g) {
    tensor_generator_t own = tensor_get_generator();
    if (g) { tensor_set_generator(*g); }
    return own;
}
static void kit_transforms__end(tensor_generator_t *g, tensor_generator_t own) {
    if (!g) { return; }
    *g = tensor_get_generator();
    tensor_set_generator(own);
}

// n uniform numbers of low..high beside x.
static tensor_t *kit_transforms__draw(tensor_generator_t *g, tensor_t *x, int64_t n, double low,
                                      double high) {
    tensor_generator_t own = kit_transforms__begin(g);
    tensor_t *u = tensor_rand_n(&n, 1);
    kit_transforms__end(g, own);
    return tensor_to(tensor_add_scalar(tensor_mul_scalar(u, high - low), low), tensor_device(x));
}

// Numbers [N] as [N, 1, 1, 1], in the dtype of x if that is not NULL.
static tensor_t *kit_transforms__each(tensor_t *numbers, tensor_t *x) {
    const int64_t dims[4] = {tensor_numel(numbers), 1, 1, 1};
    tensor_t *t = tensor_reshape_n(numbers, dims, 4);
    return x ? tensor_to(t, tensor_dtype(x)) : t;
}

// first, first + 1, .. as i64 along one of four dims.
static tensor_t *kit_transforms__count(tensor_t *x, int dim, int64_t n) {
    int64_t dims[4] = {1, 1, 1, 1};
    dims[dim] = n;
    tensor_t *t = tensor_arange(0, (double)n, 1, TENSOR_I64);
    return tensor_to(tensor_reshape_n(t, dims, 4), tensor_device(x));
}

// NULL, or the poison to return: x is not [N, C, H, W] or something else is wrong.
static tensor_t *kit_transforms__refuse(tensor_t *x, int wrong, const char *what) {
    if (!x || tensor_is_poison(x)) { return (tensor_detach)(x); }
    if (tensor_ndim(x) == 4 && !wrong) { return NULL; }
    (tensor_raise)(TENSOR_ERR_SHAPE, what);
    return (tensor_detach)(NULL);
}

// The same for a function whose x must be floats.
static tensor_t *kit_transforms__refuse_integers(tensor_t *x, int wrong, const char *what) {
    tensor_t *poison = kit_transforms__refuse(x, wrong, what);
    if (poison) { return poison; }
    const tensor_dtype_t dtype = tensor_dtype(x);
    if (dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16) {
        return NULL;
    }
    char text[160];
    snprintf(text, sizeof text, "%.*s: x is %s, must be floats; bytes are tensor_div_scalar(x, 255)",
             (int)strcspn(what, ":"), what, tensor_dtype_name(dtype));
    (tensor_raise)(TENSOR_ERR_DTYPE, text);
    return (tensor_detach)(NULL);
}

// ---- places ----

tensor_t *kit_normalize(tensor_t *x, const double *mean, const double *std) {
    tensor_t *poison = kit_transforms__refuse_integers(x, 0, "kit_normalize: x is not [N, C, H, W]");
    if (poison) { return poison; }
    const int64_t dims[4] = {1, tensor_size(x, 1), 1, 1};
    tensor_t *m =
        tensor_to(tensor_to(tensor_from_n(mean, TENSOR_F64, dims, 4), tensor_dtype(x)), tensor_device(x));
    tensor_t *s =
        tensor_to(tensor_to(tensor_from_n(std, TENSOR_F64, dims, 4), tensor_dtype(x)), tensor_device(x));
    return tensor_div(tensor_sub(x, m), s);
}

// How much a point at distance d from the middle counts; 0 from 1 on, of the cubic one from 2 on.
static double kit_transforms__filter(double d, int bicubic) {
    d = fabs(d);
    if (!bicubic) { return d < 1 ? 1 - d : 0; }
    if (d < 1) { return (1.5 * d - 2.5) * d * d + 1; }
    return d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0;
}

// The matrix [to, from] that makes `to` points of `from`, in dtype and on the device of x.
static tensor_t *kit_transforms__resizing(tensor_t *x, int64_t from, int64_t to, int bicubic) {
    const int64_t dims[2] = {to, from};
    tensor_t *m = tensor_zero_(kit_file__tensor(dims, 2, TENSOR_F64));
    double *row = (double *)tensor_data_mut(m);
    const double scale = (double)from / (double)to, wide = scale > 1 ? scale : 1;
    for (int64_t i = 0; row && i < to; i++, row += from) {
        const double middle = scale * ((double)i + 0.5), reach = wide * (bicubic ? 2 : 1);
        int64_t first = (int64_t)(middle - reach + 0.5), end = (int64_t)(middle + reach + 0.5);
        double sum = 0;
        if (middle - reach + 0.5 < 0) { first = 0; }
        if (end > from) { end = from; }
        for (int64_t k = first; k < end; k++) {
            row[k] = kit_transforms__filter(((double)k - middle + 0.5) / wide, bicubic);
            sum += row[k];
        }
        for (int64_t k = first; k < end; k++) { row[k] /= sum; }
    }
    return tensor_to(tensor_to(m, tensor_dtype(x)), tensor_device(x));
}

tensor_t *kit_resize(tensor_t *x, int64_t height, int64_t width, int bicubic) {
    int wrong = height < 1 || width < 1 ||
                (tensor_ndim(x) == 4 && (tensor_size(x, 2) < 1 || tensor_size(x, 3) < 1));
    static const char what[] = "kit_resize: x is not [N, C, H, W], or a size is 0";
    tensor_t *poison = kit_transforms__refuse(x, wrong, what);
    if (!poison && tensor_dtype(x) == TENSOR_U8) {
        tensor_t *y = kit_resize(tensor_to(x, TENSOR_F32), height, width, bicubic);
        return tensor_to(tensor_clamp(tensor_round(y), 0, 255), TENSOR_U8);
    }
    poison = kit_transforms__refuse_integers(x, wrong, what);
    if (poison) { return poison; }
    tensor_t *down = kit_transforms__resizing(x, tensor_size(x, 2), height, bicubic);
    tensor_t *right = kit_transforms__resizing(x, tensor_size(x, 3), width, bicubic);
    return tensor_matmul(tensor_matmul(down, x), tensor_mT(right));
}

static tensor_t *kit_transforms__flip(tensor_generator_t *g, tensor_t *x, double p, int64_t dim) {
    tensor_t *poison =
        kit_transforms__refuse(x, !(p >= 0 && p <= 1), "flip: x is not [N, C, H, W], or p not 0..1");
    if (poison) { return poison; }
    tensor_t *chosen = tensor_lt_scalar(kit_transforms__draw(g, x, tensor_size(x, 0), 0, 1), p);
    return tensor_where(kit_transforms__each(chosen, NULL), tensor_flip_n(x, &dim, 1), x);
}

tensor_t *kit_random_horizontal_flip(tensor_generator_t *g, tensor_t *x, double p) {
    return kit_transforms__flip(g, x, p, 3);
}

tensor_t *kit_random_vertical_flip(tensor_generator_t *g, tensor_t *x, double p) {
    return kit_transforms__flip(g, x, p, 2);
}

// The windows of x, which is contiguous on the CPU, row by row. y has their dims and is zeros; picture i
// begins at row top[i] and at column left[i] of x, which may be outside.
static void kit_transforms__copy_rows(tensor_t *y, tensor_t *x, const int64_t *top, const int64_t *left) {
    const int64_t pictures = tensor_size(x, 0), channels = tensor_size(x, 1);
    const int64_t rows = tensor_size(x, 2), columns = tensor_size(x, 3);
    const int64_t height = tensor_size(y, 2), width = tensor_size(y, 3);
    const size_t size = tensor_dtype_size(tensor_dtype(x));
    const char *from = (const char *)tensor_data(x);
    char *to = (char *)tensor_data_mut(y);
    for (int64_t plane = 0; plane < pictures * channels && from && to; plane++) {
        const int64_t above = top[plane / channels], before = left[plane / channels];
        const int64_t first = before < 0 ? -before : 0;                                   // column of y
        const int64_t end = before + width > columns ? columns - before : width;
        for (int64_t row = 0; row < height && first < end; row++) {
            const int64_t source = above + row;
            if (source < 0 || source >= rows) { continue; }
            memcpy(to + (size_t)((plane * height + row) * width + first) * size,
                   from + (size_t)((plane * rows + source) * columns + before + first) * size,
                   (size_t)(end - first) * size);
        }
    }
}

// The same where the host cannot copy: on other devices, and with a gradient.
static tensor_t *kit_transforms__windows(tensor_t *x, tensor_t *top, tensor_t *left, const int64_t *dims,
                                         int64_t padding) {
    const int64_t pads[4] = {padding, padding, padding, padding};
    tensor_t *padded = tensor_pad_n(x, pads, 4, TENSOR_PAD_CONSTANT, 0), *index[4];
    top = kit_transforms__each(tensor_to(top, tensor_device(x)), NULL);
    left = kit_transforms__each(tensor_to(left, tensor_device(x)), NULL);
    index[0] = kit_transforms__count(x, 0, dims[0]);
    index[1] = kit_transforms__count(x, 1, dims[1]);
    index[2] = tensor_add(top, kit_transforms__count(x, 2, dims[2]));
    index[3] = tensor_add(left, kit_transforms__count(x, 3, dims[3]));
    return tensor_index_n(padded, index, 4);
}

tensor_t *kit_random_crop(tensor_generator_t *g, tensor_t *x, int64_t height, int64_t width,
                          int64_t padding) {
    const int64_t n = tensor_ndim(x) == 4 ? tensor_size(x, 0) : 0;
    const int64_t down = tensor_ndim(x) == 4 ? tensor_size(x, 2) + 2 * padding - height : 0;
    const int64_t right = tensor_ndim(x) == 4 ? tensor_size(x, 3) + 2 * padding - width : 0;
    const int larger = down < 0 || right < 0, wrong = larger || padding < 0 || height < 1 || width < 1;
    const char *what = "kit_random_crop: x is not [N, C, H, W], height or width < 1, or padding < 0";
    if (larger) { what = "kit_random_crop: the window is larger than picture and padding; crop less"; }
    tensor_t *poison = kit_transforms__refuse(x, wrong, what);
    if (poison) { return poison; }
    const int64_t dims[4] = {n, tensor_size(x, 1), height, width};
    tensor_generator_t own = kit_transforms__begin(g);
    tensor_t *top = tensor_randint_n(0, down + 1, &n, 1), *left = tensor_randint_n(0, right + 1, &n, 1);
    kit_transforms__end(g, own);
    if (tensor_device(x) != TENSOR_CPU || tensor_requires_grad(x)) {
        return kit_transforms__windows(x, top, left, dims, padding);
    }
    top = tensor_to(tensor_sub_scalar(top, (double)padding), TENSOR_CPU);
    left = tensor_to(tensor_sub_scalar(left, (double)padding), TENSOR_CPU);
    tensor_t *y = tensor_zero_(kit_file__tensor(dims, 4, tensor_dtype(x)));
    const int64_t *rows = (const int64_t *)tensor_data(top), *columns = (const int64_t *)tensor_data(left);
    if (n > 0 && (!rows || !columns)) { return tensor_detach(NULL); } // they cannot be read in a capture
    kit_transforms__copy_rows(y, tensor_contiguous(x), rows, columns);
    return y;
}

// Whether places 0..n-1 along dim are within size of random centres, [N, .., n, ..].
static tensor_t *kit_transforms__stripe(tensor_generator_t *g, tensor_t *x, int dim, int64_t size) {
    const int64_t n = tensor_size(x, dim);
    tensor_t *centre = tensor_floor(kit_transforms__draw(g, x, tensor_size(x, 0), 0, (double)n));
    tensor_t *first = kit_transforms__each(tensor_sub_scalar(centre, (double)(size / 2)), NULL);
    tensor_t *from = tensor_sub(kit_transforms__count(x, dim, n), first);
    return tensor_logical_and(tensor_ge_scalar(from, 0), tensor_lt_scalar(from, (double)size));
}

tensor_t *kit_random_cutout(tensor_generator_t *g, tensor_t *x, int64_t size) {
    tensor_t *poison =
        kit_transforms__refuse(x, size < 0, "kit_random_cutout: x is not [N, C, H, W], or size < 0");
    if (poison) { return poison; }
    tensor_t *rows = kit_transforms__stripe(g, x, 2, size);
    return tensor_masked_fill(x, tensor_logical_and(rows, kit_transforms__stripe(g, x, 3, size)), 0);
}

tensor_t *kit_affine(tensor_t *x, const kit_affine_t *maps) {
    tensor_t *poison =
        kit_transforms__refuse_integers(x, !maps, "kit_affine: x is not [N, C, H, W], or maps is NULL");
    if (poison) { return poison; }
    const int64_t n = tensor_size(x, 0), dims[3] = {n, 2, 3};
    const int64_t size[4] = {n, tensor_size(x, 1), tensor_size(x, 2), tensor_size(x, 3)};
    const double pi = 3.14159265358979323846, h = (double)size[2], w = (double)size[3];
    tensor_t *theta = kit_file__tensor(dims, 3, TENSOR_F64);
    double *t = (double *)tensor_data_mut(theta);
    // From places of the result to places of x: not moved, not scaled, not rotated, not sheared any more. The
    // grid has -1..1 for the width and for the height.
    for (int64_t i = 0; i < n && t; i++, t += 6) {
        const kit_affine_t *m = &maps[i];
        const double a = m->degrees * pi / 180, lean = tan(m->shear * pi / 180);
        const double c = cos(a) / m->scale, s = sin(a) / m->scale;
        const double xx = c - lean * s, xy = -s - lean * c, yx = s, yy = c;
        t[0] = xx;
        t[1] = xy * h / w;
        t[2] = -(xx * m->right + xy * m->down) * 2 / w;
        t[3] = yx * w / h;
        t[4] = yy;
        t[5] = -(yx * m->right + yy * m->down) * 2 / h;
    }
    theta = tensor_to(tensor_to(theta, tensor_dtype(x)), tensor_device(x));
    tensor_grid_sample_args_t a = tensor_grid_sample_defaults();
    a.x = x;
    a.grid = tensor_affine_grid(theta, size, 4, 0);
    a.mode = TENSOR_BILINEAR;
    return tensor_grid_sample_with(a);
}

tensor_t *kit_random_affine(tensor_generator_t *g, tensor_t *x, kit_affine_t limits) {
    tensor_t *poison = kit_transforms__refuse_integers(
        x, limits.scale < 0 || limits.scale >= 1,
        "kit_random_affine: x is not [N, C, H, W], or scale not 0..1");
    if (poison) { return poison; }
    const int64_t n = tensor_size(x, 0);
    tensor_t *u = tensor_to(kit_transforms__draw(g, x, 5 * n, -1, 1), TENSOR_CPU);
    const float *at = (const float *)tensor_data(tensor_to(u, TENSOR_F32));
    kit_affine_t *maps = (kit_affine_t *)malloc(((size_t)n + 1) * sizeof *maps);
    for (int64_t i = 0; i < n && maps && at; i++, at += 5) {
        maps[i].degrees = at[0] * limits.degrees;
        maps[i].scale = 1 + at[1] * limits.scale;
        maps[i].shear = at[2] * limits.shear;
        maps[i].right = at[3] * limits.right * (double)tensor_size(x, 3);
        maps[i].down = at[4] * limits.down * (double)tensor_size(x, 2);
    }
    tensor_t *y = maps && !tensor_is_poison(u) ? kit_affine(x, maps) : tensor_detach(NULL);
    free(maps);
    return y;
}

tensor_t *kit_random_rotation(tensor_generator_t *g, tensor_t *x, double degrees) {
    kit_affine_t limits = {0, 0, 0, 0, 0};
    limits.degrees = degrees;
    return kit_random_affine(g, x, limits);
}

// ---- colours ----

// other + factor (x - other), kept in 0..1.
static tensor_t *kit_transforms__blend(tensor_t *x, tensor_t *other, tensor_t *factor) {
    return tensor_clamp(tensor_lerp(tensor_expand_as(other, x), x, tensor_expand_as(factor, x)), 0, 1);
}

// Luma of ITU-R BT.601, as PIL and torchvision have it: [N, 1, H, W].
static tensor_t *kit_transforms__gray(tensor_t *x) {
    tensor_t *r = tensor_mul_scalar(tensor_narrow(x, 1, 0, 1), 0.2989);
    tensor_t *g = tensor_mul_scalar(tensor_narrow(x, 1, 1, 1), 0.587);
    return tensor_add(tensor_add(r, g), tensor_mul_scalar(tensor_narrow(x, 1, 2, 1), 0.114));
}

// A channel of HSV as a colour channel: v - v s max(0, min(k, 4 - k, 1)), k = (shift + 6 h) mod 6.
static tensor_t *kit_transforms__channel(tensor_t *sixth, tensor_t *chroma, tensor_t *value, double shift) {
    tensor_t *k = tensor_remainder_scalar(tensor_add_scalar(sixth, shift), 6);
    tensor_t *lower = tensor_minimum(k, tensor_rsub_scalar(k, 4));
    return tensor_sub(value, tensor_mul(chroma, tensor_clamp(lower, 0, 1)));
}

tensor_t *kit_adjust_hue(tensor_t *x, tensor_t *turns) {
    int wrong = tensor_ndim(x) == 4 && tensor_size(x, 1) != 3;
    tensor_t *poison = kit_transforms__refuse_integers(x, wrong, "kit_adjust_hue: x is not [N, 3, H, W]");
    if (poison) { return poison; }
    tensor_t *r = tensor_narrow(x, 1, 0, 1), *g = tensor_narrow(x, 1, 1, 1), *b = tensor_narrow(x, 1, 2, 1);
    tensor_t *value = tensor_amax_dim(x, 1, 1), *chroma = tensor_sub(value, tensor_amin_dim(x, 1, 1));
    tensor_t *span = tensor_masked_fill(chroma, tensor_eq_scalar(chroma, 0), 1);
    // Sixths of the circle from red; the largest channel says which third it is in.
    tensor_t *red = tensor_div(tensor_sub(g, b), span);
    tensor_t *green = tensor_add_scalar(tensor_div(tensor_sub(b, r), span), 2);
    tensor_t *blue = tensor_add_scalar(tensor_div(tensor_sub(r, g), span), 4);
    tensor_t *sixth = tensor_where(tensor_eq(value, r), red, tensor_where(tensor_eq(value, g), green, blue));
    sixth = tensor_add(sixth, tensor_mul_scalar(kit_transforms__each(turns, x), 6));
    tensor_t *list[3];
    list[0] = kit_transforms__channel(sixth, chroma, value, 5);
    list[1] = kit_transforms__channel(sixth, chroma, value, 3);
    list[2] = kit_transforms__channel(sixth, chroma, value, 1);
    return tensor_cat_n(list, 3, 1);
}

tensor_t *kit_color_jitter(tensor_generator_t *g, tensor_t *x, double brightness, double contrast,
                           double saturation, double hue) {
    static const int64_t all[3] = {1, 2, 3};
    const double limits[3] = {brightness, contrast, saturation};
    int wrong = brightness < 0 || contrast < 0 || saturation < 0 || !(hue >= 0 && hue <= 0.5);
    wrong = wrong || (tensor_ndim(x) == 4 && tensor_size(x, 1) != 3);
    tensor_t *poison =
        kit_transforms__refuse_integers(x, wrong, "kit_color_jitter: x not [N, 3, H, W], or a limit wrong");
    if (poison) { return poison; }
    const int64_t n = tensor_size(x, 0);
    tensor_t *factor[3];
    for (int k = 0; k < 3; k++) {
        const double low = limits[k] < 1 ? 1 - limits[k] : 0;
        factor[k] = kit_transforms__each(kit_transforms__draw(g, x, n, low, 1 + limits[k]), x);
    }
    tensor_t *turns = kit_transforms__draw(g, x, n, -hue, hue);
    if (brightness > 0) { x = tensor_clamp(tensor_mul(x, factor[0]), 0, 1); }
    if (contrast > 0) {
        x = kit_transforms__blend(x, tensor_mean_dims(kit_transforms__gray(x), all, 3, 1), factor[1]);
    }
    if (saturation > 0) { x = kit_transforms__blend(x, kit_transforms__gray(x), factor[2]); }
    return hue > 0 ? kit_adjust_hue(x, turns) : x;
}

// ---- mixup ----

// One number of the gamma distribution (Marsaglia and Tsang), shape > 0, as its logarithm: small shapes give
// numbers below any float.
static double kit_transforms__log_gamma(double shape) {
    const int64_t two = 2;
    double boost = 0;
    if (shape < 1) {
        boost = log(1 - tensor_item(tensor_rand_n(&two, 0))) / shape;
        shape += 1;
    }
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double z = tensor_item(tensor_randn_n(&two, 0)), u = 1 - tensor_item(tensor_rand_n(&two, 0));
        const double v = (1 + c * z) * (1 + c * z) * (1 + c * z);
        if (!tensor_ok()) { return 0; }
        if (v > 0 && log(u) < 0.5 * z * z + d - d * v + d * log(v)) { return log(d * v) + boost; }
    }
}

kit_mixup_t kit_mixup(tensor_generator_t *g, tensor_t *x, tensor_t *labels, int64_t classes, double alpha) {
    kit_mixup_t r = {NULL, NULL};
    r.x = kit_transforms__refuse_integers(x, !(alpha > 0),
                                          "kit_mixup: x is not [N, C, H, W], or alpha not above 0");
    r.y = r.x;
    if (r.x) { return r; }
    tensor_generator_t own = kit_transforms__begin(g);
    const double a = kit_transforms__log_gamma(alpha), b = kit_transforms__log_gamma(alpha);
    tensor_t *other = tensor_to(tensor_randperm(tensor_size(x, 0)), tensor_device(x));
    kit_transforms__end(g, own);
    const double lambda = 1 / (1 + exp(b - a));
    tensor_t *y = tensor_to(tensor_one_hot(labels, classes), tensor_dtype(x));
    r.x = tensor_lerp_scalar(tensor_index_select(x, 0, other), x, lambda);
    r.y = tensor_lerp_scalar(tensor_index_select(y, 0, other), y, lambda);
    return r;
}

// ---- files ----

tensor_t *kit_read_image(const char *path, kit_decode_image_t decode, void (*release)(void *)) {
    if (!decode) { return kit_file__fail(TENSOR_ERR_POISONED, "kit_read_image", NULL, -1, "decode is NULL"); }
    size_t size;
    int width = 0, height = 0, channels = 0;
    unsigned char *data = kit_file__load(path, &size);
    unsigned char *pixels = data ? decode(data, size, &width, &height, &channels) : NULL;
    tensor_t *x = NULL;
    if (!data) { return (tensor_detach)(NULL); }
    if (!pixels) {
        x = kit_file__fail(TENSOR_ERR_FORMAT, path, NULL, -1, "the decoder cannot read it");
    } else if (width < 1 || height < 1 || channels < 1 || channels > 4) {
        x = kit_file__fail(TENSOR_ERR_FORMAT, path, NULL, -1, "the decoder says sizes that no picture has");
    } else {
        const int64_t dims[3] = {height, width, channels}, order[3] = {2, 0, 1};
        x = tensor_contiguous(tensor_permute_n(tensor_from_n(pixels, TENSOR_U8, dims, 3), order, 3));
    }
    if (pixels && release) { release(pixels); }
    free(data);
    return x;
}

#endif

// augment.c - one picture, and what augmentation makes of it, on a sheet to look at before training
//
// Reads a PPM or PGM file, or the first picture of a CIFAR-10 batch (data_batch_1.bin), or draws one itself.
// With stb_image.h beside it, kit_read_image of transforms.h reads PNG and JPEG the same way.
//
// Build: make build/augment && build/augment [picture.ppm|batch.bin] [sheet.png]   (SEED=3: other draws)
// Output:
//   a picture [3, 48, 64] of mean 0.557
//   flipped                mean 0.557, 14 of 100 elements differ
//   cropped                mean 0.450, 39 of 100 elements differ
//   rotated                mean 0.516, 24 of 100 elements differ
//   moved and sheared      mean 0.435, 38 of 100 elements differ
//   coloured               mean 0.460, 100 of 100 elements differ
//   cut out                mean 0.534, 7 of 100 elements differ
//   mixed with another     mean 0.557, 53 of 100 elements differ
//   written to build/augment.png
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_TRANSFORMS_IMPLEMENTATION
#include "kit/transforms.h"
#define KIT_READERS_IMPLEMENTATION
#include "kit/readers.h"
#define KIT_PNG_IMPLEMENTATION
#include "kit/png.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

enum { HEIGHT = 48, WIDTH = 64, KINDS = 7, DRAWS = 4 };

// A sun over a field: [3, H, W] of 0..1.
static tensor_t *drawn_picture(void) {
    enum { SKY, FIELD, SUN };
    static const float colors[3][3] = {{0.5f, 0.7f, 0.9f}, {0.2f, 0.6f, 0.1f}, {1.0f, 0.8f, 0.1f}};
    static float pixel[3][HEIGHT][WIDTH];
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            int part = y > 30 + (x % 16 < 8) ? FIELD : SKY;
            if ((x - 46) * (x - 46) + (y - 14) * (y - 14) < 81) { part = SUN; }
            for (int c = 0; c < 3; c++) { pixel[c][y][x] = colors[part][c]; }
        }
    }
    return tensor_from(pixel, TENSOR_F32, 3, HEIGHT, WIDTH);
}

// A file as [3, H, W] of 0..1.
static tensor_t *read_picture(const char *path) {
    size_t n = strlen(path);
    tensor_t *x;
    if (n > 4 && strcmp(path + n - 4, ".bin") == 0) {
        x = tensor_select(kit_read_cifar(path, 10).images, 0, 0);
    } else {
        x = kit_read_pnm(path);
    }
    double most = tensor_dtype(x) == TENSOR_I32 ? 65535 : 255;
    x = tensor_div_scalar(tensor_to(x, TENSOR_F32), most);
    return tensor_size(x, 0) == 1 ? tensor_expand(x, 3, -1, -1) : x;
}

// Copies of the picture [N, 3, H, W] and what one kind of augmentation makes of them.
static tensor_t *augmented(int kind, tensor_generator_t *g, tensor_t *x) {
    int64_t h = tensor_size(x, 2), w = tensor_size(x, 3);
    if (kind == 0) { return kit_random_horizontal_flip(g, x, 0.5); }
    if (kind == 1) { return kit_random_crop(g, x, h, w, h / 6); }
    if (kind == 2) { return kit_random_rotation(g, x, 30); }
    if (kind == 3) {
        kit_affine_t limits = {0, 0.2, 20, 0.1, 0.1};
        return kit_random_affine(g, x, limits);
    }
    if (kind == 4) { return kit_color_jitter(g, x, 0.4, 0.4, 0.4, 0.3); }
    if (kind == 5) { return kit_random_cutout(g, x, h / 3); }
    // Every second picture is the same one upside down, so that there is something to mix with.
    tensor_t *other = tensor_cat(0, tensor_narrow(x, 0, 0, DRAWS / 2),
                                 tensor_flip(tensor_narrow(x, 0, 0, DRAWS / 2), 2));
    return kit_mixup(g, other, tensor_arange(0, DRAWS, 1, TENSOR_I64), DRAWS, 0.4).x;
}

int main(int argc, char **argv) {
    static const char *const names[KINDS] = {"flipped",  "cropped", "rotated",           "moved and sheared",
                                             "coloured", "cut out", "mixed with another"};
    const char *to = argc > 2 ? argv[2] : "build/augment.png";
    tensor_generator_t g = {(uint64_t)kit_setting("SEED", 2, 0, 2147483647), 0};
    tensor_t *picture = argc > 1 ? read_picture(argv[1]) : drawn_picture();
    tensor_t *rows[KINDS];
    if (!tensor_ok()) { return 1; }
    printf("a picture [3, %d, %d] of mean %.3f\n", (int)tensor_size(picture, 1), (int)tensor_size(picture, 2),
           tensor_item(tensor_mean(picture)));
    tensor_t *x = tensor_contiguous(tensor_expand(tensor_unsqueeze(picture, 0), DRAWS, -1, -1, -1));
    for (int k = 0; k < KINDS && tensor_ok(); k++) {
        tensor_t *y = augmented(k, &g, x), *moved = tensor_gt_scalar(tensor_abs(tensor_sub(y, x)), 0.004);
        printf("%-22s mean %.3f, %.0f of 100 elements differ\n", names[k], tensor_item(tensor_mean(y)),
               100 * tensor_item(tensor_mean(tensor_to(moved, TENSOR_F32))));
        // [N, 3, H, W] beside each other: [3, H, N W]
        rows[k] = tensor_reshape(tensor_permute(y, 1, 2, 0, 3), 3, tensor_size(y, 2), -1);
    }
    if (tensor_ok() && png_save(to, tensor_cat_n(rows, KINDS, 1), "augmentation by transforms.h") == 0) {
        printf("written to %s\n", to);
    }
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "augment: cannot write to stdout");
    }
    int failed = !tensor_ok();
    return tensor_shutdown() != 0 || failed;
}

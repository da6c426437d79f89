// image_fit.c - a network learns an image: place (x, y) in, color out, nothing else is stored
//
// The place is given as sines and cosines of 64 random waves (Tancik et al. 2020), without which a small
// network sees only a blur. The image is computed here; IMAGE=photo.ppm (binary, 8 bits) takes one of yours.
//
// Build: make build/image_fit && build/image_fit [picture.png]          (STEPS=1000 IMAGE=photo.ppm)
// Output, and the image beside what the network makes of it after STEPS/100, STEPS/10 and STEPS steps:
//   1000 steps, loss 0.0001, 5.94 s of one core, 21987 parameters for 49152 numbers
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { SIDE = 128, WAVES = 64, WIDTH = 96, BATCH = 4096, MAX_SIDE = 1024 };

// Hills under an evening sun.   -> [3, SIDE, SIDE], 0..1
static tensor_t *evening(void) {
    static float rgb[3][SIDE][SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) {
        int row = i / SIDE;
        double x = (i - row * SIDE) / (double)SIDE, y = row / (double)SIDE;
        double color[3] = {0.98 - 0.55 * (1 - y) * (1 - y), 0.45 + 0.25 * y, 0.62 - 0.35 * y};
        double sun = hypot(x - 0.66, y - 0.40), glow = 0.5 * exp(-9 * sun);
        for (int c = 0; c < 3; c++) {
            color[c] = sun < 0.115 ? 1 - 0.25 * c : color[c] + glow * (1 - 0.3 * c);
        }
        for (int hill = 0; hill < 4; hill++) {
            double waves = 0.06 * sin(5 * x + 2.1 * hill) + 0.025 * sin(17 * x * (hill + 1));
            double height = 0.52 + 0.11 * hill + waves;
            double shade = 0.46 - 0.11 * hill, trees = 0.02 * fabs(sin(90 * x + hill)) * (hill > 1);
            for (int c = 0; c < 3 && y > height - trees; c++) {
                color[c] = shade * (0.75 + 0.2 * c) + 0.1 * (2 - c) * (1 - y);
            }
        }
        for (int c = 0; c < 3; c++) { rgb[c][row][i - row * SIDE] = (float)fmin(fmax(color[c], 0), 1); }
    }
    return tensor_from(rgb, TENSOR_F32, 3, SIDE, SIDE);
}

// A binary PPM of at most MAX_SIDE pixels a side.   -> [3, H, W], 0..1; poison if it is none
static tensor_t *photo(const char *path) {
    static unsigned char bytes[MAX_SIDE * MAX_SIDE * 3];
    int width = 0, height = 0, most = 0;
    FILE *f = fopen(path, "rb");
    if (!f) {
        kit_refuse(TENSOR_ERR_IO, path, NULL);
        return tensor_zeros(3, 1, 1);
    }
    int good = fscanf(f, "P6 %d %d %d", &width, &height, &most) == 3 && most == 255 && width > 0 &&
               height > 0 && width <= MAX_SIDE && height <= MAX_SIDE && fgetc(f) != EOF;
    size_t n = good ? (size_t)width * (size_t)height * 3 : 0;
    good = good && fread(bytes, 1, n, f) == n;
    (void)fclose(f);
    if (!good) {
        kit_refuse(TENSOR_ERR_FORMAT, path, "this is not a binary PPM of 1..1024 pixels a side");
        return tensor_zeros(3, 1, 1);
    }
    tensor_t *x = tensor_from(bytes, TENSOR_U8, height, width, 3);
    return tensor_div_scalar(tensor_to(tensor_permute(x, 2, 0, 1), TENSOR_F32), 255);
}

// [N, 2] places -> [N, 2 WAVES]
static tensor_t *waves_of(tensor_t *place, tensor_t *waves) {
    tensor_t *phase = tensor_matmul(place, waves);
    return tensor_cat(1, tensor_sin(phase), tensor_cos(phase));
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 1000, 1, 1000000);
    tensor_manual_seed(1);
    tensor_t *image = tensor_contiguous(getenv("IMAGE") ? photo(getenv("IMAGE")) : evening());
    int64_t h = tensor_size(image, 1), w = tensor_size(image, 2);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }

    tensor_t *axis[] = {tensor_linspace(-1, 1, h), tensor_linspace(-1, 1, w)}, *grid[2];
    tensor_meshgrid(axis, 2, "ij", grid);
    tensor_t *places = tensor_stack(1, tensor_flatten(grid[1], 0, 1), tensor_flatten(grid[0], 0, 1));
    tensor_t *colors = tensor_contiguous(tensor_transpose(tensor_reshape(image, 3, -1), 0, 1));
    tensor_t *waves = tensor_mul_scalar(tensor_randn(2, WAVES), 12);
    tensor_t *inputs = waves_of(places, waves);
    nn_module_t *net = nn_sequential(nn_linear(2 * WAVES, WIDTH), nn_relu(), nn_linear(WIDTH, WIDTH),
                                     nn_relu(), nn_linear(WIDTH, 3), nn_sigmoid());
    nn_optimizer_t *opt = nn_adam(net, .lr = 5e-3);

    plot_t *p = plot_new(824, 246);
    char text[160];
    plot_image(p, "the image", image);
    double loss_now = 0, seconds = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 1; step <= steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        clock_t begin = clock();
        tensor_t *pick = tensor_randint(0, h * w, BATCH);
        tensor_t *guess = nn_forward(net, tensor_index_select(inputs, 0, pick));
        tensor_t *loss = tensor_mse_loss(guess, tensor_index_select(colors, 0, pick));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 5e-3, 2e-4));
        nn_step(opt);
        seconds += (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (step == steps || step * 10 == steps || step * 100 == steps) {
            tensor_t *all = tensor_detach(nn_forward(net, inputs));
            loss_now = tensor_item(tensor_mse_loss(all, colors));
            (void)snprintf(text, sizeof text, "%d steps, %.2f s", step, seconds);
            plot_image(p, text, tensor_reshape(tensor_transpose(all, 0, 1), 3, h, w));
        }
    }
    tensor_scope_end(scope);
    (void)snprintf(text, sizeof text, "%d steps, loss %.4f, %.2f s of one core, %d parameters for %d numbers",
                   steps, loss_now, seconds, (int)nn_num_parameters(net), (int)(3 * h * w));
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "image_fit: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/image_fit.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

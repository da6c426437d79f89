// fashion.c - a small convolutional network names clothes; its mistakes and its filters are drawn
//
// DATA=folder has the four files of Fashion-MNIST: 60,000 pictures of 28 x 28 to learn, 10,000 to test
// (Debian's package dataset-fashion-mnist). Without DATA the program draws clothes of its own: ten outlines,
// each time stretched, shifted and lit differently at random. The figures of the two cannot be compared.
//
// Build: make fashion                       (DATA=folder EPOCHS=3 THREADS=2, given to make or as environment)
// Output: a progress bar, and after each epoch the loss and the share of test pictures named correctly; the
// picture (build/fashion.png, or the first argument) shows clothes, what was taken for what, and the filters.
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_IDX_IMPLEMENTATION
#include "kit/idx.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

enum { KINDS = 10, SIDE = 28, BATCH = 64, TEST_BATCH = 1000, DRAWN = 4000, HELD_OUT = 1000, ROWS = 14 };

static const char *const names[KINDS] = {"T-shirt", "trouser", "pullover", "dress", "coat",
                                         "sandal",  "shirt",   "sneaker",  "bag",   "boot"};

// Of each row from above: how far the cloth reaches from the middle, in ninths, and where a gap is, if any.
// Shoes lie on their side: their rows go from the heel to the toe.
static const char *const outline[KINDS][2] = {
    {"48998655555555", "0-------------"}, {"55555555544444", "----0000000000"},
    {"48889999999996", "0-----66666666"}, {"33443334455667", "0-------------"},
    {"48889999999998", "00000066666666"}, {"55443333332222", "--2-2-2-2-2---"},
    {"48999865555555", "0-0-0-0-0-0-0-"}, {"66554444433332", "--------------"},
    {"44448889999999", "2222----------"}, {"99999965554443", "--------------"}};

// [n, SIDE, SIDE] bytes and their kinds [n]
static tensor_t *draw_clothes(int n, tensor_t **kinds) {
    static unsigned char picture[DRAWN + HELD_OUT][SIDE][SIDE];
    static int64_t kind[DRAWN + HELD_OUT];
    tensor_t *by_chance = tensor_rand(n, 8), *noise = tensor_rand(n, SIDE * SIDE);
    const float *u = (const float *)tensor_data(by_chance), *grain = (const float *)tensor_data(noise);
    for (int i = 0; i < n * SIDE * SIDE; i++) {
        int k = i / (SIDE * SIDE), at = i % (SIDE * SIDE), cut = k % KINDS;
        const float *c = u + k * 8;
        int shoe = cut == 5 || cut == 7 || cut == 9;
        double x = (at % SIDE + 0.5) / SIDE * 2 - 1 + 0.5 * ((double)c[0] - 0.5);
        double y = (at / SIDE + 0.5) / SIDE * 2 - 1 + 0.5 * ((double)c[1] - 0.5);
        double along = shoe ? x : y, across = shoe ? 0.6 - y : fabs(x + 0.2 * ((double)c[2] - 0.5) * y);
        double at_row = (along / (0.75 + 0.2 * (double)c[3]) + 1) * ROWS / 2, dark = 0;
        int row = (int)floor(at_row);
        kind[k] = cut;
        if (row >= 0 && row < ROWS && across >= 0) {
            const char *reach = outline[cut][0];
            char gap = outline[cut][1][row];
            int below = reach[row + 1 < ROWS ? row + 1 : row];
            double edge = (reach[row] + (below - reach[row]) * (at_row - row) - '0') / 9;
            int open = gap != '-' && fabs(across * 9 - (gap - '0')) < 0.2 + (double)c[5];
            double inside = ((0.65 + 0.4 * (double)c[4]) * edge - across) * 14;
            double folds = 0.1 * sin((4 + 12 * (double)c[6]) * (x + (double)c[7] * y));
            dark = open ? 0 : fmin(fmax(inside, 0), 1) * (0.3 + 0.55 * (double)c[7] + folds);
        }
        dark += (dark > 0 ? 0.3 : 0.05) * ((double)grain[i] - 0.5);
        picture[k][at / SIDE][at % SIDE] = (unsigned char)(255 * fmin(fmax(dark, 0), 1));
    }
    *kinds = tensor_from(kind, TENSOR_I64, n);
    return tensor_from(picture, TENSOR_U8, n, SIDE, SIDE);
}

static tensor_t *read_file(const char *name) {
    static char path[4200];     // longer than names that a system opens
    (void)snprintf(path, sizeof path, "%s/%s-ubyte", getenv("DATA"), name);
    return kit_read_idx(path);
}

// Bytes [N, 28, 28] -> [N, 1, 28, 28], mean 0 and deviation 1 over the pictures of Fashion-MNIST.
static tensor_t *pictures(tensor_t *bytes) {
    tensor_t *x = tensor_div_scalar(tensor_to(bytes, TENSOR_F32), 255);
    return tensor_unsqueeze(tensor_div_scalar(tensor_sub_scalar(x, 0.2860), 0.3530), 1);
}

// Which kind (row) was taken for which (column): [KINDS, KINDS].
static tensor_t *confusion(nn_module_t *net, tensor_t *x, tensor_t *y) {
    tensor_t *counts = tensor_zeros_of(TENSOR_I64, KINDS * KINDS);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_data_loader_t *batches = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = TEST_BATCH);
    nn_batch_t b;
    for (; nn_next(batches, &b); tensor_scope_reset(scope)) {
        tensor_t *said = tensor_argmax_dim(nn_forward(net, pictures(b.x)), 1, 0);
        tensor_t *cell = tensor_add(tensor_mul_scalar(tensor_to(b.y, TENSOR_I64), KINDS), said);
        tensor_add_(counts, tensor_bincount(cell, NULL, KINDS * KINDS));
    }
    nn_data_loader_free(batches);
    tensor_scope_end(scope);
    return tensor_reshape(counts, KINDS, KINDS);
}

// The first rows * columns of x [N, h, w] side by side with a line between; 0..1.
static tensor_t *sheet(tensor_t *x, int64_t rows, int64_t columns) {
    int64_t h = tensor_size(x, 1), w = tensor_size(x, 2);
    tensor_t *framed = tensor_ones(rows, columns, h + 1, w + 1);
    tensor_copy_(tensor_at(framed, "..., :-1, :-1"),
                 tensor_reshape(tensor_narrow(x, 0, 0, rows * columns), rows, columns, h, w));
    return tensor_reshape(tensor_permute(framed, 0, 2, 1, 3), rows * (h + 1), columns * (w + 1));
}

int main(int argc, char **argv) {
    int epochs = kit_setting("EPOCHS", 3, 0, 1000), real = getenv("DATA") != NULL;
    tensor_set_num_threads(kit_setting("THREADS", tensor_num_processors(), 1, 1024));
    tensor_manual_seed(1);
    tensor_t *y, *x = real ? read_file("train-images-idx3") : draw_clothes(DRAWN, &y), *test_y;
    tensor_t *test_x = real ? read_file("t10k-images-idx3") : draw_clothes(HELD_OUT, &test_y);
    if (real) { y = read_file("train-labels-idx1"), test_y = read_file("t10k-labels-idx1"); }
    if (!tensor_ok()) { return tensor_shutdown() != 0; }

    nn_module_t *first = nn_conv2d(1, 16, 5, .padding = 2);
    nn_module_t *net = nn_sequential(first, nn_relu(), nn_max_pool2d(2), nn_conv2d(16, 32, 5, .padding = 2),
                                     nn_relu(), nn_max_pool2d(2), nn_flatten(), nn_linear(32 * 7 * 7, 128),
                                     nn_relu(), nn_linear(128, KINDS));
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.02, .momentum = 0.9);
    nn_data_loader_t *batches = nn_data_loader(nn_tensor_dataset(x, tensor_to(y, TENSOR_I64)),
                                               .batch_size = BATCH, .shuffle = 1, .drop_last = 1);
    tensor_t *counts = NULL;
    char text[200] = "";
    for (int epoch = 1; epoch <= epochs && tensor_ok(); epoch++) {
        nn_progress_t bar = nn_progress_begin("pictures", nn_num_batches(batches) * BATCH, 0);
        double sum = 0;
        nn_batch_t b;
        tensor_scope_t scope = tensor_scope_begin();
        for (; nn_next(batches, &b); tensor_scope_reset(scope)) {
            tensor_t *loss = tensor_cross_entropy(nn_forward(net, pictures(b.x)), b.y);
            nn_zero_grad(opt);
            tensor_backward(loss);
            nn_step(opt);
            sum += tensor_item(loss);
            nn_progress(&bar, (b.index + 1) * BATCH, NULL);
        }
        tensor_scope_end(scope);
        counts = confusion(net, test_x, test_y);
        double right = 100 * tensor_item(tensor_trace(counts)) / (double)tensor_size(test_x, 0);
        (void)snprintf(text, sizeof text, "epoch %d   loss %.4f   test accuracy %.2f %%   %s", epoch,
                       sum / (double)nn_num_batches(batches), right,
                       real ? "Fashion-MNIST" : "clothes that the program drew");
        if (puts(text) < 0 || fflush(stdout)) { kit_refuse(TENSOR_ERR_IO, "stdout", "cannot write"); }
    }
    plot_t *p = plot_new(1200, 400);
    tensor_t *filters = tensor_detach(tensor_squeeze(nn_get(first, "weight"), 1));
    tensor_t *range = tensor_mul_scalar(tensor_max(tensor_abs(filters)), 2);
    plot_image(p, "some of what it saw", sheet(tensor_div_scalar(tensor_to(x, TENSOR_F32), 255), 10, 10));
    if (counts) { plot_confusion(p, "what it took for what (rows are the truth)", counts, names); }
    plot_image(p, "its 16 first filters", sheet(tensor_add_scalar(tensor_div(filters, range), 0.5), 4, 4));
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/fashion.png");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// digits.c - a small convolutional network learns to read digits, and reads yours
//
// It has never seen handwriting: each digit it learns from is drawn here, from the strokes below,
// bent, slanted and stretched at random. What you draw goes the same way: the path of a pen,
// fitted into 20 x 20 pixels.
#include "web.h"

enum { SIDE = 20, AREA = SIDE * SIDE, BATCH = 32, MAX_PATH = 1024, SHAPES = 15, SHOWN = 10 };
enum { DIGITS_STEPS = 1500 };

typedef struct pen_t { double x, y; int down; } pen_t;      // down: a line leads here

static nn_module_t *digits_net;
static nn_optimizer_t *digits_opt;
static float shown[SHOWN][AREA], yours[AREA];               // 0 paper, 1 ink
static int has_yours;
static double right_share;              // of the last some 50 batches, before they were learnt

// A digit, then its strokes: points on a board of 10 x 10, a column and a row each; a blank lifts
// the pen.
static const char *const shape[SHAPES] = {
    "0502224275977747250", "15059", "13350 5059", "13350 5059 3979", "222315071735629 2979",
    "32140717344 4475785927", "46026 2686 6069", "43025 2575 7079", "57030 3024 245375775928",
    "660332638597775543526", "72070 7049", "72070 7049 3565", "850313354757759373554737150",
    "939667361402224456473", "972514022244464 7069",
};

static double chance(double most) {
    return most * (2 * tensor_item(tensor_rand(1)) - 1);
}

// The strokes of a shape as a smooth path, each of its points a little off.   -> points
static int trace(const char *strokes, pen_t *path) {
    double x[32], y[32];
    int n = 0;
    while (*strokes) {
        int m = 0;
        for (; *strokes && *strokes != ' '; strokes += 2, m++) {
            x[m] = strokes[0] - '0' + chance(0.5);
            y[m] = strokes[1] - '0' + chance(0.5);
        }
        strokes += *strokes == ' ';
        for (int i = 0; i < 4 * (m - 1) + 1; i++) {         // the spline of Catmull and Rom
            int b = i / 4, a = b > 0 ? b - 1 : b;
            int c = b + 1 < m ? b + 1 : b, d = c + 1 < m ? c + 1 : c;
            double t = i % 4 / 4.0, u = 1 - t;
            double wa = -0.5 * t * u * u, wd = -0.5 * u * t * t;
            double wb = u + t * u * (1.5 * u - 0.5 * t - 0.5), wc = 1 - wa - wb - wd;
            path[n].x = wa * x[a] + wb * x[b] + wc * x[c] + wd * x[d];
            path[n].y = wa * y[a] + wb * y[b] + wc * y[c] + wd * y[d];
            path[n++].down = i > 0;
        }
    }
    return n;
}

// Fits a path of n points into the middle 16 x 16 pixels of to [AREA] and inks it with a pen of
// that radius.
static void ink(pen_t *path, int n, double radius, float *to) {
    double left = 1e9, right = -1e9, top = 1e9, bottom = -1e9;
    for (int i = 0; i < n; i++) {
        left = fmin(left, path[i].x);
        right = fmax(right, path[i].x);
        top = fmin(top, path[i].y);
        bottom = fmax(bottom, path[i].y);
    }
    double scale = 15 / fmax(fmax(right - left, bottom - top), 1e-3);
    for (int i = 0; i < n; i++) {
        path[i].x = SIDE / 2.0 + scale * (path[i].x - (left + right) / 2);
        path[i].y = SIDE / 2.0 + scale * (path[i].y - (top + bottom) / 2);
    }
    memset(to, 0, AREA * sizeof *to);
    for (int i = 0; i < n; i++) {
        pen_t b = path[i], a = b.down && i > 0 ? path[i - 1] : b;
        double dx = b.x - a.x, dy = b.y - a.y, square = fmax(dx * dx + dy * dy, 1e-9);
        double reach = radius + 1;
        int x0 = (int)fmax(fmin(a.x, b.x) - reach, 0);
        int x1 = (int)fmin(fmax(a.x, b.x) + reach, SIDE - 1);
        int y0 = (int)fmax(fmin(a.y, b.y) - reach, 0);
        int y1 = (int)fmin(fmax(a.y, b.y) + reach, SIDE - 1);
        for (int y = y0; y <= y1; y++) {
            for (int x = x0; x <= x1; x++) {    // how far the pixel's middle is from the line
                double px = x + 0.5 - a.x, py = y + 0.5 - a.y;
                double along = fmin(fmax((px * dx + py * dy) / square, 0), 1);
                double far = hypot(px - along * dx, py - along * dy);
                float dark = (float)fmin(fmax(radius + 0.5 - far, 0), 1);
                if (dark > to[y * SIDE + x]) { to[y * SIDE + x] = dark; }
            }
        }
    }
}

// Draws one of the shapes, bent and slanted by chance.   -> the digit it is
static int draw_digit(int which, float *to) {
    pen_t path[MAX_PATH];
    int n = trace(shape[which] + 1, path);
    double turn = chance(0.2), slant = chance(0.25), narrow = 0.9 + chance(0.25);
    for (int i = 0; i < n; i++) {
        double x = narrow * (path[i].x + slant * path[i].y), y = path[i].y;
        path[i].x = cos(turn) * x - sin(turn) * y;
        path[i].y = sin(turn) * x + cos(turn) * y;
    }
    ink(path, n, 1.1 + chance(0.4), to);
    return shape[which][0] - '0';
}

static void digits_start(void) {
    for (int which = 0; which < SHAPES; which++) {
        draw_digit(which, shown[shape[which][0] - '0']);
    }
    digits_net = nn_sequential(nn_conv2d(1, 8, 5, .padding = 2), nn_relu(), nn_max_pool2d(2),
                               nn_conv2d(8, 16, 3, .padding = 1), nn_relu(), nn_max_pool2d(2),
                               nn_flatten(), nn_linear(16 * AREA / 16, 10));
    digits_opt = nn_adam(digits_net, .lr = 3e-3);
}

static double digits_step(void) {
    static float picture[BATCH][AREA];
    static int64_t digit[BATCH];
    for (int i = 0; i < BATCH; i++) {
        int which = (int)tensor_item_i64(tensor_randint(0, SHAPES, 1));
        digit[i] = draw_digit(which, picture[i]);
    }
    tensor_t *truth = tensor_from(digit, TENSOR_I64, BATCH);
    tensor_t *x = tensor_from(picture, TENSOR_F32, BATCH, 1, SIDE, SIDE);
    tensor_t *logits = nn_forward(digits_net, x);
    tensor_t *loss = tensor_cross_entropy(logits, truth);
    nn_zero_grad(digits_opt);
    tensor_backward(loss);
    nn_set_lr(digits_opt, nn_lr_cosine(web_steps, DIGITS_STEPS, 3e-3, 1e-4));
    nn_step(digits_opt);
    tensor_t *hit = tensor_eq(tensor_argmax_dim(logits, 1, 0), truth);
    double share = tensor_item(tensor_sum(hit)) / BATCH;
    right_share += (share - right_share) * fmax(0.02, 1.0 / (web_steps + 1));
    return tensor_item(loss);
}

static int digits_done(void) {
    return web_steps >= DIGITS_STEPS;
}

// web_pixels[0]: ten digits, one below the other; [1]: yours, as the network sees it; ink is opacity.
// web_numbers: the share of right answers; the answers to the ten; what it thinks of yours, which is
// 0 without one.
static void digits_paint(void) {
    tensor_t *ten = nn_forward(digits_net, tensor_from(shown, TENSOR_F32, SHOWN, 1, SIDE, SIDE));
    tensor_t *one = nn_forward(digits_net, tensor_from(yours, TENSOR_F32, 1, 1, SIDE, SIDE));
    const int64_t *answer = tensor_data(tensor_argmax_dim(ten, 1, 0));
    const float *share = tensor_data(tensor_softmax(one, 1));
    web_numbers[0] = (float)right_share;
    for (int i = 0; i < 10; i++) {
        web_numbers[1 + i] = (float)answer[i];
        web_numbers[11 + i] = has_yours ? share[i] : 0;
    }
    for (int i = 0; i < SHOWN * AREA; i++) {
        web_pixels[0][i][3] = web_byte((double)shown[i / AREA][i % AREA]);
    }
    for (int i = 0; i < AREA; i++) { web_pixels[1][i][3] = web_byte((double)yours[i]); }
}

// The user has drawn: web_numbers has x, y and down of that many points.
static void digits_input(double n_points) {
    pen_t path[MAX_PATH];
    int n = (int)fmin(n_points, MAX_PATH);
    for (int i = 0; i < n; i++) {
        path[i].x = (double)web_numbers[3 * i];
        path[i].y = (double)web_numbers[3 * i + 1];
        path[i].down = web_numbers[3 * i + 2] > 0;
    }
    ink(path, n, 1.2, yours);
    has_yours = n > 0;
}

static const web_demo_t digits = {digits_start, digits_step,  digits_done,
                                  digits_paint, digits_input, NULL};

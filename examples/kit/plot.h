// plot.h - curves, scatter, histograms, images, decision boundaries and confusion matrices, as SVG or PNG
// Kit for tensor.h, to be copied and changed. Licence: MIT-0 or public domain, as tensor.h.
//
//   #define KIT_PLOT_IMPLEMENTATION        in one file; brings those of canvas.h and png.h
//   #include "kit/plot.h"
//
//   plot_t *p = plot_new(720, 300);
//   plot_panel(p, "training", "step", "loss");
//   for (...) plot_point(p, "train", step, tensor_item(loss));
//   plot_save(p, "loss.svg");              // or "loss.png": the end of the name decides
//   plot_free(p);
//
// A plot is a row of panels; what is drawn goes to the newest one. Everything is copied when it is given, so
// a tensor may go the next moment. The first thing that fails (no memory, a wrong shape) is raised by
// tensor_raise, stays with the plot, and plot_save returns its code and writes nothing. A file appears whole
// or not at all. A plot given as NULL is refused by plot_save and ignored by all else.
#ifndef KIT_PLOT_H_INCLUDED_7C1E
#define KIT_PLOT_H_INCLUDED_7C1E

#ifdef KIT_PLOT_IMPLEMENTATION
#define KIT_CANVAS_IMPLEMENTATION
#endif
#include "canvas.h"
#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plot_t plot_t;

// A figure of so many pixels, 64..4096 each.   -> plot, NULL on failure;  errors SHAPE, OUT_OF_MEMORY
plot_t *plot_new(int width, int height);
void plot_free(plot_t *p);

// Panels stand in rows of so many; 0 (as it begins) = all in one row.
void plot_columns(plot_t *p, int columns);
// The line under the figure. It is also in the file as text: <desc> of SVG, tEXt "Description" of PNG.
void plot_caption(plot_t *p, const char *text);
// Begins a panel with axes. Any text may be NULL. At most 32 panels.
void plot_panel(plot_t *p, const char *title, const char *x_label, const char *y_label);
// The newest panel's y axis is logarithmic; what is not above 0 is left out.
void plot_log_y(plot_t *p);

// One more point of the curve `label` of the newest panel.
void plot_point(plot_t *p, const char *label, double x, double y);
// A curve through points: x [n] (NULL = 0, 1, ..), y [n], any real dtype. NaN and infinity break it.
void plot_curve(plot_t *p, const char *label, tensor_t *x, tensor_t *y);
// Dots: x, y [n]. classes [n] integers colour them (NULL = one colour for all).
void plot_scatter(plot_t *p, const char *label, tensor_t *x, tensor_t *y, tensor_t *classes);
// How many values fall into each of so many bins of equal width (1..1000).
void plot_histogram(plot_t *p, const char *label, tensor_t *values, int bins);
// What net [n, 2] -> [n, 1] (logits of class 1) or [n, classes] says of each place, behind the dots.
void plot_boundary(plot_t *p, nn_module_t *net, double left, double right, double bottom, double top);
// A panel of its own without axes: [H, W], [1, H, W] or [3, H, W]; u8 0..255, others 0..1 (clamped).
void plot_image(plot_t *p, const char *title, tensor_t *image);
// A panel of its own: counts [K, K], row = truth, column = answer. names: K strings or NULL. K <= 100.
void plot_confusion(plot_t *p, const char *title, tensor_t *counts, const char *const *names);

// Writes path, which ends in .svg or .png.   -> code;  errors IO, FORMAT, the plot's first, OUT_OF_MEMORY
int plot_save(plot_t *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif

#ifdef KIT_PLOT_IMPLEMENTATION
#ifndef KIT_PLOT_IMPLEMENTED
#define KIT_PLOT_IMPLEMENTED

enum { PLOT_MAX_PANELS = 32, PLOT_MAX_ITEMS = 128, PLOT_TEXT = 160, PLOT_GRID = 96 };
typedef enum plot_kind_t { PLOT_CURVE, PLOT_DOTS, PLOT_BARS, PLOT_PICTURE, PLOT_MATRIX } plot_kind_t;

typedef struct plot_item_t {
    plot_kind_t kind;
    int panel, color, width, height;        // width, height: of rgb, or of the matrix
    char label[PLOT_TEXT];
    int64_t n, room;
    double *xy;                             // points; of bars left edge and count; of a matrix its counts
    int *color_of;                          // of each dot, or NULL
    double left, right, bottom, top;        // where a picture lies on the axes; of bars left and right
    unsigned char *rgb;
    char *names;                            // K strings, 32 bytes each
} plot_item_t;

typedef struct plot_panel_t {
    char title[PLOT_TEXT], x_label[PLOT_TEXT], y_label[PLOT_TEXT];
    int log_y, bare;                        // bare: without axes
    double x, y, w, h;                      // the inner frame, pixels
    double left, right, bottom, top;        // the data in it
} plot_panel_t;

struct plot_t {
    int width, height, columns, panels, items, failed;      // failed: the first code
    char caption[PLOT_TEXT * 2];
    plot_panel_t panel[PLOT_MAX_PANELS];
    plot_item_t item[PLOT_MAX_ITEMS];
};

// ---- what is given ----

static int plot__fail(plot_t *p, int code, const char *text) {
    (void)(tensor_raise)(code, text);
    if (p && !p->failed) { p->failed = code; }
    return code;
}

static void plot__copy_text(char *to, size_t room, const char *from) {
    (void)snprintf(to, room, "%s", from ? from : "");
}

plot_t *plot_new(int width, int height) {
    if (width < 64 || width > 4096 || height < 64 || height > 4096) {
        (void)plot__fail(NULL, TENSOR_ERR_SHAPE, "plot_new: width and height are 64..4096");
        return NULL;
    }
    plot_t *p = (plot_t *)calloc(1, sizeof *p);
    if (p) {
        p->width = width;
        p->height = height;
    } else {
        (void)plot__fail(NULL, TENSOR_ERR_OUT_OF_MEMORY, "plot_new: no memory");
    }
    return p;
}

void plot_free(plot_t *p) {
    if (!p) { return; }
    for (int i = 0; i < p->items; i++) {
        free(p->item[i].xy);
        free(p->item[i].color_of);
        free(p->item[i].rgb);
        free(p->item[i].names);
    }
    free(p);
}

void plot_columns(plot_t *p, int columns) {
    if (p) { p->columns = columns; }
}

void plot_caption(plot_t *p, const char *text) {
    if (p) { plot__copy_text(p->caption, sizeof p->caption, text); }
}

void plot_panel(plot_t *p, const char *title, const char *x_label, const char *y_label) {
    if (!p || p->failed) { return; }
    if (p->panels == PLOT_MAX_PANELS) {
        (void)plot__fail(p, TENSOR_ERR_SHAPE, "plot_panel: a plot has at most 32 panels");
        return;
    }
    plot_panel_t *panel = &p->panel[p->panels++];
    plot__copy_text(panel->title, sizeof panel->title, title);
    plot__copy_text(panel->x_label, sizeof panel->x_label, x_label);
    plot__copy_text(panel->y_label, sizeof panel->y_label, y_label);
}

void plot_log_y(plot_t *p) {
    if (p && p->panels) { p->panel[p->panels - 1].log_y = 1; }
}

// A new item of the newest panel with room for n points; NULL on failure.
static plot_item_t *plot__item(plot_t *p, plot_kind_t kind, const char *label, int64_t n) {
    if (!p || p->failed) { return NULL; }
    if (p->items == PLOT_MAX_ITEMS) {
        (void)plot__fail(p, TENSOR_ERR_SHAPE, "plot: at most 128 curves, scatters and images");
        return NULL;
    }
    if (!p->panels) { plot_panel(p, NULL, NULL, NULL); }
    plot_item_t *item = &p->item[p->items++];
    item->kind = kind;
    item->panel = p->panels - 1;
    for (int i = 0; i < p->items - 1; i++) {
        if (p->item[i].panel == item->panel && p->item[i].kind <= PLOT_BARS) { item->color++; }
    }
    plot__copy_text(item->label, sizeof item->label, label);
    item->room = n;
    item->xy = (double *)calloc((size_t)n + 1, 2 * sizeof(double));
    if (item->xy) { return item; }
    (void)plot__fail(p, TENSOR_ERR_OUT_OF_MEMORY, "plot: no memory for points");
    return NULL;
}

static double *plot__numbers(plot_t *p, tensor_t *t, int64_t n) {
    double *v = png_numbers(t, n);
    if (!v && !p->failed) { p->failed = tensor_error_code(); }
    return v;
}

void plot_point(plot_t *p, const char *label, double x, double y) {
    plot_item_t *item = NULL;
    if (!p || p->failed) { return; }
    for (int i = 0; i < p->items; i++) {
        if (p->item[i].kind == PLOT_CURVE && p->item[i].panel == p->panels - 1 &&
            strncmp(p->item[i].label, label ? label : "", PLOT_TEXT - 1) == 0) {
            item = &p->item[i];
        }
    }
    if (!item) { item = plot__item(p, PLOT_CURVE, label, 64); }
    if (!item) { return; }
    if (item->n == item->room) {
        double *more = (double *)realloc(item->xy, (size_t)item->room * 4 * sizeof(double));
        if (!more) {
            (void)plot__fail(p, TENSOR_ERR_OUT_OF_MEMORY, "plot_point: no memory");
            return;
        }
        item->xy = more;
        item->room *= 2;
    }
    item->xy[2 * item->n] = x;
    item->xy[2 * item->n++ + 1] = y;
}

static plot_item_t *plot__points(plot_t *p, plot_kind_t kind, const char *label, tensor_t *x, tensor_t *y) {
    int64_t n = tensor_numel(y);
    plot_item_t *item = plot__item(p, kind, label, n);
    double *at = item && x ? plot__numbers(p, x, n) : NULL, *height = item ? plot__numbers(p, y, n) : NULL;
    for (int64_t i = 0; i < n && height && (at || !x); i++) {
        item->xy[2 * i] = at ? at[i] : (double)i;
        item->xy[2 * i + 1] = height[i];
        item->n = i + 1;
    }
    free(at);
    free(height);
    return item && item->n ? item : NULL;
}

void plot_curve(plot_t *p, const char *label, tensor_t *x, tensor_t *y) {
    (void)plot__points(p, PLOT_CURVE, label, x, y);
}

void plot_scatter(plot_t *p, const char *label, tensor_t *x, tensor_t *y, tensor_t *classes) {
    plot_item_t *item = plot__points(p, PLOT_DOTS, label, x, y);
    if (!item || !classes) { return; }
    double *kind = plot__numbers(p, classes, item->n);
    item->color_of = (int *)calloc((size_t)item->n, sizeof(int));
    for (int64_t i = 0; i < item->n && kind && item->color_of; i++) {
        item->color_of[i] = kind[i] >= 0 && kind[i] < 1e6 ? (int)kind[i] : 0;
    }
    free(kind);
}

void plot_histogram(plot_t *p, const char *label, tensor_t *values, int bins) {
    int64_t n = tensor_numel(values);
    if (bins < 1 || bins > 1000) {
        (void)plot__fail(p, TENSOR_ERR_SHAPE, "plot_histogram: bins are 1..1000");
        return;
    }
    plot_item_t *item = plot__item(p, PLOT_BARS, label, bins);
    double *v = item ? plot__numbers(p, values, n) : NULL;
    if (!v) { return; }
    item->left = HUGE_VAL;
    item->right = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i])) {
            item->left = fmin(item->left, v[i]);
            item->right = fmax(item->right, v[i]);
        }
    }
    if (!(item->right > item->left)) {                        // one value, or none
        item->left = isfinite(item->left) ? item->left - 0.5 : 0;
        item->right = item->left + 1;
    }
    double step = (item->right - item->left) / bins;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i])) { item->xy[2 * (int)fmin((v[i] - item->left) / step, bins - 1) + 1] += 1; }
    }
    for (int i = 0; i < bins; i++) { item->xy[2 * i] = item->left + i * step; }
    item->n = bins;
    free(v);
}

static plot_item_t *plot__bare(plot_t *p, const char *title, plot_kind_t kind) {
    plot_panel(p, title, NULL, NULL);
    plot_item_t *item = plot__item(p, kind, NULL, 0);
    if (item) { p->panel[item->panel].bare = 1; }
    return item;
}

void plot_image(plot_t *p, const char *title, tensor_t *image) {
    plot_item_t *item = plot__bare(p, title, PLOT_PICTURE);
    if (!item) { return; }
    item->rgb = png_pixels(image, &item->width, &item->height);
    if (!item->rgb) { p->failed = tensor_error_code(); }
}

void plot_boundary(plot_t *p, nn_module_t *net, double left, double right, double bottom, double top) {
    plot_item_t *item = plot__item(p, PLOT_PICTURE, NULL, 0);
    if (!item) { return; }
    item->left = left;
    item->right = right;
    item->bottom = bottom;
    item->top = top;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *axis[2], *grid[2];
    axis[0] = tensor_linspace(top, bottom, PLOT_GRID);
    axis[1] = tensor_linspace(left, right, PLOT_GRID);
    (void)tensor_meshgrid(axis, 2, "ij", grid);
    tensor_t *places[2] = {tensor_flatten(grid[1], 0, -1), tensor_flatten(grid[0], 0, -1)};
    tensor_t *logits = nn_forward(net, tensor_stack_n(places, 2, 1));
    int two = tensor_size(logits, -1) == 1;
    tensor_t *one = tensor_sigmoid(logits), *both[2] = {tensor_rsub_scalar(one, 1), one};
    tensor_t *share = two ? tensor_cat_n(both, 2, 1) : tensor_softmax(logits, 1);
    int64_t classes = tensor_size(share, -1);
    double *v = plot__numbers(p, share, PLOT_GRID * PLOT_GRID * classes);
    item->rgb = v ? (unsigned char *)malloc(PLOT_GRID * PLOT_GRID * 3) : NULL;
    for (int i = 0; i < PLOT_GRID * PLOT_GRID * 3 && item->rgb; i++) {
        double sum = 0;
        for (int c = 0; c < classes; c++) {
            sum += v[i / 3 * classes + c] * (canvas_color(c) >> (16 - i % 3 * 8) & 255);
        }
        item->rgb[i] = png__byte(0.4 * sum + 0.6 * 255);     // pale, so that the dots are seen
    }
    item->width = item->height = PLOT_GRID;
    free(v);
    (void)tensor_scope_end(scope);
}

void plot_confusion(plot_t *p, const char *title, tensor_t *counts, const char *const *names) {
    int64_t k = tensor_ndim(counts) ? tensor_size(counts, 0) : 0;
    if (tensor_ndim(counts) != 2 || k != tensor_size(counts, 1) || k < 1 || k > 100) {
        (void)plot__fail(p, TENSOR_ERR_SHAPE, "plot_confusion: counts is [K, K], K at most 100");
        return;
    }
    plot_item_t *item = plot__bare(p, title, PLOT_MATRIX);
    if (!item) { return; }
    free(item->xy);
    item->xy = plot__numbers(p, counts, k * k);
    item->width = item->height = (int)k;
    item->names = (char *)calloc((size_t)k, 32);
    for (int i = 0; i < k && names && item->names; i++) {
        plot__copy_text(item->names + i * 32, 32, names[i]);
    }
}

// ---- layout ----

// The smallest 1, 2 or 5 times a power of ten that cuts span into at most n steps.
static double plot__step(double span, int n) {
    double step = pow(10, floor(log10(span / n)));
    while (span / step > n) { step *= span / step > 2.5 * n ? 5 : 2; }
    return step;
}

static double plot__x(const plot_panel_t *panel, double x) {
    return panel->x + (x - panel->left) / (panel->right - panel->left) * panel->w;
}

static double plot__y(const plot_panel_t *panel, double y) {
    double at = ((panel->log_y ? log10(y) : y) - panel->bottom) / (panel->top - panel->bottom);
    return panel->y + panel->h * (1 - at);
}

static void plot__widen(plot_panel_t *panel, double x, double y) {
    if (panel->log_y) { y = log10(y); }
    if (!isfinite(x) || !isfinite(y)) { return; }
    panel->left = fmin(panel->left, x);
    panel->right = fmax(panel->right, x);
    panel->bottom = fmin(panel->bottom, y);
    panel->top = fmax(panel->top, y);
}

// The ranges of a panel's axes: all that is drawn on them; pictures decide them where there are some.
static void plot__range(plot_t *p, int index) {
    plot_panel_t *panel = &p->panel[index];
    int fixed = 0, bars = 0;            // bars: they stand on the axis, so that their heights are the counts
    panel->left = panel->bottom = HUGE_VAL;
    panel->right = panel->top = -HUGE_VAL;
    for (int i = 0; i < p->items; i++) {
        plot_item_t *item = &p->item[i];
        if (item->panel != index) { continue; }
        if (item->kind == PLOT_PICTURE) {
            panel->left = item->left;
            panel->right = item->right;
            panel->bottom = item->bottom;
            panel->top = item->top;
            fixed = 1;
        }
        for (int64_t k = 0; k < item->n && !fixed; k++) {
            plot__widen(panel, item->xy[2 * k], item->xy[2 * k + 1]);
        }
        if (item->kind == PLOT_BARS && !fixed) { plot__widen(panel, item->right, panel->log_y ? 1 : 0); }
        bars |= item->kind == PLOT_BARS && !panel->log_y;
    }
    if (!isfinite(panel->left) || !isfinite(panel->bottom)) {             // nothing that can be drawn
        panel->left = panel->bottom = 0;
        panel->right = panel->top = 1;
    }
    if (!(panel->right > panel->left)) {
        panel->left -= 0.5;
        panel->right = panel->left + 1;
    }
    double span = panel->top - panel->bottom, air = span > 0 ? span * 0.04 : 0.5;
    if (!fixed || !(span > 0)) {
        panel->bottom -= bars && panel->bottom >= 0 ? 0 : air;
        panel->top += air;
    }
}

static void plot__axes(canvas_t *c, plot_panel_t *panel) {
    char text[64];
    double x_step = plot__step(panel->right - panel->left, panel->w > 300 ? 8 : 4);
    double y_step = plot__step(panel->top - panel->bottom, panel->h > 200 ? 8 : 4);
    if (panel->log_y) { y_step = fmax(floor(y_step + 0.5), 1); }          // powers of ten
    for (double x = ceil(panel->left / x_step) * x_step; x <= panel->right + x_step * 1e-6; x += x_step) {
        double line[4] = {plot__x(panel, x), panel->y, plot__x(panel, x), panel->y + panel->h};
        canvas_line(c, line, 2, 1, 0xE4E7EB);
        (void)snprintf(text, sizeof text, "%.4g", fabs(x) < x_step * 1e-6 ? 0.0 : x);
        canvas_text(c, line[0], line[3] + 15, 11, CANVAS_MIDDLE, 0x4B5563, text);
    }
    for (double y = ceil(panel->bottom / y_step) * y_step; y <= panel->top + y_step * 1e-6; y += y_step) {
        double at = panel->y + panel->h * (1 - (y - panel->bottom) / (panel->top - panel->bottom));
        double line[4] = {panel->x, at, panel->x + panel->w, at}, value = fabs(y) < y_step * 1e-6 ? 0.0 : y;
        canvas_line(c, line, 2, 1, 0xE4E7EB);
        (void)snprintf(text, sizeof text, "%.4g", panel->log_y ? pow(10, value) : value);
        canvas_text(c, line[0] - 6, at + 4, 11, CANVAS_END, 0x4B5563, text);
    }
    double middle = panel->x + panel->w / 2, below = panel->y + panel->h + 31;
    canvas_text(c, middle, below, 12, CANVAS_MIDDLE, 0x111827, panel->x_label);
    canvas_text(c, panel->x - 38, panel->y + panel->h / 2, 12, CANVAS_UPWARDS, 0x111827, panel->y_label);
}

static void plot__draw(canvas_t *c, const plot_panel_t *panel, const plot_item_t *item) {
    unsigned color = canvas_color(item->color);
    double *line = (double *)malloc((size_t)item->n * 2 * sizeof *line + 1);
    double step = (item->right - item->left) / (item->n ? (double)item->n : 1), base = panel->y + panel->h;
    int64_t run = 0;                        // points of the curve since the last gap
    for (int64_t i = 0; i < item->n && line; i++) {
        double x = plot__x(panel, item->xy[2 * i]), y = plot__y(panel, item->xy[2 * i + 1]);
        int drawn = x >= panel->x - 1 && x <= panel->x + panel->w + 1 && y >= panel->y - 1 && y <= base + 1;
        if (item->kind == PLOT_BARS && item->xy[2 * i + 1] > 0) {
            canvas_rect(c, x, y, fmax(plot__x(panel, item->xy[2 * i] + step) - x - 1, 1), base - y, color);
        } else if (item->kind == PLOT_DOTS && drawn) {
            canvas_dot(c, x, y, 2.6, canvas_color(item->color_of ? item->color_of[i] : item->color));
        } else if (drawn) {
            line[2 * run] = x;
            line[2 * run++ + 1] = y;
        }
        if (item->kind == PLOT_CURVE && (!drawn || i + 1 == item->n)) {
            canvas_line(c, line, run, 1.8, color);
            run = 0;
        }
    }
    free(line);
}

static void plot__picture(canvas_t *c, const plot_panel_t *panel, const plot_item_t *item) {
    double w = panel->w, h = panel->h, scale = fmin(w / item->width, h / item->height);
    if (panel->bare) {                      // as the picture is; else as the axes are
        w = scale * item->width;
        h = scale * item->height;
    }
    canvas_picture(c, panel->x + (panel->w - w) / 2, panel->y, w, h, item->rgb, item->width, item->height);
}

int plot_save(plot_t *p, const char *path) {
    if (!p) { return plot__fail(NULL, TENSOR_ERR_OUT_OF_MEMORY, "plot_save: the plot was not made"); }
    if (p->failed) { return p->failed; }
    canvas_t *c = canvas_new(path, p->width, p->height);
    int columns = p->columns > 0 ? p->columns : p->panels + !p->panels;
    int rows = (p->panels + columns - 1) / columns;
    double bottom = p->height - (p->caption[0] ? 24 : 4);
    for (int k = 0; k < p->panels && c; k++) {
        plot_panel_t *panel = &p->panel[k];
        double w = (double)p->width / columns, h = bottom / rows, legend = 0;
        double margin = panel->bare ? 6 : 52, head = panel->title[0] ? 26 : 8;
        panel->x = k % columns * w + margin;
        panel->y = h * (k / columns) + head;
        panel->w = w - margin - 8;
        panel->h = h - head - (panel->bare ? 4 : 40);
        plot__range(p, k);
        canvas_text(c, panel->x + panel->w / 2, panel->y - 9, 13, CANVAS_MIDDLE, 0x111827, panel->title);
        if (!panel->bare) { plot__axes(c, panel); }
        for (int i = 0; i < p->items; i++) {
            plot_item_t *item = &p->item[i];
            if (item->panel != k) { continue; }
            if (item->kind == PLOT_MATRIX) {
                canvas_table(c, panel->x, panel->y, panel->w, panel->h, item->xy, item->width, item->names);
            } else if (item->kind == PLOT_PICTURE) {
                plot__picture(c, panel, item);
            } else {
                plot__draw(c, panel, item);
            }
            if (item->label[0]) {
                double end = item->n ? plot__y(panel, item->xy[2 * item->n - 1]) : panel->y + panel->h;
                double y = panel->y + 14 + legend++ * 16, x = panel->x + panel->w - 8;
                if (end < panel->y + panel->h * 0.4) { y += panel->h * 0.6; }    // not on the curve
                canvas_text(c, x, y, 12, CANVAS_END, canvas_color(item->color), item->label);
            }
        }
    }
    canvas_text(c, p->width / 2.0, p->height - 8, 12, CANVAS_MIDDLE, 0x111827, p->caption);
    int code = canvas_save(c, p->caption);
    canvas_free(c);
    return code;
}

#endif
#endif

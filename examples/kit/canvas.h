// canvas.h - lines, dots, text and pictures on a surface that becomes SVG or PNG
// Kit for tensor.h, to be copied and changed. Licence: MIT-0 or public domain, as tensor.h.
//
//   #define KIT_CANVAS_IMPLEMENTATION      in one file; brings png.h's implementation
//   #include "kit/canvas.h"
//
//   canvas_t *c = canvas_new("drawing.svg", 200, 100);       // the end of the name decides: .svg or .png
//   canvas_dot(c, 100, 50, 40, 0x2563EB);
//   canvas_save(c, "a dot");
//   canvas_free(c);
//
// Units are pixels, y goes down, colors are 0xRRGGBB. In PNG edges are smoothed and letters are strokes of a
// font of its own, which has ASCII and '?' for all else; in SVG they are text, in UTF-8. A canvas that is
// NULL is ignored.
#ifndef KIT_CANVAS_H_INCLUDED_7C1E
#define KIT_CANVAS_H_INCLUDED_7C1E

#ifdef KIT_CANVAS_IMPLEMENTATION
#define KIT_PNG_IMPLEMENTATION
#endif
#include "png.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct canvas_t canvas_t;
typedef enum canvas_anchor_t { CANVAS_START, CANVAS_MIDDLE, CANVAS_END, CANVAS_UPWARDS } canvas_anchor_t;

// White, sides 1..8192.   -> canvas, NULL on failure;  errors SHAPE, FORMAT (name), OUT_OF_MEMORY
canvas_t *canvas_new(const char *path, int width, int height);
void canvas_free(canvas_t *c);
void canvas_rect(canvas_t *c, double x, double y, double w, double h, unsigned color);
void canvas_dot(canvas_t *c, double x, double y, double radius, unsigned color);
// A line through n points xy[0], xy[1], ..
void canvas_line(canvas_t *c, const double *xy, int64_t n, double width, unsigned color);
// y is the line that letters stand on; x their begin, middle or end (UPWARDS: turned left, x, y the middle).
void canvas_text(canvas_t *c, double x, double y, double size, canvas_anchor_t anchor, unsigned color,
                 const char *text);
// columns * rows RGB pixels over a rectangle, each a flat tile.
void canvas_picture(canvas_t *c, double x, double y, double w, double h, const unsigned char *rgb,
                    int columns, int rows);
// counts k * k, each cell as dark as its share of its row. names: k strings, 32 bytes each, or NULL.
void canvas_table(canvas_t *c, double x, double y, double w, double h, const double *counts, int k,
                  const char *names);
// Eight colors that are easy to tell apart, then the same again.
unsigned canvas_color(int i);
// Writes the file; text goes into it as description.   -> code;  errors IO, OUT_OF_MEMORY
int canvas_save(canvas_t *c, const char *text);

#ifdef __cplusplus
}
#endif
#endif

#ifdef KIT_CANVAS_IMPLEMENTATION
#ifndef KIT_CANVAS_IMPLEMENTED
#define KIT_CANVAS_IMPLEMENTED

#include <math.h>
#include <stdarg.h>

struct canvas_t {
    char path[1024];
    int width, height, failed;
    unsigned char *rgb;                     // NULL: SVG
    png_bytes_t svg;
};

// Strokes of the characters from ' ' on: places "xy" on a grid, y 0 = top of a capital, 6 = the line they
// stand on; a blank lifts the pen.
static const char *const canvas__font[] = {
    "", "0004 0606", "0002 1012", "1016 3036 0242 0444", "413010010213334445361605 2026",
    "0640 0010110100 3545463635", "4612112030310405162644", "0002", "10010516", "00111506",
    "2125 0244 0442", "2125 0343", "1507", "0333", "0606", "0640", "102031352616050110", "012026",
    "01103041420646", "0110304142334445361605 1333", "36300444", "400003334445361605",
    "413010010516364544331304", "004016", "103041423313020110 1304051636454433", "051636454130100102133342",
    "0202 0606", "1212 1507", "410345", "0242 0444", "014305", "01103041422324 2626",
    "46160501103041443432232434", "062046 1434", "0333444536060030414233", "4130100105163645",
    "00063645413000", "40000646 0333", "400006 0333", "41301001051636454323", "0006 4046 0343", "0006",
    "3035261605", "0006 4003 0346", "000646", "0600234046", "06004640", "103041453616050110",
    "06003041423303", "103041453616050110 2446", "06003041423303 1346", "413010010213334445361605",
    "0040 2026", "000516364540", "002640", "0016233640", "0046 4006", "002340 2326", "00400646", "10000616",
    "0046", "00101606", "011021", "0646", "0011", "4332120305163645 4246", "0006 0312324345361605",
    "4332120305163645", "4046 4332120305163645", "04444332120305163645", "30201116 0222",
    "4247381807 4332120305163645", "0006 0312324346", "0206 0000", "121708 1010", "0006 3204 0436", "000516",
    "0206 03122326 23324346", "0206 0312324346", "123243453616050312", "0208 0312324345361605",
    "4248 4332120305163645", "0206 041232", "43321203143445361605", "10152636 0232", "0205163645 4246",
    "022642", "0216233642", "0246 4206", "0226 4208", "02420646", "20111203141526", "0007",
    "00111223141506", "04132433",
};

static void canvas__print(canvas_t *c, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    png_put(&c->svg, text, strlen(text));
}

// Raises what is wrong with the picture of a path.   -> NULL
static canvas_t *canvas__fail(int code, const char *path, const char *what) {
    char text[400];
    (void)snprintf(text, sizeof text, "%.250s: %s", path, what);
    (void)(tensor_raise)(code, text);
    return NULL;
}

canvas_t *canvas_new(const char *path, int width, int height) {
    size_t length = strlen(path);
    int svg = length > 4 && strcmp(path + length - 4, ".svg") == 0;
    if (!svg && (length <= 4 || strcmp(path + length - 4, ".png") != 0)) {
        return canvas__fail(TENSOR_ERR_FORMAT, path, "the name of a picture ends in .svg or .png");
    }
    if (width < 1 || width > 8192 || height < 1 || height > 8192 || length >= 1024) {
        return canvas__fail(TENSOR_ERR_SHAPE, path, "sides are 1..8192, a path is shorter than 1024");
    }
    canvas_t *c = (canvas_t *)calloc(1, sizeof *c);
    size_t bytes = (size_t)width * (size_t)height * 3;
    if (c && !svg) { c->rgb = (unsigned char *)malloc(bytes); }
    if (!c || (!svg && !c->rgb)) {
        free(c);
        return canvas__fail(TENSOR_ERR_OUT_OF_MEMORY, path, "no memory");
    }
    memcpy(c->path, path, length + 1);
    c->width = width;
    c->height = height;
    if (c->rgb) { memset(c->rgb, 255, bytes); }
    return c;
}

void canvas_free(canvas_t *c) {
    if (!c) { return; }
    free(c->rgb);
    free(c->svg.at);
    free(c);
}

// Mixes a color into a pixel; share 0..1.
static void canvas__mix(canvas_t *c, int x, int y, double share, unsigned color) {
    if (x < 0 || y < 0 || x >= c->width || y >= c->height || share <= 0) { return; }
    unsigned char *to = c->rgb + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
    for (int i = 0; i < 3; i++) {
        double want = color >> (16 - 8 * i) & 255;
        to[i] = png__byte(to[i] + (want - to[i]) * (share < 1 ? share : 1));
    }
}

// What is within radius of the segment (a dot if its ends are one place); the edge is one pixel wide.
static void canvas__stroke(canvas_t *c, double x0, double y0, double x1, double y1, double radius,
                           unsigned color) {
    double reach = radius + 1, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
    if (!(fabs(x0) < 1e5 && fabs(y0) < 1e5 && fabs(x1) < 1e5 && fabs(y1) < 1e5)) { return; }    // NaN too
    int left = (int)fmax(fmin(x0, x1) - reach, 0), right = (int)fmin(fmax(x0, x1) + reach, c->width - 1);
    int top = (int)fmax(fmin(y0, y1) - reach, 0), bottom = (int)fmin(fmax(y0, y1) + reach, c->height - 1);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            double px = x + 0.5 - x0, py = y + 0.5 - y0;
            double at = length2 > 0 ? fmin(fmax((px * dx + py * dy) / length2, 0), 1) : 0;
            canvas__mix(c, x, y, radius + 0.5 - hypot(px - at * dx, py - at * dy), color);
        }
    }
}

void canvas_rect(canvas_t *c, double x, double y, double w, double h, unsigned color) {
    if (!c) { return; }
    if (!c->rgb) {
        canvas__print(c, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='#%06x'/>\n", x, y, w, h,
                      color);
        return;
    }
    for (int py = (int)fmax(y, 0); py < c->height && py < y + h; py++) {
        for (int px = (int)fmax(x, 0); px < c->width && px < x + w; px++) {
            double over_x = fmin(px + 1, x + w) - fmax(px, x), over_y = fmin(py + 1, y + h) - fmax(py, y);
            canvas__mix(c, px, py, over_x * over_y, color);
        }
    }
}

void canvas_dot(canvas_t *c, double x, double y, double radius, unsigned color) {
    if (!c) { return; }
    if (c->rgb) {
        canvas__stroke(c, x, y, x, y, radius, color);
    } else {
        canvas__print(c, "<circle cx='%.1f' cy='%.1f' r='%.1f' fill='#%06x'/>\n", x, y, radius, color);
    }
}

void canvas_line(canvas_t *c, const double *xy, int64_t n, double width, unsigned color) {
    if (!c || n < 1) { return; }
    if (!c->rgb) {
        canvas__print(c, "<polyline fill='none' stroke='#%06x' stroke-width='%.1f' points='", color, width);
    }
    for (int64_t i = 0; i < n; i++) {
        if (!c->rgb) {
            canvas__print(c, "%.1f,%.1f ", xy[2 * i], xy[2 * i + 1]);
        } else if (i) {
            canvas__stroke(c, xy[2 * i - 2], xy[2 * i - 1], xy[2 * i], xy[2 * i + 1], width / 2, color);
        }
    }
    if (!c->rgb) { canvas__print(c, "'/>\n"); }
}

// The bytes of the character at p in UTF-8, 1..4; 0 = there is none that can be shown.
static int canvas__character(const char *p) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)p;
    if (b[0] < 0x80) { return b[0] >= ' ' && b[0] <= '~'; }
    if (b[0] < 0xC2 || b[0] > 0xF4) { return 0; }
    int n = 2 + (b[0] >= 0xE0) + (b[0] >= 0xF0);
    uint32_t code = b[0] & (0x7Fu >> n);
    for (int k = 1; k < n; k++) {
        if ((b[k] & 0xC0) != 0x80) { return 0; }
        code = code << 6 | (b[k] & 0x3F);
    }
    int half = code >= 0xD800 && code <= 0xDFFF;            // of a pair of UTF-16
    return code < least[n] || code > 0x10FFFF || half || (code & 0xFFFE) == 0xFFFE ? 0 : n;
}

// Text in UTF-8 with the five characters that XML keeps for itself written as it wants them, and '?' for
// each byte that is not part of a character.
static void canvas__escape(canvas_t *c, const char *text) {
    while (*text) {
        int n = canvas__character(text);
        if (n == 1 && strchr("<>&'\"", *text)) {
            canvas__print(c, "&#%d;", *text);
        } else if (n > 0) {
            canvas__print(c, "%.*s", n, text);
        } else {
            canvas__print(c, "?");
        }
        text += n > 0 ? n : 1;
    }
}

static const char *canvas__next(const char *text) {
    int n = canvas__character(text);
    return text + (n > 0 ? n : 1);
}

static const char *canvas__glyph(char ch) {
    return canvas__font[(ch >= ' ' && ch <= '~' ? ch : '?') - ' '];
}

// Grid columns that a character takes; the blank has no strokes.
static int canvas__columns(char ch) {
    int most = ch == ' ' ? 2 : 0;
    for (const char *s = canvas__glyph(ch); *s; s += s[0] == ' ' ? 1 : 2) {
        if (*s != ' ' && *s - '0' > most) { most = *s - '0'; }
    }
    return most + 2;
}

void canvas_text(canvas_t *c, double x, double y, double size, canvas_anchor_t anchor, unsigned color,
                 const char *text) {
    static const char *const anchors[] = {"start", "middle", "end", "middle"};
    static const double before[] = {0, 0.5, 1, 0.5};          // share of the text on this side of x
    if (!c) { return; }
    if (!c->rgb) {
        canvas__print(c, "<text x='%.1f' y='%.1f' font-size='%.1f' text-anchor='%s' fill='#%06x'", x, y, size,
                      anchors[anchor], color);
        if (anchor == CANVAS_UPWARDS) { canvas__print(c, " transform='rotate(-90 %.1f %.1f)'", x, y); }
        canvas__print(c, ">");
        canvas__escape(c, text);
        canvas__print(c, "</text>\n");
        return;
    }
    double unit_x = size * 0.105, unit_y = size * 0.12, columns = 0;
    for (const char *s = text; *s; s = canvas__next(s)) { columns += canvas__columns(*s); }
    double at = -columns * unit_x * before[anchor];
    int upwards = anchor == CANVAS_UPWARDS;
    for (const char *s = text; *s; at += canvas__columns(*s) * unit_x, s = canvas__next(s)) {
        double old_x = 0, old_y = 0;
        int down = 0;                       // the pen
        for (const char *g = canvas__glyph(*s); *g; g += *g == ' ' ? 1 : 2) {
            if (*g == ' ') {
                down = 0;
                continue;
            }
            double u = at + (g[0] - '0' + 0.5) * unit_x, v = (g[1] - '6') * unit_y;
            double new_x = x + (upwards ? v : u), new_y = y + (upwards ? -u : v);
            if (down) { canvas__stroke(c, old_x, old_y, new_x, new_y, size * 0.03 + 0.2, color); }
            old_x = new_x;
            old_y = new_y;
            down = 1;
        }
    }
}

static void canvas__base64(canvas_t *c, const unsigned char *data, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = (uint32_t)data[i] << 16;
        if (i + 1 < n) { three |= (uint32_t)data[i + 1] << 8; }
        if (i + 2 < n) { three |= data[i + 2]; }
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63],
                        digits[three & 63]};
        if (i + 1 >= n) { four[2] = '='; }
        if (i + 2 >= n) { four[3] = '='; }
        png_put(&c->svg, four, 4);
    }
}

void canvas_picture(canvas_t *c, double x, double y, double w, double h, const unsigned char *rgb,
                    int columns, int rows) {
    if (!c || !rgb || w < 1 || h < 1) { return; }
    if (!c->rgb) {
        png_bytes_t png;
        memset(&png, 0, sizeof png);
        png_encode(&png, rgb, columns, rows, NULL);
        canvas__print(c, "<image x='%.1f' y='%.1f' width='%.1f' height='%.1f' preserveAspectRatio='none' "
                         "style='image-rendering:pixelated' xlink:href='data:image/png;base64,", x, y, w, h);
        if (png.n) { canvas__base64(c, png.at, png.n); }
        canvas__print(c, "'/>\n");
        c->svg.failed |= png.failed;
        free(png.at);
        return;
    }
    for (int py = (int)fmax(y, 0); py < c->height && py + 0.5 < y + h; py++) {
        for (int px = (int)fmax(x, 0); px < c->width && px + 0.5 < x + w; px++) {
            int column = (int)((px + 0.5 - x) / w * columns), row = (int)((py + 0.5 - y) / h * rows);
            if (column < 0 || row < 0) { continue; }
            const unsigned char *from = rgb + ((size_t)row * (size_t)columns + (size_t)column) * 3;
            canvas__mix(c, px, py, 1, (unsigned)from[0] << 16 | (unsigned)from[1] << 8 | from[2]);
        }
    }
}

unsigned canvas_color(int i) {
    static const unsigned colors[] = {0x2563EB, 0xE4572E, 0x2A9D5C, 0x8E44AD,
                                      0xE0A100, 0x17A2B8, 0xD6337A, 0x6B705C};
    return colors[i % 8];
}

void canvas_table(canvas_t *c, double x, double y, double w, double h, const double *counts, int k,
                  const char *names) {
    int named = names && names[0];
    double margin = named ? fmin(w, h) * 0.26 : 0, left = x + margin;
    double cell = fmin((w - margin) / k, (h - margin) / k), size = fmin(cell * 0.36, 13);
    char text[32];
    for (int i = 0; i < k; i++) {
        double sum = 1e-300, base = y + (i + 0.62) * cell;
        for (int j = 0; j < k; j++) { sum += counts[i * k + j]; }
        for (int j = 0; j < k; j++) {
            double share = fmin(fmax(counts[i * k + j] / sum, 0), 1), dark = sqrt(share);
            unsigned red = png__byte(255 - 215 * dark), green = png__byte(255 - 155 * dark);
            unsigned shade = red << 16 | green << 8 | png__byte(255 - 20 * dark);
            canvas_rect(c, left + j * cell, y + i * cell, cell - 1, cell - 1, shade);
            (void)snprintf(text, sizeof text, "%.6g", counts[i * k + j]);
            unsigned ink = share > 0.4 ? 0xFFFFFF : 0x111827;
            canvas_text(c, left + (j + 0.5) * cell, base, size, CANVAS_MIDDLE, ink, text);
        }
        if (!named) { continue; }
        const char *name = names + i * 32;
        canvas_text(c, left - 6, base, fmin(size, 12), CANVAS_END, 0x111827, name);
        double below = y + k * cell + margin / 2;
        canvas_text(c, left + (i + 0.6) * cell, below, fmin(size, 12), CANVAS_UPWARDS, 0x111827, name);
    }
}

int canvas_save(canvas_t *c, const char *text) {
    if (!c) { return tensor_error_code(); }                               // of canvas_new
    png_bytes_t file, body = c->svg;
    memset(&file, 0, sizeof file);
    if (c->rgb) {
        png_encode(&file, c->rgb, c->width, c->height, text);
    } else {
        memset(&c->svg, 0, sizeof c->svg);
        canvas__print(c, "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' "
                         "width='%d' height='%d' font-family='sans-serif'>\n<desc>", c->width, c->height);
        canvas__escape(c, text ? text : "");
        canvas__print(c, "</desc>\n<rect width='%d' height='%d' fill='#ffffff'/>\n", c->width, c->height);
        file = c->svg;
        if (body.n) { png_put(&file, body.at, body.n); }
        png_put(&file, "</svg>\n", 7);
        file.failed |= body.failed;
        c->svg = body;
    }
    int code = png_write_file(c->path, &file);
    free(file.at);
    return code;
}

#endif
#endif

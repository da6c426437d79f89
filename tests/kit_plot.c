// kit_plot.c - examples/kit/plot.h, canvas.h and png.h: PNG decoded again, SVG well-formed, what is refused
//
//   build/tests/kit_plot               the tests
//   build/tests/kit_plot picture ..    of each: "824x246 31% loss 0.01": size, how much is not paper, caption
//
// The decoder here follows RFC 1951 and the PNG specification, not the writer: fixed and stored blocks, every
// row filter but the average, checksums.
#include "test.h"

#define KIT_PLOT_IMPLEMENTATION
#include "../examples/kit/plot.h"

typedef struct file_t { unsigned char *at; size_t n; } file_t;

static char dir[512];

static const char *place(const char *name) {
    static char path[2][700];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/kit_plot_%s", dir, name);
    return path[turn];
}

static file_t slurp(const char *path) {
    file_t f = {NULL, 0};
    FILE *in = fopen(path, "rb");
    if (!in) { return f; }
    f.at = (unsigned char *)malloc(1 << 22);
    f.n = f.at ? fread(f.at, 1, (1 << 22) - 1, in) : 0;
    if (f.at) { f.at[f.n] = 0; }
    (void)fclose(in);
    return f;
}

// ---- a decoder of PNG ----

typedef struct reader_t { const unsigned char *at; size_t n, bit; int bad; } reader_t;

static unsigned take(reader_t *r, int count) {
    unsigned v = 0;
    for (int i = 0; i < count; i++, r->bit++) {
        if (r->bit / 8 >= r->n) {
            r->bad = 1;
            return 0;
        }
        v |= (unsigned)(r->at[r->bit / 8] >> (r->bit % 8) & 1) << i;
    }
    return v;
}

static unsigned take_code(reader_t *r, int count) {
    unsigned v = 0;
    while (count-- > 0) { v = v << 1 | take(r, 1); }
    return v;
}

static unsigned take_symbol(reader_t *r) {
    unsigned v = take_code(r, 7);
    if (v < 24) { return 256 + v; }
    v = v << 1 | take(r, 1);
    if (v >= 0x30 && v < 0xC0) { return v - 0x30; }
    if (v >= 0xC0 && v < 0xC8) { return 280 + v - 0xC0; }
    v = v << 1 | take(r, 1);
    return 144 + v - 0x190;
}

static size_t inflate(reader_t *r, unsigned char *out, size_t room) {
    static const unsigned length_base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const int length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const unsigned far_base[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                        33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                        1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    size_t n = 0;
    for (int last = 0; !last && !r->bad;) {
        last = (int)take(r, 1);
        unsigned kind = take(r, 2);
        if (kind == 0) {
            r->bit = (r->bit + 7) / 8 * 8;
            unsigned length = take(r, 16);
            (void)take(r, 16);
            for (; length && n < room && !r->bad; length--) { out[n++] = (unsigned char)take(r, 8); }
            continue;
        }
        if (kind != 1) {
            r->bad = 1;
            break;
        }
        while (!r->bad) {
            unsigned s = take_symbol(r);
            if (s == 256) { break; }
            if (s < 256) {
                if (n >= room) { r->bad = 1; }
                else { out[n++] = (unsigned char)s; }
                continue;
            }
            if (s > 285) {
                r->bad = 1;
                break;
            }
            unsigned length = length_base[s - 257] + take(r, length_extra[s - 257]), code = take_code(r, 5);
            if (code > 29) {
                r->bad = 1;
                break;
            }
            size_t far = far_base[code] + take(r, code < 2 ? 0 : (int)code / 2 - 1);
            if (far > n || n + length > room) {
                r->bad = 1;
                break;
            }
            for (; length; length--, n++) { out[n] = out[n - far]; }
        }
    }
    return n;
}

static unsigned big(const unsigned char *p) {
    return (unsigned)p[0] << 24 | (unsigned)p[1] << 16 | (unsigned)p[2] << 8 | p[3];
}

static unsigned crc_of(const unsigned char *p, size_t n) {
    unsigned crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) { crc = (crc & 1) ? crc >> 1 ^ 0xEDB88320u : crc >> 1; }
    }
    return ~crc;
}

// RGB of a PNG, to be freed, NULL if anything is wrong; text receives its tEXt chunk.
static unsigned char *decode(file_t f, int *width, int *height, char *text, size_t room) {
    reader_t r = {NULL, 0, 16, 0};
    int ended = 0;
    *width = *height = 0;
    if (room) { text[0] = 0; }
    if (f.n < 8 || memcmp(f.at, "\x89PNG\r\n\x1a\n", 8) != 0) { return NULL; }
    for (size_t at = 8; at + 12 <= f.n;) {
        size_t n = big(f.at + at);
        const unsigned char *name = f.at + at + 4, *data = name + 4;
        if (n > f.n - at - 12 || crc_of(name, n + 4) != big(data + n)) { return NULL; }
        if (memcmp(name, "IHDR", 4) == 0) {
            *width = (int)big(data);
            *height = (int)big(data + 4);
            if (n != 13 || memcmp(data + 8, "\x08\x02\0\0\0", 5) != 0) { return NULL; }
        }
        if (memcmp(name, "tEXt", 4) == 0 && n > 12 && room > n - 12) {
            memcpy(text, data + 12, n - 12);
            text[n - 12] = 0;
        }
        if (memcmp(name, "IDAT", 4) == 0) {
            r.at = data;
            r.n = n;
        }
        ended = memcmp(name, "IEND", 4) == 0;
        at += n + 12;
    }
    if (!ended || !r.at || r.n < 6 || (r.at[0] * 256u + r.at[1]) % 31 != 0) { return NULL; }
    size_t row = (size_t)*width * 3, all = (row + 1) * (size_t)*height;
    unsigned char *raw = (unsigned char *)malloc(all + 1);
    unsigned char *rgb = (unsigned char *)calloc(row, (size_t)*height);
    unsigned s1 = 1, s2 = 0;
    size_t got = raw ? inflate(&r, raw, all) : 0;
    for (size_t i = 0; i < got; i++) {
        s1 = (s1 + raw[i]) % 65521;
        s2 = (s2 + s1) % 65521;
    }
    int good = !r.bad && got == all && big(r.at + r.n - 4) == (s2 << 16 | s1);
    for (size_t y = 0; y < (size_t)*height && good; y++) {
        const unsigned char *line = raw + y * (row + 1);
        for (size_t i = 0; i < row; i++) {
            int left = i >= 3 ? rgb[y * row + i - 3] : 0, up = y ? rgb[(y - 1) * row + i] : 0;
            good &= line[0] <= 2;
            int guess = (line[0] == 1 ? left : 0) + (line[0] == 2 ? up : 0);
            rgb[y * row + i] = (unsigned char)((line[1 + i] + guess) & 255);
        }
    }
    free(raw);
    if (good) { return rgb; }
    free(rgb);
    return NULL;
}

// ---- png.h ----

static void images_come_back(void) {
    char text[64];
    int w, h;
    for (int kind = 0; kind < 4; kind++) {
        tensor_t *t = tensor_randint(0, 256, 3, 37, 53);                   // noise: few matches
        if (kind == 1) { t = tensor_zeros(3, 300, 211); }                  // flat: the longest matches
        if (kind == 2) { t = tensor_remainder_scalar(tensor_arange(0, 3 * 64 * 200, 1, TENSOR_I64), 251); }
        if (kind == 2) { t = tensor_reshape(t, 3, 64, 200); }              // periods
        if (kind == 3) { t = tensor_randint(0, 2, 1, 1, 1); }              // one pixel
        tensor_t *bytes = tensor_to(t, TENSOR_U8);
        CHECK(png_save(place("a.png"), bytes, kind ? "some text" : NULL) == 0);
        file_t f = slurp(place("a.png"));
        unsigned char *rgb = decode(f, &w, &h, text, sizeof text);
        CHECK_MSG(rgb != NULL, "kind %d is not a PNG", kind);
        CHECK(w == tensor_size(t, 2) && h == tensor_size(t, 1));
        CHECK_TEXT(text, kind ? "some text" : "");
        int64_t wrong = 0;
        for (int64_t i = 0; rgb && i < (int64_t)w * h * 3; i++) {
            int64_t plane = tensor_size(t, 0) == 3 ? i % 3 * w * h : 0;
            wrong += rgb[i] != ((const unsigned char *)tensor_data(bytes))[plane + i / 3];
        }
        CHECK_MSG(wrong == 0, "kind %d: %lld bytes differ", kind, (long long)wrong);
        if (kind == 1) { CHECK(f.n < 3000); }                              // 189,900 bytes of one color
        free(rgb);
        free(f.at);
    }
}

static void floats_are_clamped(void) {
    float v[] = {-1, 0, 0.5f, 1, 7, NAN};
    int w, h;
    CHECK(png_save(place("b.png"), tensor_from(v, TENSOR_F32, 2, 3), NULL) == 0);
    file_t f = slurp(place("b.png"));
    unsigned char *rgb = decode(f, &w, &h, NULL, 0);
    CHECK(rgb && rgb[0] == 0 && rgb[3] == 0 && rgb[6] == 128 && rgb[9] == 255 && rgb[12] == 255);
    free(rgb);
    free(f.at);
}

// ---- plot.h ----

// The elements of an SVG nest, every attribute is quoted, and the text has no bare < or &.
//   -> how many elements, -1 if not
static int elements(const char *s) {
    char open[32][32];
    int depth = 0, count = 0;
    for (; *s; s++) {
        if (*s == '&' && !(s[1] == '#' && strchr(s, ';'))) { return -1; }
        if (*s != '<') { continue; }
        if (s[1] == '/') {
            size_t n = strcspn(s + 2, ">");
            if (!depth || strlen(open[depth - 1]) != n || memcmp(open[--depth], s + 2, n) != 0) { return -1; }
            s += n + 2;
            continue;
        }
        size_t n = strcspn(s + 1, " />\n");
        const char *end = s + 1 + n;
        if (depth == 32 || n > 31 || !n) { return -1; }
        memcpy(open[depth], s + 1, n);
        open[depth++][n] = 0;
        for (int quoted = 0; *end && (*end != '>' || quoted); end++) {
            if (*end == '\'') { quoted = !quoted; }
            if (*end == '<') { return -1; }
        }
        if (!*end) { return -1; }
        if (end[-1] == '/') { depth--; }
        count++;
        s = end;
    }
    return depth ? -1 : count;
}

static int times(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++) { n++; }
    return n;
}

static tensor_t *answer(nn_module_t *m, tensor_t *x) {
    (void)m;
    return tensor_mul_scalar(tensor_narrow(x, 1, 0, 1), 50);               // class 1 where x > 0
}

static plot_t *one_of_each(void) {
    static const char *const names[] = {"cat <1>", "dog & co"};
    static nn_module_t net;
    float counts[] = {8, 2, 0, 5};
    plot_t *p = plot_new(900, 500);
    plot_columns(p, 3);
    plot_panel(p, "loss", "step", "value");
    plot_log_y(p);
    for (int i = 0; i < 300; i++) {
        plot_point(p, "train", i, exp(-i / 50.0));
        plot_point(p, "test", i, i == 7 ? NAN : 2 * exp(-i / 60.0));
    }
    plot_panel(p, "dots", NULL, NULL);
    nn_module_init(&net, "Answer", answer, NULL);
    plot_boundary(p, &net, -1, 1, -1, 1);
    tensor_t *x = tensor_linspace(-0.9, 0.9, 20);
    plot_scatter(p, "points", x, tensor_neg(x), tensor_gt_scalar(x, 0));
    plot_panel(p, "bars", NULL, NULL);
    plot_histogram(p, NULL, tensor_linspace(0, 1, 100), 10);
    plot_image(p, "image", tensor_eye(5, 5));
    plot_confusion(p, "who is who", tensor_from(counts, TENSOR_F32, 2, 2), names);
    plot_caption(p, "loss 0.25 < 0.5 & \"done\"");
    nn_free(&net);
    return p;
}

static void svg_is_well_formed(void) {
    plot_t *p = one_of_each();
    CHECK(plot_save(p, place("c.svg")) == 0);
    file_t f = slurp(place("c.svg"));
    const char *s = f.at ? (const char *)f.at : "";
    CHECK_MSG(elements(s) > 80, "%d elements", elements(s));
    CHECK(strstr(s, "<desc>loss 0.25 &#60; 0.5 &#38; &#34;done&#34;</desc>") != NULL);
    CHECK(strstr(s, "cat &#60;1&#62;") != NULL && strstr(s, "width='900' height='500'") != NULL);
    CHECK(times(s, "<circle") == 20);
    CHECK(times(s, "<image") == 2);                                        // the boundary and the eye
    CHECK(times(s, "<rect") == 1 + 10 + 4);                                // paper, bars, cells
    CHECK(times(s, "stroke-width='1.8'") == 3);                            // two curves, one with a gap
    CHECK(strstr(s, "nan") == NULL && strstr(s, "inf") == NULL);
    CHECK(elements("<a><b></a></b>") == -1 && elements("<a>&</a>") == -1 && elements("<a>") == -1);
    plot_free(p);
    free(f.at);
}

// The heights of bars are their counts, from 0 on, as of 1, 2 and 3 values here.
// Labels are UTF-8 in SVG. In PNG a character takes the place of one '?', a byte that is none as well.
static void labels_are_unicode(void) {
    static const char *const odd[][2] = {{"Gr\xC3\xB6\xC3\x9F" "e", "Gr\xC3\xB6\xC3\x9F" "e"},
                                         {"\xE6\x90\x8D \xF0\x9F\x98\x80", "\xE6\x90\x8D \xF0\x9F\x98\x80"},
                                         {"a\xFF" "b\xC3", "a?b?"},
                                         {"\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80", "?????????"},
                                         {"\xEF\xBF\xBF tab\there", "??? tab?here"}};
    for (int k = 0; k < 5; k++) {
        plot_t *p = plot_new(300, 200);
        plot_panel(p, odd[k][0], NULL, NULL);
        plot_point(p, NULL, 0, 1);
        CHECK(plot_save(p, place("u.svg")) == 0);
        file_t f = slurp(place("u.svg"));
        char want[80];
        snprintf(want, sizeof want, ">%s</text>", odd[k][1]);
        CHECK_MSG(f.at && strstr((const char *)f.at, want) != NULL, "label %d", k);
        CHECK(f.at && elements((const char *)f.at) > 0);
        free(f.at);
        plot_free(p);
    }
    file_t f[2];
    for (int k = 0; k < 2; k++) {
        plot_t *p = plot_new(300, 200);
        plot_panel(p, k ? "x ? y ?" : "x \xC3\xB6 y \xFF", NULL, NULL);
        plot_point(p, NULL, 0, 1);
        CHECK(plot_save(p, place("u.png")) == 0);
        f[k] = slurp(place("u.png"));
        plot_free(p);
    }
    CHECK(f[0].at && f[1].at && f[0].n == f[1].n && memcmp(f[0].at, f[1].at, f[0].n) == 0);
    free(f[0].at);
    free(f[1].at);
}

static void bars_stand_on_zero(void) {
    const float values[] = {1, 2, 2, 3, 3, 3};
    plot_t *p = plot_new(400, 300);
    plot_panel(p, "counts", "value", "how many");
    plot_histogram(p, NULL, tensor_from(values, TENSOR_F32, 6), 3);
    CHECK(plot_save(p, place("bars.svg")) == 0);
    file_t f = slurp(place("bars.svg"));
    double height[3] = {0, 0, 0};
    int bars = 0;
    const char *at = f.at ? strstr((const char *)f.at, "<rect x=") : NULL;
    for (; at; at = strstr(at + 1, "<rect x=")) {
        const char *text = strstr(at, "height='");
        if (text && bars < 3) { height[bars++] = atof(text + 8); }
    }
    CHECK_MSG(bars == 3 && fabs(height[1] - 2 * height[0]) < 0.3 && fabs(height[2] - 3 * height[0]) < 0.3,
              "%d bars of heights %g, %g, %g", bars, height[0], height[1], height[2]);
    plot_free(p);
    free(f.at);
}

static void png_shows_the_same(void) {
    char text[200];
    int w, h;
    plot_t *p = one_of_each();
    CHECK(plot_save(p, place("c.png")) == 0);
    file_t f = slurp(place("c.png"));
    unsigned char *rgb = decode(f, &w, &h, text, sizeof text);
    CHECK(rgb && w == 900 && h == 500);
    CHECK_TEXT(text, "loss 0.25 < 0.5 & \"done\"");
    int64_t blue = 0, pale[2] = {0, 0};
    for (int i = 0; rgb && i < w * h; i++) {
        const unsigned char *c = rgb + 3 * i;
        blue += c[0] == 0x25 && c[1] == 0x63 && c[2] == 0xEB;
        if (c[0] == 168 && c[1] == 193 && c[2] == 247) { pale[0]++; }      // 0.4 of a color and 0.6 of white
        if (c[0] == 244 && c[1] == 188 && c[2] == 171) { pale[1]++; }
    }
    CHECK_MSG(blue > 3000, "%lld pixels of bars, dots and curves", (long long)blue);
    CHECK_MSG(pale[0] > 5000 && pale[1] > 5000, "boundary: %lld and %lld pixels", (long long)pale[0],
              (long long)pale[1]);
    plot_free(p);
    free(rgb);
    free(f.at);
}

// Letters are told apart: each draws something, and no two the same.
static void every_letter_differs(void) {
    uint64_t seen[95];
    for (int k = 0; k < 95; k++) {
        char text[2] = {(char)(' ' + k), 0};
        int w, h;
        canvas_t *c = canvas_new(place("d.png"), 24, 32);
        canvas_text(c, 4, 22, 20, CANVAS_START, 0, text);
        CHECK(canvas_save(c, NULL) == 0);
        canvas_free(c);
        file_t f = slurp(place("d.png"));
        unsigned char *rgb = decode(f, &w, &h, NULL, 0);
        seen[k] = TEST_HASH;
        for (int i = 0; rgb && i < w * h * 3; i++) { seen[k] = (seen[k] ^ rgb[i]) * 1099511628211ull; }
        for (int i = 0; i < k; i++) {
            CHECK_MSG(seen[i] != seen[k], "'%c' looks like '%c'", ' ' + k, ' ' + i);
        }
        free(rgb);
        free(f.at);
    }
}

// Few points, equal points, none that can be drawn: no NaN in the file, no crash.
static void odd_data_is_drawn(void) {
    float bad[] = {NAN, INFINITY, -INFINITY};
    float mixed[] = {1, INFINITY, 2, NAN, 3};
    for (int kind = 0; kind < 6; kind++) {
        plot_t *p = plot_new(200, 150);
        if (kind == 5) { plot_scatter(p, NULL, NULL, tensor_from(mixed, TENSOR_F32, 5), NULL); }
        if (kind == 1) { plot_point(p, "one", 3, 3); }
        if (kind == 2) { plot_curve(p, "none", NULL, tensor_from(bad, TENSOR_F32, 3)); }
        if (kind == 3) { plot_histogram(p, "none", tensor_from(bad, TENSOR_F32, 3), 4); }
        if (kind == 4) {
            plot_panel(p, NULL, NULL, NULL);
            plot_log_y(p);
            plot_curve(p, "below", NULL, tensor_neg(tensor_ones(4)));
        }
        CHECK(plot_save(p, place("e.svg")) == 0);
        file_t f = slurp(place("e.svg"));
        CHECK(f.at && elements((const char *)f.at) > 1 && !strstr((const char *)f.at, "nan") &&
              !strstr((const char *)f.at, "inf"));
        if (kind == 5) { CHECK(times((const char *)f.at, "<circle") == 3); }
        free(f.at);
        plot_free(p);
    }
}

static void wrong_use_is_refused(void) {
    plot_t *p = plot_new(300, 200);
    CHECK(plot_save(p, "no/such/folder/x.png") == TENSOR_ERR_IO);
    CHECK(strncmp(tensor_error_text(), "cannot write", 12) == 0);       // not a header that plot.h includes
    CHECK_ERROR(TENSOR_ERR_IO, "cannot write no/such/folder/x.png");
    CHECK(plot_save(p, place("x.gif")) == TENSOR_ERR_FORMAT);
    CHECK(strncmp(tensor_error_text(), place("x.gif"), strlen(place("x.gif"))) == 0);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "x.gif: the name of a picture ends in .svg or .png");
    plot_curve(p, "wrong", tensor_zeros(3), tensor_zeros(4));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "elements, must have");
    CHECK(plot_save(p, place("never.svg")) == TENSOR_ERR_SHAPE);           // the first error stays
    file_t f = slurp(place("never.svg"));
    CHECK(f.at == NULL);
    plot_free(p);

    CHECK(plot_new(10, 10) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "64..4096");
    plot_point(NULL, "nothing", 1, 1);
    plot_image(NULL, "nothing", tensor_zeros(2, 2));
    CHECK(plot_save(NULL, place("never.svg")) != 0);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "not made");
    CHECK(png_save(place("never.png"), tensor_zeros(4, 2, 2), NULL) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "[3, H, W]");
    p = plot_new(300, 200);
    plot_confusion(p, NULL, tensor_zeros(2, 3), NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "[K, K]");
    plot_free(p);
}

// A file that is there stays as it was when the new one cannot be written, and nothing is left beside it.
static void full_disk_leaves_the_old_file(void) {
    char aside[700];
    CHECK(png_save(place("f.png"), tensor_zeros(4, 4), "old") == 0);
    png_bytes_t none;
    memset(&none, 0, sizeof none);
    none.failed = 1;                                                       // memory ran out on the way
    CHECK(png_write_file(place("f.png"), &none) == TENSOR_ERR_OUT_OF_MEMORY);
    CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "no memory");
    file_t f = slurp(place("f.png"));
    CHECK(f.n > 60);
    free(f.at);
    (void)snprintf(aside, sizeof aside, "%s.tmp", place("f.png"));
    f = slurp(aside);
    CHECK(f.at == NULL);
}

// Prints the line that the first comment promises.   -> 0, 1 if the picture is none
static int look(const char *path) {
    char text[400] = "";
    int w = 0, h = 0;
    file_t f = slurp(path);
    const char *s = f.at ? (const char *)f.at : "", *caption = strstr(s, "<desc>");
    if (f.n && s[0] == '<') {
        const char *size = strstr(s, "width='");
        int count = elements(s), places = size ? sscanf(size, "width='%d' height='%d'", &w, &h) : 0;
        if (count < 0 || places != 2 || !caption) { return 1; }
        caption += 6;
        printf("%dx%d %d%% %.*s\n", w, h, count > 99 ? 99 : count, (int)strcspn(caption, "<"), caption);
        free(f.at);
        return 0;
    }
    unsigned char *rgb = decode(f, &w, &h, text, sizeof text);
    if (!rgb) { return 1; }
    int64_t drawn = 0, area = (int64_t)w * h;
    for (int64_t i = 0; i < area; i++) {
        drawn += rgb[3 * i] < 240 || rgb[3 * i + 1] < 240 || rgb[3 * i + 2] < 240;
    }
    printf("%dx%d %d%% %s\n", w, h, (int)(100 * drawn / area), text);
    free(rgb);
    free(f.at);
    return 0;
}

int main(int argc, char **argv) {
    const char *end = strrchr(argv[0], '/');
    for (int i = 1; i < argc; i++) {
        if (look(argv[i])) {
            printf("%s is not a picture\n", argv[i]);
            return 1;
        }
    }
    if (argc > 1) { return 0; }
    (void)snprintf(dir, sizeof dir, "%.*s", end ? (int)(end - argv[0]) : 1, end ? argv[0] : ".");
    RUN(images_come_back);
    RUN(floats_are_clamped);
    RUN(svg_is_well_formed);
    RUN(labels_are_unicode);
    RUN(bars_stand_on_zero);
    RUN(png_shows_the_same);
    RUN(every_letter_differs);
    RUN(odd_data_is_drawn);
    RUN(wrong_use_is_refused);
    RUN(full_disk_leaves_the_old_file);
    return test_report();
}

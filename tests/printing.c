// printing.c - printed tensors against PyTorch's own texts, which tests/fixtures/printing.py wrote
//
//   build/tests/printing             the committed cases
//   build/tests/printing FILE        those of another file of that script
#if defined(__unix__)
#define _POSIX_C_SOURCE 200809L     // dup2
#endif
#include "test.h"

#if defined(__unix__)
#include <fcntl.h>
#include <unistd.h>
#endif

enum { MAX_NUMBERS = 100000, MAX_TEXT = 400000 };

typedef struct { uint64_t state; } draw_t;

static uint64_t word(draw_t *d) {
    uint64_t z = d->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static double signed_unit(draw_t *d) { return (double)(word(d) >> 11) * 0x1p-52 - 1; }

// numbers() of printing.py.
static void numbers(const char *kind, double scale, uint64_t seed, double *out, int64_t n) {
    static const double specials[5] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
    draw_t d = {seed};
    double first = signed_unit(&d);
    int64_t i;
    for (i = 0; i < n; i++) {
        double v = signed_unit(&d);
        int pick = (int)(word(&d) % 8), special = pick < 5;
        if (!strcmp(kind, "uniform")) {
            v *= scale;
        } else if (!strcmp(kind, "whole")) {
            v = floor(v * scale);
        } else if (!strcmp(kind, "wide")) {
            v = ldexp(v, (int)(word(&d) % 80) - 40);
        } else if (!strcmp(kind, "zero")) {
            v = pick == 0 ? -0.0 : 0.0;
        } else if (!strcmp(kind, "inf")) {
            v = pick == 0 ? -INFINITY : INFINITY;
        } else if (!strcmp(kind, "nan")) {
            v = NAN;
        } else if (!strcmp(kind, "mixed")) {
            v = special ? specials[pick] : v * scale;
        } else if (!strcmp(kind, "zeroinf")) {
            v = specials[1 + pick % 4];
        } else if (!strcmp(kind, "wholemixed")) {
            v = special ? specials[pick] : floor(v * scale);
        } else if (!strcmp(kind, "same")) {
            v = first * scale;
        } else if (!strcmp(kind, "powers")) {
            uint64_t k = word(&d) % 12;
            for (v = 1; k > 0; k--) { v *= 10; }
        }
        out[i] = v;
    }
}

static tensor_dtype_t dtype_of(const char *name) {
    static const tensor_dtype_t all[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16, TENSOR_I8,
                                         TENSOR_I16, TENSOR_I32, TENSOR_I64, TENSOR_U8,   TENSOR_BOOL};
    size_t i;
    for (i = 0; i + 1 < sizeof all / sizeof *all && strcmp(tensor_dtype_name(all[i]), name); i++) {}
    return all[i];
}

// An integer dtype's number from v, as printing.py makes it.
static int64_t whole_number(tensor_dtype_t dtype, double v) {
    double limit = dtype == TENSOR_I8    ? 127
                   : dtype == TENSOR_I16 ? 32767
                   : dtype == TENSOR_I32 ? 2147483647.0
                   : dtype == TENSOR_U8  ? 255
                   : dtype == TENSOR_I64 ? 0x1p53
                                         : 1;
    int64_t w;
    if (dtype != TENSOR_U8 && dtype != TENSOR_BOOL) { return (int64_t)fmod(v, limit); }
    w = (int64_t)v % ((int64_t)limit + 1);
    return w < 0 ? w + (int64_t)limit + 1 : w;
}

static tensor_t *made(tensor_dtype_t dtype, const char *kind, double scale, uint64_t seed, int grad,
                      int turned, const int64_t *dims, int ndim) {
    static double v[MAX_NUMBERS];
    static int64_t w[MAX_NUMBERS];
    int real = dtype == TENSOR_F32 || dtype == TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
    int64_t n = 1, i;
    tensor_t *t;
    int k;
    for (k = 0; k < ndim; k++) { n *= dims[k]; }
    if (n > MAX_NUMBERS) { return NULL; }
    numbers(kind, scale, seed, v, n);
    for (i = 0; i < n && !real; i++) { w[i] = whole_number(dtype, v[i]); }
    t = real ? tensor_from_n(v, TENSOR_F64, dims, ndim) : tensor_from_n(w, TENSOR_I64, dims, ndim);
    if (real && dtype != TENSOR_F64) { t = tensor_to(t, TENSOR_F32); }      // PyTorch rounds twice
    t = tensor_to(t, dtype);
    if (turned) { t = tensor_transpose(t, -2, -1); }
    return grad ? tensor_requires_grad_(tensor_detach(t), 1) : t;
}

static const char *fixture = "tests/fixtures/printing.txt";
static long compared;

static void as_pytorch(void) {
    static char line[2000], want[MAX_TEXT], got[MAX_TEXT];
    FILE *f = fopen(fixture, "r");
    int more = f && fgets(line, sizeof line, f) != NULL;
    CHECK_MSG(f != NULL, "no %s", fixture);
    while (more) {
        char dtype[8], kind[16], layout, shape[200], name[300], *at = shape;
        int64_t dims[TENSOR_MAX_DIMS];
        unsigned long long seed;
        int exponent, grad, ndim = 0;
        size_t n = 0;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *t;
        int found = sscanf(line, "@ %7s %15s %d %llu %d %c %199s", dtype, kind, &exponent, &seed, &grad,
                           &layout, shape);
        if (found != 7) {
            CHECK_MSG(0, "not a case: %s", line);
            break;
        }
        snprintf(name, sizeof name, "%.290s", line);
        while (*at != '-' && ndim < TENSOR_MAX_DIMS) {
            dims[ndim++] = strtoll(at, &at, 10);
            if (*at != ',') { break; }
            at++;
        }
        while ((more = fgets(line, sizeof line, f) != NULL) && line[0] != '@') {
            size_t m = strlen(line);
            if (n + m < sizeof want) { memcpy(want + n, line, m); }
            n += m;
        }
        want[n > 0 ? n - 1 : 0] = 0;                // without the last newline
        t = made(dtype_of(dtype), kind, ldexp(1, exponent), (uint64_t)seed, grad, layout == 'T', dims, ndim);
        CHECK(tensor_to_string(t, got, sizeof got) == strlen(want));
        CHECK_MSG(strcmp(got, want) == 0, "%sprints as\n%s\nPyTorch prints\n%s", name, got, want);
        CHECK(tensor_scope_end(scope) == 0);
        compared++;
    }
    if (f) { fclose(f); }
}

// What does not depend on the fixture: the length is that of the whole text, whatever the room.
static void in_little_room(void) {
    char all[4000], text[4000];
    tensor_t *x = tensor_requires_grad_(tensor_full(1e-5, 40, 40), 1);
    size_t n = tensor_to_string(x, all, sizeof all), room;
    CHECK(n == strlen(all));
    for (room = 0; room <= n + 1; room++) {
        memset(text, 'x', sizeof text);
        CHECK(tensor_to_string(x, text, room) == n);
        CHECK(room == 0 || (strlen(text) == (room > n ? n : room - 1) && !strncmp(text, all, room - 1)));
        CHECK(text[room] == 'x');
    }
}

#if defined(__unix__)
enum { PRINT_TENSOR, PRINT_MODULE, PRINT_GRAPH, PRINTERS };

static int print_one(int which, tensor_t *x, nn_module_t *m, const tensor_graph_t *g) {
    switch (which) {
    case PRINT_TENSOR: return tensor_print(x);
    case PRINT_MODULE: return nn_print(m);
    default: return tensor_graph_print(g);
    }
}

// What prints to stdout says that it could not. What a full disk refuses may stay in the buffer of stdout; it
// then stands in front of the next line.
static void on_a_full_disk(void) {
    const int full = open("/dev/full", O_WRONLY);
    if (full < 0) {
        printf("skipped 1 test of a full disk: no /dev/full\n");
        return;
    }
    nn_module_t *m = nn_linear(2, 3);
    tensor_t *x = tensor_ones(2);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *y = tensor_mul_scalar(x, 2);
    tensor_graph_t *g = tensor_capture_end();
    for (int which = 0; which < PRINTERS; which++) {
        CHECK(print_one(which, x, m, g) == 0);
        fflush(stdout);
        const int terminal = dup(1);
        dup2(full, 1);
        int code = print_one(which, x, m, g);
        dup2(terminal, 1);
        close(terminal);
        clearerr(stdout);
        CHECK_MSG(code == TENSOR_ERR_IO, "printer %d gives %d", which, code);
        CHECK_ERROR(TENSOR_ERR_IO, "print: stdout cannot be written at printing.c");
    }
    close(full);
    CHECK(tensor_graph_free(g) == 0 && tensor_free(y) == 0 && nn_free(m) == 0);
}

// Lines of a bar whose seconds the test makes pass, with stderr in a file.
static int64_t progress_lines(double seconds) {
    FILE *file = tmpfile();
    if (!file) { return -1; }
    fflush(stderr);
    const int before = dup(2);
    dup2(fileno(file), 2);
    nn_progress_t bar = nn_progress_begin("step", 1000000, 0);
    for (int64_t half = 0; (double)half <= 2 * seconds; half++) {
        nn_progress(&bar, half + 1, "loss 0.5");
        bar.start -= 0.5;
        bar.shown -= 0.5;
    }
    dup2(before, 2);
    close(before);
    rewind(file);
    int64_t lines = 0;
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) { lines += c == '\n'; }
    fclose(file);
    return lines;
}

// In a file a short run is seen to move, and a long one does not fill the file.
static void progress_in_a_file(void) {
    const int64_t first = progress_lines(1.5), few = progress_lines(15), many = progress_lines(3600);
    CHECK_MSG(first == 1, "%d lines in 1.5 s", (int)first);
    CHECK_MSG(few >= 4 && few <= 5, "%d lines in 15 s", (int)few);
    CHECK_MSG(many >= 118 && many <= 126, "%d lines in an hour", (int)many);
}
#endif

int main(int argc, char **argv) {
    if (argc > 1) { fixture = argv[1]; }
    RUN(as_pytorch);
    RUN(in_little_room);
#if defined(__unix__)
    RUN(on_a_full_disk);
    RUN(progress_in_a_file);
#endif
    printf("%ld printed tensors, cases of PyTorch\n", compared);
    return test_report();
}

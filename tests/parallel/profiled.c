// profiled.c - examples/kit/profiler_cuda.h in the emulator: times of a device in the table and in the trace,
// captures, a ring that turns, marks that fail, a shutdown before the report
#define KIT_PROFILER_IMPLEMENTATION
#define KIT_PROFILER_CUDA_IMPLEMENTATION
#include "../../examples/kit/profiler_cuda.h"

extern void cusim_set(const char *what, long value); // of the emulator

static int passed, failed, errors;

static void check_at(int line, int good, const char *what) {
    passed += good != 0;
    failed += !good;
    if (!good) { printf("profiled.c:%d: not so: %s (%s)\n", line, what, tensor_error_text()); }
}
#define check(good, what) check_at(__LINE__, good, what)

static void heard(int code, const char *text, void *user) {
    (void)text;
    (void)user;
    errors += code != 0;
}

// The row of that name.
static kit_profiler_row_t row(kit_profiler_t *p, int by, const char *name) {
    static kit_profiler_row_t rows[64];
    static const kit_profiler_row_t none = {"", 0, 0, 0, 0, 0, 0, 0};
    int n = kit_profiler_rows(p, by, rows, 64);
    for (int k = 0; k < n && k < 64; k++) {
        if (!strcmp(rows[k].name, name)) { return rows[k]; }
    }
    return none;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) { n++; }
    return n;
}

// A large product takes longer than a small sum; the emulator runs both late, and its clock is the host's.
static void times(const char *path) {
    static char text[40000];
    tensor_t *a = tensor_randn(96, 96), *b = tensor_randn(4);
    tensor_cuda_synchronize(TENSOR_CUDA);
    kit_profiler_t *p = kit_profiler_cuda_start();
    double large, small, all;
    tensor_range_push("step");
    for (int k = 0; k < 3; k++) {
        tensor_matmul(a, a);
        tensor_add(b, b);
    }
    tensor_range_pop();
    large = row(p, KIT_PROFILER_OPS, "matmul").device;
    small = row(p, KIT_PROFILER_OPS, "add").device;
    all = row(p, KIT_PROFILER_MODULES, "step").device;
    check(row(p, KIT_PROFILER_OPS, "matmul").calls == 3, "three calls");
    check(small > 0 && large > small && large < 60, "the product takes longer than the sum");
    check(fabs(all - large - small) < 1e-9, "a range has the time of its calls");
    check(fabs(row(p, KIT_PROFILER_MODULES, "program").device - all) < 1e-9,
          "the program has the time of its range");
    check(p->unmarked == 0 && p->taken.count == 6, "each call has marks");
    // Calls of one stream do not overlap, and none is done before it was made.
    for (int64_t k = 0; k + 1 < p->taken.count; k++) {
        const kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, k);
        check(t->at >= 0 && t->seconds > 0 && t[1].at > t->at + 0.99 * t->seconds - 1e-6,
              "calls are one behind the other");
    }
    kit_profiler_print(p, KIT_PROFILER_OPS, 5);
    check(kit_profiler_trace(p, path) == 0, "the trace is written");
    FILE *file = fopen(path, "rb");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) { fclose(file); }
    remove(path);
    check(count(text, "\"tid\":2,\"ph\":\"X\"") == 6, "a track of the device");
    check(count(text, "\"name\":\"device 0\"") == 1, "the track has a name");
    check(count(text, "\"tid\":1,\"ph\":\"X\"") == 7, "the track of the host");
    kit_profiler_free(p);
    // Without marks it is as it was.
    p = kit_profiler_start();
    tensor_matmul(a, a);
    check(row(p, KIT_PROFILER_OPS, "matmul").calls == 1 && row(p, KIT_PROFILER_OPS, "matmul").device == 0,
          "no marks, no time of the device");
    kit_profiler_free(p);
}

static void captures(void) {
    tensor_t *x = tensor_randn(8), *y;
    tensor_graph_t *g;
    kit_profiler_t *p = kit_profiler_cuda_start();
    check(tensor_capture_begin(TENSOR_CUDA) == 0, "a capture begins");
    y = tensor_tanh(x);
    g = tensor_capture_end();
    check(g && tensor_ok() && tensor_graph_replay(g) == 0, "a capture that is profiled");
    tensor_exp(y);
    check(row(p, KIT_PROFILER_OPS, "tanh").calls == 1 && row(p, KIT_PROFILER_OPS, "tanh").device == 0,
          "no marks in a capture");
    check(row(p, KIT_PROFILER_OPS, "exp").device > 0, "marks after it");
    check(p->unmarked == 0, "a call in a capture lacks no mark");
    kit_profiler_free(p);
    tensor_graph_free(g);
}

// More calls than there are events: each has its time, and no event is made twice.
static void ring_turns(void) {
    enum { CALLS = KIT_PROFILER_MARKS + 100 };
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_randn(2);
    kit_profiler_t *p = kit_profiler_cuda_start();
    int good = 1, made = 0;
    for (int k = 0; k < CALLS; k++) { tensor_add_(x, x); }
    kit_profiler_cuda__ring_t *ring = ((kit_profiler_cuda__state_t *)p->marks.user)->ring;
    for (int k = 0; k <= KIT_PROFILER_MARKS; k++) { made += ring->event[k] != NULL; }
    check(made == KIT_PROFILER_MARKS + 1 && ring->marks == 2 * CALLS, "events are used again");
    check(p->read > 0, "the first marks are read on the way");
    kit_profiler_stop(p);
    for (int64_t k = 0; k < p->taken.count; k++) {
        const kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, k);
        good = good && t->at >= 0 && t->seconds > 0 && (k == 0 || t->at > t[-1].at);
    }
    check(good && p->taken.count == CALLS && p->unmarked == 0, "each call has its time");
    kit_profiler_free(p);
    tensor_scope_end(scope);
}

static void marks_fail(void) {
    tensor_t *x = tensor_randn(64);
    tensor_cuda_synchronize(TENSOR_CUDA);
    kit_profiler_t *p = kit_profiler_cuda_start();
    tensor_exp(x);
    errors = 0;
    cusim_set("fail_call", 0); // the event of the next mark
    tensor_t *y = tensor_tanh(x);
    cusim_set("fail_call", -1);
    check(errors == 1 && tensor_ok() && y, "the error is reported, and is not the program's");
    tensor_tanh(x);
    check(row(p, KIT_PROFILER_OPS, "tanh").calls == 2, "calls without marks are counted");
    check(row(p, KIT_PROFILER_OPS, "tanh").device == 0 && p->unmarked == 2, "and have no time of the device");
    check(row(p, KIT_PROFILER_OPS, "exp").device > 0, "the marks before are read");
    kit_profiler_print(p, KIT_PROFILER_OPS, 5);
    kit_profiler_free(p);
    // DEVICE: a device that was not started.
    p = kit_profiler_cuda_start();
    errors = 0;
    check(p->marks.mark(p->marks.user, (tensor_device_t)(TENSOR_CUDA + 5)) == -1, "no mark elsewhere");
    check(errors == 1 && tensor_ok(), "DEVICE is reported, and is not the program's");
    tensor_exp(x);
    check(row(p, KIT_PROFILER_OPS, "exp").calls == 1 && p->unmarked == 1, "the profile goes on");
    kit_profiler_free(p);
    // An error that the program had stays.
    p = kit_profiler_cuda_start();
    tensor_raise(TENSOR_ERR_SHAPE, "of the program");
    check(p->marks.mark(p->marks.user, (tensor_device_t)(TENSOR_CUDA + 5)) == -1, "no mark there");
    check(tensor_error_code() == TENSOR_ERR_SHAPE, "the program's error stays");
    tensor_clear_error();
    kit_profiler_free(p);
}

// A report after CUDA's end has calls, and no times of the device.
static void shut_down(void) {
    kit_profiler_t *p = kit_profiler_cuda_start();
    tensor_exp(tensor_randn(8));
    tensor_set_default_device(TENSOR_CPU);
    check(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0, "CUDA ends");
    cusim_set("live", 0);
    tensor_set_error_handler(heard, NULL);
    errors = 0;
    check(row(p, KIT_PROFILER_OPS, "exp").calls == 1, "calls stay");
    check(row(p, KIT_PROFILER_OPS, "exp").device == 0 && p->unmarked == p->taken.count && p->unmarked > 0,
          "their times are gone");
    check(errors == 1 && tensor_ok(), "which is said once, and is not the program's error");
    kit_profiler_print(p, KIT_PROFILER_OPS, 5);
    kit_profiler_free(p);
    tensor_shutdown();
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    tensor_set_error_handler(heard, NULL);
    if (tensor_cuda_init()) {
        printf("%s\n0 passed, 1 failed\n", tensor_error_text());
        return 1;
    }
    tensor_set_default_device(TENSOR_CUDA);
    times(argc > 1 ? argv[1] : "profiled.json");
    captures();
    ring_turns();
    marks_fail();
    shut_down();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

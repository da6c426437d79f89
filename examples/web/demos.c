// demos.c - the module of the page: the library, four demos, and the calls by which one of them runs
//
// Build: make web
//
// All memory is one arena, and a page has no environment. So neither malloc nor getenv is in the module,
// which is 10 KB smaller.
#include <stdlib.h>
#define getenv(name) NULL
#define TENSOR_MALLOC(bytes, alignment) NULL
#define TENSOR_FREE(p, bytes, alignment) ((void)(p))
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "web.h"

#include "spiral.c"
#include "image.c"
#include "cartpole.c"
#include "digits.c"

// Milliseconds, from the page.
__attribute__((import_module("page"), import_name("now"))) double page_now(void);

enum { MEMORY = 32 << 20 };

static const web_demo_t *demo;
static unsigned char memory[MEMORY];

WEB_EXPORT(start) void start(int which, int seed) {
    static const web_demo_t *const demos[] = {&spiral, &image, &cartpole, &digits};
    tensor_allocator_t arena = tensor_arena_allocator(memory, MEMORY);
    tensor_set_allocator(&arena);
    demo = demos[which];
    tensor_manual_seed((uint64_t)seed);
    demo->start();
}

// Trains for so many milliseconds, at least one step.   -> mean loss of the steps; NaN if none had one
WEB_EXPORT(run) double run(double milliseconds) {
    double end = page_now() + milliseconds, sum = 0;
    int counted = 0;
    do {
        tensor_scope_t scope = tensor_scope_begin();
        double loss = demo->step();
        tensor_scope_end(scope);
        web_steps++;
        if (loss == loss) {
            sum += loss;
            counted++;
        }
    } while (page_now() < end && !demo->done() && tensor_ok());
    return counted ? sum / counted : NAN;
}

WEB_EXPORT(paint) void paint(void) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    demo->paint();
    tensor_scope_end(scope);
}

WEB_EXPORT(input) void input(double x) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    demo->input(x);
    tensor_scope_end(scope);
}

WEB_EXPORT(play) void play(void) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    if (demo->play) { demo->play(); }
    tensor_scope_end(scope);
}

WEB_EXPORT(done) int done(void) { return demo->done(); }
WEB_EXPORT(steps) int steps(void) { return web_steps; }
WEB_EXPORT(pixels) unsigned char *pixels(void) { return web_pixels[0][0]; }
WEB_EXPORT(numbers) float *numbers(void) { return web_numbers; }

// Empty if all went well.
WEB_EXPORT(error) const char *error(void) { return tensor_ok() ? "" : tensor_error_text(); }

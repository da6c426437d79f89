// profiler.h - where time goes: tables by op, line and module, a trace for Chrome, a flame graph as text
//
// A file to copy and to change, with profiler_clock.h, profiler_tree.h, profiler_show.h and file.h beside it.
// In one C file of the program:
//
//   #define KIT_PROFILER_IMPLEMENTATION
//   #include "kit/profiler.h"
//
//   kit_profiler_t *p = kit_profiler_start();
//   for (int step = 0; step < 10; step++) train_step();
//   kit_profiler_print(p, KIT_PROFILER_OPS, 20);
//   kit_profiler_trace(p, "step.json");      // open in chrome://tracing or ui.perfetto.dev
//   kit_profiler_free(p);
//
// It hears of what the thread does that started it; several may listen to one thread at a time. A listener
// that the program sets itself (tensor_profiler_set) silences them. Of a GPU it sees how long enqueueing
// took; profiler_cuda.h adds how long the GPU took. Without a profiler, products and reductions of a few
// elements leave before the gate, where calls are reported: a program that is profiled has the same results,
// but its smallest calls take a longer way.
#ifndef KIT_PROFILER_H
#define KIT_PROFILER_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kit_profiler_t kit_profiler_t;

// Begins to listen to the calling thread. Takes 48 bytes for each call of a kernel, 32 for each range and
// backward pass, and 16 where a module or range has recorded for autograd.
//   -> profiler, NULL on failure;  errors OUT_OF_MEMORY
kit_profiler_t *kit_profiler_start(void);
// Ends listening, on the same thread; what follows does so, too.
void kit_profiler_stop(kit_profiler_t *p);
void kit_profiler_free(kit_profiler_t *p);

// What a table has a row for. Lines are those of the program that called the library, those of the forward
// call for a gradient. Modules are paths of layers and of ranges (tensor_range_push), "step.0.linear1"; their
// gradients have "backward" in the path: "step.backward.0.linear1". What a hook or a custom function does in
// ranges, layers and passes of its own while a gradient is made is below that gradient's module.
enum { KIT_PROFILER_OPS, KIT_PROFILER_LINES, KIT_PROFILER_MODULES };

typedef struct kit_profiler_row_t {
    const char *name; // lives as long as the profiler
    int64_t calls;    // of kernels; of a module, its children's too
    double self;      // seconds in kernels; of a module, without its children's
    double total;     // with what was done since the call before: checks, memory, the tape, the program's own
                      // work; of a module, from its begin to its end. Ops add up to the time until the last
                      // call, as lines do, and modules without their children to all of it
    double share;     // of the time between start and stop: self of an op or a line, total of a module
    double bytes;     // of all operands
    double flops;     // of products of matrices, convolutions and attention, by their shapes; else 0
    double device;    // seconds of a GPU between the marks around its calls, 0 without marks; of a module,
                      // with its children's
} kit_profiler_row_t;

// Rows of a table, those with the largest share first.
//   rows    receives at most `room`; may be NULL if that is 0
//   -> how many there are;  errors INDEX (there is no such table; 0 rows), OUT_OF_MEMORY (0 rows)
int kit_profiler_rows(kit_profiler_t *p, int by, kit_profiler_row_t *rows, int room);
// Prints the first rows of a table, and what they come to, to stdout.   errors as kit_profiler_rows
void kit_profiler_print(kit_profiler_t *p, int by, int rows);
// Prints the tree of modules with a bar of the share of each that has at least 0.5 %.
void kit_profiler_flame(kit_profiler_t *p);
// Writes calls, ranges, backward passes and live bytes as a trace in Chrome's JSON.
//   -> code;  errors IO, OWNER (p is NULL)
int kit_profiler_trace(kit_profiler_t *p, const char *path);
double kit_profiler_seconds(const kit_profiler_t *p); // between start and stop

// Marks in the work of a device, numbered from 0 for each device: profiler_cuda.h has those of a GPU.
enum { KIT_PROFILER_MARKS = 4096, KIT_PROFILER_DEVICES = 16 };

typedef struct kit_profiler_marks_t {
    void *user;
    // Puts a mark behind what the thread has enqueued on the device.   -> its number, -1 = there is none
    int64_t (*mark)(void *user, tensor_device_t device);
    // Seconds between two marks of a device; waits for `to`. Asked of mark 0 and of the KIT_PROFILER_MARKS
    // latest ones.   -> seconds, NaN on failure
    double (*between)(void *user, tensor_device_t device, int64_t from, int64_t to);
    void (*end)(void *user); // no mark is needed any more; once
} kit_profiler_marks_t;

// From now on calls on a device, but not those in a capture, are between two marks.
//   marks   NULL: without, as at the start; the marks before have their end
void kit_profiler_set_marks(kit_profiler_t *p, const kit_profiler_marks_t *marks);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_PROFILER_IMPLEMENTATION) && !defined(KIT_PROFILER_DONE)
#define KIT_PROFILER_DONE

#include "file.h"

enum { KIT_PROFILER__CACHE = 1 << 11, KIT_PROFILER__FRAMES = 1 << 14 };

#if defined(_MSC_VER) && !defined(__clang__)
#define KIT_PROFILER__OF_THREAD __declspec(thread)
#elif defined(__GNUC__) && !defined(__TINYC__)
#define KIT_PROFILER__OF_THREAD __thread
#else
#define KIT_PROFILER__OF_THREAD // one thread alone has profilers
#endif
static KIT_PROFILER__OF_THREAD kit_profiler_t *kit_profiler__latest; // of those that run

typedef struct kit_profiler__call_t {
    uint64_t begin, end, live;
    float bytes, flops;
    int32_t op, line, frame; // line -1: not known yet
} kit_profiler__call_t;

// A range or module in the tree, under the one in which it was called; 0 is the program. Frames stay: ranges
// of one name in one frame are one frame.
typedef struct kit_profiler__frame_t {
    int32_t name, path;          // path: "step.0.linear1", a name, too
    int32_t parent, child, next; // child: the latest; next: its sibling; -1 none
    int32_t base, mirror;        // the latest result of kit_profiler__mirror, base -1: none
    uint64_t spent;              // in it, not in its children
} kit_profiler__frame_t;

// What began and ended: a range, or a backward pass. Those that are open are a stack, linked by `outer`.
typedef struct kit_profiler__span_t {
    uint64_t begin, end;
    int32_t frame; // of a range; of a pass that of the node which it is at
    int32_t outer; // the open span around it, -1 none
    int32_t base;  // of a pass: the frame in which it began; of a range -1
    int32_t line;  // of a pass: that of the node which it is at
} kit_profiler__span_t;

// Nodes that autograd recorded in one frame: those behind the last one of the item before, up to this number.
typedef struct kit_profiler__nodes_t {
    uint64_t last;
    int32_t frame; // -1: before the profiler
} kit_profiler__nodes_t;

// What a device took for a call: between marks, whose seconds are known once they are read.
typedef struct kit_profiler__taken_t {
    int64_t call, from, to;
    double at, seconds; // at: since the device's mark 0; -1: not known
    int32_t device;     // 0: TENSOR_CUDA
} kit_profiler__taken_t;

typedef struct kit_profiler__name_t {
    char *text;
    int32_t product; // kit_profiler__product
} kit_profiler__name_t;

typedef struct kit_profiler__list_t {
    void *at;
    int64_t count, room;
} kit_profiler__list_t;

typedef struct kit_profiler__moment_t {
    uint64_t ticks;
    double clock; // seconds
} kit_profiler__moment_t;

struct kit_profiler_t {
    tensor_profiler_t hears;
    kit_profiler_t *outer; // was listening when this one started, and hears what this one hears
    uint64_t begin, end, call_begin;
    uint64_t spent; // up to here, frames have their time
    uint64_t latest; // ticks
    int counts;      // ticks are of the processor's counter
    kit_profiler__moment_t start;
    double rate;           // seconds per tick
    int64_t size[TENSOR_DTYPE_COUNT];
    int64_t lost, stamped; // calls there was no memory for; calls before `stamped` know their line
    kit_profiler__list_t calls, frames, spans, nodes, names, taken;
    kit_profiler_marks_t marks;
    int64_t from;           // the mark before this call, -1 = none
    int64_t read, unmarked; // how many of taken were read; calls on a device without marks
    int32_t running;
    int32_t span, pass; // the innermost open one, and the innermost that is a pass; -1 none
    int32_t frame;      // that of `span`, 0 without one
    struct { const char *text, *copy; int32_t name; } cache[KIT_PROFILER__CACHE]; // by the text's address
};

#define KIT_PROFILER__AT(p, list, type, i) (((kit_profiler__##type##_t *)(p)->list.at)[i])

// Makes room for at least one more item.   -> 0 = no memory
static int kit_profiler__grow(kit_profiler__list_t *list, size_t size) {
    int64_t room = list->room ? 2 * list->room : 256;
    void *grown = (uint64_t)room > SIZE_MAX / size ? NULL : realloc(list->at, (size_t)room * size);
    if (!grown) { return 0; }
    list->at = grown;
    list->room = room;
    return 1;
}

// Room for one more item.   -> it, zeroed; NULL = no memory
static void *kit_profiler__add(kit_profiler__list_t *list, size_t size) {
    if (list->count == list->room && !kit_profiler__grow(list, size)) { return NULL; }
    return memset((char *)list->at + (size_t)list->count++ * size, 0, size);
}

// How many multiplications a call has follows from the shapes of its operands a, b, v and its result y.
static int32_t kit_profiler__product(const char *op) {
    if (!strcmp(op, "matmul") || !strncmp(op, "linear", 6)) { return 'm'; }
    if (!strncmp(op, "conv_transpose", 14)) { return 't'; }
    if (!strncmp(op, "conv", 4) && op[4] >= '1' && op[4] <= '3') { return 'c'; }
    if (!strcmp(op, "scaled_dot_product_attention")) { return 'a'; }
    if (!strcmp(op, "scaled_dot_product_attention_backward")) { return 'b'; }
    return !strcmp(op, "conv_weight") ? 'w' : 0;
}

static double kit_profiler__flops(int32_t product, const tensor_profiler_call_t *call) {
    if (!product) { return 0; }
    int back = product == 'b'; // its first operand is the gradient of y
    tensor_profiler_operand_t a = tensor_profiler_operand(call, back);
    tensor_profiler_operand_t b = tensor_profiler_operand(call, back + 1);
    tensor_profiler_operand_t v = tensor_profiler_operand(call, back + 2);
    tensor_profiler_operand_t y = tensor_profiler_operand(call, call->inputs);
    if (!a.ndim || !b.ndim || !a.numel || !b.numel || !y.numel) { return 0; }
    double inner = (double)a.dims[a.ndim - 1], per = (double)b.numel / (double)b.dims[0];
    double na = (double)a.numel, ny = (double)y.numel;
    if (product == 'm') { return 2 * ny * inner; }
    if (product == 'c') { return 2 * ny * per; } // weights per channel of the result
    if (product == 't') { return 2 * na * per; }
    if (product == 'w') { return y.ndim ? 2 * na * ny / (double)y.dims[0] : 0; }
    if (b.ndim < 2 || !v.ndim) { return 0; }
    double one = na / inner * (double)b.dims[b.ndim - 2]; // elements of q kT
    return 2 * one * (back ? 3 * inner + 2 * (double)v.dims[v.ndim - 1] : inner + (double)v.dims[v.ndim - 1]);
}

static const char *kit_profiler__text(const kit_profiler_t *p, int32_t name) {
    return name < 0 ? "?" : KIT_PROFILER__AT(p, names, name, name).text;
}

// The number of a name, by its text.   -> -1 = no memory
static int32_t kit_profiler__name(kit_profiler_t *p, const char *text) {
    for (int32_t k = 0; k < p->names.count; k++) {
        if (!strcmp(kit_profiler__text(p, k), text)) { return k; }
    }
    char *copy = (char *)malloc(strlen(text) + 1);
    kit_profiler__name_t *n = copy ? (kit_profiler__name_t *)kit_profiler__add(&p->names, sizeof *n) : NULL;
    if (!n) { free(copy); }
    if (!n) { return -1; }
    n->text = strcpy(copy, text);
    n->product = kit_profiler__product(text);
    return (int32_t)p->names.count - 1;
}

static int32_t kit_profiler__new_literal(kit_profiler_t *p, const char *text, int is_site, size_t at) {
    const char *shown = text, *slash;
    if (is_site) { // the name of a function and a byte 1, a path, "file.c:41"
        if (strchr(text, 1)) { shown = strchr(text, 1) + 1; }
        while ((slash = strpbrk(shown, "/\\")) != NULL) { shown = slash + 1; }
    }
    p->cache[at].text = text;
    p->cache[at].copy = kit_profiler__text(p, kit_profiler__name(p, text));
    return p->cache[at].name = kit_profiler__name(p, shown);
}

// strcmp == 0, for names of ops, which are short.
static inline int kit_profiler__same(const char *a, const char *b) {
    for (; *a && *a == *b; a++) { b++; }
    return *a == *b;
}

// The same for a literal, which mostly has the text that its address had before; not where the program has
// loaded a library again.
static inline int32_t kit_profiler__literal(kit_profiler_t *p, const char *text, int is_site) {
    size_t at = ((uintptr_t)text ^ ((uintptr_t)text >> 11)) % KIT_PROFILER__CACHE;
    if (p->cache[at].text == text) {
        const char *copy = p->cache[at].copy;
        if (is_site ? !strcmp(copy, text) : kit_profiler__same(copy, text)) { return p->cache[at].name; }
    }
    return kit_profiler__new_literal(p, text, is_site, at);
}

#include "profiler_clock.h"
#include "profiler_tree.h"

// Reads the time between marks, until so many are left.
static void kit_profiler__read(kit_profiler_t *p, int64_t left) {
    for (; p->read < p->taken.count - left; p->read++) {
        kit_profiler__taken_t *t = &KIT_PROFILER__AT(p, taken, taken, p->read);
        tensor_device_t device = (tensor_device_t)(TENSOR_CUDA + t->device);
        t->at = p->marks.between(p->marks.user, device, 0, t->from);
        t->seconds = p->marks.between(p->marks.user, device, t->from, t->to);
        if (t->at >= 0 && t->seconds >= 0) { continue; }
        t->at = -1; // NaN
        t->seconds = 0;
        p->unmarked++;
    }
}

void kit_profiler_set_marks(kit_profiler_t *p, const kit_profiler_marks_t *marks) {
    static const kit_profiler_marks_t none = {NULL, NULL, NULL, NULL};
    if (!p) { return; }
    if (p->marks.mark) { kit_profiler__read(p, 0); }
    if (p->marks.end) { p->marks.end(p->marks.user); }
    p->marks = marks ? *marks : none;
    p->from = -1;
}

// The mark before a call. A device has as many marks as calls, so the older half is read where they run out:
// the device has passed those long ago.
static void kit_profiler__before(kit_profiler_t *p, const tensor_profiler_call_t *call) {
    int device = (int)call->device - TENSOR_CUDA;
    p->from = -1;
    if (device < 0 || call->captured) { return; }
    int64_t left = p->taken.count - p->read;
    if (2 * (left + 1) >= KIT_PROFILER_MARKS) { kit_profiler__read(p, KIT_PROFILER_MARKS / 4); }
    if (device < KIT_PROFILER_DEVICES) { p->from = p->marks.mark(p->marks.user, call->device); }
    p->unmarked += p->from < 0;
}

// The mark behind the latest call.
static void kit_profiler__behind(kit_profiler_t *p, tensor_device_t device) {
    int64_t to = p->marks.mark(p->marks.user, device);
    kit_profiler__taken_t *t = NULL;
    if (to >= 0) { t = (kit_profiler__taken_t *)kit_profiler__add(&p->taken, sizeof *t); }
    p->unmarked += !t;
    if (!t) { return; }
    t->call = p->calls.count - 1;
    t->from = p->from;
    t->to = to;
    t->device = (int32_t)device - TENSOR_CUDA;
}

static void kit_profiler__begin(void *user, const tensor_profiler_call_t *call) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    if (p->outer) { kit_profiler__begin(p->outer, call); }
    if (p->marks.mark) { kit_profiler__before(p, call); }
    p->call_begin = kit_profiler__ticks(p);
}

static void kit_profiler__end(void *user, const tensor_profiler_call_t *call) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    uint64_t end = kit_profiler__ticks(p);
    if (p->outer) { kit_profiler__end(p->outer, call); }
    int32_t op = kit_profiler__literal(p, call->op, 0);
    kit_profiler__list_t *calls = &p->calls;
    if (op < 0 || (calls->count == calls->room && !kit_profiler__grow(calls, sizeof(kit_profiler__call_t)))) {
        p->lost++;
        return;
    }
    int64_t bytes = 0;
    for (int i = 0; i < call->inputs + call->outputs; i++) {
        tensor_profiler_operand_t o = tensor_profiler_operand(call, i);
        if (o.dtype != TENSOR_DTYPE_NONE) { bytes += o.numel * p->size[o.dtype]; }
    }
    int32_t product = KIT_PROFILER__AT(p, names, name, op).product;
    kit_profiler__call_t *c = &KIT_PROFILER__AT(p, calls, call, calls->count++);
    c->begin = p->call_begin;
    c->end = end;
    c->live = call->live_bytes;
    c->bytes = (float)bytes;
    c->flops = (float)kit_profiler__flops(product, call);
    c->op = op;
    c->line = p->pass >= 0 ? KIT_PROFILER__AT(p, spans, span, p->pass).line : -1;
    c->frame = p->frame;
    if (p->from >= 0) { kit_profiler__behind(p, call->device); }
}

static void kit_profiler__site(void *user, const char *site) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    if (p->outer) { kit_profiler__site(p->outer, site); }
    int32_t line = kit_profiler__literal(p, site, 1);
    for (; p->stamped < p->calls.count; p->stamped++) {
        kit_profiler__call_t *c = &KIT_PROFILER__AT(p, calls, call, p->stamped);
        if (c->line < 0) { c->line = line; }
    }
}

static void kit_profiler__range(void *user, const char *name) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    uint64_t now = kit_profiler__ticks(p);
    if (p->outer) { kit_profiler__range(p->outer, name); }
    kit_profiler__leave(p, now);
    if (name) {
        kit_profiler__open(p, kit_profiler__child(p, p->frame, name), -1, now);
    } else {
        kit_profiler__close(p, 0, now);
    }
}

static void kit_profiler__pass(void *user, int begins) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    uint64_t now = kit_profiler__ticks(p);
    if (p->outer) { kit_profiler__pass(p->outer, begins); }
    kit_profiler__leave(p, now);
    if (begins) {
        kit_profiler__open(p, p->frame, p->frame, now);
    } else {
        kit_profiler__close(p, 1, now);
    }
}

static void kit_profiler__backward(void *user, uint64_t node, const char *op, const char *site) {
    kit_profiler_t *p = (kit_profiler_t *)user;
    if (p->outer) { kit_profiler__backward(p->outer, node, op, site); }
    if (p->pass < 0) { return; } // it began before the profiler
    kit_profiler__leave(p, kit_profiler__ticks(p));
    kit_profiler__span_t *s = &KIT_PROFILER__AT(p, spans, span, p->pass);
    int32_t frame = kit_profiler__frame_of(p, node);
    s->frame = kit_profiler__mirror(p, frame < 0 ? s->base : frame, s->base);
    if (site) { s->line = kit_profiler__literal(p, site, 1); } // else that of the node before
    if (p->span == p->pass) { p->frame = s->frame; }
}

kit_profiler_t *kit_profiler_start(void) {
    kit_profiler_t *p = (kit_profiler_t *)calloc(1, sizeof *p);
    void *program = p ? kit_profiler__add(&p->frames, sizeof(kit_profiler__frame_t)) : NULL;
    if (!program || kit_profiler__name(p, "program") != 0 || kit_profiler__name(p, "?") != 1) {
        kit_profiler_free(p);
        (tensor_raise)(TENSOR_ERR_OUT_OF_MEMORY, "kit_profiler_start: out of memory");
        return NULL;
    }
    kit_profiler__frame_t frame = {0, 0, -1, -1, -1, -1, -1, 0};
    memcpy(program, &frame, sizeof frame);
    tensor_profiler_t hears = {p, kit_profiler__begin, kit_profiler__end, kit_profiler__site,
                               kit_profiler__range, kit_profiler__backward, NULL, kit_profiler__pass};
    p->hears = hears;
    for (int k = 0; k < TENSOR_DTYPE_COUNT; k++) {
        p->size[k] = (int64_t)tensor_dtype_size((tensor_dtype_t)k);
    }
    p->span = p->pass = -1;
    p->from = -1;
    kit_profiler__record(p, -1);
    p->running = 1;
    p->outer = kit_profiler__latest;
    kit_profiler__latest = p;
    tensor_profiler_set(&p->hears);
    kit_profiler__set_off(p, kit_profiler__counts());
    return p;
}

void kit_profiler_stop(kit_profiler_t *p) {
    if (!p || !p->running) { return; }
    p->end = kit_profiler__ticks(p);
    p->rate = kit_profiler__rate(p, p->start);
    kit_profiler__spend(p, p->end);
    kit_profiler_t **at = &kit_profiler__latest;
    while (*at && *at != p) { at = &(*at)->outer; }
    if (*at) { *at = p->outer; }
    p->outer = NULL;
    tensor_profiler_set(kit_profiler__latest ? &kit_profiler__latest->hears : NULL);
    p->running = 0;
    kit_profiler_set_marks(p, NULL);
    for (; p->span >= 0; p->span = KIT_PROFILER__AT(p, spans, span, p->span).outer) {
        KIT_PROFILER__AT(p, spans, span, p->span).end = p->end;
    }
}

void kit_profiler_free(kit_profiler_t *p) {
    if (!p) { return; }
    kit_profiler_stop(p);
    for (int64_t k = 0; k < p->names.count; k++) { free(KIT_PROFILER__AT(p, names, name, k).text); }
    free(p->names.at);
    free(p->calls.at);
    free(p->frames.at);
    free(p->spans.at);
    free(p->nodes.at);
    free(p->taken.at);
    free(p);
}

double kit_profiler_seconds(const kit_profiler_t *p) { return p ? p->rate * (double)(p->end - p->begin) : 0; }

#include "profiler_show.h"

#endif

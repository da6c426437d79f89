// floor.h - the least that a captured step takes on this machine: its calls one after the other, each of them
// the longer of the bytes that it has to move and the operations of its products, timed by loops that do
// nothing else.
//
// Bytes are those of inputs and of what a step leaves changed, where a call reads or writes them: forward
// reads the weights, backward reads them again, and an optimizer reads and writes them with its states. The
// loops go through that memory itself and in that order, so what a cache has kept for the step it has kept for
// them. Values between calls could stay in caches, and are not counted; calls of a group count as one.
// Operations are those of products, convolutions, attention and recurrent layers; all others are not counted.
// Of causal attention those of the scores that are not masked count: half of them need not be computed.
// So no program reaches the floor of a step with many functions (tanh, exp) in it. The longer of all bytes
// and all operations would be less than this: an optimizer waits for gradients, and has no products to do
// while its memory comes.
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

// Memory that a call reads, writes or changes.
typedef struct floor_part_t {
    char *data;
    size_t bytes;
    int reads, writes;
} floor_part_t;
enum { FLOOR_SIDE = 384, FLOOR_PARTS = 16384 };

typedef struct floor_t {
    double flops, bound;        // operations of all products, and of the calls that take longer for them
    double read, written;       // bytes of all calls
    int parts;
    floor_part_t part[FLOOR_PARTS];     // of the calls that take longer for their bytes
    tensor_t *a, *b;            // two matrices whose product measures the peak
} floor_t;

// Seconds that a step takes. With one thread it is the processor's time: another program that takes turns on
// the same processor does not count.
static int floor_threads = 1;
static double floor_now(void) {
    return floor_threads == 1 ? (double)clock() / CLOCKS_PER_SEC : bench_now();
}

// Whether a call reads some rows of its first operand: as many bytes as its result has.
static int floor_takes_rows(const char *op) {
    return !strcmp(op, "embedding") || !strcmp(op, "gather") || !strncmp(op, "index", 5);
}

// Adds what a call moves to the parts from `first` on, which are those of its group.
static void floor_call(floor_t *f, int first, const tensor_graph_call_t *call) {
    for (int i = 0; i < call->inputs + call->outputs; i++) {
        const tensor_graph_operand_t o = tensor_graph_operand(call, i);
        if (o.place != TENSOR_GRAPH_INPUT && o.place != TENSOR_GRAPH_OUTPUT) { continue; }
        const tensor_arg_t *a = &call->kernel->arg[i];
        char *data = (char *)(a->contiguous ? a->data : a->storage->data);
        const size_t there = a->storage->bytes - (size_t)(data - (char *)a->storage->data);
        int k = first;
        while (k < f->parts && f->part[k].data != data) { k++; }
        if (k == FLOOR_PARTS) { continue; }
        floor_part_t *p = &f->part[k];
        if (k == f->parts) {
            memset(p, 0, sizeof *p);
            p->data = data;
            f->parts++;
        }
        size_t bytes = o.bytes;
        if (!i && floor_takes_rows(call->op)) { bytes = tensor_graph_operand(call, call->inputs).bytes; }
        if (bytes > there) { bytes = there; }
        if (bytes > p->bytes) { p->bytes = bytes; }
        p->reads |= a->role != TENSOR_WRITE && (o.place == TENSOR_GRAPH_INPUT || p->writes == 0);
        p->writes |= a->role != TENSOR_READ;
    }
}

#if defined(__GNUC__)
typedef uint64_t floor_word_t __attribute__((vector_size(64), aligned(8), may_alias));
#define FLOOR_AHEAD(p) __builtin_prefetch((const char *)(p) + 2048)
#else
typedef uint64_t floor_word_t;
#define FLOOR_AHEAD(p) ((void)0)
#endif
enum { FLOOR_WORD = sizeof(floor_word_t) };

static volatile uint64_t floor_nothing;         // 0, which compilers cannot know

// Moves the bytes of some parts once. What is also read keeps its value; what is only written becomes 0.
static void floor_move(const floor_part_t *part, int n) {
    const uint64_t nothing = floor_nothing;
    floor_word_t sum[4];
    memset(sum, 0, sizeof sum);
    for (int k = 0; k < n; k++) {
        floor_word_t *x = (floor_word_t *)(void *)part[k].data;
        const size_t words = part[k].bytes / FLOOR_WORD;
        if (part[k].writes && !part[k].reads) {
            memset(part[k].data, 0, part[k].bytes);
        } else if (part[k].writes) {
            for (size_t i = 0; i < words; i++) {
                FLOOR_AHEAD(x + i);
                x[i] += nothing;
            }
        } else {
            for (size_t i = 0; i + 4 <= words; i += 4) {
                for (int j = 0; j < 4; j++) { FLOOR_AHEAD(x + i + j); }
                sum[0] += x[i];
                sum[1] += x[i + 1];
                sum[2] += x[i + 2];
                sum[3] += x[i + 3];
            }
        }
    }
    sum[0] += sum[1] + sum[2] + sum[3];
    uint64_t first;
    memcpy(&first, sum, sizeof first);
    floor_nothing = first & 0;
}

// Seconds of moving some parts, of some 20 ms of moves.
static double floor_memory(const floor_part_t *part, int n) {
    const double begin = floor_now();
    double now = begin, moves = 0;
    for (; now - begin < 0.02; moves++, now = floor_now()) { floor_move(part, n); }
    return (now - begin) / moves;
}

// Operations a second of a product, of some 20 ms of products.
static double floor_peak(const floor_t *f) {
    const double begin = floor_now();
    double now = begin, products = 0;
    for (; now - begin < 0.02; products++, now = floor_now()) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_matmul(f->a, f->b);
        tensor_scope_end(scope);
    }
    return 2.0 * FLOOR_SIDE * FLOOR_SIDE * FLOOR_SIDE * products / (now - begin);
}

static double floor_bytes(const floor_part_t *part, int n) {
    double bytes = 0;
    for (int k = 0; k < n; k++) {
        bytes += (double)part[k].bytes * ((part[k].reads != 0) + (part[k].writes != 0));
    }
    return bytes;
}

// The operations that a call needs. The library counts all scores of attention, as PyTorch does.
static double floor_flops(const tensor_graph_call_t *call) {
    const double flops = tensor_graph_flops(call);
    const tensor_call_t *c = call->kernel;
    if (strncmp(call->op, "scaled_dot_product_attention", 28) || !c->p->attention.is_causal) { return flops; }
    const int back = !strcmp(call->op, "scaled_dot_product_attention_backward");
    const tensor_arg_t *query = &c->arg[back], *key = query + 1;
    const int64_t t = query->dims[query->ndim - 2], s = key->dims[key->ndim - 2];
    int64_t seen = 0;
    for (int64_t i = 0; i < t; i++) { seen += i < s ? i + 1 : s; }
    return t * s ? flops * (double)seen / (double)(t * s) : 0;
}

// Lists the parts of the calls whose operations take no longer than a rate of bytes for each of them; 0 = of
// all calls.
static void floor_list(floor_t *f, tensor_graph_t *g, double bytes_per_flop) {
    f->parts = 0;
    f->flops = f->bound = 0;
    for (int64_t i = 0, n = tensor_graph_info(g).calls; i < n;) {
        tensor_graph_call_t call = tensor_graph_call(g, i);
        const int64_t group = call.block_group;
        const int first = f->parts;
        double flops = 0;
        do {
            floor_call(f, first, &call);
            flops += floor_flops(&call);
            call = tensor_graph_call(g, ++i);
        } while (i < n && group >= 0 && call.block_group == group);
        f->flops += flops;
        if (flops * bytes_per_flop > floor_bytes(f->part + first, f->parts - first)) {
            f->parts = first;
            f->bound += flops;
        }
    }
}

static void floor_init(floor_t *f, tensor_graph_t *g) {
    f->a = tensor_randn(FLOOR_SIDE, FLOOR_SIDE);
    f->b = tensor_randn(FLOOR_SIDE, FLOOR_SIDE);
    floor_list(f, g, 0);
    f->read = f->written = 0;
    for (int k = 0; k < f->parts; k++) {
        f->read += f->part[k].reads ? (double)f->part[k].bytes : 0;
        f->written += f->part[k].writes ? (double)f->part[k].bytes : 0;
    }
    floor_memory(f->part, f->parts);            // the first time is slow
    const double bandwidth = (f->read + f->written) / floor_memory(f->part, f->parts);
    floor_list(f, g, bandwidth / floor_peak(f));
}

// Microseconds of the least that a step takes.
static double floor_sample(const floor_t *f) {
    const double memory = f->parts ? floor_memory(f->part, f->parts) : 0;
    return 1e6 * (memory + (f->bound > 0 ? f->bound / floor_peak(f) : 0));
}

// ---- the share of kernels

// A listener that adds up the seconds between a kernel's begin and end.
typedef struct kernels_t {
    double began, seconds;
    long calls;
} kernels_t;

static void kernels_begin(void *user, const tensor_profiler_call_t *call) {
    (void)call;
    ((kernels_t *)user)->began = bench_now();
}

static void kernels_end(void *user, const tensor_profiler_call_t *call) {
    kernels_t *k = (kernels_t *)user;
    (void)call;
    k->seconds += bench_now() - k->began;
    k->calls++;
}

// Seconds between two looks at the clock.
static double kernels_clock(void) {
    enum { LOOKS = 1000 };
    const double begin = bench_now();
    double now = begin;
    for (int i = 0; i < LOOKS; i++) { now = bench_now(); }
    return (now - begin) / LOOKS;
}

// Microseconds that a replay spends in kernels: of some 50 ms of replays, without what the clock takes. The
// clock in a replay is that of the wall, which costs less; the share that the processor gave is known at the
// end.
static double kernels_sample(tensor_graph_t *g) {
    kernels_t k;
    tensor_profiler_t hears;
    memset(&k, 0, sizeof k);
    memset(&hears, 0, sizeof hears);
    hears.user = &k;
    hears.begin = kernels_begin;
    hears.end = kernels_end;
    tensor_profiler_set(&hears);
    const double begin = bench_now(), began = floor_now();
    long steps = 0;
    for (; floor_now() - began < 0.05; steps++) { tensor_graph_replay(g); }
    const double given = (floor_now() - began) / (bench_now() - begin);
    tensor_profiler_set(NULL);
    return 1e6 * (given * k.seconds - (double)k.calls * kernels_clock()) / (double)steps;
}

#endif

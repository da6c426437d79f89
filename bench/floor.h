// floor.h - what a captured step cannot be faster than on this machine: the bytes that it has to move and the
// operations of its products, timed by loops that do nothing else.
//
// Bytes are those of inputs, once each, and of what a step leaves changed, once each: values between its
// calls could stay in caches, and are not counted. Operations are those of products, convolutions, attention and
// recurrent layers; all others are not counted. So no program reaches the floor of a step with many
// functions (tanh, exp) in it.
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

typedef struct floor_t {
    double flops;
    size_t read, written;       // bytes
    char *memory;               // as much of it: what is read and written comes first
    tensor_t *a, *b;            // two matrices whose product measures the peak
} floor_t;

// Seconds that a step takes. With one thread it is the processor's time: another program that takes turns on
// the same processor does not count.
static int floor_threads = 1;
static double floor_now(void) {
    return floor_threads == 1 ? (double)clock() / CLOCKS_PER_SEC : bench_now();
}

// A storage of the step; at most as many bytes of it are read or written as there are.
typedef struct floor_memory_t {
    const void *storage;
    uint64_t bytes, read, written;
} floor_memory_t;
enum { FLOOR_SIDE = 384, FLOOR_MEMORIES = 4096 };

// Whether a call reads some rows of its first operand: as many bytes as its result has.
static int floor_takes_rows(const char *op) {
    return !strcmp(op, "embedding") || !strcmp(op, "gather") || !strncmp(op, "index", 5);
}

static void floor_call(floor_memory_t *list, int *n, const tensor_graph_call_t *call) {
    for (int i = 0; i < call->inputs + call->outputs; i++) {
        const tensor_graph_operand_t o = tensor_graph_operand(call, i);
        if (o.place != TENSOR_GRAPH_INPUT && o.place != TENSOR_GRAPH_OUTPUT) { continue; }
        const tensor_arg_t *a = &call->kernel->arg[i];
        int k = 0;
        while (k < *n && list[k].storage != a->storage) { k++; }
        if (k == FLOOR_MEMORIES) { continue; }
        floor_memory_t *m = &list[k];
        if (k == *n) {
            memset(m, 0, sizeof *m);
            m->storage = a->storage;
            m->bytes = a->storage->bytes;
            ++*n;
        }
        uint64_t bytes = o.bytes;
        if (!i && floor_takes_rows(call->op)) { bytes = tensor_graph_operand(call, call->inputs).bytes; }
        if (a->role != TENSOR_READ) { m->written += bytes; }
        if (a->role != TENSOR_WRITE && o.place == TENSOR_GRAPH_INPUT) { m->read += bytes; }
    }
}

// -> 0: out of memory
static int floor_init(floor_t *f, tensor_graph_t *g) {
    static floor_memory_t list[FLOOR_MEMORIES];
    int n = 0;
    memset(f, 0, sizeof *f);
    for (int64_t i = 0; i < tensor_graph_info(g).calls; i++) {
        const tensor_graph_call_t call = tensor_graph_call(g, i);
        floor_call(list, &n, &call);
        f->flops += tensor_graph_flops(&call);
    }
    for (int k = 0; k < n; k++) {
        f->read += list[k].read < list[k].bytes ? list[k].read : list[k].bytes;
        f->written += list[k].written < list[k].bytes ? list[k].written : list[k].bytes;
    }
    f->memory = (char *)calloc(f->read > f->written ? f->read : f->written, 1);
    f->a = tensor_randn(FLOOR_SIDE, FLOOR_SIDE);
    f->b = tensor_randn(FLOOR_SIDE, FLOOR_SIDE);
    return f->memory != NULL;
}

#if defined(__GNUC__)
typedef uint64_t floor_word_t __attribute__((vector_size(64), aligned(8), may_alias));
#else
typedef uint64_t floor_word_t;
#endif
enum { FLOOR_WORD = sizeof(floor_word_t) };

// Moves the bytes once: reads and writes what is both, reads or writes the rest.
static void floor_move(const floor_t *f) {
    static volatile uint64_t kept;
    const size_t both = (f->read < f->written ? f->read : f->written) / FLOOR_WORD;
    floor_word_t *x = (floor_word_t *)(void *)f->memory, sum[4];
    memset(sum, 0, sizeof sum);
    for (size_t i = 0; i < both; i++) { x[i] += 1; }
    const size_t words = f->read / FLOOR_WORD;
    for (size_t i = both; i + 4 <= words; i += 4) {
        sum[0] += x[i];
        sum[1] += x[i + 1];
        sum[2] += x[i + 2];
        sum[3] += x[i + 3];
    }
    sum[0] += sum[1] + sum[2] + sum[3];
    uint64_t first;
    memcpy(&first, sum, sizeof first);
    kept = first;
    if (f->written > f->read) { memset(f->memory + f->read, (int)kept & 1, f->written - f->read); }
}

// Microseconds of the least that a step may take: of some 20 ms of moves, and of some 20 ms of products.
static double floor_sample(const floor_t *f) {
    double begin = floor_now(), now = begin, moves = 0, products = 0;
    for (; now - begin < 0.02; moves++, now = floor_now()) { floor_move(f); }
    const double memory = (now - begin) / moves;
    begin = now;
    for (; now - begin < 0.02; products++, now = floor_now()) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_matmul(f->a, f->b);
        tensor_scope_end(scope);
    }
    const double peak = 2.0 * FLOOR_SIDE * FLOOR_SIDE * FLOOR_SIDE * products / (now - begin);
    return 1e6 * (memory > f->flops / peak ? memory : f->flops / peak);
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

// trace.c - sections 5.2 and 5.3 of the PyTorch paper (figures 1 and 2) with a driver that computes nothing
// (idle.cpp)
//
//   trace host          host time of a training step of ResNet-50, by itself: nanoseconds an op; launches,
//                       copies, waits and driver calls of a step; beside the least time that the kernels
//                       would take
//   trace queue x.svg   figure 1: when the host asked for each op of a forward pass, when the device would
//                       run it
//   trace memory        figure 2: milliseconds until the host has queued each of the first five steps and
//                       until the device is done, and driver calls, where cudaMalloc and cudaFree take time;
//                       TENSOR_CUDA_NO_CACHE=1 in the environment: without the caching allocator
//
// A kernel takes the longer of bytes / bandwidth and operations / peak, at the rates of a data sheet: less
// than any real one does. BATCH (32), STEPS (5), MOMENTUM (0), ALLOC_US (300) and FREE_US (100) are read from
// the environment.
//
// Build: sh bench/paper.sh (needs CUDA's headers, no GPU). Lines are "row value unit".
#include "bench.h"

#include "../examples/models/resnet.h"
#include "tensor_cuda.h"

#define KIT_PROFILER_IMPLEMENTATION
#include "../examples/kit/profiler.h"

typedef struct idle_counts_t { long launches, copies, waits, allocs, frees; } idle_counts_t;
extern idle_counts_t idle_counts(void);
extern void idle_costs(double alloc, double release);
extern void idle_kernel(double seconds);
extern double idle_done(void);

// f32 operations and bytes a second: Quadro GP100, which the paper used, and H200, by NVIDIA's data sheets.
typedef struct gpu_t { const char *name; double flops, bytes; } gpu_t;
static const gpu_t gpus[] = {{"gp100", 10.3e12, 717e9}, {"h200", 67e12, 4.8e12}};
enum { GPUS = 2, OPS = 4096 };

typedef struct job_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;
} job_t;

// What a listener saw of one pass.
typedef struct seen_t {
    tensor_profiler_t hears;
    int ops, timed;             // timed: kernels take their time on the device
    double kernels[GPUS];       // seconds
    double began, host[OPS], device[OPS];   // end of op i on either side
    double device_began[OPS];
} seen_t;
static seen_t seen;

static double number(const char *name, double otherwise) {
    return getenv(name) ? atof(getenv(name)) : otherwise;
}

static double kernel_seconds(const tensor_profiler_call_t *call, const gpu_t *gpu) {
    const double flops = kit_profiler__flops(kit_profiler__product(call->op), call);
    double bytes = 0;
    for (int i = 0; i < call->inputs + call->outputs; i++) {
        const tensor_profiler_operand_t o = tensor_profiler_operand(call, i);
        if (o.dtype != TENSOR_DTYPE_NONE) { bytes += 4.0 * (double)o.numel; }
    }
    const double compute = flops / gpu->flops, memory = bytes / gpu->bytes;
    return compute > memory ? compute : memory;
}

static void begin(void *user, const tensor_profiler_call_t *call) {
    seen_t *s = (seen_t *)user;
    for (int g = 0; g < GPUS; g++) { s->kernels[g] += kernel_seconds(call, &gpus[g]); }
    if (s->timed) { idle_kernel(kernel_seconds(call, &gpus[0])); }
}

static void end(void *user, const tensor_profiler_call_t *call) {
    seen_t *s = (seen_t *)user;
    const int i = s->ops++;
    if (i >= OPS || !s->timed) { return; }
    s->host[i] = bench_now() - s->began;
    s->device[i] = idle_done() - s->began;
    s->device_began[i] = s->device[i] - kernel_seconds(call, &gpus[0]);
}

static void listen(int timed) {
    memset(&seen, 0, sizeof seen);
    seen.hears.user = &seen;
    seen.hears.begin = begin;
    seen.hears.end = end;
    seen.timed = timed;
    seen.began = bench_now();
    tensor_profiler_set(&seen.hears);
}

static void step(job_t *j) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_zero_grad(j->opt);
    tensor_t *loss = tensor_cross_entropy(nn_forward(j->net, j->x), j->y);
    tensor_backward(loss);
    nn_step(j->opt);
    tensor_scope_end(scope);
}

static void host(job_t *j) {
    enum { STEPS = 31 };
    double s[STEPS];
    idle_counts_t c;
    for (int i = -5; i < STEPS; i++) {
        (void)idle_counts();
        const double t = bench_now();
        step(j);
        if (i >= 0) { s[i] = bench_now() - t; }
    }
    c = idle_counts();
    listen(0);
    step(j);
    tensor_profiler_set(NULL);
    qsort(s, STEPS, sizeof s[0], bench_compare);
    bench_row("host_step", 1e6 * s[STEPS / 2], "us");
    bench_row("host_ops", seen.ops, "ops");
    bench_row("host_op", 1e9 * s[STEPS / 2] / seen.ops, "ns");
    bench_row("host_launches", (double)c.launches, "calls");
    bench_row("host_copies", (double)c.copies, "calls");
    bench_row("host_waits", (double)c.waits, "calls");
    bench_row("host_driver", (double)(c.allocs + c.frees), "calls");
    for (int g = 0; g < GPUS; g++) {
        char name[48];
        snprintf(name, sizeof name, "host_kernels_%s", gpus[g].name);
        bench_row(name, 1e6 * seen.kernels[g], "us");
        snprintf(name, sizeof name, "host_ahead_%s", gpus[g].name);
        bench_row(name, seen.kernels[g] / s[STEPS / 2], "times");
    }
}

static void queue(job_t *j, const char *path) {
    tensor_scope_t scope = tensor_scope_begin();
    (void)nn_forward(j->net, j->x);
    tensor_cuda_synchronize(TENSOR_CUDA);
    listen(1);
    (void)nn_forward(j->net, j->x);
    tensor_profiler_set(NULL);
    const int n = seen.ops < OPS ? seen.ops : OPS;
    if (n < 1) { return; }
    const double host_ms = 1e3 * seen.host[n - 1], device_ms = 1e3 * seen.device[n - 1];
    bench_row("queue_host", host_ms, "ms");
    bench_row("queue_device", device_ms, "ms");
    bench_row("queue_ahead", device_ms / host_ms, "times");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        const double scale = 900 / device_ms;
        fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='150' "
                "font-family='sans-serif' font-size='12'>\n<rect width='1000' height='150' fill='white'/>\n"
                "<text x='10' y='20'>ResNet-50, forward, %d ops: the host asks in %.2f ms, the device "
                "(emulated) runs until %.1f ms</text>\n", n, host_ms, device_ms);
        for (int lane = 0; lane < 2; lane++) {
            fprintf(f, "<text x='10' y='%d'>%s</text>\n", 62 + 50 * lane, lane ? "device" : "host");
            for (int i = 0; i < n; i++) {
                const double from = 1e3 * (lane ? seen.device_began[i] : i ? seen.host[i - 1] : 0);
                const double to = 1e3 * (lane ? seen.device[i] : seen.host[i]);
                fprintf(f, "<rect x='%.2f' y='%d' width='%.2f' height='30' fill='hsl(%d,55%%,60%%)'/>\n",
                        70 + from * scale, 42 + 50 * lane, (to - from) * scale, i * 47 % 360);
            }
        }
        fprintf(f, "</svg>\n");
        fclose(f);
    }
    tensor_scope_end(scope);
}

static void memory(job_t *j) {
    idle_costs(1e-6 * number("ALLOC_US", 300), 1e-6 * number("FREE_US", 100));
    (void)idle_counts();
    for (int i = 1; i <= (int)number("STEPS", 5); i++) {
        char name[48];
        const double t = bench_now();
        listen(1);
        step(j);
        tensor_profiler_set(NULL);
        const double queued = bench_now() - t;
        tensor_cuda_synchronize(TENSOR_CUDA);
        const double took = bench_now() - t;
        const idle_counts_t c = idle_counts();
        snprintf(name, sizeof name, "memory_step_%d", i);
        bench_row(name, 1e3 * took, "ms");
        snprintf(name, sizeof name, "memory_host_%d", i);
        bench_row(name, 1e3 * queued, "ms");
        snprintf(name, sizeof name, "memory_driver_%d", i);
        bench_row(name, (double)(c.allocs + c.frees), "calls");
    }
    bench_row("memory_kernels", 1e3 * seen.kernels[0], "ms");
    idle_costs(0, 0);
}

int main(int argc, char **argv) {
    job_t j;
    const char *what = argc > 1 ? argv[1] : "";
    const int64_t batch = (int64_t)number("BATCH", 32);
    if (tensor_cuda_init()) {
        fprintf(stderr, "%s\n", tensor_error_text());
        return 1;
    }
    tensor_set_default_device(TENSOR_CUDA);
    j.net = resnet_new(50, 1000, 1, 0);
    j.opt = nn_sgd(j.net, .lr = 0.1, .momentum = number("MOMENTUM", 0));
    j.x = tensor_randn(batch, 3, 224, 224);
    j.y = tensor_zeros_of(TENSOR_I64, batch);
    if (strcmp(what, "host") == 0) {
        host(&j);
    } else if (strcmp(what, "queue") == 0) {
        queue(&j, argc > 2 ? argv[2] : NULL);
    } else if (strcmp(what, "memory") == 0) {
        memory(&j);
    } else {
        fprintf(stderr, "use: trace host | queue FILE.svg | memory\n");
    }
    bench_row("on_the_cpu", (double)tensor_cuda_fallbacks(), "calls");
    if (!tensor_ok()) {
        fprintf(stderr, "%s\n", tensor_error_text());
        return 1;
    }
    return 0;       // the library's memory goes with the process: nothing of it was ever there
}

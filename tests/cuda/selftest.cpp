// selftest.cpp - what the test-bed finds: planted bugs, each in the builds named for it; correct programs pass
//
// Every case runs in a child of its own, for most bugs end it. "Found" = the child ends with anything but 0.
#include "cusim.h"
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

enum { PLAIN = 1, ASAN = 2, TSAN = 4, ALL = 7 };
#if defined(CUSIM_TSAN)
const int BUILD = TSAN;
#elif defined(CUSIM_ASAN)
const int BUILD = ASAN;
#else
const int BUILD = PLAIN;
#endif
const int SEEDS = BUILD == PLAIN ? 10 : BUILD == ASAN ? 5 : 3;      // a process costs 0.2 s with TSan

static cudaStream_t s1, s2;
static float *device(size_t n) {
    void *p;
    if (cudaMalloc(&p, n * 4)) { std::exit(9); }
    return (float *)p;
}
static float *pinned(size_t n, float v) {
    void *p;
    if (cudaMallocHost(&p, n * 4)) { std::exit(9); }
    for (size_t i = 0; i < n; i++) { ((float *)p)[i] = v; }
    return (float *)p;
}
template <class T> __device__ T warp_sum(T v) {
    for (int d = 16; d; d >>= 1) { v += __shfl_xor_sync(~0u, v, d); }
    return v;
}

// ------------------------------------------------------------------------------------------- kernels, right and wrong
enum { NO_BARRIER = 1, NO_SECOND_BARRIER = 2, NO_BOUND = 4 };
__global__ void add(float *y, const float *a, const float *b, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { y[i] = a[i] + b[i]; }
}
__global__ void add4(float *y, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) { return; }
    float4 u = ((const float4 *)a)[i], v = ((const float4 *)b)[i];
    ((float4 *)y)[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
}
__global__ void sum(float *out, const float *x, int n, int bug) {
    TCU_SHARED(float, part, [32]);
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { v += x[i]; }
    v = warp_sum(v);
    int w = threadIdx.x >> 5, l = threadIdx.x & 31;
    if (!l) { part[w] = v; }
    if (!(bug & NO_BARRIER)) { __syncthreads(); }
    if (w) { return; }
    v = warp_sum(l < (int)(blockDim.x >> 5) ? part[l] : 0.0f);
    if (!l) { atomicAdd(out, v); }
}
__global__ void matmul(float *c, const float *a, const float *b, int m, int n, int k, int bug) {
    TCU_SHARED(float, ta, [16][17]);
    TCU_SHARED(float, tb, [16][17]);
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float acc = 0;
    for (int t = 0; t < k; t += 16) {
        ta[y][x] = row < m && t + x < k ? a[row * k + t + x] : 0.0f;
        tb[y][x] = t + y < k && col < n ? b[(t + y) * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) { acc += ta[y][i] * tb[i][x]; }
        if (!(bug & NO_SECOND_BARRIER)) { __syncthreads(); }
    }
    if (bug & NO_BOUND || (row < m && col < n)) { c[row * n + col] = acc; }
}
__global__ void softmax(float *y, const float *x, int cols) {
    TCU_DYNAMIC_SHARED(float, red);
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    int w = threadIdx.x >> 5, l = threadIdx.x & 31, nw = blockDim.x >> 5;
    float s = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) { s += expf(x[i]); }
    s = warp_sum(s);
    if (!l) { red[w] = s; }
    __syncthreads();
    s = 0;
    for (int i = 0; i < nw; i++) { s += red[i]; }
    for (int i = threadIdx.x; i < cols; i += blockDim.x) { y[i] = expf(x[i]) / s; }
}
__global__ void barrier_of_some(float *y) {
    if (threadIdx.x < 40) { __syncthreads(); }
    y[threadIdx.x] = 1;
}
__global__ void barrier_at_two_places(float *y) {
    if (threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = 1;
    } else {
        __syncthreads();
        y[threadIdx.x] = 2;
    }
}
__global__ void wrong_mask(float *y) {
    float v = (float)threadIdx.x;
    if (threadIdx.x < 16) { v = __shfl_xor_sync(~0u, v, 1); }
    y[threadIdx.x] = v;
}
__global__ void rotate(float *y, int bug) {
    TCU_SHARED(float, s, [32]);
    s[threadIdx.x] = (float)threadIdx.x;
    if (!bug) { __syncwarp(); }
    float v = s[(threadIdx.x + 1) & 31];
    if (bug) { __syncwarp(); }
    y[threadIdx.x] = v;
}
__global__ void shared_out_of_bounds(float *y) {
    TCU_SHARED(float, s, [64]);
    s[threadIdx.x + 1] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x + 1];
}
__global__ void shared_unwritten(float *y) {
    TCU_SHARED(float, s, [64]);
    if (threadIdx.x < 32) { s[threadIdx.x] = 1; }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void scatter(float *y, int bug) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (bug) {
        y[i % 7] += 1;
    } else {
        atomicAdd(&y[i % 7], 1.0f);
    }
}
__global__ void between_blocks(float *y) {
    if (blockIdx.x == 0) {
        y[threadIdx.x] = 5;
    } else {
        y[threadIdx.x + 64] = y[threadIdx.x];
    }
}

// One kernel on a small buffer of zeros, and what it must leave there.
template <class F> static int on_buffer(F body, float (*want)(int), int n) {
    float *y = device(256), h[256];
    cudaMemsetAsync(y, 0, 1024, s1);
    body(y);
    if (cudaMemcpyAsync(h, y, 1024, cudaMemcpyDeviceToHost, s1) || cudaStreamSynchronize(s1)) { return 1; }
    for (int i = 0; i < n; i++) {
        if (h[i] != want(i)) { return 1; }
    }
    return cudaFree(y) != cudaSuccess;
}
static int do_sum(int bug) {
    int n = 1000;
    float *x = device(n), *out = device(1), r = 0;
    std::vector<float> h(n, 1.0f);
    cudaMemcpyAsync(x, h.data(), n * 4, cudaMemcpyHostToDevice, s1);
    cudaMemsetAsync(out, 0, 4, s1);
    tcu_launch(sum, 3, 128, 0, s1, out, x, n, bug);
    if (cudaMemcpyAsync(&r, out, 4, cudaMemcpyDeviceToHost, s1) || cudaStreamSynchronize(s1)) { return 1; }
    cudaFree(x);
    cudaFree(out);
    return r != 1000;
}
static int do_matmul(int bug) {
    int m = 20, n = 18, k = 40;
    std::vector<float> a(m * k), b(k * n), c(m * n);
    for (size_t i = 0; i < a.size(); i++) { a[i] = (float)(i % 7) - 3; }
    for (size_t i = 0; i < b.size(); i++) { b[i] = (float)(i % 5) - 2; }
    float *da = device(a.size()), *db = device(b.size()), *dc = device(c.size());
    cudaMemcpyAsync(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice, s1);
    cudaMemcpyAsync(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice, s1);
    tcu_launch(matmul, dim3(2, 2), dim3(16, 16), 0, s1, dc, da, db, m, n, k, bug);
    if (cudaMemcpyAsync(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost, s1)) { return 1; }
    if (cudaStreamSynchronize(s1)) { return 1; }
    cudaFree(da);
    cudaFree(db);
    cudaFree(dc);
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float want = 0;
            for (int t = 0; t < k; t++) { want += a[i * k + t] * b[t * n + j]; }
            if (c[i * n + j] != want) { return 1; }
        }
    }
    return 0;
}
static int do_softmax(int) {
    std::vector<float> x(3 * 50, 1.0f), y(150);
    float *dx = device(150), *dy = device(150);
    cudaMemcpyAsync(dx, x.data(), 600, cudaMemcpyHostToDevice, s1);
    tcu_launch(softmax, 3, 64, 2 * sizeof(float), s1, dy, dx, 50);
    if (cudaMemcpyAsync(y.data(), dy, 600, cudaMemcpyDeviceToHost, s1) || cudaStreamSynchronize(s1)) { return 1; }
    cudaFree(dx);
    cudaFree(dy);
    for (float v : y) {
        if (!(fabsf(v - 0.02f) < 1e-6f)) { return 1; }
    }
    return 0;
}
static int do_misaligned(int bug) {
    return on_buffer([=](float *y) { tcu_launch(add4, 1, 32, 0, s1, y, y + 100 + bug, y + 100 + bug, 64); },
                     [](int) { return 0.0f; }, 64);
}
static int do_scatter(int bug) {
    return on_buffer([=](float *y) { tcu_launch(scatter, 2, 64, 0, s1, y, bug); },
                     [](int i) { return i < 2 ? 19.0f : 18.0f; }, 7);
}
static int do_rotate(int bug) {
    return on_buffer([=](float *y) { tcu_launch(rotate, 1, 32, 0, s1, y, bug); },
                     [](int i) { return (float)((i + 1) & 31); }, 32);
}
static int do_barrier_of_some(int) {
    return on_buffer([](float *y) { tcu_launch(barrier_of_some, 1, 64, 0, s1, y); }, [](int) { return 1.0f; }, 64);
}
static int do_barrier_at_two_places(int) {
    return on_buffer([](float *y) { tcu_launch(barrier_at_two_places, 1, 64, 0, s1, y); },
                     [](int i) { return i < 32 ? 1.0f : 2.0f; }, 64);
}
static int do_wrong_mask(int) {
    return on_buffer([](float *y) { tcu_launch(wrong_mask, 1, 32, 0, s1, y); },
                     [](int i) { return (float)(i < 16 ? i ^ 1 : i); }, 32);
}
static int do_shared_out_of_bounds(int) {
    return on_buffer([](float *y) { tcu_launch(shared_out_of_bounds, 1, 64, 0, s1, y); },
                     [](int) { return 1.0f; }, 64);
}
enum { HOST_POINTER = 1, HOST_POINTER_INSIDE, ERROR_LEFT, NOT_READY_LEFT, TOO_MUCH_SHARED, OTHER_DEVICE,
       OTHER_DEVICES_EVENT };
struct pair_t { const float *a, *b; };
__global__ void add_pair(float *y, pair_t p) { y[threadIdx.x] += p.a[threadIdx.x] + p.b[threadIdx.x]; }
// What only hardware would refuse.
static int do_launch(int bug) {
    static float zeros[64];
    cudaStream_t s = s1;
    return on_buffer([&](float *y) {
        cudaEvent_t e;
        void *much;
        int most = cusim::config.devices;
        cusim::config.devices = 2;
        cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
        if (bug == OTHER_DEVICES_EVENT || bug == OTHER_DEVICE) { cudaSetDevice(1); }
        if (bug == OTHER_DEVICES_EVENT) {
            cudaEventDestroy(e);
            cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
            cudaSetDevice(0);
        }
        if (cudaMalloc(&much, (size_t)1 << 40) && bug != ERROR_LEFT) { cudaGetLastError(); }
        if (cudaEventRecord(e, s)) { std::exit(1); }
        cudaEventQuery(e);
        if (bug != NOT_READY_LEFT && bug != ERROR_LEFT) { cudaGetLastError(); }
        pair_t p = {y + 64, bug == HOST_POINTER_INSIDE ? zeros : y + 64};
        if (tcu_launch(add, 1, 64, 0, s, y, (const float *)y + 64, bug == HOST_POINTER ? zeros : (const float *)y + 64, 64) ||
            tcu_launch(add_pair, 1, 64, bug == TOO_MUCH_SHARED ? 50000 : 0, s, y, p)) {
            std::exit(1);
        }
        cudaSetDevice(0);
        cudaEventDestroy(e);
        cusim::config.devices = most;
    }, [](int) { return 0.0f; }, 64);
}
static int do_shared_unwritten(int) {
    return on_buffer([](float *y) { tcu_launch(shared_unwritten, 1, 64, 0, s1, y); },
                     [](int i) { return i < 32 ? 1.0f : 0.0f; }, 64);
}
static int do_between_blocks(int) {
    return on_buffer([](float *y) { tcu_launch(between_blocks, 2, 64, 0, s1, y); }, [](int) { return 5.0f; }, 128);
}

// ------------------------------------------------------------------------------------------ streams, right and wrong
enum { NO_EVENT = 1, PINNED_REWRITTEN, READ_EARLY, BLOCK_REUSED, HOST_READS, SYNC_IN_CAPTURE, USE_AFTER_FREE };
enum { NO_FORK_EVENT = 1, ALLOC_IN_CAPTURE, WAIT_IN_CAPTURE, PAGEABLE_IN_CAPTURE, STALE_POINTER, NO_JOIN };
static int do_streams(int bug) {
    const int n = 2048;
    std::vector<float> h(n, 1.0f);
    float *a = device(n), *b = device(n), *y = device(n), *z = device(n), *in = pinned(n, 1), *out = pinned(n, -1);
    cudaEvent_t e;
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    cudaMemcpyAsync(a, h.data(), n * 4, cudaMemcpyHostToDevice, s1);
    cudaMemcpyAsync(b, in, n * 4, cudaMemcpyHostToDevice, s1);
    if (bug == PINNED_REWRITTEN) {
        for (int i = 0; i < n; i++) { in[i] = 50; }
    }
    tcu_launch(add, 2, 128, 0, s1, y, a, b, n);
    if (bug != NO_EVENT) {
        cudaEventRecord(e, s1);
        cudaStreamWaitEvent(s2, e, 0);
    }
    tcu_launch(add, 2, 128, 0, s2, z, y, y, n);
    if (bug == BLOCK_REUSED) {          // s2 takes a while s1 may still use it
        tcu_launch(add, 2, 128, 0, s2, a, b, b, n);
        tcu_launch(add, 2, 128, 0, s1, y, a, b, n);
        tcu_launch(add, 2, 128, 0, s2, a, a, a, n);
    }
    if (bug == HOST_READS) { (void)*(volatile float *)y; }
    if (bug == SYNC_IN_CAPTURE) {
        cudaStreamBeginCapture(s1, cudaStreamCaptureModeGlobal);
        tcu_launch(add, 2, 128, 0, s1, y, a, b, n);
        if (cudaStreamSynchronize(s1)) { return 1; }
    }
    if (bug == USE_AFTER_FREE) {
        cudaFree(y);
        tcu_launch(add, 2, 128, 0, s2, z, y, y, n);
    }
    cudaMemcpyAsync(out, z, n * 4, cudaMemcpyDeviceToHost, s2);
    if (bug != READ_EARLY) { cudaStreamSynchronize(s2); }
    float got = out[n / 2];
    cudaDeviceSynchronize();
    for (float *p : {a, b, z}) { cudaFree(p); }
    if (bug != USE_AFTER_FREE) { cudaFree(y); }
    cudaFreeHost(in);
    cudaFreeHost(out);
    cudaEventDestroy(e);
    return got != 4.0f;
}
// y = a + b on s1, z = y + y on s2, forked and joined by events, as a graph that runs three times.
static int do_graph(int bug) {
    const int n = 512;
    float *a = device(n), *y = device(n), *z = device(n), *in = pinned(n, 1), *out = pinned(n, -1);
    cudaEvent_t e, f;
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&f, cudaEventDisableTiming);
    cudaStreamBeginCapture(s1, bug == WAIT_IN_CAPTURE ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeGlobal);
    cudaMemcpyAsync(a, in, n * 4, cudaMemcpyHostToDevice, s1);
    if (bug != NO_FORK_EVENT) { tcu_launch(add, 2, 128, 0, s1, y, a, a, n); }
    cudaEventRecord(e, s1);
    if (bug == NO_FORK_EVENT) { tcu_launch(add, 2, 128, 0, s1, y, a, a, n); }       // not before the fork
    if (bug == ALLOC_IN_CAPTURE) { cudaFree(device(n)); }
    if (bug == WAIT_IN_CAPTURE) { cudaStreamSynchronize(s2); }
    if (bug == PAGEABLE_IN_CAPTURE) {
        float v = 1;
        cudaMemcpyAsync(a, &v, 4, cudaMemcpyHostToDevice, s1);
    }
    cudaStreamWaitEvent(s2, e, 0);
    tcu_launch(add, 2, 128, 0, s2, z, y, y, n);
    cudaEventRecord(f, s2);
    if (bug != NO_JOIN) { cudaStreamWaitEvent(s1, f, 0); }
    cudaMemcpyAsync(out, z, n * 4, cudaMemcpyDeviceToHost, s1);
    if (cudaStreamEndCapture(s1, &g) || cudaGraphInstantiate(&x, g, 0)) { return 1; }
    cudaGraphDestroy(g);
    int bad = 0;
    if (bug == STALE_POINTER) { cudaFree(y); }
    for (int turn = 1; turn < 4; turn++) {
        for (int i = 0; i < n; i++) { in[i] = (float)turn; }
        cudaGraphLaunch(x, s1);
        if (cudaStreamSynchronize(s1)) { return 1; }
        for (int i = 0; i < n; i++) { bad |= out[i] != (float)(4 * turn); }
    }
    cudaGraphExecDestroy(x);
    for (float *p : {a, y, z}) {
        if (bug != STALE_POINTER || p != y) { cudaFree(p); }
    }
    cudaFreeHost(in);
    cudaFreeHost(out);
    cudaEventDestroy(e);
    cudaEventDestroy(f);
    return bad;
}

// Two threads of the host, which the emulator lets in one after the other: nothing of that orders them.
static int do_threads(int bug) {
    int n = 0;
    std::mutex lock;
    auto work = [&](cudaStream_t s) {
        for (int k = 0; k < 3; k++) {
            cudaStreamQuery(s);
            if (!bug) { lock.lock(); }
            n++;
            if (!bug) { lock.unlock(); }
            cudaStreamQuery(s);
        }
    };
    std::thread a(work, s1), b(work, s2);
    a.join();
    b.join();
    return !bug && n != 6;
}

// ----------------------------------------------------------------------------------------------------------- the table
struct setting_t { cusim::order_t order; bool protect; };
static const setting_t EAGER = {cusim::EAGER, false}, LATE = {cusim::LATE, false}, RANDOM = {cusim::RANDOM, false},
                       PROTECT = {cusim::LATE, true};
static const struct {
    const char *name;
    int (*run)(int bug);
    int bug, builds;            // builds that find it with every seed
    setting_t setting;
} bugs[] = {
    {"no barrier before a read", do_sum, NO_BARRIER, ALL, LATE},
    {"no barrier after a read", do_matmul, NO_SECOND_BARRIER, ALL, LATE},
    {"barrier that not all reach", do_barrier_of_some, 1, ALL, LATE},
    {"barrier at two places", do_barrier_at_two_places, 1, ALL, LATE},
    {"lane outside the mask", do_wrong_mask, 1, ALL, LATE},
    {"no __syncwarp", do_rotate, 1, ALL, LATE},
    {"global memory out of bounds", do_matmul, NO_BOUND, ASAN, LATE},
    {"shared memory out of bounds", do_shared_out_of_bounds, 1, ASAN, LATE},
    {"misaligned float4", do_misaligned, 1, PLAIN, LATE},
    {"address of the host as an argument", do_launch, HOST_POINTER, ALL, LATE},
    {"address of the host inside an argument", do_launch, HOST_POINTER_INSIDE, ALL, LATE},
    {"error left behind", do_launch, ERROR_LEFT, ALL, LATE},
    {"'not ready' left behind", do_launch, NOT_READY_LEFT, ALL, LATE},
    {"more shared memory than there is", do_launch, TOO_MUCH_SHARED, ALL, LATE},
    {"launch on another device's stream", do_launch, OTHER_DEVICE, ALL, LATE},
    {"event of another device", do_launch, OTHER_DEVICES_EVENT, ALL, LATE},
    {"shared memory read before written", do_shared_unwritten, 1, ALL, LATE},
    {"lost update", do_scatter, 1, TSAN, LATE},
    {"block reads what another writes", do_between_blocks, 1, TSAN, LATE},
    {"no event between streams", do_streams, NO_EVENT, ALL, LATE},
    {"pinned buffer written too early", do_streams, PINNED_REWRITTEN, ALL, LATE},
    {"result read without a wait", do_streams, READ_EARLY, ALL, LATE},
    {"block handed to another stream", do_streams, BLOCK_REUSED, TSAN, RANDOM},
    {"host reads device memory", do_streams, HOST_READS, ALL, PROTECT},
    {"wait inside a capture", do_streams, SYNC_IN_CAPTURE, ALL, LATE},
    {"use after free", do_streams, USE_AFTER_FREE, ASAN, LATE},
    {"use after free, memory protected", do_streams, USE_AFTER_FREE, ALL, PROTECT},
    {"no event inside a graph", do_graph, NO_FORK_EVENT, TSAN, RANDOM},
    {"allocation inside a capture", do_graph, ALLOC_IN_CAPTURE, ALL, LATE},
    {"wait for another stream inside a capture", do_graph, WAIT_IN_CAPTURE, ALL, LATE},
    {"memory that is not pinned in a capture", do_graph, PAGEABLE_IN_CAPTURE, ALL, LATE},
    {"variable of two threads of the host", do_threads, 1, TSAN, LATE},
    {"fork that is not joined", do_graph, NO_JOIN, ALL, LATE},
    {"graph runs over freed memory", do_graph, STALE_POINTER, ASAN, LATE},
    {"graph runs over freed memory, protected", do_graph, STALE_POINTER, ALL, PROTECT},
};
static const struct { const char *name; int (*run)(int bug); } right[] = {
    {"sum", do_sum}, {"matmul", do_matmul}, {"softmax", do_softmax}, {"scatter with atomics", do_scatter},
    {"rotate with __syncwarp", do_rotate}, {"launch", do_launch}, {"streams", do_streams}, {"graph", do_graph},
    {"threads", do_threads}};

static int found(int (*run)(int), int bug, setting_t setting, int seeds, bool quiet) {
    int n = 0;
    std::fflush(stdout);
    for (int k = 0; k < seeds; k++) {
        pid_t child = fork();
        if (!child) {
            if (quiet && !std::freopen("/dev/null", "w", stderr)) { std::exit(8); }
            cusim::config.order = setting.order;
            cusim::config.protect = setting.protect;
            cusim::seed((uint64_t)k + 1);
            cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking);
            cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking);
            int bad = run(bug);
            if (!bad && !bug && cusim::counts.live_memory + cusim::counts.live_pinned + cusim::counts.live_events +
                cusim::counts.live_graphs) { bad = 7; }
            if (BUILD == TSAN) { std::exit(bad); }      // its streams hold hundreds of stacks
            if (!bad) {
                cudaStreamDestroy(s1);
                cudaStreamDestroy(s2);
            }
            std::exit(bad);
        }
        int status = 0;
        waitpid(child, &status, 0);
        n += status != 0;
    }
    return n;
}
int main() {
    int passed = 0, failed = 0;
    for (auto &b : bugs) {
        if (!(b.builds & BUILD)) { continue; }
        // What the emulator finds by itself, the plain build finds with all its seeds.
        const int seeds = BUILD != PLAIN && b.builds & PLAIN ? 1 : SEEDS;
        int n = found(b.run, b.bug, b.setting, seeds, true);
        if (n == seeds) {
            passed++;
        } else {
            failed++;
            std::printf("%s: found with %d of %d seeds\n", b.name, n, seeds);
        }
    }
    for (auto &r : right) {
        for (setting_t s : {EAGER, LATE, RANDOM, PROTECT}) {
            int seeds = s.order == cusim::RANDOM ? SEEDS : 1, n = found(r.run, 0, s, seeds, false);
            if (n) {
                failed++;
                std::printf("%s: correct, but reported with %d of %d seeds, order %d\n", r.name, n, seeds, s.order);
            } else {
                passed++;
            }
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

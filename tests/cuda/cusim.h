// cusim.h - a CUDA device on the CPU, for tests: the same .cu file, compiled by g++, no GPU
//
//   g++ -std=c++17 -x c++ -DTENSOR_CUDA_SIM -Itests/cuda -I$CUDA/include -c tensor_cuda.cu
//   g++ -std=c++17 -O2 -I$CUDA/include -c tests/cuda/cusim.cpp              (never with -fsanitize)
//
// It stands in for <cuda_runtime.h>. NVIDIA's own headers give types and prototypes, cusim.cpp the functions: it
// runs threads of a block as fibers and streams as queues. What it finds: missing, divergent and mismatched
// barriers, lanes outside a mask, shared memory read before written (0xFF = NaN), work that no event orders (run
// late, or at random), memory handed on too early, calls that a capture forbids, failed calls that go unseen
// (the next launch has their error), addresses of the host among a kernel's arguments, streams and events of another
// device than the current one, more than 48 KiB of shared memory; wide accesses that are not aligned, where the .cu is
// compiled with -fsanitize=alignment.
// Built with -DCUSIM_TSAN and the .cu with -fsanitize=thread, it shows every race: order exists only where CUDA
// gives it. It cannot show: memory fences between blocks, tensor cores, inline PTX, any speed.
#pragma once
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __CUDA_RUNTIME_H__             // nccl.h would bring it
#include <cuda_runtime_api.h>
#include <cuda.h>
#include <vector_functions.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>

// What no sanitizer looks at: each thread of a kernel goes through it.
#define CUSIM_OWN __attribute__((no_sanitize("address", "undefined", "thread")))

namespace cusim {

enum order_t { EAGER, LATE, RANDOM };

struct config_t {
    order_t order = LATE;       // LATE: nothing runs before a wait demands it; RANDOM: at any call, some progress
    bool shuffle = true;        // random order of threads and blocks
    bool protect = false;       // device memory cannot be touched while host code runs
    const char *missing = "";   // library that cannot be opened, or symbol that is not in its library: $CUSIM_MISSING
    int capability = 90;
    int driver = CUDART_VERSION;    // the latest CUDA that the driver knows
    bool peers = true;          // devices can use each other's memory
    int devices = 1, sms = 4;   // -1 = the driver is too old; few multiprocessors, so that grid-stride loops turn more than once
    size_t memory = size_t(1) << 30;                            // bytes per device
    long fail_alloc = -1, fail_launch = -1, fail_call = -1;     // the call that fails, counted from 0 since reset()
    long full_from = -1;                                        // allocations from this one on fail
};
extern config_t config;

// What is alive and what was called. allocs: device and pinned memory, physical chunks, reservations;
// calls: copies, events, streams, graphs, libraries. staged: copies between devices that went through the host.
struct counts_t { long allocs, launches, calls, live_memory, live_pinned, live_chunks, live_ranges, live_streams,
    live_events, live_graphs, staged; };
extern counts_t counts;

struct launched_t { void (*kernel)(); dim3 grid, block; };
extern thread_local launched_t last;      // the last launch of the thread

// What kernels moved, where this and the .cu are built with -DCUSIM_SECTORS (and the .cu with -fsanitize=thread, of
// which cusim.cpp then serves the hooks, so that each access is seen): the n-th access of an instruction by the lanes
// of a warp is one request, of as many 32-byte sectors as these lanes touch. bytes / 32 of them would have been enough.
struct moved_t { long requests, sectors, bytes; };
// longest: the accesses of the busiest thread; blocks: of the largest launch
struct traffic_t { moved_t load, store; long longest, blocks; };
extern traffic_t traffic;       // since the last reset()

void range_push(const char *name);              // NVTX's, all of them: "add(mul()mul())"
void range_pop();
const char *range_log();                        // since the last call

// A lock of the program's, under which no call may be made, as where a stream's queue is full a call waits for the
// device; how many were.
extern const int *watched;
extern long under_watch;

void seed(uint64_t s);
void reset();                   // counts of calls to 0, the sticky error forgotten; streams and memory stay
const char *fault();            // what the last faulty kernel did, "" if none
void *library_open(const char *name);
void *library_symbol(void *library, const char *name);
void library_fake(const char *library, const char *name, void *function);     // adds one
bool library_call();            // for fakes: false = this call has to fail
// Work of a fake library: runs in stream order, is captured and replayed.
cudaError_t enqueue(cudaStream_t s, std::function<void()> work);
// Called by such work: the time of events goes on by so much more.
void time_passes(double ms);
// The same for work that waits until a gate is open, which other ranks of a collective decide. The host does not wait.
struct token;
typedef std::shared_ptr<token> gate_p;
gate_p gate_new();
void gate_open(const gate_p &gate);
// begin says what is done in the stream's order, the gate, and what is done behind it; a graph asks it for each run.
struct gated_t { std::function<void()> before, behind; gate_p gate; };
cudaError_t enqueue_gated(cudaStream_t s, std::function<gated_t()> begin);
bool on_device(const void *p, size_t bytes);
// Whether no word of a kernel's argument is the address of memory that only the host has; else the context is lost.
bool argument(const void *p, size_t bytes);
// Of an op's four numbers those it has no use for may hold anything, as padding may.
template <class P> inline auto clear_numbers(P &p, int) -> decltype((void)p.param) { std::memset(p.param, 0, sizeof p.param); }
template <class P> inline auto clear_numbers(P &p, int) -> std::enable_if_t<std::is_same_v<decltype(p.p), double[4]>> {
    std::memset(p.p, 0, sizeof p.p);
}
template <class P> inline void clear_numbers(P &, long) { }
template <class P> CUSIM_OWN inline bool argument(P p) {
#if __has_builtin(__builtin_clear_padding)
    clear_numbers(p, 0);
    __builtin_clear_padding(&p);
    return argument(&p, sizeof p);
#else
    return sizeof p != sizeof(void *) || argument(&p, sizeof p);
#endif
}
// A thread is run(arguments), of which the launch keeps a copy. What was launched is noted for the list that
// $CUSIM_KERNELS is at the end, places in the program. With CUSIM_SECTORS each has behind it what all its launches moved:
// requests, sectors and bytes loaded, then stored.
cudaError_t launch(void (*kernel)(), dim3 grid, dim3 block, size_t shared, cudaStream_t s, void (*run)(const void *),
                   const void *arguments, size_t bytes);
template <class F> CUSIM_OWN inline void run_as(const void *f) { (*(const F *)f)(); }

// What a kernel sees.
struct index_t { uint3 thread, block; dim3 block_dim, grid_dim; };
extern index_t index;
void syncthreads(const void *site);
void *shared_memory(int *site, size_t bytes);   // the block's copy of a shared variable, 0xFF in every new block
extern int dynamic_site;
extern size_t dynamic_bytes;
int lane();
unsigned long long *warp_exchange(unsigned mask, unsigned long long value, bool ordered = false);
[[noreturn]] void kernel_fault(const char *text);

template <class T> inline T shuffle(unsigned mask, T v, int from, bool inside) {
    static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
    unsigned long long bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    unsigned long long *slot = warp_exchange(mask, bits);
    if (!inside) { return v; }
    if (!(mask >> (from & 31) & 1)) { kernel_fault("shuffle reads a lane outside the mask"); }
    std::memcpy(&v, &slot[from & 31], sizeof v);
    return v;
}
// Relaxed: an atomic orders nothing around it.
template <class T, class F> inline T update(T *p, F f) {
    T old, next;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        next = f(old);
    } while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

}  // namespace cusim

// Little text: it is compiled for each list of parameters.
template <class... P, class... A>
CUSIM_OWN inline cudaError_t tcu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t s, A... a) {
    if (!(cusim::argument<P>(P(a)) && ...)) { return cudaGetLastError(); }
    auto thread = [=]() CUSIM_OWN { kernel(P(a)...); };
    static_assert(std::is_trivially_copyable<decltype(thread)>::value, "arguments are bytes");
    return cusim::launch((void (*)())kernel, grid, block, shared, s, cusim::run_as<decltype(thread)>, &thread, sizeof thread);
}
#define TCU_SHARED(T, name, ...)                                                                             \
    typedef T name##_t __VA_ARGS__;                                                                          \
    static int name##_site;                                                                                  \
    name##_t &name = *(name##_t *)cusim::shared_memory(&name##_site, sizeof(name##_t))
#define TCU_DYNAMIC_SHARED(T, name) T *name = (T *)cusim::shared_memory(&cusim::dynamic_site, cusim::dynamic_bytes)

#define threadIdx (cusim::index.thread)
#define blockIdx (cusim::index.block)
#define blockDim (cusim::index.block_dim)
#define gridDim (cusim::index.grid_dim)
#define warpSize 32
#define __syncthreads() cusim::syncthreads(({ static char site_; (const void *)&site_; }))
#define __threadfence() ((void)0)
#define __threadfence_system() ((void)0)

inline void __syncwarp(unsigned mask = ~0u) { cusim::warp_exchange(mask, 0, true); }     // the others order no memory
template <class T> inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    int l = cusim::lane();
    return cusim::shuffle(mask, v, (l & ~(width - 1)) | (from & (width - 1)), true);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32) {
    int l = cusim::lane(), from = l ^ x;
    return cusim::shuffle(mask, v, from, from < (l & ~(width - 1)) + width);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32) {
    int l = cusim::lane();
    return cusim::shuffle(mask, v, l + (int)d, (l & (width - 1)) + (int)d < width);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32) {
    int l = cusim::lane();
    return cusim::shuffle(mask, v, l - (int)d, (l & (width - 1)) >= (int)d);
}
inline unsigned __ballot_sync(unsigned mask, int p) {
    unsigned r = 0;
    unsigned long long *slot = cusim::warp_exchange(mask, p != 0);
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1) { r |= (unsigned)(slot[i] & 1) << i; }
    }
    return r;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T v) {
    unsigned long long bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    unsigned r = 0;
    unsigned long long *slot = cusim::warp_exchange(mask, bits);
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1) { r |= (unsigned)(slot[i] == bits) << i; }
    }
    return r;
}
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }

template <class T> inline T atomicAdd(T *p, T v) { return cusim::update(p, [v](T a) { return T(a + v); }); }
template <class T> inline T atomicMax(T *p, T v) { return cusim::update(p, [v](T a) { return a > v ? a : v; }); }
template <class T> inline T atomicMin(T *p, T v) { return cusim::update(p, [v](T a) { return a < v ? a : v; }); }
template <class T> inline T atomicOr(T *p, T v) { return cusim::update(p, [v](T a) { return T(a | v); }); }
template <class T> inline T atomicExch(T *p, T v) { return cusim::update(p, [v](T) { return v; }); }
template <class T> inline T atomicCAS(T *p, T expected, T v) {
    return cusim::update(p, [v, expected](T a) { return a == expected ? v : a; });
}

template <class T> inline T __ldg(const T *p) { return *p; }
inline unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
inline int __float_as_int(float v) { int u; std::memcpy(&u, &v, 4); return u; }
inline float __uint_as_float(unsigned u) { float v; std::memcpy(&v, &u, 4); return v; }
inline float __int_as_float(int u) { float v; std::memcpy(&v, &u, 4); return v; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline double rsqrt(double v) { return 1.0 / sqrt(v); }

// idle.cpp - a CUDA driver that computes nothing, for bench/trace.c: what the host does can be timed without a GPU
//
// tensor_cuda.cu is compiled as for the emulator (TENSOR_CUDA_SIM, tests/cuda/cusim.h) and linked with this file in place
// of tests/cuda/cusim.cpp. A launch is counted and adds the time that idle_kernel named to the device's queue, which is a
// number: the second at which all that was asked for would be done. Waiting for the device sleeps until that second;
// memory of the device is addresses without pages. cudaMalloc and cudaFree, and the calls that map and unmap memory, take
// as long as idle_costs says; those that give memory back wait for the queue first, as the real ones may.
#include "cusim.h"

#include <cstdlib>
#include <ctime>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
// What was called since the last idle_counts.
typedef struct idle_counts_t { long launches, copies, waits, allocs, frees; } idle_counts_t;
idle_counts_t idle_counts(void);
void idle_costs(double alloc, double release);      // seconds of a call
void idle_kernel(double seconds);                   // what the next launch takes; those after it take nothing
double idle_done(void);                             // when the queue is done, by CLOCK_MONOTONIC
}

static idle_counts_t counted;
static double alloc_seconds, release_seconds, next_kernel, done_at;

static double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void spend(double seconds) {
    for (const double end = now() + seconds; now() < end;) { }
}
static void drain() {
    const double left = done_at - now();
    if (left > 0) { usleep((useconds_t)(1e6 * left) + 1); }
}

idle_counts_t idle_counts() {
    const idle_counts_t c = counted;
    counted = {0, 0, 0, 0, 0};
    return c;
}
void idle_costs(double alloc, double release) {
    alloc_seconds = alloc;
    release_seconds = release;
}
void idle_kernel(double seconds) { next_kernel = seconds; }
double idle_done() { return done_at; }

struct CUstream_st { int device; };
struct CUevent_st { double at; };

// ---- what tests/cuda/cusim.h promises

namespace cusim {
config_t config;
counts_t counts;
thread_local launched_t last;
index_t index;
int dynamic_site;
size_t dynamic_bytes;
void range_push(const char *) { }
void range_pop() { }
bool argument(const void *, size_t) { return true; }
bool on_device(const void *, size_t) { return true; }
// Kernels do not run.
void syncthreads(const void *) { abort(); }
void *shared_memory(int *, size_t) { abort(); }
int lane() { abort(); }
unsigned long long *warp_exchange(unsigned, unsigned long long, bool) { abort(); }
void kernel_fault(const char *) { abort(); }

cudaError_t launch(void (*)(), dim3, dim3, size_t, cudaStream_t, void (*)(const void *), const void *, size_t) {
    counted.launches++;
    if (next_kernel > 0) {
        const double t = now();
        done_at = (done_at > t ? done_at : t) + next_kernel;
        next_kernel = 0;
    }
    return cudaSuccess;
}

// ---- memory by addresses (libcuda)

enum { GRANULARITY = 2 << 20 };
static void *pages(size_t n) {
    void *p = mmap(nullptr, n + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (void *)(((uintptr_t)p + GRANULARITY - 1) / GRANULARITY * GRANULARITY);
}
static CUresult granularity(size_t *g, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    *g = GRANULARITY;
    return CUDA_SUCCESS;
}
static CUresult reserve(CUdeviceptr *at, size_t n, size_t, CUdeviceptr, unsigned long long) {
    *at = (CUdeviceptr)pages(n);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult unreserve(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
static CUresult create(CUmemGenericAllocationHandle *h, size_t, const CUmemAllocationProp *, unsigned long long) {
    counted.allocs++;
    spend(alloc_seconds);
    *h = 1;
    return CUDA_SUCCESS;
}
static CUresult map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) { return CUDA_SUCCESS; }
static CUresult access(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) { return CUDA_SUCCESS; }
static CUresult unmap(CUdeviceptr, size_t) {
    counted.frees++;
    drain();
    spend(release_seconds);
    return CUDA_SUCCESS;
}
static CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
static CUresult context_state(CUdevice, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
static CUresult error_text(CUresult, const char **text) {
    *text = "error of the idle driver";
    return CUDA_SUCCESS;
}

static const struct { const char *name; void *function; } driver[] = {
    {"cuMemGetAllocationGranularity", (void *)granularity}, {"cuMemAddressReserve", (void *)reserve},
    {"cuMemAddressFree", (void *)unreserve}, {"cuMemCreate", (void *)create}, {"cuMemRelease", (void *)release},
    {"cuMemMap", (void *)map}, {"cuMemSetAccess", (void *)access}, {"cuMemUnmap", (void *)unmap},
    {"cuGetErrorString", (void *)error_text}, {"cuDevicePrimaryCtxGetState", (void *)context_state}};
void *library_open(const char *name) { return std::strcmp(name, "libcuda.so.1") ? nullptr : (void *)driver; }
void *library_symbol(void *, const char *name) {
    for (const auto &f : driver) {
        if (!std::strcmp(f.name, name)) { return f.function; }
    }
    return nullptr;
}
}  // namespace cusim

// ---- the runtime's calls

#define API cudaError_t CUDARTAPI
extern "C" {
static const size_t MEMORY = (size_t)16 << 30;          // of a Quadro GP100

API cudaMalloc(void **p, size_t n) {
    counted.allocs++;
    spend(alloc_seconds);
    *p = cusim::pages(n);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
API cudaFree(void *) {                                  // the addresses are not used again
    counted.frees++;
    drain();
    spend(release_seconds);
    return cudaSuccess;
}
API cudaMallocHost(void **p, size_t n) { return (*p = malloc(n)) ? cudaSuccess : cudaErrorMemoryAllocation; }
API cudaHostAlloc(void **p, size_t n, unsigned) { return cudaMallocHost(p, n); }
API cudaFreeHost(void *p) {
    free(p);
    return cudaSuccess;
}
API cudaPointerGetAttributes(cudaPointerAttributes *a, const void *) {      // the program has pinned nothing
    *a = {};
    a->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
API cudaMemGetInfo(size_t *there, size_t *total) {
    *there = *total = MEMORY;
    return cudaSuccess;
}
API cudaGetDeviceCount(int *n) {
    *n = 1;
    return cudaSuccess;
}
API cudaGetDevice(int *d) {
    *d = 0;
    return cudaSuccess;
}
API cudaSetDevice(int) { return cudaSuccess; }
API cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int) {
    *v = a == cudaDevAttrMultiProcessorCount ? 56 : a == cudaDevAttrComputeCapabilityMajor ? 9
       : a == cudaDevAttrMaxThreadsPerMultiProcessor ? 2048 : 0;
    return cudaSuccess;
}
API cudaDriverGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }
API cudaRuntimeGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }

API cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    *s = new CUstream_st();
    return cudaSuccess;
}
API cudaStreamDestroy(cudaStream_t s) {
    delete s;
    return cudaSuccess;
}
API cudaStreamSynchronize(cudaStream_t) {
    counted.waits++;
    drain();
    return cudaSuccess;
}
API cudaStreamQuery(cudaStream_t) { return now() < done_at ? cudaErrorNotReady : cudaSuccess; }
API cudaDeviceSynchronize(void) { return cudaStreamSynchronize(nullptr); }
API cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
    counted.copies++;
    if (kind == cudaMemcpyDeviceToHost) {
        cudaStreamSynchronize(s);
        std::memset(to, 0, n);
    }
    (void)from;
    return cudaSuccess;
}
API cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = 0;
    return cudaSuccess;
}
API cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
API cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, cudaStream_t) {
    counted.copies++;
    return cudaSuccess;
}
API cudaMemsetAsync(void *, int, size_t, cudaStream_t) {
    counted.copies++;
    return cudaSuccess;
}
API cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void *user) {
    f(user);
    return cudaSuccess;
}
API cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    *e = new CUevent_st();
    return cudaSuccess;
}
API cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
API cudaEventRecord(cudaEvent_t e, cudaStream_t) {
    const double t = now();
    e->at = done_at > t ? done_at : t;
    return cudaSuccess;
}
API cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaEventSynchronize(cudaEvent_t e) {
    counted.waits++;
    const double left = e->at - now();
    if (left > 0) { usleep((useconds_t)(1e6 * left) + 1); }
    return cudaSuccess;
}
API cudaEventQuery(cudaEvent_t e) { return now() < e->at ? cudaErrorNotReady : cudaSuccess; }
API cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = (float)(1e3 * (to->at - from->at));
    return cudaSuccess;
}

// Graphs are not captured here.
API cudaStreamBeginCapture(cudaStream_t, enum cudaStreamCaptureMode) { return cudaErrorNotSupported; }
API cudaStreamEndCapture(cudaStream_t, cudaGraph_t *) { return cudaErrorNotSupported; }
API cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *s) {
    *s = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *) { return cudaSuccess; }
API cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long) { return cudaErrorNotSupported; }
API cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
API cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
API cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
API cudaGetLastError(void) { return cudaSuccess; }
API cudaPeekAtLastError(void) { return cudaSuccess; }
const char *CUDARTAPI cudaGetErrorString(cudaError_t) { return "error of the idle driver"; }
const char *CUDARTAPI cudaGetErrorName(cudaError_t) { return "error"; }
}

// tensor_cuda.cu - v0.2.0 - the CUDA backend of tensor.h
// Licence: MIT-0 or public domain, at your choice; full text at the end of tensor.h.
//
//   nvcc -std=c++17 -O3 -fmad=false -arch=sm_90 -c tensor_cuda.cu       // for a GPU
//   g++ -std=c++17 -x c++ -DTENSOR_CUDA_SIM -Itests/cuda -c ...         // for the CPU: tests/cuda/cusim.h
//
// CONTENTS (search for the tag)
//   >>platform  >>allocator  >>driver  >>libraries
//   >>operands  >>pointwise  >>copy  >>random  >>reduce  >>rows  >>index  >>order  >>linalg  >>matmul
//   >>windows  >>cudnn  >>losses  >>nets  >>optimizer  >>streams  >>backend  >>native  >>graphs  >>ranks
//   >>entry
#if defined(TENSOR_CUDA_SIM)
#include "cusim.h"
#endif
#define TENSOR_BACKEND
#define TENSOR__BOTH __host__ __device__
#include "tensor_nn.h"

#define TENSOR__CUDA_SOURCE                     // functions, not the macros that note the place of a call
#include "tensor_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <initializer_list>
#include <mutex>
#include <thread>

// ------------------------------------------------------------------------------
// >>platform                                       MARK: launches, shared memory, libraries
//
// Everything that differs between nvcc and the CPU emulator is here: one launch wrapper (a failed launch is
// an error code at the call), two macros for shared memory, and one struct of library functions, which are
// opened by versioned name when first needed. Rejected: linking the libraries (cuBLASLt alone costs 67 ms of
// every process start, and a program without the library could not start); <<<>>> (the emulator cannot parse
// it, and it reports only the last error of all calls).
// ------------------------------------------------------------------------------

#if defined(TENSOR_CUDA_SIM)
#define TCU_OPEN(name) cusim::library_open(name)
#define TCU_UNROLL
#define TCU_UNROLL_4
#define TCU_SYMBOL(library, name) cusim::library_symbol(library, name)
#define TCU_SEEN(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define TCU_RANGE_PUSH(name) cusim::range_push(name)
#define TCU_RANGE_POP() cusim::range_pop()
#else
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#define TCU_UNROLL _Pragma("unroll")
#define TCU_UNROLL_4 _Pragma("unroll 4")
#define TCU_OPEN(name) dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define TCU_SYMBOL(library, name) dlsym(library, name)
#define TCU_SEEN(p) (*(const volatile unsigned long long *)(p))    // a word that other blocks write meanwhile
#define TCU_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define TCU_DYNAMIC_SHARED(T, name) extern __shared__ T name[]
template <class... P, class... A>
static inline cudaError_t tcu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                     cudaStream_t s, A... a) {
    return [&](P... p) { // only its own error: an older one is not this kernel's
        void *at[] = {&p...};
        return cudaLaunchKernel((const void *)kernel, grid, block, at, shared, s);
    }(P(a)...);
}
#endif
#if !defined(TENSOR_CUDA_SIM)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TCU_RANGE_PUSH(name) nvtxRangePushA(name)
#define TCU_RANGE_POP() nvtxRangePop()
#else
#define TCU_RANGE_PUSH(name) ((void)(name))
#define TCU_RANGE_POP() ((void)0)
#endif
#endif
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define TCU_HAVE_CUBLASLT 1
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define TCU_HAVE_CUDNN 1
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define TCU_HAVE_NCCL 1
#endif

// clang-format off
// Functions of each library. Their names may be macros that add a version (cuMemGetAddressRange_v2).
#define TCU_CUDA_FUNCTIONS(X)                                                                                \
    X(cuDevicePrimaryCtxGetState) X(cuGetErrorString) X(cuMemAddressFree) X(cuMemAddressReserve)             \
    X(cuMemCreate) X(cuMemGetAllocationGranularity) X(cuMemMap) X(cuMemRelease) X(cuMemSetAccess) X(cuMemUnmap)
#ifdef TCU_HAVE_CUBLASLT
#define TCU_CUBLASLT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul)                             \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute)   \
    X(cublasLtMatmulPreferenceInit_internal) X(cublasLtMatmulPreferenceSetAttribute)                         \
    X(cublasLtMatrixLayoutInit_internal) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtGetStatusString)
#else
#define CUBLAS_VER_MAJOR 13
#define TCU_CUBLASLT_FUNCTIONS(X)
#endif
#ifdef TCU_HAVE_CUDNN
#define TCU_CUDNN_FUNCTIONS(X)                                                                               \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetErrorString) X(cudnnGetLastErrorString)       \
    X(cudnnGetVersion) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor)                      \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)   \
    X(cudnnCreateRNNDescriptor) X(cudnnDestroyRNNDescriptor) X(cudnnSetRNNDescriptor_v8)                     \
    X(cudnnCreateRNNDataDescriptor) X(cudnnDestroyRNNDataDescriptor) X(cudnnSetRNNDataDescriptor)            \
    X(cudnnCreateTensorDescriptor) X(cudnnDestroyTensorDescriptor) X(cudnnSetTensorNdDescriptor)             \
    X(cudnnGetRNNWeightSpaceSize) X(cudnnGetRNNTempSpaceSizes) X(cudnnGetRNNWeightParams)                    \
    X(cudnnRNNForward) X(cudnnRNNBackwardData_v8) X(cudnnRNNBackwardWeights_v8)
#else
#define TCU_CUDNN_FUNCTIONS(X)
#endif
#ifdef TCU_HAVE_NCCL
#define TCU_NCCL_FUNCTIONS(X)                                                                                \
    X(ncclAllGather) X(ncclAllReduce) X(ncclBroadcast) X(ncclCommAbort) X(ncclCommDestroy)                   \
    X(ncclCommGetAsyncError) X(ncclCommInitRank) X(ncclGetErrorString) X(ncclGetUniqueId) X(ncclGroupEnd)    \
    X(ncclGroupStart)
#else
#define TCU_NCCL_FUNCTIONS(X)
#endif
// What a communicator with a timeout needs beside these: NCCL 2.14.
#if defined(TCU_HAVE_NCCL) && defined(NCCL_CONFIG_INITIALIZER)
#define TCU_HAVE_NCCL_TIMED 1
#define TCU_NCCL_TIMED_FUNCTIONS(X) X(ncclCommFinalize) X(ncclCommInitRankConfig)
#else
#define TCU_NCCL_TIMED_FUNCTIONS(X)
#endif
#define TCU_TEXT(x) TCU_TEXT_(x)
#define TCU_TEXT_(x) #x
#define TCU_LIBRARIES(X)                                                                                     \
    X(CUDA, "libcuda.so.1", "the NVIDIA driver", TCU_CUDA_FUNCTIONS)                                         \
    X(CUBLASLT, "libcublasLt.so." TCU_TEXT(CUBLAS_VER_MAJOR), "cuBLASLt " TCU_TEXT(CUBLAS_VER_MAJOR),        \
      TCU_CUBLASLT_FUNCTIONS)                                                                                \
    X(CUDNN, "libcudnn.so.9", "cuDNN 9", TCU_CUDNN_FUNCTIONS)                                                \
    X(NCCL, "libnccl.so.2", "NCCL 2", TCU_NCCL_FUNCTIONS)                                                    \
    X(NCCL_TIMED, "libnccl.so.2", "a timeout needs NCCL 2.14", TCU_NCCL_TIMED_FUNCTIONS)
// clang-format on

namespace tcu {

enum library_t {
#define TCU_X(id, file, name, functions) LIBRARY_##id,
    TCU_LIBRARIES(TCU_X)
#undef TCU_X
    LIBRARY_COUNT
};

#define TCU_X(f) decltype(&::f) f##_;
struct libraries_t {
    TCU_CUDA_FUNCTIONS(TCU_X)
    TCU_CUBLASLT_FUNCTIONS(TCU_X)
    TCU_CUDNN_FUNCTIONS(TCU_X)
    TCU_NCCL_FUNCTIONS(TCU_X)
    TCU_NCCL_TIMED_FUNCTIONS(TCU_X)
    bool open[LIBRARY_COUNT];
};
#undef TCU_X

static libraries_t lib;
static int open_lock;

struct lock_t {                                 // nearly always free; held at most during calls of the driver
    int *at;
    explicit lock_t(int *p) : at(p) {
        for (int spins = 0; __atomic_exchange_n(at, 1, __ATOMIC_ACQUIRE); spins++) {
            if (spins > 64) { std::this_thread::yield(); }
        }
    }
    ~lock_t() { __atomic_store_n(at, 0, __ATOMIC_RELEASE); }
    lock_t(const lock_t &) = delete;
};

// Fills a library's part of lib -> 0, or TENSOR_ERR_CUDA and a text that names what is missing. A later call
// tries again.
inline int open_library(library_t which, char *text, size_t room) {
    lock_t hold(&open_lock);
    const char *missing = nullptr;
    void *at;
    if (lib.open[which]) { return 0; }
    switch (which) {
#define TCU_F(f)                                                                                             \
    if (!missing) {                                                                                          \
        void *symbol = TCU_SYMBOL(at, TCU_TEXT(f));                                                          \
        if (!symbol) { missing = TCU_TEXT(f); }                                                              \
        memcpy(&lib.f##_, &symbol, sizeof symbol);                                                           \
        empty = false;                                                                                       \
    }
#define TCU_X(id, file, name, functions)                                                                     \
    case LIBRARY_##id: {                                                                                     \
        bool empty = true;                                                                                   \
        if (!(at = TCU_OPEN(file))) {                                                                        \
            snprintf(text, room, "%s is needed, but %s cannot be opened", name, file);                       \
            return TENSOR_ERR_CUDA;                                                                          \
        }                                                                                                    \
        functions(TCU_F)                                                                                     \
        if (missing || empty) {                                                                              \
            snprintf(text, room, "%s: %s has no %s", name, file,                                             \
                     missing ? missing : "header at build time");                                            \
            return TENSOR_ERR_CUDA;                                                                          \
        }                                                                                                    \
        break;                                                                                               \
    }

    TCU_LIBRARIES(TCU_X)
#undef TCU_X
#undef TCU_F
    default: return TENSOR_ERR_INTERNAL;
    }

    lib.open[which] = true;
    return 0;
}

// ------------------------------------------------------------------------------
// >>allocator                                      MARK: stream-ordered caching allocator
//
// Two-level segregated fit (free blocks are in bins by size, two bitmaps find the next bin that is not
// empty) over an arena per device, stream and size class (up to 1 MiB, and above): a search costs the same
// however many blocks are alive. An arena is one reserved range of addresses that grows chunk by chunk at
// its lowest hole, so that neighbours can always merge and shapes that vary leave no small unusable blocks.
// If the driver cannot do that, it is a list of cudaMalloc segments with PyTorch's sizes. Freed memory can
// be used by its own stream at once. Rejected: best fit in ordered sets over segments (30-94 % waste on
// varying shapes, three times the time); one range for all streams (reuse would need events); a lock per
// arena (peaks of sums over arenas would be guesses; a call that does not need the driver holds the device's
// lock for tens of nanoseconds). Headers are on the host. The allocator uses CUDA only through the driver
// table; tests supply their own.
// ------------------------------------------------------------------------------

constexpr uint64_t GRANULE = 512, SMALL = 1 << 20, MOST = uint64_t(1) << 50;
enum { MAX_DEVICES = 16, ROWS = 40, BINS = 32, HASH = 64, SCAN = 8 };

// What the allocator needs of CUDA. Each function returns 0 or an error. While a stream of the device is
// being captured, only segment_alloc, reserve, map and memory are called, and unmap of chunks that were
// mapped just before when the rest could not be mapped.
enum { NO_MEMORY = 2 }; // of map: CUDA_ERROR_OUT_OF_MEMORY; other errors: it cannot map

struct driver_t {
    void *user;
    int (*segment_alloc)(void *user, int device, uint64_t bytes, uint64_t *address);
    int (*segment_free)(void *user, int device, uint64_t address, uint64_t bytes);
    // NULL = no virtual memory management
    int (*reserve)(void *user, int device, uint64_t bytes, uint64_t *address);
    int (*unreserve)(void *user, int device, uint64_t address, uint64_t bytes);
    int (*map)(void *user, int device, uint64_t address, uint64_t bytes, uint64_t *handle);
    int (*unmap)(void *user, int device, uint64_t address, uint64_t bytes, uint64_t handle);
    int (*memory)(void *user, int device, uint64_t *free, uint64_t *total);
    int (*event_new)(void *user, int device, void **event);
    int (*event_free)(void *user, int device, void *event);
    int (*event_record)(void *user, int device, void *event, void *stream);
    int (*event_query)(void *user, int device, void *event);        // 0 = done, 1 = not yet, < 0 = failed
    int (*stream_sync)(void *user, int device, void *stream);
    int (*fill)(void *user, int device, void *stream, uint64_t address, uint64_t bytes);    // debug: 0xFF
    // The device of a foreign stream, `otherwise` if it is not known; NULL = that of the block.
    int (*device_of)(const void *stream, int otherwise) = nullptr;
};

struct options_t {
    uint64_t small_chunk = 2 << 20, large_chunk = 32 << 20;     // multiples of the driver's granularity
    uint64_t reserve = 0;       // addresses per arena; 0 = 9/8 of the device
    bool no_cache = false;      // each block is a segment, freed at once: for memory checkers
    bool no_ranges = false;     // segments, even if the driver can map
    uint64_t ask_from = 128 << 20; // from this on, ask the driver whether the bytes are free before mapping
    bool debug = false;         // freed memory is filled with 0xFF
    int trace = 0;              // entries of the trace ring
    void (*on_oom)(void *user, int device, uint64_t bytes) = nullptr;    // may free; then one more try
    void *user = nullptr;
};

// PyTorch's names. Each is the present value, the highest, and the sum of all increases.
struct stat_t { int64_t current, peak, allocated; };
enum stat_id { ALLOCATION, SEGMENT, ACTIVE, INACTIVE_SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES,
    INACTIVE_SPLIT_BYTES, REQUESTED_BYTES, STAT_COUNT };
static const char *const stat_names[STAT_COUNT] = {"allocation", "segment", "active", "inactive_split",
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"};

struct stats_t {
    stat_t all[STAT_COUNT], small[STAT_COUNT], large[STAT_COUNT];
    int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
};

enum state_t : uint8_t { FREE, USED, PENDING, HOLE };       // HOLE: addresses without memory
struct arena_t;
struct block_t;

struct use_t { // another stream that uses a block; after the free, an event to wait for
    use_t *next;
    block_t *of;
    void *stream, *event;
    uint64_t read;                          // that stream's last read, a mark as in block_t
};

struct block_t {
    uint64_t address, bytes, requested;
    block_t *prev, *next;                   // neighbours by address, within a range or segment
    block_t *free_prev, *free_next;         // in a bin, or in the list of holes (by address)
    block_t *chain;                         // for the first block of a range or segment: the next such block
    arena_t *home;
    use_t *uses;
    const char *tag;
    int waits;                              // events that a pending block waits for
    state_t state;
    bool ranged;                            // in a reserved range
    // For >>backend: the last write, its own stream's last read (marks: stream and count of its calls);
    // graphs that keep it; the graph that listed it last, and where.
    uint64_t wrote, read;
    int kept, listed, place;
    int made;                               // the capture in which it was allocated, 0 = none
    bool released;                          // its tensor is freed, a graph keeps it
};

struct lane_t;

struct arena_t {
    lane_t *lane;
    bool small, no_range;
    uint64_t base, bytes, chunk, *handles, nhandles;
    block_t *chains, *holes;
    uint64_t row_mask;
    uint32_t bin_mask[ROWS];
    block_t *bin[ROWS][BINS];
};

// The two arenas of a stream, or of a stream in captures (graph != 0: the number of what has them, a graph or
// a pool of graphs).
struct lane_t {
    lane_t *next;                           // in its hash bucket
    void *stream;
    uint64_t *used;                         // of a pool, for >>backend: each stream's last call on its blocks
    int device, graph;
    bool dead;                              // its graphs are freed: memory goes back with the last block
    bool outside;                           // for a block that is the caller's memory: a wrapped_t
    int64_t live;                           // blocks used or pending
    arena_t arena[2];                       // large, small
};

struct queue_t { // events of one foreign stream, in its order: only the head must be queried
    queue_t *next;
    void *stream;
    int device;                             // of the stream, and of its events
    use_t *head, **tail;
};

// A stream that is being captured. graph, used: of its lane.
struct capture_t { capture_t *next; void *stream; int id, graph; uint64_t *used; };

enum action_t : uint8_t {
    TRACE_ALLOC,
    TRACE_FREE,
    TRACE_PEND,
    TRACE_RECLAIM,
    TRACE_MAP,
    TRACE_UNMAP,
    TRACE_OOM,
    TRACE_RECORD
};

struct trace_t { uint64_t address, bytes, serial; void *stream; const char *tag; action_t action; int step; };
struct slab_t { slab_t *next; };

struct device_t {
    int lock, index;
    bool no_ranges;                         // a mapping was refused: only segments from now on
    uint64_t total, limit;                  // limit: bytes that may be reserved, 0 = all
    lane_t *last, *hash[HASH];
    queue_t *queues;
    int64_t npending;
    block_t *parked;                        // freed with foreign uses during a capture (linked by chain)
    capture_t *captures;
    block_t *spare_blocks;
    use_t *spare_uses;
    slab_t *slabs;
    void **events;                          // pool; events belong to a device
    int nevents, room_events;
    stats_t stats;
};

struct allocator_t {
    driver_t driver;
    options_t options;
    device_t *device[MAX_DEVICES];
    int lock, next_graph, step;
    trace_t *ring;
    uint64_t ntraced;
};

inline int log2_of(uint64_t v) { return 63 - __builtin_clzll(v); }
inline uint64_t round_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }
inline stats_t *stats_of(allocator_t *A, int device) { return &A->device[device]->stats; }

inline void count(stat_t *s, int64_t by) {
    s->current += by;
    if (by > 0) {
        s->allocated += by;
        if (s->current > s->peak) { s->peak = s->current; }
    }
}

inline void count(device_t *d, const arena_t *a, stat_id id, int64_t by) {
    count(&d->stats.all[id], by);
    count(a->small ? &d->stats.small[id] : &d->stats.large[id], by);
}

inline void trace(allocator_t *A, action_t action, uint64_t address, uint64_t bytes, void *stream,
                  const char *tag) {
    if (!A->ring) { return; }
    uint64_t n = __atomic_fetch_add(&A->ntraced, 1, __ATOMIC_RELAXED);
    A->ring[n % (uint64_t)A->options.trace] = {address, bytes, n, stream, tag, action, A->step};
}

// Headers come in slabs, which are kept until the end.
template <class T> inline T *from_slab(device_t *d, T **spare, T *T::*link) {
    if (!*spare) {
        enum { N = 256 };
        char *p = (char *)malloc(sizeof(slab_t) + 8 + N * sizeof(T));
        if (!p) { return nullptr; }
        ((slab_t *)(void *)p)->next = d->slabs;
        d->slabs = (slab_t *)(void *)p;
        T *t = (T *)(void *)(p + sizeof(slab_t) + 8);
        for (int i = 0; i < N; i++) {
            t[i].*link = *spare;
            *spare = &t[i];
        }
    }

    T *t = *spare;
    *spare = t->*link;
    return t;
}

inline block_t *new_block(device_t *d, arena_t *a, uint64_t address, uint64_t bytes, state_t state,
                          bool ranged) {
    block_t *b = from_slab(d, &d->spare_blocks, &block_t::next);
    if (!b) { return nullptr; }
    *b = block_t{};
    b->address = address;
    b->bytes = bytes;
    b->home = a;
    b->state = state;
    b->ranged = ranged;
    return b;
}

inline void drop_block(device_t *d, block_t *b) {
    b->next = d->spare_blocks;
    d->spare_blocks = b;
}

// Row and bin of a size: exact below BINS granules, then BINS per doubling.
inline void place_of(uint64_t bytes, int *row, int *bin) {
    uint64_t n = bytes / GRANULE;
    if (n < BINS) {
        *row = 0;
        *bin = (int)n;
    } else {
        int h = log2_of(n);
        *row = h - 4;
        *bin = (int)(n >> (h - 5)) & (BINS - 1);
    }
}

inline bool is_split(const block_t *b) { return b->ranged ? true : b->prev || b->next; }

inline void put_in_bin(device_t *d, block_t *b) {
    arena_t *a = b->home;
    int r, k;
    place_of(b->bytes, &r, &k);
    b->state = FREE;
    b->free_prev = nullptr;
    b->free_next = a->bin[r][k];
    if (b->free_next) { b->free_next->free_prev = b; }
    a->bin[r][k] = b;
    a->bin_mask[r] |= 1u << k;
    a->row_mask |= uint64_t(1) << r;
    if (is_split(b)) {
        count(d, a, INACTIVE_SPLIT, 1);
        count(d, a, INACTIVE_SPLIT_BYTES, (int64_t)b->bytes);
    }
}

inline void take_from_bin(device_t *d, block_t *b) {
    arena_t *a = b->home;
    int r, k;
    place_of(b->bytes, &r, &k);
    if (b->free_next) { b->free_next->free_prev = b->free_prev; }
    if (b->free_prev) {
        b->free_prev->free_next = b->free_next;
    } else if (!(a->bin[r][k] = b->free_next)) {
        a->bin_mask[r] &= ~(1u << k);
        if (!a->bin_mask[r]) { a->row_mask &= ~(uint64_t(1) << r); }
    }

    if (is_split(b)) {
        count(d, a, INACTIVE_SPLIT, -1);
        count(d, a, INACTIVE_SPLIT_BYTES, -(int64_t)b->bytes);
    }
}

// The best of the first few blocks: in the size's own bin, or in the next bin that is not empty, where all
// fit.
inline block_t *best_of(block_t *b, uint64_t bytes) {
    block_t *best = nullptr;
    for (int i = 0; b && i < SCAN; b = b->free_next, i++) {
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) { best = b; }
        if (best && best->bytes == bytes) { break; }
    }
    return best;
}

inline block_t *find_free(arena_t *a, uint64_t bytes) {
    int r, k;
    place_of(bytes, &r, &k);
    block_t *b = best_of(a->bin[r][k], bytes);
    if (b) { return b; }
    uint32_t bins = k + 1 < BINS ? a->bin_mask[r] & (~0u << (k + 1)) : 0;
    if (!bins) {
        uint64_t rows = a->row_mask & (~uint64_t(0) << (r + 1));
        if (!rows) { return nullptr; }
        r = __builtin_ctzll(rows);
        bins = a->bin_mask[r];
    }
    return best_of(a->bin[r][__builtin_ctz(bins)], bytes);
}

inline void insert_after(block_t *b, block_t *fresh) {
    fresh->prev = b;
    fresh->next = b->next;
    if (b->next) { b->next->prev = fresh; }
    b->next = fresh;
}

inline void absorb_next(device_t *d, block_t *b) { // b keeps its header, so a chain's first block stays
    block_t *n = b->next;
    b->bytes += n->bytes;
    b->next = n->next;
    if (n->next) { n->next->prev = b; }
    drop_block(d, n);
}

// A block that is in no list becomes free memory, joined with its neighbours.
inline block_t *give_back(device_t *d, block_t *b) {
    if (b->next && b->next->state == FREE) {
        take_from_bin(d, b->next);
        absorb_next(d, b);
    }
    if (b->prev && b->prev->state == FREE) {
        b = b->prev;
        take_from_bin(d, b);
        absorb_next(d, b);
    }
    put_in_bin(d, b);
    return b;
}

// A graph's memory stays until the graph is freed, whatever the option says.
inline bool uncached(const allocator_t *A, const arena_t *a) {
    return A->options.no_cache && !a->lane->graph;
}

inline bool within_limit(const device_t *d, uint64_t bytes) {
    return !d->limit || (uint64_t)d->stats.all[RESERVED_BYTES].current + bytes <= d->limit;
}

inline void count_raw(allocator_t *A, device_t *d, arena_t *a, uint64_t address, uint64_t bytes,
                      int64_t pieces) {
    count(d, a, SEGMENT, pieces);
    count(d, a, RESERVED_BYTES, pieces > 0 ? (int64_t)bytes : -(int64_t)bytes);
    if (pieces > 0) {
        d->stats.num_device_alloc += pieces;
    } else {
        d->stats.num_device_free -= pieces;
    }
    trace(A, pieces > 0 ? TRACE_MAP : TRACE_UNMAP, address, bytes, a->lane->stream, nullptr);
}

// Memory for all of [address, +bytes), or for none of it. More than the device has is not mapped chunk by
// chunk until the driver refuses: that takes seconds, and meanwhile takes all memory that other processes
// might want.
inline int map_chunks(allocator_t *A, device_t *d, arena_t *a, uint64_t address, uint64_t bytes) {
    uint64_t first = (address - a->base) / a->chunk, n = bytes / a->chunk, i, free_memory, total;
    int e = 0;
    if (bytes >= A->options.ask_from && !A->driver.memory(A->driver.user, d->index, &free_memory, &total) &&
        bytes > free_memory) {
        return NO_MEMORY;
    }
    if (first + n > a->nhandles) {
        uint64_t room = first + n + (first + n) / 2;
        uint64_t *h = (uint64_t *)realloc(a->handles, room * sizeof *h);
        if (!h) { return NO_MEMORY; }
        a->handles = h;
        a->nhandles = room;
    }

    for (i = 0; i < n; i++) {
        e = A->driver.map(A->driver.user, d->index, address + i * a->chunk, a->chunk, &a->handles[first + i]);
        if (e) { break; }
    }

    if (i == n) {
        count_raw(A, d, a, address, bytes, (int64_t)n);
        return 0;
    }

    while (i-- > 0) {
        A->driver.unmap(A->driver.user, d->index, address + i * a->chunk, a->chunk, a->handles[first + i]);
    }
    if (e != NO_MEMORY) { d->no_ranges = true; }
    return e;
}

inline bool reserve_range(allocator_t *A, device_t *d, arena_t *a) {
    uint64_t want = A->options.reserve ? A->options.reserve : d->total + d->total / 8;
    if (d->no_ranges) { return false; }
    if (a->bytes || a->no_range || A->options.no_ranges || !A->driver.reserve) { return a->bytes != 0; }
    a->chunk = a->small ? A->options.small_chunk : A->options.large_chunk;
    want = round_up(want, a->chunk);
    block_t *b = new_block(d, a, 0, want, HOLE, true);
    if (!b || A->driver.reserve(A->driver.user, d->index, want, &a->base)) {
        if (b) { drop_block(d, b); }
        a->no_range = true;
        return false;
    }

    a->bytes = want;
    b->address = a->base;
    b->chain = a->chains;
    a->chains = b;
    a->holes = b;
    return true;
}

inline void drop_hole(block_t *h) { // its addresses went to a neighbour, or it has none left
    arena_t *a = h->home;
    if (h->free_next) { h->free_next->free_prev = h->free_prev; }
    *(h->free_prev ? &h->free_prev->free_next : &a->holes) = h->free_next;
}

// A free block of at least `bytes`, in no bin, with new memory at the lowest hole that is large enough
// together with its free neighbours. NULL: no memory or no addresses.
inline block_t *grow_range(allocator_t *A, device_t *d, arena_t *a, uint64_t bytes) {
    for (block_t *h = a->holes; h; h = h->free_next) {
        block_t *low = h->prev && h->prev->state == FREE ? h->prev : nullptr;
        block_t *high = h->next && h->next->state == FREE ? h->next : nullptr;
        uint64_t have = low ? low->bytes : 0;
        if (have >= bytes) {                                // the short scan of its bin missed it
            take_from_bin(d, low);
            return low;
        }
        uint64_t need = round_up(bytes - have, a->chunk);
        if (need > h->bytes) {
            if (!high || have + h->bytes + high->bytes < bytes) { continue; }
            need = h->bytes;
        }
        block_t *fresh =
            need < h->bytes ? new_block(d, a, 0, 0, HOLE, true) : nullptr; // the rest of the hole
        if ((need < h->bytes && !fresh) || !within_limit(d, need) || map_chunks(A, d, a, h->address, need)) {
            if (fresh) { drop_block(d, fresh); }
            return nullptr;
        }

        if (fresh) {
            fresh->address = h->address + need;
            fresh->bytes = h->bytes - need;
            h->bytes = need;
            insert_after(h, fresh);
            fresh->free_prev = h;
            fresh->free_next = h->free_next;
            if (h->free_next) { h->free_next->free_prev = fresh; }
            h->free_next = fresh;
        }
        drop_hole(h);
        h->state = USED;                                    // has memory now, in no list
        if (h->next && h->next->state == FREE) {
            take_from_bin(d, h->next);
            absorb_next(d, h);
        }
        if (low) {
            take_from_bin(d, low);
            absorb_next(d, low);
            h = low;
        }
        return h;
    }

    return nullptr;
}

inline block_t *grow_segment(allocator_t *A, device_t *d, arena_t *a, uint64_t bytes) {
    uint64_t size = bytes;
    if (!uncached(A, a)) {                      // PyTorch's sizes
        size = bytes < 10 << 20 ? 20 << 20 : round_up(bytes, 2 << 20);
        if (a->small) { size = 2 << 20; }
    }
    block_t *b = within_limit(d, size) ? new_block(d, a, 0, size, USED, false) : nullptr;
    if (!b) { return nullptr; }
    if (A->driver.segment_alloc(A->driver.user, d->index, size, &b->address)) {
        drop_block(d, b);
        return nullptr;
    }

    b->chain = a->chains;
    a->chains = b;
    count_raw(A, d, a, b->address, size, 1);
    return b;
}

inline block_t *grow(allocator_t *A, device_t *d, arena_t *a, uint64_t bytes) {
    if (!uncached(A, a) && reserve_range(A, d, a)) {
        block_t *b = grow_range(A, d, a, bytes);
        if (b || !d->no_ranges) { return b; }
    }
    return grow_segment(A, d, a, bytes);
}

inline void free_segment(allocator_t *A, device_t *d, block_t *b) {     // whole, in no bin
    arena_t *a = b->home;
    block_t **at = &a->chains;
    while (*at != b) { at = &(*at)->chain; }
    *at = b->chain;
    A->driver.segment_free(A->driver.user, d->index, b->address, b->bytes);
    count_raw(A, d, a, b->address, b->bytes, -1);
    drop_block(d, b);
}

// The whole chunks of a free block become a hole.
inline void unmap_block(allocator_t *A, device_t *d, block_t *b) {
    arena_t *a = b->home;
    uint64_t from = a->base + round_up(b->address - a->base, a->chunk);
    uint64_t to = a->base + (b->address + b->bytes - a->base) / a->chunk * a->chunk;
    if (from >= to) { return; }
    block_t *hole = b, *rest = nullptr;
    if (from > b->address && !(hole = new_block(d, a, from, to - from, HOLE, true))) { return; }
    if (to < b->address + b->bytes && !(rest = new_block(d, a, to, b->address + b->bytes - to, FREE, true))) {
        if (hole != b) { drop_block(d, hole); }
        return;
    }

    take_from_bin(d, b);
    if (hole != b) {
        insert_after(b, hole);
        b->bytes = from - b->address;
    }

    if (rest) { insert_after(hole, rest); }
    hole->bytes = to - from;
    hole->state = HOLE;
    if (hole != b) { put_in_bin(d, b); }
    if (rest) { put_in_bin(d, rest); }
    for (uint64_t at = from; at < to; at += a->chunk) {
        A->driver.unmap(A->driver.user, d->index, at, a->chunk, a->handles[(at - a->base) / a->chunk]);
    }
    count_raw(A, d, a, from, to - from, -(int64_t)((to - from) / a->chunk));
    block_t **link = &a->holes, *before = nullptr;          // into the list, by address
    while (*link && (*link)->address < from) {
        before = *link;
        link = &before->free_next;
    }

    hole->free_prev = before;
    hole->free_next = *link;
    if (*link) { (*link)->free_prev = hole; }
    *link = hole;
    if (hole->next && hole->next->state == HOLE) {
        drop_hole(hole->next);
        absorb_next(d, hole);
    }

    if (hole->prev && hole->prev->state == HOLE) {
        drop_hole(hole);
        absorb_next(d, hole->prev);
    }
}

inline int new_event(allocator_t *A, device_t *d, int device, void **event) {
    if (device == d->index && d->nevents) {
        *event = d->events[--d->nevents];
        return 0;
    }
    return A->driver.event_new(A->driver.user, device, event);
}

inline void keep_event(allocator_t *A, device_t *d, int device, void *event) {
    if (device != d->index) {                               // pinned memory, which streams of all devices use
        A->driver.event_free(A->driver.user, device, event);
        return;
    }
    if (d->nevents == d->room_events) {
        int room = d->room_events ? 2 * d->room_events : 64;
        void **p = (void **)realloc(d->events, (size_t)room * sizeof *p);
        if (!p) {
            A->driver.event_free(A->driver.user, d->index, event);
            return;
        }
        d->events = p;
        d->room_events = room;
    }
    d->events[d->nevents++] = event;
}

inline void trim_lane(allocator_t *A, device_t *d, lane_t *l);
inline void destroy_lane(allocator_t *A, device_t *d, lane_t *l);

// Called when no stream uses the block any more.
inline void reclaim(allocator_t *A, device_t *d, block_t *b) {
    arena_t *a = b->home;
    lane_t *l = a->lane;
    count(d, a, ACTIVE, -1);
    count(d, a, ACTIVE_BYTES, -(int64_t)b->bytes);
    l->live--;
    if (A->options.debug && A->driver.fill && !d->captures) {
        A->driver.fill(A->driver.user, d->index, l->stream, b->address, b->bytes);
    }
    if (uncached(A, a)) {
        A->driver.stream_sync(A->driver.user, d->index, l->stream);
        free_segment(A, d, b);
    } else {
        give_back(d, b);
    }

    if (l->dead && !l->live && !d->captures) { destroy_lane(A, d, l); }
}

// Records an event at the end of each foreign stream; if there is no event to be had, the host waits instead.
inline void pend(allocator_t *A, device_t *d, block_t *b) {
    for (use_t *u = b->uses, *next; u; u = next) {
        next = u->next;
        u->next = nullptr;
        u->of = b;
        queue_t *q = d->queues;
        const auto of = A->driver.device_of;
        const int device = of ? of(u->stream, d->index) : d->index;
        while (q && q->stream != u->stream) { q = q->next; }
        if (!q && (q = (queue_t *)malloc(sizeof *q))) {
            *q = queue_t{d->queues, u->stream, device, nullptr, nullptr};
            q->tail = &q->head;
            d->queues = q;
        }
        if (!q || new_event(A, d, device, &u->event)) {
            A->driver.stream_sync(A->driver.user, device, u->stream);
        } else if (A->driver.event_record(A->driver.user, device, u->event, u->stream)) {
            keep_event(A, d, device, u->event);
            A->driver.stream_sync(A->driver.user, device, u->stream);
        } else {
            b->waits++;
            d->npending++;
            *q->tail = u;
            q->tail = &u->next;
            continue;
        }
        u->next = d->spare_uses;
        d->spare_uses = u;
    }

    b->uses = nullptr;
    if (!b->waits) { reclaim(A, d, b); }
}

// Takes back blocks that foreign streams have finished with; wait: all of them.
inline void poll(allocator_t *A, device_t *d, bool wait) {
    for (queue_t *q = d->queues; q; q = q->next) {
        if (q->head && wait) { A->driver.stream_sync(A->driver.user, q->device, q->stream); }
        while (q->head && (wait || !A->driver.event_query(A->driver.user, q->device, q->head->event))) {
            use_t *u = q->head;
            block_t *b = u->of;
            if (!(q->head = u->next)) { q->tail = &q->head; }
            keep_event(A, d, q->device, u->event);
            u->next = d->spare_uses;
            d->spare_uses = u;
            d->npending--;
            if (--b->waits == 0) {
                trace(A, TRACE_RECLAIM, b->address, b->bytes, q->stream, b->tag);
                reclaim(A, d, b);
            }
        }
    }
}

// -> NULL: the stream is not being captured
inline const capture_t *capture_of(const device_t *d, const void *stream) {
    const capture_t *c = d->captures;
    while (c && c->stream != stream) { c = c->next; }
    return c;
}

inline lane_t *lane_of(device_t *d, void *stream, const capture_t *c) {
    const int graph = c ? c->graph : 0;
    if (d->last && d->last->stream == stream && d->last->graph == graph && !d->last->dead) { return d->last; }
    uint64_t h = (((uint64_t)(uintptr_t)stream >> 4) * 0x9E3779B97F4A7C15u + (uint64_t)graph) >> 58;
    lane_t *l = d->hash[h % HASH];
    while (l && (l->stream != stream || l->graph != graph || l->dead)) { l = l->next; }
    if (!l) {
        if (!(l = (lane_t *)calloc(1, sizeof *l))) { return nullptr; }
        l->stream = stream;
        l->device = d->index;
        l->graph = graph;
        l->used = c ? c->used : nullptr;
        l->arena[0].lane = l->arena[1].lane = l;
        l->arena[1].small = true;
        l->next = d->hash[h % HASH];
        d->hash[h % HASH] = l;
    }

    return d->last = l;
}

// Gives free memory back to the driver.
inline void trim_lane(allocator_t *A, device_t *d, lane_t *l) {
    bool waited = false;
    for (int k = 0; k < 2; k++) {
        arena_t *a = &l->arena[k];
        for (block_t *c = a->chains, *after; c; c = after) {
            after = c->chain;
            bool whole = !c->ranged && c->state == FREE && !c->next;
            if (!waited && a->row_mask && (whole || c->ranged)) {
                A->driver.stream_sync(A->driver.user, d->index, l->stream);
                waited = true;
            }
            if (whole) {
                take_from_bin(d, c);
                free_segment(A, d, c);
                continue;
            }
            for (block_t *b = c, *next; b && c->ranged; b = next) {
                next = b->next;
                if (b->state == FREE) {
                    block_t *beyond = next && next->state == HOLE ? next->next : next;      // a hole may join
                    unmap_block(A, d, b);
                    next = beyond;
                }
            }
        }
    }
}

inline void destroy_lane(allocator_t *A, device_t *d, lane_t *l) {      // no block is used
    trim_lane(A, d, l);
    for (int k = 0; k < 2; k++) {
        arena_t *a = &l->arena[k];
        if (a->bytes) {
            A->driver.unreserve(A->driver.user, d->index, a->base, a->bytes);
            drop_block(d, a->holes);
        }
        free(a->handles);
    }
    for (lane_t *&bucket : d->hash) {
        for (lane_t **at = &bucket; *at; at = &(*at)->next) {
            if (*at == l) {
                *at = l->next;
                break;
            }
        }
    }
    if (d->last == l) { d->last = nullptr; }
    free(l);
}

template <class F> inline void each_lane(device_t *d, F f) {
    for (lane_t *bucket : d->hash) {
        for (lane_t *l = bucket, *next; l; l = next) {
            next = l->next;
            f(l);
        }
    }
}

// f(address, bytes) for each stretch of the device's ranges that has memory. The caller holds its lock.
template <class F> inline void each_mapped(device_t *d, F f) {
    each_lane(d, [&](lane_t *l) {
        for (arena_t &a : l->arena) {
            for (block_t *c = a.chains; c; c = c->chain) {
                uint64_t bytes = 0;
                for (block_t *b = c; b; b = b->next) {
                    const bool there = b->ranged && b->state != HOLE;
                    bytes = there ? bytes + b->bytes : 0;
                    if (there && (!b->next || b->next->state == HOLE)) {
                        f(b->address + b->bytes - bytes, bytes);
                    }
                }
            }
        }
    });
}

inline void trim_device(allocator_t *A, device_t *d) {
    d->stats.num_sync_all_streams++;
    each_lane(d, [&](lane_t *l) {   // a graph that may run again writes to its free memory
        if (!l->graph || l->dead) { trim_lane(A, d, l); }
    });
}

inline const char *in_units(char (&text)[32], uint64_t bytes) {
    const char *unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int k = 0;
    uint64_t whole = bytes, rest = 0;       // no printf of fractions: the locale may change the point
    for (; whole >= 1024 && k < 5; k++) {
        rest = whole % 1024;
        whole /= 1024;
    }

    if (k) {
        snprintf(text, sizeof text, "%llu.%02llu %s", (unsigned long long)whole,
                 (unsigned long long)(rest * 100 / 1024), unit[k]);
    } else {
        snprintf(text, sizeof text, "%llu B", (unsigned long long)bytes);
    }

    return text;
}

template <class F> inline void each_block(device_t *d, F f) {
    each_lane(d, [&](lane_t *l) {
        for (arena_t &a : l->arena) {
            for (block_t *c = a.chains; c; c = c->chain) {
                for (block_t *b = c; b; b = b->next) { f(b); }
            }
        }
    });
}

static thread_local char report_text[2048];     // the report of the thread's last failed alloc

inline void write_report(allocator_t *A, device_t *d, uint64_t bytes, void *stream) {
    enum { TAGS = 64 };
    struct { const char *tag; uint64_t bytes; } tags[TAGS] = {};
    uint64_t free_memory = 0, total = d->total, largest = 0, pending = 0, graphs = 0, cached = 0;
    int ntags = 0;
    A->driver.memory(A->driver.user, d->index, &free_memory, &total);
    each_block(d, [&](block_t *b) {
        if (b->state == FREE) {
            cached += b->bytes;
            if (b->bytes > largest) { largest = b->bytes; }
        }

        if (b->state == PENDING) { pending += b->bytes; }
        if (b->state == USED && b->home->lane->graph) { graphs += b->bytes; }
        if (b->state != USED) { return; }
        int i = 0;
        while (i < ntags && tags[i].tag != b->tag) { i++; }
        if (i == TAGS) { return; }
        if (i == ntags) { tags[ntags++].tag = b->tag; }
        tags[i].bytes += b->bytes;
    });
    char t[10][32];
    uint64_t reserved = (uint64_t)d->stats.all[RESERVED_BYTES].current;
    const uint64_t most_reserved = d->limit ? d->limit : total;
    const double free_part = reserved ? 100.0 * (double)cached / (double)reserved : 0.0;
    int n =
        snprintf(report_text, sizeof report_text,
                 "Tried to allocate %s on device %d (stream %p). The device has %s, %s of it free; %s may be "
                 "reserved. Reserved here: %s, of it %s in use (%s by graphs), %s waits for other streams, "
                 "%s is free (largest block %s; %.1f %% of what is reserved).",
                 in_units(t[0], bytes), d->index, stream, in_units(t[1], total), in_units(t[2], free_memory),
                 in_units(t[3], most_reserved), in_units(t[4], reserved),
                 in_units(t[5], (uint64_t)d->stats.all[ALLOCATED_BYTES].current), in_units(t[6], graphs),
                 in_units(t[7], pending), in_units(t[8], cached), in_units(t[9], largest), free_part);

    for (int k = 0; k < 5 && n > 0 && (size_t)n < sizeof report_text; k++) {
        int best = -1;
        for (int i = 0; i < ntags; i++) {
            if (tags[i].bytes && (best < 0 || tags[i].bytes > tags[best].bytes)) { best = i; }
        }
        if (best < 0) { break; }
        const char *tag = tags[best].tag ? tags[best].tag : "(no tag)";
        n += snprintf(report_text + n, sizeof report_text - (size_t)n, "%s %s %s", k ? "," : " Most in use:",
                      in_units(t[0], tags[best].bytes), tag);
        tags[best].bytes = 0;
    }
}

inline device_t *device_of(allocator_t *A, int device) {
    if (device < 0 || device >= MAX_DEVICES) { return nullptr; }
    device_t *d = __atomic_load_n(&A->device[device], __ATOMIC_ACQUIRE);
    if (d) { return d; }
    lock_t hold(&A->lock);
    if (A->device[device]) { return A->device[device]; }
    uint64_t free_memory;
    if (!(d = (device_t *)calloc(1, sizeof *d))) { return nullptr; }
    d->index = device;
    if (A->driver.memory(A->driver.user, device, &free_memory, &d->total)) {
        free(d);
        return nullptr;
    }

    __atomic_store_n(&A->device[device], d, __ATOMIC_RELEASE);
    return d;
}

inline void cut(allocator_t *A, device_t *d, block_t *b, uint64_t bytes) {
    uint64_t rest = b->bytes - bytes;
    if (uncached(A, b->home) || rest < (b->ranged || b->home->small ? GRANULE : SMALL + 1)) { return; }
    block_t *r = new_block(d, b->home, b->address + bytes, rest, FREE, b->ranged);
    if (!r) { return; }                                     // a larger block than needed does no harm
    b->bytes = bytes;
    insert_after(b, r);
    put_in_bin(d, r);
}

inline block_t *fetch(allocator_t *A, device_t *d, arena_t *a, uint64_t bytes) {
    block_t *b = uncached(A, a) ? nullptr : find_free(a, bytes);
    if (b) {
        take_from_bin(d, b);
        return b;
    }
    return grow(A, d, a, bytes);
}

inline block_t *attempt(allocator_t *A, device_t *d, void *stream, uint64_t bytes, const char *tag) {
    uint64_t n = (bytes + GRANULE - 1) & ~(GRANULE - 1);
    if (d->npending && !d->captures) { poll(A, d, false); }
    const capture_t *c = capture_of(d, stream);
    lane_t *l = lane_of(d, stream, c);
    if (!l) { return nullptr; }
    arena_t *a = &l->arena[n <= SMALL];
    block_t *b = fetch(A, d, a, n);
    if (!b && !d->captures) {                               // nothing may wait during a capture
        if (d->npending) {
            poll(A, d, true);
            b = fetch(A, d, a, n);
        }
        if (!b) {
            d->stats.num_alloc_retries++;
            trim_device(A, d);
            b = fetch(A, d, a, n);
        }
    }

    if (!b) { return nullptr; }
    cut(A, d, b, n);
    b->state = USED;
    b->wrote = b->read = 0;
    b->kept = b->listed = 0;
    b->made = c ? c->id : 0;
    b->released = false;
    b->requested = bytes;
    b->tag = tag;
    l->live++;
    count(d, a, ALLOCATION, 1);
    count(d, a, ACTIVE, 1);
    count(d, a, ALLOCATED_BYTES, (int64_t)b->bytes);
    count(d, a, ACTIVE_BYTES, (int64_t)b->bytes);
    count(d, a, REQUESTED_BYTES, (int64_t)bytes);
    trace(A, TRACE_ALLOC, b->address, bytes, stream, tag);
    return b;
}

// A block of at least `bytes` for work on `stream` -> 0, or TENSOR_ERR_OUT_OF_MEMORY and the report. 0
// bytes: NULL.
inline int alloc(allocator_t *A, int device, void *stream, uint64_t bytes, const char *tag, block_t **out) {
    *out = nullptr;
    device_t *d = device_of(A, device);
    if (!d) { return TENSOR_ERR_DEVICE; }
    if (!bytes) { return 0; }
    if (bytes > MOST) {
        snprintf(report_text, sizeof report_text, "Tried to allocate %llu bytes, more than any device has",
                 (unsigned long long)bytes);
        return TENSOR_ERR_OUT_OF_MEMORY;
    }

    for (bool last = !A->options.on_oom;; last = true) {
        {
            lock_t hold(&d->lock);
            if ((*out = attempt(A, d, stream, bytes, tag))) { return 0; }
            if (last) {
                d->stats.num_ooms++;
                trace(A, TRACE_OOM, 0, bytes, stream, tag);
                write_report(A, d, bytes, stream);
                return TENSOR_ERR_OUT_OF_MEMORY;
            }
        }
        A->options.on_oom(A->options.user, device, bytes);  // it may free memory: the lock is not held
    }
}

// Work queued on `stream`, which is not the block's own, uses the block (read: the mark of a read). -> 0, or
// an error, after which the caller must wait.
inline int record_stream(allocator_t *A, block_t *b, void *stream, uint64_t read = 0) {
    if (!b) { return 0; }
    lane_t *l = b->home->lane;
    device_t *d = A->device[l->device];
    lock_t hold(&d->lock);
    if (l->stream == stream) { return 0; }
    for (use_t *u = b->uses; u; u = u->next) {
        if (u->stream != stream) { continue; }
        u->read = read ? read : u->read;
        return 0;
    }

    use_t *u = from_slab(d, &d->spare_uses, &use_t::next);
    if (!u) { return TENSOR_ERR_OUT_OF_MEMORY; }
    *u = use_t{b->uses, b, stream, nullptr, read};
    __atomic_store_n(&b->uses, u, __ATOMIC_RELEASE);
    trace(A, TRACE_RECORD, b->address, b->bytes, stream, b->tag);
    return 0;
}

// Frees a block. Work queued so far may still use it, because it is used again only for later work of its
// own stream.
inline void release(allocator_t *A, block_t *b) {
    if (!b) { return; }
    arena_t *a = b->home;
    device_t *d = A->device[a->lane->device];
    lock_t hold(&d->lock);
    count(d, a, ALLOCATION, -1);
    count(d, a, ALLOCATED_BYTES, -(int64_t)b->bytes);
    count(d, a, REQUESTED_BYTES, -(int64_t)b->requested);
    trace(A, b->uses ? TRACE_PEND : TRACE_FREE, b->address, b->bytes, a->lane->stream, b->tag);
    if (!b->uses && !(d->captures && uncached(A, a))) {
        reclaim(A, d, b);
        return;
    }

    b->state = PENDING;
    if (d->captures) {                                      // nothing may be queried or freed now
        b->free_next = d->parked;
        d->parked = b;
    } else {
        pend(A, d, b);
    }
}

// A number for a capture or a pool.
inline int new_number(allocator_t *A) {
    return __atomic_add_fetch(&A->next_graph, 1, __ATOMIC_RELAXED);
}

// From now until capture_end, allocations of `stream` come from arenas of the capture's own, or from those of
// a pool (its number, and its marks). -> the capture's number > 0, 0 without memory. capture_join adds a
// stream that was forked from it. graph_release takes the number of the arenas.
inline int capture_join(allocator_t *A, int device, void *stream, int id, int pool = 0,
                        uint64_t *used = nullptr) {
    device_t *d = device_of(A, device);
    capture_t *c = (capture_t *)malloc(sizeof *c);
    if (!d || !c) {
        free(c);
        return TENSOR_ERR_OUT_OF_MEMORY;
    }
    lock_t hold(&d->lock);
    *c = capture_t{d->captures, stream, id, pool ? pool : id, used};
    d->captures = c;
    return 0;
}

inline int capture_begin(allocator_t *A, int device, void *stream, int pool = 0, uint64_t *used = nullptr) {
    const int id = new_number(A);
    return capture_join(A, device, stream, id, pool, used) ? 0 : id;
}

inline void capture_end(allocator_t *A, int device, int id) {
    device_t *d = A->device[device];
    lock_t hold(&d->lock);
    for (capture_t **at = &d->captures; *at;) {
        capture_t *c = *at;
        if (c->id != id) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c);
    }

    if (d->captures) { return; }
    for (block_t *b = d->parked, *next; b; b = next) {
        next = b->free_next;
        if (b->made != id) {        // also if its graph was freed: its memory goes to the driver
            pend(A, d, b);
            continue;
        }
        while (b->uses) {           // a graph has ended before it runs again: nothing to wait for
            use_t *u = b->uses;
            b->uses = u->next;
            u->next = d->spare_uses;
            d->spare_uses = u;
        }
        reclaim(A, d, b);
    }

    d->parked = nullptr;
    each_lane(d, [&](lane_t *l) {
        if (l->dead && !l->live) { destroy_lane(A, d, l); }
    });
}

// The graph, or the last one of a pool, will not run again; the caller has waited for its last run.
inline void graph_release(allocator_t *A, int device, int graph) {
    device_t *d = A->device[device];
    lock_t hold(&d->lock);
    each_lane(d, [&](lane_t *l) {
        if (l->graph != graph) { return; }
        l->dead = true;
        if (d->captures) { return; }
        if (l->live) {
            trim_lane(A, d, l);
        } else {
            destroy_lane(A, d, l);
        }
    });
}

// Gives free memory back to the driver; waits for all streams. Not during a capture.
inline void empty_cache(allocator_t *A, int device) {
    device_t *d = device_of(A, device);
    if (!d) { return; }
    lock_t hold(&d->lock);
    if (d->captures) { return; }
    poll(A, d, true);
    trim_device(A, d);
}

// Limits reserved memory to this fraction of the device's memory, in (0, 1]. -> 0 or TENSOR_ERR_DEVICE,
// TENSOR_ERR_INDEX
inline int set_fraction(allocator_t *A, int device, double fraction) {
    device_t *d = device_of(A, device);
    if (!d) { return TENSOR_ERR_DEVICE; }
    if (!(fraction > 0 && fraction <= 1)) { return TENSOR_ERR_INDEX; }
    lock_t hold(&d->lock);
    d->limit = (uint64_t)(fraction * (double)d->total);
    return 0;
}

inline void reset_peaks(allocator_t *A, int device) {
    device_t *d = device_of(A, device);
    if (!d) { return; }
    lock_t hold(&d->lock);
    for (stat_t *set : {d->stats.all, d->stats.small, d->stats.large}) {
        for (int i = 0; i < STAT_COUNT; i++) { set[i].peak = set[i].current; }
    }
}

// Lines for the program, written down under a lock and told without it: what is called may allocate, and ask
// for figures itself.
struct told_lines_t {
    char *text = nullptr;
    size_t used = 0, room = 0;
    bool ends = false;                          // there was no memory for a line: those before it are told
    told_lines_t() = default;
    told_lines_t(const told_lines_t &) = delete;
    ~told_lines_t() { free(text); }
    void add(const char *line) {
        const size_t n = strlen(line) + 1;
        if (n > room - used && !ends) {
            char *p = (char *)realloc(text, 2 * room + n);
            ends = !p;
            text = p ? p : text;
            room = p ? 2 * room + n : room;
        }
        if (ends) { return; }
        memcpy(text + used, line, n);
        used += n;
    }
    void tell(void (*line)(void *user, const char *text), void *user) const {
        for (size_t at = 0; at < used; at += strlen(text + at) + 1) { line(user, text + at); }
    }
};

// One JSON object per line: every block of every range and segment, then the trace, oldest first.
inline void write_snapshot(allocator_t *A, device_t *d, told_lines_t *to) {
    static const char *const states[] = {"free", "used", "pending", "hole"};
    static const char *const actions[] = {"alloc", "free",  "pend", "reclaim",
                                          "map",   "unmap", "oom",  "record"};
    char text[512];
    lock_t hold(&d->lock);
    each_block(d, [&](block_t *b) {
        lane_t *l = b->home->lane;
        const char *tag = b->tag && b->state == USED ? b->tag : "";
        const uint64_t requested = b->state == USED ? b->requested : 0;
        snprintf(text, sizeof text,
                 "{\"block\":%llu,\"bytes\":%llu,\"requested\":%llu,\"state\":\"%s\",\"device\":%d,"
                 "\"stream\":\"%p\",\"graph\":%d,\"pool\":\"%s\",\"tag\":\"%s\"}",
                 (unsigned long long)b->address, (unsigned long long)b->bytes,
                 (unsigned long long)requested, states[b->state], d->index,
                 l->stream, l->graph, b->home->small ? "small" : "large", tag);
        to->add(text);
    });
    uint64_t n = A->ntraced, room = (uint64_t)A->options.trace;

    for (uint64_t i = A->ring && n > room ? n - room : 0; A->ring && i < n; i++) {
        const trace_t *t = &A->ring[i % room];
        snprintf(text, sizeof text,
                 "{\"trace\":\"%s\",\"address\":%llu,\"bytes\":%llu,\"stream\":\"%p\",\"step\":%d,"
                 "\"tag\":\"%s\"}",
                 actions[t->action], (unsigned long long)t->address, (unsigned long long)t->bytes, t->stream,
                 t->step, t->tag ? t->tag : "");
        to->add(text);
    }
}

// PyTorch's memory_stats, one line each: name.pool.current N peak N allocated N freed N.
inline void write_stats(device_t *d, told_lines_t *to) {
    static const char *const pools[] = {"all", "small_pool", "large_pool"};
    char text[256];
    lock_t hold(&d->lock);
    const stat_t *sets[] = {d->stats.all, d->stats.small, d->stats.large};
    for (int i = 0; i < STAT_COUNT; i++) {
        for (int k = 0; k < 3; k++) {
            const stat_t *s = &sets[k][i];
            snprintf(text, sizeof text, "%s.%s current %lld peak %lld allocated %lld freed %lld",
                     stat_names[i], pools[k], (long long)s->current, (long long)s->peak,
                     (long long)s->allocated, (long long)(s->allocated - s->current));
            to->add(text);
        }
    }

    const struct {
        const char *name;
        int64_t n;
    } counts[] = {{"num_alloc_retries", d->stats.num_alloc_retries},
                  {"num_ooms", d->stats.num_ooms},
                  {"num_sync_all_streams", d->stats.num_sync_all_streams},
                  {"num_device_alloc", d->stats.num_device_alloc},
                  {"num_device_free", d->stats.num_device_free}};
    for (auto &c : counts) {
        snprintf(text, sizeof text, "%s %lld", c.name, (long long)c.n);
        to->add(text);
    }
}

inline void snapshot(allocator_t *A, int device, void (*line)(void *user, const char *text), void *user) {
    device_t *d = device_of(A, device);
    told_lines_t lines;
    if (!d) { return; }
    write_snapshot(A, d, &lines);
    lines.tell(line, user);
}

inline void memory_stats(allocator_t *A, int device, void (*line)(void *user, const char *text), void *user) {
    device_t *d = device_of(A, device);
    told_lines_t lines;
    if (!d) { return; }
    write_stats(d, &lines);
    lines.tell(line, user);
}

inline allocator_t *allocator_new(const driver_t *driver, const options_t *options) {
    allocator_t *A = (allocator_t *)calloc(1, sizeof *A);
    if (!A) { return nullptr; }
    A->driver = *driver;
    A->options = *options;
    if (options->trace > 0 && !(A->ring = (trace_t *)calloc((size_t)options->trace, sizeof(trace_t)))) {
        free(A);
        return nullptr;
    }
    return A;
}

// Waits for all streams; blocks that are still in use are freed as well.
inline void allocator_free(allocator_t *A) {
    for (device_t *d : A->device) {
        if (!d) { continue; }
        poll(A, d, true);
        each_lane(d, [&](lane_t *l) {
            A->driver.stream_sync(A->driver.user, d->index, l->stream);
            for (arena_t &a : l->arena) {
                for (block_t *c = a.chains; c; c = c->chain) {
                    for (block_t *b = c; b; b = b->next) {
                        if (b->state == USED || b->state == PENDING) { b = give_back(d, b); }
                    }
                }
            }
            destroy_lane(A, d, l);
        });
        for (int i = 0; i < d->nevents; i++) { A->driver.event_free(A->driver.user, d->index, d->events[i]); }
        free(d->events);
        for (queue_t *q = d->queues, *next; q; q = next) {
            next = q->next;
            free(q);
        }
        for (slab_t *s = d->slabs, *next; s; s = next) {
            next = s->next;
            free(s);
        }
        free(d);
    }

    free(A->ring);
    free(A);
}

// ------------------------------------------------------------------------------
// >>driver                                         MARK: CUDA as the allocator's driver
//
// Raw calls of the runtime and of the driver library. They may be made while another stream is being
// captured, so the calling thread's capture mode is relaxed around them. Rejected: cudaMallocAsync (no
// trace, no policy per block, and its fragmentation stays).
// ------------------------------------------------------------------------------

static int visible_devices;                     // of the start
static unsigned contexts;                       // bit k: device k is known to have one

// Whether a thread may go back to a device: if it has a context. cudaSetDevice makes one (from CUDA 12 on),
// and so does nearly any call on a device that has none: half a gigabyte of a device that the process may not
// use at all.
inline bool has_context(int device) {
    if (CUDART_VERSION < 12000) { return true; }
    char text[256];
    unsigned flags = 0;
    int active = 0;
    if (device < MAX_DEVICES && __atomic_load_n(&contexts, __ATOMIC_RELAXED) >> device & 1) { return true; }
    if (open_library(LIBRARY_CUDA, text, sizeof text) ||
        lib.cuDevicePrimaryCtxGetState_(device, &flags, &active)) {
        return true;
    }
    if (active && device < MAX_DEVICES) { __atomic_fetch_or(&contexts, 1u << device, __ATOMIC_RELAXED); }
    return active != 0;
}

// Makes a device current, for the length of a call. If the thread's device from before has no context, which
// is so in a thread that never chose one (device 0), the thread stays here, as PyTorch's do.
struct current_t {
    int before = -1, now;
    explicit current_t(int device) : now(device) {
        if (visible_devices < 2) { return; }
        cudaGetDevice(&before);
        if (before != device) { cudaSetDevice(device); }
    }

    ~current_t() {
        if (before >= 0 && before != now && has_context(before)) { cudaSetDevice(before); }
    }
    current_t(const current_t &) = delete;
};

struct on_device_t {                            // likewise, and allows allocation
    int before = 0, now;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    explicit on_device_t(int device) : now(device) {
        cudaGetDevice(&before);
        cudaSetDevice(device);                  // also if it is the same: makes a new thread's context
        cudaThreadExchangeStreamCaptureMode(&mode);
    }

    ~on_device_t() {
        cudaThreadExchangeStreamCaptureMode(&mode);
        if (before != now && has_context(before)) { cudaSetDevice(before); }
    }
};

inline int forget(cudaError_t e) { // a reported error stays with CUDA only if the context is lost
    if (e) { cudaGetLastError(); }
    return (int)e;
}

inline int cuda_segment_alloc(void *, int device, uint64_t bytes, uint64_t *address) {
    on_device_t at(device);
    void *p = nullptr;
    cudaError_t e = cudaMalloc(&p, bytes);
    *address = (uint64_t)(uintptr_t)p;
    return forget(e);
}

inline int cuda_segment_free(void *, int device, uint64_t address, uint64_t) {
    on_device_t at(device);
    return forget(cudaFree((void *)(uintptr_t)address));
}

inline CUmemAllocationProp cuda_property(int device) {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

inline int cuda_reserve(void *, int device, uint64_t bytes, uint64_t *address) {
    char text[256];
    if (open_library(LIBRARY_CUDA, text, sizeof text)) { return 1; }
    on_device_t at(device);
    CUmemAllocationProp p = cuda_property(device);
    size_t unit = 0;
    CUdeviceptr a = 0;
    if (lib.cuMemGetAllocationGranularity_(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) || !unit ||
        (2 << 20) % unit) {
        return 1;
    }
    int e = (int)lib.cuMemAddressReserve_(&a, bytes, 0, 0, 0);
    *address = (uint64_t)a;
    return e;
}

inline int cuda_unreserve(void *, int device, uint64_t address, uint64_t bytes) {
    on_device_t at(device);
    return (int)lib.cuMemAddressFree_((CUdeviceptr)address, bytes);
}

// Which other devices read and write the memory of a device directly: bit p is device p. Under the lock of
// its allocator's device_t.
[[maybe_unused]] static uint32_t peers_of[MAX_DEVICES];

// Mapped memory is the device's own and its peers'. -> 0, or the driver's error
inline int cuda_access(int device, uint64_t address, uint64_t bytes) {
    CUmemAccessDesc access[MAX_DEVICES];
    size_t n = 0;
    memset(access, 0, sizeof access);
    for (int k = 0; k < MAX_DEVICES; k++) {
        if (k != device && !(peers_of[device] >> k & 1)) { continue; }
        access[n].location = cuda_property(k).location;
        access[n++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return (int)lib.cuMemSetAccess_((CUdeviceptr)address, bytes, access, n);
}

inline int cuda_map(void *, int device, uint64_t address, uint64_t bytes, uint64_t *handle) {
    on_device_t at(device);
    CUmemAllocationProp p = cuda_property(device);
    CUmemGenericAllocationHandle h;
    int e = (int)lib.cuMemCreate_(&h, bytes, &p, 0);
    if (e) { return e; }
    *handle = h;
    if ((e = (int)lib.cuMemMap_((CUdeviceptr)address, bytes, 0, h, 0)) != 0) {
        lib.cuMemRelease_(h);
        return e;
    }

    if ((e = cuda_access(device, address, bytes)) != 0) {
        lib.cuMemUnmap_((CUdeviceptr)address, bytes);
        lib.cuMemRelease_(h);
    }

    return e;
}

inline int cuda_unmap(void *, int device, uint64_t address, uint64_t bytes, uint64_t handle) {
    on_device_t at(device);
    int e = (int)lib.cuMemUnmap_((CUdeviceptr)address, bytes);
    return e ? e : (int)lib.cuMemRelease_((CUmemGenericAllocationHandle)handle);
}

inline int cuda_memory(void *, int device, uint64_t *free_bytes, uint64_t *total) {
    on_device_t at(device);
    size_t f = 0, t = 0;
    int e = forget(cudaMemGetInfo(&f, &t));
    *free_bytes = f;
    *total = t;
    return e;
}

inline int cuda_event_new(void *, int device, void **event) {
    on_device_t at(device);
    return forget(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

inline int cuda_event_free(void *, int device, void *event) {
    current_t at(device);
    return forget(cudaEventDestroy((cudaEvent_t)event));
}

inline int cuda_event_record(void *, int device, void *event, void *stream) {
    current_t at(device);
    return forget(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

inline int cuda_event_query(void *, int device, void *event) {
    current_t at(device);
    int e = forget(cudaEventQuery((cudaEvent_t)event));
    if (e == cudaErrorNotReady) { return 1; }
    return e ? -1 : 0;
}

inline int cuda_stream_sync(void *, int device, void *stream) {
    on_device_t at(device);
    return forget(cudaStreamSynchronize((cudaStream_t)stream));
}

inline int cuda_fill(void *, int device, void *stream, uint64_t address, uint64_t bytes) {
    on_device_t at(device);
    return forget(cudaMemsetAsync((void *)(uintptr_t)address, 0xFF, bytes, (cudaStream_t)stream));
}

[[maybe_unused]] static const driver_t cuda_driver = {
    nullptr,           cuda_segment_alloc, cuda_segment_free, cuda_reserve,   cuda_unreserve,
    cuda_map,          cuda_unmap,         cuda_memory,       cuda_event_new, cuda_event_free,
    cuda_event_record, cuda_event_query,   cuda_stream_sync,  cuda_fill};

// Segments come from the caller's functions (tensor_cuda_set_allocator), all else is as above; nothing is
// mapped.
inline int own_segment_alloc(void *user, int device, uint64_t bytes, uint64_t *address) {
    const tensor_cuda_allocator_t *own = (const tensor_cuda_allocator_t *)user;
    on_device_t at(device);
    void *p = own->alloc(own->user, device, bytes);
    *address = (uint64_t)(uintptr_t)p;
    return p && *address % GRANULE == 0 ? 0 : (int)NO_MEMORY;
}

inline int own_segment_free(void *user, int device, uint64_t address, uint64_t bytes) {
    const tensor_cuda_allocator_t *own = (const tensor_cuda_allocator_t *)user;
    on_device_t at(device);
    own->free(own->user, device, (void *)(uintptr_t)address, bytes);
    return 0;
}

[[maybe_unused]] static tensor_cuda_allocator_t own_allocator;       // alloc NULL: the driver's
[[maybe_unused]] inline driver_t device_driver() {
    driver_t d = cuda_driver;
    if (!own_allocator.alloc) { return d; }
    d.user = &own_allocator;
    d.segment_alloc = own_segment_alloc;
    d.segment_free = own_segment_free;
    d.reserve = nullptr;
    return d;
}

// Pinned host memory comes from the same allocator, by the device in whose context it was made. The streams
// of all devices may use it.
inline int host_segment_alloc(void *, int device, uint64_t bytes, uint64_t *address) {
    on_device_t at(device);
    void *p = nullptr;
    cudaError_t e = cudaMallocHost(&p, bytes);
    *address = (uint64_t)(uintptr_t)p;
    return forget(e);
}

inline int host_segment_free(void *, int device, uint64_t address, uint64_t) {
    on_device_t at(device);
    return forget(cudaFreeHost((void *)(uintptr_t)address));
}

inline int host_stream_sync(void *, int device, void *stream) {     // the pool's own stream is none
    return stream ? cuda_stream_sync(nullptr, device, stream) : 0;
}

[[maybe_unused]] static const driver_t pinned_driver = {nullptr,           host_segment_alloc,
                                                        host_segment_free, nullptr,
                                                        nullptr,           nullptr,
                                                        nullptr,           cuda_memory,
                                                        cuda_event_new,    cuda_event_free,
                                                        cuda_event_record, cuda_event_query,
                                                        host_stream_sync,  nullptr};

}  // namespace tcu

#if !defined(TCU_ALLOCATOR_ALONE)                // tests/cuda/alloc.cpp needs no more
namespace tcu {

// ------------------------------------------------------------------------------
// >>libraries                                      MARK: cuBLASLt and cuDNN
//
// Handles, plans and last messages of the libraries that do products and convolutions. If a library is
// missing, has another version, has no algorithm for a shape or fails a call, this is not an error of the
// op: the kernel of this file runs instead, and tensor_cuda_library_error tells what was wrong. A plan
// (algorithm, bytes of workspace) is found once for a key of all that it depends on; in a full bucket of the
// table the least recently used plan is replaced. Workspace comes from the caching allocator, for the length
// of a call; in a capture it belongs to the graph. Rejected: an error (a program would stop at its first
// convolution because a file is missing); a workspace per stream (it would keep the largest one for ever,
// and a graph would need it to live longer than itself).
// ------------------------------------------------------------------------------

enum { PLAN_SETS = 64, PLAN_WAYS = 8 };
template <int N> struct plan_key_t { int64_t v[N]; };

template <class K> uint64_t hash_of(const K &key) {
    uint64_t h = 0;
    for (int64_t v : key.v) { h = (h ^ (uint64_t)v) * 0x9E3779B97F4A7C15u, h ^= h >> 32; }
    return h;
}

template <class T> struct list_t {
    T *at;
    int n, room;
    bool add(const T &v) {
        if (n == room) {
            T *p = (T *)realloc((void *)at, (size_t)(room * 2 + 16) * sizeof(T));
            if (!p) { return false; }
            at = p;
            room = room * 2 + 16;
        }
        at[n++] = v;
        return true;
    }

    void drop() {
        free((void *)at);
        at = nullptr;
        n = room = 0;
    }
};

template <class K, class P> struct plans_t {
    struct slot_t { K key; P plan; uint64_t used; } slot[PLAN_SETS][PLAN_WAYS];  // used: 0 = empty
    uint64_t now;
    // The slot of a key; *found says whether its plan is there already. If not, the slot is cleared and must
    // be filled.
    slot_t *of(const K &key, uint64_t sets, void (*drop)(P &), bool *found) {
        slot_t *set = slot[hash_of(key) % sets], *oldest = set;
        for (int k = 0; k < PLAN_WAYS; k++) {
            *found = set[k].used && !memcmp(&set[k].key, &key, sizeof key);
            if (*found || set[k].used < oldest->used) { oldest = &set[k]; }
            if (*found) { break; }
        }
        if (!*found) {
            if (oldest->used && drop) { drop(oldest->plan); }
            oldest->key = key;
            oldest->plan = P();
        }
        oldest->used = ++now;
        return oldest;
    }

    void clear(void (*drop)(P &)) {
        for (auto &set : slot) {
            for (slot_t &s : set) {
                if (s.used && drop) { drop(s.plan); }
                s.used = 0;
            }
        }
    }
};

#ifdef TCU_HAVE_CUBLASLT
struct product_plan_t {
    cublasLtMatmulAlgo_t algo;
    int64_t workspace;                          // -1 = cuBLASLt has no algorithm
};

typedef plan_key_t<18> product_key_t;
#endif
#ifdef TCU_HAVE_CUDNN
struct dnn_plan_t {
    cudnnBackendDescriptor_t plan, config;
    int64_t workspace;                          // -1 = cuDNN has no plan
    bool tried;                                 // beside other engines, by their times
};

typedef plan_key_t<48> dnn_key_t;

// Plans that differ in sizes alone. first: the hash of the key that came first. kernels: cuDNN's cache of
// what it has compiled for the others; NULL = nothing yet. refused: it has no engine for sizes that vary.
struct dnn_kind_t {
    uint64_t first;
    cudnnBackendDescriptor_t kernels;
    bool refused;
};

typedef plan_key_t<16> kind_key_t;
#endif

// Handles and plans of a device. A library may wait for the device while the lock is held, and the device's
// collectives for what the thread of another device has yet to queue: so each device has its own lock.
struct device_libraries_t {
    std::mutex lock;                            // for all members below; a handle serves one thread at a time
#ifdef TCU_HAVE_CUBLASLT
    cublasLtHandle_t blas;
    plans_t<product_key_t, product_plan_t> products;
#endif
#ifdef TCU_HAVE_CUDNN
    cudnnHandle_t dnn;
    plans_t<dnn_key_t, dnn_plan_t> graphs;
    plans_t<kind_key_t, dnn_kind_t> kinds;
#endif
};

static struct {
    std::mutex lock;                            // for state, error, captured, kept; taken last
    int off, matmul_tf32, no_conv_tf32, benchmark;
    int64_t calls;
    int state[LIBRARY_COUNT];                   // 1 = usable, -1 = not, until the next start
    char error[512];
    device_libraries_t of[MAX_DEVICES];
#ifdef TCU_HAVE_CUDNN
    cudnnBackendDescriptor_t properties; // set by tests: plans are made for this device, without a handle
    int captured;                               // graphs of devices that are alive
    list_t<cudnnBackendDescriptor_t> kept;      // of plans that have gone meanwhile
#endif
} libraries;

#ifdef TCU_HAVE_CUDNN
static thread_local char dnn_message[512];      // cuDNN's, perhaps about one of several engines
#endif

static void library_failed(const char *text) {
    std::lock_guard<std::mutex> hold(libraries.lock);
    snprintf(libraries.error, sizeof libraries.error, "%s", text);
}

// Workspace for the length of a call; queued work may still use it.
struct workspace_t {
    allocator_t *from;
    block_t *block = nullptr;
    workspace_t(allocator_t *a, int device, cudaStream_t stream, int64_t bytes) : from(a) {
        failed = alloc(a, device, stream, (uint64_t)bytes, "workspace of a library", &block) != 0;
        at = block ? (void *)(uintptr_t)block->address : nullptr;
    }
    ~workspace_t() { release(from, block); }
    workspace_t(const workspace_t &) = delete;
    void *at;
    bool failed;
};

// A library may load a kernel at its first call, which a capture would forbid.
struct relaxed_t {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    relaxed_t() { cudaThreadExchangeStreamCaptureMode(&mode); }
    ~relaxed_t() { cudaThreadExchangeStreamCaptureMode(&mode); }
    relaxed_t(const relaxed_t &) = delete;
};

#ifdef TCU_HAVE_CUBLASLT
// -> ok
static bool blas_ok(const char *what, cublasStatus_t status) {
    char text[sizeof libraries.error];
    if (!status) { return true; }
    cudaGetLastError();                         // the next launch must not see it
    snprintf(text, sizeof text, "cuBLASLt: %s: %s", what, lib.cublasLtGetStatusString_(status));
    library_failed(text);
    return false;
}
#endif
#ifdef TCU_HAVE_CUDNN
// -> ok; else a text, which becomes the library's error if `last`
static bool dnn_ok(const char *what, cudnnStatus_t status, bool last = false) {
    char text[300] = "";
    if (!status) { return true; }
    cudaGetLastError();
    lib.cudnnGetLastErrorString_(text, sizeof text);
    snprintf(dnn_message, sizeof dnn_message, "cuDNN: %s: %s: %s", what, lib.cudnnGetErrorString_(status),
             text);
    if (last) { library_failed(dnn_message); }
    return false;
}

// A graph launches the kernels of the plans that its capture ran, so while there are graphs nothing is
// destroyed (what the list has no memory for never is).
static void dnn_destroy(cudnnBackendDescriptor_t d) {
    if (!d) { return; }
    {
        std::lock_guard<std::mutex> hold(libraries.lock);
        if (libraries.captured) {
            libraries.kept.add(d);
            return;
        }
    }
    lib.cudnnBackendDestroyDescriptor_(d);
}

static void dnn_drop(dnn_plan_t &p) {
    dnn_destroy(p.plan);
    dnn_destroy(p.config);
}

// Of a plan that no capture can have run, whatever graphs there are.
static void dnn_discard(const dnn_plan_t &p) {
    lib.cudnnBackendDestroyDescriptor_(p.plan);
    lib.cudnnBackendDestroyDescriptor_(p.config);
}

static void kind_drop(dnn_kind_t &k) { dnn_destroy(k.kernels); }

// Descriptors of a graph while it is being made. The first failure is kept; descriptors not taken out are
// freed with it.
struct dnn_graph_t {
    enum { MOST = 192 };                        // twice what attention takes
    enum { GIVEN, INNER, VALUE };               // a tensor of the caller, one inside the graph, a number
    cudnnBackendDescriptor_t all[MOST];
    int count = 0;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const char *at = "";
    dnn_graph_t() { }
    dnn_graph_t(const dnn_graph_t &) = delete;
    ~dnn_graph_t() {
        while (count) { drop(all[count - 1]); }
    }

    void check(cudnnStatus_t s, const char *what) {
        if (status || !s) { return; }
        status = s;
        at = what;
        dnn_ok(what, s);
    }

    cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
        cudnnBackendDescriptor_t d = nullptr;
        if (status) { return d; }
        check(lib.cudnnBackendCreateDescriptor_(type, &d), "cudnnBackendCreateDescriptor");
        if (d) { all[count++] = d; }
        return d;
    }

    void take(cudnnBackendDescriptor_t d) {     // out of this graph
        int k = 0;
        while (k < count && all[k] != d) { k++; }
        if (k < count) { all[k] = all[--count]; }
    }

    void drop(cudnnBackendDescriptor_t d) {
        take(d);
        lib.cudnnBackendDestroyDescriptor_(d);
    }

    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t n, const void *value) {
        if (!status) {
            check(lib.cudnnBackendSetAttribute_(d, name, type, n, value), "cudnnBackendSetAttribute");
        }
    }

    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
    }

    void finish(cudnnBackendDescriptor_t d, const char *what) {
        if (!status) { check(lib.cudnnBackendFinalize_(d), what); }
    }
    cudnnBackendDescriptor_t tensor(int64_t id, cudnnDataType_t type, int64_t n, const int64_t *dims,
                                    const int64_t *strides, int64_t alignment, int kind = GIVEN) {
        cudnnBackendDescriptor_t d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        bool yes = true;
        set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dims);
        set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, strides);
        set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
        set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        if (kind == INNER) { set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes); }
        if (kind == VALUE) { set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes); }
        finish(d, "tensor");
        return d;
    }
};

static cudnnDataType_t dnn_type(int dtype) {
    switch (dtype) {
    case TENSOR_F64: return CUDNN_DATA_DOUBLE;
    case TENSOR_F16: return CUDNN_DATA_HALF;
    case TENSOR_BF16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
    }
}

// Whether an engine's sums are the same every time and as exact as the dtype promises.
static bool engine_is_acceptable(dnn_graph_t &g, cudnnBackendDescriptor_t config, bool exact) {
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    cudnnBackendDescriptor_t engine = g.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    bool acceptable = !g.status &&
        dnn_ok("an engine", lib.cudnnBackendGetAttribute_(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine)) &&
        dnn_ok("its notes", lib.cudnnBackendGetAttribute_(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                            CUDNN_TYPE_NUMERICAL_NOTE,
                                                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note));
    for (int64_t k = 0; acceptable && k < n; k++) {
        acceptable = note[k] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
                  note[k] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS &&
                  note[k] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
                  !(exact && note[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    }

    if (engine) { g.drop(engine); }
    return acceptable;
}

// Finds the first engine in cuDNN's order that engine_is_acceptable takes, that fits the workspace and can be
// made, or the first `wanted` -> how many there are. kernels: that of a kind, for an engine whose kernels
// take any sizes; NULL = for these sizes alone
static int plan_of(dnn_graph_t &g, cudnnBackendDescriptor_t *ops, int count, int device, bool exact,
                   int64_t most, dnn_plan_t *out, cudnnBackendDescriptor_t *kernels = nullptr,
                   int wanted = 1) {
    int made = 0;
    enum { CHOICES = 16 };
    static const cudnnBackendHeurMode_t modes[2] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t whole = g.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    g.set(whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops);
    if (!libraries.properties) {
        g.set(whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &libraries.of[device].dnn);
    }

    const bool varies = kernels != nullptr;
#if CUDNN_VERSION >= 90500
    if (varies) {
        g.set(whole, CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, CUDNN_TYPE_BOOLEAN, 1, &varies);
    }
#endif
    g.finish(whole, "operation graph");
#if CUDNN_VERSION >= 90500
    if (varies && !*kernels) {
        cudnnBackendDescriptor_t cache = g.make(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR);
        g.set(cache, CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH, whole);
        g.finish(cache, "kernel cache");
        if (g.status) { return 0; }
        g.take(cache);
        *kernels = cache;
    }
#endif
    snprintf(dnn_message, sizeof dnn_message,
             "cuDNN: no engine is deterministic and as exact as asked");
    for (cudnnBackendHeurMode_t mode : modes) {
        cudnnBackendDescriptor_t choice = g.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), config[CHOICES];
        int64_t n = 0;
        g.set(choice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
        g.set(choice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
        if (libraries.properties) { g.set(choice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, libraries.properties); }
        for (auto &c : config) { c = g.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR); }
        if (g.status) { return made; }
        if (!dnn_ok("no engine", lib.cudnnBackendFinalize_(choice)) ||
            !dnn_ok("no engine", lib.cudnnBackendGetAttribute_(choice, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, CHOICES, &n,
                                                                 config))) {
            n = 0;
        }

        for (int64_t k = 0; k < n && k < CHOICES && !g.status; k++) {
            int64_t bytes = 0, one = 0;
            if (!engine_is_acceptable(g, config[k], exact)) { continue; }
            cudnnBackendDescriptor_t plan = g.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
            g.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[k]);
#if CUDNN_VERSION >= 90500
            if (varies) { g.set(plan, CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, *kernels); }
#endif
            if (libraries.properties) {
                g.set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, libraries.properties);
            } else {
                g.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &libraries.of[device].dnn);
            }
            if (g.status) { break; }
            if (dnn_ok("no plan", lib.cudnnBackendFinalize_(plan)) &&
                dnn_ok("no plan", lib.cudnnBackendGetAttribute_(plan,
                                                                  CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                                  CUDNN_TYPE_INT64, 1, &one, &bytes)) &&
                bytes <= most) {
                g.take(plan);
                g.take(config[k]);
                out[made++] = {plan, config[k], bytes, false};
                config[k] = nullptr;
                if (made == wanted) { return made; }
                continue;
            }
            g.drop(plan);
        }
        for (auto &c : config) {
            if (c) { g.drop(c); }
        }
        g.drop(choice);
    }

    return made;
}
#endif

// A graph begins (1), or has gone (-1).
static void plans_of_graphs(int more) {
#ifdef TCU_HAVE_CUDNN
    list_t<cudnnBackendDescriptor_t> gone = {};
    {
        std::lock_guard<std::mutex> hold(libraries.lock);
        libraries.captured += more;
        if (libraries.captured) { return; }
        gone = libraries.kept;
        libraries.kept = {};
    }
    for (int k = 0; k < gone.n; k++) { lib.cudnnBackendDestroyDescriptor_(gone.at[k]); }
    gone.drop();
#else
    (void)more;
#endif
}

// If a library's own allocation failed, its call is made once more after the cache has given back its free
// memory. (In a capture the cache gives back nothing.)
#ifdef TCU_HAVE_CUBLASLT
inline bool lacks_memory(cublasStatus_t e) { return e == CUBLAS_STATUS_ALLOC_FAILED; }
#endif
#ifdef TCU_HAVE_CUDNN
inline bool lacks_memory(cudnnStatus_t e) {
    return e == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           e == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}
#endif

template <class F> inline auto with_room(allocator_t *cache, int device, F call) {
    auto status = call();
    if (!cache || !lacks_memory(status)) { return status; }
    cudaGetLastError();
    empty_cache(cache, device);
    return call();
}

// Opens a library -> whether it is usable
static bool library_opened(library_t which) {
    long version = -1, major = -1;
    std::lock_guard<std::mutex> hold(libraries.lock);
    if (!libraries.state[which]) {
        libraries.state[which] = -1;
        if (open_library(which, libraries.error, sizeof libraries.error)) { return false; }
#ifdef TCU_HAVE_CUBLASLT
        if (which == LIBRARY_CUBLASLT) {
            version = (long)lib.cublasLtGetVersion_();
            major = CUBLAS_VER_MAJOR;
        }
#endif
#ifdef TCU_HAVE_CUDNN
        if (which == LIBRARY_CUDNN) {
            version = (long)lib.cudnnGetVersion_();
            major = CUDNN_MAJOR;
        }
#endif
        if (version / 10000 != major) {
            snprintf(libraries.error, sizeof libraries.error,
                     "%s %ld is needed, but the library says it is %ld.%ld.%ld",
                     which == LIBRARY_CUDNN ? "cuDNN" : "cuBLASLt", major, version / 10000,
                     version / 100 % 100, version % 100);
            return false;
        }
        libraries.state[which] = 1;
    }
    return libraries.state[which] > 0;
}

// Call with the device's lock held: opens a library and makes its handle -> whether it is usable
static bool library_ready(library_t which, int device, allocator_t *cache) {
    (void)device, (void)cache;
    if (!library_opened(which)) { return false; }
#ifdef TCU_HAVE_CUBLASLT
    if (which == LIBRARY_CUBLASLT && !libraries.of[device].blas) {
        on_device_t leave(device);
        auto make = [&] { return lib.cublasLtCreate_(&libraries.of[device].blas); };
        return blas_ok("cublasLtCreate", with_room(cache, device, make));
    }
#endif
#ifdef TCU_HAVE_CUDNN
    if (which == LIBRARY_CUDNN && !libraries.of[device].dnn && !libraries.properties) {
        on_device_t leave(device);
        auto make = [&] { return lib.cudnnCreate_(&libraries.of[device].dnn); };
        return dnn_ok("cudnnCreate", with_room(cache, device, make), true);
    }
#endif
    return true;
}

static void libraries_close() {
    for (int k = 0; k < MAX_DEVICES; k++) {
        device_libraries_t &d = libraries.of[k];
        std::lock_guard<std::mutex> hold(d.lock);
#ifdef TCU_HAVE_CUDNN
        d.graphs.clear(dnn_drop);
        d.kinds.clear(kind_drop);
        if (d.dnn) {
            on_device_t at(k);
            lib.cudnnDestroy_(d.dnn);
            d.dnn = nullptr;
        }
#endif
#ifdef TCU_HAVE_CUBLASLT
        d.products.clear(nullptr);
        if (d.blas) {
            on_device_t at(k);
            lib.cublasLtDestroy_(d.blas);
            d.blas = nullptr;
        }
#endif
    }

    std::lock_guard<std::mutex> hold(libraries.lock);
    memset(libraries.state, 0, sizeof libraries.state);
    libraries.error[0] = 0;
}

// ------------------------------------------------------------------------------
// >>operands                                       MARK: operands, dtypes, launches
//
// What every kernel below takes: the arguments of a call (tensor_arg_t), a stream, and limits that depend on
// the device or are lowered by tests. Kernels compute in one of three classes (f32 for f32 f16 bf16; f64;
// i64 for integers and bool) and convert as tensor.h does: float to integer truncates and saturates, NaN
// gives 0, integers wrap. Rejected: a kernel per pair of dtypes (a hundred of each).
// ------------------------------------------------------------------------------

enum { MORE_ARGUMENTS = 32764 };                // bytes of a launch's arguments, where they may be many

struct limits_t {
    int sms = 132, blocks_per_sm = 8;           // grids are not larger than what runs at the same time
    // The fewest elements that one block sums, and the number of blocks that a reduction is divided for.
    // Both are part of the result's definition and do not depend on the device.
    int64_t reduce_chunk = 4096, reduce_blocks = 512;
    int64_t norm_chunk = 64;                    // the most rows, likewise, for gradients of norms' weights
    // Elements of a batch or group norm's statistic that one block goes through; statistics with more are
    // divided into pieces of norm_piece at most.
    int64_t norm_block = 4096, norm_piece = 16384;
    bool libraries = true;                      // libraries do products and convolutions, if they can
    bool gelu_epilogue = true;                  // before Hopper, gelu in a product takes longer than after it
    // Layer norms of f32 and halves with at least so many elements use cuDNN: for smaller ones its call, and
    // a plan for each shape, costs the host more than it saves.
    int64_t norm_library = 1 << 18;
    int64_t product_workspace = 32 << 20, conv_workspace = 256 << 20; // the most bytes an algorithm may want
    int64_t one_query_keys = 1 << 14;           // more keys need more than one block per head
    int64_t attention_workspace = 256 << 20;    // above this, the gradient takes part of the batch at a time
    int64_t attention_scores = 32 << 20;        // bytes of scores at a time, if ATTENTION_ROWS queries allow
    uint64_t plan_sets = PLAN_SETS;
    int64_t held_rows = 1024;                   // fewer rows in registers have more threads each
    int64_t value_part = 4096;                  // of one that a block reads for a norm, variance, logsumexp
    int64_t scan_part = 16384;                  // elements of a long row that a block scans; as reduce_chunk
    int64_t sort_row = 2048;                    // longest row that a block sorts alone, at most ROW_SORT
    // The most elements of a long row that are selected, not sorted for, at most ROW_SORT; elements of a row
    // that a block goes through.
    int64_t select_most = 2048, select_part = 4096;
    int arguments = 4096;                       // bytes that a launch may have: see >>optimizer
    int64_t matrix_shared = 40 << 10, matrix_workspace = 256 << 20;    // bytes of a matrix, of all at a time
};

struct place_t {
    cudaStream_t stream;
    limits_t limits;
    unsigned long long *error; // on the device: see fault()
    allocator_t *allocator = nullptr;           // for workspace; NULL = no libraries
    int device = 0;
};

enum { THREADS = 256, WARP = 32 };
typedef __nv_bfloat16 bf16;
typedef __half f16;
struct bool8 { uint8_t v; };                    // any byte but 0 is true

// clang-format off
#define TCU_DTYPES(X) X(TENSOR_F32, float) X(TENSOR_F64, double) X(TENSOR_I32, int32_t) X(TENSOR_I64, int64_t)     \
    X(TENSOR_U8, uint8_t) X(TENSOR_BOOL, bool8) X(TENSOR_F16, f16) X(TENSOR_BF16, bf16) X(TENSOR_I8, int8_t)       \
    X(TENSOR_I16, int16_t)
// clang-format on

template <bool B, class X, class Y> struct pick_t { typedef X type; };
template <class X, class Y> struct pick_t<false, X, Y> { typedef Y type; };
template <class P> struct pointee_t;
template <class T> struct pointee_t<T *> { typedef T type; };
template <class A, class B> struct same_type { static constexpr bool value = false; };
template <class A> struct same_type<A, A> { static constexpr bool value = true; };
template <class T> constexpr bool is_half = same_type<T, f16>::value || same_type<T, bf16>::value;
template <class T>
constexpr bool is_float = is_half<T> || same_type<T, float>::value || same_type<T, double>::value;

__host__ __device__ inline int64_t integer_of(double v) {
    if (v != v) { return 0; }
    if (v >= 9223372036854775808.0) { return INT64_MAX; }
    return v < -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

template <class T> struct range_of { };
template <> struct range_of<int32_t> { static constexpr double lo = -2147483648.0, hi = 2147483647.0; };
template <> struct range_of<uint8_t> { static constexpr double lo = 0, hi = 255; };
template <> struct range_of<int8_t> { static constexpr double lo = -128, hi = 127; };
template <> struct range_of<int16_t> { static constexpr double lo = -32768, hi = 32767; };

// Converts a stored value to the class C, and back.
template <class C, class T> __host__ __device__ inline C to_class(T v) {
    if constexpr (same_type<T, f16>::value) {
        return to_class<C>(__half2float(v));
    } else if constexpr (same_type<T, bf16>::value) {
        return to_class<C>(__bfloat162float(v));
    } else if constexpr (same_type<T, bool8>::value) {
        return (C)(v.v != 0);
    } else if constexpr (same_type<C, int64_t>::value && is_float<T>) {
        return integer_of((double)v);
    } else {
        return (C)v;
    }
}

template <class T, class C> __host__ __device__ inline T from_class(C v) {
    if constexpr (same_type<T, f16>::value) {
        return __float2half_rn((float)v);
    } else if constexpr (same_type<T, bf16>::value) {
        return __float2bfloat16_rn((float)v);
    } else if constexpr (same_type<T, bool8>::value) {
        return bool8{(uint8_t)(v != 0)};
    } else if constexpr (is_float<T> || same_type<C, int64_t>::value) {
        return (T)v;
    } else if constexpr (same_type<T, int64_t>::value) {
        return integer_of((double)v);
    } else {
        double d = (double)v;
        if (d != d) { return T(0); }
        if (d < range_of<T>::lo) { return (T)range_of<T>::lo; }
        return (T)(d > range_of<T>::hi ? range_of<T>::hi : d);
    }
}

template <class C> __host__ __device__ inline C load_as(const void *p, int dtype, int64_t i) {
    switch (dtype) {
#define TCU_X(id, T) case id: return to_class<C>(((const T *)p)[i]);
    TCU_DTYPES(TCU_X)
#undef TCU_X
    }
    return C(0);
}

template <class C> __host__ __device__ inline void store_as(void *p, int dtype, int64_t i, C v) {
    switch (dtype) {
#define TCU_X(id, T) case id: ((T *)p)[i] = from_class<T>(v); break;
    TCU_DTYPES(TCU_X)
#undef TCU_X
    }
}

// A fixed dtype, or (void) one that is known at run time.
template <class T, class C> __device__ inline C load_typed(const void *p, int dtype, int64_t i) {
    if constexpr (same_type<T, void>::value) {
        return load_as<C>(p, dtype, i);
    } else {
        return to_class<C>(((const T *)p)[i]);
    }
}

// The index of a thread among the threads of all blocks along x, and the number of these threads: elements
// are visited from the first on in steps of the second.
__device__ inline int64_t thread_index() { return blockIdx.x * (int64_t)blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

// What values of a real dtype are computed in.
template <class T> using class_t = typename pick_t<same_type<T, double>::value, double, float>::type;

// N values that are moved by one or more 16-byte accesses.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack_t { T v[N]; };
template <class T> constexpr int lanes_of = 16 / (int)sizeof(T);

// The word keeps the first of the elements that an op refuses, as ~place; 0 = none. Behind it is the address
// of the host's flag that some word is written, which the host reads without a copy.
__device__ inline void fault(unsigned long long *word, int64_t place) {
    atomicMax(word, ~(unsigned long long)place);
    __threadfence_system();
    atomicOr((unsigned *)(uintptr_t)word[1], 1u);
}

template <class T> __host__ __device__ inline bool aligned16(const T *p) { return ((uintptr_t)p & 15) == 0; }

// Whether an operand is a number on the host instead of a tensor.
inline bool is_immediate(const tensor_arg_t &o) {
    return !o.storage && o.data && o.role == TENSOR_READ && !o.ndim;
}

// The smaller and the larger of two numbers.
template <class N> __host__ __device__ constexpr N least(N a, N b) { return a < b ? a : b; }
template <class N> __host__ __device__ constexpr N most(N a, N b) { return a > b ? a : b; }

// The class that values of a dtype are computed in: 0 = f32, 1 = f64, 2 = i64.
inline int class_of(int dtype) {
    if (dtype == TENSOR_F64) { return 1; }
    return dtype == TENSOR_F32 || dtype == TENSOR_F16 || dtype == TENSOR_BF16 ? 0 : 2;
}

inline int size_of(int dtype) {
    switch (dtype) {
#define TCU_X(id, T) case id: return (int)sizeof(T);
    TCU_DTYPES(TCU_X)
#undef TCU_X
    }
    return 0;
}

// f(type_t<T>()) with the T of a dtype, of a class, or of an element's size; UNSUPPORTED if there is none.
// by_real: only f32 and f64.
template <class T> struct type_t { typedef T type; };
#define TCU_TYPE(of) typename decltype(of)::type

template <class F> inline int by_real(int dtype, F f) {
    switch (dtype) {
    case TENSOR_F32: return f(type_t<float>());
    case TENSOR_F64: return f(type_t<double>());
    default: return TENSOR_ERR_UNSUPPORTED;
    }
}

template <class F> inline int by_float(int dtype, F f) {
    switch (dtype) {
    case TENSOR_F16: return f(type_t<f16>());
    case TENSOR_BF16: return f(type_t<bf16>());
    default: return by_real(dtype, f);
    }
}

template <class F> inline int by_half(int dtype, F f) {
    switch (dtype) {
    case TENSOR_F16: return f(type_t<f16>());
    case TENSOR_BF16: return f(type_t<bf16>());
    default: return TENSOR_ERR_UNSUPPORTED;
    }
}

template <class F> inline int by_class(int dtype, F f) {
    switch (class_of(dtype)) {
    case 0: return f(type_t<float>());
    case 1: return f(type_t<double>());
    default: return f(type_t<int64_t>());
    }
}

template <class F> inline int by_size(int size, F f) {
    switch (size) {
    case 1: return f(type_t<uint8_t>());
    case 2: return f(type_t<uint16_t>());
    case 4: return f(type_t<uint32_t>());
    case 8: return f(type_t<uint64_t>());
    default: return f(type_t<uint4>());
    }
}

// An argument with a copy of its dims, which can be changed.
struct shaped_t {
    tensor_arg_t arg;
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    explicit shaped_t(const tensor_arg_t &from) : arg(from) {
        for (int d = 0; d < from.ndim; d++) {
            dims[d] = from.dims[d];
            strides[d] = from.strides[d];
        }
        arg.dims = dims;
        arg.strides = strides;
    }
    shaped_t(const shaped_t &) = delete;
};

inline int64_t count_of(const tensor_arg_t &o) {
    int64_t n = 1;
    for (int d = 0; d < o.ndim; d++) { n *= o.dims[d]; }
    return n;
}

inline unsigned grid_for(const place_t &at, int64_t work, int64_t per_block) {
    int64_t need = (work + per_block - 1) / per_block;
    int64_t at_once = (int64_t)at.limits.sms * at.limits.blocks_per_sm;
    return (unsigned)most<int64_t>(1, least(need, at_once));
}

static thread_local cudaError_t last_error;     // of this thread, for the text

inline int code_of(cudaError_t e) {             // reported here once: the next launch must not see it
    if (e) { last_error = (cudaError_t)forget(e); }
    return e ? TENSOR_ERR_CUDA : 0;
}

// Blocks and threads of a launch.
struct grid_t {
    dim3 grid, block;
    size_t shared = 0;                          // bytes of dynamic shared memory
};

// One thread per element, or one block per item, as far as the device runs them at the same time.
inline grid_t threads_for(const place_t &at, int64_t n) { return {grid_for(at, n, THREADS), THREADS}; }
inline grid_t blocks_for(const place_t &at, int64_t n) { return {grid_for(at, n, 1), THREADS}; }

// Every kernel is launched here, except those that belong to no call of an op. -> 0 or TENSOR_ERR_CUDA
template <class... P, class... A>
inline int launch(const place_t &at, const grid_t &g, void (*kernel)(P...), const A &...a) {
    return code_of(tcu_launch(kernel, g.grid, g.block, g.shared, at.stream, a...));
}

// n operands over the dims of the first, with dims of size 1 repeated; neighbouring dims are joined if all
// operands allow it.
enum { MAX_OPERANDS = 6 };

struct walk_t {
    int ndim;
    int64_t n, dims[TENSOR_MAX_DIMS], strides[MAX_OPERANDS][TENSOR_MAX_DIMS];
    uint32_t inverse[TENSOR_MAX_DIMS];          // of a dim, and its shift: see over_dim; 0 = there is none
    uint8_t shift[TENSOR_MAX_DIMS];
};

// For a dim whose size was set: a product instead of a division, exact for numbers below 2^31 (Granlund and
// Montgomery, Division by invariant integers using multiplication, figure 4.1).
inline void invert_dim(walk_t *w, int d) {
    const uint64_t size = (uint64_t)w->dims[d];
    int bits = 0;
    w->inverse[d] = 0;
    if (w->n > INT32_MAX || !size) { return; }
    while ((uint64_t)1 << bits < size) { bits++; }
    w->inverse[d] = (uint32_t)(((((uint64_t)1 << bits) - size) << 32) / size + 1);
    w->shift[d] = (uint8_t)bits;
}

// i / dims[d], i < n
__device__ inline int64_t over_dim(const walk_t &w, int d, int64_t i) {
    const uint32_t low = (uint32_t)i;
    if (w.inverse[d]) { return ((uint32_t)((uint64_t)low * w.inverse[d] >> 32) + low) >> w.shift[d]; }
    if ((uint64_t)(i | w.dims[d]) >> 32) { return i / w.dims[d]; }
    return low / (uint32_t)w.dims[d];
}

// The dims of o[0] in `order`, outermost first.
inline walk_t walk_in(const int *order, const tensor_arg_t *o, int count) {
    walk_t w;
    memset(&w, 0, sizeof w);
    w.n = count_of(o[0]);
    for (int i = 0; i < o[0].ndim; i++) {
        int d = order[i];
        int64_t size = o[0].dims[d], stride[MAX_OPERANDS] = {};
        if (size == 1) { continue; }
        for (int k = 0; k < count; k++) {
            int e = d - (o[0].ndim - o[k].ndim);
            stride[k] = e < 0 || o[k].dims[e] == 1 ? 0 : o[k].strides[e];
        }
        bool join = w.ndim > 0;
        for (int k = 0; k < count && join; k++) { join = w.strides[k][w.ndim - 1] == stride[k] * size; }
        int at = join ? w.ndim - 1 : w.ndim++;
        w.dims[at] = join ? w.dims[at] * size : size;
        for (int k = 0; k < count; k++) { w.strides[k][at] = stride[k]; }
    }

    for (int d = 0; d < w.ndim; d++) { invert_dim(&w, d); }
    return w;
}

// In the order of o[0]'s elements: for kernels that need the number of element i.
inline walk_t walk_of(const tensor_arg_t *o, int count) {
    static const int as_they_are[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static_assert(sizeof as_they_are / sizeof(int) == TENSOR_MAX_DIMS, "an order for all dims");
    return walk_in(as_they_are, o, count);
}

// In the order of o[0]'s memory, so that innermost channels, a transposed matrix, and slices of either are
// visited in the order of their addresses, and their dims can be joined.
inline walk_t walk_by_memory(const tensor_arg_t *o, int count) {
    int order[TENSOR_MAX_DIMS];
    for (int d = 0; d < o[0].ndim; d++) {
        int i = d;
        for (; i > 0 && o[0].strides[order[i - 1]] < o[0].strides[d]; i--) { order[i] = order[i - 1]; }
        order[i] = d;
    }
    return walk_in(order, o, count);
}

// The offset of element i of a walk in each operand.
template <int N> __device__ inline void places_of(const walk_t &w, int64_t i, int64_t *at) {
    for (int k = 0; k < N; k++) { at[k] = 0; }
    for (int d = w.ndim - 1; d > 0; d--) {
        const int64_t q = over_dim(w, d, i), r = i - q * w.dims[d];
        for (int k = 0; k < N; k++) { at[k] += r * w.strides[k][d]; }
        i = q;
    }

    for (int k = 0; k < N && w.ndim; k++) { at[k] += i * w.strides[k][0]; }
}

// The same for operand k alone.
__device__ inline int64_t place_of(const walk_t &w, int k, int64_t i) {
    int64_t at = 0;
    for (int d = w.ndim - 1; d > 0; d--) {
        const int64_t q = over_dim(w, d, i);
        at += (i - q * w.dims[d]) * w.strides[k][d];
        i = q;
    }
    return w.ndim ? at + i * w.strides[k][0] : 0;
}

// A walk as rows: the last dim is a row, the others count rows.
struct rows_t {
    walk_t outer;
    int64_t columns;
    explicit rows_t(const walk_t &w) : outer(w), columns(w.ndim ? w.dims[w.ndim - 1] : 1) {
        outer.ndim = w.ndim ? w.ndim - 1 : 0;
        outer.n = 1;
        for (int d = 0; d < outer.ndim; d++) { outer.n *= w.dims[d]; }
    }
};

// Whether all vectors of V elements of operand k begin at 16-byte addresses, with contiguous rows.
inline bool rows_aligned(const walk_t &w, int k, const void *data, int V) {
    bool good = aligned16(data);
    for (int d = 0; d + 1 < w.ndim; d++) { good = good && w.strides[k][d] % V == 0; }
    return good;
}

// The arguments of a call by name, for families whose gradient numbers them differently from the op. An
// argument that the call lacks has no data and no elements.
static const tensor_arg_t no_arg = {};

inline void name_args(const tensor_call_t *c, std::initializer_list<const tensor_arg_t **> names) {
    int k = 0;
    for (const tensor_arg_t **name : names) {
        *name = k < c->nin + c->nout ? &c->arg[k] : &no_arg;
        k++;
    }
}

struct norm_args_t {
    const tensor_arg_t *x, *weight, *bias = &no_arg, *y = &no_arg, *mean, *rstd, *variance = &no_arg;
    const tensor_arg_t *dy = &no_arg, *dx = &no_arg, *dweight = &no_arg, *dbias = &no_arg;
    norm_args_t(const tensor_call_t *c, bool back) {
        if (back) {
            name_args(c, {&dy, &x, &mean, &rstd, &weight, &dx, &dweight, &dbias});
        } else {
            name_args(c, {&x, &weight, &bias, &y, &mean, &rstd, &variance});
        }
    }
};

struct attention_args_t {
    const tensor_arg_t *q, *k, *v, *mask = &no_arg, *y, *lse;
    const tensor_arg_t *dy = &no_arg, *dq = &no_arg, *dk = &no_arg, *dv = &no_arg;
    attention_args_t(const tensor_call_t *c, bool masked, bool back) {
        if (back && masked) {
            name_args(c, {&dy, &q, &k, &v, &y, &lse, &mask, &dq, &dk, &dv});
        } else if (back) {
            name_args(c, {&dy, &q, &k, &v, &y, &lse, &dq, &dk, &dv});
        } else if (masked) {
            name_args(c, {&q, &k, &v, &mask, &y, &lse});
        } else {
            name_args(c, {&q, &k, &v, &y, &lse});
        }
    }
};

struct loss_args_t {
    const tensor_arg_t *x, *target, *weight, *pos_weight, *y = &no_arg;
    const tensor_arg_t *dy = &no_arg, *dx = &no_arg, *dtarget = &no_arg;
    loss_args_t(const tensor_call_t *c, bool back) {
        if (back) {
            name_args(c, {&dy, &x, &target, &weight, &pos_weight, &dx, &dtarget});
        } else {
            name_args(c, {&x, &target, &weight, &pos_weight, &y});
        }
    }
};

struct entropy_args_t {
    const tensor_arg_t *x, *target, *weight, *y = &no_arg, *lse, *divisor, *dy = &no_arg, *dx = &no_arg;
    entropy_args_t(const tensor_call_t *c, bool back) {
        if (back) {
            name_args(c, {&dy, &x, &target, &lse, &divisor, &weight, &dx});
        } else {
            name_args(c, {&x, &target, &weight, &y, &lse, &divisor});
        }
    }
};

// A layer of a recurrent net, step by step: what x adds to the gates is given, and the gates are kept.
struct recurrent_args_t {
    const tensor_arg_t *gi = &no_arg, *weight, *h0, *bias = &no_arg, *c0, *y, *cells, *kept;
    const tensor_arg_t *dy = &no_arg, *dcy = &no_arg, *dgi = &no_arg, *dhg = &no_arg, *dh = &no_arg,
                       *dc = &no_arg;
    recurrent_args_t(const tensor_call_t *c, bool back) {
        if (back) {
            name_args(c, {&dy, &y, &cells, &kept, &weight, &h0, &dcy, &c0, &dgi, &dhg, &dh, &dc});
        } else {
            name_args(c, {&gi, &weight, &h0, &bias, &c0, &y, &cells, &kept});
        }
    }
};

// A whole recurrent net. states: the last states; in backward: their gradients.
struct net_args_t {
    const tensor_arg_t *x, *weights, *h0, *c0, *y, *states, *kept;
    const tensor_arg_t *dy = &no_arg, *dx = &no_arg, *dweights = &no_arg, *dh0 = &no_arg, *dc0 = &no_arg;
    net_args_t(const tensor_call_t *c, bool back) {
        if (back) {
            name_args(c, {&dy, &x, &weights, &y, &kept, &h0, &c0, &states, &dx, &dweights, &dh0, &dc0});
        } else {
            name_args(c, {&x, &weights, &h0, &c0, &y, &states, &kept});
        }
    }
};

// ------------------------------------------------------------------------------
// >>pointwise                                      MARK: pointwise ops
//
// The rows of tensor.h's tables, with their words defined for the device: one functor per row. There are two
// kernels. The first is for rows of one dtype (f32, f16, bf16) with 16-byte accesses: each operand either
// advances along the row or is one value for it, there are any number of outer dims, in the order of the
// result's memory (with three operands, one may be a mask of bool). The second, for every other dtype, mix
// and stride, switches on the op, once for the 4 neighbours of a thread where they lie side by side. Sums and
// products are rounded one by one, so a formula has the bits of the CPU's. Rejected: templates for all dtypes
// (a thousand kernels, a minute of nvcc, for work that is limited by bandwidth anyway).
// On the CPU: >>impl-cpu, >>kernel-pointwise.
// ------------------------------------------------------------------------------

#define TCU_WORD1(name, f32, f64)                                                                            \
    __device__ inline float name(float a) { return f32; }                                                    \
    __device__ inline double name(double a) { return f64; }
#define TCU_WORD2(name, f32, f64, i64)                                                                       \
    __device__ inline float name(float a, float b) { return f32; }                                           \
    __device__ inline double name(double a, double b) { return f64; }                                        \
    __device__ inline int64_t name(int64_t a, int64_t b) { return i64; }
// NaN if one of the two is.
template <class C> __device__ inline C smaller_of(C a, C b) {
    if (a != a || b != b) { return a + b; }
    return a < b ? a : b;
}

template <class C> __device__ inline C larger_of(C a, C b) {
    if (a != a || b != b) { return a + b; }
    return a > b ? a : b;
}

__device__ inline int64_t integer_div(int64_t a, int64_t b) {
    if (b == 0) { return 0; }
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

TCU_WORD2(w_add, __fadd_rn(a, b), __dadd_rn(a, b), (int64_t)((uint64_t)a + (uint64_t)b))
TCU_WORD2(w_sub, __fadd_rn(a, -b), __dadd_rn(a, -b), (int64_t)((uint64_t)a - (uint64_t)b))
TCU_WORD2(w_mul, __fmul_rn(a, b), __dmul_rn(a, b), (int64_t)((uint64_t)a * (uint64_t)b))
TCU_WORD2(w_div, a / b, a / b, integer_div(a, b))
TCU_WORD2(w_min, smaller_of(a, b), smaller_of(a, b), a < b ? a : b)
TCU_WORD2(w_max, larger_of(a, b), larger_of(a, b), a > b ? a : b)
TCU_WORD2(w_fmod, fmodf(a, b), fmod(a, b), b == -1 || b == 0 ? 0 : a % b)

template <class C> __device__ inline C remainder_of(C a, C b) {
    C r = w_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <class C> __device__ inline C floordiv_of(C a, C b) {
    if constexpr (same_type<C, int64_t>::value) {
        if (b == -1) { return (int64_t)(0 - (uint64_t)a); }
        if (b == 0) { return 0; }
        return a / b - (a % b != 0 && (a < 0) != (b < 0));
    } else {
        if (b == 0) { return a / b; }
        C m = w_fmod(a, b), d = (a - m) / b;
        if (m != 0 && (b < 0) != (m < 0)) { d -= 1; }
        if (d == 0) { return copysign(C(0), a / b); }
        C f = floor(d);
        return d - f > C(0.5) ? f + 1 : f;
    }
}

__device__ inline int64_t integer_pow(int64_t a, int64_t b) {
    if (b < 0) {
        if (a == -1) { return b & 1 ? -1 : 1; }
        return a == 1;
    }
    uint64_t r = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x) {
        if (b & 1) { r *= x; }
    }
    return (int64_t)r;
}

TCU_WORD2(w_floordiv, floordiv_of(a, b), floordiv_of(a, b), floordiv_of(a, b))
TCU_WORD2(w_remainder, remainder_of(a, b), remainder_of(a, b), remainder_of(a, b))
TCU_WORD2(w_pow, powf(a, b), pow(a, b), integer_pow(a, b))
__device__ inline float w_atan2(float a, float b) { return atan2f(a, b); }
__device__ inline double w_atan2(double a, double b) { return atan2(a, b); }
TCU_WORD1(w_sqrt, sqrtf(a), sqrt(a))
TCU_WORD1(w_rsqrt, 1 / sqrtf(a), 1 / sqrt(a))
TCU_WORD1(w_floor, floorf(a), floor(a))
TCU_WORD1(w_ceil, ceilf(a), ceil(a))
TCU_WORD1(w_trunc, truncf(a), trunc(a))
TCU_WORD1(w_round, rintf(a), rint(a))
TCU_WORD1(w_exp, expf(a), exp(a))
TCU_WORD1(w_exp2, exp2f(a), exp2(a))
TCU_WORD1(w_expm1, expm1f(a), expm1(a))
TCU_WORD1(w_log, logf(a), log(a))
TCU_WORD1(w_log2, log2f(a), log2(a))
TCU_WORD1(w_log10, log10f(a), log10(a))
TCU_WORD1(w_log1p, log1pf(a), log1p(a))
TCU_WORD1(w_sin, sinf(a), sin(a))
TCU_WORD1(w_cos, cosf(a), cos(a))
TCU_WORD1(w_tan, tanf(a), tan(a))
TCU_WORD1(w_asin, asinf(a), asin(a))
TCU_WORD1(w_acos, acosf(a), acos(a))
TCU_WORD1(w_atan, atanf(a), atan(a))
TCU_WORD1(w_sinh, sinhf(a), sinh(a))
TCU_WORD1(w_cosh, coshf(a), cosh(a))
TCU_WORD1(w_tanh, tanhf(a), tanh(a))
TCU_WORD1(w_sigmoid, 1 / (1 + expf(-a)), 1 / (1 + exp(-a)))
TCU_WORD1(w_erf, erff(a), erf(a))
TCU_WORD1(w_erfc, erfcf(a), erfc(a))

// Of f32, what gelu and its slope are made of: two thirds of the instructions that erfcf takes, and where
// erfc is small its argument's rounding is not the result's. Below 6 ulp, and what the two approximations
// add.
#ifdef __CUDA_ARCH__
__device__ inline float quick_inverse(float a) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
__device__ inline float quick_exp2(float a) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
#else
__device__ inline float quick_inverse(float a) { return 1 / a; }
__device__ inline float quick_exp2(float a) { return exp2f(a); }
#endif

// scale erfc(z), 0 <= z <= 10.3, for square + rest = z^2: e^-(z^2) d P(q), d = 1 / (z + 3), q = (z - 3) d,
// with the polynomial of >>simd-math. What rounding took from the exponent comes last.
__device__ inline float tail_of(float z, float square, float rest, float scale) {
    const float LOG2E = 1.44269502f, LOG2E_LN2_REST = 1.33498136e-8f, LN2 = 0.693147182f;
    const float w = z + 3.0f, d = quick_inverse(w), q = (w - 6.0f) * d, t = square * -LOG2E;
    const float lost = fmaf(LN2, fmaf(square, -LOG2E, -t), fmaf(square, -LOG2E_LN2_REST, -rest));
    float p = fmaf(-0.000315149344f, q, -0.000470321713f);
    p = fmaf(p, q, 0.00307131954f);
    p = fmaf(p, q, -0.00123989f);
    p = fmaf(p, q, -0.0268374793f);
    p = fmaf(p, q, 0.11953342f);
    p = fmaf(p, q, -0.31046623f);
    p = fmaf(p, q, 0.590227842f);
    p = fmaf(p, q, -0.88339448f);
    p = fmaf(p, q, 1.07400692f);
    const float r = scale * (p * d) * quick_exp2(t);
    return fmaf(r, lost, r);
}

// Nothing cancels: x Phi(x) = max(x, 0) - |x| erfc(|x| / sqrt 2) / 2.
__device__ inline float w_gelu(float x) {
    const float a = fminf(fabsf(x), 14.5f), s = a * a;
    const float g = tail_of(0.70710678f * a, 0.5f * s, 0.5f * fmaf(a, a, -s), 0.5f * a);
    return (x < 0 ? -0.0f : x) - g;
}
__device__ inline double w_gelu(double a) { return 0.5 * a * erfc(-0.70710678118654752 * a); }

// erfc in gelu's slope, whose other term is NaN where x is.
__device__ inline float gelu_erfc(float x) {
    const float a = fminf(fabsf(x), 10.25f), s = a * a;
    const float r = tail_of(a, s, fmaf(a, a, -s), 1.0f);
    return x < 0 ? 2 - r : r;
}
__device__ inline double gelu_erfc(double a) { return erfc(a); }
__device__ inline int64_t w_floor(int64_t a) { return a; }
__device__ inline int64_t w_ceil(int64_t a) { return a; }
__device__ inline int64_t w_trunc(int64_t a) { return a; }
__device__ inline int64_t w_round(int64_t a) { return a; }

template <class C> __device__ inline C w_abs(C a) {
    if constexpr (same_type<C, int64_t>::value) {
        return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    } else {
        return fabs(a);
    }
}

template <class C> __device__ inline C w_neg(C a) {
    if constexpr (same_type<C, int64_t>::value) {
        return (int64_t)(0 - (uint64_t)a);
    } else {
        return -a;
    }
}

template <class C> __device__ inline C w_sign(C a) { return a != a ? a : (C)((a > 0) - (a < 0)); }

template <class C> __device__ inline C infinity() {
    if constexpr (same_type<C, int64_t>::value) {
        return INT64_MAX;
    } else {
        return (C)INFINITY;
    }
}

// clang-format off
#define F_A a
#define F_B b
#define F_C_ c
#define F_Y y
#define F_G g
#define F_P(k) to_class<C>(p[k])
#define F_C(x) C(x)
#define F_INF infinity<C>()
#define F_ADD(x, y) w_add(x, y)
#define F_SUB(x, y) w_sub(x, y)
#define F_MUL(x, y) w_mul(x, y)
#define F_DIV(x, y) w_div(x, y)
#define F_NEG(x) w_neg(x)
#define F_ABS(x) w_abs(x)
#define F_SIGN(x) w_sign(x)
#define F_SQRT(x) w_sqrt(x)
#define F_RSQRT(x) w_rsqrt(x)
#define F_MIN(x, y) w_min(x, y)
#define F_MAX(x, y) w_max(x, y)
#define F_FLOORDIV(x, y) w_floordiv(x, y)
#define F_FMOD(x, y) w_fmod(x, y)
#define F_REMAINDER(x, y) w_remainder(x, y)
#define F_FLOOR(x) w_floor(x)
#define F_CEIL(x) w_ceil(x)
#define F_TRUNC(x) w_trunc(x)
#define F_ROUND(x) w_round(x)
#define F_POW(x, y) w_pow(x, y)
#define F_ATAN2(x, y) w_atan2(x, y)
#define F_EXP(x) w_exp(x)
#define F_EXP2(x) w_exp2(x)
#define F_EXPM1(x) w_expm1(x)
#define F_LOG(x) w_log(x)
#define F_LOG2(x) w_log2(x)
#define F_LOG10(x) w_log10(x)
#define F_LOG1P(x) w_log1p(x)
#define F_SIN(x) w_sin(x)
#define F_COS(x) w_cos(x)
#define F_TAN(x) w_tan(x)
#define F_ASIN(x) w_asin(x)
#define F_ACOS(x) w_acos(x)
#define F_ATAN(x) w_atan(x)
#define F_SINH(x) w_sinh(x)
#define F_COSH(x) w_cosh(x)
#define F_TANH(x) w_tanh(x)
#define F_SIGMOID(x) w_sigmoid(x)
#define F_ERF(x) w_erf(x)
#define F_ERFC(x) w_erfc(x)
#define F_GELU(x) w_gelu(x)
#define F_LT(x, y) ((x) < (y))
#define F_LE(x, y) ((x) <= (y))
#define F_GT(x, y) ((x) > (y))
#define F_GE(x, y) ((x) >= (y))
#define F_EQ(x, y) ((x) == (y))
#define F_NE(x, y) ((x) != (y))
#define F_ISNAN(x) ((x) != (x))
#define F_AND(x, y) ((x) & (y))
#define F_OR(x, y) ((x) | (y))
#define F_XOR(x, y) ((x) ^ (y))
#define F_SEL(m, x, y) ((m) ? (x) : (y))

// An op's functor: KIND is the kind of its row, ARITY the number of its operands.
#define TCU_FUNCTOR(ID, name, kind, arity, f)                                                                      \
    struct op_##name {                                                                                             \
        enum { KIND = TENSOR__##kind, ARITY = arity, OP = TENSOR_OP_##ID };                                        \
        double p[4];                                                                                               \
        template <class C> __device__ C operator()(C a, C b, C c) const { (void)a, (void)b, (void)c; return (C)(f); } \
    };
#define TCU_X1(ID, name, kind, f, ...) TCU_FUNCTOR(ID, name, kind, 1, f)
#define TCU_X2(ID, name, kind, f, ...) TCU_FUNCTOR(ID, name, kind, 2, f)
#define TCU_X3(ID, name, kind, f, ...) TCU_FUNCTOR(ID, name, kind, 3, f)
#define TCU_XC(ID, name, arity, kind, f, ...) TCU_FUNCTOR(ID, name, kind, arity, f)
#define TCU_XB(ID, name, arity, f, ...)                                                                            \
    struct op_##name {                                                                                             \
        enum { KIND = TENSOR__BIT, ARITY = arity, OP = TENSOR_OP_##ID };                                           \
        double p[4];                                                                                               \
        template <class C> __device__ C operator()(C x, C y, C) const {                                            \
            int64_t a = (int64_t)x, b = (int64_t)y; (void)b; return (C)(f); }                                      \
    };
TENSOR_OPS_UNARY(TCU_X1) TENSOR_OPS_COPY(TCU_X1) TENSOR_OPS_BINARY(TCU_X2) TENSOR_OPS_TERNARY(TCU_X3)
TENSOR_OPS_COMPARE(TCU_XC) TENSOR_OPS_BITWISE(TCU_XB)
#undef TCU_X1
#undef TCU_X2
#undef TCU_X3
#undef TCU_XC
#undef TCU_XB
// Rows of kind DBL: formulas on doubles, for all float dtypes.
#define F_ERFINV(x) (C)tensor__erfinv_f64(x)
#define F_POLYGAMMA(n, x) (C)tensor__polygamma_f64(n, x)
#define F_LGAMMA(x) (C)tensor__lgamma_f64(x)
#define F_ZETA(s, q) (C)tensor__hurwitz_f64(s, q)
#define F_BESSEL(n, kind, x) (C)tensor__bessel_f64(n, kind, x)
#define F_BESSEL_I(n, scaled, x) (C)tensor__bessel_i_f64(n, scaled, x)
#define TCU_DOUBLE(ID, name, arity, f)                                                                             \
    struct op_##name {                                                                                             \
        enum { KIND = TENSOR__FLT, ARITY = arity, OP = TENSOR_OP_##ID };                                           \
        double p[4];                                                                                               \
        template <class C> __device__ C operator()(C x, C y, C) const {                                            \
            double a = (double)x, b = (double)y; (void)b; return (C)(f); }                                         \
    };
#define TCU_X1(ID, name, kind, f, ...) TCU_DOUBLE(ID, name, 1, f)
#define TCU_X2(ID, name, kind, f, ...) TCU_DOUBLE(ID, name, 2, f)
#undef F_P
#define F_P(k) p[k]
TENSOR_OPS_DOUBLE1(TCU_X1) TENSOR_OPS_DOUBLE2(TCU_X2)
#undef F_P
#define F_P(k) to_class<C>(p[k])
#undef TCU_X1
#undef TCU_X2
#undef TCU_DOUBLE
// Rows to compile; builds under sanitizers define fewer, because all of them share the same two kernels.
#ifndef TCU_POINTWISE_ROWS
#define TCU_POINTWISE_ROWS(X) TENSOR_OPS_UNARY(X) TENSOR_OPS_COPY(X) TENSOR_OPS_BINARY(X) TENSOR_OPS_TERNARY(X)    \
    TENSOR_OPS_COMPARE(X) TENSOR_OPS_BITWISE(X)
#define TCU_BACKWARD_ROWS(X) TENSOR_OPS_UNARY(X) TENSOR_OPS_COPY(X) TENSOR_OPS_BINARY(X) TENSOR_OPS_TERNARY(X)
#elif !defined(TCU_BACKWARD_ROWS)
#define TCU_BACKWARD_ROWS(X) X(EXP, exp) X(GELU_TANH, gelu_tanh) X(MUL, mul) X(LERP, lerp)
#endif
#define TCU_DOUBLE_ROWS(X) TENSOR_OPS_DOUBLE1(X) TENSOR_OPS_DOUBLE2(X)
// clang-format on

struct row_operand_t {
    void *p;                                    // NULL = value everywhere
    bool along;                                 // else one value for a whole row
    bool mask;                                  // bool8, whatever the others are
    float value;
};

template <int N> struct row_set_t {
    row_operand_t o[N + 1];                     // the result first
    rows_t r;
};

// An operand of a row, from element 0 on. Only the first of three may be a mask.
template <class T, int N> __device__ inline float row_value(const row_operand_t &o, int k, int64_t at) {
    if constexpr (N == 3) {
        if (k == 0 && o.mask) { return ((const bool8 *)o.p)[at].v ? 1.0f : 0.0f; }
    }
    return to_class<float>(((const T *)o.p)[at]);
}

template <class T, class Y, class F, int N>
__global__ void __launch_bounds__(THREADS, N == 3 ? 3 : 4) pointwise_rows(row_set_t<N> s, F f) {
    constexpr int V = lanes_of<T>;
    const int64_t columns = s.r.columns, vectors = columns / V;
    for (int64_t r = blockIdx.y * (int64_t)blockDim.y + threadIdx.y; r < s.r.outer.n;
         r += (int64_t)gridDim.y * blockDim.y) {
        int64_t j = thread_index(), step = thread_count();
        int64_t at[N + 1];
        places_of<N + 1>(s.r.outer, r, at);
        Y *y = (Y *)s.o[0].p + at[0];
        float one[N];
        TCU_UNROLL
        for (int k = 0; k < N; k++) {
            const row_operand_t &o = s.o[k + 1];
            one[k] = o.value;
            if (o.p) { one[k] = o.along ? 0.0f : row_value<T, N>(o, k, at[k + 1]); }
        }
        for (int64_t v = j; v < vectors; v += step) {
            pack_t<T, V> in[N];
            pack_t<bool8, V> mask;
            pack_t<Y, V> out;
            TCU_UNROLL
            for (int k = 0; k < N; k++) {
                const row_operand_t &o = s.o[k + 1];
                if (!o.along) { continue; }
                if (N == 3 && k == 0 && o.mask) {
                    mask = ((const pack_t<bool8, V> *)((const bool8 *)o.p + at[k + 1]))[v];
                } else {
                    in[k] = ((const pack_t<T, V> *)((const T *)o.p + at[k + 1]))[v];
                }
            }
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                float a[3] = {0, 0, 0};
                TCU_UNROLL
                for (int k = 0; k < N; k++) {
                    const row_operand_t &o = s.o[k + 1];
                    if (N == 3 && k == 0 && o.mask && o.along) {
                        a[k] = mask.v[i].v ? 1.0f : 0.0f;
                    } else {
                        a[k] = o.along ? to_class<float>(in[k].v[i]) : one[k];
                    }
                }
                out.v[i] = from_class<Y>(f(a[0], a[1], a[2]));
            }
            ((pack_t<Y, V> *)y)[v] = out;
        }
        for (int64_t i = vectors * V + j; i < columns; i += step) {
            float a[3] = {0, 0, 0};
            for (int k = 0; k < N; k++) {
                const row_operand_t &o = s.o[k + 1];
                a[k] = o.along ? row_value<T, N>(o, k, at[k + 1] + i) : one[k];
            }
            y[i] = from_class<Y>(f(a[0], a[1], a[2]));
        }
    }
}

enum { POINTWISE_OPERANDS = 4 };

struct any_set_t {
    void *p[POINTWISE_OPERANDS];                // NULL = value everywhere
    double value[POINTWISE_OPERANDS];
    int dtype[POINTWISE_OPERANDS], op, arity;
    double param[4];
    unsigned long long *zero;                   // NULL, or the word where a divisor of 0 is noted
};

// How pointwise_any goes over a walk. PACKS: a thread takes neighbours, which lie beside each other in memory
// or are one value (two, where they are in two rows); SPREAD: between a thread's elements are
// those of all others, so that neighbours go to neighbours. flat: operands that lie as the walk goes.
enum { SPREAD, PACKS };
struct tour_t {
    walk_t w;
    int mode, splits;                           // splits: a pack may be in two rows
    bool flat[MAX_OPERANDS], along[MAX_OPERANDS];
    __device__ int64_t place(int k, int64_t i) const { return flat[k] ? i : place_of(w, k, i); }
};

// Elements of a thread at a time.
template <class C, bool DOUBLE> constexpr int any_lanes = DOUBLE ? 1 : 16 / (int)sizeof(C);

// data[k], size[k]: of operand k's elements, NULL = it is no tensor. V: elements of a pack.
inline tour_t tour_of(const walk_t &w, int count, const void *const *data, const int *size, int V) {
    tour_t t = {w, PACKS, 0, {}, {}};
    const int last = w.ndim - 1;
    const int64_t columns = w.ndim ? w.dims[last] : 1;
    for (int k = 0; k < count; k++) {
        if (!data[k]) { continue; }
        const int64_t step = w.ndim ? w.strides[k][last] : 1;
        int64_t dense = 1;
        bool whole = columns % V == 0;
        t.flat[k] = true;
        for (int d = last; d >= 0; d--) {
            t.flat[k] = t.flat[k] && w.strides[k][d] == dense;
            dense *= w.dims[d];
            if (d < last) { whole = whole && w.strides[k][d] % V == 0; }
        }
        t.along[k] = step != 0;
        if (step == 0 && k && columns >= V) {
            if (columns % V && w.ndim > 1) { t.splits = 1; }
            continue;
        }
        const int bytes = least(16, size[k] * V);
        if (step != 1 || (uintptr_t)data[k] % (unsigned)bytes || !(t.flat[k] || whole)) { t.mode = SPREAD; }
    }
    return t;
}

inline grid_t tour_grid(const place_t &at, const tour_t &t, int V) {
    return threads_for(at, t.mode == PACKS ? (t.w.n + V - 1) / V : t.w.n);
}

// What a thread takes of a tour at a time: the threads' n-th.
template <int V> struct stop_t {
    int64_t first, step;
    int there, left;                            // there: so many elements; left: of them in the first row
    __device__ stop_t(const tour_t &t, int64_t n)
        : first((n * thread_count() + thread_index()) * V), step(1), there(V), left(V) {
        if (t.mode == SPREAD) {
            first = n * thread_count() * V + thread_index();
            step = thread_count();
        }
        while (there && first + (there - 1) * step >= t.w.n) { there--; }
        if (t.splits) {
            const int64_t columns = t.w.dims[t.w.ndim - 1];
            const int64_t rest = (over_dim(t.w, t.w.ndim - 1, first) + 1) * columns - first;
            left = rest < V ? (int)rest : V;
        }
    }
};

// The elements of operand k at a stop.
template <class C, int V>
__device__ __forceinline__ void load_stop(const tour_t &t, int k, const stop_t<V> &at, const void *p,
                                          int dtype, C *x) {
    if (!at.there) { return; }
    const bool packs = t.mode == PACKS;
    if (packs && !t.along[k]) {
        const C one = load_as<C>(p, dtype, place_of(t.w, k, at.first));
        const bool two = at.left < at.there;
        const C other = two ? load_as<C>(p, dtype, place_of(t.w, k, at.first + at.left)) : one;
        TCU_UNROLL
        for (int i = 0; i < V; i++) { x[i] = i < at.left ? one : other; }
        return;
    }
    int64_t place[V];
    place[0] = t.place(k, at.first);
    TCU_UNROLL
    for (int i = 1; i < V; i++) {
        place[i] = place[0] + i;
        if (!packs && i < at.there) { place[i] = t.place(k, at.first + i * at.step); }
    }

    const bool whole = packs && at.there == V;
    switch (dtype) {
#define TCU_X(id, T)                                                                                         \
    case id:                                                                                                 \
        if (whole) {                                                                                         \
            const pack_t<T, V> in = *(const pack_t<T, V> *)((const T *)p + place[0]);                        \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) { x[i] = to_class<C>(in.v[i]); }                                     \
        } else {                                                                                             \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) {                                                                    \
                if (i < at.there) { x[i] = to_class<C>(((const T *)p)[place[i]]); }                          \
            }                                                                                                \
        }                                                                                                    \
        break;
    TCU_DTYPES(TCU_X)
#undef TCU_X
    }
}

template <class C, int V>
__device__ __forceinline__ void store_stop(const tour_t &t, const stop_t<V> &at, void *p, int dtype,
                                           const C *y) {
    const bool packs = t.mode == PACKS;
    int64_t place[V];
    place[0] = at.there ? t.place(0, at.first) : 0;
    TCU_UNROLL
    for (int i = 1; i < V; i++) {
        place[i] = place[0] + i;
        if (!packs && i < at.there) { place[i] = t.place(0, at.first + i * at.step); }
    }

    const bool whole = packs && at.there == V;
    switch (dtype) {
#define TCU_X(id, T)                                                                                         \
    case id:                                                                                                 \
        if (whole) {                                                                                         \
            pack_t<T, V> out;                                                                                \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) { out.v[i] = from_class<T>(y[i]); }                                  \
            *(pack_t<T, V> *)((T *)p + place[0]) = out;                                                      \
        } else {                                                                                             \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) {                                                                    \
                if (i < at.there) { ((T *)p)[place[i]] = from_class<T>(y[i]); }                              \
            }                                                                                                \
        }                                                                                                    \
        break;
    TCU_DTYPES(TCU_X)
#undef TCU_X
    }
}

// Two tables, so that the large formulas of the second do not take registers from the first.
#define TCU_X(ID, name, ...)                                                                                 \
    case TENSOR_OP_##ID:                                                                                     \
        if constexpr (same_type<C, int64_t>::value ? op_##name::KIND != TENSOR__FLT                          \
                                                   : op_##name::KIND != TENSOR__BIT) {                       \
            const op_##name f{{p[0], p[1], p[2], p[3]}};                                                     \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) { y[i] = f(x[0][i], x[1][i], x[2][i]); }                             \
        }                                                                                                    \
        break;
template <class C, bool DOUBLE, int V>
__device__ __forceinline__ void apply(int op, const double *p, const C (*x)[V], C *y) {
    if constexpr (DOUBLE) {
        switch (op) { TCU_DOUBLE_ROWS(TCU_X) }
    } else {
        switch (op) { TCU_POINTWISE_ROWS(TCU_X) }
    }
}
#undef TCU_X

// Blocks of a multiprocessor.
template <class C> constexpr int any_blocks = same_type<C, double>::value ? 3 : 4;

template <class C, bool DOUBLE = false>
__global__ void __launch_bounds__(THREADS, DOUBLE ? 2 : any_blocks<C>)
    pointwise_any(tour_t t, any_set_t s) {
    constexpr int V = any_lanes<C, DOUBLE>;
    for (int64_t n = 0; n * thread_count() * V < t.w.n; n++) {
        const stop_t<V> at(t, n);
        C x[3][V] = {}, y[V] = {};
        TCU_UNROLL
        for (int k = 0; k < 3; k++) {
            if (k >= s.arity) { continue; }
            if (s.p[k + 1]) {
                load_stop<C, V>(t, k + 1, at, s.p[k + 1], s.dtype[k + 1], x[k]);
                continue;
            }
            TCU_UNROLL
            for (int i = 0; i < V; i++) { x[k][i] = to_class<C>(s.value[k + 1]); }
        }
        if constexpr (same_type<C, int64_t>::value) {
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                if (s.zero && i < at.there && !x[1][i]) { fault(s.zero, at.first + i * at.step); }
            }
        }
        apply<C, DOUBLE, V>(s.op, s.param, x, y);
        store_stop<C, V>(t, at, s.p[0], s.dtype[0], y);
    }
}

// Integers of one dtype that lie beside each other, in packs: one kernel for all formulas of a dtype; TRUTH:
// for those that give a bool.
template <class T> constexpr int few_lanes_of = sizeof(T) == 8 ? 2 : 4;

#define TCU_X(ID, name, ...)                                                                                 \
    case TENSOR_OP_##ID:                                                                                     \
        if constexpr (op_##name::KIND != TENSOR__FLT &&                                                      \
                      TRUTH == (op_##name::KIND == TENSOR__CMP || op_##name::KIND == TENSOR__LOG)) {         \
            const op_##name f{{p[0], p[1], p[2], p[3]}};                                                     \
            TCU_UNROLL                                                                                       \
            for (int i = 0; i < V; i++) { y[i] = f(x[0][i], x[1][i], x[2][i]); }                             \
        }                                                                                                    \
        break;
template <bool TRUTH, int V>
__device__ inline void apply_pack(int op, const double *p, const int64_t (*x)[V], int64_t *y) {
    switch (op) { TCU_POINTWISE_ROWS(TCU_X) }
}
#undef TCU_X

template <class T, bool TRUTH>
__global__ void __launch_bounds__(THREADS, 4) pointwise_integers(walk_t w, any_set_t s) {
    typedef typename pick_t<TRUTH, bool8, T>::type Y;
    constexpr int V = few_lanes_of<T>;
    const int64_t packs = w.n / V;
    for (int64_t q = thread_index(); q * V < w.n; q += thread_count()) {
        int64_t x[3][V] = {}, y[V] = {};
        const int there = q < packs ? V : (int)(w.n - packs * V);
        TCU_UNROLL
        for (int k = 0; k < 3; k++) {
            if (k >= s.arity) { continue; }
            const T *from = (const T *)s.p[k + 1];
            const int64_t step = from && w.ndim ? w.strides[k + 1][0] : 0;
            if (from && step && there == V) {
                const pack_t<T, V> in = ((const pack_t<T, V> *)from)[q];
                TCU_UNROLL
                for (int i = 0; i < V; i++) { x[k][i] = to_class<int64_t>(in.v[i]); }
                continue;
            }
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                if (!from) { x[k][i] = to_class<int64_t>(s.value[k + 1]); }
                if (from && i < there) { x[k][i] = to_class<int64_t>(from[step * (q * V + i)]); }
            }
        }

        apply_pack<TRUTH, V>(s.op, s.param, x, y);
        pack_t<Y, V> out;
        TCU_UNROLL
        for (int i = 0; i < V; i++) { out.v[i] = from_class<Y>(y[i]); }
        if (there == V) {
            ((pack_t<Y, V> *)s.p[0])[q] = out;
            continue;
        }
        for (int i = 0; i < there; i++) { ((Y *)s.p[0])[q * V + i] = out.v[i]; }
    }
}

// The dtype, if pointwise_integers can take them: one dim, one dtype, addresses of whole packs. Else -1
inline int integers_of(const walk_t &w, const tensor_arg_t *o, int count, bool truth) {
    int dtype = TENSOR_BOOL;
    for (int k = count - 1; k > 0; k--) {
        if (!is_immediate(o[k])) { dtype = o[k].dtype; }
    }
    if (w.ndim > 1 || class_of(dtype) != 2 || o[0].dtype != (truth ? (int)TENSOR_BOOL : dtype)) { return -1; }
    for (int k = 0; k < count; k++) {
        if (is_immediate(o[k])) { continue; }
        const int64_t step = w.ndim ? w.strides[k][0] : 0;
        if (!aligned16(o[k].data) || (k && o[k].dtype != dtype)) { return -1; }
        if (step != 1 && (step || !k)) { return -1; }
    }
    return dtype;
}

template <bool TRUTH>
inline int launch_integers(const place_t &at, int dtype, const walk_t &w, const any_set_t &s) {
    auto go = [&](auto type) {
        typedef TCU_TYPE(type) T;
        return launch(at, threads_for(at, w.n / few_lanes_of<T> + 1), pointwise_integers<T, TRUTH>, w, s);
    };
    switch (dtype) {
    case TENSOR_I64: return go(type_t<int64_t>());
    case TENSOR_I32: return go(type_t<int32_t>());
    case TENSOR_I16: return go(type_t<int16_t>());
    case TENSOR_I8: return go(type_t<int8_t>());
    case TENSOR_U8: return go(type_t<uint8_t>());
    default: return go(type_t<bool8>());
    }
}

// Blocks for rows with so many vectors: several short rows per block, or several blocks per long row.
inline grid_t row_grid(const place_t &at, int64_t rows, int64_t vectors) {
    unsigned wide = 1;
    while (wide < THREADS && wide < vectors) { wide *= 2; }
    unsigned high = THREADS / wide, gy = grid_for(at, rows, high);
    gy = gy > 65535 ? 65535 : gy;
    unsigned gx = (grid_for(at, vectors, wide) + gy - 1) / gy;
    return {dim3(gx, gy), dim3(wide, high)};
}

inline bool is_mask(const tensor_arg_t *o, int k, int count) {
    return k == 1 && count == 4 && o[k].dtype == TENSOR_BOOL;
}

// The dtype of a row's operands; numbers of the host and a mask have another dtype.
inline int rows_dtype(const tensor_arg_t *o, int count) {
    for (int k = 1; k < count; k++) {
        if (!is_immediate(o[k]) && !is_mask(o, k, count)) { return o[k].dtype; }
    }
    return o[0].dtype;
}

template <class T, class Y, class F, int N>
inline int launch_rows(const place_t &at, const walk_t &w, const tensor_arg_t *o, const F &f) {
    row_set_t<N> s = {{}, rows_t(w)};
    for (int k = 0; k <= N; k++) {
        s.o[k] = {o[k].data, !w.ndim || w.strides[k][w.ndim - 1] != 0, is_mask(o, k, N + 1), 0.0f};
        if (is_immediate(o[k])) { s.o[k] = {nullptr, false, false, (float)*(const double *)o[k].data}; }
    }
    grid_t g = row_grid(at, s.r.outer.n, s.r.columns / lanes_of<T> + 1);
    return launch(at, g, pointwise_rows<T, Y, F, N>, s, f);
}

// Whether pointwise_rows can take them: one dtype, contiguous rows, 16-byte addresses.
inline bool fits_rows(const walk_t &w, const tensor_arg_t *o, int count, bool truth) {
    int dtype = rows_dtype(o, count), V = 16 / size_of(dtype);
    if (class_of(dtype) || o[0].dtype != (truth ? (int)TENSOR_BOOL : dtype)) { return false; }
    for (int k = 0; k < count; k++) {
        if (is_immediate(o[k])) { continue; }
        if (k && !is_mask(o, k, count) && o[k].dtype != dtype) { return false; }
        int64_t along = w.ndim ? w.strides[k][w.ndim - 1] : 1;
        if (along != 1 && !(k && along == 0)) { return false; }
        if (along && !rows_aligned(w, k, o[k].data, V)) { return false; }
    }
    return true;
}

// o[0] = op of the others, which broadcast to it; compute is the dtype whose class it is computed in.
inline int pointwise(const place_t &at, int op, const tensor_arg_t *o, int arity, int compute,
                     const double *p, unsigned long long *zero = nullptr) {
    walk_t w = zero ? walk_of(o, arity + 1) : walk_by_memory(o, arity + 1);    // zero: needs numbers
    if (!w.n) { return 0; }
    double none[4] = {0, 0, 0, 0};
    bool large = false, relation = false;
    if (!p) { p = none; }
    switch (op) {
#define TCU_X(ID, name, ...)                                                                                 \
    case TENSOR_OP_##ID:                                                                                     \
        if constexpr (op_##name::KIND != TENSOR__BIT) {                                                      \
            constexpr bool truth = op_##name::KIND == TENSOR__CMP || op_##name::KIND == TENSOR__LOG;         \
            constexpr int N = op_##name::ARITY;                                                              \
            op_##name f{{p[0], p[1], p[2], p[3]}};                                                           \
            if (arity != N) {                                                                                \
                return TENSOR_ERR_INTERNAL;                                                                  \
            }                                                                                                \
            relation = truth;                                                                                \
            if (class_of(compute) || !fits_rows(w, o, N + 1, truth)) {                                       \
                break;                                                                                       \
            }                                                                                                \
            if (rows_dtype(o, N + 1) == TENSOR_F32) {                                                        \
                return launch_rows<float, typename pick_t<truth, bool8, float>::type, op_##name, N>(at, w,   \
                                                                                                    o, f);   \
            }                                                                                                \
            if (rows_dtype(o, N + 1) == TENSOR_F16) {                                                        \
                return launch_rows<f16, typename pick_t<truth, bool8, f16>::type, op_##name, N>(at, w, o,    \
                                                                                                f);          \
            }                                                                                                \
            return launch_rows<bf16, typename pick_t<truth, bool8, bf16>::type, op_##name, N>(at, w, o, f);  \
        }                                                                                                    \
        break;
        TCU_POINTWISE_ROWS(TCU_X)
#undef TCU_X
#define TCU_X(ID, ...) case TENSOR_OP_##ID: large = true; break;
        TCU_DOUBLE_ROWS(TCU_X)
#undef TCU_X
    default: return TENSOR_ERR_UNSUPPORTED;
    }

    any_set_t s;
    int size[POINTWISE_OPERANDS] = {};
    s.op = op;
    s.arity = arity;
    s.zero = zero;
    memcpy(s.param, p, sizeof s.param);
    for (int k = 0; k < POINTWISE_OPERANDS; k++) {
        bool number = k <= arity && is_immediate(o[k]);
        s.p[k] = k <= arity && !number ? o[k].data : nullptr;
        s.value[k] = number ? *(const double *)o[k].data : 0;
        s.dtype[k] = k <= arity ? o[k].dtype : 0;
        size[k] = size_of(s.dtype[k]);
    }

    if (large && class_of(compute) == 2) { return TENSOR_ERR_UNSUPPORTED; }
    const int integers = class_of(compute) == 2 && !zero ? integers_of(w, o, arity + 1, relation) : -1;
    if (integers >= 0) {
        return relation ? launch_integers<true>(at, integers, w, s)
                        : launch_integers<false>(at, integers, w, s);
    }
    return by_class(compute, [&](auto type) {
        typedef TCU_TYPE(type) C;
        const int V = large ? any_lanes<C, true> : any_lanes<C, false>;
        const tour_t t = tour_of(w, arity + 1, s.p, size, V);
        const grid_t grid = tour_grid(at, t, V);
        if constexpr (same_type<C, int64_t>::value) {
            return launch(at, grid, pointwise_any<C>, t, s);
        } else {
            return launch(at, grid, large ? pointwise_any<C, true> : pointwise_any<C>, t, s);
        }
    });
}

// Gradients: the derivative columns of the same rows, from operands a b c, the result y and the incoming
// gradient g; each of these is given only if the formula reads it.
enum { BACK_INPUTS = 5, BACK_OUTPUTS = 3 };

struct back_any_t {
    const void *in[BACK_INPUTS];                // NULL = value everywhere
    void *out[BACK_OUTPUTS];                    // in the order of the walk, contiguous; NULL = not wanted
    double value[BACK_INPUTS], param[4];
    int dtype[BACK_INPUTS], to, op;
};

struct back_set_t : back_any_t { walk_t w; };   // the results, then each of in[]

struct back_rows_t {
    rows_t r;
    row_operand_t in[BACK_INPUTS];
    void *out[BACK_OUTPUTS];
    double param[4];
};

// clang-format off
#define TCU_D(k, f) if (want[k]) { out[k] = f; }
#define TCU_DERIVE(name, text)                                                                                     \
    struct slope_##name {                                                                                          \
        template <class C> __device__ static void of(const double *p, const C *x, void *const *want, C *out) {     \
            const C a = x[0], b = x[1], c = x[2], y = x[3], g = x[4];                                              \
            (void)a, (void)b, (void)c, (void)y, (void)g, (void)p; text }                                           \
    };
#undef F_ERFC
#define F_ERFC(x) gelu_erfc(x)
#define TCU_X1(ID, name, kind, f, dA, ...) TCU_DERIVE(name, TCU_D(0, dA))
#define TCU_X2(ID, name, kind, f, dA, dB, ...) TCU_DERIVE(name, TCU_D(0, dA) TCU_D(1, dB))
#define TCU_X3(ID, name, kind, f, dA, dB, dC, ...) TCU_DERIVE(name, TCU_D(0, dA) TCU_D(1, dB) TCU_D(2, dC))
TENSOR_OPS_UNARY(TCU_X1) TENSOR_OPS_COPY(TCU_X1) TENSOR_OPS_BINARY(TCU_X2) TENSOR_OPS_TERNARY(TCU_X3)
TENSOR_OPS_DOUBLE1(TCU_X1) TENSOR_OPS_DOUBLE2(TCU_X2)
#undef TCU_X1
#undef TCU_X2
#undef TCU_X3
#undef TCU_DERIVE
#undef TCU_D
// clang-format on
#define TCU_X(ID, name, ...)                                                                                 \
    case TENSOR_OP_##ID:                                                                                     \
        TCU_UNROLL                                                                                           \
        for (int i = 0; i < V; i++) {                                                                        \
            const C of[BACK_INPUTS] = {x[0][i], x[1][i], x[2][i], x[3][i], x[4][i]};                         \
            C d[BACK_OUTPUTS] = {};                                                                          \
            slope_##name::of<C>(p, of, want, d);                                                             \
            TCU_UNROLL                                                                                       \
            for (int m = 0; m < BACK_OUTPUTS; m++) { out[m][i] = d[m]; }                                     \
        }                                                                                                    \
        break;
template <class C, bool DOUBLE, int V>
__device__ __forceinline__ void derive(int op, const double *p, const C (*x)[V], void *const *want,
                                       C (*out)[V]) {
    if constexpr (DOUBLE) {
        switch (op) { TCU_DOUBLE_ROWS(TCU_X) }
    } else {
        switch (op) { TCU_BACKWARD_ROWS(TCU_X) }
    }
}
#undef TCU_X

template <class C, bool DOUBLE = false>
__global__ void __launch_bounds__(THREADS, DOUBLE ? 2 : 3) pointwise_backward_any(tour_t t, back_any_t s) {
    constexpr int V = any_lanes<C, DOUBLE>;
    for (int64_t n = 0; n * thread_count() * V < t.w.n; n++) {
        const stop_t<V> at(t, n);
        C x[BACK_INPUTS][V] = {}, d[BACK_OUTPUTS][V];
        TCU_UNROLL
        for (int m = 0; m < BACK_INPUTS; m++) {
            if (s.in[m]) {
                load_stop<C, V>(t, m + 1, at, s.in[m], s.dtype[m], x[m]);
                continue;
            }
            TCU_UNROLL
            for (int i = 0; i < V; i++) { x[m][i] = (C)s.value[m]; }
        }
        derive<C, DOUBLE, V>(s.op, s.param, x, s.out, d);
        TCU_UNROLL
        for (int m = 0; m < BACK_OUTPUTS; m++) {
            if (s.out[m]) { store_stop<C, V>(t, at, s.out[m], s.to, d[m]); }
        }
    }
}

// Rows of one dtype: the same for gradients as pointwise_rows for values.
template <class T, class SLOPE>
__global__ void __launch_bounds__(THREADS, is_half<T> ? 2 : 3) pointwise_backward_rows(back_rows_t s) {
    constexpr int V = lanes_of<T>;
    const int64_t columns = s.r.columns, vectors = columns / V;
    for (int64_t r = blockIdx.y * (int64_t)blockDim.y + threadIdx.y; r < s.r.outer.n;
         r += (int64_t)gridDim.y * blockDim.y) {
        int64_t j = thread_index(), step = thread_count();
        int64_t at[1 + BACK_INPUTS];
        float one[BACK_INPUTS];
        places_of<1 + BACK_INPUTS>(s.r.outer, r, at);
        TCU_UNROLL
        for (int k = 0; k < BACK_INPUTS; k++) {
            const row_operand_t &o = s.in[k];
            one[k] = o.value;
            if (o.p) { one[k] = o.along ? 0.0f : to_class<float>(((const T *)o.p)[at[k + 1]]); }
        }
        for (int64_t v = j; v < vectors; v += step) {
            pack_t<T, V> in[BACK_INPUTS], out[BACK_OUTPUTS];
            TCU_UNROLL
            for (int k = 0; k < BACK_INPUTS; k++) {
                if (s.in[k].along) { in[k] = ((const pack_t<T, V> *)((const T *)s.in[k].p + at[k + 1]))[v]; }
            }
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                float x[BACK_INPUTS], d[BACK_OUTPUTS] = {0, 0, 0};
                TCU_UNROLL
                for (int k = 0; k < BACK_INPUTS; k++) {
                    x[k] = s.in[k].along ? to_class<float>(in[k].v[i]) : one[k];
                }
                SLOPE::template of<float>(s.param, x, s.out, d);
                TCU_UNROLL
                for (int k = 0; k < BACK_OUTPUTS; k++) { out[k].v[i] = from_class<T>(d[k]); }
            }
            TCU_UNROLL
            for (int k = 0; k < BACK_OUTPUTS; k++) {
                if (s.out[k]) { ((pack_t<T, V> *)((T *)s.out[k] + at[0]))[v] = out[k]; }
            }
        }
        for (int64_t i = vectors * V + j; i < columns; i += step) {
            float x[BACK_INPUTS], d[BACK_OUTPUTS] = {0, 0, 0};
            for (int k = 0; k < BACK_INPUTS; k++) {
                x[k] = s.in[k].along ? to_class<float>(((const T *)s.in[k].p)[at[k + 1] + i]) : one[k];
            }
            SLOPE::template of<float>(s.param, x, s.out, d);
            for (int k = 0; k < BACK_OUTPUTS; k++) {
                if (s.out[k]) { ((T *)s.out[k])[at[0] + i] = from_class<T>(d[k]); }
            }
        }
    }
}

template <class T> inline int launch_backward_rows(const place_t &at, const back_set_t &b) {
    back_rows_t s = {rows_t(b.w), {}, {}, {}};
    for (int k = 0; k < BACK_INPUTS; k++) {
        bool along = b.in[k] && (!b.w.ndim || b.w.strides[k + 1][b.w.ndim - 1] != 0);
        s.in[k] = {(void *)b.in[k], along, false, (float)b.value[k]};
    }

    for (int k = 0; k < BACK_OUTPUTS; k++) { s.out[k] = b.out[k]; }
    memcpy(s.param, b.param, sizeof s.param);
    grid_t g = row_grid(at, s.r.outer.n, s.r.columns / lanes_of<T> + 1);
    switch (b.op) {
#define TCU_X(ID, name, ...)                                                                                 \
    case TENSOR_OP_##ID:                                                                                     \
        return launch(at, g, pointwise_backward_rows<T, slope_##name>, s);
        TCU_BACKWARD_ROWS(TCU_X)
#undef TCU_X
    default: return TENSOR_ERR_UNSUPPORTED;
    }
}

// in: a b c y g (data NULL = absent); out: their gradients with g's shape, all in the same dense layout
// (data NULL = not wanted). Visited in the order of the results' memory.
inline int pointwise_backward(const place_t &at, int op, const tensor_arg_t *in, const tensor_arg_t *out,
                              int count, int compute, const double *p) {
    const tensor_arg_t &g = in[4];
    const tensor_arg_t *first = nullptr;
    tensor_arg_t o[1 + BACK_INPUTS];
    back_set_t s;
    bool found = false, large = false;
    if (!g.numel) { return 0; }
    memset((void *)&s, 0, sizeof s);
    switch (op) {
#define TCU_X(ID, name, ...) case TENSOR_OP_##ID: found = true; break;
        TCU_BACKWARD_ROWS(TCU_X)
#undef TCU_X
#define TCU_X(ID, name, ...) case TENSOR_OP_##ID: found = large = true; break;
        TCU_DOUBLE_ROWS(TCU_X)
#undef TCU_X
    }

    if (!found) { return TENSOR_ERR_UNSUPPORTED; }
    s.op = op;
    if (p) { memcpy(s.param, p, sizeof s.param); }
    for (int k = 0; k < count; k++) {
        if (!out[k].data) { continue; }
        if (!first) { first = &out[k]; }
        for (int d = 0; d < g.ndim; d++) {
            if (g.dims[d] != 1 && out[k].strides[d] != first->strides[d]) { return TENSOR_ERR_UNSUPPORTED; }
        }
        s.out[k] = out[k].data;
        s.to = out[k].dtype;
    }

    if (!first) { return 0; }
    o[0] = *first;
    for (int k = 0; k < BACK_INPUTS; k++) {
        o[k + 1] = in[k];
        if (!in[k].data || is_immediate(in[k])) {
            o[k + 1].ndim = 0;
            if (in[k].data) { s.value[k] = *(const double *)in[k].data; }
            continue;
        }
        s.in[k] = in[k].data;
        s.dtype[k] = in[k].dtype;
    }

    s.w = walk_by_memory(o, 1 + BACK_INPUTS);
    walk_t alone = walk_by_memory(o, 1);
    if (alone.ndim > 1 || (alone.ndim == 1 && alone.strides[0][0] != 1)) { return TENSOR_ERR_UNSUPPORTED; }
    int V = 16 / size_of(g.dtype);
    bool rows = class_of(g.dtype) == 0;
    for (int k = 0; k < count && rows; k++) {
        rows = !out[k].data || (out[k].dtype == g.dtype && rows_aligned(s.w, 0, out[k].data, V));
    }
    for (int k = 0; k < BACK_INPUTS && rows; k++) {
        int64_t along = s.w.ndim ? s.w.strides[k + 1][s.w.ndim - 1] : 1;
        rows = !s.in[k] || (s.dtype[k] == g.dtype && (along == 0 || along == 1) &&
                            (!along || rows_aligned(s.w, k + 1, s.in[k], V)));
    }

    int code = TENSOR_ERR_UNSUPPORTED;
    if (rows && g.dtype == TENSOR_F32) { code = launch_backward_rows<float>(at, s); }
    if (rows && g.dtype == TENSOR_F16) { code = launch_backward_rows<f16>(at, s); }
    if (rows && g.dtype == TENSOR_BF16) { code = launch_backward_rows<bf16>(at, s); }
    if (code != TENSOR_ERR_UNSUPPORTED) { return code; }
    if (class_of(compute) == 2) { return TENSOR_ERR_UNSUPPORTED; }
    return by_real(class_of(compute) ? TENSOR_F64 : TENSOR_F32, [&](auto type) {
        typedef TCU_TYPE(type) C;
        const void *data[1 + BACK_INPUTS] = {first->data};
        int size[1 + BACK_INPUTS] = {size_of(s.to)};
        const int lanes = large ? any_lanes<C, true> : any_lanes<C, false>;
        for (int k = 0; k < BACK_INPUTS; k++) {
            data[k + 1] = s.in[k];
            size[k + 1] = size_of(s.dtype[k]);
        }
        tour_t t = tour_of(s.w, 1 + BACK_INPUTS, data, size, lanes);
        for (int k = 0; k < count; k++) {
            const int bytes = least(16, size[0] * lanes);
            if (s.out[k] && (uintptr_t)s.out[k] % (unsigned)bytes) { t.mode = SPREAD; }
        }
        return launch(at, tour_grid(at, t, lanes),
                      large ? pointwise_backward_any<C, true> : pointwise_backward_any<C>, t,
                      (const back_any_t &)s);
    });
}

// ------------------------------------------------------------------------------
// >>copy                                           MARK: copies, casts, fills
//
// A copy of one dtype moves bytes: whole rows in pieces of 16 bytes if it can, single elements if not. Casts
// between the three float dtypes of training have vector kernels; other casts convert element by element,
// through the class of their source. Rejected: kernels for all hundred pairs.
// ------------------------------------------------------------------------------

template <class T> __global__ void __launch_bounds__(THREADS, 4) copy_bytes(walk_t w, T *y, const T *x) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[2];
        places_of<2>(w, i, at);
        y[at[0]] = x[at[1]];
    }
}

template <class T, class S>
__global__ void __launch_bounds__(THREADS, 4) cast_flat(T *y, const S *x, int64_t n) {
    constexpr int V = lanes_of<T> > lanes_of<S> ? lanes_of<T> : lanes_of<S>;
    int64_t j = thread_index(), step = thread_count();
    for (int64_t v = j; v < n / V; v += step) {
        pack_t<S, V> in = ((const pack_t<S, V> *)x)[v];
        pack_t<T, V> out;
TCU_UNROLL
        for (int i = 0; i < V; i++) { out.v[i] = from_class<T>(to_class<float>(in.v[i])); }
        ((pack_t<T, V> *)y)[v] = out;
    }
    for (int64_t i = n / V * V + j; i < n; i += step) { y[i] = from_class<T>(to_class<float>(x[i])); }
}

template <class C>
__global__ void __launch_bounds__(THREADS, 4) cast_any(walk_t w, void *y, int to, const void *x, int from) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[2];
        places_of<2>(w, i, at);
        store_as<C>(y, to, at[0], load_as<C>(x, from, at[1]));
    }
}

template <class C> __global__ void __launch_bounds__(THREADS, 4) fill_any(walk_t w, void *y, int dtype, C v) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[1];
        places_of<1>(w, i, at);
        store_as<C>(y, dtype, at[0], v);
    }
}

// y = x, converted, with x broadcast to y; strides of any kind, no overlap.
inline int copy(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x) {
    tensor_arg_t o[2] = {y, x};
    walk_t w = walk_by_memory(o, 2);
    if (!w.n) { return 0; }
    bool flat = w.ndim == 0 || (w.ndim == 1 && w.strides[0][0] == 1 && w.strides[1][0] == 1);
    const grid_t grid = threads_for(at, w.n);
    if (y.dtype == x.dtype) {
        int size = size_of(y.dtype);
        if (flat) {
            return code_of(
                cudaMemcpyAsync(y.data, x.data, (size_t)(w.n * size), cudaMemcpyDeviceToDevice, at.stream));
        }
        int V = 16 / size, last = w.ndim - 1;   // rows of whole 16-byte pieces are moved as such
        bool wide = w.strides[0][last] == 1 && w.strides[1][last] == 1 && w.dims[last] % V == 0 &&
                    aligned16(y.data) && aligned16(x.data);
        for (int d = 0; d < last && wide; d++) {
            wide = w.strides[0][d] % V == 0 && w.strides[1][d] % V == 0;
        }

        if (wide) {
            w.n /= V;
            w.dims[last] /= V;
            invert_dim(&w, last);
            for (int d = 0; d < last; d++) {
                w.strides[0][d] /= V;
                w.strides[1][d] /= V;
            }
            return launch(at, threads_for(at, w.n), copy_bytes<uint4>, w, (uint4 *)y.data,
                          (const uint4 *)x.data);
        }
        return by_size(size, [&](auto type) {
            typedef TCU_TYPE(type) T;
            return launch(at, grid, copy_bytes<T>, w, (T *)y.data, (const T *)x.data);
        });
    }
#define TCU_CAST(to, T, from, S)                                                                             \
    if (flat && y.dtype == to && x.dtype == from && aligned16(y.data) && aligned16(x.data)) {                \
        return launch(at, {grid_for(at, w.n, THREADS * 8), THREADS}, cast_flat<T, S>, (T *)y.data,         \
                      (const S *)x.data, w.n);                                                               \
    }

    TCU_CAST(TENSOR_F16, f16, TENSOR_F32, float)
    TCU_CAST(TENSOR_BF16, bf16, TENSOR_F32, float)
    TCU_CAST(TENSOR_F32, float, TENSOR_F16, f16)
    TCU_CAST(TENSOR_F32, float, TENSOR_BF16, bf16)
    TCU_CAST(TENSOR_F16, f16, TENSOR_BF16, bf16)
    TCU_CAST(TENSOR_BF16, bf16, TENSOR_F16, f16)
#undef TCU_CAST
    return by_class(x.dtype, [&](auto type) {
        return launch(at, grid, cast_any<TCU_TYPE(type)>, w, y.data, y.dtype, (const void *)x.data, x.dtype);
    });
}

// Integers and bool use `integer`, floats `real`.
inline int fill(const place_t &at, const tensor_arg_t &y, double real, int64_t integer) {
    walk_t w = walk_by_memory(&y, 1);
    if (!w.n) { return 0; }
    if (class_of(y.dtype) == 2) {
        return launch(at, threads_for(at, w.n), fill_any<int64_t>, w, y.data, y.dtype, integer);
    }
    return launch(at, threads_for(at, w.n), fill_any<double>, w, y.data, y.dtype, real);
}

__global__ void __launch_bounds__(THREADS, 4)
    count_up(walk_t w, void *y, int dtype, double first, double by) {      // rounded as on the CPU
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[1];
        places_of<1>(w, i, at);
        store_as<double>(y, dtype, at[0], __dadd_rn(first, __dmul_rn((double)i, by)));
    }
}

inline int arange(const place_t &at, const tensor_arg_t &y, double first, double step) {
    walk_t w = walk_of(&y, 1);
    return !w.n ? 0
                : launch(at, threads_for(at, w.n), count_up, w, y.data, (int)y.dtype, first, step);
}

// Contiguous matrices: what is on the other side of the diagonal becomes 0.
template <class T> __global__ void __launch_bounds__(THREADS, 4)
triangle(T *y, const T *x, int64_t n, int64_t rows, int64_t columns, int64_t diagonal, bool lower) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t above = i % columns - i / columns % rows - diagonal;
        bool there = lower ? above <= 0 : above >= 0;
        y[i] = there ? x[i] : T{};
    }
}

// ------------------------------------------------------------------------------
// >>random                                         MARK: Philox
//
// The CPU's numbers with the same bits: Philox4x32-10 with the element's index as counter, and its own
// logarithm, sine and cosine made of products and sums, which no FMA may join.
// On the CPU: >>impl-random, >>kernel-random; dropout >>impl-dropout, >>nn-kernel-dropout.
// ------------------------------------------------------------------------------

__device__ inline void philox(tensor_generator_t g, uint64_t block, uint32_t *out) {
    tensor__philox(g.seed, g.offset, block, out);
}

__device__ inline float fused_not(float a, float b, float c) { return __fadd_rn(__fmul_rn(a, b), c); }

__device__ inline void box_muller(uint32_t w1, uint32_t w2, float *x, float *y) {
    float f = fused_not((float)(int32_t)(w1 >> 16), 65536.0f, __fadd_rn((float)(int32_t)(w1 & 0xFFFF), 0.5f));
    int32_t bits = (int32_t)((uint32_t)__float_as_int(f) - 0x3F3504F3u), e = bits >> 23;
    float t = __fadd_rn(__int_as_float((bits & 0x007FFFFF) + 0x3F3504F3), -1.0f), a, r, s, c, p;
    p = 0.08700430393218994f;
    p = fused_not(p, t, -0.14267486333847046f);
    p = fused_not(p, t, 0.14914768934249878f);
    p = fused_not(p, t, -0.1657758504152298f);
    p = fused_not(p, t, 0.19963063299655914f);
    p = fused_not(p, t, -0.2500133812427521f);
    p = fused_not(p, t, 0.3333390951156616f);
    a = __fmul_rn(t, t);
    p = __fadd_rn(__fadd_rn(t, -__fmul_rn(0.5f, a)), __fmul_rn(__fmul_rn(a, t), p));
    p = fused_not((float)(e - 32), 0.6931471805599453f, p);
    r = __fmul_rn(-2.0f, p);
    r = __fsqrt_rn(r > 0 ? r : 0.0f);
    e = (int32_t)((w2 + (1u << 29)) >> 30);
    a = __fmul_rn((float)(int32_t)(w2 - ((uint32_t)e << 30)), 1.4629180792671596e-9f);
    t = __fmul_rn(a, a);
    s = 2.7557319e-6f;
    s = fused_not(s, t, -1.98412698e-4f);
    s = fused_not(s, t, 8.33333333e-3f);
    s = fused_not(s, t, -1.66666667e-1f);
    s = __fadd_rn(a, __fmul_rn(__fmul_rn(a, t), s));
    c = -2.75573192e-7f;
    c = fused_not(c, t, 2.48015873e-5f);
    c = fused_not(c, t, -1.38888889e-3f);
    c = fused_not(c, t, 4.16666667e-2f);
    c = fused_not(c, t, -0.5f);
    c = fused_not(c, t, 1.0f);
    uint32_t minus_s = (uint32_t)(e & 2) << 30, minus_c = (uint32_t)((e + 1) & 2) << 30;
    *x = __fmul_rn(r, __uint_as_float(__float_as_uint(e & 1 ? s : c) ^ minus_c));
    *y = __fmul_rn(r, __uint_as_float(__float_as_uint(e & 1 ? c : s) ^ minus_s));
}

enum random_t { UNIFORM, NORMAL };

// The generator of a call: g, or the one at `at` when the kernel runs (each run of a graph draws other
// numbers).
struct rng_t {
    tensor_generator_t g;
    const tensor_generator_t *at;
    rng_t(tensor_generator_t from, const tensor_generator_t *p = nullptr) : g(from), at(p) { }
    __device__ tensor_generator_t now() const { return at ? *at : g; }
};

// Four elements per thread: a + b u, where u is uniform in [0, 1) and at most top, or normal; f32, then
// converted.
__global__ void __launch_bounds__(THREADS, 4)
    random_f32(walk_t w, void *y, int dtype, rng_t r, int kind, float a, float b, float top) {
    tensor_generator_t g = r.now();
    const bool wide =
        dtype == TENSOR_F32 && aligned16(y) && (!w.ndim || (w.ndim == 1 && w.strides[0][0] == 1));
    for (int64_t q = thread_index(); q * 4 < w.n; q += thread_count()) {
        uint32_t word[4];
        float v[4];
        philox(g, (uint64_t)q, word);
        if (kind == NORMAL) {
            box_muller(word[0], word[1], &v[0], &v[1]);
            box_muller(word[2], word[3], &v[2], &v[3]);
        }
        TCU_UNROLL
        for (int k = 0; k < 4; k++) {
            if (kind == UNIFORM) { v[k] = __fmul_rn((float)(int32_t)(word[k] >> 8), 5.9604644775390625e-8f); }
            v[k] = __fadd_rn(a, __fmul_rn(b, v[k]));
            if (kind == UNIFORM && !(v[k] < top)) { v[k] = top; }
        }
        if (wide && q * 4 + 4 <= w.n) {
            ((pack_t<float, 4> *)y)[q] = pack_t<float, 4>{{v[0], v[1], v[2], v[3]}};
            continue;
        }
        for (int k = 0; k < 4 && q * 4 + k < w.n; k++) {
            int64_t at[1];
            places_of<1>(w, q * 4 + k, at);
            store_as<float>(y, dtype, at[0], v[k]);
        }
    }
}

__device__ inline uint64_t philox_pair(tensor_generator_t g, int64_t e) {   // 64 bits of element e
    uint32_t w[4];
    philox(g, (uint64_t)e >> 1, w);
    return e & 1 ? (uint64_t)w[3] << 32 | w[2] : (uint64_t)w[1] << 32 | w[0];
}

__global__ void __launch_bounds__(THREADS, 4)
    random_f64(walk_t w, double *y, rng_t r, int kind, double lo, double hi, double top) {
    tensor_generator_t g = r.now();
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[1];
        places_of<1>(w, i, at);
        if (kind == NORMAL) { // mean lo, deviation hi; libm's logarithm and sine, within an ulp
            uint32_t word[4];
            philox(g, (uint64_t)i >> 2, word);
            double u = ((double)word[i & 2] + 1) * 2.3283064365386963e-10;
            double a = 6.283185307179586 * ((double)word[(i & 2) + 1] * 2.3283064365386963e-10);
            y[at[0]] = lo + hi * sqrt(-2 * log(u)) * (i & 1 ? sin(a) : cos(a));
            continue;
        }
        double u = __dmul_rn((double)(philox_pair(g, i) >> 11), 1.1102230246251565e-16);
        u = __dadd_rn(lo, __dmul_rn(__dadd_rn(hi, -lo), u));
        y[at[0]] = u < top ? u : top;
    }
}

__global__ void __launch_bounds__(THREADS, 4)
    random_integer(walk_t w, void *y, int dtype, rng_t r, int64_t lo, uint64_t range) {
    tensor_generator_t g = r.now();
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[1];
        places_of<1>(w, i, at);
        store_as<int64_t>(y, dtype, at[0], (int64_t)((uint64_t)lo + __umul64hi(philox_pair(g, i), range)));
    }
}

__device__ inline double unit_of(uint32_t high, uint32_t low) {             // in [0, 1)
    return (double)(((uint64_t)high << 32 | low) >> 11) * 1.1102230246251565e-16;
}

// y = 1 with probability p[i], else 0; or the number of events at the rate p[i].
template <bool EVENTS> __global__ void __launch_bounds__(THREADS, 2)
    random_counts(walk_t w, void *y, int dtype, const void *p, int from, rng_t r) {
    tensor_generator_t g = r.now();
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[2];
        places_of<2>(w, i, at);
        double v = load_as<double>(p, from, at[1]);
        if constexpr (EVENTS) {
            store_as<double>(y, dtype, at[0], tensor__poisson(g, (uint64_t)i, v));
        } else {
            uint32_t word[4];
            philox(g, (uint64_t)i >> 2, word);
            store_as<int64_t>(y, dtype, at[0], (double)word[i & 3] * 2.3283064365386963e-10 < v);
        }
    }
}

// What dropout makes of an element: x scale if its 24 bits are below keep, else 0.
template <class T> __device__ inline T dropped(T x, uint32_t word, uint32_t keep, double scale) {
    typedef class_t<T> C;
    return from_class<T>(w_mul(to_class<C>(x), (word >> 8) < keep ? (C)scale : C(0)));
}

// As the op add has it.
template <class T, class U> __device__ inline T added(T a, U b) {
    typedef class_t<T> C;
    return from_class<T>(w_add(to_class<C>(a), to_class<C>(b)));
}

// y = dropout(x); ADDS: more + that, and x may be of a half dtype where the others are f32.
template <class T, bool ADDS, class U = T> __global__ void __launch_bounds__(THREADS, 4)
drop_out(T *y, const T *more, const U *x, int64_t n, rng_t r, uint32_t keep, double scale) {
    tensor_generator_t g = r.now();
    const bool wide = aligned16(x) && aligned16(y) && (!ADDS || aligned16(more));
    for (int64_t q = thread_index(); q * 4 < n; q += thread_count()) {
        uint32_t word[4];
        philox(g, (uint64_t)q, word);
        if (wide && q * 4 + 4 <= n) {
            const pack_t<U, 4> v = ((const pack_t<U, 4> *)x)[q];
            pack_t<T, 4> to;
            if (ADDS) { to = ((const pack_t<T, 4> *)more)[q]; }
            TCU_UNROLL
            for (int k = 0; k < 4; k++) {
                const U kept = dropped(v.v[k], word[k], keep, scale);
                if constexpr (ADDS) {
                    to.v[k] = added(to.v[k], kept);
                } else {
                    to.v[k] = kept;
                }
            }
            ((pack_t<T, 4> *)y)[q] = to;
            continue;
        }
        for (int k = 0; k < 4; k++) {
            const int64_t i = q * 4 + k;
            if (i >= n) { continue; }
            const U kept = dropped(x[i], word[k], keep, scale);
            if constexpr (ADDS) {
                y[i] = added(more[i], kept);
            } else {
                y[i] = kept;
            }
        }
    }
}

// Of a call of dropout; drops: p is not 0.
struct dropout_t {
    rng_t rng;
    uint32_t keep;
    double scale;
    bool drops;
};

// y = dropout(x), or more + that. All are dense, and of one dtype but for x, see the kernel.
inline int drop_out_of(const place_t &at, const tensor_arg_t &y, const tensor_arg_t *more,
                       const tensor_arg_t &x, const dropout_t &d) {
    const grid_t grid = threads_for(at, (x.numel + 3) / 4);
    const void *before = more ? more->data : nullptr;
    if (!x.numel) { return 0; }
    if (x.dtype != y.dtype) {
        return by_half(x.dtype, [&](auto type) {
            typedef TCU_TYPE(type) U;
            return launch(at, grid, drop_out<float, true, U>, (float *)y.data, (const float *)before,
                          (const U *)x.data, x.numel, d.rng, d.keep, d.scale);
        });
    }
    return by_float(x.dtype, [&](auto type) {
        typedef TCU_TYPE(type) T;
        auto *kernel = more ? drop_out<T, true> : drop_out<T, false>;
        return launch(at, grid, kernel, (T *)y.data, (const T *)before, (const T *)x.data, x.numel, d.rng,
                      d.keep, d.scale);
    });
}

inline int random_real(const place_t &at, const tensor_arg_t &y, rng_t g, int kind, double a, double b,
                       double top) {
    walk_t w = walk_of(&y, 1);
    if (!w.n) { return 0; }
    if (y.dtype == TENSOR_F64) {
        return launch(at, threads_for(at, w.n), random_f64, w, (double *)y.data, g, kind, a, b, top);
    }
    float scale = (float)(kind == NORMAL ? b : b - a);
    return launch(at, threads_for(at, (w.n + 3) / 4), random_f32, w, y.data, y.dtype, g, kind, (float)a,
                  scale, (float)top);
}

inline int random_integers(const place_t &at, const tensor_arg_t &y, rng_t g, int64_t lo, int64_t hi) {
    walk_t w = walk_of(&y, 1);
    return !w.n ? 0
                : launch(at, threads_for(at, w.n), random_integer, w, y.data, y.dtype, g, lo,
                         (uint64_t)hi - (uint64_t)lo);
}

// y = 1 with probability p, else 0; or the number of events at rate p.
inline int bernoulli(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &p, rng_t g,
                     bool events = false) {
    tensor_arg_t o[2] = {y, p};
    walk_t w = walk_of(o, 2);
    auto *kernel = events ? random_counts<true> : random_counts<false>;
    return !w.n ? 0
                : launch(at, threads_for(at, w.n), kernel, w, y.data, y.dtype, (const void *)p.data, p.dtype,
                         g);
}

// ------------------------------------------------------------------------------
// >>reduce                                         MARK: reductions
//
// Two passes with the same tree for the same shape, and no atomics: a block's lanes go through a chunk of
// the reduced elements, a tree joins the lanes, and a second pass, also with many lanes per result, joins
// the chunks. There are as many chunks as keep a large device busy, whatever the device is, so results
// depend only on the shape. Lanes go along the reduced elements or along the kept ones, whichever are
// contiguous in memory, and use 16-byte accesses if they can. Rejected: atomics (other bits in every run).
// On the CPU: >>impl-reduce, >>kernel-reduce.
// ------------------------------------------------------------------------------

enum reduce_t {
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_PROD,
    REDUCE_AMAX,
    REDUCE_AMIN,
    REDUCE_ARGMAX,
    REDUCE_ARGMIN,
    REDUCE_ANY,
    REDUCE_ALL
};

template <class C> struct best_t {              // the largest or smallest; the first NaN is taken before all
    C v;
    int64_t at;
};

template <class C> struct sum_op {
    typedef C acc;
    __device__ static acc none() { return C(0); }
    __device__ static acc take(acc a, C v, int64_t) { return w_add(a, v); }
    __device__ static acc join(acc a, acc b) { return w_add(a, b); }
};

template <class C> struct prod_op {
    typedef C acc;
    __device__ static acc none() { return C(1); }
    __device__ static acc take(acc a, C v, int64_t) { return w_mul(a, v); }
    __device__ static acc join(acc a, acc b) { return w_mul(a, b); }
};

template <class C> struct any_op {
    typedef C acc;
    __device__ static acc none() { return C(0); }
    __device__ static acc take(acc a, C v, int64_t) { return C((a != 0) | (v != 0)); }
    __device__ static acc join(acc a, acc b) { return C((a != 0) | (b != 0)); }
};

template <class C> struct all_op {
    typedef C acc;
    __device__ static acc none() { return C(1); }
    __device__ static acc take(acc a, C v, int64_t) { return C((a != 0) & (v != 0)); }
    __device__ static acc join(acc a, acc b) { return C((a != 0) & (b != 0)); }
};

template <class C, bool MAX> struct best_op {
    typedef best_t<C> acc;
    __device__ static acc none() { return acc{C(0), -1}; }
    __device__ static acc join(acc a, acc b) {
        if (a.at < 0 || b.at < 0) { return a.at < 0 ? b : a; }
        bool nan_a = a.v != a.v, nan_b = b.v != b.v;
        if (nan_a || nan_b) { return nan_a && (!nan_b || a.at < b.at) ? a : b; }
        if (a.v == b.v) { return a.at < b.at ? a : b; }
        bool first = MAX ? a.v > b.v : a.v < b.v;
        return first ? a : b;
    }
    __device__ static acc take(acc a, C v, int64_t at) { return join(a, acc{v, at}); }
};

template <class C> __device__ inline void finish_to(void *y, int dtype, int64_t i, C v, C scale, bool) {
    store_as<C>(y, dtype, i, scale == C(1) ? v : w_mul(v, scale));
}

template <class C>
__device__ inline void finish_to(void *y, int dtype, int64_t i, best_t<C> v, C, bool where) {
    if (where) {
        store_as<int64_t>(y, dtype, i, v.at);
    } else {
        store_as<C>(y, dtype, i, v.v);
    }
}

struct reduce_set_t {
    walk_t kept, gone;                          // strides[0] = of x; of kept: [1] = of y
    const void *x;
    void *y, *partial;                          // partial: [splits][results], or NULL: y itself
    int from, to, lanes, across; // lanes (power of 2) per result; across: threadIdx.x along results
    int width;                                  // with across: so many neighbours are one of kept's elements
    int64_t chunk;
    bool where, flat; // flat: the reduced elements are contiguous from a 16-byte address on
};

// Joins `lanes` values that a row of threads of the block holds; all threads must call it. Lane 0 gets the
// result.
template <class OP>
__device__ inline typename OP::acc join_lanes(typename OP::acc v, typename OP::acc *s, int lane, int lanes,
                                              int step) {
    int me = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    s[me] = v;
    __syncthreads();
    for (int d = lanes / 2; d; d /= 2) {
        if (lane < d) { s[me] = OP::join(s[me], s[me + d * step]); }
        __syncthreads();
    }
    return s[me];
}

template <class T, class C, class OP>
__global__ void __launch_bounds__(THREADS, 4) reduce_pass(reduce_set_t r, C scale) {
    typedef typename OP::acc acc;
    TCU_SHARED(acc, s, [THREADS]);
    const int lane = r.across ? threadIdx.y : threadIdx.x;
    const int row = r.across ? threadIdx.x : threadIdx.y;
    const int rows = THREADS / r.lanes;
    const int64_t first = blockIdx.y * r.chunk, end = first + r.chunk < r.gone.n ? first + r.chunk : r.gone.n;
    for (int64_t o0 = (int64_t)blockIdx.x * rows; o0 < r.kept.n; o0 += (int64_t)gridDim.x * rows) {
        int64_t o = o0 + row, at[2] = {0, 0}, from[1];
        acc v = OP::none();
        if (o < r.kept.n) {
            places_of<2>(r.kept, o, at);
            int64_t base = at[0], i = first + lane, step = r.lanes;
            if constexpr (!same_type<T, void>::value) {
                constexpr int V = lanes_of<T>;
                if (r.flat) {
                    const T *x = (const T *)r.x + base;
                    for (int64_t q = first / V + lane; q < end / V; q += step) {
                        pack_t<T, V> in = ((const pack_t<T, V> *)x)[q];
                        TCU_UNROLL
                        for (int k = 0; k < V; k++) { v = OP::take(v, to_class<C>(in.v[k]), q * V + k); }
                    }
                    i = end / V * V + lane;
                }
            }
            for (; i < end; i += step) {
                places_of<1>(r.gone, i, from);
                v = OP::take(v, load_typed<T, C>(r.x, r.from, base + from[0]), i);
            }
        }
        v = join_lanes<OP>(v, s, lane, r.lanes, r.across ? rows : 1);
        if (!lane && o < r.kept.n) {
            if (r.partial) {
                ((acc *)r.partial)[blockIdx.y * r.kept.n + o] = v;
            } else {
                finish_to(r.y, r.to, at[1], v, scale, r.where);
            }
        }
        __syncthreads();
    }
}

// Across results that are contiguous, 16 bytes of them per thread: columns of a matrix, or innermost
// channels.
template <class T, class C, class OP>
__global__ void __launch_bounds__(THREADS, 2) reduce_columns(reduce_set_t r, C scale) {
    typedef typename OP::acc acc;
    constexpr int V = lanes_of<T>;
    TCU_SHARED(acc, s, [THREADS]);
    const int lane = threadIdx.y, row = threadIdx.x, rows = THREADS / r.lanes;
    const int64_t first = blockIdx.y * r.chunk, end = first + r.chunk < r.gone.n ? first + r.chunk : r.gone.n;
    for (int64_t o0 = (int64_t)blockIdx.x * rows; o0 < r.kept.n; o0 += (int64_t)gridDim.x * rows) {
        int64_t o = o0 + row, at[2] = {0, 0}, from[1];
        acc v[V];
        TCU_UNROLL
        for (int k = 0; k < V; k++) { v[k] = OP::none(); }
        if (o < r.kept.n) {
            places_of<2>(r.kept, o, at);
            TCU_UNROLL_4
            for (int64_t i = first + lane; i < end; i += r.lanes) {
                places_of<1>(r.gone, i, from);
                pack_t<T, V> in = *(const pack_t<T, V> *)((const T *)r.x + at[0] + from[0]);
                TCU_UNROLL
                for (int k = 0; k < V; k++) { v[k] = OP::take(v[k], to_class<C>(in.v[k]), i); }
            }
        }
        TCU_UNROLL
        for (int k = 0; k < V; k++) {
            v[k] = join_lanes<OP>(v[k], s, lane, r.lanes, rows);
            if (!lane && o < r.kept.n) {
                if (r.partial) {
                    ((acc *)r.partial)[(blockIdx.y * r.kept.n + o) * V + k] = v[k];
                } else {
                    finish_to(r.y, r.to, at[1] + k, v[k], scale, r.where);
                }
            }
            __syncthreads();
        }
    }
}

// Joins p: [splits][n], with lanes by threadIdx.y. Result i goes to y at the position of kept's element i /
// width.
template <class C, class OP>
__global__ void __launch_bounds__(THREADS, 4)
    reduce_partials(void *y, int dtype, walk_t kept, int width, const typename OP::acc *p, int64_t n,
                    int64_t splits, C scale, bool where) {
    typedef typename OP::acc acc;
    TCU_SHARED(acc, s, [THREADS]);
    const int lane = threadIdx.y, lanes = blockDim.y, rows = blockDim.x;
    for (int64_t i0 = (int64_t)blockIdx.x * rows; i0 < n; i0 += (int64_t)gridDim.x * rows) {
        int64_t i = i0 + threadIdx.x, at[2];
        bool there = i < n && lane < splits;
        acc v = there ? p[lane * n + i] : OP::none();
        TCU_UNROLL_4
        for (int64_t k = lane + lanes; k < splits && there; k += lanes) { v = OP::join(v, p[k * n + i]); }
        v = join_lanes<OP>(v, s, lane, lanes, rows);
        if (!lane && i < n) {
            places_of<2>(kept, i / width, at);
            finish_to(y, dtype, at[1] + i % width, v, scale, where);
        }
        __syncthreads();
    }
}

// A block takes a few contiguous results, with many lanes for each.
template <class C, class OP>
inline int launch_partials(const place_t &at, void *y, int dtype, const walk_t &kept, int width,
                                   const typename OP::acc *p, int64_t n, int64_t splits, C scale,
                                   bool where) {
    unsigned rows = 8;                          // a sector of f32
    while (rows > 1 && rows / 2 >= n) { rows /= 2; }
    unsigned lanes = THREADS / rows;
    return launch(at, {grid_for(at, n, rows), dim3(rows, lanes)}, reduce_partials<C, OP>, y, dtype, kept,
                  width, p, n, splits, scale, where);
}

// y[i] = the sum over p: [splits][n].
template <class C>
inline int sum_partials(const place_t &at, void *y, int dtype, const C *p, int64_t n,
                                int64_t splits) {
    walk_t w;
    memset(&w, 0, sizeof w);
    w.ndim = 1;
    w.n = w.dims[0] = n;
    w.strides[0][0] = w.strides[1][0] = 1;
    return launch_partials<C, sum_op<C>>(at, y, dtype, w, 1, p, n, splits, C(1), false);
}

struct reduce_plan_t {
    reduce_set_t r;
    int64_t splits;
    int dtype, compute_class;                           // of x; the class to compute in
    uint64_t scratch;
};

// Plans the reduction of x over the dims of `mask`. Everything follows from shapes, strides and limits.
inline reduce_plan_t reduce_plan(const place_t &at, const tensor_arg_t &x, uint32_t mask, int op) {
    reduce_plan_t p;
    shaped_t kept(x), gone(x), y(x);
    kept.arg.ndim = gone.arg.ndim = y.arg.ndim = 0;
    for (int d = 0; d < x.ndim; d++) {
        shaped_t &o = mask >> d & 1 ? gone : kept;
        o.dims[o.arg.ndim] = x.dims[d];
        o.strides[o.arg.ndim++] = x.strides[d];
    }

    y.arg.ndim = kept.arg.ndim;                 // contiguous
    int64_t dense = 1;
    for (int d = y.arg.ndim - 1; d >= 0; d--) {
        y.dims[d] = kept.dims[d];
        y.strides[d] = dense;
        dense *= y.dims[d];
    }

    memset((void *)&p, 0, sizeof p);
    p.r.where = op == REDUCE_ARGMAX || op == REDUCE_ARGMIN;
    tensor_arg_t both[2] = {kept.arg, y.arg};
    p.r.kept = walk_by_memory(both, 2);
    p.r.gone = p.r.where ? walk_of(&gone.arg, 1) : walk_by_memory(&gone.arg, 1);    // where: needs numbers
    p.r.x = x.data;
    p.r.from = p.dtype = x.dtype;
    p.compute_class = class_of(x.dtype);
    p.r.width = 1;
    walk_t &k = p.r.kept, &g = p.r.gone;
    int V = 16 / size_of(x.dtype);
    int64_t beside = g.ndim ? g.strides[0][g.ndim - 1] : 1;
    p.r.across = k.ndim && k.strides[0][k.ndim - 1] == 1 && beside != 1;
    p.r.flat = !p.r.across && beside == 1 && g.ndim <= 1 && aligned16(x.data);
    for (int d = 0; d < k.ndim; d++) { p.r.flat = p.r.flat && k.strides[0][d] % V == 0; }
    int last = k.ndim - 1;
    bool wide = p.r.across && !p.compute_class && k.strides[1][last] == 1 && k.dims[last] % V == 0 &&
                rows_aligned(k, 0, x.data, V);
    for (int d = 0; d < g.ndim; d++) { wide = wide && g.strides[0][d] % V == 0; }
    if (wide) {                                 // elements of V results each
        p.r.width = V;
        k.n /= V;
        k.dims[last] /= V;
        invert_dim(&k, last);
        k.strides[0][last] = k.strides[1][last] = V;
    }

    int64_t each = p.r.flat ? (g.n + V - 1) / V : g.n;
    int beside_most = 32; // with across: a warp goes along results, or fewer lanes if there are fewer
    while (beside_most > 1 && beside_most / 2 >= k.n) { beside_most /= 2; }
    p.r.lanes = p.r.across ? THREADS / beside_most : (int)THREADS;
    while (p.r.lanes > 1 && p.r.lanes / 2 >= each) { p.r.lanes /= 2; }
    int64_t blocks = (k.n + THREADS / p.r.lanes - 1) / (THREADS / p.r.lanes);
    int64_t least = at.limits.reduce_chunk, want = at.limits.reduce_blocks;
    if (p.r.across) { least = least / (THREADS / 8) > 1 ? least / (THREADS / 8) : 1; }     // counted in rows
    int64_t splits = blocks >= want ? 1 : (want + blocks - 1) / most<int64_t>(blocks, 1);
    if (splits > (g.n + least - 1) / least) { splits = (g.n + least - 1) / least; }
    if (splits < 1) { splits = 1; }
    p.r.chunk = (g.n + splits - 1) / splits;
    if (splits > 1) { p.r.chunk = (p.r.chunk + V - 1) / V * V; }
    if (p.r.chunk < 1) { p.r.chunk = 1; }
    p.splits = (g.n + p.r.chunk - 1) / p.r.chunk;
    p.splits = p.splits < 1 ? 1 : p.splits;
    int value = p.compute_class ? 8 : 4;                 // bytes of a partial result
    if (op >= REDUCE_AMAX && op <= REDUCE_ARGMIN) { value = 16; }
    p.scratch = p.splits == 1 ? 0 : (uint64_t)(p.splits * k.n * p.r.width * value);
    return p;
}

template <class T, class C, class OP>
inline int reduce_first(const place_t &at, const reduce_plan_t &p, dim3 grid, dim3 block, C scale) {
    if constexpr (!same_type<T, void>::value) {
        if (p.r.width > 1) {
            return launch(at, {grid, block}, reduce_columns<T, C, OP>, p.r, scale);
        }
    }
    return launch(at, {grid, block}, reduce_pass<T, C, OP>, p.r, scale);
}

template <class C, class OP> inline int reduce_with(const place_t &at, reduce_plan_t &p, C scale) {
    reduce_set_t &r = p.r;
    int rows = THREADS / r.lanes;
    dim3 block = r.across ? dim3((unsigned)rows, (unsigned)r.lanes) : dim3((unsigned)r.lanes, (unsigned)rows);
    dim3 grid(grid_for(at, r.kept.n, rows), (unsigned)p.splits);
    int code;
    if constexpr (same_type<C, float>::value) {
        switch (p.dtype) {
        case TENSOR_F32: code = reduce_first<float, C, OP>(at, p, grid, block, scale); break;
        case TENSOR_F16: code = reduce_first<f16, C, OP>(at, p, grid, block, scale); break;
        default: code = reduce_first<bf16, C, OP>(at, p, grid, block, scale); break;
        }
    } else {
        r.flat = false;
        code = reduce_first<void, C, OP>(at, p, grid, block, scale);
    }

    if (code || !r.partial) { return code; }
    return launch_partials<C, OP>(at, r.y, r.to, r.kept, r.width, (const typename OP::acc *)r.partial,
                                          r.kept.n * r.width, p.splits, scale, r.where);
}

template <class C> inline int reduce_class(const place_t &at, reduce_plan_t &p, int op, C scale) {
    switch (op) {
    case REDUCE_SUM: case REDUCE_MEAN: return reduce_with<C, sum_op<C>>(at, p, scale);
    case REDUCE_PROD: return reduce_with<C, prod_op<C>>(at, p, scale);
    case REDUCE_AMAX: case REDUCE_ARGMAX: return reduce_with<C, best_op<C, true>>(at, p, scale);
    case REDUCE_AMIN: case REDUCE_ARGMIN: return reduce_with<C, best_op<C, false>>(at, p, scale);
    case REDUCE_ANY: return reduce_with<C, any_op<C>>(at, p, scale);
    default: return reduce_with<C, all_op<C>>(at, p, scale);
    }
}

// Enough for any address of x: at another address its plan may be another one.
inline uint64_t reduce_scratch(const place_t &at, const tensor_arg_t &x, uint32_t mask, int op) {
    tensor_arg_t there = x;
    uint64_t most = 0;
    for (uintptr_t address : {uintptr_t(0), uintptr_t(1)}) {
        there.data = (void *)address;
        uint64_t bytes = reduce_plan(at, there, mask, op).scratch;
        most = bytes > most ? bytes : most;
    }
    return most;
}

// y (contiguous over the kept dims) = op of x over the dims in mask. ARG: index within the reduced elements.
inline int reduce(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, uint32_t mask, int op,
                  void *scratch, double scale = 1) {
    reduce_plan_t p = reduce_plan(at, x, mask, op);
    if (!p.r.kept.n) { return 0; }
    if (!p.r.gone.n && op >= REDUCE_AMAX && op <= REDUCE_ARGMIN) { return TENSOR_ERR_SHAPE; }
    p.r.y = y.data;
    p.r.to = y.dtype;
    p.r.partial = p.scratch ? scratch : nullptr;
    if (op == REDUCE_MEAN) { scale = 1.0 / (double)p.r.gone.n; }
    if (p.compute_class == 0) { return reduce_class<float>(at, p, op, (float)scale); }
    if (p.compute_class == 1) { return reduce_class<double>(at, p, op, scale); }
    return reduce_class<int64_t>(at, p, op, 1);
}

// ------------------------------------------------------------------------------
// >>rows                                           MARK: softmax, layer norm, cross entropy
//
// Contiguous rows: a power of two of threads takes a row, and short rows share a block. Each pass over a row
// reads 16 bytes per thread, from the row's first address that is a multiple of 16 on; in a second pass the
// row comes from L2. f32 inside, f64 for f64.
// On the CPU: >>impl-rows, >>kernel-rows; layer norm >>impl-norm, >>nn-kernel-norm; cross entropy
// >>impl-losses, >>nn-kernel-loss.
// ------------------------------------------------------------------------------

template <class C> struct max_op {
    typedef C acc;
    __device__ static acc join(acc a, acc b) { return w_max(a, b); }
};

struct lanes_t { int lane, lanes; };

inline int lanes_for(int64_t columns, int V) {
    int n = 8;
    while (n < THREADS && n * V < columns) { n *= 2; }
    return n;
}

// Where packs of V can be read in all rows of a kernel: `packs` of them, from element `head` on. `rest`: the
// number of elements before and behind them.
template <int V> struct wide_t {
    int64_t head, packs, rest;
    __device__ int64_t place(int64_t i) const { return i < head ? i : i + packs * V; } // the i-th of the rest
};

// y: as one more of x. Rows of one dtype that begin at different distances from such addresses have no packs.
template <class T, int N, int M>
__device__ inline wide_t<lanes_of<T>> wide_part(const T *y, const T *const *x, const class_t<T> *const *w,
                                                int64_t columns) {
    constexpr int V = lanes_of<T>;
    const uintptr_t off = (uintptr_t)x[0] % 16;
    bool same = (uintptr_t)y % 16 == off;
    for (int k = 1; k < N; k++) { same = same && (uintptr_t)x[k] % 16 == off; }
    for (int k = 0; k < M; k++) { same = same && !off && aligned16(w[k]); }
    const int64_t head = off ? (int64_t)((16 - off) / sizeof(T)) : 0;
    const int64_t packs = same && head < columns ? (columns - head) / V : 0;
    return {head, packs, columns - packs * V};
}

// Pack q of N rows from element `head` on.
template <class T, int N, int V>
__device__ inline void load_packs(pack_t<T, V> *in, const T *const *x, int64_t head, int64_t q) {
    TCU_UNROLL
    for (int k = 0; k < N; k++) { in[k] = ((const pack_t<T, V> *)(x[k] + head))[q]; }
}

// Element i of N packs, then of M weights.
template <int N, int M, class T, class C, int V>
__device__ inline void pack_values(C *v, const pack_t<T, V> *in, const pack_t<C, V> *weight, int i) {
    TCU_UNROLL
    for (int k = 0; k < N; k++) { v[k] = to_class<C>(in[k].v[i]); }
    TCU_UNROLL
    for (int k = 0; k < M; k++) { v[N + k] = weight[k].v[i]; }
}

// The same of column i, which is in no pack.
template <int N, int M, class T, class C>
__device__ inline void column_values(C *v, const T *const *x, const C *const *w, int64_t i) {
    TCU_UNROLL
    for (int k = 0; k < N; k++) { v[k] = to_class<C>(x[k][i]); }
    TCU_UNROLL
    for (int k = 0; k < M; k++) { v[N + k] = w[k][i]; }
}

// f(column, values) for a whole row, in packs if addresses allow it: the values of N inputs, then those of M
// weights, which all rows share and which have the class's dtype.
template <class T, int N, int M, class F>
__device__ inline void each_weighted(const T *const *x, const class_t<T> *const *w, int64_t columns,
                                     lanes_t l, F f) {
    constexpr int V = lanes_of<T>;
    typedef class_t<T> C;
    C v[N + M];
    const wide_t<V> wide = wide_part<T, N, M>(x[0], x, w, columns);
    for (int64_t q = l.lane; q < wide.packs; q += l.lanes) {
        pack_t<T, V> in[N];
        pack_t<C, V> weight[M + 1];
        load_packs<T, N>(in, x, wide.head, q);
        load_packs<C, M>(weight, w, 0, q);
        TCU_UNROLL
        for (int i = 0; i < V; i++) {
            pack_values<N, M>(v, in, weight, i);
            f(wide.head + q * V + i, v);
        }
    }

    for (int64_t j = l.lane; j < wide.rest; j += l.lanes) {
        const int64_t i = wide.place(j);
        column_values<N, M>(v, x, w, i);
        f(i, v);
    }
}

template <class T, int N, class F>
__device__ inline void each_in_row(const T *const *x, int64_t columns, lanes_t l, F f) {
    each_weighted<T, N, 0>(x, nullptr, columns, l, f);
}

// y[column] = f(column, values); y may be one of the inputs.
template <class T, int N, int M, class F>
__device__ inline void map_weighted(T *y, const T *const *x, const class_t<T> *const *w, int64_t columns,
                                    lanes_t l, F f) {
    constexpr int V = lanes_of<T>;
    typedef class_t<T> C;
    C v[N + M];
    const wide_t<V> wide = wide_part<T, N, M>(y, x, w, columns);
    for (int64_t q = l.lane; q < wide.packs; q += l.lanes) {
        pack_t<T, V> in[N], out;
        pack_t<C, V> weight[M + 1];
        load_packs<T, N>(in, x, wide.head, q);
        load_packs<C, M>(weight, w, 0, q);
        TCU_UNROLL
        for (int i = 0; i < V; i++) {
            pack_values<N, M>(v, in, weight, i);
            out.v[i] = from_class<T>(f(wide.head + q * V + i, v));
        }
        ((pack_t<T, V> *)(y + wide.head))[q] = out;
    }

    for (int64_t j = l.lane; j < wide.rest; j += l.lanes) {
        const int64_t i = wide.place(j);
        column_values<N, M>(v, x, w, i);
        y[i] = from_class<T>(f(i, v));
    }
}

template <class T, int N, class F>
__device__ inline void map_row(T *y, const T *const *x, int64_t columns, lanes_t l, F f) {
    map_weighted<T, N, 0>(y, x, nullptr, columns, l, f);
}

// Every thread of the row gets the joined value; all threads of the block must call it. A warp joins by
// shuffles, in which all lanes make the same tree; of a longer row each thread joins what the warps have.
template <class OP>
__device__ inline typename OP::acc row_join(typename OP::acc v, typename OP::acc *s, lanes_t l) {
    for (int d = least(l.lanes, (int)WARP) / 2; d; d /= 2) { v = OP::join(v, __shfl_xor_sync(~0u, v, d)); }
    if (l.lanes <= WARP) { return v; }
    const int warps = l.lanes / WARP, first = (int)threadIdx.y * warps;
    if (l.lane % WARP == 0) { s[first + l.lane / WARP] = v; }
    __syncthreads();
    v = s[first];
    for (int k = 1; k < warps; k++) { v = OP::join(v, s[first + k]); }
    __syncthreads();
    return v;
}

// N rows that are read several times: HOLDS, their packs stay in the registers of their threads, HELD a
// thread; otherwise each time comes from memory, whatever the row's length and address.
enum { HELD = 4 };

template <class T, bool HOLDS, int N = 1> struct row_t {
    typedef class_t<T> C;
    static constexpr int V = lanes_of<T>;
    const T *x[N];
    int64_t columns;
    lanes_t l;
    pack_t<T, V> pack[HOLDS ? HELD : 1][N];

    __device__ row_t(const T *const (&from)[N], int64_t n, lanes_t of) : columns(n), l(of) {
        TCU_UNROLL
        for (int j = 0; j < N; j++) { x[j] = from[j]; }
        if constexpr (HOLDS) {
            TCU_UNROLL
            for (int k = 0; k < HELD; k++) {
                if (at(k) < columns) { load_packs<T, N>(pack[k], x, 0, at(k) / V); }
            }
        }
    }

    __device__ int64_t at(int k) const { return (int64_t)(k * l.lanes + l.lane) * V; }

    // f(column, values): of the rows, then of M weights, which all rows share, of the class's dtype.
    template <int M = 0, class F> __device__ void each(F f, const C *const *w = nullptr) const {
        if constexpr (HOLDS) {
            TCU_UNROLL
            for (int k = 0; k < HELD; k++) {
                if (at(k) >= columns) { continue; }
                pack_t<C, V> weight[M + 1];
                load_packs<C, M>(weight, w, 0, at(k) / V);
                TCU_UNROLL
                for (int i = 0; i < V; i++) {
                    C v[N + M];
                    pack_values<N, M>(v, pack[k], weight, i);
                    f(at(k) + i, v);
                }
            }
        } else {
            each_weighted<T, N, M>(x, w, columns, l, f);
        }
    }

    // y[column] = f(column, values); y may be one of the rows
    template <int M = 0, class F> __device__ void map(T *y, F f, const C *const *w = nullptr) const {
        if constexpr (HOLDS) {
            TCU_UNROLL
            for (int k = 0; k < HELD; k++) {
                if (at(k) >= columns) { continue; }
                pack_t<C, V> weight[M + 1];
                pack_t<T, V> out;
                load_packs<C, M>(weight, w, 0, at(k) / V);
                TCU_UNROLL
                for (int i = 0; i < V; i++) {
                    C v[N + M];
                    pack_values<N, M>(v, pack[k], weight, i);
                    out.v[i] = from_class<T>(f(at(k) + i, v));
                }
                ((pack_t<T, V> *)y)[at(k) / V] = out;
            }
        } else {
            map_weighted<T, N, M>(y, x, w, columns, l, f);
        }
    }
};

// A sum of terms that are scaled by the largest element, so that nothing overflows: of e^(x - top), or of
// (x / top)^2.
template <class C> struct scaled_t { C top, sum; };

template <class C> __device__ inline C finite_or_0(C v) { return v == INFINITY || v == -INFINITY ? C(0) : v; }

// The sum of exponents for another top.
template <class C> __device__ inline C raised(const scaled_t<C> &u, C top) {
    return u.sum != 0 ? u.sum * w_exp(finite_or_0(u.top) - finite_or_0(top)) : u.sum;
}

// Top and sum of e^(x - top) of a row that is read once: the sum of a thread is for its own top, which seldom
// rises, until the threads join theirs. Of an infinite top e^x is summed.
template <class C> __device__ inline void add_exponent(scaled_t<C> &u, C v) {
    if (!(v <= u.top)) {                        // so is a NaN, which stays in the sum
        u.sum = raised(u, v);
        u.top = v;
    }
    u.sum += w_exp(v - finite_or_0(u.top));
}

template <class C> __device__ inline scaled_t<C> join_exponents(const scaled_t<C> &u, C *s, lanes_t l) {
    const C top = row_join<max_op<C>>(u.top, s, l);
    return {top, row_join<sum_op<C>>(raised(u, top), s, l)};
}

// The CPU's texts are row_softmax (f32) and tensor__f64_softmax in tensor.h; they sum in another order.
template <class T, bool HOLDS, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 3 : 4)
softmax_rows(T *y, const T *x, int64_t rows, int64_t columns, bool logs) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0;
        const row_t<T, HOLDS> row({x + r * columns}, n, l);
        scaled_t<C> u = {-INFINITY, 0};
        if constexpr (HOLDS) {
            row.each([&](int64_t, const C *v) { u.top = w_max(u.top, v[0]); });
            u.top = row_join<max_op<C>>(u.top, s, l);
            row.each([&](int64_t, const C *v) { u.sum += w_exp(v[0] - finite_or_0(u.top)); });
            u.sum = row_join<sum_op<C>>(u.sum, s, l);
        } else {
            row.each([&](int64_t, const C *v) { add_exponent(u, v[0]); });
            u = join_exponents(u, s, l);
        }
        const C from = finite_or_0(u.top);      // rows of -inf give NaN, as they should; so do those with inf
        const C sum = u.top == INFINITY ? C(NAN) : u.sum;
        const C scale = 1 / sum, offset = from + w_log(sum);
        row.map(y + r * columns,
                [&](int64_t, const C *v) { return logs ? v[0] - offset : w_exp(v[0] - from) * scale; });
    }
}

// One number for each row: log of the sum of e^x, the norm, or the variance with divisor columns -
// correction.
enum row_value_t { ROW_LOGSUMEXP, ROW_NORM, ROW_VARIANCE };

template <class C> struct moments_t { C n, mean, square; };     // square: sum of squares around the mean

template <class C> struct moments_op {
    typedef moments_t<C> acc;
    __device__ static acc none() { return acc{C(0), C(0), C(0)}; }
    __device__ static acc join(acc a, acc b) {
        C n = a.n + b.n, d = b.mean - a.mean, part = n > 0 ? b.n / n : C(0), step = d * part;
        return acc{n, a.mean + step, a.square + b.square + step * a.n * d};     // nothing of an empty one
    }
};

template <class C> struct exponents_op {
    typedef scaled_t<C> acc;
    __device__ static acc none() { return acc{C(-INFINITY), C(0)}; }
    __device__ static acc join(acc a, acc b) {
        const C top = w_max(a.top, b.top);
        return acc{top, raised(a, top) + raised(b, top)};
    }
};

template <class C> struct squares_op {
    typedef scaled_t<C> acc;
    __device__ static acc none() { return acc{C(0), C(0)}; }
    __device__ static acc join(acc a, acc b) {
        C top = w_max(a.top, b.top);
        if (a.sum != 0) { a.sum *= (a.top / top) * (a.top / top); }
        if (b.sum != 0) { b.sum *= (b.top / top) * (b.top / top); }
        return acc{top, a.sum + b.sum};
    }
};

// Row r of length n -> {columns, mean, square}, or {top, sum, 0}: what one thread of the row has to store.
template <class T, class C = class_t<T>>
__device__ inline moments_t<C> row_part(const T *x, int64_t n, int what, C *s, lanes_t l) {
    const T *row[1] = {x};
    C top = -INFINITY, sum = 0;
    if (what == ROW_LOGSUMEXP) {
        scaled_t<C> u = {-INFINITY, 0};
        each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { add_exponent(u, v[0]); });
        u = join_exponents(u, s, l);
        return moments_t<C>{u.top, u.sum, C(0)};
    }
    if (what == ROW_VARIANCE) {
        each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { sum += v[0]; });
        const C mean = row_join<sum_op<C>>(sum, s, l) / (C)n;
        sum = 0;
        each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { sum += (v[0] - mean) * (v[0] - mean); });
        return moments_t<C>{(C)n, mean, row_join<sum_op<C>>(sum, s, l)};
    }
    each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { top = w_max(top, w_abs(v[0])); });
    top = row_join<max_op<C>>(top, s, l);
    C by = top > 0 && top < INFINITY ? 1 / top : 1;
    if (!(by < INFINITY)) { by = 1; }
    each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { sum += (v[0] * by) * (v[0] * by); });
    sum = row_join<sum_op<C>>(sum, s, l);
    return moments_t<C>{sum != 0 ? 1 / by : C(0), sum, C(0)};
}

template <class C> __device__ inline C row_result(moments_t<C> v, int what, C correction) {
    if (what == ROW_NORM) { return w_sqrt(v.mean) * v.n; }
    if (what == ROW_LOGSUMEXP) { return w_log(v.mean) + finite_or_0(v.n); }
    const C left = v.n - correction;
    return v.square / (left > 0 ? left : C(0));
}

// y of rows; or, where a row is `parts` parts, what each of them gives, to `to`.
template <class T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 3 : 4)
row_values(T *y, moments_t<C> *to, const T *x, int64_t rows, int64_t columns, int64_t part, int64_t parts,
           int what, C correction) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    const int64_t all = rows * parts;
    for (int64_t q0 = (int64_t)blockIdx.x * blockDim.y; q0 < all; q0 += (int64_t)gridDim.x * blockDim.y) {
        const int64_t q = q0 + threadIdx.y, r = q / parts, first = (q - r * parts) * part;
        const int64_t n = q < all ? least(part, columns - first) : 0;
        const moments_t<C> v = row_part<T>(x + r * columns + first, n, what, s, l);
        if (q >= all || l.lane) { continue; }
        if (to) { to[q] = v; } else { y[r] = from_class<T>(row_result(v, what, correction)); }
    }
}

// The second launch for rows of several parts: a block joins those of a row.
template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
join_row_values(T *y, const moments_t<C> *from, int64_t rows, int64_t parts, int what, C correction) {
    TCU_SHARED(moments_t<C>, m, [THREADS]);
    TCU_SHARED(scaled_t<C>, s, [THREADS]);
    const int me = (int)threadIdx.x;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const moments_t<C> *row = from + r * parts;
        moments_t<C> v = moments_op<C>::none();
        if (what == ROW_VARIANCE) {
            for (int64_t j = me; j < parts; j += THREADS) { v = moments_op<C>::join(v, row[j]); }
            v = join_lanes<moments_op<C>>(v, m, me, THREADS, 1);
        } else {
            const bool norm = what == ROW_NORM;
            scaled_t<C> u = norm ? squares_op<C>::none() : exponents_op<C>::none();
            for (int64_t j = me; j < parts; j += THREADS) {
                const scaled_t<C> next = {row[j].n, row[j].mean};
                u = norm ? squares_op<C>::join(u, next) : exponents_op<C>::join(u, next);
            }
            if (norm) {
                u = join_lanes<squares_op<C>>(u, s, me, THREADS, 1);
            } else {
                u = join_lanes<exponents_op<C>>(u, s, me, THREADS, 1);
            }
            v = moments_t<C>{u.top, u.sum, C(0)};
        }
        if (!me) { y[r] = from_class<T>(row_result(v, what, correction)); }
        __syncthreads();
    }
}

// A scan along a row: how an element becomes a value, how values join, and what is stored. It never reads y,
// so the threads of a block may be at different positions.
struct scan_set_t {
    void *y, *between; // between: [rows, columns] of the class, if a scan is in two passes
    const void *x, *b;
    int to, from;
    int64_t rows, columns;
    bool back;
    // A row is `parts` parts of this length; if there are several, a first launch (`sums`) finds their
    // totals.
    int64_t part, parts;
    void *totals;
    bool sums;
};

template <class C, class OP> struct scan_of : OP {
    typedef typename OP::acc acc;
    typedef const scan_set_t &set;
    __device__ static acc load(set s, int64_t at, int64_t) { return load_as<C>(s.x, s.from, at); }
    __device__ static void store(set s, int64_t at, acc, acc v) { store_as<C>(s.y, s.to, at, v); }
};

template <class C> struct log_op {              // log(e^a + e^b); the difference of equal infinities is NaN
    typedef C acc;
    __device__ static acc none() { return -infinity<C>(); }
    __device__ static acc join(acc a, acc b) {
        C hi = b > a ? b : a;
        C lo = b > a ? a : b;
        return hi == lo && hi - lo != 0 ? hi : hi + w_log1p(w_exp(lo - hi));
    }
};

template <class C> struct line_t { C a, b; };

template <class C> struct line_scan {           // y = a + b of the y before, as the lines y -> a + b y
    typedef line_t<C> acc;
    __device__ static acc none() { return acc{C(0), C(1)}; }
    __device__ static acc join(acc p, acc q) { return acc{q.a + q.b * p.a, q.b * p.b}; }
    __device__ static acc load(const scan_set_t &s, int64_t at, int64_t i) {
        return acc{load_as<C>(s.x, s.from, at), i ? load_as<C>(s.b, s.from, at) : C(0)};
    }

    __device__ static void store(const scan_set_t &s, int64_t at, acc, acc v) {
        store_as<C>(s.y, s.to, at, v.a);
    }
};

template <class C> struct others_scan : scan_of<C, prod_op<C>> {    // those before; back: times those after
    __device__ static void store(const scan_set_t &s, int64_t at, C before, C) {
        if (s.back) {
            store_as<C>(s.y, s.to, at, w_mul(((const C *)s.between)[at], before));
        } else {
            ((C *)s.between)[at] = before;
        }
    }
};

// x[at] as an unsigned number of `bits` bits, in the order of its dtype: NaN is the largest, or 0 with
// nan_first; -0 is 0. Bits below `first` are the same in all elements.
struct order_t {
    const void *x;
    int dtype, first, bits;
    bool falling, nan_first;
};

inline order_t order_of(const tensor_arg_t &x, bool falling, bool nan_first) {
    int bits = class_of(x.dtype) == 0 ? 32 : 8 * size_of(x.dtype), first = 0;
    if (x.dtype == TENSOR_F16) { first = 12; }
    if (x.dtype == TENSOR_BF16) { first = 16; }
    return order_t{x.data, x.dtype, first, bits, falling, nan_first};
}

__device__ inline uint64_t key_of(const order_t &o, int64_t at) {
    uint64_t ones = o.bits < 64 ? (1ull << o.bits) - 1 : ~0ull, u;
    bool nan = false;
    if (o.dtype == TENSOR_F64) {
        double v = ((const double *)o.x)[at] + 0.0;
        memcpy(&u, &v, sizeof u);
        nan = v != v;
        u = u >> 63 ? ~u : u | 1ull << 63;
    } else if (o.dtype == TENSOR_F32 || o.dtype == TENSOR_F16 || o.dtype == TENSOR_BF16) {
        float v = load_as<float>(o.x, o.dtype, at) + 0.0f;
        uint32_t b = __float_as_uint(v);
        nan = v != v;
        u = b >> 31 ? ~b : b | 0x80000000u;
    } else {
        bool natural = o.dtype == TENSOR_U8 || o.dtype == TENSOR_BOOL;
        u = (uint64_t)load_as<int64_t>(o.x, o.dtype, at) + (natural ? 0 : 1ull << (o.bits - 1));
    }
    if (nan) { return o.nan_first ? 0 : ones; }
    return (o.falling ? ~u : u) & ones;
}

struct place_of_t { uint64_t key; int64_t at; };

template <bool FALLING> struct best_scan {      // the largest so far and its position, the last of ties
    typedef place_of_t acc;
    __device__ static acc none() { return acc{0, -1}; }
    __device__ static acc join(acc a, acc b) { return b.at < 0 || (a.at >= 0 && b.key < a.key) ? a : b; }
    __device__ static acc load(const scan_set_t &s, int64_t at, int64_t i) {
        return acc{key_of(order_t{s.x, s.from, 0, s.to, FALLING, false}, at), i};
    }
    __device__ static void store(const scan_set_t &s, int64_t at, acc, acc v) { ((int64_t *)s.y)[at] = v.at; }
};

// Joins the threads' values in order, from thread 0 on; all threads must call it.
template <class OP, class A> __device__ inline void scan_block(A *part, A mine) {
    const int t = (int)threadIdx.x;
    part[t] = mine;
    __syncthreads();
    for (int d = 1; d < THREADS; d *= 2) {
        A v = t >= d ? part[t - d] : OP::none();
        __syncthreads();
        part[t] = OP::join(v, part[t]);
        __syncthreads();
    }
}

// A block takes a part of a row, from the end if `back`, one tile at a time: the tile is loaded with
// contiguous accesses, each thread goes over SPAN of its elements in shared memory, and it is stored as it
// was loaded.
template <class OP> __global__ void __launch_bounds__(THREADS, 4) scan_rows(scan_set_t s) {
    typedef typename OP::acc acc;
    enum { SPAN = 4 };
    TCU_SHARED(acc, part, [THREADS]);
    TCU_SHARED(acc, tile, [THREADS * SPAN]);
    const int t = (int)threadIdx.x;
    for (int64_t u = blockIdx.x; u < s.rows * s.parts; u += gridDim.x) {
        const int64_t r = u / s.parts, p = u % s.parts, from = p * s.part;
        const int64_t to = from + s.part < s.columns ? from + s.part : s.columns;
        const int64_t row = s.back ? (r + 1) * s.columns - 1 : r * s.columns;
        const int way = s.back ? -1 : 1;
        acc carry = OP::none();                         // of what is before the tile
        if (p && !s.sums) {                             // the parts before
            const acc *total = (const acc *)s.totals + r * s.parts;
            const int64_t few = (p + THREADS - 1) / THREADS;
            acc run = OP::none();
            for (int64_t i = t * few; i < (t + 1) * few && i < p; i++) { run = OP::join(run, total[i]); }
            scan_block<OP>(part, run);
            carry = part[THREADS - 1];
            __syncthreads();
        }
        for (int64_t base = from; base < to; base += THREADS * SPAN) {
            for (int k = 0; k < SPAN; k++) {
                int64_t i = base + k * THREADS + t;
                tile[k * THREADS + t] = i < to ? OP::load(s, row + way * i, i) : OP::none();
            }

            __syncthreads();
            acc run = tile[t * SPAN];
            for (int k = 1; k < SPAN; k++) { run = OP::join(run, tile[t * SPAN + k]); }
            scan_block<OP>(part, run);
            const acc all = OP::join(carry, part[THREADS - 1]);
            run = t ? OP::join(carry, part[t - 1]) : carry;
            for (int k = 0; k < SPAN; k++) {
                run = OP::join(run, tile[t * SPAN + k]);
                tile[t * SPAN + k] = run;
            }

            __syncthreads();
            for (int k = 0; k < SPAN && !s.sums; k++) {
                const int e = k * THREADS + t;
                if (base + e >= to) { break; }
                OP::store(s, row + way * (base + e), e ? tile[e - 1] : carry, tile[e]);
            }
            carry = all;
            __syncthreads();
        }
        if (s.sums && !t) { ((acc *)s.totals)[u] = carry; }
    }
}

// dx = y (dy - sum(y dy)), or for logarithms dy - e^y sum(dy).
template <class T, bool HOLDS, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, HOLDS || same_type<C, double>::value ? 2 : 4)   // it has two rows
softmax_rows_backward(T *dx, const T *dy, const T *y, int64_t rows, int64_t columns, bool logs) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0;
        const row_t<T, HOLDS, 2> rows_of({dy + r * columns, y + r * columns}, n, l);
        C sum = 0;
        rows_of.each([&](int64_t, const C *v) { sum += logs ? v[0] : v[0] * v[1]; });
        sum = row_join<sum_op<C>>(sum, s, l);
        rows_of.map(dx + r * columns, [&](int64_t, const C *v) {
            return logs ? v[0] - w_exp(v[1]) * sum : v[1] * (v[0] - sum);
        });
    }
}

// Adds a value to n, mean and squares of a row that is read once.
template <class C> __device__ inline void add_moment(moments_t<C> &u, C v) {
    const C d = v - u.mean;
    u.n += 1;
    u.mean += d / u.n;
    u.square += d * (v - u.mean);
}

// y = (x - mean) rstd w + b; w and b may be NULL; rms: the mean counts as 0. mean, rstd: per row, kept for
// backward. w, b, mean and rstd of halves are f32.
template <class T> struct norm_of_t {
    typedef class_t<T> C;
    T *y;
    C *mean, *rstd;
    const C *w, *b;
    int64_t rows, columns;
    C eps;
    bool rms;
};

// Row r, by the threads of l. s: shared, THREADS of them.
template <class T, bool HOLDS, class C = class_t<T>>
__device__ inline void norm_row(const row_t<T, HOLDS> &row, const norm_of_t<T> &o, int64_t r, C *s,
                                lanes_t l) {
    C m = 0, square = 0;
    if (HOLDS || o.rms) {
        C sum = 0;
        if (!o.rms) {
            row.each([&](int64_t, const C *v) { sum += v[0]; });
            m = row_join<sum_op<C>>(sum, s, l) / (C)o.columns;
        }
        row.each([&](int64_t, const C *v) { square += (v[0] - m) * (v[0] - m); });
    } else {
        moments_t<C> u = {C(0), C(0), C(0)};
        row.each([&](int64_t, const C *v) { add_moment(u, v[0]); });
        m = row_join<sum_op<C>>(u.n * u.mean, s, l) / (C)o.columns;
        square = u.square + u.n * (u.mean - m) * (u.mean - m);
    }
    const C k = 1 / w_sqrt(row_join<sum_op<C>>(square, s, l) / (C)o.columns + o.eps);
    const C *weights[2] = {o.w, o.b};
    T *y = o.y + r * o.columns;
    if (o.w && o.b) {
        row.template map<2>(
            y, [&](int64_t, const C *v) { return (v[0] - m) * k * v[1] + v[2]; }, weights);
    } else if (o.w) {
        row.template map<1>(y, [&](int64_t, const C *v) { return (v[0] - m) * k * v[1]; }, weights);
    } else {
        row.map(y, [&](int64_t i, const C *v) { return (v[0] - m) * k + (o.b ? o.b[i] : C(0)); });
    }
    if (r < o.rows && !l.lane) {
        o.mean[r] = m;
        o.rstd[r] = k;
    }
}

// A row comes from memory once if it is held, else twice.
template <class T, bool HOLDS, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 3 : 4)
    layer_norm_rows(norm_of_t<T> o, const T *x) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < o.rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        const int64_t r = r0 + threadIdx.y;
        norm_row(row_t<T, HOLDS>({x + r * o.columns}, r < o.rows ? o.columns : 0, l), o, r, s, l);
    }
}

// Where rows are: `inner` of them `step` elements apart, then again from `outer` elements on. inner 0: one
// after the other.
struct lines_t {
    uint32_t inner;
    int64_t step, outer;
    __device__ int64_t at(int64_t r) const {
        return inner ? (uint32_t)r / inner * outer + (uint32_t)r % inner * step : r * step;
    }
};

// The same of sum = x + dropout(y), which is rounded first, as an op of its own would. DROPS: p is not 0. y
// may be of a half dtype where the others are f32, and its rows anywhere.
template <class T, bool DROPS, class U = T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 2 : 3)
    add_layer_norm_rows(norm_of_t<T> o, T *sum, const T *x, const U *y, lines_t lines, rng_t random,
                        uint32_t keep, double scale) {
    constexpr int V = lanes_of<T>;
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    const tensor_generator_t g = DROPS ? random.now() : tensor_generator_t();
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < o.rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        const int64_t r = r0 + threadIdx.y, n = r < o.rows ? o.columns : 0;
        const U *line = y + lines.at(r);
        row_t<T, true> row({x + r * o.columns}, n, l);
        TCU_UNROLL
        for (int k = 0; k < HELD; k++) {
            if (row.at(k) >= n) { continue; }
            const int64_t at = r * o.columns + row.at(k);
            const pack_t<U, V> more = *(const pack_t<U, V> *)(line + row.at(k));
            pack_t<T, V> out;
            uint32_t word[4];
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                if (DROPS && i % 4 == 0) { philox(g, (uint64_t)(at + i) >> 2, word); }
                U v = more.v[i];
                if (DROPS) { v = dropped(v, word[V < 4 ? (at + i) & 3 : i & 3], keep, scale); }
                out.v[i] = added(row.pack[k][0].v[i], v);
            }
            *(pack_t<T, V> *)(sum + at) = row.pack[k][0] = out;
        }
        norm_row(row, o, r, s, l);
    }
}

template <class T, bool HOLDS, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, HOLDS || same_type<C, double>::value ? 2 : 4)   // it has two rows
    layer_norm_rows_backward(T *dx, const T *dy, const T *x, const C *w, const C *mean, const C *rstd,
                             int64_t rows, int64_t columns, bool rms) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0;
        const row_t<T, HOLDS, 2> row({dy + r * columns, x + r * columns}, n, l);
        C m = n ? mean[r] : 0;
        C k = n ? rstd[r] : 0, a = 0, b = 0;
        if (w) {
            row.template each<1>(
                [&](int64_t, const C *v) {
                    a += v[0] * v[2];
                    b += v[0] * v[2] * (v[1] - m) * k;
                },
                &w);
        } else {
            row.each([&](int64_t, const C *v) {
                a += v[0];
                b += v[0] * (v[1] - m) * k;
            });
        }
        a = rms ? 0 : row_join<sum_op<C>>(a, s, l) / (C)columns;
        b = row_join<sum_op<C>>(b, s, l) / (C)columns;
        if (w) {
            row.template map<1>(
                dx + r * columns,
                [&](int64_t, const C *v) { return k * (v[0] * v[2] - a - (v[1] - m) * k * b); }, &w);
        } else {
            row.map(dx + r * columns,
                    [&](int64_t, const C *v) { return k * (v[0] - a - (v[1] - m) * k * b); });
        }
    }
}

// dx and the sums of layer_norm_weights (part, unless NULL) of rows of which a thread has a pack at most: dy
// and x come from memory once. more: what is added to dx when that is rounded, as an op of its own would; it
// may be dx; NULL = nothing. A block takes a chunk of rows.
template <class T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 2 : 3)
    layer_norm_gradients(T *dx, C *part, const T *dy, const T *x, const T *more, const C *w, const C *mean,
                         const C *rstd, int64_t rows, int64_t columns, int64_t chunk, bool rms) {
    constexpr int V = lanes_of<T>;
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    const int64_t column = (int64_t)l.lane * V, first = blockIdx.x * chunk, end = least(first + chunk, rows);
    const bool there = column < columns;
    pack_t<C, V> weight, sums[2];
    TCU_UNROLL
    for (int i = 0; i < V; i++) { weight.v[i] = C(1), sums[0].v[i] = sums[1].v[i] = C(0); }
    if (w && there) { weight = *(const pack_t<C, V> *)(w + column); }

    for (int64_t r0 = first; r0 < end; r0 += blockDim.y) {
        const int64_t r = r0 + threadIdx.y, at = r * columns + column;
        const bool on = there && r < end;
        pack_t<T, V> g, v, out;
        C m = 0, k = 0, a = 0, b = 0;
        if (on) {
            g = *(const pack_t<T, V> *)(dy + at), v = *(const pack_t<T, V> *)(x + at);
            m = mean[r], k = rstd[r];
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                const C slope = to_class<C>(g.v[i]), h = (to_class<C>(v.v[i]) - m) * k;
                a += slope * weight.v[i];
                b += slope * weight.v[i] * h;
                sums[0].v[i] += slope * h;
                sums[1].v[i] += slope;
            }
        }
        a = rms ? 0 : row_join<sum_op<C>>(a, s, l) / (C)columns;
        b = row_join<sum_op<C>>(b, s, l) / (C)columns;
        if (!on) { continue; }
        TCU_UNROLL
        for (int i = 0; i < V; i++) {
            const C h = (to_class<C>(v.v[i]) - m) * k;
            out.v[i] = from_class<T>(k * (to_class<C>(g.v[i]) * weight.v[i] - a - h * b));
        }
        if (more) {
            v = *(const pack_t<T, V> *)(more + at);
            TCU_UNROLL
            for (int i = 0; i < V; i++) {
                out.v[i] = from_class<T>(to_class<C>(v.v[i]) + to_class<C>(out.v[i]));
            }
        }
        *(pack_t<T, V> *)(dx + at) = out;
    }

    if (!part) { return; }
    TCU_UNROLL
    for (int which = 0; which < 2; which++) {                   // the sums of the threads with these columns
        TCU_UNROLL
        for (int i = 0; i < V && blockDim.y > 1; i++) {
            s[threadIdx.y * blockDim.x + threadIdx.x] = sums[which].v[i];
            __syncthreads();
            C sum = 0;
            for (int y = 0; y < (int)blockDim.y; y++) { sum += s[y * (int)blockDim.x + l.lane]; }
            sums[which].v[i] = sum;
            __syncthreads();
        }
        if (threadIdx.y || !there) { continue; }
        *(pack_t<C, V> *)(part + (which * (int64_t)gridDim.x + blockIdx.x) * columns + column) = sums[which];
    }
}

// Sums over chunks of rows: part[0] of dy xhat, part[1] of dy; [2][chunks][columns]. Threads go along
// columns. CHANNELS: the statistics are those of the columns, not of the rows.
template <class T, bool CHANNELS = false, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
layer_norm_weights(C *part, const T *dy, const T *x, const C *mean, const C *rstd, int64_t rows,
                   int64_t columns, int64_t chunk) {
    TCU_SHARED(C, s, [2][8][33]);
    int64_t c = blockIdx.x * 32ll + threadIdx.x, first = blockIdx.y * chunk,
            end = first + chunk < rows ? first + chunk : rows;
    C a = 0, b = 0;
    for (int64_t r = first + threadIdx.y; r < end && c < columns; r += 8) {
        C g = to_class<C>(dy[r * columns + c]);
        const int64_t of = CHANNELS ? c : r;
        a += g * (to_class<C>(x[r * columns + c]) - mean[of]) * rstd[of];
        b += g;
    }

    s[0][threadIdx.y][threadIdx.x] = a;
    s[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y < 2 && c < columns) {
        C sum = 0;
        for (int k = 0; k < 8; k++) { sum += s[threadIdx.y][k][threadIdx.x]; }
        part[(threadIdx.y * (int64_t)gridDim.y + blockIdx.y) * columns + c] = sum;
    }
}

// Class weights, smoothing and ignore_index as in tensor_nn.h; x are log-probabilities if `logs`. A target
// that is out of range is an error and counts as ignored.
template <class C> struct labels_t {
    const void *target;
    const C *weight;                        // of classes, NULL = 1
    int dtype;
    bool logs;
    int64_t ignored;
    C smooth;
};

template <class C> __device__ inline C weight_of(const labels_t<C> &q, int64_t label) {
    return q.weight ? q.weight[label] : C(1);
}

template <class C> struct label_sums_t { C weights, products; };       // of a row: sum of weight, of weight x

template <class T, class C>
__device__ inline label_sums_t<C> sum_labels(const T *const *row, int64_t n, const labels_t<C> &q, C *s,
                                          lanes_t l) {
    C a = 0, b = 0;
    if (q.smooth == 0) { return label_sums_t<C>{0, 0}; }       // the same for all threads
    each_in_row<T, 1>(row, n, l, [&](int64_t i, const C *v) {
        C w = q.weight ? q.weight[i] : C(1);
        a += w;
        b += w * v[0];
    });
    a = row_join<sum_op<C>>(a, s, l);
    return label_sums_t<C>{a, row_join<sum_op<C>>(b, s, l)};
}

// For each row: the loss, log sum e^x and the target's weight.
template <class T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 3 : 4)
    cross_entropy_rows(C *loss, C *weight, C *lse, const T *x, labels_t<C> q, int64_t rows,
                       int64_t columns, unsigned long long *error) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0;
        int64_t t = n ? load_as<int64_t>(q.target, q.dtype, r) : 0;
        bool bad = n && t != q.ignored && (t < 0 || t >= columns), skip = bad || t == q.ignored;
        if (bad && !l.lane) { fault(error, r); }
        const T *row[1] = {x + r * columns};
        C log_sum = 0;
        if (!q.logs) {
            scaled_t<C> u = {-INFINITY, 0};
            each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { add_exponent(u, v[0]); });
            u = join_exponents(u, s, l);
            log_sum = w_log(u.sum) + finite_or_0(u.top);
        }
        label_sums_t<C> all = sum_labels(row, n, q, s, l);
        if (!n || l.lane) { continue; }
        C w = skip ? C(0) : weight_of(q, t), y = 0;
        if (!skip) {
            y = (1 - q.smooth) * w * (log_sum - to_class<C>(row[0][t]));
            if (q.smooth > 0) { y += q.smooth / (C)columns * (log_sum * all.weights - all.products); }
        }
        lse[r] = log_sum;
        loss[r] = y;
        weight[r] = w;
    }
}

// divisor = sum of the weights; y = sum of the losses, divided by divisor for a mean. One block.
template <class C>
__global__ void __launch_bounds__(THREADS, 4)
    cross_entropy_sum(C *y, C *divisor, const C *loss, const C *weight, int64_t n,
                      bool mean) {
    TCU_SHARED(double, s, [THREADS]);
    double a = 0, b = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        a += loss[i];
        b += weight[i];
    }

    a = join_lanes<sum_op<double>>(a, s, (int)threadIdx.x, THREADS, 1);
    __syncthreads();
    b = join_lanes<sum_op<double>>(b, s, (int)threadIdx.x, THREADS, 1);
    if (threadIdx.x) { return; }
    divisor[0] = (C)b;
    if (y) { y[0] = (C)(mean ? a / b : a); }
}

// dx from g: one number, or one per row; divided by divisor[0] if there is one.
template <class T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, 4)
    cross_entropy_rows_backward(T *dx, const C *g, bool each, const C *divisor, const T *x,
                                const C *lse, labels_t<C> q, int64_t rows, int64_t columns) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0;
        int64_t t = n ? load_as<int64_t>(q.target, q.dtype, r) : 0;
        bool skip = t == q.ignored || t < 0 || t >= columns;
        const T *row[1] = {x + r * columns};
        label_sums_t<C> all = sum_labels(row, n, q, s, l);
        if (!n) { continue; }
        C by = divisor ? divisor[0] : C(1), shift = lse[r];
        by = g[each ? r : 0] / by;
        C w = skip ? 0 : by * (1 - q.smooth) * weight_of(q, t);
        C flat = by * q.smooth / (C)columns, k = q.logs ? C(0) : w + flat * all.weights;
        map_row<T, 1>(dx + r * columns, row, n, l, [&](int64_t i, const C *v) {
            if (skip) { return C(0); }
            C d = 0;
            if (!q.logs) { d = w_exp(v[0] - shift) * k - flat * weight_of(q, i); }
            return i == t ? d - w : d;
        });
    }
}

// The scores of some queries of each head, [rows, columns]: those from `first` on, `count` of them.
struct scores_t {
    int64_t rows, columns, count, first, queries;
    bool causal;                                // query t sees only the first t + 1 keys
    __device__ int64_t query(int64_t r) const { return first + r % count; }
    __device__ int64_t seen(int64_t r) const { return causal ? query(r) + 1 : columns; }
    __device__ int64_t place(int64_t r) const { return r / count * queries + query(r); }    // in lse
};

// What decides over scores beside their place: a mask, and dropout of all probabilities.
struct filter_t {
    walk_t heads;                               // of the mask
    const void *mask;                           // nullptr = none
    bool adds;                                  // or it is bool
    int64_t query_step, key_step, keys;
    dropout_t drop;
};

// One row of it. FILTERS = false: all scores as they are.
template <class C, bool FILTERS> struct filtered_t {
    __device__ filtered_t(const filter_t &, const scores_t &, int64_t, int64_t, C by) : scale(by) { }
    const C scale;
    __device__ C score(int64_t, C v) const { return v * scale; }
    __device__ C probability(int64_t, C v, C shift) const { return w_exp(v * scale - shift); }
    __device__ C kept(int64_t, C v) { return v; }
};

template <class C> struct filtered_t<C, true> {
    const filter_t &f;
    const C scale;
    const char *mask;
    int64_t first;                              // of the row, among all probabilities
    tensor_generator_t rng;
    int64_t block;                              // whose words are here, -1 = none
    uint32_t word[4];

    __device__ filtered_t(const filter_t &of, const scores_t &part, int64_t r, int64_t n, C by)
        : f(of), scale(by), mask((const char *)of.mask), block(-1) {
        if (mask && n) {
            int64_t at[1];
            places_of<1>(f.heads, r / part.count, at);
            mask += (at[0] + part.query(r) * f.query_step) * (f.adds ? (int64_t)sizeof(C) : 1);
        }
        first = part.place(r) * f.keys;
        rng = f.drop.rng.now();
    }

    __device__ C score(int64_t i, C v) const {
        v = w_mul(v, scale);
        if (!mask) { return v; }
        const int64_t at = i * f.key_step;
        if (f.adds) { return v + ((const C *)mask)[at]; }
        return mask[at] ? v : C(-INFINITY);
    }

    __device__ C probability(int64_t i, C v, C shift) const {
        return shift == -INFINITY ? C(0) : w_exp(score(i, v) - shift);
    }

    __device__ C kept(int64_t i, C v) {
        if (!f.drop.drops) { return v; }
        const int64_t e = first + i;
        if (e >> 2 != block) {
            block = e >> 2;
            philox(rng, (uint64_t)block, word);
        }
        const uint32_t low = e & 1 ? word[1] : word[0];
        const uint32_t high = e & 1 ? word[3] : word[2];
        return dropped<C>(v, e & 2 ? high : low, f.drop.keep, f.drop.scale);
    }
};

// Scores of attention become probabilities, in place.
template <class C, bool HOLDS, bool FILTERS>
__global__ void __launch_bounds__(THREADS, FILTERS ? 2 : 4)
    attention_rows(C *p, C *lse, scores_t part, C scale, filter_t filter) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    const int64_t rows = part.rows, columns = part.columns;
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0, seen = part.seen(r);
        const row_t<C, HOLDS> row({p + r * columns}, n, l);
        filtered_t<C, FILTERS> of(filter, part, r, n, scale);
        C top = -INFINITY, sum = 0;
        row.each([&](int64_t i, const C *v) {
            if (i < seen) { top = w_max(top, of.score(i, v[0])); }
        });
        top = row_join<max_op<C>>(top, s, l);
        C shift = top == -INFINITY ? 0 : top;
        row.each([&](int64_t i, const C *v) {
            if (i < seen) { sum += of.probability(i, v[0], shift); }
        });
        sum = row_join<sum_op<C>>(sum, s, l);
        C by = sum > 0 ? 1 / sum : sum;
        row.map(p + r * columns, [&](int64_t i, const C *v) {
            return i < seen ? of.kept(i, of.probability(i, v[0], shift) * by) : C(0);
        });
        if (n && !l.lane) { lse[part.place(r)] = w_log(sum) + shift; }
    }
}

// p: scores, which become probabilities, those that are dropped 0; d: their gradients, which become those of
// the scores.
template <class C, bool FILTERS>
__global__ void __launch_bounds__(THREADS, FILTERS ? 2 : 4)
    attention_rows_backward(C *p, C *d, const C *lse, scores_t part, C scale, filter_t filter) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    const int64_t rows = part.rows, columns = part.columns;
    for (int64_t r0 = (int64_t)blockIdx.x * blockDim.y; r0 < rows; r0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t r = r0 + threadIdx.y, n = r < rows ? columns : 0, seen = part.seen(r);
        const C *in[2] = {p + r * columns, d + r * columns}, *one[1] = {p + r * columns};
        C sum = 0, shift = n ? lse[part.place(r)] : 0;
        filtered_t<C, FILTERS> of(filter, part, r, n, scale);
        each_in_row<C, 2>(in, n, l, [&](int64_t i, const C *v) {
            if (i < seen) { sum += of.probability(i, v[0], shift) * of.kept(i, v[1]); }
        });
        sum = row_join<sum_op<C>>(sum, s, l);
        map_row<C, 2>(d + r * columns, in, n, l, [&](int64_t i, const C *v) {
            return i < seen ? of.probability(i, v[0], shift) * (of.kept(i, v[1]) - sum) * scale : C(0);
        });
        map_row<C, 1>(p + r * columns, one, n, l, [&](int64_t i, const C *v) {
            return i < seen ? of.kept(i, of.probability(i, v[0], shift)) : C(0);
        });
    }
}

// Attention with one query per head, as in decoding: scores never leave the block. A block takes a head, a
// warp every WARPS-th key, a lane some elements of a key. Each warp keeps its own largest score, sum and sum
// of values, and the block joins these. K and V may be laid out as in a cache: contiguous elements, keys and
// heads anywhere.
enum { ONE_MOST = 256, ONE_EACH = ONE_MOST / 32 };              // elements of a query or value; of a lane
struct one_query_t {
    walk_t heads;                               // of y, q, k, v
    void *y, *lse;
    const void *q, *k, *v;
    int64_t keys, e, ev, key_step, value_step;
    double scale;
};

template <class C> __device__ inline C warp_sum(C v) {
    for (int d = 16; d; d /= 2) { v += __shfl_xor_sync(~0u, v, d); }
    return v;
}

template <class T, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, 2) attention_one(one_query_t a) {
    enum { WARPS = THREADS / 32 };
    TCU_SHARED(C, sum_of, [WARPS][ONE_MOST]);
    TCU_SHARED(C, top_of, [WARPS]);
    TCU_SHARED(C, weight_of_warp, [WARPS]);
    const int w = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int64_t h = blockIdx.x; h < a.heads.n; h += gridDim.x) {
        int64_t at[4];
        places_of<4>(a.heads, h, at);
        const T *q = (const T *)a.q + at[1], *k = (const T *)a.k + at[2], *v = (const T *)a.v + at[3];
        C query[ONE_EACH], sum[ONE_EACH], top = -INFINITY, weights = 0;
        TCU_UNROLL
        for (int i = 0; i < ONE_EACH; i++) {
            int64_t e = i * 32 + lane;
            query[i] = e < a.e ? to_class<C>(q[e]) * (C)a.scale : C(0);
            sum[i] = 0;
        }
        for (int64_t j = w; j < a.keys; j += WARPS) {
            C score = 0;
            TCU_UNROLL
            for (int i = 0; i < ONE_EACH; i++) {
                int64_t e = i * 32 + lane;
                if (e < a.e) { score += query[i] * to_class<C>(k[j * a.key_step + e]); }
            }
            score = warp_sum(score);
            C above = score > top || score != score ? score : top;
            C left = above == -INFINITY ? C(1) : w_exp(top - above), weight = w_exp(score - above);
            if (above == -INFINITY) { weight = 0; }
            top = above;
            weights = weights * left + weight;
            TCU_UNROLL
            for (int i = 0; i < ONE_EACH; i++) {
                int64_t e = i * 32 + lane;
                if (e < a.ev) { sum[i] = sum[i] * left + weight * to_class<C>(v[j * a.value_step + e]); }
            }
        }

        for (int i = 0; i < ONE_EACH; i++) { sum_of[w][i * 32 + lane] = sum[i]; }
        if (!lane) {
            top_of[w] = top;
            weight_of_warp[w] = weights;
        }
        __syncthreads();
        C highest = -INFINITY, all = 0, y = 0;
        for (int i = 0; i < WARPS; i++) { highest = top_of[i] > highest ? top_of[i] : highest; }
        for (int i = 0; i < WARPS; i++) {
            C part = top_of[i] == -INFINITY ? C(0) : w_exp(top_of[i] - highest);
            all += weight_of_warp[i] * part;
            y += sum_of[i][threadIdx.x] * part;
        }
        if ((int64_t)threadIdx.x < a.ev) { ((T *)a.y)[at[0] + threadIdx.x] = from_class<T>(y / all); }
        if (!threadIdx.x) { ((C *)a.lse)[h] = w_log(all) + highest; }
        __syncthreads();
    }
}

#define TCU_FLOATS(dtype, T, code)                                                                           \
    switch (dtype) {                                                                                         \
    case TENSOR_F32: { typedef float T; code } break;                                                        \
    case TENSOR_F16: { typedef f16 T; code } break;                                                          \
    case TENSOR_BF16: { typedef bf16 T; code } break;                                                        \
    case TENSOR_F64: { typedef double T; code } break;                                                       \
    default: return TENSOR_ERR_UNSUPPORTED;                                                                  \
    }
// Threads for rows with so many columns, V of them per access: see lanes_for.
inline grid_t rows_for(const place_t &at, int64_t rows, int64_t columns, int V) {
    unsigned lanes = (unsigned)lanes_for(columns, V), high = THREADS / lanes;
    return {grid_for(at, rows, high), dim3(lanes, high)};
}

// The same for kernels with a row_t. *holds: allowed before, done after.
template <class T>
inline grid_t held_rows_for(const place_t &at, const T *x, int64_t rows, int64_t columns, bool *holds) {
    constexpr int V = lanes_of<T>;
    *holds = *holds && aligned16(x) && columns % V == 0 && columns <= (int64_t)THREADS * HELD * V;
    return rows_for(at, rows, columns, *holds && rows >= at.limits.held_rows ? V * HELD : V);
}

// All operands contiguous, rows x columns.
inline int softmax(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, int64_t rows,
                   int64_t columns, bool logs) {
    if (!rows || !columns) { return 0; }
    TCU_FLOATS(x.dtype, T,
               bool holds = aligned16(y.data);
               const grid_t g = held_rows_for<T>(at, (const T *)x.data, rows, columns, &holds);
               return launch(at, g, holds ? softmax_rows<T, true> : softmax_rows<T, false>, (T *)y.data,
                             (const T *)x.data, rows, columns, logs);)
    return 0;
}

// Divides a few long rows, at the same positions on every device. -> length of a part
inline int64_t value_part(const place_t &at, int64_t rows, int64_t columns) {
    const int64_t shortest = ((columns + 1023) / 1024 + 15) & ~(int64_t)15;
    const int64_t part = most(at.limits.value_part, shortest);
    return rows >= 256 || columns <= 2 * part ? most<int64_t>(columns, 1) : part;
}

inline uint64_t value_scratch(const place_t &at, int64_t rows, int64_t columns) {   // for what the parts give
    const int64_t part = value_part(at, rows, columns), parts = (columns + part - 1) / part;
    return parts > 1 ? (uint64_t)(rows * parts) * sizeof(moments_t<double>) : 0;
}

inline int row_value(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, int64_t rows,
                     int64_t columns, int what, double correction, void *scratch) {
    if (!rows) { return 0; }
    const int64_t part = value_part(at, rows, columns), parts = scratch ? (columns + part - 1) / part : 1;
    const grid_t g = rows_for(at, rows * parts, scratch ? part : columns, 16 / size_of(x.dtype));
    TCU_FLOATS(x.dtype, T, {
        typedef class_t<T> C;
        moments_t<C> *between = (moments_t<C> *)scratch;
        int code = launch(at, g, row_values<T>, (T *)y.data, between, (const T *)x.data, rows, columns,
                          scratch ? part : columns, parts, what, (C)correction);
        if (code || !scratch) { return code; }
        return launch(at, {grid_for(at, rows, 1), THREADS}, join_row_values<T>, (T *)y.data,
                      (const moments_t<C> *)between, rows, parts, what, (C)correction);
    })
    return 0;
}

enum scan_t { SCAN_SUM, SCAN_PROD, SCAN_LOG, SCAN_LINE, SCAN_OTHERS, SCAN_MAX, SCAN_MIN };

// Divides a few long rows, at the same positions on every device. -> length of a part
inline int64_t scan_part(const place_t &at, int64_t rows, int64_t columns) {
    int64_t part = at.limits.scan_part, shortest = (columns + 1023) / 1024;
    return rows >= 256 || columns <= 2 * part ? columns : most(part, shortest);
}

inline uint64_t scan_scratch(const place_t &at, int64_t rows, int64_t columns) {    // for its totals
    int64_t parts = (columns + scan_part(at, rows, columns) - 1) / scan_part(at, rows, columns);
    return parts > 1 ? (uint64_t)(rows * parts) * 16 : 0;
}

template <class OP> inline int scan_with(const place_t &at, scan_set_t s) {
    static_assert(sizeof(typename OP::acc) <= 16, "scan_scratch");
    s.part = s.totals ? scan_part(at, s.rows, s.columns) : s.columns;
    s.parts = (s.columns + s.part - 1) / s.part;
    s.sums = s.parts > 1;
    const grid_t grid = blocks_for(at, s.rows * s.parts);
    int code = s.sums ? launch(at, grid, scan_rows<OP>, s) : 0;
    s.sums = false;
    return code ? code : launch(at, grid, scan_rows<OP>, s);
}

template <class C> inline int scan_class(const place_t &at, int what, scan_set_t s) {
    if (what == SCAN_SUM) { return scan_with<scan_of<C, sum_op<C>>>(at, s); }
    if (what == SCAN_PROD) { return scan_with<scan_of<C, prod_op<C>>>(at, s); }
    if constexpr (!same_type<C, int64_t>::value) {
        if (what == SCAN_LOG) { return scan_with<scan_of<C, log_op<C>>>(at, s); }
        if (what == SCAN_LINE) { return scan_with<line_scan<C>>(at, s); }
        int code = scan_with<others_scan<C>>(at, s);
        s.back = true;
        return code ? code : scan_with<others_scan<C>>(at, s);
    }
    return TENSOR_ERR_UNSUPPORTED;
}

// Scans rows of contiguous x; totals: of scan_scratch bytes; b: the factors of SCAN_LINE; scratch: for
// SCAN_OTHERS, 8 bytes per element.
inline int scan(const place_t &at, int what, const tensor_arg_t &y, const tensor_arg_t &x, int64_t rows,
                int64_t columns, bool back, void *totals, const void *b = nullptr, void *scratch = nullptr) {
    if (!rows || !columns) { return 0; }
    scan_set_t s = {y.data, scratch, x.data, b, y.dtype, x.dtype, rows, columns, back, 0, 0, totals, false};
    if (what == SCAN_MAX || what == SCAN_MIN) {
        s.to = order_of(x, false, false).bits;
        return what == SCAN_MIN ? scan_with<best_scan<true>>(at, s) : scan_with<best_scan<false>>(at, s);
    }
    return by_class(y.dtype, [&](auto type) { return scan_class<TCU_TYPE(type)>(at, what, s); });
}

inline int softmax_backward(const place_t &at, const tensor_arg_t &dx, const tensor_arg_t &dy,
                            const tensor_arg_t &y, int64_t rows, int64_t columns, bool logs) {
    if (!rows || !columns) { return 0; }
    TCU_FLOATS(y.dtype, T,
               bool holds = aligned16(dx.data) && aligned16(dy.data);
               const grid_t g = held_rows_for<T>(at, (const T *)y.data, rows, columns, &holds);
               return launch(at, g, holds ? softmax_rows_backward<T, true> : softmax_rows_backward<T, false>,
                             (T *)dx.data, (const T *)dy.data, (const T *)y.data, rows, columns, logs);)
    return 0;
}

inline int layer_norm(const place_t &at, const tensor_arg_t &y, void *mean, void *rstd,
                      const tensor_arg_t &x, const void *w, const void *b, int64_t rows, int64_t columns,
                      double eps, bool rms) {
    if (!rows || !columns) { return 0; }
    bool holds = aligned16(y.data) && aligned16(w) && aligned16(b);
    return by_float(x.dtype, [&](auto type) {
        typedef TCU_TYPE(type) T;
        typedef class_t<T> C;
        const grid_t g = held_rows_for<T>(at, (const T *)x.data, rows, columns, &holds);
        const norm_of_t<T> o = {(T *)y.data, (C *)mean, (C *)rstd, (const C *)w, (const C *)b, rows, columns,
                                (C)eps, rms};
        return launch(at, g, holds ? layer_norm_rows<T, true> : layer_norm_rows<T, false>, o,
                      (const T *)x.data);
    });
}

// Whether a's rows may be read V elements at a time; where they are.
inline bool lines_of(const tensor_arg_t &a, int64_t rows, int64_t columns, int64_t V, lines_t *lines) {
    *lines = {0, columns, 0};
    if (a.contiguous) { return true; }
    if (a.ndim != 3 || a.dims[2] != columns || a.strides[2] != 1 || rows > INT32_MAX) { return false; }
    *lines = {(uint32_t)a.dims[1], a.strides[1], a.strides[0]};
    return a.strides[0] % V == 0 && a.strides[1] % V == 0;
}

// sum = x + dropout(y), and its layer norm y -> UNSUPPORTED where no block holds a row
inline int add_layer_norm(const place_t &at, const tensor_arg_t &sum, const tensor_arg_t &y, void *mean,
                          void *rstd, const tensor_arg_t &x, const tensor_arg_t &more, const void *w,
                          const void *b, int64_t rows, int64_t columns, double eps, const dropout_t &d) {
    const void *const all[5] = {y.data, w, b, sum.data, more.data};
    bool holds = true;
    for (const void *p : all) { holds = holds && aligned16(p); }
    return by_float(x.dtype, [&](auto type) {
        typedef TCU_TYPE(type) T;
        typedef class_t<T> C;
        lines_t lines;
        const grid_t g = held_rows_for<T>(at, (const T *)x.data, rows, columns, &holds);
        const norm_of_t<T> o = {(T *)y.data, (C *)mean, (C *)rstd, (const C *)w, (const C *)b, rows, columns,
                                (C)eps, false};
        holds = holds && lines_of(more, rows, columns, lanes_of<T>, &lines);
        if (!holds) { return (int)TENSOR_ERR_UNSUPPORTED; }
        auto run = [&](auto *kernel, const auto *from) {
            return launch(at, g, kernel, o, (T *)sum.data, (const T *)x.data, from, lines, d.rng, d.keep,
                          d.scale);
        };
        if constexpr (same_type<T, float>::value) {
            if (more.dtype != x.dtype) {
                return by_half(more.dtype, [&](auto narrow) {
                    typedef TCU_TYPE(narrow) U;
                    return run(d.drops ? add_layer_norm_rows<T, true, U> : add_layer_norm_rows<T, false, U>,
                               (const U *)more.data);
                });
            }
        }
        return run(d.drops ? add_layer_norm_rows<T, true> : add_layer_norm_rows<T, false>,
                   (const T *)more.data);
    });
}

// Rows that one block sums for the gradients of weight and bias: part of the result's definition.
inline int64_t norm_chunk(const place_t &at, int64_t rows, int64_t columns, int dtype) {
    const int64_t at_once = THREADS / lanes_for(columns, 16 / size_of(dtype));
    int64_t chunk = least(at.limits.norm_chunk, most(2 * at_once, (rows + 255) / 256));
    while ((rows + chunk - 1) / chunk > 65535) { chunk *= 2; }
    return chunk;
}

inline uint64_t layer_norm_scratch(const place_t &at, int64_t rows, int64_t columns, int dtype) {
    const int64_t chunk = norm_chunk(at, most<int64_t>(rows, 1), columns, dtype);
    return (uint64_t)(2 * ((rows + chunk - 1) / chunk) * columns) * sizeof(double);
}

// Whether layer_norm_gradients takes the call, which then may add to what is in dx.
inline bool norm_packs(const tensor_arg_t &dx, const tensor_arg_t &dy, const tensor_arg_t &x, const void *w,
                       int64_t columns) {
    const int64_t V = 16 / size_of(x.dtype);
    return columns % V == 0 && columns <= THREADS * V && aligned16((const char *)dx.data) &&
           aligned16((const char *)dy.data) && aligned16((const char *)x.data) && aligned16((const char *)w);
}

// dweight and dbias of a norm from the sums of its chunks.
template <class C>
static int join_norm_weights(const place_t &at, void *dw, void *db, const C *part, int64_t columns,
                             int64_t chunks) {
    const int wide = sizeof(C) == 8 ? (int)TENSOR_F64 : (int)TENSOR_F32;
    const int code = sum_partials(at, dw, wide, part, columns, chunks);
    return code ? code : sum_partials(at, db, wide, part + chunks * columns, columns, chunks);
}

// dw and db may be NULL (both or neither); they and w have the class's dtype. adds: see norm_packs.
template <class T>
static int layer_norm_backward_of(const place_t &at, const tensor_arg_t &dx, void *dw, void *db,
                                  const tensor_arg_t &dy, const tensor_arg_t &x, const void *w,
                                  const void *mean, const void *rstd, int64_t rows, int64_t columns, bool rms,
                                  void *scratch, bool adds) {
    typedef class_t<T> C;
    const int64_t chunk = norm_chunk(at, rows, columns, x.dtype), chunks = (rows + chunk - 1) / chunk;
    const T *g = (const T *)dy.data, *v = (const T *)x.data;
    const C *weight = (const C *)w, *m = (const C *)mean, *k = (const C *)rstd;
    C *part = (C *)scratch;
    T *to = (T *)dx.data;
    const T *before = adds ? to : nullptr;
    int code;
    if (norm_packs(dx, dy, x, w, columns)) {
        const unsigned lanes = (unsigned)lanes_for(columns, lanes_of<T>);
        code = launch(at, {dim3((unsigned)chunks), dim3(lanes, THREADS / lanes)}, layer_norm_gradients<T>, to,
                      dw ? part : nullptr, g, v, before, weight, m, k, rows, columns, chunk, rms);
    } else {
        bool holds = aligned16(to) && aligned16(g) && aligned16(weight);
        const grid_t grid = held_rows_for<T>(at, v, rows, columns, &holds);
        auto *kernel = holds ? layer_norm_rows_backward<T, true> : layer_norm_rows_backward<T, false>;
        code = launch(at, grid, kernel, to, g, v, weight, m, k, rows, columns, rms);
        if (!code && dw) {
            code = launch(at, {dim3((unsigned)((columns + 31) / 32), (unsigned)chunks), dim3(32, 8)},
                          layer_norm_weights<T>, part, g, v, m, k, rows, columns, chunk);
        }
    }

    return code || !dw ? code : join_norm_weights(at, dw, db, part, columns, chunks);
}

// Gradients of weight and bias with fixed statistics of the channels, which are the columns of dy and x.
template <class T, class C = class_t<T>>
static int channel_gradients(const place_t &at, void *dw, void *db, const tensor_arg_t &dy,
                             const tensor_arg_t &x, const void *mean, const void *rstd, int64_t rows,
                             int64_t columns, void *scratch) {
    const int64_t chunk = norm_chunk(at, rows, columns, x.dtype), chunks = (rows + chunk - 1) / chunk;
    const int code = launch(at, {dim3((unsigned)((columns + 31) / 32), (unsigned)chunks), dim3(32, 8)},
                            layer_norm_weights<T, true>, (C *)scratch, (const T *)dy.data, (const T *)x.data,
                            (const C *)mean, (const C *)rstd, rows, columns, chunk);
    return code ? code : join_norm_weights(at, dw, db, (const C *)scratch, columns, chunks);
}

inline int layer_norm_backward(const place_t &at, const tensor_arg_t &dx, void *dw, void *db,
                               const tensor_arg_t &dy, const tensor_arg_t &x, const void *w,
                               const void *mean, const void *rstd, int64_t rows, int64_t columns, bool rms,
                               void *scratch, bool adds = false) {
    if (!rows || !columns) { return 0; }
    TCU_FLOATS(x.dtype, T,
               return layer_norm_backward_of<T>(at, dx, dw, db, dy, x, w, mean, rstd, rows, columns, rms,
                                                scratch, adds);)
    return 0;
}

// All of x's class, contiguous. each: the loss of every row (in scratch if the sum is wanted); y NULL: no
// sum.
template <class T, class C>
inline int cross_entropy(const place_t &at, C *y, C *each, C *weight, C *lse, C *divisor, const T *x,
                         const labels_t<C> &q, int64_t rows, int64_t columns, bool mean) {
    grid_t g = rows_for(at, rows, columns, 16 / (int)sizeof(T));
    int code = 0;
    if (rows && columns) {
        code = launch(at, g, cross_entropy_rows<T>, each, weight, lse, x, q, rows, columns, at.error);
    }
    if (code) { return code; }
    const int64_t summed = columns ? rows : 0;
    return launch(at, {1, THREADS}, cross_entropy_sum<C>, y, divisor, (const C *)each, (const C *)weight,
                  summed, mean);
}

// ------------------------------------------------------------------------------
// >>index                                          MARK: gather, scatter, embedding
//
// Indices are checked where they are read: an index that is out of range is clamped, so that nothing else is
// touched, and noted in the error word. Sums at repeated indices are deterministic: a stable radix sort
// brings the sources of one result together, threads add pieces of them in their order, and a fixed tree
// adds the pieces. Rejected: float atomics.
// On the CPU: >>impl-index, >>impl-embedding.
// ------------------------------------------------------------------------------

__device__ inline int64_t checked(int64_t i, int64_t size, int64_t position, unsigned long long *error) {
    if (i >= 0 && i < size) { return i; }
    fault(error, position);
    return i < 0 ? 0 : size - 1;
}

// y[.. i ..] = x[.. index[.. i ..] ..]; x is walked with stride 0 along dim; that dim's stride and size are
// separate parameters.
template <class T> __global__ void __launch_bounds__(THREADS, 4)
gather_any(walk_t w, T *y, const void *index, int dtype, const T *x, int64_t stride, int64_t size,
           unsigned long long *error) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[3];
        places_of<3>(w, i, at);
        y[at[0]] = x[at[2] + stride * checked(load_as<int64_t>(index, dtype, at[1]), size, i, error)];
    }
}

// Rows of `width` pieces: y[i] = x[index[i]], 0 where the index is `padding`.
enum : int64_t { NO_PADDING = INT64_MIN };

template <class T> __global__ void __launch_bounds__(THREADS, 4)
select_rows(T *y, const void *index, int dtype, const T *x, int64_t n, int64_t width, int64_t rows,
             int64_t padding, unsigned long long *error) {
    for (int64_t i = thread_index(); i < n * width; i += thread_count()) {
        int64_t r = i / width, c = i - r * width, from = load_as<int64_t>(index, dtype, r);
        T v = x[checked(from, rows, r, error) * width + c];
        y[i] = from == padding ? T{} : v;
    }
}

// The flat positions that up to three broadcast indices name; index k is below size[k], negative ones count
// from the end.
struct sizes_t { int64_t n[POINTWISE_OPERANDS]; };

__global__ void __launch_bounds__(THREADS, 4)
flat_places(walk_t w, int64_t *y, any_set_t s, sizes_t size, unsigned long long *error) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[POINTWISE_OPERANDS], place = 0;
        bool bad = false;
        places_of<POINTWISE_OPERANDS>(w, i, at);
        for (int k = 0; k < s.arity; k++) {
            int64_t v = load_as<int64_t>(s.p[k + 1], s.dtype[k + 1], at[k + 1]), n = size.n[k];
            v = v < 0 ? v + n : v;
            bad |= v < 0 || v >= n;
            place = place * n + checked(v, n, i, error);
        }
        y[at[0]] = bad ? -1 : place;            // nothing is written there
    }
}

// The position in y of element i of a scatter, as if y were contiguous, and the order of the sources. index
// NULL: the position is that of the walk. An index that is `padding` or out of range goes to `places`, after
// all others, where nothing is written.
__global__ void __launch_bounds__(THREADS, 4)
scatter_keys(uint64_t *key, int *order, walk_t w, const void *index, int dtype, int64_t stride, int64_t size,
             int64_t padding, int64_t places, unsigned long long *error) {
    for (int64_t i = thread_index(); i < w.n; i += thread_count()) {
        int64_t at[2];
        places_of<2>(w, i, at);
        if (index) {
            int64_t to = load_as<int64_t>(index, dtype, at[0]);
            const bool bad = to != padding && (to < 0 || to >= size);
            if (bad) { fault(error, i); }
            at[1] = bad || to == padding ? places : at[1] + stride * to;
        }
        key[i] = (uint64_t)at[1];
        order[i] = (int)i;
    }
}

// Stable radix sort of (key, order), eight bits per pass; a block takes TILE neighbours, a thread EACH. K: of
// the keys, 32 bits where they suffice, which is a third less to move.
enum { RADIX_BITS = 8, RADIX = 1 << RADIX_BITS, EACH = 8, TILE = THREADS * EACH, PASSES = 64 / RADIX_BITS };

static_assert((int)RADIX == (int)THREADS, "a thread a digit");
__device__ inline int digit_of(uint64_t key, int shift) { return (int)(key >> shift) & (RADIX - 1); }

// Exclusive running sum of n counts, in place, by the THREADS threads of a block; part: THREADS counts.
__device__ inline void block_scan(int *count, int n, int *part) {
    int t = (int)threadIdx.x, each = (n + THREADS - 1) / THREADS, sum = 0;
    for (int i = t * each; i < (t + 1) * each && i < n; i++) { sum += count[i]; }
    part[t] = sum;
    __syncthreads();
    for (int d = 1; d < THREADS; d *= 2) {
        int v = t >= d ? part[t - d] : 0;
        __syncthreads();
        part[t] += v;
        __syncthreads();
    }
    int before = t ? part[t - 1] : 0;
    for (int i = t * each; i < (t + 1) * each && i < n; i++) {
        int v = count[i];
        count[i] = before;
        before += v;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS, 4) sum_counts(int *total, int n) {    // one block
    TCU_SHARED(int, part, [THREADS]);
    block_scan(total, n, part);
}

// Counts how many keys have each digit, for all passes at once: bins[pass][digit].
template <class K> __global__ void __launch_bounds__(THREADS, 4)
    radix_bins(int *bins, const K *key, int64_t n, int first, int passes) {
    TCU_SHARED(int, count, [PASSES][RADIX]);
    const int t = (int)threadIdx.x;
    for (int p = 0; p < passes; p++) { count[p][t] = 0; }
    __syncthreads();
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        const K k = key[i];
        for (int p = 0; p < passes; p++) { atomicAdd(&count[p][digit_of(k, first + p * RADIX_BITS)], 1); }
    }

    __syncthreads();
    for (int p = 0; p < passes; p++) {
        if (count[p][t]) { atomicAdd(&bins[p * RADIX + t], count[p][t]); }
    }
}

// Computes from the counts of a pass where each digit begins; one block per pass.
__global__ void __launch_bounds__(THREADS, 4) radix_starts(int *bins) {
    TCU_SHARED(int, part, [THREADS]);
    block_scan(bins + blockIdx.x * RADIX, RADIX, part);
}

// A tile's word for a digit: how many of its own keys have it (stamp 2 pass + 1), later how many of the keys
// of this tile and of all tiles before it have it (2 pass + 2). An older stamp means that the word is not
// written yet. -> the sum before `tile`. It waits for tiles with lower tickets, which are therefore running
// already.
enum { STAMP_BITS = 40 };
__device__ inline uint64_t stamped(int pass, bool all, int64_t count) {
    return (uint64_t)(2 * pass + 1 + all) << STAMP_BITS | (uint64_t)count;
}

__device__ inline int64_t digits_before(unsigned long long *state, int tile, int digit, int pass, int count) {
    int64_t sum = 0;
    unsigned long long *own = &state[(int64_t)tile * RADIX + digit];
    if (tile) { atomicExch(own, (unsigned long long)stamped(pass, false, count)); }
    for (int64_t q = tile - 1; q >= 0;) {
        uint64_t word = TCU_SEEN(&state[q * RADIX + digit]);
        int stamp = (int)(word >> STAMP_BITS);
        if (stamp <= 2 * pass) { continue; }
        sum += (int64_t)(word & ((1ull << STAMP_BITS) - 1));
        if (stamp == 2 * pass + 2) { break; }
        q--;
    }
    atomicExch(own, (unsigned long long)stamped(pass, true, sum + count));
    return sum;
}

// Sorts all keys by one digit, in one launch (decoupled look-back). A warp takes 32 EACH neighbours, 32 at a
// time, so that its lanes' keys are contiguous. Keys are written through shared memory, so that keys with
// the same digit are contiguous too.
template <class K> __global__ void __launch_bounds__(THREADS, 4)
    radix_pass(K *to_key, int *to, const K *key, const int *order, const int *bins,
               unsigned long long *state, unsigned *ticket, int64_t n, int first, int pass) {
    enum { WARPS = THREADS / 32 };
    TCU_SHARED(int, count, [WARPS][RADIX]);
    TCU_SHARED(int, part, [THREADS]);
    TCU_SHARED(int, start, [RADIX]);
    TCU_SHARED(int64_t, base, [RADIX]);
    TCU_SHARED(K, moved_key, [TILE]);
    TCU_SHARED(int, moved, [TILE]);
    TCU_SHARED(unsigned, mine, [1]);
    const int t = (int)threadIdx.x, w = t / 32, lane = t % 32, shift = first + pass * RADIX_BITS;
    if (!t) { mine[0] = atomicAdd(ticket, 1u); }
    for (int k = 0; k < WARPS; k++) { count[k][t] = 0; }
    __syncthreads();
    const int tile = (int)mine[0];
    const int64_t from = (int64_t)tile * TILE + w * 32 * EACH + lane;
    K own[EACH];
    int rank[EACH];                             // among the warp's keys of the digit
    for (int k = 0; k < EACH; k++) {
        int64_t i = from + k * 32;
        own[k] = i < n ? key[i] : (K)~0ull;
        int d = digit_of(own[k], shift);
        unsigned peers = __match_any_sync(~0u, i < n ? d : -1);
        int had = i < n ? count[w][d] : 0;
        __syncwarp();
        rank[k] = had + __popc(peers & ((1u << lane) - 1));
        if (i < n && lane == __ffs((int)peers) - 1) { count[w][d] = had + __popc(peers); }
        __syncwarp();
    }

    __syncthreads();
    int all = 0;                                // for digit t: the keys before each warp's, and all keys
    for (int k = 0; k < WARPS; k++) {
        int had = count[k][t];
        count[k][t] = all;
        all += had;
    }

    start[t] = all;
    __syncthreads();
    block_scan(start, RADIX, part);
    base[t] = (int64_t)bins[pass * RADIX + t] + digits_before(state, tile, t, pass, all) - start[t];
    for (int k = 0; k < EACH; k++) {
        int64_t i = from + k * 32;
        if (i >= n) { continue; }
        int d = digit_of(own[k], shift), at = start[d] + count[w][d] + rank[k];
        moved_key[at] = own[k];
        moved[at] = order[i];
    }

    __syncthreads();
    const int64_t left = n - (int64_t)tile * TILE;
    for (int i = t; i < TILE && i < left; i += THREADS) {
        int64_t at = base[digit_of(moved_key[i], shift)] + i;
        to_key[at] = moved_key[i];
        to[at] = moved[i];
    }
}

inline int log2_up(int64_t n) {                             // bits that 0 .. n - 1 need
    int bits = 0;
    while ((n - 1) >> bits) { bits++; }
    return bits;
}

// Scratch of a sort of n elements. The keys and the order to be sorted are in key and order.
template <class K> struct sortable_t {
    K *key, *key2;
    unsigned long long *state;                  // this and what follows must be zero before a sort
    int *bins;
    unsigned *ticket;
    int *order, *order2;

    static int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

    static size_t zeros(int64_t n) {
        return (size_t)tiles(n) * RADIX * sizeof(unsigned long long) + PASSES * (RADIX + 1) * sizeof(int);
    }

    sortable_t(void *scratch, int64_t n) {
        key = (K *)scratch;
        key2 = key + n;
        state = (unsigned long long *)(key2 + n);
        bins = (int *)(state + tiles(n) * RADIX);
        ticket = (unsigned *)(bins + PASSES * RADIX);
        order = (int *)(ticket + PASSES);
        order2 = order + n;
    }
};

typedef sortable_t<uint64_t> sorted_t;

inline uint64_t sort_scratch(int64_t n) {                   // for keys of either length
    return (uint64_t)n * 24 + sorted_t::zeros(n) + 64;
}

// Sorts by bits first .. end - 1 of the keys; n < 2^31.
template <class K> inline int radix_sort(const place_t &at, sortable_t<K> &b, int64_t n, int first, int end) {
    const int passes = (end - first + RADIX_BITS - 1) / RADIX_BITS;
    const unsigned tiles = (unsigned)sortable_t<K>::tiles(n);
    if (passes < 1) { return 0; }
    int code = code_of(cudaMemsetAsync(b.state, 0, sortable_t<K>::zeros(n), at.stream));
    if (!code) { code = launch(at, threads_for(at, n), radix_bins<K>, b.bins, b.key, n, first, passes); }
    if (!code) { code = launch(at, {(unsigned)passes, THREADS}, radix_starts, b.bins); }
    for (int pass = 0; !code && pass < passes; pass++) {
        code = launch(at, {tiles, THREADS}, radix_pass<K>, b.key2, b.order2, b.key, b.order, b.bins,
                      b.state, b.ticket + pass, n, first, pass);
        K *k = b.key;
        int *o = b.order;
        b.key = b.key2;
        b.key2 = k;
        b.order = b.order2;
        b.order2 = o;
    }
    return code;
}

enum { PIECE = 64 };                             // sources of one result that one thread adds

// Scratch of add_at for n sources of `width` elements.
inline uint64_t add_scratch(int64_t n, int64_t width) {
    return sort_scratch(n) + 16 + (uint64_t)(2 * ((n + PIECE - 1) / PIECE) * width) * 8;
}

// y[key] is joined with its sources x[source], in their order, or set to the last of them; rows of `width`
// elements. Keys from `places` on are ignored.
enum put_t { PUT_PROD, PUT_MAX, PUT_MIN, PUT_ADD, PUT_SET };    // the first three: as SCATTER_REDUCE has them

template <class C> __device__ inline C put_join(int how, C sum, C v) {
    switch (how) {
    case PUT_ADD: return w_add(sum, v);
    case PUT_SET: return v;
    case PUT_PROD: return w_mul(sum, v);
    case PUT_MAX: return v != v || v > sum ? v : sum;
    default: return v != v || v < sum ? v : sum;
    }
}

// Where the sources of key[p] begin, if that is at most PIECE before p; and whether there are more than
// PIECE of them, counted from `first`.
__device__ inline int64_t first_of(const uint64_t *key, int64_t p) {
    int64_t low = p > PIECE ? p - PIECE : 0, high = p;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (key[mid] == key[p]) { high = mid; } else { low = mid + 1; }
    }
    return low;
}

__device__ inline bool are_many(const uint64_t *key, int64_t n, int64_t first) {
    return first + PIECE < n && key[first + PIECE] == key[first];
}

// A thread takes one result with at most PIECE sources, and adds them in their order, as the CPU does. If a
// result has more, the sorted sources are divided every PIECE: one thread puts into `tail` the sum of the
// piece where they begin, others put into `head` the sum of each later piece.
template <class T, class C>
__global__ void __launch_bounds__(THREADS, 4)
    add_pieces(void *y, int dtype, const uint64_t *key, const int *order, const void *x, int64_t n,
               int64_t width, int64_t places, int how, C *head, C *tail) {
    for (int64_t i = thread_index(); i < n * width; i += thread_count()) {
        const int64_t p = i / width, c = i - p * width, piece = p / PIECE;
        const uint64_t place = key[p];
        const bool begins = p == 0 || key[p - 1] != place;
        if ((int64_t)place >= places || (!begins && p % PIECE)) { continue; }
        const bool many = are_many(key, n, begins ? p : first_of(key, p));
        if (!many && !begins) { continue; }
        const int64_t to = (int64_t)place * width + c;
        const int64_t cut = many && (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
        C sum = load_typed<T, C>(x, dtype, order[p] * width + c);
        if (!many) { sum = put_join(how, load_typed<T, C>(y, dtype, to), sum); }
        for (int64_t q = p + 1; q < cut && key[q] == place; q++) {
            sum = put_join(how, sum, load_typed<T, C>(x, dtype, order[q] * width + c));
        }
        if (!many) {
            store_as<C>(y, dtype, to, sum);
        } else if (begins) {
            tail[piece * width + c] = sum;
        } else {
            head[piece * width + c] = sum;
        }
    }
}

// How many pieces from `piece` on continue with its last result.
__device__ inline int64_t pieces_after(const uint64_t *key, int64_t n, int64_t piece, uint64_t place) {
    int64_t low = piece + 1, high = (n + PIECE - 1) / PIECE; // the first piece that begins with another place
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (key[mid * PIECE] == place) { low = mid + 1; } else { high = mid; }
    }
    return low - piece - 1;
}

// Joins the parts of results that extend over several pieces, in a fixed tree; a block (lanes by
// threadIdx.y) takes one piece and 8 columns.
template <class T, class C>
__global__ void __launch_bounds__(THREADS, 4)
    add_parts(void *y, int dtype, const uint64_t *key, int64_t n, int64_t width, int64_t places, int how,
              const C *head, const C *tail) {
    enum { COLUMNS = 8, LANES = THREADS / COLUMNS };
    TCU_SHARED(C, part, [LANES][COLUMNS]);
    const int64_t pieces = (n + PIECE - 1) / PIECE, groups = (width + COLUMNS - 1) / COLUMNS;
    const int lane = (int)threadIdx.y;
    for (int64_t b = blockIdx.x; b < pieces * groups; b += gridDim.x) {
        const int64_t piece = b / groups, c = b % groups * COLUMNS + threadIdx.x, last = (piece + 1) * PIECE;
        if (last >= n || key[last - 1] != key[last] || (int64_t)key[last] >= places) { continue; }
        const int64_t first = first_of(key, last);
        if (first < piece * PIECE || (first && key[first - 1] == key[first])) {
            continue;
        } // it began before
        if (!are_many(key, n, first)) { continue; }
        const int64_t more = pieces_after(key, n, piece, key[last]);
        C sum = C(0);
        if (how == PUT_SET && c < width) {      // the last part is the result
            sum = head[(piece + more) * width + c];
        } else if (c < width && lane < more) {
            sum = head[(piece + 1 + lane) * width + c];
            for (int64_t k = lane + LANES; k < more; k += LANES) {
                sum = put_join(how, sum, head[(piece + 1 + k) * width + c]);
            }
        }
        part[lane][threadIdx.x] = sum;
        __syncthreads();
        for (int d = LANES / 2; d; d /= 2) {
            if (lane < d && lane + d < more && how != PUT_SET) {
                part[lane][threadIdx.x] = put_join(how, part[lane][threadIdx.x], part[lane + d][threadIdx.x]);
            }
            __syncthreads();
        }
        if (!lane && c < width) {
            int64_t to = (int64_t)key[last] * width + c;
            C all = put_join(how, tail[piece * width + c], part[0][threadIdx.x]);
            store_as<C>(y, dtype, to, put_join(how, load_typed<T, C>(y, dtype, to), all));
        }
        __syncthreads();
    }
}

// y has the shape of index; x has the shape of y except for dim.
inline int gather(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, int dim,
                  const tensor_arg_t &index) {
    shaped_t still(x);
    for (int d = 0; d < x.ndim; d++) { still.dims[d] = y.dims[d]; }
    still.strides[dim] = 0;
    tensor_arg_t o[3] = {y, index, still.arg};
    walk_t w = walk_of(o, 3);
    if (!w.n) { return 0; }
    if (!x.dims[dim]) { return TENSOR_ERR_INDEX; }
    return by_size(size_of(x.dtype), [&](auto type) {
        typedef TCU_TYPE(type) T;
        auto *kernel = gather_any<T>;
        return launch(at, threads_for(at, w.n), kernel, w, (T *)y.data, (const void *)index.data, index.dtype,
                      (const T *)x.data, x.strides[dim], x.dims[dim], at.error);
    });
}

// y[i] = x[index[i]] for rows; all contiguous. Embedding and index_select.
inline int index_rows(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x,
                      const tensor_arg_t &index,
                      int64_t n, int64_t width, int64_t rows, int64_t padding = NO_PADDING) {
    if (!n || !width) { return 0; }
    if (!rows) { return TENSOR_ERR_INDEX; }
    int64_t bytes = width * size_of(x.dtype);
    int size = bytes % 16 || !aligned16(x.data) || !aligned16(y.data) ? size_of(x.dtype) : 16;
    return by_size(size, [&](auto type) {
        typedef TCU_TYPE(type) T;
        auto *kernel = select_rows<T>;
        return launch(at, threads_for(at, n * bytes / size), kernel, (T *)y.data, (const void *)index.data,
                      index.dtype, (const T *)x.data, n, bytes / size, rows, padding, at.error);
    });
}

// y (contiguous, rows of width) is joined with x's n rows at the positions that `w` gives; index: walked by
// it, or NULL. places: rows of y.
inline int add_at(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, const walk_t &w,
                  const tensor_arg_t *index, int64_t stride, int64_t size, int64_t width, int64_t places,
                  void *scratch, int how, int64_t padding = NO_PADDING) {
    int64_t n = w.n;
    if (!n || !width) { return 0; }
    if (n > INT32_MAX) { return TENSOR_ERR_UNSUPPORTED; }
    if (index && !size) { return TENSOR_ERR_INDEX; }
    sorted_t b(scratch, n);
    const void *indices = index ? index->data : nullptr;
    int code = launch(at, threads_for(at, n), scatter_keys, b.key, b.order, w, indices,
                      index ? index->dtype : 0, stride, size, padding, places, at.error);
    if (!code) { code = radix_sort(at, b, n, 0, log2_up(places + 1)); }
    if (code) { return code; }
    const int64_t pieces = (n + PIECE - 1) / PIECE;
    void *parts = (char *)scratch + (sort_scratch(n) + 15) / 16 * 16;
    auto add = [&](auto stored, auto computed) {
        typedef TCU_TYPE(stored) T;
        typedef TCU_TYPE(computed) C;
        C *head = (C *)parts, *tail = head + pieces * width;
        int e = launch(at, threads_for(at, n * width), add_pieces<T, C>, y.data, y.dtype, b.key, b.order,
                       x.data, n, width, places, how, head, tail);
        if (e || pieces < 2) { return e; }
        return launch(at, {grid_for(at, pieces * ((width + 7) / 8), 1), dim3(8, THREADS / 8)},
                      add_parts<T, C>, y.data, y.dtype, b.key, n, width, places, how, head, tail);
    };
    switch (y.dtype) {
    case TENSOR_F32: return add(type_t<float>(), type_t<float>());
    case TENSOR_F16: return add(type_t<f16>(), type_t<float>());
    case TENSOR_BF16: return add(type_t<bf16>(), type_t<float>());
    case TENSOR_F64: return add(type_t<double>(), type_t<double>());
    default: return add(type_t<void>(), type_t<int64_t>());
    }
}

// y[.. index[.. i ..] ..] joined with x[.. i ..] along dim; y and x contiguous, index of x's shape.
inline int scatter_add(const place_t &at, const tensor_arg_t &y, int dim, const tensor_arg_t &index,
                       const tensor_arg_t &x, void *scratch, int how = PUT_ADD) {
    shaped_t still(y);
    for (int d = 0; d < x.ndim; d++) { still.dims[d] = index.dims[d]; }
    still.strides[dim] = 0;
    tensor_arg_t o[2] = {index, still.arg};
    return add_at(at, y, x, walk_of(o, 2), &index, y.strides[dim], y.dims[dim], 1, count_of(y), scratch,
                  how);
}

// y[index[i]] is joined with x[i], for rows of width, except where the index is `padding`: index_add, and
// the gradient of embedding.
inline int add_rows(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &index,
                    const tensor_arg_t &x, int64_t n, int64_t width, int64_t rows, void *scratch,
                    int how = PUT_ADD, int64_t padding = NO_PADDING) {
    const int64_t one = 1;
    tensor_arg_t i = index;
    i.ndim = 1;
    i.dims = &n;
    i.strides = &one;
    return add_at(at, y, x, walk_of(&i, 1), &i, 1, rows, width, rows, scratch, how, padding);
}

// ------------------------------------------------------------------------------
// >>order                                          MARK: sorting, selection, search
//
// For each row of x, an order: the positions of its elements, sorted stably by keys in tensor.h's order.
// Rows that fit a block are sorted in shared memory, with the position as the last digit of the key; longer
// rows are sorted all at once, by the keys and then by their rows. topk, kthvalue and the medians of long
// rows select digit by digit: x is read once for each eleven bits of its key and no keys are stored. mode of
// long rows counts in a table. Rejected: sorting for them too (topk(50) of 50,000 logits a row moved 400
// times what it returns, and wanted 50 bytes of scratch an element).
// On the CPU: >>impl-sort.
// ------------------------------------------------------------------------------

enum { ROW_SORT = 2048 };

// Of each row of x, or of the row's positions in `from`; by_place: by position alone. width: power of 2.
__global__ void __launch_bounds__(THREADS, 4)
    sort_rows(order_t o, int *order, const int *from, int64_t rows, int columns, int width, bool by_place) {
    TCU_SHARED(uint64_t, key, [ROW_SORT]);
    TCU_SHARED(int, at, [ROW_SORT]);
    const int t = (int)threadIdx.x, step = (int)blockDim.x;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        for (int i = t; i < width; i += step) {
            const int64_t place = from && i < columns ? from[r * columns + i] : r * columns + i;
            key[i] = ~0ull;
            at[i] = INT32_MAX;
            if (i >= columns) { continue; }
            key[i] = by_place ? 0 : key_of(o, place);
            at[i] = (int)place;
        }
        __syncthreads();
        for (int k = 2; k <= width; k *= 2) {
            for (int j = k / 2; j; j /= 2) {
                for (int q = t; q < width / 2; q += step) {
                    int low = q / j * 2 * j + q % j, high = low + j;
                    bool above = key[low] != key[high] ? key[low] > key[high] : at[low] > at[high];
                    if (above == !(low & k)) {
                        uint64_t u = key[low];
                        int v = at[low];
                        key[low] = key[high];
                        key[high] = u;
                        at[low] = at[high];
                        at[high] = v;
                    }
                }
                __syncthreads();
            }
        }
        for (int i = t; i < columns; i += step) { order[r * columns + i] = at[i]; }
        __syncthreads();
    }
}

template <class K>
__global__ void __launch_bounds__(THREADS, 4) order_keys(order_t o, K *key, int *order, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        key[i] = (K)key_of(o, i);
        order[i] = (int)i;
    }
}

template <class K> __global__ void __launch_bounds__(THREADS, 4)
    row_keys(K *key, const int *order, int64_t n, int64_t columns) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        key[i] = (K)(order[i] / columns);
    }
}

// The first m positions of each row as keys, to sort them by position.
__global__ void __launch_bounds__(THREADS, 4)
    head_keys(uint64_t *key, int *to, const int *order, int64_t rows, int64_t columns, int64_t m) {
    for (int64_t i = thread_index(); i < rows * m; i += thread_count()) {
        to[i] = order[i / m * columns + i % m];
        key[i] = (uint64_t)to[i];
    }
}

// y[rows, m] = positions within the row, of an order whose rows have `columns`.
__global__ void __launch_bounds__(THREADS, 4)
    order_places(int64_t *y, const int *order, int64_t rows, int64_t columns, int64_t m, int64_t x_columns) {
    for (int64_t i = thread_index(); i < rows * m; i += thread_count()) {
        int64_t r = i / m;
        y[i] = order[r * columns + i % m] - r * x_columns;
    }
}

// What NaN is among the keys, where it is the largest.
__device__ inline uint64_t nan_key(const order_t &o) { return o.bits < 64 ? (1ull << o.bits) - 1 : ~0ull; }

__device__ inline bool has_nan(const order_t &o) {
    return o.dtype == TENSOR_F32 || o.dtype == TENSOR_F64 || o.dtype == TENSOR_F16 || o.dtype == TENSOR_BF16;
}

// The rank, from 0 on, of a median in a row with so many elements that are not NaN. k = 0: of the first NaN
// if there is one; -1: of the median of the others, or of the first NaN if there are no others.
__device__ inline int64_t rank_of_median(int64_t k, int64_t columns, int64_t numbers) {
    const int64_t enough = k ? 1 : columns;
    return numbers < enough ? numbers : (numbers - 1) / 2;
}

// The position of the k-th smallest of each row; k < 1: of a median.
__global__ void __launch_bounds__(THREADS, 4)
    order_rank(int64_t *y, order_t o, const int *order, int64_t rows, int64_t columns, int64_t k) {
    const uint64_t nan = nan_key(o);
    for (int64_t r = thread_index(); r < rows; r += thread_count()) {
        const int *row = order + r * columns;
        int64_t numbers = columns, low = 0, rank = k - 1;   // numbers: how many are not NaN
        if (k < 1 && has_nan(o)) {
            while (low < numbers) {
                int64_t mid = (low + numbers) / 2;
                if (key_of(o, row[mid]) == nan) { numbers = mid; } else { low = mid + 1; }
            }
        }
        if (k < 1) { rank = rank_of_median(k, columns, numbers); }
        y[r] = row[rank] - r * columns;
    }
}

// The last position of the most frequent value, the smallest of such values; one row per block.
__global__ void __launch_bounds__(THREADS, 4)
    order_mode(int64_t *y, order_t o, const int *order, int64_t rows, int64_t columns) {
    typedef best_op<int64_t, true> longest;
    TCU_SHARED(best_t<int64_t>, s, [THREADS]);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const int *row = order + r * columns;
        best_t<int64_t> best = longest::none();
        for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
            uint64_t key = key_of(o, row[i]);
            int64_t low = 0, high = i;                      // where its run starts
            if (i + 1 < columns && key_of(o, row[i + 1]) == key) { continue; }
            while (low < high) {
                int64_t mid = (low + high) / 2;
                if (key_of(o, row[mid]) == key) { high = mid; } else { low = mid + 1; }
            }
            best = longest::take(best, i - low + 1, i);
        }
        best = join_lanes<longest>(best, s, (int)threadIdx.x, THREADS, 1);
        if (!threadIdx.x) { y[r] = row[best.at] - r * columns; }
        __syncthreads();
    }
}

// The threshold of a row is the element that has the rank, from 1 on, by key and then by position. Each pass
// counts how many of the elements that share the digits found so far have each next digit, from the highest
// bit of the key down to the lowest of the position, until the threshold is alone or all that share its
// digits come with it. What is left is to take the elements up to the threshold, in any order. The rank of a
// median is known when the first pass has counted the NaN too.
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, COUNTS = DIGITS + 1 };     // the last count: of NaN

// What is known of a threshold: its key from bit key_low on, its position from bit place_low on, its rank
// among the elements that share these, and how many do.
struct threshold_t {
    uint64_t key, place;
    int key_low, place_low;
    int64_t rank, count;
};

struct select_t {
    order_t o;
    int64_t columns, rank;                      // rank < 1: of a median, as for rank_of_median
    int parts, key_passes, passes, place_bits;  // parts: blocks of a row
    bool alone;                                 // take the threshold, not what comes before it
    // Zero at first, per row: how many positions are taken, how many parts have counted; if parts > 1, a
    // count per digit.
    int *taken, *counted, *bins;
    threshold_t *known;                         // [row], if parts > 1
    int *to;                                    // [row][rank] positions, or
    int64_t *y;                                 // [row] the position within the row, if alone
};

__device__ inline bool is_open(const select_t &s, const threshold_t &f) {
    return f.count > (s.alone ? 1 : f.rank);
}

// Less than 0, 0, more than 0: the element comes before those that share what is known, is one of them, comes
// after them.
__device__ inline int beside(const threshold_t &f, uint64_t key, int64_t i) {
    const uint64_t high = f.key_low < 64 ? key >> f.key_low : 0, place = (uint64_t)i >> f.place_low;
    if (high != f.key) { return high < f.key ? -1 : 1; }
    return (place > f.place) - (place < f.place);
}

// The lowest bit of a pass's digit, and how many bits it has.
__device__ inline int low_of(const select_t &s, int pass) {
    if (pass < s.key_passes) { return most(s.o.bits - (pass + 1) * DIGIT_BITS, s.o.first); }
    return most(s.place_bits - (pass - s.key_passes + 1) * DIGIT_BITS, 0);
}

__device__ inline int bits_of(const select_t &s, int pass) {
    const int end = pass < s.key_passes ? s.o.bits - pass * DIGIT_BITS
                                        : s.place_bits - (pass - s.key_passes) * DIGIT_BITS;
    return end - low_of(s, pass);
}

// The threshold after a pass whose counts are in shared memory; all threads of the block call it.
__device__ inline threshold_t narrowed(const select_t &s, threshold_t f, int pass, int *count, int *part,
                                       threshold_t *found) {
    const int low = low_of(s, pass), bits = bits_of(s, pass);
    if (f.rank < 1) { f.rank = rank_of_median(f.rank, s.columns, s.columns - count[DIGITS]) + 1; }
    block_scan(count, DIGITS, part);
    for (int d = (int)threadIdx.x; d < DIGITS; d += THREADS) {
        const int64_t before = count[d], end = d + 1 < DIGITS ? count[d + 1] : f.count;
        if (before >= f.rank || end < f.rank) { continue; }
        threshold_t next = f;                   // one thread is here
        if (pass < s.key_passes) {
            next.key = f.key << bits | (uint64_t)d;
            next.key_low = low;
        } else {
            next.place = f.place << bits | (uint64_t)d;
            next.place_low = low;
        }
        next.rank = f.rank - before;
        next.count = end - before;
        found[0] = next;
    }
    __syncthreads();
    f = found[0];
    __syncthreads();
    return f;
}

// Adds the counts of a row's parts -> whether this block is the last of them, which has their sums then.
__device__ inline bool joined(const select_t &s, int64_t row, int *count, int *last) {
    int *bins = s.bins + row * COUNTS;
    for (int d = (int)threadIdx.x; d < COUNTS; d += THREADS) {
        if (count[d]) { atomicAdd(&bins[d], count[d]); }
    }
    __threadfence();
    __syncthreads();
    if (!threadIdx.x) { last[0] = atomicAdd(&s.counted[row], 1) % s.parts == s.parts - 1; }
    __syncthreads();
    if (!last[0]) { return false; }
    __threadfence();
    for (int d = (int)threadIdx.x; d < COUNTS; d += THREADS) { count[d] = atomicExch(&bins[d], 0); }
    __syncthreads();
    return true;
}

// A block goes through a part of a row, `first` .. end - 1 of passes + 1 steps; the last one takes. Rows of
// one part have all steps in one launch, those of several parts a launch for each. With four blocks on a
// multiprocessor the registers would not hold the keys.
__global__ void __launch_bounds__(THREADS, 3) select_digits(select_t s, int first, int end) {
    TCU_SHARED(int, count, [COUNTS]);
    TCU_SHARED(int, part, [THREADS]);
    TCU_SHARED(int, last, [1]);
    TCU_SHARED(threshold_t, found, [1]);
    const int t = (int)threadIdx.x;
    const int64_t row = blockIdx.x / s.parts, each = (s.columns + s.parts - 1) / s.parts;
    const int64_t from = (blockIdx.x - row * s.parts) * each, to = least(from + each, s.columns);
    threshold_t f = {0, 0, 64, 32, s.rank, s.columns};
    if (first) { f = s.known[row]; }
    const bool by_nan = f.rank < 1 && has_nan(s.o);
    for (int pass = first; pass < end && pass < s.passes && is_open(s, f); pass++) {
        const int low = low_of(s, pass);
        const uint64_t mask = ((uint64_t)1 << bits_of(s, pass)) - 1;
        for (int d = t; d < COUNTS; d += THREADS) { count[d] = 0; }
        __syncthreads();
        for (int64_t i0 = from + t; i0 < to; i0 += EACH * THREADS) {
            uint64_t key[EACH];                 // loaded together, before any of them is counted
            TCU_UNROLL
            for (int k = 0; k < EACH; k++) {
                const int64_t i = i0 + k * THREADS;
                key[k] = i < to ? key_of(s.o, row * s.columns + i) : 0;
            }
            TCU_UNROLL
            for (int k = 0; k < EACH; k++) {
                const int64_t i = i0 + k * THREADS;
                if (i >= to || beside(f, key[k], i)) { continue; }
                const uint64_t digits = pass < s.key_passes ? key[k] : (uint64_t)i;
                atomicAdd(&count[digits >> low & mask], 1);
                if (by_nan && !pass && key[k] == nan_key(s.o)) { atomicAdd(&count[DIGITS], 1); }
            }
        }
        __syncthreads();
        if (s.parts > 1 && !joined(s, row, count, last)) { return; }
        f = narrowed(s, f, pass, count, part, found);
        if (s.parts > 1 && !t) { s.known[row] = f; }
    }

    if (end <= s.passes) {
        if (!first && !is_open(s, f) && !t && from == 0) { s.known[row] = f; }
        return;
    }
    for (int64_t i = from + t; i < to; i += THREADS) {
        const int there = beside(f, key_of(s.o, row * s.columns + i), i);
        if (s.alone && !there) { s.y[row] = i; }
        if (s.alone || there > 0) { continue; }
        s.to[row * s.rank + atomicAdd(&s.taken[row], 1)] = (int)(row * s.columns + i);
    }
}

// The blocks of a row of a selection.
inline int select_parts(const place_t &at, int64_t rows, int64_t columns) {
    const int64_t blocks = (int64_t)at.limits.sms * at.limits.blocks_per_sm;
    return (int)most<int64_t>(1, least(columns / at.limits.select_part, blocks / rows));
}

inline select_t select_of(const place_t &at, const order_t &o, int64_t rows, int64_t columns, int64_t rank,
                          bool alone) {
    select_t s = {};
    s.o = o;
    s.columns = columns;
    s.rank = rank;
    s.alone = alone;
    s.parts = select_parts(at, rows, columns);
    s.place_bits = log2_up(columns);
    s.key_passes = (o.bits - o.first + DIGIT_BITS - 1) / DIGIT_BITS;
    s.passes = s.key_passes + (s.place_bits + DIGIT_BITS - 1) / DIGIT_BITS;
    return s;
}

// Counters that must be zero, in ints; all that a selection needs, in bytes.
inline int64_t select_zeros(const select_t &s, int64_t rows) {
    return s.parts > 1 ? rows * (2 + COUNTS) : rows;
}

inline uint64_t select_scratch(const select_t &s, int64_t rows) {
    const int64_t known = s.parts > 1 ? rows : 0;
    const int64_t to = s.alone ? 0 : rows * s.rank;
    return (uint64_t)known * sizeof(threshold_t) + (uint64_t)(select_zeros(s, rows) + to) * sizeof(int);
}

inline int selected_rows(const place_t &at, select_t &s, int64_t rows, void *scratch) {
    const unsigned blocks = (unsigned)(rows * s.parts);
    const int64_t zeros = select_zeros(s, rows);
    s.known = (threshold_t *)scratch;
    s.taken = (int *)(s.known + (s.parts > 1 ? rows : 0));
    s.counted = s.taken + rows;
    s.bins = s.counted + rows;
    s.to = s.taken + zeros;
    int code = code_of(cudaMemsetAsync(s.taken, 0, (size_t)zeros * sizeof(int), at.stream));
    for (int first = 0; first <= s.passes && !code;) {
        const int end = s.parts > 1 ? first + 1 : s.passes + 1;
        code = launch(at, {blocks, THREADS}, select_digits, s, first, end);
        first = end;
    }
    return code;
}

// The most frequent value of a long row: a table has an entry for each value, at a place that its key gives.
// A block first counts the values of its part in a small table in shared memory, so that few values do not
// all meet at one address, and then adds them to the row's table; a value that finds no room is added there
// at once. Counts and last positions are the same in whatever order the values come.
enum { SEEN_BITS = 10, SEEN = 1 << SEEN_BITS, SEEN_TRIES = 8 };

// An entry that has all bits set is free. less: how many there are, less 1.
struct seen_t {
    unsigned long long key;
    int less, last;
};

__device__ inline seen_t no_entry() { return seen_t{~0ull, -1, -1}; }

struct counting_t {
    order_t o;
    int64_t columns;
    int parts, bits;                            // blocks of a row; a row's table has (1 << bits) + 1 entries
    seen_t *table, *best;                       // [row][entry], [row][part]
};

// The entry of a key; NULL after so many tries. The key of all bits, which marks free entries, has the last.
__device__ inline seen_t *entry_of(seen_t *table, int bits, unsigned long long key, int64_t tries) {
    const unsigned long long none = no_entry().key, last = (1ull << bits) - 1;
    if (key == none) { return table + last + 1; }
    unsigned long long at = key * 0x9E3779B97F4A7C15ull >> (64 - bits);
    for (; tries; tries--) {
        const unsigned long long there = atomicCAS(&table[at].key, none, key);
        if (there == none || there == key) { return table + at; }
        at = (at + 1) & last;
    }
    return nullptr;
}

__device__ inline void count_more(seen_t *e, int n, int last) {
    atomicAdd(&e->less, n);
    atomicMax(&e->last, last);
}

__global__ void __launch_bounds__(THREADS, 4) count_values(counting_t c) {
    TCU_SHARED(seen_t, here, [SEEN + 1]);
    const int t = (int)threadIdx.x;
    const int64_t row = blockIdx.x / c.parts, each = (c.columns + c.parts - 1) / c.parts;
    const int64_t from = (blockIdx.x - row * c.parts) * each, to = least(from + each, c.columns);
    const int64_t size = (int64_t)1 << c.bits;
    seen_t *table = c.table + row * (size + 1);
    for (int k = t; k <= SEEN; k += THREADS) { here[k] = no_entry(); }
    __syncthreads();
    for (int64_t i = from + t; i < to; i += THREADS) {
        const unsigned long long key = key_of(c.o, row * c.columns + i);
        seen_t *e = entry_of(here, SEEN_BITS, key, SEEN_TRIES);
        if (!e) { e = entry_of(table, c.bits, key, size); }
        count_more(e, 1, (int)i);
    }
    __syncthreads();
    for (int k = t; k <= SEEN; k += THREADS) {
        if (here[k].less < 0) { continue; }
        count_more(entry_of(table, c.bits, here[k].key, size), here[k].less + 1, here[k].last);
    }
}

struct most_seen {                              // the smallest key of those that came most often
    typedef seen_t acc;
    __device__ static acc join(acc a, acc b) {
        if (a.less != b.less) { return a.less > b.less ? a : b; }
        return a.key < b.key ? a : b;
    }
};

// The most frequent of a row's n entries: of each part to best[row][part], or if there is one part its last
// position to y[row].
__global__ void __launch_bounds__(THREADS, 4)
    most_frequent(int64_t *y, seen_t *best, const seen_t *entry, int64_t n, int parts) {
    TCU_SHARED(seen_t, s, [THREADS]);
    const int64_t row = blockIdx.x / parts, each = (n + parts - 1) / parts;
    const int64_t from = (blockIdx.x - row * parts) * each, to = least(from + each, n);
    seen_t v = no_entry();
    for (int64_t i = from + threadIdx.x; i < to; i += THREADS) { v = most_seen::join(v, entry[row * n + i]); }
    v = join_lanes<most_seen>(v, s, (int)threadIdx.x, THREADS, 1);
    if (threadIdx.x) { return; }
    if (parts > 1) { best[blockIdx.x] = v; } else { y[row] = v.last; }
}

inline counting_t count_of(const place_t &at, const order_t &o, int64_t rows, int64_t columns) {
    counting_t c = {};
    const int bits = o.bits - o.first;
    const int64_t values = bits < 32 ? least(columns, (int64_t)1 << bits) : columns;
    c.o = o;
    c.columns = columns;
    c.parts = select_parts(at, rows, columns);
    c.bits = most(1, log2_up(values + values / 2));
    return c;
}

inline uint64_t count_scratch(const counting_t &c, int64_t rows) {
    return (uint64_t)(rows * (((int64_t)1 << c.bits) + 1 + c.parts)) * sizeof(seen_t);
}

inline int counted_rows(const place_t &at, counting_t &c, int64_t *y, int64_t rows, void *scratch) {
    const unsigned blocks = (unsigned)(rows * c.parts);
    const int64_t entries = ((int64_t)1 << c.bits) + 1;
    c.table = (seen_t *)scratch;
    c.best = c.table + rows * entries;
    int code = code_of(cudaMemsetAsync(c.table, 255, (size_t)(rows * entries) * sizeof(seen_t), at.stream));
    if (!code) { code = launch(at, {blocks, THREADS}, count_values, c); }
    if (!code) {
        code = launch(at, {blocks, THREADS}, most_frequent, y, c.best, (const seen_t *)c.table, entries,
                      c.parts);
    }
    if (code || c.parts == 1) { return code; }
    const int64_t parts = c.parts;
    return launch(at, {(unsigned)rows, THREADS}, most_frequent, y, c.best, (const seen_t *)c.best, parts, 1);
}

// Rows that a block sorts alone: see sort_rows.
inline int sorted_alone(const place_t &at, const order_t &o, int *order, const int *from, int64_t rows,
                        int64_t columns, bool by_place) {
    int width = 1;
    while (width < columns) { width *= 2; }
    unsigned threads = (unsigned)most(32, least<int>(width / 2, THREADS));
    return launch(at, {grid_for(at, rows, 1), threads}, sort_rows, o, order, from, rows, (int)columns, width,
                  by_place);
}

// (*order)[row][i] = position in x of the row's i-th element. Scratch: sort_scratch(rows columns).
template <class K>
inline int sorted_by(const place_t &at, const order_t &o, void *scratch, int64_t rows, int64_t columns,
                     const int **order) {
    const int64_t n = rows * columns;
    sortable_t<K> b(scratch, n);
    *order = b.order;
    if (columns <= at.limits.sort_row) {
        return sorted_alone(at, o, b.order, nullptr, rows, columns, false);
    }

    const grid_t grid = threads_for(at, n);
    int code = launch(at, grid, order_keys<K>, o, b.key, b.order, n);
    if (!code) { code = radix_sort(at, b, n, o.first, o.bits); }
    if (!code && rows > 1) {
        code = launch(at, grid, row_keys<K>, b.key, (const int *)b.order, n, columns);
        if (!code) { code = radix_sort(at, b, n, 0, log2_up(rows)); }
    }

    *order = b.order;
    return code;
}

inline int sorted_rows(const place_t &at, const order_t &o, void *scratch, int64_t rows, int64_t columns,
                       const int **order) {
    return o.bits <= 32 ? sorted_by<uint32_t>(at, o, scratch, rows, columns, order)
                        : sorted_by<uint64_t>(at, o, scratch, rows, columns, order);
}

enum pick_id { PICK_SORT, PICK_TOP, PICK_RANK, PICK_MODE };

// Whether long rows are selected from or counted, not sorted.
inline bool is_selected(const place_t &at, int what, int64_t columns, int64_t m) {
    return columns > at.limits.sort_row && what != PICK_SORT &&
           (what == PICK_RANK || m <= at.limits.select_most);
}

inline uint64_t pick_scratch(const place_t &at, int what, const tensor_arg_t &x, int64_t rows,
                             int64_t columns, int64_t m, bool sorted) {
    const uint64_t sort = sort_scratch(rows * columns) + 16;
    if (!is_selected(at, what, columns, m)) { return what == PICK_TOP && !sorted ? 2 * sort : sort; }
    const order_t o = order_of(x, false, false);
    if (what == PICK_MODE) { return count_scratch(count_of(at, o, rows, columns), rows); }
    const select_t s = select_of(at, o, rows, columns, m, what == PICK_RANK);
    return select_scratch(s, rows) + (s.alone ? 0 : (uint64_t)(rows * m) * sizeof(int));
}

// y[rows, m] = positions. falling: from the largest, NaN first. PICK_TOP: the first m, ordered by position
// unless sorted. k: for PICK_RANK. Scratch: pick_scratch.
inline int pick(const place_t &at, int what, const tensor_arg_t &y, const tensor_arg_t &x, int64_t rows,
                int64_t columns, int64_t m, bool falling, bool sorted, int64_t k, void *scratch) {
    order_t o = order_of(x, falling, falling);
    int64_t *to = (int64_t *)y.data, n = rows * m;
    if (!n) { return 0; }
    if (rows * columns > INT32_MAX) { return TENSOR_ERR_UNSUPPORTED; }
    if (what == PICK_MODE && is_selected(at, what, columns, m)) {
        counting_t c = count_of(at, o, rows, columns);
        return counted_rows(at, c, to, rows, scratch);
    }
    if (is_selected(at, what, columns, m)) {
        select_t s = select_of(at, o, rows, columns, what == PICK_RANK ? k : m, what == PICK_RANK);
        s.y = to;
        int e = selected_rows(at, s, rows, scratch);
        if (e || s.alone) { return e; }
        int *order = s.to + n;
        e = sorted_alone(at, o, order, s.to, rows, m, !sorted);
        if (e) { return e; }
        return launch(at, threads_for(at, n), order_places, to, (const int *)order, rows, m, m, columns);
    }

    const int *order;
    int code = sorted_rows(at, o, scratch, rows, columns, &order);
    if (code) { return code; }
    if (what == PICK_RANK) {
        return launch(at, threads_for(at, rows), order_rank, to, o, order, rows, columns, k);
    }
    if (what == PICK_MODE) {
        return launch(at, blocks_for(at, rows), order_mode, to, o, order, rows, columns);
    }
    const grid_t grid = threads_for(at, n);
    int64_t wide = columns;
    if (what == PICK_TOP && !sorted) {
        sorted_t h((char *)scratch + (sort_scratch(rows * columns) + 15) / 16 * 16, n);
        int e = launch(at, grid, head_keys, h.key, h.order, order, rows, columns, m);
        if (!e) { e = radix_sort(at, h, n, 0, log2_up(rows * columns)); }
        if (e) { return e; }
        order = h.order;
        wide = m;
    }

    return launch(at, grid, order_places, to, order, rows, wide, m, columns);
}

// The positions of values in sorted rows of `columns`; per_row values share a row; if it is 0, all share the
// only row.
template <class C> __global__ void __launch_bounds__(THREADS, 4)
search_rows(int64_t *y, const void *sorted, const void *values, int dtype, int64_t n, int64_t columns,
            int64_t per_row, bool right) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int64_t low = 0, high = columns, row = per_row ? i / per_row * columns : 0;
        C v = load_as<C>(values, dtype, i);
        while (low < high) {
            int64_t mid = (low + high) / 2;
            C at = load_as<C>(sorted, dtype, row + mid);
            if (right ? at > v : at >= v) { high = mid; } else { low = mid + 1; }
        }
        y[i] = low;
    }
}

inline int search(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &sorted,
                  const tensor_arg_t &values, bool right) {
    int64_t n = values.numel, per_row = sorted.ndim == 1 ? 0 : values.dims[values.ndim - 1];
    auto *kernel = class_of(sorted.dtype) == 2 ? search_rows<int64_t> : search_rows<double>;
    if (!n) { return 0; }
    return launch(at, threads_for(at, n), kernel, (int64_t *)y.data, (const void *)sorted.data,
                  (const void *)values.data, (int)sorted.dtype, n, sorted.dims[sorted.ndim - 1], per_row,
                  right);
}

// Positions of the true bytes: each tile counts its own, the counts are summed, each tile writes. apart: as
// indices of each dim.
struct mask_t { const uint8_t *x; int64_t n, dims[TENSOR_MAX_DIMS]; int ndim, apart; };

__device__ inline int true_in(const mask_t &m, int *count) {
    int64_t first = blockIdx.x * (int64_t)TILE + threadIdx.x * EACH;
    int n = 0;
    for (int64_t i = first; i < first + EACH && i < m.n; i++) { n += m.x[i] != 0; }
    count[threadIdx.x] = n;
    __syncthreads();
    return n;
}

__global__ void __launch_bounds__(THREADS, 4) true_count(int *total, mask_t m) {
    TCU_SHARED(int, count, [THREADS]);
    TCU_SHARED(int, part, [THREADS]);
    int n = true_in(m, count);
    block_scan(count, THREADS, part);
    if (threadIdx.x == THREADS - 1) { total[blockIdx.x] = count[threadIdx.x] + n; }
}

__global__ void __launch_bounds__(THREADS, 4) true_places(int64_t *y, const int *total, mask_t m) {
    TCU_SHARED(int, count, [THREADS]);
    TCU_SHARED(int, part, [THREADS]);
    int64_t first = blockIdx.x * (int64_t)TILE + threadIdx.x * EACH;
    true_in(m, count);
    block_scan(count, THREADS, part);
    int64_t to = (int64_t)total[blockIdx.x] + count[threadIdx.x];
    for (int64_t i = first; i < first + EACH && i < m.n; i++) {
        if (!m.x[i]) { continue; }
        int64_t rest = i;
        for (int d = m.ndim - 1; d >= 0 && m.apart; d--) {
            y[to * m.ndim + d] = rest % m.dims[d];
            rest /= m.dims[d];
        }
        if (!m.apart) { y[to] = i; }
        to++;
    }
}

inline uint64_t nonzero_scratch(int64_t n) { return (uint64_t)((n + TILE - 1) / TILE) * sizeof(int); }

// y has room for all of them: tensor.h has counted them.
inline int nonzero(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &x, bool apart,
                   void *scratch) {
    mask_t m = {(const uint8_t *)x.data, x.numel, {}, x.ndim, apart};
    unsigned blocks = (unsigned)((x.numel + TILE - 1) / TILE);
    if (!y.numel) { return 0; }
    if (x.numel > INT32_MAX) { return TENSOR_ERR_UNSUPPORTED; }
    for (int d = 0; d < x.ndim; d++) { m.dims[d] = x.dims[d]; }
    int *total = (int *)scratch;
    int code = launch(at, {blocks, THREADS}, true_count, total, m);
    if (!code) { code = launch(at, {1, THREADS}, sum_counts, total, (int)blocks); }
    return code ? code : launch(at, {blocks, THREADS}, true_places, (int64_t *)y.data, (const int *)total, m);
}

// The position in a row of weights at v of its running sum; part: sums of its THREADS pieces.
__device__ inline int64_t drawn_at(const double *row, const double *part, int64_t columns, double v) {
    const int64_t each = (columns + THREADS - 1) / THREADS;
    double at = 0;
    int64_t pick = 0;
    int k = 0;
    while (k < THREADS - 1 && !(v < at + part[k])) { at += part[k++]; }
    while (k && !(part[k] > 0)) { at -= part[--k]; }            // v was at the end of the sum
    for (int64_t i = k * each; i < (k + 1) * each && i < columns; i++) {
        if (!(row[i] > 0)) { continue; }
        at += row[i];
        pick = i;
        if (v < at) { break; }
    }
    return pick;
}

// Draws n positions from each row of weights by the inverse of its running sum, one row per block. A weight
// that is not a finite number >= 0, or a row without a weight above 0, is an error. Without replacement the
// weight of a position that was drawn becomes 0, and the row is summed again for the next.
__global__ void __launch_bounds__(THREADS, 4)
    draw_rows(int64_t *y, double *x, int64_t rows, int64_t columns, int64_t n, bool again, rng_t from,
              unsigned long long *error) {
    tensor_generator_t g = from.now();
    TCU_SHARED(double, part, [THREADS]);
    const int t = (int)threadIdx.x;
    const int64_t each = (columns + THREADS - 1) / THREADS;
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        double *row = x + r * columns;
        for (int64_t first = 0; first < n; first += again ? n : 1) {
            double sum = 0;
            for (int64_t i = t * each; i < (t + 1) * each && i < columns; i++) {
                if (!(row[i] >= 0 && row[i] < (double)INFINITY)) { fault(error, r * columns + i); }
                sum += row[i];
            }
            part[t] = sum;
            __syncthreads();
            double total = 0;                                   // the same for all, in one order
            for (int k = 0; k < THREADS; k++) { total += part[k]; }
            if (!t && !(total > 0)) { fault(error, r * columns); }
            int64_t end = again ? n : first + 1;
            for (int64_t j = first + t; j < end; j += THREADS) {
                uint32_t w[4];
                int64_t e = r * n + j;
                philox(g, (uint64_t)e >> 1, w);
                const int pair = e & 1 ? 2 : 0;
                y[e] = drawn_at(row, part, columns, unit_of(w[pair + 1], w[pair]) * total);
                if (!again) { row[y[e]] = 0; }
            }
            __syncthreads();
        }
    }
}

// A random order equal to tensor.h's, in which step i, from the last down, swaps the elements at i and k_i
// <= i. The element that ends at i is the one that was at k_i, which an earlier step brought there from a
// position that a step before that one had filled, and so on. The steps sorted by k tell which step was the
// last; the way back takes about log n of them.
__global__ void __launch_bounds__(THREADS, 4)
    draw_swaps(uint64_t *key, int *order, int *filled, int64_t n, rng_t r) {
    tensor_generator_t g = r.now();
    int64_t step = thread_count();
    for (int64_t i = thread_index(); i < n; i += step) {
        uint32_t w[4];
        philox(g, (uint64_t)i, w);
        key[i] = ((uint64_t)w[1] << 32 | w[0]) % (uint64_t)(i + 1);
        order[i] = (int)i;
        filled[i] = -1;
    }
}

// filled[k] = the last step before step k that swapped position k with its own, -1 = none. Sorted by k, then
// by step.
__global__ void __launch_bounds__(THREADS, 4)
    last_swaps(int *filled, const uint64_t *key, const int *order, int64_t n) {
    int64_t step = thread_count();
    for (int64_t q = thread_index(); q < n; q += step) {
        int k = (int)key[q];
        if (q && (int)key[q - 1] == k) { continue; }
        int64_t first = order[q] > k ? q : q + 1;
        if (first < n && (int)key[first] == k) { filled[k] = order[first]; }
    }
}

__global__ void __launch_bounds__(THREADS, 4)
    swapped_places(int64_t *y, const int *filled, const uint64_t *key, const int *order, int64_t n) {
    for (int64_t q = thread_index(); q < n; q += thread_count()) {
        int from = (int)key[q];
        if (q + 1 < n && (int)key[q + 1] == from) {
            for (int k = order[q + 1]; k >= 0; k = filled[k]) { from = k; }
        }
        y[order[q]] = from;
    }
}

// Scratch: sort_scratch(n), then n ints. n < 2^31.
inline int random_order(const place_t &at, int64_t *y, int64_t n, rng_t g, void *scratch) {
    sorted_t b(scratch, n);
    int *filled = (int *)((char *)scratch + sort_scratch(n));
    const grid_t grid = threads_for(at, n);
    int code = launch(at, grid, draw_swaps, b.key, b.order, filled, n, g);
    if (!code) { code = radix_sort(at, b, n, 0, log2_up(n)); }
    const uint64_t *key = b.key;
    const int *order = b.order;
    if (!code) { code = launch(at, grid, last_swaps, filled, key, order, n); }
    if (code) { return code; }
    return launch(at, grid, swapped_places, y, (const int *)filled, key, order, n);
}

// ------------------------------------------------------------------------------
// >>linalg                                         MARK: decompositions, solvers
//
// A block takes a matrix, one of many small ones (up to about 512 rows; a single large one would need
// cuSOLVER): in double, as tensor.h computes, in shared memory if it fits there, else in scratch. Columns
// are contiguous and a warp takes a column at a time, so that LU, Cholesky and QR need one barrier per step
// and substitution needs none. Eigenvalues and singular values are computed by cyclic Jacobi (Golub & Van
// Loan 8.5, 8.6), in which the rotations of a round are independent. Rejected: tensor.h's QR steps (each
// rotation waits for the one before).
// On the CPU: >>impl-linalg.
// ------------------------------------------------------------------------------

enum { SWEEPS = 60, PIVOT_BITS = 20 };

struct linalg_t {
    walk_t batch;                               // strides of x and b over the batch
    const void *x, *b;
    void *y[3];
    int64_t row[2], column[2], room;            // strides within x and b; doubles of a block
    int m, n, k, r, ld; // x: m x n, k the smaller; r: columns of b or Q, singular vectors; ld: of columns
    bool twice, upper, unit, here, raw;         // twice: f64; here: the room is in shared memory; raw: geqrf
    double *work;
    unsigned long long *error;
};

struct team_t { int lane, warp, warps; };

__device__ inline team_t team_now() {
    return {(int)threadIdx.x % WARP, (int)threadIdx.x / WARP, (int)blockDim.x / WARP};
}

template <class OP> __device__ inline double warp_join(double v) {      // the same bits for all lanes
    for (int d = WARP / 2; d; d /= 2) { v = OP::join(v, __shfl_xor_sync(~0u, v, d)); }
    return v;
}

template <class OP> __device__ inline double block_join(double v, double *part) {   // part: one per warp
    team_t w = team_now();
    v = warp_join<OP>(v);
    if (!w.lane) { part[w.warp] = v; }
    __syncthreads();
    v = part[0];
    for (int k = 1; k < w.warps; k++) { v = OP::join(v, part[k]); }
    __syncthreads();
    return v;
}

// f(row, column) for each element of an m x n matrix; neighbours in a row go to neighbours of a warp.
template <class F> __device__ inline void each_place(int m, int n, F f) {
    team_t w = team_now();
    for (int i = w.warp; i < m; i += w.warps) {
        for (int j = w.lane; j < n; j += WARP) { f(i, j); }
    }
}

__device__ inline double element(const linalg_t &l, int which, int64_t at, int i, int j) {
    const void *x = which ? l.b : l.x;
    at += i * l.row[which] + j * l.column[which];
    return l.twice ? ((const double *)x)[at] : (double)((const float *)x)[at];
}

__device__ inline void load_matrix(double *a, const linalg_t &l, int which, int64_t at, int m, int n) {
    each_place(m, n, [&](int i, int j) {
        a[(int64_t)j * l.ld + i] = element(l, which, at, i, j);
    });
}

template <class F>
__device__ inline void store_matrix(const linalg_t &l, int which, int64_t item, int m, int n, F f) {
    each_place(m, n, [&](int i, int j) {
        int64_t to = (item * m + i) * n + j;
        if (l.twice) {
            ((double *)l.y[which])[to] = f(i, j);
        } else {
            ((float *)l.y[which])[to] = (float)f(i, j);
        }
    });
}

// Notes the first matrix without a result, and its pivot (from 1; 0 = inf, NaN or no convergence).
__device__ inline void no_result(const linalg_t &l, int64_t item, int pivot) {
    fault(l.error, item << PIVOT_BITS | pivot);
}

// panel(j) finishes column j, after update(i, j) for all i < j; update(j, c) is called for all other columns
// c. A warp that has updated the next panel finishes it at once.
template <class P, class U> __device__ inline void by_columns(int panels, int columns, P panel, U update) {
    team_t w = team_now();
    if (!w.warp && panels) { panel(0); }
    __syncthreads();
    for (int j = 0; j < panels; j++) {
        for (int q = 1 + w.warp; q < columns; q += w.warps) {
            int c = j + q < columns ? j + q : j + q - columns;
            update(j, c);
            __syncwarp();
            if (q == 1 && c && c < panels) { panel(c); }
        }
        __syncthreads();
    }
}

// LU with partial pivoting (the first of the largest) of the first `panels` columns; the others follow.
__device__ inline void lu_columns(double *a, int ld, int m, int panels, int columns, int *swaps) {
    const int lane = team_now().lane;
    by_columns(panels, columns, [&](int j) {
        double *x = a + (int64_t)j * ld, best = -1;
        int p = j;
        for (int i = j + lane; i < m; i += WARP) {
            double v = fabs(x[i]);
            if (i == j && v != v) { v = INFINITY; }             // keep it as the pivot
            if (v > best) { best = v, p = i; }
        }
        for (int d = WARP / 2; d; d /= 2) {
            double v = __shfl_xor_sync(~0u, best, d);
            int i = __shfl_xor_sync(~0u, p, d);
            if (v > best || (v == best && i < p)) { best = v, p = i; }
        }
        double pivot = x[p], other = x[j];
        __syncwarp();
        if (!lane) { x[p] = other, x[j] = pivot, swaps[j] = p; }
        __syncwarp();
        for (int i = j + 1 + lane; i < m && pivot != 0; i += WARP) { x[i] /= pivot; }
    }, [&](int j, int c) {
        const double *x = a + (int64_t)j * ld;
        double *y = a + (int64_t)c * ld;
        int p = swaps[j];
        double v = y[p], other = y[j];
        __syncwarp();
        if (!lane) { y[p] = other, y[j] = v; }
        __syncwarp();
        for (int i = j + 1 + lane; i < m && c > j && x[j] != 0; i += WARP) { y[i] -= x[i] * v; }
    });
}

// y = a^-1 y for one triangle of a; called by one warp.
__device__ inline void substitute(const double *a, int ld, int n, double *y, bool upper, bool unit) {
    const int lane = team_now().lane;
    for (int q = 0; q < n; q++) {
        int k = upper ? n - 1 - q : q;
        const double *x = a + (int64_t)k * ld;
        double v = unit ? y[k] : y[k] / x[k];
        __syncwarp();
        if (!lane) { y[k] = v; }
        const int from = upper ? 0 : k + 1;
        const int to = upper ? k : n;
        for (int i = from + lane; i < to; i += WARP) { y[i] -= x[i] * v; }
        __syncwarp();
    }
}

// y = (I - tau v vT) y from row j on, with v[j] taken as 1 whatever is stored there; called by one warp.
__device__ inline void reflect(const double *v, double tau, double *y, int j, int m) {
    const int lane = team_now().lane;
    if (tau == 0) { return; }
    double sum = 0, top = y[j];
    for (int i = j + 1 + lane; i < m; i += WARP) { sum += v[i] * y[i]; }
    sum = (warp_join<sum_op<double>>(sum) + top) * tau;
    __syncwarp();
    if (!lane) { y[j] = top - sum; }
    for (int i = j + 1 + lane; i < m; i += WARP) { y[i] -= sum * v[i]; }
    __syncwarp();
}

// Column j becomes (beta, v) as in tensor.h; -> tau. Called by one warp.
__device__ inline double householder(double *x, int j, int m) {
    const int lane = team_now().lane;
    double big = 0, sum = 0, a = x[j];
    for (int i = j + 1 + lane; i < m; i += WARP) { big = w_max(big, fabs(x[i])); }
    big = warp_join<max_op<double>>(big);
    if (big == 0) { return 0; }
    for (int i = j + 1 + lane; i < m; i += WARP) { sum += x[i] / big * (x[i] / big); }
    double r = hypot(a, big * sqrt(warp_join<sum_op<double>>(sum))), beta = a >= 0 ? -r : r;
    for (int i = j + 1 + lane; i < m; i += WARP) { x[i] /= a - beta; }
    __syncwarp();                               // all have read x[j]: a shuffle does not say so
    if (!lane) { x[j] = beta; }
    __syncwarp();
    return (beta - a) / beta;
}

// Calls f(item, offsets of x and b, workspace) for each matrix.
template <class F> __device__ inline void each_matrix(const linalg_t &l, double *shared, F f) {
    double *a = l.here ? shared : l.work + blockIdx.x * l.room;
    for (int64_t item = blockIdx.x; item < l.batch.n; item += gridDim.x) {
        int64_t from[2];
        places_of<2>(l.batch, item, from);
        f(item, from, a);
        __syncthreads();
    }
}

template <int ID> __global__ void __launch_bounds__(THREADS, 2) factor_matrices(linalg_t l) {
    TCU_DYNAMIC_SHARED(double, shared);
    const team_t w = team_now();
    const int m = l.m, n = l.n, ld = l.ld;
    each_matrix(l, shared, [&](int64_t item, const int64_t *from, double *a) {
        double *b = a + (int64_t)n * ld, *tau = b + (int64_t)l.r * ld;
        int *swaps = (int *)tau;
        load_matrix(a, l, 0, from[0], m, n);
        if (l.b) { load_matrix(b, l, 1, from[1], n, l.r); }
        __syncthreads();
        if constexpr (ID == TENSOR_OP_LINALG_CHOLESKY || ID == TENSOR_OP_LINALG_CHOLESKY_EX) {
            constexpr bool ex = ID == TENSOR_OP_LINALG_CHOLESKY_EX;
            int *first = (int *)tau;                    // of the minors that are not positive
            if (ex && !threadIdx.x) { *first = 0; }
            __syncthreads();
            by_columns(n, n, [&](int j) {
                double *x = a + (int64_t)j * ld, v = x[j], root = sqrt(v);
                __syncwarp();
                if (!w.lane && !(v > 0) && !ex) { no_result(l, item, j + 1); }
                if (!w.lane && !(v > 0) && ex && !*first) { *first = j + 1; }
                if (!w.lane) { x[j] = root; }
                for (int i = j + 1 + w.lane; i < n; i += WARP) { x[i] /= root; }
            }, [&](int j, int c) {
                const double *x = a + (int64_t)j * ld;
                double *y = a + (int64_t)c * ld;
                for (int i = c + w.lane; i < n && c > j; i += WARP) { y[i] -= x[i] * x[c]; }
            });
            const bool none = ex && *first;
            store_matrix(l, 0, item, n, n, [&](int i, int j) {
                if (none) { return (double)NAN; }
                return i < j ? 0 : a[(int64_t)j * ld + i];
            });
            if (ex && !threadIdx.x) { ((int32_t *)l.y[1])[item] = *first; }
        } else if constexpr (ID == TENSOR_OP_LINALG_DET) {
            lu_columns(a, ld, n, n, n, swaps);
            double all = 1, sign = 1, logs = 0;

            for (int i = 0; i < n && !threadIdx.x; i++) {
                double p = swaps[i] == i ? a[(int64_t)i * ld + i] : -a[(int64_t)i * ld + i];
                all *= p;
                if (p != 0) { sign = p < 0 ? -sign : sign; }
                if (!(p < 0 || p > 0)) { sign *= p; }       // 0, or NaN
                logs += log(fabs(p));
            }

            store_matrix(l, 0, item, 1, 1, [&](int, int) { return all; });
            store_matrix(l, 1, item, 1, 1, [&](int, int) { return sign; });
            store_matrix(l, 2, item, 1, 1, [&](int, int) { return logs; });
        } else if constexpr (ID == TENSOR_OP_LINALG_LU_FACTOR) {
            lu_columns(a, ld, m, l.k, n, swaps);
            store_matrix(l, 0, item, m, n, [&](int i, int j) { return a[(int64_t)j * ld + i]; });
            for (int i = (int)threadIdx.x; i < l.k; i += (int)blockDim.x) {
                ((int32_t *)l.y[1])[item * l.k + i] = swaps[i] + 1;
            }
        } else if constexpr (ID == TENSOR_OP_LINALG_QR) {
            by_columns(l.k, n, [&](int j) {
                double t = householder(a + (int64_t)j * ld, j, m);
                if (!w.lane) { tau[j] = t; }
            }, [&](int j, int c) {
                if (c > j) { reflect(a + (int64_t)j * ld, tau[j], a + (int64_t)c * ld, j, m); }
            });
            if (l.raw) {
                store_matrix(l, 0, item, m, n, [&](int i, int j) { return a[(int64_t)j * ld + i]; });
                store_matrix(l, 1, item, 1, l.k, [&](int, int j) { return tau[j]; });
                return;
            }
            for (int c = w.warp; c < l.r; c += w.warps) {       // Q: the reflections of a unit vector
                double *q = b + (int64_t)c * ld;
                for (int i = w.lane; i < m; i += WARP) { q[i] = i == c; }
                __syncwarp();
                for (int j = c < l.k ? c : l.k - 1; j >= 0; j--) {
                    reflect(a + (int64_t)j * ld, tau[j], q, j, m);
                }
            }

            __syncthreads();
            store_matrix(l, 0, item, m, l.r, [&](int i, int j) { return b[(int64_t)j * ld + i]; });
            store_matrix(l, 1, item, l.r, n,
                         [&](int i, int j) { return i > j ? 0 : a[(int64_t)j * ld + i]; });
        } else {
            if constexpr (ID == TENSOR_OP_LINALG_SOLVE) {       // b's columns follow those of a
                lu_columns(a, ld, n, n, n + l.r, swaps);
                for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
                    if (a[(int64_t)i * ld + i] == 0) { no_result(l, item, i + 1); }
                }
            }
            for (int c = w.warp; c < l.r; c += w.warps) {
                substitute(a, ld, n, b + (int64_t)c * ld, l.upper, l.unit);
            }
            __syncthreads();
            store_matrix(l, 0, item, n, l.r, [&](int i, int j) { return b[(int64_t)j * ld + i]; });
        }
    });
}

// Pair i of a round in which each of `players` (even) meets another: first < second.
__device__ inline void pair_of(int i, int round, int players, int *first, int *second) {
    int p = (round + i) % (players - 1), q = i ? (round - i + players - 1) % (players - 1) : players - 1;
    *first = p < q ? p : q;
    *second = p < q ? q : p;
}

// The rotation that makes two columns (or rows) with squares p and q and product v orthogonal: x' = c x - s
// y, y' = s x + c y.
__device__ inline void rotation_of(double p, double q, double v, double *c, double *s) {
    double z = (q - p) / (2 * v), t = (z >= 0 ? 1 : -1) / (fabs(z) + hypot(1.0, z));
    *c = 1 / hypot(1.0, t);
    *s = t * *c;
}

// Scales the n elements so that the largest is about 1. -> the factor; NaN if an element is not finite
__device__ inline double scale_matrix(double *a, int64_t n, double *part) {
    double big = 0, scale = 1;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) { big = w_max(big, fabs(a[i])); }
    big = block_join<max_op<double>>(big, part);
    if (big > 0 && big < INFINITY) {
        int e;
        (void)frexp(big, &e);
        scale = ldexp(1.0, -most(-1000, least(e, 1000)));
    } else if (!(big == 0)) {
        scale = NAN;
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) { a[i] *= scale; }
    __syncthreads();
    return scale;
}

// order[k] = the index of the value that is k-th among n values, ascending or descending, stable.
__device__ inline void rank_values(const double *d, int *order, int n, bool falling) {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int place = 0;
        for (int j = 0; j < n; j++) {
            bool before = d[j] < d[i], behind = d[j] > d[i];
                if (falling) { before = d[j] > d[i], behind = d[j] < d[i]; }
            place += before || (!behind && j < i);
        }
        order[place] = i;
    }
    __syncthreads();
}

// Resets *rotated; -> whether the last sweep rotated anything. All threads must call it.
__device__ inline bool rotated_once(int *rotated) {
    __syncthreads();
    bool again = *rotated != 0;
    __syncthreads();
    if (!threadIdx.x) { *rotated = 0; }
    __syncthreads();
    return again;
}

// Two-sided: the pairs of a round have one rotation each; then each pair of pairs rotates a 2 x 2 block.
__global__ void __launch_bounds__(THREADS, 2) eigen_matrices(linalg_t l) {
    TCU_DYNAMIC_SHARED(double, shared);
    TCU_SHARED(double, part, [THREADS / WARP]);
    TCU_SHARED(int, rotated, [1]);
    const int n = l.n, ld = l.ld, players = n + n % 2, pairs = players / 2;
    if (!threadIdx.x) { rotated[0] = 0; }
    __syncthreads();
    each_matrix(l, shared, [&](int64_t item, const int64_t *from, double *a) {
        double *v = a + (int64_t)n * ld, *d = v + (int64_t)n * ld, *cs = d + n, sum = 0;
        int *order = (int *)(cs + players), sweep = 0;
        each_place(n, n, [&](int i, int j) {
            bool given = l.upper ? i <= j : i >= j;             // only one triangle is read
            a[(int64_t)i * ld + j] = given ? element(l, 0, from[0], i, j) : element(l, 0, from[0], j, i);
            v[(int64_t)i * ld + j] = i == j;
        });
        each_place(n, ld - n, [&](int i, int j) { a[(int64_t)i * ld + n + j] = 0; });
        __syncthreads();
        double scale = scale_matrix(a, (int64_t)n * ld, part);
        for (int64_t i = threadIdx.x; i < (int64_t)n * ld; i += blockDim.x) { sum += a[i] * a[i]; }
        double least = 1e-17 * sqrt(block_join<sum_op<double>>(sum, part));
        bool again = scale == scale;
        for (; again && sweep < SWEEPS; sweep++) {
            for (int round = 0; round < players - 1; round++) {
                int p, q, r, s;
                for (int i = (int)threadIdx.x; i < pairs; i += (int)blockDim.x) {
                    pair_of(i, round, players, &p, &q);
                    cs[2 * i] = 1, cs[2 * i + 1] = 0;
                    if (q == n || fabs(a[(int64_t)p * ld + q]) <= least) { continue; }
                    rotation_of(a[(int64_t)p * ld + p], a[(int64_t)q * ld + q], a[(int64_t)p * ld + q],
                            &cs[2 * i], &cs[2 * i + 1]);
                    atomicMax(rotated, 1);
                }
                __syncthreads();
                each_place(pairs, pairs, [&](int i, int j) {
                    double c = cs[2 * i], t = cs[2 * i + 1], e = cs[2 * j], u = cs[2 * j + 1];
                    if (t == 0 && u == 0) { return; }
                    pair_of(i, round, players, &p, &q);
                    pair_of(j, round, players, &r, &s);
                    double *x = a + (int64_t)p * ld, *y = a + (int64_t)q * ld;
                    bool low = q < n, right = s < n;
                    double xr = x[r], xs = right ? x[s] : 0;
            double yr = low ? y[r] : 0;
                    double ys = low && right ? y[s] : 0;
                    double f = c * xr - t * yr, g = c * xs - t * ys, h = t * xr + c * yr;
                    double k = t * xs + c * ys;
                    x[r] = e * f - u * g;
                    if (right) { x[s] = i == j ? 0 : u * f + e * g; }
                    if (low) { y[r] = i == j ? 0 : e * h - u * k; }
                    if (low && right) { y[s] = u * h + e * k; }
                });
                each_place(pairs, n, [&](int i, int j) {
                    double c = cs[2 * i], t = cs[2 * i + 1];
                    if (t == 0) { return; }
                    pair_of(i, round, players, &p, &q);
                    double x = v[(int64_t)p * ld + j], y = v[(int64_t)q * ld + j];
                    v[(int64_t)p * ld + j] = c * x - t * y;
                    v[(int64_t)q * ld + j] = t * x + c * y;
                });
                __syncthreads();
            }
            again = rotated_once(rotated);
        }
        if ((again || scale != scale) && !threadIdx.x) { no_result(l, item, 0); }
        for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) { d[i] = a[(int64_t)i * ld + i] / scale; }
        __syncthreads();
        rank_values(d, order, n, false);
        store_matrix(l, 0, item, 1, n, [&](int, int j) { return d[order[j]]; });
        store_matrix(l, 1, item, n, n, [&](int i, int j) { return v[(int64_t)order[j] * ld + i]; });
    });
}

// One-sided: u's k vectors, of the longer side, are rotated until they are orthogonal; v has the rotations.
// A missing vector is replaced by the unit vector that the others cover least, made orthogonal to them twice.
__global__ void __launch_bounds__(THREADS, 2) singular_matrices(linalg_t l) {
    TCU_DYNAMIC_SHARED(double, shared);
    TCU_SHARED(double, part, [THREADS / WARP]);
    TCU_SHARED(int, rotated, [1]);
    const team_t w = team_now();
    const bool wide = l.m < l.n;
    const int big = wide ? l.n : l.m, k = l.k, ld = l.ld, players = k + k % 2;
    if (!threadIdx.x) { rotated[0] = 0; }
    __syncthreads();
    each_matrix(l, shared, [&](int64_t item, const int64_t *from, double *u) {
        double *v = u + (int64_t)l.r * ld, *d = v + (int64_t)k * ld, *cover = d + k, *dot = cover + big;
        double sum = 0;
        int *order = (int *)(dot + l.r), sweep = 0, have = 0;
        each_place(l.m, l.n, [&](int i, int j) {
            u[wide ? (int64_t)i * ld + j : (int64_t)j * ld + i] =
                element(l, 0, from[0], i, j);
        });
        each_place(k, k, [&](int i, int j) { v[(int64_t)i * ld + j] = i == j; });
        each_place(k, ld - big, [&](int i, int j) { u[(int64_t)i * ld + big + j] = 0; });
        __syncthreads();
        double scale = scale_matrix(u, (int64_t)k * ld, part);
        for (int64_t i = threadIdx.x; i < (int64_t)k * ld; i += blockDim.x) { sum += u[i] * u[i]; }
        const double most = block_join<sum_op<double>>(sum, part);
        const double close = 2.2204460492503131e-16 * sqrt(big + 32.0);
        bool again = scale == scale;
        for (; again && sweep < SWEEPS; sweep++) {
            for (int round = 0; round < players - 1; round++) {
                for (int i = w.warp; i < players / 2; i += w.warps) {
                    int p, q;
                    pair_of(i, round, players, &p, &q);
                    if (q == k) { continue; }
                    double *x = u + (int64_t)p * ld, *y = u + (int64_t)q * ld, xx = 0, yy = 0, xy = 0, c, s;
                    for (int j = w.lane; j < big; j += WARP) {
                        xx += x[j] * x[j];
                        yy += y[j] * y[j];
                        xy += x[j] * y[j];
                    }
                    xx = warp_join<sum_op<double>>(xx);
                    yy = warp_join<sum_op<double>>(yy);
                    xy = warp_join<sum_op<double>>(xy);
                    if (!(xx > 1e-36 * most && yy > 1e-36 * most && fabs(xy) > close * sqrt(xx) * sqrt(yy))) {
                        continue;
                    }
                    rotation_of(xx, yy, xy, &c, &s);
                    if (!w.lane) { atomicMax(rotated, 1); }
                    for (int h = 0; h < 2; h++) {
                        for (int j = w.lane; j < (h ? k : big); j += WARP) {
                            double f = x[j], g = y[j];
                            x[j] = c * f - s * g;
                            y[j] = s * f + c * g;
                        }
                        x = v + (int64_t)p * ld, y = v + (int64_t)q * ld;
                    }
                }
                __syncthreads();
            }
            again = rotated_once(rotated);
        }
        if ((again || scale != scale) && !threadIdx.x) { no_result(l, item, 0); }
        for (int i = w.warp; i < k; i += w.warps) {
            const double *x = u + (int64_t)i * ld;
            double xx = 0;
            for (int j = w.lane; j < big; j += WARP) { xx += x[j] * x[j]; }
            xx = sqrt(warp_join<sum_op<double>>(xx));
            if (!w.lane) { d[i] = xx; }
        }
        __syncthreads();
        rank_values(d, order, k, true);
        for (int i = k + (int)threadIdx.x; i < l.r; i += (int)blockDim.x) { order[i] = i; }
        while (have < k && d[order[have]] > 1e-18 * sqrt(most)) { have++; }
        __syncthreads();
        each_place(have, big, [&](int i, int j) { u[(int64_t)order[i] * ld + j] /= d[order[i]]; });
        __syncthreads();
        for (int j = (int)threadIdx.x; j < big && have < l.r; j += (int)blockDim.x) {
            cover[j] = 0;
            for (int i = 0; i < have; i++) {
                double e = u[(int64_t)order[i] * ld + j];
                cover[j] += e * e;
            }
        }
        __syncthreads();
        for (; have < l.r; have++) {
            double *x = u + (int64_t)order[have] * ld, least = INFINITY;
            int first = 0;
            for (int j = 0; j < big; j++) {     // each thread computes it: the same in all
                if (cover[j] < least) { least = cover[j], first = j; }
            }
            for (int j = (int)threadIdx.x; j < big; j += (int)blockDim.x) { x[j] = j == first; }
            __syncthreads();
            for (int transpose = 0; transpose < 2; transpose++) {
                for (int i = w.warp; i < have; i += w.warps) {
                    const double *y = u + (int64_t)order[i] * ld;
                    double xy = 0;
                    for (int j = w.lane; j < big; j += WARP) { xy += x[j] * y[j]; }
                    xy = warp_join<sum_op<double>>(xy);
                    if (!w.lane) { dot[i] = xy; }
                }
                __syncthreads();
                for (int j = (int)threadIdx.x; j < big; j += (int)blockDim.x) {
                    for (int i = 0; i < have; i++) { x[j] -= dot[i] * u[(int64_t)order[i] * ld + j]; }
                }
                __syncthreads();
            }
            sum = 0;
            for (int j = (int)threadIdx.x; j < big; j += (int)blockDim.x) { sum += x[j] * x[j]; }
            sum = sqrt(block_join<sum_op<double>>(sum, part));
            for (int j = (int)threadIdx.x; j < big; j += (int)blockDim.x) {
                x[j] /= sum;
                cover[j] += x[j] * x[j];
            }
            __syncthreads();
        }
        const double *left = wide ? v : u;
        const double *right = wide ? u : v;
        store_matrix(l, 0, item, 1, k, [&](int, int j) { return d[order[j]] / scale; });
        store_matrix(l, 1, item, l.m, wide ? k : l.r,
                     [&](int i, int j) { return left[(int64_t)order[j] * ld + i]; });
        store_matrix(l, 2, item, wide ? l.r : k, l.n,
                     [&](int i, int j) { return right[(int64_t)order[i] * ld + j]; });
    });
}

// order[items, m] of the rows 0 .. m - 1 after n swaps, one after the other: each reads what the last one
// wrote.
__global__ void __launch_bounds__(THREADS, 4)
    swap_rows(int64_t *y, const int32_t *swaps, int64_t items, int64_t m, int64_t n,
              unsigned long long *error) {
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int64_t *order = y + item * m;
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x) { order[i] = i; }
        __syncthreads();
        for (int64_t i = 0; i < n && !threadIdx.x; i++) {
            int64_t p = checked((int64_t)swaps[item * n + i] - 1, m, item * n + i, error), v = order[i];
            order[i] = order[p];
            order[p] = v;
        }
        __syncthreads();
    }
}

// ------------------------------------------------------------------------------
// >>matmul                                         MARK: matrix product
//
// cuBLASLt if it is available; otherwise tiles in shared memory, 4 x 4 results per thread. The tiles are
// also used for dtypes that cuBLASLt does not take, for strides it cannot express, and as the reference that
// its results are tested against. f32 sums for f16 and bf16. Rejected: tensor cores here (cuBLASLt uses
// them).
// On the CPU: >>impl-products, >>impl-gemm, >>kernel-gemm.
// ------------------------------------------------------------------------------

struct matmul_t {                               // y[m,n] = alpha x[m,k] w[k,n] + bias[n] (+ y), `batch` times
    void *y;
    const void *x, *w, *bias;                   // bias may be NULL
    int dtype;                                  // of all
    int64_t m, n, k, batch;
    int64_t yb, yr, yc, xb, xr, xc, wb, wr, wc; // strides of batch, rows, columns; 0 repeats
    double alpha;
    bool add;
    int epilogue = 0;                           // of cuBLASLt; 0 = none, or only the bias
    void *beside = nullptr;                     // gelu's argument, laid out as y, or relu's bits; may be NULL
};

// Activations write what is beside y, slopes read it. SUMS_EPILOGUE: not added to y, the bias receives the
// sums of the rows of x, bias[m].
enum { MM = 64, KK = 16, RELU_EPILOGUE = 2, GELU_EPILOGUE = 32, SUMS_EPILOGUE = 512,
       RELU_SLOPE_EPILOGUE = 8 | 128, GELU_SLOPE_EPILOGUE = 64 | 128 };

// Relu's bits: one an element, set unless it is <= 0, from the lowest of a byte on. Rows are padded to 128.
__host__ __device__ inline int64_t bits_ld(int64_t columns) { return (columns + 127) / 128 * 128; }

// y = relu(y), and its bits; slope: y stays where its bit is set, and becomes 0 elsewhere. A thread has the
// elements of a byte.
template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
relu_bits(T *y, uint8_t *bits, int64_t rows, int64_t columns, bool slope) {
    const int64_t bytes = (columns + 7) / 8, ld = bits_ld(columns) / 8;
    const bool wide = columns % 8 == 0 && aligned16(y);
    for (int64_t i = thread_index(); i < rows * bytes; i += thread_count()) {
        const int64_t r = i / bytes, b = i - r * bytes;
        const int n = (int)least<int64_t>(8, columns - b * 8);
        T *at = y + r * columns + b * 8;
        pack_t<T, 8> v;
        unsigned set = slope ? bits[r * ld + b] : 0;
        if (wide) { v = *(const pack_t<T, 8> *)at; }
        TCU_UNROLL
        for (int k = 0; k < 8; k++) {
            if (k >= n) { continue; }
            const T from = wide ? v.v[k] : at[k];
            if (!slope && !(to_class<C>(from) <= 0)) { set |= 1u << k; }
            const T to = set >> k & 1 ? from : from_class<T>(C(0));
            if (wide) { v.v[k] = to; } else { at[k] = to; }
        }
        if (wide) { *(pack_t<T, 8> *)at = v; }
        if (!slope) { bits[r * ld + b] = (uint8_t)set; }
    }
}

template <class T, class C> __global__ void __launch_bounds__(THREADS, 2) matmul_tiles(matmul_t q) {
    TCU_SHARED(C, a, [KK][MM + 4]);
    TCU_SHARED(C, b, [KK][MM + 4]);
    int t = (int)threadIdx.x, tx = t % 16, ty = t / 16;
    int64_t row = blockIdx.y * (int64_t)MM, column = blockIdx.x * (int64_t)MM;

    for (int64_t z = blockIdx.z; z < q.batch; z += gridDim.z) {
        C acc[4][4] = {};
        for (int64_t k0 = 0; k0 < q.k; k0 += KK) {
            for (int i = t; i < MM * KK; i += THREADS) {    // lanes along contiguous elements
                int64_t r = q.xc == 1 ? i / KK : i % MM;
                int64_t k = q.xc == 1 ? i % KK : i / MM;
                a[k][r] = row + r < q.m && k0 + k < q.k
                    ? load_typed<T, C>(q.x, q.dtype, z * q.xb + (row + r) * q.xr + (k0 + k) * q.xc) : C(0);
                int64_t c = q.wr == 1 ? i / KK : i % MM;
                int64_t l = q.wr == 1 ? i % KK : i / MM;
                b[l][c] = column + c < q.n && k0 + l < q.k
                    ? load_typed<T, C>(q.w, q.dtype, z * q.wb + (k0 + l) * q.wr + (column + c) * q.wc) : C(0);
            }

            __syncthreads();
            TCU_UNROLL
            for (int k = 0; k < KK; k++) {
                C u[4], v[4];
                TCU_UNROLL
                for (int i = 0; i < 4; i++) {
                    u[i] = a[k][ty + 16 * i];
                    v[i] = b[k][tx + 16 * i];
                }
                TCU_UNROLL
                for (int i = 0; i < 4; i++) {
                    TCU_UNROLL
                    for (int j = 0; j < 4; j++) {
                        if constexpr (same_type<C, float>::value) {
                            acc[i][j] = fmaf(u[i], v[j], acc[i][j]);
                        } else if constexpr (same_type<C, double>::value) {
                            acc[i][j] = fma(u[i], v[j], acc[i][j]);
                        } else {
                            acc[i][j] = w_add(acc[i][j], w_mul(u[i], v[j]));
                        }
                    }
                }
            }
            __syncthreads();
        }

        TCU_UNROLL
        for (int i = 0; i < 4; i++) {
            TCU_UNROLL
            for (int j = 0; j < 4; j++) {
                int64_t r = row + ty + 16 * i, c = column + tx + 16 * j, to = z * q.yb + r * q.yr + c * q.yc;
                if (r >= q.m || c >= q.n) { continue; }
                C v = q.alpha == 1 ? acc[i][j] : w_mul(acc[i][j], (C)q.alpha);
                if (q.bias) { v = w_add(v, load_typed<T, C>(q.bias, q.dtype, c)); }
                if (q.add) { v = w_add(v, load_typed<T, C>(q.y, q.dtype, to)); }
                store_as<C>(q.y, q.dtype, to, v);
            }
        }
    }
}

#if defined(TCU_HAVE_CUBLASLT) || defined(TCU_HAVE_CUDNN)
// The alignment of an address, up to 256, which cuBLASLt assumes unless told otherwise.
static uint32_t alignment_of(const void *p) {
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low && low < 256 ? (uint32_t)low : 256;
}
#endif
#ifdef TCU_HAVE_CUBLASLT
static_assert((int)RELU_EPILOGUE == CUBLASLT_EPILOGUE_RELU && (int)GELU_EPILOGUE == CUBLASLT_EPILOGUE_GELU &&
                  (int)SUMS_EPILOGUE == CUBLASLT_EPILOGUE_BGRADB &&
                  (int)RELU_SLOPE_EPILOGUE == CUBLASLT_EPILOGUE_DRELU &&
                  (int)GELU_SLOPE_EPILOGUE == CUBLASLT_EPILOGUE_DGELU,
              "the epilogues of matmul_t");

// An operand for cuBLASLt, whose matrices are stored column by column: rows x columns with these strides, or
// transposed.
struct side_t {
    int64_t ld;
    bool transposed, fits;
    side_t(int64_t rows, int64_t columns, int64_t down, int64_t across) {
        bool plain = (down == 1 || rows == 1) && (columns == 1 || across >= rows);
        transposed = !plain;
        ld = columns == 1 ? rows : across;
        if (transposed) { ld = down; }
        fits = (plain || ((across == 1 || columns == 1) && down >= columns)) && ld <= INT32_MAX;
    }
};

// Call with the device's lock held: the algorithm of the described product, by cuBLASLt's heuristic; -1 bytes
// of workspace if it has none.
static cublasStatus_t plan_product(const place_t &at, const matmul_t &q, cublasLtMatmulDesc_t product,
                                   cublasLtMatrixLayoutOpaque_t *layout, product_plan_t *plan) {
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t result;
    int results = 0;
    size_t room = (size_t)at.limits.product_workspace;
    uint32_t align[3] = {alignment_of(q.w), alignment_of(q.x), alignment_of(q.y)};
    uint32_t parts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;        // never summed in f16 or bf16
    on_device_t leave(at.device);
    memset((void *)&result, 0, sizeof result);
    cublasStatus_t e = lib.cublasLtMatmulPreferenceInit_internal_(&wish, sizeof wish);
    auto want = [&](cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes) {
        if (!e) { e = lib.cublasLtMatmulPreferenceSetAttribute_(&wish, name, value, bytes); }
    };
    want(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof align[0]);
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof align[1]);
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof align[2]);
    want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof align[2]);
    want(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &parts, sizeof parts);
    if (!e) {
        e = lib.cublasLtMatmulAlgoGetHeuristic_(libraries.of[at.device].blas, product, &layout[0], &layout[1],
                                                &layout[2], &layout[2], &wish, 1, &result, &results);
    }

    if (!e && (!results || result.state)) { e = result.state ? result.state : CUBLAS_STATUS_NOT_SUPPORTED; }
    plan->algo = result.algo;
    plan->workspace = e ? -1 : (int64_t)result.workspaceSize;
    return e;
}

// The layouts of A, B and D, whose sides these are.
static cublasStatus_t layouts_of(const matmul_t &q, const side_t *const *side, cudaDataType type,
                                 cublasLtMatrixLayoutOpaque_t *layout) {
    const int64_t rows[3] = {q.n, q.k, q.n}, columns[3] = {q.k, q.m, q.m}, steps[3] = {q.wb, q.xb, q.yb};
    int32_t count = (int32_t)q.batch;
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    for (int k = 0; k < 3 && !e; k++) {
        const side_t &s = *side[k];
        uint64_t down = (uint64_t)rows[k], across = (uint64_t)columns[k];
        if (s.transposed) { down = (uint64_t)columns[k], across = (uint64_t)rows[k]; }
        e = lib.cublasLtMatrixLayoutInit_internal_(&layout[k], sizeof layout[k], type, down, across, s.ld);
        if (e || count == 1) { continue; }
        e = lib.cublasLtMatrixLayoutSetAttribute_(&layout[k], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count);
        if (e) { break; }
        e = lib.cublasLtMatrixLayoutSetAttribute_(&layout[k], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &steps[k], sizeof steps[k]);
    }
    return e;
}

// What is to be computed of A and B.
static cublasStatus_t product_of(const matmul_t &q, const side_t *const *side, cublasComputeType_t sums,
                                 int32_t epilogue, cublasLtMatmulDescOpaque_t *product) {
    const bool relu = q.epilogue == RELU_EPILOGUE || q.epilogue == RELU_SLOPE_EPILOGUE;
    const int64_t beside_ld = relu ? bits_ld(q.n) : q.n;
    int32_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
    for (int k = 0; k < 2; k++) {
        if (side[k]->transposed) { op[k] = CUBLAS_OP_T; }
    }
    cublasStatus_t e = lib.cublasLtMatmulDescInit_internal_(product, sizeof *product, sums,
                                                            q.dtype == TENSOR_F64 ? CUDA_R_64F : CUDA_R_32F);
    auto set = [&](cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes) {
        if (!e) { e = lib.cublasLtMatmulDescSetAttribute_(product, name, value, bytes); }
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, &op[0], sizeof op[0]);
    set(CUBLASLT_MATMUL_DESC_TRANSB, &op[1], sizeof op[1]);
    if (epilogue) { set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue); }
    if (q.bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &q.bias, sizeof q.bias); }
    if (q.beside) {
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &q.beside, sizeof q.beside);
        set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &beside_ld, sizeof beside_ld);
    }
    return e;
}

// y = x w is its D[n,m] = A[n,k] B[k,m] with A = w and B = x, so nothing is transposed. -> whether it was
// done
static bool matmul_by_library(const place_t &at, const matmul_t &q) {
    bool f64 = q.dtype == TENSOR_F64;
    const bool relu = q.epilogue == RELU_EPILOGUE || q.epilogue == RELU_SLOPE_EPILOGUE;
    if (q.epilogue && (f64 || (q.beside && ((!relu && q.n % 8) || alignment_of(q.beside) < 16)))) {
        return false;
    }
    // cuBLASLt loads a bias in vectors, and nothing tells it the alignment: a bias aligned to less is copied.
    const bool odd_bias = q.bias && alignment_of(q.bias) < 16;
    if (odd_bias && q.epilogue == SUMS_EPILOGUE) { return false; }
    if (!at.allocator || !at.limits.libraries || class_of(q.dtype) == 2 || !q.k || q.m > INT32_MAX ||
        q.n > INT32_MAX || q.k > INT32_MAX || q.batch > INT32_MAX) {
        return false;
    }
    side_t a(q.n, q.k, q.wc, q.wr), b(q.k, q.m, q.xc, q.xr), d(q.n, q.m, q.yc, q.yr);
    if (!a.fits || !b.fits || !d.fits || d.transposed ||
        (q.batch > 1 && (q.xb < 0 || q.wb < 0 || q.yb < 0))) {
        return false;
    }

    int32_t epilogue = q.epilogue;
    if (q.bias && q.epilogue != SUMS_EPILOGUE) { epilogue |= CUBLASLT_EPILOGUE_BIAS; }
    if (q.beside) { epilogue |= CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU; }
    int64_t extras = 0;
    if (q.bias) { extras = odd_bias ? 16 : alignment_of(q.bias); }
    if (q.beside) { extras += 1024ll * alignment_of(q.beside); }
    int64_t tf32 = q.dtype == TENSOR_F32 && __atomic_load_n(&libraries.matmul_tf32, __ATOMIC_RELAXED);
    product_key_t key = {{at.device, q.dtype, q.m, q.n, q.k, q.batch, a.ld, b.ld, d.ld, q.wb, q.xb, q.yb,
                          a.transposed + 2 * b.transposed, epilogue + (q.add ? 1024 : 0), tf32,
                          alignment_of(q.w) + 1024ll * alignment_of(q.x), alignment_of(q.y),
                          extras}};
    cudaDataType type = CUDA_R_32F;

    switch (q.dtype) {
    case TENSOR_F64: type = CUDA_R_64F; break;
    case TENSOR_F16: type = CUDA_R_16F; break;
    case TENSOR_BF16: type = CUDA_R_16BF; break;
    default: break;
    }
    cublasComputeType_t sums = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (f64) { sums = CUBLAS_COMPUTE_64F; }
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t layout[3];     // of A, B, D
    const side_t *side[3] = {&a, &b, &d};
    double one = q.alpha, more = q.add;
    float one32 = (float)one, more32 = (float)more;
    bool found = false;

    std::unique_lock<std::mutex> hold(libraries.of[at.device].lock);
    if (!library_ready(LIBRARY_CUBLASLT, at.device, at.allocator)) { return false; }
    cublasStatus_t e = product_of(q, side, sums, epilogue, &product);
    if (!e) { e = layouts_of(q, side, type, layout); }
    if (!blas_ok("description of a product", e)) { return false; }
    auto *slot = libraries.of[at.device].products.of(key, at.limits.plan_sets, nullptr, &found);
    if (!found) {
        e = plan_product(at, q, &product, layout, &slot->plan);
        if (e && e != CUBLAS_STATUS_NOT_SUPPORTED) { slot->used = 0; }       // it may succeed next time
        if (!blas_ok("no algorithm", e)) { return false; }
    }

    product_plan_t plan = slot->plan;
    hold.unlock();
    if (plan.workspace < 0) { return false; }
    const size_t biased = odd_bias ? (size_t)(q.n * size_of(q.dtype)) : 0;
    const size_t ahead = (biased + 255) / 256 * 256;
    workspace_t space(at.allocator, at.device, at.stream, (int64_t)ahead + plan.workspace);
    if (space.failed) { return false; }
    relaxed_t leave;
    if (odd_bias) {
        const cudaError_t copied = cudaMemcpyAsync(space.at, q.bias, biased, cudaMemcpyDeviceToDevice,
                                                   at.stream);
        if (forget(copied)) { return false; }
        e = lib.cublasLtMatmulDescSetAttribute_(&product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &space.at,
                                                sizeof space.at);
    }
    void *work = space.at ? (char *)space.at + ahead : nullptr;
    const void *alpha = f64 ? (const void *)&one : &one32;
    const void *beta = f64 ? (const void *)&more : &more32;
    if (!e) {
        e = with_room(at.allocator, at.device, [&] {
            return lib.cublasLtMatmul_(libraries.of[at.device].blas, &product, alpha, q.w, &layout[0],
                                       q.x, &layout[1], beta, q.y, &layout[2], q.y, &layout[2],
                                       &plan.algo, work, (size_t)plan.workspace, at.stream);
        });
    }
    if (!e) {
        __atomic_fetch_add(&libraries.calls, 1, __ATOMIC_RELAXED);
        return true;
    }
    return blas_ok("cublasLtMatmul", e);
}
#endif

inline int matmul(const place_t &at, const matmul_t &q) {
    if (!q.m || !q.n || !q.batch) { return 0; }
#ifdef TCU_HAVE_CUBLASLT
    if (matmul_by_library(at, q)) { return 0; }
#endif
    if (q.epilogue) { return TENSOR_ERR_UNSUPPORTED; }
    int64_t gx = (q.n + MM - 1) / MM, gy = (q.m + MM - 1) / MM;
    if (gy > 65535) {
        matmul_t part = q;                      // rows in slices that a grid can count
        for (int64_t r = 0; r < q.m; r += 65535ll * MM) {
            part.m = q.m - r < 65535ll * MM ? q.m - r : 65535ll * MM;
            part.y = (char *)q.y + r * q.yr * size_of(q.dtype);
            part.x = (const char *)q.x + r * q.xr * size_of(q.dtype);
            int code = matmul(at, part);
            if (code) { return code; }
        }
        return 0;
    }

    dim3 grid((unsigned)gx, (unsigned)gy, (unsigned)(q.batch < 65535 ? q.batch : 65535));
    auto *kernel = matmul_tiles<void, int64_t>;
    switch (q.dtype) {
    case TENSOR_F32: kernel = matmul_tiles<float, float>; break;
    case TENSOR_F16: kernel = matmul_tiles<f16, float>; break;
    case TENSOR_BF16: kernel = matmul_tiles<bf16, float>; break;
    case TENSOR_F64: kernel = matmul_tiles<double, double>; break;
    default: break;
    }

    return launch(at, {grid, THREADS}, kernel, q);
}

// y = a b (+ bias of columns) (+ y) for matrices in the last two dims, with broadcast batches and strides of
// any kind. With an epilogue, for one matrix: UNSUPPORTED, and nothing is done, if it would take more than
// one call.
inline int product(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &a, const tensor_arg_t &b,
                   const void *bias = nullptr, bool add = false, int epilogue = 0, void *beside = nullptr) {
    matmul_t q;
    tensor_arg_t batch[3] = {y, a, b};
    memset((void *)&q, 0, sizeof q);
    q.m = y.dims[y.ndim - 2];
    q.n = y.dims[y.ndim - 1];
    q.k = a.dims[a.ndim - 1];
    q.yr = y.strides[y.ndim - 2];
    q.yc = y.strides[y.ndim - 1];
    q.xr = a.strides[a.ndim - 2];
    q.xc = a.strides[a.ndim - 1];
    q.wr = b.strides[b.ndim - 2];
    q.wc = b.strides[b.ndim - 1];
    q.dtype = y.dtype;
    q.bias = bias;
    q.alpha = 1;
    q.add = add;
    q.epilogue = epilogue;
    q.beside = beside;
    for (tensor_arg_t &o : batch) { o.ndim = (uint8_t)(o.ndim - 2); }
    walk_t w = walk_of(batch, 3);
    int last = w.ndim - 1;
    q.batch = w.ndim ? w.dims[last] : w.n;
    q.yb = w.ndim ? w.strides[0][last] : 0;
    q.xb = w.ndim ? w.strides[1][last] : 0;
    q.wb = w.ndim ? w.strides[2][last] : 0;
    for (int64_t i = 0; q.batch && i < w.n / q.batch; i++) {    // one launch for all that one stride covers
        int64_t rest = i, place[3] = {0, 0, 0}, size = size_of(q.dtype);

        for (int d = last - 1; d >= 0; d--) {
            for (int k = 0; k < 3; k++) { place[k] += rest % w.dims[d] * w.strides[k][d]; }
            rest /= w.dims[d];
        }

        q.y = (char *)y.data + place[0] * size;
        q.x = (const char *)a.data + place[1] * size;
        q.w = (const char *)b.data + place[2] * size;
        int code = matmul(at, q);
        if (code) { return code; }
    }
    return 0;
}

// ------------------------------------------------------------------------------
// >>windows                                        MARK: convolution, pools, norms of planes
//
// cuDNN does convolutions if it is available. Otherwise plain kernels do, with one thread per result (one
// block per element of a weight's gradient, or per plane's statistics) and sums in a fixed order, so that no
// network has to leave the device. With channels innermost, threads that are neighbours have neighbouring
// channels; the weight, whose input channels are innermost then, goes through shared memory where threads
// have output channels. Rejected: implicit GEMM here (cuDNN has it); another copy of the weight.
// On the CPU: >>impl-conv, >>impl-direct, >>impl-pool, >>impl-norm.
// ------------------------------------------------------------------------------

typedef tensor_window_params_t window_t;

// Images of a convolution, and the steps between elements of neighbouring channels and pixels: row-major, or
// with channels innermost.
struct images_t {
    int64_t channels, pixels, channel, pixel;
};

struct conv_t {
    window_t g;
    const void *a, *b, *bias;                   // a: x, or the gradient; b: weight, or x
    void *y;
    int64_t images, cg, og, n;                  // channels in, out of a group; results
    bool last;                                  // channels are innermost
    images_t in, out;
    struct { int64_t out, in, tap; } w;         // steps of the weight
};

// Where result i of y is, in the order of memory.
struct result_t {
    int64_t image, channel, pixel;
};
__device__ inline result_t result_at(const images_t &y, bool last, int64_t i) {
    const int64_t inner = last ? y.channels : y.pixels;
    const int64_t outer = last ? y.pixels : y.channels;
    const int64_t row = i / inner, image = row / outer, low = i - row * inner, high = row - image * outer;
    return last ? result_t{image, low, high} : result_t{image, high, low};
}

template <class C> __device__ inline C multiply_add(C a, C b, C c) {
    if constexpr (same_type<C, float>::value) {
        return fmaf(a, b, c);
    } else {
        return fma(a, b, c);
    }
}

template <class T, class C> __global__ void __launch_bounds__(THREADS, 4) conv_forward(conv_t v) {
    const window_t &g = v.g;
    for (int64_t i = thread_index(); i < v.n; i += thread_count()) {
        const result_t r = result_at(v.out, v.last, i);
        const int64_t line = r.pixel / g.out[2], x = r.pixel % g.out[2];
        const int64_t y = line % g.out[1], z = line / g.out[1];
        const T *from = (const T *)v.a + r.image * v.in.channels * v.in.pixels +
                        r.channel / v.og * v.cg * v.in.channel;
        const T *weight = (const T *)v.b + r.channel * v.w.out;
        C sum = v.bias ? to_class<C>(((const T *)v.bias)[r.channel]) : C(0);

        for (int64_t c = 0; c < v.cg; c++, from += v.in.channel, weight += v.w.in) {
            const T *w = weight;
            for (int64_t kz = 0; kz < g.kernel[0]; kz++) {
                int64_t iz = z * g.stride[0] - g.pad[0] + kz * g.dilation[0];
                for (int64_t ky = 0; ky < g.kernel[1]; ky++) {
                    int64_t iy = y * g.stride[1] - g.pad[1] + ky * g.dilation[1];
                    for (int64_t kx = 0; kx < g.kernel[2]; kx++, w += v.w.tap) {
                        int64_t ix = x * g.stride[2] - g.pad[2] + kx * g.dilation[2];
                        if (iz < 0 || iz >= g.in[0] || iy < 0 || iy >= g.in[1] || ix < 0 || ix >= g.in[2]) {
                            continue;
                        }
                        const int64_t pixel = (iz * g.in[1] + iy) * g.in[2] + ix;
                        sum = multiply_add<C>(to_class<C>(from[pixel * v.in.pixel]), to_class<C>(*w), sum);
                    }
                }
            }
        }
        ((T *)v.y)[i] = from_class<T>(sum);
    }
}

// The same with channels innermost: a block has blockDim.x output channels of blockDim.y pixels. Pieces of
// its channels' rows of the weight are laid out in shared memory, as neighbouring threads read them.
template <class T, class C>
__global__ void __launch_bounds__(THREADS, same_type<C, double>::value ? 2 : 3) conv_forward_last(conv_t v) {
    enum { PIECE = 4096 };
    TCU_SHARED(T, weight, [PIECE]);
    const window_t &g = v.g;
    const int width = (int)blockDim.x, pitch = width + 1, own = (int)threadIdx.x;
    const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2], terms = v.cg * taps;
    const int64_t room = PIECE / pitch;
    const bool whole = taps <= room;            // channels to a piece, not taps
    const int64_t piece = whole ? room / taps * taps : room;
    const int64_t parts = (v.out.channels + width - 1) / width, pixels = v.images * v.out.pixels;
    const int64_t tiles = (pixels + blockDim.y - 1) / blockDim.y * parts;

    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t first = tile % parts * width, o = first + own;
        const int64_t i = tile / parts * blockDim.y + threadIdx.y, image = i / v.out.pixels;
        const int64_t pixel = i % v.out.pixels, line = pixel / g.out[2];
        const int64_t x = pixel % g.out[2] * g.stride[2] - g.pad[2];
        const int64_t y = line % g.out[1] * g.stride[1] - g.pad[1];
        const int64_t z = line / g.out[1] * g.stride[0] - g.pad[0];
        const int64_t rows = least<int64_t>(width, v.out.channels - first);
        const bool on = own < rows && i < pixels;
        const T *from = (const T *)v.a + image * v.in.channels * v.in.pixels + o / v.og * v.cg;
        int64_t ix = x, iy = y, iz = z;
        int kx = 0, ky = 0, kz = 0;
        C sum = v.bias && on ? to_class<C>(((const T *)v.bias)[o]) : C(0);

        for (int64_t begin = 0; begin < terms; begin += piece) {
            const int n = (int)least(piece, terms - begin), channels = whole ? n / (int)taps : 1;
            for (int k = (int)threadIdx.y * width + own; k < (int)rows * n; k += THREADS) {
                const int row = k / n, j = k % n;
                const int64_t c = whole ? begin / taps + j % channels : (begin + j) / taps;
                const int64_t tap = whole ? j / channels : (begin + j) % taps;
                weight[(int)(c * taps + tap - begin) * pitch + row] =
                    ((const T *)v.b)[(first + row) * v.w.out + c * v.w.in + tap * v.w.tap];
            }
            __syncthreads();
            for (int j = 0; j < n && on; j++) {
                if (iz >= 0 && iz < g.in[0] && iy >= 0 && iy < g.in[1] && ix >= 0 && ix < g.in[2]) {
                    const int64_t at = (iz * g.in[1] + iy) * g.in[2] + ix;
                    const C by = to_class<C>(weight[j * pitch + own]);
                    sum = multiply_add<C>(to_class<C>(from[at * v.in.pixel]), by, sum);
                }
                ix += g.dilation[2];
                if (++kx < g.kernel[2]) { continue; }
                kx = 0, ix = x, iy += g.dilation[1];
                if (++ky < g.kernel[1]) { continue; }
                ky = 0, iy = y, iz += g.dilation[0];
                if (++kz < g.kernel[0]) { continue; }
                kz = 0, iz = z, from += v.in.channel;
            }
            __syncthreads();
        }
        if (on) { ((T *)v.y)[i * v.out.channels + o] = from_class<T>(sum); }
    }
}

// The window along dim d in which position i is tap k, -1 if there is none.
__device__ inline int64_t window_of(const window_t &g, int d, int64_t i, int64_t k) {
    int64_t o = i + g.pad[d] - k * g.dilation[d];
    if (o < 0 || o % g.stride[d]) { return -1; }
    o /= g.stride[d];
    return o < g.out[d] ? o : -1;
}

template <class T, class C> __global__ void __launch_bounds__(THREADS, 4) conv_input(conv_t v) {
    const window_t &g = v.g;
    for (int64_t i = thread_index(); i < v.n; i += thread_count()) {
        const result_t r = result_at(v.in, v.last, i);
        const int64_t line = r.pixel / g.in[2], x = r.pixel % g.in[2];
        const int64_t y = line % g.in[1], z = line / g.in[1];
        const int64_t group = r.channel / v.cg;
        const T *from = (const T *)v.a + r.image * v.out.channels * v.out.pixels +
                        group * v.og * v.out.channel;
        const T *weight = (const T *)v.b + group * v.og * v.w.out + r.channel % v.cg * v.w.in;
        C sum = v.bias ? to_class<C>(((const T *)v.bias)[r.channel]) : C(0);

        for (int64_t o = 0; o < v.og; o++, from += v.out.channel, weight += v.w.out) {
            const T *w = weight;
            for (int64_t kz = 0; kz < g.kernel[0]; kz++) {
                int64_t oz = window_of(g, 0, z, kz);
                for (int64_t ky = 0; ky < g.kernel[1]; ky++) {
                    int64_t oy = window_of(g, 1, y, ky);
                    for (int64_t kx = 0; kx < g.kernel[2]; kx++, w += v.w.tap) {
                        int64_t ox = window_of(g, 2, x, kx);
                        if (oz < 0 || oy < 0 || ox < 0) { continue; }
                        const int64_t pixel = (oz * g.out[1] + oy) * g.out[2] + ox;
                        sum = multiply_add<C>(to_class<C>(from[pixel * v.out.pixel]), to_class<C>(*w), sum);
                    }
                }
            }
        }
        ((T *)v.y)[i] = from_class<T>(sum);
    }
}

// A block has a tap of an output channel and of blockDim.x input channels, which lie beside each other or are
// one; its rows share the pixels. a = gradient, b = x.
template <class T, class C> __global__ void __launch_bounds__(THREADS, 4) conv_weight(conv_t v) {
    TCU_SHARED(C, s, [THREADS]);
    const window_t &g = v.g;
    const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2], all = v.images * v.out.pixels;
    const int64_t parts = (v.cg + blockDim.x - 1) / blockDim.x, blocks = v.out.channels * taps * parts;
    for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
        const int64_t tap = i % taps, c = i / taps % parts * blockDim.x + threadIdx.x, o = i / taps / parts;
        const int64_t kx = tap % g.kernel[2], ky = tap / g.kernel[2] % g.kernel[1];
        const int64_t kz = tap / g.kernel[2] / g.kernel[1];
        const T *grad = (const T *)v.a + o * v.out.channel;
        const T *x = (const T *)v.b + (o / v.og * v.cg + c) * v.in.channel;
        C sum = C(0);
        for (int64_t j = threadIdx.y; j < all && c < v.cg; j += blockDim.y) {
            const int64_t image = j / v.out.pixels, at = j % v.out.pixels;
            int64_t iz = at / g.out[2] / g.out[1] * g.stride[0] - g.pad[0] + kz * g.dilation[0];
            int64_t iy = at / g.out[2] % g.out[1] * g.stride[1] - g.pad[1] + ky * g.dilation[1];
            int64_t ix = at % g.out[2] * g.stride[2] - g.pad[2] + kx * g.dilation[2];
            if (iz < 0 || iz >= g.in[0] || iy < 0 || iy >= g.in[1] || ix < 0 || ix >= g.in[2]) { continue; }
            const int64_t pixel = (iz * g.in[1] + iy) * g.in[2] + ix;
            const T by = grad[image * v.out.channels * v.out.pixels + at * v.out.pixel];
            const T from = x[image * v.in.channels * v.in.pixels + pixel * v.in.pixel];
            sum = multiply_add<C>(to_class<C>(by), to_class<C>(from), sum);
        }
        sum = join_lanes<sum_op<C>>(sum, s, (int)threadIdx.y, (int)blockDim.y, (int)blockDim.x);
        if (!threadIdx.y && c < v.cg) {
            ((T *)v.y)[o * v.w.out + c * v.w.in + tap * v.w.tap] = from_class<T>(sum);
        }
        __syncthreads();
    }
}

#ifdef TCU_HAVE_CUDNN
enum conv_kind_t { CONV_FORWARD, CONV_INPUT, CONV_WEIGHT };

// y[i] += bias[channel of i]: the elements of a plane one after the other.
template <class T, class C> __global__ void __launch_bounds__(THREADS, 4)
add_to_channels(T *y, const T *bias, int64_t n, int64_t channels, int64_t plane) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        y[i] = from_class<T>(to_class<C>(y[i]) + to_class<C>(bias[i / plane % channels]));
    }
}

// A tensor of a convolution with 2 or 3 dims of space: a row of pixels is an image of height 1.
struct image_t {
    int64_t n, dims[5], strides[5];
    // last: channels are innermost, also if sizes of 1 leave that undecided
    explicit image_t(const tensor_arg_t &a, bool last = false) : n(a.ndim < 4 ? 4 : a.ndim) {
        for (int d = 0; d < n; d++) {
            int from = d < 2 || a.ndim > 3 ? d : d - 1;
            bool made = a.ndim == 3 && d == 2;
            dims[d] = made ? 1 : a.dims[from];
            strides[d] = made ? a.dims[2] * a.strides[2] : a.strides[from];
        }
        int64_t step = 1;
        for (int k = 0; k < n && last; k++) {
            int64_t d = n - k;                       // the channels first, the batch last
            if (k == 0) { d = 1; }
            if (k == n - 1) { d = 0; }
            strides[d] = step;
            step *= dims[d];
        }
    }
};

// Fills at most `wanted` of out, and *made, which is 0 before.
// -> a status of category NOT_SUPPORTED means that cuDNN will never have a plan for it
static cudnnStatus_t conv_plan(const place_t &at, conv_kind_t kind, cudnnDataType_t type, const image_t *t,
                               const int64_t (*space)[3], const int64_t *alignment, bool bias, bool exact,
                               dnn_plan_t *out, int wanted, int *made) {
    static const struct {
        cudnnBackendDescriptorType_t op;
        cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
    } names[3] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
    dnn_graph_t g;
    int64_t n = t[0].n - 2;
    cudnnBackendDescriptor_t d[3], op[2];
    cudnnDataType_t sums = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    double one = 1, zero = 0;
    float one32 = 1, zero32 = 0;
    bool f64 = type == CUDNN_DATA_DOUBLE;
    for (int k = 0; k < 3; k++) {
        bool inner = bias && k == 2;
        d[k] = inner ? g.tensor(k + 1, sums, t[k].n, t[k].dims, t[k].strides, alignment[k], g.INNER)
                     : g.tensor(k + 1, type, t[k].n, t[k].dims, t[k].strides, alignment[k], g.GIVEN);
    }

    cudnnBackendDescriptor_t conv = g.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, space[0]);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, space[1]);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, space[2]);
    g.set(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, space[3]);
    g.finish(conv, "convolution");
    const auto &name = names[kind];             // t and d: large image, weight, small image
    int large = kind == CONV_INPUT ? 2 : 0, weight = 1;
    if (kind == CONV_WEIGHT) { weight = 2; }
    const int small_ = 3 - large - weight;
    const cudnnBackendAttributeType_t number = f64 ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    op[0] = g.make(name.op);
    g.set(op[0], name.alpha, number, 1, f64 ? (void *)&one : &one32);
    g.set(op[0], name.beta, number, 1, f64 ? (void *)&zero : &zero32);
    g.set(op[0], name.conv, conv);
    g.set(op[0], name.x, d[large]);
    g.set(op[0], name.w, d[weight]);
    g.set(op[0], name.y, d[small_]);
    g.finish(op[0], "operation");
    if (bias) {
        int64_t dims[5] = {1, t[2].dims[1], 1, 1, 1}, strides[5] = {dims[1], 1, 1, 1, 1};
        cudnnPointwiseMode_t add = CUDNN_POINTWISE_ADD;
        cudnnBackendDescriptor_t b = g.tensor(4, type, t[2].n, dims, strides, alignment[3]);
        cudnnBackendDescriptor_t y = g.tensor(5, type, t[2].n, t[2].dims, t[2].strides, alignment[2]);
        cudnnBackendDescriptor_t how = g.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        g.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &add);
        g.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &sums);
        g.finish(how, "pointwise");
        op[1] = g.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        g.set(op[1], CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
        g.set(op[1], CUDNN_ATTR_OPERATION_POINTWISE_XDESC, d[2]);
        g.set(op[1], CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
        g.set(op[1], CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
        g.finish(op[1], "operation");
    }

    if (!g.status) {
        *made = plan_of(g, op, bias ? 2 : 1, at.device, exact, at.limits.conv_workspace, out, nullptr,
                        wanted);
    }
    if (*made) { return CUDNN_STATUS_SUCCESS; }
    return g.status ? g.status : CUDNN_STATUS_NOT_SUPPORTED;
}

// What a plan is run with.
struct dnn_data_t {
    int count;
    const int64_t *id;
    void *const *data;
};

// runs(run) calls run as often as it likes -> what it returns, or why it was not called
template <class F>
static cudnnStatus_t dnn_executed(const place_t &at, const dnn_plan_t &plan, const dnn_data_t &with,
                                  void *workspace, F runs) {
    cudnnBackendDescriptor_t pack = nullptr;
    relaxed_t leave;
    cudnnHandle_t handle = libraries.of[at.device].dnn;
    cudnnStatus_t e = lib.cudnnSetStream_(handle, at.stream);
    if (e || (e = lib.cudnnBackendCreateDescriptor_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)) != 0) {
        return e;
    }
    e = lib.cudnnBackendSetAttribute_(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, with.count,
                                      with.id);
    if (!e) {
        e = lib.cudnnBackendSetAttribute_(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                          with.count, with.data);
    }

    if (!e) {
        e = lib.cudnnBackendSetAttribute_(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                          &workspace);
    }

    if (!e) { e = lib.cudnnBackendFinalize_(pack); }
    if (!e) {
        e = runs([&] {
            return with_room(at.allocator, at.device,
                             [&] { return lib.cudnnBackendExecute_(handle, plan.plan, pack); });
        });
    }
    lib.cudnnBackendDestroyDescriptor_(pack);
    return e;
}

static cudnnStatus_t dnn_execute(const place_t &at, const dnn_plan_t &plan, int count, const int64_t *id,
                                 void *const *data, void *workspace) {
    return dnn_executed(at, plan, {count, id, data}, workspace, [](auto run) { return run(); });
}

// Milliseconds of a run, the least of some after one that loads the kernels; negative: it cannot run. What is
// computed is there afterwards as after a single run, because no plan adds to what it writes.
static float time_of(const place_t &at, const dnn_plan_t &plan, const dnn_data_t &with, cudaEvent_t begin,
                     cudaEvent_t end) {
    enum { RUNS = 3 };
    const workspace_t space(at.allocator, at.device, at.stream, plan.workspace);
    float best = -1;
    if (space.failed) { return best; }
    const cudnnStatus_t e = dnn_executed(at, plan, with, space.at, [&](auto run) {
        cudnnStatus_t ran = run();
        for (int k = 0; k < RUNS && !ran; k++) {
            float ms = 0;
            int code = forget(cudaEventRecord(begin, at.stream));
            ran = run();
            if (!code) { code = forget(cudaEventRecord(end, at.stream)); }
            if (!code) { code = forget(cudaEventSynchronize(end)); }
            if (!code) { code = forget(cudaEventElapsedTime(&ms, begin, end)); }
            if (code) { ran = CUDNN_STATUS_EXECUTION_FAILED; }
            if (best < 0 || ms < best) { best = ms; }
        }
        return ran;
    });
    return dnn_ok("a trial", e) ? best : -1;
}

// Keeps the fastest of n > 0 plans, of those that run; the first, if no time is known. The others go at once:
// they are new, and nothing is timed in a capture, so no graph has their kernels.
static dnn_plan_t fastest_of(const place_t &at, dnn_plan_t *plan, int n, const dnn_data_t &with) {
    cudaEvent_t begin = nullptr, end = nullptr;
    float best = -1;
    int kept = 0;
    if (n > 1 && !forget(cudaEventCreateWithFlags(&begin, cudaEventDefault)) &&
        !forget(cudaEventCreateWithFlags(&end, cudaEventDefault))) {
        for (int k = 0; k < n; k++) {
            const float ms = time_of(at, plan[k], with, begin, end);
            if (ms < 0 || (best >= 0 && ms >= best)) { continue; }
            best = ms;
            kept = k;
        }
    }
    if (begin) { cudaEventDestroy(begin); }
    if (end) { cudaEventDestroy(end); }
    for (int k = 0; k < n; k++) {
        if (k != kept) { dnn_discard(plan[k]); }
    }
    plan[kept].tried = true;
    return plan[kept];
}

// Whether engines may be timed: in a capture nothing runs.
static bool may_try(const place_t &at) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return __atomic_load_n(&libraries.benchmark, __ATOMIC_RELAXED) &&
           !forget(cudaStreamIsCapturing(at.stream, &status)) && status == cudaStreamCaptureStatusNone;
}

// What a convolution's slot knows: nothing yet; cuDNN's first plan; what stays, a plan that was tried beside
// others, or that cuDNN has none.
enum conv_state_t { CONV_NEW, CONV_UNTRIED, CONV_SETTLED };

static conv_state_t conv_state(bool found, const dnn_plan_t &plan) {
    if (!found) { return CONV_NEW; }
    return plan.workspace < 0 || plan.tried ? CONV_SETTLED : CONV_UNTRIED;
}

// Fills *plan with cuDNN's first. make(out, wanted, &made): conv_plan of the convolution
template <class F> static cudnnStatus_t first_plan(const place_t &at, dnn_plan_t *plan, F make) {
    on_device_t leave(at.device);
    int made = 0;
    return make(plan, 1, &made);
}

// Fills *plan with the fastest of up to ten, in place of one that was there, which a capture may have run. If
// none can be made, that one stays.
template <class F>
static cudnnStatus_t best_plan(const place_t &at, dnn_plan_t *plan, const dnn_data_t &with, F make) {
    enum { BENCHMARK_LIMIT = 10 };              // as torch.backends.cudnn.benchmark_limit
    on_device_t leave(at.device);
    dnn_plan_t tried[BENCHMARK_LIMIT];
    int made = 0;
    const cudnnStatus_t e = make(tried, BENCHMARK_LIMIT, &made);
    if (e) {
        plan->tried = true;
        return e;
    }
    dnn_drop(*plan);
    *plan = fastest_of(at, tried, made, with);
    return e;
}

// Call with the device's lock held: a convolution's plan, for the sum with bias as well or for the
// convolution only. With tensor_cuda_set_benchmark the engines are timed at the first call that is in no
// capture, on the call's own operands. Their plans are of these sizes alone: which engine is the fastest is a
// matter of sizes, so there is nothing to share with others.
static dnn_plan_t *conv_planned(const place_t &at, conv_kind_t kind, int dtype, const image_t *t,
                                const int64_t (*space)[3], const int64_t *alignment, bool bias,
                                const dnn_data_t &with) {
    bool found = false,
         tf32 = dtype == TENSOR_F32 && !__atomic_load_n(&libraries.no_conv_tf32, __ATOMIC_RELAXED);
    cudnnDataType_t type = dnn_type(dtype);
    int64_t aligned = alignment[0] + alignment[1] * 32 + alignment[2] * 1024;
    if (bias) { aligned += alignment[3] * 32768; }
    dnn_key_t key = {{at.device, kind, dtype, tf32, bias, aligned}};
    int64_t *to = key.v + 6;
    for (int d = 0; d < 5; d++) {
        for (int k = 0; k < 3; k++) {
            *to++ = d < t[k].n ? t[k].dims[d] : 0;
            *to++ = d < t[k].n ? t[k].strides[d] : 0;
        }
    }

    for (int k = 0; k < 4; k++) {               // the pads after follow from the rest
        for (int d = 0; d < 3 && k != 1; d++) { *to++ = space[k][d]; }
    }

    static_assert(6 + 30 + 9 <= sizeof key.v / sizeof *key.v, "a convolution's key");
    auto *slot = libraries.of[at.device].graphs.of(key, at.limits.plan_sets, dnn_drop, &found);
    if (!found) { slot->plan.workspace = -1; }
    auto make = [&](dnn_plan_t *out, int wanted, int *made) {
        const bool exact = dtype == TENSOR_F32 && !tf32;
        return conv_plan(at, kind, type, t, space, alignment, bias, exact, out, wanted, made);
    };
    const conv_state_t state = conv_state(found, slot->plan);
    cudnnStatus_t e = CUDNN_STATUS_SUCCESS;
    if (state != CONV_SETTLED && may_try(at)) {
        e = best_plan(at, &slot->plan, with, make);
    } else if (state == CONV_NEW) {
        e = first_plan(at, &slot->plan, make);
    }

    if (e && state == CONV_NEW) {
        if (!bias) { library_failed(dnn_message); }
        if (CUDNN_STATUS_CATEGORY(e) != CUDNN_STATUS_NOT_SUPPORTED) { slot->used = 0; }
    }

    return slot->plan.workspace < 0 ? nullptr : &slot->plan;
}

// y of a forward or transposed convolution with its bias, or a weight's gradient -> whether it was done
static bool conv_by_library(const place_t &at, conv_kind_t kind, const tensor_call_t *c, const window_t &g) {
    const tensor_arg_t &a = c->arg[0], &b = c->arg[1], &y = c->arg[c->nin];
    const tensor_arg_t *bias = c->nin > 2 && c->arg[2].data ? &c->arg[2] : nullptr;
    if (!at.allocator || !at.limits.libraries || class_of(a.dtype) == 2 || a.ndim > 5 || !a.numel ||
        !b.numel) {
        return false;
    }
    // In the order of the kernels: gradient and x for a weight; the library's graph takes x first.
    const tensor_arg_t &first = kind == CONV_WEIGHT ? b : a;
    const tensor_arg_t &second = kind == CONV_WEIGHT ? a : b;
    const bool last = !a.contiguous || !b.contiguous || !y.contiguous;
    const image_t t[3] = {image_t(first, last), image_t(second, last), image_t(y, last)};
    int64_t space[4][3] = {}, alignment[4], id[4] = {1, 2, 3, 4}, n = t[0].n - 2;
    void *data[4] = {first.data, second.data, y.data, bias ? bias->data : nullptr};
    for (int k = 0; k < 4; k++) {
        uint32_t low = alignment_of(data[k]);
        alignment[k] = data[k] && low < 16 ? low : 16;
    }

    for (int k = 0; k < n; k++) {
        int64_t d = k + 3 - n, span = (g.kernel[d] - 1) * g.dilation[d] + 1;
        int64_t more = (g.out[d] - 1) * g.stride[d] + span - g.in[d] - g.pad[d];
        int64_t slack = g.in[d] + 2 * g.pad[d] - span;
        bool even = slack >= 0 && slack / g.stride[d] + 1 == g.out[d];
        space[0][k] = g.pad[d];
        space[1][k] = even ? g.pad[d] : most<int64_t>(more, 0);     // more engines accept equal pads
        space[2][k] = g.stride[d];
        space[3][k] = g.dilation[d];
    }

    std::lock_guard<std::mutex> hold(libraries.of[at.device].lock);
    if (!library_ready(LIBRARY_CUDNN, at.device, at.allocator)) { return false; }
    auto planned = [&](bool with_bias) {
        id[2] = with_bias ? 5 : 3;
        return conv_planned(at, kind, a.dtype, t, space, alignment, with_bias, {3 + with_bias, id, data});
    };
    dnn_plan_t *plan = bias ? planned(true) : nullptr;
    bool whole = plan != nullptr;
    if (!plan && !(plan = planned(false))) { return false; }
    workspace_t space_for(at.allocator, at.device, at.stream, plan->workspace);
    if (space_for.failed) { return false; }
    cudnnStatus_t e =
        dnn_execute(at, *plan, whole ? 4 : 3, id, data, space_for.at);
    if (!dnn_ok("cudnnBackendExecute", e, true)) { return false; }
    __atomic_fetch_add(&libraries.calls, 1, __ATOMIC_RELAXED);
    if (!bias || whole) { return true; }
    int64_t plane = last ? 1 : y.numel / t[2].dims[0] / t[2].dims[1];
    auto add = [&](auto *p, auto k) {
        typedef typename pointee_t<decltype(p)>::type T;
        return launch(at, threads_for(at, y.numel), add_to_channels<T, decltype(k)>, p, (const T *)bias->data,
                      y.numel, t[2].dims[1], plane);
    };
    switch (a.dtype) {
    case TENSOR_F64: return !add((double *)y.data, 0.0);
    case TENSOR_F16: return !add((f16 *)y.data, 0.0f);
    case TENSOR_BF16: return !add((bf16 *)y.data, 0.0f);
    default: return !add((float *)y.data, 0.0f);
    }
}
#endif

// A pool's window in numbers of type I: 32 bits if all elements can be counted in them, because divisions of
// 64 bits would cost more than the memory accesses. inner: the elements between two neighbours of a row,
// which are the channels if they are innermost.
template <class I> struct pool_t {
    I in[3], out[3], kernel[3], stride[3], pad[3], dilation[3], inner, divisor;
    int mode;
    explicit pool_t(const window_t &g, int64_t between)
        : inner((I)between), divisor((I)g.divisor), mode((int)g.mode) {
        for (int d = 0; d < 3; d++) {
            in[d] = (I)g.in[d];
            out[d] = (I)g.out[d];
            kernel[d] = (I)g.kernel[d];
            stride[d] = (I)g.stride[d];
            pad[d] = (I)g.pad[d];
            dilation[d] = (I)g.dilation[d];
        }
    }

    // The divisor of a mean over a window that has `count` elements inside.
    __device__ I share(I count) const {
        if (divisor) { return divisor; }
        return count > 0 ? count : I(1);
    }
};

// Window o along dim d, as nn__window_at: positions from .. to - 1 in steps of dilation -> how many a mean
// counts
template <class I> __device__ inline I pool_window(const pool_t<I> &g, int d, I o, I *from, I *to) {
    I end = g.in[d] + g.pad[d], all;
    if (g.mode == NN_POOL_ADAPTIVE) {
        *from = (I)((int64_t)o * g.in[d] / g.out[d]);
        *to = (I)((((int64_t)o + 1) * g.in[d] + g.out[d] - 1) / g.out[d]);
        return *to - *from;
    }

    *from = o * g.stride[d] - g.pad[d];
    *to = *from + (g.kernel[d] - 1) * g.dilation[d] + 1;
    if (*to > end) { *to = end; }
    all = *to - *from;
    while (*from < 0) { *from += g.dilation[d]; }
    if (*to > g.in[d]) { *to = g.in[d]; }
    return g.mode == NN_POOL_COUNT_PAD ? all : *to - *from;
}

// Element i of [planes][sizes][inner] -> its plane; its position in the plane; its index in inner.
template <class I> __device__ inline I pool_place(const I *sizes, I inner, I i, I *at, I *between) {
    *between = i % inner;
    i /= inner;
    for (int d = 2; d >= 0; d--) {
        at[d] = i % sizes[d];
        i /= sizes[d];
    }
    return i;
}

// The windows along dim d that may contain position `at`.
template <class I> __device__ inline void pool_holders(const pool_t<I> &g, int d, I at, I *low, I *high) {
    if (g.mode == NN_POOL_ADAPTIVE) {
        *low = (I)((int64_t)at * g.out[d] / g.in[d] - 1);
        *high = (I)((((int64_t)at + 1) * g.out[d] + g.in[d] - 1) / g.in[d]);
    } else {
        *low = (at + g.pad[d] - (g.kernel[d] - 1) * g.dilation[d] + g.stride[d] - 1) / g.stride[d];
        *high = (at + g.pad[d]) / g.stride[d];
    }
    *low = *low < 0 ? 0 : *low;
    *high = *high < g.out[d] ? *high : g.out[d] - 1;
}

template <class T, class I> __global__ void __launch_bounds__(THREADS, 4)
// place: of the largest; NULL = mean
pool_forward(pool_t<I> g, T *y, int32_t *place, const T *x, int64_t n) {
    typedef class_t<T> C;
    int64_t step = thread_count(), plane = (int64_t)g.in[0] * g.in[1] * g.in[2];
    for (int64_t i = thread_index(); i < n; i += step) {
        I o[3], from[3], to[3], count = 1, at = -1, between;
        I of = pool_place(g.out, g.inner, (I)i, o, &between);
        for (int d = 2; d >= 0; d--) { count *= pool_window(g, d, o[d], &from[d], &to[d]); }
        const T *p = x + of * plane * g.inner + between;
        C best = -infinity<C>(), sum = C(0);
        for (I z = from[0]; z < to[0]; z += g.dilation[0]) {
            for (I r = from[1]; r < to[1]; r += g.dilation[1]) {
                for (I c = from[2]; c < to[2]; c += g.dilation[2]) {
                    I k = (z * g.in[1] + r) * g.in[2] + c;
                    C v = to_class<C>(p[(int64_t)k * g.inner]);
                    sum += v;
                    if (v > best || v != v || at < 0) {
                        best = v;
                        at = k;
                    }
                }
            }
        }
        y[i] = from_class<T>(place ? best : sum / (C)g.share(count));
        if (place) { place[i] = at < 0 ? 0 : (int32_t)at; }
    }
}

// dx of a mean, or (with place) of the maximum: an element reads the windows that may contain it, in their
// order. Rejected for the maximum: sorting all gradients by their positions.
template <class T, class I> __global__ void __launch_bounds__(THREADS, 2)
pool_backward(pool_t<I> g, T *dx, const int32_t *place, const T *dy, int64_t n) {
    typedef class_t<T> C;
    int64_t step = thread_count(), pixels = (int64_t)g.out[0] * g.out[1] * g.out[2];
    for (int64_t i = thread_index(); i < n; i += step) {
        I at[3], low[3], high[3], between;
        I of = pool_place(g.in, g.inner, (I)i, at, &between);
        I me = (at[0] * g.in[1] + at[1]) * g.in[2] + at[2];
        for (int d = 0; d < 3; d++) { pool_holders(g, d, at[d], &low[d], &high[d]); }
        C sum = C(0);

        for (I z = low[0]; z <= high[0]; z++) {
            for (I r = low[1]; r <= high[1]; r++) {
                for (I c = low[2]; c <= high[2]; c++) {
                    int64_t q =
                        (of * pixels + ((int64_t)z * g.out[1] + r) * g.out[2] + c) * g.inner + between;
                    if (place) {
                        if (place[q] == (int32_t)me) { sum += to_class<C>(dy[q]); }
                        continue;
                    }
                    I o[3] = {z, r, c}, count = 1, from, to;
                    bool inside = true;
                    for (int d = 0; d < 3; d++) {
                        count *= pool_window(g, d, o[d], &from, &to);
                        inside = inside && at[d] >= from && at[d] < to;
                    }
                    if (inside) { sum += to_class<C>(dy[q]) / (C)g.share(count); }
                }
            }
        }
        dx[i] = from_class<T>(sum);
    }
}

// Statistics over `planes` planes of n elements each: of a channel over the items (groups = 0), of a group
// over its channels. Small ones take one block each. Large ones take three launches: first pieces of planes
// as rows, each with its own mean and squares around it (in the gradient: its two sums); then one block
// joins the pieces of a statistic; then the pieces again, in one pass with 16-byte accesses. So there are
// enough blocks even if there are few statistics, and no division per element.
// Images with channels innermost (last) stay so: there a piece is a run of pixels of one channel, a block
// goes through the pieces of neighbouring channels at once, and the same kernels join them.
struct planes_t { int64_t groups, items, channels, n, rows, planes; bool last; };

__host__ __device__ inline planes_t planes_of(const tensor_group_norm_params_t &p) {
    if (!p.groups) {                                                                           // batch norm
        return planes_t{0, p.items, p.channels, p.plane, p.channels, p.items, false};
    }
    return planes_t{p.groups, p.items, p.channels, p.plane, p.groups * p.items, p.channels / p.groups, false};
}

__device__ inline int64_t plane_of(const planes_t &p, int64_t r, int64_t j) {
    return p.groups ? r * p.planes + j : j * p.channels + r;
}

// Element i of statistic r: where it is, and its channel.
struct element_t { int64_t at, channel; };

__device__ inline element_t element_of(const planes_t &p, int64_t r, int64_t i) {
    if (p.last) {
        const int64_t item = r / p.groups, pixel = i / p.planes;
        const int64_t channel = (r - item * p.groups) * p.planes + (i - pixel * p.planes);
        return element_t{(item * p.n + pixel) * p.channels + channel, channel};
    }
    const int64_t plane = plane_of(p, r, i / p.n);
    return element_t{plane * p.n + i % p.n, plane % p.channels};
}

template <class C> __device__ inline C block_sum(C v, C *s) {
    v = join_lanes<sum_op<C>>(v, s, (int)threadIdx.x, THREADS, 1);
    v = s[0];
    __syncthreads();
    return v;
}

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
plane_norm(planes_t p, T *y, C *mean, C *rstd, C *variance, const T *x, const C *w, const C *b, C eps) {
    TCU_SHARED(C, s, [THREADS]);
    const int64_t all = p.planes * p.n;
    for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
        C a = C(0), q = C(0);
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
            a += to_class<C>(x[element_of(p, r, i).at]);
        }
        a = block_sum(a, s) / (C)all;
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
            C d = to_class<C>(x[element_of(p, r, i).at]) - a;
            q += d * d;
        }
        q = block_sum(q, s) / (C)all;
        C k = 1 / w_sqrt(q + eps);
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
            const element_t e = element_of(p, r, i);
            C h = (to_class<C>(x[e.at]) - a) * k, more = b ? b[e.channel] : C(0);
            y[e.at] = from_class<T>((w ? h * w[e.channel] : h) + more);
        }
        if (!threadIdx.x) {
            mean[r] = a;
            rstd[r] = k;
            variance[r] = q;
        }
    }
}

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
plane_norm_backward(planes_t p, T *dx, const T *dy, const T *x, const C *mean, const C *rstd, const C *w) {
    TCU_SHARED(C, s, [THREADS]);
    const int64_t all = p.planes * p.n;
    for (int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
        C a = C(0), b = C(0), m = mean[r], k = rstd[r];
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
            const element_t e = element_of(p, r, i);
            C g = to_class<C>(dy[e.at]);
            if (w) { g *= w[e.channel]; }
            a += g;
            b += g * (to_class<C>(x[e.at]) - m) * k;
        }
        a = block_sum(a, s) / (C)all;
        b = block_sum(b, s) / (C)all;
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
            const element_t e = element_of(p, r, i);
            C g = to_class<C>(dy[e.at]);
            if (w) { g *= w[e.channel]; }
            dx[e.at] = from_class<T>(k * (g - a - (to_class<C>(x[e.at]) - m) * k * b));
        }
    }
}

// Gradients of weight and bias, one block per channel.
template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
plane_norm_weights(planes_t p, C *dw, C *db, const T *dy, const T *x, const C *mean, const C *rstd) {
    TCU_SHARED(C, s, [THREADS]);
    for (int64_t c = blockIdx.x; c < p.channels; c += gridDim.x) {
        C a = C(0), b = C(0);
        for (int64_t i = threadIdx.x; i < p.items * p.n; i += blockDim.x) {
            int64_t plane = i / p.n * p.channels + c, at = plane * p.n + i % p.n;
            int64_t r = p.groups ? plane / p.planes : c;
            C g = to_class<C>(dy[at]);
            a += g * (to_class<C>(x[at]) - mean[r]) * rstd[r];
            b += g;
        }
        a = block_sum(a, s);
        b = block_sum(b, s);
        if (!threadIdx.x) {
            dw[c] = a;
            db[c] = b;
        }
    }
}

// A piece: a part of at most `longest` elements of a plane. Pieces are numbered by item, channel and part,
// or, with channels innermost, by item, part and channel.
struct pieces_t { planes_t p; int64_t parts, longest, all; };

// Pieces are shorter where there would be fewer than FEW_PIECES blocks; all this is part of the result's
// definition, as it does not depend on the device.
enum { FEW_PIECES = 256, SHORT_PIECE = 2048 };

inline pieces_t pieces_of(const place_t &at, const planes_t &p) {
    int64_t longest = at.limits.norm_piece, parts = (p.n + longest - 1) / longest;
    while (longest > SHORT_PIECE && p.items * p.channels * parts < FEW_PIECES) {
        longest /= 2;
        parts = (p.n + longest - 1) / longest;
    }
    return pieces_t{p, parts, longest, p.items * p.channels * parts};
}

// Piece q -> its plane, its beginning and its length.
struct piece_t { int64_t plane, at, n; };

__device__ inline piece_t piece_of(const pieces_t &s, int64_t q) {
    piece_t r = {q, q * s.p.n, s.p.n};
    if (s.parts > 1) {
        r.plane = q / s.parts;
        int64_t first = (q - r.plane * s.parts) * s.longest;
        r.at = r.plane * s.p.n + first;
        r.n = s.p.n - first < s.longest ? s.p.n - first : s.longest;
    }
    return r;
}

// The statistic that a plane belongs to.
__device__ inline int64_t statistic_of(const planes_t &p, int64_t plane) {
    return p.groups ? plane / p.planes : plane % p.channels;
}

// Piece j of statistic r.
__device__ inline int64_t piece_among(const pieces_t &s, int64_t r, int64_t j) {
    if (s.p.last) {
        const int64_t part = j / s.p.planes, item = r / s.p.groups, group = r - item * s.p.groups;
        return (item * s.parts + part) * s.p.channels + group * s.p.planes + (j - part * s.p.planes);
    }
    int64_t plane = j / s.parts;
    return plane_of(s.p, r, plane) * s.parts + (j - plane * s.parts);
}

__device__ inline int64_t channel_of(const pieces_t &s, int64_t q) {
    return (s.p.last ? q : q / s.parts) % s.p.channels;
}

template <class C> struct pair_t { C a, b; };

template <class C> struct pair_op {
    typedef pair_t<C> acc;
    __device__ static acc none() { return acc{C(0), C(0)}; }
    __device__ static acc join(acc x, acc y) { return acc{x.a + y.a, x.b + y.b}; }
};

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
piece_moments(pieces_t p, moments_t<C> *to, const T *x) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t q0 = (int64_t)blockIdx.x * blockDim.y; q0 < p.all; q0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t q = q0 + threadIdx.y;
        piece_t k = piece_of(p, q < p.all ? q : 0);
        int64_t n = q < p.all ? k.n : 0;
        const T *row[1] = {x + k.at};
        C sum = 0, square = 0;
        each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { sum += v[0]; });
        C m = row_join<sum_op<C>>(sum, s, l) / (C)k.n;
        each_in_row<T, 1>(row, n, l, [&](int64_t, const C *v) { square += (v[0] - m) * (v[0] - m); });
        square = row_join<sum_op<C>>(square, s, l);
        if (n && !l.lane) { to[q] = moments_t<C>{(C)k.n, m, square}; }
    }
}

template <class C> __global__ void __launch_bounds__(THREADS, 4)
join_moments(pieces_t p, C *mean, C *rstd, C *variance, const moments_t<C> *from, C eps) {
    TCU_SHARED(moments_t<C>, s, [THREADS]);
    const int64_t each = p.p.planes * p.parts;
    for (int64_t r = blockIdx.x; r < p.p.rows; r += gridDim.x) {
        moments_t<C> v = moments_op<C>::none();
        for (int64_t j = threadIdx.x; j < each; j += THREADS) {
            v = moments_op<C>::join(v, from[piece_among(p, r, j)]);
        }
        v = join_lanes<moments_op<C>>(v, s, (int)threadIdx.x, THREADS, 1);
        if (!threadIdx.x) {
            C q = v.square / v.n;
            mean[r] = v.mean;
            rstd[r] = 1 / w_sqrt(q + eps);
            variance[r] = q;
        }
        __syncthreads();
    }
}

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
piece_norm(pieces_t p, T *y, const T *x, const C *mean, const C *rstd, const C *w, const C *b) {
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t q = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; q < p.all;
         q += (int64_t)gridDim.x * blockDim.y) {
        piece_t k = piece_of(p, q);
        int64_t r = statistic_of(p.p, k.plane), c = k.plane % p.p.channels;
        C m = mean[r], by = rstd[r], scale = w ? w[c] : C(1);
        C more = b ? b[c] : C(0);
        const T *row[1] = {x + k.at};
        map_row<T, 1>(y + k.at, row, k.n, l,
                      [&](int64_t, const C *v) { return (v[0] - m) * by * scale + more; });
    }
}

// What batch norm in evaluation knows of the channels; numbers of halves are of T or of C. w, b: NULL = 1, 0
template <class T, class C> struct running_t {
    const void *mean, *var, *w, *b;
    bool half_mean, half_var, half_w, half_b;
    C eps;
    __device__ static C read(const void *p, bool half, int64_t c) {
        return half ? to_class<C>(((const T *)p)[c]) : ((const C *)p)[c];
    }
    __device__ pair_t<C> of(int64_t c) const {          // y = x a + b
        C scale = 1 / w_sqrt(read(var, half_var, c) + eps);
        if (w) { scale *= read(w, half_w, c); }
        C shift = -(read(mean, half_mean, c) * scale);
        if (b) { shift += read(b, half_b, c); }
        return {scale, shift};
    }
};

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
running_norm(pieces_t p, T *y, const T *x, running_t<T, C> r) {
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t q = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; q < p.all;
         q += (int64_t)gridDim.x * blockDim.y) {
        const piece_t k = piece_of(p, q);
        const pair_t<C> by = r.of(k.plane % p.p.channels);
        const T *row[1] = {x + k.at};
        map_row<T, 1>(y + k.at, row, k.n, l, [&](int64_t, const C *v) { return v[0] * by.a + by.b; });
    }
}

// With channels innermost: a thread has V of them, and walks from pixel to pixel.
template <class T, int V, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
running_norm_last(T *y, const T *x, int64_t pixels, int64_t channels, running_t<T, C> r) {
    typedef pack_t<T, V> pack;
    const int64_t packs = channels / V, step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t c = threadIdx.x; c < packs; c += blockDim.x) {
        pair_t<C> by[V];
        TCU_UNROLL
        for (int k = 0; k < V; k++) { by[k] = r.of(c * V + k); }
        for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < pixels; i += step) {
            pack v = ((const pack *)x)[i * packs + c];
            TCU_UNROLL
            for (int k = 0; k < V; k++) { v.v[k] = from_class<T>(to_class<C>(v.v[k]) * by[k].a + by[k].b); }
            ((pack *)y)[i * packs + c] = v;
        }
    }
}

// For a piece: the sums of dy and of dy times the normalised x.
template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
piece_sums(pieces_t p, pair_t<C> *to, const T *dy, const T *x, const C *mean, const C *rstd) {
    TCU_SHARED(C, s, [THREADS]);
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t q0 = (int64_t)blockIdx.x * blockDim.y; q0 < p.all; q0 += (int64_t)gridDim.x * blockDim.y) {
        int64_t q = q0 + threadIdx.y;
        piece_t k = piece_of(p, q < p.all ? q : 0);
        int64_t r = statistic_of(p.p, k.plane), n = q < p.all ? k.n : 0;
        const T *row[2] = {dy + k.at, x + k.at};
        C m = mean[r], by = rstd[r], a = 0, b = 0;
        each_in_row<T, 2>(row, n, l, [&](int64_t, const C *v) {
            a += v[0];
            b += v[0] * ((v[1] - m) * by);
        });
        a = row_join<sum_op<C>>(a, s, l);
        b = row_join<sum_op<C>>(b, s, l);
        if (n && !l.lane) { to[q] = pair_t<C>{a, b}; }
    }
}

// For a statistic: the weighted means of both.
template <class C> __global__ void __launch_bounds__(THREADS, 4)
join_sums(pieces_t p, pair_t<C> *to, const pair_t<C> *from, const C *w) {
    TCU_SHARED(pair_t<C>, s, [THREADS]);
    const int64_t each = p.p.planes * p.parts;
    for (int64_t r = blockIdx.x; r < p.p.rows; r += gridDim.x) {
        pair_t<C> v = pair_op<C>::none();
        for (int64_t j = threadIdx.x; j < each; j += THREADS) {
            int64_t q = piece_among(p, r, j);
            C scale = w ? w[channel_of(p, q)] : C(1);
            v = pair_op<C>::join(v, pair_t<C>{from[q].a * scale, from[q].b * scale});
        }
        v = join_lanes<pair_op<C>>(v, s, (int)threadIdx.x, THREADS, 1);
        C all = (C)(p.p.planes * p.p.n);
        if (!threadIdx.x) { to[r] = pair_t<C>{v.a / all, v.b / all}; }
        __syncthreads();
    }
}

// Gradients of weight and bias: sums over the pieces of a channel. threadIdx.x: along channels.
template <class C> __global__ void __launch_bounds__(THREADS, 4)
join_channels(pieces_t p, C *dw, C *db, const pair_t<C> *from) {
    TCU_SHARED(pair_t<C>, s, [THREADS]);
    for (int64_t c0 = (int64_t)blockIdx.x * blockDim.x; c0 < p.p.channels;
         c0 += (int64_t)gridDim.x * blockDim.x) {
        const int64_t c = c0 + threadIdx.x, all = c < p.p.channels ? p.p.items * p.parts : 0;
        pair_t<C> v = pair_op<C>::none();
        for (int64_t j = threadIdx.y; j < all; j += blockDim.y) {
            int64_t item = j / p.parts, part = j - item * p.parts;
            int64_t q = p.p.last ? j * p.p.channels + c : (item * p.p.channels + c) * p.parts + part;
            v = pair_op<C>::join(v, from[q]);
        }
        v = join_lanes<pair_op<C>>(v, s, (int)threadIdx.y, (int)blockDim.y, (int)blockDim.x);
        if (!threadIdx.y && all) {
            dw[c] = v.b;
            db[c] = v.a;
        }
        __syncthreads();
    }
}

template <class T, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
piece_norm_backward(pieces_t p, T *dx, const T *dy, const T *x, const C *mean, const C *rstd, const C *w,
                    const pair_t<C> *means) {
    const lanes_t l = {(int)threadIdx.x, (int)blockDim.x};
    for (int64_t q = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; q < p.all;
         q += (int64_t)gridDim.x * blockDim.y) {
        piece_t k = piece_of(p, q);
        int64_t r = statistic_of(p.p, k.plane);
        C m = mean[r], by = rstd[r], scale = w ? w[k.plane % p.p.channels] : C(1), a = means[r].a,
          b = means[r].b;
        const T *row[2] = {dy + k.at, x + k.at};
        map_row<T, 2>(dx + k.at, row, k.n, l,
                      [&](int64_t, const C *v) { return by * (v[0] * scale - a - (v[1] - m) * by * b); });
    }
}

// Pieces with channels innermost. A thread has V channels, a block blockDim.x V of them: a tile, of which it
// goes through blockDim.y pixels at a time. The statistics of a batch norm are those of groups of one
// channel, of all items as if they were one.
enum { PIXELS_EACH = 8, MOST_PARTS = 512 };

inline unsigned tile_lanes(int64_t channels, int V) {
    unsigned n = 1;
    while (n < WARP && (int64_t)n * V < channels) { n *= 2; }
    return n;
}

inline pieces_t pieces_last(tensor_group_norm_params_t p, int V) {
    if (!p.groups) {
        p.groups = p.channels;
        p.plane *= p.items;
        p.items = 1;
    }
    planes_t s = planes_of(p);
    s.last = true;
    const int64_t lanes = tile_lanes(s.channels, V), tiles = (s.channels + lanes * V - 1) / (lanes * V);
    int64_t longest = THREADS / lanes * PIXELS_EACH;
    while (longest > THREADS / lanes && s.items * tiles * ((s.n + longest - 1) / longest) < FEW_PIECES) {
        longest /= 2;
    }
    longest = most(longest, (s.n + MOST_PARTS - 1) / MOST_PARTS);
    const int64_t parts = (s.n + longest - 1) / longest;
    return pieces_t{s, parts, longest, s.items * s.channels * parts};
}

template <int V> __device__ inline int64_t tiles_of(const pieces_t &s) {
    const int64_t width = (int64_t)blockDim.x * V;
    return (s.p.channels + width - 1) / width;
}

// Tile q of the pieces: its run of pixels among all, its first channel, and where it begins and ends.
struct tile_t { int64_t run, column, first, end; };

template <int V> __device__ inline tile_t tile_of(const pieces_t &s, int64_t q) {
    const int64_t tiles = tiles_of<V>(s), run = q / tiles, item = run / s.parts;
    const int64_t first = (run - item * s.parts) * s.longest;
    return {run, (q - run * tiles) * blockDim.x * V, item * s.p.n + first,
            item * s.p.n + least(first + s.longest, s.p.n)};
}

// f(k, statistic, channel) of V channels of an item, from column on.
template <int V, class F>
__device__ inline void each_channel(const planes_t &p, int64_t item, int64_t column, F f) {
    int64_t group = (uint32_t)column / (uint32_t)p.planes, within = column - group * p.planes;
    TCU_UNROLL
    for (int k = 0; k < V; k++) {
        f(k, item * p.groups + group, column + k);
        if (++within == p.planes) {
            within = 0;
            group++;
        }
    }
}

// The sums of a tile's channels over the threads of the block, all of which must call it: they are the first
// blockDim.x packs of s until the next call. Seen flat, element i of s is of the tile's channel i % width.
// blockDim.x is a power of two up to WARP, so width divides THREADS: the elements k * THREADS + me are all of
// channel me % width, and so are those of the threads that are width apart.
template <class C, int V> __device__ inline void sum_channels(const pack_t<C, V> &v, pack_t<C, V> *s) {
    static_assert(THREADS % (WARP * V) == 0, "a tile's width divides a block's threads");
    const int me = (int)(threadIdx.y * blockDim.x + threadIdx.x), width = (int)blockDim.x * V;
    C *flat = (C *)s, sum = 0;
    __syncthreads();
    s[me] = v;
    __syncthreads();
    TCU_UNROLL
    for (int k = 0; k < V; k++) { sum += flat[k * THREADS + me]; }
    __syncthreads();
    join_lanes<sum_op<C>>(sum, flat, me / width, THREADS / width, width);
}

template <class T, int V, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
pixel_moments(pieces_t p, moments_t<C> *to, const T *x) {
    typedef pack_t<C, V> sums;
    TCU_SHARED(sums, s, [THREADS]);
    const int me = (int)(threadIdx.y * blockDim.x + threadIdx.x), width = (int)blockDim.x * V;
    const int64_t all = p.p.items * p.parts * tiles_of<V>(p), channels = p.p.channels;
    const int64_t packs = channels / V;
    for (int64_t q = blockIdx.x; q < all; q += gridDim.x) {
        const tile_t t = tile_of<V>(p, q);
        const int64_t column = t.column + threadIdx.x * V, end = column < channels ? t.end : 0;
        const C n = (C)(t.end - t.first);
        sums sum = {}, square = {};
        for (int64_t i = t.first + threadIdx.y; i < end; i += blockDim.y) {
            const pack_t<T, V> v = ((const pack_t<T, V> *)x)[i * packs + column / V];
            TCU_UNROLL
            for (int k = 0; k < V; k++) { sum.v[k] += to_class<C>(v.v[k]); }
        }
        sum_channels(sum, s);
        sum = s[threadIdx.x];
        const C mean = ((const C *)s)[me] / n;
        TCU_UNROLL
        for (int k = 0; k < V; k++) { sum.v[k] /= n; }
        for (int64_t i = t.first + threadIdx.y; i < end; i += blockDim.y) {
            const pack_t<T, V> v = ((const pack_t<T, V> *)x)[i * packs + column / V];
            TCU_UNROLL
            for (int k = 0; k < V; k++) {
                const C d = to_class<C>(v.v[k]) - sum.v[k];
                square.v[k] += d * d;
            }
        }
        sum_channels(square, s);
        if (me < width && t.column + me < channels) {
            to[t.run * channels + t.column + me] = moments_t<C>{n, mean, ((const C *)s)[me]};
        }
    }
}

// For a piece: the sums of dy and of dy times the normalised x.
template <class T, int V, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 3)
pixel_sums(pieces_t p, pair_t<C> *to, const T *dy, const T *x, const C *mean, const C *rstd) {
    typedef pack_t<C, V> sums;
    TCU_SHARED(sums, s, [THREADS]);
    const int me = (int)(threadIdx.y * blockDim.x + threadIdx.x), width = (int)blockDim.x * V;
    const int64_t all = p.p.items * p.parts * tiles_of<V>(p), channels = p.p.channels;
    const int64_t packs = channels / V;
    for (int64_t q = blockIdx.x; q < all; q += gridDim.x) {
        const tile_t t = tile_of<V>(p, q);
        const int64_t column = t.column + threadIdx.x * V, end = column < channels ? t.end : 0;
        sums a = {}, b = {}, m = {}, by = {};
        if (end) {
            each_channel<V>(p.p, t.run / p.parts, column, [&](int k, int64_t r, int64_t) {
                m.v[k] = mean[r];
                by.v[k] = rstd[r];
            });
        }
        for (int64_t i = t.first + threadIdx.y; i < end; i += blockDim.y) {
            const pack_t<T, V> g = ((const pack_t<T, V> *)dy)[i * packs + column / V];
            const pack_t<T, V> v = ((const pack_t<T, V> *)x)[i * packs + column / V];
            TCU_UNROLL
            for (int k = 0; k < V; k++) {
                const C slope = to_class<C>(g.v[k]);
                a.v[k] += slope;
                b.v[k] += slope * ((to_class<C>(v.v[k]) - m.v[k]) * by.v[k]);
            }
        }
        sum_channels(a, s);
        const C first = ((const C *)s)[me];
        sum_channels(b, s);
        if (me < width && t.column + me < channels) {
            to[t.run * channels + t.column + me] = pair_t<C>{first, ((const C *)s)[me]};
        }
    }
}

// blockIdx.y: tiles of items, of which a thread walks from pixel to pixel. (Packs are indexed as packs: of an
// element's address nvcc does not know the alignment, and stores them in pieces.)
template <class T, int V, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 4)
pixel_norm(planes_t p, int64_t tiles, T *y, const T *x, const C *mean, const C *rstd, const C *w,
           const C *b) {
    const int64_t packs = p.channels / V, step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t q = blockIdx.y; q < p.items * tiles; q += gridDim.y) {
        const int64_t item = q / tiles, column = ((q - item * tiles) * blockDim.x + threadIdx.x) * V;
        if (column >= p.channels) { continue; }
        C m[V], by[V], more[V];
        each_channel<V>(p, item, column, [&](int k, int64_t r, int64_t c) {
            m[k] = mean[r];
            by[k] = w ? rstd[r] * w[c] : rstd[r];
            more[k] = b ? b[c] : C(0);
        });
        for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < p.n; i += step) {
            const int64_t place = (item * p.n + i) * packs + column / V;
            pack_t<T, V> v = ((const pack_t<T, V> *)x)[place];
            TCU_UNROLL
            for (int k = 0; k < V; k++) {
                v.v[k] = from_class<T>((to_class<C>(v.v[k]) - m[k]) * by[k] + more[k]);
            }
            ((pack_t<T, V> *)y)[place] = v;
        }
    }
}

template <class T, int V, class C = class_t<T>> __global__ void __launch_bounds__(THREADS, 3)
pixel_norm_backward(planes_t p, int64_t tiles, T *dx, const T *dy, const T *x, const C *mean, const C *rstd,
                    const C *w, const pair_t<C> *means) {
    const int64_t packs = p.channels / V, step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t q = blockIdx.y; q < p.items * tiles; q += gridDim.y) {
        const int64_t item = q / tiles, column = ((q - item * tiles) * blockDim.x + threadIdx.x) * V;
        if (column >= p.channels) { continue; }
        C m[V], by[V], scale[V], a[V], b[V];
        each_channel<V>(p, item, column, [&](int k, int64_t r, int64_t c) {
            m[k] = mean[r];
            by[k] = rstd[r];
            scale[k] = w ? by[k] * w[c] : by[k];
            a[k] = by[k] * means[r].a;
            b[k] = by[k] * means[r].b;
        });
        for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < p.n; i += step) {
            const int64_t place = (item * p.n + i) * packs + column / V;
            const pack_t<T, V> g = ((const pack_t<T, V> *)dy)[place];
            pack_t<T, V> v = ((const pack_t<T, V> *)x)[place];
            TCU_UNROLL
            for (int k = 0; k < V; k++) {
                const C h = (to_class<C>(v.v[k]) - m[k]) * by[k];
                v.v[k] = from_class<T>(to_class<C>(g.v[k]) * scale[k] - a[k] - h * b[k]);
            }
            ((pack_t<T, V> *)dx)[place] = v;
        }
    }
}

// Whether a block goes through a statistic alone, of which the channels of a pixel fill a sector.
template <class T> inline bool small_last(const place_t &at, const planes_t &p) {
    return p.planes * p.n <= at.limits.norm_block && p.planes * (int64_t)sizeof(T) >= 32;
}

// The bytes that image_norms needs; 0 = none.
template <class T, int V> inline uint64_t image_norms_scratch(const place_t &at, const tensor_call_t *c) {
    typedef class_t<T> C;
    const bool back = c->row->id == NN_OP_GROUP_NORM_BACKWARD;
    const pieces_t p = pieces_last(c->p->group_norm, V);
    const bool pieces = !small_last<T>(at, p.p) || (back && norm_args_t(c, back).dweight->numel);
    if (!pieces) { return 0; }
    return back ? (uint64_t)(p.all + p.p.rows) * sizeof(pair_t<C>) : (uint64_t)p.all * sizeof(moments_t<C>);
}

// A batch or group norm, or its gradient, of images whose channels are innermost; V of them lie at an aligned
// address.
template <class T, int V> static int image_norms(const place_t &at, const tensor_call_t *c, void *scratch) {
    typedef class_t<T> C;
    const bool back = c->row->id == NN_OP_GROUP_NORM_BACKWARD;
    const norm_args_t a(c, back);
    const pieces_t p = pieces_last(c->p->group_norm, V);
    const planes_t &s = p.p;
    const unsigned lanes = tile_lanes(s.channels, V), high = THREADS / lanes;
    const int64_t tiles = (s.channels + lanes * V - 1) / (lanes * V), runs = s.items * p.parts * tiles;
    const int64_t columns = least<int64_t>(s.items * tiles, 65535), rows = (s.n + high - 1) / high;
    const int64_t at_once = most<int64_t>((int64_t)at.limits.sms * at.limits.blocks_per_sm / columns, 1);
    const grid_t by_run = {grid_for(at, runs, 1), dim3(lanes, high)};
    const grid_t by_pixel = {dim3((unsigned)least(rows, at_once), (unsigned)columns), dim3(lanes, high)};
    const grid_t statistics = blocks_for(at, s.rows);
    const bool small = small_last<T>(at, s);
    const T *x = (const T *)a.x->data, *dy = (const T *)a.dy->data;
    const C *w = (const C *)a.weight->data;
    C *mean = (C *)a.mean->data, *rstd = (C *)a.rstd->data;
    if (!back && small) {
        return launch(at, statistics, plane_norm<T>, s, a.y->data, mean, rstd, a.variance->data, x, w,
                      a.bias->data, (C)c->p->group_norm.eps);
    }
    if (!back) {
        int code = launch(at, by_run, pixel_moments<T, V>, p, scratch, x);
        if (!code) {
            code = launch(at, statistics, join_moments<C>, p, mean, rstd, a.variance->data, scratch,
                          (C)c->p->group_norm.eps);
        }
        if (code) { return code; }
        return launch(at, by_pixel, pixel_norm<T, V>, s, tiles, a.y->data, x, mean, rstd, w, a.bias->data);
    }

    pair_t<C> *sums = (pair_t<C> *)scratch, *means = sums + p.all;
    const bool pieces = !small || a.dweight->numel;
    int code = pieces ? launch(at, by_run, pixel_sums<T, V>, p, sums, dy, x, mean, rstd) : 0;
    if (!code && a.dx->numel && small) {
        code = launch(at, statistics, plane_norm_backward<T>, s, a.dx->data, dy, x, mean, rstd, w);
    } else if (!code && a.dx->numel) {
        code = launch(at, statistics, join_sums<C>, p, means, sums, w);
        if (!code) {
            code = launch(at, by_pixel, pixel_norm_backward<T, V>, s, tiles, a.dx->data, dy, x, mean, rstd,
                          w, means);
        }
    }
    if (code || !a.dweight->numel) { return code; }
    const unsigned wide = tile_lanes(s.channels, 1);
    return launch(at, {grid_for(at, s.channels, wide), dim3(wide, THREADS / wide)}, join_channels<C>, p,
                  a.dweight->data, a.dbias->data, sums);
}

// ------------------------------------------------------------------------------
// >>cudnn                                          MARK: attention, norms, recurrent nets by cuDNN
//
// Attention of f16 and bf16 is one graph for forward and one for backward, which cuDNN makes one kernel
// each. Scores are never stored in memory, except in backward, where the scores of a part of the batch make
// dq a sum in a fixed order. Batch norm of f16 and bf16, and of f32 with channels innermost, which the
// kernels of this file would copy; layer norm of f16, bf16 and large f32. Recurrent nets use cudnnRNN.
// Whole recurrent nets have no kernels in this file: what cuDNN refuses goes to other rows. So does attention
// of halves with dropout, or a mask that cuDNN refuses: in f32 to >>rows. Rejected: dq in f32 to which
// blocks add as they finish (no scores, but other bits in each run); cuDNN's f32 attention (it has no
// backward).
// On the CPU: >>impl-attention, >>impl-norm, >>impl-recurrent.
// ------------------------------------------------------------------------------

#ifdef TCU_HAVE_CUDNN
// These follow conv_kind_t in the keys of plans; the last two belong to layer norm.
enum { ATTENTION_FORWARD = 3, ATTENTION_BACKWARD, NORM_FORWARD, NORM_BACKWARD };

// [.., rows, columns] as [batch, heads, rows, columns], or with the last two transposed.
struct heads_t {
    int64_t dims[4], strides[4];
    bool fits;                                  // strides can express it
    explicit heads_t(const tensor_arg_t &a, bool transposed = false) {
        int n = a.ndim - 2, row = 2 + transposed, column = 3 - transposed;
        dims[row] = a.dims[n];
        dims[column] = a.dims[n + 1];
        strides[row] = a.strides[n];
        strides[column] = a.strides[n + 1];
        dims[0] = dims[1] = 1;
        fits = a.strides[n + 1] == 1 || a.dims[n + 1] == 1;
        for (int d = n - 1; d >= 0; d--) {
            int to = d < n - 1 ? 0 : 1;
            if (a.dims[d] == 1) { continue; }
            if (dims[to] == 1) { strides[to] = a.strides[d]; }
            fits = fits && a.strides[d] == dims[to] * strides[to];
            dims[to] *= a.dims[d];
        }
        for (int d = 0; d < 4; d++) {           // no step is taken there
            if (dims[d] == 1) { strides[d] = d == column ? 1 : a.numel; }
            fits = fits && strides[d] > 0;
        }
    }
};

// A graph of several operations over [batch, heads, rows, columns], with f32 between them.
struct flow_t : dnn_graph_t {
    typedef cudnnBackendDescriptor_t desc_t;
    enum { MOST_OPS = 24 };
    desc_t op[MOST_OPS];
    int ops = 0;
    int64_t inside = 100;
    desc_t inner(const int64_t *dims, cudnnDataType_t type = CUDNN_DATA_FLOAT, bool transposed = false) {
        int64_t strides[4] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
        if (transposed) { strides[2] = 1, strides[3] = dims[2]; }
        return tensor(inside++, type, 4, dims, strides, 16, INNER);
    }

    desc_t number(int64_t id) {
        static const int64_t ones[4] = {1, 1, 1, 1};
        return tensor(id, CUDNN_DATA_FLOAT, 4, ones, ones, 4, VALUE);
    }

    void add(desc_t o) {
        finish(o, "operation");
        op[ops++] = o;
    }

    desc_t point(cudnnPointwiseMode_t mode, desc_t x, desc_t b, desc_t y,
                 cudnnDataType_t type = CUDNN_DATA_FLOAT, int64_t axis = -1, desc_t t = nullptr) {
        desc_t how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
        set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
        if (axis >= 0) { set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis); }
        finish(how, "pointwise");
        desc_t o = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        set(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
        set(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
        if (b) { set(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b); }
        if (t) { set(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t); }
        set(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
        add(o);
        return y;
    }

    desc_t product(desc_t a, desc_t b, desc_t y) {
        cudnnDataType_t sums = CUDNN_DATA_FLOAT;
        desc_t how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
        finish(how, "product");
        desc_t o = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        set(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
        set(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
        set(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
        set(o, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
        add(o);
        return y;
    }

    desc_t reduce(cudnnReduceTensorOp_t mode, desc_t x, desc_t y) {
        cudnnDataType_t sums = CUDNN_DATA_FLOAT;
        desc_t how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
        set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
        finish(how, "reduction");
        desc_t o = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        set(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
        set(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
        set(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
        add(o);
        return y;
    }

    desc_t reshape(desc_t x, desc_t y) {
        desc_t o = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        set(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
        set(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
        add(o);
        return y;
    }
};

// Call with the device's lock held: fills the slot of a graph that comes in many sizes. To compile its
// kernels costs cuDNN from half a second on. The sizes that come first, for many programs the only ones, have
// kernels of their own; all others of the kind share kernels that take any sizes, so that a sentence of
// another length or the last batch of an epoch costs milliseconds. If cuDNN has no such engine, each has its
// own.
static void plan_of_kind(const place_t &at, flow_t &g, const kind_key_t &key, int64_t most,
                         plans_t<dnn_key_t, dnn_plan_t>::slot_t *slot) {
    bool found = false, made = false;
    dnn_kind_t &kind = libraries.of[at.device].kinds.of(key, at.limits.plan_sets, kind_drop, &found)->plan;
    const uint64_t sizes = hash_of(slot->key);
    if (!found) { kind.first = sizes; }
    if (CUDNN_VERSION < 90500) { kind.refused = true; }
    slot->plan.workspace = -1;
    if (kind.first != sizes && !kind.refused && !g.status) {
        made = plan_of(g, g.op, g.ops, at.device, false, most, &slot->plan, &kind.kernels);
        kind.refused = !made && (!g.status || CUDNN_STATUS_CATEGORY(g.status) == CUDNN_STATUS_NOT_SUPPORTED);
        if (kind.refused) { g.status = CUDNN_STATUS_SUCCESS; }
    }
    if (!made && (g.status || !plan_of(g, g.op, g.ops, at.device, false, most, &slot->plan))) {
        library_failed(dnn_message);
    }
    if (g.status && CUDNN_STATUS_CATEGORY(g.status) != CUDNN_STATUS_NOT_SUPPORTED) { slot->used = 0; }
}

// Tensors of attention: their ids, and their positions in lists.
enum { SDPA_Q, SDPA_K, SDPA_V, SDPA_Y, SDPA_LSE, SDPA_G, SDPA_DQ, SDPA_DK, SDPA_DV, SDPA_DELTA, SDPA_SCALE,
       SDPA_ONE, SDPA_NONE, SDPA_COUNT, SDPA_BIAS = SDPA_COUNT };

// The graph over t, with K and V (in forward: K) transposed, as cuDNN's patterns require. bias: added to
// scores, NULL = none; aligned to alignment[SDPA_DELTA]
static void attention_graph(flow_t &g, bool back, bool causal, cudnnDataType_t type, const heads_t *t,
                            const int64_t *alignment, const heads_t *bias) {
    typedef cudnnBackendDescriptor_t desc_t;
    desc_t d[SDPA_COUNT] = {};
    const int64_t *q = t[SDPA_Q].dims, rows = q[2], keys = t[SDPA_K].dims[3];
    const int64_t wide[4] = {q[0], q[1], rows, keys}, thin[4] = {q[0], q[1], rows, 1};
    const int64_t transposed[4] = {q[0], q[1], keys, rows};
    auto reals = [&]() { return g.inner(wide); };
    for (int k = 0; k <= (back ? SDPA_DELTA : SDPA_LSE); k++) {
        bool f32 = k == SDPA_LSE || k == SDPA_DELTA;
        const int64_t aligned = k == SDPA_DELTA ? 16 : alignment[k];
        d[k] = g.tensor(k + 1, f32 ? CUDNN_DATA_FLOAT : type, 4, t[k].dims, t[k].strides, aligned);
    }

    desc_t scale = g.number(SDPA_SCALE + 1), x;
    desc_t more = bias ? g.tensor(SDPA_BIAS + 1, type, 4, bias->dims, bias->strides, alignment[SDPA_DELTA])
                       : nullptr;
    auto biased = [&](desc_t scores) {
        return bias ? g.point(CUDNN_POINTWISE_ADD, scores, more, reals()) : scores;
    };
    auto masked = [&](desc_t scores) {
        if (!causal) { return scores; }
        desc_t row = g.inner(wide, CUDNN_DATA_INT32), column = g.inner(wide, CUDNN_DATA_INT32);
        desc_t seen = g.inner(wide, CUDNN_DATA_BOOLEAN);
        g.point(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, row, CUDNN_DATA_FLOAT, 2);
        g.point(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, column, CUDNN_DATA_FLOAT, 3);
        g.point(CUDNN_POINTWISE_CMP_GE, row, column, seen, CUDNN_DATA_BOOLEAN);
        return g.point(CUDNN_POINTWISE_BINARY_SELECT, scores, g.number(SDPA_NONE + 1), reals(),
                       CUDNN_DATA_FLOAT, -1, seen);
    };
    if (!back) {
        x = g.product(d[SDPA_Q], d[SDPA_K], reals());
        x = masked(biased(g.point(CUDNN_POINTWISE_MUL, x, scale, reals())));
        desc_t top = g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, g.inner(thin));
        x = g.point(CUDNN_POINTWISE_SUB, x, top, reals());
        x = g.point(CUDNN_POINTWISE_EXP, x, nullptr, reals());
        desc_t sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, x, g.inner(thin));
        desc_t logarithm = g.point(CUDNN_POINTWISE_LOG, sum, nullptr, g.inner(thin));
        g.point(CUDNN_POINTWISE_ADD, top, logarithm, d[SDPA_LSE]);
        x = g.point(CUDNN_POINTWISE_DIV, x, sum, g.inner(wide, type));
        g.product(x, d[SDPA_V], d[SDPA_Y]);
        return;
    }

    x = g.point(CUDNN_POINTWISE_MUL, d[SDPA_G], d[SDPA_Y], g.inner(t[SDPA_Y].dims));
    x = g.reduce(CUDNN_REDUCE_TENSOR_ADD, x, g.inner(thin));
    g.point(CUDNN_POINTWISE_MUL, x, g.number(SDPA_ONE + 1), d[SDPA_DELTA]);     // the pattern requires it
    x = g.product(d[SDPA_Q], d[SDPA_K], reals());
    x = biased(g.point(CUDNN_POINTWISE_MUL, x, scale, reals()));
    x = masked(g.point(CUDNN_POINTWISE_SUB, x, d[SDPA_LSE], reals()));
    desc_t p = g.point(CUDNN_POINTWISE_EXP, x, nullptr, reals());
    g.product(g.reshape(p, g.inner(transposed, type, true)), d[SDPA_G], d[SDPA_DV]);
    x = g.product(d[SDPA_G], d[SDPA_V], reals());
    x = g.point(CUDNN_POINTWISE_SUB, x, d[SDPA_DELTA], reals());
    x = g.point(CUDNN_POINTWISE_MUL, x, p, reals());
    x = g.point(CUDNN_POINTWISE_MUL, x, scale, g.inner(wide, type));
    g.product(g.reshape(x, g.inner(transposed, type, true)), d[SDPA_Q], d[SDPA_DK]);
    const int64_t *k = t[SDPA_K].dims, *step = t[SDPA_K].strides;
    const int64_t dims[4] = {k[0], k[1], k[3], k[2]}, strides[4] = {step[0], step[1], step[3], step[2]};
    desc_t key = g.tensor(g.inside++, type, 4, dims, strides, 16, g.INNER);
    g.product(x, g.reshape(d[SDPA_K], key), d[SDPA_DQ]);
}

// Call with the device's lock held.
static dnn_plan_t *attention_planned(const place_t &at, bool back, bool causal, int dtype, const heads_t *t,
                                     const int64_t *alignment, const heads_t *bias) {
    bool found = false;
    int64_t aligned = 0;
    for (int k = 0; k < SDPA_DELTA; k++) { aligned = aligned * 32 + (back || k < SDPA_G ? alignment[k] : 0); }
    dnn_key_t key = {{at.device, back ? ATTENTION_BACKWARD : ATTENTION_FORWARD, dtype, causal, aligned}};
    for (int d = 0; d < 4; d++) {               // results are contiguous
        int64_t *to = key.v + 5 + 7 * d;
        to[0] = t[SDPA_Q].dims[d];
        to[1] = t[SDPA_K].dims[d];
        to[2] = t[SDPA_Y].dims[d];
        to[3] = t[SDPA_Q].strides[d];
        to[4] = t[SDPA_K].strides[d];
        to[5] = t[SDPA_V].strides[d];
        to[6] = back ? t[SDPA_G].strides[d] : 0;
    }

    if (bias) {                                 // it is contiguous
        key.v[33] = alignment[SDPA_DELTA];
        key.v[34] = bias->dims[0];
        key.v[35] = bias->dims[1];
    }
    static_assert(5 + 28 + 3 <= sizeof key.v / sizeof *key.v, "a key of attention");
    auto *slot = libraries.of[at.device].graphs.of(key, at.limits.plan_sets, dnn_drop, &found);
    if (!found) {
        on_device_t leave(at.device);
        flow_t g;
        const int64_t *q = t[SDPA_Q].dims, *k = t[SDPA_K].dims, *y = t[SDPA_Y].dims;
        int64_t layout = 0;                     // which tensors have the heads of a row side by side
        for (int n = 0; n < SDPA_DELTA; n++) {
            const int64_t *step = t[n].strides;
            layout = 2 * layout + (step[1] < most(step[2], step[3]));
        }
        kind_key_t kind = {{at.device, key.v[1], dtype, causal, aligned, layout, q[1], q[3], k[1], y[3]}};
        if (bias) { kind.v[10] = alignment[SDPA_DELTA]; }
        attention_graph(g, back, causal, dnn_type(dtype), t, alignment, bias);
        plan_of_kind(at, g, kind, INT64_MAX, slot);
    }

    return slot->plan.workspace < 0 ? nullptr : &slot->plan;
}

// -> whether it was done
static bool attention_by_library(const place_t &at, const tensor_call_t *c) {
    const bool added = c->row->id == NN_OP_BIASED || c->row->id == NN_OP_BIASED_BACKWARD;
    bool back = c->row->id == NN_OP_ATTENTION_BACKWARD || c->row->id == NN_OP_BIASED_BACKWARD;
    bool causal = c->p->attention.is_causal != 0;
    const attention_args_t a(c, added, back);
    const tensor_arg_t *of[SDPA_DELTA] = {a.q, a.k, a.v, a.y, a.lse, a.y, a.y, a.y, a.y};
    if (back) { of[SDPA_G] = a.dy, of[SDPA_DQ] = a.dq, of[SDPA_DK] = a.dk, of[SDPA_DV] = a.dv; }
    const tensor_arg_t *q = a.q, *y = a.y, *gy = of[SDPA_G], &mask = added ? *a.mask : c->arg[0];
    heads_t bias(mask);
    int last = back ? SDPA_DELTA : SDPA_G, count = 0;
    heads_t sums(*y);
    int64_t all = sums.dims[0], heads = sums.dims[1], rows = sums.dims[2];
    sums.dims[3] = sums.strides[3] = sums.strides[2] = 1;
    sums.strides[1] = rows;
    sums.strides[0] = rows * heads;
    heads_t t[SDPA_DELTA + 1] = {heads_t(*of[0]), heads_t(*of[1], true), heads_t(*of[2], back), heads_t(*y),
                                 sums, heads_t(*gy), heads_t(*of[6]), heads_t(*of[7]), heads_t(*of[8]), sums};
    int64_t tiles = (rows + 63) / 64 * ((t[SDPA_K].dims[3] + 63) / 64), id[SDPA_COUNT + 1],
        alignment[SDPA_DELTA + 1];
    int64_t part = at.limits.attention_workspace / (heads * tiles * 64 * 64 * 2);
    float numbers[3] = {(float)c->p->attention.scale, 1, -INFINITY};
    void *data[SDPA_COUNT + 1];
    if (!at.allocator || !at.limits.libraries || (added && !mask.contiguous)) { return false; }
    for (int k = 0; k < last; k++) {
        bool made = k == SDPA_Y || k == SDPA_LSE || k > SDPA_G;
        if (made ? !of[k]->contiguous : !t[k].fits) { return false; }
    }

    part = back ? most<int64_t>(1, least(part, all)) : all;
    std::lock_guard<std::mutex> hold(libraries.of[at.device].lock);
    if (!library_ready(LIBRARY_CUDNN, at.device, at.allocator)) { return false; }
    for (int64_t from = 0; from < all; from += part) {
        part = part < all - from ? part : all - from;
        uint64_t delta = back ? ((uint64_t)(part * heads * rows) * sizeof(float) + 255) / 256 * 256 : 0;
        for (int k = 0; k <= SDPA_DELTA; k++) {
            t[k].dims[0] = part;
            alignment[k] = 16;
            if (k >= last) { continue; }
            data[k] = (char *)of[k]->data + from * t[k].strides[0] * size_of(of[k]->dtype);
            if (alignment_of(data[k]) < 16) { alignment[k] = alignment_of(data[k]); }
        }

        const bool each = bias.dims[0] > 1;     // or one for all items
        char *added_at = (char *)mask.data + (each ? from * bias.strides[0] * size_of(mask.dtype) : 0);
        heads_t slice = bias;
        if (each) { slice.dims[0] = part; }
        if (alignment_of(added_at) < 16) { alignment[SDPA_DELTA] = alignment_of(added_at); }
        dnn_plan_t *plan = attention_planned(at, back, causal, q->dtype, t, alignment,
                                             added ? &slice : nullptr);
        if (!plan) { return false; }
        workspace_t space(at.allocator, at.device, at.stream, (int64_t)delta + plan->workspace);
        if (space.failed) { return false; }
        data[SDPA_DELTA] = space.at;
        count = 0;
        for (int k = 0; k < SDPA_COUNT; k++) {
            bool number = k >= SDPA_SCALE;
            if (number ? (k == SDPA_ONE && !back) || (k == SDPA_NONE && !causal) : k > last ||
                (!back && k == last)) {
                continue;
            }
            id[count] = k + 1;
            data[count++] = number ? &numbers[k - SDPA_SCALE] : data[k];
        }

        if (added) {
            id[count] = SDPA_BIAS + 1;
            data[count++] = added_at;
        }
        cudnnStatus_t e = dnn_execute(at, *plan, count, id, data,
                                      (char *)space.at + delta);
        if (!dnn_ok("cudnnBackendExecute", e, true)) { return false; }
    }

    __atomic_fetch_add(&libraries.calls, 1, __ATOMIC_RELAXED);
    return true;
}

// Batch and layer norm (whose image is [rows, columns, 1, 1]): ids of their tensors, in forward and backward.
enum { NORM_X = 1, NORM_SCALE, NORM_MEAN, NORM_INVERSE, NORM_Y, NORM_BIAS, NORM_EPS, NORM_DY, NORM_DSCALE,
       NORM_DBIAS };

// Call with the device's lock held.
static dnn_plan_t *norm_planned(const place_t &at, bool layer, bool back, int dtype, const image_t &x,
                                const int64_t *alignment) {
    bool found = false;
    dnn_key_t key = {{at.device, (back ? NORM_BACKWARD : NORM_FORWARD) + 2 * layer, dtype, alignment[0],
                      alignment[1], alignment[2]}};
    for (int d = 0; d < x.n; d++) {
        key.v[6 + 2 * d] = x.dims[d];
        key.v[7 + 2 * d] = x.strides[d];
    }

    auto *slot = libraries.of[at.device].graphs.of(key, at.limits.plan_sets, dnn_drop, &found);
    if (found) { return slot->plan.workspace < 0 ? nullptr : &slot->plan; }
    on_device_t leave(at.device);
    flow_t g;
    cudnnBackendNormMode_t mode = layer ? CUDNN_LAYER_NORM : CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    int64_t dims[5] = {1, x.dims[1], 1, 1, 1}, strides[5] = {dims[1], 1, dims[1], dims[1], dims[1]};
    const int64_t ones[5] = {1, 1, 1, 1, 1}, rows[5] = {x.dims[0], 1, 1, 1, 1};
    auto image = [&](int id, int place) {
        return g.tensor(id, dnn_type(dtype), x.n, x.dims, x.strides, alignment[place]);
    };
    auto row = [&](int id) { return g.tensor(id, CUDNN_DATA_FLOAT, x.n, dims, strides, 16); };
    auto statistic = [&](int id) {
        return layer ? g.tensor(id, CUDNN_DATA_FLOAT, x.n, rows, ones, 16) : row(id);
    };
    cudnnBackendDescriptor_t op = g.make(back ? CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR
                                              : CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    if (back) {
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, image(NORM_X, 0));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, image(NORM_DY, 1));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, row(NORM_SCALE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, statistic(NORM_MEAN));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, statistic(NORM_INVERSE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, row(NORM_DSCALE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, row(NORM_DBIAS));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, image(NORM_Y, 2));
    } else {
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, image(NORM_X, 0));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, row(NORM_SCALE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, row(NORM_BIAS));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
              g.tensor(NORM_EPS, CUDNN_DATA_FLOAT, x.n, ones, ones, 4, g.VALUE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, statistic(NORM_MEAN));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, statistic(NORM_INVERSE));
        g.set(op, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, image(NORM_Y, 2));
    }

    g.add(op);
    const kind_key_t kind = {{at.device, key.v[1], dtype, alignment[0], alignment[1], alignment[2], x.n,
                              x.dims[1], x.strides[1]}};
    plan_of_kind(at, g, kind, at.limits.conv_workspace, slot);
    return slot->plan.workspace < 0 ? nullptr : &slot->plan;
}

__global__ void __launch_bounds__(THREADS, 4)
variance_of(float *variance, const float *inverse, int64_t n, float eps) {
    for (int64_t i = thread_index(); i < n;
         i += thread_count()) {
        float v = 1 / (inverse[i] * inverse[i]) - eps;
        variance[i] = v < 0 ? 0 : v;
    }
}

// -> whether it was done
static bool norm_by_library(const place_t &at, const tensor_call_t *c) {
    const bool layer = c->row->id == NN_OP_LAYER_NORM || c->row->id == NN_OP_LAYER_NORM_BACKWARD;
    const bool back = c->row->id == NN_OP_GROUP_NORM_BACKWARD || c->row->id == NN_OP_LAYER_NORM_BACKWARD;
    const norm_args_t a(c, back);
    const tensor_arg_t &other = back ? *a.dweight : *a.bias, &given = c->arg[0];
    const tensor_arg_t &y = back ? *a.dx : *a.y;
    const int64_t columns = layer ? c->p->layer_norm.columns : 1;
    const int64_t size[4] = {given.numel / most<int64_t>(columns, 1), columns, 1, 1};
    const int64_t step[4] = {columns, 1, 1, 1};
    tensor_arg_t x = *a.x;
    if (layer && x.contiguous) {
        x.dims = size;
        x.strides = step;
        x.ndim = 4;
    }

    float eps = (float)(layer ? c->p->layer_norm.eps : c->p->group_norm.eps);
    if (!at.allocator || !at.limits.libraries || x.dtype == TENSOR_F64 || x.ndim < 4 || x.ndim > 5 ||
        !x.numel || (layer && c->p->layer_norm.rms) ||
        x.contiguous != y.contiguous || x.contiguous != given.contiguous || !a.weight->data || !other.data ||
        !other.numel || !y.numel) {
        return false;
    }

    const image_t image(x, layer || !x.contiguous);
    const int64_t alignment[3] = {alignment_of(x.data), alignment_of(given.data), alignment_of(y.data)};
    const int64_t ids[2][8] = {{NORM_X, NORM_SCALE, NORM_BIAS, NORM_Y, NORM_MEAN, NORM_INVERSE, NORM_EPS},
                               {NORM_DY, NORM_X, NORM_MEAN, NORM_INVERSE, NORM_SCALE, NORM_Y, NORM_DSCALE,
                                NORM_DBIAS}};
    void *data[8];
    for (int k = 0; k < 8; k++) {
        data[k] = back || k < 6 ? c->arg[k].data : nullptr;
        if (!back && k == 6) { data[k] = &eps; }
        bool row = back ? k > 1 && k != 5 : k != 0 && k != 3 && k < 6;
        if (row && alignment_of(data[k]) < 16) { return false; }
    }

    std::lock_guard<std::mutex> hold(libraries.of[at.device].lock);
    if (!library_ready(LIBRARY_CUDNN, at.device, at.allocator)) { return false; }
    dnn_plan_t *plan = norm_planned(at, layer, back, x.dtype, image, alignment);
    if (!plan) { return false; }
    workspace_t space(at.allocator, at.device, at.stream, plan->workspace);
    if (space.failed) { return false; }
    cudnnStatus_t e = dnn_execute(at, *plan, back ? 8 : 7, ids[back], data,
                                  space.at);
    if (!dnn_ok("cudnnBackendExecute", e, true)) { return false; }
    __atomic_fetch_add(&libraries.calls, 1, __ATOMIC_RELAXED);
    return back || layer ||
           !launch(at, threads_for(at, a.variance->numel), variance_of, a.variance->data, a.rstd->data,
                   a.variance->numel, eps);
}

// A whole recurrent net (NN_OP_NET), described for one call, which costs less than the key of a plan. Sizes
// are in bytes.
struct net_t {
    cudnnRNNDescriptor_t net = nullptr;
    cudnnRNNDataDescriptor_t x = nullptr, y = nullptr;
    cudnnTensorDescriptor_t h = nullptr, part[2] = {};      // part: what cudnnGetRNNWeightParams fills
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    size_t weights = 0, work = 0, kept = 0;
    const tensor_net_params_t &p;
    const int64_t ends, gates, features;                    // ends: layers times directions
    int64_t size;                                           // of an element
    // Call with the device's lock held.
    net_t(int device, int dtype, const int64_t *dims, const tensor_net_params_t &p_)
        : p(p_), ends(p.num_layers * p.directions), gates(nn_gates(p.kind)), features(dims[2]),
          size(size_of(dtype)) {
        const int64_t width_of_y = p.hidden_size * p.directions, hidden = p.hidden_size;
        const int64_t steps = dims[p.batch_first != 0], items = dims[!p.batch_first], most = INT32_MAX;
        cudnnDataType_t type = dnn_type(dtype);
        bool half = size == 2, tf32 = !__atomic_load_n(&libraries.no_conv_tf32, __ATOMIC_RELAXED);
        int *length = nullptr;
        const int state[3] = {(int)ends, (int)items, (int)hidden};
        const int step[3] = {state[1] * state[2], state[2], 1};
        if (steps > most || items > most || features > most || width_of_y > most || items * hidden > most ||
            !(length = (int *)malloc((size_t)items * sizeof *length))) {
            status = CUDNN_STATUS_NOT_SUPPORTED;
            return;
        }
        for (int64_t k = 0; k < items; k++) { length[k] = (int)steps; }
        check(lib.cudnnCreateRNNDescriptor_(&net));
        for (auto *d : {&x, &y}) {
            const int64_t width = d == &y ? width_of_y : features;
            cudnnRNNDataLayout_t layout = p.batch_first ? CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
                                               : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
            if (!status) { check(lib.cudnnCreateRNNDataDescriptor_(d)); }
            if (!status) {
                check(lib.cudnnSetRNNDataDescriptor_(*d, type, layout, (int)steps, (int)items, (int)width,
                                                     length, nullptr));
            }
        }
        free(length);
        for (auto *d : {&h, &part[0], &part[1]}) {
            if (!status) { check(lib.cudnnCreateTensorDescriptor_(d)); }
        }
        if (!status) { check(lib.cudnnSetTensorNdDescriptor_(h, type, 3, state, step)); }
        if (!status) {
            static const cudnnRNNMode_t modes[] = {CUDNN_RNN_TANH, CUDNN_RNN_RELU, CUDNN_LSTM, CUDNN_GRU};
            cudnnRNNBiasMode_t bias = p.no_bias ? CUDNN_RNN_NO_BIAS : CUDNN_RNN_DOUBLE_BIAS;
            cudnnDirectionMode_t ways = p.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL;
            cudnnMathType_t math = tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
            if (half) { math = CUDNN_TENSOR_OP_MATH; }
            check(lib.cudnnSetRNNDescriptor_v8_(net, CUDNN_RNN_ALGO_STANDARD, modes[p.kind], bias, ways,
                                                CUDNN_LINEAR_INPUT, type, CUDNN_DATA_FLOAT, math,
                                                (int)features, (int)hidden, (int)hidden, (int)p.num_layers,
                                                nullptr, CUDNN_RNN_PADDED_IO_ENABLED));
        }
        if (libraries.properties) { return; }                       // the rest needs a device
        cudnnHandle_t handle = libraries.of[device].dnn;
        if (!status) { check(lib.cudnnGetRNNWeightSpaceSize_(handle, net, &weights)); }
        if (!status) { check(lib.cudnnGetRNNTempSpaceSizes_(handle, net, mode(), x, &work, &kept)); }
    }

    ~net_t() {
        if (net) { lib.cudnnDestroyRNNDescriptor_(net); }
        for (auto *d : {x, y}) {
            if (d) { lib.cudnnDestroyRNNDataDescriptor_(d); }
        }
        for (auto *d : {h, part[0], part[1]}) {
            if (d) { lib.cudnnDestroyTensorDescriptor_(d); }
        }
    }

    net_t(const net_t &) = delete;
    static int64_t nn_gates(int64_t kind) {
        if (kind == NN_LSTM_NET) { return 4; }
        return kind == NN_GRU_NET ? 3 : 1;
    }

    cudnnForwardMode_t mode() const {
        return p.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
    }

    bool check(cudnnStatus_t s) {
        if (!status) { status = s; }
        return dnn_ok("a recurrent net", s, true);
    }

    // f(our offset, offset in cuDNN's space, bytes) for each matrix, then for each bias -> whether cuDNN
    // gave them
    template <class F> bool parts(cudnnHandle_t handle, void *space, F f) {
        int64_t ours = 0;
        for (int bias = 0; bias < (p.no_bias ? 1 : 2) && !status; bias++) {
            for (int64_t k = 0; k < ends * 2 * gates && !status; k++) {
                int64_t end = k / (2 * gates), id = k % (2 * gates);
                void *at[2] = {};
                if (!check(lib.cudnnGetRNNWeightParams_(handle, net, (int)end, weights, space, (int)id,
                                                        part[0],
                                                        &at[0], part[1], &at[1]))) {
                    break;
                }
                int64_t from = end < p.directions ? features : p.hidden_size * p.directions;
                if (id >= gates) { from = p.hidden_size; }
                int64_t bytes = p.hidden_size * (bias ? 1 : from) * size;
                f(ours, (char *)at[bias] - (char *)space, bytes);
                ours += bytes;
            }
        }
        return !status;
    }

    // Copies weights into cuDNN's space, or out of it, in as few pieces as possible.
    void move(cudnnHandle_t handle, char *ours, char *space, bool out, cudaStream_t stream) {
        int64_t a = 0, b = 0, n = 0;
        auto flush = [&] {
            char *to = space + b, *from = ours + a;
            if (out) { to = ours + a, from = space + b; }
            if (n && code_of(cudaMemcpyAsync(to, from, (size_t)n, cudaMemcpyDeviceToDevice, stream))) {
                status = CUDNN_STATUS_INTERNAL_ERROR;
            }
        };
        parts(handle, space, [&](int64_t from, int64_t to, int64_t bytes) {
            if (from != a + n || to != b + n) {
                flush();
                a = from, b = to, n = 0;
            }
            n += bytes;
        });
        flush();
    }
};

static int64_t backend_net(int index, int dtype, const int64_t *dims, const tensor_params_t *p) {
    if (__atomic_load_n(&libraries.off, __ATOMIC_RELAXED) || dtype == TENSOR_F64) { return -1; }
    on_device_t leave(index);
    std::lock_guard<std::mutex> hold(libraries.of[index].lock);
    if (!library_ready(LIBRARY_CUDNN, index, nullptr)) { return -1; }
    net_t net(index, dtype, dims, p->net);
    return net.status ? -1 : (int64_t)net.kept;
}

// -> whether it was done
static bool net_by_library(const place_t &at, const tensor_call_t *c) {
    const bool back = c->row->id == NN_OP_NET_BACKWARD;
    const net_args_t a(c, back);
    const tensor_arg_t &x = *a.x, &w = *a.weights, &y = *a.y, &states = *a.states, &kept = *a.kept;
    const void *h0 = a.h0->data, *c0 = a.c0->data;
    if (!at.allocator || !at.limits.libraries) { return false; }
    std::lock_guard<std::mutex> hold(libraries.of[at.device].lock);
    if (!library_ready(LIBRARY_CUDNN, at.device, at.allocator)) { return false; }
    cudnnHandle_t handle = libraries.of[at.device].dnn;
    relaxed_t leave;
    net_t net(at.device, x.dtype, x.dims, c->p->net);
    const size_t ours = (size_t)(w.numel * net.size);
    bool same = net.weights == ours && (uintptr_t)w.data % 16 == 0;
    if (net.status || (size_t)kept.numel < net.kept || !net.check(lib.cudnnSetStream_(handle, at.stream)) ||
        !net.parts(handle, w.data, [&](int64_t from, int64_t to, int64_t) { same = same && from == to; })) {
        return false;
    }

    auto lines = [](size_t n) { return (n + 255) / 256 * 256; };
    size_t more = same ? 0 : lines(net.weights);
    workspace_t room(at.allocator, at.device, at.stream,
                     (int64_t)(lines(net.work) + more + (back ? lines(net.kept) + more : 0)));
    if (room.failed) { return false; }
    char *work = (char *)room.at, *space = same ? (char *)w.data : work + lines(net.work);
    char *state = (char *)states.data, *cells = state && net.p.kind == NN_LSTM_NET
        ? state + states.numel / 2 * net.size : nullptr;
    if (!same) { net.move(handle, (char *)w.data, space, false, at.stream); }
    if (!back) {
        if (!net.status) {
            net.check(with_room(at.allocator, at.device, [&] {
                return lib.cudnnRNNForward_(handle, net.net, net.mode(), nullptr, net.x, x.data, net.y,
                                            y.data, net.h, h0, state, net.h, c0, cells, net.weights, space,
                                            net.work, work, net.kept, net.kept ? kept.data : nullptr);
            }));
        }
    } else {                                    // backward changes what was kept, and may run again
        char *copy = work + lines(net.work) + more,
             *dw = same ? (char *)a.dweights->data : copy + lines(net.kept);
        cudaError_t e = cudaMemcpyAsync(copy, kept.data, net.kept, cudaMemcpyDeviceToDevice, at.stream);
        if (!e) { e = cudaMemsetAsync(dw, 0, net.weights, at.stream); }
        if (code_of(e)) { return false; }
        auto given = [](const tensor_arg_t *g) { return g->numel ? g->data : nullptr; };
        if (!net.status) {
            net.check(with_room(at.allocator, at.device, [&] {
                return lib.cudnnRNNBackwardData_v8_(handle, net.net, nullptr, net.y, y.data, a.dy->data,
                                                    net.x, a.dx->data, net.h, h0, state, given(a.dh0), net.h,
                                                    c0, cells, given(a.dc0), net.weights, space, net.work,
                                                    work, net.kept, copy);
            }));
        }

        if (!net.status) {
            net.check(with_room(at.allocator, at.device, [&] {
                return lib.cudnnRNNBackwardWeights_v8_(handle, net.net, CUDNN_WGRAD_MODE_ADD, nullptr, net.x,
                                                       x.data, net.h, h0, net.y, y.data, net.weights, dw,
                                                       net.work, work, net.kept, copy);
            }));
        }
        if (!net.status && !same) { net.move(handle, (char *)a.dweights->data, dw, true, at.stream); }
    }

    if (net.status) { return false; }
    __atomic_fetch_add(&libraries.calls, 1, __ATOMIC_RELAXED);
    return true;
}
#else
static int64_t backend_net(int, int, const int64_t *, const tensor_params_t *) { return -1; }
#endif

// ------------------------------------------------------------------------------
// >>losses                                         MARK: losses of elements
//
// tensor_nn.h's formulas (NN_LOSSES), defined for the device. A sum is made by reduce, over the elements'
// losses.
// On the CPU: >>impl-losses, >>nn-kernel-loss.
// ------------------------------------------------------------------------------

// clang-format off
#define V_SET(x) C(x)
#define V_ADD(x, y) w_add(x, y)
#define V_SUB(x, y) w_sub(x, y)
#define V_MUL(x, y) w_mul(x, y)
#define V_DIV(x, y) w_div(x, y)
#define V_NEG(x) (-(x))
#define V_ABS(x) w_abs(x)
#define V_MAX(x, y) w_max(x, y)
#define V_SQRT(x) w_sqrt(x)
#define V_LT(x, y) ((x) < (y))
#define V_LE(x, y) ((x) <= (y))
#define V_GT(x, y) ((x) > (y))
#define V_EQ(x, y) ((x) == (y))
#define V_SEL(m, x, y) ((m) ? (x) : (y))
#define V_LOG(x) w_log(x)
#define V_LOG1P(x) w_log1p(x)
#define V_EXP(x) w_exp(x)
#define V_SIGMOID(x) w_sigmoid(x)
#define V_NLS(x) minus_log_sigmoid(x)
// clang-format on
template <class C> __device__ inline C minus_log_sigmoid(C x) {
    return w_max(-x, C(0)) + w_log1p(w_exp(-w_abs(x)));
}

template <class C> __global__ void __launch_bounds__(THREADS, 4)
loss_map(int which, C *y, const C *x, const C *t, const C *w, const C *pos, C p, int64_t n,
         unsigned long long *error) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        C a = x[i], b = t[i], q = pos ? pos[i] : C(1), v = C(0);
        if (which == NN__LOSS_BCE && !(a >= 0 && a <= 1)) {
            fault(error, i);
        }
        switch (which) {
#define TCU_X(ID, f, dx, dt) case NN__LOSS_##ID: v = f(V_, a, b, p, q); break;
            NN_LOSSES(TCU_X)
#undef TCU_X
        }
        y[i] = w ? v * w[i] : v;
    }
}

template <class C> __global__ void __launch_bounds__(THREADS, 4)
loss_map_backward(int which, C *gx, C *gt, const C *g, bool each, C scale, const C *x, const C *t, const C *w,
                  const C *pos, C p, int64_t n) {
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        C a = x[i], b = t[i], q = pos ? pos[i] : C(1);
        C k = g[each ? i : 0] * scale, v = C(0), u = C(0);
        (void)a, (void)b, (void)q;
        switch (which) {
#define TCU_X(ID, f, dx, dt)                                                                                 \
    case NN__LOSS_##ID:                                                                                      \
        if (gx) { v = dx(V_, a, b, p, q); }                                                                  \
        if (gt) { u = dt(V_, a, b, p, q); }                                                                  \
        break;
            NN_LOSSES(TCU_X)
#undef TCU_X
        }
        if (w) { k *= w[i]; }
        if (gx) { gx[i] = v * k; }
        if (gt) { gt[i] = u * k; }
    }
}

// ------------------------------------------------------------------------------
// >>nets                                           MARK: columns of images, recurrent nets, CTC
//
// A recurrent net is one product and one kernel per step: the work between the products is one sweep, as on
// the CPU. CTC takes one block per item, whose threads share the states of a step. Rejected: one kernel for
// all steps of a net (cuDNN has it; it needs a grid that waits for itself).
// On the CPU: >>impl-columns, >>impl-recurrent, >>impl-ctc.
// ------------------------------------------------------------------------------

// y[plane][tap][pixel] = the element under the tap for that pixel, 0 outside.
template <class C> __global__ void __launch_bounds__(THREADS, 4)
columns_of(window_t g, C *y, const C *x, int64_t n) {
    int64_t step = thread_count();
    for (int64_t i = thread_index(); i < n; i += step) {
        int64_t o[3], k[3], rest = i, at = 0;
        bool inside = true;
        for (int d = 2; d >= 0; d--) {
            o[d] = rest % g.out[d];
            rest /= g.out[d];
        }
        for (int d = 2; d >= 0; d--) {
            k[d] = rest % g.kernel[d];
            rest /= g.kernel[d];
        }
        for (int d = 0; d < 3; d++) {
            int64_t p = o[d] * g.stride[d] - g.pad[d] + k[d] * g.dilation[d];
            inside = inside && p >= 0 && p < g.in[d];
            at = at * g.in[d] + p;
        }
        y[i] = inside ? x[rest * g.in[0] * g.in[1] * g.in[2] + at] : C(0);
    }
}

// The inverse direction: an element sums the columns that contain it, tap by tap.
template <class C> __global__ void __launch_bounds__(THREADS, 4)
images_of(window_t g, C *y, const C *x, int64_t n) {
    int64_t step = thread_count(), pixels = g.out[0] * g.out[1] * g.out[2];
    for (int64_t i = thread_index(); i < n; i += step) {
        int64_t p[3], rest = i;
        for (int d = 2; d >= 0; d--) {
            p[d] = rest % g.in[d];
            rest /= g.in[d];
        }
        const C *from = x + rest * g.kernel[0] * g.kernel[1] * g.kernel[2] * pixels;
        C sum = C(0);
        for (int64_t kz = 0; kz < g.kernel[0]; kz++) {
            int64_t oz = window_of(g, 0, p[0], kz);
            for (int64_t ky = 0; ky < g.kernel[1]; ky++) {
                int64_t oy = window_of(g, 1, p[1], ky);
                for (int64_t kx = 0; kx < g.kernel[2]; kx++, from += pixels) {
                    int64_t ox = window_of(g, 2, p[2], kx);
                    if (oz >= 0 && oy >= 0 && ox >= 0) { sum += from[(oz * g.out[1] + oy) * g.out[2] + ox]; }
                }
            }
        }
        y[i] = sum;
    }
}

// A step for n items of h features, one thread per feature; gates and states as at NN_LSTM_NET.
struct recur_t {
    int kind;
    int64_t n, h, g;                            // g: h times the gates
    const void *gi, *hg, *h0, *c0, *dy, *dcy;   // dcy NULL: the states c have no gradient of their own
    void *gates, *y, *c, *dgi, *dhg, *dh, *dc;  // dhg NULL = dgi
};

template <class C> __global__ void __launch_bounds__(THREADS, 4) recur_step(recur_t v) {
    const int64_t h = v.h, step = thread_count();
    for (int64_t i = thread_index(); i < v.n * h; i += step) {
        int64_t item = i / h, k = i - item * h;
        const C *x = (const C *)v.gi + item * v.g + k, *w = (const C *)v.hg + item * v.g + k;
        C *kept = (C *)v.gates + item * 4 * h + k, a = x[0] + w[0];
        if (v.kind == NN_LSTM_NET) {
            C b = w_sigmoid(x[h] + w[h]), u = w_tanh(x[2 * h] + w[2 * h]), o = w_sigmoid(x[3 * h] + w[3 * h]);
            a = w_sigmoid(a);
            kept[0] = a;
            kept[h] = b;
            kept[2 * h] = u;
            kept[3 * h] = o;
            u = b * ((const C *)v.c0)[i] + a * u;
            ((C *)v.c)[i] = u;
            a = o * w_tanh(u);
        } else if (v.kind == NN_GRU_NET) {
            C b = w_sigmoid(x[h] + w[h]), u;
            a = w_sigmoid(a);
            u = w_tanh(x[2 * h] + a * w[2 * h]);
            kept[0] = a;
            kept[h] = b;
            kept[2 * h] = u;
            kept[3 * h] = w[2 * h];
            a = u + b * (((const C *)v.h0)[i] - u);
        } else {
            a = v.kind == NN_TANH_NET ? w_tanh(a) : w_max(a, C(0));
        }
        ((C *)v.y)[i] = a;
    }
}

// dh and dc of the step's results (without dy and dcy) become those of h0 and c0, without the part that hg
// carries.
template <class C> __global__ void __launch_bounds__(THREADS, 4) recur_step_backward(recur_t v) {
    const int64_t h = v.h, step = thread_count();
    for (int64_t i = thread_index(); i < v.n * h; i += step) {
        int64_t item = i / h, k = i - item * h;
        const C *kept = (const C *)v.gates + item * 4 * h + k;
        C *dx = (C *)v.dgi + item * v.g + k, *dw = (C *)(v.dhg ? v.dhg : v.dgi) + item * v.g + k;
        C g = ((C *)v.dh)[i] + ((const C *)v.dy)[i], next = C(0);
        if (v.kind == NN_LSTM_NET) {
            C a = kept[0], b = kept[h], u = kept[2 * h], o = kept[3 * h], t = w_tanh(((const C *)v.c)[i]);
            C d = ((C *)v.dc)[i] + (v.dcy ? ((const C *)v.dcy)[i] : C(0)) + g * o * (1 - t * t);
            dx[3 * h] = g * t * (o * (1 - o));
            dx[0] = d * u * (a * (1 - a));
            dx[h] = d * ((const C *)v.c0)[i] * (b * (1 - b));
            dx[2 * h] = d * a * (1 - u * u);
            ((C *)v.dc)[i] = d * b;
        } else if (v.kind == NN_GRU_NET) {
            C a = kept[0], b = kept[h], u = kept[2 * h], t = g * (((const C *)v.h0)[i] - u) * (b * (1 - b));
            next = g * b;
            dx[h] = dw[h] = t;
            g = g * (1 - b) * (1 - u * u);
            dx[2 * h] = g;
            dw[2 * h] = g * a;
            dx[0] = dw[0] = g * kept[3 * h] * (a * (1 - a));
        } else {
            C a = ((const C *)v.y)[i];
            dx[0] = a > 0 ? g : C(0);
            if (v.kind == NN_TANH_NET) { dx[0] = g * (1 - a * a); }
        }
        ((C *)v.dh)[i] = next;
    }
}

// Log-probabilities [t, n, classes]; labels one after the other or in rows of `columns`. The states of an
// item are its labels with blanks around them.
struct ctc_t {
    const void *x, *labels, *lengths, *sizes;
    void *loss, *grad;
    int label_dtype, length_dtype, size_dtype;
    int64_t t, n, classes, room, blank, columns, rows; // room: labels; rows: rows of alpha that are kept
    bool want, zero;
    double *work;                               // (rows + 4) (2 labels + items)
};

// One block per item. Sums in f64; the sum of a label belongs to its first state, in the order of its states.
template <class C> __global__ void __launch_bounds__(THREADS, 2)
ctc_items(ctc_t v, unsigned long long *error) {
    typedef log_op<double> sum_t;
    TCU_SHARED(double, part, [THREADS]);
    const int64_t me = threadIdx.x;
    const C *x = (const C *)v.x;
    C *grad = (C *)v.grad;
    for (int64_t n = blockIdx.x; n < v.n; n += gridDim.x) {
        int64_t first = n * v.columns, length = load_as<int64_t>(v.lengths, v.length_dtype, n);
        int64_t size = load_as<int64_t>(v.sizes, v.size_dtype, n);
        for (int64_t k = 0; k < n && !v.columns; k++) { first += load_as<int64_t>(v.sizes, v.size_dtype, k); }
        bool fits = first >= 0 && size >= 0 && size <= (v.columns ? v.columns : v.room - first) &&
                    length >= 0 && length <= v.t;
        if (!fits) {
            if (!me) { fault(error, n); }
            first = n * v.columns;
            size = length = 0;
        }
        const int64_t states = 2 * size + 1;
        double *alpha = v.work + (v.rows + 4) * (2 * first + n), *beta = alpha + v.rows * states;
        int64_t *label = (int64_t *)(beta + 2 * states), *leads = label + states;
        for (int64_t s = me; s < states; s += THREADS) {
            label[s] = s % 2 ? checked(load_as<int64_t>(v.labels, v.label_dtype, first + s / 2), v.classes,
                                       first + s / 2, error) : v.blank;
        }

        __syncthreads();
        for (int64_t s = me; s < states; s += THREADS) {    // the first state of its label, not the blank
            leads[s] = label[s] != v.blank;
            for (int64_t k = 1; k < s && leads[s]; k += 2) { leads[s] = label[k] != label[s]; }
        }
        for (int64_t t = 0; t < length; t++) {
            double *row = alpha + t % v.rows * states;
            const double *old = alpha + (t + v.rows - 1) % v.rows * states;
            for (int64_t s = me; s < states; s += THREADS) {
                double a = s < 2 && !t ? 0 : -(double)INFINITY;
                if (t) {
                    a = old[s];
                    if (s > 0) { a = sum_t::join(a, old[s - 1]); }
                    if (s > 1 && s % 2 && label[s] != label[s - 2]) { a = sum_t::join(a, old[s - 2]); }
                }
                row[s] = a + to_class<double>(x[(t * v.n + n) * v.classes + label[s]]);
            }
            __syncthreads();
        }

        const double *row = alpha + (length + v.rows - 1) % v.rows * states;
        double loss = size ? (double)INFINITY : 0;
        if (length) { loss = -sum_t::join(row[states - 1], size ? row[states - 2] : -(double)INFINITY); }
        if (!me) { ((C *)v.loss)[n] = (C)(v.zero && loss == (double)INFINITY ? 0 : loss); }
        __syncthreads();                                    // the row is written again below
        for (int64_t t = v.t - 1; t >= 0 && v.want; t--) {
            const int64_t at = (t * v.n + n) * v.classes;
            if (t >= length || loss == (double)INFINITY) {
                double none = t < length && !v.zero ? (double)NAN : 0;
                for (int64_t k = me; k < v.classes; k += THREADS) { grad[at + k] = (C)none; }
                continue;
            }
            double *sum = alpha + t * states, *now = beta + t % 2 * states, blank = sum_t::none();
            const double *old = beta + (t + 1) % 2 * states;
            for (int64_t s = me; s < states; s += THREADS) {
                double b = s >= states - 2 && t == length - 1 ? 0 : -(double)INFINITY;
                if (t < length - 1) {
                    b = old[s];
                    if (s + 1 < states) { b = sum_t::join(b, old[s + 1]); }
                    if (s + 2 < states && s % 2 && label[s] != label[s + 2]) {
                        b = sum_t::join(b, old[s + 2]);
                    }
                }
                sum[s] += b;
                now[s] = b + to_class<double>(x[at + label[s]]);
                if (label[s] == v.blank) { blank = sum_t::join(blank, sum[s]); }
            }

            for (int64_t k = me; k < v.classes; k += THREADS) {
                grad[at + k] = (C)exp(to_class<double>(x[at + k]));
            }
            blank = join_lanes<sum_t>(blank, part, (int)me, THREADS, 1);    // all of this step is there then
            for (int64_t s = me; s < states; s += THREADS) {
                if (!leads[s]) { continue; }
                double all = sum[s];
                for (int64_t k = s + 2; k < states; k += 2) {
                    if (label[k] == label[s]) { all = sum_t::join(all, sum[k]); }
                }
                int64_t k = at + label[s];
                grad[k] = (C)(exp(to_class<double>(x[k])) - exp(all + loss));
            }
            if (!me) {
                grad[at + v.blank] = (C)(exp(to_class<double>(x[at + v.blank])) - exp(blank + loss));
            }
            __syncthreads();
        }
        __syncthreads();
    }
}

// ------------------------------------------------------------------------------
// >>optimizer                                      MARK: multi-tensor optimizers
//
// One launch for up to MANY tensors (MANY_MORE with toolkits and drivers from 12.1 on), with their pointers
// in the kernel's arguments; block x of tensor y
// takes every gridDim.x-th piece. The numbers of a step are those of tensor_nn.h, in its order of roundings,
// so that parameters have the CPU's bits. Rejected: a launch per tensor (launches cost more than the work).
// On the CPU: >>impl-optim, >>nn-kernel-optim.
// ------------------------------------------------------------------------------

// As many tensors as 4 KB of arguments can hold, beside the numbers; and as many as those of MORE_ARGUMENTS,
// which toolkits have from 12.1 on, drivers from their own 12.1 (530) on, and all devices from 7.0 on.
enum { MANY = 64, MANY_MORE = 640 };
struct param_t { void *p, *g, *s[3]; int64_t n; };      // s: states, NULL if the rule has fewer
template <int N> struct params_t {
    static constexpr int ROOM = N;
    param_t of[N];
};

// The words of a graph's ops that may have refused an index: see fault(). Bit i of `of`: word i is one.
// held: whether one of them was written in an earlier run; NULL = not asked.
enum { ERROR_WORDS = 256 };
struct refusals_t { const unsigned long long *word; const unsigned *held; uint32_t of[ERROR_WORDS / 32]; };

template <class C> struct update_t {            // nn_update_t, its numbers in the class of the parameters
#define TCU_MEMBER(x) C x;
    NN__NUMBERS(TCU_MEMBER)
#undef TCU_MEMBER
    bool state[3], skip;
    nn_update_t of;
};

template <int N> constexpr size_t arguments_of =
    sizeof(params_t<N>) + sizeof(update_t<double>) + sizeof(void *) + sizeof(refusals_t);
static_assert(arguments_of<MANY> <= 4096 && arguments_of<MANY_MORE> <= MORE_ARGUMENTS, "of a launch");

// One struct for each formula of NN__STEPS: its states, and what it computes for one element.
#undef NN__T
#undef NN__N
#undef NN__U
#undef NN__HAS
#define NN__T C
#define NN__N(x) u.x
#define NN__U(x) u.of.x
#define NN__HAS(k) u.state[k]
#define NN__MUL(a, b) V_MUL(a, b)
#define NN__DIV(a, b) V_DIV(a, b)
#define NN__SQRT(a) V_SQRT(a)
#define TCU_STEP(name, states, at, must)                                                                     \
    struct step_##name {                                                                                     \
        static constexpr int STATES = states;                                                                \
        template <class C> __device__ static C one(const update_t<C> &u, C x, C g, C *s) {                   \
            C s0 = s[0], s1 = s[1], s2 = s[2];                                                               \
            NN__STEP_BEFORE                                                                                  \
            NN__STEP_##name                                                                                  \
            s[0] = s0;                                                                                       \
            s[1] = s1;                                                                                       \
            s[2] = s2;                                                                                       \
            return x;                                                                                        \
        }                                                                                                    \
    };
NN__STEPS(TCU_STEP)
#undef TCU_STEP

// Whether one of the words is written: the same for all threads of the launch, if the ops that write them are
// on its stream or were waited for.
__device__ inline bool any_refused(const refusals_t &r) {
    unsigned long long any = r.held ? *r.held : 0;
    for (int k = 0; k < ERROR_WORDS / 32; k++) {
        for (uint32_t left = r.of[k]; left; left &= left - 1) {
            any |= r.word[2 * (k * 32 + __ffs((int)left) - 1)];
        }
    }
    return any != 0;
}

// LIVE: the numbers are those at `live` when the kernel runs, as a graph needs them, whose step is not done
// where an op of the graph has refused an index.
// T: of parameters and gradients; states have the class's dtype.
template <class T, class STEP, bool LIVE, int N, class C = class_t<T>>
__global__ void __launch_bounds__(THREADS, sizeof(C) == 8 ? 3 : 4)      // f64's numbers fill the registers
optimizer_step(params_t<N> t, update_t<C> given, const update_t<C> *live, refusals_t refused) {
    if (LIVE && any_refused(refused)) { return; }
    update_t<C> u = given;
    if (LIVE) { u = *live; }
    if (LIVE && u.skip) { return; }
    const param_t &q = t.of[blockIdx.y];
    constexpr int V = lanes_of<C>;
    typedef pack_t<C, V> pack;
    typedef pack_t<T, V> pack_of_T;
    bool wide = aligned16(q.p) && aligned16(q.g);
    TCU_UNROLL
    for (int k = 0; k < STEP::STATES; k++) { wide = wide && aligned16(q.s[k]); }
    int64_t packs = wide ? q.n / V : 0, j = thread_index();
    int64_t step = thread_count();

    for (int64_t i = j; i < packs; i += step) {
        pack_of_T x = ((pack_of_T *)q.p)[i], g = ((const pack_of_T *)q.g)[i];
        pack s[3] = {};
        TCU_UNROLL
        for (int k = 0; k < STEP::STATES; k++) {
            if (u.state[k]) { s[k] = ((const pack *)q.s[k])[i]; }
        }
        TCU_UNROLL
        for (int l = 0; l < V; l++) {
            C state[3] = {s[0].v[l], s[1].v[l], s[2].v[l]};
            C before = to_class<C>(x.v[l]), slope = to_class<C>(g.v[l]);
            x.v[l] = from_class<T>(STEP::template one<C>(u, before, slope, state));
            TCU_UNROLL
            for (int k = 0; k < 3; k++) { s[k].v[l] = state[k]; }
        }
        ((pack_of_T *)q.p)[i] = x;
        TCU_UNROLL
        for (int k = 0; k < STEP::STATES; k++) {
            if (u.state[k]) { ((pack *)q.s[k])[i] = s[k]; }
        }
    }

    for (int64_t i = packs * V + j; i < q.n; i += step) {
        C state[3] = {};
        for (int k = 0; k < STEP::STATES; k++) {
            if (u.state[k]) { state[k] = ((const C *)q.s[k])[i]; }
        }
        C before = to_class<C>(((const T *)q.p)[i]), slope = to_class<C>(((const T *)q.g)[i]);
        ((T *)q.p)[i] = from_class<T>(STEP::template one<C>(u, before, slope, state));
        for (int k = 0; k < STEP::STATES; k++) {
            if (u.state[k]) { ((C *)q.s[k])[i] = state[k]; }
        }
    }
}

template <class C> __host__ __device__ inline void set_numbers(update_t<C> *to) {
#define TCU_SET(x) to->x = (C)to->of.x;
    NN__NUMBERS(TCU_SET)
#undef TCU_SET
}

template <class C> inline update_t<C> update_of(const nn_update_t &n, const param_t &q) {
    update_t<C> u = {};
    u.of = n;
    u.of.of = nullptr;                          // on the host only
    for (int k = 0; k < 3; k++) { u.state[k] = q.s[k] != nullptr; }
    set_numbers(&u);
    return u;
}

// Computes what depends on the step; t = 1 is the first. By number, because a formula's pointers are the
// host's.
__device__ inline void step_numbers_at(nn_update_t *u, double t) {
    u->at = t;
    switch (u->formula) {
#define TCU_X(name, states, at, must) \
    case NN_STEP_##name: \
        at(u, t); \
        break;
    NN__STEPS(TCU_X)
#undef TCU_X
    default: break;
    }
}

// The numbers of a step that a scaler may skip, or that follows skipped steps (skip: nn_optimizer_t's).
template <class C> __global__ void __launch_bounds__(32, 1)
step_numbers(update_t<C> *to, update_t<C> given, const update_t<C> *live, const float *skip) {
    if (threadIdx.x) { return; }
    *to = live ? *live : given;
    to->skip = skip[0] != 0;
    if (skip[1] > 0) {
        step_numbers_at(&to->of, to->of.at - (double)skip[1]);
        set_numbers(to);
    }
}

// For a step beside which other streams run, whose ops may write their words between two of its blocks.
__global__ void __launch_bounds__(32, 1) note_refusals(unsigned *held, refusals_t refused) {
    if (!threadIdx.x) { *held = any_refused(refused); }
}

template <int N, class C>
using step_kernel_t = void (*)(params_t<N>, update_t<C>, const update_t<C> *, refusals_t);

// A formula without states stores those of others (take), which are not halves.
template <class T, class STEP, bool LIVE, int N> inline step_kernel_t<N, class_t<T>> step_kernel_of() {
    if constexpr (is_half<T> && STEP::STATES == 0) {
        return nullptr;
    } else {
        return optimizer_step<T, STEP, LIVE, N>;
    }
}

template <class T, int N> inline step_kernel_t<N, class_t<T>> step_kernel(int formula, bool live) {
    static const step_kernel_t<N, class_t<T>> all[][2] = {
#define TCU_KERNELS(name, states, at, must)                                                                  \
    {step_kernel_of<T, step_##name, false, N>(), step_kernel_of<T, step_##name, true, N>()},
        NN__STEPS(TCU_KERNELS)
#undef TCU_KERNELS
    };
    return all[formula][live];
}

// f(table, its length, the largest number of elements) for all tensors that are not empty, as many at a time
// as a launch takes: N.
template <int N, class F> inline int by_tables(const param_t *params, int count, F f) {
    for (int i = 0; i < count;) {
        params_t<N> t;
        int64_t most = 0;
        int had = 0;
        memset((void *)&t, 0, sizeof t);
        for (; i < count && had < N; i++) {
            if (!params[i].n) { continue; }
            t.of[had++] = params[i];
            most = params[i].n > most ? params[i].n : most;
        }
        int code = had ? f(t, (unsigned)had, most) : 0;
        if (code) { return code; }
    }

    return 0;
}

// A small table for few tensors, because all of it is an argument. C: their class; f64's have no large one,
// whose kernels nobody would run.
template <class C, class F> inline int by_many(const place_t &at, const param_t *params, int count, F f) {
    if constexpr (CUDART_VERSION >= 12010 && !same_type<C, double>::value) {
        if (count > MANY && at.limits.arguments >= MORE_ARGUMENTS) {
            return by_tables<MANY_MORE>(params, count, f);
        }
    }
    (void)at;
    return by_tables<MANY>(params, count, f);
}

// All tensors of one dtype with the same states. live: an update_t<C> on the device, or NULL.
template <class T, class C = class_t<T>>
inline int optimizer(const place_t &at, const param_t *params, int count, const nn_update_t &n,
                     const void *live = nullptr, const refusals_t &refused = {}) {
    update_t<C> u = update_of<C>(n, params[0]);
    return by_many<C>(at, params, count, [&](const auto &t, unsigned had, int64_t most) {
        constexpr int N = pointee_t<decltype(&t)>::type::ROOM;
        return launch(at, {dim3(grid_for(at, most, THREADS * 4), had), THREADS},
                      step_kernel<T, N>(n.formula, live != nullptr), t, u, (const update_t<C> *)live,
                      refused);
    });
}

// Block x of a tensor sums the squares of every parts_of(n)-th piece, in double: the same on any device.
__host__ __device__ inline int64_t parts_of(int64_t n) {
    int64_t parts = (n + THREADS * 16 - 1) / (THREADS * 16);
    return parts < 256 ? parts : 256;
}

template <class C, int N> __global__ void __launch_bounds__(THREADS, 4) grad_squares(params_t<N> t) {
    TCU_SHARED(double, part, [THREADS]);
    const param_t &q = t.of[blockIdx.y];
    constexpr int V = lanes_of<C>;
    const int64_t parts = parts_of(q.n), packs = aligned16(q.p) ? q.n / V : 0;
    if (blockIdx.x >= parts) { return; }
    double sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < packs; i += parts * THREADS) {
        pack_t<C, V> x = ((const pack_t<C, V> *)q.p)[i];
        TCU_UNROLL
        for (int l = 0; l < V; l++) { sum = w_add(sum, w_mul((double)x.v[l], (double)x.v[l])); }
    }

    for (int64_t i = packs * V + blockIdx.x * THREADS + threadIdx.x; i < q.n; i += parts * THREADS) {
        double x = (double)((const C *)q.p)[i];
        sum = w_add(sum, w_mul(x, x));
    }

    sum = block_sum(sum, part);
    if (!threadIdx.x) { ((double *)q.g)[blockIdx.x] = sum; }
}

__global__ void __launch_bounds__(THREADS, 4) sum_parts(double *y, const double *parts, int64_t n) {
    TCU_SHARED(double, part, [THREADS]);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) { sum = w_add(sum, parts[i]); }
    sum = block_sum(sum, part);
    if (!threadIdx.x) { *y = sum; }
}

template <class C, int N>
__global__ void __launch_bounds__(THREADS, 4) grad_scale(params_t<N> t, const double *factor, float *found) {
    const param_t &q = t.of[blockIdx.y];
    constexpr int V = lanes_of<C>;
    const C f = (C)*factor;
    const int64_t packs = aligned16(q.p) ? q.n / V : 0, step = thread_count();
    const int64_t first = thread_index();
    bool bad = false;
    if (!found && f == C(1)) { return; }
    for (int64_t i = first; i < packs; i += step) {
        pack_t<C, V> x = ((const pack_t<C, V> *)q.p)[i];
        TCU_UNROLL
        for (int l = 0; l < V; l++) {
            bad = bad || !(x.v[l] - x.v[l] == 0);
            x.v[l] = w_mul(x.v[l], f);
        }
        ((pack_t<C, V> *)q.p)[i] = x;
    }

    for (int64_t i = packs * V + first; i < q.n; i += step) {
        C x = ((const C *)q.p)[i];
        bad = bad || !(x - x == 0);
        ((C *)q.p)[i] = w_mul(x, f);
    }

    if (found && bad) { atomicExch(found, 1.0f); }
}

// For gradients of one dtype: partial sums of squares into parts (g of each says where), or gradients times
// *factor.
template <class C> inline int grads(const place_t &at, const param_t *params, int count, const double *factor,
                                    float *found) {
    return by_many<C>(at, params, count, [&](const auto &t, unsigned had, int64_t most) {
        constexpr int N = pointee_t<decltype(&t)>::type::ROOM;
        const grid_t grid = {dim3(grid_for(at, most, THREADS * 4), had), THREADS};
        return factor ? launch(at, grid, grad_scale<C, N>, t, factor, found)
                      : launch(at, {dim3((unsigned)parts_of(most), had), THREADS}, grad_squares<C, N>, t);
    });
}

// ------------------------------------------------------------------------------
// >>streams                                        MARK: streams, what waits for what, graphs' lists
//
// State belongs to the process: one allocator, streams by number, a current stream per thread and device. A
// block carries marks (stream and count of its calls) of its last write and of each stream's last read. A
// call waits for the marks of other streams that its own stream has not waited for yet, by one event. A
// stream that is not the block's own is recorded, so that the memory is free only when both have finished
// with it. Marks are set after the launch, so a thread that sees one may record an event that covers it.
// While a graph is captured nothing waits; the blocks that its calls use are listed and kept, and at each
// run they are waited for and marked instead. Rejected: an event per call (more than a launch costs);
// destroying streams (arenas and marks name them): they are used again.
// ------------------------------------------------------------------------------

enum {
    SLOTS = ERROR_WORDS,
    COUNTED = 2048,
    BACKWARD_FROM = 1024,
    MAX_STREAMS = 256,
    PER_DEVICE = 32,
    NUMBERS = 64 << 10
};

struct stream_t {
    cudaStream_t raw;
    cudaEvent_t event;                          // for other streams to wait for
    int event_lock;                             // held while it is recorded, and while a capture begins here
    int id, device, idle;
    bool given; // the caller's cudaStream_t, not destroyed or given to others here
    int noted;                                  // since the last check, an op that may find a bad index ran
    // The last capture that it was part of; its number in that capture.
    int part_of, part;
    // The number of its calls; how many of each other stream's calls it has waited for.
    uint64_t calls, seen[MAX_STREAMS];
};
}  // namespace tcu

// Handles stay until tensor_cuda_shutdown, so that a use after the free is noticed.
struct tensor_cuda_stream_t { tensor_cuda_stream_t *next; tcu::stream_t *of; bool dead; };
struct tensor_cuda_event_t {
    tensor_cuda_event_t *next;
    cudaEvent_t at;
    int device;
    int graph;                  // the capture in which it was recorded, or 0
    bool timing, recorded, dead;
    tcu::stream_t *on;          // where it was recorded last, and what that covers
    uint64_t *covered;
    int streams;
};

// Memory that several graphs share. used: marks of each stream's last call on a block of it.
struct tensor_cuda_graph_pool_t {
    tensor_cuda_graph_pool_t *next;
    int device, number, lock, graphs;           // graphs: those that have memory of it
    bool dead;
    uint64_t used[tcu::MAX_STREAMS];
};

struct tensor_cuda_comm_t {
    tensor_cuda_comm_t *next;
    void *at;
    double timeout;             // seconds, 0 = NCCL's calls wait without a limit
    int device, ranks;
    bool dead;
};

namespace tcu {
// A number that each run of a graph gets again, at `at` in its numbers: an offset of the generator (host
// NULL), or the nn_update_t at host.
struct live_t {
    uint32_t at;
    uint64_t offset, seed;
    const nn_update_t *host;
    param_t states;
    bool wide, own_seed;
};

// A mark names a stream and one of its calls. The latest mark of each stream: a wait for it is one for all
// that were given.
constexpr int MARK_BITS = 48;
struct latest_t {
    uint64_t of[MAX_STREAMS];
    void add(uint64_t mark) {
        uint64_t &known = of[mark >> MARK_BITS];
        known = mark > known ? mark : known;
    }
};

// writer, readers: in a capture, the stream of the last write, and 1 << part of those that have read since
// then.
struct listed_t {
    block_t *block;
    tensor__storage_t *storage;
    bool wrote;
    struct stream_t *writer;
    uint64_t readers;
};

// The part of a tensor_graph_t that is the device's.
struct graph_t {
    graph_t *next;
    int device, id, failed, noted;              // failed: code of the call that could not be captured
    int turn;                                   // the lock of a run, where it is not its pool's
    tensor_cuda_graph_pool_t *pool;             // NULL = its memory is its own
    const void *thread;                         // the thread that captures it
    stream_t *on;
    cudaGraphExec_t exec;
    block_t *numbers;                           // on the device
    unsigned char *staged;                      // the same on the host
    int sent;                                   // the device has had them: only what differs from now on
    uint32_t used, changed, changed_end;        // what is to be sent
    refusals_t words;                           // of all its ops
    tensor_generator_t rng;                     // at begin
    uint64_t drawn;                             // calls of the generator in a run
    list_t<live_t> lives;
    list_t<listed_t> list;
    latest_t after;                             // of what used its results, which are freed by now
    list_t<stream_t *> streams;                 // captured: `on`, and those that waited for it
    list_t<tensor_cuda_comm_t *> comms;         // that its collectives use
};

// The first of a graph's numbers is refusals_t's held, which each run finds again.
enum { HELD_BYTES = 16 };
static unsigned *held_of(const graph_t *g) { return (unsigned *)(uintptr_t)g->numbers->address; }

struct slot_t { // told: by op. Without a graph: the stream, the mark of the call and the thread that made it
    const char *op, *site;
    graph_t *graph;
    bool told;
    int code;
    const stream_t *on;
    uint64_t mark;
    const void *thread;
};

struct gpu_t {                                  // made when first used
    int ready, sms, major, next, used;          // slots: the next one, how many since the last check
    uint32_t asked;                             // bit p: whether device p's memory can be used was asked
    tensor_cuda_stream_t main, side;            // side: copies beside the rest
    unsigned long long *errors;                 // two words per slot, on the device: see fault()
    unsigned *refused;                          // on the host: one of them is written
    slot_t slot[SLOTS];                         // the owner of each word
};

static struct {
    allocator_t *allocator, *pinned;            // NULL = not started
    // lock: the lists below, and the slots of gpu_t; held while a device or a stream is made. graph_lock: the
    // list of graphs, their lists of blocks and communicators, and what a block knows of them. It is one for
    // all devices, because a block of the host or of a peer is in the graphs of several; so
    // nothing is queued while it is held: where a stream's queue is full, that waits for the GPU, which may
    // wait for what the thread of another device has yet to queue.
    int lock, graph_lock, capturing, devices, forbidden, nstreams, generation;
    int wrapped;                                // tensors over the caller's memory
    gpu_t gpu[MAX_DEVICES];
    stream_t *stream[MAX_STREAMS];
    tensor_cuda_stream_t *streams;
    tensor_cuda_event_t *events;
    tensor_cuda_comm_t *comms;
    tensor_cuda_graph_pool_t *pools;
    graph_t *graphs, *capture;                  // capture: the one in progress; capturing: 1 from before it
    const char *name[COUNTED];
    int64_t native[COUNTED], fallback[COUNTED];
} process;

static thread_local struct {
    int generation, nslots;
    tensor_cuda_stream_t *on[MAX_DEVICES], *before_copy_stream;
    tensor_cuda_graph_pool_t *pool;             // for its captures
    stream_t *now;                              // of the running call
    slot_t *slot[16];                           // whose site is not known yet
} this_thread;

// Raises an error of tensor.h with this text -> code
template <class... A> static int raised(int code, const char *format, A... a) {
    TENSOR__(fail)(TENSOR__(self)(), code, format, a...);
    return code;
}

inline int raise_cuda(const char *what) {
    int e = (int)last_error;                    // 700 .. 719: errors of kernels; most end the context
    bool lost = e == cudaErrorIllegalAddress || e == cudaErrorLaunchTimeout || e == cudaErrorAssert ||
                (e >= cudaErrorHardwareStackError && e <= cudaErrorLaunchFailure);
    const char *more = lost ? "; no call of CUDA works in this process any more" : "";
    if (e == cudaErrorNoKernelImageForDevice) { more = " (nvcc -arch of tensor_cuda.cu)"; }
    return raised(TENSOR_ERR_CUDA, "%s: %s%s", what, cudaGetErrorString(last_error), more);
}

// given: the caller's stream, NULL = a new one. -> NULL: CUDA refuses (last_error), or there are PER_DEVICE
// streams (cudaSuccess). The caller holds the lock.
static stream_t *new_stream(int index, cudaStream_t given = nullptr) {
    int have = 0;
    last_error = cudaSuccess;
    for (int k = 0; k < process.nstreams; k++) {
        stream_t *s = process.stream[k];
        have += s->device == index;
        if (given && s->raw == given) { return s; }
        if (s->device == index && s->idle && !s->given && !given) {
            s->idle = 0;
            return s;
        }
    }

    if (have == PER_DEVICE) { return nullptr; }
    stream_t *s = process.nstreams < MAX_STREAMS ? (stream_t *)calloc(1, sizeof *s) : nullptr;
    if (!s) {
        last_error = cudaErrorMemoryAllocation;
        return nullptr;
    }

    on_device_t at(index);
    s->raw = given;
    s->given = given != nullptr;
    if (!given && code_of(cudaStreamCreateWithFlags(&s->raw, cudaStreamNonBlocking))) {
        free(s);
        return nullptr;
    }

    if (code_of(cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming))) {
        if (!given) { cudaStreamDestroy(s->raw); }
        free(s);
        return nullptr;
    }

    s->id = process.nstreams;
    s->device = index;
    process.stream[s->id] = s;
    __atomic_store_n(&process.nstreams, s->id + 1, __ATOMIC_RELEASE);
    return s;
}

// -> NULL: no such device, or CUDA refuses; nothing is raised
static gpu_t *gpu_of(int index) {
    if (!process.allocator || index < 0 || index >= process.devices) { return nullptr; }
    gpu_t *g = &process.gpu[index];
    if (__atomic_load_n(&g->ready, __ATOMIC_ACQUIRE)) { return g; }
    lock_t hold(&process.lock);
    if (g->ready) { return g; }
    on_device_t at(index);
    void *words = nullptr, *flag = nullptr;
#if !defined(TENSOR_CUDA_SIM)
    cudaFuncAttributes attributes;              // whether there is code for the device
    if (code_of(cudaFuncGetAttributes(&attributes, (const void *)count_up))) { return nullptr; }
#endif
    if (!g->main.of && !(g->main.of = new_stream(index))) { return nullptr; }
    if (code_of(cudaMalloc(&words, sizeof(unsigned long long[SLOTS][2])))) { return nullptr; }
    if (code_of(cudaMallocHost(&flag, sizeof *g->refused))) {
        cudaFree(words);
        return nullptr;
    }
    unsigned long long none[SLOTS][2] = {};
    for (auto &slot : none) { slot[1] = (unsigned long long)(uintptr_t)flag; }
    *(unsigned *)flag = 0;
    if (code_of(cudaMemcpyAsync(words, none, sizeof none, cudaMemcpyHostToDevice, g->main.of->raw)) ||
        code_of(cudaStreamSynchronize(g->main.of->raw))) {
        cudaFree(words);
        cudaFreeHost(flag);
        return nullptr;
    }
    g->errors = (unsigned long long *)words;
    g->refused = (unsigned *)flag;
    cudaDeviceGetAttribute(&g->sms, cudaDevAttrMultiProcessorCount, index);
    cudaDeviceGetAttribute(&g->major, cudaDevAttrComputeCapabilityMajor, index);
    __atomic_store_n(&g->ready, 1, __ATOMIC_RELEASE);
    return g;
}

static tensor_cuda_stream_t *current_handle(int index) {
    if (this_thread.generation != process.generation) {         // the backend was started again
        memset((void *)&this_thread, 0, sizeof this_thread);
        this_thread.generation = process.generation;
    }
    return this_thread.on[index] ? this_thread.on[index] : &process.gpu[index].main;
}

static graph_t *captured_on(const stream_t *s) {
    graph_t *g = __atomic_load_n(&process.capture, __ATOMIC_ACQUIRE);
    return g && __atomic_load_n(&s->part_of, __ATOMIC_ACQUIRE) == g->id ? g : nullptr;
}

// The calling thread's stream of a device. -> NULL after raising
static stream_t *current(int index, const char *op) {
    if (!gpu_of(index)) {
        raise_cuda(op);
        return nullptr;
    }

    tensor_cuda_stream_t *h = current_handle(index);
    graph_t *g = __atomic_load_n(&process.capture, __ATOMIC_ACQUIRE);
    if (h->dead) {
        raised(TENSOR_ERR_OWNER, "%s: the thread's current stream was freed", op);
        return nullptr;
    }

    if (g && (g->thread == &this_thread) != (captured_on(h->of) != nullptr)) {
        if (g->thread == &this_thread) { g->failed = TENSOR_ERR_UNSUPPORTED; }
        raised(TENSOR_ERR_UNSUPPORTED, "%s: %s", op,
               g->thread == &this_thread ? "a graph is captured on another stream"
                                         : "another thread captures a graph on this stream");
        return nullptr;
    }

    return h->of;
}

static int code_now() {
    int code = tensor_error_code();
    return code ? code : (int)TENSOR_ERR_CUDA;
}

// What a wait for all that is queued on o waits for: o's own calls, and the calls of other streams that o has
// waited for. Taken before the event is recorded. -> the number of streams
static int covered_by(const stream_t *o, uint64_t *to) {
    const int n = __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE);
    for (int k = 0; k < n; k++) {
        to[k] = __atomic_load_n(k == o->id ? &o->calls : &o->seen[k], __ATOMIC_ACQUIRE);
    }
    return n;
}

// s has waited for that. What is told of those streams' ops is now told of s's, too.
static void has_waited(stream_t *s, const stream_t *o, const uint64_t *covered, int n) {
    for (int k = 0; k < n; k++) {
        if (k == s->id || covered[k] <= __atomic_load_n(&s->seen[k], __ATOMIC_RELAXED)) { continue; }
        __atomic_store_n(&s->seen[k], covered[k], __ATOMIC_RELEASE);
    }
    if (__atomic_load_n(&o->noted, __ATOMIC_RELAXED)) { __atomic_store_n(&s->noted, 1, __ATOMIC_RELAXED); }
}

// s waits for all that was queued on the mark's stream so far, unless it has already waited for what the
// mark covers.
static int order(stream_t *s, uint64_t mark) {
    int id = (int)(mark >> MARK_BITS);
    if (!mark || id == s->id) { return 0; }
    stream_t *o = process.stream[id];
    if ((mark & ((uint64_t(1) << MARK_BITS) - 1)) <= __atomic_load_n(&s->seen[id], __ATOMIC_RELAXED)) {
        return 0;
    }
    uint64_t covered[MAX_STREAMS];
    const int streams = covered_by(o, covered);
    int code;
    {
        lock_t hold(&o->event_lock);
        code = captured_on(o) ? 0 : code_of(cudaEventRecord(o->event, o->raw));     // else: as at begin
        if (!code) { code = code_of(cudaStreamWaitEvent(s->raw, o->event, 0)); }
    }

    if (code) { return code; }
    has_waited(s, o, covered, streams);
    return 0;
}

// The device of a stream; `otherwise` where it is none of ours.
static int device_of_stream(const void *stream, int otherwise) {
    for (int k = 0, n = __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE); k < n; k++) {
        if ((const void *)process.stream[k]->raw == stream) { return process.stream[k]->device; }
    }
    return otherwise;
}

static allocator_t *allocator_of(const block_t *b) {
    return b->home->lane->stream ? process.allocator : process.pinned;      // pinned memory has no stream
}

// f(mark) for each mark that a call waits for which reads or writes the block.
template <class F> static void each_mark(block_t *b, bool writes, F f) {
    f(__atomic_load_n(&b->wrote, __ATOMIC_RELAXED));
    if (!writes) { return; }
    f(__atomic_load_n(&b->read, __ATOMIC_RELAXED));
    if (!__atomic_load_n(&b->uses, __ATOMIC_ACQUIRE)) { return; }
    lock_t hold(&allocator_of(b)->device[b->home->lane->device]->lock);
    for (use_t *u = b->uses; u; u = u->next) { f(u->read); }
}

// Call it before a call on s that reads or writes the block.
static int use_before(stream_t *s, block_t *b, bool writes) {
    uint64_t marks[MAX_STREAMS + 2];
    int n = 0, code = 0;
    each_mark(b, writes, [&](uint64_t mark) {
        if (n < MAX_STREAMS + 2) { marks[n++] = mark; }
    });
    for (int k = 0; k < n && !code; k++) { code = order(s, marks[k]); }
    return code;
}

// -> false: there was no memory to note the use
static bool note_use(stream_t *s, block_t *b, bool writes, uint64_t mark) {
    bool own = b->home->lane->stream == (void *)s->raw;
    uint64_t *used = b->home->lane->used;
    if (used) { __atomic_store_n(&used[s->id], mark, __ATOMIC_RELAXED); }
    if (writes) { __atomic_store_n(&b->wrote, mark, __ATOMIC_RELAXED); }
    if (own && !writes) { __atomic_store_n(&b->read, mark, __ATOMIC_RELAXED); }
    return own || !record_stream(allocator_of(b), b, (void *)s->raw, writes ? 0 : mark);
}

// Call it after that call; mark comes from next_mark.
static void use_after(stream_t *s, block_t *b, bool writes, uint64_t mark) {
    if (!note_use(s, b, writes, mark)) { forget(cudaStreamSynchronize(s->raw)); }
}

// The mark of the stream's next call, for work that the program queues before that: a stream that waits for
// it until then has the event recorded anew.
static uint64_t coming_mark(const stream_t *s) {
    return (uint64_t)s->id << MARK_BITS | (__atomic_load_n(&s->calls, __ATOMIC_ACQUIRE) + 1);
}

static uint64_t next_mark(stream_t *s) {
    return (uint64_t)s->id << MARK_BITS | __atomic_add_fetch(&s->calls, 1, __ATOMIC_ACQ_REL);
}

// s becomes part of the capture; other threads wait for what was queued on it before. -> code
static int graph_join(graph_t *g, stream_t *s) {
    if (captured_on(s)) { return 0; }
    const int pool = g->pool ? g->pool->number : 0;
    uint64_t *used = g->pool ? g->pool->used : nullptr;
    if (!g->streams.add(s) ||
        capture_join(process.allocator, g->device, (void *)s->raw, g->id, pool, used)) {
        return TENSOR_ERR_OUT_OF_MEMORY;
    }
    lock_t hold(&s->event_lock);
    s->part = g->streams.n - 1;
    int code = code_of(cudaEventRecord(s->event, s->raw));
    if (!code) { __atomic_store_n(&s->part_of, g->id, __ATOMIC_RELEASE); }
    return code;
}

// In a capture: later work on s waits for the work queued on o so far. -> code
static int graph_edge(stream_t *s, stream_t *o) {
    cudaEvent_t e;
    on_device_t at(s->device);
    if (code_of(cudaEventCreateWithFlags(&e, cudaEventDisableTiming))) { return TENSOR_ERR_CUDA; }
    int code = code_of(cudaEventRecord(e, o->raw));
    if (!code) { code = code_of(cudaStreamWaitEvent(s->raw, e, 0)); }
    cudaEventDestroy(e);
    return code;
}

// A graph's call on s uses the block: each run waits for it, and the memory stays as long as the graph.
static int list_block(graph_t *g, stream_t *s, block_t *b, tensor__storage_t *storage,
                      bool writes) {
    int place;
    {
        lock_t hold(&process.graph_lock);
        if (b->listed != g->id) {
            if (!g->list.add({b, storage, writes, nullptr, 0})) { return TENSOR_ERR_OUT_OF_MEMORY; }
            b->listed = g->id;
            b->place = g->list.n - 1;
            b->kept++;
        }
        place = b->place;
        g->list.at[place].wrote |= writes;
    }

    listed_t &l = g->list.at[place];            // only this thread adds to the list, and reads its streams
    int code = l.writer && l.writer != s ? graph_edge(s, l.writer) : 0;
    for (int k = 0; writes && !code && l.readers >> k; k++) {
        if (l.readers >> k & 1 && k != s->part) { code = graph_edge(s, g->streams.at[k]); }
    }
    l.readers = writes ? 0 : l.readers | uint64_t(1) << s->part;
    l.writer = writes ? s : l.writer;
    // The graph's own memory is used again within the capture only if a single stream has used it.
    if (b->made == g->id && !code) {
        code = record_stream(process.allocator, b, (void *)s->raw);
    }
    return code;
}

// Called before and after a call, for each of its tensors.
static int call_before(stream_t *s, const tensor_call_t *c) {
    graph_t *g = captured_on(s);
    for (int i = 0; i < c->nin + c->nout; i++) {
        const tensor_arg_t &a = c->arg[i];
        if (!a.data || !a.storage || !a.storage->device) { continue; }
        block_t *b = (block_t *)a.storage->user;
        int code = g ? list_block(g, s, b, a.storage, a.role != TENSOR_READ)
                     : use_before(s, b, a.role != TENSOR_READ);
        if (code) { return code; }
    }
    return 0;
}

static void call_after(stream_t *s, const tensor_call_t *c) {
    if (captured_on(s)) { return; }
    // Another thread may have checked this stream between the note and the launch.
    if (this_thread.nslots) { __atomic_store_n(&s->noted, 1, __ATOMIC_RELEASE); }
    uint64_t mark = next_mark(s);
    for (int i = 0; i < c->nin + c->nout; i++) {
        const tensor_arg_t &a = c->arg[i];
        if (!a.data || !a.storage || !a.storage->device) { continue; }
        use_after(s, (block_t *)a.storage->user, a.role != TENSOR_READ, mark);
    }
}

// ------------------------------------------------------------------------------
// >>backend                                        MARK: what tensor.h calls
//
// One struct of functions, and one kernel entry for all families. The entry looks for a native kernel; if
// there is none for the op or its dtypes, it runs the CPU's kernel over copies of the storages, so that
// every op works, and the counts say which ops are slow. Rejected: a null kernel for what is missing (a
// network with one such op would not run at all).
// ------------------------------------------------------------------------------

// Memory for the length of an op. Queued work may still use it, because it is used again on this stream only.
struct scratch_t {
    block_t *block = nullptr;
    void *at = nullptr;
    int code = 0;
    scratch_t(const tensor_call_t *c, uint64_t bytes) {
        code = alloc(process.allocator, c->device - 1, (void *)this_thread.now->raw, bytes, c->row->name,
                     &block);
        if (code) {
            TENSOR__(fail)(c->thread, code, "%s: out of device memory for %d bytes of scratch", c->row->name,
                           (int64_t)bytes);
        }
        at = block ? (void *)(uintptr_t)block->address : nullptr;
    }

    ~scratch_t() { release(process.allocator, block); }
    scratch_t(const scratch_t &) = delete;
};

// Defined in >>graphs.
static int in_capture(const stream_t *s, const char *op);

// Whether a wait for s is told of this slot's op: it ran there or in a graph, s has waited for it, or the
// calling thread made it. Others are for the threads that made them.
static bool is_heard(const slot_t &slot, const stream_t *s) {
    if (slot.graph || slot.on == s || slot.thread == &this_thread) { return true; }
    return slot.on && __atomic_load_n(&s->seen[slot.on->id], __ATOMIC_RELAXED) >= slot.mark;
}

// Waits for the stream. If an op has met a bad index, this raises the error of that op, with the place of
// its call.
static int settle(stream_t *s, const char *what) {
    if (in_capture(s, what)) { return TENSOR_ERR_UNSUPPORTED; }
    gpu_t *g = &process.gpu[s->device];
    current_t at(s->device);
    unsigned long long word[SLOTS][2] = {};
    if (code_of(cudaStreamSynchronize(s->raw))) { return raise_cuda(what); }
    if (!__atomic_exchange_n(&s->noted, 0, __ATOMIC_ACQ_REL)) { return 0; }
    // The flag first: a word that is written from now on sets it again.
    if (__atomic_exchange_n(g->refused, 0u, __ATOMIC_ACQ_REL) &&
        (code_of(cudaMemcpyAsync(word, g->errors, sizeof word, cudaMemcpyDeviceToHost, s->raw)) ||
         code_of(cudaStreamSynchronize(s->raw)))) {
        __atomic_store_n(g->refused, 1u, __ATOMIC_RELEASE);
        __atomic_store_n(&s->noted, 1, __ATOMIC_RELEASE);
        return raise_cuda(what);
    }
    bool others = false;                        // streams whose ops may still write their words
    for (int k = 0, n = __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE); k < n; k++) {
        others |= process.stream[k]->device == s->device &&
                  __atomic_load_n(&process.stream[k]->noted, __ATOMIC_ACQUIRE);
    }

    int bad = 0;
    bool left = false;
    for (int k = 0; k < SLOTS; k++) {
        if (!word[k][0]) { continue; }
        {
            lock_t hold(&process.lock);
            if (!is_heard(g->slot[k], s)) {
                left = true;
                continue;
            }
        }
        if (code_of(cudaMemsetAsync(g->errors + 2 * k, 0, sizeof **word, s->raw))) {
            return raise_cuda(what);
        }
        if (bad) { continue; }
        lock_t hold(&process.lock);
        const char *site = g->slot[k].site, *base = site ? site : "";
        for (; site && *site; site++) {
            if (*site == '/' || *site == '\\' || *site == 1) { base = site + 1; }
        }
        const int64_t place = (int64_t)~word[k][0], pivot = place & ((1 << PIVOT_BITS) - 1);
        bool matrix = (bad = g->slot[k].code) == TENSOR_ERR_LINALG;
        const char *text = g->slot[k].told ? "%s%s%s: element %d" : "%s%s%s: element %d is out of range";
        if (matrix) { text = pivot ? "%s%s%s: matrix %d, pivot %d" : "%s%s%s: matrix %d"; }
        const int64_t item = matrix ? place >> PIVOT_BITS : place;
        TENSOR__(fail)(TENSOR__(self)(), bad, text, g->slot[k].op, *base ? " at " : "", base, item, pivot);
    }

    // The words are 0 before other streams' ops get them, and before another stream's check reads them again.
    if (bad && code_of(cudaStreamSynchronize(s->raw))) { return raise_cuda(what); }
    if (left) { __atomic_store_n(g->refused, 1u, __ATOMIC_RELEASE); }
    if (!others && !left) { __atomic_store_n(&g->used, 0, __ATOMIC_RELAXED); }
    return bad;
}

static void backend_site(const char *site) {
    if (!this_thread.nslots) { return; }
    lock_t hold(&process.lock);
    for (int k = 0; k < this_thread.nslots; k++) { this_thread.slot[k]->site = site; }
    this_thread.nslots = 0;
}

static int backend_count() { return process.allocator ? process.devices : 0; }

// The device in whose context pinned memory of the calling thread is made: the one that the thread used last,
// else one that the process has used.
static int pinned_device() {
    if (this_thread.generation == process.generation && this_thread.now) { return this_thread.now->device; }
    for (int k = 0; k < process.devices; k++) {
        if (__atomic_load_n(&process.gpu[k].ready, __ATOMIC_ACQUIRE)) { return k; }
    }
    return most((int)tensor_get_default_device() - (int)TENSOR_CUDA, 0);
}

// f(device) for each device that pinned memory was made on.
template <class F> static void each_pinned(F f) {
    for (int k = 0; k < MAX_DEVICES; k++) {
        if (__atomic_load_n(&process.pinned->device[k], __ATOMIC_ACQUIRE)) { f(k); }
    }
}

static int backend_alloc(int index, uint64_t bytes, void **data, void **block) {
    block_t *b;
    stream_t *s = index < 0 ? nullptr : current(index, "alloc");
    if (index >= 0 && !s) { return code_now(); }
    int code = s ? alloc(process.allocator, index, (void *)s->raw, bytes, nullptr, &b)
                 : alloc(process.pinned, pinned_device(), nullptr, bytes, nullptr, &b);
    if (code) { return code; }
    *data = (void *)(uintptr_t)b->address;
    *block = b;
    return 0;
}

// The caller's memory, under a block of its own, whose arena and lane contain nothing else.
struct wrapped_t {
    block_t block;
    arena_t arena;
    lane_t lane;
    void (*deleter)(void *data, void *user);
    void *data, *user;
};

// Waits for all that was queued with it so far; on a stream that is being captured, before the capture.
static void unwrap(block_t *b) {
    wrapped_t *w = (wrapped_t *)(void *)b;
    device_t *d = process.allocator->device[w->lane.device];
    on_device_t at(w->lane.device);
    for (int k = 0, n = __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE); k < n; k++) {
        stream_t *s = process.stream[k];
        bool used = w->lane.stream == (void *)s->raw;
        for (use_t *u = b->uses; u; u = u->next) { used = used || u->stream == (void *)s->raw; }
        if (!used) { continue; }
        forget(captured_on(s) ? cudaEventSynchronize(s->event) : cudaStreamSynchronize(s->raw));
    }
    {
        lock_t hold(&d->lock);
        for (use_t *u = b->uses, *next; u; u = next) {
            next = u->next;
            u->next = d->spare_uses;
            d->spare_uses = u;
        }
    }
    if (w->deleter) { w->deleter(w->data, w->user); }
    __atomic_sub_fetch(&process.wrapped, 1, __ATOMIC_RELAXED);
    free(w);
}

// A result is freed whose memory stays the graph's: the next run waits for what other streams do with it.
static void run_after(graph_t *g, block_t *b) {
    g->after.add(__atomic_load_n(&b->wrote, __ATOMIC_RELAXED));
    g->after.add(__atomic_load_n(&b->read, __ATOMIC_RELAXED));
    lock_t hold(&allocator_of(b)->device[b->home->lane->device]->lock);
    for (use_t *u = b->uses; u; u = u->next) {
        const int n = u->read ? 0 : __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE);
        for (int k = 0; k < n; k++) {           // a use that has no mark
            stream_t *s = process.stream[k];
            if (u->stream == (void *)s->raw && !captured_on(s)) { g->after.add(coming_mark(s)); }
        }
        g->after.add(u->read);
    }
}

static void let_go(allocator_t *from, block_t *b) {
    if (b && b->home->lane->outside) {
        unwrap(b);
    } else {
        release(from, b);
    }
}

static void backend_release(void *, void *block) {
    block_t *b = (block_t *)block;
    if (b->kept) {                              // by graphs
        lock_t hold(&process.graph_lock);
        const bool shared = b->kept > 1;        // another graph goes on with it
        for (graph_t *g = process.graphs; g; g = g->next) {
            for (int k = 0; k < g->list.n; k++) {
                listed_t &l = g->list.at[k];
                if (l.block != b) { continue; }
                l.storage = nullptr;
                if (b->made != g->id || (shared && !g->pool)) { continue; }
                if (!g->pool) { run_after(g, b); }      // a pool has the marks of all its blocks
                l.block = nullptr;              // the graph's own memory stays with the graph anyway
                b->kept--;
                b->listed = 0;
            }
        }
        b->released = b->kept != 0;
        if (b->kept) { return; }
    }
    let_go(allocator_of(b), b);
}

// A few bytes passed in the kernel's arguments: they become part of the graph.
struct few_t { unsigned char v[8]; };           // what the host may write in a capture: see device_host

__global__ void __launch_bounds__(32, 1) store_few(unsigned char *to, few_t few, int n) {
    if ((int)threadIdx.x < n) { to[threadIdx.x] = few.v[threadIdx.x]; }
}

// Lets device `reader` use the memory of device `owner` directly, if it can; else copies between them go
// through the host. Asked once for each pair.
static void open_peer(int reader, int owner) {
    gpu_t *g = &process.gpu[reader];
    device_t *d = process.allocator->device[owner];
    const uint32_t bit = 1u << owner;
    if (!d || __atomic_fetch_or(&g->asked, bit, __ATOMIC_ACQ_REL) & bit) { return; }
    on_device_t at(reader);
    int can = 0;
    if (forget(cudaDeviceCanAccessPeer(&can, reader, owner)) || !can) { return; }
    // For memory of cudaMalloc. Already enabled is as good: by the program, or before the backend's last end.
    cudaError_t e = cudaDeviceEnablePeerAccess(owner, 0);
    if (forget(e) && e != cudaErrorPeerAccessAlreadyEnabled) { return; }
    lock_t hold(&d->lock);
    peers_of[owner] |= 1u << reader;
    int code = 0;
    each_mapped(d, [&](uint64_t address, uint64_t bytes) {
        code = code ? code : cuda_access(owner, address, bytes);
    });
    if (code) { peers_of[owner] &= ~(1u << reader); }       // what is open stays so; copies go both ways
}

// Whether a copy reads memory of the host after the call that queued it: what the program has pinned itself,
// and managed memory. CUDA has read all other memory of the host when it returns.
static bool reads_later(const void *p) {
    cudaPointerAttributes a = {};
    return !forget(cudaPointerGetAttributes(&a, p)) && a.type != cudaMemoryTypeUnregistered;
}

// The device that memory of the program's lies on; `otherwise` where CUDA does not say, or it moves.
static int device_of_memory(const void *p, int otherwise) {
    cudaPointerAttributes a = {};
    return forget(cudaPointerGetAttributes(&a, p)) || a.type != cudaMemoryTypeDevice ? otherwise : a.device;
}

static int backend_copy(void *to, tensor__storage_t *to_in, const void *from, tensor__storage_t *from_in,
                        uint64_t bytes, int wait, const char *op) {
    const int to_index = to_in ? to_in->device - 1 : -1;
    const int from_index = from_in ? from_in->device - 1 : -1;
    const int index = to_index >= 0 ? to_index : from_index;
    stream_t *s = current(index, op), *other;
    if (!s) { return code_now(); }
    graph_t *g = captured_on(s);
    block_t *to_block = to_index >= 0 ? (block_t *)to_in->user : nullptr;
    block_t *from_block = from_index >= 0 ? (block_t *)from_in->user : nullptr;
    tensor__storage_t *host = to_block ? from_in : to_in;       // the host's side, where there is one
    block_t *pinned = nullptr;
    if (host && !host->device && host->deleter == backend_release) { pinned = (block_t *)host->user; }
    bool peers = to_block && from_block && to_index != from_index;
    current_t at(index);
    if (peers) {                                // the source is ready, and stays until it is read
        if (!(other = current(from_index, op))) { return code_now(); }
        int code = use_before(other, from_block, false) ? raise_cuda(op) : settle(other, op);
        if (code) { return code; }
    }

    if (g) {
        int code = to_block ? list_block(g, s, to_block, to_in, true) : 0;
        if (!code && from_block) { code = list_block(g, s, from_block, from_in, false); }
        if (!code && pinned) { code = list_block(g, s, pinned, host, !to_block); }
        if (code) {
            return code == TENSOR_ERR_CUDA ? raise_cuda(op) : raised(code, "%s: out of memory", op);
        }
    } else if ((to_block && use_before(s, to_block, true)) ||
               (from_block && !peers && use_before(s, from_block, false))) {
        return raise_cuda(op);
    }

    cudaError_t e;
    if (g && !from_block && !pinned) {
        few_t few = {};
        memcpy(few.v, from, (size_t)bytes);
        e = tcu_launch(store_few, 1, 32, 0, s->raw, (unsigned char *)to, few, (int)bytes);
    } else if (peers) {
        open_peer(to_index, from_index);
        open_peer(from_index, to_index);
        e = cudaMemcpyPeerAsync(to, to_index, from, from_index, bytes, s->raw);
    } else {
        cudaMemcpyKind kind = to_block ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
        if (!from_block) { kind = cudaMemcpyHostToDevice; }
        e = cudaMemcpyAsync(to, from, bytes, kind, s->raw);
    }

    if (code_of(e)) { return raise_cuda(op); }
    if (g) { return 0; }
    uint64_t mark = next_mark(s);
    if (to_block) { use_after(s, to_block, true, mark); }
    if (from_block && !peers) { use_after(s, from_block, false, mark); }
    if (to_block && from_block && !peers) { return 0; }
    if (wait || peers) { return settle(s, op); }
    if (pinned) {                               // it stays until the copy is done
        return record_stream(process.pinned, pinned, (void *)s->raw) ? settle(s, op) : 0;
    }

    return to_block && !reads_later(from) ? 0 : settle(s, op);
}

static void backend_use_copy_stream(int index, int on) {
    gpu_t *g = gpu_of(index);
    if (!g) { return; }
    if (on) {
        tensor_cuda_stream_t *h = current_handle(index);
        {
            lock_t hold(&process.lock);
            if (!g->side.of) { g->side.of = new_stream(index); }
        }
        if (!g->side.of || captured_on(h->of)) { return; }
        // Wait now for what was copied so far, because the next copy need not be waited for.
        current_t at(index);
        order(h->of, next_mark(g->side.of));
        this_thread.before_copy_stream = this_thread.on[index];
        this_thread.on[index] = &g->side;
    } else if (this_thread.on[index] == &g->side) {
        this_thread.on[index] = this_thread.before_copy_stream;
    }
}

static const char *const dtype_names[] = {"f32", "f64", "i32", "i64", "u8", "bool", "f16", "bf16", "i8",
    "i16"};

// A copy on the host of a storage of the call, as far as the call's arguments reach.
struct twin_t {
    tensor__storage_t *storage;
    uintptr_t first, end;                       // on the device
    char *host, *memory;
    bool load;                                  // a part of it is read, or is not written
};

// The first byte, and the last byte + 1, of an argument with elements.
static void reach(const tensor_arg_t &a, uintptr_t *first, uintptr_t *end) {
    int64_t low = 0, high = 0, size = size_of(a.dtype);
    for (int d = 0; d < a.ndim; d++) {
        int64_t step = (a.dims[d] - 1) * a.strides[d];
        (step < 0 ? low : high) += step;
    }
    *first = (uintptr_t)a.data + (uintptr_t)(low * size);
    *end = (uintptr_t)a.data + (uintptr_t)((high + 1) * size);
}

static bool lies_there(const tensor_arg_t &a) { return a.data && a.storage && a.storage->device && a.numel; }

static int to_host(tensor_call_t *c, stream_t *s, tensor_arg_t *arg, twin_t *twin, int *count) {
    int n = c->nin + c->nout;
    for (int i = 0; i < n; i++) {
        arg[i] = c->arg[i];
        if (!lies_there(arg[i])) { continue; }
        uintptr_t first, end;
        int k = 0;
        reach(arg[i], &first, &end);
        while (k < *count && twin[k].storage != arg[i].storage) { k++; }
        if (k == *count) { twin[(*count)++] = {arg[i].storage, first, end, nullptr, nullptr, false}; }
        twin_t &t = twin[k];
        t.load = t.load || arg[i].role != TENSOR_WRITE || !arg[i].contiguous || first != t.first ||
            end != t.end;
        t.first = first < t.first ? first : t.first;
        t.end = end > t.end ? end : t.end;
    }

    for (int k = 0; k < *count; k++) {          // with the same alignment on the host as there
        twin_t &t = twin[k];
        if (!(t.memory = (char *)malloc(t.end - t.first + 128))) {
            TENSOR__(fail)(c->thread, TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory for a copy of %d bytes",
                           c->row->name, (int64_t)(t.end - t.first));
            return TENSOR_ERR_OUT_OF_MEMORY;
        }
        t.host = t.memory + ((t.first - (uintptr_t)t.memory) & 63);
        if (t.load && code_of(cudaMemcpyAsync(t.host, (void *)t.first, t.end - t.first,
                                              cudaMemcpyDeviceToHost, s->raw))) {
            return raise_cuda(c->row->name);
        }
    }

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < *count && lies_there(c->arg[i]); k++) {
            if (twin[k].storage == arg[i].storage) {
                arg[i].data = twin[k].host + ((uintptr_t)arg[i].data - twin[k].first);
            }
        }
    }

    return settle(s, c->row->name);
}

static int run_on_host(tensor_call_t *c, stream_t *s, tensor_arg_t *arg, twin_t *twin, int *count) {
    int code = to_host(c, s, arg, twin, count);
    if (code) { return code; }
    tensor_call_t here = *c;
    void *scratch = nullptr;
    here.arg = arg;
    uint64_t plan[TENSOR__PLAN_BYTES / 8] = {};
    here.scratch = plan;
    uint64_t bytes = c->row->scratch ? c->row->scratch(&here) : 0;
    here.scratch = nullptr;
    if (bytes) {
        if (!(scratch = malloc(bytes + sizeof plan + 64))) {
            TENSOR__(fail)(c->thread, TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory for %d bytes of scratch",
                           c->row->name, (int64_t)bytes);
            return TENSOR_ERR_OUT_OF_MEMORY;
        }
        here.scratch = (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
        memcpy(here.scratch, plan, sizeof plan);
    }

    code = c->row->cpu(&here);
    free(scratch);
    for (int i = c->nin; i < c->nin + c->nout && !code; i++) {
        if (!lies_there(c->arg[i])) { continue; }
        uintptr_t first, end;
        reach(c->arg[i], &first, &end);
        const char *from = (const char *)arg[i].data - ((uintptr_t)c->arg[i].data - first);
        if (code_of(cudaMemcpyAsync((void *)first, from, end - first, cudaMemcpyHostToDevice, s->raw))) {
            code = raise_cuda(c->row->name);
        }
    }

    if (!code && code_of(cudaStreamSynchronize(s->raw))) { code = raise_cuda(c->row->name); }
    return code;
}

static int fall_back(tensor_call_t *c, stream_t *s) {
    int n = c->nin + c->nout, count = 0;
    graph_t *g = captured_on(s);
    if (g) {
        g->failed = TENSOR_ERR_UNSUPPORTED;
        return raised(g->failed, "%s: cuda has no kernel for it, and a graph cannot run on the CPU",
                      c->row->name);
    }

    if (__atomic_load_n(&process.forbidden, __ATOMIC_RELAXED)) {
        char list[96] = "";
        size_t at = 0;
        for (int i = 0; i < n && at + 8 < sizeof list; i++) {
            if (!c->arg[i].data) { continue; }
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? " " : "",
                                   dtype_names[c->arg[i].dtype]);
        }
        TENSOR__(fail)(c->thread, TENSOR_ERR_UNSUPPORTED,
                       "%s: cuda has no kernel for %s, and tensor_cuda_set_fallback(0) forbids the CPU's",
                       c->row->name, list);
        return TENSOR_ERR_UNSUPPORTED;
    }

    tensor_arg_t *arg = (tensor_arg_t *)malloc((size_t)(n + 1) * (sizeof(tensor_arg_t) + sizeof(twin_t)));
    if (!arg) {
        TENSOR__(fail)(c->thread, TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", c->row->name);
        return TENSOR_ERR_OUT_OF_MEMORY;
    }

    twin_t *twin = (twin_t *)(void *)(arg + n + 1);
    int code = run_on_host(c, s, arg, twin, &count);
    for (int k = 0; k < count; k++) { free(twin[k].memory); }
    free(arg);
    return code;
}

// ------------------------------------------------------------------------------
// >>native                                         MARK: rows with kernels
//
// Calls the kernels of the sections above. The meaning of a row's arguments and parameters is described at
// its row in tensor.h and tensor_nn.h. TENSOR_ERR_UNSUPPORTED means that there is no kernel for these dtypes
// or layouts.
// ------------------------------------------------------------------------------

enum { NONE = TENSOR_ERR_UNSUPPORTED };

// The word where this op notes a bad index. A graph keeps its words. what: static text for the error, NULL =
// the op's name.
static unsigned long long *noting(const tensor_call_t *c, const char *what = nullptr,
                                  int code = TENSOR_ERR_INDEX) {
    gpu_t *g = gpu_of(c->device - 1);
    stream_t *s = this_thread.now;
    graph_t *graph = captured_on(s);
    for (int k = 0; !graph && k < process.nstreams && __atomic_load_n(&g->used, __ATOMIC_RELAXED) >= SLOTS;
         k++) {
        if (process.stream[k]->device == s->device && !captured_on(process.stream[k])) {
            settle(process.stream[k], c->row->name);
        }
    }
    lock_t hold(&process.lock);
    int k = g->next, tries = SLOTS;
    while (--tries && g->slot[k].graph) { k = (k + 1) % SLOTS; }
    g->next = (k + 1) % SLOTS;
    __atomic_add_fetch(&g->used, 1, __ATOMIC_RELAXED);
    g->slot[k] = {what ? what : c->row->name, nullptr, graph, what != nullptr, code, s,
                  __atomic_load_n(&s->calls, __ATOMIC_ACQUIRE) + 1, &this_thread};
    if (this_thread.nslots == 16) { this_thread.nslots = 0; }
    this_thread.slot[this_thread.nslots++] = &g->slot[k];
    if (graph) { graph->noted = 1; } else { __atomic_store_n(&s->noted, 1, __ATOMIC_RELEASE); }
    return &g->errors[2 * k];
}

// The words of the graph's ops so far.
static refusals_t words_of(const graph_t *graph) {
    refusals_t r = {};
    if (!graph->noted) { return r; }
    gpu_t *g = gpu_of(graph->device);
    lock_t hold(&process.lock);
    r.word = g->errors;
    for (int k = 0; k < SLOTS; k++) {
        if (g->slot[k].graph == graph) { r.of[k / 32] |= 1u << k % 32; }
    }
    return r;
}

// The address of a number in a graph's numbers, which is filled again before each run. -> NULL: no graph, or
// (failed) no room
static void *live_number(const live_t &number, uint32_t bytes) {
    graph_t *g = captured_on(this_thread.now);
    if (!g) { return nullptr; }
    live_t n = number;
    n.at = g->used;
    if (g->used + bytes > NUMBERS || !g->lives.add(n)) {
        g->failed =
            raised(TENSOR_ERR_OUT_OF_MEMORY, "capture: no room for more random ops and optimizers");
        return nullptr;
    }
    g->used += (bytes + 15) & ~15u;
    return (char *)(uintptr_t)g->numbers->address + n.at;
}

static rng_t rng_of(const tensor_call_t *c) {
    graph_t *g = captured_on(this_thread.now);
    if (!g) { return c->rng; }
    tensor_recorder_t *r = TENSOR__(set_recorder)(nullptr);
    TENSOR__(set_recorder)(r);
    const bool older = r && r->seq && r->seq <= r->since;       // the mask of a dropout stays as it is
    live_t n = {};
    n.own_seed = older || c->rng.seed != g->rng.seed || c->rng.offset < g->rng.offset;
    n.seed = c->rng.seed;
    n.offset = n.own_seed ? c->rng.offset : c->rng.offset - g->rng.offset;
    return {c->rng, (const tensor_generator_t *)live_number(n, sizeof(tensor_generator_t))};
}

static bool is_f32(const tensor_arg_t &a) { return !a.data || (a.dtype == TENSOR_F32 && a.contiguous); }

static bool is_dense(const tensor_call_t *c) {
    for (int i = 0; i < c->nin + c->nout; i++) {
        if (c->arg[i].data && !c->arg[i].contiguous) { return false; }
    }
    return true;
}

static const float *f32_of(const tensor_arg_t &a) { return (const float *)a.data; }

// Other dims over the same memory.
static void reshape(shaped_t &o, int n, const int64_t *dims, const int64_t *strides = nullptr) {
    int64_t step = 1;
    o.arg.ndim = (uint8_t)n;
    for (int d = n - 1; d >= 0; d--) {
        o.dims[d] = dims[d];
        o.strides[d] = strides ? strides[d] : step;
        step *= dims[d];
    }
    o.arg.numel = step;
}

// Runs a kernel on copies, if only the dtype (wide: f16 and bf16 as f32) or the layout prevents it.
static int over_copies(const place_t &at, const tensor_call_t *c, bool wide,
                       int (*run)(const place_t &, tensor_call_t *)) {
    enum { ARGS = TENSOR__MAX_IN + TENSOR__MAX_OUT };
    tensor_arg_t to[ARGS];
    int64_t strides[ARGS][TENSOR_MAX_DIMS];
    uint64_t bytes = 0, size[ARGS];
    tensor_call_t call = *c;
    int n = c->nin + c->nout;
    for (int k = 0; k < n; k++) {
        to[k] = c->arg[k];
        bool half = wide && (to[k].dtype == TENSOR_F16 || to[k].dtype == TENSOR_BF16);
        if (half) { to[k].dtype = TENSOR_F32; }
        size[k] = !to[k].data || (!half && to[k].contiguous) ? 0 :
            (uint64_t)(to[k].numel * size_of(to[k].dtype));
        bytes += size[k] = (size[k] + 255) / 256 * 256;
    }

    scratch_t scratch(c, bytes);
    int code = scratch.code;
    char *free_at = (char *)scratch.at;
    for (int k = 0; k < n && !code; k++) {
        if (!size[k]) { continue; }
        to[k].data = free_at;
        to[k].strides = strides[k];
        to[k].contiguous = 1;
        free_at += size[k];
        for (int64_t d = to[k].ndim - 1, step = 1; d >= 0; step *= to[k].dims[d--]) { strides[k][d] = step; }
        if (k < c->nin) { code = copy(at, to[k], c->arg[k]); }
    }

    call.arg = to;
    if (!code) { code = run(at, &call); }
    for (int k = c->nin; k < n && !code; k++) {
        if (size[k]) { code = copy(at, c->arg[k], to[k]); }
    }
    return code;
}

static int native_pointwise(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &y = c->arg[c->nin];
    int id = c->row->id;
    tensor_arg_t o[4] = {y, y, y, y};
    if (c->nin > 3) { return NONE; }
    for (int k = 0; k < c->nin; k++) { o[k + 1] = c->arg[k]; }
    if (id == TENSOR_OP_CLONE && !is_immediate(o[1])) { return copy(at, y, o[1]); }
    const char *by_zero = nullptr;
    if (class_of(c->compute) == 2) {            // the error text of an integer divided by 0
        if (id == TENSOR_OP_FLOOR_DIVIDE) { by_zero = "floor_divide by zero"; }
        if (id == TENSOR_OP_FMOD) { by_zero = "fmod by zero"; }
        if (id == TENSOR_OP_REMAINDER) { by_zero = "remainder by zero"; }
    }
    if (by_zero && is_immediate(o[2])) {
        if (*(const double *)o[2].data == 0) { return NONE; }       // the CPU raises the error at once
        by_zero = nullptr;
    }

    unsigned long long *zero = by_zero ? noting(c, by_zero) : nullptr;
    return pointwise(at, id, o, c->nin, c->compute, c->p ? c->p->pointwise.p : nullptr, zero);
}

static int native_reduce(const place_t &at, tensor_call_t *c, int op, uint32_t mask) {
    const tensor_arg_t &x = c->arg[0], &y = c->arg[1];
    if (!y.contiguous) { return NONE; }
    uint64_t bytes = reduce_scratch(at, x, mask, op);
    scratch_t scratch(c, bytes);
    return scratch.code ? scratch.code : reduce(at, y, x, mask, op, scratch.at);
}

static int native_order(const place_t &at, tensor_call_t *c, int64_t rows, int64_t columns) {
    const tensor_arg_t &x = c->arg[0], &y = c->arg[1];
    const tensor_order_params_t &p = c->p->order;
    int id = c->row->id;
    int what = PICK_RANK;
    if (id == TENSOR_OP_SORT) { what = PICK_SORT; }
    if (id == TENSOR_OP_TOPK) { what = PICK_TOP; }
    if (id == TENSOR_OP_MODE) { what = PICK_MODE; }
    bool falling = (what == PICK_SORT || what == PICK_TOP) && p.descending, sorted = p.sorted != 0;
    const int64_t m = y.numel / rows;
    scratch_t scratch(c, pick_scratch(at, what, x, rows, columns, m, sorted));
    if (scratch.code) { return scratch.code; }
    return pick(at, what, y, x, rows, columns, m, falling, sorted, p.k, scratch.at);
}

static scan_t scan_of_row(int id) {
    switch (id) {
    case TENSOR_OP_CUMSUM: return SCAN_SUM;
    case TENSOR_OP_CUMPROD: return SCAN_PROD;
    case TENSOR_OP_LOGCUMSUMEXP: return SCAN_LOG;
    case TENSOR_OP_CUMMAX: return SCAN_MAX;
    case TENSOR_OP_CUMMIN: return SCAN_MIN;
    case TENSOR_OP_LINEAR_SCAN: return SCAN_LINE;
    default: return SCAN_OTHERS;
    }
}

static int native_rows(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &x = c->arg[0], &y = c->arg[c->nin];
    int64_t columns = x.ndim ? x.dims[x.ndim - 1] : 1;
    int64_t rows = columns ? x.numel / columns : y.numel;
    bool same = true;
    if (!is_dense(c) || !rows) { return rows ? (int)NONE : 0; }
    for (int k = 1; k <= c->nin; k++) { same = same && c->arg[k].dtype == x.dtype; }
    switch (c->row->id) {
    case TENSOR_OP_ARGMAX: case TENSOR_OP_ARGMIN:
        if (!columns || !x.ndim) { return NONE; }
        return native_reduce(at, c, c->row->id == TENSOR_OP_ARGMAX ? REDUCE_ARGMAX : REDUCE_ARGMIN,
                             1u << (x.ndim - 1));
    case TENSOR_OP_CUMSUM: case TENSOR_OP_CUMPROD: case TENSOR_OP_LOGCUMSUMEXP: case TENSOR_OP_CUMMAX:
    case TENSOR_OP_CUMMIN: case TENSOR_OP_LINEAR_SCAN: case TENSOR_OP_PROD_OTHERS: {
        const scan_t what = scan_of_row(c->row->id);
        const bool transposed = (what == SCAN_SUM || what == SCAN_LINE) && c->p->rows.reverse != 0;
        const uint64_t bytes = scan_scratch(at, rows, columns);
        scratch_t totals(c, bytes), scratch(c, what == SCAN_OTHERS ? (uint64_t)x.numel * 8 : 0);
        if (totals.code || scratch.code) { return TENSOR_ERR_OUT_OF_MEMORY; }
        return scan(at, what, y, x, rows, columns, transposed, totals.at,
                    what == SCAN_LINE ? c->arg[1].data : nullptr, scratch.at);
    }
    case TENSOR_OP_SORT: case TENSOR_OP_TOPK: case TENSOR_OP_KTHVALUE: case TENSOR_OP_MODE:
        return native_order(at, c, rows, columns);
    case TENSOR_OP_SEARCHSORTED: return search(at, y, x, c->arg[1], c->p->searchsorted.right != 0);
    default: break;
    }

    if (!same || class_of(x.dtype) == 2) { return NONE; }
    switch (c->row->id) {
    case TENSOR_OP_SOFTMAX: return softmax(at, y, x, rows, columns, false);
    case TENSOR_OP_LOG_SOFTMAX: return softmax(at, y, x, rows, columns, true);
    case TENSOR_OP_SOFTMAX_BACKWARD: return softmax_backward(at, y, x, c->arg[1], rows, columns, false);
    case TENSOR_OP_LOG_SOFTMAX_BACKWARD: return softmax_backward(at, y, x, c->arg[1], rows, columns, true);
    case TENSOR_OP_LOGSUMEXP: case TENSOR_OP_NORM: case TENSOR_OP_VAR: {
        scratch_t parts(c, value_scratch(at, rows, columns));
        if (parts.code) { return parts.code; }
        const int id = c->row->id;
        row_value_t what = ROW_LOGSUMEXP;
        if (id == TENSOR_OP_NORM) { what = ROW_NORM; }
        if (id == TENSOR_OP_VAR) { what = ROW_VARIANCE; }
        const double correction = id == TENSOR_OP_VAR ? c->p->rows.correction : 0;
        return row_value(at, y, x, rows, columns, what, correction, parts.at);
    }
    default: return NONE;
    }
}

static int native_fill(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &y = c->arg[c->nin];
    int id = c->row->id;
    if (id == TENSOR_OP_FILL) {
        const double v = c->p->fill.start;
        return fill(at, y, v, y.dtype == TENSOR_BOOL ? v != 0 : integer_of(v));
    }
    if (id == TENSOR_OP_ARANGE) { return arange(at, y, c->p->fill.start, c->p->fill.step); }
    if ((id != TENSOR_OP_TRIL && id != TENSOR_OP_TRIU) || !is_dense(c)) { return NONE; }
    const tensor_arg_t &x = c->arg[0];
    if (!x.numel) { return 0; }
    return by_size(size_of(x.dtype), [&](auto type) {
        typedef TCU_TYPE(type) T;
        auto *kernel = triangle<T>;
        return launch(at, threads_for(at, x.numel), kernel, (T *)y.data, (const T *)x.data, x.numel,
                      x.dims[x.ndim - 2], x.dims[x.ndim - 1], c->p->tri.diagonal, id == TENSOR_OP_TRIL);
    });
}

static int native_linalg(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &x = c->arg[0], *y = c->arg + c->nin;
    const int id = c->row->id, last = x.ndim - 1;
    if (id == TENSOR_OP_LINALG_SWAPS) {
        const int64_t m = c->p->linalg.rows, n = x.dims[last], items = m ? y->numel / m : 0;
        return !items ? 0
                      : launch(at, {grid_for(at, items, 1), WARP}, swap_rows, (int64_t *)y->data,
                               (const int32_t *)x.data, items, m, n, noting(c));
    }

    linalg_t l;
    tensor_arg_t outer[2] = {x, c->arg[c->nin - 1]};
    memset((void *)&l, 0, sizeof l);
    for (int k = 0; k < 2; k++) {
        l.row[k] = outer[k].strides[last - 1];
        l.column[k] = outer[k].strides[last];
        outer[k].ndim = (uint8_t)(last - 1);
    }

    l.batch = walk_of(outer, 2);
    const int64_t m = x.dims[last - 1], n = x.dims[last], k = m < n ? m : n, wide = m < n;
    const bool svd = id == TENSOR_OP_LINALG_SVD, eigh = id == TENSOR_OP_LINALG_EIGH;
    const bool qr = id == TENSOR_OP_LINALG_QR;
    int64_t r = qr || c->nin == 2 ? y->dims[last] : 0;
    if (svd) { r = y[1 + wide].dims[last - wide]; }
    if ((m > n ? m : n) >> PIVOT_BITS || r >> 30) { return NONE; }
    if (!l.batch.n) { return 0; }
    l.m = (int)m, l.n = (int)n, l.k = (int)k, l.r = (int)r;
    l.ld = l.m | 1;                             // odd: rows and columns use all banks
    if (svd && wide) { l.ld = l.n | 1; }
    int64_t columns = n + r;
    if (svd) { columns = k + r; }
    if (eigh) { columns += n; }
    l.room = columns * l.ld + 2 * m + 2 * n + 2 * r + 2;
    l.x = x.data;
    l.b = c->nin == 2 ? c->arg[1].data : nullptr;
    for (int i = 0; i < c->nout; i++) { l.y[i] = y[i].data; }
    l.twice = x.dtype == TENSOR_F64;
    l.upper = id == TENSOR_OP_LINALG_SOLVE || (c->p && c->p->linalg.upper);
    l.unit = id == TENSOR_OP_LINALG_SOLVE_TRIANGULAR && c->p->linalg.unitriangular;
    l.raw = qr && c->p->linalg.complete == 2;
    void (*kernel)(linalg_t) = nullptr;
    const char *lacks = nullptr;                // for the error text

    switch (id) {
    case TENSOR_OP_LINALG_SVD:
        kernel = singular_matrices;
        lacks = "linalg_svd: x has inf or NaN, or no convergence";
        break;
    case TENSOR_OP_LINALG_EIGH:
        kernel = eigen_matrices;
        lacks = "linalg_eigh: x has inf or NaN, or no convergence";
        break;
    case TENSOR_OP_LINALG_CHOLESKY:
        kernel = factor_matrices<TENSOR_OP_LINALG_CHOLESKY>;
        lacks = "linalg_cholesky: x is not positive definite";
        break;
    case TENSOR_OP_LINALG_SOLVE:
        kernel = factor_matrices<TENSOR_OP_LINALG_SOLVE>;
        lacks = "linalg_solve: a is singular";
        break;
    case TENSOR_OP_LINALG_CHOLESKY_EX: kernel = factor_matrices<TENSOR_OP_LINALG_CHOLESKY_EX>; break;
    case TENSOR_OP_LINALG_QR: kernel = factor_matrices<TENSOR_OP_LINALG_QR>; break;
    case TENSOR_OP_LINALG_DET: kernel = factor_matrices<TENSOR_OP_LINALG_DET>; break;
    case TENSOR_OP_LINALG_LU_FACTOR: kernel = factor_matrices<TENSOR_OP_LINALG_LU_FACTOR>; break;
    default: kernel = factor_matrices<TENSOR_OP_LINALG_SOLVE_TRIANGULAR>; break;
    }

    const int64_t wanted = ((m > n ? m : n) + 7) / 8, bytes = 8 * l.room;
    const int threads = WARP * (int)most<int64_t>(1, least<int64_t>(wanted, THREADS / WARP));
    l.here = bytes <= at.limits.matrix_shared;
    int64_t grid = l.batch.n, most = (int64_t)at.limits.sms * at.limits.blocks_per_sm * THREADS / threads;
    if (!l.here && most > at.limits.matrix_workspace / bytes) { most = at.limits.matrix_workspace / bytes; }
    if (grid > most) { grid = most < 1 ? 1 : most; }
    scratch_t scratch(c, l.here ? 0 : (uint64_t)(grid * bytes));
    if (scratch.code) { return scratch.code; }
    l.work = (double *)scratch.at;
    l.error = lacks ? noting(c, lacks, TENSOR_ERR_LINALG) : nullptr;
    return launch(at, {(unsigned)grid, threads, l.here ? (size_t)bytes : 0}, kernel, l);
}

static int native_random(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &y = c->arg[c->nin];
    const tensor_params_t *p = c->p;
    switch (c->row->id) {
    case TENSOR_OP_RAND:
        return random_real(at, y, rng_of(c), UNIFORM, p->random.low, p->random.high, p->random.most);
    case TENSOR_OP_RANDN: return random_real(at, y, rng_of(c), NORMAL, p->random.mean, p->random.std, 0);
    case TENSOR_OP_RANDINT: return random_integers(at, y, rng_of(c), p->random.from, p->random.to);
    case TENSOR_OP_BERNOULLI: return bernoulli(at, y, c->arg[0], rng_of(c));
    case TENSOR_OP_MULTINOMIAL: {
        const tensor_arg_t &x = c->arg[0];
        int64_t columns = x.dims[x.ndim - 1], rows = columns ? x.numel / columns : 0;
        if (!rows || !y.numel) { return y.numel ? (int)NONE : 0; }
        return launch(at, blocks_for(at, rows), draw_rows, (int64_t *)y.data, (double *)x.data, rows,
                      columns, p->random.num_samples, p->random.replacement != 0, rng_of(c), noting(c));
    }
    case TENSOR_OP_POISSON: return bernoulli(at, y, c->arg[0], rng_of(c), true);
    case TENSOR_OP_RANDPERM: {
        if (!y.numel || y.numel > INT32_MAX) { return y.numel ? (int)NONE : 0; }
        scratch_t scratch(c, sort_scratch(y.numel) + (uint64_t)y.numel * sizeof(int));
        return scratch.code ? scratch.code
                            : random_order(at, (int64_t *)y.data, y.numel, rng_of(c), scratch.at);
    }
    default: return NONE;
    }
}

// All arguments are contiguous, because the front makes them so.
static int native_index(const place_t &where, tensor_call_t *c) {
    const tensor_arg_t &x = c->arg[0], &index = c->arg[1], &src = c->arg[2], &y = c->arg[c->nin];
    int id = c->row->id;
    bool lines = id == TENSOR_OP_INDEX_COPY || id == TENSOR_OP_INDEX_ADD;
    bool parts = id == TENSOR_OP_SCATTER || id == TENSOR_OP_SCATTER_ADD || id == TENSOR_OP_SCATTER_REDUCE;
    int how = id == TENSOR_OP_INDEX_COPY || id == TENSOR_OP_SCATTER ? PUT_SET : PUT_ADD;
    if (id == TENSOR_OP_SCATTER_REDUCE) { how = (int)c->p->index.reduce; }
    place_t at = where;
    if (id == TENSOR_OP_NONZERO || id == TENSOR_OP_AS_STRIDED_BACKWARD) {
        const tensor_arg_t &to = c->arg[1];
        bool places = id == TENSOR_OP_NONZERO;
        if (places && !x.contiguous) { return NONE; }
        scratch_t scratch(c, places ? nonzero_scratch(x.numel) : add_scratch(x.numel, 1));
        scratch_t read(c, places || x.contiguous ? 0 : (uint64_t)x.numel * (uint64_t)size_of(x.dtype));
        int code = scratch.code ? scratch.code : read.code;
        if (code) { return code; }
        if (places) { return nonzero(at, to, x, c->p->nonzero.by_dim != 0, scratch.at); }
        shaped_t view(x), g(x);
        for (int k = 0; k < x.ndim; k++) { view.strides[k] = c->p->as_strided.stride[k]; }
        reshape(g, x.ndim, x.dims);
        if (read.at) {
            g.arg.data = read.at;
            code = copy(at, g.arg, x);
        }

        tensor_arg_t o[2] = {g.arg, view.arg}, from = to;
        from.data = (char *)to.data + c->p->as_strided.offset * size_of(to.dtype);
        if (!code) { code = fill(at, to, 0, 0); }
        return code ? code : add_at(at, from, g.arg, walk_of(o, 2), nullptr, 0, 0, 1, to.numel, scratch.at,
                                    PUT_ADD);
    }

    if (id == TENSOR_OP_INDEX) {
        any_set_t s;
        sizes_t size = {};
        tensor_arg_t o[POINTWISE_OPERANDS] = {y, y, y, y};
        if (c->nin > 3 || y.dtype != TENSOR_I64) { return NONE; }
        memset((void *)&s, 0, sizeof s);
        s.arity = c->nin;
        for (int k = 0; k < c->nin; k++) {
            o[k + 1] = c->arg[k];
            s.p[k + 1] = c->arg[k].data;
            s.dtype[k + 1] = c->arg[k].dtype;
            size.n[k] = c->p->places.size[k];
            if (!size.n[k]) { return NONE; }
        }
        walk_t w = walk_of(o, c->nin + 1);
        if (!w.n) { return 0; }
        at.error = noting(c);
        return launch(at, threads_for(at, w.n), flat_places, w, (int64_t *)y.data, s, size, at.error);
    }

    if ((id != TENSOR_OP_GATHER && id != TENSOR_OP_INDEX_SELECT && !parts && !lines) || !is_dense(c) ||
        c->p->index.dim >= x.ndim) {
        return NONE;
    }

    const int d = (int)c->p->index.dim;
    int64_t outer = 1, inner = 1, n = x.dims[d];
    for (int k = 0; k < d; k++) { outer *= x.dims[k]; }
    for (int k = d + 1; k < x.ndim; k++) { inner *= x.dims[k]; }
    const int64_t to[3] = {outer, index.numel, inner}, from[3] = {outer, n, inner}, still[3] = {0, 1, 0};
    shaped_t y3(y), x3(x), i3(index);           // rows of elements: the dims around d are joined
    reshape(i3, 3, to, still);
    reshape(x3, 3, from);
    at.error = noting(c);
    if (id == TENSOR_OP_GATHER) { return gather(at, y, x, d, index); }
    if (id == TENSOR_OP_INDEX_SELECT) {
        if (outer == 1) { return index_rows(at, y, x, index, index.numel, inner, n); }
        reshape(y3, 3, to);
        return gather(at, y3.arg, x3.arg, 1, i3.arg);
    }

    bool whole = lines && outer == 1, part = false;
    shaped_t s3(src), used(src);
    for (int k = 0; k < index.ndim && parts; k++) {             // src may be larger than index
        part = part || index.dims[k] != src.dims[k];
        used.dims[k] = index.dims[k];
    }

    const int64_t sources = lines && !whole ? outer * index.numel * inner : index.numel;
    scratch_t scratch(c, add_scratch(sources, whole ? inner : 1));
    scratch_t read(c, part ? (uint64_t)index.numel * (uint64_t)size_of(src.dtype) : 0);
    int code = scratch.code ? scratch.code : read.code;
    if (!code && y.data != x.data) { code = copy(at, y, x); }
    if (code || !index.numel) { return code; }
    if (part) {
        used.arg.numel = index.numel;
        reshape(s3, index.ndim, index.dims);
        s3.arg.data = read.at;
        if ((code = copy(at, s3.arg, used.arg)) != 0) { return code; }
    }

    if (whole) { return add_rows(at, y, index, src, index.numel, inner, n, scratch.at, how); }
    if (!lines) { return scatter_add(at, y, d, index, s3.arg, scratch.at, how); }
    reshape(s3, 3, to);
    reshape(y3, 3, from);
    return scatter_add(at, y3.arg, 1, i3.arg, s3.arg, scratch.at, how);
}

// y [rows, columns], contiguous: see relu_bits.
static int relu_with_bits(const place_t &at, const tensor_arg_t &y, const tensor_arg_t &bits, bool slope) {
    const int64_t columns = y.dims[1], bytes = y.dims[0] * ((columns + 7) / 8);
    if (!bytes) { return 0; }
    TCU_FLOATS(y.dtype, T,
               return launch(at, threads_for(at, bytes), relu_bits<T>, (T *)y.data, (uint8_t *)bits.data,
                             y.dims[0], columns, slope);)
    return 0;
}

// y = a b, times the slope of relu, whose bits are kept, or of gelu_tanh at kept.
static int native_product_slope(const place_t &at, const tensor_arg_t &a, const tensor_arg_t &b,
                                const tensor_arg_t &kept, const tensor_arg_t &y) {
    const bool relu = kept.dtype == TENSOR_U8;
    int code = TENSOR_ERR_UNSUPPORTED;
    if (relu || at.limits.gelu_epilogue) {
        code = product(at, y, a, b, nullptr, false, relu ? RELU_SLOPE_EPILOGUE : GELU_SLOPE_EPILOGUE,
                       kept.data);
    }
    if (code != TENSOR_ERR_UNSUPPORTED) { return code; }
    code = product(at, y, a, b);
    if (code) { return code; }
    if (relu) { return relu_with_bits(at, y, kept, true); }
    const tensor_arg_t in[5] = {kept, {}, {}, {}, y};
    return pointwise_backward(at, TENSOR_OP_GELU_TANH, in, &y, 1, y.dtype, nullptr);
}

static int native_matmul(const place_t &at, tensor_call_t *c) {
    tensor__matrices_t m;
    if (c->nin > 2) { return native_product_slope(at, c->arg[0], c->arg[1], c->arg[2], c->arg[3]); }
    const tensor_arg_t *arg = tensor__matrices(c->arg, &m);
    if (c->nout == 1) { return product(at, arg[2], arg[0], arg[1]); }
    const tensor_arg_t &y = c->arg[2], &sums = c->arg[3];
    int code = TENSOR_ERR_UNSUPPORTED;
    if (y.numel) { code = product(at, y, arg[0], arg[1], sums.data, false, SUMS_EPILOGUE); }
    if (code != TENSOR_ERR_UNSUPPORTED) { return code; }
    scratch_t scratch(c, reduce_scratch(at, arg[0], 2, REDUCE_SUM));
    code = scratch.code ? scratch.code : product(at, y, arg[0], arg[1]);
    return code ? code : reduce(at, sums, arg[0], 2, REDUCE_SUM, scratch.at);
}

static int native_linear(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &x = c->arg[0], &w = c->arg[1], &bias = c->arg[2], &y = c->arg[3];
    const tensor_arg_t &kept = c->arg[2 + c->nout];     // for a gradient, gelu's x or relu's bits, else y
    bool relu = c->row->id == NN_OP_LINEAR_RELU, plain = c->row->id == NN_OP_LINEAR;
    if (!x.contiguous || !y.contiguous || (bias.data && !bias.contiguous)) { return NONE; }
    bool vector = w.ndim == 1;          // one row
    int64_t k = w.dims[w.ndim - 1];
    int64_t n = vector ? 1 : w.dims[0];
    int64_t rows = n ? y.numel / n : 0;
    const int64_t from[2] = {rows, k}, to[2] = {rows, n}, transposed[2] = {k, n};
    const int64_t by[2] = {w.strides[w.ndim - 1], vector ? k : w.strides[0]};
    shaped_t x2(x), y2(y), u2(relu ? y : kept), w2(w);
    reshape(x2, 2, from);
    reshape(y2, 2, to);
    reshape(u2, 2, to);
    reshape(w2, 2, transposed, by);
    if (plain) { return product(at, y2.arg, x2.arg, w2.arg, bias.data); }
    int code = TENSOR_ERR_UNSUPPORTED;
    const bool fused = relu ? !(c->p && c->p->linear.keeps_nan) : at.limits.gelu_epilogue;
    const int epilogue = relu ? RELU_EPILOGUE : GELU_EPILOGUE;
    void *beside = c->nout > 1 ? kept.data : nullptr;
    if (fused) {
        code = product(at, y2.arg, x2.arg, w2.arg, bias.data, false, epilogue, beside);
    }
    if (code != TENSOR_ERR_UNSUPPORTED) { return code; }
    const tensor_arg_t o[2] = {y2.arg, u2.arg};
    code = product(at, u2.arg, x2.arg, w2.arg, bias.data);
    if (code) { return code; }
    if (relu && c->nout > 1) { return relu_with_bits(at, y2.arg, kept, false); }
    return pointwise(at, relu ? TENSOR_OP_RELU : TENSOR_OP_GELU_TANH, o, 1, y.dtype, nullptr);
}

static int native_embedding(const place_t &where, tensor_call_t *c) {
    place_t at = where;
    if (!is_dense(c)) { return NONE; }
    if (c->row->id == NN_OP_EMBEDDING) {
        const tensor_arg_t &index = c->arg[0], &w = c->arg[1];
        at.error = noting(c);
        return index_rows(at, c->arg[2], w, index, index.numel, w.dims[1], w.dims[0],
                          c->p->embedding.zero_padding ? c->p->embedding.padding_idx : (int64_t)NO_PADDING);
    }

    const tensor_arg_t &g = c->arg[0], &index = c->arg[1], &y = c->arg[2];
    scratch_t scratch(c, add_scratch(index.numel, c->arg[2].dims[1]));
    int code = scratch.code ? scratch.code : fill(at, y, 0, 0);
    if (code) { return code; }
    at.error = noting(c);
    return add_rows(at, y, index, g, index.numel, y.dims[1], y.dims[0], scratch.at, PUT_ADD,
                    c->p->embedding.padding_idx);
}

static dropout_t dropout_of(const tensor_call_t *c, double p) {
    const rng_t rng = p > 0 ? rng_of(c) : rng_t{c->rng, nullptr};
    return {rng, (uint32_t)((1 - p) * 16777216.0 + 0.5), p < 1 ? 1 / (1 - p) : 0, p > 0};
}

static int native_dropout(const place_t &at, tensor_call_t *c) {
    const bool adds = c->row->id == NN_OP_DROPOUT_ADD;
    const tensor_arg_t *more = adds ? &c->arg[0] : nullptr, &x = c->arg[adds], &y = c->arg[c->nin];
    if (!is_dense(c)) { return NONE; }
    return x.numel ? drop_out_of(at, y, more, x, dropout_of(c, c->p->dropout.p)) : 0;
}

template <class T> static int piece_norms(const place_t &at, tensor_call_t *c, const pieces_t &p) {
    typedef class_t<T> C;
    const bool back = c->row->id == NN_OP_GROUP_NORM_BACKWARD;
    const norm_args_t a(c, back);
    grid_t rows = rows_for(at, p.all, p.p.n < p.longest ? p.p.n : p.longest, 16 / (int)sizeof(T));
    unsigned statistics = grid_for(at, p.p.rows, 1), channels = grid_for(at, p.p.channels, 1);
    const T *x = (const T *)a.x->data;
    const C *w = (const C *)a.weight->data;
    C *mean = (C *)a.mean->data, *rstd = (C *)a.rstd->data;
    if (!back) {
        scratch_t scratch(c, (uint64_t)p.all * sizeof(moments_t<C>));
        if (scratch.code) { return scratch.code; }
        int code = launch(at, rows, piece_moments<T>, p, scratch.at, x);
        if (!code) {
            code = launch(at, {statistics, THREADS}, join_moments<C>, p, mean, rstd, a.variance->data,
                          scratch.at, (C)c->p->group_norm.eps);
        }
        if (code) { return code; }
        return launch(at, rows, piece_norm<T>, p, a.y->data, x, mean, rstd, w, a.bias->data);
    }

    scratch_t scratch(c, (uint64_t)(p.all + p.p.rows) * sizeof(pair_t<C>));
    if (scratch.code) { return scratch.code; }
    pair_t<C> *sums = (pair_t<C> *)scratch.at, *means = sums + p.all;
    const T *dy = (const T *)a.dy->data;
    int code = launch(at, rows, piece_sums<T>, p, sums, dy, x, mean, rstd);
    const bool read = a.dx->numel > 0;
    if (!code && read) { code = launch(at, {statistics, THREADS}, join_sums<C>, p, means, sums, w); }
    if (!code && read) {
        code = launch(at, rows, piece_norm_backward<T>, p, a.dx->data, dy, x, mean, rstd, w, means);
    }
    if (code || !a.dweight->numel) { return code; }
    return launch(at, {channels, dim3(1, THREADS)}, join_channels<C>, p, a.dweight->data, a.dbias->data,
                  sums);
}

template <class T> static int plane_norms(const place_t &at, tensor_call_t *c) {
    typedef class_t<T> C;
    const bool back = c->row->id == NN_OP_GROUP_NORM_BACKWARD;
    const norm_args_t a(c, back);
    planes_t p = planes_of(c->p->group_norm);
    if (!p.rows || !c->arg[0].numel) { return c->arg[0].numel ? 0 : (int)NONE; }
    if (p.planes * p.n > at.limits.norm_block) { return piece_norms<T>(at, c, pieces_of(at, p)); }
    const grid_t grid = blocks_for(at, p.rows);
    const void *x = a.x->data, *w = a.weight->data;
    if (!back) {
        return launch(at, grid, plane_norm<T>, p, a.y->data, a.mean->data, a.rstd->data, a.variance->data, x,
                      w, a.bias->data, (C)c->p->group_norm.eps);
    }

    int code = 0;
    if (a.dx->numel) {
        code = launch(at, grid, plane_norm_backward<T>, p, a.dx->data, a.dy->data, x, a.mean->data,
                      a.rstd->data, w);
    }
    if (code || !a.dweight->numel) { return code; }
    return launch(at, blocks_for(at, p.channels), plane_norm_weights<T>, p, a.dweight->data, a.dbias->data,
                  a.dy->data, x, a.mean->data, a.rstd->data);
}

// Batch norm in evaluation. x and y are both contiguous, or both have channels innermost.
template <class T> static int running_norms(const place_t &at, tensor_call_t *c) {
    typedef class_t<T> C;
    const tensor_arg_t *a = c->arg, &x = a[0], &y = a[5];
    auto half = [&](int k) { return sizeof(T) < sizeof(C) && a[k].dtype == x.dtype; };
    const running_t<T, C> r = {a[1].data, a[2].data, a[3].data, a[4].data, half(1), half(2), half(3), half(4),
                               (C)c->p->group_norm.eps};
    const pieces_t p = pieces_of(at, planes_of(c->p->group_norm));
    constexpr int V = lanes_of<T>;
    if (x.contiguous && p.p.n > 1) {
        const grid_t rows = rows_for(at, p.all, least(p.p.n, p.longest), V);
        return launch(at, rows, running_norm<T>, p, y.data, x.data, r);
    }
    const int64_t channels = p.p.channels, pixels = p.p.items * p.p.n;
    const bool wide = channels % V == 0 && aligned16(x.data) && aligned16(y.data);
    const grid_t grid = rows_for(at, pixels, channels, wide ? V : 1);
    auto *kernel = wide ? running_norm_last<T, V> : running_norm_last<T, 1>;
    return launch(at, grid, kernel, y.data, x.data, pixels, channels, r);
}

static bool is_gradient_of_norm(const tensor_call_t *c) {
    return c->row->id == NN_OP_LAYER_NORM_BACKWARD || c->row->id == NN_OP_GROUP_NORM_BACKWARD;
}

// Whether x, y and their gradients are of one half dtype, and all that is small of f32.
static bool norms_halves(const tensor_call_t *c) {
    const norm_args_t n(c, is_gradient_of_norm(c));
    const tensor_arg_t *halves[4] = {n.x, n.y, n.dy, n.dx};
    const tensor_arg_t *wide[7] = {n.weight, n.bias, n.mean, n.rstd, n.dweight, n.dbias, n.variance};
    bool fit = true;
    for (const tensor_arg_t *a : halves) { fit = fit && (!a->data || a->dtype == n.x->dtype); }
    for (const tensor_arg_t *a : wide) { fit = fit && (!a->data || a->dtype == TENSOR_F32); }
    return fit;
}

static int native_norm(const place_t &at, tensor_call_t *c);
static bool innermost(const tensor_arg_t &a);

// Whether the images of a batch or group norm have channels innermost, and dtypes that image_norms takes.
static bool norms_images(const tensor_call_t *c) {
    const int id = c->row->id;
    if (id != NN_OP_BATCH_NORM && id != NN_OP_GROUP_NORM && id != NN_OP_GROUP_NORM_BACKWARD) { return false; }
    const norm_args_t n(c, is_gradient_of_norm(c));
    const tensor_arg_t *images[4] = {n.x, n.y, n.dy, n.dx};
    const tensor_arg_t *small[7] = {n.weight, n.bias, n.mean, n.rstd, n.dweight, n.dbias, n.variance};
    const int wide = n.x->dtype == TENSOR_F64 ? (int)TENSOR_F64 : (int)TENSOR_F32;
    bool fit = !n.x->contiguous && n.x->numel && c->p->group_norm.channels <= INT32_MAX;
    for (const tensor_arg_t *a : images) {
        fit = fit && (!a->data || !a->numel || (a->dtype == n.x->dtype && innermost(*a)));
    }
    for (const tensor_arg_t *a : small) {
        fit = fit && (!a->data || (a->contiguous && a->dtype == wide));
    }
    return fit;
}

template <class T> static int image_norms_by_width(const place_t &at, const tensor_call_t *c) {
    constexpr int V = lanes_of<T>;
    const norm_args_t n(c, is_gradient_of_norm(c));
    bool packs = c->p->group_norm.channels % V == 0;
    for (const tensor_arg_t *a : {n.x, n.y, n.dy, n.dx}) {
        packs = packs && aligned16((const char *)a->data);
    }
    scratch_t scratch(c, packs ? image_norms_scratch<T, V>(at, c) : image_norms_scratch<T, 1>(at, c));
    if (scratch.code) { return scratch.code; }
    return packs ? image_norms<T, V>(at, c, scratch.at) : image_norms<T, 1>(at, c, scratch.at);
}

// Gradients of weight and bias alone, of images whose channels are innermost, by statistics that are given.
static bool sums_channels(const tensor_call_t *c) {
    if (c->row->id != NN_OP_GROUP_NORM_BACKWARD || c->p->group_norm.groups || is_dense(c)) { return false; }
    const norm_args_t n(c, true);
    const int small = n.x->dtype == TENSOR_F64 ? (int)TENSOR_F64 : (int)TENSOR_F32;
    return !n.dx->numel && n.x->numel && n.dy->dtype == n.x->dtype && innermost(*n.dy) && innermost(*n.x) &&
        n.mean->dtype == small && n.rstd->dtype == small && n.dweight->dtype == small;
}

static int channel_sums(const place_t &at, tensor_call_t *c) {
    const norm_args_t n(c, true);
    const int64_t columns = c->p->group_norm.channels, rows = n.x->numel / columns;
    scratch_t scratch(c, layer_norm_scratch(at, rows, columns, n.x->dtype));
    if (scratch.code) { return scratch.code; }
    return by_float(n.x->dtype, [&](auto type) {
        return channel_gradients<TCU_TYPE(type)>(at, n.dweight->data, n.dbias->data, *n.dy, *n.x,
                                                 n.mean->data, n.rstd->data, rows, columns, scratch.at);
    });
}

// The gradient of a layer norm, added to what is in dx, where no kernel does both.
static int norm_then_add(const place_t &at, const tensor_call_t *c) {
    enum { DX = 5 };
    const tensor_arg_t &sum = c->arg[DX];
    tensor_arg_t arg[8];
    tensor_params_t p = *c->p;
    tensor_call_t call = *c;
    scratch_t scratch(c, (uint64_t)(sum.numel * size_of(sum.dtype)));
    if (scratch.code) { return scratch.code; }
    for (int k = 0; k < 8; k++) { arg[k] = c->arg[k]; }
    arg[DX].data = scratch.at;
    p.layer_norm.adds = 0;
    call.arg = arg;
    call.p = &p;
    const int code = native_norm(at, &call);
    const tensor_arg_t o[3] = {sum, sum, arg[DX]};
    return code ? code : pointwise(at, TENSOR_OP_ADD, o, 2, sum.dtype, nullptr);
}

static int native_add_norm(const place_t &at, tensor_call_t *c) {
    enum { X, Y, WEIGHT, BIAS, SUM, NORMED, MEAN, RSTD };
    const tensor_arg_t *a = c->arg;
    const tensor_layer_norm_params_t &p = c->p->layer_norm;
    const int64_t rows = a[MEAN].numel;
    for (int k = 0; k < 8; k++) {
        if (k != Y && a[k].data && !a[k].contiguous) { return NONE; }
    }
    if (!rows || !p.columns) { return 0; }
    const dropout_t d = dropout_of(c, p.dropout);
    int code = add_layer_norm(at, a[SUM], a[NORMED], a[MEAN].data, a[RSTD].data, a[X], a[Y], a[WEIGHT].data,
                              a[BIAS].data, rows, p.columns, p.eps, d);
    if (code != TENSOR_ERR_UNSUPPORTED) { return code; }
    if (d.drops) {
        int64_t strides[3] = {a[Y].dims[1] * a[Y].dims[2], a[Y].dims[2], 1};
        scratch_t scratch(c, a[Y].contiguous ? 0 : (uint64_t)(a[Y].numel * size_of(a[Y].dtype)));
        tensor_arg_t y = a[Y];
        code = scratch.code;
        if (!code && !y.contiguous) {
            y.data = scratch.at;
            y.strides = strides;
            y.contiguous = 1;
            code = copy(at, y, a[Y]);
        }
        if (!code) { code = drop_out_of(at, a[SUM], &a[X], y, d); }
    } else {
        const tensor_arg_t o[3] = {a[SUM], a[X], a[Y]};
        code = pointwise(at, TENSOR_OP_ADD, o, 2, a[SUM].dtype, nullptr);
    }
    return code ? code : layer_norm(at, a[NORMED], a[MEAN].data, a[RSTD].data, a[SUM], a[WEIGHT].data,
                                    a[BIAS].data, rows, p.columns, p.eps, false);
}

static int native_norm(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t *a = c->arg;
    if (c->row->id == NN_OP_ADD_LAYER_NORM) { return native_add_norm(at, c); }
    const bool adds = c->row->id == NN_OP_LAYER_NORM_BACKWARD && c->p->layer_norm.adds;
    if (adds) {
        const norm_args_t n(c, true);
        const bool packs = norm_packs(*n.dx, *n.dy, *n.x, n.weight->data, c->p->layer_norm.columns);
        if (!packs || !is_dense(c) || (size_of(n.x->dtype) == 2 && !norms_halves(c))) {
            return norm_then_add(at, c);
        }
    }
    bool single = true, twice = true, half = a[0].dtype == TENSOR_F16 || a[0].dtype == TENSOR_BF16;
    if (c->row->id == NN_OP_BATCH_NORM_EVAL) {
        TCU_FLOATS(a[0].dtype, T, return running_norms<T>(at, c);)
        return NONE;
    }
    if (sums_channels(c)) { return channel_sums(at, c); }
#ifdef TCU_HAVE_CUDNN
    bool batch = c->row->id == NN_OP_BATCH_NORM ||
                 (c->row->id == NN_OP_GROUP_NORM_BACKWARD && !c->p->group_norm.groups);
    bool layer = c->row->id == NN_OP_LAYER_NORM || c->row->id == NN_OP_LAYER_NORM_BACKWARD;
    if (((batch && (half || !is_dense(c))) ||
         (layer && is_dense(c) && a[0].numel >= at.limits.norm_library && !adds)) && norm_by_library(at, c)) {
        return 0;
    }
#endif
    for (int k = 0; k < c->nin + c->nout; k++) {
        single = single && is_f32(a[k]);
        twice = twice && (!a[k].data || a[k].dtype == TENSOR_F64);
    }

    if (norms_images(c)) {
        return by_float(a[0].dtype, [&](auto type) { return image_norms_by_width<TCU_TYPE(type)>(at, c); });
    }
    const bool rows_of_halves = half && norms_halves(c);
    if ((half && !rows_of_halves) || !is_dense(c)) { return over_copies(at, c, true, native_norm); }
    single = single || rows_of_halves;
    const norm_args_t n(c, is_gradient_of_norm(c));
    switch (c->row->id) {
    case NN_OP_BATCH_NORM: case NN_OP_GROUP_NORM: case NN_OP_GROUP_NORM_BACKWARD:
        if (!single && !twice) { return NONE; }
        TCU_FLOATS(n.x->dtype, T, return plane_norms<T>(at, c);)
        return NONE;
    case NN_OP_LAYER_NORM:
        if ((!single && !twice) || !a[0].numel) { return single ? 0 : (int)NONE; }
        return layer_norm(at, *n.y, n.mean->data, n.rstd->data, *n.x, n.weight->data, n.bias->data,
                          n.mean->numel, c->p->layer_norm.columns, c->p->layer_norm.eps,
                          c->p->layer_norm.rms != 0);
    case NN_OP_LAYER_NORM_BACKWARD: {
        int64_t rows = n.mean->numel, columns = c->p->layer_norm.columns;
        if ((!single && !twice) || !a[0].numel) { return NONE; }
        scratch_t scratch(c, n.dweight->numel ? layer_norm_scratch(at, rows, columns, n.x->dtype) : 0);
        if (scratch.code) { return scratch.code; }
        void *dw = n.dweight->numel ? n.dweight->data : nullptr;
        void *db = n.dweight->numel ? n.dbias->data : nullptr;
        return layer_norm_backward(at, *n.dx, dw, db, *n.dy, *n.x, n.weight->data, n.mean->data, n.rstd->data,
                                   rows, columns, c->p->layer_norm.rms != 0, scratch.at, adds);
    }
    default: return NONE;
    }
}

// Whether the channels of images are innermost, without a gap.
static bool innermost(const tensor_arg_t &a) {
    if (a.ndim < 4) { return false; }
    bool good = a.dims[1] == 1 || a.strides[1] == 1;
    int64_t dense = a.dims[1];
    for (int d = a.ndim - 1; d >= 0; d--) {
        if (d == 1) { continue; }
        good = good && (a.dims[d] == 1 || a.strides[d] == dense);
        dense *= a.dims[d];
    }
    return good;
}

template <class T, class C> static int convolve(const place_t &at, int id, const conv_t &v) {
    if (id == NN_OP_CONV_WEIGHT) {
        unsigned width = 1;
        while (v.last && width < 32 && width < v.cg) { width *= 2; }
        const int64_t parts = (v.cg + width - 1) / width;
        const grid_t grid = {grid_for(at, v.n / v.cg * parts, 1), dim3(width, THREADS / width)};
        return launch(at, grid, conv_weight<T, C>, v);
    }
    if (v.last && id < NN_OP_CONV_TRANSPOSE1D) {
        unsigned width = 1;
        while (width < WARP && width < v.out.channels) { width *= 2; }
        const int64_t parts = (v.out.channels + width - 1) / width, height = THREADS / width;
        const int64_t tiles = (v.images * v.out.pixels + height - 1) / height * parts;
        const grid_t grid = {grid_for(at, tiles, 1), dim3(width, THREADS / width)};
        return launch(at, grid, conv_forward_last<T, C>, v);
    }
    auto *kernel = id >= NN_OP_CONV_TRANSPOSE1D ? conv_input<T, C> : conv_forward<T, C>;
    return launch(at, threads_for(at, v.n), kernel, v);
}

template <class C> static int image_columns(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t &x = c->arg[0], &y = c->arg[1];
    auto *kernel = c->row->id == NN_OP_IM2COL ? columns_of<C> : images_of<C>;
    return !y.numel ? 0
                    : launch(at, threads_for(at, y.numel), kernel, c->p->window, (C *)y.data,
                             (const C *)x.data, y.numel);
}

static conv_t conv_of(const tensor_call_t *c, const tensor_arg_t &weight, bool last) {
    conv_t v = {};
    v.g = c->p->window;
    v.a = c->arg[0].data;
    v.b = c->arg[1].data;
    v.bias = c->nin > 2 ? c->arg[2].data : nullptr;
    v.y = c->arg[c->nin].data;
    v.n = c->arg[c->nin].numel;
    v.images = c->arg[0].dims[0];
    v.cg = weight.dims[1];
    v.og = weight.dims[0] / v.g.groups;
    v.last = last;
    v.in.channels = v.cg * v.g.groups;
    v.in.pixels = v.g.in[0] * v.g.in[1] * v.g.in[2];
    v.out.channels = v.og * v.g.groups;
    v.out.pixels = v.g.out[0] * v.g.out[1] * v.g.out[2];
    for (images_t *k : {&v.in, &v.out}) {
        k->channel = last ? 1 : k->pixels;
        k->pixel = last ? k->channels : 1;
    }
    return v;
}

static int native_conv(const place_t &at, tensor_call_t *c);

// By the kernels here.
static int own_conv(const place_t &at, tensor_call_t *c) {
    const int id = c->row->id;
    const bool of_weight = id == NN_OP_CONV_WEIGHT;
    const tensor_arg_t &y = c->arg[c->nin], &w = c->arg[of_weight ? 2 : 1];
    const bool dense = is_dense(c);
    const bool last = !dense && innermost(c->arg[0]) && innermost(of_weight ? c->arg[1] : y);
    const bool w_last = last && innermost(w);
    const bool bias_lies = of_weight || c->arg[2].contiguous || !c->arg[2].data;
    if (!dense && !(last && (w_last || w.contiguous) && bias_lies)) {
        return over_copies(at, c, false, native_conv);
    }

    conv_t v = conv_of(c, w, last);
    const int64_t taps = v.g.kernel[0] * v.g.kernel[1] * v.g.kernel[2];
    v.w.out = v.cg * taps;
    v.w.in = w_last ? 1 : taps;
    v.w.tap = w_last ? v.cg : 1;
    return by_float(c->arg[0].dtype, [&](auto type) {
        typedef TCU_TYPE(type) T;
        return convolve<T, class_t<T>>(at, id, v);
    });
}

static int native_conv(const place_t &at, tensor_call_t *c) {
    int id = c->row->id;
    if (id == NN_OP_IM2COL || id == NN_OP_COL2IM) {
        if (!is_dense(c)) { return NONE; }
        return by_real(c->arg[0].dtype, [&](auto type) { return image_columns<TCU_TYPE(type)>(at, c); });
    }

    if (!c->arg[c->nin].numel) { return 0; }
#ifdef TCU_HAVE_CUDNN
    conv_kind_t kind = id >= NN_OP_CONV_TRANSPOSE1D ? CONV_INPUT : CONV_FORWARD;
    if (id == NN_OP_CONV_WEIGHT) { kind = CONV_WEIGHT; }
    if (conv_by_library(at, kind, c, c->p->window)) { return 0; }
#endif
    return own_conv(at, c);
}

// 1: all tensors of a pool are contiguous; the number of channels: they are innermost in all of them; 0:
// neither.
static int64_t between_pixels(const tensor_call_t *c) {
    window_t g = c->p->window;
    int64_t channels = 0, in = g.in[0] * g.in[1] * g.in[2], out = g.out[0] * g.out[1] * g.out[2];
    if (is_dense(c)) { return 1; }
    for (int k = 0; k < c->nin + c->nout; k++) {
        const tensor_arg_t &a = c->arg[k];
        if (!a.data) { continue; }
        if (!innermost(a)) { return 0; }
        channels = a.dims[1];
        const int64_t planes = a.dims[0] * channels;
        if (a.numel != planes * in && a.numel != planes * out) { return 0; }    // no batch, or no channels
    }

    return channels;
}

template <class T, class I> static int pool_of(const place_t &at, tensor_call_t *c, const pool_t<I> &g) {
    const tensor_arg_t *a = c->arg;
    const tensor_arg_t &y = a[c->nin];
    const grid_t grid = threads_for(at, y.numel);
    if (c->row->id == NN_OP_AVG_POOL_BACKWARD || c->row->id == NN_OP_MAX_POOL_BACKWARD) {
        return launch(at, grid, pool_backward<T, I>, g, (T *)y.data,
                      c->nin > 1 ? (const int32_t *)a[1].data : nullptr, (const T *)a[0].data, y.numel);
    }
    return launch(at, grid, pool_forward<T, I>, g, (T *)y.data,
                  c->nout == 2 ? (int32_t *)a[c->nin + 1].data : nullptr, (const T *)a[0].data, y.numel);
}

template <class T> static int pool(const place_t &at, tensor_call_t *c, int64_t between) {
    const tensor_arg_t &x = c->arg[0], &y = c->arg[c->nin];
    window_t g = c->p->window;
    if (!y.numel) { return 0; }
    if (!x.numel) { return fill(at, y, 0, 0); }
    bool small = x.numel < INT32_MAX && y.numel < INT32_MAX;
    for (int d = 0; d < 3; d++) {               // as their sums and products must be
        small = small && g.in[d] + g.pad[d] + g.kernel[d] * g.dilation[d] + g.stride[d] < INT32_MAX &&
                (g.out[d] + 1) * g.stride[d] < INT32_MAX && g.divisor < INT32_MAX;
    }
    return small ? pool_of<T>(at, c, pool_t<int32_t>(g, between))
                 : pool_of<T>(at, c, pool_t<int64_t>(g, between));
}

// The mean of whole planes is a reduction, in which many threads take a plane. -> UNSUPPORTED: it is not that
static int mean_of_planes(const place_t &at, tensor_call_t *c, int64_t between) {
    const window_t &g = c->p->window;
    const tensor_arg_t &x = c->arg[0], &y = c->arg[1];
    const int id = c->row->id;
    const bool mean = id == NN_OP_AVG_POOL1D || id == NN_OP_AVG_POOL2D || id == NN_OP_AVG_POOL3D;
    if (!mean || !x.numel) { return NONE; }
    const bool adaptive = g.mode == NN_POOL_ADAPTIVE;
    for (int d = 0; d < 3; d++) {
        const bool all = adaptive || (g.kernel[d] == g.in[d] && !g.pad[d] && !g.divisor);
        if (g.out[d] != 1 || !all) { return NONE; }
    }

    const int64_t dims[3] = {y.numel / between, x.numel / y.numel, between};
    shaped_t planes(x);
    reshape(planes, 3, dims);
    scratch_t scratch(c, reduce_scratch(at, planes.arg, 2, REDUCE_MEAN));
    return scratch.code ? scratch.code : reduce(at, y, planes.arg, 2, REDUCE_MEAN, scratch.at);
}

static int native_pool(const place_t &at, tensor_call_t *c) {
    int64_t between = between_pixels(c);
    if (!between) { return over_copies(at, c, false, native_pool); }
    const int mean = mean_of_planes(at, c, between);
    if (mean != NONE) { return mean; }
    TCU_FLOATS(c->arg[0].dtype, T, return pool<T>(at, c, between);)
    return NONE;
}

template <class C> static int losses(const place_t &where, tensor_call_t *c) {
    int reduction = (int)c->p->loss.reduction, which = (int)c->p->loss.kind;
    bool back = c->row->id == NN_OP_LOSS_BACKWARD;
    const loss_args_t a(c, back);
    const tensor_arg_t &x = *a.x;
    double scale = 1;
    if (reduction == TENSOR_MEAN) { scale = 1 / (double)x.numel; }
    if (reduction == TENSOR_BATCHMEAN && x.ndim) { scale = 1 / (double)x.dims[0]; }
    const grid_t grid = threads_for(where, x.numel);
    place_t at = where;
    if (!x.numel) { return NONE; }
    if (back) {
        void *dx = a.dx->numel ? a.dx->data : nullptr;
        void *dtarget = a.dtarget->numel ? a.dtarget->data : nullptr;
        return launch(at, grid, loss_map_backward<C>, which, dx, dtarget, a.dy->data,
                      reduction == TENSOR_NONE, (C)scale, x.data, a.target->data, a.weight->data,
                      a.pos_weight->data, (C)c->p->loss.beta, x.numel);
    }

    bool sum = reduction != TENSOR_NONE;
    shaped_t flat(x);
    reshape(flat, 1, &x.numel);
    uint64_t bytes = sum ? (uint64_t)x.numel * sizeof(C) : 0;
    scratch_t each(c, bytes), more(c, sum ? reduce_scratch(at, flat.arg, 1, REDUCE_SUM) : 0);
    if (each.code || more.code) { return each.code ? each.code : more.code; }
    if (which == NN__LOSS_BCE) { at.error = noting(c); }
    void *y = sum ? each.at : a.y->data;
    int code = launch(at, grid, loss_map<C>, which, y, x.data, a.target->data, a.weight->data,
                      a.pos_weight->data, (C)c->p->loss.beta, x.numel, at.error);
    if (code || !sum) { return code; }
    flat.arg.data = each.at;
    return reduce(at, *a.y, flat.arg, 1, REDUCE_SUM, more.at, scale);
}

template <class T> static int entropy(const place_t &where, tensor_call_t *c) {
    typedef class_t<T> C;
    bool back = c->row->id == NN_OP_CROSS_ENTROPY_BACKWARD;
    const entropy_args_t a(c, back);
    const tensor_arg_t &x = *a.x, &target = *a.target, &weight = *a.weight;
    int64_t rows = x.dims[0], columns = x.dims[1];
    const tensor_cross_entropy_params_t &p = c->p->cross_entropy;
    int reduction = (int)p.reduction;
    labels_t<C> q = {target.data, (const C *)weight.data, target.dtype, p.log_probs != 0, p.ignore_index,
                     (C)p.label_smoothing};
    if ((weight.data && size_of(weight.dtype) != (int)sizeof(C)) || !columns) { return NONE; }
    place_t at = where;
    if (back) {
        grid_t g = rows_for(at, rows, columns, 16 / (int)sizeof(T));
        if (!rows) { return 0; }
        const void *divisor = reduction == TENSOR_MEAN ? a.divisor->data : nullptr;
        return launch(at, g, cross_entropy_rows_backward<T>, a.dx->data, a.dy->data, reduction == TENSOR_NONE,
                      divisor, x.data, a.lse->data, q, rows, columns);
    }

    scratch_t scratch(c, (uint64_t)rows * 2 * sizeof(C));
    if (scratch.code) { return scratch.code; }
    C *y = (C *)a.y->data, *each = reduction == TENSOR_NONE ? y : (C *)scratch.at;
    at.error = noting(c);
    return cross_entropy(at, reduction == TENSOR_NONE ? nullptr : y, each, (C *)scratch.at + rows,
                         (C *)a.lse->data, (C *)a.divisor->data, (const T *)x.data, q, rows, columns,
                         reduction == TENSOR_MEAN);
}

static int ctc(const place_t &where, tensor_call_t *c) {
    const tensor_arg_t *a = c->arg;
    const tensor_ctc_params_t &p = c->p->ctc;
    const int64_t *dims = a[0].dims;
    bool single = a[0].dtype == TENSOR_F32, want = p.with_grad != 0;
    int64_t rows = want ? dims[0] + !dims[0] : 2;
    if ((!single && a[0].dtype != TENSOR_F64) || !dims[2]) { return NONE; }
    if (!dims[1]) { return 0; }
    scratch_t scratch(c, (uint64_t)((rows + 4) * (2 * a[1].numel + dims[1])) * sizeof(double));
    if (scratch.code) { return scratch.code; }
    ctc_t v = {a[0].data, a[1].data, a[2].data, a[3].data, a[4].data, a[5].data, a[1].dtype, a[2].dtype,
               a[3].dtype, dims[0], dims[1], dims[2], a[1].numel, p.blank, p.columns, rows, want,
               p.zero_infinity != 0, (double *)scratch.at};
    return launch(where, blocks_for(where, dims[1]), single ? ctc_items<float> : ctc_items<double>, v,
                  noting(c));
}

static int native_loss(const place_t &at, tensor_call_t *c) {
    const tensor_arg_t *a = c->arg;
    int id = c->row->id;
    bool classes = id == NN_OP_CROSS_ENTROPY || id == NN_OP_CROSS_ENTROPY_BACKWARD;
    if (!is_dense(c)) { return NONE; }
    if (id == NN_OP_CTC_LOSS) { return ctc(at, c); }
    if (classes) {
        const entropy_args_t of(c, id == NN_OP_CROSS_ENTROPY_BACKWARD);
        TCU_FLOATS(of.x->dtype, T, return entropy<T>(at, c);)
        return NONE;
    }
    return by_real(a[0].dtype, [&](auto type) { return losses<TCU_TYPE(type)>(at, c); });
}

static void transpose(shaped_t &o) {
    int d = o.arg.ndim;
    int64_t n = o.dims[d - 1], step = o.strides[d - 1];
    o.dims[d - 1] = o.dims[d - 2];
    o.strides[d - 1] = o.strides[d - 2];
    o.dims[d - 2] = n;
    o.strides[d - 2] = step;
}

// Rows [first, first + count) of the matrices in the last two dims.
static void narrow(shaped_t &o, int64_t first, int64_t count) {
    const int d = o.arg.ndim - 2;
    o.dims[d] = count;
    o.arg.data = (char *)o.arg.data + first * o.strides[d] * size_of(o.arg.dtype);
}

enum { ATTENTION_ROWS = 64 };

// Queries [first, end) of all heads; their scores are at `scores`, in backward the scores' gradients at
// `more`. Keys that none of them sees take no part. The gradients of keys and values are sums over all parts:
// the last part, which comes first, stores them.
template <class C>
static int attention_part(const place_t &at, const attention_args_t &a, bool back, bool causal, C scale,
                          const filter_t &filter, int64_t first, int64_t end, C *scores, C *more) {
    const bool filters = filter.mask || filter.drop.drops;
    const int n = a.q->ndim;
    const int64_t count = end - first, queries = a.q->dims[n - 2];
    const bool last = end == queries;
    int64_t keys = a.k->dims[n - 2], dims[TENSOR_MAX_DIMS], rows = count;
    if (causal && !(back && last)) {            // of some eight widths, for the library plans each of them
        const int64_t step = (keys / 8 / ATTENTION_ROWS + 1) * ATTENTION_ROWS;
        keys = least(keys, (end + step - 1) / step * step);
    }
    for (int d = 0; d < n - 2; d++) {
        dims[d] = a.q->dims[d];
        rows *= dims[d];
    }
    dims[n - 2] = count;
    dims[n - 1] = keys;

    shaped_t q(*a.q), k(*a.k), v(*a.v), p(*a.q), kt(*a.k);
    reshape(p, n, dims);
    p.arg.data = scores;
    narrow(q, first, count);
    narrow(k, 0, keys);
    narrow(v, 0, keys);
    narrow(kt, 0, keys);
    transpose(kt);
    const scores_t part = {rows, keys, count, first, queries, causal};
    int code = product(at, p.arg, q.arg, kt.arg);
    if (code) { return code; }
    if (!back) {
        shaped_t y(*a.y);
        narrow(y, first, count);
        bool holds = true;
        const grid_t g = held_rows_for(at, scores, rows, keys, &holds);
        auto *kernel = holds ? attention_rows<C, true, false> : attention_rows<C, false, false>;
        if (filters) { kernel = holds ? attention_rows<C, true, true> : attention_rows<C, false, true>; }
        code = launch(at, g, kernel, scores, a.lse->data, part, scale, filter);
        return code ? code : product(at, y.arg, p.arg, v.arg);
    }

    shaped_t d(*a.q), vt(*a.v), dy(*a.dy), dq(*a.dq), dk(*a.dk), dv(*a.dv);
    reshape(d, n, dims);
    d.arg.data = more;
    narrow(vt, 0, keys);
    transpose(vt);
    narrow(dy, first, count);
    narrow(dq, first, count);
    narrow(dk, 0, keys);
    narrow(dv, 0, keys);
    if ((code = product(at, d.arg, dy.arg, vt.arg)) != 0) { return code; }
    const grid_t g = rows_for(at, rows, keys, lanes_of<C>);
    auto *kernel = filters ? attention_rows_backward<C, true> : attention_rows_backward<C, false>;
    code = launch(at, g, kernel, scores, more, a.lse->data, part, scale, filter);
    if (!code) { code = product(at, dq.arg, d.arg, k.arg); }
    transpose(p);
    transpose(d);
    if (!code) { code = product(at, dk.arg, d.arg, q.arg, nullptr, !last); }
    return code ? code : product(at, dv.arg, p.arg, dy.arg, nullptr, !last);
}

static bool has_mask(const tensor_call_t *c) {
    return c->nin > (c->row->id == NN_OP_ATTENTION_BACKWARD ? 6 : 3);
}

// mask: [.., queries, keys] with any strides, or no_arg
static filter_t filter_of(const tensor_call_t *c, const tensor_arg_t &mask, int64_t keys) {
    const dropout_t drop = dropout_of(c, c->p->attention.dropout);
    filter_t f = {{}, mask.data, mask.dtype != TENSOR_BOOL, 0, 0, keys, drop};
    if (mask.data) {
        tensor_arg_t heads = mask;
        heads.ndim = (uint8_t)(mask.ndim - 2);
        f.heads = walk_of(&heads, 1);
        f.query_step = mask.strides[mask.ndim - 2];
        f.key_step = mask.strides[mask.ndim - 1];
    }
    return f;
}

// By products of libraries, whose scores, [.., queries, keys], are in scratch: those of as many queries as
// the limit allows, so that memory does not grow with the square of a sequence's length.
template <class C> static int attention(const place_t &at, tensor_call_t *c) {
    bool back = c->row->id == NN_OP_ATTENTION_BACKWARD, causal = c->p->attention.is_causal != 0;
    const attention_args_t a(c, has_mask(c), back);
    const tensor_arg_t &q = *a.q, &k = *a.k, &v = *a.v;
    for (int i = 0; i < c->nin + c->nout; i++) {
        const bool looks = &c->arg[i] == a.mask && a.mask->dtype == TENSOR_BOOL;
        if (c->arg[i].data && !looks && c->arg[i].dtype != q.dtype) { return NONE; }
    }
    int n = q.ndim;
    int64_t queries = q.dims[n - 2], keys = k.dims[n - 2], heads = 1;
    for (int d = 0; d < n - 2; d++) {
        heads *= q.dims[d];
        if (k.dims[d] != q.dims[d] || v.dims[d] != q.dims[d]) { return NONE; }
    }

    if (!heads || !queries || !keys || !q.dims[n - 1] || !v.dims[n - 1]) { return NONE; }
    const int64_t fit = at.limits.attention_scores / (int64_t)sizeof(C) / heads / keys;
    const int64_t part = least(queries, most<int64_t>(fit / ATTENTION_ROWS, 1) * ATTENTION_ROWS);
    const uint64_t bytes = (uint64_t)(heads * part * keys) * sizeof(C);
    scratch_t scores(c, bytes), more(c, back ? bytes : 0);
    int code = scores.code ? scores.code : more.code;
    const C scale = (C)c->p->attention.scale;
    const filter_t filter = filter_of(c, *a.mask, keys);
    for (int64_t end = queries; end > 0 && !code; end -= part) {
        const int64_t first = most<int64_t>(end - part, 0);
        code = attention_part<C>(at, a, back, causal, scale, filter, first, end, (C *)scores.at,
                                 (C *)more.at);
    }
    return code;
}

// -> UNSUPPORTED: not one query per head, or larger than the kernel allows.
static int attention_of_one(const place_t &at, tensor_call_t *c) {
    if (c->row->id != NN_OP_ATTENTION || has_mask(c) || c->p->attention.dropout > 0) { return NONE; }
    const attention_args_t a(c, false, false);
    const tensor_arg_t &q = *a.q, &k = *a.k, &v = *a.v, &y = *a.y;
    const int last = q.ndim - 1;
    const int lse = q.dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
    if (last < 2 || q.dims[last - 1] != 1 || !y.contiguous || !a.lse->contiguous || a.lse->dtype != lse) {
        return NONE;
    }
    for (const tensor_arg_t *o : {&q, &k, &v}) {
        if (o->dtype != q.dtype || o->dims[last] > ONE_MOST || !o->numel) { return NONE; }
        if (o->dims[last] != 1 && o->strides[last] != 1) { return NONE; }
        for (int d = 0; d < last - 1; d++) {
            if (o->dims[d] != q.dims[d]) { return NONE; }
        }
    }

    // causal: the first query sees the first key
    const int64_t keys = c->p->attention.is_causal ? 1 : k.dims[last - 1];
    if (keys > at.limits.one_query_keys) { return NONE; }
    tensor_arg_t heads[4] = {y, q, k, v};
    for (tensor_arg_t &o : heads) { o.ndim = (uint8_t)(last - 1); }
    const one_query_t one = {walk_of(heads, 4),
                             y.data,
                             a.lse->data,
                             q.data,
                             k.data,
                             v.data,
                             keys,
                             q.dims[last],
                             v.dims[last],
                             k.strides[last - 1],
                             v.strides[last - 1],
                             c->p->attention.scale};
    return by_float(q.dtype, [&](auto type) {
        return launch(at, blocks_for(at, one.heads.n), attention_one<TCU_TYPE(type)>, one);
    });
}

static int native_attention(const place_t &at, tensor_call_t *c) {
    int dtype = c->arg[0].dtype;
    int one = attention_of_one(at, c);
    if (one != NONE) { return one; }
    if (dtype == TENSOR_F16 || dtype == TENSOR_BF16) {
#ifdef TCU_HAVE_CUDNN
        const bool more = c->row->id < NN_OP_END && (has_mask(c) || c->p->attention.dropout > 0);
        if (!more && attention_by_library(at, c)) { return 0; }
#endif
        if (c->row->id >= NN_OP_END) { return NONE; }
        return over_copies(at, c, true, native_attention);
    }
    return by_real(dtype, [&](auto type) { return attention<TCU_TYPE(type)>(at, c); });
}

// Step by step: what h adds to the gates, then the gates; in backward: the gates, then what goes through h.
template <class C> static int recurrent(const place_t &at, tensor_call_t *c) {
    bool back = c->row->id == NN_OP_RECURRENT_BACKWARD, reverse = c->p->recurrent.reverse != 0;
    const recurrent_args_t a(c, back);
    const tensor_arg_t &all = *a.y, &w = *a.weight;
    int64_t steps = all.dims[0], n = all.dims[1], h = all.dims[2], g = w.dims[0], size = n * h;
    const int64_t state[2] = {n, h}, gates[2] = {n, g}, transposed[2] = {h, g}, by[2] = {1, h};
    if (!steps || !size) { return NONE; }
    scratch_t scratch(c, back ? 0 : (uint64_t)(n * g) * sizeof(C));
    int code = scratch.code;
    if (back && !code) { code = fill(at, *a.dh, 0, 0); }
    if (back && !code) { code = fill(at, *a.dc, 0, 0); }
    shaped_t x(all), y(w), wt(w);
    reshape(x, 2, back ? gates : state);
    reshape(y, 2, back ? state : gates);
    if (!back) { reshape(wt, 2, transposed, by); }
    y.arg.data = back ? a.dh->data : scratch.at;
    const C *first = (const C *)a.h0->data, *c0 = (const C *)a.c0->data;
    C *cells = (C *)a.cells->data, *kept = (C *)a.kept->data;

    for (int64_t s = 0; s < steps && !code; s++) {
        int64_t forward = back ? steps - 1 - s : s;
        int64_t t = reverse ? steps - 1 - forward : forward;
        int64_t before = reverse ? t + 1 : t - 1;
        recur_t v;
        memset((void *)&v, 0, sizeof v);
        v.kind = (int)c->p->recurrent.kind;
        v.n = n;
        v.h = h;
        v.g = g;
        v.y = (C *)all.data + t * size;
        v.h0 = forward ? (const C *)all.data + before * size : first;
        if (v.kind == NN_LSTM_NET) {
            v.c = cells + t * size;
            v.c0 = forward ? cells + before * size : c0;
        }

        v.gates = kept + t * 4 * size;
        if (back) {
            v.dy = (const C *)a.dy->data + t * size;
            v.dcy = a.dcy->data ? (const C *)a.dcy->data + t * size : nullptr;
            v.dgi = (C *)a.dgi->data + t * n * g;
            v.dhg = v.kind == NN_GRU_NET ? (C *)a.dhg->data + t * n * g : nullptr;
            v.dh = a.dh->data;
            v.dc = a.dc->data;
            code = launch(at, threads_for(at, size), recur_step_backward<C>, v);
            x.arg.data = v.dhg ? v.dhg : v.dgi;
            if (!code) { code = product(at, y.arg, x.arg, w, nullptr, true); }
            continue;
        }
        x.arg.data = (void *)(uintptr_t)v.h0;
        code = product(at, y.arg, x.arg, wt.arg, a.bias->data);
        v.gi = (const C *)a.gi->data + t * n * g;
        v.hg = scratch.at;
        if (!code) {
            code = launch(at, threads_for(at, size), recur_step<C>, v);
        }
    }

    return code;
}

static int native_recurrent(const place_t &at, tensor_call_t *c) {
    int dtype = c->arg[0].dtype;
    if (c->row->id >= NN_OP_END) {
#ifdef TCU_HAVE_CUDNN
        if (is_dense(c) && net_by_library(at, c)) { return 0; }
#endif
        return NONE;
    }
    if (!is_dense(c)) { return NONE; }
    return by_real(dtype, [&](auto type) { return recurrent<TCU_TYPE(type)>(at, c); });
}

// nn__cpu_squares and nn__cpu_scale.
static int native_grads(const place_t &at, tensor_call_t *c) {
    const bool scale = c->p->optimizer.kind == NN__SCALE_GRADS;
    const int count = c->nout - NN__GRADS_HEAD;
    double *head = (double *)c->arg[0].data;
    int64_t parts = 0;
    int n[2] = {0, 0}, code = 0;
    for (int i = 0; i < count; i++) { parts += parts_of(c->arg[NN__GRADS_HEAD + i].numel); }
    scratch_t scratch(c, scale ? 0 : (uint64_t)parts * sizeof(double));
    param_t *params = (param_t *)malloc((size_t)(count + 1) * 2 * sizeof *params);
    parts = 0;
    for (int i = 0; i < count && params; i++) {
        const tensor_arg_t &a = c->arg[NN__GRADS_HEAD + i];
        const int wide = a.dtype == TENSOR_F64;
        params[wide * count + n[wide]++] = {a.data, (double *)scratch.at + parts, {}, a.numel};
        parts += parts_of(a.numel);
    }

    if (!scratch.code && !params) { code = NONE; }
    if (scratch.code) { code = scratch.code; }
    const double *factor = scale ? head : nullptr;
    if (!code) { code = grads<float>(at, params, n[0], factor, (float *)c->arg[1].data); }
    if (!code) { code = grads<double>(at, params + count, n[1], factor, (float *)c->arg[1].data); }
    free(params);
    if (code || scale) { return code; }
    return launch(at, {1, THREADS}, sum_parts, head, (const double *)scratch.at, parts);
}

// The operands are those of TENSOR_STEP_NUMBERS ..
template <class T> static int step_in(const place_t &at, tensor_call_t *c, const param_t *params, int count) {
    typedef class_t<T> C;
    const nn_update_t *u = (const nn_update_t *)c->arg[TENSOR_STEP_NUMBERS].data;
    const float *skip = f32_of(c->arg[TENSOR_STEP_SKIP]);
    live_t n = {};
    n.host = u;
    n.states = params[0];
    n.wide = sizeof(C) == 8;
    const void *live = live_number(n, (uint32_t)sizeof(update_t<double>));
    const graph_t *graph = captured_on(this_thread.now);
    const bool beside = graph && graph->noted && graph->streams.n > 1;
    constexpr uint64_t numbers = (sizeof(update_t<C>) + 15) & ~15ull;
    scratch_t scratch(c, skip || beside ? numbers + sizeof(unsigned) : 0);
    if (scratch.code) { return scratch.code; }
    if (skip) {
        int code = launch(at, {1, 32}, step_numbers<C>, (update_t<C> *)scratch.at,
                          update_of<C>(*u, params[0]), (const update_t<C> *)live, skip);
        if (code) { return code; }
        live = scratch.at;
    }

    // Without a graph none: the host hears of an error later.
    refusals_t refused = {};
    if (graph) {
        refused = words_of(graph);
        refused.held = held_of(graph);
    }
    if (beside) {
        unsigned *held = (unsigned *)((char *)scratch.at + numbers);
        int code = launch(at, {1, 32}, note_refusals, held, refused);
        if (code) { return code; }
        refused = {};
        refused.held = held;
    }
    return optimizer<T>(at, params, count, *u, live, refused);
}

static int native_optimizer(const place_t &at, tensor_call_t *c) {
    if (c->p->optimizer.kind >= NN__SUM_SQUARES) { return native_grads(at, c); }
    int count = c->nout / TENSOR_STEP_EACH, dtype = c->arg[TENSOR_STEP_HEAD].dtype, code;
    param_t *params = (param_t *)malloc((size_t)(count + 1) * sizeof *params);
    if (!params) {                              // the CPU is not asked: it takes no halves here
        TENSOR__(fail)(c->thread, TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", c->row->name);
        return TENSOR_ERR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < count; i++) {
        const tensor_arg_t *a = &c->arg[TENSOR_STEP_HEAD + TENSOR_STEP_EACH * i];
        const tensor_arg_t *state = a + TENSOR_STEP_STATES;
        params[i] = {a[TENSOR_STEP_PARAMETER].data, a[TENSOR_STEP_GRADIENT].data,
                     {state[0].data, state[1].data, state[2].data}, a->numel};
    }
    code = by_float(dtype, [&](auto type) { return step_in<TCU_TYPE(type)>(at, c, params, count); });
    free(params);
    return code;
}

static int native(const place_t &at, tensor_call_t *c) {
    static const int reduces[][2] = {
        {TENSOR_OP_SUM, REDUCE_SUM}, {TENSOR_OP_MEAN, REDUCE_MEAN}, {TENSOR_OP_PROD, REDUCE_PROD},
        {TENSOR_OP_AMAX, REDUCE_AMAX}, {TENSOR_OP_AMIN, REDUCE_AMIN}, {TENSOR_OP_ANY, REDUCE_ANY},
        {TENSOR_OP_ALL, REDUCE_ALL}};

    switch (c->row->family) {
    case TENSOR_FAMILY_POINTWISE: return native_pointwise(at, c);
    case TENSOR_FAMILY_POINTWISE_BACKWARD:
        return pointwise_backward(at, c->row->id, c->arg, c->arg + 5, c->nout, c->compute,
                                  c->p ? c->p->pointwise.p : nullptr);
    case TENSOR_FAMILY_REDUCE:
        for (const int *r : reduces) {
            if (r[0] == c->row->id) { return native_reduce(at, c, r[1], (uint32_t)c->p->reduce.mask); }
        }
        return NONE;
    case TENSOR_FAMILY_ROWS: return native_rows(at, c);
    case TENSOR_FAMILY_MATMUL:
        return c->row->id == TENSOR_OP_MATMUL ? native_matmul(at, c) : native_linear(at, c);
    case TENSOR_FAMILY_INDEX: return native_index(at, c);
    case TENSOR_FAMILY_RANDOM: return native_random(at, c);
    case TENSOR_FAMILY_FILL: return native_fill(at, c);
    case TENSOR_FAMILY_LINALG: return native_linalg(at, c);
    case TENSOR_FAMILY_CONV: return native_conv(at, c);
    case TENSOR_FAMILY_POOL: return native_pool(at, c);
    case TENSOR_FAMILY_NORM: return native_norm(at, c);
    case TENSOR_FAMILY_EMBEDDING: return native_embedding(at, c);
    case TENSOR_FAMILY_DROPOUT: return native_dropout(at, c);
    case TENSOR_FAMILY_ATTENTION: return native_attention(at, c);
    case TENSOR_FAMILY_LOSS: return native_loss(at, c);
    case TENSOR_FAMILY_OPTIMIZER: return native_optimizer(at, c);
    case TENSOR_FAMILY_RECURRENT: return native_recurrent(at, c);
    default: return NONE;
    }
}

// ------------------------------------------------------------------------------
// >>graphs                                         MARK: a recorded step that runs again
//
// A capture is CUDA's own capture of a stream; its memory is an arena that only the graph's runs use, or
// those of the graphs of one pool: each of these waits for all that was queued on the pool's memory before.
// What changes from run to run (offsets of the generator, an optimizer's numbers) is in one small block;
// before a run, a kernel writes there what has changed, which its arguments bring along, and whether an op of
// the graph has refused an index that the program has not heard of. tensor.h does the host's part and asks
// for the first run when the capture ends. What was drawn and counted in the capture has not happened by
// then: end resets the generator. Rejected: patching kernel arguments in the graph's nodes (one
// call of the driver for each); a copy (the graph's kernels would wait for another engine).
// ------------------------------------------------------------------------------

enum { NUMBERS_AT_ONCE = 1024 };
struct sent_t { unsigned char v[NUMBERS_AT_ONCE]; };

// held: NULL = no op of the graph refuses anything
__global__ void __launch_bounds__(THREADS, 4)
store_numbers(unsigned char *to, sent_t from, int n, unsigned *held, refusals_t words) {
    for (int i = (int)threadIdx.x; i < n; i += THREADS) { to[i] = from.v[i]; }
    __syncthreads();
    if (held && !threadIdx.x) { *held = any_refused(words); }
}

// Waits for the graph's last run and frees it.
static void backend_graph_free(void *graph) {
    graph_t *g = (graph_t *)graph;
    gpu_t *gpu = &process.gpu[g->device];
    on_device_t at(g->device);
    if (g->numbers && g->numbers->wrote) {      // each run writes them, after the run before it
        stream_t *s = process.stream[g->numbers->wrote >> MARK_BITS];
        if (captured_on(s)) { cudaEventSynchronize(s->event); } else { cudaStreamSynchronize(s->raw); }
    }
    if (g->exec) { cudaGraphExecDestroy(g->exec); }

    {
        lock_t hold(&process.graph_lock);
        for (int k = 0; k < g->list.n; k++) {
            block_t *&b = g->list.at[k].block;
            if (b && (--b->kept || !b->released)) { b = nullptr; }
        }
        graph_t **before = &process.graphs;
        while (*before && *before != g) { before = &(*before)->next; }
        if (*before) { *before = g->next; }
    }

    // Without the lock, because a deleter of the program's may free tensors.
    for (int k = 0; k < g->list.n; k++) {
        block_t *b = g->list.at[k].block;
        if (b) { let_go(allocator_of(b), b); }
    }

    {
        lock_t hold(&process.lock);
        for (slot_t &slot : gpu->slot) {
            if (slot.graph == g) { slot.graph = nullptr; }
        }
    }

    release(process.allocator, g->numbers);
    if (g->pool) {
        lock_t hold(&g->pool->lock);            // a capture that begins now comes after it
        if (--g->pool->graphs == 0) { graph_release(process.allocator, g->device, g->pool->number); }
    } else if (g->id) {
        graph_release(process.allocator, g->device, g->id);
    }
    g->list.drop();
    g->lives.drop();
    g->streams.drop();
    g->comms.drop();
    plans_of_graphs(-1);
    free(g->staged);
    free(g);
}

// Whether a storage was made in the capture. Pinned memory: whether the graph fills it.
static int backend_graph_made(const void *graph, const tensor__storage_t *storage) {
    const graph_t *g = (const graph_t *)graph;
    const block_t *b = storage->deleter == backend_release ? (const block_t *)storage->user : nullptr;
    if (!b) { return 0; }
    if (storage->device) { return b->made == g->id; }
    lock_t hold(&process.graph_lock);
    return b->listed == g->id && g->list.at[b->place].wrote;
}

static void capture_over(const graph_t *g) {
    capture_end(process.allocator, g->device, g->id);
    each_pinned([&](int device) { capture_end(process.pinned, device, g->id); });
}

// Whether the calling thread's pool cannot serve a capture on this device; raises if so. -> code
static int pool_unfit(int index, const char *op) {
    const tensor_cuda_graph_pool_t *pool = this_thread.pool;
    if (!pool) { return 0; }
    if (pool->dead) { return raised(TENSOR_ERR_OWNER, "%s: the thread's graph pool was freed", op); }
    if (pool->device == index) { return 0; }
    return raised(TENSOR_ERR_DEVICE, "%s: the thread's graph pool is of CUDA device %i, must be of %i", op,
                  pool->device, index);
}

static int backend_graph_begin(int index, void **graph) {
    static const char op[] = "capture_begin";
    stream_t *s = current(index, op);
    if (!s) { return code_now(); }
    int code = pool_unfit(index, op);
    if (code) { return code; }
    graph_t *g = (graph_t *)calloc(1, sizeof *g);
    if (!g) { return raised(TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", op); }
    {
        lock_t hold(&process.graph_lock);
        g->next = process.graphs;
        process.graphs = g;
    }
    plans_of_graphs(1);
    g->device = index;
    // What the cache has could not be given back in the capture: the graph would come on top of it.
    empty_cache(process.allocator, index);
    if (this_thread.pool) {
        g->pool = this_thread.pool;
        lock_t hold(&g->pool->lock);
        g->pool->graphs++;
    }
    const int pool = g->pool ? g->pool->number : 0;
    uint64_t *used = g->pool ? g->pool->used : nullptr;
    g->id = capture_begin(process.allocator, g->device, (void *)s->raw, pool, used);
    g->staged = (unsigned char *)calloc(1, NUMBERS);
    g->used = HELD_BYTES;
    current_t at(g->device);
    code = TENSOR_ERR_OUT_OF_MEMORY;
    if (g->id && g->staged) {
        code = alloc(process.allocator, g->device, (void *)s->raw, NUMBERS, "graph", &g->numbers);
    }

    // Pinned memory freed in between must not be waited for on a stream that is being captured. What is made
    // in between is made here.
    this_thread.now = s;
    if (!code && !device_of(process.pinned, index)) { code = TENSOR_ERR_OUT_OF_MEMORY; }
    each_pinned([&](int device) {
        if (!code) { code = capture_join(process.pinned, device, (void *)s->raw, g->id); }
    });
    g->on = s;
    if (!code && !g->streams.add(s)) { code = TENSOR_ERR_OUT_OF_MEMORY; }
    g->thread = &this_thread;
    g->rng = tensor_get_generator();
    const bool alone = !code && !__atomic_exchange_n(&process.capturing, 1, __ATOMIC_ACQUIRE);
    if (!code && !alone) { code = TENSOR_ERR_UNSUPPORTED; }
    if (!code) {
        lock_t hold(&s->event_lock);
        code = code_of(cudaEventRecord(s->event, s->raw));      // other threads wait for it
        // Relaxed, because a kernel's first launch, here or in a library, loads the kernel.
        if (!code) { code = code_of(cudaStreamBeginCapture(s->raw, cudaStreamCaptureModeRelaxed)); }
        if (!code) {
            s->part = 0;
            __atomic_store_n(&s->part_of, g->id, __ATOMIC_RELEASE);
            __atomic_store_n(&process.capture, g, __ATOMIC_RELEASE);
        }
    }

    if (!code) {
        *graph = g;
        return 0;
    }
    if (alone) { __atomic_store_n(&process.capturing, 0, __ATOMIC_RELEASE); }
    if (g->id) { capture_over(g); }
    backend_graph_free(g);
    if (code == TENSOR_ERR_CUDA) { return raise_cuda(op); }
    if (code == TENSOR_ERR_UNSUPPORTED) { return raised(code, "%s: another thread captures a step", op); }
    return raised(code, "%s: out of memory", op);
}

// What was drawn in the capture has not happened yet: the first run draws it.
static int backend_graph_end(void *graph, int wanted) {
    static const char op[] = "capture_end";
    graph_t *g = (graph_t *)graph;
    cudaGraph_t captured = nullptr;
    current_t at(g->device);
    int code = code_of(cudaStreamEndCapture(g->on->raw, &captured));
    bool unjoined = code && last_error == cudaErrorStreamCaptureUnjoined;
    __atomic_store_n(&process.capture, (graph_t *)nullptr, __ATOMIC_RELEASE);
    __atomic_store_n(&process.capturing, 0, __ATOMIC_RELEASE);
    capture_over(g);
    if (!code) { code = code_of(cudaGraphInstantiate(&g->exec, captured, 0)); }
    if (captured) { cudaGraphDestroy(captured); }
    if (g->thread == &this_thread) {
        g->drawn = tensor_get_generator().offset - g->rng.offset;
        (tensor_set_generator)(g->rng);
    }
    g->words = words_of(g);
    if (!wanted || g->failed) { return g->failed; }
    if (unjoined) {
        return raised(TENSOR_ERR_UNSUPPORTED, "%s: work of another stream was not waited for", op);
    }
    return code ? raise_cuda(op) : 0;
}

// Puts a number of the next run into the host's copy; what differs from the last run's is to be sent.
template <class T> static void stage(graph_t *g, uint32_t at, const T &v) {
    if (g->sent && !memcmp(g->staged + at, (const void *)&v, sizeof v)) { return; }
    memcpy(g->staged + at, (const void *)&v, sizeof v);
    g->changed = least(g->changed, at);
    g->changed_end = most(g->changed_end, at + (uint32_t)sizeof v);
}

// The numbers of the next run: optimizers', and the generator's, which begin at rng.
static void stage_lives(graph_t *g, tensor_generator_t rng) {
    if (!g->sent) {
        g->changed = 0;
        g->changed_end = g->used;
    }
    for (int k = 0; k < g->lives.n; k++) {
        const live_t &l = g->lives.at[k];
        if (!l.host) {
            tensor_generator_t now = rng;
            now.seed = l.own_seed ? l.seed : rng.seed;
            now.offset = l.own_seed ? l.offset : rng.offset + l.offset;
            stage(g, l.at, now);
        } else if (l.wide) {
            stage(g, l.at, update_of<double>(*l.host, l.states));
        } else {
            stage(g, l.at, update_of<float>(*l.host, l.states));
        }
    }
}

// first: the capture has counted the versions already.
static int backend_graph_run(void *graph, int first) {
    static const char op[] = "graph_replay";
    graph_t *g = (graph_t *)graph;
    stream_t *s = current(g->device, op);
    if (!s) { return code_now(); }
    current_t at(g->device);
    for (int k = 0; k < g->comms.n; k++) {
        if (g->comms.at[k]->dead) {
            return raised(TENSOR_ERR_OWNER, "%s: a communicator of the graph was freed", op);
        }
    }
    // What an earlier run is seen to have refused comes first: this one would go on from where that stopped.
    if (g->noted && __atomic_load_n(process.gpu[g->device].refused, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&s->noted, 1, __ATOMIC_RELEASE);
        const int refused = settle(s, op);
        if (refused) { return refused; }
    }
    tensor_generator_t rng = tensor_get_generator();
    stage_lives(g, rng);

    const lock_t turn(g->pool ? &g->pool->lock : &g->turn);
    int code = use_before(s, g->numbers, true);
    for (int k = 0; g->pool && k < __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE) && !code; k++) {
        code = order(s, __atomic_load_n(&g->pool->used[k], __ATOMIC_RELAXED));
    }
    latest_t before;
    {
        lock_t hold(&process.graph_lock);
        before = g->after;
        g->after = {};                          // the runs wait for each other
        for (int k = 0; k < g->list.n; k++) {
            const listed_t &l = g->list.at[k];
            if (l.block) { each_mark(l.block, l.wrote, [&](uint64_t mark) { before.add(mark); }); }
        }
    }
    for (uint64_t mark : before.of) { code = code ? code : order(s, mark); }
    if (code) {                                 // the next run waits for it
        lock_t hold(&process.graph_lock);
        for (uint64_t mark : before.of) { g->after.add(mark); }
    }

    // An earlier run of which the program has not heard yet may have refused an index: then no optimizer
    // makes a step, also one that was captured before the op that refused it.
    unsigned *held = g->noted ? held_of(g) : nullptr;
    if (held && g->changed >= g->changed_end) { g->changed = g->changed_end = 0; }
    g->sent = 0;
    uint32_t next = g->changed;
    bool more = held || next < g->changed_end;
    while (more && !code) {
        sent_t part = {};
        const uint32_t n = least<uint32_t>(g->changed_end - next, NUMBERS_AT_ONCE);
        memcpy(part.v, g->staged + next, n);
        code = code_of(tcu_launch(store_numbers, 1, THREADS, 0, s->raw,
                                  (unsigned char *)(uintptr_t)g->numbers->address + next, part, (int)n, held,
                                  g->words));
        next += n;
        more = next < g->changed_end;
    }

    if (!code) { code = code_of(cudaGraphLaunch(g->exec, s->raw)); }
    if (code) {
        code = raise_cuda(op);
        // What was sent may be under way: who frees the numbers waits for it.
        use_after(s, g->numbers, true, next_mark(s));
        return code;
    }
    g->sent = 1;
    g->changed = NUMBERS;
    g->changed_end = 0;
    if (g->noted) { __atomic_store_n(&s->noted, 1, __ATOMIC_RELEASE); }
    uint64_t mark = next_mark(s);
    use_after(s, g->numbers, true, mark);
    bool noted = true;
    {
        lock_t hold(&process.graph_lock);
        for (int k = 0; k < g->list.n; k++) {
            listed_t &l = g->list.at[k];
            if (l.block && !note_use(s, l.block, l.wrote, mark)) { noted = false; }
            if (first || !l.storage || !l.wrote) { continue; }
            l.storage->version++;
            l.storage->write_op = op;
            l.storage->write_site = nullptr;
        }
    }

    if (!noted) { forget(cudaStreamSynchronize(s->raw)); }
    rng.offset += g->drawn;
    (tensor_set_generator)(rng);
    return 0;
}

// The usable stream of a handle; NULL is the default stream of device 0. -> NULL after raising
static tensor_cuda_stream_t *stream_of(tensor_cuda_stream_t *h, const char *op) {
    if (!h && !gpu_of(0)) {
        raised(TENSOR_ERR_DEVICE, "%s: CUDA is not started", op);
        return nullptr;
    }
    h = h ? h : &process.gpu[0].main;
    if (!h->dead) { return h; }
    raised(TENSOR_ERR_OWNER, "%s: the stream was freed", op);
    return nullptr;
}

static int event_bad(const tensor_cuda_event_t *e, const char *op) {
    if (!e) { return raised(TENSOR_ERR_POISONED, "%s: the event is NULL, as its making failed", op); }
    return e->dead ? raised(TENSOR_ERR_OWNER, "%s: the event was freed", op) : 0;
}

// The graph that the calling thread captures.
static graph_t *my_capture() {
    graph_t *g = __atomic_load_n(&process.capture, __ATOMIC_ACQUIRE);
    return g && g->thread == &this_thread ? g : nullptr;
}

// A graph cannot contain queries, or waits other than those for streams of the capture.
static int in_capture(const stream_t *s, const char *op) {
    graph_t *g = __atomic_load_n(&process.capture, __ATOMIC_ACQUIRE);
    if (!g || (g->thread != &this_thread && !(s && captured_on(s)))) { return 0; }
    if (g->thread == &this_thread) { g->failed = TENSOR_ERR_UNSUPPORTED; }
    return raised(TENSOR_ERR_UNSUPPORTED, "%s: not while a graph is captured", op);
}

// -> NULL after raising
static gpu_t *gpu_for(tensor_device_t device, const char *op) {
    char number[16];
    gpu_t *g = (int)device >= (int)TENSOR_CUDA ? gpu_of((int)device - TENSOR_CUDA) : nullptr;
    snprintf(number, sizeof number, "%i", (int)device - (int)TENSOR_CUDA);
    if (!g) { raised(TENSOR_ERR_DEVICE, "%s: no CUDA device %s is started", op, number); }
    return g;
}

template <class T> static T *handle(T **list) {
    T *h = (T *)calloc(1, sizeof *h);
    if (!h) { return nullptr; }
    h->next = *list;
    return *list = h;
}

template <class T> static void drop_handles(T **list) {
    for (T *h = *list, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    *list = nullptr;
}

// ------------------------------------------------------------------------------
// >>ranks                                          MARK: one network on many devices
//
// NCCL on the current stream; its tensors are waited for and marked like those of a call. Broadcasts and
// gathers move bytes, so that every dtype works. In a capture NCCL's kernels become part of the graph; NCCL
// frees a communicator only when no graph uses it. Rejected: hooks in the backward pass (only a launch of
// small sums would overlap; a program that needs more can split its list).
// ------------------------------------------------------------------------------

enum collective_t { RANKS_SUM, RANKS_MEAN, RANKS_BROADCAST, RANKS_GATHER };
#ifdef TCU_HAVE_NCCL
static_assert(TENSOR_CUDA_ID_BYTES == sizeof(ncclUniqueId), "tensor_cuda.h");

static int nccl_code(const char *op, ncclResult_t e) {
    if (!e) { return 0; }
    cudaGetLastError();
#ifdef TCU_HAVE_NCCL_TIMED
    const int code = e == ncclRemoteError ? TENSOR_ERR_IO : TENSOR_ERR_CUDA; // IO: another rank has gone
#else
    const int code = TENSOR_ERR_CUDA;
#endif
    return raised(code, "%s: NCCL: %s", op, lib.ncclGetErrorString_(e));
}

// What a call with a communicator has come to. Where that has a timeout NCCL's calls do not wait: they begin
// and say that they are in progress, here until they are done or its time is over.   -> code, raised
static int nccl_done(const tensor_cuda_comm_t *c, const char *op, ncclResult_t e) {
    typedef std::chrono::steady_clock clock;
    const clock::time_point begin = clock::now();
    while (e == ncclInProgress) {
        ncclResult_t state = ncclSuccess;
        e = lib.ncclCommGetAsyncError_((ncclComm_t)c->at, &state);
        if (!e) { e = state; }
        if (e != ncclInProgress) { break; }
        const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
        if (c->timeout > 0 && seconds > c->timeout) {
            return raised(TENSOR_ERR_IO, "%s: not all ranks have come in time", op);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(seconds < 0.01 ? 10 : 1000));
    }
    return nccl_code(op, e);
}

static const int nccl_types[TENSOR_DTYPE_COUNT] = {ncclFloat32, ncclFloat64, ncclInt32, ncclInt64, ncclUint8,
    -1,
                                                   ncclFloat16, ncclBfloat16, ncclInt8, -1};

// Beside launch and tensor.h's accesses of the host, collectives are a third way to elements: NCCL takes
// addresses, and what it does is not a call of a row, so a recorder does not hear of it.
static ncclResult_t nccl_call(const tensor_cuda_comm_t *c, int what, tensor_t *y, tensor_t *x, int root,
                              cudaStream_t stream) {
    const size_t n = (size_t)x->numel, size = (size_t)size_of(x->dtype);
    char *to = (char *)y->storage->data + y->offset * (int64_t)size;
    const char *from = (const char *)x->storage->data + x->offset * (int64_t)size;
    ncclComm_t comm = (ncclComm_t)c->at;
    switch (what) {
    case RANKS_BROADCAST: return lib.ncclBroadcast_(from, to, n * size, ncclInt8, root, comm, stream);
    case RANKS_GATHER: return lib.ncclAllGather_(from, to, n * size, ncclInt8, comm, stream);
    default:
        return lib.ncclAllReduce_(from, to, n, (ncclDataType_t)nccl_types[x->dtype],
                                  what == RANKS_MEAN ? ncclAvg : ncclSum, comm, stream);
    }
}
#endif

#ifdef TCU_HAVE_NCCL
// A call that failed in the capture of g, which may be NULL: the step has no graph. -> code
static int not_captured(graph_t *g, int code) {
    if (g && code) { g->failed = code; }
    return code;
}

// -> false: no memory to note it
static bool graph_uses(graph_t *g, tensor_cuda_comm_t *c) {
    lock_t hold(&process.graph_lock);
    for (int k = 0; k < g->comms.n; k++) {
        if (g->comms.at[k] == c) { return true; }
    }
    return g->comms.add(c);
}
#endif

// f(graph) for each graph whose collectives use c.
template <class F> static void each_user(const tensor_cuda_comm_t *c, F f) {
    lock_t hold(&process.graph_lock);
    for (graph_t *g = process.graphs; g; g = g->next) {
        for (int k = 0; k < g->comms.n; k++) {
            if (g->comms.at[k] == c) { f(g); }
        }
    }
}

// The result for list[k] is written to list[k], or to y.
static int collective(tensor_cuda_comm_t *c, const char *op, int what, tensor_t *const *list, int n,
                      tensor_t *y, int root) {
    int code = 0;
    auto refuse = [&](bool bad, int with, const char *text) {
        if (bad) { code = raised(with, "%s: %s", op, text); }
        return bad;
    };
    if (refuse(!c, TENSOR_ERR_POISONED, "the communicator is NULL, as its making failed") ||
        refuse(c->dead, TENSOR_ERR_OWNER, "the communicator was freed")) {
        return code;
    }

    if (refuse(!list && n > 0, TENSOR_ERR_POISONED, "the list is NULL")) { return code; }
#ifdef TCU_HAVE_NCCL
    for (int k = 0; k < n + (what == RANKS_GATHER); k++) {
        const tensor_t *x = k < n ? list[k] : y;
        const bool last = x && what != RANKS_GATHER && TENSOR__(keeps_channels_last)(x);
        if (refuse(!x || x->state != TENSOR__LIVE, TENSOR_ERR_POISONED,
                   "a tensor is NULL, freed, or failed earlier") ||
            refuse(x->device != c->device + 1, TENSOR_ERR_DEVICE,
                   "a tensor is not on the communicator's device") ||
            refuse(!(x->flags & TENSOR__CONTIGUOUS) && !last, TENSOR_ERR_SHAPE,
                   "a tensor is not contiguous") ||
            refuse(what <= RANKS_MEAN && nccl_types[x->dtype] < 0, TENSOR_ERR_DTYPE,
                   "NCCL adds no bool and no i16")) {
            return code;
        }
    }

    if (refuse(y && y->dtype != list[0]->dtype, TENSOR_ERR_DTYPE, "y is not of x's dtype") ||
        refuse(y && y->numel != c->ranks * list[0]->numel, TENSOR_ERR_SHAPE,
               "y must have ranks times as many elements as x") ||
        refuse(what == RANKS_BROADCAST && (root < 0 || root >= c->ranks), TENSOR_ERR_INDEX,
               "there is no such rank")) {
        return code;
    }

    stream_t *s = current(c->device, op);
    if (!s) { return code_now(); }
    graph_t *g = captured_on(s);
    current_t at(c->device);
    ncclResult_t e, state = ncclSuccess;
    if ((e = lib.ncclCommGetAsyncError_((ncclComm_t)c->at, &state)) || state) {
        code = nccl_done(c, op, e ? e : state);
        if (code) { return not_captured(g, code); }
    }
    auto each = [&](auto f) {                   // f(tensor, whether it is written)
        for (int k = 0; k < n; k++) {
            if (list[k]->numel) { f(list[k], !y); }
        }
        if (y && y->numel) { f(y, true); }
    };
    each([&](tensor_t *x, bool writes) {
        block_t *b = (block_t *)x->storage->user;
        if (!code) { code = g ? list_block(g, s, b, x->storage, writes) : use_before(s, b, writes); }
    });
    if (!code && g && !graph_uses(g, c)) { code = TENSOR_ERR_OUT_OF_MEMORY; }
    if (code == TENSOR_ERR_OUT_OF_MEMORY) { return not_captured(g, raised(code, "%s: out of memory", op)); }
    if (code) { return not_captured(g, raise_cuda(op)); }
    e = lib.ncclGroupStart_();
    for (int k = 0; k < n && (!e || e == ncclInProgress); k++) {
        if (list[k]->numel) { e = nccl_call(c, what, y ? y : list[k], list[k], root, s->raw); }
    }

    // NCCL queues the kernels of a communicator with a time limit in a thread of its own: a mark of the
    // stream comes after them only if it is made when NCCL says that it is done.
    ncclResult_t end = lib.ncclGroupEnd_();
    code = nccl_done(c, op, e && e != ncclInProgress ? e : end);
    const uint64_t mark = g ? 0 : next_mark(s);
    each([&](tensor_t *x, bool writes) {
        if (!g) { use_after(s, (block_t *)x->storage->user, writes, mark); }
        if (!writes) { return; }
        x->storage->version++;
        x->storage->write_op = op;
        x->storage->write_site = nullptr;
    });
    return not_captured(g, code);
#else
    (void)what, (void)list, (void)n, (void)y, (void)root;
    return TENSOR_ERR_INTERNAL;
#endif
}

static bool comm_failed(const tensor_cuda_comm_t *c) {
#ifdef TCU_HAVE_NCCL
    ncclResult_t state = ncclSuccess;
    return lib.ncclCommGetAsyncError_((ncclComm_t)c->at, &state) || state;
#else
    return c == nullptr;
#endif
}

// Its work is finished, or never will be.
static int comm_drop(tensor_cuda_comm_t *c) {
    int code = 0;
    if (c->dead) { return 0; }
    c->dead = true;
#ifdef TCU_HAVE_NCCL
    on_device_t at(c->device);
    ncclComm_t comm = (ncclComm_t)c->at;
    bool failed = comm_failed(c);
#ifdef TCU_HAVE_NCCL_TIMED
    // Without a limit the end waits for the other ranks' inside of ncclCommDestroy.
    if (!failed && c->timeout > 0) {
        code = nccl_done(c, "cuda_comm_free", lib.ncclCommFinalize_(comm));
        failed = code != 0;
    }
#endif
    if (failed) {
        lib.ncclCommAbort_(comm);
    } else {
        code = nccl_code("cuda_comm_free", lib.ncclCommDestroy_(comm));
    }
#endif
    return code;
}

#ifdef TCU_HAVE_NCCL
// Starts it, on the current device.   -> NULL after raising
static ncclComm_t comm_start(int rank, int ranks, const void *id, double timeout, const char *op) {
    tensor_cuda_comm_t c = {};
    ncclComm_t comm = nullptr;
    ncclUniqueId key;
    int code = 0;
    memcpy(&key, id, sizeof key);
    c.timeout = timeout;
#ifdef TCU_HAVE_NCCL_TIMED
    if (timeout > 0) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        const ncclResult_t e = lib.ncclCommInitRankConfig_(&comm, ranks, key, rank, &config);
        c.at = comm;
        code = nccl_done(&c, op, e);
        if (code && comm) { lib.ncclCommAbort_(comm); }
        return code ? nullptr : comm;
    }
#endif
    code = nccl_code(op, lib.ncclCommInitRank_(&comm, ranks, key, rank));
    return code ? nullptr : comm;
}
#endif

// ------------------------------------------------------------------------------
// >>entry                                          MARK: the kernel of all families, start, figures
//
// The public functions of tensor_cuda.h are at the end.
// ------------------------------------------------------------------------------

static limits_t limits;
static int ranges;                              // NVTX ranges: tensor_cuda_set_ranges

struct range_t {                                // the range of an op, if ranges are on
    bool open;
    explicit range_t(const char *name) : open(__atomic_load_n(&ranges, __ATOMIC_RELAXED) != 0) {
        if (open) { TCU_RANGE_PUSH(name); }
    }

    ~range_t() {
        if (open) { TCU_RANGE_POP(); }
    }
    range_t(const range_t &) = delete;
};


static int backend_run(tensor_call_t *c) {
    const tensor__row_t *row = c->row;
    const range_t range(row->name);
    int index = c->device - 1, key = row->id + (row->family == TENSOR_FAMILY_POINTWISE_BACKWARD ?
                                                BACKWARD_FROM : 0);
    stream_t *s = this_thread.now = current(index, row->name);
    if (!s) { return code_now(); }
    current_t now(index);
    place_t at;
    at.stream = s->raw;
    at.limits = limits;
    at.limits.sms = process.gpu[index].sms;
    at.limits.gelu_epilogue = process.gpu[index].major >= 9;
    at.limits.libraries = !__atomic_load_n(&libraries.off, __ATOMIC_RELAXED);
    at.error = process.gpu[index].errors;
    at.allocator = process.allocator;
    at.device = index;
    last_error = cudaSuccess;
    int code = call_before(s, c);
    if (code) {
        return code == TENSOR_ERR_CUDA ? raise_cuda(row->name) : raised(code, "%s: out of memory", row->name);
    }

    code = native(at, c);
    bool here = code == TENSOR_ERR_UNSUPPORTED, front = row->id >= NN_OP_NET &&
        row->id <= NN_OP_BIASED_BACKWARD;
    if (key < COUNTED && !(here && front)) {    // a front continues with other rows, which are counted
        __atomic_store_n(&process.name[key], row->name, __ATOMIC_RELAXED);
        __atomic_fetch_add(here ? &process.fallback[key] : &process.native[key], 1, __ATOMIC_RELAXED);
    }

    if (here && !front) { code = fall_back(c, s); }
    call_after(s, c);
    if (here) { return code; }
    if (code == TENSOR_ERR_CUDA) { raise_cuda(row->name); }
    if (code == TENSOR_ERR_INDEX) {
        TENSOR__(fail)(c->thread, code, "%s: an index is out of range, as the dim has size 0", row->name);
    }
    return code;
}

#define TCU_RUN4 backend_run, backend_run, backend_run, backend_run
static const tensor_backend_t backend = {
    TENSOR__API_VERSION, sizeof(tensor_backend_t), "cuda", backend_count, backend_alloc, backend_release,
        backend_copy, backend_use_copy_stream, backend_graph_begin, backend_graph_end, backend_graph_run,
        backend_graph_made, backend_graph_free, backend_site,
    {TCU_RUN4, TCU_RUN4, TCU_RUN4, TCU_RUN4, TCU_RUN4, backend_run, backend_run}, 1, 1, 1, backend_net};
#undef TCU_RUN4

static bool is_set(const char *name) {          // an environment variable, to anything except 0
    const char *text = getenv(name);
    return text && text[0] && strcmp(text, "0") != 0;
}

static int start(tensor__thread_t *th) {
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e || n < 1) {
        cudaGetLastError();
        const char *text = e ? cudaGetErrorString(e) : "there is no device";
        if (e == cudaErrorInsufficientDriver) {
            text = "there is no NVIDIA driver, or it is too old for this CUDA";
        }
        TENSOR__(fail)(th, TENSOR_ERR_CUDA, "cuda_init: %s", text);
        return TENSOR_ERR_CUDA;
    }

    n = n < MAX_DEVICES ? n : (int)MAX_DEVICES;
    [[maybe_unused]] int capability = 0;        // the highest
    for (int k = 0; k < n; k++) {
        int major = 0, minor = 0;
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, k);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, k);
        if (major * 10 + minor < 75) {
            TENSOR__(fail)(th, TENSOR_ERR_UNSUPPORTED,
                           "cuda_init: device %i has compute capability %i.%i, 7.5 is needed", k, major,
                               minor);
            return TENSOR_ERR_UNSUPPORTED;
        }
        capability = most(capability, major * 10 + minor);
    }
    // What only a kernel's loading would show, which makes a context, is left for a device's first use.
#if defined(__CUDA_ARCH_LIST__)
    const int built[] = {__CUDA_ARCH_LIST__};
    if (capability < built[0] / 10) {
        TENSOR__(fail)(th, TENSOR_ERR_UNSUPPORTED,
                       "cuda_init: tensor_cuda.cu was compiled for other devices (nvcc -arch) than are here");
        return TENSOR_ERR_UNSUPPORTED;
    }
#endif
    int driver_version = 0;                     // the latest CUDA that it knows
    if (!cudaDriverGetVersion(&driver_version) && driver_version >= 12010) {
        limits.arguments = MORE_ARGUMENTS;
    }
    options_t options;
    options.no_cache = is_set("TENSOR_CUDA_NO_CACHE");
    options.no_ranges = is_set("TENSOR_CUDA_NO_RANGES");
    if (is_set("TENSOR_CUDA_NO_LIBRARIES")) { __atomic_store_n(&libraries.off, 1, __ATOMIC_RELAXED); }
    const driver_t driver = device_driver();
    driver_t pinned = pinned_driver;
    pinned.device_of = device_of_stream;
    if (!(process.pinned = allocator_new(&pinned, &options)) ||
        !(process.allocator = allocator_new(&driver, &options))) {
        free(process.pinned);
        process.pinned = nullptr;
        TENSOR__(fail)(th, TENSOR_ERR_OUT_OF_MEMORY, "cuda_init: out of memory");
        return TENSOR_ERR_OUT_OF_MEMORY;
    }

    process.devices = visible_devices = n;
    process.generation++;
    return 0;
}

// A statistic of a device, 0 if there is no such device.
static stat_t stat(tensor_device_t device, stat_id id) {
    int index = (int)device - TENSOR_CUDA;
    stat_t none = {0, 0, 0};
    if (!process.allocator || index < 0 || index >= MAX_DEVICES || !process.allocator->device[index]) {
        return none;
    }
    lock_t hold(&process.allocator->device[index]->lock);
    return stats_of(process.allocator, index)->all[id];
}

static allocator_t *allocator_for(tensor_device_t device) {
    int index = (int)device - TENSOR_CUDA;
    return index >= 0 && index < backend_count() ? process.allocator : nullptr;
}

}  // namespace tcu

using namespace tcu;

extern "C" {

int tensor_cuda_init(void) {
    tensor__thread_t *th = TENSOR__(self)();
    {
        tcu::lock_t hold(&tcu::process.lock);
        int code = tcu::process.allocator ? 0 : tcu::start(th);
        if (code) { return code; }
    }
    return TENSOR__(set_backend)(&tcu::backend);
}

int tensor_cuda_device_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n)) {
        cudaGetLastError();
        return 0;
    }
    return n < tcu::MAX_DEVICES ? n : (int)tcu::MAX_DEVICES;
}

int tensor_cuda_is_available(void) { return tensor_cuda_device_count() > 0; }

int tensor_cuda_synchronize(tensor_device_t device) {
    int index = (int)device - TENSOR_CUDA, code = 0;
    if (!gpu_for(device, "cuda_synchronize")) { return TENSOR_ERR_DEVICE; }
    current_t at(index);
    for (int k = 0, n = __atomic_load_n(&process.nstreams, __ATOMIC_ACQUIRE); k < n; k++) {
        if (process.stream[k]->device != index) { continue; }
        int e = settle(process.stream[k], "cuda_synchronize");
        code = code ? code : e;
    }
    return code;
}

int tensor_cuda_shutdown(void) {
    lock_t hold(&process.lock);
    int64_t used = 0;
    if (!process.allocator) { return 0; }
    if (process.capture) { return raised(TENSOR_ERR_OWNER, "cuda_shutdown: a graph is being captured"); }
    if (process.graphs) {
        return raised(TENSOR_ERR_OWNER, "cuda_shutdown: a graph is in use; call tensor_shutdown before");
    }
    for (int k = 0; k < MAX_DEVICES; k++) {
        if (process.allocator->device[k]) {
            used += stats_of(process.allocator, k)->all[ALLOCATED_BYTES].current;
        }
    }

    each_pinned([&](int device) { used += stats_of(process.pinned, device)->all[ALLOCATED_BYTES].current; });
    if (used) {
        TENSOR__(fail)(TENSOR__(self)(), TENSOR_ERR_OWNER,
                       "cuda_shutdown: %d bytes are in use; call tensor_shutdown before", used);
        return TENSOR_ERR_OWNER;
    }

    if (process.wrapped) {
        return raised(TENSOR_ERR_OWNER, "cuda_shutdown: %d tensors over memory of the caller's are in use",
                      (int64_t)process.wrapped);
    }

    for (tensor_cuda_comm_t *c = process.comms; c; c = c->next) { comm_drop(c); }
    drop_handles(&process.comms);
    libraries_close();
    allocator_free(process.allocator);
    allocator_free(process.pinned);
    process.allocator = process.pinned = nullptr;
    drop_handles(&process.streams);
    drop_handles(&process.pools);
    for (tensor_cuda_event_t *e = process.events; e; e = e->next) {
        current_t at(e->device);
        if (!e->dead) { cudaEventDestroy(e->at); }
        free(e->covered);
    }
    drop_handles(&process.events);
    for (int k = 0; k < process.nstreams; k++) {
        on_device_t at(process.stream[k]->device);
        cudaEventDestroy(process.stream[k]->event);
        if (!process.stream[k]->given) { cudaStreamDestroy(process.stream[k]->raw); }
        free(process.stream[k]);
    }

    process.nstreams = 0;
    memset(peers_of, 0, sizeof peers_of);
    for (gpu_t &g : process.gpu) {
        if (g.ready) {                          // the other devices may not exist
            on_device_t at((int)(&g - process.gpu));
            cudaFree(g.errors);
            cudaFreeHost(g.refused);
        }
        memset((void *)&g, 0, sizeof g);
    }

    __atomic_store_n(&contexts, 0u, __ATOMIC_RELAXED);
    process.devices = 0;
    process.generation++;
    return 0;
}

tensor_cuda_stream_t *tensor_cuda_stream_new(tensor_device_t device) {
    if (!gpu_for(device, "cuda_stream_new")) { return nullptr; }
    lock_t hold(&process.lock);
    stream_t *s = new_stream((int)device - TENSOR_CUDA);
    tensor_cuda_stream_t *h = s ? handle(&process.streams) : nullptr;
    if (h) {
        h->of = s;
        return h;
    }

    if (s) { s->idle = 1; }
    if (last_error) {
        raised(TENSOR_ERR_CUDA, "cuda_stream_new: %s", cudaGetErrorString(last_error));
    } else {
        raised(TENSOR_ERR_UNSUPPORTED, "cuda_stream_new: the device has 32 streams already");
    }

    return nullptr;
}

static bool has_handle(const stream_t *s) {
    if (process.gpu[s->device].main.of == s || process.gpu[s->device].side.of == s) { return true; }
    for (const tensor_cuda_stream_t *h = process.streams; h; h = h->next) {
        if (h->of == s && !h->dead) { return true; }
    }
    return false;
}

int tensor_cuda_stream_free(tensor_cuda_stream_t *stream) {
    if (!stream) { return 0; }
    if (!stream_of(stream, "cuda_stream_free")) { return TENSOR_ERR_OWNER; }
    stream_t *s = stream->of;
    if (stream == &process.gpu[s->device].main || stream == current_handle(s->device)) {
        return raised(TENSOR_ERR_OWNER, "cuda_stream_free: it is %s",
                      stream == &process.gpu[s->device].main ? "the device's default stream"
                                                             : "the thread's current stream");
    }

    if (in_capture(s, "cuda_stream_free")) { return TENSOR_ERR_UNSUPPORTED; }
    lock_t hold(&process.lock);
    stream->dead = true;
    s->idle = !has_handle(s);                   // a stream may have been wrapped again, beside its handle
    return 0;
}

tensor_cuda_stream_t *tensor_cuda_default_stream(tensor_device_t device) {
    gpu_t *g = gpu_for(device, "cuda_default_stream");
    return g ? &g->main : nullptr;
}

tensor_cuda_stream_t *tensor_cuda_current_stream(tensor_device_t device) {
    return gpu_for(device, "cuda_current_stream") ? current_handle((int)device - TENSOR_CUDA) : nullptr;
}

tensor_cuda_stream_t *tensor_cuda_set_stream(tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_set_stream"), *before;
    if (!h) { return nullptr; }
    before = current_handle(h->of->device);
    this_thread.on[h->of->device] = h;
    return before;
}

int tensor_cuda_stream_synchronize(tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_stream_synchronize");
    if (!h) { return code_now(); }
    current_t at(h->of->device);
    return settle(h->of, "cuda_stream_synchronize");
}

// 1 = done, 0 = not yet.
static int asked(cudaError_t e, const char *op) {
    forget(e);
    if (!e || e == cudaErrorNotReady) { return !e; }
    tcu::code_of(e);
    tcu::raise_cuda(op);
    return 0;
}

int tensor_cuda_stream_query(tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_stream_query");
    if (!h || in_capture(h->of, "cuda_stream_query")) { return 0; }
    current_t at(h->of->device);
    return asked(cudaStreamQuery(h->of->raw), "cuda_stream_query");
}

static int of_graph(const tensor_cuda_event_t *e, const char *op) {
    return e->graph ? raised(TENSOR_ERR_UNSUPPORTED, "%s: the event was recorded in a capture", op) : 0;
}

// A stream could not join: the capture is lost.
static int joining(const char *op, graph_t *g, int code) {
    return g->failed = code == TENSOR_ERR_CUDA ? raise_cuda(op) : raised(code, "%s: out of memory", op);
}

int tensor_cuda_stream_wait_event(tensor_cuda_stream_t *stream, tensor_cuda_event_t *event) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_stream_wait_event");
    if (!h || event_bad(event, "cuda_stream_wait_event")) { return code_now(); }
    graph_t *g = my_capture();
    bool forks = g && event->graph == g->id && g->device == h->of->device;
    if (!forks && in_capture(h->of, "cuda_stream_wait_event")) { return TENSOR_ERR_UNSUPPORTED; }
    if (!event->recorded) { return 0; }
    if (!forks && of_graph(event, "cuda_stream_wait_event")) { return TENSOR_ERR_UNSUPPORTED; }
    current_t at(h->of->device);
    int code = forks ? graph_join(g, h->of) : 0;
    if (code) { return joining("cuda_stream_wait_event", g, code); }
    if (code_of(cudaStreamWaitEvent(h->of->raw, event->at, 0))) {
        return raise_cuda("cuda_stream_wait_event");
    }
    if (!forks) { has_waited(h->of, event->on, event->covered, event->streams); }
    return 0;
}

int tensor_cuda_stream_wait_stream(tensor_cuda_stream_t *stream, tensor_cuda_stream_t *other) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_stream_wait_stream");
    tensor_cuda_stream_t *o = h ? stream_of(other, "cuda_stream_wait_stream") : nullptr;
    if (!o) { return code_now(); }
    current_t at(h->of->device);
    graph_t *g = my_capture();
    if (g && captured_on(o->of) && g->device == h->of->device) {
        int code = graph_join(g, h->of);
        if (!code && h != o) { code = graph_edge(h->of, o->of); }
        return code ? joining("cuda_stream_wait_stream", g, code) : 0;
    }

    if (in_capture(h->of, "cuda_stream_wait_stream") || in_capture(o->of, "cuda_stream_wait_stream")) {
        return TENSOR_ERR_UNSUPPORTED;
    }
    return order(h->of, next_mark(o->of)) ? raise_cuda("cuda_stream_wait_stream") : 0;
}

int tensor_record_stream(tensor_t *x, tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "record_stream");
    if (!h) { return code_now(); }
    if (!x || x->state != TENSOR__LIVE) {
        return raised(TENSOR_ERR_POISONED, "record_stream: x is not a tensor, or failed earlier");
    }
    if (!x->device) { return raised(TENSOR_ERR_DEVICE, "record_stream: x is on the CPU"); }
    if (x->device != h->of->device + 1) {
        return raised(TENSOR_ERR_DEVICE, "record_stream: x is on CUDA device %i, must be on the stream's, %i",
                      x->device - 1, h->of->device);
    }
    return record_stream(process.allocator, (block_t *)x->storage->user, (void *)h->of->raw)
               ? raised(TENSOR_ERR_OUT_OF_MEMORY, "record_stream: out of memory") : 0;
}

tensor_cuda_event_t *tensor_cuda_event_new(tensor_device_t device, int timing) {
    int index = (int)device - TENSOR_CUDA;
    if (!gpu_for(device, "cuda_event_new")) { return nullptr; }
    on_device_t at(index);
    cudaEvent_t raw = nullptr;
    tensor_cuda_event_t *e = nullptr;
    if (!code_of(cudaEventCreateWithFlags(&raw, timing ? cudaEventDefault : cudaEventDisableTiming))) {
        lock_t hold(&process.lock);
        e = handle(&process.events);
    }

    if (!e) {
        if (raw) { cudaEventDestroy(raw); }
        raise_cuda("cuda_event_new");
        return nullptr;
    }

    e->at = raw;
    e->device = index;
    e->timing = timing != 0;
    return e;
}

int tensor_cuda_event_free(tensor_cuda_event_t *event) {
    if (!event) { return 0; }
    int code = tcu::event_bad(event, "cuda_event_free");
    if (code) { return code; }
    current_t at(event->device);
    event->dead = true;
    free(event->covered);
    event->covered = nullptr;
    return tcu::code_of(cudaEventDestroy(event->at)) ? tcu::raise_cuda("cuda_event_free") : 0;
}

int tensor_cuda_event_record(tensor_cuda_event_t *event, tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_event_record");
    if (!h || event_bad(event, "cuda_event_record")) { return code_now(); }
    graph_t *g = my_capture();
    if (!(g && captured_on(h->of)) && in_capture(h->of, "cuda_event_record")) {
        return TENSOR_ERR_UNSUPPORTED;
    }
    if (event->device != h->of->device) {
        return raised(TENSOR_ERR_DEVICE,
                      "cuda_event_record: the event is of CUDA device %i, must be of the stream's, %i",
                      event->device, h->of->device);
    }
    current_t at(event->device);
    if (!event->covered) { event->covered = (uint64_t *)malloc(sizeof(uint64_t[MAX_STREAMS])); }
    event->streams = event->covered ? covered_by(h->of, event->covered) : 0;
    event->on = h->of;
    event->recorded = true;
    event->graph = g ? g->id : 0;
    return code_of(cudaEventRecord(event->at, h->of->raw)) ? raise_cuda("cuda_event_record") : 0;
}

int tensor_cuda_event_query(tensor_cuda_event_t *event) {
    if (event_bad(event, "cuda_event_query") || in_capture(nullptr, "cuda_event_query") ||
        of_graph(event, "cuda_event_query")) {
        return 0;
    }
    current_t at(event->device);
    return !event->recorded || asked(cudaEventQuery(event->at), "cuda_event_query");
}

int tensor_cuda_event_synchronize(tensor_cuda_event_t *event) {
    int code = event_bad(event, "cuda_event_synchronize");
    if (!code) { code = in_capture(nullptr, "cuda_event_synchronize"); }
    if (!code) { code = of_graph(event, "cuda_event_synchronize"); }
    if (code || !event->recorded) { return code; }
    current_t at(event->device);
    return code_of(cudaEventSynchronize(event->at)) ? raise_cuda("cuda_event_synchronize") : 0;
}

double tensor_cuda_event_elapsed_time(tensor_cuda_event_t *start, tensor_cuda_event_t *end) {
    float ms = 0;
    if (event_bad(start, "cuda_event_elapsed_time") || event_bad(end, "cuda_event_elapsed_time") ||
        in_capture(nullptr, "cuda_event_elapsed_time") || of_graph(start, "cuda_event_elapsed_time") ||
        of_graph(end, "cuda_event_elapsed_time")) {
        return NAN;
    }
    if (!start->timing || !end->timing || !start->recorded || !end->recorded) {
        raised(TENSOR_ERR_UNSUPPORTED, "cuda_event_elapsed_time: both events need .timing, and a record");
        return NAN;
    }

    current_t at(end->device);
    if (code_of(cudaEventSynchronize(end->at)) || code_of(cudaEventElapsedTime(&ms, start->at, end->at))) {
        raise_cuda("cuda_event_elapsed_time");
        return NAN;
    }

    return ms;
}

tensor_cuda_graph_pool_t *tensor_cuda_graph_pool_new(tensor_device_t device) {
    static const char op[] = "cuda_graph_pool_new";
    if (!gpu_for(device, op)) { return nullptr; }
    lock_t hold(&process.lock);
    tensor_cuda_graph_pool_t *pool = handle(&process.pools);
    if (!pool) {
        raised(TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", op);
        return nullptr;
    }
    pool->device = (int)device - TENSOR_CUDA;
    pool->number = new_number(process.allocator);
    return pool;
}

int tensor_cuda_graph_pool_free(tensor_cuda_graph_pool_t *pool) {
    static const char op[] = "cuda_graph_pool_free";
    if (!pool) { return 0; }
    if (pool->dead) { return raised(TENSOR_ERR_OWNER, "%s: the pool was freed", op); }
    (void)current_handle(pool->device);         // of a backend that was started again: none is set
    if (pool == this_thread.pool) {
        return raised(TENSOR_ERR_OWNER, "%s: it is the thread's; cuda_set_graph_pool(NULL) first", op);
    }
    pool->dead = true;
    return 0;
}

int tensor_cuda_set_graph_pool(tensor_cuda_graph_pool_t *pool) {
    static const char op[] = "cuda_set_graph_pool";
    if (pool && pool->dead) { return raised(TENSOR_ERR_OWNER, "%s: the pool was freed", op); }
    if (pool) { (void)current_handle(pool->device); }
    this_thread.pool = pool;
    return 0;
}

int tensor_cuda_comm_id(void *id) {
    char text[256];
    if (!id) { return raised(TENSOR_ERR_POISONED, "cuda_comm_id: id is NULL"); }
    if (open_library(LIBRARY_NCCL, text, sizeof text)) {
        return raised(TENSOR_ERR_CUDA, "cuda_comm_id: %s", text);
    }
#ifdef TCU_HAVE_NCCL
    return nccl_code("cuda_comm_id", lib.ncclGetUniqueId_((ncclUniqueId *)id));
#else
    return TENSOR_ERR_INTERNAL;
#endif
}

tensor_cuda_comm_t *tensor_cuda_comm_new(int rank, int ranks, const void *id, tensor_device_t device,
                                         double timeout) {
    static const char op[] = "cuda_comm_new";
    char text[256];
    tensor_cuda_comm_t *c = nullptr;
    if (!gpu_for(device, op)) { return nullptr; }
    if (!id || rank < 0 || rank >= ranks) {
        if (id) {
            raised(TENSOR_ERR_INDEX, "%s: rank %i must be in 0..%i", op, rank, ranks - 1);
        } else {
            raised(TENSOR_ERR_POISONED, "%s: id is NULL", op);
        }
    } else if (open_library(LIBRARY_NCCL, text, sizeof text) ||
               (timeout > 0 && open_library(LIBRARY_NCCL_TIMED, text, sizeof text))) {
        raised(TENSOR_ERR_CUDA, "%s: %s", op, text);
    } else if (!in_capture(nullptr, op)) {
#ifdef TCU_HAVE_NCCL
        on_device_t at((int)device - TENSOR_CUDA);
        const ncclComm_t comm = comm_start(rank, ranks, id, timeout, op);
        if (!comm) { return nullptr; }
        {
            lock_t hold(&process.lock);
            c = handle(&process.comms);
        }

        if (!c) {
            lib.ncclCommAbort_(comm);
            raised(TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", op);
            return nullptr;
        }
        c->at = comm;
        c->device = (int)device - TENSOR_CUDA;
        c->ranks = ranks;
        c->timeout = timeout > 0 ? timeout : 0;
#endif
    }

    return c;
}

int tensor_cuda_comm_free(tensor_cuda_comm_t *c) {
    if (!c) { return 0; }
    if (c->dead) { return raised(TENSOR_ERR_OWNER, "cuda_comm_free: the communicator was freed"); }
    if (in_capture(nullptr, "cuda_comm_free")) { return TENSOR_ERR_UNSUPPORTED; }
    bool used = false;
    each_user(c, [&](graph_t *) { used = true; });
    if (used) {
        return raised(TENSOR_ERR_OWNER,
                      "cuda_comm_free: a graph uses the communicator; tensor_graph_free first");
    }
    int code = 0, ended = 0;
    if (comm_failed(c)) { ended = comm_drop(c); }       // else the wait for its work would not end
    code = tensor_cuda_synchronize((tensor_device_t)(TENSOR_CUDA + c->device));
    if (!c->dead) { ended = comm_drop(c); }
    return code ? code : ended;
}

int tensor_cuda_comm_abort_n(tensor_cuda_comm_t *const *c, int n) {
    static const char op[] = "cuda_comm_abort";
    if (!c && n > 0) { return raised(TENSOR_ERR_POISONED, "%s: the list is NULL", op); }
    bool any = false;                   // else NCCL may not be open
    for (int k = 0; k < n; k++) {
        if (c[k] && c[k]->dead) { return raised(TENSOR_ERR_OWNER, "%s: the communicator was freed", op); }
        any = any || c[k];
    }
    if (!any) { return TENSOR_OK; }
    if (in_capture(nullptr, op)) { return TENSOR_ERR_UNSUPPORTED; }
#ifdef TCU_HAVE_NCCL
    // As a group: all of them stop before NCCL gives the memory of one back, which waits for the device.
    ncclResult_t e = lib.ncclGroupStart_();
    for (int k = 0; k < n; k++) {
        if (!c[k] || c[k]->dead) { continue; }
        on_device_t at(c[k]->device);
        c[k]->dead = true;
        each_user(c[k], [](graph_t *g) {        // a run that is under way still ends
            if (g->exec) { cudaGraphExecDestroy(g->exec); }
            g->exec = nullptr;
        });
        const ncclResult_t own = lib.ncclCommAbort_((ncclComm_t)c[k]->at);
        if (!e) { e = own; }
    }
    const ncclResult_t end = lib.ncclGroupEnd_();
    if (!e) { e = end; }
    return e == ncclInProgress ? 0 : nccl_code(op, e);
#else
    return 0;
#endif
}

int tensor_cuda_comm_abort(tensor_cuda_comm_t *c) { return tensor_cuda_comm_abort_n(&c, 1); }

int tensor_cuda_all_reduce_n(tensor_cuda_comm_t *c, tensor_t *const *x, int n, int mean) {
    return collective(c, "cuda_all_reduce", mean ? RANKS_MEAN : RANKS_SUM, x, n, nullptr, 0);
}

int tensor_cuda_all_reduce(tensor_cuda_comm_t *c, tensor_t *x, int mean) {
    return tensor_cuda_all_reduce_n(c, &x, 1, mean);
}

int tensor_cuda_broadcast(tensor_cuda_comm_t *c, tensor_t *x, int root) {
    return collective(c, "cuda_broadcast", RANKS_BROADCAST, &x, 1, nullptr, root);
}

int tensor_cuda_all_gather(tensor_cuda_comm_t *c, tensor_t *y, tensor_t *x) {
    return collective(c, "cuda_all_gather", RANKS_GATHER, &x, 1, y, 0);
}

int64_t tensor_cuda_memory_allocated(tensor_device_t device) {
    return tcu::stat(device, tcu::ALLOCATED_BYTES).current;
}

int64_t tensor_cuda_max_memory_allocated(tensor_device_t device) {
    return tcu::stat(device, tcu::ALLOCATED_BYTES).peak;
}

int64_t tensor_cuda_memory_reserved(tensor_device_t device) {
    return tcu::stat(device, tcu::RESERVED_BYTES).current;
}

int64_t tensor_cuda_max_memory_reserved(tensor_device_t device) {
    return tcu::stat(device, tcu::RESERVED_BYTES).peak;
}

void tensor_cuda_reset_peak_memory_stats(tensor_device_t device) {
    tcu::allocator_t *a = tcu::allocator_for(device);
    if (a) { tcu::reset_peaks(a, (int)device - TENSOR_CUDA); }
}

void tensor_cuda_empty_cache(tensor_device_t device) {
    if (device == TENSOR_CPU) {
        if (process.pinned) { each_pinned([](int at) { tcu::empty_cache(process.pinned, at); }); }
        return;
    }
    tcu::allocator_t *a = tcu::allocator_for(device);
    if (a) { tcu::empty_cache(a, (int)device - TENSOR_CUDA); }
}

int tensor_cuda_set_per_process_memory_fraction(double fraction, tensor_device_t device) {
    tcu::allocator_t *a = tcu::allocator_for(device);
    int code = a ? tcu::set_fraction(a, (int)device - TENSOR_CUDA, fraction) : (int)TENSOR_ERR_DEVICE;
    if (code) {
        TENSOR__(fail)(TENSOR__(self)(), code, "cuda_set_per_process_memory_fraction: %s",
                       code == TENSOR_ERR_DEVICE ? "no such CUDA device is started" :
                           "the fraction must be in (0, 1]");
    }
    return code;
}

void tensor_cuda_memory_stats(tensor_device_t device, void (*line)(void *user, const char *text),
                              void *user) {
    tcu::allocator_t *a = tcu::allocator_for(device);
    if (a) { tcu::memory_stats(a, (int)device - TENSOR_CUDA, line, user); }
}

void tensor_cuda_memory_snapshot(tensor_device_t device, void (*line)(void *user, const char *text),
                                 void *user) {
    tcu::allocator_t *a = tcu::allocator_for(device);
    if (a) { tcu::snapshot(a, (int)device - TENSOR_CUDA, line, user); }
}

const char *tensor_cuda_memory_report(void) { return tcu::report_text; }

void *tensor_cuda_data(tensor_t *x) {
    static const char op[] = "cuda_data";
    if (!x || x->state != TENSOR__LIVE) {
        raised(TENSOR_ERR_POISONED, "%s: x is not a tensor, or failed earlier", op);
        return nullptr;
    }
    if (!x->device || !process.allocator) {
        raised(TENSOR_ERR_DEVICE, "%s: x is not on a CUDA device", op);
        return nullptr;
    }
    stream_t *s = current(x->device - 1, op);
    if (!s || !x->numel) { return nullptr; }
    current_t at(s->device);
    block_t *b = (block_t *)x->storage->user;
    graph_t *g = captured_on(s);
    int code = g ? list_block(g, s, b, x->storage, true) : use_before(s, b, true);
    if (code) {
        if (code == TENSOR_ERR_CUDA) { raise_cuda(op); } else { raised(code, "%s: out of memory", op); }
        return nullptr;
    }
    // Later calls on other streams record their event when they wait, so that it covers the caller's work.
    if (!g) { use_after(s, b, true, coming_mark(s)); }
    // What the caller does with the address is not recorded; a capture notes the block alone.
    return (char *)x->storage->data + x->offset * size_of(x->dtype);
}

// Whether memory can be wrapped as such a tensor; raises if not. tensor_wrap_n has the same conditions, but
// its errors begin with its own name.
static bool wrappable(const char *op, const void *data, int dtype, const int64_t *dims, int ndim) {
    const uint64_t limit = (uint64_t)1 << 59;
    uint64_t nonzero = 1;                       // the product of sizes that are not 0
    bool some = true, fits = ndim >= 0 && ndim <= TENSOR_MAX_DIMS;
    if (!dims && ndim > 0) {
        raised(TENSOR_ERR_SHAPE, "%s: dims is NULL, must have %i numbers", op, ndim);
        return false;
    }
    for (int d = 0; d < ndim && fits; d++) {
        const uint64_t size = (uint64_t)dims[d], by = size ? size : 1;
        fits = dims[d] >= 0 && nonzero <= limit / by;
        nonzero *= by;
        some = some && size;
    }

    if (!fits) {
        raised(TENSOR_ERR_SHAPE,
               "%s: shape of %i dims must have 0 to 8 dims, sizes >= 0, < 2^59 elements", op, ndim);
    } else if ((unsigned)dtype >= TENSOR_DTYPE_COUNT) {
        raised(TENSOR_ERR_DTYPE, "%s: dtype %i must be one of tensor_dtype_t", op, dtype);
    } else if (!data && some) {
        raised(TENSOR_ERR_SHAPE, "%s: data is NULL for %d elements", op, (int64_t)nonzero);
    } else if ((uintptr_t)data % size_of(dtype)) {
        raised(TENSOR_ERR_SHAPE, "%s: data is misaligned for its dtype", op);
    } else {
        return true;
    }
    return false;
}

tensor_t *tensor_cuda_wrap(void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim,
                           tensor_device_t device, void (*deleter)(void *data, void *user), void *user) {
    static const char op[] = "cuda_wrap";
    const int index = (int)device - TENSOR_CUDA;
    stream_t *s = gpu_for(device, op) ? current(index, op) : nullptr;
    if (!s) { return TENSOR__(poison); }
    current_t at(index);
    const int lies_on = device_of_memory(data, index);
    if (lies_on != index) {
        raised(TENSOR_ERR_DEVICE, "%s: the memory is on CUDA device %i, must be on the one that is named, %i",
               op, lies_on, index);
        return TENSOR__(poison);
    }
    if (!wrappable(op, data, (int)dtype, dims, ndim)) { return TENSOR__(poison); }
    // The header is made as for memory of the host; the data is not read.
    tensor_t *x = (tensor_wrap_n)(data, dtype, dims, ndim, nullptr, nullptr);
    if (x->state != TENSOR__LIVE) { return x; }
    wrapped_t *w = device_of(process.allocator, index) ? (wrapped_t *)calloc(1, sizeof *w) : nullptr;
    if (!w) {
        (tensor_free)(x);
        raised(TENSOR_ERR_OUT_OF_MEMORY, "%s: out of memory", op);
        return TENSOR__(poison);
    }

    __atomic_add_fetch(&process.wrapped, 1, __ATOMIC_RELAXED);
    w->lane.stream = (void *)s->raw;
    w->lane.device = index;
    w->lane.outside = true;
    w->arena.lane = &w->lane;
    w->block.home = &w->arena;
    w->block.state = USED;
    w->block.address = (uint64_t)(uintptr_t)data;
    w->block.bytes = x->storage->bytes;
    w->block.wrote = next_mark(s);              // what the caller queued before
    w->deleter = deleter;
    w->data = data;
    w->user = user;
    x->storage->user = &w->block;
    x->storage->deleter = backend_release;
    x->storage->device = x->device = (uint8_t)(index + 1);
    return x;
}

void *tensor_cuda_stream_raw(tensor_cuda_stream_t *stream) {
    tensor_cuda_stream_t *h = stream_of(stream, "cuda_stream_raw");
    return h ? (void *)h->of->raw : nullptr;
}

tensor_cuda_stream_t *tensor_cuda_stream_wrap(void *cuda_stream, tensor_device_t device) {
    static const char op[] = "cuda_stream_wrap";
    if (!gpu_for(device, op)) { return nullptr; }
    if (!cuda_stream || cuda_stream == (void *)cudaStreamLegacy) {
        raised(TENSOR_ERR_POISONED, "%s: the stream is %s, the default stream, which orders all others", op,
               cuda_stream ? "cudaStreamLegacy" : "NULL");
        return nullptr;
    }
    if (cuda_stream == (void *)cudaStreamPerThread) {       // marks and memory are of one queue each
        raised(TENSOR_ERR_POISONED, "%s: the stream is cudaStreamPerThread, another one in each thread", op);
        return nullptr;
    }
    lock_t hold(&process.lock);
    stream_t *s = new_stream((int)device - TENSOR_CUDA, (cudaStream_t)cuda_stream);
    tensor_cuda_stream_t *h = s ? handle(&process.streams) : nullptr;
    if (h) {
        h->of = s;
        return h;
    }
    if (last_error) {
        raised(TENSOR_ERR_CUDA, "%s: %s", op, cudaGetErrorString(last_error));
    } else {
        raised(TENSOR_ERR_UNSUPPORTED, "%s: the device has 32 streams already", op);
    }
    return nullptr;
}

int tensor_cuda_set_allocator(const tensor_cuda_allocator_t *allocator) {
    static const char op[] = "cuda_set_allocator";
    const tensor_cuda_allocator_t none = {nullptr, nullptr, nullptr};
    lock_t hold(&process.lock);
    if (process.allocator) { return raised(TENSOR_ERR_OWNER, "%s: call it before cuda_init", op); }
    if (allocator && (!allocator->alloc || !allocator->free)) {
        return raised(TENSOR_ERR_POISONED, "%s: alloc and free must both be there", op);
    }
    own_allocator = allocator ? *allocator : none;
    return 0;
}

int tensor_cuda_set_ranges(int on) { return __atomic_exchange_n(&ranges, on != 0, __ATOMIC_RELAXED); }

// A range that was opened is closed, whether or not ranges are on by then.
static thread_local int open_ranges;
void tensor_cuda_range_push(const char *name) {
    if (!__atomic_load_n(&ranges, __ATOMIC_RELAXED)) { return; }
    TCU_RANGE_PUSH(name ? name : "");
    open_ranges++;
}

void tensor_cuda_range_pop(void) {
    if (!open_ranges) { return; }
    open_ranges--;
    TCU_RANGE_POP();
}

static void tell_range(void *, const char *name) {
    if (name) { tensor_cuda_range_push(name); } else { tensor_cuda_range_pop(); }
}

// The range of a gradient ends where the next one begins, or the pass ends. Passes nest: a bit for each that
// a word has room for, 1 = a gradient of it is open.
static thread_local uint64_t in_gradient;
static void end_gradient() {
    if (in_gradient & 1) { tensor_cuda_range_pop(); }
    in_gradient &= ~(uint64_t)1;
}
static void tell_backward(void *, uint64_t, const char *op, const char *) {
    char text[96];
    end_gradient();
    in_gradient |= 1;
    snprintf(text, sizeof text, "%s backward", op);
    tensor_cuda_range_push(text);
}
static void tell_pass(void *, int begins) {
    if (begins) {
        in_gradient <<= 1;
        return;
    }
    end_gradient();
    in_gradient >>= 1;
}

const tensor_profiler_t *tensor_cuda_profiler(void) {
    static const tensor_profiler_t told = {nullptr, nullptr, nullptr, nullptr,
                                           tell_range, tell_backward, nullptr, tell_pass};
    return &told;
}

int64_t tensor_cuda_fallbacks(void) {
    int64_t n = 0;
    for (int64_t &k : tcu::process.fallback) { n += __atomic_load_n(&k, __ATOMIC_RELAXED); }
    return n;
}

int tensor_cuda_set_fallback(int on) {
    return !__atomic_exchange_n(&tcu::process.forbidden, !on, __ATOMIC_RELAXED);
}

int tensor_cuda_set_libraries(int on) {
    return !__atomic_exchange_n(&tcu::libraries.off, !on, __ATOMIC_RELAXED);
}

int tensor_cuda_set_matmul_tf32(int on) {
    return __atomic_exchange_n(&tcu::libraries.matmul_tf32, on != 0, __ATOMIC_RELAXED);
}

int tensor_cuda_set_conv_tf32(int on) {
    return !__atomic_exchange_n(&tcu::libraries.no_conv_tf32, !on, __ATOMIC_RELAXED);
}

int tensor_cuda_set_benchmark(int on) {
    return __atomic_exchange_n(&tcu::libraries.benchmark, on != 0, __ATOMIC_RELAXED);
}

int64_t tensor_cuda_library_calls(void) { return __atomic_load_n(&tcu::libraries.calls, __ATOMIC_RELAXED); }

const char *tensor_cuda_library_error(void) {
    static thread_local char text[sizeof tcu::libraries.error];
    std::lock_guard<std::mutex> hold(tcu::libraries.lock);
    memcpy(text, tcu::libraries.error, sizeof text);
    return text;
}

void tensor_cuda_op_counts(void (*line)(void *user, const char *op, int64_t native, int64_t fallback),
                           void *user) {
    char text[64];
    for (int k = 0; k < COUNTED; k++) {
        if (!process.name[k]) { continue; }
        snprintf(text, sizeof text, "%s%s", process.name[k], k >= BACKWARD_FROM ? " backward" : "");
        line(user, text, __atomic_load_n(&process.native[k], __ATOMIC_RELAXED),
             __atomic_load_n(&process.fallback[k], __ATOMIC_RELAXED));
    }
}

#define TCU_AT(kind, type)                                                                                   \
    type *tensor__at_##kind(const char *site, type *p) {                                                     \
        (void)tensor__at_int(site, 0);                                                                       \
        return p;                                                                                            \
    }
TCU_AT(cuda_stream, tensor_cuda_stream_t)
TCU_AT(cuda_event, tensor_cuda_event_t)
TCU_AT(cuda_pool, tensor_cuda_graph_pool_t)
TCU_AT(cuda_comm, tensor_cuda_comm_t)
TCU_AT(cuda_raw, void)
#undef TCU_AT

// Where all went well, the thread gets no state again, which tensor_shutdown has freed.
int tensor__at_cuda_end(const char *site, int code) { return code ? tensor__at_int(site, code) : code; }

}  // extern "C"
#endif

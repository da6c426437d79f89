// tensor_cuda.cu - v0.1.0 - the CUDA backend of tensor.h
// Licence: MIT-0 or public domain, at your choice; full text at the end of tensor.h.
//
//   nvcc -std=c++17 -O3 -fmad=false -arch=sm_90 -c tensor_cuda.cu       // for a GPU
//   g++ -std=c++17 -x c++ -DTENSOR_CUDA_SIM -Itests/cuda -c ...         // for the CPU, in tests: tests/cuda/cusim.h
//
// CONTENTS (search for the tag)
//   >>platform  >>allocator  >>driver
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

// ------------------------------------------------------------------------------
// >>platform                                       MARK: launches, shared memory, libraries
//
// Everything that differs between nvcc and the CPU emulator stands here: one launch wrapper (a failed launch is an
// error code at the call), two macros for shared memory, and one struct of library functions, opened by versioned
// name when first needed. Rejected: linking them (cuBLASLt alone costs 67 ms of every process start, and a
// program without the library could not start); <<<>>> at each call (the emulator cannot parse it, and the error
// would be forgotten somewhere).
// ------------------------------------------------------------------------------

#if defined(TENSOR_CUDA_SIM)
#include "cusim.h"
#define TCU_OPEN(name) cusim::library_open(name)
#define TCU_SYMBOL(library, name) cusim::library_symbol(library, name)
#else
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#define TCU_OPEN(name) dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define TCU_SYMBOL(library, name) dlsym(library, name)
#define TCU_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define TCU_DYNAMIC_SHARED(T, name)                                                                          \
    extern __shared__ __align__(16) unsigned char tcu_dynamic[];                                             \
    T *name = (T *)tcu_dynamic
template <class... P, class... A>
static inline cudaError_t tcu_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                                     A... a) {
    kernel<<<grid, block, shared, s>>>(P(a)...);
    return cudaGetLastError();
}
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
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#define TCU_HAVE_NVRTC 1
#endif

// clang-format off
// Functions of each library. Their names may be macros that add a version (cuMemGetAddressRange_v2).
#define TCU_CUDA_FUNCTIONS(X)                                                                                \
    X(cuGetErrorString) X(cuMemAddressFree) X(cuMemAddressReserve) X(cuMemCreate)                            \
    X(cuMemGetAllocationGranularity) X(cuMemMap) X(cuMemRelease) X(cuMemSetAccess) X(cuMemUnmap)
#ifdef TCU_HAVE_CUBLASLT
#define TCU_CUBLASLT_FUNCTIONS(X)                                                                            \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic)                 \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)               \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                                     \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate)                                    \
    X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtGetStatusString)
#else
#define TCU_CUBLASLT_FUNCTIONS(X)
#endif
#ifdef TCU_HAVE_CUDNN
#define TCU_CUDNN_FUNCTIONS(X)                                                                               \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetErrorString) X(cudnnGetLastErrorString)       \
    X(cudnnGetVersion) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor)                      \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)   \
    X(cudnnCreateRNNDescriptor) X(cudnnDestroyRNNDescriptor) X(cudnnSetRNNDescriptor_v8)                     \
    X(cudnnCreateRNNDataDescriptor) X(cudnnDestroyRNNDataDescriptor) X(cudnnSetRNNDataDescriptor)            \
    X(cudnnGetRNNTempSpaceSizes) X(cudnnGetRNNWeightSpaceSize) X(cudnnGetRNNWeightParams)                    \
    X(cudnnRNNForward) X(cudnnRNNBackwardData_v8) X(cudnnRNNBackwardWeights_v8)                              \
    X(cudnnCreateDropoutDescriptor) X(cudnnDestroyDropoutDescriptor) X(cudnnSetDropoutDescriptor)            \
    X(cudnnDropoutGetStatesSize) X(cudnnCreateTensorDescriptor) X(cudnnDestroyTensorDescriptor)              \
    X(cudnnSetTensorNdDescriptor)
#else
#define TCU_CUDNN_FUNCTIONS(X)
#endif
#ifdef TCU_HAVE_NCCL
#define TCU_NCCL_FUNCTIONS(X)                                                                                \
    X(ncclAllGather) X(ncclAllReduce) X(ncclBroadcast) X(ncclCommAbort) X(ncclCommDestroy)                   \
    X(ncclCommGetAsyncError) X(ncclCommInitRank) X(ncclGetErrorString) X(ncclGetUniqueId) X(ncclGroupEnd)    \
    X(ncclGroupStart) X(ncclReduceScatter)
#else
#define TCU_NCCL_FUNCTIONS(X)
#endif
#ifdef TCU_HAVE_NVRTC
#define TCU_NVRTC_FUNCTIONS(X)                                                                               \
    X(nvrtcCompileProgram) X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcGetCUBIN)                     \
    X(nvrtcGetCUBINSize) X(nvrtcGetErrorString) X(nvrtcGetProgramLog) X(nvrtcGetProgramLogSize)
#else
#define TCU_NVRTC_FUNCTIONS(X)
#endif
#define TCU_LIBRARIES(X)                                                                                     \
    X(CUDA, "libcuda.so.1", "the NVIDIA driver", TCU_CUDA_FUNCTIONS)                                         \
    X(CUBLASLT, "libcublasLt.so.13", "cuBLASLt 13", TCU_CUBLASLT_FUNCTIONS)                                  \
    X(CUDNN, "libcudnn.so.9", "cuDNN 9", TCU_CUDNN_FUNCTIONS)                                                \
    X(NCCL, "libnccl.so.2", "NCCL 2", TCU_NCCL_FUNCTIONS)                                                    \
    X(NVRTC, "libnvrtc.so.13", "NVRTC 13", TCU_NVRTC_FUNCTIONS)
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
    TCU_NVRTC_FUNCTIONS(TCU_X)
    bool open[LIBRARY_COUNT];
};
#undef TCU_X
static libraries_t lib;
static int open_lock;

struct lock_t {                                 // held for tens of nanoseconds, nearly always free
    int *at;
    explicit lock_t(int *p) : at(p) {
        for (int spins = 0; __atomic_exchange_n(at, 1, __ATOMIC_ACQUIRE); spins++) {
            if (spins > 64) { std::this_thread::yield(); }
        }
    }
    ~lock_t() { __atomic_store_n(at, 0, __ATOMIC_RELEASE); }
    lock_t(const lock_t &) = delete;
};

// Fills a library's part of lib -> 0, or TENSOR_ERR_CUDA and a text that names what is missing. A later call tries
// again.
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
#define TCU_TEXT(f) TCU_TEXT_(f)
#define TCU_TEXT_(f) #f
#define TCU_X(id, file, name, functions)                                                                     \
    case LIBRARY_##id: {                                                                                     \
        bool empty = true;                                                                                   \
        if (!(at = TCU_OPEN(file))) {                                                                        \
            snprintf(text, room, "%s is needed, but %s cannot be opened", name, file);                       \
            return TENSOR_ERR_CUDA;                                                                          \
        }                                                                                                    \
        functions(TCU_F)                                                                                     \
        if (missing || empty) {                                                                              \
            snprintf(text, room, "%s: %s has no %s", name, file, missing ? missing : "header at build time"); \
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
// Two-level segregated fit (free blocks in bins by size, two bitmaps find the next one that is not empty) over
// an arena per device, stream and size class (up to 1 MiB, above): a search costs the same however many blocks are
// alive. An arena is one reserved range of addresses that grows chunk by chunk at its lowest hole, so that
// neighbours merge for ever and shapes that vary leave no slivers; where the driver cannot do that, cudaMalloc
// segments sized as PyTorch's. Freed memory serves its own stream at once. Rejected: best fit in ordered sets
// over segments (30-94 % waste on varying shapes, three times the time); one range for all streams (reuse would need
// events); a lock per arena (peaks of sums over arenas would be guesses; a call holds the device's lock for tens of
// nanoseconds). Headers live on the host. The allocator knows CUDA by the driver table alone; tests bring their own.
// ------------------------------------------------------------------------------

constexpr uint64_t GRANULE = 512, SMALL = 1 << 20, MOST = uint64_t(1) << 50;
enum { MAX_DEVICES = 16, ROWS = 40, BINS = 32, HASH = 64, SCAN = 8 };

// What the allocator needs of CUDA. Each returns 0 or an error; nothing here is called while a stream of the device
// is being captured, but segment_alloc, reserve and map.
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
};

struct options_t {
    uint64_t small_chunk = 2 << 20, large_chunk = 32 << 20;     // multiples of the driver's granularity
    uint64_t reserve = 0;       // addresses per arena; 0 = 9/8 of the device
    bool no_cache = false;      // every block a segment of its own, freed at once: for memory checkers
    bool debug = false;         // freed memory is filled with 0xFF
    int trace = 0;              // entries of the trace ring
    void (*on_oom)(void *user, int device, uint64_t bytes) = nullptr;    // may free; then one more try
    void *user = nullptr;
};

// PyTorch's names. Each: now, highest, all that came.
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
struct use_t {                  // a stream other than its own that uses a block; after the free, an event to wait for
    use_t *next;
    block_t *of;
    void *stream, *event;
};
struct block_t {
    uint64_t address, bytes, requested;
    block_t *prev, *next;                   // neighbours by address, within a range or segment
    block_t *free_prev, *free_next;         // in a bin, or in the list of holes (by address)
    block_t *chain;                         // of a range's or segment's first block: the next such
    arena_t *home;
    use_t *uses;
    const char *tag;
    int waits;                              // events that a pending block waits for
    state_t state;
    bool ranged;                            // of a reserved range
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
// The two arenas of a stream, or of a stream in a graph (graph != 0: private to it).
struct lane_t {
    lane_t *next;                           // in its hash bucket
    void *stream;
    int device, graph;
    bool dead;                              // its graph is gone: memory goes back when the last block does
    int64_t live;                           // blocks used or pending
    arena_t arena[2];                       // large, small
};
struct queue_t {                            // events of one foreign stream, in its order: only the head need be asked
    queue_t *next;
    void *stream;
    use_t *head, **tail;
};
struct capture_t { capture_t *next; void *stream; int graph; };
enum action_t : uint8_t { TRACE_ALLOC, TRACE_FREE, TRACE_PEND, TRACE_RECLAIM, TRACE_MAP, TRACE_UNMAP, TRACE_OOM,
    TRACE_RECORD };
struct trace_t { uint64_t address, bytes, serial; void *stream; const char *tag; action_t action; int step; };
struct slab_t { slab_t *next; };
struct device_t {
    int lock, index;
    uint64_t total, limit;                  // limit: bytes that may be reserved, 0 = all
    lane_t *last, *hash[HASH];
    queue_t *queues;
    int64_t npending;
    block_t *parked;                        // freed with foreign uses during a capture (by chain)
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
    char report[2048];                      // what the last failed alloc has to say
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
inline void trace(allocator_t *A, action_t action, uint64_t address, uint64_t bytes, void *stream, const char *tag) {
    if (!A->ring) { return; }
    uint64_t n = __atomic_fetch_add(&A->ntraced, 1, __ATOMIC_RELAXED);
    A->ring[n % (uint64_t)A->options.trace] = {address, bytes, n, stream, tag, action, A->step};
}

// Headers come in slabs and are kept until the end.
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
inline block_t *new_block(device_t *d, arena_t *a, uint64_t address, uint64_t bytes, state_t state, bool ranged) {
    block_t *b = from_slab(d, &d->spare_blocks, &block_t::next);
    if (!b) { return nullptr; }
    *b = block_t{address, bytes, 0, nullptr, nullptr, nullptr, nullptr, nullptr, a, nullptr, nullptr, 0, state, ranged};
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
// The best of the first few: of the size's own bin, or of the next one that is not empty, where all fit.
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
inline void absorb_next(device_t *d, block_t *b) {          // b keeps its header, so a chain's first block stays
    block_t *n = b->next;
    b->bytes += n->bytes;
    b->next = n->next;
    if (n->next) { n->next->prev = b; }
    drop_block(d, n);
}
// A block in no list becomes free memory, joined with its neighbours.
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

// A graph's memory stays until the graph goes, whatever the option says.
inline bool uncached(const allocator_t *A, const arena_t *a) { return A->options.no_cache && !a->lane->graph; }
inline bool within_limit(const device_t *d, uint64_t bytes) {
    return !d->limit || (uint64_t)d->stats.all[RESERVED_BYTES].current + bytes <= d->limit;
}
inline void count_raw(allocator_t *A, device_t *d, arena_t *a, uint64_t address, uint64_t bytes, int64_t pieces) {
    count(d, a, SEGMENT, pieces);
    count(d, a, RESERVED_BYTES, pieces > 0 ? (int64_t)bytes : -(int64_t)bytes);
    if (pieces > 0) {
        d->stats.num_device_alloc += pieces;
    } else {
        d->stats.num_device_free -= pieces;
    }
    trace(A, pieces > 0 ? TRACE_MAP : TRACE_UNMAP, address, bytes, a->lane->stream, nullptr);
}
// Memory for all of [address, +bytes), or for none of it.
inline int map_chunks(allocator_t *A, device_t *d, arena_t *a, uint64_t address, uint64_t bytes) {
    uint64_t first = (address - a->base) / a->chunk, n = bytes / a->chunk, i;
    if (first + n > a->nhandles) {
        uint64_t room = first + n + (first + n) / 2;
        uint64_t *h = (uint64_t *)realloc(a->handles, room * sizeof *h);
        if (!h) { return 1; }
        a->handles = h;
        a->nhandles = room;
    }
    for (i = 0; i < n; i++) {
        if (A->driver.map(A->driver.user, d->index, address + i * a->chunk, a->chunk, &a->handles[first + i])) { break; }
    }
    if (i == n) {
        count_raw(A, d, a, address, bytes, (int64_t)n);
        return 0;
    }
    while (i-- > 0) { A->driver.unmap(A->driver.user, d->index, address + i * a->chunk, a->chunk, a->handles[first + i]); }
    return 1;
}
inline bool reserve_range(allocator_t *A, device_t *d, arena_t *a) {
    uint64_t want = A->options.reserve ? A->options.reserve : d->total + d->total / 8;
    if (a->bytes || a->no_range || !A->driver.reserve) { return a->bytes != 0; }
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
inline void drop_hole(block_t *h) {                         // its memory has gone to a neighbour, or it has none left
    arena_t *a = h->home;
    if (h->free_next) { h->free_next->free_prev = h->free_prev; }
    *(h->free_prev ? &h->free_prev->free_next : &a->holes) = h->free_next;
}
// A free block of at least `bytes`, in no bin, with new memory at the lowest hole that is large enough together
// with its free neighbours. NULL: no memory, no addresses.
inline block_t *grow_range(allocator_t *A, device_t *d, arena_t *a, uint64_t bytes) {
    for (block_t *h = a->holes; h; h = h->free_next) {
        block_t *low = h->prev && h->prev->state == FREE ? h->prev : nullptr;
        block_t *high = h->next && h->next->state == FREE ? h->next : nullptr;
        uint64_t have = low ? low->bytes : 0;
        if (have >= bytes) {                                // the short scan of its bin had missed it
            take_from_bin(d, low);
            return low;
        }
        uint64_t need = round_up(bytes - have, a->chunk);
        if (need > h->bytes) {
            if (!high || have + h->bytes + high->bytes < bytes) { continue; }
            need = h->bytes;
        }
        block_t *fresh = need < h->bytes ? new_block(d, a, 0, 0, HOLE, true) : nullptr;     // the rest of the hole
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
        h->state = USED;                                    // memory now, in no list
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
    uint64_t size = uncached(A, a) ? bytes : a->small ? 2 << 20
                  : bytes < 10 << 20 ? 20 << 20 : round_up(bytes, 2 << 20);
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
    if (!uncached(A, a) && reserve_range(A, d, a)) { return grow_range(A, d, a, bytes); }
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

inline int new_event(allocator_t *A, device_t *d, void **event) {
    if (d->nevents) {
        *event = d->events[--d->nevents];
        return 0;
    }
    return A->driver.event_new(A->driver.user, d->index, event);
}
inline void keep_event(allocator_t *A, device_t *d, void *event) {
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

// No stream uses the block any more.
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
// An event at the end of each foreign stream; where there is none to be had, the host waits instead.
inline void pend(allocator_t *A, device_t *d, block_t *b) {
    for (use_t *u = b->uses, *next; u; u = next) {
        next = u->next;
        u->next = nullptr;
        u->of = b;
        queue_t *q = d->queues;
        while (q && q->stream != u->stream) { q = q->next; }
        if (!q && (q = (queue_t *)malloc(sizeof *q))) {
            *q = queue_t{d->queues, u->stream, nullptr, nullptr};
            q->tail = &q->head;
            d->queues = q;
        }
        if (!q || new_event(A, d, &u->event)) {
            A->driver.stream_sync(A->driver.user, d->index, u->stream);
        } else if (A->driver.event_record(A->driver.user, d->index, u->event, u->stream)) {
            keep_event(A, d, u->event);
            A->driver.stream_sync(A->driver.user, d->index, u->stream);
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
// Takes back what foreign streams are done with; wait: all of it.
inline void poll(allocator_t *A, device_t *d, bool wait) {
    for (queue_t *q = d->queues; q; q = q->next) {
        if (q->head && wait) { A->driver.stream_sync(A->driver.user, d->index, q->stream); }
        while (q->head && (wait || A->driver.event_query(A->driver.user, d->index, q->head->event) != 1)) {
            use_t *u = q->head;
            block_t *b = u->of;
            if (!(q->head = u->next)) { q->tail = &q->head; }
            keep_event(A, d, u->event);
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

inline bool is_captured(const device_t *d, void *stream) {
    for (capture_t *c = d->captures; c; c = c->next) {
        if (c->stream == stream) { return true; }
    }
    return false;
}
inline lane_t *lane_of(device_t *d, void *stream) {
    int graph = 0;
    for (capture_t *c = d->captures; c; c = c->next) {
        if (c->stream == stream) { graph = c->graph; }
    }
    if (d->last && d->last->stream == stream && d->last->graph == graph && !d->last->dead) { return d->last; }
    uint64_t h = (((uint64_t)(uintptr_t)stream >> 4) * 0x9E3779B97F4A7C15u + (uint64_t)graph) >> 58;
    lane_t *l = d->hash[h % HASH];
    while (l && (l->stream != stream || l->graph != graph || l->dead)) { l = l->next; }
    if (!l) {
        if (!(l = (lane_t *)calloc(1, sizeof *l))) { return nullptr; }
        l->stream = stream;
        l->device = d->index;
        l->graph = graph;
        l->arena[0].lane = l->arena[1].lane = l;
        l->arena[1].small = true;
        l->next = d->hash[h % HASH];
        d->hash[h % HASH] = l;
    }
    return d->last = l;
}
// What is free goes back to the driver.
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
inline void trim_device(allocator_t *A, device_t *d) {
    d->stats.num_sync_all_streams++;
    each_lane(d, [&](lane_t *l) {
        if (!is_captured(d, l->stream)) { trim_lane(A, d, l); }
    });
}

inline const char *in_units(char (&text)[32], uint64_t bytes) {
    const char *unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int k = 0;
    double v = (double)bytes;
    for (; v >= 1024 && k < 5; k++) { v /= 1024; }
    snprintf(text, sizeof text, k ? "%.2f %s" : "%.0f %s", v, unit[k]);
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
    int n = snprintf(A->report, sizeof A->report,
        "Tried to allocate %s on device %d (stream %p). The device has %s, %s of it free; %s may be reserved. Reserved "
        "here: %s, of it %s in use (%s by graphs), %s waits for other streams, %s is free (largest block %s; %.1f %% "
        "of what is reserved).", in_units(t[0], bytes), d->index, stream, in_units(t[1], total),
        in_units(t[2], free_memory), in_units(t[3], d->limit ? d->limit : total), in_units(t[4], reserved),
        in_units(t[5], (uint64_t)d->stats.all[ALLOCATED_BYTES].current), in_units(t[6], graphs),
        in_units(t[7], pending), in_units(t[8], cached), in_units(t[9], largest),
        reserved ? 100.0 * (double)cached / (double)reserved : 0.0);
    for (int k = 0; k < 5 && n > 0 && (size_t)n < sizeof A->report; k++) {
        int best = -1;
        for (int i = 0; i < ntags; i++) {
            if (tags[i].bytes && (best < 0 || tags[i].bytes > tags[best].bytes)) { best = i; }
        }
        if (best < 0) { break; }
        n += snprintf(A->report + n, sizeof A->report - (size_t)n, "%s %s %s", k ? "," : " Most in use:",
                      in_units(t[0], tags[best].bytes), tags[best].tag ? tags[best].tag : "(no tag)");
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
    if (!r) { return; }                                     // a larger block than asked for does no harm
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
    lane_t *l = lane_of(d, stream);
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

// A block of at least `bytes` for work of `stream` -> 0, or TENSOR_ERR_OUT_OF_MEMORY and A->report. 0 bytes: NULL.
inline int alloc(allocator_t *A, int device, void *stream, uint64_t bytes, const char *tag, block_t **out) {
    *out = nullptr;
    device_t *d = device_of(A, device);
    if (!d) { return TENSOR_ERR_DEVICE; }
    if (!bytes) { return 0; }
    if (bytes > MOST) {
        snprintf(A->report, sizeof A->report, "Tried to allocate %llu bytes, more than any device has",
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
        A->options.on_oom(A->options.user, device, bytes);  // it may free: the lock is open
    }
}

// Work queued on `stream`, which is not the block's own, uses it. -> 0 or an error; then the caller has to wait.
inline int record_stream(allocator_t *A, block_t *b, void *stream) {
    if (!b) { return 0; }
    lane_t *l = b->home->lane;
    device_t *d = A->device[l->device];
    lock_t hold(&d->lock);
    if (l->stream == stream) { return 0; }
    for (use_t *u = b->uses; u; u = u->next) {
        if (u->stream == stream) { return 0; }
    }
    use_t *u = from_slab(d, &d->spare_uses, &use_t::next);
    if (!u) { return TENSOR_ERR_OUT_OF_MEMORY; }
    *u = use_t{b->uses, b, stream, nullptr};
    b->uses = u;
    trace(A, TRACE_RECORD, b->address, b->bytes, stream, b->tag);
    return 0;
}
// Work queued so far may still use the block: it serves later work of its own stream.
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
    if (d->captures) {                                      // nothing may be asked or freed now
        b->free_next = d->parked;
        d->parked = b;
    } else {
        pend(A, d, b);
    }
}

// From here on what `stream` allocates comes from arenas of the graph's own, until capture_end. -> its number > 0,
// 0 without memory. capture_join adds a stream that was forked from it.
inline int capture_join(allocator_t *A, int device, void *stream, int graph) {
    device_t *d = device_of(A, device);
    capture_t *c = (capture_t *)malloc(sizeof *c);
    if (!d || !c) {
        free(c);
        return TENSOR_ERR_OUT_OF_MEMORY;
    }
    lock_t hold(&d->lock);
    *c = capture_t{d->captures, stream, graph};
    d->captures = c;
    return 0;
}
inline int capture_begin(allocator_t *A, int device, void *stream) {
    int graph = __atomic_add_fetch(&A->next_graph, 1, __ATOMIC_RELAXED);
    return capture_join(A, device, stream, graph) ? 0 : graph;
}
inline void capture_end(allocator_t *A, int device, int graph) {
    device_t *d = A->device[device];
    lock_t hold(&d->lock);
    for (capture_t **at = &d->captures; *at;) {
        capture_t *c = *at;
        if (c->graph != graph) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c);
    }
    if (d->captures) { return; }
    for (block_t *b = d->parked, *next; b; b = next) {
        next = b->free_next;
        if (!b->home->lane->graph) {
            pend(A, d, b);
            continue;
        }
        while (b->uses) {           // all of a graph has run before it runs again: nothing to wait for
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
// The graph will not run again; the caller has waited for its last run.
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

// What is free goes back to the driver; waits for all streams. Not during a capture.
inline void empty_cache(allocator_t *A, int device) {
    device_t *d = device_of(A, device);
    if (!d) { return; }
    lock_t hold(&d->lock);
    if (d->captures) { return; }
    poll(A, d, true);
    trim_device(A, d);
}
// At most this part of the device, in (0, 1]. -> 0 or TENSOR_ERR_DEVICE, TENSOR_ERR_INDEX
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
// One JSON object a line: every block of every range and segment, then the trace, oldest first.
inline void snapshot(allocator_t *A, int device, void (*line)(void *user, const char *text), void *user) {
    static const char *const states[] = {"free", "used", "pending", "hole"};
    static const char *const actions[] = {"alloc", "free", "pend", "reclaim", "map", "unmap", "oom", "record"};
    device_t *d = device_of(A, device);
    char text[512];
    if (!d) { return; }
    lock_t hold(&d->lock);
    each_block(d, [&](block_t *b) {
        lane_t *l = b->home->lane;
        snprintf(text, sizeof text, "{\"block\":%llu,\"bytes\":%llu,\"requested\":%llu,\"state\":\"%s\",\"device\":%d,"
                 "\"stream\":\"%p\",\"graph\":%d,\"pool\":\"%s\",\"tag\":\"%s\"}", (unsigned long long)b->address,
                 (unsigned long long)b->bytes, (unsigned long long)(b->state == USED ? b->requested : 0),
                 states[b->state], d->index, l->stream, l->graph, b->home->small ? "small" : "large",
                 b->tag && b->state == USED ? b->tag : "");
        line(user, text);
    });
    uint64_t n = A->ntraced, room = (uint64_t)A->options.trace;
    for (uint64_t i = A->ring && n > room ? n - room : 0; A->ring && i < n; i++) {
        const trace_t *t = &A->ring[i % room];
        snprintf(text, sizeof text, "{\"trace\":\"%s\",\"address\":%llu,\"bytes\":%llu,\"stream\":\"%p\",\"step\":%d,"
                 "\"tag\":\"%s\"}", actions[t->action], (unsigned long long)t->address, (unsigned long long)t->bytes,
                 t->stream, t->step, t->tag ? t->tag : "");
        line(user, text);
    }
}

// PyTorch's memory_stats, one line each: name.pool.current N peak N allocated N freed N.
inline void memory_stats(allocator_t *A, int device, void (*line)(void *user, const char *text), void *user) {
    static const char *const pools[] = {"all", "small_pool", "large_pool"};
    device_t *d = device_of(A, device);
    char text[256];
    if (!d) { return; }
    lock_t hold(&d->lock);
    const stat_t *sets[] = {d->stats.all, d->stats.small, d->stats.large};
    for (int i = 0; i < STAT_COUNT; i++) {
        for (int k = 0; k < 3; k++) {
            const stat_t *s = &sets[k][i];
            snprintf(text, sizeof text, "%s.%s current %lld peak %lld allocated %lld freed %lld", stat_names[i], pools[k],
                     (long long)s->current, (long long)s->peak, (long long)s->allocated,
                     (long long)(s->allocated - s->current));
            line(user, text);
        }
    }
    const struct { const char *name; int64_t n; } counts[] = {{"num_alloc_retries", d->stats.num_alloc_retries},
        {"num_ooms", d->stats.num_ooms}, {"num_sync_all_streams", d->stats.num_sync_all_streams},
        {"num_device_alloc", d->stats.num_device_alloc}, {"num_device_free", d->stats.num_device_free}};
    for (auto &c : counts) {
        snprintf(text, sizeof text, "%s %lld", c.name, (long long)c.n);
        line(user, text);
    }
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
// Waits for all streams; what is still in use goes as well.
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
// Raw calls of the runtime and of the driver library. They may be made while another stream is captured, so the
// calling thread's capture mode is relaxed around them. Rejected: cudaMallocAsync (no trace, no policy per block,
// and its fragments stay).
// ------------------------------------------------------------------------------

struct on_device_t {                            // a device, and leave to allocate, for the length of a call
    int before = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    explicit on_device_t(int device) {
        cudaGetDevice(&before);
        if (before != device) { cudaSetDevice(device); }
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    ~on_device_t() {
        cudaThreadExchangeStreamCaptureMode(&mode);
        cudaSetDevice(before);
    }
};
inline int forget(cudaError_t e) {              // an error that is reported stays with CUDA only if the context is lost
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
    if (lib.cuMemGetAllocationGranularity_(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) || !unit || (2 << 20) % unit) {
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
inline int cuda_map(void *, int device, uint64_t address, uint64_t bytes, uint64_t *handle) {
    on_device_t at(device);
    CUmemAllocationProp p = cuda_property(device);
    CUmemGenericAllocationHandle h;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = p.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    int e = (int)lib.cuMemCreate_(&h, bytes, &p, 0);
    if (e) { return e; }
    *handle = h;
    if ((e = (int)lib.cuMemMap_((CUdeviceptr)address, bytes, 0, h, 0)) != 0) {
        lib.cuMemRelease_(h);
        return e;
    }
    if ((e = (int)lib.cuMemSetAccess_((CUdeviceptr)address, bytes, &access, 1)) != 0) {
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
inline int cuda_event_free(void *, int, void *event) { return forget(cudaEventDestroy((cudaEvent_t)event)); }
inline int cuda_event_record(void *, int, void *event, void *stream) {
    return forget(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}
inline int cuda_event_query(void *, int, void *event) {
    cudaError_t e = cudaEventQuery((cudaEvent_t)event);
    if (e == cudaErrorNotReady) {
        cudaGetLastError();
        return 1;
    }
    return e ? -1 : 0;
}
inline int cuda_stream_sync(void *, int device, void *stream) {
    on_device_t at(device);
    return forget(cudaStreamSynchronize((cudaStream_t)stream));
}
inline int cuda_fill(void *, int, void *stream, uint64_t address, uint64_t bytes) {
    return forget(cudaMemsetAsync((void *)(uintptr_t)address, 0xFF, bytes, (cudaStream_t)stream));
}
[[maybe_unused]] static const driver_t cuda_driver = {nullptr, cuda_segment_alloc, cuda_segment_free, cuda_reserve, cuda_unreserve,
    cuda_map, cuda_unmap, cuda_memory, cuda_event_new, cuda_event_free, cuda_event_record, cuda_event_query,
    cuda_stream_sync, cuda_fill};

// Pinned host memory comes from the same allocator.
inline int host_segment_alloc(void *, int device, uint64_t bytes, uint64_t *address) {
    on_device_t at(device);
    void *p = nullptr;
    cudaError_t e = cudaMallocHost(&p, bytes);
    *address = (uint64_t)(uintptr_t)p;
    return forget(e);
}
inline int host_segment_free(void *, int, uint64_t address, uint64_t) {
    return forget(cudaFreeHost((void *)(uintptr_t)address));
}
[[maybe_unused]] static const driver_t pinned_driver = {nullptr, host_segment_alloc, host_segment_free, nullptr, nullptr, nullptr,
    nullptr, cuda_memory, cuda_event_new, cuda_event_free, cuda_event_record, cuda_event_query, cuda_stream_sync,
    nullptr};

}  // namespace tcu

// cusim.cpp - fibers, streams and the CUDA runtime of cusim.h
//
// Compiled without instrumentation: under the thread sanitizer the scheduler must be invisible, for every access and
// every lock of its own would order what CUDA leaves unordered. For the same reason nothing here calls libc while
// a kernel runs, order goes through addresses that no two launches share, and each CUDA thread has an identity of its
// own. Host threads take turns: one is in the emulator at a time. TSan does not hear of it, so that to it they run at
// once, and only what CUDA or the program orders is ordered.
#include "cusim.h"
#undef threadIdx
#undef __syncthreads
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#ifdef CUSIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CUSIM_TSAN
extern "C" {
void *__tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void *);
void *__tsan_get_current_fiber(void);
void __tsan_switch_to_fiber(void *, unsigned);
void __tsan_acquire(void *);
void __tsan_release(void *);
void AnnotateIgnoreWritesBegin(const char *, int);
void AnnotateIgnoreWritesEnd(const char *, int);
// Its second at exit looks for races of threads that outlive main: there are none.
// A short history of each of the thousands of threads: a race is found with any, only the stack of its older access may be
// missing from the report.
const char *__tsan_default_options(void) { return "atexit_sleep_ms=0:halt_on_error=1:history_size=0"; }
}
#define ACQUIRE(p) __tsan_acquire((void *)(p))
#define RELEASE(p) __tsan_release((void *)(p))
#define BECOME(t) __tsan_switch_to_fiber(t, 1)
#define UNSEEN_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)     // memory of the emulator changes hands unseen
#define UNSEEN_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
constexpr bool TSAN = true;
#else
#define ACQUIRE(p) ((void)0)
#define RELEASE(p) ((void)0)
#define BECOME(t) ((void)0)
#define UNSEEN_BEGIN() ((void)0)
#define UNSEEN_END() ((void)0)
constexpr bool TSAN = false;
#endif
#if defined(__x86_64__)
extern "C" void cusim_switch(void **save, void *load);
asm(".text\n.globl cusim_switch\n.type cusim_switch,@function\ncusim_switch:\n"
    " pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n movq %rsp,(%rdi)\n"
    " movq %rsi,%rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
#endif

namespace cusim {

enum { SHARED_MOST = 48 << 10, MAX_THREADS = 1024, TSAN_THREADS = 256, STACK = 128 << 10, PAGE = 4096, SITES = 512, TOKENS = 64 };
static config_t from_outside() {
    config_t c;
    const char *missing = std::getenv("CUSIM_MISSING");
    if (missing) { c.missing = missing; }
    return c;
}
config_t config = from_outside();
counts_t counts;
thread_local launched_t last;
index_t index;
int dynamic_site;
size_t dynamic_bytes;
static uint64_t state = 0x9E3779B97F4A7C15u;
static char fault_text[256];

static char range_text[2][4096];
static size_t range_length;
void range_push(const char *name) {
    size_t left = sizeof range_text[0] - range_length;
    int n = std::snprintf(range_text[0] + range_length, left, "%s(", name);
    range_length += n > 0 && (size_t)n < left ? (size_t)n : 0;
}
void range_pop() {
    if (range_length + 1 < sizeof range_text[0]) { range_text[0][range_length++] = ')'; }
    range_text[0][range_length] = 0;
}
const char *range_log() {
    std::memcpy(range_text[1], range_text[0], sizeof range_text[0]);
    range_text[0][range_length = 0] = 0;
    return range_text[1];
}
void seed(uint64_t s) { state = (s + 1) * 0x9E3779B97F4A7C15u | 1; }
const char *fault() { return fault_text; }
static unsigned random(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n ? (unsigned)(state >> 32) % n : 0;
}
static void die(const char *text) {
    std::fprintf(stderr, "cusim: %s\n", text);
    std::abort();
}

#ifdef CUSIM_SECTORS
static void sectors_of_block();
#endif
traffic_t traffic;

// ------------------------------------------------------------------------------------------- one block of threads
struct fiber {
    void *sp = nullptr;
    char *stack = nullptr;
    size_t size = 0;
    int thread = -1;
    uint64_t grid = 0, number = 0;      // with TSan: the grid it knows, the number of its thread there
    void *tsan = nullptr, *fake = nullptr;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
};
struct list {
    fiber *at[MAX_THREADS];
    int n = 0;
    void push(fiber *f) { at[n++] = f; }
};
struct warp {
    unsigned mask, arrived, parity;
    unsigned long long slot[2][32];     // two generations: a fast lane may be one exchange ahead
    fiber *waiting[32];
    int nwaiting;
    char *token;
};
static struct {
    int n = 0, next = 0, exited = 0, waiting = 0;
    const void *site = nullptr;
    const char *error = nullptr;
    void (*run)(const void *) = nullptr;
    const void *arguments = nullptr;
    int order[MAX_THREADS];
    warp warps[MAX_THREADS / 32];
    list ready, barrier, idle;
    fiber pool[MAX_THREADS], host, *current = nullptr, *previous = nullptr;
    int npool = 0;
    CUstream_st *stream = nullptr;
    char *start = nullptr, *token = nullptr;
    uint64_t nslots = 0, grid = 0, all = 0;     // threads that began, grids, threads of this one
} B;
static char *new_token();
static fiber *new_slot();

static void set_thread(int t) {
    if (index.block_dim.x == (unsigned)B.n) {
        index.thread.x = (unsigned)t;
        return;
    }
    index.thread.x = t % index.block_dim.x;
    index.thread.y = t / index.block_dim.x % index.block_dim.y;
    index.thread.z = t / (index.block_dim.x * index.block_dim.y);
}
static void arrive(void *fake) {
#ifdef CUSIM_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (B.previous == &B.host) {
        B.host.stack = (char *)bottom;
        B.host.size = size;
    }
#else
    (void)fake;
#endif
}
static void jump(fiber *from, fiber *to) {
    B.previous = from;
    B.current = to;
#ifdef CUSIM_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->size);
#endif
    BECOME(to->tsan);
#if defined(__x86_64__)
    cusim_switch(&from->sp, to->sp);
#else
    swapcontext(&from->context, &to->context);
#endif
    arrive(from->fake);
    if (from != &B.host) { set_thread(from->thread); }
}
static fiber *take() {
    int i = config.shuffle ? (int)random(B.ready.n) : 0;
    fiber *f = B.ready.at[i];
    B.ready.n--;
    if (config.shuffle) {
        B.ready.at[i] = B.ready.at[B.ready.n];
    } else {
        for (; i < B.ready.n; i++) { B.ready.at[i] = B.ready.at[i + 1]; }
    }
    return f;
}
[[noreturn]] void kernel_fault(const char *text) {
    if (!B.error) { B.error = text; }
    jump(B.current, &B.host);
    die("a dead block was resumed");
    std::abort();
}
static fiber *fresh();
static void fiber_main() {
    arrive(nullptr);
    for (;;) {
        while (B.next < B.n) {      // threads run as a plain loop until one blocks
            B.current->thread = B.order[B.next++];
            set_thread(B.current->thread);
            fiber *self = B.current;
            if (TSAN && self->grid != B.grid) {
                ACQUIRE(B.start);
                self->grid = B.grid;
            }
            B.run(B.arguments);
            if (TSAN && self->number + TSAN_THREADS >= B.all) { RELEASE(B.start + 8); }     // its last thread
            B.exited++;
            if (B.waiting) { kernel_fault("divergent __syncthreads: a thread returned while another waits"); }
            if (TSAN || (B.ready.n && config.shuffle && random(2))) { break; }
        }
        fiber *me = B.current, *next = &B.host;
        if (B.ready.n) {
            next = take();
        } else if (B.next < B.n) {
            if (!TSAN) { continue; }
            next = fresh();
        } else if (B.exited != B.n) {
            B.error = "deadlock: threads wait for a barrier or a warp operation that cannot complete";
        }
        if (!TSAN) { B.idle.push(me); }
        jump(me, next);
    }
}
static fiber *fresh() {
    fiber *f;
    if (TSAN) {
        f = new_slot();
        if (f->stack) { return f; }
#ifdef CUSIM_TSAN
        f->tsan = __tsan_create_fiber(0);
#endif
    } else {
        if (B.idle.n) { return B.idle.at[--B.idle.n]; }
        if (B.npool == MAX_THREADS) { die("out of fibers"); }
        f = &B.pool[B.npool++];
    }
    f->size = STACK;
    f->stack = (char *)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == (char *)MAP_FAILED) { die("no memory for a stack"); }
    mprotect(f->stack, PAGE, PROT_NONE);
    f->stack += PAGE;
#if defined(__x86_64__)
    void **s = (void **)(f->stack + STACK) - 1;
    *--s = (void *)fiber_main;
    for (int i = 0; i < 6; i++) { *--s = nullptr; }
    f->sp = s;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    makecontext(&f->context, fiber_main, 0);
#endif
    return f;
}
// The current thread cannot go on: another one runs.
static void park() {
    fiber *me = B.current, *f = nullptr;
    bool can_begin = B.next < B.n;
    if (B.ready.n && (!can_begin || !config.shuffle || random(2))) {
        f = take();
    } else if (can_begin) {
        f = fresh();
    }
    if (!f) { kernel_fault("deadlock: a barrier or warp operation waits for threads that ended or wait elsewhere"); }
    if (f != me) { jump(me, f); }
}
void syncthreads(const void *site) {
    if (B.waiting && B.site != site) { kernel_fault("divergent __syncthreads: threads wait at different calls"); }
    if (B.exited) { kernel_fault("divergent __syncthreads: a thread of the block has returned"); }
    B.site = site;
    if (!B.waiting) { B.token = new_token(); }
    char *t = B.token;
    (void)t;
    RELEASE(t);
    if (++B.waiting < B.n) {
        B.barrier.push(B.current);
        park();
    } else {
        B.waiting = 0;
        for (int i = 0; i < B.barrier.n; i++) { B.ready.push(B.barrier.at[i]); }
        B.barrier.n = 0;
        if (config.shuffle && random(2)) {
            B.ready.push(B.current);
            park();
        }
    }
    ACQUIRE(t);
}
int lane() { return B.current->thread & 31; }
// Each lane of the mask leaves a value; then all of them may read all. ordered: also what each wrote before.
unsigned long long *warp_exchange(unsigned mask, unsigned long long value, bool ordered) {
    int w = B.current->thread >> 5, l = B.current->thread & 31, rest = B.n - w * 32;
    warp &W = B.warps[w];
    if (rest < 32) { mask &= (1u << rest) - 1; }
    if (!(mask >> l & 1)) { kernel_fault("warp operation: the calling lane is not in its mask"); }
    if (W.arrived && W.mask != mask) { kernel_fault("warp operation: lanes pass different masks"); }
    if (!W.arrived && ordered) { W.token = new_token(); }
    char *t = W.token;
    (void)t;
    unsigned p = W.parity;
    W.mask = mask;
    W.slot[p][l] = value;
    W.arrived |= 1u << l;
    if (ordered) { RELEASE(t); }
    if (W.arrived != mask) {
        W.waiting[W.nwaiting++] = B.current;
        park();
    } else {
        W.arrived = 0;
        W.parity ^= 1;
        for (int i = 0; i < W.nwaiting; i++) { B.ready.push(W.waiting[i]); }
        W.nwaiting = 0;
    }
    if (ordered) { ACQUIRE(t); }
    return W.slot[p];
}
static void *shared[SITES];
static int nsites;
static size_t shared_bytes;         // of the block that runs
static std::vector<void *> dead;    // freed when the kernel has ended: no address serves two blocks of a launch
void *shared_memory(int *site, size_t n) {
    if (!*site) {
        *site = ++nsites;
        if (nsites >= SITES) { die("too many shared variables"); }
    }
    void *&p = shared[*site];
    if (!p) {
        shared_bytes += n;
        if (shared_bytes > SHARED_MOST) { kernel_fault("more than 48 KiB of shared memory"); }
        BECOME(B.host.tsan);
        p = aligned_alloc(16, (n + 15 + (n == 0)) & ~(size_t)15);
        for (volatile char *q = (char *)p; q < (char *)p + n; q++) { *q = (char)0xFF; }
        dead.push_back(p);
        RELEASE(p);
        BECOME(B.current->tsan);
    }
    ACQUIRE(p);
    return p;
}
static unsigned common(unsigned a, unsigned b) { return b ? common(b, a % b) : a; }
static void run_grid(dim3 grid, dim3 block, size_t bytes, CUstream_st *stream, void (*run)(const void *), const void *arguments) {
    unsigned n = block.x * block.y * block.z;
    uint64_t nblocks = (uint64_t)grid.x * grid.y * grid.z;
    index.block_dim = block;
    index.grid_dim = grid;
    index.thread = {0, 0, 0};
    B.run = run;
    B.arguments = arguments;
    B.error = nullptr;
    B.stream = stream;
    B.start = (char *)stream;
    if (TSAN && n > TSAN_THREADS) { die("too many threads per block for this build"); }
    if (nblocks > 1u << 30) { die("grid too large to emulate"); }
    if (B.n != (int)n) {
        B.n = (int)n;
        for (unsigned i = 0; i < n; i++) { B.order[i] = (int)i; }
    }
    B.grid++;
    B.all = nblocks * n;
    B.nslots = 0;                   // goes on from block to block: neighbours share no identity
    dynamic_bytes = bytes;
#ifdef CUSIM_TSAN
    B.host.tsan = __tsan_get_current_fiber();
#endif
    RELEASE(B.start);
    unsigned count = (unsigned)nblocks, first = 0, stride = 1;
    if (config.shuffle) {
        first = random(count);
        for (stride = 1 + random(count); common(stride, count) != 1; stride++) {}
    }
    for (unsigned i = 0; i < count && !B.error; i++) {
        unsigned k = (unsigned)((first + (uint64_t)i * stride) % count);
        index.block.x = k % grid.x;
        index.block.y = k / grid.x % grid.y;
        index.block.z = k / (grid.x * grid.y);
        B.next = B.exited = B.waiting = 0;
        for (warp &w : B.warps) { w.arrived = w.nwaiting = 0; }
        if (config.shuffle) {
            for (int j = (int)n - 1; j > 0; j--) { std::swap(B.order[j], B.order[random(j + 1)]); }
        }
        jump(&B.host, fresh());
#ifdef CUSIM_SECTORS
        sectors_of_block();
#endif
        for (int j = 1; j <= nsites; j++) { shared[j] = nullptr; }
        shared_bytes = 0;
    }
    ACQUIRE(B.start + 8);
    for (void *p : dead) { std::free(p); }
    dead.clear();
    if (B.error) {                  // its fibers hang in the middle of a kernel: abandoned
        B.ready.n = B.barrier.n = B.idle.n = B.npool = B.n = 0;
    }
}

// --------------------------------------------------------------------------------------------------------- streams
struct token {
    bool done = false;
    double ms = 0;                  // when it was done
    CUstream_st *owner = nullptr;
};
typedef std::shared_ptr<token> token_p;
typedef std::function<void()> work_t;
struct op {
    work_t work;
    token_p wait, record;
};
struct memory {
    size_t bytes, mapped;
    int device;
    bool own_pages;             // mmap, else malloc
    bool chunk;                 // of a reserved range
    unsigned open = 0;          // chunks: the devices that may use it
};
typedef std::map<char *, memory> memory_map;
static memory_map device_memory, pinned_memory;
static std::vector<CUstream_st *> streams;
static thread_local cudaError_t last_error;
static bool sticky;
static double spent;                // milliseconds that work has declared
static CUstream_st *running;        // whose work runs now: a graph's lane, not the stream that was captured
static std::map<int, size_t> used;
static std::map<int, unsigned> enabled;         // peers whose memory a device may use
static thread_local int current_device;
static thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

// For the length of a call; it may call others.
static struct { int owner, depth; } api;
static int next_thread;
static thread_local int this_thread = __atomic_add_fetch(&next_thread, 1, __ATOMIC_RELAXED);
struct entry_t {
    entry_t() {
        if (__atomic_load_n(&api.owner, __ATOMIC_RELAXED) != this_thread) {
            int none = 0;
            while (!__atomic_compare_exchange_n(&api.owner, &none, this_thread, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                none = 0;
                sched_yield();
            }
            UNSEEN_BEGIN();
        }
        api.depth++;
    }
    ~entry_t() {
        if (--api.depth) { return; }
        UNSEEN_END();
        __atomic_store_n(&api.owner, 0, __ATOMIC_RELEASE);
    }
};
static cudaError_t fail(cudaError_t e) { return last_error = e; }
// The device that is current when a call needs a context gets one. Calls made under the lock that is watched count.
const int *watched;
long under_watch;
static unsigned contexts;
static void touch() {
    contexts |= 1u << current_device;
    if (watched && __atomic_load_n(watched, __ATOMIC_RELAXED)) { under_watch++; }
}
static cudaError_t status() { return touch(), sticky ? fail(cudaErrorLaunchFailure) : cudaSuccess; }
static cudaError_t call() { return touch(), sticky ? fail(cudaErrorLaunchFailure) : counts.calls++ == config.fail_call ? fail(cudaErrorUnknown) : cudaSuccess; }
static const char *recent_range[2];         // the device's memory that was found last
// Neighbouring ranges count as one.
static bool inside(memory_map &m, const void *p, size_t n) {
    char *a = (char *)p, *end = a + n;
    for (;;) {
        auto it = m.upper_bound(a);
        if (it == m.begin()) { return false; }
        --it;
        if (a >= it->first + it->second.bytes) { return false; }
        a = it->first + it->second.bytes;
        if (end > a) { continue; }
        if (&m == &device_memory) {
            recent_range[0] = it->first;
            recent_range[1] = a;
        }
        return true;
    }
}
bool on_device(const void *p, size_t n) { return inside(device_memory, p, n); }
static void guard(bool open) {
    if (!config.protect) { return; }
    for (auto &m : device_memory) {
        if (m.second.own_pages) { mprotect(m.first, m.second.mapped, open ? PROT_READ | PROT_WRITE : PROT_NONE); }
    }
}

}  // namespace cusim
using namespace cusim;

// Identities of threads, which are dear under TSan: its clocks have a number for each. A stream that ends leaves them to
// the next one. All of its work was waited for by the host, before which that one's cannot begin.
static std::vector<std::vector<fiber>> spare_pools;

struct CUstream_st {
    std::deque<op> queue;
    token_p tail;
    CUgraph_st *graph = nullptr;
    int lane = 0, device = 0;
    bool abandoned = false;         // threads hang in the middle of a kernel
    CUstream_st *lender = nullptr;  // of a graph's first lane: the stream that waits for it, whose identities it takes
    void *tsan = nullptr;
    int waited = 0;                 // the host's thread that has waited for all of it
    unsigned ntokens = 0;
    char ring[TOKENS * 16];         // addresses of barrier generations
    std::vector<fiber> pool;        // none before the first launch
    CUstream_st() { streams.push_back(this); }
    ~CUstream_st() {
        streams.erase(std::find(streams.begin(), streams.end(), this));
        if (!pool.empty() && !abandoned) { spare_pools.push_back(std::move(pool)); }
#ifdef CUSIM_TSAN
        if (tsan) { __tsan_destroy_fiber(tsan); }
#endif
    }
};
struct CUevent_st {
    token_p at;
    int device = current_device;
    CUgraph_st *graph = nullptr;    // recorded in a capture
    int node = -1, lane = 0;
};
// A captured stream is a lane; a node waits for its lane's last one, and for another lane's where wait says so.
struct CUgraph_st {
    struct node { int lane; work_t work; int wait; std::function<gated_t()> begin; };
    std::vector<node> nodes;
    std::vector<int> open;          // per lane: 1 = has work that no other lane waits for
    CUstream_st *origin = nullptr;
    bool broken = false;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    int thread = 0;
};
struct CUgraphExec_st {
    std::vector<CUgraph_st::node> nodes;
    std::vector<std::unique_ptr<CUstream_st>> lanes;
};

namespace cusim {

static char *new_token() { return B.stream->ring + B.stream->ntokens++ % TOKENS * 16; }
// For what the calling thread is about to launch. A stream that this thread has waited for gives its own: all that they
// did is in order before the launch anyway.
static void take_pool(CUstream_st *s) {
    if (!TSAN || !s->pool.empty()) { return; }
    for (CUstream_st *x : streams) {
        if (x->waited == this_thread && x->queue.empty() && !x->pool.empty() && !x->abandoned) {
            s->pool.swap(x->pool);
            return;
        }
    }
    if (spare_pools.empty()) { spare_pools.emplace_back((size_t)TSAN_THREADS); }
    s->pool.swap(spare_pools.back());
    spare_pools.pop_back();
}
static CUstream_st *pool_owner(CUstream_st *s) { return s->lender ? s->lender : s; }
static fiber *new_slot() {
    fiber *f = &pool_owner(B.stream)->pool[B.nslots % TSAN_THREADS];
    f->number = B.nslots++;
    return f;
}
static bool runnable(CUstream_st *s) { return !s->queue.empty() && !(s->queue.front().wait && !s->queue.front().wait->done); }
static void step(CUstream_st *s) {
    op o = std::move(s->queue.front());
    s->queue.pop_front();
#ifdef CUSIM_TSAN
    void *host = __tsan_get_current_fiber();
    if (!s->tsan) { s->tsan = __tsan_create_fiber(0); }
    BECOME(s->tsan);
#endif
    ACQUIRE((char *)o.record.get() + 1);        // all that the host did before it queued this
    if (o.wait) { ACQUIRE(o.wait.get()); }
    running = s;
    if (o.work && !sticky) { o.work(); }
    o.work = nullptr;
    RELEASE(o.record.get());
#ifdef CUSIM_TSAN
    BECOME(host);
#endif
    o.record->done = true;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    o.record->ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6 + spent;
}
void time_passes(double ms) { spent += ms; }
// Whether s is held up by a gate: what opens it is another rank's, and may never come.
static bool gated(const CUstream_st *s) {
    return !s->queue.empty() && s->queue.front().wait && !s->queue.front().wait->done && !s->queue.front().wait->owner;
}
static bool any_gated() {
    for (CUstream_st *s : streams) {
        if (gated(s)) { return true; }
    }
    return false;
}
// One of the streams that can go on; NULL if gates hold up what there is.
static CUstream_st *any_stream() {
    std::vector<CUstream_st *> can;
    bool held = false;
    for (CUstream_st *x : streams) {
        if (runnable(x)) { can.push_back(x); }
        held = held || gated(x);
    }
    if (can.empty() && !held) { die("streams wait for each other"); }
    return can.empty() ? nullptr : can[random((unsigned)can.size())];
}
// The stream that has to go on before t is done; behind a gate any may be the one.
static CUstream_st *needed(const token_p &t) {
    CUstream_st *s = t->owner;
    for (int hop = 0; !runnable(s); hop++) {
        if (s->queue.empty() || hop > 1000) { die("streams wait for each other"); }
        if (gated(s)) { return any_stream(); }
        s = s->queue.front().wait->owner;
    }
    return s;
}
// Lets other threads into the emulator, in the midst of a call.
static void give_way() {
    const int depth = api.depth;
    api.depth = 0;
    UNSEEN_END();
    __atomic_store_n(&api.owner, 0, __ATOMIC_RELEASE);
    usleep(100);
    entry_t again;
    api.depth = depth + 1;
}
// Runs what the token needs; in random order what may run.
static void finish(token_p t) {
    if (!t) { return; }
    guard(true);
    while (!t->done) {
        CUstream_st *s = config.order == RANDOM ? any_stream() : needed(t);
        if (s) {
            step(s);
            continue;
        }
        guard(false);
        give_way();
        guard(true);
    }
    ACQUIRE(t.get());
    guard(false);
    for (CUstream_st *s : streams) {
        if (s->tail == t) { s->waited = this_thread; }
    }
}
static void finish_all() {
    std::vector<token_p> tails;                 // others may make streams meanwhile
    for (CUstream_st *s : streams) { tails.push_back(s->tail); }
    for (const token_p &t : tails) { finish(t); }
}
static void progress() {
    guard(true);
    for (unsigned k = random(4); k; k--) {
        CUstream_st *s = streams[random((unsigned)streams.size())];
        if (runnable(s)) { step(s); }
    }
    guard(false);
}
static token_p push(CUstream_st *s, work_t work, token_p wait = nullptr, token_p record = nullptr) {
    if (!record) { record = std::make_shared<token>(); }
    record->owner = s;
    s->tail = record;
    s->waited = 0;
    RELEASE((char *)record.get() + 1);
    s->queue.push_back(op{std::move(work), std::move(wait), record});
    if (config.order == EAGER) {
        guard(true);
        while (runnable(s)) { step(s); }        // all of it, but for what a gate holds up
        guard(false);
    }
    if (config.order == RANDOM) { progress(); }
    return record;
}
static void enqueue_work(CUstream_st *s, work_t work) {
    if (!s->graph) {
        push(s, std::move(work));
        return;
    }
    s->graph->nodes.push_back({s->lane, std::move(work), -1, nullptr});
    s->graph->open[s->lane] = 1;
}
cudaError_t enqueue(cudaStream_t s, work_t work) {
    entry_t hold;
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (!s) { return fail(cudaErrorInvalidResourceHandle); }
    enqueue_work(s, std::move(work));
    return cudaSuccess;
}
gate_p gate_new() { return std::make_shared<token>(); }
void gate_open(const gate_p &gate) {
    entry_t hold;
    RELEASE(gate.get());
    gate->done = true;
}
cudaError_t enqueue_gated(cudaStream_t s, std::function<gated_t()> begin) {
    entry_t hold;
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (!s) { return fail(cudaErrorInvalidResourceHandle); }
    if (s->graph) {
        s->graph->nodes.push_back({s->lane, nullptr, -1, std::move(begin)});
        s->graph->open[s->lane] = 1;
        return cudaSuccess;
    }
    gated_t work = begin();
    push(s, std::move(work.before));
    push(s, std::move(work.behind), work.gate);
    return cudaSuccess;
}
static bool reserved(const char *p);
bool argument(const void *from, size_t bytes) {
    entry_t hold;
    for (size_t i = 0; i + sizeof(char *) <= bytes && !sticky; i += sizeof(char *)) {
        char *p;
        unsigned char there;
        std::memcpy(&p, (const char *)from + i, sizeof p);
        uintptr_t u = (uintptr_t)p;             // numbers look like addresses where sanitizers keep what they know
        if (u >> 47 || u < (uintptr_t)0x5 << 44 || on_device(p, 1) || inside(pinned_memory, p, 1) || reserved(p) ||
            mincore((void *)(u & ~(uintptr_t)(PAGE - 1)), 1, &there)) {
            continue;
        }
        std::snprintf(fault_text, sizeof fault_text, "word %zu of a kernel's argument, %p, is an address of the host",
                      i / 8, (void *)p);
        std::fprintf(stderr, "cusim: %s\n", fault_text);
        sticky = true;
        fail(cudaErrorIllegalAddress);
        return false;
    }
    return true;
}
// Relaxed: it orders nothing, as no lock does here.
static struct ran_t {
    enum { MOST = 1 << 14 };
    uintptr_t at[MOST];
#ifdef CUSIM_SECTORS
    moved_t load[MOST], store[MOST];
#endif
    ~ran_t() {
        extern char start __asm__("__executable_start");
        const char *name = std::getenv("CUSIM_KERNELS");
        FILE *file = name ? std::fopen(name, "w") : nullptr;
        for (int k = 0; k < MOST && file; k++) {
            if (!at[k]) { continue; }
            std::fprintf(file, "%016lx", (unsigned long)(at[k] - (uintptr_t)&start));
#ifdef CUSIM_SECTORS
            for (const moved_t &m : {load[k], store[k]}) { std::fprintf(file, " %ld %ld %ld", m.requests, m.sectors, m.bytes); }
#endif
            std::fprintf(file, "\n");
        }
        if (file) { std::fclose(file); }
    }
} kernels_ran;
static uintptr_t place_of(void (*kernel)()) {
    const uintptr_t a = (uintptr_t)kernel;
    for (uintptr_t k = a / 16 % ran_t::MOST;; k = (k + 1) % ran_t::MOST) {
        uintptr_t there = __atomic_load_n(&kernels_ran.at[k], __ATOMIC_RELAXED);
        if (there == a) { return k; }
        if (!there && __atomic_compare_exchange_n(&kernels_ran.at[k], &there, a, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { return k; }
        if (there == a) { return k; }
    }
}
#ifdef CUSIM_SECTORS
static void moved_by(void (*kernel)(), const traffic_t &before) {
    const uintptr_t k = place_of(kernel);
    const moved_t *now[2] = {&traffic.load, &traffic.store}, *then[2] = {&before.load, &before.store};
    moved_t *to[2] = {&kernels_ran.load[k], &kernels_ran.store[k]};
    for (int i = 0; i < 2; i++) {
        to[i]->requests += now[i]->requests - then[i]->requests;
        to[i]->sectors += now[i]->sectors - then[i]->sectors;
        to[i]->bytes += now[i]->bytes - then[i]->bytes;
    }
}
#endif
cudaError_t launch(void (*kernel)(), dim3 grid, dim3 block, size_t bytes, cudaStream_t s, void (*run)(const void *),
                   const void *arguments, size_t size) {
    entry_t hold;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (last_error) {                                       // libraries, and <<<>>>, would take it for this one's
        std::fprintf(stderr, "cusim: launch after a failed call whose error nobody took: %d\n", (int)last_error);
        return last_error;
    }
    if (s && s->device != current_device) { return fail(cudaErrorInvalidResourceHandle); }
    if (!s || !grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535 || !threads ||
        threads > MAX_THREADS || block.z > 64 || bytes > SHARED_MOST) {
        return fail(cudaErrorInvalidConfiguration);
    }
    if (counts.launches++ == config.fail_launch) {
        sticky = true;
        return fail(cudaErrorLaunchFailure);
    }
    traffic.blocks = std::max(traffic.blocks, (long)grid.x * grid.y * grid.z);
    if (!s->graph) { take_pool(s); }
    std::shared_ptr<void> own(std::malloc(size), std::free);
    std::memcpy(own.get(), arguments, size);
    enqueue_work(s, [=] {
#ifdef CUSIM_SECTORS
        const traffic_t before = traffic;
#endif
        run_grid(grid, block, bytes, running, run, own.get());
#ifdef CUSIM_SECTORS
        moved_by(kernel, before);
#endif
        if (!B.error) { return; }
        pool_owner(running)->abandoned = true;
        std::snprintf(fault_text, sizeof fault_text, "block (%u,%u,%u) thread (%u,%u,%u): %s", index.block.x,
                      index.block.y, index.block.z, index.thread.x, index.thread.y, index.thread.z, B.error);
        std::fprintf(stderr, "cusim: fault in %s\n", fault_text);
        sticky = true;
        last_error = cudaErrorLaunchFailure;
    });
    place_of(kernel);
    last = {kernel, grid, block};
    return cudaSuccess;
}
void reset() {
    traffic = {};
    finish_all();
    counts.allocs = counts.launches = counts.calls = 0;
    sticky = false;
    last_error = cudaSuccess;
    fault_text[0] = 0;
}
// A capture that forbids the calling thread something.
static bool matters(const CUstream_st *s) {
    return s->graph && (s->graph->mode == cudaStreamCaptureModeGlobal ||
                        (s->graph->mode == cudaStreamCaptureModeThreadLocal && s->graph->thread == this_thread));
}
static bool capturing() {
    for (CUstream_st *s : streams) {
        if (matters(s)) { return true; }
    }
    return false;
}
// What waits for the device, or asks it, breaks a capture.
static cudaError_t forbidden() {
    for (CUstream_st *s : streams) {
        if (matters(s)) { s->graph->broken = true; }
    }
    return fail(cudaErrorStreamCaptureUnsupported);
}
static char *exact(size_t n) {      // not a byte more, so that the address sanitizer sees the end
    void *p = nullptr;
    return posix_memalign(&p, 512, n ? n : 1) ? nullptr : (char *)p;
}
static cudaError_t may_allocate(size_t n, int device) {
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (capturing() && capture_mode != cudaStreamCaptureModeRelaxed) { return forbidden(); }
    const long number = counts.allocs++;
    const bool full = config.full_from >= 0 && number >= config.full_from;
    if (full || number == config.fail_alloc || used[device] + n > config.memory) {
        return fail(cudaErrorMemoryAllocation);
    }
    return cudaSuccess;
}

// --------------------------------------------------------------------- virtual memory (functions of the driver library)
struct range { size_t bytes; };
struct chunk { size_t bytes; int device; char *at; };
static std::map<char *, range> ranges;
static bool reserved(const char *p) {
    auto r = ranges.upper_bound((char *)p);
    return r != ranges.begin() && (--r, p < r->first + r->second.bytes);
}
static std::map<CUmemGenericAllocationHandle, chunk> chunks;
static CUmemGenericAllocationHandle next_chunk = 1;
enum { GRANULARITY = 2 << 20 };

static CUresult driver_error(cudaError_t e) {       // the runtime never hears of it
    if (!sticky) { last_error = cudaSuccess; }
    return e == cudaSuccess ? CUDA_SUCCESS
         : e == cudaErrorMemoryAllocation ? CUDA_ERROR_OUT_OF_MEMORY
         : e == cudaErrorStreamCaptureUnsupported ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_LAUNCH_FAILED;
}
static CUresult mem_granularity(size_t *g, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
    entry_t hold;
    *g = GRANULARITY;
    return CUDA_SUCCESS;
}
static CUresult mem_reserve(CUdeviceptr *at, size_t n, size_t, CUdeviceptr, unsigned long long) {
    entry_t hold;
    cudaError_t e = may_allocate(0, current_device);
    if (e) { return driver_error(e); }
    if (!n || n % GRANULARITY) { return CUDA_ERROR_INVALID_VALUE; }
    char *p = (char *)mmap(nullptr, n + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == (char *)MAP_FAILED) { return CUDA_ERROR_OUT_OF_MEMORY; }
    char *a = (char *)(((uintptr_t)p + GRANULARITY - 1) & ~(uintptr_t)(GRANULARITY - 1));
    if (a != p) { munmap(p, (size_t)(a - p)); }
    munmap(a + n, (size_t)(p + GRANULARITY - a));
    ranges[a] = {n};
    counts.live_ranges++;
    *at = (CUdeviceptr)a;
    return CUDA_SUCCESS;
}
static CUresult mem_address_free(CUdeviceptr at, size_t n) {
    entry_t hold;
    auto it = ranges.find((char *)at);
    if (it == ranges.end() || it->second.bytes != n) { return CUDA_ERROR_INVALID_VALUE; }
    for (auto &c : chunks) {
        if (c.second.at >= it->first && c.second.at < it->first + n) { return CUDA_ERROR_INVALID_VALUE; }
    }
    munmap(it->first, n);
    ranges.erase(it);
    counts.live_ranges--;
    return CUDA_SUCCESS;
}
static CUresult mem_create(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long) {
    entry_t hold;
    if (!n || n % GRANULARITY || p->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        p->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    cudaError_t e = may_allocate(n, p->location.id);
    if (e) { return driver_error(e); }
    used[p->location.id] += n;
    chunks[*h = next_chunk++] = {n, p->location.id, nullptr};
    counts.live_chunks++;
    return CUDA_SUCCESS;
}
static CUresult mem_release(CUmemGenericAllocationHandle h) {
    entry_t hold;
    auto it = chunks.find(h);
    if (it == chunks.end() || it->second.at) { return CUDA_ERROR_INVALID_VALUE; }   // we unmap first, always
    used[it->second.device] -= it->second.bytes;
    chunks.erase(it);
    counts.live_chunks--;
    return CUDA_SUCCESS;
}
static CUresult mem_map(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long) {
    entry_t hold;
    auto it = chunks.find(h);
    char *p = (char *)at;
    auto r = ranges.upper_bound(p);
    if (it == chunks.end() || it->second.at || it->second.bytes != n || offset || r == ranges.begin() ||
        (--r, p + n > r->first + r->second.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto &c : chunks) {
        if (c.second.at && c.second.at < p + n && p < c.second.at + c.second.bytes) { return CUDA_ERROR_INVALID_VALUE; }
    }
    cudaError_t e = call();
    if (e) { return driver_error(e); }
    it->second.at = p;
    return CUDA_SUCCESS;
}
static CUresult mem_access(CUdeviceptr at, size_t n, const CUmemAccessDesc *d, size_t count) {
    entry_t hold;
    char *p = (char *)at;
    cudaError_t e = call();
    if (e) { return driver_error(e); }
    unsigned open = 0;
    for (size_t k = 0; k < count; k++) {
        if (d[k].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || d[k].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            d[k].location.id < 0 || d[k].location.id >= config.devices) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        open |= 1u << d[k].location.id;
    }
    for (auto &c : chunks) {
        char *a = c.second.at;
        if (!a || a < p || a >= p + n) { continue; }
        if (a + c.second.bytes > p + n) { return CUDA_ERROR_INVALID_VALUE; }
        if (device_memory.count(a)) {           // more devices
            device_memory[a].open |= open;
            continue;
        }
        mprotect(a, c.second.bytes, PROT_READ | PROT_WRITE);
#ifdef MADV_HUGEPAGE
        madvise(a, c.second.bytes, MADV_HUGEPAGE);      // guard() has 16 pages of 32 MB then, not 8192
#endif
        std::memset(a, 0xFF, c.second.bytes);
        device_memory[a] = {c.second.bytes, c.second.bytes, c.second.device, true, true, open};
    }
    guard(false);
    return inside(device_memory, p, n) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// Real drivers do not wait here for work that still uses the memory: such work is a fault.
static CUresult mem_unmap(CUdeviceptr at, size_t n) {
    entry_t hold;
    char *p = (char *)at;
    if (capturing() && capture_mode != cudaStreamCaptureModeRelaxed) { return driver_error(forbidden()); }
    for (auto &c : chunks) {
        char *a = c.second.at;
        if (!a || a + c.second.bytes <= p || a >= p + n) { continue; }
        if (a < p || a + c.second.bytes > p + n) { return CUDA_ERROR_INVALID_VALUE; }
        madvise(a, c.second.bytes, MADV_DONTNEED);
        mprotect(a, c.second.bytes, PROT_NONE);
        device_memory.erase(a);
        recent_range[1] = nullptr;
        c.second.at = nullptr;
    }
    return CUDA_SUCCESS;
}
static CUresult context_state(CUdevice device, unsigned *flags, int *active) {
    entry_t hold;
    *flags = 0;
    *active = contexts >> device & 1;
    return CUDA_SUCCESS;
}
static CUresult error_text(CUresult e, const char **text) {
    *text = e == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "driver error (emulated)";
    return CUDA_SUCCESS;
}

static std::map<std::string, std::map<std::string, void *>> &libraries() {     // fakes add theirs before main
    static std::map<std::string, std::map<std::string, void *>> all = {{"libcuda.so.1", {
        {"cuMemGetAllocationGranularity", (void *)mem_granularity}, {"cuMemAddressReserve", (void *)mem_reserve},
        {"cuMemAddressFree", (void *)mem_address_free}, {"cuMemCreate", (void *)mem_create},
        {"cuMemRelease", (void *)mem_release}, {"cuMemMap", (void *)mem_map}, {"cuMemSetAccess", (void *)mem_access},
        {"cuMemUnmap", (void *)mem_unmap}, {"cuDevicePrimaryCtxGetState", (void *)context_state}, {"cuGetErrorString", (void *)error_text}}}};
    return all;
}

void *library_open(const char *name) {
    auto it = libraries().find(name);
    return it == libraries().end() || !std::strcmp(name, config.missing) ? nullptr : &it->second;
}
void *library_symbol(void *library, const char *name) {
    auto *l = (std::map<std::string, void *> *)library;
    auto it = l->find(name);
    return it == l->end() || !std::strcmp(name, config.missing) ? nullptr : it->second;
}
void library_fake(const char *library, const char *name, void *function) { libraries()[library][name] = function; }
bool library_call() { return call() == cudaSuccess; }

}  // namespace cusim

// ------------------------------------------------------------------------------------------------- the runtime's calls
#define API cudaError_t CUDARTAPI
#define TRY(e) do { cudaError_t e_ = (e); if (e_) { return e_; } } while (0)
extern "C" {

API cudaMalloc(void **p, size_t n) {
    entry_t hold;
    *p = nullptr;
    TRY(may_allocate(n, current_device));
    size_t pages = (n + PAGE - 1) & ~(size_t)(PAGE - 1);
    char *q = config.protect ? (char *)mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                             : exact(n);
    if (!q) { return fail(cudaErrorMemoryAllocation); }
    std::memset(q, 0xFF, n);
    device_memory[q] = {n, pages, current_device, config.protect, false};
    used[current_device] += n;
    counts.live_memory++;
    guard(false);
    *p = q;
    return cudaSuccess;
}
API cudaFree(void *p) {
    entry_t hold;
    touch();
    if (!p) { return cudaSuccess; }
    auto it = device_memory.find((char *)p);
    if (it == device_memory.end() || it->second.chunk) { return fail(cudaErrorInvalidValue); }
    if (capturing() && capture_mode != cudaStreamCaptureModeRelaxed) { return forbidden(); }
    finish_all();
    used[it->second.device] -= it->second.bytes;
    counts.live_memory--;
    if (it->second.own_pages) {
        munmap(p, it->second.mapped);
    } else {
        std::free(p);
    }
    device_memory.erase(it);
    recent_range[1] = nullptr;
    return status();
}
API cudaMallocHost(void **p, size_t n) {
    entry_t hold;
    *p = nullptr;
    TRY(may_allocate(0, current_device));
    *p = exact(n);
    pinned_memory[(char *)*p] = {n, n, 0, false, false};
    counts.live_pinned++;
    return cudaSuccess;
}
API cudaHostAlloc(void **p, size_t n, unsigned) { return cudaMallocHost(p, n); }
API cudaFreeHost(void *p) {
    entry_t hold;
    touch();
    if (!p) { return cudaSuccess; }
    if (!pinned_memory.erase((char *)p)) { return fail(cudaErrorInvalidValue); }
    finish_all();
    counts.live_pinned--;
    std::free(p);
    return cudaSuccess;
}
API cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
    entry_t hold;
    touch();
    *a = {};
    a->type = cudaMemoryTypeUnregistered;
    if (inside(pinned_memory, p, 1)) { a->type = cudaMemoryTypeHost; }
    if (on_device(p, 1)) {
        a->type = cudaMemoryTypeDevice;
        a->device = (--device_memory.upper_bound((char *)p))->second.device;
    }
    return cudaSuccess;
}
API cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    entry_t hold;
    *total = config.memory;
    *free_bytes = config.memory - std::min(config.memory, used[current_device]);
    return status();
}
API cudaGetDeviceCount(int *n) {
    entry_t hold;
    *n = std::max(0, config.devices);
    return config.devices > 0 ? cudaSuccess : fail(config.devices ? cudaErrorInsufficientDriver : cudaErrorNoDevice);
}
API cudaGetDevice(int *d) {
    entry_t hold;
    *d = current_device;
    return cudaSuccess;
}
API cudaSetDevice(int d) {
    entry_t hold;
    if (d < 0 || d >= config.devices) { return fail(cudaErrorInvalidDevice); }
    current_device = d;
    touch();
    return cudaSuccess;
}
API cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int) {
    entry_t hold;
    switch (a) {
    case cudaDevAttrMultiProcessorCount: *v = config.sms; break;
    case cudaDevAttrComputeCapabilityMajor: *v = config.capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *v = config.capability % 10; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
API cudaDriverGetVersion(int *v) { *v = config.driver; return cudaSuccess; }
API cudaRuntimeGetVersion(int *v) { *v = CUDART_VERSION; return cudaSuccess; }

API cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    entry_t hold;
    *s = nullptr;
    TRY(call());
    *s = new CUstream_st;
    (*s)->device = current_device;
    counts.live_streams++;
    return cudaSuccess;
}
API cudaStreamDestroy(cudaStream_t s) {
    entry_t hold;
    touch();
    finish(s->tail);
    delete s;
    counts.live_streams--;
    return cudaSuccess;
}
API cudaStreamSynchronize(cudaStream_t s) {
    entry_t hold;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (!s) { return fail(cudaErrorInvalidResourceHandle); }
    if (s->graph) { s->graph->broken = true; }
    if (s->graph || (capturing() && capture_mode != cudaStreamCaptureModeRelaxed)) { return forbidden(); }
    finish(s->tail);
    return status();
}
API cudaStreamQuery(cudaStream_t s) {
    entry_t hold;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (s->graph) { return forbidden(); }
    if (!s->tail || s->tail->done) { return cudaSuccess; }
    progress();                                 // a device works on while the host asks
    if (any_gated()) { give_way(); }            // asking on and on would keep the other rank from coming
    return fail(cudaErrorNotReady);
}
API cudaDeviceSynchronize(void) {
    entry_t hold;
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (capturing()) { return forbidden(); }
    finish_all();
    return status();
}
API cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind kind, cudaStream_t st) {
    entry_t hold;
    bool to = on_device(d, n), from = on_device(s, n);
    TRY(call());
    if (!st) { return fail(cudaErrorInvalidResourceHandle); }
    if (!n) { return cudaSuccess; }
    if (kind == cudaMemcpyDefault) {
        kind = to ? from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                  : from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
    }
    if ((kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ? !to : to) ||
        (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ? !from : from)) {
        return fail(cudaErrorInvalidValue);
    }
    const void *host = kind == cudaMemcpyHostToDevice ? s : kind == cudaMemcpyDeviceToHost ? d : nullptr;
    bool pageable = host && !inside(pinned_memory, host, n);
    if (pageable && st->graph) { return forbidden(); }
    if (pageable && kind == cudaMemcpyHostToDevice) {       // read before the call returns, written in stream order
        auto copy = std::make_shared<std::vector<char>>((const char *)s, (const char *)s + n);
        enqueue_work(st, [d, n, copy = std::move(copy)] { std::memcpy(d, copy->data(), n); });
        return cudaSuccess;
    }
    enqueue_work(st, [=] { std::memmove(d, s, n); });
    if (pageable) { finish(st->tail); }
    return status();
}
// Whether a device may use the memory there directly.
static bool opened_to(int device, const void *p) {
    auto it = device_memory.upper_bound((char *)p);
    const memory &m = (--it)->second;
    if (m.device == device) { return true; }
    return m.chunk ? m.open >> device & 1 : enabled[device] >> m.device & 1;
}
API cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    entry_t hold;
    TRY(call());
    *can = config.peers && device != peer;
    return cudaSuccess;
}
API cudaDeviceEnablePeerAccess(int peer, unsigned) {
    entry_t hold;
    TRY(call());
    if (peer == current_device || peer < 0 || peer >= config.devices) { return fail(cudaErrorInvalidDevice); }
    if (enabled[current_device] >> peer & 1) { return fail(cudaErrorPeerAccessAlreadyEnabled); }
    enabled[current_device] |= 1u << peer;
    return cudaSuccess;
}
API cudaMemcpyPeerAsync(void *d, int to, const void *s, int from, size_t n, cudaStream_t st) {
    entry_t hold;
    if (to < 0 || from < 0 || to >= config.devices || from >= config.devices) { return fail(cudaErrorInvalidDevice); }
    if (n && on_device(d, n) && on_device(s, n) && !(opened_to(from, d) && opened_to(to, s))) { counts.staged++; }
    return cudaMemcpyAsync(d, s, n, cudaMemcpyDeviceToDevice, st);
}
API cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st) {
    entry_t hold;
    TRY(call());
    if (!st || !on_device(d, n)) { return fail(cudaErrorInvalidValue); }
    if (st->device != current_device) { return fail(cudaErrorInvalidResourceHandle); }      // CUDA does not say
    enqueue_work(st, [=] { std::memset(d, v, n); });
    return cudaSuccess;
}
API cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *user) {
    entry_t hold;
    TRY(call());
    return enqueue(s, [=] { f(user); });
}

API cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    entry_t hold;
    *e = nullptr;
    TRY(call());
    *e = new CUevent_st;
    counts.live_events++;
    return cudaSuccess;
}
API cudaEventDestroy(cudaEvent_t e) {
    entry_t hold;
    touch();
    delete e;
    counts.live_events--;
    return cudaSuccess;
}
API cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    entry_t hold;
    TRY(call());
    if (!s || e->device != s->device) { return fail(cudaErrorInvalidResourceHandle); }
    e->graph = s->graph;
    e->at = nullptr;
    if (!s->graph) {
        e->at = push(s, nullptr);
        return cudaSuccess;
    }
    e->lane = s->lane;
    s->graph->nodes.push_back({s->lane, nullptr, -1});
    e->node = (int)s->graph->nodes.size() - 1;
    return cudaSuccess;
}
API cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    entry_t hold;
    TRY(call());
    if (!s) { return fail(cudaErrorInvalidResourceHandle); }
    if (e->graph) {
        CUgraph_st *g = e->graph;
        if (s->graph && s->graph != g) { return fail(cudaErrorStreamCaptureMerge); }
        if (!s->graph) {                                    // this is how a stream joins a capture
            s->graph = g;
            s->lane = (int)g->open.size();
            g->open.push_back(1);
        }
        bool last = true;
        for (size_t i = (size_t)e->node; i < g->nodes.size(); i++) {
            if (g->nodes[i].lane == e->lane && g->nodes[i].work) { last = false; }
        }
        if (last) { g->open[e->lane] = 0; }
        g->open[s->lane] = 1;
        g->nodes.push_back({s->lane, nullptr, e->node});
        return cudaSuccess;
    }
    if (s->graph) { return fail(cudaErrorStreamCaptureIsolation); }
    if (e->at) { push(s, nullptr, e->at); }
    return cudaSuccess;
}
API cudaEventSynchronize(cudaEvent_t e) {
    entry_t hold;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (e->graph) { return fail(cudaErrorCapturedEvent); }
    if (capturing() && capture_mode != cudaStreamCaptureModeRelaxed) { return forbidden(); }
    finish(e->at);
    return status();
}
API cudaEventQuery(cudaEvent_t e) {
    entry_t hold;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (e->graph) { return fail(cudaErrorCapturedEvent); }
    if (capturing() && capture_mode != cudaStreamCaptureModeRelaxed) { return forbidden(); }
    if (e->at && !e->at->done && random(2) && runnable(e->at->owner)) {
        guard(true);
        step(e->at->owner);
        guard(false);
    }
    if (e->at && !e->at->done) { return fail(cudaErrorNotReady); }
    if (e->at) { ACQUIRE(e->at.get()); }
    return status();
}

API cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    entry_t hold;
    touch();
    if (sticky) { return fail(cudaErrorLaunchFailure); }
    if (!from->at || !to->at) { return fail(cudaErrorInvalidResourceHandle); }
    if (!from->at->done || !to->at->done) { return fail(cudaErrorNotReady); }
    *ms = (float)(to->at->ms - from->at->ms);
    return cudaSuccess;
}

API cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    entry_t hold;
    TRY(call());
    if (s->graph) { return fail(cudaErrorIllegalState); }
    s->graph = new CUgraph_st;
    s->graph->origin = s;
    s->graph->mode = mode;
    s->graph->thread = this_thread;
    s->graph->open = {0};
    s->lane = 0;
    counts.live_graphs++;
    return cudaSuccess;
}
API cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
    entry_t hold;
    touch();
    CUgraph_st *g = s->graph;
    *out = nullptr;
    if (!g || g->origin != s) { return fail(cudaErrorStreamCaptureUnmatched); }
    for (CUstream_st *x : streams) {
        if (x->graph == g) { x->graph = nullptr; }
    }
    bool unjoined = false;
    for (size_t i = 1; i < g->open.size(); i++) { unjoined |= g->open[i] != 0; }
    if (!g->broken && !unjoined && !sticky) {
        *out = g;
        return cudaSuccess;
    }
    cudaError_t e = g->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
    delete g;
    counts.live_graphs--;
    return sticky ? fail(cudaErrorLaunchFailure) : fail(e);
}
API cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) {
    entry_t hold;
    *st = !s->graph ? cudaStreamCaptureStatusNone
        : s->graph->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return status();
}
API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    entry_t hold;
    std::swap(*mode, capture_mode);
    return status();
}
API cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) {
    entry_t hold;
    *x = nullptr;
    TRY(call());
    *x = new CUgraphExec_st;
    (*x)->nodes = g->nodes;
    for (size_t i = 0; i < g->open.size(); i++) { (*x)->lanes.push_back(std::make_unique<CUstream_st>()); }
    counts.live_graphs++;
    return cudaSuccess;
}
API cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    entry_t hold;
    TRY(call());
    if (!s || s->graph) { return fail(cudaErrorInvalidResourceHandle); }
    if (counts.launches++ == config.fail_launch) {
        sticky = true;
        return fail(cudaErrorLaunchFailure);
    }
    take_pool(s);
    token_p begin = push(s, nullptr);
    for (auto &l : x->lanes) {
        CUstream_st *lane = l.get(), *lender = lane == x->lanes[0].get() ? s : nullptr;
        if (!lender) { take_pool(lane); }
        push(lane, [lane, lender] { lane->lender = lender; }, begin);
    }
    std::vector<token_p> at;
    for (auto &n : x->nodes) {
        CUstream_st *lane = x->lanes[n.lane].get();
        const token_p wait = n.wait < 0 ? nullptr : at[n.wait];
        if (!n.begin) {
            at.push_back(push(lane, n.work, wait));
            continue;
        }
        gated_t work = n.begin();
        push(lane, std::move(work.before), wait);
        at.push_back(push(lane, std::move(work.behind), work.gate));
    }
    for (auto &l : x->lanes) { push(s, nullptr, l->tail); }
    return cudaSuccess;
}
// One whose run waits for another rank goes when that run ends, as in CUDA.
static std::vector<std::unique_ptr<CUgraphExec_st>> ending;
static bool ended(const std::unique_ptr<CUgraphExec_st> &x) {
    for (auto &l : x->lanes) {
        if (!l->queue.empty()) { return false; }
    }
    return true;
}
API cudaGraphExecDestroy(cudaGraphExec_t x) {
    entry_t hold;
    touch();
    x->nodes.clear();
    for (auto &l : x->lanes) {
        if (!any_gated()) { finish(l->tail); }
    }
    ending.emplace_back(x);
    ending.erase(std::remove_if(ending.begin(), ending.end(), ended), ending.end());
    counts.live_graphs--;
    return cudaSuccess;
}
API cudaGraphDestroy(cudaGraph_t g) {
    entry_t hold;
    touch();
    delete g;
    counts.live_graphs--;
    return cudaSuccess;
}
// For tests in C; fail_ counts from the present call on.
void cusim_set(const char *what, long value) {
    using namespace cusim;
    std::string w = what;
    if (w == "devices") { config.devices = (int)value; }
    if (w == "new_process") { contexts = 0, current_device = 0; }      // as far as devices are concerned
    if (w == "contexts" && contexts != (unsigned)value) { die("other devices were used than should have been"); }
    if (w == "peers") { config.peers = value != 0; }
    if (w == "staged") {
        if (counts.staged != value) { die("copies between devices took another way"); }
        counts.staged = 0;
    }
    if (w == "old_nccl") { config.missing = value ? "ncclCommInitRankConfig" : ""; }
    if (w == "shuffle") { config.shuffle = value != 0; }
    if (w == "sms") { config.sms = (int)value; }
    if (w == "driver") { config.driver = (int)value; }
    if (w == "capability") { config.capability = (int)value; }
    if (w == "protect") { config.protect = value != 0; }
    if (w == "random") { config.order = value ? RANDOM : LATE; }
    if (w == "eager") { config.order = value ? EAGER : LATE; }
    if (w == "seed") { seed((uint64_t)value); }
    if (w == "fail_launch") { config.fail_launch = value < 0 ? -1 : counts.launches + value; }
    if (w == "reset") { reset(); }
    if (w == "fail_alloc") { config.fail_alloc = value < 0 ? -1 : counts.allocs + value; }
    if (w == "full") { config.full_from = value < 0 ? -1 : counts.allocs + value; }
    if (w == "fail_call") { config.fail_call = value < 0 ? -1 : counts.calls + value; }
    if (w == "live") {
        if (counts.live_memory || counts.live_pinned || counts.live_chunks || counts.live_ranges || counts.live_streams ||
            counts.live_events || counts.live_graphs) {
            die("something of the device is still alive");
        }
    }
}
// What was done since cusim_set("reset"), for tests in C: launches, blocks of the largest one, sectors loaded and stored,
// accesses of the busiest thread.
void cusim_counted(long *five) {
    entry_t hold;
    finish_all();
    five[0] = counts.launches;
    five[1] = traffic.blocks;
    five[2] = traffic.load.sectors;
    five[3] = traffic.store.sectors;
    five[4] = traffic.longest;
}
API cudaGetLastError(void) {
    entry_t hold;
    cudaError_t e = last_error;
    if (!sticky) { last_error = cudaSuccess; }
    return e;
}
API cudaPeekAtLastError(void) { return last_error; }
const char *CUDARTAPI cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory"
         : e == cudaErrorLaunchFailure ? "unspecified launch failure" : "CUDA error (emulated)";
}

}

// ----------------------------------------------------------------------------------------------------------- sectors
#ifdef CUSIM_SECTORS
namespace cusim {

struct access_t {
    uint64_t request;               // the site's number, whether it stores, the warp, how often the thread was there
    uintptr_t at;
    unsigned bytes;
};
struct site_t {
    const void *place;
    uint64_t number;
    bool used;                      // by the block that runs
    unsigned turns[MAX_THREADS];    // how often each of its threads was there
};
enum { SITES_MOST = 1 << 16, BITS_OF_TURN = 32, BITS_OF_WARP = 5 };
static site_t *sites[SITES_MOST];                               // by a hash of the place
static std::vector<site_t *> sites_used;
static std::vector<access_t> accesses;                          // of the block that runs
static long own[MAX_THREADS];                                   // accesses of each thread
static uint64_t sites_known;
static bool counting;

static site_t &site_of(const void *place) {
    for (size_t k = ((uintptr_t)place * 0x9E3779B97F4A7C15u) >> 48;; k = (k + 1) % SITES_MOST) {
        if (!sites[k]) {
            if (sites_known + 1 == SITES_MOST) { die("too many places that access memory"); }
            sites[k] = new site_t();
            sites[k]->place = place;
            sites[k]->number = sites_known++;
        }
        if (sites[k]->place == place) { return *sites[k]; }
    }
}
static void sectors_of_block() {
    std::sort(accesses.begin(), accesses.end(), [](const access_t &a, const access_t &b) { return a.request < b.request; });
    std::vector<uintptr_t> touched;
    for (size_t i = 0; i < accesses.size();) {
        const uint64_t request = accesses[i].request;
        moved_t &to = request >> (BITS_OF_TURN + BITS_OF_WARP) & 1 ? traffic.store : traffic.load;
        touched.clear();
        for (; i < accesses.size() && accesses[i].request == request; i++) {
            const access_t &a = accesses[i];
            for (uintptr_t s = a.at / 32; s <= (a.at + a.bytes - 1) / 32; s++) { touched.push_back(s); }
            to.bytes += a.bytes;
        }
        std::sort(touched.begin(), touched.end());
        to.requests++;
        to.sectors += std::unique(touched.begin(), touched.end()) - touched.begin();
    }
    accesses.clear();
    for (site_t *s : sites_used) {
        s->used = false;
        std::memset(s->turns, 0, sizeof *s->turns * (size_t)B.n);
    }
    sites_used.clear();
    for (int t = 0; t < B.n; t++) {
        traffic.longest = std::max(traffic.longest, own[t]);
        own[t] = 0;
    }
}
static void accessed(const void *p, size_t bytes, bool store, const void *place) {
    if (!B.current || B.current == &B.host || counting || !bytes) { return; }
    const char *a = (const char *)p;
    if ((a < recent_range[0] || a + bytes > recent_range[1]) && !on_device(p, bytes)) { return; }
    counting = true;
    site_t &site = site_of(place);
    if (!site.used) {
        site.used = true;
        sites_used.push_back(&site);
    }
    const int thread = B.current->thread;
    const uint64_t head = (site.number << 1 | store) << BITS_OF_WARP | (uint64_t)thread / 32;
    own[thread]++;
    accesses.push_back({head << BITS_OF_TURN | site.turns[thread]++, (uintptr_t)p, (unsigned)bytes});
    counting = false;
}

}  // namespace cusim

extern "C" {
#define SITE __builtin_return_address(0)
void __tsan_init(void) { }
void __tsan_func_entry(void *) { }
void __tsan_func_exit(void) { }
void __tsan_vptr_update(void **, void *) { }
void __tsan_vptr_read(void **) { }
void __tsan_read_range(void *p, unsigned long n) { accessed(p, n, false, SITE); }
void __tsan_write_range(void *p, unsigned long n) { accessed(p, n, true, SITE); }
#define PLAIN(n)                                                                                             \
    void __tsan_read##n(void *p) { accessed(p, n, false, SITE); }                                            \
    void __tsan_write##n(void *p) { accessed(p, n, true, SITE); }                                            \
    void __tsan_unaligned_read##n(void *p) { accessed(p, n, false, SITE); }                                  \
    void __tsan_unaligned_write##n(void *p) { accessed(p, n, true, SITE); }
PLAIN(1) PLAIN(2) PLAIN(4) PLAIN(8) PLAIN(16)
#define ATOMIC(n, T)                                                                                         \
    T __tsan_atomic##n##_load(const volatile T *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }     \
    void __tsan_atomic##n##_store(volatile T *p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }     \
    T __tsan_atomic##n##_exchange(volatile T *p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
    T __tsan_atomic##n##_fetch_add(volatile T *p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
    T __tsan_atomic##n##_fetch_sub(volatile T *p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
    T __tsan_atomic##n##_fetch_and(volatile T *p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
    T __tsan_atomic##n##_fetch_or(volatile T *p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); } \
    T __tsan_atomic##n##_fetch_xor(volatile T *p, T v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
    int __tsan_atomic##n##_compare_exchange_strong(volatile T *p, T *c, T v, int, int) {                     \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
    }                                                                                                        \
    int __tsan_atomic##n##_compare_exchange_weak(volatile T *p, T *c, T v, int, int) {                       \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
    }                                                                                                        \
    T __tsan_atomic##n##_compare_exchange_val(volatile T *p, T c, T v, int, int) {                           \
        __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                    \
        return c;                                                                                            \
    }
ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { }
}
#endif

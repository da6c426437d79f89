// tensor.h - v0.1.0 - n-d tensors, define-by-run autograd and a CPU engine in one C header
// Licence: MIT-0 or public domain, at your choice; full text at the end of this file.
//
//   #define TENSOR_IMPLEMENTATION          // in exactly ONE .c/.cpp file, best a file of its own
//   #include "tensor.h"
//
//   float v[] = {1, 2, 3, 4};
//   tensor_t *x = tensor_requires_grad_(tensor_from(v, TENSOR_F32, 2, 2), 1);
//   tensor_t *loss = tensor_sum(tensor_mul(x, x));
//   tensor_backward(loss);
//   tensor_print(tensor_grad(x));          // tensor([[2., 4.],
//                                          //         [6., 8.]])
//
// CONTENTS (search for the tag)
//   >>manual  >>config  >>types  >>errors  >>context  >>scopes  >>create  >>inspect  >>views
//   >>pointwise  >>reduce  >>sort  >>linalg  >>index  >>random  >>autograd  >>sites  >>cpp
//   >>shared  >>ops  >>vocabulary
//   >>kernels  >>simd  >>kernel-pointwise  >>kernel-reduce  >>kernel-rows  >>kernel-gemm  >>kernel-random
//   >>kernel-table
//   >>impl  >>impl-platform  >>impl-state  >>impl-alloc  >>impl-errors  >>impl-backend  >>impl-context
//   >>impl-threads  >>impl-scopes
//   >>impl-front  >>impl-gate  >>impl-tape  >>impl-iterator  >>impl-cpu  >>impl-create  >>impl-inspect
//   >>impl-views  >>impl-pointwise  >>impl-reduce  >>impl-linalg  >>impl-index  >>impl-sort  >>impl-random
//   >>impl-autograd  >>impl-engine  >>impl-print  >>impl-table
//   >>license
//
// (A file includes itself once per instruction set to compile the CPU kernels; TENSOR__PASS says which.
//  Everything down to >>kernels is skipped in those passes.)
#ifndef TENSOR__PASS

#ifndef TENSOR_H_INCLUDED_7C1E
#define TENSOR_H_INCLUDED_7C1E

// ------------------------------------------------------------------------------
// >>manual                                         MARK: manual
//
// NAMES      A PyTorch user guesses them: tensor_ + the name in torch.*, torch.nn.functional.* or the tensor
//            method; a trailing _ works in place. Argument order, defaults, broadcasting, type promotion and
//            NaN rules are PyTorch's, except: sign(NaN) is NaN; float to integer conversion saturates (NaN
//            gives 0); shifts by too much give 0 or the sign; a scalar that is an integral number keeps an
//            integer tensor's dtype (0 and 1 a bool's), a fraction turns it to f32 (C has no weak scalar
//            types); u8 meets negative numbers by value; clamp passes the gradient on at its bounds; a 0-d
//            index tensor counts as a tensor (in Python as a number).
// SHAPES     variadic in C and C++: tensor_zeros(2, 3). Every such function has a plain twin ending in _n
//            that takes (const int64_t *dims, int ndim). At most 8 dimensions. A dim counts from the end when
//            < 0.
// OWNERSHIP  A tensor_t * returned by the library belongs to the innermost open scope of the calling thread.
//            There is nothing to free. tensor_scope_begin / _reset / _end empty it; tensor_scope_return hands
//            a result to the scope around; tensor_keep makes a tensor outlive every scope until tensor_free;
//            tensor_set carries a value from one loop turn to the next. Functions borrow their arguments.
// ERRORS     A function that fails returns the poison tensor (never NULL), and every function given poison
//            returns poison, so expressions nest and one check is enough: tensor_ok(), tensor_error_text().
//            The first error of a thread stays until tensor_clear_error(). Functions that make no tensor
//            return the code (0 = fine). Nothing aborts or exits. With no handler set, a thread's first error
//            is printed to stderr once (not under TENSOR_NO_STDIO).
// THREADS    Any number of threads may use the library. A tensor may be read by many threads; no two threads
//            may write one tensor at once. The library starts threads only after tensor_set_num_threads(n).
//            Results have the same bits for every number of threads.
// AUTOGRAD   Define-by-run: tensor_requires_grad_ marks a leaf, operations record themselves, tensor_backward
//            adds d loss / d leaf into tensor_grad(leaf). Under tensor_scope_begin_no_grad nothing is
//            recorded. Every gradient is made of differentiable operations (TENSOR_CREATE_GRAPH). Beyond
//            PyTorch: x.mul_(x) and other changes by the own value have right gradients; tensor_autograd_grad
//            gives hooked gradients for every input; a checkpoint notices changed inputs.
// DTYPES     f32 f64 i8 i16 i32 i64 u8 bool compute; f16 and bf16 are stored as such and computed in f32 with
//            correct rounding. No complex numbers, no FFT.
// CONFIG     define before the implementation: TENSOR_MALLOC/TENSOR_FREE (aligned, see >>config),
//            TENSOR_NO_STDIO, TENSOR_NO_THREADS, TENSOR_NO_SIMD, TENSOR_ASSERT(x), TENSOR_SELF (this file's
//            name when renamed), TENSOR_USE_OPENBLAS (larger products of f32 and f64 by cblas.h's functions,
//            with OpenBLAS's threads, bits and errors of long sums; link -lopenblas). Everywhere:
//            TENSOR_STATIC (all in one file), TENSOR_NO_CALL_SITES.
//            Environment: TENSOR_CPU=scalar|sse2|avx2|avx512|neon|wasm forces an instruction set,
//            TENSOR_REFERENCE=1 the plain double-precision formulas.
// READING    An op is a row of a table: search "X(SOFTMAX," for the row of softmax, which names its family,
//            CPU kernel and gradient; "FRONT(softmax," or "(tensor_cat_n)(" for a front, "X(EXP, exp)"
//            for those of one list; OP_SOFTMAX for who else asks for it.
// COMPILE    The implementation takes some 40 s at -O2: give it a file of its own and never pass
//            -DTENSOR_IMPLEMENTATION for all files. -ffast-math is refused (define TENSOR_ALLOW_FAST_MATH to
//            get memory safety and tolerances only).
// ------------------------------------------------------------------------------

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <initializer_list>
#endif

// ------------------------------------------------------------------------------
// >>config                                         MARK: config
//
// No macro here changes a public struct or the meaning of a public function, so files of one program may
// differ in everything but TENSOR_STATIC.
// ------------------------------------------------------------------------------

#define TENSOR_VERSION_MAJOR 0
#define TENSOR_VERSION_MINOR 1
#define TENSOR_VERSION_PATCH 0

#if defined(__GNUC__) || defined(__clang__)
#define TENSOR__UNUSED __attribute__((unused))
#else
#define TENSOR__UNUSED
#endif

#ifdef TENSOR_STATIC
#define TENSOR_API TENSOR__UNUSED static
#else
#define TENSOR_API extern
#endif

// A call site is one string, "file.c:41"; it travels into results and error texts. It begins with the name of
// the function and a byte 1: an op made of others has errors under its own name.
#define TENSOR__STR2(x) #x
#define TENSOR__STR(x) TENSOR__STR2(x)
#ifdef TENSOR_NO_CALL_SITES
#define TENSOR__SITE ((const char *)0)
#define TENSOR__SITE_OF(function) ""
#else
#define TENSOR__SITE __FILE__ ":" TENSOR__STR(__LINE__)
#define TENSOR__SITE_OF(function) #function "\1" __FILE__ ":" TENSOR__STR(__LINE__)
#endif
#define TENSOR_HERE TENSOR__SITE
#define TENSOR__IN(function) TENSOR__SITE_OF(function)

// Options are designated initialisers over one args struct per function: site_ first (which also allows an
// empty list), the positional arguments, surplus_ (a surplus positional argument warns, and replaces the
// value put there: an error at run time, even for 0), the options. In C++14 and later the members have
// initialisers, so that a partial list stays silent.
#define TENSOR_ARGS(function, type, ...)                                                                     \
    ((type){.surplus_ = TENSOR__NO_SURPLUS, .site_ = TENSOR__IN(function), __VA_ARGS__})
#define TENSOR__NO_SURPLUS ((const void *)1)
#if defined(__cplusplus) && __cplusplus >= 201402L
#define TENSOR_INIT {}
#else
#define TENSOR_INIT
#endif

// In a call with options a member that is 0 has PyTorch's default; TENSOR_ZERO says a real zero.
#define TENSOR_ZERO (-2147483647 - 1)

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>types                                          MARK: types
//
// tensor_t is opaque here; its layout stands in >>shared, so that a debugger shows it. Enumerators are stable
// within a major version; files store names, never numbers.
// ------------------------------------------------------------------------------

enum { TENSOR_MAX_DIMS = 8 };

typedef struct tensor_t tensor_t;
typedef struct tensor_context_t tensor_context_t;

typedef enum tensor_dtype_t {
    TENSOR_F32, TENSOR_F64, TENSOR_I32, TENSOR_I64, TENSOR_U8, TENSOR_BOOL, TENSOR_F16, TENSOR_BF16,
    TENSOR_I8, TENSOR_I16, TENSOR_DTYPE_COUNT,
    TENSOR_DTYPE_NONE = -1               // keeps the enum signed: an int given for it raises no warning
} tensor_dtype_t;

// Where data lies. TENSOR_CUDA + i is the i-th CUDA device. No device has the number of a dtype: tensor_to
// takes either.
typedef enum tensor_device_t {
    TENSOR_CPU = 64, TENSOR_CUDA = 65,
    TENSOR_DEVICE_NONE = -1              // as TENSOR_DTYPE_NONE
} tensor_device_t;

#define TENSOR_ERRORS(X)                                                                                     \
    X(OUT_OF_MEMORY, "out of memory")   X(SHAPE, "shapes do not fit")     X(DTYPE, "wrong dtype")            \
    X(DEVICE, "wrong device")           X(INDEX, "index out of range")    X(IO, "input/output failed")       \
    X(FORMAT, "malformed file")         X(AUTOGRAD, "autograd misuse")    X(OWNER, "ownership misuse")       \
    X(POISONED, "argument failed earlier") X(UNSUPPORTED, "unsupported")  X(CUDA, "CUDA failed")             \
    X(INTERNAL, "internal error")         X(LINALG, "matrix has no such result")

typedef enum tensor_code_t {
    TENSOR_OK = 0,
#define TENSOR__X(id, text) TENSOR_ERR_##id,
    TENSOR_ERRORS(TENSOR__X)
#undef TENSOR__X
    TENSOR_ERR_COUNT
} tensor_code_t;

typedef struct tensor_shape_t { int ndim; int64_t dims[TENSOR_MAX_DIMS]; } tensor_shape_t;
typedef struct tensor_pair_t { tensor_t *values, *indices; } tensor_pair_t;
typedef struct tensor_scope_t { void *thread; int64_t mark; uint32_t id; int grad_mode; } tensor_scope_t;
typedef struct tensor_generator_t { uint64_t seed, offset; } tensor_generator_t;

typedef struct tensor_memory_stats_t {
    int64_t live_tensors;      // headers that some scope, user or library object owns
    int64_t live_nodes;        // autograd nodes
    uint64_t live_bytes;       // tensor data and nodes in use
    uint64_t peak_bytes;       // highest live_bytes since start or tensor_reset_peak_memory
    uint64_t reserved_bytes;   // taken from the allocator, in use or cached
    uint64_t allocs, frees;    // calls to the allocator (malloc) since start
} tensor_memory_stats_t;

// ------------------------------------------------------------------------------
// >>errors                                         MARK: errors
//
// Poison plus one sticky text per thread instead of codes from every call: expressions must nest, and nobody
// checks 200 return values. Thread-safe: everything here is about the calling thread.
// ------------------------------------------------------------------------------

typedef void (*tensor_error_fn_t)(int code, const char *text, void *user);

// Whether the calling thread has no error pending.
//   -> 1 or 0;  errors none
TENSOR_API int tensor_ok(void);

// Code of the calling thread's first error since tensor_clear_error.
//   -> tensor_code_t, 0 = none;  errors none
TENSOR_API int tensor_error_code(void);

// Text of that error: op, argument, what was got and expected, call site, module path.
//   -> borrowed string, "" = none, valid until the thread's next library call;  errors none
TENSOR_API const char *tensor_error_text(void);

// Forgets the calling thread's error.
//   -> nothing;  errors none
TENSOR_API void tensor_clear_error(void);

// Short name of a code, "SHAPE".
//   -> borrowed string;  errors none
TENSOR_API const char *tensor_code_name(int code);

// Sets the function called once per first error (instead of the line on stderr), for all threads of the
// context.
//   fn      NULL restores the line on stderr
//   -> 0;  errors none
TENSOR_API int tensor_set_error_handler(tensor_error_fn_t fn, void *user);

// Raises an error from the user's own code (a custom function, a module): same stickiness, same text form.
//   code    tensor_code_t
//   what    e.g. "my_op: x must be 2-d"
//   -> code;  errors the one raised
TENSOR_API int tensor_raise(int code, const char *what);

// ------------------------------------------------------------------------------
// >>context                                        MARK: context, memory, threads
//
// Every byte of mutable state hangs in a context; a default one serves those who never name one. Rejected:
// plain globals (two users of the library in one program would share allocator, limits and handlers).
// ------------------------------------------------------------------------------

typedef struct tensor_allocator_t {
    // NULL = failed; never called with 0 bytes
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *p, size_t bytes, size_t alignment);
    void *user;
} tensor_allocator_t;

// Runs task(arg, i) for each i in 0..ntasks-1, in any order, on any threads, and returns when all are done.
typedef void (*tensor_parallel_fn_t)(void *user, int64_t ntasks, void (*task)(void *arg, int64_t i),
                                     void *arg);

// Version of the implementation linked in, major * 10000 + minor * 100 + patch.
//   -> int;  errors none
TENSOR_API int tensor_version(void);

// A new context with nothing shared with others; the calling thread goes on using its present one.
//   -> context, NULL when out of memory;  errors OUT_OF_MEMORY
TENSOR_API tensor_context_t *tensor_context_new(void);

// Makes a context the calling thread's (NULL = the default one).
//   -> the one used before;  errors OUT_OF_MEMORY
TENSOR_API tensor_context_t *tensor_context_use(tensor_context_t *context);

// Frees a context and all that lives in it; no other thread may be using it.
//   -> first error pending in it on the calling thread, else 0;  errors none
TENSOR_API int tensor_context_free(tensor_context_t *context);

// Frees everything the calling thread's context owns (tensors, modules, threads, caches). Every pointer the
// library gave is invalid afterwards, kept ones too (a C++ tensor_ref knows); the library itself can be used
// again. No other thread may be inside the library.
//   -> the calling thread's first error, 0 if none;  errors none
TENSOR_API int tensor_shutdown(void);

// Closes the calling thread's root scope and gives its caches back to the context (done by itself at thread
// exit).
//   -> nothing;  errors none
TENSOR_API void tensor_thread_end(void);

// Sets where memory comes from; only before the context's first allocation.
//   a       copied; NULL = TENSOR_MALLOC/TENSOR_FREE
//   -> code;  errors OWNER if memory was handed out already
TENSOR_API int tensor_set_allocator(const tensor_allocator_t *a);

// Bytes the context may take from the allocator; beyond it OUT_OF_MEMORY.
//   bytes   0 = no limit
//   -> 0;  errors none
TENSOR_API int tensor_set_memory_limit(uint64_t bytes);

// Figures of the calling thread's context.
//   -> struct;  errors none
TENSOR_API tensor_memory_stats_t tensor_memory_stats(void);

// Sets peak_bytes to live_bytes.
//   -> nothing;  errors none
TENSOR_API void tensor_reset_peak_memory(void);

// Gives the calling thread's cached free memory back to the allocator.
//   -> nothing;  errors none
TENSOR_API void tensor_empty_cache(void);

// Lists live tensors by creation site: "3 tensors  12288 bytes  mul at net.c:41". No other thread may be
// inside the library meanwhile.
//   text    buffer of size bytes (may be NULL if size is 0); always terminated
//   -> length the whole text has;  errors none
TENSOR_API size_t tensor_memory_report(char *text, size_t size);

// Number of threads kernels may use, the caller included. Starts or stops workers: not while another thread
// is in a library call.
//   n       1 (default) .. 256
//   -> code;  errors UNSUPPORTED under TENSOR_NO_THREADS when n > 1, SHAPE if n is out of range, INTERNAL
TENSOR_API int tensor_set_num_threads(int n);

// Number of threads kernels may use.
//   -> 1..256;  errors none
TENSOR_API int tensor_get_num_threads(void);

// Number of processors the machine offers.
//   -> >= 1;  errors none
TENSOR_API int tensor_num_processors(void);

// Runs kernels on the program's own job system instead of the library's workers.
//   fn      NULL = own workers again
//   n       how many tasks may run at once, 1..256
//   -> code;  errors SHAPE if n is out of range
TENSOR_API int tensor_set_parallel_for(tensor_parallel_fn_t fn, void *user, int n);

// Name of the instruction set kernels use: "scalar", "sse2", "avx2", "avx512", "neon", "wasm".
//   -> borrowed string;  errors none
TENSOR_API const char *tensor_cpu_name(void);

// Forces an instruction set: one of those names, "reference" (plain formulas in double) or NULL (the best).
//   -> code;  errors UNSUPPORTED if the machine or this build lacks it
TENSOR_API int tensor_set_cpu(const char *name);

// ------------------------------------------------------------------------------
// >>scopes                                         MARK: ownership
//
// Scopes over reference counts: seven ecosystems without destructors ended there. Rejected: one free per
// handle (nobody gets it right and expressions do not nest), arenas (the guess of their size is always
// wrong).
// ------------------------------------------------------------------------------

// Opens a scope: tensors made from now on by this thread belong to it. Remembers the grad mode.
//   -> scope, to be given to reset, end or return;  errors OUT_OF_MEMORY
TENSOR_API tensor_scope_t tensor_scope_begin(void);

// Opens a scope in which nothing is recorded for autograd.
//   -> scope;  errors OUT_OF_MEMORY
TENSOR_API tensor_scope_t tensor_scope_begin_no_grad(void);

// Opens a scope in which autograd records (inside a no-grad scope).
//   -> scope;  errors OUT_OF_MEMORY
TENSOR_API tensor_scope_t tensor_scope_begin_grad(void);

// Opens a scope of inference mode: nothing is recorded, not even inside tensor_scope_begin_grad, and what is
// made in it can never be saved for backward, nor be changed in place outside of it.
//   -> scope;  errors OUT_OF_MEMORY
TENSOR_API tensor_scope_t tensor_scope_begin_inference(void);

// Releases what the scope owns and leaves it open.
//   scope   also closes scopes opened inside it and left open
//   -> code;  errors OWNER if the scope has ended or is another thread's
TENSOR_API int tensor_scope_reset(tensor_scope_t scope);

// Releases what the scope owns, closes it and restores the grad mode of its begin.
//   -> code;  errors OWNER if the scope has ended or is another thread's
TENSOR_API int tensor_scope_end(tensor_scope_t scope);

// Ends the scope but hands one result to the scope around it.
//   t       owned by the scope: moved out; not owned by it: passes through
//   -> t;  errors OWNER as tensor_scope_end
TENSOR_API tensor_t *tensor_scope_return(tensor_scope_t scope, tensor_t *t);

// Adds a user reference that outlives scopes and threads; give it back with tensor_free.
//   -> t (borrowed);  errors OWNER if t is dead
TENSOR_API tensor_t *tensor_keep(tensor_t *t);

// Drops a tensor_keep if there is one, else the calling thread's scope reference.
//   t       NULL and poison do nothing
//   -> code;  errors OWNER if t is dead or neither kept nor owned by a scope of this thread
TENSOR_API int tensor_free(tensor_t *t);

// Loop-carried state: *handle becomes value and takes over the old one's owner; the old value goes.
//   handle  *handle NULL = value is kept (as tensor_keep)
//   value   poison is refused: the old value stays
//   -> code;  errors POISONED, OWNER
TENSOR_API int tensor_set(tensor_t **handle, tensor_t *value);

// ------------------------------------------------------------------------------
// >>create                                         MARK: creation
//
// Variadic names take the dims as arguments and make the default dtype: tensor_zeros(2, 3);
// tensor_zeros_of(TENSOR_I64, 2, 3) names one. The twins below (_n) are the plain functions behind them.
// All: -> new, contiguous;  grad none;  errors SHAPE (negative dim, too many dims, product over 2^63),
// OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// The dtype of numbers that name none, of the context: f32 unless set. It is what creation without a dtype
// makes, and what integers become in float functions; modules keep f32 parameters.
//   dtype   f32 f64 f16 bf16
//   -> code / dtype;  errors DTYPE
TENSOR_API int tensor_set_default_dtype(tensor_dtype_t dtype);
TENSOR_API tensor_dtype_t tensor_get_default_dtype(void);
// Where this thread's creation functions put their tensors: TENSOR_CPU unless set.
//   -> code / device;  errors DEVICE (no such device)
TENSOR_API int tensor_set_default_device(tensor_device_t device);
TENSOR_API tensor_device_t tensor_get_default_device(void);
// Uninitialised elements.                                                    -> new;  errors as above
TENSOR_API tensor_t *tensor_empty_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// Zeros.                                                                     -> new;  errors as above
TENSOR_API tensor_t *tensor_zeros_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// Ones.                                                                      -> new;  errors as above
TENSOR_API tensor_t *tensor_ones_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// A value everywhere. One outside the range of an integer dtype is an error, here and wherever a number is
// stored (fill_, masked_fill, clamp's bounds...; PyTorch wraps a negative one for u8).
//   -> new;  errors as above, DTYPE
TENSOR_API tensor_t *tensor_full_n(const int64_t *dims, int ndim, double value, tensor_dtype_t dtype);
// Shape and dtype of x, uninitialised / 0 / 1 / value.                        -> new;  errors as above
TENSOR_API tensor_t *tensor_empty_like(tensor_t *x);
TENSOR_API tensor_t *tensor_zeros_like(tensor_t *x);
TENSOR_API tensor_t *tensor_ones_like(tensor_t *x);
TENSOR_API tensor_t *tensor_full_like(tensor_t *x, double value);

// A 0-d tensor.
//   -> new;  grad none;  errors OUT_OF_MEMORY, DTYPE (as tensor_full_n)
TENSOR_API tensor_t *tensor_scalar(double value, tensor_dtype_t dtype);

// A copy of C data in row-major order.
//   data    product(dims) elements of dtype (bool as bytes, f16/bf16 as uint16_t); may be NULL when that is 0
//   -> new;  grad none;  errors as above, SHAPE if data is NULL
TENSOR_API tensor_t *tensor_from_n(const void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim);

// A tensor over the caller's memory, which must stay until the deleter runs.
//   data     dims/dtype as tensor_from_n, aligned to the element size
//   deleter  called once with (data, user) when the last user is gone; NULL = nothing to do
//   -> new;  grad none;  errors SHAPE if data is NULL or misaligned (then the deleter is not called)
TENSOR_API tensor_t *tensor_wrap_n(void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim,
                                   void (*deleter)(void *data, void *user), void *user);

// Values start, start + step, ... below end (above, if step < 0).
//   -> new [ceil((end - start) / step)];  grad none;  errors SHAPE if step is 0 or points away from end
TENSOR_API tensor_t *tensor_arange(double start, double end, double step, tensor_dtype_t dtype);

// n values from start to end, both included.
//   -> new [n];  grad none;  errors SHAPE if n < 0
TENSOR_API tensor_t *tensor_linspace(double start, double end, int64_t n);

// base to the n powers from start to end.
//   -> new [n];  grad none;  errors SHAPE if n < 0
TENSOR_API tensor_t *tensor_logspace(double start, double end, int64_t n, double base);

// Ones on the main diagonal.
//   -> new [n, m];  grad none;  errors SHAPE
TENSOR_API tensor_t *tensor_eye(int64_t n, int64_t m);

// Uninitialised elements, strides (>= 0, in elements) as given.
//   -> new;  grad none;  errors SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_empty_strided(const int64_t *dims, const int64_t *strides, int ndim,
                                          tensor_dtype_t dtype);

// Rows and columns of the elements on and below (above) the offset-th diagonal.
//   -> new [2, count] i64;  grad none;  errors SHAPE
TENSOR_API tensor_t *tensor_tril_indices(int64_t rows, int64_t cols, int64_t offset);
TENSOR_API tensor_t *tensor_triu_indices(int64_t rows, int64_t cols, int64_t offset);

// Each of n 1-d (0-d) tensors along its own dim of a grid. out receives n views, always filled.
//   indexing  "ij", or "xy": the first two dims swapped
//   -> code;  grad sums over the grid;  errors SHAPE, FORMAT
TENSOR_API int tensor_meshgrid(tensor_t *const *list, int n, const char *indexing, tensor_t **out);
// All tuples of one element of each of n 1-d tensors.   -> new [product, n] ([product] if n = 1);  grad sums;
// errors SHAPE
TENSOR_API tensor_t *tensor_cartesian_prod(tensor_t *const *list, int n);
// All choices of r elements of x [n] in order; with_replacement: an element may come again.
//   r   0..1024; 0 chooses nothing: [0]
//   -> new [count, r];  grad sums;  errors SHAPE
TENSOR_API tensor_t *tensor_combinations(tensor_t *x, int r, int with_replacement);
// n matrices (0-d and 1-d count as one row) along the diagonal, zeros beside.   -> new;  grad slices g;
// errors SHAPE
TENSOR_API tensor_t *tensor_block_diag(tensor_t *const *list, int n);
// x [..., n] as the offset-th diagonal of zeros, whose dims dim1, dim2 are new (PyTorch: 0, -2, -1).
//   -> new [..., m, m];  grad dx = diagonal of g;  errors SHAPE, INDEX
TENSOR_API tensor_t *tensor_diag_embed(tensor_t *x, int64_t offset, int64_t dim1, int64_t dim2);
// 1-d to a matrix with that diagonal, a matrix to its diagonal / any shape to a matrix.   -> new;
// grad as diag_embed;  errors SHAPE
TENSOR_API tensor_t *tensor_diag(tensor_t *x, int64_t diagonal);
TENSOR_API tensor_t *tensor_diagflat(tensor_t *x, int64_t offset);
// Powers n-1 .. 0 (increasing: 0 .. n-1) of x [m].   -> new [m, n];  grad as pow;  errors SHAPE
TENSOR_API tensor_t *tensor_vander(tensor_t *x, int64_t n, int increasing);

// A copy, recorded by autograd.
//   -> new, contiguous;  grad dx = g;  errors OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_clone(tensor_t *x);

// Another dtype or another device (x itself if it is so already). Float to integer truncates, saturates, NaN
// gives 0.
//   to   a dtype (TENSOR_F16) or a device (TENSOR_CPU, TENSOR_CUDA); copies to and from the CPU wait for it
//   -> new or x;  grad dx = g cast back, on x's device;  errors DTYPE, DEVICE (no such device), OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_to(tensor_t *x, int to);

// As tensor_to a device, but the host does not wait: x must be in pinned memory and stay as it is until the
// device has read it; a result on the CPU (pinned) is there after the stream was waited for.
//   -> new or x;  grad dx = g, on x's device;  errors DEVICE (no such device), OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_to_non_blocking(tensor_t *x, int to);

// A copy in memory of the host that a device reads and writes by itself (x itself if it lies there already).
//   -> new or x;  grad dx = g;  errors DEVICE (x on a device, CUDA is not started), OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_pin_memory(tensor_t *x);

// x itself if its elements lie in row-major order without gaps, else a copy that does.
//   -> new or x;  grad dx = g;  errors OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_contiguous(tensor_t *x);

// ------------------------------------------------------------------------------
// >>inspect                                        MARK: inspection
//
// Getters are safe on poison and NULL: sizes are 0, item is NaN, data is NULL.
// ------------------------------------------------------------------------------

// Number of dimensions.            -> 0..8;  errors none
TENSOR_API int tensor_ndim(tensor_t *x);
// All sizes by value.              -> struct;  errors none
TENSOR_API tensor_shape_t tensor_shape(tensor_t *x);
// Size along dim (< 0 from the end).   -> elements, 0 if dim is out of range (then INDEX);  errors INDEX
TENSOR_API int64_t tensor_size(tensor_t *x, int64_t dim);
// Stride along dim in elements.    -> elements;  errors INDEX
TENSOR_API int64_t tensor_stride(tensor_t *x, int64_t dim);
// Where the first element lies in the storage.   -> elements;  errors none
TENSOR_API int64_t tensor_storage_offset(tensor_t *x);
// Product of the sizes.            -> elements;  errors none
TENSOR_API int64_t tensor_numel(tensor_t *x);
// Element type.                    -> dtype, F32 for poison;  errors none
TENSOR_API tensor_dtype_t tensor_dtype(tensor_t *x);
// Where the data lies.             -> device;  errors none
TENSOR_API tensor_device_t tensor_device(tensor_t *x);
// Whether row-major without gaps.  -> 1 or 0;  errors none
TENSOR_API int tensor_is_contiguous(tensor_t *x);
// Whether the tensor is the result of a failure.   -> 1 or 0;  errors none
TENSOR_API int tensor_is_poison(tensor_t *x);
// Name of a dtype, "f32".          -> borrowed string;  errors none
TENSOR_API const char *tensor_dtype_name(tensor_dtype_t dtype);
// Bytes of one element.            -> 1, 2, 4 or 8;  errors none
TENSOR_API size_t tensor_dtype_size(tensor_dtype_t dtype);

// The first element in memory, for reading.
//   -> borrowed pointer, valid while x lives; NULL for poison and for no elements;  errors OWNER if x is dead
TENSOR_API const void *tensor_data(tensor_t *x);

// The same for writing: counts as an in-place change (autograd notices if a saved value is overwritten).
//   -> borrowed pointer;  errors OWNER if x is dead, AUTOGRAD for a leaf that requires grad while recording
TENSOR_API void *tensor_data_mut(tensor_t *x);

// The only element as a double (as an int64_t).
//   x       one element
//   -> value; NaN (0) on failure;  errors SHAPE if x has not exactly one element
TENSOR_API double tensor_item(tensor_t *x);
TENSOR_API int64_t tensor_item_i64(tensor_t *x);

// Copies all elements in row-major order into C memory.
//   data    numel elements of x's dtype; bytes says how large it is
//   -> code;  errors SHAPE if bytes is not numel * element size
TENSOR_API int tensor_copy_out(tensor_t *x, void *data, size_t bytes);

// Whether shapes are equal and |a - b| <= atol + rtol * |b| everywhere (PyTorch: rtol 1e-5, atol 1e-8).
//   -> 1 or 0;  errors DTYPE, POISONED
TENSOR_API int tensor_allclose(tensor_t *a, tensor_t *b, double rtol, double atol);

// Whether shapes, dtypes and all elements are equal.
//   -> 1 or 0;  errors POISONED
TENSOR_API int tensor_equal(tensor_t *a, tensor_t *b);

// The text tensor_print prints: PyTorch's form, summarised above 1000 elements.
//   text    buffer of size bytes (may be NULL if size is 0); always terminated
//   -> length the whole text has;  errors POISONED
TENSOR_API size_t tensor_to_string(tensor_t *x, char *text, size_t size);

#ifndef TENSOR_NO_STDIO
// Prints to stdout as PyTorch does.
//   -> code;  errors POISONED
TENSOR_API int tensor_print(tensor_t *x);
#endif

// ------------------------------------------------------------------------------
// >>views                                          MARK: views
//
// A view shares its source's storage: writing one writes the other, and in-place changes through a view are
// followed by autograd. All: -> view;  grad flows to x;  errors SHAPE, INDEX (dim or index out of range),
// UNSUPPORTED
// ------------------------------------------------------------------------------

// Other sizes over the same elements, at most one -1 is inferred. Copies when strides do not allow a view.
//   -> view (new if copied);  errors SHAPE
TENSOR_API tensor_t *tensor_reshape_n(tensor_t *x, const int64_t *dims, int ndim);
// The same, but never copies.                           -> view;  errors SHAPE if strides do not allow it
TENSOR_API tensor_t *tensor_view_n(tensor_t *x, const int64_t *dims, int ndim);
// Dims start..end (both included) become one.            -> view (new if copied);  errors INDEX
TENSOR_API tensor_t *tensor_flatten(tensor_t *x, int64_t start, int64_t end);
// Swaps two dims.                                        -> view;  errors INDEX
TENSOR_API tensor_t *tensor_transpose(tensor_t *x, int64_t dim0, int64_t dim1);
// Swaps the last two dims (PyTorch's x.mT).              -> view;  errors SHAPE if x has fewer than 2 dims
TENSOR_API tensor_t *tensor_mT(tensor_t *x);
// Dims in another order.                                 -> view;  errors INDEX
TENSOR_API tensor_t *tensor_permute_n(tensor_t *x, const int64_t *order, int ndim);
// Moves a dim to another place.                          -> view;  errors INDEX
TENSOR_API tensor_t *tensor_movedim(tensor_t *x, int64_t source, int64_t destination);
// Inserts a dim of size 1.                               -> view;  errors INDEX
TENSOR_API tensor_t *tensor_unsqueeze(tensor_t *x, int64_t dim);
// Removes a dim (several, all) of size 1; others stay.   -> view;  errors INDEX
TENSOR_API tensor_t *tensor_squeeze(tensor_t *x, int64_t dim);
TENSOR_API tensor_t *tensor_squeeze_dims(tensor_t *x, const int64_t *dims, int n);
TENSOR_API tensor_t *tensor_squeeze_all(tensor_t *x);
// dim becomes several, at most one -1 is inferred.       -> view (new if copied);  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_unflatten_n(tensor_t *x, int64_t dim, const int64_t *sizes, int n);
// One dim.                                               -> view (new if copied);  errors none
TENSOR_API tensor_t *tensor_ravel(tensor_t *x);
// All dims in reverse order.                             -> view;  errors none
TENSOR_API tensor_t *tensor_T(tensor_t *x);
// Other names of tensor_transpose.                       -> view;  errors INDEX
TENSOR_API tensor_t *tensor_swapaxes(tensor_t *x, int64_t dim0, int64_t dim1);
TENSOR_API tensor_t *tensor_swapdims(tensor_t *x, int64_t dim0, int64_t dim1);
// expand, reshape, view to the shape of other.           -> view;  errors SHAPE
TENSOR_API tensor_t *tensor_expand_as(tensor_t *x, tensor_t *other);
TENSOR_API tensor_t *tensor_reshape_as(tensor_t *x, tensor_t *other);
TENSOR_API tensor_t *tensor_view_as(tensor_t *x, tensor_t *other);
// Dims of size 1 added: [n] becomes [1, n], in 3-d [1, n, 1]; [m, n] becomes [m, n, 1].   -> view;
// errors none
TENSOR_API tensor_t *tensor_atleast_1d(tensor_t *x);
TENSOR_API tensor_t *tensor_atleast_2d(tensor_t *x);
TENSOR_API tensor_t *tensor_atleast_3d(tensor_t *x);
// The elements x[.., i, .., i + offset, ..] of dim1 and dim2, as a last dim.   -> view;  errors INDEX
TENSOR_API tensor_t *tensor_diagonal(tensor_t *x, int64_t offset, int64_t dim1, int64_t dim2);
// All windows of size elements along dim, step apart, as a last dim (Tensor.unfold).   -> view;  errors
// INDEX, SHAPE
TENSOR_API tensor_t *tensor_unfold_dim(tensor_t *x, int64_t dim, int64_t size, int64_t step);
// Shapes of n tensors broadcast to one.
//   out     receives n views, always filled
//   -> code;  errors SHAPE
TENSOR_API int tensor_broadcast_tensors(tensor_t *const *list, int n, tensor_t **out);
// [N, C, spatial..] with the channels innermost in memory (x itself if it lies so) / whether it lies so.
// CUDA's convolutions, pools, batch norm and pointwise ops keep that; other results are row-major.
//   -> new or x;  grad dx = g;  errors SHAPE
TENSOR_API tensor_t *tensor_channels_last(tensor_t *x);
TENSOR_API int tensor_is_channels_last(tensor_t *x);
// Dims of size 1 (or new leading ones) repeated without a copy; -1 keeps a size.   -> view;  errors SHAPE
TENSOR_API tensor_t *tensor_expand_n(tensor_t *x, const int64_t *dims, int ndim);
// length indices from start along dim.                   -> view;  errors INDEX
TENSOR_API tensor_t *tensor_narrow(tensor_t *x, int64_t dim, int64_t start, int64_t length);
// One index along dim, which disappears.                 -> view;  errors INDEX
TENSOR_API tensor_t *tensor_select(tensor_t *x, int64_t dim, int64_t index);
// start:end:step along dim, as Python slices (bounds are clamped).   -> view;  errors INDEX, SHAPE if step <
// 1
TENSOR_API tensor_t *tensor_slice(tensor_t *x, int64_t dim, int64_t start, int64_t end, int64_t step);
// Indexing in NumPy's notation: "1, -1, :, 2:, ::2, ..., None" (or newaxis); steps are positive. To assign:
// tensor_copy_(tensor_at(x, "0, 1:"), y).               -> view;  errors FORMAT, INDEX, SHAPE
TENSOR_API tensor_t *tensor_at(tensor_t *x, const char *index);
// Any strides and offset (elements) over x's storage.    -> view;  errors SHAPE if it leaves the storage
TENSOR_API tensor_t *tensor_as_strided(tensor_t *x, const int64_t *dims, const int64_t *strides, int ndim,
                                       int64_t offset);
// A copy of x in which the elements of that view are those of src (same shape as the view, no overlap).
//   -> new;  grad dx = g with the view zeroed, dsrc = the view of g;  errors SHAPE
TENSOR_API tensor_t *tensor_as_strided_scatter(tensor_t *x, tensor_t *src, const int64_t *dims,
                                               const int64_t *strides, int ndim, int64_t offset);
// A copy of x in which that select, slice or diagonal is src (of its shape).
//   -> new;  grad dx = g with the view zeroed, dsrc = the view of g;  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_select_scatter(tensor_t *x, tensor_t *src, int64_t dim, int64_t index);
TENSOR_API tensor_t *tensor_slice_scatter(tensor_t *x, tensor_t *src, int64_t dim, int64_t start,
                                          int64_t end, int64_t step);
TENSOR_API tensor_t *tensor_diagonal_scatter(tensor_t *x, tensor_t *src, int64_t offset, int64_t dim1,
                                             int64_t dim2);
// x cut along dim into views of size elements (the last may be smaller).
//   out     receives at most max views, in order; always filled (poison on failure)
//   -> how many there are;  errors SHAPE if size < 1 or max is too small, INDEX
TENSOR_API int tensor_split(tensor_t *x, int64_t size, int64_t dim, tensor_t **out, int max);
// x cut along dim into n views of nearly equal size (PyTorch's chunk).   -> how many, as tensor_split;
// errors SHAPE
TENSOR_API int tensor_chunk(tensor_t *x, int n, int64_t dim, tensor_t **out, int max);
// x cut into n views of the given sizes / into exactly n, the first ones larger / at n indices (n + 1 views)
// / into its selects along dim. out as above, of n, max, n + 1, max places.
//   -> how many;  errors INDEX, SHAPE (sizes do not add up, too few places)
TENSOR_API int tensor_split_with_sizes(tensor_t *x, const int64_t *sizes, int n, int64_t dim, tensor_t **out);
TENSOR_API int tensor_tensor_split(tensor_t *x, int n, int64_t dim, tensor_t **out, int max);
TENSOR_API int tensor_tensor_split_at(tensor_t *x, const int64_t *indices, int n, int64_t dim,
                                      tensor_t **out);
TENSOR_API int tensor_unbind(tensor_t *x, int64_t dim, tensor_t **out, int max);
// x cut into n equal views along dim 1 (0 if 1-d), 0, 2.   -> how many;  errors INDEX, SHAPE
TENSOR_API int tensor_hsplit(tensor_t *x, int n, tensor_t **out, int max);
TENSOR_API int tensor_vsplit(tensor_t *x, int n, tensor_t **out, int max);
TENSOR_API int tensor_dsplit(tensor_t *x, int n, tensor_t **out, int max);
// The same elements outside the graph.                   -> view;  grad none;  errors none
TENSOR_API tensor_t *tensor_detach(tensor_t *x);

// ------------------------------------------------------------------------------
// >>pointwise                                      MARK: pointwise
//
// Formulas, derivatives and docs are the rows of >>ops. Operands broadcast and promote as in PyTorch; float
// functions turn integers into the default dtype. Scalar twins take the scalar weakly: it does not widen the
// tensor's dtype. All: -> new, contiguous;  errors SHAPE (no broadcast), DTYPE, OUT_OF_MEMORY; integer x / 0:
// INDEX
// ------------------------------------------------------------------------------

// One operand.  -> new;  grad as the row says;  errors as above
TENSOR_API tensor_t *tensor_abs(tensor_t *x);
TENSOR_API tensor_t *tensor_acos(tensor_t *x);
TENSOR_API tensor_t *tensor_acosh(tensor_t *x);
TENSOR_API tensor_t *tensor_asin(tensor_t *x);
TENSOR_API tensor_t *tensor_asinh(tensor_t *x);
TENSOR_API tensor_t *tensor_atan(tensor_t *x);
TENSOR_API tensor_t *tensor_atanh(tensor_t *x);
TENSOR_API tensor_t *tensor_ceil(tensor_t *x);
TENSOR_API tensor_t *tensor_clamp(tensor_t *x, double lo, double hi);   // -INFINITY / INFINITY = no bound
TENSOR_API tensor_t *tensor_clamp_max(tensor_t *x, double hi);
TENSOR_API tensor_t *tensor_clamp_min(tensor_t *x, double lo);
TENSOR_API tensor_t *tensor_cos(tensor_t *x);
TENSOR_API tensor_t *tensor_cosh(tensor_t *x);
TENSOR_API tensor_t *tensor_deg2rad(tensor_t *x);
TENSOR_API tensor_t *tensor_digamma(tensor_t *x);                       // derivative of lgamma
TENSOR_API tensor_t *tensor_elu(tensor_t *x, double alpha);             // PyTorch's default alpha is 1
TENSOR_API tensor_t *tensor_erf(tensor_t *x);
TENSOR_API tensor_t *tensor_erfc(tensor_t *x);
TENSOR_API tensor_t *tensor_erfinv(tensor_t *x);
TENSOR_API tensor_t *tensor_exp(tensor_t *x);
TENSOR_API tensor_t *tensor_exp2(tensor_t *x);
TENSOR_API tensor_t *tensor_expm1(tensor_t *x);
TENSOR_API tensor_t *tensor_floor(tensor_t *x);
TENSOR_API tensor_t *tensor_frac(tensor_t *x);                          // x - trunc(x), floats
TENSOR_API tensor_t *tensor_gelu(tensor_t *x);                          // x * Phi(x), by erf
TENSOR_API tensor_t *tensor_gelu_tanh(tensor_t *x);                     // its tanh approximation
TENSOR_API tensor_t *tensor_hardsigmoid(tensor_t *x);
TENSOR_API tensor_t *tensor_hardswish(tensor_t *x);
TENSOR_API tensor_t *tensor_hardtanh(tensor_t *x, double lo, double hi);   // PyTorch: -1, 1
TENSOR_API tensor_t *tensor_leaky_relu(tensor_t *x, double slope);      // PyTorch's default slope is 0.01
TENSOR_API tensor_t *tensor_lgamma(tensor_t *x);                        // log |gamma(x)|
TENSOR_API tensor_t *tensor_log(tensor_t *x);
TENSOR_API tensor_t *tensor_log10(tensor_t *x);
TENSOR_API tensor_t *tensor_log1p(tensor_t *x);
TENSOR_API tensor_t *tensor_log2(tensor_t *x);
TENSOR_API tensor_t *tensor_logsigmoid(tensor_t *x);
TENSOR_API tensor_t *tensor_logit(tensor_t *x, double eps);             // x clamped to eps..1-eps; < 0 = not
TENSOR_API tensor_t *tensor_mish(tensor_t *x);
// NaN and infinities replaced (PyTorch: 0, NAN, NAN); posinf, neginf NaN = the dtype's largest, lowest number
TENSOR_API tensor_t *tensor_nan_to_num(tensor_t *x, double nan, double posinf, double neginf);
TENSOR_API tensor_t *tensor_neg(tensor_t *x);
TENSOR_API tensor_t *tensor_polygamma(int n, tensor_t *x);              // n-th derivative of digamma
TENSOR_API tensor_t *tensor_positive(tensor_t *x);                      // x itself; not bool
TENSOR_API tensor_t *tensor_rad2deg(tensor_t *x);
TENSOR_API tensor_t *tensor_reciprocal(tensor_t *x);
TENSOR_API tensor_t *tensor_relu(tensor_t *x);
TENSOR_API tensor_t *tensor_round(tensor_t *x);                         // half to even
TENSOR_API tensor_t *tensor_round_decimals(tensor_t *x, int decimals);  // floats; < 0 = before the point
TENSOR_API tensor_t *tensor_rsqrt(tensor_t *x);
TENSOR_API tensor_t *tensor_sgn(tensor_t *x);                           // sign
TENSOR_API tensor_t *tensor_sigmoid(tensor_t *x);
TENSOR_API tensor_t *tensor_sign(tensor_t *x);
TENSOR_API tensor_t *tensor_silu(tensor_t *x);
TENSOR_API tensor_t *tensor_sin(tensor_t *x);
TENSOR_API tensor_t *tensor_sinc(tensor_t *x);                          // sin(pi x) / (pi x)
TENSOR_API tensor_t *tensor_sinh(tensor_t *x);
TENSOR_API tensor_t *tensor_softplus(tensor_t *x, double beta, double threshold);   // PyTorch: 1, 20
TENSOR_API tensor_t *tensor_sqrt(tensor_t *x);
TENSOR_API tensor_t *tensor_square(tensor_t *x);
TENSOR_API tensor_t *tensor_tan(tensor_t *x);
TENSOR_API tensor_t *tensor_tanh(tensor_t *x);
TENSOR_API tensor_t *tensor_trunc(tensor_t *x);

// Two operands.  -> new;  grad as the row says, summed over broadcast dims;  errors as above
TENSOR_API tensor_t *tensor_add(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_atan2(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_copysign(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_div(tensor_t *a, tensor_t *b);              // true division: integers give f32
// The quotient cut by rounding_mode: "trunc", "floor", NULL = true division (PyTorch's div; no grad if cut)
TENSOR_API tensor_t *tensor_div_mode(tensor_t *a, tensor_t *b, const char *rounding_mode);
TENSOR_API tensor_t *tensor_float_power(tensor_t *a, tensor_t *b);      // a^b in f64
TENSOR_API tensor_t *tensor_floor_divide(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_fmax(tensor_t *a, tensor_t *b);             // a NaN gives the other
TENSOR_API tensor_t *tensor_fmin(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_fmod(tensor_t *a, tensor_t *b);             // sign of a, as C
TENSOR_API tensor_t *tensor_heaviside(tensor_t *x, tensor_t *values);   // x > 0, values where x is 0; no grad
TENSOR_API tensor_t *tensor_hypot(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_ldexp(tensor_t *a, tensor_t *b);            // a 2^b
TENSOR_API tensor_t *tensor_logaddexp(tensor_t *a, tensor_t *b);        // log(e^a + e^b)
TENSOR_API tensor_t *tensor_logaddexp2(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_maximum(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_minimum(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_mul(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_pow(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_remainder(tensor_t *a, tensor_t *b);        // sign of b, as Python
TENSOR_API tensor_t *tensor_sub(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_xlogy(tensor_t *a, tensor_t *b);            // a log(b), 0 where a is 0

// A tensor and a number.  -> new;  grad as the twin;  errors as above
TENSOR_API tensor_t *tensor_add_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_copysign_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_div_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_float_power_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_floor_divide_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_fmod_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_maximum_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_minimum_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_mul_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_pow_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_remainder_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_rpow_scalar(tensor_t *a, double b);         // b^a
TENSOR_API tensor_t *tensor_rsub_scalar(tensor_t *a, double b);         // b - a
TENSOR_API tensor_t *tensor_sub_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_xlogy_scalar(tensor_t *a, double b);

// Three operands.  -> new;  grad as the row says;  errors as above
TENSOR_API tensor_t *tensor_where(tensor_t *condition, tensor_t *a, tensor_t *b);
// a + weight * (b - a)
TENSOR_API tensor_t *tensor_lerp(tensor_t *a, tensor_t *b, tensor_t *weight);
TENSOR_API tensor_t *tensor_lerp_scalar(tensor_t *a, tensor_t *b, double weight);
// min(max(x, lo), hi) with tensors as bounds, which broadcast; one of them may be NULL (PyTorch: clamp)
TENSOR_API tensor_t *tensor_clamp_tensor(tensor_t *x, tensor_t *lo, tensor_t *hi);
TENSOR_API tensor_t *tensor_addcmul(tensor_t *x, tensor_t *a, tensor_t *b, double value); // x + value * a * b
TENSOR_API tensor_t *tensor_addcdiv(tensor_t *x, tensor_t *a, tensor_t *b, double value); // x + value * a / b

// Comparisons and logic.  -> new bool;  grad none;  errors as above
TENSOR_API tensor_t *tensor_eq(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_ge(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_gt(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_le(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_lt(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_ne(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_eq_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_ge_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_gt_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_le_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_lt_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_ne_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_logical_and(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_logical_or(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_logical_xor(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_logical_not(tensor_t *x);
TENSOR_API tensor_t *tensor_isnan(tensor_t *x);
TENSOR_API tensor_t *tensor_isinf(tensor_t *x);
TENSOR_API tensor_t *tensor_isfinite(tensor_t *x);
TENSOR_API tensor_t *tensor_isneginf(tensor_t *x);
TENSOR_API tensor_t *tensor_isposinf(tensor_t *x);
TENSOR_API tensor_t *tensor_signbit(tensor_t *x);
// |a - b| <= atol + rtol |b| (PyTorch: 1e-5, 1e-8, 0); equal_nan: NaN equals NaN. One dtype.
TENSOR_API tensor_t *tensor_isclose(tensor_t *a, tensor_t *b, double rtol, double atol, int equal_nan);

// Bits of integers and bools.  -> new;  grad none;  errors as above, DTYPE for floats
TENSOR_API tensor_t *tensor_bitwise_and(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_or(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_xor(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_not(tensor_t *x);
TENSOR_API tensor_t *tensor_bitwise_left_shift(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_right_shift(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_and_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_bitwise_or_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_bitwise_xor_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_bitwise_left_shift_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_bitwise_right_shift_scalar(tensor_t *a, double b);

// In place: x keeps shape and dtype, may be a view; the other operand broadcasts to x.
//   -> x;  grad as the twin;  errors SHAPE (x would grow), DTYPE (category would change), AUTOGRAD (leaf that
//      requires grad, expanded x)
TENSOR_API tensor_t *tensor_add_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_sub_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_mul_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_div_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_add_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_sub_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_mul_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_div_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_pow_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_pow_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_remainder_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_remainder_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_fmod_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_fmod_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_floor_divide_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_floor_divide_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_bitwise_and_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_and_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_bitwise_or_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_or_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_bitwise_xor_(tensor_t *x, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_xor_scalar_(tensor_t *x, double b);
TENSOR_API tensor_t *tensor_lerp_(tensor_t *x, tensor_t *b, tensor_t *weight);
TENSOR_API tensor_t *tensor_lerp_scalar_(tensor_t *x, tensor_t *b, double weight);
TENSOR_API tensor_t *tensor_addcdiv_(tensor_t *x, tensor_t *a, tensor_t *b, double value);
TENSOR_API tensor_t *tensor_addcmul_(tensor_t *x, tensor_t *a, tensor_t *b, double value);
TENSOR_API tensor_t *tensor_abs_(tensor_t *x);
TENSOR_API tensor_t *tensor_clamp_(tensor_t *x, double lo, double hi);
TENSOR_API tensor_t *tensor_ceil_(tensor_t *x);
TENSOR_API tensor_t *tensor_cos_(tensor_t *x);
TENSOR_API tensor_t *tensor_erf_(tensor_t *x);
TENSOR_API tensor_t *tensor_erfinv_(tensor_t *x);
TENSOR_API tensor_t *tensor_exp2_(tensor_t *x);
TENSOR_API tensor_t *tensor_expm1_(tensor_t *x);
TENSOR_API tensor_t *tensor_floor_(tensor_t *x);
TENSOR_API tensor_t *tensor_log_(tensor_t *x);
TENSOR_API tensor_t *tensor_log10_(tensor_t *x);
TENSOR_API tensor_t *tensor_log1p_(tensor_t *x);
TENSOR_API tensor_t *tensor_log2_(tensor_t *x);
TENSOR_API tensor_t *tensor_reciprocal_(tensor_t *x);
TENSOR_API tensor_t *tensor_round_(tensor_t *x);
TENSOR_API tensor_t *tensor_rsqrt_(tensor_t *x);
TENSOR_API tensor_t *tensor_sign_(tensor_t *x);
TENSOR_API tensor_t *tensor_sin_(tensor_t *x);
TENSOR_API tensor_t *tensor_square_(tensor_t *x);
TENSOR_API tensor_t *tensor_tan_(tensor_t *x);
TENSOR_API tensor_t *tensor_trunc_(tensor_t *x);
TENSOR_API tensor_t *tensor_clamp_max_(tensor_t *x, double hi);
TENSOR_API tensor_t *tensor_clamp_min_(tensor_t *x, double lo);
TENSOR_API tensor_t *tensor_elu_(tensor_t *x, double alpha);
TENSOR_API tensor_t *tensor_hardtanh_(tensor_t *x, double lo, double hi);
TENSOR_API tensor_t *tensor_leaky_relu_(tensor_t *x, double slope);
TENSOR_API tensor_t *tensor_nan_to_num_(tensor_t *x, double nan, double posinf, double neginf);
TENSOR_API tensor_t *tensor_exp_(tensor_t *x);
TENSOR_API tensor_t *tensor_neg_(tensor_t *x);
TENSOR_API tensor_t *tensor_relu_(tensor_t *x);
TENSOR_API tensor_t *tensor_sigmoid_(tensor_t *x);
TENSOR_API tensor_t *tensor_sqrt_(tensor_t *x);
TENSOR_API tensor_t *tensor_tanh_(tensor_t *x);
TENSOR_API tensor_t *tensor_copy_(tensor_t *x, tensor_t *src);
TENSOR_API tensor_t *tensor_fill_(tensor_t *x, double value);
TENSOR_API tensor_t *tensor_zero_(tensor_t *x);
TENSOR_API tensor_t *tensor_masked_fill_(tensor_t *x, tensor_t *mask, double value);

// ------------------------------------------------------------------------------
// >>reduce                                         MARK: reductions, softmax
//
// Sums run in fixed lanes and leaves with double on top, so the error is O(log n) and bits do not depend on
// threads. NaN propagates; ties and empty inputs as PyTorch. A _dim function takes one dim and keepdim (0 or
// 1). All: -> new;  errors INDEX (dim), SHAPE (empty where there is no neutral value), DTYPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// All elements.  -> new 0-d;  grad spreads g;  errors as above
TENSOR_API tensor_t *tensor_sum(tensor_t *x);                           // integers and bool give i64
TENSOR_API tensor_t *tensor_mean(tensor_t *x);
TENSOR_API tensor_t *tensor_prod(tensor_t *x);
TENSOR_API tensor_t *tensor_max(tensor_t *x);                           // grad split evenly among ties
TENSOR_API tensor_t *tensor_min(tensor_t *x);
// i64, first of ties, NaN wins; no grad
TENSOR_API tensor_t *tensor_argmax(tensor_t *x);
TENSOR_API tensor_t *tensor_argmin(tensor_t *x);
TENSOR_API tensor_t *tensor_any(tensor_t *x);                           // bool; no grad
TENSOR_API tensor_t *tensor_all(tensor_t *x);
// divides by n - correction (PyTorch: 1)
TENSOR_API tensor_t *tensor_var(tensor_t *x, int64_t correction);
TENSOR_API tensor_t *tensor_std(tensor_t *x, int64_t correction);
TENSOR_API tensor_t *tensor_norm(tensor_t *x);                          // 2-norm, scaled against overflow

// One dim.  -> new;  grad as above, amax/amin split ties, max_dim/min_dim to the chosen index;  errors as
// above
TENSOR_API tensor_t *tensor_sum_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_mean_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_prod_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_amax_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_amin_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_pair_t tensor_max_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_pair_t tensor_min_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_argmax_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_argmin_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_any_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_all_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_var_dim(tensor_t *x, int64_t dim, int64_t correction, int keepdim);
TENSOR_API tensor_t *tensor_std_dim(tensor_t *x, int64_t dim, int64_t correction, int keepdim);
TENSOR_API tensor_t *tensor_norm_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_t *tensor_logsumexp(tensor_t *x, int64_t dim, int keepdim);

// Several dims at once, n = 0 means all. PyTorch's dtype= is tensor_sum_dims(tensor_to(x, dtype), ...).
//   -> new;  grad as the function of one dim;  errors as above
TENSOR_API tensor_t *tensor_sum_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_mean_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_prod_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_amax_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_amin_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_any_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_all_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_logsumexp_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_var_dims(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                     int keepdim);
TENSOR_API tensor_t *tensor_std_dims(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                     int keepdim);
// How many elements are not 0.   -> new i64;  grad none;  errors as above
TENSOR_API tensor_t *tensor_count_nonzero(tensor_t *x);
TENSOR_API tensor_t *tensor_count_nonzero_dims(tensor_t *x, const int64_t *dims, int n);
// Sum and mean of the elements that are not NaN.   -> new;  grad as sum and mean, 0 at NaN;  errors as above
TENSOR_API tensor_t *tensor_nansum(tensor_t *x);
TENSOR_API tensor_t *tensor_nansum_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_nanmean(tensor_t *x);
TENSOR_API tensor_t *tensor_nanmean_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
// p-norm (sum |x|^p)^(1/p) of all elements or over dims; p = INFINITY: largest |x|, -INFINITY: smallest,
// 0: how many are not 0.
//   -> new, dtype of x;  grad 0 where the norm or x is 0;  errors as above
TENSOR_API tensor_t *tensor_norm_p(tensor_t *x, double p);
TENSOR_API tensor_t *tensor_norm_p_dims(tensor_t *x, double p, const int64_t *dims, int n, int keepdim);

// Two results: the first is returned, the second stored (poison on failure).
//   mean, largest   receives the second, owned like the first; NULL = not wanted
//   -> variance (deviation, minimum), new;  grad as the single functions;  errors as above
TENSOR_API tensor_t *tensor_var_mean(tensor_t *x, int64_t correction, tensor_t **mean);
TENSOR_API tensor_t *tensor_var_mean_dims(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                          int keepdim, tensor_t **mean);
TENSOR_API tensor_t *tensor_std_mean(tensor_t *x, int64_t correction, tensor_t **mean);
TENSOR_API tensor_t *tensor_std_mean_dims(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                          int keepdim, tensor_t **mean);
TENSOR_API tensor_t *tensor_aminmax(tensor_t *x, tensor_t **largest);
TENSOR_API tensor_t *tensor_aminmax_dim(tensor_t *x, int64_t dim, int keepdim, tensor_t **largest);

// Running sum along dim (integers give i64).
//   -> new, shape of x;  grad dx = reverse cumsum of g;  errors INDEX
TENSOR_API tensor_t *tensor_cumsum(tensor_t *x, int64_t dim);
// Running product along dim (integers give i64).
//   -> new, shape of x;  grad exact with zeros, no division;  errors INDEX
TENSOR_API tensor_t *tensor_cumprod(tensor_t *x, int64_t dim);
// Running log(sum(exp)) along dim, stable.   -> new, shape of x;  grad by weights <= 1;  errors INDEX, DTYPE
TENSOR_API tensor_t *tensor_logcumsumexp(tensor_t *x, int64_t dim);
// Running maximum (minimum) along dim and where it stood, the last of ties; NaN stays.
//   -> pair of new, shape of x, indices i64;  grad to the chosen index;  errors INDEX
TENSOR_API tensor_pair_t tensor_cummax(tensor_t *x, int64_t dim);
TENSOR_API tensor_pair_t tensor_cummin(tensor_t *x, int64_t dim);
// n-th difference of neighbours along dim (bool: whether they differ).
//   -> new, n fewer along dim, at least 0;  grad as sub;  errors INDEX, SHAPE (0-d, n < 0)
TENSOR_API tensor_t *tensor_diff(tensor_t *x, int64_t n, int64_t dim);
// Integral of y along dim by the trapezoidal rule; cumulative: the running one, one element fewer than y.
//   x       places of the samples, [size of dim] or broadcasting to y; NULL = dx apart
//   -> new;  grad as sub, mul, sum;  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_trapezoid(tensor_t *y, tensor_t *x, double dx, int64_t dim);
TENSOR_API tensor_t *tensor_cumulative_trapezoid(tensor_t *y, tensor_t *x, double dx, int64_t dim);

// exp(x) / sum(exp(x)) along dim, stable: the maximum is subtracted first.
//   -> new, shape of x;  grad dx = y * (g - sum(g * y)), saves y;  errors INDEX, DTYPE (not a float)
TENSOR_API tensor_t *tensor_softmax(tensor_t *x, int64_t dim);

// x - logsumexp(x) along dim.
//   -> new, shape of x;  grad dx = g - exp(y) * sum(g), saves y;  errors INDEX, DTYPE (not a float)
TENSOR_API tensor_t *tensor_log_softmax(tensor_t *x, int64_t dim);

// p-norm of a - b (they broadcast).   -> new 0-d;  grad as norm_p;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_dist(tensor_t *a, tensor_t *b, double p);
// p-norm of the difference of every row of a and every row of b. p = 2 with more than 25 rows goes by matmul,
// as PyTorch (faster, less exact for near rows).
//   a, b    [..., M, K], [..., N, K]; leading dims broadcast
//   -> new [..., M, N];  grad as norm_p;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_cdist(tensor_t *a, tensor_t *b, double p);
// Slices along dim whose p-norm is above maxnorm are scaled down to it.
//   -> new, shape of x;  grad as norm_p, mul;  errors INDEX, SHAPE (fewer than 2 dims, p <= 0, maxnorm < 0)
TENSOR_API tensor_t *tensor_renorm(tensor_t *x, double p, int64_t dim, double maxnorm);
// Covariance of variables (rows) over observations (columns).
//   x         [variables, observations] or [observations]
//   correction  the divisor is observations - correction (PyTorch: 1)
//   fweights  i64 [observations], how often each counts; aweights  float >= 0, its weight; NULL = 1
//   -> new [variables, variables], 0-d for one;  grad as matmul;  errors SHAPE, DTYPE, INDEX (weight < 0)
TENSOR_API tensor_t *tensor_cov(tensor_t *x, int64_t correction, tensor_t *fweights, tensor_t *aweights);
// Correlation coefficients, within -1..1.   -> new, shapes as cov;  grad as cov, div;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_corrcoef(tensor_t *x);

// ------------------------------------------------------------------------------
// >>sort                                           MARK: sorting, selection, counting
//
// NaN is the largest value and -0 equals 0; sorts are stable always. The value of a pair is gathered, so its
// gradient goes to the chosen places. All: -> new;  errors INDEX (dim), SHAPE, DTYPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// Sorted along dim, and where each element stood (msort: along dim 0, values alone).
//   -> pair of new, shape of x, indices i64;  grad to those places;  errors INDEX
TENSOR_API tensor_pair_t tensor_sort(tensor_t *x, int64_t dim, int descending);
TENSOR_API tensor_t *tensor_msort(tensor_t *x);
// The indices alone.   -> new i64, shape of x;  grad none;  errors INDEX
TENSOR_API tensor_t *tensor_argsort(tensor_t *x, int64_t dim, int descending);
// The k largest (or smallest) along dim, best first if sorted, else in the order of x; the first of ties.
//   k       0..size of dim
//   largest, sorted   PyTorch: 1, 1
//   -> pair of new, k along dim, indices i64;  grad to those places;  errors INDEX, SHAPE (k out of range)
TENSOR_API tensor_pair_t tensor_topk(tensor_t *x, int64_t k, int64_t dim, int largest, int sorted);
// The k-th smallest along dim, k from 1.   -> pair of new;  grad to that place;  errors INDEX, SHAPE (k)
TENSOR_API tensor_pair_t tensor_kthvalue(tensor_t *x, int64_t k, int64_t dim, int keepdim);
// Median, the lower of two; NaN if there is one (nanmedian: of the others). Without dim: of all elements, NaN
// if there are none.
//   -> new 0-d, or pair of new;  grad split evenly among ties, with dim to that place;  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_median(tensor_t *x);
TENSOR_API tensor_t *tensor_nanmedian(tensor_t *x);
TENSOR_API tensor_pair_t tensor_median_dim(tensor_t *x, int64_t dim, int keepdim);
TENSOR_API tensor_pair_t tensor_nanmedian_dim(tensor_t *x, int64_t dim, int keepdim);
// The most frequent value along dim, the smallest of ties, and its last place.
//   -> pair of new;  grad to that place;  errors INDEX, SHAPE (no element along dim)
TENSOR_API tensor_pair_t tensor_mode(tensor_t *x, int64_t dim, int keepdim);
// q-quantiles of all elements or along dim; NaN if there is one (nanquantile: of the others).
//   x       f32 or f64
//   q       0-d or [Q], values 0..1
//   interpolation   "linear" (NULL), "lower", "higher", "midpoint", "nearest"
//   -> new, [Q] in front of the dims left if q is 1-d;  grad to the two places;  errors as above, SHAPE (q)
TENSOR_API tensor_t *tensor_quantile(tensor_t *x, tensor_t *q);
TENSOR_API tensor_t *tensor_nanquantile(tensor_t *x, tensor_t *q);
TENSOR_API tensor_t *tensor_quantile_dim(tensor_t *x, tensor_t *q, int64_t dim, int keepdim,
                                         const char *interpolation);
TENSOR_API tensor_t *tensor_nanquantile_dim(tensor_t *x, tensor_t *q, int64_t dim, int keepdim,
                                            const char *interpolation);
// The different values of x in rising order (unique_consecutive: each run of equal ones, in the order of x).
//   inverse   NULL, or receives i64 [shape of x]: which value each element is
//   counts    NULL, or receives i64 [n]: how often each value is there (in the run)
//   -> new [n];  grad none;  errors as above
TENSOR_API tensor_t *tensor_unique(tensor_t *x, tensor_t **inverse, tensor_t **counts);
TENSOR_API tensor_t *tensor_unique_consecutive(tensor_t *x, tensor_t **inverse, tensor_t **counts);
// The same for slices along dim, ordered by their first difference; inverse is [size of dim].
//   -> new, shape of x but n along dim;  grad none;  errors as above
TENSOR_API tensor_t *tensor_unique_dim(tensor_t *x, int64_t dim, tensor_t **inverse, tensor_t **counts);
TENSOR_API tensor_t *tensor_unique_consecutive_dim(tensor_t *x, int64_t dim, tensor_t **inverse,
                                                   tensor_t **counts);
// Where values would go into sorted so that it stays so: before its equals, or behind them if right.
//   sorted  [n] for all values, or [..., n] with the leading dims of values; rising
//   values  dtype of sorted
//   -> new i64, shape of values, 0..n;  grad none;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_searchsorted(tensor_t *sorted, tensor_t *values, int right);
// The same with one list of boundaries.   -> new i64, shape of x;  grad none;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_bucketize(tensor_t *x, tensor_t *boundaries, int right);
// Which elements of x are among those of test (dtypes promote; NaN is in nothing).
//   -> new bool, shape of x;  grad none;  errors DTYPE
TENSOR_API tensor_t *tensor_isin(tensor_t *x, tensor_t *test);
// How often each integer 0, 1, .. is in x, or the sum of the weights of its places.
//   x         integers >= 0, [n]
//   weights   NULL, or [n]
//   -> new [max(largest + 1, minlength)], i64, or dtype of weights (f64 if not f32);  grad none;  errors as
//      above, INDEX (a negative value)
TENSOR_API tensor_t *tensor_bincount(tensor_t *x, tensor_t *weights, int64_t minlength);
// How many elements lie in each of equal bins from low to high, high included; others are left out.
//   low, high   both 0: the smallest and the largest element
//   -> new [bins], dtype of x;  grad none;  errors SHAPE (bins < 1, high < low, infinite range), DTYPE
TENSOR_API tensor_t *tensor_histc(tensor_t *x, int64_t bins, double low, double high);

// ------------------------------------------------------------------------------
// >>linalg                                         MARK: matrix products, linear algebra
//
// One packed, register-tiled GEMM serves all products in all transposes (views cost nothing). Accumulation
// order depends on shapes alone. Decompositions are own, plain algorithms in double (below).
// ------------------------------------------------------------------------------

// Matrix product with PyTorch's rules for 1-d, 2-d and batched, broadcast operands.
//   a       [K], [M, K] or [..., M, K], any dtype but bool (integers by plain loops, wrapping)
//   b       [K], [K, N] or [..., K, N], dtype of a
//   -> new [..., M, N] (1-d operands lose their dim);  grad da = g bT, db = aT g
//   errors  SHAPE (K differs, batch dims do not broadcast), DTYPE
TENSOR_API tensor_t *tensor_matmul(tensor_t *a, tensor_t *b);
// a [M, K], b [K, N].                  -> new [M, N];  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_mm(tensor_t *a, tensor_t *b);
// a [B, M, K], b [B, K, N].            -> new [B, M, N];  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_bmm(tensor_t *a, tensor_t *b);
// a [M, K], b [K].                     -> new [M];  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_mv(tensor_t *a, tensor_t *b);
// a [N], b [N].                        -> new 0-d;  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_dot(tensor_t *a, tensor_t *b);
// a [M], b [N].                        -> new [M, N];  grad as mul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_outer(tensor_t *a, tensor_t *b);
// beta * x + alpha * (a b), x broadcasts to [M, N].     -> new [M, N];  grad as mul/matmul;  errors SHAPE,
// DTYPE
TENSOR_API tensor_t *tensor_addmm(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
// The same for a batch of products, their sum, a matrix times a vector, an outer product.
//   -> new, shape of the product;  grad as mul/matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_baddbmm(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
TENSOR_API tensor_t *tensor_addbmm(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
TENSOR_API tensor_t *tensor_addmv(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
TENSOR_API tensor_t *tensor_addr(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
// a [N], b [N] (dot for real numbers).                  -> new 0-d;  grad as dot;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_vdot(tensor_t *a, tensor_t *b);
// Sum of a * b along dim (torch's default: -1), broadcast.   -> new;  grad as mul;  errors SHAPE, INDEX
TENSOR_API tensor_t *tensor_linalg_vecdot(tensor_t *a, tensor_t *b, int64_t dim);
// Sum over the last dims of both; a product if one is 0-d.   -> new;  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_inner(tensor_t *a, tensor_t *b);
// Sum over the last n dims of a and the first n of b.   -> new;  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_tensordot(tensor_t *a, tensor_t *b, int n);
// Sum over dims_a[i] of a with dims_b[i] of b.          -> new;  grad as matmul;  errors SHAPE, INDEX, DTYPE
TENSOR_API tensor_t *tensor_tensordot_dims(tensor_t *a, tensor_t *b, const int64_t *dims_a,
                                           const int64_t *dims_b, int n);
// Sums of products in Einstein's notation, as torch.einsum: "bij,bjk->bik", "ii", "...ij->...ji".
//   list    n tensors, contracted from left to right, one batched product per pair
//   -> new (a view if nothing is summed);  grad as matmul;  errors FORMAT (equation), SHAPE, DTYPE
TENSOR_API tensor_t *tensor_einsum_n(const char *equation, tensor_t *const *list, int n);
// Product of n matrices in the cheapest order; in multi_dot the first and last may be vectors.
//   -> new;  grad as matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_linalg_multi_dot_n(tensor_t *const *list, int n);
TENSOR_API tensor_t *tensor_chain_matmul_n(tensor_t *const *list, int n);
// Sum of the diagonal of x [M, N].                      -> new 0-d (i64 for integers);  grad g on the
// diagonal;  errors SHAPE
TENSOR_API tensor_t *tensor_trace(tensor_t *x);
// Kronecker product, dims aligned from the right (at most 4).   -> new;  grad as mul;  errors SHAPE
TENSOR_API tensor_t *tensor_kron(tensor_t *a, tensor_t *b);
// Cross product along a dim of size 3; a and b broadcast (torch's default dim is -1).
//   -> new;  grad as mul;  errors SHAPE, INDEX
TENSOR_API tensor_t *tensor_linalg_cross(tensor_t *a, tensor_t *b, int64_t dim);
TENSOR_API tensor_t *tensor_cross(tensor_t *a, tensor_t *b, int64_t dim);
// Keeps the elements on and below (above) the diagonal-th diagonal of the last two dims, zeros the rest.
//   -> new, shape of x;  grad dx = tril(g) (triu);  errors SHAPE if x has fewer than 2 dims
TENSOR_API tensor_t *tensor_tril(tensor_t *x, int64_t diagonal);
TENSOR_API tensor_t *tensor_triu(tensor_t *x, int64_t diagonal);

// ---- torch.linalg: decompositions, solvers, norms ----
// Matrices are the last two dims, the dims before them a batch; f32 and f64, computed in double. Errors of
// all: SHAPE (not a matrix, not square), DTYPE (not f32/f64), LINALG (no result; the text says which
// matrix of the batch).

typedef struct tensor_qr_t { tensor_t *q, *r; } tensor_qr_t;
typedef struct tensor_linalg_svd_t { tensor_t *u, *s, *vh; } tensor_linalg_svd_t;
typedef struct tensor_svd_t { tensor_t *u, *s, *v; } tensor_svd_t;
typedef struct tensor_eigh_t { tensor_t *eigenvalues, *eigenvectors; } tensor_eigh_t;
typedef struct tensor_slogdet_t { tensor_t *sign, *logabsdet; } tensor_slogdet_t;
typedef struct tensor_lu_factor_t { tensor_t *lu, *pivots; } tensor_lu_factor_t;
typedef struct tensor_lu_t { tensor_t *p, *l, *u; } tensor_lu_t;
typedef struct tensor_lstsq_t { tensor_t *solution, *residuals; } tensor_lstsq_t;

// Lower L with L LT = x (upper: U with UT U = x); only that triangle of x is read.
//   -> new, shape of x;  grad symmetric;  errors LINALG if x is not positive definite, as above
TENSOR_API tensor_t *tensor_linalg_cholesky(tensor_t *x, int upper);
TENSOR_API tensor_t *tensor_cholesky(tensor_t *x, int upper);
// X of (L LT) X = b, and (L LT)^-1, from a Cholesky factor.
//   -> new;  grad through the solves;  errors as above
TENSOR_API tensor_t *tensor_cholesky_solve(tensor_t *b, tensor_t *l, int upper);
TENSOR_API tensor_t *tensor_cholesky_inverse(tensor_t *l, int upper);
// X of a X = b by LU with partial pivoting.
//   a       [..., N, N]
//   b       [..., N, K], or vectors: [N], or a's shape without its last dim
//   -> new, shape of b broadcast;  grad db = solve(aT, g), da = -db XT;  errors LINALG if singular, as above
TENSOR_API tensor_t *tensor_linalg_solve(tensor_t *a, tensor_t *b);
// X of a X = b (left) or X a = b, where a is triangular; its other triangle is not read.
//   unitriangular  1 = the diagonal is taken as ones
//   -> new;  grad as solve, on the triangle;  errors as above (a zero on the diagonal gives inf, NaN)
TENSOR_API tensor_t *tensor_linalg_solve_triangular(tensor_t *a, tensor_t *b, int upper, int left,
                                                    int unitriangular);
// The inverse.   -> new;  grad -yT g yT;  errors LINALG if singular, as above
TENSOR_API tensor_t *tensor_linalg_inv(tensor_t *x);
TENSOR_API tensor_t *tensor_inverse(tensor_t *x);
// Determinant.   -> new [...];  grad g * cofactors (exact for singular x);  errors as above
TENSOR_API tensor_t *tensor_linalg_det(tensor_t *x);
TENSOR_API tensor_t *tensor_det(tensor_t *x);
// Sign and log of the absolute value of the determinant (0 and -inf if singular).
//   -> struct of two new;  grad of logabsdet x^-T;  errors as above
TENSOR_API tensor_slogdet_t tensor_linalg_slogdet(tensor_t *x);
TENSOR_API tensor_slogdet_t tensor_slogdet(tensor_t *x);
// Log of the determinant, NaN if it is negative.   -> new [...];  grad x^-T;  errors as above
TENSOR_API tensor_t *tensor_logdet(tensor_t *x);
// x = P L U: L below the diagonal and U in one matrix, pivots i32: row i was swapped with row pivots[i] - 1.
//   -> struct of two new;  grad of lu;  errors as above (a singular x is none)
TENSOR_API tensor_lu_factor_t tensor_linalg_lu_factor(tensor_t *x);
// The same as three matrices.   -> struct of three new;  grad of l and u;  errors as above
TENSOR_API tensor_lu_t tensor_linalg_lu(tensor_t *x);
TENSOR_API tensor_lu_t tensor_lu_unpack(tensor_t *lu, tensor_t *pivots);
// X of x X = b from lu_factor(x).   -> new;  grad through the solves;  errors as above, INDEX (pivots)
TENSOR_API tensor_t *tensor_linalg_lu_solve(tensor_t *lu, tensor_t *pivots, tensor_t *b);
TENSOR_API tensor_t *tensor_lu_solve(tensor_t *b, tensor_t *lu, tensor_t *pivots);
// x = Q R by Householder reflections, signs as LAPACK's.
//   mode    "reduced" (NULL): Q [..., M, K], R [..., K, N], K = min(M, N); "complete": Q square; "r": no q
//   -> struct of two new;  grad for independent columns, not "complete" with M > N;  errors as above, FORMAT
TENSOR_API tensor_qr_t tensor_linalg_qr(tensor_t *x, const char *mode);
TENSOR_API tensor_qr_t tensor_qr(tensor_t *x);
// x = U diag(S) Vh, S descending. Signs of the vectors are not determined.
//   full_matrices  1 (torch's default) = U and Vh square, 0 = K = min(M, N) columns and rows
//   -> struct of three new;  grad for distinct S;  errors LINALG if x has inf or NaN, as above
TENSOR_API tensor_linalg_svd_t tensor_linalg_svd(tensor_t *x, int full_matrices);
// The same with V in place of its transpose and K columns (torch.svd).
//   -> struct of three new;  grad as above;  errors as above
TENSOR_API tensor_svd_t tensor_svd(tensor_t *x);
// The singular values alone, descending.   -> new [..., K];  grad U diag(g) Vh;  errors as above
TENSOR_API tensor_t *tensor_linalg_svdvals(tensor_t *x);
// Eigenvalues, ascending, and eigenvectors (columns) of a symmetric x; one triangle is read.
//   upper   0 = the lower one, 1 = the upper one
//   -> struct of two new;  grad for distinct eigenvalues;  errors LINALG if x has inf or NaN, as above
TENSOR_API tensor_eigh_t tensor_linalg_eigh(tensor_t *x, int upper);
TENSOR_API tensor_t *tensor_linalg_eigvalsh(tensor_t *x, int upper);
// Moore-Penrose inverse; singular values at most rtol * the largest count as 0.
//   rtol    < 0 = max(M, N) * epsilon (pinverse: 1e-15)
//   -> new [..., N, M];  grad for constant rank;  errors as above
TENSOR_API tensor_t *tensor_linalg_pinv(tensor_t *x, double rtol);
TENSOR_API tensor_t *tensor_pinverse(tensor_t *x);
// Number of singular values above rtol * the largest (rtol as above).   -> new i64 [...];  grad none;  errors
// as above
TENSOR_API tensor_t *tensor_linalg_matrix_rank(tensor_t *x, double rtol);
// X with the least |a X - b| by QR (the shortest one if a is wide); a has full rank.
//   a, b    [..., M, N], [..., M, K]
//   -> struct of two new: X [..., N, K], residuals [..., K] (M > N, else empty);  grad through QR;
//   errors LINALG if the rank is not full, as above
TENSOR_API tensor_lstsq_t tensor_linalg_lstsq(tensor_t *a, tensor_t *b);
// x^n by repeated squaring, of the inverse if n < 0.
//   -> new (x itself if n is 1);  grad as matmul;  errors as above
TENSOR_API tensor_t *tensor_linalg_matrix_power(tensor_t *x, int64_t n);
TENSOR_API tensor_t *tensor_matrix_power(tensor_t *x, int64_t n);
// e^x by scaling and squaring of a Pade approximation.   -> new;  grad through it;  errors as above
TENSOR_API tensor_t *tensor_linalg_matrix_exp(tensor_t *x);
TENSOR_API tensor_t *tensor_matrix_exp(tensor_t *x);
// ord-norm of the elements: (sum |x|^ord)^(1/ord), 0 counts non-zeros, +-INFINITY the largest (smallest).
//   dims    n dims to reduce; n = 0 = all
//   -> new;  grad 0 where the norm is 0;  errors SHAPE (nothing to choose from), INDEX, DTYPE (not a float)
TENSOR_API tensor_t *tensor_linalg_vector_norm(tensor_t *x, double ord, const int64_t *dims, int n,
                                               int keepdim);
// Norm of the matrices in two dims (torch's default: -2, -1).
//   ord     "fro" (NULL), "nuc", "1", "-1", "2", "-2", "inf", "-inf"
//   -> new;  grad as svdvals, vector_norm;  errors as above, FORMAT (ord)
TENSOR_API tensor_t *tensor_linalg_matrix_norm(tensor_t *x, const char *ord, int64_t dim0, int64_t dim1,
                                               int keepdim);
// Both: ord NULL is the 2-norm of all elements in dims; else one dim (or a 1-d x) takes a vector norm, two a
// matrix norm.   -> new;  grad as they;  errors as above
TENSOR_API tensor_t *tensor_linalg_norm(tensor_t *x, const char *ord, const int64_t *dims, int n,
                                        int keepdim);
// Condition number: the matrix norm of x times that of its inverse.
//   p       NULL = "2" (largest by smallest singular value), else as matrix_norm's ord
//   -> new [...], inf if singular;  grad as they;  errors as above
TENSOR_API tensor_t *tensor_linalg_cond(tensor_t *x, const char *p);

// ------------------------------------------------------------------------------
// >>index                                          MARK: joining, indexing
//
// Index values are checked in a whole pass before the first write, in release too; an index outside is the
// error INDEX.
// ------------------------------------------------------------------------------

// Joins n tensors along dim (all other dims equal).
//   -> new, promoted dtype;  grad slices g;  errors SHAPE, INDEX, DTYPE
TENSOR_API tensor_t *tensor_cat_n(tensor_t *const *list, int n, int64_t dim);
// Joins n tensors of one shape along a new dim.
//   -> new;  grad slices g;  errors SHAPE, INDEX
TENSOR_API tensor_t *tensor_stack_n(tensor_t *const *list, int n, int64_t dim);
// Rows of x along dim in the order of index.
//   index   [n] i32/i64, values 0..size-1
//   -> new;  grad dx = index_add of g;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_index_select(tensor_t *x, int64_t dim, tensor_t *index);
// x with src's rows added at (replacing) index along dim, in the order of index; in place with _.
//   src     shape of x, but index's length along dim
//   -> new (x with _);  grad dx = g (index_copy: zero where replaced), dsrc = index_select of g
//   errors  INDEX, DTYPE, SHAPE; with _ AUTOGRAD
TENSOR_API tensor_t *tensor_index_add(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_index_add_(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_index_add_alpha(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                            double alpha);             // alpha src added
TENSOR_API tensor_t *tensor_index_copy(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_index_copy_(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
// x with value in the rows index names (negative ones from the end).
//   -> new (x with _);  grad dx = g, zero in those rows;  errors INDEX, DTYPE; with _ AUTOGRAD
TENSOR_API tensor_t *tensor_index_fill(tensor_t *x, int64_t dim, tensor_t *index, double value);
TENSOR_API tensor_t *tensor_index_fill_(tensor_t *x, int64_t dim, tensor_t *index, double value);
// out[i][j] = x[index[i][j]][j] for dim 0, and so on.
//   index   i32/i64, ndim of x, no dim larger than x's except dim
//   -> new, shape of index;  grad dx = scatter_add of g;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_gather(tensor_t *x, int64_t dim, tensor_t *index);
// The same with x and index broadcast to each other in all dims but dim.   -> new;  grad as gather;
// errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_take_along_dim(tensor_t *x, tensor_t *index, int64_t dim);
// A copy of x with src's elements added at (replacing) the places index names; in place with _.
//   index   as tensor_gather; src has at least index's sizes
//   -> new (x with _);  grad dx = g (scatter: zero where replaced), dsrc = gather of g
//   errors  INDEX, DTYPE, SHAPE; with _ AUTOGRAD
TENSOR_API tensor_t *tensor_scatter_add(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_scatter_add_(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_scatter(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_scatter_(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_scatter_value(tensor_t *x, int64_t dim, tensor_t *index, double value);
TENSOR_API tensor_t *tensor_scatter_value_(tensor_t *x, int64_t dim, tensor_t *index, double value);
// Combines them with what is there.
//   reduce        "sum", "prod", "mean" (integers: floor), "amax" or "amin"; NaN wins
//   include_self  0 = only src counts where index points (PyTorch's default is 1)
//   -> new (x with _);  grad to x and src, ties share;  errors INDEX, DTYPE, SHAPE, FORMAT; with _ AUTOGRAD
TENSOR_API tensor_t *tensor_scatter_reduce(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                           const char *reduce, int include_self);
TENSOR_API tensor_t *tensor_scatter_reduce_(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                            const char *reduce, int include_self);
// Elements at flat row-major places (negative ones from the end), in the shape of index.
//   -> new;  grad dx = put of g, summed;  errors INDEX, DTYPE
TENSOR_API tensor_t *tensor_take(tensor_t *x, tensor_t *index);
// x with src's elements put at (added to) those places.   -> new;  grad as index_copy (index_add);  errors
// INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_put(tensor_t *x, tensor_t *index, tensor_t *src, int accumulate);
// x[i, :, m, ...]: tensor_index(x, i, NULL, m) (nullptr in C++).
//   list    for each dim of x a tensor i32/i64 (negative values from the end), NULL for ":", or a bool mask
//           over as many dims as it has; they broadcast. A gap between them moves their dims to the front.
//   -> new;  grad dx = g added at those places;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_index_n(tensor_t *x, tensor_t *const *list, int n);
// x[list] = values, or += (every repetition counts); tensor_index_put(x, values, accumulate, i, ...).
//   values  dtype of x, broadcasts to the shape tensor_index gives
//   -> new (x with _);  grad dx = g (zero where replaced), dvalues = g[list];  errors as above; _ AUTOGRAD
TENSOR_API tensor_t *tensor_index_put_n(tensor_t *x, tensor_t *const *list, int n, tensor_t *values,
                                        int accumulate);
TENSOR_API tensor_t *tensor_index_put_n_(tensor_t *x, tensor_t *const *list, int n, tensor_t *values,
                                         int accumulate);
// Where x is not 0.   -> new [n, ndim] i64, row-major order;  grad none;  errors OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_nonzero(tensor_t *x);
// x with src's elements, in order, where mask (bool, broadcasts) is true.
//   -> new (x with _);  grad dx = g where mask is false, dsrc = g at those places;  errors SHAPE (src too
//      small), DTYPE; with _ AUTOGRAD
TENSOR_API tensor_t *tensor_masked_scatter(tensor_t *x, tensor_t *mask, tensor_t *src);
TENSOR_API tensor_t *tensor_masked_scatter_(tensor_t *x, tensor_t *mask, tensor_t *src);
// value where mask (bool, broadcasts to x) is true, else x.
//   -> new;  grad dx = g where mask is false;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_masked_fill(tensor_t *x, tensor_t *mask, double value);
// The elements of x where mask (bool, shape of x after broadcast) is true, in row-major order. Reads the
// mask.
//   -> new 1-d;  grad dx = g at those places;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_masked_select(tensor_t *x, tensor_t *mask);
// 1 at the class, 0 elsewhere.
//   index   i32/i64 any shape, values 0..classes-1
//   classes  -1 = the largest index + 1 (read from the tensor)
//   -> new i64 [..., classes];  grad none;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_one_hot(tensor_t *index, int64_t classes);
// Copies along each dim: repeats[d] times. tile: missing repeats are 1.
//   -> new;  grad sums over the copies;  errors SHAPE
TENSOR_API tensor_t *tensor_repeat_n(tensor_t *x, const int64_t *repeats, int n);
TENSOR_API tensor_t *tensor_tile_n(tensor_t *x, const int64_t *repeats, int n);
// Each index along dim repeated in place, 0 0 1 1: a number of times, or repeats[i] times (integers, [size]).
//   -> new;  grad sums over the copies;  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_repeat_interleave(tensor_t *x, int64_t repeats, int64_t dim);
TENSOR_API tensor_t *tensor_repeat_interleave_tensor(tensor_t *x, tensor_t *repeats, int64_t dim);
// Order along the dims reversed / along dim 1 / dim 0.   -> new;  grad flips g;  errors INDEX, SHAPE
TENSOR_API tensor_t *tensor_flip_n(tensor_t *x, const int64_t *dims, int n);
TENSOR_API tensor_t *tensor_fliplr(tensor_t *x);
TENSOR_API tensor_t *tensor_flipud(tensor_t *x);
// A turn by k quarters from dim0 towards dim1 (PyTorch: 1, 0, 1).   -> new;  grad turns back;  errors INDEX
TENSOR_API tensor_t *tensor_rot90(tensor_t *x, int64_t k, int64_t dim0, int64_t dim1);
// Elements moved by shift along dim; those that leave come in at the other end (nest for several dims, ravel
// for none).   -> new;  grad rolls back;  errors INDEX
TENSOR_API tensor_t *tensor_roll(tensor_t *x, int64_t shift, int64_t dim);
// Joins along dim 1 (0 if 1-d), 0, 2, after making them at least 1-d, 2-d, 3-d; column_stack makes columns
// of 1-d ones.   -> new;  grad slices g;  errors SHAPE
TENSOR_API tensor_t *tensor_hstack_n(tensor_t *const *list, int n);
TENSOR_API tensor_t *tensor_vstack_n(tensor_t *const *list, int n);
TENSOR_API tensor_t *tensor_dstack_n(tensor_t *const *list, int n);
TENSOR_API tensor_t *tensor_column_stack_n(tensor_t *const *list, int n);

// Dims by name, after einops: tensor_rearrange(x, "b (h d) t -> b h t d", .h = 4).
typedef struct tensor_rearrange_args_t {
    const char *site_ TENSOR_INIT;
    const char *pattern TENSOR_INIT;
    const char *reduce TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
    // sizes of the names of one letter; 0 = follows from x
    int64_t a TENSOR_INIT, b TENSOR_INIT, c TENSOR_INIT, d TENSOR_INIT;
    int64_t e TENSOR_INIT, f TENSOR_INIT, g TENSOR_INIT, h TENSOR_INIT;
    int64_t i TENSOR_INIT, j TENSOR_INIT, k TENSOR_INIT, l TENSOR_INIT;
    int64_t m TENSOR_INIT, n TENSOR_INIT, o TENSOR_INIT, p TENSOR_INIT;
    int64_t q TENSOR_INIT, r TENSOR_INIT, s TENSOR_INIT, t TENSOR_INIT;
    int64_t u TENSOR_INIT, v TENSOR_INIT, w TENSOR_INIT, x TENSOR_INIT;
    int64_t y TENSOR_INIT, z TENSOR_INIT;
} tensor_rearrange_args_t;
// Splits, permutes, joins. A name or number only on the right repeats x, one only on the left is reduced.
//   pattern  names and numbers by spaces; ( ) = one dim of x; ... = the dims not named
//   reduce   "sum", "mean", "prod", "max", "min", "any", "all"; NULL = nothing is lost
//   -> view where strides allow, else new;  grad flows to x;  errors FORMAT, SHAPE
TENSOR_API tensor_t *tensor_rearrange_with(tensor_t *x, tensor_rearrange_args_t a);

typedef struct tensor_check_args_t {
    const char *site_ TENSOR_INIT;
    tensor_t *x TENSOR_INIT;
    const char *pattern TENSOR_INIT;
    int64_t *size0 TENSOR_INIT, *size1 TENSOR_INIT, *size2 TENSOR_INIT, *size3 TENSOR_INIT;
    int64_t *size4 TENSOR_INIT, *size5 TENSOR_INIT, *size6 TENSOR_INIT, *size7 TENSOR_INIT;
    const void *surplus_ TENSOR_INIT;
} tensor_check_args_t;
// Asserts a shape: int64_t b = 0, h = 0; tensor_check(x, "b 64 h _", &b, &h); tensor_check(y, "b h", &b, &h).
//   pattern  a number or name for each dim; _ = any size, ... = any number of dims; one name is one size
//   sizes    for each name in order: 0 receives the size, another value is demanded; may be fewer, NULL
//   -> code, 0 if x has that shape (nothing is received if not);  errors SHAPE, FORMAT
TENSOR_API int tensor_check_n(tensor_t *x, const char *pattern, int64_t *const *sizes, int n);
TENSOR_API int tensor_check_with(tensor_check_args_t a);

// ------------------------------------------------------------------------------
// >>random                                         MARK: random numbers
//
// Philox4x32-10 (Salmon et al., SC 2011) with the element index as counter: the same seed gives the same
// numbers for any thread count, instruction set and device, and rand(n) is a prefix of rand(m). Each call
// takes one stream number of the calling thread's generator, so a longer result never shifts the next one.
// ------------------------------------------------------------------------------

// Seeds the calling thread's generator.   -> nothing;  errors none
TENSOR_API void tensor_manual_seed(uint64_t seed);
// The calling thread's generator (seed, next stream), e.g. for a checkpoint.   -> struct;  errors none
TENSOR_API tensor_generator_t tensor_get_generator(void);
// Replaces it.   -> nothing;  errors none
TENSOR_API void tensor_set_generator(tensor_generator_t g);
// Uniform in [0, 1).                            -> new;  grad none;  errors SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_rand_n(const int64_t *dims, int ndim);
// Standard normal (Box-Muller).                 -> new;  grad none;  errors SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_randn_n(const int64_t *dims, int ndim);
// Integers in [low, high).                      -> new i64;  grad none;  errors SHAPE if high <= low
TENSOR_API tensor_t *tensor_randint_n(int64_t low, int64_t high, const int64_t *dims, int ndim);
// The same in the shape and dtype of x.          -> new;  grad none;  errors DTYPE, SHAPE
TENSOR_API tensor_t *tensor_rand_like(tensor_t *x);
TENSOR_API tensor_t *tensor_randn_like(tensor_t *x);
TENSOR_API tensor_t *tensor_randint_like(tensor_t *x, int64_t low, int64_t high);
// Normal with a mean and deviation (>= 0) for each element.   -> new, broadcast shape;  grad none;
// errors SHAPE, INDEX, DTYPE
TENSOR_API tensor_t *tensor_normal(tensor_t *mean, tensor_t *std);
// A random order of 0..n-1.                     -> new i64 [n];  grad none;  errors SHAPE
TENSOR_API tensor_t *tensor_randperm(int64_t n);
// 1 with probability p (elementwise), else 0.  -> new, shape and dtype of p;  grad none;  errors DTYPE, INDEX
TENSOR_API tensor_t *tensor_bernoulli(tensor_t *p);
// Poisson numbers at rates 0..1e15 (elementwise).   -> new, shape and dtype of rates;  grad none;  errors
// DTYPE, INDEX
TENSOR_API tensor_t *tensor_poisson(tensor_t *rates);
// Rows of weights (>= 0) give n indices each, drawn with replacement.   -> new i64 [..., n];  errors SHAPE,
// DTYPE
TENSOR_API tensor_t *tensor_multinomial(tensor_t *weights, int64_t n);
// Fills x with uniform numbers from [low, high) (normal ones).   -> x;  errors AUTOGRAD, DTYPE, INDEX
// (high < low; std < 0)
TENSOR_API tensor_t *tensor_uniform_(tensor_t *x, double low, double high);
TENSOR_API tensor_t *tensor_normal_(tensor_t *x, double mean, double std);
// Fills x from a distribution; integers and bool only by the last three (integers in [low, high)).
//   -> x;  errors AUTOGRAD, DTYPE, INDEX (parameters)
TENSOR_API tensor_t *tensor_exponential_(tensor_t *x, double lambda);
TENSOR_API tensor_t *tensor_cauchy_(tensor_t *x, double median, double sigma);
TENSOR_API tensor_t *tensor_log_normal_(tensor_t *x, double mean, double std);
TENSOR_API tensor_t *tensor_geometric_(tensor_t *x, double p);
TENSOR_API tensor_t *tensor_bernoulli_(tensor_t *x, double p);
TENSOR_API tensor_t *tensor_random_(tensor_t *x, int64_t low, int64_t high);

// ------------------------------------------------------------------------------
// >>autograd                                       MARK: autograd
//
// A tape of nodes ordered by sequence number; backward pops them from a heap on the calling thread, never
// recursing. Values saved for backward are checked against their storage's version: "no error" means the
// gradients are right.
// ------------------------------------------------------------------------------

// Marks a leaf as wanting a gradient (or not).
//   x       f32 f64 f16 bf16; not the result of a recorded operation
//   -> x;  errors DTYPE (integers), AUTOGRAD (switching off on a non-leaf)
TENSOR_API tensor_t *tensor_requires_grad_(tensor_t *x, int on);
// Whether x requires grad / was made by the user rather than a recorded op.   -> 1 or 0;  errors none
TENSOR_API int tensor_requires_grad(tensor_t *x);
TENSOR_API int tensor_is_leaf(tensor_t *x);
// Whether x was made in inference mode.   -> 1 or 0;  errors none
TENSOR_API int tensor_is_inference(tensor_t *x);
// Name of the operation that made x, "mul" or a custom function's.   -> borrowed string, NULL for a leaf;
// errors none
TENSOR_API const char *tensor_grad_fn_name(tensor_t *x);
// Takes x, which is no view, out of its graph.   -> x;  errors AUTOGRAD (a view: use tensor_detach)
TENSOR_API tensor_t *tensor_detach_(tensor_t *x);
// The accumulated gradient.   -> borrowed (owned by x), NULL = none;  errors OUT_OF_MEMORY (.sparse)
TENSOR_API tensor_t *tensor_grad(tensor_t *x);
// Sets the gradient (NULL drops it).   -> code;  errors SHAPE, DTYPE
TENSOR_API int tensor_set_grad(tensor_t *x, tensor_t *grad);
// Adds the gradient of a non-leaf, as its hooks left it, to tensor_grad(x) in every pass (those of
// tensor_autograd_grad too).   -> x;  errors AUTOGRAD
TENSOR_API tensor_t *tensor_retain_grad(tensor_t *x);
// Whether operations of the calling thread are recorded.   -> 1 or 0;  errors none
TENSOR_API int tensor_grad_enabled(void);
// Switches recording on (not in inference mode) or off until the innermost scope ends.   -> what it was;
// errors none
TENSOR_API int tensor_set_grad_enabled(int on);
// Anomaly mode, until the innermost scope ends: backward fails at the first node that makes a NaN and names
// its operation and where that was called. Costs a look at every gradient.   -> what it was;  errors none
TENSOR_API int tensor_set_detect_anomaly(int on);

typedef tensor_t *(*tensor_hook_t)(tensor_t *grad, void *user);
typedef void (*tensor_post_hook_t)(tensor_t *x, void *user);

// Calls fn with the gradient of x, summed over all its uses, in every backward pass; several hooks run in the
// order of registration. Gone with the graph of x.
//   x       requires grad; an in-place change of x later on leaves the hook with the old value
//   fn      returns the gradient to go on with (shape and dtype of grad), NULL = grad as it is
//   -> handle for tensor_remove_hook, 0 on failure;  errors AUTOGRAD, OWNER if fn is NULL
TENSOR_API int64_t tensor_register_hook(tensor_t *x, tensor_hook_t fn, void *user);
// Calls fn(x, user) in every backward pass as soon as tensor_grad(x) is complete: an optimizer may step and
// drop the gradient there.
//   x       leaf that requires grad
//   -> handle, 0 on failure;  errors AUTOGRAD, OWNER if fn is NULL
TENSOR_API int64_t tensor_register_post_accumulate_grad_hook(tensor_t *x, tensor_post_hook_t fn, void *user);
// Removes a hook.   -> 1, 0 if it is gone already;  errors none
TENSOR_API int tensor_remove_hook(int64_t handle);

// Adds d loss / d leaf into the grad of every leaf that requires it; frees the graph's saved values. One that
// fails leaves what it has added so far, as PyTorch's does.
//   loss    one element
//   -> code;  errors AUTOGRAD (loss does not require grad, not one element, second pass, changed saved value)
TENSOR_API int tensor_backward(tensor_t *loss);

enum { TENSOR_RETAIN_GRAPH = 1, TENSOR_CREATE_GRAPH = 2, TENSOR_ALLOW_UNUSED = 4 };   // CREATE implies RETAIN

// The same for any shape, with the gradient to start from.
//   grad    shape and dtype of y; NULL = 1 (y of one element)
//   flags   TENSOR_RETAIN_GRAPH | TENSOR_CREATE_GRAPH. With the latter a leaf and its .grad hold each other,
//           as in PyTorch, until nn_zero_grad or tensor_set_grad(leaf, NULL); tensor_autograd_grad does not
//   -> code;  errors AUTOGRAD, SHAPE
TENSOR_API int tensor_backward_with(tensor_t *y, tensor_t *grad, int flags);

// Gradients of outputs with respect to inputs, without touching any .grad (torch.autograd.grad).
//   outputs  no tensors; grad_outputs their gradients (NULL, or NULL entries, = 1 for one element)
//   inputs   ni tensors that require grad, leaves or not; gradients[i] receives d / d inputs[i], always
//            filled. Nodes that lead to none of them are left alone.
//   flags    as above; TENSOR_ALLOW_UNUSED gives NULL instead of an error for an input outside the graph
//   -> code (gradients are the caller's, poison on failure; equal ones may be one tensor: clone them before
//      a change in place);  errors AUTOGRAD, SHAPE
TENSOR_API int tensor_autograd_grad(tensor_t *const *outputs, int no, tensor_t *const *grad_outputs,
                                    tensor_t *const *inputs, int ni, tensor_t **gradients, int flags);

// What becomes of a value that an operation saves for backward (offloading, compression).
typedef struct tensor_saved_hooks_t {
    void *(*pack)(tensor_t *x, void *user);         // x goes afterwards unless kept; NULL = failed
    tensor_t *(*unpack)(void *packed, void *user);  // shape and dtype of x; once per backward pass
    void (*drop)(void *packed, void *user);         // nobody needs it any more; NULL = nothing to do
    void *user;
} tensor_saved_hooks_t;
// Until the innermost scope ends, values that operations save go through hooks, leaves and what custom
// functions save excepted.
//   hooks   must live as long as what is recorded; NULL = values are kept as they are
//   -> what was set before;  errors none
TENSOR_API const tensor_saved_hooks_t *tensor_set_saved_tensors_hooks(const tensor_saved_hooks_t *hooks);

// A user-defined differentiable operation (torch.autograd.Function).
typedef struct tensor_function_t tensor_function_t;
typedef struct tensor_function_ctx_t tensor_function_ctx_t;
struct tensor_function_t {
    const char *name;                                       // static string
    // Computes the result from n inputs; nothing is recorded inside. Poison = failed.
    tensor_t *(*forward)(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int n);
    // Fills grads[i] (NULL = zero) from grad, the gradient of the result. -> code
    int (*backward)(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n);
    void (*destroy)(void *user);                            // NULL, or called once when the node is freed
};
// Applies fn to n inputs.
//   user    handed to ctx; freed by fn->destroy
//   -> new;  grad by fn->backward (differentiable itself if made of tensor ops);  errors what forward raises
TENSOR_API tensor_t *tensor_apply(const tensor_function_t *fn, void *user, tensor_t *const *inputs, int n);
// The same with 1..4 results: forward returns the first and gives the others to tensor_set_output.
//   outputs  receives nout tensors; always filled (poison on failure)
//   -> code;  errors what forward raises
TENSOR_API int tensor_apply_n(const tensor_function_t *fn, void *user, tensor_t *const *inputs, int n,
                              tensor_t **outputs, int nout);
// Inside forward: result k (1..3).   -> code;  errors INDEX
TENSOR_API int tensor_set_output(tensor_function_ctx_t *ctx, int k, tensor_t *y);
// Inside forward: input i is changed in place and is one of the results.   -> code;  errors INDEX, AUTOGRAD
// (leaf that requires grad)
TENSOR_API int tensor_mark_dirty(tensor_function_ctx_t *ctx, int i);
// Inside forward: result k has no gradient.   -> code;  errors INDEX
TENSOR_API int tensor_mark_non_differentiable(tensor_function_ctx_t *ctx, int k);
// Inside forward: keeps x (an input or the result) for backward, as saved value slot (0..7).   -> code;
// errors INDEX
TENSOR_API int tensor_save_for_backward(tensor_function_ctx_t *ctx, int slot, tensor_t *x);
// Inside backward: the saved value.   -> borrowed;  errors AUTOGRAD if it was changed since
TENSOR_API tensor_t *tensor_saved(tensor_function_ctx_t *ctx, int slot);
// Inside backward: the gradient of result k, zeros if it was not used.   -> borrowed;  errors INDEX
TENSOR_API tensor_t *tensor_grad_output(tensor_function_ctx_t *ctx, int k);
// Inside forward or backward: whether the gradient of input i is wanted.   -> 1 or 0;  errors none
TENSOR_API int tensor_needs_input_grad(tensor_function_ctx_t *ctx, int i);
// The user pointer given to tensor_apply.   -> borrowed;  errors none
TENSOR_API void *tensor_function_user(tensor_function_ctx_t *ctx);

// What the functions below differentiate: a tensor computed from n tensors.
typedef tensor_t *(*tensor_fn_t)(tensor_t *const *inputs, int n, void *user);

// fn(inputs, n, user) that keeps no intermediate values: backward calls fn again, with the same random
// numbers, and so gets the same bits for less memory (torch.utils.checkpoint without reentrance).
//   fn      makes the same operations each time; parameters it captures get their gradients as usual
//   user    must live until backward
//   inputs  not changed in place until then
//   -> new;  grad that of fn;  errors what fn raises; backward: AUTOGRAD if an input was changed
TENSOR_API tensor_t *tensor_checkpoint(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n);

// torch.autograd.functional. y = fn(inputs); inputs that are no floats are constants, their results NULL;
// what y does not depend on has zeros. flags: TENSOR_CREATE_GRAPH makes the results differentiable. All
// -> results new, always filled (poison on failure);  errors AUTOGRAD, SHAPE, OWNER (NULL), what fn raises

// v times the Jacobian.
//   v       shape of y; NULL = 1 (y of one element)
//   vjp     n results of the shapes of the inputs
//   -> y;  errors as above
TENSOR_API tensor_t *tensor_vjp(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, tensor_t *v,
                                tensor_t **vjp, int flags);
// The Jacobian times v, by two backward passes.
//   v       n tensors of the shapes of the inputs (not read for constants)
//   jvp     one result of the shape of y
//   -> y;  errors as above
TENSOR_API tensor_t *tensor_jvp(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                tensor_t *const *v, tensor_t **jvp, int flags);
// The Jacobians: jacobian[i] has the shape of y followed by that of inputs[i].
//   -> code;  errors as above
TENSOR_API int tensor_jacobian(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                               tensor_t **jacobian, int flags);
// Second derivatives of y, which has one element: hessian[i * n + j] has the shape of inputs[i] followed by
// that of inputs[j].
//   -> code;  errors as above
TENSOR_API int tensor_hessian(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, tensor_t **hessian,
                              int flags);
// The Hessian times v, and v times the Hessian (cheaper; equal where second derivatives are continuous).
//   v       n tensors of the shapes of the inputs (not read for constants)
//   hvp     n results of the shapes of the inputs
//   -> y;  errors as above
TENSOR_API tensor_t *tensor_hvp(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                tensor_t *const *v, tensor_t **hvp, int flags);
TENSOR_API tensor_t *tensor_vhp(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                tensor_t *const *v, tensor_t **vhp, int flags);

// Compares autograd with central differences in f64, and two backward passes with each other.
//   fn              called many times
//   inputs          n f64 leaves that require grad, without elements that share memory (others are constants)
//   eps atol rtol   0 = PyTorch's: 1e-6, 1e-5, 1e-3
//   -> code, AUTOGRAD with the first mismatch in the text;  errors AUTOGRAD, DTYPE
TENSOR_API int tensor_gradcheck(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, double eps,
                                double atol, double rtol);
// The same for the gradient of the gradient.   -> code;  errors AUTOGRAD, DTYPE
TENSOR_API int tensor_gradgradcheck(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, double eps,
                                    double atol, double rtol);

// What the macros of >>sites call: they note the place of a call in its result, or in its error.
TENSOR_API tensor_t *tensor__at(const char *site, tensor_t *t);
TENSOR_API tensor_pair_t tensor__at_pair(const char *site, tensor_pair_t p);
TENSOR_API tensor_qr_t tensor__at_qr(const char *site, tensor_qr_t t);
TENSOR_API tensor_linalg_svd_t tensor__at_linalg_svd(const char *site, tensor_linalg_svd_t t);
TENSOR_API tensor_svd_t tensor__at_svd(const char *site, tensor_svd_t t);
TENSOR_API tensor_eigh_t tensor__at_eigh(const char *site, tensor_eigh_t t);
TENSOR_API tensor_slogdet_t tensor__at_slogdet(const char *site, tensor_slogdet_t t);
TENSOR_API tensor_lu_factor_t tensor__at_lu_factor(const char *site, tensor_lu_factor_t t);
TENSOR_API tensor_lu_t tensor__at_lu(const char *site, tensor_lu_t t);
TENSOR_API tensor_lstsq_t tensor__at_lstsq(const char *site, tensor_lstsq_t t);
TENSOR_API int tensor__at_int(const char *site, int r);
TENSOR_API int64_t tensor__at_i64(const char *site, int64_t r);
TENSOR_API double tensor__at_f64(const char *site, double r);
TENSOR_API const void *tensor__at_ptr(const char *site, const void *p);
TENSOR_API int tensor__shutdowns(void);     // how many there were: a tensor_ref from before one frees nothing

#ifdef __cplusplus
}
#endif

// ------------------------------------------------------------------------------
// >>sites                                          MARK: call sites, variadic sugar
//
// Each function is hidden behind a macro of its name that calls it and then stamps the place of the call on
// what it made (or on the error it raised). Afterwards rather than as an argument: functions keep their plain
// signature for bindings and function pointers, and nested calls evaluate in the right order. (name)(args)
// calls without a stamp.
// ------------------------------------------------------------------------------

#define TENSOR__CALL(function, ...) tensor__at(TENSOR__IN(function), (function)(__VA_ARGS__))
#define TENSOR__CALL_KIND(kind, function, ...)                                                               \
    tensor__at_##kind(TENSOR__IN(function), (function)(__VA_ARGS__))

#define tensor_scope_return(...) TENSOR__CALL(tensor_scope_return, __VA_ARGS__)
#define tensor_keep(...) TENSOR__CALL(tensor_keep, __VA_ARGS__)
#define tensor_empty_like(...) TENSOR__CALL(tensor_empty_like, __VA_ARGS__)
#define tensor_zeros_like(...) TENSOR__CALL(tensor_zeros_like, __VA_ARGS__)
#define tensor_ones_like(...) TENSOR__CALL(tensor_ones_like, __VA_ARGS__)
#define tensor_full_like(...) TENSOR__CALL(tensor_full_like, __VA_ARGS__)
#define tensor_scalar(...) TENSOR__CALL(tensor_scalar, __VA_ARGS__)
#define tensor_arange(...) TENSOR__CALL(tensor_arange, __VA_ARGS__)
#define tensor_linspace(...) TENSOR__CALL(tensor_linspace, __VA_ARGS__)
#define tensor_logspace(...) TENSOR__CALL(tensor_logspace, __VA_ARGS__)
#define tensor_eye(...) TENSOR__CALL(tensor_eye, __VA_ARGS__)
#define tensor_empty_strided(...) TENSOR__CALL(tensor_empty_strided, __VA_ARGS__)
#define tensor_tril_indices(...) TENSOR__CALL(tensor_tril_indices, __VA_ARGS__)
#define tensor_triu_indices(...) TENSOR__CALL(tensor_triu_indices, __VA_ARGS__)
#define tensor_cartesian_prod(...) TENSOR__CALL(tensor_cartesian_prod, __VA_ARGS__)
#define tensor_combinations(...) TENSOR__CALL(tensor_combinations, __VA_ARGS__)
#define tensor_block_diag(...) TENSOR__CALL(tensor_block_diag, __VA_ARGS__)
#define tensor_diag_embed(...) TENSOR__CALL(tensor_diag_embed, __VA_ARGS__)
#define tensor_diag(...) TENSOR__CALL(tensor_diag, __VA_ARGS__)
#define tensor_diagflat(...) TENSOR__CALL(tensor_diagflat, __VA_ARGS__)
#define tensor_vander(...) TENSOR__CALL(tensor_vander, __VA_ARGS__)
#define tensor_rand_like(...) TENSOR__CALL(tensor_rand_like, __VA_ARGS__)
#define tensor_randn_like(...) TENSOR__CALL(tensor_randn_like, __VA_ARGS__)
#define tensor_randint_like(...) TENSOR__CALL(tensor_randint_like, __VA_ARGS__)
#define tensor_normal(...) TENSOR__CALL(tensor_normal, __VA_ARGS__)
#define tensor_clone(...) TENSOR__CALL(tensor_clone, __VA_ARGS__)
#define tensor_to(...) TENSOR__CALL(tensor_to, __VA_ARGS__)
#define tensor_to_non_blocking(...) TENSOR__CALL(tensor_to_non_blocking, __VA_ARGS__)
#define tensor_pin_memory(...) TENSOR__CALL(tensor_pin_memory, __VA_ARGS__)
#define tensor_contiguous(...) TENSOR__CALL(tensor_contiguous, __VA_ARGS__)
#define tensor_flatten(...) TENSOR__CALL(tensor_flatten, __VA_ARGS__)
#define tensor_transpose(...) TENSOR__CALL(tensor_transpose, __VA_ARGS__)
#define tensor_mT(...) TENSOR__CALL(tensor_mT, __VA_ARGS__)
#define tensor_movedim(...) TENSOR__CALL(tensor_movedim, __VA_ARGS__)
#define tensor_unsqueeze(...) TENSOR__CALL(tensor_unsqueeze, __VA_ARGS__)
#define tensor_squeeze(...) TENSOR__CALL(tensor_squeeze, __VA_ARGS__)
#define tensor_squeeze_dims(...) TENSOR__CALL(tensor_squeeze_dims, __VA_ARGS__)
#define tensor_squeeze_all(...) TENSOR__CALL(tensor_squeeze_all, __VA_ARGS__)
#define tensor_ravel(...) TENSOR__CALL(tensor_ravel, __VA_ARGS__)
#define tensor_T(...) TENSOR__CALL(tensor_T, __VA_ARGS__)
#define tensor_swapaxes(...) TENSOR__CALL(tensor_swapaxes, __VA_ARGS__)
#define tensor_swapdims(...) TENSOR__CALL(tensor_swapdims, __VA_ARGS__)
#define tensor_expand_as(...) TENSOR__CALL(tensor_expand_as, __VA_ARGS__)
#define tensor_reshape_as(...) TENSOR__CALL(tensor_reshape_as, __VA_ARGS__)
#define tensor_view_as(...) TENSOR__CALL(tensor_view_as, __VA_ARGS__)
#define tensor_atleast_1d(...) TENSOR__CALL(tensor_atleast_1d, __VA_ARGS__)
#define tensor_atleast_2d(...) TENSOR__CALL(tensor_atleast_2d, __VA_ARGS__)
#define tensor_atleast_3d(...) TENSOR__CALL(tensor_atleast_3d, __VA_ARGS__)
#define tensor_diagonal(...) TENSOR__CALL(tensor_diagonal, __VA_ARGS__)
#define tensor_unfold_dim(...) TENSOR__CALL(tensor_unfold_dim, __VA_ARGS__)
#define tensor_channels_last(...) TENSOR__CALL(tensor_channels_last, __VA_ARGS__)
#define tensor_select_scatter(...) TENSOR__CALL(tensor_select_scatter, __VA_ARGS__)
#define tensor_slice_scatter(...) TENSOR__CALL(tensor_slice_scatter, __VA_ARGS__)
#define tensor_diagonal_scatter(...) TENSOR__CALL(tensor_diagonal_scatter, __VA_ARGS__)
#define tensor_repeat_interleave(...) TENSOR__CALL(tensor_repeat_interleave, __VA_ARGS__)
#define tensor_repeat_interleave_tensor(...) TENSOR__CALL(tensor_repeat_interleave_tensor, __VA_ARGS__)
#define tensor_fliplr(...) TENSOR__CALL(tensor_fliplr, __VA_ARGS__)
#define tensor_flipud(...) TENSOR__CALL(tensor_flipud, __VA_ARGS__)
#define tensor_rot90(...) TENSOR__CALL(tensor_rot90, __VA_ARGS__)
#define tensor_roll(...) TENSOR__CALL(tensor_roll, __VA_ARGS__)
#define tensor_narrow(...) TENSOR__CALL(tensor_narrow, __VA_ARGS__)
#define tensor_select(...) TENSOR__CALL(tensor_select, __VA_ARGS__)
#define tensor_slice(...) TENSOR__CALL(tensor_slice, __VA_ARGS__)
#define tensor_at(...) TENSOR__CALL(tensor_at, __VA_ARGS__)
#define tensor_as_strided(...) TENSOR__CALL(tensor_as_strided, __VA_ARGS__)
#define tensor_as_strided_scatter(...) TENSOR__CALL(tensor_as_strided_scatter, __VA_ARGS__)
#define tensor_detach(...) TENSOR__CALL(tensor_detach, __VA_ARGS__)
#define tensor_abs(...) TENSOR__CALL(tensor_abs, __VA_ARGS__)
#define tensor_acos(...) TENSOR__CALL(tensor_acos, __VA_ARGS__)
#define tensor_asin(...) TENSOR__CALL(tensor_asin, __VA_ARGS__)
#define tensor_atan(...) TENSOR__CALL(tensor_atan, __VA_ARGS__)
#define tensor_ceil(...) TENSOR__CALL(tensor_ceil, __VA_ARGS__)
#define tensor_clamp(...) TENSOR__CALL(tensor_clamp, __VA_ARGS__)
#define tensor_cos(...) TENSOR__CALL(tensor_cos, __VA_ARGS__)
#define tensor_cosh(...) TENSOR__CALL(tensor_cosh, __VA_ARGS__)
#define tensor_elu(...) TENSOR__CALL(tensor_elu, __VA_ARGS__)
#define tensor_erf(...) TENSOR__CALL(tensor_erf, __VA_ARGS__)
#define tensor_erfc(...) TENSOR__CALL(tensor_erfc, __VA_ARGS__)
#define tensor_exp(...) TENSOR__CALL(tensor_exp, __VA_ARGS__)
#define tensor_exp2(...) TENSOR__CALL(tensor_exp2, __VA_ARGS__)
#define tensor_expm1(...) TENSOR__CALL(tensor_expm1, __VA_ARGS__)
#define tensor_floor(...) TENSOR__CALL(tensor_floor, __VA_ARGS__)
#define tensor_gelu(...) TENSOR__CALL(tensor_gelu, __VA_ARGS__)
#define tensor_gelu_tanh(...) TENSOR__CALL(tensor_gelu_tanh, __VA_ARGS__)
#define tensor_leaky_relu(...) TENSOR__CALL(tensor_leaky_relu, __VA_ARGS__)
#define tensor_log(...) TENSOR__CALL(tensor_log, __VA_ARGS__)
#define tensor_log10(...) TENSOR__CALL(tensor_log10, __VA_ARGS__)
#define tensor_log1p(...) TENSOR__CALL(tensor_log1p, __VA_ARGS__)
#define tensor_log2(...) TENSOR__CALL(tensor_log2, __VA_ARGS__)
#define tensor_logsigmoid(...) TENSOR__CALL(tensor_logsigmoid, __VA_ARGS__)
#define tensor_neg(...) TENSOR__CALL(tensor_neg, __VA_ARGS__)
#define tensor_reciprocal(...) TENSOR__CALL(tensor_reciprocal, __VA_ARGS__)
#define tensor_relu(...) TENSOR__CALL(tensor_relu, __VA_ARGS__)
#define tensor_round(...) TENSOR__CALL(tensor_round, __VA_ARGS__)
#define tensor_rsqrt(...) TENSOR__CALL(tensor_rsqrt, __VA_ARGS__)
#define tensor_sigmoid(...) TENSOR__CALL(tensor_sigmoid, __VA_ARGS__)
#define tensor_sign(...) TENSOR__CALL(tensor_sign, __VA_ARGS__)
#define tensor_silu(...) TENSOR__CALL(tensor_silu, __VA_ARGS__)
#define tensor_sin(...) TENSOR__CALL(tensor_sin, __VA_ARGS__)
#define tensor_sinh(...) TENSOR__CALL(tensor_sinh, __VA_ARGS__)
#define tensor_softplus(...) TENSOR__CALL(tensor_softplus, __VA_ARGS__)
#define tensor_sqrt(...) TENSOR__CALL(tensor_sqrt, __VA_ARGS__)
#define tensor_square(...) TENSOR__CALL(tensor_square, __VA_ARGS__)
#define tensor_tan(...) TENSOR__CALL(tensor_tan, __VA_ARGS__)
#define tensor_tanh(...) TENSOR__CALL(tensor_tanh, __VA_ARGS__)
#define tensor_trunc(...) TENSOR__CALL(tensor_trunc, __VA_ARGS__)
#define tensor_add(...) TENSOR__CALL(tensor_add, __VA_ARGS__)
#define tensor_atan2(...) TENSOR__CALL(tensor_atan2, __VA_ARGS__)
#define tensor_div(...) TENSOR__CALL(tensor_div, __VA_ARGS__)
#define tensor_floor_divide(...) TENSOR__CALL(tensor_floor_divide, __VA_ARGS__)
#define tensor_fmod(...) TENSOR__CALL(tensor_fmod, __VA_ARGS__)
#define tensor_maximum(...) TENSOR__CALL(tensor_maximum, __VA_ARGS__)
#define tensor_minimum(...) TENSOR__CALL(tensor_minimum, __VA_ARGS__)
#define tensor_mul(...) TENSOR__CALL(tensor_mul, __VA_ARGS__)
#define tensor_pow(...) TENSOR__CALL(tensor_pow, __VA_ARGS__)
#define tensor_remainder(...) TENSOR__CALL(tensor_remainder, __VA_ARGS__)
#define tensor_sub(...) TENSOR__CALL(tensor_sub, __VA_ARGS__)
#define tensor_add_scalar(...) TENSOR__CALL(tensor_add_scalar, __VA_ARGS__)
#define tensor_div_scalar(...) TENSOR__CALL(tensor_div_scalar, __VA_ARGS__)
#define tensor_floor_divide_scalar(...) TENSOR__CALL(tensor_floor_divide_scalar, __VA_ARGS__)
#define tensor_fmod_scalar(...) TENSOR__CALL(tensor_fmod_scalar, __VA_ARGS__)
#define tensor_maximum_scalar(...) TENSOR__CALL(tensor_maximum_scalar, __VA_ARGS__)
#define tensor_minimum_scalar(...) TENSOR__CALL(tensor_minimum_scalar, __VA_ARGS__)
#define tensor_mul_scalar(...) TENSOR__CALL(tensor_mul_scalar, __VA_ARGS__)
#define tensor_pow_scalar(...) TENSOR__CALL(tensor_pow_scalar, __VA_ARGS__)
#define tensor_remainder_scalar(...) TENSOR__CALL(tensor_remainder_scalar, __VA_ARGS__)
#define tensor_rsub_scalar(...) TENSOR__CALL(tensor_rsub_scalar, __VA_ARGS__)
#define tensor_rpow_scalar(...) TENSOR__CALL(tensor_rpow_scalar, __VA_ARGS__)
#define tensor_round_decimals(...) TENSOR__CALL(tensor_round_decimals, __VA_ARGS__)
#define tensor_sub_scalar(...) TENSOR__CALL(tensor_sub_scalar, __VA_ARGS__)
#define tensor_where(...) TENSOR__CALL(tensor_where, __VA_ARGS__)
#define tensor_lerp(...) TENSOR__CALL(tensor_lerp, __VA_ARGS__)
#define tensor_addcmul(...) TENSOR__CALL(tensor_addcmul, __VA_ARGS__)
#define tensor_addcdiv(...) TENSOR__CALL(tensor_addcdiv, __VA_ARGS__)
#define tensor_eq(...) TENSOR__CALL(tensor_eq, __VA_ARGS__)
#define tensor_ge(...) TENSOR__CALL(tensor_ge, __VA_ARGS__)
#define tensor_gt(...) TENSOR__CALL(tensor_gt, __VA_ARGS__)
#define tensor_le(...) TENSOR__CALL(tensor_le, __VA_ARGS__)
#define tensor_lt(...) TENSOR__CALL(tensor_lt, __VA_ARGS__)
#define tensor_ne(...) TENSOR__CALL(tensor_ne, __VA_ARGS__)
#define tensor_eq_scalar(...) TENSOR__CALL(tensor_eq_scalar, __VA_ARGS__)
#define tensor_ge_scalar(...) TENSOR__CALL(tensor_ge_scalar, __VA_ARGS__)
#define tensor_gt_scalar(...) TENSOR__CALL(tensor_gt_scalar, __VA_ARGS__)
#define tensor_le_scalar(...) TENSOR__CALL(tensor_le_scalar, __VA_ARGS__)
#define tensor_lt_scalar(...) TENSOR__CALL(tensor_lt_scalar, __VA_ARGS__)
#define tensor_ne_scalar(...) TENSOR__CALL(tensor_ne_scalar, __VA_ARGS__)
#define tensor_logical_and(...) TENSOR__CALL(tensor_logical_and, __VA_ARGS__)
#define tensor_logical_or(...) TENSOR__CALL(tensor_logical_or, __VA_ARGS__)
#define tensor_logical_xor(...) TENSOR__CALL(tensor_logical_xor, __VA_ARGS__)
#define tensor_logical_not(...) TENSOR__CALL(tensor_logical_not, __VA_ARGS__)
#define tensor_isnan(...) TENSOR__CALL(tensor_isnan, __VA_ARGS__)
#define tensor_isinf(...) TENSOR__CALL(tensor_isinf, __VA_ARGS__)
#define tensor_isfinite(...) TENSOR__CALL(tensor_isfinite, __VA_ARGS__)
#define tensor_bitwise_and(...) TENSOR__CALL(tensor_bitwise_and, __VA_ARGS__)
#define tensor_bitwise_or(...) TENSOR__CALL(tensor_bitwise_or, __VA_ARGS__)
#define tensor_bitwise_xor(...) TENSOR__CALL(tensor_bitwise_xor, __VA_ARGS__)
#define tensor_bitwise_not(...) TENSOR__CALL(tensor_bitwise_not, __VA_ARGS__)
#define tensor_add_(...) TENSOR__CALL(tensor_add_, __VA_ARGS__)
#define tensor_sub_(...) TENSOR__CALL(tensor_sub_, __VA_ARGS__)
#define tensor_mul_(...) TENSOR__CALL(tensor_mul_, __VA_ARGS__)
#define tensor_div_(...) TENSOR__CALL(tensor_div_, __VA_ARGS__)
#define tensor_add_scalar_(...) TENSOR__CALL(tensor_add_scalar_, __VA_ARGS__)
#define tensor_sub_scalar_(...) TENSOR__CALL(tensor_sub_scalar_, __VA_ARGS__)
#define tensor_mul_scalar_(...) TENSOR__CALL(tensor_mul_scalar_, __VA_ARGS__)
#define tensor_div_scalar_(...) TENSOR__CALL(tensor_div_scalar_, __VA_ARGS__)
#define tensor_addcmul_(...) TENSOR__CALL(tensor_addcmul_, __VA_ARGS__)
#define tensor_abs_(...) TENSOR__CALL(tensor_abs_, __VA_ARGS__)
#define tensor_clamp_(...) TENSOR__CALL(tensor_clamp_, __VA_ARGS__)
#define tensor_exp_(...) TENSOR__CALL(tensor_exp_, __VA_ARGS__)
#define tensor_neg_(...) TENSOR__CALL(tensor_neg_, __VA_ARGS__)
#define tensor_relu_(...) TENSOR__CALL(tensor_relu_, __VA_ARGS__)
#define tensor_sigmoid_(...) TENSOR__CALL(tensor_sigmoid_, __VA_ARGS__)
#define tensor_sqrt_(...) TENSOR__CALL(tensor_sqrt_, __VA_ARGS__)
#define tensor_tanh_(...) TENSOR__CALL(tensor_tanh_, __VA_ARGS__)
#define tensor_copy_(...) TENSOR__CALL(tensor_copy_, __VA_ARGS__)
#define tensor_fill_(...) TENSOR__CALL(tensor_fill_, __VA_ARGS__)
#define tensor_zero_(...) TENSOR__CALL(tensor_zero_, __VA_ARGS__)
#define tensor_masked_fill_(...) TENSOR__CALL(tensor_masked_fill_, __VA_ARGS__)
#define tensor_acosh(...) TENSOR__CALL(tensor_acosh, __VA_ARGS__)
#define tensor_asinh(...) TENSOR__CALL(tensor_asinh, __VA_ARGS__)
#define tensor_atanh(...) TENSOR__CALL(tensor_atanh, __VA_ARGS__)
#define tensor_clamp_max(...) TENSOR__CALL(tensor_clamp_max, __VA_ARGS__)
#define tensor_clamp_min(...) TENSOR__CALL(tensor_clamp_min, __VA_ARGS__)
#define tensor_deg2rad(...) TENSOR__CALL(tensor_deg2rad, __VA_ARGS__)
#define tensor_digamma(...) TENSOR__CALL(tensor_digamma, __VA_ARGS__)
#define tensor_erfinv(...) TENSOR__CALL(tensor_erfinv, __VA_ARGS__)
#define tensor_frac(...) TENSOR__CALL(tensor_frac, __VA_ARGS__)
#define tensor_hardsigmoid(...) TENSOR__CALL(tensor_hardsigmoid, __VA_ARGS__)
#define tensor_hardswish(...) TENSOR__CALL(tensor_hardswish, __VA_ARGS__)
#define tensor_hardtanh(...) TENSOR__CALL(tensor_hardtanh, __VA_ARGS__)
#define tensor_lgamma(...) TENSOR__CALL(tensor_lgamma, __VA_ARGS__)
#define tensor_logit(...) TENSOR__CALL(tensor_logit, __VA_ARGS__)
#define tensor_mish(...) TENSOR__CALL(tensor_mish, __VA_ARGS__)
#define tensor_nan_to_num(...) TENSOR__CALL(tensor_nan_to_num, __VA_ARGS__)
#define tensor_polygamma(...) TENSOR__CALL(tensor_polygamma, __VA_ARGS__)
#define tensor_positive(...) TENSOR__CALL(tensor_positive, __VA_ARGS__)
#define tensor_rad2deg(...) TENSOR__CALL(tensor_rad2deg, __VA_ARGS__)
#define tensor_sgn(...) TENSOR__CALL(tensor_sgn, __VA_ARGS__)
#define tensor_sinc(...) TENSOR__CALL(tensor_sinc, __VA_ARGS__)
#define tensor_copysign(...) TENSOR__CALL(tensor_copysign, __VA_ARGS__)
#define tensor_div_mode(...) TENSOR__CALL(tensor_div_mode, __VA_ARGS__)
#define tensor_float_power(...) TENSOR__CALL(tensor_float_power, __VA_ARGS__)
#define tensor_fmax(...) TENSOR__CALL(tensor_fmax, __VA_ARGS__)
#define tensor_fmin(...) TENSOR__CALL(tensor_fmin, __VA_ARGS__)
#define tensor_heaviside(...) TENSOR__CALL(tensor_heaviside, __VA_ARGS__)
#define tensor_hypot(...) TENSOR__CALL(tensor_hypot, __VA_ARGS__)
#define tensor_ldexp(...) TENSOR__CALL(tensor_ldexp, __VA_ARGS__)
#define tensor_logaddexp(...) TENSOR__CALL(tensor_logaddexp, __VA_ARGS__)
#define tensor_logaddexp2(...) TENSOR__CALL(tensor_logaddexp2, __VA_ARGS__)
#define tensor_xlogy(...) TENSOR__CALL(tensor_xlogy, __VA_ARGS__)
#define tensor_copysign_scalar(...) TENSOR__CALL(tensor_copysign_scalar, __VA_ARGS__)
#define tensor_float_power_scalar(...) TENSOR__CALL(tensor_float_power_scalar, __VA_ARGS__)
#define tensor_xlogy_scalar(...) TENSOR__CALL(tensor_xlogy_scalar, __VA_ARGS__)
#define tensor_lerp_scalar(...) TENSOR__CALL(tensor_lerp_scalar, __VA_ARGS__)
#define tensor_clamp_tensor(...) TENSOR__CALL(tensor_clamp_tensor, __VA_ARGS__)
#define tensor_isneginf(...) TENSOR__CALL(tensor_isneginf, __VA_ARGS__)
#define tensor_isposinf(...) TENSOR__CALL(tensor_isposinf, __VA_ARGS__)
#define tensor_signbit(...) TENSOR__CALL(tensor_signbit, __VA_ARGS__)
#define tensor_isclose(...) TENSOR__CALL(tensor_isclose, __VA_ARGS__)
#define tensor_bitwise_left_shift(...) TENSOR__CALL(tensor_bitwise_left_shift, __VA_ARGS__)
#define tensor_bitwise_right_shift(...) TENSOR__CALL(tensor_bitwise_right_shift, __VA_ARGS__)
#define tensor_bitwise_and_scalar(...) TENSOR__CALL(tensor_bitwise_and_scalar, __VA_ARGS__)
#define tensor_bitwise_or_scalar(...) TENSOR__CALL(tensor_bitwise_or_scalar, __VA_ARGS__)
#define tensor_bitwise_xor_scalar(...) TENSOR__CALL(tensor_bitwise_xor_scalar, __VA_ARGS__)
#define tensor_bitwise_left_shift_scalar(...) TENSOR__CALL(tensor_bitwise_left_shift_scalar, __VA_ARGS__)
#define tensor_bitwise_right_shift_scalar(...) TENSOR__CALL(tensor_bitwise_right_shift_scalar, __VA_ARGS__)
#define tensor_pow_(...) TENSOR__CALL(tensor_pow_, __VA_ARGS__)
#define tensor_pow_scalar_(...) TENSOR__CALL(tensor_pow_scalar_, __VA_ARGS__)
#define tensor_remainder_(...) TENSOR__CALL(tensor_remainder_, __VA_ARGS__)
#define tensor_remainder_scalar_(...) TENSOR__CALL(tensor_remainder_scalar_, __VA_ARGS__)
#define tensor_fmod_(...) TENSOR__CALL(tensor_fmod_, __VA_ARGS__)
#define tensor_fmod_scalar_(...) TENSOR__CALL(tensor_fmod_scalar_, __VA_ARGS__)
#define tensor_floor_divide_(...) TENSOR__CALL(tensor_floor_divide_, __VA_ARGS__)
#define tensor_floor_divide_scalar_(...) TENSOR__CALL(tensor_floor_divide_scalar_, __VA_ARGS__)
#define tensor_bitwise_and_(...) TENSOR__CALL(tensor_bitwise_and_, __VA_ARGS__)
#define tensor_bitwise_and_scalar_(...) TENSOR__CALL(tensor_bitwise_and_scalar_, __VA_ARGS__)
#define tensor_bitwise_or_(...) TENSOR__CALL(tensor_bitwise_or_, __VA_ARGS__)
#define tensor_bitwise_or_scalar_(...) TENSOR__CALL(tensor_bitwise_or_scalar_, __VA_ARGS__)
#define tensor_bitwise_xor_(...) TENSOR__CALL(tensor_bitwise_xor_, __VA_ARGS__)
#define tensor_bitwise_xor_scalar_(...) TENSOR__CALL(tensor_bitwise_xor_scalar_, __VA_ARGS__)
#define tensor_lerp_(...) TENSOR__CALL(tensor_lerp_, __VA_ARGS__)
#define tensor_lerp_scalar_(...) TENSOR__CALL(tensor_lerp_scalar_, __VA_ARGS__)
#define tensor_addcdiv_(...) TENSOR__CALL(tensor_addcdiv_, __VA_ARGS__)
#define tensor_ceil_(...) TENSOR__CALL(tensor_ceil_, __VA_ARGS__)
#define tensor_cos_(...) TENSOR__CALL(tensor_cos_, __VA_ARGS__)
#define tensor_erf_(...) TENSOR__CALL(tensor_erf_, __VA_ARGS__)
#define tensor_erfinv_(...) TENSOR__CALL(tensor_erfinv_, __VA_ARGS__)
#define tensor_exp2_(...) TENSOR__CALL(tensor_exp2_, __VA_ARGS__)
#define tensor_expm1_(...) TENSOR__CALL(tensor_expm1_, __VA_ARGS__)
#define tensor_floor_(...) TENSOR__CALL(tensor_floor_, __VA_ARGS__)
#define tensor_log_(...) TENSOR__CALL(tensor_log_, __VA_ARGS__)
#define tensor_log10_(...) TENSOR__CALL(tensor_log10_, __VA_ARGS__)
#define tensor_log1p_(...) TENSOR__CALL(tensor_log1p_, __VA_ARGS__)
#define tensor_log2_(...) TENSOR__CALL(tensor_log2_, __VA_ARGS__)
#define tensor_reciprocal_(...) TENSOR__CALL(tensor_reciprocal_, __VA_ARGS__)
#define tensor_round_(...) TENSOR__CALL(tensor_round_, __VA_ARGS__)
#define tensor_rsqrt_(...) TENSOR__CALL(tensor_rsqrt_, __VA_ARGS__)
#define tensor_sign_(...) TENSOR__CALL(tensor_sign_, __VA_ARGS__)
#define tensor_sin_(...) TENSOR__CALL(tensor_sin_, __VA_ARGS__)
#define tensor_square_(...) TENSOR__CALL(tensor_square_, __VA_ARGS__)
#define tensor_tan_(...) TENSOR__CALL(tensor_tan_, __VA_ARGS__)
#define tensor_trunc_(...) TENSOR__CALL(tensor_trunc_, __VA_ARGS__)
#define tensor_clamp_max_(...) TENSOR__CALL(tensor_clamp_max_, __VA_ARGS__)
#define tensor_clamp_min_(...) TENSOR__CALL(tensor_clamp_min_, __VA_ARGS__)
#define tensor_elu_(...) TENSOR__CALL(tensor_elu_, __VA_ARGS__)
#define tensor_hardtanh_(...) TENSOR__CALL(tensor_hardtanh_, __VA_ARGS__)
#define tensor_leaky_relu_(...) TENSOR__CALL(tensor_leaky_relu_, __VA_ARGS__)
#define tensor_nan_to_num_(...) TENSOR__CALL(tensor_nan_to_num_, __VA_ARGS__)
#define tensor_sum(...) TENSOR__CALL(tensor_sum, __VA_ARGS__)
#define tensor_mean(...) TENSOR__CALL(tensor_mean, __VA_ARGS__)
#define tensor_prod(...) TENSOR__CALL(tensor_prod, __VA_ARGS__)
#define tensor_max(...) TENSOR__CALL(tensor_max, __VA_ARGS__)
#define tensor_min(...) TENSOR__CALL(tensor_min, __VA_ARGS__)
#define tensor_argmax(...) TENSOR__CALL(tensor_argmax, __VA_ARGS__)
#define tensor_argmin(...) TENSOR__CALL(tensor_argmin, __VA_ARGS__)
#define tensor_any(...) TENSOR__CALL(tensor_any, __VA_ARGS__)
#define tensor_all(...) TENSOR__CALL(tensor_all, __VA_ARGS__)
#define tensor_var(...) TENSOR__CALL(tensor_var, __VA_ARGS__)
#define tensor_std(...) TENSOR__CALL(tensor_std, __VA_ARGS__)
#define tensor_norm(...) TENSOR__CALL(tensor_norm, __VA_ARGS__)
#define tensor_sum_dim(...) TENSOR__CALL(tensor_sum_dim, __VA_ARGS__)
#define tensor_mean_dim(...) TENSOR__CALL(tensor_mean_dim, __VA_ARGS__)
#define tensor_prod_dim(...) TENSOR__CALL(tensor_prod_dim, __VA_ARGS__)
#define tensor_amax_dim(...) TENSOR__CALL(tensor_amax_dim, __VA_ARGS__)
#define tensor_amin_dim(...) TENSOR__CALL(tensor_amin_dim, __VA_ARGS__)
#define tensor_argmax_dim(...) TENSOR__CALL(tensor_argmax_dim, __VA_ARGS__)
#define tensor_argmin_dim(...) TENSOR__CALL(tensor_argmin_dim, __VA_ARGS__)
#define tensor_any_dim(...) TENSOR__CALL(tensor_any_dim, __VA_ARGS__)
#define tensor_all_dim(...) TENSOR__CALL(tensor_all_dim, __VA_ARGS__)
#define tensor_var_dim(...) TENSOR__CALL(tensor_var_dim, __VA_ARGS__)
#define tensor_std_dim(...) TENSOR__CALL(tensor_std_dim, __VA_ARGS__)
#define tensor_norm_dim(...) TENSOR__CALL(tensor_norm_dim, __VA_ARGS__)
#define tensor_logsumexp(...) TENSOR__CALL(tensor_logsumexp, __VA_ARGS__)
#define tensor_sum_dims(...) TENSOR__CALL(tensor_sum_dims, __VA_ARGS__)
#define tensor_mean_dims(...) TENSOR__CALL(tensor_mean_dims, __VA_ARGS__)
#define tensor_prod_dims(...) TENSOR__CALL(tensor_prod_dims, __VA_ARGS__)
#define tensor_amax_dims(...) TENSOR__CALL(tensor_amax_dims, __VA_ARGS__)
#define tensor_amin_dims(...) TENSOR__CALL(tensor_amin_dims, __VA_ARGS__)
#define tensor_any_dims(...) TENSOR__CALL(tensor_any_dims, __VA_ARGS__)
#define tensor_all_dims(...) TENSOR__CALL(tensor_all_dims, __VA_ARGS__)
#define tensor_logsumexp_dims(...) TENSOR__CALL(tensor_logsumexp_dims, __VA_ARGS__)
#define tensor_var_dims(...) TENSOR__CALL(tensor_var_dims, __VA_ARGS__)
#define tensor_std_dims(...) TENSOR__CALL(tensor_std_dims, __VA_ARGS__)
#define tensor_count_nonzero(...) TENSOR__CALL(tensor_count_nonzero, __VA_ARGS__)
#define tensor_count_nonzero_dims(...) TENSOR__CALL(tensor_count_nonzero_dims, __VA_ARGS__)
#define tensor_nansum(...) TENSOR__CALL(tensor_nansum, __VA_ARGS__)
#define tensor_nansum_dims(...) TENSOR__CALL(tensor_nansum_dims, __VA_ARGS__)
#define tensor_nanmean(...) TENSOR__CALL(tensor_nanmean, __VA_ARGS__)
#define tensor_nanmean_dims(...) TENSOR__CALL(tensor_nanmean_dims, __VA_ARGS__)
#define tensor_norm_p(...) TENSOR__CALL(tensor_norm_p, __VA_ARGS__)
#define tensor_norm_p_dims(...) TENSOR__CALL(tensor_norm_p_dims, __VA_ARGS__)
#define tensor_var_mean(...) TENSOR__CALL(tensor_var_mean, __VA_ARGS__)
#define tensor_var_mean_dims(...) TENSOR__CALL(tensor_var_mean_dims, __VA_ARGS__)
#define tensor_std_mean(...) TENSOR__CALL(tensor_std_mean, __VA_ARGS__)
#define tensor_std_mean_dims(...) TENSOR__CALL(tensor_std_mean_dims, __VA_ARGS__)
#define tensor_aminmax(...) TENSOR__CALL(tensor_aminmax, __VA_ARGS__)
#define tensor_aminmax_dim(...) TENSOR__CALL(tensor_aminmax_dim, __VA_ARGS__)
#define tensor_cumsum(...) TENSOR__CALL(tensor_cumsum, __VA_ARGS__)
#define tensor_cumprod(...) TENSOR__CALL(tensor_cumprod, __VA_ARGS__)
#define tensor_logcumsumexp(...) TENSOR__CALL(tensor_logcumsumexp, __VA_ARGS__)
#define tensor_diff(...) TENSOR__CALL(tensor_diff, __VA_ARGS__)
#define tensor_trapezoid(...) TENSOR__CALL(tensor_trapezoid, __VA_ARGS__)
#define tensor_cumulative_trapezoid(...) TENSOR__CALL(tensor_cumulative_trapezoid, __VA_ARGS__)
#define tensor_softmax(...) TENSOR__CALL(tensor_softmax, __VA_ARGS__)
#define tensor_log_softmax(...) TENSOR__CALL(tensor_log_softmax, __VA_ARGS__)
#define tensor_dist(...) TENSOR__CALL(tensor_dist, __VA_ARGS__)
#define tensor_cdist(...) TENSOR__CALL(tensor_cdist, __VA_ARGS__)
#define tensor_renorm(...) TENSOR__CALL(tensor_renorm, __VA_ARGS__)
#define tensor_cov(...) TENSOR__CALL(tensor_cov, __VA_ARGS__)
#define tensor_corrcoef(...) TENSOR__CALL(tensor_corrcoef, __VA_ARGS__)
#define tensor_msort(...) TENSOR__CALL(tensor_msort, __VA_ARGS__)
#define tensor_argsort(...) TENSOR__CALL(tensor_argsort, __VA_ARGS__)
#define tensor_median(...) TENSOR__CALL(tensor_median, __VA_ARGS__)
#define tensor_nanmedian(...) TENSOR__CALL(tensor_nanmedian, __VA_ARGS__)
#define tensor_quantile(...) TENSOR__CALL(tensor_quantile, __VA_ARGS__)
#define tensor_nanquantile(...) TENSOR__CALL(tensor_nanquantile, __VA_ARGS__)
#define tensor_quantile_dim(...) TENSOR__CALL(tensor_quantile_dim, __VA_ARGS__)
#define tensor_nanquantile_dim(...) TENSOR__CALL(tensor_nanquantile_dim, __VA_ARGS__)
#define tensor_unique(...) TENSOR__CALL(tensor_unique, __VA_ARGS__)
#define tensor_unique_dim(...) TENSOR__CALL(tensor_unique_dim, __VA_ARGS__)
#define tensor_unique_consecutive(...) TENSOR__CALL(tensor_unique_consecutive, __VA_ARGS__)
#define tensor_unique_consecutive_dim(...) TENSOR__CALL(tensor_unique_consecutive_dim, __VA_ARGS__)
#define tensor_searchsorted(...) TENSOR__CALL(tensor_searchsorted, __VA_ARGS__)
#define tensor_bucketize(...) TENSOR__CALL(tensor_bucketize, __VA_ARGS__)
#define tensor_isin(...) TENSOR__CALL(tensor_isin, __VA_ARGS__)
#define tensor_bincount(...) TENSOR__CALL(tensor_bincount, __VA_ARGS__)
#define tensor_histc(...) TENSOR__CALL(tensor_histc, __VA_ARGS__)
#define tensor_matmul(...) TENSOR__CALL(tensor_matmul, __VA_ARGS__)
#define tensor_mm(...) TENSOR__CALL(tensor_mm, __VA_ARGS__)
#define tensor_bmm(...) TENSOR__CALL(tensor_bmm, __VA_ARGS__)
#define tensor_mv(...) TENSOR__CALL(tensor_mv, __VA_ARGS__)
#define tensor_dot(...) TENSOR__CALL(tensor_dot, __VA_ARGS__)
#define tensor_outer(...) TENSOR__CALL(tensor_outer, __VA_ARGS__)
#define tensor_addmm(...) TENSOR__CALL(tensor_addmm, __VA_ARGS__)
#define tensor_baddbmm(...) TENSOR__CALL(tensor_baddbmm, __VA_ARGS__)
#define tensor_addbmm(...) TENSOR__CALL(tensor_addbmm, __VA_ARGS__)
#define tensor_addmv(...) TENSOR__CALL(tensor_addmv, __VA_ARGS__)
#define tensor_addr(...) TENSOR__CALL(tensor_addr, __VA_ARGS__)
#define tensor_linalg_vecdot(...) TENSOR__CALL(tensor_linalg_vecdot, __VA_ARGS__)
#define tensor_vdot(...) TENSOR__CALL(tensor_vdot, __VA_ARGS__)
#define tensor_inner(...) TENSOR__CALL(tensor_inner, __VA_ARGS__)
#define tensor_tensordot(...) TENSOR__CALL(tensor_tensordot, __VA_ARGS__)
#define tensor_tensordot_dims(...) TENSOR__CALL(tensor_tensordot_dims, __VA_ARGS__)
#define tensor_trace(...) TENSOR__CALL(tensor_trace, __VA_ARGS__)
#define tensor_kron(...) TENSOR__CALL(tensor_kron, __VA_ARGS__)
#define tensor_linalg_cross(...) TENSOR__CALL(tensor_linalg_cross, __VA_ARGS__)
#define tensor_linalg_cholesky(...) TENSOR__CALL(tensor_linalg_cholesky, __VA_ARGS__)
#define tensor_cholesky(...) TENSOR__CALL(tensor_cholesky, __VA_ARGS__)
#define tensor_cholesky_solve(...) TENSOR__CALL(tensor_cholesky_solve, __VA_ARGS__)
#define tensor_cholesky_inverse(...) TENSOR__CALL(tensor_cholesky_inverse, __VA_ARGS__)
#define tensor_linalg_solve(...) TENSOR__CALL(tensor_linalg_solve, __VA_ARGS__)
#define tensor_linalg_solve_triangular(...) TENSOR__CALL(tensor_linalg_solve_triangular, __VA_ARGS__)
#define tensor_linalg_inv(...) TENSOR__CALL(tensor_linalg_inv, __VA_ARGS__)
#define tensor_inverse(...) TENSOR__CALL(tensor_inverse, __VA_ARGS__)
#define tensor_linalg_det(...) TENSOR__CALL(tensor_linalg_det, __VA_ARGS__)
#define tensor_det(...) TENSOR__CALL(tensor_det, __VA_ARGS__)
#define tensor_linalg_slogdet(...) TENSOR__CALL_KIND(slogdet, tensor_linalg_slogdet, __VA_ARGS__)
#define tensor_slogdet(...) TENSOR__CALL_KIND(slogdet, tensor_slogdet, __VA_ARGS__)
#define tensor_logdet(...) TENSOR__CALL(tensor_logdet, __VA_ARGS__)
#define tensor_linalg_lu_factor(...) TENSOR__CALL_KIND(lu_factor, tensor_linalg_lu_factor, __VA_ARGS__)
#define tensor_linalg_lu(...) TENSOR__CALL_KIND(lu, tensor_linalg_lu, __VA_ARGS__)
#define tensor_lu_unpack(...) TENSOR__CALL_KIND(lu, tensor_lu_unpack, __VA_ARGS__)
#define tensor_lu_solve(...) TENSOR__CALL(tensor_lu_solve, __VA_ARGS__)
#define tensor_linalg_lu_solve(...) TENSOR__CALL(tensor_linalg_lu_solve, __VA_ARGS__)
#define tensor_linalg_qr(...) TENSOR__CALL_KIND(qr, tensor_linalg_qr, __VA_ARGS__)
#define tensor_qr(...) TENSOR__CALL_KIND(qr, tensor_qr, __VA_ARGS__)
#define tensor_linalg_svd(...) TENSOR__CALL_KIND(linalg_svd, tensor_linalg_svd, __VA_ARGS__)
#define tensor_svd(...) TENSOR__CALL_KIND(svd, tensor_svd, __VA_ARGS__)
#define tensor_linalg_svdvals(...) TENSOR__CALL(tensor_linalg_svdvals, __VA_ARGS__)
#define tensor_linalg_eigh(...) TENSOR__CALL_KIND(eigh, tensor_linalg_eigh, __VA_ARGS__)
#define tensor_linalg_eigvalsh(...) TENSOR__CALL(tensor_linalg_eigvalsh, __VA_ARGS__)
#define tensor_linalg_pinv(...) TENSOR__CALL(tensor_linalg_pinv, __VA_ARGS__)
#define tensor_pinverse(...) TENSOR__CALL(tensor_pinverse, __VA_ARGS__)
#define tensor_linalg_matrix_rank(...) TENSOR__CALL(tensor_linalg_matrix_rank, __VA_ARGS__)
#define tensor_linalg_lstsq(...) TENSOR__CALL_KIND(lstsq, tensor_linalg_lstsq, __VA_ARGS__)
#define tensor_linalg_matrix_power(...) TENSOR__CALL(tensor_linalg_matrix_power, __VA_ARGS__)
#define tensor_matrix_power(...) TENSOR__CALL(tensor_matrix_power, __VA_ARGS__)
#define tensor_linalg_matrix_exp(...) TENSOR__CALL(tensor_linalg_matrix_exp, __VA_ARGS__)
#define tensor_matrix_exp(...) TENSOR__CALL(tensor_matrix_exp, __VA_ARGS__)
#define tensor_linalg_vector_norm(...) TENSOR__CALL(tensor_linalg_vector_norm, __VA_ARGS__)
#define tensor_linalg_matrix_norm(...) TENSOR__CALL(tensor_linalg_matrix_norm, __VA_ARGS__)
#define tensor_linalg_norm(...) TENSOR__CALL(tensor_linalg_norm, __VA_ARGS__)
#define tensor_linalg_cond(...) TENSOR__CALL(tensor_linalg_cond, __VA_ARGS__)
#define tensor_cross(...) TENSOR__CALL(tensor_cross, __VA_ARGS__)
#define tensor_einsum_n(...) TENSOR__CALL(tensor_einsum_n, __VA_ARGS__)
#define tensor_linalg_multi_dot_n(...) TENSOR__CALL(tensor_linalg_multi_dot_n, __VA_ARGS__)
#define tensor_chain_matmul_n(...) TENSOR__CALL(tensor_chain_matmul_n, __VA_ARGS__)
#define tensor_tril(...) TENSOR__CALL(tensor_tril, __VA_ARGS__)
#define tensor_triu(...) TENSOR__CALL(tensor_triu, __VA_ARGS__)
#define tensor_index_select(...) TENSOR__CALL(tensor_index_select, __VA_ARGS__)
#define tensor_index_add(...) TENSOR__CALL(tensor_index_add, __VA_ARGS__)
#define tensor_gather(...) TENSOR__CALL(tensor_gather, __VA_ARGS__)
#define tensor_scatter_add(...) TENSOR__CALL(tensor_scatter_add, __VA_ARGS__)
#define tensor_scatter(...) TENSOR__CALL(tensor_scatter, __VA_ARGS__)
#define tensor_masked_fill(...) TENSOR__CALL(tensor_masked_fill, __VA_ARGS__)
#define tensor_masked_select(...) TENSOR__CALL(tensor_masked_select, __VA_ARGS__)
#define tensor_index_add_(...) TENSOR__CALL(tensor_index_add_, __VA_ARGS__)
#define tensor_index_add_alpha(...) TENSOR__CALL(tensor_index_add_alpha, __VA_ARGS__)
#define tensor_index_copy(...) TENSOR__CALL(tensor_index_copy, __VA_ARGS__)
#define tensor_index_copy_(...) TENSOR__CALL(tensor_index_copy_, __VA_ARGS__)
#define tensor_index_fill(...) TENSOR__CALL(tensor_index_fill, __VA_ARGS__)
#define tensor_index_fill_(...) TENSOR__CALL(tensor_index_fill_, __VA_ARGS__)
#define tensor_take_along_dim(...) TENSOR__CALL(tensor_take_along_dim, __VA_ARGS__)
#define tensor_scatter_add_(...) TENSOR__CALL(tensor_scatter_add_, __VA_ARGS__)
#define tensor_scatter_(...) TENSOR__CALL(tensor_scatter_, __VA_ARGS__)
#define tensor_scatter_value(...) TENSOR__CALL(tensor_scatter_value, __VA_ARGS__)
#define tensor_scatter_value_(...) TENSOR__CALL(tensor_scatter_value_, __VA_ARGS__)
#define tensor_scatter_reduce(...) TENSOR__CALL(tensor_scatter_reduce, __VA_ARGS__)
#define tensor_scatter_reduce_(...) TENSOR__CALL(tensor_scatter_reduce_, __VA_ARGS__)
#define tensor_take(...) TENSOR__CALL(tensor_take, __VA_ARGS__)
#define tensor_put(...) TENSOR__CALL(tensor_put, __VA_ARGS__)
#define tensor_nonzero(...) TENSOR__CALL(tensor_nonzero, __VA_ARGS__)
#define tensor_masked_scatter(...) TENSOR__CALL(tensor_masked_scatter, __VA_ARGS__)
#define tensor_masked_scatter_(...) TENSOR__CALL(tensor_masked_scatter_, __VA_ARGS__)
#define tensor_one_hot(...) TENSOR__CALL(tensor_one_hot, __VA_ARGS__)
#define tensor_randperm(...) TENSOR__CALL(tensor_randperm, __VA_ARGS__)
#define tensor_bernoulli(...) TENSOR__CALL(tensor_bernoulli, __VA_ARGS__)
#define tensor_poisson(...) TENSOR__CALL(tensor_poisson, __VA_ARGS__)
#define tensor_multinomial(...) TENSOR__CALL(tensor_multinomial, __VA_ARGS__)
#define tensor_uniform_(...) TENSOR__CALL(tensor_uniform_, __VA_ARGS__)
#define tensor_normal_(...) TENSOR__CALL(tensor_normal_, __VA_ARGS__)
#define tensor_exponential_(...) TENSOR__CALL(tensor_exponential_, __VA_ARGS__)
#define tensor_cauchy_(...) TENSOR__CALL(tensor_cauchy_, __VA_ARGS__)
#define tensor_log_normal_(...) TENSOR__CALL(tensor_log_normal_, __VA_ARGS__)
#define tensor_geometric_(...) TENSOR__CALL(tensor_geometric_, __VA_ARGS__)
#define tensor_bernoulli_(...) TENSOR__CALL(tensor_bernoulli_, __VA_ARGS__)
#define tensor_random_(...) TENSOR__CALL(tensor_random_, __VA_ARGS__)
#define tensor_requires_grad_(...) TENSOR__CALL(tensor_requires_grad_, __VA_ARGS__)
#define tensor_grad(...) TENSOR__CALL(tensor_grad, __VA_ARGS__)
#define tensor_detach_(...) TENSOR__CALL(tensor_detach_, __VA_ARGS__)
#define tensor_retain_grad(...) TENSOR__CALL(tensor_retain_grad, __VA_ARGS__)
#define tensor_apply(...) TENSOR__CALL(tensor_apply, __VA_ARGS__)
#define tensor_checkpoint(...) TENSOR__CALL(tensor_checkpoint, __VA_ARGS__)
#define tensor_vjp(...) TENSOR__CALL(tensor_vjp, __VA_ARGS__)
#define tensor_jvp(...) TENSOR__CALL(tensor_jvp, __VA_ARGS__)
#define tensor_hvp(...) TENSOR__CALL(tensor_hvp, __VA_ARGS__)
#define tensor_vhp(...) TENSOR__CALL(tensor_vhp, __VA_ARGS__)
#define tensor_grad_output(...) TENSOR__CALL(tensor_grad_output, __VA_ARGS__)
#define tensor_saved(...) TENSOR__CALL(tensor_saved, __VA_ARGS__)
#define tensor_scope_reset(...) TENSOR__CALL_KIND(int, tensor_scope_reset, __VA_ARGS__)
#define tensor_scope_end(...) TENSOR__CALL_KIND(int, tensor_scope_end, __VA_ARGS__)
#define tensor_free(...) TENSOR__CALL_KIND(int, tensor_free, __VA_ARGS__)
#define tensor_set(...) TENSOR__CALL_KIND(int, tensor_set, __VA_ARGS__)
#define tensor_copy_out(...) TENSOR__CALL_KIND(int, tensor_copy_out, __VA_ARGS__)
#define tensor_allclose(...) TENSOR__CALL_KIND(int, tensor_allclose, __VA_ARGS__)
#define tensor_equal(...) TENSOR__CALL_KIND(int, tensor_equal, __VA_ARGS__)
#define tensor_print(...) TENSOR__CALL_KIND(int, tensor_print, __VA_ARGS__)
#define tensor_split(...) TENSOR__CALL_KIND(int, tensor_split, __VA_ARGS__)
#define tensor_check_n(...) TENSOR__CALL_KIND(int, tensor_check_n, __VA_ARGS__)
#define tensor_set_default_dtype(...) TENSOR__CALL_KIND(int, tensor_set_default_dtype, __VA_ARGS__)
#define tensor_set_num_threads(...) TENSOR__CALL_KIND(int, tensor_set_num_threads, __VA_ARGS__)
#define tensor_set_allocator(...) TENSOR__CALL_KIND(int, tensor_set_allocator, __VA_ARGS__)
#define tensor_set_parallel_for(...) TENSOR__CALL_KIND(int, tensor_set_parallel_for, __VA_ARGS__)
#define tensor_raise(...) tensor__at_int(TENSOR_HERE, (tensor_raise)(__VA_ARGS__))
#define tensor_set_cpu(...) TENSOR__CALL_KIND(int, tensor_set_cpu, __VA_ARGS__)
#define tensor_chunk(...) TENSOR__CALL_KIND(int, tensor_chunk, __VA_ARGS__)
#define tensor_meshgrid(...) TENSOR__CALL_KIND(int, tensor_meshgrid, __VA_ARGS__)
#define tensor_broadcast_tensors(...) TENSOR__CALL_KIND(int, tensor_broadcast_tensors, __VA_ARGS__)
#define tensor_split_with_sizes(...) TENSOR__CALL_KIND(int, tensor_split_with_sizes, __VA_ARGS__)
#define tensor_tensor_split(...) TENSOR__CALL_KIND(int, tensor_tensor_split, __VA_ARGS__)
#define tensor_tensor_split_at(...) TENSOR__CALL_KIND(int, tensor_tensor_split_at, __VA_ARGS__)
#define tensor_unbind(...) TENSOR__CALL_KIND(int, tensor_unbind, __VA_ARGS__)
#define tensor_hsplit(...) TENSOR__CALL_KIND(int, tensor_hsplit, __VA_ARGS__)
#define tensor_vsplit(...) TENSOR__CALL_KIND(int, tensor_vsplit, __VA_ARGS__)
#define tensor_dsplit(...) TENSOR__CALL_KIND(int, tensor_dsplit, __VA_ARGS__)
#define tensor_set_grad(...) TENSOR__CALL_KIND(int, tensor_set_grad, __VA_ARGS__)
#define tensor_backward(...) TENSOR__CALL_KIND(int, tensor_backward, __VA_ARGS__)
#define tensor_backward_with(...) TENSOR__CALL_KIND(int, tensor_backward_with, __VA_ARGS__)
#define tensor_autograd_grad(...) TENSOR__CALL_KIND(int, tensor_autograd_grad, __VA_ARGS__)
#define tensor_save_for_backward(...) TENSOR__CALL_KIND(int, tensor_save_for_backward, __VA_ARGS__)
#define tensor_apply_n(...) TENSOR__CALL_KIND(int, tensor_apply_n, __VA_ARGS__)
#define tensor_set_output(...) TENSOR__CALL_KIND(int, tensor_set_output, __VA_ARGS__)
#define tensor_mark_dirty(...) TENSOR__CALL_KIND(int, tensor_mark_dirty, __VA_ARGS__)
#define tensor_set_default_device(...) TENSOR__CALL_KIND(int, tensor_set_default_device, __VA_ARGS__)
#define tensor_mark_non_differentiable(...)                                                                  \
    TENSOR__CALL_KIND(int, tensor_mark_non_differentiable, __VA_ARGS__)
#define tensor_jacobian(...) TENSOR__CALL_KIND(int, tensor_jacobian, __VA_ARGS__)
#define tensor_hessian(...) TENSOR__CALL_KIND(int, tensor_hessian, __VA_ARGS__)
#define tensor_gradcheck(...) TENSOR__CALL_KIND(int, tensor_gradcheck, __VA_ARGS__)
#define tensor_gradgradcheck(...) TENSOR__CALL_KIND(int, tensor_gradgradcheck, __VA_ARGS__)
#define tensor_register_hook(...) TENSOR__CALL_KIND(i64, tensor_register_hook, __VA_ARGS__)
#define tensor_register_post_accumulate_grad_hook(...)                                                       \
    TENSOR__CALL_KIND(i64, tensor_register_post_accumulate_grad_hook, __VA_ARGS__)
#define tensor_size(...) TENSOR__CALL_KIND(i64, tensor_size, __VA_ARGS__)
#define tensor_stride(...) TENSOR__CALL_KIND(i64, tensor_stride, __VA_ARGS__)
#define tensor_item_i64(...) TENSOR__CALL_KIND(i64, tensor_item_i64, __VA_ARGS__)
#define tensor_item(...) TENSOR__CALL_KIND(f64, tensor_item, __VA_ARGS__)
#define tensor_data(...) TENSOR__CALL_KIND(ptr, tensor_data, __VA_ARGS__)
#define tensor_data_mut(...) ((void *)(intptr_t)TENSOR__CALL_KIND(ptr, tensor_data_mut, __VA_ARGS__))
#define tensor_max_dim(...) TENSOR__CALL_KIND(pair, tensor_max_dim, __VA_ARGS__)
#define tensor_min_dim(...) TENSOR__CALL_KIND(pair, tensor_min_dim, __VA_ARGS__)
#define tensor_cummax(...) TENSOR__CALL_KIND(pair, tensor_cummax, __VA_ARGS__)
#define tensor_cummin(...) TENSOR__CALL_KIND(pair, tensor_cummin, __VA_ARGS__)
#define tensor_sort(...) TENSOR__CALL_KIND(pair, tensor_sort, __VA_ARGS__)
#define tensor_topk(...) TENSOR__CALL_KIND(pair, tensor_topk, __VA_ARGS__)
#define tensor_kthvalue(...) TENSOR__CALL_KIND(pair, tensor_kthvalue, __VA_ARGS__)
#define tensor_median_dim(...) TENSOR__CALL_KIND(pair, tensor_median_dim, __VA_ARGS__)
#define tensor_nanmedian_dim(...) TENSOR__CALL_KIND(pair, tensor_nanmedian_dim, __VA_ARGS__)
#define tensor_mode(...) TENSOR__CALL_KIND(pair, tensor_mode, __VA_ARGS__)

// The plain twins are stamped too.
#define tensor_empty_n(...) TENSOR__CALL(tensor_empty_n, __VA_ARGS__)
#define tensor_zeros_n(...) TENSOR__CALL(tensor_zeros_n, __VA_ARGS__)
#define tensor_ones_n(...) TENSOR__CALL(tensor_ones_n, __VA_ARGS__)
#define tensor_full_n(...) TENSOR__CALL(tensor_full_n, __VA_ARGS__)
#define tensor_from_n(...) TENSOR__CALL(tensor_from_n, __VA_ARGS__)
#define tensor_wrap_n(...) TENSOR__CALL(tensor_wrap_n, __VA_ARGS__)
#define tensor_reshape_n(...) TENSOR__CALL(tensor_reshape_n, __VA_ARGS__)
#define tensor_view_n(...) TENSOR__CALL(tensor_view_n, __VA_ARGS__)
#define tensor_permute_n(...) TENSOR__CALL(tensor_permute_n, __VA_ARGS__)
#define tensor_expand_n(...) TENSOR__CALL(tensor_expand_n, __VA_ARGS__)
#define tensor_cat_n(...) TENSOR__CALL(tensor_cat_n, __VA_ARGS__)
#define tensor_stack_n(...) TENSOR__CALL(tensor_stack_n, __VA_ARGS__)
#define tensor_index_n(...) TENSOR__CALL(tensor_index_n, __VA_ARGS__)
#define tensor_index_put_n(...) TENSOR__CALL(tensor_index_put_n, __VA_ARGS__)
#define tensor_index_put_n_(...) TENSOR__CALL(tensor_index_put_n_, __VA_ARGS__)
#define tensor_repeat_n(...) TENSOR__CALL(tensor_repeat_n, __VA_ARGS__)
#define tensor_tile_n(...) TENSOR__CALL(tensor_tile_n, __VA_ARGS__)
#define tensor_flip_n(...) TENSOR__CALL(tensor_flip_n, __VA_ARGS__)
#define tensor_unflatten_n(...) TENSOR__CALL(tensor_unflatten_n, __VA_ARGS__)
#define tensor_hstack_n(...) TENSOR__CALL(tensor_hstack_n, __VA_ARGS__)
#define tensor_vstack_n(...) TENSOR__CALL(tensor_vstack_n, __VA_ARGS__)
#define tensor_dstack_n(...) TENSOR__CALL(tensor_dstack_n, __VA_ARGS__)
#define tensor_column_stack_n(...) TENSOR__CALL(tensor_column_stack_n, __VA_ARGS__)
#define tensor_rand_n(...) TENSOR__CALL(tensor_rand_n, __VA_ARGS__)
#define tensor_randn_n(...) TENSOR__CALL(tensor_randn_n, __VA_ARGS__)
#define tensor_randint_n(...) TENSOR__CALL(tensor_randint_n, __VA_ARGS__)

#ifndef __cplusplus

// | 0: a double or a pointer among the dims does not compile.
#define TENSOR__C1(a) (int64_t)((a) | 0)
#define TENSOR__C2(a, b) TENSOR__C1(a), TENSOR__C1(b)
#define TENSOR__C3(a, b, c) TENSOR__C1(a), TENSOR__C1(b), TENSOR__C1(c)
#define TENSOR__C4(a, b, c, d) TENSOR__C2(a, b), TENSOR__C2(c, d)
#define TENSOR__C5(a, b, c, d, e) TENSOR__C3(a, b, c), TENSOR__C2(d, e)
#define TENSOR__C6(a, b, c, d, e, f) TENSOR__C3(a, b, c), TENSOR__C3(d, e, f)
#define TENSOR__C7(a, b, c, d, e, f, g) TENSOR__C4(a, b, c, d), TENSOR__C3(e, f, g)
#define TENSOR__C8(a, b, c, d, e, f, g, h) TENSOR__C4(a, b, c, d), TENSOR__C4(e, f, g, h)
#define TENSOR__NTH(a, b, c, d, e, f, g, h, n, ...) n
#define TENSOR__COUNT(...) TENSOR__NTH(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define TENSOR__GLUE2(a, b) a##b
#define TENSOR__GLUE(a, b) TENSOR__GLUE2(a, b)
#define TENSOR__CASTS(...) TENSOR__GLUE(TENSOR__C, TENSOR__COUNT(__VA_ARGS__))(__VA_ARGS__)

// 1 to 8 dims, or a list of tensors, as the two arguments (array, count). sizeof does not evaluate.
#define TENSOR_DIMS(...) ((const int64_t[]){TENSOR__CASTS(__VA_ARGS__)}), TENSOR__COUNT(__VA_ARGS__)
#define TENSOR_LIST(...)                                                                                     \
    ((tensor_t *const[]){__VA_ARGS__}), (int)(sizeof((tensor_t *const[]){__VA_ARGS__}) / sizeof(tensor_t *))

#define tensor_empty(...) tensor_empty_n(TENSOR_DIMS(__VA_ARGS__), tensor_get_default_dtype())
#define tensor_zeros(...) tensor_zeros_n(TENSOR_DIMS(__VA_ARGS__), tensor_get_default_dtype())
#define tensor_ones(...) tensor_ones_n(TENSOR_DIMS(__VA_ARGS__), tensor_get_default_dtype())
#define tensor_empty_of(dtype, ...) tensor_empty_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_zeros_of(dtype, ...) tensor_zeros_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_ones_of(dtype, ...) tensor_ones_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_full(value, ...) tensor_full_n(TENSOR_DIMS(__VA_ARGS__), value, tensor_get_default_dtype())
#define tensor_full_of(dtype, value, ...) tensor_full_n(TENSOR_DIMS(__VA_ARGS__), value, dtype)
#define tensor_from(data, dtype, ...) tensor_from_n(data, dtype, TENSOR_DIMS(__VA_ARGS__))
#define tensor_wrap(data, dtype, ...) tensor_wrap_n(data, dtype, TENSOR_DIMS(__VA_ARGS__), 0, 0)
#define tensor_reshape(x, ...) tensor_reshape_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_view(x, ...) tensor_view_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_permute(x, ...) tensor_permute_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_expand(x, ...) tensor_expand_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_repeat(x, ...) tensor_repeat_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_tile(x, ...) tensor_tile_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_flip(x, ...) tensor_flip_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_broadcast_to(x, ...) tensor_expand_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_unflatten(x, dim, ...) tensor_unflatten_n(x, dim, TENSOR_DIMS(__VA_ARGS__))
#define tensor_hstack(...) tensor_hstack_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_vstack(...) tensor_vstack_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_dstack(...) tensor_dstack_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_column_stack(...) tensor_column_stack_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_rand(...) tensor_rand_n(TENSOR_DIMS(__VA_ARGS__))
#define tensor_randn(...) tensor_randn_n(TENSOR_DIMS(__VA_ARGS__))
#define tensor_randint(low, high, ...) tensor_randint_n(low, high, TENSOR_DIMS(__VA_ARGS__))
#define tensor_cat(dim, ...) tensor_cat_n(TENSOR_LIST(__VA_ARGS__), dim)
#define tensor_stack(dim, ...) tensor_stack_n(TENSOR_LIST(__VA_ARGS__), dim)
#define tensor_einsum(equation, ...) tensor_einsum_n(equation, TENSOR_LIST(__VA_ARGS__))
#define tensor_linalg_multi_dot(...) tensor_linalg_multi_dot_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_chain_matmul(...) tensor_chain_matmul_n(TENSOR_LIST(__VA_ARGS__))
#define tensor_index(x, ...) tensor_index_n(x, TENSOR_LIST(__VA_ARGS__))
#define tensor_rearrange(x, ...)                                                                             \
    tensor_rearrange_with(x, TENSOR_ARGS(tensor_rearrange, tensor_rearrange_args_t, __VA_ARGS__))
#define tensor_check(...) tensor_check_with(TENSOR_ARGS(tensor_check, tensor_check_args_t, __VA_ARGS__))
#define tensor_index_put(x, values, accumulate, ...)                                                         \
    tensor_index_put_n(x, TENSOR_LIST(__VA_ARGS__), values, accumulate)
#define tensor_index_put_(x, values, accumulate, ...)                                                        \
    tensor_index_put_n_(x, TENSOR_LIST(__VA_ARGS__), values, accumulate)

#else   // C++

// ------------------------------------------------------------------------------
// >>cpp                                            MARK: C++ face
//
// Variadic templates instead of compound literals, so that nothing here is an extension in C++11.
// tensor_scope_guard ends its scope at the closing brace; tensor_ref keeps a tensor and frees it, and has the
// operators.
// ------------------------------------------------------------------------------

struct tensor_dims_pack {
    int64_t d[TENSOR_MAX_DIMS];
    int n;
    template <class... D> explicit tensor_dims_pack(D... dims) : d{static_cast<int64_t>(dims | 0)...},
        n(sizeof...(D)) {
        static_assert(sizeof...(D) <= TENSOR_MAX_DIMS, "at most 8 dims");
    }
};
// A function of dims: what stands before them, and the call, where p holds them.
#define TENSOR__FACE(name, before, call)                                                                     \
    template <class... D> inline tensor_t *tensor_##name(TENSOR__BEFORE before D... dims) {                  \
        tensor_dims_pack p(dims...);                                                                         \
        return call;                                                                                         \
    }
#define TENSOR__BEFORE(...) __VA_ARGS__
TENSOR__FACE(empty, (), (tensor_empty_n)(p.d, p.n, tensor_get_default_dtype()))
TENSOR__FACE(zeros, (), (tensor_zeros_n)(p.d, p.n, tensor_get_default_dtype()))
TENSOR__FACE(ones, (), (tensor_ones_n)(p.d, p.n, tensor_get_default_dtype()))
TENSOR__FACE(empty_of, (tensor_dtype_t dtype, ), (tensor_empty_n)(p.d, p.n, dtype))
TENSOR__FACE(zeros_of, (tensor_dtype_t dtype, ), (tensor_zeros_n)(p.d, p.n, dtype))
TENSOR__FACE(ones_of, (tensor_dtype_t dtype, ), (tensor_ones_n)(p.d, p.n, dtype))
TENSOR__FACE(full, (double value, ), (tensor_full_n)(p.d, p.n, value, tensor_get_default_dtype()))
TENSOR__FACE(full_of, (tensor_dtype_t dtype, double value, ), (tensor_full_n)(p.d, p.n, value, dtype))
TENSOR__FACE(from, (const void *data, tensor_dtype_t dtype, ), (tensor_from_n)(data, dtype, p.d, p.n))
TENSOR__FACE(wrap, (void *data, tensor_dtype_t dtype, ),
             (tensor_wrap_n)(data, dtype, p.d, p.n, nullptr, nullptr))
TENSOR__FACE(reshape, (tensor_t *x, ), (tensor_reshape_n)(x, p.d, p.n))
TENSOR__FACE(view, (tensor_t *x, ), (tensor_view_n)(x, p.d, p.n))
TENSOR__FACE(permute, (tensor_t *x, ), (tensor_permute_n)(x, p.d, p.n))
TENSOR__FACE(expand, (tensor_t *x, ), (tensor_expand_n)(x, p.d, p.n))
TENSOR__FACE(broadcast_to, (tensor_t *x, ), (tensor_expand_n)(x, p.d, p.n))
TENSOR__FACE(repeat, (tensor_t *x, ), (tensor_repeat_n)(x, p.d, p.n))
TENSOR__FACE(tile, (tensor_t *x, ), (tensor_tile_n)(x, p.d, p.n))
TENSOR__FACE(flip, (tensor_t *x, ), (tensor_flip_n)(x, p.d, p.n))
TENSOR__FACE(unflatten, (tensor_t *x, int64_t dim, ), (tensor_unflatten_n)(x, dim, p.d, p.n))
TENSOR__FACE(rand, (), (tensor_rand_n)(p.d, p.n))
TENSOR__FACE(randn, (), (tensor_randn_n)(p.d, p.n))
TENSOR__FACE(randint, (int64_t low, int64_t high, ), (tensor_randint_n)(low, high, p.d, p.n))
#undef TENSOR__FACE
// A function of tensors: l holds them, n says how many.
#define TENSOR__FACE(name, before, call)                                                                     \
    template <class... T> inline tensor_t *tensor_##name(TENSOR__BEFORE before const T &... list) {          \
        tensor_t *const l[] = {static_cast<tensor_t *>(list)...};                                            \
        const int n = static_cast<int>(sizeof...(T));                                                        \
        return call;                                                                                         \
    }
TENSOR__FACE(hstack, (), (tensor_hstack_n)(l, n))
TENSOR__FACE(vstack, (), (tensor_vstack_n)(l, n))
TENSOR__FACE(dstack, (), (tensor_dstack_n)(l, n))
TENSOR__FACE(column_stack, (), (tensor_column_stack_n)(l, n))
TENSOR__FACE(cat, (int64_t dim, ), (tensor_cat_n)(l, n, dim))
TENSOR__FACE(stack, (int64_t dim, ), (tensor_stack_n)(l, n, dim))
TENSOR__FACE(einsum, (const char *equation, ), (tensor_einsum_n)(equation, l, n))
TENSOR__FACE(linalg_multi_dot, (), (tensor_linalg_multi_dot_n)(l, n))
TENSOR__FACE(chain_matmul, (), (tensor_chain_matmul_n)(l, n))
#undef TENSOR__FACE
#undef TENSOR__BEFORE
// No templates: a NULL in a parameter pack is a number.
inline tensor_t *tensor_index(tensor_t *x, std::initializer_list<tensor_t *> l) {
    return (tensor_index_n)(x, l.begin(), static_cast<int>(l.size()));
}
inline tensor_t *tensor_index_put(tensor_t *x, tensor_t *values, int accumulate,
                                  std::initializer_list<tensor_t *> l) {
    return (tensor_index_put_n)(x, l.begin(), static_cast<int>(l.size()), values, accumulate);
}
inline tensor_t *tensor_index_put_(tensor_t *x, tensor_t *values, int accumulate,
                                   std::initializer_list<tensor_t *> l) {
    return (tensor_index_put_n_)(x, l.begin(), static_cast<int>(l.size()), values, accumulate);
}
inline tensor_t *tensor_rearrange(tensor_t *x, const char *pattern,
                                  tensor_rearrange_args_t a = tensor_rearrange_args_t()) {
    a.pattern = pattern;
    return tensor_rearrange_with(x, a);
}
inline tensor_t *tensor_rearrange(tensor_t *x, const char *pattern, const char *reduce,
                                  tensor_rearrange_args_t a = tensor_rearrange_args_t()) {
    a.reduce = reduce;
    return (tensor_rearrange)(x, pattern, a);
}
template <class... P> inline int tensor_check(tensor_t *x, const char *pattern, P... sizes) {
    int64_t *const p[] = {sizes..., nullptr};
    return (tensor_check_n)(x, pattern, p, static_cast<int>(sizeof...(P)));
}
#define tensor_empty(...) TENSOR__CALL(tensor_empty, __VA_ARGS__)
#define tensor_zeros(...) TENSOR__CALL(tensor_zeros, __VA_ARGS__)
#define tensor_ones(...) TENSOR__CALL(tensor_ones, __VA_ARGS__)
#define tensor_empty_of(...) TENSOR__CALL(tensor_empty_of, __VA_ARGS__)
#define tensor_zeros_of(...) TENSOR__CALL(tensor_zeros_of, __VA_ARGS__)
#define tensor_ones_of(...) TENSOR__CALL(tensor_ones_of, __VA_ARGS__)
#define tensor_full(...) TENSOR__CALL(tensor_full, __VA_ARGS__)
#define tensor_full_of(...) TENSOR__CALL(tensor_full_of, __VA_ARGS__)
#define tensor_from(...) TENSOR__CALL(tensor_from, __VA_ARGS__)
#define tensor_wrap(...) TENSOR__CALL(tensor_wrap, __VA_ARGS__)
#define tensor_reshape(...) TENSOR__CALL(tensor_reshape, __VA_ARGS__)
#define tensor_view(...) TENSOR__CALL(tensor_view, __VA_ARGS__)
#define tensor_permute(...) TENSOR__CALL(tensor_permute, __VA_ARGS__)
#define tensor_expand(...) TENSOR__CALL(tensor_expand, __VA_ARGS__)
#define tensor_repeat(...) TENSOR__CALL(tensor_repeat, __VA_ARGS__)
#define tensor_tile(...) TENSOR__CALL(tensor_tile, __VA_ARGS__)
#define tensor_flip(...) TENSOR__CALL(tensor_flip, __VA_ARGS__)
#define tensor_broadcast_to(...) TENSOR__CALL(tensor_broadcast_to, __VA_ARGS__)
#define tensor_unflatten(...) TENSOR__CALL(tensor_unflatten, __VA_ARGS__)
#define tensor_hstack(...) TENSOR__CALL(tensor_hstack, __VA_ARGS__)
#define tensor_vstack(...) TENSOR__CALL(tensor_vstack, __VA_ARGS__)
#define tensor_dstack(...) TENSOR__CALL(tensor_dstack, __VA_ARGS__)
#define tensor_column_stack(...) TENSOR__CALL(tensor_column_stack, __VA_ARGS__)
#define tensor_rand(...) TENSOR__CALL(tensor_rand, __VA_ARGS__)
#define tensor_randn(...) TENSOR__CALL(tensor_randn, __VA_ARGS__)
#define tensor_randint(...) TENSOR__CALL(tensor_randint, __VA_ARGS__)
#define tensor_cat(...) TENSOR__CALL(tensor_cat, __VA_ARGS__)
#define tensor_stack(...) TENSOR__CALL(tensor_stack, __VA_ARGS__)
#define tensor_einsum(...) TENSOR__CALL(tensor_einsum, __VA_ARGS__)
#define tensor_linalg_multi_dot(...) TENSOR__CALL(tensor_linalg_multi_dot, __VA_ARGS__)
#define tensor_chain_matmul(...) TENSOR__CALL(tensor_chain_matmul, __VA_ARGS__)
#define tensor_index(x, ...) TENSOR__CALL(tensor_index, x, {__VA_ARGS__})
#define tensor_rearrange(...) TENSOR__CALL(tensor_rearrange, __VA_ARGS__)
#define tensor_check(...) TENSOR__CALL_KIND(int, tensor_check, __VA_ARGS__)
#define tensor_index_put(x, values, accumulate, ...)                                                         \
    TENSOR__CALL(tensor_index_put, x, values, accumulate, {__VA_ARGS__})
#define tensor_index_put_(x, values, accumulate, ...)                                                        \
    TENSOR__CALL(tensor_index_put_, x, values, accumulate, {__VA_ARGS__})

// tensor_scope_begin now, tensor_scope_end at the closing brace.
class tensor_scope_guard {
  public:
    tensor_scope_guard() : scope_(tensor_scope_begin()) {}
    ~tensor_scope_guard() { (tensor_scope_end)(scope_); }
    tensor_scope_t scope() const { return scope_; }
    int reset() { return (tensor_scope_reset)(scope_); }

  private:
    tensor_scope_guard(const tensor_scope_guard &);
    tensor_scope_guard &operator=(const tensor_scope_guard &);
    tensor_scope_t scope_;
};

// A tensor with operators: wraps a tensor_t * without owning it, so that a * b + 1 is a sum and not pointer
// arithmetic.
class tensor_val {
  public:
    tensor_val(tensor_t *t) : t_(t) {}
    operator tensor_t *() const { return t_; }
    tensor_t *get() const { return t_; }

  protected:
    tensor_t *t_;
};
inline tensor_val operator-(const tensor_val &a) { return (tensor_neg)(a.get()); }
// Numbers of every built-in type: one overload too few would make a * tensor_numel(x) ambiguous.
#define TENSOR__OPERATOR_NUMBER(sign, name, reverse, type)                                                   \
    inline tensor_val operator sign(const tensor_val &a, type b) {                                           \
        return (tensor_##name##_scalar)(a.get(), (double)b);                                                 \
    }                                                                                                        \
    inline tensor_val operator sign(type number, const tensor_val &b) {                                      \
        const double a = (double)number;                                                                     \
        return reverse;                                                                                      \
    }
#define TENSOR__OPERATOR(sign, name, reverse)                                                                \
    inline tensor_val operator sign(const tensor_val &a, const tensor_val &b) {                              \
        return (tensor_##name)(a.get(), b.get());                                                            \
    }                                                                                                        \
    inline tensor_val operator sign(const tensor_val &a, tensor_t *b) {                                      \
        return (tensor_##name)(a.get(), b);                                                                  \
    }                                                                                                        \
    inline tensor_val operator sign(tensor_t *a, const tensor_val &b) {                                      \
        return (tensor_##name)(a, b.get());                                                                  \
    }                                                                                                        \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, double)                                                     \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, float)                                                      \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, int)                                                        \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, unsigned)                                                   \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, long)                                                       \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, unsigned long)                                              \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, long long)                                                  \
    TENSOR__OPERATOR_NUMBER(sign, name, reverse, unsigned long long)                                         \
    /* in place, as x += y of PyTorch */                                                                     \
    inline const tensor_val &operator sign##=(const tensor_val &a, const tensor_val &b) {                    \
        (tensor_##name##_)(a.get(), b.get());                                                                \
        return a;                                                                                            \
    }                                                                                                        \
    inline const tensor_val &operator sign##=(const tensor_val &a, double b) {                               \
        (tensor_##name##_scalar_)(a.get(), b);                                                               \
        return a;                                                                                            \
    }
TENSOR__OPERATOR(+, add, (tensor_add_scalar)(b.get(), a))
TENSOR__OPERATOR(-, sub, (tensor_rsub_scalar)(b.get(), a))
TENSOR__OPERATOR(*, mul, (tensor_mul_scalar)(b.get(), a))
TENSOR__OPERATOR(/, div, (tensor_mul_scalar)((tensor_reciprocal)(b.get()), a))
#undef TENSOR__OPERATOR_NUMBER
#undef TENSOR__OPERATOR

// A kept tensor, move-only: tensor_keep on construction, tensor_free at the end.
class tensor_ref : public tensor_val {
  public:
    tensor_ref() : tensor_val(nullptr), born_(tensor__shutdowns()) {}
    tensor_ref(tensor_t *t) : tensor_val((tensor_keep)(t)), born_(tensor__shutdowns()) {}
    tensor_ref(const tensor_val &t) : tensor_val((tensor_keep)(t.get())), born_(tensor__shutdowns()) {}
    tensor_ref(tensor_ref &&o) noexcept : tensor_val(o.t_), born_(o.born_) { o.t_ = nullptr; }
    tensor_ref &operator=(tensor_ref &&o) noexcept {
        if (this != &o) { drop(); t_ = o.t_; born_ = o.born_; o.t_ = nullptr; }
        return *this;
    }
    tensor_ref &operator=(tensor_t *t) {
        if (born_ != tensor__shutdowns()) { drop(); born_ = tensor__shutdowns(); }
        (tensor_set)(&t_, t);
        return *this;
    }
    tensor_ref &operator=(const tensor_val &t) { return *this = t.get(); }
    ~tensor_ref() { drop(); }

  private:
    tensor_ref(const tensor_ref &);
    tensor_ref &operator=(const tensor_ref &);
    void drop() {
        if (born_ == tensor__shutdowns()) { (tensor_free)(t_); }
        t_ = nullptr;
    }
    int born_;
};

#endif

#endif   // TENSOR_H_INCLUDED_7C1E

// ------------------------------------------------------------------------------
// >>shared                                         MARK: layouts shared with tensor_nn.h and backends
//
// What a separately compiled tensor_nn.h or backend needs: layouts, the call, the op tables. At link time
// they meet in one symbol, tensor__internals(). Rejected: exporting every private function (clashes, frozen
// signatures).
// ------------------------------------------------------------------------------

#if defined(TENSOR_IMPLEMENTATION) || defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#ifndef TENSOR_SHARED_7C1E
#define TENSOR_SHARED_7C1E

#include <math.h>
#include <stdarg.h>
#include <string.h>

#if (defined(__FAST_MATH__) || defined(_M_FP_FAST)) && !defined(TENSOR_ALLOW_FAST_MATH)
#error "tensor.h: -ffast-math breaks NaN rules and equal bits; TENSOR_ALLOW_FAST_MATH builds all the same"
#endif

// From COLD to END gcc tries less, whatever level is asked for: fronts and the bodies of f64 and integers are
// half of the code, and with them so the whole compiles in four fifths of the time.
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#define TENSOR__COLD _Pragma("GCC push_options")                                                             \
    _Pragma("GCC optimize(\"O1,strict-aliasing,align-loops,align-functions,fp-contract=off\")")
#define TENSOR__END _Pragma("GCC pop_options")
#else
#define TENSOR__COLD
#define TENSOR__END
#endif

#define TENSOR__FN static TENSOR__UNUSED
#ifndef TENSOR__BOTH
#define TENSOR__BOTH                    // what a device compiles as well: tensor_cuda.cu says how
#endif
#if defined(__GNUC__) || defined(__clang__)
#define TENSOR__INLINE static inline __attribute__((always_inline, unused))
#define TENSOR__LIKELY(x) __builtin_expect(!!(x), 1)
#define TENSOR__NOINLINE __attribute__((noinline))
#define TENSOR__RESTRICT __restrict
#else
#define TENSOR__INLINE static inline
#define TENSOR__LIKELY(x) (x)
#define TENSOR__NOINLINE
#define TENSOR__RESTRICT
#endif
#ifndef TENSOR_ASSERT
#include <assert.h>
#define TENSOR_ASSERT(x) assert(x)
#endif

// Counters that several threads touch. C99 and MSVC's C have no stdatomic, hence six own operations.
typedef int32_t tensor__count_t;
#if defined(TENSOR_NO_THREADS)
#define TENSOR__ATOMIC_LOAD(p) (*(p))
#define TENSOR__ATOMIC_STORE(p, v) ((void)(*(p) = (v)))
#define TENSOR__ATOMIC_ADD(p, v) ((*(p) += (v)) - (v))
#elif defined(__GNUC__) || defined(__clang__)
#define TENSOR__ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define TENSOR__ATOMIC_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define TENSOR__ATOMIC_ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)   // gives the old value
#else
#include <intrin.h>
#define TENSOR__ATOMIC_LOAD(p) (_ReadWriteBarrier(), *(volatile tensor__count_t *)(p))
#define TENSOR__ATOMIC_STORE(p, v) ((void)_InterlockedExchange((volatile long *)(p), (long)(v)))
#define TENSOR__ATOMIC_ADD(p, v) _InterlockedExchangeAdd((volatile long *)(p), (long)(v))
#endif

// References. glibc says whether the process has a second thread at all: without one, a locked instruction
// (some 8 ns, and a recorded op has eight) is not needed. The flag falls before a thread starts and never
// rises while one runs.
#if !defined(TENSOR_NO_THREADS) && defined(__GLIBC__) && (defined(__GNUC__) || defined(__clang__))
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 32)
#include <sys/single_threaded.h>
#define TENSOR__ALONE (__libc_single_threaded != 0)
#endif
#endif
#ifndef TENSOR__ALONE
#define TENSOR__ALONE 0
#endif
// Adds one.
TENSOR__INLINE void tensor__ref(tensor__count_t *p) {
    if (TENSOR__ALONE) {
        TENSOR__ATOMIC_STORE(p, TENSOR__ATOMIC_LOAD(p) + 1);
    } else {
        (void)TENSOR__ATOMIC_ADD(p, 1);
    }
}
// Drops one; 1 if it was the last. The sole owner (count 1) needs no locked instruction.
TENSOR__INLINE int tensor__unref(tensor__count_t *p) {
    tensor__count_t n = TENSOR__ATOMIC_LOAD(p);
    if (n == 1) { return 1; }
    if (!TENSOR__ALONE) { return TENSOR__ATOMIC_ADD(p, -1) == 1; }
    TENSOR__ATOMIC_STORE(p, n - 1);
    return 0;
}
#define TENSOR__HOLD(p) tensor__ref(p)
#define TENSOR__DROP(p) tensor__unref(p)

enum { TENSOR__PINNED = 256 };          // the CPU as the device of a new tensor, its memory as of alloc(-1)
enum { TENSOR__API_VERSION = 2, TENSOR__MAX_IN = 8, TENSOR__MAX_OUT = 4 };
enum { TENSOR__LIVE = 0x7E50B001, TENSOR__DEAD = 0x7E50DEAD, TENSOR__POISON_STATE = 0x7E50BAD0 };
enum {                                  // tensor_t.flags
    TENSOR__REQUIRES_GRAD = 1,          // leaf marked by the user
    TENSOR__HOOKED = 2,                 // leaf with hooks: next is its tensor__extra_t
    TENSOR__CONTIGUOUS = 4,
    TENSOR__NO_GRAD_VIEW = 8,           // view made under no_grad: an in-place change cannot be recorded
    TENSOR__MULTI_VIEW = 16,            // one of several views of one call (split): the same
    TENSOR__INFERENCE = 32,             // made in inference mode: no graph may save it
    TENSOR__ROWS = 64,                  // gradient [n, width] by rows; which: its grad (i64, -1 = none), on
                                        // which the flag means that no row is there twice
    TENSOR__INHERITED = TENSOR__NO_GRAD_VIEW | TENSOR__MULTI_VIEW       // by views of the view
};
enum { TENSOR__ANOMALY = 1, TENSOR__INFERRING = 2, TENSOR__PACKING = 4 };  // tensor__thread_t.modes

typedef struct tensor__thread_t tensor__thread_t;
typedef struct tensor__node_t tensor__node_t;
typedef struct tensor__storage_t tensor__storage_t;
typedef struct tensor__row_t tensor__row_t;
typedef struct tensor__grad_t tensor__grad_t;
typedef struct tensor__extra_t tensor__extra_t;

// Bytes shared by views. version counts in-place changes; write_op/write_site name the last one for error
// texts.
struct tensor__storage_t {
    void *data;
    uint64_t bytes;
    tensor__count_t refs;
    uint32_t version;
    tensor__thread_t *home;             // whose free lists it goes back to
    const char *write_op, *write_site;
    void (*deleter)(void *data, void *user);
    void *user;
    tensor__storage_t *next;            // in a free list
    int16_t klass;                      // size class of data, < 0 = not ours
    uint8_t device;
};

// A header. Only the first ndim entries of dims and strides are ever written.
struct tensor_t {
    uint32_t state;                     // LIVE, DEAD or POISON: a stale pointer is noticed, not followed
    uint8_t dtype, device, ndim, flags; // device: 0 = CPU, 1 + i = the i-th of the other backend
    tensor__count_t refs;               // scope + keeps + library (modules, nodes, views)
    tensor__count_t keeps;              // tensor_keep's share of refs
    int64_t offset, numel;              // in elements
    tensor__storage_t *storage;
    tensor__node_t *node;               // what made it, NULL for a leaf
    int32_t output;                     // which of the node's outputs
    int32_t slot;                       // place in its thread's scope stack, -1 = in none
    uint32_t base_version;              // of base when node was made (views)
    uint32_t rebased;                   // counts in-place changes that replaced node (bases)
    tensor_t *base;                     // the tensor a view looks at
    tensor_t *grad;
    tensor__thread_t *home;             // owner of slot and of the header's memory
    const char *op, *site;              // what made it, where
    tensor_t *next;                     // in a free list; of a hooked leaf: its tensor__extra_t
    uint64_t epoch;                     // scope resets of the home thread at its death
    const char *freed;                  // dead: where tensor_free did it, "" = somewhere; NULL = a scope
    tensor__count_t lock;               // guards grad during accumulation
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
};
// Which rows a gradient by rows has; NULL: it has the shape of its leaf, or there is none.
TENSOR__INLINE tensor_t *tensor__rows_of(const tensor_t *g) {
    return g && (g->flags & TENSOR__ROWS) ? g->grad : NULL;
}

// One argument of a call. Backends read nothing but these.
typedef struct tensor_arg_t {
    void *data;                         // first element; NULL = absent
    const int64_t *dims, *strides;      // in elements
    int64_t numel;
    tensor__storage_t *storage;         // NULL for an immediate
    uint8_t dtype, ndim, role, contiguous;
} tensor_arg_t;
enum { TENSOR_READ, TENSOR_WRITE, TENSOR_UPDATE };

// Numbers an op takes besides tensors; what they mean is said at its row.
typedef struct tensor_params_t { double f[4]; int64_t i[20]; } tensor_params_t;

// A call of one kernel: everything a backend needs.
typedef struct tensor_call_t {
    const tensor__row_t *row;
    tensor_arg_t *arg;                  // nin inputs, then nout outputs
    int nin, nout;
    const tensor_params_t *p;
    tensor_generator_t rng;             // stream of this call, for random ops
    uint8_t compute;                    // dtype a pointwise formula is computed in
    uint8_t device;                     // whose kernel runs, as in tensor_t
    void *scratch;                      // row->scratch bytes, aligned to 64
    tensor__thread_t *thread;
} tensor_call_t;
// -> tensor_code_t, after tensor__fail
typedef int (*tensor_kernel_t)(tensor_call_t *call);
typedef uint64_t (*tensor_scratch_t)(const tensor_call_t *call);        // bytes wanted

// Kernel families: a backend has one kernel per family. nn's are here too, so that one number names a family
// anywhere.
typedef enum tensor_family_t {
    TENSOR_FAMILY_POINTWISE, TENSOR_FAMILY_POINTWISE_BACKWARD, TENSOR_FAMILY_REDUCE, TENSOR_FAMILY_ROWS,
    TENSOR_FAMILY_MATMUL, TENSOR_FAMILY_LINALG, TENSOR_FAMILY_INDEX, TENSOR_FAMILY_RANDOM,
    TENSOR_FAMILY_FILL, TENSOR_FAMILY_VIEW, TENSOR_FAMILY_COMPOSED, TENSOR_FAMILY_CUSTOM,
    TENSOR_FAMILY_TRANSFER,
    TENSOR_FAMILY_CONV, TENSOR_FAMILY_POOL, TENSOR_FAMILY_NORM, TENSOR_FAMILY_EMBEDDING,
        TENSOR_FAMILY_DROPOUT,
    TENSOR_FAMILY_ATTENTION, TENSOR_FAMILY_LOSS, TENSOR_FAMILY_OPTIMIZER, TENSOR_FAMILY_RECURRENT,
    TENSOR_FAMILY_COUNT
} tensor_family_t;

// What runs the ops of one kind of device; the CPU is one of them. A function gives a tensor_code_t, 0 =
// done. api and size stand first: a backend built with another tensor.h is refused, not called.
typedef struct tensor_backend_t {
    uint32_t api, size;                 // TENSOR__API_VERSION and sizeof(tensor_backend_t) where it was built
    const char *name;                   // "cpu", "cuda"
    int (*count)(void);                 // devices of this kind now
    // Fresh memory of device `index`; block is what release wants. Not raised: the front names op and shape.
    // Index -1: memory of the host that copies need not wait for.
    int (*alloc)(int index, uint64_t bytes, void **data, void **block);
    void (*release)(void *data, void *block);           // from any thread
    // Copies bytes in the order of the ops before, raised as op's. to_in, from_in: the storage that a side
    // lies in, NULL = the host's. Without wait the host's side, if it is of alloc(-1), is read or there
    // later.
    int (*copy)(void *to, tensor__storage_t *to_in, const void *from, tensor__storage_t *from_in,
                uint64_t bytes, int wait, const char *op);
    // The next may be NULL. Work of the calling thread goes beside its other work (on), or is as before (0).
    void (*aside)(int index, int on);
    // 0 = the device does at once what is asked of it. 1 = the calling thread's calls are recorded, to run
    // later and often: again (may be NULL) is called before each run (run = 1) and when there are no more
    // (0).
    int (*recording)(int index, void (*again)(void *user, int run), void *user);
    void (*site)(const char *site);     // where the calling thread's calls since the last site were made
    // One per family, NULL = not supported: the op is an error that says so. An error is raised by the
    // kernel.
    tensor_kernel_t kernel[TENSOR_FAMILY_COUNT];
    int halves;                         // MATMUL, CONV, ATTENTION, batch and layer norm take f16, bf16
    int channels_last;                  // images of CONV, POOL, batch norm, pointwise may lie so
    // Whether RECURRENT takes a whole net over x of dims: what it keeps for backward in bytes, or < 0. May be
    // NULL.
    int64_t (*net)(int index, int dtype, const int64_t *dims, const tensor_params_t *p);
} tensor_backend_t;

// A row of an op table at run time.
struct tensor__row_t {
    const char *name;
    uint8_t family;
    int8_t nin;                         // -1 = any number
    int8_t required;                    // inputs from here on may be NULL
    uint8_t nout;
    uint8_t kind;                       // TENSOR__FLT .. for pointwise rows
    uint16_t id;                        // TENSOR_OP_ID in its own table
    uint16_t saves;                     // TENSOR__SA .. : what the gradient needs
    void (*grad)(tensor__grad_t *g);    // NULL = NOGRAD
    tensor_kernel_t cpu;                // NULL = composed or view
    tensor_scratch_t scratch;           // NULL = none
    double lo, hi;                      // domain of test inputs
    const char *doc;
    // names of the inputs in error texts, "x index src"; NULL = a b c (x if alone)
    const char *args;
};
// saves input 0, 1, ..
enum { TENSOR__SA = 1, TENSOR__SB = 2, TENSOR__SC = 4, TENSOR__SD = 8, TENSOR__SE = 16,
       // saves output 0, 1, 2
       TENSOR__SY = 256, TENSOR__SY1 = 512, TENSOR__SY2 = 1024 };

// Where a gradient goes: an output of another node, or a leaf.
typedef struct tensor__edge_t { tensor__node_t *node; tensor_t *leaf; int32_t output; } tensor__edge_t;
typedef struct tensor__meta_t { const int64_t *dims; uint8_t ndim, dtype; } tensor__meta_t;
// A value kept for backward: never a header (a saved output would be a cycle).
typedef struct tensor__saved_t {
    tensor__storage_t *storage;         // NULL = absent or an immediate
    int64_t offset;
    const int64_t *dims, *strides;
    double immediate;
    int64_t numel;
    uint32_t version;
    uint8_t ndim, dtype, is_immediate, contiguous;
    int8_t source;                      // input k, or -1 - k for output k
} tensor__saved_t;

// A recorded operation. One block: struct, edges, saved values, metas, their dims, parameters.
struct tensor__node_t {
    tensor__count_t refs;
    int16_t klass;
    // used: its saved values are not there: 1 dropped by a backward pass, 2 by a checkpoint that can make
    // them anew, 3 packed
    uint8_t nout, used;
    int32_t nin, nsaved;
    const tensor__row_t *row;
    uint64_t seq;                       // larger than that of every input
    const char *site;
    tensor__thread_t *home;
    tensor__edge_t *edge;
    tensor__saved_t *saved;
    tensor__meta_t *in, *out;           // shapes of inputs and outputs
    tensor_params_t *p;                 // NULL if the op takes none
    tensor_generator_t rng;
    tensor__extra_t *extra;             // what few nodes have, or NULL
    void *custom;                       // tensor_function_ctx_t of a user function
    tensor__node_t *next;               // worklist of nodes being freed; free list
};

// What a gradient function sees. It fills gx[k] for the inputs that need one, with differentiable ops where
// create is set.
struct tensor__grad_t {
    tensor__thread_t *th;
    tensor__node_t *node;
    tensor_t **gy;                      // gradient of each output, NULL = zero
    tensor_t **gx;
    const tensor_params_t *p;
    int create;
    const struct tensor__pass_t *pass;  // NULL = the gradients of all inputs are wanted
    tensor_t *value[TENSOR__MAX_IN + TENSOR__MAX_OUT];   // unpacked saved values
};

// A public op under construction: begin (checks), result (outputs), finish (launch, record).
typedef struct tensor__op_t {
    tensor__thread_t *th;
    const tensor__row_t *row;
    tensor_t *const *in;
    int nin, nout;
    int update;                         // output 0 is input 0, changed in place
    tensor_t *original;                 // copy of input 0 from before the change, if the gradient needs it
    uint8_t compute;                    // dtype the formula is computed in (pointwise)
    int immediate;                      // input 1 is absent and stands for imm
    int16_t device;                     // of the results, and of the kernel
    uint8_t moved;                      // bit k: args[k] is a copy on that device, dropped by commit
    // outputs the user sees (1); the others are dropped after the tape saved them
    int visible;
    double imm;
    tensor_generator_t rng;             // stream of this call, for random ops (set from next_stream)
    tensor_t *out[TENSOR__MAX_OUT];
    tensor_params_t *p;                 // NULL = none
    tensor_params_t params;
    tensor_t *args[TENSOR__MAX_IN];     // storage for in
} tensor__op_t;

// An object that tensor_shutdown must free (modules, optimizers): embedded, linked into the context.
typedef struct tensor__owned_t {
    struct tensor__owned_t *next, **prev;
    tensor_context_t *ctx;
    void (*destroy)(struct tensor__owned_t *);
} tensor__owned_t;

typedef void (*tensor__task_fn)(void *arg, int64_t task, int worker);   // worker 0..threads-1

// C[m,n] (+)= sum over k of A[m,k] B[k,n] (+ bias[n]), for each batch item. Strides and offsets in elements;
// any strides for A and B, C's column stride is 1.
typedef struct tensor__gemm_t {
    int64_t m, n, k;
    const void *a; int64_t ars, acs;
    const void *b; int64_t brs, bcs;
    void *c; int64_t crs;
    const int64_t *aoff, *boff, *coff; int64_t batch;   // offsets per item; NULL when batch == 1
    const void *bias;                                   // NULL = none
    int accumulate;                                     // C +=
    void *scratch;
} tensor__gemm_t;

// A text that grows in memory of fixed size; length counts on when the room is full.
typedef struct tensor__text_t { char *p; size_t room, length; } tensor__text_t;

// The private functions other parts may call. In a file without the implementation the names below the struct
// stand for members of what tensor__internals gives.
typedef struct tensor__internals_t {
    int version;
    tensor_t *poison;
    tensor__thread_t *(*self)(void);
    tensor_t *(*fail)(tensor__thread_t *th, int code, const char *format, ...);
    void (*text)(tensor__text_t *s, const char *format, ...);     // appends; the format of tensor__format
    // 0 = failed, raised
    int (*begin)(tensor__op_t *o, const tensor__row_t *row, tensor_t *const *in, int nin);
    tensor_t *(*result)(tensor__op_t *o, int dtype, const int64_t *dims, int ndim);
    tensor_t *(*finish)(tensor__op_t *o);
    tensor_t *(*grad_in)(tensor__grad_t *g, int k);
    tensor_t *(*grad_out)(tensor__grad_t *g, int k);
    int (*grad_need)(const tensor__grad_t *g, int k);
    tensor_t *(*sum_to)(tensor_t *g, const int64_t *dims, int ndim);
    tensor_generator_t (*next_stream)(tensor__thread_t *th);
    void (*parallel)(int64_t ntasks, tensor__task_fn fn, void *arg);
    int (*thread_count)(void);
    void (*gemm_f32)(const tensor__gemm_t *g);
    void (*gemm_f64)(const tensor__gemm_t *g);
    uint64_t (*gemm_scratch)(const tensor__gemm_t *g);
    int (*isa)(void);                                     // pass whose kernels to use: 0 scalar .. 3 AVX-512
    int (*reference)(void);                               // TENSOR_REFERENCE: plain double formulas
    // zeroed, counted; NULL after raising OUT_OF_MEMORY
    void *(*memory)(tensor__thread_t *th, uint64_t bytes);
    void (*memory_free)(tensor__thread_t *th, void *p);
    void (*own)(tensor__thread_t *th, tensor__owned_t *o);
    void (*disown)(tensor__owned_t *o);
    tensor_t *(*hold)(tensor_t *t);                       // a library reference
    void (*drop)(tensor_t *t);
    void (*push_path)(tensor__thread_t *th, const char *name);   // module path for error texts
    void (*pop_path)(tensor__thread_t *th);
    // converts n elements
    void (*load)(void *to, int to_dtype, const void *from, int from_dtype, int64_t n);
    void (*philox)(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);
    // the library's own: no epoch; grad_mode < 0 = as it is
    tensor_scope_t (*scope)(int grad_mode);
    tensor_t *(*tidy)(tensor__thread_t *th, int64_t mark, tensor_t *y);
    // for the current context; NULL = none. UNSUPPORTED if it was built with another tensor.h
    int (*set_backend)(const tensor_backend_t *backend);
    // whether th's work for the device is recorded; again as in tensor_backend_t
    int (*recording)(tensor__thread_t *th, int device, void (*again)(void *user, int run), void *user);
    void (*aside)(tensor__thread_t *th, int device, int on);
    tensor_t *(*make)(tensor__thread_t *th, const char *op, int dtype, const int64_t *dims, int ndim,
                      int device);
    void (*arg)(tensor_arg_t *a, const tensor_t *t, int role);
    int (*launch)(tensor_call_t *call);                   // the gate; raised if not 0
    int (*halves)(const tensor_t *x);                     // backend's halves
    int64_t (*net)(const tensor_t *x, const tensor_params_t *p);    // backend's net
    int (*lasts)(const tensor_t *x);                      // x has channels innermost and may keep that
    void (*follow)(tensor_t *t, const tensor_t *x);       // then fresh t has, too
    const tensor__row_t *(*row)(int id);                  // of tensor.h
    const tensor__row_t *(*backward_row)(int id);         // the derivative of a pointwise one
} tensor__internals_t;

#ifdef __cplusplus
extern "C" {
#endif
TENSOR_API const tensor__internals_t *tensor__internals(int version);   // NULL if the version is another
#ifdef __cplusplus
}
#endif
#define TENSOR__(f) (tensor__internals(TENSOR__API_VERSION)->f)

// ------------------------------------------------------------------------------
// >>ops                                            MARK: op tables
//
// One row per op, alphabetical inside its group. Pointwise rows hold their formula and its derivatives in the
// vocabulary below; the others name functions. To add an op: a row here, its public prototype with docs
// above, its call-site macro in >>sites, a name in the list of fronts in >>impl-pointwise, and in the second
// one for x_ in place (another op: a front of its own with checks and shape, kernel, gradient); its cases in
// tests/ops.c, its call in tests/calls.h, its line in tests/fixtures/generate.py and what tests/cuda.sh finds
// in tests/cuda/rows.txt; then make docs. All but tests/ulp.c and tests/promotion.h complain when they are
// forgotten.
//
// Pointwise columns: ID, name, kind, formula in F_A F_B F_C, derivative for each operand (times F_G), what
// the derivatives read, domain of test inputs, doc. Kinds: FLT integers become f32; NUM keeps integers; DBL
// as FLT, but all floats are computed in double by libm: rare functions need no vector body.
// ------------------------------------------------------------------------------

// clang-format off
#define TENSOR__FLT 0
#define TENSOR__NUM 1
#define TENSOR__CMP 2
#define TENSOR__LOG 3
#define TENSOR__BIT 4
#define TENSOR__DBL 5

#define TENSOR_OPS_UNARY(X) \
    X(ABS, abs, NUM, F_ABS(F_A), F_MUL(F_G, F_SIGN(F_A)), TENSOR__SA, -3, 3, "|x|") \
    X(ACOS, acos, FLT, F_ACOS(F_A), F_NEG(F_MUL(F_G, F_RSQRT(F_SUB(F_C(1), F_MUL(F_A, F_A))))), TENSOR__SA, -0.9, 0.9, "arc cosine") \
    X(ASIN, asin, FLT, F_ASIN(F_A), F_MUL(F_G, F_RSQRT(F_SUB(F_C(1), F_MUL(F_A, F_A)))), TENSOR__SA, -0.9, 0.9, "arc sine") \
    X(ATAN, atan, FLT, F_ATAN(F_A), F_DIV(F_G, F_ADD(F_C(1), F_MUL(F_A, F_A))), TENSOR__SA, -3, 3, "arc tangent") \
    X(CEIL, ceil, NUM, F_CEIL(F_A), F_C(0), 0, -3, 3, "smallest integer >= x") \
    X(CLAMP, clamp, NUM, F_MIN(F_MAX(F_A, F_P(0)), F_P(1)), F_SEL(F_AND(F_GE(F_A, F_P(0)), F_LE(F_A, F_P(1))), F_G, F_C(0)), TENSOR__SA, -3, 3, "min(max(x, lo), hi); gradient 1 at the bounds") \
    X(COS, cos, FLT, F_COS(F_A), F_NEG(F_MUL(F_G, F_SIN(F_A))), TENSOR__SA, -5, 5, "cosine") \
    X(COSH, cosh, FLT, F_COSH(F_A), F_MUL(F_G, F_SINH(F_A)), TENSOR__SA, -3, 3, "hyperbolic cosine") \
    X(ELU, elu, FLT, F_SEL(F_GT(F_A, F_C(0)), F_A, F_MUL(F_P(0), F_EXPM1(F_A))), F_SEL(F_GT(F_A, F_C(0)), F_G, F_MUL(F_G, F_MUL(F_P(0), F_EXP(F_A)))), TENSOR__SA, -3, 3, "x > 0 ? x : alpha (e^x - 1)") \
    X(ERF, erf, FLT, F_ERF(F_A), F_MUL(F_G, F_MUL(F_C(1.1283791670955126), F_EXP(F_NEG(F_MUL(F_A, F_A))))), TENSOR__SA, -3, 3, "error function") \
    X(ERFC, erfc, FLT, F_ERFC(F_A), F_MUL(F_G, F_MUL(F_C(-1.1283791670955126), F_EXP(F_NEG(F_MUL(F_A, F_A))))), TENSOR__SA, -3, 3, "1 - erf(x)") \
    X(EXP, exp, FLT, F_EXP(F_A), F_MUL(F_G, F_Y), TENSOR__SY, -4, 4, "e^x") \
    X(EXP2, exp2, FLT, F_EXP2(F_A), F_MUL(F_G, F_MUL(F_C(0.6931471805599453), F_Y)), TENSOR__SY, -4, 4, "2^x") \
    X(EXPM1, expm1, FLT, F_EXPM1(F_A), F_MUL(F_G, F_ADD(F_Y, F_C(1))), TENSOR__SY, -4, 4, "e^x - 1") \
    X(FLOOR, floor, NUM, F_FLOOR(F_A), F_C(0), 0, -3, 3, "largest integer <= x") \
    X(GELU, gelu, FLT, F_GELU(F_A), F_MUL(F_G, F_ADD(F_MUL(F_C(0.5), F_ERFC(F_MUL(F_A, F_C(-0.7071067811865476)))), F_MUL(F_MUL(F_A, F_C(0.3989422804014327)), F_EXP(F_MUL(F_C(-0.5), F_MUL(F_A, F_A)))))), TENSOR__SA, -4, 4, "x Phi(x)") \
    X(GELU_TANH, gelu_tanh, FLT, F_MUL(F_MUL(F_C(0.5), F_A), F_ADD(F_C(1), F_TANH(F_GELU_U(F_A)))), F_MUL(F_G, F_GELU_TANH_D(F_A, F_TANH(F_GELU_U(F_A)))), TENSOR__SA, -4, 4, "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))") \
    X(HARDSIGMOID, hardsigmoid, FLT, F_DIV(F_MIN(F_MAX(F_ADD(F_A, F_C(3)), F_C(0)), F_C(6)), F_C(6)), F_SEL(F_AND(F_GT(F_A, F_C(-3)), F_LT(F_A, F_C(3))), F_DIV(F_G, F_C(6)), F_C(0)), TENSOR__SA, -5, 5, "clamp(x + 3, 0, 6) / 6") \
    X(HARDSWISH, hardswish, FLT, F_DIV(F_MUL(F_A, F_MIN(F_MAX(F_ADD(F_A, F_C(3)), F_C(0)), F_C(6))), F_C(6)), F_SEL(F_LE(F_A, F_C(-3)), F_C(0), F_SEL(F_LT(F_A, F_C(3)), F_MUL(F_G, F_ADD(F_DIV(F_A, F_C(3)), F_C(0.5))), F_G)), TENSOR__SA, -5, 5, "x hardsigmoid(x)") \
    X(HARDTANH, hardtanh, NUM, F_MIN(F_MAX(F_A, F_P(0)), F_P(1)), F_SEL(F_OR(F_LE(F_A, F_P(0)), F_GE(F_A, F_P(1))), F_C(0), F_G), TENSOR__SA, -3, 3, "min(max(x, lo), hi); gradient 0 at the bounds") \
    X(LEAKY_RELU, leaky_relu, FLT, F_SEL(F_GT(F_A, F_C(0)), F_A, F_MUL(F_A, F_P(0))), F_SEL(F_GT(F_A, F_C(0)), F_G, F_MUL(F_G, F_P(0))), TENSOR__SA, -3, 3, "x > 0 ? x : slope x") \
    X(LOG, log, FLT, F_LOG(F_A), F_DIV(F_G, F_A), TENSOR__SA, 0.1, 5, "natural logarithm") \
    X(LOG10, log10, FLT, F_LOG10(F_A), F_DIV(F_G, F_MUL(F_A, F_C(2.302585092994046))), TENSOR__SA, 0.1, 5, "decimal logarithm") \
    X(LOG1P, log1p, FLT, F_LOG1P(F_A), F_DIV(F_G, F_ADD(F_C(1), F_A)), TENSOR__SA, -0.9, 4, "log(1 + x)") \
    X(LOG2, log2, FLT, F_LOG2(F_A), F_DIV(F_G, F_MUL(F_A, F_C(0.6931471805599453))), TENSOR__SA, 0.1, 5, "binary logarithm") \
    X(LOGSIGMOID, logsigmoid, FLT, F_SUB(F_MIN(F_A, F_C(0)), F_LOG1P(F_EXP(F_NEG(F_ABS(F_A))))), F_MUL(F_G, F_SIGMOID(F_NEG(F_A))), TENSOR__SA, -4, 4, "log(sigmoid(x))") \
    X(MISH, mish, FLT, F_MUL(F_A, F_TANH(F_LOG1P(F_EXP(F_A)))), F_MUL(F_G, F_MISH_D(F_A, F_TANH(F_LOG1P(F_EXP(F_A))))), TENSOR__SA, -4, 4, "x tanh(log(1 + e^x))") \
    X(NEG, neg, NUM, F_NEG(F_A), F_NEG(F_G), 0, -3, 3, "-x") \
    X(RECIPROCAL, reciprocal, FLT, F_DIV(F_C(1), F_A), F_NEG(F_MUL(F_G, F_MUL(F_Y, F_Y))), TENSOR__SY, 0.3, 3, "1 / x") \
    X(RELU, relu, NUM, F_SEL(F_LT(F_A, F_C(0)), F_C(0), F_A), F_SEL(F_LE(F_Y, F_C(0)), F_C(0), F_G), TENSOR__SY, -3, 3, "max(x, 0); gradient 0 at 0") \
    X(ROUND, round, NUM, F_ROUND(F_A), F_C(0), 0, -3, 3, "nearest integer, half to even") \
    X(RSQRT, rsqrt, FLT, F_RSQRT(F_A), F_MUL(F_MUL(F_C(-0.5), F_G), F_MUL(F_Y, F_MUL(F_Y, F_Y))), TENSOR__SY, 0.3, 5, "1 / sqrt(x)") \
    X(SIGMOID, sigmoid, FLT, F_SIGMOID(F_A), F_MUL(F_G, F_MUL(F_Y, F_SUB(F_C(1), F_Y))), TENSOR__SY, -5, 5, "1 / (1 + e^-x)") \
    X(SIGN, sign, NUM, F_SIGN(F_A), F_C(0), 0, -3, 3, "-1, 0 or 1; NaN stays NaN") \
    X(SILU, silu, FLT, F_MUL(F_A, F_SIGMOID(F_A)), F_MUL(F_G, F_MUL(F_SIGMOID(F_A), F_ADD(F_C(1), F_MUL(F_A, F_SUB(F_C(1), F_SIGMOID(F_A)))))), TENSOR__SA, -5, 5, "x sigmoid(x)") \
    X(SIN, sin, FLT, F_SIN(F_A), F_MUL(F_G, F_COS(F_A)), TENSOR__SA, -5, 5, "sine") \
    X(SINH, sinh, FLT, F_SINH(F_A), F_MUL(F_G, F_COSH(F_A)), TENSOR__SA, -3, 3, "hyperbolic sine") \
    X(SOFTPLUS, softplus, FLT, F_SEL(F_GT(F_MUL(F_A, F_P(0)), F_P(1)), F_A, F_DIV(F_LOG1P(F_EXP(F_MUL(F_A, F_P(0)))), F_P(0))), F_SEL(F_GT(F_MUL(F_A, F_P(0)), F_P(1)), F_G, F_MUL(F_G, F_SIGMOID(F_MUL(F_A, F_P(0))))), TENSOR__SA, -4, 4, "log(1 + e^(beta x)) / beta, x where beta x > threshold") \
    X(SQRT, sqrt, FLT, F_SQRT(F_A), F_DIV(F_MUL(F_C(0.5), F_G), F_Y), TENSOR__SY, 0.1, 5, "square root") \
    X(SQUARE, square, NUM, F_MUL(F_A, F_A), F_MUL(F_G, F_ADD(F_A, F_A)), TENSOR__SA, -3, 3, "x x") \
    X(TAN, tan, FLT, F_TAN(F_A), F_MUL(F_G, F_ADD(F_C(1), F_MUL(F_Y, F_Y))), TENSOR__SY, -1.2, 1.2, "tangent") \
    X(TANH, tanh, FLT, F_TANH(F_A), F_MUL(F_G, F_SUB(F_C(1), F_MUL(F_Y, F_Y))), TENSOR__SY, -3, 3, "hyperbolic tangent") \
    X(TRUNC, trunc, NUM, F_TRUNC(F_A), F_C(0), 0, -3, 3, "x without its fraction")

// Copies with conversion: clone, to, contiguous, copy_ and the copies inside other ops. Saves nothing.
#define TENSOR_OPS_COPY(X) \
    X(CLONE, clone, NUM, F_A, F_G, 0, -3, 3, "a copy, dtype converted")

#define TENSOR_OPS_BINARY(X) \
    X(ADD, add, NUM, F_ADD(F_A, F_B), F_G, F_G, 0, -3, 3, "a + b") \
    X(ATAN2, atan2, FLT, F_ATAN2(F_A, F_B), F_SEL(F_AND(F_EQ(F_A, F_C(0)), F_EQ(F_B, F_C(0))), F_C(0), F_DIV(F_MUL(F_G, F_B), F_ADD(F_MUL(F_A, F_A), F_MUL(F_B, F_B)))), F_SEL(F_AND(F_EQ(F_A, F_C(0)), F_EQ(F_B, F_C(0))), F_C(0), F_NEG(F_DIV(F_MUL(F_G, F_A), F_ADD(F_MUL(F_A, F_A), F_MUL(F_B, F_B))))), TENSOR__SA | TENSOR__SB, 0.2, 3, "angle of the point (b, a)") \
    X(DIV, div, FLT, F_DIV(F_A, F_B), F_DIV(F_G, F_B), F_NEG(F_DIV(F_MUL(F_G, F_DIV(F_A, F_B)), F_B)), TENSOR__SA | TENSOR__SB, 0.3, 3, "a / b") \
    X(FLOOR_DIVIDE, floor_divide, NUM, F_FLOORDIV(F_A, F_B), F_C(0), F_C(0), 0, 0.3, 3, "floor(a / b)") \
    X(FMOD, fmod, NUM, F_FMOD(F_A, F_B), F_G, F_NEG(F_MUL(F_G, F_TRUNC(F_DIV(F_A, F_B)))), TENSOR__SA | TENSOR__SB, 0.3, 3, "remainder with the sign of a") \
    X(MAXIMUM, maximum, NUM, F_MAX(F_A, F_B), F_SEL(F_EQ(F_A, F_B), F_MUL(F_G, F_C(0.5)), F_SEL(F_LT(F_A, F_B), F_C(0), F_G)), F_SEL(F_EQ(F_A, F_B), F_MUL(F_G, F_C(0.5)), F_SEL(F_LT(F_B, F_A), F_C(0), F_G)), TENSOR__SA | TENSOR__SB, -3, 3, "larger of two; ties share the gradient") \
    X(MINIMUM, minimum, NUM, F_MIN(F_A, F_B), F_SEL(F_EQ(F_A, F_B), F_MUL(F_G, F_C(0.5)), F_SEL(F_LT(F_B, F_A), F_C(0), F_G)), F_SEL(F_EQ(F_A, F_B), F_MUL(F_G, F_C(0.5)), F_SEL(F_LT(F_A, F_B), F_C(0), F_G)), TENSOR__SA | TENSOR__SB, -3, 3, "smaller of two; ties share the gradient") \
    X(MUL, mul, NUM, F_MUL(F_A, F_B), F_MUL(F_G, F_B), F_MUL(F_G, F_A), TENSOR__SA | TENSOR__SB, -3, 3, "a b") \
    X(POW, pow, NUM, F_POW(F_A, F_B), F_SEL(F_EQ(F_B, F_C(0)), F_C(0), F_MUL(F_G, F_MUL(F_B, F_POW(F_A, F_SUB(F_B, F_C(1)))))), F_SEL(F_AND(F_EQ(F_A, F_C(0)), F_GE(F_B, F_C(0))), F_C(0), F_MUL(F_G, F_MUL(F_Y, F_LOG(F_A)))), TENSOR__SA | TENSOR__SB | TENSOR__SY, 0.3, 3, "a^b") \
    X(REMAINDER, remainder, NUM, F_REMAINDER(F_A, F_B), F_G, F_NEG(F_MUL(F_G, F_FLOOR(F_DIV(F_A, F_B)))), TENSOR__SA | TENSOR__SB, 0.3, 3, "remainder with the sign of b") \
    X(SUB, sub, NUM, F_SUB(F_A, F_B), F_G, F_NEG(F_G), 0, -3, 3, "a - b")

#define TENSOR_OPS_TERNARY(X) \
    X(ADDCDIV, addcdiv, FLT, F_ADD(F_A, F_MUL(F_P(0), F_DIV(F_B, F_C_))), F_G, F_DIV(F_MUL(F_G, F_P(0)), F_C_), F_NEG(F_DIV(F_MUL(F_MUL(F_G, F_P(0)), F_DIV(F_B, F_C_)), F_C_)), TENSOR__SB | TENSOR__SC, 0.3, 3, "x + value a / b") \
    X(ADDCMUL, addcmul, NUM, F_ADD(F_A, F_MUL(F_P(0), F_MUL(F_B, F_C_))), F_G, F_MUL(F_G, F_MUL(F_P(0), F_C_)), F_MUL(F_G, F_MUL(F_P(0), F_B)), TENSOR__SB | TENSOR__SC, -3, 3, "x + value a b") \
    X(LERP, lerp, FLT, F_SEL(F_LT(F_ABS(F_C_), F_C(0.5)), F_ADD(F_A, F_MUL(F_C_, F_SUB(F_B, F_A))), F_SUB(F_B, F_MUL(F_SUB(F_B, F_A), F_SUB(F_C(1), F_C_)))), F_MUL(F_G, F_SUB(F_C(1), F_C_)), F_MUL(F_G, F_C_), F_MUL(F_G, F_SUB(F_B, F_A)), TENSOR__SA | TENSOR__SB | TENSOR__SC, -3, 3, "a + weight (b - a)") \
    X(WHERE, where, NUM, F_SEL(F_NE(F_A, F_C(0)), F_B, F_C_), F_C(0), F_SEL(F_NE(F_A, F_C(0)), F_G, F_C(0)), F_SEL(F_NE(F_A, F_C(0)), F_C(0), F_G), TENSOR__SA, -3, 3, "condition ? a : b")

// Results are bool; no gradient. Columns: ID, name, operands, kind, formula (a mask), doc.
#define TENSOR_OPS_COMPARE(X) \
    X(EQ, eq, 2, CMP, F_EQ(F_A, F_B), "a == b") \
    X(GE, ge, 2, CMP, F_GE(F_A, F_B), "a >= b") \
    X(GT, gt, 2, CMP, F_GT(F_A, F_B), "a > b") \
    X(ISFINITE, isfinite, 1, CMP, F_EQ(F_SUB(F_A, F_A), F_C(0)), "neither infinite nor NaN") \
    X(ISINF, isinf, 1, CMP, F_AND(F_EQ(F_ABS(F_A), F_INF), F_NE(F_SUB(F_A, F_A), F_C(0))), "infinite (no integer is)") \
    X(ISNAN, isnan, 1, CMP, F_ISNAN(F_A), "not a number") \
    X(LE, le, 2, CMP, F_LE(F_A, F_B), "a <= b") \
    X(LOGICAL_AND, logical_and, 2, LOG, F_AND(F_NE(F_A, F_C(0)), F_NE(F_B, F_C(0))), "a and b") \
    X(LOGICAL_NOT, logical_not, 1, LOG, F_EQ(F_A, F_C(0)), "not x") \
    X(LOGICAL_OR, logical_or, 2, LOG, F_OR(F_NE(F_A, F_C(0)), F_NE(F_B, F_C(0))), "a or b") \
    X(LOGICAL_XOR, logical_xor, 2, LOG, F_XOR(F_NE(F_A, F_C(0)), F_NE(F_B, F_C(0))), "either a or b") \
    X(LT, lt, 2, CMP, F_LT(F_A, F_B), "a < b") \
    X(NE, ne, 2, CMP, F_NE(F_A, F_B), "a != b")

// Integers and bool; no gradient. Columns: ID, name, operands, formula on int64_t a, b, doc.
#define TENSOR_OPS_BITWISE(X) \
    X(BITWISE_AND, bitwise_and, 2, a & b, "bits in both") \
    X(BITWISE_LEFT_SHIFT, bitwise_left_shift, 2, b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b), "a 2^b; 0 if b is too large") \
    X(BITWISE_NOT, bitwise_not, 1, ~a, "bits flipped; logical not for bool") \
    X(BITWISE_OR, bitwise_or, 2, a | b, "bits in either") \
    X(BITWISE_RIGHT_SHIFT, bitwise_right_shift, 2, a >> (b < 0 || b > 63 ? 63 : b), "floor(a / 2^b); 0 or -1 if b is too large") \
    X(BITWISE_XOR, bitwise_xor, 2, a ^ b, "bits in one only")

// Kind DBL: formula in C on doubles, derivatives in the vocabulary (and p).
#define TENSOR_OPS_DOUBLE1(X) \
    X(ACOSH, acosh, DBL, acosh(F_A), F_MUL(F_G, F_RSQRT(F_SUB(F_MUL(F_A, F_A), F_C(1)))), TENSOR__SA, 1.1, 4, "inverse of cosh") \
    X(ASINH, asinh, DBL, asinh(F_A), F_MUL(F_G, F_RSQRT(F_ADD(F_MUL(F_A, F_A), F_C(1)))), TENSOR__SA, -3, 3, "inverse of sinh") \
    X(ATANH, atanh, DBL, atanh(F_A), F_DIV(F_G, F_SUB(F_C(1), F_MUL(F_A, F_A))), TENSOR__SA, -0.9, 0.9, "inverse of tanh") \
    X(ERFINV, erfinv, DBL, tensor__erfinv_f64(F_A), F_MUL(F_G, F_MUL(F_C(0.886226925452758), F_EXP(F_MUL(F_Y, F_Y)))), TENSOR__SY, -0.9, 0.9, "inverse of erf") \
    X(LGAMMA, lgamma, DBL, tensor__lgamma_f64(F_A), F_MUL(F_G, F_POLYGAMMA(0, F_A)), TENSOR__SA, 0.3, 5, "log of |gamma(x)|") \
    X(POLYGAMMA, polygamma, DBL, tensor__polygamma_f64(F_P(0), F_A), F_MUL(F_G, F_POLYGAMMA(p[0] + 1, F_A)), TENSOR__SA, 0.6, 5, "n-th derivative of digamma") \
    X(SINC, sinc, DBL, F_A == 0 ? 1 : sin(3.141592653589793 * F_A) / (3.141592653589793 * F_A), F_SEL(F_EQ(F_A, F_C(0)), F_C(0), F_DIV(F_MUL(F_G, F_SUB(F_COS(F_MUL(F_A, F_C(3.141592653589793))), F_Y)), F_A)), TENSOR__SA | TENSOR__SY, 0.2, 3, "sin(pi x) / (pi x), 1 at 0")
#define TENSOR_OPS_DOUBLE2(X) \
    X(COPYSIGN, copysign, DBL, copysign(F_A, F_B), F_SEL(F_EQ(F_A, F_C(0)), F_C(0), F_MUL(F_G, F_DIV(F_Y, F_A))), F_C(0), TENSOR__SA | TENSOR__SY, -3, 3, "|a| with the sign of b") \
    X(HYPOT, hypot, DBL, hypot(F_A, F_B), F_MUL(F_G, F_DIV(F_A, F_Y)), F_MUL(F_G, F_DIV(F_B, F_Y)), TENSOR__SA | TENSOR__SB | TENSOR__SY, 0.3, 3, "sqrt(a^2 + b^2)") \
    X(LOGADDEXP, logaddexp, DBL, tensor__logaddexp_f64(F_A, F_B, 1), F_MUL(F_G, F_SIGMOID(F_SUB(F_A, F_B))), F_MUL(F_G, F_SIGMOID(F_SUB(F_B, F_A))), TENSOR__SA | TENSOR__SB, -3, 3, "log(e^a + e^b)") \
    X(LOGADDEXP2, logaddexp2, DBL, tensor__logaddexp_f64(F_A, F_B, 0.6931471805599453), F_MUL(F_G, F_SIGMOID(F_MUL(F_C(0.6931471805599453), F_SUB(F_A, F_B)))), F_MUL(F_G, F_SIGMOID(F_MUL(F_C(0.6931471805599453), F_SUB(F_B, F_A)))), TENSOR__SA | TENSOR__SB, -3, 3, "log2(2^a + 2^b)") \
    X(XLOGY, xlogy, DBL, tensor__isnan_f64(F_B) ? F_B : F_A == 0 ? 0 : F_A * log(F_B), F_SEL(F_AND(F_EQ(F_A, F_C(0)), F_LE(F_B, F_C(0))), F_C(0), F_MUL(F_G, F_LOG(F_B))), F_MUL(F_G, F_DIV(F_A, F_B)), TENSOR__SA | TENSOR__SB, 0.3, 3, "a log(b), 0 where a is 0")

// The rest. Columns: ID, name, family, inputs, outputs, CPU kernel, scratch, gradient (NOGRAD), saves, doc.
#define TENSOR_OPS_OTHER(X) \
    X(AMAX, amax, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_amax, TENSOR__SA | TENSOR__SY, "largest element; ties share the gradient") \
    X(AMIN, amin, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_amax, TENSOR__SA | TENSOR__SY, "smallest element; ties share the gradient") \
    X(ALL, all, REDUCE, 1, 1, tensor__cpu_reduce, NULL, NOGRAD, 0, "whether all are true") \
    X(ANY, any, REDUCE, 1, 1, tensor__cpu_reduce, NULL, NOGRAD, 0, "whether any is true") \
    X(ARANGE, arange, FILL, 0, 1, tensor__cpu_fill, NULL, NOGRAD, 0, "f[0] + i f[1]") \
    X(ARGMAX, argmax, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, NOGRAD, 0, "index of the largest along the last dim") \
    X(ARGMIN, argmin, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, NOGRAD, 0, "index of the smallest along the last dim") \
    X(AS_STRIDED, as_strided, VIEW, 1, 1, NULL, NULL, tensor__grad_as_strided, 0, "any view: offset i[0], strides i[1..8]") \
    X(AS_STRIDED_BACKWARD, as_strided_backward, INDEX, 1, 1, tensor__cpu_as_strided_backward, NULL, tensor__grad_as_strided_backward, 0, "zeros with g added at the places of a view") \
    X(AS_STRIDED_SCATTER, as_strided_scatter, COMPOSED, 2, 1, NULL, NULL, tensor__grad_as_strided_scatter, 0, "x with a view of it replaced") \
    X(BERNOULLI, bernoulli, RANDOM, 1, 1, tensor__cpu_random, NULL, NOGRAD, 0, "1 with probability p") \
    X(CAT, cat, COMPOSED, -1, 1, NULL, NULL, tensor__grad_cat, 0, "tensors joined along dim i[0]") \
    X(CUMMAX, cummax, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "index of the largest so far along the last dim, last of ties") \
    X(CUMMIN, cummin, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "index of the smallest so far along the last dim, last of ties") \
    X(CUMPROD, cumprod, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_cumprod, TENSOR__SA | TENSOR__SY, "running product along the last dim") \
    X(CUMSUM, cumsum, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_cumsum, 0, "running sum along the last dim, from its end if i[0]") \
    X(CUSTOM, custom, CUSTOM, -1, 1, NULL, NULL, tensor__grad_custom, 0, "a user's function") \
    X(EXPAND, expand, VIEW, 1, 1, NULL, NULL, tensor__grad_expand, 0, "sizes of 1 repeated without a copy") \
    X(FILL, fill, FILL, 0, 1, tensor__cpu_fill, NULL, tensor__grad_fill, 0, "f[0] everywhere") \
    X(GATHER, gather, INDEX, 2, 1, tensor__cpu_index, NULL, tensor__grad_gather, TENSOR__SB, "elements named by index along dim i[0]") \
    X(INDEX, index, INDEX, -1, 1, tensor__cpu_places, NULL, NOGRAD, 0, "flat places that broadcast indices name; index k runs over i[k]") \
    X(INDEX_ADD, index_add, INDEX, 3, 1, tensor__cpu_index, tensor__scratch_index, tensor__grad_index_add, TENSOR__SB, "rows added at index along dim i[0]") \
    X(INDEX_COPY, index_copy, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_index_copy, TENSOR__SB, "rows replaced at index along dim i[0]") \
    X(INDEX_SELECT, index_select, INDEX, 2, 1, tensor__cpu_index, NULL, tensor__grad_index_select, TENSOR__SB, "rows named by index along dim i[0]") \
    X(KTHVALUE, kthvalue, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "index of the i[0]-th smallest along the last dim; 0: median, -1: nanmedian") \
    X(LINALG_CHOLESKY, linalg_cholesky, LINALG, 1, 1, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_cholesky, TENSOR__SY, "lower L of L LT = x") \
    X(LINALG_DET, linalg_det, LINALG, 1, 3, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_det, TENSOR__SA | TENSOR__SY, "determinant, its sign, log of its absolute value") \
    X(LINALG_EIGH, linalg_eigh, LINALG, 1, 2, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_eigh, TENSOR__SY | TENSOR__SY1, "eigenvalues and eigenvectors of a symmetric matrix, ascending") \
    X(LINALG_LU_FACTOR, linalg_lu_factor, LINALG, 1, 2, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_lu_factor, TENSOR__SY | TENSOR__SY1, "L and U in one matrix, row swaps from 1") \
    X(LINALG_PINV, linalg_pinv, COMPOSED, 1, 1, NULL, NULL, tensor__grad_pinv, TENSOR__SA | TENSOR__SY, "Moore-Penrose inverse") \
    X(LINALG_QR, linalg_qr, LINALG, 1, 2, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_qr, TENSOR__SA | TENSOR__SY | TENSOR__SY1, "Q and R, Q square if i[0]") \
    X(LINALG_SOLVE, linalg_solve, LINALG, 2, 1, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_solve, TENSOR__SA | TENSOR__SY, "X of a X = b") \
    X(LINALG_SOLVE_TRIANGULAR, linalg_solve_triangular, LINALG, 2, 1, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_solve_triangular, TENSOR__SA | TENSOR__SY, "X of a X = b, a upper if i[0], ones on its diagonal if i[1]") \
    X(LINALG_SVD, linalg_svd, LINALG, 1, 3, tensor__cpu_linalg, tensor__scratch_linalg, tensor__grad_svd, TENSOR__SY | TENSOR__SY1 | TENSOR__SY2, "singular vectors and values, descending") \
    X(LINALG_SWAPS, linalg_swaps, LINALG, 1, 1, tensor__cpu_linalg, tensor__scratch_linalg, NOGRAD, 0, "row swaps as one order of i[0] rows") \
    X(LINEAR_SCAN, linear_scan, ROWS, 2, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_linear_scan, TENSOR__SB | TENSOR__SY, "y_k = a_k + b_k y_(k-1) along the last dim, from its end if i[0]") \
    X(LOG_SOFTMAX, log_softmax, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_log_softmax, TENSOR__SY, "x - logsumexp(x) along the last dim") \
    X(LOG_SOFTMAX_BACKWARD, log_softmax_backward, ROWS, 2, 1, tensor__cpu_rows, tensor__scratch_rows, NOGRAD, 0, "g - exp(y) sum(g); inputs g, y") \
    X(LOGCUMSUMEXP, logcumsumexp, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_logcumsumexp, TENSOR__SA | TENSOR__SY, "running logsumexp along the last dim") \
    X(LOGSUMEXP, logsumexp, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_logsumexp, TENSOR__SA | TENSOR__SY, "log of the sum of e^x along the last dim") \
    X(MATMUL, matmul, MATMUL, 2, 1, tensor__cpu_matmul, tensor__scratch_matmul, tensor__grad_matmul, TENSOR__SA | TENSOR__SB, "batched matrix product") \
    X(MEAN, mean, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_mean, 0, "mean over the dims of mask i[0]") \
    X(MODE, mode, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "last index of the most frequent value along the last dim") \
    X(MULTINOMIAL, multinomial, RANDOM, 1, 1, tensor__cpu_multinomial, NULL, NOGRAD, 0, "i[0] indices drawn from rows of weights") \
    X(NONZERO, nonzero, INDEX, 1, 1, tensor__cpu_nonzero, NULL, NOGRAD, 0, "places of the true elements of a mask: flat, or [n, ndim] if i[0]") \
    X(NORM, norm, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_norm, TENSOR__SA | TENSOR__SY, "2-norm along the last dim") \
    X(PERMUTE, permute, VIEW, 1, 1, NULL, NULL, tensor__grad_permute, 0, "dims in the order i[]") \
    X(POISSON, poisson, RANDOM, 1, 1, tensor__cpu_random, NULL, NOGRAD, 0, "counts of events at rate x") \
    X(PROD, prod, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_prod, TENSOR__SA, "product") \
    X(PROD_OTHERS, prod_others, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, NOGRAD, 0, "product of all elements of the last dim but the own one") \
    X(RAND, rand, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "uniform in [f[0], f[1])") \
    X(RANDINT, randint, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "integers in [i[0], i[1])") \
    X(RANDN, randn, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "normal with mean f[0], deviation f[1]") \
    X(RANDPERM, randperm, RANDOM, 0, 1, tensor__cpu_randperm, NULL, NOGRAD, 0, "a random order of 0..n-1") \
    X(RESHAPE, reshape, VIEW, 1, 1, NULL, NULL, tensor__grad_reshape, 0, "other sizes over the same elements") \
    X(SCATTER, scatter, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_scatter, TENSOR__SB, "elements replaced at index along dim i[0]") \
    X(SCATTER_ADD, scatter_add, INDEX, 3, 1, tensor__cpu_index, tensor__scratch_index, tensor__grad_scatter_add, TENSOR__SB, "elements added at index along dim i[0]") \
    X(SCATTER_REDUCE, scatter_reduce, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_scatter_reduce, TENSOR__SA | TENSOR__SB | TENSOR__SC | TENSOR__SY, "elements combined at index along dim i[0]: i[1] 0 product, 1 largest, 2 smallest") \
    X(SEARCHSORTED, searchsorted, ROWS, 2, 1, tensor__cpu_searchsorted, NULL, NOGRAD, 0, "places of b in sorted rows of a, behind equals if i[0]") \
    X(SLICE, slice, VIEW, 1, 1, NULL, NULL, tensor__grad_slice, 0, "every i[2]-th index from i[1] along dim i[0]") \
    X(SLICE_BACKWARD, slice_backward, COMPOSED, 1, 1, NULL, NULL, tensor__grad_slice_backward, 0, "zeros with g at the places of a slice") \
    X(SOFTMAX, softmax, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_softmax, TENSOR__SY, "e^x / sum of e^x along the last dim") \
    X(SOFTMAX_BACKWARD, softmax_backward, ROWS, 2, 1, tensor__cpu_rows, tensor__scratch_rows, NOGRAD, 0, "y (g - sum(g y)); inputs g, y") \
    X(SORT, sort, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "indices that sort the last dim stably, falling if i[0]") \
    X(SUM, sum, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_sum, 0, "sum over the dims of mask i[0]") \
    X(TOPK, topk, ROWS, 1, 1, tensor__cpu_order, tensor__scratch_order, NOGRAD, 0, "indices of the i[0] largest (smallest if not i[1]) along the last dim, sorted if i[2]") \
    X(TRANSFER, transfer, TRANSFER, 1, 1, tensor__cpu_transfer, NULL, tensor__grad_transfer, 0, "the same on another device") \
    X(TRIL, tril, FILL, 1, 1, tensor__cpu_tri, NULL, tensor__grad_tril, 0, "zeros above the i[0]-th diagonal") \
    X(TRIU, triu, FILL, 1, 1, tensor__cpu_tri, NULL, tensor__grad_tril, 0, "zeros below the i[0]-th diagonal") \
    X(VAR, var, ROWS, 1, 1, tensor__cpu_rows, tensor__scratch_rows, tensor__grad_var, TENSOR__SA, "two-pass variance along the last dim, divisor n - i[0]")
// clang-format on

typedef enum tensor_op_id_t {
#define TENSOR__X(ID, ...) TENSOR_OP_##ID,
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__X) TENSOR_OPS_BITWISE(TENSOR__X)
    TENSOR_OPS_DOUBLE1(TENSOR__X) TENSOR_OPS_DOUBLE2(TENSOR__X)
    TENSOR_OP_POINTWISE_COUNT, TENSOR__OP_BEFORE_OTHER = TENSOR_OP_POINTWISE_COUNT - 1,
    TENSOR_OPS_OTHER(TENSOR__X)
#undef TENSOR__X
    TENSOR_OP_COUNT,
    TENSOR_OP_NN_FIRST = 512        // tensor_nn.h's own table starts here
} tensor_op_id_t;

// ------------------------------------------------------------------------------
// >>vocabulary                                     MARK: words of the formulas
//
// A row's text means five things: f64 (the reference, libm allowed), f32 in scalar or vector registers (once
// per instruction set), int64_t with wrap-around (NUM rows on integers), CUDA, and tensor_t * (the derivative
// of a derivative). Each meaning defines these words before it expands the rows:
//
//   F_A F_B F_C_      operands        F_Y  result        F_G  incoming gradient    F_P(k) parameter f[k]
//   F_C(x)            constant        F_INF infinity
//   F_ADD F_SUB F_MUL F_DIV F_NEG F_ABS F_SIGN F_SQRT F_RSQRT F_MIN F_MAX (both NaN-propagating)
//   F_FLOORDIV F_FMOD F_REMAINDER F_FLOOR F_CEIL F_TRUNC F_ROUND F_POW F_ATAN2
//   F_EXP F_EXP2 F_EXPM1 F_LOG F_LOG2 F_LOG10 F_LOG1P F_SIN F_COS F_TAN F_ASIN F_ACOS F_ATAN F_SINH F_COSH
//   F_TANH F_SIGMOID F_ERF F_ERFC F_GELU
//   F_POLYGAMMA(n, x) in derivatives of DBL rows only
//   F_LT F_LE F_GT F_GE F_EQ F_NE F_ISNAN give masks; F_AND F_OR F_XOR combine them; F_SEL(mask, x, y)
//
// and these are spelt in the others, for all meanings at once:
#define F_GELU_U(x) F_MUL(F_C(0.7978845608028654), F_ADD(x, F_MUL(F_C(0.044715), F_MUL(x, F_MUL(x, x)))))
#define F_MISH_D(x, t) F_ADD(t, F_MUL(F_MUL(x, F_SIGMOID(x)), F_SUB(F_C(1), F_MUL(t, t))))
#define F_GELU_TANH_D(x, t)                                                                                  \
    F_ADD(F_MUL(F_C(0.5), F_ADD(F_C(1), t)),                                                                 \
          F_MUL(F_MUL(F_MUL(F_C(0.5), x), F_SUB(F_C(1), F_MUL(t, t))),                                       \
                F_MUL(F_C(0.7978845608028654), F_ADD(F_C(1), F_MUL(F_C(0.134145), F_MUL(x, x))))))
// ------------------------------------------------------------------------------

// Philox4x32-10: counter (block, stream), key seed.
TENSOR__BOTH TENSOR__FN void tensor__philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream, c3 =
        (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// NaN is tested on bits: -ffinite-math-only makes x != x constant false.
TENSOR__BOTH TENSOR__INLINE int tensor__isnan_f64(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return (u & 0x7FFFFFFFFFFFFFFFu) > 0x7FF0000000000000u;
}
// Functions of DBL rows and of draws. None calls itself: a device would need a stack.
TENSOR__BOTH TENSOR__FN double tensor__logaddexp_f64(double a, double b, double log_base) {
    if (a == b) { return a + 0.6931471805599453 / log_base; }      // infinities too
    return (a > b ? a : b) + log1p(exp(-fabs(a - b) * log_base)) / log_base;
}
// Giles' polynomials (relative error 1e-7), then two steps of Halley's method on erfc, which has no
// cancellation near 1.
TENSOR__BOTH TENSOR__FN double tensor__erfinv_f64(double x) {
    const double near0[9] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
        0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
    const double near1[9] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
        0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
    double a = fabs(x), w = -log((1 - a) * (1 + a)), y;
    if (!(a < 1)) { return a == 1 ? copysign((double)INFINITY, x) : (double)NAN; }
    const double *c = w < 5 ? near0 : near1;
    w = w < 5 ? w - 2.5 : sqrt(w) - 3;
    y = c[0];
    for (int i = 1; i < 9; i++) { y = y * w + c[i]; }
    y *= a;
    for (int i = 0; i < 2; i++) {
        double t = (a < 0.5 ? a - erf(y) : erfc(y) - (1 - a)) * 0.886226925452758 * exp(y * y);
        y += t / (1 - y * t);
    }
    return copysign(y, x);
}
// log |gamma(x)|: Stirling's series from 15 on, recurrence below, reflection left of 1/2. libm's lgamma
// writes a global variable.
TENSOR__BOTH TENSOR__FN double tensor__lgamma_f64(double x) {
    double p = 1, r, left = 0;
    int turned = x < 0.5;
    if (tensor__isnan_f64(x)) { return x; }
    if (fabs(x) > 1.7976931348623157e308 || (x <= 0 && x == floor(x))) { return (double)INFINITY; }
    if (x == 1 || x == 2) { return 0; }
    if (turned) {
        left = 1.1447298858494002 - log(fabs(sin(3.141592653589793 * fmod(x, 2.0))));
        x = 1 - x;
    }
    for (; x < 15; x += 1) { p *= x; }
    r = 1 / (x * x);
    r = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / x;
    r = (x - 0.5) * log(x) - x + 0.9189385332046727 + r - log(p);
    return turned ? left - r : r;
}
// n-th derivative of digamma: asymptotic series from 15 on, recurrence below, reflection left of 1/2 (n < 2).
TENSOR__BOTH TENSOR__FN double tensor__polygamma_f64(double n, double x) {
    const double b[8] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6,
                         -3617.0 / 510};                        // Bernoulli numbers B2, B4, ..
    double sum = 0, s = n + 1, factorial = fmod(n, 2.0) == 0 ? -1 : 1, term, angle, left = 0;
    int turned = n < 2 && x < 0.5;
    if (tensor__isnan_f64(x) || (n > 1 && x < -1e5)) { return (double)NAN; }
    if (n == 0 && x <= 0 && x == floor(x)) { return x == 0 ? copysign((double)INFINITY, -x) : (double)NAN; }
    if (x <= 0 && x == floor(x)) { return factorial * (double)INFINITY; }
    if (turned) {
        angle = 3.141592653589793 * fmod(x, 2.0);
        term = sin(angle);
        left = n == 1 ? 9.869604401089358 / (term * term) : 3.141592653589793 * cos(angle) / term;
        x = 1 - x;
    }
    if (x > 1e300) {
        sum = n == 0 ? log(x) : 0;
    } else {
        for (int k = 2; k <= n; k++) { factorial *= k; }
        for (; x < 15 + n; x += 1) { sum += n == 0 ? -1 / x : pow(x, -s); }
        if (n == 0) {
            sum += log(x) - 0.5 / x;
            for (int k = 0; k < 8; k++) { sum -= b[k] / ((2 * k + 2) * pow(x, 2.0 * k + 2)); }
        } else {
            sum += pow(x, -n) / n + 0.5 * pow(x, -s);           // zeta(s, x)
            term = s * pow(x, -s - 1) / 2;
            for (int k = 0; k < 8; k++) {
                sum += b[k] * term;
                term *= (s + 2 * k + 1) * (s + 2 * k + 2) / ((2 * k + 3) * (2 * k + 4) * x * x);
            }
            sum *= factorial;
        }
    }
    return !turned ? sum : n == 1 ? left - sum : sum - left;
}
// log(k!) by Stirling's series; the first by multiplication.
TENSOR__BOTH TENSOR__FN double tensor__log_factorial(double k) {
    double p = 1;
    if (k < 10) {
        for (double i = 2; i <= k; i++) { p *= i; }
        return log(p);
    }
    double r = 1 / (k * k);
    return (k + 0.5) * log(k) - k + 0.9189385332046727 + (1 - (1 / 30.0 - r / 105) * r) / (12 * k);
}
// Poisson number of element e: by inversion of the running sum, from rate 30 on by transformed rejection
// (Hoermann, "The transformed rejection method for generating Poisson random variables", 1993). An element
// has 2^12 blocks of the stream of its own.
TENSOR__BOTH TENSOR__FN double tensor__poisson(tensor_generator_t g, uint64_t e, double rate) {
    uint32_t w[4];
    double root = sqrt(rate), b = 0.931 + 2.53 * root, a = 0.02483 * b - 0.059, k = rate;
    for (uint64_t turn = 0; turn < 4096; turn++) {
        tensor__philox(g.seed, g.offset, e << 12 | turn, w);
        double u = (double)(((uint64_t)w[1] << 32 | w[0]) >> 11) * 1.1102230246251565e-16;
        double v = (double)(((uint64_t)w[3] << 32 | w[2]) >> 11) * 1.1102230246251565e-16;
        if (rate < 30) {
            double p = exp(-rate), sum = p;
            for (k = 0; u >= sum && k < 1000; sum += p) { p *= rate / ++k; }
            return k;
        }
        double near_edge = 0.5 - fabs(u - 0.5);
        k = floor((2 * a / near_edge + b) * (u - 0.5) + rate + 0.43);
        if (near_edge >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) { break; }
        if (!(k >= 0) || (near_edge < 0.013 && v > near_edge)) { continue; }
        if (log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (near_edge * near_edge) + b)) <=
            k * log(rate) - rate - tensor__log_factorial(k)) {
            break;
        }
    }
    return k;
}

// What every kernel pass needs once: intrinsics, scalar conversions, the reduction of large angles.
#if !defined(TENSOR_NO_SIMD) && !defined(__TINYC__) && (defined(__x86_64__) || defined(_M_X64))
#define TENSOR__X86_PASSES 1
#include <immintrin.h>
#elif !defined(TENSOR_NO_SIMD) && !defined(__TINYC__) && defined(__aarch64__) && !defined(__AARCH64EB__)
#define TENSOR__ARM_PASSES 1
#include <arm_neon.h>
#elif !defined(TENSOR_NO_SIMD) && defined(__wasm_simd128__)
#define TENSOR__WASM_PASSES 1
#include <wasm_simd128.h>
#endif

/*
 * Scalar float16 and bfloat16, and the reduction of huge angles: compiled once, called by every pass.
 *
 * All on bits: no rounding mode, no F16C, no flush-to-zero setting has a say.  To f16/bf16: nearest, ties
 * to even; f16 overflows to infinity from 65520 on; a NaN keeps its sign and the top of its payload and
 * turns quiet, which is what vcvtps2ph and vcvtph2ps do, so that the bits never depend on the pass.
 */
TENSOR__INLINE uint32_t tensor__bits_from_f32(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
TENSOR__INLINE float tensor__f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
TENSOR__INLINE int tensor__isnan_f32(float x)
{
    return (tensor__bits_from_f32(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

TENSOR__FN float tensor__f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, m = h & 0x7FFFu, e;
    if (m >= 0x7C00u)
        return tensor__f32_from_bits(sign | m << 13 | 0x7F800000u | (m > 0x7C00u ? 0x00400000u : 0u));
    if (m >= 0x0400u)
        return tensor__f32_from_bits(sign | ((m << 13) + (112u << 23)));
    if (m == 0)
        return tensor__f32_from_bits(sign);
    for (e = 113; !(m & 0x0400u); e--)              /* subnormal: m * 2^-24, normal as a float */
        m <<= 1;
    return tensor__f32_from_bits(sign | e << 23 | (m & 0x03FFu) << 13);
}

TENSOR__FN uint16_t tensor__f16_from_f32(float x)
{
    uint32_t u = tensor__bits_from_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu, m, s;
    if (a > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x03FFu));
    if (a >= 0x477FF000u)                           /* 65520, half way to the 65536 that f16 lacks */
        return (uint16_t)(sign | 0x7C00u);
    if (a >= 0x38800000u)                           /* 2^-14: a mantissa's carry is right */
        return (uint16_t)(sign | (a - (112u << 23) + 0x0FFFu + (a >> 13 & 1u)) >> 13);
    if (a <= 0x33000000u)                           /* 2^-25 ties to the even 0 */
        return (uint16_t)sign;
    s = 126u - (a >> 23);                           /* 14..24 */
    m = (a & 0x007FFFFFu) | 0x00800000u;
    return (uint16_t)(sign | (m + (1u << (s - 1)) - 1u + (m >> s & 1u)) >> s);
}

TENSOR__FN float tensor__f32_from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    return tensor__f32_from_bits((u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x00400000u : u);
}

TENSOR__FN uint16_t tensor__bf16_from_f32(float x)
{
    uint32_t u = tensor__bits_from_f32(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(u >> 16 | 0x0040u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

/*
 * Payne-Hanek: x = *q pi/2 + result with |result| <= pi/4, for finite |x| >= 2^17.  With x = m 2^e only
 * bits e-1.. of 2/pi matter modulo 4; 96 of them leave a fixed-point error below 2^-61, and no float comes
 * nearer to a multiple of pi/2 than 2^-30 (Muller, Elementary Functions, ch. 11): good to 2^-31 relative.
 * libm would do, but then sin(1e6) depended on the platform.
 */
TENSOR__FN double tensor__trig_big(float x, int32_t *q)
{
    static const uint32_t two_over_pi[9] = { 0, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u,
        0xDB629599u, 0x3C439041u, 0xFE5163ABu, 0xDEBBC561u };
    uint32_t u = tensor__bits_from_f32(x), m = (u & 0x007FFFFFu) | 0x00800000u, w[3], i;
    uint32_t p = (u >> 23 & 0xFFu) - 150u + 30u;    /* the table opens with 32 zero bits; 24 <= p <= 134 */
    const uint32_t *t = two_over_pi + (p >> 5);
    uint64_t r, n;
    double d;
    for (i = 0; i < 3; i++)
        w[i] = (uint32_t)(((uint64_t)t[i] << 32 | t[i + 1]) >> (32u - (p & 31u)));
    r = ((uint64_t)m * w[0] << 32) + (uint64_t)m * w[1] + ((uint64_t)m * w[2] >> 32);    /* 2^62 = pi/2 */
    n = (r + ((uint64_t)1 << 61)) >> 62;
    r -= n << 62;
    d = (r >> 63 ? -(double)(0 - r) : (double)r) * 3.4061215800865545e-19;              /* pi/2 2^-62 */
    *q = (int32_t)(u >> 31 ? 0 - n : n);
    return u >> 31 ? -d : d;
}

#endif   // TENSOR_SHARED_7C1E
#endif   // TENSOR_IMPLEMENTATION || TENSOR_NN_IMPLEMENTATION || TENSOR_BACKEND

#endif   // TENSOR__PASS

// ------------------------------------------------------------------------------
// >>kernels                                        MARK: CPU kernels, once per instruction set
//
// This part is compiled once per instruction set: the implementation includes this file with TENSOR__PASS
// set (0 scalar, 1 SSE2, 2 AVX2+FMA, 3 AVX-512, 4 NEON, 5 SIMD128 of WebAssembly). Rejected: -march (the
// user's flags would decide) and intrinsics in macros of 100 lines (no breakpoints). tensor_nn.h opens a pass
// with TENSOR__PASS_OPEN, adds its kernels, ends it with TENSOR__PASS_CLOSE. TENSOR__PASS_WORDS: only
// undefines the words of the formulas.
// ------------------------------------------------------------------------------

#ifdef TENSOR__PASS
#if !defined(TENSOR__PASS_CLOSE) && !defined(TENSOR__PASS_WORDS)

// ------------------------------------------------------------------------------
// >>simd                                           MARK: vector vocabulary and math
//
// One pass of the vector vocabulary.  TENSOR__PASS is 0 scalar, 1 SSE2, 2 AVX2+FMA+F16C, 3 AVX-512
// F/DQ/BW/VL, 4 NEON of AArch64 (FMA and f16 conversion are in its base), 5 SIMD128 of WebAssembly (no FMA;
// -msimd128 decides, since a module with one such instruction needs them all); the header includes itself
// once per pass: this text, the kernels, the closing lines.
//
// Part one spells the primitives of each ISA; part two, from "Built on the vocabulary" on, is one text for
// all but where AVX-512 looks tables up (V_LOOKUP). FMA is used only where V_FMA or V_FNMA is written and the
// ISA has it, hence passes may differ in the last bit, but never for compiler flags.  Stated errors hold with
// and without FMA.
//
// V_M is a full-width mask in passes 1, 2, 4 and 5, a __mmask16 in 3 and a 0/1 int in 0; only the M_ macros
// know. Rejected: one C++-like wrapper type per ISA (needs C++), gcc vector extensions (MSVC), libm
// (platform's bits).
// ------------------------------------------------------------------------------
// An opened pass (tensor_nn.h) may stand in one file with the core's own: its functions have names of their
// own.
#ifdef TENSOR__PASS_OPEN
#define TENSOR__K2(name, isa) tensor__##name##_##isa##_open
#else
#define TENSOR__K2(name, isa) tensor__##name##_##isa
#endif
#if TENSOR__PASS == 0
#define TENSOR__K(name) TENSOR__K2(name, scalar)
#elif TENSOR__PASS == 1
#define TENSOR__K(name) TENSOR__K2(name, sse2)
#elif TENSOR__PASS == 2
#define TENSOR__K(name) TENSOR__K2(name, avx2)
#elif TENSOR__PASS == 3
#define TENSOR__K(name) TENSOR__K2(name, avx512)
#elif TENSOR__PASS == 4
#define TENSOR__K(name) TENSOR__K2(name, neon)
#else
#define TENSOR__K(name) TENSOR__K2(name, wasm)
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#if TENSOR__PASS == 1
#pragma clang attribute push(__attribute__((target("sse2"))), apply_to = function)
#elif TENSOR__PASS == 2
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#elif TENSOR__PASS == 3
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#endif
#elif defined(__GNUC__)
#pragma GCC push_options
#if TENSOR__PASS == 1
#pragma GCC target("sse2")
#elif TENSOR__PASS == 2
#pragma GCC target("avx2,fma,f16c")
#elif TENSOR__PASS == 3
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#endif
/* gcc's avx512fintrin.h: all-ones masks are written (__mmask16)-1 in its -O0 macros; "undefined" vectors draw
   -Wmaybe-uninitialized (gcc bug 105593). */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#if TENSOR__PASS < 1 && (defined(TENSOR__X86_PASSES) || defined(TENSOR__ARM_PASSES)) && \
    defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
/* no machine runs these unless told to, and all programs compile them */
#pragma GCC optimize("O1,strict-aliasing,align-loops,align-functions")
#endif
#pragma GCC optimize("fp-contract=off")
#if TENSOR__PASS == 0
/* gcc 12 joins the loads of two rows of B in a GEMM tile and reads past the last one */
#pragma GCC optimize("no-tree-vectorize")
#endif
#endif

/* ---- Primitives: scalar -------------------------------------------------------------------------------- */
#if TENSOR__PASS == 0

#define V_N 1
#define V_F float
#define V_I int32_t
#define V_M int
#define V_D double

/* Signed overflow is undefined: integer lanes are computed unsigned. */
#define TENSOR__U(a) ((uint32_t)(a))
#define V_LOAD(p) (*(const float *)(p))
#define V_STORE(p, v) ((void)(*(float *)(p) = (v)))
#define V_SET(x) ((float)(x))
#define V_ZERO() 0.0f
#define VI_LOAD(p) (*(const int32_t *)(p))
#define VI_STORE(p, v) ((void)(*(int32_t *)(p) = (v)))
#define VI_SET(x) ((int32_t)(x))
#define V_ADD(a, b) ((a) + (b))
#define V_SUB(a, b) ((a) - (b))
#define V_MUL(a, b) ((a) * (b))
#define V_DIV(a, b) ((a) / (b))
#define V_SQRT(a) sqrtf(a)
#define V_FMA(a, b, c) ((a) * (b) + (c))
#define V_FNMA(a, b, c) ((c) - (a) * (b))
#define V_LT(a, b) ((int)((a) < (b)))
#define V_LE(a, b) ((int)((a) <= (b)))
#define V_GT(a, b) ((int)((a) > (b)))
#define V_GE(a, b) ((int)((a) >= (b)))
#define V_EQ(a, b) ((int)((a) == (b)))
#define V_NE(a, b) ((int)((a) != (b)))
#define M_AND(a, b) ((a) & (b))
#define M_OR(a, b) ((a) | (b))
#define M_XOR(a, b) ((a) ^ (b))
#define M_NOT(a) ((a) ^ 1)
#define M_ANY(m) ((m) != 0)
#define M_ALL(m) ((m) != 0)
#define V_SEL(m, a, b) ((m) ? (a) : (b))
#define VI_SEL(m, a, b) ((m) ? (a) : (b))
#define VI_ADD(a, b) ((int32_t)(TENSOR__U(a) + TENSOR__U(b)))
#define VI_SUB(a, b) ((int32_t)(TENSOR__U(a) - TENSOR__U(b)))
#define VI_AND(a, b) ((int32_t)(TENSOR__U(a) & TENSOR__U(b)))
#define VI_OR(a, b) ((int32_t)(TENSOR__U(a) | TENSOR__U(b)))
#define VI_XOR(a, b) ((int32_t)(TENSOR__U(a) ^ TENSOR__U(b)))
#define VI_SHL(a, k) ((int32_t)(TENSOR__U(a) << (k)))
#define VI_SHR(a, k) ((int32_t)(TENSOR__U(a) >> (k)))
#define VI_SAR(a, k) ((int32_t)((a) >> (k)))
#define VI_EQ(a, b) ((int)((a) == (b)))
#define VI_GT(a, b) ((int)((a) > (b)))
#define VI_MULLO(a, b) ((int32_t)(TENSOR__U(a) * TENSOR__U(b)))
#define VI_MULHI(a, b) ((int32_t)((uint64_t)TENSOR__U(a) * TENSOR__U(b) >> 32))
#define V_BITS(v) ((int32_t)tensor__bits_from_f32(v))
#define V_OF(i) tensor__f32_from_bits(TENSOR__U(i))
#define V_FROM_I(i) ((float)(i))
#define V_HSUM(v) (v)
#define V_HMAX(v) (v)
#define V_HMIN(v) (v)
#define V_LOAD_F16(p) tensor__f32_from_f16(*(const uint16_t *)(p))
#define V_STORE_F16(p, v) ((void)(*(uint16_t *)(p) = tensor__f16_from_f32(v)))
#define V_LOAD_BF16(p) tensor__f32_from_bf16(*(const uint16_t *)(p))
#define V_STORE_BF16(p, v) ((void)(*(uint16_t *)(p) = tensor__bf16_from_f32(v)))
#define VI_LOAD_U8(p) ((int32_t)*(const uint8_t *)(p))
#define VI_STORE_U8(p, v) ((void)(*(uint8_t *)(p) = (uint8_t)(v)))

#define D_SET(x) ((double)(x))
#define D_ADD(a, b) ((a) + (b))
#define D_SUB(a, b) ((a) - (b))
#define D_MUL(a, b) ((a) * (b))
#define D_DIV(a, b) ((a) / (b))
#define D_FMA(a, b, c) ((a) * (b) + (c))
#define D_OF_F(v) ((double)(v))
#define F_OF_D(d) ((float)(d))

/* As minps, maxps and cvttps2dq: the second operand if either is NaN; 0x80000000 out of range. */
TENSOR__INLINE float TENSOR__K(minr)(float a, float b) { return a < b ? a : b; }
TENSOR__INLINE float TENSOR__K(maxr)(float a, float b) { return a > b ? a : b; }
TENSOR__INLINE int32_t TENSOR__K(trunci)(float a) {
    return a >= -2147483648.0f && a < 2147483648.0f ? (int32_t)a : (int32_t)(-2147483647 - 1);
}
#define V_MINR(a, b) TENSOR__K(minr)(a, b)
#define V_MAXR(a, b) TENSOR__K(maxr)(a, b)
#define VI_TRUNC(a) TENSOR__K(trunci)(a)
#define VI_RINT(a) TENSOR__K(trunci)(V_RINT(a))

/* ---- Primitives: NEON ---------------------------------------------------------------------------------- */
#elif TENSOR__PASS == 4

#define V_N 4
#define V_F float32x4_t
#define V_I int32x4_t
#define V_M uint32x4_t
#define TENSOR__DV float64x2_t

/* Signed and unsigned lanes are types of their own. */
#define TENSOR__U(a) vreinterpretq_u32_s32(a)
#define TENSOR__S(a) vreinterpretq_s32_u32(a)
#define V_LOAD(p) vld1q_f32((const float *)(p))
#define V_STORE(p, v) vst1q_f32((float *)(p), v)
#define V_SET(x) vdupq_n_f32((float)(x))
#define V_ZERO() vdupq_n_f32(0.0f)
#define VI_LOAD(p) vld1q_s32((const int32_t *)(p))
#define VI_STORE(p, v) vst1q_s32((int32_t *)(p), v)
#define VI_SET(x) vdupq_n_s32((int32_t)(x))
#define V_ADD(a, b) vaddq_f32(a, b)
#define V_SUB(a, b) vsubq_f32(a, b)
#define V_MUL(a, b) vmulq_f32(a, b)
#define V_DIV(a, b) vdivq_f32(a, b)
#define V_SQRT(a) vsqrtq_f32(a)
#define V_FMA(a, b, c) vfmaq_f32(c, a, b)
#define V_FNMA(a, b, c) vfmsq_f32(c, a, b)
#define V_LT(a, b) vcltq_f32(a, b)
#define V_LE(a, b) vcleq_f32(a, b)
#define V_GT(a, b) vcgtq_f32(a, b)
#define V_GE(a, b) vcgeq_f32(a, b)
#define V_EQ(a, b) vceqq_f32(a, b)
#define V_NE(a, b) vmvnq_u32(vceqq_f32(a, b))
#define M_AND(a, b) vandq_u32(a, b)
#define M_OR(a, b) vorrq_u32(a, b)
#define M_XOR(a, b) veorq_u32(a, b)
#define M_NOT(a) vmvnq_u32(a)
#define M_ANY(m) (vmaxvq_u32(m) != 0)
#define M_ALL(m) (vminvq_u32(m) != 0)
#define V_SEL(m, a, b) vbslq_f32(m, a, b)
#define VI_SEL(m, a, b) vbslq_s32(m, a, b)
#define VI_ADD(a, b) vaddq_s32(a, b)
#define VI_SUB(a, b) vsubq_s32(a, b)
#define VI_AND(a, b) vandq_s32(a, b)
#define VI_OR(a, b) vorrq_s32(a, b)
#define VI_XOR(a, b) veorq_s32(a, b)
#define VI_SHL(a, k) vshlq_n_s32(a, k)
#define VI_SHR(a, k) TENSOR__S(vshrq_n_u32(TENSOR__U(a), k))
#define VI_SAR(a, k) vshrq_n_s32(a, k)
#define VI_EQ(a, b) vceqq_s32(a, b)
#define VI_GT(a, b) vcgtq_s32(a, b)
#define VI_MULLO(a, b) vmulq_s32(a, b)
#define VI_MULHI(a, b) TENSOR__K(mulhi)(TENSOR__U(a), TENSOR__U(b))
#define VI_RINT(a) vcvtnq_s32_f32(a)
#define VI_TRUNC(a) vcvtq_s32_f32(a)
#define V_FROM_I(a) vcvtq_f32_s32(a)
#define V_BITS(v) vreinterpretq_s32_f32(v)
#define V_OF(i) vreinterpretq_f32_s32(i)
#define V_TRUNC(v) vrndq_f32(v)
#define V_FLOOR(v) vrndmq_f32(v)
#define V_CEIL(v) vrndpq_f32(v)
#define V_RINT(v) vrndnq_f32(v)
/* NaN if either is: V_MINR is V_MIN here, and whatever is asked of the operands' order holds. */
#define V_MINR(a, b) vminq_f32(a, b)
#define V_MAXR(a, b) vmaxq_f32(a, b)
#define V_MIN(a, b) vminq_f32(a, b)
#define V_MAX(a, b) vmaxq_f32(a, b)
TENSOR__INLINE V_I TENSOR__K(mulhi)(uint32x4_t a, uint32x4_t b) {
    uint64x2_t lo = vmull_u32(vget_low_u32(a), vget_low_u32(b)), hi = vmull_high_u32(a, b);
    return TENSOR__S(vuzp2q_u32(vreinterpretq_u32_u64(lo), vreinterpretq_u32_u64(hi)));
}
/* Lane i meets i + 2, then i + 1, as in the other passes. */
TENSOR__INLINE float TENSOR__K(hsum)(V_F v) {
    return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)));
}
TENSOR__INLINE float TENSOR__K(hmaxr)(V_F v) { return vmaxvq_f32(v); }
TENSOR__INLINE float TENSOR__K(hminr)(V_F v) { return vminvq_f32(v); }

#define TENSOR__LOAD16(p) TENSOR__S(vmovl_u16(vld1_u16((const uint16_t *)(p))))
#define TENSOR__STORE16(p, v) vst1_u16((uint16_t *)(p), vmovn_u32(TENSOR__U(v)))
#define V_LOAD_F16(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(p))))
#define V_STORE_F16(p, v) vst1_u16((uint16_t *)(p), vreinterpret_u16_f16(vcvt_f16_f32(v)))
TENSOR__INLINE V_I TENSOR__K(load_u8)(const void *p) {
    uint32_t u;
    memcpy(&u, p, 4);
    return TENSOR__S(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(u)))));
}
TENSOR__INLINE void TENSOR__K(store_u8)(void *p, V_I v) {
    uint16x4_t h = vmovn_u32(TENSOR__U(v));
    uint32_t u = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(h, h))), 0);
    memcpy(p, &u, 4);
}
#define VI_LOAD_U8(p) TENSOR__K(load_u8)(p)
#define VI_STORE_U8(p, v) TENSOR__K(store_u8)(p, v)

#define TENSOR__D_OP(op) v##op##q_f64
#define TENSOR__D_SET1(x) vdupq_n_f64(x)
#define TENSOR__D_FMA(a, b, c) vfmaq_f64(c, a, b)
#define TENSOR__D_LO(v) vcvt_f64_f32(vget_low_f32(v))
#define TENSOR__D_HI(v) vcvt_high_f64_f32(v)
#define TENSOR__D_JOIN(d) vcvt_high_f32_f64(vcvt_f32_f64((d).lo), (d).hi)

/* ---- Primitives: WebAssembly --------------------------------------------------------------------------- */
#elif TENSOR__PASS == 5

#define V_N 4
#define V_F v128_t
#define V_I v128_t
#define V_M v128_t
#define TENSOR__DV v128_t

#define V_LOAD(p) wasm_v128_load(p)
#define V_STORE(p, v) wasm_v128_store(p, v)
#define V_SET(x) wasm_f32x4_splat((float)(x))
#define V_ZERO() wasm_f32x4_splat(0.0f)
#define VI_LOAD(p) wasm_v128_load(p)
#define VI_STORE(p, v) wasm_v128_store(p, v)
#define VI_SET(x) wasm_i32x4_splat((int32_t)(x))
#define V_ADD(a, b) wasm_f32x4_add(a, b)
#define V_SUB(a, b) wasm_f32x4_sub(a, b)
#define V_MUL(a, b) wasm_f32x4_mul(a, b)
#define V_DIV(a, b) wasm_f32x4_div(a, b)
#define V_SQRT(a) wasm_f32x4_sqrt(a)
#define V_FMA(a, b, c) wasm_f32x4_add(wasm_f32x4_mul(a, b), c)
#define V_FNMA(a, b, c) wasm_f32x4_sub(c, wasm_f32x4_mul(a, b))
#define V_LT(a, b) wasm_f32x4_lt(a, b)
#define V_LE(a, b) wasm_f32x4_le(a, b)
#define V_GT(a, b) wasm_f32x4_gt(a, b)
#define V_GE(a, b) wasm_f32x4_ge(a, b)
#define V_EQ(a, b) wasm_f32x4_eq(a, b)
#define V_NE(a, b) wasm_f32x4_ne(a, b)
#define M_AND(a, b) wasm_v128_and(a, b)
#define M_OR(a, b) wasm_v128_or(a, b)
#define M_XOR(a, b) wasm_v128_xor(a, b)
#define M_NOT(a) wasm_v128_not(a)
#define M_ANY(m) wasm_v128_any_true(m)
#define M_ALL(m) wasm_i32x4_all_true(m)
#define V_SEL(m, a, b) wasm_v128_bitselect(a, b, m)
#define VI_SEL(m, a, b) wasm_v128_bitselect(a, b, m)
#define VI_ADD(a, b) wasm_i32x4_add(a, b)
#define VI_SUB(a, b) wasm_i32x4_sub(a, b)
#define VI_AND(a, b) wasm_v128_and(a, b)
#define VI_OR(a, b) wasm_v128_or(a, b)
#define VI_XOR(a, b) wasm_v128_xor(a, b)
#define VI_SHL(a, k) wasm_i32x4_shl(a, k)
#define VI_SHR(a, k) wasm_u32x4_shr(a, k)
#define VI_SAR(a, k) wasm_i32x4_shr(a, k)
#define VI_EQ(a, b) wasm_i32x4_eq(a, b)
#define VI_GT(a, b) wasm_i32x4_gt(a, b)
#define VI_MULLO(a, b) wasm_i32x4_mul(a, b)
#define VI_MULHI(a, b) TENSOR__K(mulhi)(a, b)
#define VI_RINT(a) wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(a))
#define VI_TRUNC(a) wasm_i32x4_trunc_sat_f32x4(a)
#define V_FROM_I(a) wasm_f32x4_convert_i32x4(a)
#define V_BITS(v) (v)
#define V_OF(i) (i)
#define V_TRUNC(v) wasm_f32x4_trunc(v)
#define V_FLOOR(v) wasm_f32x4_floor(v)
#define V_CEIL(v) wasm_f32x4_ceil(v)
#define V_RINT(v) wasm_f32x4_nearest(v)
/* pmin(b, a) is a < b ? a : b, one instruction on x86 too. */
#define V_MINR(a, b) wasm_f32x4_pmin(b, a)
#define V_MAXR(a, b) wasm_f32x4_pmax(b, a)
TENSOR__INLINE V_I TENSOR__K(mulhi)(V_I a, V_I b) {
    V_I lo = wasm_u64x2_extmul_low_u32x4(a, b), hi = wasm_u64x2_extmul_high_u32x4(a, b);
    return wasm_i32x4_shuffle(lo, hi, 1, 3, 5, 7);
}
#define TENSOR__HORIZ(name, op) TENSOR__INLINE float TENSOR__K(name)(V_F v) { \
    v = op(v, wasm_i32x4_shuffle(v, v, 2, 3, 2, 3)); \
    return wasm_f32x4_extract_lane(op(v, wasm_i32x4_shuffle(v, v, 1, 1, 1, 1)), 0); }
TENSOR__HORIZ(hsum, V_ADD)
TENSOR__HORIZ(hmaxr, V_MAXR)
TENSOR__HORIZ(hminr, V_MINR)
#undef TENSOR__HORIZ

#define TENSOR__LOAD16(p) wasm_u32x4_load16x4(p)
#define TENSOR__STORE16(p, v) wasm_v128_store64_lane(p, TENSOR__K(pack16)(v), 0)
TENSOR__INLINE V_I TENSOR__K(pack16)(V_I v) {
    return wasm_i8x16_shuffle(v, v, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13);
}
TENSOR__INLINE V_I TENSOR__K(pack8)(V_I v) {
    return wasm_i8x16_shuffle(v, v, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
}
#define VI_LOAD_U8(p) wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)))
#define VI_STORE_U8(p, v) wasm_v128_store32_lane(p, TENSOR__K(pack8)(v), 0)

#define TENSOR__D_OP(op) wasm_f64x2_##op
#define TENSOR__D_SET1(x) wasm_f64x2_splat(x)
#define TENSOR__D_FMA(a, b, c) wasm_f64x2_add(wasm_f64x2_mul(a, b), c)
#define TENSOR__D_LO(v) wasm_f64x2_promote_low_f32x4(v)
#define TENSOR__D_HI(v) wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(v, v, 2, 3, 2, 3))
#define TENSOR__D_JOIN(d) wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero((d).lo), \
                                             wasm_f32x4_demote_f64x2_zero((d).hi), 0, 1, 4, 5)

/* ---- Primitives: x86 ----------------------------------------------------------------------------------- */
#else

#if TENSOR__PASS == 1
#define V_N 4
#define V_F __m128
#define V_I __m128i
#define V_M __m128
#define TENSOR__MM(op) _mm_##op
#define TENSOR__SI(op) _mm_##op##_si128
#define TENSOR__DV __m128d
#elif TENSOR__PASS == 2
#define V_N 8
#define V_F __m256
#define V_I __m256i
#define V_M __m256
#define TENSOR__MM(op) _mm256_##op
#define TENSOR__SI(op) _mm256_##op##_si256
#define TENSOR__DV __m256d
#else
#define V_N 16
#define V_F __m512
#define V_I __m512i
#define V_M __mmask16
#define TENSOR__MM(op) _mm512_##op
#define TENSOR__SI(op) _mm512_##op##_si512
#define TENSOR__DV __m512d
#endif

#define V_LOAD(p) TENSOR__MM(loadu_ps)((const float *)(p))
#define V_STORE(p, v) TENSOR__MM(storeu_ps)((float *)(p), v)
#define V_SET(x) TENSOR__MM(set1_ps)((float)(x))
#define V_ZERO() TENSOR__MM(setzero_ps)()
#define VI_LOAD(p) TENSOR__SI(loadu)((const V_I *)(const void *)(p))
#define VI_STORE(p, v) TENSOR__SI(storeu)((V_I *)(void *)(p), v)
#define VI_SET(x) TENSOR__MM(set1_epi32)((int)(x))
#define V_ADD(a, b) TENSOR__MM(add_ps)(a, b)
#define V_SUB(a, b) TENSOR__MM(sub_ps)(a, b)
#define V_MUL(a, b) TENSOR__MM(mul_ps)(a, b)
#define V_DIV(a, b) TENSOR__MM(div_ps)(a, b)
#define V_SQRT(a) TENSOR__MM(sqrt_ps)(a)
#define V_MINR(a, b) TENSOR__MM(min_ps)(a, b)
#define V_MAXR(a, b) TENSOR__MM(max_ps)(a, b)
#define VI_ADD(a, b) TENSOR__MM(add_epi32)(a, b)
#define VI_SUB(a, b) TENSOR__MM(sub_epi32)(a, b)
#define VI_AND(a, b) TENSOR__SI(and)(a, b)
#define VI_OR(a, b) TENSOR__SI(or)(a, b)
#define VI_XOR(a, b) TENSOR__SI(xor)(a, b)
#define VI_SHL(a, k) TENSOR__MM(slli_epi32)(a, k)
#define VI_SHR(a, k) TENSOR__MM(srli_epi32)(a, k)
#define VI_SAR(a, k) TENSOR__MM(srai_epi32)(a, k)
#define VI_RINT(a) TENSOR__MM(cvtps_epi32)(a)
#define VI_TRUNC(a) TENSOR__MM(cvttps_epi32)(a)
#define V_FROM_I(a) TENSOR__MM(cvtepi32_ps)(a)

#if TENSOR__PASS < 3
#define M_AND(a, b) TENSOR__MM(and_ps)(a, b)
#define M_OR(a, b) TENSOR__MM(or_ps)(a, b)
#define M_XOR(a, b) TENSOR__MM(xor_ps)(a, b)
#define M_NOT(a) TENSOR__MM(xor_ps)(a, V_OF(VI_SET(-1)))
#define VI_EQ(a, b) V_OF(TENSOR__MM(cmpeq_epi32)(a, b))
#define VI_GT(a, b) V_OF(TENSOR__MM(cmpgt_epi32)(a, b))
#endif
#if TENSOR__PASS > 1
#define V_FMA(a, b, c) TENSOR__MM(fmadd_ps)(a, b, c)
#define V_FNMA(a, b, c) TENSOR__MM(fnmadd_ps)(a, b, c)
#define TENSOR__D_FMA(a, b, c) TENSOR__MM(fmadd_pd)(a, b, c)
#define V_LT(a, b) TENSOR__COMPARE(a, b, _CMP_LT_OQ)
#define V_LE(a, b) TENSOR__COMPARE(a, b, _CMP_LE_OQ)
#define V_GT(a, b) TENSOR__COMPARE(a, b, _CMP_GT_OQ)
#define V_GE(a, b) TENSOR__COMPARE(a, b, _CMP_GE_OQ)
#define V_EQ(a, b) TENSOR__COMPARE(a, b, _CMP_EQ_OQ)
#define V_NE(a, b) TENSOR__COMPARE(a, b, _CMP_NEQ_UQ)
#define V_TRUNC(v) TENSOR__TO_WHOLE(v, 11)
#define V_FLOOR(v) TENSOR__TO_WHOLE(v, 9)
#define V_CEIL(v) TENSOR__TO_WHOLE(v, 10)
#define V_RINT(v) TENSOR__TO_WHOLE(v, 8)
#endif

#if TENSOR__PASS == 1
#define V_BITS(v) _mm_castps_si128(v)
#define V_OF(i) _mm_castsi128_ps(i)
#define V_FMA(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define V_FNMA(a, b, c) _mm_sub_ps(c, _mm_mul_ps(a, b))
#define V_LT(a, b) _mm_cmplt_ps(a, b)
#define V_LE(a, b) _mm_cmple_ps(a, b)
#define V_GT(a, b) _mm_cmplt_ps(b, a)
#define V_GE(a, b) _mm_cmple_ps(b, a)
#define V_EQ(a, b) _mm_cmpeq_ps(a, b)
#define V_NE(a, b) _mm_cmpneq_ps(a, b)
#define M_ANY(m) (_mm_movemask_ps(m) != 0)
#define M_ALL(m) (_mm_movemask_ps(m) == 15)
#define V_SEL(m, a, b) TENSOR__K(sel)(m, a, b)
#define VI_SEL(m, a, b) V_BITS(TENSOR__K(sel)(m, V_OF(a), V_OF(b)))
TENSOR__INLINE V_F TENSOR__K(sel)(V_M m, V_F a, V_F b) {
    return _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b));
}
#define TENSOR__WIDE_HI(e, o) \
    _mm_or_si128(_mm_srli_epi64(e, 32), _mm_and_si128(o, _mm_set_epi32(-1, 0, -1, 0)))
#define TENSOR__WIDE_LO(e, o) \
    _mm_or_si128(_mm_and_si128(e, _mm_set_epi32(0, -1, 0, -1)), _mm_slli_epi64(o, 32))
#define TENSOR__FOLD(op, v) (v)
#define TENSOR__D_LO(v) _mm_cvtps_pd(v)
#define TENSOR__D_HI(v) _mm_cvtps_pd(_mm_movehl_ps(v, v))
#define TENSOR__D_JOIN(d) _mm_movelh_ps(_mm_cvtpd_ps((d).lo), _mm_cvtpd_ps((d).hi))
#define TENSOR__D_FMA(a, b, c) _mm_add_pd(_mm_mul_pd(a, b), c)
#define TENSOR__LOAD16(p) \
    _mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)(const void *)(p)), _mm_setzero_si128())
/* packs_epi32 saturates signed numbers: sign-extend first. */
#define TENSOR__STORE16(p, v) \
    _mm_storel_epi64((__m128i *)(void *)(p), TENSOR__K(pack16)(_mm_srai_epi32(_mm_slli_epi32(v, 16), 16)))
TENSOR__INLINE __m128i TENSOR__K(pack16)(__m128i v) { return _mm_packs_epi32(v, v); }
TENSOR__INLINE __m128i TENSOR__K(load_u8)(const void *p) {
    int32_t i;
    memcpy(&i, p, 4);
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(i), _mm_setzero_si128()),
                              _mm_setzero_si128());
}
TENSOR__INLINE void TENSOR__K(store_u8)(void *p, __m128i v) {
    int32_t i;
    v = _mm_packs_epi32(v, v);
    i = _mm_cvtsi128_si32(_mm_packus_epi16(v, v));
    memcpy(p, &i, 4);
}
#define VI_LOAD_U8(p) TENSOR__K(load_u8)(p)
#define VI_STORE_U8(p, v) TENSOR__K(store_u8)(p, v)

#elif TENSOR__PASS == 2
#define V_BITS(v) _mm256_castps_si256(v)
#define TENSOR__COMPARE(a, b, how) _mm256_cmp_ps(a, b, how)
#define TENSOR__TO_WHOLE(v, how) _mm256_round_ps(v, how)
#define V_OF(i) _mm256_castsi256_ps(i)
#define M_ANY(m) (_mm256_movemask_ps(m) != 0)
#define M_ALL(m) (_mm256_movemask_ps(m) == 255)
#define V_SEL(m, a, b) _mm256_blendv_ps(b, a, m)
#define VI_SEL(m, a, b) V_BITS(_mm256_blendv_ps(V_OF(b), V_OF(a), m))
#define TENSOR__WIDE_HI(e, o) _mm256_blend_epi32(_mm256_srli_epi64(e, 32), o, 0xAA)
#define TENSOR__WIDE_LO(e, o) _mm256_blend_epi32(e, _mm256_slli_epi64(o, 32), 0xAA)
#define TENSOR__FOLD(op, v) _mm_##op##_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1))
#define TENSOR__D_LO(v) _mm256_cvtps_pd(_mm256_castps256_ps128(v))
#define TENSOR__D_HI(v) _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))
#define TENSOR__D_JOIN(d) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((d).lo)), \
                                               _mm256_cvtpd_ps((d).hi), 1)
#define TENSOR__LOAD16(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define TENSOR__STORE16(p, v) TENSOR__K(store16)(p, v)
#define VI_LOAD_U8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define VI_STORE_U8(p, v) TENSOR__K(store_u8)(p, v)
TENSOR__INLINE void TENSOR__K(store_u8)(void *p, __m256i v) {
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(w, w));
}
TENSOR__INLINE void TENSOR__K(store16)(uint16_t *p, __m256i v) {
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 8);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(w));
}
#define V_LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define V_STORE_F16(p, v) _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph(v, 0))

#else
#define V_BITS(v) _mm512_castps_si512(v)
#define TENSOR__COMPARE(a, b, how) _mm512_cmp_ps_mask(a, b, how)
#define TENSOR__TO_WHOLE(v, how) _mm512_roundscale_ps(v, how)
#define V_OF(i) _mm512_castsi512_ps(i)
#define VI_EQ(a, b) _mm512_cmpeq_epi32_mask(a, b)
#define VI_GT(a, b) _mm512_cmpgt_epi32_mask(a, b)
#define M_AND(a, b) ((__mmask16)((a) & (b)))
#define M_OR(a, b) ((__mmask16)((a) | (b)))
#define M_XOR(a, b) ((__mmask16)((a) ^ (b)))
#define M_NOT(a) ((__mmask16)~(a))
#define M_ANY(m) ((m) != 0)
#define M_ALL(m) ((m) == 0xFFFF)
#define V_SEL(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define VI_SEL(m, a, b) _mm512_mask_blend_epi32(m, b, a)
#define TENSOR__WIDE_HI(e, o) _mm512_mask_shuffle_epi32(o, 0x5555, e, _MM_PERM_DDBB)
#define TENSOR__WIDE_LO(e, o) _mm512_mask_shuffle_epi32(e, 0xAAAA, o, _MM_PERM_CCAA)
#define TENSOR__FOLD(op, v) TENSOR__K(fold_##op)(v)
#define TENSOR__FOLD_FN(op) TENSOR__INLINE __m128 TENSOR__K(fold_##op)(__m512 v) { \
    __m256 u = _mm256_##op##_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); \
    return _mm_##op##_ps(_mm256_castps256_ps128(u), _mm256_extractf128_ps(u, 1)); }
TENSOR__FOLD_FN(add)
TENSOR__FOLD_FN(max)
TENSOR__FOLD_FN(min)
#undef TENSOR__FOLD_FN
#define TENSOR__D_LO(v) _mm512_cvtps_pd(_mm512_castps512_ps256(v))
#define TENSOR__D_HI(v) _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))
#define TENSOR__D_JOIN(d) _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((d).lo)), \
                                             _mm512_cvtpd_ps((d).hi), 1)
#define TENSOR__LOAD16(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define TENSOR__STORE16(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi32_epi16(v))
#define VI_LOAD_U8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define VI_STORE_U8(p, v) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8(v))
#define V_LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define V_STORE_F16(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtps_ph(v, 0))
/* Any n, and a subnormal result is rounded once. */
#define V_LDEXP(v, n) _mm512_scalef_ps(v, n)
#define V_LDEXP1(v, n) _mm512_scalef_ps(v, n)
#endif

/* The high halves of the unsigned products, the low ones in *lo: even lanes, odd lanes, put together. */
#define VI_WIDE(a, b, lo) TENSOR__K(wide)(a, b, lo)
TENSOR__INLINE V_I TENSOR__K(wide)(V_I a, V_I b, V_I *lo) {
    V_I e = TENSOR__MM(mul_epu32)(a, b);
    V_I o = TENSOR__MM(mul_epu32)(TENSOR__MM(srli_epi64)(a, 32), TENSOR__MM(srli_epi64)(b, 32));
    *lo = TENSOR__WIDE_LO(e, o);
    return TENSOR__WIDE_HI(e, o);
}

/* Halves until one lane is left: lane i meets i + V_N/2, then i + V_N/4 and so on, always the same tree. */
#define TENSOR__HORIZ(name, op) TENSOR__INLINE float TENSOR__K(name)(V_F v) { \
    __m128 t = TENSOR__FOLD(op, v); \
    t = _mm_##op##_ps(t, _mm_movehl_ps(t, t)); \
    return _mm_cvtss_f32(_mm_##op##_ss(t, _mm_shuffle_ps(t, t, 1))); }
TENSOR__HORIZ(hsum, add)
TENSOR__HORIZ(hmaxr, max)
TENSOR__HORIZ(hminr, min)
#undef TENSOR__HORIZ

#define TENSOR__D_OP(op) TENSOR__MM(op##_pd)
#define TENSOR__D_SET1(x) TENSOR__MM(set1_pd)(x)
#endif

#if TENSOR__PASS > 0
#define V_HSUM(v) TENSOR__K(hsum)(v)
#define V_HMAX(v) TENSOR__K(hmax)(v)
#define V_HMIN(v) TENSOR__K(hmin)(v)

/* Doubles come in pairs, as many lanes as a V_F: where 24 bits cannot do (angles, pow). */
typedef struct { TENSOR__DV lo, hi; } TENSOR__K(double2);
#define V_D TENSOR__K(double2)
#define TENSOR__D2(name, op) TENSOR__INLINE V_D TENSOR__K(name)(V_D a, V_D b) { V_D r; \
    r.lo = TENSOR__D_OP(op)(a.lo, b.lo); r.hi = TENSOR__D_OP(op)(a.hi, b.hi); return r; }
TENSOR__D2(d_add, add)
TENSOR__D2(d_sub, sub)
TENSOR__D2(d_mul, mul)
TENSOR__D2(d_div, div)
#undef TENSOR__D2
TENSOR__INLINE V_D TENSOR__K(d_fma)(V_D a, V_D b, V_D c) {
    V_D r;
    r.lo = TENSOR__D_FMA(a.lo, b.lo, c.lo);
    r.hi = TENSOR__D_FMA(a.hi, b.hi, c.hi);
    return r;
}
TENSOR__INLINE V_D TENSOR__K(d_set)(double x) { V_D r; r.lo = r.hi = TENSOR__D_SET1(x); return r; }
TENSOR__INLINE V_D TENSOR__K(d_of_f)(V_F v) {
    V_D r;
    r.lo = TENSOR__D_LO(v);
    r.hi = TENSOR__D_HI(v);
    return r;
}
#define D_SET(x) TENSOR__K(d_set)(x)
#define D_ADD(a, b) TENSOR__K(d_add)(a, b)
#define D_SUB(a, b) TENSOR__K(d_sub)(a, b)
#define D_MUL(a, b) TENSOR__K(d_mul)(a, b)
#define D_DIV(a, b) TENSOR__K(d_div)(a, b)
#define D_FMA(a, b, c) TENSOR__K(d_fma)(a, b, c)
#define D_OF_F(v) TENSOR__K(d_of_f)(v)
#define F_OF_D(d) TENSOR__D_JOIN(d)
#endif

/* ---- Built on the vocabulary: from here on one text for all passes ------------------------------------- */
#define V_ABS(v) V_OF(VI_AND(V_BITS(v), VI_SET(0x7FFFFFFF)))
#define V_NEG(v) V_OF(VI_XOR(V_BITS(v), VI_SET(-0x7FFFFFFF - 1)))
#define V_COPYSIGN(mag, sgn) V_OF(VI_OR(VI_AND(V_BITS(mag), VI_SET(0x7FFFFFFF)), \
                                        VI_AND(V_BITS(sgn), VI_SET(-0x7FFFFFFF - 1))))
/* On bits: -ffast-math folds every test on values. */
#if TENSOR__PASS == 3
#define V_ISNAN(v) _mm512_fpclass_ps_mask(v, 0x81)
#else
#define V_ISNAN(v) VI_GT(VI_AND(V_BITS(v), VI_SET(0x7FFFFFFF)), VI_SET(0x7F800000))
#endif
#if TENSOR__PASS != 4
#define V_MIN(a, b) TENSOR__K(min)(a, b)
#define V_MAX(a, b) TENSOR__K(max)(a, b)
/* The hardware gives b if either is NaN: only a NaN in a is to be saved. */
TENSOR__INLINE V_F TENSOR__K(min)(V_F a, V_F b) { return V_SEL(V_ISNAN(a), a, V_MINR(a, b)); }
TENSOR__INLINE V_F TENSOR__K(max)(V_F a, V_F b) { return V_SEL(V_ISNAN(a), a, V_MAXR(a, b)); }
#endif

#if TENSOR__PASS < 2
/* From 2^23 on every float is an integer.  RINT leans on the addition's own rounding to even. */
TENSOR__INLINE V_F TENSOR__K(rint)(V_F x) {
    V_F big = V_COPYSIGN(V_SET(8388608.0f), x), r = V_SUB(V_ADD(x, big), big);
    return V_SEL(V_LT(V_ABS(x), V_SET(8388608.0f)), V_COPYSIGN(r, x), x);
}
TENSOR__INLINE V_F TENSOR__K(trunc)(V_F x) {
    V_F r = V_COPYSIGN(V_FROM_I(VI_TRUNC(x)), x);
    return V_SEL(V_LT(V_ABS(x), V_SET(8388608.0f)), r, x);
}
TENSOR__INLINE V_F TENSOR__K(floor)(V_F x) {
    V_F t = TENSOR__K(trunc)(x);
    return V_SUB(t, V_SEL(V_GT(t, x), V_SET(1.0f), V_ZERO()));
}
#define V_RINT(v) TENSOR__K(rint)(v)
#define V_TRUNC(v) TENSOR__K(trunc)(v)
#define V_FLOOR(v) TENSOR__K(floor)(v)
#define V_CEIL(v) V_NEG(TENSOR__K(floor)(V_NEG(v)))
#define TENSOR__RINT_S(v) V_SUB(V_ADD(v, V_SET(12582912.0f)), V_SET(12582912.0f))      /* |v| < 2^22 */
#else
#define TENSOR__RINT_S(v) V_RINT(v)
#endif

#if TENSOR__PASS == 1 || TENSOR__PASS == 5
/* The integer code of the scalar conversions (tensor__f32_from_f16 and its neighbours) on lanes. */
TENSOR__INLINE V_F TENSOR__K(load_f16)(const uint16_t *p) {
    V_I h = TENSOR__LOAD16(p), m = VI_SHL(VI_AND(h, VI_SET(0x7FFF)), 13);
    V_I s = VI_SHL(VI_AND(h, VI_SET(0x8000)), 16);
    V_I sub = V_BITS(V_MUL(V_FROM_I(VI_SHR(m, 13)), V_SET(5.9604644775390625e-8f)));    /* m 2^-24, exact */
    V_I r = VI_SEL(VI_GT(VI_SET(0x00800000), m), sub, VI_ADD(m, VI_SET(112 << 23)));
    r = VI_SEL(VI_GT(m, VI_SET(0x0F7FFFFF)), VI_OR(m, VI_SET(0x7F800000)), r);
    r = VI_OR(r, VI_AND(V_BITS(VI_GT(m, VI_SET(0x0F800000))), VI_SET(0x00400000)));
    return V_OF(VI_OR(s, r));
}
TENSOR__INLINE void TENSOR__K(store_f16)(uint16_t *p, V_F v) {
    V_I u = V_BITS(v), a = VI_AND(u, VI_SET(0x7FFFFFFF)), s = VI_AND(VI_SHR(u, 16), VI_SET(0x8000)), r, sub;
    r = VI_ADD(VI_ADD(a, VI_SET(0x0FFF - (112 << 23))), VI_AND(VI_SHR(a, 13), VI_SET(1)));
    sub = VI_SUB(V_BITS(V_ADD(V_OF(a), V_SET(0.5f))), VI_SET(0x3F000000));      /* an ulp of 0.5 is 2^-24 */
    r = VI_SEL(VI_GT(VI_SET(0x38800000), a), sub, VI_SHR(r, 13));
    r = VI_SEL(VI_GT(a, VI_SET(0x477FEFFF)), VI_SET(0x7C00), r);
    r = VI_SEL(VI_GT(a, VI_SET(0x7F800000)), VI_OR(VI_SET(0x7E00), VI_AND(VI_SHR(a, 13), VI_SET(0x3FF))), r);
    TENSOR__STORE16(p, VI_OR(s, r));
}
#define V_LOAD_F16(p) TENSOR__K(load_f16)(p)
#define V_STORE_F16(p, v) TENSOR__K(store_f16)(p, v)
#endif

#if TENSOR__PASS > 0
TENSOR__INLINE V_F TENSOR__K(load_bf16)(const uint16_t *p) {
    V_I u = VI_SHL(TENSOR__LOAD16(p), 16);
    return V_OF(VI_SEL(V_ISNAN(V_OF(u)), VI_OR(u, VI_SET(0x00400000)), u));
}
TENSOR__INLINE void TENSOR__K(store_bf16)(uint16_t *p, V_F v) {
    V_I u = V_BITS(v), r = VI_ADD(VI_ADD(u, VI_SET(0x7FFF)), VI_AND(VI_SHR(u, 16), VI_SET(1)));
    r = VI_SEL(V_ISNAN(v), VI_OR(u, VI_SET(0x00400000)), r);
    TENSOR__STORE16(p, VI_SHR(r, 16));
}
#define V_LOAD_BF16(p) TENSOR__K(load_bf16)(p)
#define V_STORE_BF16(p, v) TENSOR__K(store_bf16)(p, v)

TENSOR__INLINE float TENSOR__K(hmax)(V_F v) {
    return M_ANY(V_ISNAN(v)) ? tensor__f32_from_bits(0x7FC00000u) : TENSOR__K(hmaxr)(v);
}
TENSOR__INLINE float TENSOR__K(hmin)(V_F v) {
    return M_ANY(V_ISNAN(v)) ? tensor__f32_from_bits(0x7FC00000u) : TENSOR__K(hminr)(v);
}
#endif

/* The line n floats after p will be wanted: where a loop takes a line a turn and computes so long that the
   hardware does not look ahead far enough. The line may lie beyond the array. */
#if TENSOR__PASS == 3
#define V_AHEAD(p, n) _mm_prefetch((const char *)(p) + 4 * (n), _MM_HINT_T0)
#else
#define V_AHEAD(p, n) ((void)0)
#endif
/* The whole vectors of a row of n; i is left at its end, or where less than a vector begins. */
#define TENSOR__WHOLE for (; i + V_N <= n; i += V_N)
/* Ends of rows, 0 < n < V_N: the first n floats at p with fill in the lanes beyond; the first n lanes stored;
   the lanes from n on made 0. */
#if TENSOR__PASS == 3
#define TENSOR__FIRST(n) ((__mmask16)((1u << (n)) - 1))
#define V_PART(p, n, fill) _mm512_mask_loadu_ps(V_SET(fill), TENSOR__FIRST(n), p)
#define V_PUT_PART(p, n, v) _mm512_mask_storeu_ps(p, TENSOR__FIRST(n), v)
#define V_CUT_PART(v, n) _mm512_maskz_mov_ps(TENSOR__FIRST(n), v)
#else
TENSOR__INLINE V_F TENSOR__K(part)(const float *p, int64_t n, float fill) {
    float t[V_N];
    int64_t i;
    for (i = 0; i < V_N; i++) { t[i] = i < n ? p[i] : fill; }
    return V_LOAD(t);
}
TENSOR__INLINE void TENSOR__K(put_part)(float *p, int64_t n, V_F v) {
    float t[V_N];
    int64_t i;
    V_STORE(t, v);
    for (i = 0; i < n; i++) { p[i] = t[i]; }
}
TENSOR__INLINE V_F TENSOR__K(cut_part)(V_F v, int64_t n) {
    float t[V_N];
    V_STORE(t, v);
    return TENSOR__K(part)(t, n, 0);
}
#define V_PART(p, n, fill) TENSOR__K(part)(p, n, fill)
#define V_PUT_PART(p, n, v) TENSOR__K(put_part)(p, n, v)
#define V_CUT_PART(v, n) TENSOR__K(cut_part)(v, n)
#endif

/* The 4 x 4 matrices that stand at lanes 4q .. 4q + 3 of four vectors are transposed. */
#if TENSOR__PASS == 0
#define TENSOR__QUADS(z) ((void)(z))
#else
#if TENSOR__PASS == 3
/* the forms without a mask warn in g++ 12: its own header reads an undefined vector */
#define TENSOR__LO(a, b) _mm512_maskz_unpacklo_ps(0xFFFF, a, b)
#define TENSOR__HI(a, b) _mm512_maskz_unpackhi_ps(0xFFFF, a, b)
#define TENSOR__LOWS(a, b) _mm512_maskz_shuffle_ps(0xFFFF, a, b, 0x44)
#define TENSOR__HIGHS(a, b) _mm512_maskz_shuffle_ps(0xFFFF, a, b, 0xEE)
#elif TENSOR__PASS == 4
#define TENSOR__LO(a, b) vzip1q_f32(a, b)
#define TENSOR__HI(a, b) vzip2q_f32(a, b)
#define TENSOR__LOWS(a, b) vcombine_f32(vget_low_f32(a), vget_low_f32(b))
#define TENSOR__HIGHS(a, b) vcombine_f32(vget_high_f32(a), vget_high_f32(b))
#elif TENSOR__PASS == 5
#define TENSOR__LO(a, b) wasm_i32x4_shuffle(a, b, 0, 4, 1, 5)
#define TENSOR__HI(a, b) wasm_i32x4_shuffle(a, b, 2, 6, 3, 7)
#define TENSOR__LOWS(a, b) wasm_i32x4_shuffle(a, b, 0, 1, 4, 5)
#define TENSOR__HIGHS(a, b) wasm_i32x4_shuffle(a, b, 2, 3, 6, 7)
#else
#define TENSOR__LO(a, b) TENSOR__MM(unpacklo_ps)(a, b)
#define TENSOR__HI(a, b) TENSOR__MM(unpackhi_ps)(a, b)
#define TENSOR__LOWS(a, b) TENSOR__MM(shuffle_ps)(a, b, 0x44)
#define TENSOR__HIGHS(a, b) TENSOR__MM(shuffle_ps)(a, b, 0xEE)
#endif
#define TENSOR__QUADS(z) TENSOR__K(quads)(z)
TENSOR__INLINE void TENSOR__K(quads)(V_F *z) {
    V_F a = TENSOR__LO(z[0], z[1]), b = TENSOR__HI(z[0], z[1]);
    V_F c = TENSOR__LO(z[2], z[3]), d = TENSOR__HI(z[2], z[3]);
    z[0] = TENSOR__LOWS(a, c);
    z[1] = TENSOR__HIGHS(a, c);
    z[2] = TENSOR__LOWS(b, d);
    z[3] = TENSOR__HIGHS(b, d);
}
#undef TENSOR__LO
#undef TENSOR__HI
#undef TENSOR__LOWS
#undef TENSOR__HIGHS
#endif

#ifndef VI_WIDE
#define VI_WIDE(a, b, lo) (*(lo) = VI_MULLO(a, b), VI_MULHI(a, b))
#endif
/* Philox4x32-10 of 2 V_N blocks: z[w] gets word w of the first V_N, z[4 + w] that of the others (two chains,
   for a round is long). Lane 4q + k holds block k V_N/4 + q, so that TENSOR__QUADS leaves the words
   of all blocks in order, z[0] first. */
TENSOR__INLINE void TENSOR__K(counter)(uint64_t block, V_I *low, V_I *high) {
#define TENSOR__O(i) (V_N < 4 ? (i) : (i) % 4 * (V_N / 4) + (i) / 4)
    static const int32_t order[16] = {
        TENSOR__O(0), TENSOR__O(1), TENSOR__O(2), TENSOR__O(3), TENSOR__O(4), TENSOR__O(5), TENSOR__O(6),
        TENSOR__O(7), TENSOR__O(8), TENSOR__O(9), TENSOR__O(10), TENSOR__O(11), TENSOR__O(12), TENSOR__O(13),
        TENSOR__O(14), TENSOR__O(15)
    };
#undef TENSOR__O
    V_I first = VI_SET((int32_t)(uint32_t)block), top = VI_SET(-0x7FFFFFFF - 1);
    V_I l = VI_ADD(first, VI_LOAD(order)), h = VI_SET((int32_t)(uint32_t)(block >> 32));
    *low = l;
    *high = VI_SEL(VI_GT(VI_XOR(first, top), VI_XOR(l, top)), VI_ADD(h, VI_SET(1)), h);     /* the carry */
}
#define TENSOR__ROUND(z) { \
        V_I l1, l0, h1 = VI_WIDE(m1, z##2, &l1), h0 = VI_WIDE(m0, z##0, &l0); \
        z##0 = VI_XOR(VI_XOR(h1, z##1), v0); \
        z##2 = VI_XOR(VI_XOR(h0, z##3), v1); \
        z##1 = l1; \
        z##3 = l0; }
TENSOR__INLINE void TENSOR__K(philox)(tensor_generator_t g, uint64_t block, V_I *z) {
    V_I m0 = VI_SET((int32_t)0xD2511F53u), m1 = VI_SET((int32_t)0xCD9E8D57u), a0, a1, a2, a3, b0, b1, b2, b3;
    uint32_t k0 = (uint32_t)g.seed, k1 = (uint32_t)(g.seed >> 32);
    int i;
    TENSOR__K(counter)(block, &a0, &a1);
    TENSOR__K(counter)(block + V_N, &b0, &b1);
    a2 = b2 = VI_SET((int32_t)(uint32_t)g.offset);
    a3 = b3 = VI_SET((int32_t)(uint32_t)(g.offset >> 32));
    for (i = 0; i < 10; i += 2) {
        V_I v0 = VI_SET((int32_t)k0), v1 = VI_SET((int32_t)k1);
        TENSOR__ROUND(a)
        TENSOR__ROUND(b)
        v0 = VI_SET((int32_t)(k0 + 0x9E3779B9u));
        v1 = VI_SET((int32_t)(k1 + 0xBB67AE85u));
        TENSOR__ROUND(a)
        TENSOR__ROUND(b)
        k0 += 2 * 0x9E3779B9u;
        k1 += 2 * 0xBB67AE85u;
    }
    z[0] = a0; z[1] = a1; z[2] = a2; z[3] = a3;
    z[4] = b0; z[5] = b1; z[6] = b2; z[7] = b3;
}
#undef TENSOR__ROUND

#if TENSOR__PASS != 3
/* v 2^n for integer |n| <= 252; two factors, for 2^-149 and 2^128 have no float.  The first product is exact
   for |v| in [1/4, 4]: a subnormal result is rounded once.  LDEXP1 takes -126 <= n <= 127. */
TENSOR__INLINE V_F TENSOR__K(ldexp)(V_F v, V_F n) {
    V_I i = VI_RINT(n), h = VI_SAR(i, 1);
    V_F a = V_OF(VI_SHL(VI_ADD(h, VI_SET(127)), 23)), b = V_OF(VI_SHL(VI_ADD(VI_SUB(i, h), VI_SET(127)), 23));
    return V_MUL(V_MUL(v, a), b);
}
#define V_LDEXP(v, n) TENSOR__K(ldexp)(v, n)
#define V_LDEXP1(v, n) V_MUL(v, V_OF(VI_SHL(VI_ADD(VI_RINT(n), VI_SET(127)), 23)))
#endif

/*
 * Elementary functions.  Polynomials are our own: weighted least squares driven to minimax (Lawson),
 * coefficients rounded to float one at a time with the rest refitted; the comment gives the interval and
 * the relative error of the function, coefficients as rounded.  NaN gives NaN: clamps put x second, where
 * minps keeps it. The hot ones are inlined into kernels, the others called.
 */
/* Steps of Horner's rule: fused where there is FMA, rounded twice everywhere. */
#define TENSOR__C(p, x, c) p = V_FMA(p, x, V_SET(c))
#define TENSOR__C_TWICE(p, x, c) p = V_ADD(V_MUL(p, x), V_SET(c))
#define TENSOR__HORNER2(C, p, x, a, b) C(p, x, a); C(p, x, b)
#define TENSOR__HORNER3(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER2(C, p, x, __VA_ARGS__)
#define TENSOR__HORNER4(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER3(C, p, x, __VA_ARGS__)
#define TENSOR__HORNER5(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER4(C, p, x, __VA_ARGS__)
#define TENSOR__HORNER6(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER5(C, p, x, __VA_ARGS__)
#define TENSOR__HORNER7(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER6(C, p, x, __VA_ARGS__)
#define TENSOR__HORNER8(C, p, x, a, ...) C(p, x, a); TENSOR__HORNER7(C, p, x, __VA_ARGS__)
#define TENSOR__INF V_OF(VI_SET(0x7F800000))
#define TENSOR__NAN V_OF(VI_SET(0x7FC00000))
/* ln 2: 16 bits, so that n ln2 is exact for |n| < 256 without FMA, and the rest. */
#define TENSOR__LN2_HI 0.693145752f
#define TENSOR__LN2_LO 1.42860677e-6f

#if TENSOR__PASS == 3
/*
 * 32 registers and a permute that looks up 16 floats at once: a function in 16 pieces of equal length, a
 * polynomial of degree 7 each. Rejected: the other passes too (loads lane by lane cost more than they save).
 */
#define V_LOOKUP(t, i) _mm512_permutexvar_ps(i, V_LOAD(t))

/* The piece around k / per, k = rint(a per), 0 <= a per < 15.5: t holds 16 centres, then the coefficients,
   lowest first, in powers of *d = a - centre. A centre is a float whose value is a float too, to 2^-7 ulp;
   the first is 0. */
TENSOR__INLINE V_F TENSOR__K(pieces)(V_F a, float per, const float *t, V_F *d) {
    V_I i = V_BITS(V_FMA(a, V_SET(per), V_SET(12582912.0f)));
    V_F p = V_LOOKUP(t + 128, i), x = V_SUB(a, V_LOOKUP(t, i));
    p = V_FMA(p, x, V_LOOKUP(t + 112, i));
    p = V_FMA(p, x, V_LOOKUP(t + 96, i));
    p = V_FMA(p, x, V_LOOKUP(t + 80, i));
    p = V_FMA(p, x, V_LOOKUP(t + 64, i));
    p = V_FMA(p, x, V_LOOKUP(t + 48, i));
    p = V_FMA(p, x, V_LOOKUP(t + 32, i));
    *d = x;
    return V_FMA(p, x, V_LOOKUP(t + 16, i));
}
/* What stays for the lanes beyond the last piece; elsewhere the function itself. */
#define TENSOR__FAR(name) TENSOR__FN TENSOR__NOINLINE V_F TENSOR__K(name##_far)
#else
#define TENSOR__FAR(name) TENSOR__INLINE V_F TENSOR__K(name)
#endif

/* e^(h+l) = (1 + r + *t) 2^n, |h| <= 200, |l| <= ulp(h): returns r, exact, |r| <= .3476; degree 7,
   2^-33.2. */
TENSOR__INLINE V_F TENSOR__K(exp_core)(V_F h, V_F l, V_F *n, V_F *t) {
    V_F k = TENSOR__RINT_S(V_MUL(h, V_SET(1.44269504f))), q = V_SET(0.000197456829f), r;
    h = V_FNMA(k, V_SET(TENSOR__LN2_HI), h);
    l = V_FNMA(k, V_SET(TENSOR__LN2_LO), l);
    r = V_ADD(h, l);
    TENSOR__HORNER5(TENSOR__C, q, r, 0.00139354682f, 0.00833356474f, 0.0416664593f, 0.166666657f, 0.5f);
    *n = k;
    *t = V_FMA(V_MUL(r, r), q, l);
    return h;
}

/* Beyond the clamps the result is 0 or infinite; subnormal results are rounded once more, not flushed. */
#if TENSOR__PASS == 3
/* 2^n e^r, n in sixteenths, |r| <= .0217, degree 3, 2^-29.2; 2^(j/16) as two floats; scalef takes floor(n).
   k is n + 786432. */
TENSOR__INLINE V_F TENSOR__K(exp_part)(V_F k, V_F n, V_F r) {
    static const float t[32] = {
        1.0f, 1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
        1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f, 1.6817929f, 1.7562522f, 1.8340081f, 1.9152066f,
        0.0f, 4.83347e-8f, -1.307754e-8f, 5.3862223e-8f, 3.7976353e-8f, 4.496838e-8f, -4.0189995e-8f,
        -1.0123349e-8f, 2.4203235e-8f, -4.500899e-8f, 8.070905e-9f, 9.836217e-9f, -2.4755327e-8f,
        -9.23577e-9f, -1.1239278e-8f, 9.845328e-9f
    };
    V_F h = V_LOOKUP(t, V_BITS(k)), l = V_LOOKUP(t + 16, V_BITS(k));
    r = V_FMA(V_FMA(r, V_SET(0.16667030f), V_SET(0.50001642f)), V_MUL(r, r), r);
    return V_LDEXP(V_ADD(h, V_FMA(h, r, l)), n);
}
TENSOR__INLINE V_F TENSOR__K(exp)(V_F x) {
    V_F big = V_SET(786432.0f), y = V_MINR(V_SET(90.0f), V_MAXR(V_SET(-105.0f), x));
    V_F k = V_FMA(y, V_SET(1.44269504f), big), n = V_SUB(k, big);
    return TENSOR__K(exp_part)(k, n, V_FNMA(n, V_SET(TENSOR__LN2_LO), V_FNMA(n, V_SET(TENSOR__LN2_HI), y)));
}
/* 2^(x-l), -152 <= x <= 130, |l| <= 2^-16. */
TENSOR__INLINE V_F TENSOR__K(exp2_sum)(V_F x, V_F l) {
    V_F big = V_SET(786432.0f), k = V_ADD(x, big), n = V_SUB(k, big), r = V_SUB(V_SUB(x, n), l);
    return TENSOR__K(exp_part)(k, n, V_MUL(r, V_SET(0.693147182f)));
}
#else
TENSOR__INLINE V_F TENSOR__K(exp)(V_F x) {
    V_F n, t, r = TENSOR__K(exp_core)(V_MINR(V_SET(90.0f), V_MAXR(V_SET(-105.0f), x)), V_ZERO(), &n, &t);
    return V_LDEXP(V_ADD(V_SET(1.0f), V_ADD(r, t)), n);
}
/* 1 + r + t with the first sum's rounding error: .53 ulp, where more roundings follow. */
TENSOR__INLINE V_F TENSOR__K(exp_sum)(V_F r, V_F t) {
    V_F one = V_SET(1.0f), s = V_ADD(one, r);
    return V_ADD(s, V_ADD(V_SUB(r, V_SUB(s, one)), t));
}

/* 2^r = 1 + r P(r), |r| <= 1/2 (and a little more), degree 7, 2^-32.5. */
TENSOR__INLINE V_F TENSOR__K(exp2_sum)(V_F x, V_F l) {
    V_F n = TENSOR__RINT_S(x), r = V_SUB(V_SUB(x, n), l), p = V_SET(1.43209054e-5f);
    TENSOR__HORNER5(TENSOR__C, p, r, 0.000154521971f, 0.00133379665f, 0.00961808674f, 0.0555040501f,
                    0.240226507f);
    return V_LDEXP(TENSOR__K(exp_sum)(V_MUL(r, V_SET(0.693147182f)), V_MUL(V_MUL(r, r), p)), n);
}
#endif

TENSOR__INLINE V_F TENSOR__K(exp2)(V_F x) {
    return TENSOR__K(exp2_sum)(V_MINR(V_SET(130.0f), V_MAXR(V_SET(-152.0f), x)), V_ZERO());
}

/* (2^n - 1) + 2^n r is where digits go: it is summed with its rounding error.  All at half scale, since
   2^128 has no float; |r| <= .3476, degree 7, 2^-31. */
TENSOR__FN V_F TENSOR__K(expm1)(V_F x) {
    V_F y = V_MINR(V_SET(89.0f), V_MAXR(V_SET(-20.0f), x)), k = TENSOR__RINT_S(V_MUL(y, V_SET(1.44269504f)));
    V_F h = V_FNMA(k, V_SET(TENSOR__LN2_HI), y), l = V_MUL(k, V_SET(-TENSOR__LN2_LO)), r = V_ADD(h, l);
    V_F q = V_SET(0.000197644273f), s = V_LDEXP1(V_SET(1.0f), V_SUB(k, V_SET(1.0f))), a, b, c;
    TENSOR__HORNER5(TENSOR__C, q, r, 0.00139323866f, 0.00833354332f, 0.0416664928f, 0.166666657f, 0.5f);
    l = V_FMA(V_MUL(r, r), q, l);
    a = V_SUB(s, V_SET(0.5f));
    b = V_MUL(s, h);
    c = V_ADD(a, b);
    c = V_ADD(c, V_FMA(s, l, V_ADD(V_SUB(a, c), b)));
    return V_SEL(V_LT(V_ABS(x), V_SET(2.98023224e-8f)), x, V_ADD(c, c));
}

/* x = m 2^e with m in [sqrt 1/2, sqrt 2): returns f = m - 1, exact.  Subnormals are scaled; 0 and below:
   junk. */
TENSOR__INLINE V_F TENSOR__K(log_split)(V_F x, V_F *e) {
    V_M tiny = V_LT(x, V_SET(1.17549435e-38f));
    V_I u = V_BITS(V_SEL(tiny, V_MUL(x, V_SET(33554432.0f)), x));
    V_I k = VI_SAR(VI_SUB(u, VI_SET(0x3F3504F3)), 23);
    *e = V_ADD(V_FROM_I(k), V_SEL(tiny, V_SET(-25.0f), V_ZERO()));
    return V_SUB(V_OF(VI_SUB(u, VI_SHL(k, 23))), V_SET(1.0f));
}

/* log(1+f) = f - f^2/2 + f^3 P(f): returns f^3 P.  f in [-.293, .4143], degree 11, 2^-30.3. */
TENSOR__INLINE V_F TENSOR__K(log_core)(V_F f) {
    V_F p = V_SET(0.0675075427f);
    TENSOR__HORNER8(TENSOR__C, p, f, -0.116716243f, 0.118837453f, -0.124060415f, 0.142203152f, -0.166679949f,
                    0.20002073f, -0.250000089f, 0.333333135f);
    return V_MUL(V_MUL(V_MUL(f, f), f), p);
}

/* 0 < x < inf keeps r; 0 gives -inf, inf and NaN themselves, the negative NaN. */
TENSOR__INLINE V_F TENSOR__K(log_edge)(V_F x, V_F r) {
    r = V_SEL(M_AND(V_GT(x, V_ZERO()), V_LT(x, TENSOR__INF)), r, V_SEL(V_LT(x, V_ZERO()), TENSOR__NAN, x));
    return V_SEL(V_EQ(x, V_ZERO()), V_NEG(TENSOR__INF), r);
}

/* e ln 2 + log(1+f), smallest terms first. */
TENSOR__INLINE V_F TENSOR__K(log_sum)(V_F f, V_F e) {
    V_F y = V_FMA(e, V_SET(TENSOR__LN2_LO), TENSOR__K(log_core)(f));
    y = V_ADD(f, V_FNMA(V_MUL(f, f), V_SET(0.5f), y));
    return V_FMA(e, V_SET(TENSOR__LN2_HI), y);
}

TENSOR__INLINE V_F TENSOR__K(log)(V_F x) {
    V_F e, f = TENSOR__K(log_split)(x, &e);
    return TENSOR__K(log_edge)(x, TENSOR__K(log_sum)(f, e));
}

/* log(1+f) = h + *l, h of 12 bits: its product with a constant of 12 bits is exact. */
TENSOR__INLINE V_F TENSOR__K(log_parts)(V_F f, V_F *l) {
    V_F s = V_MUL(V_MUL(f, f), V_SET(0.5f)), h = V_OF(VI_AND(V_BITS(V_SUB(f, s)), VI_SET(-0x1000)));
    *l = V_ADD(V_SUB(V_SUB(f, h), s), TENSOR__K(log_core)(f));
    return h;
}

/* log2(e) = 1.44238281 (12 bits) + 3.12228389e-4; the sum with e carries its rounding error. */
TENSOR__FN V_F TENSOR__K(log2)(V_F x) {
    V_F e, f = TENSOR__K(log_split)(x, &e), l, h = TENSOR__K(log_parts)(f, &l), s;
    l = V_FMA(h, V_SET(3.12228389e-4f), V_MUL(l, V_SET(1.44269504f)));
    h = V_MUL(h, V_SET(1.44238281f));
    s = V_ADD(e, h);
    return TENSOR__K(log_edge)(x, V_ADD(s, V_ADD(V_ADD(V_SUB(e, s), h), l)));
}

/* log10(e) = .434204102 (12 bits) + 9.03803408e-5, log10(2) = .301025391 (16 bits) + 4.60503898e-6. */
TENSOR__FN V_F TENSOR__K(log10)(V_F x) {
    V_F e, f = TENSOR__K(log_split)(x, &e), l, h = TENSOR__K(log_parts)(f, &l);
    l = V_FMA(h, V_SET(9.03803408e-5f), V_MUL(l, V_SET(0.434294482f)));
    l = V_FMA(h, V_SET(0.434204102f), V_FMA(e, V_SET(4.60503898e-6f), l));
    return TENSOR__K(log_edge)(x, V_FMA(e, V_SET(0.301025391f), l));
}

/* The exponent is that of 1 + x, but f = (2^-e - 1) + x 2^-e is formed from x itself and rounds at most
   once. */
TENSOR__FN V_F TENSOR__K(log1p)(V_F x) {
    V_I k = VI_SAR(VI_SUB(V_BITS(V_ADD(x, V_SET(1.0f))), VI_SET(0x3F3504F3)), 23), s = VI_SHL(k, 23);
    V_F one = V_OF(VI_SEL(VI_GT(k, VI_SET(64)), VI_SET(0), VI_SUB(VI_SET(0x3F800000), s)));
    V_F f = V_ADD(V_SUB(one, V_SET(1.0f)), V_OF(VI_SUB(V_BITS(x), s)));
    V_F r = TENSOR__K(log_sum)(f, V_FROM_I(k));
    r = V_SEL(V_LT(V_ABS(x), V_SET(2.98023224e-8f)), x, r);
    r = V_SEL(V_LT(x, TENSOR__INF), r, x);
    r = V_SEL(V_LT(x, V_SET(-1.0f)), TENSOR__NAN, r);
    return V_SEL(V_EQ(x, V_SET(-1.0f)), V_NEG(TENSOR__INF), r);
}

/* y = 1/(1 + e^|x|), or 1 - y.  2^-n (1 + e^|x|) = (2^-n + 1) + (r + t) cannot overflow and rounds little
   more than once; subnormal results survive, for 2^-n comes last.  2^-126 adds nothing to 1. */
TENSOR__FAR(sigmoid)(V_F x) {
    V_F n, t, r = TENSOR__K(exp_core)(V_MINR(V_SET(105.0f), V_ABS(x)), V_ZERO(), &n, &t), one = V_SET(1.0f);
    V_F p = V_LDEXP1(one, V_NEG(V_MINR(V_SET(126.0f), n))), d = V_ADD(one, p);
    d = V_ADD(d, V_ADD(r, V_ADD(t, V_SUB(p, V_SUB(d, one)))));
    d = V_LDEXP(V_DIV(one, d), V_NEG(n));
    return V_SEL(V_LT(x, V_ZERO()), d, V_SUB(one, d));
}
#if TENSOR__PASS == 3
TENSOR__INLINE V_F TENSOR__K(sigmoid)(V_F x) {
    static const float t[144] = {
        0.0f, 0.5577143f, 1.1285715f, 1.72625f, 2.2979286f, 2.8608572f, 3.4146073f, 3.9970357f, 4.559286f,
        5.131393f, 5.7055717f, 6.2879996f, 6.843393f, 7.4267855f, 8.003428f, 8.568999f, 0.5f, 0.3640765f,
        0.24442482f, 0.15106787f, 0.09129466f, 0.0541228f, 0.031842057f, 0.018038642f, 0.010361055f,
        0.0058736214f, 0.00331634f, 0.0018550263f, 0.0010653427f, 0.00059474347f, 0.00033420275f,
        0.00018986654f, -0.25f, -0.2315248f, -0.18468133f, -0.12824637f, -0.08295994f, -0.05119352f,
        -0.03082814f, -0.017713249f, -0.010253703f, -0.005839122f, -0.0033053418f, -0.0018515852f,
        -0.0010642078f, -0.00059438974f, -0.00033409105f, -0.00018983049f, 3.4980002e-10f, 0.031469665f,
        0.047199965f, 0.044749282f, 0.033906173f, 0.022826023f, 0.014432436f, 0.008537101f, 0.0050206124f,
        0.002885264f, 0.0016417092f, 0.00092235784f, 0.00053097017f, 0.00029684138f, 0.00016693387f,
        9.48792e-5f, 0.020833317f, 0.015015756f, 0.00332687f, -0.0049272864f, -0.0069446377f, -0.005911518f,
        -0.004187594f, -0.0026384774f, -0.0016038313f, -0.00093909306f, -0.0005399742f, -0.00030516894f,
        -0.0001762337f, -9.871244e-5f, -5.5571043e-5f, -3.1601994e-5f, 2.7202867e-7f, -0.004663456f,
        -0.0047836415f, -0.0020100318f, 1.2720673e-5f, 0.00073364977f, 0.00075787655f, 0.0005602498f,
        0.00036691426f, 0.0002235955f, 0.00013138742f, 7.5156546e-5f, 4.368046e-5f, 2.4559957e-5f,
        1.3855793e-5f, 7.888538e-6f, -0.0020855241f, -0.00092714967f, 0.00069096655f, 0.0009343823f,
        0.00046631848f, 9.538926e-5f, -4.987811e-5f, -7.4126954e-5f, -5.984159e-5f, -4.0308645e-5f,
        -2.4656605e-5f, -1.4584524e-5f, -8.620203e-6f, -4.846626e-6f, -2.7375074e-6f, -1.5817232e-6f,
        8.815867e-6f, 0.0005541294f, 0.0002880953f, -9.2622504e-5f, -0.00014196595f, -7.192721e-5f,
        -2.1332457e-5f, 6.9242316e-7f, 5.76499e-6f, 5.262562e-6f, 3.6244687e-6f, 2.272583e-6f, 1.4021847e-6f,
        7.994163e-7f, 4.5033693e-7f, 2.618146e-7f, 0.00019564193f, -4.8532136e-5f, -0.00013240885f,
        -5.1465297e-5f, -4.3278265e-5f, 1.0797578e-5f, 1.7232796e-5f, -1.0932921e-6f, -2.1313544e-6f,
        -5.0134776e-7f, -1.5593066e-6f, -2.4770333e-7f, 5.277396e-9f, -2.3518912e-7f, -1.8704819e-7f,
        2.0878364e-8f
    };
    V_F a = V_ABS(x), y, d;
    V_M within = V_LT(a, V_SET(8.75f));
    y = TENSOR__K(pieces)(a, 1.75f, t, &d);
    y = V_SEL(V_LT(x, V_ZERO()), y, V_SUB(V_SET(1.0f), y));
    return TENSOR__LIKELY(M_ALL(within)) ? y : V_SEL(within, y, TENSOR__K(sigmoid_far)(x));
}
#endif

#if TENSOR__PASS == 3
TENSOR__INLINE V_F TENSOR__K(tanh)(V_F x) {
    static const float t[144] = {
        0.0f, 0.5787037f, 1.1706667f, 1.7667778f, 2.371963f, 2.9593704f, 3.550889f, 4.133407f, 4.726741f,
        5.3359632f, 5.9388146f, 6.533f, 7.0965924f, 7.6913705f, 8.3111105f, 8.874075f, 0.0f, 0.5217226f,
        0.8244858f, 0.9432552f, 0.9827414f, 0.99463725f, 0.9983541f, 0.9994863f, 0.9998432f, 0.9999536f,
        0.9999861f, 0.99999577f, 0.9999986f, 0.9999996f, 0.9999999f, 0.99999994f, 1.0f, 0.72780555f,
        0.3202232f, 0.11026965f, 0.03421931f, 0.010696739f, 0.0032891363f, 0.0010270819f, 0.0003136151f,
        9.274299e-5f, 2.7775706e-5f, 8.46382e-6f, 2.7418112e-6f, 8.344884e-7f, 2.4161417e-7f, 7.8376885e-8f,
        -1.2082197e-7f, -0.3797126f, -0.2640197f, -0.10401234f, -0.033628725f, -0.010639375f, -0.0032837277f,
        -0.0010265637f, -0.00031357023f, -9.276628e-5f, -2.7787606e-5f, -8.461875e-6f, -2.7417482e-6f,
        -8.36634e-7f, -5.3508836e-7f, 3.6732697e-6f, -0.33332568f, -0.044502348f, 0.11093865f, 0.061354015f,
        0.021641923f, 0.007016747f, 0.002181937f, 0.00068367145f, 0.0002089787f, 6.181821e-5f, 1.8512872e-5f,
        5.6431095e-6f, 1.827844e-6f, 5.569074e-7f, 6.624299e-8f, -1.1600226e-6f, -0.00015996002f, 0.14978635f,
        -0.0034433757f, -0.02320787f, -0.010059503f, -0.0034325975f, -0.0010835817f, -0.00034083036f,
        -0.00010428875f, -3.009047e-5f, -8.8886745e-6f, -2.878629e-6f, -9.1566716e-7f, -2.1388468e-7f,
        8.776838e-6f, -0.00011325423f, 0.13484144f, -0.046963297f, -0.027006889f, 0.003876583f, 0.003432061f,
        0.0013129424f, 0.0004277955f, 0.00013568104f, 4.1660034e-5f, 1.2457534e-5f, 3.911122e-6f,
        1.0913668e-6f, 3.668004e-7f, 7.634083e-8f, 5.7365523e-6f, 7.293063e-5f, -0.006848661f, -0.033798352f,
        0.017174466f, 0.0018937427f, -0.0007526806f, -0.0003998689f, -0.00014110014f, -4.7562666e-5f,
        -1.5010682e-5f, -1.0241367e-5f, -4.0730056e-6f, 6.4357415e-8f, -1.0933744e-7f, -5.2929283e-7f,
        -6.846035e-5f, 0.000875019f, -0.040969346f, 0.028463127f, -0.0034736749f, -0.0017856967f,
        8.5719785e-6f, 9.177682e-5f, 3.7567697e-5f, 1.4821479e-5f, 4.714039e-6f, 7.295203e-8f, -2.0188686e-6f,
        5.286422e-7f, 2.1233088e-8f, 4.0810573e-7f, -6.52526e-5f, -0.00083418126f
    };
    V_F d;
    return V_COPYSIGN(TENSOR__K(pieces)(V_MINR(V_SET(9.1f), V_ABS(x)), 1.6875f, t, &d), x);
}
#else
/* |x| < .625: x + x^3 P(x^2), degree 11, 2^-27.8; else 1 - 2/(e^2|x| + 1), which is 1 from 9.02 on. */
TENSOR__INLINE V_F TENSOR__K(tanh)(V_F x) {
    V_F a = V_ABS(x), s = V_MUL(x, x), one = V_SET(1.0f), p = V_SET(-0.00571549917f), n, t, r;
    TENSOR__HORNER4(TENSOR__C, p, s, 0.0206491034f, -0.0537430048f, 0.133314848f, -0.333332837f);
    p = V_FMA(V_MUL(a, s), p, a);
    r = TENSOR__K(exp_core)(V_MINR(V_SET(20.0f), V_ADD(a, a)), V_ZERO(), &n, &t);
    t = V_ADD(V_LDEXP1(V_ADD(one, V_ADD(r, t)), n), one);
    t = V_SUB(one, V_DIV(V_SET(2.0f), t));
    return V_COPYSIGN(V_SEL(V_LT(a, V_SET(0.625f)), p, t), x);
}
#endif

/* erf(x) = x + x P(x^2), |x| < .92: returns x P.  Degree 13, 2^-29.9. */
TENSOR__INLINE V_F TENSOR__K(erf_core)(V_F x) {
    V_F s = V_MUL(x, x), p = V_SET(8.38126871e-5f);
    TENSOR__HORNER6(TENSOR__C, p, s, -0.000814474828f, 0.00520107616f, -0.0268592779f, 0.112836868f,
                    -0.376126319f, 0.128379166f);
    return V_MUL(x, p);
}

#if TENSOR__PASS == 3
TENSOR__INLINE V_F TENSOR__K(erf)(V_F x) {
    static const float t[144] = {
        0.0f, 0.2581967f, 0.5306721f, 0.7914918f, 1.0487541f, 1.3170491f, 1.5679836f, 1.8378524f, 2.0949016f,
        2.3663936f, 2.6217377f, 2.8886392f, 3.1415083f, 3.408754f, 3.6786885f, 3.9409838f, 0.0f, 0.28499705f,
        0.5470365f, 0.7370042f, 0.8619687f, 0.93747985f, 0.9734086f, 0.9906536f, 0.99694985f, 0.99918187f,
        0.99979085f, 0.99995595f, 0.9999911f, 0.99999857f, 0.9999998f, 1.0f, 0.12837917f, 1.0556078f,
        0.85143626f, 0.60309714f, 0.37564793f, 0.19912226f, 0.09654072f, 0.038506854f, 0.014012152f,
        0.0041733496f, 0.0011676917f, 0.00026828673f, 5.8394293e-5f, 1.014203e-5f, 1.4971388e-6f,
        2.0292204e-7f, 4.6979488e-7f, -0.27255443f, -0.45183343f, -0.47734636f, -0.39396235f, -0.2622538f,
        -0.15137428f, -0.07077003f, -0.029354101f, -0.009875774f, -0.0030613511f, -0.00077498116f,
        -0.00018342418f, -3.4568915e-5f, -2.2258288e-5f, -2.422666e-5f, -0.3761668f, -0.30496082f,
        -0.123951964f, 0.050834436f, 0.15023169f, 0.1638962f, 0.12605393f, 0.07387362f, 0.036325168f,
        0.014188946f, 0.00496152f, 0.001403003f, 0.00036471814f, 7.518333e-5f, 7.7840417e-7f, -1.5070673e-5f,
        0.0012920017f, 0.13020936f, 0.1834993f, 0.1389809f, 0.05255155f, -0.020514794f, -0.048364792f,
        -0.04427659f, -0.028261213f, -0.013498578f, -0.005487989f, -0.0017683936f, -0.0005151079f,
        -0.000117023636f, 0.002558412f, 0.003605245f, 0.09404264f, 0.07875672f, -0.0027551225f, -0.05819842f,
        -0.067245685f, -0.038692273f, -0.0074071144f, 0.010457824f, 0.012789522f, 0.008510659f, 0.004263752f,
        0.0016217894f, 0.000538306f, 0.0001365468f, 0.0037833846f, 0.0052567087f, 0.12641539f, -0.04064256f,
        -0.04839248f, -0.020835197f, 0.009005178f, 0.022469174f, 0.01666157f, 0.0047605922f, -0.0014762317f,
        -0.003017364f, -0.0020880608f, -0.0010801837f, -0.00029305735f, -0.000109437744f, -0.101818986f,
        -0.14236486f, -0.3461949f, -0.037987404f, 0.036354274f, -0.012235504f, 0.017244056f, 0.011753886f,
        -0.0077905776f, -0.007207036f, -0.00220632f, 0.00037077343f, 0.00058953714f, 0.00052919844f,
        -1.6682052e-5f, 8.2866296e-5f, -0.21922176f, -0.3066309f
    };
    V_F a = V_MINR(V_SET(3.93f), V_ABS(x)), d, y = TENSOR__K(pieces)(a, 3.8125f, t, &d);
    return V_COPYSIGN(V_ADD(y, V_SEL(V_EQ(a, d), a, V_ZERO())), x);
}
#else
/* From .92 to 4, where erf is 1: 1 - e^(t P(t)), degree 6, 2^-28.3 of erf.  erfc < .2 forgives the
   rounding. */
TENSOR__INLINE V_F TENSOR__K(erf)(V_F x) {
    V_F a = V_ABS(x), t = V_MINR(V_SET(4.0f), a), p = V_SET(0.000213985477f), n, r;
    TENSOR__HORNER5(TENSOR__C, p, t, -0.00321497209f, 0.0228900481f, -0.105262011f, -0.635718167f,
                    -1.12851441f);
    r = TENSOR__K(exp_core)(V_MUL(p, t), V_ZERO(), &n, &t);
    t = V_SUB(V_SET(1.0f), V_LDEXP1(V_ADD(V_SET(1.0f), V_ADD(r, t)), n));
    return V_COPYSIGN(V_SEL(V_LT(a, V_SET(0.92f)), V_ADD(a, TENSOR__K(erf_core)(a)), t), x);
}
#endif

/* p - a b for p = a b, or nearly: exact. */
TENSOR__INLINE V_F TENSOR__K(rest)(V_F a, V_F b, V_F p) {
#if TENSOR__PASS >= 2 && TENSOR__PASS <= 4
    return V_FNMA(a, b, p);
#else
    V_F g = V_OF(VI_AND(V_BITS(a), VI_SET(-0x1000))), h = V_OF(VI_AND(V_BITS(b), VI_SET(-0x1000)));
    V_F k = V_SUB(a, g), l = V_SUB(b, h);
    return V_SUB(V_SUB(V_SUB(V_SUB(p, V_MUL(g, h)), V_MUL(g, l)), V_MUL(k, h)), V_MUL(k, l));
#endif
}

/* e^(z^2) erfc z = d P(q), d = 1/(z + 3), q = (z - 3) d, 0 <= z <= 10.3, degree 9, 2^-27: returns
   (P(q) - P(0))/q.  The caller adds the last step, in the precision it can afford. */
#define TENSOR__ERFCX_0 1.07400692f
TENSOR__INLINE V_F TENSOR__K(erfcx_core)(V_F q) {
    V_F p = V_SET(-0.000315149344f);
    TENSOR__HORNER8(TENSOR__C, p, q, -0.000470321713f, 0.00307131954f, -0.00123989f, -0.0268374793f,
                    0.11953342f, -0.31046623f, 0.590227842f, -0.88339448f);
    return p;
}

/* |x| < 1/2 through erf; else e^-(x^2) with the square's rounding error carried, scaled last.  Division,
   last step and product in double: float loses 5 ulp to d and q. */
TENSOR__FN TENSOR__NOINLINE V_F TENSOR__K(erfc_far)(V_F x) {
    V_F a = V_MINR(V_SET(10.25f), V_ABS(x)), s = V_MUL(a, a), n, r, t, h = V_SET(0.5f);
    V_D ad = D_OF_F(a), d = D_DIV(D_SET(1.0), D_ADD(ad, D_SET(3.0))), q = D_MUL(D_SUB(ad, D_SET(3.0)), d);
    d = D_MUL(d, D_FMA(q, D_OF_F(TENSOR__K(erfcx_core)(F_OF_D(q))), D_SET(TENSOR__ERFCX_0)));
    r = TENSOR__K(exp_core)(V_NEG(s), TENSOR__K(rest)(a, a, s), &n, &t);
    r = V_LDEXP(F_OF_D(D_FMA(D_ADD(D_OF_F(r), D_OF_F(t)), d, d)), n);
    r = V_SEL(V_LT(x, V_ZERO()), V_SUB(V_SET(2.0f), r), r);
    t = V_SUB(h, V_ADD(V_SUB(x, h), TENSOR__K(erf_core)(x)));
    return V_SEL(V_LT(a, h), t, r);
}
TENSOR__INLINE V_F TENSOR__K(erfc)(V_F x) {
#if TENSOR__PASS == 3
    static const float t[144] = {
        0.0f, 0.22063889f, 0.44370833f, 0.66530555f, 0.8845f, 1.1151251f, 1.3360695f, 1.5568889f, 1.7741112f,
        2.0051806f, 2.2272084f, 2.4405556f, 2.6669307f, 2.8861666f, 3.1069584f, 3.337486f, 1.0f, 0.75501734f,
        0.5303326f, 0.34676424f, 0.2109812f, 0.11478978f, 0.05882653f, 0.027681315f, 0.012108306f,
        0.0045717703f, 0.0016341119f, 0.00055754837f, 0.00016219793f, 4.4715965e-5f, 1.1133367e-5f,
        2.3593973e-6f, -1.1283792f, -1.0747635f, -0.9267283f, -0.72480744f, -0.5160467f, -0.325393f,
        -0.18932326f, -0.09994643f, -0.048475917f, -0.02024258f, -0.007909625f, -0.0029218765f,
        -0.0009194481f, -0.0002721451f, -7.246491e-5f, -1.6403255e-5f, 1.001086e-5f, 0.23713458f, 0.41119704f,
        0.4822184f, 0.45644337f, 0.3628539f, 0.25294903f, 0.1556055f, 0.086001664f, 0.040590025f,
        0.017616382f, 0.007131002f, 0.0024521044f, 0.0007854561f, 0.00022514546f, 5.4745655e-5f, 0.3755532f,
        0.3233432f, 0.1872758f, 0.027714761f, -0.09711959f, -0.16127943f, -0.16219373f, -0.12819096f,
        -0.08555933f, -0.04751291f, -0.023520434f, -0.0106283985f, -0.0040532323f, -0.001420586f,
        -0.0004421879f, -0.00011634068f, 0.015152801f, -0.11469384f, -0.17860475f, -0.16995624f,
        -0.109214716f, -0.031039769f, 0.024033276f, 0.047920376f, 0.047229335f, 0.034106683f, 0.020320684f,
        0.010592592f, 0.004587458f, 0.0017881822f, 0.00061187247f, 0.0001758841f, -0.31591666f, -0.08232441f,
        -0.024596533f, 0.037806332f, 0.06583759f, 0.06097353f, 0.03526059f, 0.008534043f, -0.0078089037f,
        -0.013068881f, -0.01103596f, -0.007158004f, -0.0036796404f, -0.0016387774f, -0.0006281476f,
        -0.00019992574f, 1.3414359f, 0.035006315f, 0.050605092f, 0.036703642f, 0.01083962f, -0.0136272125f,
        -0.022003816f, -0.017148295f, -0.008030091f, -0.00042249894f, 0.0027386534f, 0.0029939061f,
        0.0020489895f, 0.0011028522f, 0.00048922456f, 0.00017696286f, -3.4427736f, -0.17727117f, 0.004497638f,
        -0.053946123f, 0.056749515f, 0.047361445f, 0.025171166f, 0.009028015f, 0.0044370927f, 0.001866046f,
        0.00038700888f, -0.00018427985f, -0.00061032537f, -0.0004943174f, -0.00026531794f, -0.000119896315f
    };
    V_F a = V_ABS(x), y, d;
    V_M within = V_LT(a, V_SET(3.4375f));
    y = TENSOR__K(pieces)(a, 4.5f, t, &d);
    y = V_SEL(V_LT(x, V_ZERO()), V_SUB(V_SET(2.0f), y), y);
    return TENSOR__LIKELY(M_ALL(within)) ? y : V_SEL(within, y, TENSOR__K(erfc_far)(x));
#else
    return TENSOR__K(erfc_far)(x);
#endif
}

/* g = |x| erfc(|x|/sqrt 2)/2, then -g or x - g: nothing cancels.  -inf gives -0, torch NaN.  z and w = z + 3
   round, by up to an ulp of the result each: what they lost enters the exponent, times (log erfcx)' =
   -.282 (1-q)^2 or nearly. */
TENSOR__FAR(gelu)(V_F x) {
    V_F a = V_MINR(V_SET(14.5f), V_ABS(x)), s = V_MUL(a, a), h = V_SET(-0.5f), c = V_SET(3.0f);
    V_F z = V_MUL(a, V_SET(0.707106781f)), w = V_ADD(z, c), q = V_DIV(V_SUB(w, V_SET(6.0f)), w);
    V_F one = V_SET(1.0f), u, g, l, n, r, t;
    g = V_MUL(V_DIV(a, w), V_FMA(q, TENSOR__K(erfcx_core)(q), V_SET(TENSOR__ERFCX_0)));
    u = V_SUB(one, q);
    l = F_OF_D(D_SUB(D_MUL(D_OF_F(a), D_SET(0.70710678118654752)), D_OF_F(z)));
    l = V_MUL(V_ADD(V_SUB(z, V_SUB(w, c)), l), V_MUL(V_MUL(u, u), V_SET(-0.282f)));
    l = V_FNMA(TENSOR__K(rest)(a, a, s), h, l);
    r = TENSOR__K(exp_core)(V_MUL(s, h), l, &n, &t);
    g = V_FMA(V_ADD(r, t), g, g);
    return V_SUB(V_MAXR(V_SET(-0.0f), x), V_LDEXP(g, V_SUB(n, one)));
}
#if TENSOR__PASS == 3
TENSOR__INLINE V_F TENSOR__K(gelu)(V_F x) {
    static const float t[144] = {
        0.0f, 0.30376923f, 0.6141154f, 0.92259616f, 1.2369808f, 1.5326154f, 1.845f, 2.1579232f, 2.4677885f,
        2.7621925f, 3.0825193f, 3.3792884f, 3.6859615f, 3.9943461f, 4.3067884f, 4.609519f, 0.0f, 0.11563032f,
        0.1655468f, 0.16432254f, 0.1336522f, 0.09607249f, 0.059997126f, 0.033376385f, 0.01677487f,
        0.007929511f, 0.0031635344f, 0.0012279273f, 0.00041990622f, 0.00012956267f, 3.566923e-5f,
        9.302047e-6f, 0.5f, 0.2649297f, 0.06667719f, -0.062377f, -0.12157377f, -0.12623729f, -0.101674825f,
        -0.06843487f, -0.040061753f, -0.0214174f, -0.00960288f, -0.004103496f, -0.0015351176f, -0.0005143461f,
        -0.00015290265f, -4.2721764e-5f, -0.3989423f, -0.36337772f, -0.26808175f, -0.14972644f, -0.04361179f,
        0.021504745f, 0.051059935f, 0.051645998f, 0.03883103f, 0.024751183f, 0.012934092f, 0.0062255766f,
        0.002591762f, 0.0009551304f, 0.00030966857f, 9.340847e-5f, 1.0247333e-6f, 0.07537185f, 0.12250936f,
        0.12620807f, 0.094523236f, 0.051988948f, 0.013328906f, -0.009181498f, -0.016322846f, -0.014693355f,
        -0.0097467685f, -0.005523688f, -0.0026347074f, -0.0010894507f, -0.00039082975f, -0.00012860878f,
        0.066460006f, 0.053381413f, 0.020676335f, -0.013399794f, -0.03379779f, -0.035568703f, -0.024973804f,
        -0.011198725f, -0.0012197694f, 0.0032261424f, 0.0039902963f, 0.0029999546f, 0.0017426348f,
        0.0008377289f, 0.00034026633f, 0.00012404316f, 0.00039631972f, -0.01665232f, -0.023724578f,
        -0.018795382f, -0.0067687966f, 0.0035875393f, 0.008818179f, 0.008017327f, 0.004677085f, 0.0015759922f,
        -0.0003367495f, -0.0008501725f, -0.0007295393f, -0.00044192577f, -0.00021230987f, -8.794027e-5f,
        -0.012353013f, -0.007333046f, -0.0003496826f, 0.005203064f, 0.006757947f, 0.0045539974f,
        0.00096360245f, -0.0013936148f, -0.00198237f, -0.0014313528f, -0.00057567866f, -6.0041286e-5f,
        0.00014128702f, 0.00014838067f, 9.399999e-5f, 4.6504745e-5f, 0.0055504423f, 0.008386241f,
        0.004602809f, 0.0025624344f, 0.0009128122f, -0.00018804638f, -0.0021769365f, 0.0005428581f,
        -0.00062234997f, 0.000107599146f, 0.0004020019f, 0.00019496797f, 2.0551588e-5f, -2.4667905e-5f,
        -2.4994384e-5f, -1.6546684e-5f
    };
    V_F a = V_ABS(x), y, d;
    V_M within = V_LT(a, V_SET(4.75f));
    y = V_SUB(V_MAXR(V_SET(-0.0f), x), TENSOR__K(pieces)(a, 3.25f, t, &d));
    return TENSOR__LIKELY(M_ALL(within)) ? y : V_SEL(within, y, TENSOR__K(gelu_far)(x));
}
#endif

/* x = q pi/2 + h + l, |h| <= .79.  Below 2^17 in double: q has 17 bits, pi/2's first part 36, their
   product is exact; beyond per lane by Payne-Hanek. */
TENSOR__INLINE V_I TENSOR__K(trig_reduce)(V_F x, V_F *h, V_F *l) {
    V_F n = V_RINT(V_MUL(x, V_SET(0.636619772f))), big = V_SET(131072.0f);
    V_I q = VI_RINT(n);
    V_D nd = D_OF_F(n), r = D_FMA(nd, D_SET(-1.5707963267923333), D_OF_F(x));
    r = D_FMA(nd, D_SET(-2.563344151594519e-12), r);
    *h = F_OF_D(r);
    *l = F_OF_D(D_SUB(r, D_OF_F(*h)));
    if (M_ANY(M_AND(V_GE(V_ABS(x), big), V_LT(V_ABS(x), TENSOR__INF)))) {
        float xs[V_N], hs[V_N], ls[V_N];
        int32_t qs[V_N];
        int i;
        V_STORE(xs, x); V_STORE(hs, *h); V_STORE(ls, *l); VI_STORE(qs, q);
        for (i = 0; i < V_N; i++) {
            uint32_t u = tensor__bits_from_f32(xs[i]) & 0x7FFFFFFFu;
            if (u >= 0x48000000u && u < 0x7F800000u) {
                double d = tensor__trig_big(xs[i], &qs[i]);
                hs[i] = (float)d;
                ls[i] = (float)(d - (double)hs[i]);
            }
        }
        *h = V_LOAD(hs); *l = V_LOAD(ls); q = VI_LOAD(qs);
    }
    return q;
}

/* sin: h + h^3 P(h^2), degree 7, 2^-27.9; cos: 1 - h^2/2 + h^4 Q(h^2), degree 8, 2^-33; |h| <= .79.  q counts
   quadrants: odd ones swap, bit 1 negates. */
TENSOR__INLINE V_F TENSOR__K(sincos)(V_I q, V_F h, V_F l) {
    V_F s = V_MUL(h, h), half = V_SET(0.5f), p = V_SET(-0.000195168323f), c = V_SET(2.44306702e-5f), t;
    TENSOR__HORNER2(TENSOR__C, p, s, 0.00833218265f, -0.166666552f);
    t = V_FNMA(V_MUL(s, l), half, l);
    p = V_ADD(h, V_FMA(V_MUL(h, s), p, t));
    TENSOR__HORNER2(TENSOR__C, c, s, -0.00138873013f, 0.0416666456f);
    c = V_FNMA(V_MUL(s, s), c, V_MUL(h, l));
    c = V_SUB(V_SET(1.0f), V_FMA(s, half, c));
    p = V_SEL(VI_EQ(VI_AND(q, VI_SET(1)), VI_SET(0)), p, c);
    return V_OF(VI_XOR(V_BITS(p), VI_SHL(VI_AND(q, VI_SET(2)), 30)));
}

TENSOR__FN V_F TENSOR__K(sin)(V_F x) {
    V_F h, l;
    V_I q = TENSOR__K(trig_reduce)(x, &h, &l);
    return V_SEL(V_EQ(x, V_ZERO()), x, TENSOR__K(sincos)(q, h, l));
}

TENSOR__FN V_F TENSOR__K(cos)(V_F x) {
    V_F h, l;
    V_I q = TENSOR__K(trig_reduce)(x, &h, &l);
    return TENSOR__K(sincos)(VI_ADD(q, VI_SET(1)), h, l);
}

/* h + h^3 P(h^2), |h| <= .79, degree 17, 2^-32.9; -1/tan in odd quadrants, divided in double. */
TENSOR__FN V_F TENSOR__K(tan)(V_F x) {
    V_F h, l, s, r, p = V_SET(0.00211561657f);
    V_I q = TENSOR__K(trig_reduce)(x, &h, &l);
    V_M odd = VI_EQ(VI_AND(q, VI_SET(1)), VI_SET(1));
    s = V_MUL(h, h);
    TENSOR__HORNER7(TENSOR__C, p, s, -0.000771383871f, 0.00515999505f, 0.0082489932f, 0.0220069196f,
                    0.0539514273f, 0.133334324f, 0.333333313f);
    p = V_FMA(V_MUL(h, s), p, V_FMA(s, l, l));
    r = F_OF_D(D_DIV(D_SET(-1.0), D_ADD(D_OF_F(h), D_OF_F(p))));
    p = V_SEL(odd, r, V_ADD(h, p));
    return V_SEL(V_EQ(x, V_ZERO()), x, p);
}

/* The angle of (|x|, |y|), in the left half-plane where neg: z = min/max, z + z^3 P(z^2), |z| <= 1, degree
   19, 2^-28.7, then (0, pi/2 or pi) +- that, each with its rest. */
TENSOR__INLINE V_F TENSOR__K(atan_core)(V_F y, V_F x, V_M neg) {
    V_M steep = V_GT(y, x);
    V_F lo = V_SEL(steep, x, y), hi = V_SEL(steep, y, x);
    V_F z = V_DIV(lo, hi), s, p = V_SET(-0.00182261865f), b, c;
    z = V_SEL(V_EQ(lo, V_ZERO()), V_ZERO(), V_SEL(V_EQ(lo, TENSOR__INF), V_SET(1.0f), z));
    s = V_MUL(z, z);
    TENSOR__HORNER8(TENSOR__C, p, s, 0.0110442899f, -0.0314190388f, 0.0581987798f, -0.0841743946f,
                    0.109569125f, -0.142651245f, 0.199986279f, -0.333333015f);
    p = V_FMA(V_MUL(z, s), p, z);
    b = V_SEL(steep, V_SET(1.57079637f), V_SEL(neg, V_SET(3.14159274f), V_ZERO()));
    c = V_SEL(steep, V_SET(-4.37113883e-8f), V_SEL(neg, V_SET(-8.74227766e-8f), V_ZERO()));
    return V_ADD(b, V_ADD(V_SEL(M_XOR(steep, neg), V_NEG(p), p), c));
}

TENSOR__FN V_F TENSOR__K(atan)(V_F x) {
    V_F one = V_SET(1.0f);
    return V_COPYSIGN(TENSOR__K(atan_core)(V_ABS(x), one, V_LT(one, V_ZERO())), x);
}

/* The sign bit of x counts, so atan2(0, -0) is pi. */
TENSOR__FN V_F TENSOR__K(atan2)(V_F y, V_F x) {
    V_F r = TENSOR__K(atan_core)(V_ABS(y), V_ABS(x), VI_GT(VI_SET(0), V_BITS(x)));
    return V_SEL(M_OR(V_ISNAN(x), V_ISNAN(y)), V_ADD(x, y), V_COPYSIGN(r, y));
}

/* asin z = z + z P(s), s = z^2 <= 1/4: returns P, of z = a, or of sqrt((1-a)/2) = r + c with r of 12 bits
   where big.  Degree 11, 2^-27.6. */
TENSOR__INLINE V_F TENSOR__K(asin_root)(V_F a, V_M big, V_F *root, V_F *head, V_F *rest) {
    V_F half = V_SET(0.5f), s = V_SEL(big, V_FNMA(a, half, half), V_MUL(a, a)), z = V_SQRT(s);
    V_F p = V_SET(0.0422117822f), r = V_OF(VI_AND(V_BITS(z), VI_SET(-0x1000)));
    TENSOR__HORNER4(TENSOR__C, p, s, 0.0241520964f, 0.0454760417f, 0.0749525204f, 0.166667536f);
    *rest = V_SEL(V_GT(z, V_ZERO()), V_DIV(V_FNMA(r, r, s), V_ADD(z, r)), s);
    *root = z;
    *head = r;
    return V_MUL(p, s);
}

/* Above 1/2: pi/2 - 2 asin(sqrt((1-|x|)/2)), the root as r + c with r of 12 bits, so that r^2 and 2r are
   exact. */
TENSOR__FN V_F TENSOR__K(asin)(V_F x) {
    V_F a = V_ABS(x), z, r, c, p, t;
    V_M big = V_GE(a, V_SET(0.5f));
    p = TENSOR__K(asin_root)(a, big, &z, &r, &c);
    t = V_FNMA(V_SET(2.0f), c, V_SET(-4.37113883e-8f));
    t = V_SUB(V_MUL(V_ADD(z, z), p), t);
    t = V_SUB(V_SUB(t, V_FNMA(V_SET(2.0f), r, V_SET(0.785398185f))), V_SET(0.785398185f));
    t = V_SEL(big, V_NEG(t), V_FMA(a, p, a));
    return V_COPYSIGN(t, x);
}

/* pi/2 - asin, or 2 asin(sqrt((1-x)/2)) for x > 1/2 with the root's rest, or pi minus that of -x. */
TENSOR__FN V_F TENSOR__K(acos)(V_F x) {
    V_F a = V_ABS(x), lo = V_SET(-4.37113883e-8f), hi = V_SET(1.57079637f), z, r, c, p, t, w;
    V_M big = V_GE(a, V_SET(0.5f));
    p = TENSOR__K(asin_root)(a, big, &z, &r, &c);
    t = V_ADD(r, V_FMA(z, p, c));
    w = V_SUB(hi, V_ADD(z, V_SUB(V_MUL(z, p), lo)));
    t = V_SEL(V_LT(x, V_ZERO()), w, t);
    return V_SEL(big, V_ADD(t, t), V_SUB(hi, V_SUB(x, V_FNMA(x, p, lo))));
}

/* h + *l = e^|x| / 4 beyond float's precision, *q = e^-|x| / 4: a quarter, for h may reach 2^128 at half
   scale where h + *l does not. */
TENSOR__INLINE V_F TENSOR__K(quarter_exp)(V_F x, V_F *l, V_F *q) {
    V_F one = V_SET(1.0f), n, t, r, s, h;
    r = TENSOR__K(exp_core)(V_MINR(V_SET(92.0f), V_ABS(x)), V_ZERO(), &n, &t);
    n = V_SUB(n, V_SET(2.0f));
    s = V_ADD(one, r);
    h = V_LDEXP(s, n);
    *l = V_LDEXP(V_ADD(V_SUB(r, V_SUB(s, one)), t), n);
    *q = V_DIV(V_SET(0.0625f), V_ADD(h, *l));
    return h;
}

/* |x| < 1: x + x^3 P(x^2), degree 9, 2^-31.5. */
TENSOR__FN V_F TENSOR__K(sinh)(V_F x) {
    V_F l, q, h = TENSOR__K(quarter_exp)(x, &l, &q), s = V_MUL(x, x), p = V_SET(2.78392554e-6f);
    TENSOR__HORNER3(TENSOR__C, p, s, 0.000198426351f, 0.00833331142f, 0.166666672f);
    p = V_FMA(V_MUL(x, s), p, x);
    h = V_ADD(h, V_SUB(l, q));
    h = V_COPYSIGN(V_ADD(h, h), x);
    return V_SEL(V_LT(V_ABS(x), V_SET(1.0f)), p, h);
}

TENSOR__FN V_F TENSOR__K(cosh)(V_F x) {
    V_F l, q, h = TENSOR__K(quarter_exp)(x, &l, &q);
    h = V_ADD(h, V_ADD(l, q));
    return V_ADD(h, h);
}

/* a^b = 2^(b log2|a|), the logarithm to 2^-36: s + l = f/(2+f), |s| <= .1716, s P(s^2), degree 9, 2^-37.5;
   w carries what the last two steps and the products round off.  IEEE 754 cases as C99 F.9.4.4. */
TENSOR__FN V_F TENSOR__K(pow_any)(V_F a, V_F b) {
    V_F x = V_ABS(a), one = V_SET(1.0f), two = V_SET(2.0f), zero = V_ZERO(), inf = TENSOR__INF, e, w, u, v,
        t, r;
    V_F f = TENSOR__K(log_split)(x, &e), c0 = V_SET(2.88539f), c1 = V_SET(0.9617967f), d = V_ADD(f, two);
    V_F q = V_DIV(one, d), s = V_MUL(f, q), l = V_SUB(f, V_SUB(d, two));
    V_M whole, odd, edge;
    l = V_MUL(q, V_FNMA(s, l, TENSOR__K(rest)(s, d, f)));
    u = V_MUL(s, s);
    t = V_FNMA(V_ADD(s, s), l, TENSOR__K(rest)(s, s, u));
    w = V_MUL(V_FMA(V_FMA(V_SET(0.340239f), u, V_SET(0.41170532f)), u, V_SET(0.5770829f)), u);
    q = V_ADD(c1, w);
    w = V_ADD(V_SUB(V_SUB(q, c1), w), V_SET(2.1944713e-8f));
    v = V_MUL(u, q);
    w = V_FMA(u, w, V_FMA(t, q, TENSOR__K(rest)(u, q, v)));
    q = V_ADD(c0, v);
    w = V_ADD(V_SUB(V_SUB(q, c0), v), V_SUB(w, V_SET(3.851926e-8f)));
    v = V_MUL(s, q);
    w = V_FMA(s, w, V_FNMA(l, q, TENSOR__K(rest)(s, q, v)));
    q = V_ADD(e, v);
    w = V_ADD(w, V_SUB(V_SUB(q, e), v));
    v = V_MUL(b, q);
    t = V_MINR(V_SET(129.0f), V_MAXR(V_SET(-152.0f), v));
    r = TENSOR__K(exp2_sum)(t, V_SEL(V_EQ(t, v), V_FMA(b, w, TENSOR__K(rest)(b, q, v)), zero));
    if (TENSOR__LIKELY(M_ALL(M_AND(M_AND(V_GT(a, zero), V_LT(a, inf)), V_LT(V_ABS(b), inf))))) { return r; }
    /* |a| = 0 or inf: 0 or inf, by the sign of b */
    edge = V_EQ(x, inf);
    r = V_SEL(M_OR(edge, V_EQ(x, zero)), V_SEL(M_XOR(edge, V_LT(b, zero)), inf, zero), r);
    r = V_SEL(M_AND(V_EQ(x, one), V_EQ(V_ABS(b), inf)), one, r);
    /* a < 0: b odd negates, b fractional has no result unless |a| is 0 or inf */
    whole = V_EQ(V_TRUNC(b), b);
    t = V_MUL(b, V_SET(0.5f));
    odd = M_AND(whole, V_NE(V_TRUNC(t), t));
    r = V_SEL(odd, V_COPYSIGN(r, a), r);
    r = V_SEL(M_AND(M_AND(V_LT(a, zero), M_NOT(whole)), M_NOT(edge)), TENSOR__NAN, r);
    r = V_SEL(M_OR(V_ISNAN(a), V_ISNAN(b)), V_ADD(a, b), r);
    return V_SEL(M_OR(V_EQ(a, one), V_EQ(b, zero)), one, r);
}

/* The exponents in use, 1, 2, 3, -1, -2, 1/2 and -1/2, are products, quotients and roots, below 1.5 ulp. */
TENSOR__INLINE V_F TENSOR__K(pow)(V_F a, V_F b) {
    V_F h = V_ABS(b), r = a, s;
    V_M whole = V_EQ(h, V_SET(1.0f)), cube = V_EQ(b, V_SET(3.0f)), root = V_EQ(h, V_SET(0.5f));
    V_M known = M_OR(M_OR(whole, V_EQ(h, V_SET(2.0f))), M_OR(cube, root)), under = V_LT(b, V_ZERO());
    if (!M_ANY(known)) { return TENSOR__K(pow_any)(a, b); }
    if (M_ANY(under)) { r = V_SEL(under, V_DIV(V_SET(1.0f), a), a); }
    s = V_MUL(r, r);
    s = V_SEL(whole, r, V_SEL(cube, V_MUL(s, r), s));
    if (M_ANY(root)) {      /* of -0 it is 0, of -inf inf */
        r = V_SEL(V_EQ(r, V_NEG(TENSOR__INF)), TENSOR__INF, V_ADD(r, V_ZERO()));
        s = V_SEL(root, V_SQRT(r), s);
    }
    return M_ALL(known) ? s : V_SEL(known, s, TENSOR__K(pow_any)(a, b));
}

#define V_EXP(x) TENSOR__K(exp)(x)
#define V_LOG(x) TENSOR__K(log)(x)
#define V_LOG1P(x) TENSOR__K(log1p)(x)
#define V_TANH(x) TENSOR__K(tanh)(x)
#define V_SIGMOID(x) TENSOR__K(sigmoid)(x)
#endif   // !TENSOR__PASS_CLOSE

#if !defined(TENSOR__PASS_OPEN) && !defined(TENSOR__PASS_CLOSE) && !defined(TENSOR__PASS_WORDS)

// ------------------------------------------------------------------------------
// >>kernel-pointwise                               MARK: pointwise bodies
//
// One loop per formula: contiguous, n a multiple of V_N. Strides, conversion and tails are the iterator's,
// so a result does not depend on an element's position. in: A, B, C, Y, G (those the formula reads); out:
// result, or gradients (NULL = not wanted). Rejected: a loop per stride pattern and dtype (code size, and
// tails with other roundings).
// ------------------------------------------------------------------------------

#define F_A V_LOAD((const float *)in[0] + i)
#define F_B V_LOAD((const float *)in[1] + i)
#define F_C_ V_LOAD((const float *)in[2] + i)
#define F_Y V_LOAD((const float *)in[3] + i)
#define F_G V_LOAD((const float *)in[4] + i)
#define F_P(k) V_SET((float)p[k])
#define F_C(x) V_SET((float)(x))
#define F_INF V_SET((float)INFINITY)
#define F_ADD V_ADD
#define F_SUB V_SUB
#define F_MUL V_MUL
#define F_DIV V_DIV
#define F_NEG V_NEG
#define F_ABS V_ABS
#define F_SQRT V_SQRT
/* 1/sqrt of a rounded root: below 1.5 ulp, and right at 0, inf and for subnormals, unlike rsqrtps. */
#define F_RSQRT(a) V_DIV(V_SET(1.0f), V_SQRT(a))
#define F_MIN V_MIN
#define F_MAX V_MAX
#define F_FLOOR V_FLOOR
#define F_CEIL V_CEIL
#define F_TRUNC V_TRUNC
#define F_ROUND V_RINT
#define F_POW TENSOR__K(pow)
#define F_ATAN2 TENSOR__K(atan2)
#define F_EXP V_EXP
#define F_EXP2 TENSOR__K(exp2)
#define F_EXPM1 TENSOR__K(expm1)
#define F_LOG V_LOG
#define F_LOG2 TENSOR__K(log2)
#define F_LOG10 TENSOR__K(log10)
#define F_LOG1P V_LOG1P
#define F_SIN TENSOR__K(sin)
#define F_COS TENSOR__K(cos)
#define F_TAN TENSOR__K(tan)
#define F_ASIN TENSOR__K(asin)
#define F_ACOS TENSOR__K(acos)
#define F_ATAN TENSOR__K(atan)
#define F_SINH TENSOR__K(sinh)
#define F_COSH TENSOR__K(cosh)
#define F_TANH V_TANH
#define F_SIGMOID V_SIGMOID
#define F_ERF TENSOR__K(erf)
#define F_ERFC TENSOR__K(erfc)
#define F_GELU TENSOR__K(gelu)
#define F_LT V_LT
#define F_LE V_LE
#define F_GT V_GT
#define F_GE V_GE
#define F_EQ V_EQ
#define F_NE V_NE
#define F_ISNAN V_ISNAN
#define F_AND M_AND
#define F_OR M_OR
#define F_XOR M_XOR
#define F_SEL V_SEL
#define F_SIGN TENSOR__K(sign)
#define F_FMOD TENSOR__K(fmod)
#define F_REMAINDER TENSOR__K(remainder)
#define F_FLOORDIV TENSOR__K(floordiv)

// NaN stays NaN, -0 gives -0.
TENSOR__FN V_F TENSOR__K(sign)(V_F x) {
    V_F one = V_COPYSIGN(V_SET(1.0f), x);
    return V_SEL(M_OR(V_GT(x, V_ZERO()), V_LT(x, V_ZERO())), one, x);
}

// Exact remainders need more than float quotients: through double, lane by lane (these three are rare in
// networks).
TENSOR__FN V_F TENSOR__K(lanes2)(double (*f)(double, double), V_F a, V_F b) {
    float u[V_N], v[V_N];
    V_STORE(u, a);
    V_STORE(v, b);
    for (int k = 0; k < V_N; k++) { u[k] = (float)f((double)u[k], (double)v[k]); }
    return V_LOAD(u);
}
TENSOR__FN V_F TENSOR__K(fmod)(V_F a, V_F b) { return TENSOR__K(lanes2)(fmod, a, b); }
TENSOR__FN V_F TENSOR__K(remainder)(V_F a, V_F b) { return TENSOR__K(lanes2)(tensor__remainder_f64, a, b); }
TENSOR__FN V_F TENSOR__K(floordiv)(V_F a, V_F b) { return TENSOR__K(lanes2)(tensor__floordiv_f64, a, b); }

#define TENSOR__FORWARD(name, f)                                                                             \
    TENSOR__FN void TENSOR__K(f_##name)(const void *const *in, void *const *out, const double *p,            \
                                        int64_t n) {                                                         \
        (void)in, (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i += V_N) {                                                               \
            V_AHEAD((const float *)in[0] + i, 128);                                                          \
            V_AHEAD((const float *)out[0] + i, 128);                                                         \
            V_STORE((float *)out[0] + i, f);                                                                 \
        }                                                                                                    \
    }
#define TENSOR__BACKWARD_HEAD(name)                                                                          \
    TENSOR__FN void TENSOR__K(b_##name)(const void *const *in, void *const *out, const double *p,            \
                                        int64_t n) {                                                         \
        (void)in, (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i += V_N)
#define TENSOR__X(ID, name, kind, f, dA, saves, lo, hi, doc)                                                 \
    TENSOR__FORWARD(name, f)                                                                                 \
    TENSOR__BACKWARD_HEAD(name) {                                                                            \
            V_AHEAD((const float *)in[4] + i, 128);                                                          \
            V_AHEAD((const float *)out[0] + i, 128);                                                         \
            V_STORE((float *)out[0] + i, dA);                                                                \
        } }
TENSOR_OPS_UNARY(TENSOR__X)
TENSOR_OPS_COPY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, saves, lo, hi, doc)                                             \
    TENSOR__FORWARD(name, f)                                                                                 \
    TENSOR__BACKWARD_HEAD(name) {                                                                            \
            if (out[0]) { V_STORE((float *)out[0] + i, dA); }                                                \
            if (out[1]) { V_STORE((float *)out[1] + i, dB); }                                                \
        } }
TENSOR_OPS_BINARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, dC, saves, lo, hi, doc)                                         \
    TENSOR__FORWARD(name, f)                                                                                 \
    TENSOR__BACKWARD_HEAD(name) {                                                                            \
            if (out[0]) { V_STORE((float *)out[0] + i, dA); }                                                \
            if (out[1]) { V_STORE((float *)out[1] + i, dB); }                                                \
            if (out[2]) { V_STORE((float *)out[2] + i, dC); }                                                \
        } }
TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, nin, kind, f, doc) TENSOR__FORWARD(name, V_SEL(f, V_SET(1.0f), V_ZERO()))
TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X

static const tensor__body_t TENSOR__K(forward)[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, ...) TENSOR__K(f_##name),
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X
};
static const tensor__body_t TENSOR__K(backward)[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, ...) TENSOR__K(b_##name),
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
};
#undef TENSOR__FORWARD
#undef TENSOR__BACKWARD_HEAD

// ------------------------------------------------------------------------------
// >>kernel-reduce                                  MARK: leaves of reductions
//
// Four vectors of lanes over at most a leaf, folded in a fixed tree. Tails go through a padded vector.
// Rejected: one running sum (slow, and its error grows with n), lanes by the width of the ISA alone.
// ------------------------------------------------------------------------------

#define TENSOR__REDUCE_LEAF(name, init, step, fold)                                                          \
    TENSOR__FN float TENSOR__K(name)(const float *x, int64_t n) {                                            \
        V_F a = V_SET(init), b = a, c = a, d = a;                                                            \
        int64_t i = 0;                                                                                       \
        for (; i + 4 * V_N <= n; i += 4 * V_N) {                                                             \
            a = step(a, V_LOAD(x + i));                                                                      \
            b = step(b, V_LOAD(x + i + V_N));                                                                \
            c = step(c, V_LOAD(x + i + 2 * V_N));                                                            \
            d = step(d, V_LOAD(x + i + 3 * V_N));                                                            \
        }                                                                                                    \
        TENSOR__WHOLE { a = step(a, V_LOAD(x + i)); }                                                        \
        if (i < n) { b = step(b, V_PART(x + i, n - i, init)); }                                              \
        return fold(step(step(a, b), step(c, d)));                                                           \
    }
TENSOR__REDUCE_LEAF(leaf_sum, 0.0f, V_ADD, V_HSUM)
TENSOR__REDUCE_LEAF(leaf_max, -(float)INFINITY, V_MAX, V_HMAX)
TENSOR__REDUCE_LEAF(leaf_min, (float)INFINITY, V_MIN, V_HMIN)
// As leaf_max but for NaN, which may be lost.
TENSOR__REDUCE_LEAF(leaf_peak, -(float)INFINITY, V_MAXR, V_HMAX)
#undef TENSOR__REDUCE_LEAF

// acc[i] += x[i]: one row of a sum over leading dims.
TENSOR__FN void TENSOR__K(add_row)(float *acc, const float *x, int64_t n) {
    int64_t i = 0;
    TENSOR__WHOLE { V_STORE(acc + i, V_ADD(V_LOAD(acc + i), V_LOAD(x + i))); }
    for (; i < n; i++) { acc[i] += x[i]; }
}

// ------------------------------------------------------------------------------
// >>kernel-rows                                    MARK: softmax and its kin, one row
//
// Two or three sweeps over a row that stays in L1. Sums in lanes: a row is at most some thousand elements
// in practice, and the order is fixed by n alone. Rejected: the one-sweep softmax that rescales as it goes
// (an exponential more for each element, for a sweep that L1 makes nearly free).
// ------------------------------------------------------------------------------

// y = e^(x - max); gives the sum. The next row is likely to be the next in memory.
TENSOR__FN float TENSOR__K(row_exp)(const float *x, float *y, int64_t n, float max) {
    V_F m = V_SET(max), a = V_ZERO(), b = V_ZERO();
    int64_t i = 0;
    for (; i + 2 * V_N <= n; i += 2 * V_N) {
        V_AHEAD(x + i, n);
        V_AHEAD(x + i + V_N, n);
        V_F u = V_EXP(V_SUB(V_LOAD(x + i), m)), v = V_EXP(V_SUB(V_LOAD(x + i + V_N), m));
        V_STORE(y + i, u);
        V_STORE(y + i + V_N, v);
        a = V_ADD(a, u);
        b = V_ADD(b, v);
    }
    if (i + V_N <= n) {
        V_F u = V_EXP(V_SUB(V_LOAD(x + i), m));
        V_STORE(y + i, u);
        a = V_ADD(a, u);
        i += V_N;
    }
    if (i < n) {
        V_F u = V_EXP(V_SUB(V_PART(x + i, n - i, 0), m));
        V_PUT_PART(y + i, n - i, u);
        b = V_ADD(b, V_CUT_PART(u, n - i));
    }
    return V_HSUM(V_ADD(a, b));
}
TENSOR__FN float TENSOR__K(row_dot)(const float *x, const float *y, int64_t n) {
    V_F a = V_ZERO(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * V_N <= n; i += 4 * V_N) {
        a = V_FMA(V_LOAD(x + i), V_LOAD(y + i), a);
        b = V_FMA(V_LOAD(x + i + V_N), V_LOAD(y + i + V_N), b);
        c = V_FMA(V_LOAD(x + i + 2 * V_N), V_LOAD(y + i + 2 * V_N), c);
        d = V_FMA(V_LOAD(x + i + 3 * V_N), V_LOAD(y + i + 3 * V_N), d);
    }
    TENSOR__WHOLE { a = V_FMA(V_LOAD(x + i), V_LOAD(y + i), a); }
    if (i < n) { b = V_FMA(V_PART(x + i, n - i, 0), V_PART(y + i, n - i, 0), b); }
    return V_HSUM(V_ADD(V_ADD(a, b), V_ADD(c, d)));
}
// z = x * a + b
TENSOR__FN void TENSOR__K(row_scale)(const float *x, float *z, int64_t n, float a, float b) {
    V_F va = V_SET(a), vb = V_SET(b);
    int64_t i = 0;
    TENSOR__WHOLE { V_STORE(z + i, V_ADD(V_MUL(V_LOAD(x + i), va), vb)); }
    if (i < n) { V_PUT_PART(z + i, n - i, V_ADD(V_MUL(V_PART(x + i, n - i, 0), va), vb)); }
}
TENSOR__FN void TENSOR__K(row_softmax)(const float *x, float *y, int64_t n) {
    float s = TENSOR__K(row_exp)(x, y, n, TENSOR__K(leaf_peak)(x, n));
    TENSOR__K(row_scale)(y, y, n, 1.0f / s, 0.0f);
}
TENSOR__FN float TENSOR__K(row_log)(float x) {
    float t[V_N];
    V_STORE(t, V_LOG(V_SET(x)));
    return t[0];
}
TENSOR__FN float TENSOR__K(row_logsumexp)(const float *x, float *work, int64_t n) {
    float m = TENSOR__K(leaf_max)(x, n);
    if (m == -(float)INFINITY || m == (float)INFINITY) { return m; }
    return m + TENSOR__K(row_log)(TENSOR__K(row_exp)(x, work, n, m));
}
TENSOR__FN void TENSOR__K(row_log_softmax)(const float *x, float *y, int64_t n) {
    float m = TENSOR__K(leaf_peak)(x, n);
    float s = TENSOR__K(row_log)(TENSOR__K(row_exp)(x, y, n, m));
    V_F vm = V_SET(m), vs = V_SET(s);
    int64_t i = 0;
    TENSOR__WHOLE { V_STORE(y + i, V_SUB(V_SUB(V_LOAD(x + i), vm), vs)); }
    if (i < n) { V_PUT_PART(y + i, n - i, V_SUB(V_SUB(V_PART(x + i, n - i, 0), vm), vs)); }
}
// dx = y (g - sum(g y))
TENSOR__FN void TENSOR__K(row_softmax_backward)(const float *g, const float *y, float *dx, int64_t n) {
    float s = TENSOR__K(row_dot)(g, y, n);
    V_F vs = V_SET(s);
    int64_t i = 0;
    TENSOR__WHOLE { V_STORE(dx + i, V_MUL(V_LOAD(y + i), V_SUB(V_LOAD(g + i), vs))); }
    if (i < n) {
        V_PUT_PART(dx + i, n - i, V_MUL(V_PART(y + i, n - i, 0), V_SUB(V_PART(g + i, n - i, 0), vs)));
    }
}
// dx = g - e^y sum(g)
TENSOR__FN void TENSOR__K(row_log_softmax_backward)(const float *g, const float *y, float *dx, int64_t n) {
    float s = TENSOR__K(leaf_sum)(g, n);
    V_F vs = V_SET(s);
    int64_t i = 0;
    TENSOR__WHOLE { V_STORE(dx + i, V_SUB(V_LOAD(g + i), V_MUL(V_EXP(V_LOAD(y + i)), vs))); }
    if (i < n) {
        V_F v = V_EXP(V_PART(y + i, n - i, 0));
        V_PUT_PART(dx + i, n - i, V_SUB(V_PART(g + i, n - i, 0), V_MUL(v, vs)));
    }
}

// ------------------------------------------------------------------------------
// >>kernel-gemm                                    MARK: matrix product
//
// f32 GEMM of one pass. The call and what all passes share, tensor__gemm_cut and its neighbours, stand in the
// section >>impl-iterator.
//
// A tile of C, MR rows x 2 vectors, lives in registers; A is broadcast, B read by vectors. Tiles exist for
// every height 1..MR, one or two vectors, and two layouts of A: rows contiguous (NN, NT) and columns
// contiguous (TN), so A is read in place or copied line by line, never transposed. B is read in place when
// it has contiguous rows and is small or hardly reused; else packed into panels [k][NR]: by the first rows of
// A as they sum (NN, TN), or before, by 4-column transposes, when its columns run along k (NT). The order is:
// block of B (L2), panel of A (L1), tile. Of f64 only the tile stands here.
// ------------------------------------------------------------------------------

#undef TENSOR__MR
#undef TENSOR__NR
#undef TENSOR__ROWS
#undef TENSOR__DM
#if TENSOR__PASS == 3
#define TENSOR__MR 14       /* 28 sums + 2 of B + 1 of A of 32 registers */
#define TENSOR__ROWS(X, u) X(0, u) X(1, u) X(2, u) X(3, u) X(4, u) X(5, u) X(6, u) X(7, u) X(8, u) X(9, u) \
                           X(10, u) X(11, u) X(12, u) X(13, u)
#define TENSOR__DM 4
#elif TENSOR__PASS == 2
#define TENSOR__MR 6        /* 12 + 2 + 1 of 16 */
#define TENSOR__ROWS(X, u) X(0, u) X(1, u) X(2, u) X(3, u) X(4, u) X(5, u)
#define TENSOR__DM 2
#elif TENSOR__PASS == 4
#define TENSOR__MR 8        /* 16 + 2 + 1 of 32; with 12 rows gcc loads ahead and keeps sums on the stack */
#define TENSOR__ROWS(X, u) X(0, u) X(1, u) X(2, u) X(3, u) X(4, u) X(5, u) X(6, u) X(7, u)
#define TENSOR__DM 4
#else
#define TENSOR__MR 4        /* 8 + 2 + 1, and products: no FMA */
#define TENSOR__ROWS(X, u) X(0, u) X(1, u) X(2, u) X(3, u)
#define TENSOR__DM 2
#endif
#define TENSOR__NR (2 * V_N)

/* Last vector of a line, w of V_N lanes valid. Only AVX-512 masks for free; elsewhere a ragged panel of B is
 * packed with padding, a ragged tile of C goes through a whole one, and w is always V_N here. */
#undef TENSOR__LOADW
#undef TENSOR__STOREW
#if TENSOR__PASS == 3
#define TENSOR__LOADW(p) _mm512_maskz_loadu_ps(mask, p)
#define TENSOR__STOREW(p, v) _mm512_mask_storeu_ps(p, mask, v)
#else
#define TENSOR__LOADW(p) V_LOAD(p)
#define TENSOR__STOREW(p, v) V_STORE(p, v)
#endif

/* t lives on after its last use: else gcc 12 sums into t's register and moves the sum back */
#undef TENSOR__USED
#if TENSOR__PASS == 3
#define TENSOR__USED(t) __asm__ volatile("" :: "v"(t))
#else
#define TENSOR__USED(t) ((void)(t))
#endif
/* row i of A, u steps ahead: five bases and a scaled stride cover 14 rows without 14 pointers */
#undef TENSOR__AT
#define TENSOR__AT(i, u) (*((col ? a + i : (i < 3 ? a : i < 6 ? a3 : i < 9 ? a6 : i < 12 ? a9 : a12) +       \
                             (i % 3) * as) + (u)))
#undef TENSOR__FMAROW
#define TENSOR__FMAROW(i, u) if (mr > i) { \
        V_F t = V_SET(TENSOR__AT(i, u)); x##i = V_FMA(t, p, x##i); if (nv > 1) y##i = V_FMA(t, q, y##i); \
        if (nv > 1) TENSOR__USED(t); }
#undef TENSOR__STEP
#define TENSOR__STEP(u) do { \
        V_F p = nv > 1 ? V_LOAD(b) : TENSOR__LOADW(b), q = p; \
        if (nv > 1) q = V_LOAD(b + V_N); \
        if (mode == 1) { \
            __builtin_prefetch(b + 16 * bs); \
            __builtin_prefetch(b + 16 * bs + V_N); \
            V_STORE(d, p); \
            V_STORE(d + V_N, q); \
            d += TENSOR__NR; \
        } \
        TENSOR__ROWS(TENSOR__FMAROW, u) \
        b += bs; if (col) a += as; } while (0)
#undef TENSOR__SUMS
#define TENSOR__SUMS(i, u) V_F x##i = V_ZERO(), y##i = V_ZERO();
#undef TENSOR__BIAS
#define TENSOR__BIAS(i, u) if (mr > i) { x##i = V_ADD(x##i, p); if (nv > 1) y##i = V_ADD(y##i, q); }
#undef TENSOR__OUT
#define TENSOR__OUT(i, u) if (mr > i) { \
        if (nv > 1) { V_STORE(o, x##i); V_STORE(o + V_N, y##i); } \
        else TENSOR__STOREW(o, x##i); \
        o += cs; }
#undef TENSOR__ADDC
#define TENSOR__ADDC(i, u) if (mr > i) { \
        x##i = V_ADD(nv > 1 ? V_LOAD(o) : TENSOR__LOADW(o), x##i); \
        if (nv > 1) y##i = V_ADD(V_LOAD(o + V_N), y##i); \
        o += cs; }

/* mr, nv, col and mode are constants where this is expanded. Mode 1: B, read in place, goes to d as a panel.
 * Mode 2: k is walked in four rounds; each fetches a quarter of the tile of C and, as it sums, one of the
 * rows of A at next, which the next panel needs. No other prefetch: fetched at once, they take the room that
 * loads of B need. One loop for all modes: in a plain `for` gcc 12 moves sums about. */
TENSOR__INLINE void TENSOR__K(gemm_tile)(const int mr, const int nv, const int col, const int mode, int64_t k,
                                         const float *a, int64_t as, const float *b, int64_t bs, float *c,
                                         int64_t cs, const float *bias, int add, int w, float *d,
                                         const float *next) {
    const float *a3 = a + 3 * as, *a6 = a + 6 * as, *a9 = a + 9 * as, *a12 = a + 12 * as;
    int64_t each = k < 64 ? 4 : k / 8, line = col ? k : as;
    int row = 0, to = 0;
    float *o = c;
#if TENSOR__PASS == 3
    __mmask16 mask = (__mmask16)(nv > 1 ? 0 : (1u << w) - 1);
#endif
    TENSOR__ROWS(TENSOR__SUMS, 0)
    (void)a3; (void)a6; (void)a9; (void)a12; (void)w; (void)d;
    (void)next; (void)each; (void)line; (void)row; (void)to;
    while (k >= 2) {
        int64_t s = mode == 2 ? TENSOR__MIN(k / 2, each) : k / 2;
        const float *f = next;
        k -= 2 * s;
        if (mode == 2) {
            next += line;
            for (to += (mr + 3) / 4; row < to && row < mr; row++, o += cs) {
                __builtin_prefetch(o, 1);
                if (nv > 1) __builtin_prefetch(o + V_N, 1);
            }
        }
        do {
            if (mode == 2) { __builtin_prefetch(f); f += 8; }
            TENSOR__STEP(0);
            if (col) TENSOR__STEP(0);
            else { TENSOR__STEP(1); a += 2; a3 += 2; a6 += 2; a9 += 2; a12 += 2; }
        } while (--s);
    }
    o = c;
    if (k > 0) TENSOR__STEP(0);
    if (bias) {
        V_F p = nv > 1 ? V_LOAD(bias) : TENSOR__LOADW(bias), q = p;
        if (nv > 1) q = V_LOAD(bias + V_N);
        TENSOR__ROWS(TENSOR__BIAS, 0)
    }
    if (add) {
        TENSOR__ROWS(TENSOR__ADDC, 0)
        o = c;
        TENSOR__HIDE(o);
    }
    TENSOR__ROWS(TENSOR__OUT, 0)
}

#undef TENSOR__TILE
#define TENSOR__TILE(name, mr, nv, col) \
    TENSOR__FN void TENSOR__K(name)(int64_t k, const float *a, int64_t as, const float *b, int64_t bs, \
                                    float *c, int64_t cs, const float *bias, int add, int w) { \
        TENSOR__K(gemm_tile)(mr, nv, col, 0, k, a, as, b, bs, c, cs, bias, add, w, NULL, NULL); }
#undef TENSOR__TILES
#define TENSOR__TILES(i, u) TENSOR__TILE(gemm_r1_##i, i + 1, 1, 0) TENSOR__TILE(gemm_r2_##i, i + 1, 2, 0) \
                            TENSOR__TILE(gemm_c1_##i, i + 1, 1, 1) TENSOR__TILE(gemm_c2_##i, i + 1, 2, 1)
TENSOR__ROWS(TENSOR__TILES, 0)

#undef TENSOR__FAR_TILE
#define TENSOR__FAR_TILE(name, col) \
    TENSOR__FN void TENSOR__K(name)(int64_t k, const float *a, int64_t as, const float *b, int64_t bs, \
                                    float *c, int64_t cs, const float *bias, int add, const float *next) { \
        TENSOR__K(gemm_tile)(TENSOR__MR, 2, col, 2, k, a, as, b, bs, c, cs, bias, add, V_N, NULL, \
                             next); }
TENSOR__FAR_TILE(gemm_far_r, 0)
TENSOR__FAR_TILE(gemm_far_c, 1)

/* the first panel of rows packs B as it goes: what B waits for is hidden behind sums */
TENSOR__FN void TENSOR__K(gemm_first)(int col, int64_t k, const float *a, int64_t as, const float *b,
                                      int64_t bs, float *c, int64_t cs, const float *bias, int add,
                                      float *d) {
    if (col)
        TENSOR__K(gemm_tile)(TENSOR__MR, 2, 1, 1, k, a, as, b, bs, c, cs, bias, add, V_N, d, NULL);
    else
        TENSOR__K(gemm_tile)(TENSOR__MR, 2, 0, 1, k, a, as, b, bs, c, cs, bias, add, V_N, d, NULL);
}

/* [rows - 1][columns of A contiguous][vectors - 1] */
#undef TENSOR__ENTRY
#define TENSOR__ENTRY(i, u) { { TENSOR__K(gemm_r1_##i), TENSOR__K(gemm_r2_##i) }, \
                              { TENSOR__K(gemm_c1_##i), TENSOR__K(gemm_c2_##i) } },
static const tensor__gemm_tile_fn TENSOR__K(gemm_tiles)[TENSOR__MR][2][2] = {
    TENSOR__ROWS(TENSOR__ENTRY, 0)
};

/* dst[p * V_N * step] gets line p of the V_N columns at src, columns ld apart and w of them valid, k
 * contiguous. The lanes past w get copies of column w - 1: a lane never looks at another, nobody reads
 * them. */
TENSOR__FN void TENSOR__K(gemm_transpose)(int64_t k, int w, const float *src, int64_t ld, float *dst,
                                          int64_t step) {
    const float *r[V_N];
    int64_t p = 0;
    int j;
    for (j = 0; j < V_N; j++) r[j] = src + TENSOR__MIN(j, w - 1) * ld;
#undef TENSOR__QUAD
#if TENSOR__PASS == 3
#define TENSOR__INS(a, b, i) _mm512_maskz_insertf32x4(0xFFFF, a, b, i)
#define TENSOR__QUAD(i) TENSOR__INS(TENSOR__INS(TENSOR__INS(_mm512_castps128_ps512( \
        _mm_loadu_ps(r[i] + p)), _mm_loadu_ps(r[i + 4] + p), 1), _mm_loadu_ps(r[i + 8] + p), 2), \
        _mm_loadu_ps(r[i + 12] + p), 3)
#elif TENSOR__PASS == 2
#define TENSOR__QUAD(i) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(r[i] + p)), \
        _mm_loadu_ps(r[i + 4] + p), 1)
#elif TENSOR__PASS > 0
#define TENSOR__QUAD(i) V_LOAD(r[i] + p)
#endif
#ifdef TENSOR__QUAD
    /* lane quads of register i hold rows i, i + 4, ..: a 4 x 4 transpose inside each quad finishes */
    for (; p + 4 <= k; p += 4) {
        V_F z[4];
        z[0] = TENSOR__QUAD(0);
        z[1] = TENSOR__QUAD(1);
        z[2] = TENSOR__QUAD(2);
        z[3] = TENSOR__QUAD(3);
        TENSOR__K(quads)(z);
        for (j = 0; j < 4; j++, dst += step) V_STORE(dst, z[j]);
    }
#endif
    for (; p < k; p++, dst += step)
        for (j = 0; j < V_N; j++) dst[j] = r[j][p];
}

/* n columns of b into panels dst[n / NR][k][NR]. Rows are read 4 panels wide: every row may be another
 * page. */
TENSOR__FN void TENSOR__K(gemm_pack_b)(int64_t k, int64_t n, const float *b, int64_t brs, int64_t bcs,
                                       float *dst) {
    int64_t p, j, j4;
    int i, w;
    if (bcs == 1)
        for (j4 = 0; j4 < n; j4 += 4 * TENSOR__NR)
            for (p = 0; p < k; p++)
                for (j = j4; j < TENSOR__MIN(n, j4 + 4 * TENSOR__NR); j += TENSOR__NR) {
                    const float *s = b + p * brs + j;
                    float *d = dst + j * k + p * TENSOR__NR;
                    w = (int)TENSOR__MIN(n - j, (int64_t)TENSOR__NR);
                    if (w == TENSOR__NR) {
                        V_STORE(d, V_LOAD(s));
                        V_STORE(d + V_N, V_LOAD(s + V_N));
                    } else {
#if TENSOR__PASS == 3
                        __mmask16 mask = (__mmask16)((1u << (w % V_N)) - 1);
                        V_STORE(d, w >= V_N ? V_LOAD(s) : TENSOR__LOADW(s));
                        if (w > V_N) V_STORE(d + V_N, TENSOR__LOADW(s + V_N));
#else
                        for (i = 0; i < w; i++) d[i] = s[i];
#endif
                    }
                }
    else
        for (j = 0; j < n; j += TENSOR__NR, b += TENSOR__NR * bcs, dst += TENSOR__NR * k) {
            w = (int)TENSOR__MIN(n - j, (int64_t)TENSOR__NR);
            if (brs == 1)
                for (i = 0; i < w; i += V_N)
                    TENSOR__K(gemm_transpose)(k, TENSOR__MIN(w - i, V_N), b + i * bcs, bcs, dst + i,
                                              TENSOR__NR);
            else
                for (p = 0; p < k; p++)
                    for (i = 0; i < w; i++) dst[p * TENSOR__NR + i] = b[p * brs + i * bcs];
        }
}

/* Panels of A, `rows` in all, the first ones up to `high` mr + 1 rows tall, the rest mr: by rows of `ld`
 * when those are contiguous, else by columns of MR; `size` floats a panel. Columns are read all panels
 * wide, 8 of them for a panel at a time. */
TENSOR__FN void TENSOR__K(gemm_pack_a)(int64_t k, int64_t rows, int64_t high, int mr, const float *a,
                                       int64_t ars, int64_t acs, float *dst, int64_t ld, int64_t size) {
    int64_t p, i;
    float *d;
    int q, r, h, n;
    if (acs == 1)
        for (i = 0; i < rows; i += h, dst += size) {
            h = (int)TENSOR__MIN(mr + (i < high), rows - i);
            for (q = 0, d = dst; q < h; q++, a += ars, d += ld) {
                for (p = 0; p + V_N <= k; __builtin_prefetch(a + p + ars), p += V_N)
                    V_STORE(d + p, V_LOAD(a + p));
                for (; p < k; p++) d[p] = a[p];
            }
        }
    else
        for (p = 0; p < k; p += n, a += n * acs, dst += n * TENSOR__MR)
            for (i = 0, d = dst, n = (int)TENSOR__MIN(k - p, 8); i < rows; i += h, d += size) {
                h = (int)TENSOR__MIN(mr + (i < high), rows - i);
#if TENSOR__PASS == 3
                if (ars == 1) {
                    __mmask16 mask = (__mmask16)((1u << h) - 1);
                    const float *s = a + i;
                    for (r = 0; r < n; r++, s += acs) {
                        __builtin_prefetch(s + 8 * acs);
                        TENSOR__STOREW(d + r * TENSOR__MR, TENSOR__LOADW(s));
                    }
                } else
#endif
                for (r = 0; r < n; r++)
                    for (q = 0; q < h; q++) d[r * TENSOR__MR + q] = a[(i + q) * ars + r * acs];
            }
}

#if TENSOR__PASS != 3
/* one tile whose last vector has w < V_N valid columns, where stores have no masks */
TENSOR__FN void TENSOR__K(gemm_ragged)(tensor__gemm_tile_fn fn, int mr, int64_t k, const float *a,
                                       int64_t as, const float *b, float *c, int64_t cs,
                                       const float *bias, int add, int w) {
    float tile[TENSOR__MR * V_N], bs[V_N];
    int i, j;
    for (j = 0; j < V_N; j++) bs[j] = bias && j < w ? bias[j] : 0;
    for (i = 0; i < mr; i++)
        for (j = 0; j < V_N; j++) tile[i * V_N + j] = add && j < w ? c[i * cs + j] : 0;
    fn(k, a, as, b, TENSOR__NR, tile, V_N, bias ? bs : NULL, add, V_N);
    for (i = 0; i < mr; i++)
        for (j = 0; j < w; j++) c[i * cs + j] = tile[i * V_N + j];
}
#endif

/* B in place: an eighth of L2 holds all of it, or at most two panels of rows would reuse a packed one */
TENSOR__FN int TENSOR__K(gemm_b_here)(const tensor__gemm_t *g) {
    return g->bcs == 1 && (g->m <= 2 * TENSOR__MR || g->k * g->n <= 32768);
}
/* A in place, unless 14 rows meet in one set of L1 (4 KB apart), or columns are reused by many tiles */
TENSOR__FN int TENSOR__K(gemm_a_here)(const tensor__gemm_t *g) {
    return g->acs == 1 ? (g->ars & 1023) != 0 || g->n <= 2 * TENSOR__NR
                       : g->ars == 1 && (g->m * g->k <= 8192 || g->n <= TENSOR__NR);
}

/* rectangle r of one item. Strides arrive normalised: see gemm_f32. ready: panels of A, MR high, that
 * gemm_share packed of one block of rows and one chunk of k; NULL: A is packed here. */
TENSOR__FN TENSOR__NOINLINE void TENSOR__K(gemm_block)(const tensor__gemm_t *g, const float *a,
                                                       const float *b, float *c, const int64_t *r,
                                                       const float *ready, float *scratch) {
    int b_here = TENSOR__K(gemm_b_here)(g), a_here = TENSOR__K(gemm_a_here)(g);
    int64_t mc = ready || a_here ? r[1] - r[0] : (int64_t)TENSOR__GEMM_MC;
    int col = g->acs != 1, high, mr0, mr, w, first = 0, row;
    int touch = g->k <= TENSOR__GEMM_KC && g->m * g->n > 65536;
    /* where L2 does not hold it all, lines are fetched ahead, by whole panels */
    int ahead = g->m >= 16 * TENSOR__MR && g->m * g->n + (g->m + g->n) * g->k > 262144 && !(col && a_here);
    int64_t kc = b_here && g->n * g->k > 65536 ? (int64_t)TENSOR__GEMM_KS : tensor__gemm_chunk(g->k);
    int64_t lda = kc + 16, size = lda * TENSOR__MR, rows, ic, jc, p, i, j, kb, nb, packed;
    float *bp = scratch + tensor__gemm_panel_floats(g);
    for (ic = r[0]; ic < r[1]; ic += mc)
      for (p = r[4]; p < r[5]; p += kc)
        for (jc = r[2]; jc < r[3]; jc += TENSOR__GEMM_NC) {
            int add = g->accumulate || p > 0;
            const float *bias = p == 0 && g->bias ? (const float *)g->bias + jc : NULL;
            const float *bb = b + p * g->brs + jc * g->bcs, *aa = ready ? ready : scratch;
            kb = TENSOR__MIN(g->k - p, kc);
            nb = TENSOR__MIN(r[3] - jc, (int64_t)TENSOR__GEMM_NC);
            rows = TENSOR__MIN(r[1] - ic, mc);
            /* whole panels of B are packed by the first rows; of B in place only what no mask can read */
            first = !b_here && g->bcs == 1 && rows >= TENSOR__MR ? TENSOR__MR : 0;
            j = b_here || first ? nb / TENSOR__NR * TENSOR__NR : 0;
            if (j < nb && (!b_here || (TENSOR__PASS != 3 && nb % V_N)))
                TENSOR__K(gemm_pack_b)(kb, nb - j, bb + j * g->bcs, g->brs, g->bcs,
                                       b_here ? bp : bp + j * kb);
            mr0 = ready || ahead ? (high = 0, TENSOR__MR)
                               : tensor__gemm_height((int)rows - first, TENSOR__MR, &high);
            /* the first block of B packs the panels of A, a few ahead of their use; the others find them */
            for (i = 0, packed = ready || jc > r[2] ? rows : 0; i < rows; i += mr) {
                const tensor__gemm_tile_fn *fn;
                int64_t as = col ? g->acs : g->ars;
                const float *next;
                float *cc = c + (ic + i) * g->crs + jc;
                mr = i < first ? first : (int)TENSOR__MIN(mr0 + (i - first < high), rows - i);
                fn = TENSOR__K(gemm_tiles)[mr - 1][col];
                if (a_here) aa = a + (ic + i) * g->ars + p * g->acs;
                else {
                    as = col ? (int64_t)TENSOR__MR : lda;
                    if (i) aa += size;
                    if (i == packed) {
                        int n = i < first ? TENSOR__GEMM_PANELS : 0;
                        if (i < first) packed = first;
                        for (; n < TENSOR__GEMM_PANELS && packed < rows; n++)
                            packed = TENSOR__MIN(packed + mr0 + (packed - first < high), rows);
                        TENSOR__K(gemm_pack_a)(kb, packed - i, i < first ? 0 : first + high - i,
                                               i < first ? first : mr0, a + (ic + i) * g->ars + p * g->acs,
                                               g->ars, g->acs, scratch + (aa - scratch), lda, size);
                    }
                }
                next = aa + (a_here ? mr * as : size);
                for (j = 0; j < nb; j += w, next += 4 * (col ? kb : as)) {
                    int nv = 1 + (nb - j >= TENSOR__NR);
                    const float *bj = b_here ? bb + j
                                             : bp + j / TENSOR__NR * TENSOR__NR * kb + j % TENSOR__NR;
                    int64_t bs = b_here ? g->brs : TENSOR__NR;
                    w = (int)TENSOR__MIN(nb - j, (int64_t)nv * V_N);
                    if (ahead && mr == TENSOR__MR && nv > 1 && i >= first) {
                        (col ? TENSOR__K(gemm_far_c) : TENSOR__K(gemm_far_r))(
                            kb, aa, as, bj, bs, cc + j, g->crs, bias ? bias + j : NULL, add, next);
                        continue;
                    }
                    /* short sums into a C that no L2 holds would wait for it */
                    for (row = 0; touch && row < mr; row++) {
                        __builtin_prefetch(cc + j + row * g->crs, 1);
                        if (nv > 1) __builtin_prefetch(cc + j + row * g->crs + V_N, 1);
                    }
                    if (i < first && nv > 1) {
                        TENSOR__K(gemm_first)(col, kb, aa, as, bb + j, g->brs, cc + j, g->crs,
                                              bias ? bias + j : NULL, add, bp + j * kb);
                        continue;
                    }
#if TENSOR__PASS != 3
                    if (w < V_N) {
                        if (b_here) bj = bp + j % TENSOR__NR;
                        TENSOR__K(gemm_ragged)(fn[0], mr, kb, aa, as, bj, cc + j, g->crs,
                                               bias ? bias + j : NULL, add, w);
                        continue;
                    }
#endif
                    fn[nv - 1](kb, aa, as, bj, bs, cc + j, g->crs, bias ? bias + j : NULL, add, w);
                }
            }
        }
}

/* Dot path: k contiguous in both and few rows. B is read once, in place; packing it would cost more than
 * the sum. A chunk of KD is summed in V_N lanes, then across; the last lanes of k come from padded copies. */
#undef TENSOR__DOT
#define TENSOR__DOT(i, j) if (dm > i && dn > j) s##i##j = V_FMA(x##i, y##j, s##i##j);
#undef TENSOR__DOTS
#define TENSOR__DOTS(X) X(0, 0) X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3) \
                        X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3)
#undef TENSOR__DOTZ
#define TENSOR__DOTZ(i, j) V_F s##i##j = V_ZERO();
#undef TENSOR__DOTC
#define TENSOR__DOTC(i, j) if (dm > i && dn > j) { \
        float v = V_HSUM(s##i##j); \
        if (bias) v += bias[j]; \
        c[i * cs + j] = add ? c[i * cs + j] + v : v; }
#undef TENSOR__DOTSTEP
#define TENSOR__DOTSTEP(LD) do { \
        V_F x0 = LD(a), x1 = x0, x2 = x0, x3 = x0, y0 = LD(b), y1 = y0, y2 = y0, y3 = y0; \
        if (dm > 1) x1 = LD(a + as); \
        if (dm > 2) x2 = LD(a + 2 * as); \
        if (dm > 3) x3 = LD(a3); \
        if (dn > 1) y1 = LD(b + bs); \
        if (dn > 2) y2 = LD(b + 2 * bs); \
        if (dn > 3) y3 = LD(b3); \
        (void)x1; (void)x2; (void)x3; (void)y1; (void)y2; (void)y3; \
        TENSOR__DOTS(TENSOR__DOT) } while (0)

/* Four columns of a whole tile at once: quad i of z[j] gets the quads of s<i><j>, folded as V_HSUM folds
 * them, and a transpose inside the quads puts the rest of that tree side by side. */
#undef TENSOR__HALVES
#undef TENSOR__FOLDS
#if TENSOR__PASS == 3
#define TENSOR__HALVES(a, b, lo, hi) V_ADD(_mm512_maskz_shuffle_f32x4(0xFFFF, a, b, lo), \
                                           _mm512_maskz_shuffle_f32x4(0xFFFF, a, b, hi))
#define TENSOR__FOLDS(j) TENSOR__HALVES(TENSOR__HALVES(s0##j, s1##j, 0x44, 0xEE), \
                                        TENSOR__HALVES(s2##j, s3##j, 0x44, 0xEE), 0x88, 0xDD)
#elif TENSOR__PASS == 2
#undef TENSOR__LOADK
#define TENSOR__LOADK(p) _mm256_maskload_ps(p, mask)
#define TENSOR__FOLDS(j) V_ADD(_mm256_permute2f128_ps(s0##j, s1##j, 0x20), \
                               _mm256_permute2f128_ps(s0##j, s1##j, 0x31))
#endif
TENSOR__INLINE void TENSOR__K(gemm_dot)(const int dm, const int dn, int64_t k, const float *a, int64_t as,
                                        const float *b, int64_t bs, float *c, int64_t cs, const float *bias,
                                        int add) {
    const float *a3 = a + 3 * as, *b3 = b + 3 * bs;
    TENSOR__DOTS(TENSOR__DOTZ)
    (void)a3; (void)b3;
    for (; k >= V_N; k -= V_N, a += V_N, b += V_N, a3 += V_N, b3 += V_N) TENSOR__DOTSTEP(V_LOAD);
    if (k > 0) {
#if TENSOR__PASS == 3
        __mmask16 mask = (__mmask16)((1u << k) - 1);
        TENSOR__DOTSTEP(TENSOR__LOADW);
#elif TENSOR__PASS == 2
        __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)k),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        TENSOR__DOTSTEP(TENSOR__LOADK);
#else
        float t[8 * V_N];
        int i, p;
        for (i = 0; i < 8; i++)
            for (p = 0; p < V_N; p++)
                t[i * V_N + p] = p >= k || i % 4 >= (i < 4 ? dm : dn) ? 0
                    : i < 4 ? a[i * as + p] : b[(i - 4) * bs + p];
        a = t; a3 = t + 3 * V_N; as = V_N;
        b = t + 4 * V_N; b3 = t + 7 * V_N; bs = V_N;
        TENSOR__DOTSTEP(V_LOAD);
#endif
    }
#ifdef TENSOR__FOLDS
    if (dm == TENSOR__DM && dn == 4) {
        V_F z[4];
        float t[V_N];
        int i;
        z[0] = TENSOR__FOLDS(0); z[1] = TENSOR__FOLDS(1); z[2] = TENSOR__FOLDS(2); z[3] = TENSOR__FOLDS(3);
        TENSOR__K(quads)(z);
        V_STORE(t, V_ADD(V_ADD(z[0], z[2]), V_ADD(z[1], z[3])));
        for (i = 0; i < dm; i++, c += cs) {
            __m128 v = _mm_loadu_ps(t + 4 * i);
            if (bias) v = _mm_add_ps(v, _mm_loadu_ps(bias));
            _mm_storeu_ps(c, add ? _mm_add_ps(_mm_loadu_ps(c), v) : v);
        }
        return;
    }
#if TENSOR__PASS == 3
    if (dm == 1 && dn == 4) {           /* the same tree, a quad for each column */
        V_F z = TENSOR__HALVES(TENSOR__HALVES(s00, s01, 0x44, 0xEE),
                               TENSOR__HALVES(s02, s03, 0x44, 0xEE), 0x88, 0xDD);
        __m128 v;
        z = V_ADD(z, _mm512_maskz_permute_ps(0xFFFF, z, 0x4E));
        z = V_ADD(z, _mm512_maskz_permute_ps(0xFFFF, z, 0xB1));
        v = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, z));
#else
    if (dm == 1 && dn == 4) {
        V_F z = V_ADD(_mm256_permute2f128_ps(s00, s01, 0x20), _mm256_permute2f128_ps(s00, s01, 0x31));
        V_F u = V_ADD(_mm256_permute2f128_ps(s02, s03, 0x20), _mm256_permute2f128_ps(s02, s03, 0x31));
        __m128 v;
        z = V_ADD(z, _mm256_permute_ps(z, 0x4E));
        u = V_ADD(u, _mm256_permute_ps(u, 0x4E));
        z = _mm256_shuffle_ps(z, u, 0x44);      /* columns 0 0 2 2, then 1 1 3 3 */
        z = V_ADD(z, _mm256_permute_ps(z, 0xB1));
        v = _mm_blend_ps(_mm256_castps256_ps128(z), _mm256_extractf128_ps(z, 1), 10);
#endif
        if (bias) v = _mm_add_ps(v, _mm_loadu_ps(bias));
        _mm_storeu_ps(c, add ? _mm_add_ps(_mm_loadu_ps(c), v) : v);
        return;
    }
#endif
    TENSOR__DOTS(TENSOR__DOTC)
}

#undef TENSOR__DOTROWS
#define TENSOR__DOTROWS(name, dm) \
    TENSOR__FN void TENSOR__K(name)(int64_t k, int n, const float *a, int64_t as, const float *b, \
                                    int64_t bs, float *c, int64_t cs, const float *bias, int add) { \
        if (n == 4) TENSOR__K(gemm_dot)(dm, 4, k, a, as, b, bs, c, cs, bias, add); \
        else for (; n > 0; n--, b += bs, c++, bias = bias ? bias + 1 : bias) \
            TENSOR__K(gemm_dot)(dm, 1, k, a, as, b, bs, c, cs, bias, add); }
TENSOR__DOTROWS(gemm_dot1, 1)
TENSOR__DOTROWS(gemm_dot2, 2)
#if TENSOR__DM == 4
TENSOR__DOTROWS(gemm_dot4, 4)
#endif

/* One row, the answer of a small net: the same dots, without what more rows or longer sums need. */
TENSOR__FN void TENSOR__K(gemm_row)(const tensor__gemm_t *g, int64_t bcs) {
    const float *a = (const float *)g->a + (g->aoff ? g->aoff[0] : 0), *bias = (const float *)g->bias;
    const float *b = (const float *)g->b + (g->boff ? g->boff[0] : 0);
    float *c = (float *)g->c + (g->coff ? g->coff[0] : 0);
    int64_t j = 0, n = g->n;
    for (; j + 4 <= n; j += 4, b += 4 * bcs)
        TENSOR__K(gemm_dot)(1, 4, g->k, a, 0, b, bcs, c + j, 0, bias ? bias + j : NULL, 0);
    for (; j < n; j++, b += bcs) TENSOR__K(gemm_dot)(1, 1, g->k, a, 0, b, bcs, c + j, 0,
                                                     bias ? bias + j : NULL, 0);
}

TENSOR__FN void TENSOR__K(gemm_dots)(const tensor__gemm_t *g, const float *a, const float *b, float *c,
                                     const int64_t *r) {
    int64_t i, j, p, kb;
    for (p = 0; p < g->k; p += kb) {
        int add = g->accumulate || p > 0;
        const float *bias = p == 0 && g->bias ? (const float *)g->bias : NULL;
        kb = TENSOR__MIN(g->k - p, (int64_t)TENSOR__GEMM_KD);
        for (j = r[2]; j < r[3]; j += 4) {
            int n = (int)TENSOR__MIN(r[3] - j, (int64_t)4);
            const float *bb = b + p + j * g->bcs, *bj = bias ? bias + j : bias;
            for (i = r[0]; i < r[1];) {
                const float *aa = a + i * g->ars + p;
                float *cc = c + i * g->crs + j;
#if TENSOR__DM == 4
                if (r[1] - i >= 4) {
                    TENSOR__K(gemm_dot4)(kb, n, aa, g->ars, bb, g->bcs, cc, g->crs, bj, add);
                    i += 4;
                } else
#endif
                if (r[1] - i >= 2) {
                    TENSOR__K(gemm_dot2)(kb, n, aa, g->ars, bb, g->bcs, cc, g->crs, bj, add);
                    i += 2;
                } else {
                    TENSOR__K(gemm_dot1)(kb, n, aa, g->ars, bb, g->bcs, cc, g->crs, bj, add);
                    i++;
                }
            }
        }
    }
}

TENSOR__FN int TENSOR__K(gemm_is_dot)(const tensor__gemm_t *g) {
    /* more rows where 32 registers hold a tile of 4 x 4; with fewer, packing B pays sooner */
    int most = TENSOR__PASS == 3 ? 64 : 40, each = TENSOR__PASS == 3 ? 8 : 20;
    return g->acs == 1 && g->brs == 1 && g->bcs != 1 && each * g->m <= g->k && g->m <= most;
}

TENSOR__FN void TENSOR__K(gemm_task)(void *arg, int64_t task, int worker) {
    const tensor__gemm_job_t *job = (const tensor__gemm_job_t *)arg;
    const tensor__gemm_t *g = job->g;
    int64_t per = job->cut.gm * job->cut.gn, t = task * job->cut.per, n = g->batch * per, r[6];
    int64_t t1 = TENSOR__MIN(t + job->cut.per, n), lda = tensor__gemm_chunk(g->k) + 16;
    float *s = tensor__gemm_room(g, worker), *ready = job->shared ? tensor__gemm_room(g, 0) : NULL;
    for (; t < t1; t++) {
        int64_t item = per == 1 ? t : t / per;
        const float *a = (const float *)g->a + (g->aoff ? g->aoff[item] : 0);
        const float *b = (const float *)g->b + (g->boff ? g->boff[item] : 0);
        float *c = (float *)g->c + (g->coff ? g->coff[item] : 0);
        tensor__gemm_rect(job, t - item * per, TENSOR__MR, TENSOR__NR, r);
        if (TENSOR__K(gemm_is_dot)(g)) TENSOR__K(gemm_dots)(g, a, b, c, r);
        else TENSOR__K(gemm_block)(g, a, b, c, r, ready ? ready + (r[0] - job->r[0]) * lda : NULL, s);
    }
}

/* 8 panels of the A that all threads read: packed once, by all of them, into the panels of worker 0 */
TENSOR__FN void TENSOR__K(gemm_share)(void *arg, int64_t task, int worker) {
    const tensor__gemm_job_t *job = (const tensor__gemm_job_t *)arg;
    const tensor__gemm_t *g = job->g;
    int64_t at = task * 8 * TENSOR__MR, i = job->r[0] + at, lda = tensor__gemm_chunk(g->k) + 16;
    int64_t rows = TENSOR__MIN(job->r[1] - i, (int64_t)8 * TENSOR__MR);
    const float *a = (const float *)g->a + (g->aoff ? g->aoff[0] : 0) + i * g->ars + job->r[4] * g->acs;
    (void)worker;
    TENSOR__K(gemm_pack_a)(job->r[5] - job->r[4], rows, 0, TENSOR__MR, a, g->ars, g->acs,
                           tensor__gemm_room(g, 0) + at * lda, lda, lda * TENSOR__MR);
}

/* part `task` of a split sum, into its own m x n of scratch */
TENSOR__FN void TENSOR__K(gemm_part)(void *arg, int64_t task, int worker) {
    const tensor__gemm_job_t *job = (const tensor__gemm_job_t *)arg;
    tensor__gemm_t g = *job->g;
    int64_t k0 = g.k * task / job->parts, r[6];
    float *s = tensor__gemm_room(&g, worker), *part = tensor__gemm_room(&g, job->workers) + task * g.m * g.n;
    const float *a = (const float *)g.a + k0 * g.acs, *b = (const float *)g.b + k0 * g.brs;
    g.k = g.k * (task + 1) / job->parts - k0;
    g.bias = NULL; g.accumulate = 0; g.crs = g.n;
    r[0] = r[2] = r[4] = 0; r[1] = g.m; r[3] = g.n; r[5] = g.k;
    if (TENSOR__K(gemm_is_dot)(&g)) TENSOR__K(gemm_dots)(&g, a, b, part, r);
    else TENSOR__K(gemm_block)(&g, a, b, part, r, NULL, s);
}

TENSOR__FN void TENSOR__K(gemm_split)(tensor__gemm_job_t *job) {
    const tensor__gemm_t *g = job->g;
    const float *parts = tensor__gemm_room(g, job->workers), *bias = (const float *)g->bias;
    int64_t i, j, t;
    tensor__parallel(job->parts, TENSOR__K(gemm_part), job);
    for (i = 0; i < g->m; i++)
        for (j = 0; j < g->n; j++) {
            float *c = (float *)g->c + (g->coff ? g->coff[0] : 0) + i * g->crs + j, v;
            double sum = 0;
            for (t = 0; t < job->parts; t++) sum += (double)parts[(t * g->m + i) * g->n + j];
            v = (float)sum;
            if (bias) v += bias[j];
            *c = g->accumulate ? *c + v : v;
        }
}

/* The layers of a tiny net: A and B in place, one chunk of k, whole vectors or masks. The same tiles as
 * gemm_block, so the same bits, without what only larger sizes need. */
TENSOR__FN void TENSOR__K(gemm_tiny)(const tensor__gemm_t *g, int64_t ars, int64_t acs, int64_t brs) {
    const float *a = (const float *)g->a + (g->aoff ? g->aoff[0] : 0), *bias = (const float *)g->bias;
    const float *b = (const float *)g->b + (g->boff ? g->boff[0] : 0);
    float *c = (float *)g->c + (g->coff ? g->coff[0] : 0);
    int m = (int)g->m, n = (int)g->n, col = acs != 1, high, mr0 = tensor__gemm_height(m, TENSOR__MR, &high),
        i, j, w, mr;
    for (i = 0; i < m; i += mr, a += mr * ars, c += mr * g->crs) {
        const tensor__gemm_tile_fn *fn;
        mr = mr0 + (i < high);
        fn = TENSOR__K(gemm_tiles)[mr - 1][col];
        for (j = 0; j < n; j += w) {
            int two = n - j >= TENSOR__NR;
            w = TENSOR__MIN(n - j, two ? TENSOR__NR : V_N);
            fn[two](g->k, a, col ? acs : ars, b + j, brs, c + j, g->crs, bias ? bias + j : bias,
                    g->accumulate, w);
        }
    }
}

TENSOR__FN void TENSOR__K(gemm_f32)(const tensor__gemm_t *call) {
    tensor__gemm_job_t job;
    tensor__gemm_t g;
    int64_t ars = call->ars, acs = call->acs, brs = call->brs, bcs = call->bcs, i, p, mc, kc;
    if (call->m <= 0 || call->n <= 0 || call->batch <= 0) return;
    if (call->k <= 0) { tensor__gemm_empty(call, 4); return; }
    /* a stride nobody walks is free: make it say contiguous */
    if (call->k == 1) acs = 1;
    else if (call->m == 1 && acs != 1) ars = 1;
    if (call->n == 1) bcs = 1;
    else if (call->k == 1 && bcs != 1) brs = 1;
    if (call->batch == 1 && bcs == 1 && (acs == 1 || ars == 1) && call->m <= 64 && call->n <= 64
        && call->k <= 128 && (TENSOR__PASS == 3 || call->n % V_N == 0)) {
        TENSOR__K(gemm_tiny)(call, ars, acs, brs);
        return;
    }
    if (call->m == 1 && call->batch == 1 && acs == 1 && brs == 1 && call->k <= TENSOR__GEMM_KD
        && call->n * call->k <= 65536 && !call->accumulate && V_N > 1) {
        TENSOR__K(gemm_row)(call, bcs);
        return;
    }
    g = *call;
    g.ars = ars; g.acs = acs; g.brs = brs; g.bcs = bcs;
    job.g = &g;
    job.workers = tensor__thread_count();
    job.parts = tensor__gemm_splits(&g);
    if (job.parts) {
        if (g.aoff) { g.a = (const float *)g.a + g.aoff[0]; g.aoff = NULL; }
        if (g.boff) { g.b = (const float *)g.b + g.boff[0]; g.boff = NULL; }
        TENSOR__K(gemm_split)(&job);
        return;
    }
    job.cut = tensor__gemm_cut(&g, job.workers, TENSOR__MR, TENSOR__NR);
    /* threads that would each pack A pack it together, a block at a time */
    job.shared = job.cut.tasks > 1 && g.batch == 1 && !TENSOR__K(gemm_is_dot)(&g)
        && !TENSOR__K(gemm_a_here)(&g) && !TENSOR__K(gemm_b_here)(&g);
    kc = job.shared ? tensor__gemm_chunk(g.k) : g.k;
    mc = (g.m - 1) / TENSOR__GEMM_MC + 1;       /* equal blocks of whole panels */
    mc = job.shared ? ((g.m - 1) / mc / TENSOR__MR + 1) * TENSOR__MR : g.m;
    for (i = 0; i < g.m; i += mc)
        for (p = 0; p < g.k; p += kc) {
            job.r[0] = i; job.r[1] = TENSOR__MIN(i + mc, g.m);
            job.r[4] = p; job.r[5] = TENSOR__MIN(p + kc, g.k);
            if (job.shared)
                tensor__parallel((job.r[1] - i - 1) / (8 * TENSOR__MR) + 1, TENSOR__K(gemm_share), &job);
            tensor__parallel(job.cut.tasks, TENSOR__K(gemm_task), &job);
        }
}

/* c[4][2 vectors] = sum over p of the rows (1..4) of a times b[p][2 vectors]; a row that is not there gets
 * the last one's sum. Vectors of the compiler: multiply and add need no names, and two lanes exist without
 * SIMD. */
#undef TENSOR__L64
#define TENSOR__L64 (V_N > 4 ? V_N / 2 : 2)
typedef double TENSOR__K(doubles) __attribute__((vector_size(8 * TENSOR__L64), aligned(8), may_alias));
TENSOR__FN void TENSOR__K(gemm_tile_f64)(int64_t k, int64_t rows, const double *a, int64_t ars, int64_t acs,
                                         const double *b, double *c) {
    TENSOR__K(doubles) c0 = { 0, 0 }, c1 = c0, c2 = c0, c3 = c0, d0 = c0, d1 = c0, d2 = c0, d3 = c0;
    TENSOR__K(doubles) *o = (TENSOR__K(doubles) *)(void *)c;
    const double *a1 = rows > 1 ? a + ars : a, *a2 = rows > 2 ? a1 + ars : a1, *a3 = rows > 3 ? a2 + ars : a2;
    for (; k > 0; k--, a += acs, a1 += acs, a2 += acs, a3 += acs, b += 2 * TENSOR__L64) {
        TENSOR__K(doubles) x = *(const TENSOR__K(doubles) *)(const void *)b;
        TENSOR__K(doubles) y = *(const TENSOR__K(doubles) *)(const void *)(b + TENSOR__L64);
        c0 += *a * x; d0 += *a * y;
        c1 += *a1 * x; d1 += *a1 * y;
        c2 += *a2 * x; d2 += *a2 * y;
        c3 += *a3 * x; d3 += *a3 * y;
    }
    o[0] = c0; o[1] = d0; o[2] = c1; o[3] = d1;
    o[4] = c2; o[5] = d2; o[6] = c3; o[7] = d3;
}

// ------------------------------------------------------------------------------
// >>kernel-random                                  MARK: random numbers, conversions
//
// Only products and sums that no FMA joins, so a number is the same whatever the instruction set. Rejected:
// the generator of the C library, or one with a state that runs on (numbers would depend on the number of
// threads).
// ------------------------------------------------------------------------------

// Two normal numbers by Box and Muller from two words: u1 in (0, 1], so the logarithm is finite.
TENSOR__INLINE void TENSOR__K(box_muller)(V_I w1, V_I w2, V_F *x, V_F *y) {
    V_F f = V_ADD(V_MUL(V_FROM_I(VI_SHR(w1, 16)), V_SET(65536.0f)),
                  V_ADD(V_FROM_I(VI_AND(w1, VI_SET(0xFFFF))), V_SET(0.5f)));
    // f = (1 + t) 2^e, t from sqrt(1/2) - 1
    V_I bits = VI_SUB(V_BITS(f), VI_SET(0x3F3504F3)), e = VI_SAR(bits, 23), minus_s, minus_c;
    V_F t = V_SUB(V_OF(VI_ADD(VI_AND(bits, VI_SET(0x007FFFFF)), VI_SET(0x3F3504F3))), V_SET(1.0f));
    V_F s, c, r, a, p;
    V_M odd;
    // ln(1 + t) = t - t^2 / 2 + t^3 p(t), relative error 2^-24.9
    p = V_SET(0.08700430393218994f);
    TENSOR__HORNER6(TENSOR__C_TWICE, p, t, -0.14267486333847046f, 0.14914768934249878f, -0.1657758504152298f,
                    0.19963063299655914f, -0.2500133812427521f, 0.3333390951156616f);
    a = V_MUL(t, t);
    p = V_ADD(V_SUB(t, V_MUL(V_SET(0.5f), a)), V_MUL(V_MUL(a, t), p));
    p = V_ADD(V_MUL(V_FROM_I(VI_SUB(e, VI_SET(32))), V_SET(0.6931471805599453f)), p);
    r = V_SQRT(V_MAXR(V_MUL(V_SET(-2.0f), p), V_ZERO()));
    // the angle is q quarter turns and a, |a| <= pi/4: Taylor to a^9 and a^10
    e = VI_SHR(VI_ADD(w2, VI_SET(1 << 29)), 30);
    a = V_MUL(V_FROM_I(VI_SUB(w2, VI_SHL(e, 30))), V_SET(1.4629180792671596e-9f));
    t = V_MUL(a, a);
    s = V_SET(2.7557319e-6f);
    TENSOR__HORNER3(TENSOR__C_TWICE, s, t, -1.98412698e-4f, 8.33333333e-3f, -1.66666667e-1f);
    s = V_ADD(a, V_MUL(V_MUL(a, t), s));
    c = V_SET(-2.75573192e-7f);
    TENSOR__HORNER5(TENSOR__C_TWICE, c, t, 2.48015873e-5f, -1.38888889e-3f, 4.16666667e-2f, -0.5f, 1.0f);
    odd = VI_EQ(VI_AND(e, VI_SET(1)), VI_SET(1));
    minus_s = VI_SHL(VI_AND(e, VI_SET(2)), 30);
    minus_c = VI_SHL(VI_AND(VI_ADD(e, VI_SET(1)), VI_SET(2)), 30);
    p = V_SEL(odd, s, c);
    s = V_SEL(odd, c, s);
    *x = V_MUL(r, V_OF(VI_XOR(V_BITS(p), minus_c)));
    *y = V_MUL(r, V_OF(VI_XOR(V_BITS(s), minus_s)));
}
// Elements first .. first + n of a stream, first a multiple of 4: a + b u, u uniform in [0, 1), or a + b z, z
// normal.
TENSOR__FN void TENSOR__K(random)(int normal, tensor_generator_t g, int64_t first, int64_t n, float a,
                                  float b, float *out) {
    for (int64_t i = 0; i < n; i += 8 * V_N) {
        V_I w[8];
        V_F y[8];
        TENSOR__K(philox)(g, (uint64_t)(first + i) >> 2, w);
        for (int k = 0; k < 8; k += 2) {
            if (normal) {
                TENSOR__K(box_muller)(w[k], w[k + 1], &y[k], &y[k + 1]);
            } else {
                y[k] = V_MUL(V_FROM_I(VI_SHR(w[k], 8)), V_SET(5.9604644775390625e-8f));
                y[k + 1] = V_MUL(V_FROM_I(VI_SHR(w[k + 1], 8)), V_SET(5.9604644775390625e-8f));
            }
            y[k] = V_ADD(V_SET(a), V_MUL(V_SET(b), y[k]));
            y[k + 1] = V_ADD(V_SET(a), V_MUL(V_SET(b), y[k + 1]));
        }
        TENSOR__QUADS(y);
        TENSOR__QUADS(y + 4);
        float t[8 * V_N], *to = n - i < 8 * V_N ? t : out + i;
        for (int k = 0; k < 8; k++) { V_STORE(to + k * V_N, y[k]); }
        if (to == t) { memcpy(out + i, t, (size_t)(n - i) * sizeof(float)); }
    }
}

// n elements to f32 and back; 0 = not a dtype they know. BOOL: 1 where the value is not 0.
TENSOR__FN int64_t TENSOR__K(load)(float *d, const void *p, int dtype, int64_t n) {
    const uint8_t *b = (const uint8_t *)p;
    const uint16_t *h = (const uint16_t *)p;
    int64_t i = 0;
    switch (dtype) {
    case TENSOR_U8: TENSOR__WHOLE { V_STORE(d + i, V_FROM_I(VI_LOAD_U8(b + i))); } break;
    case TENSOR_BOOL:
        TENSOR__WHOLE { V_STORE(d + i, V_MINR(V_FROM_I(VI_LOAD_U8(b + i)), V_SET(1.0f))); }
        break;
    case TENSOR_I32: TENSOR__WHOLE { V_STORE(d + i, V_FROM_I(VI_LOAD((const int32_t *)p + i))); } break;
    case TENSOR_F16: TENSOR__WHOLE { V_STORE(d + i, V_LOAD_F16(h + i)); } break;
    case TENSOR_BF16: TENSOR__WHOLE { V_STORE(d + i, V_LOAD_BF16(h + i)); } break;
    default: break;
    }
    return i;
}
TENSOR__FN int64_t TENSOR__K(store)(void *p, int dtype, const float *s, int64_t n) {
    uint16_t *h = (uint16_t *)p;
    int64_t i = 0;
    switch (dtype) {
    case TENSOR_BOOL:
        TENSOR__WHOLE {
            V_F one = V_SEL(V_NE(V_LOAD(s + i), V_ZERO()), V_SET(1.0f), V_ZERO());
            VI_STORE_U8((uint8_t *)p + i, VI_TRUNC(one));
        }
        break;
    case TENSOR_F16: TENSOR__WHOLE { V_STORE_F16(h + i, V_LOAD(s + i)); } break;
    case TENSOR_BF16: TENSOR__WHOLE { V_STORE_BF16(h + i, V_LOAD(s + i)); } break;
    default: break;
    }
    return i;
}

// Where x first has the value v, the first NaN if v is one; n if nowhere.
TENSOR__FN int64_t TENSOR__K(find)(const float *x, int64_t n, float v) {
    int nan = tensor__isnan_f32(v);
    int64_t i = 0;
    TENSOR__WHOLE {
        V_F u = V_LOAD(x + i);
        if (nan ? M_ANY(V_ISNAN(u)) : M_ANY(V_EQ(u, V_SET(v)))) { break; }
    }
    while (i < n && !(nan ? tensor__isnan_f32(x[i]) : x[i] == v)) { i++; }
    return i;
}

// y[c][r] = x[r][c] for all rows and columns; ld elements from line to line.
TENSOR__FN void TENSOR__K(transpose)(int64_t rows, int64_t columns, const float *x, int64_t xld, float *y,
                                     int64_t yld) {
    float t[64 * V_N];
    for (int64_t c = 0; c < columns; c += 64) {
        int64_t n = columns - c < 64 ? columns - c : 64;
        for (int64_t r = 0; r < rows; r += V_N) {
            int w = (int)(rows - r < V_N ? rows - r : V_N);
            const float *from = x + r * xld + c;
            if (w == V_N) {
                TENSOR__K(gemm_transpose)(n, w, from, xld, y + c * yld + r, yld);
                continue;
            }
            TENSOR__K(gemm_transpose)(n, w, from, xld, t, V_N);
            for (int64_t k = 0; k < n; k++) {
                memcpy(y + (c + k) * yld + r, t + k * V_N, (size_t)w * sizeof(float));
            }
        }
    }
}

// ------------------------------------------------------------------------------
// >>kernel-table                                   MARK: what a pass offers
// ------------------------------------------------------------------------------

static const tensor__isa_t TENSOR__K(isa) = {
    TENSOR__K(forward), TENSOR__K(backward), V_N,
    TENSOR__K(leaf_sum), TENSOR__K(leaf_max), TENSOR__K(leaf_min), TENSOR__K(add_row),
    TENSOR__K(row_softmax), TENSOR__K(row_log_softmax), TENSOR__K(row_logsumexp),
    TENSOR__K(row_softmax_backward), TENSOR__K(row_log_softmax_backward), TENSOR__K(row_dot),
    TENSOR__K(gemm_f32), TENSOR__K(gemm_tile_f64), TENSOR__K(random), TENSOR__K(load), TENSOR__K(store),
    TENSOR__K(find), TENSOR__K(transpose),
};
#endif   // core kernels

#if !defined(TENSOR__PASS_OPEN) && !defined(TENSOR__PASS_CLOSE)     // the words of the formulas end
#undef F_A
#undef F_ABS
#undef F_ACOS
#undef F_ADD
#undef F_AND
#undef F_ASIN
#undef F_ATAN
#undef F_ATAN2
#undef F_B
#undef F_C
#undef F_CEIL
#undef F_COS
#undef F_COSH
#undef F_C_
#undef F_DIV
#undef F_EQ
#undef F_ERF
#undef F_ERFC
#undef F_EXP
#undef F_EXP2
#undef F_EXPM1
#undef F_FLOOR
#undef F_FLOORDIV
#undef F_FMOD
#undef F_G
#undef F_GE
#undef F_GELU
#undef F_GT
#undef F_INF
#undef F_ISNAN
#undef F_LE
#undef F_LOG
#undef F_LOG10
#undef F_LOG1P
#undef F_LOG2
#undef F_LT
#undef F_MAX
#undef F_MIN
#undef F_MUL
#undef F_NE
#undef F_NEG
#undef F_OR
#undef F_P
#undef F_POLYGAMMA
#undef F_POW
#undef F_REMAINDER
#undef F_ROUND
#undef F_RSQRT
#undef F_SEL
#undef F_SIGMOID
#undef F_SIGN
#undef F_SIN
#undef F_SINH
#undef F_SQRT
#undef F_SUB
#undef F_TAN
#undef F_TANH
#undef F_TRUNC
#undef F_XOR
#undef F_Y
#endif

#if !defined(TENSOR__PASS_OPEN) && !defined(TENSOR__PASS_WORDS)
/* Closes the pass. */
#if defined(__clang__)
#if TENSOR__PASS > 0 && TENSOR__PASS < 4
#pragma clang attribute pop
#endif
#elif defined(__GNUC__)
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
#undef D_ADD
#undef D_DIV
#undef D_FMA
#undef D_MUL
#undef D_OF_F
#undef D_SET
#undef D_SUB
#undef F_OF_D
#undef M_ALL
#undef M_AND
#undef M_ANY
#undef M_NOT
#undef M_OR
#undef M_XOR
#undef TENSOR__DV
#undef TENSOR__D_FMA
#undef TENSOR__D_HI
#undef TENSOR__D_JOIN
#undef TENSOR__D_LO
#undef TENSOR__D_OP
#undef TENSOR__D_SET1
#undef TENSOR__FOLD
#undef TENSOR__WIDE_HI
#undef TENSOR__WIDE_LO
#undef TENSOR__COMPARE
#undef TENSOR__FAR
#undef TENSOR__FIRST
#undef TENSOR__K
#undef TENSOR__K2
#undef TENSOR__LOAD16
#undef TENSOR__MM
#undef TENSOR__RINT_S
#undef TENSOR__S
#undef TENSOR__SI
#undef TENSOR__STORE16
#undef TENSOR__TO_WHOLE
#undef TENSOR__U
#undef VI_ADD
#undef VI_AND
#undef VI_EQ
#undef VI_GT
#undef VI_LOAD
#undef VI_MULHI
#undef VI_MULLO
#undef VI_OR
#undef VI_RINT
#undef VI_SAR
#undef VI_SEL
#undef VI_SET
#undef VI_SHL
#undef VI_SHR
#undef VI_STORE
#undef VI_SUB
#undef VI_TRUNC
#undef VI_WIDE
#undef VI_XOR
#undef V_ABS
#undef V_ADD
#undef V_AHEAD
#undef V_BITS
#undef V_CEIL
#undef V_COPYSIGN
#undef V_CUT_PART
#undef V_D
#undef V_DIV
#undef V_EQ
#undef V_EXP
#undef V_F
#undef V_FLOOR
#undef V_FMA
#undef V_FNMA
#undef V_FROM_I
#undef V_GE
#undef V_GT
#undef V_HMAX
#undef V_HMIN
#undef V_HSUM
#undef V_I
#undef V_ISNAN
#undef V_LDEXP
#undef V_LDEXP1
#undef V_LE
#undef V_LOAD
#undef V_LOAD_BF16
#undef VI_LOAD_U8
#undef VI_STORE_U8
#undef TENSOR__QUADS
#undef V_LOAD_F16
#undef V_LOG
#undef V_LOG1P
#undef V_LOOKUP
#undef V_LT
#undef V_M
#undef V_MAX
#undef V_MAXR
#undef V_MIN
#undef V_MINR
#undef V_MUL
#undef V_N
#undef V_NE
#undef V_NEG
#undef V_OF
#undef V_PART
#undef V_PUT_PART
#undef V_RINT
#undef V_SEL
#undef V_SET
#undef V_SIGMOID
#undef V_SQRT
#undef V_STORE
#undef V_STORE_BF16
#undef V_STORE_F16
#undef V_SUB
#undef V_TANH
#undef V_TRUNC
#undef V_ZERO
#endif   // !TENSOR__PASS_OPEN
#ifndef TENSOR__PASS_OPEN
#undef TENSOR__PASS
#undef TENSOR__PASS_WORDS
#endif
#endif   // TENSOR__PASS

// ------------------------------------------------------------------------------
// >>impl                                           MARK: implementation
// ------------------------------------------------------------------------------

#if defined(TENSOR_IMPLEMENTATION) && !defined(TENSOR_IMPLEMENTATION_DONE) && !defined(TENSOR__PASS)
#define TENSOR_IMPLEMENTATION_DONE

// Inside the implementation a call to a public function leaves the stamp to the user's own call.
#undef TENSOR_HERE
#undef TENSOR__IN
#define TENSOR_HERE ((const char *)0)
#define TENSOR__IN(function) ((const char *)0)

#include <stdlib.h>
#ifdef TENSOR_USE_OPENBLAS
#include <cblas.h>
#endif
#ifndef TENSOR_NO_STDIO
#include <stdio.h>
#endif

// Same bits whatever the flags: a product and a sum fuse only where F_FMA or V_FMA says so.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>impl-platform                                  MARK: threads, atomics, CPU features, memory
//
// The only place that knows operating systems and compilers. Every thread primitive the library uses is
// here: one mutex with condition variable, thread start and join, one thread-local pointer with a
// destructor. Rejected: C11 threads and atomics (missing in C99 and C++11, and on some systems),
// thread-local keywords (their destructors differ).
// ------------------------------------------------------------------------------

#if defined(TENSOR_NO_THREADS)
#define TENSOR__TLS
typedef int tensor__mutex_t;
#define TENSOR__MUTEX_INIT 0
#define TENSOR__LOCK(m) ((void)(m))
#define TENSOR__UNLOCK(m) ((void)(m))
#define TENSOR__YIELD() ((void)0)
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define TENSOR__TLS __declspec(thread)
typedef SRWLOCK tensor__mutex_t;
#define TENSOR__MUTEX_INIT SRWLOCK_INIT
#define TENSOR__LOCK(m) AcquireSRWLockExclusive(m)
#define TENSOR__UNLOCK(m) ReleaseSRWLockExclusive(m)
#define TENSOR__YIELD() ((void)SwitchToThread())
typedef CONDITION_VARIABLE tensor__signal_t;
typedef HANDLE tensor__os_thread_t;
#define TENSOR__MUTEX_START(m) InitializeSRWLock(m)
#define TENSOR__SIGNAL_START(s) InitializeConditionVariable(s)
#define TENSOR__SIGNAL_WAIT(s, m) ((void)SleepConditionVariableSRW(s, m, INFINITE, 0))
#define TENSOR__SIGNAL_ALL(s) WakeAllConditionVariable(s)
#define TENSOR__THREAD_MAIN(name) DWORD WINAPI name(LPVOID arg)
#define TENSOR__THREAD_START(t, fn, arg) ((*(t) = CreateThread(NULL, 0, fn, arg, 0, NULL)) != NULL)
#define TENSOR__THREAD_JOIN(t) ((void)WaitForSingleObject(t, INFINITE), (void)CloseHandle(t))
#else
#include <pthread.h>
#include <unistd.h>
#include <sched.h>
#define TENSOR__TLS __thread
typedef pthread_mutex_t tensor__mutex_t;
#define TENSOR__MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define TENSOR__LOCK(m) ((void)pthread_mutex_lock(m))
#define TENSOR__UNLOCK(m) ((void)pthread_mutex_unlock(m))
#define TENSOR__YIELD() ((void)sched_yield())
typedef pthread_cond_t tensor__signal_t;
typedef pthread_t tensor__os_thread_t;
#define TENSOR__MUTEX_START(m) ((void)pthread_mutex_init(m, NULL))
#define TENSOR__SIGNAL_START(s) ((void)pthread_cond_init(s, NULL))
#define TENSOR__SIGNAL_WAIT(s, m) ((void)pthread_cond_wait(s, m))
#define TENSOR__SIGNAL_ALL(s) ((void)pthread_cond_broadcast(s))
#define TENSOR__THREAD_MAIN(name) void *name(void *arg)
#define TENSOR__THREAD_START(t, fn, arg) (pthread_create(t, NULL, fn, arg) == 0)
#define TENSOR__THREAD_JOIN(t) ((void)pthread_join(t, NULL))
#endif

#if defined(TENSOR_NO_THREADS)
#define TENSOR__PTR_LOAD(p) (*(p))
#define TENSOR__PTR_SWAP(p, v) tensor__ptr_swap((void **)(p), v)
TENSOR__FN void *tensor__ptr_swap(void **p, void *v) { void *old = *p; *p = v; return old; }
#define TENSOR__PTR_CAS(p, expected, v) (*(p) == *(expected) ? (*(p) = (v), 1) : (*(expected) = *(p), 0))
#define TENSOR__U64_LOAD(p) (*(p))
#define TENSOR__U64_CAS(p, expected, v) (*(p) == *(expected) ? (*(p) = (v), 1) : (*(expected) = *(p), 0))
#define TENSOR__RELAXED_LOAD(p) (*(p))
#define TENSOR__RELAXED_STORE(p, v) ((void)(*(p) = (v)))
#define TENSOR__PAUSE() ((void)0)
#elif defined(__GNUC__) || defined(__clang__)
#define TENSOR__PTR_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define TENSOR__PTR_SWAP(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
#define TENSOR__PTR_CAS(p, expected, v)                                                                      \
    __atomic_compare_exchange_n(p, expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define TENSOR__U64_LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define TENSOR__U64_CAS TENSOR__PTR_CAS
#define TENSOR__RELAXED_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define TENSOR__RELAXED_STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#if defined(__x86_64__) || defined(__i386__)
#define TENSOR__PAUSE() __builtin_ia32_pause()
#else
#define TENSOR__PAUSE() ((void)0)
#endif
#else   // MSVC
#define TENSOR__PTR_LOAD(p) (*(p))
#define TENSOR__PTR_SWAP(p, v) _InterlockedExchangePointer((void *volatile *)(p), v)
#define TENSOR__PTR_CAS(p, expected, v) tensor__cas_ptr((void *volatile *)(p), (void **)(expected), v)
TENSOR__FN int tensor__cas_ptr(void *volatile *p, void **expected, void *v) {
    void *old = _InterlockedCompareExchangePointer(p, v, *expected);
    int done = old == *expected;
    *expected = old;
    return done;
}
#define TENSOR__U64_LOAD(p) ((uint64_t)_InterlockedCompareExchange64((volatile __int64 *)(p), 0, 0))
#define TENSOR__U64_CAS(p, expected, v) tensor__cas_u64(p, expected, v)
TENSOR__FN int tensor__cas_u64(uint64_t *p, uint64_t *expected, uint64_t v) {
    uint64_t old = (uint64_t)_InterlockedCompareExchange64((volatile __int64 *)p, (__int64)v,
                                                           (__int64)*expected);
    int done = old == *expected;
    *expected = old;
    return done;
}
#define TENSOR__RELAXED_LOAD(p) (*(p))
#define TENSOR__RELAXED_STORE(p, v) ((void)(*(p) = (v)))
#define TENSOR__PAUSE() _mm_pause()
#endif

// A lock; who waits for it spins.
TENSOR__FN void tensor__spin(tensor__count_t *lock) {
    while (TENSOR__ATOMIC_ADD(lock, 1) != 0) {
        (void)TENSOR__ATOMIC_ADD(lock, -1);
        TENSOR__PAUSE();
    }
}
TENSOR__INLINE void tensor__unspin(tensor__count_t *lock) { (void)TENSOR__ATOMIC_ADD(lock, -1); }

// Aligned memory: the pointer malloc gave is kept in front of the block. Linux is asked to back what is large
// by huge pages: fewer faults, and products of matrices beyond the caches walk fewer pages (1024^3: 7 %).
#ifndef TENSOR_MALLOC
#define TENSOR_MALLOC(bytes, alignment) tensor__default_alloc(bytes, alignment)
#define TENSOR_FREE(p, bytes, alignment) tensor__default_free(p)
#if defined(__linux__) && defined(__GNUC__)
#define TENSOR__HUGE ((size_t)1 << 21)
// By another name: with -std=c99 no header has it, and one that has it may say more of it.
extern int tensor__madvise(void *p, size_t bytes, int advice) __asm__("madvise");
#endif
TENSOR__FN void *tensor__default_alloc(size_t bytes, size_t alignment) {
#ifdef TENSOR__HUGE
    if (bytes >= TENSOR__HUGE) { alignment = TENSOR__HUGE; }
#endif
    if (bytes > SIZE_MAX - alignment - sizeof(void *)) { return NULL; }
    char *raw = (char *)malloc(bytes + alignment + sizeof(void *));
    if (!raw) { return NULL; }
    uintptr_t at = ((uintptr_t)raw + sizeof(void *) + alignment - 1) & ~(uintptr_t)(alignment - 1);
#ifdef TENSOR__HUGE
    if (bytes >= TENSOR__HUGE) {
        (void)tensor__madvise((void *)at, bytes & ~(TENSOR__HUGE - 1), 14);     // MADV_HUGEPAGE
    }
#endif
    ((void **)at)[-1] = raw;
    return (void *)at;
}
TENSOR__FN void tensor__default_free(void *p) { free(((void **)p)[-1]); }
#endif
TENSOR__FN void *tensor__hook_alloc(void *user, size_t bytes, size_t alignment) {
    (void)user;
    return TENSOR_MALLOC(bytes, alignment);
}
TENSOR__FN void tensor__hook_free(void *user, void *p, size_t bytes, size_t alignment) {
    (void)user, (void)bytes, (void)alignment;
    TENSOR_FREE(p, bytes, alignment);
}

// Index into tensor__isas of the best one this machine runs. x86: 0 scalar, 1 SSE2, 2 AVX2+FMA, 3 AVX-512
// F/DQ/BW/VL; AArch64 and WebAssembly: 0 scalar, 1 the vectors that all have.
TENSOR__FN int tensor__cpu_best(void) {
#ifdef TENSOR__X86_PASSES
#if defined(__GNUC__) || defined(__clang__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return 3;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { return 2; }
    return 1;
#else
    int r[4], s[4];
    __cpuid(r, 1);
    if (!(r[2] & (1 << 27)) || (_xgetbv(0) & 6) != 6) { return 1; }
    __cpuidex(s, 7, 0);
    if (((unsigned)s[1] & 0xC0030000u) == 0xC0030000u && (_xgetbv(0) & 0xE6) == 0xE6) { return 3; }
    return (s[1] & (1 << 5)) && (r[2] & (1 << 12)) ? 2 : 1;
#endif
#elif defined(TENSOR__ARM_PASSES) || defined(TENSOR__WASM_PASSES)
    return 1;
#else
    return 0;
#endif
}

// ------------------------------------------------------------------------------
// >>impl-state                                     MARK: context and thread layouts
//
// A thread's state holds everything its fast path touches, so an op takes no lock: free lists, scope stack,
// generator, error. It outlives the thread (it is "home" to its tensors) and is handed to the next thread
// that comes. Rejected: a lock in the context for every allocation, states that die with their threads (a
// tensor handed over would lose its home).
// ------------------------------------------------------------------------------

enum {
    TENSOR__CLASSES = 168,          // size classes, four per doubling from 64 bytes up
    TENSOR__QUARANTINE = 16384,     // dead headers kept back even when no scope is ever reset
    TENSOR__MAX_THREADS = 256,
    TENSOR__SLAB = 32,              // headers per slab
    TENSOR__PATH = 16               // module path depth kept for error texts
};

// In front of every block from the allocator, which it links into the context.
typedef struct tensor__raw_t {
    struct tensor__raw_t *next, **prev;
    tensor_context_t *ctx;
    uint64_t bytes;
    int headers;
} tensor__raw_t;

struct tensor__thread_t {
    tensor_context_t *ctx;
    tensor_t **stack;               // headers owned by scopes, oldest first; NULL = given away
    int64_t top, room;
    uint32_t scope_id;              // last given out
    int32_t depth;
    // user: not one of the library's own
    struct { int64_t mark; const tensor_saved_hooks_t *packing; uint32_t id; uint8_t grad_mode, modes, user;
             } *scopes;
    const tensor_saved_hooks_t *packing;
    int32_t scope_room;
    uint8_t grad_mode, modes, in_parallel;
    uint8_t device;                 // of tensors made from nothing
    uint8_t away;                   // calls went to a device whose site is not said yet
    uint64_t seq;                   // of the last node
    uint64_t epoch;                 // resets and ends of user scopes
    tensor_t *headers, *headers_tail;           // dead headers, oldest first
    int64_t header_count;
    tensor_t *fresh_headers;        // never used ones
    tensor__storage_t *storages;
    void *bins[TENSOR__CLASSES];
    tensor_t *foreign_headers;      // freed by other threads: lock-free stacks, drained when a list runs dry
    tensor__storage_t *foreign_storages;
    tensor__node_t *foreign_nodes;
    tensor_generator_t rng;
    tensor_t *fresh;                // last result not stamped with a call site yet
    tensor__storage_t *written;     // storage of the last in-place change not stamped yet
    tensor_t *freed;                // what tensor_free just ended, not stamped yet
    struct { int code, reported; const char *site, *outer; char op[200]; char text[480]; } error;
    char shown[760];                // tensor_error_text's buffer
    const char *path[TENSOR__PATH];
    int path_depth;
    int64_t live_tensors, live_nodes;
    int64_t live_bytes, peak_bytes;
    void *scratch;                  // grows, reused by every call
    uint64_t scratch_bytes;
    struct tensor__pass_t *pass;    // cached state of a backward pass
    int64_t pass_mark;              // scope stack below it was there before the running pass
    uint64_t owner;                 // number of the thread it serves, 0 = none
    tensor__thread_t *next, *next_idle;
};

typedef struct tensor__pool_t {
    int n;                          // threads, the caller included
    tensor_parallel_fn_t hook;
    void *hook_user;
    uint64_t state;                 // generation << 32 | open << 31 | workers inside
    tensor__count_t busy, stop, parked;
    tensor__count_t next[TENSOR__MAX_THREADS];    // task of each share
    tensor__count_t slots[TENSOR__MAX_THREADS];   // worker numbers in use, for the user's hook
    int64_t ntasks, shares, each, more;           // each: tasks of a share; one more in the first ones
    tensor__task_fn fn;
    void *arg;
#if !defined(TENSOR_NO_THREADS)
    size_t threads_bytes;
    tensor__mutex_t mutex;
    tensor__signal_t wake;
    tensor__os_thread_t *threads;
#endif
} tensor__pool_t;

struct tensor_context_t {
    tensor_allocator_t allocator;
    uint64_t limit, reserved, allocs, frees;
    tensor__raw_t *raw;
    tensor__mutex_t mutex;
    tensor__thread_t *threads, *idle;
    tensor__thread_t first;         // the first thread needs no allocation to come into being
    int first_used, ready;
    uint64_t thread_count;
    tensor_error_fn_t error_fn;
    void *error_user;
    tensor__owned_t *owned;
    struct tensor__hook_t *hooks;   // all there are, hook_count of them
    int64_t last_hook;
    tensor__count_t hook_count;
    int isa, isa_known, reference, default_dtype;
    // kernels of the plain door; NULL before the first choice and as reference
    const struct tensor__isa_t *plain;
    const tensor_backend_t *backend[2];         // the CPU, and the one of all other devices or NULL
    tensor__pool_t pool;
};

static tensor_context_t tensor__default;             // made ready by the first tensor__attach
static tensor__mutex_t tensor__global = TENSOR__MUTEX_INIT;
static int tensor__reads_known;
static tensor__count_t tensor__shutdown_count;
TENSOR__FN void tensor__reads_fill(void);
static TENSOR__TLS tensor__thread_t *tensor__tls;
static TENSOR__TLS uint64_t tensor__me;               // this thread's number, never used again

static const int64_t tensor__no_dims[1] = {0};
static tensor_t tensor__poison_tensor = {
    TENSOR__POISON_STATE, TENSOR_F32, 0, 0, 0, 1, 0, 0, 0, NULL, NULL, 0, -1, 0, 0, NULL, NULL, NULL,
    "poison", NULL, NULL, 0, NULL, 0, {0}, {0}};
#define TENSOR__POISON (&tensor__poison_tensor)

TENSOR__FN tensor__thread_t *tensor__attach(tensor_context_t *ctx);
TENSOR__INLINE tensor__thread_t *tensor__self(void) {
    tensor__thread_t *th = tensor__tls;
    return TENSOR__LIKELY(th != NULL) ? th : tensor__attach(&tensor__default);
}

// ------------------------------------------------------------------------------
// >>impl-alloc                                     MARK: caching allocator, slabs
//
// Size classes, four per doubling; a freed block goes to its home thread's list and comes back from there, so
// a steady step neither calls malloc nor takes a page fault. Raw blocks are linked into the context: shutdown
// frees them all. Rejected: per-object malloc (40 ns and fragmentation), one arena per step (its size is
// always a guess).
// ------------------------------------------------------------------------------

TENSOR__FN tensor_t *tensor__fail(tensor__thread_t *th, int code, const char *format, ...);
// Leaves a front with `value` and the error if `when` holds; with poison; with the error's code.
#define TENSOR__REFUSE_AS(value, when, code, ...)                                                            \
    do {                                                                                                     \
        if (when) { tensor__fail(tensor__self(), TENSOR_ERR_##code, __VA_ARGS__); return value; }            \
    } while (0)
#define TENSOR__REFUSE(when, code, ...) TENSOR__REFUSE_AS(TENSOR__POISON, when, code, __VA_ARGS__)
#define TENSOR__REFUSE_CODE(when, code, ...) TENSOR__REFUSE_AS(TENSOR_ERR_##code, when, code, __VA_ARGS__)
TENSOR__FN void tensor__cache_release(tensor__thread_t *th);

TENSOR__INLINE int tensor__mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
#if defined(__GNUC__) || defined(__clang__)
    return !__builtin_mul_overflow(a, b, out);      // a division would cost as much as half an op
#else
    if (b && a > UINT64_MAX / b) { return 0; }
    *out = a * b;
    return 1;
#endif
}

TENSOR__INLINE int64_t tensor__least(int64_t a, int64_t b) { return a < b ? a : b; }

// A counter that one thread writes and others read now and then.
TENSOR__INLINE void tensor__count(int64_t *counter, int64_t by) {
    TENSOR__RELAXED_STORE(counter, TENSOR__RELAXED_LOAD(counter) + by);
}

// Straight from the user's allocator. NULL if it fails or the limit is reached; raises nothing.
TENSOR__FN TENSOR__NOINLINE void *tensor__raw_alloc(tensor_context_t *ctx, uint64_t bytes) {
    if (bytes > (uint64_t)SIZE_MAX - 64) { return NULL; }
    TENSOR__LOCK(&ctx->mutex);
    tensor__raw_t *r = NULL;
    uint64_t total = bytes + 64;
    if (!ctx->limit || (ctx->reserved + total >= total && ctx->reserved + total <= ctx->limit)) {
        if (!ctx->allocator.alloc) {
            ctx->allocator.alloc = tensor__hook_alloc;
            ctx->allocator.free = tensor__hook_free;
        }
        r = (tensor__raw_t *)ctx->allocator.alloc(ctx->allocator.user, (size_t)total, 64);
    }
    if (r) {
        r->bytes = total;
        r->ctx = ctx;
        r->headers = 0;
        r->next = ctx->raw;
        r->prev = &ctx->raw;
        if (ctx->raw) { ctx->raw->prev = &r->next; }
        ctx->raw = r;
        ctx->reserved += total;
        ctx->allocs++;
    }
    TENSOR__UNLOCK(&ctx->mutex);
    return r ? (char *)r + 64 : NULL;
}
TENSOR__FN TENSOR__NOINLINE void tensor__raw_free(tensor_context_t *ctx, void *p) {
    if (!p) { return; }
    tensor__raw_t *r = (tensor__raw_t *)(void *)((char *)p - 64);
    ctx = r->ctx;           // the block's own, whatever context the caller uses now
    TENSOR__LOCK(&ctx->mutex);
    *r->prev = r->next;
    if (r->next) { r->next->prev = r->prev; }
    ctx->reserved -= r->bytes;
    ctx->frees++;
    ctx->allocator.free(ctx->allocator.user, r, (size_t)r->bytes, 64);
    TENSOR__UNLOCK(&ctx->mutex);
}
// The thread's own cache is given up before an allocation fails (another's is not this thread's to touch).
TENSOR__FN TENSOR__NOINLINE void *tensor__raw_or_release(tensor__thread_t *th, uint64_t bytes) {
    void *p = tensor__raw_alloc(th->ctx, bytes);
    if (!p) {
        tensor__cache_release(th);
        p = tensor__raw_alloc(th->ctx, bytes);
    }
    return p;
}

// Class of a size, and the bytes its blocks have: 64, 128, 192, 256, 320, 384, 448, 512, 640, ...
TENSOR__INLINE int tensor__class_of(uint64_t bytes) {
    if (bytes <= 64) { return 0; }
    uint64_t s = (bytes - 1) | 63;
#if defined(__GNUC__) || defined(__clang__)
    int e = 63 - __builtin_clzll((unsigned long long)s);
#else
    int e = 6;
    while (s >> (e + 1)) { e++; }
#endif
    return (e - 6) * 4 + (int)((s >> (e - 2)) & 3) + 1;
}
TENSOR__INLINE uint64_t tensor__class_bytes(int k) {
    unsigned at = (unsigned)k + 3;
    return (uint64_t)(5 + (at & 3)) << (at / 4 + 3);
}

TENSOR__FN void tensor__drain(tensor__thread_t *th);

// A block of a class; its size is tensor__class_bytes. NULL = out of memory (not raised).
TENSOR__FN TENSOR__NOINLINE void *tensor__block_slow(tensor__thread_t *th, int k) {
    tensor__drain(th);
    void *p = th->bins[k];
    if (p) {
        th->bins[k] = *(void **)p;
        return p;
    }
    uint64_t bytes = tensor__class_bytes(k);
    if (bytes > 2048) { return tensor__raw_or_release(th, bytes); }
    int n = (int)(8192 / bytes);    // small ones are carved from one raw block
    char *slab = (char *)tensor__raw_or_release(th, bytes * (uint64_t)n);
    if (!slab) { return NULL; }
    for (int i = n - 1; i > 0; i--) {
        *(void **)(void *)(slab + bytes * (uint64_t)i) = th->bins[k];
        th->bins[k] = slab + bytes * (uint64_t)i;
    }
    return slab;
}
TENSOR__INLINE void *tensor__block(tensor__thread_t *th, uint64_t bytes, int16_t *klass) {
    int k = tensor__class_of(bytes);
    if (k >= TENSOR__CLASSES) { return NULL; }
    *klass = (int16_t)k;
    void *p = th->bins[k];
    if (TENSOR__LIKELY(p != NULL)) {
        th->bins[k] = *(void **)p;
    } else {
        p = tensor__block_slow(th, k);
        if (!p) { return NULL; }
    }
    int64_t live = TENSOR__RELAXED_LOAD(&th->live_bytes) + (int64_t)tensor__class_bytes(k);
    TENSOR__RELAXED_STORE(&th->live_bytes, live);
    if (live > TENSOR__RELAXED_LOAD(&th->peak_bytes)) { TENSOR__RELAXED_STORE(&th->peak_bytes, live); }
    return p;
}
TENSOR__INLINE void tensor__block_free(tensor__thread_t *th, void *p, int klass) {
    *(void **)p = th->bins[klass];
    th->bins[klass] = p;
    tensor__count(&th->live_bytes, -(int64_t)tensor__class_bytes(klass));
}

// Pushes onto a lock-free stack of another thread.
#define TENSOR__PUSH_FOREIGN(head, item, type)                                                               \
    do {                                                                                                     \
        type *old_ = TENSOR__PTR_LOAD(head);                                                                 \
        do { (item)->next = old_; } while (!TENSOR__PTR_CAS(head, &old_, item));                             \
    } while (0)

TENSOR__INLINE void tensor__header_bury(tensor__thread_t *th, tensor_t *t) {
    t->next = NULL;
    t->epoch = th->epoch;
    if (th->headers) { th->headers_tail->next = t; } else { th->headers = t; }
    th->headers_tail = t;
    th->header_count++;
}
// Takes in what other threads freed for this one.
TENSOR__FN TENSOR__NOINLINE void tensor__drain(tensor__thread_t *th) {
    if (TENSOR__PTR_LOAD(&th->foreign_storages)) {
        tensor__storage_t *s = (tensor__storage_t *)TENSOR__PTR_SWAP(&th->foreign_storages, NULL);
        while (s) {
            tensor__storage_t *next = s->next;
            if (s->klass >= 0) { tensor__block_free(th, s->data, s->klass); }
            s->next = th->storages;
            th->storages = s;
            s = next;
        }
    }
    if (TENSOR__PTR_LOAD(&th->foreign_nodes)) {
        tensor__node_t *n = (tensor__node_t *)TENSOR__PTR_SWAP(&th->foreign_nodes, NULL);
        while (n) {
            tensor__node_t *next = n->next;
            tensor__block_free(th, n, n->klass);
            n = next;
        }
    }
    if (TENSOR__PTR_LOAD(&th->foreign_headers)) {
        tensor_t *t = (tensor_t *)TENSOR__PTR_SWAP(&th->foreign_headers, NULL);
        while (t) {
            tensor_t *next = t->next;
            tensor__header_bury(th, t);
            t = next;
        }
    }
}
// Gives cached blocks that are raw blocks of their own (> 2048 bytes) back to the allocator.
TENSOR__FN void tensor__cache_release(tensor__thread_t *th) {
    tensor__drain(th);
    for (int k = 0; k < TENSOR__CLASSES; k++) {
        if (tensor__class_bytes(k) <= 2048) { continue; }
        while (th->bins[k]) {
            void *p = th->bins[k];
            th->bins[k] = *(void **)p;
            tensor__raw_free(th->ctx, p);
        }
    }
    if (th->scratch) {
        tensor__raw_free(th->ctx, th->scratch);
        th->scratch = NULL;
        th->scratch_bytes = 0;
    }
}

// A header; only a dead one that survived a whole scope reset is used again, so that stale pointers are
// noticed.
TENSOR__FN TENSOR__NOINLINE tensor_t *tensor__header_slow(tensor__thread_t *th) {
    tensor__drain(th);
    enum { N = TENSOR__SLAB };
    tensor_t *slab = (tensor_t *)tensor__raw_or_release(th, N * sizeof(tensor_t));
    if (!slab) { return NULL; }
    memset(slab, 0, N * sizeof(tensor_t));
    ((tensor__raw_t *)(void *)((char *)slab - 64))->headers = N;
    for (int i = N - 1; i >= 0; i--) {
        slab[i].state = TENSOR__DEAD;
        slab[i].home = th;
        slab[i].next = th->fresh_headers;
        th->fresh_headers = &slab[i];
    }
    tensor_t *t = th->fresh_headers;
    th->fresh_headers = t->next;
    return t;
}
TENSOR__INLINE tensor_t *tensor__header(tensor__thread_t *th) {
    tensor_t *t = th->headers;
    if (TENSOR__LIKELY(t != NULL && (t->epoch < th->epoch || th->header_count > TENSOR__QUARANTINE))) {
        th->headers = t->next;
        th->header_count--;
        return t;
    }
    t = th->fresh_headers;
    if (TENSOR__LIKELY(t != NULL)) {
        th->fresh_headers = t->next;
        return t;
    }
    return tensor__header_slow(th);
}

TENSOR__FN TENSOR__NOINLINE int tensor__storage_slow(tensor__thread_t *th) {
    tensor__drain(th);
    if (th->storages) { return 1; }
    enum { N = 32 };
    tensor__storage_t *slab = (tensor__storage_t *)tensor__raw_or_release(th, N * sizeof(tensor__storage_t));
    if (!slab) { return 0; }
    memset(slab, 0, N * sizeof(tensor__storage_t));
    for (int i = 0; i < N; i++) {
        slab[i].home = th;
        slab[i].next = th->storages;
        th->storages = &slab[i];
    }
    return 1;
}
// Storage with `bytes` of fresh memory (data = NULL: own), or over foreign memory. NULL = out of memory, not
// raised.
TENSOR__INLINE tensor__storage_t *tensor__storage(tensor__thread_t *th, uint64_t bytes, void *data) {
    if (!th->storages && !tensor__storage_slow(th)) { return NULL; }
    tensor__storage_t *s = th->storages;
    th->storages = s->next;
    s->klass = -1;
    s->data = data;
    if (!data && !(s->data = tensor__block(th, bytes ? bytes : 1, &s->klass))) {
        s->next = th->storages;
        th->storages = s;
        return NULL;
    }
    s->bytes = bytes;
    s->refs = 1;
    s->version = 0;
    s->write_op = s->write_site = NULL;
    s->deleter = NULL;
    s->device = 0;
    return s;
}
// Memory of another device, or the host's memory for copies (TENSOR__PINNED). NULL = out of memory there or
// here, not raised.
TENSOR__FN TENSOR__NOINLINE tensor__storage_t *tensor__device_storage(tensor__thread_t *th, uint64_t bytes,
                                                                      int device) {
    const tensor_backend_t *b = th->ctx->backend[1];
    void *data = NULL, *block = NULL;
    if (b->alloc((uint8_t)device - 1, bytes ? bytes : 1, &data, &block)) { return NULL; }
    tensor__storage_t *s = tensor__storage(th, bytes, data);
    if (!s) {
        b->release(data, block);
        return NULL;
    }
    s->deleter = b->release;
    s->user = block;
    s->device = (uint8_t)device;
    return s;
}
TENSOR__INLINE void tensor__storage_drop(tensor__thread_t *th, tensor__storage_t *s) {
    if (!TENSOR__DROP(&s->refs)) { return; }
    if (s->deleter) {
        void (*deleter)(void *, void *) = s->deleter;
        s->deleter = NULL;
        deleter(s->data, s->user);
    }
    if (TENSOR__LIKELY(s->home == th)) {
        if (s->klass >= 0) { tensor__block_free(th, s->data, s->klass); }
        s->next = th->storages;
        th->storages = s;
    } else {
        TENSOR__PUSH_FOREIGN(&s->home->foreign_storages, s, tensor__storage_t);
    }
}

// Memory for modules and loaders: zeroed, accounted, freed at shutdown at the latest.
TENSOR__FN void *tensor__memory(tensor__thread_t *th, uint64_t bytes) {
    void *p = tensor__raw_or_release(th, bytes);
    if (!p) {
        tensor__fail(th, TENSOR_ERR_OUT_OF_MEMORY, "out of memory: %d bytes", (int64_t)bytes);
        return NULL;
    }
    memset(p, 0, (size_t)bytes);
    return p;
}
TENSOR__FN void tensor__memory_free(tensor__thread_t *th, void *p) { tensor__raw_free(th->ctx, p); }

// Scratch of a call: one growing block per thread. NULL after raising OUT_OF_MEMORY.
TENSOR__FN void *tensor__scratch(tensor__thread_t *th, uint64_t bytes) {
    if (bytes > th->scratch_bytes) {
        if (th->scratch) { tensor__raw_free(th->ctx, th->scratch); }
        th->scratch = NULL;         // the cache may be released below
        th->scratch_bytes = 0;
        th->scratch = tensor__raw_or_release(th, bytes + bytes / 4);
        if (!th->scratch) {
            tensor__fail(th, TENSOR_ERR_OUT_OF_MEMORY, "out of memory: %d bytes of scratch", (int64_t)bytes);
            return NULL;
        }
        th->scratch_bytes = bytes + bytes / 4;
    }
    return th->scratch;
}

// ------------------------------------------------------------------------------
// >>impl-errors                                    MARK: error texts
//
// An own small formatter: it knows shapes and needs no stdio. The site is stamped by the user's call
// (tensor__at) after the failing function returned; handler and stderr fire then, or at the stamp of the
// thread's next call. Rejected: to fire where an error is raised (the place is not known there), or at the
// start of the next op (that may be one inside the call that failed).
// ------------------------------------------------------------------------------

TENSOR__FN void tensor__put(tensor__text_t *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++, s->length++) {
        if (s->length + 1 >= s->room) { continue; }     // counts on, writes no more
        s->p[s->length] = text[i];
        s->p[s->length + 1] = 0;
    }
}
TENSOR__FN void tensor__puts(tensor__text_t *s, const char *text) { tensor__put(s, text, strlen(text)); }
TENSOR__FN void tensor__putu(tensor__text_t *s, uint64_t u) {
    char b[24];
    int n = 24;
    do { b[--n] = (char)('0' + (int)(u % 10)); } while (u /= 10);
    tensor__put(s, b + n, (size_t)(24 - n));
}
TENSOR__FN void tensor__puti(tensor__text_t *s, int64_t v) {
    if (v < 0) { tensor__puts(s, "-"); }
    tensor__putu(s, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}
// Six significant digits, as %g; independent of the locale.
TENSOR__FN void tensor__putg(tensor__text_t *s, double v) {
    if (v != v) { tensor__puts(s, "nan"); return; }
    if (v < 0) { tensor__puts(s, "-"); v = -v; }
    if (v > 1.7976931348623157e308) { tensor__puts(s, "inf"); return; }
    if (v == 0) { tensor__puts(s, "0"); return; }
    int e = (int)floor(log10(v));
    double m = e < -300 ? v * 1e300 / pow(10, e + 300) : v / pow(10, e);    // 10^-324 is 0
    int64_t digits = (int64_t)(m * 1e5 + 0.5);
    if (digits >= 1000000) { digits /= 10; e++; }
    char b[8];
    for (int i = 5; i >= 0; i--) { b[i] = (char)('0' + (int)(digits % 10)); digits /= 10; }
    int n = 6;
    while (n > 1 && b[n - 1] == '0') { n--; }
    if (e >= -4 && e < 6) {
        for (int i = e; i < 0; i++) { tensor__puts(s, i == e ? "0." : "0"); }
        for (int i = 0; i < n || i <= e; i++) {
            if (i == e + 1 && e >= 0) { tensor__puts(s, "."); }
            tensor__put(s, i < n ? &b[i] : "0", 1);
        }
    } else {
        tensor__put(s, b, 1);
        if (n > 1) { tensor__puts(s, "."); tensor__put(s, b + 1, (size_t)n - 1); }
        tensor__puts(s, e <= -10 ? "e-" : e < 0 ? "e-0" : e < 10 ? "e+0" : "e+");
        tensor__puti(s, e < 0 ? -e : e);
    }
}
TENSOR__FN void tensor__put_shape(tensor__text_t *s, const int64_t *dims, int ndim) {
    tensor__puts(s, "[");
    for (int i = 0; i < ndim; i++) {
        if (i) { tensor__puts(s, ","); }
        tensor__puti(s, dims[i]);
    }
    tensor__puts(s, "]");
}
// "file.c:41" of a site.
TENSOR__FN const char *tensor__basename(const char *site) {
    const char *base = site;
    for (; *site; site++) { if (*site == '/' || *site == '\\' || *site == 1) { base = site + 1; } }
    return base;
}

// %s string, %i int, %d int64_t, %u uint64_t, %g double, %t shape of a tensor_t *, %y its dtype, %n const
// int64_t * and int: a shape, %w " at file.c:41" of a site, nothing if there is none.
TENSOR__FN void tensor__format(tensor__text_t *s, const char *f, va_list v) {
    for (; *f; f++) {
        if (*f != '%') { tensor__put(s, f, 1); continue; }
        switch (*++f) {
        case 's': tensor__puts(s, va_arg(v, const char *)); break;
        case 'i': tensor__puti(s, va_arg(v, int)); break;
        case 'd': tensor__puti(s, va_arg(v, int64_t)); break;
        case 'u': tensor__putu(s, va_arg(v, uint64_t)); break;
        case 'g': tensor__putg(s, va_arg(v, double)); break;
        case 't': {
            const tensor_t *t = va_arg(v, const tensor_t *);
            tensor__put_shape(s, t->dims, t->ndim);
            break;
        }
        case 'y':
            tensor__puts(s, tensor_dtype_name((tensor_dtype_t)va_arg(v, const tensor_t *)->dtype));
            break;
        case 'w': {
            const char *site = va_arg(v, const char *);
            if (site && *site) { tensor__puts(s, " at "); tensor__puts(s, tensor__basename(site)); }
            break;
        }
        case 'n': {
            const int64_t *dims = va_arg(v, const int64_t *);
            tensor__put_shape(s, dims, va_arg(v, int));
            break;
        }
        default: tensor__put(s, f, 1); break;
        }
    }
}

TENSOR__FN void tensor__text(tensor__text_t *s, const char *format, ...) {
    va_list v;
    va_start(v, format);
    tensor__format(s, format, v);
    va_end(v);
}

// Raises an error (the first of a thread stays) and gives poison.
TENSOR__FN TENSOR__NOINLINE tensor_t *tensor__fail(tensor__thread_t *th, int code, const char *format, ...) {
    if (th->error.code) { return TENSOR__POISON; }
    th->error.code = code;
    th->error.reported = 0;
    th->error.site = NULL;
    th->error.outer = NULL;
    tensor__text_t s = {th->error.text, sizeof th->error.text, 0};
    va_list v;
    va_start(v, format);
    tensor__format(&s, format, v);
    va_end(v);
    tensor__text_t path = {th->error.op, sizeof th->error.op, 0};
    th->error.op[0] = 0;
    for (int i = 0; i < th->path_depth && i < TENSOR__PATH; i++) {
        if (!th->path[i] || !th->path[i][0]) { continue; }
        if (path.length) { tensor__puts(&path, "."); }
        tensor__puts(&path, th->path[i]);
    }
    return TENSOR__POISON;
}
// y, the result of an op made of others, whose error was raised by one of those: the text says both names.
TENSOR__FN tensor_t *tensor__named(tensor__thread_t *th, tensor_t *y, const char *function) {
    if (y == TENSOR__POISON && th->error.code && !th->error.site && !th->error.reported) {
        if (strncmp(function, "tensor_", 7) == 0 && function[7] != '_') { th->error.outer = function; }
    }
    return y;
}
// The name of what the user called stands before the text; where the text has that name without its ending
// (add for add_scalar_), in its place.
TENSOR__FN void tensor__put_named(tensor__text_t *s, const char *outer, const char *text) {
    size_t n, inner = 0;
    while (text[inner] && text[inner] != ':') { inner++; }
    outer += strncmp(outer, "tensor_", 7) == 0 ? 7 : strncmp(outer, "nn_", 3) == 0 ? 3 : 0;
    for (n = 0; outer[n] && outer[n] != 1; n++) {}
    tensor__text_t name = {s->p + s->length, s->room - s->length, 0};
    for (size_t i = 0; i < n; i++) {        // without the _n of the twins for lists
        int twin = outer[i] == '_' && i + 1 < n && outer[i + 1] == 'n' && (i + 2 == n || outer[i + 2] == '_');
        if (twin) { i++; } else { tensor__put(&name, outer + i, 1); }
    }
    n = name.length;
    if (strncmp(name.p, text, inner) == 0 && (inner == n || name.p[inner] == '_')) { text += inner; }
    else { tensor__puts(&name, ": "); }
    tensor__puts(&name, text);
    s->length += name.length;
}
TENSOR_API const char *(tensor_error_text)(void) {
    tensor__thread_t *th = tensor__self();
    tensor__text_t s = {th->shown, sizeof th->shown, 0};
    th->shown[0] = 0;
    if (!th->error.code) { return th->shown; }
    if (th->error.outer) { tensor__put_named(&s, th->error.outer, th->error.text); }
    else { tensor__puts(&s, th->error.text); }
    if (th->error.site) { tensor__puts(&s, " at "); tensor__puts(&s, tensor__basename(th->error.site)); }
    if (th->error.op[0]) { tensor__puts(&s, " in "); tensor__puts(&s, th->error.op); }
    return th->shown;
}
// Tells the handler, or stderr, once.
TENSOR__FN TENSOR__NOINLINE void tensor__report(tensor__thread_t *th, const char *site) {
    if (!th->error.code || th->error.reported) { return; }
    if (!th->error.site) { th->error.site = site; }
    th->error.reported = 1;
    tensor_error_fn_t fn = th->ctx ? th->ctx->error_fn : NULL;
    if (fn) {
        fn(th->error.code, (tensor_error_text)(), th->ctx->error_user);
        return;
    }
#ifndef TENSOR_NO_STDIO
    fprintf(stderr, "tensor: %s\n", (tensor_error_text)());
#endif
}
TENSOR_API int (tensor_ok)(void) { return tensor__self()->error.code == 0; }
TENSOR_API int (tensor_error_code)(void) { return tensor__self()->error.code; }
TENSOR_API void (tensor_clear_error)(void) {
    tensor__thread_t *th = tensor__self();
    tensor__report(th, NULL);
    th->error.code = 0;
}
TENSOR_API const char *(tensor_code_name)(int code) {
    switch (code) {
    case TENSOR_OK: return "OK";
#define TENSOR__X(id, text) case TENSOR_ERR_##id: return #id;
    TENSOR_ERRORS(TENSOR__X)
#undef TENSOR__X
    default: return "?";
    }
}
TENSOR_API int (tensor_raise)(int code, const char *what) {
    tensor__fail(tensor__self(), code > 0 && code < TENSOR_ERR_COUNT ? code : TENSOR_ERR_INTERNAL, "%s",
                 what ? what : "?");
    return code;
}
TENSOR_API int (tensor_set_error_handler)(tensor_error_fn_t fn, void *user) {
    tensor__thread_t *th = tensor__self();
    th->ctx->error_fn = fn;
    th->ctx->error_user = user;
    return 0;
}

// ------------------------------------------------------------------------------
// >>impl-backend                                   MARK: the devices of a context
//
// A backend is one struct of functions with one kernel per family; the CPU has the same form, so that the
// gate asks no questions. Rejected: a kernel pointer per row and device (a second table to keep in step),
// virtual tensors (a branch in every read of a header).
// ------------------------------------------------------------------------------

// The CPU as a backend: a row names its kernel, so that all families have one entry.
TENSOR__FN int tensor__cpu_kernel(tensor_call_t *c) {
    const tensor__row_t *row = c->row;
    c->scratch = NULL;
    if (row->scratch) {
        uint64_t bytes = row->scratch(c);
        if (bytes && !(c->scratch = tensor__scratch(c->thread, bytes))) { return TENSOR_ERR_OUT_OF_MEMORY; }
    }
    return row->cpu(c);
}
TENSOR__FN int tensor__cpu_count(void) { return 1; }
#define TENSOR__K4 tensor__cpu_kernel, tensor__cpu_kernel, tensor__cpu_kernel, tensor__cpu_kernel
static const tensor_backend_t tensor__cpu_backend = {
    TENSOR__API_VERSION, sizeof(tensor_backend_t), "cpu", tensor__cpu_count, NULL, NULL, NULL, NULL,
    NULL, NULL, {TENSOR__K4, TENSOR__K4, TENSOR__K4, TENSOR__K4, TENSOR__K4, tensor__cpu_kernel,
    tensor__cpu_kernel}, 0, 0, NULL};
#undef TENSOR__K4

TENSOR__FN int tensor__set_backend(const tensor_backend_t *backend) {
    tensor__thread_t *th = tensor__self();
    if (backend && (backend->api != TENSOR__API_VERSION || backend->size != sizeof *backend)) {
        tensor__fail(th, TENSOR_ERR_UNSUPPORTED, "backend: built with another tensor.h (api %i, here %i)",
                     (int)backend->api, (int)TENSOR__API_VERSION);
        return TENSOR_ERR_UNSUPPORTED;
    }
    th->ctx->backend[1] = backend;
    return 0;
}
// The index a header has for it, -1 if there is no such device, raised.
TENSOR__FN int tensor__device_index(tensor__thread_t *th, const char *op, int device) {
    const tensor_backend_t *b = th->ctx->backend[1];
    int index = device - TENSOR_CPU, count = b ? b->count() : 0;
    if (index >= 0 && index <= count && index < 256) { return index; }
    if (device < TENSOR_CUDA) {
        tensor__fail(th, TENSOR_ERR_DEVICE, "%s: %i is no device", op, device);
    } else {
        tensor__fail(th, TENSOR_ERR_DEVICE, "%s: no CUDA device %i%s", op, device - TENSOR_CUDA,
                     b ? "" : "; the CUDA backend is not started");
    }
    return -1;
}
TENSOR__FN const char *tensor__device_name(const tensor__thread_t *th, int index) {
    const tensor_backend_t *b = th->ctx->backend[index != 0];
    return b ? b->name : "?";
}
TENSOR__FN int tensor__halves(const tensor_t *x) {
    const tensor_backend_t *b = tensor__self()->ctx->backend[x->device != 0];
    return b && b->halves;
}
TENSOR__FN int64_t tensor__net(const tensor_t *x, const tensor_params_t *p) {
    const tensor_backend_t *b = tensor__self()->ctx->backend[x->device != 0];
    return b && b->net ? b->net(x->device - 1, x->dtype, x->dims, p) : -1;
}
// Storages as in tensor_backend_t.copy.
TENSOR__FN int tensor__move_bytes(tensor__thread_t *th, void *to, tensor__storage_t *to_in, const void *from,
                                  tensor__storage_t *from_in, uint64_t bytes, int wait, const char *op) {
    if (!bytes) { return 0; }
    if (!(to_in && to_in->device) && !(from_in && from_in->device)) {
        memcpy(to, from, (size_t)bytes);
        return 0;
    }
    const tensor_backend_t *b = th->ctx->backend[1];
    int code = b ? b->copy(to, to_in, from, from_in, bytes, wait, op) : TENSOR_ERR_DEVICE;
    if (code) { tensor__fail(th, code, "%s: copying %d bytes between devices failed", op, (int64_t)bytes); }
    return code;
}
TENSOR__FN int tensor__recording(tensor__thread_t *th, int device, void (*again)(void *, int), void *user) {
    const tensor_backend_t *b = device ? th->ctx->backend[1] : NULL;
    return b && b->recording ? b->recording(device - 1, again, user) : 0;
}
TENSOR__FN void tensor__aside(tensor__thread_t *th, int device, int on) {     // where pin_memory succeeded
    th->ctx->backend[1]->aside(device - 1, on);
}
// ------------------------------------------------------------------------------
// >>impl-context                                   MARK: contexts, thread states, shutdown
//
// All mutable state hangs in a context, threads in its list; a default context serves those who never name
// one. Rejected: globals (no two users in one program), a context argument in every function.
// ------------------------------------------------------------------------------

#if !defined(TENSOR_NO_THREADS) && !defined(_WIN32)
static pthread_key_t tensor__exit_key;
static pthread_once_t tensor__exit_once = PTHREAD_ONCE_INIT;
TENSOR__FN void tensor__thread_exit(void *th);
TENSOR__FN void tensor__exit_make(void) { (void)pthread_key_create(&tensor__exit_key, tensor__thread_exit); }
#endif

TENSOR__FN void tensor__context_init(tensor_context_t *ctx) {
    ctx->backend[0] = &tensor__cpu_backend;
    ctx->pool.n = 1;
    ctx->ready = 1;
#if !defined(TENSOR_NO_THREADS)
    TENSOR__MUTEX_START(&ctx->mutex);
    TENSOR__MUTEX_START(&ctx->pool.mutex);
    TENSOR__SIGNAL_START(&ctx->pool.wake);
#endif
}

// States are not raw blocks: a shutdown must leave those of other living threads in place.
TENSOR__FN tensor__thread_t *tensor__thread_alloc(tensor_context_t *ctx) {
    TENSOR__LOCK(&ctx->mutex);
    if (!ctx->allocator.alloc) {
        ctx->allocator.alloc = tensor__hook_alloc;
        ctx->allocator.free = tensor__hook_free;
    }
    void *p = ctx->allocator.alloc(ctx->allocator.user, sizeof(tensor__thread_t), 64);
    TENSOR__UNLOCK(&ctx->mutex);
    return (tensor__thread_t *)p;
}

// A thread state for the calling thread: an idle one, the context's built-in first one, or a new one.
TENSOR__FN TENSOR__NOINLINE tensor__thread_t *tensor__attach(tensor_context_t *ctx) {
    static uint64_t numbers;
    TENSOR__LOCK(&tensor__global);
    if (!tensor__me) { tensor__me = ++numbers; }
    uint64_t me = tensor__me;
    if (!ctx->ready) { tensor__context_init(ctx); }
    if (!tensor__reads_known) {
        tensor__reads_fill();
        tensor__reads_known = 1;
    }
    TENSOR__UNLOCK(&tensor__global);
    TENSOR__LOCK(&ctx->mutex);
    tensor__thread_t **at = &ctx->idle, *th = NULL;
    while (*at && (*at)->owner != me) { at = &(*at)->next_idle; }
    if (!*at) {
        for (at = &ctx->idle; *at && (*at)->owner; at = &(*at)->next_idle) { }
    }
    if (*at) {
        th = *at;
        *at = th->next_idle;
    } else if (!ctx->first_used) {
        ctx->first_used = 1;
        th = &ctx->first;
    }
    uint64_t number = ctx->thread_count++;
    TENSOR__UNLOCK(&ctx->mutex);
    int made = 0;
    if (!th) {
        th = tensor__thread_alloc(ctx);
        if (!th) {      // no memory for a state: every call of this thread fails with OUT_OF_MEMORY
            static tensor__thread_t nowhere;
            static tensor_context_t nothing;
            nothing.limit = 1;
            nowhere.ctx = &nothing;
            return &nowhere;
        }
        memset(th, 0, sizeof *th);
        made = 1;
    }
    if (made || !th->ctx) {
        TENSOR__LOCK(&ctx->mutex);
        th->next = ctx->threads;
        ctx->threads = th;
        TENSOR__UNLOCK(&ctx->mutex);
    }
    if (th->owner != me) {
        th->ctx = ctx;
        th->owner = me;
        th->grad_mode = 1;
        th->rng.seed = 67280421310721u + number;      // PyTorch's default seed; other threads get their own
        th->rng.offset = 0;
    }
    tensor__tls = th;
#if !defined(TENSOR_NO_THREADS) && !defined(_WIN32)
    (void)pthread_once(&tensor__exit_once, tensor__exit_make);
    (void)pthread_setspecific(tensor__exit_key, th);
#endif
    return th;
}

TENSOR__FN void tensor__scopes_close(tensor__thread_t *th);
TENSOR__FN void tensor__thread_detach(tensor__thread_t *th) {
    tensor_context_t *ctx = th->ctx;
    tensor__scopes_close(th);
    tensor__cache_release(th);
    th->error.code = 0;
    th->owner = 0;
    TENSOR__LOCK(&ctx->mutex);
    th->next_idle = ctx->idle;
    ctx->idle = th;
    TENSOR__UNLOCK(&ctx->mutex);
}
#if !defined(TENSOR_NO_THREADS) && !defined(_WIN32)
TENSOR__FN void tensor__thread_exit(void *th) {
    if (tensor__tls != (tensor__thread_t *)th) { return; }
    tensor__thread_detach((tensor__thread_t *)th);
    tensor__tls = NULL;
}
#endif
TENSOR_API void (tensor_thread_end)(void) {
    tensor__thread_t *th = tensor__tls;
    if (!th) { return; }
    tensor__report(th, NULL);
    tensor__thread_detach(th);
    tensor__tls = NULL;
#if !defined(TENSOR_NO_THREADS) && !defined(_WIN32)
    (void)pthread_setspecific(tensor__exit_key, NULL);
#endif
}

TENSOR_API int (tensor_version)(void) {
    return TENSOR_VERSION_MAJOR * 10000 + TENSOR_VERSION_MINOR * 100 + TENSOR_VERSION_PATCH;
}

TENSOR__FN void tensor__header_destroy(tensor__thread_t *th, tensor_t *t);
TENSOR__FN void tensor__pool_stop(tensor_context_t *ctx);

// Everything the context owns: objects first (they hold tensors), then scopes, then what is still kept, then
// raw memory.
TENSOR__FN int tensor__context_close(tensor__thread_t *th) {
    tensor_context_t *ctx = th->ctx;
    tensor__report(th, NULL);
    int code = th->error.code;
    (void)TENSOR__ATOMIC_ADD(&tensor__shutdown_count, 1);
    tensor__pool_stop(ctx);
    while (ctx->owned) {
        tensor__owned_t *o = ctx->owned;
        ctx->owned = o->next;
        if (o->next) { o->next->prev = &ctx->owned; }
        o->prev = NULL;
        o->destroy(o);
    }
    for (tensor__thread_t *t = ctx->threads; t; t = t->next) { tensor__scopes_close(t); }
    for (tensor__raw_t *r = ctx->raw; r; r = r->next) {
        tensor_t *slab = (tensor_t *)(void *)((char *)r + 64);
        for (int i = 0; i < r->headers; i++) {
            if (slab[i].state == TENSOR__LIVE) { tensor__header_destroy(th, &slab[i]); }
        }
    }
    TENSOR__LOCK(&ctx->mutex);
    tensor__raw_t *r = ctx->raw;
    ctx->raw = NULL;
    ctx->hooks = NULL;
    ctx->hook_count = 0;
    while (r) {
        tensor__raw_t *next = r->next;
        ctx->allocator.free(ctx->allocator.user, r, (size_t)r->bytes, 64);
        r = next;
    }
    ctx->reserved = ctx->allocs = ctx->frees = 0;
    // States of other living threads stay, emptied: those threads may go on, or just end.
    tensor__thread_t *states = ctx->threads;
    ctx->threads = ctx->idle = NULL;
    ctx->first_used = 0;
    ctx->thread_count = 0;
    while (states) {
        tensor__thread_t *t = states;
        uint64_t owner = t->owner;
        states = t->next;
        if (t != th && owner) {
            memset(t, 0, sizeof *t);
            t->ctx = ctx;
            t->owner = owner;
            t->grad_mode = 1;
            t->rng.seed = 67280421310721u + owner;
            t->next = ctx->threads;
            ctx->threads = t;
            ctx->first_used |= t == &ctx->first;
        } else if (t == &ctx->first) {
            memset(t, 0, sizeof *t);
        } else {
            ctx->allocator.free(ctx->allocator.user, t, sizeof *t, 64);
        }
    }
    TENSOR__UNLOCK(&ctx->mutex);
    tensor__tls = NULL;
    return code;
}
TENSOR_API int (tensor_shutdown)(void) { return tensor__context_close(tensor__self()); }

TENSOR_API tensor_context_t *(tensor_context_new)(void) {
    tensor_context_t *ctx = (tensor_context_t *)TENSOR_MALLOC(sizeof *ctx, 64);
    TENSOR__REFUSE_AS(NULL, !ctx, OUT_OF_MEMORY, "context_new: out of memory");
    memset(ctx, 0, sizeof *ctx);
    tensor__context_init(ctx);
    return ctx;
}
TENSOR_API tensor_context_t *(tensor_context_use)(tensor_context_t *context) {
    tensor__thread_t *th = tensor__self();
    tensor_context_t *before = th->ctx;
    if (!context) { context = &tensor__default; }
    if (context == before) { return before; }
    // The state stays with its thread: it is found again by the thread that parked it.
    TENSOR__LOCK(&before->mutex);
    th->next_idle = before->idle;
    before->idle = th;
    TENSOR__UNLOCK(&before->mutex);
    tensor__tls = NULL;
    tensor__attach(context);
    return before;
}
TENSOR_API int (tensor_context_free)(tensor_context_t *context) {
    if (!context || context == &tensor__default) {
        tensor_context_t *now = (tensor_context_use)(NULL);
        int r = (tensor_shutdown)();
        if (now != &tensor__default) { (tensor_context_use)(now); }
        return r;
    }
    tensor_context_t *before = (tensor_context_use)(context);
    int code = tensor__context_close(tensor__self());
    TENSOR_FREE(context, sizeof *context, 64);
    tensor__attach(before == context ? &tensor__default : before);
    return code;
}

TENSOR_API int (tensor_set_allocator)(const tensor_allocator_t *a) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(th->ctx->reserved || th->ctx->threads != &th->ctx->first || th->ctx->first.next,
                        OWNER, "set_allocator: memory was handed out already; call it first");
    if (a) {
        th->ctx->allocator = *a;
    } else {
        th->ctx->allocator.alloc = NULL;
    }
    return 0;
}
TENSOR_API int (tensor_set_memory_limit)(uint64_t bytes) {
    tensor_context_t *ctx = tensor__self()->ctx;
    TENSOR__LOCK(&ctx->mutex);
    ctx->limit = bytes;
    TENSOR__UNLOCK(&ctx->mutex);
    return 0;
}
TENSOR_API tensor_memory_stats_t (tensor_memory_stats)(void) {
    tensor_context_t *ctx = tensor__self()->ctx;
    tensor_memory_stats_t m;
    int64_t live = 0, peak = 0;
    memset(&m, 0, sizeof m);
    TENSOR__LOCK(&ctx->mutex);
    for (tensor__thread_t *t = ctx->threads; t; t = t->next) {
        m.live_tensors += TENSOR__RELAXED_LOAD(&t->live_tensors);
        m.live_nodes += TENSOR__RELAXED_LOAD(&t->live_nodes);
        live += TENSOR__RELAXED_LOAD(&t->live_bytes);
        peak += TENSOR__RELAXED_LOAD(&t->peak_bytes);
    }
    m.live_bytes = live > 0 ? (uint64_t)live : 0;
    m.peak_bytes = peak > 0 ? (uint64_t)peak : 0;
    m.reserved_bytes = ctx->reserved;
    m.allocs = ctx->allocs;
    m.frees = ctx->frees;
    TENSOR__UNLOCK(&ctx->mutex);
    return m;
}
TENSOR_API void (tensor_reset_peak_memory)(void) {
    tensor_context_t *ctx = tensor__self()->ctx;
    TENSOR__LOCK(&ctx->mutex);
    for (tensor__thread_t *t = ctx->threads; t; t = t->next) {
        TENSOR__RELAXED_STORE(&t->peak_bytes, TENSOR__RELAXED_LOAD(&t->live_bytes));
    }
    TENSOR__UNLOCK(&ctx->mutex);
}
TENSOR_API void (tensor_empty_cache)(void) { tensor__cache_release(tensor__self()); }

TENSOR_API size_t (tensor_memory_report)(char *text, size_t size) {
    tensor_context_t *ctx = tensor__self()->ctx;
    if (!text) { size = 0; }
    tensor__text_t s = {text, size, 0};
    if (size) { text[0] = 0; }
    TENSOR__LOCK(&ctx->mutex);
    // One line per (op, site): each header is counted by the first of its kind in the same walk.
    for (tensor__raw_t *r = ctx->raw; r; r = r->next) {
        tensor_t *slab = (tensor_t *)(void *)((char *)r + 64);
        for (int i = 0; i < r->headers; i++) {
            tensor_t *t = &slab[i];
            if (t->state != TENSOR__LIVE) { continue; }
            int64_t n = 0, bytes = 0;
            int first = 1;
            for (tensor__raw_t *q = ctx->raw; q && first; q = q->next) {
                tensor_t *other = (tensor_t *)(void *)((char *)q + 64);
                for (int k = 0; k < q->headers; k++) {
                    if (other[k].state != TENSOR__LIVE || other[k].op != t->op || other[k].site != t->site) {
                        continue;
                    }
                    if (n == 0 && &other[k] != t) { first = 0; break; }
                    n++;
                    bytes += other[k].numel * (int64_t)tensor_dtype_size((tensor_dtype_t)other[k].dtype);
                }
            }
            if (!first) { continue; }
            tensor__text(&s, "%d tensor%s  %d bytes  %s%w\n", n, n == 1 ? "" : "s", bytes,
                         t->op ? t->op : "?", t->site);
        }
    }
    TENSOR__UNLOCK(&ctx->mutex);
    return s.length;
}

TENSOR__FN void tensor__own(tensor__thread_t *th, tensor__owned_t *o) {
    tensor_context_t *ctx = o->ctx = th->ctx;
    TENSOR__LOCK(&ctx->mutex);
    o->next = ctx->owned;
    o->prev = &ctx->owned;
    if (o->next) { o->next->prev = &o->next; }
    ctx->owned = o;
    TENSOR__UNLOCK(&ctx->mutex);
}
TENSOR__FN void tensor__disown(tensor__owned_t *o) {
    tensor_context_t *ctx = o->ctx;
    TENSOR__LOCK(&ctx->mutex);
    if (o->prev) {                      // neighbours write it: under the lock alone
        *o->prev = o->next;
        if (o->next) { o->next->prev = o->prev; }
        o->prev = NULL;
    }
    TENSOR__UNLOCK(&ctx->mutex);
}
TENSOR__FN void tensor__push_path(tensor__thread_t *th, const char *name) {
    if (th->path_depth < TENSOR__PATH) { th->path[th->path_depth] = name; }
    th->path_depth++;
}
TENSOR__FN void tensor__pop_path(tensor__thread_t *th) { th->path_depth--; }

// ------------------------------------------------------------------------------
// >>impl-threads                                   MARK: worker threads
//
// One word says which job is open and how many workers are inside, so the caller never waits for a worker
// that has not come in: a late sleeper finds the job closed. A thread begins with its own share of the tasks
// (what it wrote in the job before is in its cache), then takes what others left. Workers spin for some tens
// of microseconds (0.1 us to join, a sleeping one costs 50), then sleep. Nested calls run inline.
// Rejected: OpenMP (a runtime of its own).
// ------------------------------------------------------------------------------

enum { TENSOR__SPINS = 4000 };      // pauses before sleeping, about 60-100 us
#define TENSOR__OPEN ((uint64_t)1 << 31)

TENSOR__INLINE int64_t tensor__pool_share(const tensor__pool_t *p, int64_t w) {     // its first task
    return w * p->each + (w < p->more ? w : p->more);
}
TENSOR__FN void tensor__pool_work(tensor__pool_t *p, int worker) {
    int64_t w = worker < p->shares ? worker : worker % p->shares;
    for (int64_t k = 0; k < p->shares; k++, w = w + 1 < p->shares ? w + 1 : 0) {
        int64_t i, end = tensor__pool_share(p, w + 1);
        while (TENSOR__ATOMIC_LOAD(&p->next[w]) < end && (i = TENSOR__ATOMIC_ADD(&p->next[w], 1)) < end) {
            p->fn(p->arg, i, worker);
        }
    }
}

#if !defined(TENSOR_NO_THREADS)
typedef struct { tensor__pool_t *pool; int worker; } tensor__start_t;

TENSOR__FN void tensor__worker(tensor__pool_t *p, int worker) {
    uint64_t seen = 0;
    for (;;) {
        int spins = 0;
        uint64_t state;
        while ((state = TENSOR__U64_LOAD(&p->state)) >> 32 == seen || !(state & TENSOR__OPEN)) {
            seen = state >> 32;
            if (TENSOR__ATOMIC_LOAD(&p->stop)) { return; }
            TENSOR__PAUSE();
            if (++spins < TENSOR__SPINS) { continue; }
            TENSOR__LOCK(&p->mutex);
            (void)TENSOR__ATOMIC_ADD(&p->parked, 1);
            while (TENSOR__U64_LOAD(&p->state) >> 32 == seen && !TENSOR__ATOMIC_LOAD(&p->stop)) {
                TENSOR__SIGNAL_WAIT(&p->wake, &p->mutex);
            }
            (void)TENSOR__ATOMIC_ADD(&p->parked, -1);
            TENSOR__UNLOCK(&p->mutex);
            spins = 0;
        }
        if (!TENSOR__U64_CAS(&p->state, &state, state + 1)) { continue; }   // come in
        seen = state >> 32;
        tensor__pool_work(p, worker);
        state = TENSOR__U64_LOAD(&p->state);
        while (!TENSOR__U64_CAS(&p->state, &state, state - 1)) { }          // go out
    }
}
TENSOR__FN TENSOR__THREAD_MAIN(tensor__worker_main) {
    tensor__start_t s = *(tensor__start_t *)arg;
    TENSOR_FREE(arg, sizeof s, 64);
    tensor__worker(s.pool, s.worker);
    return 0;
}
#endif

TENSOR__FN void tensor__pool_stop(tensor_context_t *ctx) {
    tensor__pool_t *p = &ctx->pool;
#if !defined(TENSOR_NO_THREADS)
    if (p->threads) {
        TENSOR__LOCK(&p->mutex);
        TENSOR__ATOMIC_STORE(&p->stop, 1);
        TENSOR__SIGNAL_ALL(&p->wake);
        TENSOR__UNLOCK(&p->mutex);
        for (int i = 0; i < p->n - 1; i++) { TENSOR__THREAD_JOIN(p->threads[i]); }
        TENSOR_FREE(p->threads, p->threads_bytes, 64);
        p->threads = NULL;
        TENSOR__ATOMIC_STORE(&p->stop, 0);
    }
#endif
    p->n = 1;
    p->hook = NULL;
}

TENSOR_API int (tensor_set_num_threads)(int n) {
    tensor__thread_t *th = tensor__self();
    tensor__pool_t *p = &th->ctx->pool;
    TENSOR__REFUSE_CODE(n < 1 || n > TENSOR__MAX_THREADS, SHAPE, "set_num_threads: %i is not in 1..%i", n,
                        (int)TENSOR__MAX_THREADS);
    if (n == p->n && !p->hook) { return 0; }
    tensor__pool_stop(th->ctx);
    if (n == 1) { return 0; }
#if defined(TENSOR_NO_THREADS)
    tensor__fail(th, TENSOR_ERR_UNSUPPORTED, "set_num_threads: built with TENSOR_NO_THREADS");
    return TENSOR_ERR_UNSUPPORTED;
#else
    size_t bytes = (size_t)(n - 1) * sizeof p->threads[0];
    p->threads = (tensor__os_thread_t *)TENSOR_MALLOC(bytes, 64);
    p->threads_bytes = bytes;
    int started = 0;
    while (p->threads && started < n - 1) {
        tensor__start_t *s = (tensor__start_t *)TENSOR_MALLOC(sizeof *s, 64);
        if (!s) { break; }
        s->pool = p;
        s->worker = started + 1;
        if (!TENSOR__THREAD_START(&p->threads[started], tensor__worker_main, s)) {
            TENSOR_FREE(s, sizeof *s, 64);
            break;
        }
        started++;
    }
    p->n = started + 1;
    if (started == n - 1) { return 0; }
    tensor__pool_stop(th->ctx);
    tensor__fail(th, TENSOR_ERR_INTERNAL, "set_num_threads: the system started %i of %i threads", started,
                 n - 1);
    return TENSOR_ERR_INTERNAL;
#endif
}
TENSOR_API int (tensor_get_num_threads)(void) { return tensor__self()->ctx->pool.n; }
TENSOR__FN int tensor__thread_count(void) { return tensor__self()->ctx->pool.n; }
TENSOR_API int (tensor_num_processors)(void) {
#if defined(TENSOR_NO_THREADS)
    return 1;
#elif defined(_WIN32)
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
#else
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
#endif
}
TENSOR_API int (tensor_set_parallel_for)(tensor_parallel_fn_t fn, void *user, int n) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(n < 1 || n > TENSOR__MAX_THREADS, SHAPE, "set_parallel_for: %i is not in 1..%i", n,
                        (int)TENSOR__MAX_THREADS);
    tensor__pool_stop(th->ctx);
    if (!fn) { return 0; }
    th->ctx->pool.hook = fn;
    th->ctx->pool.hook_user = user;
    th->ctx->pool.n = n;
    return 0;
}
// A task of the user's job system takes a free worker number, so that scratch of two tasks never meets.
TENSOR__FN void tensor__hook_task(void *arg, int64_t i) {
    tensor__pool_t *p = (tensor__pool_t *)arg;
    for (int w = 0;; w = w + 1 < p->n ? w + 1 : 0) {
        if (TENSOR__ATOMIC_ADD(&p->slots[w], 1) == 0) {
            p->fn(p->arg, i, w);
            (void)TENSOR__ATOMIC_ADD(&p->slots[w], -1);
            return;
        }
        (void)TENSOR__ATOMIC_ADD(&p->slots[w], -1);
        TENSOR__PAUSE();
    }
}

// Runs fn(arg, 0..ntasks-1, worker) on all threads of the context; the caller takes part.
TENSOR__FN void tensor__parallel(int64_t ntasks, tensor__task_fn fn, void *arg) {
    tensor__thread_t *th = tensor__self();
    tensor__pool_t *p = &th->ctx->pool;
    if (p->n == 1 || ntasks <= 1 || ntasks > INT32_MAX / 2 || th->in_parallel || TENSOR__ATOMIC_ADD(&p->busy,
            1) != 0) {
        if (p->n > 1 && ntasks > 1 && ntasks <= INT32_MAX / 2 && !th->in_parallel) {
            (void)TENSOR__ATOMIC_ADD(&p->busy, -1);
        }
        for (int64_t i = 0; i < ntasks; i++) { fn(arg, i, 0); }
        return;
    }
    th->in_parallel = 1;
    p->fn = fn;
    p->arg = arg;
    p->ntasks = ntasks;
    if (p->hook) {
        p->hook(p->hook_user, ntasks, tensor__hook_task, p);
    } else {
#if !defined(TENSOR_NO_THREADS)
        p->shares = ntasks < p->n ? ntasks : p->n;
        p->each = ntasks / p->shares;
        p->more = ntasks % p->shares;
        for (int w = 0; w < p->shares; w++) { p->next[w] = (tensor__count_t)tensor__pool_share(p, w); }
        uint64_t state = TENSOR__U64_LOAD(&p->state);       // closed and empty: only we change it now
        uint64_t open = ((state >> 32) + 1) << 32 | TENSOR__OPEN;
        while (!TENSOR__U64_CAS(&p->state, &state, open)) { }
        if (TENSOR__ATOMIC_LOAD(&p->parked)) {
            TENSOR__LOCK(&p->mutex);
            TENSOR__SIGNAL_ALL(&p->wake);
            TENSOR__UNLOCK(&p->mutex);
        }
        tensor__pool_work(p, 0);
        state = TENSOR__U64_LOAD(&p->state);
        while (!TENSOR__U64_CAS(&p->state, &state, state & ~TENSOR__OPEN)) { }
        int spins = 0;
        while (TENSOR__U64_LOAD(&p->state) & 0x7FFFFFFFu) {
            TENSOR__PAUSE();
            if (++spins > 1000) { TENSOR__YIELD(); spins = 0; }
        }
#endif
    }
    th->in_parallel = 0;
    (void)TENSOR__ATOMIC_ADD(&p->busy, -1);
}

// ------------------------------------------------------------------------------
// >>impl-scopes                                    MARK: scopes, references
//
// A scope is a mark in the thread's stack of headers; ending it pops to the mark. Headers are type-stable
// and keep op and site after death, so a stale pointer gives an error text, not a crash. Rejected: a list
// of tensors per scope (an allocation per tensor), a garbage collector, freeing by the arguments' last use
// (C cannot see it).
// ------------------------------------------------------------------------------

TENSOR__FN void tensor__node_free(tensor__thread_t *th, tensor__node_t *node);
TENSOR__INLINE void tensor__node_drop(tensor__thread_t *th, tensor__node_t *node) {
    if (TENSOR__DROP(&node->refs)) { tensor__node_free(th, node); }
}

TENSOR__FN int tensor__stack_grow(tensor__thread_t *th) {
    int64_t room = th->room ? th->room * 2 : 256;
    tensor_t **stack = (tensor_t **)tensor__raw_or_release(th, (uint64_t)room * sizeof *stack);
    if (!stack) { return 0; }
    if (th->top) { memcpy(stack, th->stack, (size_t)th->top * sizeof *stack); }
    if (th->stack) { tensor__raw_free(th->ctx, th->stack); }
    th->stack = stack;
    th->room = room;
    return 1;
}
// Puts a header under the innermost scope. 0 = out of memory.
TENSOR__INLINE int tensor__enlist(tensor__thread_t *th, tensor_t *t) {
    if (th->top == th->room && !tensor__stack_grow(th)) { return 0; }
    t->slot = (int32_t)th->top;
    th->stack[th->top++] = t;
    return 1;
}

// What few nodes and leaves have. A hook is in the list of its owner and in that of the context.
typedef struct tensor__hook_t {
    struct tensor__hook_t *next, *other, **prev;
    tensor__extra_t *owner;
    int64_t id;
    int32_t output;                     // of the node; < 0: after the sum went into a leaf's grad
    tensor_hook_t fn;
    tensor_post_hook_t post;
    void *user;
} tensor__hook_t;
struct tensor__extra_t {
    tensor_t *retain[TENSOR__MAX_OUT];  // headers whose grad is to be kept (not counted)
    tensor__hook_t *hooks;              // in the order of registration
    struct tensor__region_t *region;    // the checkpoint it lies in, at place index
    int32_t index;
    int32_t packed_count;
    const tensor_saved_hooks_t *packing;
    void **packed;                      // of each saved value, NULL = it is kept
};
TENSOR__INLINE tensor__extra_t *tensor__leaf_extra(const tensor_t *t) {
    return (tensor__extra_t *)(void *)t->next;
}
TENSOR__FN void tensor__region_leave(tensor__thread_t *th, struct tensor__region_t *r, int32_t index);
TENSOR__FN void tensor__hook_unlink(tensor_context_t *ctx, tensor__hook_t *h) {
    *h->prev = h->other;
    if (h->other) { h->other->prev = h->prev; }
    (void)TENSOR__ATOMIC_ADD(&ctx->hook_count, -1);
}
TENSOR__FN void tensor__packed_drop(tensor__thread_t *th, tensor__extra_t *e) {
    for (int i = 0; i < e->packed_count; i++) {
        if (e->packed[i] && e->packing->drop) { e->packing->drop(e->packed[i], e->packing->user); }
    }
    if (e->packed) { tensor__raw_free(th->ctx, e->packed); }
    e->packed = NULL;
    e->packed_count = 0;
}
TENSOR__FN TENSOR__NOINLINE void tensor__extra_free(tensor__thread_t *th, tensor__extra_t *e) {
    tensor__packed_drop(th, e);
    while (e->hooks) {
        tensor__hook_t *h = e->hooks;
        e->hooks = h->next;
        TENSOR__LOCK(&th->ctx->mutex);
        tensor__hook_unlink(th->ctx, h);
        TENSOR__UNLOCK(&th->ctx->mutex);
        tensor__raw_free(th->ctx, h);
    }
    if (e->region) { tensor__region_leave(th, e->region, e->index); }
    tensor__raw_free(th->ctx, e);
}

TENSOR__FN void tensor__drop(tensor_t *t);
// The end of a header: its references go, its memory waits in quarantine.
TENSOR__FN void tensor__header_destroy(tensor__thread_t *th, tensor_t *t) {
    t->state = TENSOR__DEAD;
    t->freed = NULL;
    tensor__count(&th->live_tensors, -1);
    if (t->flags & TENSOR__HOOKED) { tensor__extra_free(th, tensor__leaf_extra(t)); }
    if (t->node) {
        if (t->node->extra && t->node->extra->retain[t->output] == t) {
            t->node->extra->retain[t->output] = NULL;
        }
        tensor__node_drop(th, t->node);
        t->node = NULL;
    }
    tensor__storage_t *s = t->storage;
    t->storage = NULL;
    if (s) { tensor__storage_drop(th, s); }
    tensor_t *base = t->base, *grad = t->grad;
    t->base = t->grad = NULL;
    if (t->slot >= 0 && t->home == th && t->slot < th->top && th->stack[t->slot] == t) {
        th->stack[t->slot] = NULL;
    }
    t->slot = -1;
    if (t->home == th) {
        tensor__header_bury(th, t);
    } else {
        TENSOR__PUSH_FOREIGN(&t->home->foreign_headers, t, tensor_t);
    }
    if (base) { tensor__drop(base); }
    if (grad) { tensor__drop(grad); }
}
TENSOR__FN tensor_t *tensor__hold(tensor_t *t) {
    if (t && t != TENSOR__POISON) { TENSOR__HOLD(&t->refs); }
    return t;
}
TENSOR__FN void tensor__drop(tensor_t *t) {
    if (t != TENSOR__POISON && TENSOR__DROP(&t->refs)) { tensor__header_destroy(tensor__self(), t); }
}
// A library reference: t (NULL = none) instead of what was there, from which it may be made. 0 = t is poison.
TENSOR__FN int tensor__replace(tensor_t **at, tensor_t *t) {
    tensor_t *old = *at;
    if (t == TENSOR__POISON) { return 0; }
    *at = tensor__hold(t);
    if (old) { tensor__drop(old); }
    return 1;
}

// Pops to a mark.
TENSOR__FN void tensor__pop(tensor__thread_t *th, int64_t mark) {
    while (th->top > mark) {
        tensor_t *t = th->stack[--th->top];
        if (!t) { continue; }
        t->slot = -1;
        if (TENSOR__DROP(&t->refs)) { tensor__header_destroy(th, t); }
    }
}
TENSOR__FN void tensor__scopes_close(tensor__thread_t *th) {
    tensor__pop(th, 0);
    if (th->stack) { tensor__raw_free(th->ctx, th->stack); }
    if (th->scopes) { tensor__raw_free(th->ctx, th->scopes); }
    th->stack = NULL;
    th->scopes = NULL;
    th->room = 0;
    th->scope_room = 0;
    th->depth = 0;
    th->epoch++;
}

// Is t usable? Poison raises POISONED if nothing else was raised; a dead header tells where it came from.
TENSOR__FN TENSOR__NOINLINE int tensor__unusable(const char *op, const char *arg, tensor_t *t) {
    tensor__thread_t *th = tensor__self();
    if (!t) {
        tensor__fail(th, TENSOR_ERR_OWNER, "%s: argument %s is NULL", op, arg);
    } else if (t->state == TENSOR__POISON_STATE) {
        tensor__fail(th, TENSOR_ERR_POISONED, "%s: argument %s failed earlier or on another thread", op, arg);
    } else if (t->state == TENSOR__DEAD) {
        tensor__fail(th, TENSOR_ERR_OWNER, "%s: argument %s: tensor used after %s%w, created by %s%w%s", op,
                     arg, t->freed ? "it was freed" : "its scope ended", t->freed, t->op ? t->op : "?",
                     t->site, t->freed ? "" : "; keep it with tensor_set, or take tensor_item");
    } else {
        tensor__fail(th, TENSOR_ERR_OWNER, "%s: argument %s is not a tensor", op, arg);
    }
    return 0;
}
#define TENSOR__USABLE(op, arg, t)                                                                           \
    (TENSOR__LIKELY((t) != NULL && (t)->state == TENSOR__LIVE) || tensor__unusable(op, arg, t))

TENSOR__FN tensor_scope_t tensor__scope_begin(tensor__thread_t *th, int grad_mode) {
    tensor_scope_t s;
    s.thread = NULL;
    s.mark = 0;
    s.id = 0;
    s.grad_mode = th->grad_mode;
    if (th->depth == th->scope_room) {
        int32_t room = th->scope_room ? th->scope_room * 2 : 32;
        void *p = tensor__raw_or_release(th, (uint64_t)room * sizeof th->scopes[0]);
        if (!p) {
            tensor__fail(th, TENSOR_ERR_OUT_OF_MEMORY, "scope_begin: out of memory");
            s.id = 1;       // without a thread: its end stays silent
            return s;
        }
        if (th->depth) { memcpy(p, th->scopes, (size_t)th->depth * sizeof th->scopes[0]); }
        if (th->scopes) { tensor__raw_free(th->ctx, th->scopes); }
        *(void **)&th->scopes = p;
        th->scope_room = room;
    }
    s.thread = th;
    s.mark = th->top;
    s.id = ++th->scope_id;
    th->scopes[th->depth].mark = th->top;
    th->scopes[th->depth].id = s.id;
    th->scopes[th->depth].grad_mode = th->grad_mode;
    th->scopes[th->depth].modes = th->modes;
    th->scopes[th->depth].packing = th->packing;
    th->scopes[th->depth].user = 0;
    th->depth++;
    th->grad_mode = (uint8_t)(grad_mode && !(th->modes & TENSOR__INFERRING));
    return s;
}
// Scope i and those inside it are no more: modes are what they were before.
TENSOR__INLINE void tensor__scope_restore(tensor__thread_t *th, int i) {
    th->grad_mode = th->scopes[i].grad_mode;
    th->modes = th->scopes[i].modes;
    th->packing = th->scopes[i].packing;
    th->depth = i;
}
// A scope of the user's: its resets and ends count as epochs, the library's own scopes do not, so that a
// stale pointer is noticed however many layers ran since.
TENSOR__FN tensor_scope_t tensor__user_scope(tensor__thread_t *th, int grad_mode) {
    tensor_scope_t s = tensor__scope_begin(th, grad_mode);
    if (s.thread) { th->scopes[th->depth - 1].user = 1; }
    return s;
}
TENSOR_API tensor_scope_t (tensor_scope_begin)(void) {
    tensor__thread_t *th = tensor__self();
    return tensor__user_scope(th, th->grad_mode);
}
TENSOR_API tensor_scope_t (tensor_scope_begin_no_grad)(void) { return tensor__user_scope(tensor__self(), 0); }
TENSOR_API tensor_scope_t (tensor_scope_begin_grad)(void) { return tensor__user_scope(tensor__self(), 1); }
TENSOR_API tensor_scope_t (tensor_scope_begin_inference)(void) {
    tensor__thread_t *th = tensor__self();
    tensor_scope_t s = tensor__user_scope(th, 0);
    if (s.thread) { th->modes |= TENSOR__INFERRING; }
    return s;
}
// For tensor_nn.h: a scope that is no epoch. grad_mode < 0 = as it is.
TENSOR__FN tensor_scope_t tensor__inner_scope(int grad_mode) {
    tensor__thread_t *th = tensor__self();
    return tensor__scope_begin(th, grad_mode < 0 ? th->grad_mode : grad_mode);
}

// Depth of an open scope of this thread, -1 with an error otherwise.
TENSOR__FN int tensor__scope_find(tensor__thread_t *th, tensor_scope_t s, const char *what) {
    if (!s.thread && s.id) { return -1; }       // its begin failed and said so
    if (s.thread == th) {
        for (int i = th->depth - 1; i >= 0 && th->scopes[i].id >= s.id; i--) {
            if (th->scopes[i].id == s.id) { return i; }
        }
    }
    tensor__fail(th, TENSOR_ERR_OWNER, "%s: the scope %s", what, !s.thread ? "was never begun" :
                 s.thread == th ? "has ended already" : "belongs to another thread");
    return -1;
}
TENSOR_API int (tensor_scope_reset)(tensor_scope_t scope) {
    tensor__thread_t *th = tensor__self();
    int i = tensor__scope_find(th, scope, "scope_reset");
    if (i < 0) { return th->error.code; }
    if (i + 1 < th->depth) { tensor__scope_restore(th, i + 1); }
    th->epoch += th->scopes[i].user;
    tensor__pop(th, th->scopes[i].mark);
    return 0;
}
TENSOR_API int (tensor_scope_end)(tensor_scope_t scope) {
    tensor__thread_t *th = tensor__self();
    int i = tensor__scope_find(th, scope, "scope_end");
    if (i < 0) { return th->error.code; }
    th->epoch += th->scopes[i].user;
    tensor__pop(th, th->scopes[i].mark);
    tensor__scope_restore(th, i);
    return 0;
}
// Takes t out of the scope stack above a mark, pops, and puts it back under what is now innermost.
TENSOR__FN void tensor__carry(tensor__thread_t *th, int64_t mark, tensor_t *t) {
    int mine = t && t->state == TENSOR__LIVE && t->home == th && t->slot >= mark;
    if (mine) { th->stack[t->slot] = NULL; t->slot = -1; }
    tensor__pop(th, mark);
    if (mine) { tensor__enlist(th, t); }        // cannot fail: popping made room
}
// A view whose source nobody else can see any more is a tensor of its own.
TENSOR__FN void tensor__unbase(tensor_t *t) {
    tensor_t *base = t->base;
    if (!base || TENSOR__ATOMIC_LOAD(&base->refs) != 1 || t->base_version != base->rebased) { return; }
    t->base = NULL;
    t->flags = (uint8_t)(t->flags & ~TENSOR__INHERITED);
    tensor__drop(base);
}
// The end of an op made of others: what it made on the way goes, y stays. Cheaper than a scope and not one (a
// stale pointer is still noticed until the user's own scope moves on).
TENSOR__FN tensor_t *tensor__tidy(tensor__thread_t *th, int64_t mark, tensor_t *y) {
    if (th->top == mark) { return y; }
    tensor__carry(th, mark, y);
    if (y && y->state == TENSOR__LIVE) {
        tensor__unbase(y);
        th->fresh = y->site ? NULL : y;
    }
    return y;
}
TENSOR_API tensor_t *(tensor_scope_return)(tensor_scope_t scope, tensor_t *t) {
    tensor__thread_t *th = tensor__self();
    int i = tensor__scope_find(th, scope, "scope_return");
    if (i < 0) { return th->error.code ? TENSOR__POISON : t; }
    th->epoch += th->scopes[i].user;
    tensor__carry(th, th->scopes[i].mark, t);
    tensor__scope_restore(th, i);
    if (!t) { return TENSOR__POISON; }
    if (t->state == TENSOR__LIVE) { tensor__unbase(t); }
    if (t->state == TENSOR__LIVE && !t->site) { th->fresh = t; }
    return t;
}

TENSOR_API tensor_t *(tensor_keep)(tensor_t *t) {
    if (t && t->state == TENSOR__POISON_STATE) { return t; }
    if (!TENSOR__USABLE("keep", "t", t)) { return TENSOR__POISON; }
    TENSOR__HOLD(&t->refs);
    TENSOR__HOLD(&t->keeps);
    return t;
}
// For the texts about a tensor used later. The place comes with the stamp.
TENSOR__FN void tensor__note_free(tensor__thread_t *th, tensor_t *t) {
    if (t->home != th || t->state != TENSOR__DEAD) { return; }
    t->freed = "";
    th->freed = t;
}
TENSOR_API int (tensor_free)(tensor_t *t) {
    if (!t || t->state == TENSOR__POISON_STATE) { return 0; }
    tensor__thread_t *th = tensor__self();
    if (t->state == TENSOR__LIVE) {
        tensor__count_t keeps = TENSOR__ATOMIC_LOAD(&t->keeps);
        if (keeps > 0 || (t->home == th && t->slot >= 0)) {
            if (keeps > 0) {
                (void)TENSOR__ATOMIC_ADD(&t->keeps, -1);
            } else {
                th->stack[t->slot] = NULL;
                th->top -= t->slot == th->top - 1 &&
                           (!th->depth || t->slot >= th->scopes[th->depth - 1].mark);
                t->slot = -1;
            }
            tensor__drop(t);
            tensor__note_free(th, t);
            return 0;
        }
    }
    if (t->state == TENSOR__DEAD) {
        tensor__fail(th, TENSOR_ERR_OWNER, "free: tensor freed %s%s%w, created by %s%w",
                     t->freed ? "twice" : "after its scope ended", t->freed && t->freed[0] ? ", first" : "",
                     t->freed, t->op ? t->op : "?", t->site);
    } else {
        tensor__fail(th, TENSOR_ERR_OWNER,
                     "free: tensor %t is neither kept nor owned by a scope of this thread", t);
    }
    return TENSOR_ERR_OWNER;
}
TENSOR_API int (tensor_set)(tensor_t **handle, tensor_t *value) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(!handle, OWNER, "set: handle is NULL");
    if (!TENSOR__USABLE("set", "value", value)) { return th->error.code; }
    tensor_t *old = *handle;
    if (old == value) { return 0; }
    if (old && old->state == TENSOR__DEAD) { tensor__unusable("set", "*handle", old); return th->error.code; }
    if (!old || old->state != TENSOR__LIVE || TENSOR__ATOMIC_LOAD(&old->keeps) > 0) {
        (tensor_keep)(value);
        *handle = value;
        if (old && old->state == TENSOR__LIVE) { (tensor_free)(old); }
        return 0;
    }
    TENSOR__REFUSE_CODE(old->home != th || old->slot < 0, OWNER,
                        "set: the old value %t belongs to another thread's scope", old);
    // The new value takes the old one's place in the scope stack.
    int32_t slot = old->slot;
    old->slot = -1;
    if (value->home == th && value->slot >= 0) {
        th->stack[value->slot] = NULL;
        value->slot = slot;
        th->stack[slot] = value;
    } else {
        (tensor_keep)(value);
        th->stack[slot] = NULL;
    }
    *handle = value;
    tensor__drop(old);
    return 0;
}

// ------------------------------------------------------------------------------
// >>impl-front                                     MARK: fronts: checks, shapes, results
//
// Every op starts with begin (arguments usable?), computes its shape, asks for its results and finishes.
// Shape and dtype checks stand here, once for all devices. Rejected: checks in the kernels (once per
// device, and too late: the result is there already), a general shape-inference language for what a few
// lines of C say.
// ------------------------------------------------------------------------------

static const uint8_t tensor__sizes[TENSOR_DTYPE_COUNT] = {4, 8, 4, 8, 1, 1, 2, 2, 1, 2};
static const char *const tensor__dtype_names[TENSOR_DTYPE_COUNT] = {"f32", "f64", "i32", "i64", "u8", "bool",
    "f16", "bf16", "i8", "i16"};
static const char *const tensor__arg_names[TENSOR__MAX_IN] = {"a", "b", "c", "d", "e", "f", "g", "h"};

TENSOR__INLINE int tensor__is_float(int dtype) {
    return dtype <= TENSOR_F64 || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
}
// 0 bool, 1 integer, 2 float
TENSOR__INLINE int tensor__category(int dtype) {
    return tensor__is_float(dtype) ? 2 : dtype == TENSOR_BOOL ? 0 : 1;
}
// PyTorch's promotion of two dtypes of dimensioned tensors.
TENSOR__FN int tensor__promote2(int a, int b) {
    if (a == b) { return a; }
    int ca = tensor__category(a), cb = tensor__category(b);
    if (ca != cb) { return ca > cb ? a : b; }
    if (ca == 1) {
        if (tensor__sizes[a] == tensor__sizes[b]) { return TENSOR_I16; }        // u8 + i8
        return tensor__sizes[a] > tensor__sizes[b] ? a : b;
    }
    return a == TENSOR_F64 || b == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;       // f16 + bf16 = f32
}
// With 0-d tensors, which count only when their category is higher.
TENSOR__FN int tensor__promote(tensor_t *const *in, int n) {
    int dim = -1, zero = -1;
    for (int i = 0; i < n; i++) {
        if (!in[i]) { continue; }
        int *at = in[i]->ndim ? &dim : &zero;
        *at = *at < 0 ? in[i]->dtype : tensor__promote2(*at, in[i]->dtype);
    }
    if (dim < 0) { return zero; }
    if (zero < 0 || tensor__category(zero) <= tensor__category(dim)) { return dim; }
    return zero;
}

// Right-aligned broadcast of shape b into (dims, ndim). 0 = they do not fit.
TENSOR__FN int tensor__broadcast(int64_t *dims, int *ndim, const int64_t *b, int nb) {
    int n = *ndim > nb ? *ndim : nb;
    for (int i = 1; i <= n; i++) {      // from the right; dims grows at its left end
        int64_t da = i <= *ndim ? dims[*ndim - i] : 1, db = i <= nb ? b[nb - i] : 1;
        if (da != db && da != 1 && db != 1) { return 0; }
    }
    int64_t r[TENSOR_MAX_DIMS];
    for (int i = 1; i <= n; i++) {
        int64_t da = i <= *ndim ? dims[*ndim - i] : 1, db = i <= nb ? b[nb - i] : 1;
        r[n - i] = da == 1 ? db : da;
    }
    memcpy(dims, r, (size_t)n * sizeof *r);
    *ndim = n;
    return 1;
}

// Product of sizes in u64; 0 = negative size or more than 2^62 bytes.
TENSOR__FN int tensor__numel_of(const int64_t *dims, int ndim, int64_t *numel) {
    uint64_t n = 1, nonzero = 1;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0) { return 0; }
        if (!tensor__mul_u64(nonzero, dims[i] ? (uint64_t)dims[i] : 1, &nonzero) ||
            nonzero > (uint64_t)1 << 59) {
            return 0;
        }
        n = dims[i] ? n * (uint64_t)dims[i] : 0;
    }
    *numel = (int64_t)n;
    return 1;
}

// The last two sizes of a tensor or an argument.
#define TENSOR__HIGH(x) (x)->dims[(x)->ndim - 2]
#define TENSOR__WIDE(x) (x)->dims[(x)->ndim - 1]
TENSOR__INLINE int tensor__same_dims(const int64_t *a, int na, const int64_t *b, int nb) {
    int same = na == nb;
    for (int d = 0; same && d < na; d++) { same = a[d] == b[d]; }
    return same;
}
TENSOR__INLINE int tensor__same_shape(const tensor_t *a, const tensor_t *b) {
    return tensor__same_dims(a->dims, a->ndim, b->dims, b->ndim);
}
// Whether b broadcasts to the shape of x.
TENSOR__FN int tensor__fills(const tensor_t *b, const tensor_t *x) {
    int lead = x->ndim - b->ndim, fills = lead >= 0;
    for (int d = 0; fills && d < b->ndim; d++) { fills = b->dims[d] == 1 || b->dims[d] == x->dims[lead + d]; }
    return fills;
}
TENSOR__FN TENSOR__NOINLINE tensor_t *tensor__no_list(const char *op, tensor_t *const *list, int n) {
    return tensor__fail(tensor__self(), TENSOR_ERR_SHAPE, "%s: needs at least one tensor, got %s of %i", op,
                        list ? "a list" : "NULL as a list", n);
}
// -1 with the error INDEX if dim is outside -ndim..ndim-1.
TENSOR__FN int tensor__dim_of(const char *op, int64_t dim, int ndim, const tensor_t *x) {
    int64_t n = ndim ? ndim : 1;        // a 0-d tensor takes 0 and -1, as in PyTorch
    TENSOR__REFUSE_AS(-1, dim < -n || dim >= n, INDEX, "%s: dim %d is outside %d..%d (x %t)", op, dim, -n,
                      n - 1, x);
    return (int)(dim < 0 ? dim + n : dim);
}
TENSOR__INLINE int tensor__dim(const char *op, int64_t dim, const tensor_t *x) {
    return tensor__dim_of(op, dim, x->ndim, x);
}
#define TENSOR__DIM(d, op, dim, x)                                                                           \
    int d = tensor__dim(op, dim, x);                                                                         \
    if (d < 0) { return TENSOR__POISON; }

// A live header under the innermost scope, dims and strides not set.
TENSOR__INLINE tensor_t *tensor__new_header(tensor__thread_t *th, const char *op, int dtype, int ndim) {
    tensor_t *t = tensor__header(th);
    if (!t) { return NULL; }
    if (!tensor__enlist(th, t)) {
        tensor__header_bury(th, t);
        return NULL;
    }
    t->state = TENSOR__LIVE;
    t->dtype = (uint8_t)dtype;
    t->ndim = (uint8_t)ndim;
    t->device = 0;
    t->flags = 0;
    t->refs = 1;
    t->keeps = 0;
    t->offset = 0;
    t->storage = NULL;
    t->node = NULL;
    t->output = 0;
    t->base_version = t->rebased = 0;
    t->base = t->grad = NULL;
    t->op = op;
    t->site = NULL;
    t->lock = 0;
    tensor__count(&th->live_tensors, 1);
    return t;
}

TENSOR__FN int tensor__dims_given(const char *op, const int64_t *dims, int ndim) {
    TENSOR__REFUSE_AS(0, !dims && ndim > 0, SHAPE, "%s: dims is NULL", op);
    return 1;
}
// The dims of x in a list as bits. 0 = x unusable, a dim outside or twice; raised.
TENSOR__FN int tensor__dim_mask(const char *op, tensor_t *x, const int64_t *dims, int n, uint32_t *mask) {
    if (!TENSOR__USABLE(op, "x", x) || !tensor__dims_given(op, dims, n)) { return 0; }
    for (int i = 0; i < n; i++) {
        int d = tensor__dim(op, dims[i], x);
        if (d < 0) { return 0; }
        TENSOR__REFUSE_AS(0, *mask >> d & 1, INDEX, "%s: dim %i appears twice (x %t)", op, d, x);
        *mask |= 1u << d;
    }
    return 1;
}
// Dims and strides of a contiguous tensor.
TENSOR__INLINE void tensor__dense(tensor_t *t, const int64_t *dims, int ndim) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t->dims[i] = dims[i];
        t->strides[i] = stride;
        stride *= dims[i] > 0 ? dims[i] : 1;
    }
}
// A fresh contiguous tensor; raises SHAPE or OUT_OF_MEMORY.
TENSOR__FN tensor_t *tensor__make(tensor__thread_t *th, const char *op, int dtype, const int64_t *dims,
                                  int ndim, int device) {
    TENSOR__REFUSE(ndim < 0 || ndim > TENSOR_MAX_DIMS, SHAPE, "%s: %i dims; there must be 0 to %i", op, ndim,
                   (int)TENSOR_MAX_DIMS);
    if (!tensor__dims_given(op, dims, ndim)) { return TENSOR__POISON; }
    TENSOR__REFUSE((unsigned)dtype >= TENSOR_DTYPE_COUNT, DTYPE, "%s: %i is no dtype", op, dtype);
    int64_t n;
    TENSOR__REFUSE(!tensor__numel_of(dims, ndim, &n), SHAPE,
                   "%s: shape %n has a negative size or too many elements", op, dims, ndim);
    tensor_t *t = tensor__new_header(th, op, dtype, ndim);
    uint64_t bytes = (uint64_t)n * tensor__sizes[dtype];
    tensor__storage_t *s = !t ? NULL : device ? tensor__device_storage(th, bytes, device) :
        tensor__storage(th, bytes, NULL);
    if (!s) {
        if (t) { (tensor_free)(t); }
        return tensor__fail(th, TENSOR_ERR_OUT_OF_MEMORY, "%s: out of %smemory for shape %n %s", op,
                            device ? "device " : "", dims, ndim, tensor__dtype_names[dtype]);
    }
    t->storage = s;
    t->device = (uint8_t)device;
    t->numel = n;
    t->flags = TENSOR__CONTIGUOUS;
    if (th->modes & TENSOR__INFERRING) { t->flags = TENSOR__CONTIGUOUS | TENSOR__INFERENCE; }
    tensor__dense(t, dims, ndim);
    return t;
}

// What the plain doors take: one comparison of two neighbouring bytes.
#define TENSOR__HOST_F32(t) ((t)->dtype == TENSOR_F32 && (t)->device == 0)
TENSOR__INLINE void *tensor__ptr(const tensor_t *t) {
    return (char *)t->storage->data + t->offset * (int64_t)tensor__sizes[t->dtype];
}
TENSOR__INLINE int tensor__needs_grad(const tensor_t *t) {
    return t->node != NULL || (t->flags & TENSOR__REQUIRES_GRAD) != 0;
}
TENSOR__FN void tensor__rebase_view(tensor__thread_t *th, tensor_t *t);
// A view whose base was changed in place gets its node anew.
TENSOR__INLINE int tensor__sync_needs_grad(tensor__thread_t *th, tensor_t *t) {
    if (t->base && t->base->rebased != TENSOR__ATOMIC_LOAD(&t->base_version)) { tensor__rebase_view(th, t); }
    return tensor__needs_grad(t);
}

TENSOR__FN TENSOR__NOINLINE int tensor__bad_arg(const tensor__row_t *row, int i, int nin, tensor_t *t) {
    char name[32];
    tensor__text_t s = {name, sizeof name, 0};
    const char *a = row->args;
    if (a) {
        for (int k = 0; k < i && *a; a++) { k += *a == ' '; }
        size_t n = 0;
        while (a[n] && a[n] != ' ') { n++; }
        tensor__put(&s, a, n);
    } else if (row->nin < 0) {
        tensor__puts(&s, "list[");
        tensor__puti(&s, i);
        tensor__puts(&s, "]");
    } else {
        tensor__puts(&s, nin == 1 ? "x" : tensor__arg_names[i < TENSOR__MAX_IN ? i : 0]);
    }
    return tensor__unusable(row->name, name, t);
}
TENSOR__FN tensor_t *tensor__to_device(tensor_t *x, int device, int wait);
// Inputs lie on several devices: 0-d tensors on the CPU go where the others are, all else is an error. 0 =
// raised.
TENSOR__FN TENSOR__NOINLINE int tensor__same_device(tensor__op_t *o, int i) {
    int device = o->device ? o->device : o->in[i]->device;
    for (int k = 0; k <= i; k++) {
        tensor_t *t = o->in[k];
        if (!t || t->device == device) { continue; }
        TENSOR__REFUSE_AS(0, t->device || t->ndim || o->in != o->args, DEVICE,
                          "%s: tensors on %s and %s; tensor_to(x, device) brings them together", o->row->name,
                          tensor__device_name(o->th, t->device), tensor__device_name(o->th, device));
        if ((o->args[k] = tensor__to_device(t, device, 1)) == TENSOR__POISON) { return 0; }
        o->moved |= (uint8_t)(1 << k);
    }
    o->device = (uint8_t)device;
    return 1;
}
TENSOR__FN int tensor__begin(tensor__op_t *o, const tensor__row_t *row, tensor_t *const *in, int nin) {
    tensor__thread_t *th = tensor__self();
    th->fresh = NULL;
    th->written = NULL;
    o->th = th;
    o->row = row;
    o->nin = nin;
    o->nout = 0;
    o->update = 0;
    o->immediate = 0;
    o->moved = 0;
    o->visible = 1;
    o->original = NULL;
    o->compute = 0;
    o->rng.seed = o->rng.offset = 0;
    o->p = NULL;
    if (nin <= TENSOR__MAX_IN) {
        for (int i = 0; i < nin; i++) { o->args[i] = in[i]; }
        o->in = o->args;
    } else {
        o->in = in;
    }
    o->device = nin && in[0] ? in[0]->device : nin ? 0 : th->device;
    for (int i = 0; i < nin; i++) {
        tensor_t *t = in[i];
        if (TENSOR__LIKELY(t != NULL && t->state == TENSOR__LIVE)) {
            if (TENSOR__LIKELY(t->home == th || t->home->ctx == th->ctx)) {
                if (TENSOR__LIKELY(t->device == o->device)) { continue; }
                if (!tensor__same_device(o, i)) { return 0; }
                continue;
            }
            tensor__fail(th, TENSOR_ERR_OWNER, "%s: a tensor %t of another context", row->name, t);
            return 0;
        }
        if (!t && i >= row->required && row->nin >= 0) { continue; }
        return tensor__bad_arg(row, i, nin, t);
    }
    return 1;
}
// Parameters of the call.
TENSOR__INLINE void tensor__ints(tensor__op_t *o, int64_t first, int64_t second) {
    o->p = &o->params;
    o->params.i[0] = first;
    o->params.i[1] = second;
}
TENSOR__INLINE void tensor__reals(tensor__op_t *o, double first, double second) {
    o->p = &o->params;
    o->params.f[0] = first;
    o->params.f[1] = second;
}
TENSOR__FN tensor_t *tensor__result(tensor__op_t *o, int dtype, const int64_t *dims, int ndim) {
    tensor_t *t = tensor__make(o->th, o->row->name, dtype, dims, ndim, o->device);
    o->out[o->nout++] = t;
    return t;
}
// Opens the call o of a row, with its inputs; poison comes back if they are not usable.
#define TENSOR__BEGIN0(o, row)                                                                               \
    tensor__op_t o;                                                                                          \
    tensor__begin(&o, row, NULL, 0);
#define TENSOR__BEGIN(o, row, ...)                                                                           \
    tensor__op_t o;                                                                                          \
    tensor_t *const in_[] = {__VA_ARGS__};                                                                   \
    if (!tensor__begin(&o, row, in_, (int)(sizeof in_ / sizeof *in_))) { return TENSOR__POISON; }

// ------------------------------------------------------------------------------
// >>impl-gate                                      MARK: the one door to tensor data
//
// Kernels run behind tensor__launch: the backend's kernel is chosen and run (it takes its scratch), then the
// versions of changed storages are counted. Data is touched beside it on the CPU alone, after the same
// checks, by the short way of contiguous pointwise ops, their gradients and sums of gradients
// (tensor__add_into), which run the bodies that the kernel would run; by what moves data in or out of the
// library (from, item, copy_out, data, print, gradcheck, loaders, files); by optimizers on the
// CPU; and by fronts that turn indices into other indices (embedding_bag, the composed ctc_loss). For
// those a backend needs a copy to the host, no kernel. Rejected: a call block for each of these (it would
// cost more than the work).
// ------------------------------------------------------------------------------

TENSOR__INLINE void tensor__arg(tensor_arg_t *a, const tensor_t *t, int role) {
    a->data = tensor__ptr(t);
    a->dims = t->dims;
    a->strides = t->strides;
    a->numel = t->numel;
    a->storage = t->storage;
    a->dtype = t->dtype;
    a->ndim = t->ndim;
    a->role = (uint8_t)role;
    a->contiguous = (t->flags & TENSOR__CONTIGUOUS) != 0;
}
TENSOR__INLINE void tensor__arg_none(tensor_arg_t *a) {
    a->data = NULL;
    a->storage = NULL;
    a->dims = a->strides = tensor__no_dims;
    a->numel = 0;
    a->ndim = 0;
    a->role = TENSOR_READ;
    a->contiguous = 1;
    a->dtype = 0;
}
// Strides of dims with channels innermost, into to or NULL. -> whether is has them, where a dim is not 1
TENSOR__FN int tensor__last(const int64_t *dims, int ndim, const int64_t *is, int64_t *to) {
    int64_t step = 1, same = 1;
    for (int k = 0; k < ndim; k++) {
        int d = k == 0 ? 1 : k == ndim - 1 ? 0 : ndim - k;
        same = same && (dims[d] == 1 || is[d] == step);
        if (to) { to[d] = step; }
        step *= dims[d];
    }
    return (int)same;
}
// Whether a, of a device, is an image that lies so and that its kernels take; not if it is row-major, too.
TENSOR__FN int tensor__last_arg(const tensor_arg_t *a) {
    const tensor_backend_t *b = tensor__self()->ctx->backend[1];
    return !a->contiguous && a->ndim > 3 && a->ndim < 6 && a->numel && b && b->channels_last &&
        tensor__last(a->dims, a->ndim, a->strides, NULL);
}
TENSOR__FN int tensor__lasts(const tensor_t *x) {
    tensor_arg_t a;
    tensor__arg(&a, x, TENSOR_READ);
    return x->device && tensor__last_arg(&a);
}
TENSOR__FN void tensor__make_last(tensor_t *t) {    // a fresh one
    if (t->dims[1] == 1 || t->numel == t->dims[0] * t->dims[1]) { return; }
    tensor__last(t->dims, t->ndim, t->strides, t->strides);
    t->flags &= (uint8_t)~TENSOR__CONTIGUOUS;
}
TENSOR__FN void tensor__follow(tensor_t *t, const tensor_t *x) {
    if (x && t != TENSOR__POISON && t->ndim == x->ndim && tensor__lasts(x)) { tensor__make_last(t); }
}
TENSOR__INLINE void tensor__bump(tensor__thread_t *th, tensor__storage_t *s, const char *op) {
    s->version++;
    s->write_op = op;
    s->write_site = NULL;
    th->written = s;
}

// -> code; raised if not 0.
TENSOR__FN int tensor__launch(tensor_call_t *c) {
    const tensor__row_t *row = c->row;
    const tensor_backend_t *b = c->thread->ctx->backend[c->device != 0];
    tensor_kernel_t kernel = b->kernel[row->family];
    if (!kernel) {
        tensor__fail(c->thread, TENSOR_ERR_UNSUPPORTED, "%s: %s has no kernel for it", row->name, b->name);
        return TENSOR_ERR_UNSUPPORTED;
    }
    int code = kernel(c);
    if (c->device) { c->thread->away = 1; }
    if (code) { return code; }
    for (int i = c->nin; i < c->nin + c->nout; i++) {
        if (c->arg[i].role == TENSOR_UPDATE) { tensor__bump(c->thread, c->arg[i].storage, row->name); }
    }
    return 0;
}

TENSOR__FN int tensor__record(tensor__op_t *o);
TENSOR__FN int tensor__update_allowed(tensor__thread_t *th, const char *op, tensor_t *x, int recording);
TENSOR__FN int tensor__record_update(tensor__op_t *o);

// Whether the tape wants this op.
TENSOR__INLINE int tensor__tracks(tensor__op_t *o) {
    if (!o->th->grad_mode || !o->row->grad) { return 0; }
    for (int i = 0; i < o->nin; i++) {
        if (o->in[i] && tensor__sync_needs_grad(o->th, o->in[i])) { return 1; }
    }
    return 0;
}

// Undoes the results of an op that failed.
TENSOR__FN TENSOR__NOINLINE tensor_t *tensor__abandon(tensor__op_t *o) {
    for (int i = o->update ? 1 : 0; i < o->nout; i++) {
        if (o->out[i] != TENSOR__POISON) { (tensor_free)(o->out[i]); }
    }
    return TENSOR__POISON;
}
// After the data is there: record, drop what the user does not see.
TENSOR__INLINE tensor_t *tensor__commit(tensor__op_t *o) {
    if (tensor__tracks(o)) {
        if (!(o->update ? tensor__record_update(o) : tensor__record(o))) { return tensor__abandon(o); }
    }
    for (int i = o->visible; i < o->nout; i++) { (tensor_free)(o->out[i]); }
    for (int k = 0; o->moved >> k; k++) {
        if (o->moved >> k & 1) { (tensor_free)(o->args[k]); }
    }
    o->th->fresh = o->out[0];
    return o->out[0];
}

TENSOR__FN tensor_t *tensor__finish(tensor__op_t *o) {
    for (int i = 0; i < o->nout; i++) {
        if (o->out[i] == TENSOR__POISON) { return tensor__abandon(o); }
    }
    if (o->row->cpu) {
        tensor_arg_t arg[TENSOR__MAX_IN + TENSOR__MAX_OUT];
        tensor_call_t c;
        c.row = o->row;
        c.arg = arg;
        c.nin = o->nin;
        c.nout = o->nout;
        c.p = o->p;
        c.rng = o->rng;
        c.compute = o->compute;
        c.device = (uint8_t)o->device;
        c.thread = o->th;
        for (int i = 0; i < o->nin; i++) {
            if (o->in[i]) { tensor__arg(&arg[i], o->in[i], TENSOR_READ); } else { tensor__arg_none(&arg[i]); }
        }
        if (o->immediate) {
            tensor__arg_none(&arg[1]);
            arg[1].data = &o->imm;
            arg[1].numel = 1;
            arg[1].dtype = TENSOR_F64;
        }
        for (int i = 0; i < o->nout; i++) {
            tensor__arg(&arg[o->nin + i], o->out[i], o->update && i == 0 ? TENSOR_UPDATE : TENSOR_WRITE);
        }
        if (tensor__launch(&c)) { return tensor__abandon(o); }
    }
    return tensor__commit(o);
}

// ------------------------------------------------------------------------------
// >>impl-tape                                      MARK: recording
//
// A node is one block: struct, edges, shapes, saved values, all their dims. Saved values hold storage and
// version, never a header. Graphs are freed by a worklist threaded through the nodes, so depth costs no
// stack. Rejected: a tape that is a list in order of calls (a dropped branch would stay alive), recursion
// over the graph.
// ------------------------------------------------------------------------------

TENSOR__INLINE void tensor__saved_drop(tensor__thread_t *th, tensor__node_t *n) {
    for (int i = 0; i < n->nsaved; i++) {
        if (n->saved[i].storage) {
            tensor__storage_drop(th, n->saved[i].storage);
            n->saved[i].storage = NULL;
        }
    }
}
TENSOR__FN void tensor__custom_free(tensor__thread_t *th, void *custom);
TENSOR__FN void tensor__node_free(tensor__thread_t *th, tensor__node_t *node) {
    tensor__node_t *list = node;
    node->next = NULL;
    while (list) {
        tensor__node_t *n = list;
        list = n->next;
        if (n->extra) { tensor__extra_free(th, n->extra); }     // first: no checkpoint fills it any more
        if (n->used != 1) { tensor__saved_drop(th, n); }
        for (int i = 0; i < n->nin; i++) {
            tensor__node_t *to = n->edge[i].node;
            if (to && TENSOR__DROP(&to->refs)) {
                to->next = list;
                list = to;
            }
            if (n->edge[i].leaf) { tensor__drop(n->edge[i].leaf); }
        }
        if (n->custom) { tensor__custom_free(th, n->custom); }
        tensor__count(&th->live_nodes, -1);
        if (TENSOR__LIKELY(n->home == th)) {
            tensor__block_free(th, n, n->klass);
        } else {
            TENSOR__PUSH_FOREIGN(&n->home->foreign_nodes, n, tensor__node_t);
        }
    }
}

TENSOR__INLINE const int64_t *tensor__pool_dims(int64_t **pool, const int64_t *dims, int n) {
    int64_t *at = *pool;
    for (int i = 0; i < n; i++) { at[i] = dims[i]; }
    *pool = at + n;
    return at;
}

TENSOR__INLINE void tensor__save(tensor__saved_t *v, const tensor_t *t, const int64_t *dims, int64_t **pool) {
    TENSOR__HOLD(&t->storage->refs);
    v->storage = t->storage;
    v->offset = t->offset;
    v->version = t->storage->version;
    v->ndim = t->ndim;
    v->dtype = t->dtype;
    v->numel = t->numel;
    v->contiguous = (t->flags & TENSOR__CONTIGUOUS) != 0;
    v->dims = dims;
    v->strides = tensor__pool_dims(pool, t->strides, t->ndim);
}

// What the derivatives of a pointwise row read for the operands that want a gradient, from the rows' own
// text.
TENSOR__FN int tensor__pointwise_saves(const tensor__op_t *o);

TENSOR__FN TENSOR__NOINLINE void tensor__not_saved(tensor__thread_t *th, const char *op, tensor_t *t) {
    tensor__fail(th, TENSOR_ERR_AUTOGRAD, "%s: %t made by %s in inference mode cannot be saved for backward; "
                 "use a clone of it, or no_grad in place of inference mode", op, t, t->op ? t->op : "?");
}
TENSOR__FN int tensor__pack(tensor__thread_t *th, tensor__node_t *n);
// A node with nothing filled in but its row and its parts, then `more` bytes. NULL = out of memory, raised.
TENSOR__INLINE tensor__node_t *tensor__node_new(tensor__thread_t *th, const tensor__row_t *row, int nin,
                                                int nout, int nsaved, size_t more) {
    size_t bytes = sizeof(tensor__node_t) + (size_t)nin * sizeof(tensor__edge_t) +
                   (size_t)(nin + nout) * sizeof(tensor__meta_t) + (size_t)nsaved * sizeof(tensor__saved_t);
    int16_t klass;
    tensor__node_t *n = (tensor__node_t *)tensor__block(th, bytes + more, &klass);
    TENSOR__REFUSE_AS(NULL, !n, OUT_OF_MEMORY, "%s: out of memory for the tape", row->name);
    tensor__count(&th->live_nodes, 1);
    n->refs = 1;
    n->klass = klass;
    n->nout = (uint8_t)nout;
    n->used = 0;
    n->nin = nin;
    n->nsaved = nsaved;
    n->row = row;
    n->site = NULL;
    n->home = th;
    n->extra = NULL;
    n->custom = NULL;
    n->edge = (tensor__edge_t *)(void *)(n + 1);
    n->in = (tensor__meta_t *)(void *)(n->edge + nin);
    n->out = n->in + nin;
    n->saved = (tensor__saved_t *)(void *)(n->out + nout);
    return n;
}
// An edge to what made t, or to t as a leaf, NULL = to nothing; seq, or that of its node if it is larger.
TENSOR__INLINE uint64_t tensor__edge_set(tensor__edge_t *e, tensor_t *t, uint64_t seq) {
    e->node = NULL;
    e->leaf = NULL;
    e->output = 0;
    if (t && t->node) {
        TENSOR__HOLD(&t->node->refs);
        e->node = t->node;
        e->output = t->output;
        if (t->node->seq > seq) { seq = t->node->seq; }
    } else if (t && (t->flags & TENSOR__REQUIRES_GRAD)) {
        TENSOR__HOLD(&t->refs);
        e->leaf = t;
    }
    return seq;
}
// The node of an op whose data is there. NULL = out of memory, raised.
TENSOR__FN tensor__node_t *tensor__node_make(tensor__op_t *o, int saves) {
    tensor__thread_t *th = o->th;
    int nsaved = 0;
    size_t dims = 0;
    if (o->row->family == TENSOR_FAMILY_POINTWISE && saves) { saves = tensor__pointwise_saves(o); }
    for (int i = 0; i < o->nin; i++) {
        if (o->in[i]) { dims += o->in[i]->ndim; }
        if (i < 5 && (saves >> i & 1)) {
            nsaved++;
            if (!o->in[i]) { continue; }
            dims += 2 * (size_t)o->in[i]->ndim;
            if (o->in[i]->flags & TENSOR__INFERENCE) {
                tensor__not_saved(th, o->row->name, o->in[i]);
                return NULL;
            }
        }
    }
    for (int i = 0; i < o->nout; i++) {
        dims += o->out[i]->ndim;
        if (saves >> (8 + i) & 1) { nsaved++; dims += 2 * (size_t)o->out[i]->ndim; }
    }
    tensor__node_t *n = tensor__node_new(th, o->row, o->nin, o->nout, nsaved,
                                         dims * sizeof(int64_t) + (o->p ? sizeof(tensor_params_t) : 0));
    if (!n) { return NULL; }
    n->rng = o->rng;
    n->p = (tensor_params_t *)(void *)(n->saved + nsaved);
    int64_t *pool = (int64_t *)(void *)(n->p + (o->p ? 1 : 0));
    if (o->p) { *n->p = *o->p; } else { n->p = NULL; }
    uint64_t seq = th->seq;
    int s = 0;
    for (int i = 0; i < o->nin; i++) {
        tensor_t *t = o->in[i];
        int wants = t && tensor__is_float(t->dtype) && tensor__sync_needs_grad(th, t);
        n->in[i].ndim = t ? t->ndim : 0;
        n->in[i].dtype = t ? t->dtype : 0;
        n->in[i].dims = t ? tensor__pool_dims(&pool, t->dims, t->ndim) : tensor__no_dims;
        seq = tensor__edge_set(&n->edge[i], wants ? t : NULL, seq);
        if (i < 5 && (saves >> i & 1)) {
            tensor__saved_t *v = &n->saved[s++];
            v->source = (int8_t)i;
            v->storage = NULL;
            v->is_immediate = 0;
            if (t) {
                tensor__save(v, i == 0 && o->original ? o->original : t, n->in[i].dims, &pool);
            } else if (i == 1 && o->immediate) {
                v->is_immediate = 1;
                v->immediate = o->imm;
            }
        }
    }
    for (int i = 0; i < o->nout; i++) {
        tensor_t *t = o->out[i];
        n->out[i].ndim = t->ndim;
        n->out[i].dtype = t->dtype;
        n->out[i].dims = tensor__pool_dims(&pool, t->dims, t->ndim);
        if (saves >> (8 + i) & 1) {
            tensor__saved_t *v = &n->saved[s++];
            v->source = (int8_t)(-1 - i);
            v->is_immediate = 0;
            tensor__save(v, t, n->out[i].dims, &pool);
        }
    }
    th->seq = n->seq = seq + 1;
    if ((th->modes & TENSOR__PACKING) && !tensor__pack(th, n)) {
        tensor__node_drop(th, n);
        return NULL;
    }
    return n;
}

TENSOR__FN int tensor__record(tensor__op_t *o) {
    tensor__node_t *n = tensor__node_make(o, o->row->saves);
    if (!n) { return 0; }
    int given = 0;
    for (int i = 0; i < o->nout; i++) {
        tensor_t *t = o->out[i];
        if (!tensor__is_float(t->dtype)) { continue; }
        if (given++) { TENSOR__HOLD(&n->refs); }
        t->node = n;
        t->output = i;
    }
    if (!given) { tensor__node_drop(o->th, n); }
    return 1;
}

// ------------------------------------------------------------------------------
// >>impl-iterator                                  MARK: strides, conversion, blocks
//
// Arguments of any stride and dtype pass through L1 blocks of the compute type in row-major order;
// contiguous arguments of that type are used where they lie. Bodies see contiguous memory and whole vectors
// only. Rejected: bodies for every mix of strides and dtypes, or a contiguous copy of whole arguments
// (memory traffic, and peaks of memory). After it: how a matrix product is cut for threads and caches, its
// reference and f64, which are the same for all instruction sets.
// ------------------------------------------------------------------------------

enum { TENSOR__BLOCK = 256, TENSOR__LANES = 16, TENSOR__ITER_ARGS = 9, TENSOR__GRAIN = 16384 };
typedef void (*tensor__body_t)(const void *const *in, void *const *out, const double *p, int64_t n);

// What one instruction set offers; filled by its kernel pass.
typedef struct tensor__isa_t {
    const tensor__body_t *forward, *backward;
    int lanes;
    float (*leaf_sum)(const float *x, int64_t n);
    float (*leaf_max)(const float *x, int64_t n);
    float (*leaf_min)(const float *x, int64_t n);
    void (*add_row)(float *acc, const float *x, int64_t n);
    void (*row_softmax)(const float *x, float *y, int64_t n);
    void (*row_log_softmax)(const float *x, float *y, int64_t n);
    float (*row_logsumexp)(const float *x, float *work, int64_t n);
    void (*row_softmax_backward)(const float *g, const float *y, float *dx, int64_t n);
    void (*row_log_softmax_backward)(const float *g, const float *y, float *dx, int64_t n);
    float (*row_dot)(const float *x, const float *y, int64_t n);
    void (*gemm_f32)(const tensor__gemm_t *g);
    void (*gemm_tile_f64)(int64_t k, int64_t rows, const double *a, int64_t ars, int64_t acs, const double *b,
                          double *c);
    void (*random)(int normal, tensor_generator_t g, int64_t first, int64_t n, float a, float b, float *out);
    int64_t (*load)(float *d, const void *p, int dtype, int64_t n);
    int64_t (*store)(void *p, int dtype, const float *s, int64_t n);
    int64_t (*find)(const float *x, int64_t n, float v);
    void (*transpose)(int64_t rows, int64_t columns, const float *x, int64_t xld, float *y, int64_t yld);
} tensor__isa_t;

/* GEMM, common to all ISA passes: the call, its scratch, the references, the f64 product
 *
 * C[m,n] (+)= A[m,k] B[k,n] (+ bias[n]), row stride of C free, column stride 1, A and B of any strides (0
 * too). Order of the sum, the same for every thread count and every tile edge: k is cut into chunks of a
 * constant length, a chunk is one chain from +0 in ascending k, chunks are added to C in ascending k. What
 * is chosen (path, chunk length, split of k) is chosen from m, n, k and the strides, never from the
 * threads. */
enum {
    TENSOR__GEMM_KC = 512,      /* longest chunk of k: a panel of A (14 x 512 f32) is 28 KB of L1 */
    TENSOR__GEMM_NC = 128,      /* columns of packed B: 512 x 128 f32 = 256 KB of a 1 MB L2 */
    TENSOR__GEMM_MC = 1024,     /* rows of packed A */
    TENSOR__GEMM_PANELS = 16,   /* panels of A packed at a time */
    TENSOR__GEMM_KS = 32,       /* chunk of k where B is read in place and only once: 32 streams of rows */
    TENSOR__GEMM_KD = 1024,     /* chunk of k of the dot path: 6 rows of B in L1 */
    TENSOR__GEMM_MR = 16,       /* rows and columns of a tile, upper bounds over the passes */
    TENSOR__GEMM_NR = 32,
    TENSOR__GEMM_SPLIT = 8,     /* parts of k of a split sum, at least */
    TENSOR__GEMM_LEAF = 16384,  /* their length, at most */
    TENSOR__GEMM_SMALL = 65536  /* elements of C that a long sum is split for */
};

#define TENSOR__MIN(a, b) ((a) < (b) ? (a) : (b))
#if defined(__GNUC__) || defined(__clang__)
#define TENSOR__HIDE(p) __asm__("" : "+r"(p))      /* where p came from is forgotten */
#else
#define TENSOR__HIDE(p) ((void)0)
#endif

/* Into how many parts k is cut, 0 = none: a tall sum over a small C (dW of a narrow layer) has too few tiles
 * to share, and one chain of chunks loses digits where k is very long. The partial products land in scratch
 * and are added in order, in double. */
TENSOR__FN int64_t tensor__gemm_splits(const tensor__gemm_t *g) {
    int64_t parts = (g->k + TENSOR__GEMM_LEAF - 1) / TENSOR__GEMM_LEAF, least = TENSOR__GEMM_SPLIT;
    if (g->k < 4096 || g->batch != 1 || g->m > TENSOR__GEMM_SMALL / g->n) return 0;     /* most end here */
    if (g->m <= 64 && g->n <= 64 && g->m > 4) return parts > least ? parts : least;
    return parts > least ? parts : 0;
}

/* Panels of rows are of equal height: 13 rows are 7 + 6, not 12 + 1. -> the height,
    before row `high` one more */
TENSOR__INLINE int tensor__gemm_height(int rows, int mr, int *high) {
    int panels = (rows + mr - 1) / mr, h = mr;
    while (h * panels > rows) h--;      /* some steps at most; a division takes longer than a tiny product */
    *high = (rows - h * panels) * (h + 1);
    return h;
}

/* chunks of one k are of equal length: 640 is 320 + 320, not 512 + 128 */
TENSOR__FN int64_t tensor__gemm_chunk(int64_t k) {
    if (k <= TENSOR__GEMM_KC) return k;
    int64_t parts = (k + TENSOR__GEMM_KC - 1) / TENSOR__GEMM_KC;
    return ((k + parts - 1) / parts + 15) / 16 * 16;
}

/* Floats of scratch a worker needs: panels of A (rows padded by 16 against set conflicts), then a block of
 * B. Bounds by min(k, KC), not by the chunk: the parts of a split sum have chunks of their own. */
TENSOR__FN int64_t tensor__gemm_panel_floats(const tensor__gemm_t *g) {
    return (TENSOR__MIN(g->k, (int64_t)TENSOR__GEMM_KC) + 16)
        * (TENSOR__MIN(g->m, (int64_t)TENSOR__GEMM_MC) + TENSOR__GEMM_MR);
}
TENSOR__FN uint64_t tensor__gemm_worker_floats(const tensor__gemm_t *g) {
    uint64_t nb = (uint64_t)TENSOR__MIN(g->n, (int64_t)TENSOR__GEMM_NC);
    nb = (nb + TENSOR__GEMM_NR - 1) / TENSOR__GEMM_NR * TENSOR__GEMM_NR;
    uint64_t steps = (uint64_t)TENSOR__MIN(g->k, (int64_t)TENSOR__GEMM_KC);
    return ((uint64_t)tensor__gemm_panel_floats(g) + steps * nb + 15) / 16 * 16;
}

TENSOR__FN float *tensor__gemm_room(const tensor__gemm_t *g, int worker) {
    float *s = (float *)(void *)(((uintptr_t)g->scratch + 63) & ~(uintptr_t)63);
    return s + (int64_t)tensor__gemm_worker_floats(g) * worker;
}
TENSOR__FN size_t tensor__gemm_scratch_f32(const tensor__gemm_t *g, int threads) {
    if (g->m <= 0 || g->n <= 0 || g->k <= 0 || g->batch <= 0) return 0;
    uint64_t bytes = tensor__gemm_worker_floats(g) * 4 * (uint64_t)(threads > 0 ? threads : 1) + 64;
    bytes += (uint64_t)g->m * (uint64_t)g->n * 4 * (uint64_t)tensor__gemm_splits(g);
    return (size_t)bytes;
}

/* the plain meaning: one chain in double per element */
TENSOR__FN void tensor__gemm_ref_f32(const tensor__gemm_t *g) {
    int64_t t, i, j, p;
    for (t = 0; t < g->batch; t++) {
        const float *a = (const float *)g->a + (g->aoff ? g->aoff[t] : 0);
        const float *b = (const float *)g->b + (g->boff ? g->boff[t] : 0);
        float *c = (float *)g->c + (g->coff ? g->coff[t] : 0);
        for (i = 0; i < g->m; i++)
            for (j = 0; j < g->n; j++) {
                double s = g->bias ? (double)((const float *)g->bias)[j] : 0.0;
                for (p = 0; p < g->k; p++)
                    s += (double)a[i * g->ars + p * g->acs] * (double)b[p * g->brs + j * g->bcs];
                if (g->accumulate) s += (double)c[i * g->crs + j];
                c[i * g->crs + j] = (float)s;
            }
    }
}

/* The parallel cut: an item of the batch is a grid of gm x gn rectangles of C, and a task is `per` items
 * or one rectangle. Each rectangle packs for itself, so workers meet only once, at the end; the grid is
 * the one that packs least for the balance it gives. */
typedef struct { int64_t tasks, per, gm, gn; } tensor__gemm_cut_t;

TENSOR__FN tensor__gemm_cut_t tensor__gemm_cut(const tensor__gemm_t *g, int threads, int mr, int nr) {
    tensor__gemm_cut_t cut;
    double work = (double)g->m * (double)g->n * (double)g->k, best = 0, cost;
    int64_t want, gm, gn, nrs, mrs, rows, cols;
    cut.tasks = 1; cut.per = g->batch; cut.gm = cut.gn = 1;
    /* 512K multiply-adds take about 8 us on one core; a join takes 2 */
    if (threads < 2 || work * (double)g->batch < 524288.0) return cut;
    if (g->batch >= 4 * threads || (g->batch >= threads && work < 262144.0)) {
        cut.per = (g->batch + 8 * threads - 1) / (8 * threads);
        cut.tasks = (g->batch + cut.per - 1) / cut.per;
        return cut;
    }
    nrs = (g->n + nr - 1) / nr; mrs = (g->m + mr - 1) / mr;
    want = (threads + g->batch - 1) / g->batch;
    /* somebody else may use a core: let the other take more */
    if (work > 8e6 * (double)want) want *= 4;
    for (gm = 1; gm <= want && gm <= mrs; gm++) {
        gn = TENSOR__MIN((want + gm - 1) / gm, nrs);
        rows = (mrs + gm - 1) / gm * mr;
        cols = (nrs + gn - 1) / gn * nr;
        /* in multiply-adds: 64 to read and pack an element of B, 16 to read one of A */
        cost = (double)rows * (double)cols + 64.0 * (double)cols + 16.0 * (double)rows;
        cost *= (double)((gm * gn * g->batch + threads - 1) / threads);
        if (best == 0 || cost < best) { best = cost; cut.gm = gm; cut.gn = gn; }
    }
    cut.per = 1;
    cut.tasks = cut.gm * cut.gn * g->batch;
    return cut;
}

/* f64: tiles of 4 rows and two vectors, B packed, A read in place; products and sums that no FMA joins, so a
 * result is the same whatever the instruction set. */
enum { TENSOR__GEMM_KC64 = 256, TENSOR__GEMM_NC64 = 128, TENSOR__GEMM_NR64 = 16 };

TENSOR__FN size_t tensor__gemm_scratch_f64(const tensor__gemm_t *g, int threads) {
    uint64_t kb = (uint64_t)TENSOR__MIN(g->k > 0 ? g->k : 0, (int64_t)TENSOR__GEMM_KC64);
    return (size_t)(kb * TENSOR__GEMM_NC64 * 8 * (uint64_t)(threads > 0 ? threads : 1) + 64);
}

/* dst[k][nr] from `w` columns of src, lanes past w zero */
TENSOR__FN void tensor__gemm_pack_f64(int64_t k, int64_t w, int nr, const double *src, int64_t rs, int64_t cs,
                                      double *dst) {
    int64_t p, i;
    if (cs == 1 && w == nr)
        for (p = 0; p < k; p++) memcpy(dst + p * nr, src + p * rs, (size_t)nr * 8);
    else
        for (i = 0; i < nr; i++)
            for (p = 0; p < k; p++) dst[p * nr + i] = i < w ? src[p * rs + i * cs] : 0.0;
}

typedef struct {
    const tensor__gemm_t *g;
    tensor__gemm_cut_t cut;
    int workers, nr;            /* nr: columns of a tile, with tile of f64 alone */
    int64_t parts;              /* of a split sum */
    int64_t r[6];               /* rows, columns (unused) and steps of k that are at hand */
    int shared;                 /* panels of A are ready, see gemm_share; not of f64 */
    void (*tile)(int64_t k, int64_t rows, const double *a, int64_t ars, int64_t acs, const double *b,
                 double *c);
} tensor__gemm_job_t;

/* rows, columns and steps of k of rectangle t of the grid, cut at multiples of mr and nr */
TENSOR__FN void tensor__gemm_rect(const tensor__gemm_job_t *job, int64_t t, int mr, int nr, int64_t *r) {
    const tensor__gemm_t *g = job->g;
    int64_t mrs, nrs, ti, tj;
    memcpy(r, job->r, sizeof job->r);
    if (job->cut.gm * job->cut.gn == 1) { r[2] = 0; r[3] = g->n; return; }
    mrs = (r[1] - r[0] + mr - 1) / mr; nrs = (g->n + nr - 1) / nr;
    ti = t / job->cut.gn; tj = t % job->cut.gn;
    r[1] = TENSOR__MIN(r[0] + mrs * (ti + 1) / job->cut.gm * mr, r[1]);
    r[0] += mrs * ti / job->cut.gm * mr;
    r[2] = nrs * tj / job->cut.gn * nr;
    r[3] = TENSOR__MIN(nrs * (tj + 1) / job->cut.gn * nr, g->n);
}

TENSOR__FN void tensor__gemm_block_f64(const tensor__gemm_job_t *job, int64_t item, const int64_t *r,
                                       double *bp) {
    const tensor__gemm_t *g = job->g;
    const double *a = (const double *)g->a + (g->aoff ? g->aoff[item] : 0);
    const double *b = (const double *)g->b + (g->boff ? g->boff[item] : 0);
    double *c = (double *)g->c + (g->coff ? g->coff[item] : 0), tile[4 * TENSOR__GEMM_NR64];
    int64_t p, q, jc, i, j, x, y, kb, nb, mw, nw, nr = job->nr;
    for (jc = r[2]; jc < r[3]; jc += TENSOR__GEMM_NC64)
        for (p = 0; p < g->k; p += TENSOR__GEMM_KC64) {
            int add = g->accumulate || p > 0;
            const double *bias = p == 0 ? (const double *)g->bias : NULL;
            kb = TENSOR__MIN(g->k - p, (int64_t)TENSOR__GEMM_KC64);
            nb = TENSOR__MIN(r[3] - jc, (int64_t)TENSOR__GEMM_NC64);
            for (q = 0; q < nb; q += nr)
                tensor__gemm_pack_f64(kb, TENSOR__MIN(nb - q, nr), job->nr,
                                      b + p * g->brs + (jc + q) * g->bcs, g->brs, g->bcs, bp + q * kb);
            for (i = r[0]; i < r[1]; i += 4) {
                mw = TENSOR__MIN(r[1] - i, (int64_t)4);
                for (j = 0; j < nb; j += nr) {
                    nw = TENSOR__MIN(nb - j, nr);
                    job->tile(kb, mw, a + i * g->ars + p * g->acs, g->ars, g->acs, bp + j * kb, tile);
                    for (x = 0; x < mw; x++) {
                        double *o = c + (i + x) * g->crs + jc + j;
                        for (y = 0; y < nw; y++) {
                            double v = tile[nr * x + y];
                            if (bias) v += bias[jc + j + y];
                            o[y] = add ? o[y] + v : v;
                        }
                    }
                }
            }
        }
}

TENSOR__FN void tensor__gemm_task_f64(void *arg, int64_t task, int worker) {
    const tensor__gemm_job_t *job = (const tensor__gemm_job_t *)arg;
    int64_t per = job->cut.gm * job->cut.gn, t, t1, r[6], n = job->g->batch * per;
    double *s = (double *)(void *)(((uintptr_t)job->g->scratch + 63) & ~(uintptr_t)63)
        + (int64_t)(tensor__gemm_scratch_f64(job->g, 1) - 64) / 8 * worker;
    t = task * job->cut.per;
    t1 = TENSOR__MIN(t + job->cut.per, n);
    for (; t < t1; t++) {
        tensor__gemm_rect(job, t % per, 4, job->nr, r);
        tensor__gemm_block_f64(job, t / per, r, s);
    }
}

/* k == 0: the empty sum. es = 4 or 8 bytes an element */
TENSOR__FN void tensor__gemm_empty(const tensor__gemm_t *g, size_t es) {
    int64_t t, i, j;
    if (g->accumulate && !g->bias) return;
    for (t = 0; t < g->batch; t++)
        for (i = 0; i < g->m; i++) {
            int64_t at = (g->coff ? g->coff[t] : 0) + i * g->crs;
            if (es == 4) {
                float *c = (float *)g->c + at;
                const float *b = (const float *)g->bias;
                for (j = 0; j < g->n; j++) c[j] = (g->accumulate ? c[j] : 0.0f) + (b ? b[j] : 0.0f);
            } else {
                double *c = (double *)g->c + at;
                const double *b = (const double *)g->bias;
                for (j = 0; j < g->n; j++) c[j] = (g->accumulate ? c[j] : 0.0) + (b ? b[j] : 0.0);
            }
        }
}

/* one tile: c[mr][.] (+)= a b; as = stride of a's rows (or of k, by variant), bs of b's rows, cs of c's;
 * w = valid columns of the last vector */
typedef void (*tensor__gemm_tile_fn)(int64_t k, const float *a, int64_t as, const float *b, int64_t bs,
                                     float *c, int64_t cs, const float *bias, int add, int w);

// Float to integer: truncates, saturates, NaN gives 0 (C leaves it undefined).
TENSOR__INLINE int64_t tensor__i64_from(double v) {
    if (v != v) { return 0; }
    if (v >= 9223372036854775808.0) { return INT64_MAX; }
    if (v < -9223372036854775808.0) { return INT64_MIN; }
    return (int64_t)v;
}
TENSOR__INLINE int64_t tensor__clip(double v, double lo, double hi) {
    if (v != v) { return 0; }
    return (int64_t)(v < lo ? lo : v > hi ? hi : v);
}
TENSOR__FN double tensor__remainder_f64(double a, double b) {
    double r = fmod(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
TENSOR__FN double tensor__floordiv_f64(double a, double b) {
    if (b == 0) { return a / b; }
    double m = fmod(a, b), d = (a - m) / b;
    if (m != 0 && ((b < 0) != (m < 0))) { d -= 1; }
    if (d == 0) { return copysign(0.0, a / b); }
    double f = floor(d);
    return d - f > 0.5 ? f + 1 : f;
}

// Compute types: f32 for f32 f16 bf16, f64, and int64_t for the integers and bool.
enum { TENSOR__C_F32, TENSOR__C_F64, TENSOR__C_I64 };
TENSOR__INLINE int tensor__class(int dtype) {
    return dtype == TENSOR_F64 ? TENSOR__C_F64 : tensor__is_float(dtype) ? TENSOR__C_F32 : TENSOR__C_I64;
}
static const uint8_t tensor__class_size[3] = {4, 8, 8};

// n elements with a stride into a block of a compute type, and back.
#define TENSOR__LOAD_RUN(type, expr)                                                                         \
    {                                                                                                        \
        const type *s = (const type *)from;                                                                  \
        for (int64_t i = 0; i < n; i++) { type v = s[i * stride]; d[i] = expr; }                             \
        break;                                                                                               \
    }
#define TENSOR__LOAD_FN(name, to_type, from_float)                                                           \
    TENSOR__FN void name(to_type *d, const void *from, int dtype, int64_t stride, int64_t n) {               \
        switch (dtype) {                                                                                     \
        case TENSOR_F32: TENSOR__LOAD_RUN(float, from_float(v))                                              \
        case TENSOR_F64: TENSOR__LOAD_RUN(double, from_float(v))                                             \
        case TENSOR_I32: TENSOR__LOAD_RUN(int32_t, (to_type)v)                                               \
        case TENSOR_I64: TENSOR__LOAD_RUN(int64_t, (to_type)v)                                               \
        case TENSOR_U8: TENSOR__LOAD_RUN(uint8_t, (to_type)v)                                                \
        case TENSOR_I8: TENSOR__LOAD_RUN(int8_t, (to_type)v)                                                 \
        case TENSOR_I16: TENSOR__LOAD_RUN(int16_t, (to_type)v)                                               \
        case TENSOR_BOOL: TENSOR__LOAD_RUN(uint8_t, (to_type)(v != 0))                                       \
        case TENSOR_F16: TENSOR__LOAD_RUN(uint16_t, from_float(tensor__f32_from_f16(v)))                     \
        case TENSOR_BF16: TENSOR__LOAD_RUN(uint16_t, from_float(tensor__f32_from_bf16(v)))                   \
        default: memset(d, 0, (size_t)n * sizeof *d); break;                                                 \
        }                                                                                                    \
    }
#define TENSOR__TO_I64(v) tensor__i64_from((double)(v))
TENSOR__LOAD_FN(tensor__load_f32, float, (float))
TENSOR__LOAD_FN(tensor__load_f64, double, (double))
TENSOR__LOAD_FN(tensor__load_i64, int64_t, TENSOR__TO_I64)
#undef TENSOR__LOAD_FN
#undef TENSOR__LOAD_RUN
#define TENSOR__STORE_RUN(type, expr)                                                                        \
    {                                                                                                        \
        type *d = (type *)to;                                                                                \
        for (int64_t i = 0; i < n; i++) { d[i * stride] = expr; }                                            \
        break;                                                                                               \
    }
#define TENSOR__STORE_FN(name, type, TO, to_i64)                                                             \
    TENSOR__FN void name(void *to, int dtype, int64_t stride, const type *s, int64_t n) {                    \
        switch (dtype) {                                                                                     \
        case TENSOR_F32: TENSOR__STORE_RUN(float, (float)s[i])                                               \
        case TENSOR_F64: TENSOR__STORE_RUN(double, (double)s[i])                                             \
        case TENSOR_I32: TENSOR__STORE_RUN(int32_t, TO(int32_t, uint32_t, s[i], -2147483648.0, 2147483647.0))\
        case TENSOR_I64: TENSOR__STORE_RUN(int64_t, to_i64(s[i]))                                            \
        case TENSOR_U8: TENSOR__STORE_RUN(uint8_t, TO(uint8_t, uint8_t, s[i], 0.0, 255.0))                   \
        case TENSOR_I8: TENSOR__STORE_RUN(int8_t, TO(int8_t, uint8_t, s[i], -128.0, 127.0))                  \
        case TENSOR_I16: TENSOR__STORE_RUN(int16_t, TO(int16_t, uint16_t, s[i], -32768.0, 32767.0))          \
        case TENSOR_BOOL: TENSOR__STORE_RUN(uint8_t, (uint8_t)(s[i] != 0))                                   \
        case TENSOR_F16: TENSOR__STORE_RUN(uint16_t, tensor__f16_from_f32((float)s[i]))                      \
        case TENSOR_BF16: TENSOR__STORE_RUN(uint16_t, tensor__bf16_from_f32((float)s[i]))                    \
        default: break;                                                                                      \
        }                                                                                                    \
    }
#define TENSOR__CLIPPED(type, bits, v, lo, hi) (type)tensor__clip((double)(v), lo, hi)
#define TENSOR__WRAPPED(type, bits, v, lo, hi) (type)(bits)(uint64_t)(v)    /* as two's complement does */
TENSOR__STORE_FN(tensor__store_f32, float, TENSOR__CLIPPED, TENSOR__TO_I64)
TENSOR__STORE_FN(tensor__store_f64, double, TENSOR__CLIPPED, TENSOR__TO_I64)
TENSOR__STORE_FN(tensor__store_i64, int64_t, TENSOR__WRAPPED, (int64_t))
#undef TENSOR__STORE_FN
#undef TENSOR__STORE_RUN
TENSOR__FN void tensor__load_run(void *d, int klass, const void *from, int dtype, int64_t stride, int64_t n) {
    if (stride == 1 && klass == TENSOR__C_F32 && dtype == TENSOR_F32) {
        memcpy(d, from, (size_t)n * 4); return;
    }
    int64_t all = n, m;
    if (stride == 0) { n = tensor__least(n, 16); }     // one value for all: the rest are copies of copies
    switch (klass) {
    case TENSOR__C_F32: tensor__load_f32((float *)d, from, dtype, stride, n); break;
    case TENSOR__C_F64: tensor__load_f64((double *)d, from, dtype, stride, n); break;
    default: tensor__load_i64((int64_t *)d, from, dtype, stride, n); break;
    }
    for (size_t size = tensor__class_size[klass]; n < all; n += m) {
        m = tensor__least(all - n, n);
        memcpy((char *)d + (size_t)n * size, d, (size_t)m * size);
    }
}
TENSOR__FN void tensor__store_run(void *to, int dtype, int64_t stride, const void *s, int klass, int64_t n) {
    if (stride == 1 && klass == TENSOR__C_F32 && dtype == TENSOR_F32) {
        memcpy(to, s, (size_t)n * 4); return;
    }
    switch (klass) {
    case TENSOR__C_F32: tensor__store_f32(to, dtype, stride, (const float *)s, n); break;
    case TENSOR__C_F64: tensor__store_f64(to, dtype, stride, (const double *)s, n); break;
    default: tensor__store_i64(to, dtype, stride, (const int64_t *)s, n); break;
    }
}
// n contiguous elements of one dtype to another.
TENSOR__FN void tensor__load(void *to, int to_dtype, const void *from, int from_dtype, int64_t n) {
    int64_t block[TENSOR__BLOCK];
    int klass = tensor__class(from_dtype);
    if (to_dtype == from_dtype) { memcpy(to, from, (size_t)n * tensor__sizes[to_dtype]); return; }
    for (int64_t i = 0; i < n; i += TENSOR__BLOCK) {
        int64_t m = tensor__least(n - i, TENSOR__BLOCK);
        tensor__load_run(block, klass, (const char *)from + i * tensor__sizes[from_dtype], from_dtype, 1, m);
        tensor__store_run((char *)to + i * tensor__sizes[to_dtype], to_dtype, 1, block, klass, m);
    }
}

typedef struct tensor__iter_arg_t {
    char *data;
    int64_t strides[TENSOR_MAX_DIMS];
    uint8_t dtype, size, direct, uniform;      // direct: used in place; uniform: one value everywhere
} tensor__iter_arg_t;
typedef struct tensor__iter_t {
    int nin, nout, ndim, klass, lanes;
    int64_t dims[TENSOR_MAX_DIMS], numel;
    tensor__body_t body;
    const tensor__isa_t *isa;                   // whose conversions may be used, or NULL
    const double *p;
    int slot[TENSOR__ITER_ARGS];                // where the body expects each input
    int nslots;
    tensor__iter_arg_t arg[TENSOR__ITER_ARGS];  // inputs, then outputs
} tensor__iter_t;

// Broadcasts args to dims and merges dims that every argument walks in one stride.
TENSOR__FN void tensor__iter_init(tensor__iter_t *it, const tensor_arg_t *args, int nin, int nout,
                                  const int64_t *dims, int ndim, int64_t numel, int klass) {
    int n = nin + nout, plain = 1;
    it->nin = nin;
    it->nout = nout;
    it->klass = klass;
    it->numel = numel;
    it->isa = NULL;
    for (int a = 0; a < n; a++) {
        const tensor_arg_t *x = &args[a];
        tensor__iter_arg_t *y = &it->arg[a];
        y->data = (char *)x->data;
        y->dtype = x->dtype;
        y->size = tensor__sizes[x->dtype];
        y->uniform = a < nin && x->numel == 1;
        y->direct = x->contiguous && x->numel == numel && tensor__class(x->dtype) == klass &&
                    y->size == tensor__class_size[klass];
        if (!y->uniform && !(x->contiguous && x->numel == numel)) { plain = 0; }
    }
    if (plain) {            // everything is one run
        it->ndim = 1;
        it->dims[0] = numel;
        for (int a = 0; a < n; a++) { it->arg[a].strides[0] = it->arg[a].uniform ? 0 : 1; }
        return;
    }
    int m = 0;
    for (int d = 0; d < ndim; d++) {
        if (dims[d] == 1) { continue; }
        int64_t s[TENSOR__ITER_ARGS];
        int merge = m > 0;
        for (int a = 0; a < n; a++) {
            int e = args[a].ndim - ndim + d;
            s[a] = e < 0 || args[a].dims[e] == 1 ? 0 : args[a].strides[e];
            if (m > 0 && it->arg[a].strides[m - 1] != s[a] * dims[d]) { merge = 0; }
        }
        if (merge) {
            it->dims[m - 1] *= dims[d];
            for (int a = 0; a < n; a++) { it->arg[a].strides[m - 1] = s[a]; }
        } else {
            it->dims[m] = dims[d];
            for (int a = 0; a < n; a++) { it->arg[a].strides[m] = s[a]; }
            m++;
        }
    }
    if (m == 0) {
        it->dims[m] = 1;
        for (int a = 0; a < n; a++) { it->arg[a].strides[0] = 0; }
        m = 1;
    }
    it->ndim = m;
}

// Moves elements first..first+n of the row-major order between an argument and a block.
TENSOR__FN void tensor__iter_move(const tensor__iter_t *it, int a, int64_t first, int64_t n, void *block,
                                  int store) {
    const tensor__iter_arg_t *x = &it->arg[a];
    int64_t at[TENSOR_MAX_DIMS], rest = first, offset = 0;
    int last = it->ndim - 1;
    for (int d = last; d >= 0; d--) {
        at[d] = rest % it->dims[d];
        rest /= it->dims[d];
        offset += at[d] * x->strides[d];
    }
    char *b = (char *)block;
    int bs = tensor__class_size[it->klass];
    while (n > 0) {
        int64_t run = it->dims[last] - at[last];
        if (run > n) { run = n; }
        char *p = x->data + offset * x->size;
        int64_t fast = 0;               // elements the vector conversions took
        if (it->isa && x->strides[last] == 1) {
            fast = store ? it->isa->store(p, x->dtype, (const float *)(const void *)b, run)
                         : it->isa->load((float *)(void *)b, p, x->dtype, run);
        }
        if (store) {
            tensor__store_run(p + fast * x->size, x->dtype, x->strides[last], b + fast * bs, it->klass,
                              run - fast);
        } else {
            tensor__load_run(b + fast * bs, it->klass, p + fast * x->size, x->dtype, x->strides[last],
                             run - fast);
        }
        b += run * bs;
        n -= run;
        offset += run * x->strides[last];
        at[last] += run;
        for (int d = last; d > 0 && at[d] == it->dims[d]; d--) {
            offset += x->strides[d - 1] - at[d] * x->strides[d];
            at[d] = 0;
            at[d - 1]++;
        }
    }
}

// The body over elements first..end.
TENSOR__FN void tensor__iter_range(const tensor__iter_t *it, int64_t first, int64_t end) {
    const void *in[TENSOR__ITER_ARGS];
    void *out[TENSOR__ITER_ARGS];
    int64_t block[TENSOR__ITER_ARGS][TENSOR__BLOCK + TENSOR__LANES];
    int bs = tensor__class_size[it->klass], n = it->nin + it->nout, direct = 1;
    for (int k = 0; k < it->nslots; k++) { in[k] = NULL; }
    for (int a = 0; a < n; a++) {
        if (a < it->nin && it->arg[a].uniform && it->arg[a].data) {
            int64_t fill = end - first + it->lanes;     // a short run needs no more than its own vectors
            tensor__load_run(block[a], it->klass, it->arg[a].data, it->arg[a].dtype, 0,
                             tensor__least(fill, TENSOR__BLOCK));
            in[it->slot[a]] = block[a];
            direct = 0;
        } else if (!it->arg[a].direct && it->arg[a].data) {
            direct = 0;
        }
    }
    while (first < end) {
        int64_t left = end - first, m = direct ? left : tensor__least(left, TENSOR__BLOCK);
        int64_t whole = m & ~(int64_t)(it->lanes - 1);     // lanes is a power of two
        if (whole) { m = whole; }       // the tail takes a turn of its own
        int padded = whole == 0;
        for (int a = 0; a < it->nin; a++) {
            const tensor__iter_arg_t *x = &it->arg[a];
            if (!x->data || x->uniform) { continue; }
            if (x->direct && !padded) {
                in[it->slot[a]] = x->data + first * bs;
            } else {
                if (padded) { memset(block[a], 0, (size_t)(it->lanes * bs)); }
                if (x->direct) {
                    memcpy(block[a], x->data + first * bs, (size_t)(m * bs));
                } else {
                    tensor__iter_move(it, a, first, m, block[a], 0);
                }
                in[it->slot[a]] = block[a];
            }
        }
        for (int k = 0; k < it->nout; k++) {
            const tensor__iter_arg_t *x = &it->arg[it->nin + k];
            out[k] = !x->data ? NULL : x->direct && !padded ? (void *)(x->data + first * bs) :
                (void *)block[it->nin + k];
        }
        it->body(in, out, it->p, padded ? it->lanes : m);
        for (int k = 0; k < it->nout; k++) {
            const tensor__iter_arg_t *x = &it->arg[it->nin + k];
            if (!x->data || (x->direct && !padded)) { continue; }
            if (x->direct) {
                memcpy(x->data + first * bs, block[it->nin + k], (size_t)(m * bs));
            } else {
                tensor__iter_move(it, it->nin + k, first, m, block[it->nin + k], 1);
            }
        }
        first += m;
    }
}
TENSOR__FN void tensor__iter_task(void *arg, int64_t task, int worker) {
    const tensor__iter_t *it = (const tensor__iter_t *)arg;
    int64_t first = task * TENSOR__GRAIN, end = first + TENSOR__GRAIN;
    (void)worker;
    tensor__iter_range(it, first, end < it->numel ? end : it->numel);
}
TENSOR__FN void tensor__iter_run(tensor__iter_t *it) {
    if (it->numel <= 2 * TENSOR__GRAIN) {
        tensor__iter_range(it, 0, it->numel);
    } else {
        tensor__parallel((it->numel + TENSOR__GRAIN - 1) / TENSOR__GRAIN, tensor__iter_task, it);
    }
}

// ------------------------------------------------------------------------------
// >>impl-cpu                                       MARK: CPU kernels: pointwise families
//
// The rows' text in two more meanings: double (which is also the reference for f32) and int64_t. Then the
// passes per instruction set, and the kernels of the pointwise families that choose among them. Rejected:
// reference formulas written a second time by hand (they drift apart from the vector ones).
// ------------------------------------------------------------------------------

TENSOR__COLD
#define F_A (((const double *)in[0])[i])
#define F_B (((const double *)in[1])[i])
#define F_C_ (((const double *)in[2])[i])
#define F_Y (((const double *)in[3])[i])
#define F_G (((const double *)in[4])[i])
#define F_P(k) p[k]
#define F_C(x) ((double)(x))
#define F_INF ((double)INFINITY)
#define F_ADD(a, b) ((a) + (b))
#define F_SUB(a, b) ((a) - (b))
#define F_MUL(a, b) ((a) * (b))
#define F_DIV(a, b) ((a) / (b))
#define F_NEG(a) (-(a))
#define F_ABS(a) fabs(a)
#define F_SIGN(a) tensor__sign_f64(a)
#define F_SQRT(a) sqrt(a)
#define F_RSQRT(a) (1 / sqrt(a))
#define F_MIN(a, b) tensor__min_f64(a, b)
#define F_MAX(a, b) tensor__max_f64(a, b)
#define F_FLOORDIV(a, b) tensor__floordiv_f64(a, b)
#define F_FMOD(a, b) fmod(a, b)
#define F_REMAINDER(a, b) tensor__remainder_f64(a, b)
#define F_FLOOR(a) floor(a)
#define F_CEIL(a) ceil(a)
#define F_TRUNC(a) trunc(a)
#define F_ROUND(a) tensor__round_f64(a)
#define F_POW(a, b) pow(a, b)
#define F_ATAN2(a, b) atan2(a, b)
#define F_EXP(a) exp(a)
#define F_EXP2(a) exp2(a)
#define F_EXPM1(a) expm1(a)
#define F_LOG(a) log(a)
#define F_LOG2(a) log2(a)
#define F_LOG10(a) log10(a)
#define F_LOG1P(a) log1p(a)
#define F_SIN(a) sin(a)
#define F_COS(a) cos(a)
#define F_TAN(a) tan(a)
#define F_ASIN(a) asin(a)
#define F_ACOS(a) acos(a)
#define F_ATAN(a) atan(a)
#define F_SINH(a) sinh(a)
#define F_COSH(a) cosh(a)
#define F_TANH(a) tanh(a)
#define F_SIGMOID(a) tensor__sigmoid_f64(a)
#define F_ERF(a) erf(a)
#define F_ERFC(a) erfc(a)
#define F_GELU(a) tensor__gelu_f64(a)
#define F_LT(a, b) ((a) < (b))
#define F_LE(a, b) ((a) <= (b))
#define F_GT(a, b) ((a) > (b))
#define F_GE(a, b) ((a) >= (b))
#define F_EQ(a, b) ((a) == (b))
#define F_NE(a, b) ((a) != (b))
#define F_ISNAN(a) tensor__isnan_f64(a)
#define F_AND(a, b) ((a) & (b))
#define F_OR(a, b) ((a) | (b))
#define F_XOR(a, b) ((a) ^ (b))
#define F_SEL(m, a, b) ((m) ? (a) : (b))

TENSOR__INLINE double tensor__sign_f64(double a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }
TENSOR__INLINE double tensor__min_f64(double a, double b) {
    return tensor__isnan_f64(a) ? a : tensor__isnan_f64(b) ? b : a < b ? a : b;
}
TENSOR__INLINE double tensor__max_f64(double a, double b) {
    return tensor__isnan_f64(a) ? a : tensor__isnan_f64(b) ? b : a > b ? a : b;
}
TENSOR__INLINE double tensor__sigmoid_f64(double a) {
    double e = exp(a < 0 ? a : -a);
    return a < 0 ? e / (1 + e) : 1 / (1 + e);
}
TENSOR__INLINE double tensor__gelu_f64(double a) { return a * 0.5 * erfc(a * -0.7071067811865476); }
// Half to even whatever the rounding mode of the process.
TENSOR__INLINE double tensor__round_f64(double a) {
    double f = floor(a), d = a - f;
    if (d > 0.5 || (d == 0.5 && fmod(f, 2) != 0)) { f += 1; }
    return tensor__isnan_f64(a) ? a : copysign(f, a);
}

#define F_POLYGAMMA(n, x) tensor__polygamma_f64(n, x)

#define TENSOR__FORWARD(name, f)                                                                             \
    TENSOR__FN void tensor__f_##name##_f64(const void *const *in, void *const *out, const double *p,         \
                                           int64_t n) {                                                      \
        (void)in, (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) { ((double *)out[0])[i] = f; }                                       \
    }
#define TENSOR__BACKWARD(name, text)                                                                         \
    TENSOR__FN void tensor__b_##name##_f64(const void *const *in, void *const *out, const double *p,         \
                                           int64_t n) {                                                      \
        (void)in, (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) { text }                                                             \
    }
#define TENSOR__OUT(k, f) if (out[k]) { ((double *)out[k])[i] = f; }
#define TENSOR__X(ID, name, kind, f, dA, saves, lo, hi, doc)                                                 \
    TENSOR__FORWARD(name, f) TENSOR__BACKWARD(name, TENSOR__OUT(0, dA))
TENSOR_OPS_UNARY(TENSOR__X)
TENSOR_OPS_COPY(TENSOR__X)
TENSOR_OPS_DOUBLE1(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, saves, lo, hi, doc)                                             \
    TENSOR__FORWARD(name, f)                                                                                 \
    TENSOR__BACKWARD(name, TENSOR__OUT(0, dA) TENSOR__OUT(1, dB))
TENSOR_OPS_BINARY(TENSOR__X)
TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, dC, saves, lo, hi, doc)                                         \
    TENSOR__FORWARD(name, f) TENSOR__BACKWARD(name, TENSOR__OUT(0, dA) TENSOR__OUT(1, dB) TENSOR__OUT(2, dC))
TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, nin, kind, f, doc) TENSOR__FORWARD(name, (f) ? 1.0 : 0.0)
TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X
#undef TENSOR__OUT
#undef TENSOR__FORWARD
#undef TENSOR__BACKWARD
static const tensor__body_t tensor__forward_f64[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, ...) tensor__f_##name##_f64,
#define TENSOR__NONE(...) NULL,
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__X) TENSOR_OPS_BITWISE(TENSOR__NONE)
    TENSOR_OPS_DOUBLE1(TENSOR__X) TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
};
static const tensor__body_t tensor__backward_f64[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, ...) tensor__b_##name##_f64,
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__NONE) TENSOR_OPS_BITWISE(TENSOR__NONE)
    TENSOR_OPS_DOUBLE1(TENSOR__X) TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
#undef TENSOR__NONE
};

// The quoted name is found beside this file whatever the include path.
#ifndef TENSOR_SELF
#define TENSOR_SELF "tensor.h"
#endif
// Ends the words of the formulas, here and below.
#define TENSOR__PASS 0
#define TENSOR__PASS_WORDS
#include TENSOR_SELF
// int64_t with wrap-around, for NUM, CMP and LOG rows.
#define F_A (((const int64_t *)in[0])[i])
#define F_B (((const int64_t *)in[1])[i])
#define F_C_ (((const int64_t *)in[2])[i])
#define F_P(k) tensor__i64_from(p[k])
#define F_C(x) ((int64_t)(x))
#define F_INF INT64_MAX
#define F_ADD(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define F_SUB(a, b) ((int64_t)((uint64_t)(a) - (uint64_t)(b)))
#define F_MUL(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define F_NEG(a) ((int64_t)(0 - (uint64_t)(a)))
#define F_ABS(a) ((a) < 0 ? F_NEG(a) : (a))
#define F_SIGN(a) ((int64_t)((a) > 0) - (int64_t)((a) < 0))
#define F_MIN(a, b) ((a) < (b) ? (a) : (b))
#define F_MAX(a, b) ((a) > (b) ? (a) : (b))
#define F_FLOORDIV(a, b) tensor__floordiv_i64(a, b)
#define F_FMOD(a, b) ((b) == -1 || (b) == 0 ? 0 : (a) % (b))
#define F_REMAINDER(a, b) tensor__remainder_i64(a, b)
#define F_FLOOR(a) (a)
#define F_CEIL(a) (a)
#define F_TRUNC(a) (a)
#define F_ROUND(a) (a)
#define F_POW(a, b) tensor__pow_i64(a, b)
#define F_LT(a, b) ((a) < (b))
#define F_LE(a, b) ((a) <= (b))
#define F_GT(a, b) ((a) > (b))
#define F_GE(a, b) ((a) >= (b))
#define F_EQ(a, b) ((a) == (b))
#define F_NE(a, b) ((a) != (b))
#define F_ISNAN(a) ((void)(a), 0)
#define F_AND(a, b) ((a) & (b))
#define F_OR(a, b) ((a) | (b))
#define F_XOR(a, b) ((a) ^ (b))
#define F_SEL(m, a, b) ((m) ? (a) : (b))

// Divisors are checked for 0 before the first element is written; -1 must not meet INT64_MIN in hardware.
TENSOR__INLINE int64_t tensor__floordiv_i64(int64_t a, int64_t b) {
    if (b == -1) { return F_NEG(a); }
    if (b == 0) { return 0; }
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
TENSOR__INLINE int64_t tensor__remainder_i64(int64_t a, int64_t b) {
    int64_t r = F_FMOD(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TENSOR__FN int64_t tensor__pow_i64(int64_t a, int64_t b) {
    if (b < 0) { return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0; }
    uint64_t r = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x) { if (b & 1) { r *= x; } }
    return (int64_t)r;
}

#define TENSOR__FORWARD(name, f)                                                                             \
    TENSOR__FN void tensor__f_##name##_i64(const void *const *in, void *const *out, const double *p,         \
                                           int64_t n) {                                                      \
        (void)in, (void)p;                                                                                   \
        for (int64_t i = 0; i < n; i++) { ((int64_t *)out[0])[i] = f; }                                      \
    }
#define TENSOR__FORWARD_NUM(name, f) TENSOR__FORWARD(name, f)
#define TENSOR__FORWARD_FLT(name, f)
#define TENSOR__ENTRY_NUM(name) tensor__f_##name##_i64,
#define TENSOR__ENTRY_FLT(name) NULL,
#define TENSOR__X(ID, name, kind, f, ...) TENSOR__FORWARD_##kind(name, f)
TENSOR_OPS_UNARY(TENSOR__X)
TENSOR_OPS_COPY(TENSOR__X)
TENSOR_OPS_BINARY(TENSOR__X)
TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, nin, kind, f, doc) TENSOR__FORWARD(name, (f) ? 1 : 0)
TENSOR_OPS_COMPARE(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, nin, f, doc)                                                                     \
    TENSOR__FN void tensor__f_##name##_i64(const void *const *in, void *const *out, const double *q,         \
                                           int64_t n) {                                                      \
        (void)q;                                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            int64_t a = ((const int64_t *)in[0])[i], b = nin > 1 ? ((const int64_t *)in[1])[i] : 0;          \
            (void)b;                                                                                         \
            ((int64_t *)out[0])[i] = f;                                                                      \
        }                                                                                                    \
    }
TENSOR_OPS_BITWISE(TENSOR__X)
#undef TENSOR__X
static const tensor__body_t tensor__forward_i64[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, kind, ...) TENSOR__ENTRY_##kind(name)
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, ...) tensor__f_##name##_i64,
    TENSOR_OPS_COMPARE(TENSOR__X) TENSOR_OPS_BITWISE(TENSOR__X)
#undef TENSOR__X
};
#undef TENSOR__FORWARD
#undef TENSOR__FORWARD_NUM
#undef TENSOR__FORWARD_FLT
#undef TENSOR__ENTRY_NUM
#undef TENSOR__ENTRY_FLT
#define TENSOR__PASS 0
#define TENSOR__PASS_WORDS
#include TENSOR_SELF

TENSOR__END
// The passes per instruction set.
#define TENSOR__PASS 0
#include TENSOR_SELF
#ifdef TENSOR__X86_PASSES
#define TENSOR__PASS 1
#include TENSOR_SELF
#define TENSOR__PASS 2
#include TENSOR_SELF
#define TENSOR__PASS 3
#include TENSOR_SELF
static const tensor__isa_t *const tensor__isas[4] = {&tensor__isa_scalar, &tensor__isa_sse2,
                                                     &tensor__isa_avx2, &tensor__isa_avx512};
static const char *const tensor__isa_names[4] = {"scalar", "sse2", "avx2", "avx512"};
#elif defined(TENSOR__ARM_PASSES)
#define TENSOR__PASS 4
#include TENSOR_SELF
static const tensor__isa_t *const tensor__isas[2] = {&tensor__isa_scalar, &tensor__isa_neon};
static const char *const tensor__isa_names[2] = {"scalar", "neon"};
#elif defined(TENSOR__WASM_PASSES)
#define TENSOR__PASS 5
#include TENSOR_SELF
static const tensor__isa_t *const tensor__isas[2] = {&tensor__isa_scalar, &tensor__isa_wasm};
static const char *const tensor__isa_names[2] = {"scalar", "wasm"};
#else
static const tensor__isa_t *const tensor__isas[1] = {&tensor__isa_scalar};
static const char *const tensor__isa_names[1] = {"scalar"};
#endif

TENSOR__FN int tensor__isa_find(const char *name) {
    for (int i = 0; i <= tensor__cpu_best(); i++) {
        if (!strcmp(name, tensor__isa_names[i])) { return i; }
    }
    return -1;
}
// The environment is read once per context, at its first kernel.
TENSOR__FN TENSOR__NOINLINE int tensor__isa_choose(tensor_context_t *ctx) {
    TENSOR__LOCK(&ctx->mutex);
    if (!ctx->isa_known) {
        const char *name = getenv("TENSOR_CPU"), *ref = getenv("TENSOR_REFERENCE");
        int found = name ? tensor__isa_find(name) : -1;
        ctx->isa = found >= 0 ? found : tensor__cpu_best();
        ctx->reference = ref && ref[0] && strcmp(ref, "0") != 0;
        ctx->plain = ctx->reference ? NULL : tensor__isas[ctx->isa];
        TENSOR__ATOMIC_STORE(&ctx->isa_known, 1);
    }
    TENSOR__UNLOCK(&ctx->mutex);
    return ctx->isa;
}
TENSOR__INLINE int tensor__isa_of(tensor_context_t *ctx) {
    return TENSOR__LIKELY(TENSOR__ATOMIC_LOAD(&ctx->isa_known)) ? ctx->isa : tensor__isa_choose(ctx);
}
TENSOR__FN int tensor__isa(void) { return tensor__isa_of(tensor__self()->ctx); }
TENSOR__FN int tensor__reference(void) {
    tensor_context_t *ctx = tensor__self()->ctx;
    tensor__isa_of(ctx);
    return ctx->reference;
}
TENSOR_API const char *(tensor_cpu_name)(void) {
    return tensor__reference() ? "reference" : tensor__isa_names[tensor__isa()];
}
TENSOR_API int (tensor_set_cpu)(const char *name) {
    tensor__thread_t *th = tensor__self();
    int reference = name && !strcmp(name, "reference");
    int found = !name || reference ? tensor__cpu_best() : tensor__isa_find(name);
    TENSOR__REFUSE_CODE(found < 0, UNSUPPORTED, "set_cpu: this machine or build has no '%s'", name);
    tensor__isa_of(th->ctx);
    TENSOR__LOCK(&th->ctx->mutex);
    th->ctx->isa = found;
    th->ctx->reference = reference;
    th->ctx->plain = reference ? NULL : tensor__isas[found];
    TENSOR__UNLOCK(&th->ctx->mutex);
    return 0;
}
#define TENSOR__ISA(th) (tensor__isas[tensor__isa_of((th)->ctx)])

// Integer divisors must not be 0: looked at before anything is written.
TENSOR__FN int tensor__check_divisor(tensor_call_t *c, const tensor__iter_t *it) {
    int64_t block[TENSOR__BLOCK];
    const tensor__iter_arg_t *b = &it->arg[1];
    for (int64_t first = 0; first < it->numel; first += TENSOR__BLOCK) {
        int64_t m = tensor__least(it->numel - first, TENSOR__BLOCK);
        if (b->uniform) {
            tensor__load_run(block, TENSOR__C_I64, b->data, b->dtype, 0, m);
        } else {
            tensor__iter_move(it, 1, first, m, block, 0);
        }
        for (int64_t i = 0; i < m; i++) {
            TENSOR__REFUSE_CODE(block[i] == 0, INDEX, "%s: integer division by zero at element %d of b %n",
                                c->row->name, first + i, c->arg[1].dims, (int)c->arg[1].ndim);
        }
        if (b->uniform) { break; }
    }
    return 0;
}

// Forward: inputs A B C, one output that has the broadcast shape.
// A copy that turns rows into columns: in squares, so that every line of both is fetched once.
typedef struct tensor__turn_t {
    const tensor__isa_t *isa;
    const tensor__iter_t *it;
    int dim;                            // where x runs along; y runs along the last
} tensor__turn_t;
enum { TENSOR__TURN = 64 };             // columns of x a task takes
TENSOR__FN void tensor__turn_task(void *arg, int64_t task, int worker) {
    const tensor__turn_t *v = (const tensor__turn_t *)arg;
    const tensor__iter_t *it = v->it;
    const int64_t *xs = it->arg[0].strides, *ys = it->arg[1].strides;
    int last = it->ndim - 1;
    int64_t per = (it->dims[v->dim] + TENSOR__TURN - 1) / TENSOR__TURN;
    int64_t c = task % per * TENSOR__TURN, rest = task / per;
    const float *x = (const float *)(const void *)it->arg[0].data + c;
    float *y = (float *)(void *)it->arg[1].data + c * ys[v->dim];
    (void)worker;
    for (int d = last - 1; d >= 0; d--) {
        if (d == v->dim) { continue; }
        x += rest % it->dims[d] * xs[d];
        y += rest % it->dims[d] * ys[d];
        rest /= it->dims[d];
    }
    v->isa->transpose(it->dims[last], tensor__least(TENSOR__TURN, it->dims[v->dim] - c), x, xs[last], y,
                      ys[v->dim]);
}
// 1 = done
TENSOR__FN int tensor__turn(const tensor__isa_t *isa, const tensor__iter_t *it) {
    tensor__turn_t v;
    int last = it->ndim - 1;
    v.isa = isa;
    v.it = it;
    if (last < 1 || it->arg[0].dtype != it->arg[1].dtype || it->arg[0].size != 4 ||
        it->arg[1].strides[last] != 1 || it->arg[0].strides[last] == 1 || it->dims[last] < 4) { return 0; }
    for (v.dim = last - 1; v.dim >= 0 && it->arg[0].strides[v.dim] != 1; v.dim--) { }
    if (v.dim < 0 || it->dims[v.dim] < 4) { return 0; }
    int64_t tasks = it->numel / it->dims[last] / it->dims[v.dim];
    tensor__parallel(tasks * ((it->dims[v.dim] + TENSOR__TURN - 1) / TENSOR__TURN), tensor__turn_task, &v);
    return 1;
}

TENSOR__FN int tensor__cpu_pointwise(tensor_call_t *c) {
    tensor_arg_t *y = &c->arg[c->nin];
    const tensor__isa_t *isa = TENSOR__ISA(c->thread);
    int klass = tensor__class(c->compute);
    if (y->numel == 0) { return 0; }
    // The common case by hand: contiguous f32, equal shapes, whole vectors.
    if (klass == TENSOR__C_F32 && y->dtype == TENSOR_F32 && y->contiguous &&
        (y->numel & (isa->lanes - 1)) == 0 && y->numel <= TENSOR__GRAIN && !c->thread->ctx->reference) {
        int plain = 1;
        const void *in[4];
        for (int i = 0; i < c->nin; i++) {
            const tensor_arg_t *a = &c->arg[i];
            plain &= a->dtype == TENSOR_F32 && a->contiguous && a->numel == y->numel;
            in[i] = a->data;
        }
        if (TENSOR__LIKELY(plain)) {
            void *out[1];
            out[0] = y->data;
            isa->forward[c->row->id](in, out, c->p ? c->p->f : NULL, y->numel);
            return 0;
        }
    }
    tensor__iter_t it;
    tensor__iter_init(&it, c->arg, c->nin, 1, y->dims, y->ndim, y->numel, klass);
    if (c->row->id == TENSOR_OP_CLONE && tensor__turn(isa, &it)) { return 0; }
    for (int i = 0; i < c->nin; i++) { it.slot[i] = i; }
    it.nslots = 5;
    it.p = c->p ? c->p->f : NULL;
    it.lanes = 1;
    if (klass == TENSOR__C_I64) {
        it.body = tensor__forward_i64[c->row->id];
        int id = c->row->id;
        if (id == TENSOR_OP_FLOOR_DIVIDE || id == TENSOR_OP_FMOD || id == TENSOR_OP_REMAINDER) {
            int code = tensor__check_divisor(c, &it);
            if (code) { return code; }
        }
    } else if (klass == TENSOR__C_F64) {
        it.body = tensor__forward_f64[c->row->id];
    } else if (c->thread->ctx->reference) {
        tensor__iter_init(&it, c->arg, c->nin, 1, y->dims, y->ndim, y->numel, TENSOR__C_F64);
        it.body = tensor__forward_f64[c->row->id];
    } else {
        it.body = isa->forward[c->row->id];
        it.lanes = isa->lanes;
        it.isa = isa;
    }
    tensor__iter_run(&it);
    return 0;
}

// Backward: inputs A B C Y G (absent ones NULL), outputs the gradients wanted, all in the shape of G.
TENSOR__FN int tensor__cpu_pointwise_backward(tensor_call_t *c) {
    const tensor_arg_t *g = &c->arg[4];
    const tensor__isa_t *isa = TENSOR__ISA(c->thread);
    int klass = isa->backward[c->row->id] ? tensor__class(g->dtype) : TENSOR__C_F64;
    int reference = c->thread->ctx->reference;
    if (g->numel == 0) { return 0; }
    if (klass == TENSOR__C_F32 && g->dtype == TENSOR_F32 && (g->numel & (isa->lanes - 1)) == 0 &&
        g->numel <= TENSOR__GRAIN && !reference) {
        int plain = 1;
        const void *in[5];
        void *out[3];
        for (int i = 0; i < 5; i++) {
            const tensor_arg_t *a = &c->arg[i];
            plain &= !a->data || (a->dtype == TENSOR_F32 && a->contiguous && a->numel == g->numel);
            in[i] = a->data;
        }
        for (int i = 0; i < c->nout; i++) { out[i] = c->arg[5 + i].data; }
        if (TENSOR__LIKELY(plain)) {
            isa->backward[c->row->id](in, out, c->p ? c->p->f : NULL, g->numel);
            return 0;
        }
    }
    tensor__iter_t it;
    tensor_arg_t used[TENSOR__ITER_ARGS];
    int nin = 0;
    for (int i = 0; i < 5; i++) {
        if (!c->arg[i].data) { continue; }
        used[nin] = c->arg[i];
        it.slot[nin++] = i;
    }
    for (int i = 0; i < c->nout; i++) { used[nin + i] = c->arg[5 + i]; }
    for (int i = 0; i < c->nout; i++) {
        if (!used[nin + i].data) {      // not wanted: stands in with the shape of G, never written
            used[nin + i] = *g;
            used[nin + i].data = NULL;
        }
    }
    if (reference) { klass = TENSOR__C_F64; }
    tensor__iter_init(&it, used, nin, c->nout, g->dims, g->ndim, g->numel, klass);
    it.nslots = 5;
    it.p = c->p ? c->p->f : NULL;
    it.lanes = klass == TENSOR__C_F32 ? isa->lanes : 1;
    it.isa = klass == TENSOR__C_F32 ? isa : NULL;
    it.body = klass == TENSOR__C_F32 ? isa->backward[c->row->id] : tensor__backward_f64[c->row->id];
    tensor__iter_run(&it);
    return 0;
}

// For ops made of others: returns y and drops every other tensor made since `mark_`.
#define TENSOR__MARK tensor__thread_t *th_ = tensor__self(); int64_t mark_ = th_->top;
#define TENSOR__RETURN(y) return tensor__named(th_, tensor__tidy(th_, mark_, y), __func__)
// With arguments that must be usable, or poison comes back.
#define TENSOR__TAKES(x)                                                                                     \
    if (!TENSOR__USABLE(&__func__[7], #x, x)) { return TENSOR__POISON; }
#define TENSOR__MARK1(x) TENSOR__MARK TENSOR__TAKES(x)
#define TENSOR__MARK2(a, b) TENSOR__MARK1(a) TENSOR__TAKES(b)
// A function of one expression, and one made of other ops.
#define TENSOR__FRONT(name, params, ...)                                                                     \
    TENSOR_API tensor_t *(tensor_##name) params { return __VA_ARGS__; }
#define TENSOR__MADE(name, params, ...)                                                                      \
    TENSOR_API tensor_t *(tensor_##name) params { TENSOR__MARK TENSOR__RETURN((__VA_ARGS__)); }

// ------------------------------------------------------------------------------
// >>impl-create                                    MARK: creation
//
// Every filled tensor comes from the rows of fill and arange, or from data; shapes are checked once, in
// tensor__make. Rejected: a kernel per constructor.
// ------------------------------------------------------------------------------

TENSOR__FN const tensor__row_t *tensor__row(int id);
#define TENSOR__ROW(ID) tensor__row(TENSOR_OP_##ID)

// Whether an integer dtype holds value (its fraction is cut); raised if not.
TENSOR__FN int tensor__holds(const char *op, int dtype, double value) {
    if ((unsigned)dtype >= TENSOR_DTYPE_COUNT) { return 1; }
    if (tensor__is_float(dtype) || dtype == TENSOR_BOOL) { return 1; }
    double end = ldexp(1, 8 * (int)tensor__sizes[dtype] - (dtype != TENSOR_U8));
    TENSOR__REFUSE_AS(0, !(trunc(value) < end && trunc(value) >= (dtype == TENSOR_U8 ? 0 : -end)), DTYPE,
                      "%s: %g is outside the range of %s", op, value, tensor__dtype_names[dtype]);
    return 1;
}
// value in x, which is fresh or allowed to change.
TENSOR__FN tensor_t *tensor__filled(const char *op, const int64_t *dims, int ndim, int dtype, double value,
                                    const tensor_t *like) {
    TENSOR__BEGIN0(o, TENSOR__ROW(FILL))
    if (like) { o.device = like->device; }
    tensor__reals(&o, value, 0);
    o.out[o.nout++] = tensor__make(o.th, op, dtype, dims, ndim, o.device);
    return tensor__finish(&o);
}
TENSOR_API tensor_t *(tensor_empty_n)(const int64_t *dims, int ndim, tensor_dtype_t dtype) {
    TENSOR__BEGIN0(o, TENSOR__ROW(FILL))
    return o.th->fresh = tensor__make(o.th, "empty", (int)dtype, dims, ndim, o.device);
}
TENSOR__FRONT(zeros_n, (const int64_t *dims, int ndim, tensor_dtype_t dtype),
    tensor__filled("zeros", dims, ndim, (int)dtype, 0, NULL))
TENSOR__FRONT(ones_n, (const int64_t *dims, int ndim, tensor_dtype_t dtype),
    tensor__filled("ones", dims, ndim, (int)dtype, 1, NULL))
TENSOR_API tensor_t *(tensor_full_n)(const int64_t *dims, int ndim, double value, tensor_dtype_t dtype) {
    if (!tensor__holds("full", (int)dtype, value)) { return TENSOR__POISON; }
    return tensor__filled("full", dims, ndim, (int)dtype, value, NULL);
}
TENSOR_API tensor_t *(tensor_scalar)(double value, tensor_dtype_t dtype) {
    if (!tensor__holds("scalar", (int)dtype, value)) { return TENSOR__POISON; }
    return tensor__filled("scalar", tensor__no_dims, 0, (int)dtype, value, NULL);
}
TENSOR_API tensor_t *(tensor_empty_like)(tensor_t *x) {
    if (!TENSOR__USABLE("empty_like", "x", x)) { return TENSOR__POISON; }
    tensor__thread_t *th = tensor__self();
    return th->fresh = tensor__make(th, "empty_like", x->dtype, x->dims, x->ndim, x->device);
}
TENSOR_API tensor_t *(tensor_full_like)(tensor_t *x, double value) {
    if (!TENSOR__USABLE("full_like", "x", x)) { return TENSOR__POISON; }
    if (!tensor__holds("full_like", x->dtype, value)) { return TENSOR__POISON; }
    return tensor__filled("full_like", x->dims, x->ndim, x->dtype, value, x);
}
TENSOR_API tensor_t *(tensor_zeros_like)(tensor_t *x) { return (tensor_full_like)(x, 0); }
TENSOR_API tensor_t *(tensor_ones_like)(tensor_t *x) { return (tensor_full_like)(x, 1); }

TENSOR_API tensor_t *(tensor_from_n)(const void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim) {
    tensor_t *t = (tensor_empty_n)(dims, ndim, dtype);
    if (t == TENSOR__POISON || !t->numel) { return t; }
    if (!data) {
        tensor__thread_t *th = tensor__self();
        tensor__fail(th, TENSOR_ERR_SHAPE, "from: data is NULL for shape %t", t);
        (tensor_free)(t);
        return TENSOR__POISON;
    }
    t->op = "from";
    uint64_t bytes = (uint64_t)t->numel * tensor__sizes[t->dtype];
    if (!tensor__move_bytes(tensor__self(), tensor__ptr(t), t->storage, data, NULL, bytes, 1, "from")) {
        return t;
    }
    (tensor_free)(t);
    return TENSOR__POISON;
}
TENSOR_API tensor_t *(tensor_wrap_n)(void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim,
                                     void (*deleter)(void *, void *), void *user) {
    TENSOR__BEGIN0(o, TENSOR__ROW(FILL))
    int64_t n;
    if (!tensor__dims_given("wrap", dims, ndim)) { return TENSOR__POISON; }
    TENSOR__REFUSE(ndim < 0 || ndim > TENSOR_MAX_DIMS || !tensor__numel_of(dims, ndim, &n), SHAPE,
                   "wrap: shape has %i dims, a negative size or too many elements", ndim);
    TENSOR__REFUSE((unsigned)dtype >= TENSOR_DTYPE_COUNT, DTYPE, "wrap: %i is no dtype", (int)dtype);
    TENSOR__REFUSE(!data || (uintptr_t)data % tensor__sizes[dtype], SHAPE, "wrap: data is %s", data ?
                   "misaligned for its dtype" : "NULL");
    const int64_t none = 0;
    tensor_t *t = tensor__make(o.th, "wrap", (int)dtype, &none, 1, 0);
    if (t == TENSOR__POISON) { return t; }
    tensor__storage_t *s = tensor__storage(o.th, (uint64_t)n * tensor__sizes[dtype], data);
    if (!s) {
        (tensor_free)(t);
        return tensor__fail(o.th, TENSOR_ERR_OUT_OF_MEMORY, "wrap: out of memory");
    }
    s->deleter = deleter;
    s->user = user;
    tensor__storage_drop(o.th, t->storage);
    t->storage = s;
    t->numel = n;
    t->ndim = (uint8_t)ndim;
    tensor__dense(t, dims, ndim);
    return o.th->fresh = t;
}

TENSOR_API tensor_t *(tensor_arange)(double start, double end, double step, tensor_dtype_t dtype) {
    TENSOR__BEGIN0(o, TENSOR__ROW(ARANGE))
    double count = ceil((end - start) / step);
    TENSOR__REFUSE(step != 0 && count > 1e15, SHAPE, "arange: %g elements are too many", count);
    TENSOR__REFUSE(step == 0 || !(count >= 0), SHAPE, "arange: step %g does not lead from %g to %g", step,
                   start, end);
    int64_t n = (int64_t)count;
    tensor__reals(&o, start, step);
    tensor__result(&o, (int)dtype, &n, 1);
    return tensor__finish(&o);
}
TENSOR_API tensor_t *(tensor_linspace)(double start, double end, int64_t n) {
    TENSOR__MARK
    TENSOR__BEGIN0(o, TENSOR__ROW(ARANGE))
    TENSOR__REFUSE(n < 0, SHAPE, "linspace: n %d is negative", n);
    tensor__reals(&o, start, n > 1 ? (end - start) / (double)(n - 1) : 0);
    tensor_t *t = o.out[o.nout++] = tensor__make(o.th, "linspace", o.th->ctx->default_dtype, &n, 1, o.device);
    t = tensor__finish(&o);
    if (t != TENSOR__POISON && n > 1) { (tensor_fill_)((tensor_narrow)(t, 0, n - 1, 1), end); }
    TENSOR__RETURN(t);
}
TENSOR_API tensor_t *(tensor_eye)(int64_t n, int64_t m) {
    TENSOR__MARK
    int64_t dims[2] = {n, m};
    tensor_t *t = tensor__filled("eye", dims, 2, th_->ctx->default_dtype, 0, NULL);
    if (t != TENSOR__POISON) { (tensor_fill_)((tensor_diagonal)(t, 0, 0, 1), 1); }
    TENSOR__RETURN(t);
}
TENSOR_API int (tensor_set_default_dtype)(tensor_dtype_t dtype) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE((unsigned)dtype >= TENSOR_DTYPE_COUNT || !tensor__is_float((int)dtype), DTYPE,
                        "set_default_dtype: %s is no float dtype", tensor_dtype_name(dtype));
    th->ctx->default_dtype = (int)dtype;
    return 0;
}
TENSOR_API int (tensor_set_default_device)(tensor_device_t device) {
    tensor__thread_t *th = tensor__self();
    int index = tensor__device_index(th, "set_default_device", (int)device);
    if (index < 0) { return th->error.code; }
    th->device = (uint8_t)index;
    return 0;
}
TENSOR_API tensor_device_t (tensor_get_default_device)(void) {
    return (tensor_device_t)(TENSOR_CPU + tensor__self()->device);
}
TENSOR_API tensor_dtype_t (tensor_get_default_dtype)(void) {
    return (tensor_dtype_t)tensor__self()->ctx->default_dtype;
}

// FILL and ARANGE: f[0] + i f[1], computed in double.
TENSOR__FN int tensor__cpu_fill(tensor_call_t *c) {
    tensor_arg_t *y = &c->arg[c->nin];
    double first = c->p->f[0], step = c->row->id == TENSOR_OP_ARANGE ? c->p->f[1] : 0;
    int size = tensor__sizes[y->dtype];
    if (y->contiguous && first == 0 && step == 0 && !signbit(first)) {
        memset(y->data, 0, (size_t)(y->numel * size));
        return 0;
    }
    tensor__iter_t it;
    // Integers beyond 2^53 have no double of their own, but no way to be asked for either.
    tensor__iter_init(&it, y, 0, 1, y->dims, y->ndim, y->numel, TENSOR__C_F64);
    double block[TENSOR__BLOCK];
    for (int64_t i = 0; i < y->numel; i += TENSOR__BLOCK) {
        int64_t m = tensor__least(y->numel - i, TENSOR__BLOCK);
        for (int64_t k = 0; k < m; k++) { block[k] = step == 0 ? first : first + (double)(i + k) * step; }
        tensor__iter_move(&it, 0, i, m, block, 1);
    }
    return 0;
}

// TRIL, TRIU: i[0] = diagonal; x contiguous.
TENSOR__FN int tensor__cpu_tri(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0];
    tensor_arg_t *y = &c->arg[1];
    int size = tensor__sizes[x->dtype], lower = c->row->id == TENSOR_OP_TRIL;
    int64_t rows = TENSOR__HIGH(x), cols = TENSOR__WIDE(x), k = c->p->i[0];
    int64_t lines = cols ? x->numel / cols : 0;
    for (int64_t r = 0; r < lines; r++) {
        int64_t edge = r % rows + k + (lower ? 1 : 0);      // columns before it are kept (lower) or zeroed
        edge = edge < 0 ? 0 : edge > cols ? cols : edge;
        char *to = (char *)y->data + r * cols * size;
        const char *from = (const char *)x->data + r * cols * size;
        if (lower) {
            memcpy(to, from, (size_t)(edge * size));
            memset(to + edge * size, 0, (size_t)((cols - edge) * size));
        } else {
            memset(to, 0, (size_t)(edge * size));
            memcpy(to + edge * size, from + edge * size, (size_t)((cols - edge) * size));
        }
    }
    return 0;
}

// ------------------------------------------------------------------------------
// >>impl-inspect                                   MARK: getters
//
// Getters read the header and give 0, NaN or NULL for what cannot be used. Rejected: out-parameters with a
// code for each (nobody checks them).
// ------------------------------------------------------------------------------

TENSOR__INLINE int tensor__live(const tensor_t *x) { return x && x->state == TENSOR__LIVE; }

TENSOR_API int (tensor_ndim)(tensor_t *x) { return tensor__live(x) ? x->ndim : 0; }
TENSOR_API tensor_shape_t (tensor_shape)(tensor_t *x) {
    tensor_shape_t s;
    memset(&s, 0, sizeof s);
    if (tensor__live(x)) {
        s.ndim = x->ndim;
        for (int i = 0; i < x->ndim; i++) { s.dims[i] = x->dims[i]; }
    }
    return s;
}
TENSOR__FN int tensor__own_dim(const char *op, int64_t dim, tensor_t *x) {
    TENSOR__REFUSE_AS(-1, !x->ndim, INDEX, "%s: dim %d of x [], which has no dims", op, dim);
    return tensor__dim(op, dim, x);
}
TENSOR_API int64_t (tensor_size)(tensor_t *x, int64_t dim) {
    if (!tensor__live(x)) { return 0; }
    int d = tensor__own_dim("size", dim, x);
    return d < 0 ? 0 : x->dims[d];
}
TENSOR_API int64_t (tensor_stride)(tensor_t *x, int64_t dim) {
    if (!tensor__live(x)) { return 0; }
    int d = tensor__own_dim("stride", dim, x);
    return d < 0 ? 0 : x->strides[d];
}
TENSOR_API int64_t tensor_storage_offset(tensor_t *x) { return tensor__live(x) ? x->offset : 0; }
TENSOR_API int64_t (tensor_numel)(tensor_t *x) { return tensor__live(x) ? x->numel : 0; }
TENSOR_API tensor_dtype_t (tensor_dtype)(tensor_t *x) {
    return tensor__live(x) ? (tensor_dtype_t)x->dtype : TENSOR_F32;
}
TENSOR_API tensor_device_t (tensor_device)(tensor_t *x) {
    return tensor__live(x) ? (tensor_device_t)(TENSOR_CPU + x->device) : TENSOR_CPU;
}
TENSOR_API int (tensor_is_contiguous)(tensor_t *x) {
    return tensor__live(x) && (x->flags & TENSOR__CONTIGUOUS) != 0;
}
TENSOR_API int (tensor_is_poison)(tensor_t *x) { return x && x->state == TENSOR__POISON_STATE; }
TENSOR_API const char *(tensor_dtype_name)(tensor_dtype_t dtype) {
    return (unsigned)dtype < TENSOR_DTYPE_COUNT ? tensor__dtype_names[dtype] : "?";
}
TENSOR_API size_t (tensor_dtype_size)(tensor_dtype_t dtype) {
    return (unsigned)dtype < TENSOR_DTYPE_COUNT ? tensor__sizes[dtype] : 0;
}

// 0 = raised: the bytes of x are not the host's to read.
TENSOR__FN int tensor__on_host(const char *op, const tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_AS(0, x->device, DEVICE, "%s: x %t lies on %s; tensor_to(x, TENSOR_CPU) brings it here",
                      op, x, tensor__device_name(th, x->device));
    return 1;
}
TENSOR_API const void *(tensor_data)(tensor_t *x) {
    if (x && x->state == TENSOR__POISON_STATE) { return NULL; }
    if (!TENSOR__USABLE("data", "x", x) || !tensor__on_host("data", x)) { return NULL; }
    return x->numel ? tensor__ptr(x) : NULL;
}
TENSOR_API void *(tensor_data_mut)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    if (x && x->state == TENSOR__POISON_STATE) { return NULL; }
    if (!TENSOR__USABLE("data_mut", "x", x) || !tensor__on_host("data_mut", x)) { return NULL; }
    if (!tensor__update_allowed(th, "data_mut", x, th->grad_mode && tensor__sync_needs_grad(th, x))) {
        return NULL;
    }
    tensor__bump(th, x->storage, "data_mut");
    return x->numel ? tensor__ptr(x) : NULL;
}

TENSOR__FN int tensor__one_element(const char *op, tensor_t *x) {
    if (!TENSOR__USABLE(op, "x", x)) { return 0; }
    TENSOR__REFUSE_AS(0, x->numel != 1, SHAPE, "%s: x %t must have exactly one element", op, x);
    return 1;
}
TENSOR_API double (tensor_item)(tensor_t *x) {
    double v, raw;
    tensor__thread_t *th = tensor__self();
    if (!tensor__one_element("item", x)) { return (double)NAN; }
    if (tensor__move_bytes(th, &raw, NULL, tensor__ptr(x), x->storage, tensor__sizes[x->dtype], 1, "item")) {
        return (double)NAN;
    }
    tensor__load_f64(&v, &raw, x->dtype, 1, 1);
    return v;
}
TENSOR__FN int64_t tensor__item_i64(tensor_t *x, const char *op) {
    int64_t v, raw;
    tensor__thread_t *th = tensor__self();
    if (!tensor__one_element(op, x)) { return 0; }
    if (tensor__move_bytes(th, &raw, NULL, tensor__ptr(x), x->storage, tensor__sizes[x->dtype], 1, op)) {
        return 0;
    }
    tensor__load_i64(&v, &raw, x->dtype, 1, 1);
    return v;
}
TENSOR_API int64_t (tensor_item_i64)(tensor_t *x) { return tensor__item_i64(x, "item_i64"); }
TENSOR_API int (tensor_copy_out)(tensor_t *x, void *data, size_t bytes) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("copy_out", "x", x)) { return th->error.code; }
    size_t want = (size_t)x->numel * tensor__sizes[x->dtype];
    TENSOR__REFUSE_CODE(bytes != want || (!data && want), SHAPE, "copy_out: x %t %y needs %d bytes, got %d%s",
                        x, x, (int64_t)want, (int64_t)bytes, data ? "" : " at NULL");
    if (!want) { return 0; }
    if (x->flags & TENSOR__CONTIGUOUS) {
        return tensor__move_bytes(th, data, NULL, tensor__ptr(x), x->storage, want, 1, "copy_out");
    }
    TENSOR__MARK
    tensor_t *c = (tensor_contiguous)((tensor_detach)(x));
    int code = c == TENSOR__POISON ? th->error.code :
        tensor__move_bytes(th, data, NULL, tensor__ptr(c), c->storage, want, 1, "copy_out");
    tensor__tidy(th_, mark_, NULL);
    return code;
}
// Runs over pairs of elements in double; 1 = all satisfy.
TENSOR__FN int tensor__compare(tensor_t *a, tensor_t *b, double rtol, double atol, int exact,
                               const char *op) {
    if (!TENSOR__USABLE(op, "a", a) || !TENSOR__USABLE(op, "b", b)) { return 0; }
    if (!tensor__same_shape(a, b) || (exact && a->dtype != b->dtype)) { return 0; }
    if (a->device || b->device) {
        TENSOR__MARK
        a = (tensor_to)((tensor_detach)(a), TENSOR_CPU);
        b = (tensor_to)((tensor_detach)(b), TENSOR_CPU);
        int r = a != TENSOR__POISON && b != TENSOR__POISON && tensor__compare(a, b, rtol, atol, exact, op);
        tensor__tidy(th_, mark_, NULL);
        return r;
    }
    tensor_arg_t arg[2];
    tensor__arg(&arg[0], a, TENSOR_READ);
    tensor__arg(&arg[1], b, TENSOR_READ);
    tensor__iter_t it;
    int klass = exact && !tensor__is_float(a->dtype) ? TENSOR__C_I64 : TENSOR__C_F64;
    tensor__iter_init(&it, arg, 2, 0, a->dims, a->ndim, a->numel, klass);
    for (int64_t i = 0; i < a->numel; i += TENSOR__BLOCK) {
        int64_t m = tensor__least(a->numel - i, TENSOR__BLOCK);
        double u[TENSOR__BLOCK], v[TENSOR__BLOCK];
        tensor__iter_move(&it, 0, i, m, u, 0);
        tensor__iter_move(&it, 1, i, m, v, 0);
        if (klass == TENSOR__C_I64) {
            if (memcmp(u, v, (size_t)m * 8)) { return 0; }
            continue;
        }
        for (int64_t k = 0; k < m; k++) {
            if (u[k] == v[k]) { continue; }
            if (exact || !(fabs(u[k] - v[k]) <= atol + rtol * fabs(v[k])) ||
                fabs(v[k]) > 1.7976931348623157e308) {
                return 0;
            }
        }
    }
    return 1;
}
TENSOR_API int (tensor_allclose)(tensor_t *a, tensor_t *b, double rtol, double atol) {
    return tensor__compare(a, b, rtol, atol, 0, "allclose");
}
TENSOR_API int (tensor_equal)(tensor_t *a, tensor_t *b) { return tensor__compare(a, b, 0, 0, 1, "equal"); }

// ------------------------------------------------------------------------------
// >>impl-views                                     MARK: views
//
// A view is a header over the same storage with a reference to its base, the tensor that owns the history:
// an in-place change through a view gives the base a new node, and each view makes its own anew when it is
// asked next. Rejected: views with a history of their own (changes through two of them could not be told in
// order), copies on write (an in-place change must reach the base).
// ------------------------------------------------------------------------------

TENSOR__FN void tensor__set_contiguous(tensor_t *t) {
    int64_t expect = 1;
    t->flags = (uint8_t)(t->flags | TENSOR__CONTIGUOUS);
    if (t->numel == 0) { return; }
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != expect) {
            t->flags = (uint8_t)(t->flags & ~TENSOR__CONTIGUOUS);
            return;
        }
        expect *= t->dims[i];
    }
}
// A header over a storage. NULL = out of memory, raised.
TENSOR__FN tensor_t *tensor__over(tensor__thread_t *th, const char *op, tensor__storage_t *storage, int dtype,
                                  const int64_t *dims, const int64_t *strides, int ndim, int64_t offset) {
    tensor_t *t = tensor__new_header(th, op, dtype, ndim);
    TENSOR__REFUSE_AS(NULL, !t, OUT_OF_MEMORY, "%s: out of memory", op);
    TENSOR__HOLD(&storage->refs);
    t->storage = storage;
    t->device = storage->device;
    t->offset = offset;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        t->dims[i] = dims[i];
        t->strides[i] = strides[i];
        n *= dims[i];
    }
    t->numel = n;
    tensor__set_contiguous(t);
    return t;
}
// The same over x's storage, without history.
TENSOR__FN tensor_t *tensor__alias(tensor__thread_t *th, const char *op, tensor_t *x, const int64_t *dims,
                                   const int64_t *strides, int ndim, int64_t offset) {
    tensor_t *t = tensor__over(th, op, x->storage, x->dtype, dims, strides, ndim, offset);
    if (t) { t->flags = (uint8_t)(t->flags | (x->flags & TENSOR__INFERENCE)); }
    return t;
}
// The result of a view op: alias, base, node.
TENSOR__FN tensor_t *tensor__view(tensor__op_t *o, const int64_t *dims, const int64_t *strides, int ndim,
                                  int64_t offset) {
    tensor_t *x = o->in[0];
    tensor_t *t = tensor__alias(o->th, o->row->name, x, dims, strides, ndim, offset);
    if (!t) { return TENSOR__POISON; }
    int tracks = tensor__tracks(o);
    t->base = tensor__hold(x->base ? x->base : x);
    t->base_version = t->base->rebased;
    t->flags = (uint8_t)(t->flags | (x->flags & TENSOR__INHERITED) |
                         (o->th->grad_mode ? 0 : TENSOR__NO_GRAD_VIEW));
    o->out[0] = t;
    o->nout = 1;
    if (tracks && !tensor__record(o)) { return tensor__abandon(o); }
    o->th->fresh = t;
    return t;
}

// The extras of a node. NULL = out of memory, raised.
TENSOR__FN tensor__extra_t *tensor__node_extra(tensor__thread_t *th, tensor__node_t *n) {
    if (!n->extra) { n->extra = (tensor__extra_t *)tensor__memory(th, sizeof *n->extra); }
    return n->extra;
}
// x becomes output k of another node. A retained gradient is the tensor's, not the node's: it moves along;
// hooks stay with the value they were registered for.
TENSOR__FN void tensor__renode(tensor__thread_t *th, tensor_t *x, tensor__node_t *node, int32_t k) {
    tensor__node_t *old = x->node;
    if (old && old->extra && old->extra->retain[x->output] == x) {
        old->extra->retain[x->output] = NULL;
        if (node && tensor__node_extra(th, node)) { node->extra->retain[k] = x; }
    }
    x->node = node;
    x->output = k;
    if (old) { tensor__node_drop(th, old); }
}

// A node that makes out of base and src (or NULL) by the place of view in base. NULL = out of memory, raised.
TENSOR__FN tensor__node_t *tensor__view_node(tensor__thread_t *th, const tensor__row_t *row, tensor_t *base,
                                             tensor_t *src, tensor_t *out, const tensor_t *view) {
    tensor__op_t o;
    memset(&o, 0, sizeof o);
    o.th = th;
    o.row = row;
    o.args[0] = base;
    o.args[1] = src;
    o.in = o.args;
    o.nin = src ? 2 : 1;
    o.out[0] = out;
    o.nout = 1;
    tensor__ints(&o, view->offset - base->offset, 0);
    for (int i = 0; i < view->ndim; i++) { o.params.i[1 + i] = view->strides[i]; }
    return tensor__node_make(&o, 0);
}
// A node for a view of base as it is now: the view regenerates its history after an in-place change of the
// base.
TENSOR__FN TENSOR__NOINLINE void tensor__rebase_view(tensor__thread_t *th, tensor_t *t) {
    tensor_t *base = t->base;
    tensor__node_t *node = NULL;
    tensor__spin(&t->lock);             // several threads may read one view
    if (t->base_version == base->rebased) {
        tensor__unspin(&t->lock);
        return;
    }
    if (tensor__needs_grad(base)) {
        if (!(base->flags & TENSOR__CONTIGUOUS)) {
            tensor__unspin(&t->lock);
            tensor__fail(th, TENSOR_ERR_UNSUPPORTED,
                         "%s: a view %t of a non-contiguous tensor that was changed in place has no "
                         "history; change a contiguous copy", t->op, t);
            return;
        }
        node = tensor__view_node(th, TENSOR__ROW(AS_STRIDED), base, NULL, t, t);
        if (node) { node->site = t->site; }
    }
    tensor__renode(th, t, node, 0);
    TENSOR__ATOMIC_STORE(&t->base_version, base->rebased);
    tensor__unspin(&t->lock);
}

// Whether x may be changed in place; raises if not.
TENSOR__FN int tensor__update_allowed(tensor__thread_t *th, const char *op, tensor_t *x, int recording) {
    for (int i = 0; i < x->ndim; i++) {
        TENSOR__REFUSE_AS(0, x->strides[i] == 0 && x->dims[i] > 1, AUTOGRAD,
                          "%s: x %t is expanded, several elements share one place; clone it first", op, x);
    }
    TENSOR__REFUSE_AS(0, (x->flags & TENSOR__INFERENCE) && !(th->modes & TENSOR__INFERRING), AUTOGRAD,
                      "%s: x %t was made in inference mode and cannot be changed outside of it; change a "
                      "clone", op, x);
    if (!th->grad_mode) { return 1; }
    TENSOR__REFUSE_AS(0, !x->node && (x->flags & TENSOR__REQUIRES_GRAD), AUTOGRAD,
                      "%s: x %t is a leaf that requires grad; change it under no_grad, or a clone", op, x);
    TENSOR__REFUSE_AS(0, x->base && !x->base->node && (x->base->flags & TENSOR__REQUIRES_GRAD), AUTOGRAD,
                      "%s: x %t is a view of a leaf that requires grad; change it under no_grad", op, x);
    TENSOR__REFUSE_AS(0, x->base && (x->flags & TENSOR__INHERITED) &&
                      (recording || tensor__sync_needs_grad(th, x->base)), AUTOGRAD,
                      "%s: x %t is %s; an in-place change of it cannot be recorded", op, x,
                      x->flags & TENSOR__NO_GRAD_VIEW ? "a view made under no_grad" :
                      "one of several views made by one call (split, chunk, unbind)");
    return 1;
}

// After an in-place change: x gets the node of the change; if x is a view, its base gets "base with that view
// replaced".
TENSOR__FN int tensor__rehistory(tensor__thread_t *th, tensor_t *x, tensor__node_t *n, int32_t k);
TENSOR__FN int tensor__record_update(tensor__op_t *o) {
    tensor_t *base = o->out[0]->base;
    TENSOR__REFUSE_AS(0, base && !(base->flags & TENSOR__CONTIGUOUS), UNSUPPORTED,
                      "%s_: x %t is a view of a non-contiguous tensor; change a contiguous copy",
                      o->row->name, o->out[0]);
    tensor__node_t *n = tensor__node_make(o, o->row->saves);
    return n && tensor__rehistory(o->th, o->out[0], n, 0);
}
// x is output k of n from now on, and so is its place in its base. Takes over the reference n.
TENSOR__FN int tensor__rehistory(tensor__thread_t *th, tensor_t *x, tensor__node_t *n, int32_t k) {
    tensor_t *base = x->base;
    tensor__renode(th, x, n, k);
    if (!base) {
        x->rebased++;
        return 1;
    }
    tensor__node_t *b = tensor__view_node(th, TENSOR__ROW(AS_STRIDED_SCATTER), base, x, base, x);
    if (!b) { return 0; }
    tensor__renode(th, base, b, 0);
    base->rebased++;
    return 1;
}

// Strides of `dims` over x's elements without a copy. 0 = impossible.
TENSOR__FN int tensor__view_strides(const tensor_t *x, const int64_t *dims, int ndim, int64_t *strides) {
    if (x->numel == 0 || (x->flags & TENSOR__CONTIGUOUS)) {
        int64_t s = 1;
        for (int i = ndim - 1; i >= 0; i--) {
            strides[i] = s;
            // no elements: any size may stand
            if (dims[i] > 0 && s <= INT64_MAX / dims[i]) { s *= dims[i]; }
        }
        return 1;
    }
    int64_t xd[TENSOR_MAX_DIMS], xs[TENSOR_MAX_DIMS], step = 1;
    // match runs of x's dims (sizes of 1 do not count) with runs of the new ones, from the right
    int d = -1, v = ndim - 1;
    for (int i = 0; i < x->ndim; i++) {
        if (x->dims[i] == 1) { continue; }
        xd[++d] = x->dims[i];
        xs[d] = x->strides[i];
    }
    while (d >= 0) {
        int64_t run = xd[d], got = 1;
        step = xs[d];
        while (d > 0 && xs[d - 1] == xs[d] * xd[d]) { run *= xd[--d]; }
        while (v >= 0 && (got < run || dims[v] == 1)) {
            strides[v] = step * got;
            got *= dims[v--];
        }
        if (got != run) { return 0; }
        d--;
    }
    while (v >= 0) { strides[v--] = step; }
    return 1;
}
TENSOR__FN tensor_t *tensor__reshape(const char *op, tensor_t *x, const int64_t *want, int ndim,
                                     int may_copy) {
    TENSOR__BEGIN(o, TENSOR__ROW(RESHAPE), x)
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS], known = 1;
    int infer = -1, bad = ndim < 0 || ndim > TENSOR_MAX_DIMS;
    if (!tensor__dims_given(op, want, ndim)) { return TENSOR__POISON; }
    for (int i = 0; i < ndim && !bad; i++) {
        dims[i] = want[i];
        if (want[i] == -1) {
            bad = infer >= 0;
            infer = i;
        } else {
            uint64_t k;
            bad = want[i] < 0 || !tensor__mul_u64((uint64_t)known, (uint64_t)want[i], &k) ||
                k > (uint64_t)1 << 62;
            known = bad ? 0 : (int64_t)k;
        }
    }
    if (!bad && infer >= 0) {
        bad = known == 0 || x->numel % known != 0;
        if (!bad) { dims[infer] = x->numel / known; known = x->numel; }
    }
    TENSOR__REFUSE(bad || known != x->numel, SHAPE, "%s: x %t (%d elements) does not fit shape %n", op, x,
                   x->numel, want, ndim > TENSOR_MAX_DIMS ? (int)TENSOR_MAX_DIMS : ndim);
    if (!tensor__view_strides(x, dims, ndim, strides)) {
        TENSOR__REFUSE(!may_copy, SHAPE, "%s: strides of x %t allow no view as %n; use reshape", op, x, dims,
                       ndim);
        int64_t mark = o.th->top;
        tensor_t *c = (tensor_clone)(x);
        if (c == TENSOR__POISON) { return c; }
        o.args[0] = c;
        tensor__view_strides(c, dims, ndim, strides);
        return tensor__tidy(o.th, mark, tensor__view(&o, dims, strides, ndim, c->offset));
    }
    return tensor__view(&o, dims, strides, ndim, x->offset);
}
TENSOR__FRONT(reshape_n, (tensor_t *x, const int64_t *dims, int ndim),
    tensor__reshape("reshape", x, dims, ndim, 1))
TENSOR__FRONT(view_n, (tensor_t *x, const int64_t *dims, int ndim), tensor__reshape("view", x, dims, ndim, 0))
TENSOR__FN tensor_t *tensor__flat(tensor_t *x) {
    int64_t all = tensor__live(x) && !x->numel ? 0 : -1;
    return (tensor_reshape_n)(x, &all, 1);
}
TENSOR_API tensor_t *(tensor_flatten)(tensor_t *x, int64_t start, int64_t end) {
    TENSOR__BEGIN(o, TENSOR__ROW(RESHAPE), x)
    int a = tensor__dim("flatten", start, x), b = tensor__dim("flatten", end, x);
    if (a < 0 || b < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(a > b, INDEX, "flatten: start %d lies behind end %d", start, end);
    int64_t dims[TENSOR_MAX_DIMS], run = 1;
    int n = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (i < a || i > b) { dims[n++] = x->dims[i]; continue; }
        run *= x->dims[i];
        if (i == b) { dims[n++] = run; }
    }
    if (!x->ndim) { dims[n++] = 1; }
    return (tensor_reshape_n)(x, dims, n);
}
TENSOR_API tensor_t *(tensor_permute_n)(tensor_t *x, const int64_t *order, int ndim) {
    TENSOR__BEGIN(o, TENSOR__ROW(PERMUTE), x)
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    unsigned seen = 0;
    if (!tensor__dims_given("permute", order, ndim)) { return TENSOR__POISON; }
    TENSOR__REFUSE(ndim != x->ndim, SHAPE, "permute: x %t has %i dims, the order %i", x, (int)x->ndim, ndim);
    o.p = &o.params;
    for (int i = 0; i < ndim; i++) {
        TENSOR__DIM(d, "permute", order[i], x)
        TENSOR__REFUSE(seen >> d & 1, INDEX, "permute: dim %i appears twice (x %t)", d, x);
        seen |= 1u << d;
        o.params.i[i] = d;
        dims[i] = x->dims[d];
        strides[i] = x->strides[d];
    }
    return tensor__view(&o, dims, strides, ndim, x->offset);
}
TENSOR_API tensor_t *(tensor_transpose)(tensor_t *x, int64_t dim0, int64_t dim1) {
    TENSOR__BEGIN(o, TENSOR__ROW(PERMUTE), x)
    int a = tensor__dim("transpose", dim0, x), b = tensor__dim("transpose", dim1, x);
    if (a < 0 || b < 0) { return TENSOR__POISON; }
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    o.p = &o.params;
    for (int i = 0; i < x->ndim; i++) {
        int d = i == a ? b : i == b ? a : i;
        o.params.i[i] = d;
        dims[i] = x->dims[d];
        strides[i] = x->strides[d];
    }
    return tensor__view(&o, dims, strides, x->ndim, x->offset);
}
TENSOR_API tensor_t *(tensor_mT)(tensor_t *x) {
    TENSOR__REFUSE(tensor__live(x) && x->ndim < 2, SHAPE, "mT: x %t needs at least 2 dims", x);
    return (tensor_transpose)(x, -2, -1);
}
TENSOR_API tensor_t *(tensor_movedim)(tensor_t *x, int64_t source, int64_t destination) {
    TENSOR__BEGIN(o, TENSOR__ROW(PERMUTE), x)
    int s = tensor__dim("movedim", source, x);
    int d = tensor__dim("movedim", destination, x);
    if (s < 0 || d < 0) { return TENSOR__POISON; }
    int64_t order[TENSOR_MAX_DIMS];
    int k = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (k == s) { k++; }
        order[i] = i == d ? s : k++;
    }
    return (tensor_permute_n)(x, order, x->ndim);
}
TENSOR_API tensor_t *(tensor_unsqueeze)(tensor_t *x, int64_t dim) {
    TENSOR__BEGIN(o, TENSOR__ROW(RESHAPE), x)
    int d = tensor__dim_of("unsqueeze", dim, x->ndim + 1, x);
    if (d < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(x->ndim == TENSOR_MAX_DIMS, SHAPE, "unsqueeze: x %t has 8 dims already", x);
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    for (int i = 0, k = 0; i <= x->ndim; i++) {
        if (i == d) {
            dims[i] = 1;
            strides[i] = k < x->ndim ? x->strides[k] * x->dims[k] : 1;
        } else {
            dims[i] = x->dims[k];
            strides[i] = x->strides[k++];
        }
    }
    return tensor__view(&o, dims, strides, x->ndim + 1, x->offset);
}
// Without the dims of mask that have size 1.
TENSOR__FN tensor_t *tensor__squeeze(tensor_t *x, uint32_t mask) {
    TENSOR__BEGIN(o, TENSOR__ROW(RESHAPE), x)
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->ndim; i++) {
        if ((mask >> i & 1) && x->dims[i] == 1) { continue; }
        dims[n] = x->dims[i];
        strides[n++] = x->strides[i];
    }
    return tensor__view(&o, dims, strides, n, x->offset);
}
TENSOR_API tensor_t *(tensor_squeeze_dims)(tensor_t *x, const int64_t *dims, int n) {
    uint32_t mask = 0;
    return tensor__dim_mask("squeeze", x, dims, n, &mask) ? tensor__squeeze(x, mask) : TENSOR__POISON;
}
TENSOR_API tensor_t *(tensor_squeeze)(tensor_t *x, int64_t dim) { return (tensor_squeeze_dims)(x, &dim, 1); }
TENSOR_API tensor_t *(tensor_squeeze_all)(tensor_t *x) { return tensor__squeeze(x, ~(uint32_t)0); }
TENSOR_API tensor_t *(tensor_expand_n)(tensor_t *x, const int64_t *want, int ndim) {
    TENSOR__BEGIN(o, TENSOR__ROW(EXPAND), x)
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    int bad = ndim < x->ndim || ndim > TENSOR_MAX_DIMS;
    if (!tensor__dims_given("expand", want, ndim)) { return TENSOR__POISON; }
    for (int i = 0; i < ndim && !bad; i++) {
        int k = i - (ndim - x->ndim);
        int64_t have = k < 0 ? 1 : x->dims[k];
        dims[i] = want[i] == -1 && k >= 0 ? have : want[i];
        strides[i] = k < 0 || (have == 1 && dims[i] != 1) ? 0 : x->strides[k];
        bad = dims[i] < 0 || (have != 1 && have != dims[i]);
    }
    int64_t n;
    TENSOR__REFUSE(bad || !tensor__numel_of(dims, ndim, &n), SHAPE, "expand: x %t does not expand to %n", x,
                   want, ndim < 0 || ndim > TENSOR_MAX_DIMS ? 0 : ndim);
    return tensor__view(&o, dims, strides, ndim, x->offset);
}
// start, start + step, ... along d; `size` of them.
TENSOR__FN tensor_t *tensor__slice(tensor_t *x, int d, int64_t start, int64_t step, int64_t size) {
    TENSOR__BEGIN(o, TENSOR__ROW(SLICE), x)
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        dims[i] = i == d ? size : x->dims[i];
        strides[i] = i == d && size > 1 ? x->strides[i] * step : x->strides[i];
    }
    tensor__ints(&o, d, start);
    o.params.i[2] = size > 1 ? step : 1;
    return tensor__view(&o, dims, strides, x->ndim, x->offset + (size ? start * x->strides[d] : 0));
}
TENSOR__FN int tensor__slice_dim(const char *op, int64_t dim, tensor_t *x) {
    TENSOR__REFUSE_AS(-1, !x->ndim, INDEX, "%s: x is 0-d", op);
    return tensor__dim(op, dim, x);
}
TENSOR_API tensor_t *(tensor_narrow)(tensor_t *x, int64_t dim, int64_t start, int64_t length) {
    TENSOR__BEGIN(o, TENSOR__ROW(SLICE), x)
    int d = tensor__slice_dim("narrow", dim, x);
    if (d < 0) { return TENSOR__POISON; }
    int64_t given = start;
    if (start < 0) { start += x->dims[d]; }
    TENSOR__REFUSE(start < 0 || length < 0 || start > x->dims[d] || length > x->dims[d] - start, INDEX,
                   "narrow: start %d, length %d leave dim %i of x %t", given, length, d, x);
    return tensor__slice(x, d, start, 1, length);
}
TENSOR_API tensor_t *(tensor_select)(tensor_t *x, int64_t dim, int64_t index) {
    TENSOR__MARK
    TENSOR__BEGIN(o, TENSOR__ROW(SLICE), x)
    int d = tensor__slice_dim("select", dim, x);
    if (d < 0) { return TENSOR__POISON; }
    int64_t i = index < 0 ? index + x->dims[d] : index;
    TENSOR__REFUSE(i < 0 || i >= x->dims[d], INDEX, "select: index %d is outside dim %i of x %t", index, d,
                   x);
    TENSOR__RETURN((tensor_squeeze)(tensor__slice(x, d, i, 1, 1), d));
}
TENSOR_API tensor_t *(tensor_slice)(tensor_t *x, int64_t dim, int64_t start, int64_t end, int64_t step) {
    TENSOR__BEGIN(o, TENSOR__ROW(SLICE), x)
    int d = tensor__slice_dim("slice", dim, x);
    if (d < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(step < 1, SHAPE, "slice: step %d must be at least 1", step);
    int64_t n = x->dims[d];
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    start = start < 0 ? 0 : start > n ? n : start;
    end = end < start ? start : end > n ? n : end;
    return tensor__slice(x, d, start, step, (end - start) / step + ((end - start) % step != 0));
}
TENSOR__FN int tensor__in_storage(tensor__op_t *o, tensor_t *x, const int64_t *dims, const int64_t *strides,
                                  int ndim, int64_t offset) {
    int64_t n, end = offset, room = (int64_t)(x->storage->bytes / tensor__sizes[x->dtype]);
    if (!tensor__dims_given(o->row->name, dims, ndim) || !tensor__dims_given(o->row->name, strides, ndim)) {
        return 0;
    }
    int bad = ndim < 0 || ndim > TENSOR_MAX_DIMS || offset < 0 || offset > (int64_t)1 << 60 ||
              !tensor__numel_of(dims, ndim, &n);
    for (int i = 0; i < ndim && !bad; i++) {
        uint64_t reach;
        bad = strides[i] < 0 || !tensor__mul_u64((uint64_t)strides[i], (uint64_t)(dims[i] ? dims[i] - 1 : 0),
                                                 &reach) || reach > (uint64_t)1 << 60;
        if (!bad) { end += (int64_t)reach; }
        bad |= end > (int64_t)1 << 61;
    }
    TENSOR__REFUSE_AS(0, bad || (n > 0 && end >= room), SHAPE,
                      "%s: the view leaves the storage of x %t (%d elements)", o->row->name, x, room);
    return 1;
}
TENSOR_API tensor_t *(tensor_as_strided)(tensor_t *x, const int64_t *dims, const int64_t *strides, int ndim,
                                         int64_t offset) {
    TENSOR__BEGIN(o, TENSOR__ROW(AS_STRIDED), x)
    if (!tensor__in_storage(&o, x, dims, strides, ndim, offset)) { return TENSOR__POISON; }
    int64_t end = offset - x->offset;
    for (int i = 0; i < ndim; i++) { end += (dims[i] ? dims[i] - 1 : 0) * strides[i]; }
    TENSOR__REFUSE(tensor__tracks(&o) && (!(x->flags & TENSOR__CONTIGUOUS) || offset < x->offset ||
                                          end >= x->numel), UNSUPPORTED,
                   "as_strided: x %t must be contiguous and hold the view to have a gradient", x);
    tensor__ints(&o, offset - x->offset, 0);
    for (int i = 0; i < ndim; i++) { o.params.i[1 + i] = strides[i]; }
    return tensor__view(&o, dims, strides, ndim, offset);
}
// Adds each element of g (input 0) at its place of a view over zeros: i[0] offset, i[1..] strides. In order,
// so overlaps sum the same way every time.
TENSOR__FN int tensor__cpu_as_strided_backward(tensor_call_t *c) {
    const tensor_arg_t *g = &c->arg[0];
    tensor_arg_t *y = &c->arg[1];
    int last = g->ndim - 1, size = tensor__sizes[y->dtype];
    int64_t at[TENSOR_MAX_DIMS] = {0}, offset = c->p->i[0], source = 0, run = last < 0 ? 1 : g->dims[last];
    int64_t ys = last < 0 ? 0 : c->p->i[1 + last], gs = last < 0 ? 0 : g->strides[last];
    memset(y->data, 0, (size_t)(y->numel * size));
    for (int64_t n = 0; n < g->numel; n += run) {
        for (int64_t k = 0; k < run; k++) {
            char *to = (char *)y->data + (offset + k * ys) * size;
            const char *from = (const char *)g->data + (source + k * gs) * size;
            if (y->dtype == TENSOR_F32) {
                *(float *)(void *)to += *(const float *)(const void *)from;
                continue;
            }
            double a = 0, b = 0;
            tensor__load_f64(&a, from, y->dtype, 1, 1);
            tensor__load_f64(&b, to, y->dtype, 1, 1);
            a += b;
            tensor__store_f64(to, y->dtype, 1, &a, 1);
        }
        for (int d = last - 1; d >= 0; d--) {
            offset += c->p->i[1 + d];
            source += g->strides[d];
            if (++at[d] < g->dims[d]) { break; }
            offset -= at[d] * c->p->i[1 + d];
            source -= at[d] * g->strides[d];
            at[d] = 0;
        }
    }
    return 0;
}
TENSOR_API tensor_t *(tensor_as_strided_scatter)(tensor_t *x, tensor_t *src, const int64_t *dims,
                                                 const int64_t *strides, int ndim, int64_t offset) {
    TENSOR__BEGIN(o, TENSOR__ROW(AS_STRIDED_SCATTER), x, src)
    TENSOR__REFUSE(src->ndim != ndim || memcmp(src->dims, dims, (size_t)ndim * sizeof *dims) ||
                   src->dtype != x->dtype, SHAPE, "as_strided_scatter: src %t %y is not the view's shape and "
                   "dtype", src, src);
    tensor_scope_t s = tensor__scope_begin(o.th, 0);
    tensor_t *y = (tensor_clone)(x);
    tensor_t *v = y == TENSOR__POISON ? y : (tensor_as_strided)(y, dims, strides, ndim, offset);
    (tensor_copy_)(v, src);
    y = (tensor_scope_return)(s, v == TENSOR__POISON ? v : y);
    if (y == TENSOR__POISON) { return y; }
    y->op = o.row->name;
    o.out[o.nout++] = y;
    tensor__ints(&o, offset, 0);
    for (int i = 0; i < ndim; i++) { o.params.i[1 + i] = strides[i]; }
    return tensor__commit(&o);
}
// Fills out with poison; the dim to cut x along, -1 = none, raised.
TENSOR__FN int tensor__parts(const char *op, tensor_t *x, int64_t dim, tensor_t **out, int max) {
    for (int i = 0; out && i < max; i++) { out[i] = TENSOR__POISON; }
    return TENSOR__USABLE(op, "x", x) ? tensor__slice_dim(op, dim, x) : -1;
}
TENSOR__FN tensor_t *tensor__one_of(tensor_t *view) {
    if (view != TENSOR__POISON) { view->flags = (uint8_t)(view->flags | TENSOR__MULTI_VIEW); }
    return view;
}
// Part i is sizes[i], or size (at most what is left) if sizes is NULL.
TENSOR__FN int tensor__cut(const char *op, tensor_t *x, int d, int64_t size, const int64_t *sizes, int64_t n,
                           tensor_t **out, int max) {
    int64_t start = 0;
    TENSOR__REFUSE_AS(0, n < 0 || n > (out ? max : 0), SHAPE,
                      "%s: dim %i of x %t in parts of %d needs %d places, there are %i", op, d, x, size, n,
                      out ? max : 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = x->dims[d] - start, take = sizes ? sizes[i] : left < size ? left : size;
        out[i] = tensor__one_of(tensor__slice(x, d, start, 1, take));
        start += take;
    }
    return (int)n;
}
TENSOR_API int (tensor_split)(tensor_t *x, int64_t size, int64_t dim, tensor_t **out, int max) {
    int d = tensor__parts("split", x, dim, out, max);
    if (d < 0) { return 0; }
    TENSOR__REFUSE_AS(0, size < 1, SHAPE, "split: size %d must be at least 1 (x %t)", size, x);
    int64_t n = x->dims[d] ? (x->dims[d] - 1) / size + 1 : 1;
    return tensor__cut("split", x, d, size, NULL, n, out, max);
}
TENSOR_API int (tensor_chunk)(tensor_t *x, int n, int64_t dim, tensor_t **out, int max) {
    int d = tensor__parts("chunk", x, dim, out, max);
    if (d < 0) { return 0; }
    TENSOR__REFUSE_AS(0, n < 1, SHAPE, "chunk: n %i must be at least 1 (x %t)", n, x);
    int64_t size = (x->dims[d] + n - 1) / n;
    return size ? (tensor_split)(x, size, d, out, max) : tensor__cut("chunk", x, d, 0, NULL, n, out, max);
}
TENSOR_API int (tensor_split_with_sizes)(tensor_t *x, const int64_t *sizes, int n, int64_t dim,
                                         tensor_t **out) {
    int d = tensor__parts("split_with_sizes", x, dim, out, n);
    if (d < 0 || !tensor__dims_given("split_with_sizes", sizes, n)) { return 0; }
    int64_t left = x->dims[d];
    for (int i = 0; i < n; i++) { left = sizes[i] < 0 || sizes[i] > left ? -1 : left - sizes[i]; }
    TENSOR__REFUSE_AS(0, left, SHAPE, "split_with_sizes: sizes %n do not make up dim %i of x %t", sizes,
                      n < TENSOR_MAX_DIMS ? n : (int)TENSOR_MAX_DIMS, d, x);
    return tensor__cut("split_with_sizes", x, d, 0, sizes, n, out, n);
}
TENSOR_API int (tensor_tensor_split)(tensor_t *x, int n, int64_t dim, tensor_t **out, int max) {
    int d = tensor__parts("tensor_split", x, dim, out, max);
    if (d < 0 || n < 1 || n > max || !out) {
        if (d >= 0) {
            tensor__fail(tensor__self(), TENSOR_ERR_SHAPE, "tensor_split: %i parts, there are %i places", n,
                         max);
        }
        return 0;
    }
    for (int64_t i = 0, start = 0; i < n; i++) {        // the first few are one larger
        int64_t size = x->dims[d] / n + (i < x->dims[d] % n);
        out[i] = tensor__slice(x, d, start, 1, size);
        start += size;
    }
    return n;
}
TENSOR_API int (tensor_tensor_split_at)(tensor_t *x, const int64_t *indices, int n, int64_t dim,
                                        tensor_t **out) {
    int d = tensor__parts("tensor_split", x, dim, out, n + 1);
    if (d < 0 || !tensor__dims_given("tensor_split", indices, n)) { return 0; }
    for (int i = 0; i <= n; i++) {
        int64_t end = i < n ? indices[i] : INT64_MAX;
        out[i] = (tensor_slice)(x, d, i ? indices[i - 1] : 0, end, 1);
    }
    return n + 1;
}
// Along dim into n equal parts; a 1-d x of hsplit is cut along its only one.
TENSOR__FN int tensor__even(const char *op, tensor_t *x, int dim, int n, tensor_t **out, int max) {
    int at = tensor__live(x) && x->ndim == 1 && dim == 1 ? 0 : dim, d = tensor__parts(op, x, at, out, max);
    if (d < 0) { return 0; }
    TENSOR__REFUSE_AS(0, n < 1 || x->dims[d] % n, SHAPE, "%s: dim %i of x %t does not divide into %i", op, d,
                      x, n);
    return (tensor_tensor_split)(x, n, d, out, max);
}
TENSOR_API int (tensor_hsplit)(tensor_t *x, int n, tensor_t **out, int max) {
    return tensor__even("hsplit", x, 1, n, out, max);
}
TENSOR_API int (tensor_vsplit)(tensor_t *x, int n, tensor_t **out, int max) {
    return tensor__even("vsplit", x, 0, n, out, max);
}
TENSOR_API int (tensor_dsplit)(tensor_t *x, int n, tensor_t **out, int max) {
    return tensor__even("dsplit", x, 2, n, out, max);
}
TENSOR_API int (tensor_unbind)(tensor_t *x, int64_t dim, tensor_t **out, int max) {
    int d = tensor__parts("unbind", x, dim, out, max);
    if (d < 0) { return 0; }
    TENSOR__REFUSE_AS(0, x->dims[d] > (out ? max : 0), SHAPE,
                      "unbind: dim %i of x %t needs more than %i places", d, x, out ? max : 0);
    for (int64_t i = 0; i < x->dims[d]; i++) { out[i] = tensor__one_of((tensor_select)(x, d, i)); }
    return (int)x->dims[d];
}

// A view whose dim i steps by mul[i] along x's dim a[i] (0: it is new, of size 1) and by 1 along b[i] (< 0:
// not), from the element at `begin`. Autograd follows it by the strides x would have if it were contiguous.
// mul may be negative only if the caller copies the view.
typedef struct tensor__stepped_t {
    int64_t dims[TENSOR_MAX_DIMS], mul[TENSOR_MAX_DIMS], begin[TENSOR_MAX_DIMS];
    int ndim, a[TENSOR_MAX_DIMS], b[TENSOR_MAX_DIMS];
} tensor__stepped_t;
TENSOR__FN tensor__stepped_t tensor__stepped_init(const tensor_t *x) {        // x itself
    tensor__stepped_t w;
    w.ndim = x->ndim;
    for (int i = 0; i < TENSOR_MAX_DIMS; i++) {
        w.dims[i] = i < x->ndim ? x->dims[i] : 1;
        w.mul[i] = 1;
        w.begin[i] = 0;
        w.a[i] = i;
        w.b[i] = -1;
    }
    return w;
}
TENSOR__FN tensor_t *tensor__stepped(const char *op, tensor_t *x, const tensor__stepped_t *w) {
    TENSOR__BEGIN(o, TENSOR__ROW(AS_STRIDED), x)
    int64_t strides[TENSOR_MAX_DIMS], plain[TENSOR_MAX_DIMS], step = 1, offset = x->offset, n = 1;
    for (int i = x->ndim - 1; i >= 0; step *= x->dims[i--]) { plain[i] = step; }
    tensor__ints(&o, 0, 0);
    for (int i = 0; i < w->ndim; i++) {
        n *= w->dims[i];
        if (!w->mul[i]) { strides[i] = o.params.i[1 + i] = 1; continue; }
        strides[i] = w->mul[i] * x->strides[w->a[i]] + (w->b[i] < 0 ? 0 : x->strides[w->b[i]]);
        o.params.i[1 + i] = w->mul[i] * plain[w->a[i]] + (w->b[i] < 0 ? 0 : plain[w->b[i]]);
    }
    for (int i = 0; n > 0 && i < x->ndim; i++) {
        offset += w->begin[i] * x->strides[i];
        o.params.i[0] += w->begin[i] * plain[i];
    }
    tensor_t *y = tensor__view(&o, w->dims, strides, w->ndim, offset);
    if (y != TENSOR__POISON) { y->op = op; }
    return y;
}
// Reads "1, :, ::2, ..., None" left to right into one view.
TENSOR_API tensor_t *(tensor_at)(tensor_t *x, const char *index) {
    if (!TENSOR__USABLE("at", "x", x)) { return TENSOR__POISON; }
    TENSOR__REFUSE(!index, FORMAT, "at: index is NULL");
    int items = 0, d = 0, dots = 0;
    for (const char *s = index; *s;) {      // how many dims the items use, for "..."
        while (*s == ' ' || *s == ',') { s++; }
        items += *s && *s != 'N' && *s != 'n' && *s != '.';
        dots += *s == '.';
        while (*s && *s != ',') { s++; }
    }
    TENSOR__REFUSE(dots > 1, FORMAT, "at: \"%s\" has more than one ...", index);
    TENSOR__REFUSE(items > x->ndim, INDEX, "at: \"%s\" indexes %i dims of x %t", index, items, x);
    tensor__stepped_t w = tensor__stepped_init(x);
    w.ndim = 0;
    for (const char *s = index; *s || d < x->ndim; s += *s == ',') {
        int64_t v[3] = {0, INT64_MAX, 1}, size = 1, first = 0;
        int part = 0, given[3] = {0, 0, 0}, bad = 0, keep = 1;     // keep: dims of x that come as they are
        int huge = 0;
        while (*s == ' ') { s++; }
        if (!strncmp(s, "...", 3) || !*s) {
            keep = *s ? x->ndim - items : x->ndim - d;
            s += *s ? 3 : 0;
        } else if (!strncmp(s, "None", 4) || !strncmp(s, "newaxis", 7)) {
            s += *s == 'N' ? 4 : 7;
            keep = -1;
        } else {
            for (; *s && *s != ',' && !bad; s++) {
                if (*s == ':') { bad = ++part > 2; continue; }
                if (*s == ' ') { continue; }
                int neg = *s == '-';
                s += neg;
                bad = given[part] || *s < '0' || *s > '9';          // "1 2"
                int64_t k = 0;
                for (; *s >= '0' && *s <= '9'; s++) {
                    if (k < INT64_MAX / 20) { k = k * 10 + (*s - '0'); } else { huge = 1; }
                }
                v[part] = neg ? -k : k;
                given[part] = 1;
                s--;
            }
            bad |= !part && !given[0];
        }
        while (*s == ' ') { s++; }
        TENSOR__REFUSE(bad || (*s && *s != ','), FORMAT, "at: cannot read \"%s\"", index);
        if (keep == 1 && (part || given[0])) {
            int64_t n = x->dims[d], *from = &v[0], *to = &v[1];
            TENSOR__REFUSE(v[2] < 1, SHAPE, "at: step %d in \"%s\" must be at least 1", v[2], index);
            *from += *from < 0 ? n : 0;
            *to += *to < 0 ? n : 0;
            TENSOR__REFUSE(!part && huge, INDEX, "at: a number in \"%s\" is outside dim %i of x %t", index, d,
                           x);
            TENSOR__REFUSE(!part && (*from < 0 || *from >= n), INDEX,
                           "at: index %d in \"%s\" is outside dim %i of x %t", *from < 0 ? *from - n : *from,
                           index, d, x);
            first = *from < 0 ? 0 : *from > n ? n : *from;
            size = !part ? -1 : *to <= first ? 0 : ((*to < n ? *to : n) - first + v[2] - 1) / v[2];
        }
        for (; keep > 0; keep--, d++) {
            if (size < 0) { w.begin[d] = first; continue; }
            size = part ? size : x->dims[d];
            w.begin[d] = size ? first : 0;
            w.dims[w.ndim] = size;
            w.mul[w.ndim] = part ? v[2] : 1;
            w.a[w.ndim++] = d;
        }
        if (keep < 0) {
            TENSOR__REFUSE(w.ndim + x->ndim - d >= TENSOR_MAX_DIMS, SHAPE,
                           "at: \"%s\" of x %t has more than 8 dims", index, x);
            w.dims[w.ndim] = 1;
            w.mul[w.ndim++] = 0;
        }
    }
    return tensor__stepped("at", x, &w);
}
TENSOR_API tensor_t *(tensor_diagonal)(tensor_t *x, int64_t offset, int64_t dim1, int64_t dim2) {
    if (!TENSOR__USABLE("diagonal", "x", x)) { return TENSOR__POISON; }
    int a = tensor__dim("diagonal", dim1, x), b = tensor__dim("diagonal", dim2, x);
    if (a < 0 || b < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(a == b, INDEX, "diagonal: dims %d and %d of x %t are the same", dim1, dim2, x);
    tensor__stepped_t w = tensor__stepped_init(x);
    int64_t rows = x->dims[a], cols = x->dims[b], n;
    if (offset >= 0) {
        n = tensor__least(cols - tensor__least(offset, cols), rows);
        w.begin[b] = offset;
    } else {
        n = tensor__least(rows + (offset < -rows ? -rows : offset), cols);
        w.begin[a] = 0 - (offset < -rows ? -rows : offset);
    }
    w.ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (i == a || i == b) { continue; }
        w.dims[w.ndim] = x->dims[i];
        w.a[w.ndim++] = i;
    }
    w.dims[w.ndim] = n;
    w.a[w.ndim] = a;
    w.b[w.ndim++] = b;
    return tensor__stepped("diagonal", x, &w);
}
TENSOR_API tensor_t *(tensor_unfold_dim)(tensor_t *x, int64_t dim, int64_t size, int64_t step) {
    TENSOR__MARK1(x)
    TENSOR__DIM(d, "unfold_dim", dim, x)
    if (!x->ndim) { TENSOR__RETURN((tensor_narrow)(tensor__flat(x), 0, 0, size)); }
    TENSOR__REFUSE(size < 0 || size > x->dims[d] || step < 1 || x->ndim == TENSOR_MAX_DIMS, SHAPE,
                   "unfold_dim: windows of %d, step %d do not fit dim %i of x %t", size, step, d, x);
    tensor__stepped_t w = tensor__stepped_init(x);
    w.dims[d] = (x->dims[d] - size) / step + 1;
    w.mul[d] = w.dims[d] > 1 ? step : 1;
    w.dims[w.ndim] = size;
    w.a[w.ndim++] = d;
    TENSOR__RETURN(tensor__stepped("unfold_dim", x, &w));
}
TENSOR_API tensor_t *(tensor_flip_n)(tensor_t *x, const int64_t *dims, int n) {
    TENSOR__MARK
    uint32_t mask = 0;
    if (!tensor__dim_mask("flip", x, dims, n, &mask)) { return TENSOR__POISON; }
    tensor__stepped_t w = tensor__stepped_init(x);
    for (int d = 0; d < x->ndim; d++) {
        if (mask >> d & 1) { w.mul[d] = -1; w.begin[d] = x->dims[d] - 1; }
    }
    TENSOR__RETURN((tensor_clone)(tensor__stepped("flip", x, &w)));
}
TENSOR__FN tensor_t *tensor__flip_at(const char *op, tensor_t *x, int64_t dim) {
    TENSOR__REFUSE(tensor__live(x) && x->ndim <= dim, SHAPE, "%s: x %t needs at least %d dims", op, x, dim +
                   1);
    return (tensor_flip_n)(x, &dim, 1);
}
TENSOR_API tensor_t *(tensor_fliplr)(tensor_t *x) { return tensor__flip_at("fliplr", x, 1); }
TENSOR_API tensor_t *(tensor_flipud)(tensor_t *x) { return tensor__flip_at("flipud", x, 0); }
TENSOR_API tensor_t *(tensor_rot90)(tensor_t *x, int64_t k, int64_t dim0, int64_t dim1) {
    TENSOR__MARK
    uint32_t mask = 0;
    int64_t dims[2] = {dim0, dim1};
    if (!tensor__dim_mask("rot90", x, dims, 2, &mask)) { return TENSOR__POISON; }
    k &= 3;
    if (!k) { return (tensor_clone)(x); }
    tensor_t *y = k == 2 ? (tensor_flip_n)(x, dims, 2) : (tensor_flip_n)(x, &dims[k == 1], 1);
    TENSOR__RETURN(k == 2 ? y : (tensor_contiguous)((tensor_transpose)(y, dim0, dim1)));
}
TENSOR_API tensor_t *(tensor_roll)(tensor_t *x, int64_t shift, int64_t dim) {
    TENSOR__MARK1(x)
    TENSOR__DIM(d, "roll", dim, x)
    if (!x->numel || !x->ndim) { return (tensor_clone)(x); }
    int64_t n = x->dims[d], k = (shift % n + n) % n;
    tensor_t *const parts[2] = {tensor__slice(x, d, n - k, 1, k), tensor__slice(x, d, 0, 1, n - k)};
    TENSOR__RETURN((tensor_cat_n)(parts, 2, d));
}
TENSOR_API tensor_t *(tensor_unflatten_n)(tensor_t *x, int64_t dim, const int64_t *sizes, int n) {
    if (!TENSOR__USABLE("unflatten", "x", x) ||
        !tensor__dims_given("unflatten", sizes, n)) { return TENSOR__POISON; }
    int d = tensor__slice_dim("unflatten", dim, x), m = 0;
    int64_t dims[TENSOR_MAX_DIMS], known = 1, infer = -1;
    if (d < 0) { return TENSOR__POISON; }
    int bad = n < 1 || x->ndim - 1 + n > TENSOR_MAX_DIMS;
    for (int i = 0; i < x->ndim && !bad; i++) {
        if (i != d) { dims[m++] = x->dims[i]; continue; }
        for (int k = 0; k < n && !bad; k++) {
            bad = sizes[k] < -1 || (sizes[k] < 0 && infer >= 0) ||
                (sizes[k] > 0 && known > x->dims[d] / sizes[k]);
            if (sizes[k] < 0) { infer = m; } else { known *= sizes[k]; }
            dims[m++] = sizes[k];
        }
    }
    if (!bad && infer >= 0 && known) { dims[infer] = x->dims[d] / known; known *= dims[infer]; }
    TENSOR__REFUSE(bad || known != x->dims[d] || (infer >= 0 && dims[infer] < 0), SHAPE,
                   "unflatten: sizes %n do not make up dim %i of x %t", sizes, n < 0 || n > TENSOR_MAX_DIMS ?
                   0 : n, d, x);
    return (tensor_reshape_n)(x, dims, m);
}
TENSOR_API tensor_t *(tensor_ravel)(tensor_t *x) { return tensor__flat(x); }
TENSOR_API tensor_t *(tensor_T)(tensor_t *x) {
    int64_t order[TENSOR_MAX_DIMS];
    for (int i = 0; tensor__live(x) && i < x->ndim; i++) { order[i] = x->ndim - 1 - i; }
    return (tensor_permute_n)(x, order, tensor__live(x) ? x->ndim : 0);
}
TENSOR__FRONT(swapaxes, (tensor_t *x, int64_t dim0, int64_t dim1), (tensor_transpose)(x, dim0, dim1))
TENSOR__FRONT(swapdims, (tensor_t *x, int64_t dim0, int64_t dim1), (tensor_transpose)(x, dim0, dim1))
#define TENSOR__X(name, fn)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, tensor_t *other) {                                     \
        if (!TENSOR__USABLE(#name, "other", other)) { return TENSOR__POISON; }                               \
        return fn(x, other->dims, other->ndim);                                                              \
    }
TENSOR__X(expand_as, (tensor_expand_n)) TENSOR__X(reshape_as, (tensor_reshape_n))
TENSOR__X(view_as, (tensor_view_n))
#undef TENSOR__X
// At least n dims: new ones of size 1 in front, in 3-d also one behind.
TENSOR__FN tensor_t *tensor__atleast(tensor_t *x, int n) {
    if (!TENSOR__USABLE("atleast", "x", x)) { return TENSOR__POISON; }
    if (x->ndim >= n) { return x; }
    int64_t dims[3] = {1, 1, 1};
    int at = x->ndim == 2 ? 0 : n > 1 ? 1 : 0;
    for (int i = 0; i < x->ndim; i++) { dims[at + i] = x->dims[i]; }
    return (tensor_reshape_n)(x, dims, n);
}
TENSOR_API tensor_t *(tensor_atleast_1d)(tensor_t *x) { return tensor__atleast(x, 1); }
TENSOR_API tensor_t *(tensor_atleast_2d)(tensor_t *x) { return tensor__atleast(x, 2); }
TENSOR_API tensor_t *(tensor_atleast_3d)(tensor_t *x) { return tensor__atleast(x, 3); }
TENSOR_API int (tensor_broadcast_tensors)(tensor_t *const *list, int n, tensor_t **out) {
    tensor__thread_t *th = tensor__self();
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; out && i < n; i++) { out[i] = TENSOR__POISON; }
    TENSOR__REFUSE_CODE(n < 0 || (n && (!list || !out)), OWNER,
                        "broadcast_tensors: list or out is NULL, or %i tensors", n);
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE("broadcast_tensors", "list", list[i])) { return th->error.code; }
        TENSOR__REFUSE_CODE(!tensor__broadcast(dims, &ndim, list[i]->dims, list[i]->ndim), SHAPE,
                            "broadcast_tensors: tensor %i %t does not broadcast with %n", i, list[i], dims,
                            ndim);
    }
    for (int i = 0; i < n; i++) {
        out[i] = (tensor_expand_n)(list[i], dims, ndim);
        if (out[i] == TENSOR__POISON) { return th->error.code; }
    }
    return 0;
}
// x with its dim 1 innermost in memory ([N, C, spatial..]), dims as they were.
TENSOR_API tensor_t *(tensor_channels_last)(tensor_t *x) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(x->ndim < 3, SHAPE, "channels_last: x %t must be [N, C, spatial..]", x);
    if ((tensor_is_channels_last)(x)) { return x; }
    TENSOR__RETURN((tensor_movedim)((tensor_contiguous)((tensor_movedim)(x, 1, -1)), -1, 1));
}
TENSOR_API int (tensor_is_channels_last)(tensor_t *x) {
    return tensor__live(x) && x->ndim >= 3 && (tensor__last(x->dims, x->ndim, x->strides, NULL) || !x->numel);
}
// A copy of x, and v, a view of that copy, replaced by src.
TENSOR__FN tensor_t *tensor__replaced(const char *op, tensor_t *y, tensor_t *v, tensor_t *src) {
    if (v == TENSOR__POISON || !TENSOR__USABLE(op, "src", src)) { return TENSOR__POISON; }
    TENSOR__REFUSE(!tensor__same_shape(v, src), SHAPE, "%s: src %t has not the shape %t of what it replaces",
                   op, src, v);
    return (tensor_copy_)(v, src) == TENSOR__POISON ? TENSOR__POISON : y;
}
#define TENSOR__X(name, params, view)                                                                        \
    TENSOR_API tensor_t *(tensor_##name) params {                                                            \
        TENSOR__MARK                                                                                         \
        tensor_t *y = (tensor_clone)(x);                                                                     \
        TENSOR__RETURN(tensor__replaced(#name, y, view, src));                                               \
    }
TENSOR__X(select_scatter, (tensor_t *x, tensor_t *src, int64_t dim, int64_t index),
          (tensor_select)(y, dim, index))
TENSOR__X(slice_scatter, (tensor_t *x, tensor_t *src, int64_t dim, int64_t start, int64_t end, int64_t step),
          (tensor_slice)(y, dim, start, end, step))
TENSOR__X(diagonal_scatter, (tensor_t *x, tensor_t *src, int64_t offset, int64_t dim1, int64_t dim2),
          (tensor_diagonal)(y, offset, dim1, dim2))
#undef TENSOR__X
TENSOR_API tensor_t *(tensor_detach)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("detach", "x", x)) { return TENSOR__POISON; }
    tensor_t *t = tensor__alias(th, "detach", x, x->dims, x->strides, x->ndim, x->offset);
    return t ? th->fresh = t : TENSOR__POISON;
}

TENSOR__FN void tensor__grad_reshape(tensor__grad_t *g) {
    g->gx[0] = (tensor_reshape_n)(g->gy[0], g->node->in[0].dims, g->node->in[0].ndim);
}
TENSOR__FN void tensor__grad_permute(tensor__grad_t *g) {
    int64_t order[TENSOR_MAX_DIMS];
    int n = g->node->in[0].ndim;
    for (int i = 0; i < n; i++) { order[g->p->i[i]] = i; }
    g->gx[0] = (tensor_permute_n)(g->gy[0], order, n);
}
TENSOR__FN void tensor__grad_expand(tensor__grad_t *g) { g->gx[0] = g->gy[0]; }       // the engine sums
// order: x was permuted so, and lies in memory as before that: the next gradient is contiguous. NULL = it was
// not.
TENSOR__FN tensor_t *tensor__slice_backward(tensor_t *g, const tensor__meta_t *x, const tensor_params_t *p,
                                            const int64_t *order) {
    TENSOR__BEGIN(o, TENSOR__ROW(SLICE_BACKWARD), g)
    tensor_scope_t s = tensor__scope_begin(o.th, 0);
    tensor_t *y = (tensor_zeros_n)(x->dims, x->ndim, (tensor_dtype_t)g->dtype);
    int64_t step = 1;
    for (int k = x->ndim - 1; order && y != TENSOR__POISON && k >= 0; k--) {
        int d = 0;
        while (order[d] != k) { d++; }
        if (y->strides[d] != step) { y->flags &= (uint8_t)~TENSOR__CONTIGUOUS; }
        y->strides[d] = step;
        step *= y->dims[d];
    }
    if (y != TENSOR__POISON && g->numel) {
        tensor_t *v = tensor__slice(y, (int)p->i[0], p->i[1], p->i[2], g->dims[p->i[0]]);
        if ((tensor_copy_)(v, g) == TENSOR__POISON) { y = TENSOR__POISON; }
    }
    y = (tensor_scope_return)(s, y);
    if (y == TENSOR__POISON) { return y; }
    o.out[o.nout++] = y;
    o.p = &o.params;
    o.params = *p;
    return tensor__commit(&o);
}
TENSOR__FN void tensor__grad_slice(tensor__grad_t *g) {
    const tensor__node_t *to = g->node->edge[0].node;
    g->gx[0] = tensor__slice_backward(g->gy[0], &g->node->in[0], g->p, to && !g->create && to->row ==
                                      TENSOR__ROW(PERMUTE) ? to->p->i : NULL);
}
TENSOR__FN void tensor__grad_slice_backward(tensor__grad_t *g) {
    const int64_t *i = g->p->i;
    g->gx[0] = tensor__slice(g->gy[0], (int)i[0], i[1], i[2], g->node->in[0].dims[i[0]]);
}
TENSOR__FN void tensor__grad_as_strided(tensor__grad_t *g) {
    tensor__op_t o;
    tensor_t *const in[1] = {g->gy[0]};
    if (!tensor__begin(&o, TENSOR__ROW(AS_STRIDED_BACKWARD), in, 1)) { return; }
    o.p = &o.params;
    o.params = *g->p;
    tensor__result(&o, g->gy[0]->dtype, g->node->in[0].dims, g->node->in[0].ndim);
    g->gx[0] = tensor__finish(&o);
}
TENSOR__FN void tensor__grad_as_strided_backward(tensor__grad_t *g) {
    tensor_t *c = (tensor_contiguous)(g->gy[0]);
    tensor__op_t o;
    if (c == TENSOR__POISON || !tensor__begin(&o, TENSOR__ROW(AS_STRIDED), &c, 1)) { return; }
    o.p = &o.params;
    o.params = *g->p;
    int ndim = g->node->in[0].ndim, back = 0;
    for (int i = 0; i < ndim; i++) { back |= g->p->i[1 + i] < 0; }
    tensor_t *y = tensor__view(&o, g->node->in[0].dims, g->p->i + 1, ndim, c->offset + g->p->i[0]);
    g->gx[0] = back ? (tensor_clone)(y) : y;        // flip: negative strides stay inside
}
TENSOR__FN void tensor__grad_as_strided_scatter(tensor__grad_t *g) {
    const tensor__meta_t *v = &g->node->in[1];
    tensor_t *c = (tensor_contiguous)(g->gy[0]);
    if (c == TENSOR__POISON) { return; }
    if (g->node->edge[0].node || g->node->edge[0].leaf) {
        tensor_t *zero = (tensor_zeros_n)(v->dims, v->ndim, (tensor_dtype_t)c->dtype);
        g->gx[0] = (tensor_as_strided_scatter)(c, zero, v->dims, g->p->i + 1, v->ndim, c->offset +
                                               g->p->i[0]);
    }
    g->gx[1] = (tensor_as_strided)(c, v->dims, g->p->i + 1, v->ndim, c->offset + g->p->i[0]);
}

// ------------------------------------------------------------------------------
// >>impl-pointwise                                 MARK: pointwise fronts, casts, in place
//
// One front serves all rows; contiguous f32 of up to some thousand elements takes a short way past the
// general one with the same bodies. Rejected: a function written out per op.
// ------------------------------------------------------------------------------

TENSOR__FN const tensor__row_t *tensor__backward_row(int id);
TENSOR__FN int tensor__wants(const struct tensor__pass_t *p, const tensor__edge_t *e);
TENSOR__INLINE int tensor__needs(const tensor__grad_t *g, int k) {
    const tensor__edge_t *e = &g->node->edge[k];
    return (e->node || e->leaf) && (!g->pass || tensor__wants(g->pass, e));
}
TENSOR__FN int tensor__grad_need(const tensor__grad_t *g, int k) { return tensor__needs(g, k); }

// dtypes of a pointwise op: what it is computed in (o->compute) and what it gives. -1 = refused, raised.
TENSOR__FN int tensor__pointwise_dtype(tensor__op_t *o, int promoted) {
    int kind = o->row->kind, id = o->row->id;
    int floats = kind == TENSOR__FLT || kind == TENSOR__DBL;
    if (floats && !tensor__is_float(promoted)) { promoted = o->th->ctx->default_dtype; }
    if (promoted == TENSOR_BOOL && (id == TENSOR_OP_SQUARE || id == TENSOR_OP_CLAMP)) {
        promoted = TENSOR_I64;
    }
    o->compute = (uint8_t)(kind == TENSOR__DBL ? TENSOR_F64 : promoted);
    if (kind == TENSOR__CMP || kind == TENSOR__LOG) { return TENSOR_BOOL; }
    TENSOR__REFUSE_AS(-1, kind == TENSOR__BIT && tensor__is_float(promoted), DTYPE,
                      "%s: x %t is %s, which has no bits to work on; integers and bool have", o->row->name,
                      o->in[0], tensor__dtype_names[promoted]);
    TENSOR__REFUSE_AS(-1, promoted == TENSOR_BOOL && (id == TENSOR_OP_SUB || id == TENSOR_OP_NEG), DTYPE,
                      "%s: bool cannot be subtracted or negated; use logical_xor, logical_not", o->row->name);
    int shifts = id == TENSOR_OP_BITWISE_LEFT_SHIFT || id == TENSOR_OP_BITWISE_RIGHT_SHIFT;
    TENSOR__REFUSE_AS(-1, promoted == TENSOR_BOOL && (shifts || id == TENSOR_OP_HARDTANH ||
                                                      id == TENSOR_OP_ADDCMUL), DTYPE,
                      "%s: bool is refused; integers are taken", o->row->name);
    return promoted;
}

// The result has channels innermost if an input has them so; a copy is row-major.
TENSOR__INLINE tensor_t *tensor__finish_images(tensor__op_t *o) {
    for (int i = 0; i < o->nin && o->device && o->row->id != TENSOR_OP_CLONE; i++) {
        tensor__follow(o->out[0], o->in[i]);
    }
    return tensor__finish(o);
}
TENSOR__FN tensor_t *tensor__pointwise_finish(tensor__op_t *o, int promoted) {
    int dtype = tensor__pointwise_dtype(o, promoted);
    if (dtype < 0) { return TENSOR__POISON; }
    const tensor_t *a = o->in[0];
    int same = 1;
    for (int i = 1; i < o->nin; i++) {
        const tensor_t *b = o->in[i];
        same = same && (!b || tensor__same_shape(a, b));
    }
    if (TENSOR__LIKELY(same)) {
        tensor__result(o, dtype, a->dims, a->ndim);
        return tensor__finish_images(o);
    }
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < o->nin; i++) {
        const tensor_t *b = o->in[i];
        if (b && !tensor__broadcast(dims, &ndim, b->dims, b->ndim)) {
            TENSOR__REFUSE(i == 1, SHAPE, "%s: a %t and b %t do not broadcast", o->row->name, a, b);
            return tensor__fail(o->th, TENSOR_ERR_SHAPE, "%s: argument %s %t does not broadcast to %n",
                                o->row->name, tensor__arg_names[i], b, dims, ndim);
        }
    }
    tensor__result(o, dtype, dims, ndim);
    return tensor__finish_images(o);
}

// body with the value v everywhere in input `slot`: in pieces, since bodies read memory.
TENSOR__FN void tensor__plain_uniform(tensor__body_t body, const void *const *in, int nin, void *const *out,
                                      int nout, const double *p, int64_t n, int slot, float v) {
    float block[TENSOR__BLOCK];
    const void *i2[5];
    void *o2[3];
    for (int64_t k = 0; k < n && k < TENSOR__BLOCK; k++) { block[k] = v; }
    for (int64_t first = 0; first < n; first += TENSOR__BLOCK) {
        for (int k = 0; k < nin; k++) { i2[k] = in[k] ? (const float *)in[k] + first : NULL; }
        for (int k = 0; k < nout; k++) { o2[k] = out[k] ? (float *)out[k] + first : NULL; }
        i2[slot] = block;
        body(i2, o2, p, tensor__least(n - first, TENSOR__BLOCK));
    }
}
// A fresh f32 tensor of contiguous a's shape. NULL = out of memory, not raised.
TENSOR__INLINE tensor_t *tensor__like(tensor__thread_t *th, const char *op, const tensor_t *a) {
    tensor_t *t = tensor__new_header(th, op, TENSOR_F32, a->ndim);
    if (!t) { return NULL; }
    t->storage = tensor__storage(th, (uint64_t)a->numel * sizeof(float), NULL);
    if (!t->storage) {
        (tensor_free)(t);
        return NULL;
    }
    t->numel = a->numel;
    t->flags = TENSOR__CONTIGUOUS;
    if (th->modes & TENSOR__INFERRING) { t->flags = TENSOR__CONTIGUOUS | TENSOR__INFERENCE; }
    for (int d = 0; d < a->ndim; d++) {
        t->dims[d] = a->dims[d];
        t->strides[d] = a->strides[d];
        TENSOR__HIDE(d);                                // or two calls of memcpy for a number or two
    }
    return t;
}
// reads[op][k]: TENSOR__SA .. read by the derivative for operand k; filled once, before the first tensor
// is made.
static uint16_t tensor__reads[TENSOR_OP_POINTWISE_COUNT][3];
// What tensor__record does, for the plain door: all shapes are one, so dims and strides stand in the node
// once.
TENSOR__INLINE void tensor__plain_save(tensor__saved_t *v, const tensor_t *t, int source,
                                       const int64_t *dims) {
    TENSOR__HOLD(&t->storage->refs);
    v->storage = t->storage;
    v->offset = t->offset;
    v->dims = dims;
    v->strides = dims + t->ndim;
    v->numel = t->numel;
    v->version = t->storage->version;
    v->ndim = t->ndim;
    v->dtype = TENSOR_F32;
    v->is_immediate = 0;
    v->contiguous = 1;
    v->source = (int8_t)source;
}
TENSOR__FN int tensor__plain_record(tensor__thread_t *th, const tensor__row_t *row, tensor_t *a, tensor_t *b,
                                    const double *scalar, tensor_t *y) {
    int nin = b || scalar ? 2 : 1, nd = y->ndim, reads = 0;
    if (tensor__needs_grad(a)) { reads = tensor__reads[row->id][0]; }
    if (b && tensor__needs_grad(b)) { reads |= tensor__reads[row->id][1]; }
    tensor_t *bad = (a->flags & TENSOR__INFERENCE) && (reads & TENSOR__SA) ? a :
        b && (b->flags & TENSOR__INFERENCE) && (reads & TENSOR__SB) ? b : NULL;
    if (bad) {
        tensor__not_saved(th, row->name, bad);
        return 0;
    }
    int nsaved = (reads & 1) + (reads >> 1 & 1) + (reads >> 8 & 1);
    tensor__node_t *n = tensor__node_new(th, row, nin, 1, nsaved, 2 * (size_t)nd * sizeof(int64_t));
    if (!n) { return 0; }
    n->p = NULL;
    tensor__saved_t *v = n->saved;
    int64_t *dims = (int64_t *)(void *)(v + nsaved);
    for (int d = 0; d < nd; d++) {
        dims[d] = y->dims[d];
        dims[nd + d] = y->strides[d];
        TENSOR__HIDE(d);
    }
    for (tensor__meta_t *m = n->in; m <= n->out; m++) {
        m->dims = dims;
        m->ndim = (uint8_t)nd;
        m->dtype = TENSOR_F32;
    }
    uint64_t seq = tensor__edge_set(&n->edge[0], a, th->seq);
    if (nin == 2) { seq = tensor__edge_set(&n->edge[1], b, seq); }
    if (reads & TENSOR__SA) { tensor__plain_save(v++, a, 0, dims); }
    if (reads & TENSOR__SB) {
        if (b) {
            tensor__plain_save(v, b, 1, dims);
        } else {
            v->storage = NULL;
            v->immediate = *scalar;
            v->is_immediate = 1;
            v->source = 1;
        }
        v++;
    }
    if (reads & TENSOR__SY) { tensor__plain_save(v, y, -1, dims); }
    th->seq = n->seq = seq + 1;
    if ((th->modes & TENSOR__PACKING) && !tensor__pack(th, n)) {
        tensor__node_drop(th, n);
        return 0;
    }
    y->node = n;
    return 1;
}
// The plain door of the gate: contiguous f32 of one shape, whole vectors, no error pending. Most ops of small
// networks are that, and the general way (promotion, broadcast, call, iterator) would cost three times the
// work itself. b NULL = unary, or *scalar in its place. NULL = not plain, take the general way.
TENSOR__INLINE tensor_t *tensor__plain(int id, tensor_t *a, tensor_t *b, const double *scalar) {
    tensor__thread_t *th = tensor__self();
    const tensor__isa_t *isa = th->ctx->plain;
    if (!isa || th->error.code || !a || a->state != TENSOR__LIVE || !TENSOR__HOST_F32(a)) { return NULL; }
    int64_t n = a->numel;
    int flags = a->flags;
    th->written = NULL;
    if (a->home != th && a->home->ctx != th->ctx) { return NULL; }
    if (b) {
        if (b->state != TENSOR__LIVE || !TENSOR__HOST_F32(b) || b->ndim != a->ndim) { return NULL; }
        if (b->home != th && b->home->ctx != th->ctx) { return NULL; }
        for (int d = 0; d < a->ndim; d++) { if (a->dims[d] != b->dims[d]) { return NULL; } }
        flags &= b->flags;
    }
    if (!(flags & TENSOR__CONTIGUOUS) || (n & (isa->lanes - 1)) || n > TENSOR__GRAIN || n == 0) {
        return NULL;
    }
    const tensor__row_t *row = tensor__row(id);
    tensor_t *t = tensor__like(th, row->name, a);
    if (!t) { return NULL; }
    const void *in[4];
    void *out[1];
    in[0] = (const float *)a->storage->data + a->offset;
    in[1] = b ? (const float *)b->storage->data + b->offset : NULL;
    out[0] = t->storage->data;
    if (scalar) {
        tensor__plain_uniform(isa->forward[id], in, 2, out, 1, NULL, n, 1, (float)*scalar);
    } else {
        isa->forward[id](in, out, NULL, n);
    }
    if (th->grad_mode && (tensor__sync_needs_grad(th, a) || (b && tensor__sync_needs_grad(th, b)))) {
        if (!tensor__plain_record(th, row, a, b, scalar, t)) {
            (tensor_free)(t);
            return TENSOR__POISON;
        }
    }
    return th->fresh = t;
}

TENSOR__FN tensor_t *tensor__unary(int id, tensor_t *x, double f0, double f1) {
    tensor_t *plain = tensor__row(id)->kind <= TENSOR__NUM && f0 == 0 ? tensor__plain(id, x, NULL, NULL) :
        NULL;
    if (TENSOR__LIKELY(plain != NULL)) { return plain; }
    TENSOR__BEGIN(o, tensor__row(id), x)
    if (f0 != 0 || f1 != 0) { tensor__reals(&o, f0, f1); }
    return tensor__pointwise_finish(&o, x->dtype);
}
// As above for ops whose formula reads F_P: the parameters are there even if they are 0.
TENSOR__FN tensor_t *tensor__unary_p(int id, tensor_t *x, double f0, double f1) {
    TENSOR__BEGIN(o, tensor__row(id), x)
    tensor__reals(&o, f0, f1);
    return tensor__pointwise_finish(&o, x->dtype);
}
TENSOR__FN tensor_t *tensor__binary(int id, tensor_t *a, tensor_t *b) {
    tensor_t *plain = tensor__row(id)->kind <= TENSOR__NUM && b ? tensor__plain(id, a, b, NULL) : NULL;
    if (TENSOR__LIKELY(plain != NULL)) { return plain; }
    TENSOR__BEGIN(o, tensor__row(id), a, b)
    return tensor__pointwise_finish(&o, TENSOR__LIKELY(a->dtype == b->dtype) ? a->dtype :
                                    tensor__promote(in_, 2));
}
// The dtype of (tensor, number): an integral number does not change it, a fraction turns integers to f32.
TENSOR__FN int tensor__weak(int dtype, double v) {
    if (tensor__is_float(dtype)) { return dtype; }
    if (v != floor(v) || fabs(v) > 9.3e18) { return tensor__self()->ctx->default_dtype; }
    return dtype == TENSOR_BOOL && v != 0 && v != 1 ? TENSOR_I64 : dtype;
}
TENSOR__FN tensor_t *tensor__scalar_op(int id, tensor_t *a, double b) {
    tensor_t *plain = tensor__row(id)->kind <= TENSOR__NUM ? tensor__plain(id, a, NULL, &b) : NULL;
    if (TENSOR__LIKELY(plain != NULL)) { return plain; }
    TENSOR__BEGIN(o, tensor__row(id), a)
    o.nin = 2;
    o.args[1] = NULL;
    o.immediate = 1;
    o.imm = b;
    return tensor__pointwise_finish(&o, tensor__weak(a->dtype, b));
}
TENSOR__FN tensor_t *tensor__ternary(int id, tensor_t *a, tensor_t *b, tensor_t *c, double f0) {
    TENSOR__BEGIN(o, tensor__row(id), a, b, c)
    tensor__reals(&o, f0, 0);
    return tensor__pointwise_finish(&o, id == TENSOR_OP_WHERE ? tensor__promote(in_ + 1, 2) :
                                    tensor__promote(in_, 3));
}

// Elements of x in memory order: lowest and one past the highest, relative to the storage.
TENSOR__FN void tensor__extent(const tensor_t *x, int64_t *first, int64_t *end) {
    *first = *end = x->offset;
    for (int i = 0; i < x->ndim; i++) { *end += (x->dims[i] ? x->dims[i] - 1 : 0) * x->strides[i]; }
    *end += x->numel ? 1 : 0;
}
TENSOR__FN int tensor__same_view(const tensor_t *a, const tensor_t *b) {
    if (a->offset != b->offset || a->ndim != b->ndim) { return 0; }
    for (int i = 0; i < a->ndim; i++) {
        if (a->dims[i] != b->dims[i] || (a->dims[i] > 1 && a->strides[i] != b->strides[i])) { return 0; }
    }
    return 1;
}

// x = op(x, others) in place. nin counts x; imm stands for input 1 when it is NULL and scalar is set.
TENSOR__FN tensor_t *tensor__update(int id, tensor_t *const *list, int nin, int scalar, double imm,
                                    const double *f, int writes_only) {
    tensor__op_t o;
    tensor_t *x = list[0];
    if (!tensor__begin(&o, tensor__row(id), list, scalar ? 1 : nin)) { return TENSOR__POISON; }
    const char *name = writes_only ? "copy" : o.row->name;
    TENSOR__REFUSE(nin && o.args[0] != x, DEVICE, "%s_: x lies on the CPU, the other on %s", name,
                   tensor__device_name(o.th, o.device));
    if (scalar) {
        o.nin = 2;
        o.args[1] = NULL;
        o.immediate = 1;
        o.imm = imm;
    }
    int promoted = scalar ? tensor__weak(x->dtype, imm) : tensor__promote(list, nin);
    if (writes_only) { promoted = list[1]->dtype; }
    int dtype = tensor__pointwise_dtype(&o, promoted);
    if (dtype < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(!writes_only && tensor__category(dtype) > tensor__category(x->dtype), DTYPE,
                   "%s_: a result of %s cannot be stored in x %t %y", name, tensor__dtype_names[dtype], x, x);
    if (x->dtype == TENSOR_F64 && !scalar && !writes_only) { o.compute = TENSOR_F64; }
    int tracks = tensor__tracks(&o);
    for (int i = 1; i < o.nin; i++) {
        TENSOR__REFUSE(o.args[i] && !tensor__fills(o.args[i], x), SHAPE,
                       "%s_: b %t does not broadcast to x %t (an in-place result keeps x's shape)", name,
                       o.args[i], x);
    }
    if (!tensor__update_allowed(o.th, name, x, tracks)) { return TENSOR__POISON; }
    for (int i = 1; i < o.nin; i++) {
        tensor_t *b = o.args[i];
        if (!b || b->storage != x->storage) { continue; }
        int64_t f0, e0, f1, e1;
        tensor__extent(x, &f0, &e0);
        tensor__extent(b, &f1, &e1);
        if (e0 <= f1 || e1 <= f0) { continue; }
        if (!tensor__same_view(x, b)) {
            TENSOR__REFUSE((x->flags & TENSOR__CONTIGUOUS) && (b->flags & TENSOR__CONTIGUOUS), AUTOGRAD,
                           "%s_: x %t and b %t overlap in memory; clone one first", name, x, b);
            o.args[i] = (tensor_clone)(b);
        } else if (tracks) {
            o.args[i] = (tensor_clone)(b);      // its value before the change is what the gradient needs
        }
        if (o.args[i] == TENSOR__POISON) { return TENSOR__POISON; }
    }
    if (tracks && (o.row->saves & TENSOR__SA)) {
        tensor_scope_t s = tensor__scope_begin(o.th, 0);
        o.original = (tensor_scope_return)(s, (tensor_clone)(x));
        if (o.original == TENSOR__POISON) { return TENSOR__POISON; }
    }
    if (f) { tensor__reals(&o, f[0], f[1]); }
    o.update = 1;
    o.out[0] = x;
    o.nout = 1;
    if (writes_only) {          // copy_: the formula reads src alone
        o.args[0] = o.args[1];
        o.args[1] = x;
        if (!tracks || !tensor__sync_needs_grad(o.th, x)) { o.nin = 1; }
    }
    tensor_t *r = tensor__finish(&o);
    if (o.original) { (tensor_free)(o.original); }
    return r;
}

#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x) { return tensor__unary(TENSOR_OP_##ID, x, 0, 0); }
// Unary rows without parameters; those with F_P have their own fronts below.
TENSOR__X(ABS, abs) TENSOR__X(ACOS, acos) TENSOR__X(ASIN, asin) TENSOR__X(ATAN, atan) TENSOR__X(CEIL, ceil)
TENSOR__X(COS, cos) TENSOR__X(COSH, cosh) TENSOR__X(ERF, erf) TENSOR__X(ERFC, erfc) TENSOR__X(EXP, exp)
TENSOR__X(EXP2, exp2) TENSOR__X(EXPM1, expm1) TENSOR__X(FLOOR, floor) TENSOR__X(GELU, gelu)
TENSOR__X(GELU_TANH, gelu_tanh) TENSOR__X(LOG, log) TENSOR__X(LOG10, log10) TENSOR__X(LOG1P, log1p)
TENSOR__X(LOG2, log2) TENSOR__X(LOGSIGMOID, logsigmoid) TENSOR__X(NEG, neg) TENSOR__X(RECIPROCAL, reciprocal)
TENSOR__X(RELU, relu) TENSOR__X(ROUND, round) TENSOR__X(RSQRT, rsqrt) TENSOR__X(SIGMOID, sigmoid)
TENSOR__X(SIGN, sign) TENSOR__X(SILU, silu) TENSOR__X(SIN, sin) TENSOR__X(SINH, sinh) TENSOR__X(SQRT, sqrt)
TENSOR__X(SQUARE, square) TENSOR__X(TAN, tan) TENSOR__X(TANH, tanh) TENSOR__X(TRUNC, trunc)
TENSOR__X(LOGICAL_NOT, logical_not) TENSOR__X(ISNAN, isnan) TENSOR__X(ISINF, isinf)
TENSOR__X(ISFINITE, isfinite) TENSOR__X(CLONE, clone) TENSOR__X(HARDSIGMOID, hardsigmoid)
TENSOR__X(HARDSWISH, hardswish) TENSOR__X(MISH, mish) TENSOR__X(ACOSH, acosh) TENSOR__X(ASINH, asinh)
TENSOR__X(ATANH, atanh) TENSOR__X(ERFINV, erfinv) TENSOR__X(LGAMMA, lgamma) TENSOR__X(SINC, sinc)
#undef TENSOR__X
// A fraction turns integers to f32; an infinite bound is none.
TENSOR__FN int tensor__clamped(int dtype, double lo, double hi) {
    double v = lo - floor(lo) > 0 ? lo : hi;
    return v - floor(v) > 0 ? tensor__weak(dtype, v) : dtype;
}
// A bound beyond the far end of an integer dtype would be a result that it cannot hold.
TENSOR__FN int tensor__clampable(int dtype, double lo, double hi) {
    if (dtype == TENSOR_BOOL) { return 1; }             // the result is i64
    return (!(lo > 0) || tensor__holds("clamp", dtype, lo)) &&
           (!(hi < 0) || tensor__holds("clamp", dtype, hi));
}
TENSOR_API tensor_t *(tensor_bitwise_not)(tensor_t *x) {
    if (tensor__live(x) && x->dtype == TENSOR_BOOL) { return (tensor_logical_not)(x); }
    return tensor__unary(TENSOR_OP_BITWISE_NOT, x, 0, 0);
}
TENSOR_API tensor_t *(tensor_clamp)(tensor_t *x, double lo, double hi) {
    TENSOR__BEGIN(o, TENSOR__ROW(CLAMP), x)
    int dtype = tensor__clamped(x->dtype, lo, hi);
    if (!tensor__clampable(dtype, lo, hi)) { return TENSOR__POISON; }
    tensor__reals(&o, lo, hi);
    return tensor__pointwise_finish(&o, dtype);
}
TENSOR_API tensor_t *(tensor_hardtanh)(tensor_t *x, double lo, double hi) {
    TENSOR__REFUSE(lo > hi, SHAPE, "hardtanh: lo %g is above hi %g", lo, hi);
    return tensor__unary_p(TENSOR_OP_HARDTANH, x, lo, hi);
}
TENSOR_API tensor_t *(tensor_polygamma)(int n, tensor_t *x) {
    TENSOR__REFUSE(n < 0 || n > 100, SHAPE, "polygamma: n %i must be in 0..100", n);
    return tensor__unary_p(TENSOR_OP_POLYGAMMA, x, n, 0);
}
TENSOR__MADE(digamma, (tensor_t *x), (tensor_polygamma)(0, x))
TENSOR__FRONT(elu, (tensor_t *x, double alpha), tensor__unary_p(TENSOR_OP_ELU, x, alpha, 0))
TENSOR__FRONT(leaky_relu, (tensor_t *x, double slope), tensor__unary_p(TENSOR_OP_LEAKY_RELU, x, slope, 0))
TENSOR__FRONT(softplus, (tensor_t *x, double beta, double threshold),
    tensor__unary_p(TENSOR_OP_SOFTPLUS, x, beta, threshold))

#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *a, tensor_t *b) { return tensor__binary(TENSOR_OP_##ID,   \
            a, b); }
TENSOR__X(ADD, add) TENSOR__X(ATAN2, atan2) TENSOR__X(DIV, div) TENSOR__X(FLOOR_DIVIDE, floor_divide)
TENSOR__X(FMOD, fmod) TENSOR__X(MAXIMUM, maximum) TENSOR__X(MINIMUM, minimum) TENSOR__X(MUL, mul)
TENSOR__X(POW, pow) TENSOR__X(REMAINDER, remainder) TENSOR__X(SUB, sub) TENSOR__X(EQ, eq) TENSOR__X(GE, ge)
TENSOR__X(GT, gt) TENSOR__X(LE, le) TENSOR__X(LT, lt) TENSOR__X(NE, ne) TENSOR__X(LOGICAL_AND, logical_and)
TENSOR__X(LOGICAL_OR, logical_or) TENSOR__X(LOGICAL_XOR, logical_xor) TENSOR__X(BITWISE_AND, bitwise_and)
TENSOR__X(BITWISE_OR, bitwise_or) TENSOR__X(BITWISE_XOR, bitwise_xor)
TENSOR__X(BITWISE_LEFT_SHIFT, bitwise_left_shift) TENSOR__X(BITWISE_RIGHT_SHIFT, bitwise_right_shift)
TENSOR__X(COPYSIGN, copysign) TENSOR__X(HYPOT, hypot) TENSOR__X(LOGADDEXP, logaddexp)
TENSOR__X(LOGADDEXP2, logaddexp2) TENSOR__X(XLOGY, xlogy)
#undef TENSOR__X
#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name##_scalar)(tensor_t *a, double b) {                                   \
        return tensor__scalar_op(TENSOR_OP_##ID, a, b);                                                      \
    }
TENSOR__X(ADD, add) TENSOR__X(SUB, sub) TENSOR__X(MUL, mul) TENSOR__X(DIV, div) TENSOR__X(POW, pow)
TENSOR__X(MAXIMUM, maximum) TENSOR__X(MINIMUM, minimum) TENSOR__X(FMOD, fmod) TENSOR__X(REMAINDER, remainder)
TENSOR__X(FLOOR_DIVIDE, floor_divide) TENSOR__X(EQ, eq) TENSOR__X(GE, ge) TENSOR__X(GT, gt) TENSOR__X(LE, le)
TENSOR__X(LT, lt) TENSOR__X(NE, ne) TENSOR__X(COPYSIGN, copysign) TENSOR__X(XLOGY, xlogy)
TENSOR__X(BITWISE_AND, bitwise_and) TENSOR__X(BITWISE_OR, bitwise_or) TENSOR__X(BITWISE_XOR, bitwise_xor)
TENSOR__X(BITWISE_LEFT_SHIFT, bitwise_left_shift) TENSOR__X(BITWISE_RIGHT_SHIFT, bitwise_right_shift)
#undef TENSOR__X
#define TENSOR__X(name, op)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *a, double b) {                                            \
        TENSOR__MARK                                                                                         \
        if (!TENSOR__USABLE(#name, "a", a)) { return TENSOR__POISON; }                                       \
        int weak = tensor__weak(a->dtype, b);           /* an integer wraps to it, as add_scalar's */        \
        tensor_t *number = tensor_scalar(b, tensor__is_float(weak) ? (tensor_dtype_t)weak : TENSOR_I64);     \
        TENSOR__RETURN(op(tensor_to(number, weak), a));                                                      \
    }
TENSOR__X(rsub_scalar, (tensor_sub)) TENSOR__X(rpow_scalar, (tensor_pow))
#undef TENSOR__X
TENSOR_API tensor_t *(tensor_where)(tensor_t *condition, tensor_t *a, tensor_t *b) {
    TENSOR__REFUSE(tensor__live(condition) && condition->dtype != TENSOR_BOOL, DTYPE,
                   "where: condition %t must be bool, not %y", condition, condition);
    return tensor__ternary(TENSOR_OP_WHERE, condition, a, b, 0);
}
TENSOR__FRONT(lerp, (tensor_t *a, tensor_t *b, tensor_t *weight),
    tensor__ternary(TENSOR_OP_LERP, a, b, weight, 0))
TENSOR__FRONT(addcmul, (tensor_t *x, tensor_t *a, tensor_t *b, double value),
    tensor__ternary(TENSOR_OP_ADDCMUL, x, a, b, value))
TENSOR__FN int tensor__divides(tensor_t *a, tensor_t *b) {
    TENSOR__REFUSE_AS(0, tensor__live(a) && tensor__live(b) && !tensor__is_float(a->dtype) &&
                      !tensor__is_float(b->dtype), DTYPE,
                      "addcdiv: a %t is %y and b %t is %y; one must be a float", a, a, b, b);
    return 1;
}
TENSOR_API tensor_t *(tensor_addcdiv)(tensor_t *x, tensor_t *a, tensor_t *b, double value) {
    if (!tensor__divides(a, b)) { return TENSOR__POISON; }
    return tensor__ternary(TENSOR_OP_ADDCDIV, x, a, b, value);
}

#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name##_)(tensor_t *x, tensor_t *b) {                                      \
        tensor_t *const list[2] = {x, b};                                                                    \
        return tensor__update(TENSOR_OP_##ID, list, 2, 0, 0, NULL, 0);                                       \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_scalar_)(tensor_t *x, double b) {                                  \
        return tensor__update(TENSOR_OP_##ID, &x, 2, 1, b, NULL, 0);                                         \
    }
TENSOR__X(ADD, add) TENSOR__X(SUB, sub) TENSOR__X(MUL, mul) TENSOR__X(DIV, div) TENSOR__X(POW, pow)
TENSOR__X(REMAINDER, remainder) TENSOR__X(FMOD, fmod) TENSOR__X(FLOOR_DIVIDE, floor_divide)
TENSOR__X(BITWISE_AND, bitwise_and) TENSOR__X(BITWISE_OR, bitwise_or) TENSOR__X(BITWISE_XOR, bitwise_xor)
#undef TENSOR__X
#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name##_)(tensor_t *x) { return tensor__update(TENSOR_OP_##ID, &x, 1, 0,   \
            0, NULL, 0); }
TENSOR__X(ABS, abs) TENSOR__X(EXP, exp) TENSOR__X(NEG, neg) TENSOR__X(RELU, relu) TENSOR__X(SIGMOID, sigmoid)
TENSOR__X(SQRT, sqrt) TENSOR__X(TANH, tanh) TENSOR__X(CEIL, ceil) TENSOR__X(COS, cos) TENSOR__X(ERF, erf)
TENSOR__X(ERFINV, erfinv) TENSOR__X(EXP2, exp2) TENSOR__X(EXPM1, expm1) TENSOR__X(FLOOR, floor)
TENSOR__X(LOG, log) TENSOR__X(LOG10, log10) TENSOR__X(LOG1P, log1p) TENSOR__X(LOG2, log2)
TENSOR__X(RECIPROCAL, reciprocal) TENSOR__X(ROUND, round) TENSOR__X(RSQRT, rsqrt) TENSOR__X(SIGN, sign)
TENSOR__X(SIN, sin) TENSOR__X(SQUARE, square) TENSOR__X(TAN, tan) TENSOR__X(TRUNC, trunc)
#undef TENSOR__X
// With one or two numbers; those of three operands.
#define TENSOR__X(ID, name, params, f0, f1)                                                                  \
    TENSOR_API tensor_t *(tensor_##name) params {                                                            \
        double f[2] = {f0, f1};                                                                              \
        if (TENSOR_OP_##ID == TENSOR_OP_CLAMP && tensor__live(x)) {                                          \
            TENSOR__REFUSE(tensor__clamped(x->dtype, f0, f1) != x->dtype, DTYPE,                             \
                           #name ": a result of f32 cannot be stored in x %t %y", x, x);                     \
            if (!tensor__clampable(x->dtype, f0, f1)) { return TENSOR__POISON; }                             \
        }                                                                                                    \
        return tensor__update(TENSOR_OP_##ID, &x, 1, 0, 0, f, 0);                                            \
    }
TENSOR__X(CLAMP, clamp_, (tensor_t *x, double lo, double hi), lo, hi)
TENSOR__X(CLAMP, clamp_max_, (tensor_t *x, double hi), -(double)INFINITY, hi)
TENSOR__X(CLAMP, clamp_min_, (tensor_t *x, double lo), lo, (double)INFINITY)
TENSOR__X(ELU, elu_, (tensor_t *x, double alpha), alpha, 0)
TENSOR__X(HARDTANH, hardtanh_, (tensor_t *x, double lo, double hi), lo, hi)
TENSOR__X(LEAKY_RELU, leaky_relu_, (tensor_t *x, double slope), slope, 0)
#undef TENSOR__X
TENSOR__FN tensor_t *tensor__update3(int id, tensor_t *x, tensor_t *a, tensor_t *b, double value) {
    double f[2] = {value, 0};
    tensor_t *const list[3] = {x, a, b};
    return tensor__update(id, list, 3, 0, 0, f, 0);
}
TENSOR__FRONT(addcmul_, (tensor_t *x, tensor_t *a, tensor_t *b, double value),
    tensor__update3(TENSOR_OP_ADDCMUL, x, a, b, value))
TENSOR_API tensor_t *(tensor_addcdiv_)(tensor_t *x, tensor_t *a, tensor_t *b, double value) {
    if (!tensor__divides(a, b)) { return TENSOR__POISON; }
    return tensor__update3(TENSOR_OP_ADDCDIV, x, a, b, value);
}
TENSOR__FRONT(lerp_, (tensor_t *x, tensor_t *b, tensor_t *weight),
    tensor__update3(TENSOR_OP_LERP, x, b, weight, 0))
TENSOR_API tensor_t *(tensor_lerp_scalar_)(tensor_t *x, tensor_t *b, double weight) {
    TENSOR__MARK1(x)
    TENSOR__RETURN((tensor_lerp_)(x, b, tensor_scalar(weight, (tensor_dtype_t)x->dtype)));
}
TENSOR__MADE(nan_to_num_, (tensor_t *x, double nan, double posinf, double neginf),
    (tensor_copy_)(x, (tensor_nan_to_num)(x, nan, posinf, neginf)))
TENSOR_API tensor_t *(tensor_copy_)(tensor_t *x, tensor_t *src) {
    TENSOR__MARK2(x, src)
    if (src->device != x->device) { src = tensor__to_device(src, x->device, 1); }
    if (!tensor__is_float(x->dtype)) { src = tensor_detach(src); }
    tensor_t *const list[2] = {x, src};
    return tensor__tidy(th_, mark_, tensor__update(TENSOR_OP_CLONE, list, 2, 0, 0, NULL, 1));
}
TENSOR_API tensor_t *(tensor_fill_)(tensor_t *x, double value) {
    if (!TENSOR__USABLE("fill_", "x", x)) { return TENSOR__POISON; }
    TENSOR__BEGIN(o, TENSOR__ROW(FILL), x)
    if (!tensor__holds("fill", x->dtype, value)) { return TENSOR__POISON; }
    if (!tensor__update_allowed(o.th, "fill", x, tensor__tracks(&o))) { return TENSOR__POISON; }
    tensor__reals(&o, value, 0);
    o.update = 1;
    o.out[o.nout++] = x;
    return tensor__finish(&o);
}
TENSOR__FN void tensor__grad_fill(tensor__grad_t *g) { g->gx[0] = tensor_zeros_like(g->gy[0]); }
TENSOR_API tensor_t *(tensor_zero_)(tensor_t *x) { return (tensor_fill_)(x, 0); }
TENSOR__COLD
TENSOR_API tensor_t *(tensor_masked_fill)(tensor_t *x, tensor_t *mask, double value) {
    TENSOR__MARK
    TENSOR__BEGIN(o, TENSOR__ROW(WHERE), x)
    TENSOR__REFUSE(tensor__live(mask) && mask->dtype != TENSOR_BOOL, DTYPE,
                   "masked_fill: mask %t must be bool, not %y", mask, mask);
    if (!tensor__holds("masked_fill", x->dtype, value)) { return TENSOR__POISON; }
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim = x->ndim;
    memcpy(dims, x->dims, (size_t)ndim * sizeof *dims);
    TENSOR__REFUSE(tensor__live(mask) && !tensor__broadcast(dims, &ndim, mask->dims, mask->ndim), SHAPE,
                   "masked_fill: mask %t does not broadcast to x %t", mask, x);
    TENSOR__RETURN((tensor_where)(mask, tensor_scalar(value, (tensor_dtype_t)x->dtype), x));
}
TENSOR__MADE(masked_fill_, (tensor_t *x, tensor_t *mask, double value),
    (tensor_copy_)(x, (tensor_masked_fill)(x, mask, value)))

// Made of the rows above.
TENSOR__FRONT(clamp_max, (tensor_t *x, double hi), (tensor_clamp)(x, -(double)INFINITY, hi))
TENSOR__FRONT(clamp_min, (tensor_t *x, double lo), (tensor_clamp)(x, lo, (double)INFINITY))
TENSOR_API tensor_t *(tensor_clamp_tensor)(tensor_t *x, tensor_t *lo, tensor_t *hi) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(!lo && !hi, SHAPE, "clamp_tensor: lo and hi are both NULL");
    if (lo) { x = tensor_where(tensor_logical_or(tensor_lt(x, lo), tensor_isnan(lo)), lo, x); }
    if (hi) { x = tensor_where(tensor_logical_or(tensor_gt(x, hi), tensor_isnan(hi)), hi, x); }
    TENSOR__RETURN(x);
}
TENSOR__MADE(deg2rad, (tensor_t *x), (tensor_mul_scalar)(x, 0.017453292519943295))
TENSOR__MADE(rad2deg, (tensor_t *x), (tensor_mul_scalar)(x, 57.29577951308232))
TENSOR__MADE(sgn, (tensor_t *x), (tensor_sign)(x))
TENSOR__MADE(isneginf, (tensor_t *x), (tensor_eq_scalar)(x, -(double)INFINITY))
TENSOR__MADE(isposinf, (tensor_t *x), (tensor_eq_scalar)(x, (double)INFINITY))
TENSOR_API tensor_t *(tensor_positive)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("positive", "x", x)) { return TENSOR__POISON; }
    return x->dtype == TENSOR_BOOL ? tensor__fail(th, TENSOR_ERR_DTYPE, "positive: x %t is bool", x) : x;
}
TENSOR_API tensor_t *(tensor_frac)(tensor_t *x) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(!tensor__is_float(x->dtype), DTYPE, "frac: x %t is %y, must be a float", x, x);
    TENSOR__RETURN(tensor_sub(x, tensor_trunc(x)));
}
TENSOR_API tensor_t *(tensor_round_decimals)(tensor_t *x, int decimals) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(!tensor__is_float(x->dtype), DTYPE, "round_decimals: x %t is %y, must be a float", x, x);
    tensor_dtype_t dtype = x->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32;
    tensor_t *scale = tensor_scalar(pow(10, fabs((double)decimals)), dtype), *y = tensor_to(x, dtype);
    y = decimals < 0 ? tensor_mul(tensor_round(tensor_div(y, scale)), scale) :
        tensor_div(tensor_round(tensor_mul(y, scale)), scale);
    TENSOR__RETURN(tensor_to(y, x->dtype));
}
TENSOR_API tensor_t *(tensor_logit)(tensor_t *x, double eps) {
    TENSOR__MARK1(x)
    if (!tensor__is_float(x->dtype)) { x = tensor_to(x, TENSOR_F32); }
    if (eps >= 0) { x = tensor_clamp(x, eps, 1 - eps); }
    TENSOR__RETURN(tensor_sub(tensor_log(x), tensor_log1p(tensor_neg(x))));
}
TENSOR_API tensor_t *(tensor_nan_to_num)(tensor_t *x, double nan, double posinf, double neginf) {
    TENSOR__MARK1(x)
    if (!tensor__is_float(x->dtype)) { TENSOR__RETURN(tensor_clone(x)); }
    tensor_dtype_t dtype = (tensor_dtype_t)x->dtype;
    double top = dtype == TENSOR_F64 ? 1.7976931348623157e308 : dtype == TENSOR_F32 ? 3.4028234663852886e38 :
        dtype == TENSOR_F16 ? 65504 : 3.3895313892515355e38;
    tensor_t *y = tensor_where(tensor_isnan(x), tensor_scalar(nan, dtype), x);
    y = tensor_where(tensor_isposinf(x), tensor_scalar(tensor__isnan_f64(posinf) ? top : posinf, dtype), y);
    double least = tensor__isnan_f64(neginf) ? -top : neginf;
    TENSOR__RETURN(tensor_where(tensor_isneginf(x), tensor_scalar(least, dtype), y));
}
TENSOR_API tensor_t *(tensor_signbit)(tensor_t *x) {
    TENSOR__MARK1(x)
    if (tensor__is_float(x->dtype)) { x = tensor_copysign(tensor_scalar(1, (tensor_dtype_t)x->dtype), x); }
    TENSOR__RETURN(tensor_lt_scalar(x, 0));
}
// y, a constant where it is defined, as a function of x: its gradient is 0, and no NaN comes from where y
// jumps.
TENSOR__FN tensor_t *tensor__constant_of(tensor_t *y, tensor_t *x) {
    if (!tensor__live(y) || !tensor_grad_enabled() || !tensor__sync_needs_grad(tensor__self(), x)) {
        return y;
    }
    tensor_dtype_t dtype = (tensor_dtype_t)x->dtype;
    tensor_t *no = tensor_to(tensor_scalar(0, TENSOR_BOOL), (int)tensor_device(x));
    tensor_t *zero = tensor_sum(tensor_where(no, x, tensor_scalar(0, dtype)));
    return tensor_add(y, tensor_to(zero, y->dtype));
}
TENSOR_API tensor_t *(tensor_div_mode)(tensor_t *a, tensor_t *b, const char *rounding_mode) {
    TENSOR__MARK
    if (!rounding_mode) { return (tensor_div)(a, b); }
    if (!strcmp(rounding_mode, "floor")) { TENSOR__RETURN(tensor_floor_divide(a, b)); }
    TENSOR__REFUSE(strcmp(rounding_mode, "trunc") != 0, FORMAT,
                   "div_mode: rounding mode \"%s\" must be trunc or floor", rounding_mode);
    tensor_t *const in[2] = {a, b};
    if (tensor__live(a) && tensor__live(b) && !tensor__is_float(tensor__promote(in, 2))) {
        TENSOR__RETURN(tensor_floor_divide(tensor_sub(a, tensor_fmod(a, b)), b));
    }
    tensor_t *y = tensor_trunc(tensor_div(tensor_detach(a), tensor_detach(b)));
    TENSOR__RETURN(tensor__constant_of(tensor__constant_of(y, a), b));
}
TENSOR__MADE(float_power, (tensor_t *a, tensor_t *b),
    tensor_pow(tensor_to(a, TENSOR_F64), tensor_to(b, TENSOR_F64)))
TENSOR__MADE(float_power_scalar, (tensor_t *a, double b), tensor_pow_scalar(tensor_to(a, TENSOR_F64), b))
// Of equal zeros the first is taken: maximum(b, a).
TENSOR__MADE(fmax, (tensor_t *a, tensor_t *b),
    tensor_where(tensor_isnan(b), a, tensor_where(tensor_isnan(a), b, tensor_maximum(b, a))))
TENSOR__MADE(fmin, (tensor_t *a, tensor_t *b),
    tensor_where(tensor_isnan(b), a, tensor_where(tensor_isnan(a), b, tensor_minimum(b, a))))
TENSOR_API tensor_t *(tensor_heaviside)(tensor_t *x, tensor_t *values) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(tensor__live(values) && x->dtype != values->dtype, DTYPE,
                   "heaviside: x %t is %y and values %t is %y", x, x, values, values);
    tensor_t *step = tensor_to(tensor_gt_scalar(x, 0), x->dtype);
    TENSOR__RETURN(tensor_where(tensor_eq_scalar(x, 0), tensor_detach(values), step));
}
TENSOR_API tensor_t *(tensor_ldexp)(tensor_t *a, tensor_t *b) {
    TENSOR__MARK2(a, b)
    if (!tensor__is_float(a->dtype) || tensor__is_float(b->dtype)) {
        TENSOR__RETURN(tensor_mul(a, tensor_exp2(b)));
    }
    // 2^b in f32 even where the result is f16, which has no 2^20
    tensor_t *power = tensor_exp2(tensor_to(b, a->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32));
    TENSOR__RETURN(tensor_to(tensor_mul(a, power), a->dtype));
}
TENSOR_API tensor_t *(tensor_lerp_scalar)(tensor_t *a, tensor_t *b, double weight) {
    TENSOR__MARK1(a)
    TENSOR__RETURN(tensor_lerp(a, b, tensor_scalar(weight, (tensor_dtype_t)a->dtype)));
}
TENSOR_API tensor_t *(tensor_isclose)(tensor_t *a, tensor_t *b, double rtol, double atol, int equal_nan) {
    TENSOR__MARK2(a, b)
    TENSOR__REFUSE(a->dtype != b->dtype, DTYPE, "isclose: a %t is %y and b %t is %y", a, a, b, b);
    TENSOR__REFUSE(!(rtol >= 0 && atol >= 0), SHAPE, "isclose: rtol %g and atol %g must be >= 0", rtol, atol);
    tensor_t *y = tensor_eq(a, b), *d;
    if (equal_nan) { y = tensor_logical_or(y, tensor_logical_and(tensor_isnan(a), tensor_isnan(b))); }
    if (!tensor__is_float(a->dtype)) { a = tensor_to(a, TENSOR_F64); b = tensor_to(b, TENSOR_F64); }
    d = tensor_abs(tensor_sub(a, b));
    b = tensor_add_scalar(tensor_mul_scalar(tensor_abs(b), rtol), atol);
    TENSOR__RETURN(tensor_logical_or(y, tensor_logical_and(tensor_isfinite(d), tensor_le(d, b))));
}
// TRANSFER: contiguous bytes from one device to another. The call's device is the CPU whatever the direction,
// so this kernel runs; the backend of the other side copies.
TENSOR__FN int tensor__cpu_transfer(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0], *y = &c->arg[1];
    return tensor__move_bytes(c->thread, y->data, y->storage, x->data, x->storage,
                              (uint64_t)x->numel * tensor__sizes[x->dtype], !c->p->i[1], "to");
}
TENSOR__FN tensor_t *tensor__to_device(tensor_t *x, int device, int wait) {
    TENSOR__MARK
    tensor_t *dense = (tensor_contiguous)(x);
    TENSOR__BEGIN(o, TENSOR__ROW(TRANSFER), dense)
    tensor__ints(&o, x->device, !wait);
    o.device = (int16_t)(device || wait || !o.th->ctx->backend[1]->aside ? device : TENSOR__PINNED);
    tensor__result(&o, x->dtype, x->dims, x->ndim);
    o.device = 0;
    return tensor__tidy(th_, mark_, tensor__finish(&o));
}
TENSOR__FN void tensor__grad_transfer(tensor__grad_t *g) {
    g->gx[0] = tensor__to_device(g->gy[0], (int)g->p->i[0], 1);
}
TENSOR_API tensor_t *(tensor_to_non_blocking)(tensor_t *x, int to) {
    TENSOR__BEGIN(o, TENSOR__ROW(CLONE), x)
    int device = tensor__device_index(o.th, "to_non_blocking", to);
    if (device < 0 || device == x->device) { return device < 0 ? TENSOR__POISON : x; }
    return tensor__to_device(x, device, 0);
}
TENSOR_API tensor_t *(tensor_pin_memory)(tensor_t *x) {
    TENSOR__BEGIN(o, TENSOR__ROW(CLONE), x)
    const tensor_backend_t *b = o.th->ctx->backend[1];
    TENSOR__REFUSE(x->device || !b || !b->aside, DEVICE, "pin_memory: %s", x->device ? "x lies on a device" :
                   "the CUDA backend is not started");
    if (x->storage->deleter == b->release) { return x; }
    o.compute = x->dtype;
    o.device = TENSOR__PINNED;
    tensor__result(&o, x->dtype, x->dims, x->ndim);
    o.device = 0;
    return tensor__finish(&o);
}
// A copy in another dtype: the formula is the identity, conversion is the iterator's.
TENSOR_API tensor_t *(tensor_to)(tensor_t *x, int to) {
    TENSOR__BEGIN(o, TENSOR__ROW(CLONE), x)
    if (to >= TENSOR_CPU) {
        int device = tensor__device_index(o.th, "to", to);
        if (device < 0) { return TENSOR__POISON; }
        return device == x->device ? x : tensor__to_device(x, device, 1);
    }
    TENSOR__REFUSE((unsigned)to >= TENSOR_DTYPE_COUNT, DTYPE, "to: %i is no dtype and no device", to);
    if (to == x->dtype) { return x; }
    o.compute = x->dtype;
    tensor__follow(tensor__result(&o, to, x->dims, x->ndim), x);
    return tensor__finish(&o);
}
TENSOR__FRONT(contiguous, (tensor_t *x),
    tensor__live(x) && (x->flags & TENSOR__CONTIGUOUS) ? x : (tensor_clone)(x))

// The rows' text as differentiable tensor ops, for the derivative of a derivative.
TENSOR__FN tensor_t *tensor__grad_in(tensor__grad_t *g, int k);
TENSOR__FN tensor_t *tensor__grad_out(tensor__grad_t *g, int k);
// Halves are computed in f32 and rounded once, by the edge: as the fused kernel does.
TENSOR__FN tensor_t *tensor__wide(tensor_t *t) {
    return t->dtype == TENSOR_F16 || t->dtype == TENSOR_BF16 ? (tensor_to)(t, TENSOR_F32) : t;
}
#define F_A tensor__wide(tensor__grad_in(g, 0))
#define F_B tensor__wide(tensor__grad_in(g, 1))
#define F_C_ tensor__wide(tensor__grad_in(g, 2))
#define F_Y tensor__wide(tensor__grad_out(g, 0))
#define F_G tensor__wide(g->gy[0])
#define F_C(x) tensor_scalar((double)(x), g->gy[0]->dtype == TENSOR_F64 ? TENSOR_F64 : TENSOR_F32)
#define F_P(k) F_C(p[k])
#define F_INF F_C(INFINITY)
#define F_ADD(a, b) tensor_add(a, b)
#define F_SUB(a, b) tensor_sub(a, b)
#define F_MUL(a, b) tensor_mul(a, b)
#define F_DIV(a, b) tensor_div(a, b)
#define F_NEG(a) tensor_neg(a)
#define F_ABS(a) tensor_abs(a)
#define F_SIGN(a) tensor_sign(a)
#define F_SQRT(a) tensor_sqrt(a)
#define F_RSQRT(a) tensor_rsqrt(a)
#define F_FLOOR(a) tensor_floor(a)
#define F_TRUNC(a) tensor_trunc(a)
#define F_POW(a, b) tensor_pow(a, b)
#define F_EXP(a) tensor_exp(a)
#define F_EXPM1(a) tensor_expm1(a)
#define F_LOG(a) tensor_log(a)
#define F_LOG1P(a) tensor_log1p(a)
#define F_SIN(a) tensor_sin(a)
#define F_COS(a) tensor_cos(a)
#define F_SINH(a) tensor_sinh(a)
#define F_COSH(a) tensor_cosh(a)
#define F_TANH(a) tensor_tanh(a)
#define F_SIGMOID(a) tensor_sigmoid(a)
#define F_ERF(a) tensor_erf(a)
#define F_ERFC(a) tensor_erfc(a)
#define F_POLYGAMMA(n, x) (tensor_polygamma)((int)(n), x)
#define F_LT(a, b) tensor_lt(a, b)
#define F_LE(a, b) tensor_le(a, b)
#define F_GT(a, b) tensor_gt(a, b)
#define F_GE(a, b) tensor_ge(a, b)
#define F_EQ(a, b) tensor_eq(a, b)
#define F_NE(a, b) tensor_ne(a, b)
#define F_AND(a, b) tensor_logical_and(a, b)
#define F_OR(a, b) tensor_logical_or(a, b)
#define F_SEL(m, a, b) tensor_where(m, a, b)
typedef tensor_t *(*tensor__derivative_t)(tensor__grad_t *g, const double *p);
#define TENSOR__D(name, k, f)                                                                                \
    TENSOR__FN tensor_t *tensor__d##k##_##name(tensor__grad_t *g, const double *p) { (void)g, (void)p;       \
        return f; }
#define TENSOR__X(ID, name, kind, f, dA, ...) TENSOR__D(name, 0, dA)
TENSOR_OPS_UNARY(TENSOR__X)
TENSOR_OPS_COPY(TENSOR__X)
TENSOR_OPS_DOUBLE1(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, ...) TENSOR__D(name, 0, dA) TENSOR__D(name, 1, dB)
TENSOR_OPS_BINARY(TENSOR__X)
TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
#define TENSOR__X(ID, name, kind, f, dA, dB, dC, ...) TENSOR__D(name, 0, dA) TENSOR__D(name, 1,              \
        dB) TENSOR__D(name, 2, dC)
TENSOR_OPS_TERNARY(TENSOR__X)
#undef TENSOR__X
#undef TENSOR__D
// passes bit k: the derivative for operand k is the incoming gradient itself, nothing to compute.
typedef struct tensor__formulas_t { tensor__derivative_t d[3]; int passes; const char *text[3];
    } tensor__formulas_t;
#define TENSOR__IS_G(text) (sizeof(text) == 4 && text[0] == 'F' && text[2] == 'G')
#define TENSOR__ONE(ID, name, kind, f, dA, ...)                                                              \
    {{tensor__d0_##name, NULL, NULL}, TENSOR__IS_G(#dA), {#dA, "", ""}},
#define TENSOR__TWO(ID, name, kind, f, dA, dB, ...)                                                          \
    {{tensor__d0_##name, tensor__d1_##name, NULL}, TENSOR__IS_G(#dA) | TENSOR__IS_G(#dB) << 1,               \
        {#dA, #dB, ""}},
#define TENSOR__THREE(ID, name, kind, f, dA, dB, dC, ...)                                                    \
    {{tensor__d0_##name, tensor__d1_##name, tensor__d2_##name},                                              \
     TENSOR__IS_G(#dA) | TENSOR__IS_G(#dB) << 1 | TENSOR__IS_G(#dC) << 2, {#dA, #dB, #dC}},
#define TENSOR__NONE(...) {{NULL, NULL, NULL}, 0, {"", "", ""}},
static const tensor__formulas_t tensor__formulas[TENSOR_OP_POINTWISE_COUNT] = {
    TENSOR_OPS_UNARY(TENSOR__ONE) TENSOR_OPS_COPY(TENSOR__ONE) TENSOR_OPS_BINARY(TENSOR__TWO)
    TENSOR_OPS_TERNARY(TENSOR__THREE) TENSOR_OPS_COMPARE(TENSOR__NONE) TENSOR_OPS_BITWISE(TENSOR__NONE)
    TENSOR_OPS_DOUBLE1(TENSOR__ONE) TENSOR_OPS_DOUBLE2(TENSOR__TWO)
};
#undef TENSOR__ONE
#undef TENSOR__TWO
#undef TENSOR__THREE
#undef TENSOR__NONE
#define TENSOR__PASS 0
#define TENSOR__PASS_WORDS
#include TENSOR_SELF
TENSOR__END

TENSOR__FN void tensor__reads_fill(void) {
    for (int id = 0; id < TENSOR_OP_POINTWISE_COUNT; id++) {
        for (int k = 0; k < 3; k++) {
            const char *text = tensor__formulas[id].text[k];
            int mask = 0;
            for (; text && *text; text++) {
                if (text[0] != 'F' || text[1] != '_') { continue; }
                int word = (text[3] >= 'A' && text[3] <= 'Z') || text[3] == '(';       // F_ADD, F_C(1)
                if (text[2] == 'A' && !word) { mask |= TENSOR__SA; }
                if (text[2] == 'B' && !word) { mask |= TENSOR__SB; }
                if (text[2] == 'C' && text[3] == '_') { mask |= TENSOR__SC; }
                if (text[2] == 'Y' && !word) { mask |= TENSOR__SY; }
            }
            tensor__reads[id][k] = (uint16_t)mask;
        }
    }
}
TENSOR__FN int tensor__pointwise_saves(const tensor__op_t *o) {
    int mask = 0;
    for (int k = 0; k < o->nin && k < 3; k++) {
        if (o->in[k] && tensor__needs_grad(o->in[k])) { mask |= tensor__reads[o->row->id][k]; }
    }
    return mask;
}

TENSOR__FN int tensor__check_saved(tensor__grad_t *g, const tensor__saved_t *v);

// The plain door for backward: everything contiguous f32 of the shape of g. 0 = not plain.
TENSOR__FN int tensor__plain_backward(tensor__grad_t *g, int wanted, int passed) {
    tensor__node_t *n = g->node;
    tensor_t *gy = g->gy[0];
    const tensor__isa_t *isa = g->th->ctx->plain;
    if (!isa || !isa->backward[n->row->id] || !TENSOR__HOST_F32(gy) || n->out[0].dtype != TENSOR_F32 ||
        !(gy->flags & TENSOR__CONTIGUOUS) ||
        (gy->numel & (isa->lanes - 1)) || gy->numel > TENSOR__GRAIN || gy->numel == 0) {
        return 0;
    }
    const void *in[5];
    void *out[3];
    int slot = -1;
    float value = 0;
    in[0] = in[1] = in[2] = in[3] = NULL;
    for (int i = 0; i < n->nsaved; i++) {
        const tensor__saved_t *v = &n->saved[i];
        if (v->is_immediate) {
            slot = v->source;
            value = (float)v->immediate;
            continue;
        }
        if (!v->storage || v->dtype != TENSOR_F32 || !v->contiguous || v->numel != gy->numel) { return 0; }
        if (v->storage->version != v->version && !tensor__check_saved(g, v)) { return 1; }
        in[v->source < 0 ? 3 : v->source] = (const float *)v->storage->data + v->offset;
    }
    in[4] = (const float *)gy->storage->data + gy->offset;
    // The last result takes the place of a gradient nobody else holds: each element is read before.
    int mine = !passed && gy->refs == 1 && gy->storage->refs == 1;
    out[0] = out[1] = out[2] = NULL;
    for (int k = 0, left = wanted; left; k++, left >>= 1) {
        if (!(left & 1)) { continue; }
        tensor_t *t = mine && left == 1 ? gy : tensor__like(g->th, n->row->name, gy);
        if (!t) { return 0; }
        g->gx[k] = t;
        out[k] = (float *)t->storage->data + t->offset;
    }
    const double *p = n->p ? n->p->f : NULL;
    if (slot >= 0) {
        tensor__plain_uniform(isa->backward[n->row->id], in, 5, out, 3, p, gy->numel, slot, value);
    } else {
        isa->backward[n->row->id](in, out, p, gy->numel);
    }
    return 1;
}

// Gradient of every pointwise row: one fused kernel of the derivative columns, or the same text on tensors.
TENSOR__FN void tensor__grad_pointwise(tensor__grad_t *g) {
    tensor__node_t *n = g->node;
    tensor__thread_t *th = g->th;
    const tensor__formulas_t *d = &tensor__formulas[n->row->id];
    tensor_t *gy = g->gy[0];
    int count = n->nin < 3 ? n->nin : 3, wanted = 0, passed = 0, last = 0;
    for (int k = 0; k < count; k++) {
        if (!tensor__needs(g, k)) { continue; }
        if (!d->d[k]) {
            g->gx[k] = tensor_zeros_like(gy);           // what copy_ overwrote
        } else if (d->passes >> k & 1) {
            g->gx[k] = gy;
            passed = 1;
        } else if (g->create) {
            tensor_t *t = d->d[k](g, g->p ? g->p->f : NULL);
            if (t == TENSOR__POISON) { return; }
            g->gx[k] = t->ndim == gy->ndim ? t : tensor_expand_n(t, gy->dims, gy->ndim);
        } else {
            wanted |= 1 << k;
        }
    }
    if (!wanted || (!g->create && tensor__plain_backward(g, wanted, passed))) { return; }
    tensor_arg_t arg[8];
    tensor_call_t c;
    for (int i = 0; i < 8; i++) {
        arg[i].data = NULL;
        arg[i].role = TENSOR_READ;
    }
    for (int i = 0; i < n->nsaved; i++) {
        tensor__saved_t *v = &n->saved[i];
        int at = v->source < 0 ? 3 : v->source;
        tensor_arg_t *a = &arg[at];
        if (v->is_immediate) {
            tensor__arg_none(a);
            a->data = &v->immediate;
            a->dtype = TENSOR_F64;
            a->numel = 1;
            continue;
        }
        if (!v->storage) { continue; }
        if (!tensor__check_saved(g, v)) { return; }
        a->data = (char *)v->storage->data + v->offset * (int64_t)tensor__sizes[v->dtype];
        a->dims = v->dims;
        a->strides = v->strides;
        a->numel = v->numel;
        a->storage = v->storage;
        a->dtype = v->dtype;
        a->ndim = v->ndim;
        a->contiguous = v->contiguous;
    }
    tensor__arg(&arg[4], gy, TENSOR_READ);
    for (int i = 0; i < 5 && gy->device && !last; i++) {    // one row-major gradient does not spread
        last = arg[i].data && arg[i].ndim == gy->ndim && tensor__last_arg(&arg[i]);
    }
    for (int k = 0; k < count; k++) {
        if (!(wanted >> k & 1)) { continue; }
        tensor_t *t = tensor__make(th, n->row->name, n->out[0].dtype, gy->dims, gy->ndim, gy->device);
        if (t == TENSOR__POISON) { return; }
        if (last) { tensor__make_last(t); }
        tensor__arg(&arg[5 + k], t, TENSOR_WRITE);
        g->gx[k] = t;
    }
    c.row = tensor__backward_row(n->row->id);
    c.arg = arg;
    c.nin = 5;
    c.nout = count;
    c.p = n->p;
    c.thread = th;
    c.compute = n->out[0].dtype;
    c.device = gy->device;
    tensor__launch(&c);
}

// ------------------------------------------------------------------------------
// >>impl-reduce                                    MARK: reductions, rows
//
// REDUCE keeps the dims outside mask i[0] and runs over the rest: whole rows in leaves of 1024 under a
// double, leading dims by adding rows into a block, anything else through the iterator's blocks. ROWS works
// on contiguous rows of the last dim; its fronts move the dim there. Rejected: sums in the order of a plain
// loop (the error grows with n, threads would change it), a kernel for each set of dims.
// ------------------------------------------------------------------------------

enum { TENSOR__LEAF = 1024, TENSOR__CHUNK = 65536 };

typedef struct tensor__acc_t { double d; int64_t i; } tensor__acc_t;
typedef struct tensor__reduce_t {
    int id, klass, dtype, size, nk, nr, reference;
    int64_t kd[TENSOR_MAX_DIMS], ks[TENSOR_MAX_DIMS], rd[TENSOR_MAX_DIMS], rs[TENSOR_MAX_DIMS];
    int64_t kept, reduced, chunk, chunks;
    const char *x;
    tensor_arg_t *y;
    const tensor__isa_t *isa;
    tensor__acc_t *part;
} tensor__reduce_t;

TENSOR__INLINE void tensor__acc_init(const tensor__reduce_t *r, tensor__acc_t *a) {
    switch (r->id) {
    case TENSOR_OP_PROD: a->d = 1; a->i = 1; break;
    case TENSOR_OP_AMAX: a->d = -(double)INFINITY; a->i = INT64_MIN; break;
    case TENSOR_OP_AMIN: a->d = (double)INFINITY; a->i = INT64_MAX; break;
    case TENSOR_OP_ALL: a->d = 1; a->i = 1; break;
    default: a->d = 0; a->i = 0; break;
    }
}
TENSOR__INLINE void tensor__acc_join(const tensor__reduce_t *r, tensor__acc_t *a, const tensor__acc_t *b) {
    switch (r->id) {
    case TENSOR_OP_PROD: a->d *= b->d; a->i = (int64_t)((uint64_t)a->i * (uint64_t)b->i); break;
    case TENSOR_OP_AMAX: a->d = tensor__max_f64(a->d, b->d); a->i = b->i > a->i ? b->i : a->i; break;
    case TENSOR_OP_AMIN: a->d = tensor__min_f64(a->d, b->d); a->i = b->i < a->i ? b->i : a->i; break;
    case TENSOR_OP_ANY: a->i |= b->i; break;
    case TENSOR_OP_ALL: a->i &= b->i; break;
    default: a->d += b->d; a->i = (int64_t)((uint64_t)a->i + (uint64_t)b->i); break;
    }
}
// A leaf in the compute type into the accumulator.
TENSOR__FN void tensor__acc_leaf(const tensor__reduce_t *r, tensor__acc_t *a, const void *block, int64_t n) {
    tensor__acc_t v;
    tensor__acc_init(r, &v);
#define TENSOR__EACH(type, expr) \
    for (int64_t k = 0; k < n; k++) { const type b = ((const type *)block)[k]; expr; } break
#define TENSOR__EITHER(type)                                                                                 \
    case TENSOR_OP_ANY: TENSOR__EACH(type, v.i |= b != 0);                                                   \
    case TENSOR_OP_ALL: TENSOR__EACH(type, v.i &= b != 0);
    if (r->klass == TENSOR__C_I64) {
        switch (r->id) {
        case TENSOR_OP_PROD: TENSOR__EACH(int64_t, v.i = (int64_t)((uint64_t)v.i * (uint64_t)b));
        case TENSOR_OP_AMAX: TENSOR__EACH(int64_t, v.i = b > v.i ? b : v.i);
        case TENSOR_OP_AMIN: TENSOR__EACH(int64_t, v.i = b < v.i ? b : v.i);
        TENSOR__EITHER(int64_t)
        default: TENSOR__EACH(int64_t, v.i = (int64_t)((uint64_t)v.i + (uint64_t)b));
        }
    } else if (r->klass == TENSOR__C_F64) {
        switch (r->id) {
        case TENSOR_OP_PROD: TENSOR__EACH(double, v.d *= b);
        case TENSOR_OP_AMAX: TENSOR__EACH(double, v.d = tensor__max_f64(v.d, b));
        case TENSOR_OP_AMIN: TENSOR__EACH(double, v.d = tensor__min_f64(v.d, b));
        TENSOR__EITHER(double)
        default: TENSOR__EACH(double, v.d += b);
        }
    } else {
        const float *x = (const float *)block;
        switch (r->id) {
        case TENSOR_OP_PROD: TENSOR__EACH(float, v.d *= (double)b);
        case TENSOR_OP_AMAX: v.d = (double)r->isa->leaf_max(x, n); break;
        case TENSOR_OP_AMIN: v.d = (double)r->isa->leaf_min(x, n); break;
        TENSOR__EITHER(float)
        default: v.d = (double)r->isa->leaf_sum(x, n); break;
        }
    }
#undef TENSOR__EACH
#undef TENSOR__EITHER
    tensor__acc_join(r, a, &v);
}
TENSOR__FN void tensor__acc_store(const tensor__reduce_t *r, int64_t k, const tensor__acc_t *a) {
    void *to = (char *)r->y->data + k * tensor__sizes[r->y->dtype];
    if (r->id == TENSOR_OP_MEAN) {
        double v = a->d / (double)r->reduced;
        tensor__store_f64(to, r->y->dtype, 1, &v, 1);
    } else if (r->klass == TENSOR__C_I64 || r->id == TENSOR_OP_ANY || r->id == TENSOR_OP_ALL) {
        tensor__store_i64(to, r->y->dtype, 1, &a->i, 1);
    } else {
        tensor__store_f64(to, r->y->dtype, 1, &a->d, 1);
    }
}
TENSOR__INLINE int64_t tensor__offset_of(int64_t index, const int64_t *dims, const int64_t *strides, int n) {
    int64_t offset = 0;
    for (int d = n - 1; d >= 0; d--) {
        offset += index % dims[d] * strides[d];
        index /= dims[d];
    }
    return offset;
}
// Elements first..end of the reduced index space below kept index k.
TENSOR__FN void tensor__reduce_range(const tensor__reduce_t *r, int64_t k, int64_t first, int64_t end,
                                     tensor__acc_t *a) {
    const char *base = r->x + tensor__offset_of(k, r->kd, r->ks, r->nk) * r->size;
    int last = r->nr - 1, direct = r->klass != TENSOR__C_I64 && tensor__class_size[r->klass] == r->size;
    int64_t block[TENSOR__LEAF];
    while (first < end) {
        int64_t run = r->rd[last] - first % r->rd[last], m = tensor__least(end - first, TENSOR__LEAF);
        const char *at = base + tensor__offset_of(first, r->rd, r->rs, r->nr) * r->size;
        if (run > m) { run = m; }
        if (direct && r->rs[last] == 1 && run == m) {
            tensor__acc_leaf(r, a, at, m);
        } else {
            for (int64_t got = 0; got < m; ) {
                run = r->rd[last] - (first + got) % r->rd[last];
                if (run > m - got) { run = m - got; }
                at = base + tensor__offset_of(first + got, r->rd, r->rs, r->nr) * r->size;
                tensor__load_run((char *)block + got * tensor__class_size[r->klass], r->klass, at, r->dtype,
                                 r->rs[last], run);
                got += run;
            }
            tensor__acc_leaf(r, a, block, m);
        }
        first += m;
    }
}
TENSOR__FN void tensor__reduce_rows(void *arg, int64_t task, int worker) {
    tensor__reduce_t *r = (tensor__reduce_t *)arg;
    (void)worker;
    int64_t per = (r->kept + r->chunks - 1) / r->chunks, end = tensor__least((task + 1) * per, r->kept);
    for (int64_t k = task * per; k < end; k++) {
        tensor__acc_t a;
        tensor__acc_init(r, &a);
        tensor__reduce_range(r, k, 0, r->reduced, &a);
        tensor__acc_store(r, k, &a);
    }
}
TENSOR__FN void tensor__reduce_chunk(void *arg, int64_t task, int worker) {
    tensor__reduce_t *r = (tensor__reduce_t *)arg;
    (void)worker;
    int64_t k = task / r->chunks, c = task % r->chunks;
    tensor__acc_init(r, &r->part[task]);
    tensor__reduce_range(r, k, c * r->chunk, tensor__least((c + 1) * r->chunk, r->reduced), &r->part[task]);
}
// Sum or mean over leading dims of f32: rows of the kept dim are added in leaves of 64, leaves in double.
TENSOR__FN void tensor__reduce_columns(void *arg, int64_t task, int worker) {
    tensor__reduce_t *r = (tensor__reduce_t *)arg;
    (void)worker;
    int64_t first = task * TENSOR__BLOCK, n = tensor__least(r->kept - first, TENSOR__BLOCK);
    float leaf[TENSOR__BLOCK];
    double sum[TENSOR__BLOCK];
    for (int64_t k = 0; k < n; k++) { sum[k] = 0; }
    for (int64_t i = 0; i < r->reduced; i += 64) {
        int64_t end = tensor__least(i + 64, r->reduced);
        memset(leaf, 0, (size_t)n * sizeof *leaf);
        for (int64_t j = i; j < end; j++) {
            r->isa->add_row(leaf, (const float *)(const void *)r->x + first + tensor__offset_of(j, r->rd,
                    r->rs, r->nr), n);
        }
        for (int64_t k = 0; k < n; k++) { sum[k] += (double)leaf[k]; }
    }
    double scale = r->id == TENSOR_OP_MEAN ? 1.0 / (double)r->reduced : 1.0;
    for (int64_t k = 0; k < n; k++) { ((float *)r->y->data)[first + k] = (float)(sum[k] * scale); }
}
TENSOR__FN void tensor__merge_dim(int64_t *dims, int64_t *strides, int *n, int64_t dim, int64_t stride) {
    if (dim == 1) { return; }
    if (*n && strides[*n - 1] == stride * dim) {
        dims[*n - 1] *= dim;
        strides[*n - 1] = stride;
        return;
    }
    dims[*n] = dim;
    strides[(*n)++] = stride;
}
TENSOR__FN int tensor__cpu_reduce(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0];
    tensor__reduce_t r;
    memset(&r, 0, sizeof r);
    r.id = c->row->id;
    r.y = &c->arg[1];
    r.x = (const char *)x->data;
    r.dtype = x->dtype;
    r.size = tensor__sizes[x->dtype];
    r.isa = TENSOR__ISA(c->thread);
    r.klass = tensor__class(x->dtype);
    if (c->thread->ctx->reference && r.klass == TENSOR__C_F32) { r.klass = TENSOR__C_F64; }
    r.kept = r.reduced = 1;
    for (int d = 0; d < x->ndim; d++) {
        if (c->p->i[0] >> d & 1) {
            tensor__merge_dim(r.rd, r.rs, &r.nr, x->dims[d], x->strides[d]);
            r.reduced *= x->dims[d];
        } else {
            tensor__merge_dim(r.kd, r.ks, &r.nk, x->dims[d], x->strides[d]);
            r.kept *= x->dims[d];
        }
    }
    if (r.kept == 0) { return 0; }
    if (!r.nr) { r.rd[0] = r.reduced; r.rs[0] = 1; r.nr = 1; }
    int sums = r.id == TENSOR_OP_SUM || r.id == TENSOR_OP_MEAN;
    if (sums && r.klass == TENSOR__C_F32 && x->dtype == TENSOR_F32 && r.y->dtype == TENSOR_F32 && r.nk == 1 &&
        r.ks[0] == 1 && r.kept >= 8 && r.rs[r.nr - 1] != 1) {
        int64_t tasks = (r.kept + TENSOR__BLOCK - 1) / TENSOR__BLOCK;
        if (r.kept * r.reduced < 2 * TENSOR__GRAIN) {
            for (int64_t t = 0; t < tasks; t++) { tensor__reduce_columns(&r, t, 0); }
        } else {
            tensor__parallel(tasks, tensor__reduce_columns, &r);
        }
        return 0;
    }
    if (r.kept >= 32 || r.reduced <= TENSOR__CHUNK) {
        r.chunks = r.kept * r.reduced < 2 * TENSOR__GRAIN ? 1 : r.kept < 64 ? r.kept : 64;
        tensor__parallel(r.chunks, tensor__reduce_rows, &r);
        return 0;
    }
    // Few outputs over much data: chunks of a length that depends on the shape alone, combined in order.
    tensor__acc_t part[32 * 64];
    r.part = part;
    r.chunk = (r.reduced + 63) / 64;
    if (r.chunk < TENSOR__CHUNK) { r.chunk = TENSOR__CHUNK; }
    r.chunks = (r.reduced + r.chunk - 1) / r.chunk;
    tensor__parallel(r.kept * r.chunks, tensor__reduce_chunk, &r);
    for (int64_t k = 0; k < r.kept; k++) {
        tensor__acc_t a = part[k * r.chunks];
        for (int64_t i = 1; i < r.chunks; i++) { tensor__acc_join(&r, &a, &part[k * r.chunks + i]); }
        tensor__acc_store(&r, k, &a);
    }
    return 0;
}

// Front of all REDUCE rows: mask of dims to reduce.
TENSOR__FN tensor_t *tensor__reduce(int id, tensor_t *x, uint32_t mask, int keepdim) {
    TENSOR__BEGIN(o, tensor__row(id), x)
    int64_t dims[TENSOR_MAX_DIMS], reduced = 1;
    int ndim = 0, dtype = x->dtype;
    for (int d = 0; d < x->ndim; d++) {
        if (mask >> d & 1) {
            reduced *= x->dims[d];
            if (keepdim) { dims[ndim++] = 1; }
        } else {
            dims[ndim++] = x->dims[d];
        }
    }
    int empty = reduced == 0;
    if ((id == TENSOR_OP_AMAX || id == TENSOR_OP_AMIN) && empty) {
        int64_t left = 1;
        for (int i = 0; i < ndim; i++) { left *= dims[i]; }
        TENSOR__REFUSE(left, SHAPE, "%s: x %t has no element to choose from", o.row->name, x);
    }
    TENSOR__REFUSE(id == TENSOR_OP_MEAN && !tensor__is_float(dtype), DTYPE,
                   "mean: x %t is %y; a mean needs a float dtype", x, x);
    if ((id == TENSOR_OP_SUM || id == TENSOR_OP_PROD) && !tensor__is_float(dtype)) { dtype = TENSOR_I64; }
    if (id == TENSOR_OP_ANY || id == TENSOR_OP_ALL) { dtype = TENSOR_BOOL; }
    tensor__ints(&o, mask, keepdim);
    tensor__result(&o, dtype, dims, ndim);
    return tensor__finish(&o);
}
// Dims as a mask, none given = all. 0 = failed, raised.
TENSOR__FN int tensor__mask(const char *name, tensor_t *x, const int64_t *dims, int n, uint32_t *mask) {
    *mask = n ? 0 : (1u << TENSOR_MAX_DIMS) - 1;
    return tensor__dim_mask(name, x, dims, n, mask);
}
TENSOR__FN tensor_t *tensor__reduce_dims(int id, tensor_t *x, const int64_t *dims, int n, int keepdim) {
    uint32_t mask;
    if (!tensor__mask(tensor__row(id)->name, x, dims, n, &mask)) { return TENSOR__POISON; }
    return tensor__reduce(id, x, x->ndim ? mask : 0, keepdim);
}
#define TENSOR__X(ID, all, name)                                                                             \
    TENSOR_API tensor_t *(tensor_##all)(tensor_t *x) {                                                       \
        return tensor__reduce(TENSOR_OP_##ID, x, (1u << TENSOR_MAX_DIMS) - 1, 0);                            \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_dim)(tensor_t *x, int64_t dim, int keepdim) {                      \
        return tensor__reduce_dims(TENSOR_OP_##ID, x, &dim, 1, keepdim);                                     \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_dims)(tensor_t *x, const int64_t *dims, int n, int keepdim) {      \
        return tensor__reduce_dims(TENSOR_OP_##ID, x, dims, n, keepdim);                                     \
    }
TENSOR__X(SUM, sum, sum) TENSOR__X(MEAN, mean, mean) TENSOR__X(PROD, prod, prod) TENSOR__X(AMAX, max, amax)
TENSOR__X(AMIN, min, amin) TENSOR__X(ANY, any, any) TENSOR__X(ALL, all, all)
#undef TENSOR__X

// g summed to a smaller shape that broadcasts to it.
TENSOR__FN tensor_t *tensor__sum_to(tensor_t *g, const int64_t *dims, int ndim) {
    uint32_t mask = 0;
    int lead = g->ndim - ndim;
    for (int d = 0; d < g->ndim; d++) {
        if (d < lead || (dims[d - lead] == 1 && g->dims[d] != 1)) { mask |= 1u << d; }
    }
    if (!mask) { return g; }
    tensor_t *s = tensor__reduce(TENSOR_OP_SUM, g, mask, 1);
    if (s == TENSOR__POISON || !lead) { return s; }
    return (tensor_reshape_n)(s, dims, ndim);
}

// The shape a reduction had with keepdim, and a tensor of the reduced shape brought back to it.
TENSOR__FN tensor_t *tensor__kept(const tensor__grad_t *g, tensor_t *t) {
    const tensor__meta_t *x = &g->node->in[0];
    int64_t dims[TENSOR_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) { dims[d] = g->p->i[0] >> d & 1 ? 1 : x->dims[d]; }
    return (tensor_reshape_n)(t, dims, x->ndim);
}
TENSOR__FN void tensor__grad_sum(tensor__grad_t *g) {
    g->gx[0] = tensor_expand_n(tensor__kept(g, g->gy[0]), g->node->in[0].dims, g->node->in[0].ndim);
}
TENSOR__FN void tensor__grad_mean(tensor__grad_t *g) {
    int64_t n = 1;
    for (int d = 0; d < g->node->in[0].ndim; d++) { n *= g->p->i[0] >> d & 1 ? g->node->in[0].dims[d] : 1; }
    tensor_t *s = tensor_div_scalar(tensor__kept(g, g->gy[0]), (double)n);
    g->gx[0] = tensor_expand_n(s, g->node->in[0].dims, g->node->in[0].ndim);
}
TENSOR__FN void tensor__grad_amax(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *y = tensor__kept(g, tensor__grad_out(g, 0));
    // NaN is a maximum too: its places are those that are NaN.
    tensor_t *hit = tensor_logical_or(tensor_eq(x, y), tensor_logical_and(tensor_isnan(x), tensor_isnan(y)));
    hit = tensor_to(hit, g->gy[0]->dtype);
    if (hit == TENSOR__POISON) { return; }
    tensor_t *count = tensor__reduce(TENSOR_OP_SUM, hit, (uint32_t)g->p->i[0], 1);
    g->gx[0] = tensor_mul(hit, tensor_div(tensor__kept(g, g->gy[0]), count));
}
TENSOR__FN tensor_t *tensor__rows_op(int id, tensor_t *x, int64_t dim, int drop, int keepdim, int dtype,
                                     int64_t i0);
// The product of the others of a row, for each element of x [rows, n].
TENSOR__FN tensor_t *tensor__prod_others(tensor_t *x, int create) {
    if (!create || x == TENSOR__POISON) { return tensor__rows_op(TENSOR_OP_PROD_OTHERS, x, -1, 0, 0, -1, 0); }
    // A table with x_j, or 1 on the diagonal: n^2 memory, but differentiable again.
    int64_t n = x->dims[1], square[3] = {x->dims[0], n, n};
    tensor_t *rows = tensor_expand_n(tensor_unsqueeze(x, 1), square, 3);
    tensor_t *own = tensor_to(tensor_to(tensor_eye(n, n), TENSOR_BOOL), (int)tensor_device(x));
    return tensor_prod_dim(tensor_masked_fill(rows, own, 1), 2, 0);
}
// Exact with zeros: the derivative for an element is the product of the others, from running products of both
// sides.
TENSOR__FN void tensor__grad_prod(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0);
    if (!tensor__live(x)) { return; }
    int64_t dims[TENSOR_MAX_DIMS], back[TENSOR_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < x->ndim; d++) { if (!(g->p->i[0] >> d & 1)) { dims[n++] = d; } }
    for (int d = 0; d < x->ndim; d++) { if (g->p->i[0] >> d & 1) { dims[n++] = d; } }
    for (int d = 0; d < x->ndim; d++) { back[dims[d]] = d; }
    tensor_t *p = tensor_permute_n(x, dims, x->ndim);
    if (p == TENSOR__POISON) { return; }
    tensor_shape_t shape = tensor_shape(p);
    int64_t reduced = 1;
    for (int d = 0; d < x->ndim; d++) { reduced *= g->p->i[0] >> d & 1 ? x->dims[d] : 1; }
    if (x->numel == 0) { g->gx[0] = x; return; }
    int64_t flat[2] = {x->numel / reduced, reduced};
    p = tensor_reshape_n(p, flat, 2);
    tensor_t *others = tensor__prod_others(p, g->create);
    others = tensor_permute_n(tensor_reshape_n(others, shape.dims, shape.ndim), back, x->ndim);
    g->gx[0] = tensor_mul(others, tensor__kept(g, g->gy[0]));
}

// ---- rows of the last dim ----

typedef struct tensor__rowcall_t {
    tensor_call_t *c;
    int64_t rows, n, per;
    const tensor__isa_t *isa;
    int klass, fast;
} tensor__rowcall_t;

// One row in double: the reference, and all dtypes but f32.
TENSOR__FN void tensor__row_f64(const tensor__rowcall_t *r, const double *x, const double *x2, double *y,
                                int64_t n) {
    const tensor_params_t *p = r->c->p;
    double m = -(double)INFINITY, s = 0;
    switch (r->c->row->id) {
    case TENSOR_OP_SOFTMAX: case TENSOR_OP_LOG_SOFTMAX: case TENSOR_OP_LOGSUMEXP: {
        for (int64_t i = 0; i < n; i++) { m = tensor__max_f64(m, x[i]); }
        int flat = r->c->row->id == TENSOR_OP_LOGSUMEXP && (m == (double)INFINITY || m == -(double)INFINITY);
        for (int64_t i = 0; i < n; i++) { s += exp(x[i] - m); }
        if (r->c->row->id == TENSOR_OP_LOGSUMEXP) { y[0] = flat ? m : m + log(s); break; }
        for (int64_t i = 0; i < n; i++) {
            y[i] = r->c->row->id == TENSOR_OP_SOFTMAX ? exp(x[i] - m) / s : x[i] - m - log(s);
        }
        break;
    }
    case TENSOR_OP_SOFTMAX_BACKWARD:
        for (int64_t i = 0; i < n; i++) { s += x[i] * x2[i]; }
        for (int64_t i = 0; i < n; i++) { y[i] = x2[i] * (x[i] - s); }
        break;
    case TENSOR_OP_LOG_SOFTMAX_BACKWARD:
        for (int64_t i = 0; i < n; i++) { s += x[i]; }
        for (int64_t i = 0; i < n; i++) { y[i] = x[i] - exp(x2[i]) * s; }
        break;
    case TENSOR_OP_CUMSUM:
        for (int64_t i = 0; i < n; i++) { int64_t k = p->i[0] ? n - 1 - i : i; y[k] = s += x[k]; }
        break;
    case TENSOR_OP_CUMPROD:
        s = 1;
        for (int64_t i = 0; i < n; i++) { y[i] = s *= x[i]; }
        break;
    case TENSOR_OP_LINEAR_SCAN:
        for (int64_t i = 0; i < n; i++) {
            int64_t k = p->i[0] ? n - 1 - i : i;
            y[k] = s = i ? x[k] + x2[k] * s : x[k];
        }
        break;
    case TENSOR_OP_LOGCUMSUMEXP:        // m is the sum so far; equal infinities have no difference
        for (int64_t i = 0; i < n; i++) {
            double hi = x[i] > m ? x[i] : m, lo = x[i] > m ? m : x[i];
            y[i] = m = hi == lo && hi - lo != 0 ? hi : hi + log1p(exp(lo - hi));
        }
        break;
    case TENSOR_OP_PROD_OTHERS:         // from both sides; exact with zeros, no division
        s = 1;
        for (int64_t i = 0; i < n; i++) { y[i] = s; s *= x[i]; }
        s = 1;
        for (int64_t i = n - 1; i >= 0; i--) { y[i] *= s; s *= x[i]; }
        break;
    case TENSOR_OP_VAR:
        for (int64_t i = 0; i < n; i++) { s += x[i]; }
        m = s / (double)n;
        s = 0;
        for (int64_t i = 0; i < n; i++) { s += (x[i] - m) * (x[i] - m); }
        y[0] = s / (n > p->i[0] ? (double)n - (double)p->i[0] : 0);
        break;
    case TENSOR_OP_NORM:
        m = 0;
        for (int64_t i = 0; i < n; i++) { m = tensor__max_f64(m, fabs(x[i])); }
        if (m == 0 || tensor__isnan_f64(m) || m == (double)INFINITY) { y[0] = m; break; }
        for (int64_t i = 0; i < n; i++) { s += (x[i] / m) * (x[i] / m); }
        y[0] = m * sqrt(s);
        break;
    case TENSOR_OP_ARGMAX: case TENSOR_OP_ARGMIN: {
        int64_t k = 0;
        double sign = r->c->row->id == TENSOR_OP_ARGMAX ? 1 : -1;
        for (int64_t i = 0; i < n; i++) {
            if (tensor__isnan_f64(x[i])) { k = i; break; }
            if (i == 0 || x[i] * sign > x[k] * sign) { k = i; }
        }
        y[0] = (double)k;
        break;
    }
    default: break;
    }
}
// Integers: only cumsum, cumprod and argmax come here.
TENSOR__FN void tensor__row_i64(const tensor__rowcall_t *r, const int64_t *x, int64_t *y, int64_t n) {
    if (r->c->row->id == TENSOR_OP_CUMSUM) {
        uint64_t s = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t k = r->c->p->i[0] ? n - 1 - i : i;
            s += (uint64_t)x[k];
            y[k] = (int64_t)s;
        }
        return;
    }
    if (r->c->row->id == TENSOR_OP_CUMPROD) {
        uint64_t s = 1;
        for (int64_t i = 0; i < n; i++) { y[i] = (int64_t)(s *= (uint64_t)x[i]); }
        return;
    }
    int64_t k = 0;
    for (int64_t i = 1; i < n; i++) {
        if (r->c->row->id == TENSOR_OP_ARGMAX ? x[i] > x[k] : x[i] < x[k]) { k = i; }
    }
    y[0] = k;
}
TENSOR__FN void tensor__row_task(void *arg, int64_t task, int worker) {
    tensor__rowcall_t *r = (tensor__rowcall_t *)arg;
    tensor_call_t *c = r->c;
    const tensor_arg_t *x = &c->arg[0], *x2 = c->nin > 1 ? &c->arg[1] : NULL;
    tensor_arg_t *y = &c->arg[c->nin];
    int64_t n = r->n, m = r->rows ? y->numel / r->rows : 0, end = tensor__least((task + 1) * r->per, r->rows);
    int xs = tensor__sizes[x->dtype], ys = tensor__sizes[y->dtype], cs = tensor__class_size[r->klass];
    char *work = (char *)c->scratch + (size_t)worker * 3 * (size_t)(n + 8) * 8;
    for (int64_t k = task * r->per; k < end; k++) {
        const char *a = (const char *)x->data + k * n * xs, *b = x2 ? (const char *)x2->data + k * n * xs :
            NULL;
        char *to = (char *)y->data + k * m * ys;
        if (r->fast) {
            const float *fa = (const float *)(const void *)a, *fb = (const float *)(const void *)b;
            float *fy = (float *)(void *)to;
            switch (c->row->id) {
            case TENSOR_OP_SOFTMAX: r->isa->row_softmax(fa, fy, n); break;
            case TENSOR_OP_LOG_SOFTMAX: r->isa->row_log_softmax(fa, fy, n); break;
            case TENSOR_OP_LOGSUMEXP: fy[0] = r->isa->row_logsumexp(fa, (float *)(void *)work, n); break;
            case TENSOR_OP_SOFTMAX_BACKWARD: r->isa->row_softmax_backward(fa, fb, fy, n); break;
            case TENSOR_OP_ARGMAX:
                ((int64_t *)(void *)to)[0] = r->isa->find(fa, n, r->isa->leaf_max(fa, n));
                break;
            case TENSOR_OP_ARGMIN:
                ((int64_t *)(void *)to)[0] = r->isa->find(fa, n, r->isa->leaf_min(fa, n));
                break;
            default: r->isa->row_log_softmax_backward(fa, fb, fy, n); break;
            }
            continue;
        }
        char *bx = work, *bx2 = work + (n + 8) * cs, *by = work + 2 * (n + 8) * cs;
        tensor__load_run(bx, r->klass, a, x->dtype, 1, n);
        if (b) { tensor__load_run(bx2, r->klass, b, x2->dtype, 1, n); }
        if (r->klass == TENSOR__C_I64) {
            tensor__row_i64(r, (const int64_t *)(void *)bx, (int64_t *)(void *)by, n);
        } else {
            tensor__row_f64(r, (const double *)(void *)bx, (const double *)(void *)bx2, (double *)(void *)by,
                            n);
        }
        tensor__store_run(to, y->dtype, 1, by, r->klass, m);
    }
}
TENSOR__FN uint64_t tensor__scratch_rows(const tensor_call_t *c) {
    uint64_t n = c->arg[0].ndim ? (uint64_t)c->arg[0].dims[c->arg[0].ndim - 1] : 1, bytes;
    return tensor__mul_u64((n + 8) * 24, (uint64_t)c->thread->ctx->pool.n, &bytes) ? bytes : UINT64_MAX;
}
TENSOR__FN int tensor__cpu_rows(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0];
    tensor__rowcall_t r;
    int id = c->row->id;
    r.c = c;
    r.n = x->ndim ? TENSOR__WIDE(x) : 1;
    r.rows = r.n ? x->numel / r.n : c->arg[c->nin].numel;
    r.isa = TENSOR__ISA(c->thread);
    r.klass = tensor__is_float(x->dtype) ? TENSOR__C_F64 : TENSOR__C_I64;
    r.fast = x->dtype == TENSOR_F32 && !c->thread->ctx->reference && r.n > 0 &&
             (id == TENSOR_OP_SOFTMAX || id == TENSOR_OP_LOG_SOFTMAX || id == TENSOR_OP_LOGSUMEXP ||
              id == TENSOR_OP_SOFTMAX_BACKWARD || id == TENSOR_OP_LOG_SOFTMAX_BACKWARD ||
              id == TENSOR_OP_ARGMAX || id == TENSOR_OP_ARGMIN);
    if (r.rows == 0) { return 0; }
    r.per = r.n ? (TENSOR__GRAIN / 4 + r.n - 1) / r.n : r.rows;
    tensor__parallel((r.rows + r.per - 1) / r.per, tensor__row_task, &r);
    return 0;
}

TENSOR__FN int tensor__needs_float(const char *op, tensor_t *x) {
    TENSOR__REFUSE_AS(0, tensor__live(x) && !tensor__is_float(x->dtype), DTYPE,
                      "%s: x %t is %y, a float dtype is needed", op, x, x);
    return 1;
}
// Front of ROWS: x with dim moved last and contiguous. drop: the result has one element per row (keepdim:
// size 1). dtype of the result, < 0: that of x, which is a float.
TENSOR__FN tensor_t *tensor__rows_op(int id, tensor_t *x, int64_t dim, int drop, int keepdim, int dtype,
                                     int64_t i0) {
    TENSOR__MARK
    TENSOR__BEGIN(o, tensor__row(id), x)
    if (dtype < 0 && !tensor__needs_float(o.row->name, x)) { return TENSOR__POISON; }
    TENSOR__DIM(d, o.row->name, dim, x)
    int last = x->ndim - 1, moved = x->ndim > 1 && d != last;
    tensor_t *m = tensor_contiguous(moved ? tensor_movedim(x, d, last) : x);
    if (m == TENSOR__POISON) { TENSOR__RETURN(m); }
    if (!m->ndim) {
        int64_t one = 1;
        m = tensor_reshape_n(m, &one, 1);
        if (m == TENSOR__POISON) { TENSOR__RETURN(m); }
    }
    o.args[0] = m;
    tensor__ints(&o, i0, 0);
    tensor__result(&o, dtype < 0 ? m->dtype : dtype, m->dims, drop ? m->ndim - 1 : m->ndim);
    tensor_t *y = tensor__finish(&o);
    if (y == TENSOR__POISON || !x->ndim) {
        TENSOR__RETURN(y == TENSOR__POISON || drop ? y : tensor_reshape_n(y, tensor__no_dims, 0));
    }
    if (!drop) { TENSOR__RETURN(moved ? tensor_movedim(y, last, d) : y); }
    TENSOR__RETURN(keepdim ? tensor_unsqueeze(y, d) : y);
}
TENSOR__FRONT(softmax, (tensor_t *x, int64_t dim), tensor__rows_op(TENSOR_OP_SOFTMAX, x, dim, 0, 0, -1, 0))
TENSOR__FRONT(log_softmax, (tensor_t *x, int64_t dim),
    tensor__rows_op(TENSOR_OP_LOG_SOFTMAX, x, dim, 0, 0, -1, 0))
TENSOR__FRONT(logcumsumexp, (tensor_t *x, int64_t dim),
    tensor__rows_op(TENSOR_OP_LOGCUMSUMEXP, x, dim, 0, 0, -1, 0))
TENSOR__FRONT(var_dim, (tensor_t *x, int64_t dim, int64_t correction, int keepdim),
    tensor__rows_op(TENSOR_OP_VAR, x, dim, 1, keepdim, -1, correction))
TENSOR__FRONT(norm_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__rows_op(TENSOR_OP_NORM, x, dim, 1, keepdim, -1, 0))
TENSOR_API tensor_t *(tensor_logsumexp)(tensor_t *x, int64_t dim, int keepdim) {
    TENSOR__MARK
    if (tensor__live(x) && !tensor__is_float(x->dtype)) { x = tensor_to(x, tensor_get_default_dtype()); }
    TENSOR__RETURN(tensor__rows_op(TENSOR_OP_LOGSUMEXP, x, dim, 1, keepdim, -1, 0));
}
#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, int64_t dim) {                                         \
        int dtype = tensor__live(x) && !tensor__is_float(x->dtype) ? TENSOR_I64 : -1;                        \
        return tensor__rows_op(TENSOR_OP_##ID, x, dim, 0, 0, dtype, 0);                                      \
    }
TENSOR__X(CUMSUM, cumsum) TENSOR__X(CUMPROD, cumprod)
#undef TENSOR__X
TENSOR__FN tensor_t *tensor__arg_op(int id, tensor_t *x, int64_t dim, int keepdim) {
    if (tensor__live(x)) {
        TENSOR__DIM(d, tensor__row(id)->name, dim, x)
        TENSOR__REFUSE(x->ndim && x->dims[d] == 0, SHAPE, "%s: dim %i of x %t has no element to choose from",
                       tensor__row(id)->name, d, x);
    }
    return tensor__rows_op(id, x, dim, 1, keepdim, TENSOR_I64, 0);
}
TENSOR__FRONT(argmax_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__arg_op(TENSOR_OP_ARGMAX, x, dim, keepdim))
TENSOR__FRONT(argmin_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__arg_op(TENSOR_OP_ARGMIN, x, dim, keepdim))
TENSOR__MADE(argmax, (tensor_t *x), (tensor_argmax_dim)(tensor__flat(x), 0, 0))
TENSOR__MADE(argmin, (tensor_t *x), (tensor_argmin_dim)(tensor__flat(x), 0, 0))
TENSOR__MADE(var, (tensor_t *x, int64_t correction), (tensor_var_dim)(tensor__flat(x), 0, correction, 0))
TENSOR__MADE(norm, (tensor_t *x), (tensor_norm_dim)(tensor__flat(x), 0, 0))
TENSOR_API tensor_t *(tensor_std_dim)(tensor_t *x, int64_t dim, int64_t correction, int keepdim) {
    TENSOR__MARK
    // The gradient of constants is 0, not 0 * inf.
    tensor_t *v = (tensor_var_dim)(x, dim, correction, keepdim), *zero = tensor_eq_scalar(v, 0);
    TENSOR__RETURN(tensor_masked_fill(tensor_sqrt(tensor_masked_fill(v, zero, 1)), zero, 0));
}
TENSOR__MADE(std, (tensor_t *x, int64_t correction), (tensor_std_dim)(tensor__flat(x), 0, correction, 0))
// x at indices along dim, and these; drop: dim, of size 1, goes. The value is gathered, so its gradient goes
// to the chosen places alone.
TENSOR__FN tensor_pair_t tensor__chosen(tensor_t *x, int64_t dim, tensor_t *at, int drop) {
    tensor_pair_t p;
    p.indices = at;
    p.values = at == TENSOR__POISON ? at : x->ndim ? tensor_gather(x, dim, at) : tensor_clone(x);
    if (drop) { p.values = tensor_squeeze(p.values, dim); p.indices = tensor_squeeze(at, dim); }
    return p;
}
// The end of an op with several results, or poison in all of them.
TENSOR__FN tensor_t *tensor__tidy_n(tensor__thread_t *th, int64_t mark, tensor_t **list, int n,
                                    const char *function) {
    uint32_t mine = 0, poison = 0;
    for (int i = 0; i < n; i++) { poison |= (uint32_t)(list[i] == TENSOR__POISON) << i; }
    for (int i = 0; i < n; i++) {
        if (poison) { list[i] = TENSOR__POISON; }
        if (!tensor__live(list[i]) || list[i]->home != th || list[i]->slot < mark) { continue; }
        mine |= 1u << i;
        th->stack[list[i]->slot] = NULL;
        list[i]->slot = -1;
    }
    tensor__pop(th, mark);
    for (int i = 0; i < n; i++) {
        if (!(mine >> i & 1)) { continue; }
        tensor__enlist(th, list[i]);        // cannot fail: popping made room
        tensor__unbase(list[i]);
    }
    th->fresh = list[0] == TENSOR__POISON || list[0]->site ? NULL : list[0];
    return tensor__named(th, list[0], function);
}
TENSOR__FN tensor_pair_t tensor__tidy_pair(tensor__thread_t *th, int64_t mark, tensor_pair_t p,
                                           const char *function) {
    tensor_t *list[2] = {p.values, p.indices};
    tensor__tidy_n(th, mark, list, 2, function);
    memcpy(&p, list, sizeof p);
    return p;
}
#define TENSOR__RETURN_PAIR(p) return tensor__tidy_pair(th_, mark_, p, __func__)
#define TENSOR__MADE_PAIR(name, params, ...)                                                                 \
    TENSOR_API tensor_pair_t (tensor_##name) params { TENSOR__MARK TENSOR__RETURN_PAIR((__VA_ARGS__)); }
TENSOR__MADE_PAIR(max_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__chosen(x, dim, tensor__arg_op(TENSOR_OP_ARGMAX, x, dim, 1), !keepdim))
TENSOR__MADE_PAIR(min_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__chosen(x, dim, tensor__arg_op(TENSOR_OP_ARGMIN, x, dim, 1), !keepdim))

TENSOR__FN tensor_t *tensor__rows_backward(int id, tensor_t *g, tensor_t *y) {
    TENSOR__BEGIN(o, tensor__row(id), tensor_contiguous(g), y)
    tensor__result(&o, y->dtype, y->dims, y->ndim);
    return tensor__finish(&o);
}
TENSOR__FN void tensor__grad_softmax(tensor__grad_t *g) {
    tensor_t *y = tensor__grad_out(g, 0), *gy = g->gy[0];
    if (!g->create) { g->gx[0] = tensor__rows_backward(TENSOR_OP_SOFTMAX_BACKWARD, gy, y); return; }
    g->gx[0] = tensor_mul(y, tensor_sub(gy, tensor_sum_dim(tensor_mul(gy, y), -1, 1)));
}
TENSOR__FN void tensor__grad_log_softmax(tensor__grad_t *g) {
    tensor_t *y = tensor__grad_out(g, 0), *gy = g->gy[0];
    if (!g->create) { g->gx[0] = tensor__rows_backward(TENSOR_OP_LOG_SOFTMAX_BACKWARD, gy, y); return; }
    g->gx[0] = tensor_sub(gy, tensor_mul(tensor_exp(y), tensor_sum_dim(gy, -1, 1)));
}
TENSOR__FN void tensor__grad_logsumexp(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *y = tensor_unsqueeze(tensor__grad_out(g, 0), -1);
    // An all -inf row has no direction: gradient 0, not NaN.
    tensor_t *dead = tensor_logical_and(tensor_isinf(y), tensor_lt_scalar(y, 0));
    tensor_t *w = tensor_exp(tensor_sub(x, tensor_masked_fill(y, dead, 0)));
    g->gx[0] = tensor_mul(tensor_unsqueeze(g->gy[0], -1), w);
}
// The same row the other way round.
TENSOR__FN void tensor__grad_cumsum(tensor__grad_t *g) {
    g->gx[0] = tensor__rows_op(TENSOR_OP_CUMSUM, g->gy[0], -1, 0, 0, -1, !g->p->i[0]);
}
TENSOR__FN void tensor__grad_var(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0);
    if (!tensor__live(x)) { return; }
    double n = (double)TENSOR__WIDE(x) - (double)g->p->i[0];
    tensor_t *d = tensor_sub(x, tensor_mean_dim(x, -1, 1));
    g->gx[0] = tensor_mul(tensor_unsqueeze(g->gy[0], -1), tensor_mul_scalar(d, 2.0 / n));
}
TENSOR__FN void tensor__grad_norm(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *y = tensor_unsqueeze(tensor__grad_out(g, 0), -1);
    tensor_t *zero = tensor_eq_scalar(y, 0);        // the gradient of a zero vector is 0
    tensor_t *d = tensor_div(x, tensor_masked_fill(y, zero, 1));
    g->gx[0] = tensor_mul(tensor_unsqueeze(g->gy[0], -1), d);
}

// ---- over several dims, of several results ----

// The dims given (n = 0: all) moved to the end, in their order, as one; kept: the shape with 1 in their
// place, or without them. Poison = raised.
TENSOR__FN tensor_t *tensor__gathered(const char *op, tensor_t *x, const int64_t *dims, int n, int keepdim,
                                      tensor_shape_t *kept) {
    int64_t order[TENSOR_MAX_DIMS], shape[TENSOR_MAX_DIMS + 1], count = 1;
    uint32_t mask = 0;
    int k = 0;
    kept->ndim = 0;
    if (!tensor__dim_mask(op, x, dims, n, &mask)) { return TENSOR__POISON; }
    if (!x->ndim) { n = 0; }
    for (int d = 0; d < x->ndim; d++) {
        if (n && !(mask >> d & 1)) {
            shape[k] = x->dims[d];
            order[k++] = d;
            kept->dims[kept->ndim++] = x->dims[d];
            continue;
        }
        count *= x->dims[d];
        if (keepdim) { kept->dims[kept->ndim++] = 1; }
    }
    shape[k] = count;
    for (int i = 0; i < n; i++) { order[k + i] = dims[i] < 0 ? dims[i] + x->ndim : dims[i]; }
    if (n) { x = tensor_permute_n(x, order, x->ndim); }
    return tensor_reshape_n(x, shape, k + 1);
}
// The same with the dims in rising order.
TENSOR__FN tensor_t *tensor__fold(const char *op, tensor_t *x, const int64_t *dims, int n, int keepdim,
                                  tensor_shape_t *kept) {
    int64_t rising[TENSOR_MAX_DIMS];
    uint32_t mask;
    int k = 0;
    kept->ndim = 0;
    if (!tensor__mask(op, x, dims, n, &mask)) { return TENSOR__POISON; }
    for (int d = 0; d < x->ndim; d++) { if (mask >> d & 1) { rising[k++] = d; } }
    return tensor__gathered(op, x, rising, k, keepdim, kept);
}
#define TENSOR__FOLDED(name, row)                                                                            \
    TENSOR__MARK                                                                                             \
    tensor_shape_t kept;                                                                                     \
    tensor_t *f = tensor__fold(name, x, dims, n, keepdim, &kept);                                            \
    TENSOR__RETURN(tensor_reshape_n(row, kept.dims, kept.ndim))
TENSOR_API tensor_t *(tensor_logsumexp_dims)(tensor_t *x, const int64_t *dims, int n, int keepdim) {
    TENSOR__FOLDED("logsumexp", tensor_logsumexp(f, -1, 0));
}
TENSOR_API tensor_t *(tensor_var_dims)(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                       int keepdim) {
    TENSOR__FOLDED("var", tensor_var_dim(f, -1, correction, 0));
}
TENSOR_API tensor_t *(tensor_std_dims)(tensor_t *x, const int64_t *dims, int n, int64_t correction,
                                       int keepdim) {
    TENSOR__FOLDED("std", tensor_std_dim(f, -1, correction, 0));
}
TENSOR__FN tensor_t *tensor__norm_2(tensor_t *x, const int64_t *dims, int n, int keepdim) {
    TENSOR__FOLDED("norm", tensor_norm_dim(f, -1, 0));
}
#undef TENSOR__FOLDED
TENSOR_API tensor_t *(tensor_norm_p_dims)(tensor_t *x, double p, const int64_t *dims, int n, int keepdim) {
    TENSOR__MARK
    if (!tensor__live(x) || !tensor__needs_float("norm", x) || p == 2) {
        TENSOR__RETURN(tensor__live(x) && !tensor__is_float(x->dtype) ? TENSOR__POISON :
                       tensor__norm_2(x, dims, n, keepdim));
    }
    int half = x->dtype != TENSOR_F32 && x->dtype != TENSOR_F64;
    tensor_t *w = half ? tensor_to(x, TENSOR_F32) : x, *y;
    if (p == 0) {
        y = tensor_to(tensor_sum_dims(tensor_ne_scalar(w, 0), dims, n, keepdim), w->dtype);
        y = tensor__constant_of(y, w);
    } else if (p == 1) {
        y = tensor_sum_dims(tensor_abs(w), dims, n, keepdim);
    } else if (p == (double)INFINITY || p == -(double)INFINITY) {
        y = (p > 0 ? tensor_amax_dims : tensor_amin_dims)(tensor_abs(w), dims, n, keepdim);
    } else {        // where x or the sum is 0 the power has no slope: gradient 0
        tensor_t *none = tensor_eq_scalar(w, 0);
        y = tensor_masked_fill(tensor_pow_scalar(tensor_abs(tensor_masked_fill(w, none, 1)), p), none,
                               p > 0 ? 0 : (double)INFINITY);
        y = tensor_sum_dims(y, dims, n, keepdim);
        none = tensor_eq_scalar(y, 0);
        y = tensor_masked_fill(tensor_pow_scalar(tensor_masked_fill(y, none, 1), 1 / p), none,
                               p > 0 ? 0 : (double)INFINITY);
    }
    TENSOR__RETURN(half ? tensor_to(y, x->dtype) : y);
}
TENSOR__MADE(norm_p, (tensor_t *x, double p), (tensor_norm_p_dims)(x, p, NULL, 0, 0))
TENSOR__MADE(count_nonzero_dims, (tensor_t *x, const int64_t *dims, int n),
    tensor_sum_dims(tensor_ne_scalar(x, 0), dims, n, 0))
TENSOR__MADE(count_nonzero, (tensor_t *x), tensor_sum(tensor_ne_scalar(x, 0)))
TENSOR_API tensor_t *(tensor_nansum_dims)(tensor_t *x, const int64_t *dims, int n, int keepdim) {
    TENSOR__MARK
    int has = tensor__live(x) && tensor__is_float(x->dtype);
    TENSOR__RETURN(tensor_sum_dims(has ? tensor_masked_fill(x, tensor_isnan(x), 0) : x, dims, n, keepdim));
}
TENSOR__MADE(nansum, (tensor_t *x), (tensor_nansum_dims)(x, NULL, 0, 0))
TENSOR_API tensor_t *(tensor_nanmean_dims)(tensor_t *x, const int64_t *dims, int n, int keepdim) {
    TENSOR__MARK
    if (!tensor__needs_float("nanmean", x)) { return TENSOR__POISON; }
    tensor_t *count = tensor_sum_dims(tensor_logical_not(tensor_isnan(x)), dims, n, keepdim);
    TENSOR__RETURN(tensor_div((tensor_nansum_dims)(x, dims, n, keepdim), count));
}
TENSOR__MADE(nanmean, (tensor_t *x), (tensor_nanmean_dims)(x, NULL, 0, 0))
#define TENSOR__RETURN_TWO(first, second, to)                                                                \
    tensor_t *list[2] = {first, second};                                                                     \
    tensor__tidy_n(th_, mark_, list, 2, __func__);                                                           \
    if (to) { *(to) = list[1]; }                                                                             \
    return list[0]
#define TENSOR__X(name)                                                                                      \
    TENSOR_API tensor_t *(tensor_##name##_mean_dims)(tensor_t *x, const int64_t *dims, int n,                \
                                                     int64_t correction, int keepdim, tensor_t **mean) {     \
        TENSOR__MARK                                                                                         \
        TENSOR__RETURN_TWO((tensor_##name##_dims)(x, dims, n, correction, keepdim),                          \
                           tensor_mean_dims(x, dims, n, keepdim), mean);                                     \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_mean)(tensor_t *x, int64_t correction, tensor_t **mean) {          \
        return (tensor_##name##_mean_dims)(x, NULL, 0, correction, 0, mean);                                 \
    }
TENSOR__X(var) TENSOR__X(std)
#undef TENSOR__X
TENSOR_API tensor_t *(tensor_aminmax)(tensor_t *x, tensor_t **largest) {
    TENSOR__MARK
    TENSOR__RETURN_TWO(tensor_min(x), tensor_max(x), largest);
}
TENSOR_API tensor_t *(tensor_aminmax_dim)(tensor_t *x, int64_t dim, int keepdim, tensor_t **largest) {
    TENSOR__MARK
    TENSOR__RETURN_TWO(tensor_amin_dim(x, dim, keepdim), tensor_amax_dim(x, dim, keepdim), largest);
}
#undef TENSOR__RETURN_TWO

// x moved along the last dim by one place, value where none is left: x_(k-1), or x_(k+1) if back.
TENSOR__FN tensor_t *tensor__shift(tensor_t *x, int back, double value) {
    if (!tensor__live(x) || x->numel == 0) { return x; }
    int64_t n = TENSOR__WIDE(x);
    tensor_t *edge = tensor_full_like(tensor_narrow(x, -1, 0, 1), value),
        *rest = tensor_narrow(x, -1, back, n - 1);
    tensor_t *pair[2] = {back ? rest : edge, back ? edge : rest};
    return tensor_cat_n(pair, 2, -1);
}
// y_k = a_k + b_k y_(k-1) along the last dim, the other way round if back.
TENSOR__FN tensor_t *tensor__linear_scan(tensor_t *a, tensor_t *b, int back) {
    TENSOR__BEGIN(o, TENSOR__ROW(LINEAR_SCAN), tensor_contiguous(a), tensor_contiguous(b))
    tensor__ints(&o, back, 0);
    tensor__result(&o, a->dtype, a->dims, a->ndim);
    return tensor__finish(&o);
}
TENSOR__FN void tensor__grad_linear_scan(tensor__grad_t *g) {
    int back = g->p->i[0] != 0;
    g->gx[0] = tensor__linear_scan(g->gy[0], tensor__shift(tensor__grad_in(g, 1), !back, 0), !back);
    if (tensor__grad_need(g, 1)) {
        g->gx[1] = tensor_mul(g->gx[0], tensor__shift(tensor__grad_out(g, 0), back, 0));
    }
}
// dx_k = (product of those before k) s_k, where s_k = g_k + x_(k+1) s_(k+1).
TENSOR__FN void tensor__grad_cumprod(tensor__grad_t *g) {
    tensor_t *s = tensor__linear_scan(g->gy[0], tensor__shift(tensor__grad_in(g, 0), 1, 0), 1);
    g->gx[0] = tensor_mul(s, tensor__shift(tensor__grad_out(g, 0), 0, 1));
}
// dx_k = e^(x_k - y_k) t_k, where t_k = g_k + e^(y_k - y_(k+1)) t_(k+1): no weight above 1.
TENSOR__FN void tensor__grad_logcumsumexp(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *y = tensor__grad_out(g, 0);
    tensor_t *dead = tensor_logical_and(tensor_isinf(y), tensor_lt_scalar(y, 0));   // nothing but -inf so far
    y = tensor_masked_fill(y, dead, 0);
    tensor_t *w = tensor_masked_fill(tensor_exp(tensor_sub(y, tensor__shift(y, 1, 0))), dead, 0);
    tensor_t *t = tensor__linear_scan(g->gy[0], w, 1);
    g->gx[0] = tensor_mul(tensor_exp(tensor_sub(x, y)), t);
}

TENSOR_API tensor_t *(tensor_diff)(tensor_t *x, int64_t n, int64_t dim) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(!x->ndim || n < 0, SHAPE, "diff: x %t must have a dim and n be >= 0 (got %d)", x, n);
    TENSOR__DIM(d, "diff", dim, x)
    if (n == 0) { x = tensor_clone(x); }
    for (tensor_t *from = x; n > 0 && x != TENSOR__POISON && x->dims[d]; n--) {
        int64_t m = x->dims[d] - 1;
        tensor_t *a = tensor_narrow(x, d, 1, m), *b = tensor_narrow(x, d, 0, m);
        x = from->dtype == TENSOR_BOOL ? tensor_ne(a, b) : tensor_sub(a, b);
    }
    TENSOR__RETURN(x);
}
TENSOR__FN tensor_t *tensor__trapezoids(tensor_t *y, tensor_t *x, double dx, int64_t dim) {
    if (!TENSOR__USABLE("trapezoid", "y", y)) { return TENSOR__POISON; }
    int d = tensor__dim("trapezoid", dim, y);
    if (d < 0 || (x && !TENSOR__USABLE("trapezoid", "x", x))) { return TENSOR__POISON; }
    int one = x && x->ndim == 1, e = one ? 0 : x ? x->ndim - y->ndim + d : 0;
    TENSOR__REFUSE(!y->ndim || (x && (!x->ndim || e < 0 || x->dims[e] != y->dims[d])), SHAPE,
                   "trapezoid: y %t must have a dim %i and x as many places", y, d);
    int64_t n = y->dims[d] - 1, to[TENSOR_MAX_DIMS];
    if (n < 0) { return y; }
    y = tensor_add(tensor_narrow(y, d, 1, n), tensor_narrow(y, d, 0, n));
    if (!x) { return tensor_mul_scalar(y, dx / 2); }
    x = tensor_diff(x, 1, e);
    if (y == TENSOR__POISON) { return y; }
    for (int i = 0; i < y->ndim; i++) { to[i] = i == d ? n : 1; }
    return tensor_mul_scalar(tensor_mul(y, one ? tensor_reshape_n(x, to, y->ndim) : x), 0.5);
}
TENSOR__MADE(trapezoid, (tensor_t *y, tensor_t *x, double dx, int64_t dim),
    tensor_sum_dim(tensor__trapezoids(y, x, dx, dim), dim, 0))
TENSOR__MADE(cumulative_trapezoid, (tensor_t *y, tensor_t *x, double dx, int64_t dim),
    tensor_cumsum(tensor__trapezoids(y, x, dx, dim), dim))
TENSOR__MADE(dist, (tensor_t *a, tensor_t *b, double p), (tensor_norm_p)(tensor_sub(a, b), p))
TENSOR_API tensor_t *(tensor_cdist)(tensor_t *a, tensor_t *b, double p) {
    TENSOR__MARK2(a, b)
    TENSOR__REFUSE(a->ndim < 2 || b->ndim < 2 || TENSOR__WIDE(a) != TENSOR__WIDE(b) || !(p >= 0), SHAPE,
                   "cdist: a %t and b %t must be [..., M, K] and [..., N, K], p >= 0 (got %g)", a, b, p);
    const int64_t k = -1;
    if (p == 2 && (TENSOR__HIGH(a) > 25 || TENSOR__HIGH(b) > 25)) {
        tensor_t *aa = tensor_sum_dim(tensor_square(a), -1, 1), *bb = tensor_sum_dim(tensor_square(b), -1, 1);
        tensor_t *d = tensor_sub(tensor_add(aa, tensor_mT(bb)),
                                 tensor_mul_scalar(tensor_matmul(a, tensor_mT(b)), 2));
        tensor_t *none = tensor_le_scalar(d, 0);        // distance 0 has gradient 0
        TENSOR__RETURN(tensor_masked_fill(tensor_sqrt(tensor_masked_fill(d, none, 1)), none, 0));
    }
    if (p == (double)INFINITY && TENSOR__WIDE(a) == 0) { p = 1; }       // no coordinate: 0, no error
    TENSOR__RETURN(tensor_norm_p_dims(tensor_sub(tensor_unsqueeze(a, -2), tensor_unsqueeze(b, -3)), p, &k, 1,
                                      0));
}
TENSOR_API tensor_t *(tensor_renorm)(tensor_t *x, double p, int64_t dim, double maxnorm) {
    TENSOR__MARK1(x)
    TENSOR__DIM(d, "renorm", dim, x)
    TENSOR__REFUSE(x->ndim < 2 || !(p > 0) || !(maxnorm >= 0), SHAPE,
                   "renorm: x %t must have 2 dims, p be > 0 (got %g), maxnorm >= 0 (got %g)", x, p, maxnorm);
    int64_t dims[TENSOR_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->ndim; i++) { if (i != d) { dims[n++] = i; } }
    tensor_t *norm = tensor_norm_p_dims(x, p, dims, n, 1), *low = tensor_le_scalar(norm, maxnorm);
    tensor_t *scale = tensor_mul_scalar(tensor_reciprocal(tensor_add_scalar(norm, 1e-7)), maxnorm);
    TENSOR__RETURN(tensor_mul(x, tensor_masked_fill(scale, low, 1)));
}
TENSOR_API tensor_t *(tensor_cov)(tensor_t *x, int64_t correction, tensor_t *fweights, tensor_t *aweights) {
    TENSOR__MARK
    tensor_t *const given[2] = {fweights, aweights};
    tensor_t *w = NULL;
    if (!TENSOR__USABLE("cov", "x", x)) { return TENSOR__POISON; }
    TENSOR__REFUSE(x->ndim > 2, SHAPE, "cov: x %t must have at most 2 dims", x);
    int one = x->ndim < 2;
    if (!tensor__is_float(x->dtype)) { x = tensor_to(x, TENSOR_F32); }
    if (one) { x = tensor_unsqueeze(tensor__flat(x), 0); }
    if (x == TENSOR__POISON) { TENSOR__RETURN(x); }
    one = x->dims[0] == 1;
    for (int i = 0; i < 2; i++) {
        if (!given[i]) { continue; }
        if (!TENSOR__USABLE("cov", i ? "aweights" : "fweights", given[i])) { return TENSOR__POISON; }
        TENSOR__REFUSE(given[i]->ndim != 1 || given[i]->dims[0] != x->dims[1] ||
                       tensor__is_float(given[i]->dtype) != i, SHAPE,
                       "cov: %s %t must be %s [%d], one for each observation", i ? "aweights" : "fweights",
                       given[i], i ? "float" : "integer", x->dims[1]);
        TENSOR__REFUSE(tensor_item_i64(tensor_any(tensor_lt_scalar(given[i], 0))), INDEX,
                       "cov: %s must not be negative", i ? "aweights" : "fweights");
        tensor_t *v = tensor_to(given[i], x->dtype);
        w = w ? tensor_mul(w, v) : v;
    }
    tensor_t *total = w ? tensor_sum(w) : tensor_scalar((double)x->dims[1], (tensor_dtype_t)x->dtype),
        *lost = total;
    tensor_t *mean = w ? tensor_div(tensor_sum_dim(tensor_mul(x, w), 1, 1), total) : tensor_mean_dim(x, 1, 1);
    if (aweights) { lost = tensor_div(tensor_sum(tensor_mul(w, aweights)), total); }
    tensor_t *by = tensor_sub(total, aweights ? tensor_mul_scalar(lost, (double)correction) :
                              tensor_scalar((double)correction, (tensor_dtype_t)x->dtype));
    x = tensor_sub(x, mean);
    tensor_t *y = tensor_matmul(x, tensor_mT(w ? tensor_mul(x, w) : x));
    y = tensor_div(y, tensor_clamp(by, 0, (double)INFINITY));
    TENSOR__RETURN(one ? tensor_reshape_n(y, tensor__no_dims, 0) : y);
}
TENSOR_API tensor_t *(tensor_corrcoef)(tensor_t *x) {
    TENSOR__MARK
    tensor_t *c = (tensor_cov)(x, 1, NULL, NULL);
    if (c == TENSOR__POISON || !c->ndim) { TENSOR__RETURN(c == TENSOR__POISON ? c : tensor_div(c, c)); }
    int64_t n = c->dims[0];
    tensor_t *sd = tensor_sqrt(tensor_slice(tensor__flat(c), 0, 0, n * n, n + 1));
    c = tensor_div(tensor_div(c, tensor_unsqueeze(sd, 1)), sd);
    TENSOR__RETURN(tensor_clamp(c, -1, 1));
}

// ------------------------------------------------------------------------------
// >>impl-linalg                                    MARK: matrix products, linear algebra
//
// Products of any kind become a batch of GEMMs on views; einsum and tensordot only arrange dims for it.
// Factorisations are plain algorithms of the textbooks in doubles. Rejected: calling LAPACK (a dependency,
// and results that differ from one machine to the next), copies of transposed operands (the GEMM reads both
// layouts).
// ------------------------------------------------------------------------------

typedef struct tensor__matmul_t { tensor__gemm_t g; uint64_t offset_bytes; } tensor__matmul_t;

TENSOR__FN int64_t tensor__batch_of(const tensor_arg_t *y) {
    int64_t n = 1;
    for (int d = 0; d < y->ndim - 2; d++) { n *= y->dims[d]; }
    return n;
}
// The call as GEMM, batch offsets not filled yet.
TENSOR__FN void tensor__matmul_describe(const tensor_call_t *c, tensor__matmul_t *m) {
    const tensor_arg_t *a = &c->arg[0], *b = &c->arg[1], *y = &c->arg[2];
    m->g.m = a->dims[a->ndim - 2];
    m->g.k = a->dims[a->ndim - 1];
    m->g.n = b->dims[b->ndim - 1];
    m->g.a = a->data;
    m->g.ars = a->strides[a->ndim - 2];
    m->g.acs = a->strides[a->ndim - 1];
    m->g.b = b->data;
    m->g.brs = b->strides[b->ndim - 2];
    m->g.bcs = b->strides[b->ndim - 1];
    m->g.c = y->data;
    m->g.crs = m->g.n;
    m->g.aoff = m->g.boff = m->g.coff = NULL;
    m->g.bias = m->g.scratch = NULL;
    m->g.accumulate = 0;
    m->g.batch = tensor__batch_of(y);
    m->offset_bytes = m->g.batch == 1 ? 0 : ((uint64_t)m->g.batch * 24 + 63) & ~(uint64_t)63;
}
// Enough for either element type: whoever asks from tensor_nn.h runs both.
TENSOR__FN uint64_t tensor__gemm_scratch(const tensor__gemm_t *g) {
    int threads = tensor__thread_count();
    uint64_t single = tensor__gemm_scratch_f32(g, threads), twice = tensor__gemm_scratch_f64(g, threads);
    return single > twice ? single : twice;
}
#ifdef TENSOR_USE_OPENBLAS
// How BLAS is told of a matrix of `across` columns in row-major order; ld 0 = it cannot be.
TENSOR__FN CBLAS_TRANSPOSE tensor__blas_side(int64_t down, int64_t across, int64_t rs, int64_t cs, int *ld) {
    int plain = cs == 1 && rs >= across, turned = rs == 1 && cs >= down;
    int64_t step = plain ? rs : turned ? cs : 0;
    *ld = step <= INT32_MAX ? (int)step : 0;
    return plain ? CblasNoTrans : CblasTrans;
}
// Whether the product was OpenBLAS's: not small ones, nor such as it has no words for.
TENSOR__FN int tensor__gemm_blas(const tensor__gemm_t *g, int size) {
    int lda, ldb;
    CBLAS_TRANSPOSE ta = tensor__blas_side(g->m, g->k, g->ars, g->acs, &lda);
    CBLAS_TRANSPOSE tb = tensor__blas_side(g->k, g->n, g->brs, g->bcs, &ldb);
    int64_t most = INT32_MAX;
    if (!lda || !ldb || (g->bias && g->accumulate) || g->m > most || g->n > most || g->k > most ||
        g->crs > most || g->crs < g->n || (double)g->m * (double)g->n * (double)g->k < 64.0 * 64 * 64) {
        return 0;
    }
    int m = (int)g->m, n = (int)g->n, k = (int)g->k, ldc = (int)g->crs, add = g->accumulate || g->bias;
    for (int64_t item = 0; item < g->batch; item++) {
        const char *a = (const char *)g->a + (g->aoff ? g->aoff[item] : 0) * size;
        const char *b = (const char *)g->b + (g->boff ? g->boff[item] : 0) * size;
        char *c = (char *)g->c + (g->coff ? g->coff[item] : 0) * size;
        for (int64_t i = 0; g->bias && i < g->m; i++) {
            memcpy(c + i * g->crs * size, g->bias, (size_t)(g->n * size));
        }
        if (size == 4) {
            cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, (const float *)(const void *)a, lda,
                        (const float *)(const void *)b, ldb, add ? 1.0f : 0.0f, (float *)(void *)c, ldc);
        } else {
            cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, (const double *)(const void *)a, lda,
                        (const double *)(const void *)b, ldb, add ? 1.0 : 0.0, (double *)(void *)c, ldc);
        }
    }
    return 1;
}
#else
#define tensor__gemm_blas(g, size) 0
#endif
TENSOR__FN void tensor__gemm_f32(const tensor__gemm_t *g) {
    tensor__thread_t *th = tensor__self();
    if (th->ctx->reference) { tensor__gemm_ref_f32(g); return; }
    if (tensor__gemm_blas(g, 4)) { return; }
    TENSOR__ISA(th)->gemm_f32(g);
}
TENSOR__FN void tensor__gemm_f64(const tensor__gemm_t *g) {
    const tensor__isa_t *isa = TENSOR__ISA(tensor__self());
    tensor__gemm_job_t job;
    if (g->m <= 0 || g->n <= 0 || g->batch <= 0) { return; }
    if (g->k <= 0) { tensor__gemm_empty(g, 8); return; }
    if (tensor__gemm_blas(g, 8)) { return; }
    job.g = g;
    job.tile = isa->gemm_tile_f64;
    job.nr = isa->lanes > 4 ? isa->lanes : 4;
    job.workers = tensor__thread_count();
    job.r[0] = job.r[4] = 0; job.r[1] = g->m; job.r[5] = g->k;
    job.cut = tensor__gemm_cut(g, job.workers, 4, job.nr);
    tensor__parallel(job.cut.tasks, tensor__gemm_task_f64, &job);
}
TENSOR__FN uint64_t tensor__scratch_matmul(const tensor_call_t *c) {
    tensor__matmul_t m;
    if (!c->arg[c->nin].numel) { return 0; }
    tensor__matmul_describe(c, &m);
    if (c->arg[0].dtype == TENSOR_F64) {
        return m.offset_bytes + tensor__gemm_scratch_f64(&m.g, tensor__thread_count());
    }
    return m.offset_bytes + (c->arg[0].dtype == TENSOR_F32 ? tensor__gemm_scratch_f32(&m.g,
            tensor__thread_count()) : 0);
}
// Integer products wrap; plain loops.
TENSOR__FN void tensor__gemm_i64(const tensor__gemm_t *g, int dtype) {
    int size = tensor__sizes[dtype];
    for (int64_t item = 0; item < g->batch; item++) {
        const char *a = (const char *)g->a + (g->aoff ? g->aoff[item] : 0) * size;
        const char *b = (const char *)g->b + (g->boff ? g->boff[item] : 0) * size;
        char *c = (char *)g->c + (g->coff ? g->coff[item] : 0) * size;
        for (int64_t i = 0; i < g->m; i++) {
            for (int64_t j = 0; j < g->n; j++) {
                uint64_t s = 0;
                for (int64_t k = 0; k < g->k; k++) {
                    int64_t u = 0, v = 0;
                    tensor__load_i64(&u, a + (i * g->ars + k * g->acs) * size, dtype, 1, 1);
                    tensor__load_i64(&v, b + (k * g->brs + j * g->bcs) * size, dtype, 1, 1);
                    s += (uint64_t)u * (uint64_t)v;
                }
                int64_t r = (int64_t)s;
                tensor__store_i64(c + (i * g->crs + j) * size, dtype, 1, &r, 1);
            }
        }
    }
}
TENSOR__FN int tensor__cpu_matmul(tensor_call_t *c) {
    const tensor_arg_t *a = &c->arg[0], *b = &c->arg[1], *y = &c->arg[2];
    tensor__matmul_t m;
    tensor__matmul_describe(c, &m);
    if (y->numel == 0) { return 0; }
    if (m.offset_bytes) {
        int64_t *off = (int64_t *)c->scratch, n = m.g.batch;
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, oa = 0, ob = 0;
            for (int d = y->ndim - 3; d >= 0; d--) {
                int64_t at = rest % y->dims[d];
                int da = d - (y->ndim - a->ndim), db = d - (y->ndim - b->ndim);
                rest /= y->dims[d];
                if (da >= 0 && a->dims[da] != 1) { oa += at * a->strides[da]; }
                if (db >= 0 && b->dims[db] != 1) { ob += at * b->strides[db]; }
            }
            off[i] = oa;
            off[n + i] = ob;
            off[2 * n + i] = i * m.g.m * m.g.n;
        }
        m.g.aoff = off;
        m.g.boff = off + n;
        m.g.coff = off + 2 * n;
    }
    m.g.scratch = c->scratch ? (char *)c->scratch + m.offset_bytes : NULL;
    if (a->dtype == TENSOR_F32) {
        tensor__gemm_f32(&m.g);
    } else if (a->dtype == TENSOR_F64) {
        tensor__gemm_f64(&m.g);
    } else {
        tensor__gemm_i64(&m.g, a->dtype);
    }
    return 0;
}

TENSOR_API tensor_t *(tensor_matmul)(tensor_t *a, tensor_t *b) {
    TENSOR__MARK
    tensor__op_t o;
    tensor_t *const in[2] = {a, b};
    if (!tensor__begin(&o, TENSOR__ROW(MATMUL), in, 2)) { return TENSOR__POISON; }
    if (!a->ndim || !b->ndim) {
        return tensor__fail(o.th, TENSOR_ERR_SHAPE,
                            "matmul: a %t and b %t must have at least 1 dim; use mul for numbers", a, b);
    }
    if (a->dtype != b->dtype) {
        return tensor__fail(o.th, TENSOR_ERR_DTYPE,
                            "matmul: a %t is %y and b %t is %y; convert one with tensor_to", a, a, b, b);
    }
    if (a->dtype == TENSOR_BOOL) {
        return tensor__fail(o.th, TENSOR_ERR_DTYPE, "matmul: a %t and b %t are bool", a, b);
    }
    int64_t ka = a->dims[a->ndim - 1], kb = b->dims[b->ndim > 1 ? b->ndim - 2 : 0];
    if (ka != kb) {
        return tensor__fail(o.th, TENSOR_ERR_SHAPE, "matmul: a %t and b %t do not agree on K (%d vs %d)", a,
                            b, ka, kb);
    }
    if ((a->dtype == TENSOR_F16 || a->dtype == TENSOR_BF16) && !tensor__halves(a)) {
        tensor_t *y = tensor_matmul(tensor_to(a, TENSOR_F32), tensor_to(b, TENSOR_F32));
        TENSOR__RETURN(tensor_to(y, (tensor_dtype_t)a->dtype));
    }
    if (a->ndim == 1) {
        TENSOR__RETURN(tensor_squeeze(tensor_matmul(tensor_unsqueeze(a, 0), b), b->ndim > 1 ? -2 : 0));
    }
    if (b->ndim == 1) { TENSOR__RETURN(tensor_squeeze(tensor_matmul(a, tensor_unsqueeze(b, 1)), -1)); }
    if (b->ndim == 2 && a->ndim > 2 && a->numel) {      // one matrix for all items: one tall product
        int64_t tall[2] = {a->numel / ka, ka}, dims[TENSOR_MAX_DIMS];
        for (int i = 0; i < a->ndim - 1; i++) { dims[i] = a->dims[i]; }
        dims[a->ndim - 1] = b->dims[1];
        TENSOR__RETURN(tensor_reshape_n(tensor_matmul(tensor_reshape_n(a, tall, 2), b), dims, a->ndim));
    }
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim = 0;
    if ((a->ndim > 2 && !tensor__broadcast(dims, &ndim, a->dims, a->ndim - 2)) ||
        (b->ndim > 2 && !tensor__broadcast(dims, &ndim, b->dims, b->ndim - 2))) {
        return tensor__fail(o.th, TENSOR_ERR_SHAPE,
                            "matmul: the batch dims of a %t and b %t do not broadcast", a, b);
    }
    dims[ndim] = a->dims[a->ndim - 2];
    dims[ndim + 1] = b->dims[b->ndim - 1];
    tensor__result(&o, a->dtype, dims, ndim + 2);
    return tensor__named(th_, tensor__finish(&o), __func__);
}
TENSOR__FN void tensor__grad_matmul(tensor__grad_t *g) {
    if (tensor__grad_need(g, 0)) { g->gx[0] = tensor_matmul(g->gy[0], tensor_mT(tensor__grad_in(g, 1))); }
    if (tensor__grad_need(g, 1)) { g->gx[1] = tensor_matmul(tensor_mT(tensor__grad_in(g, 0)), g->gy[0]); }
}
TENSOR__COLD
TENSOR__FN tensor_t *tensor__product(const char *op, tensor_t *a, tensor_t *b, int na, int nb) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE(op, "a", a) || !TENSOR__USABLE(op, "b", b)) { return TENSOR__POISON; }
    if (a->ndim != na || b->ndim != nb || (na == 3 && a->dims[0] != b->dims[0])) {
        return tensor__fail(th, TENSOR_ERR_SHAPE, "%s: a %t and b %t must have %i and %i dims%s", op, a, b,
                            na, nb, na == 3 ? " and equal batch" : "");
    }
    return tensor_matmul(a, b);
}
TENSOR_API tensor_t *(tensor_mm)(tensor_t *a, tensor_t *b) { return tensor__product("mm", a, b, 2, 2); }
TENSOR_API tensor_t *(tensor_bmm)(tensor_t *a, tensor_t *b) { return tensor__product("bmm", a, b, 3, 3); }
TENSOR_API tensor_t *(tensor_mv)(tensor_t *a, tensor_t *b) { return tensor__product("mv", a, b, 2, 1); }
TENSOR_API tensor_t *(tensor_dot)(tensor_t *a, tensor_t *b) { return tensor__product("dot", a, b, 1, 1); }
TENSOR_API tensor_t *(tensor_outer)(tensor_t *a, tensor_t *b) {
    TENSOR__MARK2(a, b)
    tensor__thread_t *th = th_;
    if (a->ndim != 1 || b->ndim != 1) {
        return tensor__fail(th, TENSOR_ERR_SHAPE, "outer: a %t and b %t must be 1-d", a, b);
    }
    TENSOR__RETURN(tensor_mul(tensor_unsqueeze(a, 1), b));
}
// beta * x + alpha * product(a, b); x broadcasts to the product.
TENSOR__FN tensor_t *tensor__add_product(const char *op, tensor_t *(*product)(tensor_t *a, tensor_t *b),
                                         tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha) {
    TENSOR__MARK
    if (tensor__live(x) && tensor__live(a) && tensor__live(b) &&
        (a->dtype == TENSOR_F16 || a->dtype == TENSOR_BF16)) {
        tensor_t *f = tensor__add_product(op, product, tensor_to(x, TENSOR_F32), tensor_to(a, TENSOR_F32),
                                          tensor_to(b, TENSOR_F32), beta, alpha);
        TENSOR__RETURN(tensor_to(f, a->dtype));      // rounded once
    }
    tensor_t *y = product(a, b);
    if (y != TENSOR__POISON && tensor__live(x) && !tensor__fills(x, y)) {
        y = tensor__fail(th_, TENSOR_ERR_SHAPE, "%s: x %t does not broadcast to the product %t", op, x, y);
        TENSOR__RETURN(y);
    }
    if (y != TENSOR__POISON && alpha != 1) { y = tensor_mul_scalar(y, alpha); }
    if (beta == 0) { TENSOR__RETURN(y); }
    TENSOR__RETURN(tensor_add(beta == 1 ? x : tensor_mul_scalar(x, beta), y));
}
// Sum of a batch of products: one product over batch and K together.
TENSOR__FN tensor_t *tensor__summed_bmm(tensor_t *a, tensor_t *b) {
    TENSOR__MARK
    TENSOR__REFUSE(tensor__live(a) && tensor__live(b) && (a->ndim != 3 || b->ndim != 3 ||
                                                          a->dims[0] != b->dims[0] ||
                   a->dims[2] != b->dims[1]), SHAPE, "addbmm: a %t and b %t are no batches of products", a,
                   b);
    if (!tensor__live(a) || !tensor__live(b)) { return (tensor_bmm)(a, b); }
    int64_t da[2] = {a->dims[1], a->dims[0] * a->dims[2]}, db[2] = {da[1], b->dims[2]};
    a = tensor_reshape_n(tensor_transpose(a, 0, 1), da, 2);
    TENSOR__RETURN(tensor_mm(a, tensor_reshape_n(b, db, 2)));
}
#define TENSOR__X(name, product)                                                                             \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha) { \
        tensor_t *y = tensor__add_product(#name, product, x, a, b, beta, alpha);                             \
        return tensor__named(tensor__self(), y, __func__);                                                   \
    }
TENSOR__X(addmm, (tensor_mm)) TENSOR__X(baddbmm, (tensor_bmm)) TENSOR__X(addbmm, tensor__summed_bmm)
TENSOR__X(addmv, (tensor_mv)) TENSOR__X(addr, (tensor_outer))
#undef TENSOR__X
TENSOR__FRONT(vdot, (tensor_t *a, tensor_t *b), tensor__product("vdot", a, b, 1, 1))
TENSOR_API tensor_t *(tensor_linalg_vecdot)(tensor_t *a, tensor_t *b, int64_t dim) {
    TENSOR__MARK
    tensor_t *y = tensor_mul(a, b);     // a sum of integers keeps their dtype here
    tensor_t *s = tensor_sum_dim(y, dim, 0);
    TENSOR__RETURN(s == TENSOR__POISON ? s : tensor_to(s, y->dtype));
}

// The diagonal of the last two dims, moved to one last dim: every (n + 1)-th element of the rows end to end.
TENSOR__FN tensor_t *tensor__diagonal(tensor_t *x) {
    TENSOR__MARK
    if (!tensor__live(x)) { return TENSOR__POISON; }
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x), k = m < n ? m : n, dims[TENSOR_MAX_DIMS];
    for (int d = 0; d < x->ndim - 2; d++) { dims[d] = x->dims[d]; }
    dims[x->ndim - 2] = k * n;
    x = tensor_reshape_n(tensor_narrow(x, -2, 0, k), dims, x->ndim - 1);
    TENSOR__RETURN(tensor_slice(x, -1, 0, k * n, n + 1));
}
TENSOR_API tensor_t *(tensor_trace)(tensor_t *x) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(x->ndim != 2, SHAPE, "trace: x %t must have 2 dims", x);
    TENSOR__RETURN(tensor_sum(tensor__diagonal(x)));
}

// A tensor whose dims have labels (0..63).
typedef struct tensor__labelled_t { tensor_t *x; int n; int8_t label[TENSOR_MAX_DIMS]; } tensor__labelled_t;

TENSOR__FN int tensor__label_at(const tensor__labelled_t *a, int label) {
    for (int d = 0; d < a->n; d++) { if (a->label[d] == label) { return d; } }
    return -1;
}
TENSOR__FN void tensor__label_drop(tensor__labelled_t *a, int d) {
    for (a->n--; d < a->n; d++) { a->label[d] = a->label[d + 1]; }
}
// Sums over the dims whose label is not kept.
TENSOR__FN void tensor__label_sum(tensor__labelled_t *a, uint64_t keep) {
    int64_t dims[TENSOR_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < a->n; d++) { if (!(keep >> a->label[d] & 1)) { dims[n++] = d; } }
    if (n) { a->x = tensor_sum_dims(a->x, dims, n, 0); }
    while (n) { tensor__label_drop(a, (int)dims[--n]); }
}
// The dims in the order of labels given.
TENSOR__FN tensor_t *tensor__label_order(const tensor__labelled_t *a, const int8_t *order, int n) {
    int64_t perm[TENSOR_MAX_DIMS];
    for (int d = 0; d < n; d++) { perm[d] = tensor__label_at(a, order[d]); }
    return tensor_permute_n(a->x, perm, n);
}
// The same with the nb leading dims expanded to `batch`, as a batch of matrices of the shape `three`.
TENSOR__FN tensor_t *tensor__label_matrix(const tensor__labelled_t *a, const int8_t *order, int n,
                                          const int64_t *batch, int nb, const int64_t *three) {
    int64_t full[TENSOR_MAX_DIMS];
    int turned = 0, expanded = 0;
    for (int d = 0; d < n; d++) { turned |= a->label[d] != order[d]; }
    tensor_t *x = turned ? tensor__label_order(a, order, n) : a->x;
    if (x == TENSOR__POISON) { return x; }
    for (int d = 0; d < n; d++) {
        full[d] = d < nb ? batch[d] : x->dims[d];
        expanded |= full[d] != x->dims[d];
    }
    return tensor_reshape_n(expanded ? tensor_expand_n(x, full, n) : x, three, 3);
}
// a = sum over the labels that are not kept of a b, its dims: those of both, of a alone, of b alone. Sizes of
// 1 broadcast. 0 = failed, raised.
TENSOR__FN int tensor__contract(const char *op, tensor__labelled_t *a, tensor__labelled_t *b, uint64_t keep) {
    uint64_t in_a = 0, in_b = 0;
    for (int d = 0; d < a->n; d++) { in_a |= (uint64_t)1 << a->label[d]; }
    for (int d = 0; d < b->n; d++) { in_b |= (uint64_t)1 << b->label[d]; }
    for (int l = 0; l < 64; l++) {      // a summed label of sizes 1 and n: the sum over n alone
        if (!((in_a & in_b & ~keep) >> l & 1)) { continue; }
        int da = tensor__label_at(a, l), db = tensor__label_at(b, l);
        if (a->x == TENSOR__POISON || b->x == TENSOR__POISON) { return 0; }
        if (a->x->dims[da] == b->x->dims[db]) { continue; }
        tensor__label_sum(a, ~((uint64_t)1 << l));
        tensor__label_sum(b, ~((uint64_t)1 << l));
        in_a &= ~((uint64_t)1 << l);
        in_b &= ~((uint64_t)1 << l);
    }
    tensor__label_sum(a, keep | in_b);
    tensor__label_sum(b, keep | in_a);
    if (a->x == TENSOR__POISON || b->x == TENSOR__POISON) { return 0; }
    // batch labels, those of a, of b; summed ones
    int8_t oa[TENSOR_MAX_DIMS], ob[TENSOR_MAX_DIMS], sum[TENSOR_MAX_DIMS];
    int64_t dims[2 * TENSOR_MAX_DIMS], three[3] = {1, 1, 1}, batch[TENSOR_MAX_DIMS], cols = 1;
    int nb = 0, na = 0, ns = 0, n = 0;
    tensor__labelled_t y;
    for (int d = 0; d < a->n; d++) {
        int l = a->label[d], db = tensor__label_at(b, l);
        if (db < 0) { continue; }
        if (!(keep >> l & 1)) { sum[ns++] = (int8_t)l; three[2] *= a->x->dims[d]; continue; }
        batch[nb] = dims[nb] = a->x->dims[d] == 1 ? b->x->dims[db] : a->x->dims[d];
        three[0] *= dims[nb];
        oa[nb] = ob[nb] = (int8_t)l;
        nb++;
    }
    na = n = nb;
    for (int d = 0; d < a->n; d++) {
        if (tensor__label_at(b, a->label[d]) >= 0) { continue; }
        three[1] *= dims[n++] = a->x->dims[d];
        oa[na++] = a->label[d];
    }
    int out = na, lb = nb;
    for (int d = 0; d < b->n; d++) {
        if (tensor__label_at(a, b->label[d]) >= 0) { continue; }
        cols *= dims[n++] = b->x->dims[d];
        ob[lb++] = b->label[d];
    }
    TENSOR__REFUSE_AS(0, n > TENSOR_MAX_DIMS, SHAPE, "%s: a product of %t and %t has %i dims, at most 8 are "
                      "supported", op, a->x, b->x, n);
    y.n = n;
    for (int i = 0; i < out; i++) { y.label[i] = oa[i]; }
    for (int i = nb; i < lb; i++) { y.label[out + i - nb] = ob[i]; }
    int8_t order[TENSOR_MAX_DIMS];
    int64_t two[3] = {three[0], three[2], cols};
    for (int i = 0; i < nb; i++) { order[i] = ob[i]; }
    for (int i = 0; i < ns; i++) { oa[na + i] = order[nb + i] = sum[i]; }
    for (int i = nb; i < lb; i++) { order[ns + i] = ob[i]; }
    tensor_t *p = tensor__label_matrix(a, oa, na + ns, batch, nb, three);
    tensor_t *q = tensor__label_matrix(b, order, lb + ns, batch, nb, two);
    y.x = tensor_reshape_n(ns ? tensor_bmm(p, q) : tensor_mul(p, q), dims, n);
    *a = y;
    return y.x != TENSOR__POISON;
}

TENSOR_API tensor_t *(tensor_tensordot_dims)(tensor_t *a, tensor_t *b, const int64_t *dims_a,
                                             const int64_t *dims_b, int n) {
    TENSOR__MARK
    if (!TENSOR__USABLE("tensordot", "a", a) || !TENSOR__USABLE("tensordot", "b", b) ||
        !tensor__dims_given("tensordot", dims_a, n) ||
        !tensor__dims_given("tensordot", dims_b, n)) { return TENSOR__POISON; }
    tensor__labelled_t l = {a, a->ndim, {0}}, r = {b, b->ndim, {0}};
    uint64_t keep = ~(uint64_t)0;
    for (int d = 0; d < a->ndim; d++) { l.label[d] = (int8_t)d; }
    for (int d = 0; d < b->ndim; d++) { r.label[d] = (int8_t)(8 + d); }
    for (int i = 0; i < n; i++) {
        int d = tensor__dim("tensordot", dims_a[i], a);
        int e = d < 0 ? d : tensor__dim("tensordot", dims_b[i], b);
        if (e < 0) { return TENSOR__POISON; }
        TENSOR__REFUSE(!a->ndim || !b->ndim || !(keep >> d & 1) || r.label[e] < 8, INDEX,
                       "tensordot: dim %i of a %t or %i of b %t appears twice", d, a, e, b);
        TENSOR__REFUSE(a->dims[d] != b->dims[e] && a->dims[d] != 1 && b->dims[e] != 1, SHAPE,
                       "tensordot: dim %i of a %t and dim %i of b %t do not agree", d, a, e, b);
        keep &= ~((uint64_t)1 << d);
        r.label[e] = (int8_t)d;
    }
    TENSOR__RETURN(tensor__contract("tensordot", &l, &r, keep) ? l.x : TENSOR__POISON);
}
TENSOR_API tensor_t *(tensor_tensordot)(tensor_t *a, tensor_t *b, int n) {
    int64_t da[TENSOR_MAX_DIMS], db[TENSOR_MAX_DIMS];
    TENSOR__REFUSE(tensor__live(a) && tensor__live(b) && (n < 0 || n > a->ndim || n > b->ndim), SHAPE,
                   "tensordot: a %t and b %t have no %i dims to sum", a, b, n);
    for (int i = 0; i < n && i < TENSOR_MAX_DIMS; i++) { da[i] = i - n; db[i] = i; }
    return (tensor_tensordot_dims)(a, b, da, db, n);
}
TENSOR_API tensor_t *(tensor_inner)(tensor_t *a, tensor_t *b) {
    int64_t last = -1;
    if (tensor__live(a) && tensor__live(b)) {
        if (!a->ndim || !b->ndim) { return (tensor_mul)(a, b); }
        TENSOR__REFUSE(TENSOR__WIDE(a) != TENSOR__WIDE(b), SHAPE,
                       "inner: the last dims of a %t and b %t do not agree", a, b);
    }
    return tensor__named(tensor__self(), (tensor_tensordot_dims)(a, b, &last, &last, 1), __func__);
}

// The labels of one term: letters are 0..51 (A-Z, a-z), the dims of ... the labels up to 59. Gives the end of
// the term, NULL after raising.
TENSOR__FN const char *tensor__einsum_term(const char *s, tensor__labelled_t *a, const char *equation,
                                           int k) {
    int letters = 0, dots = 0, n = 0;
    const char *e = s;
    for (; *e && *e != ',' && *e != '-'; e++) {
        int upper = *e >= 'A' && *e <= 'Z', lower = *e >= 'a' && *e <= 'z';
        if (*e == '.' && e[1] == '.' && e[2] == '.' && !dots) { dots = 1; e += 2; continue; }
        TENSOR__REFUSE_AS(NULL, !upper && !lower && *e != ' ', FORMAT, "einsum: cannot read \"%s\" in \"%s\"",
                          e, equation);
        letters += upper || lower;
    }
    TENSOR__REFUSE_AS(NULL, letters > a->x->ndim || (!dots && letters < a->x->ndim), SHAPE,
                      "einsum: tensor %i %t has %i dims, its term in \"%s\" names %i", k, a->x,
                      (int)a->x->ndim, equation, letters);
    for (; s < e; s++) {
        if (*s == '.') {
            for (int i = a->x->ndim - letters; i > 0; i--) { a->label[n++] = (int8_t)(60 - i); }
            s += 2;
        } else if (*s != ' ') {
            a->label[n++] = (int8_t)(*s >= 'a' ? *s - 'a' + 26 : *s - 'A');
        }
    }
    a->n = n;
    return e;
}
TENSOR_API tensor_t *(tensor_einsum_n)(const char *equation, tensor_t *const *list, int n) {
    TENSOR__MARK
    int64_t size[64];
    int last[64], count[64], nout = 0;
    int8_t out[64];
    uint64_t keep = 0;
    for (int l = 0; l < 64; l++) { size[l] = -1; last[l] = -1; count[l] = 0; }
    TENSOR__REFUSE(!equation || !list || n < 1, FORMAT, "einsum: needs an equation and at least one tensor");
    const char *s = equation;
    for (int k = 0; k < n; k++) {       // sizes, and which operand has a label last
        if (!TENSOR__USABLE("einsum", "list", list[k])) { return TENSOR__POISON; }
        tensor__labelled_t a = {list[k], 0, {0}};
        if (!(s = tensor__einsum_term(s, &a, equation, k))) { return TENSOR__POISON; }
        for (int d = 0; d < a.n; d++) {
            int l = a.label[d];
            TENSOR__REFUSE(size[l] >= 0 && size[l] != a.x->dims[d] && size[l] != 1 && a.x->dims[d] != 1,
                           SHAPE, "einsum: dim %i of tensor %i %t does not fit the size %d it has before in "
                           "\"%s\"", d, k, a.x, size[l], equation);
            if (size[l] < 0 || size[l] == 1) { size[l] = a.x->dims[d]; }
            last[l] = k;
            count[l]++;
        }
        TENSOR__REFUSE((*s == ',') != (k + 1 < n), FORMAT, "einsum: \"%s\" has not %i terms", equation, n);
        if (*s == ',') { s++; }
    }
    if (*s == '-') {
        int dots = 0;
        TENSOR__REFUSE(*++s != '>', FORMAT, "einsum: cannot read \"%s\" in \"%s\"", s, equation);
        for (s++; *s; s++) {
            if (*s == ' ') { continue; }
            int first = *s >= 'a' ? *s - 'a' + 26 : *s - 'A', end = first + 1;
            int ok = (*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z');
            if (*s == '.' && s[1] == '.' && s[2] == '.' && !dots) {
                s += 2;
                dots = 1;
                first = 52;
                end = 60;
            } else if (!ok || size[first] < 0 || (keep >> first & 1)) {
                return tensor__fail(th_, TENSOR_ERR_FORMAT,
                                    "einsum: \"%s\" in \"%s\" is no label of the inputs, or there twice", s,
                                    equation);
            }
            for (int l = first; l < end; l++) {
                if (size[l] >= 0) { out[nout++] = (int8_t)l; keep |= (uint64_t)1 << l; }
            }
        }
    } else {                            // what is not repeated, in alphabetical order
        for (int i = 0; i < 64; i++) {
            int l = i < 8 ? 52 + i : i - 8;
            if (l < 60 && (l >= 52 ? count[l] > 0 : count[l] == 1)) {
                out[nout++] = (int8_t)l;
                keep |= (uint64_t)1 << l;
            }
        }
    }
    tensor__labelled_t acc = {NULL, 0, {0}};
    s = equation;
    for (int k = 0; k < n; k++) {
        tensor__labelled_t a = {list[k], 0, {0}};
        s = tensor__einsum_term(s, &a, equation, k) + 1;
        for (int d = 0; d < a.n; d++) { // a label twice: the diagonal
            for (int e = d + 1; e < a.n; e++) {
                if (a.label[e] != a.label[d]) { continue; }
                int8_t label = a.label[d];
                if (a.x->dims[d] != a.x->dims[e]) {
                    tensor__fail(th_, TENSOR_ERR_SHAPE,
                                 "einsum: dims %i and %i of %t have one label in \"%s\" but differ", d, e,
                                 a.x, equation);
                    TENSOR__RETURN(TENSOR__POISON);
                }
                a.x = tensor__diagonal(tensor_movedim(tensor_movedim(a.x, e, -1), d, -2));
                if (a.x == TENSOR__POISON) { TENSOR__RETURN(a.x); }
                tensor__label_drop(&a, e);
                tensor__label_drop(&a, d);
                a.label[a.n++] = label;
                d = -1;
                break;
            }
        }
        uint64_t later = keep;
        for (int l = 0; l < 60; l++) { if (last[l] > k) { later |= (uint64_t)1 << l; } }
        if (!k) {
            acc = a;
            tensor__label_sum(&acc, later);
        } else if (!tensor__contract("einsum", &acc, &a, later)) {
            TENSOR__RETURN(TENSOR__POISON);
        }
    }
    TENSOR__RETURN(tensor__label_order(&acc, out, acc.n));
}

// Best brackets for products of matrices dims[i] x dims[i+1] (Cormen et al., Introduction to Algorithms,
// 15.2): cut[i][j] is where the product of i..j is split.
TENSOR__FN tensor_t *tensor__chain(tensor_t *const *list, const int64_t *cut, int n, int i, int j) {
    if (i == j) { return list[i]; }
    int k = (int)cut[i * n + j];
    return tensor_matmul(tensor__chain(list, cut, n, i, k), tensor__chain(list, cut, n, k + 1, j));
}
TENSOR__FN tensor_t *tensor__multi_dot(const char *op, tensor_t *const *list, int n, int vectors) {
    TENSOR__MARK
    if (!list || n < 1) { return tensor__no_list(op, list, n); }
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE(op, "list", list[i])) { return TENSOR__POISON; }
        int vector = vectors && n > 1 && (i == 0 || i == n - 1) && list[i]->ndim == 1;
        TENSOR__REFUSE(list[i]->ndim != 2 && !vector, SHAPE, "%s: tensor %i %t must be a matrix", op, i,
                       list[i]);
        TENSOR__REFUSE(i && list[i - 1]->dims[list[i - 1]->ndim - 1] != list[i]->dims[0], SHAPE,
                       "%s: tensors %i %t and %i %t do not agree on K", op, i - 1, list[i - 1], i, list[i]);
    }
    uint64_t cells = (uint64_t)n * (uint64_t)n;
    char *memory = (char *)tensor__memory(th_, cells * 16);
    if (!memory) { return TENSOR__POISON; }
    double *cost = (double *)(void *)memory;
    int64_t *cut = (int64_t *)(void *)(memory + cells * 8);
    for (int len = 1; len < n; len++) {
        for (int i = 0; i + len < n; i++) {
            int j = i + len;
            double rows = list[i]->ndim == 2 ? (double)list[i]->dims[0] : 1;
            double cols = list[j]->ndim == 2 ? (double)list[j]->dims[1] : 1;
            for (int k = i; k < j; k++) {
                double c = cost[i * n + k] + cost[(k + 1) * n + j] +
                           rows * (double)list[k + 1]->dims[0] * cols;
                if (k == i || c < cost[i * n + j]) { cost[i * n + j] = c; cut[i * n + j] = k; }
            }
        }
    }
    tensor_t *y = n == 1 ? tensor_clone(list[0]) : tensor__chain(list, cut, n, 0, n - 1);
    tensor__memory_free(th_, memory);
    TENSOR__RETURN(y);
}
TENSOR_API tensor_t *(tensor_linalg_multi_dot_n)(tensor_t *const *list, int n) {
    TENSOR__REFUSE(list && n == 1, SHAPE, "linalg_multi_dot: needs at least 2 tensors");
    return tensor__multi_dot("linalg_multi_dot", list, n, 1);
}
TENSOR__FRONT(chain_matmul_n, (tensor_t *const *list, int n), tensor__multi_dot("chain_matmul", list, n, 0))
TENSOR_API tensor_t *(tensor_kron)(tensor_t *a, tensor_t *b) {
    TENSOR__MARK2(a, b)
    int n = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t da[TENSOR_MAX_DIMS], db[TENSOR_MAX_DIMS], dims[TENSOR_MAX_DIMS];
    TENSOR__REFUSE(n > TENSOR_MAX_DIMS / 2, SHAPE, "kron: a %t and b %t have more than 4 dims", a, b);
    for (int d = 0; d < n; d++) {
        int ka = d - (n - a->ndim), kb = d - (n - b->ndim);
        da[2 * d] = ka < 0 ? 1 : a->dims[ka];
        db[2 * d + 1] = kb < 0 ? 1 : b->dims[kb];
        da[2 * d + 1] = db[2 * d] = 1;
        dims[d] = da[2 * d] * db[2 * d + 1];
    }
    tensor_t *y = tensor_mul(tensor_reshape_n(a, da, 2 * n), tensor_reshape_n(b, db, 2 * n));
    TENSOR__RETURN(tensor_reshape_n(y, dims, n));
}
// The three places along d moved on by k.
TENSOR__FN tensor_t *tensor__roll3(tensor_t *x, int d, int k) {
    if (x == TENSOR__POISON) { return x; }
    tensor_t *const parts[2] = {tensor__slice(x, d, k, 1, 3 - k), tensor__slice(x, d, 0, 1, k)};
    return tensor_cat_n(parts, 2, d);
}
TENSOR__FN tensor_t *tensor__cross(const char *op, tensor_t *a, tensor_t *b, int64_t dim) {
    TENSOR__MARK
    if (!TENSOR__USABLE(op, "a", a) || !TENSOR__USABLE(op, "b", b)) { return TENSOR__POISON; }
    int64_t dims[TENSOR_MAX_DIMS];
    int n = 0, d = a->ndim == b->ndim ? tensor__dim(op, dim, a) : 0;
    if (d < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(a->ndim != b->ndim || !a->ndim || a->dims[d] != 3 || b->dims[d] != 3 ||
                   !tensor__broadcast(dims, &n, a->dims, a->ndim) || !tensor__broadcast(dims, &n, b->dims, n),
                   SHAPE, "%s: a %t and b %t must have size 3 along dim %d and broadcast otherwise", op, a, b,
                   dim);
    a = tensor_expand_n(a, dims, n);
    b = tensor_expand_n(b, dims, n);
    TENSOR__RETURN(tensor_sub(tensor_mul(tensor__roll3(a, d, 1), tensor__roll3(b, d, 2)),
                              tensor_mul(tensor__roll3(a, d, 2), tensor__roll3(b, d, 1))));
}
TENSOR__FRONT(linalg_cross, (tensor_t *a, tensor_t *b, int64_t dim), tensor__cross("linalg_cross", a, b, dim))
TENSOR__FRONT(cross, (tensor_t *a, tensor_t *b, int64_t dim), tensor__cross("cross", a, b, dim))
TENSOR__FN tensor_t *tensor__tri(int id, tensor_t *x, int64_t diagonal) {
    TENSOR__MARK
    TENSOR__BEGIN(o, tensor__row(id), x)
    TENSOR__REFUSE(x->ndim < 2, SHAPE, "%s: x %t needs at least 2 dims", o.row->name, x);
    int64_t far_away = (int64_t)1 << 60;
    o.args[0] = tensor_contiguous(x);
    if (o.args[0] == TENSOR__POISON) { return TENSOR__POISON; }
    tensor__ints(&o, diagonal > far_away ? far_away : diagonal < -far_away ? -far_away : diagonal, 0);
    tensor__result(&o, x->dtype, x->dims, x->ndim);
    TENSOR__RETURN(tensor__finish(&o));
}
TENSOR__FRONT(tril, (tensor_t *x, int64_t diagonal), tensor__tri(TENSOR_OP_TRIL, x, diagonal))
TENSOR__FRONT(triu, (tensor_t *x, int64_t diagonal), tensor__tri(TENSOR_OP_TRIU, x, diagonal))
TENSOR__FN void tensor__grad_tril(tensor__grad_t *g) {
    g->gx[0] = tensor__tri(g->node->row->id, g->gy[0], g->p->i[0]);
}

// ---- torch.linalg: kernels ----
// A matrix is copied into the worker's scratch as doubles in rows, worked on there, rounded once on its way
// out. Items of a batch are cut over threads. Rejected: f32 arithmetic (half the memory, but a condition
// number of 1e4 leaves three digits), blocking (nothing to gain below some 500 rows).

typedef struct tensor__la_t {
    tensor_call_t *c;
    int64_t m, n, k, items, per, room;  // matrices m x n, k the smaller; items per task, doubles per worker
    int64_t *info;                      // what went wrong with an item, 0 = nothing
    double *work;
} tensor__la_t;
TENSOR__END

// Four chains: the sum does not wait for each addition.
TENSOR__FN double tensor__la_dot(const double *x, const double *y, int64_t n) {
    double s[4] = {0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) { for (int k = 0; k < 4; k++) { s[k] += x[i + k] * y[i + k]; } }
    for (; i < n; i++) { s[0] += x[i] * y[i]; }
    return (s[0] + s[1]) + (s[2] + s[3]);
}
TENSOR__FN void tensor__la_axpy(double *TENSOR__RESTRICT y, double a, const double *TENSOR__RESTRICT x,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) { y[i] += a * x[i]; }
}
// (x, y) turned: c x + s y, c y - s x.
TENSOR__FN void tensor__la_turn(double *TENSOR__RESTRICT x, double *TENSOR__RESTRICT y, double c, double s,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double a = x[i], b = y[i];
        x[i] = c * a + s * b;
        y[i] = c * b - s * a;
    }
}
TENSOR__FN void tensor__la_swap(double *x, double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) { double a = x[i]; x[i] = y[i]; y[i] = a; }
}
TENSOR__FN void tensor__la_identity(double *x, int64_t m, int64_t n) {
    memset(x, 0, (size_t)(m * n) * sizeof *x);
    for (int64_t i = 0; i < m && i < n; i++) { x[i * n + i] = 1; }
}
// The power of two that brings the largest element to about 1; 0 if x is 0, NaN if an element is no number.
TENSOR__FN double tensor__la_scale(const double *x, int64_t n) {
    double big = 0;
    int e;
    for (int64_t i = 0; i < n; i++) { big = tensor__max_f64(big, fabs(x[i])); }
    if (!(big <= 1.7976931348623157e308)) { return (double)NAN; }
    if (big == 0) { return 0; }
    (void)frexp(big, &e);
    return ldexp(1, e > 1000 ? -1000 : e < -1000 ? 1000 : -e);
}
// Makes x = (beta, v[1], v[2], ..) so that I - tau v vT, v[0] = 1, takes the old x to (beta, 0, ..). -> tau
// (Golub & Van Loan, Matrix Computations, 5.1; sign of beta and tau = 0 for a zero tail as LAPACK's dlarfg).
TENSOR__FN double tensor__la_house(double *x, int64_t stride, int64_t n) {
    double big = 0, sum = 0, a = x[0];
    for (int64_t i = 1; i < n; i++) { big = tensor__max_f64(big, fabs(x[i * stride])); }
    if (big == 0) { return 0; }
    for (int64_t i = 1; i < n; i++) { double t = x[i * stride] / big; sum += t * t; }
    double r = hypot(a, big * sqrt(sum)), beta = a >= 0 ? -r : r;
    for (int64_t i = 1; i < n; i++) { x[i * stride] /= a - beta; }
    x[0] = beta;
    return (beta - a) / beta;
}
// (I - tau v vT) b for m rows of b; w: cols doubles.
TENSOR__FN void tensor__la_reflect(const double *v, int64_t stride, int64_t m, double tau, double *b,
                                   int64_t row, int64_t cols, double *w) {
    if (tau == 0) { return; }
    for (int64_t i = 0; i < cols; i++) { w[i] = b[i]; }
    for (int64_t i = 1; i < m; i++) { tensor__la_axpy(w, v[i * stride], b + i * row, cols); }
    for (int64_t i = 0; i < m; i++) {
        tensor__la_axpy(b + i * row, i ? -tau * v[i * stride] : -tau, w, cols);
    }
}
// LU with partial pivoting, row by row (Golub & Van Loan 3.4).
TENSOR__FN void tensor__la_lu(double *a, int64_t m, int64_t n, int64_t *swaps) {
    for (int64_t j = 0; j < m && j < n; j++) {
        int64_t p = j;
        for (int64_t i = j + 1; i < m; i++) { if (fabs(a[i * n + j]) > fabs(a[p * n + j])) { p = i; } }
        swaps[j] = p;
        if (p != j) { tensor__la_swap(a + p * n, a + j * n, n); }
        if (a[j * n + j] == 0) { continue; }
        for (int64_t i = j + 1; i < m; i++) {
            double f = a[i * n + j] /= a[j * n + j];
            tensor__la_axpy(a + i * n + j + 1, -f, a + j * n + j + 1, n - j - 1);
        }
    }
}
// b = a^-1 b for one triangle of a, r columns of b.
TENSOR__FN void tensor__la_triangular(const double *a, int64_t n, double *b, int64_t r, int upper, int unit) {
    for (int64_t k = 0; k < n; k++) {
        int64_t i = upper ? n - 1 - k : k, end = upper ? n : i;
        for (int64_t j = upper ? i + 1 : 0; j < end; j++) {
            tensor__la_axpy(b + i * r, -a[i * n + j], b + j * r, r);
        }
        for (int64_t j = 0; j < r && !unit; j++) { b[i * r + j] /= a[i * n + i]; }
    }
}
// Eigenvalues d, ascending, eigenvectors in the rows of z; a is used up, w: 3 n doubles. Householder
// tridiagonalisation, implicit QR steps with Wilkinson's shift (Golub & Van Loan 8.3). 0 = no convergence.
TENSOR__FN int tensor__la_eigh(double *a, int64_t n, double *d, double *z, double *w) {
    double scale = tensor__la_scale(a, n * n), *e = w + n, *tau = w + 2 * n;
    tensor__la_identity(z, n, n);
    for (int64_t i = 0; i < n; i++) { d[i] = 0; }
    if (scale == 0) { return 1; }
    for (int64_t i = 0; i < n * n; i++) { a[i] *= scale; }
    for (int64_t k = 0; k + 2 < n; k++) {
        double *v = a + k * n + k + 1, *rest = v + n;
        int64_t l = n - k - 1;
        tau[k] = tensor__la_house(v, 1, l);
        e[k] = v[0];
        v[0] = 1;
        if (tau[k] == 0) { continue; }
        memset(w, 0, (size_t)l * sizeof *w);    // rest -= v uT + u vT, u = tau (rest v) - (tau/2)(..) v
        for (int64_t i = 0; i < l; i++) { tensor__la_axpy(w, tau[k] * v[i], rest + i * n, l); }
        tensor__la_axpy(w, -0.5 * tau[k] * tensor__la_dot(w, v, l), v, l);
        for (int64_t i = 0; i < l; i++) {
            tensor__la_axpy(rest + i * n, -v[i], w, l);
            tensor__la_axpy(rest + i * n, -w[i], v, l);
        }
    }
    for (int64_t i = 0; i < n; i++) { d[i] = a[i * n + i]; }
    if (n > 1) { e[n - 2] = a[(n - 2) * n + n - 1]; }
    for (int64_t k = n - 3; k >= 0; k--) {
        tensor__la_reflect(a + k * n + k + 1, 1, n - k - 1, tau[k], z + (k + 1) * n + k + 1, n, n - k - 1, w);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) { tensor__la_swap(z + i * n + j, z + j * n + i, 1); }
    }
    int64_t hi = n - 1, turns = 0;
    while (hi > 0) {
        int64_t lo = hi;
        while (lo > 0 && fabs(e[lo - 1]) > 2.2204460492503131e-16 * (fabs(d[lo - 1]) + fabs(d[lo])) + 1e-40) {
            lo--;
        }
        if (lo == hi) { hi--; continue; }
        if (++turns > 60 * n) { return 0; }
        double h = (d[hi - 1] - d[hi]) / 2, b = e[hi - 1], r = hypot(h, b);
        double x = d[lo] - (d[hi] - b * (b / (h >= 0 ? h + r : h - r))), y = e[lo];
        for (int64_t k = lo; k < hi; k++) {
            r = hypot(x, y);
            double c = r == 0 ? 1 : x / r, s = r == 0 ? 0 : y / r, p = d[k], q = d[k + 1], f = e[k];
            if (k > lo) { e[k - 1] = r; }
            d[k] = c * c * p + 2 * c * s * f + s * s * q;
            d[k + 1] = s * s * p - 2 * c * s * f + c * c * q;
            e[k] = c * s * (q - p) + (c * c - s * s) * f;
            x = e[k];
            if (k + 1 < hi) { y = s * e[k + 1]; e[k + 1] *= c; }
            tensor__la_turn(z + k * n, z + (k + 1) * n, c, s, n);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++) { if (d[j] < d[least]) { least = j; } }
        if (least != i) {
            double t = d[i];
            d[i] = d[least];
            d[least] = t;
            tensor__la_swap(z + i * n, z + least * n, n);
        }
        d[i] /= scale;
    }
    return 1;
}
// Singular values s, descending, of the matrix whose n columns are the rows of a (length m >= n): left
// vectors in the rows of u (`rows` of them, n or m), right ones in the rows of v. g: n n, w: 3 n doubles.
// One-sided Jacobi (Golub & Van Loan 8.6.3) after a change of basis that leaves it little to do, to the
// eigenvectors of aT a (preconditioning it: Drmac & Veselic, SIAM J. Matrix Anal. Appl. 29, 2008).
TENSOR__FN int tensor__la_svd(double *a, int64_t m, int64_t n, double *u, int64_t rows, double *s, double *v,
                              double *g, double *w) {
    double scale = tensor__la_scale(a, m * n), most = 0;
    for (int64_t i = 0; i < m * n; i++) { a[i] *= scale; }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            g[i * n + j] = g[j * n + i] = tensor__la_dot(a + i * m, a + j * m, m);
        }
    }
    if (!tensor__la_eigh(g, n, s, v, w)) { return 0; }
    for (int64_t i = 0; i < n / 2; i++) { tensor__la_swap(v + i * n, v + (n - 1 - i) * n, n); }
    memset(u, 0, (size_t)(rows * m) * sizeof *u);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) { tensor__la_axpy(u + i * m, v[i * n + j], a + j * m, m); }
    }
    for (int sweep = 0, turned = 1; turned; sweep++) {
        if (sweep == 60) { return 0; }
        turned = 0;
        for (int64_t i = 0; i < n; i++) {
            s[i] = tensor__la_dot(u + i * m, u + i * m, m);
            most = s[i] > most ? s[i] : most;
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = i + 1; j < n; j++) {
                double cross = tensor__la_dot(u + i * m, u + j * m, m);
                if (!(s[i] > 1e-36 * most && s[j] > 1e-36 * most) ||
                    fabs(cross) <= 2.2204460492503131e-16 * sqrt((double)m * s[i] * s[j])) {
                    continue;
                }
                double zeta = (s[j] - s[i]) / (2 * cross);
                double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + hypot(1, zeta)), c = 1 / hypot(1, t);
                tensor__la_turn(u + i * m, u + j * m, c, -t * c, m);
                tensor__la_turn(v + i * n, v + j * n, c, -t * c, n);
                s[i] -= t * cross;
                s[j] += t * cross;
                turned = 1;
            }
        }
    }
    int64_t have = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;
        for (int64_t j = i; j < n; j++) {
            if (i == 0) { s[j] = sqrt(tensor__la_dot(u + j * m, u + j * m, m)); }
            if (s[j] > s[best]) { best = j; }
        }
        if (best != i) {
            double t = s[i];
            s[i] = s[best];
            s[best] = t;
            tensor__la_swap(u + i * m, u + best * m, m);
            tensor__la_swap(v + i * n, v + best * n, n);
        }
        if (s[i] <= 1e-18 * sqrt(most)) { continue; }
        for (int64_t j = 0; j < m; j++) { u[i * m + j] /= s[i]; }
        have++;
    }
    for (int64_t i = 0; i < n && scale != 0; i++) { s[i] /= scale; }
    // The rest of an orthonormal basis: the unit vector least covered, made orthogonal twice to all.
    for (; have < rows; have++) {
        double *x = u + have * m, least = 2;
        int64_t best = 0;
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t i = 0; i < have; i++) { sum += u[i * m + j] * u[i * m + j]; }
            if (sum < least) { least = sum; best = j; }
        }
        memset(x, 0, (size_t)m * sizeof *x);
        x[best] = 1;
        for (int64_t i = 0; i < 2 * have; i++) {
            const double *y = u + i % have * m;
            tensor__la_axpy(x, -tensor__la_dot(x, y, m), y, m);
        }
        double norm = sqrt(tensor__la_dot(x, x, m));
        for (int64_t j = 0; j < m; j++) { x[j] /= norm; }
    }
    return 1;
}

// One item in and out; turn: transposed. rows x cols are those of the copy in scratch.
TENSOR__FN void tensor__la_load(double *to, const tensor_arg_t *x, int64_t item, int turn) {
    int d = x->ndim - 2, r = d + turn, c = d + 1 - turn, size = tensor__sizes[x->dtype];
    const char *at = (const char *)x->data + tensor__offset_of(item, x->dims, x->strides, d) * size;
    for (int64_t i = 0; i < x->dims[r]; i++) {
        tensor__load_f64(to + i * x->dims[c], at + i * x->strides[r] * size, x->dtype, x->strides[c],
                         x->dims[c]);
    }
}
TENSOR__FN void tensor__la_store(const tensor_arg_t *y, int64_t item, const double *from, int64_t rows,
                                 int64_t cols, int turn) {
    int size = tensor__sizes[y->dtype];
    char *to = (char *)y->data + item * rows * cols * size;
    for (int64_t i = 0; i < rows; i++) {
        tensor__store_f64(to + i * (turn ? 1 : cols) * size, y->dtype, turn ? rows : 1, from + i * cols,
                          cols);
    }
}
TENSOR__FN int64_t tensor__la_item(const tensor__la_t *l, int64_t item, double *w) {
    tensor_call_t *c = l->c;
    const tensor_arg_t *x = &c->arg[0], *y = &c->arg[c->nin];
    int64_t m = l->m, n = l->n, k = l->k, bad = 0, *swaps = (int64_t *)(void *)w;
    double *a = w + 8 * (m + n + 8), *b = a + m * n;    // w: small vectors
    if (c->row->id == TENSOR_OP_LINALG_SWAPS) {
        int64_t *order = swaps + n;
        tensor__load_i64(swaps, (const char *)x->data + item * n * 4, x->dtype, 1, n);
        for (int64_t i = 0; i < m; i++) { order[i] = i; }
        for (int64_t i = 0; i < n; i++) {
            if (swaps[i] < 1 || swaps[i] > m) { return i + 1; }
            int64_t t = order[i];
            order[i] = order[swaps[i] - 1];
            order[swaps[i] - 1] = t;
        }
        tensor__store_i64((char *)y->data + item * m * 8, y->dtype, 1, order, m);
        return 0;
    }
    int wide = c->row->id == TENSOR_OP_LINALG_SVD && m < n;
    tensor__la_load(a, x, item, c->row->id == TENSOR_OP_LINALG_SVD && !wide);
    switch (c->row->id) {
    case TENSOR_OP_LINALG_CHOLESKY:     // by rows (Golub & Van Loan 4.2)
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j <= i; j++) {
                double s = a[i * n + j] - tensor__la_dot(a + i * n, a + j * n, j);
                if (i == j && !(s > 0)) { return i + 1; }
                a[i * n + j] = i == j ? sqrt(s) : s / a[j * n + j];
            }
            for (int64_t j = i + 1; j < n; j++) { a[i * n + j] = 0; }
        }
        tensor__la_store(y, item, a, n, n, 0);
        break;
    case TENSOR_OP_LINALG_DET: {
        double r[3] = {1, 1, 0};        // determinant, sign, log
        tensor__la_lu(a, n, n, swaps);
        for (int64_t i = 0; i < n; i++) {
            double p = swaps[i] == i ? a[i * n + i] : -a[i * n + i];
            r[0] *= p;
            r[1] *= p > 0 ? 1 : p < 0 ? -1 : p;
            r[2] += log(fabs(p));
        }
        for (int i = 0; i < 3; i++) { tensor__la_store(y + i, item, r + i, 1, 1, 0); }
        break;
    }
    case TENSOR_OP_LINALG_LU_FACTOR:
        tensor__la_lu(a, m, n, swaps);
        for (int64_t i = 0; i < k; i++) { swaps[i]++; }
        tensor__la_store(y, item, a, m, n, 0);
        tensor__store_i64((char *)y[1].data + item * k * 4, y[1].dtype, 1, swaps, k);
        break;
    case TENSOR_OP_LINALG_SOLVE: case TENSOR_OP_LINALG_SOLVE_TRIANGULAR: {
        int64_t r = TENSOR__WIDE(y);
        tensor__la_load(b, x + 1, item, 0);
        if (c->row->id == TENSOR_OP_LINALG_SOLVE_TRIANGULAR) {
            tensor__la_triangular(a, n, b, r, (int)c->p->i[0], (int)c->p->i[1]);
        } else {
            tensor__la_lu(a, n, n, swaps);
            for (int64_t i = 0; i < n; i++) {
                if (a[i * n + i] == 0) { return i + 1; }
                if (swaps[i] != i) { tensor__la_swap(b + i * r, b + swaps[i] * r, r); }
            }
            tensor__la_triangular(a, n, b, r, 0, 1);
            tensor__la_triangular(a, n, b, r, 1, 0);
        }
        tensor__la_store(y, item, b, n, r, 0);
        break;
    }
    case TENSOR_OP_LINALG_QR: {         // Golub & Van Loan 5.2
        int64_t cols = TENSOR__WIDE(y);
        double *tau = w, *v = w + k;
        for (int64_t j = 0; j < k; j++) {
            tau[j] = tensor__la_house(a + j * n + j, n, m - j);
            tensor__la_reflect(a + j * n + j, n, m - j, tau[j], a + j * n + j + 1, n, n - j - 1, v);
        }
        tensor__la_identity(b, m, cols);
        for (int64_t j = k - 1; j >= 0; j--) {
            tensor__la_reflect(a + j * n + j, n, m - j, tau[j], b + j * cols + j, cols, cols - j, v);
        }
        for (int64_t i = 1; i < m; i++) { for (int64_t j = 0; j < i && j < n; j++) { a[i * n + j] = 0; } }
        tensor__la_store(y, item, b, m, cols, 0);
        tensor__la_store(y + 1, item, a, cols, n, 0);
        break;
    }
    case TENSOR_OP_LINALG_EIGH:
        for (int64_t i = 0; i < n; i++) {       // one triangle counts
            for (int64_t j = 0; j < i; j++) {
                if (c->p->i[0]) { a[i * n + j] = a[j * n + i]; } else { a[j * n + i] = a[i * n + j]; }
            }
        }
        if (tensor__isnan_f64(tensor__la_scale(a, n * n))) { return 1; }
        if (!tensor__la_eigh(a, n, w, b, w + n)) { return 2; }
        tensor__la_store(y, item, w, 1, n, 0);
        tensor__la_store(y + 1, item, b, n, n, 1);
        break;
    default: {                          // SVD; a has the longer side in its rows
        int64_t big = wide ? n : m, rows = y[wide ? 2 : 1].dims[y[wide ? 2 : 1].ndim - (wide ? 2 : 1)];
        double *v = b + rows * big;
        if (tensor__isnan_f64(tensor__la_scale(a, m * n))) { return 1; }
        if (!tensor__la_svd(a, big, k, b, rows, w, v, v + k * k, w + k)) { return 2; }
        tensor__la_store(y, item, w, 1, k, 0);
        tensor__la_store(y + 1, item, wide ? v : b, wide ? k : rows, wide ? k : big, 1);
        tensor__la_store(y + 2, item, wide ? b : v, wide ? rows : k, wide ? big : k, 0);
        break;
    }
    }
    return bad;
}
TENSOR__FN void tensor__la_task(void *arg, int64_t task, int worker) {
    tensor__la_t *l = (tensor__la_t *)arg;
    int64_t end = tensor__least((task + 1) * l->per, l->items);
    for (int64_t i = task * l->per; i < end; i++) {
        l->info[i] = tensor__la_item(l, i, l->work + worker * l->room);
    }
}
// Sizes; -> bytes of scratch, UINT64_MAX = too many.
TENSOR__FN uint64_t tensor__la_describe(const tensor_call_t *c, tensor__la_t *l) {
    const tensor_arg_t *x = &c->arg[0];
    int swaps = c->row->id == TENSOR_OP_LINALG_SWAPS;
    uint64_t room, bytes;
    l->n = TENSOR__WIDE(x);
    l->m = swaps ? c->p->i[0] : TENSOR__HIGH(x);
    l->k = l->m < l->n ? l->m : l->n;
    l->items = 1;
    for (int d = 0; d < x->ndim - (swaps ? 1 : 2); d++) { l->items *= x->dims[d]; }
    if (!l->items) { return 0; }
    room = 8 * ((uint64_t)l->m + (uint64_t)l->n + 8) + (swaps ? 0 : (uint64_t)l->k * (uint64_t)l->k);
    for (int i = 0; i < c->nin + c->nout && !swaps; i++) { room += (uint64_t)(c->arg[i].numel / l->items); }
    l->room = (int64_t)room;
    l->per = 1 + 4096 / ((int64_t)room + 1);
    return tensor__mul_u64(room * 8, (uint64_t)c->thread->ctx->pool.n, &bytes) ?
        bytes + (uint64_t)l->items * 8 : UINT64_MAX;
}
TENSOR__FN uint64_t tensor__scratch_linalg(const tensor_call_t *c) {
    tensor__la_t l;
    return tensor__la_describe(c, &l);
}
TENSOR__FN int tensor__cpu_linalg(tensor_call_t *c) {
    tensor__la_t l;
    const tensor_arg_t *x = &c->arg[0];
    if (!tensor__la_describe(c, &l)) { return 0; }
    l.c = c;
    l.info = (int64_t *)c->scratch;
    l.work = (double *)c->scratch + l.items;
    tensor__parallel((l.items + l.per - 1) / l.per, tensor__la_task, &l);
    for (int64_t i = 0; i < l.items; i++) {
        const char *op = c->row->name;
        int64_t bad = l.info[i];
        if (!bad) { continue; }
        switch (c->row->id) {
        case TENSOR_OP_LINALG_CHOLESKY:
            tensor__fail(c->thread, TENSOR_ERR_LINALG, "%s: matrix %d of x %n is not positive definite: its "
                         "leading minor of order %d is not positive", op, i, x->dims, (int)x->ndim, bad);
            break;
        case TENSOR_OP_LINALG_SOLVE:
            tensor__fail(c->thread, TENSOR_ERR_LINALG, "%s: matrix %d of a %n is singular: pivot %d is 0", op,
                         i, x->dims, (int)x->ndim, bad);
            break;
        case TENSOR_OP_LINALG_SWAPS:
            tensor__fail(c->thread, TENSOR_ERR_INDEX, "%s: pivot %d of matrix %d is outside 1..%d", op,
                         bad - 1, i, l.m);
            return TENSOR_ERR_INDEX;
        default:
            tensor__fail(c->thread, TENSOR_ERR_LINALG, bad == 1 ? "%s: matrix %d of x %n has inf or NaN" :
                         "%s: no convergence for matrix %d of x %n", op, i, x->dims, (int)x->ndim);
            break;
        }
        return TENSOR_ERR_LINALG;
    }
    return 0;
}

// ---- torch.linalg: fronts ----

TENSOR__COLD
TENSOR__FN int tensor__la_usable(const char *op, const char *arg, tensor_t *x, int square) {
    if (!TENSOR__USABLE(op, arg, x)) { return 0; }
    TENSOR__REFUSE_AS(0, x->dtype != TENSOR_F32 && x->dtype != TENSOR_F64, DTYPE,
                      "%s: %s %t is %y, f32 or f64 is needed", op, arg, x, x);
    TENSOR__REFUSE_AS(0, x->ndim < 2 || (square && TENSOR__WIDE(x) != TENSOR__HIGH(x)), SHAPE,
                      "%s: %s %t must be %s", op, arg, x, square ? "a square matrix or a batch of them" :
                      "a matrix or a batch of them");
    return 1;
}
TENSOR__FN int tensor__la_begin(tensor__op_t *o, int id, tensor_t *x, tensor_t *b, int square) {
    const tensor__row_t *row = tensor__row(id);
    tensor_t *const in[2] = {x, b};
    if (!tensor__begin(o, row, in, row->nin)) { return 0; }
    o->p = &o->params;
    o->params.i[0] = o->params.i[1] = 0;
    o->visible = row->nout;
    return tensor__la_usable(row->name, b ? "a" : "x", x, square);
}
// A result with the batch dims of input 0, then rows and cols (< 0 = no such dim).
TENSOR__FN tensor_t *tensor__la_result(tensor__op_t *o, int dtype, int64_t rows, int64_t cols) {
    const tensor_t *x = o->in[0];
    int64_t dims[TENSOR_MAX_DIMS];
    int n = x->ndim - 2;
    for (int d = 0; d < n; d++) { dims[d] = x->dims[d]; }
    if (rows >= 0) { dims[n++] = rows; }
    if (cols >= 0) { dims[n++] = cols; }
    return tensor__result(o, dtype, dims, n);
}

// The identity, n x m, dtype of x; broadcasts over batches.
TENSOR__FN tensor_t *tensor__la_eye(tensor_t *x, int64_t n, int64_t m) {
    return tensor_to(tensor_to(tensor_eye(n, m), (tensor_dtype_t)x->dtype), (int)tensor_device(x));
}
TENSOR_API tensor_t *(tensor_linalg_cholesky)(tensor_t *x, int upper) {
    TENSOR__MARK
    tensor__op_t o;
    if (!tensor__la_begin(&o, TENSOR_OP_LINALG_CHOLESKY, x, NULL, 1)) { return TENSOR__POISON; }
    if (upper) { o.args[0] = tensor_mT(x); }
    if (o.args[0] == TENSOR__POISON) { return TENSOR__POISON; }
    tensor__la_result(&o, x->dtype, TENSOR__HIGH(x), TENSOR__WIDE(x));
    tensor_t *l = tensor__finish(&o);
    TENSOR__RETURN(upper && l != TENSOR__POISON ? tensor_mT(l) : l);
}
TENSOR_API tensor_t *(tensor_cholesky)(tensor_t *x, int upper) { return (tensor_linalg_cholesky)(x, upper); }

// Both with the batch dims of both. 0 = they do not fit, raised.
TENSOR__FN int tensor__la_pair(const char *op, tensor_t **a, tensor_t **b) {
    int64_t dims[TENSOR_MAX_DIMS];
    int n = 0;
    TENSOR__REFUSE_AS(0, (*a)->dtype != (*b)->dtype, DTYPE,
                      "%s: a %t is %y and b %t is %y; convert one with tensor_to", op, *a, *a, *b, *b);
    TENSOR__REFUSE_AS(0, TENSOR__WIDE(*a) != TENSOR__HIGH(*b) || !tensor__broadcast(dims, &n, (*a)->dims,
                      (*a)->ndim - 2) || !tensor__broadcast(dims, &n, (*b)->dims, (*b)->ndim - 2), SHAPE,
                      "%s: a %t and b %t do not fit", op, *a, *b);
    for (int i = 0; i < 2; i++) {
        tensor_t **x = i ? b : a;
        dims[n] = TENSOR__HIGH(*x);
        dims[n + 1] = TENSOR__WIDE(*x);
        *x = tensor_expand_n(*x, dims, n + 2);
        if (*x == TENSOR__POISON) { return 0; }
    }
    return 1;
}
// X of a X = b for matrices.
TENSOR__FN tensor_t *tensor__solve(int id, tensor_t *a, tensor_t *b, int upper, int unit) {
    TENSOR__MARK
    tensor__op_t o;
    if (!tensor__la_begin(&o, id, a, b, 1) || !tensor__la_usable(o.row->name, "b", b, 0)) {
        return TENSOR__POISON;
    }
    if (!tensor__la_pair(o.row->name, &o.args[0], &o.args[1])) { TENSOR__RETURN(TENSOR__POISON); }
    o.params.i[0] = upper;
    o.params.i[1] = unit;
    tensor__result(&o, b->dtype, o.args[1]->dims, o.args[1]->ndim);
    TENSOR__RETURN(tensor__finish(&o));
}
TENSOR_API tensor_t *(tensor_linalg_solve)(tensor_t *a, tensor_t *b) {
    TENSOR__MARK2(a, b)
    int vector = b->ndim == 1 || (b->ndim == a->ndim - 1 && !memcmp(a->dims, b->dims, (size_t)b->ndim * 8));
    if (!vector) { return tensor__solve(TENSOR_OP_LINALG_SOLVE, a, b, 0, 0); }
    tensor_t *x = tensor__solve(TENSOR_OP_LINALG_SOLVE, a, tensor_unsqueeze(b, -1), 0, 0);
    TENSOR__RETURN(x == TENSOR__POISON ? x : tensor_squeeze(x, -1));
}
TENSOR_API tensor_t *(tensor_linalg_solve_triangular)(tensor_t *a, tensor_t *b, int upper, int left,
                                                      int unitriangular) {
    TENSOR__MARK
    const int id = TENSOR_OP_LINALG_SOLVE_TRIANGULAR;
    if (left) { return tensor__solve(id, a, b, upper != 0, unitriangular != 0); }
    if (!tensor__la_usable("linalg_solve_triangular", "a", a, 1) ||
        !tensor__la_usable("linalg_solve_triangular", "b", b, 0)) {
        return TENSOR__POISON;
    }
    tensor_t *x = tensor__solve(id, tensor_mT(a), tensor_mT(b), !upper, unitriangular != 0);
    TENSOR__RETURN(x == TENSOR__POISON ? x : tensor_mT(x));
}
TENSOR_API tensor_t *(tensor_cholesky_solve)(tensor_t *b, tensor_t *l, int upper) {
    TENSOR__MARK
    if (!tensor__la_usable("cholesky_solve", "l", l, 1)) { return TENSOR__POISON; }
    tensor_t *lower = upper ? tensor_mT(l) : l;
    tensor_t *x = tensor_linalg_solve_triangular(lower, b, 0, 1, 0);
    TENSOR__RETURN(tensor_linalg_solve_triangular(tensor_mT(lower), x, 1, 1, 0));
}
TENSOR_API tensor_t *(tensor_cholesky_inverse)(tensor_t *l, int upper) {
    TENSOR__MARK
    if (!tensor__la_usable("cholesky_inverse", "l", l, 1)) { return TENSOR__POISON; }
    TENSOR__RETURN((tensor_cholesky_solve)(tensor__la_eye(l, TENSOR__HIGH(l), TENSOR__HIGH(l)), l, upper));
}
TENSOR__FN tensor_t *tensor__inv(const char *op, tensor_t *x) {
    TENSOR__MARK
    if (!tensor__la_usable(op, "x", x, 1)) { return TENSOR__POISON; }
    tensor_t *eye = tensor__la_eye(x, TENSOR__HIGH(x), TENSOR__HIGH(x));
    TENSOR__RETURN(tensor__solve(TENSOR_OP_LINALG_SOLVE, x, eye, 0, 0));
}
TENSOR__FRONT(linalg_inv, (tensor_t *x),
    tensor__named(tensor__self(), tensor__inv("linalg_inv", x), __func__))
TENSOR__FRONT(inverse, (tensor_t *x), tensor__named(tensor__self(), tensor__inv("inverse", x), __func__))
// Determinant, sign, log; the determinant alone stays unless `all`.
TENSOR__FN int tensor__det(tensor__op_t *o, tensor_t *x, int all) {
    if (!tensor__la_begin(o, TENSOR_OP_LINALG_DET, x, NULL, 1)) { return 0; }
    for (int i = 0; i < 3; i++) { tensor__la_result(o, x->dtype, -1, -1); }
    o->visible = all ? 3 : 1;
    return tensor__finish(o) != TENSOR__POISON;
}
TENSOR_API tensor_t *(tensor_linalg_det)(tensor_t *x) {
    tensor__op_t o;
    return tensor__det(&o, x, 0) ? o.out[0] : TENSOR__POISON;
}
TENSOR_API tensor_t *(tensor_det)(tensor_t *x) { return (tensor_linalg_det)(x); }
TENSOR_API tensor_slogdet_t (tensor_linalg_slogdet)(tensor_t *x) {
    tensor_slogdet_t r = {TENSOR__POISON, TENSOR__POISON};
    tensor__op_t o;
    if (!tensor__det(&o, x, 1)) { return r; }
    (tensor_free)(o.out[0]);
    r.sign = o.out[1];
    r.logabsdet = o.out[2];
    return r;
}
TENSOR_API tensor_slogdet_t (tensor_slogdet)(tensor_t *x) { return (tensor_linalg_slogdet)(x); }
TENSOR_API tensor_t *(tensor_logdet)(tensor_t *x) {
    TENSOR__MARK
    tensor_slogdet_t s = (tensor_linalg_slogdet)(x);
    TENSOR__RETURN(tensor_masked_fill(s.logabsdet, tensor_lt_scalar(s.sign, 0), (double)NAN));
}
TENSOR_API tensor_lu_factor_t (tensor_linalg_lu_factor)(tensor_t *x) {
    tensor_lu_factor_t r = {TENSOR__POISON, TENSOR__POISON};
    tensor__op_t o;
    if (!tensor__la_begin(&o, TENSOR_OP_LINALG_LU_FACTOR, x, NULL, 0)) { return r; }
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x);
    tensor__la_result(&o, x->dtype, m, n);
    tensor__la_result(&o, TENSOR_I32, -1, m < n ? m : n);
    if (tensor__finish(&o) != TENSOR__POISON) { memcpy(&r, o.out, sizeof r); }
    return r;
}
// Row i of the permuted matrix is row order[i]: i64 [..., m].
TENSOR__FN tensor_t *tensor__swaps(const char *op, tensor_t *pivots, int64_t m) {
    TENSOR__MARK
    TENSOR__BEGIN(o, TENSOR__ROW(LINALG_SWAPS), pivots)
    if (pivots->dtype != TENSOR_I32 || !pivots->ndim || TENSOR__WIDE(pivots) > m) {
        return tensor__fail(o.th, pivots->dtype != TENSOR_I32 ? TENSOR_ERR_DTYPE : TENSOR_ERR_SHAPE,
                            "%s: pivots %t must be i32, at most %d along the last dim", op, pivots, m);
    }
    int64_t dims[TENSOR_MAX_DIMS];
    for (int d = 0; d < pivots->ndim; d++) { dims[d] = pivots->dims[d]; }
    dims[pivots->ndim - 1] = m;
    o.args[0] = tensor_contiguous(pivots);
    if (o.args[0] == TENSOR__POISON) { return TENSOR__POISON; }
    tensor__ints(&o, m, 0);
    tensor__result(&o, TENSOR_I64, dims, pivots->ndim);
    TENSOR__RETURN(tensor__finish(&o));
}
// L with its ones, U.
TENSOR__FN tensor_t *tensor__lu_lower(tensor_t *lu) {
    int64_t m = TENSOR__HIGH(lu), n = TENSOR__WIDE(lu), k = m < n ? m : n;
    return tensor_add(tensor_tril(tensor_narrow(lu, -1, 0, k), -1), tensor__la_eye(lu, m, k));
}
TENSOR__FN tensor_t *tensor__lu_upper(tensor_t *lu) {
    int64_t m = TENSOR__HIGH(lu), n = TENSOR__WIDE(lu), k = m < n ? m : n;
    return tensor_triu(tensor_narrow(lu, -2, 0, k), 0);
}
TENSOR_API tensor_lu_t (tensor_lu_unpack)(tensor_t *lu, tensor_t *pivots) {
    tensor_lu_t r = {TENSOR__POISON, TENSOR__POISON, TENSOR__POISON};
    TENSOR__MARK
    if (!tensor__la_usable("lu_unpack", "lu", lu, 0)) { return r; }
    int64_t m = TENSOR__HIGH(lu);
    tensor_t *p = tensor__swaps("lu_unpack", pivots, m);
    if (p != TENSOR__POISON) {
        p = m ? tensor_mT(tensor_to(tensor_one_hot(p, m), lu->dtype)) :
            tensor_matmul(tensor_detach(lu), tensor_mT(tensor_detach(lu)));      // [..., 0, 0]
    }
    tensor_t *list[3] = {p, tensor__lu_lower(lu), tensor__lu_upper(lu)};
    tensor__tidy_n(th_, mark_, list, 3, __func__);
    memcpy(&r, list, sizeof r);
    return r;
}
TENSOR_API tensor_lu_t (tensor_linalg_lu)(tensor_t *x) {
    tensor_lu_t r = {TENSOR__POISON, TENSOR__POISON, TENSOR__POISON};
    tensor_lu_factor_t f = (tensor_linalg_lu_factor)(x);
    if (f.lu == TENSOR__POISON) { return r; }
    r = (tensor_lu_unpack)(f.lu, f.pivots);
    (tensor_free)(f.lu);
    (tensor_free)(f.pivots);
    return r;
}
// An index of x's shape that names rows: order along dim -2.
TENSOR__FN tensor_t *tensor__row_index(tensor_t *order, tensor_t *x) {
    return tensor_expand_n(tensor_unsqueeze(order, -1), x->dims, x->ndim);
}
TENSOR_API tensor_t *(tensor_linalg_lu_solve)(tensor_t *lu, tensor_t *pivots, tensor_t *b) {
    TENSOR__MARK
    const char *op = "linalg_lu_solve";
    if (!tensor__la_usable(op, "lu", lu, 1) || !tensor__la_usable(op, "b", b, 0)) { return TENSOR__POISON; }
    if (!tensor__la_pair(op, &lu, &b)) { TENSOR__RETURN(TENSOR__POISON); }
    tensor_t *order = tensor__swaps(op, pivots, TENSOR__HIGH(lu));
    if (order == TENSOR__POISON) { TENSOR__RETURN(order); }
    tensor_t *x = tensor_gather(b, -2, tensor__row_index(order, b));
    x = tensor_linalg_solve_triangular(lu, x, 0, 1, 1);
    TENSOR__RETURN(tensor_linalg_solve_triangular(lu, x, 1, 1, 0));
}
TENSOR__FRONT(lu_solve, (tensor_t *b, tensor_t *lu, tensor_t *pivots),
    (tensor_linalg_lu_solve)(lu, pivots, b))
TENSOR_API tensor_qr_t (tensor_linalg_qr)(tensor_t *x, const char *mode) {
    tensor_qr_t r = {TENSOR__POISON, TENSOR__POISON};
    tensor__op_t o;
    int complete = mode && !strcmp(mode, "complete"), alone = mode && !strcmp(mode, "r");
    if (!tensor__la_begin(&o, TENSOR_OP_LINALG_QR, x, NULL, 0)) { return r; }
    TENSOR__REFUSE_AS(r, mode && !complete && !alone && strcmp(mode, "reduced"), FORMAT,
                      "linalg_qr: mode \"%s\" is none of reduced, complete, r", mode);
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x), k = m < n || complete ? m : n;
    o.params.i[0] = complete;
    tensor__la_result(&o, x->dtype, m, k);
    tensor__la_result(&o, x->dtype, k, n);
    if (tensor__finish(&o) == TENSOR__POISON) { return r; }
    r.q = o.out[0];
    r.r = o.out[1];
    if (alone) { (tensor_free)(r.q); r.q = NULL; }
    return r;
}
TENSOR_API tensor_qr_t (tensor_qr)(tensor_t *x) { return (tensor_linalg_qr)(x, NULL); }
// The values alone, or values and vectors.
TENSOR__FN int tensor__svd(tensor__op_t *o, tensor_t *x, int full, int vectors) {
    if (!tensor__la_begin(o, TENSOR_OP_LINALG_SVD, x, NULL, 0)) { return 0; }
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x), k = m < n ? m : n;
    tensor__la_result(o, x->dtype, -1, k);
    tensor__la_result(o, x->dtype, m, full ? m : k);
    tensor__la_result(o, x->dtype, full ? n : k, n);
    o->visible = vectors ? 3 : 1;
    return tensor__finish(o) != TENSOR__POISON;
}
TENSOR_API tensor_linalg_svd_t (tensor_linalg_svd)(tensor_t *x, int full_matrices) {
    tensor_linalg_svd_t r = {TENSOR__POISON, TENSOR__POISON, TENSOR__POISON};
    tensor__op_t o;
    if (!tensor__svd(&o, x, full_matrices, 1)) { return r; }
    r.s = o.out[0];
    r.u = o.out[1];
    r.vh = o.out[2];
    return r;
}
TENSOR_API tensor_svd_t (tensor_svd)(tensor_t *x) {
    TENSOR__MARK
    tensor_linalg_svd_t d = (tensor_linalg_svd)(x, 0);
    tensor_t *list[3] = {d.u, d.s, tensor_mT(d.vh)};
    tensor_svd_t r;
    tensor__tidy_n(th_, mark_, list, 3, __func__);
    memcpy(&r, list, sizeof r);
    return r;
}
TENSOR_API tensor_t *(tensor_linalg_svdvals)(tensor_t *x) {
    tensor__op_t o;
    return tensor__svd(&o, x, 0, 0) ? o.out[0] : TENSOR__POISON;
}
TENSOR__FN int tensor__eigh(tensor__op_t *o, tensor_t *x, int upper, int vectors) {
    if (!tensor__la_begin(o, TENSOR_OP_LINALG_EIGH, x, NULL, 1)) { return 0; }
    o->params.i[0] = upper != 0;
    tensor__la_result(o, x->dtype, -1, TENSOR__WIDE(x));
    tensor__la_result(o, x->dtype, TENSOR__HIGH(x), TENSOR__WIDE(x));
    o->visible = vectors ? 2 : 1;
    return tensor__finish(o) != TENSOR__POISON;
}
TENSOR_API tensor_eigh_t (tensor_linalg_eigh)(tensor_t *x, int upper) {
    tensor_eigh_t r = {TENSOR__POISON, TENSOR__POISON};
    tensor__op_t o;
    if (tensor__eigh(&o, x, upper, 1)) { memcpy(&r, o.out, sizeof r); }
    return r;
}
TENSOR_API tensor_t *(tensor_linalg_eigvalsh)(tensor_t *x, int upper) {
    tensor__op_t o;
    return tensor__eigh(&o, x, upper, 0) ? o.out[0] : TENSOR__POISON;
}
// Which singular values count; 0-d batches keep their dim.
TENSOR__FN tensor_t *tensor__significant(tensor_t *x, tensor_t *s, double rtol) {
    double eps = x->dtype == TENSOR_F64 ? 2.2204460492503131e-16 : 1.1920928955078125e-07;
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x);
    if (rtol < 0) { rtol = eps * (double)(m > n ? m : n); }
    if (!m || !n) { return tensor_to(s, TENSOR_BOOL); }
    return tensor_gt(s, tensor_mul_scalar(tensor_narrow(s, -1, 0, 1), rtol));
}
TENSOR_API tensor_t *(tensor_linalg_pinv)(tensor_t *x, double rtol) {
    tensor__op_t o;
    if (!tensor__la_begin(&o, TENSOR_OP_LINALG_PINV, x, NULL, 0)) { return TENSOR__POISON; }
    tensor_t *y = tensor__la_result(&o, x->dtype, TENSOR__WIDE(x), TENSOR__HIGH(x));
    if (y == TENSOR__POISON) { return y; }
    tensor_scope_t s = tensor__scope_begin(o.th, 0);
    int ok = s.thread != NULL;
    if (ok) {
        tensor_linalg_svd_t d = (tensor_linalg_svd)(x, 0);
        ok = d.s != TENSOR__POISON;
        if (ok) {
            tensor_t *off = tensor_logical_not(tensor__significant(x, d.s, rtol));
            tensor_t *inverse =
                tensor_masked_fill(tensor_reciprocal(tensor_masked_fill(d.s, off, 1)), off, 0);
            d.vh = tensor_mul(tensor_mT(d.vh), tensor_unsqueeze(inverse, -2));
            ok = tensor_copy_(y, tensor_matmul(d.vh, tensor_mT(d.u))) != TENSOR__POISON;
        }
        (tensor_scope_end)(s);
    }
    return ok ? tensor__commit(&o) : tensor__abandon(&o);
}
TENSOR_API tensor_t *(tensor_pinverse)(tensor_t *x) { return (tensor_linalg_pinv)(x, 1e-15); }
TENSOR_API tensor_t *(tensor_linalg_matrix_rank)(tensor_t *x, double rtol) {
    TENSOR__MARK
    if (!tensor__la_usable("linalg_matrix_rank", "x", x, 0)) { return TENSOR__POISON; }
    tensor_t *s = tensor_linalg_svdvals(tensor_detach(x));
    if (s == TENSOR__POISON) { TENSOR__RETURN(s); }
    TENSOR__RETURN(tensor_sum_dim(tensor__significant(x, s, rtol), -1, 0));
}
TENSOR_API tensor_lstsq_t (tensor_linalg_lstsq)(tensor_t *a, tensor_t *b) {
    tensor_lstsq_t r = {TENSOR__POISON, TENSOR__POISON};
    TENSOR__MARK
    tensor__thread_t *th = th_;
    const char *op = "linalg_lstsq";
    if (!tensor__la_usable(op, "a", a, 0) || !tensor__la_usable(op, "b", b, 0)) { return r; }
    TENSOR__REFUSE_AS(r, TENSOR__HIGH(a) != TENSOR__HIGH(b), SHAPE,
                      "%s: a %t and b %t have not the same rows", op, a, b);
    int64_t m = TENSOR__HIGH(a), n = TENSOR__WIDE(a);
    double eps = a->dtype == TENSOR_F64 ? 2.2204460492503131e-16 : 1.1920928955078125e-07;
    tensor_qr_t f = (tensor_linalg_qr)(m < n ? tensor_mT(a) : a, NULL);
    tensor_t *d = tensor_abs(tensor_detach(tensor__diagonal(f.r))), *list[2], *x = f.r;
    if (tensor_numel(d)) {
        tensor_t *least = tensor_mul_scalar(tensor_amax_dim(d, -1, 1), eps * (double)(m > n ? m : n));
        if (tensor_item(tensor_to(tensor_any(tensor_le(d, least)), TENSOR_F32)) != 0) {
            x = tensor__fail(th, TENSOR_ERR_LINALG, "%s: a %t has not full rank", op, a);
        }
    }
    if (x != TENSOR__POISON && m >= n) {
        x = tensor_linalg_solve_triangular(f.r, tensor_matmul(tensor_mT(f.q), b), 1, 1, 0);
    } else if (x != TENSOR__POISON) {
        x = tensor_matmul(f.q, tensor_linalg_solve_triangular(tensor_mT(f.r), b, 0, 1, 0));
    }
    int64_t none = 0;
    list[0] = x;
    list[1] = m <= n ? (tensor_zeros_n)(&none, 1, (tensor_dtype_t)a->dtype) :
        tensor_sum_dim(tensor_square(tensor_sub(tensor_matmul(a, x), b)), -2, 0);
    tensor__tidy_n(th, mark_, list, 2, __func__);
    memcpy(&r, list, sizeof r);
    return r;
}
TENSOR__FN tensor_t *tensor__power(const char *op, tensor_t *x, int64_t n) {
    TENSOR__MARK
    if (!tensor__la_usable(op, "x", x, 1)) { return TENSOR__POISON; }
    tensor_t *y = NULL;
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    if (!n) {                           // a function of x all the same, with the gradient 0
        y = tensor__la_eye(x, TENSOR__HIGH(x), TENSOR__HIGH(x));
        TENSOR__RETURN(tensor_where(tensor_ge_scalar(y, 0), y, x));
    }
    if (n < 0) { x = tensor__inv(op, x); }
    for (; left && x != TENSOR__POISON; left >>= 1) {
        if (left & 1) { y = y ? tensor_matmul(y, x) : x; }
        if (left > 1) { x = tensor_matmul(x, x); }
    }
    TENSOR__RETURN(x == TENSOR__POISON ? x : y);
}
TENSOR__FRONT(linalg_matrix_power, (tensor_t *x, int64_t n), tensor__power("linalg_matrix_power", x, n))
TENSOR__FRONT(matrix_power, (tensor_t *x, int64_t n), tensor__power("matrix_power", x, n))

// a p + b q + c r + d I
TENSOR__FN tensor_t *tensor__polynomial(double a, tensor_t *p, double b, tensor_t *q, double c, tensor_t *r,
                                        double d, tensor_t *eye) {
    tensor_t *y = tensor_add(tensor_mul_scalar(p, a), tensor_mul_scalar(q, b));
    y = tensor_add(y, tensor_mul_scalar(r, c));
    return d == 0 ? y : tensor_add(y, tensor_mul_scalar(eye, d));
}
// [13/13] Pade approximation of x 2^-s, squared s times (Higham, SIAM J. Matrix Anal. Appl. 26, 2005); one s
// for the batch.
TENSOR__FN tensor_t *tensor__matrix_exp(const char *op, tensor_t *x) {
    TENSOR__MARK
    if (!tensor__la_usable(op, "x", x, 1)) { return TENSOR__POISON; }
    if (!x->numel) { TENSOR__RETURN(tensor_clone(x)); }
    tensor_dtype_t dtype = (tensor_dtype_t)x->dtype;
    tensor_t *a = tensor_to(x, TENSOR_F64);
    double norm = tensor_item(tensor_max(tensor_sum_dim(tensor_abs(tensor_detach(a)), -2, 0)));
    int s = 0;
    while (norm > 5.371920351148152 && s < 1100) { norm /= 2; s++; }
    a = tensor_mul_scalar(a, ldexp(1, -s));
    tensor_t *eye = tensor__la_eye(a, TENSOR__HIGH(x), TENSOR__HIGH(x)), *p = tensor_matmul(a, a);
    tensor_t *q = tensor_matmul(p, p), *r = tensor_matmul(p, q);
    tensor_t *u = tensor__polynomial(1, r, 16380, q, 40840800, p, 0, eye);
    u = tensor_add(tensor_matmul(r, u), tensor__polynomial(33522128640.0, r, 10559470521600.0, q,
                                                           1187353796428800.0, p, 32382376266240000.0, eye));
    u = tensor_matmul(a, u);
    tensor_t *v = tensor__polynomial(182, r, 960960, q, 1323241920, p, 0, eye);
    v = tensor_add(tensor_matmul(r, v), tensor__polynomial(670442572800.0, r, 129060195264000.0, q,
                                                           7771770303897600.0, p, 64764752532480000.0, eye));
    tensor_t *y = tensor__solve(TENSOR_OP_LINALG_SOLVE, tensor_sub(v, u), tensor_add(v, u), 0, 0);
    for (; s > 0; s--) { y = tensor_matmul(y, y); }
    TENSOR__RETURN(tensor_to(y, dtype));
}
TENSOR__FRONT(linalg_matrix_exp, (tensor_t *x), tensor__matrix_exp("linalg_matrix_exp", x))
TENSOR_API tensor_t *(tensor_matrix_exp)(tensor_t *x) { return tensor__matrix_exp("matrix_exp", x); }

// ---- torch.linalg: norms ----

TENSOR__FN tensor_t *tensor__vector_norm(const char *op, tensor_t *x, double ord, const int64_t *dims, int n,
                                         int keepdim) {
    TENSOR__MARK
    tensor_shape_t kept;
    if (!TENSOR__USABLE(op, "x", x) || !tensor__needs_float(op, x) ||
        !tensor__dims_given(op, dims, n)) { return TENSOR__POISON; }
    tensor_t *y = tensor__gathered(op, x, dims, n, keepdim, &kept);
    if (y != TENSOR__POISON && ord < 0 && !TENSOR__WIDE(y)) {
        y = tensor__fail(th_, TENSOR_ERR_SHAPE, "%s: x %t has no element to choose from for norm %g", op, x,
                         ord);
    }
    if (y == TENSOR__POISON) { TENSOR__RETURN(y); }
    if (ord == 2) {
        y = tensor_norm_dim(y, -1, 0);
    } else if (ord == 0) {
        y = tensor_to(tensor_sum_dim(tensor_ne_scalar(y, 0), -1, 0), x->dtype);
    } else if (ord == (double)INFINITY) {
        y = tensor_amax_dim(tensor_abs(y), -1, 0);
    } else if (ord == -(double)INFINITY) {
        y = tensor_amin_dim(tensor_abs(y), -1, 0);
    } else if (ord == 1) {
        y = tensor_sum_dim(tensor_abs(y), -1, 0);
    } else {                            // the gradient at a zero norm is 0, not 0 * inf
        y = tensor_sum_dim(tensor_pow_scalar(tensor_abs(y), ord), -1, 0);
        tensor_t *zero = tensor_eq_scalar(y, 0);
        y = tensor_pow_scalar(tensor_masked_fill(y, zero, 1), 1 / ord);
        y = tensor_masked_fill(y, zero, ord < 0 ? (double)INFINITY : 0);
    }
    TENSOR__RETURN(tensor_reshape_n(y, kept.dims, kept.ndim));
}
TENSOR__FRONT(linalg_vector_norm, (tensor_t *x, double ord, const int64_t *dims, int n, int keepdim),
    tensor__named(tensor__self(), tensor__vector_norm("linalg_vector_norm", x, ord, dims, n, keepdim),
                  __func__))
// A number, or inf, -inf; NaN = neither.
TENSOR__FN double tensor__ord(const char *ord) {
    char *end;
    double v = strtod(ord, &end);
    return *ord && !*end ? v : (double)NAN;
}
TENSOR__FN tensor_t *tensor__matrix_norm(const char *op, tensor_t *x, const char *ord, int64_t dim0,
                                         int64_t dim1, int keepdim) {
    TENSOR__MARK
    if (!TENSOR__USABLE(op, "x", x)) { return TENSOR__POISON; }
    int fro = !ord || !strcmp(ord, "fro"), nuc = ord && !strcmp(ord, "nuc");
    double p = fro || nuc ? 2 : tensor__ord(ord);
    int64_t both[2] = {dim0, dim1};
    TENSOR__REFUSE(p != 1 && p != -1 && p != 2 && p != -2 && p != (double)INFINITY && p != -(double)INFINITY,
                   FORMAT, "%s: ord \"%s\" is none of fro, nuc, 1, -1, 2, -2, inf, -inf", op, ord);
    TENSOR__REFUSE(x->ndim < 2, SHAPE, "%s: x %t must be a matrix", op, x);
    if (fro) { TENSOR__RETURN(tensor__vector_norm(op, x, 2, both, 2, keepdim)); }
    int d0 = tensor__dim(op, dim0, x), d1 = d0 < 0 ? d0 : tensor__dim(op, dim1, x);
    if (d1 < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(d0 == d1, INDEX, "%s: dim %i appears twice (x %t)", op, d0, x);
    int64_t order[TENSOR_MAX_DIMS], kept[TENSOR_MAX_DIMS];
    int k = 0, nk = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d != d0 && d != d1) { order[k++] = d; }
        if ((d != d0 && d != d1) || keepdim) { kept[nk++] = d != d0 && d != d1 ? x->dims[d] : 1; }
    }
    order[k] = d0;
    order[k + 1] = d1;
    tensor_t *y = tensor_permute_n(x, order, x->ndim);
    if (nuc || p == 2 || p == -2) {
        if (!tensor__la_usable(op, "x", y, 0)) { TENSOR__RETURN(TENSOR__POISON); }
        y = tensor_linalg_svdvals(y);
        if (nuc) { y = tensor_sum_dim(y, -1, 0); }
    } else {
        if (!tensor__needs_float(op, x)) { TENSOR__RETURN(TENSOR__POISON); }
        y = tensor_sum_dim(tensor_abs(y), p == 1 || p == -1 ? -2 : -1, 0);
    }
    if (!nuc && p > 0 && y->ndim && !y->dims[y->ndim - 1]) {
        y = tensor_sum_dim(y, -1, 0);               // the largest of no norms is 0, of no numbers an error
    } else if (!nuc) {
        y = p > 0 ? tensor_amax_dim(y, -1, 0) : tensor_amin_dim(y, -1, 0);
    }
    TENSOR__RETURN(tensor_reshape_n(y, kept, nk));
}
TENSOR__FRONT(linalg_matrix_norm, (tensor_t *x, const char *ord, int64_t dim0, int64_t dim1, int keepdim),
    tensor__named(tensor__self(), tensor__matrix_norm("linalg_matrix_norm", x, ord, dim0, dim1, keepdim),
                  __func__))
TENSOR_API tensor_t *(tensor_linalg_norm)(tensor_t *x, const char *ord, const int64_t *dims, int n,
                                          int keepdim) {
    const char *op = "linalg_norm";
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE(op, "x", x) || !tensor__dims_given(op, dims, n)) { return TENSOR__POISON; }
    int over = n > 0 ? n : x->ndim;
    if (!ord) { return tensor__named(th, tensor__vector_norm(op, x, 2, dims, n, keepdim), __func__); }
    if (over == 2) {
        int64_t d0 = n > 0 ? dims[0] : -2, d1 = n > 0 ? dims[1] : -1;
        return tensor__named(th, tensor__matrix_norm(op, x, ord, d0, d1, keepdim), __func__);
    }
    double p = tensor__ord(ord);
    if (over > 2 || tensor__isnan_f64(p)) {
        return tensor__fail(th, over > 2 ? TENSOR_ERR_SHAPE : TENSOR_ERR_FORMAT,
                            "%s: ord \"%s\" is no norm of %i dims of x %t", op, ord, over, x);
    }
    return tensor__named(th, tensor__vector_norm(op, x, p, dims, n, keepdim), __func__);
}
TENSOR_API tensor_t *(tensor_linalg_cond)(tensor_t *x, const char *p) {
    TENSOR__MARK
    const char *op = "linalg_cond";
    double ord = p ? tensor__ord(p) : 2;
    if (!tensor__la_usable(op, "x", x, ord != 2 && ord != -2)) { return TENSOR__POISON; }
    if (!TENSOR__HIGH(x) || !TENSOR__WIDE(x)) {
        TENSOR__RETURN((tensor_zeros_n)(x->dims, x->ndim - 2, (tensor_dtype_t)x->dtype));
    }
    if (ord == 2 || ord == -2) {
        tensor_t *s = tensor_linalg_svdvals(x);
        if (s == TENSOR__POISON) { TENSOR__RETURN(s); }
        TENSOR__RETURN(tensor_div(tensor_select(s, -1, ord == 2 ? 0 : -1),
                                  tensor_select(s, -1, ord == 2 ? -1 : 0)));
    }
    tensor_slogdet_t d = (tensor_linalg_slogdet)(tensor_detach(x));     // a singular x has no inverse
    if (d.sign == TENSOR__POISON) { TENSOR__RETURN(d.sign); }
    tensor_t *singular = tensor_eq_scalar(d.sign, 0),
             *eye = tensor__la_eye(x, TENSOR__HIGH(x), TENSOR__HIGH(x));
    tensor_t *safe = tensor_where(tensor_unsqueeze(tensor_unsqueeze(singular, -1), -1), eye, x);
    tensor_t *y = tensor_mul(tensor__matrix_norm(op, x, p, -2, -1, 0),
                             tensor__matrix_norm(op, tensor__inv(op, safe), p, -2, -1, 0));
    TENSOR__RETURN(tensor_masked_fill(y, singular, (double)INFINITY));
}

// ---- torch.linalg: gradients ----
// Giles, Collected matrix derivative results for forward and reverse mode (2008); Townsend, Differentiating
// the singular value decomposition (2016); Seeger et al., Auto-differentiating linear algebra (2017); Walter
// & Lehmann (2010) for QR; Golub & Pereyra (1973) for the pseudo-inverse.

// L^-T S L^-1, S the symmetric part of tril(LT gL) with half its diagonal.
TENSOR__FN void tensor__grad_cholesky(tensor__grad_t *g) {
    tensor_t *l = tensor__grad_out(g, 0), *p = tensor_matmul(tensor_mT(l), g->gy[0]);
    p = tensor_add(tensor_tril(p, 0), tensor_tril(p, -1));
    p = tensor_mul_scalar(tensor_add(p, tensor_mT(p)), 0.25);
    p = tensor_linalg_solve_triangular(tensor_mT(l), p, 1, 1, 0);
    g->gx[0] = tensor_linalg_solve_triangular(l, p, 0, 0, 0);
}
TENSOR__FN void tensor__grad_solve(tensor__grad_t *g) {
    tensor_t *a = tensor__grad_in(g, 0), *x = tensor__grad_out(g, 0);
    g->gx[1] = tensor__solve(TENSOR_OP_LINALG_SOLVE, tensor_mT(a), g->gy[0], 0, 0);
    if (tensor__grad_need(g, 0)) { g->gx[0] = tensor_neg(tensor_matmul(g->gx[1], tensor_mT(x))); }
}
TENSOR__FN void tensor__grad_solve_triangular(tensor__grad_t *g) {
    tensor_t *a = tensor__grad_in(g, 0), *x = tensor__grad_out(g, 0);
    int upper = (int)g->p->i[0], unit = (int)g->p->i[1];
    g->gx[1] = tensor__solve(TENSOR_OP_LINALG_SOLVE_TRIANGULAR, tensor_mT(a), g->gy[0], !upper, unit);
    if (!tensor__grad_need(g, 0)) { return; }
    tensor_t *ga = tensor_neg(tensor_matmul(g->gx[1], tensor_mT(x)));
    g->gx[0] = upper ? tensor_triu(ga, unit) : tensor_tril(ga, -unit);
}
// The sum of two of which either may be absent.
TENSOR__FN tensor_t *tensor__plus(tensor_t *a, tensor_t *b) { return a && b ? tensor_add(a, b) : a ? a : b; }
TENSOR__FN tensor_t *tensor__stretch(tensor_t *x) { return tensor_unsqueeze(tensor_unsqueeze(x, -1), -1); }
// det x^-T, or the cofactors from a singular value decomposition: det(U Vh) U diag(products of others) Vh.
TENSOR__FN void tensor__grad_det(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *det = tensor__grad_out(g, 0);
    if (!tensor__live(x) || !x->numel) { g->gx[0] = x; return; }
    if (g->gy[2]) { g->gx[0] = tensor_mul(tensor__stretch(g->gy[2]), tensor_mT(tensor_linalg_inv(x))); }
    if (!g->gy[0]) { return; }
    tensor_t *c;
    if (tensor_item(tensor_to(tensor_any(tensor_eq_scalar(det, 0)), TENSOR_F32)) == 0) {
        c = tensor_mul(tensor_mT(tensor_linalg_inv(x)), tensor__stretch(det));
    } else {
        tensor_linalg_svd_t s = (tensor_linalg_svd)(x, 0);
        if (s.s == TENSOR__POISON) { return; }
        int64_t n = TENSOR__WIDE(x), flat[2] = {s.s->numel / n, n};
        tensor_t *sign = tensor_mul(tensor_linalg_det(tensor_detach(s.u)),
                                    tensor_linalg_det(tensor_detach(s.vh)));
        tensor_t *others = tensor__prod_others(tensor_reshape_n(s.s, flat, 2), g->create);
        others = tensor_mul(tensor_reshape_n(others, s.s->dims, s.s->ndim), tensor_unsqueeze(sign, -1));
        c = tensor_matmul(tensor_mul(s.u, tensor_unsqueeze(others, -2)), s.vh);
    }
    g->gx[0] = tensor__plus(g->gx[0], tensor_mul(c, tensor__stretch(g->gy[0])));
}
// P L^-T (tril(LT gL, -1) + triu(gU UT)) U^-T for the square part; what is wide or tall follows from it.
TENSOR__FN void tensor__grad_lu_factor(tensor__grad_t *g) {
    tensor_t *lu = tensor__grad_out(g, 0), *pivots = tensor__grad_out(g, 1), *gy = g->gy[0];
    if (!tensor__live(lu) || !tensor__live(pivots) || !gy) { return; }
    int64_t m = TENSOR__HIGH(lu), n = TENSOR__WIDE(lu), k = m < n ? m : n;
    tensor_t *l = tensor__lu_lower(lu), *u = tensor__lu_upper(lu);
    tensor_t *gl = tensor_tril(tensor_narrow(gy, -1, 0, k), -1),
             *gu = tensor_triu(tensor_narrow(gy, -2, 0, k), 0);
    tensor_t *parts[2];
    parts[1] = NULL;
    if (n > k) {
        parts[1] = tensor_linalg_solve_triangular(tensor_mT(l), tensor_narrow(gu, -1, k, n - k), 1, 1, 1);
        gl = tensor_sub(gl, tensor_matmul(parts[1], tensor_mT(tensor_narrow(u, -1, k, n - k))));
    } else if (m > k) {
        tensor_t *tail = tensor_narrow(l, -2, k, m - k);
        parts[1] = tensor_linalg_solve_triangular(tensor_mT(u), tensor_narrow(gl, -2, k, m - k), 0, 0, 0);
        gu = tensor_sub(gu, tensor_matmul(tensor_mT(tail), parts[1]));
    }
    l = tensor_narrow(l, -2, 0, k);
    u = tensor_narrow(u, -1, 0, k);
    tensor_t *phi = tensor_tril(tensor_matmul(tensor_mT(l), tensor_narrow(gl, -2, 0, k)), -1);
    phi = tensor_add(phi, tensor_triu(tensor_matmul(tensor_narrow(gu, -1, 0, k), tensor_mT(u)), 0));
    phi = tensor_linalg_solve_triangular(tensor_mT(l), phi, 1, 1, 1);
    parts[0] = tensor_linalg_solve_triangular(tensor_mT(u), phi, 0, 0, 0);
    tensor_t *all = parts[1] ? tensor_cat_n(parts, 2, n > k ? -1 : -2) : parts[0];
    tensor_t *order = tensor__swaps("linalg_lu_factor", pivots, m);
    if (all == TENSOR__POISON || order == TENSOR__POISON) { return; }
    g->gx[0] = tensor_scatter(tensor_zeros_like(all), -2, tensor__row_index(order, all), all);
}
// (gQ + Q copyltu(R gRT - gQT Q)) R^-T, copyltu(M) = tril(M) + tril(M, -1)T; a wide x is square and more.
TENSOR__FN void tensor__grad_qr(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *q = tensor__grad_out(g, 0), *r = tensor__grad_out(g, 1);
    tensor_t *gq = g->gy[0], *gr = g->gy[1], *parts[2];
    if (!tensor__live(x) || !tensor__live(q) || !tensor__live(r)) { return; }
    int64_t m = TENSOR__HIGH(x), n = TENSOR__WIDE(x);
    TENSOR__REFUSE_AS(, m > n && g->p->i[0], AUTOGRAD,
                      "linalg_qr: mode \"complete\" has no gradient for x %t with more rows than columns", x);
    if (!gq) { gq = tensor_zeros_like(q); }
    if (!gr) { gr = tensor_zeros_like(r); }
    if (m < n) {
        tensor_t *tail = tensor_narrow(gr, -1, m, n - m);
        parts[1] = tensor_matmul(q, tail);
        gq = tensor_add(gq, tensor_matmul(tensor_narrow(x, -1, m, n - m), tensor_mT(tail)));
        r = tensor_narrow(r, -1, 0, m);
        gr = tensor_narrow(gr, -1, 0, m);
    }
    tensor_t *c = tensor_sub(tensor_matmul(r, tensor_mT(gr)), tensor_matmul(tensor_mT(gq), q));
    c = tensor_add(tensor_tril(c, 0), tensor_mT(tensor_tril(c, -1)));
    gq = tensor_add(gq, tensor_matmul(q, c));
    parts[0] = tensor_linalg_solve_triangular(tensor_mT(r), gq, 0, 0, 0);
    g->gx[0] = m < n ? tensor_cat_n(parts, 2, -1) : parts[0];
}
// 1 / (s[j] - s[i]), 0 on the diagonal.
TENSOR__FN tensor_t *tensor__gaps(tensor_t *s) {
    if (!tensor__live(s)) { return TENSOR__POISON; }
    tensor_t *eye = tensor_to(tensor__la_eye(s, TENSOR__WIDE(s), TENSOR__WIDE(s)), TENSOR_BOOL);
    tensor_t *e = tensor_sub(tensor_unsqueeze(s, -2), tensor_unsqueeze(s, -1));
    return tensor_masked_fill(tensor_reciprocal(tensor_masked_fill(e, eye, 1)), eye, 0);
}
// V (diag(gL) + (VT gV) gaps) VT
TENSOR__FN void tensor__grad_eigh(tensor__grad_t *g) {
    tensor_t *v = tensor__grad_out(g, 1), *vt = tensor_mT(v), *y = NULL;
    if (g->gy[0]) { y = tensor_matmul(tensor_mul(v, tensor_unsqueeze(g->gy[0], -2)), vt); }
    if (g->gy[1]) {
        tensor_t *c = tensor_mul(tensor_matmul(vt, g->gy[1]), tensor__gaps(tensor__grad_out(g, 0)));
        c = tensor_mul_scalar(tensor_add(c, tensor_mT(c)), 0.5); // as x, so that a step keeps it symmetric
        y = tensor__plus(y, tensor_matmul(tensor_matmul(v, c), vt));
    }
    g->gx[0] = y;
}
// U (skew(UT gU) gaps S + S skew(Vh gVhT) gaps + diag(gS)) Vh, and the parts outside the spans of U and V.
TENSOR__FN void tensor__grad_svd(tensor__grad_t *g) {
    tensor_t *s = tensor__grad_out(g, 0), *u = tensor__grad_out(g, 1), *vh = tensor__grad_out(g, 2);
    if (!tensor__live(s) || !tensor__live(u) || !tensor__live(vh)) { return; }
    int64_t m = TENSOR__HIGH(u), n = TENSOR__WIDE(vh), k = TENSOR__WIDE(s);
    tensor_t *gu = g->gy[1], *gv = g->gy[2], *in = NULL, *c, *y = NULL;
    u = tensor_narrow(u, -1, 0, k);
    vh = tensor_narrow(vh, -2, 0, k);
    tensor_t *row = tensor_unsqueeze(s, -2), *column = tensor_unsqueeze(s, -1);
    tensor_t *gaps = gu || gv ? tensor__gaps(tensor_square(s)) : NULL;
    if (g->gy[0]) { y = tensor_matmul(tensor_mul(u, tensor_unsqueeze(g->gy[0], -2)), vh); }
    if (gu) {
        gu = tensor_narrow(gu, -1, 0, k);
        c = tensor_matmul(tensor_mT(u), gu);
        in = tensor_mul(tensor_mul(tensor_sub(c, tensor_mT(c)), gaps), row);
        if (m > k) {
            y = tensor__plus(y, tensor_matmul(tensor_div(tensor_sub(gu, tensor_matmul(u, c)), row), vh));
        }
    }
    if (gv) {
        gv = tensor_narrow(gv, -2, 0, k);
        c = tensor_matmul(vh, tensor_mT(gv));
        in = tensor__plus(in, tensor_mul(tensor_mul(tensor_sub(c, tensor_mT(c)), gaps), column));
        if (n > k) {
            c = tensor_div(tensor_sub(gv, tensor_matmul(tensor_mT(c), vh)), column);
            y = tensor__plus(y, tensor_matmul(u, c));
        }
    }
    g->gx[0] = tensor__plus(y, in ? tensor_matmul(tensor_matmul(u, in), vh) : NULL);
}
// -pT gT... written for p = pinv(x): -(p g' p)T + the parts outside range and kernel, g' = gT.
TENSOR__FN void tensor__grad_pinv(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *p = tensor__grad_out(g, 0), *gt = tensor_mT(g->gy[0]);
    tensor_t *pt = tensor_mT(p), *k = tensor_matmul(gt, p), *kp = tensor_matmul(k, pt);
    tensor_t *y = tensor_sub(kp, tensor_mT(tensor_matmul(p, k)));
    y = tensor_sub(y, tensor_matmul(tensor_matmul(x, p), kp));
    g->gx[0] = tensor_add(y, tensor_matmul(tensor_matmul(pt, p), tensor_sub(gt, tensor_matmul(k, x))));
}
TENSOR__END

// ------------------------------------------------------------------------------
// >>impl-index                                     MARK: joining, indexing
//
// All index kernels see x and index contiguous and walk index in order, so sums at one place are
// deterministic. Every index is looked at before the first element is written. Indexing by several tensors
// is one index_select over their dims joined. Rejected: atomic adds or a sort of the indices by threads
// (the order of sums would vary), a check per element while writing (half a change would stay).
// ------------------------------------------------------------------------------

TENSOR__FN int tensor__check_index(tensor_call_t *c, const tensor_arg_t *index, int64_t size) {
    int64_t block[TENSOR__BLOCK];
    for (int64_t i = 0; i < index->numel; i += TENSOR__BLOCK) {
        int64_t m = tensor__least(index->numel - i, TENSOR__BLOCK);
        tensor__load_i64(block, (const char *)index->data + i * tensor__sizes[index->dtype], index->dtype, 1,
                         m);
        for (int64_t k = 0; k < m; k++) {
            TENSOR__REFUSE_CODE(block[k] < 0 || block[k] >= size, INDEX,
                                "%s: index %d at element %d of index %n is outside 0..%d (x %n)",
                                c->row->name, block[k], i + k, index->dims, (int)index->ndim, size - 1,
                                c->arg[0].dims, (int)c->arg[0].ndim);
        }
    }
    return 0;
}
TENSOR__FN void tensor__add_converted(char *to, int sum, const char *from, int dtype, int64_t n) {
    const float *s = (const float *)(const void *)from;
    if (dtype == TENSOR_F32) {
        double *d = (double *)(void *)to;
        int64_t i = 0;
        for (; i + 4 <= n; i += 4) {                        // loads first: the compiler may use vectors
            double p = d[i] + (double)s[i], q = d[i + 1] + (double)s[i + 1];
            double u = d[i + 2] + (double)s[i + 2], v = d[i + 3] + (double)s[i + 3];
            d[i] = p; d[i + 1] = q; d[i + 2] = u; d[i + 3] = v;
        }
        for (; i < n; i++) { d[i] += (double)s[i]; }
        return;
    }
    int64_t u[TENSOR__BLOCK], v[TENSOR__BLOCK];
    int klass = tensor__is_float(dtype) ? TENSOR__C_F64 : TENSOR__C_I64;
    for (int64_t i = 0; i < n; i += TENSOR__BLOCK) {
        int64_t m = tensor__least(n - i, TENSOR__BLOCK);
        tensor__load_run(u, klass, to + i * tensor__sizes[sum], sum, 1, m);
        tensor__load_run(v, klass, from + i * tensor__sizes[dtype], dtype, 1, m);
        for (int64_t k = 0; k < m; k++) {
            if (klass == TENSOR__C_I64) {
                u[k] = (int64_t)((uint64_t)u[k] + (uint64_t)v[k]);
            } else {
                ((double *)(void *)u)[k] += ((double *)(void *)v)[k];
            }
        }
        tensor__store_run(to + i * tensor__sizes[sum], sum, 1, u, klass, m);
    }
}
// to, of dtype sum, += from.
TENSOR__INLINE void tensor__add_elements(char *to, int sum, const char *from, int dtype, int64_t n) {
    if (sum != TENSOR_F32) {
        tensor__add_converted(to, sum, from, dtype, n);
        return;
    }
    float *d = (float *)(void *)to;
    const float *s = (const float *)(const void *)from;
    for (int64_t i = 0; i < n; i++) { d[i] += s[i]; }
}
// GATHER where index has x's sizes but along dim: a piece of the flat result, no multi-index to carry on.
typedef struct tensor__gather_t {
    const char *x, *index;
    char *y;
    int64_t n, m, inner, numel;
    int size, wide;
} tensor__gather_t;
TENSOR__FN void tensor__gather_task(void *arg, int64_t task, int worker) {
    const tensor__gather_t *g = (const tensor__gather_t *)arg;
    int64_t j = task * TENSOR__GRAIN, end = j + tensor__least(g->numel - j, TENSOR__GRAIN);
    int64_t i = j % g->inner, k = j / g->inner % g->m, row = j / g->inner / g->m * g->n;
    (void)worker;
#define TENSOR__X(S)                                                                                         \
    case S:                                                                                                  \
        for (; j < end; j++) {                                                                               \
            int64_t at = g->wide ? ((const int64_t *)(const void *)g->index)[j]                              \
                                 : ((const int32_t *)(const void *)g->index)[j];                             \
            memcpy(g->y + j * S, g->x + ((row + at) * g->inner + i) * S, S);                                 \
            if (++i == g->inner) { i = 0; if (++k == g->m) { k = 0; row += g->n; } }                         \
        }                                                                                                    \
        break;
    switch (g->size) { TENSOR__X(1) TENSOR__X(2) TENSOR__X(4) TENSOR__X(8) default: break; }
#undef TENSOR__X
}
// *to = *to times, or the larger or smaller of it and *from; NaN wins.
TENSOR__FN void tensor__combine(char *to, const char *from, int dtype, int64_t how) {
    if (tensor__is_float(dtype)) {
        double a, b;
        tensor__load_f64(&a, to, dtype, 1, 1);
        tensor__load_f64(&b, from, dtype, 1, 1);
        a = how == 0 ? a * b : b != b || (how == 1 ? b > a : b < a) ? b : a;
        tensor__store_f64(to, dtype, 1, &a, 1);
    } else {
        int64_t a, b;
        tensor__load_i64(&a, to, dtype, 1, 1);
        tensor__load_i64(&b, from, dtype, 1, 1);
        a = how == 0 ? (int64_t)((uint64_t)a * (uint64_t)b) : (how == 1 ? b > a : b < a) ? b : a;
        tensor__store_run(to, dtype, 1, &a, TENSOR__C_I64, 1);
    }
}
// Whether index names whole rows along the dim, or single elements.
TENSOR__FN int tensor__by_rows(int id) {
    return id == TENSOR_OP_INDEX_SELECT || id == TENSOR_OP_INDEX_ADD || id == TENSOR_OP_INDEX_COPY;
}
// Sums of f32, f16 and bf16 are taken in double where many fall to an element on average: scratch for them.
TENSOR__FN uint64_t tensor__scratch_index(const tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0], *index = &c->arg[1];
    int64_t n = x->dims[c->p->i[0]], each = c->row->id == TENSOR_OP_INDEX_ADD && n ? x->numel / n : 1;
    int many = index->numel / 16 >= (c->row->id == TENSOR_OP_INDEX_ADD ? n : x->numel);
    return tensor__is_float(x->dtype) && x->dtype != TENSOR_F64 && many && each ? (uint64_t)x->numel * 8 : 0;
}
// GATHER, INDEX_SELECT x, index; INDEX_ADD, INDEX_COPY, SCATTER, SCATTER_ADD, SCATTER_REDUCE x, index, src.
// i[0] = dim. In place when x is the output.
TENSOR__FN int tensor__cpu_index(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0], *index = &c->arg[1], *src = &c->arg[2];
    tensor_arg_t *y = &c->arg[c->nin];
    int id = c->row->id, d = (int)c->p->i[0], size = tensor__sizes[x->dtype], is =
        tensor__sizes[index->dtype];
    int64_t n = x->dims[d], outer = 1, inner = 1;
    for (int i = 0; i < d; i++) { outer *= x->dims[i]; }
    for (int i = d + 1; i < x->ndim; i++) { inner *= x->dims[i]; }
    int code = tensor__check_index(c, index, n);
    if (code) { return code; }
    int added = id == TENSOR_OP_INDEX_ADD || id == TENSOR_OP_SCATTER_ADD;
    int wide = added && tensor__scratch_index(c) > 0, sum = wide ? (int)TENSOR_F64 : (int)x->dtype;
    int64_t step = tensor__sizes[sum];
    char *to = wide ? (char *)c->scratch : (char *)y->data;
    if (wide) {
        tensor__load_f64((double *)c->scratch, x->data, x->dtype, 1, x->numel);
    } else if (c->nin == 3 && y->data != x->data) {
        memcpy(y->data, x->data, (size_t)(x->numel * size));
    }
    if (tensor__by_rows(id)) {
        int64_t m = index->numel;
        for (int64_t o = 0; o < outer; o++) {
            for (int64_t k = 0; k < m; k++) {
                int64_t at;
                tensor__load_i64(&at, (const char *)index->data + k * is, index->dtype, 1, 1);
                if (id == TENSOR_OP_INDEX_SELECT) {
                    memcpy((char *)y->data + (o * m + k) * inner * size, (const char *)x->data +
                           (o * n + at) * inner * size, (size_t)(inner * size));
                } else if (id == TENSOR_OP_INDEX_COPY) {
                    memcpy((char *)y->data + (o * n + at) * inner * size, (const char *)src->data +
                           (o * m + k) * inner * size, (size_t)(inner * size));
                } else {
                    tensor__add_elements(to + (o * n + at) * inner * step, sum, (const char *)src->data +
                                         (o * m + k) * inner * size, x->dtype, inner);
                }
            }
        }
        if (wide) { tensor__store_f64(y->data, y->dtype, 1, (const double *)c->scratch, x->numel); }
        return 0;
    }
    if (id == TENSOR_OP_GATHER && index->numel && index->numel / index->dims[d] == x->numel / n) {
        tensor__gather_t g = {(const char *)x->data, (const char *)index->data, (char *)y->data, n,
                              index->dims[d], inner, y->numel, size, index->dtype == TENSOR_I64};
        tensor__parallel((y->numel + TENSOR__GRAIN - 1) / TENSOR__GRAIN, tensor__gather_task, &g);
        return 0;
    }
    int64_t at[TENSOR_MAX_DIMS] = {0};
    for (int64_t i = 0; i < index->numel; i++) {        // at = the multi-index of index's element i
        int64_t k, place = 0, from = 0;
        tensor__load_i64(&k, (const char *)index->data + i * is, index->dtype, 1, 1);
        for (int e = 0; e < x->ndim; e++) { place += (e == d ? k : at[e]) * x->strides[e]; }
        if (id == TENSOR_OP_GATHER) {
            memcpy((char *)y->data + i * size, (const char *)x->data + place * size, (size_t)size);
        } else {
            for (int e = 0; e < x->ndim; e++) { from += at[e] * src->strides[e]; }
            const char *s = (const char *)src->data + from * size;
            if (id == TENSOR_OP_SCATTER) {
                memcpy((char *)y->data + place * size, s, (size_t)size);
            } else if (id == TENSOR_OP_SCATTER_REDUCE) {
                tensor__combine((char *)y->data + place * size, s, x->dtype, c->p->i[1]);
            } else {
                tensor__add_elements(to + place * step, sum, s, x->dtype, 1);
            }
        }
        for (int e = x->ndim - 1; e >= 0 && ++at[e] == index->dims[e]; e--) { at[e] = 0; }
    }
    if (wide) { tensor__store_f64(y->data, y->dtype, 1, (const double *)c->scratch, x->numel); }
    return 0;
}

// INDEX: each element's indices (broadcast inputs) as one flat place; i[k] = size index k runs over, negative
// ones count from its end.
TENSOR__FN int tensor__cpu_places(tensor_call_t *c) {
    tensor_arg_t *y = &c->arg[c->nin];
    tensor__iter_t it;
    tensor__iter_init(&it, c->arg, c->nin, 1, y->dims, y->ndim, y->numel, TENSOR__C_I64);
    for (int64_t i = 0; i < y->numel; i += TENSOR__BLOCK) {
        int64_t at[TENSOR__BLOCK], place[TENSOR__BLOCK] = {0}, m = tensor__least(y->numel - i, TENSOR__BLOCK);
        for (int a = 0; a < c->nin; a++) {
            int64_t n = c->p->i[a];
            tensor__iter_move(&it, a, i, m, at, 0);
            for (int64_t k = 0; k < m; k++) {
                TENSOR__REFUSE_CODE(at[k] < -n || at[k] >= n, INDEX,
                                    "index: index %d at element %d of %n is outside %d..%d", at[k], i + k,
                                    y->dims, (int)y->ndim, -n, n - 1);
                place[k] = place[k] * n + (at[k] < 0 ? at[k] + n : at[k]);
            }
        }
        tensor__iter_move(&it, c->nin, i, m, place, 1);
    }
    return 0;
}
TENSOR__COLD
// -> [broadcast shape] i64
TENSOR__FN tensor_t *tensor__places(tensor_t *const *index, const int64_t *sizes, int n) {
    tensor__op_t o;
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE("index", "index", index[i])) { return TENSOR__POISON; }
        TENSOR__REFUSE(index[i]->dtype != TENSOR_I64 && index[i]->dtype != TENSOR_I32, DTYPE,
                       "index: index %t must be i64, i32 or bool, not %y", index[i], index[i]);
        TENSOR__REFUSE(!tensor__broadcast(dims, &ndim, index[i]->dims, index[i]->ndim), SHAPE,
                       "index: index %t does not broadcast with %n", index[i], dims, ndim);
    }
    if (!tensor__begin(&o, TENSOR__ROW(INDEX), index, n)) { return TENSOR__POISON; }
    o.p = &o.params;
    for (int i = 0; i < n; i++) { o.params.i[i] = sizes[i]; }
    tensor__result(&o, TENSOR_I64, dims, ndim);
    return tensor__finish(&o);
}

// Front of them: checks dtypes and shapes, makes everything contiguous. 0-d operands count as [1]. update: in
// place, which needs a contiguous x; another is written back.
TENSOR__FN tensor_t *tensor__index_op(int id, tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                      int how, int update) {
    TENSOR__MARK
    tensor__op_t o;
    tensor_t *const in[3] = {x, index, src};
    int has_src = id != TENSOR_OP_INDEX_SELECT && id != TENSOR_OP_GATHER, rows = tensor__by_rows(id);
    if (!tensor__begin(&o, tensor__row(id), in, has_src ? 3 : 2)) { return TENSOR__POISON; }
    const char *name = o.row->name;
    if (!x->ndim || (!index->ndim && (!has_src || src->ndim == x->ndim || !src->ndim))) {
        tensor_t *y = tensor__index_op(id, x->ndim ? x : tensor__flat(x), dim, index->ndim ? index :
                                       tensor__flat(index), has_src && !src->ndim ? tensor__flat(src) : src,
                                       how, update);
        const tensor_t *as = id == TENSOR_OP_GATHER ? index : x;
        if (tensor__live(y) && update) { y = x; }
        if (!update && !as->ndim) { y = tensor_reshape_n(y, as->dims, 0); }
        TENSOR__RETURN(y);
    }
    TENSOR__DIM(d, name, dim, x)
    TENSOR__REFUSE(index->dtype != TENSOR_I64 && index->dtype != TENSOR_I32, DTYPE,
                   "%s: index %t must be i64 or i32, not %y", name, index, index);
    TENSOR__REFUSE(has_src && src->dtype != x->dtype, DTYPE, "%s: src %t is %y, x is %y", name, src, src, x);
    int64_t dims[TENSOR_MAX_DIMS];
    int bad = (rows ? index->ndim != 1 : index->ndim != x->ndim) || (has_src && src->ndim != x->ndim);
    for (int i = 0; i < x->ndim && !bad; i++) {
        dims[i] = rows ? (i == d ? index->dims[0] : x->dims[i]) : index->dims[i];
        if (!rows && i != d && index->dims[i] > x->dims[i]) { bad = index->numel != 0; }
        if (has_src && (rows ? src->dims[i] != dims[i] : src->dims[i] < dims[i])) { bad = 1; }
    }
    TENSOR__REFUSE(bad && has_src, SHAPE, "%s: index %t and src %t do not fit x %t along dim %i", name, index,
                   src, x, d);
    TENSOR__REFUSE(bad, SHAPE, "%s: index %t does not fit x %t along dim %i", name, index, x, d);
    if (update && !(x->flags & TENSOR__CONTIGUOUS)) {
        if (!tensor__update_allowed(o.th, name, x, 0)) { return TENSOR__POISON; }
        TENSOR__RETURN(tensor_copy_(x, tensor__index_op(id, x, d, index, src, how, 0)));
    }
    for (int i = 0; i < o.nin; i++) {
        o.args[i] = update && i && o.args[i]->storage == x->storage ? tensor_clone(o.args[i]) :
            tensor_contiguous(o.args[i]);
        if (o.args[i] == TENSOR__POISON) { return TENSOR__POISON; }
    }
    tensor__ints(&o, d, how);
    if (update) {
        if (!tensor__update_allowed(o.th, name, x, tensor__tracks(&o))) { return TENSOR__POISON; }
        o.update = 1;
        o.out[o.nout++] = x;
    } else {
        tensor__result(&o, x->dtype, has_src ? x->dims : dims, x->ndim);
    }
    TENSOR__RETURN(tensor__finish(&o));
}
TENSOR__FRONT(index_select, (tensor_t *x, int64_t dim, tensor_t *index),
    tensor__index_op(TENSOR_OP_INDEX_SELECT, x, dim, index, NULL, 0, 0))
TENSOR__FRONT(gather, (tensor_t *x, int64_t dim, tensor_t *index),
    tensor__index_op(TENSOR_OP_GATHER, x, dim, index, NULL, 0, 0))
// value as a tensor of dims with x's dtype and device, for the ops that take a tensor.
TENSOR__FN tensor_t *tensor__spread(double value, const tensor_t *x, const int64_t *dims, int ndim) {
    return tensor_expand_n(tensor__filled("scalar", tensor__no_dims, 0, x->dtype, value, x), dims, ndim);
}
TENSOR__FN tensor_t *tensor__scatter_value(tensor_t *x, int64_t dim, tensor_t *index, double value,
                                           int update) {
    TENSOR__MARK
    if (!TENSOR__USABLE("scatter", "x", x) || !TENSOR__USABLE("scatter", "index", index) ||
        !tensor__holds("scatter", x->dtype, value)) { return TENSOR__POISON; }
    TENSOR__RETURN(tensor__index_op(TENSOR_OP_SCATTER, x, dim, index,
                                    tensor__spread(value, x, index->dims, index->ndim), 0, update));
}
TENSOR__FN tensor_t *tensor__index_fill(tensor_t *x, int64_t dim, tensor_t *index, double value, int update) {
    TENSOR__MARK
    if (!TENSOR__USABLE("index_fill", "x", x) ||
        !tensor__holds("index_fill", x->dtype, value)) { return TENSOR__POISON; }
    int64_t dims[TENSOR_MAX_DIMS], one = 1, *size = x->ndim ? x->dims : &one;
    TENSOR__DIM(d, "index_fill", dim, x)
    tensor_t *at = tensor__flat(tensor__places(&index, &size[d], 1));
    if (at == TENSOR__POISON) { return tensor__named(th_, at, "tensor_index_fill"); }
    for (int i = 0; i < x->ndim; i++) { dims[i] = i == d ? at->numel : x->dims[i]; }
    TENSOR__RETURN(tensor__index_op(TENSOR_OP_INDEX_COPY, x, d, at,
                                    tensor__spread(value, x, dims, x->ndim), 0, update));
}
TENSOR_API tensor_t *(tensor_scatter_reduce)(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                             const char *reduce, int include_self) {
    TENSOR__MARK
    static const char *const names[] = {"prod", "amax", "amin", "sum", "mean"};
    static const double neutral[] = {1, -INFINITY, INFINITY, 0, 0};
    int how = 0;
    if (!TENSOR__USABLE("scatter_reduce", "x", x)) { return TENSOR__POISON; }
    while (how < 5 && (!reduce || strcmp(reduce, names[how]))) { how++; }
    TENSOR__REFUSE(how == 5, FORMAT, "scatter_reduce: reduce must be sum, prod, mean, amax or amin, not "
                   "\"%s\"", reduce ? reduce : "NULL");
    tensor_t *start = x, *y;
    if (!include_self) {
        if (!TENSOR__USABLE("scatter_reduce", "index", index)) { return TENSOR__POISON; }
        tensor_t *none = tensor__spread(how == 1 && x->dtype == TENSOR_BOOL ? 0 : neutral[how], x,
                                        index->dims, index->ndim);      // an integer's smallest for -inf
        start = tensor__index_op(TENSOR_OP_SCATTER, x, dim, index, none, 0, 0);
    }
    if (how < 3) {
        y = tensor__index_op(TENSOR_OP_SCATTER_REDUCE, start, dim, index, src, how, 0);
    } else {
        y = tensor_scatter_add(start, dim, index, src);
        if (how == 4 && y != TENSOR__POISON) {
            tensor_t *n = tensor__spread(include_self != 0, x, x->dims, x->ndim);
            n = tensor_scatter_add(n, dim, index, tensor_ones_like(src));
            n = tensor_maximum_scalar(n, 1);
            y = tensor__is_float(x->dtype) ? tensor_div(y, n) : tensor_floor_divide(y, n);
        }
    }
    TENSOR__RETURN(y);
}
#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src) {         \
        return tensor__index_op(TENSOR_OP_##ID, x, dim, index, src, 0, 0);                                   \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_)(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src) {      \
        return tensor__index_op(TENSOR_OP_##ID, x, dim, index, src, 0, 1);                                   \
    }
TENSOR__X(INDEX_ADD, index_add) TENSOR__X(INDEX_COPY, index_copy) TENSOR__X(SCATTER, scatter)
TENSOR__X(SCATTER_ADD, scatter_add)
#undef TENSOR__X
#define TENSOR__X(name, fn)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, int64_t dim, tensor_t *index, double value) {          \
        return fn(x, dim, index, value, 0);                                                                  \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_)(tensor_t *x, int64_t dim, tensor_t *index, double value) {       \
        return fn(x, dim, index, value, 1);                                                                  \
    }
TENSOR__X(scatter_value, tensor__scatter_value) TENSOR__X(index_fill, tensor__index_fill)
#undef TENSOR__X
TENSOR__MADE(index_add_alpha, (tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src, double alpha),
    tensor_index_add(x, dim, index, tensor_mul_scalar(src, alpha)))
TENSOR_API tensor_t *(tensor_scatter_reduce_)(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src,
                                              const char *reduce, int include_self) {
    TENSOR__MARK
    // The gradient needs x as it was.
    tensor_t *was = th_->grad_mode ? tensor_clone(x) : x;
    TENSOR__RETURN(tensor_copy_(x, tensor_scatter_reduce(was, dim, index, src, reduce, include_self)));
}
TENSOR_API tensor_t *(tensor_take_along_dim)(tensor_t *x, tensor_t *index, int64_t dim) {
    TENSOR__MARK2(x, index)
    int64_t a[TENSOR_MAX_DIMS], b[TENSOR_MAX_DIMS];
    int d = tensor__dim("take_along_dim", dim, x), na = 0, nb = 0, bad = x->ndim != index->ndim;
    if (d < 0) { return TENSOR__POISON; }
    for (int i = 0; i < x->ndim && !bad; i++) {
        int64_t m = x->dims[i], n = index->dims[i];
        bad = i != d && m != n && m != 1 && n != 1;
        a[na++] = i == d || n == 1 ? m : n;
        b[nb++] = i == d || m == 1 ? n : m;
    }
    TENSOR__REFUSE(bad, SHAPE, "take_along_dim: index %t does not fit x %t along dim %i", index, x, d);
    TENSOR__RETURN(tensor_gather(tensor_expand_n(x, a, na), d, tensor_expand_n(index, b, nb)));
}
TENSOR__FN tensor_t *tensor__zeros_meta(const tensor__meta_t *m) {
    return tensor_zeros_n(m->dims, m->ndim, (tensor_dtype_t)m->dtype);
}
// g cut to the sizes of src's part that index reached, and put back into src's shape.
TENSOR__FN tensor_t *tensor__grad_src(tensor__grad_t *g, tensor_t *part) {
    const tensor__meta_t *src = &g->node->in[2];
    if (part == TENSOR__POISON) { return part; }
    for (int d = 0; d < src->ndim; d++) {
        if (part->dims[d] == src->dims[d]) { continue; }
        int64_t dims[TENSOR_MAX_DIMS];
        for (int e = 0; e < src->ndim; e++) {
            dims[e] = e == d ? src->dims[d] - part->dims[d] : part->dims[e];
        }
        tensor_t *pair[2] = {part, tensor_zeros_n(dims, src->ndim, (tensor_dtype_t)part->dtype)};
        part = tensor_cat_n(pair, 2, d);
        if (part == TENSOR__POISON) { return part; }
    }
    return part;
}
TENSOR__FN void tensor__grad_index_select(tensor__grad_t *g) {
    g->gx[0] = tensor_index_add(tensor__zeros_meta(&g->node->in[0]), g->p->i[0], tensor__grad_in(g, 1),
                                g->gy[0]);
}
TENSOR__FN void tensor__grad_index_add(tensor__grad_t *g) {
    g->gx[0] = g->gy[0];
    if (tensor__grad_need(g, 2)) {
        g->gx[2] = tensor_index_select(g->gy[0], g->p->i[0], tensor__grad_in(g, 1));
    }
}
TENSOR__FN void tensor__grad_index_copy(tensor__grad_t *g) {
    tensor_t *index = tensor__grad_in(g, 1);
    if (tensor__grad_need(g, 0)) { g->gx[0] = tensor_index_fill(g->gy[0], g->p->i[0], index, 0); }
    if (tensor__grad_need(g, 2)) { g->gx[2] = tensor_index_select(g->gy[0], g->p->i[0], index); }
}
TENSOR__FN void tensor__grad_gather(tensor__grad_t *g) {
    g->gx[0] = tensor_scatter_add(tensor__zeros_meta(&g->node->in[0]), g->p->i[0], tensor__grad_in(g, 1),
                                  g->gy[0]);
}
TENSOR__FN void tensor__grad_scatter_add(tensor__grad_t *g) {
    g->gx[0] = g->gy[0];
    if (tensor__grad_need(g, 2)) {
        g->gx[2] = tensor__grad_src(g, tensor_gather(g->gy[0], g->p->i[0], tensor__grad_in(g, 1)));
    }
}
TENSOR__FN void tensor__grad_scatter(tensor__grad_t *g) {
    tensor_t *index = tensor__grad_in(g, 1);
    if (!tensor__live(index)) { return; }
    if (tensor__grad_need(g, 0)) { g->gx[0] = tensor_scatter_value(g->gy[0], g->p->i[0], index, 0); }
    if (tensor__grad_need(g, 2)) {
        g->gx[2] = tensor__grad_src(g, tensor_gather(g->gy[0], g->p->i[0], index));
    }
}
// The largest, smallest: g shared by all that are equal to the result. A product without one factor: the
// product over it, and where exactly one factor is 0, the product with a 1 in its place.
TENSOR__FN void tensor__grad_scatter_reduce(tensor__grad_t *g) {
    tensor_t *x = tensor__grad_in(g, 0), *index = tensor__grad_in(g, 1), *src = tensor__grad_in(g, 2);
    tensor_t *gy = g->gy[0], *y = tensor__grad_out(g, 0);
    int64_t d = g->p->i[0];
    if (!tensor__live(index) || !tensor__live(src)) { return; }
    tensor_dtype_t dtype = (tensor_dtype_t)src->dtype;
    for (int i = 0; i < index->ndim; i++) { src = tensor_narrow(src, i, 0, index->dims[i]); }
    if (g->p->i[1]) {
        tensor_t *mx = tensor_to(tensor_eq(x, y), dtype);
        tensor_t *ms = tensor_to(tensor_eq(src, tensor_gather(y, d, index)), dtype);
        tensor_t *each = tensor_div(gy, tensor_scatter_add(mx, d, index, ms));
        g->gx[0] = tensor_mul(mx, each);
        g->gx[2] = tensor__grad_src(g, tensor_mul(ms, tensor_gather(each, d, index)));
        return;
    }
    tensor_t *zx = tensor_eq_scalar(x, 0), *zs = tensor_eq_scalar(src, 0), *x1 = tensor_masked_fill(x, zx, 1);
    g->gx[0] = tensor_mul(gy, tensor_div(tensor_scatter_reduce(x1, d, index, src, "prod", 1), x1));
    tensor_t *zeros = tensor_scatter_add(tensor_zeros_like(x), d, index, tensor_to(zs, dtype));
    tensor_t *single = tensor_logical_and(zs, tensor_eq_scalar(tensor_gather(zeros, d, index), 1));
    tensor_t *without = tensor_scatter_reduce(x, d, index, tensor_masked_fill(src, single, 1), "prod", 1);
    g->gx[2] = tensor__grad_src(g, tensor_where(single, tensor_gather(tensor_mul(gy, without), d, index),
                                tensor_div(tensor_gather(tensor_mul(gy, y), d, index),
                                           tensor_masked_fill(src, zs, 1))));
}

TENSOR_API tensor_t *(tensor_cat_n)(tensor_t *const *list, int n, int64_t dim) {
    tensor__op_t o;
    if (!list || n < 1) { return tensor__no_list("cat", list, n); }
    if (!tensor__begin(&o, TENSOR__ROW(CAT), list, n)) { return TENSOR__POISON; }
    // PyTorch's exception: [0] joins with any shape. It counts for the dtype alone.
    int empty = 0, promoted = list[0]->dtype;
    for (int i = 0; i < n; i++) {
        empty += list[i]->ndim == 1 && !list[i]->numel;
        promoted = tensor__promote2(promoted, list[i]->dtype);
    }
    if (empty && empty < n) {
        TENSOR__MARK
        tensor_t **rest = (tensor_t **)tensor__memory(o.th, (uint64_t)n * sizeof *rest);
        int k = 0;
        if (!rest) { return TENSOR__POISON; }
        for (int i = 0; i < n; i++) { if (list[i]->ndim != 1 || list[i]->numel) { rest[k++] = list[i]; } }
        tensor_t *joined = (tensor_cat_n)(rest, k, dim);
        tensor__memory_free(o.th, rest);
        TENSOR__RETURN(tensor_to(joined, promoted));
    }
    TENSOR__DIM(d, "cat", dim, list[0])
    TENSOR__REFUSE(!list[0]->ndim, SHAPE, "cat: 0-d tensors cannot be joined; use stack");
    int64_t dims[TENSOR_MAX_DIMS], total = 0;
    int dtype = list[0]->dtype;
    for (int i = 0; i < list[0]->ndim; i++) { dims[i] = list[0]->dims[i]; }
    for (int i = 0; i < n; i++) {
        int bad = list[i]->ndim != list[0]->ndim;
        for (int k = 0; k < list[0]->ndim && !bad; k++) { bad = k != d && list[i]->dims[k] != dims[k]; }
        TENSOR__REFUSE(bad, SHAPE, "cat: tensor %i %t does not fit the first %t along dim %i", i, list[i],
                       list[0], d);
        dtype = tensor__promote2(dtype, list[i]->dtype);
        uint64_t sum = (uint64_t)total + (uint64_t)list[i]->dims[d];
        TENSOR__REFUSE(sum > (uint64_t)1 << 60, SHAPE, "cat: dim %i overflows", d);
        total = (int64_t)sum;
    }
    dims[d] = total;
    tensor_t *y = tensor__result(&o, dtype, dims, list[0]->ndim);
    if (y == TENSOR__POISON) { return y; }
    tensor_scope_t s = tensor__scope_begin(o.th, 0);
    int64_t start = 0;
    int ok = s.thread != NULL;
    for (int i = 0; i < n && ok; i++) {
        ok = tensor_copy_(tensor__slice(y, d, start, 1, list[i]->dims[d]), list[i]) != TENSOR__POISON;
        start += list[i]->dims[d];
    }
    if (s.thread) { (tensor_scope_end)(s); }
    tensor__ints(&o, d, 0);
    return ok ? tensor__commit(&o) : tensor__abandon(&o);
}
TENSOR__FN void tensor__grad_cat(tensor__grad_t *g) {
    int64_t start = 0, d = g->p->i[0];
    for (int i = 0; i < g->node->nin; i++) {
        int64_t n = g->node->in[i].dims[d];
        if (tensor__grad_need(g, i)) { g->gx[i] = tensor__slice(g->gy[0], (int)d, start, 1, n); }
        start += n;
    }
}
TENSOR_API tensor_t *(tensor_stack_n)(tensor_t *const *list, int n, int64_t dim) {
    TENSOR__MARK
    tensor__thread_t *th = tensor__self();
    if (!list || n < 1) { return tensor__no_list("stack", list, n); }
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE("stack", "list", list[i])) { return TENSOR__POISON; }
        TENSOR__REFUSE(!tensor__same_shape(list[i], list[0]), SHAPE,
                       "stack: tensor %i %t has not the shape of the first %t", i, list[i], list[0]);
    }
    int d = tensor__dim_of("stack", dim, list[0]->ndim + 1, list[0]);
    if (d < 0) { return TENSOR__POISON; }
    tensor_t **views = (tensor_t **)tensor__memory(th, (uint64_t)n * sizeof *views);
    if (!views) { return TENSOR__POISON; }
    for (int i = 0; i < n; i++) { views[i] = tensor_unsqueeze(list[i], d); }
    tensor_t *y = tensor_cat_n(views, n, d);
    tensor__memory_free(th, views);
    TENSOR__RETURN(y);
}
// hstack, vstack, dstack, column_stack: 0 .. 3.
TENSOR__FN tensor_t *tensor__stacked(const char *op, tensor_t *const *list, int n, int how) {
    TENSOR__MARK
    if (!list || n < 1) { return tensor__no_list(op, list, n); }
    tensor_t **parts = (tensor_t **)tensor__memory(th_, (uint64_t)n * sizeof *parts), *y = NULL;
    if (!parts) { return TENSOR__POISON; }
    for (int i = 0; i < n && !y; i++) {
        if (!TENSOR__USABLE(op, "list", list[i])) { y = TENSOR__POISON; break; }
        parts[i] = how == 3 && list[i]->ndim < 2 ? tensor_unsqueeze(tensor__flat(list[i]), 1) :
            tensor__atleast(list[i], how == 3 ? 2 : how + 1);
    }
    if (!y) { y = tensor_cat_n(parts, n, how == 0 ? parts[0]->ndim > 1 : how == 3 ? 1 : how == 2 ? 2 : 0); }
    tensor__memory_free(th_, parts);
    return tensor__tidy(th_, mark_, y);
}
TENSOR__FRONT(hstack_n, (tensor_t *const *list, int n), tensor__stacked("hstack", list, n, 0))
TENSOR__FRONT(vstack_n, (tensor_t *const *list, int n), tensor__stacked("vstack", list, n, 1))
TENSOR__FRONT(dstack_n, (tensor_t *const *list, int n), tensor__stacked("dstack", list, n, 2))
TENSOR__FRONT(column_stack_n, (tensor_t *const *list, int n), tensor__stacked("column_stack", list, n, 3))
TENSOR_API tensor_t *(tensor_tile_n)(tensor_t *x, const int64_t *repeats, int n) {
    int64_t all[TENSOR_MAX_DIMS];
    int more = tensor__live(x) && n >= 0 && n < x->ndim ? x->ndim - n : 0;
    if (!more || !repeats) { return (tensor_repeat_n)(x, repeats, n); }
    for (int i = 0; i < x->ndim; i++) { all[i] = i < more ? 1 : repeats[i - more]; }
    return (tensor_repeat_n)(x, all, x->ndim);
}
TENSOR_API tensor_t *(tensor_repeat_interleave)(tensor_t *x, int64_t repeats, int64_t dim) {
    TENSOR__MARK1(x)
    TENSOR__DIM(d, "repeat_interleave", dim, x)
    if (!x->ndim) { x = tensor__flat(x); }
    int64_t dims[TENSOR_MAX_DIMS + 1], n;
    for (int i = 0; i <= x->ndim; i++) { dims[i] = i == d + 1 ? repeats : x->dims[i > d ? i - 1 : i]; }
    TENSOR__REFUSE(x->ndim == TENSOR_MAX_DIMS || !tensor__numel_of(dims, x->ndim + 1, &n), SHAPE,
                   "repeat_interleave: x %t cannot be repeated %d times", x, repeats);
    tensor_t *y = tensor_flatten(tensor_expand_n(tensor_unsqueeze(x, d + 1), dims, x->ndim + 1), d, d + 1);
    TENSOR__RETURN(y != TENSOR__POISON && y->storage == x->storage ? tensor_clone(y) : y);
}
TENSOR_API tensor_t *(tensor_repeat_interleave_tensor)(tensor_t *x, tensor_t *repeats, int64_t dim) {
    TENSOR__MARK
    if (!TENSOR__USABLE("repeat_interleave", "x", x) ||
        !TENSOR__USABLE("repeat_interleave", "repeats", repeats)) { return TENSOR__POISON; }
    TENSOR__DIM(d, "repeat_interleave", dim, x)
    if (!x->ndim) { x = tensor__flat(x); }
    TENSOR__REFUSE(repeats->ndim != 1 || repeats->dims[0] != x->dims[d] || tensor__is_float(repeats->dtype),
                   SHAPE, "repeat_interleave: repeats %t %y must be one integer for each of dim %i of x %t",
                   repeats, repeats, d, x);
    if (!repeats->numel) { return tensor_clone(x); }
    TENSOR__REFUSE(tensor_item(tensor_min(repeats)) < 0, INDEX,
                   "repeat_interleave: repeats must not be negative");
    // Each source row marks where its copies start; the running count of marks names the row of a place.
    tensor_t *ends = tensor_cumsum(tensor_to(repeats, TENSOR_I64), 0), *starts = tensor_sub(ends, repeats);
    int64_t n = tensor_item_i64(tensor_select(ends, 0, -1)), room = n + 1;
    tensor_t *marks = tensor_zeros_n(&room, 1, TENSOR_I64);
    marks = tensor_index_add_(marks, 0, starts, tensor_ones_like(starts));
    tensor_t *rows = tensor_sub_scalar(tensor_cumsum(tensor_narrow(marks, 0, 0, n), 0), 1);
    TENSOR__RETURN(tensor_index_select(x, d, rows));
}
// NONZERO: places of the true elements of a contiguous mask, in order.
TENSOR__FN int tensor__cpu_nonzero(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0];
    const uint8_t *m = (const uint8_t *)x->data;
    int64_t *to = (int64_t *)c->arg[1].data;
    for (int64_t i = 0; i < x->numel; i++) {
        if (!m[i]) { continue; }
        if (!c->p->i[0]) { *to++ = i; continue; }
        for (int d = 0; d < x->ndim; d++) { *to++ = i / x->strides[d] % x->dims[d]; }
    }
    return 0;
}
// Places of the true elements of mask (bool) after it was broadcast to dims: [n], or [n, ndim] if apart.
TENSOR__FN tensor_t *tensor__true_places(tensor_t *mask, const int64_t *dims, int ndim, int apart) {
    TENSOR__MARK
    tensor__op_t o;
    tensor_t *m = tensor_contiguous(tensor_expand_n(mask, dims, ndim));
    tensor_t *sum = tensor_sum(m);
    int64_t count[2] = {tensor__item_i64(sum, apart ? "nonzero" : "mask"), ndim};
    if (!tensor__live(sum) || !tensor__begin(&o, TENSOR__ROW(NONZERO), &m, 1)) { return TENSOR__POISON; }
    tensor__ints(&o, apart, 0);
    tensor__result(&o, TENSOR_I64, count, apart ? 2 : 1);
    return tensor__tidy(th_, mark_, tensor__finish(&o));
}
TENSOR_API tensor_t *(tensor_nonzero)(tensor_t *x) {
    TENSOR__MARK1(x)
    tensor_t *m = x->dtype == TENSOR_BOOL ? x : tensor_ne_scalar(x, 0);
    TENSOR__RETURN(tensor__true_places(m, x->dims, x->ndim, 1));
}
// mask and x broadcast to one shape. 0 = they do not, raised.
TENSOR__FN int tensor__masked(const char *name, tensor_t *x, tensor_t *mask, int64_t *dims, int *ndim) {
    *ndim = 0;
    if (!TENSOR__USABLE(name, "x", x) || !TENSOR__USABLE(name, "mask", mask)) { return 0; }
    TENSOR__REFUSE_AS(0, mask->dtype != TENSOR_BOOL, DTYPE, "%s: mask %t must be bool, not %y", name, mask,
                      mask);
    TENSOR__REFUSE_AS(0, !(tensor__broadcast(dims, ndim, x->dims, x->ndim) && tensor__broadcast(dims, ndim,
                      mask->dims, mask->ndim)), SHAPE, "%s: x %t and mask %t do not broadcast", name, x,
                      mask);
    return 1;
}
TENSOR_API tensor_t *(tensor_masked_select)(tensor_t *x, tensor_t *mask) {
    TENSOR__MARK
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim;
    if (!tensor__masked("masked_select", x, mask, dims, &ndim)) { return TENSOR__POISON; }
    TENSOR__RETURN(tensor_index_select(tensor__flat(tensor_expand_n(x, dims, ndim)), 0,
                                       tensor__true_places(mask, dims, ndim, 0)));
}
TENSOR_API tensor_t *(tensor_masked_scatter)(tensor_t *x, tensor_t *mask, tensor_t *src) {
    TENSOR__MARK
    int64_t dims[TENSOR_MAX_DIMS];
    int ndim;
    if (!TENSOR__USABLE("masked_scatter", "src", src) ||
        !tensor__masked("masked_scatter", x, mask, dims, &ndim)) {
        return TENSOR__POISON;
    }
    tensor_t *at = tensor__true_places(mask, dims, ndim, 0);
    if (at == TENSOR__POISON) { return at; }
    TENSOR__REFUSE(at->numel > src->numel, SHAPE, "masked_scatter: src %t has fewer elements than the %d "
                   "true ones of mask %t", src, at->numel, mask);
    TENSOR__RETURN(tensor_reshape_n(tensor_index_copy(tensor__flat(tensor_expand_n(x, dims, ndim)), 0, at,
        tensor_narrow(tensor__flat(src), 0, 0, at->numel)), dims, ndim));
}
TENSOR__MADE(masked_scatter_, (tensor_t *x, tensor_t *mask, tensor_t *src),
    tensor_copy_(x, tensor_masked_scatter(x, mask, src)))
TENSOR_API tensor_t *(tensor_take)(tensor_t *x, tensor_t *index) {
    TENSOR__MARK1(x)
    tensor_t *at = tensor__places(&index, &x->numel, 1);
    if (at == TENSOR__POISON) { TENSOR__RETURN(at); }
    TENSOR__RETURN(tensor_reshape_n(tensor_index_select(tensor__flat(x), 0, tensor__flat(at)), at->dims,
                                    at->ndim));
}
TENSOR_API tensor_t *(tensor_put)(tensor_t *x, tensor_t *index, tensor_t *src, int accumulate) {
    TENSOR__MARK1(x)
    tensor_t *at = tensor__places(&index, &x->numel, 1);
    if (at == TENSOR__POISON) { TENSOR__RETURN(at); }
    at = tensor__flat(at);
    TENSOR__RETURN(tensor_reshape_n(tensor__index_op(accumulate ? TENSOR_OP_INDEX_ADD : TENSOR_OP_INDEX_COPY,
        tensor__flat(x), 0, at, tensor__flat(src), 0, 0), x->dims, x->ndim));
}

// Advanced indexing as one index: x with the indexed dims merged into dim `dim`, places along it.
typedef struct tensor__pick_t {
    tensor_t *x, *at;
    int64_t dims[TENSOR_MAX_DIMS], order[TENSOR_MAX_DIMS], back[TENSOR_MAX_DIMS];
    int dim, ndim, moved;       // dims: shape of the result; moved: x was permuted by order, back undoes it
} tensor__pick_t;
TENSOR__FN int tensor__pick(tensor__pick_t *g, tensor_t *x, tensor_t *const *list, int n) {
    tensor_t *index[TENSOR_MAX_DIMS];
    int64_t size[TENSOR_MAX_DIMS], total = 1, part[TENSOR_MAX_DIMS];
    int units = 0, d = 0, used = 0, first = -1, last = -1, k = 0;
    uint32_t taken = 0;
    if (!TENSOR__USABLE("index", "x", x)) { return 0; }
    for (int i = 0; i < n && list; i++) {
        tensor_t *t = list[i];
        if (t && !TENSOR__USABLE("index", "index", t)) { return 0; }
        int mask = t && t->dtype == TENSOR_BOOL, covers = mask ? t->ndim : 1;
        TENSOR__REFUSE_AS(0, d + covers > x->ndim, INDEX, "index: %i indices are too many for x %t", n, x);
        TENSOR__REFUSE_AS(0, mask && memcmp(t->dims, x->dims + d, (size_t)covers * sizeof *t->dims), INDEX,
                          "index: mask %t does not fit x %t at dim %i", t, x, d);
        if (t) {
            if (first < 0) { first = d; }
            last = d + covers;
            index[units] = mask ? tensor__true_places(t, t->dims, t->ndim, 0) : t;
            size[units] = 1;
            for (int e = d; e < last; e++) { size[units] *= x->dims[e]; taken |= 1u << e; }
            used += covers;
            total *= size[units++];
        }
        d += covers;
    }
    TENSOR__REFUSE_AS(0, !units, SHAPE, "index: needs at least one index tensor");
    g->at = tensor__places(index, size, units);
    if (g->at == TENSOR__POISON) { return 0; }
    g->moved = last - first != used;            // indices with a gap between them: their dims come first
    for (int pass = 0; pass < 2; pass++) {
        for (int e = 0; e < x->ndim; e++) { if ((taken >> e & 1) == (pass == 0)) { g->order[k++] = e; } }
    }
    for (int e = 0; e < x->ndim; e++) {
        if (!g->moved) { g->order[e] = e; }
        g->back[g->order[e]] = e;
    }
    g->dim = g->moved ? 0 : first;
    g->ndim = x->ndim - used + g->at->ndim;
    TENSOR__REFUSE_AS(0, g->ndim > TENSOR_MAX_DIMS, SHAPE, "index: x %t indexed by %t has more than 8 dims",
                      x, g->at);
    int m = 0, r = 0;
    for (int e = 0; e <= x->ndim; e++) {
        if (e == g->dim) {
            part[m++] = total;
            for (int b = 0; b < g->at->ndim; b++) { g->dims[r++] = g->at->dims[b]; }
            e += used;
        }
        if (e < x->ndim) { part[m++] = g->dims[r++] = x->dims[g->order[e]]; }
    }
    g->x = tensor_reshape_n(g->moved ? tensor_permute_n(x, g->order, x->ndim) : x, part, m);
    g->at = tensor__flat(g->at);
    return tensor__live(g->x) && tensor__live(g->at);
}
TENSOR_API tensor_t *(tensor_index_n)(tensor_t *x, tensor_t *const *list, int n) {
    TENSOR__MARK
    tensor__pick_t g;
    TENSOR__RETURN(tensor__pick(&g, x, list, n) ?
                   tensor_reshape_n(tensor_index_select(g.x, g.dim, g.at), g.dims, g.ndim) : TENSOR__POISON);
}
TENSOR__FN tensor_t *tensor__index_put(tensor_t *x, tensor_t *const *list, int n, tensor_t *values,
                                       int accumulate, int update) {
    tensor__pick_t g;
    int id = accumulate ? TENSOR_OP_INDEX_ADD : TENSOR_OP_INDEX_COPY;
    if (!tensor__pick(&g, x, list, n)) { return TENSOR__POISON; }
    int64_t part[TENSOR_MAX_DIMS], old[TENSOR_MAX_DIMS];
    for (int i = 0; i < g.x->ndim; i++) { part[i] = i == g.dim ? g.at->numel : g.x->dims[i]; }
    for (int i = 0; i < x->ndim; i++) { old[i] = x->dims[g.order[i]]; }
    tensor_t *v = tensor_reshape_n(tensor_expand_n(values, g.dims, g.ndim), part, g.x->ndim);
    if (update && g.x->storage == x->storage) {
        return tensor__index_op(id, g.x, g.dim, g.at, v, 0, 1) == TENSOR__POISON ? TENSOR__POISON : x;
    }
    tensor_t *y = tensor_reshape_n(tensor__index_op(id, g.x, g.dim, g.at, v, 0, 0), old, x->ndim);
    if (g.moved) { y = tensor_contiguous(tensor_permute_n(y, g.back, x->ndim)); }
    return update ? tensor_copy_(x, y) : y;
}
TENSOR__MADE(index_put_n, (tensor_t *x, tensor_t *const *list, int n, tensor_t *values, int accumulate),
    tensor__index_put(x, list, n, values, accumulate, 0))
TENSOR__MADE(index_put_n_, (tensor_t *x, tensor_t *const *list, int n, tensor_t *values, int accumulate),
    tensor__index_put(x, list, n, values, accumulate, 1))
TENSOR_API tensor_t *(tensor_one_hot)(tensor_t *index, int64_t classes) {
    TENSOR__MARK1(index)
    if (classes == -1 && index->numel && !tensor__is_float(index->dtype)) {
        tensor_t *most = tensor_max(index);
        classes = tensor_item_i64(most);
        if (classes < INT64_MAX) { classes++; }
        tensor__tidy(th_, mark_, NULL);
    }
    TENSOR__REFUSE(index->ndim == TENSOR_MAX_DIMS || classes < 1, SHAPE, "one_hot: index %t with %d classes",
                   index, classes);
    int64_t dims[TENSOR_MAX_DIMS];
    for (int i = 0; i < index->ndim; i++) { dims[i] = index->dims[i]; }
    dims[index->ndim] = classes;
    int device = (int)tensor_device(index);
    tensor_t *zeros = tensor_to(tensor_zeros_n(dims, index->ndim + 1, TENSOR_I64), device);
    tensor_t *at = tensor_unsqueeze(index, -1);
    if (zeros == TENSOR__POISON || at == TENSOR__POISON) { return TENSOR__POISON; }
    tensor_t *ones = tensor_to(tensor_ones_n(at->dims, at->ndim, TENSOR_I64), device);
    TENSOR__RETURN(tensor_scatter(zeros, -1, at, ones));
}
TENSOR_API tensor_t *(tensor_repeat_n)(tensor_t *x, const int64_t *repeats, int n) {
    TENSOR__MARK
    if (!TENSOR__USABLE("repeat", "x", x) ||
        !tensor__dims_given("repeat", repeats, n)) { return TENSOR__POISON; }
    TENSOR__REFUSE(n < x->ndim || n > TENSOR_MAX_DIMS, SHAPE,
                   "repeat: x %t needs at least %i repeats, got %i", x, (int)x->ndim, n);
    int64_t dims[TENSOR_MAX_DIMS], final[TENSOR_MAX_DIMS];
    for (int i = 0; i < n; i++) {
        TENSOR__REFUSE(repeats[i] < 0, SHAPE, "repeat: %n has a negative count", repeats, n);
        dims[i] = i < n - x->ndim ? 1 : x->dims[i - (n - x->ndim)];
        uint64_t wide;
        int64_t total;
        if (!tensor__mul_u64((uint64_t)dims[i], (uint64_t)repeats[i], &wide) || wide > (uint64_t)1 << 60) {
            wide = (uint64_t)1 << 60;
        }
        final[i] = (int64_t)wide;
        TENSOR__REFUSE(i == n - 1 && !tensor__numel_of(final, n, &total), SHAPE,
                       "repeat: x %t repeated %n has too many elements", x, repeats, n);
    }
    tensor_t *y = tensor_reshape_n(x, dims, n);
    for (int i = 0; i < n && y != TENSOR__POISON; i++) {
        if (repeats[i] == 1) { continue; }
        int64_t wide[TENSOR_MAX_DIMS + 1], outer = 1, inner = 1;       // [outer, 1, rest] -> [outer, r, rest]
        for (int k = 0; k < i; k++) { outer *= dims[k]; }
        for (int k = i; k < n; k++) { inner *= dims[k]; }
        wide[0] = outer;
        wide[1] = 1;
        wide[2] = inner;
        y = tensor_reshape_n(y, wide, 3);
        wide[1] = repeats[i];
        dims[i] *= repeats[i];
        y = tensor_reshape_n(tensor_expand_n(y, wide, 3), dims, n);
    }
    if (y != TENSOR__POISON && y->storage == x->storage) { y = tensor_clone(y); }
    TENSOR__RETURN(y);
}

TENSOR_API tensor_t *(tensor_logspace)(double start, double end, int64_t n, double base) {
    TENSOR__MARK
    TENSOR__REFUSE(n < 0, SHAPE, "logspace: n %d is negative", n);
    tensor_t *e = tensor_arange(0, (double)n, 1, TENSOR_F64);
    e = tensor_add_scalar(tensor_mul_scalar(e, n > 1 ? (end - start) / (double)(n - 1) : 0), start);
    TENSOR__RETURN(tensor_to(tensor_pow(tensor_scalar(base, TENSOR_F64), e), tensor_get_default_dtype()));
}
TENSOR_API tensor_t *(tensor_empty_strided)(const int64_t *dims, const int64_t *strides, int ndim,
                                            tensor_dtype_t dtype) {
    TENSOR__MARK
    int64_t n, span = 1;
    if (!tensor__dims_given("empty_strided", dims, ndim) ||
        !tensor__dims_given("empty_strided", strides, ndim)) {
        return TENSOR__POISON;
    }
    int bad = ndim < 0 || ndim > TENSOR_MAX_DIMS || !tensor__numel_of(dims, ndim, &n);
    for (int i = 0; i < ndim && !bad; i++) {
        uint64_t reach = 0;
        bad = n && !tensor__mul_u64((uint64_t)strides[i], (uint64_t)(dims[i] - 1), &reach);
        bad |= strides[i] < 0 || reach > (uint64_t)1 << 56;
        span += bad ? 0 : (int64_t)reach;
    }
    TENSOR__REFUSE(bad, SHAPE, "empty_strided: sizes or strides are negative or too large");
    TENSOR__RETURN((tensor_as_strided)(tensor_empty_n(&span, 1, dtype), dims, strides, ndim, 0));
}
TENSOR__FN tensor_t *tensor__tri_indices(int64_t rows, int64_t cols, int64_t offset, int lower) {
    TENSOR__MARK
    int64_t dims[2] = {rows, cols};
    tensor_t *m = tensor_ones_n(dims, 2, TENSOR_BOOL);
    m = lower ? tensor_tril(m, offset) : tensor_triu(m, offset);
    return tensor__tidy(th_, mark_, tensor_contiguous(tensor_mT(tensor_nonzero(m))));
}
TENSOR__FRONT(tril_indices, (int64_t rows, int64_t cols, int64_t offset),
    tensor__tri_indices(rows, cols, offset, 1))
TENSOR__FRONT(triu_indices, (int64_t rows, int64_t cols, int64_t offset),
    tensor__tri_indices(rows, cols, offset, 0))
TENSOR_API int (tensor_meshgrid)(tensor_t *const *list, int n, const char *indexing, tensor_t **out) {
    tensor__thread_t *th = tensor__self();
    int xy = indexing && !strcmp(indexing, "xy");
    int64_t dims[TENSOR_MAX_DIMS], one[TENSOR_MAX_DIMS];
    for (int i = 0; out && i < n; i++) { out[i] = TENSOR__POISON; }
    TENSOR__REFUSE_CODE(!xy && (!indexing || strcmp(indexing, "ij")), FORMAT,
                        "meshgrid: indexing must be ij or xy, not \"%s\"", indexing ? indexing : "NULL");
    TENSOR__REFUSE_CODE(!list || !out || n < 1 || n > TENSOR_MAX_DIMS, SHAPE,
                        "meshgrid: needs 1 to 8 tensors, not %i%s%s", n, list ? "" : "; the list is NULL",
                        out ? "" : "; out is NULL");
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE("meshgrid", "list", list[i])) { return th->error.code; }
        TENSOR__REFUSE_CODE(list[i]->ndim > 1, SHAPE, "meshgrid: tensor %i %t must be 1-d", i, list[i]);
        dims[xy && n > 1 && i < 2 ? 1 - i : i] = list[i]->numel;
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) { one[k] = 1; }
        one[xy && n > 1 && i < 2 ? 1 - i : i] = list[i]->numel;
        int64_t mark = th->top;
        out[i] = tensor__tidy(th, mark, tensor_expand_n(tensor_reshape_n(list[i], one, n), dims, n));
        if (out[i] == TENSOR__POISON) { return th->error.code; }
    }
    return 0;
}
TENSOR_API tensor_t *(tensor_cartesian_prod)(tensor_t *const *list, int n) {
    TENSOR__MARK
    tensor_t *grid[TENSOR_MAX_DIMS];
    if (tensor_meshgrid(list, n <= TENSOR_MAX_DIMS ? n : 0, "ij", grid)) { TENSOR__RETURN(TENSOR__POISON); }
    for (int i = 0; i < n; i++) { grid[i] = tensor__flat(grid[i]); }
    TENSOR__RETURN(n == 1 ? tensor_clone(grid[0]) : tensor_stack_n(grid, n, -1));
}
enum { TENSOR__CHOSEN = 1024 };     // most elements of a choice
TENSOR_API tensor_t *(tensor_combinations)(tensor_t *x, int r, int with_replacement) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(x->ndim != 1 || r < 0 || r > TENSOR__CHOSEN, SHAPE,
                   "combinations: x %t must be 1-d and r %i in 0..%i", x, r, (int)TENSOR__CHOSEN);
    if (r == 0) { TENSOR__RETURN(tensor_narrow(x, 0, 0, 0)); }
    double count = 1, most = 1;         // choices of i, made one after the other
    for (int i = 0; i < r; i++) {
        count *= ((double)x->numel + (with_replacement ? i : -i)) / (i + 1);
        if (count > most) { most = count; }
    }
    TENSOR__REFUSE(most > 1e12, SHAPE, "combinations: %i of %d elements are too many (%g)", r, x->numel,
                   most);
    // Each choice of i elements, in order, by every element that may come next.
    tensor_t *all = tensor_arange(0, (double)x->numel, 1, TENSOR_I64), *at = tensor_unsqueeze(all, 1);
    for (int i = 1; i < r && tensor__live(at); i++) {
        tensor_t *list[2] = {tensor_repeat_interleave(at, x->numel, 0),
                             tensor_unsqueeze(tensor_repeat_n(all, &at->dims[0], 1), 1)};
        tensor_t *last = tensor_select(list[0], 1, i - 1), *next = tensor_select(list[1], 1, 0);
        tensor_t *keep = with_replacement ? tensor_le(last, next) : tensor_lt(last, next);
        at = tensor_index_n(tensor_cat_n(list, 2, 1), &keep, 1);
    }
    TENSOR__RETURN(tensor_index_n(x, &at, 1));
}
TENSOR_API tensor_t *(tensor_block_diag)(tensor_t *const *list, int n) {
    TENSOR__MARK
    int64_t dims[2] = {0, 0}, at[2] = {0, 0};
    if (!list || n < 1) { return tensor__no_list("block_diag", list, n); }
    int dtype = -1;
    for (int pass = 0; pass < 2; pass++) {
        tensor_t *y = pass ? tensor_zeros_n(dims, 2, (tensor_dtype_t)dtype) : NULL;
        for (int i = 0; i < n; i++) {
            tensor_t *m = tensor__atleast(list[i], 2);
            if (m == TENSOR__POISON || y == TENSOR__POISON) { TENSOR__RETURN(TENSOR__POISON); }
            TENSOR__REFUSE(m->ndim > 2, SHAPE, "block_diag: tensor %i %t has more than 2 dims", i, m);
            dtype = dtype < 0 ? m->dtype : tensor__promote2(dtype, m->dtype);
            for (int d = 0; d < 2 && !pass; d++) { dims[d] += m->dims[d]; }
            if (!pass) { continue; }
            tensor_copy_(tensor_narrow(tensor_narrow(y, 0, at[0], m->dims[0]), 1, at[1], m->dims[1]), m);
            for (int d = 0; d < 2; d++) { at[d] += m->dims[d]; }
        }
        if (pass) { TENSOR__RETURN(y); }
    }
    return TENSOR__POISON;
}
TENSOR_API tensor_t *(tensor_diag_embed)(tensor_t *x, int64_t offset, int64_t dim1, int64_t dim2) {
    TENSOR__MARK1(x)
    int64_t dims[TENSOR_MAX_DIMS], order[TENSOR_MAX_DIMS], limit = (int64_t)1 << 40;
    int nd = x->ndim + 1, a = tensor__dim_of("diag_embed", dim1, nd, x);
    int b = tensor__dim_of("diag_embed", dim2, nd, x);
    if (a < 0 || b < 0) { return TENSOR__POISON; }
    TENSOR__REFUSE(!x->ndim || nd > TENSOR_MAX_DIMS || a == b || offset > limit || offset < -limit, SHAPE,
                   "diag_embed: x %t on diagonal %d of dims %d and %d", x, offset, dim1, dim2);
    for (int i = 0; i < nd; i++) {
        dims[i] = i < nd - 2 ? x->dims[i] : x->dims[nd - 2] + (offset < 0 ? -offset : offset);
    }
    tensor_t *y = tensor_zeros_n(dims, nd, (tensor_dtype_t)x->dtype), *v = tensor_diagonal(y, offset, -2, -1);
    if (tensor_copy_(v, x) == TENSOR__POISON) { TENSOR__RETURN(TENSOR__POISON); }
    for (int i = 0, k = 0; i < nd; i++) { order[i] = i == a ? nd - 2 : i == b ? nd - 1 : k++; }
    TENSOR__RETURN(a == nd - 2 && b == nd - 1 ? y : tensor_permute_n(y, order, nd));
}
TENSOR_API tensor_t *(tensor_diag)(tensor_t *x, int64_t diagonal) {
    TENSOR__MARK
    TENSOR__REFUSE(tensor__live(x) && x->ndim != 1 && x->ndim != 2, SHAPE, "diag: x %t must be 1-d or 2-d",
                   x);
    TENSOR__RETURN(tensor__live(x) && x->ndim == 2 ? tensor_clone(tensor_diagonal(x, diagonal, 0, 1)) :
                   tensor_diag_embed(x, diagonal, -2, -1));
}
TENSOR__MADE(diagflat, (tensor_t *x, int64_t offset), tensor_diag_embed(tensor__flat(x), offset, -2, -1))
TENSOR_API tensor_t *(tensor_vander)(tensor_t *x, int64_t n, int increasing) {
    TENSOR__MARK1(x)
    TENSOR__REFUSE(x->ndim != 1 || n < 0, SHAPE, "vander: x %t must be 1-d and n %d not negative", x, n);
    double last = (double)n - 1;
    tensor_t *e = increasing ? tensor_arange(0, last + 1, 1, TENSOR_I64) :
        tensor_arange(last, -1, -1, TENSOR_I64);
    if (tensor__is_float(x->dtype)) { e = tensor_to(e, x->dtype); } // integers become i64
    TENSOR__RETURN(tensor_pow(tensor_unsqueeze(x, 1), e));
}

// One word of a pattern. group: the dim it belongs to; k: which of the dims "..." stands for.
enum { TENSOR__AXES = 24 };
typedef struct tensor__axis_t { const char *s; int64_t size; int n, group, k, number; } tensor__axis_t;
TENSOR__FN int tensor__word(const char *s, tensor__axis_t *a) {         // -> its length, 0 = none
    int n = 0;
    a->s = s;
    a->k = 0;
    a->size = 0;
    a->number = *s >= '0' && *s <= '9';
    if (!strncmp(s, "...", 3)) { return a->n = 3; }
    for (; (s[n] >= '0' && s[n] <= '9') ||
         (!a->number && (((s[n] | 32) >= 'a' && (s[n] | 32) <= 'z') || s[n] == '_')); n++) {
        if (!a->number) { continue; }
        if (a->size > INT64_MAX / 20) { return 0; }
        a->size = a->size * 10 + (s[n] - '0');
    }
    return a->n = n;
}
TENSOR__FN int tensor__same_word(const tensor__axis_t *a, const tensor__axis_t *b) {
    return !a->number && !b->number && a->n == b->n && a->k == b->k && !memcmp(a->s, b->s, (size_t)a->n);
}
// Words of s up to end, "..." standing for dots dims. -> how many, -1 = cannot be read; *groups dims
TENSOR__FN int tensor__words(const char *s, const char *end, int dots, tensor__axis_t *axis, int *groups) {
    int n = 0, open = 0;
    *groups = 0;
    while (s < end) {
        tensor__axis_t a;
        if (*s == ' ') { s++; continue; }
        if (*s == '(' || *s == ')') {
            if (open == (*s == '(')) { return -1; }
            open = *s++ == '(';
            *groups += !open;
            continue;
        }
        if (!tensor__word(s, &a) || a.s + a.n > end) { return -1; }
        s += a.n;
        for (int k = *a.s == '.' ? dots : 1; k > 0; k--) {
            if (n == TENSOR__AXES) { return -1; }
            a.k = *a.s == '.' ? dots - k : 0;
            a.group = *groups;
            *groups += !open;
            axis[n++] = a;
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) { if (tensor__same_word(&axis[i], &axis[k])) { return -1; } }
    }
    return open ? -1 : n;
}
TENSOR_API tensor_t *tensor_rearrange_with(tensor_t *x, tensor_rearrange_args_t a) {
    TENSOR__MARK
    static const char *const names[] = {"sum", "mean", "prod", "max", "min", "any", "all"};
    static const int ids[] = {TENSOR_OP_SUM, TENSOR_OP_MEAN, TENSOR_OP_PROD, TENSOR_OP_AMAX, TENSOR_OP_AMIN,
        TENSOR_OP_ANY, TENSOR_OP_ALL};
    tensor__axis_t left[TENSOR__AXES], right[TENSOR__AXES];
    int64_t dims[TENSOR__AXES], order[TENSOR__AXES];
    const char *p = a.pattern, *arrow = p ? strstr(p, "->") : NULL;
    int how = 0, gl = 0, gr = 0, nl = -1, nr = -1, dots = 0, n = 0, used = 0, lost = 0;
    uint32_t given = 0, mask = 0;
    if (!TENSOR__USABLE("rearrange", "x", x)) { return tensor__at(a.site_, TENSOR__POISON); }
    while (how < 7 && (!a.reduce || strcmp(a.reduce, names[how]))) { how++; }
    if (arrow && (how < 7 || !a.reduce)) {
        nl = tensor__words(p, arrow, 0, left, &gl);
        dots = x->ndim - gl;
        const char *at = strstr(p, "...");
        if (dots > 0 && at && at < arrow) { nl = tensor__words(p, arrow, dots, left, &gl); }
        nr = tensor__words(arrow + 2, p + strlen(p), dots > 0 ? dots : 0, right, &gr);
    }
    if (nl < 0 || nr < 0) {
        return tensor__at(a.site_, tensor__fail(th_, TENSOR_ERR_FORMAT, "rearrange: cannot read \"%s\"%s%s",
            p ? p : "NULL", a.reduce ? ", " : "", a.reduce ? a.reduce : ""));
    }
    if (gl != x->ndim) {
        return tensor__at(a.site_, tensor__fail(th_, TENSOR_ERR_SHAPE, "rearrange: x %t has %i dims, "
                                                "\"%s\" %i", x, (int)x->ndim, p, gl));
    }
    tensor_t *y = NULL;
    char word[32] = "";
    const char *wrong = NULL;
    int64_t sizes[26];
    memcpy(sizes, (const char *)&a + offsetof(tensor_rearrange_args_t, a), sizeof sizes);
    for (int i = 0; i < nl; i++) {          // sizes of the letters
        int c = left[i].n == 1 ? left[i].s[0] - 'a' : -1;
        if (c < 0 || c > 25) { continue; }
        left[i].size = sizes[c];
        given |= 1u << c;
    }
    for (int g = 0; g < gl && !y; g++) {    // and of one name of each dim from x
        int64_t known = 1, size = x->dims[g];
        int open = -1, bad = 0;
        for (int i = 0; i < nl; i++) {
            if (left[i].group != g) { continue; }
            if (left[i].size || left[i].number) {
                bad |= left[i].size < 0 || (left[i].size && known > ((int64_t)1 << 59) / left[i].size);
                known = bad ? 0 : known * left[i].size;
            } else {
                bad |= open >= 0;
                open = i;
            }
        }
        if (!bad && open >= 0 && known) { left[open].size = size / known; known *= left[open].size; }
        if (bad || known != size) {
            y = tensor__fail(th_, TENSOR_ERR_SHAPE, "rearrange: dim %i of x %t does not fit the sizes in "
                             "\"%s\"", g, x, p);
        }
    }
    for (int i = 0; i < nl && !y; i++) {
        int there = 0;
        for (int k = 0; k < nr; k++) { there |= tensor__same_word(&left[i], &right[k]); }
        if (!there && (left[i].number && left[i].size == 1)) { left[i].group = -1; continue; }
        if (!there && !a.reduce) { wrong = "is only on the left; name a reduction"; lost = i; }
        mask |= (uint32_t)!there << used;
        left[i].group = there ? used : -1;
        dims[used++] = left[i].size;
    }
    if (wrong) { right[0] = left[lost]; }
    for (int i = 0, kept = 0; i < used && !wrong; i++) {        // places of the left ones after the reduction
        for (int k = 0; k < nl; k++) {
            if (left[k].group == i && !(mask >> i & 1)) { left[k].group = kept++; break; }
        }
    }
    for (int i = 0; i < nr && !wrong; i++) {
        right[i].k = -1 - right[i].k;       // a size of its own, until it is found on the left
        for (int k = 0; k < nl; k++) {
            tensor__axis_t r = right[i];
            r.k = -1 - r.k;
            if (!tensor__same_word(&left[k], &r)) { continue; }
            right[i].size = left[k].size;
            right[i].k = 0;
            order[n++] = left[k].group;
        }
        int c = right[i].n == 1 ? right[i].s[0] - 'a' : -1;
        if (right[i].k < 0 && c >= 0 && c < 26) {
            right[i].size = sizes[c];
            given |= 1u << c;
        }
        if (right[i].k < 0 && !right[i].number && right[i].size < 1) {
            wrong = "is only on the right and has no size";
            right[0] = right[i];
        }
    }
    for (int c = 0; c < 26 && !wrong; c++) {
        if (sizes[c] && !(given >> c & 1)) { wrong = "has a size but no place"; word[0] = (char)('a' + c); }
    }
    if (y || wrong || used > TENSOR_MAX_DIMS || nr > TENSOR_MAX_DIMS) {
        if (wrong && !word[0]) { memcpy(word, right[0].s, (size_t)(right[0].n < 31 ? right[0].n : 31)); }
        if (!y) {
            y = wrong ? tensor__fail(th_, TENSOR_ERR_FORMAT, "rearrange: %s in \"%s\" %s", word, p, wrong) :
                tensor__fail(th_, TENSOR_ERR_SHAPE, "rearrange: \"%s\" has more than 8 names", p);
        }
        return tensor__at(a.site_, y);
    }
    y = tensor_reshape_n(x, dims, used);
    if (mask) { y = tensor__reduce(ids[how], y, mask, 0); }
    y = tensor_permute_n(y, order, n);
    for (int i = 0; i < nr; i++) { dims[i] = right[i].k < 0 ? 1 : right[i].size; }
    y = tensor_reshape_n(y, dims, nr);
    for (int i = 0; i < nr; i++) { dims[i] = right[i].size; }
    y = tensor_expand_n(y, dims, nr);
    for (int g = 0; g < gr; g++) { order[g] = 1; }
    for (int i = 0; i < nr && y != TENSOR__POISON; i++) { order[right[i].group] *= right[i].size; }
    y = tensor_reshape_n(y, order, gr);
    return tensor__at(a.site_, tensor__named(th_, tensor__tidy(th_, mark_, y), "tensor_rearrange"));
}
TENSOR_API int (tensor_check_n)(tensor_t *x, const char *pattern, int64_t *const *sizes, int n) {
    tensor__thread_t *th = tensor__self();
    tensor__axis_t word[TENSOR__AXES];
    int count = 0, dots = -1, bad = !pattern, names = 0, slot[TENSOR__AXES];
    if (!TENSOR__USABLE("check", "x", x)) { return th->error.code; }
    for (const char *s = pattern; s && *s && !bad; s += word[count].n, count++) {
        while (*s == ' ') { s++; }
        if (!*s) { break; }
        bad = count == TENSOR__AXES - 1 || !tensor__word(s, &word[count]) || (*s == '.' && dots >= 0);
        if (*s == '.') { dots = count; }
        if (bad) { break; }
        slot[count] = -1;               // which name it is
        if (word[count].number || *s == '.' || (*s == '_' && word[count].n == 1)) { continue; }
        for (int k = 0; k < count; k++) {
            if (slot[k] >= 0 && tensor__same_word(&word[k], &word[count])) { slot[count] = slot[k]; }
        }
        if (slot[count] < 0) { slot[count] = names++; }
    }
    TENSOR__REFUSE_CODE(bad || n > names || (n > 0 && !sizes), FORMAT, bad ? "check: cannot read \"%s\"" :
                        "check: \"%s\" has %i names for %i sizes", pattern ? pattern : "NULL", names, n);
    int want = count - (dots >= 0);
    TENSOR__REFUSE_CODE(dots >= 0 ? x->ndim < want : x->ndim != want, SHAPE,
                        "check: x %t is not \"%s\": it has %i dims, not %i%s", x, pattern, (int)x->ndim, want,
                        dots >= 0 ? " or more" : "");
    int64_t known[TENSOR__AXES];
    for (int k = 0; k < names; k++) { known[k] = k < n && sizes[k] && *sizes[k] ? *sizes[k] : -1; }
    for (int i = 0; i < count; i++) {
        int d = dots >= 0 && i > dots ? x->ndim - count + i : i;
        if (i == dots || (slot[i] < 0 && !word[i].number)) { continue; }
        int64_t size = word[i].number ? word[i].size : known[slot[i]];
        if (size < 0) { size = known[slot[i]] = x->dims[d]; }
        if (size != x->dims[d]) {
            char name[32] = " (";
            int m = word[i].n < 28 ? word[i].n : 28;
            memcpy(name + 2, word[i].s, (size_t)m);
            memcpy(name + 2 + m, ")", 2);
            tensor__fail(th, TENSOR_ERR_SHAPE, "check: x %t is not \"%s\": dim %i%s is %d, not %d", x,
                         pattern, d, word[i].number ? "" : name, x->dims[d], size);
            return TENSOR_ERR_SHAPE;
        }
    }
    for (int k = 0; k < n; k++) { if (sizes[k]) { *sizes[k] = known[k]; } }
    return 0;
}
TENSOR_API int tensor_check_with(tensor_check_args_t a) {
    int64_t *const p[8] = {a.size0, a.size1, a.size2, a.size3, a.size4, a.size5, a.size6, a.size7};
    int n = 8;
    while (n && !p[n - 1]) { n--; }
    return tensor__at_int(a.site_, (tensor_check_n)(a.x, a.pattern, p, n));
}

// ------------------------------------------------------------------------------
// >>impl-sort                                      MARK: sorting, selection, counting
//
// Kernels turn a row into unsigned keys in PyTorch's order and give indices only: sorted by radix passes
// (skipped where all keys share the digit), selected digit by digit from the top. Values are gathered by the
// fronts, so gather's gradient serves all. Rows are cut over threads. Rejected: comparison sorts (every dtype
// and NaN in each comparison).
// ------------------------------------------------------------------------------

enum { TENSOR__SMALL_SORT = 48 };       // by insertion
typedef struct tensor__entry_t { uint64_t key; int64_t i; } tensor__entry_t;

// Entries of a row. back: falling order. NaN comes last in both, first if nan_first.
TENSOR__FN void tensor__order_keys(tensor__entry_t *e, const void *x, int klass, int64_t n, int back,
                                   int nan_first) {
    for (int64_t k = 0; k < n; k++) {
        uint64_t u = 0;
        int nan = 0;
        if (klass == TENSOR__C_F32) {
            uint32_t b;
            float v = ((const float *)x)[k] + 0.0f;         // -0 becomes 0
            memcpy(&b, &v, 4);
            nan = (b & 0x7FFFFFFF) > 0x7F800000;
            u = b >> 31 ? (uint32_t)~b : b | 0x80000000;
        } else if (klass == TENSOR__C_F64) {
            double v = ((const double *)x)[k] + 0.0;
            memcpy(&u, &v, 8);
            nan = (u & INT64_MAX) > 0x7FF0000000000000;
            u = u >> 63 ? ~u : u | (uint64_t)1 << 63;
        } else {
            u = (uint64_t)((const int64_t *)x)[k] ^ (uint64_t)1 << 63;
        }
        if (back) { u = klass == TENSOR__C_F32 ? u ^ UINT32_MAX : ~u; }
        if (nan) { u = nan_first ? 0 : klass == TENSOR__C_F32 ? UINT32_MAX : UINT64_MAX; }
        e[k].key = u;
        e[k].i = k;
    }
}
// Stable; t is room for as many. -> e or t, where the result is
TENSOR__FN tensor__entry_t *tensor__order_sort(tensor__entry_t *e, tensor__entry_t *t, int64_t n) {
    if (n <= TENSOR__SMALL_SORT) {
        for (int64_t i = 1; i < n; i++) {
            tensor__entry_t v = e[i];
            int64_t k = i;
            for (; k > 0 && e[k - 1].key > v.key; k--) { e[k] = e[k - 1]; }
            e[k] = v;
        }
        return e;
    }
    int64_t count[8][256];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++) {
        for (int b = 0; b < 8; b++) { count[b][e[i].key >> 8 * b & 255]++; }
    }
    for (int b = 0; b < 8; b++) {
        if (count[b][e[0].key >> 8 * b & 255] == n) { continue; }
        int64_t at = 0;
        for (int d = 0; d < 256; d++) { int64_t m = count[b][d]; count[b][d] = at; at += m; }
        for (int64_t i = 0; i < n; i++) { t[count[b][e[i].key >> 8 * b & 255]++] = e[i]; }
        tensor__entry_t *swap = e;
        e = t;
        t = swap;
    }
    return e;
}
// The key of rank *k (from 0) in e; *k becomes its rank among the entries of that key. t is room for as many.
TENSOR__FN uint64_t tensor__order_select(const tensor__entry_t *e, tensor__entry_t *t, int64_t n,
                                         int64_t *k) {
    uint64_t differ = 0;
    for (int64_t i = 1; i < n; i++) { differ |= e[i].key ^ e[0].key; }
    for (int shift = 56; shift >= 0 && n > TENSOR__SMALL_SORT; shift -= 8) {
        if (!(differ >> shift & 255)) { continue; }
        int64_t count[256] = {0}, m = 0;
        for (int64_t i = 0; i < n; i++) { count[e[i].key >> shift & 255]++; }
        uint64_t d = 0;
        while (*k >= count[d]) { *k -= count[d++]; }
        for (int64_t i = 0; i < n; i++) { if ((e[i].key >> shift & 255) == d) { t[m++] = e[i]; } }
        e = t;
        n = m;
    }
    if (n > TENSOR__SMALL_SORT) { return e[0].key; }
    memmove(t, e, (size_t)n * sizeof *t);
    tensor__order_sort(t, t, n);
    uint64_t key = t[*k].key;
    int64_t rank = 0;
    while (rank < *k && t[*k - 1 - rank].key == key) { rank++; }
    *k = rank;
    return key;
}
typedef struct tensor__order_t { tensor_call_t *c; int64_t rows, n, m, per; int klass; } tensor__order_t;
TENSOR__FN void tensor__order_task(void *arg, int64_t task, int worker) {
    const tensor__order_t *r = (const tensor__order_t *)arg;
    const tensor_call_t *c = r->c;
    const int64_t *p = c->p->i, n = r->n, m = r->m;
    int id = c->row->id, cls = r->klass;
    int low = id == TENSOR_OP_CUMMIN;
    int falling = id == TENSOR_OP_SORT ? p[0] != 0 : id == TENSOR_OP_TOPK ? p[1] != 0 : low;
    int nan_first = falling && !low;        // NaN is the largest, but the running minimum is NaN too
    uint64_t nan = cls == TENSOR__C_F32 ? UINT32_MAX : UINT64_MAX;
    tensor__entry_t *work = (tensor__entry_t *)c->scratch + (int64_t)worker * 2 * n;
    int64_t end = tensor__least((task + 1) * r->per, r->rows);
    for (int64_t row = task * r->per; row < end; row++) {
        tensor__entry_t *e = work, *t = work + n;
        int64_t *y = (int64_t *)c->arg[1].data + row * m, at = 0, k, best = 0;
        tensor__load_run(t, cls, (const char *)c->arg[0].data + row * n * tensor__sizes[c->arg[0].dtype],
                         c->arg[0].dtype, 1, n);
        tensor__order_keys(e, t, cls, n, falling, nan_first);
        switch (id) {
        case TENSOR_OP_SORT:
            e = tensor__order_sort(e, t, n);
            for (int64_t i = 0; i < n; i++) { y[i] = e[i].i; }
            break;
        case TENSOR_OP_TOPK: {
            if (m == 0) { break; }
            k = m - 1;
            uint64_t key = tensor__order_select(e, t, n, &k);
            for (int64_t i = 0; i < n; i++) {               // all below key, and the first k + 1 of key
                if (e[i].key < key || (e[i].key == key && k-- >= 0)) { e[at++] = e[i]; }
            }
            if (p[2]) { e = tensor__order_sort(e, t, m); }
            for (int64_t i = 0; i < m; i++) { y[i] = e[i].i; }
            break;
        }
        case TENSOR_OP_KTHVALUE: {
            int64_t nans = 0, first = 0;
            for (int64_t i = n - 1; i >= 0 && cls != TENSOR__C_I64 && p[0] < 1; i--) {
                if (e[i].key == nan) { nans++; first = i; }
            }
            y[0] = first;
            if (p[0] == 0 ? nans > 0 : nans == n) { break; }
            k = p[0] > 0 ? p[0] - 1 : (n - nans - 1) / 2;
            uint64_t key = tensor__order_select(e, t, n, &k);
            while (e[at].key != key || k-- > 0) { at++; }
            y[0] = at;
            break;
        }
        case TENSOR_OP_MODE:
            e = tensor__order_sort(e, t, n);
            for (int64_t i = 0; i < n; i += k) {
                for (k = 1; i + k < n && e[i + k].key == e[i].key; k++) { }
                if (k > best) { best = k; y[0] = e[i + k - 1].i; }
            }
            break;
        default:                                            // CUMMAX, CUMMIN: which key wins and stays
            for (int64_t i = 0; i < n; i++) {
                if (e[i].key >= e[at].key) { at = i; }
                y[i] = at;
            }
            break;
        }
    }
}
TENSOR__FN uint64_t tensor__scratch_order(const tensor_call_t *c) {
    uint64_t n = (uint64_t)c->arg[0].dims[c->arg[0].ndim - 1], bytes;
    if (c->arg[0].numel == c->arg[0].dims[c->arg[0].ndim - 1]) { return 2 * n * sizeof(tensor__entry_t); }
    return tensor__mul_u64(2 * n * sizeof(tensor__entry_t), (uint64_t)c->thread->ctx->pool.n,
                           &bytes) ? bytes :
        UINT64_MAX;
}
TENSOR__FN int tensor__cpu_order(tensor_call_t *c) {
    const tensor_arg_t *x = &c->arg[0];
    tensor__order_t r;
    r.c = c;
    r.n = TENSOR__WIDE(x);
    r.m = c->arg[1].dims[x->ndim - 1];
    if (!x->numel) { return 0; }
    r.rows = x->numel / r.n;
    r.klass = tensor__class(x->dtype);
    r.per = (TENSOR__GRAIN / 16 + r.n - 1) / r.n;
    tensor__parallel((r.rows + r.per - 1) / r.per, tensor__order_task, &r);
    return 0;
}
// Front of these rows: dim moved last, where the result has count indices (< 0: as many as x).
TENSOR__FN tensor_t *tensor__order(int id, tensor_t *x, int64_t dim, int64_t count, int64_t i0, int64_t i1,
                                   int64_t i2) {
    TENSOR__MARK
    TENSOR__BEGIN(o, tensor__row(id), x)
    TENSOR__DIM(d, o.row->name, dim, x)
    int64_t n = x->ndim ? x->dims[d] : 1, dims[TENSOR_MAX_DIMS];
    int last = x->ndim ? x->ndim - 1 : 0;
    TENSOR__REFUSE(count == 1 && !n && id != TENSOR_OP_TOPK && id != TENSOR_OP_SORT, SHAPE,
                   "%s: dim %i of x %t has no element to choose from", o.row->name, d, x);
    tensor_t *m = tensor_contiguous(x->ndim ? tensor_movedim(x, d, last) : tensor_unsqueeze(x, 0));
    if (m == TENSOR__POISON) { TENSOR__RETURN(m); }
    for (int i = 0; i < last; i++) { dims[i] = m->dims[i]; }
    dims[last] = count < 0 ? n : count;
    o.args[0] = m;
    tensor__ints(&o, i0, i1);
    o.params.i[2] = i2;
    tensor__result(&o, TENSOR_I64, dims, last + 1);
    m = tensor__finish(&o);
    TENSOR__RETURN(x->ndim ? tensor_movedim(m, last, d) : tensor_reshape_n(m, tensor__no_dims, 0));
}
TENSOR__MADE_PAIR(sort, (tensor_t *x, int64_t dim, int descending),
    tensor__chosen(x, dim, tensor__order(TENSOR_OP_SORT, x, dim, -1, descending, 0, 0), 0))
TENSOR__MADE(argsort, (tensor_t *x, int64_t dim, int descending),
    tensor__order(TENSOR_OP_SORT, x, dim, -1, descending, 0, 0))
TENSOR__MADE(msort, (tensor_t *x), (tensor_sort)(x, 0, 0).values)
TENSOR__MADE_PAIR(cummax, (tensor_t *x, int64_t dim),
    tensor__chosen(x, dim, tensor__order(TENSOR_OP_CUMMAX, x, dim, -1, 0, 0, 0), 0))
TENSOR__MADE_PAIR(cummin, (tensor_t *x, int64_t dim),
    tensor__chosen(x, dim, tensor__order(TENSOR_OP_CUMMIN, x, dim, -1, 0, 0, 0), 0))
// Whether k elements can be taken along dim, 0 = no, raised.
TENSOR__FN int tensor__k_fits(const char *name, tensor_t *x, int64_t k, int64_t lowest, int64_t dim) {
    tensor__thread_t *th = tensor__self();
    int d = TENSOR__USABLE(name, "x", x) ? tensor__dim(name, dim, x) : -1;
    int64_t n = d >= 0 && x->ndim ? x->dims[d] : 1;
    if (d < 0 || (k >= lowest && k <= n)) { return d >= 0; }
    tensor__fail(th, TENSOR_ERR_SHAPE, "%s: k must be %d..%d for dim %i of x %t (got %d)", name, lowest, n,
                 d, x, k);
    return 0;
}
TENSOR_API tensor_pair_t (tensor_topk)(tensor_t *x, int64_t k, int64_t dim, int largest, int sorted) {
    TENSOR__MARK
    int fits = tensor__k_fits("topk", x, k, tensor__live(x) && !x->ndim, dim);
    tensor_t *at = fits ? tensor__order(TENSOR_OP_TOPK, x, dim, k, k, largest, sorted) : TENSOR__POISON;
    TENSOR__RETURN_PAIR(tensor__chosen(x, dim, at, 0));
}
TENSOR__FN tensor_t *tensor__rank(tensor_t *x, int64_t k, int64_t dim) {
    return tensor__order(TENSOR_OP_KTHVALUE, x, dim, 1, k, 0, 0);
}
TENSOR_API tensor_pair_t (tensor_kthvalue)(tensor_t *x, int64_t k, int64_t dim, int keepdim) {
    TENSOR__MARK
    tensor_t *at = tensor__k_fits("kthvalue", x, k, 1, dim) ? tensor__rank(x, k, dim) : TENSOR__POISON;
    TENSOR__RETURN_PAIR(tensor__chosen(x, dim, at, !keepdim));
}
TENSOR__MADE_PAIR(median_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__chosen(x, dim, tensor__rank(x, 0, dim), !keepdim))
TENSOR__MADE_PAIR(nanmedian_dim, (tensor_t *x, int64_t dim, int keepdim),
    tensor__chosen(x, dim, tensor__rank(x, -1, dim), !keepdim))
TENSOR__FN tensor_t *tensor__median_all(tensor_t *x, int64_t k) {
    if (tensor__live(x) && !x->numel && tensor__is_float(x->dtype)) {
        return tensor__constant_of(tensor_scalar((double)NAN, (tensor_dtype_t)x->dtype), x);
    }
    tensor_t *f = tensor__flat(x), *y = tensor__chosen(tensor_detach(f), 0, tensor__rank(f, k, 0), 1).values;
    if (y == TENSOR__POISON || !tensor_grad_enabled() || !tensor__needs_grad(f)) { return y; }
    // The largest of those equal to it: its gradient is split evenly, as max's.
    tensor_t *same = tensor_logical_or(tensor_eq(f, y), tensor_logical_and(tensor_isnan(f), tensor_isnan(y)));
    return tensor_max(tensor_masked_select(f, same));
}
TENSOR__MADE(median, (tensor_t *x), tensor__median_all(x, 0))
TENSOR__MADE(nanmedian, (tensor_t *x), tensor__median_all(x, -1))
TENSOR__MADE_PAIR(mode, (tensor_t *x, int64_t dim, int keepdim),
    tensor__chosen(x, dim, tensor__order(TENSOR_OP_MODE, x, dim, 1, 0, 0, 0), !keepdim))

// dim < 0 with flat: all elements. ignore: NaN does not count.
TENSOR__FN tensor_t *tensor__quantile(tensor_t *x, tensor_t *q, int64_t dim, int keepdim, const char *mode,
                                      int ignore, int flat) {
    static const char *const modes[5] = {"linear", "lower", "higher", "midpoint", "nearest"};
    const char *name = ignore ? "nanquantile" : "quantile";
    int how = 0;
    if (!TENSOR__USABLE(name, "x", x) || !TENSOR__USABLE(name, "q", q)) { return TENSOR__POISON; }
    int d = tensor__dim_of(name, dim, flat ? 1 : x->ndim, x);
    if (d < 0) { return TENSOR__POISON; }
    while (mode && how < 5 && strcmp(mode, modes[how])) { how++; }
    TENSOR__REFUSE(how == 5, FORMAT, "%s: interpolation \"%s\" must be linear, lower, higher, midpoint or "
                   "nearest", name, mode);
    TENSOR__REFUSE((x->dtype != TENSOR_F32 && x->dtype != TENSOR_F64) || !tensor__is_float(q->dtype), DTYPE,
                   "%s: x %t must be f32 or f64 and q float (got %y and %y)", name, x, x, q);
    TENSOR__REFUSE(q->ndim > 1, SHAPE, "%s: q %t must have at most one dim", name, q);
    tensor_t *outside = tensor_logical_not(tensor_logical_and(tensor_ge_scalar(q, 0),
                                                              tensor_le_scalar(q, 1)));
    TENSOR__REFUSE(tensor_item_i64(tensor_any(outside)), SHAPE,
                   "%s: the elements of q %t must lie within 0..1", name, q);
    if (flat || !x->ndim) { x = tensor__flat(x); d = keepdim = 0; }
    if (!tensor__live(x)) { return x; }
    int last = x->ndim - 1, one = q->ndim == 0;
    int64_t n = x->dims[d];
    TENSOR__REFUSE(!n, SHAPE, "%s: x %t has no element along dim %i", name, x, d);
    x = tensor_movedim((tensor_sort)(x, d, 0).values, d, last);
    tensor_t *nan = tensor_isnan(x), *top;                  // top: the rank of q = 1
    if (ignore) {
        top = tensor_clamp(tensor_rsub_scalar(tensor_sum_dim(nan, last, 1), (double)(n - 1)), 0,
                           (double)INFINITY);
    } else {
        top = tensor_full_like(tensor_narrow(x, last, 0, 1), (double)(n - 1));
    }
    tensor_dtype_t exact = n > 1 << 24 ? TENSOR_F64 : (tensor_dtype_t)x->dtype;     // PyTorch's, given room
    tensor_t *rank = tensor_mul(tensor_to(q, exact), tensor_to(top, exact));        // [..., Q]
    if (!ignore) { rank = tensor_masked_fill(rank, tensor_any_dim(nan, last, 1), (double)(n - 1)); }
    if (how == 4) { rank = tensor_round(rank); }
    tensor_t *below = how == 2 ? tensor_ceil(rank) : tensor_floor(rank);
    tensor_t *y = tensor_gather(x, last, tensor_to(below, TENSOR_I64));
    if (how == 0 || how == 3) {
        tensor_t *above = tensor_gather(x, last, tensor_to(tensor_ceil(rank), TENSOR_I64));
        tensor_t *weight = how == 3 ? tensor_full_like(rank, 0.5) : tensor_sub(rank, below);
        y = tensor_lerp(y, above, tensor_to(weight, x->dtype));
    }
    // The dim of q goes in front, where dim was stays a 1 if kept.
    y = tensor_movedim(keepdim ? tensor_movedim(tensor_unsqueeze(y, last), last, d) : y, -1, 0);
    return one ? tensor_squeeze(y, 0) : y;
}
#define TENSOR__X(name, ignore)                                                                              \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, tensor_t *q) {                                         \
        TENSOR__MARK                                                                                         \
        TENSOR__RETURN(tensor__quantile(x, q, 0, 0, NULL, ignore, 1));                                       \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_dim)(tensor_t *x, tensor_t *q, int64_t dim, int keepdim,           \
                                               const char *interpolation) {                                  \
        TENSOR__MARK                                                                                         \
        TENSOR__RETURN(tensor__quantile(x, q, dim, keepdim, interpolation, ignore, 0));                      \
    }
TENSOR__X(quantile, 0) TENSOR__X(nanquantile, 1)
#undef TENSOR__X

// Runs of equal slices of x along dim (flat: of equal elements), in their sorted order or as they stand.
TENSOR__FN tensor_t *tensor__unique(tensor_t *x, int64_t dim, int flat, tensor_t **inverse, tensor_t **counts,
                                    int sorted, const char *function) {
    TENSOR__MARK
    tensor_t *list[3] = {TENSOR__POISON, TENSOR__POISON, TENSOR__POISON};
    int d = !TENSOR__USABLE("unique", "x", x) ? -1 : flat ? 0 : tensor__dim("unique", dim, x);
    if (d >= 0 && !flat && (!x->ndim || (!x->numel && x->dims[d]))) {
        tensor__fail(th_, TENSOR_ERR_SHAPE, "unique: x %t must have dims, none of them 0 but dim %i", x, d);
        d = -1;
    }
    if (d >= 0) {
        tensor_t *f = tensor_detach(flat ? tensor__flat(x) : tensor_movedim(x, d, 0)), *perm = NULL;
        tensor_shape_t shape = tensor_shape(f);
        int64_t n = shape.dims[0], first = n ? 1 : 0, table[2] = {n, n ? f->numel / n : 1};
        f = tensor_reshape_n(f, table, 2);
        for (int64_t c = table[1] - 1; sorted && c >= 0; c--) {     // stable, the last column first
            int64_t mark = th_->top;
            tensor_t *column = tensor_select(f, 1, c), *order;
            order = tensor__order(TENSOR_OP_SORT, perm ? tensor_index_select(column, 0, perm) : column, 0,
                                  -1, 0, 0, 0);
            order = tensor__tidy(th_, mark, perm ? tensor_index_select(perm, 0, order) : order);
            if (perm) { (tensor_free)(perm); }
            perm = order;
        }
        if (perm) { f = tensor_index_select(f, 0, perm); }
        tensor_t *a = tensor_narrow(f, 0, first, n - first), *b = tensor_narrow(f, 0, 0, n - first);
        tensor_t *starts[2] = {tensor_ones_n(&first, 1, TENSOR_BOOL), tensor_any_dim(tensor_ne(a, b), 1, 0)};
        tensor_t *start = tensor_cat_n(starts, 2, 0);
        tensor_t *places = tensor_masked_select(tensor_arange(0, (double)n, 1, TENSOR_I64), start);
        f = tensor_index_select(f, 0, places);
        shape.dims[0] = tensor_numel(places);
        list[0] = tensor_movedim(tensor_reshape_n(f, shape.dims, shape.ndim), 0, d);
        list[1] = list[2] = list[0];
        if (inverse) {
            tensor_t *run = tensor_sub_scalar(tensor_cumsum(start, 0), 1);
            if (perm) { run = tensor_scatter(run, 0, perm, run); }
            list[1] = flat ? tensor_reshape_n(run, x->dims, x->ndim) : run;
        }
        if (counts) {
            tensor_t *ends[2] = {places, tensor_full_n(&first, 1, (double)n, TENSOR_I64)};
            list[2] = tensor_diff(tensor_cat_n(ends, 2, 0), 1, 0);
        }
    }
    if (!inverse) { inverse = &list[1]; }       // list[1] is then list[0], which tidy_n takes once
    if (!counts) { counts = &list[2]; }
    tensor__tidy_n(th_, mark_, list, 3, function);
    *inverse = list[1];
    *counts = list[2];
    return list[0];
}
#define TENSOR__X(name, sorted)                                                                              \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x, tensor_t **inverse, tensor_t **counts) {               \
        return tensor__unique(x, 0, 1, inverse, counts, sorted, __func__);                                   \
    }                                                                                                        \
    TENSOR_API tensor_t *(tensor_##name##_dim)(tensor_t *x, int64_t dim, tensor_t **inverse,                 \
                                               tensor_t **counts) {                                          \
        return tensor__unique(x, dim, 0, inverse, counts, sorted, __func__);                                 \
    }
TENSOR__X(unique, 1) TENSOR__X(unique_consecutive, 0)
#undef TENSOR__X
TENSOR__END

// SEARCHSORTED: sorted rows, values; i[0] = right. As PyTorch: NaN goes last, NaN in sorted is never below.
typedef struct tensor__search_t { const tensor_call_t *c; int64_t n, per_row; } tensor__search_t;
TENSOR__FN void tensor__search_task(void *arg, int64_t task, int worker) {
    const tensor__search_t *r = (const tensor__search_t *)arg;
    const tensor_arg_t *s = &r->c->arg[0], *v = &r->c->arg[1];
    int whole = !tensor__is_float(s->dtype), right = r->c->p->i[0] != 0, size = tensor__sizes[s->dtype];
    int64_t first = task * TENSOR__LEAF, m = tensor__least(v->numel - first, TENSOR__LEAF);
    (void)worker;
    for (int64_t k = first; k < first + m; k++) {
        const char *row = (const char *)s->data + (s->ndim == 1 ? 0 : k / r->per_row * r->n) * size;
        int64_t lo = 0, hi = r->n, a = 0, b = 0;
        double x = 0, y = 0;
        tensor__load_run(whole ? (void *)&a : (void *)&x, whole ? TENSOR__C_I64 : TENSOR__C_F64,
                         (const char *)v->data + k * size, v->dtype, 1, 1);
        while (lo < hi) {
            int64_t mid = lo + (hi - lo) / 2;
            tensor__load_run(whole ? (void *)&b : (void *)&y, whole ? TENSOR__C_I64 : TENSOR__C_F64,
                             row + mid * size, s->dtype, 1, 1);
            int stop = whole ? (right ? b > a : b >= a) : right ? y > x : y >= x;
            if (stop) { hi = mid; } else { lo = mid + 1; }
        }
        ((int64_t *)r->c->arg[2].data)[k] = lo;
    }
}
TENSOR__COLD
TENSOR__FN int tensor__cpu_searchsorted(tensor_call_t *c) {
    tensor__search_t r;
    const tensor_arg_t *s = &c->arg[0], *v = &c->arg[1];
    r.c = c;
    r.n = TENSOR__WIDE(s);
    r.per_row = v->ndim ? TENSOR__WIDE(v) : 1;
    tensor__parallel((v->numel + TENSOR__LEAF - 1) / TENSOR__LEAF, tensor__search_task, &r);
    return 0;
}
TENSOR_API tensor_t *(tensor_searchsorted)(tensor_t *sorted, tensor_t *values, int right) {
    TENSOR__MARK2(sorted, values)
    TENSOR__BEGIN(o, TENSOR__ROW(SEARCHSORTED), sorted, values)
    TENSOR__REFUSE(sorted->dtype != values->dtype, DTYPE,
                   "searchsorted: values %t must be %y as sorted (got %y)", values, sorted, values);
    int n = sorted->ndim;
    TENSOR__REFUSE(n < 1 || (n > 1 && (n != values->ndim ||
                                       memcmp(sorted->dims, values->dims, (size_t)(n - 1) * 8))), SHAPE,
                   "searchsorted: sorted %t must be 1-d or have the leading dims of values %t", sorted,
                   values);
    o.args[0] = tensor_contiguous(sorted);
    o.args[1] = tensor_contiguous(values);
    if (o.args[0] == TENSOR__POISON || o.args[1] == TENSOR__POISON) { TENSOR__RETURN(TENSOR__POISON); }
    tensor__ints(&o, right, 0);
    tensor__result(&o, TENSOR_I64, values->dims, values->ndim);
    TENSOR__RETURN(tensor__finish(&o));
}
TENSOR_API tensor_t *(tensor_bucketize)(tensor_t *x, tensor_t *boundaries, int right) {
    TENSOR__MARK
    TENSOR__REFUSE(tensor__live(boundaries) && boundaries->ndim != 1, SHAPE,
                   "bucketize: boundaries %t must be 1-d", boundaries);
    TENSOR__RETURN((tensor_searchsorted)(boundaries, x, right));
}
TENSOR_API tensor_t *(tensor_isin)(tensor_t *x, tensor_t *test) {
    TENSOR__MARK2(x, test)
    tensor_t *const in[2] = {x, test};
    if (!test->numel) { TENSOR__RETURN(tensor_zeros_n(x->dims, x->ndim, TENSOR_BOOL)); }
    tensor_dtype_t dtype = (tensor_dtype_t)tensor__promote(in, 2);
    tensor_t *s = tensor_detach(tensor__flat(tensor_to(test, dtype)));
    if (tensor__is_float(dtype)) { s = tensor_masked_select(s, tensor_logical_not(tensor_isnan(s))); }
    if (tensor__live(s) && !s->numel) { TENSOR__RETURN(tensor_zeros_n(x->dims, x->ndim, TENSOR_BOOL)); }
    s = (tensor_sort)(s, 0, 0).values;
    tensor_t *f = tensor_detach(tensor_to(x, dtype));
    tensor_t *at = tensor_clamp((tensor_searchsorted)(s, f, 0), 0, (double)(tensor_numel(s) - 1));
    s = tensor_index_select(s, 0, tensor__flat(at));
    TENSOR__RETURN(tensor_eq(f, tensor_reshape_n(s, x->dims, x->ndim)));
}
TENSOR_API tensor_t *(tensor_bincount)(tensor_t *x, tensor_t *weights, int64_t minlength) {
    TENSOR__MARK
    if (!TENSOR__USABLE("bincount", "x", x) ||
        (weights && !TENSOR__USABLE("bincount", "weights", weights))) { return TENSOR__POISON; }
    TENSOR__REFUSE(tensor__category(x->dtype) != 1, DTYPE,
                   "bincount: x %t must be of an integer dtype (got %y)", x, x);
    TENSOR__REFUSE(x->ndim != 1 || minlength < 0 ||
                   (weights && (weights->ndim != 1 || weights->dims[0] != x->dims[0])), SHAPE,
                   "bincount: x %t must be 1-d, weights as long, minlength >= 0 (got %d)", x, minlength);
    int64_t n = minlength;
    if (x->numel) {
        int64_t low = tensor_item_i64(tensor_min(x)), high = tensor_item_i64(tensor_max(x));
        TENSOR__REFUSE(low < 0, INDEX, "bincount: x must not be negative (got %d)", low);
        if (high >= n) { n = high == INT64_MAX ? high : high + 1; }
    }
    tensor_dtype_t dtype = !weights ? TENSOR_I64 : weights->dtype == TENSOR_F32 ? TENSOR_F32 : TENSOR_F64;
    tensor_t *w = weights ? tensor_detach(tensor_to(weights, dtype)) : tensor_ones_n(x->dims, 1, dtype);
    TENSOR__RETURN(tensor_index_add(tensor_zeros_n(&n, 1, dtype), 0, tensor_to(x, TENSOR_I64), w));
}
TENSOR_API tensor_t *(tensor_histc)(tensor_t *x, int64_t bins, double low, double high) {
    TENSOR__MARK
    if (!TENSOR__USABLE("histc", "x", x) || !tensor__needs_float("histc", x)) { return TENSOR__POISON; }
    tensor_t *f = tensor_detach(tensor_to(tensor__flat(x), TENSOR_F64));
    if (low == 0 && high == 0 &&
        x->numel) { low = tensor_item(tensor_min(f)); high = tensor_item(tensor_max(f)); }
    if (low == high) { low -= 1; high += 1; }
    TENSOR__REFUSE(bins < 1 || !(high > low) || high - low > 1.7976931348623157e308, SHAPE,
                   "histc: bins must be >= 1 (got %d), the range %g..%g finite and rising", bins, low, high);
    f = tensor_masked_select(f, tensor_logical_and(tensor_ge_scalar(f, low), tensor_le_scalar(f, high)));
    f = tensor_mul_scalar(tensor_div_scalar(tensor_sub_scalar(f, low), high - low), (double)bins);
    f = tensor_to(tensor_clamp(f, 0, (double)(bins - 1)), TENSOR_I64);
    TENSOR__RETURN(tensor_to((tensor_bincount)(f, NULL, bins), x->dtype));
}

// ------------------------------------------------------------------------------
// >>impl-random                                    MARK: Philox, distributions
//
// Philox of a counter, which is the element's place: any thread can make any part. Rejected: rejection
// sampling with a running state (an element would depend on those before it).
// ------------------------------------------------------------------------------

TENSOR__FN tensor_generator_t tensor__next_stream(tensor__thread_t *th) {
    tensor_generator_t g = th->rng;
    th->rng.offset++;
    return g;
}
TENSOR_API void (tensor_manual_seed)(uint64_t seed) {
    tensor__thread_t *th = tensor__self();
    th->rng.seed = seed;
    th->rng.offset = 0;
}
TENSOR_API tensor_generator_t (tensor_get_generator)(void) { return tensor__self()->rng; }
TENSOR_API void (tensor_set_generator)(tensor_generator_t g) { tensor__self()->rng = g; }

typedef struct tensor__random_t {
    tensor_call_t *c;
    tensor__iter_t it;
    int64_t n;
    int direct;                         // y is contiguous f32
} tensor__random_t;
// The low or the high half of a block, and a number of 53 bits in [0, 1) of it.
TENSOR__INLINE uint64_t tensor__word64(const uint32_t *w, int high) {
    return (uint64_t)w[2 * high + 1] << 32 | w[2 * high];
}
TENSOR__INLINE double tensor__unit(uint64_t u) { return (double)(u >> 11) * 1.1102230246251565e-16; }
// Values of elements first..first+n (n <= BLOCK, first a multiple of 4), as double.
TENSOR__FN void tensor__random_block(const tensor_call_t *c, int64_t first, int64_t n, double *out) {
    const tensor_params_t *p = c->p;
    int id = c->row->id;
    uint32_t w[4];
    for (int64_t i = 0; i < n; ) {
        int64_t e = first + i;
        if (id == TENSOR_OP_RANDINT || id == TENSOR_OP_RAND) {        // two words an element
            tensor__philox(c->rng.seed, c->rng.offset, (uint64_t)e >> 1, w);
            uint64_t u = tensor__word64(w, e & 1);
            if (id == TENSOR_OP_RANDINT) {
                // Lemire's multiplication; the bias, range / 2^64, is below anything one could measure.
                uint64_t range = (uint64_t)p->i[1] - (uint64_t)p->i[0], lo = (uint32_t)u, hi = u >> 32;
                uint64_t rl = (uint32_t)range, rh = range >> 32, mid = (lo * rl >> 32) +
                    (uint32_t)(hi * rl) + (uint32_t)(lo * rh);
                uint64_t top = hi * rh + (hi * rl >> 32) + (lo * rh >> 32) + (mid >> 32);
                ((int64_t *)(void *)out)[i] = (int64_t)((uint64_t)p->i[0] + top);
            } else {
                out[i] = p->f[0] + (p->f[1] - p->f[0]) * tensor__unit(u);
            }
            i++;
            continue;
        }
        tensor__philox(c->rng.seed, c->rng.offset, (uint64_t)e >> 2, w);
        for (int k = (int)(e & 3); k < 4 && i < n; k++, i++) {
            if (id == TENSOR_OP_RANDN) {
                // u1 in (0, 1], so the logarithm is finite; the tail ends near 6.7 sigma
                double u1 = ((double)w[k & ~1] + 1) * 2.3283064365386963e-10, u2 =
                    (double)w[k | 1] * 2.3283064365386963e-10;
                double r = sqrt(-2 * log(u1)), a = 6.283185307179586 * u2;
                out[i] = p->f[0] + p->f[1] * r * (k & 1 ? sin(a) : cos(a));
            } else {
                out[i] = (double)w[k] * 2.3283064365386963e-10;        // BERNOULLI compares this with p
            }
        }
    }
}
TENSOR__FN void tensor__random_task(void *arg, int64_t task, int worker) {
    tensor__random_t *r = (tensor__random_t *)arg;
    tensor_call_t *c = r->c;
    (void)worker;
    int64_t end = tensor__least((task + 1) * TENSOR__GRAIN, r->n);
    int64_t step = r->direct ? r->n : (int64_t)TENSOR__BLOCK;
    for (int64_t i = task * TENSOR__GRAIN; i < end; i += step) {
        int64_t m = tensor__least(end - i, step);
        double block[TENSOR__BLOCK], p[TENSOR__BLOCK];
        if (r->it.klass == TENSOR__C_F32) {
            float *f = r->direct ? (float *)c->arg[c->nin].data + i : (float *)(void *)block;
            int normal = c->row->id == TENSOR_OP_RANDN;
            double scale = normal ? c->p->f[1] : c->p->f[1] - c->p->f[0];
            TENSOR__ISA(c->thread)->random(normal, c->rng, i, m, (float)c->p->f[0], (float)scale, f);
            if (!r->direct) { tensor__iter_move(&r->it, c->nin, i, m, f, 1); }
            continue;
        }
        int poisson = c->row->id == TENSOR_OP_POISSON;
        if (!poisson) { tensor__random_block(c, i, m, block); }
        if (c->nin) { tensor__iter_move(&r->it, 0, i, m, p, 0); }
        for (int64_t k = 0; k < m && c->nin; k++) {
            block[k] = poisson ? tensor__poisson(c->rng, (uint64_t)(i + k), p[k]) : block[k] < p[k];
        }
        tensor__iter_move(&r->it, c->nin, i, m, block, 1);
    }
}
TENSOR__FN int tensor__cpu_random(tensor_call_t *c) {
    const tensor_arg_t *y = &c->arg[c->nin];
    tensor__random_t r;
    r.c = c;
    r.n = y->numel;
    int klass = c->row->id == TENSOR_OP_RANDINT ? TENSOR__C_I64
              : c->nin || y->dtype == TENSOR_F64 ? TENSOR__C_F64 : TENSOR__C_F32;
    tensor__iter_init(&r.it, c->arg, c->nin, 1, y->dims, y->ndim, y->numel, klass);
    r.direct = r.it.klass == TENSOR__C_F32 && y->dtype == TENSOR_F32 && y->contiguous;
    tensor__parallel((r.n + TENSOR__GRAIN - 1) / TENSOR__GRAIN, tensor__random_task, &r);
    return 0;
}
// MULTINOMIAL: rows of weights (double, contiguous) to i[0] indices each, by inverse of the running sum.
TENSOR__FN int tensor__cpu_multinomial(tensor_call_t *c) {
    const tensor_arg_t *w = &c->arg[0];
    int64_t k = TENSOR__WIDE(w), n = c->p->i[0], rows = k ? w->numel / k : 0;
    const double *at = (const double *)w->data;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < k; i++) {
            double v = at[r * k + i];
            TENSOR__REFUSE_CODE(!(v >= 0) || v > 1.7976931348623157e308, INDEX,
                                "multinomial: weight %g at row %d, place %d must be finite and >= 0", v, r,
                                i);
            sum += v;
        }
        TENSOR__REFUSE_CODE(!(sum > 0), INDEX, "multinomial: row %d has no weight above 0", r);
    }
    for (int64_t r = 0; r < rows; r++) {
        double total = 0;
        for (int64_t i = 0; i < k; i++) { total += at[r * k + i]; }
        for (int64_t j = 0; j < n; j++) {
            uint32_t u[4];
            uint64_t e = (uint64_t)(r * n + j);
            tensor__philox(c->rng.seed, c->rng.offset, e >> 1, u);
            double x = tensor__unit(tensor__word64(u, e & 1)) * total, s = 0;
            int64_t pick = -1;
            for (int64_t i = 0; i < k; i++) {
                if (at[r * k + i] <= 0) { continue; }
                s += at[r * k + i];
                pick = i;
                if (x < s) { break; }
            }
            ((int64_t *)c->arg[1].data)[r * n + j] = pick;
        }
    }
    return 0;
}

// like: whose device, NULL = the default one.
TENSOR__FN tensor_t *tensor__drawn(int id, const int64_t *dims, int ndim, int dtype, double f0, double f1,
                                   int64_t i0, int64_t i1, const tensor_t *like) {
    TENSOR__BEGIN0(o, tensor__row(id))
    if (like) { o.device = like->device; }
    tensor__reals(&o, f0, f1);
    o.params.i[0] = i0;
    o.params.i[1] = i1;
    o.rng = tensor__next_stream(o.th);
    tensor__result(&o, dtype, dims, ndim);
    return tensor__finish(&o);
}
TENSOR__FRONT(rand_n, (const int64_t *dims, int ndim),
    tensor__drawn(TENSOR_OP_RAND, dims, ndim, (int)tensor_get_default_dtype(), 0, 1, 0, 0, NULL))
TENSOR__FRONT(randn_n, (const int64_t *dims, int ndim),
    tensor__drawn(TENSOR_OP_RANDN, dims, ndim, (int)tensor_get_default_dtype(), 0, 1, 0, 0, NULL))
TENSOR_API tensor_t *(tensor_randint_n)(int64_t low, int64_t high, const int64_t *dims, int ndim) {
    TENSOR__REFUSE(high <= low, SHAPE, "randint: high %d must be above low %d", high, low);
    return tensor__drawn(TENSOR_OP_RANDINT, dims, ndim, TENSOR_I64, 0, 0, low, high, NULL);
}
#define TENSOR__X(ID, name)                                                                                  \
    TENSOR_API tensor_t *(tensor_##name)(tensor_t *x) {                                                      \
        if (!TENSOR__USABLE(#name, "x", x) || !tensor__needs_float(#name, x)) { return TENSOR__POISON; }     \
        return tensor__drawn(TENSOR_OP_##ID, x->dims, x->ndim, x->dtype, 0, 1, 0, 0, x);                     \
    }
TENSOR__X(RAND, rand_like) TENSOR__X(RANDN, randn_like)
#undef TENSOR__X
TENSOR_API tensor_t *(tensor_randint_like)(tensor_t *x, int64_t low, int64_t high) {
    TENSOR__MARK1(x)
    tensor_t *y = tensor_to(tensor_randint_n(low, high, x->dims, x->ndim), x->dtype);
    TENSOR__RETURN(tensor_to(y, (int)tensor_device(x)));
}
TENSOR_API tensor_t *(tensor_normal)(tensor_t *mean, tensor_t *std) {
    TENSOR__MARK
    tensor_t *m = tensor_detach(mean), *d = tensor_detach(std), *z = tensor_add(m, d);
    if (z == TENSOR__POISON || !tensor__needs_float("normal", z)) { TENSOR__RETURN(TENSOR__POISON); }
    TENSOR__REFUSE(d->numel && !(tensor_item(tensor_min(d)) >= 0), INDEX,
                   "normal: std %t must not be negative", std);
    TENSOR__RETURN(tensor_add(m, tensor_mul(d, tensor_randn_like(z))));
}
// Random numbers by elementwise parameters within 0..most, looked at before anything is drawn.
TENSOR__FN tensor_t *tensor__draw_by(int id, tensor_t *p, double most) {
    tensor__op_t o;
    const char *name = tensor__row(id)->name;
    if (!tensor__begin(&o, tensor__row(id), &p, 1) || !tensor__needs_float(name, p)) {
        return TENSOR__POISON;
    }
    if (p->numel) {
        TENSOR__MARK
        tensor_t *c = tensor_detach(p);
        double lo = tensor_item(tensor_min(c)), hi = tensor_item(tensor_max(c));
        tensor__tidy(th_, mark_, NULL);
        TENSOR__REFUSE(!(lo >= 0 && hi <= most), INDEX, "%s: %s %t must lie in 0..%g (from %g to %g)", name,
                       id == TENSOR_OP_BERNOULLI ? "p" : "rates", p, most, lo, hi);
        tensor__begin(&o, tensor__row(id), &p, 1);
    }
    o.rng = tensor__next_stream(o.th);
    tensor__result(&o, p->dtype, p->dims, p->ndim);
    return tensor__finish(&o);
}
TENSOR_API tensor_t *(tensor_bernoulli)(tensor_t *p) { return tensor__draw_by(TENSOR_OP_BERNOULLI, p, 1); }
TENSOR__FRONT(poisson, (tensor_t *rates), tensor__draw_by(TENSOR_OP_POISSON, rates, 1e15))
// Fisher-Yates on one stream.
TENSOR__FN int tensor__cpu_randperm(tensor_call_t *c) {
    int64_t *to = (int64_t *)c->arg[0].data, n = c->arg[0].numel;
    for (int64_t i = 0; i < n; i++) { to[i] = i; }
    for (int64_t i = n - 1; i > 0; i--) {
        uint32_t w[4];
        tensor__philox(c->rng.seed, c->rng.offset, (uint64_t)i, w);
        int64_t k = (int64_t)(tensor__word64(w, 0) % (uint64_t)(i + 1)), v = to[i];
        to[i] = to[k];
        to[k] = v;
    }
    return 0;
}
TENSOR__FRONT(randperm, (int64_t n), tensor__drawn(TENSOR_OP_RANDPERM, &n, 1, TENSOR_I64, 0, 0, 0, 0, NULL))
TENSOR_API tensor_t *(tensor_multinomial)(tensor_t *weights, int64_t n) {
    TENSOR__MARK
    TENSOR__BEGIN(o, TENSOR__ROW(MULTINOMIAL), weights)
    TENSOR__REFUSE(!weights->ndim || n < 0, SHAPE, "multinomial: weights %t need a dim to draw %d from",
                   weights, n);
    if (!tensor__needs_float("multinomial", weights)) { return TENSOR__POISON; }
    TENSOR__REFUSE(n && !TENSOR__WIDE(weights), INDEX,
                   "multinomial: rows of weights %t have nothing to draw from", weights);
    o.args[0] = tensor_contiguous(tensor_to(tensor_detach(weights), TENSOR_F64));
    if (o.args[0] == TENSOR__POISON) { return TENSOR__POISON; }
    int64_t dims[TENSOR_MAX_DIMS];
    for (int i = 0; i < weights->ndim; i++) { dims[i] = weights->dims[i]; }
    dims[weights->ndim - 1] = n;
    tensor__ints(&o, n, 0);
    o.rng = tensor__next_stream(o.th);
    tensor__result(&o, TENSOR_I64, dims, weights->ndim);
    TENSOR__RETURN(tensor__finish(&o));
}
// Whether x may be filled: not a leaf that requires grad, not part of a graph.
TENSOR__FN int tensor__fillable(tensor__thread_t *th, const char *name, tensor_t *x, int any_dtype) {
    if (!TENSOR__USABLE(name, "x", x)) { return 0; }
    if (!any_dtype && !tensor__needs_float(name, x)) { return 0; }
    if (!tensor__update_allowed(th, name, x, 0)) { return 0; }
    TENSOR__REFUSE_AS(0, th->grad_mode && tensor__sync_needs_grad(th, x), AUTOGRAD,
                      "%s: x %t is part of a graph; fill it under no_grad, or a detached tensor", name, x);
    return 1;
}
// x filled by a random row.
TENSOR__FN tensor_t *tensor__draw_into(int id, tensor_t *x, double f0, double f1) {
    tensor__op_t o;
    tensor__thread_t *th = tensor__self();
    if (!tensor__fillable(th, tensor__row(id)->name, x, 0)) { return TENSOR__POISON; }
    tensor__begin(&o, tensor__row(id), NULL, 0);
    o.device = x->device;
    tensor__reals(&o, f0, f1);
    o.rng = tensor__next_stream(th);
    o.update = 1;
    o.out[o.nout++] = x;
    return tensor__finish(&o);
}
TENSOR_API tensor_t *(tensor_uniform_)(tensor_t *x, double low, double high) {
    TENSOR__REFUSE(!(high >= low) || !(high - low < INFINITY), INDEX, "uniform_: %g .. %g is no range", low,
                   high);
    return tensor__draw_into(TENSOR_OP_RAND, x, low, high);
}
TENSOR_API tensor_t *(tensor_normal_)(tensor_t *x, double mean, double std) {
    TENSOR__REFUSE(!(std >= 0), INDEX, "normal_: std is %g, it must be >= 0", std);
    return tensor__draw_into(TENSOR_OP_RANDN, x, mean, std);
}
// Distributions made of uniform or normal numbers in double: 0 exponential (a = rate), 1 cauchy, 2
// log-normal, 3 geometric, 4 bernoulli (a = p).
TENSOR__FN tensor_t *tensor__draw_made(const char *name, int kind, tensor_t *x, double a, double b) {
    tensor__thread_t *th = tensor__self();
    static const double low[] = {0, -INFINITY, -INFINITY, 0, -1e-300};       // of a, exclusive
    static const double high[] = {INFINITY, INFINITY, INFINITY, 1, 1 + 1e-15};
    if (!tensor__fillable(th, name, x, kind > 2)) { return TENSOR__POISON; }
    TENSOR__REFUSE(!(a > low[kind] && a < high[kind]) || ((kind == 1 || kind == 2) && !(b >= 0)), INDEX,
                   "%s: the parameters %g, %g are out of range", name, a, b);
    tensor_scope_t s = tensor__scope_begin(th, 0);
    int id = kind == 2 ? TENSOR_OP_RANDN : TENSOR_OP_RAND;
    tensor_t *y = tensor__drawn(id, x->dims, x->ndim, TENSOR_F64, 0, 1, 0, 0, x);
    switch (kind) {
    case 0: y = tensor_div_scalar(tensor_log1p(tensor_neg(y)), -a); break;
    case 1:
        y = tensor_tan(tensor_mul_scalar(tensor_sub_scalar(y, 0.5), 3.141592653589793));
        y = tensor_add_scalar(tensor_mul_scalar(y, b), a);
        break;
    case 2: y = tensor_exp(tensor_add_scalar(tensor_mul_scalar(y, b), a)); break;
    case 3:
        y = tensor_ceil(tensor_div_scalar(tensor_log1p(tensor_neg(y)), log1p(-a)));
        y = tensor_maximum_scalar(y, 1);
        break;
    default: y = tensor_lt_scalar(y, a); break;
    }
    y = tensor_copy_(x, y);
    (tensor_scope_end)(s);
    return y == TENSOR__POISON ? y : x;
}
TENSOR__FRONT(exponential_, (tensor_t *x, double lambda), tensor__draw_made("exponential_", 0, x, lambda, 0))
TENSOR__FRONT(cauchy_, (tensor_t *x, double median, double sigma),
    tensor__draw_made("cauchy_", 1, x, median, sigma))
TENSOR__FRONT(log_normal_, (tensor_t *x, double mean, double std),
    tensor__draw_made("log_normal_", 2, x, mean, std))
TENSOR__FRONT(geometric_, (tensor_t *x, double p), tensor__draw_made("geometric_", 3, x, p, 0))
TENSOR__FRONT(bernoulli_, (tensor_t *x, double p), tensor__draw_made("bernoulli_", 4, x, p, 0))
TENSOR_API tensor_t *(tensor_random_)(tensor_t *x, int64_t low, int64_t high) {
    TENSOR__MARK
    if (!tensor__fillable(th_, "random_", x, 1)) { return TENSOR__POISON; }
    TENSOR__RETURN(tensor_copy_(x, tensor_randint_n(low, high, x->dims, x->ndim)));
}
TENSOR__END

// ------------------------------------------------------------------------------
// >>impl-autograd                                  MARK: leaves, saved values, custom functions
//
// Saved values hold storage and version, custom functions are rows like any other. Rejected: saving headers
// (a saved output would be a cycle), numbers of versions per header (views share changes).
// ------------------------------------------------------------------------------

TENSOR_API tensor_t *(tensor_requires_grad_)(tensor_t *x, int on) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("requires_grad_", "x", x)) { return TENSOR__POISON; }
    TENSOR__REFUSE(on && !tensor__is_float(x->dtype), DTYPE,
                   "requires_grad_: x %t is %y; only floats have gradients", x, x);
    TENSOR__REFUSE(on && (x->flags & TENSOR__INFERENCE) && !(th->modes & TENSOR__INFERRING), AUTOGRAD,
                   "requires_grad_: x %t was made in inference mode; use a clone of it", x);
    if (tensor__sync_needs_grad(th, x) && x->node) {
        if (on) { return x; }
        return tensor__fail(th, TENSOR_ERR_AUTOGRAD,
                            "requires_grad_: x %t is the result of an operation; use tensor_detach", x);
    }
    x->flags = (uint8_t)(on ? x->flags | TENSOR__REQUIRES_GRAD : x->flags & ~TENSOR__REQUIRES_GRAD);
    return x;
}
TENSOR_API int (tensor_requires_grad)(tensor_t *x) {
    return tensor__live(x) && tensor__sync_needs_grad(tensor__self(), x);
}
TENSOR_API int (tensor_is_leaf)(tensor_t *x) {
    return tensor__live(x) && (!tensor__sync_needs_grad(tensor__self(), x) || !x->node);
}
TENSOR_API int (tensor_is_inference)(tensor_t *x) {
    return tensor__live(x) && (x->flags & TENSOR__INFERENCE) != 0;
}
TENSOR_API tensor_t *(tensor_detach_)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("detach_", "x", x)) { return TENSOR__POISON; }
    TENSOR__REFUSE(x->base, AUTOGRAD, "detach_: x %t is a view; use tensor_detach", x);
    tensor__renode(th, x, NULL, 0);
    x->flags = (uint8_t)(x->flags & ~TENSOR__REQUIRES_GRAD);
    x->rebased++;
    return x;
}
// g, a gradient of leaf x, in the shape of x.
TENSOR__FN tensor_t *tensor__whole(tensor_t *x, tensor_t *g) {
    if (!tensor__rows_of(g)) { return g; }
    TENSOR__MARK
    uint8_t modes = th_->modes;
    th_->modes = (uint8_t)(modes & ~TENSOR__INFERRING);         // it stays, whatever mode asks for it
    tensor_t *y = tensor_index_add_(tensor_zeros_like(x), 0, tensor_relu(g->grad), g);
    th_->modes = modes;
    return tensor__tidy(th_, mark_, y);
}
TENSOR_API tensor_t *(tensor_grad)(tensor_t *x) {
    if (!tensor__live(x)) { return NULL; }
    tensor__spin(&x->lock);             // threads that read a gradient by rows may meet here
    int done = !tensor__rows_of(x->grad) || tensor__replace(&x->grad, tensor__whole(x, x->grad));
    tensor_t *g = done ? x->grad : TENSOR__POISON;
    tensor__unspin(&x->lock);
    return g;
}
TENSOR_API int (tensor_set_grad)(tensor_t *x, tensor_t *grad) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("set_grad", "x", x)) { return th->error.code; }
    if (grad) {
        if (!TENSOR__USABLE("set_grad", "grad", grad)) { return th->error.code; }
        TENSOR__REFUSE_CODE(grad == x, AUTOGRAD, "set_grad: x %t cannot be its own gradient", x);
        TENSOR__REFUSE_CODE(!tensor__same_shape(grad, x), SHAPE,
                            "set_grad: grad %t has not the shape of x %t", grad, x);
        TENSOR__REFUSE_CODE(grad->dtype != x->dtype, DTYPE, "set_grad: grad is %y, x is %y", grad, x);
    }
    return !tensor__replace(&x->grad, grad);
}
TENSOR_API tensor_t *(tensor_retain_grad)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE("retain_grad", "x", x)) { return TENSOR__POISON; }
    TENSOR__REFUSE(!tensor__sync_needs_grad(th, x), AUTOGRAD, "retain_grad: x %t does not require grad", x);
    if (!x->node) { return x; }
    if (!tensor__node_extra(th, x->node)) { return TENSOR__POISON; }
    x->node->extra->retain[x->output] = x;
    return x;
}
TENSOR_API int (tensor_grad_enabled)(void) { return tensor__self()->grad_mode; }
TENSOR_API int (tensor_set_grad_enabled)(int on) {
    tensor__thread_t *th = tensor__self();
    int was = th->grad_mode;
    th->grad_mode = (uint8_t)(on && !(th->modes & TENSOR__INFERRING));
    return was;
}
TENSOR_API int (tensor_set_detect_anomaly)(int on) {
    tensor__thread_t *th = tensor__self();
    int was = th->modes & TENSOR__ANOMALY;
    th->modes = (uint8_t)((th->modes & ~TENSOR__ANOMALY) | (on ? TENSOR__ANOMALY : 0));
    return was;
}

TENSOR__FN int64_t tensor__hook(const char *name, tensor_t *x, tensor_hook_t fn, tensor_post_hook_t post,
                                void *user) {
    tensor__thread_t *th = tensor__self();
    if (!TENSOR__USABLE(name, "x", x)) { return 0; }
    TENSOR__REFUSE_AS(0, !fn && !post, OWNER, "%s: fn is NULL", name);
    TENSOR__REFUSE_AS(0, !tensor__sync_needs_grad(th, x) || (post && x->node), AUTOGRAD, "%s: x %t %s", name,
                      x, tensor__needs_grad(x) ? "is not a leaf" : "does not require grad");
    tensor__extra_t *e = x->node ? tensor__node_extra(th, x->node) : x->flags & TENSOR__HOOKED ?
        tensor__leaf_extra(x) : (tensor__extra_t *)tensor__memory(th, sizeof *e);
    if (e && !x->node) {
        x->next = (tensor_t *)(void *)e;
        x->flags = (uint8_t)(x->flags | TENSOR__HOOKED);
    }
    tensor__hook_t *h = e ? (tensor__hook_t *)tensor__memory(th, sizeof *h) : NULL, **at;
    if (!h) { return 0; }
    h->owner = e;
    h->output = post ? -1 : x->output;
    h->fn = fn;
    h->post = post;
    h->user = user;
    for (at = &e->hooks; *at; at = &(*at)->next) {}
    *at = h;
    TENSOR__LOCK(&th->ctx->mutex);
    h->id = ++th->ctx->last_hook;
    h->other = th->ctx->hooks;
    h->prev = &th->ctx->hooks;
    if (h->other) { h->other->prev = &h->other; }
    th->ctx->hooks = h;
    (void)TENSOR__ATOMIC_ADD(&th->ctx->hook_count, 1);
    TENSOR__UNLOCK(&th->ctx->mutex);
    return h->id;
}
TENSOR_API int64_t (tensor_register_hook)(tensor_t *x, tensor_hook_t fn, void *user) {
    return tensor__hook("register_hook", x, fn, NULL, user);
}
TENSOR_API int64_t (tensor_register_post_accumulate_grad_hook)(tensor_t *x, tensor_post_hook_t fn,
                                                               void *user) {
    return tensor__hook("register_post_accumulate_grad_hook", x, NULL, fn, user);
}
TENSOR_API int (tensor_remove_hook)(int64_t handle) {
    tensor__thread_t *th = tensor__self();
    TENSOR__LOCK(&th->ctx->mutex);
    tensor__hook_t *h = th->ctx->hooks, **at;
    while (h && h->id != handle) { h = h->other; }
    if (h) { tensor__hook_unlink(th->ctx, h); }
    TENSOR__UNLOCK(&th->ctx->mutex);
    if (!h) { return 0; }
    for (at = &h->owner->hooks; *at != h; at = &(*at)->next) {}
    *at = h->next;
    tensor__raw_free(th->ctx, h);
    return 1;
}
// The hooks of output k on *g, a library reference; k < 0: those that look at a leaf. A hook may remove any.
// 0 = failed, raised.
TENSOR__FN int tensor__run_hooks(tensor__thread_t *th, tensor__extra_t *e, int32_t k, tensor_t **g,
                                 tensor_t *leaf) {
    for (int64_t last = 0;;) {
        tensor__hook_t *h = e->hooks;
        while (h && (h->id <= last || h->output != k)) { h = h->next; }
        if (!h) { return 1; }
        last = h->id;
        if (k < 0) { h->post(leaf, h->user); }
        tensor_t *r = k < 0 ? NULL : h->fn(*g, h->user), *old = k < 0 ? NULL : *g;
        if (th->error.code) { return 0; }
        if (!r || r == old) { continue; }
        if (!TENSOR__USABLE("backward", "result of a hook", r)) { return 0; }
        if (r->dtype != old->dtype || !tensor__same_shape(r, old)) {
            tensor__fail(th, r->dtype == old->dtype ? TENSOR_ERR_SHAPE : TENSOR_ERR_DTYPE,
                         "backward: a hook gave %t %y for a gradient %t %y", r, r, old, old);
            return 0;
        }
        tensor__replace(g, r);
    }
}

// 1 if a saved value is what it was. The text names who saved it and who changed it.
TENSOR__FN int tensor__check_saved(tensor__grad_t *g, const tensor__saved_t *v) {
    if (TENSOR__LIKELY(v->storage->version == v->version)) { return 1; }
    tensor__fail(g->th, TENSOR_ERR_AUTOGRAD, "backward: %s %i of %s%w, shape %n, was changed in place by "
                 "%s%w after it was saved (version %i, expected %i); change a clone instead", v->source < 0 ?
                 "output" : "input", v->source < 0 ? -1 - v->source : (int)v->source, g->node->row->name,
                 g->node->site, v->dims, (int)v->ndim, v->storage->write_op ? v->storage->write_op : "?",
                 v->storage->write_site, (int)v->storage->version, (int)v->version);
    return 0;
}
TENSOR__FN tensor_t *tensor__saved_header(tensor__thread_t *th, tensor__node_t *n, const tensor__saved_t *v) {
    tensor_t *t = tensor__over(th, n->row->name, v->storage, v->dtype, v->dims, v->strides, v->ndim,
                               v->offset);
    if (!t) { return TENSOR__POISON; }
    t->site = n->site;
    return t;
}
// Hands the values n saved to the hooks. 0 = failed, raised.
TENSOR__FN int tensor__pack(tensor__thread_t *th, tensor__node_t *n) {
    tensor__extra_t *e = n->nsaved ? tensor__node_extra(th, n) : NULL;
    if (!n->nsaved) { return 1; }
    if (e) { e->packed = (void **)tensor__memory(th, (uint64_t)n->nsaved * sizeof *e->packed); }
    if (!e || !e->packed) { return 0; }
    e->packed_count = n->nsaved;
    e->packing = th->packing;
    tensor__storage_t *written = th->written;
    tensor_scope_t s = tensor__scope_begin(th, 0);
    int ok = s.thread != NULL;
    th->modes &= (uint8_t)~TENSOR__PACKING;
    for (int i = 0; i < n->nsaved && ok; i++) {
        tensor__saved_t *v = &n->saved[i];
        const tensor_t *leaf = v->source >= 0 ? n->edge[v->source].leaf : NULL;
        if (!v->storage || (leaf && leaf->storage == v->storage)) { continue; }
        tensor_t *t = tensor__saved_header(th, n, v);
        void *p = t != TENSOR__POISON ? e->packing->pack(t, e->packing->user) : NULL;
        ok = p != NULL && th->error.code == 0;
        if (!p) { tensor__fail(th, TENSOR_ERR_AUTOGRAD, "%s: pack gave NULL", n->row->name); }
        e->packed[i] = p;
        if (!ok) { break; }
        tensor__storage_drop(th, v->storage);
        v->storage = NULL;
    }
    if (s.thread) { (tensor_scope_end)(s); }
    th->written = written;
    n->used = 3;
    return ok;
}
// Gets them back for one run of n.
TENSOR__FN int tensor__unpack_saved(tensor__node_t *n) {
    tensor__extra_t *e = n->extra;
    for (int i = 0; i < n->nsaved; i++) {
        tensor__saved_t *v = &n->saved[i];
        if (!e->packed[i]) { continue; }
        tensor_t *t = e->packing->unpack(e->packed[i], e->packing->user);
        if (!TENSOR__USABLE("backward", "result of unpack", t)) { return 0; }
        TENSOR__REFUSE_AS(0, t->dtype != v->dtype || t->ndim != v->ndim || memcmp(t->dims, v->dims,
                          v->ndim * sizeof *t->dims), SHAPE,
                          "backward: unpack gave %t %y for a value %n of %s", t, t, v->dims, (int)v->ndim,
                          n->row->name);
        t = (tensor_contiguous)(t);
        if (t == TENSOR__POISON) { return 0; }
        TENSOR__HOLD(&t->storage->refs);
        v->storage = t->storage;
        v->offset = t->offset;
        v->version = t->storage->version;
        v->contiguous = 1;
        memcpy((void *)(intptr_t)v->strides, t->strides, t->ndim * sizeof *t->strides);
    }
    return 1;
}
TENSOR_API const tensor_saved_hooks_t *(tensor_set_saved_tensors_hooks)(const tensor_saved_hooks_t *hooks) {
    tensor__thread_t *th = tensor__self();
    const tensor_saved_hooks_t *was = th->packing;
    th->packing = hooks;
    th->modes = (uint8_t)((th->modes & ~TENSOR__PACKING) | (hooks ? TENSOR__PACKING : 0));
    return was;
}
// A saved value as a header of the current scope; with its place in the graph where the gradient is to be
// differentiable.
TENSOR__FN tensor_t *tensor__unpack(tensor__grad_t *g, int source) {
    tensor__node_t *n = g->node;
    tensor__thread_t *th = g->th;
    for (int i = 0; i < n->nsaved; i++) {
        tensor__saved_t *v = &n->saved[i];
        if (v->source != source) { continue; }
        if (v->is_immediate) { return (tensor_scalar)(v->immediate, (tensor_dtype_t)n->out[0].dtype); }
        if (!v->storage) { return NULL; }       // an optional input that was absent
        if (!tensor__check_saved(g, v)) { return TENSOR__POISON; }
        tensor__edge_t *e = source >= 0 ? &n->edge[source] : NULL;
        if (g->create && e && e->leaf && e->leaf->storage == v->storage) { return e->leaf; }
        tensor_t *t = tensor__saved_header(th, n, v);
        if (t == TENSOR__POISON) { return t; }
        tensor__node_t *node = !g->create ? NULL : source < 0 ? n : e->node;
        if (node && tensor__is_float(v->dtype)) {
            TENSOR__HOLD(&node->refs);
            t->node = node;
            t->output = source < 0 ? -1 - source : e->output;
        }
        return t;
    }
    return tensor__fail(th, TENSOR_ERR_INTERNAL, "backward: %s did not save value %i", n->row->name, source);
}
TENSOR__FN tensor_t *tensor__grad_in(tensor__grad_t *g, int k) {
    if (!g->value[k]) { g->value[k] = tensor__unpack(g, k); }
    return g->value[k];
}
TENSOR__FN tensor_t *tensor__grad_out(tensor__grad_t *g, int k) {
    tensor_t **at = &g->value[TENSOR__MAX_IN + k];
    if (!*at) { *at = tensor__unpack(g, -1 - k); }
    return *at;
}

// A user's function: its saved values are inputs or the result, by index; others are kept as constants.
struct tensor_function_ctx_t {
    const tensor_function_t *fn;
    void *user;
    tensor_t *const *inputs;            // during forward
    int n, nout, tracks;
    uint32_t dirty, constant;           // bit i: input i is changed, result i has no gradient
    tensor_t *out[TENSOR__MAX_OUT];
    tensor__grad_t *g;                  // during backward
    struct { tensor__storage_t *storage; tensor_t *tensor; int64_t offset; int64_t dims[TENSOR_MAX_DIMS];
             int64_t strides[TENSOR_MAX_DIMS]; uint32_t version; uint8_t ndim, dtype; int source;
             } saved[TENSOR__MAX_IN];
};
enum { TENSOR__CONSTANT = 1 << 20 };    // source of a saved value that is neither input nor result

TENSOR__FN void tensor__custom_drop(tensor__thread_t *th, void *custom) {
    tensor_function_ctx_t *c = (tensor_function_ctx_t *)custom;
    for (int i = 0; i < TENSOR__MAX_IN; i++) {
        if (c->saved[i].storage) { tensor__storage_drop(th, c->saved[i].storage); }
        c->saved[i].storage = NULL;
    }
}
TENSOR__FN void tensor__custom_free(tensor__thread_t *th, void *custom) {
    tensor_function_ctx_t *c = (tensor_function_ctx_t *)custom;
    tensor__custom_drop(th, custom);
    if (c->fn->destroy) { c->fn->destroy(c->user); }
    tensor__raw_free(th->ctx, c);
}
TENSOR_API int (tensor_save_for_backward)(tensor_function_ctx_t *ctx, int slot, tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(!ctx || slot < 0 || slot >= TENSOR__MAX_IN, INDEX,
                        "save_for_backward: slot %i is outside 0..%i", slot, (int)TENSOR__MAX_IN - 1);
    if (!TENSOR__USABLE("save_for_backward", "x", x)) { return th->error.code; }
    if (ctx->tracks && (x->flags & TENSOR__INFERENCE)) {
        tensor__not_saved(th, ctx->fn->name, x);
        return TENSOR_ERR_AUTOGRAD;
    }
    if (ctx->saved[slot].storage) { tensor__storage_drop(th, ctx->saved[slot].storage); }
    TENSOR__HOLD(&x->storage->refs);
    ctx->saved[slot].storage = x->storage;
    ctx->saved[slot].tensor = x;
    ctx->saved[slot].offset = x->offset;
    ctx->saved[slot].version = x->storage->version;
    ctx->saved[slot].ndim = x->ndim;
    ctx->saved[slot].dtype = x->dtype;
    for (int i = 0; i < x->ndim; i++) {
        ctx->saved[slot].dims[i] = x->dims[i];
        ctx->saved[slot].strides[i] = x->strides[i];
    }
    ctx->saved[slot].source = TENSOR__CONSTANT;
    for (int i = 0; i < ctx->n; i++) { if (ctx->inputs[i] == x) { ctx->saved[slot].source = i; } }
    return 0;
}
TENSOR_API tensor_t *(tensor_saved)(tensor_function_ctx_t *ctx, int slot) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE(!ctx || slot < 0 || slot >= TENSOR__MAX_IN || !ctx->saved[slot].storage || !ctx->g, INDEX,
                   "saved: slot %i holds nothing%s", slot, ctx && ctx->g ? "" : " outside backward");
    tensor__saved_t v;
    v.storage = ctx->saved[slot].storage;
    v.version = ctx->saved[slot].version;
    v.source = (int8_t)(ctx->saved[slot].source < 100 ? ctx->saved[slot].source : 0);
    v.dims = ctx->saved[slot].dims;
    v.ndim = ctx->saved[slot].ndim;
    if (!tensor__check_saved(ctx->g, &v)) { return TENSOR__POISON; }
    int source = ctx->saved[slot].source;
    tensor__node_t *n = ctx->g->node;
    tensor__edge_t *e = source >= 0 && source != TENSOR__CONSTANT ? &n->edge[source] : NULL;
    if (ctx->g->create && e && e->leaf) { return e->leaf; }
    tensor_t *t = tensor__over(th, "saved", v.storage, ctx->saved[slot].dtype, v.dims,
                               ctx->saved[slot].strides, v.ndim, ctx->saved[slot].offset);
    if (!t) { return TENSOR__POISON; }
    tensor__node_t *node = !ctx->g->create ? NULL : source < 0 ? n : e ? e->node : NULL;
    if (node) {
        TENSOR__HOLD(&node->refs);
        t->node = node;
        t->output = e ? e->output : -1 - source;
    }
    return t;
}
TENSOR_API int (tensor_needs_input_grad)(tensor_function_ctx_t *ctx, int i) {
    if (i >= 0 && i < ctx->n) { return ctx->tracks && tensor__needs_grad(ctx->inputs[i]); }
    return ctx->g && i >= 0 && i < ctx->g->node->nin && tensor__grad_need(ctx->g, i);
}
// Whether k names one of n things while forward runs (or backward, if ctx->g must be there).
TENSOR__FN int tensor__custom_index(tensor_function_ctx_t *ctx, const char *name, int k, int n,
                                    int backward) {
    TENSOR__REFUSE_AS(0, !(ctx && k >= 0 && k < n && (backward ? ctx->g != NULL : ctx->inputs != NULL)),
                      INDEX, "%s: %i is outside 0..%i, or this is not %s", name, k, n - 1, backward ?
                      "backward" : "forward");
    return 1;
}
TENSOR_API int (tensor_set_output)(tensor_function_ctx_t *ctx, int k, tensor_t *y) {
    if (!tensor__custom_index(ctx, "set_output", k, ctx ? ctx->nout : 0, 0)) { return TENSOR_ERR_INDEX; }
    ctx->out[k] = y;
    return 0;
}
TENSOR_API int (tensor_mark_non_differentiable)(tensor_function_ctx_t *ctx, int k) {
    if (!tensor__custom_index(ctx, "mark_non_differentiable", k, ctx ? ctx->nout : 0, 0)) {
        return TENSOR_ERR_INDEX;
    }
    ctx->constant |= 1u << k;
    return 0;
}
TENSOR_API int (tensor_mark_dirty)(tensor_function_ctx_t *ctx, int i) {
    tensor__thread_t *th = tensor__self();
    int n = ctx && ctx->n > 32 ? 32 : ctx ? ctx->n : 0;
    if (!tensor__custom_index(ctx, "mark_dirty", i, n, 0)) { return TENSOR_ERR_INDEX; }
    tensor_t *x = ctx->inputs[i];
    th->grad_mode = (uint8_t)ctx->tracks;       // the caller's rules, not those inside forward
    int ok = tensor__update_allowed(th, ctx->fn->name, x, ctx->tracks);
    th->grad_mode = 0;
    if (ok && ctx->tracks && x->base && !(x->base->flags & TENSOR__CONTIGUOUS)) {
        tensor__fail(th, TENSOR_ERR_UNSUPPORTED, "%s: x %t is a view of a non-contiguous tensor",
                     ctx->fn->name, x);
        ok = 0;
    }
    if (!ok) { return th->error.code; }
    ctx->dirty |= 1u << i;
    tensor__bump(th, x->storage, ctx->fn->name);
    return 0;
}
TENSOR_API tensor_t *(tensor_grad_output)(tensor_function_ctx_t *ctx, int k) {
    int n = ctx && ctx->g ? ctx->g->node->nout : 0;
    if (!tensor__custom_index(ctx, "grad_output", k, n, 1)) { return TENSOR__POISON; }
    tensor__grad_t *g = ctx->g;
    if (!g->gy[k]) {
        const tensor__meta_t *m = &g->node->out[k];
        tensor_t *zeros = tensor__filled("zeros", m->dims, m->ndim, m->dtype, 0, NULL);
        if (zeros == TENSOR__POISON) { return zeros; }
        g->gy[k] = tensor__hold(zeros);         // the pass drops it with the others
    }
    return g->gy[k];
}
TENSOR_API const char *(tensor_grad_fn_name)(tensor_t *x) {
    if (!tensor__live(x) || !tensor__sync_needs_grad(tensor__self(), x) || !x->node) { return NULL; }
    tensor_function_ctx_t *c = (tensor_function_ctx_t *)x->node->custom;
    return c ? c->fn->name : x->node->row->name;
}
TENSOR_API void *(tensor_function_user)(tensor_function_ctx_t *ctx) { return ctx->user; }
TENSOR__FN void tensor__grad_custom(tensor__grad_t *g) {
    // its own: other threads may run it too
    tensor_function_ctx_t c = *(tensor_function_ctx_t *)g->node->custom;
    c.g = g;
    int code = c.fn->backward(&c, (tensor_grad_output)(&c, 0), g->gx, g->node->nin);
    if (code && !g->th->error.code) { tensor__fail(g->th, code, "%s: backward failed", c.fn->name); }
}
// Ends an inner scope; y (NULL = none) and the tensors of the list, if it owns them, go to the scope around.
TENSOR__FN void tensor__scope_hand(tensor__thread_t *th, tensor_scope_t s, tensor_t *y, tensor_t **list,
                                   int n) {
    if (!s.thread) { return; }
    for (int i = -1; i < n; i++) {
        tensor_t *t = i < 0 ? y : list[i];
        if (!t || t->state != TENSOR__LIVE || t->home != th || t->slot < s.mark) { continue; }
        th->stack[t->slot] = NULL;
        t->slot = -2;
    }
    (tensor_scope_end)(s);
    for (int i = -1; i < n; i++) {
        tensor_t *t = i < 0 ? y : list[i];
        if (!t || t->slot != -2) { continue; }
        tensor__enlist(th, t);                  // cannot fail: they left room
        tensor__unbase(t);
    }
}
// Which input a result is that forward changed in place, -1 = it is none.
TENSOR__FN int tensor__dirty_input(const tensor_function_ctx_t *c, const tensor_t *y) {
    for (int i = 0; i < c->n && i < 32; i++) {
        if ((c->dirty >> i & 1) && c->inputs[i] == y) { return i; }
    }
    return -1;
}
// Runs forward; its results are in c->out. 0 = failed, raised.
TENSOR__FN int tensor__custom_forward(tensor__thread_t *th, tensor_function_ctx_t *c) {
    tensor_scope_t s = tensor__scope_begin(th, 0);
    if (!s.thread) { return 0; }
    tensor_t *y = c->fn->forward(c, c->inputs, c->n);
    c->out[0] = y;
    uint32_t returned = 0;
    int ok = 1;
    for (int k = 0; k < c->nout && ok; k++) {
        y = c->out[k];
        if (!tensor__live(y)) {
            tensor__fail(th, TENSOR_ERR_POISONED, "%s: forward gave no tensor", c->fn->name);
            ok = 0;
            break;
        }
        int i = tensor__dirty_input(c, y), again = 0;
        for (int j = 0; j < TENSOR__MAX_IN; j++) {
            int from = c->saved[j].source;
            if (!c->saved[j].storage || c->saved[j].tensor != y || from < 0) { continue; }
            if (from == TENSOR__CONSTANT || from == i) { c->saved[j].source = -1 - k; }
        }
        if (i >= 0) { returned |= 1u << i; continue; }
        for (int j = 0; j < k; j++) { again |= c->out[j] == y; }
        // What forward did not make itself, an input or a captured tensor, gets a header of its own.
        if (again || y->home != th || y->slot < s.mark || y->base || TENSOR__ATOMIC_LOAD(&y->refs) != 1) {
            c->out[k] = (tensor_detach)(y);
        }
    }
    if (ok && returned != c->dirty) {
        tensor__fail(th, TENSOR_ERR_AUTOGRAD, "%s: an input marked as dirty is not among the results",
                     c->fn->name);
        ok = 0;
    }
    tensor__scope_hand(th, s, NULL, c->out, ok ? c->nout : 0);
    return ok && th->error.code == 0;
}
TENSOR_API int (tensor_apply_n)(const tensor_function_t *fn, void *user, tensor_t *const *inputs, int n,
                                tensor_t **outputs, int nout) {
    tensor__op_t o;
    tensor__thread_t *th = tensor__self();
    tensor_function_ctx_t *c = NULL;
    for (int k = 0; outputs && k < nout; k++) { outputs[k] = TENSOR__POISON; }
    TENSOR__REFUSE_CODE(!fn || !fn->forward || !fn->backward || n < 0 || (n && !inputs) || !outputs, OWNER,
                        "apply: fn, its forward, its backward, inputs or outputs is NULL");
    TENSOR__REFUSE_CODE(nout < 1 || nout > TENSOR__MAX_OUT, INDEX, "apply: %i results, 1..%i are supported",
                        nout, (int)TENSOR__MAX_OUT);
    if (tensor__begin(&o, TENSOR__ROW(CUSTOM), inputs, n)) {
        c = (tensor_function_ctx_t *)tensor__memory(th, sizeof *c);
    }
    if (!c) {
        if (fn->destroy) { fn->destroy(user); }
        return th->error.code;
    }
    c->fn = fn;
    c->user = user;
    c->inputs = o.in;
    c->n = n;
    c->nout = o.nout = nout;
    c->tracks = tensor__tracks(&o);
    int ok = tensor__custom_forward(th, c), given = 0;
    for (int k = 0; k < nout && ok; k++) { o.out[k] = c->out[k]; }
    tensor__node_t *node = ok && c->tracks ? tensor__node_make(&o, 0) : NULL;
    ok = ok && (node || !c->tracks);
    for (int k = 0; k < nout && ok; k++) {
        tensor_t *y = outputs[k] = c->out[k];
        int dirty = tensor__dirty_input(c, y) >= 0;
        if (!dirty) {
            y->op = fn->name;
            y->site = NULL;
        }
        if (!node || !tensor__is_float(y->dtype) || (c->constant >> k & 1)) { continue; }
        if (given++) { TENSOR__HOLD(&node->refs); }
        if (dirty) {
            ok = tensor__rehistory(th, y, node, k);
        } else {
            y->node = node;
            y->output = k;
        }
    }
    c->inputs = NULL;
    c->n = 0;
    if (node) { node->custom = c; } else { tensor__custom_free(th, c); }
    if (node && !given) { tensor__node_drop(th, node); }
    th->fresh = ok ? outputs[0] : NULL;
    return ok ? 0 : th->error.code;
}
TENSOR_API tensor_t *(tensor_apply)(const tensor_function_t *fn, void *user, tensor_t *const *inputs, int n) {
    tensor_t *y;
    return (tensor_apply_n)(fn, user, inputs, n, &y, 1) ? TENSOR__POISON : y;
}

// ------------------------------------------------------------------------------
// >>impl-engine                                    MARK: backward
//
// Nodes reached by a gradient wait in a heap by sequence number; the highest goes first, so every consumer of
// a value is done before its maker. Gradient slots belong to the pass, found by a small hash of the node:
// passes may nest and run in several threads over one graph. Rejected: counting dependencies first (a second
// walk of the graph); only a pass that asks for some inputs, or meets hooks, looks ahead.
// ------------------------------------------------------------------------------

// A number for each of some pointers: open addressing, at most half full. It belongs to who made it, so that
// passes in several threads may look at the same leaves and nodes.
typedef struct tensor__map_t { struct { const void *key; int64_t value; } *at; uint64_t mask, count; }
    tensor__map_t;
typedef struct tensor__slot_t { tensor__node_t *node; tensor_t *g[TENSOR__MAX_OUT]; } tensor__slot_t;
// A leaf with hooks: they see the sum of what arrives, when the last of the edges to it is done.
typedef struct tensor__hooked_t { tensor_t *leaf, *sum; int64_t waiting; } tensor__hooked_t;
typedef struct tensor__pass_t {
    tensor__slot_t *slots;              // heap order: by node->seq, highest first
    int32_t count, room;
    int32_t *table, mask, hashed;       // open addressing: slot index + 1; unused while few nodes wait
    struct { uint64_t seq; int32_t slot; } *heap;
    int32_t *unused, unused_count;      // free places in slots
    tensor_t *const *inputs;            // autograd_grad: what is asked for, else NULL
    tensor_t **found;
    // Of leaves: 1 + the first place in inputs, else 1 + the place in hooked. Of nodes on the way to inputs:
    // 1 + the first place in inputs of an output of theirs, or 0.
    tensor__map_t places;
    int32_t *more;                      // of each input: 1 + the next place of that leaf or node, or 0
    tensor__hooked_t *hooked;
    int64_t hooked_count, hooked_room;
    int ninputs, create, retain, anomaly;
} tensor__pass_t;

TENSOR__INLINE uint32_t tensor__hash(const void *p) {
    uint64_t u = (uint64_t)(uintptr_t)p >> 6;
    return (uint32_t)((u * 0x9E3779B97F4A7C15u) >> 32);
}
TENSOR__INLINE uint64_t tensor__map_place(const tensor__map_t *m, const void *key) {
    uint64_t h = tensor__hash(key) & m->mask;
    while (m->at[h].key && m->at[h].key != key) { h = (h + 1) & m->mask; }
    return h;
}
// The number of a pointer, -1 = it has none.
TENSOR__FN int64_t tensor__map_get(const tensor__map_t *m, const void *key) {
    uint64_t h = m->at ? tensor__map_place(m, key) : 0;
    return m->at && m->at[h].key ? m->at[h].value : -1;
}
// Room for so many pointers in all. 0 = out of memory, raised.
TENSOR__FN int tensor__map_room(tensor__thread_t *th, tensor__map_t *m, uint64_t count) {
    tensor__map_t more = *m;
    if (!more.mask) { more.mask = 7; }
    while (more.mask < 2 * count) { more.mask = 2 * more.mask + 1; }
    if (m->at && more.mask == m->mask) { return 1; }
    *(void **)&more.at = tensor__memory(th, (more.mask + 1) * sizeof *more.at);
    if (!more.at) { return 0; }
    for (uint64_t i = 0; m->at && i <= m->mask; i++) {
        if (m->at[i].key) { more.at[tensor__map_place(&more, m->at[i].key)] = m->at[i]; }
    }
    if (m->at) { tensor__memory_free(th, m->at); }
    *m = more;
    return 1;
}
// Where the number of a pointer stands, 0 if it had none. NULL = out of memory, raised.
TENSOR__FN int64_t *tensor__map_put(tensor__thread_t *th, tensor__map_t *m, const void *key) {
    if (2 * m->count >= m->mask && !tensor__map_room(th, m, 2 * m->count + 16)) { return NULL; }
    uint64_t h = tensor__map_place(m, key);
    m->count += !m->at[h].key;
    m->at[h].key = key;
    return &m->at[h].value;
}
enum { TENSOR__FEW = 8 };               // waiting nodes that are looked through one by one
// All waiting nodes into the table, which is empty.
TENSOR__FN void tensor__pass_hash(tensor__pass_t *p) {
    p->hashed = 1;
    for (int32_t i = 0; i < p->count; i++) {
        int32_t slot = p->heap[i].slot;
        uint32_t h = tensor__hash(p->slots[slot].node) & (uint32_t)p->mask;
        while (p->table[h]) { h = (h + 1) & (uint32_t)p->mask; }
        p->table[h] = slot + 1;
    }
}
TENSOR__FN int tensor__pass_grow(tensor__thread_t *th, tensor__pass_t *p) {
    int32_t room = p->room ? p->room * 2 : 64;
    uint64_t bytes = (uint64_t)room * (sizeof *p->slots + sizeof *p->heap + sizeof(int32_t) +
                                       2 * sizeof(int32_t));
    char *m = (char *)tensor__raw_or_release(th, bytes);
    TENSOR__REFUSE_AS(0, !m, OUT_OF_MEMORY, "backward: out of memory");
    void *old = p->slots;
    tensor__slot_t *slots = (tensor__slot_t *)(void *)m;
    if (p->room) { memcpy(slots, p->slots, (size_t)p->room * sizeof *slots); }
    p->slots = slots;
    m += (size_t)room * sizeof *slots;
    if (p->count) { memcpy(m, p->heap, (size_t)p->count * sizeof *p->heap); }
    *(void **)&p->heap = m;
    m += (size_t)room * sizeof *p->heap;
    p->table = (int32_t *)(void *)m;
    p->mask = 2 * room - 1;
    memset(p->table, 0, (size_t)(2 * room) * sizeof(int32_t));
    p->unused = p->table + 2 * room;
    p->unused_count = 0;
    for (int32_t i = room - 1; i >= p->room; i--) { p->unused[p->unused_count++] = i; }
    if (p->hashed) { tensor__pass_hash(p); }
    p->room = room;
    if (old) { tensor__raw_free(th->ctx, old); }
    return 1;
}
// The slot of a node, made and put into the heap if it has none. NULL = out of memory.
TENSOR__INLINE tensor__slot_t *tensor__pass_slot(tensor__thread_t *th, tensor__pass_t *p,
                                                tensor__node_t *node) {
    if (p->count == p->room && !tensor__pass_grow(th, p)) { return NULL; }
    uint32_t h = 0;
    if (!p->hashed) {
        for (int32_t i = 0; i < p->count; i++) {
            tensor__slot_t *s = &p->slots[p->heap[i].slot];
            if (s->node == node) { return s; }
        }
        if (p->count == TENSOR__FEW) { tensor__pass_hash(p); }
    }
    if (p->hashed) {
        h = tensor__hash(node) & (uint32_t)p->mask;
        while (p->table[h]) {
            tensor__slot_t *s = &p->slots[p->table[h] - 1];
            if (s->node == node) { return s; }
            h = (h + 1) & (uint32_t)p->mask;
        }
    }
    int32_t slot = p->unused[--p->unused_count];
    if (p->hashed) { p->table[h] = slot + 1; }
    tensor__slot_t *s = &p->slots[slot];
    s->node = node;
    TENSOR__HOLD(&node->refs);
    for (int i = 0; i < TENSOR__MAX_OUT; i++) { s->g[i] = NULL; }
    int32_t i = p->count++;
    while (i > 0 && p->heap[(i - 1) / 2].seq < node->seq) {
        p->heap[i] = p->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    p->heap[i].seq = node->seq;
    p->heap[i].slot = slot;
    return s;
}
// Takes the slot with the highest sequence number out of heap and table.
TENSOR__INLINE tensor__slot_t tensor__pass_pop(tensor__pass_t *p) {
    int32_t slot = p->heap[0].slot, n = --p->count, i = 0;
    uint64_t seq = p->heap[n].seq;
    int32_t moved = p->heap[n].slot;
    for (;;) {
        int32_t k = 2 * i + 1;
        if (k >= n) { break; }
        if (k + 1 < n && p->heap[k + 1].seq > p->heap[k].seq) { k++; }
        if (p->heap[k].seq <= seq) { break; }
        p->heap[i] = p->heap[k];
        i = k;
    }
    p->heap[i].seq = seq;
    p->heap[i].slot = moved;
    tensor__slot_t s = p->slots[slot];
    p->unused[p->unused_count++] = slot;
    if (!p->hashed) { return s; }
    p->hashed = n > 0;
    uint32_t mask = (uint32_t)p->mask, h = tensor__hash(s.node) & mask;
    while (p->table[h] != slot + 1) { h = (h + 1) & mask; }
    for (uint32_t j = h;;) {            // close the gap, so that searches still find what lies behind
        p->table[h] = 0;
        for (;;) {
            j = (j + 1) & mask;
            if (!p->table[j]) { return s; }
            uint32_t home = tensor__hash(p->slots[p->table[j] - 1].node) & mask;
            if (((j - home) & mask) >= ((j - h) & mask)) { break; }
        }
        p->table[h] = p->table[j];
        h = j;
    }
}

// Room for one more in a growing list of things of some bytes. 0 = out of memory, raised.
TENSOR__FN int tensor__list_room(tensor__thread_t *th, void **list, int64_t count, int64_t *room,
                                 size_t bytes) {
    if (count < *room) { return 1; }
    int64_t more = *room ? *room * 2 : 64;
    void *m = tensor__memory(th, (uint64_t)more * bytes);
    if (!m) { return 0; }
    if (*list) {
        memcpy(m, *list, (size_t)count * bytes);
        tensor__memory_free(th, *list);
    }
    *list = m;
    *room = more;
    return 1;
}
TENSOR__FN TENSOR__NOINLINE int tensor__reach(tensor__thread_t *th, tensor__pass_t *q, tensor__node_t *n,
                                              uint64_t since) {
    if (!n || (since && (n->seq <= since || n->home != th))) { return 1; }
    return tensor__pass_slot(th, q, n) != NULL;
}
// The nodes some tensors depend on, consumers first, to be freed with tensor__memory_free; since > 0: only
// those this thread made after that sequence number. Their number; -1 = out of memory, raised.
TENSOR__FN int64_t tensor__walk(tensor__thread_t *th, tensor_t *const *y, int n, uint64_t since,
                                tensor__node_t ***list) {
    tensor__pass_t q;
    memset(&q, 0, sizeof q);
    int64_t count = 0, room = 0;
    int ok = 1;
    void *nodes = NULL;
    for (int i = 0; i < n && ok; i++) { ok = tensor__reach(th, &q, y[i]->node, since); }
    while (q.count) {
        tensor__node_t *node = tensor__pass_pop(&q).node;
        ok = ok && tensor__list_room(th, &nodes, count, &room, sizeof node);
        if (ok) { ((tensor__node_t **)nodes)[count++] = node; }
        for (int i = 0; i < node->nin && ok; i++) { ok = tensor__reach(th, &q, node->edge[i].node, since); }
        tensor__node_drop(th, node);            // y holds it still
    }
    if (q.slots) { tensor__raw_free(th->ctx, q.slots); }
    if (!ok && nodes) { tensor__memory_free(th, nodes); nodes = NULL; }
    *list = (tensor__node_t **)nodes;
    return ok ? count : -1;
}
// Whether a gradient at this edge leads to what is asked for.
TENSOR__FN int tensor__wants(const tensor__pass_t *p, const tensor__edge_t *e) {
    const void *to = e->node ? (const void *)e->node : e->leaf;
    return to && tensor__map_get(&p->places, to) >= 0;
}
TENSOR__FN tensor__hooked_t *tensor__pass_hooked(tensor__thread_t *th, tensor__pass_t *p, tensor_t *leaf) {
    int64_t *i = tensor__map_put(th, &p->places, leaf);
    if (!i) { return NULL; }
    if (*i) { return &p->hooked[*i - 1]; }
    void *list = p->hooked;
    int ok = tensor__list_room(th, &list, p->hooked_count, &p->hooked_room, sizeof *p->hooked);
    p->hooked = (tensor__hooked_t *)list;
    if (!ok) { return NULL; }
    tensor__hooked_t *h = &p->hooked[p->hooked_count];
    *i = ++p->hooked_count;
    h->leaf = tensor__hold(leaf);
    h->sum = NULL;
    h->waiting = 0;
    return h;
}
// The places of what is asked for. 0 = failed, raised.
TENSOR__FN int tensor__plan_inputs(tensor__thread_t *th, tensor__pass_t *p, uint64_t nodes) {
    p->more = (int32_t *)tensor__memory(th, ((uint64_t)p->ninputs + 1) * sizeof *p->more);
    int ok = p->more && tensor__map_room(th, &p->places, nodes + (uint64_t)p->ninputs);
    for (int i = p->ninputs - 1; i >= 0 && ok; i--) {
        tensor_t *x = p->inputs[i];
        int64_t *first = tensor__map_put(th, &p->places, x->node ? (const void *)x->node : x);
        p->more[i] = (int32_t)*first;           // put cannot fail: there is room
        *first = i + 1;
    }
    return ok;
}
// Looks ahead: which nodes lead to p->inputs, or how many edges to each leaf with hooks. 0 = failed, raised.
TENSOR__FN int tensor__plan(tensor__thread_t *th, tensor__pass_t *p, tensor_t *const *outputs, int no) {
    tensor__node_t **list;
    int64_t count = tensor__walk(th, outputs, no, 0, &list);
    int ok = count >= 0 && (!p->inputs || tensor__plan_inputs(th, p, (uint64_t)count));
    for (int64_t k = count - 1; k >= 0 && ok; k--) {        // from the leaves on
        tensor__node_t *n = list[k];
        int wanted = 0;
        for (int i = 0; i < n->nin && ok; i++) {
            tensor__edge_t *e = &n->edge[i];
            if (p->inputs) {
                wanted |= tensor__wants(p, e);
            } else if (e->leaf && (e->leaf->flags & TENSOR__HOOKED)) {
                tensor__hooked_t *h = tensor__pass_hooked(th, p, e->leaf);
                ok = h != NULL;
                if (h) { h->waiting++; }
            }
        }
        ok = ok && (!wanted || tensor__map_put(th, &p->places, n));
    }
    if (list) { tensor__memory_free(th, list); }
    return ok;
}

// Whether nobody else can see t's data: it may be added to in place.
TENSOR__INLINE int tensor__alone(const tensor__thread_t *th, const tensor_t *t, int refs) {
    if (t->slot >= 0 && (t->home != th || t->slot < th->pass_mark)) { return 0; }      // the user's
    return TENSOR__ATOMIC_LOAD(&t->refs) == refs && !t->base && TENSOR__ATOMIC_LOAD(&t->storage->refs) == 1;
}
TENSOR__INLINE int tensor__exclusive(const tensor__thread_t *th, const tensor_t *t, int refs) {
    return (t->flags & TENSOR__CONTIGUOUS) && tensor__alone(th, t, refs);
}
// sum += g, where nothing is recorded. 0 = failed, raised.
TENSOR__FN int tensor__add_into(tensor__thread_t *th, tensor_t *sum, tensor_t *g) {
    const tensor__isa_t *isa = th->ctx->plain;
    int64_t n = sum->numel;
    if (isa && TENSOR__HOST_F32(sum) && TENSOR__HOST_F32(g) && (sum->flags & g->flags & TENSOR__CONTIGUOUS) &&
        g->numel == n && !(n & (isa->lanes - 1)) && n <= TENSOR__GRAIN) {
        const void *in[2];
        void *out[1];
        in[0] = out[0] = (float *)sum->storage->data + sum->offset;
        in[1] = (const float *)g->storage->data + g->offset;
        isa->forward[TENSOR_OP_ADD](in, out, NULL, n);
        tensor__bump(th, sum->storage, "backward");
        return 1;
    }
    tensor_t *const list[2] = {sum, g};
    return tensor__update(TENSOR_OP_ADD, list, 2, 0, 0, NULL, 0) != TENSOR__POISON;
}
TENSOR__FN TENSOR__NOINLINE int tensor__accumulate_more(tensor__thread_t *th, tensor_t **sum, tensor_t *g,
                                                        int create) {
    tensor_t *old = *sum;
    if (!create && tensor__exclusive(th, old, 1 + (old->slot >= 0)) && old->dtype == g->dtype && !old->node) {
        return tensor__add_into(th, old, g);
    }
    return tensor__replace(sum, (tensor_add)(old, g));
}
// *sum += g; *sum is a library reference: the first has that of the pass' scope, if it is in it. 0 = failed,
// raised.
TENSOR__INLINE int tensor__accumulate(tensor__thread_t *th, tensor_t **sum, tensor_t *g, int create) {
    if (*sum) { return tensor__accumulate_more(th, sum, g, create); }
    *sum = g;
    if (g->slot >= th->pass_mark && g->home == th) {
        th->stack[g->slot] = NULL;
        g->slot = -1;
    } else {
        TENSOR__HOLD(&g->refs);
    }
    return 1;
}
// a + b, of which one is by rows: both by rows, one behind the other, else in the shape of the leaf.
TENSOR__FN tensor_t *tensor__rows_add(tensor_t *leaf, tensor_t *a, tensor_t *b) {
    tensor_t *const list[4] = {a, b, a->grad, b->grad};
    int rows = tensor__rows_of(a) && tensor__rows_of(b);
    if (!rows) { return (tensor_add)(tensor__whole(leaf, a), tensor__whole(leaf, b)); }
    tensor_t *y = tensor_cat_n(list, 2, 0);
    if (y == TENSOR__POISON) { return y; }
    y->flags |= TENSOR__ROWS;
    return tensor__replace(&y->grad, tensor_cat_n(list + 2, 2, 0)) ? y : TENSOR__POISON;
}
// leaf.grad += g. A gradient nobody else sees is taken as it is.
TENSOR__FN int tensor__leaf_add(tensor__thread_t *th, tensor_t *leaf, tensor_t *g, int create) {
    tensor__spin(&leaf->lock);
    tensor_t *old = leaf->grad;
    if (!old) {
        if (create || (!tensor__exclusive(th, g, 1) && !tensor__rows_of(g))) { g = (tensor_clone)(g); }
        if (g != TENSOR__POISON && !g->site) { g->site = leaf->site; }
    } else if (tensor__rows_of(old) || tensor__rows_of(g)) {
        g = tensor__rows_add(leaf, old, g);
    } else if (create || old->node) {
        g = (tensor_add)(old, g);
    } else {
        g = tensor__add_into(th, old, g) ? old : TENSOR__POISON;
    }
    int ok = tensor__replace(&leaf->grad, g);
    tensor__unspin(&leaf->lock);
    return ok;
}

// A gradient in dtype and shape of its value: input i of `from` (NULL: the caller's). POISON = failed,
// raised.
TENSOR__FN TENSOR__NOINLINE tensor_t *tensor__fit(const tensor__node_t *from, int i, const tensor__meta_t *m,
                                                  tensor_t *g) {
    if (tensor__rows_of(g)) { return g; }
    int lead = g->ndim - m->ndim, fits = lead >= 0;
    for (int d = 0; fits && d < m->ndim; d++) { fits = m->dims[d] == 1 || m->dims[d] == g->dims[lead + d]; }
    TENSOR__REFUSE(!fits, SHAPE, "backward: %s gave a gradient %t for input %i, which is %n", !from ?
                   "the caller" : from->custom ? ((const tensor_function_ctx_t *)from->custom)->fn->name :
                   from->row->name, g, i, m->dims, (int)m->ndim);
    if (g->dtype != m->dtype) { g = (tensor_to)(g, (tensor_dtype_t)m->dtype); }
    return g == TENSOR__POISON ? g : tensor__sum_to(g, m->dims, m->ndim);
}
TENSOR__FN TENSOR__NOINLINE int tensor__deliver_leaf(tensor__thread_t *th, tensor__pass_t *p, tensor_t *leaf,
                                                     tensor_t *g) {
    if (p->inputs) {
        for (int64_t i = tensor__map_get(&p->places, leaf); i > 0; i = p->more[i - 1]) {
            if (!tensor__accumulate(th, &p->found[i - 1], g, p->create)) { return 0; }
        }
        return 1;
    }
    if (!(leaf->flags & TENSOR__REQUIRES_GRAD)) { return 1; }           // frozen since
    if (leaf->flags & TENSOR__HOOKED) {
        tensor__hooked_t *h = tensor__pass_hooked(th, p, leaf);
        return h && tensor__accumulate(th, &h->sum, g, p->create);
    }
    return tensor__leaf_add(th, leaf, g, p->create);
}
// A gradient arrives at an edge: to its node or leaf.
TENSOR__INLINE int tensor__deliver(tensor__thread_t *th, tensor__pass_t *p, tensor__node_t *node,
                                   int32_t output, tensor_t *leaf, const tensor__meta_t *m, tensor_t *g,
                                   const tensor__node_t *from, int i) {
    if (g->dtype != m->dtype || !tensor__same_dims(g->dims, g->ndim, m->dims, m->ndim)) {
        g = tensor__fit(from, i, m, g);
        if (g == TENSOR__POISON) { return 0; }
    }
    if (!node) { return tensor__deliver_leaf(th, p, leaf, g); }
    tensor__slot_t *s = tensor__pass_slot(th, p, node);
    return s && tensor__accumulate(th, &s->g[output], g, p->create);
}
// The gradient of a leaf with hooks is complete. 0 = failed, raised.
TENSOR__FN int tensor__leaf_done(tensor__thread_t *th, tensor__pass_t *p, tensor__hooked_t *h) {
    tensor_t *sum = h->sum, *leaf = h->leaf;
    if (!sum) { return 1; }
    h->sum = NULL;                      // h may move: hooks may run passes of their own, not this one
    int ok = tensor__run_hooks(th, tensor__leaf_extra(leaf), 0, &sum, leaf) &&
             tensor__leaf_add(th, leaf, sum, p->create);
    tensor__drop(sum);
    return ok && tensor__run_hooks(th, tensor__leaf_extra(leaf), -1, NULL, leaf);
}
// The gradients of n's outputs are complete. 1 = go on with n, 0 = nothing beyond it is asked for, -1 =
// failed, raised.
TENSOR__FN TENSOR__NOINLINE int tensor__arrived(tensor__thread_t *th, tensor__pass_t *p, tensor__slot_t *s) {
    tensor__node_t *n = s->node;
    int64_t first = p->inputs ? tensor__map_get(&p->places, n) : 0;
    int go = first == 0;                // none of them is asked for: what was on the way here goes on
    for (int k = 0; k < n->nout; k++) {
        if (!s->g[k]) { continue; }
        if (n->extra) {
            if (!tensor__run_hooks(th, n->extra, k, &s->g[k], NULL)) { return -1; }
            tensor_t *t = n->extra->retain[k];
            if (t && !tensor__leaf_add(th, t, s->g[k], p->create)) { return -1; }
        }
        for (int64_t i = first; i > 0; i = p->more[i - 1]) {
            if (p->inputs[i - 1]->output == k) { p->found[i - 1] = tensor__hold(s->g[k]); }
        }
    }
    for (int i = 0; i < n->nin && first > 0 && !go; i++) { go = tensor__wants(p, &n->edge[i]); }
    return go;
}
TENSOR__FN TENSOR__NOINLINE int tensor__no_nan(tensor__thread_t *th, tensor__grad_t *g, int i) {
    tensor__node_t *n = g->node;
    tensor_t *x = g->gx[i];
    if (!tensor__live(x) || !x->numel) { return 1; }
    int mode = th->grad_mode;
    th->grad_mode = 0;
    int nan = tensor_item(tensor_any(tensor_isnan(x))) != 0;
    th->grad_mode = (uint8_t)mode;
    tensor_function_ctx_t *c = (tensor_function_ctx_t *)n->custom;
    TENSOR__REFUSE_AS(0, nan, AUTOGRAD, "backward: %s%w made a NaN in the gradient of its input %i %t",
                      c ? c->fn->name : n->row->name, n->site, i, x);
    return 1;
}
TENSOR__FN int tensor__region_restore(tensor__thread_t *th, tensor__node_t *n);

// The gradient of a slice goes straight into the sum of what it was cut from, if there is one: splitting a
// tensor costs one tensor of zeros, not one a part. 1 = done, 0 = not so, -1 = failed, raised.
TENSOR__FN int tensor__slice_into(tensor__thread_t *th, tensor__pass_t *p, tensor__node_t *n, tensor_t *g) {
    const tensor__edge_t *e = &n->edge[0];
    if (n->row != TENSOR__ROW(SLICE) || p->create || p->inputs || p->anomaly || !e->node) { return 0; }
    tensor__slot_t *s = tensor__pass_slot(th, p, e->node);
    if (!s) { return -1; }
    tensor_t *sum = s->g[e->output];
    if (!sum || !tensor__alone(th, sum, 1 + (sum->slot >= 0)) || sum->node || sum->dtype != g->dtype ||
        ((sum->flags | g->flags) & TENSOR__ROWS)) { return 0; }
    const int64_t *i = n->p->i;
    tensor_t *part = tensor__slice(sum, (int)i[0], i[1], i[2], g->dims[i[0]]);
    return (tensor_add_)(part, g) == TENSOR__POISON ? -1 : 1;
}
// Runs one node: gradients of its outputs in, gradients of its inputs delivered. 0 = failed, raised.
TENSOR__FN int tensor__run_node(tensor__thread_t *th, tensor__pass_t *p, tensor__slot_t *s) {
    tensor__node_t *n = s->node;
    if (n->extra || p->inputs) {
        int go = tensor__arrived(th, p, s);
        if (go <= 0) { return go == 0; }
    }
    if (n->extra && n->extra->region && !tensor__region_restore(th, n)) { return 0; }
    if (n->used == 3 && !tensor__unpack_saved(n)) { return 0; }
    TENSOR__REFUSE_AS(0, n->used && n->used != 3, AUTOGRAD,
                      "backward: the values saved by %s%w were freed by an earlier backward; pass "
                      "TENSOR_RETAIN_GRAPH the first time", n->row->name, n->site);
    if (!n->row->grad) { return 1; }
    int there = tensor__slice_into(th, p, n, s->g[0]);
    if (there) { return there > 0; }
    tensor_t *gx_small[TENSOR__MAX_IN];
    tensor_t **gx = gx_small;
    if (n->nin > TENSOR__MAX_IN) {
        gx = (tensor_t **)tensor__memory(th, (uint64_t)n->nin * sizeof *gx);
        if (!gx) { return 0; }
    } else {
        memset(gx_small, 0, sizeof gx_small);
    }
    tensor__grad_t g;
    g.th = th;
    g.node = n;
    g.gy = s->g;
    g.gx = gx;
    g.p = n->p;
    g.create = p->create;
    g.pass = p->inputs ? p : NULL;
    memset(g.value, 0, sizeof g.value);
    uint8_t device = th->device;
    for (int i = 0; i < n->nout; i++) { if (s->g[i]) { th->device = s->g[i]->device; } }
    n->row->grad(&g);
    th->device = device;
    int ok = th->error.code == 0;
    // one tensor for two inputs: sums must not meet
    for (int i = 1; i < n->nin && n->nin <= TENSOR__MAX_IN; i++) {
        for (int k = 0; k < i; k++) { if (gx[i] && gx[i] == gx[k] && gx[i] != s->g[0]) { gx[i] =
            (tensor_clone)(gx[i]); } }
    }
    for (int i = 0; i < n->nin && ok; i++) {
        tensor__edge_t *e = &n->edge[i];
        if (gx[i] && tensor__needs(&g, i)) {
            if (!tensor__live(gx[i])) {
                tensor__fail(th, TENSOR_ERR_INTERNAL, "backward: %s gave no gradient for input %i",
                             n->row->name, i);
                ok = 0;
                break;
            }
            ok = (!p->anomaly || tensor__no_nan(th, &g, i)) &&
                 tensor__deliver(th, p, e->node, e->output, e->leaf, &n->in[i], gx[i], n, i);
        }
        if (p->hooked_count && ok && e->leaf && (e->leaf->flags & TENSOR__HOOKED)) {
            tensor__hooked_t *h = tensor__pass_hooked(th, p, e->leaf);
            ok = h && (--h->waiting != 0 || tensor__leaf_done(th, p, h));
        }
    }
    if (gx != gx_small) { tensor__memory_free(th, gx); }
    if (!n->nsaved && !n->custom) { return ok; }    // a view or an addition may run again, as in PyTorch
    if (!p->retain) {
        if (n->used == 3) { tensor__packed_drop(th, n->extra); }
        tensor__saved_drop(th, n);
        if (n->custom) { tensor__custom_drop(th, n->custom); }
        n->used = 1;
    } else if (n->used == 3) {
        for (int i = 0; i < n->nsaved; i++) {       // in their packed form again
            if (!n->extra->packed[i] || !n->saved[i].storage) { continue; }
            tensor__storage_drop(th, n->saved[i].storage);
            n->saved[i].storage = NULL;
        }
    }
    return ok;
}

TENSOR__FN int tensor__run(tensor__thread_t *th, tensor_t *const *outputs, int no, tensor_t *const *grads,
                           tensor_t *const *inputs, int ni, tensor_t **found, int flags, const char *op) {
    for (int i = 0; i < no; i++) {
        tensor_t *y = outputs[i], *g = grads ? grads[i] : NULL;
        if (!TENSOR__USABLE(op, "output", y)) { return th->error.code; }
        TENSOR__REFUSE_CODE(!tensor__sync_needs_grad(th, y), AUTOGRAD,
                            "%s: %t made by %s%w does not require grad and has no graph%s", op, y, y->op ?
                            y->op : "?", y->site, th->grad_mode ? "" :
                            "; this thread records nothing now: a no_grad scope is open");
        TENSOR__REFUSE_CODE(!g && y->numel != 1, AUTOGRAD,
                            "%s: a gradient to start from is needed for %t (only one element has the default "
                            "1)", op, y);
        if (g && !TENSOR__USABLE(op, "grad", g)) { return th->error.code; }
        TENSOR__REFUSE_CODE(g && !tensor__same_shape(g, y), SHAPE,
                            "%s: grad %t has not the shape of the output %t", op, g, y);
    }
    for (int i = 0; i < ni; i++) {
        if (!TENSOR__USABLE(op, "input", inputs[i])) { return th->error.code; }
        TENSOR__REFUSE_CODE(!tensor__sync_needs_grad(th, inputs[i]), AUTOGRAD,
                            "%s: input %i %t does not require grad", op, i, inputs[i]);
    }
    tensor__pass_t local, *p = th->pass;
    if (p) { th->pass = NULL; } else { p = &local; memset(p, 0, sizeof *p); }
    p->create = (flags & TENSOR_CREATE_GRAPH) != 0;
    p->retain = p->create || (flags & TENSOR_RETAIN_GRAPH) != 0;
    p->inputs = inputs;
    p->found = found;
    p->ninputs = ni;
    memset(&p->places, 0, sizeof p->places);
    p->more = NULL;
    p->hooked = NULL;
    p->hooked_count = p->hooked_room = 0;
    p->anomaly = th->modes & TENSOR__ANOMALY;
    int32_t depth = th->depth;
    tensor_scope_t scope = tensor__scope_begin(th, p->create);
    int ok = scope.thread != NULL;
    if (ok && (ni || TENSOR__ATOMIC_LOAD(&th->ctx->hook_count))) { ok = tensor__plan(th, p, outputs, no); }
    int64_t mark = th->top, outer_mark = th->pass_mark;
    th->pass_mark = mark;
    for (int i = 0; i < no && ok; i++) {
        tensor_t *y = outputs[i], *g = grads ? grads[i] : NULL;
        if (!g) { g = tensor__filled("ones", y->dims, y->ndim, y->dtype, 1, y); }
        tensor__meta_t m;
        m.dims = y->dims;
        m.ndim = y->ndim;
        m.dtype = y->dtype;
        ok = g != TENSOR__POISON && tensor__deliver(th, p, y->node, y->output, y, &m, g, NULL, i);
    }
    while (p->count) {
        tensor__slot_t s = tensor__pass_pop(p);
        if (ok) { ok = tensor__run_node(th, p, &s); }
        if (th->top > mark) { tensor__pop(th, mark); }
        for (int k = 0; k < s.node->nout; k++) { if (s.g[k]) { tensor__drop(s.g[k]); } }
        tensor__node_drop(th, s.node);
    }
    for (int i = 0; i < ni; i++) {              // the hooks of leaves that were asked for
        if (!ok || inputs[i]->node || !found[i] || !(inputs[i]->flags & TENSOR__HOOKED)) { continue; }
        int64_t same = tensor__map_get(&p->places, inputs[i]) - 1;
        if (same < 0 || same == i) {
            ok = tensor__run_hooks(th, tensor__leaf_extra(inputs[i]), 0, &found[i], NULL);
        } else {
            tensor__drop(found[i]);
            found[i] = tensor__hold(found[same]);
        }
    }
    for (int64_t i = 0; i < p->hooked_count; i++) { // those an edge of which got no gradient
        if (ok) { ok = tensor__leaf_done(th, p, &p->hooked[i]); }
        if (p->hooked[i].sum) { tensor__drop(p->hooked[i].sum); }
        tensor__drop(p->hooked[i].leaf);
    }
    if (p->hooked) { tensor__memory_free(th, p->hooked); }
    if (p->more) { tensor__memory_free(th, p->more); }
    if (p->places.at) { tensor__memory_free(th, p->places.at); }
    th->pass_mark = outer_mark;
    th->written = NULL;
    th->fresh = NULL;
    if (scope.thread) {
        tensor__pop(th, mark);
        tensor__scope_restore(th, depth);
    }
    if (p == &local) {      // keep the memory for the next pass
        tensor__pass_t *kept = (tensor__pass_t *)tensor__raw_alloc(th->ctx, sizeof *p);
        if (kept) {
            *kept = local;
            p = kept;
        } else if (local.slots) {
            tensor__raw_free(th->ctx, local.slots);
        }
    }
    if (p != &local) {
        if (!th->pass) {
            th->pass = p;
        } else {
            if (p->slots) { tensor__raw_free(th->ctx, p->slots); }
            tensor__raw_free(th->ctx, p);
        }
    }
    return ok ? 0 : th->error.code ? th->error.code : TENSOR_ERR_INTERNAL;
}

TENSOR_API int (tensor_backward)(tensor_t *loss) {
    return tensor__run(tensor__self(), &loss, 1, NULL, NULL, 0, NULL, 0, "backward");
}
TENSOR_API int (tensor_backward_with)(tensor_t *y, tensor_t *grad, int flags) {
    return tensor__run(tensor__self(), &y, 1, &grad, NULL, 0, NULL, flags, "backward");
}
TENSOR__COLD
TENSOR_API int (tensor_autograd_grad)(tensor_t *const *outputs, int no, tensor_t *const *grad_outputs,
                                      tensor_t *const *inputs, int ni, tensor_t **gradients, int flags) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(no < 0 || ni < 0 || (no && !outputs) || (ni && (!inputs || !gradients)), OWNER,
                        "autograd_grad: outputs, inputs or gradients is NULL");
    TENSOR__REFUSE_CODE(!ni, AUTOGRAD, "autograd_grad: no inputs; tensor_backward fills the .grad of leaves");
    for (int i = 0; i < ni; i++) { gradients[i] = NULL; }
    int code = tensor__run(th, outputs, no, grad_outputs, inputs, ni, gradients, flags, "autograd_grad");
    for (int i = 0; i < ni && !code && !(flags & TENSOR_ALLOW_UNUSED); i++) {
        if (gradients[i]) { continue; }
        tensor__fail(th, TENSOR_ERR_AUTOGRAD, "autograd_grad: input %i %t was not used to make the outputs; "
                     "TENSOR_ALLOW_UNUSED gives NULL instead", i, inputs[i]);
        code = TENSOR_ERR_AUTOGRAD;
    }
    for (int i = 0; i < ni; i++) {      // each is a library reference of the pass: it becomes the scope's
        tensor_t *t = gradients[i];
        if (code) {
            if (t) { tensor__drop(t); }
            gradients[i] = TENSOR__POISON;
            continue;
        }
        if (!t) { continue; }
        if (t->slot >= 0 && t->home == th) {
            tensor__drop(t);
        } else if (t->home != th || !tensor__enlist(th, t)) {
            gradients[i] = tensor__alias(th, t->op, t, t->dims, t->strides, t->ndim, t->offset);
            if (gradients[i] && t->node) {
                TENSOR__HOLD(&t->node->refs);
                gradients[i]->node = t->node;
                gradients[i]->output = t->output;
            }
            tensor__drop(t);
            if (!gradients[i]) { gradients[i] = TENSOR__POISON; }
        }
    }
    return code;
}

// ---- checkpoint ----

// The nodes that fn made: their saved values are dropped at once, and taken from the nodes that fn makes when
// it is run again. Rejected: one node for the whole of fn (no autograd_grad, no second derivatives, captured
// parameters need a pass inside the pass).
typedef struct tensor__region_t {
    tensor__count_t refs;               // nodes alive, and who works on it
    tensor__count_t lock;               // of node, of what the nodes saved while used == 2, and of worker
    tensor__thread_t *worker;           // who runs fn again, or NULL
    tensor_fn_t fn;
    void *user;
    tensor_generator_t rng;
    int n;
    int64_t count;
    tensor_t **inputs;                  // detached; their versions
    uint32_t *versions;
    tensor__node_t **node;              // in the order of tensor__walk; NULL = freed, or another checkpoint's
} tensor__region_t;

TENSOR__FN void tensor__region_leave(tensor__thread_t *th, tensor__region_t *r, int32_t index) {
    if (index >= 0) {
        tensor__spin(&r->lock);
        r->node[index] = NULL;
        tensor__unspin(&r->lock);
    }
    if (!TENSOR__DROP(&r->refs)) { return; }
    for (int i = 0; i < r->n; i++) { tensor__drop(r->inputs[i]); }
    tensor__memory_free(th, r);
}
// An input as a leaf of its own, in the innermost scope.
TENSOR__FN tensor_t *tensor__as_leaf(tensor_t *x, int requires_grad) {
    tensor_t *t = (tensor_detach)(x);
    if (t != TENSOR__POISON && requires_grad) { t->flags = (uint8_t)(t->flags | TENSOR__REQUIRES_GRAD); }
    return t;
}
// The storages that something besides the nodes of a list holds for as long as they live: leaves, inputs.
// 0 = out of memory, raised.
TENSOR__FN int tensor__held_outside(tensor__thread_t *th, const tensor__region_t *r,
                                    tensor__node_t *const *list, tensor__map_t *held) {
    for (int i = 0; i < r->n; i++) {
        if (!tensor__map_put(th, held, r->inputs[i]->storage)) { return 0; }
    }
    for (int64_t k = 0; k < r->count; k++) {
        for (int i = 0; i < list[k]->nin; i++) {
            const tensor_t *leaf = list[k]->edge[i].leaf;
            if (leaf && !tensor__map_put(th, held, leaf->storage)) { return 0; }
        }
    }
    return 1;
}
TENSOR_API tensor_t *(tensor_checkpoint)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE(!fn || n < 0 || (n && !inputs), OWNER, "checkpoint: fn or inputs is NULL");
    for (int i = 0; i < n; i++) {
        if (!TENSOR__USABLE("checkpoint", "inputs", inputs[i])) { return TENSOR__POISON; }
        if (tensor__sync_needs_grad(th, inputs[i]) && inputs[i]->node && inputs[i]->node->seq > th->seq) {
            th->seq = inputs[i]->node->seq;
        }
    }
    uint64_t since = th->seq ? th->seq : (th->seq = 1);
    tensor_generator_t rng = th->rng;
    tensor_scope_t s = tensor__scope_begin(th, th->grad_mode);
    tensor_t *y = fn(inputs, n, user);
    if (!y) { y = tensor__fail(th, TENSOR_ERR_OWNER, "checkpoint: fn gave no tensor"); }
    y = s.thread ? (tensor_scope_return)(s, y) : TENSOR__POISON;
    if (!tensor__live(y) || !tensor__sync_needs_grad(th, y)) { return y; }
    tensor__node_t **list;
    int64_t count = tensor__walk(th, &y, 1, since, &list);
    if (count < 0) { return TENSOR__POISON; }
    tensor__region_t *r = (tensor__region_t *)tensor__memory(th, sizeof *r +
        (uint64_t)count * sizeof *r->node + (uint64_t)n * (sizeof *r->inputs + sizeof *r->versions));
    if (!r) {
        if (list) { tensor__memory_free(th, list); }
        return TENSOR__POISON;
    }
    r->refs = 1;
    r->fn = fn;
    r->user = user;
    r->rng = rng;
    r->count = count;
    r->node = (tensor__node_t **)(void *)(r + 1);
    r->inputs = (tensor_t **)(void *)(r->node + count);
    r->versions = (uint32_t *)(void *)(r->inputs + n);
    int ok = 1;
    for (; r->n < n && ok; r->n++) {            // library references only
        tensor_t *x = tensor__as_leaf(inputs[r->n], tensor__needs_grad(inputs[r->n]));
        ok = x != TENSOR__POISON;
        r->inputs[r->n] = tensor__hold(x);
        r->versions[r->n] = ok ? x->storage->version : 0;
        (tensor_free)(x);
    }
    tensor__map_t held;
    memset(&held, 0, sizeof held);
    ok = ok && tensor__held_outside(th, r, list, &held);
    for (int64_t k = 0; k < count && ok; k++) {
        tensor__node_t *m = list[k];
        if (m->used || (!m->nsaved && !m->custom)) { continue; }        // used: a checkpoint inside fn
        if (!tensor__node_extra(th, m)) { ok = 0; break; }
        for (int i = 0; i < m->nsaved; i++) {
            tensor__storage_t *kept = m->saved[i].storage;
            if (!kept || tensor__map_get(&held, kept) >= 0) { continue; }
            m->saved[i].storage = NULL;
            tensor__storage_drop(th, kept);
        }
        if (m->custom) { tensor__custom_drop(th, m->custom); }
        m->used = 2;
        m->extra->region = r;
        m->extra->index = (int32_t)k;
        TENSOR__HOLD(&r->refs);
        r->node[k] = m;
    }
    if (held.at) { tensor__memory_free(th, held.at); }
    if (list) { tensor__memory_free(th, list); }
    tensor__region_leave(th, r, -1);
    return ok ? th->fresh = y : TENSOR__POISON;
}
// Takes what m saved. 0 = it is not the operation n was.
TENSOR__FN int tensor__region_take(tensor__node_t *n, tensor__node_t *m) {
    int same = n->row == m->row && n->nin == m->nin && n->nsaved == m->nsaved && !n->custom == !m->custom;
    for (int i = 0; i < n->nsaved && same; i++) {
        const tensor__saved_t *v = &n->saved[i], *w = &m->saved[i];
        same = v->is_immediate == w->is_immediate;
        if (same && !v->is_immediate && w->storage) {
            same = v->ndim == w->ndim && v->dtype == w->dtype &&
                   !memcmp(v->dims, w->dims, v->ndim * sizeof *v->dims) &&
                   !memcmp(v->strides, w->strides, v->ndim * sizeof *v->strides);
        }
    }
    TENSOR__REFUSE_AS(0, !same, AUTOGRAD, "checkpoint: fn does other operations when it is run again: %s "
                      "where %s was", m->row->name, n->row->name);
    for (int i = 0; i < n->nsaved; i++) {
        tensor__saved_t *v = &n->saved[i], *w = &m->saved[i];
        if (v->is_immediate || v->storage || !w->storage) { continue; }
        v->storage = w->storage;
        v->offset = w->offset;
        v->version = w->version;
        w->storage = NULL;
    }
    void *custom = n->custom;
    n->custom = m->custom;
    m->custom = custom;
    n->used = 0;
    return 1;
}
// Runs fn again for the saved values of its nodes. 0 = failed, raised.
TENSOR__FN int tensor__region_rerun(tensor__thread_t *th, tensor__region_t *r) {
    for (int i = 0; i < r->n; i++) {
        const tensor__storage_t *s = r->inputs[i]->storage;
        TENSOR__REFUSE_AS(0, s->version != r->versions[i], AUTOGRAD,
                          "checkpoint: input %i %t was changed in place by %s%w after the forward pass", i,
                          r->inputs[i], s->write_op ? s->write_op : "?", s->write_site);
    }
    tensor_t **in = (tensor_t **)tensor__memory(th, ((uint64_t)r->n + 1) * sizeof *in);
    if (!in) { return 0; }
    tensor_scope_t s = tensor__scope_begin(th, 1);
    tensor_generator_t rng = th->rng;
    uint64_t since = th->seq;
    tensor__node_t **list = NULL;
    TENSOR__HOLD(&r->refs);
    th->rng = r->rng;
    th->modes &= (uint8_t)~TENSOR__PACKING;
    for (int i = 0; i < r->n; i++) {
        in[i] = tensor__as_leaf(r->inputs[i], r->inputs[i]->flags & TENSOR__REQUIRES_GRAD);
    }
    tensor_t *y = s.thread ? r->fn(in, r->n, r->user) : NULL;
    th->rng = rng;
    int64_t count = tensor__live(y) ? tensor__walk(th, &y, 1, since, &list) : -1;
    int ok = count == r->count;
    if (!ok) {
        tensor__fail(th, TENSOR_ERR_AUTOGRAD, count < 0 ?
                     "checkpoint: fn gave no tensor when it was run again" :
                     "checkpoint: fn does %d operations when it is run again, %d at first", count, r->count);
    }
    tensor__spin(&r->lock);
    for (int64_t k = 0; k < count && ok; k++) {
        if (r->node[k] && r->node[k]->used == 2) { ok = tensor__region_take(r->node[k], list[k]); }
    }
    tensor__unspin(&r->lock);
    if (list) { tensor__memory_free(th, list); }
    tensor__memory_free(th, in);
    if (s.thread) { (tensor_scope_end)(s); }
    tensor__region_leave(th, r, -1);
    return ok;
}
// Makes what n saved. A pass in another thread may want the same: it waits, so that fn runs in one thread at
// a time and once. 0 = failed, raised.
TENSOR__FN int tensor__region_restore(tensor__thread_t *th, tensor__node_t *n) {
    tensor__region_t *r = n->extra->region;
    tensor__spin(&r->lock);
    while (n->used == 2 && r->worker && r->worker != th) {
        tensor__unspin(&r->lock);
        TENSOR__YIELD();
        tensor__spin(&r->lock);
    }
    int missing = n->used == 2, inside = r->worker == th;
    if (missing && !inside) { r->worker = th; }
    tensor__unspin(&r->lock);
    if (!missing) { return 1; }
    TENSOR__REFUSE_AS(0, inside, AUTOGRAD, "checkpoint: fn runs backward through its own result");
    int ok = tensor__region_rerun(th, r);
    tensor__spin(&r->lock);
    r->worker = NULL;
    tensor__unspin(&r->lock);
    return ok;
}

// ---- vjp, jvp, jacobian, hessian ----

// Seeds times d outs / d x: a tensor for each x, zeros where nothing depends on it; NULL for x that is NULL
// or wants no gradient. outs may be NULL or without graph. 0 = failed, raised.
TENSOR__FN int tensor__pull(tensor__thread_t *th, tensor_t *const *outs, tensor_t *const *seeds, int m,
                            tensor_t *const *x, int n, tensor_t **results, int flags) {
    tensor_t **o = (tensor_t **)tensor__memory(th, 2 * ((uint64_t)m + (uint64_t)n + 1) * sizeof *o);
    if (!o) { return 0; }
    tensor_t **v = o + m, **want = v + m, **got = want + n;
    int no = 0, ni = 0, ok = 1;
    for (int i = 0; i < m; i++) {
        if (!outs[i] || !tensor__sync_needs_grad(th, outs[i])) { continue; }
        v[no] = seeds ? seeds[i] : NULL;
        o[no++] = outs[i];
    }
    for (int i = 0; i < n; i++) { if (x[i] && tensor__sync_needs_grad(th, x[i])) { want[ni++] = x[i]; } }
    if (no && ni) { ok = !(tensor_autograd_grad)(o, no, v, want, ni, got, flags | TENSOR_ALLOW_UNUSED); }
    for (int i = 0, k = 0; i < n && ok; i++) {
        results[i] = NULL;
        if (!x[i] || !tensor__needs_grad(x[i])) { continue; }
        results[i] = got[k] ? got[k] : (tensor_zeros_like)(x[i]);
        k++;
        ok = results[i] != TENSOR__POISON;
    }
    tensor__memory_free(th, o);
    return ok;
}
// d outs / d x times v, as the derivative by u of what pulls u back.
TENSOR__FN int tensor__push(tensor__thread_t *th, tensor_t *const *outs, int m, tensor_t *const *x, int n,
                            tensor_t *const *v, tensor_t **results, int flags) {
    tensor_t **u = (tensor_t **)tensor__memory(th, ((uint64_t)m + (uint64_t)n + 1) * sizeof *u), **w = u + m;
    if (!u) { return 0; }
    int ok = 1;
    for (int i = 0; i < m && ok; i++) {
        if (!outs[i]) { continue; }
        u[i] = (tensor_zeros_like)(outs[i]);
        ok = u[i] != TENSOR__POISON;
        if (ok) { u[i]->flags = (uint8_t)(u[i]->flags | TENSOR__REQUIRES_GRAD); }
    }
    ok = ok && tensor__pull(th, outs, u, m, x, n, w, TENSOR_CREATE_GRAPH) &&
         tensor__pull(th, w, v, n, u, m, results, flags);
    tensor__memory_free(th, u);
    return ok;
}
TENSOR__FN int tensor__jacobian_of(tensor__thread_t *th, tensor_t *y, tensor_t *const *x, int n,
                                   tensor_t **results, int flags) {
    for (int i = 0; i < n; i++) { results[i] = NULL; }
    if (!y) { return 1; }
    int64_t rows = y->numel;
    uint64_t places = ((uint64_t)rows + 1) * ((uint64_t)n + 1);
    tensor_t **part = (tensor_t **)tensor__memory(th, places * sizeof *part), **list = part + n;
    int ok = part != NULL;
    for (int64_t k = 0; k < rows && ok; k++) {
        tensor_t *e = (tensor_zeros_n)(&rows, 1, (tensor_dtype_t)y->dtype);
        (tensor_fill_)((tensor_select)(e, 0, k), 1);
        e = (tensor_reshape_n)(e, y->dims, y->ndim);
        ok = tensor__pull(th, &y, &e, 1, x, n, part, flags | TENSOR_RETAIN_GRAPH);
        for (int i = 0; i < n && ok; i++) { list[i * rows + k] = part[i]; }
    }
    for (int i = 0; i < n && ok; i++) {
        int64_t dims[2 * TENSOR_MAX_DIMS];
        int nd = y->ndim + (x[i] ? x[i]->ndim : 0);
        if (!x[i] || !tensor__needs_grad(x[i])) { continue; }
        memcpy(dims, y->dims, (size_t)y->ndim * sizeof *dims);
        memcpy(dims + y->ndim, x[i]->dims, (size_t)x[i]->ndim * sizeof *dims);
        results[i] = !rows || nd > TENSOR_MAX_DIMS ? (tensor_zeros_n)(dims, nd, (tensor_dtype_t)x[i]->dtype) :
            (tensor_reshape_n)((tensor_stack_n)(list + i * rows, (int)rows, 0), dims, nd);
        ok = results[i] != TENSOR__POISON;
    }
    if (part) { tensor__memory_free(th, part); }
    return ok;
}

// What all of them begin and end with: leaves of their own for fn (under CREATE_GRAPH views that belong to
// the inputs' graph), fn's value, gradients where those are wanted; the results go to the scope around.
typedef struct tensor__calculus_t { tensor__thread_t *th; tensor_scope_t s; tensor_t **x, **g, *y;
    } tensor__calculus_t;
TENSOR__FN int tensor__calculus(tensor__calculus_t *c, const char *op, tensor_fn_t fn, void *user,
                                tensor_t *const *inputs, int n, int given, int flags) {
    tensor__thread_t *th = c->th = tensor__self();
    c->x = NULL;
    c->s.thread = NULL;
    TENSOR__REFUSE_AS(0, !fn || n < 0 || (n && !inputs) || !given, OWNER,
                      "%s: fn, inputs, v or results is NULL", op);
    c->s = tensor__scope_begin(th, 1);
    if (c->s.thread) { c->x = (tensor_t **)tensor__memory(th, 2 * ((uint64_t)n + 1) * sizeof *c->x); }
    if (!c->x) { return 0; }
    c->g = c->x + n;
    for (int i = 0; i < n; i++) {
        tensor_t *x = inputs[i];
        if (!TENSOR__USABLE(op, "inputs", x)) { return 0; }
        int joins = (flags & TENSOR_CREATE_GRAPH) && tensor__sync_needs_grad(th, x);
        c->x[i] = joins ? (tensor_reshape_n)(x, x->dims, x->ndim) :
            tensor__as_leaf(x, tensor__is_float(x->dtype));
        if (c->x[i] == TENSOR__POISON) { return 0; }
    }
    c->y = fn(c->x, n, user);
    return TENSOR__USABLE(op, "the result of fn", c->y);
}
TENSOR__FN tensor_t *tensor__calculus_end(tensor__calculus_t *c, int ok, tensor_t **results, int64_t n,
                                          int flags) {
    tensor_t *y = ok ? c->y : TENSOR__POISON;
    int keep = (flags & TENSOR_CREATE_GRAPH) != 0;
    for (int64_t i = 0; results && i < n; i++) {
        if (!ok) { results[i] = TENSOR__POISON; }
        if (results[i] && ok && !keep) { results[i] = (tensor_detach)(results[i]); }
    }
    if (ok && !keep) { y = (tensor_detach)(y); }
    if (c->x) { tensor__memory_free(c->th, c->x); }
    tensor__scope_hand(c->th, c->s, y, results, results ? (int)n : 0);
    return c->th->fresh = y;
}
TENSOR_API tensor_t *(tensor_vjp)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, tensor_t *v,
                                  tensor_t **vjp, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "vjp", fn, user, inputs, n, vjp || !n, flags) &&
             tensor__pull(c.th, &c.y, &v, 1, c.x, n, vjp, flags);
    return tensor__calculus_end(&c, ok, vjp, n, flags);
}
TENSOR_API tensor_t *(tensor_jvp)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                  tensor_t *const *v, tensor_t **jvp, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "jvp", fn, user, inputs, n, jvp && (v || !n), flags) &&
             tensor__push(c.th, &c.y, 1, c.x, n, v, jvp, flags);
    return tensor__calculus_end(&c, ok, jvp, 1, flags);
}
TENSOR_API int (tensor_jacobian)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                 tensor_t **jacobian, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "jacobian", fn, user, inputs, n, jacobian || !n, flags) &&
             tensor__jacobian_of(c.th, c.y, c.x, n, jacobian, flags);
    return tensor__calculus_end(&c, ok, jacobian, n, flags) == TENSOR__POISON ? c.th->error.code : 0;
}
TENSOR_API int (tensor_hessian)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                tensor_t **hessian, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "hessian", fn, user, inputs, n, hessian || !n, flags) &&
             tensor__pull(c.th, &c.y, NULL, 1, c.x, n, c.g, TENSOR_CREATE_GRAPH);
    for (int i = 0; i < n && ok; i++) {
        ok = tensor__jacobian_of(c.th, c.g[i], c.x, n, hessian + (int64_t)i * n, flags);
    }
    return tensor__calculus_end(&c, ok, hessian, (int64_t)n * n, flags) == TENSOR__POISON ?
        c.th->error.code : 0;
}
TENSOR_API tensor_t *(tensor_hvp)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                  tensor_t *const *v, tensor_t **hvp, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "hvp", fn, user, inputs, n, (hvp && v) || !n, flags) &&
             tensor__pull(c.th, &c.y, NULL, 1, c.x, n, c.g, TENSOR_CREATE_GRAPH) &&
             tensor__push(c.th, c.g, n, c.x, n, v, hvp, flags);
    return tensor__calculus_end(&c, ok, hvp, n, flags);
}
TENSOR_API tensor_t *(tensor_vhp)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n,
                                  tensor_t *const *v, tensor_t **vhp, int flags) {
    tensor__calculus_t c;
    int ok = tensor__calculus(&c, "vhp", fn, user, inputs, n, (vhp && v) || !n, flags) &&
             tensor__pull(c.th, &c.y, NULL, 1, c.x, n, c.g, TENSOR_CREATE_GRAPH) &&
             tensor__pull(c.th, c.g, v, n, c.x, n, vhp, flags);
    return tensor__calculus_end(&c, ok, vhp, n, flags);
}

// ---- gradcheck ----

// Sum of fn's result times fixed weights, so that every output element counts: one number to differentiate.
TENSOR__FN tensor_t *tensor__weighted(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n) {
    tensor_t *y = fn(inputs, n, user);
    if (!tensor__live(y)) { return TENSOR__POISON; }
    tensor_t *w = tensor_add_scalar(tensor_mul_scalar(tensor_sin(tensor_arange(1, (double)y->numel + 1, 1,
            TENSOR_F64)), 0.5), 1.25);
    return tensor_sum(tensor_mul(tensor_to(y, TENSOR_F64), tensor_reshape_n(w, y->dims, y->ndim)));
}
// constant: a result that needs no gradient is right if it does not change.
TENSOR__FN int tensor__gradcheck(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, double eps,
                                 double atol, double rtol, int constant) {
    tensor__thread_t *th = tensor__self();
    TENSOR__REFUSE_CODE(!fn || n < 0 || (n && !inputs), OWNER, "gradcheck: fn or inputs is NULL");
    if (eps == 0) { eps = 1e-6; }
    if (atol == 0) { atol = 1e-5; }
    if (rtol == 0) { rtol = 1e-3; }
    tensor_t **grads = (tensor_t **)tensor__memory(th, (uint64_t)(n + 1) * 3 * sizeof *grads);
    if (!grads) { return th->error.code; }
    tensor_scope_t s = tensor__scope_begin(th, 1);
    tensor_t **wanted = grads + n, **again = wanted + n;
    int m = 0, code = 0;
    for (int i = 0; i < n && !code; i++) {
        if (!TENSOR__USABLE("gradcheck", "input", inputs[i])) { code = th->error.code; break; }
        if (!tensor__sync_needs_grad(th, inputs[i])) { continue; }
        if (inputs[i]->dtype != TENSOR_F64) {
            tensor__fail(th, TENSOR_ERR_DTYPE, "gradcheck: input %i %t is %y, f64 is needed", i, inputs[i],
                         inputs[i]);
            code = TENSOR_ERR_DTYPE;
        }
        for (int d = 0; d < inputs[i]->ndim; d++) {
            if (code || inputs[i]->strides[d] || inputs[i]->dims[d] < 2) { continue; }
            tensor__fail(th, TENSOR_ERR_AUTOGRAD, "gradcheck: elements of input %i %t share memory", i,
                         inputs[i]);
            code = TENSOR_ERR_AUTOGRAD;
        }
        wanted[m++] = inputs[i];
    }
    for (int k = 0; k < 2 && !code; k++) {
        tensor_t *y = tensor__weighted(fn, user, inputs, n);
        if (constant && tensor__live(y) && !tensor__needs_grad(y)) { continue; }        // grads are NULL: 0
        code = tensor_autograd_grad(&y, 1, NULL, wanted, m, k ? again : grads, TENSOR_ALLOW_UNUSED);
        if (y == TENSOR__POISON && !code) { code = th->error.code; }
    }
    for (int i = 0; i < m && !code; i++) {
        int same = !grads[i] == !again[i];
        if (same && grads[i]) {
            tensor_t *a = tensor_contiguous(grads[i]), *b = tensor_contiguous(again[i]);
            same = a->numel == b->numel && !memcmp(tensor__ptr(a), tensor__ptr(b), (size_t)a->numel * 8);
        }
        if (same) { continue; }
        code = TENSOR_ERR_AUTOGRAD;
        tensor__fail(th, code, "gradcheck: input %i: a second backward pass gives another gradient", i);
    }
    double worst = 0;
    for (int i = 0; i < m && !code; i++) {
        tensor_t *x = wanted[i];
        tensor_t *g = grads[i] ? tensor_contiguous(grads[i]) : NULL;
        double *values = (double *)x->storage->data;
        for (int64_t k = 0; k < x->numel && !code; k++) {
            double *at = values + x->offset + tensor__offset_of(k, x->dims, x->strides, x->ndim), was = *at,
                v[2];
            for (int side = 0; side < 2; side++) {
                tensor_scope_t t = tensor__scope_begin(th, 0);
                *at = was + (side ? eps : -eps);
                v[side] = tensor_item(tensor__weighted(fn, user, inputs, n));
                (tensor_scope_end)(t);
            }
            *at = was;
            if (th->error.code) { code = th->error.code; break; }
            double numeric = (v[1] - v[0]) / (2 * eps), analytic = g ? ((double *)tensor__ptr(g))[k] : 0;
            double gap = fabs(numeric - analytic) - (atol + rtol * fabs(numeric));
            if (!(gap <= 0) && !(gap <= worst)) {
                worst = gap;
                code = TENSOR_ERR_AUTOGRAD;
                tensor__fail(th, code, "gradcheck: input %i, element %d: autograd gives %g, central "
                             "differences %g", i, k, analytic, numeric);
            }
        }
    }
    tensor__memory_free(th, grads);
    if (s.thread) { (tensor_scope_end)(s); }
    return code;
}
TENSOR_API int (tensor_gradcheck)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, double eps,
                                  double atol, double rtol) {
    return tensor__gradcheck(fn, user, inputs, n, eps, atol, rtol, 0);
}
typedef struct tensor__gradgrad_t { tensor_fn_t fn; void *user; } tensor__gradgrad_t;
// What gradgradcheck differentiates: all first gradients of fn, flattened into one vector. The last input is
// the gradient of fn's result.
TENSOR__FN tensor_t *tensor__gradients_of(tensor_t *const *inputs, int n, void *user) {
    tensor__gradgrad_t *gg = (tensor__gradgrad_t *)user;
    tensor__thread_t *th = tensor__self();
    tensor_t **wanted = (tensor_t **)tensor__memory(th, (uint64_t)n * 3 * sizeof *wanted);
    if (!wanted) { return TENSOR__POISON; }
    tensor_scope_t s = tensor__scope_begin(th, 1);
    tensor_t **grads = wanted + n, **parts = grads + n, *r = TENSOR__POISON;
    int m = 0, k = 0;
    for (int i = 0; i < n - 1; i++) {
        if (tensor__sync_needs_grad(th, inputs[i])) { wanted[m++] = inputs[i]; }
    }
    tensor_t *y = gg->fn(inputs, n - 1, gg->user);
    if (!tensor_autograd_grad(&y, 1, &inputs[n - 1], wanted, m, grads,
                              TENSOR_CREATE_GRAPH | TENSOR_ALLOW_UNUSED)) {
        for (int i = 0; i < m; i++) { if (grads[i]) { parts[k++] = tensor__flat(grads[i]); } }
        r = k ? tensor_cat_n(parts, k, 0) : tensor_scalar(0, TENSOR_F64);       // nothing reached: constants
    }
    r = s.thread ? (tensor_scope_return)(s, r) : r;
    tensor__memory_free(th, wanted);
    return r;
}
TENSOR_API int (tensor_gradgradcheck)(tensor_fn_t fn, void *user, tensor_t *const *inputs, int n, double eps,
                                      double atol, double rtol) {
    tensor__thread_t *th = tensor__self();
    tensor__gradgrad_t gg;
    gg.fn = fn;
    gg.user = user;
    TENSOR__REFUSE_CODE(!fn || n < 0 || n == INT32_MAX || (n && !inputs), OWNER,
                        "gradgradcheck: fn or inputs is NULL");
    tensor_t **list = (tensor_t **)tensor__memory(th, (uint64_t)(n + 1) * sizeof *list);
    if (!list) { return th->error.code; }
    tensor_scope_t s = tensor__scope_begin(th, 1);
    for (int i = 0; i < n; i++) { list[i] = inputs[i]; }
    tensor_t *y = fn(inputs, n, user), *g = tensor_arange(0, (double)tensor_numel(y), 1, TENSOR_F64);
    g = tensor_sin(tensor_add_scalar(tensor_mul_scalar(tensor_to(g, TENSOR_CPU), 1.7), 0.6));
    g = tensor__live(y) ? tensor_to(tensor_reshape_n(g, y->dims, y->ndim), (int)tensor_device(y)) : y;
    list[n] = tensor_requires_grad_(tensor_detach(g), 1);
    int code = list[n] == TENSOR__POISON ? th->error.code :
        tensor__gradcheck(tensor__gradients_of, &gg, list, n + 1, eps, atol, rtol, 1);
    if (s.thread) { (tensor_scope_end)(s); }
    tensor__memory_free(th, list);
    return code;
}

// ------------------------------------------------------------------------------
// >>impl-print                                     MARK: printing
//
// PyTorch's form: one width for all numbers, 4 digits, integers with a point, exponents when the range is
// wide, three items from each end of a dim above 1000 elements. Rejected: %g for each number (columns would
// not line up; and printing needs no stdio this way).
// ------------------------------------------------------------------------------

#ifndef TENSOR_NO_STDIO
typedef struct tensor__printer_t { tensor__text_t s; tensor_t *x; int width, integral, sci, summary,
    is_float, indent; } tensor__printer_t;

TENSOR__FN int tensor__number(const tensor__printer_t *p, int64_t offset, char *b, size_t room) {
    const char *at = (const char *)p->x->storage->data + offset * tensor__sizes[p->x->dtype];
    if (p->x->dtype == TENSOR_BOOL) { return snprintf(b, room, "%s", *at ? "True" : "False"); }
    if (!p->is_float) {
        int64_t v;
        tensor__load_i64(&v, at, p->x->dtype, 1, 1);
        return snprintf(b, room, "%lld", (long long)v);
    }
    double v;
    tensor__load_f64(&v, at, p->x->dtype, 1, 1);
    if (tensor__isnan_f64(v)) { return snprintf(b, room, "nan"); }
    if (fabs(v) > 1.7976931348623157e308) { return snprintf(b, room, v < 0 ? "-inf" : "inf"); }
    if (p->sci) { return snprintf(b, room, "%.4e", v); }
    return p->integral ? snprintf(b, room, "%.0f.", v) : snprintf(b, room, "%.4f", v);
}
TENSOR__FN void tensor__print_dim(tensor__printer_t *p, int d, int64_t offset) {
    tensor_t *x = p->x;
    char b[64];
    if (d == x->ndim) {
        int n = tensor__number(p, offset, b, sizeof b);
        for (int i = n; i < p->width; i++) { tensor__puts(&p->s, " "); }
        tensor__puts(&p->s, b);
        return;
    }
    tensor__puts(&p->s, "[");
    int64_t n = x->dims[d];
    for (int64_t i = 0; i < n; i++) {
        int last = d == x->ndim - 1;
        if (i && last) {
            int64_t per = p->width + 2 > 0 ? (80 - p->indent - d) / (p->width + 2) : 1, k = p->summary &&
                n > 6 && i > 3 ? i - (n - 7) : i;
            if (per < 1) { per = 1; }
            tensor__puts(&p->s, ",");
            if (k % per == 0) {
                tensor__puts(&p->s, "\n");
                for (int j = 0; j <= p->indent + d; j++) { tensor__puts(&p->s, " "); }
            } else {
                tensor__puts(&p->s, " ");
            }
        } else if (i) {
            tensor__puts(&p->s, ",");
            for (int j = d; j < x->ndim - 1; j++) { tensor__puts(&p->s, "\n"); }
            for (int j = 0; j <= p->indent + d; j++) { tensor__puts(&p->s, " "); }
        }
        if (p->summary && n > 6 && i == 3) {
            tensor__puts(&p->s, "...");
            i = n - 4;
            continue;
        }
        tensor__print_dim(p, d + 1, offset + i * x->strides[d]);
    }
    tensor__puts(&p->s, "]");
}
// Calls visit for each number that will be printed.
TENSOR__FN void tensor__print_scan(tensor__printer_t *p, int d, int64_t offset, double *lo, double *hi,
                                   int *whole, int *any) {
    if (d < p->x->ndim) {
        for (int64_t i = 0, n = p->x->dims[d]; i < n; i++) {
            if (p->summary && n > 6 && i == 3) { i = n - 3; }
            tensor__print_scan(p, d + 1, offset + i * p->x->strides[d], lo, hi, whole, any);
        }
        return;
    }
    double v;
    tensor__load_f64(&v, (const char *)p->x->storage->data + offset * tensor__sizes[p->x->dtype],
                     p->x->dtype, 1, 1);
    if (tensor__isnan_f64(v) || fabs(v) > 1.7976931348623157e308) { return; }
    *whole &= v == floor(v);
    *any = 1;
    v = fabs(v);
    if (v > *hi) { *hi = v; }
    if (v != 0 && v < *lo) { *lo = v; }
}
TENSOR__FN void tensor__print_width(tensor__printer_t *p, int d, int64_t offset) {
    char b[64];
    if (d == p->x->ndim) {
        int n = tensor__number(p, offset, b, sizeof b);
        if (n > p->width) { p->width = n; }
        return;
    }
    for (int64_t i = 0, n = p->x->dims[d]; i < n; i++) {
        if (p->summary && n > 6 && i == 3) { i = n - 3; }
        tensor__print_width(p, d + 1, offset + i * p->x->strides[d]);
    }
}
TENSOR_API size_t (tensor_to_string)(tensor_t *x, char *text, size_t size) {
    tensor__thread_t *th = tensor__self();
    tensor__printer_t p;
    memset(&p, 0, sizeof p);
    if (!text) { size = 0; }
    p.s.p = text;
    p.s.room = size;
    if (size) { text[0] = 0; }
    if (!TENSOR__USABLE("print", "x", x)) {
        tensor__puts(&p.s, "tensor(poison)");
        return p.s.length;
    }
    TENSOR__MARK
    tensor_t *here = x->device ? (tensor_to)((tensor_detach)(x), TENSOR_CPU) : x;
    if (here == TENSOR__POISON) {
        tensor__puts(&p.s, "tensor(poison)");
        return p.s.length;
    }
    p.x = here;
    p.is_float = tensor__is_float(x->dtype);
    p.summary = x->numel > 1000;
    p.indent = 7;
    tensor__puts(&p.s, "tensor(");
    if (x->numel == 0) {
        tensor__puts(&p.s, "[]");
        if (x->ndim != 1) {
            tensor__puts(&p.s, ", size=(");
            for (int i = 0; i < x->ndim; i++) {
                if (i) { tensor__puts(&p.s, ", "); }
                tensor__puti(&p.s, x->dims[i]);
            }
            tensor__puts(&p.s, ")");
        }
    } else {
        double lo = 1e300, hi = 0;
        int whole = 1, any = 0;
        if (p.is_float) { tensor__print_scan(&p, 0, here->offset, &lo, &hi, &whole, &any); }
        p.integral = whole && any;
        if (hi == 0) { lo = 0; }
        p.sci = p.is_float && any && (whole ? hi > 1e8 : (lo > 0 && (hi / lo > 1000 || lo < 1e-4)) ||
                                      hi > 1e8);
        if (x->ndim) { tensor__print_width(&p, 0, here->offset); }
        tensor__print_dim(&p, 0, here->offset);
    }
    if (x->dtype != TENSOR_F32 && (!x->numel || (x->dtype != TENSOR_I64 && x->dtype != TENSOR_BOOL))) {
        tensor__text(&p.s, ", dtype=%y", x);
    }
    if (x->device) {
        tensor__tidy(th_, mark_, NULL);
        tensor__text(&p.s, ", device='%s:%i'", tensor__device_name(th, x->device), x->device - 1);
    }
    if (tensor__sync_needs_grad(th, x)) {
        tensor__text(&p.s, x->node ? ", grad_fn=<%s>" : ", requires_grad=True",
                     x->node ? x->node->row->name : "");
    }
    tensor__puts(&p.s, ")");
    return p.s.length;
}
TENSOR_API int (tensor_print)(tensor_t *x) {
    tensor__thread_t *th = tensor__self();
    size_t n = (tensor_to_string)(x, NULL, 0);
    char *text = (char *)tensor__memory(th, n + 1);
    if (!text) { return th->error.code; }
    (tensor_to_string)(x, text, n + 1);
    printf("%s\n", text);
    tensor__memory_free(th, text);
    return tensor__live(x) ? 0 : th->error.code;
}
#else
TENSOR_API size_t (tensor_to_string)(tensor_t *x, char *text, size_t size) {
    (void)x;
    if (size) { text[0] = 0; }
    return 0;
}
#endif
TENSOR__END

// ------------------------------------------------------------------------------
// >>impl-table                                     MARK: rows, stamps, internals
//
// Tables come from the X-macro lists, stamps are plain functions that the macros of >>sites call. Rejected:
// registration at start (order of initialisation, writable tables).
// ------------------------------------------------------------------------------

#define NOGRAD NULL
static const tensor__row_t tensor__rows[TENSOR_OP_COUNT] = {
#define TENSOR__ROW_OF(ID, name, n, kind, saves, grad, lo, hi, doc)                                          \
    {#name, TENSOR_FAMILY_POINTWISE, n, n, 1, TENSOR__##kind, TENSOR_OP_##ID, saves, grad,                   \
     tensor__cpu_pointwise, NULL, lo, hi, doc, NULL},
#define TENSOR__ONE(ID, name, kind, f, dA, saves, lo, hi, doc)                                               \
    TENSOR__ROW_OF(ID, name, 1, kind, saves, tensor__grad_pointwise, lo, hi, doc)
#define TENSOR__TWO(ID, name, kind, f, dA, dB, saves, lo, hi, doc)                                           \
    TENSOR__ROW_OF(ID, name, 2, kind, saves, tensor__grad_pointwise, lo, hi, doc)
#define TENSOR__THREE(ID, name, kind, f, dA, dB, dC, saves, lo, hi, doc)                                     \
    TENSOR__ROW_OF(ID, name, 3, kind, saves, tensor__grad_pointwise, lo, hi, doc)
#define TENSOR__TESTS(ID, name, n, kind, f, doc) TENSOR__ROW_OF(ID, name, n, kind, 0, NULL, -3, 3, doc)
#define TENSOR__BITS(ID, name, n, f, doc) TENSOR__ROW_OF(ID, name, n, BIT, 0, NULL, -3, 3, doc)
    TENSOR_OPS_UNARY(TENSOR__ONE) TENSOR_OPS_COPY(TENSOR__ONE) TENSOR_OPS_BINARY(TENSOR__TWO)
    TENSOR_OPS_TERNARY(TENSOR__THREE) TENSOR_OPS_COMPARE(TENSOR__TESTS) TENSOR_OPS_BITWISE(TENSOR__BITS)
    TENSOR_OPS_DOUBLE1(TENSOR__ONE) TENSOR_OPS_DOUBLE2(TENSOR__TWO)
#define TENSOR__X(ID, name, family, nin, nout, cpu, scratch, grad, saves, doc)                               \
    {#name, TENSOR_FAMILY_##family, nin, nin, nout, TENSOR__FLT, TENSOR_OP_##ID, saves, grad, cpu, scratch,  \
     -3, 3, doc, TENSOR_FAMILY_##family == TENSOR_FAMILY_INDEX ? "x index src" : NULL},
    TENSOR_OPS_OTHER(TENSOR__X)
#undef TENSOR__X
};
// The fused derivative of a pointwise row is a call of its own, with the row's id and name.
static const tensor__row_t tensor__pointwise_backward_rows[TENSOR_OP_POINTWISE_COUNT] = {
#define TENSOR__X(ID, name, ...)                                                                             \
    {#name, TENSOR_FAMILY_POINTWISE_BACKWARD, 5, 0, 3, 0, TENSOR_OP_##ID, 0, NULL,                           \
     tensor__cpu_pointwise_backward, NULL, 0, 0, "", NULL},
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__X) TENSOR_OPS_BITWISE(TENSOR__X)
    TENSOR_OPS_DOUBLE1(TENSOR__X) TENSOR_OPS_DOUBLE2(TENSOR__X)
#undef TENSOR__X
};
TENSOR__FN const tensor__row_t *tensor__row(int id) { return &tensor__rows[id]; }
TENSOR__FN const tensor__row_t *tensor__backward_row(int id) { return &tensor__pointwise_backward_rows[id]; }

// Stamps what the call just made, or the error it just raised.
TENSOR__FN TENSOR__NOINLINE void tensor__stamp_error(tensor__thread_t *th, const char *site) {
    if (th->error.code && !th->error.reported) {
        th->error.site = site[0] ? site : NULL;
        if (strchr(site, 1)) { th->error.outer = site; }
        tensor__report(th, site);
    }
}
TENSOR__INLINE void tensor__stamp(tensor_t *t, const char *site) {
    if (!t->site) { t->site = site; }
    if (t->node && !t->node->site) { t->node->site = site; }
}
// The device hears where its calls were made.
TENSOR__FN TENSOR__NOINLINE void tensor__tell_site(tensor__thread_t *th, const char *site) {
    const tensor_backend_t *b = th->ctx->backend[1];
    th->away = 0;
    if (b && b->site) { b->site(site); }
}
TENSOR_API tensor_t *tensor__at(const char *site, tensor_t *t) {
    if (!site) { return t; }
    tensor__thread_t *th = tensor__self();
    if (th->away) { tensor__tell_site(th, site); }
    if (TENSOR__LIKELY(th->fresh == t && t && t != TENSOR__POISON)) {
        th->fresh = NULL;
        if (th->error.code && !th->error.reported) { tensor__report(th, NULL); }    // of an earlier call
        if (!site[0]) { return t; }
        tensor__stamp(t, site);
        if (th->written) {
            th->written->write_site = site;
            th->written = NULL;
        }
        return t;
    }
    if (t == TENSOR__POISON) { tensor__stamp_error(th, site); }
    return t;
}
// One of several results.
TENSOR__FN void tensor__at_each(const char *site, tensor_t *t) {
    if (!site || !t) { return; }
    if (t == TENSOR__POISON) { tensor__stamp_error(tensor__self(), site); return; }
    if (site[0]) { tensor__stamp(t, site); }
}
#define TENSOR__X(name)                                                                                      \
    TENSOR_API tensor_##name##_t tensor__at_##name(const char *site, tensor_##name##_t t) {                  \
        tensor_t *list[sizeof t / sizeof(tensor_t *)];                                                       \
        memcpy(list, &t, sizeof t);                                                                          \
        for (size_t i = 0; i < sizeof t / sizeof list[0]; i++) { tensor__at_each(site, list[i]); }           \
        return t;                                                                                            \
    }
TENSOR__X(pair) TENSOR__X(qr) TENSOR__X(linalg_svd) TENSOR__X(svd) TENSOR__X(eigh) TENSOR__X(slogdet)
TENSOR__X(lu_factor) TENSOR__X(lu) TENSOR__X(lstsq)
#undef TENSOR__X
TENSOR_API int tensor__at_int(const char *site, int r) {
    if (!site) { return r; }
    tensor__thread_t *th = tensor__self();
    if (th->away) { tensor__tell_site(th, site); }
    tensor__stamp_error(th, site);
    if (th->freed) { th->freed->freed = site; th->freed = NULL; }
    return r;
}
#define TENSOR__X(kind, type)                                                                                \
    TENSOR_API type tensor__at_##kind(const char *site, type r) {                                            \
        if (site) { tensor__stamp_error(tensor__self(), site); }                                             \
        return r;                                                                                            \
    }
TENSOR__X(i64, int64_t) TENSOR__X(f64, double)
#undef TENSOR__X
TENSOR_API const void *tensor__at_ptr(const char *site, const void *p) {
    if (!site) { return p; }
    tensor__thread_t *th = tensor__self();
    tensor__stamp_error(th, site);
    if (th->written) {          // tensor_data_mut
        th->written->write_site = site;
        th->written = NULL;
    }
    return p;
}

TENSOR_API int tensor__shutdowns(void) { return TENSOR__ATOMIC_LOAD(&tensor__shutdown_count); }

static tensor__thread_t *tensor__self_fn(void) { return tensor__self(); }
static const tensor__internals_t tensor__internals_table = {
    TENSOR__API_VERSION, TENSOR__POISON, tensor__self_fn,
    tensor__fail, tensor__text, tensor__begin, tensor__result, tensor__finish, tensor__grad_in,
    tensor__grad_out, tensor__grad_need, tensor__sum_to, tensor__next_stream, tensor__parallel,
    tensor__thread_count, tensor__gemm_f32, tensor__gemm_f64, tensor__gemm_scratch, tensor__isa,
    tensor__reference, tensor__memory, tensor__memory_free, tensor__own, tensor__disown, tensor__hold,
    tensor__drop, tensor__push_path, tensor__pop_path, tensor__load, tensor__philox, tensor__inner_scope,
    tensor__tidy, tensor__set_backend, tensor__recording, tensor__aside, tensor__make, tensor__arg,
    tensor__launch, tensor__halves, tensor__net, tensor__lasts, tensor__follow, tensor__row,
    tensor__backward_row,
};
TENSOR_API const tensor__internals_t *tensor__internals(int version) {
    return version == TENSOR__API_VERSION ? &tensor__internals_table : NULL;
}

#ifdef __cplusplus
}
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#undef TENSOR_HERE
#undef TENSOR__IN
#define TENSOR_HERE TENSOR__SITE
#define TENSOR__IN(function) TENSOR__SITE_OF(function)

#endif   // TENSOR_IMPLEMENTATION

#ifndef TENSOR__PASS
// ------------------------------------------------------------------------------
// >>license                                        MARK: licence
//
// This software is available under two licences; choose whichever you prefer.
//
// ALTERNATIVE A - MIT No Attribution
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction, including
// without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is furnished to do so.
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
// LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO
// EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER
// IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE
// USE OR OTHER DEALINGS IN THE SOFTWARE.
//
// ALTERNATIVE B - Public Domain (www.unlicense.org)
// This is free and unencumbered software released into the public domain. Anyone is free to copy, modify,
// publish, use, compile, sell, or distribute this software, either in source code form or as a compiled
// binary, for any purpose, commercial or non-commercial, and by any means.
// ------------------------------------------------------------------------------
#endif

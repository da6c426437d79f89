// tensor.h - v0.1.0 - n-d tensors, define-by-run autograd and a CPU engine in one C header
// Licence: MIT-0 or public domain, at your choice; full text at the end of this file.
//
//   #define TENSOR_IMPLEMENTATION          in exactly ONE .c/.cpp file of the program (best: a file of its own)
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
//   >>pointwise  >>reduce  >>linalg  >>index  >>random  >>autograd  >>sites  >>cpp
//   >>shared  >>ops  >>vocabulary
//   >>kernels  >>simd  >>simd-math  >>kernel-pointwise  >>kernel-reduce  >>kernel-rows  >>kernel-random
//   >>kernel-gemm  >>kernel-table
//   >>impl  >>impl-platform  >>impl-alloc  >>impl-errors  >>impl-context  >>impl-threads  >>impl-scopes
//   >>impl-front  >>impl-gate  >>impl-tape  >>impl-iterator  >>impl-cpu  >>impl-create  >>impl-inspect
//   >>impl-views  >>impl-pointwise  >>impl-reduce  >>impl-linalg  >>impl-index  >>impl-random
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
//            integer tensor's dtype, a fraction turns it to f32 (C has no weak scalar types).
// SHAPES     variadic in C and C++: tensor_zeros(2, 3). Every such function has a plain twin ending in _n that
//            takes (const int64_t *dims, int ndim). At most 8 dimensions. A dim counts from the end when < 0.
// OWNERSHIP  A tensor_t * returned by the library belongs to the innermost open scope of the calling thread.
//            There is nothing to free. tensor_scope_begin / _reset / _end empty it; tensor_scope_return hands a
//            result to the scope around; tensor_keep makes a tensor outlive every scope until tensor_free;
//            tensor_set carries a value from one loop turn to the next. Functions borrow their arguments.
// ERRORS     A function that fails returns the poison tensor (never NULL), and every function given poison
//            returns poison, so expressions nest and one check is enough: tensor_ok(), tensor_error_text(). The
//            first error of a thread stays until tensor_clear_error(). Functions that make no tensor return
//            the code (0 = fine). Nothing aborts or exits. With no handler set, a thread's first error is
//            printed to stderr once (not under TENSOR_NO_STDIO).
// THREADS    Any number of threads may use the library. A tensor may be read by many threads; no two threads
//            may write one tensor at once. The library starts threads only after tensor_set_num_threads(n).
//            Results have the same bits for every number of threads.
// AUTOGRAD   Define-by-run: tensor_requires_grad_ marks a leaf, operations record themselves, tensor_backward
//            adds d loss / d leaf into tensor_grad(leaf). Under tensor_scope_begin_no_grad nothing is recorded.
// DTYPES     f32 f64 i32 i64 u8 bool compute; f16 and bf16 are stored as such and computed in f32 with correct
//            rounding. No complex numbers, no FFT.
// CONFIG     define before the implementation: TENSOR_MALLOC/TENSOR_FREE (aligned, see >>config),
//            TENSOR_NO_STDIO, TENSOR_NO_THREADS, TENSOR_NO_SIMD, TENSOR_ASSERT(x), TENSOR_SELF (this file's name
//            when renamed). Everywhere: TENSOR_STATIC (all in one file), TENSOR_NO_CALL_SITES.
//            Environment: TENSOR_CPU=scalar|sse2|avx2|avx512 forces an instruction set, TENSOR_REFERENCE=1 the
//            plain double-precision formulas.
// COMPILE    The implementation takes some seconds at -O2: give it a file of its own and never pass
//            -DTENSOR_IMPLEMENTATION for all files. -ffast-math is refused (define TENSOR_ALLOW_FAST_MATH to get
//            memory safety and tolerances only).
// ------------------------------------------------------------------------------

#include <stddef.h>
#include <stdint.h>

// ------------------------------------------------------------------------------
// >>config                                         MARK: config
//
// No macro here changes a public struct or the meaning of a public function, so files of one program may differ in
// everything but TENSOR_STATIC.
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

// A call site is one string, "file.c:41"; it travels into results and error texts.
#define TENSOR__STR2(x) #x
#define TENSOR__STR(x) TENSOR__STR2(x)
#ifdef TENSOR_NO_CALL_SITES
#define TENSOR__SITE ((const char *)0)
#else
#define TENSOR__SITE __FILE__ ":" TENSOR__STR(__LINE__)
#endif
#define TENSOR_HERE TENSOR__SITE

// In a call with options a member that is 0 has PyTorch's default; TENSOR_ZERO says a real zero.
#define TENSOR_ZERO (-2147483647 - 1)

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>types                                          MARK: types
//
// tensor_t is opaque here; its layout stands in >>shared, so that a debugger shows it. Enumerators are stable within a
// major version; files store names, never numbers.
// ------------------------------------------------------------------------------

enum { TENSOR_MAX_DIMS = 8 };

typedef struct tensor_t tensor_t;
typedef struct tensor_context_t tensor_context_t;

typedef enum tensor_dtype_t {
    TENSOR_F32, TENSOR_F64, TENSOR_I32, TENSOR_I64, TENSOR_U8, TENSOR_BOOL, TENSOR_F16, TENSOR_BF16,
    TENSOR_DTYPE_COUNT
} tensor_dtype_t;

typedef enum tensor_device_t { TENSOR_CPU, TENSOR_CUDA } tensor_device_t;

#define TENSOR_ERRORS(X)                                                                                     \
    X(OUT_OF_MEMORY, "out of memory")   X(SHAPE, "shapes do not fit")     X(DTYPE, "wrong dtype")            \
    X(DEVICE, "wrong device")           X(INDEX, "index out of range")    X(IO, "input/output failed")       \
    X(FORMAT, "malformed file")         X(AUTOGRAD, "autograd misuse")    X(OWNER, "ownership misuse")       \
    X(POISONED, "argument failed earlier") X(UNSUPPORTED, "unsupported")  X(CUDA, "CUDA failed")             \
    X(INTERNAL, "internal error")

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
// Poison plus one sticky text per thread instead of codes from every call: expressions must nest, and nobody checks 200
// return values. Thread-safe: everything here is about the calling thread.
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

// Sets the function called once per first error (instead of the line on stderr), for all threads of the context.
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
// Every byte of mutable state hangs in a context; a default one serves those who never name one. Rejected: plain globals
// (two users of the library in one program would share allocator, limits and handlers).
// ------------------------------------------------------------------------------

typedef struct tensor_allocator_t {
    void *(*alloc)(void *user, size_t bytes, size_t alignment);      // NULL = failed; never called with 0 bytes
    void (*free)(void *user, void *p, size_t bytes, size_t alignment);
    void *user;
} tensor_allocator_t;

// Runs task(arg, i) for each i in 0..ntasks-1, in any order, on any threads, and returns when all are done.
typedef void (*tensor_parallel_fn_t)(void *user, int64_t ntasks, void (*task)(void *arg, int64_t i), void *arg);

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

// Frees everything the calling thread's context owns (tensors, modules, threads, caches); the library can be used
// again afterwards. No other thread may be inside the library.
//   -> the calling thread's first error, 0 if none;  errors none
TENSOR_API int tensor_shutdown(void);

// Closes the calling thread's root scope and gives its caches back to the context (done by itself at thread exit).
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

// Lists live tensors by creation site: "3 tensors  12288 bytes  mul at net.c:41".
//   text    buffer of size bytes (may be NULL if size is 0); always terminated
//   -> length the whole text has;  errors none
TENSOR_API size_t tensor_memory_report(char *text, size_t size);

// Number of threads kernels may use, the caller included. Starts or stops workers.
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

// Name of the instruction set kernels use: "scalar", "sse2", "avx2", "avx512".
//   -> borrowed string;  errors none
TENSOR_API const char *tensor_cpu_name(void);

// Forces an instruction set ("scalar", "sse2", "avx2", "avx512", "reference"; NULL = the best).
//   -> code;  errors UNSUPPORTED if the machine or this build lacks it
TENSOR_API int tensor_set_cpu(const char *name);

// ------------------------------------------------------------------------------
// >>scopes                                         MARK: ownership
//
// Scopes over reference counts: seven ecosystems without destructors ended there. Rejected: one free per handle (nobody
// gets it right and expressions do not nest), arenas (the guess of their size is always wrong).
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
// Variadic names take the dims as arguments and make f32: tensor_zeros(2, 3); tensor_zeros_of(TENSOR_I64, 2, 3) names
// the dtype. The twins below (_n) are the plain functions behind them.
// All: -> new, contiguous;  grad none;  errors SHAPE (negative dim, too many dims, product over 2^63), OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// Uninitialised elements.                                                    -> new;  errors as above
TENSOR_API tensor_t *tensor_empty_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// Zeros.                                                                     -> new;  errors as above
TENSOR_API tensor_t *tensor_zeros_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// Ones.                                                                      -> new;  errors as above
TENSOR_API tensor_t *tensor_ones_n(const int64_t *dims, int ndim, tensor_dtype_t dtype);
// A value everywhere.                                                        -> new;  errors as above
TENSOR_API tensor_t *tensor_full_n(const int64_t *dims, int ndim, double value, tensor_dtype_t dtype);
// Shape and dtype of x, uninitialised / 0 / 1 / value.                        -> new;  errors as above
TENSOR_API tensor_t *tensor_empty_like(tensor_t *x);
TENSOR_API tensor_t *tensor_zeros_like(tensor_t *x);
TENSOR_API tensor_t *tensor_ones_like(tensor_t *x);
TENSOR_API tensor_t *tensor_full_like(tensor_t *x, double value);

// A 0-d tensor.
//   -> new;  grad none;  errors OUT_OF_MEMORY
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
//   -> new [n] f32;  grad none;  errors SHAPE if n < 0
TENSOR_API tensor_t *tensor_linspace(double start, double end, int64_t n);

// Ones on the main diagonal.
//   -> new [n, m] f32;  grad none;  errors SHAPE
TENSOR_API tensor_t *tensor_eye(int64_t n, int64_t m);

// A copy, recorded by autograd.
//   -> new, contiguous;  grad dx = g;  errors OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_clone(tensor_t *x);

// Another dtype (x itself if it has that dtype). Float to integer truncates, saturates, NaN gives 0.
//   -> new or x;  grad dx = g cast back;  errors DTYPE
TENSOR_API tensor_t *tensor_to(tensor_t *x, tensor_dtype_t dtype);

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
// A view shares its source's storage: writing one writes the other, and in-place changes through a view are followed by
// autograd. All: -> view;  grad flows to x;  errors SHAPE, INDEX (dim or index out of range), UNSUPPORTED
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
// Removes a dim if its size is 1.                        -> view;  errors INDEX
TENSOR_API tensor_t *tensor_squeeze(tensor_t *x, int64_t dim);
// Dims of size 1 (or new leading ones) repeated without a copy; -1 keeps a size.   -> view;  errors SHAPE
TENSOR_API tensor_t *tensor_expand_n(tensor_t *x, const int64_t *dims, int ndim);
// length indices from start along dim.                   -> view;  errors INDEX
TENSOR_API tensor_t *tensor_narrow(tensor_t *x, int64_t dim, int64_t start, int64_t length);
// One index along dim, which disappears.                 -> view;  errors INDEX
TENSOR_API tensor_t *tensor_select(tensor_t *x, int64_t dim, int64_t index);
// start:end:step along dim, as Python slices (bounds are clamped).   -> view;  errors INDEX, SHAPE if step < 1
TENSOR_API tensor_t *tensor_slice(tensor_t *x, int64_t dim, int64_t start, int64_t end, int64_t step);
// Indexing in NumPy's notation: "1, :, ::2, ..., None".  -> view;  errors FORMAT, INDEX
TENSOR_API tensor_t *tensor_at(tensor_t *x, const char *index);
// Any strides and offset (elements) over x's storage.    -> view;  errors SHAPE if it leaves the storage
TENSOR_API tensor_t *tensor_as_strided(tensor_t *x, const int64_t *dims, const int64_t *strides, int ndim,
                                       int64_t offset);
// A copy of x in which the elements of that view are those of src (same shape as the view, no overlap).
//   -> new;  grad dx = g with the view zeroed, dsrc = the view of g;  errors SHAPE
TENSOR_API tensor_t *tensor_as_strided_scatter(tensor_t *x, tensor_t *src, const int64_t *dims,
                                               const int64_t *strides, int ndim, int64_t offset);
// x cut along dim into views of size elements (the last may be smaller).
//   out     receives at most max views, in order; always filled (poison on failure)
//   -> how many there are;  errors SHAPE if size < 1 or max is too small, INDEX
TENSOR_API int tensor_split(tensor_t *x, int64_t size, int64_t dim, tensor_t **out, int max);
// x cut along dim into n views of nearly equal size (PyTorch's chunk).   -> how many, as tensor_split;  errors SHAPE
TENSOR_API int tensor_chunk(tensor_t *x, int n, int64_t dim, tensor_t **out, int max);
// The same elements outside the graph.                   -> view;  grad none;  errors none
TENSOR_API tensor_t *tensor_detach(tensor_t *x);

// ------------------------------------------------------------------------------
// >>pointwise                                      MARK: pointwise
//
// Formulas, derivatives and docs are the rows of >>ops. Operands broadcast and promote as in PyTorch; float functions turn
// integers into f32. Scalar twins take the scalar weakly: it does not widen the tensor's dtype.
// All: -> new, contiguous;  errors SHAPE (no broadcast), DTYPE, OUT_OF_MEMORY; integer x / 0: INDEX
// ------------------------------------------------------------------------------

// One operand.  -> new;  grad as the row says;  errors as above
TENSOR_API tensor_t *tensor_abs(tensor_t *x);
TENSOR_API tensor_t *tensor_acos(tensor_t *x);
TENSOR_API tensor_t *tensor_asin(tensor_t *x);
TENSOR_API tensor_t *tensor_atan(tensor_t *x);
TENSOR_API tensor_t *tensor_ceil(tensor_t *x);
TENSOR_API tensor_t *tensor_clamp(tensor_t *x, double lo, double hi);   // -INFINITY / INFINITY = no bound
TENSOR_API tensor_t *tensor_cos(tensor_t *x);
TENSOR_API tensor_t *tensor_cosh(tensor_t *x);
TENSOR_API tensor_t *tensor_elu(tensor_t *x, double alpha);             // PyTorch's default alpha is 1
TENSOR_API tensor_t *tensor_erf(tensor_t *x);
TENSOR_API tensor_t *tensor_erfc(tensor_t *x);
TENSOR_API tensor_t *tensor_exp(tensor_t *x);
TENSOR_API tensor_t *tensor_exp2(tensor_t *x);
TENSOR_API tensor_t *tensor_expm1(tensor_t *x);
TENSOR_API tensor_t *tensor_floor(tensor_t *x);
TENSOR_API tensor_t *tensor_gelu(tensor_t *x);                          // x * Phi(x), by erf
TENSOR_API tensor_t *tensor_gelu_tanh(tensor_t *x);                     // its tanh approximation
TENSOR_API tensor_t *tensor_leaky_relu(tensor_t *x, double slope);      // PyTorch's default slope is 0.01
TENSOR_API tensor_t *tensor_log(tensor_t *x);
TENSOR_API tensor_t *tensor_log10(tensor_t *x);
TENSOR_API tensor_t *tensor_log1p(tensor_t *x);
TENSOR_API tensor_t *tensor_log2(tensor_t *x);
TENSOR_API tensor_t *tensor_logsigmoid(tensor_t *x);
TENSOR_API tensor_t *tensor_neg(tensor_t *x);
TENSOR_API tensor_t *tensor_reciprocal(tensor_t *x);
TENSOR_API tensor_t *tensor_relu(tensor_t *x);
TENSOR_API tensor_t *tensor_round(tensor_t *x);                         // half to even
TENSOR_API tensor_t *tensor_rsqrt(tensor_t *x);
TENSOR_API tensor_t *tensor_sigmoid(tensor_t *x);
TENSOR_API tensor_t *tensor_sign(tensor_t *x);
TENSOR_API tensor_t *tensor_silu(tensor_t *x);
TENSOR_API tensor_t *tensor_sin(tensor_t *x);
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
TENSOR_API tensor_t *tensor_div(tensor_t *a, tensor_t *b);              // true division: integers give f32
TENSOR_API tensor_t *tensor_floor_divide(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_fmod(tensor_t *a, tensor_t *b);             // sign of a, as C
TENSOR_API tensor_t *tensor_maximum(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_minimum(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_mul(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_pow(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_remainder(tensor_t *a, tensor_t *b);        // sign of b, as Python
TENSOR_API tensor_t *tensor_sub(tensor_t *a, tensor_t *b);

// A tensor and a number.  -> new;  grad as the twin;  errors as above
TENSOR_API tensor_t *tensor_add_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_div_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_floor_divide_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_fmod_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_maximum_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_minimum_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_mul_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_pow_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_remainder_scalar(tensor_t *a, double b);
TENSOR_API tensor_t *tensor_rsub_scalar(tensor_t *a, double b);         // b - a
TENSOR_API tensor_t *tensor_sub_scalar(tensor_t *a, double b);

// Three operands.  -> new;  grad as the row says;  errors as above
TENSOR_API tensor_t *tensor_where(tensor_t *condition, tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_lerp(tensor_t *a, tensor_t *b, tensor_t *weight);             // a + weight * (b - a)
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

// Bits of integers and bools.  -> new;  grad none;  errors as above, DTYPE for floats
TENSOR_API tensor_t *tensor_bitwise_and(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_or(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_xor(tensor_t *a, tensor_t *b);
TENSOR_API tensor_t *tensor_bitwise_not(tensor_t *x);

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
TENSOR_API tensor_t *tensor_addcmul_(tensor_t *x, tensor_t *a, tensor_t *b, double value);
TENSOR_API tensor_t *tensor_abs_(tensor_t *x);
TENSOR_API tensor_t *tensor_clamp_(tensor_t *x, double lo, double hi);
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
// Sums run in fixed lanes and leaves with double on top, so the error is O(log n) and bits do not depend on threads.
// NaN propagates; ties and empty inputs as PyTorch. A _dim function takes one dim and keepdim (0 or 1).
// All: -> new;  errors INDEX (dim), SHAPE (empty where there is no neutral value), DTYPE, OUT_OF_MEMORY
// ------------------------------------------------------------------------------

// All elements.  -> new 0-d;  grad spreads g;  errors as above
TENSOR_API tensor_t *tensor_sum(tensor_t *x);                           // integers and bool give i64
TENSOR_API tensor_t *tensor_mean(tensor_t *x);
TENSOR_API tensor_t *tensor_prod(tensor_t *x);
TENSOR_API tensor_t *tensor_max(tensor_t *x);                           // grad split evenly among ties
TENSOR_API tensor_t *tensor_min(tensor_t *x);
TENSOR_API tensor_t *tensor_argmax(tensor_t *x);                        // i64, first of ties, NaN wins; no grad
TENSOR_API tensor_t *tensor_argmin(tensor_t *x);
TENSOR_API tensor_t *tensor_any(tensor_t *x);                           // bool; no grad
TENSOR_API tensor_t *tensor_all(tensor_t *x);
TENSOR_API tensor_t *tensor_var(tensor_t *x, int64_t correction);       // divides by n - correction (PyTorch: 1)
TENSOR_API tensor_t *tensor_std(tensor_t *x, int64_t correction);
TENSOR_API tensor_t *tensor_norm(tensor_t *x);                          // 2-norm, scaled against overflow

// One dim.  -> new;  grad as above, amax/amin split ties, max_dim/min_dim to the chosen index;  errors as above
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

// Several dims at once.  -> new;  grad spreads g;  errors as above
TENSOR_API tensor_t *tensor_sum_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);
TENSOR_API tensor_t *tensor_mean_dims(tensor_t *x, const int64_t *dims, int n, int keepdim);

// Running sum along dim (integers give i64).
//   -> new, shape of x;  grad dx = reverse cumsum of g;  errors INDEX
TENSOR_API tensor_t *tensor_cumsum(tensor_t *x, int64_t dim);

// exp(x) / sum(exp(x)) along dim, stable: the maximum is subtracted first.
//   -> new, shape of x;  grad dx = y * (g - sum(g * y)), saves y;  errors INDEX, DTYPE (not a float)
TENSOR_API tensor_t *tensor_softmax(tensor_t *x, int64_t dim);

// x - logsumexp(x) along dim.
//   -> new, shape of x;  grad dx = g - exp(y) * sum(g), saves y;  errors INDEX, DTYPE (not a float)
TENSOR_API tensor_t *tensor_log_softmax(tensor_t *x, int64_t dim);

// ------------------------------------------------------------------------------
// >>linalg                                         MARK: matrix products
//
// One packed, register-tiled GEMM serves all of them in all transposes (views cost nothing). Accumulation order depends
// on shapes alone.
// ------------------------------------------------------------------------------

// Matrix product with PyTorch's rules for 1-d, 2-d and batched, broadcast operands.
//   a       [K], [M, K] or [..., M, K] f32/f64/f16/bf16
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
// beta * x + alpha * (a b), x broadcasts to [M, N].     -> new [M, N];  grad as mul/matmul;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_addmm(tensor_t *x, tensor_t *a, tensor_t *b, double beta, double alpha);
// Keeps the elements on and below (above) the diagonal-th diagonal of the last two dims, zeros the rest.
//   -> new, shape of x;  grad dx = tril(g) (triu);  errors SHAPE if x has fewer than 2 dims
TENSOR_API tensor_t *tensor_tril(tensor_t *x, int64_t diagonal);
TENSOR_API tensor_t *tensor_triu(tensor_t *x, int64_t diagonal);

// ------------------------------------------------------------------------------
// >>index                                          MARK: joining, indexing
//
// Index values are checked in a whole pass before the first write, in release too; an index outside is the error INDEX.
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
// x with src's rows added at index along dim (deterministic: in the order of index).
//   src     shape of x, but index's length along dim
//   -> new;  grad dx = g, dsrc = index_select of g;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_index_add(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
// out[i][j] = x[index[i][j]][j] for dim 0, and so on.
//   index   i32/i64, ndim of x, no dim larger than x's except dim
//   -> new, shape of index;  grad dx = scatter_add of g;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_gather(tensor_t *x, int64_t dim, tensor_t *index);
// A copy of x with src's elements added at (replacing) the places index names.
//   index   as tensor_gather; src has at least index's sizes
//   -> new;  grad dx = g (scatter: zero where replaced), dsrc = gather of g;  errors INDEX, DTYPE, SHAPE
TENSOR_API tensor_t *tensor_scatter_add(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
TENSOR_API tensor_t *tensor_scatter(tensor_t *x, int64_t dim, tensor_t *index, tensor_t *src);
// value where mask (bool, broadcasts to x) is true, else x.
//   -> new;  grad dx = g where mask is false;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_masked_fill(tensor_t *x, tensor_t *mask, double value);
// The elements of x where mask (bool, shape of x after broadcast) is true, in row-major order. Reads the mask.
//   -> new 1-d;  grad dx = g at those places;  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_masked_select(tensor_t *x, tensor_t *mask);
// 1 at the class, 0 elsewhere.
//   index   i32/i64 any shape, values 0..classes-1
//   -> new i64 [..., classes];  grad none;  errors INDEX, DTYPE
TENSOR_API tensor_t *tensor_one_hot(tensor_t *index, int64_t classes);
// Copies along each dim: repeats[d] times.
//   -> new;  grad sums over the copies;  errors SHAPE
TENSOR_API tensor_t *tensor_repeat_n(tensor_t *x, const int64_t *repeats, int n);

// ------------------------------------------------------------------------------
// >>random                                         MARK: random numbers
//
// Philox4x32-10 (Salmon et al., SC 2011) with the element index as counter: the same seed gives the same numbers for any
// thread count, instruction set and device, and rand(n) is a prefix of rand(m). Each call takes one stream number of the
// calling thread's generator, so a longer result never shifts the next one.
// ------------------------------------------------------------------------------

// Seeds the calling thread's generator.   -> nothing;  errors none
TENSOR_API void tensor_manual_seed(uint64_t seed);
// The calling thread's generator (seed, next stream), e.g. for a checkpoint.   -> struct;  errors none
TENSOR_API tensor_generator_t tensor_get_generator(void);
// Replaces it.   -> nothing;  errors none
TENSOR_API void tensor_set_generator(tensor_generator_t g);
// Uniform in [0, 1).                            -> new f32;  grad none;  errors SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_rand_n(const int64_t *dims, int ndim);
// Standard normal (Box-Muller).                 -> new f32;  grad none;  errors SHAPE, OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_randn_n(const int64_t *dims, int ndim);
// Integers in [low, high).                      -> new i64;  grad none;  errors SHAPE if high <= low
TENSOR_API tensor_t *tensor_randint_n(int64_t low, int64_t high, const int64_t *dims, int ndim);
// A random order of 0..n-1.                     -> new i64 [n];  grad none;  errors SHAPE
TENSOR_API tensor_t *tensor_randperm(int64_t n);
// 1 with probability p (elementwise), else 0.   -> new, shape and dtype of p;  grad zero;  errors DTYPE
TENSOR_API tensor_t *tensor_bernoulli(tensor_t *p);
// Rows of weights (>= 0) give n indices each, drawn with replacement.   -> new i64 [..., n];  errors SHAPE, DTYPE
TENSOR_API tensor_t *tensor_multinomial(tensor_t *weights, int64_t n);
// Fills x with uniform numbers from [low, high) (normal ones).   -> x;  errors AUTOGRAD, DTYPE
TENSOR_API tensor_t *tensor_uniform_(tensor_t *x, double low, double high);
TENSOR_API tensor_t *tensor_normal_(tensor_t *x, double mean, double std);

// ------------------------------------------------------------------------------
// >>autograd                                       MARK: autograd
//
// A tape of nodes ordered by sequence number; backward pops them from a heap on the calling thread, never recursing.
// Values saved for backward are checked against their storage's version: "no error" means the gradients are right.
// ------------------------------------------------------------------------------

// Marks a leaf as wanting a gradient (or not).
//   x       f32 f64 f16 bf16; not the result of a recorded operation
//   -> x;  errors DTYPE (integers), AUTOGRAD (switching off on a non-leaf)
TENSOR_API tensor_t *tensor_requires_grad_(tensor_t *x, int on);
// Whether x requires grad / was made by the user rather than a recorded op.   -> 1 or 0;  errors none
TENSOR_API int tensor_requires_grad(tensor_t *x);
TENSOR_API int tensor_is_leaf(tensor_t *x);
// The accumulated gradient.   -> borrowed (owned by x); NULL if there is none;  errors none
TENSOR_API tensor_t *tensor_grad(tensor_t *x);
// Sets the gradient (NULL drops it).   -> code;  errors SHAPE, DTYPE
TENSOR_API int tensor_set_grad(tensor_t *x, tensor_t *grad);
// Keeps the gradient of a non-leaf in tensor_grad(x) during backward.   -> x;  errors AUTOGRAD
TENSOR_API tensor_t *tensor_retain_grad(tensor_t *x);
// Whether operations of the calling thread are recorded.   -> 1 or 0;  errors none
TENSOR_API int tensor_grad_enabled(void);

// Adds d loss / d leaf into the grad of every leaf that requires it; frees the graph's saved values.
//   loss    one element
//   -> code;  errors AUTOGRAD (loss does not require grad, not one element, second pass, changed saved value)
TENSOR_API int tensor_backward(tensor_t *loss);

enum { TENSOR_RETAIN_GRAPH = 1, TENSOR_CREATE_GRAPH = 2, TENSOR_ALLOW_UNUSED = 4 };   // CREATE implies RETAIN

// The same for any shape, with the gradient to start from.
//   grad    shape and dtype of y; NULL = 1 (y of one element)
//   flags   TENSOR_RETAIN_GRAPH | TENSOR_CREATE_GRAPH
//   -> code;  errors AUTOGRAD, SHAPE
TENSOR_API int tensor_backward_with(tensor_t *y, tensor_t *grad, int flags);

// Gradients of outputs with respect to inputs, without touching any .grad (torch.autograd.grad).
//   outputs  no tensors; grad_outputs their gradients (NULL, or NULL entries, = 1 for one element)
//   inputs   ni tensors, leaves or not; gradients[i] receives d / d inputs[i], always filled
//   flags    as above; TENSOR_ALLOW_UNUSED gives NULL instead of an error for an input outside the graph
//   -> code (gradients are new, poison on failure);  errors AUTOGRAD, SHAPE
TENSOR_API int tensor_autograd_grad(tensor_t *const *outputs, int no, tensor_t *const *grad_outputs,
                                    tensor_t *const *inputs, int ni, tensor_t **gradients, int flags);

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
// Inside forward: keeps x (an input or the result) for backward, as saved value slot (0..7).   -> code;  errors INDEX
TENSOR_API int tensor_save_for_backward(tensor_function_ctx_t *ctx, int slot, tensor_t *x);
// Inside backward: the saved value.   -> borrowed;  errors AUTOGRAD if it was changed since
TENSOR_API tensor_t *tensor_saved(tensor_function_ctx_t *ctx, int slot);
// Inside backward: whether the gradient of input i is wanted.   -> 1 or 0;  errors none
TENSOR_API int tensor_needs_input_grad(tensor_function_ctx_t *ctx, int i);
// The user pointer given to tensor_apply.   -> borrowed;  errors none
TENSOR_API void *tensor_function_user(tensor_function_ctx_t *ctx);

// Compares autograd with central differences in f64 (PyTorch: eps 1e-6, atol 1e-5, rtol 1e-3).
//   fn      scalar or tensor function of n inputs; called many times
//   inputs  n f64 leaves that require grad (others are constants)
//   -> code, AUTOGRAD with the worst element in the text if they disagree;  errors AUTOGRAD, DTYPE
TENSOR_API int tensor_gradcheck(tensor_t *(*fn)(tensor_t *const *inputs, int n, void *user), void *user,
                                tensor_t *const *inputs, int n, double eps, double atol, double rtol);
// The same for the gradient of the gradient.   -> code;  errors AUTOGRAD, DTYPE
TENSOR_API int tensor_gradgradcheck(tensor_t *(*fn)(tensor_t *const *inputs, int n, void *user), void *user,
                                    tensor_t *const *inputs, int n, double eps, double atol, double rtol);

// What the macros of >>sites call: they note the place of a call in its result, or in its error.
TENSOR_API tensor_t *tensor__at(const char *site, tensor_t *t);
TENSOR_API tensor_pair_t tensor__at_pair(const char *site, tensor_pair_t p);
TENSOR_API int tensor__at_int(const char *site, int r);
TENSOR_API int64_t tensor__at_i64(const char *site, int64_t r);
TENSOR_API double tensor__at_f64(const char *site, double r);
TENSOR_API const void *tensor__at_ptr(const char *site, const void *p);

#ifdef __cplusplus
}
#endif

// ------------------------------------------------------------------------------
// >>sites                                          MARK: call sites, variadic sugar
//
// Each function is hidden behind a macro of its name that calls it and then stamps the place of the call on what it made
// (or on the error it raised). Afterwards rather than as an argument: functions keep their plain signature for bindings
// and function pointers, and nested calls evaluate in the right order. (name)(args) calls without a stamp.
// ------------------------------------------------------------------------------

#define tensor_scope_return(...) tensor__at(TENSOR_HERE, (tensor_scope_return)(__VA_ARGS__))
#define tensor_keep(...) tensor__at(TENSOR_HERE, (tensor_keep)(__VA_ARGS__))
#define tensor_empty_like(...) tensor__at(TENSOR_HERE, (tensor_empty_like)(__VA_ARGS__))
#define tensor_zeros_like(...) tensor__at(TENSOR_HERE, (tensor_zeros_like)(__VA_ARGS__))
#define tensor_ones_like(...) tensor__at(TENSOR_HERE, (tensor_ones_like)(__VA_ARGS__))
#define tensor_full_like(...) tensor__at(TENSOR_HERE, (tensor_full_like)(__VA_ARGS__))
#define tensor_scalar(...) tensor__at(TENSOR_HERE, (tensor_scalar)(__VA_ARGS__))
#define tensor_arange(...) tensor__at(TENSOR_HERE, (tensor_arange)(__VA_ARGS__))
#define tensor_linspace(...) tensor__at(TENSOR_HERE, (tensor_linspace)(__VA_ARGS__))
#define tensor_eye(...) tensor__at(TENSOR_HERE, (tensor_eye)(__VA_ARGS__))
#define tensor_clone(...) tensor__at(TENSOR_HERE, (tensor_clone)(__VA_ARGS__))
#define tensor_to(...) tensor__at(TENSOR_HERE, (tensor_to)(__VA_ARGS__))
#define tensor_contiguous(...) tensor__at(TENSOR_HERE, (tensor_contiguous)(__VA_ARGS__))
#define tensor_flatten(...) tensor__at(TENSOR_HERE, (tensor_flatten)(__VA_ARGS__))
#define tensor_transpose(...) tensor__at(TENSOR_HERE, (tensor_transpose)(__VA_ARGS__))
#define tensor_mT(...) tensor__at(TENSOR_HERE, (tensor_mT)(__VA_ARGS__))
#define tensor_movedim(...) tensor__at(TENSOR_HERE, (tensor_movedim)(__VA_ARGS__))
#define tensor_unsqueeze(...) tensor__at(TENSOR_HERE, (tensor_unsqueeze)(__VA_ARGS__))
#define tensor_squeeze(...) tensor__at(TENSOR_HERE, (tensor_squeeze)(__VA_ARGS__))
#define tensor_narrow(...) tensor__at(TENSOR_HERE, (tensor_narrow)(__VA_ARGS__))
#define tensor_select(...) tensor__at(TENSOR_HERE, (tensor_select)(__VA_ARGS__))
#define tensor_slice(...) tensor__at(TENSOR_HERE, (tensor_slice)(__VA_ARGS__))
#define tensor_at(...) tensor__at(TENSOR_HERE, (tensor_at)(__VA_ARGS__))
#define tensor_as_strided(...) tensor__at(TENSOR_HERE, (tensor_as_strided)(__VA_ARGS__))
#define tensor_as_strided_scatter(...) tensor__at(TENSOR_HERE, (tensor_as_strided_scatter)(__VA_ARGS__))
#define tensor_detach(...) tensor__at(TENSOR_HERE, (tensor_detach)(__VA_ARGS__))
#define tensor_abs(...) tensor__at(TENSOR_HERE, (tensor_abs)(__VA_ARGS__))
#define tensor_acos(...) tensor__at(TENSOR_HERE, (tensor_acos)(__VA_ARGS__))
#define tensor_asin(...) tensor__at(TENSOR_HERE, (tensor_asin)(__VA_ARGS__))
#define tensor_atan(...) tensor__at(TENSOR_HERE, (tensor_atan)(__VA_ARGS__))
#define tensor_ceil(...) tensor__at(TENSOR_HERE, (tensor_ceil)(__VA_ARGS__))
#define tensor_clamp(...) tensor__at(TENSOR_HERE, (tensor_clamp)(__VA_ARGS__))
#define tensor_cos(...) tensor__at(TENSOR_HERE, (tensor_cos)(__VA_ARGS__))
#define tensor_cosh(...) tensor__at(TENSOR_HERE, (tensor_cosh)(__VA_ARGS__))
#define tensor_elu(...) tensor__at(TENSOR_HERE, (tensor_elu)(__VA_ARGS__))
#define tensor_erf(...) tensor__at(TENSOR_HERE, (tensor_erf)(__VA_ARGS__))
#define tensor_erfc(...) tensor__at(TENSOR_HERE, (tensor_erfc)(__VA_ARGS__))
#define tensor_exp(...) tensor__at(TENSOR_HERE, (tensor_exp)(__VA_ARGS__))
#define tensor_exp2(...) tensor__at(TENSOR_HERE, (tensor_exp2)(__VA_ARGS__))
#define tensor_expm1(...) tensor__at(TENSOR_HERE, (tensor_expm1)(__VA_ARGS__))
#define tensor_floor(...) tensor__at(TENSOR_HERE, (tensor_floor)(__VA_ARGS__))
#define tensor_gelu(...) tensor__at(TENSOR_HERE, (tensor_gelu)(__VA_ARGS__))
#define tensor_gelu_tanh(...) tensor__at(TENSOR_HERE, (tensor_gelu_tanh)(__VA_ARGS__))
#define tensor_leaky_relu(...) tensor__at(TENSOR_HERE, (tensor_leaky_relu)(__VA_ARGS__))
#define tensor_log(...) tensor__at(TENSOR_HERE, (tensor_log)(__VA_ARGS__))
#define tensor_log10(...) tensor__at(TENSOR_HERE, (tensor_log10)(__VA_ARGS__))
#define tensor_log1p(...) tensor__at(TENSOR_HERE, (tensor_log1p)(__VA_ARGS__))
#define tensor_log2(...) tensor__at(TENSOR_HERE, (tensor_log2)(__VA_ARGS__))
#define tensor_logsigmoid(...) tensor__at(TENSOR_HERE, (tensor_logsigmoid)(__VA_ARGS__))
#define tensor_neg(...) tensor__at(TENSOR_HERE, (tensor_neg)(__VA_ARGS__))
#define tensor_reciprocal(...) tensor__at(TENSOR_HERE, (tensor_reciprocal)(__VA_ARGS__))
#define tensor_relu(...) tensor__at(TENSOR_HERE, (tensor_relu)(__VA_ARGS__))
#define tensor_round(...) tensor__at(TENSOR_HERE, (tensor_round)(__VA_ARGS__))
#define tensor_rsqrt(...) tensor__at(TENSOR_HERE, (tensor_rsqrt)(__VA_ARGS__))
#define tensor_sigmoid(...) tensor__at(TENSOR_HERE, (tensor_sigmoid)(__VA_ARGS__))
#define tensor_sign(...) tensor__at(TENSOR_HERE, (tensor_sign)(__VA_ARGS__))
#define tensor_silu(...) tensor__at(TENSOR_HERE, (tensor_silu)(__VA_ARGS__))
#define tensor_sin(...) tensor__at(TENSOR_HERE, (tensor_sin)(__VA_ARGS__))
#define tensor_sinh(...) tensor__at(TENSOR_HERE, (tensor_sinh)(__VA_ARGS__))
#define tensor_softplus(...) tensor__at(TENSOR_HERE, (tensor_softplus)(__VA_ARGS__))
#define tensor_sqrt(...) tensor__at(TENSOR_HERE, (tensor_sqrt)(__VA_ARGS__))
#define tensor_square(...) tensor__at(TENSOR_HERE, (tensor_square)(__VA_ARGS__))
#define tensor_tan(...) tensor__at(TENSOR_HERE, (tensor_tan)(__VA_ARGS__))
#define tensor_tanh(...) tensor__at(TENSOR_HERE, (tensor_tanh)(__VA_ARGS__))
#define tensor_trunc(...) tensor__at(TENSOR_HERE, (tensor_trunc)(__VA_ARGS__))
#define tensor_add(...) tensor__at(TENSOR_HERE, (tensor_add)(__VA_ARGS__))
#define tensor_atan2(...) tensor__at(TENSOR_HERE, (tensor_atan2)(__VA_ARGS__))
#define tensor_div(...) tensor__at(TENSOR_HERE, (tensor_div)(__VA_ARGS__))
#define tensor_floor_divide(...) tensor__at(TENSOR_HERE, (tensor_floor_divide)(__VA_ARGS__))
#define tensor_fmod(...) tensor__at(TENSOR_HERE, (tensor_fmod)(__VA_ARGS__))
#define tensor_maximum(...) tensor__at(TENSOR_HERE, (tensor_maximum)(__VA_ARGS__))
#define tensor_minimum(...) tensor__at(TENSOR_HERE, (tensor_minimum)(__VA_ARGS__))
#define tensor_mul(...) tensor__at(TENSOR_HERE, (tensor_mul)(__VA_ARGS__))
#define tensor_pow(...) tensor__at(TENSOR_HERE, (tensor_pow)(__VA_ARGS__))
#define tensor_remainder(...) tensor__at(TENSOR_HERE, (tensor_remainder)(__VA_ARGS__))
#define tensor_sub(...) tensor__at(TENSOR_HERE, (tensor_sub)(__VA_ARGS__))
#define tensor_add_scalar(...) tensor__at(TENSOR_HERE, (tensor_add_scalar)(__VA_ARGS__))
#define tensor_div_scalar(...) tensor__at(TENSOR_HERE, (tensor_div_scalar)(__VA_ARGS__))
#define tensor_floor_divide_scalar(...) tensor__at(TENSOR_HERE, (tensor_floor_divide_scalar)(__VA_ARGS__))
#define tensor_fmod_scalar(...) tensor__at(TENSOR_HERE, (tensor_fmod_scalar)(__VA_ARGS__))
#define tensor_maximum_scalar(...) tensor__at(TENSOR_HERE, (tensor_maximum_scalar)(__VA_ARGS__))
#define tensor_minimum_scalar(...) tensor__at(TENSOR_HERE, (tensor_minimum_scalar)(__VA_ARGS__))
#define tensor_mul_scalar(...) tensor__at(TENSOR_HERE, (tensor_mul_scalar)(__VA_ARGS__))
#define tensor_pow_scalar(...) tensor__at(TENSOR_HERE, (tensor_pow_scalar)(__VA_ARGS__))
#define tensor_remainder_scalar(...) tensor__at(TENSOR_HERE, (tensor_remainder_scalar)(__VA_ARGS__))
#define tensor_rsub_scalar(...) tensor__at(TENSOR_HERE, (tensor_rsub_scalar)(__VA_ARGS__))
#define tensor_sub_scalar(...) tensor__at(TENSOR_HERE, (tensor_sub_scalar)(__VA_ARGS__))
#define tensor_where(...) tensor__at(TENSOR_HERE, (tensor_where)(__VA_ARGS__))
#define tensor_lerp(...) tensor__at(TENSOR_HERE, (tensor_lerp)(__VA_ARGS__))
#define tensor_addcmul(...) tensor__at(TENSOR_HERE, (tensor_addcmul)(__VA_ARGS__))
#define tensor_addcdiv(...) tensor__at(TENSOR_HERE, (tensor_addcdiv)(__VA_ARGS__))
#define tensor_eq(...) tensor__at(TENSOR_HERE, (tensor_eq)(__VA_ARGS__))
#define tensor_ge(...) tensor__at(TENSOR_HERE, (tensor_ge)(__VA_ARGS__))
#define tensor_gt(...) tensor__at(TENSOR_HERE, (tensor_gt)(__VA_ARGS__))
#define tensor_le(...) tensor__at(TENSOR_HERE, (tensor_le)(__VA_ARGS__))
#define tensor_lt(...) tensor__at(TENSOR_HERE, (tensor_lt)(__VA_ARGS__))
#define tensor_ne(...) tensor__at(TENSOR_HERE, (tensor_ne)(__VA_ARGS__))
#define tensor_eq_scalar(...) tensor__at(TENSOR_HERE, (tensor_eq_scalar)(__VA_ARGS__))
#define tensor_ge_scalar(...) tensor__at(TENSOR_HERE, (tensor_ge_scalar)(__VA_ARGS__))
#define tensor_gt_scalar(...) tensor__at(TENSOR_HERE, (tensor_gt_scalar)(__VA_ARGS__))
#define tensor_le_scalar(...) tensor__at(TENSOR_HERE, (tensor_le_scalar)(__VA_ARGS__))
#define tensor_lt_scalar(...) tensor__at(TENSOR_HERE, (tensor_lt_scalar)(__VA_ARGS__))
#define tensor_ne_scalar(...) tensor__at(TENSOR_HERE, (tensor_ne_scalar)(__VA_ARGS__))
#define tensor_logical_and(...) tensor__at(TENSOR_HERE, (tensor_logical_and)(__VA_ARGS__))
#define tensor_logical_or(...) tensor__at(TENSOR_HERE, (tensor_logical_or)(__VA_ARGS__))
#define tensor_logical_xor(...) tensor__at(TENSOR_HERE, (tensor_logical_xor)(__VA_ARGS__))
#define tensor_logical_not(...) tensor__at(TENSOR_HERE, (tensor_logical_not)(__VA_ARGS__))
#define tensor_isnan(...) tensor__at(TENSOR_HERE, (tensor_isnan)(__VA_ARGS__))
#define tensor_isinf(...) tensor__at(TENSOR_HERE, (tensor_isinf)(__VA_ARGS__))
#define tensor_isfinite(...) tensor__at(TENSOR_HERE, (tensor_isfinite)(__VA_ARGS__))
#define tensor_bitwise_and(...) tensor__at(TENSOR_HERE, (tensor_bitwise_and)(__VA_ARGS__))
#define tensor_bitwise_or(...) tensor__at(TENSOR_HERE, (tensor_bitwise_or)(__VA_ARGS__))
#define tensor_bitwise_xor(...) tensor__at(TENSOR_HERE, (tensor_bitwise_xor)(__VA_ARGS__))
#define tensor_bitwise_not(...) tensor__at(TENSOR_HERE, (tensor_bitwise_not)(__VA_ARGS__))
#define tensor_add_(...) tensor__at(TENSOR_HERE, (tensor_add_)(__VA_ARGS__))
#define tensor_sub_(...) tensor__at(TENSOR_HERE, (tensor_sub_)(__VA_ARGS__))
#define tensor_mul_(...) tensor__at(TENSOR_HERE, (tensor_mul_)(__VA_ARGS__))
#define tensor_div_(...) tensor__at(TENSOR_HERE, (tensor_div_)(__VA_ARGS__))
#define tensor_add_scalar_(...) tensor__at(TENSOR_HERE, (tensor_add_scalar_)(__VA_ARGS__))
#define tensor_sub_scalar_(...) tensor__at(TENSOR_HERE, (tensor_sub_scalar_)(__VA_ARGS__))
#define tensor_mul_scalar_(...) tensor__at(TENSOR_HERE, (tensor_mul_scalar_)(__VA_ARGS__))
#define tensor_div_scalar_(...) tensor__at(TENSOR_HERE, (tensor_div_scalar_)(__VA_ARGS__))
#define tensor_addcmul_(...) tensor__at(TENSOR_HERE, (tensor_addcmul_)(__VA_ARGS__))
#define tensor_abs_(...) tensor__at(TENSOR_HERE, (tensor_abs_)(__VA_ARGS__))
#define tensor_clamp_(...) tensor__at(TENSOR_HERE, (tensor_clamp_)(__VA_ARGS__))
#define tensor_exp_(...) tensor__at(TENSOR_HERE, (tensor_exp_)(__VA_ARGS__))
#define tensor_neg_(...) tensor__at(TENSOR_HERE, (tensor_neg_)(__VA_ARGS__))
#define tensor_relu_(...) tensor__at(TENSOR_HERE, (tensor_relu_)(__VA_ARGS__))
#define tensor_sigmoid_(...) tensor__at(TENSOR_HERE, (tensor_sigmoid_)(__VA_ARGS__))
#define tensor_sqrt_(...) tensor__at(TENSOR_HERE, (tensor_sqrt_)(__VA_ARGS__))
#define tensor_tanh_(...) tensor__at(TENSOR_HERE, (tensor_tanh_)(__VA_ARGS__))
#define tensor_copy_(...) tensor__at(TENSOR_HERE, (tensor_copy_)(__VA_ARGS__))
#define tensor_fill_(...) tensor__at(TENSOR_HERE, (tensor_fill_)(__VA_ARGS__))
#define tensor_zero_(...) tensor__at(TENSOR_HERE, (tensor_zero_)(__VA_ARGS__))
#define tensor_masked_fill_(...) tensor__at(TENSOR_HERE, (tensor_masked_fill_)(__VA_ARGS__))
#define tensor_sum(...) tensor__at(TENSOR_HERE, (tensor_sum)(__VA_ARGS__))
#define tensor_mean(...) tensor__at(TENSOR_HERE, (tensor_mean)(__VA_ARGS__))
#define tensor_prod(...) tensor__at(TENSOR_HERE, (tensor_prod)(__VA_ARGS__))
#define tensor_max(...) tensor__at(TENSOR_HERE, (tensor_max)(__VA_ARGS__))
#define tensor_min(...) tensor__at(TENSOR_HERE, (tensor_min)(__VA_ARGS__))
#define tensor_argmax(...) tensor__at(TENSOR_HERE, (tensor_argmax)(__VA_ARGS__))
#define tensor_argmin(...) tensor__at(TENSOR_HERE, (tensor_argmin)(__VA_ARGS__))
#define tensor_any(...) tensor__at(TENSOR_HERE, (tensor_any)(__VA_ARGS__))
#define tensor_all(...) tensor__at(TENSOR_HERE, (tensor_all)(__VA_ARGS__))
#define tensor_var(...) tensor__at(TENSOR_HERE, (tensor_var)(__VA_ARGS__))
#define tensor_std(...) tensor__at(TENSOR_HERE, (tensor_std)(__VA_ARGS__))
#define tensor_norm(...) tensor__at(TENSOR_HERE, (tensor_norm)(__VA_ARGS__))
#define tensor_sum_dim(...) tensor__at(TENSOR_HERE, (tensor_sum_dim)(__VA_ARGS__))
#define tensor_mean_dim(...) tensor__at(TENSOR_HERE, (tensor_mean_dim)(__VA_ARGS__))
#define tensor_prod_dim(...) tensor__at(TENSOR_HERE, (tensor_prod_dim)(__VA_ARGS__))
#define tensor_amax_dim(...) tensor__at(TENSOR_HERE, (tensor_amax_dim)(__VA_ARGS__))
#define tensor_amin_dim(...) tensor__at(TENSOR_HERE, (tensor_amin_dim)(__VA_ARGS__))
#define tensor_argmax_dim(...) tensor__at(TENSOR_HERE, (tensor_argmax_dim)(__VA_ARGS__))
#define tensor_argmin_dim(...) tensor__at(TENSOR_HERE, (tensor_argmin_dim)(__VA_ARGS__))
#define tensor_any_dim(...) tensor__at(TENSOR_HERE, (tensor_any_dim)(__VA_ARGS__))
#define tensor_all_dim(...) tensor__at(TENSOR_HERE, (tensor_all_dim)(__VA_ARGS__))
#define tensor_var_dim(...) tensor__at(TENSOR_HERE, (tensor_var_dim)(__VA_ARGS__))
#define tensor_std_dim(...) tensor__at(TENSOR_HERE, (tensor_std_dim)(__VA_ARGS__))
#define tensor_norm_dim(...) tensor__at(TENSOR_HERE, (tensor_norm_dim)(__VA_ARGS__))
#define tensor_logsumexp(...) tensor__at(TENSOR_HERE, (tensor_logsumexp)(__VA_ARGS__))
#define tensor_sum_dims(...) tensor__at(TENSOR_HERE, (tensor_sum_dims)(__VA_ARGS__))
#define tensor_mean_dims(...) tensor__at(TENSOR_HERE, (tensor_mean_dims)(__VA_ARGS__))
#define tensor_cumsum(...) tensor__at(TENSOR_HERE, (tensor_cumsum)(__VA_ARGS__))
#define tensor_softmax(...) tensor__at(TENSOR_HERE, (tensor_softmax)(__VA_ARGS__))
#define tensor_log_softmax(...) tensor__at(TENSOR_HERE, (tensor_log_softmax)(__VA_ARGS__))
#define tensor_matmul(...) tensor__at(TENSOR_HERE, (tensor_matmul)(__VA_ARGS__))
#define tensor_mm(...) tensor__at(TENSOR_HERE, (tensor_mm)(__VA_ARGS__))
#define tensor_bmm(...) tensor__at(TENSOR_HERE, (tensor_bmm)(__VA_ARGS__))
#define tensor_mv(...) tensor__at(TENSOR_HERE, (tensor_mv)(__VA_ARGS__))
#define tensor_dot(...) tensor__at(TENSOR_HERE, (tensor_dot)(__VA_ARGS__))
#define tensor_outer(...) tensor__at(TENSOR_HERE, (tensor_outer)(__VA_ARGS__))
#define tensor_addmm(...) tensor__at(TENSOR_HERE, (tensor_addmm)(__VA_ARGS__))
#define tensor_tril(...) tensor__at(TENSOR_HERE, (tensor_tril)(__VA_ARGS__))
#define tensor_triu(...) tensor__at(TENSOR_HERE, (tensor_triu)(__VA_ARGS__))
#define tensor_index_select(...) tensor__at(TENSOR_HERE, (tensor_index_select)(__VA_ARGS__))
#define tensor_index_add(...) tensor__at(TENSOR_HERE, (tensor_index_add)(__VA_ARGS__))
#define tensor_gather(...) tensor__at(TENSOR_HERE, (tensor_gather)(__VA_ARGS__))
#define tensor_scatter_add(...) tensor__at(TENSOR_HERE, (tensor_scatter_add)(__VA_ARGS__))
#define tensor_scatter(...) tensor__at(TENSOR_HERE, (tensor_scatter)(__VA_ARGS__))
#define tensor_masked_fill(...) tensor__at(TENSOR_HERE, (tensor_masked_fill)(__VA_ARGS__))
#define tensor_masked_select(...) tensor__at(TENSOR_HERE, (tensor_masked_select)(__VA_ARGS__))
#define tensor_one_hot(...) tensor__at(TENSOR_HERE, (tensor_one_hot)(__VA_ARGS__))
#define tensor_randperm(...) tensor__at(TENSOR_HERE, (tensor_randperm)(__VA_ARGS__))
#define tensor_bernoulli(...) tensor__at(TENSOR_HERE, (tensor_bernoulli)(__VA_ARGS__))
#define tensor_multinomial(...) tensor__at(TENSOR_HERE, (tensor_multinomial)(__VA_ARGS__))
#define tensor_uniform_(...) tensor__at(TENSOR_HERE, (tensor_uniform_)(__VA_ARGS__))
#define tensor_normal_(...) tensor__at(TENSOR_HERE, (tensor_normal_)(__VA_ARGS__))
#define tensor_requires_grad_(...) tensor__at(TENSOR_HERE, (tensor_requires_grad_)(__VA_ARGS__))
#define tensor_grad(...) tensor__at(TENSOR_HERE, (tensor_grad)(__VA_ARGS__))
#define tensor_retain_grad(...) tensor__at(TENSOR_HERE, (tensor_retain_grad)(__VA_ARGS__))
#define tensor_apply(...) tensor__at(TENSOR_HERE, (tensor_apply)(__VA_ARGS__))
#define tensor_saved(...) tensor__at(TENSOR_HERE, (tensor_saved)(__VA_ARGS__))
#define tensor_scope_reset(...) tensor__at_int(TENSOR_HERE, (tensor_scope_reset)(__VA_ARGS__))
#define tensor_scope_end(...) tensor__at_int(TENSOR_HERE, (tensor_scope_end)(__VA_ARGS__))
#define tensor_free(...) tensor__at_int(TENSOR_HERE, (tensor_free)(__VA_ARGS__))
#define tensor_set(...) tensor__at_int(TENSOR_HERE, (tensor_set)(__VA_ARGS__))
#define tensor_copy_out(...) tensor__at_int(TENSOR_HERE, (tensor_copy_out)(__VA_ARGS__))
#define tensor_allclose(...) tensor__at_int(TENSOR_HERE, (tensor_allclose)(__VA_ARGS__))
#define tensor_equal(...) tensor__at_int(TENSOR_HERE, (tensor_equal)(__VA_ARGS__))
#define tensor_print(...) tensor__at_int(TENSOR_HERE, (tensor_print)(__VA_ARGS__))
#define tensor_split(...) tensor__at_int(TENSOR_HERE, (tensor_split)(__VA_ARGS__))
#define tensor_chunk(...) tensor__at_int(TENSOR_HERE, (tensor_chunk)(__VA_ARGS__))
#define tensor_set_grad(...) tensor__at_int(TENSOR_HERE, (tensor_set_grad)(__VA_ARGS__))
#define tensor_backward(...) tensor__at_int(TENSOR_HERE, (tensor_backward)(__VA_ARGS__))
#define tensor_backward_with(...) tensor__at_int(TENSOR_HERE, (tensor_backward_with)(__VA_ARGS__))
#define tensor_autograd_grad(...) tensor__at_int(TENSOR_HERE, (tensor_autograd_grad)(__VA_ARGS__))
#define tensor_save_for_backward(...) tensor__at_int(TENSOR_HERE, (tensor_save_for_backward)(__VA_ARGS__))
#define tensor_gradcheck(...) tensor__at_int(TENSOR_HERE, (tensor_gradcheck)(__VA_ARGS__))
#define tensor_gradgradcheck(...) tensor__at_int(TENSOR_HERE, (tensor_gradgradcheck)(__VA_ARGS__))
#define tensor_size(...) tensor__at_i64(TENSOR_HERE, (tensor_size)(__VA_ARGS__))
#define tensor_stride(...) tensor__at_i64(TENSOR_HERE, (tensor_stride)(__VA_ARGS__))
#define tensor_item_i64(...) tensor__at_i64(TENSOR_HERE, (tensor_item_i64)(__VA_ARGS__))
#define tensor_item(...) tensor__at_f64(TENSOR_HERE, (tensor_item)(__VA_ARGS__))
#define tensor_data(...) tensor__at_ptr(TENSOR_HERE, (tensor_data)(__VA_ARGS__))
#define tensor_max_dim(...) tensor__at_pair(TENSOR_HERE, (tensor_max_dim)(__VA_ARGS__))
#define tensor_min_dim(...) tensor__at_pair(TENSOR_HERE, (tensor_min_dim)(__VA_ARGS__))
// Options are designated initialisers over one args struct per function: site_ first (which also allows an empty list), the
// positional arguments, surplus_ (a surplus positional argument warns), the options. In C++14 and later the members
// have initialisers, so that a partial list stays silent.
#define TENSOR_ARGS(type, ...) ((type){.site_ = TENSOR_HERE, __VA_ARGS__})
#if defined(__cplusplus) && __cplusplus >= 201402L
#define TENSOR_INIT {}
#else
#define TENSOR_INIT
#endif

// The plain twins are stamped too.
#define tensor_empty_n(...) tensor__at(TENSOR_HERE, (tensor_empty_n)(__VA_ARGS__))
#define tensor_zeros_n(...) tensor__at(TENSOR_HERE, (tensor_zeros_n)(__VA_ARGS__))
#define tensor_ones_n(...) tensor__at(TENSOR_HERE, (tensor_ones_n)(__VA_ARGS__))
#define tensor_full_n(...) tensor__at(TENSOR_HERE, (tensor_full_n)(__VA_ARGS__))
#define tensor_from_n(...) tensor__at(TENSOR_HERE, (tensor_from_n)(__VA_ARGS__))
#define tensor_wrap_n(...) tensor__at(TENSOR_HERE, (tensor_wrap_n)(__VA_ARGS__))
#define tensor_reshape_n(...) tensor__at(TENSOR_HERE, (tensor_reshape_n)(__VA_ARGS__))
#define tensor_view_n(...) tensor__at(TENSOR_HERE, (tensor_view_n)(__VA_ARGS__))
#define tensor_permute_n(...) tensor__at(TENSOR_HERE, (tensor_permute_n)(__VA_ARGS__))
#define tensor_expand_n(...) tensor__at(TENSOR_HERE, (tensor_expand_n)(__VA_ARGS__))
#define tensor_cat_n(...) tensor__at(TENSOR_HERE, (tensor_cat_n)(__VA_ARGS__))
#define tensor_stack_n(...) tensor__at(TENSOR_HERE, (tensor_stack_n)(__VA_ARGS__))
#define tensor_repeat_n(...) tensor__at(TENSOR_HERE, (tensor_repeat_n)(__VA_ARGS__))
#define tensor_rand_n(...) tensor__at(TENSOR_HERE, (tensor_rand_n)(__VA_ARGS__))
#define tensor_randn_n(...) tensor__at(TENSOR_HERE, (tensor_randn_n)(__VA_ARGS__))
#define tensor_randint_n(...) tensor__at(TENSOR_HERE, (tensor_randint_n)(__VA_ARGS__))

#ifndef __cplusplus

#define TENSOR__C1(a) (int64_t)(a)
#define TENSOR__C2(a, b) (int64_t)(a), (int64_t)(b)
#define TENSOR__C3(a, b, c) (int64_t)(a), (int64_t)(b), (int64_t)(c)
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

#define tensor_empty(...) tensor_empty_n(TENSOR_DIMS(__VA_ARGS__), TENSOR_F32)
#define tensor_zeros(...) tensor_zeros_n(TENSOR_DIMS(__VA_ARGS__), TENSOR_F32)
#define tensor_ones(...) tensor_ones_n(TENSOR_DIMS(__VA_ARGS__), TENSOR_F32)
#define tensor_empty_of(dtype, ...) tensor_empty_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_zeros_of(dtype, ...) tensor_zeros_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_ones_of(dtype, ...) tensor_ones_n(TENSOR_DIMS(__VA_ARGS__), dtype)
#define tensor_full(value, ...) tensor_full_n(TENSOR_DIMS(__VA_ARGS__), value, TENSOR_F32)
#define tensor_full_of(dtype, value, ...) tensor_full_n(TENSOR_DIMS(__VA_ARGS__), value, dtype)
#define tensor_from(data, dtype, ...) tensor_from_n(data, dtype, TENSOR_DIMS(__VA_ARGS__))
#define tensor_wrap(data, dtype, ...) tensor_wrap_n(data, dtype, TENSOR_DIMS(__VA_ARGS__), 0, 0)
#define tensor_reshape(x, ...) tensor_reshape_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_view(x, ...) tensor_view_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_permute(x, ...) tensor_permute_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_expand(x, ...) tensor_expand_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_repeat(x, ...) tensor_repeat_n(x, TENSOR_DIMS(__VA_ARGS__))
#define tensor_rand(...) tensor_rand_n(TENSOR_DIMS(__VA_ARGS__))
#define tensor_randn(...) tensor_randn_n(TENSOR_DIMS(__VA_ARGS__))
#define tensor_randint(low, high, ...) tensor_randint_n(low, high, TENSOR_DIMS(__VA_ARGS__))
#define tensor_cat(dim, ...) tensor_cat_n(TENSOR_LIST(__VA_ARGS__), dim)
#define tensor_stack(dim, ...) tensor_stack_n(TENSOR_LIST(__VA_ARGS__), dim)

#else   // C++

// ------------------------------------------------------------------------------
// >>cpp                                            MARK: C++ face
//
// Variadic templates instead of compound literals, so that nothing here is an extension in C++11. tensor_scope_guard ends
// its scope at the closing brace; tensor_ref keeps a tensor and frees it, and has the operators.
// ------------------------------------------------------------------------------

struct tensor_dims_pack {
    int64_t d[TENSOR_MAX_DIMS];
    int n;
    template <class... D> explicit tensor_dims_pack(D... dims) : d{static_cast<int64_t>(dims)...}, n(sizeof...(D)) {
        static_assert(sizeof...(D) <= TENSOR_MAX_DIMS, "at most 8 dims");
    }
};
template <class... D> inline tensor_t *tensor_empty(D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_empty_n)(p.d, p.n, TENSOR_F32);
}
template <class... D> inline tensor_t *tensor_zeros(D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_zeros_n)(p.d, p.n, TENSOR_F32);
}
template <class... D> inline tensor_t *tensor_ones(D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_ones_n)(p.d, p.n, TENSOR_F32);
}
template <class... D> inline tensor_t *tensor_empty_of(tensor_dtype_t dtype, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_empty_n)(p.d, p.n, dtype);
}
template <class... D> inline tensor_t *tensor_zeros_of(tensor_dtype_t dtype, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_zeros_n)(p.d, p.n, dtype);
}
template <class... D> inline tensor_t *tensor_ones_of(tensor_dtype_t dtype, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_ones_n)(p.d, p.n, dtype);
}
template <class... D> inline tensor_t *tensor_full(double value, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_full_n)(p.d, p.n, value, TENSOR_F32);
}
template <class... D> inline tensor_t *tensor_full_of(tensor_dtype_t dtype, double value, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_full_n)(p.d, p.n, value, dtype);
}
template <class... D> inline tensor_t *tensor_from(const void *data, tensor_dtype_t dtype, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_from_n)(data, dtype, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_wrap(void *data, tensor_dtype_t dtype, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_wrap_n)(data, dtype, p.d, p.n, nullptr, nullptr);
}
template <class... D> inline tensor_t *tensor_reshape(tensor_t *x, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_reshape_n)(x, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_view(tensor_t *x, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_view_n)(x, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_permute(tensor_t *x, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_permute_n)(x, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_expand(tensor_t *x, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_expand_n)(x, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_repeat(tensor_t *x, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_repeat_n)(x, p.d, p.n);
}
template <class... D> inline tensor_t *tensor_rand(D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_rand_n)(p.d, p.n);
}
template <class... D> inline tensor_t *tensor_randn(D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_randn_n)(p.d, p.n);
}
template <class... D> inline tensor_t *tensor_randint(int64_t low, int64_t high, D... dims) {
    tensor_dims_pack p(dims...);
    return (tensor_randint_n)(low, high, p.d, p.n);
}
template <class... T> inline tensor_t *tensor_cat(int64_t dim, T... list) {
    tensor_t *const l[] = {list...};
    return (tensor_cat_n)(l, static_cast<int>(sizeof...(T)), dim);
}
template <class... T> inline tensor_t *tensor_stack(int64_t dim, T... list) {
    tensor_t *const l[] = {list...};
    return (tensor_stack_n)(l, static_cast<int>(sizeof...(T)), dim);
}
#define tensor_empty(...) tensor__at(TENSOR_HERE, (tensor_empty)(__VA_ARGS__))
#define tensor_zeros(...) tensor__at(TENSOR_HERE, (tensor_zeros)(__VA_ARGS__))
#define tensor_ones(...) tensor__at(TENSOR_HERE, (tensor_ones)(__VA_ARGS__))
#define tensor_empty_of(...) tensor__at(TENSOR_HERE, (tensor_empty_of)(__VA_ARGS__))
#define tensor_zeros_of(...) tensor__at(TENSOR_HERE, (tensor_zeros_of)(__VA_ARGS__))
#define tensor_ones_of(...) tensor__at(TENSOR_HERE, (tensor_ones_of)(__VA_ARGS__))
#define tensor_full(...) tensor__at(TENSOR_HERE, (tensor_full)(__VA_ARGS__))
#define tensor_full_of(...) tensor__at(TENSOR_HERE, (tensor_full_of)(__VA_ARGS__))
#define tensor_from(...) tensor__at(TENSOR_HERE, (tensor_from)(__VA_ARGS__))
#define tensor_wrap(...) tensor__at(TENSOR_HERE, (tensor_wrap)(__VA_ARGS__))
#define tensor_reshape(...) tensor__at(TENSOR_HERE, (tensor_reshape)(__VA_ARGS__))
#define tensor_view(...) tensor__at(TENSOR_HERE, (tensor_view)(__VA_ARGS__))
#define tensor_permute(...) tensor__at(TENSOR_HERE, (tensor_permute)(__VA_ARGS__))
#define tensor_expand(...) tensor__at(TENSOR_HERE, (tensor_expand)(__VA_ARGS__))
#define tensor_repeat(...) tensor__at(TENSOR_HERE, (tensor_repeat)(__VA_ARGS__))
#define tensor_rand(...) tensor__at(TENSOR_HERE, (tensor_rand)(__VA_ARGS__))
#define tensor_randn(...) tensor__at(TENSOR_HERE, (tensor_randn)(__VA_ARGS__))
#define tensor_randint(...) tensor__at(TENSOR_HERE, (tensor_randint)(__VA_ARGS__))
#define tensor_cat(...) tensor__at(TENSOR_HERE, (tensor_cat)(__VA_ARGS__))
#define tensor_stack(...) tensor__at(TENSOR_HERE, (tensor_stack)(__VA_ARGS__))

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

// A kept tensor, move-only: tensor_keep on construction, tensor_free at the end. Converts to tensor_t *.
class tensor_ref {
  public:
    tensor_ref() : t_(nullptr) {}
    tensor_ref(tensor_t *t) : t_((tensor_keep)(t)) {}
    tensor_ref(tensor_ref &&o) noexcept : t_(o.t_) { o.t_ = nullptr; }
    tensor_ref &operator=(tensor_ref &&o) noexcept {
        if (this != &o) { (tensor_free)(t_); t_ = o.t_; o.t_ = nullptr; }
        return *this;
    }
    tensor_ref &operator=(tensor_t *t) {
        (tensor_set)(&t_, t);
        return *this;
    }
    ~tensor_ref() { (tensor_free)(t_); }
    operator tensor_t *() const { return t_; }
    tensor_t *get() const { return t_; }

  private:
    tensor_ref(const tensor_ref &);
    tensor_ref &operator=(const tensor_ref &);
    tensor_t *t_;
};
inline tensor_t *operator+(const tensor_ref &a, const tensor_ref &b) { return (tensor_add)(a.get(), b.get()); }
inline tensor_t *operator+(const tensor_ref &a, tensor_t *b) { return (tensor_add)(a.get(), b); }
inline tensor_t *operator+(tensor_t *a, const tensor_ref &b) { return (tensor_add)(a, b.get()); }
inline tensor_t *operator+(const tensor_ref &a, double b) { return (tensor_add_scalar)(a.get(), b); }
inline tensor_t *operator-(const tensor_ref &a, const tensor_ref &b) { return (tensor_sub)(a.get(), b.get()); }
inline tensor_t *operator-(const tensor_ref &a, tensor_t *b) { return (tensor_sub)(a.get(), b); }
inline tensor_t *operator-(tensor_t *a, const tensor_ref &b) { return (tensor_sub)(a, b.get()); }
inline tensor_t *operator-(const tensor_ref &a, double b) { return (tensor_sub_scalar)(a.get(), b); }
inline tensor_t *operator*(const tensor_ref &a, const tensor_ref &b) { return (tensor_mul)(a.get(), b.get()); }
inline tensor_t *operator*(const tensor_ref &a, tensor_t *b) { return (tensor_mul)(a.get(), b); }
inline tensor_t *operator*(tensor_t *a, const tensor_ref &b) { return (tensor_mul)(a, b.get()); }
inline tensor_t *operator*(const tensor_ref &a, double b) { return (tensor_mul_scalar)(a.get(), b); }
inline tensor_t *operator/(const tensor_ref &a, const tensor_ref &b) { return (tensor_div)(a.get(), b.get()); }
inline tensor_t *operator/(const tensor_ref &a, tensor_t *b) { return (tensor_div)(a.get(), b); }
inline tensor_t *operator/(tensor_t *a, const tensor_ref &b) { return (tensor_div)(a, b.get()); }
inline tensor_t *operator/(const tensor_ref &a, double b) { return (tensor_div_scalar)(a.get(), b); }

#endif

#endif   // TENSOR_H_INCLUDED_7C1E

// ------------------------------------------------------------------------------
// >>shared                                         MARK: layouts shared with tensor_nn.h and backends
//
// What a separately compiled tensor_nn.h or backend needs: layouts, the call, the op tables. At link time they meet in
// one symbol, tensor__internals(). Rejected: exporting every private function (clashes, frozen signatures).
// ------------------------------------------------------------------------------

#if defined(TENSOR_IMPLEMENTATION) || defined(TENSOR_NN_IMPLEMENTATION) || defined(TENSOR_BACKEND)
#ifndef TENSOR_SHARED_7C1E
#define TENSOR_SHARED_7C1E

#include <math.h>
#include <stdarg.h>
#include <string.h>

#if (defined(__FAST_MATH__) || defined(_M_FP_FAST)) && !defined(TENSOR_ALLOW_FAST_MATH)
#error "tensor.h: -ffast-math breaks NaN rules and equal bits; define TENSOR_ALLOW_FAST_MATH to build all the same"
#endif

#define TENSOR__FN static TENSOR__UNUSED
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

// Adds a reference.
#define TENSOR__HOLD(p) ((void)TENSOR__ATOMIC_ADD(p, 1))
// Drops one; true if it was the last. The sole owner (count 1) needs no locked instruction.
#define TENSOR__DROP(p) (TENSOR__ATOMIC_LOAD(p) == 1 || TENSOR__ATOMIC_ADD(p, -1) == 1)

enum { TENSOR__API_VERSION = 1, TENSOR__MAX_IN = 8, TENSOR__MAX_OUT = 4 };
enum { TENSOR__LIVE = 0x7E50B001, TENSOR__DEAD = 0x7E50DEAD, TENSOR__POISON_STATE = 0x7E50BAD0 };
enum {                                  // tensor_t.flags
    TENSOR__REQUIRES_GRAD = 1,          // leaf marked by the user
    TENSOR__RETAINS_GRAD = 2, TENSOR__CONTIGUOUS = 4,
    TENSOR__NO_GRAD_VIEW = 8            // view made under no_grad: an in-place change cannot be recorded
};

typedef struct tensor__thread_t tensor__thread_t;
typedef struct tensor__node_t tensor__node_t;
typedef struct tensor__storage_t tensor__storage_t;
typedef struct tensor__row_t tensor__row_t;
typedef struct tensor__grad_t tensor__grad_t;

// Bytes shared by views. version counts in-place changes; write_op/write_site name the last one for error texts.
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
    uint8_t dtype, ndim, device, flags;
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
    tensor_t *next;                     // in a free list
    uint64_t epoch;                     // scope resets of the home thread at its death
    tensor__count_t lock;               // guards grad during accumulation
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
};

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
typedef struct tensor_params_t { double f[4]; int64_t i[12]; } tensor_params_t;

// A call of one kernel: everything a backend needs.
typedef struct tensor_call_t {
    const tensor__row_t *row;
    tensor_arg_t *arg;                  // nin inputs, then nout outputs
    int nin, nout;
    const tensor_params_t *p;
    tensor_generator_t rng;             // stream of this call, for random ops
    void *scratch;                      // row->scratch bytes, aligned to 64
    tensor__thread_t *thread;
} tensor_call_t;
typedef int (*tensor_kernel_t)(tensor_call_t *call);                    // -> tensor_code_t, after tensor__fail
typedef uint64_t (*tensor_scratch_t)(const tensor_call_t *call);        // bytes wanted

// Kernel families: a backend has one kernel per family. nn's are here too, so that one number names a family anywhere.
typedef enum tensor_family_t {
    TENSOR_FAMILY_POINTWISE, TENSOR_FAMILY_POINTWISE_BACKWARD, TENSOR_FAMILY_REDUCE, TENSOR_FAMILY_ROWS,
    TENSOR_FAMILY_MATMUL, TENSOR_FAMILY_INDEX, TENSOR_FAMILY_RANDOM, TENSOR_FAMILY_FILL, TENSOR_FAMILY_VIEW,
    TENSOR_FAMILY_COMPOSED, TENSOR_FAMILY_CUSTOM,
    TENSOR_FAMILY_CONV, TENSOR_FAMILY_POOL, TENSOR_FAMILY_NORM, TENSOR_FAMILY_EMBEDDING, TENSOR_FAMILY_DROPOUT,
    TENSOR_FAMILY_ATTENTION, TENSOR_FAMILY_LOSS, TENSOR_FAMILY_OPTIMIZER, TENSOR_FAMILY_COUNT
} tensor_family_t;

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
};
enum { TENSOR__SA = 1, TENSOR__SB = 2, TENSOR__SC = 4, TENSOR__SD = 8, TENSOR__SE = 16,   // saves input 0, 1, ..
       TENSOR__SY = 256, TENSOR__SY1 = 512, TENSOR__SY2 = 1024 };                         // saves output 0, 1, 2

// Where a gradient goes: an output of another node, or a leaf.
typedef struct tensor__edge_t { tensor__node_t *node; tensor_t *leaf; int32_t output; } tensor__edge_t;
typedef struct tensor__meta_t { const int64_t *dims; uint8_t ndim, dtype; } tensor__meta_t;
// A value kept for backward: never a header (a saved output would be a cycle).
typedef struct tensor__saved_t {
    tensor__storage_t *storage;         // NULL = absent or an immediate
    int64_t offset;
    const int64_t *dims, *strides;
    double immediate;
    uint32_t version;
    uint8_t ndim, dtype, is_immediate;
    int8_t source;                      // input k, or -1 - k for output k
} tensor__saved_t;

// A recorded operation. One block: struct, edges, saved values, metas, their dims, parameters.
struct tensor__node_t {
    tensor__count_t refs;
    int16_t klass;
    uint8_t nout, used;                 // used: its saved values were dropped by a backward pass
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
    tensor_t **retain;                  // nout headers whose grad is to be kept (not counted), or NULL
    void *custom;                       // tensor_function_ctx_t of a user function
    tensor__node_t *next;               // worklist of nodes being freed; free list
};

// What a gradient function sees. It fills gx[k] for the inputs that need one, with differentiable ops where create is set.
struct tensor__grad_t {
    tensor__thread_t *th;
    tensor__node_t *node;
    tensor_t **gy;                      // gradient of each output, NULL = zero
    tensor_t **gx;
    const tensor_params_t *p;
    int create;
    tensor_t *value[TENSOR__MAX_IN + TENSOR__MAX_OUT];   // unpacked saved values
};

// A public op under construction: begin (checks), result (outputs), finish (launch, record).
typedef struct tensor__op_t {
    tensor__thread_t *th;
    const tensor__row_t *row;
    tensor_t *const *in;
    int nin, nout;
    int update;                         // output 0 is input 0, changed in place
    int immediate;                      // input 1 is absent and stands for imm
    int visible;                        // outputs the user sees (1); the others are dropped after the tape saved them
    double imm;
    tensor_generator_t rng;             // stream of this call, for random ops (set from next_stream)
    tensor_t *out[TENSOR__MAX_OUT];
    tensor_params_t *p;                 // NULL = none
    tensor_params_t params;
    tensor_t *args[TENSOR__MAX_IN];     // storage for in
} tensor__op_t;

// An object that tensor_shutdown must free (modules, optimizers): embedded, linked into the context.
typedef struct tensor__owned_t { struct tensor__owned_t *next, **prev; void (*destroy)(struct tensor__owned_t *); }
    tensor__owned_t;

typedef void (*tensor__task_fn)(void *arg, int64_t task, int worker);   // worker 0..threads-1

// C[m,n] (+)= sum over k of A[m,k] B[k,n] (+ bias[n]), for each batch item. Strides and offsets in elements; any
// strides for A and B, C's column stride is 1.
typedef struct tensor__gemm_t {
    int64_t m, n, k;
    const void *a; int64_t ars, acs;
    const void *b; int64_t brs, bcs;
    void *c; int64_t crs;
    const int64_t *aoff, *boff, *coff; int64_t batch;   // offsets per item; NULL when batch == 1
    const void *bias;                                   // NULL = none
    int accumulate;                                     // C +=
    void *scratch; size_t scratch_bytes;
} tensor__gemm_t;

// The private functions other parts may call. In a file without the implementation the names below the struct stand for
// members of what tensor__internals gives.
typedef struct tensor__internals_t {
    int version; size_t size_tensor, size_call;
    tensor_t *poison;
    tensor__thread_t *(*self)(void);
    tensor_t *(*fail)(tensor__thread_t *th, int code, const char *format, ...);
    int (*begin)(tensor__op_t *o, const tensor__row_t *row, tensor_t *const *in, int nin);   // 0 = failed, raised
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
    void *(*memory)(tensor__thread_t *th, uint64_t bytes);   // zeroed, counted; NULL after raising OUT_OF_MEMORY
    void (*memory_free)(tensor__thread_t *th, void *p);
    void (*own)(tensor__thread_t *th, tensor__owned_t *o);
    void (*disown)(tensor__owned_t *o);
    tensor_t *(*hold)(tensor_t *t);                       // a library reference
    void (*drop)(tensor_t *t);
    void (*push_path)(tensor__thread_t *th, const char *name);   // module path for error texts
    void (*pop_path)(tensor__thread_t *th);
    void (*load)(void *to, int to_dtype, const void *from, int from_dtype, int64_t n);   // converts n elements
    void (*philox)(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4]);
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
// One row per op, alphabetical inside its group. Pointwise rows hold their formula and its derivatives in the vocabulary
// below; the others name functions. To add an op: a row here, its public prototype with docs above, its cases in
// tests/ops.c; a pointwise op needs nothing else, another one a front (checks, shape) and a kernel or gradient.
//
// Pointwise columns: ID, name, kind, formula in F_A F_B F_C, derivative for each operand (times F_G), what the derivatives
// read, domain of test inputs, doc. Kinds: FLT integers become f32; NUM keeps integers; SAV as NUM, but integers
// only ever as operands of a scalar-parameter op computed in double.
// ------------------------------------------------------------------------------

// clang-format off
#define TENSOR__FLT 0
#define TENSOR__NUM 1
#define TENSOR__CMP 2
#define TENSOR__LOG 3
#define TENSOR__BIT 4

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
    X(LEAKY_RELU, leaky_relu, FLT, F_SEL(F_GT(F_A, F_C(0)), F_A, F_MUL(F_A, F_P(0))), F_SEL(F_GT(F_A, F_C(0)), F_G, F_MUL(F_G, F_P(0))), TENSOR__SA, -3, 3, "x > 0 ? x : slope x") \
    X(LOG, log, FLT, F_LOG(F_A), F_DIV(F_G, F_A), TENSOR__SA, 0.1, 5, "natural logarithm") \
    X(LOG10, log10, FLT, F_LOG10(F_A), F_DIV(F_G, F_MUL(F_A, F_C(2.302585092994046))), TENSOR__SA, 0.1, 5, "decimal logarithm") \
    X(LOG1P, log1p, FLT, F_LOG1P(F_A), F_DIV(F_G, F_ADD(F_C(1), F_A)), TENSOR__SA, -0.9, 4, "log(1 + x)") \
    X(LOG2, log2, FLT, F_LOG2(F_A), F_DIV(F_G, F_MUL(F_A, F_C(0.6931471805599453))), TENSOR__SA, 0.1, 5, "binary logarithm") \
    X(LOGSIGMOID, logsigmoid, FLT, F_SUB(F_MIN(F_A, F_C(0)), F_LOG1P(F_EXP(F_NEG(F_ABS(F_A))))), F_MUL(F_G, F_SIGMOID(F_NEG(F_A))), TENSOR__SA, -4, 4, "log(sigmoid(x))") \
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
    X(ATAN2, atan2, FLT, F_ATAN2(F_A, F_B), F_DIV(F_MUL(F_G, F_B), F_ADD(F_MUL(F_A, F_A), F_MUL(F_B, F_B))), F_NEG(F_DIV(F_MUL(F_G, F_A), F_ADD(F_MUL(F_A, F_A), F_MUL(F_B, F_B)))), TENSOR__SA | TENSOR__SB, 0.2, 3, "angle of the point (b, a)") \
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
    X(ADDCMUL, addcmul, FLT, F_ADD(F_A, F_MUL(F_P(0), F_MUL(F_B, F_C_))), F_G, F_MUL(F_G, F_MUL(F_P(0), F_C_)), F_MUL(F_G, F_MUL(F_P(0), F_B)), TENSOR__SB | TENSOR__SC, -3, 3, "x + value a b") \
    X(LERP, lerp, FLT, F_ADD(F_A, F_MUL(F_C_, F_SUB(F_B, F_A))), F_MUL(F_G, F_SUB(F_C(1), F_C_)), F_MUL(F_G, F_C_), F_MUL(F_G, F_SUB(F_B, F_A)), TENSOR__SA | TENSOR__SB | TENSOR__SC, -3, 3, "a + weight (b - a)") \
    X(WHERE, where, NUM, F_SEL(F_NE(F_A, F_C(0)), F_B, F_C_), F_C(0), F_SEL(F_NE(F_A, F_C(0)), F_G, F_C(0)), F_SEL(F_NE(F_A, F_C(0)), F_C(0), F_G), TENSOR__SA, -3, 3, "condition ? a : b")

// Results are bool; no gradient. Columns: ID, name, operands, kind, formula (a mask), doc.
#define TENSOR_OPS_COMPARE(X) \
    X(EQ, eq, 2, CMP, F_EQ(F_A, F_B), "a == b") \
    X(GE, ge, 2, CMP, F_GE(F_A, F_B), "a >= b") \
    X(GT, gt, 2, CMP, F_GT(F_A, F_B), "a > b") \
    X(ISFINITE, isfinite, 1, CMP, F_EQ(F_SUB(F_A, F_A), F_C(0)), "neither infinite nor NaN") \
    X(ISINF, isinf, 1, CMP, F_EQ(F_ABS(F_A), F_INF), "infinite") \
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
    X(BITWISE_NOT, bitwise_not, 1, ~a, "bits flipped; logical not for bool") \
    X(BITWISE_OR, bitwise_or, 2, a | b, "bits in either") \
    X(BITWISE_XOR, bitwise_xor, 2, a ^ b, "bits in one only")

// The rest. Columns: ID, name, family, inputs, outputs, CPU kernel, scratch, gradient (NOGRAD), saves, doc.
#define TENSOR_OPS_OTHER(X) \
    X(AMAX, amax, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_amax, TENSOR__SA | TENSOR__SY, "largest element; ties share the gradient") \
    X(AMIN, amin, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_amax, TENSOR__SA | TENSOR__SY, "smallest element; ties share the gradient") \
    X(ALL, all, REDUCE, 1, 1, tensor__cpu_reduce, NULL, NOGRAD, 0, "whether all are true") \
    X(ANY, any, REDUCE, 1, 1, tensor__cpu_reduce, NULL, NOGRAD, 0, "whether any is true") \
    X(ARANGE, arange, FILL, 0, 1, tensor__cpu_fill, NULL, NOGRAD, 0, "f[0] + i f[1]") \
    X(ARGMAX, argmax, ROWS, 1, 1, tensor__cpu_rows, NULL, NOGRAD, 0, "index of the largest along the last dim") \
    X(ARGMIN, argmin, ROWS, 1, 1, tensor__cpu_rows, NULL, NOGRAD, 0, "index of the smallest along the last dim") \
    X(AS_STRIDED, as_strided, VIEW, 1, 1, NULL, NULL, tensor__grad_as_strided, 0, "any view; every other view is recorded as this") \
    X(AS_STRIDED_SCATTER, as_strided_scatter, COMPOSED, 2, 1, NULL, NULL, tensor__grad_as_strided_scatter, 0, "x with a view of it replaced") \
    X(BERNOULLI, bernoulli, RANDOM, 1, 1, tensor__cpu_random, NULL, NOGRAD, 0, "1 with probability p") \
    X(CAT, cat, COMPOSED, -1, 1, NULL, NULL, tensor__grad_cat, 0, "tensors joined along dim i[0]") \
    X(CUMSUM, cumsum, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_cumsum, 0, "running sum along the last dim") \
    X(CUSTOM, custom, CUSTOM, -1, 1, NULL, NULL, tensor__grad_custom, 0, "a user's function") \
    X(FILL, fill, FILL, 0, 1, tensor__cpu_fill, NULL, tensor__grad_fill, 0, "f[0] everywhere") \
    X(GATHER, gather, INDEX, 2, 1, tensor__cpu_index, NULL, tensor__grad_gather, TENSOR__SB, "elements named by index along dim i[0]") \
    X(INDEX_ADD, index_add, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_index_add, TENSOR__SB, "rows added at index along dim i[0]") \
    X(INDEX_SELECT, index_select, INDEX, 2, 1, tensor__cpu_index, NULL, tensor__grad_index_select, TENSOR__SB, "rows named by index along dim i[0]") \
    X(LOG_SOFTMAX, log_softmax, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_log_softmax, TENSOR__SY, "x - logsumexp(x) along the last dim") \
    X(LOG_SOFTMAX_BACKWARD, log_softmax_backward, ROWS, 2, 1, tensor__cpu_rows, NULL, NOGRAD, 0, "g - exp(y) sum(g); inputs g, y") \
    X(LOGSUMEXP, logsumexp, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_logsumexp, TENSOR__SA | TENSOR__SY, "log of the sum of e^x along the last dim") \
    X(MATMUL, matmul, MATMUL, 2, 1, tensor__cpu_matmul, tensor__scratch_matmul, tensor__grad_matmul, TENSOR__SA | TENSOR__SB, "batched matrix product") \
    X(MEAN, mean, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_mean, 0, "mean over the dims of mask i[0]") \
    X(NORM, norm, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_norm, TENSOR__SA | TENSOR__SY, "2-norm along the last dim") \
    X(PROD, prod, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_prod, TENSOR__SA, "product") \
    X(RAND, rand, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "uniform in [f[0], f[1])") \
    X(RANDINT, randint, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "integers in [i[0], i[1])") \
    X(RANDN, randn, RANDOM, 0, 1, tensor__cpu_random, NULL, NOGRAD, 0, "normal with mean f[0], deviation f[1]") \
    X(SCATTER, scatter, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_scatter, TENSOR__SB, "elements replaced at index along dim i[0]") \
    X(SCATTER_ADD, scatter_add, INDEX, 3, 1, tensor__cpu_index, NULL, tensor__grad_scatter_add, TENSOR__SB, "elements added at index along dim i[0]") \
    X(SOFTMAX, softmax, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_softmax, TENSOR__SY, "e^x / sum of e^x along the last dim") \
    X(SOFTMAX_BACKWARD, softmax_backward, ROWS, 2, 1, tensor__cpu_rows, NULL, NOGRAD, 0, "y (g - sum(g y)); inputs g, y") \
    X(SUM, sum, REDUCE, 1, 1, tensor__cpu_reduce, NULL, tensor__grad_sum, 0, "sum over the dims of mask i[0]") \
    X(TRIL, tril, FILL, 1, 1, tensor__cpu_tri, NULL, tensor__grad_tril, 0, "zeros above the i[0]-th diagonal") \
    X(TRIU, triu, FILL, 1, 1, tensor__cpu_tri, NULL, tensor__grad_tril, 0, "zeros below the i[0]-th diagonal") \
    X(VAR, var, ROWS, 1, 1, tensor__cpu_rows, NULL, tensor__grad_var, TENSOR__SA, "two-pass variance along the last dim, divisor n - i[0]")
// clang-format on

typedef enum tensor_op_id_t {
#define TENSOR__X(ID, ...) TENSOR_OP_##ID,
    TENSOR_OPS_UNARY(TENSOR__X) TENSOR_OPS_COPY(TENSOR__X) TENSOR_OPS_BINARY(TENSOR__X)
    TENSOR_OPS_TERNARY(TENSOR__X) TENSOR_OPS_COMPARE(TENSOR__X) TENSOR_OPS_BITWISE(TENSOR__X)
    TENSOR_OP_POINTWISE_COUNT, TENSOR__OP_BEFORE_OTHER = TENSOR_OP_POINTWISE_COUNT - 1,
    TENSOR_OPS_OTHER(TENSOR__X)
#undef TENSOR__X
    TENSOR_OP_COUNT,
    TENSOR_OP_NN_FIRST = 512        // tensor_nn.h's own table starts here
} tensor_op_id_t;

// ------------------------------------------------------------------------------
// >>vocabulary                                     MARK: words of the formulas
//
// A row's text means five things: f64 (the reference, libm allowed), f32 in scalar or vector registers (once per instruction
// set), int64_t with wrap-around (NUM rows on integers), CUDA, and tensor_t * (the derivative of a derivative). Each
// meaning defines these words before it expands the rows:
//
//   F_A F_B F_C_      operands        F_Y  result        F_G  incoming gradient    F_P(k) parameter f[k]
//   F_C(x)            constant        F_INF infinity
//   F_ADD F_SUB F_MUL F_DIV F_NEG F_ABS F_SIGN F_SQRT F_RSQRT F_MIN F_MAX (both NaN-propagating)
//   F_FLOORDIV F_FMOD F_REMAINDER F_FLOOR F_CEIL F_TRUNC F_ROUND F_POW F_ATAN2
//   F_EXP F_EXP2 F_EXPM1 F_LOG F_LOG2 F_LOG10 F_LOG1P F_SIN F_COS F_TAN F_ASIN F_ACOS F_ATAN F_SINH F_COSH F_TANH
//   F_SIGMOID F_ERF F_ERFC F_GELU
//   F_LT F_LE F_GT F_GE F_EQ F_NE F_ISNAN give masks; F_AND F_OR F_XOR combine them; F_SEL(mask, x, y)
//
// and these are spelt in the others, for all meanings at once:
#define F_GELU_U(x) F_MUL(F_C(0.7978845608028654), F_ADD(x, F_MUL(F_C(0.044715), F_MUL(x, F_MUL(x, x)))))
#define F_GELU_TANH_D(x, t)                                                                                  \
    F_ADD(F_MUL(F_C(0.5), F_ADD(F_C(1), t)),                                                                 \
          F_MUL(F_MUL(F_MUL(F_C(0.5), x), F_SUB(F_C(1), F_MUL(t, t))),                                       \
                F_MUL(F_C(0.7978845608028654), F_ADD(F_C(1), F_MUL(F_C(0.134145), F_MUL(x, x))))))
// ------------------------------------------------------------------------------

#endif   // TENSOR_SHARED_7C1E
#endif   // TENSOR_IMPLEMENTATION || TENSOR_NN_IMPLEMENTATION || TENSOR_BACKEND

#endif   // TENSOR__PASS


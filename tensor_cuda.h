// tensor_cuda.h - v0.2.0 - the CUDA backend of tensor.h: start, streams, memory, what runs where
// Licence: MIT-0 or public domain, at your choice; full text at the end of tensor.h.
//
//   nvcc -std=c++17 -O3 -fmad=false -arch=native -c tensor_cuda.cu
//   cc program.c libtensor.a tensor_cuda.o -lcudart_static -lstdc++ -ldl -lrt -lpthread -lm
//
//   if (tensor_cuda_init() == 0) { tensor_set_default_device(TENSOR_CUDA); }
//   ... as on the CPU ...
//   tensor_shutdown();
//   tensor_cuda_shutdown();
//
// CONTENTS (search for the tag)
//   >>cuda-manual  >>cuda-start  >>cuda-streams  >>cuda-graphs  >>cuda-memory  >>cuda-interop  >>cuda-ops
//   >>cuda-libraries  >>cuda-ranks  >>cuda-sites
#ifndef TENSOR_CUDA_H_INCLUDED_7C1E
#define TENSOR_CUDA_H_INCLUDED_7C1E

#include "tensor.h"

// ------------------------------------------------------------------------------
// >>cuda-manual                                    MARK: manual
//
// This header includes no header of CUDA, and tensor.h does not depend on it: tensor_cuda_init() installs the
// backend in the calling thread's context. A program that is not linked with tensor_cuda.o works as before. A
// program that is linked with it also starts on a machine without a driver, and stays on the CPU.
//
// Ops run in order on the thread's current stream of the device, which is the device's default stream unless
// tensor_cuda_set_stream sets another. They are asynchronous: tensor_item, tensor_copy_out, tensor_to(x,
// TENSOR_CPU) and printing wait for that stream; tensor_cuda_synchronize waits for all streams. An index that
// is out of range touches nothing else. It is an INDEX error, with the op and the place of its call, at the
// next of these functions; so are an integer divided by 0, weights from which nothing can be drawn, and
// (LINALG) a matrix without a result.
//
// A process makes contexts only on the devices that it uses; pinned memory is made on the one that the thread
// used last. Functions leave CUDA's current device of the thread as it was, unless that has no context yet:
// then it is the device of the call from then on, as in PyTorch.
//
// After an error of a kernel (CUDA) that is not about memory, no call of CUDA works in the process any more.
// Work on the CPU continues.
//
// If an op has no kernel of its own for a dtype, it runs on the CPU, over copies: the result is correct, but
// slow. >>cuda-ops tells which ops did so, and can forbid it.
//
// Matrix products use cuBLASLt. Convolutions, recurrent nets, attention, batch norm of f16 and bf16 or with
// channels innermost, and large layer norms use cuDNN. Each library is opened
// when it is first needed. Neither is required: if a library is missing, has another version, or has nothing
// for a shape, the kernels of tensor_cuda.cu do the op with the same accuracy, but slower. This is not an
// error; tensor_cuda_library_error says what was wrong, and the switches are beside it (>>cuda-libraries). If
// cublasLt.h or cudnn.h is not found when tensor_cuda.cu is compiled, it does without that library.
//
// tensor_cuda_init reads these environment variables. TENSOR_CUDA_NO_CACHE=1 gives every tensor an
// allocation of its own, which is freed at once: for memory checkers. TENSOR_CUDA_NO_RANGES=1 takes memory
// from cudaMalloc instead of mapping it piece by piece (this happens by itself if the driver refuses to map).
// TENSOR_CUDA_NO_LIBRARIES=1 is the same as tensor_cuda_set_libraries(0).
// ------------------------------------------------------------------------------

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>cuda-start                                     MARK: start, wait, end
//
// Devices are named as in tensor.h: TENSOR_CUDA + i.
// ------------------------------------------------------------------------------

// Starts the backend in the calling thread's context. A second call, or a call in another context, costs
// nothing.
//   -> code;  errors CUDA (no driver, no device, too old a driver, or CUDA's own message), UNSUPPORTED (a
//      device of compute capability below 7.5; all devices below what nvcc was given as -arch; built with
//      another tensor.h), OUT_OF_MEMORY
TENSOR_API int tensor_cuda_init(void);

// Whether there is a driver and a device.
//   -> 1 or 0;  errors none
TENSOR_API int tensor_cuda_is_available(void);

// Number of devices.
//   -> 0 if there is no driver;  errors none
TENSOR_API int tensor_cuda_device_count(void);

// Waits until the device has done all work that was queued before.
//   -> code;  errors DEVICE (no such device, not started), INDEX, LINALG (of an earlier op, as above),
//      UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_synchronize(tensor_device_t device);

// Gives all memory back to the driver. Call it after tensor_shutdown, because no tensor may be on a device
// any more.
//   -> code;  errors OWNER (memory or a graph is still in use)
TENSOR_API int tensor_cuda_shutdown(void);

// ------------------------------------------------------------------------------
// >>cuda-streams                                   MARK: streams, events
//
// If a tensor was made or is used by another stream, the stream that uses it waits for that one; its memory
// is used again only when all streams have finished with it. So streams need no events for the data in
// tensors, scopes may end at any time, and a backward pass may run on another stream than the forward pass.
// Threads that have set different streams run concurrently. NULL for a stream means the default stream of
// device 0 (a DEVICE error if that is not started). The use of a freed stream or event is noticed.
//
// tensor_capture_begin (tensor.h) captures the thread's current stream. Another stream of the device becomes
// part of the capture when it waits for a stream that is part of it (stream_wait_event for an event recorded
// in the capture, stream_wait_stream): in each replay its work runs beside the rest. Streams wait for each
// other's tensors as usual; before tensor_capture_end, the first stream must wait for all others. Until then
// only the capturing thread may use such a stream.
// ------------------------------------------------------------------------------

typedef struct tensor_cuda_stream_t tensor_cuda_stream_t;
typedef struct tensor_cuda_event_t tensor_cuda_event_t;

// Makes a queue of work beside the device's other streams; there can be 30 of them.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started), UNSUPPORTED (too many), CUDA
TENSOR_API tensor_cuda_stream_t *tensor_cuda_stream_new(tensor_device_t device);

// Frees a stream; its work still runs to the end. tensor_cuda_shutdown frees the streams that are left.
//   -> code;  errors OWNER (freed before, a default stream, the thread's current one), UNSUPPORTED (in a
//      capture)
TENSOR_API int tensor_cuda_stream_free(tensor_cuda_stream_t *stream);

// The default stream of a device; the stream that the calling thread's ops go to.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_default_stream(tensor_device_t device);
TENSOR_API tensor_cuda_stream_t *tensor_cuda_current_stream(tensor_device_t device);

// From now on the calling thread's ops on the stream's device go to this stream.
//   -> the previous stream, NULL on failure;  errors OWNER (it was freed)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_set_stream(tensor_cuda_stream_t *stream);

// Waits until the stream has done all work that was queued before.
//   -> code;  errors INDEX, LINALG (of an earlier op, as above), OWNER, UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_stream_synchronize(tensor_cuda_stream_t *stream);

// Whether the stream has done all work that was queued before.
//   -> 1 or 0;  errors as tensor_cuda_stream_synchronize, without INDEX, LINALG
TENSOR_API int tensor_cuda_stream_query(tensor_cuda_stream_t *stream);

// Later work of stream waits for the work before event / for the work queued on other so far. The host does
// not wait.
//   -> code;  errors OWNER, POISONED (event is NULL), UNSUPPORTED (in a capture, except for what belongs to
//      it), CUDA
TENSOR_API int tensor_cuda_stream_wait_event(tensor_cuda_stream_t *stream, tensor_cuda_event_t *event);
TENSOR_API int tensor_cuda_stream_wait_stream(tensor_cuda_stream_t *stream, tensor_cuda_stream_t *other);

// Says that work of stream which tensor.h does not see (a kernel of your own) uses x: its memory stays until
// that work is done.
//   -> code;  errors DEVICE (x is on another device), OWNER, POISONED
TENSOR_API int tensor_record_stream(tensor_t *x, tensor_cuda_stream_t *stream);

// A mark in a stream's work.
//   timing  1 = tensor_cuda_event_elapsed_time can use it
//   -> event, NULL on failure;  errors DEVICE (no such device, not started), CUDA
TENSOR_API tensor_cuda_event_t *tensor_cuda_event_new(tensor_device_t device, int timing);

// Frees it before tensor_cuda_shutdown does.   -> code;  errors OWNER (freed before), CUDA
TENSOR_API int tensor_cuda_event_free(tensor_cuda_event_t *event);

// Puts the mark after all work that was queued on the stream so far.
//   -> code;  errors DEVICE (event and stream on different devices), OWNER, POISONED, UNSUPPORTED (in a
//      capture, of a stream that is not part of it), CUDA
TENSOR_API int tensor_cuda_event_record(tensor_cuda_event_t *event, tensor_cuda_stream_t *stream);

// Whether the mark has been reached (1 if there is none); waits until it is reached.
//   -> 1 or 0 / code;  errors OWNER, POISONED, UNSUPPORTED (in a capture, or recorded in one), CUDA
TENSOR_API int tensor_cuda_event_query(tensor_cuda_event_t *event);
TENSOR_API int tensor_cuda_event_synchronize(tensor_cuda_event_t *event);

// Time between two marks, in milliseconds; waits for the mark end.
//   -> ms, NaN on failure;  errors OWNER, POISONED, UNSUPPORTED (no timing, no mark, in a capture), CUDA
TENSOR_API double tensor_cuda_event_elapsed_time(tensor_cuda_event_t *start, tensor_cuda_event_t *end);

// ------------------------------------------------------------------------------
// >>cuda-graphs                                    MARK: memory that graphs share
//
// A graph (tensor_capture_begin) has memory of its own, so that N graphs take the sum of what they need.
// Graphs that run one after the other, for example a step for each of several shapes, can share a pool
// instead (torch.cuda.graph_pool_handle): together they take what the largest of them needs, and their
// results.
//
//   tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA);
//   tensor_cuda_set_graph_pool(pool);               // for captures of this thread from now on
//   for (k = 0; k < n; k++) { tensor_capture_begin(TENSOR_CUDA); step(k); g[k] = tensor_capture_end(); }
//   tensor_cuda_set_graph_pool(NULL);
//
// As in PyTorch, captures of one stream share memory; another stream of a capture has a part of its own. A
// tensor that was made in a capture has its memory until it is freed: no later capture takes it. But it may
// lie where an earlier graph of the pool has its temporaries. So a replay destroys what graphs that were
// captured after it have left: run the graphs in the order of their captures, or read or copy such results
// before. Runs never overlap, on whatever streams and threads: each waits, on the device, for what was queued
// on the pool's memory before. tensor_cuda_empty_cache does not touch the memory of a pool that graphs use;
// it goes back with the last of them and of their results.
// ------------------------------------------------------------------------------

typedef struct tensor_cuda_graph_pool_t tensor_cuda_graph_pool_t;

// Makes a pool for graphs of a device. It takes no memory by itself.
//   -> pool, NULL on failure;  errors DEVICE (no such device, not started), OUT_OF_MEMORY
TENSOR_API tensor_cuda_graph_pool_t *tensor_cuda_graph_pool_new(tensor_device_t device);

// Frees a pool; graphs that use it go on, and keep its memory. tensor_cuda_shutdown frees the pools that are
// left.
//   -> code;  errors OWNER (freed before, the thread's)
TENSOR_API int tensor_cuda_graph_pool_free(tensor_cuda_graph_pool_t *pool);

// Captures that the calling thread begins from now on use this pool; NULL = each has memory of its own.
// Their tensor_capture_begin is an error if by then the pool was freed (OWNER) or the device is another one
// (DEVICE).
//   -> code;  errors OWNER (it was freed)
TENSOR_API int tensor_cuda_set_graph_pool(tensor_cuda_graph_pool_t *pool);

// ------------------------------------------------------------------------------
// >>cuda-memory                                    MARK: memory
//
// PyTorch's statistics under PyTorch's names: allocated is the memory of tensors, reserved the memory that
// the allocator holds. For a device that does not exist, all of them are 0.
// ------------------------------------------------------------------------------

// Bytes in tensors and scratch now; their maximum since the start or the last reset.
//   -> bytes;  errors none
TENSOR_API int64_t tensor_cuda_memory_allocated(tensor_device_t device);
TENSOR_API int64_t tensor_cuda_max_memory_allocated(tensor_device_t device);

// Bytes taken from the driver now; their maximum since the start or the last reset.
//   -> bytes;  errors none
TENSOR_API int64_t tensor_cuda_memory_reserved(tensor_device_t device);
TENSOR_API int64_t tensor_cuda_max_memory_reserved(tensor_device_t device);

// Sets the maxima to the present values.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_reset_peak_memory_stats(tensor_device_t device);

// Gives memory that no tensor uses back to the driver; waits for the device. TENSOR_CPU: pinned memory of the
// host (torch._C._host_emptyCache), which else stays for later copies.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_empty_cache(tensor_device_t device);

// Limits the reserved memory to a fraction of the device's memory.
//   fraction  in (0, 1]
//   -> code;  errors DEVICE (no such device, not started), INDEX (fraction out of range)
TENSOR_API int tensor_cuda_set_per_process_memory_fraction(double fraction, tensor_device_t device);

// All statistics, one line each: "allocated_bytes.all current 4096 peak 8192 allocated 12288 freed 8192".
//   line    called with user and each text; may call this library
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_memory_stats(tensor_device_t device, void (*line)(void *user, const char *text),
                                         void *user);

// Every block of memory, one JSON object per line, as all of them were at one moment.
//   line    called with user and each text; may call this library
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_memory_snapshot(tensor_device_t device,
                                            void (*line)(void *user, const char *text), void *user);

// The report of the calling thread's last failed allocation: sizes, what is in use, what is free.
//   -> borrowed string, "" = none failed;  errors none
TENSOR_API const char *tensor_cuda_memory_report(void);

// ------------------------------------------------------------------------------
// >>cuda-interop                                   MARK: memory and streams of the program's own
//
// For programs that call CUDA themselves. This header names no type of CUDA: a stream is a cudaStream_t as a
// void *.
//
//   float *p = tensor_cuda_data(x);                 // x's elements, on the device
//   void *s = tensor_cuda_stream_raw(tensor_cuda_current_stream(TENSOR_CUDA));
//   kernel<<<blocks, 256, 0, (cudaStream_t)s>>>(p);
// ------------------------------------------------------------------------------

// The address of x's first element on the device, for work that the program puts on the thread's current
// stream of x's device. That work may read and write there; it comes after what was queued before and before
// what is queued later. Call the function again for each such piece of work. The tape does not see what is
// written.
//   -> address, NULL on failure and for 0 elements;  errors POISONED, DEVICE (x is not on a CUDA device),
//      CUDA
TENSOR_API void *tensor_cuda_data(tensor_t *x);

// A tensor over the caller's device memory. The caller's earlier work on that memory must be finished or be
// on the thread's current stream. When the last user is gone, the library waits for the device's work on the
// memory and then calls the deleter.
//   dims     n sizes, contiguous
//   deleter  called once with (data, user); NULL = nothing to do
//   -> new;  grad none;  errors DEVICE (no such device, not started, the memory is on another one), SHAPE,
//      DTYPE (in these cases the deleter is not called), OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_cuda_wrap(void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim,
                                      tensor_device_t device, void (*deleter)(void *data, void *user),
                                      void *user);

// The cudaStream_t of a stream.
//   -> stream, NULL on failure;  errors OWNER (freed before), DEVICE (not started)
TENSOR_API void *tensor_cuda_stream_raw(tensor_cuda_stream_t *stream);

// A handle for the caller's cudaStream_t. It must belong to that device, must not be a default stream (NULL,
// cudaStreamLegacy, cudaStreamPerThread), and must exist until tensor_cuda_shutdown. The same cudaStream_t
// given twice is one stream.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started), POISONED (a default stream),
//      UNSUPPORTED (32 streams)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_stream_wrap(void *cuda_stream, tensor_device_t device);

// Device memory from the caller instead of cudaMalloc: large pieces, which the caching allocator divides.
// Both functions may be called from any thread, one at a time per device, also while a stream is being
// captured.
typedef struct tensor_cuda_allocator_t {
    void *user;
    void *(*alloc)(void *user, int device, uint64_t bytes);     // aligned to 512 bytes; NULL = none is left
    void (*free)(void *user, int device, void *data, uint64_t bytes);
} tensor_cuda_allocator_t;

// Call it before tensor_cuda_init; the struct is copied. NULL = the driver's functions again.
//   -> code;  errors OWNER (CUDA is started), POISONED (a function is NULL)
TENSOR_API int tensor_cuda_set_allocator(const tensor_cuda_allocator_t *allocator);

// Whether each op is an NVTX range with its name, for profilers. Without a profiler it costs some tens of
// nanoseconds per op.
//   on      0 (default) or 1
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_ranges(int on);

// A range of the program's own (a module's forward, a step) on the calling thread, if ranges are on; ranges
// nest.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_range_push(const char *name);
TENSOR_API void tensor_cuda_range_pop(void);

// A profiler for tensor_profiler_set: if ranges are on, each module's forward and each tensor_range_push of
// the thread are NVTX ranges too, and so is each gradient of a backward pass, as "matmul backward".
//   -> borrowed, the same for all threads;  errors none
TENSOR_API const tensor_profiler_t *tensor_cuda_profiler(void);

// ------------------------------------------------------------------------------
// >>cuda-ops                                       MARK: what runs where
//
// Which ops had a kernel on the device, and which ran on the CPU over copies.
// ------------------------------------------------------------------------------

// Calls since the program's start that ran on the CPU.
//   -> count;  errors none
TENSOR_API int64_t tensor_cuda_fallbacks(void);

// Whether an op without a kernel may run on the CPU; 0 makes it an UNSUPPORTED error with op and dtypes.
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_fallback(int on);

// Calls since the program's start by op; those of a gradient's fused kernel separately, as "exp backward".
//   line    called with user, the op's name, calls on the device, calls on the CPU
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_op_counts(void (*line)(void *user, const char *op, int64_t native,
                                                   int64_t fallback),
                                      void *user);

// ------------------------------------------------------------------------------
// >>cuda-libraries                                 MARK: cuBLASLt and cuDNN
//
// Whether the libraries are used, and how exactly. A switch applies to all threads, from the next op on.
// ------------------------------------------------------------------------------

// Whether the libraries may be used; 0 = only the kernels of tensor_cuda.cu.
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_libraries(int on);

// Whether f32 products may round their factors to TF32, 10 bits of mantissa
// (torch.backends.cuda.matmul.allow_tf32).
//   on      0 (default) or 1
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_matmul_tf32(int on);

// Whether f32 convolutions and cuDNN's recurrent nets may do so (torch.backends.cudnn.allow_tf32, also on
// there).
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_conv_tf32(int on);

// Whether the first call of a convolution, or of its gradients, of each shape tries up to 10 engines of cuDNN
// and keeps the fastest (torch.backends.cudnn.benchmark with its benchmark_limit); else cuDNN's first one is
// taken. All are deterministic and as exact as the switches above allow, but which one wins may differ from
// run to run, and with it the last bits of results. That call waits for the stream and takes some tens of
// runs. In a capture nothing is tried: run the step once before.
//   on      0 (default) or 1
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_benchmark(int on);

// Calls of ops since the start that were done by a library.
//   -> count;  errors none
TENSOR_API int64_t tensor_cuda_library_calls(void);

// Why the last op without a library did without it: which library is missing or of what version, or its
// message.
//   -> borrowed string, until the thread's next call of this function; "" = nothing was wrong;  errors none
TENSOR_API const char *tensor_cuda_library_error(void);

// ------------------------------------------------------------------------------
// >>cuda-ranks                                     MARK: one network on many devices
//
// Ranks are processes with one device each. They train copies of a network on parts of a batch; the average
// of their gradients is the gradient of the whole batch, so the copies stay the same. This is PyTorch's
// DistributedDataParallel, except that the program makes the calls itself:
//
//   char id[TENSOR_CUDA_ID_BYTES];
//   if (rank == 0) { tensor_cuda_comm_id(id); }     // send it to the others: a file, a socket, MPI
//   tensor_cuda_comm_t *c = tensor_cuda_comm_new(rank, ranks, id, TENSOR_CUDA + rank, 30);
//   for (k = 0; k < n; k++) { tensor_cuda_broadcast(c, p[k], 0); }              // nn_parameters(net, p, n)
//   ... tensor_backward(loss);
//   for (k = 0; k < n; k++) { g[k] = tensor_grad(p[k]); }
//   tensor_cuda_all_reduce_n(c, g, n, 1);           // then nn_step(opt)
//
// All ranks make the same calls in the same order. A parameter that was not used has no gradient on its rank
// and needs zeros there (tensor_set_grad), or the other ranks wait for it. The work goes to the thread's
// current stream of the device, and the host does not wait. NCCL does the work; it is opened when it is
// first needed. Tensors must be on the communicator's device and contiguous, or channels-last on all ranks
// (nn_channels_last; not to be gathered). In a capture these calls become part of the graph: all ranks
// capture the same step and replay it as often as the others do. Run the step once before: at the first call
// of a kind NCCL connects the ranks and takes memory, and the host waits for the others, also in a capture.
// Ranks that are threads of one process capture one after the other, so that they would wait for ever (until
// the timeout, if there is one).
// ------------------------------------------------------------------------------

enum { TENSOR_CUDA_ID_BYTES = 128 };
typedef struct tensor_cuda_comm_t tensor_cuda_comm_t;

// Fills TENSOR_CUDA_ID_BYTES bytes, which all ranks of one communicator need.
//   -> code;  errors CUDA (NCCL is missing, or its own message), POISONED (id is NULL)
TENSOR_API int tensor_cuda_comm_id(void *id);

// Makes one rank's end of a communicator; waits until all ranks have called it.
//   rank     0 .. ranks - 1
//   timeout  seconds that the host waits for other ranks, here and where a later call must wait for them;
//            0 = without a limit. The work on the stream has no limit: ask tensor_cuda_stream_query
//   -> communicator, NULL on failure;  errors as tensor_cuda_comm_id, CUDA (also a timeout where NCCL is
//      older than 2.14), IO (a rank has gone, or did not come in time), DEVICE (no such device, not
//      started), INDEX (rank)
TENSOR_API tensor_cuda_comm_t *tensor_cuda_comm_new(int rank, int ranks, const void *id,
                                                    tensor_device_t device, double timeout);

// Frees it when its work is done, for which it waits without a limit; tensor_cuda_shutdown frees those that
// are left. Graphs that use it must be freed before.
//   -> code;  errors OWNER (freed before, a graph uses it), UNSUPPORTED (in a capture), IO (other ranks do
//      not free theirs in time), CUDA
TENSOR_API int tensor_cuda_comm_free(tensor_cuda_comm_t *c);

// Frees it at once, where a rank has gone: work that waits for that rank ends, with anything as result, and
// streams go on; graphs that use it can only be freed. The other ranks have an error or wait until their time
// is over. _n does so for n
// communicators; those whose work waits on one device must be ended together.
//   -> code;  errors POISONED (the list is NULL), OWNER (freed before), UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_comm_abort(tensor_cuda_comm_t *c);
TENSOR_API int tensor_cuda_comm_abort_n(tensor_cuda_comm_t *const *c, int n);

// Sets x to the sum over all ranks, or to the mean; _n does so for n tensors, in one launch.
//   mean    1 or 0
//   -> code;  errors OWNER, POISONED, DEVICE (x is on another device), DTYPE (bool, i16), SHAPE (not
//      contiguous), UNSUPPORTED (the thread captures another stream), CUDA, OUT_OF_MEMORY, IO (a rank has
//      gone, or did not come in time)
TENSOR_API int tensor_cuda_all_reduce(tensor_cuda_comm_t *c, tensor_t *x, int mean);
TENSOR_API int tensor_cuda_all_reduce_n(tensor_cuda_comm_t *c, tensor_t *const *x, int n, int mean);

// Sets x to the x of rank `root`.
//   -> code;  errors as tensor_cuda_all_reduce, INDEX (root)
TENSOR_API int tensor_cuda_broadcast(tensor_cuda_comm_t *c, tensor_t *x, int root);

// y = the x of all ranks, one after the other; y has ranks times as many elements as x.
//   -> code;  errors as tensor_cuda_all_reduce, SHAPE (y's size), DTYPE (not x's)
TENSOR_API int tensor_cuda_all_gather(tensor_cuda_comm_t *c, tensor_t *y, tensor_t *x);

// The macros of >>cuda-sites call these: they note the place of a call in its error.
TENSOR_API tensor_cuda_stream_t *tensor__at_cuda_stream(const char *site, tensor_cuda_stream_t *s);
TENSOR_API tensor_cuda_event_t *tensor__at_cuda_event(const char *site, tensor_cuda_event_t *e);
TENSOR_API tensor_cuda_graph_pool_t *tensor__at_cuda_pool(const char *site, tensor_cuda_graph_pool_t *p);
TENSOR_API tensor_cuda_comm_t *tensor__at_cuda_comm(const char *site, tensor_cuda_comm_t *c);
TENSOR_API void *tensor__at_cuda_raw(const char *site, void *p);
TENSOR_API int tensor__at_cuda_end(const char *site, int code);

#ifdef __cplusplus
}
#endif

// ------------------------------------------------------------------------------
// >>cuda-sites                                     MARK: call sites
//
// As in tensor.h (>>sites): a function that can fail is hidden behind a macro of its name, which notes the
// place of the call in the error.
// ------------------------------------------------------------------------------

#if !defined(TENSOR_EDITOR) && !defined(TENSOR__CUDA_SOURCE)
#define tensor_cuda_init(...) TENSOR__CALL_KIND(int, tensor_cuda_init, __VA_ARGS__)
#define tensor_cuda_synchronize(...) TENSOR__CALL_KIND(int, tensor_cuda_synchronize, __VA_ARGS__)
#define tensor_cuda_shutdown(...) TENSOR__CALL_KIND(cuda_end, tensor_cuda_shutdown, __VA_ARGS__)

#define tensor_cuda_stream_new(...) TENSOR__CALL_KIND(cuda_stream, tensor_cuda_stream_new, __VA_ARGS__)
#define tensor_cuda_stream_free(...) TENSOR__CALL_KIND(int, tensor_cuda_stream_free, __VA_ARGS__)
#define tensor_cuda_default_stream(...)                                                                      \
    TENSOR__CALL_KIND(cuda_stream, tensor_cuda_default_stream, __VA_ARGS__)
#define tensor_cuda_current_stream(...)                                                                      \
    TENSOR__CALL_KIND(cuda_stream, tensor_cuda_current_stream, __VA_ARGS__)
#define tensor_cuda_set_stream(...) TENSOR__CALL_KIND(cuda_stream, tensor_cuda_set_stream, __VA_ARGS__)
#define tensor_cuda_stream_synchronize(...)                                                                  \
    TENSOR__CALL_KIND(int, tensor_cuda_stream_synchronize, __VA_ARGS__)
#define tensor_cuda_stream_query(...) TENSOR__CALL_KIND(int, tensor_cuda_stream_query, __VA_ARGS__)
#define tensor_cuda_stream_wait_event(...) TENSOR__CALL_KIND(int, tensor_cuda_stream_wait_event, __VA_ARGS__)
#define tensor_cuda_stream_wait_stream(...)                                                                  \
    TENSOR__CALL_KIND(int, tensor_cuda_stream_wait_stream, __VA_ARGS__)
#define tensor_record_stream(...) TENSOR__CALL_KIND(int, tensor_record_stream, __VA_ARGS__)
#define tensor_cuda_event_new(...) TENSOR__CALL_KIND(cuda_event, tensor_cuda_event_new, __VA_ARGS__)
#define tensor_cuda_event_free(...) TENSOR__CALL_KIND(int, tensor_cuda_event_free, __VA_ARGS__)
#define tensor_cuda_event_record(...) TENSOR__CALL_KIND(int, tensor_cuda_event_record, __VA_ARGS__)
#define tensor_cuda_event_query(...) TENSOR__CALL_KIND(int, tensor_cuda_event_query, __VA_ARGS__)
#define tensor_cuda_event_synchronize(...) TENSOR__CALL_KIND(int, tensor_cuda_event_synchronize, __VA_ARGS__)
#define tensor_cuda_event_elapsed_time(...)                                                                  \
    TENSOR__CALL_KIND(f64, tensor_cuda_event_elapsed_time, __VA_ARGS__)

#define tensor_cuda_graph_pool_new(...)                                                                      \
    TENSOR__CALL_KIND(cuda_pool, tensor_cuda_graph_pool_new, __VA_ARGS__)
#define tensor_cuda_graph_pool_free(...) TENSOR__CALL_KIND(int, tensor_cuda_graph_pool_free, __VA_ARGS__)
#define tensor_cuda_set_graph_pool(...) TENSOR__CALL_KIND(int, tensor_cuda_set_graph_pool, __VA_ARGS__)
#define tensor_cuda_set_per_process_memory_fraction(...)                                                     \
    TENSOR__CALL_KIND(int, tensor_cuda_set_per_process_memory_fraction, __VA_ARGS__)

#define tensor_cuda_data(...) TENSOR__CALL_KIND(cuda_raw, tensor_cuda_data, __VA_ARGS__)
#define tensor_cuda_wrap(...) TENSOR__CALL(tensor_cuda_wrap, __VA_ARGS__)
#define tensor_cuda_stream_raw(...) TENSOR__CALL_KIND(cuda_raw, tensor_cuda_stream_raw, __VA_ARGS__)
#define tensor_cuda_stream_wrap(...) TENSOR__CALL_KIND(cuda_stream, tensor_cuda_stream_wrap, __VA_ARGS__)
#define tensor_cuda_set_allocator(...) TENSOR__CALL_KIND(int, tensor_cuda_set_allocator, __VA_ARGS__)

#define tensor_cuda_comm_id(...) TENSOR__CALL_KIND(int, tensor_cuda_comm_id, __VA_ARGS__)
#define tensor_cuda_comm_new(...) TENSOR__CALL_KIND(cuda_comm, tensor_cuda_comm_new, __VA_ARGS__)
#define tensor_cuda_comm_free(...) TENSOR__CALL_KIND(int, tensor_cuda_comm_free, __VA_ARGS__)
#define tensor_cuda_comm_abort(...) TENSOR__CALL_KIND(int, tensor_cuda_comm_abort, __VA_ARGS__)
#define tensor_cuda_comm_abort_n(...) TENSOR__CALL_KIND(int, tensor_cuda_comm_abort_n, __VA_ARGS__)
#define tensor_cuda_all_reduce(...) TENSOR__CALL_KIND(int, tensor_cuda_all_reduce, __VA_ARGS__)
#define tensor_cuda_all_reduce_n(...) TENSOR__CALL_KIND(int, tensor_cuda_all_reduce_n, __VA_ARGS__)
#define tensor_cuda_broadcast(...) TENSOR__CALL_KIND(int, tensor_cuda_broadcast, __VA_ARGS__)
#define tensor_cuda_all_gather(...) TENSOR__CALL_KIND(int, tensor_cuda_all_gather, __VA_ARGS__)
#endif

#endif   // TENSOR_CUDA_H_INCLUDED_7C1E

// tensor_cuda.h - v0.1.0 - the CUDA backend of tensor.h: start, streams, graphs, memory, what runs where
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
//   >>cuda-manual  >>cuda-start  >>cuda-streams  >>cuda-graphs  >>cuda-memory  >>cuda-doors  >>cuda-ops
//   >>cuda-libraries  >>cuda-ranks
#ifndef TENSOR_CUDA_H_INCLUDED_7C1E
#define TENSOR_CUDA_H_INCLUDED_7C1E

#include "tensor.h"

// ------------------------------------------------------------------------------
// >>cuda-manual                                    MARK: manual
//
// No header of CUDA is seen here, and tensor.h knows nothing of it: tensor_cuda_init() puts the backend into
// the calling thread's context. A program that links no tensor_cuda.o works as ever; one that does starts
// where there is no driver, and stays on the CPU.
//
// Ops run in order on the thread's current stream of the device, which is the device's default stream unless
// tensor_cuda_set_stream says otherwise. They are asynchronous: tensor_item, tensor_copy_out, tensor_to(x,
// TENSOR_CPU) and printing wait for that stream; tensor_cuda_synchronize for all. An index that is out of
// range touches nothing else, and is an INDEX error, with op and place of the call, at the next of these; so
// are an integer divided by 0, a weight that nothing can be drawn by, and (LINALG) a matrix without a result.
//
// An error of a kernel (CUDA) that is not one of memory stays: no call of CUDA works in the process any more.
// What is on the CPU goes on.
//
// An op that has no kernel of its own for a dtype runs on the CPU, over copies: right, and slow. >>cuda-ops
// tells which did, and can forbid it.
//
// Matrix products go to cuBLASLt; convolutions, recurrent nets, attention, batch and layer norm of f16 and
// bf16, and batch norm with channels innermost and large layer norms of f32 go to cuDNN; each is opened when
// first needed. Neither has to be there: without it, with
// another version of it, or where it has nothing for a shape, the kernels of this file do the op, to the same
// accuracy and slower. That is no error; tensor_cuda_library_error says what was wrong, and beside it
// (>>cuda-libraries) stand the switches. Built where cublasLt.h or cudnn.h is not found, the file does
// without it.
//
// The environment variable TENSOR_CUDA_NO_CACHE=1, read by tensor_cuda_init, gives every tensor an allocation
// of its own, freed at once: for memory checkers. TENSOR_CUDA_NO_RANGES=1 takes memory by cudaMalloc, not
// mapped piece by piece (as happens by itself where the driver refuses to map). TENSOR_CUDA_NO_LIBRARIES=1 is
// tensor_cuda_set_libraries(0).
// ------------------------------------------------------------------------------

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------
// >>cuda-start                                     MARK: start, wait, end
//
// Devices are named as in tensor.h: TENSOR_CUDA + i.
// ------------------------------------------------------------------------------

// Starts the backend in the calling thread's context; again, or in another context, costs nothing.
//   -> code;  errors CUDA (no driver, no device, too old a driver, or what CUDA says), UNSUPPORTED (a device
//      of compute capability below 7.5; built with another tensor.h), OUT_OF_MEMORY
TENSOR_API int tensor_cuda_init(void);

// Whether there is a driver and a device.
//   -> 1 or 0;  errors none
TENSOR_API int tensor_cuda_is_available(void);

// Number of devices.
//   -> 0 where there is no driver;  errors none
TENSOR_API int tensor_cuda_device_count(void);

// Waits until the device has done all that was asked of it.
//   -> code;  errors DEVICE (no such device, not started), INDEX, LINALG (of an op before, as above),
//      UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_synchronize(tensor_device_t device);

// Gives everything back to the driver; after tensor_shutdown, for no tensor may live on a device any more.
//   -> code;  errors OWNER (memory is still in use: only graphs are freed; a graph is being captured)
TENSOR_API int tensor_cuda_shutdown(void);

// ------------------------------------------------------------------------------
// >>cuda-streams                                   MARK: streams, events
//
// A tensor that another stream made or uses is waited for where it is used, and its memory serves others only
// when all streams are done with it: streams need no events for what tensors carry, scopes may end at any
// time, and a backward pass may run on another stream than the forward one. Threads that each set a stream of
// their own run at once. NULL for a stream means the default one of device 0 (a DEVICE error where it
// is not started). Freed streams and events are noticed.
// ------------------------------------------------------------------------------

typedef struct tensor_cuda_stream_t tensor_cuda_stream_t;
typedef struct tensor_cuda_event_t tensor_cuda_event_t;

// A queue of work beside the others of the device; at most 30 at once.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started), UNSUPPORTED (too many), CUDA
TENSOR_API tensor_cuda_stream_t *tensor_cuda_stream_new(tensor_device_t device);

// Its work still runs to the end. tensor_cuda_shutdown frees those that are left.
//   -> code;  errors OWNER (freed before, a default stream, the thread's current one), UNSUPPORTED (in a
//      capture)
TENSOR_API int tensor_cuda_stream_free(tensor_cuda_stream_t *stream);

// The stream of a device where nothing else was set; the one that the calling thread's ops go to.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_default_stream(tensor_device_t device);
TENSOR_API tensor_cuda_stream_t *tensor_cuda_current_stream(tensor_device_t device);

// From here on the calling thread's ops of the stream's device go to it.
//   -> the one before, NULL on failure;  errors OWNER (it was freed)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_set_stream(tensor_cuda_stream_t *stream);

// Waits until the stream has done all that was asked of it.
//   -> code;  errors INDEX, LINALG (of an op before, as above), OWNER, UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_stream_synchronize(tensor_cuda_stream_t *stream);

// Whether it has.
//   -> 1 or 0;  errors as tensor_cuda_stream_synchronize, without INDEX, LINALG
TENSOR_API int tensor_cuda_stream_query(tensor_cuda_stream_t *stream);

// What stream is asked later waits for what event marks / for all that other was asked until now. The host
// does not wait.
//   -> code;  errors OWNER, POISONED (event is NULL), UNSUPPORTED (in a capture, but for what belongs to it:
//      >>cuda-graphs), CUDA
TENSOR_API int tensor_cuda_stream_wait_event(tensor_cuda_stream_t *stream, tensor_cuda_event_t *event);
TENSOR_API int tensor_cuda_stream_wait_stream(tensor_cuda_stream_t *stream, tensor_cuda_stream_t *other);

// Work of stream that tensor.h does not see (a kernel of one's own) uses x: its memory stays until that is
// done.
//   -> code;  errors DEVICE (x lies elsewhere), OWNER, POISONED
TENSOR_API int tensor_record_stream(tensor_t *x, tensor_cuda_stream_t *stream);

// A mark in a stream's work.
//   timing  1 = tensor_cuda_event_elapsed_time can use it
//   -> event, NULL on failure;  errors DEVICE (no such device, not started), CUDA
TENSOR_API tensor_cuda_event_t *tensor_cuda_event_new(tensor_device_t device, int timing);

// Frees it before tensor_cuda_shutdown does.   -> code;  errors OWNER (freed before), CUDA
TENSOR_API int tensor_cuda_event_free(tensor_cuda_event_t *event);

// Sets the mark behind all that the stream was asked until now.
//   -> code;  errors DEVICE (event and stream of two devices), OWNER, POISONED, UNSUPPORTED (in a capture, of
//      a stream without part in it), CUDA
TENSOR_API int tensor_cuda_event_record(tensor_cuda_event_t *event, tensor_cuda_stream_t *stream);

// Whether the mark was reached (1 where none was set); waits until it is.
//   -> 1 or 0 / code;  errors OWNER, POISONED, UNSUPPORTED (in a capture, or recorded in one), CUDA
TENSOR_API int tensor_cuda_event_query(tensor_cuda_event_t *event);
TENSOR_API int tensor_cuda_event_synchronize(tensor_cuda_event_t *event);

// Time between two marks, in milliseconds; waits for end.
//   -> ms, NaN on failure;  errors OWNER, POISONED, UNSUPPORTED (no timing, no mark, in a capture), CUDA
TENSOR_API double tensor_cuda_event_elapsed_time(tensor_cuda_event_t *start, tensor_cuda_event_t *end);

// ------------------------------------------------------------------------------
// >>cuda-graphs                                    MARK: a step captured once, run often
//
//   tensor_cuda_graph_t *g = tensor_cuda_graph_new(TENSOR_CUDA);
//   tensor_cuda_graph_begin(g);                     // after one step as ever: optimizers have their states
//   loss = ...; nn_zero_grad(opt); tensor_backward(loss); nn_step(opt);
//   tensor_keep(loss);
//   tensor_cuda_graph_end(g);
//   for (...) { tensor_copy_(x, batch); tensor_cuda_graph_replay(g); ... tensor_item(loss) ... }
//
// Between begin and end the thread's calls are written down, not run. A run gives what these calls would give
// now: it reads the tensors that they read (their memory stays the graph's until it is freed), overwrites
// those that they made, draws the next random numbers, and takes an optimizer's learning rate and count of
// steps as they are. In a capture nothing can depend on values: tensor_item, printing, nonzero, an op without
// a kernel and a copy from the host are UNSUPPORTED errors (numbers of up to 8 bytes become a part of the
// graph). One graph is captured at a time.
//
// Another stream of the device has part in the capture from when it waits for one that has (stream_wait_event
// for an event recorded in the capture, stream_wait_stream): its work runs beside the rest at each run. What
// tensors carry from one to the other is waited for as ever; the first stream has to wait for all before the
// end. Until then such a stream is the capturing thread's alone.
// ------------------------------------------------------------------------------

typedef struct tensor_cuda_graph_t tensor_cuda_graph_t;

// An empty graph.
//   -> graph, NULL on failure;  errors DEVICE (no such device, not started), OUT_OF_MEMORY
TENSOR_API tensor_cuda_graph_t *tensor_cuda_graph_new(tensor_device_t device);

// Starts writing down what the calling thread asks of the graph's device, on its current stream.
//   -> code;  errors OWNER (captured already, freed), UNSUPPORTED (another capture), POISONED, OUT_OF_MEMORY,
//      CUDA, and an error of the thread that is there already
TENSOR_API int tensor_cuda_graph_begin(tensor_cuda_graph_t *g);

// Ends it. After an error since begin the graph is empty again.
//   -> code;  errors OWNER (not being captured), UNSUPPORTED (work of another stream was not waited for),
//      CUDA, and the error since begin
TENSOR_API int tensor_cuda_graph_end(tensor_cuda_graph_t *g);

// Runs it once, on the current stream, asynchronously. What other streams wrote to its tensors is waited for.
// Not after tensor_shutdown, which frees what it works on.
//   -> code;  errors OWNER (nothing captured, freed), UNSUPPORTED (in a capture), CUDA, and an error of the
//      thread that is there already
TENSOR_API int tensor_cuda_graph_replay(tensor_cuda_graph_t *g);

// Waits for the device and frees it; tensors made in it stay. tensor_cuda_shutdown frees those that are left.
//   -> code;  errors OWNER (freed before), UNSUPPORTED (in a capture)
TENSOR_API int tensor_cuda_graph_free(tensor_cuda_graph_t *g);

// ------------------------------------------------------------------------------
// >>cuda-memory                                    MARK: memory
//
// PyTorch's figures by PyTorch's names: allocated is what tensors have, reserved what the allocator holds. A
// device that is not there has 0 of all.
// ------------------------------------------------------------------------------

// Bytes in tensors and scratch now; the most since the start or the last reset.
//   -> bytes;  errors none
TENSOR_API int64_t tensor_cuda_memory_allocated(tensor_device_t device);
TENSOR_API int64_t tensor_cuda_max_memory_allocated(tensor_device_t device);

// Bytes taken from the driver now; the most since the start or the last reset.
//   -> bytes;  errors none
TENSOR_API int64_t tensor_cuda_memory_reserved(tensor_device_t device);
TENSOR_API int64_t tensor_cuda_max_memory_reserved(tensor_device_t device);

// Starts the highest values anew from those of now.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_reset_peak_memory_stats(tensor_device_t device);

// Gives memory that no tensor uses back to the driver; waits for the device.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_empty_cache(tensor_device_t device);

// Limits what may be reserved to a part of the device's memory.
//   fraction  in (0, 1]
//   -> code;  errors DEVICE (no such device, not started), INDEX (fraction out of range)
TENSOR_API int tensor_cuda_set_per_process_memory_fraction(double fraction, tensor_device_t device);

// All figures, a line each: "allocated_bytes.all current 4096 peak 8192 allocated 12288 freed 8192".
//   line    called with user and each text
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_memory_stats(tensor_device_t device, void (*line)(void *user, const char *text),
                                         void *user);

// Every block of memory, a JSON object a line.
//   line    called with user and each text
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_memory_snapshot(tensor_device_t device,
                                            void (*line)(void *user, const char *text), void *user);

// What the calling thread's last allocation that failed has to say: sizes, what is in use, what is free.
//   -> borrowed string, "" = none failed;  errors none
TENSOR_API const char *tensor_cuda_memory_report(void);

// ------------------------------------------------------------------------------
// >>cuda-doors                                     MARK: memory and streams of the program's own
//
// For programs that call CUDA themselves. No type of CUDA is named here: a stream is a cudaStream_t as a
// void *.
//
//   float *p = tensor_cuda_data(x);                 // x's elements, on the device
//   void *s = tensor_cuda_stream_raw(tensor_cuda_current_stream(TENSOR_CUDA));
//   kernel<<<blocks, 256, 0, (cudaStream_t)s>>>(p);
// ------------------------------------------------------------------------------

// Where x's first element is on the device, for work that the program puts on the thread's current stream
// of x's device: it may read and write there, after what was asked before and before what is asked later.
// Call it anew for each such piece of work. The tape does not see what is written there.
//   -> address, NULL on failure and for 0 elements;  errors POISONED, DEVICE (x is on no CUDA device), CUDA
TENSOR_API void *tensor_cuda_data(tensor_t *x);

// A tensor over the caller's device memory. What the caller asked of it before is on the thread's current
// stream, or done. When the last user is gone, the device's work with it is waited for and the deleter
// runs.
//   dims     n sizes, contiguous
//   deleter  called once with (data, user); NULL = nothing to do
//   -> new;  grad none;  errors DEVICE (no such device, not started), SHAPE, DTYPE (then the deleter is not
//      called), OUT_OF_MEMORY
TENSOR_API tensor_t *tensor_cuda_wrap(void *data, tensor_dtype_t dtype, const int64_t *dims, int ndim,
                                      tensor_device_t device, void (*deleter)(void *data, void *user),
                                      void *user);

// The cudaStream_t of a stream.
//   -> stream, NULL on failure;  errors OWNER (freed before), DEVICE (not started)
TENSOR_API void *tensor_cuda_stream_raw(tensor_cuda_stream_t *stream);

// A handle for the caller's cudaStream_t, which must be one of that device, not the default stream
// (NULL), and stay until tensor_cuda_shutdown. Twice the same one is one stream.
//   -> stream, NULL on failure;  errors DEVICE (no such device, not started), POISONED (NULL), UNSUPPORTED
//      (32 streams)
TENSOR_API tensor_cuda_stream_t *tensor_cuda_stream_wrap(void *cuda_stream, tensor_device_t device);

// Device memory from the caller instead of cudaMalloc: large pieces, which the caching allocator cuts.
// Both may be called from any thread, one at a time for a device, also while a stream is captured.
typedef struct tensor_cuda_allocator_t {
    void *user;
    void *(*alloc)(void *user, int device, uint64_t bytes);     // aligned to 512 bytes; NULL = none is left
    void (*free)(void *user, int device, void *data, uint64_t bytes);
} tensor_cuda_allocator_t;

// Before tensor_cuda_init; copied. NULL = the driver's again.
//   -> code;  errors OWNER (CUDA is started), POISONED (a function is NULL)
TENSOR_API int tensor_cuda_set_allocator(const tensor_cuda_allocator_t *allocator);

// Whether each op is an NVTX range by its name, for profilers. It costs some tens of nanoseconds an op
// while no profiler is there.
//   on      0 (default) or 1
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_ranges(int on);

// A range of the program's own (a module's forward, a step) on the calling thread, if ranges are on; they
// nest.
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_range_push(const char *name);
TENSOR_API void tensor_cuda_range_pop(void);

// ------------------------------------------------------------------------------
// >>cuda-ops                                       MARK: what runs where
//
// Which ops had a kernel of the device's, and which ran on the CPU over copies.
// ------------------------------------------------------------------------------

// Calls since the program's start that ran on the CPU.
//   -> count;  errors none
TENSOR_API int64_t tensor_cuda_fallbacks(void);

// Whether an op without a kernel may run on the CPU; 0 makes it an UNSUPPORTED error with op and dtypes.
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_fallback(int on);

// Calls since the program's start by op; those of a gradient's fused kernel apart, as "exp backward".
//   line    called with user, the op's name, calls on the device, calls on the CPU
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_op_counts(void (*line)(void *user, const char *op, int64_t native,
                                                   int64_t fallback),
                                      void *user);

// ------------------------------------------------------------------------------
// >>cuda-libraries                                 MARK: cuBLASLt and cuDNN
//
// Whether they are used, and how exactly. A switch holds for all threads, from the next op on.
// ------------------------------------------------------------------------------

// Whether the libraries may be used; 0 = this file's kernels only.
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_libraries(int on);

// Whether f32 products may round their factors to TF32, 10 bits of mantissa
// (torch.backends.cuda.matmul.allow_tf32).
//   on      0 (default) or 1
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_matmul_tf32(int on);

// Whether f32 convolutions and cuDNN's recurrent nets may (torch.backends.cudnn.allow_tf32, on there too).
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_conv_tf32(int on);

// Calls of ops since the start that a library did.
//   -> count;  errors none
TENSOR_API int64_t tensor_cuda_library_calls(void);

// Why an op last went without a library: which is missing or of what version, or what it said.
//   -> borrowed string, until the thread's next call of this; "" = nothing was wrong;  errors none
TENSOR_API const char *tensor_cuda_library_error(void);

// ------------------------------------------------------------------------------
// >>cuda-ranks                                     MARK: one network on many devices
//
// Ranks, processes with a device each, train copies of a network on parts of a batch; the average of their
// gradients is that of the whole, so the copies stay the same. As PyTorch's DistributedDataParallel, but that
// the calls are the program's own:
//
//   char id[TENSOR_CUDA_ID_BYTES];
//   if (rank == 0) { tensor_cuda_comm_id(id); }     // to the others by a file, a socket, MPI
//   tensor_cuda_comm_t *c = tensor_cuda_comm_new(rank, ranks, id, TENSOR_CUDA + rank);
//   for (k = 0; k < n; k++) { tensor_cuda_broadcast(c, p[k], 0); }              // nn_parameters(net, p, n)
//   ... tensor_backward(loss);
//   for (k = 0; k < n; k++) { g[k] = tensor_grad(p[k]); }
//   tensor_cuda_all_reduce_n(c, g, n, 1);           // then nn_step(opt)
//
// All ranks make the same calls in the same order; a parameter that was not used has no gradient on its rank
// and needs zeros there (tensor_set_grad), or the others wait for it. The work goes to the thread's current
// stream of the device and the host does not wait. It is NCCL's, opened when first needed; tensors are
// contiguous and on the communicator's device, and no capture can hold these calls.
// ------------------------------------------------------------------------------

enum { TENSOR_CUDA_ID_BYTES = 128 };
typedef struct tensor_cuda_comm_t tensor_cuda_comm_t;

// Fills TENSOR_CUDA_ID_BYTES bytes, which all ranks of one communicator need.
//   -> code;  errors CUDA (NCCL is not there, or what it says), POISONED (id is NULL)
TENSOR_API int tensor_cuda_comm_id(void *id);

// One rank's end of a communicator; waits until all ranks have called it.
//   rank    0 .. ranks - 1
//   -> communicator, NULL on failure;  errors as tensor_cuda_comm_id, DEVICE (no such device, not started),
//      INDEX (rank)
TENSOR_API tensor_cuda_comm_t *tensor_cuda_comm_new(int rank, int ranks, const void *id,
                                                    tensor_device_t device);

// Ends it, when its work is done; tensor_cuda_shutdown frees those that are left.
//   -> code;  errors OWNER (freed before), UNSUPPORTED (in a capture), CUDA
TENSOR_API int tensor_cuda_comm_free(tensor_cuda_comm_t *c);

// In place x = the sum over all ranks, or the mean / the same for n tensors, in one launch.
//   mean    1 or 0
//   -> code;  errors OWNER, POISONED, DEVICE (x lies elsewhere), DTYPE (bool, i16), SHAPE (not contiguous),
//      UNSUPPORTED (in a capture), CUDA (also a rank that failed earlier)
TENSOR_API int tensor_cuda_all_reduce(tensor_cuda_comm_t *c, tensor_t *x, int mean);
TENSOR_API int tensor_cuda_all_reduce_n(tensor_cuda_comm_t *c, tensor_t *const *x, int n, int mean);

// In place x = that of rank `root`.
//   -> code;  errors as tensor_cuda_all_reduce, INDEX (root)
TENSOR_API int tensor_cuda_broadcast(tensor_cuda_comm_t *c, tensor_t *x, int root);

// y = the x of all ranks, one behind the other; y has as many times x's elements.
//   -> code;  errors as tensor_cuda_all_reduce, SHAPE (y's size), DTYPE (not x's)
TENSOR_API int tensor_cuda_all_gather(tensor_cuda_comm_t *c, tensor_t *y, tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif   // TENSOR_CUDA_H_INCLUDED_7C1E

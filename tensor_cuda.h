// tensor_cuda.h - v0.1.0 - the CUDA backend of tensor.h: start, memory figures, what runs where
// Licence: MIT-0 or public domain, at your choice; full text at the end of tensor.h.
//
//   nvcc -std=c++17 -O3 -fmad=false -arch=native -c tensor_cuda.cu
//   cc program.c tensor_impl.o tensor_cuda.o -lcudart_static -lstdc++ -ldl -lrt -lpthread -lm
//
//   if (tensor_cuda_init() == 0) { tensor_set_default_device(TENSOR_CUDA); }
//   ... as on the CPU ...
//   tensor_shutdown();
//   tensor_cuda_shutdown();
//
// CONTENTS (search for the tag)
//   >>cuda-manual  >>cuda-start  >>cuda-memory  >>cuda-ops
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
// Ops run in order on one stream of each device, whatever the thread. They are asynchronous: tensor_item,
// tensor_copy_out, tensor_to(x, TENSOR_CPU) and printing wait for the device; tensor_cuda_synchronize too.
// An index that is out of range touches nothing else, and is an INDEX error at the next of these, not at
// its op; so are an integer divided by 0 and a weight that nothing can be drawn by.
//
// An op that has no kernel of its own for a dtype runs on the CPU, over copies: right, and slow. >>cuda-ops
// tells which did, and can forbid it.
//
// The environment variable TENSOR_CUDA_NO_CACHE=1, read by tensor_cuda_init, gives every tensor an allocation
// of its own, freed at once: for memory checkers.
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
//   -> code;  errors DEVICE (no such device, not started), INDEX (an op before met an index out of range),
//      CUDA
TENSOR_API int tensor_cuda_synchronize(tensor_device_t device);

// Gives everything back to the driver; after tensor_shutdown, for no tensor may live on a device any more.
//   -> code;  errors OWNER (memory is still in use: nothing is freed)
TENSOR_API int tensor_cuda_shutdown(void);

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

// What the last allocation that failed has to say: sizes, what is in use, what is free.
//   -> borrowed string, "" = none failed;  errors none
TENSOR_API const char *tensor_cuda_memory_report(void);

// ------------------------------------------------------------------------------
// >>cuda-ops                                       MARK: what runs where
//
// Which ops had a kernel of the device's, and which ran on the CPU over copies.
// ------------------------------------------------------------------------------

// Calls since the start that ran on the CPU.
//   -> count;  errors none
TENSOR_API int64_t tensor_cuda_fallbacks(void);

// Whether an op without a kernel may run on the CPU; 0 makes it an UNSUPPORTED error with op and dtypes.
//   on      1 (default) or 0
//   -> the value before;  errors none
TENSOR_API int tensor_cuda_set_fallback(int on);

// Calls since the start by op; those of a gradient's fused kernel apart, as "exp backward".
//   line    called with user, the op's name, calls on the device, calls on the CPU
//   -> nothing;  errors none
TENSOR_API void tensor_cuda_op_counts(void (*line)(void *user, const char *op, int64_t native,
                                                   int64_t fallback),
                                      void *user);

#ifdef __cplusplus
}
#endif

#endif   // TENSOR_CUDA_H_INCLUDED_7C1E

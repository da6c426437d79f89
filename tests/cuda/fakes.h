// fakes.h - cuBLASLt, cuDNN and NCCL for the emulator: linked in, they are what tensor_cuda.cu opens
//
// They compute in double on the host, in the order of the stream, and end the program where a call is illegal:
// a descriptor that is not finished, a layout or extent that does not fit the matrices, memory that is not the
// device's, an alignment, workspace or algorithm that is not what was planned with.
#pragma once
struct fakes_t {
    long blas_version = 130100, dnn_version = 91900;
    bool refuse = false;                // no algorithm, no engine for anything
    bool refuse_row_sums = false;       // no algorithm for a product with the sums of a factor's rows
    bool refuse_slopes = false;         // nor for one times an activation's slope, or with what that reads
    bool refuse_sums = true;            // no engine for a convolution with its bias in f32 or f64
    long live = 0;                      // handles and descriptors
    long products = 0, convs = 0;       // executed
    long attentions = 0, norms = 0;     // executed graphs of them
    long nets = 0, net_gap = 0;         // executed passes of recurrent nets; bytes between parts of their weights
    long plans = 0;                     // asked for: heuristics of cuBLASLt, plans made of cuDNN
    long compiled = 0;                  // plans of cuDNN whose kernels no cache had
    long rounded = 0;                   // executed with factors of TF32
    long collectives = 0;               // of NCCL, executed by a rank
    long fused = 0;                     // convolutions executed with their bias
    long short_calls = 0;               // so many of the next calls that execute fail for want of memory
    long activated = 0;                 // products executed with an activation
    long sloped = 0;                    // products executed with an activation's slope
    long summed = 0;                    // products executed with the sums of a factor's rows
    bool timed = false;                 // convolutions take the time that their engine declares
    long long engine = 0;               // bytes of workspace of the last one's, which tell engines apart
};
extern fakes_t fakes;

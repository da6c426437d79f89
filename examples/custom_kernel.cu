// custom_kernel.cu - a CUDA kernel of your own as an operation that trains
//
// y = silu(gate) * value, the gate of most language models: one kernel makes it in one pass over memory,
// another one makes both gradients. Autograd records it, and tensor_capture_begin puts it into a CUDA graph.
// The program compares with the library's own operations.
//
// Build: make build/libtensor.a
//        nvcc -std=c++17 -O3 -fmad=false -arch=native -I. examples/custom_kernel.cu tensor_cuda.cu
//            build/libtensor.a -o build/custom_kernel
// Output:
//   result                     agrees
//   gradient of gate           agrees
//   gradient of value          agrees
//   gradient of the gradient   agrees
//   as a CUDA graph            agrees
//   two shapes                 SHAPE
//   one of the CPU's           DEVICE
#include "tensor_cuda.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

__global__ void swiglu(const float *gate, const float *value, float *y, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        y[i] = gate[i] / (1 + expf(-gate[i])) * value[i];
    }
}

__global__ void swiglu_gradient(const float *gate, const float *value, const float *grad, float *grad_gate,
                                float *grad_value, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const float s = 1 / (1 + expf(-gate[i]));
        grad_gate[i] = grad[i] * value[i] * s * (1 + gate[i] * (1 - s));
        grad_value[i] = grad[i] * gate[i] * s;
    }
}

// The address of x, for one launch: it comes after all that was queued with x before, on any stream.
static float *at(tensor_t *x) { return (float *)tensor_cuda_data(x); }

// The stream that the library's operations on x's device go to.
static cudaStream_t stream_of(tensor_t *x) {
    return (cudaStream_t)tensor_cuda_stream_raw(tensor_cuda_current_stream(tensor_device(x)));
}

static int blocks_for(int64_t n) { return (int)(n < 256 * 1024 ? (n + 255) / 256 : 1024); }

static int launched(void) {
    const cudaError_t error = cudaGetLastError();
    return error ? tensor_raise(TENSOR_ERR_CUDA, cudaGetErrorString(error)) : tensor_error_code();
}

static bool same_shape(tensor_t *a, tensor_t *b) {
    const tensor_shape_t p = tensor_shape(a), q = tensor_shape(b);
    return p.ndim == q.ndim && !memcmp(p.dims, q.dims, (size_t)p.ndim * sizeof p.dims[0]);
}

static tensor_t *swiglu_forward(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int) {
    tensor_t *gate = tensor_contiguous(inputs[0]), *value = tensor_contiguous(inputs[1]);
    tensor_t *y = tensor_empty_like(gate);
    const int64_t n = tensor_numel(y);
    if (tensor_dtype(gate) != TENSOR_F32 || tensor_dtype(value) != TENSOR_F32) {
        tensor_raise(TENSOR_ERR_DTYPE, "swiglu: gate and value must be f32");
    } else if (!same_shape(gate, value)) {
        tensor_raise(TENSOR_ERR_SHAPE, "swiglu: gate and value differ in shape");
    } else if (tensor_device(gate) < TENSOR_CUDA || tensor_device(value) != tensor_device(gate)) {
        tensor_raise(TENSOR_ERR_DEVICE, "swiglu: gate and value must be on one GPU");
    } else if (tensor_ok() && n) {
        swiglu<<<blocks_for(n), 256, 0, stream_of(y)>>>(at(gate), at(value), at(y), n);
        launched();
    }
    tensor_save_for_backward(ctx, 0, inputs[0]);
    tensor_save_for_backward(ctx, 1, inputs[1]);
    return y;
}

static int swiglu_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int) {
    tensor_t *gate = tensor_saved(ctx, 0), *value = tensor_saved(ctx, 1);
    const int64_t n = tensor_numel(gate);
    if (tensor_grad_enabled()) {        // TENSOR_CREATE_GRAPH: only what the tape knows has a gradient
        tensor_t *s = tensor_sigmoid(gate);
        tensor_t *slope = tensor_mul(s, tensor_add_scalar(tensor_mul(gate, tensor_rsub_scalar(s, 1)), 1));
        grads[0] = tensor_mul(tensor_mul(grad, value), slope);
        grads[1] = tensor_mul(grad, tensor_mul(gate, s));
        return tensor_error_code();
    }
    gate = tensor_contiguous(gate);
    value = tensor_contiguous(value);
    grad = tensor_contiguous(grad);     // that of a sum is one number, read everywhere
    grads[0] = tensor_empty_like(gate);
    grads[1] = tensor_empty_like(gate);
    if (!tensor_ok() || !n) { return tensor_error_code(); }
    swiglu_gradient<<<blocks_for(n), 256, 0, stream_of(gate)>>>(at(gate), at(value), at(grad), at(grads[0]),
                                                                at(grads[1]), n);
    return launched();
}

static const tensor_function_t swiglu_function = {"swiglu", swiglu_forward, swiglu_backward, NULL};

static tensor_t *mine(tensor_t *gate, tensor_t *value) {
    tensor_t *inputs[] = {gate, value};
    return tensor_apply(&swiglu_function, NULL, inputs, 2);
}
static tensor_t *theirs(tensor_t *gate, tensor_t *value) { return tensor_mul(tensor_silu(gate), value); }
static int differs(const char *what, tensor_t *a, tensor_t *b) {
    const int agree = tensor_allclose(a, b, 1e-5, 1e-6);
    printf("%-27s%s\n", what, agree ? "agrees" : "differs");
    return !agree;
}

static void fails(const char *what, tensor_t *) {
    printf("%-27s%s\n", what, tensor_code_name(tensor_error_code()));
    tensor_clear_error();
}

// y, its gradients, and gate's gradient of the sum of the squares of gate's gradient.
static void all_of(tensor_t *y, tensor_t *gate, tensor_t *value, tensor_t *weight, tensor_t *r[4]) {
    tensor_t *x[] = {gate, value}, *loss = tensor_sum(tensor_mul(y, weight)), *g[2];
    r[0] = y;
    tensor_autograd_grad(&loss, 1, NULL, x, 2, &r[1], TENSOR_RETAIN_GRAPH);
    tensor_autograd_grad(&loss, 1, NULL, x, 2, g, TENSOR_CREATE_GRAPH);
    loss = tensor_sum(tensor_square(g[0]));
    tensor_autograd_grad(&loss, 1, NULL, x, 1, &r[3], 0);
}

int main(void) {
    if (tensor_cuda_init()) { return 1; }
    tensor_set_default_device(TENSOR_CUDA);
    tensor_t *gate = tensor_requires_grad_(tensor_transpose(tensor_randn(501, 37), 0, 1), 1);
    tensor_t *value = tensor_requires_grad_(tensor_randn(37, 501), 1), *weight = tensor_randn(37, 501);
    tensor_t *a[4], *b[4];
    all_of(mine(gate, value), gate, value, weight, a);
    all_of(theirs(gate, value), gate, value, weight, b);
    int bad = differs("result", a[0], b[0]) + differs("gradient of gate", a[1], b[1]) +
              differs("gradient of value", a[2], b[2]) + differs("gradient of the gradient", a[3], b[3]);
    tensor_capture_begin(TENSOR_CUDA);
    tensor_t *y = mine(tensor_detach(gate), tensor_detach(value));
    tensor_graph_t *graph = tensor_capture_end();
    tensor_copy_(tensor_detach(gate), weight);
    tensor_graph_replay(graph);
    bad += differs("as a CUDA graph", y, theirs(tensor_detach(gate), tensor_detach(value)));
    tensor_set_error_handler([](int, const char *, void *) {}, NULL);       // not to stderr
    fails("two shapes", mine(gate, tensor_ones(3)));
    fails("one of the CPU's", mine(gate, tensor_to(value, TENSOR_CPU)));
    return tensor_shutdown() || tensor_cuda_shutdown() || bad;
}

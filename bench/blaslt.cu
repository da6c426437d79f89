// blaslt.cu - cuBLASLt's own speed for the products of gpu.c, the algorithm it puts first, lines "row value unit
// cuBLASLt".
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// Numbers in -1..1: how much power a product takes, and so its speed, depends on them.
static void fill(void *to, int n, size_t size) {
    std::vector<char> bytes(size * n * n);
    for (size_t i = 0; i < (size_t)n * n; i++) {
        float x = (float)rand() / (float)RAND_MAX * 2 - 1;
        memcpy(&bytes[i * size], (char *)&x + (4 - size), size);        // bf16 is the upper half
    }
    cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
}
static void row(const char *name, int n, cudaDataType_t type, size_t size) {
    const size_t work = 32 << 20;
    float one = 1, zero = 0, ms;
    void *a, *b, *c, *w;
    int found = 0;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t square;
    cublasLtMatmulPreference_t want;
    cublasLtMatmulHeuristicResult_t best;
    cudaEvent_t begin, end;
    cudaMalloc(&a, size * n * n);
    cudaMalloc(&b, size * n * n);
    cudaMalloc(&c, size * n * n);
    cudaMalloc(&w, work);
    fill(a, n, size);
    fill(b, n, size);
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&square, type, n, n, n);
    cublasLtMatmulPreferenceCreate(&want);
    cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work);
    cublasLtMatmulAlgoGetHeuristic(handle, product, square, square, square, square, want, 1, &best, &found);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    double least = 1e30;
    for (int turn = 0; found && turn < 9; turn++) {
        cudaEventRecord(begin);
        for (int i = 0; i < 20; i++)
            cublasLtMatmul(handle, product, &one, a, square, b, square, &zero, c, square, c, square, &best.algo, w,
                           work, 0);
        cudaEventRecord(end);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        if (turn && ms < least) least = ms;
    }
    if (found && cudaGetLastError() == cudaSuccess)
        printf("%-28s %14.6g TF/s cuBLASLt\n", name, 2.0 * n * n * n * 20 / (least * 1e-3) * 1e-12);
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
    cudaFree(w);
}

int main() {
    row("matmul_2048_f32", 2048, CUDA_R_32F, 4);
    row("matmul_2048_bf16", 2048, CUDA_R_16BF, 2);
    row("matmul_4096_bf16", 4096, CUDA_R_16BF, 2);
    return 0;
}

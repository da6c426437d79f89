// blas.c threads - the products of ops.c by libraries that do nothing else, and the machine's limit
//
//   cc -DWITH_DNNL blas.c -ldnnl        rows sgemm_64 .. of oneDNN
//   cc -DWITH_CBLAS blas.c -lopenblas   the same of OpenBLAS (which needs OPENBLAS_CORETYPE on some machines)
//   cc blas.c                           fma_peak alone: fused multiply-adds that touch no memory, one thread
#include "bench.h"

#include <string.h>

#if defined(WITH_CBLAS)
#include <cblas.h>
#elif defined(WITH_DNNL)
#include <dnnl.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(WITH_CBLAS) || defined(WITH_DNNL)
typedef struct case_t { int m, n, k, nt; float *a, *b, *c; } case_t;

static void product(void *arg, long repeats) {
    const case_t *c = (const case_t *)arg;
    for (long i = 0; i < repeats; i++) {
#ifdef WITH_CBLAS
        cblas_sgemm(CblasRowMajor, CblasNoTrans, c->nt ? CblasTrans : CblasNoTrans, c->m, c->n, c->k, 1,
                    c->a, c->k,
                    c->b, c->nt ? c->k : c->n, 0, c->c, c->n);
#else
        dnnl_sgemm('N', c->nt ? 'T' : 'N', c->m, c->n, c->k, 1, c->a, c->k, c->b, c->nt ? c->k : c->n, 0,
                   c->c, c->n);
#endif
    }
}
static void measure(const char *row, int m, int n, int k, int nt) {
    size_t count[3] = {(size_t)m * (size_t)k, (size_t)n * (size_t)k, (size_t)m * (size_t)n};
    float *p[3];
    case_t c = {m, n, k, nt, NULL, NULL, NULL};
    for (int i = 0; i < 3; i++) {
        p[i] = (float *)aligned_alloc(64, (count[i] * sizeof(float) + 63) / 64 * 64);
        if (!p[i]) { exit(1); }
        for (size_t j = 0; j < count[i]; j++) { p[i][j] = (float)(j * 7919 % 1000) * 0.002f - 1; }
    }
    c.a = p[0];
    c.b = p[1];
    c.c = p[2];
    bench_row(row, 2e-9 * m * n * (double)k / bench_median(product, &c), "GF/s");
    for (int i = 0; i < 3; i++) { free(p[i]); }
}
int main(void) {
    static const int square[] = {16, 32, 64, 128, 256, 512, 1024, 2048};
    static const int linear[][3] = {{1, 1024, 1024}, {8, 1024, 1024}, {20, 800, 400}, {64, 512, 784},
        {128, 3072, 768}};
    char row[64];
    for (int i = 0; i < 8; i++) {
        snprintf(row, sizeof row, "sgemm_%d", square[i]);
        measure(row, square[i], square[i], square[i], 0);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(row, sizeof row, "linear_%dx%dx%d", linear[i][0], linear[i][1], linear[i][2]);
        measure(row, linear[i][0], linear[i][1], linear[i][2], 1);
    }
    return 0;
}
#else
static volatile float sink;
#if defined(__x86_64__)
#define PEAK(name, isa, type, lanes, set, fma)                                                             \
    __attribute__((target(isa))) static void name(void *arg, long repeats) {                               \
        type x[12], b = set(0.999f), c = set(0.001f);                                                      \
        float out[16];                                                                                     \
        (void)arg;                                                                                         \
        for (int i = 0; i < 12; i++) { x[i] = set((float)i); }                                             \
        for (long r = 0; r < repeats; r++) {                                                               \
            for (int k = 0; k < 1000; k++) {                                                               \
                _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) { x[i] = fma(x[i], b, c); }          \
            }                                                                                              \
        }                                                                                                  \
        for (int i = 0; i < 12; i++) { memcpy(out, &x[i], sizeof x[i]); sink = out[0]; }                   \
    }
PEAK(peak_avx512, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps)
PEAK(peak_avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps)
#endif
int main(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        bench_row("fma_peak", 1e-9 * 2 * 16 * 12000 / bench_median(peak_avx512, NULL), "GF/s");
    } else if (__builtin_cpu_supports("fma")) {
        bench_row("fma_peak", 1e-9 * 2 * 8 * 12000 / bench_median(peak_avx2, NULL), "GF/s");
    }
#endif
    (void)sink;
    return 0;
}
#endif

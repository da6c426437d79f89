// fakes.cpp - see fakes.h
#include "cusim.h"
#include "fakes.h"
#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

fakes_t fakes;

[[noreturn]] static void illegal(const char *what) {
    std::printf("fake library: %s\n", what);
    std::exit(3);
}
static void demand(bool good, const char *what) {
    if (!good) { illegal(what); }
}
typedef std::vector<long long> sizes;
typedef std::vector<double> row_t;
static double tf32_of(double v) {
    float f = (float)v;
    unsigned u = __float_as_uint(f);
    return __uint_as_float((u + 0xFFF + (u >> 13 & 1)) & ~0x1FFFu);
}
static size_t bytes_of(cudaDataType t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }
static double get(const void *p, cudaDataType t, long long i) {
    switch (t) {
    case CUDA_R_64F: return ((const double *)p)[i];
    case CUDA_R_32F: return ((const float *)p)[i];
    case CUDA_R_16F: return __half2float(((const __half *)p)[i]);
    case CUDA_R_16BF: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    default: illegal("dtype");
    }
}
static void put(void *p, cudaDataType t, long long i, double v) {
    switch (t) {
    case CUDA_R_64F: ((double *)p)[i] = v; break;
    case CUDA_R_32F: ((float *)p)[i] = (float)v; break;
    case CUDA_R_16F: ((__half *)p)[i] = __float2half_rn((float)v); break;
    case CUDA_R_16BF: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)v); break;
    default: illegal("dtype");
    }
}
static void scribble(void *p, size_t n) {
    for (size_t i = 0; i < n; i++) { ((unsigned char *)p)[i] = 0xA5; }
}

// ----------------------------------------------------------------------------- cuBLASLt
struct desc_t { unsigned magic; int compute, scale, turned[2], epilogue; const void *bias; void *aux; long long aux_ld; };
struct layout_t { unsigned magic; int type; unsigned long long rows, columns; long long ld; int batch, more; long long stride; };
struct wish_t { unsigned magic; unsigned align[4], sums; unsigned long long most; };
struct algo_t { unsigned magic, align[4]; unsigned long long problem, workspace; };
enum { AUX = 128, DESC = 0xD15C, LAYOUT = 0x1A70, WISH = 0x315A, ALGO = 0xA160, HANDLE = 0x4A4D };
static_assert(sizeof(desc_t) <= sizeof(cublasLtMatmulDescOpaque_t) && sizeof(layout_t) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(wish_t) <= sizeof(cublasLtMatmulPreferenceOpaque_t) && sizeof(algo_t) <= sizeof(cublasLtMatmulAlgo_t), "");
struct blas_t { unsigned magic; int device; };

static cublasStatus_t ready() { return cusim::library_call() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED; }
static cublasStatus_t lt_create(cublasLtHandle_t *h) {
    if (ready()) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    blas_t *b = new blas_t{HANDLE, 0};
    cudaGetDevice(&b->device);
    *h = (cublasLtHandle_t)b;
    fakes.live++;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t lt_destroy(cublasLtHandle_t h) {
    demand(((blas_t *)h)->magic == HANDLE, "cublasLtDestroy of no handle");
    delete (blas_t *)h;
    fakes.live--;
    return CUBLAS_STATUS_SUCCESS;
}
static size_t lt_version() { return (size_t)fakes.blas_version; }
static const char *lt_text(cublasStatus_t e) {
    return e == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS of the fake";
}
static cublasStatus_t lt_desc(cublasLtMatmulDesc_t d, size_t n, cublasComputeType_t compute, cudaDataType_t scale) {
    demand(n == sizeof *d, "size of a description");
    demand((compute == CUBLAS_COMPUTE_64F) == (scale == CUDA_R_64F), "compute and scale types");
    std::memset((void *)d, 0, n);
    *(desc_t *)d = {DESC, compute, scale, {CUBLAS_OP_N, CUBLAS_OP_N}, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0};
    return ready();
}
static cublasStatus_t lt_desc_set(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t name, const void *v, size_t n) {
    desc_t *d = (desc_t *)p;
    demand(d->magic == DESC, "no description");
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: demand(n == 4, "size"); std::memcpy(&d->turned[0], v, 4); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: demand(n == 4, "size"); std::memcpy(&d->turned[1], v, 4); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: demand(n == 4, "size"); std::memcpy(&d->epilogue, v, 4); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: demand(n == 8, "size"); std::memcpy(&d->bias, v, 8); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: demand(n == 8, "size"); std::memcpy(&d->aux, v, 8); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: demand(n == 8, "size"); std::memcpy(&d->aux_ld, v, 8); break;
    default: illegal("attribute of a description");
    }
    return ready();
}
static cublasStatus_t lt_layout(cublasLtMatrixLayout_t p, size_t n, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
    demand(n == sizeof *p, "size of a layout");
    demand(rows && columns && ld >= (int64_t)rows, "leading dimension below the rows");
    *(layout_t *)p = {LAYOUT, type, rows, columns, ld, 1, 0, 0};
    return ready();
}
static cublasStatus_t lt_layout_set(cublasLtMatrixLayout_t p, cublasLtMatrixLayoutAttribute_t name, const void *v, size_t n) {
    layout_t *l = (layout_t *)p;
    demand(l->magic == LAYOUT, "no layout");
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: demand(n == 4, "size"); std::memcpy(&l->batch, v, 4); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: demand(n == 8, "size"); std::memcpy(&l->stride, v, 8); break;
    default: illegal("attribute of a layout");
    }
    return ready();
}
static cublasStatus_t lt_wish(cublasLtMatmulPreference_t p, size_t n) {
    demand(n == sizeof *p, "size of a preference");
    *(wish_t *)p = {WISH, {256, 256, 256, 256}, ~0u, 0};
    return ready();
}
static cublasStatus_t lt_wish_set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t name, const void *v, size_t n) {
    wish_t *w = (wish_t *)p;
    int k = name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES ? 0 : name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? 1
          : name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ? 2 : name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES ? 3 : -1;
    demand(w->magic == WISH, "no preference");
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        demand(n == 8, "size"), std::memcpy(&w->most, v, 8);
    } else if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        demand(n == 4, "size"), std::memcpy(&w->sums, v, 4);
    } else {
        demand(k >= 0 && n == 4, "attribute of a preference"), std::memcpy(&w->align[k], v, 4);
    }
    return ready();
}
// All that an algorithm depends on, but the addresses.
static unsigned long long problem_of(const desc_t &d, const layout_t *const *l) {
    unsigned long long h = 1;
    auto mix = [&](unsigned long long v) { h = (h ^ v) * 0x9E3779B97F4A7C15u; h ^= h >> 29; };
    mix((unsigned)d.compute), mix((unsigned)d.turned[0]), mix((unsigned)d.turned[1]), mix((unsigned)d.epilogue);
    mix((unsigned long long)d.aux_ld), mix((uintptr_t)d.aux % 16);
    for (int k = 0; k < 4; k++) {
        mix((unsigned)l[k]->type), mix(l[k]->rows), mix(l[k]->columns), mix((unsigned long long)l[k]->ld);
        mix((unsigned)l[k]->batch), mix((unsigned long long)l[k]->stride);
    }
    return h;
}
static bool is_slope(int epilogue) { return epilogue == CUBLASLT_EPILOGUE_DRELU || epilogue == CUBLASLT_EPILOGUE_DGELU; }
static bool is_gelu(int epilogue) { return epilogue & (CUBLASLT_EPILOGUE_GELU | (CUBLASLT_EPILOGUE_DGELU & ~AUX)); }
static void agree(const desc_t &d, const layout_t *const *l) {
    demand(d.magic == DESC && l[0]->magic == LAYOUT && l[1]->magic == LAYOUT && l[2]->magic == LAYOUT && l[3]->magic == LAYOUT,
           "no description or layout");
    bool ta = d.turned[0] == CUBLAS_OP_T, tb = d.turned[1] == CUBLAS_OP_T;
    unsigned long long n = ta ? l[0]->columns : l[0]->rows, k = ta ? l[0]->rows : l[0]->columns;
    demand(n == l[3]->rows && k == (tb ? l[1]->columns : l[1]->rows) && (tb ? l[1]->rows : l[1]->columns) == l[3]->columns,
           "matrices that do not fit each other");
    for (int i = 0; i < 4; i++) {
        demand(l[i]->type == l[0]->type && l[i]->batch == l[0]->batch, "types or batches that differ");
        demand((l[i]->type == CUDA_R_64F) == (d.compute == CUBLAS_COMPUTE_64F), "compute type");
    }
    demand(d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || l[0]->type == CUDA_R_32F, "TF32 for what is not f32");
    demand(l[3]->batch == 1 || l[3]->stride >= l[3]->ld * (long long)(l[3]->columns - 1) + (long long)l[3]->rows ||
               l[3]->ld >= l[3]->stride * l[3]->batch, "results that overlap");
    // Sums over k of B, one per column of the result, go where a bias would be.
    if (d.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        demand(d.bias && !d.aux && l[3]->batch == 1 && d.compute != CUBLAS_COMPUTE_64F, "sums beside the product");
        return;
    }
    // The epilogues are bits: an activation or its slope, its bias, a matrix beside. cublasLt.h's rules for that one: a
    // mask of bits, rows of 128, or gelu's x, rows of 8.
    int bits = d.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : d.epilogue, act = bits & ~(CUBLASLT_EPILOGUE_BIAS | AUX);
    demand(act == 0 || act == CUBLASLT_EPILOGUE_RELU || act == CUBLASLT_EPILOGUE_GELU || (is_slope(bits) && !d.bias), "epilogue");
    demand(!(bits & CUBLASLT_EPILOGUE_BIAS) == !d.bias && !(bits & AUX) == !d.aux && (act || !d.aux), "epilogue");
    demand(!act || d.compute != CUBLAS_COMPUTE_64F, "an activation of f64");
    demand(!d.aux || (d.aux_ld >= (long long)l[3]->rows && d.aux_ld % (is_gelu(bits) ? 8 : 128) == 0 &&
                      (uintptr_t)d.aux % 16 == 0 && l[3]->batch == 1), "matrix beside the result");
}
static cublasStatus_t lt_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t dp, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t p, int wanted,
                                   cublasLtMatmulHeuristicResult_t *results, int *count) {
    const layout_t *l[4] = {(layout_t *)a, (layout_t *)b, (layout_t *)c, (layout_t *)d};
    const wish_t *w = (wish_t *)p;
    demand(((blas_t *)h)->magic == HANDLE && w->magic == WISH && wanted >= 1, "cublasLtMatmulAlgoGetHeuristic");
    demand(!(w->sums & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE), "sums in the dtype of the result");
    agree(*(desc_t *)dp, l);
    *count = 0;
    if (ready()) { return CUBLAS_STATUS_INTERNAL_ERROR; }
    fakes.plans++;
    if (fakes.refuse) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    if (fakes.refuse_row_sums && ((desc_t *)dp)->epilogue == CUBLASLT_EPILOGUE_BGRADB) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    // It has no slope for a product of one term.
    const desc_t &what = *(desc_t *)dp;
    const bool single = (what.turned[0] == CUBLAS_OP_T ? l[0]->rows : l[0]->columns) == 1;
    if ((is_slope(what.epilogue) && single) || (fakes.refuse_slopes && what.aux)) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    std::memset((void *)results, 0, sizeof *results);
    unsigned long long space = w->most < 1024 ? 0 : 1024;
    algo_t algo = {ALGO, {w->align[0], w->align[1], w->align[2], w->align[3]}, problem_of(*(desc_t *)dp, l), space};
    std::memcpy((void *)&results->algo, &algo, sizeof algo);
    results->workspaceSize = space;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t lt_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t dp, const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                                const void *b, cublasLtMatrixLayout_t lb, const void *beta, const void *c, cublasLtMatrixLayout_t lc,
                                void *d, cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *chosen, void *space, size_t bytes,
                                cudaStream_t s) {
    if (fakes.short_calls > 0 && fakes.short_calls--) { return CUBLAS_STATUS_ALLOC_FAILED; }
    const layout_t *l[4] = {(layout_t *)la, (layout_t *)lb, (layout_t *)lc, (layout_t *)ld};
    const void *at[4] = {a, b, c, d};
    const desc_t what = *(desc_t *)dp;
    const algo_t *algo = (const algo_t *)chosen;
    int device;
    cudaGetDevice(&device);
    demand(((blas_t *)h)->magic == HANDLE && ((blas_t *)h)->device == device && s, "cublasLtMatmul: handle or stream");
    agree(what, l);
    demand(algo->magic == ALGO && algo->problem == problem_of(what, l), "an algorithm of another product");
    demand(bytes >= algo->workspace && (!bytes || ((uintptr_t)space % 256 == 0 && cusim::on_device(space, bytes))), "workspace");
    for (int k = 0; k < 4; k++) {
        long long last = l[k]->ld * (long long)(l[k]->columns - 1) + (long long)l[k]->rows + l[k]->stride * (l[k]->batch - 1);
        demand((uintptr_t)at[k] % algo->align[k] == 0, "less aligned than planned");
        demand(cusim::on_device(at[k], (size_t)last * bytes_of((cudaDataType)l[k]->type)), "a matrix that is not on the device");
    }
    demand(!what.aux || cusim::on_device(what.aux, (size_t)what.aux_ld * l[3]->columns *
                                                       (is_gelu(what.epilogue) ? bytes_of((cudaDataType)l[3]->type) : 1) /
                                                       (is_gelu(what.epilogue) ? 1 : 8)), "the matrix beside");
    const bool summing = what.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const size_t biased = (size_t)(summing ? l[3]->columns : l[3]->rows) * bytes_of((cudaDataType)l[3]->type);
    demand(!what.bias || (cusim::on_device(what.bias, biased) && (uintptr_t)what.bias % 16 == 0), "bias");
    if (ready()) { return CUBLAS_STATUS_EXECUTION_FAILED; }
    bool f64 = what.scale == CUDA_R_64F, rounds = what.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    double by = f64 ? *(const double *)alpha : *(const float *)alpha, more = f64 ? *(const double *)beta : *(const float *)beta;
    layout_t A = *l[0], B = *l[1], C = *l[2], D = *l[3];
    fakes.products++;
    fakes.rounded += rounds;
    fakes.summed += summing;
    fakes.activated += (what.epilogue & (CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_GELU)) != 0;
    fakes.sloped += is_slope(what.epilogue);
    cudaError_t e = cusim::enqueue(s, [=] {
        bool ta = what.turned[0] == CUBLAS_OP_T, tb = what.turned[1] == CUBLAS_OP_T;
        long long n = (long long)D.rows, m = (long long)D.columns, inner = (long long)(ta ? A.rows : A.columns);
        cudaDataType t = (cudaDataType)D.type;
        bool relu = what.epilogue & CUBLASLT_EPILOGUE_RELU, gelu = what.epilogue & CUBLASLT_EPILOGUE_GELU;
        scribble(space, bytes);
        for (long long j = 0; summing && j < m; j++) {
            double sum = 0;
            for (long long k = 0; k < inner; k++) { sum += get(b, t, tb ? k * B.ld + j : j * B.ld + k); }
            put((void *)what.bias, t, j, sum);
        }
        for (int z = 0; z < D.batch; z++) {
            for (long long j = 0; j < m; j++) {
                for (long long i = 0; i < n; i++) {
                    double sum = 0;
                    for (long long k = 0; k < inner; k++) {
                        double x = get(a, t, z * A.stride + (ta ? i * A.ld + k : k * A.ld + i));
                        double y = get(b, t, z * B.stride + (tb ? k * B.ld + j : j * B.ld + k));
                        sum += rounds ? tf32_of(x) * tf32_of(y) : x * y;
                    }
                    sum *= by;
                    if (more != 0) { sum += more * get(c, t, z * C.stride + j * C.ld + i); }
                    sum += what.bias && !summing ? get(what.bias, t, i) : 0;
                    if (what.aux && gelu) { put(what.aux, t, j * what.aux_ld + i, sum); }
                    if (what.aux && relu) {
                        unsigned char *mask = (unsigned char *)what.aux + (j * what.aux_ld + i) / 8;
                        *mask = (unsigned char)((*mask & ~(1 << i % 8)) | (sum > 0) << i % 8);
                    }
                    if (relu) { sum = std::fmax(sum, 0); }
                    if (gelu) { sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum))); }
                    if (what.epilogue == CUBLASLT_EPILOGUE_DRELU) {
                        if (!(((unsigned char *)what.aux)[(j * what.aux_ld + i) / 8] >> i % 8 & 1)) { sum = 0; }
                    }
                    if (what.epilogue == CUBLASLT_EPILOGUE_DGELU) {
                        const double u = get(what.aux, t, j * what.aux_ld + i);
                        const double th = std::tanh(0.7978845608028654 * (u + 0.044715 * u * u * u));
                        sum *= 0.5 * (1 + th) + 0.5 * u * (1 - th * th) * 0.7978845608028654 * (1 + 3 * 0.044715 * u * u);
                    }
                    put(d, t, z * D.stride + j * D.ld + i, sum);
                }
            }
        }
    });
    return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

// ----------------------------------------------------------------------------- cuDNN
// A descriptor lives as long as another has it, as there.
struct node_t;
typedef std::shared_ptr<node_t> node_p;
struct value_t { int type; long long n; std::vector<unsigned char> bytes; std::vector<node_p> nodes; };
struct node_t {
    int kind;
    bool done = false;
    std::map<int, value_t> set;
    std::vector<int> notes;                     // of an engine's configuration
    long long workspace = 0;
    double ms = 0;                              // that a convolution by it takes; negative: it fails
    const value_t *find(int name) const {
        auto it = set.find(name);
        return it == set.end() ? nullptr : &it->second;
    }
    template <class T> T one(int name) const {
        const value_t *v = find(name);
        T x;
        demand(v && v->n == 1 && v->bytes.size() == sizeof x, "an attribute is missing");
        std::memcpy(&x, v->bytes.data(), sizeof x);
        return x;
    }
    sizes list(int name) const {
        const value_t *v = find(name);
        demand(v && v->type == CUDNN_TYPE_INT64, "a list is missing");
        sizes x((size_t)v->n);
        std::memcpy(x.data(), v->bytes.data(), v->bytes.size());
        return x;
    }
    node_p node(int name, size_t k = 0) const {
        const value_t *v = find(name);
        demand(v && k < v->nodes.size(), "a descriptor is missing");
        return v->nodes[k];
    }
};
// A graph for sizes that vary, and what it is but for its sizes: the kinds of its operations, in order.
static bool varies(const node_t &graph) { return graph.find(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED) != nullptr; }
static std::vector<int> kinds_of(const node_t &graph) {
    std::vector<int> kinds;
    for (const node_p &op : graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->nodes) { kinds.push_back(op->kind); }
    return kinds;
}
struct dnn_t { unsigned magic; int device; cudaStream_t stream; };
static node_p &node_of(cudnnBackendDescriptor_t d) {
    demand(d != nullptr, "NULL for a descriptor");
    return *(node_p *)d;
}
static const char *dnn_words = "";
static cudnnStatus_t no(const char *text) {
    dnn_words = text;
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static cudnnStatus_t dnn_ready() {
    if (cusim::library_call()) { return CUDNN_STATUS_SUCCESS; }
    dnn_words = "this call had to fail";
    return CUDNN_STATUS_INTERNAL_ERROR;
}
static cudnnStatus_t dnn_create(cudnnHandle_t *h) {
    if (dnn_ready()) { return CUDNN_STATUS_NOT_INITIALIZED; }
    dnn_t *d = new dnn_t{HANDLE, 0, nullptr};
    cudaGetDevice(&d->device);
    *h = (cudnnHandle_t)d;
    fakes.live++;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t dnn_destroy(cudnnHandle_t h) {
    demand(((dnn_t *)h)->magic == HANDLE, "cudnnDestroy of no handle");
    delete (dnn_t *)h;
    fakes.live--;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t dnn_stream(cudnnHandle_t h, cudaStream_t s) {
    demand(((dnn_t *)h)->magic == HANDLE && s, "cudnnSetStream");
    ((dnn_t *)h)->stream = s;
    return dnn_ready();
}
static const char *dnn_text(cudnnStatus_t e) { return e == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS of the fake"; }
static void dnn_last(char *text, size_t n) { std::snprintf(text, n, "%s", dnn_words); }
static size_t dnn_version() { return (size_t)fakes.dnn_version; }
static cudnnStatus_t be_create(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *d) {
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    node_p n = std::make_shared<node_t>();
    n->kind = kind;
    *d = (cudnnBackendDescriptor_t) new node_p(n);
    fakes.live++;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t be_destroy(cudnnBackendDescriptor_t d) {
    delete &node_of(d);
    fakes.live--;
    return CUDNN_STATUS_SUCCESS;
}
static size_t width(cudnnBackendAttributeType_t t) {
    switch (t) {
    case CUDNN_TYPE_INT64: case CUDNN_TYPE_DOUBLE: case CUDNN_TYPE_VOID_PTR: case CUDNN_TYPE_HANDLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4;
    }
}
static cudnnStatus_t be_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                            const void *v) {
    node_t &o = *node_of(d);
    demand(!o.done, "an attribute of a finished descriptor is set");
    value_t x = {type, n, {}, {}};
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t k = 0; k < n; k++) {
            x.nodes.push_back(node_of(((cudnnBackendDescriptor_t *)v)[k]));
            demand(x.nodes.back()->done, "a descriptor that is not finished is used");
        }
    } else {
        x.bytes.assign((const unsigned char *)v, (const unsigned char *)v + (size_t)n * width(type));
    }
    o.set[name] = x;
    return dnn_ready();
}

// A convolution by the names of the operation's kind: x, w and y are the large image, weight and small image.
struct names_t { int alpha, beta, conv, x, w, y; };
static const names_t *names_of(int kind) {
    static const names_t n[3] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
    return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR       ? &n[0]
         : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? &n[1]
         : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? &n[2] : nullptr;
}
static cudaDataType type_of(int t) {
    return t == CUDNN_DATA_DOUBLE ? CUDA_R_64F : t == CUDNN_DATA_FLOAT ? CUDA_R_32F : t == CUDNN_DATA_HALF ? CUDA_R_16F
         : t == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF : t == CUDNN_DATA_INT32 ? CUDA_R_32I : t == CUDNN_DATA_BOOLEAN ? CUDA_R_8I
         : (illegal("dtype of a tensor"), CUDA_R_32F);
}
struct tensor_t {
    sizes dims, strides;
    cudaDataType type;
    long long id, alignment;
    explicit tensor_t(const node_t &n)
        : dims(n.list(CUDNN_ATTR_TENSOR_DIMENSIONS)), strides(n.list(CUDNN_ATTR_TENSOR_STRIDES)),
          type(type_of(n.one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE))), id(n.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
          alignment(n.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)) { }
    long long extent() const {
        long long e = 1;
        for (size_t d = 0; d < dims.size(); d++) { e += (dims[d] - 1) * strides[d]; }
        return e;
    }
    long long count() const {
        long long e = 1;
        for (long long d : dims) { e *= d; }
        return e;
    }
    long long place(long long i) const {        // of element i in row-major order
        long long p = 0;
        for (size_t d = dims.size(); d-- > 0; i /= dims[d]) { p += i % dims[d] * strides[d]; }
        return p;
    }
};
static int result_of(int kind) {
    const names_t &a = *names_of(kind);
    return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? a.y
         : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? a.x : a.w;
}
static bool is_virtual(const node_t &n) { return n.find(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != nullptr; }
static void check_convolution(const node_t &op) {
    const names_t &a = *names_of(op.kind);
    const node_t &c = *op.node(a.conv);
    tensor_t x(*op.node(a.x)), w(*op.node(a.w)), y(*op.node(a.y));
    sizes pre = c.list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), post = c.list(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    sizes step = c.list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), spread = c.list(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    size_t n = pre.size();
    demand(c.one<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION, "not a cross correlation");
    demand(c.one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == (int64_t)n && (n == 2 || n == 3) && post.size() == n && step.size() == n &&
               spread.size() == n && x.dims.size() == n + 2 && w.dims.size() == n + 2 && y.dims.size() == n + 2, "dims of a convolution");
    demand(x.dims[0] == y.dims[0] && w.dims[0] == y.dims[1] && x.dims[1] % w.dims[1] == 0 && w.dims[0] % (x.dims[1] / w.dims[1]) == 0,
           "channels of a convolution");
    bool f64 = x.type == CUDA_R_64F;
    demand(c.one<int>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == (f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT), "compute type");
    demand((f64 ? op.one<double>(a.alpha) == 1 && op.one<double>(a.beta) == 0 : op.one<float>(a.alpha) == 1 && op.one<float>(a.beta) == 0),
           "factors of a convolution");
    for (size_t k = 0; k < n; k++) {
        demand(pre[k] >= 0 && post[k] >= 0 && step[k] > 0 && spread[k] > 0, "numbers of a convolution");
        long long span = (w.dims[k + 2] - 1) * spread[k] + 1;
        demand(y.dims[k + 2] == (x.dims[k + 2] + pre[k] + post[k] - span) / step[k] + 1, "sizes of a convolution");
    }
}
// ----------------------------------------------------------------------------- graphs of attention
// Operations in order, each on all of its tensors, in double; what is inside has its dtype's precision.
struct step_t { node_p x, b, t, y; };           // b: the second factor, t: what selects
static step_t step_of(const node_t &op) {
    auto maybe = [&](int name) { return op.find(name) ? op.node(name) : nullptr; };
    switch (op.kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return {op.node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), maybe(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                maybe(CUDNN_ATTR_OPERATION_POINTWISE_TDESC), op.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {op.node(CUDNN_ATTR_OPERATION_MATMUL_ADESC), op.node(CUDNN_ATTR_OPERATION_MATMUL_BDESC), nullptr,
                op.node(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {op.node(CUDNN_ATTR_OPERATION_REDUCTION_XDESC), nullptr, nullptr, op.node(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return {op.node(CUDNN_ATTR_OPERATION_RESHAPE_XDESC), nullptr, nullptr, op.node(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    default: illegal("operation of a graph");
    }
}
static bool is_half(const tensor_t &t) { return t.type == CUDA_R_16F || t.type == CUDA_R_16BF; }
static int mode_of(const node_t &op) { return op.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->one<int>(CUDNN_ATTR_POINTWISE_MODE); }
static void check_flow(const value_t &ops) {
    std::map<const node_t *, int> made, used;   // by which operation, how often
    std::map<long long, const node_t *> ids;
    for (const node_p &op : ops.nodes) {
        step_t s = step_of(*op);
        tensor_t x(*s.x), y(*s.y);
        for (const node_p &in : {s.x, s.b, s.t}) {
            if (!in) { continue; }
            demand(!is_virtual(*in) || made.count(in.get()), "what no operation before made is used");
            used[in.get()]++;
        }
        for (const node_p &t : {s.x, s.b, s.t, s.y}) {
            if (t) { demand(ids.emplace(tensor_t(*t).id, t.get()).first->second == t.get(), "one id for two tensors"); }
        }
        demand(made.emplace(s.y.get(), 1).second && !s.y->find(CUDNN_ATTR_TENSOR_IS_BY_VALUE), "a tensor is made twice");
        size_t n = y.dims.size();
        demand(x.dims.size() == n && (!s.b || tensor_t(*s.b).dims.size() == n), "ranks that differ");
        if (op->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
            tensor_t b(*s.b);
            demand(is_half(x) && b.type == x.type, "factors of a product that are not both f16 or bf16");
            demand(op->node(CUDNN_ATTR_OPERATION_MATMUL_DESC)->one<int>(CUDNN_ATTR_MATMUL_COMP_TYPE) == CUDNN_DATA_FLOAT, "compute type");
            demand(x.dims[n - 2] == y.dims[n - 2] && x.dims[n - 1] == b.dims[n - 2] && b.dims[n - 1] == y.dims[n - 1], "sizes of a product");
            for (size_t d = 0; d + 2 < n; d++) { demand(x.dims[d] == y.dims[d] && b.dims[d] == y.dims[d], "batches of a product"); }
        } else if (op->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
            demand(x.count() == y.count() && x.extent() == y.extent(), "sizes of a view");
        } else if (op->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
            for (size_t d = 0; d < n; d++) { demand(y.dims[d] == x.dims[d] || y.dims[d] == 1, "sizes of a sum"); }
        } else {
            for (const node_p &in : {s.x, s.b, s.t}) {
                for (size_t d = 0; in && d < n; d++) {
                    tensor_t a(*in);
                    demand(a.dims[d] == y.dims[d] || a.dims[d] == 1, "sizes of a pointwise operation");
                }
            }
            demand((mode_of(*op) == CUDNN_POINTWISE_BINARY_SELECT) == (s.t != nullptr), "what selects");
        }
    }
    for (auto &m : made) { demand(!is_virtual(*m.first) || used[m.first], "what nothing uses is made"); }
}
static void run_flow(const value_t &ops, const std::map<long long, void *> &at) {
    std::map<const node_t *, std::vector<double>> value;
    auto load = [&](const node_p &p) -> const std::vector<double> & {
        auto it = value.find(p.get());
        if (it != value.end()) { return it->second; }
        tensor_t t(*p);
        std::vector<double> &v = value[p.get()];
        for (long long i = 0; i < t.count(); i++) { v.push_back(get(at.at(t.id), t.type, t.place(i))); }
        return v;
    };
    for (const node_p &op : ops.nodes) {
        step_t s = step_of(*op);
        tensor_t x(*s.x), y(*s.y);
        size_t n = y.dims.size();
        long long rows = y.dims[n - 2], columns = y.dims[n - 1];
        std::vector<double> out((size_t)y.count());
        const std::vector<double> &a = load(s.x), none, &b = s.b ? load(s.b) : none, &c = s.t ? load(s.t) : none;
        auto place = [&](const node_p &p, long long i, const tensor_t &over) {        // of element i of over in p, which repeats
            tensor_t t(*p);
            long long to = 0, step = 1;
            for (size_t d = n; d-- > 0; i /= over.dims[d]) {
                to += t.dims[d] == 1 ? 0 : i % over.dims[d] * step;
                step *= t.dims[d];
            }
            return (size_t)to;
        };
        if (op->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
            long long inner = x.dims[n - 1];
            for (long long i = 0; i < y.count(); i++) {
                long long z = i / columns / rows, r = i / columns % rows, q = i % columns;
                for (long long k = 0; k < inner; k++) {
                    out[(size_t)i] += a[(size_t)((z * rows + r) * inner + k)] * b[(size_t)((z * inner + k) * columns + q)];
                }
            }
        } else if (op->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
            std::vector<double> memory((size_t)x.extent());
            for (long long i = 0; i < x.count(); i++) { memory[(size_t)x.place(i)] = a[(size_t)i]; }
            for (long long i = 0; i < y.count(); i++) { out[(size_t)i] = memory[(size_t)y.place(i)]; }
        } else if (op->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
            bool most = op->node(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
            for (double &v : out) { v = most ? -INFINITY : 0; }
            for (long long i = 0; i < x.count(); i++) {
                double &v = out[place(s.y, i, x)];
                v = most ? (a[(size_t)i] > v ? a[(size_t)i] : v) : v + a[(size_t)i];
            }
        } else {
            int mode = mode_of(*op);
            for (long long i = 0; i < y.count(); i++) {
                double u = a[place(s.x, i, y)], w = s.b ? b[place(s.b, i, y)] : 0;
                long long axis = mode == CUDNN_POINTWISE_GEN_INDEX
                    ? op->node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : 0, rest = i;
                for (long long d = (long long)n - 1; d > axis; d--) { rest /= y.dims[(size_t)d]; }
                out[(size_t)i] = mode == CUDNN_POINTWISE_ADD ? u + w : mode == CUDNN_POINTWISE_SUB ? u - w
                    : mode == CUDNN_POINTWISE_MUL ? u * w : mode == CUDNN_POINTWISE_DIV ? u / w
                    : mode == CUDNN_POINTWISE_EXP ? std::exp(u) : mode == CUDNN_POINTWISE_LOG ? std::log(u)
                    : mode == CUDNN_POINTWISE_GEN_INDEX ? (double)(rest % y.dims[(size_t)axis])
                    : mode == CUDNN_POINTWISE_CMP_GE ? u >= w
                    : mode == CUDNN_POINTWISE_BINARY_SELECT ? (c[place(s.t, i, y)] != 0 ? u : w) : (illegal("pointwise"), 0.0);
            }
        }
        for (size_t i = 0; i < out.size(); i++) {
            double room = 0;
            if (is_half(y)) { put(&room, y.type, 0, out[i]), out[i] = get(&room, y.type, 0); }
            if (!is_virtual(*s.y)) { put(at.at(y.id), y.type, y.place((long long)i), out[i]); }
        }
        value[s.y.get()] = out;
    }
}
static cudnnStatus_t execute_flow(dnn_t *handle, const node_t &plan, node_p graph, const node_t &pack, char *space) {
    sizes ids = pack.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const value_t *data = pack.find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS), &ops = *graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    std::map<long long, void *> at, want;
    auto numbers = std::make_shared<std::map<long long, float>>();
    demand(data && data->n == (long long)ids.size(), "data of a plan");
    for (size_t k = 0; k < ids.size(); k++) { demand(at.emplace(ids[k], ((void *const *)(const void *)data->bytes.data())[k]).second, "ids"); }
    for (const node_p &op : ops.nodes) {
        step_t s = step_of(*op);
        for (const node_p &p : {s.x, s.b, s.t, s.y}) {
            if (!p || is_virtual(*p)) { continue; }
            tensor_t t(*p);
            demand(at.count(t.id), "no data for a tensor");
            void *x = want[t.id] = at[t.id];
            if (p->find(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
                demand(t.count() == 1 && t.type == CUDA_R_32F && !cusim::on_device(x, 4), "a number of the host's");
                want[t.id] = &((*numbers)[t.id] = *(const float *)x);
                continue;
            }
            demand((uintptr_t)x % (uintptr_t)t.alignment == 0, "less aligned than planned");
            demand(cusim::on_device(x, (size_t)t.extent() * bytes_of(t.type)), "a tensor that is not on the device");
        }
    }
    demand(want.size() == ids.size(), "data for what is no tensor of the graph");
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    fakes.attentions++;
    size_t bytes = (size_t)plan.workspace;
    cudaError_t queued = cusim::enqueue(handle->stream, [=] {
        scribble(space, bytes);
        (void)numbers;                          // want points there
        run_flow(*graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS), want);
    });
    return queued ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
// ----------------------------------------------------------------------------- batch norm
static bool is_norm(const node_t &op) {
    return op.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR || op.kind == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
}
static bool is_layer_norm(const node_t &op) {
    const bool forward = op.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
    return op.one<int>(forward ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE : CUDNN_ATTR_OPERATION_NORM_BWD_MODE) == CUDNN_LAYER_NORM;
}
enum { OF_X, OF_Y, OF_SCALE, OF_MEAN, OF_INVERSE, OF_BIAS, OF_EPS, OF_DY, OF_DSCALE, OF_DBIAS, OF_COUNT };
// Tensors of a norm; y is dx, back.
static std::vector<node_p> tensors_of(const node_t &op) {
    std::vector<node_p> t(OF_COUNT);
    if (op.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR) {
        t[OF_X] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC), t[OF_Y] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC);
        t[OF_SCALE] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC), t[OF_BIAS] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
        t[OF_MEAN] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC), t[OF_EPS] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
        t[OF_INVERSE] = op.node(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
    } else {
        t[OF_X] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC), t[OF_Y] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC);
        t[OF_DY] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC), t[OF_SCALE] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC);
        t[OF_MEAN] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC), t[OF_DSCALE] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC);
        t[OF_INVERSE] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC), t[OF_DBIAS] = op.node(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC);
    }
    return t;
}
static void check_norm(const node_t &op) {
    bool forward = op.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
    int mode = op.one<int>(forward ? CUDNN_ATTR_OPERATION_NORM_FWD_MODE : CUDNN_ATTR_OPERATION_NORM_BWD_MODE);
    demand(mode == CUDNN_BATCH_NORM || mode == CUDNN_LAYER_NORM, "mode of a norm");
    demand(!forward || op.one<int>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) == CUDNN_NORM_FWD_TRAINING, "phase of a norm");
    std::vector<node_p> t = tensors_of(op);
    tensor_t x(*t[OF_X]);
    for (int k = 0; k < OF_COUNT; k++) {
        if (!t[k]) { continue; }
        tensor_t s(*t[k]);
        bool image = k == OF_X || k == OF_Y || k == OF_DY;
        bool rows = mode == CUDNN_LAYER_NORM && (k == OF_MEAN || k == OF_INVERSE);
        demand(!is_virtual(*t[k]) && s.dims.size() == x.dims.size(), "a tensor of a norm");
        demand(image ? s.dims == x.dims && s.strides == x.strides && s.type == x.type
                     : s.type == CUDA_R_32F && s.count() == (k == OF_EPS ? 1 : x.dims[rows ? 0 : 1]) && (k == OF_EPS || s.dims[rows ? 0 : 1] == x.dims[rows ? 0 : 1]), "sizes of a norm");
        demand(mode == CUDNN_BATCH_NORM || !image || (s.strides[0] == s.dims[1] && s.strides[1] == 1), "rows of a layer norm");
        demand((t[k]->find(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != nullptr) == (k == OF_EPS), "a number of a norm");
    }
}
static cudnnStatus_t execute_norm(dnn_t *handle, const node_t &plan, node_p op, const node_t &pack, char *space) {
    sizes ids = pack.list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const value_t *data = pack.find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::vector<node_p> t = tensors_of(*op);
    std::vector<void *> at(OF_COUNT);
    size_t bytes = (size_t)plan.workspace, wanted = 0;
    float eps = 0;
    demand(data && data->n == (long long)ids.size(), "data of a plan");
    for (size_t k = 0; k < OF_COUNT; k++) {
        if (!t[k]) { continue; }
        tensor_t s(*t[k]);
        wanted++;
        for (size_t i = 0; i < ids.size(); i++) {
            if (ids[i] == s.id) { at[k] = ((void *const *)(const void *)data->bytes.data())[i]; }
        }
        demand(at[k], "no data for a tensor");
        if (k == OF_EPS) {
            demand(!cusim::on_device(at[k], 4), "a number of the host's");
            eps = *(const float *)at[k];
            continue;
        }
        demand((uintptr_t)at[k] % (uintptr_t)s.alignment == 0, "less aligned than planned");
        demand(cusim::on_device(at[k], (size_t)s.extent() * bytes_of(s.type)), "a tensor that is not on the device");
    }
    demand(wanted == ids.size(), "data for what is no tensor of the graph");
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    fakes.norms++;
    bool layer = op->one<int>(t[OF_DY] ? CUDNN_ATTR_OPERATION_NORM_BWD_MODE : CUDNN_ATTR_OPERATION_NORM_FWD_MODE) == CUDNN_LAYER_NORM;
    cudaError_t queued = cusim::enqueue(handle->stream, [=] {
        tensor_t x(*t[OF_X]);
        long long channels = x.dims[1], plane = 1, n = x.count() / channels;
        for (size_t d = 2; d < x.dims.size(); d++) { plane *= x.dims[d]; }
        auto element = [&](int which, long long c, long long i) {       // i-th of channel c
            return get(at[(size_t)which], x.type, x.place((i / plane * channels + c) * plane + i % plane));
        };
        auto row = [&](int which, long long c) { return (double)((const float *)at[(size_t)which])[c]; };
        auto set = [&](int which, long long c, double v) { ((float *)at[(size_t)which])[c] = (float)v; };
        scribble(space, bytes);
        row_t dscale((size_t)channels), dbias((size_t)channels);
        for (long long r = 0; r < n && layer; r++) {
            double a = 0, b = 0;
            auto put_row = [&](auto v) {
                for (long long c = 0; c < channels; c++) { put(at[OF_Y], x.type, x.place(r * channels + c), v(c)); }
            };
            if (!t[OF_DY]) {
                for (long long c = 0; c < channels; c++) { a += element(OF_X, c, r) / (double)channels; }
                for (long long c = 0; c < channels; c++) { b += (element(OF_X, c, r) - a) * (element(OF_X, c, r) - a) / (double)channels; }
                b = 1 / std::sqrt(b + eps);
                set(OF_MEAN, r, a), set(OF_INVERSE, r, b);
                put_row([&](long long c) { return (element(OF_X, c, r) - a) * b * row(OF_SCALE, c) + row(OF_BIAS, c); });
                continue;
            }
            double mean = row(OF_MEAN, r), inverse = row(OF_INVERSE, r);
            for (long long c = 0; c < channels; c++) {
                double g = element(OF_DY, c, r), h = (element(OF_X, c, r) - mean) * inverse;
                a += g * row(OF_SCALE, c) / (double)channels, b += g * row(OF_SCALE, c) * h / (double)channels;
                dscale[(size_t)c] += g * h, dbias[(size_t)c] += g;
            }
            put_row([&](long long c) { return inverse * (element(OF_DY, c, r) * row(OF_SCALE, c) - a - (element(OF_X, c, r) - mean) * inverse * b); });
        }
        for (long long c = 0; c < channels && layer && t[OF_DY]; c++) { set(OF_DSCALE, c, dscale[(size_t)c]), set(OF_DBIAS, c, dbias[(size_t)c]); }
        for (long long c = 0; c < channels && !layer; c++) {
            double sum = 0, more = 0;
            if (!t[OF_DY]) {
                for (long long i = 0; i < n; i++) { sum += element(OF_X, c, i); }
                sum /= (double)n;
                for (long long i = 0; i < n; i++) { more += (element(OF_X, c, i) - sum) * (element(OF_X, c, i) - sum); }
                more = 1 / std::sqrt(more / (double)n + eps);
                set(OF_MEAN, c, sum), set(OF_INVERSE, c, more);
                for (long long i = 0; i < n; i++) {
                    put(at[OF_Y], x.type, x.place((i / plane * channels + c) * plane + i % plane),
                        (element(OF_X, c, i) - sum) * more * row(OF_SCALE, c) + row(OF_BIAS, c));
                }
                continue;
            }
            double mean = row(OF_MEAN, c), inverse = row(OF_INVERSE, c);
            for (long long i = 0; i < n; i++) {
                sum += element(OF_DY, c, i);
                more += element(OF_DY, c, i) * (element(OF_X, c, i) - mean) * inverse;
            }
            set(OF_DBIAS, c, sum), set(OF_DSCALE, c, more);
            for (long long i = 0; i < n; i++) {
                double v = element(OF_DY, c, i) - sum / (double)n - (element(OF_X, c, i) - mean) * inverse * more / (double)n;
                put(at[OF_Y], x.type, x.place((i / plane * channels + c) * plane + i % plane), v * inverse * row(OF_SCALE, c));
            }
        }
    });
    return queued ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t be_finish(cudnnBackendDescriptor_t d) {
    node_t &o = *node_of(d);
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    demand(!o.done, "a descriptor is finished twice");
    switch (o.kind) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
        tensor_t t(o);
        demand(t.dims.size() == t.strides.size() && t.alignment > 0 && !(t.alignment & (t.alignment - 1)), "a tensor");
        for (size_t k = 0; k < t.dims.size(); k++) { demand(t.dims[k] > 0 && t.strides[k] > 0, "sizes of a tensor"); }
        break;
    }
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: break;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR: case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR: check_norm(o); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
        const value_t *ops = o.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
        demand(ops && ops->n && o.find(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "a graph");
        const node_t &op = *ops->nodes[0];
        if (is_norm(op)) {
            demand(ops->n == 1, "a norm's graph");
            break;
        }
        if (!names_of(op.kind)) {
            check_flow(*ops);
            break;
        }
        demand(ops->n == 1 || (ops->n == 2 && mode_of(*ops->nodes[1]) == CUDNN_POINTWISE_ADD), "a convolution's graph");
        demand(names_of(op.kind) && is_virtual(*op.node(result_of(op.kind))) == (ops->n == 2), "operations");
        break;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
        node_p graph = o.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        const value_t *ops = graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
        if (fakes.refuse) { return no("this fake refuses all"); }
        if (varies(*graph)) {                           // as cuDNN 9.19 has them: attention forward, layer norm
            for (const node_p &op : ops->nodes) {
                if (op->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) { return no("no engine for sizes that vary"); }
            }
            if (is_norm(*ops->nodes[0]) && !is_layer_norm(*ops->nodes[0])) { return no("no engine for sizes that vary"); }
        }
        if (is_norm(*ops->nodes[0])) { break; }
        if (!names_of(ops->nodes[0]->kind)) {
            for (const node_p &op : ops->nodes) {       // products along rows of 8
                tensor_t x(*step_of(*op).x);
                bool product = op->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !is_virtual(*step_of(*op).x);
                if (product && x.dims[3] % 8) { return no("a head's size that is no multiple of 8"); }
            }
            break;
        }
        tensor_t given(*ops->nodes[0]->node(names_of(ops->nodes[0]->kind)->w));      // the result may be inner
        if (fakes.refuse_sums && ops->n == 2 && bytes_of(given.type) > 2) { return no("no engine adds a bias of this dtype"); }
        break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        const node_t &config = *o.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        demand(o.find(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "a plan without a handle");
        fakes.plans++;
        if (config.workspace < 0) { return no("this engine cannot be made"); }
        o.workspace = config.workspace;
        const node_p graph = config.node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
        demand(varies(*graph) == (o.find(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE) != nullptr), "a cache goes with sizes that vary");
        fakes.compiled++;
        if (!varies(*graph)) { break; }
        node_t &cache = *o.node(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE);
        demand(kinds_of(*cache.node(CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH)) == kinds_of(*graph), "the cache of other operations");
        bool compiled = false;
        for (int note : cache.notes) { compiled = compiled || note == config.workspace; }
        if (compiled) { fakes.compiled--; } else { cache.notes.push_back((int)config.workspace); }
        break;
    }
    case CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR:
        demand(varies(*o.node(CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH)), "a cache for sizes that vary");
        break;
    default:
        if (names_of(o.kind)) {
            check_convolution(o);
        } else {
            illegal("kind of descriptor");
        }
    }
    o.done = true;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t be_get(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                            int64_t *n, void *v) {
    node_p o = node_of(d);
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    demand(o->done, "an attribute of what is not finished is asked for");
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
        // What heuristics offer first is not what may be taken: sums in any order, TF32, half as many bits; one
        // that cannot be made, one that wants a terabyte; nor what is the fastest. One of the last three fails when it
        // runs. After them there are more than anybody tries.
        struct choice_t { std::vector<int> notes; long long workspace; double ms; };
        std::vector<choice_t> quick = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0, 1}, {{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 0, 1},
            {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, -1, 1}, {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 4096, 5e3}};
        std::vector<choice_t> slow = {{{}, 1ll << 40, 1}, {{CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0, 1},
            {{}, 512, 4e3}, {{}, 1536, 2e3}, {{}, 2560, -1}, {{}, 2048, 3e3}};
        for (long long k = 0; k < 10; k++) { slow.push_back({{}, 8192 + 512 * k, k < 6 ? 6e3 : 1}); }
        auto &list = o->one<int>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A ? quick : slow;
        demand(room >= (int64_t)list.size() && type == CUDNN_TYPE_BACKEND_DESCRIPTOR, "room for engines");
        for (size_t k = 0; k < list.size(); k++) {
            node_t &c = *node_of(((cudnnBackendDescriptor_t *)v)[k]);
            demand(c.kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !c.done, "room for engines");
            c.notes = list[k].notes;
            c.workspace = list[k].workspace;
            c.ms = list[k].ms;
            c.set[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {o->node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)}};
            c.done = true;
        }
        *n = (int64_t)list.size();
        break;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        node_t &engine = *node_of(*(cudnnBackendDescriptor_t *)v);
        demand(engine.kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
        engine.notes = o->notes;
        engine.done = true;
        *n = 1;
        break;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        demand(room >= (int64_t)o->notes.size(), "room for notes");
        for (size_t k = 0; k < o->notes.size(); k++) { ((cudnnBackendNumericalNote_t *)v)[k] = (cudnnBackendNumericalNote_t)o->notes[k]; }
        *n = (int64_t)o->notes.size();
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)v = o->workspace;
        *n = 1;
        break;
    default: illegal("an attribute that nothing asks for");
    }
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t be_execute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    if (fakes.short_calls > 0 && fakes.short_calls--) { return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED; }
    dnn_t *handle = (dnn_t *)h;
    node_p p = node_of(plan), v = node_of(pack);
    int device;
    cudaGetDevice(&device);
    demand(p->done && v->done && handle->magic == HANDLE && handle->device == device && handle->stream &&
               p->one<void *>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == (void *)h, "cudnnBackendExecute: handle, plan or stream");
    node_p config = p->node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    node_p graph = config->node(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    const value_t *ops = graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    char *space = (char *)v->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    demand(!p->workspace || ((uintptr_t)space % 256 == 0 && cusim::on_device(space, (size_t)p->workspace)), "workspace");
    for (int note : config->notes) {
        demand(note != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && note != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "an engine that may not be taken");
    }
    if (is_norm(*ops->nodes[0])) { return execute_norm(handle, *p, ops->nodes[0], *v, space); }
    if (!names_of(ops->nodes[0]->kind)) { return execute_flow(handle, *p, graph, *v, space); }
    node_p op = ops->nodes[0], add = ops->n == 2 ? ops->nodes[1] : nullptr;
    const names_t &a = *names_of(op->kind);
    sizes ids = v->list(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const value_t *data = v->find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    demand(data && data->n == (long long)ids.size() && ids.size() == (add ? 4u : 3u), "data of a plan");
    auto at = [&](const tensor_t &t) -> void * {
        for (size_t k = 0; k < ids.size(); k++) {
            void *x = ((void *const *)(const void *)data->bytes.data())[k];
            if (ids[k] != t.id) { continue; }
            demand((uintptr_t)x % (uintptr_t)t.alignment == 0, "less aligned than planned");
            demand(cusim::on_device(x, (size_t)t.extent() * bytes_of(t.type)), "a tensor that is not on the device");
            return x;
        }
        illegal("no data for a tensor");
    };
    tensor_t t[3] = {tensor_t(*op->node(a.x)), tensor_t(*op->node(a.w)), tensor_t(*op->node(a.y))};
    int result = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? 2
               : op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0 : 1;
    tensor_t y = add ? tensor_t(*add->node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)) : t[result];
    demand(!add || (add->node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC) == op->node(result_of(op->kind)) && y.dims == t[result].dims), "sum");
    void *from[3], *to = at(y), *bias = nullptr;
    for (int k = 0; k < 3; k++) { from[k] = k == result ? nullptr : at(t[k]); }
    sizes bias_dims;
    if (add) {
        tensor_t b(*add->node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
        demand(b.dims[1] == y.dims[1] && b.count() == y.dims[1], "bias");
        bias = at(b);
    }
    const node_t &c = *op->node(a.conv);
    sizes pre = c.list(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), step = c.list(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    sizes spread = c.list(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    bool rounds = t[0].type == CUDA_R_32F && config->notes == std::vector<int>{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    long long space_bytes = p->workspace;
    cudnnStatus_t e = dnn_ready();
    if (e) { return e; }
    if (config->ms < 0) { return no("this engine cannot run"); }
    const double ms = fakes.timed ? config->ms : 0;
    fakes.engine = space_bytes;
    fakes.convs++;
    fakes.rounded += rounds;
    fakes.fused += add != nullptr;
    tensor_t X = t[0], W = t[1], Y = t[2];
    void *fx = from[0], *fw = from[1], *fy = from[2];
    cudaError_t queued = cusim::enqueue(handle->stream, [=] {
        size_t n = pre.size();
        std::vector<double> sums((size_t)y.count(), 0.0), x, w, dy;
        auto load = [&](std::vector<double> &into, const tensor_t &s, const void *p_) {
            for (long long i = 0; p_ && i < s.count(); i++) {
                double q = get(p_, s.type, s.place(i));
                into.push_back(rounds ? tf32_of(q) : q);
            }
        };
        cusim::time_passes(ms);
        load(x, X, fx), load(w, W, fw), load(dy, Y, fy);
        scribble(space, (size_t)space_bytes);
        long long cg = W.dims[1], og = W.dims[0] / (X.dims[1] / cg), taps = 1, out = 1, in = 1;
        for (size_t k = 0; k < n; k++) { taps *= W.dims[k + 2], out *= Y.dims[k + 2], in *= X.dims[k + 2]; }
        for (long long image = 0; image < Y.dims[0]; image++) {
            for (long long o = 0; o < W.dims[0]; o++) {
                for (long long pixel = 0; pixel < out; pixel++) {
                    for (long long tap = 0; tap < taps; tap++) {
                        long long r = pixel, q = tap, place = 0, scale = 1;
                        bool inside = true;
                        for (size_t k = n; k-- > 0; r /= Y.dims[k + 2], q /= W.dims[k + 2], scale *= X.dims[k + 2]) {
                            long long i = r % Y.dims[k + 2] * step[k] - pre[k] + q % W.dims[k + 2] * spread[k];
                            inside = inside && i >= 0 && i < X.dims[k + 2];
                            place += i * scale;
                        }
                        for (long long ch = 0; ch < cg && inside; ch++) {
                            size_t ix = (size_t)((image * X.dims[1] + o / og * cg + ch) * in + place);
                            size_t iw = (size_t)((o * cg + ch) * taps + tap), iy = (size_t)((image * Y.dims[1] + o) * out + pixel);
                            if (result == 2) { sums[iy] += x[ix] * w[iw]; }
                            if (result == 0) { sums[ix] += dy[iy] * w[iw]; }
                            if (result == 1) { sums[iw] += dy[iy] * x[ix]; }
                        }
                    }
                }
            }
        }
        long long plane = 1;
        for (size_t k = 2; k < y.dims.size(); k++) { plane *= y.dims[k]; }
        for (long long i = 0; i < y.count(); i++) {
            put(to, y.type, y.place(i), sums[(size_t)i] + (bias ? get(bias, y.type, i / plane % y.dims[1]) : 0));
        }
    });
    return queued ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

// ----------------------------------------------------------------------------- recurrent nets
// The net in double, by its weights' places in the space: of each pseudo layer the matrices of x, then of h, gate by
// gate (i f g o; r z n), then all biases likewise; net_gap bytes between two. Backward computes forward anew; what was
// kept says which pass was last.
struct rnn_t {
    unsigned magic = HANDLE;
    int mode = -1, bias = 0, dirs = 1, type = 0, features = 0, h = 0, layers = 0;
    bool rounds = false;
    int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
    long long in(int end) const { return end < dirs ? features : h * dirs; }
    size_t size() const { return bytes_of(type_of(type)); }
    // Of part id of an end, its bias (which) or matrix; end = layers * dirs: all
    long long place(int which, int end, int id) const {
        long long at = 0;
        for (int w = 0; w < (bias ? 2 : 1); w++) {
            for (int e = 0; e < layers * dirs; e++) {
                for (int k = 0; k < 2 * gates(); k++) {
                    if (w == which && e == end && k == id) { return at; }
                    at += (long long)size() * h * (w ? 1 : k < gates() ? in(e) : h) + fakes.net_gap;
                }
            }
        }
        return at;
    }
};
struct rnn_data_t { unsigned magic = LAYOUT; int type = 0, layout = 0, steps = 0, items = 0, width = 0; };
struct rnn_tensor_t { unsigned magic = DESC; int type = -1; std::vector<int> dims; };
template <class T, class D> static cudnnStatus_t rnn_make(D *d) {
    if (dnn_ready()) { return CUDNN_STATUS_ALLOC_FAILED; }
    *d = (D) new T;
    fakes.live++;
    return CUDNN_STATUS_SUCCESS;
}
template <class T, class D> static cudnnStatus_t rnn_drop(D d) {
    demand(d != nullptr, "NULL for a descriptor");
    delete (T *)d;
    fakes.live--;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t rnn_set(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias, cudnnDirectionMode_t dir,
                             cudnnRNNInputMode_t input, cudnnDataType_t type, cudnnDataType_t prec, cudnnMathType_t math, int32_t features,
                             int32_t h, int32_t proj, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    rnn_t &n = *(rnn_t *)d;
    demand(algo == CUDNN_RNN_ALGO_STANDARD && input == CUDNN_LINEAR_INPUT && prec == CUDNN_DATA_FLOAT && !dropout && proj == h && h > 0 &&
               features > 0 && layers > 0 && flags == CUDNN_RNN_PADDED_IO_ENABLED && (bias == CUDNN_RNN_NO_BIAS || bias == CUDNN_RNN_DOUBLE_BIAS),
           "numbers of a recurrent net");
    demand((type == CUDNN_DATA_FLOAT) == (math != CUDNN_TENSOR_OP_MATH) && type != CUDNN_DATA_DOUBLE, "its math");
    n.mode = mode, n.bias = bias == CUDNN_RNN_DOUBLE_BIAS, n.dirs = dir == CUDNN_BIDIRECTIONAL ? 2 : 1, n.type = type;
    n.features = features, n.h = h, n.layers = layers, n.rounds = math == CUDNN_DEFAULT_MATH;
    return fakes.refuse ? no("this fake refuses all") : dnn_ready();
}
static cudnnStatus_t rnn_data(cudnnRNNDataDescriptor_t d, cudnnDataType_t type, cudnnRNNDataLayout_t layout, int steps, int items, int width,
                              const int *length, void *pad) {
    demand(layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && steps > 0 && items > 0 && width > 0 && !pad, "data of a recurrent net");
    for (int k = 0; k < items; k++) { demand(length[k] == steps, "length of an item"); }
    rnn_data_t x;
    x.type = type, x.layout = layout, x.steps = steps, x.items = items, x.width = width;
    *(rnn_data_t *)d = x;
    return dnn_ready();
}
static cudnnStatus_t rnn_tensor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n, const int *dims, const int *step) {
    rnn_tensor_t &t = *(rnn_tensor_t *)d;
    demand(n == 3 && step[2] == 1 && step[1] == dims[2] && step[0] == dims[1] * dims[2], "states of a recurrent net");
    t.type = type, t.dims.assign(dims, dims + n);
    return dnn_ready();
}
static cudnnStatus_t rnn_weights(cudnnHandle_t h, cudnnRNNDescriptor_t d, size_t *n) {
    demand(((dnn_t *)h)->magic == HANDLE, "a handle");
    *n = (size_t)((rnn_t *)d)->place(-1, 0, 0);
    return dnn_ready();
}
static size_t rnn_kept(const rnn_t &n, const rnn_data_t &x) { return 16 + (size_t)x.steps * (size_t)x.items * (size_t)(n.h * n.gates() * n.layers * n.dirs); }
static cudnnStatus_t rnn_spaces(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x, size_t *work, size_t *kept) {
    demand(((dnn_t *)h)->magic == HANDLE, "a handle");
    *work = 1000;
    *kept = mode == CUDNN_FWD_MODE_TRAINING ? rnn_kept(*(rnn_t *)d, *(rnn_data_t *)x) : 0;
    return dnn_ready();
}
static cudnnStatus_t rnn_part(cudnnHandle_t h, cudnnRNNDescriptor_t d, int32_t end, size_t bytes, const void *space, int32_t id,
                              cudnnTensorDescriptor_t md, void **m, cudnnTensorDescriptor_t bd, void **b) {
    rnn_t &n = *(rnn_t *)d;
    demand(((dnn_t *)h)->magic == HANDLE && md && bd && md != bd && space && bytes == (size_t)n.place(-1, 0, 0) && end >= 0 && end < n.layers * n.dirs &&
               id >= 0 && id < 2 * n.gates(), "part of a recurrent net's weights");
    *m = (char *)space + n.place(0, end, id);
    *b = n.bias ? (char *)space + n.place(1, end, id) : nullptr;
    return dnn_ready();
}
static row_t rnn_read(const rnn_t &n, const void *p, long long count) {
    row_t v((size_t)count);
    for (long long i = 0; p && i < count; i++) { v[(size_t)i] = get(p, type_of(n.type), i); }
    return v;
}
static void rnn_write(const rnn_t &n, void *p, const row_t &v) {
    for (size_t i = 0; p && i < v.size(); i++) { put(p, type_of(n.type), (long long)i, v[i]); }
}
// One pass over all: y and states; with dy (back), gradients too.
struct rnn_run_t {
    rnn_t n;
    rnn_data_t x_as;
    row_t x, w, h0, c0, y, hy, cy, dy, dhy, dcy, dx, dh0, dc0, dw;      // w, dw: the space
    size_t at(int which, int end, int id) const { return (size_t)n.place(which, end, id) / n.size(); }
    size_t spot(int t, int b, int width, int k) const {                 // of feature k of item b
        bool first = x_as.layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
        return (size_t)((first ? (long long)b * x_as.steps + t : (long long)t * x_as.items + b) * width + k);
    }
    void run(bool back) {
        const int T = x_as.steps, N = x_as.items, H = n.h, G = n.gates(), D = n.dirs, ends = n.layers * D;
        auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
        std::vector<row_t> layer = {x};
        struct kept_t { row_t gate, h, c, hn; };                        // a step's, for each item
        std::vector<std::vector<kept_t>> kept((size_t)ends, std::vector<kept_t>((size_t)T));
        hy.assign((size_t)(ends * N * H), 0), cy = hy;
        for (int l = 0; l < n.layers; l++) {
            row_t out((size_t)(T * N * H * D));
            int in = (int)n.in(l * D);
            for (int d = 0; d < D; d++) {
                int e = l * D + d;
                for (int s = 0; s < T; s++) {
                    int t = d ? T - 1 - s : s;
                    kept_t &v = kept[(size_t)e][(size_t)t];
                    v.gate.resize((size_t)(N * G * H)), v.h.resize((size_t)(N * H)), v.c = v.h, v.hn = v.h;
                    for (int b = 0; b < N; b++) {
                        double *h = &v.h[(size_t)(b * H)], *c = &v.c[(size_t)(b * H)];
                        for (int k = 0; k < H; k++) {
                            size_t i = (size_t)((e * N + b) * H + k);
                            h[k] = s ? hy[i] : h0[i], c[k] = s ? cy[i] : c0[i];
                        }
                        auto sum = [&](int g, int k, bool hidden) {
                            int id = g + (hidden ? G : 0);
                            double a = n.bias ? w[at(1, e, id) + (size_t)k] : 0;
                            for (int j = 0; j < (hidden ? H : in); j++) {
                                a += w[at(0, e, id) + (size_t)(k * (hidden ? H : in) + j)] * (hidden ? h[j] : layer.back()[spot(t, b, in, j)]);
                            }
                            return a;
                        };
                        for (int k = 0; k < H; k++) {
                            double g[4] = {}, now, &hn = v.hn[(size_t)(b * H + k)];
                            size_t i = (size_t)((e * N + b) * H + k);
                            for (int q = 0; q < G; q++) {
                                double a = sum(q, k, false), u = sum(q, k, true);
                                hn = u;
                                g[q] = n.mode == CUDNN_LSTM ? (q == 2 ? std::tanh(a + u) : sigmoid(a + u))
                                     : n.mode == CUDNN_GRU ? (q == 2 ? std::tanh(a + g[0] * u) : sigmoid(a + u))
                                     : n.mode == CUDNN_RNN_TANH ? std::tanh(a + u) : (a + u > 0 ? a + u : 0);
                                v.gate[(size_t)((b * G + q) * H + k)] = g[q];
                            }
                            if (n.mode == CUDNN_LSTM) {
                                cy[i] = g[1] * c[k] + g[0] * g[2];
                                now = g[3] * std::tanh(cy[i]);
                            } else {
                                now = n.mode == CUDNN_GRU ? (1 - g[1]) * g[2] + g[1] * h[k] : g[0];
                            }
                            out[spot(t, b, H * D, d * H + k)] = now;
                        }
                        for (int k = 0; k < H; k++) { hy[(size_t)((e * N + b) * H + k)] = out[spot(t, b, H * D, d * H + k)]; }
                    }
                }
            }
            layer.push_back(out);
        }
        y = layer.back();
        if (!back) { return; }
        row_t g_out = dy;
        dh0 = dhy, dc0 = dcy;
        for (int l = n.layers; l-- > 0;) {
            int in = (int)n.in(l * D);
            row_t g_in((size_t)(T * N * in));
            for (int d = 0; d < D; d++) {
                int e = l * D + d;
                for (int s = T; s-- > 0;) {
                    int t = d ? T - 1 - s : s;
                    const kept_t &v = kept[(size_t)e][(size_t)t];
                    for (int b = 0; b < N; b++) {
                        row_t da((size_t)(2 * G * H)), before((size_t)H);
                        for (int k = 0; k < H; k++) {
                            size_t i = (size_t)((e * N + b) * H + k), j = (size_t)(b * H + k);
                            double g = dh0[i] + g_out[spot(t, b, H * D, d * H + k)], q[4] = {}, *a = &da[(size_t)k];
                            for (int p = 0; p < G; p++) { q[p] = v.gate[(size_t)((b * G + p) * H + k)]; }
                            auto both = [&](int p, double z) { a[p * H] = a[(p + G) * H] = z; };
                            if (n.mode == CUDNN_LSTM) {
                                double c = q[1] * v.c[j] + q[0] * q[2], th = std::tanh(c), dc = dc0[i] + g * q[3] * (1 - th * th);
                                both(0, dc * q[2] * q[0] * (1 - q[0])), both(1, dc * v.c[j] * q[1] * (1 - q[1]));
                                both(2, dc * q[0] * (1 - q[2] * q[2])), both(3, g * th * q[3] * (1 - q[3]));
                                dc0[i] = dc * q[1];
                            } else if (n.mode == CUDNN_GRU) {
                                double dn = g * (1 - q[1]) * (1 - q[2] * q[2]);
                                both(0, dn * v.hn[j] * q[0] * (1 - q[0])), both(1, g * (v.h[j] - q[2]) * q[1] * (1 - q[1]));
                                a[2 * H] = dn, a[(2 + G) * H] = dn * q[0];
                                before[(size_t)k] = g * q[1];
                            } else {
                                both(0, n.mode == CUDNN_RNN_TANH ? g * (1 - q[0] * q[0]) : q[0] > 0 ? g : 0);
                            }
                        }
                        for (int id = 0; id < 2 * G; id++) {
                            bool hidden = id >= G;
                            for (int k = 0; k < H; k++) {
                                double z = da[(size_t)(id * H + k)];
                                if (n.bias) { dw[at(1, e, id) + (size_t)k] += z; }
                                for (int j = 0; j < (hidden ? H : in); j++) {
                                    size_t i = at(0, e, id) + (size_t)(k * (hidden ? H : in) + j);
                                    dw[i] += z * (hidden ? v.h[(size_t)(b * H + j)] : layer[(size_t)l][spot(t, b, in, j)]);
                                    (hidden ? before[(size_t)j] : g_in[spot(t, b, in, j)]) += z * w[i];
                                }
                            }
                        }
                        for (int k = 0; k < H; k++) { dh0[(size_t)((e * N + b) * H + k)] = before[(size_t)k]; }
                    }
                }
            }
            g_out = g_in;
        }
        dx = g_out;
    }
};
// What all passes check; filled when the stream gets there.
struct rnn_call_t {
    dnn_t *handle;
    rnn_t n;
    rnn_data_t x_as;
    long long values, results, states, weights;         // elements
    const void *x, *h0, *c0, *w;
    void *work, *kept;
    size_t work_bytes, kept_bytes;
    rnn_call_t(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnRNNDataDescriptor_t xd, const void *x_, cudnnRNNDataDescriptor_t yd, const void *y,
               cudnnTensorDescriptor_t hd, const void *h0_, const void *c0_, size_t bytes, const void *w_, size_t nw, void *pw, size_t nk, void *pk, bool keeps)
        : handle((dnn_t *)h), n(*(rnn_t *)d), x_as(*(rnn_data_t *)xd), x(x_), h0(h0_), c0(c0_), w(w_), work(pw), kept(pk), work_bytes(nw), kept_bytes(nk) {
        const rnn_data_t &ya = *(rnn_data_t *)yd;
        const rnn_tensor_t &s = *(rnn_tensor_t *)hd;
        int device;
        cudaGetDevice(&device);
        demand(handle->magic == HANDLE && handle->device == device && handle->stream, "a recurrent net's handle or stream");
        demand(ya.steps == x_as.steps && ya.items == x_as.items && ya.layout == x_as.layout && ya.width == n.h * n.dirs && x_as.width == n.features &&
                   ya.type == n.type && x_as.type == n.type && s.type == n.type, "data that is not this net's");
        demand(s.dims == std::vector<int>({n.layers * n.dirs, x_as.items, n.h}), "states that are not this net's");
        values = (long long)x_as.steps * x_as.items * n.features, results = (long long)x_as.steps * x_as.items * ya.width;
        states = (long long)n.layers * n.dirs * x_as.items * n.h, weights = (long long)(bytes / n.size());
        demand(bytes == (size_t)n.place(-1, 0, 0) && nw == 1000 && nk == (keeps ? rnn_kept(n, x_as) : 0) && (uintptr_t)pw % 256 == 0, "spaces of a recurrent net");
        on(x, values, "x"), on(y, results, "y"), on(w, weights, "weights");
        demand(cusim::on_device(work, nw) && (!nk || cusim::on_device(kept, nk)), "spaces of a recurrent net");
        if (h0) { on(h0, states, "h0"); }
        if (c0) { on(c0, states, "c0"), demand(n.mode == CUDNN_LSTM, "c of what is no LSTM"); }
    }
    void on(const void *p, long long count, const char *what) const { demand(cusim::on_device(p, (size_t)count * n.size()), what); }
    rnn_run_t load() const {
        rnn_run_t r;
        r.n = n, r.x_as = x_as, r.x = rnn_read(n, x, values), r.w = rnn_read(n, w, weights), r.h0 = rnn_read(n, h0, states), r.c0 = rnn_read(n, c0, states);
        for (row_t *v : {&r.x, &r.w, &r.h0}) {
            for (double &q : *v) { q = n.rounds ? tf32_of(q) : q; }
        }
        r.dw.assign((size_t)weights, 0);
        return r;
    }
    // -> which forward it was
    unsigned stage(unsigned before, unsigned after, unsigned id) const {
        unsigned at[2];
        if (!kept_bytes) { return 0; }
        std::memcpy(at, kept, sizeof at);
        demand(!before || at[0] == before, "what was kept is not of the pass before");
        scribble(kept, kept_bytes);
        at[0] = after, at[1] = before ? at[1] : id;
        std::memcpy(kept, at, sizeof at);
        return at[1];
    }
};
static std::map<unsigned, row_t> rnn_inputs, rnn_gradients;     // which the real one has in what it keeps
static cudnnStatus_t rnn_forward(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode, const int32_t *lengths, cudnnRNNDataDescriptor_t xd,
                                 const void *x, cudnnRNNDataDescriptor_t yd, void *y, cudnnTensorDescriptor_t hd, const void *h0, void *hy,
                                 cudnnTensorDescriptor_t cd, const void *c0, void *cy, size_t bytes, const void *w, size_t nw, void *work, size_t nk, void *kept) {
    rnn_call_t c(h, d, xd, x, yd, y, hd, h0, c0, bytes, w, nw, work, nk, kept, mode == CUDNN_FWD_MODE_TRAINING);
    demand(!lengths && cd == hd, "cudnnRNNForward");
    c.on(hy, c.states, "h of the last step");
    if (cy) { c.on(cy, c.states, "c of the last step"); }
    if (dnn_ready()) { return CUDNN_STATUS_EXECUTION_FAILED; }
    fakes.nets++;
    fakes.rounded += c.n.rounds;
    return cusim::enqueue(c.handle->stream, [=] {
        rnn_run_t r = c.load();
        scribble(c.work, c.work_bytes);
        rnn_inputs[c.stage(0, 0x5EED0001, (unsigned)rnn_inputs.size() + 1)] = r.x;
        r.run(false);
        rnn_write(c.n, y, r.y), rnn_write(c.n, hy, r.hy), rnn_write(c.n, cy, r.cy);
    }) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t rnn_back(cudnnHandle_t h, cudnnRNNDescriptor_t d, const int32_t *lengths, cudnnRNNDataDescriptor_t yd, const void *y, const void *dy,
                              cudnnRNNDataDescriptor_t xd, void *dx, cudnnTensorDescriptor_t hd, const void *h0, const void *dhy, void *dh0,
                              cudnnTensorDescriptor_t cd, const void *c0, const void *dcy, void *dc0, size_t bytes, const void *w, size_t nw, void *work,
                              size_t nk, void *kept) {
    rnn_call_t c(h, d, xd, dx, yd, y, hd, h0, c0, bytes, w, nw, work, nk, kept, true);
    demand(!lengths && cd == hd, "cudnnRNNBackwardData_v8");
    c.on(dy, c.results, "dy");
    for (const void *p : {dhy, (const void *)dh0, dcy, (const void *)dc0}) {
        if (p) { c.on(p, c.states, "gradients of states"); }
    }
    if (dnn_ready()) { return CUDNN_STATUS_EXECUTION_FAILED; }
    fakes.nets++;
    return cusim::enqueue(c.handle->stream, [=] {
        unsigned id = c.stage(0x5EED0001, 0x5EED0002, 0);
        rnn_run_t r = c.load();
        r.x = rnn_inputs[id];
        r.dy = rnn_read(c.n, dy, c.results), r.dhy = rnn_read(c.n, dhy, c.states), r.dcy = rnn_read(c.n, dcy, c.states);
        scribble(c.work, c.work_bytes);
        r.run(true);
        rnn_write(c.n, dx, r.dx), rnn_write(c.n, dh0, r.dh0), rnn_write(c.n, dc0, r.dc0);
        rnn_gradients[id] = r.dw;
    }) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t rnn_back_weights(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnWgradMode_t add, const int32_t *lengths, cudnnRNNDataDescriptor_t xd,
                                      const void *x, cudnnTensorDescriptor_t hd, const void *h0, cudnnRNNDataDescriptor_t yd, const void *y,
                                      size_t bytes, void *dw, size_t nw, void *work, size_t nk, void *kept) {
    rnn_call_t c(h, d, xd, x, yd, y, hd, h0, nullptr, bytes, dw, nw, work, nk, kept, true);
    demand(add == CUDNN_WGRAD_MODE_ADD && !lengths, "cudnnRNNBackwardWeights_v8");
    if (dnn_ready()) { return CUDNN_STATUS_EXECUTION_FAILED; }
    fakes.nets++;
    return cusim::enqueue(c.handle->stream, [=] {
        unsigned id = c.stage(0x5EED0002, 0x5EED0003, 0);
        row_t sum = rnn_read(c.n, dw, c.weights);
        scribble(c.work, c.work_bytes);
        demand(c.load().x == rnn_inputs[id], "x is not that of forward");
        for (size_t i = 0; i < sum.size(); i++) { sum[i] += rnn_gradients[id][i]; }
        rnn_write(c.n, dw, sum);
    }) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

// -------------------------------------------------------------------------------- NCCL
// Ranks are threads of this process. A collective arrives when its stream comes to it, and its stream goes on when all
// ranks have arrived; the host waits for nothing but the making of a communicator, and a timed one (blocking = 0) is
// made, and does its first collective, while it says that it is in progress: until then nothing else may be asked of it.
struct turn_t {                             // one collective of all ranks
    int there = 0, what = -1, type = -1;
    std::vector<std::vector<char>> of;      // by rank
    std::vector<char> y;
    cusim::gate_p all = cusim::gate_new();
};
struct party_t {
    std::mutex lock;
    std::condition_variable all;
    int ranks = 0, there = 0, finished = 0;
    bool left = false;                      // a rank has aborted
    std::vector<int> devices;
    std::vector<size_t> asked;              // by rank: how many collectives
    std::vector<std::shared_ptr<turn_t>> turns;
};
struct ncclComm {                           // busy: so often it still says that a collective is in progress
    unsigned magic;                         // graphs: a use for each collective in one
    int rank, device, timed, busy, met, finished;
    std::shared_ptr<party_t> party;
    std::shared_ptr<int> graphs = std::make_shared<int>();
};
struct collective_call { int what, type, op, root; const void *from; void *to; size_t count; ncclComm *comm; cudaStream_t stream; };
enum { COMM = 0xC033 };
static std::mutex parties_lock;
static std::map<long, std::shared_ptr<party_t>> parties;
static thread_local int groups;
static thread_local std::vector<collective_call> group;
static size_t bytes_of_nccl(int t) { return t == ncclFloat64 || t == ncclInt64 ? 8 : t <= ncclUint8 ? 1 : t == ncclFloat16 || t == ncclBfloat16 ? 2 : 4; }
template <class T> static void sum_of(std::vector<std::vector<char>> &of, std::vector<char> &y, bool mean) {
    for (size_t i = 0; i < y.size() / sizeof(T); i++) {
        T sum = ((T *)of[0].data())[i];
        for (size_t k = 1; k < of.size(); k++) { sum = (T)(sum + ((T *)of[k].data())[i]); }
        ((T *)y.data())[i] = mean ? (T)(sum / (T)of.size()) : sum;
    }
}
// Whether a call with a timed communicator goes on: the others have not come to its making, or to its end.
static bool in_progress(const ncclComm &c) {
    std::lock_guard<std::mutex> hold(c.party->lock);
    const party_t &p = *c.party;
    return c.timed && !p.left && (p.there < p.ranks || c.busy > 0 || (c.finished && p.finished < p.ranks));
}
// In the order of a rank's stream. The last one to come computes the result.
static void arrive(turn_t &t, const collective_call &c, int rank, int ranks) {
    const size_t bytes = c.count * bytes_of_nccl(c.type);
    if (!t.there) { t.what = c.what, t.type = c.type; }
    demand(t.what == c.what && t.type == c.type, "NCCL: ranks differ in what they ask");
    t.of.resize((size_t)ranks);
    t.of[(size_t)rank].assign((const char *)c.from, (const char *)c.from + bytes);
    fakes.collectives++;
    if (++t.there < ranks) { return; }
    for (auto &v : t.of) { demand(v.size() == bytes, "NCCL: ranks differ in their counts"); }
    bool mean = c.op == ncclAvg;
    if (c.what == 1) { t.y = t.of[(size_t)c.root]; }
    for (auto &v : t.of) {
        if (c.what == 2) { t.y.insert(t.y.end(), v.begin(), v.end()); }
    }
    if (c.what == 0) {
        demand(c.type == ncclFloat32 || c.type == ncclFloat64 || c.type == ncclInt64, "the fake adds f32, f64, i64");
        t.y.resize(bytes);
        if (c.type == ncclFloat32) { sum_of<float>(t.of, t.y, mean); }
        if (c.type == ncclFloat64) { sum_of<double>(t.of, t.y, mean); }
        if (c.type == ncclInt64) { sum_of<long long>(t.of, t.y, mean); }
    }
    cusim::gate_open(t.all);
}
static ncclResult_t run(const collective_call &c) {
    party_t &p = *c.comm->party;
    const int rank = c.comm->rank, ranks = p.ranks;
    int device = -1;
    size_t bytes = c.count * bytes_of_nccl(c.type);
    cudaGetDevice(&device);
    demand(c.comm->magic == COMM && device == c.comm->device, "NCCL: another device is current than the communicator's");
    demand(!in_progress(*c.comm), "NCCL: a collective while an earlier call is in progress");
    demand(cusim::on_device(c.from, bytes) && cusim::on_device(c.to, c.what == 2 ? bytes * (size_t)ranks : bytes),
           "NCCL: memory that is not the device's");
    const std::shared_ptr<int> use = c.comm->graphs;
    const std::shared_ptr<party_t> party = c.comm->party;
    auto turn = [party, c, rank, ranks, use] {
        std::shared_ptr<turn_t> t;
        {
            std::lock_guard<std::mutex> hold(party->lock);
            size_t k = party->asked[(size_t)rank]++;
            if (party->turns.size() <= k) { party->turns.resize(k + 1); }
            if (!party->turns[k]) { party->turns[k] = std::make_shared<turn_t>(); }
            t = party->turns[k];
        }
        void *to = c.to;
        return cusim::gated_t{[t, c, rank, ranks] { arrive(*t, c, rank, ranks); },
                              [t, to] { std::memcpy(to, t->y.data(), t->y.size()); }, t->all};
    };
    return cusim::enqueue_gated(c.stream, turn) ? ncclUnhandledCudaError : ncclSuccess;
}
static ncclResult_t ask(const collective_call &c) {
    if (groups) {
        group.push_back(c);
        return ncclSuccess;
    }
    return run(c);
}
static ncclResult_t nc_id(ncclUniqueId *id) {
    static long next;
    std::lock_guard<std::mutex> hold(parties_lock);
    std::memset(id, 0, sizeof *id);
    next++;
    std::memcpy(id, &next, sizeof next);
    return ncclSuccess;
}
// NCCL says so too.
static bool shares_a_device(const ncclComm &c) {
    for (int k = 0; k < c.party->ranks; k++) {
        if (k != c.rank && c.party->devices[(size_t)k] == c.device) { return true; }
    }
    return false;
}
static ncclComm_t join(int ranks, ncclUniqueId id, int rank) {
    long key;
    ncclComm *c = new ncclComm{COMM, rank, 0, 0, 0, 0, 0, nullptr};
    std::memcpy(&key, &id, sizeof key);
    cudaGetDevice(&c->device);
    std::lock_guard<std::mutex> hold(parties_lock);
    auto &p = parties[key];
    if (!p) { p = std::make_shared<party_t>(); }
    c->party = p;
    std::lock_guard<std::mutex> inner(p->lock);
    p->ranks = ranks;
    p->asked.resize((size_t)ranks);
    p->devices.resize((size_t)ranks, -1);
    p->devices[(size_t)rank] = c->device;
    fakes.live++;
    if (++p->there == ranks) { p->all.notify_all(); }
    return c;
}
static ncclResult_t drop(ncclComm_t c) {
    std::lock_guard<std::mutex> hold(parties_lock);
    delete c;
    fakes.live--;
    return ncclSuccess;
}
static ncclResult_t nc_init(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    ncclComm *c = join(ranks, id, rank);
    {
        std::unique_lock<std::mutex> hold(c->party->lock);
        c->party->all.wait(hold, [&] { return c->party->there >= ranks; });
    }
    if (shares_a_device(*c)) {
        drop(c);
        return ncclInvalidUsage;
    }
    *out = c;
    return ncclSuccess;
}
static ncclResult_t nc_init_config(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    demand(config->size == sizeof *config && config->blocking == 0, "ncclCommInitRankConfig: not a timed one");
    *out = join(ranks, id, rank);
    (*out)->timed = 1;
    return ncclInProgress;
}
// The collectives that a rank has asked for and others have not come to.
static std::vector<std::shared_ptr<turn_t>> open_turns(const ncclComm &c) {
    std::vector<std::shared_ptr<turn_t>> open;
    std::lock_guard<std::mutex> hold(c.party->lock);
    for (size_t k = 0; k < c.party->asked[(size_t)c.rank]; k++) {
        if (c.party->turns[k]->there < c.party->ranks) { open.push_back(c.party->turns[k]); }
    }
    return open;
}
static ncclResult_t nc_destroy(ncclComm_t c) {
    demand(c->magic == COMM, "ncclCommDestroy of no communicator");
    demand(c->graphs.use_count() == 1, "ncclCommDestroy waits for a graph that is not freed");
    demand(open_turns(*c).empty(), "ncclCommDestroy waits for a rank that does not come");
    demand(!c->timed || c->finished, "ncclCommDestroy waits for the other ranks' ends");
    return drop(c);
}
static ncclResult_t nc_finalize(ncclComm_t c) {
    demand(c->magic == COMM && !in_progress(*c) && !c->finished, "ncclCommFinalize of a communicator that is not at rest");
    std::lock_guard<std::mutex> hold(c->party->lock);
    c->finished = 1;
    c->party->finished++;
    return ncclInProgress;
}
// Its streams go on, with whatever is in the results; the other ranks hear of it.
static ncclResult_t nc_abort(ncclComm_t c) {
    demand(c->magic == COMM, "ncclCommAbort of no communicator");
    demand(c->graphs.use_count() == 1, "ncclCommAbort waits for a graph that is not freed");
    for (auto &t : open_turns(*c)) { cusim::gate_open(t->all); }
    {
        std::lock_guard<std::mutex> hold(c->party->lock);
        c->party->left = true;
    }
    return drop(c);
}
static ncclResult_t nc_state(ncclComm_t c, ncclResult_t *state) {
    demand(c->magic == COMM, "ncclCommGetAsyncError of no communicator");
    const bool busy = in_progress(*c);
    std::lock_guard<std::mutex> hold(c->party->lock);
    if (c->busy > 0 && c->party->there == c->party->ranks) { c->busy--; }
    *state = c->party->left ? ncclRemoteError : busy ? ncclInProgress : ncclSuccess;
    if (!*state && shares_a_device(*c)) { *state = ncclInvalidUsage; }
    return ncclSuccess;
}
static const char *nc_text(ncclResult_t e) {
    return e == ncclInvalidUsage ? "invalid usage" : e == ncclRemoteError ? "remote process exited" : "error of the fake";
}
static ncclResult_t nc_reduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
    return ask({0, type, op, 0, from, to, n, c, s});
}
static ncclResult_t nc_broadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t c, cudaStream_t s) {
    return ask({1, type, 0, root, from, to, n, c, s});
}
static ncclResult_t nc_gather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    return ask({2, type, 0, 0, from, to, n, c, s});
}
static ncclResult_t nc_start() { return groups++, ncclSuccess; }
static ncclResult_t nc_end() {
    demand(groups > 0, "ncclGroupEnd without a start");
    if (--groups) { return ncclSuccess; }
    std::vector<collective_call> calls;
    calls.swap(group);
    for (auto &c : calls) {
        ncclResult_t e = run(c);
        if (e) { return e; }
    }
    bool connects = false;
    for (auto &c : calls) {
        if (c.comm->timed && !c.comm->met) { c.comm->met = 1, c.comm->busy = 3, connects = true; }
    }
    return connects ? ncclInProgress : ncclSuccess;
}

static const bool added = [] {
    static const struct { const char *name; void *function; } nccl[] = {
        {"ncclGetUniqueId", (void *)nc_id}, {"ncclCommInitRank", (void *)nc_init},
        {"ncclCommInitRankConfig", (void *)nc_init_config}, {"ncclCommFinalize", (void *)nc_finalize}, {"ncclCommDestroy", (void *)nc_destroy},
        {"ncclCommAbort", (void *)nc_abort}, {"ncclCommGetAsyncError", (void *)nc_state}, {"ncclGetErrorString", (void *)nc_text},
        {"ncclAllReduce", (void *)nc_reduce}, {"ncclBroadcast", (void *)nc_broadcast}, {"ncclAllGather", (void *)nc_gather},
        {"ncclGroupStart", (void *)nc_start}, {"ncclGroupEnd", (void *)nc_end}};
    for (auto &f : nccl) { cusim::library_fake("libnccl.so.2", f.name, f.function); }
    static const struct { const char *name; void *function; } blas[] = {
        {"cublasLtCreate", (void *)lt_create}, {"cublasLtDestroy", (void *)lt_destroy}, {"cublasLtGetVersion", (void *)lt_version},
        {"cublasLtGetStatusString", (void *)lt_text}, {"cublasLtMatmul", (void *)lt_matmul},
        {"cublasLtMatmulAlgoGetHeuristic", (void *)lt_heuristic}, {"cublasLtMatmulDescInit_internal", (void *)lt_desc},
        {"cublasLtMatmulDescSetAttribute", (void *)lt_desc_set}, {"cublasLtMatmulPreferenceInit_internal", (void *)lt_wish},
        {"cublasLtMatmulPreferenceSetAttribute", (void *)lt_wish_set}, {"cublasLtMatrixLayoutInit_internal", (void *)lt_layout},
        {"cublasLtMatrixLayoutSetAttribute", (void *)lt_layout_set}};
    static const struct { const char *name; void *function; } dnn[] = {
        {"cudnnCreate", (void *)dnn_create}, {"cudnnDestroy", (void *)dnn_destroy}, {"cudnnSetStream", (void *)dnn_stream},
        {"cudnnGetErrorString", (void *)dnn_text}, {"cudnnGetLastErrorString", (void *)dnn_last}, {"cudnnGetVersion", (void *)dnn_version},
        {"cudnnBackendCreateDescriptor", (void *)be_create}, {"cudnnBackendDestroyDescriptor", (void *)be_destroy},
        {"cudnnBackendSetAttribute", (void *)be_set}, {"cudnnBackendGetAttribute", (void *)be_get},
        {"cudnnBackendFinalize", (void *)be_finish}, {"cudnnBackendExecute", (void *)be_execute},
        {"cudnnCreateRNNDescriptor", (void *)rnn_make<rnn_t, cudnnRNNDescriptor_t>},
        {"cudnnDestroyRNNDescriptor", (void *)rnn_drop<rnn_t, cudnnRNNDescriptor_t>}, {"cudnnSetRNNDescriptor_v8", (void *)rnn_set},
        {"cudnnCreateRNNDataDescriptor", (void *)rnn_make<rnn_data_t, cudnnRNNDataDescriptor_t>},
        {"cudnnDestroyRNNDataDescriptor", (void *)rnn_drop<rnn_data_t, cudnnRNNDataDescriptor_t>}, {"cudnnSetRNNDataDescriptor", (void *)rnn_data},
        {"cudnnCreateTensorDescriptor", (void *)rnn_make<rnn_tensor_t, cudnnTensorDescriptor_t>},
        {"cudnnDestroyTensorDescriptor", (void *)rnn_drop<rnn_tensor_t, cudnnTensorDescriptor_t>}, {"cudnnSetTensorNdDescriptor", (void *)rnn_tensor},
        {"cudnnGetRNNWeightSpaceSize", (void *)rnn_weights}, {"cudnnGetRNNTempSpaceSizes", (void *)rnn_spaces},
        {"cudnnGetRNNWeightParams", (void *)rnn_part}, {"cudnnRNNForward", (void *)rnn_forward},
        {"cudnnRNNBackwardData_v8", (void *)rnn_back}, {"cudnnRNNBackwardWeights_v8", (void *)rnn_back_weights}};
    for (auto &f : blas) { cusim::library_fake("libcublasLt.so.13", f.name, f.function); }
    for (auto &f : dnn) { cusim::library_fake("libcudnn.so.9", f.name, f.function); }
    return true;
}();

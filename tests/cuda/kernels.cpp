// kernels.cpp - every kernel of tensor_cuda.cu in the emulator, against plain loops and against tensor.h's CPU; compiled
// by nvcc (bench/gpu.sh), on a GPU
#if defined(CUSIM_ASAN) || defined(CUSIM_TSAN)
#define TCU_POINTWISE_ROWS(X)                                                                                \
    X(CLONE, clone) X(EXP, exp) X(ABS, abs) X(NEG, neg) X(ROUND, round) X(ADD, add) X(MUL, mul)              \
    X(FLOOR_DIVIDE, floor_divide) X(REMAINDER, remainder) X(POW, pow) X(LERP, lerp) X(LT, lt)                \
    X(LOGICAL_AND, logical_and) X(BITWISE_LEFT_SHIFT, bitwise_left_shift) X(BITWISE_NOT, bitwise_not)              \
    X(SQRT, sqrt) X(DIV, div) X(CLAMP, clamp) X(RELU, relu) X(GELU_TANH, gelu_tanh)
#endif
#include "../../tensor_cuda.cu"
#include "check.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

using namespace tcu;
typedef std::vector<double> values;
#ifdef CUSIM_TSAN
const bool SMALL_RUN = true;                    // a CUDA thread costs microseconds
#else
const bool SMALL_RUN = false;
#endif
#if defined(CUSIM_ASAN) || defined(CUSIM_TSAN)
const bool ALL_ROWS = false;                    // of pointwise ops: the others run on the CPU
#else
const bool ALL_ROWS = true;
#endif
static place_t at;
static std::mt19937_64 dice(1);
static const char *fault_text() {
#if defined(TENSOR_CUDA_SIM)
    return cusim::fault();
#else
    return cudaGetErrorString(cudaGetLastError());
#endif
}

static tensor__storage_t somewhere;
// Host values as device memory of a dtype, spread by strides; what lies between must stay 0xFF.
struct array_t {
    tensor_arg_t o = {};
    int64_t dims_[TENSOR_MAX_DIMS], strides_[TENSOR_MAX_DIMS];
    std::vector<unsigned char> host;
    void *base = nullptr;
    int64_t extent = 0, offset = 0;
    array_t(int dtype, std::vector<int64_t> dims, const values *v = nullptr, std::vector<int64_t> strides = {},
            int64_t off = 0) {
        o.dtype = (uint8_t)dtype;
        o.ndim = (uint8_t)dims.size();
        o.dims = dims_;
        o.storage = &somewhere;                 // no number on the host
        o.strides = strides_;
        int64_t n = 1;
        for (int d = o.ndim - 1; d >= 0; d--) {
            dims_[d] = dims[(size_t)d];
            strides_[d] = strides.empty() ? n : strides[(size_t)d];
            n *= dims[(size_t)d];
        }
        o.numel = n;
        extent = off + (n ? 1 : 0);
        for (int d = 0; d < o.ndim && n; d++) { extent += (o.dims[d] - 1) * o.strides[d]; }
        offset = off;
        size_t bytes = (size_t)(extent * size_of(dtype));
        host.assign(bytes, 0xFF);
        if (cudaMalloc(&base, bytes ? bytes : 1)) { std::exit(9); }
        o.data = (char *)base + off * size_of(dtype);
        for (int64_t i = 0; i < n && v; i++) { store_as<double>(host.data(), dtype, place(i), (*v)[(size_t)i % v->size()]); }
        cudaMemcpyAsync(base, host.data(), bytes, cudaMemcpyHostToDevice, at.stream);
    }
    void set(const values &v) {
        for (int64_t i = 0; i < o.numel; i++) { store_as<double>(host.data(), o.dtype, place(i), v[(size_t)i]); }
        cudaMemcpyAsync(base, host.data(), host.size(), cudaMemcpyHostToDevice, at.stream);
    }
    array_t(const array_t &) = delete;
    ~array_t() { cudaFree(base); }
    int64_t place(int64_t i) const {
        int64_t p = offset;
        for (int d = o.ndim - 1; d >= 0; d--) {
            p += i % o.dims[d] * o.strides[d];
            i /= o.dims[d];
        }
        return p;
    }
    int64_t size() const { return count_of(o); }
    void fetch() {
        if (cudaMemcpyAsync(host.data(), base, host.size(), cudaMemcpyDeviceToHost, at.stream) ||
            cudaStreamSynchronize(at.stream)) {
            std::printf("fault: %s\n", fault_text());
            std::exit(1);
        }
    }
    values get() {
        fetch();
        values v;
        for (int64_t i = 0; i < size(); i++) { v.push_back(load_as<double>(host.data(), o.dtype, place(i))); }
        return v;
    }
    bool gaps_untouched() {
        std::vector<bool> own((size_t)extent);
        for (int64_t i = 0; i < size(); i++) { own[(size_t)place(i)] = true; }
        for (int64_t i = 0; i < extent; i++) {
            for (int k = 0; k < size_of(o.dtype) && !own[(size_t)i]; k++) {
                if (host[(size_t)(i * size_of(o.dtype) + k)] != 0xFF) { return false; }
            }
        }
        return true;
    }
};
static double rounded(int dtype, double v) {
    unsigned char one[8];
    store_as<double>(one, dtype, 0, v);
    return load_as<double>(one, dtype, 0);
}
static double wrapped(int dtype, double v) {        // a result of integer arithmetic
    unsigned char one[8];
    store_as<int64_t>(one, dtype, 0, (int64_t)v);
    return load_as<double>(one, dtype, 0);
}
static values some(size_t n, double lo, double hi, int dtype) {
    values v(n);
    for (double &x : v) { x = rounded(dtype, lo + (hi - lo) * (double)(dice() >> 11) * 0x1p-53); }
    return v;
}
static double slack(int dtype) {
    return dtype == TENSOR_F16 ? 2e-3 : dtype == TENSOR_BF16 ? 1.6e-2 : dtype == TENSOR_F64 ? 1e-12 : 4e-6;
}
static bool near_to(const values &got, const values &want, double tol) {
    if (got.size() != want.size()) { return false; }
    for (size_t i = 0; i < got.size(); i++) {
        double d = std::fabs(got[i] - want[i]);
        if (got[i] == want[i] || (got[i] != got[i] && want[i] != want[i])) { continue; }
        if (!(d <= tol * (1 + std::fabs(want[i])))) {
            std::printf("at %zu: %.9g, not %.9g\n", i, got[i], want[i]);
            return false;
        }
    }
    return true;
}
static const int floats[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64};

// ------------------------------------------------------------------------------------------------------------ pointwise
template <class F> static void pointwise_row(int op, int kind, int arity, F f) {
    double p[4] = {0.4, 0.8, 0.5, 0.25};
    if (op == TENSOR_OP_SOFTPLUS) { p[1] = 20; }
    bool truth = kind == TENSOR__CMP || kind == TENSOR__LOG;
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64, TENSOR_I64, TENSOR_I32, TENSOR_U8}) {
        bool integer = class_of(dtype) == 2;
        if (integer ? kind == TENSOR__FLT : kind == TENSOR__BIT) { continue; }
        if (SMALL_RUN && dtype != TENSOR_F16 && dtype != TENSOR_I64) { continue; }
        // contiguous; rows with a bias; a column that stands still; strides; an odd address
        for (int form = 0; form < (SMALL_RUN ? 2 : 5); form++) {
            std::vector<int64_t> dims = form == 0 ? std::vector<int64_t>{SMALL_RUN ? 70 : 300}
                                                  : std::vector<int64_t>{5, form == 4 ? 7 : 24};
            size_t n = 1;
            for (int64_t d : dims) { n *= (size_t)d; }
            values x[3];
            std::vector<std::unique_ptr<array_t>> in;
            for (int k = 0; k < arity; k++) {
                std::vector<int64_t> d = dims, stride;
                if (form == 1 && k == 1) { d = {24}; }
                if (form == 2 && k == 1) { d = {5, 1}; }
                if (form == 3) { stride = {1, 5}; }
                size_t m = 1;
                for (int64_t e : d) { m *= (size_t)e; }
                x[k] = integer ? some(m, dtype == TENSOR_U8 ? 1 : -9, 9, dtype) : some(m, 0.3, 0.9, dtype);
                if (integer && k) { for (double &v : x[k]) { v = v < 1 ? 2 : v; } }
                in.push_back(std::make_unique<array_t>(dtype, d, &x[k], stride, form == 4));
            }
            array_t y(truth ? (int)TENSOR_BOOL : dtype, dims, nullptr, form == 3 ? std::vector<int64_t>{48, 2} : std::vector<int64_t>{}, form == 4);
            tensor_arg_t o[4] = {y.o, in[0]->o, arity > 1 ? in[1]->o : in[0]->o, arity > 2 ? in[2]->o : in[0]->o};
            CHECK(pointwise(at, op, o, arity, dtype, p) == 0);
            values each(3 * n), want;
            for (size_t i = 0; i < n; i++) {
                for (int k = 0; k < arity; k++) {
                    each[3 * i + (size_t)k] = x[k][form == 1 && k == 1 ? i % 24 : form == 2 && k == 1 ? i / 24 : i];
                }
            }
            for (double v : f(each, p, integer)) { want.push_back((integer ? wrapped : rounded)(y.o.dtype, v)); }
            bool good = near_to(y.get(), want, slack(dtype)) && y.gaps_untouched();
            if (!good) { std::printf("op %d, dtype %d, form %d\n", op, dtype, form); }
            CHECK(good);
        }
    }
}
// The op's own words on doubles (integers: on those), a thread each: what only a device may call.
struct numbers_t { double p[4]; };
template <class OP> __global__ void apply_op(double *y, const double *x, int64_t n, numbers_t p, bool integer) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) { return; }
    OP f{{p.p[0], p.p[1], p.p[2], p.p[3]}};
    const double *v = x + 3 * i;
    y[i] = 0;
    if constexpr (OP::KIND != TENSOR__BIT) {
        if (!integer) { y[i] = f((double)v[0], (double)v[1], (double)v[2]); }
    }
    if constexpr (OP::KIND != TENSOR__FLT) {
        if (integer) { y[i] = (double)f((int64_t)v[0], (int64_t)v[1], (int64_t)v[2]); }
    }
}
template <class OP> static values applied(const values &x, const double *p, bool integer) {
    int64_t n = (int64_t)x.size() / 3;
    array_t X(TENSOR_F64, {3 * n}, &x), Y(TENSOR_F64, {n});
    CHECK(tcu_launch(apply_op<OP>, (unsigned)(n + 255) / 256, 256, 0, at.stream, (double *)Y.o.data, (const double *)X.o.data, n,
                     numbers_t{{p[0], p[1], p[2], p[3]}}, integer) == 0);
    return Y.get();
}
static void pointwise_all() {
#define TCU_X(ID, name, ...) pointwise_row(TENSOR_OP_##ID, op_##name::KIND, op_##name::ARITY, applied<op_##name>);
    TCU_POINTWISE_ROWS(TCU_X)
#undef TCU_X
    // mixed dtypes, 0-d, nothing at all, an op that is not there
    values v = {1, 2, 3, 4}, two = {2};
    array_t a(TENSOR_F16, {4}, &v), b(TENSOR_I32, {}, &two), y(TENSOR_F64, {4}), none(TENSOR_F32, {0, 3});
    tensor_arg_t o[3] = {y.o, a.o, b.o}, empty[3] = {none.o, none.o, none.o};
    CHECK(pointwise(at, TENSOR_OP_MUL, o, 2, TENSOR_F32, nullptr) == 0);
    CHECK(near_to(y.get(), {2, 4, 6, 8}, 0));
    CHECK(pointwise(at, TENSOR_OP_MUL, empty, 2, TENSOR_F32, nullptr) == 0);
    CHECK(pointwise(at, 60000, o, 2, TENSOR_F32, nullptr) == TENSOR_ERR_UNSUPPORTED);
    values divisor = {2, 0, -1, 3}, whole = {7, 7, 7, 7};       // of integers: what divides by 0 is noted
    array_t w(TENSOR_I64, {4}, &whole), d(TENSOR_I16, {4}, &divisor), q(TENSOR_I64, {4});
    tensor_arg_t division[3] = {q.o, w.o, d.o};
    unsigned long long place = 0;
    CHECK(pointwise(at, TENSOR_OP_FLOOR_DIVIDE, division, 2, TENSOR_I64, nullptr, at.error) == 0);
    CHECK(near_to(q.get(), {3, 0, -7, 2}, 0));
    cudaMemcpyAsync(&place, at.error, 8, cudaMemcpyDeviceToHost, at.stream);
    cudaMemsetAsync(at.error, 0, 8, at.stream);
    CHECK(~place == 1);
}
// Dtypes together, planes and rows that are no whole packs, odd addresses, results with gaps; and the gradients. dims of
// the second operand: all, one of a channel, a row, one of a batch.
static void tours() {
    static const int pairs[][2] = {{TENSOR_F32, TENSOR_BF16}, {TENSOR_F16, TENSOR_F16}, {TENSOR_F64, TENSOR_F32}, {TENSOR_I64, TENSOR_I64},
                                   {TENSOR_I32, TENSOR_U8}};
    for (auto &pair : pairs) {
        for (int64_t columns : {1, 3, 8, 49}) {
            for (int form = 0; form < 4; form++) {
                for (int odd = 0; odd < (SMALL_RUN ? 2 : 4); odd++) {
                    const std::vector<int64_t> dims = {3, 5, columns}, seconds[] = {dims, {1, 5, 1}, {columns}, {3, 1, columns}};
                    const int real = class_of(pair[0]) == 1 ? TENSOR_F64 : TENSOR_F32, compute = class_of(pair[0]) == 2 ? pair[0] : real;
                    const size_t n = (size_t)(15 * columns);
                    values x(n), v(n), g(n), sum, slope;
                    for (size_t i = 0; i < n; i++) { x[i] = (double)(i % 7), v[i] = (double)(i % 5), g[i] = (double)(i % 3); }
                    const std::vector<int64_t> gaps = {7 * columns + 9, columns + 1, 1};
                    array_t X(pair[0], dims, &x, {}, odd & 1), V(pair[1], seconds[form], &v), G(pair[1], dims, &g), D(pair[0], dims, nullptr, {}, odd & 1);
                    array_t Y(pair[0], dims, nullptr, odd & 2 ? gaps : std::vector<int64_t>{});
                    tensor_arg_t o[3] = {Y.o, X.o, V.o}, in[5] = {X.o, V.o, {}, {}, G.o}, out[2] = {D.o, {}};
                    for (size_t i = 0; i < n; i++) {
                        const size_t c = (size_t)columns, second[] = {i, i / c % 5, i % c, i / (5 * c) * c + i % c};
                        sum.push_back(x[i] + v[second[form]]);
                        slope.push_back(g[i] * v[second[form]]);
                    }
                    CHECK(pointwise(at, TENSOR_OP_ADD, o, 2, compute, nullptr) == 0);
                    bool good = near_to(Y.get(), sum, 0) && Y.gaps_untouched();
                    if (class_of(pair[0]) != 2) {
                        CHECK(pointwise_backward(at, TENSOR_OP_MUL, in, out, 2, compute, nullptr) == 0);
                        good = good && near_to(D.get(), slope, 0);
                    }
                    if (!good) { std::printf("dtype %d, %d columns, form %d, %d\n", pair[0], (int)columns, form, odd); }
                    CHECK(good);
                }
            }
        }
    }
#if defined(TENSOR_CUDA_SIM)
    for (int64_t size : {1, 2, 3, 7, 49, 641, 65535, 65536, 1 << 30, INT32_MAX - 1, INT32_MAX}) {
        for (int64_t n : {INT32_MAX + (int64_t)0, INT32_MAX + (int64_t)9}) {
            walk_t w = {};
            w.ndim = 1;
            w.n = n;
            w.dims[0] = size;
            invert_dim(&w, 0);
            bool good = (w.inverse[0] != 0) == (n <= INT32_MAX);
            for (int64_t i = 0; i < n; i += 1 + (int64_t)(dice() % 9999999)) {
                for (int64_t near : {i, i / size * size, i / size * size + size - 1, n - 1}) {
                    if (near < n && over_dim(w, 0, near) != near / size) { good = false; }
                }
            }
            CHECK(good);
        }
    }
#endif
}

// ------------------------------------------------------------------------------------------------- against tensor.h's CPU
static values of_tensor(tensor_t *t, int dtype, int64_t n) {
    values v;
    for (int64_t i = 0; i < n; i++) { v.push_back(load_as<double>((tensor_data)(t), dtype, i)); }
    return v;
}
static void casts_and_numbers() {
    values special = {0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 300, -300, 70000, -70000, 3e9, -3e9, 1e19, -1e19, 1e30, 65504, 65520,
                      1e-7, 6e-8, 1e-40, INFINITY, -INFINITY, NAN, 127, 128, 255, 256, 32767, 32768, 2147483647, 0.3};
    for (int from = 0; from < TENSOR_DTYPE_COUNT; from++) {
        for (int to = 0; to < TENSOR_DTYPE_COUNT; to++) {
            for (int form = 0; form < (SMALL_RUN ? 1 : 3); form++) {
                int64_t n = (int64_t)special.size();
                std::vector<int64_t> dims = form == 2 ? std::vector<int64_t>{3, n} : std::vector<int64_t>{n}, stride;
                if (form == 1) { stride = {3}; }
                if (form == 2) { stride = {n + 7, 1}; }
                array_t x(from, dims, &special, stride), y(to, dims);
                CHECK(copy(at, y.o, x.o) == 0);
                x.fetch();
                std::vector<unsigned char> flat((size_t)(n * 8));
                for (int64_t i = 0; i < n; i++) {
                    memcpy(&flat[(size_t)(i * size_of(from))], &x.host[(size_t)(x.place(i) * size_of(from))], (size_t)size_of(from));
                }
                tensor_scope_t scope = tensor_scope_begin();
                tensor_t *t = (tensor_to)((tensor_from_n)(flat.data(), (tensor_dtype_t)from, &n, 1), (tensor_dtype_t)to);
                values want = of_tensor(t, to, n), got = y.get();
                got.resize((size_t)n);
                bool good = near_to(got, want, 0);
                if (!good) { std::printf("cast %d to %d, form %d\n", from, to, form); }
                CHECK(good);
                tensor_scope_end(scope);
            }
        }
        values one = {1};
        array_t y(from, {4, 5}, nullptr, {10, 2});
        CHECK(fill(at, y.o, 7, 7) == 0);
        CHECK(near_to(y.get(), values(20, rounded(from, 7)), 0) && y.gaps_untouched());
    }
    for (int64_t n : {1, 3, 4, 5, 130, SMALL_RUN ? 131 : 5000}) {
        for (uint64_t seed : {0ull, 42ull, 0x123456789ABCDEFull}) {
            tensor_scope_t scope = tensor_scope_begin();
            auto generator = [&] {
                (tensor_manual_seed)(seed);
                (tensor_rand_n)(&n, 1);
                return (tensor_get_generator)();
            };
            tensor_generator_t g = generator();
            array_t y(TENSOR_F32, {n}), z(TENSOR_I64, {n}), b(TENSOR_F32, {n}), s(TENSOR_F32, {n}, nullptr, {2});
            CHECK(random_real(at, y.o, g, UNIFORM, 0, 1, 1 - 5.9604644775390625e-8) == 0);
            CHECK(near_to(y.get(), of_tensor((tensor_rand_n)(&n, 1), TENSOR_F32, n), 0));
            generator();
            CHECK(random_real(at, s.o, g, NORMAL, 0, 1, 0) == 0);
            CHECK(near_to(s.get(), of_tensor((tensor_randn_n)(&n, 1), TENSOR_F32, n), 0) && s.gaps_untouched());
            generator();
            CHECK(random_integers(at, z.o, g, -5, 1000) == 0);
            CHECK(near_to(z.get(), of_tensor((tensor_randint_n)(-5, 1000, &n, 1), TENSOR_I64, n), 0));
            generator();
            std::vector<float> halves((size_t)n, 0.5f);
            values hv((size_t)n, 0.5);
            array_t p(TENSOR_F32, {n}, &hv);
            CHECK(bernoulli(at, b.o, p.o, g) == 0);
            CHECK(near_to(b.get(), of_tensor((tensor_bernoulli)((tensor_from_n)(halves.data(), TENSOR_F32, &n, 1)), TENSOR_F32, n), 0));
            tensor_scope_end(scope);
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- reductions
static double reduce_loop(int op, const values &v, bool integer) {
    double s = op == REDUCE_PROD || op == REDUCE_ALL ? 1 : 0, best = NAN;
    int64_t where = -1;
    for (size_t i = 0; i < v.size(); i++) {
        double x = v[i];
        if (op == REDUCE_SUM || op == REDUCE_MEAN) { s += x; }
        if (op == REDUCE_PROD) { s *= x; }
        if (op == REDUCE_ANY) { s = s != 0 || x != 0; }
        if (op == REDUCE_ALL) { s = s != 0 && x != 0; }
        bool max = op == REDUCE_AMAX || op == REDUCE_ARGMAX;
        if (where < 0 || (best == best && (x != x || (max ? x > best : x < best)))) {
            best = x;
            where = (int64_t)i;
        }
    }
    (void)integer;
    if (op == REDUCE_MEAN) { return s / (double)v.size(); }
    if (op == REDUCE_AMAX || op == REDUCE_AMIN) { return best; }
    return op == REDUCE_ARGMAX || op == REDUCE_ARGMIN ? (double)where : s;
}
static void reductions() {
    struct shape_t { std::vector<int64_t> dims, strides; uint32_t mask; };
    std::vector<shape_t> shapes = {{{70}, {}, 1}, {{6, 33}, {}, 2}, {{6, 33}, {}, 1}, {{3, 4, 5}, {}, 5}, {{}, {}, 0}};
    if (!SMALL_RUN) {
        for (auto &s : std::vector<shape_t>{{{1000}, {}, 1}, {{1000}, {}, 0}, {{3, 500}, {}, 2}, {{500, 40}, {}, 1}, {{7, 64}, {1, 7}, 2},
             {{2, 3, 4, 5}, {}, 10}, {{4, 256}, {512, 2}, 3}, {{2, 300, 3}, {}, 2}, {{0, 5}, {}, 1}, {{3, 0}, {}, 2}, {{64, 16}, {}, 2}}) {
            shapes.push_back(s);
        }
    }
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64, TENSOR_I64, TENSOR_I32, TENSOR_BOOL}) {
        if (SMALL_RUN && dtype != TENSOR_F16 && dtype != TENSOR_I64) { continue; }
        for (auto &s : shapes) {
            for (int op = REDUCE_SUM; op <= REDUCE_ALL; op++) {
                size_t n = 1, gone = 1;
                std::vector<int64_t> kept;
                for (size_t d = 0; d < s.dims.size(); d++) {
                    n *= (size_t)s.dims[d];
                    if (s.mask >> d & 1) {
                        gone *= (size_t)s.dims[d];
                    } else {
                        kept.push_back(s.dims[d]);
                    }
                }
                bool integer = class_of(dtype) == 2, arg = op == REDUCE_ARGMAX || op == REDUCE_ARGMIN;
                if (integer && op == REDUCE_MEAN) { continue; }
                values v = op == REDUCE_PROD ? some(n, 0.97, 1.03, dtype) : integer ? some(n, -3, 3.9, dtype) : some(n, -1, 1, dtype);
                if (op == REDUCE_ANY) { for (size_t i = 0; i < n; i++) { v[i] = i == n / 2; } }
                if (op == REDUCE_ALL) { for (size_t i = 0; i < n; i++) { v[i] = i != n / 3; } }
                if (op >= REDUCE_AMAX && op <= REDUCE_ARGMIN && !integer && n > 4 && dice() % 2) { v[n / 2] = v[n / 2 + 1] = NAN; }
                array_t x(dtype, s.dims, v.empty() ? nullptr : &v, s.strides);
                int to = arg ? (int)TENSOR_I64 : op >= REDUCE_ANY ? (int)TENSOR_BOOL : integer ? (int)TENSOR_I64 : dtype;
                array_t y(to, kept);
                uint64_t bytes = reduce_scratch(at, x.o, s.mask, op);
                array_t scratch(TENSOR_U8, {(int64_t)bytes});
                int e = reduce(at, y.o, x.o, s.mask, op, scratch.o.data);
                if (!gone && y.size() && op >= REDUCE_AMAX && op <= REDUCE_ARGMIN) {
                    CHECK(e == TENSOR_ERR_SHAPE);
                    continue;
                }
                CHECK(e == 0);
                std::vector<values> groups((size_t)y.size());
                for (size_t i = 0; i < n; i++) {
                    size_t k = 0, rest = i, unit = 1;
                    for (size_t d = s.dims.size(); d-- > 0;) {
                        size_t q = rest % (size_t)s.dims[d];
                        rest /= (size_t)s.dims[d];
                        if (s.mask >> d & 1) { continue; }
                        k += q * unit;
                        unit *= (size_t)s.dims[d];
                    }
                    groups[k].push_back(v[i]);
                }
                values want;
                for (auto &g : groups) { want.push_back(rounded(to, reduce_loop(op, g, integer))); }
                bool good = near_to(y.get(), want, arg ? 0 : 10 * slack(dtype));
                if (!good) { std::printf("reduce op %d, dtype %d, %zu elements, mask %u\n", op, dtype, n, s.mask); }
                CHECK(good);
            }
        }
    }
    // the same bits in every order of threads and blocks
    values v = some(900, -1, 1, TENSOR_F32), first;
    for (int turn = 0; turn < 3; turn++) {
        array_t x(TENSOR_F32, {900}, &v), y(TENSOR_F32, {}), scratch(TENSOR_F32, {900});
        CHECK(reduce(at, y.o, x.o, 1, REDUCE_SUM, scratch.o.data) == 0);
        if (!turn) { first = y.get(); }
        CHECK(near_to(y.get(), first, 0));
    }
}

// ----------------------------------------------------------------------------------------------------------------- rows
static void rows_of_numbers() {
    for (int dtype : floats) {
        for (int64_t columns : {1, 7, 8, 33, 64, SMALL_RUN ? 65 : 1000, SMALL_RUN ? 66 : 2048, SMALL_RUN ? 72 : 4104}) {
            if (SMALL_RUN && dtype != TENSOR_BF16) { continue; }
            const bool odd = columns == 7 || columns == 8;              // a row with inf, one of -inf
            int64_t rows = columns > 500 ? columns == 1000 ? 2 : 3 : 11;
            size_t n = (size_t)(rows * columns);
            values x = some(n, -4, 4, dtype), dy = some(n, -1, 1, dtype), w = some((size_t)columns, 0.5, 1.5, dtype), b = some((size_t)columns, -1, 1, dtype);
            for (size_t i = 0; odd && i < 2 * (size_t)columns; i++) { x[i] = i == 3 ? INFINITY : i < (size_t)columns ? 0 : -INFINITY; }
            array_t X(dtype, {rows, columns}, &x), Y(dtype, {rows, columns}), G(dtype, {rows, columns}, &dy), D(dtype, {rows, columns});
            for (bool logs : {false, true}) {
                values want, back;
                CHECK(softmax(at, Y.o, X.o, rows, columns, logs) == 0);
                for (int64_t r = 0; r < rows; r++) {
                    const double *p = &x[(size_t)(r * columns)];
                    double top = *std::max_element(p, p + columns), sum = 0;
                    for (int64_t c = 0; c < columns; c++) { sum += std::exp(p[c] - top); }
                    for (int64_t c = 0; c < columns; c++) { want.push_back(rounded(dtype, logs ? p[c] - top - std::log(sum) : std::exp(p[c] - top) / sum)); }
                }
                values y = Y.get();
                CHECK(near_to(y, want, 4 * slack(dtype)));
                CHECK(softmax_backward(at, D.o, G.o, Y.o, rows, columns, logs) == 0);
                for (int64_t r = 0; r < rows; r++) {
                    double sum = 0;
                    for (int64_t c = 0; c < columns; c++) {
                        size_t i = (size_t)(r * columns + c);
                        sum += logs ? dy[i] : dy[i] * y[i];
                    }
                    for (int64_t c = 0; c < columns; c++) {
                        size_t i = (size_t)(r * columns + c);
                        back.push_back(rounded(dtype, logs ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum)));
                    }
                }
                CHECK(near_to(D.get(), back, 4 * slack(dtype)));
            }
            if (odd) { continue; }
            // From an address that no pack begins at, to one like it (packs behind the first elements) and to another.
            values shifted[2];
            for (int to = 0; to < 2 && columns > 1; to++) {
                tensor_arg_t from = X.o, into = Y.o;
                from.data = (char *)from.data + size_of(dtype);
                into.data = (char *)into.data + (to ? size_of(dtype) : 0);
                CHECK(softmax(at, into, from, 1, columns - 1, false) == 0);
                values y = Y.get();
                shifted[to].assign(y.begin() + to, y.begin() + to + columns - 1);
                double sum = 0;
                for (double v : shifted[to]) { sum += v; }
                CHECK(near_to({sum}, {1}, 4 * slack(dtype)));
            }
            CHECK(near_to(shifted[0], shifted[1], 4 * slack(dtype)));
            int sums = class_of(dtype) ? TENSOR_F64 : TENSOR_F32;
            array_t W(sums, {columns}, &w), B(sums, {columns}, &b), M(sums, {rows}), R(sums, {rows}), DW(sums, {columns}), DB(sums, {columns});
            array_t S(TENSOR_U8, {(int64_t)layer_norm_scratch(at, rows, columns, dtype)});
            CHECK(layer_norm(at, Y.o, M.o.data, R.o.data, X.o, W.o.data, B.o.data, rows, columns, 1e-5, false) == 0);
            CHECK(layer_norm_backward(at, D.o, DW.o.data, DB.o.data, G.o, X.o, W.o.data, M.o.data, R.o.data, rows, columns, false, S.o.data) == 0);
            values want, dx, dw((size_t)columns), db((size_t)columns);
            for (int64_t r = 0; r < rows; r++) {
                size_t o = (size_t)(r * columns);
                double m = 0, q = 0, sa = 0, sb = 0;
                for (int64_t c = 0; c < columns; c++) { m += x[o + (size_t)c] / (double)columns; }
                for (int64_t c = 0; c < columns; c++) { q += (x[o + (size_t)c] - m) * (x[o + (size_t)c] - m) / (double)columns; }
                double k = 1 / std::sqrt(q + 1e-5);
                for (size_t c = 0; c < (size_t)columns; c++) {
                    double h = (x[o + c] - m) * k;
                    want.push_back(rounded(dtype, h * w[c] + b[c]));
                    sa += dy[o + c] * w[c] / (double)columns;
                    sb += dy[o + c] * w[c] * h / (double)columns;
                    dw[c] += dy[o + c] * h;
                    db[c] += dy[o + c];
                }
                for (size_t c = 0; c < (size_t)columns; c++) { dx.push_back(k * (dy[o + c] * w[c] - sa - (x[o + c] - m) * k * sb)); }
            }
            double tol = columns == 1 ? 0.05 : 6 * slack(dtype);
            CHECK(near_to(Y.get(), want, tol) && near_to(D.get(), dx, 10 * tol));
            CHECK(near_to(DW.get(), dw, 2 * tol) && near_to(DB.get(), db, 2 * tol));
            if (norm_packs(D.o, G.o, X.o, W.o.data, columns)) {     // added to itself: twice as much, exactly
                const values once = D.get(), sum = DW.get();
                CHECK(layer_norm_backward(at, D.o, DW.o.data, DB.o.data, G.o, X.o, W.o.data, M.o.data, R.o.data, rows, columns, false, S.o.data, true) == 0);
                const values twice = D.get();
                for (size_t i = 0; i < once.size(); i++) { CHECK(twice[i] == 2 * once[i]); }
                CHECK(DW.get() == sum);
            }
        }
    }
    // cross entropy: mean with an ignored target and one that is out of range, weights of classes
    for (int weighted : {0, 1}) {
        for (int64_t columns : {5, 40, SMALL_RUN ? 41 : 1003}) {
            const int64_t rows = 6, ignored = -100;
            values x = some((size_t)(rows * columns), -3, 3, TENSOR_F32), t = {1, 0, (double)ignored, 4, (double)columns, 2}, want, each;
            values cw = some((size_t)columns, 0.5, 2, TENSOR_F32), g = {0.75};
            array_t X(TENSOR_F32, {rows, columns}, &x), T(TENSOR_I64, {rows}, &t), L(TENSOR_F32, {rows}), W(TENSOR_F32, {rows}), S(TENSOR_F32, {rows});
            array_t Y(TENSOR_F32, {1}), K(TENSOR_F32, {1}), CW(TENSOR_F32, {columns}, &cw), G(TENSOR_F32, {1}, &g), D(TENSOR_F32, {rows, columns});
            labels_t<float> q = {T.o.data, weighted ? (const float *)CW.o.data : nullptr, TENSOR_I64, false, ignored, 0};
            cudaMemsetAsync(at.error, 0, 8, at.stream);
            CHECK(cross_entropy(at, (float *)Y.o.data, (float *)L.o.data, (float *)W.o.data, (float *)S.o.data, (float *)K.o.data,
                                (const float *)X.o.data, q, rows, columns, true) == 0);
            grid_t shape = rows_for(at, rows, columns, 4);
            CHECK(!tcu_launch(cross_entropy_rows_backward<float>, shape.grid, shape.block, 0, at.stream, (float *)D.o.data, (const float *)G.o.data,
                              false, (const float *)K.o.data, (const float *)X.o.data, (const float *)S.o.data, q, rows, columns));
            double sum = 0, weights = 0;
            for (int64_t r = 0; r < rows; r++) {
                const double *p = &x[(size_t)(r * columns)];
                bool skip = r == 2 || r == 4;
                double top = *std::max_element(p, p + columns), z = 0, w = skip ? 0 : weighted ? cw[(size_t)t[(size_t)r]] : 1;
                for (int64_t c = 0; c < columns; c++) { z += std::exp(p[c] - top); }
                each.push_back(skip ? 0 : w * (top + std::log(z) - p[(int)t[(size_t)r]]));
                sum += each.back();
                weights += w;
                for (int64_t c = 0; c < columns; c++) { want.push_back(skip ? 0 : w * (std::exp(p[c] - top) / z - (c == (int64_t)t[(size_t)r]))); }
            }
            for (double &d : want) { d *= 0.75 / weights; }
            unsigned long long error = 0;
            cudaMemcpyAsync(&error, at.error, 8, cudaMemcpyDeviceToHost, at.stream);
            CHECK(near_to(L.get(), each, slack(TENSOR_F32)) && near_to(D.get(), want, slack(TENSOR_F32)) && ~error == 4);
            CHECK(near_to(K.get(), {weights}, 1e-6) && near_to(Y.get(), {sum / weights}, slack(TENSOR_F32)));
        }
    }
}

// -------------------------------------------------------------------------------------------------------------- indexing
static unsigned long long take_error() {
    unsigned long long e = 0;
    cudaMemcpyAsync(&e, at.error, 8, cudaMemcpyDeviceToHost, at.stream);
    cudaMemsetAsync(at.error, 0, 8, at.stream);
    return e ? 1 + ~e : 0;
}
static void indexing() {
    take_error();
    for (int dtype : {TENSOR_F32, TENSOR_BF16, TENSOR_F64, TENSOR_U8}) {
        for (int dim : {0, 1}) {
            values x = some(6 * 9, 0, 200, dtype), i;
            std::vector<int64_t> shape = dim ? std::vector<int64_t>{6, 4} : std::vector<int64_t>{3, 9};
            for (int64_t k = 0; k < shape[0] * shape[1]; k++) { i.push_back((double)(dice() % (dim ? 9 : 6))); }
            array_t X(dtype, {6, 9}, &x), I(TENSOR_I64, shape, &i), Y(dtype, shape);
            CHECK(gather(at, Y.o, X.o, dim, I.o) == 0 && take_error() == 0);
            values want;
            for (int64_t k = 0; k < shape[0] * shape[1]; k++) {
                int64_t a = k / shape[1], b = k % shape[1], j = (int64_t)i[(size_t)k];
                want.push_back(x[(size_t)(dim ? a * 9 + j : j * 9 + b)]);
            }
            CHECK(near_to(Y.get(), want, 0));
        }
        for (int64_t width : {1, 4, 16, 19}) {          // 16: whole 16-byte pieces
            values x = some((size_t)(10 * width), 0, 100, dtype), i = {3, 9, 0, 3, 5}, want;
            array_t X(dtype, {10, width}, &x), I(TENSOR_I32, {5}, &i), Y(dtype, {5, width});
            CHECK(index_rows(at, Y.o, X.o, I.o, 5, width, 10) == 0 && take_error() == 0);
            for (double r : i) {
                for (int64_t c = 0; c < width; c++) { want.push_back(x[(size_t)((int64_t)r * width + c)]); }
            }
            CHECK(near_to(Y.get(), want, 0));
        }
    }
    values bad = {1, 7, -1}, five = {5};
    array_t X(TENSOR_F32, {7}, &five), I(TENSOR_I64, {3}, &bad), Y(TENSOR_F32, {3});
    CHECK(gather(at, Y.o, X.o, 0, I.o) == 0);
    unsigned long long e = take_error();
    CHECK((e == 2 || e == 3) && near_to(Y.get(), {5, 5, 5}, 0));
    CHECK(index_rows(at, Y.o, X.o, I.o, 3, 1, 0) == TENSOR_ERR_INDEX);

    // Sums into repeated places: whatever the order of threads, and of a few in the order of the sources.
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64, TENSOR_I64}) {
        for (int64_t n : {1, 50, SMALL_RUN ? 60 : 3000}) {
            for (int64_t width : {1, 3}) {
                if (SMALL_RUN && dtype != TENSOR_F32) { continue; }
                int64_t rows = 37;
                values y = some((size_t)(rows * width), -3, 3, dtype), x = some((size_t)(n * width), -3, 3, dtype), i;
                for (int64_t k = 0; k < n; k++) { i.push_back((double)(dice() % 3 ? dice() % (uint64_t)rows : 5)); }
                array_t Y2(dtype, {rows, width}, &y), X2(dtype, {n, width}, &x), I2(TENSOR_I64, {n}, &i), S(TENSOR_U8, {(int64_t)add_scratch(n, width)});
                CHECK(add_rows(at, Y2.o, I2.o, X2.o, n, width, rows, S.o.data) == 0 && take_error() == 0);
                values want(y.size());
                for (size_t q = 0; q < y.size(); q++) {
                    float f = (float)y[q];
                    double d = y[q];
                    for (int64_t k = 0; k < n; k++) {
                        if ((int64_t)i[(size_t)k] != (int64_t)q / width) { continue; }
                        double v = x[(size_t)(k * width) + q % (size_t)width];
                        f += (float)v;
                        d += v;
                    }
                    want[q] = rounded(dtype, class_of(dtype) ? d : (double)f);
                }
                // More than PIECE of a place are added in a tree, the same at each run.
                values got = Y2.get();
                CHECK(near_to(got, want, n > PIECE ? 20 * slack(dtype) : 0));
                Y2.set(y);
                CHECK(add_rows(at, Y2.o, I2.o, X2.o, n, width, rows, S.o.data) == 0 && take_error() == 0);
                CHECK(near_to(Y2.get(), got, 0));
            }
        }
    }
    for (int dim : {0, 1}) {
        values y = some(5 * 6, -1, 1, TENSOR_F32), x = some(4 * 3, -1, 1, TENSOR_F32), i, want = y;
        for (int k = 0; k < 12; k++) { i.push_back((double)(dice() % 3)); }
        array_t Y2(TENSOR_F32, {5, 6}, &y), X2(TENSOR_F32, {4, 3}, &x), I2(TENSOR_I64, {4, 3}, &i), S(TENSOR_U8, {(int64_t)add_scratch(12, 1)});
        CHECK(scatter_add(at, Y2.o, dim, I2.o, X2.o, S.o.data) == 0);
        for (size_t k = 0; k < 12; k++) {
            double &to = want[dim ? k / 3 * 6 + (size_t)i[k] : (size_t)i[k] * 6 + k % 3];
            to = (float)to + (float)x[k];
        }
        CHECK(near_to(Y2.get(), want, 0));
    }
}

// ------------------------------------------------------------------------------------------------ orders, scans, searches
// A tensor of tensor.h's CPU with an array's values.
static tensor_t *here(const array_t &a) {
    return (tensor_from_n)(a.host.data(), (tensor_dtype_t)a.o.dtype, a.o.dims, a.o.ndim);
}
static values numbers_of(tensor_t *t) {
    t = (tensor_contiguous)(t);
    return of_tensor(t, (int)tensor_dtype(t), tensor_numel(t));
}
// Few values, so that there are ties; some NaN, infinities and both zeros.
static values tied(size_t n, int dtype) {
    static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0, NAN};
    values v(n);
    bool whole = class_of(dtype) == 2, natural = dtype == TENSOR_U8 || dtype == TENSOR_BOOL;
    for (double &x : v) {
        x = (double)(dice() % 7) - (natural ? 0 : 3);
        if (!whole && dice() % 5 == 0) { x = odd[dice() % 6]; }
        if (whole && !natural && dice() % 7 == 0) { x *= dtype == TENSOR_I64 ? 1e15 : 30; }
    }
    return v;
}
static void orders() {
    const limits_t before = at.limits;
    struct shape_t { int64_t rows, columns; };
    std::vector<shape_t> shapes = {{3, 19}};            // others take no other steps, in which races would be
    if (!SMALL_RUN) {
        for (shape_t s : {shape_t{1, 1}, shape_t{4, 2}, shape_t{1, 700}, shape_t{5, 130}, shape_t{2, 2049}}) { shapes.push_back(s); }
    }
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64, TENSOR_I64, TENSOR_I32, TENSOR_I16, TENSOR_I8, TENSOR_U8, TENSOR_BOOL}) {
        if (SMALL_RUN && dtype != TENSOR_F16 && dtype != TENSOR_I64) { continue; }
        for (shape_t sh : shapes) {
            if (sh.columns > 100 && dtype != TENSOR_F32 && dtype != TENSOR_I64) { continue; }
            tensor_scope_t scope = tensor_scope_begin();
            int64_t n = sh.rows * sh.columns, m = (sh.columns + 1) / 2;
            values v = tied((size_t)n, dtype);
            if (sh.columns > 2000) { for (double &e : v) { e = (double)(dice() % 3000); } }     // more than a block counts
            array_t X(dtype, {sh.rows, sh.columns}, &v), Y(TENSOR_I64, {sh.rows, sh.columns}), H(TENSOR_I64, {sh.rows, m}), K(TENSOR_I64, {sh.rows});
            array_t S(TENSOR_U8, {(int64_t)(2 * sort_scratch(n) + 32) + sh.rows * (DIGITS + 99) * 4});
            tensor_t *x = here(X);
            // In a block; by radix passes; selected by one block a row, and by several.
            struct way_t { int64_t row, most, part; };
            for (way_t way : {way_t{ROW_SORT, ROW_SORT, 4096}, way_t{1, 0, 4096}, way_t{1, ROW_SORT, 4096}, way_t{1, ROW_SORT, 7}}) {
                at.limits.sort_row = way.row;
                at.limits.select_most = way.most;
                at.limits.select_part = way.part;
                for (bool falling : {false, true}) {
                    CHECK(pick(at, PICK_SORT, Y.o, X.o, sh.rows, sh.columns, sh.columns, falling, true, 0, S.o.data) == 0);
                    CHECK(near_to(Y.get(), numbers_of((tensor_argsort)(x, 1, falling)), 0));
                    for (bool sorted : {false, true}) {
                        CHECK(pick_scratch(at, PICK_TOP, X.o, sh.rows, sh.columns, m, sorted) <= (uint64_t)S.o.numel);
                        CHECK(pick(at, PICK_TOP, H.o, X.o, sh.rows, sh.columns, m, falling, sorted, 0, S.o.data) == 0);
                        CHECK(near_to(H.get(), numbers_of((tensor_topk)(x, m, 1, falling, sorted).indices), 0));
                    }
                }
                for (int64_t k : {(int64_t)-1, (int64_t)0, (int64_t)1, m, sh.columns}) {
                    tensor_pair_t want = k < 0    ? (tensor_nanmedian_dim)(x, 1, 0)
                                         : k == 0 ? (tensor_median_dim)(x, 1, 0) : (tensor_kthvalue)(x, k, 1, 0);
                    CHECK(pick_scratch(at, PICK_RANK, X.o, sh.rows, sh.columns, 1, true) <= (uint64_t)S.o.numel);
                    CHECK(pick(at, PICK_RANK, K.o, X.o, sh.rows, sh.columns, 1, false, true, k, S.o.data) == 0);
                    CHECK(near_to(K.get(), numbers_of(want.indices), 0));
                }
                CHECK(pick_scratch(at, PICK_MODE, X.o, sh.rows, sh.columns, 1, true) <= (uint64_t)S.o.numel);
                CHECK(pick(at, PICK_MODE, K.o, X.o, sh.rows, sh.columns, 1, false, true, 0, S.o.data) == 0);
                CHECK(near_to(K.get(), numbers_of((tensor_mode)(x, 1, 0).indices), 0));
            }
            CHECK(scan(at, SCAN_MAX, Y.o, X.o, sh.rows, sh.columns, false, nullptr) == 0);
            CHECK(near_to(Y.get(), numbers_of((tensor_cummax)(x, 1).indices), 0));
            CHECK(scan(at, SCAN_MIN, Y.o, X.o, sh.rows, sh.columns, false, nullptr) == 0);
            CHECK(near_to(Y.get(), numbers_of((tensor_cummin)(x, 1).indices), 0));
            for (bool right : {false, true}) {          // one sorted row for all; a row for each row
                tensor_searchsorted_args_t side = tensor_searchsorted_args_t();
                side.right = right;
                tensor_t *sorted = (tensor_sort)(x, 1, 0).values, *first = (tensor_contiguous)((tensor_select)(sorted, 0, 0));
                values all = numbers_of(sorted), one = numbers_of(first);
                array_t A(dtype, {sh.rows, sh.columns}, &all), O(dtype, {sh.columns}, &one);
                CHECK(search(at, Y.o, A.o, X.o, right) == 0);
                CHECK(near_to(Y.get(), numbers_of((tensor_searchsorted)(sorted, x, side)), 0));
                CHECK(search(at, Y.o, O.o, X.o, right) == 0);
                CHECK(near_to(Y.get(), numbers_of((tensor_searchsorted)(first, x, side)), 0));
            }
            tensor_t *mask = (tensor_gt_scalar)(x, 0), *flat = (tensor_reshape_n)(mask, &n, 1);
            values where = numbers_of((tensor_nonzero)(mask)), places = numbers_of((tensor_nonzero)(flat)), truth = numbers_of(mask);
            int64_t count = (int64_t)places.size();
            array_t M(TENSOR_BOOL, {sh.rows, sh.columns}, &truth), P(TENSOR_I64, {count}), W(TENSOR_I64, {count, 2}), T(TENSOR_U8, {(int64_t)nonzero_scratch(n)});
            CHECK(nonzero(at, P.o, M.o, false, T.o.data) == 0 && near_to(P.get(), places, 0));
            CHECK(nonzero(at, W.o, M.o, true, T.o.data) == 0 && near_to(W.get(), where, 0));
            tensor_scope_end(scope);
        }
    }
    at.limits = before;
}
static void scans() {
    for (int dtype : {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_I64}) {
        for (int64_t columns : {1, 3, 40, -40, SMALL_RUN ? -41 : 1000, -1000}) {          // < 0: in parts
            if (SMALL_RUN && (dtype != TENSOR_F32 || columns == -1000)) { continue; }
            at.limits.scan_part = columns < 0 ? 16 : 16384;
            columns = columns < 0 ? -columns : columns;
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t rows = 3;
            size_t n = (size_t)(rows * columns);
            bool whole = class_of(dtype) == 2;
            values x = whole ? some(n, -4, 4, dtype) : some(n, 0.9, 1.1, dtype), b = some(n, -0.9, 0.9, dtype), line, others(n);
            array_t X(dtype, {rows, columns}, &x), B(dtype, {rows, columns}, &b), Y(dtype, {rows, columns}), S(TENSOR_F64, {rows * columns}), W(TENSOR_F64, {2 * rows * 64});
            void *T = scan_scratch(at, rows, columns) ? W.o.data : nullptr;
            CHECK((T != nullptr) == (at.limits.scan_part == 16));
            double tol = 30 * slack(dtype);
            tensor_t *t = here(X);
            CHECK(scan(at, SCAN_SUM, Y.o, X.o, rows, columns, false, T) == 0 && near_to(Y.get(), numbers_of((tensor_cumsum)(t, 1)), tol));
            CHECK(scan(at, SCAN_PROD, Y.o, X.o, rows, columns, false, T) == 0 && near_to(Y.get(), numbers_of((tensor_cumprod)(t, 1)), tol));
            CHECK(scan(at, SCAN_LOG, Y.o, X.o, rows, columns, false, T) == (whole ? TENSOR_ERR_UNSUPPORTED : 0));
            if (whole) {
                tensor_scope_end(scope);
                continue;
            }
            CHECK(near_to(Y.get(), numbers_of((tensor_logcumsumexp)(t, 1)), tol));
            for (bool turned : {false, true}) {
                values sum(n);
                line.assign(n, 0);
                for (int64_t r = 0; r < rows; r++) {
                    double run = 0, total = 0;
                    for (int64_t i = 0; i < columns; i++) {
                        size_t k = (size_t)(r * columns + (turned ? columns - 1 - i : i));
                        line[k] = run = i ? x[k] + b[k] * run : x[k];
                        sum[k] = total += x[k];
                        others[k] = 1;
                        for (int64_t j = 0; j < columns; j++) { others[k] *= (size_t)(r * columns + j) == k ? 1 : x[(size_t)(r * columns + j)]; }
                    }
                }
                CHECK(scan(at, SCAN_LINE, Y.o, X.o, rows, columns, turned, T, B.o.data) == 0 && near_to(Y.get(), line, tol));
                CHECK(scan(at, SCAN_SUM, Y.o, X.o, rows, columns, turned, T) == 0 && near_to(Y.get(), sum, tol));
            }
            CHECK(scan(at, SCAN_OTHERS, Y.o, X.o, rows, columns, false, T, nullptr, S.o.data) == 0 && near_to(Y.get(), others, tol));
            tensor_scope_end(scope);
        }
    }
    at.limits.scan_part = 16384;
}
// What joins sources at their places, and what is left out.
static void joins() {
    for (int dtype : {TENSOR_F32, TENSOR_F64, TENSOR_I64}) {
        if (SMALL_RUN && dtype != TENSOR_F32) { continue; }
        for (int how = PUT_PROD; how <= PUT_SET; how++) {
            for (const int64_t n : {50, 900}) {         // few sources a place; more than a thread adds
                if (n > 50 && how == PUT_PROD) { continue; }            // of so many nothing is left
                const int64_t rows = 9, width = 2, none = 4;
                values y = tied((size_t)(rows * width), dtype), x = tied((size_t)(n * width), dtype), i, want;
                if (how == PUT_ADD || how == PUT_PROD) { y = some(y.size(), -2, 2, dtype), x = some(x.size(), -2, 2, dtype); }
                for (int64_t k = 0; k < n; k++) { i.push_back((double)(dice() % (uint64_t)rows)); }
                array_t Y(dtype, {rows, width}, &y), X(dtype, {n, width}, &x), I(TENSOR_I64, {n}, &i), S(TENSOR_U8, {(int64_t)add_scratch(n, width)});
                CHECK(add_rows(at, Y.o, I.o, X.o, n, width, rows, S.o.data, how, none) == 0 && take_error() == 0);
                want = y;
                for (int64_t k = 0; k < n * width; k++) {
                    double &to = want[(size_t)((int64_t)i[(size_t)(k / width)] * width + k % width)], v = x[(size_t)k];
                    if (i[(size_t)(k / width)] == none) { continue; }
                    to = how == PUT_ADD ? rounded(dtype, to + v) : how == PUT_PROD ? rounded(dtype, to * v) : how == PUT_SET ? v
                       : v != v || (how == PUT_MAX ? v > to : v < to) ? v : to;
                }
                CHECK(near_to(Y.get(), want, n > 50 ? 20 * slack(dtype) : slack(dtype)));
                values p = {4, 1}, rowsof = some(5 * 3, 1, 9, dtype);
                array_t W(dtype, {5, 3}, &rowsof), P(TENSOR_I64, {2}, &p), Z(dtype, {2, 3});
                CHECK(index_rows(at, Z.o, W.o, P.o, 2, 3, 5, none) == 0);
                CHECK(near_to(Z.get(), {0, 0, 0, rowsof[3], rowsof[4], rowsof[5]}, 0));
            }
        }
    }
}

// ------------------------------------------------------------------------------------------- whole ops, as tensor.h calls
static tensor_t *net(tensor_t *const *in, int kind) {
    tensor_rnn_args_t a;
    a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
    a.x = in[0];
    a.weights = in + 1;
    a.h = in[5];
    a.c = kind == 4 ? in[6] : nullptr;
    a.relu = kind == 0;
    tensor_state_t s = kind == 4 ? tensor_lstm_with(a) : kind == 3 ? tensor_gru_with(a) : tensor_rnn_with(a);
    return s.c ? (tensor_add)((tensor_sum)(s.c), s.y) : s.y;
}
static void whole_ops() {
    typedef tensor_t *tensors[8];
    struct case_t { std::function<tensor_t *(tensors &)> f; std::vector<std::vector<int64_t>> dims; };
    std::vector<case_t> cases;
    for (int kind : {0, 1, 3, 4}) {
        int64_t g = 2 * (kind ? kind : 1);
        cases.push_back({[kind](tensors &in) { return net(in, kind); }, {{3, 2, 3}, {g, 3}, {g, 2}, {g}, {g}, {1, 2, 2}, {1, 2, 2}}});
    }
    for (int zero : {0, 1}) {
        cases.push_back({[zero](tensors &in) {
            const int64_t label[] = {1, 2, 2, 1, 1, 1, 3}, length[] = {5, 4, 5, 3}, size[] = {3, 0, 1, 3}, n = 7, items = 4;
            int device = (int)tensor_device(in[0]);
            tensor_ctc_loss_args_t a;
            a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
            a.log_probs = (tensor_log_softmax)(in[0], 2);
            a.targets = (tensor_to)((tensor_from_n)(label, TENSOR_I64, &n, 1), device);
            a.input_lengths = (tensor_to)((tensor_from_n)(length, TENSOR_I64, &items, 1), device);
            a.target_lengths = (tensor_to)((tensor_from_n)(size, TENSOR_I64, &items, 1), device);
            a.zero_infinity = zero;
            a.reduction = TENSOR_NONE;
            return (tensor_clamp)(tensor_ctc_loss_with(a), 0, 1e6);
        }, {{5, 4, 4}}});
    }
    cases.push_back({[](tensors &in) {
        tensor_columns_args_t a;
        a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
        a.x = in[0];
        a.kernel = 2;
        a.padding = 1;
        tensor_t *y = tensor_im2col_with(a);
        a.x = (tensor_square)(y);
        a.height = 4, a.width = 5;
        return tensor_col2im_with(a);
    }, {{2, 2, 4, 5}}});
    cases.push_back({[](tensors &in) { return (tensor_mul)((tensor_lgamma)((tensor_abs)(in[0])), (tensor_polygamma)(1, (tensor_abs)(in[0]))); }, {{31}}});
    cases.push_back({[](tensors &in) { return (tensor_logaddexp)((tensor_erfinv)((tensor_tanh)(in[0])), (tensor_hypot)(in[0], in[1])); }, {{2, 9}, {9}}});
    cases.push_back({[](tensors &in) { return (tensor_xlogy)((tensor_sinc)(in[0]), (tensor_exp)(in[0])); }, {{13}}});
    cases.push_back({[](tensors &in) { return (tensor_as_strided)(in[0], std::vector<int64_t>{3, 4}.data(), std::vector<int64_t>{2, 1}.data(), 2, 1); }, {{12}}});
    cases.push_back({[](tensors &in) {
        tensor_scaled_dot_product_attention_args_t a = tensor_scaled_dot_product_attention_defaults();
        a.query = in[0], a.key = in[1], a.value = in[2];
        return tensor_scaled_dot_product_attention_with(a);
    }, {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}}});
    CHECK(tensor_cuda_init() == 0);
    int64_t before = tensor_cuda_fallbacks();
    for (int dtype : {TENSOR_F64, TENSOR_F32}) {
        for (size_t k = 0; k < cases.size(); k++) {
            tensor_scope_t scope = tensor_scope_begin();
            tensors in[2] = {}, grad[2] = {};
            tensor_t *y[2];
            int n = (int)cases[k].dims.size();
            for (int i = 0; i < n; i++) {
                std::vector<int64_t> &d = cases[k].dims[(size_t)i];
                int64_t m = 1;
                for (int64_t e : d) { m *= e; }
                values v = some((size_t)m, 0.2, 1.4, dtype);
                in[0][i] = (tensor_requires_grad_)((tensor_to)((tensor_from_n)(v.data(), TENSOR_F64, d.data(), (int)d.size()), (tensor_dtype_t)dtype), 1);
                in[1][i] = (tensor_requires_grad_)((tensor_to)((tensor_detach)(in[0][i]), TENSOR_CUDA), 1);
            }
            for (int d = 0; d < 2; d++) {
                y[d] = cases[k].f(in[d]);
                tensor_t *g = (tensor_cos)((tensor_detach)(y[d]));
                tensor_autograd_grad(&y[d], 1, &g, in[d], n, grad[d], TENSOR_ALLOW_UNUSED);
            }
            double tol = dtype == TENSOR_F64 ? 1e-9 : 1e-3;
            bool good = near_to(numbers_of((tensor_to)(y[1], TENSOR_CPU)), numbers_of(y[0]), tol);
            for (int i = 0; i < n; i++) {
                good = good && !grad[0][i] == !grad[1][i];
                if (grad[0][i] && good) { good = near_to(numbers_of((tensor_to)(grad[1][i], TENSOR_CPU)), numbers_of(grad[0][i]), tol); }
            }
            if (!good || !tensor_ok()) { std::printf("case %zu, dtype %d: %s\n", k, dtype, tensor_error_text()); }
            CHECK(good && tensor_ok());
            tensor_clear_error();
            tensor_scope_end(scope);
        }
    }
    CHECK(!ALL_ROWS || tensor_cuda_fallbacks() == before);
    for (int turn = 0; turn < 2; turn++) {              // draws: the CPU's
        tensor_scope_t scope = tensor_scope_begin();
        const int64_t dims[2] = {3, 40};
        values rate = some(120, 0, turn ? 200 : 20, TENSOR_F64);
        tensor_t *x = (tensor_from_n)(rate.data(), TENSOR_F64, dims, 2), *there = (tensor_to)(x, TENSOR_CUDA), *draw[2][3];
        for (int d = 0; d < 2; d++) {
            (tensor_manual_seed)(turn + 3);
            draw[d][0] = (tensor_poisson)(d ? there : x);
            draw[d][1] = (tensor_randn_like)(d ? there : x);
            draw[d][2] = (tensor_multinomial)(d ? there : x, 30, turn);
        }
        for (int k = 0; k < 3; k++) { CHECK(near_to(numbers_of((tensor_to)(draw[1][k], TENSOR_CPU)), numbers_of(draw[0][k]), 1e-12)); }
        (tensor_multinomial)((tensor_neg)(there), 3, 0);
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX);
        tensor_clear_error();
        tensor_scope_end(scope);
    }
    CHECK(!ALL_ROWS || tensor_cuda_fallbacks() == before);
}

// ----------------------------------------------------------------------------------------------------- linalg
typedef tensor_t *tensor_p;
static tensor_p off_device(tensor_p x) { return (tensor_to)((tensor_to)(x, TENSOR_CPU), TENSOR_F64); }
static bool same(tensor_p x, tensor_p y, double tol) {
    return (tensor_is_poison)(x) == (tensor_is_poison)(y) && near_to(numbers_of(off_device(x)), numbers_of(off_device(y)), tol);
}
static bool orthonormal(tensor_p q, double tol) {           // columns
    int64_t n = (tensor_size)(q, -1);
    tensor_p x = off_device(q), y = (tensor_matmul)((tensor_mT)(x), x);
    return same(y, (tensor_expand_as)((tensor_eye)(n, n), y), tol);
}
static tensor_p scaled_columns(tensor_p u, tensor_p s) { return (tensor_mul)(off_device(u), (tensor_unsqueeze)(off_device(s), -2)); }
// What the device says of x is what the CPU says, or puts x together again.
static bool decomposed(tensor_p x, tensor_p there, double tol, bool low) {
    bool good = true, square = (tensor_size)(x, -1) == (tensor_size)(x, -2);
    for (int full = 0; full < 2; full++) {
        tensor_linalg_svd_t d = (tensor_linalg_svd)(there, full);
        int64_t k = (tensor_size)(d.s, -1);
        tensor_p u = (tensor_narrow)(d.u, -1, 0, k), v = (tensor_narrow)(d.vh, -2, 0, k);
        good = good && same((tensor_matmul)(scaled_columns(u, d.s), off_device(v)), x, tol);
        good = good && orthonormal(d.u, tol) && orthonormal((tensor_mT)(d.vh), tol) && same(d.s, (tensor_linalg_svdvals)(x), tol);
        const char *mode = full ? "complete" : NULL;
        tensor_qr_t q[2] = {(tensor_linalg_qr)(x, mode), (tensor_linalg_qr)(there, mode)};
        good = good && (low || (same(q[0].r, q[1].r, tol) && same(q[0].q, q[1].q, tol)));     // low: signs of noise
        good = good && same((tensor_matmul)(off_device(q[1].q), off_device(q[1].r)), x, tol) && orthonormal(q[1].q, tol);
    }
    tensor_qr_t raw[2] = {(tensor_geqrf)(x), (tensor_geqrf)(there)};
    good = good && (low || (same(raw[0].q, raw[1].q, tol) && same(raw[0].r, raw[1].r, tol)));
    tensor_lu_factor_t lu[2] = {(tensor_linalg_lu_factor)(x), (tensor_linalg_lu_factor)(there)};
    good = good && same(lu[0].lu, lu[1].lu, tol) && same(lu[0].pivots, lu[1].pivots, 0);
    tensor_lu_t p[2] = {(tensor_lu_unpack)(lu[0].lu, lu[0].pivots), (tensor_lu_unpack)(lu[1].lu, lu[1].pivots)};
    good = good && same(p[0].p, p[1].p, 0);
    if (!square) { return good; }
    for (int upper = 0; upper < 2; upper++) {
        tensor_eigh_t e[2] = {(tensor_linalg_eigh)(x, upper), (tensor_linalg_eigh)(there, upper)};
        tensor_p v = off_device(e[1].eigenvectors), t = off_device(x);
        t = upper ? (tensor_add)((tensor_triu)(t, 0), (tensor_mT)((tensor_triu)(t, 1))) : (tensor_add)((tensor_tril)(t, 0), (tensor_mT)((tensor_tril)(t, -1)));
        good = good && same(e[0].eigenvalues, e[1].eigenvalues, tol) && orthonormal(v, tol);
        good = good && same((tensor_matmul)(scaled_columns(v, e[1].eigenvalues), (tensor_mT)(v)), t, tol);
        tensor_p spd[2] = {(tensor_matmul)(x, (tensor_mT)(x)), NULL}, eye = (tensor_to)((tensor_eye)((tensor_size)(x, -1), (tensor_size)(x, -1)), (tensor_dtype)(x));
        spd[0] = (tensor_add)(spd[0], eye);
        spd[1] = (tensor_to)(spd[0], TENSOR_CUDA);
        good = good && same((tensor_linalg_cholesky)(spd[0], upper), (tensor_linalg_cholesky)(spd[1], upper), tol);
        tensor_linalg_ex_t ex[2] = {(tensor_linalg_cholesky_ex)(spd[0], upper), (tensor_linalg_cholesky_ex)(spd[1], upper)};
        good = good && same(ex[0].result, ex[1].result, tol) && same(ex[0].info, ex[1].info, 0);
        for (int unit = 0; unit < 2; unit++) {
            tensor_p y[2];
            for (int d = 0; d < 2; d++) {
                tensor_p a = (tensor_linalg_cholesky)(spd[d], upper);
                if (unit) { a = (tensor_mul_scalar)(a, 0.1); }
                y[d] = (tensor_linalg_solve_triangular)(a, d ? there : x, upper, 1, unit);
            }
            good = good && same(y[0], y[1], 30 * tol);
        }
        tensor_p b[2] = {(tensor_narrow)(x, -1, 0, (tensor_size)(x, -1) / 2), (tensor_narrow)(there, -1, 0, (tensor_size)(x, -1) / 2)};
        if (upper) { b[0] = x, b[1] = there; }
        good = good && same((tensor_linalg_solve)(spd[0], b[0]), (tensor_linalg_solve)(spd[1], b[1]), tol);
        tensor_slogdet_t l[2] = {(tensor_linalg_slogdet)(spd[0]), (tensor_linalg_slogdet)(spd[1])};
        good = good && same(l[0].sign, l[1].sign, tol) && same(l[0].logabsdet, l[1].logabsdet, tol);
        good = good && same((tensor_linalg_det)(x), (tensor_linalg_det)(there), tol);
    }
    return good;
}
static void fails_with(const char *text) {
    int code = tensor_cuda_synchronize(TENSOR_CUDA);
    bool good = code == TENSOR_ERR_LINALG && tensor_error_code() == TENSOR_ERR_LINALG && std::strstr(tensor_error_text(), text);
    if (!good) { std::printf("%d: %s\n", code, tensor_error_text()); }
    CHECK(good);
    tensor_clear_error();
}
static void matrices() {
    std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {2, 2}, {3, 3}, {5, 3}, {3, 5}, {0, 0}, {0, 3}, {3, 0}};
    for (auto s : {std::pair<int64_t, int64_t>{9, 9}, {40, 9}, {9, 70}, {33, 33}}) { if (!SMALL_RUN) { sizes.push_back(s); } }
    if (SMALL_RUN) { sizes.push_back({17, 10}); }
    const int64_t before = tensor_cuda_fallbacks();
    const limits_t were = limits;
    // As they come; transposed; one matrix for a batch; of low rank; diagonal, with values that repeat; from large to small.
    // The last two are values of their own, in steps that the others take as well.
    for (int form = 0; form < (ALL_ROWS ? 6 : 4); form++) {
        for (auto [m, n] : sizes) {
            for (int dtype : {TENSOR_F64, TENSOR_F32}) {
                if ((SMALL_RUN || m + n > 18) && (dtype == TENSOR_F32) == (form % 3 != 0)) { continue; }
                limits.matrix_shared = form % 2 ? 0 : were.matrix_shared;
                limits.matrix_workspace = form == 1 ? 0 : were.matrix_workspace;
                tensor_scope_t scope = tensor_scope_begin();
                bool turned = form == 1, spread = form == 2;
                const int64_t dims[4] = {2, spread ? 1 : 2, turned ? n : m, turned ? m : n}, wide[4] = {2, 2, m, n};
                values v = some((size_t)(dims[0] * dims[1] * m * n + 1), -2, 2, dtype);
                for (size_t i = 0; i < v.size() && m && n; i++) {
                    int64_t r = (int64_t)i / dims[3] % dims[2], c = (int64_t)i % dims[3];
                    if (form == 3) { v[i] = (double)((r % 2 + 1) * (c % 2 + 1)); }
                    if (form == 4) { v[i] = r == c ? (double)(r / 2) : 0; }
                    if (form == 5) { v[i] *= std::pow(0.3, (double)(r + c)); }
                }
                tensor_p x = (tensor_to)((tensor_from_n)(v.data(), TENSOR_F64, dims, 4), (tensor_dtype_t)dtype), y = (tensor_to)(x, TENSOR_CUDA);
                if (turned) { x = (tensor_mT)(x), y = (tensor_mT)(y); }
                if (spread) { x = (tensor_expand_n)(x, wide, 4), y = (tensor_expand_n)(y, wide, 4); }
                bool good = decomposed(x, y, dtype == TENSOR_F64 ? 1e-10 : 2e-5, form == 3) && tensor_ok();
                if (!good) { std::printf("form %d, %d x %d, dtype %d: %s\n", form, (int)m, (int)n, dtype, tensor_error_text()); }
                CHECK(good);
                tensor_clear_error();
                tensor_scope_end(scope);
            }
        }
    }
    limits = were;
    tensor_scope_t scope = tensor_scope_begin();
    const int64_t dims[3] = {4, 2, 2}, none[3] = {0, 3, 3};
    double v[16] = {2, 1, 1, 2, 4, 0, 0, 4, 1, 2, 2, 1, 2, 4, 4, 8};    // the third has a negative eigenvalue, the last is singular
    tensor_p bad = (tensor_to)((tensor_from_n)(v, TENSOR_F64, dims, 3), TENSOR_CUDA), nan;
    (tensor_linalg_cholesky)(bad, 0);
    fails_with("linalg_cholesky: x is not positive definite: matrix 2, pivot 2");
    (tensor_linalg_inv)(bad);
    fails_with("linalg_solve: a is singular: matrix 3, pivot 2");
    // One has no factor, which is no error: NaN, and the order of the minor. The last, whose factor ends with what
    // rounding leaves of 0, has no inverse.
    for (int ex = 0; ex < 3; ex++) {
        tensor_linalg_ex_t e[2];
        for (int d = 0; d < 2; d++) {
            tensor_p a = d ? bad : off_device(bad);
            e[d] = ex == 2 ? (tensor_linalg_inv_ex)(a) : (tensor_linalg_cholesky_ex)(a, ex);
        }
        values got = numbers_of(off_device(e[1].info)), factor = numbers_of(off_device(e[1].result));
        const size_t none_of = ex == 2 ? 3 : 2, first = none_of * 4;
        for (size_t k = 0; k < 4; k++) { CHECK(got[k] == (k == none_of ? 2 : 0)); }
        CHECK(same(e[0].info, e[1].info, 0) && factor[first] != factor[first] && factor[first + 3] != factor[first + 3]);
        CHECK(same((tensor_narrow)(e[0].result, 0, 0, 2), (tensor_narrow)(e[1].result, 0, 0, 2), 1e-12));
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0 && tensor_ok());
    }
    for (int upper = 0; upper < 2; upper++) {           // in f32 as well
        tensor_p there = (tensor_to)(bad, TENSOR_F32), here = off_device(there);
        tensor_linalg_ex_t e[2] = {(tensor_linalg_cholesky_ex)(here, upper), (tensor_linalg_cholesky_ex)(there, upper)};
        CHECK(same((tensor_narrow)(e[0].info, 0, 0, 3), (tensor_narrow)(e[1].info, 0, 0, 3), 0));
        CHECK(same((tensor_narrow)(e[0].result, 0, 0, 2), (tensor_narrow)(e[1].result, 0, 0, 2), 1e-6));
    }
    for (double what : {(double)NAN, (double)INFINITY}) {
        nan = (tensor_masked_fill)(bad, (tensor_eq_scalar)(bad, 8), what);
        (tensor_linalg_eigh)(nan, 0);
        fails_with("linalg_eigh: x has inf or NaN, or no convergence: matrix 3");
        (tensor_linalg_svd)(nan, 1);
        fails_with("linalg_svd: x has inf or NaN, or no convergence: matrix 3");
    }
    tensor_p empty = (tensor_to)((tensor_zeros_n)(none, 3, TENSOR_F32), TENSOR_CUDA);
    CHECK((tensor_size)((tensor_linalg_qr)(empty, NULL).r, 0) == 0 && (tensor_size)((tensor_linalg_eigh)(empty, 0).eigenvalues, 1) == 3);
    const int64_t two = 2;
    const int32_t out[2] = {1, 3};
    (tensor_lu_unpack)((tensor_select)(bad, 0, 0), (tensor_to)((tensor_from_n)(out, TENSOR_I32, &two, 1), TENSOR_CUDA));
    tensor_cuda_synchronize(TENSOR_CUDA);
    CHECK(tensor_error_code() == TENSOR_ERR_INDEX);
    tensor_clear_error();
    for (int64_t n : {1, 2, 3, 4, 17, 300, SMALL_RUN ? 400 : 5000}) {
        tensor_p y[2];
        for (int d = 0; d < 2; d++) {
            (tensor_manual_seed)((uint64_t)n);
            (tensor_set_default_device)(d ? TENSOR_CUDA : TENSOR_CPU);
            y[d] = (tensor_randperm)(n);
        }
        (tensor_set_default_device)(TENSOR_CPU);
        CHECK(same(y[0], y[1], 0));
    }
    // Recorded and run again: other numbers, other errors.
    tensor_p x = (tensor_select)(bad, 0, 0), eye = (tensor_to)((tensor_eye)(2, 2), TENSOR_CUDA), y[3];
    (tensor_set_default_device)(TENSOR_CUDA);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    y[0] = (tensor_linalg_cholesky)(x, 0);
    y[1] = (tensor_linalg_svdvals)(x);
    y[2] = (tensor_randperm)(300);
    (tensor_set_default_device)(TENSOR_CPU);
    tensor_graph_t *g = (tensor_capture_end)();       // which notes no line
    CHECK(g && tensor_cuda_synchronize(TENSOR_CUDA) == 0);
    values drawn = numbers_of(off_device(y[2]));
    (tensor_copy_)(x, (tensor_mul_scalar)(eye, 9));
    // The numbers of the step come as arguments of a kernel before the graph: no call but the two launches.
    cusim::counts_t count = cusim::counts;
    CHECK((tensor_graph_replay)(g) == 0);
    CHECK(cusim::counts.launches == count.launches + 2 && cusim::counts.calls == count.calls + 1);
    CHECK(same(y[0], (tensor_mul_scalar)(eye, 3), 1e-12));
    CHECK(same((tensor_max)(y[1]), (tensor_full_n)(NULL, 0, 9, TENSOR_F64), 1e-12) && numbers_of(off_device(y[2])) != drawn);
    (tensor_copy_)(x, (tensor_mul_scalar)(eye, -1));
    CHECK((tensor_graph_replay)(g) == 0);
    fails_with("linalg_cholesky: x is not positive definite: matrix 0, pivot 1");
    CHECK(tensor_graph_free(g) == 0 && (!ALL_ROWS || tensor_cuda_fallbacks() == before) && tensor_ok());
    // Numbers that are those of the run before are not sent again.
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    (tensor_mul_scalar_)(x, 1);
    g = (tensor_capture_end)();
    count = cusim::counts;
    CHECK(g && (tensor_graph_replay)(g) == 0);
    CHECK(cusim::counts.launches == count.launches + 1 && cusim::counts.calls == count.calls + 1);
    CHECK(tensor_graph_free(g) == 0);
    // A wait behind an op that might have refused an index is no more than any other.
    const int64_t one = 1;
    tensor_p index = (tensor_to)((tensor_zeros_n)(&one, 1, TENSOR_I64), TENSOR_CUDA);
    long waits[2];
    for (int k = 0; k < 2; k++) {
        if (k) { (tensor_index_select)(x, 0, index); } else { (tensor_mul_scalar)(x, 2); }
        count = cusim::counts;
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        waits[k] = cusim::counts.calls - count.calls;
    }
    CHECK(waits[0] == waits[1]);
    tensor_scope_end(scope);
}

// ----------------------------------------------------------------------------------------------------- matmul, optimizers
static void products() {
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64, TENSOR_I64}) {
        for (int form = 0; form < 4; form++) {
            int64_t m = SMALL_RUN ? 9 : 70, n = SMALL_RUN ? 7 : 67, k = SMALL_RUN ? 18 : 35, batch = form == 3 ? 2 : 1;
            if (SMALL_RUN && dtype != TENSOR_F16) { continue; }
            bool tx = form & 1, tw = form & 2;
            bool integer = class_of(dtype) == 2;
            values x = some((size_t)(batch * m * k), integer ? -5 : -1, integer ? 5 : 1, dtype), w = some((size_t)(k * n), integer ? -5 : -1, integer ? 5 : 1, dtype);
            values b = some((size_t)n, integer ? -5 : -1, integer ? 5 : 1, dtype), y0 = some((size_t)(batch * m * n), integer ? -5 : -1, integer ? 5 : 1, dtype), want;
            array_t X(dtype, {batch * m * k}, &x), W(dtype, {k * n}, &w), B(dtype, {n}, &b), Y(dtype, {batch * m * n}, &y0);
            matmul_t q = {Y.o.data, X.o.data, W.o.data, form ? B.o.data : nullptr, dtype, m, n, k, batch, m * n, n, 1, m * k, tx ? 1 : k,
                          tx ? m : 1, 0, tw ? 1 : n, tw ? k : 1, form == 1 && !integer ? 0.5 : 1, form == 2};
            CHECK(matmul(at, q) == 0);
            for (int64_t z = 0; z < batch; z++) {
                for (int64_t i = 0; i < m; i++) {
                    for (int64_t j = 0; j < n; j++) {
                        double s = 0;
                        for (int64_t t = 0; t < k; t++) { s += x[(size_t)(z * m * k + i * q.xr + t * q.xc)] * w[(size_t)(t * q.wr + j * q.wc)]; }
                        s = s * q.alpha + (form ? b[(size_t)j] : 0) + (form == 2 ? y0[(size_t)(i * n + j)] : 0);
                        want.push_back(rounded(dtype, s));
                    }
                }
            }
            CHECK(near_to(Y.get(), want, 3 * slack(dtype)));
        }
    }
}
// Sums of squares and scaling of more tensors than a launch takes, of several parts, empty and unaligned ones.
template <class C> static void gradients_of(int dtype, int arguments) {
    std::vector<std::unique_ptr<array_t>> all;
    std::vector<param_t> params;
    std::vector<values> start;
    array_t Parts(TENSOR_F64, {4096}), Sum(TENSOR_F64, {1}), Found(TENSOR_F32, {1});
    values by = {0.5}, none = {0};
    array_t Factor(TENSOR_F64, {1}, &by);
    double want = 0;
    int64_t parts = 0;
    at.limits.arguments = arguments;
    for (int i = 0; i < (SMALL_RUN ? 4 : MANY + 5); i++) {
        int64_t n = i == 1 ? 0 : i == 3 ? THREADS * 16 * (SMALL_RUN ? 1 : 3) + 5 : 1 + i * 7;
        start.push_back(some((size_t)(n ? n : 1), -1, 1, dtype));
        if (n) { for (double v : start.back()) { want += v * v; } }
        all.push_back(std::make_unique<array_t>(dtype, std::vector<int64_t>{n}, &start.back(), std::vector<int64_t>{}, i % 3 == 2));
        params.push_back({all.back()->o.data, (double *)Parts.o.data + parts, {}, n});
        parts += parts_of(n);
    }
    int count = (int)params.size();
    const long launches = cusim::counts.launches;
    const bool one = SMALL_RUN || (dtype == TENSOR_F32 && arguments > 4096);
    CHECK(grads<C>(at, params.data(), count, nullptr, nullptr) == 0);
    CHECK(cusim::counts.launches == launches + (one ? 1 : 2));
    CHECK(tcu_launch(sum_parts, 1, THREADS, 0, at.stream, (double *)Sum.o.data, (const double *)Parts.o.data, parts) == 0);
    CHECK(near_to(Sum.get(), values{want}, 1e-12));
    for (bool bad : {false, true}) {
        bool good = true;
        Found.set(none);
        if (bad) { start[2][1] = std::nan(""); all[2]->set(start[2]); }
        CHECK(grads<C>(at, params.data(), count, (const double *)Factor.o.data, bad ? (float *)Found.o.data : nullptr) == 0);
        for (int i = 0; i < count; i++) {
            if (!params[(size_t)i].n) { continue; }
            for (double &v : start[(size_t)i]) { v *= 0.5; }
            values got = all[(size_t)i]->get();
            for (size_t k = 0; k < got.size(); k++) { good = good && (got[k] == start[(size_t)i][k] || (bad && i == 2 && k == 1 && std::isnan(got[k]))); }
        }
        CHECK(good && Found.get()[0] == (bad ? 1 : 0));
    }
}
// More tensors than a launch takes, empty and unaligned ones: the rules themselves are compared with the CPU's
// bits in tests/device.c.
static void optimizers_of(int arguments) {
    at.limits.arguments = arguments;
    for (int rule : {NN_STEP_sgd, NN_STEP_adam, NN_STEP_rmsprop}) {
        nn_update_t u;
        memset(&u, 0, sizeof u);
        u.formula = rule, u.lr = -0.1, u.weight_decay = 0.1, u.decay = 1, u.momentum = 0.9, u.rest = 1, u.beta1 = 0.9, u.rest1 = 0.1;
        u.beta2 = 0.99, u.rest2 = 0.01, u.eps = 1e-3, u.step = -0.3, u.root = 2, u.maximize = rule == NN_STEP_adam;
        std::vector<std::unique_ptr<array_t>> all;
        std::vector<param_t> params;
        std::vector<values> start;
        const bool large = arguments > 4096;
        int count = SMALL_RUN ? 3 : large ? 148 : 69;       // one of them is empty
        bool good = true;
        for (int i = 0; i < count; i++) {
            int64_t n = i == 1 ? 0 : 1 + i * 7;
            for (int k = 0; k < 4; k++) {
                start.push_back(some((size_t)(n ? n : 1), k > 1 ? 0.1 : -1, 1, TENSOR_F32));
                all.push_back(std::make_unique<array_t>(TENSOR_F32, std::vector<int64_t>{n}, &start.back(), std::vector<int64_t>{}, i % 3 == 2));
            }
            size_t o = all.size() - 4;
            params.push_back({all[o]->o.data, all[o + 1]->o.data, {all[o + 2]->o.data, rule == NN_STEP_sgd ? nullptr : all[o + 3]->o.data, nullptr}, n});
        }
        long launches = cusim::counts.launches;
        CHECK(optimizer<float>(at, params.data(), count, u) == 0);
        CHECK(cusim::counts.launches == launches + (SMALL_RUN || large ? 1 : 2));
        for (int i = 0; i < count; i++) {
            values want;
            for (int64_t j = 0; j < params[(size_t)i].n; j++) {
                double p = start[(size_t)i * 4][(size_t)j], g = start[(size_t)i * 4 + 1][(size_t)j], m = start[(size_t)i * 4 + 2][(size_t)j];
                double v = start[(size_t)i * 4 + 3][(size_t)j];
                g = (u.maximize ? -g : g) + 0.1 * p;
                if (rule == NN_STEP_sgd) { p -= 0.1 * (0.9 * m + g); }
                if (rule == NN_STEP_adam) { p -= 0.3 * (0.9 * m + 0.1 * g) / (2 * std::sqrt(0.99 * v + 0.01 * g * g) + 1e-3); }
                if (rule == NN_STEP_rmsprop) { p -= 0.1 * (0.9 * v + g / (std::sqrt(0.99 * m + 0.01 * g * g) + 1e-3)); }
                want.push_back(p);
            }
            good = good && near_to(all[(size_t)i * 4]->get(), want, 1e-5);
        }
        CHECK(good);
    }
}
#if defined(TENSOR_CUDA_SIM)
// What lives by bandwidth runs on the kernels with 16-byte accesses whatever its layout, and in one pass over enough
// blocks: the kernel of the last launch, its blocks, the launches. Printed as "path" lines.
static const struct { const char *name; std::vector<int64_t> strides; } layouts[] = {
    {"contiguous", {256, 64, 8, 1}}, {"channels_last", {256, 1, 32, 4}}, {"transposed", {256, 64, 1, 8}}};
template <class T> static void paths_of(int dtype, const char *name) {
    const std::vector<int64_t> dims = {2, 4, 8, 8};
    values v = some(512, -1, 1, dtype), c = some(4, 0.5, 1, dtype), bits(512);
    for (size_t i = 0; i < bits.size(); i++) { bits[i] = i % 3 == 0; }
    auto ran = [&](const char *what, const char *layout, auto *kernel) {
        bool good = cusim::last.kernel == (void (*)())kernel;
        if (!good) { std::printf("path %s %s %s: on a slow kernel\n", what, name, layout); }
        CHECK(good);
    };
    for (auto &l : layouts) {
        array_t x(dtype, dims, &v, l.strides), y(dtype, dims, nullptr, l.strides), z(dtype, dims, nullptr, l.strides);
        tensor_arg_t one[2] = {y.o, x.o}, two[3] = {y.o, x.o, x.o};
        CHECK(pointwise(at, TENSOR_OP_EXP, one, 1, dtype, nullptr) == 0);
        ran("exp", l.name, pointwise_rows<T, T, op_exp, 1>);
        CHECK(cusim::last.block.x >= 32);               // all of it is one row
        CHECK(pointwise(at, TENSOR_OP_ADD, two, 2, dtype, nullptr) == 0);
        ran("add", l.name, pointwise_rows<T, T, op_add, 2>);
        // a number a channel, along or across memory, and its gradient
        array_t b(dtype, {1, 4, 1, 1}, &c), m(TENSOR_BOOL, dims, &bits, l.strides), absent(dtype, {0});
        tensor_arg_t scaled[3] = {y.o, x.o, b.o}, masked[4] = {y.o, m.o, x.o, x.o}, none = absent.o;
        CHECK(pointwise(at, TENSOR_OP_MUL, scaled, 2, dtype, nullptr) == 0);
        if (l.strides[3] == 1 || is_half<T> == false) { ran("mul_channels", l.name, pointwise_rows<T, T, op_mul, 2>); }
        values want, got = y.get();
        for (size_t i = 0; i < 512; i++) { want.push_back(rounded(dtype, v[i] * c[i / 64 % 4])); }
        CHECK(near_to(got, want, slack(dtype)));
        CHECK(pointwise(at, TENSOR_OP_WHERE, masked, 3, dtype, nullptr) == 0);
        ran("where", l.name, pointwise_rows<T, T, op_where, 3>);
        none.data = nullptr;
        tensor_arg_t in[5] = {x.o, x.o, none, none, x.o}, out[3] = {y.o, z.o, none};
        CHECK(pointwise_backward(at, TENSOR_OP_MUL, in, out, 2, dtype, nullptr) == 0);
        ran("mul_backward", l.name, pointwise_backward_rows<T, slope_mul>);
        want.clear();
        for (size_t i = 0; i < 512; i++) { want.push_back(rounded(dtype, v[i] * v[i])); }
        CHECK(near_to(y.get(), want, slack(dtype)) && near_to(z.get(), want, slack(dtype)));
        in[1] = b.o;
        CHECK(pointwise_backward(at, TENSOR_OP_MUL, in, out, 2, dtype, nullptr) == 0);
        if (l.strides[3] == 1 || is_half<T> == false) { ran("mul_channels_backward", l.name, pointwise_backward_rows<T, slope_mul>); }
        want.clear();
        for (size_t i = 0; i < 512; i++) { want.push_back(rounded(dtype, v[i] * c[i / 64 % 4])); }
        CHECK(near_to(y.get(), want, slack(dtype)));
        // a copy of one layout to itself is a copy of bytes; a cast is flat
        long launches = cusim::counts.launches;
        CHECK(copy(at, y.o, x.o) == 0 && cusim::counts.launches == launches && near_to(y.get(), v, 0));
        if constexpr (is_half<T>) {
            array_t f(TENSOR_F32, dims, nullptr, l.strides);
            CHECK(copy(at, f.o, x.o) == 0 && near_to(f.get(), v, 0));
            ran("cast", l.name, cast_flat<float, T>);
        }
        // sums: everything; all but the channels
        array_t total(dtype, {}), channels(dtype, {4}), scratch(TENSOR_F64, {4096});
        place_t wide = at;
        wide.limits = limits_t();
        double all = 0, of[4] = {0, 0, 0, 0};
        for (size_t i = 0; i < 512; i++) { all += v[i], of[i / 64 % 4] += v[i]; }
        CHECK(reduce(wide, total.o, x.o, 15, REDUCE_SUM, scratch.o.data) == 0);
        ran("sum", l.name, reduce_pass<T, float, sum_op<float>>);
        CHECK(near_to(total.get(), {rounded(dtype, all)}, 4 * slack(dtype)));
        CHECK(reduce(wide, channels.o, x.o, 13, REDUCE_SUM, scratch.o.data) == 0);
        if (l.strides[1] == 1 && !is_half<T>) { ran("sum_channels", l.name, reduce_columns<T, float, sum_op<float>>); }
        CHECK(near_to(channels.get(), {rounded(dtype, of[0]), rounded(dtype, of[1]), rounded(dtype, of[2]), rounded(dtype, of[3])},
                      4 * slack(dtype)));
    }
}
static void fast_paths() {
    paths_of<float>(TENSOR_F32, "f32");
    paths_of<f16>(TENSOR_F16, "f16");
    paths_of<bf16>(TENSOR_BF16, "bf16");
    // enough blocks in the first pass, and a tree in the second; the same for any device
    place_t wide = at;
    wide.limits = limits_t();
    struct { const char *name; std::vector<int64_t> dims; uint32_t mask; int64_t least; bool columns; } sums[] = {
        {"sum", {1 << 24}, 1, 264, false}, {"sum of columns", {8192, 768}, 1, 264, true},
        {"sum of few columns", {65536, 16}, 1, 264, true}, {"sum of long rows", {16, 1 << 20}, 2, 264, false},
        {"sum of rows", {4096, 4096}, 2, 264, false}};
    for (auto &s : sums) {
        values few = {1};
        array_t stub(TENSOR_F32, {64}, &few);
        tensor_arg_t x = stub.o;
        int64_t strides[2] = {s.dims.back(), 1};
        x.ndim = (uint8_t)s.dims.size();
        x.dims = s.dims.data();
        x.strides = strides + (s.dims.size() == 1);
        reduce_plan_t p = reduce_plan(wide, x, s.mask, REDUCE_SUM);
        int rows = THREADS / p.r.lanes;
        int64_t blocks = (int64_t)grid_for(wide, p.r.kept.n, rows) * p.splits;
        std::printf("path %s: %d x %d blocks, then %s\n", s.name, (int)(blocks / p.splits), (int)p.splits,
                    p.splits > 1 ? "a tree" : "nothing");
        CHECK(blocks >= s.least && (p.r.width == 4) == s.columns && p.splits <= 1024);
        x.data = (void *)4;                             // another plan there: its scratch was asked for all the same
        CHECK(reduce_scratch(wide, x, s.mask, REDUCE_SUM) >= reduce_plan(wide, x, s.mask, REDUCE_SUM).scratch);
        x.data = stub.o.data;
        CHECK(reduce_scratch(wide, x, s.mask, REDUCE_SUM) >= p.scratch);
        wide.limits.sms = 7;
        CHECK(reduce_plan(wide, x, s.mask, REDUCE_SUM).splits == p.splits);
        wide.limits.sms = 132;
    }
    // 300 parts of 3 results
    values v = some(900, -1, 1, TENSOR_F32), want(3);
    for (size_t i = 0; i < 900; i++) { want[i % 3] += v[i]; }
    array_t parts(TENSOR_F32, {900}, &v), joined(TENSOR_F32, {3});
    CHECK(sum_partials<float>(wide, joined.o.data, TENSOR_F32, (const float *)parts.o.data, 3, 300) == cudaSuccess);
    CHECK(near_to(joined.get(), want, 1e-5) && cusim::last.block.y >= 64 && cusim::last.grid.x == 1);
    // statistics of few channels over much: many blocks, the CPU's values; whole planes, planes in pieces
    for (int form = 0; form < 4; form++) {
        tensor_scope_t scope = tensor_scope_begin();
        int64_t dims[4] = {form & 1 ? 1 : 6, 4, form & 1 ? 130 : 58, form & 1 ? 135 : 58}, channels = 4;
        tensor_p x = (tensor_add_scalar)((tensor_randn_n)(dims, 4), 3), w = (tensor_rand_n)(&channels, 1), b = (tensor_rand_n)(&channels, 1);
        tensor_p in[2][3], y[2], g[2][3], one = (tensor_randn_n)(dims, 4);
        for (int k = 0; k < 2; k++) {
            tensor_p from[3] = {x, w, b};
            for (int i = 0; i < 3; i++) {
                in[k][i] = (tensor_requires_grad_)((tensor_detach)(k ? (tensor_to)(from[i], TENSOR_CUDA) : from[i]), 1);
            }
            long launches = cusim::counts.launches;
            if (form < 2) {
                tensor_batch_norm_args_t a = tensor_batch_norm_defaults();
                a.x = in[k][0], a.weight = in[k][1], a.bias = in[k][2], a.training = 1;
                y[k] = (tensor_batch_norm_with)(a);
            } else {
                tensor_group_norm_args_t a = tensor_group_norm_defaults();
                a.x = in[k][0], a.groups = 2, a.weight = in[k][1], a.bias = in[k][2];
                y[k] = (tensor_group_norm_with)(a);
            }
            if (k) { tensor_cuda_synchronize(TENSOR_CUDA); }
            CHECK(!k || (cusim::counts.launches == launches + 3 && cusim::last.kernel == (void (*)())piece_norm<float>));
            CHECK(!k || cusim::last.grid.x * cusim::last.block.y >= (form & 1 ? 8u : 24u));
            tensor_p grad = k ? (tensor_to)(one, TENSOR_CUDA) : one;
            CHECK((tensor_autograd_grad)(&y[k], 1, &grad, in[k], 3, g[k], 0) == 0);
        }
        bool good = near_to(numbers_of(off_device(y[1])), numbers_of(off_device(y[0])), 1e-5);
        for (int i = 0; i < 3; i++) { good = near_to(numbers_of(off_device(g[1][i])), numbers_of(off_device(g[0][i])), i ? 2e-4 : 1e-5) && good; }
        if (!good) { std::printf("path norm, form %d\n", form); }
        CHECK(good);
        tensor_scope_end(scope);
    }
    // a pool's gradient is one launch, with channels innermost as well
    for (bool last : {false, true}) {
        tensor_scope_t scope = tensor_scope_begin();
        int64_t dims[4] = {2, 8, 9, 9};
        tensor_p x = (tensor_randn_n)(dims, 4), there = (tensor_to)(x, TENSOR_CUDA), g[2];
        if (last) { there = (tensor_channels_last)(there); }
        x = (tensor_requires_grad_)((tensor_detach)(x), 1);
        there = (tensor_requires_grad_)((tensor_detach)(there), 1);
        tensor_max_pool_args_t a = tensor_max_pool_defaults();
        a.kernel = 3, a.stride = 2, a.padding = 1;
        a.x = x;
        tensor_p y0 = (tensor_max_pool2d_with)(a), one = (tensor_ones_like)(y0);
        a.x = there;
        tensor_p y1 = (tensor_max_pool2d_with)(a), one1 = (tensor_to)(one, TENSOR_CUDA);
        if (last) { one1 = (tensor_channels_last)(one1); }
        CHECK((tensor_autograd_grad)(&y0, 1, &one, &x, 1, &g[0], 0) == 0);
        tensor_cuda_synchronize(TENSOR_CUDA);
        long launches = cusim::counts.launches;
        CHECK((tensor_autograd_grad)(&y1, 1, &one1, &there, 1, &g[1], 0) == 0);
        launches = cusim::counts.launches - launches;
        CHECK((cusim::last.kernel == (void (*)())pool_backward<float, int32_t>));
        if (launches != 1) { std::printf("path max_pool_backward%s: %ld launches\n", last ? " channels_last" : "", launches); }
        CHECK(launches == 1 && tensor_equal(y0, (tensor_to)(y1, TENSOR_CPU)) && tensor_equal(g[0], (tensor_to)(g[1], TENSOR_CPU)));
        tensor_scope_end(scope);
    }
}
// Group, instance and batch norm of images, volumes and lines with channels innermost: one launch where statistics are
// small, else three, and back as many and for weights one or two more. They copy nothing, keep the layout, and give the same
// bits in any number of blocks; groups of one channel and of all, channels that no pack divides, tiles of channels that end
// within one, addresses between packs.
static void norms_of_last() {
    static const int64_t cases[][7] = {{4, 2, 8, 5, 7, 0, 2}, {4, 2, 6, 5, 7, 0, 6}, {4, 3, 5, 4, 3, 0, 1}, {4, 1, 64, 9, 9, 0, 8},
                                       {5, 2, 12, 3, 4, 5, 3}, {4, 2, 4, 40, 44, 0, 2}, {4, 1, 264, 9, 9, 0, 4}, {4, 2, 33, 1, 9, 0, 3},
                                       {3, 3, 8, 13, 0, 0, 2}, {3, 2, 7, 5, 0, 0, 7}, {4, 2, 24, 6, 5, 0, 0}, {3, 4, 5, 6, 0, 0, 0}};
    for (int dtype : {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16}) {
        for (int form = 0; form < 12 * 4; form++) {
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t *dims = &cases[form / 4][1], channels = dims[1], groups = cases[form / 4][6];
            const int ndim = (int)cases[form / 4][0], affine = form % 4;            // 3: both, of a view behind another item
            const bool low = dtype == TENSOR_F16 || dtype == TENSOR_BF16, view = affine == 3, instance = groups == channels;
            const tensor_dtype_t small = low ? TENSOR_F32 : (tensor_dtype_t)dtype;
            int64_t sizes[5], order[5] = {0, ndim - 1, 1, 2, 3};
            sizes[0] = dims[0] + view;
            for (int k = 1; k < ndim; k++) { sizes[k] = k == ndim - 1 ? channels : dims[k + 1]; }
            tensor_p base = (tensor_to)((tensor_add_scalar)((tensor_randn_n)(sizes, ndim), 2), (tensor_dtype_t)dtype);
            tensor_p from[3] = {base, (tensor_to)((tensor_rand_n)(&channels, 1), small), (tensor_to)((tensor_randn_n)(&channels, 1), small)};
            tensor_p g = (tensor_to)((tensor_randn_n)(sizes, ndim), (tensor_dtype_t)dtype), y[3], dx[3][3], twice[2];
            const int inputs = affine > 1 ? 3 : 1 + affine;
            for (int k = 0; k < 3; k++) {               // the CPU, the device, the device with fewer blocks
                tensor_p in[3], grad = k ? (tensor_to)(g, TENSOR_CUDA) : g, leaf;
                for (int i = 0; i < 3; i++) { in[i] = k ? (tensor_to)(from[i], TENSOR_CUDA) : from[i]; }
                for (tensor_p *image : {&in[0], &grad}) {
                    if (!k && low) { *image = (tensor_to)(*image, TENSOR_F32); }
                    *image = (tensor_permute_n)(*image, order, ndim);
                    if (view) { *image = (tensor_narrow)(*image, 0, 1, dims[0]); }
                    if (!k) { *image = (tensor_contiguous)(*image); }
                }
                for (int i = 0; i < inputs; i++) { in[i] = (tensor_requires_grad_)((tensor_detach)(in[i]), 1); }
                leaf = in[0];
                tcu::limits.sms = k == 2 ? 2 : 132;
                tensor_cuda_synchronize(TENSOR_CUDA);
                const long begin = cusim::counts.launches;
                if (instance) {
                    tensor_instance_norm_args_t a = tensor_instance_norm_defaults();
                    a.x = leaf, a.weight = inputs > 1 ? in[1] : nullptr, a.bias = inputs > 2 ? in[2] : nullptr;
                    y[k] = (tensor_instance_norm_with)(a);
                } else if (groups) {
                    tensor_group_norm_args_t a = tensor_group_norm_defaults();
                    a.x = leaf, a.groups = groups, a.weight = inputs > 1 ? in[1] : nullptr, a.bias = inputs > 2 ? in[2] : nullptr;
                    y[k] = (tensor_group_norm_with)(a);
                } else {
                    tensor_batch_norm_args_t a = tensor_batch_norm_defaults();
                    a.x = leaf, a.weight = inputs > 1 ? in[1] : nullptr, a.bias = inputs > 2 ? in[2] : nullptr, a.training = 1;
                    y[k] = (tensor_batch_norm_with)(a);
                }
                tensor_cuda_synchronize(TENSOR_CUDA);
                const long there = cusim::counts.launches;
                CHECK((tensor_autograd_grad)(&y[k], 1, &grad, in, inputs, dx[k], TENSOR_RETAIN_GRAPH) == 0);
                tensor_cuda_synchronize(TENSOR_CUDA);
                const long back = cusim::counts.launches;
                if (k) {
                    const int64_t each = groups ? channels / groups : 1, size = low ? 2 : dtype == TENSOR_F32 ? 4 : 8;
                    const bool one = each * size >= 32 && each * (tensor_numel(leaf) / dims[0] / channels) <= 4096;
                    const long most = inputs == 1 ? 0 : one ? 2 : 1;
                    const bool good = there - begin == (one ? 1 : 3) && back - there == (one ? 1 : 3) + most;
                    if (!good) { std::printf("norm of last, form %d: %ld and %ld launches\n", form, there - begin, back - there); }
                    CHECK(good && tensor_is_channels_last(y[k]) && tensor_is_channels_last(dx[k][0]));
                    CHECK(tensor_dtype(y[k]) == (tensor_dtype_t)dtype && tensor_ndim(y[k]) == ndim);
                }
                if (k < 2 && !low && affine < 3) {
                    tensor_p d, s;
                    CHECK((tensor_autograd_grad)(&y[k], 1, &grad, &leaf, 1, &d, TENSOR_CREATE_GRAPH) == 0);
                    s = (tensor_sum)((tensor_square)(d));
                    CHECK((tensor_autograd_grad)(&s, 1, nullptr, &leaf, 1, &twice[k], 0) == 0);
                }
            }
            tcu::limits.sms = 132;
            const double close = dtype == TENSOR_F64 ? 1e-11 : dtype == TENSOR_F32 ? 2e-5 : dtype == TENSOR_F16 ? 4e-3 : 3e-2;
            bool good = same(y[1], (tensor_to)(y[0], (tensor_dtype_t)dtype), close) && tensor_equal(y[1], y[2]);
            for (int i = 0; i < inputs; i++) {
                tensor_p want = i ? dx[0][i] : (tensor_to)(dx[0][i], (tensor_dtype_t)dtype);
                good = same(dx[1][i], want, i && low ? 1e-4 : close) && tensor_equal(dx[1][i], dx[2][i]) && good;
            }
            if (!low && affine < 3) { good = same(twice[1], twice[0], dtype == TENSOR_F64 ? 1e-9 : 2e-3) && good; }
            if (!good) { std::printf("norm of last, form %d of dtype %d\n", form, dtype); }
            CHECK(good);
            tensor_scope_end(scope);
        }
    }
}
// Dropout, pools and cross entropy read and write halves as they are. The mask is f32's; so is the loss, whose only number is
// rounded at the end: rows, their sum, the rounding; back, the rounding's gradient and the rows.
static void halves() {
    for (int dtype : {TENSOR_F16, TENSOR_BF16}) {
        tensor_scope_t scope = tensor_scope_begin();
        const int64_t dims[2] = {37, 51};
        tensor_p x = (tensor_to)((tensor_randn_n)(dims, 2), (tensor_dtype_t)dtype), far[2], y[2], g[2], dx[2];
        tensor_p labels = (tensor_to)((tensor_randint_n)(0, 51, dims, 1), TENSOR_CUDA);
        for (int way = 0; way < 4; way++) {             // 0, 1: dropout in f32, as it is; 2, 3: cross entropy
            const int k = way & 1;
            far[k] = (tensor_to)((tensor_to)(x, k ? (tensor_dtype_t)dtype : TENSOR_F32), TENSOR_CUDA);
            far[k] = (tensor_requires_grad_)(far[k], 1);
            tensor_cross_entropy_args_t a = tensor_cross_entropy_defaults();
            a.input = far[k], a.target = labels, a.label_smoothing = 0.1;
            (tensor_manual_seed)(11);
            const long begin = cusim::counts.launches;
            y[k] = way > 1 ? (tensor_cross_entropy_with)(a) : (tensor_dropout)(far[k], 0.4, 1);
            const long there = cusim::counts.launches;
            g[k] = (tensor_ones_like)(y[k]);
            const long back = cusim::counts.launches;
            CHECK((tensor_autograd_grad)(&y[k], 1, &g[k], &far[k], 1, &dx[k], 0) == 0);
            const long end = cusim::counts.launches;
            if (!k) { continue; }
            CHECK(there - begin == (way > 1 ? 3 : 1) && end - back == (way > 1 ? 2 : 1));
            CHECK(tensor_dtype(y[1]) == (tensor_dtype_t)dtype && tensor_dtype(dx[1]) == (tensor_dtype_t)dtype);
            for (tensor_p *v : {y, dx}) {
                tensor_p want = (tensor_to)(v[0], (tensor_dtype_t)dtype);
                CHECK(same(v[1], want, way > 1 ? (dtype == TENSOR_F16 ? 1e-3 : 8e-3) : 0));
            }
        }
        // Norms of planes, in one launch or in three pieces, and the mean of planes: no f32 copy of the image.
        for (int form = 0; form < 6; form++) {
            const int64_t planes[4] = {2, 8, form % 3 == 1 ? 48 : 9, form % 3 == 1 ? 50 : 7};
            x = (tensor_to)((tensor_randn_n)(planes, 4), (tensor_dtype_t)dtype);
            for (int k = 0; k < 2; k++) {
                far[k] = (tensor_requires_grad_)((tensor_to)((tensor_to)(x, k ? (tensor_dtype_t)dtype : TENSOR_F32), TENSOR_CUDA), 1);
                tensor_batch_norm_args_t batch = tensor_batch_norm_defaults();
                tensor_group_norm_args_t group = tensor_group_norm_defaults();
                batch.x = group.x = far[k], batch.training = 1, group.groups = 2;
                const long begin = cusim::counts.launches;
                if (form % 3 == 2) {
                    if (form > 2) { far[k] = (tensor_requires_grad_)((tensor_detach)((tensor_channels_last)(far[k])), 1); }
                    tensor_cuda_synchronize(TENSOR_CUDA);
                    const long pool = cusim::counts.launches;
                    y[k] = (tensor_adaptive_avg_pool2d)(far[k], 1, 1);
                    CHECK(cusim::counts.launches - pool == 1 && cusim::last.block.x * cusim::last.block.y == 256 &&
                          (form > 2 || cusim::last.block.x >= 8));
                } else {
                    y[k] = form > 2 ? (tensor_group_norm_with)(group) : (tensor_batch_norm_with)(batch);
                    CHECK(cusim::counts.launches - begin == (form % 3 ? 3 : 1));
                }
                g[k] = (tensor_to)((tensor_randn_like)(y[0]), tensor_dtype(y[k]));
                if (k) { g[1] = (tensor_to)(g[0], (tensor_dtype_t)dtype); }
                const long back = cusim::counts.launches;
                CHECK((tensor_autograd_grad)(&y[k], 1, &g[k], &far[k], 1, &dx[k], 0) == 0);
                if (form % 3 < 2) { CHECK(cusim::counts.launches - back == (form % 3 ? 3 : 1)); }
            }
            CHECK(tensor_dtype(y[1]) == (tensor_dtype_t)dtype && tensor_dtype(dx[1]) == (tensor_dtype_t)dtype);
            const double close = dtype == TENSOR_F16 ? 4e-3 : 3e-2;
            CHECK(same(y[1], (tensor_to)(y[0], (tensor_dtype_t)dtype), close) && same(dx[1], (tensor_to)(dx[0], (tensor_dtype_t)dtype), close));
        }
        // Batch norm in evaluation is one launch, which casts nothing: planes whole or in pieces, of one element, and
        // channels innermost, by packs or not; statistics and weights are f32 or halves, or not there.
        for (int form = 0; form < 20; form++) {
            const int way = form % 5;
            const bool wide = form >= 10, bare = form / 5 % 2;
            const int64_t sizes[5][4] = {{2, 8, 9, 7}, {2, 3, 48, 50}, {6, 8, 1, 1}, {2, 16, 5, 3}, {2, 5, 3, 4}};
            const int64_t channels = sizes[way][1];
            tensor_p from[5] = {(tensor_randn_n)(sizes[way], way == 2 ? 2 : 4)}, in[2][5] = {};
            for (int i = 1; i < 5; i++) { from[i] = (tensor_add_scalar)((tensor_rand_n)(&channels, 1), i == 2 ? 0.5 : -0.5); }
            for (int i = 0; i < (bare ? 3 : 5); i++) {
                tensor_p rounded = (tensor_to)(from[i], (tensor_dtype_t)dtype);
                const bool as_f32 = wide && i > 0;
                in[0][i] = as_f32 ? from[i] : (tensor_to)(rounded, TENSOR_F32);
                in[1][i] = (tensor_to)(as_f32 ? from[i] : rounded, TENSOR_CUDA);
            }
            if (way > 2) { in[1][0] = (tensor_channels_last)(in[1][0]); }
            for (int k = 0; k < 2; k++) {
                tensor_batch_norm_args_t a = tensor_batch_norm_defaults();
                a.x = in[k][0], a.running_mean = in[k][1], a.running_var = in[k][2];
                a.weight = in[k][3], a.bias = in[k][4];
                const long begin = cusim::counts.launches;
                y[k] = (tensor_batch_norm_with)(a);
                CHECK(!k || cusim::counts.launches - begin == 1);
            }
            CHECK(tensor_dtype(y[1]) == (tensor_dtype_t)dtype && (way < 3 || tensor_is_channels_last(y[1])));
            const bool good = same(y[1], (tensor_to)(y[0], (tensor_dtype_t)dtype), dtype == TENSOR_F16 ? 2e-3 : 2e-2);
            CHECK(good);
            if (!good) { std::printf("batch norm in evaluation, form %d\n", form); }
        }
        // Pools: of the largest, and the mean, one launch each and one back; channels innermost as well.
        const int64_t image[4] = {2, 8, 9, 7};
        x = (tensor_to)((tensor_randn_n)(image, 4), (tensor_dtype_t)dtype);
        for (int form = 0; form < 4; form++) {
            for (int k = 0; k < 2; k++) {
                far[k] = (tensor_to)((tensor_to)(x, k ? (tensor_dtype_t)dtype : TENSOR_F32), TENSOR_CUDA);
                if (form & 1) { far[k] = (tensor_detach)((tensor_channels_last)(far[k])); }
                far[k] = (tensor_requires_grad_)(far[k], 1);
                tensor_max_pool_args_t most = tensor_max_pool_defaults();
                tensor_avg_pool_args_t mean = tensor_avg_pool_defaults();
                most.x = mean.x = far[k], most.kernel = mean.kernel = 3, most.stride = mean.stride = 2;
                const long begin = cusim::counts.launches;
                y[k] = form & 2 ? (tensor_avg_pool2d_with)(mean) : (tensor_max_pool2d_with)(most);
                const long there = cusim::counts.launches;
                g[k] = (tensor_ones_like)(y[k]);
                if (form & 1) { g[k] = (tensor_channels_last)(g[k]); }
                const long back = cusim::counts.launches;
                CHECK((tensor_autograd_grad)(&y[k], 1, &g[k], &far[k], 1, &dx[k], 0) == 0);
                CHECK(!k || (there - begin == 1 && cusim::counts.launches - back == 1));
            }
            CHECK(tensor_dtype(dx[1]) == (tensor_dtype_t)dtype && same(y[1], (tensor_to)(y[0], (tensor_dtype_t)dtype), 0));
            CHECK(same(dx[1], (tensor_to)(dx[0], (tensor_dtype_t)dtype), 0));
        }
        tensor_scope_end(scope);
    }
}
// Attention of one query, as in decoding with a cache: one launch, no scores, no copies.
// One number of a few long rows, which several blocks share: as on the CPU, also where elements are infinite, NaN, of very
// different sizes, or all zero.
static void long_rows() {
    const int64_t n = 20011;
    tensor_t *x = tensor_randn(3, n), *z = tensor_zeros(2, n), *all[9];
    int count = 0;
    for (double scale : {1.0, 1e30, 1e-30}) { all[count++] = tensor_mul_scalar(x, scale); }
    for (double odd : {(double)INFINITY, -(double)INFINITY, (double)NAN, 1e-38}) {
        tensor_t *y = tensor_clone(odd < 1 && odd > 0 ? z : x);
        tensor_fill_(tensor_narrow(tensor_narrow(y, 0, 1, 1), 1, n - 4000, 1), odd);
        all[count++] = y;
    }
    all[count++] = z;
    all[count++] = tensor_add_scalar(tensor_mul_scalar(z, 0), -INFINITY);
    for (int k = 0; k < count; k++) {
        for (int dtype : {TENSOR_F32, TENSOR_F64, TENSOR_BF16}) {
            tensor_t *a = tensor_to(all[k], dtype), *b = tensor_to(a, TENSOR_CUDA);
            const double close = dtype == TENSOR_BF16 ? 1e-2 : 1e-5;
            auto same = [&](tensor_t *there, tensor_t *here) {
                there = tensor_nan_to_num(tensor_to(tensor_to(there, TENSOR_CPU), TENSOR_F64), 7e77, INFINITY, -INFINITY);
                here = tensor_nan_to_num(tensor_to(here, TENSOR_F64), 7e77, INFINITY, -INFINITY);
                bool good = tensor_allclose(there, here, close, 0);
                if (!good) { std::printf("long rows: case %d, dtype %d\n", k, dtype); }
                CHECK(good);
            };
            const long before = cusim::counts.launches;
            same(tensor_norm_dim(b, 1, 0), tensor_norm_dim(a, 1, 0));
            CHECK(cusim::counts.launches - before == 2 && cusim::last.grid.x <= 3);
            same(tensor_logsumexp(b, 1, 0), tensor_logsumexp(a, 1, 0));
            same(tensor_var_dim(b, 1, 1, 0), tensor_var_dim(a, 1, 1, 0));
            same(tensor_norm(b), tensor_norm(a));
        }
    }
    CHECK(tensor_ok());
}
static void decoding() {
    for (int dtype : {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16}) {
        for (int64_t keys : {(int64_t)1, (int64_t)7, (int64_t)70}) {
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t query[4] = {2, 3, 1, 40}, cache[4] = {2, keys + 5, 3, 40};
            tensor_p in[3] = {(tensor_randn_n)(query, 4), (tensor_randn_n)(cache, 4), (tensor_randn_n)(cache, 4)}, far[3];
            for (int i = 0; i < 3; i++) {
                in[i] = (tensor_to)(in[i], dtype);
                far[i] = (tensor_to)(in[i], TENSOR_CUDA);
                if (!i) { continue; }           // [batch, keys, heads, e], its first keys
                in[i] = (tensor_transpose)((tensor_narrow)(in[i], 1, 0, keys), 1, 2);
                far[i] = (tensor_transpose)((tensor_narrow)(far[i], 1, 0, keys), 1, 2);
            }
            for (int causal : {0, 1}) {
                tensor_scaled_dot_product_attention_args_t a = tensor_scaled_dot_product_attention_defaults();
                a.query = in[0], a.key = in[1], a.value = in[2], a.is_causal = causal;
                tensor_p want = (tensor_scaled_dot_product_attention_with)(a);
                a.query = far[0], a.key = far[1], a.value = far[2];
                tensor_cuda_synchronize(TENSOR_CUDA);
                long launches = cusim::counts.launches;
                tensor_p y = (tensor_scaled_dot_product_attention_with)(a);
                CHECK(cusim::counts.launches == launches + 1);
                CHECK(near_to(numbers_of(off_device(y)), numbers_of(want), 4 * slack(dtype)));
            }
            for (int64_t key = 0; key < 3; key++) {     // one NaN among the keys is in the result, wherever
                tensor_scaled_dot_product_attention_args_t a = tensor_scaled_dot_product_attention_defaults();
                tensor_p keys_of = (tensor_clone)(far[1]);
                (tensor_fill_)((tensor_select)(keys_of, 2, key % keys), NAN);
                a.query = far[0], a.key = keys_of, a.value = far[2];
                const values got = numbers_of(off_device((tensor_scaled_dot_product_attention_with)(a)));
                CHECK(std::all_of(got.begin(), got.end(), [](double v) { return v != v; }));
            }
            tensor_scope_end(scope);
        }
    }
    CHECK(tensor_ok());
}
// Attention whose scores are in memory: as many queries at a time as the limit allows have the results of all at once,
// also where queries see few keys or there are more of one than of the other, and the memory of these scores alone.
static void attention_by_parts() {
    const limits_t were = limits;
    const int64_t sizes[][2] = {{150, 150}, {150, 40}, {70, 200}, {130, 520}, {64, 64}, {65, 1}};
    for (int dtype : {TENSOR_F32, TENSOR_F64}) {
        for (auto &size : sizes) {
            // Under sanitizers the largest add nothing: parts are of 64 queries, and of these sizes some have two or three.
            const int64_t scores = size[0] * size[1], most = SMALL_RUN || dtype == TENSOR_F64 ? 6000 : 25000;
            if (!ALL_ROWS && ((SMALL_RUN && dtype == TENSOR_F64) || scores > most)) { continue; }
            for (int kind = 0; kind < 6; kind++) {              // causal or not; then masks and dropout
                const int causal = kind == 1;
                if (kind > 1 && (dtype == TENSOR_F64 || size[0] != 70)) { continue; }
                tensor_scope_t scope = tensor_scope_begin();
                const int64_t query[4] = {2, size[0], 2, 12}, key[4] = {2, size[1], 2, 12};
                tensor_p in[4] = {(tensor_randn_n)(query, 4), (tensor_randn_n)(key, 4), (tensor_randn_n)(key, 4), (tensor_randn_n)(query, 4)};
                const int64_t wide[4] = {2, 2, size[0], size[1]}, padding[4] = {2, 1, 1, size[1]}, turned[2] = {size[1], size[0]};
                tensor_p mask = nullptr;        // bool for each head or for keys alone; to add, laid out otherwise
                switch (kind) {
                case 2: mask = (tensor_gt_scalar)((tensor_randn_n)(wide, 4), -0.5); break;
                case 3: mask = (tensor_gt_scalar)((tensor_randn_n)(padding, 4), -0.5); break;
                case 4: mask = (tensor_transpose)((tensor_randn_n)(turned, 2), 0, 1); break;
                default: break;
                }
                if (kind == 4) {                // and rows that look at nothing
                    mask = (tensor_masked_fill)(mask, (tensor_gt_scalar)((tensor_narrow)(mask, 1, 0, 1), 0.5), -INFINITY);
                    mask = (tensor_to)(mask, (tensor_dtype_t)dtype);
                }
                values got[3][4];               // by the CPU, at once, by parts
                int64_t peak[3] = {0, 0, 0};
                for (int way = 0; way < 3; way++) {
                    limits.attention_scores = way == 1 ? were.attention_scores : 1;
                    tensor_p o[4];
                    for (int i = 0; i < 4; i++) {   // [batch, heads, sequence, e], laid out otherwise
                        o[i] = (tensor_transpose)((tensor_to)((tensor_to)(in[i], (tensor_dtype_t)dtype), way ? TENSOR_CUDA : TENSOR_CPU), 1, 2);
                        if (i < 3) { tensor_requires_grad_(o[i], 1); }
                    }
                    tensor_scaled_dot_product_attention_args_t a = tensor_scaled_dot_product_attention_defaults();
                    a.query = o[0], a.key = o[1], a.value = o[2], a.is_causal = causal, a.dropout_p = kind > 2 ? 0.3 : 0;
                    a.attn_mask = mask && way ? (tensor_to)(mask, TENSOR_CUDA) : mask;
                    (tensor_manual_seed)(7);
                    if (way) { tensor_cuda_synchronize(TENSOR_CUDA); }
                    const int64_t before = way ? tensor_cuda_memory_allocated(TENSOR_CUDA) : 0;
                    if (way) { tensor_cuda_reset_peak_memory_stats(TENSOR_CUDA); }
                    tensor_p y = (tensor_scaled_dot_product_attention_with)(a);
                    if (way) { peak[way] = tensor_cuda_max_memory_allocated(TENSOR_CUDA) - before; }
                    tensor_backward((tensor_sum)((tensor_mul)(y, o[3])));
                    got[way][0] = numbers_of(way ? off_device(y) : y);
                    for (int i = 0; i < 3; i++) {
                        tensor_p g = (tensor_grad)(o[i]);
                        got[way][1 + i] = numbers_of(way ? off_device(g) : g);
                    }
                }
                for (int i = 0; i < 4; i++) {
                    CHECK(near_to(got[1][i], got[0][i], 10 * slack(dtype)) && near_to(got[2][i], got[0][i], 10 * slack(dtype)));
                }
                CHECK(causal || got[1][0] == got[2][0]);        // rows of fewer keys sum in another order
                const int64_t rows = size[0] > 64 ? 64 : size[0], element = dtype == TENSOR_F64 ? 8 : 4;
                const int64_t saved = 4 * (size[0] - rows) * size[1] * element;
                CHECK(peak[1] - peak[2] >= saved - 512 && peak[1] - peak[2] <= saved + 512);
                tensor_scope_end(scope);
            }
        }
    }
    limits = were;
    CHECK(tensor_ok());
}
// What a program that calls CUDA itself reaches, and brings.
struct given_t { int calls; void *data; };
static void given_back(void *data, void *user) {
    given_t *g = (given_t *)user;
    g->calls++;
    g->data = data;
    cudaFree(data);                             // work that still used it would fault
}
static void doors() {
    tensor_scope_t scope = tensor_scope_begin();
    const int64_t n = 1000;
    tensor_p x = (tensor_to)((tensor_ones_n)(&n, 1, TENSOR_F32), TENSOR_CUDA);
    tensor_cuda_stream_t *other = tensor_cuda_stream_new(TENSOR_CUDA), *here = tensor_cuda_current_stream(TENSOR_CUDA);
    cudaStream_t raw = (cudaStream_t)tensor_cuda_stream_raw(here);
    char *p = (char *)tensor_cuda_data(x);
    CHECK(p && raw && cudaMemsetAsync(p, 0, 400, raw) == 0);            // after the copy, before what follows
    tensor_cuda_set_stream(other);
    CHECK((tensor_item)((tensor_sum)(x)) == 900);
    CHECK(tensor_cuda_data(x) == p && tensor_cuda_data((tensor_narrow)(x, 0, 100, 5)) == p + 400);
    tensor_cuda_set_stream(here);
    CHECK(!tensor_cuda_data((tensor_ones_n)(&n, 1, TENSOR_F32)) && tensor_error_code() == TENSOR_ERR_DEVICE);
    tensor_clear_error();
    CHECK(!tensor_cuda_data(NULL) && tensor_error_code() == TENSOR_ERR_POISONED);
    tensor_clear_error();

    // Memory of the caller's: the deleter runs once, when two streams are done with it.
    given_t g = {0, nullptr};
    void *mine = nullptr;
    CHECK(cudaMalloc(&mine, (size_t)n * 4) == 0 && cudaMemsetAsync(mine, 0, (size_t)n * 4, raw) == 0);
    int64_t before = tensor_cuda_memory_allocated(TENSOR_CUDA);
    tensor_scope_t inner = tensor_scope_begin();
    tensor_p w = tensor_cuda_wrap(mine, TENSOR_F32, &n, 1, TENSOR_CUDA, given_back, &g);
    CHECK((tensor_device)(w) == TENSOR_CUDA && tensor_cuda_data(w) == mine);
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == before);
    (tensor_add_)(w, x);
    tensor_cuda_set_stream(other);
    tensor_p sum = (tensor_keep)((tensor_sum)((tensor_add)(w, w)));
    tensor_cuda_set_stream(here);
    CHECK(g.calls == 0 && tensor_cuda_shutdown() == TENSOR_ERR_OWNER);
    tensor_clear_error();
    tensor_scope_end(inner);
    CHECK(g.calls == 1 && g.data == mine && (tensor_item)(sum) == 1800);
    (tensor_free)(sum);
    // A profiler does not hear of it: the library neither takes it from the device nor gives it back.
    int64_t heard = 0;
    tensor_profiler_t hears;
    std::memset(&hears, 0, sizeof hears);
    hears.user = &heard;
    hears.memory = [](void *user, tensor_device_t device, int64_t bytes) {
        if (device != TENSOR_CPU) { *(int64_t *)user += bytes; }
    };
    CHECK(cudaMalloc(&mine, (size_t)n * 4) == 0 && (tensor_profiler_set)(&hears) == 0);
    w = tensor_cuda_wrap(mine, TENSOR_F32, &n, 1, TENSOR_CUDA, given_back, &g);
    CHECK(heard == 0);
    tensor_p own_one = (tensor_empty_like)(w);
    CHECK(heard == n * 4);
    (tensor_free)(own_one);
    (tensor_free)(w);
    CHECK(g.calls == 2 && heard == 0 && (tensor_profiler_set)(NULL) == 0);
    CHECK(!tensor_ok() || tensor_cuda_wrap(nullptr, TENSOR_F32, &n, 1, TENSOR_CUDA, given_back, &g) != nullptr);
    CHECK(tensor_error_code() == TENSOR_ERR_SHAPE && g.calls == 2);
    tensor_clear_error();
    tensor_cuda_wrap(p, TENSOR_F32, &n, 1, (tensor_device_t)(TENSOR_CUDA + 7), given_back, &g);
    CHECK(tensor_error_code() == TENSOR_ERR_DEVICE && g.calls == 2);
    tensor_clear_error();
    const int64_t none[2] = {INT64_MAX, 0}, minus[2] = {2, -1}, large[2] = {(int64_t)1 << 30, ((int64_t)1 << 29) + 1};
    struct { int data; const int64_t *dims; int ndim, dtype, code; const char *text; } refused[] = {
        {-1, &n, 1, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: data is NULL for "},
        {-1, none, 1, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: shape of 1 dims must have 0 to 8 dims, sizes >= 0"},
        {0, minus, 2, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: shape of 2 dims must have "},
        {0, large, 2, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: shape of 2 dims must have "},
        {0, &n, 9, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: shape of 9 dims must have "},
        {0, &n, -1, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: shape of -1 dims must have "},
        {0, nullptr, 2, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: dims is NULL, must have 2 numbers"},
        {0, &n, 1, TENSOR_DTYPE_COUNT, TENSOR_ERR_DTYPE, "cuda_wrap: dtype "},
        {2, &n, 1, TENSOR_F32, TENSOR_ERR_SHAPE, "cuda_wrap: data is misaligned for its dtype"},
    };
    for (auto &r : refused) {
        char *data = r.data < 0 ? nullptr : (char *)p + r.data;
        tensor_cuda_wrap(data, (tensor_dtype_t)r.dtype, r.dims, r.ndim, TENSOR_CUDA, given_back, &g);
        CHECK(tensor_error_code() == r.code && !std::strncmp(tensor_error_text(), r.text, std::strlen(r.text)) && g.calls == 2);
        tensor_clear_error();
    }
    for (const int64_t *dims : {none + 1, (const int64_t *)nullptr}) {      // no element; the one of no dims
        w = tensor_cuda_wrap(dims ? nullptr : p, TENSOR_F32, dims, dims != nullptr, TENSOR_CUDA, nullptr, nullptr);
        CHECK(tensor_ok() && tensor_numel(w) == !dims);
        (tensor_free)(w);
    }

    // A stream of the caller's.
    cudaStream_t own;
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == 0);
    tensor_cuda_stream_t *h = tensor_cuda_stream_wrap(own, TENSOR_CUDA), *again = tensor_cuda_stream_wrap(own, TENSOR_CUDA);
    CHECK(h && again && tensor_cuda_stream_raw(h) == own && tensor_cuda_stream_raw(again) == own);
    tensor_cuda_set_stream(h);
    CHECK((tensor_item)((tensor_sum)((tensor_mul)(x, x))) == 900);
    tensor_cuda_set_stream(here);
    CHECK(tensor_cuda_stream_free(h) == 0 && tensor_cuda_stream_free(again) == 0);
    tensor_cuda_stream_t *fresh = tensor_cuda_stream_new(TENSOR_CUDA);
    CHECK(fresh && tensor_cuda_stream_raw(fresh) != own);
    tensor_cuda_stream_t *twice = tensor_cuda_stream_wrap(tensor_cuda_stream_raw(fresh), TENSOR_CUDA);
    CHECK(twice && tensor_cuda_stream_free(twice) == 0);        // the first handle's stream is still its own
    CHECK(tensor_cuda_stream_raw(tensor_cuda_stream_new(TENSOR_CUDA)) != tensor_cuda_stream_raw(fresh));
    for (cudaStream_t kind : {(cudaStream_t)nullptr, cudaStreamLegacy, cudaStreamPerThread}) {
        CHECK(!tensor_cuda_stream_wrap(kind, TENSOR_CUDA) && tensor_error_code() == TENSOR_ERR_POISONED);
        tensor_clear_error();
    }

    // What hears of memory may allocate, and ask itself.
    struct heard_t { int lines; int64_t reserved; } heard_of = {0, 0};
    auto line = [](void *user, const char *) {
        heard_t *to = (heard_t *)user;
        const int64_t few = 100 + to->lines++;
        (tensor_free)((tensor_to)((tensor_ones_n)(&few, 1, TENSOR_F32), TENSOR_CUDA));
        to->reserved += tensor_cuda_memory_reserved(TENSOR_CUDA);
    };
    tensor_cuda_memory_snapshot(TENSOR_CUDA, line, &heard_of);
    const int blocks = heard_of.lines;
    tensor_cuda_memory_stats(TENSOR_CUDA, line, &heard_of);
    CHECK(blocks > 0 && heard_of.lines > blocks + 20 && heard_of.reserved > 0);

    // Pinned memory stays for the next copy until it is given back.
    const int64_t pinned_size = 1 << 20;
    tensor_cuda_empty_cache(TENSOR_CPU);
    const long pinned_before = cusim::counts.live_pinned;
    (tensor_free)((tensor_pin_memory)((tensor_ones_n)(&pinned_size, 1, TENSOR_F32)));
    CHECK(cusim::counts.live_pinned == pinned_before + 1);
    tensor_cuda_empty_cache(TENSOR_CUDA);
    CHECK(cusim::counts.live_pinned == pinned_before + 1);
    tensor_cuda_empty_cache(TENSOR_CPU);
    CHECK(cusim::counts.live_pinned == pinned_before);

    // Ranges: off, nothing; on, those of ops in those of the program.
    cusim::range_log();
    tensor_cuda_range_push("off");
    (tensor_add)(x, x);
    tensor_cuda_range_pop();
    CHECK(!*cusim::range_log());
    CHECK(tensor_cuda_set_ranges(1) == 0);
    tensor_cuda_range_push("layer");
    (tensor_mul)((tensor_add)(x, x), x);
    CHECK(tensor_cuda_set_ranges(0) == 1);
    tensor_cuda_range_pop();
    CHECK(!std::strcmp(cusim::range_log(), "layer(add()mul())"));
    // Modules, ranges of tensor.h and gradients, for a thread that asks for them.
    nn_module_t *net = nn_sequential(nn_relu(), nn_tanh());
    tensor_t *leaf = (tensor_requires_grad_)((tensor_ones_like)(x), 1);
    (tensor_profiler_set)(tensor_cuda_profiler());
    (nn_forward)(net, leaf);                    // ranges are off
    CHECK(!*cusim::range_log() && tensor_cuda_set_ranges(1) == 0);
    tensor_range_push("step");
    tensor_t *loss = (tensor_sum)((nn_forward)(net, leaf));
    std::string forward = cusim::range_log();
    CHECK((tensor_backward)(loss) == 0);
    std::string gradients = cusim::range_log();
    tensor_range_pop();
    CHECK(!std::strcmp(cusim::range_log(), ")"));
    // A pass inside of a gradient: that goes on behind it.
    leaf = (tensor_requires_grad_)((tensor_ones_like)(x), 1);
    loss = (tensor_tanh)(leaf);
    (tensor_register_hook)(loss, [](tensor_t *, void *user) -> tensor_t * {
        int grads = (tensor_set_grad_enabled)(1);
        tensor_t *nested = (tensor_sum)((tensor_exp)((tensor_t *)user)), *found;
        (tensor_autograd_grad)(&nested, 1, nullptr, (tensor_t **)&user, 1, &found, 0);
        (tensor_set_grad_enabled)(grads);
        return nullptr;
    }, leaf);
    loss = (tensor_sum)(loss);
    cusim::range_log();
    CHECK((tensor_backward)(loss) == 0);
    std::string nested = cusim::range_log();
    size_t outer = nested.find("tanh backward("), within = nested.find("sum backward(", outer);
    CHECK(outer != std::string::npos && within != std::string::npos);
    int depth = 1;
    for (size_t k = outer + 14; k < within && depth > 0; k++) { depth += (nested[k] == '(') - (nested[k] == ')'); }
    CHECK(depth == 1);
    CHECK(std::count(nested.begin(), nested.end(), '(') == std::count(nested.begin(), nested.end(), ')'));
    CHECK(tensor_cuda_set_ranges(0) == 1 && (tensor_profiler_set)(NULL) == 0 && (nn_free)(net) == 0);
    std::printf("ranges %s %s\n", forward.c_str(), gradients.c_str());
    CHECK(forward.find("step(") == 0 && forward.find("0(relu(") < forward.find("1(tanh("));
    CHECK(forward.find("1(tanh(") != std::string::npos);
    CHECK(gradients.find("sum backward(") != std::string::npos && gradients.find("tanh backward(tanh") != std::string::npos);
    CHECK(gradients.find("relu backward(relu") > gradients.find("tanh backward("));
    tensor_scope_end(scope);
    CHECK(tensor_ok() && tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    CHECK(cudaStreamSynchronize(own) == 0 && cudaStreamDestroy(own) == 0);      // it was not ours to destroy
}
// Memory from the program's functions, under the caching allocator.
struct source_t { int allocs, frees; uint64_t bytes; bool empty; };
static void *source_alloc(void *user, int, uint64_t bytes) {
    source_t *s = (source_t *)user;
    void *p = nullptr;
    if (s->empty || cudaMalloc(&p, bytes)) { return nullptr; }
    s->allocs++;
    s->bytes += bytes;
    return p;
}
static void source_free(void *user, int, void *p, uint64_t bytes) {
    source_t *s = (source_t *)user;
    s->frees++;
    s->bytes -= bytes;
    cudaFree(p);
}
static void sources() {
    source_t s = {0, 0, 0, false};
    tensor_cuda_allocator_t own = {&s, source_alloc, source_free}, bad = {&s, source_alloc, nullptr};
    CHECK(tensor_cuda_set_allocator(&bad) == TENSOR_ERR_POISONED);
    tensor_clear_error();
    CHECK(tensor_cuda_set_allocator(&own) == 0 && tensor_cuda_init() == 0);
    CHECK(tensor_cuda_set_allocator(nullptr) == TENSOR_ERR_OWNER);
    tensor_clear_error();
    const int64_t n = 3 << 20;
    for (int turn = 0; turn < 3; turn++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_p x = (tensor_to)((tensor_ones_n)(&n, 1, TENSOR_F32), TENSOR_CUDA);
        CHECK((tensor_item)((tensor_sum)(x)) == (double)n);
        CHECK((uint64_t)tensor_cuda_memory_reserved(TENSOR_CUDA) == s.bytes && s.bytes >= (uint64_t)n * 4);
        tensor_scope_end(scope);
    }
    CHECK(s.allocs > 0 && s.allocs <= 3);       // cut from large pieces, and used again
    s.empty = true;
    tensor_scope_t scope = tensor_scope_begin();
    const int64_t more = 64 << 20;
    tensor_p y = (tensor_ones_n)(&more, 1, TENSOR_F32);
    (tensor_to)(y, TENSOR_CUDA);
    CHECK(tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
    tensor_clear_error();
    tensor_scope_end(scope);
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0 && s.allocs == s.frees && s.bytes == 0);
    CHECK(tensor_cuda_set_allocator(nullptr) == 0);
}
// No call is made under the lock of all graphs, where a full queue would hold up the threads of other devices; and one
// device's streams, with their events, are no matter of another's.
static void graph_locks() {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_cuda_stream_t *side = tensor_cuda_stream_new(TENSOR_CUDA), *beside = tensor_cuda_stream_new(TENSOR_CUDA);
    tensor_t *x = tensor_to(tensor_ones(8), TENSOR_CUDA), *other, *y, *z, *w = tensor_pin_memory(tensor_ones(8));
    CHECK(tensor_cuda_set_stream(side) != nullptr);
    other = tensor_to(tensor_ones(8), TENSOR_CUDA);
    CHECK(tensor_cuda_set_stream(nullptr) == side);
    cusim::watched = &process.graph_lock;
    cusim::under_watch = 0;
    CHECK(!tensor_capture_begin(TENSOR_CUDA));
    y = tensor_add(x, other);
    CHECK(!tensor_cuda_stream_wait_stream(beside, nullptr) && tensor_cuda_set_stream(beside));
    z = tensor_mul(y, x);                               // of two streams: edges
    CHECK(tensor_cuda_set_stream(nullptr) && !tensor_cuda_stream_wait_stream(nullptr, beside));
    tensor_copy_(x, w);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && tensor_ok());
    for (int k = 0; k < 3; k++) {
        CHECK(tensor_cuda_set_stream(k & 1 ? side : beside) && !tensor_graph_replay(g));
        tensor_add_(other, z);                          // the next run waits for it
        CHECK(tensor_cuda_set_stream(nullptr) != nullptr);
    }
    CHECK(tensor_item(tensor_sum(y)) > 0);
    tensor_free(y);
    CHECK(!tensor_graph_replay(g) && cusim::under_watch == 0);
    tensor_free(z);
    CHECK(!tensor_graph_free(g));
    cusim::watched = nullptr;
    CHECK(!tensor_cuda_stream_free(side) && !tensor_cuda_stream_free(beside));
    tensor_scope_end(scope);
}
static void failures() {
    values v = {1, 2};
    array_t x(TENSOR_F32, {2}, &v), y(TENSOR_F32, {2});
    tensor_arg_t o[2] = {y.o, x.o};
    cusim::reset();
    cusim::config.fail_launch = 0;
    CHECK(pointwise(at, TENSOR_OP_EXP, o, 1, TENSOR_F32, nullptr) == TENSOR_ERR_CUDA);
    CHECK(softmax(at, y.o, x.o, 1, 2, false) == TENSOR_ERR_CUDA);       // the context is lost
    cusim::config.fail_launch = -1;
    cusim::reset();
    CHECK(pointwise(at, TENSOR_OP_EXP, o, 1, TENSOR_F32, nullptr) == 0);
}
#endif

#if defined(TENSOR_CUDA_SIM) && !defined(CUSIM_TSAN)
#define TEST_LIBRARIES
#include "libraries.cpp"
#endif

__attribute__((weak)) int main() {      // tests in C link this object for its tensor_cuda.cu, and have their own
#ifdef TEST_LIBRARIES
    if (&fakes) { return by_libraries::tests(); }         // linked with the fakes, it is the tests of libraries
#endif
    void *error;
    at.limits.sms = 3;
    at.limits.blocks_per_sm = 2;                // few blocks, so that loops over grids turn
    at.limits.reduce_chunk = 64;
    at.limits.norm_chunk = 4;
    at.limits.held_rows = 3;
    cudaStreamCreateWithFlags(&at.stream, cudaStreamNonBlocking);
    cudaMalloc(&error, 24);
    at.error = (unsigned long long *)error;
    unsigned long long words[3] = {0, (unsigned long long)(uintptr_t)(at.error + 2), 0};    // a word and its flag
    cudaMemcpyAsync(error, words, sizeof words, cudaMemcpyHostToDevice, at.stream);
    pointwise_all();
    tours();
    casts_and_numbers();
    reductions();
    rows_of_numbers();
    indexing();
    orders();
    scans();
    joins();
    products();
    for (int arguments : {4096, (int)MORE_ARGUMENTS}) {     // an old driver's, a new one's
        optimizers_of(arguments);
        gradients_of<float>(TENSOR_F32, arguments);
        gradients_of<double>(TENSOR_F64, arguments);
    }
    at.limits.arguments = limits_t().arguments;
#if defined(TENSOR_CUDA_SIM)
    failures();
#endif
    whole_ops();
    matrices();
#if defined(TENSOR_CUDA_SIM)
    if (ALL_ROWS) { fast_paths(); }
#endif
    cudaFree(error);
    cudaStreamDestroy(at.stream);
#if defined(TENSOR_CUDA_SIM)
    CHECK(tensor_cuda_init() == 0);
    graph_locks();
    decoding();
    attention_by_parts();
    if (ALL_ROWS) { long_rows(); }
    if (ALL_ROWS) { halves(); }
    if (ALL_ROWS) { norms_of_last(); }
    doors();
    sources();
#endif
    tensor_shutdown();
    CHECK(tensor_cuda_shutdown() == 0);
#if defined(TENSOR_CUDA_SIM)
    CHECK(cusim::counts.live_memory == 0);
#endif
    return check_report();
}

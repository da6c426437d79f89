// sectors.cpp - how kernels go through memory: sectors of 32 bytes per request of a warp, launches and blocks, for
// each kernel that lives by bandwidth and each layout, against tests/cuda/sectors.txt
//
// "sectors NAME: load A of B, store C of D" are the sectors that all requests touched, and those that would have been
// enough for the bytes they moved; then the accesses of the busiest thread, the launches, and the blocks of the last. A row that touches more sectors
// or launches more often than the file has it is a failure; one that does better too, until the file says so
// (cp $B/cuda/sectors.txt tests/cuda/).
//
// The object serves counts.c too, which fails where an op that these rows lack runs on the CPU.
#define TCU_POINTWISE_ROWS(X)                                                                                \
    X(CLONE, clone) X(EXP, exp) X(ABS, abs) X(NEG, neg) X(SQRT, sqrt) X(RSQRT, rsqrt) X(SQUARE, square)       \
    X(RELU, relu) X(GELU, gelu) X(TANH, tanh) X(SIGMOID, sigmoid) X(ADD, add) X(SUB, sub) X(MUL, mul)         \
    X(DIV, div) X(POW, pow) X(MAXIMUM, maximum) X(WHERE, where) X(LERP, lerp) X(CLAMP, clamp) X(LT, lt)       \
    X(GT, gt) X(EQ, eq)
#define TCU_BACKWARD_ROWS(X) X(RELU, relu) X(GELU, gelu) X(TANH, tanh) X(MUL, mul) X(DIV, div)
#include "../../tensor_cuda.cu"
#include "check.h"
#include <cstring>
#include <map>
#include <string>
#include <vector>

using namespace tcu;

static place_t at;
static tensor__storage_t somewhere;
static std::map<std::string, std::string> known;

// Device memory of some dims, dense in the order of `order` (outermost first), numbers that kernels can use.
struct array_t {
    tensor_arg_t o = {};
    int64_t dims[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    array_t(int dtype, std::vector<int64_t> size, std::vector<int> order = {}, int64_t most = 5) {
        o.dtype = (uint8_t)dtype;
        o.ndim = (uint8_t)size.size();
        o.dims = dims;
        o.strides = strides;
        o.storage = &somewhere;
        o.contiguous = order.empty();
        o.numel = 1;
        for (int k = o.ndim - 1; k >= 0; k--) {
            int d = order.empty() ? k : order[(size_t)k];
            dims[d] = size[(size_t)d];
            strides[d] = o.numel;
            o.numel *= dims[d];
        }
        std::vector<unsigned char> host((size_t)(o.numel * size_of(dtype)) + 1);
        for (int64_t i = 0; i < o.numel; i++) { store_as<int64_t>(host.data(), dtype, i, i * 7919 % most); }
        if (cudaMalloc(&o.data, host.size())) { std::exit(9); }
        cudaMemcpyAsync(o.data, host.data(), host.size(), cudaMemcpyHostToDevice, at.stream);
        cudaStreamSynchronize(at.stream);
    }
    array_t(const array_t &) = delete;
    ~array_t() { cudaFree(o.data); }
};

// A tensor that repeats along dims.
static tensor_arg_t repeated(const array_t &a, array_t &like) {
    tensor_arg_t o = a.o;
    static int64_t strides[8][TENSOR_MAX_DIMS];
    static int next;
    int64_t *s = strides[next++ % 8];
    for (int d = 0; d < o.ndim; d++) { s[d] = a.dims[d] == 1 ? 0 : a.strides[d]; }
    o.dims = like.dims;
    o.strides = s;
    o.contiguous = 0;
    o.numel = like.o.numel;
    return o;
}

template <class F> static void row(const std::string &name, F run) {
    cusim::reset();
    long launches = cusim::counts.launches;
    int code = run();
    cudaStreamSynchronize(at.stream);
    const cusim::traffic_t t = cusim::traffic;
    char text[256];
    std::snprintf(text, sizeof text, "load %ld of %ld, store %ld of %ld, a thread %ld at most, %ld launches, %u blocks", t.load.sectors,
                  (t.load.bytes + 31) / 32, t.store.sectors, (t.store.bytes + 31) / 32, t.longest, cusim::counts.launches - launches,
                  cusim::last.grid.x * cusim::last.grid.y);
    std::printf("sectors %s: %s\n", name.c_str(), text);
    if (code || *cusim::fault()) { std::printf("%s: code %d %s\n", name.c_str(), code, cusim::fault()); }
    CHECK(!code);
    bool same = known[name] == text;
    if (!same) { std::printf("sectors %s was: %s\n", name.c_str(), known[name].c_str()); }
    CHECK(same);
}

static const struct { const char *name; std::vector<int> order; } layouts[] = {
    {"contiguous", {}}, {"channels_last", {0, 2, 3, 1}}, {"transposed", {0, 1, 3, 2}}};

static void pointwise_rows_of(int dtype, const std::string &name) {
    const std::vector<int64_t> dims = {2, 32, 16, 16};
    for (auto &l : layouts) {
        array_t x(dtype, dims, l.order), w(dtype, dims, l.order), y(dtype, dims, l.order), dense(dtype, dims);
        array_t channel(dtype, {1, 32, 1, 1}), mask(TENSOR_BOOL, dims, l.order);
        const std::string end = " " + name + " " + l.name;
        tensor_arg_t one[2] = {y.o, x.o}, two[3] = {y.o, x.o, w.o}, by_channel[3] = {y.o, x.o, repeated(channel, x)};
        tensor_arg_t three[4] = {y.o, mask.o, x.o, w.o};
        row("exp" + end, [&] { return pointwise(at, TENSOR_OP_EXP, one, 1, dtype, nullptr); });
        row("add" + end, [&] { return pointwise(at, TENSOR_OP_ADD, two, 2, dtype, nullptr); });
        row("mul by channel" + end, [&] { return pointwise(at, TENSOR_OP_MUL, by_channel, 2, dtype, nullptr); });
        row("where" + end, [&] { return pointwise(at, TENSOR_OP_WHERE, three, 3, dtype, nullptr); });
        row("copy to contiguous" + end, [&] { return copy(at, dense.o, x.o); });
        tensor_arg_t in[5] = {x.o, w.o, {}, {}, w.o}, out[3] = {y.o, {}, {}};
        row("mul backward" + end,
            [&] { return pointwise_backward(at, TENSOR_OP_MUL, in, out, 2, dtype, nullptr); });
    }
    array_t x(dtype, {64, 1024}), y(dtype, {64, 1024}), column(dtype, {1024}), line(dtype, {64});
    array_t scratch(TENSOR_F64, {1 << 16}), f32(TENSOR_F32, {64, 1024}), weight(TENSOR_F32, {1024});
    const std::string end = " " + name;
    row("cast to f32" + end, [&] { return copy(at, f32.o, x.o); });
    row("sum of rows" + end, [&] { return reduce(at, line.o, x.o, 2, REDUCE_SUM, scratch.o.data); });
    row("sum of columns" + end, [&] { return reduce(at, column.o, x.o, 1, REDUCE_SUM, scratch.o.data); });
    row("softmax" + end, [&] { return softmax(at, y.o, x.o, 64, 1024, false); });
    row("softmax backward" + end, [&] { return softmax_backward(at, y.o, x.o, x.o, 64, 1024, false); });
    // Rows that begin anywhere, and rows that no block holds in registers.
    array_t odd(dtype, {64, 1001}), odd_y(dtype, {64, 1001}), wide(dtype, {4, 9001}), wide_y(dtype, {4, 9001});
    row("softmax of 1001" + end, [&] { return softmax(at, odd_y.o, odd.o, 64, 1001, false); });
    row("softmax backward of 1001" + end, [&] { return softmax_backward(at, odd_y.o, odd.o, odd.o, 64, 1001, false); });
    row("softmax of 9001" + end, [&] { return softmax(at, wide_y.o, wide.o, 4, 9001, false); });
    array_t label(TENSOR_I64, {64}), each(TENSOR_F32, {64}), weights(TENSOR_F32, {64}), lse(TENSOR_F32, {64});
    array_t loss(TENSOR_F32, {1}), divisor(TENSOR_F32, {1});
    const labels_t<float> q = {label.o.data, nullptr, TENSOR_I64, false, -100, 0};
    row("cross entropy of 1001" + end, [&] {
        float *const to[] = {(float *)loss.o.data, (float *)each.o.data, (float *)weights.o.data, (float *)lse.o.data,
                             (float *)divisor.o.data};
        if (dtype == TENSOR_BF16) {
            return cross_entropy(at, to[0], to[1], to[2], to[3], to[4], (const bf16 *)odd.o.data, q, 64, 1001, true);
        }
        return cross_entropy(at, to[0], to[1], to[2], to[3], to[4], (const float *)odd.o.data, q, 64, 1001, true);
    });
    row("layer_norm" + end, [&] {
        return layer_norm(at, y.o, scratch.o.data, (char *)scratch.o.data + 8192, x.o, weight.o.data, weight.o.data, 64,
                          1024, 1e-5, false);
    });
    row("cumsum" + end, [&] { return scan(at, SCAN_SUM, y.o, x.o, 64, 1024, false, nullptr); });
}

static void integers() {
    static const struct { int dtype; const char *name; } kinds[] = {{TENSOR_I64, "i64"}, {TENSOR_I32, "i32"}, {TENSOR_U8, "u8"}};
    const std::vector<int64_t> dims = {2, 32, 16, 16};
    for (auto &k : kinds) {
        for (auto &l : layouts) {
            array_t x(k.dtype, dims, l.order), w(k.dtype, dims, l.order), y(k.dtype, dims, l.order), truth(TENSOR_BOOL, dims, l.order);
            tensor_arg_t two[3] = {y.o, x.o, w.o}, less[3] = {truth.o, x.o, w.o};
            const std::string end = std::string(" ") + k.name + " " + l.name;
            row("add" + end, [&] { return pointwise(at, TENSOR_OP_ADD, two, 2, k.dtype, nullptr); });
            row("lt" + end, [&] { return pointwise(at, TENSOR_OP_LT, less, 2, k.dtype, nullptr); });
        }
    }
}

// What the kernels of one dtype do not take: dtypes together, a row for all rows of integers, planes and rows that are no
// whole packs, rows that begin anywhere.
static void mixtures() {
    static const struct { const char *name; int to, x, w; std::vector<int64_t> dims, by; } sums[] = {
        {"f32 + bf16", TENSOR_F32, TENSOR_F32, TENSOR_BF16, {64, 512}, {64, 512}},
        {"f32 + row of bf16", TENSOR_F32, TENSOR_F32, TENSOR_BF16, {64, 512}, {1, 512}},
        {"i64 + row of i64", TENSOR_I64, TENSOR_I64, TENSOR_I64, {64, 512}, {1, 512}},
        {"i32 + u8", TENSOR_I32, TENSOR_I32, TENSOR_U8, {64, 512}, {64, 512}},
        {"planes of 7x7, f32", TENSOR_F32, TENSOR_F32, TENSOR_F32, {16, 32, 49}, {1, 32, 1}},
        {"planes of 14x14, bf16", TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, {16, 32, 196}, {1, 32, 1}}};
    for (auto &k : sums) {
        array_t x(k.x, k.dims), w(k.w, k.by), y(k.to, k.dims), g(k.to, k.dims);
        tensor_arg_t by = repeated(w, x), two[3] = {y.o, x.o, by}, in[5] = {x.o, by, {}, {}, g.o}, out[3] = {y.o, {}, {}};
        const std::string name = std::string(" ") + k.name;
        row("add" + name, [&] { return pointwise(at, TENSOR_OP_ADD, two, 2, k.to, nullptr); });
        if (class_of(k.to) == 2) { continue; }
        row("mul backward" + name, [&] { return pointwise_backward(at, TENSOR_OP_MUL, in, out, 2, k.to, nullptr); });
    }
    array_t x(TENSOR_F32, {64, 512}), y(TENSOR_F32, {64, 511}), mask(TENSOR_BOOL, {64, 512}), small(TENSOR_BF16, {64, 512});
    array_t z(TENSOR_F32, {64, 512});
    tensor_arg_t later = x.o, three[4] = {z.o, mask.o, x.o, small.o};
    later.dims = y.dims;
    later.data = (float *)x.o.data + 1;
    tensor_arg_t two[3] = {y.o, later, later};
    row("add f32 rows from 1 on", [&] { return pointwise(at, TENSOR_OP_ADD, two, 2, TENSOR_F32, nullptr); });
    row("where f32 and bf16", [&] { return pointwise(at, TENSOR_OP_WHERE, three, 3, TENSOR_F32, nullptr); });
}

static void orders_and_places() {
    const int64_t n = 20000;
    array_t x(TENSOR_F32, {1, n}, {}, n), y(TENSOR_I64, {1, n}), scratch(TENSOR_U8, {(int64_t)(4 * sort_scratch(n) + add_scratch(512, 256))});
    row("sort of 20000", [&] { return pick(at, PICK_SORT, y.o, x.o, 1, n, n, false, true, 0, scratch.o.data); });
    array_t first(TENSOR_I64, {1, 16});
    row("topk 16 of 20000", [&] { return pick(at, PICK_TOP, first.o, x.o, 1, n, 16, true, true, 0, scratch.o.data); });
    row("median of 20000", [&] { return pick(at, PICK_RANK, first.o, x.o, 1, n, 1, false, true, 0, scratch.o.data); });
    array_t seven(TENSOR_F32, {1, n}, {}, 7);
    row("mode of 20000", [&] { return pick(at, PICK_MODE, first.o, x.o, 1, n, 1, false, true, 0, scratch.o.data); });
    row("mode of 20000, seven values", [&] { return pick(at, PICK_MODE, first.o, seven.o, 1, n, 1, false, true, 0, scratch.o.data); });
    array_t table(TENSOR_F32, {64, 256}), rows(TENSOR_F32, {512, 256}), index(TENSOR_I64, {512}, {}, 64), few(TENSOR_I64, {512}, {}, 2);
    array_t more(TENSOR_I64, {4096}, {}, 2), thin(TENSOR_F32, {4096, 8}), narrow(TENSOR_F32, {64, 8});
    row("embedding", [&] { return index_rows(at, rows.o, table.o, index.o, 512, 256, 64); });
    row("embedding backward", [&] { return add_rows(at, table.o, index.o, rows.o, 512, 256, 64, scratch.o.data); });
    row("embedding backward, two places", [&] { return add_rows(at, table.o, few.o, rows.o, 512, 256, 64, scratch.o.data); });
    row("embedding backward, 4096 of two places", [&] { return add_rows(at, narrow.o, more.o, thin.o, 4096, 8, 64, scratch.o.data); });
    array_t long_row(TENSOR_F32, {1, 1 << 17}), sums(TENSOR_F32, {1, 1 << 17}), totals(TENSOR_F64, {4096});
    row("cumsum of 131072", [&] { return scan(at, SCAN_SUM, sums.o, long_row.o, 1, 1 << 17, false, totals.o.data); });
}

__attribute__((weak)) int main(int argc, char **argv) {
    FILE *f = std::fopen(argc > 1 ? argv[1] : "tests/cuda/sectors.txt", "r");
    char text[512];
    while (f && std::fgets(text, sizeof text, f)) {
        char *colon = std::strstr(text, ": ");
        if (!colon) { continue; }
        text[std::strcspn(text, "\n")] = 0;
        *colon = 0;
        known[text + 8] = colon + 2;
    }
    if (f) { std::fclose(f); }
    void *error;
    cusim::config.shuffle = false;              // the order of threads is no matter here, and the counts stay
    at.limits.sms = 132;
    cudaStreamCreateWithFlags(&at.stream, cudaStreamNonBlocking);
    cudaMalloc(&error, 24);
    at.error = (unsigned long long *)error;
    unsigned long long words[3] = {0, (unsigned long long)(uintptr_t)(at.error + 2), 0};    // a word and its flag
    cudaMemcpyAsync(error, words, sizeof words, cudaMemcpyHostToDevice, at.stream);
    pointwise_rows_of(TENSOR_F32, "f32");
    pointwise_rows_of(TENSOR_BF16, "bf16");
    integers();
    mixtures();
    orders_and_places();
    cudaFree(error);
    cudaStreamDestroy(at.stream);
    return check_report();
}

// libraries.cpp - products, convolutions, attention, norms and recurrent nets by cuBLASLt and cuDNN, which are fakes (fakes.h), against the CPU's;
// libraries that are missing, of another version or fail; and the plans that the real cuDNN, where it is installed,
// makes without a GPU. kernels.cpp includes it, so that tensor_cuda.cu is compiled once for both
#include "fakes.h"
#include <chrono>
#include <dlfcn.h>

extern "C" void cusim_set(const char *what, long value);
extern fakes_t fakes __attribute__((weak));             // in the programs that link fakes.cpp

namespace by_libraries {

static tensor_t *on(tensor_t *x) { return tensor_to(x, TENSOR_CUDA); }
static tensor_t *off(tensor_t *x) { return tensor_to(x, TENSOR_CPU); }
static tensor_t *random_of(int dtype, std::vector<int64_t> dims) {
    tensor_t *x = tensor_randn_n(dims.data(), (int)dims.size());
    return tensor_to(x, (tensor_dtype_t)dtype);
}
static bool near(tensor_t *far, tensor_t *want, int dtype) {
    double eps = dtype == TENSOR_F64 ? 1e-12 : dtype == TENSOR_F32 ? 2e-5 : dtype == TENSOR_F16 ? 4e-3 : 3e-2;
    tensor_t *got = off(far);
    bool good = tensor_ok() && tensor_dtype(got) == tensor_dtype(want) && tensor_allclose(got, want, eps, eps * 4);
    if (!good && tensor_ok()) {
        std::printf("largest difference %g\n", tensor_item(tensor_max(tensor_abs(tensor_sub(tensor_to(got, TENSOR_F64),
                                                                                          tensor_to(want, TENSOR_F64))))));
    }
    if (!tensor_ok()) { std::printf("%s\n", tensor_error_text()); }
    return good;
}
static const int floats[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_F64};

// Each op once by the library and once by the kernels here; `by` = calls of the library it has to take.
template <class F> static void both_ways(F f, tensor_t *want, int dtype, long by = 1) {
    int64_t before = tensor_cuda_library_calls();
    CHECK(near(f(), want, dtype));
    if (tensor_cuda_library_calls() != before + by) {
        std::printf("%lld calls of a library, %ld are expected: %s\n", (long long)(tensor_cuda_library_calls() - before), by,
                    tensor_cuda_library_error());
    }
    CHECK(tensor_cuda_library_calls() == before + by);
    CHECK(tensor_cuda_set_libraries(0) == 1);
    CHECK(near(f(), want, dtype));
    CHECK(tensor_cuda_set_libraries(1) == 0 && tensor_cuda_library_calls() == before + by);
}
static void products() {
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {1, 8, 4}, {8, 1, 3}, {6, 5, 1}, {64, 16, 32}, {33, 65, 17}};
    tensor_t *full;
    for (int dtype : floats) {
        tensor_scope_t scope = tensor_scope_begin();
        for (auto &s : sizes) {
            int64_t m = s[0], n = s[1], k = s[2];
            tensor_t *a = random_of(dtype, {m, k}), *b = random_of(dtype, {k, n}), *fa = on(a), *fb = on(b);
            tensor_t *at = random_of(dtype, {k, m}), *bt = random_of(dtype, {n, k}), *fat = on(at), *fbt = on(bt);
            tensor_t *bias = random_of(dtype, {n}), *far = on(bias);
            both_ways([&] { return tensor_matmul(fa, fb); }, tensor_matmul(a, b), dtype);
            both_ways([&] { return tensor_matmul(tensor_mT(fat), fb); }, tensor_matmul(tensor_mT(at), b), dtype);
            both_ways([&] { return tensor_matmul(fa, tensor_mT(fbt)); }, tensor_matmul(a, tensor_mT(bt)), dtype);
            both_ways([&] { return tensor_matmul(tensor_mT(fat), tensor_mT(fbt)); }, tensor_matmul(tensor_mT(at), tensor_mT(bt)), dtype);
            both_ways([&] { return tensor_linear(fa, fbt, far); }, tensor_linear(a, bt, bias), dtype);
            // A bias that is aligned to one element, like a part of an attention layer's.
            tensor_t *parts = random_of(dtype, {n + 1}), *fparts = on(parts);
            both_ways([&] { return tensor_linear(fa, fbt, tensor_narrow(fparts, 0, 1, n)); },
                      tensor_linear(a, bt, tensor_narrow(parts, 0, 1, n)), dtype);
            both_ways([&] { return tensor_linear(fa, fbt, NULL); }, tensor_linear(a, bt, NULL), dtype);
            both_ways([&] { return tensor_linear(fa, tensor_mT(fb), far); }, tensor_linear(a, tensor_mT(b), bias), dtype);
        }
        // Batches: of both, of one, repeated, and more than one stride can name (a call for each of the first dim).
        tensor_t *a = random_of(dtype, {4, 5, 6}), *b = random_of(dtype, {4, 6, 3}), *fa = on(a), *fb = on(b);
        both_ways([&] { return tensor_matmul(fa, fb); }, tensor_matmul(a, b), dtype);
        tensor_t *c = random_of(dtype, {1, 6, 3}), *fc = on(c);
        both_ways([&] { return tensor_matmul(fa, fc); }, tensor_matmul(a, c), dtype);
        tensor_t *e = random_of(dtype, {2, 1, 5, 6}), *fe = on(e);
        both_ways([&] { return tensor_matmul(fe, fb); }, tensor_matmul(e, b), dtype, 2);
        // Views that begin anywhere, rows with a gap behind them; steps within rows that cuBLASLt cannot name.
        full = random_of(dtype, {9, 20});
        tensor_t *ffull = on(full);
        auto part = [](tensor_t *x) { return tensor_narrow(tensor_narrow(x, 0, 1, 8), 1, 3, 7); };
        auto step = [](tensor_t *x) { return tensor_at(x, "1:, ::3"); };
        tensor_t *w = random_of(dtype, {7, 4}), *fw = on(w);
        both_ways([&] { return tensor_matmul(part(ffull), fw); }, tensor_matmul(part(full), w), dtype);
        both_ways([&] { return tensor_matmul(tensor_mT(part(ffull)), part(ffull)); }, tensor_matmul(tensor_mT(part(full)), part(full)), dtype);
        both_ways([&] { return tensor_matmul(step(ffull), fw); }, tensor_matmul(step(full), w), dtype, 0);
        tensor_scope_end(scope);
    }
    // Nothing to sum, and no batch.
    both_ways([] { return tensor_matmul(on(tensor_zeros(3, 0)), on(tensor_zeros(0, 2))); }, tensor_zeros(3, 2), TENSOR_F32, 0);
    both_ways([] { return tensor_matmul(on(tensor_zeros(0, 3, 2)), on(tensor_zeros(0, 2, 4))); }, tensor_zeros(0, 3, 4), TENSOR_F32, 0);
    tensor_t *i = tensor_to(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3), TENSOR_I64);
    both_ways([&] { return tensor_matmul(on(i), on(tensor_mT(i))); }, tensor_matmul(i, tensor_mT(i)), TENSOR_F64, 0);
}

// Linear with its activation: one call of the library, without it or for what it has no epilogue for (f64; gelu's x
// beside, in rows that are no multiple of 8) the product and the activation. Gradients are the CPU's.
static void activations() {
    static const int64_t sizes[][3] = {{5, 3, 7}, {1, 8, 4}, {64, 16, 32}, {33, 65, 17}, {6, 24, 1}};
    for (int dtype : floats) {
        for (int kind = 0; kind < 4; kind++) {
            for (auto &s : sizes) {
                tensor_scope_t scope = tensor_scope_begin();
                bool gelu = kind & 1, f64 = dtype == TENSOR_F64;
                tensor_t *x = random_of(dtype, {s[0], s[2]}), *w = random_of(dtype, {s[1], s[2]}), *fx = on(x), *fw = on(w);
                tensor_t *b = kind & 2 ? random_of(dtype, {s[1]}) : NULL, *fb = b ? on(b) : NULL, *want, *got;
                tensor_t *gy = tensor_to(tensor_mul_scalar(tensor_randn(s[0], s[1]), 0.1), (tensor_dtype_t)dtype), *fg = on(gy);
                auto layer = [&](tensor_t *at, tensor_t *of, tensor_t *with) {
                    return gelu ? tensor_linear_gelu_tanh(at, of, with) : tensor_linear_relu(at, of, with);
                };
                long before = fakes.activated;
                both_ways([&] { return layer(fx, fw, fb); }, layer(x, w, b), dtype);
                CHECK(fakes.activated - before == !f64);
                tensor_requires_grad_(w, 1), tensor_requires_grad_(fw, 1);
                before = fakes.activated;
                both_ways([&] { return layer(fx, fw, fb); }, layer(x, w, b), dtype);
                CHECK(fakes.activated - before == (!f64 && (!gelu || s[1] % 8 == 0)));
                for (int use = 0; use < 2; use++) {
                    tensor_cuda_set_libraries(use);
                    tensor_t *y = layer(x, w, b), *fy = layer(fx, fw, fb);
                    CHECK(tensor_autograd_grad(&y, 1, &gy, &w, 1, &want, 0) == 0);
                    CHECK(tensor_autograd_grad(&fy, 1, &fg, &fw, 1, &got, 0) == 0 && near(got, want, dtype));
                }
                tensor_scope_end(scope);
            }
        }
    }
    both_ways([] { return tensor_linear_relu(on(tensor_ones(3, 0)), on(tensor_ones(2, 0)), on(tensor_neg(tensor_ones(2)))); },
              tensor_zeros(3, 2), TENSOR_F32, 0);
}

// The gradients of a linear layer's weight and bias are one call of the library, without a launch; where it has no
// algorithm for that, the product and the sums apart. A graph of the gradient has no kernel of that kind in it.
static void bias_gradients() {
    static const int64_t sizes[][3] = {{5, 3, 7}, {1, 8, 4}, {64, 16, 32}, {33, 65, 17}, {6, 1, 24}, {0, 3, 4}, {4, 3, 0}};
    for (int dtype : floats) {
        for (int kind = 0; kind < 3; kind++) {          // linear; of items [2, rows]; with relu
            for (auto &s : sizes) {
                tensor_scope_t scope = tensor_scope_begin();
                const bool empty = !s[0] || !s[2], f64 = dtype == TENSOR_F64;
                std::vector<int64_t> in = {s[0], s[2]}, out = {s[0], s[1]};
                if (kind == 1) { in.insert(in.begin(), 2), out.insert(out.begin(), 2); }
                tensor_t *x = random_of(dtype, in), *fx = on(x), *w[2], *far[2], *want[2], *got[2];
                w[0] = random_of(dtype, {s[1], s[2]}), w[1] = random_of(dtype, {s[1]});
                tensor_t *gy = tensor_to(tensor_mul_scalar(tensor_randn_n(out.data(), (int)out.size()), 0.1), (tensor_dtype_t)dtype);
                tensor_t *fg = on(gy);
                for (int k = 0; k < 2; k++) { far[k] = tensor_requires_grad_(on(w[k]), 1), tensor_requires_grad_(w[k], 1); }
                auto layer = [&](tensor_t *at, tensor_t *const *p) {
                    return kind == 2 ? tensor_linear_relu(at, p[0], p[1]) : tensor_linear(at, p[0], p[1]);
                };
                tensor_t *y = layer(x, w);
                CHECK(tensor_autograd_grad(&y, 1, &gy, w, 2, want, 0) == 0);
                for (int way = 0; way < 4; way++) {     // without libraries, with, refused, for a graph
                    tensor_cuda_set_libraries(way > 0);
                    fakes.refuse_row_sums = way == 2;
                    if (way) { libraries.of[0].products.clear(nullptr); }
                    tensor_t *fy = layer(fx, far);
                    const long summed = fakes.summed, launches = cusim::counts.launches, products = fakes.products;
                    CHECK(tensor_autograd_grad(&fy, 1, &fg, far, 2, got, way == 3 ? TENSOR_CREATE_GRAPH : 0) == 0);
                    CHECK(near(got[0], want[0], dtype) && near(got[1], want[1], dtype));
                    CHECK(fakes.summed - summed == (way == 1 && !empty && !f64));
                    CHECK(!way || fakes.products - products == !empty);
                    const long more = cusim::counts.launches - launches;
                    if (kind < 2 && !empty && !f64) { CHECK(way == 1 ? more == 0 : more > 0); }
                }
                tensor_cuda_set_libraries(1);
                fakes.refuse_row_sums = false;
                libraries.of[0].products.clear(nullptr);
                tensor_scope_end(scope);
            }
        }
    }
}

// A linear with its activation, then a linear: where nothing else sees what is between, the product that is the gradient
// of the second one's input ends with the activation's slope, so backward needs no launch; one, where the library has no
// such product. Who looks at what is between, uses it twice or wants a graph of the gradients gets what was there before.
// What is between is made in a scope of its own, as by a module: a tensor that the program has is one who looks.
enum slopes_way_t { FUSED, REFUSED, AGAIN, ANOMALY, GRAPH, LOOKED_AT, TWICE, HOOKED, ASKED, WAYS };
struct two_layers_t { tensor_t *p[5], *h, *y; };      // weights and biases of both, x; what is between, or NULL; the result
static int hooked;
static tensor_t *hook(tensor_t *g, void *) { return hooked++, g; }
static void run_pair(two_layers_t &q, bool gelu, slopes_way_t way) {
    tensor_scope_t scope = tensor_scope_begin();
    q.h = gelu ? tensor_linear_gelu_tanh(q.p[4], q.p[0], q.p[1]) : tensor_linear_relu(q.p[4], q.p[0], q.p[1]);
    q.y = tensor_linear(q.h, q.p[2], q.p[3]);
    if (way == TWICE) { q.y = tensor_add(q.y, tensor_linear(q.h, q.p[2], q.p[3])); }
    if (way == HOOKED) { tensor_register_hook(q.h, hook, nullptr); }
    if (way == LOOKED_AT || way == ASKED) { tensor_keep(q.h); }
    q.y = tensor_scope_return(scope, q.y);
    if (way != LOOKED_AT && way != ASKED) { q.h = nullptr; }
}
static void slopes() {
    static const int64_t sizes[][4] = {{6, 24, 32, 16}, {5, 7, 9, 3}, {64, 16, 200, 8}, {3, 8, 8, 1}, {0, 4, 8, 2}};
    for (int dtype : floats) {
        const int loose = dtype == TENSOR_F16 ? (int)TENSOR_BF16 : dtype;       // halves round what is between at other places
        for (int kind = 0; kind < 4 * (int)(sizeof sizes / sizeof *sizes); kind++) {
            const int64_t *s = sizes[kind / 4];
            const bool gelu = kind & 1, items = kind & 2, f64 = dtype == TENSOR_F64, empty = !s[0];
            // cuBLASLt has gelu's x beside rows of a multiple of 8, and no slope for products of one term.
            const bool joins = !f64 && !empty && (!gelu || s[2] % 8 == 0), slope = joins && s[3] > 1;
            std::vector<int64_t> in = {s[0], s[1]}, out = {s[0], s[3]};
            if (items) { in.insert(in.begin(), 2), out.insert(out.begin(), 2); }
            for (int k = 0; k < WAYS; k++) {
                const slopes_way_t way = (slopes_way_t)k;
                tensor_scope_t scope = tensor_scope_begin();
                two_layers_t close, far;
                const std::vector<int64_t> dims[5] = {{s[2], s[1]}, {s[2]}, {s[3], s[2]}, {s[3]}, in};
                for (int i = 0; i < 5; i++) {
                    tensor_t *p = tensor_to(tensor_mul_scalar(random_of(TENSOR_F32, dims[i]), 0.3), (tensor_dtype_t)dtype);
                    close.p[i] = tensor_requires_grad_(p, 1), far.p[i] = tensor_requires_grad_(on(tensor_detach(p)), 1);
                }
                tensor_t *gy = tensor_mul_scalar(tensor_randn_n(out.data(), (int)out.size()), 0.1), *fg;
                gy = tensor_to(gy, (tensor_dtype_t)dtype), fg = on(gy);
                fakes.refuse_slopes = way == REFUSED;
                libraries.of[0].products.clear(nullptr);
                hooked = 0;
                const long activated = fakes.activated;
                run_pair(close, gelu, way), run_pair(far, gelu, way);
                CHECK(near(far.y, close.y, loose) && fakes.activated - activated == (joins && way != REFUSED));
                tensor_t *want[6] = {}, *got[6] = {};
                const int n = way == ASKED ? 6 : 5, twice = way == AGAIN;
                if (way == ANOMALY) { tensor_set_detect_anomaly(1); }
                for (int turn = 0; turn <= twice; turn++) {
                    int flags = way == GRAPH ? TENSOR_CREATE_GRAPH : turn < twice ? TENSOR_RETAIN_GRAPH : 0;
                    tensor_t *of[6] = {close.p[0], close.p[1], close.p[2], close.p[3], close.p[4], close.h};
                    CHECK(tensor_autograd_grad(&close.y, 1, &gy, of, n, want, flags) == 0);
                    for (int i = 0; i < 5; i++) { of[i] = far.p[i]; }
                    of[5] = far.h;
                    const long sloped = fakes.sloped, products = fakes.products, launches = cusim::counts.launches;
                    CHECK(tensor_autograd_grad(&far.y, 1, &fg, of, n, got, flags) == 0);
                    const long more = cusim::counts.launches - launches;
                    CHECK(fakes.sloped - sloped == (slope && (way == FUSED || way == AGAIN)));
                    if (joins && way <= AGAIN) { CHECK(more == !(slope && way != REFUSED) && fakes.products - products == 4); }
                    for (int i = 0; i < n; i++) { CHECK(near(got[i], want[i], loose)); }
                }
                if (way == ANOMALY) { tensor_set_detect_anomaly(0); }
                if (way == GRAPH && !empty && (f64 || dtype == TENSOR_F32)) {       // gradients of gradients
                    tensor_t *sum = tensor_sum(tensor_mul(want[0], want[0])), *far_sum = tensor_sum(tensor_mul(got[0], got[0]));
                    CHECK(tensor_autograd_grad(&sum, 1, NULL, &close.p[2], 1, want, 0) == 0);
                    CHECK(tensor_autograd_grad(&far_sum, 1, NULL, &far.p[2], 1, got, 0) == 0 && near(got[0], want[0], loose));
                }
                CHECK(hooked == 2 * (way == HOOKED));
                if (close.h) { tensor_free(close.h), tensor_free(far.h); }
                tensor_scope_end(scope);
            }
        }
    }
    fakes.refuse_slopes = false;
    libraries.of[0].products.clear(nullptr);
}

// nn_sequential joins them on a device as well: gelu in halves only, and relu by a kernel, because cuBLASLt makes 0 of
// NaN. The gradients of three linears are 6 products, of which 2 have a slope, and no launch.
static void sequences() {
    for (int dtype : floats) {
        for (int gelu = 0; gelu < 2; gelu++) {
            tensor_scope_t scope = tensor_scope_begin();
            const bool f64 = dtype == TENSOR_F64, joins = !gelu || dtype == TENSOR_F16 || dtype == TENSOR_BF16;
            auto act = [&] { return gelu ? nn_gelu_tanh() : nn_relu(); };
            nn_module_t *net = nn_sequential(nn_linear(24, 40), act(), nn_linear(40, 16), act(), nn_linear(16, 8));
            tensor_t *x = random_of(dtype, {6, 24}), *fx = on(x), *p[6], *want[6], *far[6], *y, *fy;
            CHECK(nn_to(net, dtype) == 0);
            nn_module_t *far_net = nn_clone(net);
            CHECK(nn_to(far_net, TENSOR_CUDA) == 0 && nn_parameters(net, p, 6) == 6 && nn_parameters(far_net, far, 6) == 6);
            y = tensor_sum(nn_forward(net, x));
            const long activated = fakes.activated;
            long launches = cusim::counts.launches;
            fy = nn_forward(far_net, fx);
            const long forward = cusim::counts.launches - launches;
            CHECK(fakes.activated - activated == (joins && gelu ? 2 : 0) && forward == (joins && gelu ? 0 : 2));
            tensor_t *g = tensor_ones_like(fy);
            CHECK(tensor_backward(y) == 0);
            const long sloped = fakes.sloped, products = fakes.products;
            launches = cusim::counts.launches;
            CHECK(tensor_backward_with(fy, g, 0) == 0);
            CHECK(fakes.sloped - sloped == (joins && !f64 ? 2 : 0) && fakes.products - products == 5);
            if (joins && !f64) { CHECK(cusim::counts.launches == launches); }
            for (int k = 0; k < 6; k++) {
                want[k] = tensor_grad(p[k]);
                CHECK(near(tensor_grad(far[k]), want[k], dtype));
            }
            tensor_fill_(tensor_select(x, 0, 1), NAN);
            for (int train = 0; train < 2; train++) {
                tensor_scope_t inner = train ? tensor_scope_begin() : tensor_scope_begin_no_grad();
                tensor_t *bad = off(tensor_isnan(nn_forward(far_net, on(x))));
                CHECK(tensor_equal(bad, tensor_isnan(nn_forward(net, x))) && tensor_item(tensor_sum(bad)) == 8);
                tensor_scope_end(inner);
            }
            nn_free(net), nn_free(far_net);
            tensor_scope_end(scope);
        }
    }
}

struct conv_case_t { int rank; int64_t images, cin, cout, size, kernel, stride, pad, dilation, groups, more; };
static const conv_case_t cases[] = {
    {2, 2, 3, 4, 7, 3, 1, 1, 1, 1, 0}, {2, 1, 4, 6, 8, 3, 2, 1, 1, 2, 1}, {2, 3, 2, 2, 6, 3, 2, 0, 1, 1, 0}, {2, 2, 4, 4, 9, 3, 1, 2, 2, 4, 0},
    {2, 2, 5, 3, 5, 1, 1, 0, 1, 1, 0}, {1, 2, 3, 4, 11, 4, 3, 2, 1, 1, 2}, {1, 1, 2, 6, 5, 3, 1, 1, 1, 2, 0}, {3, 1, 2, 3, 5, 3, 2, 1, 1, 1, 1},
};
static tensor_t *convolve(const conv_case_t &c, bool transposed, tensor_t *x, tensor_t *w, tensor_t *b) {
    if (transposed) {
        tensor_conv_transpose_args_t a;
        a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
        a.x = x, a.weight = w, a.bias = b, a.stride = c.stride, a.padding = c.pad, a.dilation = c.dilation, a.groups = c.groups;
        a.output_padding = c.more;
        return c.rank == 1 ? tensor_conv_transpose1d_with(a) : c.rank == 2 ? tensor_conv_transpose2d_with(a) : tensor_conv_transpose3d_with(a);
    }
    tensor_conv_args_t a;
    a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
    a.x = x, a.weight = w, a.bias = b, a.stride = c.stride, a.padding = c.pad, a.dilation = c.dilation, a.groups = c.groups;
    return c.rank == 1 ? tensor_conv1d_with(a) : c.rank == 2 ? tensor_conv2d_with(a) : tensor_conv3d_with(a);
}
static std::vector<int64_t> spaced(int64_t first, int64_t second, int rank, int64_t size) {
    std::vector<int64_t> d = {first, second};
    for (int k = 0; k < rank; k++) { d.push_back(size + (size > 4 ? k : 0)); }      // no two alike
    return d;
}
static void convolutions() {
    tensor_cuda_set_conv_tf32(0);
    for (int dtype : floats) {
        for (auto &c : cases) {
            for (int kind = 0; kind < 4; kind++) {
                tensor_scope_t scope = tensor_scope_begin();
                bool transposed = kind & 1, biased = kind & 2;
                tensor_t *x = random_of(dtype, spaced(c.images, c.cin, c.rank, c.size));
                tensor_t *w = random_of(dtype, transposed ? spaced(c.cin, c.cout / c.groups, c.rank, c.kernel)
                                                          : spaced(c.cout, c.cin / c.groups, c.rank, c.kernel));
                tensor_t *b = biased ? random_of(dtype, {c.cout}) : NULL, *fx = on(x), *fw = on(w), *fb = b ? on(b) : NULL;
                tensor_t *y = convolve(c, transposed, x, w, b), *gy = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype);
                long fused = fakes.fused;
                both_ways([&] { return convolve(c, transposed, fx, fw, fb); }, y, dtype);
                CHECK(fakes.fused - fused == (biased && (dtype == TENSOR_F16 || dtype == TENSOR_BF16)));
                if (transposed || biased) {
                    tensor_scope_end(scope);
                    continue;
                }
                // The gradients of input and weight are a convolution each.
                tensor_requires_grad_(x, 1), tensor_requires_grad_(w, 1), tensor_requires_grad_(fx, 1), tensor_requires_grad_(fw, 1);
                tensor_t *in[2] = {x, w}, *far[2] = {fx, fw}, *want[2], *got[2];
                y = convolve(c, false, x, w, NULL);
                CHECK(tensor_autograd_grad(&y, 1, &gy, in, 2, want, 0) == 0);
                for (int use = 0; use < 2; use++) {
                    tensor_cuda_set_libraries(use);
                    tensor_t *fy = convolve(c, false, fx, fw, NULL), *fg = on(gy);
                    int64_t before = tensor_cuda_library_calls();
                    CHECK(tensor_autograd_grad(&fy, 1, &fg, far, 2, got, 0) == 0);
                    CHECK(tensor_cuda_library_calls() == before + 2 * use);
                    CHECK(near(got[0], want[0], dtype) && near(got[1], want[1], dtype));
                }
                tensor_scope_end(scope);
            }
        }
    }
    // The same sizes by another stride, dilation or padding: another plan.
    static const conv_case_t alike[] = {{2, 1, 1, 1, 4, 1, 2, 0, 1, 1, 0}, {2, 1, 1, 1, 4, 1, 3, 0, 1, 1, 0}, {2, 1, 1, 1, 6, 2, 3, 0, 1, 1, 0},
        {2, 1, 1, 1, 6, 2, 3, 0, 2, 1, 0}, {2, 1, 1, 1, 2, 1, 4, 0, 1, 1, 0}, {2, 1, 1, 1, 2, 1, 4, 1, 1, 1, 0}};
    for (auto &c : alike) {
        tensor_t *x = random_of(TENSOR_F32, {1, 1, c.size, c.size}), *w = random_of(TENSOR_F32, {1, 1, c.kernel, c.kernel}), *fx = on(x), *fw = on(w);
        both_ways([&] { return convolve(c, false, fx, fw, NULL); }, convolve(c, false, x, w, NULL), TENSOR_F32);
    }
    // cuDNN does the sum with a bias in any dtype: the same.
    fakes.refuse_sums = false;
    for (int dtype : {TENSOR_F32, TENSOR_F64}) {
        tensor_t *x = random_of(dtype, {2, 3, 6, 5}), *w = random_of(dtype, {4, 3, 2, 2}), *b = random_of(dtype, {4});
        const conv_case_t c = {2, 2, 3, 4, 0, 0, 1, 0, 1, 1, 0};
        tensor_t *fx = on(x), *fw = on(w), *fb = on(b);
        both_ways([&] { return convolve(c, false, fx, fw, fb); }, convolve(c, false, x, w, b), dtype);
    }
    fakes.refuse_sums = true;
    tensor_cuda_set_conv_tf32(1);
}
// Without cuDNN images whose channels are innermost are not copied; the weight is once where it is row-major, for the
// step and not for each of its kernels. The bits are those of row-major images. Beside the cases: several pieces of a
// weight's rows, a window larger than a piece, a group whose channels are in two blocks.
static void innermost_convolutions() {
    std::vector<conv_case_t> all(std::begin(cases), std::end(cases));
    all.push_back({2, 1, 30, 20, 5, 3, 1, 1, 1, 1, 0});
    all.push_back({2, 1, 2, 17, 13, 12, 1, 0, 1, 1, 0});
    all.push_back({2, 2, 4, 70, 4, 2, 1, 0, 2, 2, 0});
    tensor_cuda_set_libraries(0);
    for (int dtype : floats) {
        for (auto &c : all) {
            for (int kind = 0; kind < 4 && c.rank > 1; kind++) {
                tensor_scope_t scope = tensor_scope_begin();
                const bool transposed = kind & 1, last = kind & 2;
                tensor_t *x = random_of(dtype, spaced(c.images, c.cin, c.rank, c.size)), *b = random_of(dtype, {c.cout});
                tensor_t *w = random_of(dtype, transposed ? spaced(c.cin, c.cout / c.groups, c.rank, c.kernel)
                                                          : spaced(c.cout, c.cin / c.groups, c.rank, c.kernel));
                tensor_t *fx = tensor_channels_last(on(x)), *fw = last ? tensor_channels_last(on(w)) : on(w), *fb = on(b);
                tensor_requires_grad_(x, 1), tensor_requires_grad_(w, 1), tensor_requires_grad_(fx, 1), tensor_requires_grad_(fw, 1);
                long launches = cusim::counts.launches;
                tensor_t *y = convolve(c, transposed, x, w, b), *fy = convolve(c, transposed, fx, fw, fb);
                CHECK(cusim::counts.launches - launches <= 1 + !last && tensor_is_channels_last(fy));
                CHECK(near(fy, y, dtype));
                CHECK(tensor_equal(fy, convolve(c, transposed, on(x), on(w), on(b))));
                tensor_t *gy = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *fg = tensor_channels_last(on(gy));
                tensor_t *in[2] = {x, w}, *far[2] = {fx, fw}, *want[2], *got[2];
                CHECK(tensor_autograd_grad(&y, 1, &gy, in, 2, want, 0) == 0);
                launches = cusim::counts.launches;
                CHECK(tensor_autograd_grad(&fy, 1, &fg, far, 2, got, 0) == 0);
                CHECK(cusim::counts.launches - launches <= 2);
                CHECK(near(got[0], want[0], dtype) && near(got[1], want[1], dtype));
                tensor_scope_end(scope);
            }
        }
    }
    tensor_cuda_set_libraries(1);
}
static tensor_t *attention_of(tensor_t *q, tensor_t *k, tensor_t *v, tensor_t *mask, bool causal) {
    tensor_scaled_dot_product_attention_args_t a;
    a.options_are_named_ = TENSOR__NO_SURPLUS;                // a call: 0 is the default
    a.query = q, a.key = k, a.value = v, a.attn_mask = mask, a.is_causal = causal;
    return tensor_scaled_dot_product_attention_with(a);
}
// Queries, keys and values of one tensor [B, T, 3, H, E], as GPT-2 has them, and of three; back too.
static void attentions() {
    static const struct { int64_t b, h, t, s, e, v; bool causal, packed; int64_t part; } shapes[] = {
        {2, 3, 5, 5, 8, 8, true, true, 0}, {2, 3, 5, 5, 8, 8, false, true, 0}, {1, 2, 70, 65, 16, 8, true, false, 0},
        {3, 1, 4, 9, 8, 24, false, false, 0}, {5, 2, 3, 3, 8, 8, true, true, 2}, {5, 2, 3, 3, 8, 8, true, false, 1},
        {2, 2, 3, 3, 12, 8, true, false, -1}};
    for (int dtype : {TENSOR_F16, TENSOR_BF16}) {
        for (auto &c : shapes) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *in[3], *far[3], *want[3], *got[3], *leaf[3], *spread[3];
            auto attend = [&](tensor_t *const *x) { return attention_of(x[0], x[1], x[2], NULL, c.causal); };
            for (int k = 0; k < 3; k++) {
                int64_t rows = k ? c.s : c.t, width = k == 2 ? c.v : c.e;
                leaf[k] = random_of(dtype, c.packed ? std::vector<int64_t>{c.b, rows, c.h, width} : std::vector<int64_t>{c.b, c.h, rows, width});
                far[k] = tensor_requires_grad_(on(leaf[k]), 1), tensor_requires_grad_(leaf[k], 1);
                in[k] = c.packed ? tensor_transpose(leaf[k], 1, 2) : leaf[k];
                spread[k] = c.packed ? tensor_transpose(far[k], 1, 2) : far[k];
            }
            long before = fakes.attentions;
            tcu::limits.attention_workspace = c.part > 0 ? c.part * c.h * 64 * 64 * 2 : 256 << 20;
            tensor_t *y = attend(in), *gy = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *gfar = on(gy);
            if (c.packed) { gfar = tensor_transpose(tensor_contiguous(tensor_transpose(gfar, 1, 2)), 1, 2); }
            CHECK(tensor_autograd_grad(&y, 1, &gy, leaf, 3, want, 0) == 0);
            both_ways([&] { return attend(spread); }, y, dtype, c.part < 0 ? 2 : 1);     // by cuBLASLt

            for (int use = 0; use < 2; use++) {
                tensor_cuda_set_libraries(use);
                tensor_t *fy = attend(spread);
                int64_t calls = tensor_cuda_library_calls();
                CHECK(tensor_autograd_grad(&fy, 1, &gfar, far, 3, got, 0) == 0);
                CHECK(tensor_cuda_library_calls() == calls + (c.part < 0 ? 5 : 1) * use);
                for (int k = 0; k < 3; k++) { CHECK(near(got[k], want[k], dtype)); }
            }
            CHECK(fakes.attentions - before == (c.part < 0 ? 0 : 2 + (c.part ? (c.b + c.part - 1) / c.part : 1)));
            tensor_scope_end(scope);
        }
        // What has no batch, a mask, nothing in it; a gradient of the gradient.
        tensor_t *x = random_of(dtype, {6, 8}), *fx = on(x), *mask = tensor_randn(6, 6), *fmask = on(mask);
        both_ways([&] { return attention_of(fx, fx, fx, NULL, false); }, attention_of(x, x, x, NULL, false), dtype);
        mask = tensor_to(mask, (tensor_dtype_t)dtype), fmask = on(mask);
        both_ways([&] { return attention_of(fx, fx, fx, fmask, false); }, attention_of(x, x, x, mask, false), dtype, 2);
        x = tensor_zeros_of((tensor_dtype_t)dtype, 0, 3, 8), fx = on(x);
        both_ways([&] { return attention_of(fx, fx, fx, NULL, false); }, x, dtype, 0);
        auto second = [&](tensor_t *p) {
            tensor_t *y = tensor_sum(attention_of(p, p, p, NULL, true)), *g;
            CHECK(tensor_autograd_grad(&y, 1, NULL, &p, 1, &g, TENSOR_CREATE_GRAPH) == 0);
            y = tensor_sum(tensor_mul(g, g));
            CHECK(tensor_autograd_grad(&y, 1, NULL, &p, 1, &g, 0) == 0);
            return g;
        };
        x = tensor_requires_grad_(random_of(dtype, {2, 3, 8}), 1), fx = tensor_requires_grad_(on(tensor_detach(x)), 1);
        CHECK(near(second(fx), second(x), TENSOR_BF16));
    }
}
// Masks of every form that repeats, bool and float, with rows that look at nothing.
static void masked_attentions() {
    static const struct { std::vector<int64_t> dims; bool look; int64_t part; } masks[] = {
        {{5, 7}, true, 0}, {{2, 1, 5, 7}, false, 0}, {{1, 3, 1, 7}, false, 1}, {{2, 3, 5, 7}, true, 1}, {{3, 5, 7}, false, 0}, {{1, 1, 5, 1}, true, 0}};
    for (int dtype : {TENSOR_F16, TENSOR_BF16}) {
        for (auto &c : masks) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *in[3], *far[3], *want[3], *got[3];
            for (int k = 0; k < 3; k++) {
                in[k] = random_of(dtype, {2, 3, k ? 7 : 5, 8});
                far[k] = tensor_requires_grad_(on(in[k]), 1), tensor_requires_grad_(in[k], 1);
            }
            tensor_t *mask = random_of(dtype, c.dims), *row = tensor_narrow(mask, -2, 0, 1);
            tensor_copy_(row, tensor_full_like(row, -INFINITY));        // the first looks at nothing
            if (c.look) { mask = tensor_gt_scalar(mask, -0.3); }
            tensor_t *fmask = on(mask);
            tcu::limits.attention_workspace = c.part ? c.part * 3 * 64 * 64 * 2 : 256 << 20;
            tensor_t *y = attention_of(in[0], in[1], in[2], mask, false), *gy = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *gfar = on(gy);
            CHECK(tensor_autograd_grad(&y, 1, &gy, in, 3, want, 0) == 0);
            for (int way = 0; way < 3; way++) {         // 0 by the kernels here, 2 the mask wants a gradient: likewise
                tensor_cuda_set_libraries(way > 0);
                if (way == 2 && c.look) { continue; }
                long before = fakes.attentions;
                tensor_t *m = way == 2 ? tensor_requires_grad_(tensor_detach(fmask), 1) : fmask, *fy = attention_of(far[0], far[1], far[2], m, false);
                CHECK(near(fy, y, dtype));
                CHECK(tensor_autograd_grad(&fy, 1, &gfar, far, 3, got, 0) == 0);
                for (int k = 0; k < 3; k++) { CHECK(near(got[k], want[k], dtype)); }
                CHECK(fakes.attentions - before == (way == 1 ? 2 + c.part : 0));
            }
            tensor_t *z = attention_of(far[0], far[1], far[2], fmask, false), *d;
            z = tensor_sum(tensor_mul(z, gfar));
            CHECK(tensor_autograd_grad(&z, 1, NULL, far, 1, &d, TENSOR_CREATE_GRAPH) == 0 && near(d, want[0], dtype));
            tensor_scope_end(scope);
        }
    }
    tcu::limits.attention_workspace = 256 << 20;
}
// Layer norm and its gradients: cuDNN's where x is large and weight and bias are there; halves are not widened.
static void layer_norms() {
    for (int dtype : floats) {
        for (int kind = 0; kind < 8; kind++) {          // 1: no weight, 2: from anywhere, 4: rms (never cuDNN's)
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *in[3] = {random_of(dtype, {5, 3, 24}), random_of(dtype, {24}), random_of(dtype, {24})}, *far[3], *want[3], *got[3];
            for (int k = 0; k < 3; k++) { far[k] = tensor_requires_grad_(on(in[k]), 1), tensor_requires_grad_(in[k], 1); }
            auto norm = [&](tensor_t *const *x) {
                tensor_t *v = kind & 2 ? tensor_narrow(x[0], 0, 1, 3) : x[0];
                if (kind & 4) {
                    tensor_rms_norm_args_t r;
                    r.options_are_named_ = TENSOR__NO_SURPLUS;
                    r.x = v, r.weight = kind & 1 ? NULL : x[1], r.eps = 1e-5;
                    return tensor_rms_norm_with(r);
                }
                tensor_layer_norm_args_t a;
                a.options_are_named_ = TENSOR__NO_SURPLUS;
                a.x = v, a.weight = kind & 1 ? NULL : x[1], a.bias = kind & 1 ? NULL : x[2];
                return tensor_layer_norm_with(a);
            };
            tensor_t *y = norm(in), *g = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *fg = on(g);
            CHECK(tensor_autograd_grad(&y, 1, &g, in, 3, want, TENSOR_ALLOW_UNUSED) == 0);
            for (int way = 0; way < 3; way++) {         // 0 by the kernels here, 2 small ones, which are
                tensor_cuda_set_libraries(way > 0);
                tcu::limits.norm_library = way == 1 ? 0 : 1 << 20;
                long norms = fakes.norms, launches = cusim::counts.launches;
                tensor_t *fy = norm(far);
                // The norm is one kernel; the front widens weight and bias of halves.
                const bool narrow = dtype == TENSOR_F16 || dtype == TENSOR_BF16;
                const int casts = narrow && !(kind & 1) ? 2 - (kind >> 2) : 0;
                if (way != 1) { CHECK(cusim::counts.launches == launches + 1 + casts); }
                CHECK(near(fy, y, dtype));
                CHECK(tensor_autograd_grad(&fy, 1, &fg, far, 3, got, TENSOR_ALLOW_UNUSED) == 0);
                for (int k = 0; k < 3; k++) { CHECK(!got[k] == !want[k] && (!got[k] || near(got[k], want[k], dtype == TENSOR_F16 ? (int)TENSOR_BF16 : dtype))); }
                CHECK(fakes.norms - norms == (way == 1 && !(kind & 5) && dtype != TENSOR_F64 ? 2 : 0));
            }
            if (!(kind & 4)) {                          // a gradient of the gradient
                auto second = [&](tensor_t *const *x) {
                    tensor_t *z = tensor_sum(tensor_square(norm(x))), *d;
                    CHECK(tensor_autograd_grad(&z, 1, NULL, x, 1, &d, TENSOR_CREATE_GRAPH) == 0);
                    z = tensor_sum(tensor_mul(d, tensor_mul(d, d)));
                    CHECK(tensor_autograd_grad(&z, 1, NULL, x, 1, &d, 0) == 0);
                    return d;
                };
                if (dtype == TENSOR_F32) { CHECK(tensor_allclose(off(second(far)), second(in), 1e-3, 1e-3)); } else { second(far); }
            }
            tensor_scope_end(scope);
        }
    }
    tcu::limits.norm_library = 1 << 18;
}
// The gradient of a norm is added to what has come past it, by the same kernel where a thread has a pack of a row. A
// pass that is asked for gradients of some tensors adds by a launch of its own, to the same values.
static void residuals() {
    for (int dtype : floats) {
        for (int kind = 0; kind < 8; kind++) {          // 1: rms, 2: rows that are no whole packs, 4: where cuDNN would do it
            tensor_scope_t scope = tensor_scope_begin();
            const int64_t columns = kind & 2 ? 7 : 24;
            const int loose = dtype == TENSOR_F16 ? (int)TENSOR_BF16 : dtype;
            tensor_t *close[3], *far[3], *got[2];
            for (int k = 0; k < 3; k++) {
                tensor_t *r = random_of(TENSOR_F32, k == 0 ? std::vector<int64_t>{70, columns} : k == 1 ? std::vector<int64_t>{columns} : std::vector<int64_t>{columns, columns});
                r = tensor_to(tensor_mul_scalar(r, 0.3), (tensor_dtype_t)dtype);
                close[k] = tensor_requires_grad_(r, k < 2), far[k] = tensor_requires_grad_(on(tensor_detach(r)), k < 2);
            }
            auto loss = [&](tensor_t *const *x) {
                tensor_scope_t inner = tensor_scope_begin();
                tensor_t *h = tensor_mul_scalar(x[0], 2), *n;
                if (kind & 1) {
                    tensor_rms_norm_args_t r;
                    r.options_are_named_ = TENSOR__NO_SURPLUS;
                    r.x = h, r.weight = x[1], r.eps = 1e-5;
                    n = tensor_rms_norm_with(r);
                } else {
                    tensor_layer_norm_args_t a;
                    a.options_are_named_ = TENSOR__NO_SURPLUS;
                    a.x = h, a.weight = x[1];
                    n = tensor_layer_norm_with(a);
                }
                tensor_t *y = tensor_add(h, tensor_linear(n, x[2], NULL));
                return tensor_scope_return(inner, tensor_mean(tensor_mul(y, y)));
            };
            tcu::limits.norm_library = kind & 4 ? 0 : 1 << 20;
            CHECK(tensor_backward(loss(close)) == 0);
            tensor_t *l = loss(far);
            long launches = cusim::counts.launches;
            CHECK(tensor_backward(l) == 0);
            const long back = cusim::counts.launches - launches;
            for (int k = 0; k < 2; k++) { CHECK(near(tensor_grad(far[k]), tensor_grad(close[k]), loose)); }
            l = loss(far);
            launches = cusim::counts.launches;
            CHECK(tensor_autograd_grad(&l, 1, NULL, far, 2, got, 0) == 0);
            const long asked = cusim::counts.launches - launches;
            if (!(kind & 4)) { CHECK(asked - back == !(kind & 2)); }
            for (int k = 0; k < 2; k++) { CHECK(near(got[k], tensor_grad(close[k]), loose)); }
            tensor_scope_end(scope);
        }
    }
    tcu::limits.norm_library = 1 << 18;
}

// Whole recurrent nets, forward and back: kinds, layers, directions, no bias, items first, states given; weights
// that lie as cuDNN has them and that do not.
static void nets() {
    static const struct { int kind, layers, both, bare, first, states; int64_t t, n, i, h, proj; double drop; } shapes[] = {
        {2, 1, 0, 0, 0, 1, 3, 2, 3, 4, 0, 0}, {2, 2, 1, 0, 1, 1, 3, 2, 3, 2, 0, 0}, {2, 2, 0, 1, 0, 0, 4, 1, 2, 3, 0, 0}, {3, 1, 0, 0, 0, 0, 3, 2, 3, 4, 0, 0},
        {3, 2, 1, 0, 1, 1, 2, 3, 4, 3, 0, 0}, {0, 2, 1, 0, 0, 1, 3, 2, 3, 4, 0, 0}, {1, 1, 1, 1, 1, 0, 2, 2, 5, 3, 0, 0}, {3, 3, 0, 0, 0, 1, 3, 0, 2, 3, 0, 0},
        {2, 2, 0, 0, 0, 1, 3, 2, 3, 4, 0, 1.0}, {2, 1, 0, 0, 0, 0, 3, 2, 3, 4, 2, 0}};
    tensor_cuda_set_conv_tf32(0);
    for (int dtype : floats) {
        for (auto &c : shapes) {
            tensor_scope_t scope = tensor_scope_begin();
            std::vector<tensor_t *> in;
            const int64_t gates = c.kind == 2 ? 4 : c.kind == 3 ? 3 : 1, dirs = c.both ? 2 : 1, ends = c.layers * dirs, out = c.proj ? c.proj : c.h;
            bool one = c.n == 0;                    // [T, I]: no items
            auto some = [&](std::vector<int64_t> d) { in.push_back(tensor_to(tensor_mul_scalar(tensor_randn_n(d.data(), (int)d.size()), 0.5), (tensor_dtype_t)dtype)); };
            some(one ? std::vector<int64_t>{c.t, c.i} : c.first ? std::vector<int64_t>{c.n, c.t, c.i} : std::vector<int64_t>{c.t, c.n, c.i});
            for (int64_t e = 0; e < ends; e++) {
                some({gates * c.h, e < dirs ? c.i : out * dirs}), some({gates * c.h, out});
                if (!c.bare) { some({gates * c.h}), some({gates * c.h}); }
                if (c.proj) { some({c.proj, c.h}); }
            }
            size_t last = in.size();
            for (int k = 0; k < (c.states ? c.kind == 2 ? 2 : 1 : 0); k++) { some(one ? std::vector<int64_t>{ends, c.h} : std::vector<int64_t>{ends, c.n, c.h}); }
            std::vector<tensor_t *> far, want(in.size()), got(in.size());
            for (tensor_t *&x : in) { x = tensor_requires_grad_(x, 1), far.push_back(tensor_requires_grad_(on(tensor_detach(x)), 1)); }
            auto run = [&](std::vector<tensor_t *> &x, int what) {
                tensor_rnn_args_t a;
                a.options_are_named_ = TENSOR__NO_SURPLUS;
                a.x = x[0], a.weights = x.data() + 1, a.layers = c.layers, a.bidirectional = c.both, a.no_bias = c.bare, a.batch_first = c.first;
                a.relu = c.kind == 1, a.proj_size = c.proj, a.dropout = c.drop, a.training = 1;
                a.h = c.states ? x[last] : NULL, a.c = c.states && c.kind == 2 ? x[last + 1] : NULL;
                tensor_state_t s = c.kind == 2 ? tensor_lstm_with(a) : c.kind == 3 ? tensor_gru_with(a) : tensor_rnn_with(a);
                tensor_t *list[3] = {tensor_flatten(s.y, 0, -1), tensor_flatten(s.h, 0, -1), s.c ? tensor_flatten(s.c, 0, -1) : NULL};
                return what ? s.y : tensor_cat_n(list, s.c ? 3 : 2, 0);
            };
            bool takes = dtype != TENSOR_F64 && !c.proj;
            for (int what = 0; what < 2; what++) {              // with the states' gradients, and of y alone
                tensor_t *y = run(in, what), *gy = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *gfar = on(gy);
                CHECK(tensor_autograd_grad(&y, 1, &gy, in.data(), (int)in.size(), want.data(), TENSOR_ALLOW_UNUSED) == 0);
                for (int way = 0; way < 3; way++) {             // 0 without libraries, 2 with gaps between weights
                    tensor_cuda_set_libraries(way > 0);
                    fakes.net_gap = way == 2 ? 256 : 0;
                    long nets = fakes.nets;
                    tensor_t *fy = run(far, what);
                    CHECK(near(fy, y, dtype));
                    for (int k = 0; k < 2; k++) {               // twice by the same graph
                        CHECK(tensor_autograd_grad(&fy, 1, &gfar, far.data(), (int)far.size(), got.data(), TENSOR_ALLOW_UNUSED | (k ? 0 : TENSOR_RETAIN_GRAPH)) == 0);
                        for (size_t i = 0; i < in.size(); i++) { CHECK(!want[i] == !got[i] && (!want[i] || near(got[i], want[i], dtype == TENSOR_F16 ? (int)TENSOR_BF16 : dtype))); }
                    }
                    tensor_item(tensor_sum(fy));
                    CHECK(fakes.nets - nets == (way && takes ? (c.drop > 0 ? 2 : 1) * 5 : 0));
                }
                fakes.net_gap = 0;
            }
            if (dtype == TENSOR_F32 && !c.proj) {               // a gradient of the gradient; nothing kept without one
                auto second = [&](std::vector<tensor_t *> &x) {
                    tensor_t *y = tensor_sum(tensor_square(run(x, 0))), *g;
                    CHECK(tensor_autograd_grad(&y, 1, NULL, &x[1], 1, &g, TENSOR_CREATE_GRAPH) == 0);
                    y = tensor_sum(tensor_mul(g, g));
                    CHECK(tensor_autograd_grad(&y, 1, NULL, &x[1], 1, &g, 0) == 0);
                    return g;
                };
                tensor_t *g = second(in), *f = second(far);
                CHECK(tensor_allclose(off(f), g, 1e-3, 1e-3));
                tensor_scope_t quiet = tensor_scope_begin_no_grad();
                CHECK(near(run(far, 0), run(in, 0), dtype));
                tensor_scope_end(quiet);
            }
            tensor_scope_end(scope);
        }
    }
    tensor_cuda_set_conv_tf32(1);
}
static void exactness() {
    tensor_t *a = on(tensor_randn(8, 8)), *x = on(tensor_randn(1, 2, 5, 5)), *w = on(tensor_randn(2, 2, 3, 3));
    const conv_case_t c = {2, 1, 2, 2, 5, 3, 1, 0, 1, 1, 0};
    auto rounded = [](tensor_t *y) {
        static long before;
        tensor_item(tensor_sum(y));
        long n = fakes.rounded - before;
        before = fakes.rounded;
        return n;
    };
    rounded(a);
    CHECK(rounded(tensor_matmul(a, a)) == 0);                           // PyTorch's defaults: products exact,
    CHECK(rounded(convolve(c, false, x, w, NULL)) == 1);                // convolutions not
    CHECK(tensor_cuda_set_matmul_tf32(1) == 0 && tensor_cuda_set_conv_tf32(0) == 1);
    CHECK(rounded(tensor_matmul(a, a)) == 1);
    CHECK(rounded(convolve(c, false, x, w, NULL)) == 0);
    a = tensor_to(a, TENSOR_F64);
    CHECK(rounded(tensor_matmul(a, a)) == 0);
    CHECK(tensor_cuda_set_matmul_tf32(0) == 1);
}
// A residual block and what stands round it, channels innermost or not: one result, and what was copied.
static struct { int64_t clones, convs; } counted;
static void images() {
    static tensor_t *w[6];
    const int64_t dims[6][4] = {{8, 3, 3, 3}, {8, 8, 1, 1}, {8, 8, 3, 3}, {8, 8, 3, 3}, {5, 8, 0, 0}, {8, 0, 0, 0}};
    for (int dtype : {TENSOR_F32, TENSOR_BF16}) {
        tensor_scope_t scope = tensor_scope_begin();
        for (int k = 0; k < 6; k++) { w[k] = random_of(dtype, std::vector<int64_t>(dims[k], dims[k] + (k < 4 ? 4 : k == 4 ? 2 : 1))); }
        tensor_t *image = random_of(dtype, {2, 3, 10, 12}), *want[7] = {};
        tensor_cuda_set_conv_tf32(0);
        // 0 the CPU's; 1 row-major; then channels innermost: 2 in image, 3 in weights too, 4 without libraries
        for (int way = 0; way < 5; way++) {
            auto to = [&](tensor_t *x, bool last) { return tensor_requires_grad_(tensor_detach(way == 0 ? x : last ? tensor_channels_last(on(x)) : on(x)), 1); };
            tensor_t *leaf[7], *got[7], *mean = tensor_zeros(8), *variance = tensor_ones(8);
            long norms = fakes.norms;
            mean = tensor_to(way ? on(mean) : mean, (tensor_dtype_t)dtype), variance = tensor_to(way ? on(variance) : variance, (tensor_dtype_t)dtype);
            for (int k = 0; k < 6; k++) { leaf[k] = to(w[k], way > 2 && k < 4); }
            leaf[6] = to(image, way > 1);
            if (way == 4) { tensor_cuda_set_libraries(0); }
            auto conv = [&](tensor_t *x, int k, int64_t stride) {
                return convolve({2, 0, 0, 0, 0, 0, stride, dims[k][3] / 2, 1, 1, 0}, false, x, leaf[k], NULL);
            };
            auto norm = [&](tensor_t *x) {
                tensor_batch_norm_args_t a;
                a.options_are_named_ = TENSOR__NO_SURPLUS;
                a.x = x, a.weight = a.bias = leaf[5], a.training = 1, a.running_mean = mean, a.running_var = variance;
                return tensor_batch_norm_with(a);
            };
            auto pool = [&](tensor_t *x) {
                tensor_max_pool_args_t a;
                a.options_are_named_ = TENSOR__NO_SURPLUS;
                a.x = x, a.kernel = 3, a.stride = 2, a.padding = 1;
                return tensor_max_pool2d_with(a);
            };
            auto count = [](void *user, const char *op, int64_t native, int64_t fallback) {
                auto *c = (decltype(counted) *)user;
                if (!std::strcmp(op, "clone")) { c->clones = native + fallback; }
                if (!std::strcmp(op, "conv2d")) { c->convs = native + fallback; }
            };
            tensor_cuda_op_counts(count, &counted);
            int64_t clones = counted.clones, libraries = tensor_cuda_library_calls();
            tensor_t *x = pool(tensor_relu(norm(conv(leaf[6], 0, 1)))), *y = x;
            bool last = way > 1;
            CHECK(way == 0 || tensor_is_channels_last(x) == last);
            y = tensor_relu(norm(conv(y, 1, 1)));
            y = norm(conv(y, 2, 1));
            y = tensor_relu(tensor_add(y, x));
            CHECK(way == 0 || tensor_is_channels_last(y) == last);
            y = conv(y, 3, 2);
            CHECK(way == 0 || tensor_is_channels_last(y) == last);
            y = tensor_linear(tensor_flatten(tensor_adaptive_avg_pool2d(y, 1, 1), 1, -1), leaf[4], NULL);
            y = tensor_mean(tensor_mul(y, y));
            tensor_t *g = tensor_ones_like(y);
            CHECK(tensor_autograd_grad(&y, 1, &g, leaf, 7, got, 0) == 0);
            tensor_cuda_op_counts(count, &counted);
            static tensor_t *statistics[2];
            if (way == 0) {
                statistics[0] = mean, statistics[1] = variance;
            } else {
                CHECK(near(mean, statistics[0], dtype) && near(variance, statistics[1], dtype));
                CHECK(fakes.norms - norms == (way < 4 && (last || dtype == TENSOR_BF16) ? 6 : 0));
            }
            for (int k = 0; k < 7; k++) {
                if (way == 0) { want[k] = got[k]; } else { CHECK(near(got[k], want[k], dtype)); }
            }
            if (way) {
                std::printf("images %s, way %d: %lld copies, %lld calls of libraries\n", dtype == TENSOR_F32 ? "f32" : "bf16", way,
                            (long long)(counted.clones - clones), (long long)(tensor_cuda_library_calls() - libraries));
            }
            if (way == 4) { tensor_cuda_set_libraries(1); }
        }
        tensor_cuda_set_conv_tf32(1);
        tensor_scope_end(scope);
    }
}
static int dropped;
// Of many sizes of attention and of layer norm, kernels are compiled twice: for the sizes that came first, and for all
// others, for which the cache has them. Attention's gradient, for which cuDNN has no such engine, has them for each.
// A graph launches the kernels of plans that have had to go: they stay for as long as it does.
static void plans_outlive() {
    tensor_scope_t scope = tensor_scope_begin();
    const conv_case_t c = {1, 1, 1, 1, 9, 1, 1, 0, 1, 1, 0};
    tensor_t *x = on(tensor_ones(1, 1, 9)), *w = on(tensor_ones(1, 1, 1));
    convolve(c, false, x, w, NULL);
    CHECK(!tensor_capture_begin(TENSOR_CUDA));
    tensor_t *y = convolve(c, false, x, w, NULL);
    tensor_graph_t *g = tensor_capture_end();
    const long live = fakes.live;
    tcu::libraries.of[0].graphs.clear(tcu::dnn_drop);
    CHECK(fakes.live == live && tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(y)) == 9);
    CHECK(tensor_graph_free(g) == 0 && fakes.live < live && tensor_ok());
    tensor_scope_end(scope);
}

static void many_sizes() {
    using tcu::libraries;
    enum { SIZES = 6 };
    auto clear = [&](bool kinds) {
        libraries.of[0].graphs.clear(tcu::dnn_drop);
        if (kinds) { libraries.of[0].kinds.clear(tcu::kind_drop); }
    };
    auto attend = [&](int64_t k, bool back) {
        tensor_scope_t scope = tensor_scope_begin();
        const bool rows = k > SIZES / 2;                // others by batch, others by rows
        tensor_t *in[3], *far[3], *want[3], *got[3];
        for (int n = 0; n < 3; n++) {
            in[n] = random_of(TENSOR_BF16, {rows ? 1 : k + 1, 2, rows ? 2 + k : 3, 8});
            far[n] = tensor_requires_grad_(on(in[n]), back), tensor_requires_grad_(in[n], back);
        }
        tensor_t *y = attention_of(in[0], in[1], in[2], NULL, true), *fy = attention_of(far[0], far[1], far[2], NULL, true);
        CHECK(near(fy, y, TENSOR_BF16));
        tensor_t *g = tensor_to(tensor_randn_like(y), TENSOR_BF16), *fg = on(g);
        if (back) {
            CHECK(!tensor_autograd_grad(&y, 1, &g, in, 3, want, 0) && !tensor_autograd_grad(&fy, 1, &fg, far, 3, got, 0));
            for (int n = 0; n < 3; n++) { CHECK(near(got[n], want[n], TENSOR_BF16)); }
        }
        tensor_scope_end(scope);
    };
    auto norm = [&](int64_t k, bool) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *in[3] = {random_of(TENSOR_F32, {k + 2, 24}), random_of(TENSOR_F32, {24}), random_of(TENSOR_F32, {24})}, *far[3], *want[3], *got[3];
        for (int n = 0; n < 3; n++) { far[n] = tensor_requires_grad_(on(in[n]), 1), tensor_requires_grad_(in[n], 1); }
        auto norm_of = [](tensor_t *const *x) {
            tensor_layer_norm_args_t a;
            a.options_are_named_ = TENSOR__NO_SURPLUS;
            a.x = x[0], a.weight = x[1], a.bias = x[2];
            return tensor_layer_norm_with(a);
        };
        tensor_t *y = norm_of(in), *fy = norm_of(far), *g = tensor_randn_like(y), *fg = on(g);
        CHECK(near(fy, y, TENSOR_F32));
        CHECK(!tensor_autograd_grad(&y, 1, &g, in, 3, want, 0) && !tensor_autograd_grad(&fy, 1, &fg, far, 3, got, 0));
        for (int n = 0; n < 3; n++) { CHECK(near(got[n], want[n], TENSOR_F32)); }
        tensor_scope_end(scope);
    };
    auto compiled = [&](auto run, bool back) {
        const long before = fakes.compiled;
        for (int64_t k = 0; k < SIZES; k++) { run(k, back); }
        return fakes.compiled - before;
    };
    tcu::limits.norm_library = 0;
    clear(true);
    CHECK(compiled(attend, false) == 2 && compiled(attend, false) == 0);
    CHECK(compiled(attend, true) == SIZES && compiled(attend, true) == 0);
    CHECK(compiled(norm, true) == 4 && compiled(norm, true) == 0);
    clear(false);                                       // plans that had to go: the first sizes have their own again
    CHECK(compiled(attend, false) == 1 && compiled(norm, true) == 2);
    clear(true);
    tcu::limits.norm_library = 1 << 18;
}

// With tensor_cuda_set_benchmark the first call of a shape runs up to 10 engines and keeps the fastest. Engines are told
// apart by their workspace: 512 is the first that pleases, 1536 the fastest one that may be taken and runs; after the
// tenth there are faster ones.
enum { FIRST_ENGINE = 512, FASTEST_ENGINE = 1536 };
static void benchmarks() {
    const conv_case_t c = {2, 2, 2, 3, 6, 3, 1, 1, 1, 1, 0};
    tensor_t *x = random_of(TENSOR_F32, {2, 2, 6, 6}), *w = random_of(TENSOR_F32, {3, 2, 3, 3}), *b = random_of(TENSOR_F32, {3});
    tensor_t *leaf[3] = {tensor_requires_grad_(x, 1), tensor_requires_grad_(w, 1), tensor_requires_grad_(b, 1)}, *far[3], *want[3], *got[3];
    for (int k = 0; k < 3; k++) { far[k] = tensor_requires_grad_(on(tensor_detach(leaf[k])), 1); }
    tensor_t *y = convolve(c, false, x, w, b), *g = tensor_randn_like(y), *fg = on(g);
    CHECK(!tensor_autograd_grad(&y, 1, &g, leaf, 3, want, 0));
    auto step = [&](long long engine) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *fy = convolve(c, false, far[0], far[1], far[2]);
        bool good = near(fy, y, TENSOR_F32) && fakes.engine == engine;
        for (int k = 0; k < 2; k++) {                   // the input's gradient, the weight's
            fakes.engine = 0;
            good = good && !tensor_autograd_grad(&fy, 1, &fg, far + k, 1, got + k, TENSOR_RETAIN_GRAPH) &&
                   near(got[k], want[k], TENSOR_F32) && fakes.engine == engine;
        }
        tensor_scope_end(scope);
        return good;
    };
    fakes.timed = true;
    tensor_cuda_set_conv_tf32(0);
    CHECK(tensor_cuda_set_benchmark(0) == 0 && step(FIRST_ENGINE));
    long live = fakes.live, plans = fakes.plans, convs = fakes.convs, events = cusim::counts.live_events;
    const int64_t allocated = tensor_cuda_memory_allocated(TENSOR_CUDA), calls = tensor_cuda_library_calls();
    CHECK(tensor_cuda_set_benchmark(1) == 0 && step(FASTEST_ENGINE));   // of a shape that has a plan: it is replaced
    CHECK(fakes.live == live && fakes.plans > plans + 3 * 10 && fakes.convs > convs + 3 * 9 * 4);
    CHECK(cusim::counts.live_events == events && tensor_cuda_memory_allocated(TENSOR_CUDA) == allocated);
    CHECK(tensor_cuda_library_calls() == calls + 3);
    plans = fakes.plans, convs = fakes.convs;
    CHECK(step(FASTEST_ENGINE) && fakes.plans == plans && fakes.convs == convs + 3);
    CHECK(tensor_cuda_set_benchmark(0) == 1 && step(FASTEST_ENGINE) && fakes.plans == plans && fakes.convs == convs + 6);
    // A capture times nothing; the next call outside does, and the graph goes on with its own plan.
    CHECK(tensor_cuda_set_benchmark(1) == 0);
    const conv_case_t c2 = {2, 1, 2, 3, 7, 3, 1, 1, 1, 1, 0};
    tensor_t *x2 = random_of(TENSOR_F32, {1, 2, 7, 7}), *y2 = convolve(c2, false, x2, w, NULL), *fx2 = on(x2);
    convs = fakes.convs;
    CHECK(!tensor_capture_begin(TENSOR_CUDA));
    tensor_t *fy2 = convolve(c2, false, fx2, far[1], NULL);
    tensor_graph_t *graph = tensor_capture_end();
    CHECK(graph && near(fy2, y2, TENSOR_F32) && fakes.convs == convs + 1 && fakes.engine == FIRST_ENGINE);
    live = fakes.live;                                      // a plan is two descriptors
    CHECK(near(convolve(c2, false, fx2, far[1], NULL), y2, TENSOR_F32) && fakes.engine == FASTEST_ENGINE && fakes.convs > convs + 20);
    CHECK(fakes.live == live + 2);                          // the graph's plan stays; those that lost are gone
    CHECK(!tensor_graph_replay(graph) && near(fy2, y2, TENSOR_F32));
    CHECK(!tensor_capture_begin(TENSOR_CUDA));              // one that has a plan that was tried uses it
    tensor_t *again2 = convolve(c2, false, fx2, far[1], NULL);
    tensor_graph_t *second = tensor_capture_end();
    CHECK(second && near(again2, y2, TENSOR_F32) && fakes.engine == FASTEST_ENGINE);
    tensor_free(fy2), tensor_free(again2);
    // Of shapes that no graph has, only the fastest plan stays while a graph lives.
    for (int size = 9; size < 14; size++) {
        tensor_scope_t scope = tensor_scope_begin();
        const conv_case_t other = {2, 1, 2, 3, size, 3, 1, 1, 1, 1, 0};
        tensor_t *ox = random_of(TENSOR_F32, {1, 2, size, size}), *oy = convolve(other, false, on(ox), far[1], NULL);
        CHECK(near(oy, convolve(other, false, ox, w, NULL), TENSOR_F32) && fakes.engine == FASTEST_ENGINE);
        tensor_scope_end(scope);
    }
    CHECK(fakes.live == live + 2 + 5 * 2);
    CHECK(!tensor_graph_free(graph) && !tensor_graph_free(second));
    CHECK(fakes.live == live + 5 * 2);                      // with the graphs go the plans that only they had
    // Halves with their bias in one plan; TF32, where the first engine may be taken too.
    tensor_t *hx = tensor_to(tensor_detach(x), TENSOR_F16), *hw = tensor_to(tensor_detach(w), TENSOR_F16), *hb = tensor_to(tensor_detach(b), TENSOR_F16);
    const long fused = fakes.fused;
    CHECK(near(convolve(c, false, on(hx), on(hw), on(hb)), convolve(c, false, hx, hw, hb), TENSOR_F16) && fakes.engine == FASTEST_ENGINE);
    CHECK(fakes.fused > fused + 20);
    tensor_cuda_set_conv_tf32(1);
    tensor_t *rounded = off(convolve(c, false, far[0], far[1], NULL));
    CHECK(tensor_allclose(rounded, convolve(c, false, x, w, NULL), 1e-2, 1e-2) && fakes.engine == FASTEST_ENGINE);
    tensor_cuda_set_conv_tf32(0);
    // None of them runs: the first is kept, and the kernels here do it.
    const conv_case_t c3 = {2, 1, 2, 3, 8, 3, 1, 1, 1, 1, 0};
    tensor_t *x3 = random_of(TENSOR_F32, {1, 2, 8, 8}), *fx3 = on(x3);
    fakes.short_calls = 1000;
    CHECK(near(convolve(c3, false, fx3, far[1], NULL), convolve(c3, false, x3, w, NULL), TENSOR_F32) && *tensor_cuda_library_error());
    fakes.short_calls = 0;
    CHECK(near(convolve(c3, false, fx3, far[1], NULL), convolve(c3, false, x3, w, NULL), TENSOR_F32) && fakes.engine == FIRST_ENGINE);
    CHECK(tensor_ok() && tensor_cuda_set_benchmark(0) == 1);
    tensor_cuda_set_conv_tf32(1);
    fakes.timed = false;
}
static void plan_table() {
    typedef tcu::plan_key_t<3> short_t;
    static tcu::plans_t<short_t, int> table;
    bool found;
    auto drop = [](int &) { dropped++; };
    auto has = [&](int64_t k) { return (void)table.of(short_t{{k, 0, k}}, 1, drop, &found), found; };
    for (int64_t k = 0; k < tcu::PLAN_WAYS; k++) { CHECK(!has(k)); }
    CHECK(has(0) && dropped == 0 && has(tcu::PLAN_WAYS - 1));
    CHECK(!has(100) && dropped == 1 && has(0) && has(100) && !has(1) && dropped == 2);  // the oldest, 1, had gone
    table.clear(drop);
    CHECK(dropped == 2 + tcu::PLAN_WAYS && !has(0));
    // Many shapes: not more plans alive than the table holds; a shape seen is planned once.
    long live = fakes.live, plans;
    for (int64_t n = 1; n < 700; n++) {
        tensor_scope_t scope = tensor_scope_begin();
        const conv_case_t c = {1, 1, 1, 1, n, 1, 1, 0, 1, 1, 0};
        convolve(c, false, on(tensor_ones(1, 1, n)), on(tensor_ones(1, 1, 1)), NULL);
        tensor_scope_end(scope);
    }
    CHECK(fakes.live > live + 500 && fakes.live <= live + 2 * tcu::PLAN_SETS * tcu::PLAN_WAYS);
    tensor_t *a = on(tensor_randn(12, 34));
    tensor_matmul(a, tensor_mT(a));
    plans = fakes.plans;
    for (int k = 0; k < 5; k++) { tensor_matmul(a, tensor_mT(a)); }
    CHECK(fakes.plans == plans && tensor_ok());
}

static void again() {                           // ends and starts: libraries are looked for anew
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
    CHECK(fakes.live == 0);
    memset(tcu::lib.open, 0, sizeof tcu::lib.open);
    CHECK(tensor_cuda_init() == 0 && !*tensor_cuda_library_error());
    tensor_manual_seed(3);
}
// A product and a convolution come out right without their libraries; -> what the text says
static std::string without(bool convolution) {
    tensor_t *a = tensor_randn(4, 4), *x = tensor_randn(1, 2, 5, 5), *w = tensor_randn(3, 2, 3, 3), *b = tensor_randn(3);
    const conv_case_t c = {2, 1, 2, 3, 5, 3, 1, 1, 1, 1, 0};
    int64_t before = tensor_cuda_library_calls();
    for (int k = 0; k < 2; k++) {
        CHECK(convolution ? near(convolve(c, false, on(x), on(w), on(b)), convolve(c, false, x, w, b), TENSOR_F32)
                          : near(tensor_matmul(on(a), on(a)), tensor_matmul(a, a), TENSOR_F32));
    }
    CHECK(tensor_ok() && tensor_cuda_library_calls() == before);
    return tensor_cuda_library_error();
}
static void missing() {
    static const struct { const char *name, *text; bool convolution; } gone[] = {
        {"libcublasLt.so.13", "cuBLASLt 13 is needed, but libcublasLt.so.13 cannot be opened", false},
        {"cublasLtMatmul", "cuBLASLt 13: libcublasLt.so.13 has no cublasLtMatmul", false},
        {"libcudnn.so.9", "cuDNN 9 is needed, but libcudnn.so.9 cannot be opened", true},
        {"cudnnBackendExecute", "cuDNN 9: libcudnn.so.9 has no cudnnBackendExecute", true}};
    for (auto &g : gone) {
        again();
        cusim::config.missing = g.name;
        std::string text = without(g.convolution);
        CHECK(text == g.text);
        if (text != g.text) { std::printf("%s\n", text.c_str()); }
        cusim::config.missing = "";
        CHECK(without(g.convolution) == g.text);                // it is not tried again
    }
    again();
    fakes.blas_version = 120804, fakes.dnn_version = 101200;
    CHECK(without(false) == "cuBLASLt 13 is needed, but the library says it is 12.8.4");
    CHECK(without(true) == "cuDNN 9 is needed, but the library says it is 10.12.0");
    fakes.blas_version = 130100, fakes.dnn_version = 91900;
    again();
    fakes.refuse = true;
    CHECK(without(false) == "cuBLASLt: no algorithm: CUBLAS_STATUS_NOT_SUPPORTED");
    long plans = fakes.plans;
    CHECK(without(false) == "cuBLASLt: no algorithm: CUBLAS_STATUS_NOT_SUPPORTED" && fakes.plans == plans);
    CHECK(without(true) == "cuDNN: no engine: CUDNN_STATUS_NOT_SUPPORTED: this fake refuses all");
    fakes.refuse = false;
    setenv("TENSOR_CUDA_NO_LIBRARIES", "1", 1);
    again();
    CHECK(without(true).empty() && without(false).empty());
    CHECK(tensor_cuda_set_libraries(1) == 0);
    unsetenv("TENSOR_CUDA_NO_LIBRARIES");
    again();
}
// The k-th call from here on fails, for every k: right results, or an error that says so; nothing stays behind.
static void failing() {
    const conv_case_t c = {2, 2, 2, 3, 6, 3, 1, 1, 1, 1, 0};
    int met = 0, errors = 0;
    for (int k = 0; k < 260; k++) {
        bool alloc = k >= 220;
        again();
        tensor_t *x = tensor_randn(2, 2, 6, 6), *w = tensor_randn(3, 2, 3, 3), *b = tensor_randn(3), *v = tensor_randn(5, 6);
        tensor_t *fx = on(x), *fw = on(w), *fb = on(b), *fv = on(v);
        tensor_requires_grad_(fw, 1);
        (alloc ? cusim::config.fail_alloc : cusim::config.fail_call) = alloc ? cusim::counts.allocs + k - 220 : cusim::counts.calls + k;
        tensor_t *y = tensor_linear(convolve(c, false, fx, fw, fb), fv, NULL);
        tensor_backward(tensor_sum(y));
        tensor_t *got = off(y);
        bool said = *tensor_cuda_library_error() != 0;
        cusim::config.fail_call = cusim::config.fail_alloc = -1;
        met += said;
        if (tensor_ok()) {
            CHECK(tensor_allclose(got, tensor_linear(convolve(c, false, x, w, b), v, NULL), 1e-2, 1e-2));
        } else {
            CHECK(tensor_error_code() == TENSOR_ERR_CUDA || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
            errors++;
            tensor_clear_error();
        }
        CHECK(near(tensor_matmul(fv, tensor_mT(fv)), tensor_matmul(v, tensor_mT(v)), TENSOR_F32));
    }
    CHECK(met > 60 && errors < 60);
    again();
}
static void failing_graphs() {                  // likewise attention and batch norm, forward and back
    int met = 0;
    for (int k = 0; k < 1100; k += 17) {
        again();
        tensor_t *q = random_of(TENSOR_F16, {2, 2, 4, 8}), *w = tensor_randn(2), *far[2] = {on(q), on(w)}, *near_[2] = {q, w}, *g[2][2];
        for (int way = 0; way < 2; way++) {
            tensor_t **in = way ? far : near_;
            tensor_requires_grad_(in[0], 1), tensor_requires_grad_(in[1], 1);
            if (way) { cusim::config.fail_call = cusim::counts.calls + k; }
            tensor_batch_norm_args_t a;
            a.options_are_named_ = TENSOR__NO_SURPLUS;
            a.x = attention_of(in[0], in[0], in[0], NULL, true), a.weight = a.bias = in[1], a.training = 1;
            tensor_t *y = tensor_batch_norm_with(a);
            y = tensor_sum(tensor_mul(y, y));
            tensor_t *one = tensor_ones_like(y);
            if (tensor_ok() && tensor_autograd_grad(&y, 1, &one, in, 2, g[way], 0) == 0 && way) {
                CHECK(near(g[1][0], g[0][0], TENSOR_BF16) && near(g[1][1], g[0][1], TENSOR_BF16));
            }
            met += *tensor_cuda_library_error() != 0;
            cusim::config.fail_call = -1;
        }
        CHECK(tensor_ok() || tensor_error_code() == TENSOR_ERR_CUDA || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
        tensor_clear_error();
    }
    CHECK(met > 20);
    again();
}
static tensor_t *lstm_of(tensor_t *const *in, int layers) {
    tensor_rnn_args_t a;
    a.options_are_named_ = TENSOR__NO_SURPLUS;
    a.x = in[0], a.weights = in + 1, a.layers = layers, a.no_bias = 1;
    return tensor_lstm_with(a).y;
}
static void failing_nets() {                    // likewise a recurrent net, whose way back the kernels here go when it fails
    int met = 0, whole = 0;
    for (int k = 0; k < 420; k += 5) {
        again();
        tensor_cuda_set_conv_tf32(0);
        fakes.net_gap = k & 1 ? 256 : 0;
        tensor_t *in[2][3], *g[2][3];
        for (int j = 0; j < 3; j++) {
            in[0][j] = tensor_requires_grad_(j ? tensor_randn(8, j == 1 ? 3 : 2) : tensor_randn(3, 2, 3), 1);
            in[1][j] = tensor_requires_grad_(on(tensor_detach(in[0][j])), 1);
        }
        for (int way = 0; way < 2; way++) {
            if (way) { cusim::config.fail_call = cusim::counts.calls + k; }
            tensor_t *y = tensor_sum(tensor_square(lstm_of(in[way], 1)));
            bool right = tensor_ok() && tensor_autograd_grad(&y, 1, NULL, in[way], 3, g[way], 0) == 0;
            cusim::config.fail_call = -1;
            if (right && way) {
                for (int j = 0; j < 3; j++) { CHECK(near(g[1][j], g[0][j], TENSOR_F32)); }
                whole += *tensor_cuda_library_error() != 0;
            }
            met += *tensor_cuda_library_error() != 0;
        }
        CHECK(tensor_ok() || tensor_error_code() == TENSOR_ERR_CUDA || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
        tensor_clear_error();
    }
    std::printf("recurrent net: %d failures of cuDNN met, %d of them without an error\n", met, whole);
    CHECK(met > 10 && whole == met);
    fakes.net_gap = 0;
    tensor_cuda_set_conv_tf32(1);
    again();
}
// The k-th call fails while engines are tried.
static void failing_benchmarks() {
    const conv_case_t c = {2, 1, 1, 2, 4, 3, 1, 1, 1, 1, 0};
    int met = 0;
    tensor_cuda_set_conv_tf32(0);
    tensor_cuda_set_benchmark(1);
    for (int k = 0; k < 420; k++) {
        const bool alloc = k >= 400;
        again();
        tensor_t *x = tensor_randn(1, 1, 4, 4), *w = tensor_randn(2, 1, 3, 3), *fx = on(x), *fw = on(w), *fy;
        (alloc ? cusim::config.fail_alloc : cusim::config.fail_call) = alloc ? cusim::counts.allocs + k - 400 : cusim::counts.calls + k;
        fy = convolve(c, false, fx, fw, NULL);
        met += cusim::counts.calls > cusim::config.fail_call;
        cusim::config.fail_call = cusim::config.fail_alloc = -1;
        CHECK(tensor_ok() ? near(fy, convolve(c, false, x, w, NULL), TENSOR_F32)
                          : tensor_error_code() == TENSOR_ERR_CUDA || tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
        tensor_clear_error();
        CHECK(near(convolve(c, false, fx, fw, NULL), convolve(c, false, x, w, NULL), TENSOR_F32));
    }
    CHECK(met > 300);
    tensor_cuda_set_benchmark(0);
    tensor_cuda_set_conv_tf32(1);
    again();
}
// A library that finds no memory of its own gets what the cache holds free, and is called once more; twice in vain is
// the kernel's turn.
static void short_of_memory() {
    tensor_cuda_set_conv_tf32(0);
    for (int fails : {1, 2}) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *a = on(random_of(TENSOR_F32, {8, 16})), *b = on(random_of(TENSOR_F32, {16, 8}));
        const conv_case_t c = {2, 2, 8, 8, 6, 3, 1, 1, 1, 8, 0};
        tensor_t *x = random_of(TENSOR_F32, spaced(c.images, c.cin, c.rank, c.size));
        tensor_t *w = random_of(TENSOR_F32, spaced(c.cout, c.cin / c.groups, c.rank, c.kernel));
        tensor_t *want = tensor_matmul(tensor_to(a, TENSOR_CPU), tensor_to(b, TENSOR_CPU));
        const int64_t large = 20 << 20;
        tensor_set_default_device(TENSOR_CUDA);
        tensor_free((tensor_empty_n)(&large, 1, TENSOR_F32));           // whole chunks of the cache are free
        tensor_set_default_device(TENSOR_CPU);
        tensor_cuda_synchronize(TENSOR_CUDA);
        int64_t reserved = tensor_cuda_memory_reserved(TENSOR_CUDA);
        long products = fakes.products;
        fakes.short_calls = fails;
        tensor_t *y = tensor_matmul(a, b);
        CHECK(near(y, want, TENSOR_F32) && fakes.short_calls == 0);
        CHECK(fakes.products == products + (fails == 1) && tensor_cuda_memory_reserved(TENSOR_CUDA) < reserved);
        tensor_t *image = convolve(c, false, x, w, NULL);
        long convs = fakes.convs;
        fakes.short_calls = fails;
        CHECK(near(convolve(c, false, on(x), on(w), NULL), image, TENSOR_F32) && fakes.short_calls == 0);
        CHECK(fakes.convs == convs + (fails == 1));
        tensor_scope_end(scope);
    }
    tensor_cuda_set_conv_tf32(1);
}
// In a capture workspace is the graph's own: other work between two replays does not meet it.
static void captured() {
    const conv_case_t c = {2, 2, 2, 3, 6, 3, 1, 1, 1, 1, 0};
    tensor_t *a = tensor_randn(6, 5), *w = tensor_randn(4, 5), *b = tensor_randn(4), *x = tensor_randn(2, 2, 6, 6), *k = tensor_randn(3, 2, 3, 3);
    tensor_t *fa = on(a), *fw = on(w), *fb = on(b), *fx = on(x), *fk = on(k), *y, *z;
    CHECK(!tensor_capture_begin(TENSOR_CUDA));
    y = tensor_linear(fa, fw, fb);              // opened and planned for here, within the capture
    z = convolve(c, false, fx, fk, NULL);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && tensor_ok() && !*tensor_cuda_library_error());
    tensor_cuda_set_conv_tf32(0);
    tensor_t *net[3] = {tensor_randn(3, 2, 5), tensor_randn(8, 5), tensor_randn(8, 2)}, *far[3] = {on(net[0]), on(net[1]), on(net[2])};
    CHECK(!tensor_capture_begin(TENSOR_CUDA));
    long nets_before = fakes.nets;
    tensor_t *steps = lstm_of(far, 1);
    tensor_graph_t *h = tensor_capture_end();
    CHECK(h && tensor_ok() && !*tensor_cuda_library_error() && fakes.nets == nets_before + 1);
    for (int i = 0; i < 3; i++) {
        CHECK((i == 0 || !tensor_graph_replay(h)) && near(steps, lstm_of(net, 1), TENSOR_F32));
        tensor_copy_(far[0], on(net[0] = tensor_randn(3, 2, 5)));
    }
    tensor_free(steps);
    CHECK(!tensor_graph_free(h));
    for (int i = 0; i < 3; i++) {
        CHECK(i == 0 || !tensor_graph_replay(g));
        CHECK(near(y, tensor_linear(a, w, b), TENSOR_F32));
        CHECK(tensor_allclose(off(z), convolve(c, false, x, k, NULL), 1e-2, 1e-2));
        CHECK(near(tensor_matmul(fw, tensor_mT(fa)), tensor_matmul(w, tensor_mT(a)), TENSOR_F32));
        a = tensor_randn(6, 5);
        tensor_copy_(fa, on(a));
    }
    tensor_free(y), tensor_free(z);
    CHECK(!tensor_graph_free(g));
    tensor_cuda_set_conv_tf32(1);
}
// Whatever order streams run in, with the host kept from the device's memory: training steps as on the CPU.
static void orders() {
    const conv_case_t c = {2, 3, 2, 4, 6, 3, 1, 1, 1, 1, 0};
    auto train = [&](int device) {
        tensor_manual_seed(5);
        tensor_t *x = tensor_to(tensor_randn(3, 2, 6, 6), (tensor_dtype_t)device), *w = tensor_to(tensor_randn(4, 2, 3, 3), (tensor_dtype_t)device);
        tensor_t *v = tensor_to(tensor_randn(3, 144), (tensor_dtype_t)device), *b = tensor_to(tensor_zeros(3), (tensor_dtype_t)device);
        double loss = 0;
        for (int k = 0; k < 4; k++) {
            tensor_t *p[3] = {tensor_requires_grad_(tensor_detach(w), 1), tensor_requires_grad_(tensor_detach(v), 1), tensor_requires_grad_(tensor_detach(b), 1)};
            tensor_t *y = tensor_linear(tensor_flatten(convolve(c, false, x, p[0], NULL), 1, -1), p[1], p[2]), *g[3];
            tensor_t *l = tensor_mean(tensor_mul(y, y)), *one = tensor_ones_like(l);
            CHECK(tensor_autograd_grad(&l, 1, &one, p, 3, g, 0) == 0);
            w = tensor_sub(p[0], tensor_mul_scalar(g[0], 0.001)), v = tensor_sub(p[1], tensor_mul_scalar(g[1], 0.001));
            b = tensor_sub(p[2], tensor_mul_scalar(g[2], 0.001));
            loss = tensor_item(l);
        }
        return loss;
    };
    double want = train(TENSOR_CPU);
    tensor_cuda_set_conv_tf32(0);
    cusim::config.protect = true;
    for (auto order : {cusim::EAGER, cusim::LATE, cusim::RANDOM}) {
        cusim::config.order = order;
        double got = train(TENSOR_CUDA);
        CHECK(std::fabs(got - want) < 1e-4 * std::fabs(want));
    }
    cusim::config.order = cusim::LATE;
    cusim::config.protect = false;
    tensor_cuda_set_conv_tf32(1);
}

// Called with the real cuDNN and a device that is only described: it refuses some plans, and for want of a device each
// call. The kernels here do all of it, and nothing is an error.
[[maybe_unused]] static void refusals() {
    using tcu::libraries;
    static const int64_t heads[][2] = {{8, 8}, {12, 12}, {264, 264}, {8, 520}};        // E of queries, of values
    static const conv_case_t convs[] = {{2, 2, 8, 8, 6, 3, 1, 1, 1, 8, 0}, {3, 1, 2, 3, 5, 3, 2, 1, 1, 1, 0}};
    int calls = 0, refused = 0;
    CHECK(tensor_cuda_init() == 0);
    tensor_manual_seed(3);
    auto meet = [&](int dtype, tensor_t *const *in, int n, auto f) {
        tensor_t *far[3], *want[3], *got[3];
        for (int k = 0; k < n; k++) { far[k] = tensor_requires_grad_(on(in[k]), 1), tensor_requires_grad_(in[k], 1); }
        libraries.error[0] = 0;
        tensor_t *y = f(in), *fy = f(far), *g = tensor_to(tensor_randn_like(y), (tensor_dtype_t)dtype), *fg = on(g);
        CHECK(near(fy, y, dtype) && *tensor_cuda_library_error());
        CHECK(!tensor_autograd_grad(&y, 1, &g, in, n, want, 0) && !tensor_autograd_grad(&fy, 1, &fg, far, n, got, 0));
        for (int k = 0; k < n; k++) { CHECK(near(got[k], want[k], dtype == TENSOR_F16 ? TENSOR_BF16 : dtype)); }
        calls++;
    };
    for (int dtype : {TENSOR_F16, TENSOR_BF16}) {
        for (auto &e : heads) {
            tensor_t *in[3] = {random_of(dtype, {2, 3, 5, e[0]}), random_of(dtype, {2, 3, 7, e[0]}), random_of(dtype, {2, 3, 7, e[1]})};
            meet(dtype, in, 3, [](tensor_t *const *x) { return attention_of(x[0], x[1], x[2], NULL, true); });
        }
    }
    for (int dtype : floats) {
        for (auto &c : convs) {
            tensor_t *in[2] = {random_of(dtype, spaced(c.images, c.cin, c.rank, c.size)), random_of(dtype, spaced(c.cout, c.cin / c.groups, c.rank, c.kernel))};
            meet(dtype, in, 2, [&](tensor_t *const *x) { return convolve(c, false, x[0], x[1], NULL); });
        }
    }
    tensor_t *in[3] = {random_of(TENSOR_F32, {3, 2, 3}), random_of(TENSOR_F32, {8, 3}), random_of(TENSOR_F32, {8, 2})};
    meet(TENSOR_F32, in, 3, [](tensor_t *const *x) { return lstm_of(x, 1); });
    for (auto &set : libraries.of[0].graphs.slot) {
        for (auto &s : set) { refused += s.used && s.plan.workspace < 0; }
    }
    std::printf("%d ops and their gradients by the kernels here, where cuDNN had no device; it refused %d plans\n", calls, refused);
    CHECK(refused > 0);
    CHECK(tensor_shutdown() == 0);
}
// The real cuDNN makes plans for a device that is only described (h200.json, from one), as it would on it: each
// convolution of the models, forward and both gradients, every batch norm of ResNet-50, GPT-2's attention and layer
// norm. FULL=1 has all dtypes and layouts of them, else those one trains in. Of GNMT cuDNN takes the description alone,
// and NCF has products only, for which cuBLASLt wants a device.
enum { LENET = 1, RESNET18, RESNET50, ALEXNET, VGG19, MOBILENET, MODELS };
[[maybe_unused]] static void real_plans() {
    static const char *const models[MODELS] = {"", "LeNet", "ResNet-18", "ResNet-50", "AlexNet", "VGG-19", "MobileNet v1, v2"};
    static const struct { int model; int64_t cin, cout, size, kernel, stride, pad, groups = 1; } net[] = {
        {LENET, 1, 6, 28, 5, 1, 2}, {LENET, 6, 16, 14, 5, 1, 0}, {RESNET18, 3, 64, 224, 7, 2, 3}, {RESNET18, 64, 64, 56, 3, 1, 1},
        {RESNET18, 64, 128, 56, 3, 2, 1}, {RESNET18, 64, 128, 56, 1, 2, 0}, {RESNET18, 128, 128, 28, 3, 1, 1},
        {RESNET18, 128, 256, 28, 3, 2, 1}, {RESNET18, 128, 256, 28, 1, 2, 0}, {RESNET18, 256, 256, 14, 3, 1, 1},
        {RESNET18, 256, 512, 14, 3, 2, 1}, {RESNET18, 256, 512, 14, 1, 2, 0}, {RESNET18, 512, 512, 7, 3, 1, 1},
        // and five of ResNet-18's
        {RESNET50, 64, 64, 56, 1, 1, 0}, {RESNET50, 64, 256, 56, 1, 1, 0}, {RESNET50, 256, 64, 56, 1, 1, 0}, {RESNET50, 256, 128, 56, 1, 1, 0},
        {RESNET50, 128, 128, 56, 3, 2, 1}, {RESNET50, 128, 512, 28, 1, 1, 0}, {RESNET50, 256, 512, 56, 1, 2, 0}, {RESNET50, 512, 128, 28, 1, 1, 0},
        {RESNET50, 512, 256, 28, 1, 1, 0}, {RESNET50, 256, 256, 28, 3, 2, 1}, {RESNET50, 256, 1024, 14, 1, 1, 0}, {RESNET50, 512, 1024, 28, 1, 2, 0},
        {RESNET50, 1024, 256, 14, 1, 1, 0}, {RESNET50, 1024, 512, 14, 1, 1, 0}, {RESNET50, 512, 512, 14, 3, 2, 1}, {RESNET50, 512, 2048, 7, 1, 1, 0},
        {RESNET50, 1024, 2048, 14, 1, 2, 0}, {RESNET50, 2048, 512, 7, 1, 1, 0},
        {ALEXNET, 3, 64, 224, 11, 4, 2}, {ALEXNET, 64, 192, 27, 5, 1, 2}, {ALEXNET, 192, 384, 13, 3, 1, 1}, {ALEXNET, 384, 256, 13, 3, 1, 1},
        {ALEXNET, 256, 256, 13, 3, 1, 1},
        {VGG19, 3, 64, 224, 3, 1, 1}, {VGG19, 64, 64, 224, 3, 1, 1}, {VGG19, 64, 128, 112, 3, 1, 1}, {VGG19, 128, 128, 112, 3, 1, 1},
        {VGG19, 128, 256, 56, 3, 1, 1}, {VGG19, 256, 256, 56, 3, 1, 1}, {VGG19, 256, 512, 28, 3, 1, 1}, {VGG19, 512, 512, 28, 3, 1, 1},
        {VGG19, 512, 512, 14, 3, 1, 1},
        {MOBILENET, 3, 32, 224, 3, 2, 1}, {MOBILENET, 32, 32, 112, 3, 1, 1, 32}, {MOBILENET, 32, 64, 112, 1, 1, 0}, {MOBILENET, 64, 64, 112, 3, 2, 1, 64},
        {MOBILENET, 64, 128, 56, 1, 1, 0}, {MOBILENET, 128, 128, 56, 3, 1, 1, 128}, {MOBILENET, 128, 128, 56, 1, 1, 0}, {MOBILENET, 128, 128, 56, 3, 2, 1, 128},
        {MOBILENET, 128, 256, 28, 1, 1, 0}, {MOBILENET, 256, 256, 28, 3, 1, 1, 256}, {MOBILENET, 256, 256, 28, 1, 1, 0}, {MOBILENET, 256, 256, 28, 3, 2, 1, 256},
        {MOBILENET, 256, 512, 14, 1, 1, 0}, {MOBILENET, 512, 512, 14, 3, 1, 1, 512}, {MOBILENET, 512, 512, 14, 1, 1, 0}, {MOBILENET, 512, 512, 14, 3, 2, 1, 512},
        {MOBILENET, 512, 1024, 7, 1, 1, 0}, {MOBILENET, 1024, 1024, 7, 3, 1, 1, 1024}, {MOBILENET, 1024, 1024, 7, 1, 1, 0},
        {MOBILENET, 32, 16, 112, 1, 1, 0}, {MOBILENET, 16, 96, 112, 1, 1, 0}, {MOBILENET, 96, 96, 112, 3, 2, 1, 96}, {MOBILENET, 96, 24, 56, 1, 1, 0},
        {MOBILENET, 24, 144, 56, 1, 1, 0}, {MOBILENET, 144, 144, 56, 3, 1, 1, 144}, {MOBILENET, 144, 24, 56, 1, 1, 0}, {MOBILENET, 144, 144, 56, 3, 2, 1, 144},
        {MOBILENET, 144, 32, 28, 1, 1, 0}, {MOBILENET, 32, 192, 28, 1, 1, 0}, {MOBILENET, 192, 192, 28, 3, 1, 1, 192}, {MOBILENET, 192, 32, 28, 1, 1, 0},
        {MOBILENET, 192, 192, 28, 3, 2, 1, 192}, {MOBILENET, 192, 64, 14, 1, 1, 0}, {MOBILENET, 64, 384, 14, 1, 1, 0}, {MOBILENET, 384, 384, 14, 3, 1, 1, 384},
        {MOBILENET, 384, 64, 14, 1, 1, 0}, {MOBILENET, 384, 96, 14, 1, 1, 0}, {MOBILENET, 96, 576, 14, 1, 1, 0}, {MOBILENET, 576, 576, 14, 3, 1, 1, 576},
        {MOBILENET, 576, 96, 14, 1, 1, 0}, {MOBILENET, 576, 576, 14, 3, 2, 1, 576}, {MOBILENET, 576, 160, 7, 1, 1, 0}, {MOBILENET, 160, 960, 7, 1, 1, 0},
        {MOBILENET, 960, 960, 7, 3, 1, 1, 960}, {MOBILENET, 960, 160, 7, 1, 1, 0}, {MOBILENET, 960, 320, 7, 1, 1, 0}, {MOBILENET, 320, 1280, 7, 1, 1, 0}};
    // grouped: 0 only where channels are innermost, 1 with FULL: a kernel for halves is compiled for each; 3 only the
    // first of each stride: bf16 has all, in the same words but for the dtype
    static const struct { const char *name; int dtype, exact, last, full, grouped; } ways[] = {
        {"f32", TENSOR_F32, 0, 0, 0, 2}, {"f32 without TF32", TENSOR_F32, 1, 0, 0, 2}, {"f64", TENSOR_F64, 0, 0, 1, 2}, {"f16", TENSOR_F16, 0, 0, 0, 0},
        {"bf16", TENSOR_BF16, 0, 0, 1, 0}, {"f32 channels_last", TENSOR_F32, 0, 1, 1, 2}, {"f16 channels_last", TENSOR_F16, 0, 1, 1, 3},
        {"bf16 channels_last", TENSOR_BF16, 0, 1, 0, 1}};
    const bool full = std::getenv("FULL") && *std::getenv("FULL");
    using namespace tcu;
    std::string folder = std::getenv("CUDA") ? std::getenv("CUDA") : "";
    // Kernels that cuDNN compiles it loads by a driver, without one by a stand-in (cuda.sh) of this name.
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver && std::getenv("DRIVER")) { driver = dlopen(std::getenv("DRIVER"), RTLD_NOW | RTLD_LOCAL); }
    void *real = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!real) { real = dlopen((folder + "/lib64/libcudnn.so.9").c_str(), RTLD_NOW | RTLD_LOCAL); }
    char json[4096];
    FILE *file = std::fopen("tests/cuda/h200.json", "rb");
    size_t bytes = file ? std::fread(json, 1, sizeof json, file) : 0;
    if (file) { std::fclose(file); }
    while (bytes && json[bytes - 1] == '\n') { bytes--; }
    if (!real || !bytes) {
        std::printf("skipped 1 test: %s\n", real ? "no tests/cuda/h200.json" : "no libcudnn.so.9");
        return;
    }
#define TCU_X(f)                                                                                             \
    {                                                                                                        \
        void *symbol = dlsym(real, #f);                                                                      \
        CHECK(symbol != NULL);                                                                               \
        memcpy(&lib.f##_, &symbol, sizeof symbol);                                                           \
    }
    TCU_CUDNN_FUNCTIONS(TCU_X)
#undef TCU_X
    lib.open[LIBRARY_CUDNN] = true;
    CHECK(lib.cudnnGetVersion_() / 10000 == CUDNN_MAJOR);
    CHECK(lib.cudnnBackendCreateDescriptor_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &libraries.properties) == 0);
    CHECK(lib.cudnnBackendSetAttribute_(libraries.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                        (int64_t)bytes, json) == 0);
    CHECK(lib.cudnnBackendFinalize_(libraries.properties) == 0);
    place_t at;
    int skipped = 0;
    for (auto &way : ways) {
        int plans[MODELS] = {}, asked[MODELS] = {}, sums = 0, all = 0, tried = 0;
        int64_t most = 0;
        auto start = std::chrono::steady_clock::now();
        if (way.full && !full) {
            for (auto &c : net) { skipped += c.groups > 1 && !way.grouped ? 0 : 3; }
            continue;
        }
        libraries.no_conv_tf32 = way.exact;
        for (auto &c : net) {
            if (c.groups > 1 && way.grouped + full < 2) { skipped += way.grouped * 3; continue; }
            if (c.groups > 64 && way.grouped == 3) { continue; }
            for (int kind = 0; kind < 4; kind++) {          // 3: forward with a bias
                const int64_t n = 32, out = (c.size + 2 * c.pad - c.kernel) / c.stride + 1, groups = c.groups;
                const int64_t large[4] = {n, c.cin, c.size, c.size}, weight[4] = {c.cout, c.cin / groups, c.kernel, c.kernel};
                const int64_t few[4] = {n, c.cout, out, out}, *dims[3] = {large, weight, few};
                const int order[4][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {0, 1, 2}};
                const int64_t space[4][3] = {{c.pad, c.pad}, {c.pad, c.pad}, {c.stride, c.stride}, {1, 1}};
                const int64_t alignment[4] = {16, 16, 16, 16};
                std::vector<image_t> t;
                for (int k : order[kind]) {
                    int64_t strides[4] = {dims[k][1] * dims[k][2] * dims[k][3], dims[k][2] * dims[k][3], dims[k][3], 1};
                    tensor_arg_t a = {};
                    a.ndim = 4, a.dims = dims[k], a.strides = strides;
                    t.emplace_back(a, way.last);
                }
                dnn_message[0] = 0;
                dnn_plan_t *p = conv_planned(at, (conv_kind_t)(kind % 3), way.dtype, t.data(), space, alignment, kind == 3, {});
                if (kind == 3) {
                    sums += p != nullptr, all++;
                } else {
                    asked[c.model]++, plans[c.model] += p != nullptr;
                    CHECK(p != nullptr);
                    if (!p) { std::printf("no plan for %s, %d -> %d in %d groups, size %d, kernel %d, kind %d: %s\n", way.name, (int)c.cin, (int)c.cout, (int)groups, (int)c.size, (int)c.kernel, kind, dnn_message); }
                }
                if (p && p->workspace > most) { most = p->workspace; }
                if (&c == net && kind < 3) {            // those that tensor_cuda_set_benchmark would time
                    dnn_plan_t some[10];
                    int made = 0;
                    CHECK(!conv_plan(at, (conv_kind_t)kind, dnn_type(way.dtype), t.data(), space, alignment, false, way.exact, some, 10, &made));
                    CHECK(made > 1 && some[0].workspace == p->workspace);
                    tried += made;
                    while (made) { dnn_drop(some[--made]); }
                }
            }
        }
        double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("%s:", way.name);
        for (int k = 1; k < MODELS; k++) {
            std::printf(" %s %d of %d%s", models[k], plans[k], asked[k], k + 1 < MODELS ? "," : " plans by cuDNN");
        }
        std::printf("; %d of %d with a bias; workspace up to %.1f MB; %.1f s; of the first convolution %d plans to choose from\n", sums,
                    all, (double)most / 1e6, seconds, tried);
    }
    for (int way = 0; way < 8 && driver; way++) {        // GPT-2's attention, forward and back; with a mask
        bool back = way & 1, causal = way & 2 && way < 4, masked = way > 3;
        int dtype = way & 2 ? TENSOR_BF16 : TENSOR_F16;
        const int64_t apart[4] = {1024 * 2304, 64, 2304, 1}, together[4] = {12 * 1024 * 64, 1024 * 64, 64, 1}, dims[4] = {8, 12, 1024, 64};
        const int64_t alignment[SDPA_DELTA + 1] = {16, 16, 16, 16, 16, 16, 16, 16, 16, 16};
        std::vector<heads_t> t;
        for (int k = 0; k <= SDPA_DELTA; k++) {
            tensor_arg_t a = {};
            a.ndim = 4, a.dims = dims, a.strides = k < SDPA_Y ? apart : together, a.numel = 8 * 12 * 1024 * 64;
            t.emplace_back(a, k == SDPA_K || (k == SDPA_V && back));
            if (k == SDPA_LSE || k == SDPA_DELTA) {
                t[k].dims[3] = t[k].strides[2] = 1, t[k].strides[1] = 1024, t[k].strides[0] = 12 * 1024;
            }
        }
        const int64_t wide[4] = {way & 2 ? 8 : 1, way & 2 ? 1 : 12, 1024, 1024}, steps[4] = {wide[1] << 20, 1 << 20, 1024, 1};
        tensor_arg_t a = {};
        a.ndim = 4, a.dims = wide, a.strides = steps, a.numel = wide[0] * steps[0];
        heads_t bias(a);
        auto start = std::chrono::steady_clock::now();
        dnn_plan_t *p = attention_planned(at, back, causal, dtype, t.data(), alignment, masked ? &bias : nullptr);
        CHECK(p != NULL);
        std::printf("attention %s%s%s, %s: %s; workspace %.1f MB; %.1f s\n", dtype == TENSOR_BF16 ? "bf16" : "f16", causal ? " causal" : masked ? " masked" : "", back ? " backward" : "",
                    "8 x 12 x 1024 x 64", p ? "a plan by cuDNN" : dnn_message, p ? (double)p->workspace / 1e6 : 0,
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    double took[3] = {};
    for (int k = 0; k < 3 && driver; k++) {             // other sentences: compiled for all, then found
        const int64_t T = k == 0 ? 1000 : k == 1 ? 513 : 130, alignment[SDPA_DELTA + 1] = {16, 16, 16, 16, 16, 16, 16, 16, 16, 16};
        const int64_t apart[4] = {T * 2304, 64, 2304, 1}, together[4] = {12 * T * 64, T * 64, 64, 1}, dims[4] = {8, 12, T, 64};
        std::vector<heads_t> t;
        for (int n = 0; n <= SDPA_DELTA; n++) {
            tensor_arg_t a = {};
            a.ndim = 4, a.dims = dims, a.strides = n < SDPA_Y ? apart : together, a.numel = 8 * 12 * T * 64;
            t.emplace_back(a, n == SDPA_K);
            if (n == SDPA_LSE || n == SDPA_DELTA) { t[n].dims[3] = t[n].strides[2] = 1, t[n].strides[1] = T, t[n].strides[0] = 12 * T; }
        }
        auto start = std::chrono::steady_clock::now();
        CHECK(attention_planned(at, false, true, TENSOR_BF16, t.data(), alignment, nullptr) != NULL);
        took[k] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("attention bf16 causal, 8 x 12 x %d x 64: %.3f s\n", (int)T, took[k]);
    }
    CHECK(took[1] < took[0] / 4 || took[2] < took[0] / 4 || !driver);
    static const int64_t norms[][2] = {{64, 56}, {64, 112}, {256, 56}, {128, 56}, {128, 28}, {512, 28}, {256, 28}, {256, 14}, {1024, 14}, {512, 14}, {512, 7}, {2048, 7}};
    for (auto &c : norms) {                             // batch norm of ResNet-50, channels innermost
        for (int way = 0; way < 4 && driver; way++) {
            bool back = way & 1;
            int dtype = way < 2 ? TENSOR_BF16 : TENSOR_F32;
            const int64_t dims[4] = {32, c[0], c[1], c[1]}, strides[4] = {c[0] * c[1] * c[1], c[1] * c[1], c[1], 1}, alignment[3] = {16, 16, 16};
            tensor_arg_t a = {};
            if (&c != norms && way > 1) { continue; }
            if (!full && (&c != norms || way % 3 == 0)) { skipped++; continue; }
            a.ndim = 4, a.dims = dims, a.strides = strides;
            auto start = std::chrono::steady_clock::now();
            dnn_plan_t *p = norm_planned(at, false, back, dtype, image_t(a, true), alignment);
            CHECK(p != NULL);
            std::printf("batch norm %d x %d %s%s: %s; workspace %.1f MB; %.1f s\n", (int)c[0], (int)c[1], dtype == TENSOR_F32 ? "f32" : "bf16", back ? " backward" : "", p ? "a plan by cuDNN" : dnn_message,
                        p ? (double)p->workspace / 1e6 : 0, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
    }
    if (skipped) { std::printf("skipped %d tests: plans that FULL=1 makes\n", skipped); }
    for (int way = 0; way < 6 && driver; way++) {       // layer norm of GPT-2
        bool back = way & 1;
        int dtype = way < 2 ? TENSOR_BF16 : way < 4 ? TENSOR_F16 : TENSOR_F32;
        const int64_t dims[4] = {8192, 768, 1, 1}, strides[4] = {768, 1, 1, 1}, alignment[3] = {16, 16, 16};
        tensor_arg_t a = {};
        a.ndim = 4, a.dims = dims, a.strides = strides;
        auto start = std::chrono::steady_clock::now();
        dnn_plan_t *p = norm_planned(at, true, back, dtype, image_t(a, true), alignment);
        CHECK(p != NULL);
        std::printf("layer norm %s%s: %s; workspace %.1f MB; %.1f s\n", dtype == TENSOR_F32 ? "f32" : dtype == TENSOR_F16 ? "f16" : "bf16", back ? " backward" : "",
                    p ? "a plan by cuDNN" : dnn_message, p ? (double)p->workspace / 1e6 : 0, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    for (int dtype : {TENSOR_F32, TENSOR_F16, TENSOR_BF16}) {    // LSTM and GRU: no plans, but its words for a net are taken
        // GNMT: the first layer of the encoder, the next, the others and the decoder's; a net of several
        static const int64_t sizes[][5] = {{NN_LSTM_NET, 1, 2, 1024, 1024}, {NN_LSTM_NET, 1, 1, 2048, 1024}, {NN_LSTM_NET, 1, 1, 1024, 1024},
                                           {NN_LSTM_NET, 2, 1, 650, 650}, {NN_GRU_NET, 2, 2, 650, 650}, {0, 2, 1, 650, 650}, {1, 2, 2, 650, 650}};
        for (auto &z : sizes) {
            const int64_t dims[3] = {50, 128, z[3]};
            tensor_net_params_t p = {};
            p.kind = z[0];
            p.num_layers = z[1];
            p.directions = z[2];
            p.no_bias = z[1] > 1;
            p.batch_first = z[2] > 1;
            p.hidden_size = z[4];
            p.training = 1;
            net_t one(0, dtype, z[2] > 1 ? std::vector<int64_t>{128, 50, z[3]}.data() : dims, p);
            CHECK(one.status == CUDNN_STATUS_SUCCESS);
        }
    }
    if (!driver) { std::printf("skipped 16 tests: no stand-in for libcuda.so.1\n"); }
    libraries.of[0].graphs.clear(dnn_drop), libraries.of[0].kinds.clear(kind_drop);
    if (full) {
        refusals();
        libraries.of[0].graphs.clear(dnn_drop), libraries.of[0].kinds.clear(kind_drop);
    } else {
        std::printf("skipped 1 test: what the real cuDNN refuses, with FULL=1\n");
    }
    lib.cudnnBackendDestroyDescriptor_(libraries.properties);
    libraries.properties = nullptr;
}

// While a library works for one device, the thread of another goes on: the first may wait for its collective.
static void devices_apart() {
    cusim_set("devices", 2);
    CHECK(tensor_cuda_init() == 0);
    tensor_scope_t scope = tensor_scope_begin();
    const tensor_device_t second = (tensor_device_t)(TENSOR_CUDA + 1);
    tensor_t *x = random_of(TENSOR_BF16, {2, 8, 6, 6}), *w = random_of(TENSOR_BF16, {8, 8, 3, 3});
    tensor_t *a = random_of(TENSOR_F32, {5, 6}), *b = random_of(TENSOR_F32, {6, 7});
    const conv_case_t c = {2, 2, 8, 8, 6, 3, 1, 1, 1, 1, 0};
    {
        std::lock_guard<std::mutex> busy(libraries.of[0].lock);
        const int64_t before = tensor_cuda_library_calls();
        tensor_t *y = convolve(c, false, tensor_to(x, second), tensor_to(w, second), NULL);
        CHECK(near(y, convolve(c, false, x, w, NULL), TENSOR_BF16));
        CHECK(near(tensor_matmul(tensor_to(a, second), tensor_to(b, second)), tensor_matmul(a, b), TENSOR_F32));
        CHECK(tensor_cuda_library_calls() == before + 2);
    }
    tensor_scope_end(scope);
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0 && fakes.live == 0);
    cusim_set("devices", 1);
}

static int tests() {
    CHECK(tensor_cuda_init() == 0);
    tensor_manual_seed(3);
    products();
    activations();
    bias_gradients();
    slopes();
    sequences();
    convolutions();
    innermost_convolutions();
    attentions();
    masked_attentions();
    nets();
    layer_norms();
    residuals();
    images();
    exactness();
    again();
    many_sizes();
    benchmarks();
    plan_table();
    plans_outlive();
    orders();
    again();
    captured();
    short_of_memory();
    missing();
    failing();
    failing_graphs();
    failing_nets();
    failing_benchmarks();
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0 && fakes.live == 0);
    devices_apart();
    cusim_set("live", 0);
#ifdef CUSIM_ASAN
    std::printf("skipped 1 test: the real cuDNN leaks on its own\n");
#else
    real_plans();
#endif
    return check_report();
}

}  // namespace by_libraries

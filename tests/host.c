// host.c - what the program around the library may do: unmask floating-point traps, choose a rounding mode,
// flush denormals, run other jobs on a thread that waits in its parallel_for, send signals, cancel threads,
// pass absurd numbers.
#define _DEFAULT_SOURCE 1
#define _GNU_SOURCE 1
#include "test.h"

#include <fenv.h>
#ifdef __linux__
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define LEN(list) (int)(sizeof(list) / sizeof(list)[0])

// ---- operations whose results are ordinary numbers for arguments between 0.2 and 0.8 ----

#define ONE(name)                                                                                            \
    { #name, (tensor_##name) }
static const struct one_t {
    const char *name;
    tensor_t *(*f)(tensor_t *);
} ones[] = {
    ONE(clone),  ONE(abs),    ONE(acos),     ONE(asin),       ONE(asinh),       ONE(atan),
    ONE(atanh),  ONE(ceil),   ONE(cos),      ONE(cosh),       ONE(deg2rad),     ONE(digamma),
    ONE(erf),    ONE(erfc),   ONE(erfinv),   ONE(exp),        ONE(exp2),        ONE(expm1),
    ONE(floor),  ONE(frac),   ONE(gelu),     ONE(gelu_tanh),  ONE(hardsigmoid), ONE(hardswish),
    ONE(lgamma), ONE(log),    ONE(log10),    ONE(log1p),      ONE(log2),        ONE(logsigmoid),
    ONE(mish),   ONE(neg),    ONE(rad2deg),  ONE(reciprocal), ONE(relu),        ONE(round),
    ONE(rsqrt),  ONE(sgn),    ONE(sigmoid),  ONE(sign),       ONE(silu),        ONE(sin),
    ONE(sinc),   ONE(sinh),   ONE(sqrt),     ONE(square),     ONE(tan),         ONE(tanh),
    ONE(trunc),  ONE(sum),    ONE(mean),     ONE(prod),       ONE(max),         ONE(min),
    ONE(norm),   ONE(nansum), ONE(nanmean),  ONE(msort),      ONE(median),      ONE(nanmedian),
    ONE(relu6),  ONE(selu),   ONE(softsign), ONE(tanhshrink),
};
#define TWO(name)                                                                                            \
    { #name, (tensor_##name) }
static const struct two_t {
    const char *name;
    tensor_t *(*f)(tensor_t *, tensor_t *);
} twos[] = {
    TWO(add),     TWO(atan2),   TWO(copysign), TWO(div),   TWO(float_power),  TWO(fmax),
    TWO(fmin),    TWO(fmod),    TWO(hypot),    TWO(ldexp), TWO(logaddexp),    TWO(logaddexp2),
    TWO(maximum), TWO(minimum), TWO(mul),      TWO(pow),   TWO(remainder),    TWO(sub),
    TWO(xlogy),   TWO(dot),     TWO(outer),    TWO(kron),  TWO(floor_divide),
};
static const char *const cpus[] = {"reference", "scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
static const int sizes[] = {1, 2, 3, 5, 7, 9, 15, 16, 17, 31, 33, 65, 100, 257};
static const tensor_dtype_t floats[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};

static tensor_t *between(int64_t n, tensor_dtype_t dtype, double lo, double hi) {
    return tensor_to(tensor_add_scalar(tensor_mul_scalar(tensor_rand(n), hi - lo), lo), dtype);
}

// ---- floating-point exceptions ----

// What would trap. Flags are raised where traps are masked, by the same rules.
#if defined(FE_INVALID) && defined(FE_DIVBYZERO) && defined(FE_OVERFLOW)
#define TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW)
#else
#define TRAPS 0
#endif

static void clear_flags(void) {
    feclearexcept(FE_ALL_EXCEPT);
}
static const char *raised(void) {
    int flags = TRAPS ? fetestexcept(TRAPS) : 0;
    if (!flags) { return NULL; }
#if defined(FE_INVALID) && defined(FE_DIVBYZERO)
    if (flags & FE_INVALID) { return "invalid"; }
    if (flags & FE_DIVBYZERO) { return "division by zero"; }
#endif
    return "overflow";
}
#define QUIET(...)                                                                                           \
    do {                                                                                                     \
        const char *what_ = raised();                                                                        \
        CHECK_MSG(!what_, "%s raises %s", test_text_of(__VA_ARGS__), what_ ? what_ : "");                    \
    } while (0)

static char text_room[200];
static const char *test_text_of(const char *format, ...) TEST_PRINTF(1, 2);
static const char *test_text_of(const char *format, ...) {
    va_list v;
    va_start(v, format);
    vsnprintf(text_room, sizeof text_room, format, v);
    va_end(v);
    return text_room;
}

static void quiet_ones(const char *cpu) {
    int i, d, k, back;
    for (i = 0; i < LEN(ones); i++) {
        for (d = 0; d < LEN(floats); d++) {
            for (k = 0; k < 2 * LEN(sizes); k++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *x = between(sizes[k / 2], floats[d], 0.2, 0.8), *y;
                back = k & 1;
                if (back) { x = tensor_requires_grad_(x, 1); }
                clear_flags();
                y = ones[i].f(x);
                if (back && tensor_requires_grad(y)) {
                    tensor_backward(tensor_sum(tensor_to(y, TENSOR_F32)));
                }
                QUIET("%s%s of %d %s on %s", back ? "backward of " : "", ones[i].name, sizes[k / 2],
                      tensor_dtype_name(floats[d]), cpu);
                CHECK_OK();
                tensor_scope_end(s);
            }
        }
    }
}
static void quiet_twos(const char *cpu) {
    int i, d, k, back;
    for (i = 0; i < LEN(twos); i++) {
        for (d = 0; d < LEN(floats); d++) {
            for (k = 0; k < 2 * LEN(sizes); k++) {
                tensor_scope_t s = tensor_scope_begin();
                tensor_t *x = between(sizes[k / 2], floats[d], 0.2, 0.8);
                tensor_t *y = between(sizes[k / 2], floats[d], 0.2, 0.8), *z;
                back = k & 1;
                if (back) {
                    tensor_requires_grad_(x, 1);
                    tensor_requires_grad_(y, 1);
                }
                clear_flags();
                z = twos[i].f(x, y);
                if (back && tensor_requires_grad(z)) {
                    tensor_backward(tensor_sum(tensor_to(z, TENSOR_F32)));
                }
                QUIET("%s%s of %d %s on %s", back ? "backward of " : "", twos[i].name, sizes[k / 2],
                      tensor_dtype_name(floats[d]), cpu);
                CHECK_OK();
                tensor_scope_end(s);
            }
        }
    }
}
static void quiet_others(const char *cpu) {
    int n, d;
    for (n = 1; n < 70; n += 4) {
        tensor_scope_t s = tensor_scope_begin();
        char text[1000];
        tensor_t *x = tensor_add_scalar(tensor_rand(n, n + 3), 0.01), *square, *q;
        square = tensor_add(tensor_matmul(x, tensor_mT(x)), tensor_mul_scalar(tensor_eye(n, n), 0.5));
        clear_flags();
        for (d = 0; d < 2; d++) {
            tensor_softmax(x, d);
            tensor_log_softmax(x, d);
            tensor_logsumexp(x, d, 0);
            tensor_cumsum(x, d);
            tensor_cumprod(x, d);
            tensor_logcumsumexp(x, d);
            tensor_sort(x, d, 0);
        }
        QUIET("softmax, sums or sorts of %d on %s", n, cpu);
        tensor_randn(n, n);
        tensor_rand(n);
        tensor_multinomial(x, 1);
        tensor_bernoulli(tensor_mul_scalar(x, 0.9));
        tensor_dropout(x, 0.5, 1);
        QUIET("random numbers of %d on %s", n, cpu);
        tensor_linalg_eigh(square, 0);
        tensor_linalg_svd(square, 0);
        QUIET("eigh or svd of %d on %s", n, cpu);
        tensor_linalg_inv(square);
        tensor_linalg_cholesky(square, 0);
        tensor_linalg_qr(square, 0);
        QUIET("inv, cholesky or qr of %d on %s", n, cpu);
        tensor_to_string(x, text, sizeof text);
        QUIET("printing of %d on %s", n, cpu);
        tensor_to(x, TENSOR_I32);
        tensor_to(x, TENSOR_U8);
        tensor_to(tensor_to(x, TENSOR_F16), TENSOR_F32);
        tensor_to(tensor_to(x, TENSOR_BF16), TENSOR_F64);
        tensor_to(x, TENSOR_BOOL);
        tensor_arange(0, n, 1, TENSOR_F32);
        tensor_linspace(0, 1, n);
        tensor_pow_scalar(x, 2.5);
        tensor_pow_scalar(x, -1);
        tensor_clamp(x, 0.3, 0.5);
        tensor_clamp(x, -INFINITY, 0.5);
        tensor_clamp(x, 0.3, INFINITY);
        tensor_where(tensor_gt_scalar(x, 0.5), x, tensor_neg(x));
        QUIET("conversions, ranges, powers or clamp of %d on %s", n, cpu);
        q = tensor_rand(2, n, 8);
        tensor_scaled_dot_product_attention(q, q, q);
        tensor_scaled_dot_product_attention(q, q, q, .is_causal = 1);
        QUIET("attention of %d on %s", n, cpu);
        tensor_max_pool2d(tensor_rand(1, 2, n + 2, n + 2), 3);
        tensor_avg_pool2d(tensor_rand(1, 2, n + 2, n + 2), 3);
        tensor_interpolate(tensor_rand(1, 2, n, n + 1), .scale_factor = 1.7, .mode = TENSOR_BICUBIC);
        tensor_quantile(x, tensor_full(0.3, 1));
        tensor_nanquantile(x, tensor_full(0.3, 1));
        tensor_std(x, 1);
        QUIET("pools, interpolation, quantiles or std of %d on %s", n, cpu);
        CHECK_OK();
        tensor_scope_end(s);
    }
}

enum { NETS = 9 };
static nn_module_t *net_of(int which, int64_t n, tensor_t **x) {
    switch (which) {
    case 0:
        *x = tensor_rand(n, 7);
        return nn_sequential(nn_linear(7, 13), nn_relu(), nn_layer_norm(13), nn_linear(13, 3));
    case 1:
        *x = tensor_rand(n + 1, 3, 7, 7);
        return nn_sequential(nn_conv2d(3, 5, 3, .padding = 1), nn_batch_norm2d(5), nn_gelu(),
                             nn_max_pool2d(2), nn_flatten(), nn_linear(5 * 3 * 3, 3));
    case 2:
        *x = tensor_rand(n, 5);
        return nn_sequential(nn_linear(5, 9), nn_tanh(), nn_dropout(.3), nn_linear(9, 3), nn_softmax(1));
    case 3: *x = tensor_rand(n, 2, 5); return nn_lstm(5, 3);
    case 4: *x = tensor_rand(n, 2, 5); return nn_gru(5, 3);
    case 5: *x = tensor_rand(n, 2, 8); return nn_transformer_encoder_layer(8, 2, .feedforward = 16);
    case 6:
        *x = tensor_rand(n, 3, 9);
        return nn_sequential(nn_conv1d(3, 5, 3), nn_silu(), nn_adaptive_avg_pool1d(1), nn_flatten(),
                             nn_linear(5, 3));
    case 7:
        *x = tensor_rand(n, 3, 5, 5);
        return nn_sequential(nn_conv_transpose2d(3, 4, 3), nn_group_norm(2, 4), nn_avg_pool2d(2));
    default: *x = tensor_rand(n * 4, 64); return nn_sequential(nn_linear(64, 65), nn_linear(65, 33));
    }
}
// One step of training. -> the loss
static double train_step(int which, int64_t n) {
    tensor_t *x, *y, *loss;
    nn_module_t *m = net_of(which, n, &x);
    nn_optimizer_t *o = NULL;
    double value;
    switch (n % 5) {
    case 0: o = nn_adam(m, .lr = .01); break;
    case 1: o = nn_sgd(m, .lr = .01, .momentum = .9); break;
    case 2: o = nn_rmsprop(m, .lr = .01); break;
    case 3: o = nn_adamw(m, .lr = .01); break;
    default: o = nn_adagrad(m, .lr = .01); break;
    }
    clear_flags();
    y = nn_forward(m, x);
    loss = tensor_ndim(y) == 2 && tensor_size(y, 1) == 3
               ? tensor_cross_entropy(y, tensor_zeros_of(TENSOR_I64, tensor_size(y, 0)))
               : tensor_mse_loss(y, tensor_zeros_like(y));
    nn_zero_grad(o);
    tensor_backward(loss);
    nn_clip_grad_norm(o, 1);
    nn_step(o);
    value = tensor_item(loss);
    nn_optimizer_free(o);
    nn_free(m);
    return value;
}
static void quiet_nets(const char *cpu) {
    int which, n;
    for (which = 0; which < NETS; which++) {
        for (n = 1; n < 40; n += 6) {
            tensor_scope_t s = tensor_scope_begin();
            train_step(which, n);
            QUIET("training net %d of %d on %s", which, n, cpu);
            CHECK_OK();
            tensor_scope_end(s);
        }
    }
}
static void no_exceptions(void) {
    int i;
    for (i = 0; i < LEN(cpus); i++) {
        if (tensor_set_isa(cpus[i])) {
            tensor_clear_error();
            continue;
        }
        tensor_manual_seed(1);
        quiet_ones(cpus[i]);
        quiet_twos(cpus[i]);
        quiet_others(cpus[i]);
        quiet_nets(cpus[i]);
    }
    tensor_set_isa(NULL);
}
// Traps as they are: a trap would end this program.
static void trapped_training(void) {
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__i386__))
    int which;
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(TRAPS);
    for (which = 0; which < NETS; which++) {
        tensor_scope_t s = tensor_scope_begin();
        CHECK(train_step(which, 3) < 10);
        tensor_scope_end(s);
    }
    fedisableexcept(FE_ALL_EXCEPT);
#else
    printf("skipped 1 test of unmasked traps: no feenableexcept\n");
#endif
}

// ---- rounding modes, flushed denormals ----

static tensor_t *nearest[LEN(ones) + LEN(twos)];
static void near_results(const char *mode, double tol) {
    tensor_t *x, *y;
    int i;
    tensor_manual_seed(3);
    x = between(100, TENSOR_F32, 0.2, 0.8);
    y = between(100, TENSOR_F32, 0.2, 0.8);
    for (i = 0; i < LEN(ones) + LEN(twos); i++) {
        const char *name = i < LEN(ones) ? ones[i].name : twos[i - LEN(ones)].name;
        tensor_t *r = i < LEN(ones) ? ones[i].f(x) : twos[i - LEN(ones)].f(x, y);
        if (!nearest[i]) {
            nearest[i] = r;
            continue;
        }
        // What rounds inside, in passes that add and subtract a large number for it, follows the mode.
        if (strcmp(name, "round") == 0 || strcmp(name, "tan") == 0) {
            CHECK_MSG(tensor_item(tensor_all(tensor_isfinite(r))) == 1, "%s under %s", name, mode);
            continue;
        }
        CHECK_MSG(tensor_allclose(r, nearest[i], tol, tol), "%s under %s", name, mode);
    }
    CHECK_OK();
}
static void rounding_modes(void) {
    static const struct {
        const char *name;
        int mode;
    } modes[] = {
#ifdef FE_UPWARD
        {"FE_UPWARD", FE_UPWARD},
#endif
#ifdef FE_DOWNWARD
        {"FE_DOWNWARD", FE_DOWNWARD},
#endif
#ifdef FE_TOWARDZERO
        {"FE_TOWARDZERO", FE_TOWARDZERO},
#endif
        {"FE_TONEAREST", FE_TONEAREST},
    };
    int i, which;
    tensor_scope_t s = tensor_scope_begin_no_grad();
    double losses[NETS];
    char text[200];
    near_results("the default", 0);
    for (i = -1; i < LEN(modes); i++) {
        tensor_scope_t inner = tensor_scope_begin_grad();
        if (i >= 0) { fesetround(modes[i].mode); }
        if (i >= 0) { near_results(modes[i].name, 2e-3); }
        for (which = 0; which < NETS; which++) {
            double loss;
            tensor_manual_seed(7);
            loss = train_step(which, 5);
            if (i < 0) {
                losses[which] = loss;
            } else {
                CHECK_NEAR(loss, losses[which], 1e-3);
            }
        }
        if (i >= 0) {
            tensor_t *m = tensor_add(tensor_mul_scalar(tensor_eye(9, 9), 3), tensor_rand(9, 9));
            tensor_linalg_svd(m, 0); // these repeat until a sum is small enough
            tensor_linalg_eigh(m, 0);
            tensor_linalg_qr(m, 0);
            tensor_matrix_exp(m);
            tensor_poisson(tensor_full(40, 100));
            tensor_to_string(m, text, sizeof text);
        }
        fesetround(FE_TONEAREST);
        CHECK_OK();
        tensor_scope_end(inner);
    }
    memset(nearest, 0, sizeof nearest);
    tensor_scope_end(s);
}
static void flushed_denormals(void) {
#if defined(__SSE2__)
    unsigned was = _mm_getcsr();
    tensor_scope_t s = tensor_scope_begin_no_grad();
    near_results("the default", 0);
    _mm_setcsr(was | 0x8040); // FTZ, DAZ
    near_results("FTZ and DAZ", 1e-5);
    CHECK(tensor_item(tensor_sum(tensor_mul_scalar(tensor_full(1e-39, 100), 1))) == 0 ||
          tensor_item(tensor_sum(tensor_mul_scalar(tensor_full(1e-39, 100), 1))) > 0);
    _mm_setcsr(was);
    memset(nearest, 0, sizeof nearest);
    tensor_scope_end(s);
#else
    printf("skipped 1 test of flushed denormals: no SSE2\n");
#endif
}

// ---- jobs that run while a thread waits ----

static int depth, jobs, which_job;
static tensor_t *ja, *jb;    // what jobs compute with
static void (*in_job)(void); // or what they do instead

enum { JOBS = 9 };
static void job(void) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *w;
    jobs++;
    if (in_job) { in_job(); }
    switch (in_job ? 0 : which_job) {
    case 1: tensor_add(ja, ja); break;
    case 2: tensor_matmul(ja, jb); break;
    case 3: tensor_sum(ja); break;
    case 4: tensor_softmax(ja, -1); break;
    case 5: tensor_zeros(512, 512); break;
    case 6:
        w = tensor_requires_grad_(tensor_clone(ja), 1);
        tensor_backward(tensor_sum(tensor_mul(w, w)));
        CHECK(tensor_grad(w) != NULL);
        break;
    case 7:
        tensor_randn(100, 100);
        tensor_empty_cache();
        break;
    case 8: tensor_add(tensor_ones(2), tensor_ones(3)); break; // an error nobody looks at
    default: break;
    }
    if (which_job != 8 || in_job) { CHECK_OK(); }
    tensor_scope_end(s);
}
static void run_all(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    int64_t i;
    (void)user;
    for (i = 0; i < n; i++) {
        if (i == n / 2 && depth == 0 && (which_job || in_job)) {
            depth++;
            job();
            depth--;
        }
        task(arg, i);
    }
}

enum { CALLS = 9 };
static const char *const call_names[] = {
    "matmul", "add", "sum_dim", "softmax", "conv2d", "layer_norm", "linear, backward", "adam", "sort"};
static tensor_t *called(int call, tensor_t *x, tensor_t *w, tensor_t *image, tensor_t *k) {
    switch (call) {
    case 0: return tensor_matmul(x, w);
    case 1: return tensor_add(x, w);
    case 2: return tensor_sum_dim(tensor_expand(x, 16, 256, 256), 0, 0);
    case 3: return tensor_softmax(x, -1);
    case 4: return tensor_conv2d(image, k, NULL, .padding = 1);
    case 5: return tensor_layer_norm(x, 1);
    case 6: {
        tensor_t *a = tensor_requires_grad_(tensor_clone(x), 1),
                 *b = tensor_requires_grad_(tensor_clone(w), 1);
        tensor_t *y = tensor_linear(a, b, NULL);
        tensor_backward(tensor_sum(tensor_square(tensor_add(y, tensor_linear(b, a, NULL)))));
        return tensor_cat(0, tensor_grad(a), tensor_grad(b));
    }
    case 7: {
        tensor_t *a = tensor_requires_grad_(tensor_clone(x), 1);
        nn_optimizer_t *o = nn_adam(NULL, .list = &a, .count = 1);
        tensor_set_grad(a, w);
        nn_step(o);
        nn_optimizer_free(o);
        return tensor_detach(a);
    }
    default: return tensor_sort(x, 1, 0).values;
    }
}
static void jobs_disturb_nothing(void) {
    int call, size;
    for (size = 0; size < 2; size++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x, *w, *image, *k;
        tensor_manual_seed(1);
        x = tensor_randn(257, 256);
        w = tensor_randn(256, 256);
        x = tensor_narrow(x, 0, 0, 256);
        image = tensor_randn(8, 16, 24, 24);
        k = tensor_randn(16, 16, 3, 3);
        ja = size ? tensor_randn(600, 600) : tensor_randn(50, 50); // larger than what is interrupted, smaller
        jb = size ? tensor_randn(600, 600) : tensor_randn(50, 50);
        for (call = 0; call < CALLS; call++) {
            tensor_t *want;
            tensor_scope_t inner = tensor_scope_begin();
            tensor_set_parallel_for(NULL, NULL, 1);
            which_job = 0;
            want = called(call, x, w, image, k);
            tensor_set_parallel_for(run_all, NULL, 4);
            for (which_job = 0; which_job < JOBS; which_job++) {
                tensor_t *got;
                int before = jobs;
                tensor_memory_stats_t m = tensor_memory_stats(), after;
                got = called(call, x, w, image, k);
                CHECK_MSG(test_same_bits(got, want), "%s while job %d runs", call_names[call], which_job);
                CHECK_MSG(which_job == 0 || jobs > before, "no job ran in %s", call_names[call]);
                CHECK_OK();
                after = tensor_memory_stats();
                CHECK_MSG(after.live_tensors - m.live_tensors <= 24, "%lld tensors left by job %d in %s",
                          (long long)(after.live_tensors - m.live_tensors), which_job, call_names[call]);
            }
            which_job = 0;
            tensor_scope_end(inner);
        }
        tensor_set_parallel_for(NULL, NULL, 1);
        tensor_scope_end(s);
    }
}
// A training step is the same, weight by weight, whatever jobs ran in it.
static void jobs_while_training(void) {
    int pass, step;
    double loss[2];
    tensor_manual_seed(1);
    ja = tensor_randn(300, 300);
    jb = tensor_randn(300, 300);
    for (pass = 0; pass < 2; pass++) {
        nn_module_t *m;
        nn_optimizer_t *o;
        tensor_manual_seed(5);
        m = nn_sequential(nn_linear(4, 128), nn_relu(), nn_dropout(0.1), nn_linear(128, 128), nn_relu(),
                          nn_linear(128, 2));
        o = nn_adam(m);
        if (pass) { tensor_set_parallel_for(run_all, NULL, 4); }
        for (step = 0; step < 9; step++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *x = tensor_randn(2048, 4), *y = tensor_sum_dim(x, 1, 1), *l;
            which_job = pass ? step % 8 : 0;
            l = tensor_mse_loss(nn_forward(m, x), tensor_expand(y, 2048, 2));
            nn_zero_grad(o);
            tensor_backward(l);
            nn_step(o);
            loss[pass] = tensor_item(l);
            which_job = 0;
            tensor_scope_end(s);
        }
        tensor_set_parallel_for(NULL, NULL, 1);
        nn_optimizer_free(o);
        nn_free(m);
    }
    CHECK_MSG(loss[0] == loss[1], "loss %.9g without jobs, %.9g with", loss[0], loss[1]);
}

// What a job finds, and what it leaves.
static int looked;
static double job_number;
static void look_around(void) {
    if (looked++) { return; }
    CHECK(tensor_ok());
    CHECK(tensor_grad_enabled() == 1);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    CHECK(tensor_set_detect_anomaly(0) == 0);
    CHECK(tensor_get_num_threads() == 4);
    job_number = tensor_item(tensor_rand(1));
    CHECK(tensor_shutdown() == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "inside a function that the library calls");
    tensor_thread_end();
    CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
    CHECK(tensor_set_num_threads(2) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "kernel");
    CHECK(tensor_set_parallel_for(NULL, NULL, 1) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "kernel");
    CHECK(tensor_set_isa("scalar") == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "kernel");
    tensor_set_grad_enabled(0);
    tensor_set_autocast(TENSOR_BF16);
    tensor_manual_seed(99);
    tensor_scope_begin_inference(); // never ended
    tensor_ones(3);
}
static void look_at_error(void) {
    looked++;
    CHECK(tensor_ok());
    tensor_add(tensor_ones(2), tensor_ones(3));
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
}
static void state_of_jobs(void) {
    tensor_t *x = tensor_randn(300, 300), *y;
    double next, again;
    int64_t live;
    looked = 0;
    in_job = look_around;
    tensor_set_parallel_for(run_all, NULL, 4);
    tensor_manual_seed(11);
    y = tensor_matmul(x, x);
    live = tensor_memory_stats().live_tensors;
    next = tensor_item(tensor_rand(1));
    CHECK(looked > 0);
    CHECK(tensor_grad_enabled() == 1);
    CHECK(tensor_autocast_dtype() == TENSOR_DTYPE_NONE);
    CHECK(!tensor_is_poison(y));
    tensor_manual_seed(11);
    again = tensor_item(tensor_rand(1));
    CHECK_MSG(next == again, "a job moved the generator: %.9g is not %.9g", next, again);
    CHECK(job_number != next);
    CHECK_MSG(tensor_memory_stats().live_tensors <= live + 2, "jobs leave tensors");
    { // in a scope without gradients and under autocast
        tensor_scope_t s = tensor_scope_begin_no_grad(), t = tensor_scope_begin_autocast(TENSOR_BF16);
        looked = 0;
        y = tensor_matmul(x, x);
        CHECK(looked > 0 && tensor_dtype(y) == TENSOR_BF16);
        CHECK(tensor_grad_enabled() == 0);
        tensor_scope_end(t);
        tensor_scope_end(s);
    }
    // an error pending outside is not the job's, and stays
    in_job = look_at_error;
    tensor_add(tensor_ones(2), tensor_ones(5));
    looked = 0;
    tensor_matmul(x, x);
    CHECK(looked > 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "[5]");
    in_job = NULL;
    tensor_set_parallel_for(NULL, NULL, 1);
}
// A job adds to the gradient that the thread it interrupts adds to.
static tensor_t *shared_weight;
static void add_gradient(void) {
    tensor_backward(tensor_sum(tensor_mul_scalar(shared_weight, 2)));
}
static void jobs_share_a_leaf(void) {
    shared_weight = tensor_requires_grad_(tensor_ones(512, 512), 1);
    in_job = add_gradient;
    jobs = 0;
    tensor_set_parallel_for(run_all, NULL, 4);
    tensor_backward(
        tensor_sum(tensor_add(tensor_mul_scalar(shared_weight, 3), tensor_square(shared_weight))));
    tensor_backward(tensor_sum(tensor_mul_scalar(shared_weight, 3)));
    in_job = NULL;
    tensor_set_parallel_for(NULL, NULL, 1);
    CHECK(jobs > 0);
    CHECK_NEAR(tensor_item(tensor_mean(tensor_grad(shared_weight))), 3 + 2 + 3 + 2 * jobs, 1e-3);
}
// A job goes backward through the checkpoint that waits for it: an error, not an endless wait.
static tensor_t *region_loss;
static int region_errors;
static tensor_t *region(tensor_t *const *x, int n, void *user) {
    (void)n, (void)user;
    return tensor_sum(tensor_exp(tensor_matmul(x[0], x[0])));
}
static void through_region(void) {
    if (!region_loss) { return; }
    tensor_backward_with(region_loss, NULL, TENSOR_RETAIN_GRAPH);
    region_errors += tensor_error_code() == TENSOR_ERR_AUTOGRAD;
    tensor_clear_error();
}
static void jobs_meet_a_checkpoint(void) {
    tensor_t *x = tensor_requires_grad_(tensor_mul_scalar(tensor_rand(256, 256), 0.01), 1);
    region_loss = tensor_checkpoint(region, NULL, &x, 1);
    in_job = through_region;
    region_errors = 0;
    tensor_set_parallel_for(run_all, NULL, 4);
    CHECK(tensor_backward_with(region_loss, NULL, TENSOR_RETAIN_GRAPH) == 0);
    CHECK(region_errors > 0);
    in_job = NULL;
    region_loss = NULL;
    tensor_set_parallel_for(NULL, NULL, 1);
}
// Contexts: a job is in that of the call; one of its own may have jobs too, and be freed by the job.
static tensor_context_t *outside;
static int inner_jobs;
static void run_inner(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    int64_t i;
    (void)user;
    for (i = 0; i < n; i++) {
        if (i == 1) {
            tensor_scope_t s = tensor_scope_begin();
            CHECK(tensor_item(tensor_sum(tensor_ones(100))) == 100);
            CHECK(tensor_context_free(outside) == TENSOR_ERR_OWNER);
            CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
            inner_jobs++;
            tensor_scope_end(s);
        }
        task(arg, i);
    }
}
static void own_context(void) {
    tensor_context_t *mine = tensor_context_new(), *before = tensor_context_use(mine);
    tensor_t *x;
    CHECK(before == outside);
    tensor_set_error_handler(test_quiet, NULL);
    tensor_set_parallel_for(run_inner, NULL, 3);
    x = tensor_ones(200, 200);
    CHECK(tensor_item(tensor_sum(tensor_matmul(x, x))) == 200.0 * 200 * 200);
    CHECK(tensor_context_use(before) == mine);
    CHECK(tensor_context_free(mine) == 0);
}
static void contexts_of_jobs(void) {
    tensor_context_t *before;
    tensor_t *x;
    outside = tensor_context_new();
    before = tensor_context_use(outside);
    tensor_set_error_handler(test_quiet, NULL);
    x = tensor_ones(200, 200);
    in_job = own_context;
    jobs = inner_jobs = 0;
    tensor_set_parallel_for(run_all, NULL, 4);
    CHECK(tensor_item(tensor_sum(tensor_matmul(x, x))) == 200.0 * 200 * 200);
    in_job = NULL;
    CHECK(jobs > 0 && inner_jobs > 0);
    CHECK_OK();
    tensor_context_use(before);
    CHECK(tensor_context_free(outside) == 0);
}

// ---- signals, cancelled threads ----

#ifdef __linux__
static int alarms;      // by atomic words: a signal may come to any thread
static void on_alarm(int signal) {
    (void)signal;
    __atomic_fetch_add(&alarms, 1, __ATOMIC_RELAXED);
}
// One after another while kernels run on three threads and files are written and read; no call is restarted.
static void signals(void) {
    const char *path = "host_signals.safetensors";
    struct sigaction action, before;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    nn_module_t *m = nn_linear(200, 300), *other = nn_linear(200, 300);
    tensor_t *x = tensor_randn(300, 300), *want = tensor_matmul(x, x);
    int i;
    CHECK(tensor_set_num_threads(3) == 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    __atomic_store_n(&alarms, 0, __ATOMIC_RELAXED);
    CHECK(sigaction(SIGALRM, &action, &before) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (i = 0; i < 60 || (__atomic_load_n(&alarms, __ATOMIC_RELAXED) < 60 && i < 400); i++) {
        tensor_scope_t s = tensor_scope_begin();
        CHECK(test_same_bits(tensor_matmul(x, x), want));
        if (i % 6 == 0) { CHECK(nn_save(path, m) == 0 && nn_load(path, other) == 0); }
        CHECK_OK();
        tensor_scope_end(s);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    i = __atomic_load_n(&alarms, __ATOMIC_RELAXED);
    CHECK_MSG(i > 20, "only %d signals", i);
    CHECK(test_same_bits(nn_get(m, "weight"), nn_get(other, "weight")));
    CHECK(tensor_set_num_threads(1) == 0);
    remove(path);
    nn_free(m);
    nn_free(other);
}

static int cancel_round;
static void *computes(void *user) {
    tensor_t *x = tensor_requires_grad_(tensor_randn(40, 40), 1);
    (void)user;
    while (__atomic_load_n(&cancel_round, __ATOMIC_RELAXED) >= 0) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_backward(tensor_sum(tensor_softmax(tensor_matmul(x, x), 1)));
        __atomic_fetch_add(&cancel_round, 1, __ATOMIC_RELAXED);
        pthread_testcancel(); // between calls, its scope open
        tensor_scope_end(s);
    }
    return NULL;
}
// A thread that is cancelled gives back what it had, as one that returns.
static void cancelled(void) {
    tensor_memory_stats_t before = tensor_memory_stats(), after = before;
    uint64_t reserved = 0;
    int i;
#ifdef __SANITIZE_ADDRESS__     // a cancelled thread leaves marks of its frames, at which the sanitizer stops
    printf("skipped 1 test of cancelled threads: address sanitizer\n");
    return;
#endif
    for (i = 0; i < 40; i++) {
        pthread_t t;
        void *result = NULL;
        cancel_round = 0;
        CHECK(pthread_create(&t, NULL, computes, NULL) == 0);
        while (__atomic_load_n(&cancel_round, __ATOMIC_RELAXED) < 1 + i % 3) { usleep(100); }
        CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
        after = tensor_memory_stats();
        CHECK_MSG(after.live_tensors == before.live_tensors && after.live_nodes == before.live_nodes,
                  "%lld tensors left by cancelled thread %d",
                  (long long)(after.live_tensors - before.live_tensors), i);
        if (i == 10) { reserved = after.reserved_bytes; }
    }
    CHECK_MSG(after.reserved_bytes <= reserved, "%lld bytes more after 30 threads",
              (long long)(after.reserved_bytes - reserved));
}
#endif

// ---- absurd arguments: errors, without overflow on the way (for the sanitizer of undefined behaviour) ----

static void absurd_sizes(void) {
    static const int64_t halves[2] = {4, INT64_MAX}, doubles[3] = {INT64_MAX, INT64_MAX, -1};
    tensor_t *w[8];
    int i;
    for (i = 0; i < 8; i++) { w[i] = tensor_randn(12, 3); }
    w[2] = w[3] = tensor_randn(12);
    CHECK_POISON(tensor_lstm(tensor_randn(2, 3, 3), w, .layers = (int64_t)1 << 62).y, TENSOR_ERR_SHAPE,
                 "layers");
    CHECK_POISON(tensor_lstm(tensor_randn(2, 3, 3), w, .layers = INT64_MAX, .bidirectional = 1).y,
                 TENSOR_ERR_SHAPE, "layers");
    CHECK_POISON(tensor_gru(tensor_randn(2, 3, 3), w, .layers = -1).y, TENSOR_ERR_SHAPE, "layers");
    CHECK(nn_lstm(2, 2, .dropout = 1e30) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "got 1e+30");
    CHECK(nn_gru(2, 2, .dropout = NAN) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "got nan");
    CHECK(nn_lstm(INT64_MAX, INT64_MAX, .layers = 2, .bidirectional = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
    CHECK(nn_multihead_attention(8, 2, .dropout = 1e30) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "got 1e+30");
    CHECK(nn_transformer_encoder_layer(8, 2, .feedforward = 4, .dropout = INFINITY) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "got inf");
    CHECK(nn_embedding(INT64_MIN, 2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "count");
    CHECK(nn_embedding(INT64_MIN, 2, .padding_idx = -1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "count");
    CHECK(nn_embedding_bag(INT64_MIN, 2, .padding_idx = -1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "count");
    CHECK_POISON(tensor_to(tensor_ones(1), INT32_MIN), TENSOR_ERR_DTYPE, "nor a device");
    CHECK_POISON(tensor_unflatten_n(tensor_ones(6), 0, halves, 2), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten_n(tensor_ones(6), 0, doubles, 3), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_kron(tensor_zeros((int64_t)1 << 40, 0), tensor_zeros((int64_t)1 << 40, 0)),
                 TENSOR_ERR_SHAPE, "kron");
}

// A name in the environment that this machine or this build does not have: one error, then the best one runs.
static void unknown_instruction_set(void) {
#ifndef _WIN32
    const char *was = getenv("TENSOR_ISA");
    char kept[32] = "";
    if (was) { snprintf(kept, sizeof kept, "%s", was); }
    setenv("TENSOR_ISA", "avx9", 1);
    tensor_context_t *mine = tensor_context_new(), *before = tensor_context_use(mine);
    tensor_set_error_handler(test_quiet, NULL);
    tensor_t *y = tensor_neg(tensor_ones(2));
    CHECK(tensor_item(tensor_sum(y)) == -2);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "TENSOR_ISA=avx9 in the environment: this machine or this build");
    CHECK(tensor_item(tensor_sum(tensor_neg(y))) == 2 && tensor_ok());
    tensor_context_use(before);
    tensor_context_free(mine);
    setenv("TENSOR_ISA", "", 1);        // as if it were not there
    mine = tensor_context_new(), before = tensor_context_use(mine);
    CHECK(tensor_item(tensor_sum(tensor_neg(tensor_ones(2)))) == -2 && tensor_ok());
    tensor_context_use(before);
    tensor_context_free(mine);
    if (was) {
        setenv("TENSOR_ISA", kept, 1);
    } else {
        unsetenv("TENSOR_ISA");
    }
#endif
}

int main(void) {
    RUN(absurd_sizes);
    RUN(no_exceptions);
    RUN(trapped_training);
    RUN(rounding_modes);
    RUN(flushed_denormals);
    RUN(jobs_disturb_nothing);
    RUN(jobs_while_training);
    RUN(state_of_jobs);
    RUN(jobs_share_a_leaf);
    RUN(jobs_meet_a_checkpoint);
    RUN(contexts_of_jobs);
    RUN(unknown_instruction_set);
#ifdef __linux__
    RUN(signals);
    RUN(cancelled);
#else
    printf("skipped 2 tests of signals and cancelled threads: not Linux\n");
#endif
    return test_report();
}

// details.c - what is right in every other respect may still be wrong at the last element, the last item of
// a list, the one bit of a count. Small faults of that kind were put into the headers one by one (make
// mutants); what no other test noticed is here.
#include "test.h"

#include "../tensor_nn.h"

enum { LONGEST = 70 }; // of rows: more than one block of the widest vectors

static int64_t live(void) {
    return tensor_memory_stats().live_tensors;
}

// ---- ownership ----

// A tensor of an outer scope that is freed in an inner one does not lend its place to one of the inner scope.
static void outer_place(void) {
    int64_t before = live();
    tensor_t *outer = tensor_zeros(1);
    tensor_scope_t scope = tensor_scope_begin();
    CHECK(tensor_free(outer) == 0);
    tensor_zeros(1);
    tensor_scope_end(scope);
    CHECK(live() == before);
}

// What a library object owns is not the program's to replace.
static void set_of_owned(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(2), 1), *grad;
    tensor_backward(tensor_sum(x));
    grad = tensor_grad(x);
    CHECK(tensor_set(&grad, tensor_ones(2)) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the old value [2]");
}

// What a change in place saves for its gradient has no header that stays.
static void saved_copies(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1), *y = tensor_mul_scalar(x, 2);
    int64_t before = live();
    CHECK(tensor_sin_(y) == y);
    CHECK(live() == before);
}

// ---- last elements ----

// A zero among divisors is found wherever it is.
static void divisors(void) {
    for (int64_t n = 1; n < LONGEST; n++) {
        tensor_t *a = tensor_ones_of(TENSOR_I64, n), *b = tensor_ones_of(TENSOR_I64, n);
        tensor_fill_(tensor_select(b, 0, n - 1), 0);
        CHECK_POISON(tensor_floor_divide(a, b), TENSOR_ERR_INDEX, "division by zero");
        CHECK_POISON(tensor_remainder(a, b), TENSOR_ERR_INDEX, "division by zero");
    }
}

static void sorts_the_last(void) {
    static const int64_t sizes[] = {2, 3, 17, 300, 5000};
    for (int k = 0; k < 5; k++) {
        int64_t n = sizes[k];
        tensor_t *x = tensor_add_scalar(tensor_zeros_of(TENSOR_I64, n), 7);
        tensor_fill_(tensor_select(x, 0, n - 1), 3);
        tensor_pair_t sorted = tensor_sort(x, 0, 0);
        CHECK(tensor_item_i64(tensor_select(sorted.values, 0, 0)) == 3);
        CHECK(tensor_item_i64(tensor_select(sorted.indices, 0, 0)) == n - 1);
    }
    tensor_pair_t one = tensor_mode(tensor_add_scalar(tensor_zeros_of(TENSOR_I64, 3, 1), 5), 1, 0);
    CHECK(tensor_item_i64(tensor_sum(one.values)) == 15 && tensor_item_i64(tensor_sum(one.indices)) == 0);
}

// The greatest logit may be anywhere in the row: nothing overflows. Each class has probability 1 where its
// logit is 1000 above the others.
static void extreme_logits(void) {
    for (int64_t n = 1; n < 2 * LONGEST; n += n < LONGEST ? 1 : 13) {
        tensor_t *logits = tensor_mul_scalar(tensor_eye(n, n), 1000),
                 *classes = tensor_arange(0, (double)n, 1, TENSOR_I64);
        CHECK_NEAR(tensor_item(tensor_cross_entropy(logits, classes)), 0, 0);
        CHECK_NEAR(tensor_item(tensor_mean(tensor_logsumexp(logits, 1, 0))), n > 0 ? 1000 : 0, 0);
    }
}

// An infinite logit is found at the end of a row of any length.
static void infinite_logits(void) {
    const int64_t zero = 0;
    tensor_t *first = tensor_from(&zero, TENSOR_I64, 1);
    for (int64_t n = 2; n < LONGEST; n++) {
        tensor_t *logits = tensor_zeros(1, n);
        tensor_fill_(tensor_select(logits, 1, n - 1), (double)INFINITY);
        CHECK(tensor_item(tensor_cross_entropy(logits, first)) == (double)INFINITY);
    }
}

// The gradient of log_softmax is g - softmax(x) sum(g), in f32 at every length of a row as in f64.
static void log_softmax_rows(void) {
    for (int64_t n = 1; n < LONGEST; n++) {
        tensor_t *x = tensor_requires_grad_(tensor_randn(2, n), 1), *g = tensor_randn(2, n);
        tensor_backward_with(tensor_log_softmax(x, 1), g, 0);
        tensor_t *wide = tensor_to(tensor_detach(x), TENSOR_F64), *wide_g = tensor_to(g, TENSOR_F64);
        tensor_t *want =
            tensor_sub(wide_g, tensor_mul(tensor_softmax(wide, 1), tensor_sum_dim(wide_g, 1, 1)));
        tensor_t *error = tensor_sub(tensor_to(tensor_grad(x), TENSOR_F64), want);
        CHECK_NEAR(tensor_item(tensor_max(tensor_abs(error))), 0, 3e-6);
    }
}

// linspace reaches its end exactly and is the same from both ends, as in PyTorch.
static void linspaces(void) {
    static const tensor_dtype_t types[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16};
    for (int k = 0; k < 3; k++) {
        for (int64_t n = 2; n < LONGEST; n++) {
            tensor_t *x = tensor_to(tensor_linspace_of(types[k], -3, 5, n), TENSOR_F64);
            CHECK(tensor_item(tensor_select(x, 0, 0)) == -3 && tensor_item(tensor_select(x, 0, n - 1)) == 5);
            tensor_t *even = tensor_add_scalar(
                tensor_mul_scalar(tensor_arange(0, (double)n, 1, TENSOR_F64), 8.0 / (double)(n - 1)), -3);
            double most = tensor_item(tensor_max(tensor_abs(tensor_sub(x, even))));
            CHECK_NEAR(most, 0, types[k] == TENSOR_F16 ? 2e-3 : 1e-6);
        }
    }
}

// torch.roll(arange(6).reshape(2, 3), (1, -1), (0, 1)) is [[4, 5, 3], [1, 2, 0]]; a dim may be there twice.
static void rolls(void) {
    static const float want[6] = {4, 5, 3, 1, 2, 0};
    static const int64_t shifts[2] = {1, -1}, dims[2] = {0, 1}, ones[2] = {1, 1};
    tensor_t *x = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3);
    CHECK(tensor_equal(tensor_roll_n(x, shifts, dims, 2), tensor_from(want, TENSOR_F32, 2, 3)));
    CHECK(tensor_equal(tensor_roll_n(x, ones, ones, 2), tensor_roll(x, 2, 1)));
    CHECK_POISON(tensor_index_reduce(x, 0, tensor_arange(0, 1, 1, TENSOR_I64), x, "sum", 1),
                 TENSOR_ERR_FORMAT, "index_reduce: reduce must be prod, mean, amax or amin, not \"sum\"");
    CHECK_POISON(tensor_index_reduce(x, 0, tensor_arange(0, 2, 1, TENSOR_I64), x, "most", 1),
                 TENSOR_ERR_FORMAT, "index_reduce: reduce must be prod, mean, amax or amin, not \"most\"");
}

static void letters(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3);
    CHECK(tensor_equal(tensor_einsum("ZY", x), tensor_mT(x)));
    CHECK(tensor_equal(tensor_einsum("zZ", x), tensor_mT(x)));
}

// Memory that is lent with strides reaches to its last element and not beyond.
static void lent_with_strides(void) {
    static const float data[7] = {0, 1, 2, 3, 4, 5, 6};
    const int64_t dims[2] = {2, 3}, strides[2] = {4, 1}, one = 1;
    tensor_t *x = tensor_wrap_strided(data, TENSOR_F32, dims, strides, 2, TENSOR_READ_ONLY, NULL, NULL);
    int64_t n = 7;
    CHECK(tensor_item(tensor_sum(tensor_as_strided(x, &n, &one, 1, 0))) == 21);
    n = 8;
    CHECK_POISON(tensor_as_strided(x, &n, &one, 1, 0), TENSOR_ERR_SHAPE, "leaves the storage");
}

// ---- gradients ----

static tensor_t *first_of(tensor_t *const *inputs, int n, void *user) {
    (void)n, (void)user;
    return tensor_square(inputs[0]);
}

static void bad_lists(void) {
    tensor_t *in[2] = {tensor_requires_grad_(tensor_ones(2), 1), tensor_zeros(0, 3)};
    CHECK(tensor_gradcheck(first_of, NULL, in, -1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradcheck");
    CHECK(tensor_gradgradcheck(first_of, NULL, in, -1, 0, 0, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "gradgradcheck");
    tensor_t *matrix;
    CHECK(tensor_jacobian(first_of, NULL, in, -1, &matrix, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "jacobian");
    in[1] = tensor_argmax_dim(in[1], 0, 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "argmax_dim: dim 0 of x [0,3] has no element to choose from");
    CHECK_POISON(tensor_checkpoint(first_of, NULL, in, 2), TENSOR_ERR_POISONED, "inputs");
}

// The gradient of a result on the way and of the last input behind it, in one pass.
static void on_the_way(void) {
    tensor_t *a = tensor_full(2, 3), *b = tensor_requires_grad_(tensor_full(5, 3), 1);
    tensor_t *way = tensor_mul(a, b), *loss = tensor_sum(tensor_square(way)), *in[2], *got[2];
    in[0] = way, in[1] = b;
    CHECK(tensor_autograd_grad(&loss, 1, NULL, in, 2, got, 0) == 0);
    CHECK(tensor_item(tensor_select(got[0], 0, 2)) == 20 && tensor_item(tensor_select(got[1], 0, 2)) == 40);
}

static tensor_t *constant_forward(tensor_function_ctx_t *ctx, tensor_t *const *inputs, int n) {
    (void)ctx, (void)n;
    return tensor_clone(inputs[0]);
}
static int constant_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)grad, (void)n;
    grads[0] = (tensor_t *)tensor_function_user(ctx);
    return 0;
}
static const tensor_function_t constant = {"constant", constant_forward, constant_backward, NULL};

// A gradient that the program gives is never a leaf's own, whoever has it: no later pass adds to it.
static void given_gradients(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1), *y = tensor_requires_grad_(tensor_ones(3), 1);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *kept = tensor_keep(tensor_full(7, 3));
    tensor_t *own = tensor_keep(tensor_requires_grad_(tensor_full(9, 3), 1));
    tensor_t *lent = tensor_keep(tensor_full(4, 3));
    tensor_scope_end(scope);
    tensor_backward(tensor_sum(tensor_mul_scalar(y, 5)));
    for (int pass = 1; pass <= 2; pass++) {
        CHECK(tensor_backward_with(x, tensor_grad(y), 0) == 0);
        CHECK(tensor_item(tensor_at(tensor_grad(x), "0")) == 5 * pass);
        CHECK(tensor_item(tensor_at(tensor_grad(y), "0")) == 5);
    }
    for (int pass = 1; pass <= 2; pass++) {
        CHECK(tensor_backward_with(own, pass == 1 ? own : kept, 0) == 0);
        CHECK(tensor_item(tensor_at(tensor_grad(own), "0")) == (pass == 1 ? 9 : 16));
        CHECK(tensor_item(tensor_at(own, "0")) == 9 && tensor_item(tensor_at(kept, "0")) == 7);
    }
    tensor_set_grad(x, NULL);
    for (int pass = 1; pass <= 2; pass++) {
        CHECK(tensor_backward(tensor_sum(tensor_apply(&constant, lent, &x, 1))) == 0);
        CHECK(tensor_item(tensor_at(tensor_grad(x), "0")) == 4 * pass);
        CHECK(tensor_item(tensor_at(lent, "0")) == 4);
    }
    tensor_free(kept);
    tensor_free(own);
    tensor_free(lent);
}

static float wrapped_memory[64];

static int wrapped_backward(tensor_function_ctx_t *ctx, tensor_t *grad, tensor_t **grads, int n) {
    (void)ctx, (void)grad, (void)n;
    grads[0] = tensor_wrap(wrapped_memory, TENSOR_F32, 64);
    return 0;
}
static const tensor_function_t wrapped = {"wrapped", constant_forward, wrapped_backward, NULL};

// A gradient in memory of the program: tanh's backward, which writes over its operand, leaves it alone.
static void wrapped_gradients(void) {
    tensor_t *x = tensor_requires_grad_(tensor_full(0.5, 64), 1), *y = tensor_tanh(x);
    for (int i = 0; i < 64; i++) { wrapped_memory[i] = 1; }
    CHECK(tensor_backward(tensor_sum(tensor_apply(&wrapped, NULL, &y, 1))) == 0);
    CHECK(wrapped_memory[0] == 1 && wrapped_memory[63] == 1);
    CHECK(fabs(tensor_item(tensor_at(tensor_grad(x), "0")) - 0.7864477) < 1e-6);
    tensor_set_grad(x, NULL);
    CHECK(tensor_backward(tensor_sum(tensor_apply(&wrapped, NULL, &x, 1))) == 0);
    wrapped_memory[0] = 5;
    CHECK(tensor_item(tensor_at(tensor_grad(x), "0")) == 1);
}

// The text says whether an input or an output was changed, and which.
static void changed_values(void) {
    tensor_t *x = tensor_requires_grad_(tensor_ones(3), 1), *y = tensor_exp(x), *z;
    tensor_add_scalar_(y, 1);
    CHECK(tensor_backward(tensor_sum(y)) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "output 0 of exp");
    y = tensor_mul_scalar(x, 2), z = tensor_mul_scalar(x, 3);
    tensor_t *product = tensor_mul(y, z);
    tensor_add_scalar_(z, 1);
    CHECK(tensor_backward(tensor_sum(product)) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "input 1 of mul");
}

// ---- random numbers ----

// Philox4x32-10 of a seed: block number `block` of stream number `stream` (Salmon et al., 2011)
static void philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t c[4]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    c[0] = (uint32_t)block, c[1] = (uint32_t)(block >> 32);
    c[2] = (uint32_t)stream, c[3] = (uint32_t)(stream >> 32);
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t first = (uint32_t)(q >> 32) ^ c[1] ^ k0, third = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[0] = first, c[1] = (uint32_t)q, c[2] = third, c[3] = (uint32_t)p;
    }
}

// Element k of each call is a function of seed, number of the call and k alone, whatever computes it.
static void streams_of_numbers(void) {
    const uint64_t seed = 0x123456789ABCDEFu;
    const int64_t n = 300;
    tensor_manual_seed(seed);
    tensor_t *single = tensor_to(tensor_rand(n), TENSOR_F64), *twice = tensor_rand_of(TENSOR_F64, n);
    tensor_t *whole = tensor_randint(-5, 1000, n), *coins = tensor_bernoulli(tensor_full(0.3, n));
    tensor_t *normal = tensor_to(tensor_randn(n), TENSOR_F64), *wide = tensor_randn_of(TENSOR_F64, n);
    for (int64_t k = 0; k < n; k++) {
        uint32_t w[4];
        philox(seed, 0, (uint64_t)k >> 2, w);
        CHECK(tensor_item(tensor_select(single, 0, k)) == (double)(w[k & 3] >> 8) * 0x1p-24);
        philox(seed, 1, (uint64_t)k >> 1, w);
        uint64_t u = (uint64_t)w[2 * (k & 1) + 1] << 32 | w[2 * (k & 1)];
        CHECK(tensor_item(tensor_select(twice, 0, k)) == (double)(u >> 11) * 0x1p-53);
        philox(seed, 2, (uint64_t)k >> 1, w);
        u = (uint64_t)w[2 * (k & 1) + 1] << 32 | w[2 * (k & 1)];
        uint64_t high = (u >> 32) * 1005 + ((u & 0xFFFFFFFFu) * 1005 >> 32);
        CHECK(tensor_item_i64(tensor_select(whole, 0, k)) == (int64_t)(high >> 32) - 5);
        philox(seed, 3, (uint64_t)k >> 2, w);
        CHECK(tensor_item(tensor_select(coins, 0, k)) == (double)((double)w[k & 3] * 0x1p-32 < (double)0.3f));
        for (int kind = 0; kind < 2; kind++) {
            philox(seed, (uint64_t)(4 + kind), (uint64_t)k >> 2, w);
            double r = sqrt(-2 * log(((double)w[k & 2] + 1) * 0x1p-32));
            double angle = 6.283185307179586 * ((double)w[(k & 2) + 1] * 0x1p-32);
            double want = r * (k & 1 ? sin(angle) : cos(angle));
            CHECK_NEAR(tensor_item(tensor_select(kind ? wide : normal, 0, k)), want, kind ? 1e-13 : 2e-6);
        }
    }
}

// The integer is the high word of the 128-bit product of a random word and the range, of a wide range too.
static void wide_integers(void) {
    const uint64_t range = 0xFEDCBA9876543u, high = range >> 32, low = (uint32_t)range;
    tensor_manual_seed(5);
    tensor_t *x = tensor_randint(-7, (int64_t)range - 7, 50);
    for (int64_t k = 0; k < 50; k++) {
        uint32_t w[4];
        philox(5, 0, (uint64_t)k >> 1, w);
        uint64_t a = w[2 * (k & 1) + 1], b = w[2 * (k & 1)];
        uint64_t middle = (b * low >> 32) + (uint32_t)(a * low) + (uint32_t)(b * high);
        uint64_t want = a * high + (a * low >> 32) + (b * high >> 32) + (middle >> 32);
        CHECK(tensor_item_i64(tensor_select(x, 0, k)) == (int64_t)want - 7);
    }
}

// ---- memory ----

static tensor_t *twice_of(tensor_t *const *inputs, int n, void *user) {
    (void)n, (void)user;
    return tensor_exp(tensor_mul_scalar(inputs[0], 2));
}
static void *packed(tensor_t *x, void *user) {
    (void)user;
    return tensor_keep(x);
}
static tensor_t *unpacked(void *x, void *user) {
    (void)user;
    return (tensor_t *)x;
}
static void dropped(void *x, void *user) {
    (void)user;
    tensor_free((tensor_t *)x);
}

// A step that saves values through hooks and one that computes them again take the same memory each time.
static void steady(void) {
    static const tensor_saved_hooks_t hooks = {packed, unpacked, dropped, NULL};
    tensor_t *x = tensor_requires_grad_(tensor_ones(100), 1);
    uint64_t first = 0;
    for (int step = 0; step < 5000; step++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_set_saved_tensors_hooks(&hooks);
        tensor_t *y = tensor_mul(tensor_exp(x), tensor_sin(tensor_mul_scalar(x, 3)));
        tensor_backward(tensor_sum(y));
        tensor_set_saved_tensors_hooks(NULL);
        tensor_backward(tensor_sum(tensor_checkpoint(twice_of, NULL, &x, 1)));
        tensor_scope_end(scope);
        if (step == 100) { first = tensor_memory_stats().reserved_bytes; }
    }
    CHECK(tensor_memory_stats().reserved_bytes == first);
}

// ---- special functions ----

// Q(2, x) = (1 + x) e^-x, Q(3, x) = (1 + x + x^2 / 2) e^-x, digamma(n) = 1 + 1/2 + .. + 1 / (n - 1) - gamma
static void tails(void) {
    double harmonic = -0.57721566490153286;
    for (int k = 1; k < 40; k++) {
        double x = 0.75 * k;
        tensor_t *at = tensor_full_of(TENSOR_F64, x, 1), *two = tensor_full_of(TENSOR_F64, 2, 1);
        double q = (1 + x) * exp(-x), wide = (1 + x + x * x / 2) * exp(-x);
        CHECK_NEAR(tensor_item(tensor_igammac(two, at)) / q, 1, 1e-12);
        CHECK_NEAR(tensor_item(tensor_igammac(tensor_add_scalar(two, 1), at)) / wide, 1, 1e-12);
        CHECK_NEAR(tensor_item(tensor_digamma(tensor_full_of(TENSOR_F64, k, 1))), harmonic, 4e-15);
        harmonic += 1.0 / k;
    }
}

// ---- long sums ----

// Few sums of many elements, at each place of the list; sums of many rows at few places.
static void long_sums(void) {
    static const tensor_dtype_t types[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64};
    for (int k = 0; k < 3; k++) {
        tensor_t *row = tensor_to(tensor_reshape(tensor_arange(1, 8, 1, TENSOR_F32), 7, 1), types[k]);
        tensor_t *x = tensor_contiguous(tensor_expand(row, 7, 100000));
        tensor_t *sum = tensor_sum_dim(x, 1, 0), *most = tensor_amax_dim(x, 1, 0);
        for (int64_t i = 0; i < 7; i++) {
            CHECK(tensor_item(tensor_select(sum, 0, i)) == 100000.0 * (double)(i + 1));
            CHECK(tensor_item(tensor_select(most, 0, i)) == (double)(i + 1));
        }
    }
    for (int64_t n = 1; n < 12; n++) {
        tensor_t *index = tensor_remainder_scalar(tensor_arange(0, 6000, 1, TENSOR_I64), 3);
        tensor_t *src =
            tensor_contiguous(tensor_expand(tensor_arange(1, (double)n + 1, 1, TENSOR_F32), 6000, n));
        tensor_t *sum = tensor_index_add(tensor_zeros(3, n), 0, index, src);
        tensor_t *want = tensor_mul_scalar(tensor_arange(1, (double)n + 1, 1, TENSOR_F32), 2000);
        CHECK(tensor_equal(sum, tensor_expand(want, 3, n)));
    }
}

// ---- modules and optimizers ----

// PyTorch: LayerNorm((2, 3)) of arange(12).reshape(2, 2, 3): [-1.4638, -0.8783, -0.2928, 0.2928, ...]
static void norm_of_two_dims(void) {
    nn_module_t *norm = nn_layer_norm(.normalized_shape = TENSOR_DIMS(2, 3));
    tensor_t *x = tensor_reshape(tensor_arange(0, 12, 1, TENSOR_F32), 2, 2, 3), *y = nn_forward(norm, x);
    CHECK_NEAR(tensor_item(tensor_at(y, "0, 0, 0")), -1.46385, 1e-4);
    CHECK_NEAR(tensor_item(tensor_at(y, "1, 0, 1")), -0.87831, 1e-4);
    CHECK_POISON(nn_forward(norm, tensor_zeros(3, 2)), TENSOR_ERR_SHAPE, "must end in the dims [2,3]");
    nn_free(norm);
}

// The variance of a row of any length, whose mean is far from 0: nothing behind the row is counted.
static void norms_of_rows(void) {
    for (int64_t n = 2; n < LONGEST; n++) {
        tensor_t *x = tensor_add_scalar(tensor_randn(3, n), 20), *wide = tensor_to(x, TENSOR_F64);
        tensor_t *y = tensor_layer_norm(x, 1, .eps = 1e-5);
        tensor_t *middle = tensor_sub(wide, tensor_mean_dim(wide, 1, 1));
        tensor_t *var = tensor_mean_dim(tensor_square(middle), 1, 1);
        tensor_t *want = tensor_div(middle, tensor_sqrt(tensor_add_scalar(var, 1e-5)));
        tensor_t *error = tensor_sub(tensor_to(y, TENSOR_F64), want);
        CHECK_NEAR(tensor_item(tensor_max(tensor_abs(error))), 0, 1e-4);
    }
}

static void no_layers(void) {
    tensor_t *x = tensor_zeros(3, 2, 4), *weights[4] = {tensor_zeros(12, 4), tensor_zeros(12, 3), NULL, NULL};
    tensor_state_t y = tensor_lstm(x, .weights = weights, .layers = TENSOR_ZERO);
    CHECK(tensor_is_poison(y.y));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "layers (0) in 1..");
}

static void label_of_the_last_item(void) {
    const int64_t labels[4] = {1, 2, 1, 5}, lengths[2] = {2, 2}, steps[2] = {4, 4};
    tensor_t *x = tensor_log_softmax(tensor_randn(4, 2, 5), 2), *t = tensor_from(labels, TENSOR_I64, 2, 2);
    CHECK_POISON(
        tensor_ctc_loss(x, t, tensor_from(steps, TENSOR_I64, 2), tensor_from(lengths, TENSOR_I64, 2)),
        TENSOR_ERR_INDEX, "ctc_loss");
}

static void no_samples(void) {
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.len = -1;
    CHECK(nn_data_loader(d) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "the dataset's len is negative");
}

// A stream whose last batch is short of one sample only.
static int seven(void *user, nn_item_t *item, void *x, void *y) {
    (void)user, (void)y;
    if (item->index >= 7) { return NN_END; }
    *(int64_t *)x = item->index;
    return 0;
}
static void short_of_one(void) {
    nn_dataset_t d;
    nn_batch_t b;
    memset((void *)&d, 0, sizeof d);
    d.next = seven;
    d.x_dtype = TENSOR_I64;
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 4);
    CHECK(nn_next(l, &b) && b.size == 4 && tensor_size(b.x, 0) == 4);
    CHECK(nn_next(l, &b) && b.size == 3 && tensor_size(b.x, 0) == 3);
    CHECK(!nn_next(l, &b));
    nn_data_loader_free(l);
}

// PyTorch: OneCycleLR(max_lr 1, total_steps 10), steps 0, 2, 5, 9
static void cycle(void) {
    static const double want[] = {0.04, 1, 0.6112620219362893, 4e-6};
    static const int64_t at[] = {0, 2, 5, 9};
    for (int k = 0; k < 4; k++) {
        CHECK_NEAR(nn_lr_one_cycle(at[k], 10, 1, 0.3, 25, 1e4), want[k], 1e-12);
    }
    CHECK_NEAR(nn_lr_one_cycle(50, 10, 1, 0.3, 25, 1e4), 4e-6, 1e-15);
}

// A refused call has done nothing: the next one works.
static void unscale_refuses(void) {
    nn_module_t *m = nn_linear(2, 1);
    nn_optimizer_t *o = nn_sgd(m, .lr = 0.1);
    tensor_t *scaler = nn_grad_scaler(4, 1000), *w;
    CHECK(nn_parameters(m, &w, 1) == 2);
    tensor_backward(nn_scaler_scale(scaler, tensor_sum(nn_forward(m, tensor_ones(1, 2)))));
    CHECK(nn_scaler_unscale(tensor_zeros(2), o) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "scaler");
    CHECK(tensor_item(tensor_max(tensor_grad(w))) == 4);
    CHECK(nn_scaler_unscale(scaler, o) == 0 && tensor_item(tensor_max(tensor_grad(w))) == 1);
    tensor_free(scaler);
    nn_optimizer_free(o);
    nn_free(m);
}

// Parameters with the same options are one group; others are groups of their own.
static void groups(void) {
    nn_module_t *m = nn_sequential(nn_linear(2, 3), nn_linear(3, 1));
    nn_optimizer_t *o = nn_adam(m, .lr = 0.1);
    tensor_t *w[4];
    CHECK(nn_parameters(m, w, 4) == 4);
    CHECK(nn_num_groups(o) == 1);
    CHECK(nn_optimizer_group(o, w, 1, .lr = 0.5) == 0 && nn_optimizer_group(o, w + 2, 1, .lr = 0.5) == 0);
    CHECK(nn_num_groups(o) == 2);
    nn_optimizer_free(o);
    nn_free(m);
}

// A checkpoint names the state of every parameter by the parameter, of the last one too.
static void names_of_states(void) {
    const char *path = "details.safetensors";
    nn_module_t *m = nn_linear(2, 1);
    nn_optimizer_t *o = nn_adam(m);
    tensor_backward(tensor_sum(nn_forward(m, tensor_ones(1, 2))));
    CHECK(nn_step(o) == 0 && nn_save_checkpoint(path, m, o, 1) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    CHECK(!tensor_is_poison(nn_safetensors_get(r, "optimizer/exp_avg/weight")));
    CHECK(!tensor_is_poison(nn_safetensors_get(r, "optimizer/exp_avg/bias")));
    nn_safetensors_close(r);
    remove(path);
    nn_optimizer_free(o);
    nn_free(m);
}

// The count of steps of every parameter is checked, the last one's too.
static void steps_of_the_last(void) {
    const char *path = "details.safetensors";
    static char file[8000];
    nn_module_t *m = nn_linear(2, 1);
    nn_optimizer_t *o = nn_adam(m);
    CHECK(nn_save_checkpoint(path, m, o, 3) == 0 && nn_load_checkpoint(path, m, o, NULL) == 0);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(file, 1, sizeof file, f) : 0, header = n > 8 ? (unsigned char)file[0] : 0, end = 0;
    header += n > 8 ? (size_t)(unsigned char)file[1] << 8 : 0;
    char *at = strstr(file + 8, "\"optimizer/steps\"");
    if (f) { fclose(f); }
    if (at) { at = strstr(at, "data_offsets"); }
    if (at) { at = strchr(at, ','); }
    if (at) { end = 8 + header + (size_t)strtol(at + 1, NULL, 10); }
    CHECK(end > 8 && end <= n);
    if (end > 8 && end <= n) { file[end - 1] = (char)0x80; } // the highest byte of the last count
    f = fopen(path, "wb");
    CHECK(f && fwrite(file, 1, n, f) == n);
    if (f) { fclose(f); }
    CHECK(nn_load_checkpoint(path, m, o, NULL) == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "load_checkpoint");
    remove(path);
    nn_optimizer_free(o);
    nn_free(m);
}

// A step that the scaler skipped counts for no parameter.
static void skipped_steps(void) {
    const char *path = "details.safetensors";
    nn_module_t *m = nn_linear(2, 1);
    nn_optimizer_t *o = nn_adam(m);
    tensor_t *scaler = nn_grad_scaler(4, 1000), *x = tensor_ones(1, 2);
    for (int step = 0; step < 3; step++) {
        nn_zero_grad(o);
        tensor_t *loss = tensor_mul_scalar(tensor_sum(nn_forward(m, x)), step == 1 ? (double)INFINITY : 1);
        tensor_backward(nn_scaler_scale(scaler, loss));
        CHECK(nn_scaler_step(scaler, o) == 0 && nn_scaler_update(scaler) == 0);
    }
    CHECK(nn_save_checkpoint(path, m, o, 3) == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    tensor_t *steps = nn_safetensors_get(r, "optimizer/steps");
    CHECK(tensor_numel(steps) == 2 && tensor_item_i64(tensor_at(steps, "0")) == 2);
    CHECK(tensor_item_i64(tensor_at(steps, "1")) == 2);
    nn_safetensors_close(r);
    remove(path);
    tensor_free(scaler);
    nn_optimizer_free(o);
    nn_free(m);
}

// What a module becomes in another dtype is contiguous.
static void moved(void) {
    nn_module_t *m = nn_sequential_n(NULL, 0);
    tensor_t *w = nn_parameter(m, "w", tensor_clone(tensor_mT(tensor_randn(2, 3))));
    CHECK(nn_to(m, TENSOR_F32) == 0 && nn_parameters(m, &w, 1) == 1 && tensor_is_contiguous(w));
    CHECK(nn_to(m, TENSOR_F64) == 0);
    CHECK(nn_parameters(m, &w, 1) == 1);
    CHECK(tensor_is_contiguous(w) && tensor_dtype(w) == TENSOR_F64);
    nn_free(m);
}

// Singular vectors begin as random numbers, also in memory that held zeros.
static void spectral_begin(void) {
    for (int k = 0; k < 3; k++) {
        nn_module_t *m = nn_linear(3, 4);
        tensor_t *zeros[60];
        for (int i = 0; i < 60; i++) {
            zeros[i] = tensor_zeros(i % 2 ? 3 : 4);
        }
        for (int i = 0; i < 60; i++) {
            tensor_free(zeros[i]);
        }
        m = nn_spectral_norm(m);
        tensor_t *y = nn_forward(m, tensor_ones(1, 3));
        CHECK(tensor_item(tensor_sum(tensor_abs(y))) < 100);
        nn_free(m);
    }
}

// PyTorch: LBFGS([x], max_iter=, lr=, line_search_fn="strong_wolfe") of two functions, and 1e-4 of
// the first; tolerance_grad=1e-12: x, how many calls
typedef struct searched_t {
    nn_optimizer_t *o;
    tensor_t *x;
    int which, calls;
} searched_t;
static tensor_t *surface(void *user) {
    searched_t *v = (searched_t *)user;
    tensor_t *a = tensor_select(v->x, 0, 0), *b = tensor_select(v->x, 0, 1), *y;
    v->calls++;
    if (v->which != 1) {
        y = tensor_mul_scalar(tensor_square(tensor_sub(b, tensor_square(a))), 100);
        y = tensor_add(y, tensor_square(tensor_rsub_scalar(a, 1)));
        y = v->which == 2 ? tensor_mul_scalar(y, 1e-4) : y;
    } else {
        y = tensor_mul_scalar(tensor_sum(tensor_pow_scalar(v->x, 4)), 0.25);
        y = tensor_sub(y, tensor_sum(tensor_cos(tensor_mul_scalar(v->x, 3))));
    }
    nn_zero_grad(v->o);
    tensor_backward(y);
    return y;
}
static void searches(void) {
    static const struct {
        int which, most;
        double lr, x[2];
        int calls;
        double change; // tolerance_change, 0: 1e-9
    } of[] = {
        {0, 3, 1, {-1.4172551712244599, 2.0266918802501741}, 3, 0},
        {0, 6, 1, {-1.4142309487677067, 1.9949020404366438}, 7, 0},
        {0, 12, 1, {-0.8258409543537103, 0.631317251131436}, 15, 0},
        {1, 4, 1, {1.4803005150350521, -1.4581603004371275}, 5, 0},
        {1, 10, 1, {0.14852473996583276, 0.1402968531550301}, 13, 0},
        {0, 5, 20, {-1.4187086536946873, 2.0262230149371976}, 6, 0},
        {0, 5, 0.01, {-1.4250369505539302, 2.0244015404753748}, 7, 0},
        {1, 5, 30, {0.27106877392848888, -0.72413455195822451}, 7, 0},
        {0, 50, 1, {-1.4172551712244599, 2.0266918802501741}, 3, 0.05},
        {0, 50, 1, {-1.4200404011339869, 2.0248682148610269}, 4, 0.02},
        {2, 50, 1, {-1.4249662008635142, 2.0243846114994803}, 3, 1e-5},
    };
    static const double start[3][2] = {{-1.5, 2}, {2.5, -3}, {-1.5, 2}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        searched_t v = {NULL, NULL, of[k].which, 0};
        v.x = tensor_requires_grad_(tensor_from(start[v.which], TENSOR_F64, 2), 1);
        v.o = nn_lbfgs(.list = &v.x, .count = 1, .line_search_fn = NN_STRONG_WOLFE, .max_iter = of[k].most,
                       .lr = of[k].lr, .tolerance_change = of[k].change, .tolerance_grad = 1e-12);
        nn_step_closure(v.o, surface, &v);
        CHECK_NEAR(tensor_item(tensor_select(v.x, 0, 0)), of[k].x[0], 1e-9);
        CHECK_NEAR(tensor_item(tensor_select(v.x, 0, 1)), of[k].x[1], 1e-9);
        CHECK_MSG(v.calls == of[k].calls, "search %d: %d calls", (int)k, v.calls);
        nn_optimizer_free(v.o);
    }
}

// PyTorch: Adafactor([w], lr=0.01), three steps with gradients k * 1e-3 * [[1, -2], [3, -4]]
static void factored(void) {
    static const float start[4] = {1, 2, 3, 4}, g[4] = {1e-3f, -2e-3f, 3e-3f, -4e-3f};
    static const double want[4] = {0.935348034, 2.09143186, 2.91326022, 4.081779};
    tensor_t *w = tensor_requires_grad_(tensor_from(start, TENSOR_F32, 2, 2), 1);
    nn_optimizer_t *o = nn_adafactor(.list = &w, .count = 1, .lr = 0.01);
    for (int step = 1; step <= 3; step++) {
        tensor_set_grad(w, tensor_mul_scalar(tensor_from(g, TENSOR_F32, 2, 2), step));
        CHECK(nn_step(o) == 0);
    }
    for (int64_t k = 0; k < 4; k++) {
        CHECK_NEAR(tensor_item(tensor_select(tensor_flatten(w, 0, -1), 0, k)), want[k], 1e-6);
    }
    nn_optimizer_free(o);
}

// Nothing cut into no parts is an error, as any other wrong list is.
static void split_into_none(void) {
    int64_t none = 0;
    nn_dataset_t d = nn_tensor_dataset(tensor_zeros(0, 2), NULL), part;
    CHECK(nn_random_split(d, &none, 0, 1, &part) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "random_split");
    CHECK(nn_random_split(d, &none, 1, 1, &part) == 0 && part.len == 0);
}

// PyTorch: xavier_uniform_ of [4, 6, 3, 5] is in +-sqrt(6 / ((4 + 6) * 15)).
static void fans(void) {
    tensor_t *w = tensor_zeros(4, 6, 3, 5);
    double bound = sqrt(6.0 / 150);
    nn_init_xavier_uniform_(w, 1);
    double most = tensor_item(tensor_max(tensor_abs(w)));
    CHECK(most <= bound * 1.000001 && most > 0.9 * bound);
}

static void prints(void) {
    nn_module_t *m = nn_linear(2, 1);
    CHECK(nn_print(m) == 0);
    nn_free(m);
}

// ---- convolutions ----

static double most_apart(tensor_t *a, tensor_t *b) {
    return tensor_item(
        tensor_max(tensor_abs(tensor_sub(tensor_to(a, TENSOR_F64), tensor_to(b, TENSOR_F64)))));
}

// Every count of outputs and two sizes of image, forward and backward, in f32 as in f64.
static void counts_of_outputs(void) {
    for (int64_t outputs = 1; outputs <= 18; outputs++) {
        for (int64_t side = 9; side <= 18; side += 9) {
            tensor_scope_t scope = tensor_scope_begin();
            tensor_t *x = tensor_requires_grad_(tensor_randn(2, 16, side, side), 1);
            tensor_t *w = tensor_requires_grad_(tensor_randn(outputs, 16, 3, 3), 1);
            tensor_t *y = tensor_conv2d(x, w, .padding = 1), *g = tensor_randn_like(y);
            tensor_t *in[2] = {x, w}, *got[2], *want[2];
            CHECK(tensor_autograd_grad(&y, 1, &g, in, 2, got, 0) == 0);
            in[0] = tensor_requires_grad_(tensor_to(tensor_detach(x), TENSOR_F64), 1);
            in[1] = tensor_requires_grad_(tensor_to(tensor_detach(w), TENSOR_F64), 1);
            tensor_t *wide = tensor_conv2d(in[0], in[1], .padding = 1), *wide_g = tensor_to(g, TENSOR_F64);
            CHECK(tensor_autograd_grad(&wide, 1, &wide_g, in, 2, want, 0) == 0);
            CHECK_NEAR(most_apart(y, wide), 0, 1e-4);
            CHECK_NEAR(most_apart(got[0], want[0]), 0, 1e-4);
            CHECK_NEAR(most_apart(got[1], want[1]), 0, 1e-3);
            tensor_scope_end(scope);
        }
    }
}

// ---- files ----

// Columns first, with four dims.
static void columns_first(void) {
    tensor_t *x = tensor_reshape(tensor_arange(0, 120, 1, TENSOR_F32), 5, 4, 3, 2), *file = nn_format_npy(x);
    char *text = (char *)tensor_data(file);
    size_t k = 0, n = (size_t)tensor_numel(file);
    while (k < n && memcmp(text + k, "False", 5) != 0) { k++; }
    memcpy(text + k, "True ", 5);
    tensor_t *want = tensor_permute(tensor_reshape(tensor_flatten(x, 0, -1), 2, 3, 4, 5), 3, 2, 1, 0);
    CHECK(tensor_equal(nn_parse_npy(text, n), want));
}

static uint64_t number_at(const unsigned char *p, int bytes) {
    uint64_t v = 0;
    while (bytes-- > 0) { v = v << 8 | p[bytes]; }
    return v;
}
static void put_number(unsigned char *p, uint64_t v, int bytes) {
    for (int k = 0; k < bytes; k++) { p[k] = (unsigned char)(v >> 8 * k); }
}

// An archive whose directory has an unknown field, a zip64 field of three values and a comment in each entry;
// then with zip64's own end.
static void wide_directory(void) {
    static const char *const names[2] = {"a", "bcd"};
    tensor_t *x[2] = {tensor_arange(0, 6, 1, TENSOR_F32), tensor_ones_of(TENSOR_I64, 2, 2)};
    tensor_t *file = nn_npz_format(names, x, 2);
    const unsigned char *old = (const unsigned char *)tensor_data(file);
    size_t n = (size_t)tensor_numel(file), end = n - 22, from = (size_t)number_at(old + end + 16, 4);
    static unsigned char made[4000];
    size_t to = from;
    if (n + 200 > sizeof made) { return CHECK(n + 200 <= sizeof made); }
    memcpy(made, old, from);
    while (from < end) {
        size_t named = (size_t)number_at(old + from + 28, 2), extra = (size_t)number_at(old + from + 30, 2);
        unsigned char *entry = made + to;
        memcpy(entry, old + from, 46 + named + extra);
        unsigned char *field = entry + 46 + named + extra;
        memcpy(field, "\x34\x12\x02\0ab\x01\0\x18\0", 10);
        put_number(field + 10, number_at(entry + 24, 4), 8);
        put_number(field + 18, number_at(entry + 20, 4), 8);
        put_number(field + 26, number_at(entry + 42, 4), 8);
        memcpy(field + 34, "why", 3);
        put_number(entry + 20, 0xFFFFFFFF, 4);
        put_number(entry + 24, 0xFFFFFFFF, 4);
        put_number(entry + 42, 0xFFFFFFFF, 4);
        put_number(entry + 30, extra + 34, 2);
        put_number(entry + 32, 3, 2);
        from += 46 + named + extra;
        to += 46 + named + extra + 37;
    }
    memcpy(made + to, old + end, 22);
    put_number(made + to + 12, to - (size_t)number_at(old + end + 16, 4), 4);
    nn_npz_t *r = nn_npz_parse(made, to + 22);
    CHECK_MSG(r != NULL, "%s", tensor_error_text());
    for (int k = 0; r && k < 2; k++) { CHECK(test_same_bits(nn_npz_get(r, names[k]), x[k])); }
    nn_npz_close(r);

    // With the record of zip64, which holds what its end of 22 bytes cannot.
    size_t directory = (size_t)number_at(old + end + 16, 4);
    unsigned char *record = made + to;
    memset(record, 0, 76);
    put_number(record, 0x06064B50, 4);
    put_number(record + 32, 2, 8);
    put_number(record + 40, to - directory, 8);
    put_number(record + 48, directory, 8);
    put_number(record + 56, 0x07064B50, 4);
    put_number(record + 64, to, 8);
    memcpy(record + 76, old + end, 22);
    memset(record + 84, 0xFF, 12);
    r = nn_npz_parse(made, to + 98);
    CHECK_MSG(r != NULL, "%s", tensor_error_text());
    for (int k = 0; r && k < 2; k++) { CHECK(test_same_bits(nn_npz_get(r, names[k]), x[k])); }
    nn_npz_close(r);
    record[0]++;
    CHECK(nn_npz_parse(made, to + 98) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "the end of the directory is damaged");
    record[0]--;
    put_number(record + 64, to + 60, 8);
    CHECK(nn_npz_parse(made, to + 98) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "the end of the directory is damaged");
}

// Two arrays of one name, and no others
static void one_name_twice(void) {
    const char *names[2] = {"a", "b"};
    tensor_t *x[2] = {tensor_ones(2), tensor_zeros(3)}, *bytes = nn_npz_format(names, x, 2);
    unsigned char *p = (unsigned char *)tensor_data(bytes);
    size_t n = (size_t)tensor_numel(bytes);
    for (size_t k = 0; k + 5 <= n; k++) {
        if (memcmp(p + k, "b.npy", 5) == 0) { p[k] = 'a'; }
    }
    CHECK(nn_npz_parse(p, n) == NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "two arrays are called \"a\"");
}

// A batch of two products for four workers: each is cut into two rectangles.
static void in_turn(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    (void)user;
    while (n-- > 0) { task(arg, n); }
}
static void rectangles_of_a_batch(void) {
    tensor_t *x = tensor_randn(2, 256, 128), *y = tensor_randn(2, 128, 64), *alone = tensor_bmm(x, y);
    CHECK(tensor_set_parallel_for(in_turn, NULL, 4) == 0);
    CHECK(test_same_bits(tensor_bmm(x, y), alone));
    CHECK(tensor_set_parallel_for(NULL, NULL, 1) == 0);
}

// The number below which a normal variable is with a probability of 1e-5 to 1e-305
static void far_quantiles(void) {
    for (int k = 5; k < 306; k += 12) {
        double p = pow(10, -k), y = tensor_item(tensor_ndtri(tensor_full_of(TENSOR_F64, p, 1)));
        CHECK_NEAR(0.5 * erfc(-y * 0.7071067811865476) / p, 1, 1e-10);
    }
}

int main(void) {
    RUN(one_name_twice);
    RUN(far_quantiles);
    RUN(rectangles_of_a_batch);
    RUN(outer_place);
    RUN(set_of_owned);
    RUN(saved_copies);
    RUN(divisors);
    RUN(sorts_the_last);
    RUN(extreme_logits);
    RUN(infinite_logits);
    RUN(log_softmax_rows);
    RUN(linspaces);
    RUN(letters);
    RUN(rolls);
    RUN(lent_with_strides);
    RUN(bad_lists);
    RUN(on_the_way);
    RUN(given_gradients);
    RUN(wrapped_gradients);
    RUN(changed_values);
    RUN(streams_of_numbers);
    RUN(wide_integers);
    RUN(steady);
    RUN(tails);
    RUN(long_sums);
    RUN(norm_of_two_dims);
    RUN(norms_of_rows);
    RUN(no_layers);
    RUN(label_of_the_last_item);
    RUN(no_samples);
    RUN(short_of_one);
    RUN(cycle);
    RUN(unscale_refuses);
    RUN(groups);
    RUN(names_of_states);
    RUN(steps_of_the_last);
    RUN(skipped_steps);
    RUN(moved);
    RUN(spectral_begin);
    RUN(searches);
    RUN(factored);
    RUN(split_into_none);
    RUN(fans);
    RUN(prints);
    RUN(counts_of_outputs);
    RUN(columns_first);
    RUN(wide_directory);
    return test_report();
}

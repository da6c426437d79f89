// conversions.c - i8 and i16, every half and floats of all exponents to other dtypes, dtypes that numbers
// keep or change, any and all of bytes
#include "elements_are.h"

static void small_integers(void) {
    static const int8_t a8[] = {-128, -1, 0, 5, 127}, b8[] = {1, 2, 3, -4, 127};
    static const int16_t a16[] = {-32768, -1, 0, 300, 32767};
    tensor_t *a = tensor_from(a8, TENSOR_I8, 5), *b = tensor_from(b8, TENSOR_I8, 5);
    tensor_t *w = tensor_from(a16, TENSOR_I16, 5);
    tensor_t *u = tensor_to(X(0, 1, 200, 255, 7), TENSOR_U8);
    char text[200];
    CHECK(tensor_dtype_size(TENSOR_I8) == 1 && tensor_dtype_size(TENSOR_I16) == 2);
    CHECK(TENSOR_I8 == 8 && TENSOR_I16 == 9); // numbers of the others stay
    IS(0, tensor_add(a, b), -127, 1, 3, 1, -2);
    IS(0, tensor_mul(a, b), -128, -2, 0, -20, 1);
    IS(0, tensor_neg(a), -128, 1, 0, -5, -127);
    IS(0, tensor_abs(w), -32768, 1, 0, 300, 32767);
    IS(0, tensor_floor_divide(a, b), -128, -1, 0, -2, 1);
    CHECK(tensor_dtype(tensor_add(a, u)) == TENSOR_I16);
    IS(0, tensor_add(a, u), -128, 0, 200, 260, 134);
    IS(0, tensor_bitwise_not(w), 32767, 0, -1, -301, -32768);
    IS(0, tensor_to(w, TENSOR_I8), 0, -1, 0, 44, -1);
    IS(0, tensor_to(X(-1e9, -128.9, 127.9, NANF, INF), TENSOR_I8), -128, -128, 127, 0, 127);
    IS(0, tensor_to(X(-1e9, 1e9, NANF, -1.5), TENSOR_I16), -32768, 32767, 0, -1);
    CHECK(tensor_dtype(tensor_sum(a)) == TENSOR_I64 && tensor_item(tensor_sum(a)) == 3);
    CHECK(tensor_dtype(tensor_max(w)) == TENSOR_I16 && tensor_item(tensor_max(w)) == 32767);
    CHECK(tensor_item(tensor_argmin(a)) == 0);
    CHECK(tensor_dtype(tensor_exp(a)) == TENSOR_F32 && tensor_dtype(tensor_div(a, b)) == TENSOR_F32);
    IS(0, tensor_add_scalar(a, 1), -127, 0, 1, 6, -128);
    CHECK(tensor_dtype(tensor_add_scalar(w, 0.5)) == TENSOR_F32);
    IS(0, tensor_matmul(tensor_reshape(b, 1, 5), tensor_reshape(b, 5, 1)), 31);   // 16159 wraps
    IS(0, tensor_index_select(w, 0, tensor_to(X(4, 0), TENSOR_I64)), 32767, -32768);
    IS(0, tensor_cat(0, a, w), -128, -1, 0, 5, 127, -32768, -1, 0, 300, 32767);
    CHECK(tensor_dtype(tensor_cat(0, a, w)) == TENSOR_I16);
    tensor_to_string(a, text, sizeof text);
    CHECK_MSG(!strcmp(text, "tensor([-128,   -1,    0,    5,  127], dtype=i8)"), "%s", text);
    CHECK_POISON(tensor_floor_divide(a, tensor_zeros_of(TENSOR_I8, 5)), TENSOR_ERR_INDEX, "division by zero");
    CHECK_POISON(tensor_requires_grad_(a, 1), TENSOR_ERR_DTYPE, "i8");
    CHECK_POISON(tensor_mean(w), TENSOR_ERR_DTYPE, "i16");
    CHECK_POISON(tensor_add_(a, w = tensor_to(w, TENSOR_F32)), TENSOR_ERR_DTYPE, "f32");
}

// Ties and NaN, dtypes that stay or do not, numbers that a dtype cannot hold.
static void dtypes_of_numbers(void) {
    static const uint8_t bytes[] = {1, 2, 200};
    static const int32_t three[] = {3, 4, 5};
    tensor_t *u = tensor_from_n(bytes, TENSOR_U8, (const int64_t[]){3}, 1);
    tensor_t *i = tensor_from_n(three, TENSOR_I32, (const int64_t[]){3}, 1), *y;
    tensor_t *b = tensor_gt_scalar(u, 1), *h = tensor_to(X(1, 0x1p-10, 3), TENSOR_F16);
    tensor_t *p = tensor_requires_grad_(X(1, 2, NANF, 4), 1), *q = tensor_requires_grad_(X(1, 3, 5, NANF), 1);
    CHECK(tensor_backward(tensor_sum(tensor_fmax(p, q))) == 0);
    IS(0, tensor_grad(p), 0.5, 0, 0, 1);
    IS(0, tensor_grad(q), 0.5, 1, 1, 0);
    CHECK(tensor_backward(tensor_sum(tensor_fmin(p, q))) == 0);
    IS(0, tensor_grad(p), 1, 1, 0, 2);
    IS(0, tensor_grad(q), 1, 1, 2, 0);
    y = tensor_addcmul(i, i, i, 2);
    CHECK(tensor_dtype(y) == TENSOR_I32);
    IS(0, y, 21, 36, 55);
    CHECK(tensor_dtype(tensor_addcmul_(tensor_clone(u), u, u, 1)) == TENSOR_U8);
    CHECK_POISON(tensor_addcmul(b, b, b, 1), TENSOR_ERR_DTYPE, "is bool, must be of numbers");
    CHECK_POISON(tensor_addcdiv(X(1, 2, 3), i, u, 1),
                 TENSOR_ERR_DTYPE, "addcdiv: a [3] is i32 and b [3] is u8");
    CHECK_POISON(tensor_addcdiv_(X(1, 2, 3), i, u, 1), TENSOR_ERR_DTYPE, "one must be a float");
    CHECK(tensor_dtype(tensor_clamp(b, 0, 1)) == TENSOR_I64 && tensor_dtype(tensor_square(b)) == TENSOR_I64);
    IS(0, tensor_clamp(b, 2, 5), 2, 2, 2);
    CHECK_POISON(tensor_clamp_(tensor_clone(b), 0, 1), TENSOR_ERR_DTYPE, "i64 cannot be stored");
    IS(0, tensor_rsub_scalar(u, -1), 254, 253, 55);
    y = tensor_ldexp(h, i);
    CHECK(tensor_dtype(y) == TENSOR_F16);
    IS(0, y, 8, 0x1p-6, 96);
    IS(0, tensor_ldexp(h, tensor_from_n((const int32_t[]){0, 20, 1}, TENSOR_I32, (const int64_t[]){3}, 1)), 1,
       1024, 6);
    IS(0, tensor_ldexp(X(1), tensor_scalar(200, TENSOR_I32)), 0x1p200);

    CHECK_POISON(tensor_full_of(TENSOR_U8, 256, 2), TENSOR_ERR_DTYPE, "full: 256 is outside the range of u8");
    CHECK_POISON(tensor_full_of(TENSOR_U8, -1, 2), TENSOR_ERR_DTYPE, "full: -1 is outside the range of u8");
    CHECK_POISON(tensor_full_of(TENSOR_I64, 0x1p63, 2), TENSOR_ERR_DTYPE, "full: ");
    CHECK_POISON(tensor_full_like(i, (double)NANF),
                 TENSOR_ERR_DTYPE, "full_like: nan is outside the range of i32");
    CHECK_POISON(tensor_scalar(128, TENSOR_I8), TENSOR_ERR_DTYPE, "scalar: 128 is outside the range of i8");
    CHECK_POISON(tensor_fill_(u, 300), TENSOR_ERR_DTYPE, "fill_: 300 is outside the range of u8");
    CHECK_POISON(tensor_masked_fill(u, b, 300), TENSOR_ERR_DTYPE, "masked_fill: 300 is outside");
    CHECK_POISON(tensor_masked_fill_(i, b, INF), TENSOR_ERR_DTYPE, "masked_fill_: inf is outside");
    CHECK_POISON(tensor_index_fill(u, 0, tensor_scalar(0, TENSOR_I64), 300),
                 TENSOR_ERR_DTYPE, "index_fill: 300");
    CHECK_POISON(tensor_scatter_value(u, 0, tensor_zeros_of(TENSOR_I64, 1), 300),
                 TENSOR_ERR_DTYPE, "scatter_value: 300");
    CHECK_POISON(tensor_clamp(u, 256, 300), TENSOR_ERR_DTYPE, "clamp: 256 is outside the range of u8");
    CHECK_POISON(tensor_clamp_max(u, -1), TENSOR_ERR_DTYPE, "clamp_max: -1 is outside the range of u8");
    CHECK_POISON(tensor_clamp_min_(u, 256), TENSOR_ERR_DTYPE, "clamp_min_: 256 is outside the range of u8");
    IS(0, tensor_clamp(u, -5, 300), 1, 2, 200);
    i = tensor_to(X(0, 1, 5, -3), TENSOR_I64); // a fraction turns integers to floats, as in PyTorch
    IS(0, tensor_clamp_max(i, -2.5), -2.5, -2.5, -2.5, -3);
    IS(0, tensor_clamp_min(i, 0.5), 0.5, 1, 5, 0.5);
    IS(0, tensor_clamp(i, 0.5, 2.5), 0.5, 1, 2.5, 0.5);
    CHECK(tensor_dtype(tensor_clamp_min(i, 0.5)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_clamp_min(i, 1)) == TENSOR_I64);
    CHECK_POISON(tensor_clamp_(i, 0.5, 2), TENSOR_ERR_DTYPE, "clamp_: a result of f32 cannot be stored");
    tensor_fill_(tensor_diff(i, 0, 0), 9);
    IS(0, i, 0, 1, 5, -3);
    IS(0, tensor_full_of(TENSOR_U8, 255.9, 2), 255, 255);
    IS(0, tensor_full_of(TENSOR_I64, -0x1p63, 1), -0x1p63);
    IS(0, tensor_full_of(TENSOR_BOOL, 256, 2), 1, 1);
    IS(0, u, 1, 2, 200);
}

// Every half, and floats of all exponents, NaN with its payload too: the same bits whatever converts them.
static void conversions(void) {
    enum { N = 1 << 18 };
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
    static const tensor_dtype_t dtypes[] = {TENSOR_F16, TENSOR_BF16, TENSOR_BOOL};
    uint16_t *halves = (uint16_t *)malloc(65536 * sizeof *halves);
    uint32_t *floats = (uint32_t *)malloc(N * sizeof *floats);
    tensor_t *x, *bytes;
    uint64_t want = 0, h;
    int i, d;
    CHECK(halves && floats);
    if (!halves || !floats) { return; }
    for (i = 0; i < 65536; i++) { halves[i] = (uint16_t)i; }
    for (i = 0; i < N; i++) { floats[i] = (uint32_t)i * 16411u; }
    x = tensor_from(floats, TENSOR_F32, N);
    bytes = tensor_from((void *)halves, TENSOR_U8, 2 * 65536);
    CHECK_OK();
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_isa(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        h = test_hash(TEST_HASH, tensor_to(bytes, TENSOR_F32));
        for (d = 0; d < 3; d++) {
            if (d < 2) { h = test_hash(h, tensor_to(tensor_from(halves, dtypes[d], 65536), TENSOR_F32)); }
            h = test_hash(h, tensor_to(x, dtypes[d]));
        }
        if (!want) { want = h; }
        CHECK_MSG(h == want, "conversions differ on %s", isas[i]);
    }
    tensor_set_isa(NULL);
    free(halves), free(floats);
}

// any and all of u8 are u8, of every other dtype bool.
static void any_of_bytes(void) {
    tensor_t *x = tensor_to(tensor_full(7, 2, 3), TENSOR_U8);
    CHECK(tensor_dtype(tensor_any(x)) == TENSOR_U8 && tensor_item(tensor_any(x)) == 1);
    CHECK(tensor_dtype(tensor_all_dim(x, 1, 0)) == TENSOR_U8);
    CHECK(tensor_item(tensor_sum(tensor_all_dim(x, 1, 0))) == 2);
    CHECK(tensor_dtype(tensor_any(tensor_to(x, TENSOR_I8))) == TENSOR_BOOL);
}

// Half way between two f16 the even one is taken.
static void ties_of_halves(void) {
    for (int k = 0; k < 64; k++) {
        double below = 1 + k / 1024.0, even = k % 2 ? below + 1 / 1024.0 : below;
        CHECK(tensor_item(tensor_full_of(TENSOR_F16, below + 1 / 2048.0, 1)) == even);
        CHECK(tensor_item(tensor_to(tensor_full(below + 1 / 2048.0, 1), TENSOR_F16)) == even);
    }
}

int main(void) {
    RUN(ties_of_halves);
    RUN(small_integers);
    RUN(conversions);
    RUN(dtypes_of_numbers);
    RUN(any_of_bytes);
    return test_report();
}

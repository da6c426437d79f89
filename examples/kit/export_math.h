// export_math.h - the functions that an exported file may need, as C text
//
// Included by the implementation of export_c.h; copy it with that. The texts are the library's functions
// (>>simd-math of tensor.h) without a macro: the same operations in the same order, so the same bits. Sums
// are made in K_LANES chains side by side, which a file defines as 4 for the bits of TENSOR_ISA=portable, as
// 1 for those of the scalar kernels. Roots are the processor's where it has an instruction for them, else
// digit by digit: both are exact.
#ifndef KIT_EXPORT_MATH_H
#define KIT_EXPORT_MATH_H

#include <stdint.h>

// A function is printed if the step needs it, after those that it needs itself, which come earlier in the
// list.
typedef enum kit_math_t {
    KIT_INF, KIT_NAN, KIT_BITS, KIT_LDEXP, KIT_ABS, KIT_SIGN, KIT_LESSER, KIT_LARGER, KIT_FLOOR, KIT_SQRT,
    KIT_SQRT64, KIT_EXP_CORE, KIT_EXP, KIT_EXPM1, KIT_LOG_SUM, KIT_LOG, KIT_LOG1P, KIT_LOG64, KIT_TANH,
    KIT_SIGMOID, KIT_REST, KIT_ERF_CORE, KIT_ERF, KIT_ERFCX, KIT_ERFC, KIT_GELU, KIT_FOLD, KIT_PLACE, KIT_DOT,
    KIT_SUM, KIT_EXP_ROW, KIT_PHILOX, KIT_POWER, KIT_WIDE, KIT_SQUARES, KIT_LEAVES, KIT_DEVIATION,
    KIT_WHOLE, KIT_MATH_COUNT
} kit_math_t;

typedef struct kit_math_text_t { const char *name; uint64_t needs; const char *text; } kit_math_text_t;

#define KIT_ON(id) ((uint64_t)1 << (id))

// clang-format off
#define KIT_MATH_TEXTS \
    {"K_INF", 0, "#define K_INF ((float)(1.0f / 0.0f))\n"}, \
    {"K_NAN", 0, "#define K_NAN ((float)(0.0f / 0.0f))\n"}, \
    {"k_float", 0, \
     "static float k_float(uint32_t bits) {\n    union { uint32_t bits; float f; } u;\n    u.bits = bits;\n    return u.f;\n}\n\n" \
     "static uint32_t k_bits(float f) {\n    union { uint32_t bits; float f; } u;\n    u.f = f;\n    return u.bits;\n}\n\n" \
     "static inline float k_signed(float size, float sign) {\n    return k_float((k_bits(size) & 0x7FFFFFFFu) | (k_bits(sign) & 0x80000000u));\n}\n"}, \
    {"k_ldexp", KIT_ON(KIT_BITS), \
     "// v 2^n for whole n, |n| <= 252, in two factors: 2^-149 and 2^128 are not floats.\n" \
     "static float k_ldexp(float v, float n) {\n" \
     "    int i = n == n ? (int)n : 0, half = i >= 0 ? i / 2 : -((1 - i) / 2);\n" \
     "    return v * k_float((uint32_t)(half + 127) << 23) * k_float((uint32_t)(i - half + 127) << 23);\n}\n"}, \
    {"k_abs", KIT_ON(KIT_BITS), "static inline float k_abs(float x) {\n    return k_float(k_bits(x) & 0x7FFFFFFFu);\n}\n"}, \
    {"k_sign", KIT_ON(KIT_BITS), "static inline float k_sign(float x) {\n    return x > 0 || x < 0 ? k_signed(1, x) : x + 0.0f;\n}\n"}, \
    {"k_min", 0, "static inline float k_min(float a, float b) {\n    return a != a ? a : a < b ? a : b;\n}\n"}, \
    {"k_max", 0, "static inline float k_max(float a, float b) {\n    return a != a ? a : a > b ? a : b;\n}\n"}, \
    {"k_floor", KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_trunc(float x) {\n    return k_abs(x) < 8388608.0f ? k_signed((float)(int32_t)x, x) : x;\n}\n\n" \
     "static inline float k_floor(float x) {\n    float t = k_trunc(x);\n    return t - (t > x ? 1.0f : 0.0f);\n}\n"}, \
    {"k_sqrt", KIT_ON(KIT_BITS), \
     "static float k_sqrt(float x) {\n" \
     "#if defined(__GNUC__) && defined(__SSE2__)\n    __asm__(\"sqrtss %0, %0\" : \"+x\"(x));\n    return x;\n" \
     "#elif defined(__GNUC__) && defined(__aarch64__)\n    __asm__(\"fsqrt %s0, %s0\" : \"+w\"(x));\n    return x;\n" \
     "#elif defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & 4)\n    __asm__(\"vsqrt.f32 %0, %0\" : \"+t\"(x));\n    return x;\n" \
     "#else\n" \
     "    uint32_t bits = k_bits(x), root = 0;\n    uint64_t rest = 0, digits;\n    int e, i;\n" \
     "    if (!(x > 0)) { return x == 0 ? x : x - x > 0 || x < 0 ? k_float(0x7FC00000u) : x; }\n" \
     "    if (bits >= 0x7F800000u) { return x; }\n" \
     "    e = (int)(bits >> 23);\n    bits &= 0x7FFFFFu;\n" \
     "    if (e) {\n        bits |= 0x800000u;\n    } else {\n        for (e = 1; bits < 0x800000u; e--) { bits <<= 1; }\n    }\n" \
     "    e -= 127;\n    digits = (uint64_t)bits << (e & 1 ? 26 : 25);\n    e = (e - (e & 1)) / 2;\n" \
     "    for (i = 24; i >= 0; i--) {                 // a digit of the root per round, one more than a float has\n" \
     "        rest = rest << 2 | (digits >> (2 * i) & 3);\n        root <<= 1;\n" \
     "        if (rest > 2 * (uint64_t)root) {\n            rest -= 2 * (uint64_t)root + 1;\n            root++;\n        }\n    }\n" \
     "    root = (root >> 1) + (root & 1);            // never half way: such a root is not a root of a float\n" \
     "    return k_float(((uint32_t)(e + 126) << 23) + root);\n#endif\n}\n"}, \
    {"k_sqrt64", 0, \
     "static double k_sqrt64(double x) {\n" \
     "#if defined(__GNUC__) && defined(__SSE2__)\n    __asm__(\"sqrtsd %0, %0\" : \"+x\"(x));\n    return x;\n" \
     "#elif defined(__GNUC__) && defined(__aarch64__)\n    __asm__(\"fsqrt %d0, %d0\" : \"+w\"(x));\n    return x;\n" \
     "#else\n" \
     "    union { double d; uint64_t bits; } u;\n    uint64_t root = 0, rest = 0, digits;\n    int e, i;\n" \
     "    if (!(x > 0) || x - x != 0) { return x < 0 ? (x - x) / (x - x) : x; }\n" \
     "    u.d = x;\n    e = (int)(u.bits >> 52) - 1023;\n" \
     "    if (e == -1023) { return k_sqrt64(x * 18014398509481984.0) / 134217728.0; }\n" \
     "    digits = (u.bits & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;\n    if (e & 1) { digits <<= 1; }\n    e = (e - (e & 1)) / 2;\n" \
     "    digits <<= 10;                              // two digits before the point, 62 behind it\n" \
     "    for (i = 0; i < 54; i++) {\n" \
     "        rest = rest << 2 | digits >> 62;\n        digits <<= 2;\n        root <<= 1;\n" \
     "        if (rest > 2 * root) {\n            rest -= 2 * root + 1;\n            root++;\n        }\n    }\n" \
     "    root = (root >> 1) + (root & 1);\n    u.bits = ((uint64_t)(e + 1022) << 52) + root;\n    return u.d;\n#endif\n}\n"}, \
    {"k_exp_core", 0, \
     "// e^(h + l) = (1 + r + t) 2^n, returns r.\n" \
     "static inline float k_exp_core(float h, float l, float *n, float *t) {\n" \
     "    float k = h * 1.44269504f + 12582912.0f - 12582912.0f, q = 0.000197456829f, r;\n" \
     "    h = h - k * 0.693145752f;\n    l = l - k * 1.42860677e-6f;\n    r = h + l;\n" \
     "    q = q * r + 0.00139354682f;\n    q = q * r + 0.00833356474f;\n    q = q * r + 0.0416664593f;\n" \
     "    q = q * r + 0.166666657f;\n    q = q * r + 0.5f;\n    *n = k;\n    *t = r * r * q + l;\n    return h;\n}\n"}, \
    {"k_exp", KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_LDEXP), \
     "static float k_exp(float x) {\n    float n, t, r;\n    x = -105.0f > x ? -105.0f : x;\n" \
     "    r = k_exp_core(90.0f < x ? 90.0f : x, 0, &n, &t);\n    return k_ldexp(1.0f + (r + t), n);\n}\n"}, \
    {"k_expm1", KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_expm1(float x) {\n    float y = -20.0f > x ? -20.0f : x, k, h, l, r, q = 0.000197644273f, s, a, b, c;\n" \
     "    if (x != x || k_abs(x) < 2.98023224e-8f) { return x; }\n    y = 89.0f < y ? 89.0f : y;\n" \
     "    k = y * 1.44269504f + 12582912.0f - 12582912.0f;\n    h = y - k * 0.693145752f;\n    l = k * -1.42860677e-6f;\n" \
     "    r = h + l;\n    s = k_float((uint32_t)((int)(k - 1.0f) + 127) << 23);\n" \
     "    q = q * r + 0.00139323866f;\n    q = q * r + 0.00833354332f;\n    q = q * r + 0.0416664928f;\n" \
     "    q = q * r + 0.166666657f;\n    q = q * r + 0.5f;\n    l = r * r * q + l;\n" \
     "    a = s - 0.5f;\n    b = s * h;\n    c = a + b;\n    c = c + (s * l + (a - c + b));\n    return c + c;\n}\n"}, \
    {"k_log_sum", 0, \
     "// e ln 2 + log(1 + f), smallest terms first.\n" \
     "static inline float k_log_sum(float f, float e) {\n    float p = 0.0675075427f, y;\n" \
     "    p = p * f + -0.116716243f;\n    p = p * f + 0.118837453f;\n    p = p * f + -0.124060415f;\n    p = p * f + 0.142203152f;\n" \
     "    p = p * f + -0.166679949f;\n    p = p * f + 0.20002073f;\n    p = p * f + -0.250000089f;\n    p = p * f + 0.333333135f;\n" \
     "    y = e * 1.42860677e-6f + f * f * f * p;\n    y = f + (y - f * f * 0.5f);\n    return e * 0.693145752f + y;\n}\n"}, \
    {"k_log", KIT_ON(KIT_LOG_SUM) | KIT_ON(KIT_BITS), \
     "static float k_log(float x) {\n    int tiny = x < 1.17549435e-38f;\n" \
     "    int32_t u = (int32_t)k_bits(tiny ? x * 33554432.0f : x), d = u - 0x3F3504F3, k = d >= 0 ? d >> 23 : ~(~d >> 23);\n" \
     "    if (!(x > 0) || x - x != 0) { return x == 0 ? -k_float(0x7F800000u) : x < 0 ? k_float(0x7FC00000u) : x; }\n" \
     "    return k_log_sum(k_float((uint32_t)(u - k * 0x800000)) - 1.0f, (float)k + (tiny ? -25.0f : 0.0f));\n}\n"}, \
    {"k_log1p", KIT_ON(KIT_LOG_SUM) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_log1p(float x) {\n    int32_t d, k;\n    uint32_t s;\n    float one;\n" \
     "    if (x != x || k_abs(x) < 2.98023224e-8f || (x > 0 && x - x != 0)) { return x; }\n" \
     "    if (x <= -1.0f) { return x < -1.0f ? k_float(0x7FC00000u) : -k_float(0x7F800000u); }\n" \
     "    d = (int32_t)k_bits(x + 1.0f) - 0x3F3504F3;\n    k = d >= 0 ? d >> 23 : ~(~d >> 23);\n    s = (uint32_t)k << 23;\n" \
     "    one = k > 64 ? 0.0f : k_float(0x3F800000u - s);\n" \
     "    return k_log_sum(one - 1.0f + k_float(k_bits(x) - s), (float)k);\n}\n"}, \
    {"k_log64", 0, \
     "// Of sums: the library's own logarithm (>>portable-math), for x of normal size.\nstatic double k_log64(double x) {\n" \
     "    union { double d; uint64_t bits; } u;\n    double f, s, z, p = 0, half;\n    int e = -1023, i;\n    u.d = x;\n" \
     "    e += (int)(u.bits >> 52);\n    u.bits = (u.bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;\n    if (u.d > 1.4142135623730951) {\n" \
     "        u.d *= 0.5;\n        e++;\n    }\n    f = u.d - 1;\n    s = f / (2 + f);\n    z = s * s;\n    half = 0.5 * f * f;\n" \
     "    for (i = 23; i > 1; i -= 2) { p = (p + 2.0 / i) * z; }\n    p = s * (half + p);\n    if (e == 0) { return f - (half - p); }\n" \
     "    return e * 0.6931471804855391 - (half - (p + e * 7.440617110012397e-11) - f);\n}\n"}, \
    {"k_tanh", KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_LDEXP) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_tanh(float x) {\n    float a = k_abs(x), s = x * x, p = -0.00571549917f, n, t, r;\n" \
     "    if (x != x) { return x; }\n" \
     "    if (a < 0.625f) {\n        p = p * s + 0.0206491034f;\n        p = p * s + -0.0537430048f;\n        p = p * s + 0.133314848f;\n" \
     "        p = p * s + -0.333332837f;\n        return k_signed(a * s * p + a, x);\n    }\n" \
     "    r = k_exp_core(20.0f < a + a ? 20.0f : a + a, 0, &n, &t);\n" \
     "    t = (1.0f + (r + t)) * k_float((uint32_t)((int)n + 127) << 23) + 1.0f;\n    return k_signed(1.0f - 2.0f / t, x);\n}\n"}, \
    {"k_sigmoid", KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_LDEXP) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_sigmoid(float x) {\n    float a = k_abs(x), n, t, r, p, d;\n    if (x != x) { return x; }\n" \
     "    r = k_exp_core(105.0f < a ? 105.0f : a, 0, &n, &t);\n" \
     "    p = k_float((uint32_t)(127 - (int)(126.0f < n ? 126.0f : n)) << 23);\n    d = 1.0f + p;\n" \
     "    d = d + (r + (t + (p - (d - 1.0f))));\n    d = k_ldexp(1.0f / d, -n);\n    return x < 0 ? d : 1.0f - d;\n}\n"}, \
    {"k_rest", KIT_ON(KIT_BITS), \
     "// p - a b for p = a b, or nearly: exact.\n" \
     "static float k_rest(float a, float b, float p) {\n" \
     "    float g = k_float(k_bits(a) & 0xFFFFF000u), h = k_float(k_bits(b) & 0xFFFFF000u), k = a - g, l = b - h;\n" \
     "    return p - g * h - g * l - k * h - k * l;\n}\n"}, \
    {"k_erf_core", 0, \
     "static float k_erf_core(float x) {\n    float s = x * x, p = 8.38126871e-5f;\n" \
     "    p = p * s + -0.000814474828f;\n    p = p * s + 0.00520107616f;\n    p = p * s + -0.0268592779f;\n" \
     "    p = p * s + 0.112836868f;\n    p = p * s + -0.376126319f;\n    p = p * s + 0.128379166f;\n    return x * p;\n}\n"}, \
    {"k_erf", KIT_ON(KIT_ERF_CORE) | KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS), \
     "static float k_erf(float x) {\n    float a = k_abs(x), t = 4.0f < a ? 4.0f : a, p = 0.000213985477f, n, r;\n" \
     "    if (x != x) { return x; }\n    if (a < 0.92f) { return k_signed(a + k_erf_core(a), x); }\n" \
     "    p = p * t + -0.00321497209f;\n    p = p * t + 0.0228900481f;\n    p = p * t + -0.105262011f;\n" \
     "    p = p * t + -0.635718167f;\n    p = p * t + -1.12851441f;\n    r = k_exp_core(p * t, 0, &n, &t);\n" \
     "    return k_signed(1.0f - (1.0f + (r + t)) * k_float((uint32_t)((int)n + 127) << 23), x);\n}\n"}, \
    {"k_erfcx", 0, \
     "static float k_erfcx(float q) {\n    float p = -0.000315149344f;\n" \
     "    p = p * q + -0.000470321713f;\n    p = p * q + 0.00307131954f;\n    p = p * q + -0.00123989f;\n    p = p * q + -0.0268374793f;\n" \
     "    p = p * q + 0.11953342f;\n    p = p * q + -0.31046623f;\n    p = p * q + 0.590227842f;\n    return p * q + -0.88339448f;\n}\n"}, \
    {"k_erfc", KIT_ON(KIT_ERF_CORE) | KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_LDEXP) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS) | KIT_ON(KIT_REST) | KIT_ON(KIT_ERFCX), \
     "static float k_erfc(float x) {\n    float a = k_abs(x), s, n, t, r;\n    double d, q;\n    if (x != x) { return x; }\n" \
     "    if (a < 0.5f) { return 0.5f - (x - 0.5f + k_erf_core(x)); }\n    a = 10.25f < a ? 10.25f : a;\n    s = a * a;\n" \
     "    d = 1.0 / ((double)a + 3.0);\n    q = ((double)a - 3.0) * d;\n" \
     "    d = d * (q * (double)k_erfcx((float)q) + (double)1.07400692f);\n" \
     "    r = k_exp_core(-s, k_rest(a, a, s), &n, &t);\n" \
     "    r = k_ldexp((float)(((double)r + (double)t) * d + d), n);\n    return x < 0 ? 2.0f - r : r;\n}\n"}, \
    {"k_gelu", KIT_ON(KIT_EXP_CORE) | KIT_ON(KIT_LDEXP) | KIT_ON(KIT_BITS) | KIT_ON(KIT_ABS) | KIT_ON(KIT_REST) | KIT_ON(KIT_ERFCX), \
     "static float k_gelu(float x) {\n    float a = k_abs(x), s, z, w, q, u, g, l, n, r, t;\n    if (x != x) { return x; }\n" \
     "    a = 14.5f < a ? 14.5f : a;\n    s = a * a;\n    z = a * 0.707106781f;\n    w = z + 3.0f;\n    q = (w - 6.0f) / w;\n" \
     "    g = a / w * (q * k_erfcx(q) + 1.07400692f);\n    u = 1.0f - q;\n" \
     "    l = (float)((double)a * 0.70710678118654752 - (double)z);\n    l = (z - (w - 3.0f) + l) * (u * u * -0.282f);\n" \
     "    l = l - k_rest(a, a, s) * -0.5f;\n    r = k_exp_core(s * -0.5f, l, &n, &t);\n    g = (r + t) * g + g;\n" \
     "    return (-0.0f > x ? -0.0f : x) - k_ldexp(g, n - 1.0f);\n}\n"}, \
    {"k_fold", 0, \
     "// The sum of chains * K_LANES sums: neighbouring chains are added, then the halves of their lanes.\n" \
     "static float k_fold(float *s, int chains) {\n    for (int c = 1; c < chains; c *= 2) {\n        for (int i = 0; i < chains; i += 2 * c) {\n" \
     "            for (int l = 0; l < K_LANES; l++) { s[i * K_LANES + l] += s[(i + c) * K_LANES + l]; }\n        }\n    }\n" \
     "    for (int w = K_LANES / 2; w > 0; w /= 2) {\n        for (int l = 0; l < w; l++) { s[l] += s[l + w]; }\n    }\n    return s[0];\n}\n"}, \
    {"k_place", 0, \
     "// Which of chains * K_LANES sums element i of n belongs to: what is left over goes to the first chain as long\n" \
     "// as it fills its lanes, then to the second.\nstatic int k_place(int i, int n, int chains) {\n    int all = chains * K_LANES;\n" \
     "    if (i < n / all * all) { return i % all; }\n    return i < n / K_LANES * K_LANES ? i % K_LANES : K_LANES + i % K_LANES;\n}\n"}, \
    {"k_dot", KIT_ON(KIT_FOLD), \
     "// The sum of n products of elements u and v apart.\nstatic float k_dot(const float *a, int u, const float *b, int v, int n) {\n" \
     "    float s[K_LANES] = {0};\n    int i = 0;\n    for (; i + K_LANES <= n; i += K_LANES) {\n" \
     "        for (int l = 0; l < K_LANES; l++) { s[l] += a[u * (i + l)] * b[v * (i + l)]; }\n    }\n" \
     "    for (; i < n; i++) { s[i % K_LANES] += a[u * i] * b[v * i]; }\n    return k_fold(s, 1);\n}\n"}, \
    {"k_sum", KIT_ON(KIT_FOLD) | KIT_ON(KIT_PLACE), \
     "// In four chains.\nstatic float k_leaf(const float *x, int n) {\n    float s[4 * K_LANES] = {0};\n" \
     "    for (int i = 0; i < n; i++) { s[k_place(i, n, 4)] += x[i]; }\n    return k_fold(s, 4);\n}\n\n" \
     "// So for each 1024 elements, then in double.\nstatic double k_sum(const float *x, int n) {\n    double sum = 0;\n" \
     "    for (int i = 0; i < n; i += 1024) { sum += (double)k_leaf(x + i, n - i > 1024 ? 1024 : n - i); }\n    return sum;\n}\n"}, \
    {"k_exp_row", KIT_ON(KIT_EXP) | KIT_ON(KIT_FOLD) | KIT_ON(KIT_PLACE), \
     "// y = e^(x - max of x). -> the sum of y, in *max the maximum\nstatic float k_exp_row(const float *x, float *y, int n, float *max) {\n" \
     "    float m = x[0], s[2 * K_LANES] = {0};\n    for (int i = 1; i < n; i++) { m = m > x[i] ? m : x[i]; }\n    *max = m;\n" \
     "    for (int i = 0; i < n; i++) {\n        y[i] = k_exp(x[i] - m);\n        s[k_place(i, n, 2)] += y[i];\n    }\n    return k_fold(s, 2);\n" \
     "}\n"}, \
    {"k_philox", 0, \
     "// Philox4x32-10: four words for each block of a stream.\n" \
     "static void k_philox(uint64_t seed, uint64_t stream, uint32_t block, uint32_t w[4]) {\n" \
     "    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);\n    int round;\n" \
     "    w[0] = block;\n    w[1] = 0;\n    w[2] = (uint32_t)stream;\n    w[3] = (uint32_t)(stream >> 32);\n" \
     "    for (round = 0; round < 10; round++) {\n        uint64_t a = (uint64_t)w[0] * 0xD2511F53u, b = (uint64_t)w[2] * 0xCD9E8D57u;\n" \
     "        w[0] = (uint32_t)(b >> 32) ^ w[1] ^ k0;\n        w[2] = (uint32_t)(a >> 32) ^ w[3] ^ k1;\n" \
     "        w[1] = (uint32_t)b;\n        w[3] = (uint32_t)a;\n        k0 += 0x9E3779B9u;\n        k1 += 0xBB67AE85u;\n    }\n}\n"}, \
    {"k_power", 0, \
     "static double k_power(double x, int32_t n) {\n    double y = 1;\n    for (; n > 0; n >>= 1, x *= x) {\n" \
     "        if (n & 1) { y *= x; }\n    }\n    return y;\n}\n"}, \
    {"K_MIN", 0, \
     "// Of doubles and integers; NaN stays NaN.\n" \
     "#define K_MIN(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))\n#define K_MAX(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))\n"}, \
    {"k_squares", 0, \
     "static double k_squares(const float *x, int n) {\n    double total = 0;\n    int i = 0, k;\n" \
     "    while (i < n) {\n        double lane[8] = {0, 0, 0, 0, 0, 0, 0, 0};\n        int end = n - i > 16384 ? i + 16384 : n;\n" \
     "        for (k = 0; i < end; i++, k = (k + 1) & 7) { lane[k] += (double)x[i] * (double)x[i]; }\n" \
     "        total += lane[0] + lane[4] + (lane[2] + lane[6]) + (lane[1] + lane[5] + (lane[3] + lane[7]));\n    }\n    return total;\n}\n"}, \
    {"k_leaves", KIT_ON(KIT_FOLD), \
     "// The sum of a row: in two chains for each 64 K_LANES elements, then in double.\nstatic double k_leaves(const float *x, int n) {\n" \
     "    double sum = 0;\n    for (int i = 0, end; i < n; i = end) {\n        float s[2 * K_LANES] = {0};\n" \
     "        end = n - i > 64 * K_LANES ? i + 64 * K_LANES : n;\n        for (; i + 2 * K_LANES <= end; i += 2 * K_LANES) {\n" \
     "            for (int l = 0; l < 2 * K_LANES; l++) { s[l] += x[i + l]; }\n        }\n" \
     "        for (int l = 0; l < K_LANES; l++) { s[l] += s[K_LANES + l]; }\n        for (; i < end; i++) { s[i % K_LANES] += x[i]; }\n" \
     "        sum += (double)k_fold(s, 1);\n    }\n    return sum;\n}\n"}, \
    {"k_deviation", KIT_ON(KIT_FOLD), \
     "// The sum of g (x - mean), and in *total that of g; of (x - mean)^2 if g is 0. In the chains of k_leaves.\n" \
     "static double k_deviation(const float *g, const float *x, float mean, double *total, int n) {\n    double sum = 0, all = 0;\n" \
     "    for (int i = 0, end; i < n; i = end) {\n        float s[2 * K_LANES] = {0}, a[2 * K_LANES] = {0};\n" \
     "        end = n - i > 64 * K_LANES ? i + 64 * K_LANES : n;\n        for (; i + 2 * K_LANES <= end; i += 2 * K_LANES) {\n" \
     "            for (int l = 0; l < 2 * K_LANES; l++) {\n                const float u = x[i + l] - mean;\n" \
     "                s[l] += (g ? g[i + l] : u) * u;\n                a[l] += g ? g[i + l] : 0;\n            }\n        }\n" \
     "        for (int l = 0; l < K_LANES; l++) {\n            s[l] += s[K_LANES + l];\n            a[l] += a[K_LANES + l];\n        }\n" \
     "        for (; i < end; i++) {\n            const float u = x[i] - mean;\n            s[i % K_LANES] += (g ? g[i] : u) * u;\n" \
     "            a[i % K_LANES] += g ? g[i] : 0;\n        }\n        sum += (double)k_fold(s, 1);\n        all += (double)k_fold(a, 1);\n    }\n" \
     "    if (total) { *total = all; }\n    return sum;\n}\n"}, \
    {"k_whole", 0, \
     "// x without its fraction, the nearest of least..most; 0 for NaN.\nstatic int64_t k_whole(double x, int64_t least, int64_t most) {\n" \
     "    if (x != x) { return 0; }\n    if (x <= (double)least) { return least; }\n    return x >= (double)most ? most : (int64_t)x;\n}\n"}
// clang-format on

#endif

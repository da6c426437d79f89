// elements.h - the references of ops.def element by element: ref_NAME in double, int_NAME on integers; the
// functions that libm lacks
#ifndef TEST_ELEMENTS_H
#define TEST_ELEMENTS_H
#include "calls.h"

#define PI 3.14159265358979323846

TEST_FN double gelu(double x) {
    return x == -(double)INFINITY ? -0.0 : 0.5 * x * erfc(-x * 0.70710678118654752440); // the limit there
}
TEST_FN double gelu_by_tanh(double x) {
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x == -(double)INFINITY ? (double)NAN : x / (1 + exp(-2 * u));
}
TEST_FN double inverse_of_erf(double x) {        // bisection
    double lo = -40, hi = 40;
    int k;
    if (!(fabs(x) < 1)) { return fabs(x) == 1 ? x * (double)INFINITY : (double)NAN; }
    for (k = 0; k < 200; k++) {
        double mid = (lo + hi) / 2;
        if (erf(mid) < x) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return (lo + hi) / 2;
}
TEST_FN double trigamma(double x) {
    double s = 0;
    int k;
    for (k = 0; k < 1000; k++, x += 1) { s += 1 / (x * x); }
    return s + 1 / x + 1 / (2 * x * x) + 1 / (6 * x * x * x);
}
TEST_FN double entropy(double x) {
    if (x > 0) { return -x * log(x); }
    return x < 0 ? -(double)INFINITY : 0;
}
TEST_FN int64_t greatest_divisor(int64_t a, int64_t b) {
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (x && y) {
        if (x > y) {
            x %= y;
        } else {
            y %= x;
        }
    }
    return (int64_t)(x + y);
}
TEST_FN int64_t least_multiple(int64_t a, int64_t b) {
    int64_t divisor = greatest_divisor(a, b);
    if (divisor == 0) { return 0; }
    a = (int64_t)((uint64_t)(a / divisor) * (uint64_t)b);
    return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
}
TEST_FN int64_t power_of_integers(int64_t a, int64_t b) {
    uint64_t r = 1;
    int64_t k;
    if (b < 0) { return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0; }
    for (k = 0; k < b; k++) { r *= (uint64_t)a; }
    return (int64_t)r;
}

// A B C elements, F(k) I(k) arguments of the case, U(x) integers that wrap.
#define A v[0]
#define B v[1]
#define C v[2]
#define U(x) ((uint64_t)(int64_t)(x))
#define F(k) a->f[k]
#define I(k) a->i[k]
#define NONE 0
#define ELEMENT(name, reference, integers)                                                                   \
    TEST_FN double ref_##name(const double *v, const arguments_t *a) {                                       \
        (void)v, (void)a;                                                                                    \
        return reference;                                                                                    \
    }                                                                                                        \
    TEST_FN int64_t int_##name(const int64_t *v, const arguments_t *a) {                                     \
        (void)v, (void)a;                                                                                    \
        return (int64_t)(integers);                                                                          \
    }
#define UNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, units, torch)                   \
    ELEMENT(name, reference, integers)
#define BINARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                         \
    ELEMENT(name, reference, integers)
#define TERNARY(name, twins, args, cases, lo, hi, dtypes, reference, integers, torch)                        \
    ELEMENT(name, reference, integers)
#include "ops.def"
#undef A
#undef B
#undef C
#undef F
#undef I

#endif

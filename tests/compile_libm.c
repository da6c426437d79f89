// compile_libm.c - the functions of portable builds beside those of the platform's libm
//
// Prints the largest error of each in units in the last place, and the values at the edges that differ;
// built and run by tests/portable.sh. long double is more exact than double on x86; elsewhere libm itself is
// off by a unit.
#define TENSOR_STATIC
#define TENSOR_BACKEND
#include "tensor.h"
#include <stdio.h>
#include <stdlib.h>

// The largest error that >>portable-math admits, and what libm's own may add to it.
static const double most = 5.5, most_of_gamma = 15.5;
static int passed, failed;

static double units(double got, double want) {
    if (got != got || want != want) { return (got != got) == (want != want) ? 0 : 1e30; }
    if (got == want) { return (copysign(1, got) < 0) == (copysign(1, want) < 0) ? 0 : 1e30; }
    if (got - got != 0 || want - want != 0) { return 1e30; }
    int e;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, (e < -1021 ? -1021 : e) - 53);
}

static double between(double low, double high) {
    static uint64_t state = 5;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * ((double)(state >> 11) / 9007199254740992.0);
}

static void judge(const char *name, double worst, double bound, double x, double y) {
    printf("%s: %.2f ulp at %.17g %.17g\n", name, worst, x, y);
    if (worst < bound) {
        passed++;
    } else {
        failed++;
    }
}

enum { NUMBERS = 20000 };
static const double edges[] = {
    0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 5e-324, -5e-324, 1e-300, 1e300, -1e300, 1e305, -1e305,
    1e-20, 0.5, -0.5, 2, -2, 3, -3, -2.5, 10, 1000, 1e20, -1e20, 1e200, -1e-200, -745.5, -744, 709.9,
    709.5, 0.75, 2.4375
};
enum { EDGES = sizeof edges / sizeof *edges };

typedef double one_fn(double x);
typedef double two_fn(double x, double y);
typedef long double wide_one_fn(long double x);
typedef long double wide_two_fn(long double x, long double y);

// other is NULL where the edges are nobody's business.
static void one(const char *name, one_fn *own, one_fn *other, wide_one_fn *wide, double low, double high) {
    double worst = 0, at = 0;
    for (int i = 0; i < NUMBERS; i++) {
        double x = between(low, high), u = units(own(x), (double)wide((long double)x));
        if (u > worst) {
            worst = u;
            at = x;
        }
    }
    for (int i = 0; other && i < EDGES; i++) {
        double u = units(own(edges[i]), other(edges[i]));
        if (u > worst) {
            worst = u;
            at = edges[i];
        }
    }
    judge(name, worst, other ? most : most_of_gamma, at, 0);
}

static void two(const char *name, two_fn *own, two_fn *other, wide_two_fn *wide, double low, double high,
                double low2, double high2) {
    double worst = 0, at = 0, at2 = 0;
    for (int i = 0; i < NUMBERS + EDGES * EDGES; i++) {
        int edge = i - NUMBERS;
        double x = edge < 0 ? between(low, high) : edges[edge / EDGES];
        double y = edge < 0 ? between(low2, high2) : edges[edge % EDGES];
        double want = edge < 0 ? (double)wide((long double)x, (long double)y) : other(x, y);
        double u = units(own(x, y), want);
        if (u > worst) {
            worst = u;
            at = x;
            at2 = y;
        }
    }
    judge(name, worst, most, at, at2);
}

#define ONE(f, low, high) one(#f, tensor__##f##_f64, f, f##l, low, high);
#define TWO(f, low, high, low2, high2) two(#f, tensor__##f##_f64, f, f##l, low, high, low2, high2);

// Whole powers are exact.
static void powers(void) {
    int wrong = 0;
    for (int k = -1070; k < 1023; k++) {
        wrong += tensor__log2_f64(ldexp(1, k)) != k || tensor__exp2_f64(k) != ldexp(1, k);
        wrong += tensor__pow_f64(2, k) != ldexp(1, k);
    }
    double ten = 1;
    for (int k = 0; k < 22; k++, ten *= 10) {
        wrong += tensor__log10_f64(ten) != k || tensor__pow_f64(10, k) != ten;
    }
    judge("powers", wrong ? 1e30 : 0, most, wrong, 0);
}

int main(void) {
    ONE(exp, -745, 709)
    ONE(exp, -1, 1)
    ONE(exp2, -1080, 1020)
    ONE(expm1, -40, 50)
    ONE(expm1, -1, 1)
    ONE(expm1, -1e-5, 1e-5)
    ONE(log, 0, 2)
    ONE(log, 0, 1e300)
    ONE(log, 0.9, 1.1)
    ONE(log2, 0, 4)
    ONE(log10, 0, 2000)
    ONE(log1p, -1, 1)
    ONE(log1p, -1e-3, 1e-3)
    ONE(log1p, 0, 1e5)
    ONE(sin, -7, 7)
    ONE(cos, -7, 7)
    ONE(tan, -7, 7)
    ONE(sin, -1e5, 1e5)
    ONE(cos, -1e20, 1e20)
    ONE(sin, -1e300, 1e300)
    ONE(asin, -1, 1)
    ONE(acos, -1, 1)
    ONE(atan, -5, 5)
    ONE(atan, -0.5, 0.5)
    ONE(sinh, -5, 5)
    ONE(sinh, -700, 700)
    ONE(cosh, -5, 5)
    ONE(cosh, -700, 700)
    ONE(tanh, -3, 3)
    ONE(tanh, -0.01, 0.01)
    ONE(asinh, -5, 5)
    ONE(acosh, 1, 5)
    ONE(atanh, -1, 1)
    ONE(erf, -3, 3)
    ONE(erfc, -1, 1)
    ONE(erfc, 0, 26)
    TWO(pow, 0, 10, -300, 300)
    TWO(pow, 0.9, 1.1, -7000, 7000)
    TWO(pow, 0, 1e10, -3, 3)
    TWO(atan2, -3, 3, -3, 3)
    TWO(hypot, -3, 3, -3, 3)
    one("tgamma", tensor__tgamma_f64, NULL, tgammal, 0.001, 20);
    powers();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

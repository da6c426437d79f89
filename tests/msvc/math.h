#ifndef STUB_MATH_H
#define STUB_MATH_H
#ifdef __cplusplus
extern "C" {
#endif
#define STUB_ONE(name) double name(double x); float name##f(float x);
#define STUB_TWO(name) double name(double x, double y); float name##f(float x, float y);
STUB_ONE(acos) STUB_ONE(acosh) STUB_ONE(asin) STUB_ONE(asinh) STUB_ONE(atan) STUB_ONE(atanh) STUB_ONE(cbrt)
STUB_ONE(ceil) STUB_ONE(cos) STUB_ONE(cosh) STUB_ONE(erf) STUB_ONE(erfc) STUB_ONE(exp) STUB_ONE(exp2)
STUB_ONE(expm1) STUB_ONE(fabs) STUB_ONE(floor) STUB_ONE(lgamma) STUB_ONE(log) STUB_ONE(log10) STUB_ONE(log1p)
STUB_ONE(log2) STUB_ONE(nearbyint) STUB_ONE(rint) STUB_ONE(round) STUB_ONE(sin) STUB_ONE(sinh) STUB_ONE(sqrt)
STUB_ONE(tan) STUB_ONE(tanh) STUB_ONE(tgamma) STUB_ONE(trunc)
STUB_TWO(atan2) STUB_TWO(copysign) STUB_TWO(fmax) STUB_TWO(fmin) STUB_TWO(fmod) STUB_TWO(hypot)
STUB_TWO(nextafter) STUB_TWO(pow) STUB_TWO(remainder)
double fma(double x, double y, double z);
float fmaf(float x, float y, float z);
double frexp(double x, int *e);
double ldexp(double x, int e);
float ldexpf(float x, int e);
double modf(double x, double *whole);
double scalbn(double x, int e);
long long llrint(double x);
long lrint(double x);
int _dsign(double x);
#ifdef __cplusplus
}
#endif
#define INFINITY ((float)(1e+300 * 1e+300))
#define NAN (-(float)(INFINITY * 0.0F))
#define signbit(x) (_dsign(x) != 0)
#define HUGE_VAL ((double)INFINITY)
#endif

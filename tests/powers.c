// powers.c - a^b within a unit in the last place, its special cases whatever the neighbours are; roots of the
// smallest numbers
#include "elements_are.h"

// a^b within a unit in the last place, from 2^-149 to 2^127, of bases near 1 and of any size.
static void powers(void) {
    enum { N = 6000 };
    static const char *const isas[4] = {"scalar", "sse2", "avx2", "avx512"};
    static float a[N], b[N];
    const float *y;
    double worst = 0;
    int i, k, e;
    for (k = 0; k < N; k++) {
        a[k] = (float)(k % 3 ? exp2(127 * sin(1.7 * k)) : 1 + 0.3 * sin(1.7 * k));
        b[k] = (float)((138 * cos(0.9 * k) - 11) / log2((double)a[k]));
    }
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_isa(isas[i]) != 0) { tensor_clear_error(); }
        y = (const float *)tensor_data(
            tensor_pow(tensor_from(a, TENSOR_F32, N), tensor_from(b, TENSOR_F32, N)));
        for (k = 0; k < N; k++) {
            double want = pow((double)a[k], (double)b[k]);
            frexp(want, &e);
            worst = fmax(worst, ldexp(fabs(y[k] - want), 24 - (e > -125 ? e : -125)));
        }
    }
    CHECK_MSG(worst <= 1, "pow is %g units off", worst);
    tensor_set_isa(NULL);
}

// The exponents that are products, quotients and roots keep the special cases of C99 F.9.4.4; and the bits
// of an element do not tell who its neighbours are, although vectors of one kind go a shorter way.
#define F(...) tensor_to(X(__VA_ARGS__), TENSOR_F32)

static tensor_t *pow_half(tensor_t *x) { return tensor_pow_scalar(x, 0.5); }
static tensor_t *pow_inverse(tensor_t *x) { return tensor_pow_scalar(x, -2); }

static void neighbours(void) {
    static const float exponent[] = {2, 2.5f, -1, 0.5f, 3, -0.5f, 0.3f, -2, 1, 0, -3, 4};
    static const float value[] = {0.1f,  -0.1f, 1, -2.5f, 4.8f, -4.8f, 9, -9, 1e-30f, -1e-40f, 30,
                                  -100, 3.5f,  -3.5f, 0,     1e30f, (float)NAN, (float)INF, -(float)INF};
    static const struct {
        const char *name;
        tensor_t *(*f)(tensor_t *x);
    } f[] = {{"gelu", tensor_gelu},  {"sigmoid", tensor_sigmoid}, {"erfc", tensor_erfc}, {"erf", tensor_erf},
             {"tanh", tensor_tanh},  {"exp", tensor_exp},         {"silu", tensor_silu}, {"x^.5", pow_half},
             {"x^-2", pow_inverse}};
    int values = COUNT(value), exponents = COUNT(exponent);
    tensor_t *x, *y, *e;
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 4), 0.5), 0, INF, NANF, 2);
    IS(0, tensor_reciprocal(tensor_pow_scalar(F(-0.0f, -0.0f), 0.5)), INF, INF);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 4), -0.5), INF, 0, NANF, 0.5);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 0.5), -1), -INF, -0.0, -0.25, 2);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 1e-30f), -2), INF, 0, 0.0625, INF);
    IS(0, tensor_pow_scalar(F(-0.0f, -INF, -4, 1e-30f), 3), -0.0, -INF, -64, 0);
    IS(2e-7, tensor_pow_scalar(F(1e-10, 3e-10, NANF), -2), 1e20, 1e20 / 9, NANF);
    x = tensor_from(value, TENSOR_F32, values);
    for (size_t k = 0; k < (size_t)COUNT(f); k++) {
        y = f[k].f(x);
        for (int i = 0; i < values; i++) {
            tensor_t *one = f[k].f(tensor_full(value[i], 40));
            CHECK_MSG(memcmp((const float *)tensor_data(y) + i, tensor_data(one), sizeof(float)) == 0,
                      "%s: %g alone is not %g among others", f[k].name, (double)value[i], (double)value[i]);
        }
    }
    e = tensor_from(exponent, TENSOR_F32, exponents);
    for (int i = 0; i < values; i++) {
        y = tensor_pow(tensor_full(value[i], exponents), e);
        for (int k = 0; k < exponents; k++) {
            tensor_t *one = tensor_pow_scalar(tensor_full(value[i], 40), (double)exponent[k]);
            const float *p = (const float *)tensor_data(y) + k, *q = (const float *)tensor_data(one);
            CHECK_MSG(memcmp(p, q, sizeof *p) == 0 || (*p != *p && *q != *q),
                      "%g^%g: %g among others, %g alone", (double)value[i], (double)exponent[k], (double)*p,
                      (double)*q);
        }
    }
}

// Roots of the smallest numbers and one over them, where 1/x is none.
static void small_roots(void) {
    static const char *const isas[] = {"scalar", "sse2", "avx2", "avx512", "neon", "wasm"};
    static const float v[] = {1e-40f, 1.4e-45f, 2e-39f, 1e-38f, 0.0f, -0.0f, 9, 4};
    tensor_t *x = tensor_from(v, TENSOR_F32, COUNT(v)), *d = tensor_to(x, TENSOR_F64), *g;
    int i, k;
    for (i = 0; i < COUNT(isas); i++) {
        if (tensor_set_isa(isas[i]) != 0) {
            tensor_clear_error();
            continue;
        }
        for (k = 0; k < 2; k++) {
            tensor_t *y = tensor_pow_scalar(x, k ? -0.5 : 0.5), *want = tensor_pow_scalar(d, k ? -0.5 : 0.5);
            CHECK_MSG(tensor_allclose(tensor_to(y, TENSOR_F64), want, 1e-6, 1e-8), "%s", isas[i]);
        }
        g = tensor_requires_grad_(tensor_full(1e-40, 3), 1);
        tensor_backward(tensor_sum(tensor_pow_scalar(g, 0.5)));
        CHECK_MSG(fabs(tensor_item(tensor_max(tensor_grad(g))) / 5e19 - 1) < 1e-4, "%s", isas[i]);
    }
    tensor_set_isa(NULL);
}

int main(void) {
    RUN(small_roots);
    RUN(powers);
    RUN(neighbours);
    return test_report();
}

// ops_device.c - results and gradients of the ops of ops.def on another device (mirror.h): the CPU's, bit
// for bit; of CUDA within tolerances
#include "ops_linalg.h"

static long n_device;

// There and back, the layout in the middle: user is its number.
static tensor_t *there(tensor_t *const *in, int n, void *user) {
    tensor_t *x = in[0];
    (void)n;
    switch (*(int *)user) {
    case 1: x = tensor_mT(x); break;
    case 2: x = tensor_narrow(x, 1, 1, 2); break;
    case 3: x = tensor_expand(tensor_narrow(x, 0, 1, 1), 3, 4); break;
    case 4: x = tensor_sum(x); break;
    default: break;
    }
    return tensor_square(tensor_to(tensor_to(x, TENSOR_CUDA), TENSOR_CPU));
}
// The same bits at the other side, a gradient that comes back; more in device.c.
static void transfer(void) {
    tensor_t *x = tensor_to(tensor_randn(3, 4), TENSOR_F64), *y, *const in[1] = {x};
    int layout;
    CHECK_POISON(tensor_to(x, TENSOR_CUDA), TENSOR_ERR_DEVICE, "to: no CUDA device 0");
    device_start();
    y = tensor_to(x, TENSOR_CUDA);
    CHECK(tensor_device(y) == TENSOR_CUDA && tensor_equal(x, tensor_to(y, TENSOR_CPU)));
    tensor_requires_grad_(x, 1);
    for (layout = 0; layout < 5; layout++) {
        CHECK(tensor_gradcheck(there, &layout, in, 1, 1e-6, 1e-5, 1e-3) == 0);
        CHECK(tensor_gradgradcheck(there, &layout, in, 1, 1e-6, 1e-5, 1e-3) == 0);
        n_device++;
    }
}

// ---- another device: results and gradients are the mirror's, bit for bit, or CUDA's, within tolerances ----

static tensor_t *here(tensor_t *t) { return t ? tensor_to(t, TENSOR_CPU) : NULL; }
static int device_agrees(const op_t *op, const tensor_t *a, const tensor_t *b) {
#ifdef TEST_CUDA
    nd_t x, y;
    int64_t k;
    int d, good = a->state == TENSOR__LIVE && b->state == TENSOR__LIVE && a->ndim == b->ndim &&
                  a->dtype == b->dtype;
    double atol = good && a->dtype >= TENSOR_F16 && op->half > 0 ? op->half : op->atol;
    for (d = 0; good && d < a->ndim; d++) { good = a->dims[d] == b->dims[d]; }
    if (!good) { return 0; }
    nd_read(&x, a), nd_read(&y, b);
    for (k = 0; k < x.n && good; k++) {
        good = is_float(a->dtype) ? value_good(y.v[k], x.v[k], a->dtype, atol) : x.i[k] == y.i[k];
    }
    if (!good) {
        printf("element %lld: %.9g, the CPU's is %.9g\n", (long long)k - 1, y.v[k - 1], x.v[k - 1]);
    }
    nd_free(&x), nd_free(&y);
    return good;
#else
    (void)op;
    return same_bits(a, b);
#endif
}
static void run_device(const op_t *op) {
    static const int dtypes[] = {TENSOR_F32, TENSOR_F64, TENSOR_I64, TENSOR_F16, TENSOR_BF16};
    int c, t, k;
    for (c = 0; c < op->nconfigs && c < 6; c++) {
        for (t = 0; t < COUNT(dtypes); t++) {
            tensor_scope_t s = tensor_scope_begin();
            tensor_t *in[OPERANDS] = {0}, *far[OPERANDS] = {0}, *one, *two, *g1[OPERANDS], *g2[OPERANDS];
            if (result_dtype(op, dtypes[t]) < 0) {
                tensor_scope_end(s);
                continue;
            }
            lcg_state = (uint64_t)(c * 10 + t + 7);
            for (k = 0; k < op->nin; k++) {
                in[k] = input(op, &op->configs[c], k, dtypes[t], LC);
                far[k] = tensor_to(in[k], TENSOR_CUDA);
            }
            one = run(op, in);
            tensor_set_default_device(TENSOR_CUDA);     // of what the case itself makes
            two = run(op, far);
            tensor_set_default_device(TENSOR_CPU);
            if (tensor_is_poison(one)) {        // the case's refusals are refused there too
                CHECK_MSG(tensor_is_poison(two), "%s %s: refused on the CPU alone", op->label,
                          dname(dtypes[t]));
                tensor_clear_error();
                tensor_scope_end(s);
                continue;
            }
            CHECK_MSG(tensor_device(two) == TENSOR_CUDA, "%s: the result is not on the device", op->label);
            CHECK_MSG(device_agrees(op, one, here(two)), "%s %s: device and CPU differ (%s)", op->label,
                      dname(dtypes[t]),
                      tensor_error_text());
            tensor_clear_error();
            n_device++;
            if (is_float(dtypes[t]) && has_gradient(op)) {
                int n1 = gradients_of(op, in, g1, 0), n2;
                tensor_set_default_device(TENSOR_CUDA);
                n2 = gradients_of(op, far, g2, 0);
                tensor_set_default_device(TENSOR_CPU);
                CHECK_MSG(n1 == n2 && n1 >= 0, "%s on a device: %s", op->label, tensor_error_text());
                op_t gradient = *op;                    // with the tolerance of its gradients
                if (op->gradient_half > 0) {
                    gradient.half = 1e4 * op->gradient_half;      // as ops_gradients.c
                }
                for (k = 0; k < n1 && n1 == n2; k++) {
                    CHECK_MSG(!g1[k] == !g2[k] && (!g1[k] || device_agrees(&gradient, g1[k], here(g2[k]))),
                              "%s %s: gradient %d differs between device and CPU", op->label,
                                  dname(dtypes[t]), k);
                }
                n_device++;
            }
            device_note(dtypes[t]);
            tensor_clear_error();
            tensor_scope_end(s);
        }
    }
}

// On a device, batched and transposed: the CPU's results, gradients, and gradients of gradients.
static void linalg_devices(void) {
    static const int64_t dims[3] = {2, 3, 3};
    int c, d, k;
    for (c = 0; c < LINALG_CASES; c++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x[2], *in[2], *y[2], *g[2], *gg[2], *sum;
        lcg_state = (uint64_t)c + 5;
        for (k = 0; k < 2; k++) { x[k] = make(TENSOR_F64, 3, dims, LC, -2, 2, VALUES, 0); }
        for (d = 0; d < 2; d++) {
            tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
            for (k = 0; k < 2; k++) {
                in[k] = tensor_mT(d ? tensor_to(x[k], TENSOR_CUDA) : tensor_clone(x[k]));
                tensor_requires_grad_(in[k], 1);
            }
            y[d] = linalg_list[c].call(in, TENSOR__(row)(linalg_list[c].id)->nin, NULL);
            sum = tensor_sum(tensor_square(y[d]));
            tensor_autograd_grad(&sum, 1, NULL, in, 1, &g[d], TENSOR_CREATE_GRAPH);
            sum = tensor_sum(tensor_square(g[d]));
            tensor_autograd_grad(&sum, 1, NULL, in, 1, &gg[d], 0);
        }
        tensor_set_default_device(TENSOR_CPU);
        k = tensor_device(y[1]) == TENSOR_CUDA && tensor_allclose(y[0], off(y[1]), 1e-9, 1e-9);
        k = k && tensor_allclose(g[0], off(g[1]), 1e-7, 1e-7);
        k = k && tensor_allclose(gg[0], off(gg[1]), 1e-5, 1e-5);
        CHECK_MSG(k && tensor_ok(), "%s on a device differs: %s", TENSOR__(row)(linalg_list[c].id)->name,
                  tensor_error_text());
        tensor_clear_error();
        n_device++;
        device_note(TENSOR_F64);
        tensor_scope_end(s);
    }
}

static void devices(void) {
    device_start();
    each(run_device);
    linalg_devices();
}

int main(void) {
    RUN(prepare);
    RUN(transfer);
    RUN(devices);
    printf("%ld device cases\n", n_device);
    device_print();
#ifdef TEST_CUDA
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0);
#endif
    return test_report();
}

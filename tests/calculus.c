// calculus.c - vjp, jvp, jacobian, hessian and their products, against PyTorch 2.15
#define HERE "calculus.c:"
#include "graphs.h"

static tensor_t *first_only(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_sum(tensor_square(in[0]));
}

static tensor_t *picked(tensor_t *const *in, int n, void *user) { // an i64 input is a constant
    (void)n;
    (void)user;
    return tensor_square(tensor_index_select(in[0], 0, in[1]));
}

// Many inputs: the lists that a call borrows for its gradients are as long as all of them.
static tensor_t *mixed_squares(tensor_t *const *in, int n, void *user) {
    tensor_t *sum = tensor_sum(tensor_square(in[0]));
    (void)user;
    for (int k = 1; k < n; k++) { sum = tensor_add(sum, tensor_sum(tensor_mul(in[k], in[k - 1]))); }
    return sum;
}
static void many_inputs(void) {
    enum { MOST = 12 };
    for (int n = 1; n <= MOST; n++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_memory_stats_t before, after;
        tensor_t *in[MOST], *v[MOST], *out[MOST], *h[MOST * MOST];
        for (int k = 0; k < n; k++) {
            in[k] = DATA64((double)(k + 1));
            v[k] = DATA64(1.0 / (k + 2));
        }
        before = tensor_memory_stats();
        for (int turn = 0; turn < 3; turn++) {
            tensor_scope_t inner = tensor_scope_begin();
            CHECK(tensor_hessian(mixed_squares, NULL, in, n, h, 0) == 0);
            for (int i = 0; i < n; i++) {
                for (int j = 0; j < n; j++) {
                    double want = i - j == 1 || j - i == 1;
                    if (i == 0 && j == 0) { want = 2; }
                    CHECK_NEAR(tensor_item(h[i * n + j]), want, 1e-15);
                }
            }
            tensor_hvp(mixed_squares, NULL, in, n, v, out, 0);
            CHECK_NEAR(tensor_item(out[0]), 2 * 0.5 + (n > 1 ? 1.0 / 3 : 0), 1e-15);
            tensor_vhp(mixed_squares, NULL, in, n, v, out, 0);
            CHECK_NEAR(tensor_item(out[n - 1]), n > 1 ? 1.0 / n : 1, 1e-15);
            CHECK_OK();
            tensor_scope_end(inner);
        }
        after = tensor_memory_stats();
        CHECK(after.live_nodes == before.live_nodes && after.live_tensors == before.live_tensors);
        tensor_scope_end(scope);
    }
}

// Where a derivative is 0 by choice, so is a directional one, which is a derivative of a gradient.
static tensor_t *angle_of(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_atan2(in[0], in[1]);
}
static tensor_t *with_sign_of(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_copysign(in[0], in[1]);
}
static void derivatives_at_zero(void) {
    tensor_t *in[2], *v[2], *r;
    in[0] = DATA64(0, 0, -0.0, 2);
    in[1] = DATA64(0, -0.0, 0, -3);
    for (int k = 0; k < 2; k++) {
        v[k] = tensor_ones(4);
        v[!k] = tensor_zeros(4);
        v[0] = tensor_to(v[0], TENSOR_F64);
        v[1] = tensor_to(v[1], TENSOR_F64);
        tensor_jvp(angle_of, NULL, in, 2, v, &r, 0);
        EXPECT_TOL(r, 1e-15, 0, 0, 0, k ? -2.0 / 13 : -3.0 / 13);
        tensor_jvp(with_sign_of, NULL, in, 2, v, &r, 0);
        EXPECT_TOL(r, 1e-15, 0, 0, 0, k ? 0 : -1);
    }
}

static tensor_t *broken(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_matmul(in[0], tensor_ones(7, 7));
}

static void functional(void) {
    tensor_t *a = DATA64(0.5, -1), *b = DATA64(1, 2, 3), *in[2], *out[4], *v[2], *y, *r;
    in[0] = a;
    in[1] = b;
    y = tensor_vjp(outer, NULL, in, 2, tensor_reshape(DATA64(1, 2, 3, 4, 5, 6), 2, 3), out, 0);
    EXPECT_TOL(y, 1e-12, 1.3873511113297634, 1.4991780090003948, 0.23266755900967662, 0.3095598756531122,
               0.33451182923926226, 0.05191514970317339);
    EXPECT_TOL(out[0], 1e-12, 5.0837098063595825, 3.2222895470278003);
    EXPECT_TOL(out[1], 1e-12, 1.6858723456787805, -2.1376796106708182, -7.0818523794157935);
    CHECK(!tensor_requires_grad(y) && !tensor_requires_grad(out[0]) && !tensor_requires_grad(a));
    v[0] = DATA64(1, 2);
    v[1] = DATA64(1, -1, 0.5);
    y = tensor_jvp(outer, NULL, in, 2, v, &r, 0);
    CHECK(tensor_ndim(r) == 2 && tensor_size(r, 1) == 3);
    EXPECT_TOL(r, 1e-12, 2.278159015622892, 2.185288150150238, -0.5834432844796628, 0.8178858616526374,
               0.8221155241527508, -0.07826864380029966);
    CHECK(tensor_jacobian(outer, NULL, in, 2, out, 0) == 0);
    CHECK(tensor_ndim(out[0]) == 3 && tensor_ndim(out[1]) == 3 && tensor_size(out[1], 2) == 3);
    EXPECT_TOL(out[0], 1e-12, 1.3873511113297634, 0, 1.4991780090003948, 0, 0.23266755900967662, 0, 0,
               0.3095598756531122, 0, 0.33451182923926226, 0, 0.05191514970317339);
    EXPECT_TOL(out[1], 1e-12, 0.8908079042931287, 0, 0, 0, -0.6861101411498431, 0, 0, 0, -1.6322216869786788,
               0.19876611034641298, 0, 0, 0, -0.1530918656742263, 0, 0, 0, -0.36419788641329287);
    y = tensor_hvp(energy, NULL, in, 2, v, out, 0);
    EXPECT_TOL(out[0], 1e-12, 25.203976221297026, 2.0965147404080144);
    EXPECT_TOL(out[1], 1e-12, 3.060645975734862, -0.7935960187884774, 1.0696391150814637);
    CHECK_NEAR(tensor_item(y), 4.436832665077909, 1e-12);
    y = tensor_vhp(energy, NULL, in, 2, v, out, 0);
    EXPECT_TOL(out[0], 1e-12, 25.20397622129703, 2.0965147404080144);
    EXPECT_TOL(out[1], 1e-12, 3.0606459757348627, -0.7935960187884774, 1.0696391150814637);
    CHECK(tensor_hessian(energy, NULL, in, 2, out, 0) == 0);
    CHECK(tensor_ndim(out[1]) == 2 && tensor_size(out[1], 0) == 2 && tensor_size(out[1], 1) == 3);
    EXPECT_TOL(out[0], 1e-12, 16.905648007175355, 0, 0, 0.8416826531362821);
    EXPECT_TOL(out[1], 1e-12, 4.943453344009639, -4.114404941456007, -1.5190601426879424, 0.2461200496115535,
               -0.20484416011334744, -0.07562955117890174);
    EXPECT_TOL(out[2], 1e-12, 4.943453344009639, 0.24612004961155354, -4.114404941456007,
               -0.20484416011334747, -1.5190601426879426, -0.07562955117890176);
    EXPECT_TOL(out[3], 1e-12, -2.3750474674978834, 0, 0, 0, -3.730497242894224, 0, 0, 0, 5.479916720254419);
    // zeros where nothing depends, NULL for integers, no result in the graph of another
    CHECK(tensor_hessian(first_only, NULL, in, 2, out, 0) == 0);
    EXPECT(out[0], 2, 0, 0, 2);
    EXPECT(out[1], 0, 0, 0, 0, 0, 0);
    EXPECT(out[3], 0, 0, 0, 0, 0, 0, 0, 0, 0);
    y = tensor_vjp(nothing, NULL, in, 2, NULL, out, 0);
    EXPECT(out[0], 0, 0);
    EXPECT(y, -0.5);
    tensor_jvp(nothing, NULL, in, 2, v, &r, 0);
    EXPECT(r, 0);
    in[1] = tensor_to(DATA(1, 1, 0), TENSOR_I64);
    CHECK(tensor_jacobian(picked, NULL, in, 2, out, 0) == 0);
    EXPECT(out[0], 0, -2, 0, -2, 1, 0);
    CHECK(out[1] == NULL);
    v[1] = NULL;
    tensor_jvp(picked, NULL, in, 2, v, &r, 0);
    EXPECT(r, -4, -4, 1);
    // CREATE_GRAPH: results are differentiable with respect to the inputs
    in[0] = a = LEAF64(0.5, -1);
    in[1] = b;
    y = tensor_vjp(outer, NULL, in, 2, tensor_ones_like(outer(in, 2, NULL)), out, TENSOR_CREATE_GRAPH);
    CHECK(tensor_requires_grad(out[0]) && tensor_requires_grad(y));
    CHECK(tensor_backward(tensor_sum(out[0])) == 0);
    EXPECT_TOL(tensor_grad(a), 1e-12, 3.1191966793398347, 0.6959868545955479);
    tensor_set_grad(a, NULL);
    tensor_jvp(first_only, NULL, in, 2, v, &r, TENSOR_CREATE_GRAPH);
    CHECK(tensor_backward(r) == 0);
    EXPECT(tensor_grad(a), 2, 4);
    tensor_set_grad(a, NULL);
    // errors
    POISONS(tensor_vjp(outer, NULL, in, 2, NULL, out, 0), TENSOR_ERR_AUTOGRAD, "a gradient to start from",
            HERE);
    CHECK(tensor_is_poison(out[0]) && tensor_is_poison(out[1]));
    FAILS(tensor_jacobian(broken, NULL, in, 2, out, 0), TENSOR_ERR_DTYPE, "matmul", HERE);
    CHECK(tensor_is_poison(out[1]));
    FAILS(tensor_hessian(outer, NULL, in, 2, out, 0), TENSOR_ERR_AUTOGRAD, "gradient to start from", HERE);
    POISONS(tensor_jvp(outer, NULL, in, 2, NULL, &r, 0), TENSOR_ERR_OWNER, "jvp: argument v is NULL", HERE);
    POISONS(tensor_jvp(outer, NULL, in, 2, v, NULL, 0), TENSOR_ERR_OWNER, "jvp: argument jvp is NULL", HERE);
    POISONS(tensor_jvp(NULL, NULL, in, 2, v, &r, 0), TENSOR_ERR_OWNER, "jvp: argument fn is NULL", HERE);
    POISONS(tensor_vjp(outer, NULL, NULL, 2, NULL, out, 0), TENSOR_ERR_OWNER, "vjp: argument inputs is NULL",
            HERE);
    POISONS(tensor_vjp(outer, NULL, in, 2, NULL, NULL, 0), TENSOR_ERR_OWNER, "vjp: argument vjp is NULL",
            HERE);
    POISONS(tensor_vjp(outer, NULL, in, -2, NULL, out, 0), TENSOR_ERR_OWNER,
            "vjp: argument inputs has -2 tensors, must be 0 or more", HERE);
    POISONS(tensor_hvp(outer, NULL, in, 2, v, NULL, 0), TENSOR_ERR_OWNER, "hvp: argument hvp is NULL", HERE);
    POISONS(tensor_vhp(outer, NULL, in, 2, NULL, out, 0), TENSOR_ERR_OWNER, "vhp: argument v is NULL", HERE);
    FAILS(tensor_hessian(outer, NULL, in, 2, NULL, 0), TENSOR_ERR_OWNER, "hessian: argument hessian is NULL",
          HERE);
    v[0] = DATA64(1, 2, 3);
    v[1] = DATA64(1, 2, 3);
    POISONS(tensor_jvp(outer, NULL, in, 2, v, &r, 0), TENSOR_ERR_SHAPE, "[3]", HERE);
}

// The powers 0, 1 and 2 of 0: x^0 has the derivative 0 there, also where it is found by a derivative of a
// gradient (PyTorch's pow gives NaN then, its linalg.vander 0).
static tensor_t *first_powers(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_pow(tensor_unsqueeze(in[0], 1), DATA64(0, 1, 2));
}
static tensor_t *vander_of(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_linalg_vander(in[0], 3);
}
static tensor_t *sum_of_vander(tensor_t *const *in, int n, void *user) {
    return tensor_sum(vander_of(in, n, user));
}

static void powers_of_zero(void) {
    tensor_t *x = DATA64(0, 0.5), *v = DATA64(1, 2), *r, *h;
    tensor_jvp(first_powers, NULL, &x, 1, &v, &r, 0);
    EXPECT_TOL(r, 1e-12, 0, 1, 0, 0, 2, 2);
    tensor_jvp(vander_of, NULL, &x, 1, &v, &r, 0);
    EXPECT_TOL(r, 1e-12, 0, 1, 0, 0, 2, 2);
    CHECK(tensor_hessian(sum_of_vander, NULL, &x, 1, &h, 0) == 0);
    EXPECT_TOL(h, 1e-12, 2, 0, 0, 2);
    CHECK_OK();
}

int main(void) {
    RUN(functional);
    RUN(many_inputs);
    RUN(derivatives_at_zero);
    RUN(powers_of_zero);
    return test_report();
}

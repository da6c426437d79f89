// autograd.c - the tape and the scopes: misuse, in-place changes of views, higher derivatives, custom
// functions, long chains, ownership
//
// Numbers named "PyTorch" come from runs of PyTorch 2.15 of the same lines.
#include "test.h"

#include <time.h>

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void expect(tensor_t *x, const double *want, int n, double tol, int line) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    tensor_t *d = tensor_is_poison(x) ? x : tensor_to(tensor_contiguous(tensor_detach(x)), TENSOR_F64);
    const double *v = (const double *)tensor_data(d);
    int k;
    test_note(v && tensor_numel(d) == n, __FILE__, line, "%d numbers expected, there are %lld", n,
              (long long)tensor_numel(d));
    for (k = 0; k < n && v && k < tensor_numel(d); k++) {
        test_note(fabs(v[k] - want[k]) <= tol * (1 + fabs(want[k])), __FILE__, line,
                  "number %d is %.12g, expected %.12g", k, v[k], want[k]);
    }
    tensor_scope_end(s);
}
#define EXPECT(x, ...) EXPECT_TOL(x, 1e-6, __VA_ARGS__)
#define EXPECT_TOL(x, tol, ...)                                                                              \
    expect(x, (const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), tol, __LINE__)

static tensor_t *leaf_of(const double *v, int n, tensor_dtype_t dtype) {
    return tensor_requires_grad_(tensor_clone(tensor_to(tensor_from(v, TENSOR_F64, n), dtype)), 1);
}
#define LEAF(...) leaf_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F32)
#define LEAF64(...) leaf_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F64)
#define DATA(...)                                                                                            \
    tensor_to(tensor_from(((const double[]){__VA_ARGS__}), TENSOR_F64, N(((const double[]){__VA_ARGS__}))),  \
              TENSOR_F32)

// An error of a function that returns a code: the code, parts of its text, both naming the place.
static void fails(int code, int want, const char *a, const char *b, int line) {
    const char *text = tensor_error_text();
    test_note(code == want && tensor_error_code() == want && strstr(text, a) && strstr(text, b), __FILE__,
              line, "error is %s \"%s\", expected %s with \"%s\" and \"%s\"",
              tensor_code_name(tensor_error_code()), text, tensor_code_name(want), a, b);
    tensor_clear_error();
}
#define FAILS(code, want, a, b) fails(code, want, a, b, __LINE__)
#define POISONS(t, want, a, b) fails(tensor_is_poison(t) ? tensor_error_code() : 0, want, a, b, __LINE__)

// ---- misuse ----

// f32 changed in place by f64 is computed in f64, and so is its gradient: 3 mod (1 + 1e-10) has the quotient
// 2.
static void wider_divisor(void) {
    float three = 3;
    double divisor = 1.0000000001;
    tensor_t *x = tensor_from(&three, TENSOR_F32, 1);
    tensor_t *d = tensor_requires_grad_(tensor_from(&divisor, TENSOR_F64, 1), 1);
    tensor_backward(tensor_sum(tensor_remainder_(x, d)));
    CHECK(tensor_item(tensor_grad(d)) == -2);
}

static void changed_saved_value(void) {
    tensor_t *x = LEAF(1, 2), *y = tensor_exp(x), *z;
    tensor_add_scalar_(y, 1);
    FAILS(tensor_backward(tensor_sum(y)), TENSOR_ERR_AUTOGRAD,
          "exp at autograd.c:", "changed in place by add at autograd.c:");
    y = tensor_mul(x, x);
    z = tensor_mul(y, y);
    tensor_zero_(y);
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD,
          "mul at autograd.c:", "changed in place by fill at autograd.c:");
    y = tensor_mul_scalar(x, 2);
    z = tensor_square(y);
    tensor_data_mut(y);
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD,
          "square at autograd.c:", "changed in place by");
    y = tensor_mul_scalar(x, 2); // through a view of it
    z = tensor_square(y);
    tensor_mul_scalar_(tensor_narrow(y, 0, 1, 1), 3);
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD,
          "square at autograd.c:", "changed in place by mul at autograd.c:");
    y = tensor_mul_scalar(x, 2); // under no_grad
    z = tensor_square(y);
    {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_zero_(y);
        tensor_scope_end(s);
    }
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD,
          "square at autograd.c:", "fill at autograd.c:");
    y = tensor_mul_scalar(x, 2); // a value no gradient reads may change
    z = tensor_add_scalar(y, 1);
    tensor_zero_(y);
    CHECK(tensor_backward(tensor_sum(z)) == 0);
    EXPECT(tensor_grad(x), 2, 2);
}
// A product reads each factor for the gradient of the other one alone.
static tensor_t *product(int k, tensor_t *a, tensor_t *b) {
    if (k == 0) { return tensor_matmul(tensor_reshape(a, 2, 3), tensor_reshape(b, 3, 2)); }
    if (k == 1) { return tensor_linear(tensor_reshape(a, 2, 3), tensor_reshape(b, 2, 3), NULL); }
    if (k == 2) { return tensor_conv1d(tensor_reshape(a, 1, 2, 3), tensor_reshape(b, 1, 2, 3), NULL); }
    return tensor_conv_transpose1d(tensor_reshape(a, 1, 2, 3), tensor_reshape(b, 2, 1, 3), NULL);
}
// A view whose base got a gradient after the view was made: what reads it saves the other factor all the
// same.
static void view_of_changed_base(void) {
    int k;
    for (k = 0; k < 5; k++) {
        float v[6] = {1, 2, 3, 4, 5, 6};
        tensor_t *a = tensor_requires_grad_(tensor_from(v, TENSOR_F32, 6), 1);
        tensor_t *w = tensor_requires_grad_(tensor_from(v, TENSOR_F32, 6), 1);
        tensor_t *base = tensor_zeros(6), *view = tensor_reshape(base, 6), *y, *same;
        tensor_copy_(base, w);
        y = k < 4 ? product(k, a, view) : tensor_mul(a, view);
        same = k < 4 ? product(k, a, w) : tensor_mul(a, w);
        CHECK(tensor_backward(tensor_sum(y)) == 0);
        y = tensor_mul_scalar(tensor_grad(a), 2);
        view = tensor_mul_scalar(tensor_grad(w), 2);
        CHECK(tensor_backward(tensor_sum(same)) == 0);          // adds the same again
        CHECK(test_same_bits(y, tensor_grad(a)) && test_same_bits(view, tensor_grad(w)));
    }
}

static void changed_factor(void) {
    int k, wants, changed, d;
    for (k = 0; k < 4; k++) {
        for (wants = 1; wants < 4; wants++) {           // bit 0: a gradient of a, bit 1: of b
            for (changed = 0; changed < 2; changed++) {
                tensor_t *f[2], *y, *want[2] = {NULL, NULL};
                tensor_scope_t s;
                for (d = 0; d < 2; d++) {
                    f[d] = tensor_add_scalar(tensor_arange(0, 6, 1, TENSOR_F32), d + 0.5);
                    if (wants >> d & 1) { tensor_requires_grad_(f[d], 1); }
                }
                y = product(k, f[0], f[1]);
                tensor_backward(tensor_sum(tensor_square(y)));
                for (d = 0; d < 2; d++) {
                    if (!(wants >> d & 1)) { continue; }
                    want[d] = tensor_clone(tensor_grad(f[d]));
                    tensor_set_grad(f[d], NULL);
                }
                y = product(k, f[0], f[1]);
                s = tensor_scope_begin_no_grad();
                tensor_mul_scalar_(f[changed], 2);
                tensor_scope_end(s);
                if (wants >> !changed & 1) {
                    FAILS(tensor_backward(tensor_sum(tensor_square(y))), TENSOR_ERR_AUTOGRAD,
                          "changed in place by mul", "autograd.c:");
                    continue;
                }
                CHECK_MSG(tensor_backward(tensor_sum(tensor_square(y))) == 0, "%s", tensor_error_text());
                CHECK(tensor_equal(tensor_grad(f[changed]), want[changed]));
            }
        }
    }
}
static void changed_leaf(void) {
    tensor_t *x = LEAF(1, 2), *v = tensor_narrow(x, 0, 0, 1), *b = DATA(1, 1);
    tensor_scope_t s;
    POISONS(tensor_add_(x, b), TENSOR_ERR_AUTOGRAD, "add_: x [2] is a leaf", "autograd.c:");
    POISONS(tensor_zero_(x), TENSOR_ERR_AUTOGRAD, "leaf that requires grad", "autograd.c:");
    POISONS(tensor_relu_(x), TENSOR_ERR_AUTOGRAD, "relu_: x [2] is a leaf", "autograd.c:");
    POISONS(tensor_copy_(x, b), TENSOR_ERR_AUTOGRAD, "leaf", "autograd.c:");
    POISONS(tensor_mul_scalar_(v, 2), TENSOR_ERR_AUTOGRAD, "view of a leaf", "autograd.c:");
    CHECK(tensor_data_mut(x) == NULL);
    FAILS(tensor_error_code(), TENSOR_ERR_AUTOGRAD, "leaf", "");
    s = tensor_scope_begin_no_grad();
    CHECK(!tensor_is_poison(tensor_sub_(x, b)));
    CHECK(!tensor_is_poison(tensor_mul_scalar_(v, 5)));
    tensor_scope_end(s);
    EXPECT(x, 0, 1);
    tensor_requires_grad_(x, 0);
    CHECK(!tensor_is_poison(tensor_add_(x, b)));
}
static void changed_expanded(void) {
    tensor_t *e = tensor_expand(tensor_ones(3, 1), 3, 4);
    POISONS(tensor_add_scalar_(e, 1), TENSOR_ERR_AUTOGRAD, "add_scalar_: x [3,4] is expanded", "autograd.c:");
    POISONS(tensor_fill_(e, 1), TENSOR_ERR_AUTOGRAD, "fill_: x [3,4] is expanded", "autograd.c:");
    POISONS(tensor_copy_(e, tensor_ones(3, 4)), TENSOR_ERR_AUTOGRAD, "expanded", "autograd.c:");
    POISONS(tensor_uniform_(e, 0, 1), TENSOR_ERR_AUTOGRAD, "expanded", "autograd.c:");
}
static void changed_overlapping(void) {
    tensor_t *x = DATA(1, 2, 3, 4, 5), *a = tensor_narrow(x, 0, 0, 4), *b = tensor_narrow(x, 0, 1, 4);
    tensor_t *w, *t;
    POISONS(tensor_copy_(a, b), TENSOR_ERR_AUTOGRAD, "overlap", "autograd.c:");
    POISONS(tensor_add_(b, a), TENSOR_ERR_AUTOGRAD, "add_: x [4] and b [4] overlap", "autograd.c:");
    EXPECT(x, 1, 2, 3, 4, 5);
    tensor_add_(a, a); // the same view is fine
    EXPECT(x, 2, 4, 6, 8, 5);
    w = tensor_reshape(tensor_arange(0, 9, 1, TENSOR_F32), 3, 3); // a transpose onto itself: never garbage
    t = tensor_copy_(w, tensor_mT(w));
    if (tensor_is_poison(t)) {
        FAILS(tensor_error_code(), TENSOR_ERR_AUTOGRAD, "overlap", "autograd.c:");
    } else {
        EXPECT(w, 0, 3, 6, 1, 4, 7, 2, 5, 8);
    }
    w = tensor_reshape(tensor_arange(0, 9, 1, TENSOR_F32), 3, 3);
    t = tensor_add_(w, tensor_select(w, 0, 0)); // b broadcast from a row of x
    if (tensor_is_poison(t)) {
        FAILS(tensor_error_code(), TENSOR_ERR_AUTOGRAD, "overlap", "autograd.c:");
    } else {
        EXPECT(w, 0, 2, 4, 3, 5, 7, 6, 8, 10);
    }
}
static void backward_twice(void) {
    tensor_t *x = LEAF(1, 2, 3), *y = tensor_sum(tensor_mul(x, x));
    CHECK(tensor_backward(y) == 0);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "mul at autograd.c:", "freed by an earlier backward");
    EXPECT(tensor_grad(x), 2, 4, 6);
    y = tensor_sum(tensor_exp(x));
    CHECK(tensor_backward_with(y, NULL, TENSOR_RETAIN_GRAPH) == 0);
    tensor_set_grad(x, NULL);
    CHECK(tensor_backward(y) == 0);
    EXPECT(tensor_grad(x), exp(1), exp(2), exp(3));
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "exp at autograd.c:", "RETAIN_GRAPH");
}
static void backward_of_many(void) {
    tensor_t *x = LEAF(1, 2, 3), *y = tensor_mul(x, x);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD,
          "backward: output [3] must have one element (take tensor_sum or tensor_mean of it)", "autograd.c:");
    FAILS(tensor_backward_with(y, tensor_ones(2), 0), TENSOR_ERR_SHAPE,
          "grad [2] must have the shape of the output [3]", "autograd.c:");
    CHECK(tensor_backward_with(y, DATA(1, 10, 100), 0) == 0);
    EXPECT(tensor_grad(x), 2, 40, 600);
    FAILS(tensor_backward(tensor_ones(1)), TENSOR_ERR_AUTOGRAD, "does not require grad",
          "ones at autograd.c:");
    FAILS(tensor_backward((tensor_t *)NULL), TENSOR_ERR_OWNER, "NULL", "autograd.c:");
    FAILS(tensor_backward_with(y, tensor_ones(3), 0), TENSOR_ERR_AUTOGRAD, "mul at autograd.c:", "freed");
}
static void integer_gradient(void) {
    POISONS(tensor_requires_grad_(tensor_zeros_of(TENSOR_I64, 2), 1), TENSOR_ERR_DTYPE,
            "requires_grad_: x [2] is i64", "autograd.c:");
    POISONS(tensor_requires_grad_(tensor_zeros_of(TENSOR_BOOL, 2), 1), TENSOR_ERR_DTYPE, "bool",
            "autograd.c:");
    CHECK(tensor_requires_grad(tensor_requires_grad_(tensor_zeros_of(TENSOR_BF16, 2), 1)));
    CHECK(!tensor_requires_grad(tensor_requires_grad_(tensor_zeros_of(TENSOR_I64, 2), 0)));
    POISONS(tensor_requires_grad_(tensor_exp(LEAF(1)), 0), TENSOR_ERR_AUTOGRAD, "requires_grad_",
            "tensor_detach");
}
static void growing(void) {
    tensor_t *x = tensor_ones(3), *y = tensor_mul_scalar(LEAF(1, 2, 3), 1);
    POISONS(tensor_add_(x, tensor_ones(2, 3)), TENSOR_ERR_SHAPE, "add_: b [2,3] does not broadcast to x [3]",
            "autograd.c:");
    POISONS(tensor_mul_(y, tensor_ones(2, 3)), TENSOR_ERR_SHAPE, "mul_: b [2,3]", "autograd.c:");
    POISONS(tensor_add_(tensor_ones(1), tensor_ones(4)), TENSOR_ERR_SHAPE, "add_", "autograd.c:");
    POISONS(tensor_copy_(x, tensor_ones(2, 3)), TENSOR_ERR_SHAPE, "[2,3]", "autograd.c:");
    POISONS(tensor_add_(tensor_ones_of(TENSOR_I32, 3), x), TENSOR_ERR_DTYPE,
            "add_: a result of f32 cannot be stored in x [3] i32", "autograd.c:");
    CHECK(!tensor_is_poison(tensor_add_(tensor_ones(3, 1), tensor_ones(1))));
    EXPECT(x, 1, 1, 1);
}

// ---- in-place changes of views, against PyTorch ----

static void view_changes_base(void) {
    tensor_t *x = tensor_requires_grad_(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3), 1), *b, *v;
    x = tensor_requires_grad_(tensor_clone(tensor_detach(x)), 1);
    b = tensor_mul_scalar(x, 2);
    v = tensor_select(b, 0, 0);
    tensor_mul_scalar_(v, 3);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, b))) == 0);
    EXPECT(b, 0, 6, 12, 6, 8, 10);
    EXPECT(tensor_grad(x), 0, 72, 144, 24, 32, 40);
}
static void base_changes_view(void) {
    tensor_t *x = tensor_requires_grad_(
                 tensor_clone(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3)), 1),
             *b, *v;
    b = tensor_mul_scalar(x, 2);
    v = tensor_select(b, 0, 1);
    tensor_mul_scalar_(b, 3);
    CHECK(tensor_backward(tensor_sum(tensor_mul(v, v))) == 0);
    EXPECT(v, 18, 24, 30);
    EXPECT(tensor_grad(x), 0, 0, 0, 216, 288, 360);
}
static void view_chain(void) {
    tensor_t *x = tensor_requires_grad_(tensor_arange(0, 6, 1, TENSOR_F32), 1), *b = tensor_mul_scalar(x, 1);
    tensor_t *v = tensor_select(tensor_mT(tensor_reshape(b, 2, 3)), 0, 1);
    tensor_add_scalar_(v, 10);
    tensor_mul_scalar_(v, 2);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, b))) == 0);
    EXPECT(b, 0, 22, 2, 3, 28, 5);
    EXPECT(tensor_grad(x), 0, 88, 4, 6, 112, 10);
}
static void view_copied_into(void) {
    tensor_t *x = LEAF(1, 1, 1, 1), *y = LEAF(2, 3), *b = tensor_mul_scalar(x, 2), *w = DATA(1, 2, 3, 4);
    tensor_copy_(tensor_slice(b, 0, 1, 3, 1), tensor_mul(y, y));
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, w))) == 0);
    EXPECT(b, 2, 4, 9, 2);
    EXPECT(tensor_grad(x), 2, 0, 0, 8);
    EXPECT(tensor_grad(y), 8, 18);
}
static void two_views(void) {
    tensor_t *x = LEAF(1, 1, 1, 1), *b = tensor_mul_scalar(x, 2), *v = tensor_narrow(b, 0, 0, 2),
             *w = tensor_narrow(b, 0, 1, 3);
    tensor_mul_scalar_(v, 3);
    tensor_mul_scalar_(w, 5);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, DATA(1, 2, 3, 4)))) == 0);
    EXPECT(b, 6, 30, 10, 10);
    EXPECT(tensor_grad(x), 6, 60, 30, 40);
    x = LEAF(1, 1, 1, 1);
    b = tensor_mul_scalar(x, 2);
    v = tensor_narrow(b, 0, 0, 2);
    w = tensor_narrow(b, 0, 1, 3);
    tensor_mul_scalar_(v, 3); // reaches w, which overlaps it
    CHECK(tensor_backward(tensor_sum(tensor_mul(w, DATA(1, 2, 3)))) == 0);
    EXPECT(w, 6, 2, 2);
    EXPECT(tensor_grad(x), 0, 6, 4, 6);
}
// Gradients of overlapping parts meet those of the whole in one sum, also where it lies permuted.
static void parts_of_one(void) {
    tensor_t *x = tensor_requires_grad_(
        tensor_clone(tensor_reshape(tensor_arange(0, 6, 1, TENSOR_F32), 2, 3)), 1), *b, *y;
    for (int whole = 0; whole < 2; whole++) {
        tensor_set_grad(x, NULL);
        b = tensor_permute(tensor_mul_scalar(x, 2), 1, 0);
        y = tensor_sum(tensor_mul(tensor_select(b, 0, 0), DATA(1, 2)));
        y = tensor_add(y, tensor_sum(tensor_mul_scalar(tensor_narrow(b, 0, 0, 2), 10)));
        y = tensor_add(y, tensor_sum(tensor_mul(tensor_select(b, 1, 1), DATA(100, 200, 300))));
        if (whole) { y = tensor_add(y, tensor_sum(tensor_mul_scalar(b, 1000))); }
        CHECK(tensor_backward(y) == 0);
        if (whole) {
            EXPECT(tensor_grad(x), 2022, 2020, 2000, 2224, 2420, 2600);
        } else {
            EXPECT(tensor_grad(x), 22, 20, 0, 224, 420, 600);
        }
    }
}
static tensor_t *lies(tensor_t *g, void *user) {
    *(int *)user = tensor_is_contiguous(g);
    return NULL;
}
// As attention splits its queries, keys and values: what comes back needs no copy.
static void parts_of_permuted(void) {
    for (int parts = 1; parts < 4; parts++) {
        tensor_t *x = tensor_requires_grad_(tensor_randn(2, 3, 3, 4), 1), *b = tensor_mul_scalar(x, 2), *y,
            *h = NULL;
        int row_major = -1;
        tensor_register_hook(b, lies, &row_major);
        y = tensor_permute(b, 2, 0, 1, 3);
        for (int k = 0; k < parts; k++) {
            tensor_t *part = tensor_mul_scalar(tensor_select(y, 0, k), k + 1);
            h = h ? tensor_add(h, part) : part;
        }
        CHECK(tensor_backward(tensor_sum(h)) == 0 && row_major == 1);
        for (int k = 0; k < 3; k++) {
            CHECK(tensor_item(tensor_sum(tensor_select(tensor_grad(x), 2, k))) == (k < parts ?
                    48.0 * (k + 1) : 0));
        }
    }
}
static void view_overwritten(void) {
    tensor_t *x = LEAF(1, 2, 3, 4), *b = tensor_mul(x, x), *y;
    tensor_zero_(tensor_narrow(b, 0, 1, 2));
    tensor_fill_(tensor_select(b, 0, 3), 7);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, b))) == 0);
    EXPECT(b, 1, 0, 0, 7);
    EXPECT(tensor_grad(x), 4, 0, 0, 0);
    y = LEAF(1, 1); // a base without grad receives one
    b = tensor_zeros(4);
    tensor_copy_(tensor_narrow(b, 0, 1, 2), tensor_mul_scalar(y, 3));
    CHECK(tensor_requires_grad(b));
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, DATA(1, 2, 3, 4)))) == 0);
    EXPECT(b, 0, 3, 3, 0);
    EXPECT(tensor_grad(y), 6, 9);
}
static void view_under_no_grad(void) {
    tensor_t *x = LEAF(1, 2), *b = tensor_mul_scalar(x, 2), *v, *d;
    tensor_scope_t s = tensor_scope_begin_no_grad();
    v = tensor_keep(tensor_narrow(b, 0, 0, 1));
    tensor_scope_end(s);
    POISONS(tensor_mul_scalar_(v, 2), TENSOR_ERR_AUTOGRAD, "view made under no_grad", "autograd.c:");
    tensor_free(v);
    d = tensor_detach(b); // detached views may change; nothing is recorded
    tensor_mul_scalar_(d, 10);
    CHECK(tensor_backward(tensor_sum(b)) == 0);
    EXPECT(b, 20, 40);
    EXPECT(tensor_grad(x), 2, 2);
}
static void in_place_ops(void) {
    static const struct {
        const char *name;
        tensor_t *(*f)(tensor_t *);
        double y[3], g[3];
    } unary[] = {
        {"exp_", (tensor_exp_), {1.64872122, 2.71828175, 7.38905621}, {1.64872122, 2.71828175, 7.38905621}},
        {"sqrt_", (tensor_sqrt_), {0.70710677, 1.0, 1.41421354}, {0.70710677, 0.5, 0.35355338}},
        {"tanh_", (tensor_tanh_), {0.46211717, 0.76159418, 0.96402758}, {0.7864477, 0.4199743, 0.07065082}},
        {"sigmoid_",
         (tensor_sigmoid_),
         {0.62245935, 0.7310586, 0.88079703},
         {0.23500371, 0.19661193, 0.10499363}},
        {"relu_", (tensor_relu_), {0.5, 1, 2}, {1, 1, 1}},
        {"neg_", (tensor_neg_), {-0.5, -1, -2}, {-1, -1, -1}},
        {"abs_", (tensor_abs_), {0.5, 1, 2}, {1, 1, 1}}};
    tensor_t *x, *y, *a;
    int k;
    for (k = 0; k < N(unary); k++) {
        x = LEAF(0.5, 1, 2);
        y = tensor_mul_scalar(x, 1);
        CHECK_MSG(unary[k].f(y) == y, "%s does not return x", unary[k].name);
        CHECK(tensor_backward(tensor_sum(y)) == 0);
        expect(y, unary[k].y, 3, 1e-6, __LINE__);
        expect(tensor_grad(x), unary[k].g, 3, 1e-6, __LINE__);
    }
    x = LEAF(-1, 0.5, 2);
    y = tensor_mul_scalar(x, 1);
    tensor_abs_(tensor_neg_(y));
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(y, 1, 0.5, 2);
    EXPECT(tensor_grad(x), -1, 1, 1);
    x = LEAF(-1, 0.5, 2);
    y = tensor_clamp_(tensor_mul_scalar(x, 1), 0.1, 1.5);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(y, 0.1, 0.5, 1.5);
    EXPECT(tensor_grad(x), 0, 1, 0);
    x = LEAF(1, 2, 3);
    a = LEAF(2, 3, 4);
    y = tensor_mul_scalar(x, 1);
    tensor_addcmul_(y, a, a, 0.5);
    tensor_div_(y, a);
    tensor_sub_(y, x);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(y, 0.5, 0.16666675, -0.25);
    EXPECT(tensor_grad(x), -0.5, -0.66666663, -0.75);
    EXPECT(tensor_grad(a), 0.25, 0.27777773, 0.3125);
    x = LEAF(1, 2, 3);
    y = tensor_mul_scalar(x, 1);
    tensor_masked_fill_(y, tensor_ne_scalar(DATA(1, 0, 1), 0), 5);
    CHECK(tensor_backward(tensor_sum(tensor_mul(y, y))) == 0);
    EXPECT(y, 5, 2, 5);
    EXPECT(tensor_grad(x), 0, 4, 0);
    x = LEAF(1, 2, 3);
    y = tensor_mul_scalar(x, 2);
    tensor_mul_(y, y); // PyTorch refuses this one in backward; here it is right
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(y, 4, 16, 36);
    EXPECT(tensor_grad(x), 8, 16, 24);
    x = LEAF(1, 2, 3);
    y = tensor_mul_scalar(x, 1);
    tensor_add_scalar_(tensor_sub_scalar_(tensor_div_scalar_(tensor_mul_scalar_(y, 6), 2), 1), 4);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(y, 6, 9, 12);
    EXPECT(tensor_grad(x), 3, 3, 3);
}

// ---- derivatives of derivatives ----

static void higher(void) {
    static const double fourth[4] = {13.5, 27, 36, 24}, mixed[4] = {0.051838372656894394, -4.524837766032626,
                                                                    -11.572975432110942, 7.364872155454744};
    tensor_t *x = LEAF64(1.5), *y = tensor_pow_scalar(x, 4), *g, *w;
    int k;
    for (k = 0; k < 4; k++) {
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
        CHECK_NEAR(tensor_item(g), fourth[k], 1e-12);
        y = g;
    }
    CHECK(tensor_grad(x) == NULL);
    x = LEAF64(0.7);
    y = tensor_mul(tensor_sin(tensor_exp(x)), tensor_tanh(x));
    for (k = 0; k < 4; k++) {
        CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
        CHECK_NEAR(tensor_item(g), mixed[k], 1e-11);
        y = g;
    }
    x = LEAF64(1, 2); // gradient penalty
    w = LEAF64(3, -1);
    y = tensor_sum(tensor_sigmoid(tensor_mul(x, w)));
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_backward(tensor_square(tensor_sub_scalar(tensor_sum(tensor_mul(g, g)), 1))) == 0);
    EXPECT_TOL(tensor_grad(w), 1e-12, 0.04077838968405241, -0.02239171777744655);
    EXPECT_TOL(tensor_grad(x), 1e-12, 0.19364913487493732, 0.03259514980143098);
    x = LEAF64(2); // backward with CREATE_GRAPH gives a grad that has a graph
    y = tensor_mul(tensor_mul(x, x), x);
    CHECK(tensor_backward_with(y, NULL, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_requires_grad(tensor_grad(x)));
    g = tensor_grad(x);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &y, 0) == 0);
    EXPECT(y, 12);
    tensor_set_grad(x, NULL);
}
static void several(void) {
    tensor_t *a = LEAF64(2, 3), *b = LEAF64(5, 7), *c = LEAF64(1, 1);
    tensor_t *out[2], *in[3], *g[3], *seed[2];
    out[0] = tensor_mul(a, b);
    out[1] = tensor_sum(tensor_square(a));
    in[0] = a, in[1] = b, in[2] = c;
    seed[0] = tensor_to(DATA(1, 10), TENSOR_F64);
    seed[1] = NULL;
    FAILS(tensor_autograd_grad(out, 2, seed, in, 3, g, TENSOR_RETAIN_GRAPH), TENSOR_ERR_AUTOGRAD,
          "input 2 [2] was not used", "autograd.c:");
    CHECK(tensor_is_poison(g[0]) && tensor_is_poison(g[1]) && tensor_is_poison(g[2]));
    CHECK(tensor_autograd_grad(out, 2, seed, in, 3, g, TENSOR_ALLOW_UNUSED) == 0);
    EXPECT(g[0], 5 + 4, 70 + 6);
    EXPECT(g[1], 2, 30);
    CHECK(g[2] == NULL && tensor_grad(a) == NULL && tensor_grad(b) == NULL);
    out[0] = tensor_mul(a, b); // with respect to a value inside the graph
    out[1] = tensor_exp(out[0]);
    out[0] = tensor_sum(tensor_mul(out[1], a));
    in[0] = out[1];
    CHECK(tensor_autograd_grad(out, 1, NULL, in, 1, g, TENSOR_RETAIN_GRAPH) == 0);
    EXPECT(g[0], 2, 3);
    FAILS(tensor_autograd_grad(out, 1, NULL, in, 1, NULL, 0), TENSOR_ERR_OWNER,
          "autograd_grad: argument gradients is NULL", "autograd.c:");
    FAILS(tensor_autograd_grad(NULL, 1, NULL, in, 1, g, 0), TENSOR_ERR_OWNER,
          "autograd_grad: argument outputs is NULL", "autograd.c:");
    in[0] = in[1] = a; // the same input twice
    CHECK(tensor_autograd_grad(out + 1, 1, &seed[0], in, 2, g, 0) == 0);
    CHECK(tensor_equal(g[0], g[1]));
    out[0] = tensor_mul(a, b);
    FAILS(tensor_autograd_grad(out, 1, NULL, in, 1, g, 0), TENSOR_ERR_AUTOGRAD, "gradient to start from",
          "autograd.c:");
    CHECK(tensor_is_poison(g[0]));
    FAILS(tensor_autograd_grad(&c, 1, &seed[0], in, 1, g, 0), TENSOR_ERR_AUTOGRAD, "not used", "autograd.c:");
}

// ---- leaves, modes ----

static void accumulation(void) {
    tensor_t *x = LEAF(1, 2), *g, *y, *z;
    int k;
    for (k = 0; k < 3; k++) { tensor_backward(tensor_sum(tensor_mul_scalar(x, 2))); }
    EXPECT(tensor_grad(x), 6, 6);
    g = tensor_grad(x);
    tensor_zero_(g);
    EXPECT(tensor_grad(x), 0, 0);
    FAILS(tensor_set_grad(x, tensor_ones(3)), TENSOR_ERR_SHAPE, "set_grad: grad [3]", "autograd.c:");
    FAILS(tensor_set_grad(x, tensor_to(tensor_ones(2), TENSOR_F64)), TENSOR_ERR_DTYPE, "f64", "autograd.c:");
    CHECK(tensor_set_grad(x, tensor_ones(2)) == 0);
    tensor_backward(tensor_sum(x));
    EXPECT(tensor_grad(x), 2, 2);
    CHECK(tensor_set_grad(x, NULL) == 0 && tensor_grad(x) == NULL);
    // one leaf many times, broadcast both ways
    y = tensor_add(tensor_mul(x, x), tensor_mul(tensor_reshape(x, 2, 1), x));
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 2 * 2 * 1 + 2 * 3, 2 * 2 * 2 + 2 * 3);
    tensor_set_grad(x, NULL);
    // the grad of an f16 leaf in f32 arithmetic has its dtype and shape
    z = tensor_requires_grad_(tensor_to(DATA(1, 2), TENSOR_F16), 1);
    tensor_backward(tensor_sum(tensor_mul(tensor_to(z, TENSOR_F32), DATA(3, 5))));
    CHECK(tensor_dtype(tensor_grad(z)) == TENSOR_F16);
    EXPECT(tensor_grad(z), 3, 5);
    // a gradient does not alias another one: changing x.grad leaves y.grad alone
    x = LEAF(1, 2);
    y = LEAF(3, 4);
    tensor_backward(tensor_sum(tensor_add(x, y)));
    {
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_mul_scalar_(tensor_grad(x), 5);
        tensor_scope_end(s);
    }
    EXPECT(tensor_grad(y), 1, 1);
}
static void non_leaves(void) {
    tensor_t *x = LEAF(1, 2), *y = tensor_mul(x, x), *z, *d;
    CHECK(tensor_is_leaf(x) && !tensor_is_leaf(y) && tensor_requires_grad(y));
    CHECK(tensor_retain_grad(y) == y);
    z = tensor_sum(tensor_mul_scalar(y, 3));
    tensor_backward(z);
    EXPECT(tensor_grad(y), 3, 3);
    EXPECT(tensor_grad(x), 6, 12);
    CHECK(tensor_grad(z) == NULL);
    POISONS(tensor_retain_grad(tensor_ones(2)), TENSOR_ERR_AUTOGRAD, "retain_grad", "autograd.c:");
    CHECK(tensor_retain_grad(x) == x);
    d = tensor_detach(y);
    CHECK(!tensor_requires_grad(d) && tensor_is_leaf(d) && tensor_data(d) == tensor_data(y));
    CHECK(!tensor_requires_grad(tensor_argmax(y)) && !tensor_requires_grad(tensor_gt_scalar(y, 0)));
    CHECK(!tensor_requires_grad(tensor_to(y, TENSOR_I64)));
    tensor_set_grad(x, NULL);
    y = tensor_mul(x, tensor_detach(x));
    tensor_backward(tensor_sum(y));
    EXPECT(tensor_grad(x), 1, 2);
    tensor_set_grad(x, NULL);
    y = tensor_mul(x, x); // a value and its retained grad dropped before backward
    {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *inner = tensor_retain_grad(tensor_mul_scalar(x, 2));
        z = tensor_scope_return(s, tensor_add(tensor_square(inner), y));
    }
    CHECK(tensor_backward(tensor_sum(z)) == 0);
    EXPECT(tensor_grad(x), 10, 20);
}
static void modes(void) {
    tensor_t *x = LEAF(1, 2), *y;
    tensor_scope_t s, t;
    CHECK(tensor_grad_enabled());
    s = tensor_scope_begin_no_grad();
    CHECK(!tensor_grad_enabled());
    y = tensor_mul(x, x);
    CHECK(!tensor_requires_grad(y) && tensor_is_leaf(y));
    t = tensor_scope_begin_grad();
    CHECK(tensor_grad_enabled() && tensor_requires_grad(tensor_mul(x, x)));
    tensor_scope_end(t);
    CHECK(!tensor_grad_enabled());
    t = tensor_scope_begin();
    CHECK(!tensor_grad_enabled());
    tensor_scope_begin_grad(); // left open
    CHECK(tensor_grad_enabled());
    tensor_scope_end(s); // closes all three and restores
    CHECK(tensor_grad_enabled());
    FAILS(tensor_scope_end(t), TENSOR_ERR_OWNER, "scope", "autograd.c:");
    FAILS(tensor_scope_end(s), TENSOR_ERR_OWNER, "scope_end", "autograd.c:");
    FAILS(tensor_scope_reset(s), TENSOR_ERR_OWNER, "scope_reset", "autograd.c:");
    s = tensor_scope_begin_no_grad();
    tensor_scope_reset(s);
    CHECK(!tensor_grad_enabled()); // reset leaves it open
    tensor_scope_end(s);
}

// ---- custom functions ----

static int destroyed;
static void count_destroyed(void *user) { destroyed += *(int *)user; }
static tensor_t *cube_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    CHECK(!tensor_grad_enabled());
    CHECK(tensor_save_for_backward(ctx, 0, in[0]) == 0);
    return tensor_mul(in[0], tensor_mul(in[0], in[0]));
}
static int cube_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0);
    (void)n;
    if (tensor_is_poison(x)) { return tensor_error_code(); }
    grads[0] = tensor_mul(g, tensor_mul_scalar(tensor_mul(x, x), 3));
    return 0;
}
static tensor_t *sigm_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) { // saves its result
    tensor_t *y = tensor_sigmoid(in[0]);
    (void)n;
    tensor_save_for_backward(ctx, 3, y);
    return y;
}
static int sigm_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *y = tensor_saved(ctx, 3);
    (void)n;
    CHECK(tensor_function_user(ctx) != NULL);
    grads[0] = tensor_mul(g, tensor_mul(y, tensor_rsub_scalar(y, 1)));
    return 0;
}
static tensor_t *bad_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n, (void)in;
    tensor_raise(TENSOR_ERR_UNSUPPORTED, "bad: not today");
    return NULL;
}
static tensor_t *pass_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)ctx, (void)n;
    return tensor_add(in[0], in[1]);
}
static int bad_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)g, (void)grads, (void)n;
    return TENSOR_ERR_UNSUPPORTED;
}
static int wrong_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)ctx, (void)g, (void)n;
    grads[0] = tensor_ones(7);
    return 0;
}
static int half_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    (void)n;
    CHECK(tensor_needs_input_grad(ctx, 0) && !tensor_needs_input_grad(ctx, 1));
    grads[0] = g;
    return 0;
}
static void custom(void) {
    static const tensor_function_t cube = {"cube", cube_forward, cube_backward, count_destroyed},
                                   sigm = {"sigm", sigm_forward, sigm_backward, NULL},
                                   bad = {"bad", bad_forward, bad_backward, NULL},
                                   fails_later = {"later", pass_forward, bad_backward, NULL},
                                   wrong = {"wrong", pass_forward, wrong_backward, NULL},
                                   half = {"half", pass_forward, half_backward, NULL};
    static int one = 1;             // the last node goes after this function
    tensor_t *x = LEAF64(2), *y, *g, *h, *in[2];
    tensor_scope_t s;
    destroyed = 0;
    s = tensor_scope_begin();
    {
        tensor_function_t fleeting = {"cube", cube_forward, cube_backward, count_destroyed};
        y = tensor_apply(&fleeting, &one, &x, 1);
        memset(&fleeting, 0, sizeof fleeting);          // a copy is kept
    }
    EXPECT(y, 8);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
    EXPECT(g, 12);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &h, TENSOR_CREATE_GRAPH) == 0);
    EXPECT(h, 12);
    CHECK(tensor_autograd_grad(&h, 1, NULL, &x, 1, &g, 0) == 0);
    EXPECT(g, 6);
    CHECK(destroyed == 0);
    tensor_scope_end(s);
    CHECK(destroyed == 1);
    s = tensor_scope_begin_no_grad(); // nothing recorded: the user pointer is freed all the same
    EXPECT(tensor_apply(&cube, &one, &x, 1), 8);
    tensor_scope_end(s);
    CHECK(destroyed == 2);
    x = LEAF64(0.5);
    y = tensor_apply(&sigm, &one, &x, 1);
    CHECK(tensor_backward_with(y, NULL, TENSOR_RETAIN_GRAPH) == 0);
    CHECK_NEAR(tensor_item(tensor_grad(x)), 0.2350037122015945, 1e-14);
    CHECK(tensor_autograd_grad(&y, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH) == 0);
    CHECK(tensor_autograd_grad(&g, 1, NULL, &x, 1, &h, 0) == 0);
    CHECK_NEAR(tensor_item(h), 0.2350037122015945 * (1 - 2 * 0.6224593312018546), 1e-14);
    in[0] = in[1] = x;
    POISONS(tensor_apply(&bad, NULL, in, 2), TENSOR_ERR_UNSUPPORTED, "bad: not today", "autograd.c:");
    y = tensor_apply(&fails_later, NULL, in, 2);
    FAILS(tensor_backward(y), TENSOR_ERR_UNSUPPORTED, "later: backward failed", "autograd.c:");
    x = LEAF64(1, 2);
    in[0] = in[1] = x;
    y = tensor_sum(tensor_apply(&wrong, NULL, in, 2));
    FAILS(tensor_backward(y), TENSOR_ERR_SHAPE, "[7]", "autograd.c:");
    in[1] = tensor_to(DATA(1, 2), TENSOR_F64);
    y = tensor_sum(tensor_apply(&half, NULL, in, 2));
    tensor_set_grad(x, NULL);
    CHECK(tensor_backward(y) == 0);
    EXPECT(tensor_grad(x), 1, 1);
    // a saved input changed since
    x = LEAF64(2);
    g = tensor_mul_scalar(x, 1);
    y = tensor_apply(&cube, &one, &g, 1);
    tensor_add_scalar_(g, 1);
    FAILS(tensor_backward(y), TENSOR_ERR_AUTOGRAD, "changed in place by add at autograd.c:", "autograd.c:");
}

static tensor_t *sum_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    tensor_t *y = in[0];
    (void)ctx;
    for (int i = 1; i < n; i++) { y = tensor_add(y, in[i]); }
    return y;
}
static int shared_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *same = tensor_mul_scalar(g, 1);
    (void)ctx;
    for (int i = 0; i < n; i++) { grads[i] = same; }
    return 0;
}
// One gradient for all inputs of a custom function, a value's and a leaf's that gets another one too.
static void custom_many_inputs(void) {
    static const tensor_function_t sum = {"sum", sum_forward, shared_backward, NULL};
    for (int n = 2; n <= 20; n += 3) {
        for (int first = 0; first < 2; first++) {
            tensor_t *a = LEAF(1, 1, 1), *leaf = LEAF(1, 1, 1), *in[20];
            tensor_t *value = tensor_mul_scalar(a, 2), *later = tensor_mul_scalar(leaf, 10);
            for (int i = 0; i < n; i++) { in[i] = tensor_ones(3); }
            in[first] = value;
            in[!first] = leaf;
            CHECK(tensor_backward(tensor_sum(tensor_add(tensor_apply(&sum, NULL, in, n), later))) == 0);
            EXPECT(tensor_grad(a), 2, 2, 2);
            EXPECT(tensor_grad(leaf), 11, 11, 11);
        }
    }
}

static void raised(void) {
    CHECK(tensor_raise(TENSOR_ERR_SHAPE, "mine: no") == TENSOR_ERR_SHAPE);
    CHECK(!strncmp(tensor_error_text(), "mine: no at autograd.c:", 23));
    tensor_clear_error();
}

// ---- size ----

enum { LONG = 1000000 };
static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }
static double chain(int n) {
    tensor_t *x = LEAF(1), *y = tensor_add_scalar(x, 0);
    double t = seconds();
    int k;
    tensor_scope_t s = tensor_scope_begin();
    for (k = 1; k < n; k++) {
        tensor_set(&y, tensor_add_scalar(y, 1));
        if (k % 1000 == 0) { tensor_scope_reset(s); }
    }
    tensor_scope_end(s);
    CHECK(tensor_memory_stats().live_nodes >= n);
    CHECK(tensor_backward(y) == 0);
    EXPECT(tensor_grad(x), 1);
    tensor_free(y);
    CHECK(tensor_memory_stats().live_nodes == 0);
    return seconds() - t;
}
static void long_chain(void) {
    double small = chain(LONG / 10), large = chain(LONG);
    CHECK_MSG(large < 40 * small + 0.5, "%d ops take %.2f s, %d take %.2f s: not linear", LONG / 10, small,
              LONG, large);
    { // freed without a backward
        tensor_t *x = LEAF(1), *y = tensor_mul_scalar(x, 1);
        int k;
        tensor_scope_t s = tensor_scope_begin();
        for (k = 1; k < LONG; k++) {
            tensor_set(&y, tensor_mul_scalar(y, 1.0));
            if (k % 1000 == 0) { tensor_scope_reset(s); }
        }
        tensor_scope_end(s);
        tensor_free(y);
        CHECK(tensor_memory_stats().live_nodes == 0);
    }
    { // a chain of in-place changes of one view
        tensor_t *x = LEAF(1, 2), *b = tensor_mul_scalar(x, 1), *v = tensor_narrow(b, 0, 0, 1);
        int k;
        for (k = 0; k < 20000; k++) { tensor_add_scalar_(v, 1); }
        CHECK(tensor_backward(tensor_sum(b)) == 0);
        EXPECT(b, 20001, 2);
        EXPECT(tensor_grad(x), 1, 1);
    }
    { // a wide one
        tensor_t *x = LEAF(1), *y = tensor_mul_scalar(x, 0);
        int k;
        tensor_scope_t s = tensor_scope_begin();
        for (k = 0; k < 20000; k++) { tensor_set(&y, tensor_add(y, x)); }
        tensor_scope_end(s);
        CHECK(tensor_backward(y) == 0);
        EXPECT(tensor_grad(x), 20000);
    }
}

// ---- loop-carried state ----

static void through_time(void) {
    static const double w0[] = {0.5, -0.2, 0.1, 0.3}, h0[] = {1, 2};
    tensor_t *w = tensor_requires_grad_(tensor_from(w0, TENSOR_F64, 2, 2), 1), *h = NULL, *loss;
    tensor_scope_t s;
    int t, k;
    for (k = 0; k < 3; k++) { // by NULL (kept), by a scope's own, by a kept handle
        s = tensor_scope_begin();
        h = k ? tensor_from(h0, TENSOR_F64, 1, 2) : NULL;
        if (k == 2) { tensor_keep(h); }
        if (!k) { CHECK(tensor_set(&h, tensor_from(h0, TENSOR_F64, 1, 2)) == 0); }
        for (t = 0; t < 5; t++) {
            tensor_scope_t inner = tensor_scope_begin();
            CHECK(tensor_set(&h, tensor_add_scalar(tensor_tanh(tensor_matmul(h, w)), 0.1)) == 0);
            tensor_scope_end(inner); // h survives, the temporaries go
        }
        loss = tensor_sum(h);
        CHECK(tensor_backward(loss) == 0);
        EXPECT_TOL(h, 1e-12, 0.24038386965939787, 0.057614139550918785);
        EXPECT_TOL(tensor_grad(w), 1e-12, 0.3873834208658172, 0.5286325595618271, 0.0435997887430722,
                   0.1197293003203879);
        tensor_set_grad(w, NULL);
        if (k != 1) { CHECK(tensor_free(h) == 0); }
        CHECK(tensor_scope_end(s) == 0);
    }
    // poison is refused, the old value stays
    h = tensor_keep(tensor_ones(2));
    loss = h;
    FAILS(tensor_set(&h, tensor_matmul(h, tensor_ones(3))), TENSOR_ERR_SHAPE, "matmul", "autograd.c:");
    CHECK(h == loss);
    EXPECT(h, 1, 1);
    tensor_free(h);
    FAILS(tensor_set(NULL, tensor_ones(1)), TENSOR_ERR_OWNER, "handle is NULL", "autograd.c:");
}

// ---- scopes ----

static int64_t live(void) { return tensor_memory_stats().live_tensors; }
static tensor_t *early_return(tensor_t *x, int early) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *y = tensor_exp(x);
    if (early) { return y; } // forgets its scope
    return tensor_scope_return(s, tensor_mul(y, y));
}
static void scopes(void) {
    int64_t start = live();
    tensor_scope_t s = tensor_scope_begin(), t;
    tensor_t *a = tensor_ones(3), *b, *c, *k;
    CHECK(live() == start + 1);
    t = tensor_scope_begin();
    b = tensor_add(a, a);
    tensor_add(b, b);
    CHECK(live() == start + 3);
    CHECK(tensor_scope_reset(t) == 0 && live() == start + 1);
    b = tensor_add(a, a);
    c = tensor_scope_return(t, tensor_mul(b, b));
    CHECK(live() == start + 2);
    EXPECT(c, 4, 4, 4);
    t = tensor_scope_begin();
    CHECK(tensor_scope_return(t, a) == a); // not owned by it: passes through
    EXPECT(a, 1, 1, 1);
    t = tensor_scope_begin(); // a view keeps the storage, the header goes
    b = tensor_narrow(tensor_arange(0, 9, 1, TENSOR_F32), 0, 4, 2);
    b = tensor_scope_return(t, b);
    EXPECT(b, 4, 5);
    k = early_return(a, 0);
    CHECK_NEAR(tensor_item(tensor_select(k, 0, 0)), exp(2), 1e-5);
    early_return(a, 1); // its scope is healed by the end of s
    CHECK(tensor_scope_end(s) == 0);
    CHECK(live() == start);
    s = tensor_scope_begin();
    k = tensor_keep(tensor_ones(2));
    CHECK(tensor_keep(k) == k); // kept twice
    CHECK(tensor_scope_end(s) == 0 && live() == start + 1);
    EXPECT(k, 1, 1);
    CHECK(tensor_free(k) == 0);
    EXPECT(k, 1, 1);
    CHECK(tensor_free(k) == 0 && live() == start);
    FAILS(tensor_free(k), TENSOR_ERR_OWNER, "free: tensor freed twice, first at autograd.c:",
          "created by ones at autograd.c:");
    CHECK(tensor_free(NULL) == 0);
    a = tensor_ones(2); // freed before its scope ends
    CHECK(tensor_free(a) == 0 && live() == start);
    FAILS(tensor_free(a), TENSOR_ERR_OWNER, "freed twice", "autograd.c:");
    for (int i = 0; i < 50; i++) { CHECK(tensor_ones(2) != a); }      // not reused before a reset
    POISONS(tensor_neg(a), TENSOR_ERR_OWNER, "neg: argument x: tensor used after it was freed at autograd.c:",
            "created by ones at autograd.c:");
    memset(&t, 0, sizeof t);
    FAILS(tensor_scope_end(t), TENSOR_ERR_OWNER, "scope_end: the scope was never begun", "autograd.c:");
    s = tensor_scope_begin();
    t = tensor_scope_begin();
    CHECK(tensor_scope_return(s, tensor_ones(1)) != NULL); // t goes with it
    FAILS(tensor_scope_end(t), TENSOR_ERR_OWNER, "scope", "autograd.c:");
}
static void stale(void) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *prev = NULL, *t;
    int step;
    for (step = 0; step < 4; step++, tensor_scope_reset(s)) {
        if (prev) { // the usual mistake: last turn's tensor
            POISONS(tensor_add_scalar(prev, 1), TENSOR_ERR_OWNER,
                    "used after its scope ended, created by mul_scalar at autograd.c:", "tensor_set");
            CHECK(tensor_item(prev) != tensor_item(prev));
            FAILS(tensor_error_code(), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
            CHECK(tensor_data(prev) == NULL);
            FAILS(tensor_error_code(), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
            CHECK(tensor_numel(prev) == 0 && tensor_ndim(prev) == 0);
            tensor_clear_error();
            POISONS(tensor_keep(prev), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
            POISONS(tensor_add_scalar_(prev, 1), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
            POISONS(tensor_narrow(prev, 0, 0, 1), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
            FAILS(tensor_backward(prev), TENSOR_ERR_OWNER, "scope ended", "autograd.c:");
        }
        for (t = tensor_ones(4); tensor_item(tensor_select(t, 0, 0)) < 40;) { t = tensor_add_scalar(t, 1); }
        prev = tensor_mul_scalar(t, 0.5);
    }
    tensor_scope_end(s);
    s = tensor_scope_begin();
    t = tensor_ones(2);
    tensor_scope_end(s);
    tensor_zeros(2), tensor_zeros(2), tensor_zeros(2); // quarantine: the header is not given out at once
    POISONS(tensor_exp(t), TENSOR_ERR_OWNER, "created by ones at autograd.c:", "exp: argument x");
    // graph outlives the header
    {
        tensor_t *x = LEAF(1, 2), *loss;
        s = tensor_scope_begin();
        loss = tensor_scope_return(s, tensor_sum(tensor_exp(tensor_mul(x, x))));
        CHECK(tensor_backward(loss) == 0);
        EXPECT(tensor_grad(x), 2 * exp(1), 4 * exp(4));
    }
}
static void poison(void) {
    tensor_t *p = tensor_zeros(-1), *y;
    CHECK(tensor_error_code() == TENSOR_ERR_SHAPE);
    CHECK(strstr(tensor_error_text(), "autograd.c:") != NULL);
    y = tensor_matmul(tensor_exp(p), tensor_ones(3, 3));
    CHECK(tensor_is_poison(y) && tensor_error_code() == TENSOR_ERR_SHAPE); // the first error stays
    tensor_clear_error();
    y = tensor_exp(p);
    CHECK_ERROR(TENSOR_ERR_POISONED, "exp: argument x failed earlier");
    CHECK(tensor_ndim(p) == 0 && tensor_numel(p) == 0 && tensor_data(p) == NULL &&
          tensor_dtype(p) == TENSOR_F32);
    CHECK_OK();
    CHECK(tensor_item(p) != tensor_item(p));
    tensor_clear_error();
    CHECK(tensor_item_i64(p) == 0);
    tensor_clear_error();
    CHECK(tensor_free(p) == 0 && tensor_free(y) == 0);
    CHECK(tensor_grad(p) == NULL && !tensor_requires_grad(p));
    CHECK(tensor_ok() && tensor_error_code() == 0 && tensor_error_text()[0] == 0);
    tensor_clear_error();
    CHECK(tensor_backward(p) == TENSOR_ERR_POISONED);
    tensor_clear_error();
}
static void report(void) {
    char text[2000];
    tensor_t *a = tensor_ones(10), *b = tensor_ones(20);
    size_t n;
    int line = __LINE__ - 2;
    char want[64];
    (void)a, (void)b;
    n = tensor_memory_report(text, sizeof text);
    CHECK(n > 0 && n == strlen(text));
    sprintf(want, "2 tensors  120 bytes  ones at autograd.c:%d\n", line);
    CHECK_MSG(strstr(text, want) != NULL, "report is \"%s\", \"%s\" expected", text, want);
    CHECK(tensor_memory_report(NULL, 0) == n);
    CHECK(tensor_memory_report(text, 5) == n && strlen(text) == 4);

    // each of so many that slabs of headers are full
    for (int k = 0; k < 5000; k++) { tensor_ones(1); }
    tensor_memory_report(text, sizeof text);
    CHECK_MSG(strstr(text, "5000 tensors") != NULL, "report is \"%s\"", text);
}
// An error of the user's keeps its code, whichever it is; another number is INTERNAL.
static void every_code(void) {
    for (int code = 1; code < TENSOR_ERR_COUNT; code++) {
        CHECK(tensor_raise(code, "of the user") == code && tensor_error_code() == code);
        tensor_clear_error();
    }
    CHECK(tensor_raise(TENSOR_ERR_COUNT, "of the user") == TENSOR_ERR_INTERNAL);
    CHECK(tensor_error_code() == TENSOR_ERR_INTERNAL);
    tensor_clear_error();
}
// Views by steps are made by functions of several names, and say by which.
static void made_by_steps(void) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *y = tensor_unfold_dim(tensor_ones(6), 0, 2, 2), *z = tensor_slice(tensor_ones(6), 0, 0, 6, 2);
    tensor_scope_end(scope);
    POISONS(tensor_relu(z), TENSOR_ERR_OWNER, "used after its scope ended, created by slice at",
            "autograd.c:");
    POISONS(tensor_relu(y), TENSOR_ERR_OWNER, "used after its scope ended, created by unfold", "autograd.c:");
}
// The profiler goes with the thread into another context.
static int heard;
static void hear(void *user, const tensor_profiler_call_t *call) {
    (void)user, (void)call;
    heard++;
}
static void heard_elsewhere(void) {
    static const tensor_profiler_t profiler = {NULL, hear, NULL, NULL, NULL, NULL, NULL, NULL};
    tensor_context_t *own = tensor_context_new(), *before;
    tensor_profiler_set(&profiler);
    before = tensor_context_use(own);
    tensor_scope_t scope = tensor_scope_begin();
    heard = 0;
    tensor_relu(tensor_ones(3));
    CHECK(heard > 0);
    tensor_scope_end(scope);
    tensor_context_use(before);
    heard = 0;
    tensor_relu(tensor_ones(3));
    CHECK(heard > 0);
    tensor_profiler_set(NULL);
    CHECK(tensor_context_free(own) == 0);
}
// A training step reaches a steady state: no allocation, the same number of live tensors and nodes.
static void steady(void) {
    tensor_t *w = tensor_requires_grad_(tensor_randn(16, 16), 1), *x = tensor_randn(8, 16);
    tensor_memory_stats_t before, after;
    tensor_scope_t s = tensor_scope_begin();
    int step;
    memset(&before, 0, sizeof before);
    for (step = 0; step < 50; step++, tensor_scope_reset(s)) {
        if (step == 20) { before = tensor_memory_stats(); }
        tensor_set_grad(w, NULL);
        tensor_backward(tensor_mean(tensor_square(tensor_tanh(tensor_matmul(x, w)))));
    }
    after = tensor_memory_stats();
    CHECK_MSG(after.allocs == before.allocs && after.frees == before.frees, "%llu allocations in 30 steps",
              (unsigned long long)(after.allocs - before.allocs));
    CHECK(after.live_tensors == before.live_tensors && after.live_nodes == before.live_nodes);
    tensor_scope_end(s);
}

// One gradient for a leaf and for what is still to come: neither is added to for the other's sake.
static void shared_gradients(void) {
    int kind;
    for (kind = 0; kind < 8; kind++) {
        tensor_dtype_t t = kind & 1 ? TENSOR_F64 : TENSOR_F32;
        tensor_t *b = tensor_requires_grad_(tensor_ones_of(t, 2), 1);
        tensor_t *h = kind & 2 ? tensor_mul_scalar(b, 1) : b;
        tensor_t *v = tensor_squeeze_all(h), *y = tensor_mul_scalar(h, 3);
        tensor_t *z = kind & 4 ? tensor_add(v, h) : tensor_add(h, v);
        tensor_backward(tensor_add(tensor_sum(y), tensor_sum(tensor_mul_scalar(z, 10))));
        CHECK_NEAR(tensor_item(tensor_max(tensor_grad(b))), 23, 0);
        CHECK_NEAR(tensor_item(tensor_min(tensor_grad(b))), 23, 0);
    }
}

// A list longer than what a node counts in bits; every third tensor wants no gradient.
static void long_lists(void) {
    tensor_t *x[40];
    for (int i = 0; i < 40; i++) { x[i] = tensor_requires_grad_(tensor_full(i, 2), i % 3 != 1); }
    tensor_backward(tensor_sum(tensor_square(tensor_cat_n(x, 40, 0))));
    for (int i = 0; i < 40; i++) {
        tensor_t *g = tensor_grad(x[i]);
        CHECK((g != NULL) == (i % 3 != 1));
        if (g) { CHECK(tensor_item(tensor_sum(g)) == 4 * i); }
    }
}

int main(void) {
    RUN(changed_saved_value);
    RUN(wider_divisor);
    RUN(custom_many_inputs);
    RUN(view_of_changed_base);
    RUN(changed_factor);
    RUN(changed_leaf);
    RUN(changed_expanded);
    RUN(changed_overlapping);
    RUN(backward_twice);
    RUN(backward_of_many);
    RUN(integer_gradient);
    RUN(growing);
    RUN(view_changes_base);
    RUN(base_changes_view);
    RUN(view_chain);
    RUN(view_copied_into);
    RUN(two_views);
    RUN(parts_of_one);
    RUN(parts_of_permuted);
    RUN(view_overwritten);
    RUN(view_under_no_grad);
    RUN(in_place_ops);
    RUN(higher);
    RUN(several);
    RUN(accumulation);
    RUN(non_leaves);
    RUN(modes);
    RUN(custom);
    RUN(raised);
    RUN(long_chain);
    RUN(through_time);
    RUN(scopes);
    RUN(stale);
    RUN(poison);
    RUN(report);
    RUN(every_code);
    RUN(made_by_steps);
    RUN(heard_elsewhere);
    RUN(steady);
    RUN(shared_gradients);
    RUN(long_lists);
    return test_report();
}

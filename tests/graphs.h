// graphs.h - leaves, expected elements and errors as literals; functions that several tests differentiate
#ifndef TEST_GRAPHS_H
#define TEST_GRAPHS_H
#include "test.h"

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

TEST_FN void expect(tensor_t *x, const double *want, int n, double tol, int line) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    tensor_t *d = !x || tensor_is_poison(x) ? x : tensor_to(tensor_contiguous(tensor_detach(x)), TENSOR_F64);
    const double *v = d ? (const double *)tensor_data(d) : NULL;
    int k;
    test_note(v && tensor_numel(d) == n, __FILE__, line, "%d numbers expected, there are %lld", n,
              (long long)(d ? tensor_numel(d) : -1));
    for (k = 0; k < n && v && k < tensor_numel(d); k++) {
        test_note(fabs(v[k] - want[k]) <= tol * (1 + fabs(want[k])), __FILE__, line,
                  "number %d is %.12g, expected %.12g", k, v[k], want[k]);
    }
    tensor_scope_end(s);
}

#define EXPECT(x, ...) EXPECT_TOL(x, 1e-6, __VA_ARGS__)

#define EXPECT_TOL(x, tol, ...)                                                                              \
    expect(x, (const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), tol, __LINE__)

TEST_FN tensor_t *data_of(const double *v, int n, tensor_dtype_t dtype) {
    return tensor_clone(tensor_to(tensor_from(v, TENSOR_F64, n), dtype));
}

#define DATA(...) data_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F32)
#define DATA64(...) data_of((const double[]){__VA_ARGS__}, N(((const double[]){__VA_ARGS__})), TENSOR_F64)
#define LEAF(...) tensor_requires_grad_(DATA(__VA_ARGS__), 1)
#define LEAF64(...) tensor_requires_grad_(DATA64(__VA_ARGS__), 1)

TEST_FN void fails(int code, int want, const char *a, const char *b, int line) {
    const char *text = tensor_error_text();
    test_note(code == want && tensor_error_code() == want && strstr(text, a) && strstr(text, b), __FILE__,
              line, "error is %s \"%s\", expected %s with \"%s\" and \"%s\"",
              tensor_code_name(tensor_error_code()), text, tensor_code_name(want), a, b);
    tensor_clear_error();
}

#define FAILS(code, want, a, b) fails(code, want, a, b, __LINE__)
#define POISONS(t, want, a, b) fails(tensor_is_poison(t) ? tensor_error_code() : 0, want, a, b, __LINE__)

typedef struct log_t {
    int calls;
    double first[8], factor;
    int64_t remove;
    int bad;
} log_t;

TEST_FN tensor_t *watch(tensor_t *g, void *user) {
    log_t *l = (log_t *)user;
    tensor_scope_t s = tensor_scope_begin();
    double v = tensor_item(tensor_select(tensor_reshape(g, -1), 0, 0));
    tensor_scope_end(s);
    if (l->calls < 8) { l->first[l->calls] = v; }
    l->calls++;
    if (l->remove) { CHECK(tensor_remove_hook(l->remove) == 1); }
    l->remove = 0;
    if (l->bad == 1) { return tensor_to(g, TENSOR_F64); }
    if (l->bad == 2) { return tensor_narrow(g, 0, 0, 1); }
    if (l->bad == 3) { tensor_raise(TENSOR_ERR_UNSUPPORTED, "hook: no"); }
    return l->factor != 0 ? tensor_mul_scalar(g, l->factor) : NULL;
}

// x, y -> x y, x + y and the places where x > y.
TEST_FN tensor_t *many_forward(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    tensor_save_for_backward(ctx, 1, in[1]);
    CHECK(tensor_set_output(ctx, 1, tensor_add(in[0], in[1])) == 0);
    if (tensor_set_output(ctx, 2, tensor_sub(in[0], in[1]))) { return NULL; }
    CHECK(tensor_mark_non_differentiable(ctx, 2) == 0);
    if (tensor_function_user(ctx)) {
        CHECK(tensor_needs_input_grad(ctx, 0) && !tensor_needs_input_grad(ctx, 5));
    }
    return tensor_mul(in[0], in[1]);
}

TEST_FN int many_backward(tensor_function_ctx_t *ctx, tensor_t *g, tensor_t **grads, int n) {
    tensor_t *x = tensor_saved(ctx, 0), *y = tensor_saved(ctx, 1), *h = tensor_grad_output(ctx, 1);
    (void)n;
    CHECK(tensor_grad_output(ctx, 0) == g);
    if (tensor_needs_input_grad(ctx, 0)) { grads[0] = tensor_add(tensor_mul(g, y), h); }
    if (tensor_needs_input_grad(ctx, 1)) { grads[1] = tensor_add(tensor_mul(g, x), h); }
    return 0;
}

TEST_FN tensor_t *two_of_many(tensor_t *const *in, int n, void *user) {
    tensor_t *out[3];
    if (tensor_apply_n((const tensor_function_t *)user, NULL, in, n, out, 3)) { return out[0]; }
    return tensor_mul(tensor_tanh(out[0]), out[1]);
}

typedef struct block_t { tensor_t *w; int calls, other, inner; } block_t;

TEST_FN tensor_t *block_rest(tensor_t *const *in, int n, void *user) {
    (void)n, (void)user;
    return tensor_tanh(tensor_exp(tensor_mul_scalar(in[0], 0.1)));
}

TEST_FN tensor_t *block(tensor_t *const *in, int n, void *user) {
    block_t *b = (block_t *)user;
    tensor_t *h = tensor_matmul(in[0], b->w), *keep;
    (void)n;
    b->calls++;
    keep = tensor_bernoulli(tensor_full_like(h, 0.5));
    h = tensor_mul(tensor_tanh(h), keep);
    if (b->other && b->calls > 1) {
        h = b->other == 1 ? tensor_exp(h) : tensor_mul_scalar(tensor_relu(h), 2);
    } else {
        h = tensor_mul(tensor_sigmoid(h), tensor_sin(h));
    }
    tensor_add_scalar_(tensor_narrow(h, 0, 0, 1), 0.25); // a view changed in place
    if (b->inner) {
        h = tensor_checkpoint(block_rest, NULL, &h, 1);
    } else {
        h = block_rest(&h, 1, NULL);
    }
    return tensor_mul(h, h);
}

TEST_FN tensor_t *poly(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_mul(tensor_exp(tensor_mul(in[0], in[1])), tensor_sin(in[0]));
}

TEST_FN tensor_t *outer(tensor_t *const *in, int n, void *user) { // [2] x [3] -> [2, 3]
    (void)n;
    (void)user;
    return tensor_mul(tensor_reshape(tensor_exp(in[0]), 2, 1), tensor_sin(in[1]));
}

TEST_FN tensor_t *energy(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_sum(tensor_mul(outer(in, 2, NULL), outer(in, 2, NULL)));
}

TEST_FN tensor_t *nothing(tensor_t *const *in, int n, void *user) {
    (void)n;
    (void)user;
    return tensor_scalar(tensor_item(tensor_sum(in[0])), TENSOR_F64);
}

// x^3 whose gradient is right once only: its second derivative must be missed.
TEST_FN tensor_t *cube(tensor_function_ctx_t *ctx, tensor_t *const *in, int n) {
    (void)n;
    tensor_save_for_backward(ctx, 0, in[0]);
    return tensor_mul(in[0], tensor_mul(in[0], in[0]));
}

#endif

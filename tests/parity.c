// parity.c - where the library once differed from PyTorch, or failed where PyTorch does not; the numbers are
// PyTorch's
#include "calls.h"

#include <float.h>
#include <stdint.h>

// The elements of x in row-major order are the numbers given.
#define EXPECT(x, ...)                                                                                       \
    do {                                                                                                     \
        const double want_[] = {__VA_ARGS__};                                                                \
        expect((x), want_, (int)(sizeof want_ / sizeof want_[0]), 1e-5, __LINE__, #x);                       \
    } while (0)
static void expect(tensor_t *x, const double *want, int n, double tol, int line, const char *what) {
    tensor_t *d = tensor_contiguous(tensor_to(tensor_detach(x), TENSOR_F64));
    const double *got = (const double *)tensor_data(d);
    int k;
    test_note(tensor_numel(x) == n, __FILE__, line, "%s has %d elements, expected %d", what,
              (int)tensor_numel(x), n);
    if (tensor_numel(x) != n || !got) { return; }
    for (k = 0; k < n; k++) { test_near(got[k], want[k], tol * (1 + fabs(want[k])), __FILE__, line, what); }
}
static tensor_t *numbers(int64_t n) {
    return tensor_arange(1, (double)n + 1, 1, TENSOR_F32);
}
static tensor_t *leaf(tensor_t *x) {
    return tensor_requires_grad_(tensor_detach(x), 1);
}
// d sum(y w) / dx for weights 1, 2, 3, ...
static tensor_t *gradient(tensor_t *y, tensor_t *x, int flags) {
    tensor_t *w = tensor_reshape_n(numbers(tensor_numel(y)), tensor_shape(y).dims, tensor_ndim(y));
    tensor_t *loss = tensor_sum(tensor_mul(y, tensor_to(w, tensor_dtype(y)))), *g = NULL;
    tensor_autograd_grad(&loss, 1, NULL, &x, 1, &g, flags);
    return g;
}
static tensor_t *at_place(tensor_t *x, tensor_t *src, int64_t n, int64_t stride, int64_t offset) {
    return tensor_as_strided_scatter(x, src, &n, &stride, 1, offset);
}

// ---- as_strided_scatter of a view; gradients of changes through a view ----

static void scatter_into_a_view(void) {
    int64_t two[2] = {2, 2}, ones[2] = {3, 1};
    tensor_t *x = tensor_narrow(numbers(6), 0, 2, 3), *y, *t;
    y = at_place(x, tensor_zeros(2), 2, 1, 2);       // the offset is in the storage: x begins at 2
    EXPECT(y, 0, 0, 5);
    CHECK(tensor_stride(y, 0) == 1);
    EXPECT(at_place(x, tensor_zeros(2), 2, 1, 4), 3, 4, 0);     // half of the view lies behind x
    EXPECT(at_place(x, tensor_zeros(2), 2, 1, 1), 0, 4, 5);     // or before it
    CHECK_POISON(at_place(x, tensor_zeros(2), 2, 1, 5), TENSOR_ERR_SHAPE, "leaves the storage");
    t = tensor_T(tensor_reshape(numbers(6), 2, 3));     // lies as 1 2 3, 4 5 6, and so does the result
    y = at_place(t, tensor_zeros(2), 2, 1, 0);
    EXPECT(y, 0, 4, 0, 5, 3, 6);
    CHECK(tensor_stride(y, 0) == 1 && tensor_stride(y, 1) == 3);
    y = tensor_as_strided_scatter(t, tensor_zeros(2, 2), two, ones, 2, 1);
    EXPECT(y, 1, 4, 0, 0, 0, 0);
    y = at_place(tensor_slice(numbers(6), 0, 1, 6, 2), tensor_zeros(2), 2, 1, 2);       // 2 4 6
    EXPECT(y, 2, 0, 6);
    CHECK(tensor_stride(y, 0) == 2);
    y = at_place(tensor_expand(tensor_ones(1), 3), tensor_zeros(2), 2, 1, 1);   // cloned densely
    EXPECT(y, 1, 0, 0);
    CHECK_POISON(tensor_as_strided_scatter(x, x, NULL, NULL, 1, 0), TENSOR_ERR_SHAPE, "NULL");
    CHECK(!tensor_equal(y, x));
}
static void scatter_into_a_view_gradient(void) {
    tensor_t *base = leaf(numbers(6)), *src = leaf(tensor_zeros(2)), *y, *g;
    y = at_place(tensor_narrow(base, 0, 2, 3), src, 2, 1, 3);
    EXPECT(gradient(y, base, TENSOR_RETAIN_GRAPH), 0, 0, 1, 0, 0, 0);
    EXPECT(gradient(y, src, 0), 2, 3);
    y = at_place(tensor_slice(base, 0, 1, 6, 2), src, 2, 2, 3);
    EXPECT(gradient(y, base, TENSOR_RETAIN_GRAPH), 0, 1, 0, 0, 0, 0);
    EXPECT(gradient(y, src, 0), 2, 3);
    g = gradient(tensor_square(at_place(tensor_narrow(base, 0, 2, 3), src, 2, 1, 3)), base,
                 TENSOR_CREATE_GRAPH);
    EXPECT(gradient(g, base, 0), 0, 0, 6, 0, 0, 0);
    CHECK_POISON(at_place(tensor_narrow(base, 0, 2, 3), src, 2, 1, 1), TENSOR_ERR_UNSUPPORTED, "must hold");
}

static void change_then_join(void) {
    tensor_t *x = leaf(tensor_ones(3)), *y = tensor_mul_scalar(x, 2), *row[3], *g;
    tensor_mul_scalar_(tensor_narrow(y, 0, 0, 2), 3);
    EXPECT(gradient(tensor_cat(0, tensor_zeros(1), y, tensor_zeros(1)), x, TENSOR_RETAIN_GRAPH), 12, 18, 8);
    EXPECT(gradient(tensor_stack(0, tensor_zeros(3), y), x, TENSOR_RETAIN_GRAPH), 24, 30, 12);
    row[0] = row[2] = tensor_zeros(3, 1);
    row[1] = tensor_reshape(y, 3, 1);
    EXPECT(gradient(tensor_cat_n(row, 3, 1), x, 0), 12, 30, 16);
    // views of views, and the second derivative
    y = tensor_mul_scalar(x, 2);
    tensor_mul_(tensor_narrow(tensor_narrow(y, 0, 1, 2), 0, 1, 1), tensor_narrow(x, 0, 0, 1));
    g = gradient(tensor_cat(0, tensor_zeros(2), tensor_square(y)), x, TENSOR_CREATE_GRAPH);
    EXPECT(g, 64, 32, 40);
    EXPECT(gradient(g, x, 0), 304, 64, 200);
}

// Every change in place, through a view that does not begin its base, and then not first in cat.
static tensor_t *changed(int which, tensor_t *v, tensor_t *b) {
    switch (which) {
    case 0: return tensor_add_(v, b);
    case 1: return tensor_sub_(v, b);
    case 2: return tensor_mul_(v, b);
    case 3: return tensor_div_(v, tensor_exp(b));
    case 4: return tensor_copy_(v, b);
    case 5: return tensor_add_scalar_(v, 1);
    case 6: return tensor_mul_scalar_(v, 2);
    case 7: return tensor_exp_(v);
    case 8: return tensor_sigmoid_(v);
    case 9: return tensor_clamp_(v, -0.5, 0.5);
    case 10: return tensor_addcmul_(v, b, b, 2);
    case 11: return tensor_lerp_scalar_(v, b, 0.25);
    case 12: return tensor_fill_(v, 2);
    default: return tensor_masked_fill_(v, tensor_gt_scalar(v, 0), 1);
    }
}
static tensor_t *change_and_join(tensor_t *const *inputs, int n, void *user) {
    tensor_t *y = tensor_mul_scalar(inputs[0], 2);
    int which = *(const int *)user;
    (void)n;
    changed(which / 2, tensor_narrow(y, 0, 1, 2), inputs[1]);
    if (which % 2) { return tensor_square(tensor_stack(0, tensor_zeros_like(y), y)); }
    return tensor_square(tensor_cat(0, tensor_zeros_like(y), y, y));
}
static void every_change_then_join(void) {
    double x[4][3] = {{0.3, -0.6, 0.8}, {0.4, 0.7, -0.9}, {-0.35, 0.2, 0.6}, {0.9, -0.1, 0.45}};
    tensor_t *in[2];
    int which;
    in[0] = leaf(tensor_from_n(x, TENSOR_F64, (int64_t[]){4, 3}, 2));
    in[1] = leaf(tensor_mul_scalar(tensor_narrow(in[0], 0, 1, 2), 0.7));
    for (which = 0; which < 28; which++) {
        CHECK_MSG(tensor_gradcheck(change_and_join, &which, in, 2, 1e-6, 1e-5, 1e-3) == 0, "change %d: %s",
                  which, tensor_error_text());
        tensor_clear_error();
        CHECK_MSG(tensor_gradgradcheck(change_and_join, &which, in, 2, 1e-6, 1e-5, 1e-3) == 0,
                  "change %d, twice: %s", which, tensor_error_text());
        tensor_clear_error();
    }
}

// ---- autocast ----

static const tensor_dtype_t float_dtypes[4] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
static int is_float(const tensor_t *x) {
    tensor_dtype_t d = tensor_dtype((tensor_t *)(uintptr_t)x);
    return d == TENSOR_F32 || d == TENSOR_F64 || d == TENSOR_F16 || d == TENSOR_BF16;
}
static void autocast_instance_norm(void) {
    nn_module_t *m[3];
    int k, i;
    for (k = 0; k < 8; k++) {
        tensor_dtype_t dtype = float_dtypes[k % 4];
        tensor_scope_t s = tensor_scope_begin_autocast(k < 4 ? TENSOR_BF16 : TENSOR_F16);
        tensor_t *x = tensor_to(tensor_randn(2, 3, 4), dtype), *y, *g;
        tensor_t *mean = tensor_to(tensor_zeros(3), dtype), *var = tensor_to(tensor_ones(3), dtype);
        CHECK(tensor_dtype(tensor_instance_norm(x)) == dtype);
        y = tensor_instance_norm(x, .running_mean = mean, .running_var = var);
        CHECK(tensor_dtype(y) == dtype);
        y = tensor_instance_norm(x, .running_mean = mean, .running_var = var, .no_use_input_stats = 1);
        CHECK(tensor_dtype(y) == dtype);
        m[0] = nn_instance_norm1d(3, .affine = dtype != TENSOR_F64,
                                   .track_running_stats = dtype != TENSOR_F64);
        m[1] = nn_instance_norm2d(3);
        m[2] = nn_instance_norm3d(3);
        CHECK(tensor_dtype(nn_forward(m[0], x)) == dtype);
        CHECK(tensor_dtype(nn_forward(m[1], tensor_unsqueeze(x, 3))) == dtype);
        CHECK(tensor_dtype(nn_forward(m[2], tensor_reshape(x, 2, 3, 1, 2, 2))) == dtype);
        for (i = 0; i < 3; i++) { nn_free(m[i]); }
        x = leaf(x);
        g = gradient(tensor_instance_norm(x), x, TENSOR_CREATE_GRAPH);
        CHECK(tensor_dtype(g) == dtype && tensor_dtype(gradient(g, x, 0)) == dtype);
        tensor_scope_end(s);
    }
    tensor_scope_begin_autocast(TENSOR_BF16);
    CHECK(tensor_dtype(tensor_mm(tensor_ones(2, 2), tensor_ones(2, 2))) == TENSOR_BF16);    // goes on
}

// Every op with a fixture, on floats of every dtype and mixed: a front without its line of autocast fails an
// assertion. Two rounds of the first cases of each.
static void autocast_of_one(nn_safetensors_t *r, int op, const char *line, int mix, tensor_dtype_t mode) {
    tensor_scope_t s = tensor_scope_begin_autocast(mode);
    tensor_t *loss, *x[MAX_IN], *g[MAX_IN];
    arguments_t a;
    int k, n = 0, dtypes = mix;
    read_arguments(r, line, &a);
    for (k = 0; k < a.nin; k++) {
        if (!a.in[k] || !is_float(a.in[k])) { continue; }
        a.in[k] = leaf(tensor_to(a.in[k], float_dtypes[mix < 4 ? mix : dtypes % 4]));
        dtypes = dtypes / 4 + 7;
        x[n++] = a.in[k];
    }
    ops[op].call(&a);
    test_passed++;
    tensor_clear_error();   // not every op takes every mix
    loss = n && a.nout > 0 && a.out[0] && is_float(a.out[0]) ? tensor_sum(a.out[0]) : NULL;
    if (loss && tensor_requires_grad(loss)) {
        tensor_autograd_grad(&loss, 1, NULL, x, n, g, TENSOR_ALLOW_UNUSED | TENSOR_CREATE_GRAPH);
    }
    tensor_clear_error();
    tensor_scope_end(s);
    if (module) { nn_free(module); }
    module = NULL;
}
static void autocast_of_every_op(void) {
    int f, k, mix;
    for (f = 0; f < FIXTURE_FILES; f++) {
        char path[300], name[64];
        const char *p;
        nn_safetensors_t *r;
        if (strcmp(fixture_files[f], "optim") == 0) { continue; }
        snprintf(path, sizeof path, "tests/fixtures/%s.safetensors", fixture_files[f]);
        r = nn_safetensors_open(path);
        CHECK_MSG(r != NULL, "%s: %s", path, tensor_error_text());
        if (!r) { return; }
        for (p = nn_safetensors_metadata(r, "ops"); sscanf(p, "%63s", name) == 1;
             p = strstr(p, name) + strlen(name)) {
            const char *lines = nn_safetensors_metadata(r, name);
            int op = find(name);
            CHECK_MSG(op < NOPS && lines, "%s: no line in OPS, or no cases", name);
            for (k = 0; k < 6 && op < NOPS && lines && *lines; k++) {
                char line[4096];
                size_t n = strcspn(lines, "\n");
                snprintf(line, sizeof line, "%.*s", (int)n, lines);
                for (mix = 0; mix < 6; mix++) {
                    autocast_of_one(r, op, line, mix, mix % 2 ? TENSOR_F16 : TENSOR_BF16);
                }
                lines += n + (lines[n] == '\n');
            }
        }
        CHECK(nn_safetensors_close(r) == 0);
    }
}

// ---- losses of integers, NULL pointers ----

static void losses_of_integers(void) {
    static const tensor_dtype_t dtypes[6] = {TENSOR_U8,  TENSOR_I8,  TENSOR_I16,
                                             TENSOR_I32, TENSOR_I64, TENSOR_BOOL};
    int a, b;
    for (a = 0; a < 6; a++) {
        for (b = 0; b < 6; b++) {
            tensor_t *x = tensor_zeros_of(dtypes[a], 3), *t = tensor_ones_of(dtypes[b], 3);
            CHECK_POISON(tensor_mse_loss(x, t), TENSOR_ERR_DTYPE, "mse_loss");
            CHECK_POISON(tensor_l1_loss(x, t), TENSOR_ERR_DTYPE, "l1_loss");
            CHECK_POISON(tensor_smooth_l1_loss(x, t), TENSOR_ERR_DTYPE, "smooth_l1_loss");
            CHECK_POISON(tensor_huber_loss(x, t), TENSOR_ERR_DTYPE, "huber_loss");
            CHECK_POISON(tensor_kl_div(x, t), TENSOR_ERR_DTYPE, "kl_div");
            CHECK_POISON(tensor_binary_cross_entropy(x, t), TENSOR_ERR_DTYPE, "binary_cross_entropy");
            CHECK_POISON(tensor_binary_cross_entropy_with_logits(x, t), TENSOR_ERR_DTYPE, "with_logits");
        }
    }
    for (a = 0; a < 6; a++) {        // one float: PyTorch promotes
        tensor_t *t = tensor_ones_of(dtypes[a], 3), *y = tensor_mse_loss(tensor_zeros(3), t);
        CHECK(tensor_dtype(y) == TENSOR_F32 && tensor_item(y) == 1);
        CHECK_NEAR(tensor_item(tensor_l1_loss(t, tensor_full_of(TENSOR_F64, 0.25, 3))), 0.75, 0);
        CHECK_NEAR(tensor_item(tensor_smooth_l1_loss(t, tensor_zeros(3))), 0.5, 0);
    }
}
static void null_pointers(void) {
    int64_t cut = 1;
    tensor_t *x = tensor_ones(4, 3);
    tensor_scope_begin_autocast(TENSOR_BF16);
    CHECK_POISON(tensor_binary_cross_entropy(NULL, tensor_rand(3)), TENSOR_ERR_UNSUPPORTED, "autocast");
    tensor_set_autocast(TENSOR_DTYPE_NONE);
    CHECK(tensor_tensor_split_at(x, &cut, 1, 0, NULL) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "out is NULL");
    CHECK(tensor_tensor_split_at(x, &cut, INT32_MAX, 0, &x) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "tensor_split");
    CHECK(tensor_split_with_sizes(x, &cut, 0, 0, NULL) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "out is NULL");
    CHECK(isnan(nn_lr_multi_step(3, NULL, 2, 0.1, 0.5)));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "milestones is NULL");
    CHECK_NEAR(nn_lr_multi_step(3, NULL, 0, 0.1, 0.5), 0.1, 0);
    CHECK(tensor_item(tensor_frexp(tensor_scalar(6, TENSOR_F32), NULL)) == 0.75);
    tensor_t *exponent = x;
    CHECK_POISON(tensor_frexp(tensor_ones_of(TENSOR_I32, 2), &exponent), TENSOR_ERR_DTYPE, "must be a float");
    CHECK(tensor_is_poison(exponent));
    CHECK(tensor_needs_input_grad(NULL, 0) == 0 && tensor_function_user(NULL) == NULL);
}

// ---- new results are dense and their own ----

static void own_and_dense(tensor_t *y, tensor_t *x) {
    CHECK(tensor_is_contiguous(y) && tensor_data(y) != tensor_data(x));
    CHECK(tensor_stride(y, -1) == 1 || tensor_size(y, -1) < 2);
}
static void repeats_of_one(void) {
    tensor_t *x = tensor_reshape(numbers(2), 2, 1), *y = tensor_repeat(x, 1, 2, 2);
    own_and_dense(y, x);
    CHECK(tensor_stride(y, 1) == 2 && tensor_stride(y, 2) == 1);
    EXPECT(y, 1, 1, 2, 2, 1, 1, 2, 2);
    tensor_add_scalar_(tensor_select(y, 2, 0), 10);
    EXPECT(y, 11, 1, 12, 2, 11, 1, 12, 2);
    own_and_dense(tensor_tile(x, 3), x);
    own_and_dense(tensor_repeat(x, 1, 1), x);
    own_and_dense(tensor_repeat(tensor_ones(1), 5), x);
    own_and_dense(tensor_repeat_interleave(x, 3, 1), x);
    x = leaf(x);
    EXPECT(gradient(tensor_repeat(x, 1, 2, 2), x, 0), 1 + 2 + 5 + 6, 3 + 4 + 7 + 8);
}
static void shuffles_by_one(void) {
    tensor_t *x = tensor_reshape(numbers(8), 1, 2, 2, 2), *y[4];
    int k;
    y[0] = tensor_pixel_shuffle(x, 1);
    y[1] = tensor_pixel_unshuffle(x, 1);
    y[2] = tensor_channel_shuffle(x, 1);
    y[3] = tensor_channel_shuffle(x, 2);
    for (k = 0; k < 4; k++) {
        CHECK(tensor_equal(y[k], x));
        own_and_dense(y[k], x);
    }
    x = leaf(x);
    EXPECT(gradient(tensor_pixel_shuffle(x, 1), x, 0), 1, 2, 3, 4, 5, 6, 7, 8);
}

// ---- gradients and what they save ----

static void xlogy_without_upstream(void) {
    double as[4] = {2, 0, 3, 0}, bs[4] = {-1, -1, 0, NAN};
    tensor_t *a = leaf(tensor_from(as, TENSOR_F64, 4)), *b = tensor_from(bs, TENSOR_F64, 4);
    tensor_t *g = tensor_zeros_of(TENSOR_F64, 4), *y = tensor_xlogy(a, b), *got = NULL;
    tensor_autograd_grad(&y, 1, &g, &a, 1, &got, 0);
    EXPECT(got, 0, 0, 0, NAN);
    y = tensor_xlogy_scalar(a, -2);
    tensor_autograd_grad(&y, 1, &g, &a, 1, &got, 0);
    EXPECT(got, 0, 0, 0, 0);
    y = tensor_xlogy(a, tensor_full_of(TENSOR_F64, 2, 4));      // the second derivative is log(b) still
    g = leaf(g);
    tensor_autograd_grad(&y, 1, &g, &a, 1, &got, TENSOR_CREATE_GRAPH);
    EXPECT(gradient(got, g, 0), log(2), 2 * log(2), 3 * log(2), 4 * log(2));
}

// Backward through y whose result, or input, was changed after the call.
static void changed_results(void) {
    double m[] = {0.3, 0.1, 0.2, 0.5};
    tensor_t *x = leaf(tensor_from(m, TENSOR_F64, 2, 2)), *y, *in, *r, *want;
    int k;
    for (k = 0; k < 3; k++) {
        want = gradient(k == 0 ? tensor_sinc(x) : k == 1 ? tensor_erfinv(x) : tensor_matrix_exp(x), x, 0);
        y = k == 0 ? tensor_sinc(x) : k == 1 ? tensor_erfinv(x) : tensor_matrix_exp(x);
        tensor_mul_scalar_(y, 1);
        CHECK_MSG(tensor_allclose(gradient(y, x, 0), want, 1e-12, 1e-12), "result %d", k);
        CHECK_OK();
    }
    EXPECT(gradient(tensor_sinc(x), x, 0), -0.902028130, -0.651502536, -1.897084341, -5.092958179);
    EXPECT(gradient(tensor_erfinv(x), x, 0), 0.954520359, 1.786503451, 2.745388043, 4.450339276);
    in = tensor_mul_scalar(x, 1);
    want = gradient(tensor_linalg_qr(x, NULL).r, x, 0);
    r = tensor_linalg_qr(in, NULL).r;
    tensor_mul_scalar_(in, 2);
    CHECK(tensor_allclose(gradient(r, x, 0), want, 1e-12, 1e-12));
}
// y = torch.ldexp(x, k); x.mul_(2): the first input is not needed, also where k needs a gradient
static void changed_after_ldexp(void) {
    double m[] = {0.3, -0.1, 0.2, 0.5}, ks[] = {1, 2, -1, 0};
    tensor_t *x = leaf(tensor_from(m, TENSOR_F64, 4)), *k = tensor_from(ks, TENSOR_F64, 4);
    int wanted;
    for (wanted = 0; wanted < 2; wanted++) {
        tensor_t *in = tensor_mul_scalar(x, 1);
        tensor_t *y = tensor_ldexp(in, wanted ? tensor_mul_scalar(leaf(k), 1) : k);
        tensor_mul_scalar_(in, 2);
        EXPECT(gradient(y, x, 0), 2, 8, 1.5, 4);
        CHECK_OK();
    }
}
// i = x * 1; y = i * k; i.mul_(2): y's gradient by x reads k alone, that by k reads i
static void changed_but_not_read(void) {
    double m[] = {0.3, -0.1, 0.2, 0.5};
    tensor_t *x = leaf(tensor_from(m, TENSOR_F64, 4)), *k = leaf(numbers(4)), *in, *y;
    int single, graph;
    for (single = 0; single < 2; single++) {
        for (graph = 0; graph < 2; graph++) {
            int flags = TENSOR_RETAIN_GRAPH | (graph ? TENSOR_CREATE_GRAPH : 0);
            in = tensor_to(tensor_mul_scalar(x, 1), single ? TENSOR_F32 : TENSOR_F64);
            in = tensor_mul_scalar(in, 1);
            y = tensor_mul(in, tensor_to(tensor_mul_scalar(k, 1), tensor_dtype(in)));
            tensor_mul_scalar_(in, 2);
            EXPECT(gradient(y, x, flags), 1, 4, 9, 16);
            CHECK_OK();
            gradient(y, k, flags);
            CHECK_ERROR(TENSOR_ERR_AUTOGRAD, "was changed in place");
        }
    }
}
static tensor_t *wide_qr(tensor_t *const *in, int n, void *user) {
    tensor_qr_t f = tensor_linalg_qr(in[0], NULL);
    (void)n, (void)user;
    return tensor_add(tensor_sum(tensor_square(f.r)), tensor_sum(tensor_sin(f.q)));
}
static void qr_of_a_wide_matrix(void) {
    double m[] = {0.3, 0.1, 0.9, 0.2, -0.5, 0.4};
    tensor_t *x = leaf(tensor_from(m, TENSOR_F64, 2, 3));
    CHECK(tensor_gradcheck(wide_qr, NULL, &x, 1, 1e-6, 1e-6, 1e-4) == 0);
    CHECK(tensor_gradgradcheck(wide_qr, NULL, &x, 1, 1e-6, 1e-6, 1e-4) == 0);
}
static void renorm_of_nan(void) {
    float rows[] = {3, 4, NAN, 1, 30, 40};
    EXPECT(tensor_renorm(tensor_from(rows, TENSOR_F32, 3, 2), 2, 0, 5), 3, 4, NAN, 1, 3, 4);
}
static void nothing_overlaps(void) {
    tensor_t *b = tensor_ones(1, 3), *e = tensor_narrow(b, 1, 1, 0);
    tensor_mul_(e, tensor_narrow(b, 1, 0, 1));
    tensor_copy_(e, tensor_narrow(b, 1, 0, 1));
    CHECK_OK();
    tensor_copy_(tensor_narrow(b, 0, 1, 0), b);
    CHECK_OK();
    EXPECT(b, 1, 1, 1);
}

// ---- values at the edges ----

static void sign_of_zero(void) {
    static const tensor_dtype_t dtypes[4] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    int k;
    for (k = 0; k < 4; k++) {
        tensor_t *y = tensor_sign(tensor_to(tensor_full(-0.0, 40), dtypes[k]));
        CHECK(!tensor_item_i64(tensor_any(tensor_signbit(y))));
        CHECK(!tensor_item_i64(tensor_any(tensor_signbit(tensor_sgn(y)))));
    }
    EXPECT(tensor_sign(tensor_full(NAN, 3)), NAN, NAN, NAN);
    EXPECT(tensor_sign(tensor_full(-DBL_MIN, 2)), 0, 0);
    EXPECT(tensor_sign(tensor_full_of(TENSOR_F64, -DBL_MIN, 2)), -1, -1);
}
static void clamp_by_nan(void) {
    float xs[] = {0.5f, NAN, 0.5f, NAN, NAN, 3}, lo[] = {NAN, NAN, -1, -1, -1, -1};
    float hi[] = {1, 1, NAN, NAN, 1, 1};
    tensor_t *x = leaf(tensor_from(xs, TENSOR_F32, 6)), *l = leaf(tensor_from(lo, TENSOR_F32, 6));
    tensor_t *h = leaf(tensor_from(hi, TENSOR_F32, 6)), *y = tensor_clamp_tensor(x, l, h);
    EXPECT(y, NAN, NAN, NAN, NAN, NAN, 1);
    EXPECT(gradient(y, x, TENSOR_RETAIN_GRAPH), 1, 2, 3, 4, 5, 0);
    EXPECT(gradient(y, l, TENSOR_RETAIN_GRAPH), 0, 0, 0, 0, 0, 0);
    EXPECT(gradient(y, h, 0), 0, 0, 0, 0, 0, 6);
}
// The noise of gumbel_softmax is drawn in double, so it has the same bits for every instruction set.
static void gumbel_noise(void) {
    static const char *const sets[] = {"scalar", "sse2", "avx2", "avx512"};
    const char *best = tensor_isa_name();
    tensor_t *x = tensor_zeros(7, 33), *noise = NULL, *y, *e;
    int k, compared = 0;
    for (k = 0; k < 4; k++) {
        if (tensor_set_isa(sets[k])) {          // this machine has none
            tensor_clear_error();
            continue;
        }
        tensor_manual_seed(5);
        y = tensor_gumbel_softmax(x, 0.5, 0, -1);
        tensor_manual_seed(5);
        e = tensor_exponential_(tensor_zeros_of(TENSOR_F64, 7, 33), 1);
        e = tensor_to(tensor_log(e), TENSOR_F32);
        CHECK(!noise || test_same_bits(e, noise));
        noise = e;
        CHECK(test_same_bits(y, tensor_softmax(tensor_div_scalar(tensor_sub(x, noise), 0.5), -1)));
        compared++;
    }
    CHECK(compared > 0);
    CHECK(tensor_set_isa(best) == 0);
}

static int fired;
static tensor_t *count_hook(tensor_t *g, void *user) {
    (void)user;
    fired += (int)tensor_numel(g);
    return NULL;
}
static void hook_of_a_changed_view(void) {
    tensor_t *x = leaf(tensor_ones(3)), *y = tensor_mul_scalar(x, 2), *v = tensor_narrow(y, 0, 0, 2), *w;
    fired = 0;
    CHECK(tensor_register_hook(v, count_hook, NULL) > 0);
    tensor_mul_scalar_(v, 3);
    EXPECT(gradient(y, x, 0), 6, 12, 6);
    CHECK(fired == 0);
    y = tensor_mul_scalar(x, 2);
    v = tensor_narrow(y, 0, 0, 2);
    w = tensor_mul_scalar(v, 1);        // uses the value that has the hook
    CHECK(tensor_register_hook(v, count_hook, NULL) > 0);
    tensor_mul_scalar_(v, 3);
    EXPECT(gradient(tensor_add(tensor_sum(y), tensor_sum(w)), x, 0), 8, 8, 2);
    CHECK(fired == 2);
    y = tensor_mul_scalar(x, 2);        // no view: the old value is a step of the graph
    CHECK(tensor_register_hook(y, count_hook, NULL) > 0);
    tensor_mul_scalar_(y, 3);
    gradient(y, x, 0);
    CHECK(fired == 5);
    y = tensor_mul_scalar(x, 2);        // a retained gradient is that of the changed view
    v = tensor_narrow(y, 0, 0, 2);
    tensor_retain_grad(v);
    CHECK(tensor_register_hook(v, count_hook, NULL) > 0);
    tensor_mul_scalar_(v, 3);
    tensor_backward(tensor_sum(tensor_cat(0, y, v)));
    EXPECT(tensor_grad(x), 12, 12, 2);
    CHECK(fired == 5);
}
static void leaf_of_its_own_graph(void) {
    tensor_t *x = leaf(tensor_ones(2)), *y = tensor_cos(x), *z;
    tensor_detach_(x);
    CHECK_POISON(tensor_copy_(x, y), TENSOR_ERR_AUTOGRAD, "is a leaf of the graph");
    x = leaf(tensor_ones(2));
    y = tensor_mul_scalar(tensor_cos(x), 2);
    tensor_requires_grad_(x, 0);
    CHECK_POISON(tensor_add_(tensor_narrow(x, 0, 0, 1), tensor_narrow(y, 0, 0, 1)), TENSOR_ERR_AUTOGRAD,
                 "is a leaf of the graph");
    x = leaf(tensor_ones(2));
    y = tensor_cos(x);
    z = leaf(tensor_ones(2));
    tensor_detach_(x);
    tensor_copy_(x, tensor_mul_scalar(z, 3));           // of another graph
    EXPECT(gradient(x, z, 0), 3, 6);
    CHECK(tensor_requires_grad(y));
    CHECK_POISON(tensor_copy_(x, y), TENSOR_ERR_AUTOGRAD, "is a leaf of the graph");    // changed before, too

    // a view that is a leaf of the graph, which would hold its base
    x = tensor_ones(2);
    tensor_t *v = tensor_requires_grad_(tensor_narrow(x, 0, 0, 1), 1), *other = tensor_narrow(x, 0, 1, 1);
    CHECK_POISON(tensor_copy_(other, tensor_cos(v)), TENSOR_ERR_AUTOGRAD, "it, is a leaf of the graph");
    CHECK_POISON(tensor_copy_(other, v), TENSOR_ERR_AUTOGRAD, "it, is a leaf of the graph");
    y = tensor_mul_scalar(v, 2);
    CHECK_POISON(tensor_add_(x, y), TENSOR_ERR_AUTOGRAD, "it, is a leaf of the graph");
    EXPECT(gradient(y, v, TENSOR_RETAIN_GRAPH), 2);
    tensor_copy_(other, tensor_mul_scalar(tensor_narrow(z, 0, 0, 1), 3));
    CHECK_POISON(tensor_copy_(other, y), TENSOR_ERR_AUTOGRAD, "it, is a leaf of the graph");
}

static void logcumsumexp_twice(void) {
    double xs[] = {1000, 1, 710, -INFINITY};
    tensor_t *x = leaf(tensor_from(xs, TENSOR_F64, 2)), *y = tensor_logcumsumexp(x, 0);
    tensor_t *s = tensor_sum(tensor_square(y)), *g = NULL, *h = NULL;
    tensor_autograd_grad(&s, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
    EXPECT(g, 4000, 0);
    s = tensor_sum(tensor_square(g));
    tensor_autograd_grad(&s, 1, NULL, &x, 1, &h, 0);
    EXPECT(h, 32000, 0);
    x = leaf(tensor_to(tensor_from(xs, TENSOR_F64, 2), TENSOR_F32));
    y = tensor_logcumsumexp(x, 0);
    s = tensor_sum(tensor_square(y));
    tensor_autograd_grad(&s, 1, NULL, &x, 1, &g, TENSOR_CREATE_GRAPH);
    s = tensor_sum(tensor_square(g));
    tensor_autograd_grad(&s, 1, NULL, &x, 1, &h, 0);
    EXPECT(h, 32000, 0);
}
static void polygamma_far_left(void) {
    double xs[] = {-100000.3, -99999.3, -50.3, -2.5};
    tensor_t *x = tensor_from(xs, TENSOR_F64, 4);
    const double want[] = {9738.76030137183, 9738.76030137183, 9738.760300953785, -0.06799599950675606};
    expect(tensor_polygamma(4, x), want, 4, 1e-9, __LINE__, "polygamma 4");
    EXPECT(tensor_polygamma(3, x), 769.0209143, 769.0209143, 769.0208991, 194.7478762);
}
static void norm_of_order_zero(void) {
    tensor_t *x = leaf(tensor_arange(0, 3, 1, TENSOR_F32)), *y = tensor_linalg_vector_norm(x, 0, NULL, 0, 0);
    CHECK(tensor_item(y) == 2 && tensor_requires_grad(y));
    EXPECT(gradient(y, x, 0), 0, 0, 0);
    y = tensor_linalg_norm(x, "0", NULL, 0, 1);
    CHECK(tensor_item(y) == 2 && tensor_requires_grad(y) && tensor_ndim(y) == 1);
    EXPECT(gradient(y, x, 0), 0, 0, 0);
    CHECK(!tensor_requires_grad(tensor_linalg_vector_norm(tensor_detach(x), 0, NULL, 0, 0)));
}
// PyTorch: "cannot compute the -3 norm on an empty tensor because the operation does not have an identity"
static void norm_of_nothing(void) {
    tensor_t *x = tensor_zeros(0, 3);
    int64_t rows = 0, columns = 1;
    CHECK_POISON(tensor_norm_p(x, -3), TENSOR_ERR_SHAPE,
                 "x [0,3] has no element to choose from for p -3");
    CHECK_POISON(tensor_norm_p_dims(x, -0.5, &rows, 1, 0), TENSOR_ERR_SHAPE, "no element to choose from");
    CHECK_POISON(tensor_norm_p(x, -(double)INFINITY), TENSOR_ERR_SHAPE, "no element to choose from");
    CHECK_POISON(tensor_norm_p_dims(tensor_T(x), -3, &columns, 1, 0), TENSOR_ERR_SHAPE,
                 "x [3,0] has no element to choose from");
    CHECK(tensor_numel(tensor_norm_p_dims(x, -3, &columns, 1, 0)) == 0);
    EXPECT(tensor_norm_p_dims(x, 3, &rows, 1, 0), 0, 0, 0);
    CHECK(tensor_item(tensor_norm_p(tensor_scalar(-2, TENSOR_F32), -3)) == 2);
    CHECK_POISON(tensor_normalize(x, -1, 0, 1e-12), TENSOR_ERR_SHAPE, "no element to choose from");
    CHECK_POISON(tensor_normalize(x, -2.5, -2, 1e-12), TENSOR_ERR_SHAPE, "no element to choose from");
    CHECK_POISON(tensor_normalize(tensor_zeros(2, 0), -(double)INFINITY, 1, 1e-12), TENSOR_ERR_SHAPE,
                 "no element to choose from");
    CHECK(tensor_size(tensor_normalize(x, -1, 1, 1e-12), 1) == 3);
    CHECK(tensor_size(tensor_normalize(x, 1, 0, 1e-12), 1) == 3);
    CHECK_POISON(tensor_pairwise_distance(tensor_T(x), tensor_T(x), -1, 1e-6, 0), TENSOR_ERR_SHAPE,
                 "no element to choose from");
    CHECK(tensor_numel(tensor_pairwise_distance(x, x, -1, 1e-6, 0)) == 0);
}
// torch.special: the gradients of log_ndtr(nan) and i0(1000.) are nan and inf; bf16 is rounded once.
static void gradients_at_the_ends(void) {
    tensor_t *x = leaf(tensor_scalar((double)NAN, TENSOR_F32)), *big = leaf(tensor_scalar(1000, TENSOR_F64));
    tensor_backward(tensor_log_ndtr(x));
    tensor_backward(tensor_i0(big));
    CHECK(isnan(tensor_item(tensor_grad(x))));
    CHECK(isinf(tensor_item(tensor_grad(big))));
    tensor_t *half = tensor_to(tensor_linspace(-6, 3, 200), TENSOR_BF16), *wide = tensor_to(half, TENSOR_F32);
    CHECK(tensor_equal(tensor_ndtr(half), tensor_to(tensor_ndtr(wide), TENSOR_BF16)));
    CHECK(tensor_equal(tensor_log_ndtr(half), tensor_to(tensor_log_ndtr(wide), TENSOR_BF16)));
}
// At a distance of exactly delta the slope is already constant.
static void huber_loss_twice(void) {
    static const double at[] = {0.5, -0.5, 0.25, -0.75};
    for (int f64 = 0; f64 < 2; f64++) {
        tensor_t *x = tensor_from(at, TENSOR_F64, 4), *t = tensor_zeros(4), *g;
        if (!f64) { x = tensor_to(x, TENSOR_F32); }
        if (f64) { t = tensor_to(t, TENSOR_F64); }
        x = leaf(x);
        t = leaf(t);
        g = gradient(tensor_huber_loss(x, t, .delta = 0.5, .reduction = TENSOR_NONE), x, TENSOR_CREATE_GRAPH);
        EXPECT(g, 0.5, -1, 0.75, -2);
        EXPECT(gradient(g, x, TENSOR_RETAIN_GRAPH), 0, 0, 9, 0);
        EXPECT(gradient(g, t, 0), 0, 0, -9, 0);
        g = gradient(tensor_huber_loss(x, t, .delta = 0.5, .reduction = TENSOR_NONE), t, TENSOR_CREATE_GRAPH);
        EXPECT(g, -0.5, 1, -0.75, 2);
        EXPECT(gradient(g, t, 0), 0, 0, 9, 0);
    }
}
// At 0 the norm has no second derivative. Its gradient there is the constant 0; PyTorch's second is NaN or 0.
static void norm_of_zeros_twice(void) {
    tensor_t *x = leaf(tensor_to(tensor_zeros(3), TENSOR_F64)), *y[4];
    int64_t dim = 0;
    y[0] = tensor_norm(x);
    y[1] = tensor_norm_dim(x, 0, 0);
    y[2] = tensor_linalg_norm(x, NULL, &dim, 1, 0);
    y[3] = tensor_norm_p(x, 3);
    for (int k = 0; k < 4; k++) {
        tensor_t *g = gradient(y[k], x, TENSOR_CREATE_GRAPH);
        EXPECT(g, 0, 0, 0);
        EXPECT(gradient(g, x, 0), 0, 0, 0);
    }
}
static void distances_of_order_zero(void) {
    tensor_t *x = leaf(tensor_reshape(tensor_arange(0, 3, 1, TENSOR_F32), 1, 3)), *y;
    y = tensor_norm_p(x, 0);
    CHECK(tensor_item(y) == 2 && tensor_requires_grad(y));
    EXPECT(gradient(y, x, 0), 0, 0, 0);
    y = tensor_pairwise_distance(x, tensor_zeros(1, 3), 0, 0, 0);
    CHECK(tensor_item(y) == 2 && tensor_requires_grad(y));
    EXPECT(gradient(y, x, 0), 0, 0, 0);
    CHECK(tensor_item(tensor_pairwise_distance(x, tensor_zeros(1, 3), 0, 1e-6, 0)) == 3);
}
static void triplet_of_numbers(void) {
    tensor_t *a = leaf(tensor_scalar(1, TENSOR_F32)), *y;
    y = tensor_triplet_margin_loss(a, tensor_add_scalar(a, 1), tensor_add_scalar(a, 3));
    CHECK(tensor_ndim(y) == 0);
    CHECK_NEAR(tensor_item(y), 0, 0);
    y = tensor_triplet_margin_loss(a, tensor_scalar(4, TENSOR_F32), tensor_scalar(3, TENSOR_F32),
                                   .reduction = TENSOR_NONE);
    CHECK(tensor_ndim(y) == 0);
    CHECK_NEAR(tensor_item(y), 2, 1e-6);
    EXPECT(gradient(y, a, 0), 0);
}
static void logit_with_crossed_bounds(void) {
    float xs[] = {0.1f, 0.9f, 0.5f, 0.69f};
    tensor_t *x = leaf(tensor_from(xs, TENSOR_F32, 4)), *y = tensor_logit(x, 0.7);
    EXPECT(y, 0.847298, -0.847298, 0.847298, 0.847298);
    EXPECT(gradient(y, x, 0), 0, 0, 0, 0);
    EXPECT(tensor_logit(x, 1), INFINITY, INFINITY, INFINITY, INFINITY);
    EXPECT(tensor_logit(x, 0.5), 0, 0, 0, 0);
}
static void unflatten_to_nothing(void) {
    tensor_t *x = tensor_zeros(4, 0), *y = tensor_unflatten(x, 1, 2, 0, 0, 0);
    CHECK(tensor_ndim(y) == 5 && tensor_size(y, 1) == 2 && tensor_size(y, 4) == 0);
    CHECK_POISON(tensor_unflatten(x, 1, 2, 3), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten(x, 0, INT64_MAX, INT64_MAX, 0), TENSOR_ERR_SHAPE, "unflatten");
    CHECK_POISON(tensor_unflatten(tensor_zeros(4), 0, 2, 0), TENSOR_ERR_SHAPE, "unflatten");
}
static void norms_of_halves(void) {
    tensor_t *x = tensor_full_of(TENSOR_F16, 9, 15), *y = tensor_linalg_vector_norm(x, 4, NULL, 0, 0);
    CHECK(tensor_dtype(y) == TENSOR_F16);
    CHECK_NEAR(tensor_item(y), 17.71875, 0);
    CHECK_NEAR(tensor_item(tensor_linalg_norm(x, "4", NULL, 0, 0)), 17.71875, 0);
    CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(x, 3, NULL, 0, 0)), 22.203125, 0);
    CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(x, -1.5, NULL, 0, 0)), 1.4794921875, 0);
    CHECK_NEAR(tensor_item(tensor_linalg_vector_norm(tensor_to(x, TENSOR_BF16), 2.5, NULL, 0, 0)), 26.625, 0);
}
static void dtypes_and_steps(void) {
    int64_t one = 1, zero = 0;
    tensor_t *a = tensor_ones_of(TENSOR_I32, 2, 1), *b = tensor_ones_of(TENSOR_I32, 3, 4), *y, *w;
    CHECK_POISON(tensor_arange(10, 9, 5, TENSOR_I64), TENSOR_ERR_SHAPE, "does not lead");
    CHECK_POISON(tensor_arange(9, 10, -5, TENSOR_I64), TENSOR_ERR_SHAPE, "does not lead");
    CHECK(tensor_numel(tensor_arange(3, 3, -5, TENSOR_I64)) == 0);
    CHECK(tensor_numel(tensor_arange(3, 3, 5, TENSOR_I64)) == 0);
    y = tensor_tensordot_dims(a, b, &one, &zero, 1);
    CHECK(tensor_dtype(y) == TENSOR_I32);
    EXPECT(y, 3, 3, 3, 3, 3, 3, 3, 3);
    w = tensor_ones(3);
    y = tensor_cov(tensor_reshape(tensor_to(numbers(6), TENSOR_F16), 2, 3), 1, NULL, w);
    CHECK(tensor_dtype(y) == TENSOR_F32);
    EXPECT(y, 1, 1, 1, 1);
    CHECK(tensor_dtype(tensor_cov(tensor_to(numbers(3), TENSOR_BF16), 1, NULL, w)) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_cov(numbers(3), 1, NULL, tensor_to(w, TENSOR_F16))) == TENSOR_F32);
    CHECK(tensor_dtype(tensor_cov(numbers(3), 1, NULL, tensor_to(w, TENSOR_F64))) == TENSOR_F64);
    y = tensor_cov(tensor_to(numbers(3), TENSOR_F16), 1, tensor_ones_of(TENSOR_I64, 3), NULL);
    CHECK(tensor_dtype(y) == TENSOR_F16);
}

// ---- what random programs found (tests/differential) ----

static void pools_without_outputs(void) {
    tensor_t *x = leaf(tensor_ones(1, 1, 1, 1, 1));
    EXPECT(gradient(tensor_adaptive_avg_pool3d(x, 1, 2, 0), x, 0), 0);
    EXPECT(gradient(tensor_adaptive_max_pool3d(x, 1, 2, 0).values, x, 0), 0);
    CHECK(tensor_numel(gradient(tensor_adaptive_avg_pool3d(leaf(tensor_ones(1, 0, 2, 2, 2)), 1, 1, 1), x,
                                TENSOR_ALLOW_UNUSED)) == 0);
}
static void convolutions_of_no_channels(void) {     // of nothing is left the bias, as in linear
    tensor_t *x = leaf(tensor_ones(1, 0, 3, 3)), *w = leaf(tensor_ones(2, 0, 2, 2)), *b = leaf(numbers(2));
    tensor_t *y;
    y = tensor_conv2d(x, w, b);
    EXPECT(y, 1, 1, 1, 1, 2, 2, 2, 2);
    EXPECT(gradient(y, b, 0), 10, 26);
    CHECK(tensor_numel(gradient(tensor_conv2d(x, w, b), w, 0)) == 0);
    EXPECT(tensor_conv1d(tensor_ones(1, 0, 3), tensor_ones(1, 0, 2), NULL), 0, 0);
}

// The leaf is a view itself; before, the graph held itself.
static void view_of_a_marked_view(void) {
    tensor_t *v = tensor_requires_grad_(tensor_reshape(tensor_ones(12), 3, 4), 1);
    tensor_t *w = tensor_narrow(v, 0, 1, 1);
    CHECK_POISON(tensor_mul_scalar_(w, 2), TENSOR_ERR_AUTOGRAD, "is a view of a leaf that requires grad");
    EXPECT(gradient(w, v, 0), 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0);
}

// torch.var(torch.ones(0), correction=-1); torch.var(torch.ones(2, 0), 1, correction=-1); torch.std(..)
static void variance_of_nothing(void) {
    CHECK(isnan(tensor_item(tensor_var(tensor_zeros(0), -1))));
    CHECK(isnan(tensor_item(tensor_var(tensor_zeros(0), 0))));
    CHECK(isnan(tensor_item(tensor_std(tensor_zeros_of(TENSOR_F64, 1, 0, 1), -3))));
    tensor_t *y = tensor_var_dim(tensor_zeros(2, 0), 1, -1, 0);
    CHECK(tensor_numel(y) == 2 && isnan(tensor_item(tensor_select(y, 0, 1))));
    EXPECT(tensor_var(numbers(4), -1), 1);      // torch.var(torch.arange(1., 5), correction=-1)
}

// torch.ravel is row-major: of torch.arange(1., 5).reshape(1, 4)[:, ::2], stride 2, it is a copy
static void ravel_of_strides(void) {
    tensor_t *x = tensor_slice(tensor_reshape(numbers(4), 1, 4), 1, 0, 4, 2), *y = tensor_ravel(x);
    CHECK(tensor_stride(y, 0) == 1 && tensor_data(y) != tensor_data(x));
    EXPECT(y, 1, 3);
    x = tensor_narrow(numbers(6), 0, 2, 3);
    CHECK(tensor_data(tensor_ravel(x)) == tensor_data(x));       // what is row-major stays a view
    x = leaf(tensor_T(tensor_reshape(numbers(4), 2, 2)));
    EXPECT(gradient(tensor_ravel(x), x, 0), 1, 2, 3, 4);
}

// x = torch.tensor([-0.5, 0.25, 1.5, 0.5], requires_grad=True); torch.autograd.grad(torch.logit(x).sum(), x)
static void logit_outside(void) {
    const float data[] = {-0.5f, 0.25f, 1.5f, 0.5f};
    tensor_t *x = leaf(tensor_from(data, TENSOR_F32, 4)), *y = tensor_logit(x, -1), *g;
    tensor_t *loss = tensor_sum(y);
    tensor_autograd_grad(&loss, 1, NULL, &x, 1, &g, 0);
    CHECK(isnan(tensor_item(tensor_select(y, 0, 0))) && isnan(tensor_item(tensor_select(y, 0, 2))));
    CHECK(isnan(tensor_item(tensor_select(g, 0, 0))) && isnan(tensor_item(tensor_select(g, 0, 2))));
    CHECK_NEAR(tensor_item(tensor_select(g, 0, 1)), 16.0 / 3, 1e-5);
    CHECK_NEAR(tensor_item(tensor_select(g, 0, 3)), 4, 1e-5);
}

// x.grad = g; (x * 2).sum().backward() adds into g; where g has a graph, PyTorch does too.
static void gradient_that_was_set(void) {
    tensor_t *x = leaf(numbers(2)), *g = numbers(2);
    tensor_set_grad(x, g);
    tensor_backward(tensor_sum(tensor_mul_scalar(x, 2)));
    EXPECT(tensor_grad(x), 3, 4);
    EXPECT(g, 3, 4);
    g = tensor_mul_scalar(leaf(numbers(2)), 1);
    tensor_set_grad(x, g);
    tensor_backward(tensor_sum(tensor_mul_scalar(x, 2)));
    EXPECT(tensor_grad(x), 3, 4);
    EXPECT(g, 1, 2);
}

// a.grad and b.grad of (torch.nextafter(a, b) * torch.arange(1., 9)).sum()
static void gradient_of_neighbours(void) {
    float from[] = {1, 2, 0, -0.0f, 0, 3, NAN, INFINITY}, to[] = {3, 0, 1, -2, 0, 3, 1, 0};
    tensor_t *a = leaf(tensor_from(from, TENSOR_F32, 8)), *b = leaf(tensor_from(to, TENSOR_F32, 8));
    tensor_t *y = tensor_nextafter(a, b), *row, *ga = NULL;
    CHECK(test_same_bits(y, tensor_nextafter(tensor_detach(a), tensor_detach(b))));
    EXPECT(gradient(y, a, TENSOR_RETAIN_GRAPH), 1, 2, 3, 4, 0, 0, 7, 8);
    EXPECT(gradient(y, b, 0), 0, 0, 0, 0, 0, 0, 0, 0);
    // a is broadcast and of another dtype
    row = leaf(tensor_from(from, TENSOR_F32, 2));
    y = tensor_nextafter(row, tensor_to(tensor_reshape(tensor_from(to, TENSOR_F32, 4), 2, 2), TENSOR_F64));
    CHECK(tensor_dtype(y) == TENSOR_F64);
    EXPECT(gradient(tensor_square(y), row, 0), 2, 24);
    y = tensor_nextafter(row, tensor_ones_of(TENSOR_I32, 2));
    ga = gradient(tensor_square(y), row, TENSOR_CREATE_GRAPH);
    EXPECT(gradient(ga, row, 0), 0, 8);
}
// torch.div(x, 3, rounding_mode="trunc") of -1 is -0, whether a gradient is wanted or not
static void zeros_of_what_needs_grad(void) {
    tensor_t *x = leaf(tensor_full(-1, 3)), *y = tensor_div_mode(x, tensor_full(3, 3), "trunc");
    CHECK(tensor_requires_grad(y));
    EXPECT(tensor_reciprocal(y), -INFINITY, -INFINITY, -INFINITY);
    EXPECT(gradient(y, x, 0), 0, 0, 0);
    y = tensor_div_mode(leaf(tensor_full(-0.0, 2)), tensor_ones(2), "floor");
    EXPECT(tensor_reciprocal(y), -INFINITY, -INFINITY);
}
static tensor_t *power_of(tensor_t *const *in, int n, void *base) {
    (void)n;
    return tensor_pow((tensor_t *)base, in[0]);
}
// functional.jvp(lambda b: torch.pow(a, b), b, torch.ones(4)): a power of 0 does not depend on b
static void jvp_of_powers_of_zero(void) {
    double as[] = {0, 0, 0, 2}, bs[] = {0, 0.5, 2, 0};
    tensor_t *a = tensor_from(as, TENSOR_F64, 4), *b = tensor_from(bs, TENSOR_F64, 4), *ones, *jvp;
    ones = tensor_ones_like(b);
    tensor_jvp(power_of, a, &b, 1, &ones, &jvp, 0);
    EXPECT(jvp, 0, 0, 0, log(2));
    CHECK_OK();
}

int main(void) {
    RUN(jvp_of_powers_of_zero);
    RUN(gradient_of_neighbours);
    RUN(zeros_of_what_needs_grad);
    RUN(changed_after_ldexp);
    RUN(changed_but_not_read);
    RUN(variance_of_nothing);
    RUN(ravel_of_strides);
    RUN(logit_outside);
    RUN(gradient_that_was_set);
    RUN(view_of_a_marked_view);
    RUN(pools_without_outputs);
    RUN(convolutions_of_no_channels);
    RUN(scatter_into_a_view);
    RUN(scatter_into_a_view_gradient);
    RUN(change_then_join);
    RUN(every_change_then_join);
    RUN(autocast_instance_norm);
    RUN(autocast_of_every_op);
    RUN(losses_of_integers);
    RUN(null_pointers);
    RUN(repeats_of_one);
    RUN(shuffles_by_one);
    RUN(xlogy_without_upstream);
    RUN(changed_results);
    RUN(qr_of_a_wide_matrix);
    RUN(renorm_of_nan);
    RUN(nothing_overlaps);
    RUN(sign_of_zero);
    RUN(clamp_by_nan);
    RUN(gumbel_noise);
    RUN(hook_of_a_changed_view);
    RUN(leaf_of_its_own_graph);
    RUN(logcumsumexp_twice);
    RUN(polygamma_far_left);
    RUN(norm_of_order_zero);
    RUN(norm_of_nothing);
    RUN(huber_loss_twice);
    RUN(norm_of_zeros_twice);
    RUN(gradients_at_the_ends);
    RUN(distances_of_order_zero);
    RUN(triplet_of_numbers);
    RUN(logit_with_crossed_bounds);
    RUN(unflatten_to_nothing);
    RUN(norms_of_halves);
    RUN(dtypes_and_steps);
    return test_report();
}

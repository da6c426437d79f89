// views.c - changes in place through views, as PyTorch; random programs against the same without changes
//
// Numbers named "PyTorch" come from runs of PyTorch 2.15 of the same lines.
#define HERE "views.c:"
#include "graphs.h"

// Views of results whose memory is not in order: a permuted one, one with gaps (parts of a tensor nobody else
// has), in place and by as_strided.
static tensor_t *permuted_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_permute(tensor_sin(tensor_permute(x, 0, 2, 1)), 0, 2, 1));
}

static tensor_t *changed_in_permuted(tensor_t *const *in, int n, void *user) {
    tensor_t *y = permuted_made(in[0]), *v = tensor_select(y, 0, 1), *w = tensor_permute(y, 0, 2, 1);
    tensor_t *flat = tensor_view(w, -1), *part = tensor_slice(flat, 0, 3, 17, 2);
    (void)n;
    (void)user;
    tensor_mul_(v, in[1]);                                      // y is changed, each view follows
    tensor_copy_(tensor_slice(part, 0, 1, 3, 1), tensor_slice(in[1], 0, 0, 2, 1));
    return tensor_cat(0, tensor_reshape(tensor_mul(y, in[0]), -1), tensor_mul(part, part), tensor_exp(flat),
                      tensor_reshape(v, -1));
}

static tensor_t *gap_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_slice(tensor_transpose(tensor_sin(x), 0, 1), 0, 1, 3, 1));
}

static tensor_t *changed_in_gaps(tensor_t *const *in, int n, void *user) {
    const int64_t dims[2] = {3, 2}, strides[2] = {4, 1};
    tensor_t *y = gap_made(in[0]), *v = tensor_at(y, "1, ::2"), *z;
    (void)n;
    (void)user;
    tensor_mul_(v, in[1]);
    z = tensor_as_strided(y, dims, strides, 2, tensor_storage_offset(y));
    return tensor_cat(0, tensor_reshape(y, -1), tensor_mul(v, v), tensor_reshape(tensor_mul(z, z), -1));
}

static void views_of_permuted(void) {
    static const double values[] = {0.2, -0.3, 1.1, 0.5, 0.7, -0.4, 0.1, 0.9, -1.2, 0.3, 0.6, -0.7,
                                    0.4, 0.8, -0.9, 1.3, -0.1, 0.35, -0.65, 0.15, 1.05, -0.25, 0.55, 0.45};
    tensor_t *in[2], *y;
    in[0] = tensor_requires_grad_(tensor_from(values, TENSOR_F64, 2, 3, 4), 1);
    in[1] = LEAF64(0.5, 0.7, -0.4, 1.5);
    y = permuted_made(in[0]);
    CHECK(!tensor_is_contiguous(y));
    CHECK(tensor_gradcheck(changed_in_permuted, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(changed_in_permuted, NULL, in, 2, 0, 0, 0) == 0);
    in[0] = tensor_requires_grad_(tensor_from(values, TENSOR_F64, 3, 4), 1);
    in[1] = LEAF64(0.5, 0.7);
    CHECK(tensor_gradcheck(changed_in_gaps, NULL, in, 2, 0, 0, 0) == 0);
    CHECK(tensor_gradgradcheck(changed_in_gaps, NULL, in, 2, 0, 0, 0) == 0);
    tensor_add_scalar_(tensor_select(tensor_softmax(tensor_detach(y), 0), 1, 0), 1);
    CHECK_OK();
}

// Views that no history can follow are refused before they are written.
static tensor_t *expanded_made(tensor_t *x) {
    tensor_scope_t s = tensor_scope_begin();
    return tensor_scope_return(s, tensor_expand(tensor_sin(x), 3, 2));
}

static void refused_in_time(void) {
    static const int64_t dims[1] = {3}, strides[1] = {2};
    tensor_t *x = LEAF(0.5, 1), *y = expanded_made(x), *z, *v;
    tensor_scope_t s = tensor_scope_begin();
    double first = tensor_item(tensor_at(y, "0, 0"));
    z = tensor_scope_return(s, tensor_narrow(tensor_arange(0, 8, 1, TENSOR_F32), 0, 0, 4));
    POISONS(tensor_mul_scalar_(tensor_select(y, 0, 0), 2), TENSOR_ERR_UNSUPPORTED, "of an expanded tensor",
            HERE);
    CHECK(tensor_item(tensor_at(y, "0, 0")) == first);
    v = tensor_as_strided(z, dims, strides, 1, 3);                              // behind z's end
    POISONS(tensor_copy_(v, tensor_mul_scalar(LEAF(1, 2, 3), 2)), TENSOR_ERR_UNSUPPORTED, "not within", HERE);
    CHECK(tensor_item(tensor_at(v, "1")) == 5 && !tensor_requires_grad(z));
    CHECK(!tensor_is_poison(tensor_mul_scalar_(v, 2)));                          // nothing to record
}

// What layer_norm saved was changed since: an error of backward.
static void norm_overwritten(void) {
    tensor_t *x = LEAF(1, 2, 3, 4), *y = tensor_sin(x), *z = tensor_layer_norm(y, 1);
    tensor_mul_scalar_(y, 2);
    FAILS(tensor_backward(tensor_sum(z)), TENSOR_ERR_AUTOGRAD, "was changed in place by mul", HERE);
    y = tensor_add_scalar(tensor_slice(x, 0, 0, 0, 1), 1);         // nothing of nothing
    tensor_mul_scalar_(tensor_slice(tensor_expand(tensor_reshape(y, 0, 1), 0, 3), 1, 0, 2, 1), 2);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    CHECK_OK();
}

static void multi_views(void) {
    tensor_t *x = LEAF(1, 2, 3, 4), *y = tensor_mul_scalar(x, 2), *part[4], *w;
    tensor_scope_t s;
    CHECK(tensor_split(y, 2, 0, part, 4) == 2);
    POISONS(tensor_mul_scalar_(part[0], 2), TENSOR_ERR_AUTOGRAD, "mul_scalar_: x [2] is one of several views",
            HERE);
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    POISONS(tensor_zero_(tensor_select(part[1], 0, 0)), TENSOR_ERR_AUTOGRAD, "one of several views", HERE);
    CHECK(tensor_split(y, 2, 0, part, 4) == 2);
    tensor_mul_scalar_(y, 5);                               // read after it, they are parts of y
    CHECK(tensor_backward(tensor_sum(tensor_flatten(part[1], 0, -1))) == 0);
    EXPECT(tensor_grad(x), 0, 0, 10, 10);
    y = tensor_ones(4);
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    CHECK(!tensor_is_poison(tensor_mul_scalar_(part[0], 2))); // nothing to record
    EXPECT(y, 2, 2, 1, 1);
    w = tensor_narrow(x, 0, 0, 2);
    POISONS(tensor_mul_(part[0], w), TENSOR_ERR_AUTOGRAD, "one of several views", HERE);
    y = tensor_mul_scalar(x, 2);
    s = tensor_scope_begin_no_grad();
    CHECK(tensor_chunk(y, 2, 0, part, 4) == 2);
    CHECK(!tensor_is_poison(tensor_mul_scalar_(part[0], 2)));
    w = tensor_keep(tensor_narrow(y, 0, 0, 2));
    tensor_scope_end(s);
    POISONS(tensor_mul_scalar_(tensor_select(w, 0, 0), 2), TENSOR_ERR_AUTOGRAD, "view made under no_grad",
            HERE); // a view of such a view
    tensor_free(w);
}

// What an in-place write leaves of a gradient, and where: PyTorch.
static void overwritten(void) {
    tensor_t *w = LEAF(1, 2), *z = tensor_clone(w), *i, *part[3], *x, *y;
    tensor_zero_(z);
    CHECK(tensor_requires_grad(z) && tensor_backward(tensor_sum(z)) == 0);
    EXPECT(tensor_grad(w), 0, 0);
    x = LEAF(3, 4);
    w = LEAF(1, 2);
    z = tensor_clone(w);
    tensor_copy_(z, x);
    CHECK(tensor_backward(tensor_sum(tensor_mul_scalar(z, 5))) == 0);
    EXPECT(tensor_grad(w), 0, 0);
    EXPECT(tensor_grad(x), 5, 5);
    i = tensor_zeros_of(TENSOR_I64, 2);
    CHECK(tensor_copy_(i, x) == i && !tensor_requires_grad(i));
    EXPECT(i, 3, 4);
    w = LEAF(2, 3); // frozen after the forward pass
    x = LEAF(4, 5);
    z = tensor_sum(tensor_mul(w, x));
    tensor_requires_grad_(w, 0);
    CHECK(tensor_backward(z) == 0 && !tensor_grad(w));
    EXPECT(tensor_grad(x), 2, 3);
    x = LEAF(1, 2, 3); // unlike split's, pieces of tensor_split may be changed
    y = tensor_mul_scalar(x, 1);
    CHECK(tensor_tensor_split(y, 2, 0, part, 3) == 2);
    tensor_mul_scalar_(part[0], 3);
    CHECK(tensor_tensor_split_at(y, (int64_t[]){2}, 1, 0, part) == 2);
    tensor_mul_scalar_(part[1], 7);
    CHECK(tensor_backward(tensor_sum(y)) == 0);
    EXPECT(tensor_grad(x), 3, 3, 7);
    x = LEAF(0, 0);
    w = LEAF(0, 2);
    CHECK(tensor_backward(tensor_sum(tensor_atan2(x, w))) == 0);
    EXPECT(tensor_grad(x), 0, 0.5);
    EXPECT(tensor_grad(w), 0, 0);
}

// Views of views, the base changed after a view was taken, views used before and after: against PyTorch.
static void views_in_place(void) {
    tensor_t *x = tensor_requires_grad_(tensor_arange(1, 7, 1, TENSOR_F32), 1), *b, *v, *w, *z, *e;
    b = tensor_mul(tensor_reshape(x, 2, 3), tensor_ones(2, 3));
    v = tensor_mT(b);
    w = tensor_select(v, 0, 1); // column 1 of b
    tensor_mul_scalar_(b, 2);   // base first
    tensor_mul_(w, w);          // then a view of a view
    tensor_add_scalar_(v, 1);   // then the view between
    z = tensor_sum(tensor_mul(v, v));
    CHECK(tensor_backward(z) == 0);
    EXPECT(b, 3, 17, 7, 9, 101, 13);
    EXPECT(tensor_grad(x), 12, 544, 28, 36, 8080, 52); // PyTorch
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // a value of the view from before the change stays what it was
    v = tensor_narrow(b, 0, 1, 3);
    z = tensor_mul_scalar(v, 10);
    tensor_mul_scalar_(v, 3);
    CHECK(tensor_backward(tensor_sum(tensor_add(z, v))) == 0);
    EXPECT(tensor_grad(x), 0, 13, 13, 13, 0, 0);
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // an overlapping view of other strides sees the change
    v = tensor_slice(b, 0, 0, 6, 2);
    w = tensor_slice(b, 0, 0, 6, 3);
    tensor_mul_scalar_(v, 5);
    tensor_mul_scalar_(w, 7);
    CHECK(tensor_backward(tensor_sum(tensor_mul(v, DATA(1, 2, 3)))) == 0);
    EXPECT(b, 35, 2, 15, 28, 25, 6);
    EXPECT(tensor_grad(x), 35, 0, 10, 0, 15, 0);
    tensor_set_grad(x, NULL);
    b = tensor_mul_scalar(x, 1); // a copy of another graph into a view of a view
    v = tensor_reshape(b, 3, 2);
    w = tensor_select(v, 1, 0);
    e = tensor_mul(tensor_narrow(x, 0, 0, 3), tensor_narrow(x, 0, 3, 3));
    tensor_copy_(w, e);
    CHECK(tensor_backward(tensor_sum(tensor_mul(b, b))) == 0);
    EXPECT(b, 4, 2, 10, 4, 18, 6);
    EXPECT(tensor_grad(x), 2 * 4 * 4, 4 + 2 * 10 * 5, 2 * 18 * 6, 8 + 2 * 4, 2 * 10 * 2, 12 + 2 * 18 * 3);
    tensor_set_grad(x, NULL);
    e = tensor_expand(tensor_reshape(tensor_mul_scalar(x, 1), 6, 1), 6, 2); // expanded: refused
    POISONS(tensor_mul_scalar_(e, 2), TENSOR_ERR_AUTOGRAD, "is expanded", HERE);
    POISONS(tensor_mul_scalar_(tensor_unfold_dim(tensor_zeros(40), 0, 3, 1), 2), TENSOR_ERR_AUTOGRAD,
            "x [38,3] is a view whose elements overlap, several share one place; clone it first", HERE);
    CHECK(tensor_item(tensor_sum(tensor_fill_(tensor_unfold_dim(tensor_zeros(41), 0, 3, 3), 1))) == 39);
    b = tensor_mul_scalar(tensor_narrow(x, 0, 0, 2), 1); // but its base may change
    e = tensor_expand(tensor_reshape(b, 2, 1), 2, 3);
    tensor_mul_scalar_(b, 4);
    CHECK(tensor_backward(tensor_sum(e)) == 0);
    EXPECT(e, 4, 4, 4, 8, 8, 8);
    EXPECT(tensor_grad(x), 12, 12, 0, 0, 0, 0);
    tensor_set_grad(x, NULL);
    v = tensor_reshape(x, 2, 3); // views of views of a leaf
    POISONS(tensor_zero_(tensor_select(v, 0, 0)), TENSOR_ERR_AUTOGRAD, "view of a leaf that requires grad",
            HERE);
    b = tensor_mul_scalar(x, 1); // a second derivative through changes of views
    v = tensor_narrow(b, 0, 0, 2);
    tensor_mul_(v, tensor_narrow(x, 0, 2, 2));
    z = tensor_sum(tensor_mul(b, tensor_mul(b, b)));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, &w, TENSOR_CREATE_GRAPH) == 0);
    EXPECT(w, 81, 768, 54, 432, 75, 108);
    z = tensor_sum(tensor_mul(w, w));
    CHECK(tensor_autograd_grad(&z, 1, NULL, &x, 1, &w, 0) == 0);
    EXPECT(w, 34992, 1677312, 17010, 1071360, 4500, 7776); // PyTorch
}

// Random programs that change views of one tensor in place, against the same written with pure functions:
// each change replaces the tensor by a copy with the view replaced.
static uint32_t dice_state;

static int dice(int n) {
    dice_state = dice_state * 1664525u + 1013904223u;
    return (int)(dice_state >> 8) % n;
}

static tensor_t *some_view(tensor_t *x) {
    int d = tensor_ndim(x) ? dice(tensor_ndim(x)) : 0, k;
    int64_t n = tensor_ndim(x) ? tensor_size(x, d) : 0;
    if (!n) { return x; }
    switch (dice(5)) {
    case 0: k = dice((int)n); return tensor_narrow(x, d, k, 1 + dice((int)n - k));
    case 1: return tensor_ndim(x) > 1 ? tensor_select(x, d, dice((int)n)) : x;
    case 2: return tensor_slice(x, d, dice((int)n), n, 2);
    case 3: return tensor_ndim(x) > 1 ? tensor_transpose(x, 0, -1) : tensor_unsqueeze(x, dice(2));
    default: return tensor_is_contiguous(x) ? tensor_reshape(x, -1) : x;
    }
}

static tensor_t *same_place(tensor_t *pure, tensor_t *v, tensor_t *base, tensor_t *replace) {
    int64_t dims[8], strides[8];
    int k, n = tensor_ndim(v);
    int64_t at = (const double *)tensor_data(v) - (const double *)tensor_data(base);
    for (k = 0; k < n; k++) { dims[k] = tensor_size(v, k), strides[k] = tensor_stride(v, k); }
    return replace ? tensor_as_strided_scatter(pure, replace, dims, strides, n, at)
                   : tensor_as_strided(pure, dims, strides, n, at);
}

static tensor_t *read_value(tensor_t *v) { return tensor_sum(tensor_square(tensor_clone(v))); }

static void random_changes(void) {
    int seed, step;
    for (seed = 0; seed < 300; seed++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x, *w, *base, *pure, *loss[2], *g[2][2], *in[2], *view[4];
        int nview = 0, k;
        dice_state = (uint32_t)seed * 7919u + 1;
        tensor_manual_seed((uint64_t)seed);
        in[0] = x = tensor_requires_grad_(tensor_to(tensor_randn(4, 6), TENSOR_F64), 1);
        in[1] = w = tensor_requires_grad_(tensor_to(tensor_randn(1), TENSOR_F64), 1);
        base = dice(3) ? tensor_mul_scalar(x, 1) : tensor_zeros_of(TENSOR_F64, 4, 6);
        pure = tensor_clone(base);
        loss[0] = loss[1] = tensor_sum(tensor_mul(x, w));
        for (step = 0; step < 8; step++) {
            tensor_t *v, *old, *now;
            double c = 0.5 + 0.25 * dice(5);
            k = nview && dice(2) ? dice(nview) : -1; // a view from before, or a new one, kept for later
            v = k >= 0 ? view[k] : some_view(base);
            if (k < 0 && dice(2)) { v = some_view(v); }
            if (k < 0 && nview < 4) { view[nview++] = v; }
            if (!dice(6)) { v = base; }
            old = same_place(pure, v, base, NULL);
            switch (dice(7)) {
            case 0: now = tensor_mul_scalar(old, c), tensor_mul_scalar_(v, c); break;
            case 1: now = tensor_add(old, w), tensor_add_(v, w); break;
            case 2: now = tensor_mul(old, w), tensor_mul_(v, w); break;
            case 3: now = tensor_full_like(old, c), tensor_fill_(v, c); break;
            case 4: now = tensor_mul(old, old), tensor_mul_(v, v); break;
            case 5: now = tensor_expand_n(tensor_square(w), tensor_shape(v).dims, tensor_ndim(v)),
                    tensor_copy_(v, tensor_square(w)); break;
            default: // only looked at
                now = NULL;
                loss[0] = tensor_add(loss[0], read_value(v));
                loss[1] = tensor_add(loss[1], read_value(old));
            }
            if (now) { pure = same_place(pure, v, base, tensor_contiguous(now)); }
        }
        for (k = 0; k < nview; k++) {
            loss[0] = tensor_add(loss[0], read_value(view[k]));
            loss[1] = tensor_add(loss[1], read_value(same_place(pure, view[k], base, NULL)));
        }
        loss[0] = tensor_add(loss[0], read_value(base));
        loss[1] = tensor_add(loss[1], read_value(pure));
        for (k = 0; k < 2; k++) {
            CHECK(tensor_autograd_grad(&loss[k], 1, NULL, in, 2, g[k], TENSOR_RETAIN_GRAPH) == 0);
        }
        CHECK_MSG(tensor_allclose(base, pure, 1e-10, 1e-10), "seed %d: values", seed);
        for (k = 0; k < 2; k++) {
            CHECK_MSG(tensor_allclose(g[0][k], g[1][k], 1e-9, 1e-9), "seed %d: gradient %d: %s", seed, k,
                      tensor_error_text());
        }
        CHECK_OK();
        tensor_scope_end(s);
    }
}

// The diagonal's dim comes last, behind the dims that stay in their order.
static void diagonals_of_three_dims(void) {
    static const int64_t rows[][3] = {{0, 0, 1}, {-1, 0, 1}, {1, 0, 2}, {0, 1, 2}, {2, 2, 0}, {1, -2, -3}};
    tensor_t *x = tensor_reshape(tensor_arange(0, 60, 1, TENSOR_F32), 3, 4, 5);
    const float *from = (const float *)tensor_data(x);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int a = (int)(rows[r][1] + 3) % 3, b = (int)(rows[r][2] + 3) % 3, rest = 3 - a - b;
        int64_t down = rows[r][0] < 0 ? -rows[r][0] : 0, across = rows[r][0] > 0 ? rows[r][0] : 0;
        tensor_t *d = tensor_diagonal(x, rows[r][0], rows[r][1], rows[r][2]);
        int64_t n = tensor_size(x, a) - down, m = tensor_size(x, b) - across;
        CHECK(tensor_ndim(d) == 2 && tensor_size(d, 0) == tensor_size(x, rest));
        CHECK(tensor_size(d, 1) == (n < m ? n : m));
        const float *got = (const float *)tensor_data(tensor_contiguous(d));
        for (int64_t i = 0; i < tensor_numel(d); i++) {
            int64_t along = i % tensor_size(d, 1), kept = i / tensor_size(d, 1);
            CHECK(got[i] == from[kept * tensor_stride(x, rest) + (along + down) * tensor_stride(x, a) +
                                 (along + across) * tensor_stride(x, b)]);
        }
    }
}

int main(void) {
    RUN(views_of_permuted);
    RUN(refused_in_time);
    RUN(norm_overwritten);
    RUN(multi_views);
    RUN(overwritten);
    RUN(views_in_place);
    RUN(random_changes);
    RUN(diagonals_of_three_dims);
    return test_report();
}

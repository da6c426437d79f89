// attention.c - attention with masks and dropout: against the same function made of public ops, with other
// numbers of threads, in replays and checkpoints; and that no matrix of T x T numbers is held

#include "test.h"

enum { HEADS = 3 };

typedef struct job_t {
    int64_t t, s;
    tensor_dtype_t dtype;
    int mask, causal;                   // mask: 0 = none, then see mask_of
    double dropout;
} job_t;

// Masks that broadcast in several ways: bool 1..4, numbers to add 5..7. Some rows of 4 and 7 see nothing.
enum { MASKS = 8 };
static tensor_t *mask_of(const job_t *j) {
    tensor_t *x;
    switch (j->mask) {
    case 1: return tensor_gt_scalar(tensor_randn(j->t, j->s), -1);
    case 2: return tensor_gt_scalar(tensor_randn(2, 1, 1, j->s), -1);
    case 3: return tensor_transpose(tensor_gt_scalar(tensor_randn(HEADS, j->s, j->t), -1), 1, 2);
    case 4: return tensor_expand(tensor_gt_scalar(tensor_randn(2, HEADS, j->t, 1), 0), 2, HEADS, j->t, j->s);
    case 5: x = tensor_randn(2, HEADS, j->t, j->s); break;
    case 6: x = tensor_transpose(tensor_randn(j->s, j->t), 0, 1); break;
    case 7:
        x = tensor_randn(2, 1, j->t, j->s);
        x = tensor_masked_fill(x, tensor_gt_scalar(tensor_randn(j->t, 1), 0.5), -(double)INFINITY);
        break;
    default: return NULL;
    }
    return tensor_to(x, j->dtype);
}

// The same, made of public ops, which hold the whole matrix.
static tensor_t *composed(tensor_t *const *in, tensor_t *mask, const job_t *j) {
    tensor_t *s = tensor_matmul(in[0], tensor_mT(in[1]));
    s = tensor_mul_scalar(s, 1 / sqrt((double)tensor_size(in[0], -1)));
    if (j->causal) {
        tensor_t *past = tensor_tril(tensor_ones_of(TENSOR_BOOL, j->t, j->s), 0);
        s = tensor_masked_fill(s, tensor_logical_not(past), -(double)INFINITY);
    }
    if (mask && tensor_dtype(mask) == TENSOR_BOOL) {
        s = tensor_masked_fill(s, tensor_logical_not(mask), -(double)INFINITY);
    } else if (mask) {
        s = tensor_add(s, mask);
    }
    tensor_t *dead = tensor_eq_scalar(tensor_amax_dim(tensor_detach(s), -1, 1), -(double)INFINITY);
    s = tensor_masked_fill(tensor_softmax(tensor_masked_fill(s, dead, 0), -1), dead, 0);
    return tensor_matmul(tensor_dropout(s, j->dropout, 1), in[2]);
}

static tensor_t *attended(tensor_t *const *in, tensor_t *mask, const job_t *j) {
    return tensor_scaled_dot_product_attention(in[0], in[1], in[2], mask, .is_causal = j->causal,
                                               .dropout_p = j->dropout);
}

static void inputs_of(const job_t *j, tensor_t **in) {
    for (int k = 0; k < 3; k++) {       // heads are inside of tokens, as layers have them
        tensor_t *x = tensor_transpose(tensor_randn(2, k ? j->s : j->t, HEADS, k == 2 ? 5 : 8), 1, 2);
        in[k] = tensor_requires_grad_(tensor_detach(tensor_to(x, j->dtype)), 1);
    }
}

// y and the gradients of the inputs, one after the other.
static tensor_t *all_of(tensor_t *y, tensor_t **in) {
    tensor_t *list[4], *g = tensor_cos(tensor_detach(y));
    list[0] = y;
    tensor_autograd_grad(&y, 1, &g, in, 3, list + 1, 0);
    for (int k = 0; k < 4; k++) { list[k] = tensor_reshape(list[k], -1); }
    return tensor_cat_n(list, 4, 0);
}

static void same_as_composed(void) {
    static const int64_t sizes[][2] = {{1, 9}, {7, 4}, {33, 33}, {64, 70}, {200, 131}};
    for (int i = 0; i < 5 * MASKS * 4; i++) {
        job_t j = {sizes[i % 5][0], sizes[i % 5][1], TENSOR_F32, i / 5 % MASKS, 0, 0};
        if (i / 5 / MASKS & 1) { j.dtype = TENSOR_F64; }
        if (i / 5 / MASKS & 2) { j.dropout = 0.3; }
        j.causal = !j.mask && i % 5 < 4;
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *in[3], *mask = mask_of(&j), *got, *want;
        inputs_of(&j, in);
        tensor_manual_seed(3);
        got = all_of(attended(in, mask, &j), in);
        tensor_manual_seed(3);
        want = all_of(composed(in, mask, &j), in);
        const double bar = j.dtype == TENSOR_F64 ? 1e-13 : 2e-5;
        CHECK_MSG(tensor_allclose(got, want, bar, bar), "T %d, S %d, mask %d, dropout %g, %s", (int)j.t,
                  (int)j.s, j.mask, j.dropout, j.dtype == TENSOR_F64 ? "f64" : "f32");
        tensor_scope_end(scope);
    }
}

// All of it is dropped, or nearly nothing.
static void ends_of_dropout(void) {
    job_t j = {5, 6, TENSOR_F32, 2, 0, 1};
    tensor_t *in[3], *mask = mask_of(&j);
    inputs_of(&j, in);
    CHECK(tensor_item(tensor_max(tensor_abs(all_of(attended(in, mask, &j), in)))) == 0);
    j.dropout = 1e-9;
    CHECK(tensor_allclose(attended(in, mask, &j), composed(in, mask, &j), 1e-5, 1e-6));
}

static void same_for_all_threads(void) {
    const int were = tensor_get_num_threads();
    for (int i = 0; i < 6; i++) {
        job_t j = {150, 201, TENSOR_F32, i % 3 ? 2 * i : 0, !(i % 3), i & 1 ? 0.4 : 0};
        tensor_t *in[3], *mask = mask_of(&j), *got[3];
        inputs_of(&j, in);
        for (int k = 0; k < 3; k++) {
            tensor_set_num_threads(1 + k);
            tensor_manual_seed(9);
            got[k] = all_of(attended(in, mask, &j), in);
        }
        CHECK(tensor_equal(got[0], got[1]) && tensor_equal(got[0], got[2]));
    }
    tensor_set_num_threads(were);
}

// A gradient of the gradient, whose dropout is that of the forward.
static tensor_t *twice(tensor_t *y, tensor_t **in) {
    tensor_t *g[3], *s = tensor_sum(tensor_square(y));
    tensor_autograd_grad(&s, 1, NULL, in, 3, g, TENSOR_CREATE_GRAPH);
    y = tensor_add(tensor_sum(tensor_square(g[0])), tensor_sum(tensor_mul(g[1], tensor_cos(g[1]))));
    return all_of(tensor_add(y, tensor_sum(tensor_square(g[2]))), in);
}

static void gradients_of_gradients(void) {
    for (int i = 0; i < 2 * MASKS; i++) {
        job_t j = {6, 7, TENSOR_F64, i % MASKS, 0, i < MASKS ? 0 : 0.4};
        j.causal = !j.mask;
        tensor_t *in[3], *mask = mask_of(&j);
        inputs_of(&j, in);
        tensor_manual_seed(5);
        tensor_t *got = twice(attended(in, mask, &j), in);
        tensor_manual_seed(5);
        tensor_t *want = twice(composed(in, mask, &j), in);
        const double bar = 1e-13 * (1 + tensor_item(tensor_max(tensor_abs(want))));
        CHECK_MSG(tensor_allclose(got, want, 0, bar), "mask %d, dropout %g", j.mask, j.dropout);
    }
}

static tensor_t *attended_again(tensor_t *const *in, int n, void *job) {
    (void)n;
    return attended(in, in[3], (const job_t *)job);
}

// A checkpoint drops in backward what it dropped in forward. A replay draws anew, as an eager call would.
static void again(void) {
    job_t j = {40, 37, TENSOR_F32, 3, 0, 0.25};
    tensor_t *in[4], *got, *y;
    inputs_of(&j, in);
    in[3] = mask_of(&j);
    tensor_manual_seed(11);
    got = all_of(attended(in, in[3], &j), in);
    tensor_manual_seed(11);
    y = tensor_checkpoint(attended_again, &j, in, 4);
    CHECK(tensor_equal(all_of(y, in), got));

    tensor_manual_seed(12);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    got = tensor_detach(all_of(attended(in, in[3], &j), in));
    tensor_graph_t *g = tensor_capture_end();
    tensor_t *was[3], *eager[3];
    for (int k = 0; k < 3; k++) {
        if (k) { tensor_graph_replay(g); }
        was[k] = tensor_clone(got);
    }
    tensor_graph_free(g);
    tensor_manual_seed(12);
    for (int k = 0; k < 3; k++) { eager[k] = all_of(attended(in, in[3], &j), in); }
    for (int k = 0; k < 3; k++) { CHECK_MSG(tensor_equal(was[k], eager[k]), "replay %d", k); }
    CHECK(!tensor_equal(was[0], was[1]) && !tensor_equal(was[1], was[2]));
}

// ---- memory

enum { PLAIN, DROPOUT, BOOL_MASK, ADDED_MASK, ROW_MASK, HEAD_MASK, CAUSAL_LAYER, PADDED_LAYER, ENCODER_LAYER,
       WAYS };
static const char *const ways[] = {"plain", "dropout", "a bool mask", "a mask to add", "a mask of queries",
    "a mask of heads", "a causal layer", "a causal layer with padding", "an encoder layer"};

static tensor_t *run(int way, nn_module_t *m, tensor_t *const *in, tensor_t *mask) {
    switch (way) {
    case CAUSAL_LAYER: return nn_multihead_attention_forward(m, in[0], in[0], in[0], .is_causal = 1);
    case PADDED_LAYER:
        return nn_multihead_attention_forward(m, in[0], in[0], in[0], .is_causal = 1,
                                              .key_padding_mask = mask);
    case ENCODER_LAYER: return nn_forward(m, in[0]);
    default:
        return tensor_scaled_dot_product_attention(in[0], in[1], in[2], mask,
                                                   .dropout_p = way == DROPOUT || way >= ROW_MASK ? 0.1 : 0);
    }
}

// Bytes that forward and backward take at most.
static double peak(int way, int64_t t) {
    tensor_scope_t scope = tensor_scope_begin();
    nn_module_t *m = NULL;
    tensor_t *in[3], *mask = NULL;
    if (way == ENCODER_LAYER) {
        m = nn_transformer_encoder_layer(8, 1, .feedforward = 16, .batch_first = 1);
    } else if (way >= CAUSAL_LAYER) {
        m = nn_multihead_attention(8, 1, .batch_first = 1, .dropout = 0.1);
    }
    for (int k = 0; k < 3; k++) {
        tensor_t *x = m ? tensor_randn(1, t, 8) : tensor_randn(1, 2, t, 8);
        in[k] = tensor_requires_grad_(x, 1);
    }
    switch (way) {
    case BOOL_MASK: mask = tensor_gt_scalar(tensor_randn(1, t), -2); break;
    case ADDED_MASK: mask = tensor_randn(1, t); break;
    case ROW_MASK: mask = tensor_gt_scalar(tensor_randn(t, 1), -2); break;
    case HEAD_MASK: mask = tensor_randn(2, 1, t); break;
    case PADDED_LAYER: mask = tensor_gt_scalar(tensor_randn(1, t), 2); break;
    default: break;
    }
    tensor_reset_peak_memory();
    const double before = (double)tensor_memory_stats().live_bytes;
    tensor_backward(tensor_sum(run(way, m, in, mask)));
    const double bytes = (double)tensor_memory_stats().peak_bytes - before;
    CHECK_OK();
    nn_free(m);
    tensor_scope_end(scope);
    return bytes;
}

// A sequence twice as long takes twice the bytes.
static void memory(void) {
    for (int way = 0; way < WAYS; way++) {
        double less = peak(way, 256);
        for (int64_t t = 512; t <= 1024; t *= 2) {
            const double more = peak(way, t);
            CHECK_MSG(more < 2.2 * less, "%s: %.0f bytes at T = %d, %.0f at half of it", ways[way], more,
                      (int)t, less);
            less = more;
        }
    }
}

int main(void) {
    RUN(same_as_composed);
    RUN(ends_of_dropout);
    RUN(same_for_all_threads);
    RUN(gradients_of_gradients);
    RUN(again);
    RUN(memory);
    return test_report();
}

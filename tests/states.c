// states.c - recurrent nets with states and lengths as plain tensors
//
// Numbers of PyTorch come from runs of PyTorch 2.15 in f64; what was computed is said beside them.
#include "numbers.h"

// PyTorch: pack_padded_sequence(x, [3, 5, 1, 4], batch_first, enforce_sorted=False), m(.., (h0, c0)),
// pad_packed_sequence(total_length=5); then (y^2).sum() + (h^2).sum() + (c^3).sum() backward. The scores of
// y, h, c, and of the gradients of x, the first two weights and h0.
static void lengths_follow_pytorch(void) {
    const struct { nn_module_t *m; int start; double want[7]; } rows[] = {
        {nn_lstm(3, 2), 0,
         {-2.44108633272596, -0.289632534591072, -0.16914525437497, 0.13965244078487, -0.139738241250757,
          -0.107485625019458, 0}},
        {nn_lstm(3, 2, .layers = 2, .bidirectional = 1), 1,
         {0.277832738960734, 2.94621379761234, 5.4045834827675, 0.622669662372629, 1.22853655933232,
          0.126673906461272, 1.19063388165087}},
        {nn_lstm(3, 4, .bidirectional = 1, .proj_size = 2, .batch_first = 1), 0,
         {-3.32118538102783, -1.2062879904213, 9.75232184428217, 27.7788411990796, 7.49364925087203,
          2.14054146844209, 0}},
        {nn_gru(3, 2, .layers = 2, .bidirectional = 1, .batch_first = 1), 1,
         {-5.65685298108613, 6.26276605401451, 0, 5.66562400782218, 8.32065023197066, 3.05640898169104,
          -24.4040648321822}},
        {nn_rnn(3, 2, .bidirectional = 1), 1,
         {-0.728995354454592, 3.28103499742622, 0, 4.12431376206621, -4.32713920117177, -22.6209408989989,
          -0.82501910891802}},
        {nn_rnn(3, 2, .relu = 1, .no_bias = 1), 0,
         {10.53150075, -1.67124525, 0, -16.2654571519425, 20.292823565685, -53.372215767475, 0}},
    };
    const int64_t ends[4] = {3, 5, 1, 4};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        nn_module_t *m = rows[k].m;
        const double *want = rows[k].want;
        const char *what = m->name;
        int batch_first = k == 2 || k == 3, states = k == 1 || k == 3 ? 4 : 2;
        fill(m);
        tensor_t *p[2], *h0 = NULL, *c0 = NULL, *x = numbers(60, 5, 11, 0.2), *lengths;
        nn_parameters(m, p, 2);
        x = tensor_requires_grad_(batch_first ? tensor_reshape(x, 4, 5, 3) : tensor_reshape(x, 5, 4, 3), 1);
        lengths = tensor_from(ends, TENSOR_I64, 4);
        if (rows[k].start) {
            h0 = tensor_requires_grad_(tensor_reshape(numbers(states * 8, 3, 7, 0.3), states, 4, 2), 1);
            c0 = tensor_reshape(numbers(states * 8, 4, 9, 0.2), states, 4, 2);
        }
        if (k > 1) { c0 = NULL; }
        tensor_state_t s = nn_recurrent_forward(m, x, .h = h0, .c = c0, .lengths = lengths);
        CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
        tensor_t *loss = tensor_add(tensor_sum(tensor_square(s.y)), tensor_sum(tensor_square(s.h)));
        if (s.c) { loss = tensor_add(loss, tensor_sum(tensor_pow_scalar(s.c, 3))); }
        CHECK(tensor_backward(loss) == 0 && (s.c != NULL) == (k < 3));
        is_about(what, 0, score(s.y, 0), want[0]);
        is_about(what, 1, score(s.h, 0), want[1]);
        if (s.c) { is_about(what, 2, score(s.c, 0), want[2]); }
        is_about(what, 3, score(tensor_grad(x), 0), want[3]);
        is_about(what, 4, score(tensor_grad(p[0]), 0), want[4]);
        is_about(what, 5, score(tensor_grad(p[1]), 0), want[5]);
        if (h0) { is_about(what, 6, score(tensor_grad(h0), 0), want[6]); }

        // What is after the ends does not count, whatever it is.
        tensor_t *past = tensor_zeros_of(TENSOR_BOOL, batch_first ? 4 : 5, batch_first ? 5 : 4, 1);
        for (int64_t n = 0; n < 4; n++) {
            for (int64_t t = ends[n]; t < 5; t++) {
                tensor_t *one = tensor_select(tensor_select(past, !batch_first, n), 0, t);
                tensor_fill_(one, 1);
            }
        }
        tensor_t *dirty = tensor_masked_fill(tensor_detach(x), past, NAN);
        tensor_requires_grad_(dirty, 1);
        tensor_state_t other = nn_recurrent_forward(m, dirty, .h = h0, .c = c0, .lengths = lengths);
        CHECK(tensor_equal(other.y, s.y) && tensor_equal(other.h, s.h));
        CHECK(tensor_item(tensor_max(tensor_abs(tensor_mul(s.y, tensor_to(past, TENSOR_F64))))) == 0);
        nn_module_zero_grad(m);
        CHECK(tensor_backward(tensor_sum(tensor_square(other.y))) == 0);
        CHECK(isfinite(score(tensor_grad(dirty), 0)) && isfinite(score(tensor_grad(p[1]), 0)));
        nn_free(m);
    }
    CHECK_OK();
}

// All lengths T is a plain forward; states go from call to call and stay whose they are.
static void states(void) {
    nn_module_t *m[3] = {nn_lstm(3, 4, .layers = 2, .bidirectional = 1), nn_gru(3, 4), nn_lstm_cell(3, 4)};
    for (int k = 0; k < 3; k++) {
        tensor_t *x = k == 2 ? tensor_randn(2, 3) : tensor_randn(5, 2, 3), *h = NULL, *c = NULL, *y;
        y = k == 1 ? nn_gru_forward(m[k], x, &h) : nn_lstm_forward(m[k], x, &h, &c);
        tensor_state_t s = nn_recurrent_forward(m[k], x), next, alone;
        CHECK(tensor_equal(s.y, y) && tensor_equal(s.h, h) && (c ? tensor_equal(s.c, c) : !s.c));
        next = nn_recurrent_forward(m[k], x, .h = s.h, .c = s.c);
        alone = nn_recurrent_forward(m[k], x, .h = s.h, .c = s.c);          // s is as it was
        CHECK(tensor_equal(next.y, alone.y) && tensor_equal(s.h, h) && !tensor_equal(next.h, h));
        if (k < 2) {
            tensor_t *five = tensor_to(tensor_full(5, 2), TENSOR_I32);
            next = nn_recurrent_forward(m[k], x, .lengths = five);
            CHECK(tensor_allclose(next.y, y, 1e-5, 1e-6) && tensor_allclose(next.h, h, 1e-5, 1e-6));
            // a step at a time
            tensor_state_t walk = {NULL, NULL, NULL};
            for (int64_t t = 0; k == 1 && t < 5; t++) {
                walk = nn_recurrent_forward(m[k], tensor_narrow(x, 0, t, 1), .h = walk.h);
            }
            if (k == 1) { CHECK(tensor_allclose(walk.h, h, 1e-5, 1e-6)); }
        }
        tensor_free(h);
        if (c) { tensor_free(c); }
    }
    tensor_t *x = tensor_randn(5, 2, 3), *lengths = tensor_to(tensor_full(6, 2), TENSOR_I64);
    nn_recurrent_forward(m[0], x, .lengths = lengths);
    CHECK_ERROR(TENSOR_ERR_INDEX, "recurrent_forward: lengths are in 6..6, must be in 1..5 (x [5,2,3])");
    nn_recurrent_forward(m[0], x, .lengths = tensor_to(tensor_full(0, 2), TENSOR_I64));
    CHECK_ERROR(TENSOR_ERR_INDEX, "lengths are in 0..0");
    nn_recurrent_forward(m[0], x, .lengths = tensor_ones(2));
    CHECK_ERROR(TENSOR_ERR_DTYPE, "lengths [2] must be i32 or i64, in host memory");
    nn_recurrent_forward(m[0], x, .lengths = tensor_to(tensor_full(1, 3), TENSOR_I64));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "lengths [3] must have a length for each item of x [5,2,3]");
    nn_recurrent_forward(m[0], tensor_randn(5, 3), .lengths = tensor_to(tensor_full(1, 3), TENSOR_I64));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "of x [5,3]");
    tensor_state_t s = nn_recurrent_forward(m[2], tensor_randn(2, 3), .lengths = lengths);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "lengths is given, must be NULL for a cell");
    CHECK(tensor_is_poison(s.y) && tensor_is_poison(s.h) && tensor_is_poison(s.c));
    tensor_t *begin = tensor_zeros(1, 2, 4);
    s = nn_recurrent_forward(m[1], x, .h = begin, .c = begin);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "recurrent_forward: c must be NULL for the module GRU");
    CHECK(tensor_is_poison(s.y) && tensor_is_poison(s.h));
    nn_module_t *other = nn_linear(3, 4);
    nn_recurrent_forward(other, x);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "recurrent_forward: the module is a Linear, must be made by nn_rnn");
    nn_free(other);
    for (int k = 0; k < 3; k++) { nn_free(m[k]); }
}

static nn_module_t *net;

static tensor_t *f_lengths(tensor_t *const *in, int n, void *user) {
    (void)n;
    tensor_state_t s = nn_recurrent_forward(net, in[0], .h = in[1], .lengths = (tensor_t *)user);
    tensor_t *const both[2] = {tensor_reshape(s.y, -1), tensor_reshape(s.h, -1)};
    return tensor_cat_n(both, 2, 0);
}

static void gradients(void) {
    const int64_t ends[2] = {3, 1};
    nn_module_t *nets[3] = {nn_lstm(2, 2, .bidirectional = 1), nn_gru(2, 2, .bidirectional = 1),
                            nn_rnn(2, 2, .bidirectional = 1)};
    for (int k = 0; k < 3; k++) {
        net = nets[k];
        fill(net);
        tensor_t *in[2] = {tensor_requires_grad_(tensor_reshape(numbers(12, 5, 11, 0.2), 3, 2, 2), 1),
                           tensor_requires_grad_(tensor_reshape(numbers(8, 3, 7, 0.3), 2, 2, 2), 1)};
        tensor_t *lengths = tensor_from(ends, TENSOR_I64, 2);
        CHECK_MSG(tensor_gradcheck(f_lengths, lengths, in, 2, 0, 0, 0) == 0, "%s", tensor_error_text());
        CHECK_MSG(tensor_gradgradcheck(f_lengths, lengths, in, 2, 0, 0, 0) == 0, "%s", tensor_error_text());
        nn_free(net);
    }
}

int main(void) {
    RUN(lengths_follow_pytorch);
    RUN(states);
    RUN(gradients);
    return test_report();
}

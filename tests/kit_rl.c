// kit_rl.c - examples/kit/rl.h: against torch.distributions (fixtures by tests/fixtures/rl.py), draws
// against their distributions, advantages against the papers' sums, the buffer against a plain list
#include "kit.h"

#define KIT_RL_IMPLEMENTATION
#include "../examples/kit/rl.h"

static nn_safetensors_t *fixtures;

static tensor_t *get(const char *name, const char *end) {
    char text[80];
    snprintf(text, sizeof text, "%s%s", name, end);
    return nn_safetensors_get(fixtures, text);
}

static int near(tensor_t *got, tensor_t *want, double tol) {
    return tensor_ok() && tensor_dtype(got) == tensor_dtype(want) && tensor_allclose(got, want, tol, tol);
}

static kit_dist_t make(kit_dist_kind_t kind, tensor_t *a, tensor_t *b) {
    switch (kind) {
    case KIT_CATEGORICAL: return kit_categorical(a);
    case KIT_NORMAL: return kit_normal(a, b);
    case KIT_SQUASHED_NORMAL: return kit_squashed_normal(a, b);
    case KIT_BERNOULLI: break;
    }
    return kit_bernoulli(a);
}

static void as_torch_distributions(void) {
    static const struct {
        kit_dist_kind_t kind;
        const char *name;
        int parameters;
        double tol;
    } cases[] = {
        {KIT_CATEGORICAL, "categorical", 1, 2e-6},
        {KIT_CATEGORICAL, "categorical64", 1, 1e-12},
        {KIT_NORMAL, "normal", 2, 5e-6},
        {KIT_NORMAL, "normal64", 2, 1e-12},
        {KIT_SQUASHED_NORMAL, "squashed", 2, 2e-4},
        {KIT_SQUASHED_NORMAL, "squashed64", 2, 1e-10},
        {KIT_BERNOULLI, "bernoulli", 1, 2e-6},
        {KIT_BERNOULLI, "bernoulli64", 1, 1e-12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        tensor_t *p[2], *q[2], *value = get(name, ".value"), *total;
        for (int k = 0; k < 2; k++) {
            int there = k < cases[i].parameters;
            p[k] = there ? tensor_requires_grad_(get(name, k ? ".p1" : ".p0"), 1) : NULL;
            q[k] = there ? tensor_requires_grad_(get(name, k ? ".q1" : ".q0"), 1) : NULL;
        }
        int slope = cases[i].kind == KIT_NORMAL || cases[i].kind == KIT_SQUASHED_NORMAL;
        if (slope) { value = tensor_requires_grad_(value, 1); }
        kit_dist_t a = make(cases[i].kind, p[0], p[1]), b = make(cases[i].kind, q[0], q[1]);
        tensor_t *log_prob = kit_log_prob(a, value), *kl = kit_kl(a, b);
        CHECK_MSG(near(log_prob, get(name, ".log_prob"), cases[i].tol), "%s: log_prob", name);
        CHECK_MSG(near(kl, get(name, ".kl"), cases[i].tol), "%s: kl", name);
        total = tensor_add(tensor_sum(log_prob), tensor_sum(kl));
        if (cases[i].kind != KIT_SQUASHED_NORMAL) {
            tensor_t *entropy = kit_entropy(a);
            CHECK_MSG(near(entropy, get(name, ".entropy"), cases[i].tol), "%s: entropy", name);
            total = tensor_add(total, tensor_sum(entropy));
        }
        tensor_backward(total);
        for (int k = 0; k < cases[i].parameters; k++) {
            CHECK_MSG(near(tensor_grad(p[k]), get(name, k ? ".p1.grad" : ".p0.grad"), 10 * cases[i].tol),
                      "%s: p%d", name, k);
            CHECK_MSG(near(tensor_grad(q[k]), get(name, k ? ".q1.grad" : ".q0.grad"), 10 * cases[i].tol),
                      "%s: q%d", name, k);
        }
        if (slope) {
            CHECK_MSG(near(tensor_grad(value), get(name, ".value.grad"), 20 * cases[i].tol), "%s: value",
                      name);
        }
        CHECK_OK();
    }
    kit_dist_t never = kit_categorical(get("never", "")), other = kit_categorical(get("other", ""));
    CHECK(near(kit_entropy(never), get("never", ".entropy"), 1e-6));
    CHECK(near(kit_kl(never, other), get("never", ".kl"), 1e-6));
    CHECK(tensor_item(kit_kl(other, never)) == INFINITY && tensor_item(get("never", ".lk")) == INFINITY);
    CHECK_POISON(kit_kl(never, kit_bernoulli(get("other", ""))), TENSOR_ERR_UNSUPPORTED, "not of one kind");
    CHECK_POISON(kit_entropy(kit_squashed_normal(tensor_zeros(2), tensor_ones(2))), TENSOR_ERR_UNSUPPORTED,
                 "no formula");
    CHECK_POISON(kit_rsample(never).log_prob, TENSOR_ERR_UNSUPPORTED, "whole numbers");
    CHECK_POISON(kit_log_prob(kit_normal(tensor_zeros(2), tensor_ones(3)), tensor_zeros(2)), TENSOR_ERR_SHAPE,
                 NULL);
}

// As torch.distributions with validate_args=True, which is its default: each is a ValueError there.
static void values_are_checked(void) {
    tensor_t *two = tensor_zeros(2), *nan = tensor_full(NAN, 2), *good = tensor_ones(2);
    tensor_t *negative = tensor_from(((float[]){1, -1}), TENSOR_F32, 2);
    CHECK_POISON(kit_categorical(nan).a, TENSOR_ERR_SHAPE, "kit_categorical: NaN");
    CHECK_POISON(kit_categorical(tensor_full(-INFINITY, 2)).a, TENSOR_ERR_SHAPE, "or all -inf");
    CHECK_POISON(kit_bernoulli(nan).a, TENSOR_ERR_SHAPE, "kit_bernoulli: logits have a NaN");
    CHECK_POISON(kit_normal(nan, good).a, TENSOR_ERR_SHAPE, "kit_normal: the mean has a NaN");
    CHECK_POISON(kit_normal(two, nan).b, TENSOR_ERR_SHAPE, "kit_normal: std must be above 0");
    CHECK_POISON(kit_normal(two, two).b, TENSOR_ERR_SHAPE, "kit_normal: std must be above 0");
    CHECK_POISON(kit_squashed_normal(two, negative).a, TENSOR_ERR_SHAPE, "std must be above 0");
    CHECK(tensor_is_poison(kit_sample(kit_normal(two, negative))));
    CHECK(!strstr(tensor_error_text(), ".h:"));     // no line of the kit
    tensor_clear_error();

    kit_dist_t n = kit_normal(two, good), s = kit_squashed_normal(two, good), b = kit_bernoulli(two),
               c = kit_categorical(tensor_zeros(2, 3));
    CHECK_POISON(kit_log_prob(n, nan), TENSOR_ERR_SHAPE, "kit_log_prob: the value has a NaN");
    CHECK_POISON(kit_log_prob(s, tensor_full(1.001, 2)), TENSOR_ERR_SHAPE, "-1..1");
    CHECK_POISON(kit_log_prob(s, nan), TENSOR_ERR_SHAPE, "-1..1");
    CHECK_POISON(kit_log_prob(b, negative), TENSOR_ERR_SHAPE, "0 or 1");
    CHECK_POISON(kit_log_prob(b, tensor_full(0.5, 2)), TENSOR_ERR_SHAPE, "0 or 1");
    CHECK_POISON(kit_log_prob(b, nan), TENSOR_ERR_SHAPE, "0 or 1");
    CHECK_POISON(kit_log_prob(c, tensor_full_of(TENSOR_I64, 3, 2)), TENSOR_ERR_INDEX, "gather");
    CHECK(!tensor_is_poison(kit_log_prob(s, tensor_full(-1, 2))) && tensor_ok());
    CHECK(!tensor_is_poison(kit_log_prob(b, good)) && !tensor_is_poison(kit_log_prob(b, two)));
    // A logit of minus infinity is a class that is never drawn. No elements are no reason to refuse.
    CHECK(!tensor_is_poison(kit_categorical(tensor_log(tensor_from(((float[]){0, 1}), TENSOR_F32, 2))).a));
    CHECK(!tensor_is_poison(kit_normal(tensor_zeros(0), tensor_zeros(0)).a) && tensor_ok());

    tensor_t *done = tensor_zeros(2), *values = tensor_zeros(3);
    const double wrong[] = {NAN, -0.1, 1.1};
    for (int k = 0; k < 3; k++) {
        CHECK_POISON(kit_gae(two, values, done, wrong[k], 1).returns, TENSOR_ERR_SHAPE, "kit_gae: gamma");
        CHECK_POISON(kit_gae(two, values, done, 1, wrong[k]).advantages, TENSOR_ERR_SHAPE, "kit_gae: gamma");
        CHECK_POISON(kit_vtrace(two, two, values, done, wrong[k], 1, 1).returns, TENSOR_ERR_SHAPE, "gamma");
        nn_module_t *net = nn_linear(2, 2);
        CHECK(kit_polyak(net, net, wrong[k]) == TENSOR_ERR_SHAPE);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "kit_polyak: tau must be in 0..1");
        nn_free(net);
    }
    CHECK_POISON(kit_vtrace(two, two, values, done, 1, NAN, 1).returns, TENSOR_ERR_SHAPE, "the clips above");
    CHECK_POISON(kit_vtrace(two, two, values, done, 1, 1, 0).returns, TENSOR_ERR_SHAPE, "the clips above");
    CHECK(!tensor_is_poison(kit_vtrace(two, two, values, done, 1, INFINITY, 1).returns) && tensor_ok());

    // A capture reads no elements, so a captured step of the policy asks for no looks.
    nn_module_t *net = nn_linear(2, 3);
    tensor_t *x = tensor_randn(4, 2), *did = tensor_zeros_of(TENSOR_I64, 4);
    kit_set_default_validate_args(0);
    CHECK(tensor_item(tensor_sum(kit_normal(two, negative).b)) == 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    tensor_t *loss = tensor_neg(tensor_mean(kit_log_prob(kit_categorical(nn_forward(net, x)), did)));
    tensor_backward(loss);
    tensor_graph_t *g = tensor_capture_end();
    CHECK(g && tensor_graph_replay(g) == 0 && tensor_item(loss) > 0);
    tensor_graph_free(g);
    kit_set_default_validate_args(1);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    CHECK(tensor_is_poison(kit_categorical(nn_forward(net, x)).a) && !tensor_capture_end());
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "item");
    nn_free(net);
}

// The mean of f over draws is what f's mean under p is: frequencies, moments, and entropy as -log_prob's
// mean.
static void draws(void) {
    enum { DRAWS = 40000 };
    const float odds[] = {-1, 0, 1, -30};
    tensor_t *weights = tensor_from(odds, TENSOR_F32, 4);
    kit_dist_t c = kit_categorical(tensor_expand(weights, DRAWS, 4));
    tensor_t *y = kit_sample(c), *p = tensor_softmax(weights, 0);
    CHECK(tensor_dtype(y) == TENSOR_I64 && tensor_ndim(y) == 1 && tensor_size(y, 0) == DRAWS);
    for (int k = 0; k < 4; k++) {
        double share = tensor_item(tensor_mean(tensor_to(tensor_eq_scalar(y, k), TENSOR_F32)));
        CHECK_NEAR(share, tensor_item(tensor_select(p, 0, k)), 0.01);
    }
    CHECK(tensor_item_i64(kit_mode(kit_categorical(weights))) == 2);

    tensor_t *mean = tensor_requires_grad_(tensor_full(0.5, DRAWS), 1), *std = tensor_scalar(2, TENSOR_F32);
    kit_dist_t n = kit_normal(mean, std);
    y = kit_sample(n);
    CHECK_NEAR(tensor_item(tensor_mean(y)), 0.5, 0.05);
    CHECK_NEAR(tensor_item(tensor_std(y, 1)), 2, 0.05);
    CHECK(!tensor_requires_grad(y));
    kit_draw_t r = kit_rsample(n);
    CHECK(tensor_requires_grad(r.value));
    CHECK_NEAR(-tensor_item(tensor_mean(r.log_prob)), tensor_item(tensor_mean(kit_entropy(n))), 0.05);
    tensor_backward(tensor_sum(r.value));
    CHECK_NEAR(tensor_item(tensor_mean(tensor_grad(mean))), 1, 0);
    CHECK(kit_mode(n) != mean && tensor_equal(kit_mode(n), mean));

    kit_dist_t s = kit_squashed_normal(tensor_full(0.3, DRAWS), tensor_full(0.4, DRAWS));
    r = kit_rsample(s);
    CHECK(tensor_allclose(r.log_prob, kit_log_prob(s, r.value), 1e-2, 1e-3));
    CHECK(tensor_item(tensor_max(kit_sample(s))) < 1);
    CHECK_NEAR(tensor_item(tensor_mean(tensor_atanh(kit_sample(s)))), 0.3, 0.02);
    CHECK_NEAR(tensor_item(tensor_mean(kit_mode(s))), tanh(0.3), 1e-6);
    // Density over (-1, 1) sums to one.
    tensor_t *grid = tensor_linspace(-0.9999, 0.9999, 20001);
    kit_dist_t one = kit_squashed_normal(tensor_scalar(0.3, TENSOR_F32), std);
    CHECK_NEAR(tensor_item(tensor_mean(tensor_exp(kit_log_prob(one, grid)))) * 2, 1, 0.02);
    // Where tanh rounds to 1 the draw's own log-probability stays finite.
    r = kit_rsample(kit_squashed_normal(tensor_full(30, 10), tensor_ones(10)));
    CHECK(tensor_item(tensor_max(r.value)) == 1 && tensor_item(tensor_all(tensor_isfinite(r.log_prob))) == 1);

    tensor_t *logits = tensor_full(-1, DRAWS);
    kit_dist_t b = kit_bernoulli(logits);
    y = kit_sample(b);
    CHECK(tensor_dtype(y) == TENSOR_F32 && tensor_item(tensor_max(y)) == 1 &&
          tensor_item(tensor_min(y)) == 0);
    CHECK_NEAR(tensor_item(tensor_mean(y)), 1 / (1 + exp(1)), 0.01);
    CHECK_NEAR(-tensor_item(tensor_mean(kit_log_prob(b, y))), tensor_item(tensor_mean(kit_entropy(b))), 0.01);
    CHECK(tensor_item(tensor_max(kit_mode(b))) == 0 && tensor_item(kit_mode(kit_bernoulli(std))) == 1);
}

static void advantages(void) {
    tensor_t *r = get("r", ""), *v = get("v", ""), *d = get("d", ""), *l = get("l", "");
    kit_advantages_t a = kit_gae(r, v, d, 0.97, 0.9);
    CHECK(near(a.advantages, get("gae", ".advantages"), 1e-12) &&
          near(a.returns, get("gae", ".returns"), 1e-12));
    a = kit_vtrace(l, r, v, d, 0.97, 1.2, 0.8);
    CHECK(near(a.advantages, get("vtrace", ".advantages"), 1e-12) &&
          near(a.returns, get("vtrace", ".returns"), 1e-12));
    // On policy, V-trace's targets are the returns of lambda 1.
    kit_advantages_t on = kit_vtrace(tensor_zeros_like(l), r, v, d, 0.97, 1, 1);
    CHECK(near(on.returns, kit_gae(r, v, d, 0.97, 1).returns, 1e-12));
    // A policy that is NaN gives NaN, not the clipped ratio.
    tensor_t *nan = tensor_full_like(l, NAN);
    a = kit_vtrace(nan, r, v, d, 0.97, 1, 1);
    CHECK(tensor_item(tensor_all(tensor_isnan(a.advantages))) == 1);
    CHECK(tensor_item(tensor_all(tensor_isnan(a.returns))) == 1);
    // One environment without its own dim, f32, done as bool, values with a gradient.
    tensor_t *one = tensor_to(tensor_at(r, ":, 1"), TENSOR_F32),
             *with = tensor_requires_grad_(tensor_clone(tensor_at(v, ":, 1")), 1);
    a = kit_gae(one, with, tensor_to(tensor_at(d, ":, 1"), TENSOR_BOOL), 0.97, 0.9);
    CHECK(near(a.advantages, tensor_to(tensor_at(get("gae", ".advantages"), ":, 1"), TENSOR_F32), 1e-5));
    CHECK(!tensor_requires_grad(a.returns));
    CHECK_POISON(kit_gae(r, r, d, 0.97, 0.9).returns, TENSOR_ERR_SHAPE, "values are [T + 1, ...]");
    CHECK_POISON(kit_gae(r, v, one, 0.97, 0.9).advantages, TENSOR_ERR_SHAPE, "rewards and done");
    CHECK_POISON(kit_vtrace(v, r, v, d, 1, 1, 1).advantages, TENSOR_ERR_SHAPE, NULL);
    CHECK_POISON(kit_gae(tensor_scalar(1, TENSOR_F32), v, d, 1, 1).advantages, TENSOR_ERR_SHAPE, NULL);
    CHECK_POISON(kit_gae(NULL, v, d, 1, 1).advantages, TENSOR_ERR_OWNER, NULL);
}

// Transition t is the state {t, t} and the action t.
static int push(kit_replay_t *r, int first, int n) {
    tensor_t *t = tensor_arange(first, first + n, 1, TENSOR_I64), *fields[2];
    fields[0] = tensor_expand(tensor_to(tensor_unsqueeze(t, 1), TENSOR_F32), n, 2);
    fields[1] = t;
    return kit_replay_push(r, fields);
}

static void replay(void) {
    tensor_t *like[2], *out[2], *wrong[2];
    like[0] = tensor_zeros(1, 2);
    like[1] = tensor_zeros_of(TENSOR_I64, 1);
    kit_replay_t r = kit_replay_new(10, like, 2);
    CHECK(r.fields == 2 && r.size == 0);
    CHECK(kit_replay_sample(&r, 4, out) == TENSOR_ERR_SHAPE && tensor_is_poison(out[0]) &&
          tensor_is_poison(out[1]));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "the buffer is empty");
    int pushed = 0;
    for (int n = 1; n <= 10; n++) {
        CHECK(push(&r, pushed, n) == 0);
        pushed += n;
        int seen[100] = {0}, kinds = 0, first = pushed > 10 ? pushed - 10 : 0;
        CHECK(r.size == (pushed < 10 ? pushed : 10) && kit_replay_sample(&r, 200, out) == 0);
        const int64_t *action = (const int64_t *)tensor_data(out[1]);
        CHECK(tensor_equal(tensor_to(tensor_at(out[0], ":, 1"), TENSOR_I64), out[1]) &&
              tensor_size(out[0], 1) == 2);
        for (int i = 0; i < 200; i++) {
            kinds += action[i] >= first && action[i] < pushed && !seen[action[i]]++;
        }
        CHECK_MSG(kinds == r.size, "%d of %d transitions drawn", kinds, (int)r.size);
        for (int i = 0; i < first; i++) { CHECK(!seen[i]); }
    }
    CHECK(push(&r, 0, 11) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "over the capacity");
    wrong[0] = tensor_zeros(1, 3);
    wrong[1] = like[1];
    CHECK(kit_replay_push(&r, wrong) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "another shape");
    wrong[0] = like[0];
    wrong[1] = tensor_zeros(1);
    CHECK(kit_replay_push(&r, wrong) == TENSOR_ERR_DTYPE);
    CHECK_ERROR(TENSOR_ERR_DTYPE, "another dtype");
    CHECK(r.size == 10 && kit_replay_sample(&r, 0, out) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
    kit_replay_free(&r);
    kit_replay_free(&r);
    CHECK(kit_replay_new(0, like, 2).fields == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "capacity");
    wrong[1] = tensor_scalar(1, TENSOR_F32);
    CHECK(kit_replay_new(5, wrong, 2).fields == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "a field has no dims");
    CHECK(kit_replay_new(INT64_MAX / 4, like, 2).fields == 0);
    CHECK_ERROR(tensor_error_code(), NULL);
}

static void targets_follow(void) {
    nn_module_t *a = nn_sequential(nn_linear(3, 2), nn_batch_norm1d(2)), *b = nn_clone(a),
                *other = nn_linear(3, 2);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_fill_(nn_get(a, "0.weight"), 0);
    tensor_fill_(nn_get(b, "0.weight"), 1);
    tensor_fill_(nn_get(b, "1.running_mean"), 5);
    tensor_scope_end(scope);
    CHECK(kit_polyak(a, b, 0.25) == 0);
    CHECK_NEAR(tensor_item(tensor_mean(nn_get(a, "0.weight"))), 0.25, 0);
    CHECK_NEAR(tensor_item(tensor_mean(nn_get(a, "1.running_mean"))), 5, 0);
    CHECK(kit_polyak(a, b, 0.25) == 0);
    CHECK_NEAR(tensor_item(tensor_mean(nn_get(a, "0.weight"))), 0.4375, 0);
    CHECK_NEAR(tensor_item(tensor_mean(nn_get(b, "0.weight"))), 1, 0);
    CHECK(kit_polyak(a, other, 0.25) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "not built alike");
    nn_free(a);
    nn_free(b);
    nn_free(other);
}

int main(void) {
    tensor_manual_seed(1);
    fixtures = nn_safetensors_open("tests/fixtures/kit/rl.safetensors");
    CHECK(fixtures != NULL);
    RUN(as_torch_distributions);
    RUN(values_are_checked);
    RUN(draws);
    RUN(advantages);
    RUN(replay);
    RUN(targets_follow);
    nn_safetensors_close(fixtures);
    return test_report();
}

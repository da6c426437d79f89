// kit_fit.c - examples/kit/fit.h: the best weights come back, early stopping stops, splits have no sample
// twice, metrics are those counted by hand
#include "kit.h"

#define KIT_FIT_IMPLEMENTATION
#include "../examples/kit/fit.h"

static void splits(void) {
    for (int64_t n = 1; n < 40; n += 13) {
        kit_split_t s = kit_split(n, 0.25, 3), again = kit_split(n, 0.25, 3);
        int seen[40] = {0}, once = 0;
        CHECK(tensor_size(s.validation, 0) == (n == 1 ? 0 : (n + 2) / 4) && tensor_size(s.train, 0) > 0);
        for (int k = 0; k < 2; k++) {
            tensor_t *t = k ? s.validation : s.train;
            for (int64_t i = 0; i < tensor_size(t, 0); i++) {
                seen[tensor_item_i64(tensor_select(t, 0, i))]++;
            }
        }
        for (int i = 0; i < n; i++) { once += seen[i] == 1; }
        CHECK(once == n && tensor_size(s.train, 0) + tensor_size(s.validation, 0) == n);
        CHECK(tensor_equal(s.train, again.train));
    }
    CHECK(!tensor_equal(kit_split(30, 0.5, 1).train, kit_split(30, 0.5, 2).train));
    CHECK(tensor_size(kit_split(5, 0.999, 1).train, 0) == 1);
    CHECK_POISON(kit_split(0, 0.5, 1).train, TENSOR_ERR_SHAPE, "n 0 must be at least 1");
    CHECK_POISON(kit_split(5, 1, 1).validation, TENSOR_ERR_SHAPE, "0 to less than 1");
    CHECK_POISON(kit_split(5, NAN, 1).validation, TENSOR_ERR_SHAPE, "0 to less than 1");
}

static void metrics(void) {
    const float scores[] = {9, 1, 0, 2, 8, 0, 7, 1, 0, 0, 0, 5, 0, 4, 1}, y[] = {1, 2, 3, 4},
                guess[] = {1, 2, 3, 2};
    const int64_t is[] = {0, 1, 1, 2, 2}, counts[] = {1, 0, 0, 1, 1, 0, 0, 1, 1};
    tensor_t *output = tensor_from(scores, TENSOR_F32, 5, 3), *labels = tensor_from(is, TENSOR_I64, 5);
    tensor_t *confusion = kit_confusion(output, labels);
    CHECK_NEAR(kit_accuracy(output, labels), 0.6, 1e-12);
    CHECK(tensor_equal(confusion, tensor_from(counts, TENSOR_I64, 3, 3)));
    kit_scores_t s = kit_scores(confusion, 2);
    CHECK_NEAR(s.precision, 1, 0);
    CHECK_NEAR(s.recall, 0.5, 0);
    CHECK_NEAR(s.f1, 2.0 / 3, 1e-12);
    s = kit_scores(tensor_zeros_of(TENSOR_I64, 3, 3), 1);
    CHECK(s.precision == 0 && s.recall == 0 && s.f1 == 0);
    // Mean 2.5, sum of squares about it 5, about the guess 4.
    CHECK_NEAR(kit_r2(tensor_from(guess, TENSOR_F32, 4), tensor_from(y, TENSOR_F32, 4)), 0.2, 1e-12);
    CHECK_POISON(kit_confusion(tensor_zeros(3), labels), TENSOR_ERR_SHAPE, "[N, classes]");
    CHECK_POISON(kit_confusion(tensor_zeros(5, 2), labels), TENSOR_ERR_INDEX, NULL);
    // What would broadcast is refused.
    tensor_t *column = tensor_unsqueeze(labels, 1), *values = tensor_from(y, TENSOR_F32, 4);
    CHECK_POISON(kit_confusion(output, column), TENSOR_ERR_SHAPE,
                 "kit_confusion: output must be [N, classes] and labels [N]: output [5,3], labels [5,1]");
    CHECK(isnan(kit_accuracy(output, column)));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "kit_accuracy: output must be [N, classes]");
    CHECK(isnan(kit_r2(tensor_unsqueeze(values, 1), values)));
    CHECK_ERROR(TENSOR_ERR_SHAPE, "kit_r2: output and y must have one shape: output [4,1], y [4]");
}

// Two clouds on a line, learnt by one layer.
static kit_fit_t task(nn_module_t **net, nn_optimizer_t **opt, int n) {
    tensor_t *y = tensor_remainder_scalar(tensor_arange(0, n, 1, TENSOR_I64), 2);
    tensor_t *x =
        tensor_unsqueeze(tensor_add(tensor_mul_scalar(tensor_to(y, TENSOR_F32), 4), tensor_randn(n)), 1);
    *net = nn_sequential(nn_linear(1, 8), nn_batch_norm1d(8), nn_tanh(), nn_linear(8, 2));
    *opt = nn_adam(*net, .lr = 0.01);
    kit_fit_t f = kit_fit_defaults(*net, *opt, x, y);
    f.quiet = 1;
    return f;
}

static void done(nn_module_t *net, nn_optimizer_t *opt) {
    nn_optimizer_free(opt);
    nn_free(net);
}

static void learns(void) {
    kit_epoch_t history[2][10], best[2];
    for (int k = 0; k < 2; k++) {
        nn_module_t *net;
        nn_optimizer_t *opt;
        tensor_manual_seed(5);
        kit_fit_t f = task(&net, &opt, 400);
        f.history = history[k];
        f.quiet = k;
        best[k] = kit_fit(f);
        CHECK_OK();
        CHECK(best[k].accuracy > 0.9 && best[k].loss < 0.3 && best[k].epoch >= 1);
        CHECK(history[k][9].train_loss < history[k][0].train_loss && history[k][9].train_accuracy > 0.9);
        done(net, opt);
    }
    // Same seeds, same training, bar or none.
    for (int i = 0; i < 10; i++) {
        const kit_epoch_t *a = &history[0][i], *b = &history[1][i];
        CHECK(a->epoch == b->epoch && a->train_loss == b->train_loss && a->loss == b->loss);
        CHECK(a->train_accuracy == b->train_accuracy && a->accuracy == b->accuracy);
    }
    CHECK(best[0].loss == best[1].loss);
}

static int calls, stop_at;
static double rates[20];

// The learning rate rises until the network is lost.
static int spoil(const kit_epoch_t *epoch, void *user) {
    calls++;
    rates[epoch->epoch - 1] = epoch->loss;
    nn_set_lr((nn_optimizer_t *)user, epoch->epoch < 3 ? 0.01 : 5);
    return epoch->epoch == stop_at;
}

static void best_weights_come_back(void) {
    nn_module_t *net;
    nn_optimizer_t *opt;
    kit_fit_t f = task(&net, &opt, 200);
    char path[300];
    snprintf(path, sizeof path, "%s", kit_temporary("best.safetensors", "", 0));
    f.epochs = 20;
    f.patience = 3;
    f.on_epoch = spoil;
    f.user = opt;
    f.best_path = path;
    kit_epoch_t best = kit_fit(f);
    CHECK_OK();
    CHECK_MSG(calls == best.epoch + 3 && calls < 20, "%d epochs, the best is %d", calls, best.epoch);
    for (int i = 0; i < calls; i++) { CHECK(rates[i] >= best.loss); }
    // The loss of the network as it is now, over the same validation samples, is the best one.
    kit_split_t split = kit_split(200, f.validation, f.seed);
    nn_eval(net);
    tensor_t *output = nn_forward(net, tensor_index_select(f.x, 0, split.validation));
    tensor_t *y = tensor_index_select(f.y, 0, split.validation);
    CHECK_NEAR(tensor_item(tensor_cross_entropy(output, y)), best.loss, 1e-5);
    CHECK_NEAR(kit_accuracy(output, y), best.accuracy, 1e-6);
    nn_module_t *other = nn_clone(net);
    nn_init_zeros_(nn_get(other, "0.weight"));
    CHECK(nn_load(path, other) == 0 && tensor_equal(nn_get(other, "0.weight"), nn_get(net, "0.weight")));
    remove(path);
    nn_free(other);
    calls = 0;
    stop_at = 2;
    f.best_path = NULL;
    CHECK(kit_fit(f).epoch >= 1 && calls == 2);
    done(net, opt);
}

static tensor_t *absolute(tensor_t *output, tensor_t *target) {
    return tensor_mean(tensor_abs(tensor_sub(output, target)));
}

static tensor_t *noise(tensor_t *x, void *user) {
    calls++;
    (void)user;
    return tensor_add(x, tensor_mul_scalar(tensor_randn_like(x), 0.01));
}

static void values_and_options(void) {
    nn_module_t *net = nn_linear(2, 1);
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.05);
    tensor_t *x = tensor_randn(101, 2), *y = tensor_sum_dim(x, 1, 1);
    kit_fit_t f = kit_fit_defaults(net, opt, x, y);
    f.quiet = 1;
    f.epochs = 30;
    kit_epoch_t best = kit_fit(f);
    CHECK(best.loss < 1e-2 && isnan(best.accuracy));
    CHECK(kit_r2(nn_forward(net, x), y) > 0.99);
    calls = 0;
    f.loss = absolute;
    f.augment = noise;
    f.epochs = 2;
    f.validation = 0;
    f.batch_size = 50;
    best = kit_fit(f);
    CHECK(best.epoch == 2 && isnan(best.loss) && best.train_loss < 0.2 && calls == 6);

    f.batch_size = 0;
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "batch_size 0");
    f.batch_size = 10;
    f.y = tensor_zeros(100, 1);
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "as many samples: x [101,2], y [100,1]");
    f.y = tensor_scalar(1, TENSOR_F32);
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "must be [N, ...]");
    f.y = y;
    f.validation = 1;
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "validation 1 must be 0 to less than 1");
    f.validation = 0.2;
    f.loss = NULL;
    f.y = tensor_sum_dim(x, 1, 0);              // [101], which [101,1] would broadcast to [101,101]
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "mse_loss");
    f.y = y;
    f.loss = absolute;
    f.validation = 0.2;
    f.x = tensor_zeros(101, 3);
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, NULL);
    f.x = x;
    f.loss = NULL;
    nn_optimizer_t *given = f.opt;
    f.opt = NULL;
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "kit_fit: the optimizer is NULL");
    nn_module_t *another = nn_linear(1, 2);
    f.opt = nn_sgd(another);
    CHECK(kit_fit(f).epoch == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "kit_fit: the optimizer has none of the net's parameters, or was freed");
    done(another, f.opt);
    f.opt = given;
    f.y = tensor_full_of(TENSOR_I64, 6, 101);
    kit_fit(f);
    CHECK_MSG(strncmp(tensor_error_text(), "cross_entropy: target 6 ", 24) == 0, "%s", tensor_error_text());
    tensor_clear_error();
    f.loss = absolute;
    f.y = y;
    f.best_path = "/nonexistent/best.safetensors";
    kit_fit(f);
    CHECK_ERROR(TENSOR_ERR_IO, "/nonexistent");
    done(net, opt);
}

// An optimizer that trains something beside the net, as a temperature of its loss.
static void more_than_the_net(void) {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *p[9];
    kit_fit_t f = task(&net, &opt, 20);
    int n = nn_parameters(net, p, 8);
    p[n] = tensor_keep(tensor_requires_grad_(tensor_ones(1), 1));
    f.opt = nn_sgd(NULL, .list = p, .count = n + 1, .lr = 0.01);
    f.epochs = 2;
    kit_fit(f);
    CHECK_OK();
    nn_optimizer_free(f.opt);
    tensor_free(p[n]);
    done(net, opt);
}

int main(void) {
    tensor_manual_seed(1);
    RUN(splits);
    RUN(metrics);
    RUN(learns);
    RUN(best_weights_come_back);
    RUN(values_and_options);
    RUN(more_than_the_net);
    return test_report();
}

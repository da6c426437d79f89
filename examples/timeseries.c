// timeseries.c - from a CSV file: an LSTM reads eight weeks of daily visitors and predicts the next four
//
// examples/data/visitors.csv (made up: a week's rhythm, a year's, noise) has a header, then lines day,value.
// The last 200 days are kept for the test. The rival predicts that each day will be like the same weekday of
// the last week.
//
// Build: make build/timeseries && build/timeseries [picture.svg] [my.csv]          (STEPS=500)
// Output, and the forecast beside what came:
//   500 steps, loss 0.096, off by 35 a day (as last week: 42), 0.85 s of one core
#define KIT_PLOT_IMPLEMENTATION
#include "kit/plot.h"
#define KIT_CSV_IMPLEMENTATION
#include "kit/csv.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <time.h>

enum { PAST = 56, AHEAD = 28, TEST = 200, WIDTH = 24, BATCH = 64, DAYS = PAST + 2 * AHEAD + TEST };

typedef struct forecaster_t { nn_module_t base, *lstm, *head; } forecaster_t;

static tensor_t *as_last_week(tensor_t *x) {
    tensor_t *week = tensor_narrow(x, 1, PAST - 7, 7);
    return tensor_cat(1, week, week, week, week);
}

// x [N, PAST] -> [N, AHEAD]: as last week, and what the LSTM and the last weeks add to that
static tensor_t *forecaster_forward(nn_module_t *m, tensor_t *x) {
    forecaster_t *self = (forecaster_t *)m;
    tensor_t *y = nn_lstm_forward(self->lstm, tensor_unsqueeze(x, 2), NULL, NULL);      // [N, PAST, WIDTH]
    tensor_t *known = tensor_cat(1, tensor_select(y, 1, -1), tensor_narrow(x, 1, PAST - 28, 28));
    return tensor_add(as_last_week(x), nn_forward(self->head, known));
}

// The second column of a CSV file.   -> [days]; poison if a value is missing, or there are too few
static tensor_t *read_values(const char *path) {
    kit_csv_t *table = kit_read_csv(path, ',');
    if (!table) { return tensor_empty(0); }
    const char *name = kit_csv_name(table, 1);
    tensor_t *value = name ? kit_csv_numbers(table, TENSOR_F32, &name, 1) : tensor_empty(0);
    if (tensor_ok() && (!name || tensor_numel(value) < DAYS)) {
        kit_refuse(TENSOR_ERR_FORMAT, path, "there are fewer than 312 lines day,value");
    } else if (tensor_ok() && !tensor_item(tensor_all(tensor_isfinite(value)))) {
        kit_refuse(TENSOR_ERR_FORMAT, path, "a day has no value, or an infinite one");
    }
    kit_csv_free(table);
    return tensor_flatten(value, 0, -1);
}

// Rows of PAST + AHEAD days that begin at the days of start [N].
static tensor_t *windows(tensor_t *series, tensor_t *start) {
    tensor_t *at = tensor_add(tensor_unsqueeze(start, 1), tensor_arange(0, PAST + AHEAD, 1, TENSOR_I64));
    return tensor_reshape(tensor_index_select(series, 0, tensor_flatten(at, 0, 1)), -1, PAST + AHEAD);
}

int main(int argc, char **argv) {
    int steps = kit_setting("STEPS", 500, 1, 1000000);
    tensor_manual_seed(1);
    tensor_t *raw = read_values(argc > 2 ? argv[2] : "examples/data/visitors.csv");
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    int64_t days = tensor_numel(raw), cut = days - TEST;
    tensor_t *known = tensor_narrow(raw, 0, 0, cut);
    double mean = tensor_item(tensor_mean(known)), unit = tensor_item(tensor_std(known, 1)) + 1e-6;
    tensor_t *series = tensor_div_scalar(tensor_sub_scalar(raw, mean), unit);

    forecaster_t net;
    nn_module_init(&net.base, "Forecaster", forecaster_forward, NULL);
    net.lstm = nn_child(&net.base, "lstm", nn_lstm(1, WIDTH, .batch_first = 1));
    net.head = nn_sequential(nn_linear(WIDTH + 28, 32), nn_relu(), nn_dropout(0.2), nn_linear(32, AHEAD));
    nn_child(&net.base, "head", net.head);
    nn_optimizer_t *opt = nn_adamw(&net.base, .lr = 4e-3, .weight_decay = 0.05);
    double loss_now = 0;
    clock_t begin = clock();
    plot_t *p = plot_new(1100, 330);
    plot_panel(p, "training", "step", "squared error");
    plot_log_y(p);
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *rows = windows(series, tensor_randint(0, cut - PAST - AHEAD + 1, BATCH));
        tensor_t *past = tensor_narrow(rows, 1, 0, PAST);
        tensor_t *noise = tensor_mul_scalar(tensor_randn_like(past), 0.15);
        tensor_t *guess = nn_forward(&net.base, tensor_add(past, noise));
        tensor_t *loss = tensor_mse_loss(guess, tensor_narrow(rows, 1, PAST, AHEAD));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_clip_grad_norm(opt, 1);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 4e-3, 1e-4));
        nn_step(opt);
        loss_now = tensor_item(loss);
        plot_point(p, "", step, loss_now);
    }
    tensor_scope_end(scope);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;

    nn_eval(&net.base);
    // Every window whose AHEAD days are among the last TEST.
    scope = tensor_scope_begin_no_grad();
    double first = (double)(cut - PAST), end = (double)(days - PAST - AHEAD + 1);
    tensor_t *rows = windows(series, tensor_arange(first, end, 1, TENSOR_I64));
    tensor_t *past = tensor_narrow(rows, 1, 0, PAST), *came = tensor_narrow(rows, 1, PAST, AHEAD);
    tensor_t *guess = nn_forward(&net.base, past);
    double off = unit * tensor_item(tensor_l1_loss(guess, came));
    double naive = unit * tensor_item(tensor_l1_loss(as_last_week(past), came));
    tensor_t *shown = tensor_add_scalar(tensor_mul_scalar(tensor_select(rows, 0, 60), unit), mean);
    tensor_t *said = tensor_add_scalar(tensor_mul_scalar(tensor_select(guess, 0, 60), unit), mean);
    plot_panel(p, "eight weeks, and four that it has not seen", "day", "visitors");
    plot_curve(p, "came", tensor_arange(0, PAST + AHEAD, 1, TENSOR_F32), shown);
    plot_curve(p, "said", tensor_arange(PAST, PAST + AHEAD, 1, TENSOR_F32), said);
    tensor_scope_end(scope);
    char text[160];
    (void)snprintf(text, sizeof text,
                   "%d steps, loss %.3f, off by %.0f a day (as last week: %.0f), %.2f s of one core", steps,
                   loss_now, off, naive, seconds);
    if (puts(text) < 0 || fflush(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "timeseries: cannot write to stdout");
    }
    plot_caption(p, text);
    plot_save(p, argc > 1 ? argv[1] : "build/timeseries.svg");
    plot_free(p);
    return tensor_shutdown() != 0;
}

// fit.h - a training loop with validation: split, metrics, early stopping, the best weights kept, a
// progress bar
//
// A file to copy and to change. In one C file of the program:
//
//   #define KIT_FIT_IMPLEMENTATION
//   #include "kit/fit.h"
//
//   kit_fit_t fit = kit_fit_defaults(net, opt, x, y);
//   fit.epochs = 50;
//   fit.patience = 5;
//   kit_epoch_t best = kit_fit(fit);
//   printf("epoch %d: validation loss %.3f, accuracy %.1f %%\n", best.epoch, best.loss, 100 *
// best.accuracy);
#ifndef KIT_FIT_H
#define KIT_FIT_H

#include "tensor_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

// What an epoch came to. accuracy is NaN where the targets are not classes.
typedef struct kit_epoch_t {
    int epoch;                         // from 1; 0 = none was finished
    double train_loss, train_accuracy; // means over the epoch, while the weights changed
    double loss, accuracy;             // validation
} kit_epoch_t;

typedef struct kit_fit_t {
    nn_module_t *net;
    nn_optimizer_t *opt;
    tensor_t *x, *y;       // [N, ...]; y i64 [N] are classes, anything else are values
    double validation;     // share of the samples that is not learnt, 0.2
    int64_t batch_size;    // 32
    int epochs;            // 10, at most
    int patience;          // epochs without a better validation loss after which it ends; 0 = never
    double min_delta;      // by which a loss must be lower to be better
    uint64_t seed;         // of the split and the order of samples, 1
    int quiet;             // no progress bar
    const char *best_path; // where the best weights are saved, NULL = nowhere
    kit_epoch_t *history;  // receives each epoch (room for `epochs`), NULL = not wanted
    // NULL = cross entropy of classes, mean square of values.
    tensor_t *(*loss)(tensor_t *output, tensor_t *target);
    // Makes another batch of a batch that is learnt (augmentation), NULL = none.
    tensor_t *(*augment)(tensor_t *x, void *user);
    // Called after each epoch, e.g. to set the learning rate; not 0 ends the training. NULL = none.
    int (*on_epoch)(const kit_epoch_t *epoch, void *user);
    void *user;
} kit_fit_t;

kit_fit_t kit_fit_defaults(nn_module_t *net, nn_optimizer_t *opt, tensor_t *x, tensor_t *y);

// Trains; in the end net has the weights of the best epoch, the one with the lowest validation loss (of the
// last epoch without validation), and is in training mode.
//   -> that epoch; epoch 0 if an error came before one was finished
//   errors  SHAPE (options, N), those of the network, IO, OUT_OF_MEMORY
kit_epoch_t kit_fit(kit_fit_t fit);

typedef struct kit_split_t {
    tensor_t *train, *validation;
} kit_split_t;
// 0..n-1 in a random order, cut in two.
//   share   of the second one, 0..1; at least one stays in the first
//   -> struct of new i64 tensors, poison on failure;  errors SHAPE
kit_split_t kit_split(int64_t n, double share, uint64_t seed);

// ---- metrics ----

// Share of rows of output [N, classes] whose largest element is at the label [N].   -> 0..1;  errors SHAPE
double kit_accuracy(tensor_t *output, tensor_t *labels);
// How often class i (row) was taken for class j (column).   -> new i64 [classes, classes];  errors SHAPE,
// INDEX
tensor_t *kit_confusion(tensor_t *output, tensor_t *labels);
// Of a class by the confusion matrix: of what was taken for it, the share that is; of what is, the share
// that was found; their harmonic mean (0 where nothing is to divide).
typedef struct kit_scores_t {
    double precision, recall, f1;
} kit_scores_t;
kit_scores_t kit_scores(tensor_t *confusion, int64_t label);
// Coefficient of determination, 1 - sum (y - output)^2 / sum (y - mean)^2.   errors SHAPE
double kit_r2(tensor_t *output, tensor_t *y);

#ifdef __cplusplus
}
#endif
#endif

#if defined(KIT_FIT_IMPLEMENTATION) && !defined(KIT_FIT_DONE)
#define KIT_FIT_DONE

#include <math.h>
#include <stdio.h>
#include <string.h>

// Raises SHAPE with text and the shapes of a and b: "text: a [6,1], b [6]".
static void kit_fit__refuse(const char *text, const char *a_name, tensor_t *a, const char *b_name,
                            tensor_t *b) {
    const char *names[2] = {a_name, b_name};
    tensor_t *list[2] = {a, b};
    char line[400];
    int used = snprintf(line, sizeof line, "%s:", text);
    for (int i = 0; i < 2; i++) {
        used += snprintf(line + used, sizeof line - (size_t)used, "%s %s [", i ? "," : "", names[i]);
        for (int64_t d = 0; d < tensor_ndim(list[i]); d++) {
            used += snprintf(line + used, sizeof line - (size_t)used, "%s%lld", d ? "," : "",
                             (long long)tensor_size(list[i], d));
        }
        used += snprintf(line + used, sizeof line - (size_t)used, "]");
    }
    if (tensor_ok()) { (tensor_raise)(TENSOR_ERR_SHAPE, line); }
    (void)tensor_empty(0);      // reports it, without a line of this file
}

// ---- metrics ----

// Whether output is [N, classes] and labels is [N]; raised if not.
static int kit_fit__labelled(const char *function, tensor_t *output, tensor_t *labels) {
    char text[100];
    if (tensor_ndim(output) == 2 && tensor_ndim(labels) == 1 && tensor_size(output, 1) > 0 &&
        tensor_size(output, 0) == tensor_size(labels, 0)) {
        return 1;
    }
    snprintf(text, sizeof text, "%s: output must be [N, classes] and labels [N]", function);
    kit_fit__refuse(text, "output", output, "labels", labels);
    return 0;
}

// Whether a and b have one shape; raised with text if not.
static int kit_fit__same(const char *text, const char *a_name, tensor_t *a, const char *b_name,
                         tensor_t *b) {
    int same = tensor_ndim(a) == tensor_ndim(b);
    for (int64_t d = 0; same && d < tensor_ndim(a); d++) { same = tensor_size(a, d) == tensor_size(b, d); }
    if (!same) { kit_fit__refuse(text, a_name, a, b_name, b); }
    return same;
}

static tensor_t *kit_fit__hits(tensor_t *output, tensor_t *labels) {
    return tensor_eq(tensor_argmax_dim(output, -1, 0), labels);
}

double kit_accuracy(tensor_t *output, tensor_t *labels) {
    if (!kit_fit__labelled("kit_accuracy", output, labels)) { return NAN; }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    double share = tensor_item(tensor_mean(tensor_to(kit_fit__hits(output, labels), TENSOR_F64)));
    tensor_scope_end(scope);
    return share;
}

tensor_t *kit_confusion(tensor_t *output, tensor_t *labels) {
    if (!kit_fit__labelled("kit_confusion", output, labels)) { return tensor_detach(NULL); }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    const int64_t classes = tensor_size(output, 1), dims[2] = {classes, classes};
    // one_hot refuses labels that are not classes.
    tensor_t *is = tensor_argmax_dim(tensor_one_hot(labels, classes), -1, 0);
    tensor_t *place = tensor_add(tensor_mul_scalar(is, (double)classes), tensor_argmax_dim(output, -1, 0));
    tensor_t *counts = tensor_reshape_n(tensor_bincount(place, NULL, classes * classes), dims, 2);
    return tensor_scope_return(scope, counts);
}

kit_scores_t kit_scores(tensor_t *confusion, int64_t label) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    kit_scores_t s = {0, 0, 0};
    const double hits = tensor_item(tensor_select(tensor_select(confusion, 0, label), 0, label));
    const double taken = tensor_item(tensor_sum(tensor_select(confusion, 1, label)));
    const double are = tensor_item(tensor_sum(tensor_select(confusion, 0, label)));
    tensor_scope_end(scope);
    if (taken > 0) { s.precision = hits / taken; }
    if (are > 0) { s.recall = hits / are; }
    if (hits > 0) { s.f1 = 2 * s.precision * s.recall / (s.precision + s.recall); }
    return s;
}

double kit_r2(tensor_t *output, tensor_t *y) {
    if (!kit_fit__same("kit_r2: output and y must have one shape", "output", output, "y", y)) { return NAN; }
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *target = tensor_to(y, TENSOR_F64);
    tensor_t *left = tensor_sum(tensor_square(tensor_sub(tensor_to(output, TENSOR_F64), target)));
    tensor_t *all = tensor_sum(tensor_square(tensor_sub(target, tensor_mean(target))));
    double r2 = 1 - tensor_item(left) / tensor_item(all);
    tensor_scope_end(scope);
    return r2;
}

// ---- split ----

// A random order of n by a stream of the seed; the thread's own generator stays where it is.
static tensor_t *kit_fit__order(int64_t n, uint64_t seed, uint64_t stream) {
    tensor_generator_t own = tensor_get_generator(), g;
    g.seed = seed;
    g.offset = stream;
    tensor_set_generator(g);
    tensor_t *order = tensor_randperm(n);
    tensor_set_generator(own);
    return order;
}

kit_split_t kit_split(int64_t n, double share, uint64_t seed) {
    kit_split_t s = {NULL, NULL};
    if (n < 1 || !(share >= 0 && share < 1)) {
        char line[120];
        snprintf(line, sizeof line, "kit_split: n %lld must be at least 1, share %g 0 to less than 1",
                 (long long)n, share);
        (tensor_raise)(TENSOR_ERR_SHAPE, line);
        s.train = s.validation = (tensor_detach)(NULL);
        return s;
    }
    int64_t second = (int64_t)((double)n * share + 0.5);
    if (second >= n) { second = n - 1; }
    tensor_t *order = kit_fit__order(n, seed, 0);
    s.train = tensor_narrow(order, 0, 0, n - second);
    s.validation = tensor_narrow(order, 0, n - second, second);
    return s;
}

// ---- training ----

kit_fit_t kit_fit_defaults(nn_module_t *net, nn_optimizer_t *opt, tensor_t *x, tensor_t *y) {
    kit_fit_t f;
    memset(&f, 0, sizeof f);
    f.net = net;
    f.opt = opt;
    f.x = x;
    f.y = y;
    f.validation = 0.2;
    f.batch_size = 32;
    f.epochs = 10;
    f.seed = 1;
    return f;
}

// Whether y has a label for each sample.
static int kit_fit__classes(const kit_fit_t *f) {
    return tensor_dtype(f->y) == TENSOR_I64 && tensor_ndim(f->y) == 1;
}

static tensor_t *kit_fit__loss(const kit_fit_t *f, tensor_t *output, tensor_t *target) {
    if (f->loss) { return f->loss(output, target); }
    if (tensor_dtype(f->y) != TENSOR_I64) {
        tensor_mse_loss_args_t m = tensor_mse_loss_defaults();
        m.input = output;
        m.target = target;
        return tensor_mse_loss_with(m);
    }
    tensor_cross_entropy_args_t a = tensor_cross_entropy_defaults();
    a.input = output;
    a.target = target;
    return tensor_cross_entropy_with(a);
}

// Goes once over the samples of index, learning them or not.
static void kit_fit__pass(const kit_fit_t *f, tensor_t *index, int learn, int epoch, double *loss,
                          double *accuracy) {
    const int64_t n = tensor_size(index, 0);
    tensor_t *order =
        learn ? tensor_index_select(index, 0, kit_fit__order(n, f->seed, (uint64_t)epoch)) : index;
    double loss_sum = 0, hits = kit_fit__classes(f) ? 0 : NAN;
    char label[32], note[96];
    snprintf(label, sizeof label, "epoch %d/%d", epoch, f->epochs);
    nn_progress_t bar = nn_progress_begin(label, n, 0);
    tensor_scope_t scope = learn ? tensor_scope_begin() : tensor_scope_begin_no_grad();
    for (int64_t at = 0, size; at < n && tensor_ok(); at += size, tensor_scope_reset(scope)) {
        size = n - at < f->batch_size ? n - at : f->batch_size;
        tensor_t *batch = tensor_to(tensor_narrow(order, 0, at, size), tensor_device(f->x));
        tensor_t *x = tensor_index_select(f->x, 0, batch), *y = tensor_index_select(f->y, 0, batch);
        if (learn && f->augment) { x = f->augment(x, f->user); }
        tensor_t *output = nn_forward(f->net, x), *value = kit_fit__loss(f, output, y);
        if (learn) {
            nn_zero_grad(f->opt);
            tensor_backward(value);
            nn_step(f->opt);
        }
        loss_sum += tensor_item(value) * (double)size;
        if (kit_fit__classes(f)) { hits += kit_accuracy(output, y) * (double)size; }
        if (f->quiet || !learn) { continue; }
        const double done = (double)(at + size);
        int used = snprintf(note, sizeof note, "loss %.4f", loss_sum / done);
        if (kit_fit__classes(f)) {
            snprintf(note + used, sizeof note - (size_t)used, "  accuracy %.2f %%", 100 * hits / done);
        }
        nn_progress(&bar, at + size, note);
    }
    tensor_scope_end(scope);
    *loss = n > 0 ? loss_sum / (double)n : NAN;
    *accuracy = n > 0 ? hits / (double)n : NAN;
}

// Whether the optimizer is that of another net, or was freed: then it has no moment to take a snapshot of.
static int kit_fit__other(const kit_fit_t *f) {
    if (!tensor_ok() || (nn_snapshot_size)(f->net, f->opt) > 0) { return 0; }
    const int more = strstr(tensor_error_text(), "is not the module's") != NULL; // it trains others, too
    const int code = tensor_error_code();
    tensor_clear_error();
    return code == TENSOR_ERR_OWNER && !more;
}

// Whether the options can be worked with; raised if not.
static int kit_fit__check(const kit_fit_t *f) {
    char line[200] = "";
    if (!f->net || !f->opt) {
        snprintf(line, sizeof line, "kit_fit: the %s is NULL", f->net ? "optimizer" : "net");
    } else if (tensor_ndim(f->x) < 1 || tensor_ndim(f->y) < 1) {
        kit_fit__refuse("kit_fit: x and y must be [N, ...]", "x", f->x, "y", f->y);
    } else if (tensor_size(f->x, 0) != tensor_size(f->y, 0)) {
        kit_fit__refuse("kit_fit: x and y must have as many samples", "x", f->x, "y", f->y);
    } else if (f->batch_size < 1 || f->epochs < 1 || f->patience < 0) {
        snprintf(line, sizeof line,
                 "kit_fit: batch_size %lld and epochs %d must be at least 1, patience %d not negative",
                 (long long)f->batch_size, f->epochs, f->patience);
    } else if (!(f->validation >= 0 && f->validation < 1)) {
        snprintf(line, sizeof line, "kit_fit: validation %g must be 0 to less than 1", f->validation);
    } else if (kit_fit__other(f)) {
        snprintf(line, sizeof line, "kit_fit: the optimizer has none of the net's parameters, or was freed");
    }
    if (line[0] && tensor_ok()) { (tensor_raise)(TENSOR_ERR_SHAPE, line); }
    (void)tensor_empty(0);      // reports it, without a line of this file
    return tensor_ok();
}

kit_epoch_t kit_fit(kit_fit_t f) {
    kit_epoch_t best = {0, NAN, NAN, NAN, NAN}, now;
    tensor_scope_t scope = tensor_scope_begin(), each;
    tensor_t *weights = NULL;
    int stop = !kit_fit__check(&f);
    kit_split_t split = {NULL, NULL};
    if (!stop) { split = kit_split(tensor_size(f.x, 0), f.validation, f.seed); }
    const int validates = !stop && tensor_ok() && tensor_size(split.validation, 0) > 0;
    each = tensor_scope_begin();
    for (int epoch = 1; epoch <= f.epochs && !stop && tensor_ok(); epoch++, tensor_scope_reset(each)) {
        now.epoch = epoch;
        now.loss = now.accuracy = NAN;
        nn_train(f.net);
        kit_fit__pass(&f, split.train, 1, epoch, &now.train_loss, &now.train_accuracy);
        nn_eval(f.net);
        if (validates && tensor_ok()) {
            kit_fit__pass(&f, split.validation, 0, epoch, &now.loss, &now.accuracy);
        }
        nn_train(f.net);
        if (!tensor_ok()) { break; }
        if (f.history) { f.history[epoch - 1] = now; }
        const int better = now.loss < best.loss - f.min_delta || (isnan(best.loss) && !isnan(now.loss));
        if (!validates || best.epoch == 0 || better) {
            best = now;
            if (validates) { tensor_set(&weights, nn_save_memory(f.net)); }
            if (f.best_path) { nn_save(f.best_path, f.net); }
        }
        stop = validates && f.patience > 0 && epoch - best.epoch >= f.patience;
        if (f.on_epoch && f.on_epoch(&now, f.user)) { stop = 1; }
    }
    tensor_scope_end(each);
    if (weights && tensor_ok()) {
        nn_load_memory(tensor_data(weights), (size_t)tensor_numel(weights), f.net, 0);
    }
    if (weights) { tensor_free(weights); }
    tensor_scope_end(scope);
    return best;
}

#endif

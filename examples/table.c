// table.c - a table of comma-separated values: a column of words is learnt from columns of numbers
//
// Build: make build/table && build/table flowers.csv species
// Output: a progress bar; then the confusion matrix and the scores of each class over the samples that were
// not learnt. Rows without a class are left out. Without arguments it makes a table of its own.
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_CSV_IMPLEMENTATION
#include "kit/csv.h"
#define KIT_FIT_IMPLEMENTATION
#include "kit/fit.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

enum { MOST_CLASSES = 32, ROWS = 600 };

// Three kinds of flowers as text, length and width scattered about a centre.
static kit_csv_t *own_table(void) {
    static const char *const names[] = {"rose", "tulip", "lily"};
    static const double centre[3][2] = {{1, 4}, {4, 4}, {3, 1}};
    char *text = (char *)malloc(ROWS * 48 + 32);
    size_t used = (size_t)sprintf(text, "length,width,species\n");
    for (int i = 0; i < ROWS; i++) {
        double noise[2];
        for (int k = 0; k < 2; k++) {
            noise[k] = tensor_item(tensor_randn(1));
        }
        used += (size_t)sprintf(text + used, "%.3f,%.3f,%s\n", centre[i % 3][0] + noise[0],
                                centre[i % 3][1] + noise[1], names[i % 3]);
    }
    kit_csv_t *table = kit_parse_csv(text, used, "own table", ',');
    free(text);
    return table;
}

int main(int argc, char **argv) {
    const char *label = argc > 2 ? argv[2] : "species", *classes[MOST_CLASSES], *inputs[256];
    int count, n = 0;
    if (argc == 2) {
        kit_refuse(TENSOR_ERR_FORMAT, "use", "table file.csv column, where the column has the classes");
        return tensor_shutdown() != 0;
    }
    tensor_manual_seed(1);
    kit_csv_t *table = argc > 2 ? kit_read_csv(argv[1], ',') : own_table();
    if (table) { kit_csv_drop_empty(table, label); }
    for (int64_t k = 0; k < kit_csv_columns(table) && n < 256; k++) {
        if (strcmp(kit_csv_name(table, k), label) != 0) { inputs[n++] = kit_csv_name(table, k); }
    }
    tensor_t *y = kit_csv_classes(table, label, classes, MOST_CLASSES, &count);
    tensor_t *x = kit_csv_numbers(table, TENSOR_F32, inputs, n);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }

    // Each column with mean 0 and deviation 1; a field that is empty becomes the mean.
    const int64_t rows = 0;
    x = tensor_sub(x, tensor_nanmean_dims(x, &rows, 1, 1));
    x = tensor_nan_to_num(x, 0, 0, 0);
    x = tensor_div(x, tensor_clamp_min(tensor_std_dim(x, 0, 1, 1), 1e-6));
    nn_module_t *net = nn_sequential(nn_linear(n, 32), nn_relu(), nn_linear(32, count));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    kit_fit_t fit = kit_fit_defaults(net, opt, x, y);
    fit.epochs = 50;
    fit.patience = 8;
    kit_epoch_t best = kit_fit(fit);
    printf("best of the epochs: loss %.3f, accuracy %.1f %%\n", best.loss, 100 * best.accuracy);

    kit_split_t split = kit_split(tensor_size(x, 0), fit.validation, fit.seed);
    nn_eval(net);
    tensor_t *output = nn_forward(net, tensor_index_select(x, 0, split.validation));
    tensor_t *confusion = kit_confusion(output, tensor_index_select(y, 0, split.validation));
    for (int i = 0; i < count; i++) {
        kit_scores_t s = kit_scores(confusion, i);
        printf("%-12s precision %.2f  recall %.2f  taken for:", classes[i], s.precision, s.recall);
        for (int j = 0; j < count; j++) {
            printf(" %4d", (int)tensor_item(tensor_select(tensor_select(confusion, 0, i), 0, j)));
        }
        printf("\n");
    }
    kit_csv_free(table);
    if (fflush(stdout)) { (void)tensor_raise(TENSOR_ERR_IO, "table: cannot write what it found"); }
    return tensor_shutdown() != 0;
}

// word_vectors.c - words used in similar places get similar vectors: skip-grams with negative samples
//
// The text is this library's two headers, code and comments; TEXT=any.txt takes another one. The vector of a
// word moves towards those of the words round it and away from words drawn at random (Mikolov et al. 2013).
//
// Build: make build/word_vectors && build/word_vectors           (STEPS=6000 TEXT=any.txt ASK="f16 scope")
// Output: what it read, and the nearest neighbours of some words, with the cosine of the angle
#include "tensor_nn.h"
#define KIT_SETTING_IMPLEMENTATION
#include "kit/setting.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEXT = 1 << 23, MAX_WORDS = 1 << 20, VOCABULARY = 3000, OFTEN = 600 };
enum { WIDTH = 48, REACH = 4, BATCH = 1024, DRAWN = 128 };

typedef struct word_t { const char *text; int64_t count, seen; } word_t;

static char text[MAX_TEXT];
static const char *word[MAX_WORDS], *sorted[MAX_WORDS];       // into text
static word_t known[MAX_WORDS];                               // the most frequent ones first
static int64_t id_of[MAX_WORDS];                              // of known words, in the order of the text

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_count(const void *a, const void *b) {
    const word_t *x = (const word_t *)a, *y = (const word_t *)b;
    if (x->count != y->count) { return x->count < y->count ? 1 : -1; }
    return strcmp(x->text, y->text);
}

static int word_by_text(const void *a, const void *b) {
    return strcmp(((const word_t *)a)->text, ((const word_t *)b)->text);
}

// Cuts the files into words of letters, digits and _.   -> how many
static int64_t read_words(const char *const *path, int files) {
    size_t bytes = 0;
    int64_t n = 0;
    for (int i = 0; i < files; i++) {
        bytes += kit_bytes_of(path[i], text + bytes, MAX_TEXT - 1 - bytes);
    }
    for (size_t i = 0; i < bytes && n < MAX_WORDS; i++) {
        int inside = isalnum((unsigned char)text[i]) || text[i] == '_';
        int begins = inside && (i == 0 || !text[i - 1]);
        text[i] = (char)(inside ? tolower((unsigned char)text[i]) : 0);
        if (begins) { word[n++] = text + i; }
    }
    return n;
}

// -> its number among the known words, -1 = it is none of them
static int64_t number_of(const char *one, int64_t distinct) {
    word_t wanted = {one, 0, 0};
    word_t *at = (word_t *)bsearch(&wanted, known, (size_t)distinct, sizeof known[0], word_by_text);
    return at ? at - known : -1;
}

// Counts words, keeps the VOCABULARY most frequent and writes id_of, in which none stands much more than
// OFTEN times ("the" says little about its neighbours).   -> words in id_of
static int64_t number_words(int64_t n, int64_t *distinct) {
    int64_t kinds = 0, kept = 0;
    memcpy(sorted, word, (size_t)n * sizeof word[0]);
    qsort(sorted, (size_t)n, sizeof sorted[0], by_text);
    for (int64_t i = 0; i < n; i++) {
        if (!kinds || strcmp(known[kinds - 1].text, sorted[i]) != 0) { known[kinds++].text = sorted[i]; }
        known[kinds - 1].count++;
    }
    qsort(known, (size_t)kinds, sizeof known[0], by_count);
    *distinct = kinds < VOCABULARY ? kinds : VOCABULARY;
    qsort(known, (size_t)*distinct, sizeof known[0], word_by_text);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = number_of(word[i], *distinct);
        if (id >= 0 && known[id].seen++ * OFTEN % known[id].count < OFTEN) { id_of[kept++] = id; }
    }
    return kept;
}

static void neighbours(tensor_t *vectors, int64_t id) {
    tensor_t *like = tensor_matmul(vectors, tensor_select(vectors, 0, id));
    tensor_pair_t top = tensor_topk(like, 7, 0, 1, 1);
    printf("%-14s", known[id].text);
    for (int64_t k = 1; k < 7; k++) {
        int64_t other = tensor_item_i64(tensor_select(top.indices, 0, k));
        printf("  %s %.2f", known[other].text, tensor_item(tensor_select(top.values, 0, k)));
    }
    printf("\n");
}

int main(void) {
    const char *files[] = {getenv("TEXT") ? getenv("TEXT") : "tensor.h", "tensor_nn.h"};
    int steps = kit_setting("STEPS", 6000, 1, 1000000);
    int64_t n = read_words(files, getenv("TEXT") ? 1 : 2), kinds = 0, kept = number_words(n, &kinds);
    if (tensor_ok() && kept < 2000) {
        kit_refuse(TENSOR_ERR_FORMAT, files[0], "these are fewer than 2000 words");
    }
    char ask[400];
    const char *asked = getenv("ASK") ? getenv("ASK") : "f16 scope rows height thread backward";
    int64_t about[200], questions = 0;
    (void)snprintf(ask, sizeof ask, "%s", asked);
    for (char *one = strtok(ask, " "); one && tensor_ok(); one = strtok(NULL, " ")) {
        int64_t id = number_of(one, kinds);
        if (id >= 0) { about[questions++] = id; }
        if (id < 0 && getenv("ASK")) { kit_refuse(TENSOR_ERR_INDEX, one, "the text has it too rarely"); }
    }
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_manual_seed(1);
    tensor_t *line = tensor_from(id_of, TENSOR_I64, kept);
    nn_module_t *middle = nn_embedding(kinds, WIDTH), *around = nn_embedding(kinds, WIDTH);
    nn_module_t *both = nn_sequential(middle, around);        // for the optimizer alone
    nn_optimizer_t *opt = nn_adam(both, .lr = 5e-3);
    double mean = 0;
    clock_t begin = clock();
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *at = tensor_randint(REACH, kept - REACH, BATCH);
        tensor_t *side = tensor_randint(-REACH, REACH, BATCH);            // -4..-1, 1..4
        side = tensor_add(side, tensor_to(tensor_ge_scalar(side, 0), TENSOR_I64));
        tensor_t *here = nn_forward(middle, tensor_index_select(line, 0, at));
        tensor_t *there = nn_forward(around, tensor_index_select(line, 0, tensor_add(at, side)));
        tensor_t *others = nn_forward(around, tensor_randint(0, kinds, DRAWN));
        tensor_t *good = tensor_logsigmoid(tensor_sum_dim(tensor_mul(here, there), 1, 0));
        tensor_t *bad = tensor_logsigmoid(tensor_neg(tensor_matmul(here, tensor_mT(others))));
        tensor_t *loss = tensor_neg(tensor_add(tensor_mean(good), tensor_mul_scalar(tensor_mean(bad), 6)));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_set_lr(opt, nn_lr_cosine(step, steps, 5e-3, 2e-4));
        nn_step(opt);
        mean = step ? 0.99 * mean + 0.01 * tensor_item(loss) : tensor_item(loss);
    }
    tensor_scope_end(scope);
    printf("%d words, %d different, %d steps, loss %.3f, %.2f s of one core\n", (int)kept, (int)kinds, steps,
           mean, (double)(clock() - begin) / CLOCKS_PER_SEC);

    scope = tensor_scope_begin_no_grad();
    tensor_t *vectors = nn_get(middle, "weight");
    vectors = tensor_div(vectors, tensor_norm_dim(vectors, 1, 1));
    for (int64_t k = 0; k < questions; k++) { neighbours(vectors, about[k]); }
    tensor_scope_end(scope);
    if (fflush(stdout)) { (void)tensor_raise(TENSOR_ERR_IO, "word_vectors: cannot write what it found"); }
    return tensor_shutdown() != 0;
}

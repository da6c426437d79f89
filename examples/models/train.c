// train.c - trains any model of this folder and says how fast: on synthetic data, as benchmarks do, or yours
//
//   train resnet50 [batch [steps [threads]]]   images: DATA=folder of IDX files, which `make fashion` unpacks
//   train lstm_lm | gpt2    TEXT=file: its words, numbered as they come, as many as the model knows
//   train ncf               RATINGS=file of lines user::film::.. or user,film,.. (MovieLens)
// Build: make build/models/train && build/models/train ncf
//        THIN=8 divides widths; WEIGHTS=file begins with a state_dict in safetensors; SAVE=file ends with one
// Output: a line a step with its loss, then the speed (median of steps) and memory.
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <time.h>
#include "zoo.h"
#define KIT_IDX_IMPLEMENTATION
#include "../kit/idx.h"
#define KIT_SETTING_IMPLEMENTATION
#include "../kit/setting.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Megabytes of the process; what: "VmHWM", its most so far, or "VmRSS"; 0 where there is no /proc.
static double megabytes(const char *what) {
    char line[256];
    long kilobytes = 0;
    const size_t n = strlen(what);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, what, n) == 0) { kilobytes = strtol(line + n + 1, NULL, 10); }
    }
    if (f) { fclose(f); }
    return (double)kilobytes / 1024;
}

// Grey pictures of an IDX file as the batch b has its: enlarged, in three colors, or 784 numbers.
static void put_pictures(zoo_batch_t *b, const char *folder, int64_t step) {
    static tensor_t *all, *labels; // read once
    static char path[4200];         // longer than names that a system opens
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    if (!all) { all = tensor_keep(kit_read_idx(path)); }
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", folder);
    if (!labels) { labels = tensor_keep(kit_read_idx(path)); }
    const int64_t n = tensor_size(b->x, 0), count = tensor_size(all, 0);
    if (tensor_ok() && (count < n || tensor_size(labels, 0) != count)) {
        (void)tensor_raise(TENSOR_ERR_IO, "train: fewer pictures than a batch, or not a label for each");
    }
    if (!tensor_ok()) { return; }
    const int64_t at = step * n % (count - n + 1);
    tensor_t *x = tensor_div_scalar(tensor_to(tensor_narrow(all, 0, at, n), TENSOR_F32), 255);
    if (tensor_ndim(b->x) == 2) {
        tensor_copy_(b->x, tensor_reshape(x, n, -1));
        return;
    }
    x = tensor_interpolate(tensor_unsqueeze(x, 1), tensor_size(b->x, 2), .mode = TENSOR_BILINEAR);
    tensor_copy_(b->x, tensor_expand_as(tensor_div_scalar(tensor_sub_scalar(x, 0.5), 0.25), b->x));
    if (b->y) { tensor_copy_(b->y, tensor_to(tensor_narrow(labels, 0, at, n), TENSOR_I64)); }
}

// Words numbered from 1 on as they come, up to limit; later ones are 0.   -> count of them; NULL = none
static int64_t *number_words(const char *path, int64_t *count, int64_t limit) {
    static char *known[1 << 16];
    static int64_t numbers[1 << 16], different;
    int64_t *out = NULL, room = 0;
    char *line = NULL;
    size_t letters = 0;
    FILE *f = fopen(path, "rb");
    while (f && tensor_ok() && getline(&line, &letters, f) > 0) {
        for (char *w = strtok(line, " \t\r\n"); w; w = strtok(NULL, " \t\r\n")) {
            if (*count == room) {
                room = room ? 2 * room : 4096;
                int64_t *more = (int64_t *)realloc(out, (size_t)room * sizeof *out);
                if (!more) {
                    (void)tensor_raise(TENSOR_ERR_OUT_OF_MEMORY, "train: the text is too long");
                    break;
                }
                out = more;
            }
            uint32_t slot = zoo_name(w) >> 16;
            while (known[slot] && strcmp(known[slot], w) != 0) { slot = (slot + 1) % (1 << 16); }
            if (!known[slot] && different + 1 < limit && (known[slot] = strdup(w)) != NULL) {
                numbers[slot] = ++different;
            }
            out[(*count)++] = known[slot] ? numbers[slot] : 0;
        }
    }
    if (f) { fclose(f); }
    free(line);
    return out;
}

// Numbers in order, in columns of batch rows: x and the same one place later, y.
static void put_words(zoo_batch_t *b, const int64_t *words, int64_t count, int64_t step, int64_t limit) {
    const int64_t n = tensor_numel(b->x), at = count > n ? step * n % (count - n) : 0;
    if (count <= n) {
        (void)tensor_raise(TENSOR_ERR_IO, "train: the file is missing, or has fewer words than a batch");
        return;
    }
    tensor_t *x = tensor_remainder_scalar(tensor_from_n(words + at, TENSOR_I64, &n, 1), (double)limit);
    tensor_t *y = tensor_remainder_scalar(tensor_from_n(words + at + 1, TENSOR_I64, &n, 1), (double)limit);
    tensor_copy_(b->x, tensor_reshape_as(x, b->x));
    tensor_copy_(b->y, tensor_reshape_as(y, b->y));
}

// Pairs of a file of ratings, user and film: what was seen; every second film is drawn at random: not seen.
static void put_ratings(zoo_batch_t *b, const char *path, int64_t step, int64_t thin) {
    const int64_t n = tensor_size(b->x, 1);
    int64_t *pairs = (int64_t *)malloc(2 * (size_t)n * sizeof *pairs), got = 0;
    float *seen = (float *)malloc((size_t)n * sizeof *seen);
    char line[200];
    FILE *f = fopen(path, "r");
    for (int64_t i = 0; f && pairs && seen && got < n && fgets(line, sizeof line, f); i++) {
        char *end;
        const long user = strtol(line, &end, 10), film = strtol(end + strspn(end, ":,\t "), NULL, 10);
        if (user < 1 || film < 1 || i < step * n) { continue; }
        pairs[got] = user % (138493 / thin);
        pairs[n + got] = (got % 2 ? tensor_item_i64(tensor_randint(1, 26744, 1)) : film) % (26744 / thin);
        seen[got] = (float)(1 - got % 2);
        got++;
    }
    if (f) { fclose(f); }
    if (got == n) {
        const int64_t dims[2] = {2, n};
        tensor_copy_(b->x, tensor_from_n(pairs, TENSOR_I64, dims, 2));
        tensor_copy_(b->y, tensor_from_n(seen, TENSOR_F32, &n, 1));
    } else {
        (void)tensor_raise(TENSOR_ERR_IO, "train: the file of ratings is missing, or too short");
    }
    free(pairs);
    free(seen);
}

// The batch of a step, where the user has data for this model.
static void put_data(zoo_job_t *j, int64_t step, int64_t thin) {
    const char *data = getenv("DATA"), *text = getenv("TEXT"), *ratings = getenv("RATINGS");
    const char *name = j->model->name;
    static int64_t *words, count;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    if (data && strcmp(j->model->unit, "images") == 0 && strcmp(name, "dcgan") != 0) {
        put_pictures(&j->batch, data, step);
    } else if (text && (strcmp(name, "lstm_lm") == 0 || strcmp(name, "gpt2") == 0)) {
        const int64_t limit = (name[0] == 'l' ? 10000 : 50257) / thin;
        if (!words) { words = number_words(text, &count, limit); }
        put_words(&j->batch, words, count, step, limit);
    } else if (ratings && strcmp(name, "ncf") == 0) {
        put_ratings(&j->batch, ratings, step, thin);
    }
    tensor_scope_end(scope);
}

int main(int argc, char **argv) {
    enum { MOST_STEPS = 10000 };
    static double seconds[MOST_STEPS];
    const double before = megabytes("VmRSS");
    const zoo_model_t *model = argc > 1 ? zoo_find(argv[1]) : NULL;
    if (!model) {
        fprintf(stderr, "use: train MODEL [BATCH [STEPS [THREADS]]]; models:");
        for (int i = 0; i < ZOO_COUNT; i++) { fprintf(stderr, " %s", zoo[i].name); }
        fprintf(stderr, "\n");
        return 1;
    }
    const int batch = kit_whole("BATCH", argc > 2 ? argv[2] : NULL, model->batch, 1, 1000000);
    const int steps = kit_whole("STEPS", argc > 3 ? argv[3] : NULL, 10, 0, MOST_STEPS);
    const int threads = kit_whole("THREADS", argc > 4 ? argv[4] : NULL, 1, 1, 1024);
    const int thin = kit_setting("THIN", 1, 1, 1000);
    if (!tensor_ok()) { return tensor_shutdown() != 0; }
    tensor_set_num_threads(threads);
    tensor_manual_seed(1);
    zoo_job_t j = zoo_begin(model, batch, thin, 0);
    if (getenv("WEIGHTS")) { nn_load(getenv("WEIGHTS"), j.net); }
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        put_data(&j, step, thin);
        if (!tensor_ok()) { break; }
        const double begin = now();
        const double loss = tensor_item(zoo_step(&j));
        seconds[step] = now() - begin;
        if (tensor_ok()) { printf("step %d loss %.4f\n", step + 1, loss); }
    }
    tensor_scope_end(scope);
    if (getenv("SAVE") && tensor_ok()) { nn_save(getenv("SAVE"), j.net); }
    if (steps > 0 && tensor_ok()) {
        qsort(seconds, (size_t)steps, sizeof seconds[0], by_size);
        printf("%s: %.4g %s/s, %d a step, %d threads, %.0f MB, %.0f MB before the first tensor\n",
               model->name, batch / seconds[steps / 2], model->unit, batch, threads, megabytes("VmHWM"),
               before);
    }
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "train: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}

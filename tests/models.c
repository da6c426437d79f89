// models.c - the models of examples/models against PyTorch's: names, shapes and initial values of the
// published sizes; ten training steps of thin ones; files of either side
//
//   models              the tests
//   models write DIR    files of all models and what they say about a batch, for tests/fixtures/models.py
//   models read DIR     the same files of PyTorch's
//   models gpt2 DIR     a small file of GPT-2's layout
//
// tests/fixtures/models.py, which made models.safetensors, says what is in it. In f64 the numbers must be
// PyTorch's to 1e-10. In f32 they may be as far from those as PyTorch's own are, in f32 or after a nudge of
// f32's rounding, times 10: a relu or a pool that takes the other side is a jump, and a deep net has many.
#include "test.h"

#include "../examples/models/zoo.h"

enum { STEPS = 10, NUMBERS = 3 };           // sum, norm, projection

static nn_safetensors_t *fixture;

// Examples of a trial, and what its learning rate is multiplied with; see SLOW in models.py.
static const struct trial_t { const char *name; int batch; double slow; } trials[] = {
    {"alexnet", 4, 0.1},       {"vgg19", 4, 0.1},  {"resnet18", 4, 0.01}, {"resnet50", 4, 1e-4},
    {"mobilenet_v2", 4, 1e-4}, {"gnmt", 4, 1},     {"ncf", 64, 1},        {"lstm_lm", 4, 1},
    {"vit_tiny", 4, 1},        {"vae", 8, 1},      {"dcgan", 4, 1},       {"gpt2", 2, 1},
};
enum { TRIALS = (int)(sizeof trials / sizeof *trials) };

static tensor_t *wanted(const char *model, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", model, what);
    return nn_safetensors_get(fixture, name);
}

static void fill(nn_module_t *net) {
    nn_named_list_t all = nn_state(net);
    for (int64_t i = 0; i < all.count; i++) {
        const char *name = all.item[i].name;
        tensor_t *t = all.item[i].tensor;
        if (model_ends(name, "num_batches_tracked")) {
            tensor_scope_t scope = tensor_scope_begin_no_grad();
            tensor_zero_(t);
            tensor_scope_end(scope);
        } else if (tensor_ndim(t) > 1) {
            const double fan = (double)(tensor_numel(t) / tensor_size(t, 0));
            const double bound = sqrt((tensor_ndim(t) == 4 ? 6 : 3) / fan);
            zoo_uniform_(t, name, -bound, bound);
        } else if (model_ends(name, ".weight") || model_ends(name, "running_var") ||
                   model_ends(name, "normalize_scalar")) {
            zoo_uniform_(t, name, 0.25, 0.75);
        } else {
            zoo_uniform_(t, name, -0.125, 0.125);
        }
    }
}

static tensor_t *as(tensor_t *t, tensor_dtype_t dtype) {
    return t && tensor_dtype(t) == TENSOR_F32 ? tensor_to(t, dtype) : t;
}

static zoo_job_t begin(const struct trial_t *trial, tensor_dtype_t dtype) {
    const zoo_model_t *model = zoo_find(trial->name);
    zoo_job_t j = zoo_begin(model, trial->batch, model->thin, 0);
    CHECK(nn_to(j.net, (int)dtype) == 0);
    fill(j.net);
    j.batch.x = as(j.batch.x, dtype);
    j.batch.y = as(j.batch.y, dtype);
    j.batch.z = as(j.batch.z, dtype);
    nn_set_lr(j.opt, nn_get_lr(j.opt) * trial->slow);
    return j;
}

// Sum, norm and projection on known numbers.
static void numbers(const char *name, tensor_t *t, double out[NUMBERS]) {
    tensor_t *flat = tensor_to(tensor_reshape(tensor_detach(t), -1), TENSOR_F64);
    const double *v = (const double *)tensor_data(flat);
    uint32_t h = zoo_name("|");
    for (; *name; name++) { h = (h ^ (unsigned char)*name) * 16777619u; }
    double sum = 0, squares = 0, projection = 0;
    for (int64_t i = 0; v && i < tensor_numel(flat); i++) {
        sum += v[i];
        squares += v[i] * v[i];
        projection += v[i] * (float)zoo_number(h, i);
    }
    out[0] = sum;
    out[1] = sqrt(squares);
    out[2] = projection;
}

static const char *shape_of(tensor_t *t) {
    static char text[100];
    size_t used = 0;
    if (tensor_ndim(t) == 0) { return "-"; }
    for (int d = 0; d < tensor_ndim(t); d++) {
        used += (size_t)snprintf(text + used, sizeof text - used, d ? "x%d" : "%d", (int)tensor_size(t, d));
    }
    return text;
}

// The line of a listing "name shape\n.." that has this name.   -> its number, -1 = none; *shape: behind the
// name
static int64_t line_of(const char *listing, const char *name, const char **shape) {
    const size_t n = strlen(name);
    int64_t line = 0;
    for (const char *p = listing; p; line++) {
        if (strncmp(p, name, n) == 0 && p[n] == ' ') {
            *shape = p + n + 1;
            return line;
        }
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    return -1;
}

static int64_t lines_in(const char *listing) {
    int64_t n = listing && *listing;
    for (; listing && *listing; listing++) { n += *listing == '\n'; }
    return n;
}

static int same_shape(tensor_t *t, const char *shape) {
    const char *own = shape_of(t);
    const size_t n = strlen(own);
    return strncmp(own, shape, n) == 0 && (shape[n] == '\n' || shape[n] == 0);
}

// How far the numbers of all tensors are from the fixture's rows, by the norms; see distance in models.py.
static double distance(const char *model, const char *what, nn_named_list_t all, int grads) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", model, what);
    const char *listing = nn_safetensors_metadata(fixture, key);
    const double *rows = (const double *)tensor_data(wanted(model, what));
    double most = 0, worst = 0;
    CHECK_MSG(lines_in(listing) == all.count, "%s: %d %s, %d in PyTorch", model, (int)all.count, what,
              (int)lines_in(listing));
    if (!listing || !rows) { return INFINITY; }
    for (int64_t i = 0; i < lines_in(listing); i++) { most = fmax(most, rows[i * NUMBERS + 1]); }
    for (int64_t i = 0; i < all.count; i++) {
        const char *name = all.item[i].name, *shape = "";
        const int64_t line = line_of(listing, name, &shape);
        tensor_t *t = grads ? tensor_grad(all.item[i].tensor) : all.item[i].tensor;
        CHECK_MSG(line >= 0, "%s: PyTorch has no %s", model, name);
        if (line < 0) { continue; }
        CHECK_MSG(t && same_shape(t, shape), "%s: %s is [%s], not as in PyTorch", model, name,
                  t ? shape_of(t) : "?");
        if (!t) { continue; }
        double got[NUMBERS];
        numbers(name, t, got);
        for (int k = 0; k < NUMBERS; k++) {
            const double want = rows[line * NUMBERS + k];
            const double off = fabs(got[k] - want) / fmax(rows[line * NUMBERS + 1], 1e-3 * most);
            worst = off > worst || off != off ? off : worst;
        }
    }
    return worst;
}

// Losses, output, gradients of step 1 and the state after step 10: distances in the order of the fixture's
// f32.
static void train(const struct trial_t *trial, tensor_dtype_t dtype, double far[4]) {
    zoo_job_t j = begin(trial, dtype);
    if (j.more) { nn_set_lr(j.more, nn_get_lr(j.more) * trial->slow); }
    tensor_t *losses = wanted(trial->name, "losses");
    const double *want = (const double *)tensor_data(losses);
    far[0] = far[2] = far[3] = INFINITY;
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_eval(j.net);
    double got[NUMBERS], row[NUMBERS];
    numbers("output", j.model->forward(j.net, &j.batch), got);
    CHECK(tensor_copy_out(wanted(trial->name, "output"), row, sizeof row) == 0);
    far[1] = fmax(fmax(fabs(got[0] - row[0]), fabs(got[1] - row[1])), fabs(got[2] - row[2])) / row[1];
    nn_train(j.net);
    tensor_scope_end(scope);
    double worst = 0;
    scope = tensor_scope_begin();
    for (int step = 0; step < STEPS && want; step++, tensor_scope_reset(scope)) {
        const double off = fabs(tensor_item(zoo_step(&j)) - want[step]) / fabs(want[step]);
        worst = off > worst || off != off ? off : worst;
        if (step == 0) { far[2] = distance(trial->name, "grads", nn_named_parameters(j.net), 1); }
    }
    tensor_scope_end(scope);
    far[0] = worst;
    far[3] = distance(trial->name, "state", nn_state(j.net), 0);
    zoo_end(&j);
}

static void trains_as_pytorch(void) {
    static const char *const what[] = {"losses", "output", "gradients", "state after 10 steps"};
    for (int i = 0; i < TRIALS; i++) {
        double far[4], own[4] = {0, 0, 0, 0};
        CHECK(tensor_copy_out(wanted(trials[i].name, "f32"), own, sizeof own) == 0);
        for (int half = 0; half < 2; half++) {
            train(&trials[i], half ? TENSOR_F32 : TENSOR_F64, far);
            for (int k = 0; k < 4; k++) {
                const double bar = half ? 10 * own[k] + 2e-6 : 1e-10;
                CHECK_MSG(far[k] <= bar, "%s, f%d, %s: differ by %g, allowed %g", trials[i].name,
                          half ? 32 : 64, what[k], far[k], bar);
            }
        }
    }
}

// Names, shapes, and mean and deviation of the initial values, within 6 deviations of a mean of so many.
static void published_sizes(void) {
#if defined(__SANITIZE_THREAD__)
    printf("skipped %d tests of models of full size: they take 12 GB under a thread sanitizer\n", ZOO_COUNT);
#else
    tensor_manual_seed(3);
    for (int i = 0; i < ZOO_COUNT; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.full", zoo[i].name);
        const char *listing = nn_safetensors_metadata(fixture, key);
        tensor_scope_t scope = tensor_scope_begin();
        const double *init = (const double *)tensor_data(wanted(zoo[i].name, "init"));
        nn_module_t *net = zoo[i].make(1, 0);
        nn_named_list_t all = nn_state(net);
        int64_t found = 0;
        CHECK(listing && init);
        for (int64_t k = 0; k < all.count && listing && init; k++) {
            const char *name = all.item[k].name, *shape = "";
            tensor_t *t = all.item[k].tensor;
            if (model_ends(name, "num_batches_tracked")) { continue; }
            const int64_t line = line_of(listing, name, &shape);
            CHECK_MSG(line >= 0 && same_shape(t, shape), "%s: %s [%s] is not PyTorch's", zoo[i].name, name,
                      shape_of(t));
            if (line < 0) { continue; }
            const double n = (double)tensor_numel(t), mean = init[2 * line], deviation = init[2 * line + 1];
            tensor_scope_t inside = tensor_scope_begin_no_grad();
            const double own = tensor_item(tensor_mean(t)), about = tensor_item(tensor_std(t, 0));
            tensor_scope_end(inside);
            found++;
            if (n < 100 && (deviation > 0 || n == 1)) { continue; }
            CHECK_MSG(fabs(own - mean) <= 9 * deviation / sqrt(n) + 1e-6,
                      "%s: %s begins with mean %g, in PyTorch %g", zoo[i].name, name, own, mean);
            CHECK_MSG(fabs(about - deviation) <= 9 * deviation / sqrt(n) + 1e-6,
                      "%s: %s begins with deviation %g, in PyTorch %g", zoo[i].name, name, about, deviation);
        }
        CHECK_MSG(found == lines_in(listing), "%s: %d tensors, in PyTorch %d", zoo[i].name, (int)found,
                  (int)lines_in(listing));
        nn_free(net);
        tensor_scope_end(scope);
        tensor_empty_cache();
    }
#endif
}

// The words that a net finds most likely, one after the other, with remembered keys and values.
static void generates_as_pytorch(void) {
    const zoo_model_t *model = zoo_find("gpt2");
    nn_module_t *net = model->make(model->thin, 0);
    tensor_t *want = wanted("gpt2", "greedy");
    int64_t words[64];
    CHECK(tensor_copy_out(want, words, sizeof(int64_t) * (size_t)tensor_numel(want)) == 0);
    fill(net);
    const int64_t count = gpt2_generate(net, words, 5, tensor_numel(want), 0);
    CHECK(count == tensor_numel(want));
    tensor_t *got = tensor_from_n(words, TENSOR_I64, &count, 1);
    CHECK(tensor_equal(got, tensor_reshape(want, -1)));
    // Again, from the beginning: nothing is remembered from one call to the next.
    memset(words + 5, 0, sizeof(int64_t) * (size_t)(count - 5));
    CHECK(gpt2_generate(net, words, 5, count, 0) == count);
    CHECK(tensor_equal(tensor_from_n(words, TENSOR_I64, &count, 1), got));
    nn_free(net);
}

// A file that PyTorch wrote, and what it says.
static void loads_pytorch(void) {
    const char *path = "tests/fixtures/models_small.safetensors";
    nn_module_t *net = nn_eval(resnet_new(18, 10, 16, 0));
    CHECK(nn_load(path, net, .prefix = "net.") == 0);
    nn_safetensors_t *r = nn_safetensors_open(path);
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    tensor_t *y = nn_forward(net, zoo_uniform("images", -1.5, 1.5, 2, 3, 64, 64));
    tensor_t *want = nn_safetensors_get(r, "logits");
    CHECK_NEAR(tensor_item(tensor_max(tensor_abs(tensor_sub(y, want)))), 0, 1e-5);
    CHECK(tensor_item(tensor_max(tensor_abs(want))) > 0.1);
    tensor_scope_end(scope);
    nn_safetensors_close(r);
    nn_free(net);
}

// A file of another architecture: which tensors, with both shapes; the net stays as it was.
static void refuses_others(void) {
    const char *path = "tests/fixtures/models_small.safetensors";
    nn_module_t *net = resnet_new(50, 10, 16, 0);
    uint64_t before = test_hash(TEST_HASH, nn_get(net, "conv1.weight"));
    CHECK(nn_load(path, net, .prefix = "net.") == TENSOR_ERR_FORMAT);
    CHECK(strstr(tensor_error_text(), "fc.weight") || strstr(tensor_error_text(), "layer1.0.conv1.weight"));
    CHECK(strstr(tensor_error_text(), "[4,4,3,3] (module: [4,4,1,1])"));
    CHECK_ERROR(TENSOR_ERR_FORMAT, "layer1.0.bn3.weight");
    CHECK(test_hash(TEST_HASH, nn_get(net, "conv1.weight")) == before);
    nn_free(net);
    net = alexnet_new(10, 16, 0);
    CHECK(nn_load(path, net, .prefix = "net.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "16 missing [features.0.weight");
    nn_free(net);
    net = resnet_new(18, 11, 16, 0);
    CHECK(nn_load(path, net, .prefix = "net.") == TENSOR_ERR_FORMAT);
    CHECK_ERROR(TENSOR_ERR_FORMAT,
                "2 of another shape [fc.weight [10,32] (module: [11,32]), fc.bias [10] (module: [11])]");
    nn_free(net);
    CHECK(resnet_new(34, 10, 1, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "neither 18 nor 50");
    CHECK(gnmt_new(10, 8, 1, 0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "layers");
}

// GPT-2's files have masks besides, and sometimes a prefix; what is missing is said.
static void loads_gpt2(void) {
    gpt2_config_t small = {50, 16, 8, 2, 2, 0};
    nn_module_t *a = gpt2_new(small), *b = gpt2_new(small);
    nn_named_list_t all = nn_state(a);
    const char *names[64];
    char kept[64][64];
    tensor_t *list[64];
    const char *path = "build/gpt2-test.safetensors";
    for (int prefix = 0; prefix < 2; prefix++) {
        int n = 0;
        for (; n < all.count; n++) {
            snprintf(kept[n], sizeof kept[n], "%s%s", prefix ? "transformer." : "", all.item[n].name);
            names[n] = kept[n];
            list[n] = all.item[n].tensor;
        }
        names[n] = prefix ? "transformer.h.0.attn.bias" : "h.0.attn.bias";
        list[n++] = tensor_tril(tensor_ones(1, 1, 16, 16), 0);
        CHECK(nn_safetensors_write(path, names, list, n, NULL, 0) == 0);
        CHECK(gpt2_load(b, path) == 0);
        CHECK(tensor_equal(nn_get(a, "h.1.mlp.c_fc.weight"), nn_get(b, "h.1.mlp.c_fc.weight")));
        nn_init_zeros_(nn_get(b, "h.1.mlp.c_fc.weight"));
        CHECK(nn_safetensors_write(path, names, list, n - 2, NULL, 0) == 0);
        CHECK(gpt2_load(b, path) == TENSOR_ERR_FORMAT);
        CHECK_ERROR(TENSOR_ERR_FORMAT, all.item[all.count - 1].name);
    }
    remove(path);
    nn_free(a);
    nn_free(b);
}

// State that is carried makes two halves of a text the same as the whole, without the history.
static void carries_state(void) {
    nn_module_t *net = lstm_lm_new(20, 6, 2, 0);
    tensor_t *x = tensor_randint(0, 20, 8, 3), *whole = nn_forward(net, x);
    ((lstm_lm_t *)net)->carries = 1;
    tensor_t *first = nn_forward(net, tensor_narrow(x, 0, 0, 4));
    tensor_t *second = nn_forward(net, tensor_narrow(x, 0, 4, 4));
    CHECK(tensor_item(tensor_max(tensor_abs(tensor_sub(tensor_cat(0, first, second), whole)))) < 1e-6);
    CHECK(tensor_backward(tensor_sum(second)) == 0);
    nn_free(net);
}

static void exchange(const char *way, const char *folder) {
    for (int i = 0; i < TRIALS; i++) {
        const zoo_model_t *model = zoo_find(trials[i].name);
        char path[300];
        tensor_scope_t scope = tensor_scope_begin();
        zoo_job_t j = zoo_begin(model, trials[i].batch, model->thin, 0);
        const int reads = strcmp(way, "read") == 0;
        if (!reads) { zoo_step(&j); }
        snprintf(path, sizeof path, "%s/%s.%s.safetensors", folder, model->name, reads ? "py" : "c");
        CHECK_MSG((reads ? nn_load(path, j.net) : nn_save(path, j.net)) == 0, "%s: %s", path,
                  tensor_error_text());
        nn_eval(j.net);
        tensor_t *y = model->forward(j.net, &j.batch);
        const char *name = "output";
        snprintf(path, sizeof path, "%s/%s.%s.output.safetensors", folder, model->name, reads ? "py" : "c");
        if (reads) {
            nn_safetensors_t *r = nn_safetensors_open(path);
            tensor_t *want = nn_safetensors_get(r, "output");
            const double off = tensor_item(tensor_max(tensor_abs(tensor_sub(y, want)))) /
                               tensor_item(tensor_max(tensor_abs(want)));
            CHECK_MSG(off <= 2e-5, "%s: what C makes of PyTorch's file differs by %g", model->name, off);
            nn_safetensors_close(r);
        } else {
            CHECK(nn_safetensors_write(path, &name, &y, 1, NULL, 0) == 0);
        }
        zoo_end(&j);
        CHECK_OK();
        tensor_scope_end(scope);
    }
}

// A model of GPT-2's layout, for the words of tests/fixtures/kit/vocab.json.
static void write_gpt2(const char *folder) {
    gpt2_config_t small = {700, 32, 64, 1, 2, 0};
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    nn_module_t *net = gpt2_new(small);
    CHECK(nn_save(path, net) == 0);
    gpt2_config_t again = gpt2_config_of(path);
    CHECK(again.words == 700 && again.context == 32 && again.width == 64);
    CHECK(again.heads == 1 && again.layers == 2);
    nn_free(net);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "gpt2") == 0) {
        test_name = argv[1];
        write_gpt2(argv[2]);
        return test_report();
    }
    if (argc > 2) {
        test_name = argv[1];
        exchange(argv[1], argv[2]);
        return test_report();
    }
    fixture = nn_safetensors_open("tests/fixtures/models.safetensors");
    CHECK(fixture != NULL);
    RUN(trains_as_pytorch);
    RUN(published_sizes);
    RUN(generates_as_pytorch);
    RUN(loads_pytorch);
    RUN(refuses_others);
    RUN(loads_gpt2);
    RUN(carries_state);
    nn_safetensors_close(fixture);
    return test_report();
}

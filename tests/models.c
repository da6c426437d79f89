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
// f32's rounding, times 10, but no farther than `cap`. A relu or a pool that takes the other side is a jump
// in some tensors: the largest distance of all tensors finds a tensor that is wrong, the median a small fault
// of all of them. notices_faults plants both. MODELS_SHOW=1 prints the distances.
#include "test.h"

// The models' batch norm: notices_faults changes its epsilon.
static double batch_norm_eps = 1e-5;
static nn_module_t *batch_norm(int64_t features) {
    return nn_batch_norm2d(features, .eps = batch_norm_eps);
}
#undef nn_batch_norm2d
#define nn_batch_norm2d(features) batch_norm(features)

#include "../examples/models/zoo.h"

enum { STEPS = 10, NUMBERS = 3 };           // sum, norm, projection

static nn_safetensors_t *fixture;

// Examples of a trial, and what its learning rate is multiplied with; see SLOW in models.py.
static const struct trial_t { const char *name; int batch; double slow; } trials[] = {
    {"alexnet", 4, 0.1},       {"vgg19", 4, 0.01}, {"resnet18", 4, 0.1},  {"resnet50", 4, 0.01},
    {"mobilenet_v2", 4, 0.005}, {"gnmt", 4, 1},     {"ncf", 64, 1},        {"lstm_lm", 4, 1},
    {"vit_tiny", 4, 1},        {"vae", 8, 1},      {"dcgan", 4, 1},       {"gpt2", 2, 1},
};
enum { TRIALS = (int)(sizeof trials / sizeof *trials) };

// What is compared, by its relative distance: the largest of all steps or tensors, and the median.
enum { LOSSES, OUTPUT, GRADS, CHANGES, QUANTITIES };
typedef struct far_t { double largest, median; } far_t;
static const char *const quantity[QUANTITIES] = {"losses", "output", "gradients", "what 10 steps change"};
static const far_t cap[QUANTITIES] = {{1e-3, 1e-4}, {1e-4, 1e-4}, {0.2, 5e-4}, {0.5, 1e-2}};
static const double least[QUANTITIES] = {0, 0, 1e-3, 1e-2};     // see distance in models.py

static tensor_t *wanted(const char *model, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", model, what);
    return nn_safetensors_get(fixture, name);
}

// Whether what this norm makes is added to a block's input: ResNet-50, MobileNet.
static int ends_branch(const char *name) {
    static const char adds[] = {3, 5, 6, 8, 9, 10, 12, 13, 15, 16};
    int block = 0;
    if (model_ends(name, "bn3.weight")) { return 1; }
    if (!model_ends(name, ".conv.3.weight") || sscanf(name, "features.%d.", &block) != 1) { return 0; }
    return block > 0 && memchr(adds, block, sizeof adds) != NULL;
}

// Norms scale by about 1, those at the end of a residual branch by a fifth: f32 of a deep net stays near f64.
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
        } else if (ends_branch(name)) {
            zoo_uniform_(t, name, 0.15, 0.25);
        } else if (model_ends(name, ".weight") || model_ends(name, "running_var") ||
                   model_ends(name, "normalize_scalar")) {
            zoo_uniform_(t, name, 0.75, 1.25);
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

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A distance that is not a number counts as infinite.
static far_t far_of(double *off, int64_t n) {
    far_t far = {INFINITY, INFINITY};
    if (n == 0) { return far; }
    for (int64_t i = 0; i < n; i++) {
        if (off[i] != off[i]) { off[i] = INFINITY; }
    }
    qsort(off, (size_t)n, sizeof *off, by_value);
    far.largest = off[n - 1];
    far.median = off[(n - 1) / 2];
    return far;
}

static tensor_t *f64_of(tensor_t *t) {
    return tensor_to(tensor_detach(t), TENSOR_F64);
}

enum { TENSORS = 400 };             // more than a net has

// What steps changed of a tensor. The biases of an attention's keys cancel in its softmax: their gradient is
// rounding alone, which Adam turns into steps of full size, so they are left out.
static tensor_t *change_of(const char *name, tensor_t *now, tensor_t *begun) {
    tensor_t *change = tensor_sub(f64_of(now), begun);
    const int64_t third = tensor_numel(change) / 3;
    if (model_ends(name, "in_proj_bias") || model_ends(name, "c_attn.bias")) {
        tensor_zero_(tensor_narrow(change, 0, third, third));
    }
    return change;
}

// How far the numbers of all tensors are from the fixture's rows, by the norms; the median is of those that
// are learned. See distance in models.py.
//   all     in the order of `now`
static far_t distance(const char *model, int which, nn_named_list_t all, tensor_t *const *now) {
    const char *what = which == GRADS ? "grads" : "state";
    char key[64];
    snprintf(key, sizeof key, "%s.%s", model, what);
    const char *listing = nn_safetensors_metadata(fixture, key);
    const double *rows = (const double *)tensor_data(wanted(model, what));
    const int64_t lines = lines_in(listing);
    double most[2] = {0, 0}, largest = 0, off[TENSORS];     // most: of buffers, of what is learned
    int64_t learned = 0;
    CHECK_MSG(lines == all.count, "%s: %d %s, %d in PyTorch", model, (int)all.count, what, (int)lines);
    if (!listing || !rows || all.count > TENSORS) { return far_of(off, 0); }
    for (int64_t i = 0; i < all.count; i++) {
        const char *shape;
        const int64_t line = line_of(listing, all.item[i].name, &shape);
        const int kind = tensor_requires_grad(all.item[i].tensor);
        if (line >= 0) { most[kind] = fmax(most[kind], rows[line * NUMBERS + 1]); }
    }
    for (int64_t i = 0; i < all.count; i++) {
        const char *name = all.item[i].name, *shape = "";
        const int64_t line = line_of(listing, name, &shape);
        const int kind = tensor_requires_grad(all.item[i].tensor);
        CHECK_MSG(line >= 0, "%s: PyTorch has no %s", model, name);
        if (line < 0) { continue; }
        CHECK_MSG(now[i] && same_shape(now[i], shape), "%s: %s is [%s], not as in PyTorch", model, name,
                  now[i] ? shape_of(now[i]) : "?");
        if (!now[i]) { continue; }
        double got[NUMBERS], worst = 0;
        numbers(name, now[i], got);
        for (int k = 0; k < NUMBERS; k++) {
            const double apart = fabs(got[k] - rows[line * NUMBERS + k]);
            worst = apart > worst || apart != apart ? apart : worst;
        }
        worst /= fmax(rows[line * NUMBERS + 1], least[which] * most[kind]);
        largest = worst > largest || worst != worst ? worst : largest;
        if (kind) { off[learned++] = worst; }
    }
    far_t far = far_of(off, learned);
    far.largest = largest;
    return far;
}

// Ten steps of a job, which this frees, beside PyTorch's.
static void train(const char *name, zoo_job_t j, far_t far[QUANTITIES]) {
    const double *want = (const double *)tensor_data(wanted(name, "losses"));
    double off[STEPS] = {0}, got[NUMBERS], row[NUMBERS];
    tensor_t *now[TENSORS] = {NULL}, *begun[TENSORS] = {NULL};
    nn_named_list_t state = nn_state(j.net);
    for (int k = 0; k < QUANTITIES; k++) { far[k] = far_of(off, 0); }
    CHECK(want && state.count <= TENSORS);
    if (!want || state.count > TENSORS) { return; }
    for (int64_t i = 0; i < state.count; i++) { begun[i] = tensor_clone(f64_of(state.item[i].tensor)); }

    tensor_scope_t scope = tensor_scope_begin_no_grad();
    nn_eval(j.net);
    numbers("output", j.model->forward(j.net, &j.batch), got);
    CHECK(tensor_copy_out(wanted(name, "output"), row, sizeof row) == 0);
    for (int k = 0; k < NUMBERS; k++) { off[k] = fabs(got[k] - row[k]) / row[1]; }
    far[OUTPUT] = far_of(off, NUMBERS);
    far[OUTPUT].median = far[OUTPUT].largest;       // there is one
    nn_train(j.net);
    tensor_scope_end(scope);

    scope = tensor_scope_begin();
    for (int step = 0; step < STEPS; step++, tensor_scope_reset(scope)) {
        off[step] = fabs(tensor_item(zoo_step(&j)) - want[step]) / fabs(want[step]);
        if (step > 0) { continue; }
        nn_named_list_t parameters = nn_named_parameters(j.net);
        for (int64_t i = 0; i < parameters.count; i++) { now[i] = tensor_grad(parameters.item[i].tensor); }
        far[GRADS] = distance(name, GRADS, parameters, now);
    }
    tensor_scope_end(scope);
    far[LOSSES] = far_of(off, STEPS);
    scope = tensor_scope_begin_no_grad();
    state = nn_state(j.net);
    for (int64_t i = 0; i < state.count; i++) {
        now[i] = change_of(state.item[i].name, state.item[i].tensor, begun[i]);
    }
    far[CHANGES] = distance(name, CHANGES, state, now);
    tensor_scope_end(scope);
    zoo_end(&j);
}

// How far f32 may be from PyTorch's f64.
static void bars(const char *model, far_t bar[QUANTITIES]) {
    double own[QUANTITIES][2];
    memset(own, 0, sizeof own);
    CHECK(tensor_copy_out(wanted(model, "f32"), own, sizeof own) == 0);
    for (int k = 0; k < QUANTITIES; k++) {
        bar[k].largest = fmin(10 * own[k][0] + 2e-6, cap[k].largest);
        bar[k].median = fmin(10 * own[k][1] + 2e-6, cap[k].median);
    }
}

static int within(far_t far, far_t bar) {
    return far.largest <= bar.largest && far.median <= bar.median;
}

static void trains_as_pytorch(void) {
    for (int i = 0; i < TRIALS; i++) {
        const char *name = trials[i].name;
        far_t far[QUANTITIES], bar[QUANTITIES];
        tensor_scope_t scope = tensor_scope_begin();
        train(name, begin(&trials[i], TENSOR_F64), far);
        for (int k = 0; k < QUANTITIES; k++) {
            CHECK_MSG(far[k].largest <= 1e-10, "%s, f64, %s: differ by %g", name, quantity[k],
                      far[k].largest);
        }
        train(name, begin(&trials[i], TENSOR_F32), far);
        bars(name, bar);
        for (int k = 0; k < QUANTITIES; k++) {
            CHECK_MSG(within(far[k], bar[k]), "%s, f32, %s: differ by %g, allowed %g; median %g, allowed %g",
                      name, quantity[k], far[k].largest, bar[k].largest, far[k].median, bar[k].median);
            if (getenv("MODELS_SHOW")) {
                printf("%-14s %-22s largest %.1e of %.1e, median %.1e of %.1e\n", name, quantity[k],
                       far[k].largest, bar[k].largest, far[k].median, bar[k].median);
            }
        }
        tensor_scope_end(scope);
    }
}

static tensor_t *no_gradient(tensor_t *g, void *user) {
    (void)user;
    return tensor_zeros_like(g);
}

// Small faults of the model, which f32 must not hide: an epsilon of batch norm of 2e-5, a momentum that is
// one percent off, a bias without a gradient.
static void notices_faults(void) {
    enum { EPSILON, MOMENTUM, BIAS, FAULTS };
    static const char *const faults[FAULTS] = {"epsilon", "momentum", "bias"};
    for (int i = 0; i < TRIALS; i++) {
        const char *name = trials[i].name;
        far_t far[QUANTITIES], bar[QUANTITIES];
        bars(name, bar);
        for (int fault = 0; fault < FAULTS; fault++) {
            tensor_scope_t scope = tensor_scope_begin();
            if (fault == EPSILON) { batch_norm_eps = 2e-5; }
            zoo_job_t j = begin(&trials[i], TENSOR_F32);
            batch_norm_eps = 1e-5;
            nn_named_list_t all = nn_state(j.net);
            int64_t norms = 0, bias = -1;
            for (int64_t k = 0; k < all.count; k++) {
                norms += model_ends(all.item[k].name, "running_var");
                bias = model_ends(all.item[k].name, ".bias") ? k : bias;
            }
            int planted = fault == EPSILON ? norms > 0 : bias >= 0;
            if (fault == MOMENTUM) {
                planted = zoo_find(name)->optimizer == zoo_sgd;
                if (planted) {
                    const double lr = nn_get_lr(j.opt);
                    nn_optimizer_free(j.opt);
                    j.opt = nn_sgd(j.net, .lr = lr, .momentum = 0.9 * 0.99, .weight_decay = 1e-4);
                }
            }
            if (fault == BIAS) { tensor_register_hook(all.item[bias].tensor, no_gradient, NULL); }
            if (planted) {
                train(name, j, far);
                int noticed = 0;
                for (int k = 0; k < QUANTITIES; k++) {
                    noticed += !within(far[k], bar[k]);
                }
                CHECK_MSG(noticed, "%s: a wrong %s is not noticed", name, faults[fault]);
            } else {
                zoo_end(&j);
            }
            tensor_scope_end(scope);
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
    CHECK(strstr(tensor_error_text(), "layer1.0.bn3.weight") != NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "...] at models.c:");
    // All names are others: each kind is said, to the end.
    CHECK(nn_load(path, net) == TENSOR_ERR_FORMAT);
    CHECK(strstr(tensor_error_text(), "320 missing [conv1.weight, ") != NULL);
    CHECK(strstr(tensor_error_text(), "123 unexpected [net.") != NULL);
    CHECK_ERROR(TENSOR_ERR_FORMAT, "...] at models.c:");
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
// A net that remembers, given 6 words in two or three calls, says what it says of all at once.
static void gpt2_remembers(void) {
    gpt2_config_t small = {50, 16, 32, 4, 2, 0};
    nn_module_t *net = gpt2_new(small);
    nn_eval(net);
    int64_t words[12];
    for (int i = 0; i < 12; i++) { words[i] = (i * 7 + 3) % 50; }
    tensor_t *all = tensor_reshape(tensor_from(words, TENSOR_I64, 12), 2, 6), *want = nn_forward(net, all);
    static const int64_t parts[5][3] = {{3, 3, 0}, {1, 5, 0}, {5, 1, 0}, {2, 2, 2}, {1, 1, 4}};
    for (int i = 0; i < 5; i++) {
        ((gpt2_t *)net)->remembers = 1;
        for (int64_t k = 0, at = 0; k < 3 && parts[i][k]; at += parts[i][k], k++) {
            tensor_t *y = nn_forward(net, tensor_narrow(all, 1, at, parts[i][k]));
            tensor_t *far = tensor_sub(y, tensor_narrow(want, 1, at, parts[i][k]));
            const double most = tensor_item(tensor_max(tensor_abs(far)));
            CHECK_MSG(most < 1e-5, "%d: call %d differs by %g", i, (int)k, most);
        }
        gpt2_forget(net);
        ((gpt2_t *)net)->remembers = 0;
    }
    nn_free(net);
}

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
    RUN(notices_faults);
    RUN(published_sizes);
    RUN(generates_as_pytorch);
    RUN(loads_pytorch);
    RUN(refuses_others);
    RUN(loads_gpt2);
    RUN(gpt2_remembers);
    RUN(carries_state);
    nn_safetensors_close(fixture);
    return test_report();
}

// loader.c - batches made in the background: the same for any number of workers, resumed anywhere, ended
// cleanly; samplers, subsets, streams, collate, samples that fail
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE // fork
#endif
#include "test.h"
#ifndef _WIN32
#include <pthread.h>
#endif
#ifdef __linux__
#include <sys/wait.h>
#include <unistd.h>
#endif

enum { SAMPLES = 53 };

// A sample depends on index, epoch and generator: the first by the item's, the second by the thread's.
static int drawn(void *user, nn_item_t *item, void *x, void *y) {
    float *to = (float *)x;
    tensor_t *noise = tensor_rand(2);
    (void)user;
    to[0] = (float)item->index;
    to[1] = (float)item->epoch;
    to[2] = (float)(item->generator.seed >> 40);
    memcpy(to + 3, tensor_data(noise), 2 * sizeof(float));
    *(int64_t *)y = item->index % 3;
    return 0;
}

static nn_dataset_t items(void) {
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.len = SAMPLES;
    d.get_item = drawn;
    d.x_shape.ndim = 1;
    d.x_shape.dims[0] = 5;
    d.y_dtype = TENSOR_I64;
    d.has_y = 1;
    return d;
}

// Everything that a loader gives in its next epochs, and in which order.
static uint64_t whole(nn_data_loader_t *l, int epochs) {
    uint64_t h = TEST_HASH;
    nn_batch_t b;
    tensor_scope_t scope = tensor_scope_begin();
    for (int e = 0; e < epochs; e++) {
        for (; nn_next(l, &b); tensor_scope_reset(scope)) {
            h = test_hash(h, b.x);
            if (b.y) { h = test_hash(h, b.y); }
            h = (h ^ (uint64_t)b.index ^ (uint64_t)b.epoch << 32) * 1099511628211ull;
        }
        h = h * 31 + 7;
    }
    tensor_scope_end(scope);
    CHECK_OK();
    return h;
}

#ifndef _WIN32
// Samples are made by the workers, not by the thread that waits for them.
static int of_which_thread(void *user, nn_item_t *item, void *x, void *y) {
    (void)item, (void)y;
    *(int64_t *)x = pthread_equal(pthread_self(), *(pthread_t *)user) ? 0 : 1;
    return 0;
}
static void in_the_background(void) {
    pthread_t self = pthread_self();
    for (int w = 0; w < 3; w++) {
        nn_batch_t b;
        nn_dataset_t d;
        memset((void *)&d, 0, sizeof d);
        d.len = 8;
        d.get_item = of_which_thread;
        d.user = &self;
        d.x_dtype = TENSOR_I64;
        nn_data_loader_t *l = nn_data_loader(d, .batch_size = 4, .num_workers = w);
        while (nn_next(l, &b)) { CHECK(tensor_item_i64(tensor_sum(b.x)) == (w ? 4 : 0)); }
        nn_data_loader_free(l);
    }
}
#endif

static void workers(void) {
    static const int counts[] = {0, 1, 2, 3, 8};
    uint64_t want = 0, memory = 0;
    tensor_t *x = tensor_reshape(tensor_arange(0, SAMPLES * 4, 1, TENSOR_F32), SAMPLES, 4);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 8, .shuffle = 1, .seed = 5,
                                             .num_workers = counts[k], .prefetch_factor = (int)k);
        uint64_t got = whole(l, 3);
        nn_data_loader_free(l);
        if (k == 0) { want = got; }
        CHECK_MSG(got == want, "%d workers give other batches", counts[k]);
        l = nn_data_loader(nn_tensor_dataset(x, x), .batch_size = 8, .shuffle = 1, .seed = 5, .drop_last = 1,
                           .num_workers = counts[k]);
        got = whole(l, 2);
        nn_data_loader_free(l);
        if (k == 0) { memory = got; }
        CHECK_MSG(got == memory, "%d workers give other rows of memory", counts[k]);
    }
    tensor_generator_t before = tensor_get_generator(), after;
    nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 8, .seed = 5);
    (void)whole(l, 1);
    after = tensor_get_generator();
    CHECK(before.seed == after.seed && before.offset == after.offset); // the thread's is not used up
    nn_data_loader_free(l);
}

// A sample that is computed is the same in the autocast and the no-grad scope of the caller as on a worker.
static int multiplied(void *user, nn_item_t *item, void *x, void *y) {
    tensor_t *a = tensor_rand(8, 8), *b = tensor_matmul(a, a);
    (void)user, (void)item, (void)y;
    return tensor_copy_out(b, x, 64 * sizeof(float));
}
static int multiplied_batch(void *user, nn_item_t *items, int64_t n, tensor_t **x, tensor_t **y) {
    tensor_t *a = tensor_rand(n, 8, 8);
    (void)user, (void)items, (void)y;
    *x = tensor_matmul(a, a);
    return 0;
}
static void scopes_of_the_caller(void) {
    uint64_t want = 0;
    nn_batch_t b;
    for (int whole_batch = 0; whole_batch < 2; whole_batch++) {
        nn_dataset_t d;
        memset((void *)&d, 0, sizeof d);
        d.len = 4;
        d.get_item = multiplied;
        d.collate = whole_batch ? multiplied_batch : NULL;
        d.x_shape.ndim = 2;
        d.x_shape.dims[0] = d.x_shape.dims[1] = 8;
        for (int k = 0; k < 6; k++) {
            nn_data_loader_t *l = nn_data_loader(d, .batch_size = 4, .seed = 5, .num_workers = k % 2);
            tensor_scope_t s = k / 2 == 0 ? tensor_scope_begin() : tensor_scope_begin_no_grad();
            if (k / 2 == 2) { tensor_set_autocast(TENSOR_BF16); }
            CHECK(nn_next(l, &b) && tensor_dtype(b.x) == TENSOR_F32 && !tensor_requires_grad(b.x));
            CHECK(tensor_autocast_dtype() == (k / 2 == 2 ? TENSOR_BF16 : TENSOR_DTYPE_NONE));
            uint64_t got = test_hash(TEST_HASH, b.x);
            if (k == 0) { want = got; }
            CHECK_MSG(got == want, "%d workers, scope %d: other samples", k % 2, k / 2);
            tensor_scope_end(s);
            nn_data_loader_free(l);
        }
    }
    CHECK_OK();
}

// A batch of any place is the same after nn_seek, with workers or without; a loop that ends early may go on.
static void resumes(void) {
    float first[40][5];
    nn_batch_t b;
    int64_t n = 0;
    nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 8, .shuffle = 1, .seed = 9);
    for (int e = 0; e < 2; e++) {
        while (nn_next(l, &b)) { tensor_copy_out(tensor_select(b.x, 0, 0), first[n++], sizeof first[0]); }
    }
    CHECK(n == 14 && nn_num_batches(l) == 7);
    nn_data_loader_free(l);
    for (int w = 0; w < 3; w++) {
        l = nn_data_loader(items(), .batch_size = 8, .shuffle = 1, .seed = 9, .num_workers = w);
        for (int64_t at = n - 1; at >= 0; at--) {
            float row[5];
            CHECK(nn_seek(l, at) == 0 && nn_next(l, &b) && b.index == at % 7 && b.epoch == at / 7);
            tensor_copy_out(tensor_select(b.x, 0, 0), row, sizeof row);
            CHECK_MSG(memcmp(row, first[at], sizeof row) == 0, "%d workers: batch %d after a seek", w,
                      (int)at);
        }
        nn_data_loader_free(l);
    }
}

// A checkpoint is loaded while workers make batches of another place with another seed.
static void resumes_under_way(void) {
    const char *path = "build/loader.checkpoint";
    nn_module_t *m = nn_linear(2, 2);
    for (int workers = 0; workers < 4; workers++) {
        nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 4, .shuffle = 1, .seed = 5,
                                             .num_workers = workers);
        nn_data_loader_t *other = nn_data_loader(items(), .batch_size = 4, .shuffle = 1, .seed = 8,
                                                 .num_workers = workers);
        nn_training_t c;
        nn_batch_t b;
        memset((void *)&c, 0, sizeof c);
        c.module = m;
        c.loader = l;
        for (int k = 0; k < 17; k++) { nn_next(l, &b); }
        CHECK(nn_save_training(path, &c) == 0);
        uint64_t want = whole(l, 2);
        c.loader = other;
        for (int k = 0; k < 3; k++) {
            CHECK(nn_next(other, &b) == 1);             // its workers are ahead
            CHECK(nn_load_training(path, &c) == 0);
            CHECK(whole(other, 2) == want);
        }
        nn_data_loader_free(l);
        nn_data_loader_free(other);
    }
    nn_free(m);
    remove(path);
}

// ---- samples that fail ----

static int fails(void *user, nn_item_t *item, void *x, void *y) {
    (void)x, (void)y;
    if (item->index == 19 && *(int *)user == 1) {
        return tensor_raise(TENSOR_ERR_FORMAT, "cats.bin: record 19: label 12 is above 9");
    }
    if (item->index == 19 && *(int *)user == 2) { return TENSOR_ERR_IO; }
    if (item->index == 19 && *(int *)user == 3) { (void)tensor_matmul(tensor_ones(2, 3), tensor_ones(2, 3)); }
    return 0;
}

// A handler that counts.
static void counts(int code, const char *text, void *user) {
    (void)code, (void)text;
    ++*(int *)user;
}

// One failure is one report, which has the text, the place of get and that of nn_next.
static void one_report(void) {
    int how = 1, told = 0;
    nn_batch_t b;
    nn_dataset_t d = items();
    d.get_item = fails;
    d.user = &how;
    tensor_set_error_handler(counts, &told);
    for (int w = 0; w < 3; w++) {
        nn_data_loader_t *l = nn_data_loader(d, .batch_size = 32, .num_workers = w);
        told = 0;
        CHECK(!nn_next(l, &b));
        CHECK_MSG(told == 1, "%d workers: %d reports", w, told);
        CHECK(strstr(tensor_error_text(), "label 12 is above 9 (loader.c:") != NULL);
        CHECK_ERROR(TENSOR_ERR_FORMAT, ") at loader.c:");
        (void)tensor_matmul(tensor_ones(2, 3), tensor_ones(2, 3));      // and later ones are reported as ever
        CHECK(told == 2);
        CHECK_ERROR(TENSOR_ERR_SHAPE, "matmul");
        nn_data_loader_free(l);
    }
    tensor_set_error_handler(test_quiet, NULL);
}

static void failures(void) {
    int how = 0;
    nn_batch_t b;
    nn_dataset_t d = items();
    d.get_item = fails;
    d.user = &how;
    for (int w = 0; w < 4; w++) {
        tensor_scope_t scope = tensor_scope_begin();
        nn_data_loader_t *l = nn_data_loader(d, .batch_size = 8, .num_workers = w);
        static const struct {
            int code;
            const char *text;
        } want[] = {{TENSOR_ERR_FORMAT, "next: sample 19: cats.bin: record 19: label 12 is above 9"},
                    {TENSOR_ERR_IO, "get failed for sample 19 with code"},
                    {TENSOR_ERR_SHAPE, "next: sample 19: matmul: "}};
        for (how = 1; how <= 3; how++) {
            nn_seek(l, 0);
            CHECK(nn_next(l, &b) && nn_next(l, &b) && !nn_next(l, &b));
            CHECK(tensor_is_poison(b.x) && tensor_is_poison(b.y) && b.size == 0);
            CHECK(nn_next(l, &b) == 0); // while the error is pending
            CHECK_ERROR(want[how - 1].code, want[how - 1].text);
        }
        how = 2;
        CHECK(nn_next(l, &b) && b.index == 0 && b.epoch == 1); // that epoch is over
        for (int epoch = 1; epoch < 4; epoch++) {              // and so are the next ones, at the same sample
            CHECK(nn_next(l, &b) && b.index == 1 && !nn_next(l, &b));
            CHECK_ERROR(TENSOR_ERR_IO, "sample 19");
            CHECK(nn_next(l, &b) && b.index == 0 && b.epoch == epoch + 1);
        }
        nn_seek(l, 2);
        how = 0;
        CHECK(nn_next(l, &b) && b.index == 2 && b.epoch == 0); // the batch that failed, tried again
        how = 2;
        nn_seek(l, 1);
        CHECK(nn_next(l, &b)); // 2 is being made, or was: its failure is not this one's
        nn_data_loader_free(l);
        how = 0;
        tensor_scope_end(scope);
        CHECK_OK();
    }
}

// A stream whose sample 5 of epoch 0 fails: epoch 1 begins at its begin.
static int broken_stream(void *user, nn_item_t *item, void *x, void *y) {
    (void)user, (void)y;
    if (item->epoch == 0 && item->index == 5) { return tensor_raise(TENSOR_ERR_FORMAT, "log.csv: record 5"); }
    if (item->index == 7) { return NN_END; }
    *(int64_t *)x = item->index + 100 * item->epoch;
    return 0;
}

static void failed_stream(void) {
    nn_batch_t b;
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.next = broken_stream;
    d.x_dtype = TENSOR_I64;
    for (int w = 0; w < 4; w++) {
        nn_data_loader_t *l = nn_data_loader(d, .batch_size = 2, .num_workers = w);
        CHECK(nn_next(l, &b) && nn_next(l, &b) && !nn_next(l, &b));
        CHECK_ERROR(TENSOR_ERR_FORMAT, "next: sample 5: log.csv: record 5");
        int64_t seen = 0;
        while (nn_next(l, &b)) {
            for (int64_t i = 0; i < b.size; i++) {
                CHECK(tensor_item_i64(tensor_select(b.x, 0, i)) == 100 + seen++);
            }
        }
        CHECK(seen == 7);
        nn_data_loader_free(l);
    }
}

// ---- what is in the background ends ----

static void early_ends(void) {
    nn_batch_t b;
    tensor_context_t *own = tensor_context_new(), *before = tensor_context_use(own);
    for (int k = 0; k < 30; k++) {
        nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 3, .num_workers = 1 + k % 3);
        for (int i = 0; i < k % 5; i++) { CHECK(nn_next(l, &b)); }
        if (k % 2) { nn_data_loader_free(l); }
    }
    CHECK_OK();
    CHECK(tensor_shutdown() == 0); // ends the others
    tensor_context_use(own);
    nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 3, .num_workers = 2);
    CHECK(nn_next(l, &b));
    tensor_context_use(before);
    CHECK(tensor_context_free(own) == 0);
}

// ---- a dataset that calls its own loader

static nn_data_loader_t *own;
static int calls_back(void *user, int64_t index, void *x, void *y) {
    nn_batch_t b;
    (void)y;
    *(float *)x = (float)index;
    if (*(int *)user == 0) { return nn_next(own, &b); }
    return *(int *)user == 1 ? nn_seek(own, 0) : nn_data_loader_free(own);
}

static void called_back(void) {
    int how = 0;
    nn_batch_t b;
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.len = 9;
    d.get = calls_back;
    d.user = &how;
    for (int w = 0; w < 3; w++) {
        for (how = 0; how < 3; how++) {
            own = nn_data_loader(d, .batch_size = 3, .num_workers = w);
            CHECK(!nn_next(own, &b));
            CHECK_ERROR(TENSOR_ERR_OWNER, "not in a function of the loader's own dataset");
            CHECK(nn_data_loader_free(own) == 0);
        }
    }
}

// ---- subsets and samplers ----

static void subsets(void) {
    nn_batch_t b;
    nn_dataset_t part[3], d = items();
    int seen[SAMPLES] = {0};
    int64_t lengths[3] = {30, 20, 3}, wrong[2] = {30, 20};
    CHECK(nn_random_split(d, lengths, 3, 7, part) == 0);
    CHECK_OK();
    for (int k = 0; k < 3; k++) {
        nn_data_loader_t *l = nn_data_loader(part[k], .batch_size = 7, .shuffle = k == 1, .num_workers = k);
        int64_t n = 0;
        for (; nn_next(l, &b); n += b.size) {
            for (int64_t i = 0; i < b.size; i++) {
                seen[(int)tensor_item(tensor_select(tensor_select(b.x, 0, i), 0, 0))]++;
            }
        }
        CHECK(n == lengths[k]);
        nn_data_loader_free(l);
    }
    for (int i = 0; i < SAMPLES; i++) { CHECK(seen[i] == 1); }
    CHECK(nn_random_split(d, wrong, 2, 7, part) == TENSOR_ERR_SHAPE);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "do not add up to the 53");
    int64_t list[3] = {5, 5, 52}, inner[2] = {2, 0}, out[1] = {53};
    d = nn_subset(nn_subset(d, tensor_from(list, TENSOR_I64, 3)), tensor_from(inner, TENSOR_I64, 2));
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 2);
    CHECK(d.len == 2 && nn_next(l, &b) && tensor_item(tensor_at(b.x, "0, 0")) == 52 &&
          tensor_item(tensor_at(b.x, "1, 0")) == 5);
    nn_data_loader_free(l);
    CHECK(nn_subset(items(), tensor_from(out, TENSOR_I64, 1)).len == -1);
    CHECK_ERROR(TENSOR_ERR_INDEX, "indices[0] is 53, the dataset has 53");
    tensor_t *x = tensor_arange(0, 10, 1, TENSOR_F32);
    d = nn_subset(nn_tensor_dataset(x, NULL), tensor_from(list, TENSOR_I64, 2));
    l = nn_data_loader(d, .batch_size = 2);
    CHECK(nn_next(l, &b) && tensor_item(tensor_sum(b.x)) == 10);
    nn_data_loader_free(l);
}

static int64_t firsts(nn_data_loader_t *l, int64_t *out) {
    nn_batch_t b;
    int64_t n = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (; nn_next(l, &b); tensor_scope_reset(scope)) {
        for (int64_t i = 0; i < b.size; i++) { out[n++] = tensor_item_i64(tensor_select(b.x, 0, i)); }
    }
    tensor_scope_end(scope);
    return n;
}

static int backwards(const nn_sampler_t *s, int64_t len, int64_t epoch, uint64_t seed, int64_t *out) {
    (void)epoch, (void)seed;
    for (int64_t i = 0; i < s->count; i++) { out[i] = len - 1 - i + *(int64_t *)s->user; }
    return 0;
}

// The indices are the loader's own, and are looked at when it takes them.
static void indices_change(void) {
    nn_batch_t b;
    tensor_t *x = tensor_arange(0, 6, 1, TENSOR_F32), *indices = tensor_full_of(TENSOR_I64, 4, 3);
    nn_dataset_t d = nn_subset(nn_tensor_dataset(x, NULL), indices);
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 3);
    tensor_fill_(indices, 777);
    CHECK(nn_next(l, &b) && tensor_item(tensor_min(b.x)) == 4 && tensor_item(tensor_max(b.x)) == 4);
    nn_data_loader_free(l);
    CHECK(nn_data_loader(d) == NULL);
    CHECK_ERROR(TENSOR_ERR_INDEX, "data_loader: the dataset's indices[0] is 777, must be in 0..");
    tensor_fill_(indices, 5);
    d.len = 4;
    CHECK(nn_data_loader(d) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "data_loader: the dataset's indices i64 [3] must be i64 [4]");
}

static void samplers(void) {
    static int64_t got[40000];
    tensor_t *x = tensor_arange(0, 10, 1, TENSOR_I64);
    nn_dataset_t d = nn_tensor_dataset(x, NULL);
    double weights[10] = {0, 1, 2, 3, 0, 4, 0, 0, 0, 0}, count[10] = {0};
    tensor_t *w = tensor_from(weights, TENSOR_F64, 10);
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 64, .seed = 3, .num_workers = 1,
                                         .sampler = nn_weighted_random_sampler(w, 40000, 1));
    CHECK(firsts(l, got) == 40000);
    for (int i = 0; i < 40000; i++) { count[got[i]]++; }
    // 4 standard deviations of a binomial of 40000
    for (int i = 0; i < 10; i++) { CHECK_NEAR(count[i] / 40000, weights[i] / 10, 4 * 0.5 / 200); }
    CHECK(count[0] == 0 && count[9] == 0);
    nn_data_loader_free(l);
    int at_first[10] = {0};
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        l = nn_data_loader(d, .batch_size = 10, .seed = seed, .sampler = nn_weighted_random_sampler(w, 4, 0));
        CHECK(firsts(l, got) == 4 && got[0] + got[1] + got[2] + got[3] == 1 + 2 + 3 + 5);
        at_first[got[0]]++;
        nn_data_loader_free(l);
    }
    for (int i = 0; i < 10; i++) { CHECK_NEAR(at_first[i] / 2000.0, weights[i] / 10, 4 * 0.5 / 44.7); }
    l = nn_data_loader(d, .sampler = nn_weighted_random_sampler(w, 5, 0));
    CHECK(firsts(l, got) == 0);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "5 samples of 10 by weights [10]");
    nn_data_loader_free(l);

    // The numbers of torch.utils.data.DistributedSampler(range(10), 4, rank, shuffle=False)
    static const int64_t padded[4][3] = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
    for (int rank = 0; rank < 4; rank++) {
        l = nn_data_loader(d, .sampler = nn_distributed_sampler(4, rank, 0, 0));
        CHECK(nn_num_batches(l) == 3 && firsts(l, got) == 3);
        CHECK(memcmp(got, padded[rank], sizeof padded[0]) == 0);
        nn_data_loader_free(l);
        l = nn_data_loader(d, .sampler = nn_distributed_sampler(4, rank, 0, 1));
        CHECK(firsts(l, got) == 2 && got[1] == rank + 4);
        nn_data_loader_free(l);
    }
    int seen[10] = {0};
    for (int rank = 0; rank < 2; rank++) {
        l = nn_data_loader(d, .seed = 4, .sampler = nn_distributed_sampler(2, rank, 1, 0));
        CHECK(firsts(l, got) == 5);
        for (int i = 0; i < 5; i++) { seen[got[i]]++; }
        nn_data_loader_free(l);
    }
    for (int i = 0; i < 10; i++) { CHECK(seen[i] == 1); }
    CHECK(nn_data_loader(d, .sampler = nn_distributed_sampler(2, 2, 0, 0)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "rank 2 must be in 0..world_size - 1, world_size is 2");
    CHECK(nn_data_loader(d, .sampler = nn_distributed_sampler(0, 0, 0, 0)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "world_size is 0");
    tensor_t *few = tensor_ones(3);
    CHECK(nn_data_loader(d, .sampler = nn_weighted_random_sampler(few, 5, 1)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "weights [3] must be [10], one for each sample");

    int64_t more = 0;
    nn_sampler_t own;
    memset((void *)&own, 0, sizeof own);
    own.order = backwards;
    own.count = 3;
    own.user = &more;
    l = nn_data_loader(d, .sampler = own);
    CHECK(firsts(l, got) == 3 && got[0] == 9 && got[2] == 7);
    more = 1;
    CHECK(firsts(l, got) == 0);
    CHECK_ERROR(TENSOR_ERR_INDEX, "gives index 10, must be in 0..9");
    nn_data_loader_free(l);
    CHECK(nn_data_loader(d, .shuffle = 1, .sampler = own) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "a sampler cannot be combined with shuffle");
}

// ---- streams and collate ----

// 11 samples in epoch 0, 4 in epoch 1, none in epoch 2.
static int streamed(void *user, nn_item_t *item, void *x, void *y) {
    static const int64_t left[] = {11, 4, 0, 8};
    (void)user, (void)y;
    if (item->index >= left[item->epoch % 4]) { return NN_END; }
    *(int64_t *)x = item->index + 100 * item->epoch;
    return 0;
}

static void streams(void) {
    nn_dataset_t d;
    nn_batch_t b;
    memset((void *)&d, 0, sizeof d);
    d.next = streamed;
    d.x_dtype = TENSOR_I64;
    for (int w = 0; w < 3; w++) {
        for (int drop = 0; drop < 2; drop++) {
            static const int64_t sizes[2][4] = {{11, 4, 0, 8}, {8, 4, 0, 8}};
            nn_data_loader_t *l = nn_data_loader(d, .batch_size = 4, .num_workers = w, .drop_last = drop);
            CHECK(nn_num_batches(l) == -1);
            for (int e = 0; e < 4; e++) {
                int64_t n = 0;
                for (; nn_next(l, &b); n += b.size) {
                    for (int64_t i = 0; i < b.size; i++) {
                        CHECK(tensor_item_i64(tensor_select(b.x, 0, i)) == n + i + 100 * e && b.epoch == e);
                    }
                }
                CHECK_MSG(n == sizes[drop][e], "%d workers, epoch %d: %d samples", w, e, (int)n);
            }
            CHECK(nn_seek(l, 2) == 0 && nn_next(l, &b) == !drop);
            CHECK(drop || tensor_item_i64(tensor_at(b.x, "2")) == 10);
            CHECK(nn_seek(l, INT64_MAX) == 0 && nn_next(l, &b) == 0);
            nn_data_loader_free(l);
            // Into the second epoch: batch 1 of it; its end; the third one has no batch.
            const int first = drop ? 5 : 6;
            l = nn_data_loader(d, .batch_size = 2, .num_workers = w, .drop_last = drop);
            CHECK(nn_seek(l, first + 1) == 0 && nn_next(l, &b) && b.epoch == 1 && b.index == 1);
            CHECK(tensor_item_i64(tensor_at(b.x, "0")) == 102 && nn_next(l, &b) == 0);
            CHECK(nn_next(l, &b) == 0 && nn_next(l, &b) && b.epoch == 3 && b.index == 0);
            CHECK(nn_seek(l, first + 2) == 0 && nn_next(l, &b) == 0 && nn_next(l, &b) == 0);
            CHECK(nn_next(l, &b) && b.epoch == 3 && tensor_item_i64(tensor_at(b.x, "0")) == 300);
            CHECK(nn_seek(l, first + 3) == 0 && nn_next(l, &b) == 0 && nn_next(l, &b) && b.epoch == 3);
            nn_data_loader_free(l);
        }
    }
    CHECK_OK();
    CHECK(nn_data_loader(d, .shuffle = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "a stream cannot be shuffled");
}

// Words of 1..4 letters, filled up with -1 to the longest of the batch.
static int padded(void *user, nn_item_t *item, int64_t n, tensor_t **x, tensor_t **y) {
    int64_t longest = 0;
    (void)user;
    for (int64_t i = 0; i < n; i++) {
        if (item[i].index == 40) { return TENSOR_ERR_IO; }
        if (1 + item[i].index % 4 > longest) { longest = 1 + item[i].index % 4; }
    }
    *x = tensor_full_of(TENSOR_I64, -1, n, longest);
    *y = tensor_zeros_of(TENSOR_I64, n);
    int64_t *to = (int64_t *)tensor_data_mut(*x), *length = (int64_t *)tensor_data_mut(*y);
    for (int64_t i = 0; i < n; i++) {
        length[i] = 1 + item[i].index % 4;
        for (int64_t k = 0; k < length[i]; k++) { to[i * longest + k] = item[i].index; }
    }
    return 0;
}

static void collated(void) {
    nn_dataset_t d;
    nn_batch_t b;
    memset((void *)&d, 0, sizeof d);
    d.len = 21;
    d.collate = padded;
    uint64_t want = 0;
    for (int w = 0; w < 4; w++) {
        nn_data_loader_t *l = nn_data_loader(d, .batch_size = 2, .num_workers = w, .shuffle = 1, .seed = 2);
        uint64_t got = whole(l, 2);
        if (w == 0) { want = got; }
        CHECK_MSG(got == want, "%d workers collate otherwise", w);
        nn_data_loader_free(l);
        l = nn_data_loader(d, .batch_size = 2, .num_workers = w);
        CHECK(nn_next(l, &b) && b.size == 2 && tensor_size(b.x, 1) == 2 && nn_next(l, &b) &&
              tensor_size(b.x, 1) == 4);
        nn_data_loader_free(l);
    }
    d.len = 41;
    nn_data_loader_t *l = nn_data_loader(d, .batch_size = 2, .num_workers = 2);
    while (nn_next(l, &b)) { }
    CHECK_ERROR(TENSOR_ERR_IO, "sample 40");
    nn_data_loader_free(l);
}

// A child of fork has no workers: it starts its own.
static void forked(void) {
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
    nn_batch_t b;
    nn_data_loader_t *l = nn_data_loader(items(), .batch_size = 8, .num_workers = 2, .seed = 5);
    CHECK(nn_next(l, &b));
    double next = 0;
    fflush(stdout);
    pid_t child = fork();
    if (nn_next(l, &b)) { next = tensor_item(tensor_at(b.x, "0, 0")); }
    if (child == 0) { _exit(next == 8 ? 0 : 1); }
    int status = 1;
    CHECK(next == 8 && waitpid(child, &status, 0) == child && status == 0);
    nn_data_loader_free(l);
#endif
}

// A sample that a sampler or a list of indices repeats within an epoch has another generator each time, which
// depends on neither the workers nor where the loader began.
static void repeated_samples(void) {
    const float weight[2] = {1, 3};
    const int64_t twice[6] = {4, 4, 4, 4, 4, 4};
    tensor_t *weights = tensor_from(weight, TENSOR_F32, 2), *list = tensor_from(twice, TENSOR_I64, 6);
    for (int kind = 0; kind < 2; kind++) {
        float first[6][5];
        nn_dataset_t d = items();
        if (kind == 0) { d.len = 2; }
        if (kind == 1) { d = nn_subset(d, list); }
        for (int workers = 0; workers < 3; workers++) {
            nn_data_loader_args_t a = nn_data_loader_defaults();
            a.dataset = d;
            a.batch_size = 2;
            a.num_workers = workers;
            a.seed = 9;
            if (kind == 0) { a.sampler = nn_weighted_random_sampler(weights, 6, 1); }
            nn_data_loader_t *l = nn_data_loader_with(a);
            nn_batch_t b;
            int from = workers == 2 ? 1 : 0;        // one of them begins with the second batch
            CHECK(nn_seek(l, from) == 0);
            for (int k = from; k < 3; k++) {
                CHECK(nn_next(l, &b) && b.index == k);
                const float *rows = (const float *)tensor_data(b.x);
                if (workers == 0) { memcpy(first[2 * k], rows, sizeof first[0] * 2); }
                CHECK(memcmp(first[2 * k], rows, sizeof first[0] * 2) == 0);
            }
            CHECK(!nn_next(l, &b));
            nn_data_loader_free(l);
        }
        for (int i = 0; i < 6; i++) {
            for (int j = 0; j < i; j++) {
                CHECK(first[i][2] != first[j][2] && memcmp(first[i] + 3, first[j] + 3, 8) != 0);
            }
        }
    }
}

// A place as far as numbers go, by nn_seek and by a file that lies: no overflow, and an epoch ends.
static int nothing_left(void *user, nn_item_t *item, void *x, void *y) {
    (void)user, (void)item, (void)x, (void)y;
    return NN_END;
}
static void far_places(void) {
    const char *path = "build/loader.far";
    nn_module_t *m = nn_linear(1, 1);
    nn_dataset_t d;
    memset((void *)&d, 0, sizeof d);
    d.next = nothing_left;
    nn_data_loader_t *l[2];
    l[0] = nn_data_loader(items(), .batch_size = SAMPLES);
    l[1] = nn_data_loader(d, .batch_size = 1 << 20);
    for (int k = 0; k < 2; k++) {
        nn_batch_t b;
        nn_training_t c;
        memset((void *)&c, 0, sizeof c);
        c.module = m;
        c.loader = l[k];
        CHECK(nn_seek(l[k], INT64_MAX) == 0);
        CHECK(nn_next(l[k], &b) == (k == 0) && nn_next(l[k], &b) == 0);

        // The file's place is changed to 2^53 batches: of the loader without a stream that is refused.
        CHECK(nn_seek(l[k], 0) == 0 && nn_save_training(path, &c) == 0);
        nn_safetensors_t *r = nn_safetensors_open(path);
        const char *names[8];
        tensor_t *list[8];
        int64_t n = nn_safetensors_count(r);
        CHECK(n <= 8);
        for (int64_t i = 0; i < n; i++) {
            names[i] = nn_safetensors_name(r, i);
            list[i] = nn_safetensors_get(r, names[i]);
            if (strcmp(names[i], "training/loader") == 0) {
                ((int64_t *)tensor_data_mut(list[i]))[2] = (int64_t)1 << 53;
            }
        }
        const nn_metadata_t meta[3] = {{"step", "0"}, {"generator.seed", "1"}, {"generator.offset", "0"}};
        CHECK(nn_safetensors_write(path, names, list, (int)n, meta, 3) == 0);
        CHECK(nn_safetensors_close(r) == 0);
        CHECK(nn_load_training(path, &c) == (k == 0 ? TENSOR_ERR_FORMAT : 0));
        tensor_clear_error();
        CHECK(nn_next(l[k], &b) == (k == 0));
        CHECK(nn_data_loader_free(l[k]) == 0);
    }
    nn_free(m);
    remove(path);
}

// An object of another kind is noticed before it is read as a loader.
static void other_objects(void) {
    nn_module_t *net = nn_linear(2, 2);
    nn_optimizer_t *o = nn_sgd(net);
    tensor_t *t = tensor_ones(2);
    nn_data_loader_t *l = nn_data_loader(nn_tensor_dataset(tensor_ones(2, 1), NULL));
    nn_batch_t b;
    CHECK(nn_next((nn_data_loader_t *)(void *)o, &b) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "next: another object was given, a loader is wanted");
    CHECK(nn_next((nn_data_loader_t *)(void *)net, &b) == 0);
    CHECK_ERROR(TENSOR_ERR_OWNER, "next: a module was given, a loader is wanted");
    CHECK(nn_seek((nn_data_loader_t *)(void *)t, 0) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "seek: a tensor was given, a loader is wanted");
    CHECK(nn_zero_grad((nn_optimizer_t *)(void *)t) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "zero_grad: a tensor was given, its optimizer is wanted");
    CHECK(nn_step((nn_optimizer_t *)(void *)l) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "step: another object was given, its optimizer is wanted");
    CHECK(tensor_graph_replay((tensor_graph_t *)(void *)net) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_replay: what was given is not a graph");
    CHECK(nn_next(l, &b) == 1);
    nn_data_loader_free(l);
    nn_optimizer_free(o);
    nn_free(net);
}

int main(void) {
#ifndef _WIN32
    RUN(in_the_background);
#endif
    RUN(workers);
    RUN(scopes_of_the_caller);
    RUN(resumes);
    RUN(resumes_under_way);
    RUN(failures);
    RUN(one_report);
    RUN(failed_stream);
    RUN(early_ends);
    RUN(called_back);
    RUN(subsets);
    RUN(indices_change);
    RUN(samplers);
    RUN(streams);
    RUN(repeated_samples);
    RUN(far_places);
    RUN(collated);
    RUN(forked);
    RUN(other_objects);
    return test_report();
}

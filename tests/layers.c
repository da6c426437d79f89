// layers.c - layers whose numbers come from tests/fixtures/layers.py: batch norm over ranks (threads here),
// softmax over many classes, pools whose windows are drawn; and options of one dim of convolutions and pools
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "test.h"

#ifdef __linux__
#include <pthread.h>
#endif

static nn_safetensors_t *fixture;

static tensor_t *from(const char *what, const char *name) {
    char text[80];
    snprintf(text, sizeof text, "%s/%s", what, name);
    return nn_safetensors_get(fixture, text);
}

static double apart(tensor_t *a, tensor_t *b) {
    tensor_scope_t scope = tensor_scope_begin_no_grad();
    double d = tensor_item(tensor_max(tensor_abs(tensor_sub(a, b))));
    tensor_scope_end(scope);
    return d;
}

// ---- batch norm over processes

#ifdef __linux__
enum { RANKS = 2 };

// Sums that wait for each other. The last to come gives the sum to all.
typedef struct sums_t {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    double sum[64], result[64];
    int here, round;
} sums_t;

typedef struct rank_t {
    sums_t *sums;
    nn_module_t *norm;
    tensor_t *x, *g, *y, *grad; // kept
    double mean;
    int64_t calls, fail_at;
    int code;
} rank_t;

static int sum_of_ranks(tensor_t *x, void *user) {
    rank_t *rank = (rank_t *)user;
    sums_t *s = rank->sums;
    double *data = (double *)tensor_data_mut(x);
    int64_t n = tensor_numel(x);
    if (++rank->calls == rank->fail_at) {
        return tensor_raise(TENSOR_ERR_IO, "a rank has gone");
    }
    pthread_mutex_lock(&s->lock);
    int round = s->round;
    for (int64_t i = 0; i < n; i++) {
        s->sum[i] = (s->here ? s->sum[i] : 0) + data[i];
    }
    if (++s->here == RANKS) {
        memcpy(s->result, s->sum, sizeof s->result);
        s->here = 0;
        s->round++;
        pthread_cond_broadcast(&s->all_here);
    }
    while (s->round == round) {
        pthread_cond_wait(&s->all_here, &s->lock);
    }
    memcpy(data, s->result, (size_t)n * sizeof *data);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void *run_rank(void *user) {
    rank_t *rank = (rank_t *)user;
    tensor_set_error_handler(test_quiet, NULL);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_requires_grad_(tensor_clone(rank->x), 1);
    tensor_t *y = nn_forward(rank->norm, x);
    tensor_backward(tensor_sum(tensor_mul(y, rank->g)));
    rank->y = tensor_keep(tensor_clone(tensor_detach(y)));
    rank->grad = tensor_keep(tensor_clone(tensor_grad(x)));
    rank->code = tensor_error_code();
    tensor_scope_end(scope);
    tensor_thread_end();
    return NULL;
}

static void two_ranks(void) {
    static sums_t sums = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, {0}, 0, 0};
    rank_t rank[RANKS];
    pthread_t thread[RANKS];
    memset((void *)rank, 0, sizeof rank);
    for (int k = 0; k < RANKS; k++) {
        rank[k].sums = &sums;
        rank[k].norm = nn_sync_batch_norm(3, .momentum = 0.3, .all_reduce = sum_of_ranks, .user = &rank[k]);
        nn_to(rank[k].norm, TENSOR_F64);
        tensor_scope_t scope = tensor_scope_begin_no_grad();
        tensor_copy_(nn_get(rank[k].norm, "weight"), from("sync", "weight"));
        tensor_copy_(nn_get(rank[k].norm, "bias"), from("sync", "bias"));
        tensor_scope_end(scope);
        rank[k].x = tensor_keep(tensor_narrow(from("sync", "x"), 0, k ? 2 : 0, k ? 4 : 2));
        rank[k].g = tensor_keep(tensor_narrow(from("sync", "g"), 0, k ? 2 : 0, k ? 4 : 2));
    }
    for (int k = 0; k < RANKS; k++) {
        CHECK(pthread_create(&thread[k], NULL, run_rank, &rank[k]) == 0);
    }
    for (int k = 0; k < RANKS; k++) {
        pthread_join(thread[k], NULL);
    }
    CHECK(rank[0].code == 0 && rank[1].code == 0 && rank[0].calls == 4 && rank[1].calls == 4);
    CHECK_NEAR(apart(tensor_cat(0, rank[0].y, rank[1].y), from("sync", "y")), 0, 1e-13);
    CHECK_NEAR(apart(tensor_cat(0, rank[0].grad, rank[1].grad), from("sync", "grad.x")), 0, 1e-13);
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "bias" : "weight", *grad = k ? "grad.bias" : "grad.weight";
        tensor_t *a = tensor_grad(nn_get(rank[0].norm, name)), *b = tensor_grad(nn_get(rank[1].norm, name));
        CHECK_NEAR(apart(tensor_add(a, b), from("sync", grad)), 0, 1e-12);
        CHECK_NEAR(apart(nn_get(rank[k].norm, "running_mean"), from("sync", "running_mean")), 0, 1e-14);
        CHECK_NEAR(apart(nn_get(rank[k].norm, "running_var"), from("sync", "running_var")), 0, 1e-13);
        CHECK(tensor_item_i64(nn_get(rank[k].norm, "num_batches_tracked")) == 1);
    }
    for (int k = 0; k < RANKS; k++) {
        tensor_t *kept[] = {rank[k].x, rank[k].g, rank[k].y, rank[k].grad};
        for (int i = 0; i < 4; i++) {
            tensor_free(kept[i]);
        }
        nn_free(rank[k].norm);
    }
}
#endif

// Twice the sums and twice the count: what one process alone computes, but for the sample variance.
static int twice(tensor_t *x, void *user) {
    ++*(int *)user;
    tensor_mul_scalar_(x, 2);
    return tensor_error_code();
}

static int gone(tensor_t *x, void *user) {
    (void)x;
    return user ? tensor_raise(TENSOR_ERR_IO, "a rank has gone") : 1;
}

static void alone(void) {
    int calls = 0, there = 0;
    nn_module_t *sync = nn_sync_batch_norm(3, .all_reduce = twice, .user = &calls);
    nn_module_t *norm = nn_batch_norm2d(3), *single = nn_sync_batch_norm(3);
    tensor_t *x = tensor_requires_grad_(tensor_randn(4, 3, 5, 2), 1), *g = tensor_randn(4, 3, 5, 2), *grad[3];
    nn_module_t *all[] = {sync, norm, single};
    for (int k = 0; k < 3; k++) {
        tensor_t *y = nn_forward(all[k], x), *sum = tensor_sum(tensor_mul(y, g));
        CHECK_NEAR(apart(y, nn_forward(norm, x)), 0, 1e-5);
        CHECK(tensor_autograd_grad(&sum, 1, NULL, &x, 1, &grad[k], 0) == 0);
    }
    CHECK(calls == 4);
    CHECK_NEAR(apart(grad[2], grad[1]), 0, 0);
    CHECK(apart(nn_get(sync, "running_mean"), nn_get(single, "running_mean")) < 1e-6);
    nn_eval(sync);
    CHECK(nn_load_memory(tensor_data(nn_save_memory(norm)), (size_t)tensor_numel(nn_save_memory(norm)), sync,
                         0) == 0);
    CHECK(tensor_equal(nn_forward(sync, x), nn_forward(nn_eval(norm), x)) && calls == 4);
    // Also in halves, without weights, without statistics, and as a clone.
    nn_module_t *plain = nn_sync_batch_norm(3, .no_affine = 1, .no_track_running_stats = 1,
                                            .all_reduce = twice, .user = &calls);
    tensor_t *half = tensor_to(tensor_detach(x), TENSOR_BF16);
    CHECK(tensor_dtype(nn_forward(plain, half)) == TENSOR_BF16 && nn_parameters(plain, NULL, 0) == 0);
    nn_module_t *copy = nn_clone(plain);
    CHECK(tensor_equal(nn_forward(copy, half), nn_forward(plain, half)) && calls == 10);
    nn_module_t *broken[] = {nn_sync_batch_norm(3, .all_reduce = gone, .user = &there),
                             nn_sync_batch_norm(3, .all_reduce = gone)};
    CHECK_POISON(nn_forward(broken[0], x), TENSOR_ERR_IO, "a rank has gone");
    CHECK_POISON(nn_forward(broken[1], x), TENSOR_ERR_INTERNAL, "all_reduce failed");
    CHECK_POISON(nn_forward(sync, tensor_zeros(4, 5)), TENSOR_ERR_SHAPE, "must be floats [N, 3, ...]");
    CHECK(nn_sync_batch_norm(0) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "channels must be > 0");
    nn_module_t *rest[] = {sync, norm, single, plain, copy, broken[0], broken[1]};
    for (int k = 0; k < 7; k++) {
        nn_free(rest[k]);
    }
}

// ---- softmax over many classes

static void adaptive(void) {
    nn_module_t *net = nn_adaptive_log_softmax_with_loss(8, 20, .cutoffs = TENSOR_DIMS(4, 10), .div_value = 2,
                                                         .head_bias = 1);
    CHECK(nn_to(net, TENSOR_F64) == 0);
    CHECK_MSG(
        nn_load("tests/fixtures/kit/layers.safetensors", net, .partial = 1, .prefix = "adaptive/net.") == 0,
        "%s", tensor_error_text());
    nn_named_list_t list = nn_named_parameters(net);
    CHECK(list.count == 6);
    tensor_t *x = tensor_requires_grad_(from("adaptive", "x"), 1), *target = from("adaptive", "target");
    tensor_t *loss = nn_call(net, x, target), *output = nn_adaptive_output(net, x, target);
    CHECK_NEAR(tensor_item(loss), tensor_item(from("adaptive", "loss")), 1e-14);
    CHECK_NEAR(apart(output, from("adaptive", "output")), 0, 1e-14);
    CHECK_NEAR(apart(nn_adaptive_log_prob(net, x), from("adaptive", "log_prob")), 0, 1e-14);
    CHECK(tensor_equal(nn_adaptive_predict(net, x), from("adaptive", "predict")));
    tensor_backward(loss);
    CHECK_NEAR(apart(tensor_grad(x), from("adaptive", "grad.x")), 0, 1e-15);
    for (int64_t i = 0; i < list.count; i++) {
        char name[60];
        snprintf(name, sizeof name, "grad.%s", list.item[i].name);
        CHECK_NEAR(apart(tensor_grad(list.item[i].tensor), from("adaptive", name)), 0, 1e-14);
    }
    // One sample without a batch; i32; a clone; classes of the head alone; all classes sum to 1.
    tensor_t *one = tensor_select(x, 0, 4), *of = tensor_select(target, 0, 4);
    CHECK_NEAR(tensor_item(nn_adaptive_output(net, one, of)), tensor_item(tensor_select(output, 0, 4)),
               1e-14);
    CHECK(tensor_ndim(nn_adaptive_predict(net, one)) == 0 &&
          tensor_size(nn_adaptive_log_prob(net, one), 0) == 20);
    nn_module_t *copy = nn_clone(net);
    CHECK(tensor_equal(nn_call(copy, x, tensor_to(target, TENSOR_I32)), loss));
    CHECK_NEAR(tensor_item(nn_call(net, x, tensor_zeros_of(TENSOR_I64, 9))),
               -tensor_item(tensor_mean(tensor_select(nn_adaptive_log_prob(net, x), 1, 0))), 1e-14);
    CHECK_NEAR(tensor_item(tensor_sum(tensor_exp(nn_adaptive_log_prob(net, x)))), 9, 1e-13);
    nn_free(copy);

    CHECK_POISON(nn_call(net, x, tensor_full_n(TENSOR_DIMS(9), 20, TENSOR_I64)), TENSOR_ERR_INDEX,
                 "not in 0..19");
    CHECK_POISON(nn_call(net, x, tensor_full_n(TENSOR_DIMS(9), -1, TENSOR_I64)), TENSOR_ERR_INDEX,
                 "not in 0..19");
    CHECK_POISON(nn_call(net, x, tensor_zeros_of(TENSOR_I64, 8)), TENSOR_ERR_SHAPE,
                 "target [8] must have the dims of x [9,8] without the last");
    CHECK_POISON(nn_call(net, x, tensor_zeros(9)), TENSOR_ERR_DTYPE, "must be i32 or i64");
    CHECK_POISON(nn_call(net, tensor_zeros(9, 7), target), TENSOR_ERR_SHAPE, "must be [N, 8] or [8]");
    CHECK_POISON(nn_adaptive_log_prob(nn_get_child(net, "head"), x), TENSOR_ERR_UNSUPPORTED, "is a Linear");
    CHECK_POISON(nn_forward(net, x), TENSOR_ERR_UNSUPPORTED, "see nn_call");
    nn_free(net);
    CHECK(nn_adaptive_log_softmax_with_loss(8, 20, .cutoffs = TENSOR_DIMS(10, 10)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cutoffs must rise, in 1..19");
    CHECK(nn_adaptive_log_softmax_with_loss(8, INT64_MIN, .cutoffs = TENSOR_DIMS(2)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cutoffs must rise, in 1..0");
    CHECK(nn_adaptive_log_softmax_with_loss(8, 20, .cutoffs = TENSOR_DIMS(20)) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cutoffs");
    CHECK(nn_adaptive_log_softmax_with_loss(8, 20) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "cutoffs");
    CHECK(nn_adaptive_log_softmax_with_loss(8, 20, .cutoffs = TENSOR_DIMS(2, 4), .div_value = 4) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "out_features");
}

// ---- fractional max pool (values of the functions: tests/ops.def)

static void fractional(void) {
    nn_module_t *net = nn_fractional_max_pool2d(2, .kernel_w = 3, .output_ratio = 0.5, .output_ratio_w = 0.7);
    tensor_t *x = tensor_requires_grad_(from("pool", "x"), 1), *samples = from("pool", "samples");
    tensor_t *y = nn_call(net, x, samples);
    CHECK(tensor_equal(y, from("pool", "y")));
    tensor_t *w = tensor_reshape(tensor_arange(0, (double)tensor_numel(y), 1, TENSOR_F64), 2, 3, 4, 5);
    tensor_backward(tensor_sum(tensor_mul(y, w)));
    CHECK(tensor_equal(tensor_grad(x), from("pool", "grad.x")));
    tensor_pair_t both = tensor_fractional_max_pool2d(x, 2, 3, 4, 5, samples);
    CHECK(tensor_equal(both.values, y) && tensor_equal(both.indices, from("pool", "at")));
    x = tensor_requires_grad_(from("pool", "x3"), 1);
    both = tensor_fractional_max_pool3d(x, 2, 1, 3, 3, 4, 5, from("pool", "samples3"));
    CHECK(tensor_equal(both.values, from("pool", "y3")) && tensor_equal(both.indices, from("pool", "at3")));
    w = tensor_reshape(tensor_arange(0, 240, 1, TENSOR_F64), 2, 2, 3, 4, 5);
    tensor_backward(tensor_sum(tensor_mul(both.values, w)));
    CHECK(tensor_equal(tensor_grad(x), from("pool", "grad.x3")));
    x = from("pool", "x");
    // Without samples they are drawn: the same from the same state of the generator.
    tensor_manual_seed(3);
    tensor_t *a = nn_forward(net, x);
    tensor_manual_seed(3);
    CHECK(tensor_equal(a, nn_forward(net, x)) && !tensor_equal(a, nn_forward(net, x)));
    tensor_t *at = tensor_fractional_max_pool3d(tensor_randn(2, 5, 6, 7), 2, 2, 2, 3, 1, 6, NULL).indices;
    CHECK(tensor_dtype(at) == TENSOR_I64 && tensor_size(at, 0) == 2 && tensor_size(at, 3) == 6);
    CHECK(tensor_item_i64(tensor_max(at)) < 5 * 6 * 7 && tensor_item_i64(tensor_min(at)) >= 0);
    nn_module_t *sized =
        nn_fractional_max_pool3d(2, 3, .output_size_h = 2, .kernel_h = 1, .output_size_w = 4);
    y = nn_forward(sized, tensor_randn(1, 2, 5, 6, 7));
    CHECK(tensor_size(y, 2) == 3 && tensor_size(y, 3) == 2 && tensor_size(y, 4) == 4);
    nn_module_t *copy = nn_clone(sized);
    CHECK(tensor_size(nn_forward(copy, tensor_randn(2, 5, 6, 7)), 2) == 2);
    // A window as large as the image; NaN wins; every dtype of floats.
    float three[] = {1, NAN, 3, 2};
    tensor_t *nan =
        tensor_fractional_max_pool2d(tensor_from(three, TENSOR_F32, 1, 2, 2), 2, 2, 1, 1, NULL).values;
    CHECK(isnan(tensor_item(nan)));
    CHECK(tensor_dtype(tensor_fractional_max_pool2d(tensor_to(x, TENSOR_F16), 2, 2, 3, 3, NULL).values) ==
          TENSOR_F16);

    CHECK_POISON(tensor_fractional_max_pool2d(x, 2, 3, 9, 5, NULL).values, TENSOR_ERR_SHAPE,
                 "no 9 windows of 2 in a dim of 9");
    CHECK_POISON(tensor_fractional_max_pool2d(x, 0, 3, 4, 5, NULL).indices, TENSOR_ERR_SHAPE, "windows of 0");
    CHECK_POISON(tensor_fractional_max_pool2d(x, 2, 3, 4, 5, tensor_select(samples, 0, 0)).values,
                 TENSOR_ERR_SHAPE, "samples [3,2] must be [N, C, 2]");
    CHECK_POISON(tensor_fractional_max_pool2d(x, 2, 3, 4, 5, tensor_to(samples, TENSOR_F32)).values,
                 TENSOR_ERR_DTYPE, "samples");
    CHECK_POISON(tensor_fractional_max_pool2d(tensor_zeros(0, 3, 9, 8), 2, 3, 4, 5, NULL).values,
                 TENSOR_ERR_SHAPE, "none of them 0");
    CHECK_POISON(
        tensor_fractional_max_pool3d(tensor_zeros_of(TENSOR_I32, 3, 9, 8, 4), 2, 2, 2, 4, 5, 2, NULL).values,
        TENSOR_ERR_DTYPE, "x");
    CHECK(nn_fractional_max_pool2d(2) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "output_size 0, output_ratio 0: exactly one of them must be positive");
    CHECK(nn_fractional_max_pool2d(2, 3, .output_ratio = 0.5) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "output_size 3, output_ratio 0.5: exactly one of them must be positive");
    CHECK(nn_fractional_max_pool2d(2, .output_ratio = 0.5, .output_ratio_w = 1.5) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "between 0 and 1");
    CHECK(nn_fractional_max_pool3d(-1, 3) == NULL);
    CHECK_ERROR(TENSOR_ERR_SHAPE, "kernel must be > 0");
    nn_free(net);
    nn_free(sized);
    nn_free(copy);
}

// ---- options of one dim

// y has the last dims a, b, c, and other, which another function makes with the same option, is the same.
static void is_same(const char *option, tensor_t *y, tensor_t *other, int64_t a, int64_t b, int64_t c) {
    const int64_t want[3] = {a, b, c};
    CHECK_OK();
    for (int d = 0; d < 3; d++) {
        int64_t size = tensor_size(y, d - 3);
        CHECK_MSG(size == want[d], "%s: dim %d is %lld", option, d, (long long)size);
    }
    CHECK_MSG(test_same_bits(y, other), "%s: layer and function differ", option);
}
#define LAYER_AND(option, made, x, other, a, b, c)                                                           \
    do {                                                                                                     \
        tensor_scope_t scope = tensor_scope_begin_no_grad();                                                 \
        nn_module_t *m = made;                                                                               \
        is_same(option, nn_forward(m, x), other, a, b, c);                                                   \
        nn_free(m);                                                                                          \
        tensor_scope_end(scope);                                                                             \
    } while (0)
// The options, and the sizes of depth, height and width.
#define CONV(a, b, c, ...)                                                                                   \
    LAYER_AND("conv3d " #__VA_ARGS__, nn_conv3d(2, 3, 2, __VA_ARGS__), image,                                \
              tensor_conv3d(image, nn_get(m, "weight"), nn_get(m, "bias"), __VA_ARGS__), a, b, c)
#define TRANSPOSED(a, b, c, ...)                                                                             \
    LAYER_AND("conv_transpose3d " #__VA_ARGS__, nn_conv_transpose3d(2, 3, 2, __VA_ARGS__), small,            \
              tensor_conv_transpose3d(small, nn_get(m, "weight"), nn_get(m, "bias"), __VA_ARGS__), a, b, c)
#define MAX_POOL(a, b, c, ...)                                                                               \
    LAYER_AND("max_pool3d " #__VA_ARGS__, nn_max_pool3d(2, __VA_ARGS__), image,                              \
              tensor_max_pool3d(image, 2, __VA_ARGS__), a, b, c)
#define AVG_POOL(a, b, c, ...)                                                                               \
    LAYER_AND("avg_pool3d " #__VA_ARGS__, nn_avg_pool3d(2, __VA_ARGS__), image,                              \
              tensor_avg_pool3d(image, 2, __VA_ARGS__), a, b, c)
#define COLUMNS(rows, columns, ...)                                                                          \
    LAYER_AND("im2col " #__VA_ARGS__, nn_unfold(2, __VA_ARGS__), flat,                                       \
              tensor_im2col(flat, 2, __VA_ARGS__), 1, rows, columns)
#define WIDER(kind, x, a, b, c, ...)                                                                         \
    LAYER_AND(#kind " " #__VA_ARGS__, nn_##kind(2, 3, 2, __VA_ARGS__), x,                                    \
              tensor_##kind(x, nn_get(m, "weight"), nn_get(m, "bias")), a, b, c)
static void options_of_one_dim(void) {
    tensor_t *image = tensor_randn(1, 2, 7, 8, 9), *small = tensor_randn(1, 2, 3, 4, 5);
    tensor_t *flat = tensor_randn(1, 2, 7, 8);
    CONV(3, 4, 4, .stride = 2);
    CONV(6, 4, 8, .stride_h = 2);
    CONV(6, 7, 4, .stride_w = 2);
    CONV(8, 9, 10, .padding = 1);
    CONV(6, 9, 8, .padding_h = 1);
    CONV(6, 7, 10, .padding_w = 1);
    CONV(8, 7, 10, .padding = 1, .padding_h = TENSOR_ZERO);
    CONV(8, 9, 8, .padding = 1, .padding_w = TENSOR_ZERO);
    CONV(5, 6, 7, .dilation = 2);
    CONV(6, 5, 8, .dilation_h = 3);
    CONV(6, 7, 6, .dilation_w = 3);
    WIDER(conv3d, image, 6, 6, 8, .kernel_h = 3);
    WIDER(conv3d, image, 6, 7, 6, .kernel_w = 4);
    TRANSPOSED(6, 8, 10, .stride = 2);
    TRANSPOSED(4, 8, 6, .stride_h = 2);
    TRANSPOSED(4, 5, 14, .stride_w = 3);
    TRANSPOSED(2, 3, 4, .padding = 1);
    TRANSPOSED(4, 3, 6, .padding_h = 1);
    TRANSPOSED(4, 5, 4, .padding_w = 1);
    TRANSPOSED(5, 6, 7, .dilation = 2);
    TRANSPOSED(4, 7, 6, .dilation_h = 3);
    TRANSPOSED(4, 5, 8, .dilation_w = 3);
    TRANSPOSED(7, 9, 11, .stride = 2, .output_padding = 1);
    TRANSPOSED(6, 9, 10, .stride = 2, .output_padding_h = 1);
    TRANSPOSED(6, 8, 11, .stride = 2, .output_padding_w = 1);
    WIDER(conv_transpose3d, small, 4, 6, 6, .kernel_h = 3);
    WIDER(conv_transpose3d, small, 4, 5, 8, .kernel_w = 4);
    MAX_POOL(6, 7, 8, .stride = 1);
    MAX_POOL(3, 7, 4, .stride_h = 1);
    MAX_POOL(3, 4, 8, .stride_w = 1);
    MAX_POOL(4, 5, 5, .padding = 1);
    MAX_POOL(3, 5, 4, .padding_h = 1);
    MAX_POOL(3, 4, 5, .padding_w = 1);
    MAX_POOL(3, 3, 4, .dilation = 2);
    MAX_POOL(3, 3, 4, .dilation_h = 3);
    MAX_POOL(3, 4, 3, .dilation_w = 3);
    MAX_POOL(3, 2, 4, .kernel_h = 3);
    MAX_POOL(3, 4, 2, .kernel_w = 4);
    MAX_POOL(4, 4, 5, .ceil_mode = 1);
    AVG_POOL(6, 7, 8, .stride = 1);
    AVG_POOL(3, 7, 4, .stride_h = 1);
    AVG_POOL(3, 4, 8, .stride_w = 1);
    AVG_POOL(4, 5, 5, .padding = 1);
    AVG_POOL(3, 5, 4, .padding_h = 1);
    AVG_POOL(3, 4, 5, .padding_w = 1);
    AVG_POOL(3, 2, 4, .kernel_h = 3);
    AVG_POOL(3, 4, 2, .kernel_w = 4);
    COLUMNS(8, 12, .stride = 2);
    COLUMNS(8, 24, .stride_w = 2);
    COLUMNS(8, 72, .padding = 1);
    COLUMNS(8, 54, .padding_w = 1);
    COLUMNS(8, 30, .dilation = 2);
    COLUMNS(8, 30, .dilation_w = 3);
    COLUMNS(12, 36, .kernel_w = 3);
}

int main(void) {
    fixture = nn_safetensors_open("tests/fixtures/kit/layers.safetensors");
#ifdef __linux__
    RUN(two_ranks);
#endif
    RUN(alone);
    RUN(adaptive);
    RUN(fractional);
    RUN(options_of_one_dim);
    nn_safetensors_close(fixture);
    return test_report();
}

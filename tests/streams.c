// streams.c - streams, events, graphs and pinned memory of CUDA (mirror.h: in the emulator, or on a GPU), and
// what there is of them on other devices.
#define TENSOR_BACKEND
#include "mirror.h"
#ifdef TEST_CUDA
#include <pthread.h>
#endif

// Copies without wait need pinned memory; without CUDA there is none.
static void elsewhere(void) {
    tensor_t *x = tensor_arange(0, 6, 1, TENSOR_F32);
    CHECK_POISON(tensor_pin_memory(x), TENSOR_ERR_DEVICE, "pin_memory: the CUDA backend is not started");
    CHECK_POISON(tensor_to_non_blocking(x, TENSOR_CUDA), TENSOR_ERR_DEVICE,
                 "to_non_blocking: no CUDA device 0");
    CHECK(nn_data_loader(nn_tensor_dataset(x, NULL), .pin_memory = 1) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "pin_memory");
#ifndef TEST_CUDA
    CHECK(device_start() == 0);
    CHECK(tensor_equal(tensor_to_non_blocking(tensor_to_non_blocking(x, TENSOR_CUDA), TENSOR_CPU), x));
    CHECK_POISON(tensor_pin_memory(x), TENSOR_ERR_DEVICE, "pin_memory");
#endif
}

#ifdef TEST_CUDA
static tensor_cuda_stream_t *s1, *s2;
#ifdef TEST_FEW                 // a sanitizer sees what no event orders, whatever runs first
enum { FEW = 1, SEEDS = 4 };
#else
enum { FEW = 0, SEEDS = 12 };
#endif

// What one stream makes another one reads, overwrites and frees: values are those of the program's order.
static void order(void) {
    int k, seed;
    for (seed = 0; seed < SEEDS; seed++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x, *y, *z, *sum;
#ifdef TEST_CUDA_SIM
        cusim_set("seed", seed);
        cusim_set("random", seed > 0);
#endif
        tensor_cuda_set_stream(s1);
        x = on(tensor_arange(0, 500, 1, TENSOR_F32));
        sum = on(tensor_zeros(500));
        for (k = 0; k < 6; k++) {
            tensor_cuda_set_stream(s2);
            y = tensor_mul_scalar(x, 2);        // reads what s1 wrote
            tensor_cuda_set_stream(s1);
            tensor_add_scalar_(x, 1);           // after s2 has read it
            z = tensor_neg(y);
            tensor_cuda_set_stream(NULL);
            tensor_add_(sum, z);
            tensor_free(y);                     // its memory is s2's again when s1 is done with it
            tensor_free(z);
            tensor_cuda_set_stream(s2);
            tensor_fill_(tensor_empty_like(x), 7);
            tensor_cuda_set_stream(s1);
            tensor_fill_(tensor_empty_like(x), 8);
        }
        tensor_cuda_set_stream(s2);
        CHECK_MSG(tensor_item(tensor_narrow(sum, 0, 3, 1)) == -(6 * 3 + 15) * 2, "seed %d", seed);
        CHECK(tensor_item(tensor_sum(x)) == 500 * 499 / 2 + 6 * 500);
        tensor_cuda_set_stream(NULL);
        tensor_scope_end(scope);
    }
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
}
// Forward on one stream, backward on another: the gradients are those of one stream.
static void backward(void) {
    tensor_t *x = tensor_rand(5, 7), *w = tensor_rand(7, 3), *want, *p;
    p = tensor_detach(w);
    tensor_requires_grad_(p, 1);
    tensor_backward(tensor_sum(tensor_tanh(tensor_matmul(x, p))));
    want = tensor_grad(p);
    tensor_cuda_set_stream(s1);
    p = on(tensor_detach(w));
    tensor_requires_grad_(p, 1);
    x = tensor_sum(tensor_tanh(tensor_matmul(on(x), p)));
    tensor_cuda_set_stream(s2);
    tensor_backward(x);
    tensor_cuda_set_stream(NULL);
    CHECK(device_same(want, off(tensor_grad(p))));
}

static void handles(void) {
    tensor_cuda_stream_t *s = tensor_cuda_stream_new(TENSOR_CUDA), *many[40], *other = NULL;
    tensor_cuda_event_t *a = tensor_cuda_event_new(TENSOR_CUDA, 1), *b = tensor_cuda_event_new(TENSOR_CUDA,
            1);
    tensor_cuda_event_t *plain = tensor_cuda_event_new(TENSOR_CUDA, 0);
    tensor_t *x = on(tensor_ones(64));
    double ms;
    int k, n = 0;
    CHECK(s && a && b && plain && s != tensor_cuda_default_stream(TENSOR_CUDA));
    CHECK(tensor_cuda_current_stream(TENSOR_CUDA) == tensor_cuda_default_stream(TENSOR_CUDA));
    CHECK(tensor_cuda_set_stream(s) == tensor_cuda_default_stream(TENSOR_CUDA));
    CHECK(tensor_cuda_current_stream(TENSOR_CUDA) == s);
    CHECK(tensor_cuda_event_query(a) == 1 && tensor_cuda_event_synchronize(a) == 0);
    CHECK(tensor_cuda_stream_wait_event(NULL, a) == 0);         // no mark yet: nothing to wait for
    CHECK(tensor_cuda_event_record(a, s) == 0);
    x = tensor_exp(x);
    CHECK(tensor_cuda_event_record(b, s) == 0 && tensor_cuda_event_record(plain, s) == 0);
    CHECK(tensor_cuda_stream_wait_event(NULL, b) == 0 && tensor_cuda_stream_wait_stream(NULL, s) == 0);
    CHECK(tensor_record_stream(x, NULL) == 0 && tensor_record_stream(x, s) == 0);
    CHECK(tensor_cuda_event_synchronize(b) == 0 && tensor_cuda_event_query(b) == 1);
    CHECK(tensor_cuda_stream_synchronize(s) == 0 && tensor_cuda_stream_query(s) == 1);
    ms = tensor_cuda_event_elapsed_time(a, b);
    CHECK(ms >= 0 && ms < 1e4);
    CHECK(isnan(tensor_cuda_event_elapsed_time(a, plain)));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "cuda_event_elapsed_time");
    // In use, freed, used again.
    CHECK(tensor_cuda_stream_free(s) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_stream_free: it is the thread's current stream");
    CHECK(tensor_cuda_stream_free(tensor_cuda_default_stream(TENSOR_CUDA)) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the device's default stream");
    CHECK(tensor_cuda_set_stream(NULL) == s && tensor_cuda_stream_free(s) == 0 &&
          tensor_cuda_stream_free(NULL) == 0);
    CHECK(tensor_cuda_stream_synchronize(s) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_stream_synchronize: the stream was freed");
    CHECK(tensor_cuda_set_stream(s) == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_set_stream: the stream was freed");
    CHECK(tensor_cuda_stream_free(s) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
    CHECK(tensor_cuda_event_free(plain) == 0 && tensor_cuda_event_record(plain, NULL) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_event_record: the event was freed");
    CHECK(tensor_cuda_event_record(NULL, NULL) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, NULL);
    CHECK(tensor_cuda_event_free(a) == 0 && tensor_cuda_event_free(b) == 0 &&
          tensor_cuda_event_free(NULL) == 0);
    CHECK(tensor_cuda_stream_new(TENSOR_CUDA + 16) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "cuda_stream_new: no CUDA device 16 is started");
    // Freed ones are used again; too many are an error.
    for (k = 0; k < 200; k++) { CHECK(tensor_cuda_stream_free(tensor_cuda_stream_new(TENSOR_CUDA)) == 0); }
    for (k = 0; k < 40; k++) {
        many[k] = tensor_cuda_stream_new(TENSOR_CUDA);
        if (!many[k]) { break; }
        n++;
    }
    CHECK(n > 25 && n < 31);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "cuda_stream_new: the device has 32 streams already");
    for (k = 0; k < n; k++) { tensor_cuda_stream_free(many[k]); }
    if (device_two()) { CHECK((other = tensor_cuda_stream_new(TENSOR_CUDA + 1)) != NULL); }
    if (other) {
        a = tensor_cuda_event_new(TENSOR_CUDA, 0);
        CHECK(tensor_cuda_event_record(a, other) == TENSOR_ERR_DEVICE);
        CHECK_ERROR(TENSOR_ERR_DEVICE,
                    "cuda_event_record: the event is of CUDA device 0, must be of the stream's, 1");
        CHECK(tensor_record_stream(x, other) == TENSOR_ERR_DEVICE);
        CHECK_ERROR(TENSOR_ERR_DEVICE, "record_stream: x is on CUDA device 0, must be on the stream's, 1");
        CHECK(tensor_record_stream(tensor_ones(2), other) == TENSOR_ERR_DEVICE);
        CHECK_ERROR(TENSOR_ERR_DEVICE, "record_stream: x is on the CPU");
        tensor_cuda_set_stream(other);          // of the other device: x's stream is as before
        x = tensor_add(tensor_to(x, TENSOR_CUDA + 1), tensor_to(tensor_ones(64), TENSOR_CUDA + 1));
        CHECK_NEAR(tensor_item(tensor_narrow(tensor_to(x, TENSOR_CUDA), 0, 5, 1)), 3.7182818, 1e-5);
        tensor_cuda_set_stream(tensor_cuda_default_stream(TENSOR_CUDA + 1));
        CHECK(tensor_cuda_stream_free(other) == 0);
    }
}

// A copy between two devices: memory that was there before the first one and memory that came later is open
// to both. A place that is out of range on the other device is heard of by the copy, which has that device's
// words to clear.
static void peers(void) {
    tensor_device_t there = (tensor_device_t)(TENSOR_CUDA + 1);
    tensor_t *x, *y, *more = NULL, *bad;
    int k;
    if (!device_two()) { return; }
    x = tensor_arange(0, 1000, 1, TENSOR_F32);
    y = tensor_to(on(x), there);
    CHECK(tensor_equal(tensor_to(y, TENSOR_CPU), x));
    for (k = 0; k < 3; k++) {
        more = tensor_to(on(tensor_full(k, 250 << 10)), there);     // a new chunk on each
    }
    CHECK(tensor_item(tensor_select(tensor_to(more, TENSOR_CUDA), 0, -1)) == 2);
#ifdef TEST_CUDA_SIM
    cusim_set("staged", 0);
#endif
    bad = tensor_index_select(y, 0, tensor_to(tensor_from(((int64_t[]){0, 1000}), TENSOR_I64, 2), there));
    CHECK_POISON(tensor_to(bad, TENSOR_CUDA), TENSOR_ERR_INDEX, "index_select at streams.c");
    CHECK(tensor_item(tensor_select(tensor_to(y, TENSOR_CUDA), 0, 7)) == 7 && tensor_ok());
}

// ---- threads with a stream of their own ----

static tensor_t *shared_weight;
typedef struct job_t { double sum; int code; } job_t;
static void *job(void *arg) {
    job_t *j = (job_t *)arg;
    tensor_cuda_stream_t *s = tensor_cuda_stream_new(TENSOR_CUDA);
    tensor_t *x, *w;
    int k;
    tensor_scope_t scope;
    tensor_cuda_set_stream(s);
    for (k = 0; k < 5; k++) {
        scope = tensor_scope_begin();
        x = on(tensor_full(0.01 * (k + 1), 3, 8));
        w = tensor_detach(shared_weight);
        tensor_requires_grad_(w, 1);
        tensor_backward(tensor_sum(tensor_tanh(tensor_matmul(x, w))));
        j->sum += tensor_item(tensor_sum(tensor_grad(w)));
        tensor_scope_end(scope);
    }
    tensor_cuda_set_stream(NULL);
    j->code = tensor_error_code();
    if (tensor_cuda_stream_free(s)) { j->code = TENSOR_ERR_INTERNAL; }
    tensor_thread_end();
    return NULL;
}
static void threads(void) {
    job_t alone = {0, 0}, together[3];
    pthread_t id[3];
    int k;
    shared_weight = tensor_keep(on(tensor_mul_scalar(tensor_ones(8, 4), 0.3)));
    pthread_create(&id[0], NULL, job, &alone);
    pthread_join(id[0], NULL);
    memset(together, 0, sizeof together);
    for (k = 0; k < 3; k++) { pthread_create(&id[k], NULL, job, &together[k]); }
    for (k = 0; k < 3; k++) { pthread_join(id[k], NULL); }
    for (k = 0; k < 3; k++) { CHECK(together[k].code == 0 && together[k].sum == alone.sum && alone.sum > 0); }
    tensor_free(shared_weight);
}

// ---- graphs ----

#ifdef TEST_FEW                 // under sanitizers, which are slow and have few pointwise kernels
enum { MODELS = 1, STEPS = 5 };
#else
enum { MODELS = 4, STEPS = 20 };
#endif
static nn_module_t *model(int which) {
#ifdef TEST_FEW
    return nn_sequential(nn_linear(6, 12), nn_layer_norm(12), nn_dropout(0.3), nn_linear(12, 3));
#endif
    if (which == 0) { return nn_sequential(nn_linear(6, 16), nn_gelu(), nn_dropout(0.3), nn_linear(16, 3)); }
    if (which == 1) {
        return nn_sequential(nn_flatten(), nn_linear(6, 12), nn_layer_norm(12), nn_relu(),
                             nn_dropout(0.2), nn_linear(12, 12), nn_dropout(0.5), nn_linear(12, 3));
    }
    if (which == 3) {
        return nn_sequential(nn_embedding(11, 8), nn_transformer_encoder_layer(8, 2, .feedforward = 16,
                             .batch_first = 1, .norm_first = 1, .gelu = 1), nn_flatten(), nn_linear(48, 3));
    }
    return nn_sequential(nn_linear(6, 8), nn_batch_norm1d(8), nn_tanh(), nn_linear(8, 3));
}
static nn_optimizer_t *optimizer(int which, nn_module_t *m) {
    if (which == 0) { return nn_adam(m, .lr = 0.01); }
    if (which == 1 || which == 3) { return nn_adamw(m, .lr = 0.02, .weight_decay = 0.1); }
    return nn_sgd(m, .lr = 0.05, .momentum = 0.9);
}
static void batch(int step, tensor_t **x, tensor_t **y) {
    int64_t label[4];
    int k;
    for (k = 0; k < 4; k++) { label[k] = (step * 7 + k) % 3; }
    *x = on(tensor_sin(tensor_reshape(tensor_arange(step, step + 24, 1, TENSOR_F32), 4, 6)));
    *y = on(tensor_from(label, TENSOR_I64, 4));
}
// One step of training; the loss is kept.
static tensor_t *scaler;
static tensor_t *train(int which, nn_module_t *m, nn_optimizer_t *opt, tensor_t *x, tensor_t *y) {
    tensor_t *loss;
    if (which == 3) {
        x = tensor_to(tensor_add_scalar(tensor_mul_scalar(x, 5), 5), TENSOR_I64);       // tokens
    }
    loss = tensor_cross_entropy(nn_forward(m, x), y);
    nn_zero_grad(opt);
    tensor_backward(scaler ? nn_scaler_scale(scaler, loss) : loss);
    if (scaler) { nn_scaler_unscale(scaler, opt); }
    if (which == 2) {
        nn_clip_grad_value(opt, 0.5);
    } else {
        nn_clip_grad_norm(opt, 0.5);
    }
    if (!scaler) {
        nn_step(opt);
    } else if (nn_scaler_step(scaler, opt) == 0) {
        nn_scaler_update(scaler);
    }
    return tensor_keep(loss);
}
// Steps from 2 on as runs of a graph have the bits of steps as ever, with dropout, a schedule of the learning
// rate, buffers, clipping, and a scaler that leaves steps out.
static void replay(void) {
    int which, captured, step, k, n = 0;
    for (which = 0; which < MODELS; which++) {
        double loss[2][STEPS], scale[2];
        tensor_t *p[2][16];
        uint64_t drawn[2];
        tensor_scope_t s = tensor_scope_begin();
        for (captured = 0; captured < 2; captured++) {
            nn_module_t *m;
            nn_optimizer_t *opt;
            tensor_graph_t *g = NULL;
            tensor_t *x, *y, *x_now, *y_now, *l = NULL;
#ifdef TEST_CUDA_SIM
            cusim_set("seed", which);
            cusim_set(which == 1 ? "eager" : "random", which != 2);
#endif
            tensor_set_default_device(TENSOR_CUDA);
            tensor_manual_seed(9);
            m = model(which);
            opt = optimizer(which, m);
            batch(0, &x, &y);
            scaler = which == 1 ? nn_grad_scaler(4, 5) : NULL;
            for (step = 0; step < STEPS; step++) {
                batch(step, &x_now, &y_now);
                if (scaler && (step == 1 || step == 4)) {
                    tensor_fill_(tensor_select(x_now, 0, 1), INFINITY);
                }
                tensor_copy_(x, x_now);
                tensor_copy_(y, y_now);
                nn_set_lr(opt, 0.01 * (1 + step % 5));
                if (captured && step > 2) {
                    CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
                } else {
                    if (captured && step == 2) {
                        CHECK_MSG(tensor_capture_begin(TENSOR_CUDA) == 0, "%s", tensor_error_text());
                    }
                    if (l) { tensor_free(l); }
                    l = train(which, m, opt, x, y);
                    if (captured && step == 2) {
                        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
                    }
                }
                loss[captured][step] = tensor_item(l);
            }
            scale[captured] = scaler ? tensor_item(tensor_select(scaler, 0, 0)) : 0;
            if (scaler) { tensor_free(scaler); }
            scaler = NULL;
            drawn[captured] = tensor_get_generator().offset;
            n = nn_parameters(m, p[captured], 16);
            CHECK(n >= 4 && n <= 16);
            for (k = 0; k < n; k++) { p[captured][k] = off(tensor_clone(p[captured][k])); }
            tensor_set_default_device(TENSOR_CPU);
            tensor_free(l);
            CHECK(tensor_graph_free(g) == 0);
            nn_optimizer_free(opt);
            nn_free(m);
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            tensor_clear_error();
        }
        CHECK(scale[0] == scale[1] && (which != 1 || scale[0] == 8));      // 4 / 2 / 2 * 2 * 2 * 2
        CHECK(drawn[0] == drawn[1] && loss[0][0] != loss[0][STEPS - 1]);
        for (step = 0; step < STEPS; step++) {
            CHECK_MSG(loss[0][step] == loss[1][step] || (isnan(loss[0][step]) && isnan(loss[1][step])),
                      "model %d: loss of step %d is %.9g, not %.9g", which,
                      step,
                      loss[1][step], loss[0][step]);
        }
        for (k = 0; k < n; k++) {
            CHECK_MSG(tensor_equal(p[0][k], p[1][k]), "model %d: parameter %d", which, k);
        }
        tensor_scope_end(s);
    }
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
}
// What a graph reads is read at each run, also where the tensor is gone; what it made stays; versions count.
static void runs(void) {
    tensor_graph_t *g;
    tensor_t *x = on(tensor_ones(300)), *gone = tensor_keep(on(tensor_full(5, 300))), *y, *w, *z;
    job_t other = {0, 0};
    pthread_t id;
    int k;
    shared_weight = tensor_keep(on(tensor_mul_scalar(tensor_ones(8, 4), 0.3)));
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    pthread_create(&id, NULL, job, &other);     // goes on with what was made on this stream before
    pthread_join(id, NULL);
    CHECK(other.code == 0 && other.sum > 0);
    y = tensor_add(tensor_mul_scalar(x, 2), gone);
    tensor_add_(x, tensor_rand_like(x));
    z = tensor_add(y, tensor_scalar(0.5, TENSOR_F32));          // a number of the host is a part of the graph
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    CHECK(tensor_item(tensor_narrow(y, 0, 7, 1)) == 7);         // the end of the capture has done it
    CHECK(tensor_item(tensor_narrow(z, 0, 7, 1)) == 7.5);
    tensor_free(shared_weight);
    tensor_free(gone);
    for (k = 0; k < 5; k++) { tensor_fill_(on(tensor_empty(300)), 77); }       // its memory is not handed on
    tensor_fill_(x, 4);
    // on another stream than the fill's and the capture's
    tensor_cuda_set_stream(s1);
    CHECK(tensor_graph_replay(g) == 0);
    tensor_cuda_set_stream(s2);
    CHECK(tensor_item(tensor_narrow(y, 0, 7, 1)) == 13);
    tensor_cuda_set_stream(NULL);
    // x was changed by the run: an eager graph that saved it before notices.
    w = on(tensor_ones(300));
    tensor_requires_grad_(w, 1);
    z = tensor_sum(tensor_mul(w, x));
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(tensor_backward(z) == TENSOR_ERR_AUTOGRAD);
    CHECK_ERROR(TENSOR_ERR_AUTOGRAD, NULL);
    CHECK(tensor_graph_free(g) == 0);
    CHECK(tensor_item(tensor_narrow(y, 0, 7, 1)) > 4);          // outlives the graph
}
// A graph's temporaries, which are free between its runs, stay its own: emptying the cache and every way out
// of want of memory leave them where they are.
static void kept(void) {
    enum { LARGE = 9 << 20, PART = 300 };       // of 36 MiB: more than what is mapped at once
    tensor_graph_t *g;
    tensor_t *x = on(tensor_ones(PART)), *temporary, *part, *y, *other;
    int64_t before, want;
    int k;
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_set_default_device(TENSOR_CUDA);
    temporary = tensor_empty(LARGE);
    tensor_set_default_device(TENSOR_CPU);
    part = tensor_narrow(temporary, 0, LARGE - 1000, PART);
    tensor_copy_(part, x);
    y = tensor_keep(tensor_add_scalar(part, 1));
    tensor_free(part);
    tensor_free(temporary);
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    CHECK(tensor_item(tensor_sum(y)) == 2 * PART);
    before = tensor_cuda_memory_reserved(TENSOR_CUDA);
    CHECK(before >= (int64_t)LARGE * 4);
    for (k = 0; k < 3; k++) {
        tensor_set_default_device(TENSOR_CUDA);
        if (k == 0) { tensor_cuda_empty_cache(TENSOR_CUDA); }
        if (k == 1) {                           // trims the cache, then is refused
            CHECK_POISON(tensor_empty((int64_t)1 << 40), TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
            CHECK(strstr(tensor_cuda_memory_report(), "Tried to allocate 4.00 TiB") != NULL);
        }
        if (k == 2) {                           // waits for what another stream uses, trims, and is refused
            tensor_cuda_set_stream(s1);
            other = tensor_empty(LARGE);
            tensor_cuda_set_stream(s2);
            part = tensor_narrow(other, 0, 0, 1);
            tensor_fill_(part, 1);
            tensor_free(part);
            tensor_free(other);
            tensor_cuda_set_stream(NULL);
            CHECK_POISON(tensor_empty((int64_t)1 << 40), TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
            CHECK(strstr(tensor_cuda_memory_report(), "Tried to allocate 4.00 TiB") != NULL);
        }
        tensor_set_default_device(TENSOR_CPU);
        tensor_fill_(x, k);
        CHECK_MSG(tensor_graph_replay(g) == 0, "%s", tensor_error_text());
        want = k + 1;
        CHECK_MSG(tensor_item(tensor_sum(y)) == (double)(want * PART), "way %d: %g", k,
                  tensor_item(tensor_sum(y)));
    }
    tensor_free(y);
    CHECK(tensor_graph_free(g) == 0);
    tensor_cuda_empty_cache(TENSOR_CUDA);
    CHECK(tensor_cuda_memory_reserved(TENSOR_CUDA) <= before - (int64_t)LARGE * 3);
}
// A graph casts the weights that are there at each run; what autocast keeps of them is never the graph's.
static void mixed(void) {
    int k;
    for (k = 0; k < 2; k++) {
        tensor_graph_t *g;
        tensor_t *w = tensor_requires_grad_(on(tensor_ones(8, 8)), 1), *x = on(tensor_ones(2, 8)), *y;
        tensor_scope_t n = tensor_scope_begin_no_grad(), a = tensor_scope_begin_autocast(TENSOR_BF16);
        if (k) { tensor_matmul(x, w); }
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        y = tensor_matmul(x, w);
        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        CHECK(tensor_item(tensor_max(tensor_matmul(x, w))) == 8 && tensor_item(tensor_max(y)) == 8);
        tensor_fill_(w, 2);
        CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_max(y)) == 16);
        tensor_scope_end(a);
        tensor_scope_end(n);
        CHECK(tensor_graph_free(g) == 0);
    }
}
// Streams that wait for the captured one are captured too: their work lies beside its own at each run, in the
// order of events and of what it reads; memory freed on one of them serves no other.
static void forks(void) {
    tensor_cuda_event_t *e = tensor_cuda_event_new(TENSOR_CUDA, 0), *joined =
        tensor_cuda_event_new(TENSOR_CUDA, 0);
    tensor_t *x = tensor_keep(on(tensor_zeros(700))), *a, *b, *c = NULL, *y, *z;
    int seed, k, run;
    for (seed = 0; seed < SEEDS; seed++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_graph_t *g;
#ifdef TEST_CUDA_SIM
        cusim_set("seed", seed);
        cusim_set("random", seed > 0);
#endif
        tensor_cuda_set_stream(s2);
        tensor_fill_(x, 1);                     // of another stream, before the capture
        tensor_cuda_set_stream(NULL);
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        y = tensor_add_scalar(x, 1);
        CHECK(tensor_cuda_event_record(e, NULL) == 0 && tensor_cuda_stream_wait_event(s1, e) == 0);
        CHECK(tensor_cuda_stream_wait_stream(s2, s1) == 0);
        for (k = 0; k < 4; k++) {
            tensor_cuda_set_stream(s1);
            // made here, read on two others, freed while they may still read
            a = tensor_mul_scalar(y, 3);
            tensor_cuda_set_stream(s2);
            b = tensor_add_scalar(a, 1);        // without an event
            tensor_cuda_set_stream(NULL);
            z = tensor_add_scalar(a, 2);
            tensor_free(a);
            tensor_cuda_set_stream(s1);
            tensor_fill_(tensor_empty_like(x), 77);
            tensor_add_scalar_(y, 1);           // after both have read a, and a was made
            tensor_cuda_set_stream(NULL);
            c = tensor_add(b, z);
            tensor_free(b);
            tensor_free(z);
            tensor_fill_(tensor_empty_like(x), 78);
            tensor_cuda_set_stream(s2);
            tensor_fill_(tensor_empty_like(x), 79);
            tensor_mul_scalar_(c, 2);
            tensor_cuda_set_stream(NULL);
        }
        CHECK(tensor_cuda_event_record(joined, s1) == 0 && tensor_cuda_stream_wait_event(NULL, joined) == 0);
        CHECK(tensor_cuda_stream_wait_stream(NULL, s2) == 0);
        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        tensor_cuda_set_stream(s1);             // an ordinary stream again
        CHECK(tensor_item(tensor_select(tensor_exp(tensor_mul_scalar(x, 0)), 0, 3)) == 1);
        tensor_cuda_set_stream(NULL);
        CHECK(tensor_cuda_event_query(joined) == 0);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "cuda_event_query: the event was recorded in a capture");
        for (run = 1; run < 4; run++) {         // the first one was that of the capture's end
            if (run > 1) {
                tensor_fill_(x, run);
                CHECK(tensor_graph_replay(g) == 0);
            }
            CHECK_MSG(tensor_item(tensor_min(c)) == 2 * (6 * (run + 4) + 3) &&
                      tensor_item(tensor_max(c)) == 2 *
                      (6 * (run + 4) + 3), "seed %d, run %d: %g", seed, run, tensor_item(tensor_max(c)));
        }
        CHECK(tensor_graph_free(g) == 0);
        tensor_scope_end(s);
    }
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
    CHECK(tensor_cuda_event_record(joined, s1) == 0 && tensor_cuda_event_synchronize(joined) == 0);
    CHECK(tensor_cuda_event_free(e) == 0 && tensor_cuda_event_free(joined) == 0);
    tensor_free(x);
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
}
// A fork on the second device, whose events are its own, while the first one is current.
static void fork_there(void) {
    tensor_device_t there = (tensor_device_t)(TENSOR_CUDA + 1);
    tensor_cuda_stream_t *s, *first;
    tensor_graph_t *g;
    tensor_t *x, *y;
    if (!device_two()) { return; }
    s = tensor_cuda_stream_new(there), first = tensor_cuda_default_stream(there);
    x = tensor_to(tensor_ones(300), (int)there);
    CHECK(tensor_capture_begin(there) == 0 && tensor_cuda_stream_wait_stream(s, first) == 0);
    tensor_cuda_set_stream(s);
    y = tensor_add_scalar(x, 1);
    tensor_cuda_set_stream(first);
    CHECK(tensor_cuda_stream_wait_stream(first, s) == 0);
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    CHECK(tensor_item(tensor_sum(y)) == 600);
    tensor_fill_(x, 2);
    CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(y)) == 900);
    CHECK(tensor_graph_free(g) == 0 && tensor_cuda_stream_free(s) == 0);
}
// As on the CPU: each replay links the gradients that the step made; one that it adds to must stay.
static void linked(void) {
    tensor_t *w = tensor_requires_grad_(on(tensor_ones(8)), 1), *x = on(tensor_full(3, 8)), *made;
    tensor_graph_t *g, *adds;
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_set_grad(w, NULL);
    CHECK(tensor_backward(tensor_sum(tensor_mul(w, x))) == 0);
    CHECK((g = tensor_capture_end()) != NULL);
    made = tensor_grad(w);
    CHECK(tensor_item(tensor_max(made)) == 3);
    tensor_set_grad(w, NULL);
    tensor_fill_(x, 5);
    CHECK(tensor_grad(w) == NULL && tensor_graph_replay(g) == 0 && tensor_grad(w) == made);
    CHECK(tensor_item(tensor_max(made)) == 5);
    tensor_fill_(x, 7);                         // a slice of it is the whole step
    CHECK(tensor_graph_resume(g, 0) == 1 && tensor_grad(w) == made && tensor_item(tensor_max(made)) == 7);
    tensor_fill_(x, 5);
    tensor_set_grad(w, on(tensor_full(5, 8)));
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    CHECK(tensor_backward(tensor_sum(tensor_mul(w, x))) == 0);
    CHECK((adds = tensor_capture_end()) != NULL && tensor_item(tensor_max(tensor_grad(w))) == 10);
    CHECK(tensor_graph_replay(adds) == 0 && tensor_item(tensor_max(tensor_grad(w))) == 15);
    tensor_set_grad(w, NULL);
    CHECK(tensor_graph_replay(adds) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "has other memory than at the capture");
    CHECK(tensor_graph_free(adds) == 0 && tensor_graph_free(g) == 0);
}
// Each step of two parameters of one optimizer.
static void two_step(tensor_t *a, tensor_t *b, nn_optimizer_t *o) {
    nn_zero_grad(o);
    tensor_backward(tensor_sum(tensor_add(tensor_mul(a, a), tensor_mul(b, b))));
    nn_step(o);
}
// A parameter that has moved to another group, or missed a step, since the capture: the replay refuses before
// anything runs, and a new capture goes on.
static void regrouped(void) {
    int kind;
    for (kind = 0; kind < 2; kind++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *both[2];
        tensor_graph_t *g;
        nn_optimizer_t *o;
        double was;
        both[0] = tensor_requires_grad_(on(tensor_ones(3)), 1);
        both[1] = tensor_requires_grad_(on(tensor_ones(3)), 1);
        o = nn_adam(NULL, .list = both, .count = 2, .lr = 0.1);
        two_step(both[0], both[1], o);
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        two_step(both[0], both[1], o);
        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        CHECK(tensor_graph_replay(g) == 0);
        if (kind == 0) {
            nn_zero_grad(o);
            tensor_backward(tensor_sum(tensor_mul(both[0], both[0])));
            nn_step(o);
        } else {
            nn_optimizer_group(o, &both[1], 1, .lr = 1e-6);
        }
        was = tensor_item(tensor_sum(both[1]));
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_UNSUPPORTED);
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "no longer do; capture it again");
        CHECK(tensor_item(tensor_sum(both[1])) == was);
        CHECK(tensor_graph_free(g) == 0);
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        two_step(both[0], both[1], o);
        CHECK_MSG((g = tensor_capture_end()) != NULL && tensor_graph_replay(g) == 0, "%s",
                  tensor_error_text());
        CHECK(tensor_item(tensor_sum(both[1])) < was);
        CHECK(tensor_graph_free(g) == 0);
        nn_optimizer_free(o);
        tensor_scope_end(s);
    }
}
// Graphs whose temporaries and outputs come and go in turns leave each other's memory alone.
static void several(void) {
    enum { GRAPHS = 3, N = FEW ? 1000 : 5000 };
    int64_t used = tensor_cuda_memory_allocated(TENSOR_CUDA);
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *x = tensor_keep(on(tensor_ones(N))), *y[GRAPHS], *other;
    tensor_graph_t *g[GRAPHS];
    int k, turn;
    tensor_scope_reset(scope);                  // what is kept is all there is of it
    for (k = 0; k < GRAPHS; k++) {
        tensor_scope_t s = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        y[k] = tensor_keep(tensor_add_scalar(tensor_neg(tensor_neg(tensor_mul_scalar(x, k + 1))), k));
        CHECK_MSG((g[k] = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        tensor_scope_end(s);                    // the temporaries are free
    }
    for (turn = 0; turn < 12; turn++) {
        tensor_scope_t s = tensor_scope_begin();
        k = turn % GRAPHS;
        tensor_fill_(x, turn + 1);
        tensor_cuda_set_stream(turn % 2 ? s1 : s2);
        CHECK(tensor_graph_replay(g[k]) == 0);
        CHECK(tensor_graph_replay(g[(k + 1) % GRAPHS]) == 0);
        other = tensor_fill_(tensor_empty_like(x), -7);         // not what a graph writes
        tensor_cuda_set_stream(NULL);
        CHECK(tensor_graph_replay(g[k]) == 0);
        CHECK_NEAR(tensor_item(tensor_max(y[k])), (k + 1) * (turn + 1) + k, 1e-3);
        CHECK_NEAR(tensor_item(tensor_min(y[k])), (k + 1) * (turn + 1) + k, 1e-3);
        k = (k + 1) % GRAPHS;
        CHECK_NEAR(tensor_item(tensor_max(y[k])), (k + 1) * (turn + 1) + k, 1e-3);
        CHECK(tensor_item(tensor_min(other)) == -7 && tensor_item(tensor_max(other)) == -7);
        tensor_scope_end(s);
    }
    // An output that is freed: its memory stays the graph's. A graph freed while it runs: outputs are whole.
    tensor_free(y[0]);
    other = tensor_fill_(tensor_empty_like(x), -7);
    tensor_fill_(x, 2);
    CHECK(tensor_graph_replay(g[0]) == 0 && tensor_graph_replay(g[1]) == 0 && tensor_graph_free(g[1]) == 0);
    tensor_fill_(tensor_empty_like(x), 99);
    CHECK(tensor_item(tensor_min(other)) == -7 && tensor_item(tensor_max(other)) == -7);
    CHECK_NEAR(tensor_item(tensor_max(y[1])), 5, 1e-3);
    CHECK_NEAR(tensor_item(tensor_min(y[1])), 5, 1e-3);
    tensor_free(other);
    // Their input is freed; they keep it.
    tensor_free(x);
    for (k = 0; k < 3; k++) { tensor_free(tensor_fill_(on(tensor_empty(N)), 55)); }
    CHECK(tensor_graph_replay(g[2]) == 0);
    CHECK_NEAR(tensor_item(tensor_max(y[2])), 8, 1e-3);
    CHECK(tensor_graph_free(g[2]) == 0 && tensor_graph_free(g[0]) == 0);
    tensor_free(y[1]);
    tensor_free(y[2]);
    tensor_scope_end(scope);
    CHECK_MSG(tensor_cuda_memory_allocated(TENSOR_CUDA) == used, "%lld of %lld",
              (long long)tensor_cuda_memory_allocated(TENSOR_CUDA), (long long)used);
}
// What a graph trains has got other memory: also if the storage that holds it is at the same address again.
static void trains_other_memory(void) {
    for (int way = 0; way < 3; way++) {         // to f16 and back; to the CPU and back; another gradient
        tensor_scope_t scope = tensor_scope_begin();
        nn_module_t *net = nn_linear(4, 4);
        CHECK(nn_to(net, TENSOR_CUDA) == 0);
        tensor_t *x = on(tensor_ones(2, 4)), *w = nn_get(net, "weight");
        tensor_backward(tensor_sum(nn_forward(net, x)));
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        tensor_backward(tensor_sum(nn_forward(net, x)));
        tensor_graph_t *g = tensor_capture_end();
        CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(tensor_grad(w))) == 3 * 32);
        if (way < 2) {
            tensor_set_grad(w, NULL);
            CHECK(nn_to(net, way ? (int)TENSOR_CPU : (int)TENSOR_F16) == 0);
            CHECK(nn_to(net, way ? (int)TENSOR_CUDA : (int)TENSOR_F32) == 0);
        }
        tensor_set_grad(w, tensor_zeros_like(tensor_detach(w)));
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
        CHECK(strstr(tensor_error_text(), "other memory than at the capture") != NULL);
        tensor_clear_error();
        CHECK(tensor_item(tensor_sum(tensor_grad(w))) == 0 && tensor_graph_free(g) == 0);
        nn_free(net);
        tensor_scope_end(scope);
    }
}

// ---- graphs that share a pool ----

enum { POOLED = 4, POOL_PART = 300 };
// Captures work whose temporary has 4 * large bytes, which all lie free afterwards. -> 7 x + k, which is kept
static tensor_t *pool_work(tensor_t *x, int64_t large, int k, tensor_graph_t **g) {
    tensor_scope_t scope = tensor_scope_begin();
    tensor_t *temporary, *first, *last, *y;
    CHECK_MSG(tensor_capture_begin(TENSOR_CUDA) == 0, "%s", tensor_error_text());
    tensor_set_default_device(TENSOR_CUDA);
    temporary = tensor_empty(large);
    tensor_set_default_device(TENSOR_CPU);
    first = tensor_narrow(temporary, 0, 0, POOL_PART);
    last = tensor_narrow(temporary, 0, large - POOL_PART, POOL_PART);
    tensor_copy_(first, tensor_mul_scalar(x, 3));
    tensor_copy_(last, tensor_mul_scalar(x, 4));
    y = tensor_keep(tensor_add_scalar(tensor_add(first, last), k));
    tensor_scope_end(scope);                    // the temporaries are free
    CHECK_MSG((*g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    return y;
}
static int all_are(tensor_t *x, double v) {
    return tensor_item(tensor_min(x)) == v && tensor_item(tensor_max(x)) == v;
}
// Graphs of one pool take the memory of the largest; each has its values when they run in turn, on any
// streams, and whatever is freed first.
static void pooled(void) {
    enum { LARGE = 9 << 20, CHUNK = 32 << 20 };
    int64_t took[2], used = tensor_cuda_memory_allocated(TENSOR_CUDA), before;
    int shared, k, turn;
    for (shared = 0; shared < 2; shared++) {
        tensor_scope_t scope = tensor_scope_begin();
        tensor_t *x = on(tensor_ones(POOL_PART)), *y[POOLED], *late;
        tensor_graph_t *g[POOLED];
        tensor_cuda_graph_pool_t *pool = shared ? tensor_cuda_graph_pool_new(TENSOR_CUDA) : NULL;
        tensor_cuda_empty_cache(TENSOR_CUDA);
        before = tensor_cuda_memory_reserved(TENSOR_CUDA);
        CHECK(tensor_cuda_set_graph_pool(pool) == 0);
        for (k = 0; k < POOLED; k++) { y[k] = pool_work(x, LARGE - k * 1000000, k, &g[k]); }
        CHECK(tensor_cuda_set_graph_pool(NULL) == 0);
        tensor_cuda_empty_cache(TENSOR_CUDA);
        took[shared] = tensor_cuda_memory_reserved(TENSOR_CUDA) - before;
        if (shared) { CHECK(tensor_cuda_graph_pool_free(pool) == 0); }      // the graphs keep its memory
        for (turn = 0; turn < 3 * POOLED; turn++) {
            k = turn % POOLED;
#ifdef TEST_CUDA_SIM
            cusim_set("seed", turn);
            cusim_set("random", turn >= POOLED);
#endif
            tensor_fill_(x, turn + 1);
            if (turn == 5) { tensor_cuda_empty_cache(TENSOR_CUDA); }
            if (turn == 6) {
                tensor_set_default_device(TENSOR_CUDA);
                CHECK_POISON(tensor_empty((int64_t)1 << 40), TENSOR_ERR_OUT_OF_MEMORY,
                             "out of device memory");
                tensor_set_default_device(TENSOR_CPU);
            }
            tensor_cuda_set_stream(turn % 2 ? s1 : s2);
            CHECK_MSG(tensor_graph_replay(g[k]) == 0, "%s", tensor_error_text());
            tensor_cuda_set_stream(turn % 3 ? s1 : s2);
            CHECK_MSG(tensor_graph_replay(g[(k + 1) % POOLED]) == 0, "%s", tensor_error_text());
            tensor_cuda_set_stream(NULL);
            CHECK_MSG(all_are(y[k], 7 * (turn + 1) + k), "pool %d, turn %d: %g", shared, turn,
                      tensor_item(tensor_max(y[k])));
            k = (k + 1) % POOLED;
            CHECK_MSG(all_are(y[k], 7 * (turn + 1) + k), "pool %d, turn %d: %g", shared, turn,
                      tensor_item(tensor_max(y[k])));
        }
        // A result that another stream is still to read, and whose memory is an earlier graph's temporary.
        tensor_fill_(x, 2);
        CHECK(tensor_graph_replay(g[3]) == 0);
        tensor_cuda_set_stream(s1);
        late = tensor_mul_scalar(y[3], 1);
        tensor_cuda_set_stream(s2);
        CHECK(tensor_graph_replay(g[0]) == 0);
        tensor_cuda_set_stream(NULL);
        CHECK(all_are(late, 17));
#ifdef TEST_CUDA_SIM
        cusim_set("random", 0);
#endif
        // Freed in any order; results outlive their graphs, and the last ones the pool.
        tensor_fill_(x, 3);
        CHECK(tensor_graph_free(g[1]) == 0 && all_are(y[1], 7 * 10 + 1));
        tensor_free(y[3]);
        CHECK(tensor_graph_replay(g[0]) == 0 && tensor_graph_replay(g[3]) == 0);
        CHECK(all_are(y[0], 21) && all_are(y[1], 7 * 10 + 1));
        CHECK(tensor_graph_free(g[3]) == 0 && tensor_graph_free(g[0]) == 0 && tensor_graph_replay(g[2]) == 0);
        CHECK(all_are(y[2], 23) && all_are(y[0], 21));
        CHECK(tensor_graph_free(g[2]) == 0);
        tensor_cuda_empty_cache(TENSOR_CUDA);
        CHECK(all_are(y[2], 23) && all_are(y[0], 21));
        for (k = 0; k < 3; k++) { tensor_free(y[k]); }
        tensor_cuda_empty_cache(TENSOR_CUDA);
        // What is left is small: a piece of 2 MiB for each of three streams.
        CHECK(tensor_cuda_memory_reserved(TENSOR_CUDA) <= before + 3 * (2 << 20));
        tensor_scope_end(scope);
    }
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == used);
    // The largest temporary needs two pieces of 32 MiB; results and numbers are small ones.
    CHECK_MSG(took[0] >= POOLED * (int64_t)CHUNK && took[1] <= 2 * (int64_t)CHUNK + (2 << 20),
              "%lld bytes, in one pool %lld", (long long)took[0], (long long)took[1]);
}
// A result of one graph is what the next one of the pool reads; graphs, results and inputs go in any order.
static void pool_chain(void) {
    tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA);
    tensor_t *x = tensor_keep(on(tensor_ones(POOL_PART))), *y, *z, *part;
    tensor_graph_t *g, *h;
    int k;
    tensor_cuda_set_graph_pool(pool);
    y = pool_work(x, 5000, 0, &g);
    z = pool_work(y, 6000, 1, &h);
    for (k = 2; k < 5; k++) {
        tensor_fill_(x, k);
        CHECK(tensor_graph_replay(g) == 0 && tensor_graph_replay(h) == 0);
        CHECK(all_are(z, 49 * k + 1));
    }
    tensor_free(y);                             // h keeps its memory: no later capture takes it
    part = pool_work(x, 7000, 2, &g);           // the first graph is left to tensor_shutdown
    CHECK(all_are(part, 30) && tensor_graph_replay(h) == 0 && all_are(z, 49 * 4 + 1));
    CHECK(tensor_graph_free(h) == 0 && tensor_graph_replay(g) == 0 && all_are(part, 30));
    CHECK(all_are(z, 49 * 4 + 1));
    CHECK(tensor_graph_free(g) == 0);
    tensor_cuda_set_graph_pool(NULL);
    tensor_free(part);
    tensor_free(z);
    tensor_free(x);
    CHECK(tensor_cuda_graph_pool_free(pool) == 0);
}
// Steps of training for several shapes, in one pool, leave the net as eager steps do.
static void pool_training(void) {
    enum { SHAPES = 3, TURNS = 9 };
    tensor_t *p[2][16];
    double loss[2][TURNS];
    int captured, k, n = 0, step;
    tensor_scope_t scope = tensor_scope_begin();
    for (captured = 0; captured < 2; captured++) {
        tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA);
        tensor_graph_t *g[SHAPES] = {NULL, NULL, NULL};
        tensor_t *x[SHAPES], *y[SHAPES], *l[SHAPES] = {NULL, NULL, NULL};
        nn_module_t *m;
        nn_optimizer_t *opt;
        tensor_set_default_device(TENSOR_CUDA);
        tensor_manual_seed(3);
        m = nn_sequential(nn_linear(6, 12), nn_layer_norm(12), nn_dropout(0.3), nn_linear(12, 3));
        opt = nn_adam(m, .lr = 0.01);
        for (k = 0; k < SHAPES; k++) {
            const int64_t rows = 8 - 2 * k;
            x[k] = tensor_reshape(tensor_sin(tensor_arange(0, rows * 6, 1, TENSOR_F32)), rows, 6);
            y[k] = tensor_to(tensor_remainder_scalar(tensor_arange(0, rows, 1, TENSOR_F32), 3), TENSOR_I64);
        }
        tensor_free(train(0, m, opt, x[0], y[0]));
        tensor_cuda_set_graph_pool(captured ? pool : NULL);
        for (step = 0; step < TURNS; step++) {
            k = step % SHAPES;
            tensor_mul_scalar_(x[k], 1 + 0.01 * step);
            if (captured && step >= SHAPES) {
                CHECK_MSG(tensor_graph_replay(g[k]) == 0, "%s", tensor_error_text());
            } else {
                if (captured) { CHECK(tensor_capture_begin(TENSOR_CUDA) == 0); }
                if (l[k]) { tensor_free(l[k]); }
                l[k] = train(0, m, opt, x[k], y[k]);
                nn_zero_grad(opt);
                if (captured) { CHECK_MSG((g[k] = tensor_capture_end()) != NULL, "%s", tensor_error_text()); }
            }
            loss[captured][step] = tensor_item(l[k]);
        }
        tensor_cuda_set_graph_pool(NULL);
        n = nn_parameters(m, p[captured], 16);
        for (k = 0; k < n; k++) { p[captured][k] = off(tensor_clone(p[captured][k])); }
        tensor_set_default_device(TENSOR_CPU);
        for (k = 0; k < SHAPES; k++) {
            CHECK(tensor_graph_free(g[k]) == 0);
            tensor_free(l[k]);
        }
        nn_optimizer_free(opt);
        nn_free(m);
        CHECK(tensor_cuda_graph_pool_free(pool) == 0);
        CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
    }
    CHECK(n == 6 && loss[0][0] != loss[0][TURNS - 1]);
    for (step = 0; step < TURNS; step++) {
        CHECK_MSG(loss[0][step] == loss[1][step], "step %d: %.9g, not %.9g", step, loss[1][step],
                  loss[0][step]);
    }
    for (k = 0; k < n; k++) { CHECK_MSG(tensor_equal(p[0][k], p[1][k]), "parameter %d", k); }
    tensor_scope_end(scope);
}
// Two threads replay graphs of one pool at once, each on a stream of its own.
typedef struct pool_job_t { tensor_graph_t *g; tensor_t *y; double want; int bad; } pool_job_t;
static void *pool_runs(void *arg) {
    pool_job_t *j = (pool_job_t *)arg;
    tensor_cuda_stream_t *s = tensor_cuda_stream_new(TENSOR_CUDA);
    int k;
    tensor_cuda_set_stream(s);
    for (k = 0; k < 20; k++) {
        tensor_scope_t scope = tensor_scope_begin();
        j->bad += tensor_graph_replay(j->g) != 0 || !all_are(j->y, j->want);
        tensor_scope_end(scope);
    }
    tensor_cuda_set_stream(NULL);
    j->bad += tensor_cuda_stream_free(s) != 0 || tensor_error_code() != 0;
    tensor_thread_end();
    return NULL;
}
static void pool_threads(void) {
    tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA);
    tensor_t *x[2];
    pool_job_t j[2];
    pthread_t id[2];
    int k;
    memset(j, 0, sizeof j);
    tensor_cuda_set_graph_pool(pool);
    for (k = 0; k < 2; k++) {
        x[k] = tensor_keep(on(tensor_full(k + 1, POOL_PART)));
        j[k].y = pool_work(x[k], 400000 - k, k, &j[k].g);
        j[k].want = 7 * (k + 1) + k;
    }
    tensor_cuda_set_graph_pool(NULL);
    for (k = 0; k < 2; k++) { pthread_create(&id[k], NULL, pool_runs, &j[k]); }
    for (k = 0; k < 2; k++) { pthread_join(id[k], NULL); }
    for (k = 0; k < 2; k++) {
        CHECK_MSG(j[k].bad == 0, "thread %d: %d of 20 runs", k, j[k].bad);
        CHECK(tensor_graph_free(j[k].g) == 0);
        tensor_free(j[k].y);
        tensor_free(x[k]);
    }
    CHECK(tensor_cuda_graph_pool_free(pool) == 0);
}
static void pool_misuse(void) {
    tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA), *other;
    CHECK(tensor_cuda_graph_pool_new((tensor_device_t)(TENSOR_CUDA + 9)) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "cuda_graph_pool_new: no CUDA device 9 is started");
    CHECK(tensor_cuda_graph_pool_new(TENSOR_CPU) == NULL);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "cuda_graph_pool_new: no CUDA device");
    CHECK(tensor_cuda_set_graph_pool(pool) == 0);
    CHECK(tensor_cuda_graph_pool_free(pool) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER,
                "cuda_graph_pool_free: it is the thread's; cuda_set_graph_pool(NULL) first");
    if (device_two()) {
        other = tensor_cuda_graph_pool_new((tensor_device_t)(TENSOR_CUDA + 1));
        CHECK(tensor_cuda_set_graph_pool(other) == 0);
        CHECK(tensor_capture_begin(TENSOR_CUDA) == TENSOR_ERR_DEVICE);
        CHECK_ERROR(TENSOR_ERR_DEVICE,
                    "capture_begin: the thread's graph pool is of CUDA device 1, must be of 0");
        CHECK(tensor_cuda_set_graph_pool(pool) == 0 && tensor_cuda_graph_pool_free(other) == 0);
    }
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);       // not the device's
    CHECK(tensor_graph_free(tensor_capture_end()) == 0);
    CHECK(tensor_cuda_set_graph_pool(NULL) == 0 && tensor_cuda_graph_pool_free(pool) == 0);
    CHECK(tensor_cuda_graph_pool_free(NULL) == 0 && tensor_cuda_graph_pool_free(pool) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_graph_pool_free: the pool was freed");
    CHECK(tensor_cuda_set_graph_pool(pool) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "cuda_set_graph_pool: the pool was freed");
}
// The pool that is the thread's is freed by another one.
static void *frees_pool(void *pool) {
    CHECK(tensor_cuda_graph_pool_free((tensor_cuda_graph_pool_t *)pool) == 0);
    tensor_thread_end();
    return NULL;
}
static void pool_lost(void) {
    tensor_cuda_graph_pool_t *pool = tensor_cuda_graph_pool_new(TENSOR_CUDA);
    pthread_t id;
    CHECK(tensor_cuda_set_graph_pool(pool) == 0);
    pthread_create(&id, NULL, frees_pool, pool);
    pthread_join(id, NULL);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "capture_begin: the thread's graph pool was freed");
    CHECK(tensor_cuda_set_graph_pool(NULL) == 0);
}
// Memory of the program that a graph reads: the deleter waits for the graph.
static int deleted;
static void count_deleted(void *data, void *user) {
    (void)data;
    (void)user;
    deleted++;
}
static void *captures(void *arg) {
    tensor_cuda_set_stream(s1);
    *(int *)arg = tensor_capture_begin(TENSOR_CUDA);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "capture_begin: another thread captures a step");
    tensor_cuda_set_stream(NULL);
    tensor_exp(on(tensor_ones(4)));
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "another thread captures a graph on this stream");
    tensor_thread_end();
    return NULL;
}
// Captures in captures, of other devices and threads; want of memory inside; memory of the program.
static void hostile(void) {
    int64_t dims[1] = {64}, used;
    tensor_t *memory = on(tensor_full(3, 64)), *x, *y, *z;
    tensor_graph_t *g, *h;
    pthread_t id;
    int code = 0;
    // What the cache has is given back before a capture, so that a graph does not come on top of it.
    tensor_set_default_device(TENSOR_CUDA);
    tensor_free(tensor_empty(9 << 20));
    tensor_set_default_device(TENSOR_CPU);
    used = tensor_cuda_memory_reserved(TENSOR_CUDA);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    CHECK(tensor_cuda_memory_reserved(TENSOR_CUDA) <= used - (32 << 20));
    CHECK((g = tensor_capture_end()) != NULL && tensor_graph_free(g) == 0);
    CHECK(tensor_capture_begin(TENSOR_CPU) == 0);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "capture_begin: another step is being captured");
    CHECK(tensor_capture_end() == NULL);
    tensor_clear_error();
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);              // of nothing
    CHECK((g = tensor_capture_end()) != NULL && tensor_graph_replay(g) == 0 && tensor_graph_free(g) == 0);
    deleted = 0;
    x = tensor_cuda_wrap(tensor_cuda_data(memory), TENSOR_F32, dims, 1, TENSOR_CUDA, count_deleted, NULL);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    pthread_create(&id, NULL, captures, &code);
    pthread_join(id, NULL);
    CHECK(code == TENSOR_ERR_UNSUPPORTED);
    y = tensor_mul_scalar(x, 2);
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    tensor_free(x);
    CHECK(deleted == 0 && tensor_item(tensor_max(y)) == 6);
    tensor_fill_(memory, 4);
    tensor_cuda_synchronize(TENSOR_CUDA);
    CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_max(y)) == 8 && deleted == 0);
    // There is not enough memory in the middle: nothing of the step stays, and the graph before still runs.
    used = tensor_cuda_memory_allocated(TENSOR_CUDA);
    {
        tensor_scope_t s = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        z = tensor_exp(memory);
        tensor_add_scalar_(memory, 1);
        tensor_set_default_device(TENSOR_CUDA);
        tensor_empty((int64_t)1 << 40);
        tensor_set_default_device(TENSOR_CPU);
        tensor_add(z, z);
        CHECK(tensor_capture_end() == NULL);
        CHECK_ERROR(TENSOR_ERR_OUT_OF_MEMORY, "out of device memory");
        tensor_scope_end(s);
    }
    CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == used);
    CHECK(tensor_item(tensor_max(memory)) == 4);                // nothing of it was done
    CHECK(tensor_graph_replay(g) == 0 && tensor_item(tensor_max(y)) == 8);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    z = tensor_add(y, y);                       // one graph reads another one's output
    CHECK((h = tensor_capture_end()) != NULL && tensor_item(tensor_max(z)) == 16);
    tensor_fill_(memory, 5);
    tensor_cuda_synchronize(TENSOR_CUDA);
    CHECK(tensor_graph_replay(g) == 0 && tensor_graph_replay(h) == 0 && tensor_item(tensor_max(z)) == 20);
    CHECK(tensor_graph_free(g) == 0 && deleted == 1);
    tensor_free(y);
    CHECK(tensor_graph_replay(h) == 0 && tensor_item(tensor_max(z)) == 20);
    CHECK(tensor_graph_free(h) == 0);
}
static void misuse(void) {
    tensor_graph_t *g = NULL, *h;
    tensor_t *x = on(tensor_ones(4)), *old = tensor_keep(on(tensor_ones(3))), *y;
    tensor_cuda_event_t *e = tensor_cuda_event_new(TENSOR_CUDA, 0);
    nn_module_t *m;
    nn_optimizer_t *opt;
    float data[4] = {1, 2, 3, 4};
    int64_t used;
    int k;
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_POISONED);
    CHECK_ERROR(TENSOR_ERR_POISONED, "graph_replay: the graph is NULL");
    CHECK(tensor_capture_end() == NULL);
    CHECK_ERROR(TENSOR_ERR_OWNER, "capture_end: this thread captures nothing");
    CHECK(tensor_capture_begin((tensor_device_t)(TENSOR_CUDA + 77)) == TENSOR_ERR_DEVICE);
    CHECK_ERROR(TENSOR_ERR_DEVICE, "capture_begin: no CUDA device 77");
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_add_scalar_(x, 0);
    CHECK((h = tensor_capture_end()) != NULL);
    used = tensor_cuda_memory_allocated(TENSOR_CUDA);
    // Each of these ends a capture with an error; nothing of it stays.
#define TRY(text, ...)                                                                                       \
    {                                                                                                        \
        tensor_scope_t s = tensor_scope_begin();                                                             \
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);                                                       \
        y = tensor_exp(x);                                                                                   \
        __VA_ARGS__;                                                                                         \
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, text);                                                           \
        CHECK_MSG(tensor_capture_end() == NULL && !tensor_ok(), "%s", #__VA_ARGS__);                         \
        tensor_clear_error();                                                                                \
        tensor_scope_end(s);                                                                                 \
        CHECK_MSG(tensor_cuda_memory_allocated(TENSOR_CUDA) == used, "%s", #__VA_ARGS__);                    \
    }
    TRY("manual_seed: not in a capture", tensor_manual_seed(3))
    TRY("item: the host reads elements here", CHECK(isnan(tensor_item(tensor_sum(y)))))
    TRY("copy_out: the host reads", CHECK(tensor_copy_out(y, data, sizeof data) == TENSOR_ERR_UNSUPPORTED))
    TRY("to: the host reads", off(y))
    TRY("to: the host writes elements here", on(tensor_ones(4)))
    TRY("cuda has no kernel for it, and a graph cannot run on the CPU",
        tensor_remainder_scalar(tensor_to(y, TENSOR_I64), 0))
#ifdef TEST_FEW                                 // without the kernel of its first step
    TRY("nonzero: ne: cuda has no kernel for it", tensor_nonzero(y))
#else
    TRY("nonzero: the shape of its result depends on elements", tensor_nonzero(y))
#endif
    TRY("cuda_synchronize: not while a graph is captured", tensor_cuda_synchronize(TENSOR_CUDA))
    TRY("cuda_event_record: not while", tensor_cuda_event_record(e, s1))
    TRY("cuda_stream_wait_event: not while", tensor_cuda_stream_wait_event(NULL, e))
    TRY("capture_end: work of another stream was not waited for", tensor_cuda_stream_wait_stream(s1, NULL);
        tensor_cuda_set_stream(s1); tensor_exp(x); tensor_cuda_set_stream(NULL);
        CHECK(tensor_ok() && tensor_capture_end() == NULL && !tensor_ok()))
    TRY("cuda_stream_wait_stream: not while", tensor_cuda_stream_wait_stream(NULL, s1))
    TRY("cuda_stream_query: not while", tensor_cuda_stream_query(s1))
    TRY("a graph is captured on another stream",
        tensor_cuda_set_stream(s1); tensor_exp(x); tensor_cuda_set_stream(NULL))
    TRY("capture_begin: another step is being captured", CHECK(tensor_capture_begin(TENSOR_CUDA)))
    TRY("capture_begin: another step is being captured", CHECK(tensor_capture_begin(TENSOR_CPU)))
    TRY("graph_free: a graph cannot be freed in a capture", CHECK(tensor_graph_free(h)))
    TRY("graph_replay: not in a capture", CHECK(tensor_graph_replay(h)))
    TRY("set: the handle has a tensor older than the capture", CHECK(tensor_set(&old, y)))
#undef TRY
    m = nn_linear(4, 2);
    CHECK(nn_to(m, TENSOR_CUDA) == 0);
    opt = nn_adam(m);
    for (k = 0; k < 2; k++) {
        tensor_t *l = tensor_sum(nn_forward(m, tensor_reshape(x, 1, 4)));
        CHECK(nn_zero_grad(opt) == 0 && tensor_backward(l) == 0);
        if (k == 0) {
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0 && nn_step(opt) == TENSOR_ERR_UNSUPPORTED);
            CHECK(tensor_capture_end() == NULL);
            CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "step: take a step before the capture");
            CHECK(nn_step(opt) == 0);
        } else {
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
            CHECK_MSG(nn_step(opt) == 0 && (g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
            CHECK(tensor_graph_replay(g) == 0);
        }
    }
    nn_optimizer_free(opt);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "the optimizer was freed");
    nn_free(m);
    CHECK(tensor_graph_free(g) == 0 && tensor_graph_free(NULL) == 0);
    CHECK(tensor_graph_replay(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, "graph_replay: the graph was freed");
    CHECK(tensor_graph_free(g) == TENSOR_ERR_OWNER);
    CHECK_ERROR(TENSOR_ERR_OWNER, NULL);
    CHECK(tensor_graph_free(h) == 0 && tensor_cuda_event_free(e) == 0 && tensor_free(old) == 0);
}

// ---- memory of the host, and what an error says ----

static void pinned(void) {
    tensor_t *x0 = tensor_arange(0, 600, 1, TENSOR_F32), *x = x0, *p = tensor_pin_memory(x), *y, *z;
    int k, seed;
    CHECK(p != x && tensor_equal(p, x) && tensor_pin_memory(p) == p && tensor_device(p) == TENSOR_CPU);
    CHECK(tensor_data(p) != NULL && tensor_item(tensor_sum(tensor_add(p, x))) == 600 * 599);
    CHECK_POISON(tensor_pin_memory(on(x)), TENSOR_ERR_DEVICE,
                 "pin_memory: x [600] is on cuda, must be on the CPU");
    for (seed = 0; seed < 8; seed++) {
        tensor_scope_t s = tensor_scope_begin();
#ifdef TEST_CUDA_SIM
        cusim_set("seed", seed);
        cusim_set("random", seed > 1);
#endif
        y = on(tensor_zeros(600));
        for (k = 0; k < 4; k++) {               // freed at once: its memory waits for the copy
            z = tensor_pin_memory(tensor_full(k + 1, 600));
            tensor_add_(y, tensor_to_non_blocking(z, TENSOR_CUDA));
            tensor_free(z);
        }
        tensor_add_(y, tensor_to_non_blocking(x, TENSOR_CUDA));  // pageable: read when it returns
        z = tensor_to_non_blocking(y, TENSOR_CPU);
        CHECK(tensor_pin_memory(z) == z);
        CHECK(tensor_cuda_stream_synchronize(NULL) == 0);
        CHECK_MSG(((const float *)tensor_data(z))[9] == 19, "seed %d", seed);
        {                                       // freed in a capture, while its copy may be under way
            tensor_graph_t *g;
            z = tensor_pin_memory(tensor_full(7, 600));
            x = tensor_to_non_blocking(z, TENSOR_CUDA);
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
            tensor_free(z);
            z = tensor_pin_memory(tensor_full(1, 600));
            y = tensor_keep(tensor_add(x, y));
            CHECK((g = tensor_capture_end()) != NULL);
            CHECK_MSG(tensor_item(tensor_select(y, 0, 9)) == 26, "seed %d", seed);
            CHECK(((const float *)tensor_data(z))[9] == 1 && tensor_graph_free(g) == 0);
            tensor_free(y);
            x = x0;
        }
        tensor_scope_end(s);
    }
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
}
// Pinned memory in a graph: each replay reads anew what the host has put there, and fills what it looks at
// after. The graph keeps that memory, whatever becomes of its tensors.
static void fed(void) {
    tensor_t *x = on(tensor_zeros(600)), *w = on(tensor_arange(0, 600, 1, TENSOR_F32));
    tensor_t *p, *labels, *sums[2], *page;
    tensor_graph_t *g;
    tensor_scope_t step;
    int64_t used;
    int k, seed;
    for (seed = 0; seed < 6; seed++) {
        tensor_scope_t s = tensor_scope_begin();
#ifdef TEST_CUDA_SIM
        cusim_set("seed", seed);
        cusim_set("random", seed > 1);
#endif
        page = tensor_ones(600);
        p = tensor_keep(tensor_pin_memory(tensor_full(1, 600)));
        labels = tensor_pin_memory(tensor_full_of(TENSOR_I64, 3, 1));
        used = tensor_cuda_memory_allocated(TENSOR_CUDA);
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        step = tensor_scope_begin();
        tensor_copy_(x, p);
        sums[0] = tensor_keep(tensor_to_non_blocking(tensor_sum(tensor_mul(x, w)), TENSOR_CPU));
        sums[1] = tensor_keep(tensor_to_non_blocking(tensor_add(tensor_to_non_blocking(labels, TENSOR_CUDA),
                                                                tensor_to(labels, TENSOR_CUDA)), TENSOR_CPU));
        tensor_scope_end(step);
        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        CHECK(tensor_item(sums[0]) == 600 * 599 / 2 && tensor_item(sums[1]) == 6);
        for (k = 2; k < 5; k++) {
            tensor_fill_(p, k);
            tensor_fill_(labels, 10 * k);
            CHECK(tensor_graph_replay(g) == 0 && tensor_cuda_synchronize(TENSOR_CUDA) == 0);
            CHECK_MSG(tensor_item(sums[0]) == k * 600 * 599 / 2, "seed %d", seed);
            CHECK_MSG(tensor_item(sums[1]) == 20 * k, "seed %d", seed);
        }
        tensor_free(p);                         // the memory is not anybody else's before the graph is freed
        tensor_free(labels);
        tensor_free(sums[1]);
        p = tensor_pin_memory(tensor_full(99, 600));
        labels = tensor_pin_memory(tensor_full_of(TENSOR_I64, 99, 1));
        CHECK(tensor_graph_replay(g) == 0 && tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        CHECK(tensor_item(sums[0]) == 4 * 600 * 599 / 2 && tensor_item(labels) == 99);
        CHECK(tensor_item(tensor_max(p)) == 99);
        CHECK(tensor_graph_free(g) == 0);
        tensor_free(sums[0]);
        CHECK(tensor_cuda_memory_allocated(TENSOR_CUDA) == used);
        // What is not there yet, and memory that a graph cannot read.
        for (k = 0; k < 4; k++) {
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
            sums[0] = tensor_to_non_blocking(tensor_sum(x), TENSOR_CPU);
            if (k == 0) { CHECK(isnan(tensor_item(sums[0]))); }
            if (k == 1) { CHECK(tensor_data(sums[0]) == NULL); }
            if (k == 2) { tensor_add_scalar(sums[0], 1); }
            if (k == 3) { tensor_copy_(x, page); }
            CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, k == 3 ? "to: the host writes elements here" :
                                                k == 2 ? "add_scalar: the host reads elements here" :
                                                         "the host reads elements here");
            CHECK(tensor_capture_end() == NULL);
            tensor_clear_error();
        }
        tensor_scope_end(s);
    }
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
}
// Batches that travel ahead are those of a loader as ever, in order, over epochs, after a seek.
static void loader(void) {
    tensor_t *x = tensor_randn(10, 3), *y = tensor_randint(0, 5, 10);
    nn_data_loader_t *l[2];
    nn_batch_t b[2];
    int k, seed, there[2], total = 0;
    for (seed = 0; seed < 6; seed++) {
#ifdef TEST_CUDA_SIM
        cusim_set("seed", seed);
        cusim_set("random", seed > 1);
#endif
        l[0] = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 3, .shuffle = 1, .seed = 4);
        l[1] = nn_data_loader(nn_tensor_dataset(x, y), .batch_size = 3, .shuffle = 1, .seed = 4, .device =
                              TENSOR_CUDA);
        for (k = 0; k < 11; k++) {
            tensor_scope_t s = tensor_scope_begin();
            if (k == 7) { CHECK(nn_seek(l[0], 2) == 0 && nn_seek(l[1], 2) == 0); }
            there[0] = nn_next(l[0], &b[0]);
            there[1] = nn_next(l[1], &b[1]);
            CHECK(there[0] == there[1] && b[0].size == b[1].size && b[0].index == b[1].index);
            if (there[0]) {
                CHECK(tensor_device(b[1].x) == TENSOR_CUDA && tensor_device(b[1].y) == TENSOR_CUDA);
                tensor_add_scalar_(b[1].x, 1);
                CHECK(tensor_allclose(tensor_add_scalar(b[0].x, 1), off(b[1].x), 0, 0));
                CHECK(tensor_equal(b[0].y, off(b[1].y)) && b[0].epoch == b[1].epoch);
                total++;
            }
            tensor_scope_end(s);
        }
        CHECK(nn_data_loader_free(l[0]) == 0 && nn_data_loader_free(l[1]) == 0);
    }
    CHECK(total == 6 * 9);
    l[0] = nn_data_loader(nn_tensor_dataset(x, NULL), .batch_size = 4, .pin_memory = 1);
    CHECK(nn_next(l[0], &b[0]) == 1 && tensor_pin_memory(b[0].x) == b[0].x && b[0].y == NULL);
    CHECK(nn_data_loader_free(l[0]) == 0);
#ifdef TEST_CUDA_SIM
    cusim_set("random", 0);
#endif
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
}
static void places(void) {
    tensor_t *x = on(tensor_ones(5)), *fine = on(tensor_from(((int64_t[]){0, 1}), TENSOR_I64, 2));
    tensor_t *bad = on(tensor_from(((int64_t[]){0, 9}), TENSOR_I64, 2));
    char want[80];
    int k, line = 0;
    tensor_graph_t *g;
    for (k = 0; k < 600; k++) { tensor_index_select(x, 0, fine); }  // more than there are words
    tensor_index_select(x, 0, bad); line = __LINE__;
    tensor_index_select(x, 0, fine);
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX);
    snprintf(want, sizeof want, "index_select at streams.c:%d: element 1 is out of range", line);
    CHECK_ERROR(TENSOR_ERR_INDEX, want);
#ifndef TEST_FEW                 // that wait reads all words, of 8 bytes each, while s1 may write its own
    // What is asked of other streams, and waited for, in between does not take its place.
    tensor_cuda_set_stream(s1);
    tensor_index_select(x, 0, bad); line = __LINE__;
    tensor_cuda_set_stream(NULL);
    for (k = 0; k < 400 && tensor_ok(); k++) {
        tensor_index_select(x, 0, fine);
        if (k % 100 == 99) { tensor_cuda_stream_synchronize(NULL); }
    }
    tensor_cuda_stream_synchronize(s1);
    snprintf(want, sizeof want, "index_select at streams.c:%d: element 1 is out of range", line);
    CHECK_ERROR(TENSOR_ERR_INDEX, want);
#endif
    // On another stream, found by what waits for it.
    tensor_cuda_set_stream(s1);
    x = tensor_index_select(x, 0, bad);
    tensor_cuda_set_stream(NULL);
    tensor_item(tensor_sum(x));
    CHECK_ERROR(TENSOR_ERR_INDEX, "index_select at streams.c");
    // In a graph: at each run.
    x = on(tensor_ones(5));
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_gather(x, 0, bad); line = __LINE__;
    CHECK((g = tensor_capture_end()) != NULL);
    snprintf(want, sizeof want, "gather at streams.c:%d: element 1 is out of range", line);
    for (k = 0; k < 3; k++) {
        CHECK(k == 0 || tensor_graph_replay(g) == 0);
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, want);
    }
    CHECK(tensor_graph_free(g) == 0);
}
#ifdef TEST_CUDA_SIM
// Once the device has come to a bad index, the next replay is refused before it does anything, also what
// stands before that op.
static void refused(void) {
    tensor_t *x = on(tensor_ones(5)), *index = on(tensor_zeros_of(TENSOR_I64, 1));
    tensor_t *runs = on(tensor_zeros(1));
    tensor_graph_t *g;
    char want[80];
    int line;
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_add_scalar_(runs, 1);
    tensor_index_select(x, 0, index); line = __LINE__;
    CHECK((g = tensor_capture_end()) != NULL);
    snprintf(want, sizeof want, "index_select at streams.c:%d: element 0 is out of range", line);
    cusim_set("eager", 1);
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);   // what was queued before does not run by itself
    for (int turn = 0; turn < 2; turn++) {
        tensor_fill_(index, 9);
        CHECK(tensor_graph_replay(g) == 0);
        tensor_fill_(index, 1);
        CHECK(tensor_graph_replay(g) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, want);
        CHECK(tensor_graph_replay(g) == 0);
        CHECK(tensor_item(runs) == 1 + 2 * (turn + 1));
    }
    cusim_set("random", 0);
    CHECK(tensor_graph_free(g) == 0);
}
#ifndef TEST_FEW
// An optimizer that was captured before the op that refuses an index makes the step of that replay, but none
// in the next replays until the program has heard of it; also where another stream's ops run beside. With the
// parameters stays what Muon remembers of them.
static void held(void) {
    for (int turn = 0; turn < 4; turn++) {
        const int streams = 1 + turn % 2, muon = turn / 2;
        tensor_scope_t scope = tensor_scope_begin();
        nn_module_t *net = nn_linear(4, 3, .no_bias = muon);
        nn_optimizer_t *opt = muon ? nn_muon(net, .lr = 0.1) : nn_sgd(net, .lr = 0.1);
        nn_to(net, TENSOR_CUDA);
        tensor_t *x = on(tensor_randn(5, 4)), *y = on(tensor_zeros_of(TENSOR_I64, 5)), *w, *before, *once;
        tensor_t *state, *kept;
        tensor_graph_t *g = NULL;
        for (int step = 0; step < 2; step++) {
            if (step) { CHECK(tensor_capture_begin(TENSOR_CUDA) == 0); }
            if (step && streams > 1) { tensor_cuda_stream_wait_stream(s1, NULL); }
            nn_zero_grad(opt);
            tensor_backward(tensor_mean(tensor_square(nn_forward(net, x))));
            nn_step(opt);
            if (step && streams > 1) {
                tensor_cuda_set_stream(s1);
                tensor_exp(x);
                tensor_cuda_set_stream(NULL);
                tensor_cuda_stream_wait_stream(NULL, s1);
            }
            tensor_cross_entropy(nn_forward(net, x), y);
            nn_step(opt);                       // behind it: not in that replay either
            if (step) { CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text()); }
        }
        w = nn_get(net, "weight");
        state = muon ? nn_optimizer_state(opt, w, "momentum_buffer") : w;
        before = tensor_clone(tensor_detach(w));
        tensor_fill_(y, 9);
        CHECK(tensor_graph_replay(g) == 0);
        once = tensor_clone(tensor_detach(w));
        kept = tensor_clone(tensor_detach(state));
        for (int again = 0; again < 2; again++) {
            CHECK(tensor_graph_replay(g) == 0);
            tensor_fill_(y, 1);                 // good labels change nothing
        }
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, "cross_entropy at streams.c");
        CHECK_MSG(tensor_equal(w, once), "%d streams", streams);
        CHECK_MSG(tensor_equal(state, kept), "%d streams", streams);
        CHECK(!tensor_equal(once, before));
        CHECK(tensor_graph_replay(g) == 0 && !tensor_equal(w, once) && !tensor_equal(state, kept));
        CHECK(tensor_graph_free(g) == 0);
        nn_optimizer_free(opt);
        nn_free(net);
        tensor_scope_end(scope);
    }
}
#endif
#endif
// As capture.c's: a label out of range stops a replay before the optimizer, and the next ones until the
// program has heard of it; then the steps go on as if it had never been.
#ifndef TEST_FEW
enum { RULES = 3 };
static nn_optimizer_t *stopped_rule(int rule, nn_module_t *net) {
    if (rule == 0) { return nn_sgd(net, .lr = 0.05, .momentum = 0.9, .nesterov = 1, .weight_decay = 0.01); }
    if (rule == 1) { return nn_rmsprop(net, .lr = 0.01, .momentum = 0.9); }
    return nn_adamw(net, .lr = 0.01);
}
static void stopped(void) {
    for (int rule = 0; rule < RULES; rule++) {
        tensor_t *end[2][4];
        tensor_scope_t scope = tensor_scope_begin();
        for (int bad = 0; bad < 2; bad++) {
            tensor_set_default_device(TENSOR_CUDA);
            tensor_manual_seed(5);
            nn_module_t *net = nn_sequential(nn_conv2d(3, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_relu(),
                                             nn_max_pool2d(2), nn_conv2d(8, 12, 3), nn_avg_pool2d(2),
                                             nn_dropout(0.3), nn_flatten(), nn_linear(12 * 2 * 2, 5));
            if (rule == 1) { nn_to(net, TENSOR_F64); }
            nn_optimizer_t *opt = stopped_rule(rule, net);
            tensor_t *x = tensor_randn(4, 3, 12, 12), *y = on(tensor_randint(0, 5, 4)), *before[6], *p[8];
            tensor_graph_t *g = NULL;
            char want[80];
            int line = 0;
            if (rule == 1) { x = tensor_to(x, TENSOR_F64); }
            scaler = rule == 2 ? nn_grad_scaler(4, 50) : NULL;
            for (int step = 0; step < 2; step++) {
                if (step) { CHECK(tensor_capture_begin(TENSOR_CUDA) == 0); }
                tensor_t *loss = tensor_cross_entropy(nn_forward(net, x), y); line = __LINE__;
                nn_zero_grad(opt);
                tensor_backward(scaler ? nn_scaler_scale(scaler, loss) : loss);
                if (!scaler) {
                    nn_step(opt);
                } else if (nn_scaler_step(scaler, opt) == 0) {
                    nn_scaler_update(scaler);
                }
                if (step) { CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text()); }
            }
            CHECK(nn_parameters(net, p, 8) == 8);
            tensor_generator_t drawn = tensor_get_generator();
            snprintf(want, sizeof want, "cross_entropy at streams.c:%d: element 0 is out of range", line);
            for (int turn = 0; turn < 2 && bad; turn++) {
                for (int k = 0; k < 4; k++) { before[k] = tensor_clone(tensor_detach(p[k])); }
                tensor_fill_(y, 5);
                CHECK(tensor_graph_replay(g) == 0);
                int told = 0;
                if (turn) {                     // not heard of yet: good labels do not go on either
                    tensor_fill_(y, 4);
                    told = tensor_graph_replay(g);      // the device may have come to it by now
                    CHECK(told == 0 || told == TENSOR_ERR_INDEX);
                }
                if (!told) { CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX); }
                CHECK_ERROR(TENSOR_ERR_INDEX, want);
                for (int k = 0; k < 4; k++) {
                    CHECK_MSG(tensor_equal(before[k], p[k]), "rule %d, %d", rule, k);
                }
            }
            tensor_set_generator(drawn);
            tensor_fill_(y, 4);
            before[0] = tensor_clone(tensor_detach(p[0]));
            for (int step = 0; step < 3; step++) { CHECK(tensor_graph_replay(g) == 0); }
            CHECK(!tensor_equal(before[0], p[0]));
            for (int k = 0; k < 4; k++) { end[bad][k] = off(tensor_clone(tensor_detach(p[k]))); }
            if (scaler) { tensor_free(scaler); }
            scaler = NULL;
            tensor_set_default_device(TENSOR_CPU);
            CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
            tensor_clear_error();
            nn_optimizer_free(opt);
            nn_free(net);
            CHECK(tensor_graph_free(g) == 0);
        }
        // AdamW has counted the steps that were not done.
        for (int k = 0; k < 4 && rule != 2; k++) {
            CHECK_MSG(tensor_equal(end[0][k], end[1][k]), "rule %d, %d", rule, k);
        }
        tensor_scope_end(scope);
    }
}
#endif
// Training of one shape takes nothing from the driver after its second step, and gives nothing back.
static void raw_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1 || sscanf(text, "num_device_free %lld", &n) == 1) {
        *(int64_t *)user += n;
    }
}
static int64_t raw_calls(void) {
    int64_t n = 0;
    tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &n);
    return n;
}
// The gradient of logits that the program has freed takes their memory, also in a graph; the numbers are
// those of a gradient with memory of its own.
static void logits(void) {
    enum { ROWS = 64, CLASSES = 2048 };
    const int last = FEW ? TENSOR_F32 : TENSOR_BF16;
    for (int dtype = TENSOR_F32; dtype <= last; dtype += TENSOR_BF16 - TENSOR_F32) {
        const int64_t bytes = (int64_t)ROWS * CLASSES * (dtype == TENSOR_F32 ? 4 : 2);
        tensor_t *x = tensor_requires_grad_(on(tensor_to(tensor_randn(ROWS, 8), dtype)), 1);
        tensor_t *w = tensor_requires_grad_(on(tensor_to(tensor_randn(CLASSES, 8), dtype)), 1);
        tensor_t *y = on(tensor_randint(0, CLASSES, ROWS)), *grad[2];
        int64_t most[2];
        for (int freed = 0; freed < 2; freed++) {
            tensor_graph_t *g = NULL;
            for (int captured = 0; captured < 2; captured++) {
                tensor_scope_t scope = tensor_scope_begin();
                if (captured) { CHECK(tensor_capture_begin(TENSOR_CUDA) == 0); }
                tensor_t *scores = tensor_linear(x, w, NULL), *loss = tensor_cross_entropy(scores, y);
                if (freed) { CHECK(tensor_free(scores) == 0); }
                tensor_cuda_reset_peak_memory_stats(TENSOR_CUDA);
                const int64_t before = tensor_cuda_memory_allocated(TENSOR_CUDA);
                CHECK(tensor_backward(loss) == 0);
                most[freed] = tensor_cuda_max_memory_allocated(TENSOR_CUDA) - before;
                CHECK_MSG(freed ? most[1] < bytes : most[0] >= bytes, "%lld of %lld", (long long)most[freed],
                          (long long)bytes);
                if (captured) { CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text()); }
                tensor_scope_end(scope);
            }
            CHECK(tensor_graph_replay(g) == 0);     // adds to what the first pass and the captured one made
            grad[freed] = tensor_clone(tensor_grad(w));
            CHECK(tensor_graph_free(g) == 0);
            tensor_zero_(tensor_grad(w));
        }
        CHECK(tensor_equal(grad[0], grad[1]) && tensor_item(tensor_norm(grad[0])) > 0);
    }
}
static void steady(void) {
    int which, step;
    for (which = 0; which < MODELS; which++) {
        nn_module_t *m;
        nn_optimizer_t *opt;
        tensor_t *x, *y;
        int64_t after_two = 0;
        tensor_cuda_empty_cache(TENSOR_CUDA);
        tensor_set_default_device(TENSOR_CUDA);
        m = model(which);
        opt = optimizer(which, m);
        for (step = 0; step < 8; step++) {
            tensor_scope_t s = tensor_scope_begin();
            batch(step, &x, &y);
            tensor_free(train(which, m, opt, x, y));
            tensor_scope_end(s);
            if (step == 1) { after_two = raw_calls(); }
        }
        CHECK_MSG(after_two > 0 && raw_calls() == after_two, "model %d: %d raw calls after step 2", which,
                  (int)(raw_calls() - after_two));
        tensor_set_default_device(TENSOR_CPU);
        nn_optimizer_free(opt);
        nn_free(m);
    }
}
// What an op makes of its own is on the device of what it is given, also where the default is the CPU: a
// capture takes it.
static void inverse_captured(void) {
    tensor_t *x = on(tensor_add(tensor_randn(4, 4), tensor_mul_scalar(tensor_eye(4, 4), 5))), *y, *z;
    tensor_graph_t *g;
    CHECK(tensor_linalg_inv(x) && tensor_ok());
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    y = tensor_linalg_inv(x);
#ifdef TEST_FEW
    z = tensor_mul_scalar(tensor_ones_like(x), 0.5);
#else
    z = tensor_isin(x, tensor_narrow(x, 0, 0, 2));
#endif
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    CHECK(tensor_allclose(tensor_matmul(x, y), on(tensor_eye(4, 4)), 1e-4, 1e-4));
    CHECK(tensor_item(tensor_sum(z)) == 8);
    tensor_copy_(x, tensor_mul_scalar(x, 2));
    CHECK(tensor_graph_set_memory_budget(g, 1) == TENSOR_ERR_UNSUPPORTED);
    CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "graph_set_memory_budget: the memory of a GPU's graph");
    CHECK(tensor_graph_replay(g) == 0);
    CHECK(tensor_allclose(tensor_matmul(x, y), on(tensor_eye(4, 4)), 1e-4, 1e-4));
    CHECK(tensor_graph_free(g) == 0);
}
#ifdef TEST_CUDA_SIM
// Each call of CUDA in capture and replay fails once: an error, nothing leaks, and the next capture works.
static void graph_faults(void) {
    int k, met = 0;
    tensor_t *x = on(tensor_ones(1000)), *y;
    for (k = 0; k < 60; k++) {
        tensor_scope_t s = tensor_scope_begin();
        int64_t used = tensor_cuda_memory_allocated(TENSOR_CUDA);
        tensor_graph_t *g = NULL;
        cusim_set(k % 2 ? "fail_call" : "fail_alloc", k / 2);
        if (tensor_capture_begin(TENSOR_CUDA) == 0) {
            y = tensor_mul(tensor_rand_like(x), x);
            tensor_sum(y);
            if ((g = tensor_capture_end()) != NULL) { tensor_graph_replay(g); }
        }
        met += !tensor_ok();
        cusim_set("fail_call", -1);
        cusim_set("fail_alloc", -1);
        tensor_clear_error();
        tensor_scope_end(s);
        CHECK(tensor_graph_free(g) == 0);
        CHECK_MSG(tensor_cuda_memory_allocated(TENSOR_CUDA) == used, "call %d", k);
    }
    CHECK_MSG(met > 3, "%d", met);
}
// A replay that fails on another stream, behind the kernel that sends its numbers: the memory that this
// writes stays until it has run.
static void graph_fails_behind_its_numbers(void) {
    int k, met = 0;
    tensor_t *x = on(tensor_ones(1000));
    for (k = 0; k < 20; k++) {
        tensor_graph_t *g;
        tensor_scope_t s = tensor_scope_begin();
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        tensor_sum(tensor_mul(tensor_rand_like(x), x));
        CHECK((g = tensor_capture_end()) != NULL);
        CHECK(tensor_graph_replay(g) == 0);
        tensor_cuda_set_stream(s1);
        cusim_set("fail_call", k);
        met += tensor_graph_replay(g) != 0;
        cusim_set("fail_call", -1);
        tensor_cuda_set_stream(NULL);
        tensor_clear_error();
        tensor_scope_end(s);
        CHECK(tensor_graph_free(g) == 0);
        tensor_cuda_empty_cache(TENSOR_CUDA);
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
    }
    CHECK_MSG(met > 2, "%d", met);
}
// A kernel that CUDA cannot start: the device is lost, the CPU is not, and all is given back.
static void lost(void) {
    tensor_t *x = on(tensor_ones(9)), *y = tensor_ones(9);
    cusim_set("fail_launch", 0);
    CHECK_POISON(tensor_exp(x), TENSOR_ERR_CUDA, "exp: unspecified launch failure");
    cusim_set("fail_launch", -1);
    CHECK_POISON(tensor_exp(x), TENSOR_ERR_CUDA, "exp: unspecified launch failure");
    CHECK(tensor_cuda_stream_synchronize(s1) == TENSOR_ERR_CUDA);
    CHECK_ERROR(TENSOR_ERR_CUDA, "no call of CUDA works in this process any more");
    CHECK(tensor_item(tensor_sum(tensor_exp(y))) > 24);
    tensor_clear_error();
}
// Lost within a step of training, after each number of launches: an error that says so, the host's batch and
// the copy of the net are whole, and the copy trains on the CPU.
static void lost_in_training(void) {
    tensor_t *x = tensor_randn(6, 4), *y = tensor_randint(0, 3, 6), *same[2];
    nn_module_t *net[2];
    nn_optimizer_t *opt[2];
    int k, i, met = 0;
    same[0] = tensor_clone(x);
    same[1] = tensor_clone(y);
    for (k = 0; k < 30; k++) {
        tensor_scope_t s = tensor_scope_begin();
        cusim_set("reset", 0);                  // a new device, as it were: its memory is as before
        net[0] = nn_sequential(nn_linear(4, 8), nn_relu(), nn_linear(8, 3));
        net[1] = nn_clone(net[0]);
        nn_to(net[0], TENSOR_CUDA);
        for (i = 0; i < 2; i++) { opt[i] = nn_adam(net[i], .lr = 0.05); }
        CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
        cusim_set("fail_launch", k);
        for (i = 0; i < 3 && tensor_ok(); i++) {
            tensor_t *l = tensor_cross_entropy(nn_forward(net[0], on(x)), on(y));
            nn_zero_grad(opt[0]);
            tensor_backward(l);
            nn_step(opt[0]);
            tensor_item(l);
        }
        cusim_set("fail_launch", -1);
        met += !tensor_ok();
        CHECK_ERROR(TENSOR_ERR_CUDA, "unspecified launch failure");
        CHECK(nn_to(net[0], TENSOR_CPU) == TENSOR_ERR_CUDA);
        CHECK_ERROR(TENSOR_ERR_CUDA, "no call of CUDA works in this process any more");
        CHECK(tensor_equal(x, same[0]) && tensor_equal(y, same[1]));
        double first = 0, last = 0;
        for (i = 0; i < 20; i++) {
            tensor_t *l = tensor_cross_entropy(nn_forward(net[1], x), y);
            nn_zero_grad(opt[1]);
            CHECK(tensor_backward(l) == 0 && nn_step(opt[1]) == 0);
            last = tensor_item(l);
            first = i ? first : last;
        }
        CHECK_MSG(last < first && tensor_ok(), "%g %g", first, last);
        for (i = 0; i < 2; i++) {
            nn_optimizer_free(opt[i]);
            nn_free(net[i]);
        }
        tensor_scope_end(s);
    }
    CHECK(met == 30);
}
#endif
// A result is freed while another stream still reads it: the next run waits for that, as if it were held.
static void freed_result(void) {
    for (int way = 0; way < 6; way++) {         // way % 2: freed; way / 2: an op, a copy, a graph reads it
        tensor_scope_t s = tensor_scope_begin();
        tensor_graph_t *g, *reader = NULL;
        tensor_t *x = on(tensor_ones(1000)), *y, *z = NULL;
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        y = tensor_mul_scalar(x, 2);
        CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        tensor_cuda_set_stream(s2);
        if (way / 2 == 0) { z = tensor_add_scalar(y, 1); }
        if (way / 2 == 1) { z = tensor_to_non_blocking(y, TENSOR_CPU); }
        if (way / 2 == 2) {
            CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
            z = tensor_add_scalar(y, 1);
            CHECK((reader = tensor_capture_end()) != NULL);
            CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
            if (way % 2) { tensor_free(y); }
            CHECK(tensor_graph_replay(reader) == 0);
        }
        tensor_cuda_set_stream(NULL);
        if (way % 2 && way / 2 != 2) { tensor_free(y); }
        tensor_fill_(x, 100);
        CHECK(tensor_graph_replay(g) == 0 && tensor_cuda_stream_synchronize(NULL) == 0);
        CHECK(tensor_cuda_stream_synchronize(s2) == 0);
        CHECK_MSG(tensor_item(tensor_select(z, 0, 5)) == 2 + (way / 2 != 1), "way %d: %g", way,
                  tensor_item(tensor_select(z, 0, 5)));
        CHECK(tensor_graph_free(g) == 0 && tensor_graph_free(reader) == 0);
        tensor_scope_end(s);
    }
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
}
// As capture.c's: the mask of a dropout older than the capture stays in each replay; what is drawn in the
// capture does not.
static void older_mask(void) {
    for (int back = 0; back < 2; back++) {
        tensor_set_default_device(TENSOR_CUDA);
        tensor_manual_seed(3);
        tensor_generator_t start = tensor_get_generator();
        tensor_t *x = tensor_requires_grad_(tensor_ones(256), 1), *other = tensor_zeros(256);
        tensor_t *mask, *y, *first;
        tensor_set_grad(x, tensor_zeros(256));
        y = tensor_dropout(x, 0.5, 1);
        mask = tensor_to(tensor_detach(y), TENSOR_CPU);
        if (back) { tensor_set_generator(start); }
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        tensor_fill_(tensor_grad(x), 0);
        tensor_backward_with(tensor_sum(y), NULL, TENSOR_RETAIN_GRAPH);
        tensor_copy_(other, tensor_rand(256));
        tensor_graph_t *g = tensor_capture_end();
        CHECK_MSG(g != NULL, "%s", tensor_error_text());
        first = tensor_clone(other);
        for (int run = 0; run < 3; run++) {
            CHECK_MSG(tensor_equal(off(tensor_grad(x)), mask), "back %d, run %d", back, run);
            CHECK((run == 0) == tensor_equal(other, first));
            CHECK(tensor_graph_replay(g) == 0);
        }
        CHECK(tensor_graph_free(g) == 0);
        tensor_set_default_device(TENSOR_CPU);
    }
    CHECK_MSG(tensor_ok(), "%s", tensor_error_text());
}
// A number of the host that is older than the capture is refused like more of them, because a replay would
// not read it anew; one that is made in the capture is a part of the graph.
static void host_numbers(void) {
    tensor_t *x = on(tensor_ones(4)), *label = on(tensor_zeros_of(TENSOR_I64, 1)), *y;
    tensor_t *scale = tensor_scalar(2, TENSOR_F32), *host = tensor_zeros_of(TENSOR_I64, 1);
    tensor_graph_t *g;
    for (int k = 0; k < 3; k++) {
        CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
        if (k == 0) { tensor_mul(x, scale); }
        if (k == 1) { tensor_copy_(label, host); }
        if (k == 2) { tensor_to(host, TENSOR_CUDA); }
        CHECK_ERROR(TENSOR_ERR_UNSUPPORTED, "to: the host writes elements here");
        CHECK(tensor_capture_end() == NULL);
        tensor_clear_error();
    }
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
#ifdef TEST_FEW
    y = tensor_mul(x, tensor_scalar(3, TENSOR_F32));
#else
    y = tensor_where(tensor_gt_scalar(x, 0), tensor_scalar(3, TENSOR_F32), x);
#endif
    y = tensor_mul(y, tensor_scalar(2, TENSOR_F32));
    CHECK_MSG((g = tensor_capture_end()) != NULL, "%s", tensor_error_text());
    CHECK(tensor_item(tensor_select(y, 0, 3)) == 6 && tensor_graph_free(g) == 0);
}
#ifdef TEST_CUDA_SIM
extern int cudaMemsetAsync(void *, int, size_t, void *), cudaMalloc(void **, size_t), cudaFree(void *);
extern int cudaEventCreateWithFlags(void **, unsigned), cudaEventRecord(void *, void *);
extern int cudaEventQuery(void *), cudaEventDestroy(void *), cudaGetLastError(void), cudaSetDevice(int);
// Pinned memory is freed without a wait while a copy reads it, whatever device that goes to.
static void freed_early(void) {
    for (int k = 0; k < 2; k++) {
        const tensor_device_t device = (tensor_device_t)(TENSOR_CUDA + k);
        tensor_t *host = tensor_pin_memory(tensor_full(3, 1000)), *there;
        void *done;
        cudaSetDevice(k);
        cudaEventCreateWithFlags(&done, 2);
        CHECK(tensor_cuda_synchronize(device) == 0);
        there = tensor_to_non_blocking(host, device);
        cudaEventRecord(done, tensor_cuda_stream_raw(tensor_cuda_default_stream(device)));
        tensor_free(host);
        CHECK_MSG(cudaEventQuery(done) != 0, "device %d", k);
        cudaGetLastError();
        CHECK(tensor_item(tensor_sum(there)) == 3000);
        cudaEventDestroy(done);
    }
    cudaSetDevice(0);
}
// Memory that the program has pinned itself is read before its owner hears that it is free.
extern int cudaMallocHost(void **, size_t), cudaFreeHost(void *);
static void overwrite(void *p, void *user) {
    (void)user;
    memset(p, 0, 4000);
}
static void pinned_by_program(void) {
    const int64_t n = 1000;
    void *p = NULL;
    CHECK(cudaMallocHost(&p, 4000) == 0);
    for (int k = 0; k < 1000; k++) { ((float *)p)[k] = 7; }
    tensor_t *host = tensor_wrap_n(p, TENSOR_F32, &n, 1, overwrite, NULL);
    tensor_t *there = tensor_to_non_blocking(host, TENSOR_CUDA);
    tensor_free(host);
    CHECK(tensor_item(tensor_sum(there)) == 7000);
    CHECK(cudaFreeHost(p) == 0);
}
// What the program queues on the memory is ordered also if another stream has waited since tensor_cuda_data.
static void late_work(void) {
    tensor_t *x = on(tensor_zeros(1000)), *y = tensor_add_scalar(x, 1), *w;
    void *p = tensor_cuda_data(x);
    float want;
    memset(&want, 0x3f, sizeof want);
    tensor_cuda_set_stream(s2);
    tensor_add_scalar(y, 1);
    cudaMemsetAsync(p, 0x3f, 4000, tensor_cuda_stream_raw(NULL));
    w = tensor_add_scalar(x, 0);
    CHECK(tensor_item(tensor_select(w, 0, 7)) == (double)want);
    tensor_cuda_set_stream(NULL);
}
// Memory of the program is given back when what was queued before is done, also in a capture.
static int given_back, done_by_then;
static void give_back(void *p, void *event) {
    (void)p;
    given_back++;
    done_by_then += cudaEventQuery(event) == 0;
    cudaGetLastError();
}
static void wrapped_in_capture(void) {
    tensor_cuda_stream_t *stream = tensor_cuda_stream_new(TENSOR_CUDA);     // nothing of it can be trimmed
    const int64_t n = 1000;
    void *done;
    given_back = done_by_then = 0;
    cudaEventCreateWithFlags(&done, 2);
    tensor_cuda_set_stream(stream);
    for (int captured = 0; captured < 2; captured++) {
        tensor_graph_t *g = NULL;
        void *p = NULL;
        cudaMalloc(&p, 4000);
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        tensor_cuda_empty_cache(TENSOR_CUDA);
        tensor_t *x = tensor_cuda_wrap(p, TENSOR_F32, &n, 1, TENSOR_CUDA, give_back, done);
        tensor_fill_(x, 3);
        cudaEventRecord(done, tensor_cuda_stream_raw(stream));
        if (captured) { CHECK(tensor_capture_begin(TENSOR_CUDA) == 0); }
        tensor_free(x);
        if (captured) {
            tensor_ones(3);
            CHECK((g = tensor_capture_end()) != NULL);
        }
        CHECK_MSG(given_back == captured + 1 && done_by_then == captured + 1, "captured %d: %d, %d", captured,
                  given_back, done_by_then);
        CHECK(tensor_graph_free(g) == 0);
        cudaFree(p);
    }
    tensor_cuda_set_stream(NULL);
    CHECK(tensor_cuda_stream_free(stream) == 0);
    cudaEventDestroy(done);
}
// A graph is freed, and with it memory of the program whose deleter frees a tensor that the graph has used.
static void free_parent(void *p, void *parent) {
    (void)p;
    given_back++;
    tensor_free((tensor_t *)parent);
}
static void deleter_frees(void) {
    tensor_t *parent = on(tensor_ones(200)), *y = on(tensor_zeros(100)), *q;
    const int64_t n = 100;
    given_back = 0;
    q = tensor_cuda_wrap(tensor_cuda_data(parent), TENSOR_F32, &n, 1, TENSOR_CUDA, free_parent, parent);
    CHECK(tensor_capture_begin(TENSOR_CUDA) == 0);
    tensor_scope_t step = tensor_scope_begin();
    tensor_copy_(y, tensor_add(q, tensor_narrow(parent, 0, 100, 100)));
    tensor_scope_end(step);
    tensor_graph_t *g = tensor_capture_end();
    tensor_free(q);
    CHECK(given_back == 0 && tensor_graph_free(g) == 0 && given_back == 1);
    CHECK(tensor_item(tensor_sum(y)) == 200);
}
// A gradient is never written into memory of the program.
static void logits_of_program(void) {
    const int64_t dims[2] = {3, 4};
    tensor_t *y = on(tensor_zeros_of(TENSOR_I64, 3)), *whole = on(tensor_arange(0, 12, 1, TENSOR_F32)), *x;
    tensor_t *before = tensor_clone(whole);
    x = tensor_cuda_wrap(tensor_cuda_data(whole), TENSOR_F32, dims, 2, TENSOR_CUDA, NULL, NULL);
    tensor_mul_(x, tensor_requires_grad_(on(tensor_ones(4)), 1));
    tensor_t *loss = tensor_cross_entropy(x, y);
    tensor_free(x);
    tensor_backward(loss);
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0 && tensor_equal(whole, before));
}
#endif
// Attention of one query: a key that is NaN makes the result NaN, also where it is the first one of a warp.
static void decoding_nan(void) {
    static const tensor_dtype_t dtypes[4] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
    for (int k = 0; k < 8; k++) {
        const int64_t keys = k % 2 ? 20 : 4;
        tensor_t *q = tensor_ones(1, 2, 1, 8), *key = tensor_rand(1, 2, keys, 8);
        tensor_t *v = tensor_rand(1, 2, keys, 8), *y;
        tensor_fill_(tensor_narrow(tensor_narrow(key, 2, 1, 1), 3, 2, 1), NAN);
        q = on(tensor_to(q, dtypes[k / 2])), key = on(tensor_to(key, dtypes[k / 2]));
        y = off(tensor_scaled_dot_product_attention(q, key, on(tensor_to(v, dtypes[k / 2]))));
        CHECK_MSG(tensor_item(tensor_all(tensor_isnan(y))) == 1, "dtype %d, %d keys", k / 2, (int)keys);
    }
}
// fill of bool: any number but 0 is true, also a fraction and NaN.
static void fill_bool(void) {
    static const double values[5] = {0.5, -0.5, NAN, 2, 0};
    tensor_t *index = tensor_zeros_of(TENSOR_I64, 1), *x = tensor_zeros_of(TENSOR_BOOL, 3), *y = on(x);
    for (int k = 0; k < 5; k++) {
        const double v = values[k];
        CHECK_MSG(tensor_equal(off(tensor_full_like(y, v)), tensor_full_like(x, v)), "like, %g", v);
        CHECK_MSG(tensor_equal(off(tensor_fill_(tensor_clone(y), v)), tensor_fill_(tensor_clone(x), v)),
                  "fill_, %g", v);
        CHECK_MSG(tensor_equal(off(tensor_index_fill(y, 0, on(index), v)), tensor_index_fill(x, 0, index, v)),
                  "index, %g", v);
    }
}
// An index out of range is an error, and no element changes.
static void bad_index(void) {
    tensor_t *x = on(tensor_arange(0, 6, 1, TENSOR_F32)), *before = tensor_clone(x), *w, *lost;
    tensor_t *one = on(tensor_ones(2)), *e = on(tensor_zeros(6, 1));
    tensor_t *bad = on(tensor_from(((int64_t[]){9, -9}), TENSOR_I64, 2)), *list[1] = {bad};
    for (int k = 0; k < 5; k++) {
        if (k == 0) { tensor_index_fill_(x, 0, bad, 2); }
        if (k == 1) { tensor_index_add_(x, 0, bad, one); }
        if (k == 2) { tensor_scatter_(x, 0, bad, one); }
        if (k == 3) { tensor_index_put_n_(x, list, 1, one, 0); }
        if (k == 4) {
            w = tensor_requires_grad_(tensor_clone(e), 1);
            lost = tensor_embedding(bad, w);
            tensor_backward(tensor_sum(lost));
        }
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == TENSOR_ERR_INDEX);
        CHECK_ERROR(TENSOR_ERR_INDEX, "out of range");
        tensor_clear_error();
        CHECK_MSG(tensor_equal(x, before), "case %d", k);
        if (k == 4) { CHECK(tensor_equal(tensor_grad(w), e)); }
    }
}
#ifdef TEST_CUDA_SIM
extern int cudaStreamSynchronize(void *);
// A bad index is told to the thread that made the call, also if another thread waits for its own stream
// first.
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn_now, bad_code;
static void turn_to(int n) {
    pthread_mutex_lock(&turn_lock);
    turn_now = n;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
}
static void turn_wait(int n) {
    pthread_mutex_lock(&turn_lock);
    while (turn_now != n) { pthread_cond_wait(&turn_changed, &turn_lock); }
    pthread_mutex_unlock(&turn_lock);
}
static void *bad_worker(void *u) {
    (void)u;
    tensor_set_error_handler(test_quiet, NULL);
    tensor_cuda_set_stream(s1);
    tensor_t *x = on(tensor_ones(10)), *index = on(tensor_full_of(TENSOR_I64, 100, 1));
    tensor_cuda_stream_synchronize(s1);
    x = tensor_index_select(x, 0, index);
    cudaStreamSynchronize(tensor_cuda_stream_raw(s1));
    turn_to(1);
    turn_wait(2);
    tensor_item(x);
    bad_code = tensor_error_code();
    tensor_thread_end();
    return NULL;
}
static void own_errors(void) {
    tensor_cuda_set_stream(s2);
    tensor_t *x = on(tensor_ones(10)), *index = on(tensor_full_of(TENSOR_I64, 1, 1));
    pthread_t id;
    CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
    x = tensor_index_select(x, 0, index);
    pthread_create(&id, NULL, bad_worker, NULL);
    turn_wait(1);
    CHECK(tensor_item(x) == 1 && tensor_ok());
    turn_to(2);
    pthread_join(id, NULL);
    CHECK(bad_code == TENSOR_ERR_INDEX);
    tensor_cuda_set_stream(NULL);
}
// A bad index of s1 is told where a third stream is waited for that has waited for s2, which had waited for
// s1; here by a thread that did not make the call. Also through events.
static tensor_cuda_stream_t *third;
static void *waits_for_third(void *events) {
    tensor_set_error_handler(test_quiet, NULL);
    if (events) {
        tensor_cuda_event_t *e = tensor_cuda_event_new(TENSOR_CUDA, 0);
        tensor_cuda_event_record(e, s1);
        tensor_cuda_stream_wait_event(s2, e);
        tensor_cuda_event_record(e, s2);
        tensor_cuda_stream_wait_event(third, e);
        tensor_cuda_event_free(e);
    } else {
        tensor_cuda_stream_wait_stream(s2, s1);
        tensor_cuda_stream_wait_stream(third, s2);
    }
    bad_code = tensor_cuda_stream_synchronize(third);
    tensor_thread_end();
    return NULL;
}
static void through_third(void) {
    third = tensor_cuda_stream_new(TENSOR_CUDA);
    for (int events = 0; events < 2; events++) {
        pthread_t id;
        tensor_cuda_set_stream(s1);
        tensor_index_select(on(tensor_ones(10)), 0, on(tensor_full_of(TENSOR_I64, 100, 1)));
        tensor_cuda_set_stream(NULL);
        bad_code = 0;
        pthread_create(&id, NULL, waits_for_third, events ? &bad_code : NULL);
        pthread_join(id, NULL);
        CHECK_MSG(bad_code == TENSOR_ERR_INDEX, "events %d: %d", events, bad_code);
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0 && tensor_ok());
    }
    CHECK(tensor_cuda_stream_free(third) == 0);
}
// Memory of one device is not taken for memory of another.
static void wrapped_elsewhere(void) {
    const int64_t n = 1000;
    void *p = NULL;
    cudaSetDevice(1);
    CHECK(cudaMalloc(&p, 4000) == 0);
    cudaSetDevice(0);
    given_back = 0;
    CHECK_POISON(tensor_cuda_wrap((char *)p + 400, TENSOR_F32, &n, 1, TENSOR_CUDA, give_back, NULL),
                 TENSOR_ERR_DEVICE,
                 "cuda_wrap: the memory is on CUDA device 1, must be on the one that is named, 0");
    CHECK(given_back == 0);
    tensor_free(tensor_cuda_wrap(p, TENSOR_F32, &n, 1, TENSOR_CUDA + 1, NULL, NULL));
    CHECK(tensor_ok() && cudaFree(p) == 0);
}
// Two threads have one stream: a wait of the other one between an op's note and its launch does not lose its
// error.
static int waits;
static void *waiting(void *u) {
    (void)u;
    CHECK(tensor_cuda_stream_synchronize(NULL) == 0);
    tensor_thread_end();
    return NULL;
}
static void *taken(void *u, int device, uint64_t bytes) {
    void *p = NULL;
    (void)u;
    (void)device;
    if (waits) {
        pthread_t id;
        waits = 0;
        pthread_create(&id, NULL, waiting, NULL);
        pthread_join(id, NULL);
    }
    cudaMalloc(&p, bytes);
    return p;
}
static void returned(void *u, int device, void *p, uint64_t bytes) {
    (void)u;
    (void)device;
    (void)bytes;
    cudaFree(p);
}
static void one_stream(void) {
    for (int arm = 0; arm < 2; arm++) {
        tensor_scope_t s = tensor_scope_begin();
        tensor_t *x = on(tensor_zeros(70000)), *index = on(tensor_full_of(TENSOR_I64, 5e8, 70000));
        CHECK(tensor_cuda_synchronize(TENSOR_CUDA) == 0);
        tensor_cuda_empty_cache(TENSOR_CUDA);
        waits = arm;
        x = tensor_scatter_add(x, 0, index, x);
        waits = 0;
        tensor_item(tensor_select(x, 0, 0));
        CHECK_ERROR(TENSOR_ERR_INDEX, "scatter_add");
        tensor_clear_error();
        tensor_scope_end(s);
    }
}
#endif
#endif

int main(void) {
    RUN(elsewhere);
#ifdef TEST_CUDA
#ifdef TEST_CUDA_SIM
#ifndef TEST_FEW
    cusim_set("protect", 1);
#endif
    cusim_set("devices", 2);
#endif
    if (device_start()) { return test_report(); }
    CHECK(tensor_cuda_comm_abort(NULL) == 0);           // before anything has opened NCCL
    s1 = tensor_cuda_stream_new(TENSOR_CUDA);
    s2 = tensor_cuda_stream_new(TENSOR_CUDA);
    RUN(order);
    RUN(backward);
    RUN(handles);
    RUN(peers);
    RUN(threads);
    RUN(pinned);
    RUN(fed);
    RUN(loader);
    RUN(runs);
    RUN(kept);
    RUN(mixed);
    RUN(replay);
    RUN(forks);
    RUN(fork_there);
    RUN(linked);
    RUN(regrouped);
    RUN(trains_other_memory);
    RUN(several);
    RUN(pooled);
    RUN(pool_chain);
    RUN(pool_training);
    RUN(pool_threads);
    RUN(pool_misuse);
    RUN(pool_lost);
    RUN(hostile);
    RUN(misuse);
    RUN(places);
#ifndef TEST_FEW
    RUN(stopped);
#endif
    RUN(logits);
    RUN(inverse_captured);
    RUN(steady);
    RUN(freed_result);
    RUN(older_mask);
    RUN(host_numbers);
    RUN(bad_index);
    RUN(decoding_nan);
    RUN(fill_bool);
#ifdef TEST_CUDA_SIM
    RUN(freed_early);
    RUN(pinned_by_program);
    RUN(own_errors);
    RUN(through_third);
    RUN(wrapped_elsewhere);
    RUN(late_work);
    RUN(wrapped_in_capture);
    RUN(deleter_frees);
    RUN(logits_of_program);
    RUN(refused);
#ifndef TEST_FEW
    RUN(held);
#endif
    RUN(graph_faults);
    RUN(graph_fails_behind_its_numbers);
    RUN(lost);
    RUN(lost_in_training);
#endif
    CHECK(tensor_shutdown() == 0 && tensor_cuda_memory_allocated(TENSOR_CUDA) == 0);
    CHECK(tensor_cuda_shutdown() == 0);
#ifdef TEST_CUDA_SIM
    cusim_set("reset", 0);
    const tensor_cuda_allocator_t door = {NULL, taken, returned};
    CHECK(tensor_cuda_set_allocator(&door) == 0 && device_start() == 0);
    RUN(one_stream);
    CHECK(tensor_shutdown() == 0 && tensor_cuda_shutdown() == 0 && tensor_cuda_set_allocator(NULL) == 0);
    cusim_set("reset", 0);
    cusim_set("live", 0);
#endif
#endif
    return test_report();
}

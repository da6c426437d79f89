// gpu.c ROW [k] - what the device does: ops, whole networks, and the paper's two figures.
//
//   gpu smoke          whether each library serves its family, a graph runs, and want of memory is an error
//   gpu costs          microseconds of what is paid beside kernels: launches, replays, memory, plans
//   gpu ops            the rows of gpu.h: NAME.DTYPE.LAYOUT.f (forward) and .b (with the gradient),
//                      microseconds on the device, by replays of a graph; .host: of the host, small operands
//   gpu op NAME..      those rows alone (gpu once NAME..: one call each, for a profiler)
//   gpu shapes         what each row's result is like
//   gpu mlp            and policy, ncf, lstm, resnet50, gpt2: microseconds of a step; _graph: replayed;
//                      _memory: its peak
//   gpu queue x.svg    figure 1: when the host asked for each layer of ResNet-50, when the device ran it
//   gpu warm_up        figure 2: what steps of training ask of the driver
//   gpu all            all of them
//   gpu ROW k          sizes divided by k and one call of each: a trial, for sanitizers and emulators
//
// Lines are "row value unit" and "check row passed" or "failed"; the last one "N passed, N failed". Behind a
// row of gpu.h stands who did it: own, library or cpu; eager where no graph can hold it. No row starts after
// the second that GPU_SECONDS (of the process) names.
#include "nets.h"

#include "tensor_cuda.h"

#include "gpu.h"

typedef struct job_t {
    tensor_t *(*call)(struct job_t *j);
    tensor_t *x, *y;
    nn_module_t *net;
    nn_optimizer_t *opt;
    double clip;
    tensor_graph_t *graph;
} job_t;

static int64_t k = 1;
static int passed, failed;

static void check(const char *name, const char *what, int ok) {
    printf("check %s_%s %s\n", name, what, ok ? "passed" : "failed");
    if (ok) {
        passed++;
    } else {
        failed++;
    }
}

// Calls one after the other, then waits.
static void run(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    while (repeats-- > 0) {
        tensor_scope_t s = tensor_scope_begin();
        if (j->graph) {
            tensor_graph_replay(j->graph);
        } else {
            (void)j->call(j);
        }
        tensor_scope_end(s);
    }
    tensor_cuda_synchronize(TENSOR_CUDA);
}
static double measure(job_t *j) {
    double t = bench_now();
    if (k == 1) { return bench_median(run, j); }
    run(j, 1);
    return bench_now() - t;
}

// ---- the rows of gpu.h ----

enum { OPERANDS = 5, LAYOUTS = 4, SETS = 3 };
typedef tensor_t *(*call_t)(tensor_t *a, tensor_t *b, tensor_t *c, tensor_t *d, tensor_t *e);
typedef struct op_t {
    const char *name;
    int backward;
    const char *operands[LAYOUTS];
    call_t call;
} op_t;
#define ROW(name, backward, operands, ours, torch)                                                           \
    static tensor_t *op_##name(tensor_t *a, tensor_t *b, tensor_t *c, tensor_t *d, tensor_t *e) {            \
        (void)a, (void)b, (void)c, (void)d, (void)e;                                                         \
        return ours;                                                                                         \
    }
GPU_ROWS
#undef ROW
#define ROW(name, backward, operands, ours, torch) {#name, backward, {operands}, op_##name},
static const op_t op_rows[] = {GPU_ROWS};
#undef ROW

// Operands of a row, and the gradient of its result.
typedef struct operands_t {
    tensor_t *x[OPERANDS], *wanted[OPERANDS], *gradient;
    int count, nwanted;
} operands_t;
static int64_t small(int64_t n, int64_t by) { return n < 16 || by == 1 ? n : n / by > 8 ? n / by : 8; }
// The text of gpu.h; by: what sizes are divided by. backward: gradients are wanted.
static operands_t operands_of(const char *text, tensor_dtype_t dtype, int64_t by, int backward) {
    operands_t o;
    char *end;
    memset(&o, 0, sizeof o);
    while (*text && o.count < OPERANDS) {
        int64_t dims[8], below = 0;
        int n = 0, last = 0, turned = 0, mask = 0, full = 0, wanted = 1;
        for (; *text && *text != ';'; text++) {
            if (*text >= '0' && *text <= '9') {
                dims[n++] = small(strtoll(text, &end, 10), by);
                text = end - 1;
            } else if (*text == 'i') {
                below = small(strtoll(text + 1, &end, 10), by);
                text = end - 1;
            } else {
                last |= *text == 'n';
                turned |= *text == 't';
                mask |= *text == 'm';
                full |= *text == 'f';
                wanted &= *text != '!';
            }
        }
        if (*text) { text++; }
        tensor_t *x;
        if (turned) { // the dims are those of the operand, its memory is the other way round
            int64_t other = dims[n - 1];
            dims[n - 1] = dims[n - 2];
            dims[n - 2] = other;
        }
        if (below) {
            x = tensor_randint_n(0, below, dims, n);
        } else if (mask) {
            x = tensor_gt(tensor_rand_n(dims, n), tensor_scalar(0.5, TENSOR_F32));
        } else if (full) {
            x = tensor_add_scalar(tensor_rand_n(dims, n), 0.5);
        } else {
            x = tensor_to(tensor_randn_n(dims, n), dtype);
        }
        if (last) { x = tensor_channels_last(x); }
        if (turned) { x = tensor_mT(x); }
        if (backward && wanted && !below && !mask) {
            x = tensor_requires_grad_(tensor_detach(x), 1);
            o.wanted[o.nwanted++] = x;
        }
        o.x[o.count++] = x;
    }
    return o;
}
static tensor_t *op_call(const op_t *r, const operands_t *o) {
    return r->call(o->x[0], o->x[1], o->x[2], o->x[3], o->x[4]);
}
static void op_once(const op_t *r, operands_t *o) {
    tensor_scope_t s = tensor_scope_begin();
    tensor_t *y = op_call(r, o), *g[OPERANDS];
    if (o->nwanted) { tensor_autograd_grad(&y, 1, &o->gradient, o->wanted, o->nwanted, g, 0); }
    tensor_scope_end(s);
}
typedef struct op_job_t {
    const op_t *row;
    operands_t set[SETS];
    tensor_graph_t *graph;
} op_job_t;
static void op_run(void *arg, long repeats) {
    op_job_t *j = (op_job_t *)arg;
    while (repeats-- > 0) {
        if (j->graph) { tensor_graph_replay(j->graph); }
        for (int n = 0; n < SETS && !j->graph; n++) { op_once(j->row, &j->set[n]); }
    }
    tensor_cuda_synchronize(TENSOR_CUDA);
}
// Operands, and a first call: plans and the sizes of results are found in it.
static void op_prepare(op_job_t *j, const op_t *r, int layout, tensor_dtype_t dtype, int64_t by,
                       int backward) {
    j->row = r;
    j->graph = NULL;
    for (int n = 0; n < SETS; n++) {
        operands_t *o = &j->set[n];
        *o = operands_of(r->operands[layout], dtype, by, backward);
        if (backward) {
            tensor_scope_t s = tensor_scope_begin_no_grad();
            o->gradient = tensor_scope_return(s, tensor_mul_scalar(op_call(r, o), 0.5));
        }
        op_once(r, o);
    }
    tensor_cuda_synchronize(TENSOR_CUDA);
}
static void op_measure(const op_t *r, int layout, tensor_dtype_t dtype, int backward) {
    enum { HOST_CALLS = 100 };
    char name[96], unit[32];
    op_job_t j;
    int64_t libraries, away;
    double t;
    tensor_scope_t scope = tensor_scope_begin();
    snprintf(name, sizeof name, "%s.%s.%c.%c", r->name, dtype == TENSOR_F32 ? "f32" : "bf16", "cntb"[layout],
             backward ? 'b' : 'f');
    op_prepare(&j, r, layout, dtype, k, backward);
    libraries = tensor_cuda_library_calls(), away = tensor_cuda_fallbacks();
    if (tensor_ok() && tensor_capture_begin(TENSOR_CUDA) == 0) {
        for (int n = 0; n < SETS; n++) { op_once(r, &j.set[n]); }
        j.graph = tensor_capture_end();
        if (!j.graph) { tensor_clear_error(); }
    }
    if (!j.graph && tensor_ok()) { op_run(&j, 1); }             // for the counts
    libraries = tensor_cuda_library_calls() - libraries;
    away = tensor_cuda_fallbacks() - away;
    snprintf(unit, sizeof unit, "us %s%s",
             away        ? "cpu"
             : libraries ? "library"
                         : "own",
             j.graph ? "" : " eager");
    if (k == 1) {
        t = bench_median(op_run, &j);
    } else {
        t = bench_now();
        op_run(&j, 1);
        t = bench_now() - t;
    }
    if (tensor_ok()) { bench_row(name, 1e6 * t / SETS, unit); }
    if (j.graph) { tensor_graph_free(j.graph); }
    tensor_scope_reset(scope);
    if (tensor_ok()) {                          // the host's share: nothing to wait for
        op_prepare(&j, r, layout, dtype, 64, backward);
        int calls = k == 1 ? HOST_CALLS : 1;
        t = bench_now();
        for (int n = 0; n < calls; n++) { op_once(r, &j.set[n % SETS]); }
        t = (bench_now() - t) / calls;
        tensor_cuda_synchronize(TENSOR_CUDA);
        strcat(name, ".host");
        if (tensor_ok()) { bench_row(name, 1e6 * t, "us"); }
    }
    if (!tensor_ok()) { printf("library: %s: %s\n", name, tensor_error_text()); }
    check(name, "measured", tensor_ok());
    tensor_clear_error();
    tensor_scope_end(scope);
}
// All rows, or those whose name begins with one of `names`.
static int named(const char *name, char **names, int n) {
    if (!n) { return 1; }
    for (int i = 0; i < n; i++) {
        if (strncmp(name, names[i], strlen(names[i])) == 0) { return 1; }
    }
    return 0;
}
static double began;
static int out_of_time(void) {
    const char *seconds = getenv("GPU_SECONDS");
    return seconds && bench_now() - began > atof(seconds);
}
// how: 'm' measured, 'o' called once, 's' their results' shapes
static void ops(char **names, int count, int how) {
    static const tensor_dtype_t dtypes[] = {TENSOR_F32, TENSOR_BF16};
    int left = 0, n = 0;
    for (size_t i = 0; i < sizeof op_rows / sizeof *op_rows; i++) {
        const op_t *r = &op_rows[i];
        for (int layout = 0; layout < LAYOUTS; layout++) {
            for (int dtype = 0; dtype < 2 && r->operands[layout]; dtype++) {
                for (int backward = 0; backward <= r->backward; backward++) {
                    char name[96];
                    snprintf(name, sizeof name, "%s.%s.%c.%c", r->name, dtype ? "bf16" : "f32",
                             "cntb"[layout], backward ? 'b' : 'f');
                    if (!named(name, names, count)) { continue; }
                    n++;
                    if (out_of_time()) {
                        left++;
                        continue;
                    }
                    if (how == 'm') {
                        op_measure(r, layout, dtypes[dtype], backward);
                        continue;
                    }
                    tensor_scope_t s = tensor_scope_begin();
                    operands_t o =
                        operands_of(r->operands[layout], dtypes[dtype], how == 's' ? 64 : k, backward);
                    tensor_t *y = op_call(r, &o);
                    if (how == 's') {
                        printf("shape %s", name);
                        for (int d = 0; d < tensor_ndim(y); d++) {
                            printf(" %lld", (long long)tensor_size(y, d));
                        }
                        printf("\n");
                    } else if (backward) {
                        o.gradient = tensor_mul_scalar(tensor_detach(y), 0.5);
                        op_once(r, &o);
                    }
                    check(name, "ran", tensor_ok());
                    if (!tensor_ok()) { printf("library: %s: %s\n", name, tensor_error_text()); }
                    tensor_clear_error();
                    tensor_scope_end(s);
                }
            }
        }
    }
    tensor_cuda_synchronize(TENSOR_CUDA);
    if (left) { printf("left out for want of time: %d of %d rows\n", left, n); }
    check("ops", "named", n > 0);
}

// ---- that what should do it does it ----

// From here to there a library did something. at: from served_from.
static int64_t served_from(void) { return tensor_cuda_library_calls(); }
static void served(const char *name, int64_t at) {
    tensor_cuda_synchronize(TENSOR_CUDA);
    int there = tensor_cuda_library_calls() > at;
    check(name, "by_a_library", there && tensor_ok());
    if (!there) { printf("library: %s: %s\n", name, tensor_cuda_library_error()); }
    if (!tensor_ok()) { printf("library: %s: %s\n", name, tensor_error_text()); }
    tensor_clear_error();
}
static tensor_t *normal(tensor_dtype_t dtype, int64_t n, int64_t m, int64_t h, int64_t w) {
    return tensor_requires_grad_(tensor_to(tensor_randn(n, m, h, w), dtype), 1);
}
static void gradient_of(tensor_t *y) { tensor_backward(tensor_sum(tensor_square(y))); }
static void smoke(void) {
    static const char *const names[] = {"f32", "bf16"};
    char text[64];
    int64_t at;
    tensor_cuda_set_fallback(0);                // what has no kernel is an error
    for (int half = 0; half < 2; half++) {
        tensor_dtype_t dtype = half ? TENSOR_BF16 : TENSOR_F32;
        int64_t c = k == 1 ? 64 : 8;            // channels
        tensor_t *image = normal(dtype, 4, c, 16, 16), *q = normal(dtype, 2, 4, 2 * c, c), *y;
        tensor_t *w = normal(dtype, c, c, 3, 3), *one = tensor_ones_of(TENSOR_F32, c), *h = NULL,
                 *cell = NULL;
        at = served_from();
        y = tensor_matmul(tensor_reshape(q, 16 * c, c), tensor_reshape(w, c, 9 * c));
        snprintf(text, sizeof text, "smoke_matmul_%s", names[half]);
        served(text, at);
        at = served_from();
        gradient_of(y);
        snprintf(text, sizeof text, "smoke_matmul_backward_%s", names[half]);
        served(text, at);
        at = served_from();
        y = tensor_conv2d(image, w, .padding = 1);
        snprintf(text, sizeof text, "smoke_conv_%s", names[half]);
        served(text, at);
        at = served_from();
        gradient_of(y);
        snprintf(text, sizeof text, "smoke_conv_backward_%s", names[half]);
        served(text, at);
        at = served_from();
        y = tensor_batch_norm(tensor_channels_last(image), NULL, NULL, one, one, .training = 1);
        snprintf(text, sizeof text, "smoke_batch_norm_%s", names[half]);
        served(text, at);
        if (half) {
            at = served_from();
            y = tensor_scaled_dot_product_attention(q, q, q, .is_causal = 1);
            served("smoke_attention_bf16", at);
            at = served_from();
            gradient_of(y);
            served("smoke_attention_backward_bf16", at);
        }
        at = served_from();
        nn_module_t *net = nn_lstm(c, c);
        nn_to(net, (int)dtype);
        nn_lstm_forward(net, tensor_reshape(tensor_detach(image), 16, 64, c), &h, &cell);
        snprintf(text, sizeof text, "smoke_lstm_%s", names[half]);
        served(text, at);
        nn_free(net);
    }
    // NCCL has no count of its own: a communicator of one rank is it.
    char id[TENSOR_CUDA_ID_BYTES];
    tensor_t *x = tensor_ones(1000);
    const int there = tensor_cuda_comm_id(id) == 0;
    tensor_cuda_comm_t *comm = there ? tensor_cuda_comm_new(0, 1, id, TENSOR_CUDA, 60) : NULL;
    check("smoke_nccl", "by_a_library", comm && tensor_cuda_all_reduce(comm, x, 0) == 0 &&
          tensor_item(tensor_sum(x)) == 1000 && tensor_cuda_comm_free(comm) == 0);
    if (!tensor_ok()) { printf("library: nccl: %s\n", tensor_error_text()); }
    tensor_clear_error();
    tensor_capture_begin(TENSOR_CUDA);
    tensor_t *y = tensor_keep(tensor_add_scalar(x, 1));
    tensor_graph_t *g = tensor_capture_end();
    tensor_cuda_empty_cache(TENSOR_CUDA);
    tensor_fill_(x, 4);
    check("smoke_graph", "replayed", tensor_graph_replay(g) == 0 && tensor_item(tensor_sum(y)) == 5000);
    tensor_graph_free(g);
    tensor_free(y);
    tensor_empty((int64_t)1 << 40);
    check("smoke_memory", "error", tensor_error_code() == TENSOR_ERR_OUT_OF_MEMORY);
    tensor_clear_error();
    check("smoke_memory", "goes_on", tensor_item(tensor_sum(tensor_ones(64))) == 64);
    tensor_cuda_stream_t *s = tensor_cuda_stream_new(TENSOR_CUDA);
    tensor_cuda_set_stream(s);
    y = tensor_mul_scalar(x, 2);
    tensor_cuda_set_stream(NULL);
    check("smoke_streams", "ordered", tensor_item(tensor_sum(y)) == 8000);
    tensor_cuda_stream_free(s);
    tensor_cuda_set_fallback(1);
}

// ---- what is paid beside kernels ----

static tensor_t *cost_x;
static tensor_graph_t *cost_graph;
static tensor_cuda_event_t *cost_event;
static int64_t cost_bytes;
static void cost_launch(void) { tensor_add_scalar_(cost_x, 1); }
static void cost_replay(void) { tensor_graph_replay(cost_graph); }
static void cost_record(void) { tensor_cuda_event_record(cost_event, NULL); }
static void cost_item(void) { (void)tensor_item(cost_x); }
static void cost_alloc(void) { tensor_free(tensor_empty(cost_bytes / 4)); }
// Microseconds of the host, and until the device is done.
static void cost(const char *name, void (*f)(void), int calls) {
    char text[64];
    double t, done;
    calls = k == 1 ? calls : 2;
    tensor_scope_t s = tensor_scope_begin();
    f();
    tensor_cuda_synchronize(TENSOR_CUDA);
    t = bench_now();
    for (int n = 0; n < calls; n++) { f(); }
    done = bench_now();
    tensor_cuda_synchronize(TENSOR_CUDA);
    bench_row(name, 1e6 * (done - t) / calls, "us");
    snprintf(text, sizeof text, "%s_done", name);
    bench_row(text, 1e6 * (bench_now() - t) / calls, "us");
    tensor_scope_end(s);
}
static double first_call(tensor_t *(*f)(int64_t n), int64_t n) {
    double t = bench_now();
    tensor_scope_t s = tensor_scope_begin();
    f(n);
    tensor_cuda_synchronize(TENSOR_CUDA);
    tensor_scope_end(s);
    return 1e6 * (bench_now() - t);
}
static tensor_t *plan_conv(int64_t n) {
    return tensor_conv2d(tensor_randn(2, 16, n, n), tensor_randn(16, 16, 3, 3), .padding = 1);
}
static tensor_t *plan_attention(int64_t n) {
    tensor_t *q = tensor_to(tensor_randn(1, 2, n, 64), TENSOR_BF16);
    return tensor_scaled_dot_product_attention(q, q, q, .is_causal = 1);
}
static tensor_t *plan_norm(int64_t n) {
    return tensor_layer_norm(tensor_to(tensor_randn(n, 768), TENSOR_BF16), 1);
}
static tensor_t *plan_matmul(int64_t n) { return tensor_matmul(tensor_randn(n, 64), tensor_randn(64, n)); }
static void costs(void) {
    static const struct { const char *name; tensor_t *(*f)(int64_t n); } plans[] = {
        {"cost_plan_conv", plan_conv}, {"cost_plan_attention_bf16", plan_attention},
        {"cost_plan_layer_norm_bf16", plan_norm}, {"cost_plan_matmul", plan_matmul}};
    static const int64_t sizes[] = {2, 32, 256, 2048};
    char text[64];
    cost_x = tensor_zeros(1);
    cost_event = tensor_cuda_event_new(TENSOR_CUDA, 0);
    cost("cost_launch", cost_launch, 2000);
    cost("cost_record", cost_record, 1000);
    cost("cost_item", cost_item, 200);
    for (int nodes = 1; nodes <= 100; nodes *= 10) {
        tensor_capture_begin(TENSOR_CUDA);
        for (int n = 0; n < nodes; n++) { cost_launch(); }
        cost_graph = tensor_capture_end();
        snprintf(text, sizeof text, "cost_replay_%d", nodes);
        cost(text, cost_replay, 500);
        tensor_graph_free(cost_graph);
    }
    for (int n = 0; n < 4 && k == 1; n++) {
        double t = bench_now();
        cost_bytes = sizes[n] << 20;
        tensor_cuda_empty_cache(TENSOR_CUDA);
        t = bench_now();
        cost_alloc();
        snprintf(text, sizeof text, "cost_map_%d_MiB", (int)sizes[n]);
        bench_row(text, 1e6 * (bench_now() - t), "us");
        snprintf(text, sizeof text, "cost_cached_%d_MiB", (int)sizes[n]);
        cost(text, cost_alloc, 1000);
        t = bench_now();
        tensor_cuda_empty_cache(TENSOR_CUDA);
        snprintf(text, sizeof text, "cost_unmap_%d_MiB", (int)sizes[n]);
        bench_row(text, 1e6 * (bench_now() - t), "us");
    }
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        int64_t n = 64 / (k == 1 ? 1 : 4);
        first_call(plans[p].f, n);                              // modules are loaded
        double fresh = first_call(plans[p].f, 2 * n), again = first_call(plans[p].f, 2 * n);
        bench_row(plans[p].name, fresh - again, "us");
    }
    tensor_cuda_event_free(cost_event);
    check("costs", "measured", tensor_ok());
}

static tensor_t *train(job_t *j) {
    tensor_t *y = nn_forward(j->net, j->x), *flat = tensor_ndim(y) > 2 ? tensor_flatten(y, 0, 1) : y;
    tensor_t *loss = tensor_cross_entropy(flat, j->y);
    if (flat != y) { tensor_free(flat); }
    tensor_free(y);                             // their gradient takes their memory
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    if (j->clip > 0) { nn_clip_grad_norm(j->opt, j->clip); }
    nn_step(j->opt);
    return loss;
}
static tensor_t *infer(job_t *j) {
    tensor_scope_t s = tensor_scope_begin_no_grad();
    return tensor_scope_return(s, nn_forward(j->net, j->x));
}
// Rows NAME, NAME_graph (the same calls captured once and replayed) and NAME_memory.
static void network(const char *name, job_t *j) {
    char text[64];
    tensor_cuda_reset_peak_memory_stats(TENSOR_CUDA);
    bench_row(name, 1e6 * measure(j), "us");
    snprintf(text, sizeof text, "%s_memory", name);
    bench_row(text, (double)tensor_cuda_max_memory_allocated(TENSOR_CUDA) / 1048576, "MB");
    snprintf(text, sizeof text, "%s_graph", name);
    if (tensor_capture_begin(TENSOR_CUDA) == 0) {
        (void)j->call(j);
        j->graph = tensor_capture_end();
        if (j->graph) { bench_row(text, 1e6 * measure(j), "us"); }
    }
    check(name, "captured", tensor_ok());
    tensor_graph_free(j->graph);
    j->graph = NULL;
}
static nn_module_t *mlp(int64_t width) {
    return nn_sequential(nn_linear(784, width), nn_relu(), nn_linear(width, width), nn_relu(),
                         nn_linear(width, 10));
}
static void networks(const char *name) {
    static gpt_t gpt;
    job_t j = {train, NULL, NULL, NULL, NULL, 0, NULL};
    if (strcmp(name, "mlp") == 0) {
        j.net = mlp(512 / k);
        j.opt = nn_adam(j.net);
        j.x = tensor_randn(64, 784);
        j.y = tensor_randint(0, 10, 64);
    } else if (strcmp(name, "policy") == 0) {   // as agents have it
        j.net = nn_sequential(nn_linear(16, 64), nn_tanh(), nn_linear(64, 64), nn_tanh(), nn_linear(64, 4));
        j.opt = nn_adam(j.net);
        j.x = tensor_randn(256 / k > 4 ? 256 / k : 4, 16);
        j.y = tensor_randint(0, 4, tensor_size(j.x, 0));
    } else if (strcmp(name, "ncf") == 0) {
        j.call = infer;
        j.net = nn_eval(ncf(0));
        j.x = tensor_stack(0, tensor_randint(0, 6040, 1024 / k), tensor_randint(0, 3706, 1024 / k));
    } else if (strcmp(name, "lstm") == 0) {
        const int64_t words = 10000 / k, steps = k == 1 ? 35 : 5, batch = k == 1 ? 20 : 4;
        j.net = lstm_lm_new(words, k == 1 ? 200 : 16, 2, 0);
        j.opt = nn_sgd(j.net, .lr = 1);
        j.x = tensor_randint(0, words, steps, batch);
        j.y = tensor_randint(0, words, steps * batch);
        j.clip = 5;
    } else if (strcmp(name, "resnet50") == 0) {
        int64_t batch = k == 1 ? 64 : 2, side = 224 / k > 32 ? 224 / k : 32;
        j.net = resnet_new(50, 1000 / k, k > 16 ? 16 : k, 0);
        nn_to(j.net, TENSOR_BF16);
        nn_channels_last(j.net);
        j.opt = nn_sgd(j.net, .lr = 0.1, .momentum = 0.9);
        j.x = tensor_channels_last(tensor_to(tensor_randn(batch, 3, side, side), TENSOR_BF16));
        j.y = tensor_randint(0, 1000 / k, batch);
    } else if (strcmp(name, "gpt2") == 0) {
        int64_t batch = k == 1 ? 8 : 1, context = 1024 / k, words = 50257 / k;
        gpt_init(&gpt, k == 1 ? 12 : 1, k == 1 ? 12 : 1, k == 1 ? 768 : 64, (int)context, (int)words);
        nn_to(&gpt.base, TENSOR_BF16);
        j.net = &gpt.base;
        j.opt = nn_adamw(j.net);
        j.x = tensor_randint(0, words, batch, context);
        j.y = tensor_randint(0, words, batch * context);
    } else {
        fprintf(stderr, "no row %s\n", name);
        return;
    }
    network(name, &j);
}

// Figure 1: the host runs ahead. Two lanes: when the host asked for each part of the network, when the device
// ran it. Times in milliseconds from a common start.
static void queue(const char *path) {
    enum { MOST = 32 };
    double host[MOST + 1], device[MOST + 1];
    tensor_cuda_event_t *at[MOST + 1];
    tensor_cuda_stream_t *stream = tensor_cuda_current_stream(TENSOR_CUDA);
    // The parts of a ResNet-50 in their order; a block is one.
    static const char *const names[] = {
        "conv1",    "bn1",      "maxpool",  "layer1.0", "layer1.1", "layer1.2", "layer2.0",
        "layer2.1", "layer2.2", "layer2.3", "layer3.0", "layer3.1", "layer3.2", "layer3.3",
        "layer3.4", "layer3.5", "layer4.0", "layer4.1", "layer4.2", "avgpool",  "fc"};
    enum { RELU_AFTER = 1, FLAT_BEFORE = 20 };
    nn_module_t *net = nn_eval(resnet_new(50, 1000 / k, k > 16 ? 16 : k, 0)), *parts[MOST];
    const int count = (int)(sizeof names / sizeof *names);
    for (int i = 0; i < count; i++) { parts[i] = nn_get_child(net, names[i]); }
    int64_t side = 224 / k > 32 ? 224 / k : 32;
    tensor_t *input = tensor_randn(k == 1 ? 32 : 2, 3, side, side);
    FILE *f = path ? fopen(path, "w") : NULL;
    int n = 0;
    for (int i = 0; i <= MOST; i++) { at[i] = tensor_cuda_event_new(TENSOR_CUDA, 1); }
    for (int turn = 0; turn < 3; turn++) {              // the last one counts
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_t *x = input;
        double start;
        tensor_cuda_synchronize(TENSOR_CUDA);
        start = bench_now();
        tensor_cuda_event_record(at[0], stream);
        host[0] = 0;
        for (n = 0; n < count; n++) {
            x = nn_forward(parts[n], n == FLAT_BEFORE ? tensor_flatten(x, 1, -1) : x);
            if (n == RELU_AFTER) { tensor_relu_(x); }
            tensor_cuda_event_record(at[n + 1], stream);
            host[n + 1] = 1e3 * (bench_now() - start);
        }
        tensor_cuda_synchronize(TENSOR_CUDA);
        tensor_scope_end(s);
    }
    for (int i = 0; i <= n; i++) { device[i] = i ? tensor_cuda_event_elapsed_time(at[0], at[i]) : 0; }
    for (int i = 0; i <= MOST; i++) { tensor_cuda_event_free(at[i]); }
    bench_row("queue_host", host[n], "ms");
    bench_row("queue_device", device[n], "ms");
    if (!f) { return; }
    double scale = 860 / (device[n] > host[n] ? device[n] : host[n]);
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='150' font-family='sans-serif' "
            "font-size='12'>\n<rect width='1000' height='150' fill='white'/>\n"
            "<text x='10' y='20'>ResNet-50, inference: the host asks for a layer, the device runs it "
            "(%.2f ms, %.2f ms)</text>\n", host[n], device[n]);
    for (int lane = 0; lane < 2; lane++) {
        const double *t = lane ? device : host;
        fprintf(f, "<text x='10' y='%d'>%s</text>\n", 62 + 50 * lane, lane ? "device" : "host");
        for (int i = 0; i < n; i++) {
            fprintf(f,
                    "<rect x='%.1f' y='%d' width='%.1f' height='30' fill='hsl(%d,55%%,60%%)'>"
                    "<title>layer %d: %.3f to %.3f ms</title></rect>\n", 70 + t[i] * scale, 42 + 50 * lane,
                    (t[i + 1] - t[i]) * scale, i * 360 / n, i, t[i], t[i + 1]);
        }
    }
    fprintf(f, "</svg>\n");
    fclose(f);
}

// Figure 2: the first step asks the driver for memory, the later ones do not.
static void raw_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1 || sscanf(text, "num_device_free %lld", &n) == 1) {
        *(long long *)user += n;
    }
}
static void warm_up(void) {
    job_t j = {train, NULL, NULL, NULL, NULL, 0, NULL};
    long long before = 0, now = 0, later = 0;
    j.net = mlp(2048 / k);
    j.opt = nn_adam(j.net);
    j.x = tensor_randn(1024 / k, 784);
    j.y = tensor_randint(0, 10, 1024 / k);
    tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &before);
    for (int step = 1; step <= 6; step++, before = now) {
        char name[32];
        double t = bench_now();
        run(&j, 1);
        t = bench_now() - t;
        now = 0;
        tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &now);
        if (step > 1) { later += now - before; }
        snprintf(name, sizeof name, "warm_up_step_%d", step);
        bench_row(name, t * 1e6, "us");
        snprintf(name, sizeof name, "warm_up_driver_%d", step);
        bench_row(name, (double)(now - before), "calls");
    }
    check("warm_up", "no_driver_calls_from_step_2", later == 0);
}

static void one(const char *name, char **more, int count) {
    int64_t before = tensor_cuda_fallbacks();
    tensor_scope_t scope = tensor_scope_begin();
    if (strcmp(name, "ops") == 0) {
        ops(NULL, 0, 'm');
    } else if (strcmp(name, "op") == 0) {
        ops(more, count, 'm');
    } else if (strcmp(name, "once") == 0) {
        ops(more, count, 'o');
    } else if (strcmp(name, "shapes") == 0) {
        ops(more, count, 's');
    } else if (strcmp(name, "smoke") == 0) {
        smoke();
    } else if (strcmp(name, "costs") == 0) {
        costs();
    } else if (strcmp(name, "queue") == 0) {
        queue(count ? more[0] : NULL);
    } else if (strcmp(name, "warm_up") == 0) {
        warm_up();
    } else {
        networks(name);
    }
    tensor_scope_end(scope);
    check(name, "ran", tensor_ok());
    check(name, "all_on_the_device", tensor_cuda_fallbacks() == before);
}
int main(int argc, char **argv) {
    static const char *const all[] = {"smoke", "costs", "ops",      "shapes", "mlp",     "policy",
                                      "ncf",   "lstm",  "resnet50", "gpt2",   "warm_up", "queue"};
    const char *name = argc > 1 ? argv[1] : "all";
    int more = argc > 2 ? argc - 2 : 0;
    began = bench_now();
    if (more && argv[argc - 1][0] >= '1' && argv[argc - 1][0] <= '9') {
        k = atoi(argv[argc - 1]);
        more--;
    }
    if (k < 1 || tensor_cuda_init()) {
        fprintf(stderr, "%s\n", tensor_error_text());
        return 1;
    }
    tensor_set_default_device(TENSOR_CUDA);
    tensor_manual_seed(1);
    if (strcmp(name, "all") == 0) {
        for (size_t i = 0; i < sizeof all / sizeof *all && tensor_ok(); i++) { one(all[i], NULL, 0); }
    } else {
        one(name, argv + 2, more);
    }
    bench_row("library_calls", (double)tensor_cuda_library_calls(), "calls");
    if (*tensor_cuda_library_error()) { printf("library: %s\n", tensor_cuda_library_error()); }
    if (!tensor_ok()) { fprintf(stderr, "%s\n", tensor_error_text()); }
    if (tensor_shutdown() || tensor_cuda_shutdown()) { failed++; }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

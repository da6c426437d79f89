// gpu.c ROW [k] - what the device does: ops, whole networks, and the paper's two figures.
//
//   gpu ops            bytes or operations a second of single ops
//   gpu mlp            and ncf, lstm, resnet50, gpt2: microseconds of a step; _graph: replayed; _memory: its
//                      peak
//   gpu queue x.svg    figure 1: when the host asked for each layer of ResNet-50, when the device ran it
//   gpu warm_up        figure 2: what steps of training ask of the driver
//   gpu all            all of them
//   gpu ROW k          sizes divided by k and one call of each: a trial, for sanitizers and emulators
// Lines are "row value unit" and "check row passed" or "failed"; the last one "N passed, N failed".
#include "nets.h"

#include "tensor_cuda.h"

typedef struct job_t {
    tensor_t *(*call)(struct job_t *j);
    tensor_t *x, *y;
    nn_module_t *net;
    nn_optimizer_t *opt;
    double clip;
    tensor_cuda_graph_t *graph;
} job_t;

static int64_t k = 1;
static int passed, failed;

static void check(const char *name, const char *what, int ok) {
    printf("check %s_%s %s\n", name, what, ok ? "passed" : "failed");
    if (ok) passed++;
    else failed++;
}

// Calls one after the other, then waits.
static void run(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    while (repeats-- > 0) {
        tensor_scope_t s = tensor_scope_begin();
        if (j->graph) tensor_cuda_graph_replay(j->graph);
        else (void)j->call(j);
        tensor_scope_end(s);
    }
    tensor_cuda_synchronize(TENSOR_CUDA);
}
static double measure(job_t *j) {
    double t = bench_now();
    if (k == 1) return bench_median(run, j);
    run(j, 1);
    return bench_now() - t;
}

static tensor_t *copy(job_t *j) { return tensor_clone(j->x); }
static tensor_t *add(job_t *j) { return tensor_add(j->x, j->y); }
static tensor_t *gelu(job_t *j) { return tensor_gelu(j->x); }
static tensor_t *tanh_(job_t *j) { return tensor_tanh(j->x); }
static tensor_t *sum(job_t *j) { return tensor_sum(j->x); }
static tensor_t *sum_columns(job_t *j) { return tensor_sum_dim(j->x, 0, 0); }
static tensor_t *softmax(job_t *j) { return tensor_softmax(j->x, 1); }
static tensor_t *layer_norm(job_t *j) { return tensor_layer_norm(j->x, 1); }
static tensor_t *turn(job_t *j) { return tensor_contiguous(tensor_mT(j->x)); }
static tensor_t *rows(job_t *j) { return tensor_index_select(j->x, 0, j->y); }
static tensor_t *matmul(job_t *j) { return tensor_matmul(j->x, j->y); }
static tensor_t *conv2d(job_t *j) { return tensor_conv2d(j->x, j->y, .padding = 1); }
static tensor_t *causal(job_t *j) {
    return tensor_scaled_dot_product_attention(j->x, j->x, j->x, .is_causal = 1);
}
// work: bytes or floating-point operations of one call, in units of unit.
static void op(const char *name, tensor_t *(*call)(job_t *j), tensor_t *x, tensor_t *y, double work,
               const char *unit) {
    job_t j = {call, x, y, NULL, NULL, 0, NULL};
    double t = measure(&j);
    if (strcmp(unit, "us") == 0) bench_row(name, t * 1e6, unit);
    else bench_row(name, work / t * (unit[0] == 'G' ? 1e-9 : 1e-12), unit);
}
static void ops(void) {
    int64_t m = 4096 / k, half = m / 2;
    double bytes = 4.0 * (double)m * (double)m, flop = 2.0 * (double)half * (double)half * (double)half;
    tensor_t *x = tensor_randn(m, m), *y = tensor_randn(m, m), *at = tensor_randint(0, m, m);
    tensor_t *a = tensor_randn(half, half), *b = tensor_randn(half, half), *q = tensor_randn(8, 16, m / 4,
            64);
    tensor_t *image = tensor_randn(32, 64, 64 / k + 1, 64 / k + 1), *weight = tensor_randn(64, 64, 3, 3);
    double pixels = (double)tensor_numel(image) / 64, token = (double)m / 4;
    op("copy", copy, x, NULL, 2 * bytes, "GB/s");
    op("add", add, x, y, 3 * bytes, "GB/s");
    op("gelu", gelu, x, NULL, 2 * bytes, "GB/s");
    op("tanh", tanh_, x, NULL, 2 * bytes, "GB/s");
    op("sum", sum, x, NULL, bytes, "GB/s");
    op("sum_columns", sum_columns, x, NULL, bytes, "GB/s");
    op("softmax", softmax, x, NULL, 2 * bytes, "GB/s");
    op("layer_norm", layer_norm, x, NULL, 2 * bytes, "GB/s");
    op("transpose", turn, x, NULL, 2 * bytes, "GB/s");
    op("index_select", rows, x, at, 2 * bytes, "GB/s");
    op("add_16", add, tensor_randn(16), tensor_randn(16), 0, "us");
    op("matmul_2048_f32", matmul, a, b, flop, "TF/s");
    op("matmul_2048_bf16", matmul, tensor_to(a, TENSOR_BF16), tensor_to(b, TENSOR_BF16), flop, "TF/s");
    op("matmul_4096_bf16", matmul, tensor_to(x, TENSOR_BF16), tensor_to(y, TENSOR_BF16), 8 * flop, "TF/s");
    op("conv_64_3x3", conv2d, image, weight, 2.0 * 64 * 64 * 9 * pixels, "TF/s");
    op("attention_f32", causal, q, NULL, 2.0 * 8 * 16 * token * token * 64, "TF/s");
    op("attention_bf16", causal, tensor_to(q, TENSOR_BF16), NULL, 2.0 * 8 * 16 * token * token * 64, "TF/s");
}

static tensor_t *train(job_t *j) {
    tensor_t *y = nn_forward(j->net, j->x);
    tensor_t *loss = tensor_cross_entropy(tensor_ndim(y) > 2 ? tensor_flatten(y, 0, 1) : y, j->y);
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    if (j->clip > 0) nn_clip_grad_norm(j->opt, j->clip);
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
    j->graph = tensor_cuda_graph_new(TENSOR_CUDA);
    if (tensor_cuda_graph_begin(j->graph) == 0) {
        (void)j->call(j);
        if (tensor_cuda_graph_end(j->graph) == 0) bench_row(text, 1e6 * measure(j), "us");
    }
    check(name, "captured", tensor_ok());
    tensor_cuda_graph_free(j->graph);
    j->graph = NULL;
}
static nn_module_t *mlp(int64_t width) {
    return nn_sequential(nn_linear(784, width), nn_relu(), nn_linear(width, width), nn_relu(),
                         nn_linear(width, 10));
}
static void networks(const char *name) {
    static lm_t lm;
    static ncf_t ncf;
    static gpt_t gpt;
    job_t j = {train, NULL, NULL, NULL, NULL, 0, NULL};
    if (strcmp(name, "mlp") == 0) {
        j.net = mlp(512 / k);
        j.opt = nn_adam(j.net);
        j.x = tensor_randn(64, 784);
        j.y = tensor_randint(0, 10, 64);
    } else if (strcmp(name, "ncf") == 0) {
        j.call = infer;
        ncf_init(&ncf, 0);
        j.net = nn_eval(&ncf.base);
        j.x = tensor_stack(0, tensor_randint(0, 6040, 1024), tensor_randint(0, 3706, 1024));
    } else if (strcmp(name, "lstm") == 0) {
        lm_init(&lm, 10000 / k, k == 1 ? 200 : 16);
        j.net = &lm.base;
        j.opt = nn_sgd(j.net, .lr = 1);
        j.x = tensor_randint(0, 10000 / k, 35, 20);
        j.y = tensor_randint(0, 10000 / k, 700);
        j.clip = 5;
    } else if (strcmp(name, "resnet50") == 0) {
        int64_t batch = k == 1 ? 64 : 2, side = 224 / k > 32 ? 224 / k : 32;
        j.net = resnet50(1000 / (int)k, k > 16 ? 16 : k);
        nn_to(j.net, TENSOR_BF16);
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
    nn_module_t *net = nn_eval(resnet50(1000 / (int)k, k > 16 ? 16 : k)), *part = net;
    int64_t side = 224 / k > 32 ? 224 / k : 32;
    tensor_t *input = tensor_randn(k == 1 ? 32 : 2, 3, side, side);
    FILE *f = path ? fopen(path, "w") : NULL;
    int n = 0;
    for (int i = 0; i <= MOST; i++) at[i] = tensor_cuda_event_new(TENSOR_CUDA, 1);
    for (int turn = 0; turn < 3; turn++) {              // the last one counts
        tensor_scope_t s = tensor_scope_begin_no_grad();
        tensor_t *x = input;
        double start;
        tensor_cuda_synchronize(TENSOR_CUDA);
        start = bench_now();
        tensor_cuda_event_record(at[0], stream);
        host[0] = 0;
        for (n = 0; n < MOST; n++) {
            char name[8];
            snprintf(name, sizeof name, "%d", n);
            if (n > 22) break;
            part = nn_get_child(net, name);
            x = nn_forward(part, x);
            tensor_cuda_event_record(at[n + 1], stream);
            host[n + 1] = 1e3 * (bench_now() - start);
        }
        tensor_cuda_synchronize(TENSOR_CUDA);
        tensor_scope_end(s);
    }
    for (int i = 0; i <= n; i++) device[i] = i ? tensor_cuda_event_elapsed_time(at[0], at[i]) : 0;
    for (int i = 0; i <= MOST; i++) tensor_cuda_event_free(at[i]);
    bench_row("queue_host", host[n], "ms");
    bench_row("queue_device", device[n], "ms");
    if (!f) return;
    double scale = 860 / (device[n] > host[n] ? device[n] : host[n]);
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='150' font-family='sans-serif' "
            "font-size='12'>\n<rect width='1000' height='150' fill='white'/>\n"
            "<text x='10' y='20'>ResNet-50, inference: the host asks for a layer, the device runs it "
            "(%.2f ms, %.2f ms)</text>\n", host[n], device[n]);
    for (int lane = 0; lane < 2; lane++) {
        const double *t = lane ? device : host;
        fprintf(f, "<text x='10' y='%d'>%s</text>\n", 62 + 50 * lane, lane ? "device" : "host");
        for (int i = 0; i < n; i++)
            fprintf(f,
                    "<rect x='%.1f' y='%d' width='%.1f' height='30' fill='hsl(%d,55%%,60%%)'>"
                    "<title>layer %d: %.3f to %.3f ms</title></rect>\n", 70 + t[i] * scale, 42 + 50 * lane,
                    (t[i + 1] - t[i]) * scale, i * 360 / n, i, t[i], t[i + 1]);
    }
    fprintf(f, "</svg>\n");
    fclose(f);
}

// Figure 2: the first step asks the driver for memory, the later ones do not.
static void raw_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1 || sscanf(text, "num_device_free %lld", &n) == 1)
        *(long long *)user += n;
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
        if (step > 1) later += now - before;
        snprintf(name, sizeof name, "warm_up_step_%d", step);
        bench_row(name, t * 1e6, "us");
        snprintf(name, sizeof name, "warm_up_driver_%d", step);
        bench_row(name, (double)(now - before), "calls");
    }
    check("warm_up", "no_driver_calls_from_step_2", later == 0);
}

static void one(const char *name, const char *path) {
    int64_t before = tensor_cuda_fallbacks();
    tensor_scope_t scope = tensor_scope_begin();
    if (strcmp(name, "ops") == 0) ops();
    else if (strcmp(name, "queue") == 0) queue(path);
    else if (strcmp(name, "warm_up") == 0) warm_up();
    else networks(name);
    tensor_scope_end(scope);
    check(name, "ran", tensor_ok());
    check(name, "all_on_the_device", tensor_cuda_fallbacks() == before);
}
int main(int argc, char **argv) {
    static const char *const all[] = {"ops", "mlp", "ncf", "lstm", "resnet50", "gpt2", "warm_up", "queue"};
    const char *name = argc > 1 ? argv[1] : "all";
    int figure = strcmp(name, "queue") == 0;
    if (argc > 2 + figure) k = atoi(argv[2 + figure]);
    if (k < 1 || tensor_cuda_init()) {
        fprintf(stderr, "%s\n", tensor_error_text());
        return 1;
    }
    tensor_set_default_device(TENSOR_CUDA);
    tensor_manual_seed(1);
    if (strcmp(name, "all") == 0) {
        for (size_t i = 0; i < sizeof all / sizeof *all && tensor_ok(); i++) one(all[i], NULL);
    } else {
        one(name, argc > 2 ? argv[2] : NULL);
    }
    bench_row("library_calls", (double)tensor_cuda_library_calls(), "calls");
    if (*tensor_cuda_library_error()) printf("library: %s\n", tensor_cuda_library_error());
    if (!tensor_ok()) fprintf(stderr, "%s\n", tensor_error_text());
    if (tensor_shutdown() || tensor_cuda_shutdown()) failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

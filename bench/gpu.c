// gpu.c - what the device does, each row beside a named reference of the same run: a copy of as many bytes on
// the device, or the CPU kernels on all processors.    gpu [divide sizes by this, for a trial]
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include "tensor_cuda.h"
#include "tensor_nn.h"

typedef struct job_t {
    tensor_t *(*call)(struct job_t *j);
    tensor_t *x, *y, *index;
    nn_module_t *net;
    nn_optimizer_t *opt;
    int device;
    tensor_cuda_graph_t *graph;
} job_t;

static tensor_t *copy(job_t *j) { return tensor_clone(j->x); }
static tensor_t *add(job_t *j) { return tensor_add(j->x, j->y); }
static tensor_t *gelu(job_t *j) { return tensor_gelu(j->x); }
static tensor_t *sum(job_t *j) { return tensor_sum(j->x); }
static tensor_t *sum_rows(job_t *j) { return tensor_sum_dim(j->x, 0, 0); }
static tensor_t *softmax(job_t *j) { return tensor_softmax(j->x, 1); }
static tensor_t *layer_norm(job_t *j) { return tensor_layer_norm(j->x, 1); }
static tensor_t *turn(job_t *j) { return tensor_contiguous(tensor_mT(j->x)); }
static tensor_t *rows(job_t *j) { return tensor_index_select(j->x, 0, j->index); }
static tensor_t *matmul(job_t *j) { return tensor_matmul(j->x, j->y); }
static tensor_t *conv(job_t *j) { return tensor_conv2d(j->x, j->y, .padding = 1); }
static tensor_t *attention(job_t *j) {
    return tensor_scaled_dot_product_attention(j->x, j->x, j->x, .is_causal = 1);
}
static tensor_t *train(job_t *j) {
    tensor_t *loss = tensor_cross_entropy(nn_forward(j->net, j->x), j->index);
    nn_zero_grad(j->opt);
    tensor_backward(loss);
    nn_step(j->opt);
    return loss;
}

static void run(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    while (repeats-- > 0) {
        tensor_scope_t s = tensor_scope_begin();
        (void)j->call(j);
        tensor_scope_end(s);
    }
    if (j->device) tensor_cuda_synchronize(TENSOR_CUDA);
}
static void replay(void *arg, long repeats) {
    job_t *j = (job_t *)arg;
    while (repeats-- > 0) (void)tensor_cuda_graph_replay(j->graph);
    tensor_cuda_synchronize(TENSOR_CUDA);
}
static job_t job(tensor_t *(*call)(job_t *j), int device, tensor_t *x, tensor_t *y, tensor_t *index) {
    job_t j = {call, x, y, index, NULL, NULL, device, NULL};
    int where = device ? TENSOR_CUDA : TENSOR_CPU;
    j.x = tensor_to(x, where);
    if (y) j.y = tensor_to(y, where);
    if (index) j.index = tensor_to(index, where);
    return j;
}
// One row: time on the device, the rate, and the ratio to the reference. bytes or flop of one call.
static double copied;                                   // bytes a second of a copy on the device
static void row(const char *name, tensor_t *(*call)(job_t *j), tensor_t *x, tensor_t *y, tensor_t *index,
                double bytes, double flop) {
    job_t there = job(call, 1, x, y, index), here = job(call, 0, x, y, index);
    double t = bench_median(run, &there), c;
    if (call == copy) copied = bytes / t;
    if (bytes > 0) {
        printf("| %s | %.1f us | %.0f GB/s | %.2f of a copy |\n", name, t * 1e6, bytes / t * 1e-9,
               bytes / t / copied);
        return;
    }
    c = bench_median(run, &here);
    if (flop > 0)
        printf("| %s | %.1f us | %.2f TFLOP/s | %.1f times the CPU |\n", name, t * 1e6, flop / t * 1e-12,
               c / t);
    else printf("| %s | %.2f us | | %.2f times the CPU |\n", name, t * 1e6, c / t);
}
// eager: microseconds of PyTorch's eager step of the same, 0 = not known.
static void network(const char *name, int64_t batch, int64_t width, double eager) {
    double t[2], graph = 0;
    int d;
    for (d = 0; d < 2; d++) {
        job_t j = job(train, d, tensor_randn(batch, 784), NULL, tensor_randint(0, 10, batch));
        tensor_set_default_device(d ? TENSOR_CUDA : TENSOR_CPU);
        j.net = nn_sequential(nn_linear(784, width), nn_relu(), nn_linear(width, width), nn_relu(),
                              nn_linear(width, 10));
        j.opt = nn_adam(j.net);
        t[d] = bench_median(run, &j);
        if (d) {
            j.graph = tensor_cuda_graph_new(TENSOR_CUDA);
            if (tensor_cuda_graph_begin(j.graph) == 0) {
                (void)train(&j);
                tensor_cuda_graph_end(j.graph);
                graph = bench_median(replay, &j);
            }
            tensor_cuda_graph_free(j.graph);
        }
        nn_optimizer_free(j.opt);
        nn_free(j.net);
    }
    tensor_set_default_device(TENSOR_CPU);
    printf("| %s | %.0f us a step | | %.2f times the CPU |\n", name, t[1] * 1e6, t[0] / t[1]);
    printf("| the same, replayed as a graph | %.0f us a step | | %.2f times our steps without |\n",
           graph * 1e6, t[1] / graph);
    if (eager > 0)
        printf("| | | | %.2f times PyTorch's eager step (%.0f us) |\n", eager / graph * 1e-6, eager);
}

// The paper's figure 2: the first steps ask the driver for memory, the later ones do not.
static void raw_line(void *user, const char *text) {
    long long n;
    if (sscanf(text, "num_device_alloc %lld", &n) == 1 ||
        sscanf(text, "num_device_free %lld", &n) == 1)
        *(long long *)user += n;
}
static void warm_up(int64_t k) {
    int64_t batch = 1024 / k, width = 2048 / k;
    job_t j = job(train, 1, tensor_randn(batch, 784), NULL, tensor_randint(0, 10, batch));
    int step;
    long long before = 0, now;
    tensor_cuda_empty_cache(TENSOR_CUDA);
    tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &before);
    tensor_set_default_device(TENSOR_CUDA);
    j.net = nn_sequential(nn_linear(784, width), nn_relu(), nn_linear(width, width), nn_relu(),
                          nn_linear(width, 10));
    j.opt = nn_adam(j.net);
    printf("\n| step of training | time | calls of the driver for memory | reserved |\n");
    printf("| --- | --- | --- | --- |\n");
    for (step = 1; step <= 6; step++, before = now) {
        double t = bench_now();
        run(&j, 1);
        t = bench_now() - t;
        now = 0;
        tensor_cuda_memory_stats(TENSOR_CUDA, raw_line, &now);
        printf("| %d | %.0f us | %lld | %.0f MiB |\n", step, t * 1e6, now - before,
               (double)tensor_cuda_memory_reserved(TENSOR_CUDA) / 1048576);
    }
    nn_optimizer_free(j.opt);
    nn_free(j.net);
    tensor_set_default_device(TENSOR_CPU);
}

int main(int argc, char **argv) {
    int64_t k = argc > 1 ? atoi(argv[1]) : 1, n = 1 << 24, m = 4096;
    (void)bench_row;
    tensor_t *x, *y, *at;
    double bytes;
    const char *eager = getenv("TORCH_US");         // from gpu.sh
    if (tensor_cuda_init()) {
        fprintf(stderr, "%s\n", tensor_error_text());
        return 1;
    }
    tensor_set_num_threads(k == 1 ? tensor_num_processors() : 1);
    n /= k * k;
    m /= k;
    x = tensor_reshape(tensor_randn(n), n / m, m);
    y = tensor_reshape(tensor_randn(n), n / m, m);
    at = tensor_randint(0, n / m, n / m);
    bytes = (double)n * 4;
    printf("| row (f32) | time | rate | beside |\n| --- | --- | --- | --- |\n");
    row("copy of 64 MiB", copy, x, NULL, NULL, 2 * bytes, 0);
    row("add", add, x, y, NULL, 3 * bytes, 0);
    row("gelu", gelu, x, NULL, NULL, 2 * bytes, 0);
    row("sum of all", sum, x, NULL, NULL, bytes, 0);
    row("sum of columns", sum_rows, x, NULL, NULL, bytes, 0);
    row("softmax of rows", softmax, x, NULL, NULL, 2 * bytes, 0);
    row("layer norm", layer_norm, x, NULL, NULL, 2 * bytes, 0);
    row("transposed copy", turn, x, NULL, NULL, 2 * bytes, 0);
    row("rows by index", rows, x, NULL, at, 2 * bytes, 0);
    row("add of 16 elements", add, tensor_randn(16), tensor_randn(16), NULL, 0, 0);
    row("matmul 2048^3", matmul, tensor_randn(m / 2, m / 2), tensor_randn(m / 2, m / 2), NULL, 0,
        (double)m * (double)m * (double)m / 4);
    row("matmul 2048^3 in bf16", matmul, tensor_to(tensor_randn(m / 2, m / 2), TENSOR_BF16),
        tensor_to(tensor_randn(m / 2, m / 2), TENSOR_BF16), NULL, 0, (double)m * (double)m * (double)m / 4);
    row("conv 3 x 3, 64 channels, 32 images", conv, tensor_randn(32, 64, m / 64, m / 64),
        tensor_randn(64, 64, 3, 3), NULL, 0, 2.0 * 32 * 64 * 64 * 9 * (double)m * (double)m / 4096);
    row("attention 8 x 1024 x 64", attention, tensor_randn(8, m / 4, 64), NULL, NULL, 0,
        8.0 * (double)m * (double)m / 16 * 64 * 4);
    network("mlp 784-512-512-10, batch 64, adam", 64, 512 / k, eager ? atof(eager) : 0);
    network("mlp 784-2048-2048-10, batch 1024, adam", 1024 / k, 2048 / k, 0);
    warm_up(k);
    printf("\n%lld calls of the above ran on the CPU for want of a kernel.\n",
           (long long)tensor_cuda_fallbacks());
    printf("%lld products and convolutions were cuBLASLt's and cuDNN's%s%s.\n",
           (long long)tensor_cuda_library_calls(), *tensor_cuda_library_error() ? "; " : "",
           tensor_cuda_library_error());
    if (!tensor_ok()) fprintf(stderr, "%s\n", tensor_error_text());
    return tensor_shutdown() || tensor_cuda_shutdown();
}
